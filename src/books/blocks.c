#include "books/blocks.h"
#include "base/text.h"
#include "base/log.h"
#include "base/memory.h"
#include "books/devices.h"
#include "books/sites.h"
#include "books/anomalies.h"
#include "books/stacks.h"
#include "books/tags.h"
#include "books/events.h"
#include "books/accounts.h"
#include "books/parts.h"

#define MLI_DROPPED_KEYS 64 /* the most dropped allocs whose keys are kept */
struct mli_blocks_state {
    mli_u64 dropped_keys[MLI_DROPPED_KEYS]; /* the hashes (mli_drop_print) of the keys of dropped
                                               allocs whose frees are expected; 0 means vacant */
    mli_u32 dropped_kept;                   /* at least the number of keys in dropped_keys; if not
                                               0, MLI_ALERT_FORGET is set, but for a moment */
    mli_u64 dropped[MEMLORD_DEVICE_TYPE_COUNT]; /* by device type: dropped allocs without a place */
    mli_ptr routes; /* mli_route *: the newest route; changes under the cold lock */
};

/* Returns the first fence of a block, or NULL if it has none. */
static mli_fence_record *mli_fences_of(uint64_t word2) {
    return word2 & MLI_HAS_SIDE ? mli_side_record_of(word2)->fences : NULL;
}

MLI_PRIVATE MLI_NOINLINE void mli_side_record_free(memlord *lord, uint64_t word2) {
    if (!(word2 & MLI_HAS_SIDE)) return;
    if (mli_side_record_of(word2)->parts)
        mli_parts_free(lord, mli_side_record_of(word2)->parts);
    mli_fences_detach(lord, mli_side_record_of(word2)->fences);
    mli_account_credit_block(lord, mli_side_record_of(word2)->account,
                             mli_side_record_of(word2)->charged);
    mli_own_free(lord, mli_side_record_of(word2), sizeof(mli_side_record));
}

MLI_PRIVATE mli_row_delta mli_delta_open(uint32_t dev, uint64_t word2, uint64_t bytes) {
    const mli_row_delta d = {dev, word2, bytes, 0, /* allocs */ 1, 0, 0, 0, 0, 0, 0, 0};
    return d;
}
MLI_PRIVATE mli_row_delta mli_delta_close(uint32_t dev, uint64_t word2, uint64_t bytes) {
    const mli_row_delta d = {dev, word2, 0, bytes, 0, /* frees */ 1, 0, 0, 0, 0, 0, 0};
    return d;
}

/* Counts the end of a block; of a pending one, takes its bytes off the statistic `pending`. */
static void mli_count_close(memlord *lord, mli_thread *t, uint64_t word1, uint64_t word2) {
    MLI_REQUIRE(mli_is_inside());
    const uint32_t dev = MLI_DEV(word1);
    mli_row_delta d = mli_delta_close(dev, mli_word2_rows(word2), MLI_BYTES(word1));
    t->other_dev = dev;
    if (mli_is_pending(word2)) {
        mli_stat_add(lord, dev, MLI_STAT_pending, (uint64_t)0 - d.out);
        d.pended = mli_side_record_of(word2)->epoch + 1;
    }
    mli_count(lord, t, &d, 1);
}

MLI_PRIVATE void mli_cells_make(memlord *lord, mli_thread *t, const mli_row_delta *d, unsigned n) {
    MLI_REQUIRE(!mli_is_inside());
    if (mli_is_orphan(lord, t)) return;
    for (; n--; d++) {
        uint32_t site = MLI_SITE_ROW(d->word2), tag = MLI_TAG_ROW(d->word2);
        if (d->dev)
            (void)mli_cell_make(lord, t, MLI_BOOK_DEVICE, d->dev, mli_own_alloc);
        if (site) (void)mli_cell_make(lord, t, MLI_BOOK_SITE, site, mli_own_alloc);
        if (tag) (void)mli_cell_make(lord, t, MLI_BOOK_TAG, tag, mli_own_alloc);
    }
}

MLI_PRIVATE void mli_count_site_free(memlord *lord, mli_thread *t, uint32_t dev,
                                     const memlord_site *site, uint64_t bytes) {
    MLI_REQUIRE(!mli_is_inside());
    mli_row_delta d;
    if (!site || !mli_hook_on(lord, MLI_HOOK_SITES)) return;
    memset(&d, 0, sizeof d);
    d.word2 = mli_cached_row(lord, t, MLI_BOOK_SITE, site, dev);
    d.freed_here = bytes;
    d.frees_here = 1;
    mli_count(lord, t, &d, 1);
}

