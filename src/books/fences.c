#include "books/fences.h"
#include "base/atomics.h"
#include "base/memory.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/counters.h"

struct mli_fences_state {
    mli_lock lock;
    mli_ptr all;                      /* mli_fence_record *: the newest; none is ever removed */
    struct mli_fence_record *unused;  /* records that hold no fence */
    struct mli_fence_record *to_drop; /* the fences to drop at the end of a call */
    struct mli_queue *spare_queues;   /* unused; one for each record, so that a free allocates
                                         none */
    mli_pending_queues pends[MEMLORD_DEVICE_TYPE_COUNT];
    mli_u64 serial;                   /* the last number that mli_serial_next returned */
};

MLI_PRIVATE void mli_fences_enter(memlord *lord) { mli_lock_take(&lord->fences->lock); }
MLI_PRIVATE void mli_fences_leave(memlord *lord) { mli_lock_drop(&lord->fences->lock); }
MLI_PRIVATE int mli_fences_try(memlord *lord) { return mli_lock_try(&lord->fences->lock); }

MLI_PRIVATE uint64_t mli_serial_next(memlord *lord) {
    return mli_u64_add(&lord->fences->serial, 1) + 1;
}

MLI_PRIVATE mli_fence_record *mli_fence_next(memlord *lord, const mli_fence_record *f) {
    return f ? f->older : (mli_fence_record *)mli_ptr_load(&lord->fences->all);
}

MLI_PRIVATE mli_fence_record *mli_fence_new(memlord *lord, const memlord_fence *fence) {
    struct mli_fences_state *state = lord->fences;
    mli_fence_record *f;
    mli_fences_enter(lord);
    f = state->unused;
    if (f) state->unused = f->next;
    mli_fences_leave(lord);
    if (!f) {
        f = (mli_fence_record *)mli_own_alloc(lord, sizeof *f);
        if (!f) return NULL;
        mli_fences_enter(lord);
        f->older = (mli_fence_record *)mli_ptr_load(&state->all);
        mli_ptr_store(&state->all, f);
        f->spare.next[0] = state->spare_queues;
        state->spare_queues = &f->spare;
        mli_fences_leave(lord);
    }
    f->fence = *fence;
    return f;
}
MLI_PRIVATE void mli_fence_free_locked(memlord *lord, mli_fence_record *f) {
    struct mli_fences_state *state = lord->fences;
    MLI_REQUIRE(mli_lock_held(&state->lock));
    f->sibling = NULL;
    f->serial = 0;
    f->detached = 0;
    f->early_answer = 0;
    f->next = state->unused;
    state->unused = f;
}
MLI_PRIVATE void mli_fence_free(memlord *lord, mli_fence_record *f) {
    mli_fences_enter(lord);
    mli_fence_free_locked(lord, f);
    mli_fences_leave(lord);
}

/* Puts a fence on the list `to_drop`, whose fences are dropped at the end of a call. */
static void mli_drops_put(memlord *lord, mli_fence_record *f) {
    struct mli_fences_state *state = lord->fences;
    MLI_REQUIRE(mli_lock_held(&state->lock));
    f->next = state->to_drop;
    state->to_drop = f;
    mli_alert_set(lord, MLI_ALERT_DROPS, 1);
}

/* -- queues -- */

MLI_PRIVATE mli_pending_queues *mli_pends_of(memlord *lord, uint32_t type) {
    return &lord->fences->pends[type];
}

enum { MLI_RING_POLL, MLI_RING_REST }; /* the queues of a device, and those of a type and level */

/* Appends a queue to a ring, of which *first is the first queue. */
static void mli_ring_add(mli_queue **first, mli_queue *q, int ring) {
    mli_queue *next = *first ? *first : q, *last = *first ? next->previous[ring] : q;
    q->next[ring] = next;
    q->previous[ring] = last;
    next->previous[ring] = last->next[ring] = q;
    *first = next;
}
static void mli_ring_remove(mli_queue **first, mli_queue *q, int ring) {
    q->next[ring]->previous[ring] = q->previous[ring];
    q->previous[ring]->next[ring] = q->next[ring];
    if (*first == q) *first = q->next[ring] == q ? NULL : q->next[ring];
}

