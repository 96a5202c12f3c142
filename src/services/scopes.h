/* Owns the scopes, and each thread's totals in each scope (a thread scope). Invariants: a scope or
   a thread scope is never removed; the totals come from the thread's own counters, so a call that
   counts does nothing for scopes. Lock: cold, to make a scope or a thread scope. */
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

/* Only the thread itself writes its thread scopes and the spans of the context that it is in;
   readers sum the thread scopes. A span measures how the levels of a thread's cells change while
   its context is there. It may end on another thread, and then adds to the thread scope of that
   one. A context that adopts a scope has a span of its own for it. */

#define MLI_RUN_WORDS (sizeof(mli_scope_run) / sizeof(uint64_t))
#define MLI_RUNS_KEPT 64 /* how many of its last invocations a thread scope keeps */

typedef struct mli_min_max {
    mli_u64 total, min, max; /* signed numbers */
} mli_min_max;

/* One thread's totals in one scope, in the epoch that the member `epoch` names. */
typedef struct mli_thread_scope {
    struct mli_thread_scope *next;
    struct mli_scope_record *scope;
    uint32_t thread;
    mli_u64 epoch, count, peak;
    mli_u64 running; /* invocations that began on the thread, less those that ended on it */
    mli_min_max bytes, blocks, stamps;
    mli_u64 devices[MEMLORD_MAX_DEVICES + 1]; /* by dev: the bytes by which all ended spans together
                                                 changed the thread's level; signed */
    /* A ring of the last invocations. `count` rises after an invocation is written, so the one
       being written is not among the last MLI_RUNS_KEPT. */
    mli_u64 runs[MLI_RUNS_KEPT + 1][MLI_RUN_WORDS];
} mli_thread_scope;

/* Ends all scopes of the context that a thread is in, the innermost first. Requires: the caller is
   the thread, or the thread has ended. */
MLI_PRIVATE MLI_COLD void mli_spans_close(mli_thread *t);
/* Ends all scopes of a context that is in no thread. Requires: t holds at most the orphan lock. */
MLI_PRIVATE MLI_COLD void mli_spans_close_left(memlord *lord, mli_thread *t, mli_current *left);

/* Suspend the scopes of the context that a thread leaves, and resume those of the one that it has
   entered. In between they depend on no thread. Requires: the context has scopes. */
MLI_PRIVATE void mli_spans_leave(memlord *lord, mli_thread *t);
MLI_PRIVATE void mli_spans_enter(memlord *lord, mli_thread *t);

/* Frees the spans of a context when the ledger ends. */
MLI_PRIVATE MLI_COLD void mli_spans_free(memlord *lord, mli_context *context);

#if !MLI_WINDOWS /* Windows has no fork */
/* In a forked child: forgets the scopes of a thread that does not exist there, which never end. One
   that was about to begin or to end may or may not be counted. */
MLI_PRIVATE MLI_COLD void mli_spans_forget(mli_current *now);
/* In a forked child: adds 1 to `running` for each invocation that a context is in. */
MLI_PRIVATE MLI_COLD void mli_running_count(const mli_current *now);
#endif

#define MLI_SCOPE_NAME 200 /* most bytes that are kept of a scope's name */

/* Returns the length of a name, cut to MLI_SCOPE_NAME bytes between two UTF-8 characters. */
MLI_PRIVATE size_t mli_utf8_cut(const char *name);

/* Sums the thread scopes of a scope into *out and, unless that is NULL, the bytes by which it
   changed each device into `devices`. One of an earlier epoch adds only to `running`. */
MLI_PRIVATE MLI_COLD void mli_scope_sum(memlord *lord, const mli_scope_record *scope,
                                        const mli_stamp_scale *scale, memlord_scope_stat *out,
                                        uint64_t *devices);

/* Copies the invocations in the ring of a thread scope, the oldest first, without those that the
   thread may have overwritten meanwhile. Returns how many. */
MLI_PRIVATE MLI_COLD size_t mli_thread_scope_read(memlord *lord, const mli_thread_scope *s,
                                                  mli_scope_run out[MLI_RUNS_KEPT]);

/* Returns how many invocations the rings have overwritten. */
MLI_PRIVATE MLI_COLD uint64_t mli_invocations_lost(memlord *lord);

/* Sets the device time (memlord_scope_device_time) of all scopes to 0. */
MLI_PRIVATE MLI_COLD void mli_scopes_reset(memlord *lord);
MLI_TABLE(const mli_life mli_scopes_life)

#endif