/* Ends the debug line (MEMLORD_DEBUG) of a call: adds the facts in the call's note, as in ", from
   cpu 0x55..., unknown frees 1 main file.c:12", and logs the line. A call keeps these facts in the
   note, because it logs only after it has left the shard and dropped its locks. */
static MLI_COLD void mli_log_call_end(memlord *lord, mli_out *o, const mli_debug_note *note,
                                      const memlord_site *site) {
    MLI_REQUIRE(mli_none_held());
    memlord_site named;
    if (note->from) mli_putf(o, ", from %i %jx", mli_device_code(note->from_device), note->from);
    if (note->implicit) mli_putf(o, ", implicit free of %jo", note->implicit_bytes);
    if (note->unknown) mli_putf(o, ", unknown frees %ju", note->unknown);
    if (site) mli_putf(o, " %p", (const void *)mli_site_named(lord, site, &named));
    mli_log_end(lord, MEMLORD_LOG_TRACE, o);
}

MLI_PRIVATE MLI_COLD void mli_log_call(memlord *lord, const mli_call *call, int did,
                                       const char *verb, memlord_device d, uint64_t storage,
                                       uint64_t bytes) {
    char line[512];
    mli_out o;
    if (!did && !call->note.implicit && !call->note.unknown) return;
    mli_out_buffer(&o, line, sizeof line);
    mli_putf(&o, "%s%i %jx %jo", verb, mli_device_code(d), storage, did ? bytes : 0);
    mli_log_call_end(lord, &o, &call->note, call->site);
}

MLI_PRIVATE MLI_COLD void mli_log_call_n(memlord *lord, const char *verb,
                                         const memlord_block *blocks, size_t n,
                                         const mli_debug_note *note, const memlord_site *site) {
    MLI_REQUIRE(n);
    char line[512];
    mli_out o;
    memlord_device d = blocks[0].device;
    while (n--) {
        if (blocks[n].device.type != d.type) d.type = MEMLORD_ANY;
        if (blocks[n].device.index != d.index) d.index = MEMLORD_ANY;
    }
    mli_out_buffer(&o, line, sizeof line);
    mli_putf(&o, "%s%i ", verb, mli_device_code(d));
    mli_put_amount(&o, note->bytes, note->blocks);
    mli_log_call_end(lord, &o, note, site);
}

/* Returns the nonzero number that stands in dropped_keys for the key of a dropped alloc, whose free
   is expected. An alloc whose key finds no place there is only counted, for its device type. */
static uint64_t mli_drop_print(int type, uint64_t key) {
    const uint64_t print = mli_hash(key) + (uint64_t)type * 0x9e3779b97f4a7c15u;
    return print ? print : 1;
}
static MLI_COLD void mli_drop_expect(memlord *lord, int type, uint64_t key) {
    mli_u64 *at = lord->blocks->dropped_keys;
    int i;
    (void)mli_u32_add(&lord->blocks->dropped_kept, 1);
    for (i = 0; i < MLI_DROPPED_KEYS; i++) {
        uint64_t vacant = 0;
        if (!mli_u64_cas(&at[i], &vacant, mli_drop_print(type, key))) continue;
        mli_alert_set(lord, MLI_ALERT_FORGET, 1);
        return;
    }
    (void)mli_u32_add(&lord->blocks->dropped_kept, (uint32_t)-1);
    (void)mli_u64_add(&lord->blocks->dropped[type], 1);
}
/* Clears the alert, because the last key is gone. Another thread may keep a key meanwhile. */
static MLI_COLD void mli_drops_none(memlord *lord) {
    mli_alert_set(lord, MLI_ALERT_FORGET, 0);
    if (mli_u32_load_seqcst(&lord->blocks->dropped_kept)) /* pairs with mli_drop_expect */
        mli_alert_set(lord, MLI_ALERT_FORGET, 1);
}
MLI_PRIVATE MLI_COLD int mli_drop_forget(memlord *lord, int type, uint64_t key) {
    mli_u64 *at = lord->blocks->dropped_keys;
    int i;
    for (i = 0; i < MLI_DROPPED_KEYS && mli_u32_load(&lord->blocks->dropped_kept); i++) {
        uint64_t print = mli_drop_print(type, key);
        if (mli_u64_load(&at[i]) != print || !mli_u64_cas(&at[i], &print, 0)) continue;
        if (mli_u32_add(&lord->blocks->dropped_kept, (uint32_t)-1) == 1)
            mli_drops_none(lord);
        return 1;
    }
    return 0;
}
MLI_PRIVATE int mli_drop_match(memlord *lord, int type, uint64_t key) {
    uint64_t left = mli_u64_load(&lord->blocks->dropped[type]);
    if (mli_drop_forget(lord, type, key)) return 1;
    while (left)
        if (mli_u64_cas(&lord->blocks->dropped[type], &left, left - 1)) return 1;
    return 0;
}