/* Returns the place of a queue in the tree of its device, which has NULL if there is no such queue.
   The bits of the id's hash choose the way down from the root, and a queue stands at the first
   vacant place on its way. No two ids have the same hash, so a way has at most 65 places. */
static mli_queue **mli_queue_place(memlord *lord, uint32_t dev, uint64_t id) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_FENCES));
    mli_queue **at = &mli_device_record_at(lord, dev)->queues[0];
    uint64_t bits = mli_hash(id);
    for (; *at && (*at)->id != id; bits <<= 1) at = &(*at)->below[bits >> 63];
    return at;
}
MLI_PRIVATE mli_queue *mli_queue_find(memlord *lord, uint32_t dev, uint64_t id) {
    return *mli_queue_place(lord, dev, id);
}
/* Removes a queue from the tree of its device. A queue without subtrees takes its place: the ways
   of all queues below a place go through it. */
static void mli_queue_uproot(memlord *lord, mli_queue *q) {
    mli_queue **at = mli_queue_place(lord, q->dev, q->id), **end = at, *last;
    while ((*end)->below[0] || (*end)->below[1]) end = &(*end)->below[!(*end)->below[0]];
    last = *end;
    *end = NULL;
    if (last == q) return;
    memcpy(last->below, q->below, sizeof q->below);
    *at = last;
}

/* Puts a queue first in its device's ring, because no thread has asked its first fence. */
static void mli_queue_poll_first(memlord *lord, mli_queue *q) {
    mli_queue **ring = &mli_device_record_at(lord, q->dev)->queues[1];
    q->round = q->passed = 0;
    mli_ring_add(ring, q, MLI_RING_POLL);
    *ring = q;
}

/* Takes a queue out of its ring in mli_pending_queues.resting. */
static void mli_queue_wake(memlord *lord, mli_queue *q) {
    mli_pending_queues *p = mli_pends_of(lord, mli_type_of(lord, q->dev));
    mli_ring_remove(&p->resting[q->level], q, MLI_RING_REST);
    q->next[MLI_RING_REST] = NULL;
    if (!p->resting[q->level]) p->levels ^= 1u << q->level;
}
/* Makes the queue of a fence, in the memory of a spare queue. The caller puts it into the tree. */
static mli_queue *mli_queue_add(memlord *lord, const mli_fence_record *f) {
    struct mli_fences_state *state = lord->fences;
    MLI_REQUIRE(mli_lock_held(&state->lock));
    mli_pending_queues *p = mli_pends_of(lord, mli_type_of(lord, f->dev));
    mli_queue *q = state->spare_queues;
    state->spare_queues = q->next[0];
    memset(q, 0, sizeof *q);
    q->id = f->fence.queue;
    q->dev = f->dev;
    q->due = mli_u32_load(&p->calls);
    mli_queue_poll_first(lord, q);
    p->queues++;
    mli_alert_set(lord, (uint32_t)MLI_ALERT_PENDS << mli_type_of(lord, q->dev), 1);
    return q;
}

MLI_PRIVATE void mli_queue_back_off(memlord *lord, mli_queue *q, uint32_t level, uint64_t now) {
    MLI_REQUIRE(mli_lock_held(&lord->fences->lock));
    mli_pending_queues *p = mli_pends_of(lord, mli_type_of(lord, q->dev));
    if (q->next[MLI_RING_REST]) mli_queue_wake(lord, q);
    q->level = level < MLI_REST_LEVELS ? level : MLI_REST_LEVELS - 1;
    q->due = mli_u32_load(&p->calls) + (level ? 1u << q->level : 0);
    q->late = level ? now + MLI_REST_NS : 0;
    mli_ring_add(&p->resting[q->level], q, MLI_RING_REST);
    p->levels |= 1u << q->level;
    if ((int32_t)(q->due - mli_u32_load(&p->due)) < 0) mli_u32_store(&p->due, q->due);
    if (q->late < mli_u64_load(&p->late)) mli_u64_store(&p->late, q->late);
}

