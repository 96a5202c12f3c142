/* Pools the host runs itself: what it says of them, the two ratios, and how pressed a device
   is. */
#include "support.h"

#include <math.h>

#include "json.h"

static int near(double a, double b) { return fabs(a - b) < 1e-12; }

static memlord_stats numbers(uint64_t reserved, uint64_t allocated, uint64_t largest_free) {
    memlord_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.reserved = reserved;
    stats.allocated = allocated;
    stats.largest_free = largest_free;
    return stats;
}

/* -- reserved -- */

static void what_the_pool_holds_is_shown(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 40, NULL));
    assert_ok(memlord_pool_set(lord, cuda(0), 100, 30));
    s = stats_of(lord, cuda(0));
    assert_int_equal(s.reserved, 100);
    assert_int_equal(s.reserved_peak, 100);
    assert_int_equal(s.cached, 60);
    assert_int_equal(s.largest_free, 30);
    assert_int_equal(s.allocated, 40);
    assert_int_equal(stats_of(lord, cuda(1)).reserved, 0);
}

static void it_is_no_allocation(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_pool_set(lord, cuda(0), 100, 30));
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(memlord_peak(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).live_blocks, 0);
}

static void a_later_set_replaces_it_and_the_peak_stays(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_pool_set(lord, cuda(0), 100, 30));
    assert_ok(memlord_pool_set(lord, cuda(0), 70, 10));
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 70);
    assert_int_equal(stats_of(lord, cuda(0)).largest_free, 10);
    assert_int_equal(stats_of(lord, cuda(0)).reserved_peak, 100);
}

static void it_can_be_changed_by_a_difference(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_pool_add(lord, cuda(0), 100));
    assert_ok(memlord_pool_add(lord, cuda(0), 50));
    assert_ok(memlord_pool_add(lord, cuda(0), -150));
    assert_ok(memlord_pool_add(lord, cuda(0), 20));
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 20);
    assert_int_equal(stats_of(lord, cuda(0)).reserved_peak, 150);
}

static void a_difference_below_0_is_refused_unchanged(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_pool_add(lord, cuda(0), 100));
    assert_int_equal(memlord_pool_add(lord, cuda(0), -101), MEMLORD_E_INVALID);
    assert_int_equal(memlord_pool_add(lord, cuda(0), INT64_MIN), MEMLORD_E_INVALID);
    assert_int_equal(memlord_pool_add(lord, cuda(1), -1), MEMLORD_E_INVALID);
    assert_int_equal(memlord_pool_add(lord, cuda(-2), -1), MEMLORD_E_DEVICE);
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 100);
    assert_int_equal(stats_of(lord, cuda(1)).reserved, 0);
}

static void a_difference_that_is_too_much_is_refused_unchanged(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_pool_add(lord, cuda(0), 100));
    assert_int_equal(memlord_pool_add(lord, cuda(0), INT64_MAX), MEMLORD_E_INVALID);
    assert_int_equal(memlord_pool_add(lord, cuda(0), (int64_t)1 << 62), MEMLORD_E_INVALID);
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 100);
    assert_int_equal(stats_of(lord, cuda(0)).reserved_peak, 100);
}

static void cached_is_never_below_0(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 140, NULL));
    assert_ok(memlord_pool_set(lord, cuda(0), 100, 0));
    assert_int_equal(stats_of(lord, cuda(0)).cached, 0);
}

static void a_wide_selector_adds_them_up(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 40, NULL));
    assert_ok(memlord_alloc(lord, cuda(1), 0x2000, 50, NULL));
    assert_ok(memlord_pool_set(lord, cuda(0), 100, 30));
    assert_ok(memlord_pool_set(lord, cuda(1), 10, 0));
    assert_ok(memlord_pool_set(lord, cpu(), 7, UINT64_MAX));
    s = stats_of(lord, cuda(MEMLORD_ANY));
    assert_int_equal(s.reserved, 110);
    assert_int_equal(s.reserved_peak, 110);
    assert_int_equal(s.cached, 60);
    assert_true(memlord_fragmentation(&s) >= 0 && memlord_fragmentation(&s) <= 1);
    s = stats_of(lord, all());
    assert_int_equal(s.reserved, 117);
    assert_true(memlord_fragmentation(&s) == -1 ||
                (memlord_fragmentation(&s) >= 0 && memlord_fragmentation(&s) <= 1));
}

