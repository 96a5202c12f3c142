#include "books/probes.h"

/* Returns the bucket after b, or the first one after the last. `end` is where they end. */
static MLI_HOT mli_bucket *mli_bucket_next(const mli_shard *s, mli_bucket *b,
                                           const mli_bucket *end) {
    return b + 1 == end ? mli_table_at(s) : b + 1;
}
static MLI_HOT mli_bucket *mli_buckets_end(const mli_shard *s) {
    return mli_table_at(s) + s->size;
}

static MLI_COLD void mli_bucket_wait(const mli_bucket *b) {
    unsigned n = 0;
    while (mli_u64_load(&b->header) & MLI_BUCKET_LOCK) mli_spin_wait(&n);
}

MLI_PRIVATE void mli_probe_begin(mli_probe *probe, mli_shard *s, uint64_t key, int shared) {
    MLI_REQUIRE(mli_is_inside() || mli_lock_held(&s->lock));
    probe->shard = s;
    probe->key = key;
    probe->hash = mli_hash(key);
    probe->home = mli_home_bucket(s, probe->hash);
    probe->bucket = 0;
    probe->held = 1;
    probe->shared = shared;
    probe->inside = 1;
}

/* Looks for the key of a probe in a bucket. If the key is there, notes its slot and returns 1. */
static MLI_HOT int mli_probe_match(const memlord *lord, mli_probe *probe, mli_bucket *b,
                                   uint64_t header, uint32_t type) {
    const uint64_t print = MLI_HASH_PRINT(probe->hash);
    uint64_t match = mli_print_match(header, print);
    for (; match; match &= match - 1) {
        const unsigned bit = mli_print_match_bit(match);
        mli_entry *e = mli_slot_entry(b, bit);
        if (e->key != probe->key || mli_type_of(lord, MLI_DEV(e->word1)) != type) continue;
        probe->entry = e;
        probe->bucket = probe->held - 1;
        probe->header = header ^ print << bit;
        return 1;
    }
    return 0;
}
MLI_PRIVATE MLI_NOINLINE int mli_probe_scan(const memlord *lord, mli_probe *probe, uint32_t type,
                                            int want_room) {
    MLI_REQUIRE(mli_is_inside() || mli_lock_held(&probe->shard->lock));
    const mli_shard *s = probe->shard;
    const mli_bucket *end = mli_buckets_end(s);
    mli_bucket *b = probe->home;
    probe->entry = probe->room = NULL;
    for (;;) {
        const uint64_t header = mli_u64_load(&b->header) & ~MLI_BUCKET_LOCK;
        const unsigned overflow = mli_overflow_count(header, probe->hash);
        if (mli_probe_match(lord, probe, b, header, type)) return 0;
        if (want_room && mli_vacant_slots(header)) {
            const unsigned bit = mli_lowest_bit(mli_vacant_slots(header));
            probe->room = mli_slot_entry(b, bit);
            probe->bucket = probe->held - 1;
            probe->header = header | MLI_HASH_PRINT(probe->hash) << bit;
            want_room = 0;
        }
        if (!overflow && !want_room) return 0;
        want_room &= overflow != MLI_OVERFLOW_MAX;
        if (probe->held == MLI_PROBE_MAX || probe->held == s->size) return 0;
        b = mli_bucket_next(s, b, end);
        if (probe->shared && !mli_bucket_try(b)) return -1;
        probe->held++;
    }
}

/* Stores what a probe changes, and unlocks the probe's buckets. `by` is 1 for an insert, -1 for an
   erase, and 0 for no change. If `by` is not 0, stores probe->header in the bucket with the number
   probe->bucket. If this bucket is not the home, adds `by` to the shard's `displaced`, and to the
   overflow counts of the buckets before this one. The release store, which unlocks a bucket, pairs
   with the acquire in mli_bucket_try. */
