#include "books/map.h"
#include "os/system.h"
#include "base/memory.h"

typedef char mli_check_entry[sizeof(mli_entry) == 24 ? 1 : -1];
#define MLI_SPARE_BUCKETS 640 /* a ledger with fewer buckets, or about 1,500 blocks, is small */
typedef char mli_check_bucket[sizeof(mli_bucket) == MLI_BUCKET_BYTES ? 1 : -1];
/* The host may use one number as a storage of every device type. All these keys have the same home
   bucket. So the slots of a bucket and its largest overflow count must together be no less than the
   number of types. */
typedef char mli_check_overflow[MLI_BUCKET_SLOTS + MLI_OVERFLOW_MAX >= MLI_TYPE_COUNT ? 1 : -1];

/* Returns the bucket after b; after the last one comes the first. `end` is where the buckets
   end. */
static MLI_HOT mli_bucket *mli_bucket_next(const mli_shard *s, mli_bucket *b,
                                           const mli_bucket *end) {
    return b + 1 == end ? (mli_bucket *)(void *)s->table : b + 1;
}
static MLI_HOT mli_bucket *mli_buckets_end(const mli_shard *s) {
    return (mli_bucket *)(void *)s->table + s->size;
}

MLI_PRIVATE MLI_COLD void mli_type_set(memlord *lord, uint32_t dev, int type) {
    lord->map.type_of[dev] = (uint16_t)type;
}

/* -- entering a shard -- */

MLI_PRIVATE MLI_NOINLINE uint32_t mli_shard_enter_by_exchange(mli_thread *t, mli_shard *s) {
    mli_rank_inside(1);
    mli_u32_store_release(&t->by_exchange, 1);
    (void)mli_ptr_exchange(&t->inside, s);
    return mli_u32_load_seqcst(&s->state);
}

#define MLI_DRAIN_NS 1000000u
/* Waits until every store that a processor has executed by now is visible to all threads. A
   processor drains its store buffer within microseconds, and always before it runs another
   thread. */
static MLI_COLD void mli_stores_drain(void) {
    const uint64_t begin = mli_now();
    unsigned tries = 0; /* needed where a sandbox refuses to sleep and the clock stands still */
    do {
        mli_nap(MLI_DRAIN_NS);
    } while (mli_now() - begin < MLI_DRAIN_NS && ++tries < 1000);
}
MLI_PRIVATE MLI_COLD void mli_barrier_threads(memlord *lord) {
    mli_thread *t;
    int drain = 0;
    if (mli_u32_load_seqcst(&mli_process.has_barrier)) {
        if (mli_barrier_all()) return;
        (void)mli_u32_exchange(&mli_process.has_barrier, 0);
    }
    mli_alert_barrier(lord);
    t = (mli_thread *)mli_ptr_load_seqcst(&lord->threads.all);
    for (; t; t = mli_thread_next(t)) {
        if (mli_u32_load_seqcst(&t->by_exchange)) continue;
        mli_special_set(t, MLI_SPECIAL_NO_BARRIER, 1);
        drain = 1;
    }
    if (drain) mli_stores_drain();
}

/* Waits until no thread is inside shard s, or inside any shard if s is NULL. The load of the list
   is seq_cst and pairs with the exchange in mli_thread_start, so that a thread that is not on the
   list yet sees STOPPED. Requires: all threads have passed a barrier since the shard was
   stopped. */
static void mli_shard_wait(memlord *lord, const mli_shard *s) {
    MLI_REQUIRE(!s || mli_u32_load(&s->state) == MLI_SHARD_STOPPED);
    mli_thread *t = (mli_thread *)mli_ptr_load_seqcst(&lord->threads.all);
    for (; t; t = mli_thread_next(t)) {
        unsigned n = 0;
        for (;;) {
            const void *inside = mli_ptr_load_seqcst(&t->inside);
            if (!inside || (s && inside != s)) break;
            mli_spin_wait(&n);
        }
    }
}

/* Stops a shard, whatever its state: keeps threads out, and waits until all that are inside have
   left. */
static void mli_shard_stop(memlord *lord, mli_shard *s) {
    MLI_REQUIRE(mli_lock_held(&s->lock));
    MLI_REQUIRE(!mli_is_inside());
    (void)mli_u32_exchange(&s->state, MLI_SHARD_STOPPED);
    mli_barrier_threads(lord);
    mli_shard_wait(lord, s);
}

MLI_PRIVATE int mli_shard_pause(memlord *lord, mli_shard *s) {
    mli_lock_take(&s->lock);
    s->stopped_state = mli_u32_load(&s->state);
    if (s->stopped_state == MLI_SHARD_NEW) {
        mli_lock_drop(&s->lock);
        return 0;
    }
    mli_shard_stop(lord, s);
    return 1;
}
MLI_PRIVATE void mli_shard_resume(mli_shard *s) {
    mli_u32_store_release(&s->state, s->stopped_state);
    mli_lock_drop(&s->lock);
}