static void a_wide_largest_free_is_the_largest_known_one(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_pool_set(lord, cuda(0), 100, UINT64_MAX));
    assert_ok(memlord_pool_set(lord, cuda(1), 100, UINT64_MAX));
    assert_true(stats_of(lord, all()).largest_free == UINT64_MAX);
    assert_ok(memlord_pool_set(lord, cuda(2), 100, 30));
    assert_int_equal(stats_of(lord, all()).largest_free, 30);
    assert_ok(memlord_pool_set(lord, cuda(3), 100, 20));
    assert_int_equal(stats_of(lord, all()).largest_free, 30);
    assert_ok(memlord_pool_set(lord, cuda(4), 100, 40));
    assert_int_equal(stats_of(lord, all()).largest_free, 40);
    assert_ok(memlord_pool_set(lord, cuda(5), 100, UINT64_MAX));
    assert_int_equal(stats_of(lord, all()).largest_free, 40);
    assert_true(stats_of(lord, cuda(5)).largest_free == UINT64_MAX);
}

static void a_reset_keeps_the_level_and_drops_the_peak_to_it(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_pool_set(lord, cuda(0), 100, 30));
    assert_ok(memlord_pool_set(lord, cuda(0), 70, 10));
    assert_ok(memlord_pool_served(lord, cuda(0), 1, 0));
    memlord_reset(lord);
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 70);
    assert_int_equal(stats_of(lord, cuda(0)).largest_free, 10);
    assert_int_equal(stats_of(lord, cuda(0)).reserved_peak, 70);
    assert_int_equal(stats_of(lord, cuda(0)).cache_hits, 0);
}

static void what_is_not_known_is_no_number_in_a_report(void **state) {
    memlord *lord = test_lord(state);
    char *json, *text;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 40, NULL));
    assert_ok(memlord_pool_set(lord, cuda(0), 100, UINT64_MAX));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    assert_true(json_valid(json));
    assert_null(strstr(json, "18446744073709551615"));
    assert_null(strstr(text, "18446744073709551615"));
    assert_null(strstr(text, "16 EiB"));
    assert_null(strstr(text, "nan"));
    free(json);
    free(text);
}

