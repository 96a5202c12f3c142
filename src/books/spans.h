/* Owns the spans, and the invocations of scopes that threads share. services/scopes begins and ends
   spans, and services/joint shares invocations. Invariant: one thread at a time changes a span, and
   needs no lock for that. Locks: MLI_RANK_JOINT, one for each exported invocation. */
#ifndef MLI_BOOKS_SPANS_H
#define MLI_BOOKS_SPANS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"

#define MLI_SCOPE_DEPTH_MAX 64 /* the most scopes that a context (thread or fibre) may be in */

/* The thread's level on a device when the span began, and the highest level since. */
typedef struct mli_span_peak {
    uint64_t from, high;
} mli_span_peak;

/* An invocation of a scope that was exported, so that other contexts (of threads or fibres) may
   enter it, too. The base of a thread's cell is the part of the cell's level that is published
   (added to the device's published bytes: see books/counters). The base is at most the level.
   While a thread runs a context that is in the invocation, the member `level` includes the base of
   the thread's cell, less the level at which the context's span began. So `level` is at most the
   bytes that all contexts have added. `high` is at most the peak of these bytes. `bytes`, `blocks`
   and `delta` are sums over the contexts that have left. */
typedef struct mli_joint {
    mli_lock lock;                  /* guards what follows, except for token and began */
    uint64_t token;                 /* the second word of a memlord_scope_token */
    struct mli_thread_scope *began; /* the scope's totals on the thread that began it */
    uint32_t members, over, adopted; /* the number of contexts in the invocation; 1 if the exporter
                                        has left; 1 if another context has entered */
    uint64_t start, before, bytes, blocks; /* `start` and `before` are as in mli_span */
    const char *shapes;
    struct { uint64_t level, high, delta; } at[MEMLORD_MAX_DEVICES + 1];
} mli_joint;

typedef struct mli_span {
    struct mli_span *around; /* the span of the enclosing scope; NULL if there is none */
    struct mli_span *inner;  /* the span for a scope inside this one; NULL until it is made */
    uint32_t depth;          /* the number of spans from the outermost one to this one */
    struct mli_scope_record *scope;
    struct mli_thread_scope *stats;
    mli_joint *shared; /* the invocation if it was exported, or NULL */
    int adopted;        /* 1 if the scope began in another context, which exported it */
    uint32_t devices; /* the number of `peaks` that are set, from index 1 */
    uint64_t start, before, blocks; /* at its begin: the stamp, the live bytes; live blocks */
    const char *shapes;
    mli_span_peak peaks[MEMLORD_MAX_DEVICES + 1]; /* by dev */
} mli_span;

/* Returns a span's levels on a device. They start at 0 if the device is newer than the span. */
MLI_PRIVATE MLI_NOINLINE mli_span_peak *mli_span_peak_at(mli_span *f, uint32_t dev);
/* Raises a span's highest level on a device to `level`, if `level` is higher. Compares by the sign
   of the difference, because a level may be below 0. */
MLI_PRIVATE void mli_span_raise(mli_span *f, uint32_t dev, uint64_t level);

/* Adds `by` to the level of an exported invocation on a device. `above` is the highest level since
   the last call, less the old level. Raises `high` to the old level plus `above`, or to the new
   level, if one of them is higher than `high`. `by` and `above` are signed. */
MLI_PRIVATE void mli_joint_add(mli_joint *shared, uint32_t dev, uint64_t by, uint64_t above);
/* Calls mli_joint_add for every exported invocation that a thread is in. `by` is the change of the
   base (published part) of the thread's cell. */
MLI_PRIVATE void mli_spans_share(const mli_thread *t, uint32_t dev, uint64_t by, uint64_t above);

#endif