MLI_PRIVATE void mli_queue_insert(memlord *lord, mli_fence_record *f) {
    MLI_REQUIRE(mli_lock_held(&lord->fences->lock));
    mli_queue **place = mli_queue_place(lord, f->dev, f->fence.queue), *q = *place;
    if (!q) q = *place = mli_queue_add(lord, f);
    f->queue = q;
    f->since = mli_u64_load(&lord->fences->serial);
    f->next = NULL;
    f->previous = q->last;
    if (q->last)
        q->last->next = f;
    else
        q->first = f;
    q->last = f;
    if (!q->unasked && (lord->flags & MEMLORD_FLAG_DEFER)) q->unasked = f;
}

MLI_PRIVATE void mli_queue_remove(memlord *lord, mli_fence_record *f) {
    struct mli_fences_state *state = lord->fences;
    MLI_REQUIRE(mli_lock_held(&state->lock));
    mli_pending_queues *p = mli_pends_of(lord, mli_type_of(lord, f->dev));
    mli_queue *q = f->queue;
    mli_fence_record **before = f->previous ? &f->previous->next : &q->first;
    mli_fence_record **after = f->next ? &f->next->previous : &q->last;
    f->queue = NULL;
    if (q->unasked == f) q->unasked = f->next;
    *before = f->next;
    *after = f->previous;
    if (f->previous) return;
    if (q->next[MLI_RING_REST]) mli_queue_wake(lord, q);
    mli_ring_remove(&mli_device_record_at(lord, q->dev)->queues[1], q, MLI_RING_POLL);
    if (q->first) { /* no thread has asked the new first fence since it became the first */
        mli_queue_poll_first(lord, q);
        q->level = 0;
        if (!q->first->asker) mli_queue_back_off(lord, q, 0, 0);
        return;
    }
    mli_queue_uproot(lord, q);
    q->next[0] = state->spare_queues;
    state->spare_queues = q;
    if (!--p->queues)
        mli_alert_set(lord, (uint32_t)MLI_ALERT_PENDS << mli_type_of(lord, f->dev), 0);
}

MLI_PRIVATE mli_fence_record *mli_fence_claim(memlord *lord, mli_fence_record *f) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_FENCES));
    f->asker = &mli_self;
    if (!f->previous && f->queue->next[MLI_RING_REST]) mli_queue_wake(lord, f->queue);
    if (f->queue->unasked == f) f->queue->unasked = f->next;
    return f;
}
MLI_PRIVATE MLI_COLD mli_fence_record *mli_poll_next(memlord *lord, uint32_t dev, uint64_t round) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_FENCES));
    mli_queue **ring = &mli_device_record_at(lord, dev)->queues[1], *q;
    while ((q = *ring) != NULL && q->passed < round) {
        mli_fence_record *f = q->unasked;
        if (!f || f->asker || f->since >= round) {
            q->passed = round;
            *ring = q->next[MLI_RING_POLL];
            f = q->round < round && q->first->since < round ? q->first : NULL;
        }
        if (f == q->first) q->round = round;
        if (f && !f->asker) return mli_fence_claim(lord, f);
    }
    return NULL;
}

MLI_PRIVATE MLI_NOINLINE void mli_fences_detach(memlord *lord, mli_fence_record *f) {
    mli_fence_record *sibling;
    if (!f) return;
    mli_fences_enter(lord);
    for (; f; f = sibling) {
        sibling = f->sibling;
        if (f->asker) {
            f->detached = 1;
            continue;
        }
        if (f->queue) mli_queue_remove(lord, f);
        mli_drops_put(lord, f);
    }
    mli_fences_leave(lord);
}

/* -- the host's functions: while one runs, its thread asks and drops no further fences -- */

