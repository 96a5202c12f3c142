/* Has memlord_arena_add and memlord_arena_sub, which count bytes without identity. Owns the
   balances of arenas, which lie with the rows of tags and the records of devices (books/counters).
   May use the books, calls/record and calls/deferred. Invariants: while no call is in flight, the
   balance of a device is at least the sum of the balances of its tags (arena_tagged). A call
   changes a balance and the counts in one stay inside a shard, so that no fork and no report sees
   one without the other. Lock: the row lock of the device guards the balances of its tags. */
#ifndef MLI_CALLS_ARENAS_H
#define MLI_CALLS_ARENAS_H
#include "api/api.h"

#endif
