/* Owns the slots of hooked tables (mli_hooked), and has the functions behind the macros of
   api/shim. Invariant: a function returns the result of the function that it replaces, and leaves
   errno as that function did, whether or not the ledger could record the call. Locks: the registry
   lock, while a table is hooked or unhooked. */
#ifndef MLI_EMBED_REDIRECT_H
#define MLI_EMBED_REDIRECT_H
#include "api/api.h"

#endif