MLI_PRIVATE MLI_COLD memlord_result mli_drop_count(memlord *lord, const memlord_site *site,
                                                   memlord_result r, memlord_device d,
                                                   uint64_t key, uint64_t bytes) {
    uint32_t dev;
    if (r != MEMLORD_E_NOMEM && (r != MEMLORD_E_DEVICE || !mli_device_valid(d))) return r;
    dev = mli_dev_known(lord, d);
    mli_stat_add(lord, dev, MLI_STAT_dropped_allocs, 1);
    mli_stat_add(lord, dev, MLI_STAT_dropped_bytes, bytes);
    mli_drop_expect(lord, d.type, key);
    (void)mli_anomaly_note(lord, site, MEMLORD_ANOMALY_DROPPED, d, key, bytes, 0);
    return r;
}
/* Notes a mistake that concerns the block of an entry. */
static MLI_COLD void mli_anomaly_of(memlord *lord, const mli_call *call, int kind,
                                    const mli_entry *e) {
    (void)mli_anomaly_note(lord, call->site, kind,
                           mli_device_record_at(lord, MLI_DEV(e->word1))->device, e->key,
                           MLI_BYTES(e->word1), mli_word2_rows(e->word2));
}
MLI_PRIVATE MLI_COLD void mli_shared_free(memlord *lord, const mli_call *call, const mli_entry *e) {
    mli_stat_add(lord, MLI_DEV(e->word1), MLI_STAT_freed_while_shared, 1);
    mli_anomaly_of(lord, call, MEMLORD_ANOMALY_FREED_WHILE_SHARED, e);
}
MLI_PRIVATE MLI_COLD memlord_result mli_unknown_free(memlord *lord, mli_call *call,
                                                     memlord_device d, uint64_t key) {
    uint32_t dev;
    if (mli_drop_match(lord, d.type, key)) return MEMLORD_OK;
    if (mli_dev_named(lord, d, &dev)) dev = 0;
    mli_stat_add(lord, dev, MLI_STAT_unknown_frees, 1);
    (void)mli_anomaly_note(lord, call->site, MEMLORD_ANOMALY_UNKNOWN_FREE, d, key, 0, 0);
    call->note.unknown++;
    return MEMLORD_E_UNKNOWN;
}

MLI_PRIVATE MLI_COLD int mli_key_state(memlord *lord, mli_thread *t, memlord_device d, uint64_t key,
                                       mli_entry *e) {
    mli_probe probe;
    int state = MLI_KEY_DEAD;
    (void)mli_probe_find(lord, t, (uint32_t)d.type, key, 0, &probe);
    if (probe.entry) {
        *e = *probe.entry;
        state = mli_is_pending(e->word2) ? MLI_KEY_PENDING
                : mli_fences_of(e->word2) ? MLI_KEY_USED
                                          : MLI_KEY_LIVE;
        e->word2 = mli_word2_rows(e->word2);
    }
    mli_probe_leave(t, &probe);
    return state;
}

MLI_PRIVATE MLI_COLD memlord_result mli_short_of(memlord *lord, mli_call *call, memlord_device d,
                                                 uint64_t key, int ends) {
    mli_entry e;
    if (mli_key_state(lord, call->t, d, key, &e) >= MLI_KEY_LIVE) return MEMLORD_E_NOMEM;
    return ends ? mli_unknown_free(lord, call, d, key) : MEMLORD_E_UNKNOWN;
}

/* -- references -- */

/* Takes one reference off a block. */
static void mli_ref_down(mli_entry *e) {
    MLI_REQUIRE(MLI_REFS(e->word1) > 1);
    if (MLI_REFS(e->word1) == MLI_REFS_MANY &&
        --mli_side_record_of(e->word2)->refs >= MLI_REFS_MANY)
        return;
    e->word1 -= MLI_REFS_ONE;
}