static MLI_NOINLINE void mli_probe_settle(mli_probe *probe, int by) {
    const mli_bucket *end = mli_buckets_end(probe->shard);
    const uint64_t passed = (uint64_t)(int64_t)by << MLI_HASH_OVERFLOW(probe->hash);
    mli_bucket *b = probe->home;
    unsigned k;
    for (k = 0; k < probe->held; k++) {
        uint64_t header = mli_u64_load(&b->header) & ~MLI_BUCKET_LOCK;
        if (k < probe->bucket) header += passed;
        if (k == probe->bucket && by) header = probe->header;
        mli_u64_store_release(&b->header, header);
        b = mli_bucket_next(probe->shard, b, end);
    }
    probe->held = 0;
    if (!probe->bucket || !by) return;
    if (probe->shared)
        (void)mli_u32_add(&probe->shard->displaced, (uint32_t)by);
    else
        mli_u32_add_own(&probe->shard->displaced, (uint32_t)by);
}
MLI_PRIVATE void mli_probe_insert(mli_probe *probe, uint64_t word1, uint64_t word2) {
    MLI_REQUIRE(mli_is_inside());
    MLI_REQUIRE(probe->room);
    probe->room->key = probe->key;
    probe->room->word1 = word1;
    probe->room->word2 = word2;
    mli_probe_settle(probe, 1);
}
MLI_PRIVATE void mli_probe_erase(mli_probe *probe) {
    MLI_REQUIRE(mli_is_inside());
    MLI_REQUIRE(probe->entry);
    mli_probe_settle(probe, -1);
}

MLI_PRIVATE void mli_probe_unlock(mli_probe *probe) {
    if (probe->shared) mli_probe_settle(probe, 0);
}
MLI_PRIVATE MLI_NOINLINE void mli_probe_leave(mli_thread *t, mli_probe *probe) {
    mli_probe_unlock(probe);
    if (probe->inside) mli_shard_leave(t);
    probe->inside = 0;
}

MLI_PRIVATE void mli_home_probe(const mli_thread *t, uint64_t key, mli_probe *probe) {
    mli_probe_begin(probe, mli_shard_entered(t), key, 0);
    probe->shared = (mli_u64_load(&probe->home->header) & MLI_BUCKET_LOCK) != 0;
}
/* Probes a shard that the thread has entered. Nonzero: the thread must leave and try again. */
static MLI_HOT int mli_probe_entered(memlord *lord, uint32_t type, uint64_t key, int want_room,
                                     mli_probe *probe) {
    mli_probe_begin(probe, probe->shard, key, probe->shared);
    while (probe->shared && !mli_bucket_try(probe->home)) mli_bucket_wait(probe->home);
    return mli_probe_scan(lord, probe, type, want_room);
}
/* Returns 1 if the key of a probe that found no room gets no larger table. If even a table 64 times
   as large would have 20 entries in the home of the key, the keys were made to collide. If only the
   whole table shows that, one key in many gets its try (mli_shard.refuse). */
static MLI_COLD int mli_probe_refused(const mli_probe *probe) {
    mli_shard *s = probe->shard;
    const uint32_t refuse = mli_u32_load(&s->refuse), near_by = ((uint32_t)1 << 26) / s->size;
    mli_bucket *b = probe->home;
    unsigned k, i, same = 0;
    for (k = 0; k < probe->held; k++, b = mli_bucket_next(s, b, mli_buckets_end(s)))
        for (i = 0; i < MLI_BUCKET_SLOTS; i++)
            same += ((mli_u64_load(&b->header) >> (8 * i)) & 255) &&
                    (mli_hash(b->slots[i].key) - probe->hash + ((uint64_t)near_by << 31)) >> 32 <
                        near_by;
    if (refuse) mli_u32_store(&s->refuse, refuse - 1);
    return refuse || same >= MLI_BUCKET_SLOTS + MLI_OVERFLOW_MAX;
}
MLI_PRIVATE MLI_NOINLINE int mli_probe_find(memlord *lord, mli_thread *t, uint32_t type,
                                            uint64_t key, int want_room, mli_probe *probe) {
    MLI_REQUIRE(!mli_is_inside());
    mli_shard *s = mli_shard_of(lord, key);
    unsigned n = 0;
    memset(probe, 0, sizeof *probe);
    probe->shard = s;
    for (;;) {
        const uint32_t state = mli_shard_enter(t, s);
        uint32_t size = 0;
        int again = 0, refused = 0;
        probe->inside = 1;
        probe->shared = state == MLI_SHARD_SHARED;
        if (probe->shared || state == t->id) {
            size = s->size;
            again = mli_probe_entered(lord, type, key, want_room, probe);
            if (!again && (probe->entry || probe->room || !want_room)) return 0;
            if (!again) refused = mli_probe_refused(probe);
        }
        mli_probe_leave(t, probe);
        if (again)
            mli_spin_wait(&n);
        else if (!probe->shared && state != t->id && state != MLI_SHARD_NEW)
            mli_shard_make_shared(lord, t, s); /* if STOPPED, the call waits for the shard's lock */
        else if (!want_room)
            return 0;
        else if (refused || mli_shard_grow(lord, t, s, size))
            return -1;
    }
}
