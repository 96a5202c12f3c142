/* Has memlord_arena_add and memlord_arena_sub, which count arena bytes: bytes that belong to no
   recorded block. Owns the balances. The balance of a device or a tag is the arena bytes that were
   added there and not taken off yet. The balances lie in the records of devices and the rows of
   tags (books/counters). A row has the counters of a device, a site or a tag. May use the books,
   calls/record and calls/deferred. Invariants: while no call is in flight, the balance of a device
   is at least the sum of the balances of its tags (arena_tagged). A call stays inside one shard, a
   part of the map, while it changes a balance and the counts. So neither a fork nor a reset nor
   memlord_verify finds one change without the other. Lock: the row lock of the device guards the
   balances of its tags. */
#ifndef MLI_CALLS_ARENAS_H
#define MLI_CALLS_ARENAS_H
#include "api/api.h"

#endif