MLI_PRIVATE void mli_map_freeze(memlord *lord) {
    uint32_t i;
    for (i = 0; i < MLI_SHARDS; i++) {
        mli_shard *s = mli_shard_at(lord, i);
        mli_lock_take(&s->lock);
        s->stopped_state = mli_u32_load(&s->state);
        (void)mli_u32_exchange(&s->state, MLI_SHARD_STOPPED);
    }
    mli_barrier_threads(lord);
    mli_shard_wait(lord, NULL);
}
MLI_PRIVATE void mli_map_thaw(memlord *lord) {
    uint32_t i;
    for (i = 0; i < MLI_SHARDS; i++) mli_shard_resume(mli_shard_at(lord, i));
}

/* -- tables -- */

/* Returns the next size of a table, of 1, 2, 3, 4, 5, 6, 8, 10, 12, 16 and so on. From 8 on the
   sizes double in three steps. */
static uint32_t mli_buckets_next(uint32_t n) {
    uint32_t step = 1;
    while (step * 8 <= n) step *= 2;
    return n + (n == step * 6 ? 2 * step : step);
}

/* A table that no shard uses, because it is being filled or was replaced. */
typedef struct mli_table {
    char *data;
    uint32_t size, displaced, count;
} mli_table;

/* Inserts an entry into a table that no other thread sees. Returns 0. Returns -1 if no bucket of
   the entry's window has room, or if an overflow count before such a bucket is full. */
static int mli_table_insert(mli_table *table, const mli_entry *entry) {
    uint64_t hash = mli_hash(entry->key);
    uint64_t home = ((hash >> 32) * table->size) >> 32, at = home;
    uint32_t passed;
    for (passed = 0; passed < MLI_PROBE_MAX && passed < table->size; passed++) {
        mli_bucket *b = (mli_bucket *)(void *)table->data + at;
        uint64_t header = mli_u64_load(&b->header), vacant = mli_vacant_slots(header);
        if (vacant) {
            unsigned i = mli_lowest_bit(vacant) / 8;
            b->slots[i] = *entry;
            mli_u64_store(&b->header, header | MLI_HASH_PRINT(hash) << (8 * i));
            table->displaced += at != home;
            table->count++;
            return 0;
        }
        if (mli_overflow_count(header, hash) == MLI_OVERFLOW_MAX) return -1;
        mli_u64_store(&b->header, header + ((uint64_t)1 << MLI_HASH_OVERFLOW(hash)));
        if (++at == table->size) at = 0;
    }
    return -1;
}
MLI_PRIVATE int mli_shard_each(const mli_shard *s, mli_entry_fn fn, void *user) {
    uint32_t i, j;
    int stop = 0;
    for (i = 0; i < s->size && !stop; i++) {
        const mli_bucket *b = (const mli_bucket *)(const void *)s->table + i;
        for (j = 0; j < MLI_BUCKET_SLOTS && !stop; j++)
            if ((mli_u64_load(&b->header) >> (8 * j)) & 255) stop = fn(&b->slots[j], user);
    }
    return stop;
}
static int mli_table_insert_visited(const mli_entry *entry, void *user) {
    return mli_table_insert((mli_table *)user, entry);
}

/* Replaces a shard's table by a larger one. Returns 0 if it did; *next is then the old table.
   Returns 1 if the entries do not fit in *next. Returns -1 if they will fit in no table: the old
   table is almost empty and yet too small, so the keys were made to collide. A shard that gets its
   first table also gets an owner. It becomes shared instead if t is the orphan record. */
static MLI_COLD int mli_shard_swap_table(memlord *lord, mli_thread *t,
                                         mli_shard *s, mli_table *next) {
    MLI_REQUIRE(mli_lock_held(&s->lock));
    uint32_t state = mli_u32_load(&s->state);
    mli_table old;
    int failed;
    if (state != MLI_SHARD_NEW && state != t->id) mli_shard_stop(lord, s);
    memset(&old, 0, sizeof old);
    old.data = s->table;
    old.size = s->size;
    failed = mli_shard_each(s, mli_table_insert_visited, next) != 0;
    if (!failed && next->count < old.size / 32) failed = -1; /* the keys were made to collide */
    if (!failed) {
        s->table = next->data;
        s->size = next->size;
        mli_u32_store(&s->displaced, next->displaced);
        *next = old;
        if (state == MLI_SHARD_NEW)
            state = mli_is_orphan(lord, t) ? (uint32_t)MLI_SHARD_SHARED : t->id;
    }
    mli_u32_store_release(&s->state, state);
    return failed;
}

