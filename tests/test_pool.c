/* examples/pool.h, the model of a custom allocator: classes, alignment, merging, its two bounds,
   wrong calls, threads, and a random run against a model. */
#include "support.h"

#include <unistd.h>

#include "../examples/pool.h"

#define MIB ((uint64_t)1 << 20)

typedef struct fixture {
    memlord *lord;
    pool pool;
    memlord_device device;
} fixture;

static int open_with(void **state, double fraction, uint64_t cache, uint32_t flags) {
    fixture *f = (fixture *)calloc(1, sizeof *f);
    memlord_desc desc;
    pool_desc how;
    memset(&desc, 0, sizeof desc);
    memset(&how, 0, sizeof how);
    desc.flags = flags;
    assert_ok(memlord_create(&desc, &f->lord));
    how.lord = f->lord;
    how.device = f->device = memlord_device_make(MEMLORD_DEVICE_OTHER, 0);
    how.fraction = fraction;
    how.cache = cache;
    assert_ok(memlord_limit_set(f->lord, f->device, 64 * MIB));
    assert_int_equal(pool_open(&f->pool, &how), POOL_OK);
    *state = f;
    return 0;
}
static int setup(void **state) { return open_with(state, 0, 0, MEMLORD_FLAG_DEFER); }
static int setup_half(void **state) { return open_with(state, 0.125, 0, MEMLORD_FLAG_DEFER); }
static int setup_cache(void **state) { return open_with(state, 0, 8 * MIB, MEMLORD_FLAG_DEFER); }
static int setup_inside(void **state) { return open_with(state, 0, 0, 0); }
static int teardown(void **state) {
    fixture *f = (fixture *)*state;
    assert_int_equal(pool_close(&f->pool), POOL_OK);
    memlord_destroy(f->lord);
    free(f);
    return 0;
}
static void *take(fixture *f, size_t bytes) {
    void *block;
    assert_int_equal(pool_alloc(&f->pool, bytes, 0, NULL, &block), POOL_OK);
    return block;
}
static void give(fixture *f, void *block) {
    assert_int_equal(pool_free(&f->pool, block, NULL), POOL_OK);
}
/* What MemLord has is what the pool has. */
static void agree(fixture *f) {
    memlord_stats s = stats_of(f->lord, f->device);
    pool_stats own = pool_stats_get(&f->pool);
    assert_int_equal(s.allocated, own.live);
    assert_int_equal(s.reserved, own.reserved);
    assert_int_equal(s.cache_hits, own.hits);
    assert_int_equal(s.cache_misses, own.misses);
    if (own.reserved > own.live) assert_int_equal(s.largest_free, own.largest);
    assert_int_equal(s.unknown_frees + s.implicit_frees, 0);
}

static void a_freed_block_serves_the_next_request_of_its_size(void **state) {
    fixture *f = (fixture *)*state;
    void *first = take(f, 5000), *again;
    give(f, first);
    again = take(f, 5000);
    assert_ptr_equal(first, again);
    assert_int_equal(pool_stats_get(&f->pool).misses, 1);
    assert_int_equal(pool_stats_get(&f->pool).hits, 1);
    agree(f);
    give(f, again);
    agree(f);
}

static void blocks_are_aligned_as_asked(void **state) {
    fixture *f = (fixture *)*state;
    void *blocks[15], *odd = take(f, 300);
    size_t i;
    for (i = 0; i < 15; i++) {
        assert_int_equal(pool_alloc(&f->pool, 1000, (size_t)256 << i, NULL, &blocks[i]), POOL_OK);
        assert_int_equal((uintptr_t)blocks[i] & (((uintptr_t)256 << i) - 1), 0);
        memset(blocks[i], 7, 1000);
    }
    agree(f);
    for (i = 0; i < 15; i++) give(f, blocks[i]);
    give(f, odd);
}

static void a_collection_merges_what_lies_side_by_side(void **state) {
    fixture *f = (fixture *)*state;
    void *blocks[1024];
    uint64_t reclaimed;
    size_t i;
    for (i = 0; i < 1024; i++) blocks[i] = take(f, 4096);
    for (i = 1; i < 1024; i++) give(f, blocks[i]);
    assert_int_equal(pool_stats_get(&f->pool).largest, 4096);
    assert_ok(memlord_gc_run(f->lord, f->device, MEMLORD_REASON_FRAGMENTATION, 0, &reclaimed));
    assert_int_equal(reclaimed, 0); /* the one segment has a live block */
    assert_int_equal(pool_stats_get(&f->pool).largest, 4 * MIB - 4096);
    agree(f);
    give(f, take(f, (size_t)(3 * MIB)));
    assert_int_equal(pool_stats_get(&f->pool).misses, 1);
    give(f, blocks[0]);
}

