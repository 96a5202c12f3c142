/* Owns the contexts of fibres. A swap puts the thread into another context. Invariants: each
   context is in one place, which is a thread or a fibre's record; a thread's own context never gets
   into another thread. Locks: context (MLI_RANK_CONTEXT), one for each record; cold, to make a
   record. */
#ifndef MLI_SERVICES_CONTEXTS_H
#define MLI_SERVICES_CONTEXTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"

/* Takes a thread out of every fibre's context that it is in, the last entered first, back to its
   own. With `locks` 1 takes the lock of each record; with 0 the caller holds all these locks.
   Requires: the caller is the thread, or the thread has ended. */
MLI_PRIVATE MLI_COLD void mli_context_home(mli_thread *t, int locks);
/* Removes the tags, tickets, account and stream of a context. Requires: it has no scopes. */
MLI_PRIVATE MLI_COLD void mli_current_clear(mli_current *now);

#if !MLI_WINDOWS /* Windows has no fork */
/* In a forked child: counts the open scopes of fibres' contexts as running invocations. */
MLI_PRIVATE MLI_COLD void mli_contexts_recount(memlord *lord);
#endif

MLI_TABLE(const mli_life mli_contexts_life)

#endif
