/* Has memlord_alloc, memlord_free and memlord_release. Owns no state. May use the books,
   calls/record and calls/deferred. Invariants: a call changes nothing before it is sure to succeed.
   A call counts before it leaves the shard of the map; only a free counts at its own site after
   that. Locks: no lock is held when a call returns. */
#ifndef MLI_CALLS_FAST_H
#define MLI_CALLS_FAST_H
#include "api/api.h"

#endif