/* Adds one reference to a block. If the entry has no room for the new number of references and the
   block has no side record, adds none and returns 0. */
static int mli_ref_up(mli_entry *e) {
    const uint64_t refs = mli_refs_of(e->word1, e->word2) + 1;
    if (refs >= MLI_REFS_MANY && !(e->word2 & MLI_HAS_SIDE)) return 0;
    if (refs <= MLI_REFS_MANY) e->word1 += MLI_REFS_ONE;
    if (refs >= MLI_REFS_MANY) mli_side_record_of(e->word2)->refs = refs;
    return 1;
}

MLI_PRIVATE MLI_COLD memlord_result mli_block_retain(memlord *lord, mli_thread *t, uint32_t type,
                                                     uint64_t key) {
    mli_probe probe;
    memlord_result r = mli_probe_add_side_record(lord, t, type, key, 1, &probe);
    if (r) return r;
    (void)mli_ref_up(probe.entry);
    mli_probe_leave(t, &probe);
    return MEMLORD_OK;
}

/* Adds a reference to the live block that a probe found, and leaves the shard. */
static memlord_result mli_probe_retain(memlord *lord, mli_thread *t, uint32_t type,
                                       mli_probe *probe) {
    const int up = mli_ref_up(probe->entry);
    mli_probe_leave(t, probe);
    return up ? MEMLORD_OK : mli_block_retain(lord, t, type, probe->key);
}

/* -- open -- */

/* Charges the account of a block that is put on the map, after the bytes of the one that it
   replaces came off theirs. `stale` is the word2 that was there, or that of `e`. */
static MLI_COLD void mli_put_charge(memlord *lord, mli_call *call, const mli_entry *e,
                                    uint64_t stale) {
    mli_side_record *side = mli_side_record_of(e->word2), *old = mli_side_record_of(stale);
    if (old && old != side) mli_side_charge(lord, call, old, 0, 0);
    if (side) mli_side_charge(lord, call, side, side->account, MLI_BYTES(e->word1));
}

/* Puts an entry in the place that a probe found, charges its account, counts n deltas, and leaves
   the shard. An older block there ends first; if it was live, its free was never recorded: an
   implicit free. */
static MLI_COLD void mli_probe_put(memlord *lord, mli_call *call, mli_probe *probe,
                                   const mli_entry *e, const mli_row_delta *d, unsigned n) {
    mli_thread *t = call->t;
    const uint32_t size = probe->shard->size;
    const int replaces = probe->entry != NULL;
    mli_entry stale = *e;
    int crowded = 0;
    if (replaces) stale = *probe->entry;
    if ((stale.word2 | e->word2) & MLI_HAS_SIDE) mli_put_charge(lord, call, e, stale.word2);
    if (replaces) {
        mli_pick_end(lord, &stale, 0);
        *probe->entry = *e;
        probe->entry->word1 |= mli_pick_put(lord, call, e);
    } else {
        mli_probe_insert(probe, e->word1 | mli_pick_put(lord, call, e), e->word2);
        crowded = probe->bucket && mli_shard_crowded(lord, probe->shard);
    }
    mli_probe_unlock(probe);
    if (replaces) mli_count_close(lord, t, stale.word1, stale.word2);
    mli_count(lord, t, d, n);
    mli_probe_leave(t, probe);
    if (crowded) /* for lack of memory the table keeps its size: calls are slower, counts exact */
        (void)mli_shard_grow(lord, t, probe->shard, size);
    if (!replaces) return;
    mli_event_record_end(lord, t, MEMLORD_EVENT_FREE, stale.key, stale.word1,
                         mli_word2_rows(stale.word2), NULL);
    if (!mli_is_pending(stale.word2)) {
        mli_stat_add(lord, MLI_DEV(stale.word1), MLI_STAT_implicit_frees, 1);
        mli_anomaly_of(lord, call, MEMLORD_ANOMALY_IMPLICIT_FREE, &stale);
        call->note.implicit++;
        call->note.implicit_bytes += MLI_BYTES(stale.word1);
    }
    mli_side_record_free(lord, stale.word2);
}