MLI_PRIVATE int mli_fence_is_running(const memlord *lord) {
    return mli_self.fence_lord == lord->generation;
}
MLI_PRIVATE MLI_NOINLINE int mli_fence_ask(memlord *lord, mli_fence_record *f) {
    MLI_REQUIRE(mli_none_held());
    MLI_REQUIRE(f->asker == &mli_self);
    const uint64_t outer = mli_self.fence_lord;
    int answer = f->owes_drop ? f->early_answer : 1;
    if (answer) return answer;
    mli_self.fence_lord = lord->generation;
    answer = f->fence.done(f->fence.user);
    mli_self.fence_lord = outer;
    return answer;
}
/* Calls the host's `drop` of a fence. `lord` is NULL if no ledger has accepted the fence. */
static MLI_NOINLINE void mli_fence_drop_host(const memlord *lord, const memlord_fence *fence) {
    MLI_REQUIRE(mli_none_held());
    const uint64_t outer = mli_self.fence_lord;
    if (!fence->drop) return;
    if (lord) mli_self.fence_lord = lord->generation;
    fence->drop(fence->user);
    mli_self.fence_lord = outer;
}
MLI_PRIVATE int mli_fence_drop(memlord *lord, mli_fence_record *f) {
    MLI_REQUIRE(mli_none_held());
    if (!f->owes_drop) return 0;
    f->owes_drop = 0;
    mli_fence_drop_host(lord, &f->fence);
    return 1;
}

MLI_PRIVATE MLI_COLD memlord_result mli_fence_discard(memlord *lord, const memlord_fence *fence) {
    mli_fence_record *f;
    if (!fence) return MEMLORD_OK;
    if (!lord || !(lord->flags & MEMLORD_FLAG_DEFER)) {
        mli_fence_drop_host(lord, fence);
        return MEMLORD_OK;
    }
    f = mli_fence_new(lord, fence);
    if (!f) return MEMLORD_E_NOMEM;
    mli_fences_enter(lord);
    f->owes_drop = 1;
    mli_drops_put(lord, f);
    mli_fences_leave(lord);
    return MEMLORD_OK;
}

MLI_PRIVATE MLI_COLD void mli_fences_drain(memlord *lord) {
    struct mli_fences_state *state = lord->fences;
    MLI_REQUIRE(mli_none_held());
    if (mli_fence_is_running(lord)) return; /* the outer call drops these fences */
    for (;;) {
        mli_fence_record *f;
        mli_fences_enter(lord);
        f = state->to_drop;
        if (f) state->to_drop = f->next;
        if (!f) mli_alert_set(lord, MLI_ALERT_DROPS, 0);
        mli_fences_leave(lord);
        if (!f) break;
        (void)mli_fence_drop(lord, f);
        mli_fence_free(lord, f);
    }
}

/* -- life -- */

static MLI_COLD void mli_fences_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    mli_lock_rank(&lord->fences->lock, MLI_RANK_FENCES);
}
static MLI_COLD void mli_fences_lock(memlord *lord, int take) {
    mli_lock_set(&lord->fences->lock, take);
}
/* Clears the askers in a forked child, because their threads are not there. Puts the fences of
   blocks that have ended on the list `to_drop`. */
static MLI_COLD void mli_fences_forked(memlord *lord) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_FENCES));
    mli_fence_record *f = NULL;
    while ((f = mli_fence_next(lord, f)) != NULL) {
        if (!f->asker || f->asker == (void *)&mli_self) continue;
        f->asker = NULL;
        if (!f->detached && f->serial) {
            if (!f->previous) mli_queue_back_off(lord, f->queue, 0, 0);
            continue;
        }
        mli_queue_remove(lord, f);
        mli_drops_put(lord, f);
    }
}
MLI_PRIVATE MLI_COLD void mli_fences_end(memlord *lord) {
    mli_fence_record *f;
    int round, dropped = 1;
    for (round = 0; round < 1000 && dropped; round++) {
        dropped = 0;
        for (f = NULL; (f = mli_fence_next(lord, f)) != NULL;) dropped |= mli_fence_drop(lord, f);
    }
}
MLI_PRIVATE const mli_life mli_fences_life = {MLI_LIFE_STATE(fences), mli_fences_init, NULL, NULL,
                                              mli_fences_lock, mli_fences_forked, NULL};
