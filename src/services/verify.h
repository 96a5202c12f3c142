/* Compares the ledger with itself: memlord_verify. Owns no state. May use books/. Invariants: the
   map is stopped during the walk, as for a fork; the first check that fails ends the walk, and its
   line is logged when nothing is held. Locks: cold, all shards and fences for all of it; phys, one
   at a time. */
#ifndef MLI_SERVICES_VERIFY_H
#define MLI_SERVICES_VERIFY_H
#include "api/api.h"

#endif
