/* Compares the parts of a ledger with each other, for memlord_verify. Owns no state. Invariants: no
   thread changes the map meanwhile; the first check that fails ends the comparison, and its line is
   logged when no lock is held. Locks: cold, all shards and fences, from begin to end; phys, one at
   a time. */
#ifndef MLI_SERVICES_VERIFY_H
#define MLI_SERVICES_VERIFY_H
#include "api/api.h"

#endif
