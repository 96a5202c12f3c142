/* Owns the scopes, and each thread's totals in each (a thread scope). May use books/. Invariants: a
   scope or a thread scope is never removed; a span's totals come from the thread's own cells, so a
   call that counts does nothing for scopes. Lock: cold, to make a scope or a thread scope. */
#ifndef MLI_SERVICES_SCOPES_H
#define MLI_SERVICES_SCOPES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/sites.h"
#include "books/events.h"
#include "services/joint.h"

/* Only the thread itself writes the spans of its context and its thread scopes; readers sum the
   thread scopes. A span's levels are those of the thread that its context is in. A span that ends
   on another thread than it began adds to the thread scope of that thread. A thread that adopts a
   scope has a span and a thread scope of its own in it. */

#define MLI_RUN_WORDS (sizeof(mli_scope_run) / sizeof(uint64_t))
#define MLI_RUNS_KEPT 64 /* the last invocations that a thread scope keeps */

typedef struct mli_min_max {
    mli_u64 total, min, max; /* signed */
} mli_min_max;

/* One thread's totals in one scope, in this epoch. */
typedef struct mli_thread_scope {
    struct mli_thread_scope *next;
    struct mli_scope_record *scope;
    uint32_t thread;
    mli_u64 epoch, count, peak;
    mli_u64 running; /* the invocations that began on the thread, less those that ended on it */
    mli_min_max bytes, blocks, stamps;
    mli_u64 devices[MEMLORD_MAX_DEVICES + 1]; /* signed: the sums of the deltas, by dev */
    /* A ring of the last invocations. The one being written is not among the last `count`. */
    mli_u64 runs[MLI_RUNS_KEPT + 1][MLI_RUN_WORDS];
} mli_thread_scope;

/* Ends all scopes of the context that a thread is in, the innermost first. Requires: the caller is
   the thread, or the thread has ended. */
MLI_PRIVATE MLI_COLD void mli_spans_close(mli_thread *t);
/* Ends all scopes of a context that is in no thread; `t` is the calling thread. Requires: no lock
   held but the orphan's. */
MLI_PRIVATE MLI_COLD void mli_spans_close_left(memlord *lord, mli_thread *t, mli_current *left);

/* Suspend and resume the scopes of the context that a thread leaves, or has entered: between the
   two calls the levels of the scopes count from 0. Requires: the context has scopes. */
MLI_PRIVATE void mli_spans_leave(memlord *lord, mli_thread *t);
MLI_PRIVATE void mli_spans_enter(memlord *lord, mli_thread *t);

MLI_PRIVATE MLI_COLD void mli_spans_free(memlord *lord, mli_context *context);

#if !MLI_WINDOWS /* it has no fork */
/* Forgets in a forked child the scopes of a thread that is gone. They never end. The thread may
   have been about to begin or end one; whether that one is counted is not known. */
MLI_PRIVATE MLI_COLD void mli_spans_forget(mli_current *now);
/* Counts in a forked child the invocations of a context that go on. */
MLI_PRIVATE MLI_COLD void mli_running_count(const mli_current *now);
#endif

#define MLI_SCOPE_NAME 200 /* bytes of a name that are kept */

/* Returns the length of a name, cut to MLI_SCOPE_NAME bytes where a UTF-8 character begins. */
MLI_PRIVATE size_t mli_utf8_cut(const char *name);

/* Sums the thread scopes of a scope, and their deltas on each device into `devices` unless that is
   NULL. A thread scope of an earlier epoch counts as running only. */
MLI_PRIVATE MLI_COLD void mli_scope_sum(memlord *lord, const mli_scope_record *scope,
                                        const mli_stamp_scale *scale, memlord_scope_stat *out,
                                        uint64_t *devices);

/* Copies the invocations in a thread scope's ring, the oldest first, and returns their number.
   Drops the copies that its thread may have overwritten meanwhile. */
MLI_PRIVATE MLI_COLD size_t mli_thread_scope_read(memlord *lord, const mli_thread_scope *s,
                                                  mli_scope_run out[MLI_RUNS_KEPT]);

/* Returns the number of invocations that the rings have overwritten. */
MLI_PRIVATE MLI_COLD uint64_t mli_invocations_lost(memlord *lord);

MLI_PRIVATE MLI_COLD void mli_scopes_life(mli_life *life);

#endif