static void hits_and_misses_are_counted(void **state) {
    memlord *lord = test_lord(state);
    int i;
    for (i = 0; i < 3; i++) assert_ok(memlord_pool_served(lord, cuda(0), 1, 1));
    assert_ok(memlord_pool_served(lord, cuda(0), 2, 0));
    assert_ok(memlord_pool_served(lord, cpu(), 0, 1));
    assert_int_equal(stats_of(lord, cuda(0)).cache_hits, 5);
    assert_int_equal(stats_of(lord, cuda(0)).cache_misses, 3);
    assert_int_equal(stats_of(lord, all()).cache_misses, 4);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void only_a_device_has_a_pool(void **state) {
    memlord *lord = test_lord(state);
    const memlord_device bad[] = {all(), cuda(MEMLORD_ANY), cuda(-2),
                                  memlord_device_make(MEMLORD_DEVICE_TYPE_COUNT, 0)};
    size_t i;
    for (i = 0; i < 4; i++) {
        assert_int_equal(memlord_pool_set(lord, bad[i], 1, 1), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_pool_add(lord, bad[i], 1), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_pool_served(lord, bad[i], 1, 0), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_pool_served(lord, bad[i], 0, 1), MEMLORD_E_DEVICE);
    }
    assert_int_equal(stats_of(lord, all()).reserved, 0);
}

static void a_null_ledger_takes_it_all(void **state) {
    (void)state;
    assert_ok(memlord_pool_set(NULL, cuda(0), 1, 1));
    assert_ok(memlord_pool_add(NULL, cuda(0), -1));
    assert_ok(memlord_pool_served(NULL, cuda(0), 1, 0));
    assert_ok(memlord_pool_served(NULL, cuda(0), 0, 1));
    assert_int_equal(memlord_pressure_level(NULL, cuda(0)), MEMLORD_PRESSURE_UNKNOWN);
}

/* -- the ratios -- */

static void the_cached_ratio_is_of_what_is_reserved(void **state) {
    memlord_stats s = numbers(100, 40, 0);
    (void)state;
    assert_true(near(memlord_cached_ratio(&s), 0.6));
    s = numbers(100, 0, 0);
    assert_true(near(memlord_cached_ratio(&s), 1));
    s = numbers(100, 100, 0);
    assert_true(near(memlord_cached_ratio(&s), 0));
}

static void the_cached_ratio_is_0_when_nothing_is_reserved(void **state) {
    memlord_stats s = numbers(0, 0, 0);
    (void)state;
    assert_true(near(memlord_cached_ratio(&s), 0));
    s = numbers(0, 50, 0);
    assert_true(near(memlord_cached_ratio(&s), 0));
    assert_true(memlord_cached_ratio(NULL) == 0);
    assert_true(memlord_fragmentation(NULL) == -1);
}

static void the_cached_ratio_is_never_below_0(void **state) {
    memlord_stats s = numbers(100, 140, 0);
    (void)state;
    assert_true(near(memlord_cached_ratio(&s), 0));
    s = numbers(1, UINT64_MAX, 0);
    assert_true(near(memlord_cached_ratio(&s), 0));
}

static void fragmentation_is_what_the_largest_piece_leaves(void **state) {
    memlord_stats s = numbers(100, 40, 30);
    (void)state;
    assert_true(near(memlord_fragmentation(&s), 0.5));
    s = numbers(100, 40, 60);
    assert_true(near(memlord_fragmentation(&s), 0));
    s = numbers(100, 40, 0);
    assert_true(near(memlord_fragmentation(&s), 1));
}

static void fragmentation_stays_within_0_and_1(void **state) {
    memlord_stats s = numbers(100, 40, 90);
    (void)state;
    assert_true(near(memlord_fragmentation(&s), 0));
    s = numbers(100, 140, 10);
    assert_true(near(memlord_fragmentation(&s), 0));
    s = numbers(100, 100, 0);
    assert_true(near(memlord_fragmentation(&s), 0));
}

static void fragmentation_is_minus_1_when_not_known(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s = numbers(100, 40, UINT64_MAX);
    assert_true(memlord_fragmentation(&s) == -1);
    assert_ok(memlord_pool_set(lord, cuda(0), 100, UINT64_MAX));
    assert_ok(memlord_pool_add(lord, cuda(1), 100)); /* never said */
    s = stats_of(lord, cuda(0));
    assert_true(memlord_fragmentation(&s) == -1);
    s = stats_of(lord, cuda(1));
    assert_true(memlord_fragmentation(&s) == -1);
}

/* -- the rates -- */

static memlord_stats counts(uint64_t hits, uint64_t misses, uint64_t recoveries, uint64_t allocs,
                            uint64_t failures) {
    memlord_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.cache_hits = hits;
    stats.cache_misses = misses;
    stats.recoveries = recoveries;
    stats.allocs = allocs;
    stats.oom_failures = failures;
    return stats;
}

static void rates_are_shares_of_what_was_counted(void **state) {
    memlord_stats s = counts(30, 10, 6, 98, 2);
    (void)state;
    assert_true(near(memlord_rate(&s, "hit_rate"), 0.75));
    assert_true(near(memlord_rate(&s, "recovery_rate"), 0.75));
    assert_true(near(memlord_rate(&s, "success_rate"), 0.98));
    s = counts(0, 10, 0, 0, 2);
    assert_true(near(memlord_rate(&s, "hit_rate"), 0));
    assert_true(near(memlord_rate(&s, "recovery_rate"), 0));
    assert_true(near(memlord_rate(&s, "success_rate"), 0));
    s = counts(1, 0, 1, 1, 0);
    assert_true(near(memlord_rate(&s, "hit_rate"), 1));
    assert_true(near(memlord_rate(&s, "recovery_rate"), 1));
    assert_true(near(memlord_rate(&s, "success_rate"), 1));
}

static void rates_of_the_largest_counts_stay_within_0_and_1(void **state) {
    memlord_stats s = counts(UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    (void)state;
    assert_true(near(memlord_rate(&s, "hit_rate"), 0.5));
    assert_true(near(memlord_rate(&s, "recovery_rate"), 0.5));
    assert_true(near(memlord_rate(&s, "success_rate"), 0.5));
}

static void the_mean_is_of_all_allocs(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 10, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 35, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    s = stats_of(lord, cuda(0));
    assert_true(near(memlord_rate(&s, "mean_bytes"), 22.5));
}

static void rates_of_nothing_are_minus_1(void **state) {
    memlord_stats s = counts(0, 0, 0, 0, 0);
    (void)state;
    assert_true(memlord_rate(&s, "hit_rate") == -1);
    assert_true(memlord_rate(&s, "recovery_rate") == -1);
    assert_true(memlord_rate(&s, "success_rate") == -1);
    assert_true(memlord_rate(&s, "mean_bytes") == -1);
    assert_true(memlord_rate(NULL, "hit_rate") == -1);
    assert_true(memlord_rate(NULL, "recovery_rate") == -1);
    assert_true(memlord_rate(NULL, "success_rate") == -1);
    assert_true(memlord_rate(NULL, "mean_bytes") == -1);
    assert_true(memlord_rate(&s, NULL) == -1);
    assert_true(memlord_rate(&s, "") == -1);
    assert_true(memlord_rate(&s, "hit_rates") == -1);
}

/* -- pressure -- */

static void pressure_is_unknown_without_limit_and_capacity(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_pressure_level(lord, cuda(0)), MEMLORD_PRESSURE_UNKNOWN);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1000, NULL));
    assert_ok(memlord_pool_set(lord, cuda(0), 100, 0));
    assert_int_equal(memlord_pressure_level(lord, cuda(0)), MEMLORD_PRESSURE_UNKNOWN);
    assert_int_equal(memlord_pressure_level(lord, memlord_device_make(99, 0)),
                     MEMLORD_PRESSURE_UNKNOWN);
}

/* `used` bytes of 1000 are live or used: the level then. */
static int level_by_limit(memlord *lord, uint64_t used) {
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, used, NULL));
    return memlord_pressure_level(lord, cuda(0));
}

