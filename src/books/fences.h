/* Owns the fences that the host passed in, and the queues of the fences that pending blocks wait
   for. Invariant: only one thread at a time, the asker of a fence, calls the fence's `done` and
   `drop`, and holds no lock then. Lock: MLI_RANK_FENCES. A thread may take this lock inside a
   shard, and enters no shard while it holds the lock. */
#ifndef MLI_BOOKS_FENCES_H
#define MLI_BOOKS_FENCES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "base/atomics.h"

#define MLI_REST_LEVELS 9 /* a queue of level n rests for 2^n calls; one of level 0 does not rest */

/* The fence queues of a device type. The fences lock guards the members that are not atomic. */
typedef struct mli_pending_queues {
    struct mli_queue *resting[MLI_REST_LEVELS]; /* the queues of each level, sorted by `due`, but
                                                   for those whose first fence has an asker */
    uint32_t levels;  /* a bit for each level that has queues in `resting` */
    uint32_t queues;  /* how many queues the type has */
    mli_u32 calls;    /* the calls that found a queue of the type; the count may be too low */
    mli_u32 due;      /* once `calls` has reached this number, a call looks for a queue to ask */
    mli_u64 late;     /* from this time (ns) on, one call in MLI_REST_LOOK also looks for one */
} mli_pending_queues;

/* A fence is in one of three states. Its block is live, and the fence stands for a use of it
   (memlord_block_use). Or its block is pending and waits for the fence, which is in the queue for
   its device and its memlord_fence.queue until it is done or has failed. Or its block has ended,
   and the fence's `drop` must still be called: by its asker, if it has one (the fence is then
   detached), else by who empties the list `to_drop`. */

/* The pending fences with the same device and memlord_fence.queue, in the order of the frees. */
typedef struct mli_queue {
    struct mli_queue *next[2], *previous[2]; /* its neighbours in two rings: MLI_RING_POLL and
                                                MLI_RING_REST, where NULL means that it is not
                                                there; next[0] also links spare queues */
    struct mli_queue *below[2]; /* the subtrees below it in the tree of its device */
    struct mli_fence_record *first, *last;
    struct mli_fence_record *unasked; /* the first that no thread has asked; NULL: all were asked */
    uint64_t id;     /* memlord_fence.queue, which these fences have in common */
    uint64_t round;  /* the last poll (see calls/deferred) that asked the first fence, or 0 */
    uint64_t passed; /* the number of the last poll that found no more to ask here, or 0 */
    uint64_t late;  /* from this time (ns) on, a call may ask the first fence again before `due` */
    uint32_t dev;
    uint32_t level; /* how often the first fence has answered "not done", below MLI_REST_LEVELS */
    uint32_t due;   /* when mli_pending_queues.calls is at this, a call asks again */
} mli_queue;

/* A fence that the host passed in. `sibling` and `serial` belong to the thread that may change the
   block's side record; the fences lock guards the other members. A record is used again and never
   freed, so that a fork and the end of the ledger find every fence in one list. */
typedef struct mli_fence_record {
    memlord_fence fence;
    struct mli_fence_record *older;           /* the record that was made before this one */
    struct mli_fence_record *sibling;         /* the next fence of the same block */
    struct mli_fence_record *next, *previous; /* in the queue; `next` also links `to_drop`,
                                                 `unused` */
    mli_queue *queue;                         /* the queue that the fence is in, or NULL */
    void *asker;          /* &mli_self of the thread that runs its functions, or soon will */
    uint64_t key, serial; /* of the pending block; a serial of 0: no pending block waits for it */
    uint64_t since;       /* the serial number when it joined its queue: see mli_poll_next */
    uint32_t dev;
    uint32_t detached;    /* 1: its block has ended, and the asker drops the fence */
    uint32_t owes_drop;   /* 1: the ledger accepted the fence, and has not called `drop` */
    int early_answer;     /* what `done` returned while earlier fences were pending; or 0 */
    mli_queue spare;      /* memory that any queue may use: see spare_queues */
} mli_fence_record;

/* Takes the fences lock, which mli_fences_leave drops. */
MLI_PRIVATE void mli_fences_enter(memlord *lord);
MLI_PRIVATE void mli_fences_leave(memlord *lord);
/* Takes the fences lock if no other thread has it. Returns 1 if it took the lock. */
MLI_PRIVATE int mli_fences_try(memlord *lord);

