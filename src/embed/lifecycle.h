/* Makes and destroys ledgers, and has the global ledger. The registry is the list of the process's
   ledgers. A helper is a thread of the ledger's own. A fence tells when a device has finished with
   a freed block. May use all other modules. Invariant: a ledger stops its helpers at its end,
   then drops its fences, and then leaves the registry. After that no other thread uses the ledger.
   Locks: the registry lock, while the thread holds no other lock. */
#ifndef MLI_EMBED_LIFECYCLE_H
#define MLI_EMBED_LIFECYCLE_H
#include "api/api.h"

#endif