static void pressure_follows_the_limit(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_limit_set(lord, cuda(0), 1000));
    assert_int_equal(level_by_limit(lord, 0), MEMLORD_PRESSURE_NORMAL);
    assert_int_equal(level_by_limit(lord, 799), MEMLORD_PRESSURE_NORMAL);
    assert_int_equal(level_by_limit(lord, 800), MEMLORD_PRESSURE_WARNING);
    assert_int_equal(level_by_limit(lord, 949), MEMLORD_PRESSURE_WARNING);
    assert_int_equal(level_by_limit(lord, 950), MEMLORD_PRESSURE_CRITICAL);
    assert_int_equal(level_by_limit(lord, 5000), MEMLORD_PRESSURE_CRITICAL);
    assert_int_equal(level_by_limit(lord, 10), MEMLORD_PRESSURE_NORMAL);
}

static int level_by_capacity(test_case *t, uint64_t used) {
    test_capacity(t, 1000, used);
    return memlord_pressure_level(t->lord, cuda(0));
}

static void pressure_follows_the_capacity(void **state) {
    test_case *t = (test_case *)*state;
    assert_int_equal(level_by_capacity(t, 0), MEMLORD_PRESSURE_NORMAL);
    assert_int_equal(level_by_capacity(t, 799), MEMLORD_PRESSURE_NORMAL);
    assert_int_equal(level_by_capacity(t, 800), MEMLORD_PRESSURE_WARNING);
    assert_int_equal(level_by_capacity(t, 949), MEMLORD_PRESSURE_WARNING);
    assert_int_equal(level_by_capacity(t, 950), MEMLORD_PRESSURE_CRITICAL);
    assert_int_equal(level_by_capacity(t, 1000), MEMLORD_PRESSURE_CRITICAL);
}

static void pressure_is_the_worse_of_the_two(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 100));
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 96, NULL));
    assert_int_equal(level_by_capacity(t, 96), MEMLORD_PRESSURE_CRITICAL);
    assert_ok(memlord_free(t->lord, cuda(0), 0x1000, NULL));
    assert_int_equal(level_by_capacity(t, 850), MEMLORD_PRESSURE_WARNING);
}

static void a_sample_that_failed_is_no_pressure(void **state) {
    test_case *t = (test_case *)*state;
    assert_int_equal(level_by_capacity(t, 990), MEMLORD_PRESSURE_CRITICAL);
    t->source.fail = 1;
    assert_int_equal(memlord_capacity_sample(t->lord, cuda(0)), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_pressure_level(t->lord, cuda(0)), MEMLORD_PRESSURE_UNKNOWN);
}

/* -- threads -- */

#define THREADS 4
#define ROUNDS 20000

static void *add_and_take(void *user) {
    memlord *lord = (memlord *)user;
    uint64_t bad = 0;
    int i;
    for (i = 0; i < ROUNDS; i++) {
        bad += memlord_pool_add(lord, memlord_device_cuda(0), 10) != MEMLORD_OK;
        bad += memlord_pool_served(lord, memlord_device_cuda(0), 1, 0) != MEMLORD_OK;
        bad += memlord_pool_served(lord, memlord_device_cuda(0), 0, 1) != MEMLORD_OK;
        bad += memlord_pool_add(lord, memlord_device_cuda(0), -9) != MEMLORD_OK;
    }
    return bad ? user : NULL;
}

static void threads_lose_no_difference_and_no_hit(void **state) {
    memlord *lord = test_lord(state);
    pthread_t threads[THREADS];
    memlord_stats s;
    int i;
    for (i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_and_take, lord), 0);
    for (i = 0; i < THREADS; i++) {
        void *bad = NULL;
        assert_int_equal(pthread_join(threads[i], &bad), 0);
        assert_null(bad);
    }
    s = stats_of(lord, cuda(0));
    assert_int_equal(s.reserved, THREADS * ROUNDS);
    assert_true(s.reserved_peak >= s.reserved && s.reserved_peak <= s.reserved + THREADS * 10);
    assert_int_equal(s.cache_hits, THREADS * ROUNDS);
    assert_int_equal(s.cache_misses, THREADS * ROUNDS);
}

/* -- bands on what a pool holds -- */

#define RESERVED MEMLORD_METRIC_RESERVED
#define CACHED MEMLORD_METRIC_CACHED
#define MIB ((uint64_t)1 << 20)

static memlord_device pool(int index) { return memlord_device_make(MEMLORD_DEVICE_OTHER, index); }

static void free_of(test_case *t, memlord_device device, uint64_t key) {
    assert_ok(memlord_free(t->lord, device, key, NULL));
}

