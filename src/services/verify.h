/* Compares the ledger with itself: memlord_verify. Owns no state. Uses books/map, books/counters,
   books/names, books/sites, books/fences, books/parts, books/blocks and books/limits. Invariants:
   the map is stopped during the walk, as for a fork, so that the ledger's own threads change
   nothing meanwhile; the first check that fails ends the walk, and its line is logged when nothing
   is held. MEMLORD_NO_VERIFY leaves it out. Locks: cold, all shards and fences for all of it; phys,
   one at a time. */
#ifndef MLI_SERVICES_VERIFY_H
#define MLI_SERVICES_VERIFY_H
#include "api/api.h"

#endif
