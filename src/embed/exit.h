/* Owns the hooks of the process: one for the end of a thread, and those for a fork. Invariant: a
   fork finds every ledger between two calls. Locks: the registry lock, then all other locks in
   their order. */
#ifndef MLI_EMBED_EXIT_H
#define MLI_EMBED_EXIT_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

/* Looks up the interposer, and installs the hooks of the process. Without the exit hook all threads
   share the orphan record, which is slower but just as exact. */
MLI_PRIVATE MLI_COLD void mli_hooks_install(void);

#endif
