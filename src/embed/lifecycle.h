/* Makes and destroys ledgers, and has the global one. May use all other modules. Invariant: a
   ledger that ends first stops its helpers, then drops its fences, and then leaves the registry.
   From there on no other thread has it. Locks: registry, while the thread holds no other lock. */
#ifndef MLI_EMBED_LIFECYCLE_H
#define MLI_EMBED_LIFECYCLE_H
#include "api/api.h"

#endif