/* Returns a number above all numbers that the function has returned for this ledger. */
MLI_PRIVATE uint64_t mli_serial_next(memlord *lord);

/* Returns a record for a fence that is not accepted yet, or NULL if there is no memory. */
MLI_PRIVATE mli_fence_record *mli_fence_new(memlord *lord, const memlord_fence *fence);
/* Clears a record for another fence. The first takes the fences lock; the second requires it. */
MLI_PRIVATE void mli_fence_free(memlord *lord, mli_fence_record *f);
MLI_PRIVATE void mli_fence_free_locked(memlord *lord, mli_fence_record *f);

#define MLI_REST_MOST 256     /* the largest number of calls that leave a queue alone */
#define MLI_REST_NS 10000000u /* after this time (ns) a call may ask a queue again at once */
#define MLI_REST_LOOK 8       /* one call in this many looks whether MLI_REST_NS has passed */

MLI_PRIVATE mli_pending_queues *mli_pends_of(memlord *lord, uint32_t type);
/* Returns the queue for a device and a memlord_fence.queue (`id`), or NULL if there is none. */
MLI_PRIVATE mli_queue *mli_queue_find(memlord *lord, uint32_t dev, uint64_t id);
/* Makes this thread the asker of a fence, and returns the fence. */
MLI_PRIVATE mli_fence_record *mli_fence_claim(memlord *lord, mli_fence_record *f);
/* Claims the next fence of a device that a poll has to ask, or returns NULL. In each queue those
   that no thread has asked come first, because the first call of a `done` may record an event of
   the device; then the first fence, unless poll `round` has asked it. Passes over fences that
   joined after the poll began, so that a poll ends even if a `drop` defers another free. */
MLI_PRIVATE MLI_COLD mli_fence_record *mli_poll_next(memlord *lord, uint32_t dev, uint64_t round);

/* Sets the level of a queue: a call asks its first fence again after the calls of the level on its
   device type or after MLI_REST_NS, whichever comes first. */
MLI_PRIVATE void mli_queue_back_off(memlord *lord, mli_queue *q, uint32_t level, uint64_t now);

/* Appends a fence to its queue, which notes it as unasked under MEMLORD_FLAG_DEFER. */
MLI_PRIVATE void mli_queue_insert(memlord *lord, mli_fence_record *f);

/* Removes a fence from its queue. If this empties the queue, the queue becomes a spare queue. */
MLI_PRIVATE void mli_queue_remove(memlord *lord, mli_fence_record *f);

/* Detaches f and its siblings from a block that has ended or has got other fences. An asker drops
   its fence; the others go on the list `to_drop`. f may be NULL. May be called inside a shard. */
MLI_PRIVATE MLI_NOINLINE void mli_fences_detach(memlord *lord, mli_fence_record *f);

MLI_PRIVATE int mli_fence_is_running(const memlord *lord);
/* Asks a fence, and returns its answer: 0 for not yet, > 0 for done, < 0 for failed. Does not call
   `done` again after done or failed. Requires: the caller is the asker, and holds no lock. */
MLI_PRIVATE MLI_NOINLINE int mli_fence_ask(memlord *lord, mli_fence_record *f);
/* Drops a fence that the ledger has accepted, once. Returns 1 if this call did so. Requires: the
   caller holds no lock, and is the asker of the fence or the only thread that has it. */
MLI_PRIVATE int mli_fence_drop(memlord *lord, mli_fence_record *f);

/* Accepts a fence that no block waits for, and drops it, under MEMLORD_FLAG_DEFER by the list
   `to_drop`. `lord` and `fence` may be NULL. */
MLI_PRIVATE MLI_COLD memlord_result mli_fence_discard(memlord *lord, const memlord_fence *fence);

/* Returns the fence record after f, the first one if f is NULL, or NULL if there is none. */
MLI_PRIVATE mli_fence_record *mli_fence_next(memlord *lord, const mli_fence_record *f);

/* Drops and frees the fences of the list `to_drop`, unless this thread is running a function of a
   fence. Requires: the caller holds no lock, and is not inside a shard. */
MLI_PRIVATE MLI_COLD void mli_fences_drain(memlord *lord);

/* Drops every fence that was accepted. A `drop` may defer further frees, so repeats until a round
   drops no fence, but at most 1000 times. */
MLI_PRIVATE MLI_COLD void mli_fences_end(memlord *lord);

MLI_TABLE(const mli_life mli_fences_life)

#endif
