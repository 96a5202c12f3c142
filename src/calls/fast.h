/* Has memlord_alloc, memlord_free and memlord_release. Owns no state. May use the books,
   calls/record and calls/deferred. Invariants: a call changes nothing before it is sure to succeed;
   it counts before it leaves the shard, except a free at the site of the free. Locks: none held at
   the return. */
#ifndef MLI_CALLS_FAST_H
#define MLI_CALLS_FAST_H
#include "api/api.h"

#endif