MLI_PRIVATE MLI_COLD int mli_shard_grow(memlord *lord, mli_thread *t, mli_shard *s, uint32_t size) {
    MLI_REQUIRE(!mli_is_inside());
    mli_table next;
    uint32_t larger = size;
    unsigned i;
    for (i = 0; i < 18; i++) { /* only keys made to collide would need more steps */
        int failed = 0, same;
        memset(&next, 0, sizeof next);
        next.size = larger = mli_buckets_next(larger);
        next.data = (char *)mli_own_alloc(lord, (size_t)next.size * MLI_BUCKET_BYTES);
        if (!next.data) return -1;
        mli_lock_take(&s->lock);
        same = s->size == size;
        if (same) failed = mli_shard_swap_table(lord, t, s, &next);
        mli_lock_drop(&s->lock);
        if (same && !failed) (void)mli_u32_add(&lord->map.buckets, larger - next.size);
        mli_own_free(lord, next.data, (size_t)next.size * MLI_BUCKET_BYTES);
        if (failed <= 0) return failed;
    }
    return -1;
}

MLI_PRIVATE int mli_shard_crowded(memlord *lord, const mli_shard *s) {
    MLI_REQUIRE(mli_is_inside());
    uint32_t most = 14 + 8 * (uint32_t)((s - lord->map.shards) & 3);
    if (mli_u32_load(&lord->map.buckets) < MLI_SPARE_BUCKETS) most = 2;
    return (uint64_t)mli_u32_load(&s->displaced) * 64 >= (uint64_t)s->size * most;
}

/* Makes a shard shared for good, if another thread owns it. Stops the shard first. */
static MLI_COLD void mli_shard_make_shared(memlord *lord, mli_thread *t, mli_shard *s) {
    MLI_REQUIRE(!mli_is_inside());
    uint32_t state;
    mli_lock_take(&s->lock);
    state = mli_u32_load(&s->state);
    if (state >= MLI_SHARD_OWNED && state != t->id) {
        mli_shard_stop(lord, s);
        mli_u32_store_release(&s->state, MLI_SHARD_SHARED);
    }
    mli_lock_drop(&s->lock);
}

/* -- buckets of a shared shard -- The acquire that takes a bucket's lock pairs with the release
   store of the header that drops the lock. */

static MLI_COLD void mli_bucket_wait(const mli_bucket *b) {
    unsigned n = 0;
    while (mli_u64_load(&b->header) & MLI_BUCKET_LOCK) mli_spin_wait(&n);
}

/* -- probing -- A thread probes while it is inside the shard, or under the shard's lock while the
   shard is stopped. Probing changes no entry. The probe notes the slot and the header to store, and
   mli_probe_insert or mli_probe_erase stores that header. In a shared shard the thread locks each
   bucket that it probes. */

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

/* Ends a probe. `by` is 1 for an insert, -1 for an erase, and 0 for no change. Stores the header of
   the slot's bucket, unless `by` is 0. If that bucket is not the home, adds `by` to the shard's
   `displaced` and to the overflow counts of the buckets before it. Unlocks all buckets of a shared
   shard. The release store pairs with the acquire in mli_bucket_try. */
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
/* Probes a shard that the thread has entered. Returns nonzero if the thread must leave and try
   again. */
static MLI_HOT int mli_probe_entered(memlord *lord, uint32_t type, uint64_t key, int want_room,
                                     mli_probe *probe) {
    mli_probe_begin(probe, probe->shard, key, probe->shared);
    while (probe->shared && !mli_bucket_try(probe->home)) mli_bucket_wait(probe->home);
    return mli_probe_scan(lord, probe, type, want_room);
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
        int again = 0;
        probe->inside = 1;
        probe->shared = state == MLI_SHARD_SHARED;
        if (probe->shared || state == t->id) {
            size = s->size;
            again = mli_probe_entered(lord, type, key, want_room, probe);
            if (!again && (probe->entry || probe->room || !want_room)) return 0;
        }
        mli_probe_leave(t, probe);
        if (again)
            mli_spin_wait(&n);
        else if (!probe->shared && state != t->id && state != MLI_SHARD_NEW)
            mli_shard_make_shared(lord, t, s); /* if the state is STOPPED, this waits for the
                                                  shard's lock */
        else if (!want_room)
            return 0;
        else if (mli_shard_grow(lord, t, s, size))
            return -1;
    }
}

/* -- life -- */

static MLI_COLD void mli_map_init(memlord *lord, const memlord_desc *desc) {
    uint32_t i;
    (void)desc;
    for (i = 0; i < MLI_SHARDS; i++) mli_lock_rank(&mli_shard_at(lord, i)->lock, MLI_RANK_SHARD);
}
static MLI_COLD void mli_map_lock(memlord *lord, int take) {
    if (take)
        mli_map_freeze(lord);
    else
        mli_map_thaw(lord);
}
static MLI_COLD void mli_map_free(memlord *lord) {
    uint32_t i;
    for (i = 0; i < MLI_SHARDS; i++) {
        mli_shard *s = mli_shard_at(lord, i);
        mli_own_free(lord, s->table, (size_t)s->size * MLI_BUCKET_BYTES);
    }
}
MLI_PRIVATE MLI_COLD void mli_map_life(mli_life *life) {
    life->init = mli_map_init;
    life->lock = mli_map_lock;
    life->free = mli_map_free;
}
