#include "calls/deferred.h"
#include "base/memory.h"
#include "books/probes.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/anomalies.h"
#include "books/picks.h"
#include "books/stacks.h"
#include "books/events.h"
#include "books/accounts.h"
#include "books/parts.h"
#include "books/blocks.h"

MLI_PRIVATE memlord_result mli_fence_attach(memlord *lord, mli_call *call, memlord_device d,
                                            uint64_t key, mli_fence_record *f, int why,
                                            mli_entry *gone, mli_fence_record **chain) {
    mli_thread *t = call->t;
    mli_probe probe;
    mli_side_record *side;
    mli_fence_record **at, *old = NULL;
    uint64_t refs;
    memlord_result r = mli_probe_add_side_record(lord, t, (uint32_t)d.type, key, 0, &probe);
    gone->key = 0;
    *chain = NULL;
    if (r == MEMLORD_E_UNKNOWN && why) return mli_unknown_free(lord, call, d, key);
    if (r) return r;
    side = mli_side_record_of(probe.entry->word2);
    refs = mli_refs_of(probe.entry->word1, probe.entry->word2);
    if (f) {
        at = &side->fences;
        while (*at && (*at)->fence.queue != f->fence.queue) at = &(*at)->sibling;
        old = *at;
        f->sibling = old ? old->sibling : NULL;
        if (old) old->sibling = NULL;
        *at = f;
        f->owes_drop = 1;
    }
    if (why) {
        *gone = *probe.entry;
        gone->word2 = side->word2;
        gone->key = key;
        *chain = mli_block_pend(lord, probe.entry);
    }
    mli_probe_leave(t, &probe);
    mli_fences_detach(lord, old);
    if (why == MLI_ATTACH_FREE && refs > 1) /* a move keeps the references */
        mli_shared_free(lord, call, gone);
    return MEMLORD_OK;
}

/* Takes a fence off its pending block, if it still has one. If it was the last, ends the block and
   returns 1. *of gets the entry of the block, or the key 0. */
static int mli_fence_credit(memlord *lord, mli_thread *t, mli_fence_record *f, mli_entry *of) {
    mli_probe probe;
    mli_side_record *side =
        mli_probe_side_record(lord, t, mli_type_of(lord, f->dev), f->key, &probe);
    mli_fence_record **at;
    int pends = side && f->serial && side->serial == f->serial;
    of->key = 0;
    if (pends) {
        *of = *probe.entry;
        of->word2 = side->word2;
        for (at = &side->fences; *at != f;) at = &(*at)->sibling;
        *at = f->sibling;
        f->serial = 0;
    }
    if (!pends || side->fences) {
        mli_probe_leave(t, &probe);
        return 0;
    }
    mli_probe_end_block(lord, t, &probe, 0);
    mli_event_record_end(lord, t, MEMLORD_EVENT_FREE, of->key, of->word1, of->word2, NULL);
    return 1;
}

/* Counts a failed fence. `of` is the entry of its block, with the key 0 if it has none now. */
static MLI_COLD void mli_fence_failed(memlord *lord, uint32_t dev, const mli_entry *of) {
    mli_stat_add(lord, dev, MLI_STAT_fence_failures, 1);
    (void)mli_anomaly_note(lord, NULL, MEMLORD_ANOMALY_FENCE_FAILED,
                           mli_device_record_at(lord, dev)->device, of->key,
                           of->key ? MLI_BYTES(of->word1) : 0, of->key ? of->word2 : 0);
}
/* Ends and drops a fence that this thread has asked, done (answer > 0) or failed (answer < 0), and
   its block with the last fence. Returns the bytes of the block that ended, or 0. */
static uint64_t mli_fence_finish(memlord *lord, mli_fence_record *f, int answer) {
    mli_call own, *call;
    mli_thread *t;
    mli_entry of;
    uint32_t dev = f->dev;
    int mine, last;
    (void)mli_fence_drop(lord, f);
    call = mli_call_get(lord, &own, NULL, NULL, NULL);
    t = call->t;
    last = mli_fence_credit(lord, t, f, &of);
    mli_thread_put(lord, t);
    if (answer < 0) mli_fence_failed(lord, dev, &of);
    mli_fences_enter(lord);
    mli_queue_remove(lord, f);
    mine = f->detached || !f->serial;
    f->asker = NULL; /* if a block still has the fence, the end of the block frees the fence */
    if (mine) mli_fence_free_locked(lord, f);
    mli_fences_leave(lord);
    if (last && mli_debug_on(lord))
        mli_log_call(lord, call, 1, "[free retired] ", mli_device_record_at(lord, dev)->device,
                     of.key, MLI_BYTES(of.word1));
    mli_anomalies_tell(lord);
    if (!last) return 0;
    mli_call_end(lord, t, dev, 0);
    return MLI_BYTES(of.word1);
}

