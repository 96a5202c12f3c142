/* Has memlord_arena_add and memlord_arena_sub. Owns the balances: the arena bytes of each device
   and tag. Invariants: while no call is in flight, the balance of a device is at least the sum of
   those of its tags; a call changes a balance and the counts inside one shard, so no fork, reset or
   memlord_verify finds one change without the other. Lock: the row lock of the device guards the
   balances of its tags. */
#ifndef MLI_CALLS_ARENAS_H
#define MLI_CALLS_ARENAS_H
#include "api/api.h"

#endif
