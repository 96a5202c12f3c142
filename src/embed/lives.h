/* Has the table of all modules that take part in the life of a ledger, and calls their functions
   (mli_life) in order. Owns no state. Locks: for a fork, those of all modules, all taken while the
   cold lock is held. */
#ifndef MLI_EMBED_LIVES_H
#define MLI_EMBED_LIVES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "books/threads.h"

/* Returns the size in bytes of a ledger and of the module states that lie behind it. */
MLI_PRIVATE MLI_COLD size_t mli_lives_size(void);
/* Sets the pointers of a new ledger to the states behind it, and initialises all states. */
MLI_PRIVATE MLI_COLD void mli_lives_init(memlord *lord, const memlord_desc *desc);
/* Calls each module's function `open`, which applies a description to a registered ledger. */
MLI_PRIVATE MLI_COLD memlord_result mli_lives_open(memlord *lord, const memlord_desc *desc);
MLI_PRIVATE MLI_COLD void mli_lives_stop(memlord *lord);
/* Frees the memory that the states have. */
MLI_PRIVATE MLI_COLD void mli_lives_free(memlord *lord);

#if !MLI_WINDOWS /* Windows has no fork */
/* Takes or drops the modules' locks for a fork. Those of one module in all ledgers come first, then
   those of the next module. Requires: the caller holds the cold lock, so that no device is added
   meanwhile, because a device has a lock, too. */
MLI_PRIVATE MLI_COLD void mli_lives_lock(int take);
/* Mends the states of a ledger in a forked child. */
MLI_PRIVATE MLI_COLD void mli_lives_forked(memlord *lord);
#endif

#endif
