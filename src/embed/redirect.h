/* Owns the tables of hosts that are hooked, and has the functions behind the macros of api/shim.
   May use the recording calls and the allocator of the host. Invariant: a function returns the
   result and leaves the errno of the function that it replaces, whether or not the ledger could
   record the call.
   Locks: registry, while a table is hooked or unhooked. */
#ifndef MLI_EMBED_REDIRECT_H
#define MLI_EMBED_REDIRECT_H
#include "api/api.h"

#endif
