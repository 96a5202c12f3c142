/* Owns the invocations of scopes that several contexts share. An invocation is one run of a scope,
   from its begin to its end. A context has the open scopes of a thread or of a fibre; each of them
   is a span. A shared invocation has a record, from the first export until its last member has
   left. A member is a context that is in the invocation: the one that exported it, and those that
   adopted it. A cell has a thread's counters on a device. Its level is the bytes that the thread
   allocated less those it freed. Its base is the part of the level that the thread has published:
   added to the device's counters. May use books/. Invariants: those of mli_joint. Locks: joint
   (MLI_RANK_JOINT), one for each record, also taken inside a shard of the map of blocks; cold, to
   open and to close a record. */
#ifndef MLI_SERVICES_JOINT_H
#define MLI_SERVICES_JOINT_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/counters.h"
#include "books/spans.h"

/* What an invocation of a scope counted, on one thread or, if it was shared, in all its members. */
typedef struct mli_scope_run {
    uint64_t start, stamps; /* when the invocation began; how long it lasted; both by the clock of
                               mli_stamp_now */
    uint64_t bytes, blocks; /* what the invocation allocated less what it freed, in bytes and in
                               blocks; both are signed */
    uint64_t before, after; /* live bytes of all devices at the invocation's begin; at its end */
    uint64_t peak;          /* most bytes that the invocation had above those at its start */
    uint64_t shapes;        /* address of the ledger's copy of the text of memlord_scope_shapes_set;
                               0: the host gave none */
} mli_scope_run;

/* Makes the invocation of a thread's innermost span a shared one, with the thread's context as its
   first member. Returns E_NOMEM if there is no memory for the record. */
MLI_PRIVATE MLI_COLD memlord_result mli_joint_open(memlord *lord, mli_thread *t);
/* Returns the invocation that an exported token names. Returns NULL if the token names none, or if
   the invocation is over. */
MLI_PRIVATE MLI_COLD mli_joint *mli_joint_find(memlord *lord, uint64_t token);
/* Makes the caller's context a member of an invocation, and returns 1. Returns 0 if the exporting
   context has ended the scope, or the invocation is over. */
MLI_PRIVATE MLI_COLD int mli_joint_join(mli_joint *shared, uint64_t token);

/* Changes what a thread adds to the level of a shared invocation on a device. A thread that is in
   the invocation adds the base of its cell, less the cell's level when the thread entered. A thread
   that leaves adds the whole level of its cell in place of the base. `enter` is 1 if the thread
   enters, and 0 if it leaves. Requires: the caller is the thread, or the thread has ended. */
MLI_PRIVATE MLI_COLD void mli_joint_settle(memlord *lord, mli_joint *shared, uint32_t dev,
                                           mli_cell *cell, int enter);

/* Adds what a span counted (*v) to the span's invocation, and ends the membership of the span's
   context. `t` is the thread that this context is in. If the context is in no thread, `t` is NULL
   and all levels are 0. Returns 1 if no member is left. In that case *v gets what the whole
   invocation counted. If `sums` is not NULL, the function then adds to it the bytes by which the
   invocation changed each device. */
MLI_PRIVATE MLI_COLD int mli_joint_leave(memlord *lord, const mli_thread *t, mli_span *f,
                                         mli_scope_run *v, mli_u64 *sums);

#if !MLI_WINDOWS /* Windows has no fork */
/* In a forked child: counts the context of a span as a member of the span's invocation, because the
   context goes on there. Returns 1 if it is the first member that is counted. */
MLI_PRIVATE MLI_COLD int mli_joint_recount(const mli_span *f);
/* In a forked child: closes the invocations that have no member there. */
MLI_PRIVATE MLI_COLD void mli_joint_sweep(memlord *lord);
#endif

MLI_TABLE(const mli_life mli_joint_life)

#endif
