/* Owns the slots of hooked tables. A table has a host's functions for malloc, free and the like. A
   hook puts functions of MemLord in their place, and a slot keeps the host's functions. Also
   has the functions behind the macros of api/shim. May use the recording calls and the allocator of
   the host. Invariant: a function returns the result of the function that it replaces, and leaves
   errno as that function did, whether or not the ledger could record the call. Locks: the registry
   lock, while a table is hooked or unhooked. */
#ifndef MLI_EMBED_REDIRECT_H
#define MLI_EMBED_REDIRECT_H
#include "api/api.h"

#endif