/* Handles the answer of a fence that this thread has asked. Returns the bytes of the block that it
   ended, or 0. A fence that is done, but not the first of its queue, waits for its turn. */
static MLI_COLD uint64_t mli_fence_take_answer(memlord *lord, mli_fence_record *f, int answer) {
    uint64_t now = answer ? 0 : mli_ledger_now(lord);
    int settles;
    mli_fences_enter(lord);
    settles = f->detached || (answer && !f->previous);
    if (!settles) {
        f->asker = NULL;
        f->early_answer = answer;
        if (!f->previous) mli_queue_back_off(lord, f->queue, f->queue->level + 1, now);
    }
    mli_fences_leave(lord);
    return settles ? mli_fence_finish(lord, f, answer) : 0;
}

MLI_PRIVATE MLI_COLD void mli_fences_ask_new(memlord *lord, mli_fence_record *chain) {
    mli_fence_record *next;
    for (; chain; chain = next) {
        int answer = 0;
        next = chain->sibling;
        if (!(lord->flags & MEMLORD_FLAG_DEFER)) answer = mli_fence_ask(lord, chain);
        (void)mli_fence_take_answer(lord, chain, answer);
    }
}

MLI_PRIVATE MLI_COLD uint64_t mli_fences_retire(memlord *lord, memlord_device sel) {
    const uint32_t any = MLI_ALERT_DROPS | MLI_ALERT_PENDS_ALL;
    uint64_t round, credited = 0;
    const uint32_t devices = mli_row_count(lord, MLI_BOOK_DEVICE);
    uint32_t dev;
    mli_fence_record *f;
    if (!mli_alert_on(lord, any) || mli_self.in_host_alloc) return 0;
    if (mli_fence_is_running(lord)) return 0; /* the outer call asks the other fences */
    round = mli_serial_next(lord);
    mli_fences_enter(lord);
    for (dev = 1; dev < devices; dev++) {
        if (!mli_selects(sel, mli_device_record_at(lord, dev)->device)) continue;
        while ((f = mli_poll_next(lord, dev, round)) != NULL) {
            mli_fences_leave(lord);
            credited += mli_fence_take_answer(lord, f, mli_fence_ask(lord, f));
            mli_fences_enter(lord);
        }
    }
    mli_fences_leave(lord);
    if (mli_alert_on(lord, MLI_ALERT_DROPS)) mli_fences_drain(lord);
    return credited;
}

/* Returns the queue of a device type that has been due for the longest time, or NULL. Stores when
   one may be due next: the number of the call in p->due, the time in p->late. */
static mli_queue *mli_queue_due(mli_pending_queues *p, uint32_t call, uint64_t now) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_FENCES));
    uint32_t due = call + MLI_REST_MOST;
    uint64_t late = now + MLI_REST_NS;
    mli_queue *found = NULL;
    uint32_t levels = p->levels;
    for (; levels; levels &= levels - 1) {
        mli_queue *q = p->resting[mli_lowest_bit(levels)];
        if ((int32_t)(q->due - due) < 0) due = q->due;
        if (q->late < late) late = q->late;
        if (((int32_t)(call - q->due) >= 0 || now >= q->late) &&
            (!found || (int32_t)(q->due - found->due) < 0))
            found = q;
    }
    mli_u32_store(&p->due, found ? call + 1 : due); /* another queue may be due as well */
    mli_u64_store(&p->late, late);
    return found;
}

#define MLI_FENCES_PER_ALLOC 4 /* the most fences that one call asks */

/* If a queue of a device type is due, asks a few of its fences, at the end of an alloc or a free.
   Most calls only count themselves. A call looks for a queue when the count has reached p->due. One
   call in MLI_REST_LOOK also looks if the time p->late has come. If another thread has the fences
   lock, does nothing, so that no call waits while another call asks fences. */