static void a_collection_gives_idle_segments_back(void **state) {
    fixture *f = (fixture *)*state;
    void *blocks[4];
    uint64_t reclaimed;
    size_t i;
    for (i = 0; i < 4; i++) blocks[i] = take(f, POOL_SEGMENT);
    for (i = 0; i < 4; i++) give(f, blocks[i]);
    assert_ok(memlord_gc_run(f->lord, f->device, MEMLORD_REASON_OOM, 0, &reclaimed));
    assert_int_equal(reclaimed, 16 * MIB);
    assert_int_equal(pool_stats_get(&f->pool).reserved, 0);
    agree(f);
}

static void a_band_on_idle_bytes_asks_for_a_trim(void **state) {
    fixture *f = (fixture *)*state;
    const memlord_band idle = {0, 101, MEMLORD_METRIC_CACHED, 8 * MIB, 50, MEMLORD_COMBINE_MAX};
    void *blocks[4];
    size_t i;
    assert_ok(memlord_strategy_set(f->lord, f->device, &idle, 1));
    for (i = 0; i < 40; i++) give(f, take(f, 4096)); /* a trim keeps room for frequent sizes */
    for (i = 0; i < 4; i++) blocks[i] = take(f, POOL_SEGMENT);
    for (i = 0; i < 4; i++) give(f, blocks[i]);
    assert_int_equal(pool_stats_get(&f->pool).trims, 0); /* deferred */
    assert_ok(memlord_gc_poll(f->lord, f->device));
    assert_int_equal(pool_stats_get(&f->pool).trims, 1);
    assert_true(pool_stats_get(&f->pool).reserved < 16 * MIB);
    agree(f);
}

static void more_than_the_fraction_is_refused(void **state) {
    fixture *f = (fixture *)*state; /* an eighth of 64 MiB: two segments */
    void *a = take(f, POOL_SEGMENT), *b = take(f, POOL_SEGMENT), *c;
    assert_int_equal(pool_alloc(&f->pool, 1, 0, NULL, &c), POOL_E_FRACTION);
    assert_null(c);
    assert_int_equal(pool_stats_get(&f->pool).errors[POOL_E_FRACTION], 1);
    assert_non_null(strstr(pool_result_text(POOL_E_FRACTION), "fraction"));
    agree(f);
    give(f, a);
    c = take(f, 1);
    give(f, b);
    give(f, c);
    agree(f);
}

static void a_later_limit_changes_what_the_fraction_is(void **state) {
    fixture *f = (fixture *)*state;
    void *blocks[3];
    blocks[0] = take(f, POOL_SEGMENT);
    blocks[1] = take(f, POOL_SEGMENT);
    assert_int_equal(pool_alloc(&f->pool, 1, 0, NULL, &blocks[2]), POOL_E_FRACTION);
    assert_ok(memlord_limit_set(f->lord, f->device, 96 * MIB));
    blocks[2] = take(f, 1);
    give(f, blocks[0]);
    give(f, blocks[1]);
    give(f, blocks[2]);
}

static void more_than_the_cache_is_given_back_at_once(void **state) {
    fixture *f = (fixture *)*state; /* 8 MiB */
    void *blocks[4];
    size_t i;
    for (i = 0; i < 4; i++) blocks[i] = take(f, POOL_SEGMENT);
    for (i = 0; i < 4; i++) give(f, blocks[i]);
    assert_int_equal(pool_stats_get(&f->pool).reserved, 8 * MIB);
    assert_int_equal(pool_stats_get(&f->pool).released, 2);
    agree(f);
}

