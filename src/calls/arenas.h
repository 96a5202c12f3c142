/* Has memlord_arena_add and memlord_arena_sub: bytes without identity. Owns the balances of arenas,
   which lie with the rows of tags and the records of devices (books/counters). May use the books,
   calls/record and calls/deferred. Invariants: the balance of a device is at least the sum of its
   tags' (arena_tagged); a balance and the counts change in one stay inside a shard, so that no fork
   or report sees one without the other. Lock: row, that of the device, for the balances of its
   tags. */
#ifndef MLI_CALLS_ARENAS_H
#define MLI_CALLS_ARENAS_H
#include "api/api.h"

#endif
