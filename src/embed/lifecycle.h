/* Makes and destroys ledgers, and logs the live blocks of a destroyed ledger. May use all other
   modules. Invariant: the end of a ledger first stops its helpers, then drops its fences, then
   takes it off the registry; from there on no other thread has it. Locks: registry, with nothing
   else held. */
#ifndef MLI_EMBED_LIFECYCLE_H
#define MLI_EMBED_LIFECYCLE_H
#include "api/api.h"



#endif
