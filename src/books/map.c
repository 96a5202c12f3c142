#include "books/map.h"
#include "os/system.h"
#include "base/memory.h"

typedef char mli_check_entry[sizeof(mli_entry) == 24 ? 1 : -1];
#define MLI_SPARE_BUCKETS 640 /* a ledger with fewer is small: less than about 1,500 blocks */
typedef char mli_check_bucket[sizeof(mli_bucket) == MLI_BUCKET_BYTES ? 1 : -1];
/* The host may use one number as a storage of every device type, with the same home. So the slots
   of a bucket and its largest overflow count must be at least as many as the types. */
typedef char mli_check_overflow[MLI_BUCKET_SLOTS + MLI_OVERFLOW_MAX >= MLI_TYPE_COUNT ? 1 : -1];

MLI_PRIVATE MLI_COLD void mli_type_set(memlord *lord, uint32_t dev, int type) {
    lord->map.type_of[dev] = (uint16_t)type;
}

MLI_PRIVATE MLI_COLD void mli_dev_direct_set(memlord *lord, memlord_device d, uint32_t dev) {
    const uint32_t i = mli_device_direct_index(d);
    if (i < MLI_DIRECT_DEVICES) mli_u32_store_release(&lord->map.dev_of[i], dev);
}
MLI_PRIVATE MLI_COLD uint64_t mli_mark_next(memlord *lord) {
    uint64_t bits = mli_mark_bits(lord);
    while (MLI_BIRTH(bits) < MLI_MARK_MAX)
        if (mli_u64_cas(&lord->map.mark, &bits, bits + mli_word2_of(0, 0, 1)))
            return MLI_BIRTH(bits) + 1;
    return MLI_MARK_MAX;
}

/* -- entering a shard -- */

MLI_PRIVATE MLI_NOINLINE uint32_t mli_shard_enter_by_exchange(mli_thread *t, mli_shard *s) {
    mli_rank_inside(1);
    mli_u32_store_release(&t->by_exchange, 1);
    (void)mli_ptr_exchange(&t->inside, s);
    return mli_u32_load_seqcst(&s->state);
}

#define MLI_DRAIN_NS 1000000u
/* Waits until every store that was executed by now is visible to all threads. A processor drains
   its buffer within microseconds, and before it runs another thread. */
static MLI_COLD void mli_stores_drain(void) {
    const uint64_t begin = mli_now();
    unsigned tries = 0; /* ends if a sandbox lets no thread sleep and the clock stands still */
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
   is seq_cst and pairs with the exchange in mli_thread_start, so that a thread that joins the list
   later sees STOPPED. Requires: all threads have passed a barrier since the shard was stopped. */
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

/* Stops a shard: lets no further thread enter, and waits until all inside have left. */
static void mli_shard_stop(memlord *lord, mli_shard *s) {
    MLI_REQUIRE(mli_lock_held(&s->lock));
    MLI_REQUIRE(!mli_is_inside());
    (void)mli_u32_exchange(&s->state, MLI_SHARD_STOPPED);
    mli_barrier_threads(lord);
    mli_shard_wait(lord, s);
}

MLI_PRIVATE int mli_shard_pause(memlord *lord, mli_shard *s) {
    if (mli_u32_load(&s->state) == MLI_SHARD_NEW) return 0; /* most shards of a small ledger need
                                                               none */
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

/* Returns the number of buckets that a code stands for: 0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16 and so
   on. From 8 on, each number is twice the number three places before it. A code is below
   MLI_BUCKET_BYTES: that of the largest number below 2^32 is 93. */
static uint32_t mli_buckets_of(uint32_t code) {
    return code < 4 ? code : (4 + (code - 4) % 3) << ((code - 4) / 3);
}
/* Returns the code of a number of buckets. */
static uint32_t mli_buckets_code(uint32_t size) {
    uint32_t code = 0;
    while (mli_buckets_of(code) < size) code++;
    return code;
}

/* A table that no shard uses, because it is being filled or was replaced. */
typedef struct mli_table {
    mli_bucket *data;
    uint32_t size, displaced, count;
} mli_table;

/* Inserts an entry into a table that no other thread sees, and returns 0. Returns -1 if no bucket
   of the entry's window (MLI_PROBE_MAX) has room, or if a bucket before the one with room has a
   full overflow count for the entry's hash. */
static int mli_table_insert(mli_table *table, const mli_entry *entry) {
    uint64_t hash = mli_hash(entry->key);
    uint64_t home = ((hash >> 32) * table->size) >> 32, at = home;
    uint32_t passed;
    for (passed = 0; passed < MLI_PROBE_MAX && passed < table->size; passed++) {
        mli_bucket *b = table->data + at;
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
        const mli_bucket *b = mli_table_at(s) + i;
        for (j = 0; j < MLI_BUCKET_SLOTS && !stop; j++)
            if ((mli_u64_load(&b->header) >> (8 * j)) & 255) stop = fn(&b->slots[j], user);
    }
    return stop;
}
static int mli_table_insert_visited(const mli_entry *entry, void *user) {
    return mli_table_insert((mli_table *)user, entry);
}

/* Replaces a shard's table by a larger one. Returns 0 if it did, with the old table in *next; 1 if
   the entries do not fit in *next; -1 if they fit in no table: the old one is almost empty and yet
   too small, so the keys were made to collide. With its first table a shard gets the owner t or, if
   t is the orphan record, becomes shared. */
static MLI_COLD int mli_shard_swap_table(memlord *lord, mli_thread *t,
                                         mli_shard *s, mli_table *next) {
    MLI_REQUIRE(mli_lock_held(&s->lock));
    uint32_t state = mli_u32_load(&s->state);
    mli_table old;
    int failed;
    if (state != MLI_SHARD_NEW && state != t->id) mli_shard_stop(lord, s);
    memset(&old, 0, sizeof old);
    old.data = mli_table_at(s);
    old.size = s->size;
    failed = mli_shard_each(s, mli_table_insert_visited, next) != 0;
    if (!failed && next->count < old.size / 32) failed = -1; /* the keys were made to collide */
    if (!failed) {
        mli_u32_store(&s->refuse, 0);
        /* The release publishes the entries and the size to a reader of the process's memory. Calls
           enter by the state, whose release store follows. */
        mli_ptr_store_release(&s->table,
                              (char *)next->data + mli_buckets_code(next->size));
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
        next.size = larger = mli_buckets_of(mli_buckets_code(larger) + 1);
        next.data = (mli_bucket *)mli_own_alloc(lord, (size_t)next.size * MLI_BUCKET_BYTES);
        if (!next.data) return -1;
        mli_lock_take(&s->lock);
        same = s->size == size;
        if (same) failed = mli_shard_swap_table(lord, t, s, &next);
        if (same && !failed) (void)mli_u32_add(&lord->map.buckets, larger - next.size);
        if (failed < 0) mli_u32_store(&s->refuse, size); /* so that on average a refusal is cheap */
        mli_lock_drop(&s->lock); /* dropped only now, so that a fork or a check of the map finds the
                                    table and map.buckets in agreement */
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

MLI_PRIVATE MLI_COLD void mli_shard_make_shared(memlord *lord, mli_thread *t, mli_shard *s) {
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
        mli_own_free(lord, mli_table_at(s), (size_t)s->size * MLI_BUCKET_BYTES);
    }
}
MLI_PRIVATE const mli_life mli_map_life = {0, 0, mli_map_init, NULL, NULL, mli_map_lock, NULL,
                                           mli_map_free};