static void a_band_on_reserved_fires_in_pool_set_and_pool_add(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, RESERVED, 100);
    assert_ok(memlord_pool_set(t->lord, cuda(0), 99, 0));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_pool_add(t->lord, cuda(0), 1));
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.metric, RESERVED);
    assert_int_equal(t->gc.last.value, 100);
    assert_non_null(strstr(t->log.text, "reserved 100 B >= 100 B"));
    assert_ok(memlord_pool_set(t->lord, cuda(0), 80, 0));
    assert_ok(memlord_pool_set(t->lord, cuda(0), 110, 0));
    assert_int_equal(t->gc.runs, 2);
}

/* Fires at exactly so many cached bytes: one byte a free, then one free less. */
static void assert_cached_fires_at(test_case *t, uint64_t cached) {
    uint64_t keys[3], reserved = stats_of(t->lord, cuda(0)).reserved;
    keys[0] = grow(t, cuda(0), reserved - cached);
    keys[1] = grow(t, cuda(0), cached - 1);
    keys[2] = grow(t, cuda(0), 1);
    t->gc.runs = 0;
    free_of(t, cuda(0), keys[1]);
    assert_int_equal(t->gc.runs, 0);
    free_of(t, cuda(0), keys[2]);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.metric, CACHED);
    assert_int_equal(t->gc.last.value, cached);
    assert_int_equal(t->gc.last.threshold, cached);
    free_of(t, cuda(0), keys[0]);
}

static void a_band_on_cached_fires_on_the_very_free(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, CACHED, 30);
    assert_ok(memlord_pool_set(t->lord, cuda(0), 100, 0));
    assert_cached_fires_at(t, 30);
    assert_ok(memlord_pool_set(t->lord, cuda(0), 64 * MIB, 0));
    test_threshold(t->lord, CACHED, 30 * MIB);
    assert_cached_fires_at(t, 30 * MIB);
}

static void its_percent_is_of_what_is_reserved(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band half = band_of(0, 101, CACHED, 0, 50);
    test_capacity(t, 1000 * MIB, 0);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 500 * MIB));
    assert_ok(memlord_strategy_set(t->lord, cuda(0), &half, 1));
    assert_ok(memlord_pool_set(t->lord, cuda(0), 64 * MIB, 0));
    assert_int_equal(t->gc.last.threshold, 32 * MIB); /* nothing is allocated: it fires */
    assert_cached_fires_at(t, 32 * MIB);
}

static void without_a_pool_no_band_on_cached_fires(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(0, 101, CACHED, 0, 1);
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    free_of(t, cuda(0), grow(t, cuda(0), 5 * MIB));
    assert_ok(memlord_pool_set(t->lord, cuda(0), 0, 0));
    assert_int_equal(t->gc.runs, 0);
}

static void a_pool_that_grows_fires_a_band_on_cached(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, CACHED, 10 * MIB);
    assert_ok(memlord_pool_set(t->lord, cuda(0), 64 * MIB, 0));
    assert_int_equal(t->gc.runs, 1);
    t->gc.runs = 0;
    grow(t, cuda(0), 64 * MIB);
    assert_ok(memlord_pool_add(t->lord, cuda(0), (int64_t)(10 * MIB) - 1));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_pool_add(t->lord, cuda(0), 1));
    assert_int_equal(t->gc.runs, 1);
}

static void a_band_on_cached_fires_again_after_an_eighth(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key;
    test_threshold(t->lord, CACHED, 800);
    grow(t, cuda(0), 200);
    key = grow(t, cuda(0), 99);
    assert_ok(memlord_pool_set(t->lord, cuda(0), 1000 + 99, 0));
    assert_int_equal(t->gc.runs, 1);
    free_of(t, cuda(0), key); /* 899: less than an eighth more */
    assert_int_equal(t->gc.runs, 1);
    assert_ok(memlord_pool_add(t->lord, cuda(0), 1));
    assert_int_equal(t->gc.runs, 2);
    key = grow(t, cuda(0), 201); /* 699: below by an eighth */
    free_of(t, cuda(0), key);
    assert_int_equal(t->gc.runs, 3);
}

static void a_band_of_one_pool_runs_no_trim_of_another(void **state) {
    test_case *t = (test_case *)*state;
    test_gc trims[2];
    memlord_band band = band_of(0, 101, CACHED, 0, 50);
    int i;
    memset(trims, 0, sizeof trims);
    for (i = 0; i < 2; i++) {
        trims[i].answer.ran = 1;
        assert_ok(memlord_gc_callback_add(t->lord, pool(i), 0, test_gc_run, &trims[i]));
        assert_ok(memlord_strategy_set(t->lord, pool(i), &band, 1));
        grow(t, pool(i), MIB);
        assert_ok(memlord_pool_set(t->lord, pool(i), MIB, 0));
    }
    assert_ok(memlord_pool_add(t->lord, pool(0), (int64_t)MIB));
    assert_int_equal(trims[0].runs, 1);
    assert_int_equal(trims[1].runs, 0);
    assert_int_equal(stats_of(t->lord, pool(1)).gc_runs, 0);
}