MLI_PRIVATE MLI_COLD memlord_result mli_entry_put(memlord *lord, mli_call *call, const mli_entry *e,
                                                  const mli_row_delta *d, unsigned n, int how,
                                                  int *did) {
    MLI_REQUIRE(!mli_is_inside());
    mli_thread *t = call->t;
    const uint32_t type = mli_type_of(lord, MLI_DEV(e->word1));
    mli_probe probe;
    memlord_result r;
    *did = MLI_DID_NOTHING;
    mli_cells_make(lord, t, d, n);
    for (;;) {
        if (mli_probe_find(lord, t, type, e->key, 1, &probe)) return MEMLORD_E_NOMEM;
        if (!probe.entry) break;
        if (!(how & MLI_PUT_TRACK) || mli_is_pending(probe.entry->word2)) {
            if (!(how & MLI_PUT_HOLD)) break;
            mli_probe_leave(t, &probe);
            return MEMLORD_OK;
        }
        r = mli_probe_retain(lord, t, type, &probe);
        if (r == MEMLORD_OK) *did = MLI_DID_VIEW;
        if (r != MEMLORD_E_UNKNOWN) return r; /* E_UNKNOWN: it ended in between */
    }
    *did = MLI_DID_OPEN;
    mli_probe_put(lord, call, &probe, e, d, n);
    if (mli_alert_on(lord, MLI_ALERT_FORGET)) (void)mli_drop_forget(lord, (int)type, e->key);
    return MEMLORD_OK;
}

/* Notes in a new side record that mli_probe_put is to charge a block to `account` (0: that of the
   thread, MEMLORD_NONE: none). Returns 0 if there is no memory for the record. */
static MLI_COLD int mli_entry_set_account(memlord *lord, mli_thread *t, mli_entry *e,
                                          memlord_account account) {
    mli_side_record *side;
    if (!account) account = mli_account_used(lord, t, MLI_DEV(e->word1));
    if (!account || account == MEMLORD_NONE) return 1;
    side = (mli_side_record *)mli_own_alloc(lord, sizeof *side);
    if (!side) return 0;
    side->word2 = e->word2;
    side->account = account;
    e->word2 = (uint64_t)(uintptr_t)side | MLI_HAS_SIDE;
    return 1;
}

MLI_PRIVATE MLI_COLD memlord_result mli_block_open(memlord *lord, mli_call *call, uint64_t key,
                                                   uint64_t bytes, uint64_t rows,
                                                   memlord_account account, int how, int *did) {
    const uint32_t dev = call->dev;
    const mli_row_delta d = mli_delta_open(dev, rows, bytes);
    mli_entry e = {key, mli_word1_of(bytes, dev, 1), rows};
    memlord_result r;
    *did = MLI_DID_NOTHING;
    if (mli_would_overflow(lord, dev, bytes)) return MEMLORD_E_INVALID;
    if (!mli_entry_set_account(lord, call->t, &e, account)) return MEMLORD_E_NOMEM;
    r = mli_entry_put(lord, call, &e, &d, 1, how, did);
    if (*did != MLI_DID_OPEN) mli_side_record_free(lord, e.word2);
    return r;
}

/* -- close -- */

MLI_PRIVATE void mli_probe_end_block(memlord *lord, mli_thread *t, mli_probe *probe, int undo) {
    const mli_entry gone = *probe->entry;
    mli_row_delta d =
        mli_delta_open(MLI_DEV(gone.word1), mli_word2_rows(gone.word2), MLI_BYTES(gone.word1));
    d.undo = 1;
    mli_pick_end(lord, &gone, undo);
    mli_probe_erase(probe);
    if (undo)
        mli_count(lord, t, &d, 1);
    else
        mli_count_close(lord, t, gone.word1, gone.word2);
    mli_probe_leave(t, probe);
    mli_side_record_free(lord, gone.word2);
}

MLI_PRIVATE MLI_COLD void mli_block_unopen(memlord *lord, mli_thread *t, uint32_t dev, uint64_t key,
                                           uint64_t bytes) {
    mli_probe probe;
    (void)mli_probe_find(lord, t, mli_type_of(lord, dev), key, 0, &probe);
    if (probe.entry && MLI_BYTES(probe.entry->word1) == bytes)
        mli_probe_end_block(lord, t, &probe, 1);
    else
        mli_probe_leave(t, &probe);
}

