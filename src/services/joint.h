/* Owns the invocations of scopes that several threads share: each has one record, from the first
   export until the last thread has left it. May use books/. Invariants: as those of mli_joint.
   Locks: shared (MLI_RANK_JOINT), one a record, which may be taken inside; cold, to open and to
   close one. */
#ifndef MLI_SERVICES_JOINT_H
#define MLI_SERVICES_JOINT_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/counters.h"

/* Shares the innermost span of a thread, which is its first member. Errors: E_NOMEM. */
MLI_PRIVATE MLI_COLD memlord_result mli_joint_open(memlord *lord, mli_thread *t);
/* Returns the invocation of a token; NULL: it is over, or there is none. */
MLI_PRIVATE MLI_COLD mli_joint *mli_joint_find(memlord *lord, uint64_t token);
/* Becomes a member. 0: the invocation of the token is over by now. */
MLI_PRIVATE MLI_COLD int mli_joint_join(mli_joint *shared, uint64_t token);

/* Counts what the level of a thread adds to a shared invocation on a device by its base (enter 1),
   or exactly (enter 0), as it does no longer change. */
MLI_PRIVATE MLI_COLD void mli_joint_settle(memlord *lord, mli_joint *shared, uint32_t dev,
                                            const mli_cell *cell, int enter);

/* What a span that leaves a shared invocation counted, and that of the whole invocation. */
typedef struct mli_leaver {
    uint64_t bytes, blocks, peak, start, before;
    const char *shapes;
} mli_leaver;
/* Adds what a span counted, and ends its membership. `t` is the thread that its context is in, with
   its levels; NULL: it is in none, and all levels are 0. Returns 1 if it was the last member: then
   *v is of the invocation, whose deltas on each device are added to `sums`, unless that is NULL. */
MLI_PRIVATE MLI_COLD int mli_joint_leave(memlord *lord, const mli_thread *t, mli_span *f,
                                          mli_leaver *v, mli_u64 *sums);

#if !MLI_WINDOWS /* it has no fork */
/* Counts a span of a context that goes on in a forked child as a member. Returns 1 for the first. */
MLI_PRIVATE MLI_COLD int mli_joint_recount(const mli_span *f);
/* Closes in a forked child the invocations that have no member there. */
MLI_PRIVATE MLI_COLD void mli_joint_sweep(memlord *lord);
#endif

MLI_PRIVATE MLI_COLD void mli_joint_life(mli_life *life);

#endif