/* Another thread frees the blocks of a pool, and has to fire at so many cached bytes. */
typedef struct turns {
    test_case *t;
    memlord_device device;
    uint64_t first, blocks, due, late;
    test_gate *gate; /* passed at the end */
} turns;

static void *free_in_turns(void *user) {
    turns *u = (turns *)user;
    uint64_t i, runs = test_gc_runs(&u->t->gc);
    for (i = 0; i < u->blocks; i++) {
        u->late += memlord_free(u->t->lord, u->device, u->first + 64 * i, NULL) != MEMLORD_OK;
        u->late += test_gc_runs(&u->t->gc) - runs != ((i + 1) * 4096 >= u->due);
    }
    test_gate_pass(u->gate);
    return NULL;
}

static void frees_of_another_thread_fire_a_band_on_cached_in_time(void **state) {
    const uint64_t due[] = {MIB, 12 * 4096};
    uint64_t i, n;
    pthread_t threads[2];
    turns u, one;
    u.t = (test_case *)*state;
    for (n = 0; n < 40; n++) { /* whatever the threads hold back of the device */
        test_gate gate = TEST_GATE;
        u.device = cuda((int)n);
        u.gate = &gate;
        u.late = 0;
        one = u;
        one.blocks = 1; /* a thread's first free is not counted as its later ones */
        one.due = UINT64_MAX;
        one.first = grow(u.t, u.device, 4096);
        assert_int_equal(pthread_create(&threads[0], NULL, free_in_turns, &one), 0);
        assert_true(test_gate_came(&gate, 1));
        u.due = due[n % 2];
        u.blocks = u.due / 4096;
        u.first = u.t->key + 64;
        test_threshold(u.t->lord, CACHED, u.due);
        for (i = 0; i < 1000 + n / 2; i++) grow(u.t, u.device, 4096);
        assert_ok(memlord_pool_set(u.t->lord, u.device, i * 4096, 0));
        assert_int_equal(pthread_create(&threads[1], NULL, free_in_turns, &u), 0);
        assert_true(test_gate_came(&gate, 2));
        test_gate_open(&gate);
        for (i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(u.late + one.late, 0);
        assert_int_equal(u.t->gc.runs, n + 1);
        assert_ok(memlord_pool_set(u.t->lord, u.device, 0, 0)); /* the next threshold is for every pool */
    }
}

/* Threads that free the blocks of a pool at once, and one that grows the pool meanwhile: the last
   of them makes the cached bytes as many as the band asks for. */
enum { CROWD = 3, CROWD_BLOCKS = 40, CROWD_BLOCK = 4000 };

typedef struct crowd {
    test_case *t;
    uint64_t first, next, bad;
    pthread_barrier_t start;
} crowd;

static void *free_in_a_crowd(void *user) {
    crowd *c = (crowd *)user;
    uint64_t number = __atomic_fetch_add(&c->next, 1, __ATOMIC_RELAXED), i, bad = 0;
    uint64_t first = c->first + number * CROWD_BLOCKS * 64;
    pthread_barrier_wait(&c->start);
    for (i = 0; i < CROWD_BLOCKS; i++)
        bad += number == CROWD ? memlord_pool_add(c->t->lord, cuda(0), CROWD_BLOCK) != MEMLORD_OK
                               : memlord_free(c->t->lord, cuda(0), first + 64 * i, NULL) != 0;
    __atomic_fetch_add(&c->bad, bad, __ATOMIC_RELAXED);
    return NULL;
}

static void threads_that_free_and_grow_a_pool_at_once_are_not_late(void **state) {
    const uint64_t blocks = CROWD * CROWD_BLOCKS;
    pthread_t threads[CROWD + 1];
    crowd c;
    uint64_t round, i;
    memset(&c, 0, sizeof c);
    c.t = (test_case *)*state;
    assert_int_equal(pthread_barrier_init(&c.start, NULL, CROWD + 1), 0);
    for (round = 0; round < 50 * test_env("MEMLORD_TEST_SCALE", 4); round++) {
        c.first = c.t->key + 64;
        c.next = 0;
        for (i = 0; i < blocks; i++) grow(c.t, cuda(0), CROWD_BLOCK);
        grow(c.t, cuda(0), round % 200 * 1000); /* holds back something else each time */
        assert_ok(memlord_pool_set(c.t->lord, cuda(0), memlord_allocated(c.t->lord, cuda(0)), 0));
        test_threshold(c.t->lord, CACHED, (blocks + CROWD_BLOCKS) * CROWD_BLOCK);
        for (i = 0; i <= CROWD; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, free_in_a_crowd, &c), 0);
        for (i = 0; i <= CROWD; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(c.bad, 0);
        assert_int_equal(c.t->gc.runs, round + 1);
    }
    pthread_barrier_destroy(&c.start);
}

/* A source that says at each sample what the pool holds: 1000 bytes. */
static int ask_and_tell(void *user, memlord_device device, memlord_capacity *out) {
    test_case *t = (test_case *)user;
    out->total = 10000;
    if (memlord_pool_set(t->lord, device, 1000, 0) != MEMLORD_OK) t->source.fail++;
    t->source.calls += test_gc_runs(&t->gc);
    return 0;
}

static void nothing_runs_inside_a_capacity_source(void **state) {
    test_case *t = (test_case *)*state;
    t->source.fail = 0;
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, ask_and_tell, t));
    grow(t, cuda(0), 10);
    test_threshold(t->lord, RESERVED, 1000);
    assert_ok(memlord_capacity_sample(t->lord, cuda(0)));
    assert_int_equal(t->source.calls, 0);
    assert_int_equal(t->source.fail, 0);
    grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, 1);
}