MLI_PRIVATE mli_fence_record *mli_block_pend(memlord *lord, mli_entry *e) {
    MLI_REQUIRE(mli_is_inside());
    MLI_REQUIRE(e->word2 & MLI_HAS_SIDE);
    mli_side_record *side = mli_side_record_of(e->word2);
    mli_fence_record *f;
    side->serial = mli_serial_next(lord);
    side->epoch = mli_epoch(lord);
    mli_stat_add(lord, MLI_DEV(e->word1), MLI_STAT_pending, MLI_BYTES(e->word1));
    mli_fences_enter(lord);
    for (f = side->fences; f; f = f->sibling) {
        f->key = e->key;
        f->serial = side->serial;
        f->dev = MLI_DEV(e->word1);
        f->asker = &mli_self;
        mli_queue_insert(lord, f);
    }
    mli_fences_leave(lord);
    return side->fences;
}

MLI_PRIVATE MLI_COLD memlord_result mli_block_close(memlord *lord, mli_call *call,
                                                    memlord_device d, uint64_t key, int how,
                                                    mli_entry *gone, mli_fence_record **chain) {
    mli_thread *t = call->t;
    mli_probe probe;
    uint64_t refs, word2;
    gone->key = 0;
    *chain = NULL;
    if (!mli_probe_live(lord, t, (uint32_t)d.type, key, &probe)) {
        mli_probe_leave(t, &probe);
        return mli_unknown_free(lord, call, d, key);
    }
    refs = mli_refs_of(probe.entry->word1, probe.entry->word2);
    if (how == MLI_END_RELEASE && refs > 1) {
        mli_ref_down(probe.entry);
        mli_probe_leave(t, &probe);
        return MEMLORD_OK;
    }
    *gone = *probe.entry;
    word2 = gone->word2;
    gone->word2 = mli_word2_rows(word2);
    if (mli_fences_of(word2)) {
        *chain = mli_block_pend(lord, probe.entry);
        mli_probe_leave(t, &probe);
    } else {
        mli_probe_end_block(lord, t, &probe, 0);
    }
    if (refs > 1) mli_shared_free(lord, call, gone);
    return MEMLORD_OK;
}

/* -- realloc and move: an entry leaves the map, stays counted, and comes back changed -- */

MLI_PRIVATE uint32_t mli_slot_take(const memlord *lord, mli_thread *t, uint64_t key,
                                   uint64_t word1, uint64_t word2, const mli_pick *pick) {
    MLI_REQUIRE(mli_is_inside());
    uint32_t i = 0;
    while (i < MLI_SLOTS && mli_u64_load(&t->slots[i].key)) i++;
    if (i == MLI_SLOTS || mli_is_orphan(lord, t)) return 0;
    t->slots[i].word1 = word1;
    t->slots[i].word2 = word2;
    t->slots[i].scale = pick->scale;
    t->slots[i].row = pick->row;
    mli_u64_store_release(&t->slots[i].key, key);
    return t->id * MLI_SLOTS + i;
}