static void wrong_calls_change_nothing_and_are_counted(void **state) {
    fixture *f = (fixture *)*state;
    char outside[1024];
    void *block = take(f, 5000), *none = block;
    agree(f);
    assert_int_equal(pool_alloc(&f->pool, 0, 0, NULL, &none), POOL_E_SIZE);
    assert_null(none);
    assert_int_equal(pool_alloc(&f->pool, POOL_SEGMENT + 1, 0, NULL, &none), POOL_E_SIZE);
    assert_int_equal(pool_alloc(&f->pool, SIZE_MAX, 0, NULL, &none), POOL_E_SIZE);
    assert_int_equal(pool_alloc(&f->pool, 8, 3, NULL, &none), POOL_E_ALIGN);
    assert_int_equal(pool_alloc(&f->pool, 8, (size_t)POOL_SEGMENT * 2, NULL, &none), POOL_E_ALIGN);
    assert_int_equal(pool_free(&f->pool, outside, NULL), POOL_E_FOREIGN);
    assert_int_equal(pool_free(&f->pool, (void *)16, NULL), POOL_E_FOREIGN);
    assert_int_equal(pool_free(&f->pool, (char *)block + 1, NULL), POOL_E_FOREIGN);
    assert_int_equal(pool_free(&f->pool, (char *)block + 256, NULL), POOL_E_FOREIGN);
    assert_int_equal(pool_free(&f->pool, NULL, NULL), POOL_OK);
    agree(f);
    give(f, block);
    assert_int_equal(pool_free(&f->pool, block, NULL), POOL_E_DOUBLE_FREE);
    assert_int_equal(pool_stats_get(&f->pool).errors[POOL_E_SIZE], 3);
    assert_int_equal(pool_stats_get(&f->pool).errors[POOL_E_ALIGN], 2);
    assert_int_equal(pool_stats_get(&f->pool).errors[POOL_E_FOREIGN], 4);
    assert_int_equal(pool_stats_get(&f->pool).errors[POOL_E_DOUBLE_FREE], 1);
    agree(f);
}

static void a_second_free_after_a_merge_is_still_told(void **state) {
    fixture *f = (fixture *)*state;
    void *a = take(f, 4096), *b = take(f, 4096), *c = take(f, 4096);
    give(f, a);
    give(f, b);
    assert_ok(memlord_gc_run(f->lord, f->device, MEMLORD_REASON_FRAGMENTATION, 0, NULL));
    assert_int_equal(pool_free(&f->pool, b, NULL), POOL_E_DOUBLE_FREE);
    give(f, c);
}

static void a_pool_with_live_blocks_is_not_closed(void **state) {
    fixture *f = (fixture *)*state;
    void *block = take(f, 1);
    assert_int_equal(pool_close(&f->pool), POOL_E_LIVE);
    give(f, block);
}

static void wrong_descriptions_are_refused(void **state) {
    fixture *f = (fixture *)*state;
    static pool other;
    pool_desc how;
    memset(&how, 0, sizeof how);
    how.lord = f->lord;
    how.device = memlord_device_all();
    assert_int_equal(pool_open(&other, &how), POOL_E_INVALID);
    how.device = memlord_device_make(MEMLORD_DEVICE_OTHER, 1);
    how.fraction = 1.5;
    assert_int_equal(pool_open(&other, &how), POOL_E_INVALID);
    how.fraction = 0.5; /* of what? */
    assert_int_equal(pool_open(&other, &how), POOL_E_UNKNOWN);
}

static void without_defer_a_collection_inside_a_call_is_told(void **state) {
    fixture *f = (fixture *)*state;
    const memlord_band idle = {0, 101, MEMLORD_METRIC_CACHED, MIB, 0, MEMLORD_COMBINE_MAX};
    assert_ok(memlord_strategy_set(f->lord, f->device, &idle, 1));
    give(f, take(f, 4096));
    assert_true(pool_stats_get(&f->pool).errors[POOL_E_DEFER] > 0);
    agree(f);
}

/* -- threads -- */

enum { THREADS = 4, SHARED = 256 };
static void *volatile shared[SHARED]; /* blocks that any thread may free */

typedef struct runner {
    fixture *f;
    uint64_t random;
    int steps;
    uint64_t taken, freed; /* blocks */
} runner;

static void *stress(void *user) {
    runner *r = (runner *)user;
    int i;
    for (i = 0; i < r->steps; i++) {
        void *block = NULL;
        uint64_t v = r->random = r->random * 6364136223846793005u + 1442695040888963407u;
        size_t at = (size_t)(v >> 33) % SHARED;
        if (v >> 60 & 1) {
            if (!pool_alloc(&r->f->pool, 1 + (size_t)(v >> 40 & 0xffff), 0, NULL, &block)) {
                memset(block, (int)at, 16);
                r->taken++;
            }
        }
        block = __atomic_exchange_n(&shared[at], block, __ATOMIC_ACQ_REL);
        if (block && pool_free(&r->f->pool, block, NULL) == POOL_OK) r->freed++;
        if (i % 64 == 0) (void)memlord_gc_poll(r->f->lord, r->f->device);
        if (i % 512 == 0)
            (void)memlord_gc_run(r->f->lord, r->f->device, MEMLORD_REASON_FRAGMENTATION, 0, NULL);
    }
    return NULL;
}