static void under_defer_it_waits_for_a_poll(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, CACHED, 100);
    assert_ok(memlord_pool_set(t->lord, cuda(0), 100, 0));
    free_of(t, cuda(0), grow(t, cuda(0), 50));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_gc_poll(t->lord, cuda(0)));
    assert_int_equal(t->gc.runs, 1);
}

/* -- in reports -- */

static void reports_show_the_ratios(void **state) {
    memlord *lord = test_lord(state);
    char *text, *json;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 3000, NULL));
    assert_ok(memlord_pool_set(lord, cuda(0), 4000, 250));
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "pool, cuda:0: reserved 3.91 KiB"));
    assert_non_null(strstr(text, "25 %, fragmentation 75 %\n"));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(json, "\"cached_ratio\":0.250,\"fragmentation\":0.750"));
    free(text);
    free(json);
}

static void a_fragmentation_not_known_is_null(void **state) {
    memlord *lord = test_lord(state);
    char *text, *json;
    assert_ok(memlord_pool_set(lord, cuda(0), 4000, UINT64_MAX));
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "fragmentation unknown"));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(json, "\"cached_ratio\":1.000,\"fragmentation\":null"));
    free(text);
    free(json);
}

static void every_report_with_statistics_shows_the_rates(void **state) {
    memlord *lord = test_lord(state);
    char *text, *json, *metrics;
    int i;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 3000, NULL));
    for (i = 0; i < 4; i++)
        assert_ok(memlord_pool_served(lord, cuda(0), i < 3, i >= 3));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1000, NULL));
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "\npool, cuda:0: hit_rate 75 %: hits 3, misses 1\n"
                                 "rates, cuda:0: success_rate 100 %, 2.93 KiB an alloc\n"));
    assert_non_null(strstr(text, "\nrates, cpu: success_rate 100 %, 1000 B an alloc\n"));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_true(json_valid(json));
    assert_non_null(strstr(json, "\"hit_rate\":0.750000000,\"recovery_rate\":null,"
                                 "\"success_rate\":1.000000000,\"mean_bytes\":3000}"));
    assert_int_equal(json_u64(json, "devices[0].stats.mean_bytes"), 3000);
    assert_int_equal(json_u64(json, "devices[1].stats.mean_bytes"), 1000);
    assert_int_equal(json_u64(json, "total.mean_bytes"), 2000);
    metrics = report_of(lord, MEMLORD_FORMAT_PROMETHEUS);
    assert_non_null(strstr(metrics, "# TYPE memlord_hit_ratio gauge\n"
                                    "memlord_hit_ratio{device=\"cuda:0\"} 0.750000000\n"));
    assert_non_null(strstr(metrics, "\nmemlord_success_ratio{device=\"cpu\"} 1.000000000\n"));
    assert_non_null(strstr(metrics, "\nmemlord_mean_bytes{device=\"cpu\"} 1000\n"));
    assert_null(strstr(metrics, "memlord_hit_ratio{device=\"cpu\"}"));
    assert_null(strstr(metrics, "recovery_ratio"));
    free(text);
    free(json);
    free(metrics);
}

static void the_pools_line_has_what_the_hit_rate_is_of_and_refused_calls(void **state) {
    memlord *lord = test_lord(state);
    char *text;
    assert_ok(memlord_pool_set(lord, cuda(0), 4 << 10, 4 << 10));
    assert_ok(memlord_pool_served(lord, cuda(0), 1, 3));
    assert_int_equal(memlord_pool_add(lord, cuda(0), -5000), MEMLORD_E_INVALID);
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "pool, cuda:0: reserved 4 KiB (peak 4 KiB), cached 4 KiB or "
                                 "100 %, fragmentation 0 %, hit_rate 25 %: hits 1, misses 3, "
                                 "calls refused 1\n"));
    free(text);
}