MLI_PRIVATE memlord_result mli_entry_detach(memlord *lord, mli_thread *t, uint32_t type,
                                            uint64_t key, mli_entry *out, mli_pick *pick,
                                            uint32_t *slot) {
    mli_probe probe;
    int found = mli_probe_live(lord, t, type, key, &probe) != NULL;
    if (found) {
        *out = *probe.entry;
        *pick = mli_pick_out(lord, out);
        out->word1 &= ~MLI_PICKED;
        if (slot) *slot = mli_slot_take(lord, t, key, out->word1, out->word2, pick);
        mli_probe_erase(&probe);
        mli_detached_count(t, 1, MLI_BYTES(out->word1));
    }
    mli_probe_leave(t, &probe);
    return found ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MLI_PRIVATE MLI_COLD uint64_t mli_word2_moved(memlord *lord, mli_thread *t, uint64_t word2,
                                              uint32_t dev, const memlord_site *site,
                                              int same_device) {
    MLI_REQUIRE(!mli_is_inside());
    MLI_REQUIRE(!(word2 & MLI_HAS_SIDE));
    uint32_t site_row = MLI_SITE_ROW(word2), tag_row = MLI_TAG_ROW(word2);
    if (site && mli_hook_on(lord, MLI_HOOK_SITES))
        site_row = MLI_SITE_ROW(mli_cached_row(lord, t, MLI_BOOK_SITE, site, dev));
    else if (site_row && !same_device)
        site_row = mli_row_of(
            lord, MLI_BOOK_SITE,
            mli_ptr_load(
                &((mli_site_record *)mli_row_at(lord, MLI_BOOK_SITE, site_row)->subject)->display),
            dev);
    if (tag_row && !same_device)
        tag_row = mli_row_of(lord, MLI_BOOK_TAG,
                             mli_row_at(lord, MLI_BOOK_TAG, tag_row)->subject, dev);
    return mli_word2_of(site_row, tag_row, MLI_BIRTH(word2));
}

MLI_PRIVATE void mli_entry_abandon(memlord *lord, mli_thread *t, const mli_entry *e,
                                   uint32_t slot) {
    mli_row_delta d = mli_delta_close(
        MLI_DEV(e->word1), mli_word2_rows(e->word2), MLI_BYTES(e->word1));
    d.attaches = MLI_BYTES(e->word1) + 1;
    d.slot = slot;
    mli_cells_make(lord, t, &d, 1);
    mli_shard_enter_to_count(lord, t);
    mli_count(lord, t, &d, 1);
    mli_shard_leave(t);
    mli_side_record_free(lord, e->word2);
}

MLI_PRIVATE void mli_entry_set_rows(mli_entry *e, uint64_t rows) {
    if (e->word2 & MLI_HAS_SIDE)
        mli_side_record_of(e->word2)->word2 = rows;
    else
        e->word2 = rows;
}

MLI_PRIVATE memlord_result mli_entry_attach(memlord *lord, mli_call *call, mli_entry *e,
                                            uint32_t slot, uint64_t key, uint64_t bytes,
                                            const memlord_site *site, int moves, uint64_t *rows) {
    mli_thread *t = call->t;
    const uint32_t dev = call->dev;
    const uint32_t from = MLI_DEV(e->word1);
    const uint64_t had = MLI_BYTES(e->word1), was = mli_word2_rows(e->word2);
    const uint64_t now = *rows = mli_word2_moved(lord, t, was, dev, site, from == dev);
    mli_row_delta d[3];
    mli_entry put;
    unsigned n = 1;
    int did;
    memlord_result r;
    memset(d, 0, sizeof d);
    d[0].dev = dev;
    d[0].word2 = now;
    d[0].in = bytes > had ? bytes - had : 0;
    d[0].out = had > bytes ? had - bytes : 0;
    if (moves) {
        d[0] = mli_delta_close(from, was, had);
        d[1] = mli_delta_open(dev, now, bytes);
        n = 2;
    } else if (MLI_SITE_ROW(now) != MLI_SITE_ROW(was)) {
        /* the old site loses the bytes of the block, and the new site gets them without an alloc */
        d[0].word2 = now & ~MLI_SITE_BITS;
        d[1].word2 = was & MLI_SITE_BITS;
        d[1].out = had;
        d[2].word2 = now & MLI_SITE_BITS;
        d[2].in = bytes;
        n = 3;
    }
    d[0].attaches = had + 1;
    d[0].slot = slot;
    mli_slot_move(lord, slot, key);
    if (e->word2 & MLI_HAS_SIDE) {
        mli_side_record *side = mli_side_record_of(e->word2);
        const memlord_account account =
            from == dev ? side->account : mli_account_used(lord, t, dev);
        mli_parts_trim(lord, side->parts, bytes);
        if (account != side->account) mli_side_charge(lord, call, side, account, 0);
    }
    mli_entry_set_rows(e, now);
    put.key = key;
    put.word1 = mli_word1_of(bytes, dev, MLI_REFS(e->word1));
    put.word2 = e->word2;
    r = mli_entry_put(lord, call, &put, d, n, MLI_PUT_ALLOC, &did);
    if (r == MEMLORD_OK) return r;
    mli_entry_set_rows(e, was);
    mli_entry_abandon(lord, t, e, slot);
    return mli_drop_count(lord, call->site, r, mli_device_record_at(lord, dev)->device, key, bytes);
}

MLI_PRIVATE MLI_COLD mli_route *mli_route_newest(const memlord *lord) {
    return (mli_route *)mli_ptr_load_acquire(&lord->blocks->routes);
}
MLI_PRIVATE MLI_COLD mli_route *mli_route_of(memlord *lord, uint32_t from, uint32_t to) {
    MLI_REQUIRE(!mli_is_inside());
    mli_route *route, *fresh = NULL;
    for (;;) {
        route = mli_route_newest(lord);
        while (route && (route->from != from || route->to != to)) route = route->next;
        if (route || fresh) break;
        fresh = (mli_route *)mli_own_alloc(lord, sizeof *fresh);
        if (!fresh) return NULL;
        mli_lock_take(&mli_process.cold_lock); /* the loop searches again under this lock */
    }
    if (!route) {
        route = fresh;
        route->from = from;
        route->to = to;
        route->next = (mli_route *)mli_ptr_load(&lord->blocks->routes);
        mli_ptr_store_release(&lord->blocks->routes, route); /* pairs with mli_route_newest */
    }
    if (fresh) mli_lock_drop(&mli_process.cold_lock);
    if (fresh && fresh != route) mli_own_free(lord, fresh, sizeof *fresh);
    return route;
}
MLI_PRIVATE MLI_COLD void mli_move_count(memlord *lord, uint32_t from, uint32_t to,
                                         uint64_t bytes) {
    MLI_REQUIRE(!mli_is_inside());
    mli_route *route = mli_route_of(lord, from, to);
    mli_stat_add(lord, to, MLI_STAT_moves, 1);
    mli_stat_add(lord, to, MLI_STAT_moved_bytes, bytes);
    if (!route) return;
    (void)mli_u64_add(&route->moves, 1);
    (void)mli_u64_add(&route->moved_bytes, bytes);
}

MLI_PRIVATE memlord_result mli_map_reserve(memlord *lord, mli_thread *t, uint32_t dev,
                                           uint64_t key) {
    mli_probe probe;
    if (mli_probe_find(lord, t, mli_type_of(lord, dev), key, 1, &probe))
        return MEMLORD_E_NOMEM;
    mli_probe_leave(t, &probe);
    return MEMLORD_OK;
}

MLI_PRIVATE MLI_COLD memlord_result mli_block_move(memlord *lord, mli_call *call,
                                                   memlord_device from, uint64_t from_key,
                                                   uint64_t key, uint64_t bytes) {
    mli_thread *t = call->t;
    const uint32_t dev = call->dev;
    mli_entry e;
    mli_pick pick;
    uint64_t rows;
    uint32_t stack;
    mli_probe probe;
    memlord_result r = mli_map_reserve(lord, t, dev, key);
    if (r == MEMLORD_OK && mli_account_used(lord, t, dev)) {
        r = mli_probe_add_side_record(lord, t, (uint32_t)from.type, from_key, 0, &probe);
        if (r == MEMLORD_OK) mli_probe_leave(t, &probe);
    }
    if (r) return mli_short_of(lord, call, from, from_key, 1);
    if (mli_entry_detach(lord, t, (uint32_t)from.type, from_key, &e, &pick, NULL))
        return mli_unknown_free(lord, call, from, from_key);
    t->other_dev = MLI_DEV(e.word1);
    mli_pick_off(lord, &pick, MLI_BYTES(e.word1), 0);
    rows = mli_word2_moved(lord, t, mli_word2_rows(e.word2), dev, call->site,
                           MLI_DEV(e.word1) == dev);
    mli_stack_keep(lord, call, &pick, key, MLI_SITE_ROW(rows));
    stack = call->pick.row;
    mli_event_record_end(lord, t, MEMLORD_EVENT_FREE, from_key, e.word1, mli_word2_rows(e.word2),
                         call->site);
    r = mli_entry_attach(lord, call, &e, 0, key, bytes, call->site, 1, &rows);
    mli_stack_forget(call);
    if (r) return r;
    mli_event_record_begin(lord, t, MEMLORD_EVENT_MOVE, dev, key, bytes, rows, stack);
    mli_move_count(lord, MLI_DEV(e.word1), dev, bytes);
    return MEMLORD_OK;
}

/* -- life -- */

MLI_PRIVATE MLI_COLD void mli_blocks_reset(memlord *lord) {
    mli_route *route = mli_route_newest(lord);
    for (; route; route = route->next) {
        mli_u64_store(&route->moves, 0);
        mli_u64_store(&route->moved_bytes, 0);
        mli_u64_store(&route->copies, 0);
        mli_u64_store(&route->copied_bytes, 0);
    }
}
MLI_PRIVATE const mli_life mli_blocks_life = {MLI_LIFE_STATE(blocks), NULL, NULL, NULL, NULL, NULL,
                                              NULL};
