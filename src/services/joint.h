/* Owns the invocations of scopes that several contexts share. A shared invocation has a record,
   from the first export until its last member has left; a member is a context that exported or
   adopted it. Invariants: those of mli_joint. Locks: joint (MLI_RANK_JOINT), one for each record,
   also taken inside a shard; cold, to open and to close a record. */
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
    uint64_t start, stamps; /* when it began; how long it lasted, by mli_stamp_now */
    uint64_t bytes, blocks; /* what it allocated less what it freed; both signed */
    uint64_t before, after; /* live bytes of all devices at the invocation's begin; at its end */
    uint64_t peak;          /* most bytes that the invocation had above those at its start */
    uint64_t shapes;        /* the kept text of memlord_scope_shapes_set; 0: the host gave none */
} mli_scope_run;

/* Shares the invocation of a thread's innermost span, with its context as first member. Returns
   E_NOMEM if there is no memory for the record. */
MLI_PRIVATE MLI_COLD memlord_result mli_joint_open(memlord *lord, mli_thread *t);
/* Returns the invocation that an exported token names, or NULL if there is none or it is over. */
MLI_PRIVATE MLI_COLD mli_joint *mli_joint_find(memlord *lord, uint64_t token);
/* Makes the caller's context a member of an invocation. Returns 0 if the exporting context has
   ended the scope, or the invocation is over. */
MLI_PRIVATE MLI_COLD int mli_joint_join(mli_joint *shared, uint64_t token);

/* Changes what a thread adds to the level of a shared invocation on a device. One in it adds the
   base of its cell, less the level when it entered (`enter` is 1). One that leaves (0) adds the
   level in place of the base. Requires: the caller is the thread, or the thread has ended. */
MLI_PRIVATE MLI_COLD void mli_joint_settle(memlord *lord, mli_joint *shared, uint32_t dev,
                                           mli_cell *cell, int enter);

/* Adds what a span counted (*v) to its invocation, and ends the membership of its context, in the
   thread t (NULL: in none, and all levels are 0). If no member is left, returns 1, *v gets what the
   whole invocation counted, and *sums, if not NULL, by how much it changed each device. */
MLI_PRIVATE MLI_COLD int mli_joint_leave(memlord *lord, const mli_thread *t, mli_span *f,
                                         mli_scope_run *v, mli_u64 *sums);

#if !MLI_WINDOWS /* Windows has no fork */
/* In a forked child: counts the context of a span, which goes on there, as a member of its
   invocation. Returns 1 for the first member. */
MLI_PRIVATE MLI_COLD int mli_joint_recount(const mli_span *f);
/* In a forked child: closes the invocations that have no member there. */
MLI_PRIVATE MLI_COLD void mli_joint_sweep(memlord *lord);
#endif

MLI_TABLE(const mli_life mli_joint_life)

#endif