static void a_rate_of_nothing_is_no_number_in_a_report(void **state) {
    memlord *lord = test_lord(state);
    char *text, *json, *metrics;
    assert_ok(memlord_arena_add(lord, cuda(0), 3000, NULL));
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    assert_null(strstr(text, "rates, "));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_true(json_valid(json));
    assert_non_null(strstr(json, "\"hit_rate\":null,\"recovery_rate\":null,"
                                 "\"success_rate\":null,\"mean_bytes\":null}"));
    metrics = report_of(lord, MEMLORD_FORMAT_PROMETHEUS);
    assert_null(strstr(metrics, "_rate"));
    assert_null(strstr(metrics, "mean_bytes"));
    free(text);
    free(json);
    free(metrics);
}

static void without_a_pool_none_is_shown(void **state) {
    memlord *lord = test_lord(state);
    char *text;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 3000, NULL));
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    assert_null(strstr(text, "pool, "));
    free(text);
}

static void sizes_are_of_what_lives_now(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    char *text, *json;
    for (i = 0; i < 40; i++) assert_ok(memlord_alloc(lord, cuda(0), 0x1000 + i, 64 + i, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 0, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x2001, TEST_MAX_BYTES, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 127, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2001, 128, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "sizes of live blocks, cuda:0: 1 from 0 B, 39 from 64 B, "
                                 "1 from 256 TiB\n"));
    assert_non_null(strstr(text, "sizes of live blocks, cpu: 1 from 64 B, 1 from 128 B\n"));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(json, "\"sizes\":[{\"from\":0,\"blocks\":1},{\"from\":64,\"blocks\":39},"
                                 "{\"from\":281474976710656,\"blocks\":1}]"));
    free(text);
    free(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_the_pool_holds_is_shown),
        TEST(it_is_no_allocation),
        TEST(a_later_set_replaces_it_and_the_peak_stays),
        TEST(it_can_be_changed_by_a_difference),
        TEST(a_difference_below_0_is_refused_unchanged),
        TEST(a_difference_that_is_too_much_is_refused_unchanged),
        TEST(cached_is_never_below_0),
        TEST(a_wide_selector_adds_them_up),
        TEST(a_wide_largest_free_is_the_largest_known_one),
        TEST(a_reset_keeps_the_level_and_drops_the_peak_to_it),
        TEST(what_is_not_known_is_no_number_in_a_report),
        TEST(hits_and_misses_are_counted),
        TEST(only_a_device_has_a_pool),
        TEST(a_null_ledger_takes_it_all),
        TEST(the_cached_ratio_is_of_what_is_reserved),
        TEST(the_cached_ratio_is_0_when_nothing_is_reserved),
        TEST(the_cached_ratio_is_never_below_0),
        TEST(fragmentation_is_what_the_largest_piece_leaves),
        TEST(fragmentation_stays_within_0_and_1),
        TEST(fragmentation_is_minus_1_when_not_known),
        TEST(rates_are_shares_of_what_was_counted),
        TEST(rates_of_the_largest_counts_stay_within_0_and_1),
        TEST(the_mean_is_of_all_allocs),
        TEST(rates_of_nothing_are_minus_1),
        TEST(pressure_is_unknown_without_limit_and_capacity),
        TEST(pressure_follows_the_limit),
        TEST_FAKES(pressure_follows_the_capacity),
        TEST_FAKES(pressure_is_the_worse_of_the_two),
        TEST_FAKES(a_sample_that_failed_is_no_pressure),
        TEST(threads_lose_no_difference_and_no_hit),
        TEST_FAKES(a_band_on_reserved_fires_in_pool_set_and_pool_add),
        TEST_FAKES(a_band_on_cached_fires_on_the_very_free),
        TEST_FAKES(its_percent_is_of_what_is_reserved),
        TEST_FAKES(without_a_pool_no_band_on_cached_fires),
        TEST_FAKES(a_pool_that_grows_fires_a_band_on_cached),
        TEST_FAKES(a_band_on_cached_fires_again_after_an_eighth),
        TEST_FAKES(a_band_of_one_pool_runs_no_trim_of_another),
        TEST_FAKES(frees_of_another_thread_fire_a_band_on_cached_in_time),
        TEST_FAKES(threads_that_free_and_grow_a_pool_at_once_are_not_late),
        TEST_FAKES(nothing_runs_inside_a_capacity_source),
        TEST_DEFER(under_defer_it_waits_for_a_poll),
        TEST(reports_show_the_ratios),
        TEST(a_fragmentation_not_known_is_null),
        TEST(every_report_with_statistics_shows_the_rates),
        TEST(the_pools_line_has_what_the_hit_rate_is_of_and_refused_calls),
        TEST(a_rate_of_nothing_is_no_number_in_a_report),
        TEST(without_a_pool_none_is_shown),
        TEST(sizes_are_of_what_lives_now),
    };
    return cmocka_run_group_tests_name("pools", tests, NULL, NULL);
}
