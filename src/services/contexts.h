/* Owns the contexts of fibres. A fibre is work of the host that moves between threads, such as a
   coroutine. The context of a fibre has the fibre's open tags and scopes, default tag, account,
   stream and tickets. Each thread has a context of its own, too. A swap puts the thread into
   another context. The interposer is a preloaded MemLord, with a ledger of its own. May use books/
   and services/scopes. Invariants: each context is in one place, which is a thread or a fibre's
   record; a thread's own context never gets into another thread. Locks: context
   (MLI_RANK_CONTEXT), one for each record; cold, to make a record. */
#ifndef MLI_SERVICES_CONTEXTS_H
#define MLI_SERVICES_CONTEXTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"

/* Takes a thread out of every fibre's context that it is in, the last entered first, and stores
   each context in its record. Afterwards the thread is in its own context. With `locks` 1 it takes
   the lock of each record; with 0 the caller holds all these locks. Requires: the caller is the
   thread, or the thread has ended. */
MLI_PRIVATE MLI_COLD void mli_context_home(mli_thread *t, int locks);
/* Removes the tags, tickets, account and stream of a context. Requires: the context has no
   scopes. */
MLI_PRIVATE MLI_COLD void mli_current_clear(mli_current *now);

#if !MLI_WINDOWS /* Windows has no fork */
/* In a forked child: adds the open scopes in the contexts of fibres to the counts of running
   invocations. */
MLI_PRIVATE MLI_COLD void mli_contexts_recount(memlord *lord);
#endif

MLI_TABLE(const mli_life mli_contexts_life)

#endif