static MLI_COLD void mli_queue_turn(memlord *lord, uint32_t type) {
    mli_pending_queues *p = mli_pends_of(lord, type);
    uint32_t most = MLI_FENCES_PER_ALLOC, call = mli_u32_load(&p->calls) + 1;
    mli_queue *q;
    uint64_t now;
    mli_u32_store(&p->calls, call);
    if ((int32_t)(call - mli_u32_load(&p->due)) < 0 &&
        (call % MLI_REST_LOOK || mli_ledger_now(lord) < mli_u64_load(&p->late)))
        return;
    if (mli_fence_is_running(lord)) return; /* the outer call asks the other fences */
    now = mli_ledger_now(lord);
    if (!mli_fences_try(lord)) return;
    q = mli_queue_due(p, call, now);
    while (q && !q->first->asker && most--) {
        uint32_t dev = q->dev;
        uint64_t id = q->id;
        mli_fence_record *f = mli_fence_claim(lord, q->first);
        int answer;
        mli_fences_leave(lord);
        answer = mli_fence_ask(lord, f);
        (void)mli_fence_take_answer(lord, f, answer);
        mli_fences_enter(lord);
        q = answer ? mli_queue_find(lord, dev, id) : NULL;
    }
    mli_fences_leave(lord);
}

MLI_PRIVATE MLI_COLD void mli_fences_poll_due(memlord *lord, uint32_t type, int asks) {
    if (asks && mli_alert_on(lord, (uint32_t)MLI_ALERT_PENDS << type))
        mli_queue_turn(lord, type);
    if (mli_alert_on(lord, MLI_ALERT_DROPS)) mli_fences_drain(lord);
}

/* Gives the source of a move a side record for its fences, and copies what the destination takes
   over, before anything changes. */
static memlord_result mli_move_copy(memlord *lord, mli_thread *t, memlord_device from,
                                    uint64_t from_key, mli_entry *e, mli_side_record *side,
                                    memlord_account *account, mli_pick *pick) {
    mli_probe probe;
    memlord_result r =
        mli_probe_add_side_record(lord, t, (uint32_t)from.type, from_key, 0, &probe);
    if (r) return r;
    *e = *probe.entry;
    side->word2 = mli_word2_rows(e->word2);
    side->refs = mli_refs_of(e->word1, e->word2);
    side->meta = mli_side_record_of(e->word2)->meta;
    *account = mli_side_record_of(e->word2)->account;
    *pick = mli_pick_of(lord, e);
    mli_probe_leave(t, &probe);
    return MEMLORD_OK;
}

MLI_PRIVATE memlord_result mli_move_fenced(memlord *lord, mli_call *call, memlord_device from,
                                           uint64_t from_key, uint64_t key, uint64_t bytes,
                                           mli_fence_record *f, mli_fence_record **chain) {
    mli_thread *t = call->t;
    const uint32_t dev = call->dev;
    mli_row_delta d;
    mli_entry e, copy;
    mli_side_record *side = (mli_side_record *)mli_own_alloc(lord, sizeof *side);
    memlord_account account = 0;
    mli_pick pick = mli_pick_none;
    uint64_t rows;
    uint32_t stack;
    int did;
    memlord_result r;
    if (!side) return mli_short_of(lord, call, from, from_key, 1);
    r = mli_move_copy(lord, t, from, from_key, &e, side, &account, &pick);
    if (r == MEMLORD_OK) r = mli_map_reserve(lord, t, dev, key);
    if (r) {
        mli_own_free(lord, side, sizeof *side);
        return r == MEMLORD_E_UNKNOWN ? mli_unknown_free(lord, call, from, from_key) : r;
    }
    rows = mli_word2_moved(lord, t, side->word2, dev, call->site, MLI_DEV(e.word1) == dev);
    side->word2 = rows;
    side->account = MLI_DEV(e.word1) == dev ? account : mli_account_used(lord, t, dev);
    d = mli_delta_open(dev, rows, bytes);
    copy.key = key;
    copy.word1 = mli_word1_of(bytes, dev, MLI_REFS(e.word1));
    copy.word2 = (uint64_t)(uintptr_t)side | MLI_HAS_SIDE;
    mli_stack_keep(lord, call, &pick, key, MLI_SITE_ROW(rows));
    stack = call->pick.row;
    r = mli_entry_put(lord, call, &copy, &d, 1, MLI_PUT_ALLOC, &did);
    mli_stack_forget(call);
    if (r) {
        mli_side_record_free(lord, copy.word2);
        return r;
    }
    r = mli_fence_attach(lord, call, from, from_key, f, MLI_ATTACH_MOVE, &e, chain);
    if (!e.key) { /* another thread ended the source meanwhile */
        mli_block_unopen(lord, t, dev, key, bytes);
        return r;
    }
    mli_parts_move(lord, t, (uint32_t)from.type, from_key, mli_type_of(lord, dev), key, bytes);
    mli_event_record_end(lord, t, MEMLORD_EVENT_PEND, from_key, e.word1, e.word2, call->site);
    mli_event_record_begin(lord, t, MEMLORD_EVENT_MOVE, dev, key, bytes, rows, stack);
    mli_move_count(lord, MLI_DEV(e.word1), dev, bytes);
    return MEMLORD_OK;
}