static void threads_free_each_others_blocks_and_the_totals_are_exact(void **state) {
    fixture *f = (fixture *)*state;
    pthread_t threads[THREADS];
    runner runners[THREADS];
    uint64_t taken = 0, freed = 0;
    int i;
    memset(runners, 0, sizeof runners);
    for (i = 0; i < THREADS; i++) {
        runners[i].f = f;
        runners[i].random = (uint64_t)i + 1;
        runners[i].steps = getenv("MEMLORD_TEST_ALL") ? 200000 : 10000;
        assert_int_equal(pthread_create(&threads[i], NULL, stress, &runners[i]), 0);
    }
    for (i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        taken += runners[i].taken;
        freed += runners[i].freed;
    }
    assert_int_equal(stats_of(f->lord, f->device).live_blocks, taken - freed);
    agree(f);
    for (i = 0; i < SHARED; i++) {
        if (shared[i]) give(f, shared[i]);
        shared[i] = NULL;
    }
    assert_int_equal(stats_of(f->lord, f->device).live_blocks, 0);
    agree(f);
}

/* -- a random run against a model: no block overlaps another, and each keeps its bytes -- */

enum { MODEL = 300 };
typedef struct modelled {
    unsigned char *at;
    size_t bytes;
    unsigned char fill;
} modelled;

static uint64_t fuzz_random;
static size_t below(size_t n) {
    fuzz_random = fuzz_random * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(fuzz_random >> 33) % n;
}
static void model_check(const modelled *m) {
    size_t i;
    for (i = 0; i < m->bytes; i += 61) assert_int_equal(m->at[i], m->fill);
    if (m->bytes) assert_int_equal(m->at[m->bytes - 1], m->fill);
}
static void model_step(fixture *f, modelled *m, uint64_t *refused) {
    if (m->at) {
        model_check(m);
        give(f, m->at);
        m->at = NULL;
    } else {
        size_t bytes = 1 + below((size_t)1 << below(22)), align = (size_t)1 << below(14);
        void *block;
        pool_result r = pool_alloc(&f->pool, bytes, align, NULL, &block);
        assert_true(r == POOL_OK || r == POOL_E_FRACTION);
        *refused += r != POOL_OK;
        if (r) return;
        assert_int_equal((uintptr_t)block % align, 0);
        m->at = (unsigned char *)block;
        m->bytes = bytes;
        m->fill = (unsigned char)below(256);
        memset(block, m->fill, bytes);
    }
}

static void a_random_run_is_as_its_model(void **state) {
    fixture *f = (fixture *)*state;
    static modelled model[MODEL];
    const char *given = getenv("MEMLORD_TEST_SEED");
    uint64_t refused = 0, seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    int i, steps = getenv("MEMLORD_TEST_ALL") ? 300000 : 6000;
    printf("MEMLORD_TEST_SEED=%llu\n", (unsigned long long)seed);
    fuzz_random = seed;
    for (i = 0; i < steps; i++) {
        model_step(f, &model[below(MODEL)], &refused);
        if (i % 100 == 0) {
            if (below(2)) (void)memlord_gc_poll(f->lord, f->device);
            else (void)memlord_gc_run(f->lord, f->device, (int)below(MEMLORD_REASON_COUNT), 0, NULL);
            agree(f);
        }
    }
    for (i = 0; i < MODEL; i++)
        if (model[i].at) model_step(f, &model[i], &refused);
    assert_int_equal(memlord_allocated(f->lord, f->device), 0);
    agree(f);
}

#define POOL(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define WITH(name, how) cmocka_unit_test_setup_teardown(name, how, teardown)
int main(void) {
    const struct CMUnitTest tests[] = {
        POOL(a_freed_block_serves_the_next_request_of_its_size),
        POOL(blocks_are_aligned_as_asked),
        POOL(a_collection_merges_what_lies_side_by_side),
        POOL(a_collection_gives_idle_segments_back),
        POOL(a_band_on_idle_bytes_asks_for_a_trim),
        WITH(more_than_the_fraction_is_refused, setup_half),
        WITH(a_later_limit_changes_what_the_fraction_is, setup_half),
        WITH(more_than_the_cache_is_given_back_at_once, setup_cache),
        POOL(wrong_calls_change_nothing_and_are_counted),
        POOL(a_second_free_after_a_merge_is_still_told),
        POOL(a_pool_with_live_blocks_is_not_closed),
        POOL(wrong_descriptions_are_refused),
        WITH(without_defer_a_collection_inside_a_call_is_told, setup_inside),
        POOL(threads_free_each_others_blocks_and_the_totals_are_exact),
        WITH(a_random_run_is_as_its_model, setup_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
