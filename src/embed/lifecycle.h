/* Makes and destroys ledgers, and has the global ledger. Invariant: a ledger stops its helpers at
   its end, then drops its fences, and then leaves the registry (the list of the process's ledgers);
   after that no other thread uses it. Locks: the registry lock, while the thread holds no other
   lock. */
#ifndef MLI_EMBED_LIFECYCLE_H
#define MLI_EMBED_LIFECYCLE_H
#include "api/api.h"

#endif
