/* Bands: which one decides, what its threshold is, and that it fires on the very call. */
#include "support.h"

#include <math.h>

#define ALLOCATED MEMLORD_METRIC_ALLOCATED
#define FREED MEMLORD_METRIC_FREED
#define MAX MEMLORD_METRIC_MAX
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

static void shrink(test_case *t, memlord_device device, uint64_t key) {
    assert_ok(memlord_free(t->lord, device, key, NULL));
}

/* -- which band -- */

/* The band that decides at so many used of 1000, each with a threshold of 1 byte; -1: none. */
static int band_at(test_case *t, const memlord_band *bands, size_t n, uint64_t used) {
    uint64_t runs = t->gc.runs, key;
    assert_ok(memlord_strategy_set(t->lord, all(), NULL, 0));
    key = grow(t, cuda(0), 1);
    test_capacity(t, 1000, used);
    assert_ok(memlord_strategy_set(t->lord, all(), bands, n));
    grow(t, cuda(0), 0);
    shrink(t, cuda(0), key);
    return t->gc.runs == runs ? -1 : (int)t->gc.last.band;
}

static void bands_are_half_open(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band bands[2];
    bands[0] = band_of(10, 50, ALLOCATED, 1, 0);
    bands[1] = band_of(50, 75, ALLOCATED, 1, 0);
    assert_int_equal(band_at(t, bands, 2, 99), -1);
    assert_int_equal(band_at(t, bands, 2, 100), 0);
    assert_int_equal(band_at(t, bands, 2, 499), 0);
    assert_int_equal(band_at(t, bands, 2, 500), 1);
    assert_int_equal(band_at(t, bands, 2, 749), 1);
    assert_int_equal(band_at(t, bands, 2, 750), -1);
}

static void a_full_device_wants_a_band_beyond_100(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band to_100 = band_of(75, 100, ALLOCATED, 1, 0);
    memlord_band to_101 = band_of(75, 101, ALLOCATED, 1, 0);
    assert_int_equal(band_at(t, &to_100, 1, 999), 0);
    assert_int_equal(band_at(t, &to_100, 1, 1000), -1);
    assert_int_equal(band_at(t, &to_101, 1, 1000), 0);
}

static void the_first_band_that_matches_decides(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band bands[3];
    bands[0] = band_of(40, 60, ALLOCATED, 1, 0);
    bands[1] = band_of(0, 101, ALLOCATED, 1, 0);
    bands[2] = band_of(30, 70, ALLOCATED, 1, 0);
    assert_int_equal(band_at(t, bands, 3, 500), 0);
    assert_int_equal(band_at(t, bands, 3, 350), 1);
    assert_int_equal(band_at(t, bands, 3, 650), 1);
}

static void the_first_match_decides_even_if_a_later_one_would_fire(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band bands[2];
    bands[0] = band_of(0, 101, ALLOCATED, 1000, 0);
    bands[1] = band_of(0, 101, ALLOCATED, 1, 0);
    assert_int_equal(band_at(t, bands, 2, 500), -1);
}

static void only_a_band_that_covers_all_matches_the_unknown(void **state) {
    test_case *t = (test_case *)*state;
    const double part[][2] = {{0, 50}, {0, 99}, {1, 101}, {50, 101}};
    memlord_band bands[2];
    size_t i;
    for (i = 0; i < 4; i++) {
        bands[0] = band_of(part[i][0], part[i][1], ALLOCATED, 1, 0);
        assert_ok(memlord_strategy_set(t->lord, all(), bands, 1));
        shrink(t, cuda(0), grow(t, cuda(0), 1));
        assert_int_equal(t->gc.runs, 0);
    }
    bands[1] = band_of(0, 101, ALLOCATED, 1, 0);
    assert_ok(memlord_strategy_set(t->lord, all(), bands, 2));
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.band, 1);
}

static void a_failed_sample_makes_it_unknown_again(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(0, 50, ALLOCATED, 100, 0);
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    test_capacity(t, 1000, 0);
    grow(t, cuda(0), 99);
    t->source.fail = 1;
    assert_int_equal(memlord_capacity_sample(t->lord, cuda(0)), MEMLORD_E_UNKNOWN);
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 0);
    test_capacity(t, 1000, 0);
    grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, 1);
}

/* -- the threshold -- */

/* The band fires at exactly so many live bytes, not one less. */
static void assert_fires_at(test_case *t, memlord_band band, uint64_t threshold) {
    uint64_t runs = t->gc.runs, most, last;
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), 0);
    most = grow(t, cuda(0), threshold - 1);
    assert_int_equal(t->gc.runs, runs);
    last = grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, runs + 1);
    assert_int_equal(t->gc.last.threshold, threshold);
    assert_int_equal(t->gc.last.value, threshold);
    shrink(t, cuda(0), last);
    shrink(t, cuda(0), most);
}

static memlord_band combined(uint64_t bytes, double percent, memlord_combine combine) {
    memlord_band band = band_of(0, 101, ALLOCATED, bytes, percent);
    band.combine = combine;
    return band;
}

static void the_threshold_is_the_larger_of_bytes_and_percent(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 10000, 0);
    assert_fires_at(t, combined(2000, 30, MEMLORD_COMBINE_MAX), 3000);
    assert_fires_at(t, combined(4000, 30, MEMLORD_COMBINE_MAX), 4000);
}

static void or_the_smaller_with_combine_min(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 10000, 0);
    assert_fires_at(t, combined(2000, 30, MEMLORD_COMBINE_MIN), 2000);
    assert_fires_at(t, combined(4000, 30, MEMLORD_COMBINE_MIN), 3000);
}

static void a_part_of_0_is_absent(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 10000, 0);
    assert_fires_at(t, combined(2000, 0, MEMLORD_COMBINE_MIN), 2000);
    assert_fires_at(t, combined(0, 30, MEMLORD_COMBINE_MIN), 3000);
    assert_fires_at(t, combined(2000, 0, MEMLORD_COMBINE_MAX), 2000);
    assert_fires_at(t, combined(0, 30, MEMLORD_COMBINE_MAX), 3000);
}

static void the_percent_is_absent_while_the_capacity_is_unknown(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(0, 101, ALLOCATED, 0, 1);
    assert_fires_at(t, combined(2000, 99, MEMLORD_COMBINE_MAX), 2000);
    assert_fires_at(t, combined(2000, 1, MEMLORD_COMBINE_MIN), 2000);
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    grow(t, cuda(0), 1000 * MIB);
    assert_int_equal(t->gc.runs, 2);
}

static void a_percent_is_cut_to_whole_bytes(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1001, 0);
    assert_fires_at(t, combined(0, 33, MEMLORD_COMBINE_MAX), 330);
    assert_fires_at(t, combined(0, 50, MEMLORD_COMBINE_MAX), 500);
    assert_fires_at(t, combined(0, 99.95, MEMLORD_COMBINE_MAX), 1000);
}

static void whole_percents_of_whole_hundreds_are_exact(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t percent;
    test_capacity(t, 700, 0);
    for (percent = 1; percent <= 100; percent++)
        assert_fires_at(t, combined(0, (double)percent, MEMLORD_COMBINE_MAX), percent * 7);
    test_capacity(t, (uint64_t)100 << 40, 0);
    for (percent = 1; percent <= 100; percent++)
        assert_fires_at(t, combined(0, (double)percent, MEMLORD_COMBINE_MAX), percent << 40);
}

static void a_threshold_is_at_least_1(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 3, 0);
    assert_fires_at(t, combined(0, 10, MEMLORD_COMBINE_MAX), 1);
    assert_fires_at(t, combined(5, 0.001, MEMLORD_COMBINE_MIN), 1);
}

static void a_smaller_limit_is_the_capacity(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 10000, 0);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 4000));
    assert_fires_at(t, combined(0, 50, MEMLORD_COMBINE_MAX), 2000);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 20000));
    assert_fires_at(t, combined(0, 50, MEMLORD_COMBINE_MAX), 5000);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 0));
    assert_fires_at(t, combined(0, 50, MEMLORD_COMBINE_MAX), 5000);
}

static void a_limit_stands_in_for_an_unknown_capacity(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 4000));
    assert_fires_at(t, combined(0, 50, MEMLORD_COMBINE_MAX), 2000);
}

static void a_limit_does_not_change_the_used_percent(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band bands[2];
    bands[0] = band_of(0, 50, ALLOCATED, 1, 0);
    bands[1] = band_of(50, 101, ALLOCATED, 1, 0);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 10));
    assert_int_equal(band_at(t, bands, 2, 400), 0);
    assert_true(t->gc.last.used_percent == 40.0);
}

/* The band of README: 33 % of 24 GiB. */
static void a_third_of_24_gib_is_8504035246_bytes(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band third = band_of(0, 101, MAX, 0, 33);
    test_capacity(t, (uint64_t)24 << 30, 0);
    assert_fires_at(t, third, UINT64_C(8504035246));
}

/* -- used % of a limit -- */

static void the_used_percent_is_of_the_limit_where_only_that_is_known(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 4000));
    test_threshold(t->lord, ALLOCATED, 3000);
    grow(t, cuda(0), 3000);
    assert_int_equal(t->gc.runs, 1);
    assert_true(t->gc.last.used_percent == 75.0);
    assert_non_null(strstr(t->log.text, "used 75"));
    assert_null(strstr(t->log.text, "unknown"));
    assert_null(strstr(t->log.text, "nan"));
    test_capacity(t, 10000, 3500);
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_true(t->gc.last.used_percent == 35.0);
}

/* A limit or, if `known`, a capacity of `mib` MiB: live bytes enter the second band at half of it,
   on the very call. */
static void assert_fires_at_half(test_case *t, uint64_t mib, int known) {
    memlord_band bands[2];
    uint64_t runs = t->gc.runs, keys[2];
    bands[0] = band_of(0, 50, FREED, 0, 90);
    bands[1] = band_of(50, 101, ALLOCATED, 1, 0);
    if (known)
        test_capacity(t, mib * MIB, 0);
    else
        assert_ok(memlord_limit_set(t->lord, cuda(0), mib * MIB));
    assert_ok(memlord_strategy_set(t->lord, all(), bands, 2));
    keys[0] = grow(t, cuda(0), mib * MIB / 2 - 1);
    grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, runs);
    keys[1] = grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, runs + 1);
    assert_int_equal(t->gc.last.band, 1);
    assert_true(t->gc.last.used_percent == 50.0);
    shrink(t, cuda(0), keys[1]);
    shrink(t, cuda(0), keys[0]);
}

static void live_bytes_that_enter_another_band_of_a_limit_fire_it(void **state) {
    test_case *t = (test_case *)*state;
    assert_fires_at_half(t, 1, 0);
    assert_fires_at_half(t, 1000, 0);
}

static void live_bytes_since_the_sample_fire_another_band_of_a_capacity(void **state) {
    test_case *t = (test_case *)*state;
    assert_fires_at_half(t, 1, 1);
    assert_fires_at_half(t, 1000, 1);
    assert_fires_at_half(t, (uint64_t)1 << 20, 1);
}

/* The other device has no callback, so its bands are none; those of cuda:0 are in force. */
static void bytes_of_a_device_that_shares_the_memory_count_too(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_device metal = memlord_device_make(MEMLORD_DEVICE_METAL, 0);
    const memlord_band band = band_of(50, 101, FREED, 1, 0);
    uint64_t bytes;
    shrink(t, cuda(0), grow(t, cuda(0), 1));
    assert_ok(memlord_device_share(t->lord, metal, cuda(0)));
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    test_capacity(t, 1024 * MIB, 32);
    for (bytes = 0; bytes < 512 * MIB; bytes += MIB / 4) {
        assert_int_equal(t->gc.runs, 0);
        grow(t, bytes % 3 ? metal : cuda(0), MIB / 4);
    }
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.device.type, MEMLORD_DEVICE_CUDA);
    assert_true(t->gc.last.used_percent > 50 && t->gc.last.used_percent < 50.001);
    test_capacity(t, 4096 * MIB, 600 * MIB);
    shrink(t, cuda(0), grow(t, cuda(0), 1));
    assert_int_equal(t->gc.runs, 1);
    assert_ok(memlord_pool_set(t->lord, metal, 3000 * MIB, 0));
    assert_int_equal(t->gc.runs, 2);
}

static void so_do_frees_that_fall_back_into_a_band(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band bands[2];
    uint64_t key;
    bands[0] = band_of(0, 50, FREED, 1, 0);
    bands[1] = band_of(50, 101, ALLOCATED, 0, 99);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1000 * MIB));
    assert_ok(memlord_strategy_set(t->lord, all(), bands, 2));
    grow(t, cuda(0), 400 * MIB);
    key = grow(t, cuda(0), 200 * MIB);
    assert_int_equal(t->gc.runs, 0);
    shrink(t, cuda(0), key);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.band, 0);
    assert_true(t->gc.last.used_percent == 40.0);
}

static void the_threshold_follows_the_capacity(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(0, 101, ALLOCATED, 0, 50);
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    test_capacity(t, 10000, 0);
    grow(t, cuda(0), 3000);
    assert_int_equal(t->gc.runs, 0);
    test_capacity(t, 6000, 0);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.threshold, 3000);
}

/* -- the metric -- */

static void allocated_is_what_lives(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key;
    test_threshold(t->lord, ALLOCATED, 1000);
    key = grow(t, cuda(0), 600);
    shrink(t, cuda(0), key);
    grow(t, cuda(0), 999);
    assert_int_equal(t->gc.runs, 0);
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.metric, ALLOCATED);
}

static void freed_is_what_went_since_the_last_run(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t keys[4];
    test_threshold(t->lord, FREED, 1000);
    keys[0] = grow(t, cuda(0), 5000);
    keys[1] = grow(t, cuda(0), 999);
    keys[2] = grow(t, cuda(0), 1);
    shrink(t, cuda(0), keys[1]);
    assert_int_equal(t->gc.runs, 0);
    shrink(t, cuda(0), keys[2]);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.metric, FREED);
    assert_int_equal(t->gc.last.value, 1000);
    keys[3] = grow(t, cuda(0), 999);
    shrink(t, cuda(0), keys[3]);
    assert_int_equal(t->gc.runs, 1);
    shrink(t, cuda(0), keys[0]);
    assert_int_equal(t->gc.runs, 2);
    assert_int_equal(t->gc.last.value, 5999);
}

static void max_is_the_larger_of_the_two(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key;
    int i;
    test_threshold(t->lord, MAX, 1000);
    for (i = 0; i < 3; i++) {
        key = grow(t, cuda(0), 333);
        shrink(t, cuda(0), key);
    }
    assert_int_equal(t->gc.runs, 0);
    shrink(t, cuda(0), grow(t, cuda(0), 1));
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.metric, MAX);
    assert_int_equal(t->gc.last.value, 1000);
    grow(t, cuda(0), 1000);
    assert_int_equal(t->gc.runs, 2);
    assert_int_equal(t->gc.last.value, 1000);
}

/* -- on the very call -- */

#define PLACE 0x900000 /* keys that grow does not use */

/* A threshold of 1000, 900 live. */
static uint64_t almost(test_case *t) {
    uint64_t key;
    test_threshold(t->lord, ALLOCATED, 1000);
    key = grow(t, cuda(0), 900);
    assert_int_equal(t->gc.runs, 0);
    return key;
}

static void an_alloc_fires(void **state) {
    test_case *t = (test_case *)*state;
    almost(t);
    grow(t, cuda(0), 100);
    assert_int_equal(t->gc.runs, 1);
}

static void an_alloc_n_fires(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block blocks[4];
    uint64_t i;
    almost(t);
    for (i = 0; i < 4; i++) {
        blocks[i].device = cuda(i == 2 ? 1 : 0);
        blocks[i].storage = PLACE + i;
        blocks[i].bytes = i == 3 ? 40 : 30;
    }
    assert_ok(memlord_alloc_n(t->lord, blocks, 3, NULL));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_alloc_n(t->lord, blocks + 3, 1, NULL));
    assert_int_equal(t->gc.runs, 1);
}

static void an_alloc_n_fires_for_each_device_it_touches(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block blocks[3];
    uint64_t i;
    test_threshold(t->lord, ALLOCATED, 1000);
    for (i = 0; i < 3; i++) {
        blocks[i].device = cuda((int)i);
        blocks[i].storage = PLACE + i;
        blocks[i].bytes = i == 1 ? 999 : 1000;
    }
    assert_ok(memlord_alloc_n(t->lord, blocks, 3, NULL));
    assert_int_equal(t->gc.runs, 2);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 1);
    assert_int_equal(stats_of(t->lord, cuda(1)).gc_runs, 0);
    assert_int_equal(stats_of(t->lord, cuda(2)).gc_runs, 1);
}

static void a_track_fires(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block block;
    uint64_t key = almost(t);
    assert_ok(memlord_track(t->lord, cuda(0), key, 900, NULL)); /* a view: no bytes */
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_track(t->lord, cuda(0), PLACE, 100, NULL));
    assert_int_equal(t->gc.runs, 1);
    block.device = cuda(1);
    block.storage = PLACE + 1;
    block.bytes = 1000;
    assert_ok(memlord_track_n(t->lord, &block, 1, NULL));
    assert_int_equal(t->gc.runs, 2);
}

static void a_realloc_that_grows_fires(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = almost(t);
    assert_ok(memlord_realloc(t->lord, cuda(0), key, key, 999, NULL));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_realloc(t->lord, cuda(0), key, PLACE, 1000, NULL));
    assert_int_equal(t->gc.runs, 1);
}

static void a_realloc_in_two_steps_fires_at_its_end(void **state) {
    test_case *t = (test_case *)*state;
    memlord_realloc_token token;
    uint64_t key = almost(t);
    assert_ok(memlord_realloc_begin(t->lord, cuda(0), key, &token));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_realloc_end(t->lord, &token, PLACE, 1000, NULL));
    assert_int_equal(t->gc.runs, 1);
}

static void a_move_fires_where_it_arrives(void **state) {
    test_case *t = (test_case *)*state;
    almost(t);
    assert_ok(memlord_alloc(t->lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_move(t->lord, cpu(), 0x1000, cuda(0), PLACE, 100, NULL, NULL));
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.device.index, 0);
}

static void an_arena_add_fires(void **state) {
    test_case *t = (test_case *)*state;
    almost(t);
    assert_ok(memlord_arena_add(t->lord, cuda(0), 99, NULL));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_arena_add(t->lord, cuda(0), 1, NULL));
    assert_int_equal(t->gc.runs, 1);
}

/* A threshold of 1000 freed, 900 freed; answers the key of a live block of 100. */
static uint64_t almost_freed(test_case *t) {
    uint64_t key;
    test_threshold(t->lord, FREED, 1000);
    key = grow(t, cuda(0), 100);
    shrink(t, cuda(0), grow(t, cuda(0), 900));
    assert_int_equal(t->gc.runs, 0);
    return key;
}

static void a_free_fires(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = almost_freed(t);
    shrink(t, cuda(5), key); /* a free's index is ignored: cuda:0 it is */
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.device.index, 0);
}

static void a_free_n_fires(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block block;
    block.device = cuda(0);
    block.storage = almost_freed(t);
    block.bytes = 0;
    assert_ok(memlord_free_n(t->lord, &block, 1, NULL));
    assert_int_equal(t->gc.runs, 1);
}

static void the_last_release_fires(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block block;
    block.device = cuda(0);
    block.storage = almost_freed(t);
    block.bytes = 0;
    assert_ok(memlord_retain(t->lord, cuda(0), block.storage, NULL));
    assert_ok(memlord_release(t->lord, cuda(0), block.storage, NULL));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_release_n(t->lord, &block, 1, NULL));
    assert_int_equal(t->gc.runs, 1);
}

static void a_realloc_that_shrinks_fires(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = almost_freed(t);
    assert_ok(memlord_realloc(t->lord, cuda(0), key, key, 1, NULL));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_realloc(t->lord, cuda(0), key, key, 0, NULL));
    assert_int_equal(t->gc.runs, 1);
}

static void a_move_fires_where_it_left(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = almost_freed(t);
    assert_ok(memlord_move(t->lord, cuda(0), key, cpu(), 0x1000, 100, NULL, NULL));
    assert_int_equal(t->gc.runs, 1);
}

static void an_arena_sub_fires(void **state) {
    test_case *t = (test_case *)*state;
    almost_freed(t);
    assert_ok(memlord_arena_add(t->lord, cuda(0), 100, NULL));
    assert_ok(memlord_arena_sub(t->lord, cuda(0), 99, NULL));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_arena_sub(t->lord, cuda(0), 1, NULL));
    assert_int_equal(t->gc.runs, 1);
}

static void an_alloc_over_a_live_block_fires_as_a_free(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = almost_freed(t);
    assert_ok(memlord_alloc(t->lord, cuda(0), key, 1, NULL));
    assert_int_equal(t->gc.runs, 1);
}

static int done_if_set(void *user) { return *(int *)user; }

static void a_retire_fires(void **state) {
    test_case *t = (test_case *)*state;
    memlord_fence fence;
    int done = 0;
    uint64_t key = almost_freed(t);
    memset(&fence, 0, sizeof fence);
    fence.done = done_if_set;
    fence.user = &done;
    assert_ok(memlord_free_deferred(t->lord, cuda(0), key, fence, NULL));
    assert_int_equal(t->gc.runs, 0);
    done = 1;
    assert_int_equal(memlord_retire(t->lord, cuda(0)), 100);
    assert_int_equal(t->gc.runs, 1);
}

/* 900 freed and 100 that wait for `done`; the threshold is 1000. */
static void almost_freed_but_pending(test_case *t, int *done) {
    memlord_fence fence;
    uint64_t key = almost_freed(t);
    memset(&fence, 0, sizeof fence);
    fence.done = done_if_set;
    fence.user = done;
    *done = 0;
    assert_ok(memlord_free_deferred(t->lord, cuda(0), key, fence, NULL));
}

static void an_alloc_that_retires_fires(void **state) {
    test_case *t = (test_case *)*state;
    int done, i;
    almost_freed_but_pending(t, &done);
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 0);
    done = 1;
    for (i = 0; i < 256 && !t->gc.runs; i++) grow(t, cuda(0), 1); /* it may be left alone so long */
    assert_int_equal(t->gc.runs, 1);
}

static void a_poll_that_retires_fires(void **state) {
    test_case *t = (test_case *)*state;
    int done;
    almost_freed_but_pending(t, &done);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(t->gc.runs, 0);
    done = 1;
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.value, 1000);
}

static void a_call_that_fails_fires_nothing(void **state) {
    test_case *t = (test_case *)*state;
    almost(t);
    assert_int_equal(memlord_alloc(t->lord, cuda(0), 0, 1000, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_alloc(t->lord, cuda(0), PLACE, TEST_MAX_BYTES + 1, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_free(t->lord, cuda(0), PLACE, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(t->gc.runs, 0);
}

/* -- never a call late, however little each call adds -- */

static int setup_fakes_sites(void **state) {
    return test_open_fakes(state, MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_SITES);
}
#define TEST_FAKES_SITES(name)                                                                \
    cmocka_unit_test_setup_teardown(name, setup_fakes_sites, test_teardown)

/* Blocks of one size, up to a threshold of live bytes and then to one of freed ones. */
static void cross_with_blocks_of(test_case *t, uint64_t bytes, uint64_t threshold) {
    uint64_t runs = t->gc.runs, live = 0, freed, first = t->key + 64, key;
    test_threshold(t->lord, ALLOCATED, threshold);
    while (live < threshold) {
        if (t->gc.runs != runs) fail_msg("fired at %d live bytes", (int)live);
        grow(t, cuda(0), bytes);
        live += bytes;
    }
    assert_int_equal(t->gc.runs, runs + 1);
    assert_int_equal(t->gc.last.value, live);
    test_threshold(t->lord, FREED, threshold);
    for (freed = 0, key = first; freed < threshold; key += 64, freed += bytes) {
        if (t->gc.runs != runs + 1) fail_msg("fired at %d freed bytes", (int)freed);
        shrink(t, cuda(0), key);
    }
    assert_int_equal(t->gc.runs, runs + 2);
    assert_int_equal(t->gc.last.value, freed);
}

static void one_thread_is_never_a_call_late(void **state) {
    test_case *t = (test_case *)*state;
    cross_with_blocks_of(t, 1, 3000);
    cross_with_blocks_of(t, 100, 200003);
    cross_with_blocks_of(t, 1024, 1 * MIB);
    cross_with_blocks_of(t, 4097, 16 * MIB + 1);
    cross_with_blocks_of(t, 3 * MIB, 1024 * MIB);
}

/* Several threads, one call at a time, so that what is live is known at each. */
typedef struct relay {
    test_case *t;
    pthread_mutex_t lock;
    pthread_barrier_t start;
    memlord_metric metric;
    uint64_t live, freed, threshold, late, early, next_key;
    int crossed;
} relay;

static void relay_call(relay *r, uint64_t *seed, uint64_t *key, uint64_t *bytes) {
    uint64_t metric;
    if (*key) {
        r->freed += *bytes;
        r->live -= *bytes;
        memlord_free(r->t->lord, memlord_device_cuda(0), *key, NULL);
        *key = 0;
    } else {
        *bytes = test_random(seed) % 2000;
        *key = r->next_key += 64;
        r->live += *bytes;
        memlord_alloc(r->t->lord, memlord_device_cuda(0), *key, *bytes, NULL);
    }
    metric = r->metric == FREED ? r->freed : r->live;
    r->crossed = metric >= r->threshold;
    r->late += r->crossed && test_gc_runs(&r->t->gc) != 1;
    r->early += !r->crossed && test_gc_runs(&r->t->gc) != 0;
}

static void *relay_run(void *user) {
    relay *r = (relay *)user;
    uint64_t seed, key = 0, bytes = 0;
    int crossed;
    pthread_barrier_wait(&r->start);
    pthread_mutex_lock(&r->lock);
    seed = r->next_key++;
    pthread_mutex_unlock(&r->lock);
    do {
        if (r->metric == ALLOCATED) key = 0;
        pthread_mutex_lock(&r->lock);
        if (!r->crossed) relay_call(r, &seed, &key, &bytes);
        crossed = r->crossed;
        pthread_mutex_unlock(&r->lock);
    } while (!crossed);
    return NULL;
}

static void cross_with_threads(test_case *t, memlord_metric metric, unsigned n,
                               uint64_t threshold, int edge) {
    pthread_t threads[8];
    relay r;
    unsigned i;
    memset(&r, 0, sizeof r);
    r.t = t;
    r.metric = metric;
    r.threshold = threshold;
    r.next_key = (uint64_t)1 << 32;
    pthread_mutex_init(&r.lock, NULL);
    assert_int_equal(pthread_barrier_init(&r.start, NULL, n), 0);
    test_threshold(t->lord, metric, threshold);
    if (edge) { /* the threshold is 1, and the band begins at so many bytes in use */
        const memlord_band band = band_of(50, 101, metric, 1, 0);
        test_capacity(t, 2 * threshold, 0);
        assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    }
    for (i = 0; i < n; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, relay_run, &r), 0);
    for (i = 0; i < n; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&r.start);
    pthread_mutex_destroy(&r.lock);
    assert_int_equal(r.early, 0);
    assert_int_equal(r.late, 0);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.value, metric == FREED ? r.freed : r.live);
}

static void several_threads_are_never_a_call_late(void **state) {
    cross_with_threads((test_case *)*state, ALLOCATED, 8, 4 * MIB, 0);
}

static void nor_two_threads_close_to_the_threshold(void **state) {
    cross_with_threads((test_case *)*state, ALLOCATED, 2, 10007, 0);
}

static void nor_at_the_edge_of_a_band(void **state) {
    cross_with_threads((test_case *)*state, ALLOCATED, 8, 4 * MIB, 1);
}

static void nor_are_their_frees(void **state) {
    cross_with_threads((test_case *)*state, FREED, 8, 4 * MIB, 0);
}

/* Blocks of a table that is small, then of one that is large: each takes a way of its own. */
static void nor_is_one_block_freed_again_and_again(void **state) {
    enum { BLOCKS = 5000, TRIED = 5, BYTES = 4000 };
    test_case *t = (test_case *)*state;
    const uint64_t threshold = 32 * MIB, heap = (uint64_t)1 << 40;
    uint64_t blocks, made = 0, i, freed, runs;
    for (blocks = TRIED; blocks <= BLOCKS; blocks += BLOCKS - TRIED) {
        for (; made < blocks; made++)
            assert_ok(memlord_alloc(t->lord, cuda(0), heap + made * 48, BYTES, NULL));
        for (i = 0; i < TRIED; i++) {
            test_threshold(t->lord, FREED, threshold);
            runs = t->gc.runs;
            for (freed = 0; freed < threshold; freed += BYTES) {
                if (t->gc.runs != runs) fail_msg("fired at %d freed bytes", (int)freed);
                memlord_free(t->lord, cuda(0), heap + i * 48, NULL);
                memlord_alloc(t->lord, cuda(0), heap + i * 48, BYTES, NULL);
            }
            assert_int_equal(t->gc.runs, runs + 1);
            assert_int_equal(t->gc.last.value, freed);
        }
    }
}

/* Threads that come one after another, and stay or go. */
typedef struct guest {
    relay *relay;
    test_gate *gate; /* stays until it opens, if set */
    test_gate done;  /* its work is */
    uint64_t calls, seed;
} guest;

static void *guest_run(void *user) {
    guest *g = (guest *)user;
    uint64_t i, key, bytes;
    for (i = 0; i < g->calls && !g->relay->crossed; i++) {
        key = 0;
        relay_call(g->relay, &g->seed, &key, &bytes);
    }
    test_gate_pass(&g->done);
    if (g->gate) test_gate_pass(g->gate);
    return NULL;
}

/* The first thread makes so many calls, and each later one `more` than the one before. */
static void cross_with_guests(test_case *t, uint64_t threshold, uint64_t calls, uint64_t more) {
    enum { GUESTS = 48 };
    static guest guests[GUESTS];
    const test_gate shut = TEST_GATE;
    test_gate stay = TEST_GATE;
    pthread_t threads[GUESTS];
    relay r;
    int i, n;
    memset(&r, 0, sizeof r);
    r.t = t;
    r.metric = ALLOCATED;
    r.threshold = threshold;
    r.next_key = (uint64_t)1 << 32;
    test_threshold(t->lord, ALLOCATED, r.threshold);
    for (n = 0; n < GUESTS && !r.crossed; n++) {
        guest *g = &guests[n];
        memset(g, 0, sizeof *g);
        g->relay = &r;
        g->gate = n % 3 ? &stay : NULL;
        g->done = shut;
        g->done.open = 1;
        g->calls = calls + (uint64_t)n * more;
        g->seed = (uint64_t)n;
        assert_int_equal(pthread_create(&threads[n], NULL, guest_run, g), 0);
        assert_true(test_gate_came(&g->done, 1));
    }
    test_gate_open(&stay);
    for (i = 0; i < n; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(r.crossed);
    assert_int_equal(r.early, 0);
    assert_int_equal(r.late, 0);
    assert_int_equal(t->gc.last.value, r.live);
}
static void nor_when_threads_come_and_go(void **state) {
    cross_with_guests((test_case *)*state, 3 * MIB, 50, 3); /* some 64 KiB and more, then each
                                                               holds back */
}
static void nor_if_each_holds_back_all_its_bytes(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 64 * MIB, NULL)); /* far below a peak */
    assert_ok(memlord_free(t->lord, cuda(0), 0x1000, NULL));
    cross_with_guests(t, MIB / 2, 40, 0);
}

/* -- what other threads hold back counts from the moment the threshold comes closer -- */

typedef struct hoard {
    test_case *t;
    test_gate gate;
    uint64_t first, n, bytes;
} hoard;

/* Stays alive until the gate opens, so that nothing is flushed by its end. */
static void *hoard_run(void *user) {
    hoard *h = (hoard *)user;
    uint64_t i;
    for (i = 0; i < h->n; i++)
        memlord_alloc(h->t->lord, memlord_device_cuda(0), h->first + i * 64, h->bytes, NULL);
    test_gate_pass(&h->gate);
    return NULL;
}

static void hoard_then(test_case *t, void (*lower)(test_case *t)) {
    hoard h = {NULL, TEST_GATE, (uint64_t)1 << 32, 60, KIB};
    pthread_t thread;
    int i;
    h.t = t;
    assert_int_equal(pthread_create(&thread, NULL, hoard_run, &h), 0);
    assert_true(test_gate_came(&h.gate, 1));
    assert_int_equal(t->gc.runs, 0);
    lower(t); /* to 100 KiB */
    for (i = 0; i < 40; i++) {
        assert_int_equal(t->gc.runs, 0);
        grow(t, cuda(0), KIB);
    }
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.value, 100 * KIB);
    test_gate_open(&h.gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void lower_by_strategy(test_case *t) { test_threshold(t->lord, ALLOCATED, 100 * KIB); }
static void lower_by_sample(test_case *t) { test_capacity(t, 200 * KIB, 0); }
static void lower_by_limit(test_case *t) {
    assert_ok(memlord_limit_set(t->lord, cuda(0), 200 * KIB));
}
static void lower_by_callback(test_case *t) {
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, test_gc_run, &t->gc));
}

static void a_new_strategy_counts_what_threads_hold_back(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, ALLOCATED, 1024 * MIB);
    hoard_then(t, lower_by_strategy);
}

static void a_strategy_switched_on_counts_what_threads_hold_back(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_strategy_set(t->lord, all(), NULL, 0));
    hoard_then(t, lower_by_strategy);
}

static void a_new_sample_counts_what_threads_hold_back(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(0, 101, ALLOCATED, 0, 50);
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    test_capacity(t, 1024 * MIB, 0);
    hoard_then(t, lower_by_sample);
}

static void a_new_limit_counts_what_threads_hold_back(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(0, 101, ALLOCATED, 0, 50);
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    test_capacity(t, 1024 * MIB, 0);
    hoard_then(t, lower_by_limit);
}

static void a_callback_added_counts_what_threads_hold_back(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    test_threshold(t->lord, ALLOCATED, 100 * KIB);
    hoard_then(t, lower_by_callback);
}

/* Frees so much in blocks of 1 KiB; what fires, fires by the call. */
static void free_in_pieces(test_case *t, uint64_t bytes) {
    uint64_t i;
    for (i = 0; i < bytes; i += KIB) shrink(t, cuda(0), grow(t, cuda(0), KIB));
}

static void what_was_freed_before_a_sample_counts_after_it(void **state) {
    test_case *t = (test_case *)*state; /* the default: 10 % freed from 75 % on */
    free_in_pieces(t, 1 * MIB);
    test_capacity(t, 100 * MIB, 80 * MIB);
    free_in_pieces(t, 9 * MIB - KIB);
    assert_int_equal(t->gc.runs, 0);
    free_in_pieces(t, KIB);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.value, 10 * MIB);
}

static void what_was_freed_before_a_limit_counts_after_it(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(0, 101, FREED, 0, 10);
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    free_in_pieces(t, 1 * MIB);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 100 * MIB));
    free_in_pieces(t, 9 * MIB - KIB);
    assert_int_equal(t->gc.runs, 0);
    free_in_pieces(t, KIB);
    assert_int_equal(t->gc.runs, 1);
}

static void what_was_freed_before_sharing_counts_after_it(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(0, 101, FREED, 0, 10);
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    assert_ok(memlord_limit_set(t->lord, cpu(), 100 * MIB));
    free_in_pieces(t, 1 * MIB);
    assert_ok(memlord_device_share(t->lord, cuda(0), cpu()));
    free_in_pieces(t, 9 * MIB - KIB);
    assert_int_equal(t->gc.runs, 0);
    free_in_pieces(t, KIB);
    assert_int_equal(t->gc.runs, 1);
}

/* -- devices -- */

/* A key that lives on cuda:1, where 900 of 1000 are freed. */
static uint64_t almost_freed_elsewhere(test_case *t) {
    uint64_t key;
    test_threshold(t->lord, FREED, 1000);
    key = grow(t, cuda(1), 100);
    shrink(t, cuda(1), grow(t, cuda(1), 900));
    return key;
}

static void assert_fired_on_1(test_case *t) {
    assert_int_equal(memlord_allocated(t->lord, cuda(1)), 0);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.device.index, 1);
}

static void a_move_that_names_another_index_fires_where_the_block_was(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = almost_freed_elsewhere(t);
    assert_ok(memlord_move(t->lord, cuda(0), key, cpu(), PLACE, 100, NULL, NULL));
    assert_fired_on_1(t);
}

static void an_alloc_over_a_block_elsewhere_fires_where_that_was(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = almost_freed_elsewhere(t);
    assert_ok(memlord_alloc(t->lord, cuda(0), key, 1, NULL));
    assert_fired_on_1(t);
}

static void a_realloc_that_goes_elsewhere_fires_where_the_block_was(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = almost_freed_elsewhere(t);
    assert_ok(memlord_realloc(t->lord, cuda(0), key, key, 0, NULL));
    assert_fired_on_1(t);
}

static void a_realloc_onto_a_block_elsewhere_fires_where_that_was(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = almost_freed_elsewhere(t), other = grow(t, cuda(0), 5);
    assert_ok(memlord_realloc(t->lord, cuda(0), other, key, 5, NULL));
    assert_fired_on_1(t);
}

static void a_move_onto_a_block_elsewhere_fires_where_that_was(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = almost_freed_elsewhere(t), other = grow(t, cuda(0), 5);
    assert_ok(memlord_move(t->lord, cuda(0), other, cuda(2), key, 5, NULL, NULL));
    assert_fired_on_1(t);
}


static void each_device_is_on_its_own(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, ALLOCATED, 1000);
    grow(t, cuda(0), 999);
    grow(t, cuda(1), 999);
    assert_int_equal(t->gc.runs, 0);
    grow(t, cuda(1), 1);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.device.type, MEMLORD_DEVICE_CUDA);
    assert_int_equal(t->gc.last.device.index, 1);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 0);
}

static void a_call_evaluates_only_the_device_it_touches(void **state) {
    test_case *t = (test_case *)*state;
    grow(t, cuda(0), 2000);
    test_threshold(t->lord, ALLOCATED, 1000);
    grow(t, cuda(1), 10);
    assert_int_equal(t->gc.runs, 0);
    grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, 1);
}

static void a_poll_evaluates_the_devices_it_names(void **state) {
    test_case *t = (test_case *)*state;
    grow(t, cuda(0), 2000);
    grow(t, cuda(1), 2000);
    test_threshold(t->lord, ALLOCATED, 1000);
    assert_ok(memlord_gc_poll(t->lord, cpu()));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_gc_poll(t->lord, cuda(1)));
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.device.index, 1);
    assert_ok(memlord_gc_poll(t->lord, cuda(MEMLORD_ANY)));
    assert_int_equal(t->gc.runs, 2);
    assert_int_equal(t->gc.last.device.index, 0);
}

static void each_device_has_its_own_used_percent(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band bands[2];
    bands[0] = band_of(0, 50, ALLOCATED, 1000, 0);
    bands[1] = band_of(50, 101, ALLOCATED, 10, 0);
    assert_ok(memlord_strategy_set(t->lord, all(), bands, 2));
    test_capacity(t, 100000, 0);
    t->source.used = 90000;
    assert_ok(memlord_capacity_sample(t->lord, cuda(1)));
    grow(t, cuda(0), 10);
    assert_int_equal(t->gc.runs, 0);
    grow(t, cuda(1), 10);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.band, 1);
}

static void a_type_without_a_callback_has_no_bands(void **state) {
    test_case *t = (test_case *)*state;
    memlord_device hip = memlord_device_make(MEMLORD_DEVICE_HIP, 0);
    test_threshold(t->lord, ALLOCATED, 1000);
    grow(t, hip, 5000);
    grow(t, cpu(), 5000);
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_HIP), 0, test_gc_run, &t->gc));
    assert_int_equal(t->gc.runs, 0);
    grow(t, cpu(), 5000);
    assert_int_equal(t->gc.runs, 0);
    grow(t, hip, 1);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.device.type, MEMLORD_DEVICE_HIP);
    assert_ok(memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_HIP), test_gc_run, &t->gc));
    grow(t, hip, 50000);
    assert_int_equal(t->gc.runs, 1);
}

/* -- strategies -- */

/* -- a strategy for a device, a type, or all -- */

/* Sets a strategy of one band: so many live bytes. */
static void set_for(test_case *t, memlord_device sel, uint64_t bytes) {
    memlord_band band = band_of(0, 101, ALLOCATED, bytes, 0);
    assert_ok(memlord_strategy_set(t->lord, sel, &band, 1));
}
/* The live bytes at which a device fires: its next block is of so many, and is freed again. */
static uint64_t fires_at(test_case *t, memlord_device device) {
    uint64_t runs = t->gc.runs;
    shrink(t, device, grow(t, device, 1000 * KIB));
    return t->gc.runs == runs ? 0 : t->gc.last.threshold;
}

static void the_most_specific_strategy_decides(void **state) {
    test_case *t = (test_case *)*state;
    set_for(t, all(), 100);
    set_for(t, cuda(1), 300);
    set_for(t, any(MEMLORD_DEVICE_CUDA), 200);
    assert_int_equal(fires_at(t, cuda(0)), 200);
    assert_int_equal(fires_at(t, cuda(1)), 300);
    assert_ok(memlord_gc_callback_add(t->lord, cpu(), 0, test_gc_run, &t->gc));
    assert_int_equal(fires_at(t, cpu()), 100);
}

static void an_unset_strategy_gives_way_to_a_less_specific_one(void **state) {
    test_case *t = (test_case *)*state;
    set_for(t, all(), 100);
    set_for(t, any(MEMLORD_DEVICE_CUDA), 200);
    set_for(t, cuda(0), 300);
    assert_int_equal(fires_at(t, cuda(0)), 300);
    assert_ok(memlord_strategy_unset(t->lord, cuda(0)));
    assert_int_equal(fires_at(t, cuda(0)), 200);
    assert_ok(memlord_strategy_unset(t->lord, any(MEMLORD_DEVICE_CUDA)));
    assert_int_equal(fires_at(t, cuda(0)), 100);
    assert_ok(memlord_strategy_unset(t->lord, all()));
    test_capacity(t, 10 * MIB, 8 * MIB);
    shrink(t, cuda(0), grow(t, cuda(0), 2 * MIB)); /* the default: a tenth of it freed */
    assert_int_equal(t->gc.last.metric, FREED);
    assert_int_equal(t->gc.last.threshold, MIB);
}

static void bands_may_be_off_for_one_device_alone(void **state) {
    test_case *t = (test_case *)*state;
    set_for(t, all(), 100);
    assert_ok(memlord_strategy_set(t->lord, cuda(0), NULL, 0));
    assert_int_equal(fires_at(t, cuda(0)), 0);
    assert_int_equal(fires_at(t, cuda(1)), 100);
}

static void a_strategy_of_one_type_leaves_the_default_to_the_others(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_device hip = memlord_device_make(MEMLORD_DEVICE_HIP, 0);
    assert_ok(memlord_strategy_set(t->lord, hip, NULL, 0));
    set_for(t, any(MEMLORD_DEVICE_METAL), 5);
    test_capacity(t, 1000, 800);
    shrink(t, cuda(0), grow(t, cuda(0), 100));
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.band, 0);
}

static void a_strategy_waits_for_the_devices_it_names(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_device metal = memlord_device_make(MEMLORD_DEVICE_METAL, 3);
    assert_ok(memlord_gc_callback_add(t->lord, metal, 0, test_gc_run, &t->gc));
    set_for(t, cuda(7), 700);
    set_for(t, metal, 800);
    assert_int_equal(memlord_devices(t->lord, NULL, 0), 0);
    assert_int_equal(fires_at(t, cuda(7)), 700);
    assert_int_equal(fires_at(t, metal), 800);
}

static void a_strategy_of_another_device_re_arms_nothing(void **state) {
    test_case *t = (test_case *)*state;
    set_for(t, any(MEMLORD_DEVICE_CUDA), 1000);
    grow(t, cuda(0), 1000);
    assert_int_equal(t->gc.runs, 1);
    set_for(t, cuda(1), 10);
    set_for(t, all(), 10);
    grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, 1);
    set_for(t, cuda(0), 1000);
    grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, 2);
}

/* Below the threshold by less than an eighth of it, where a band that waits would go on waiting. */
static void a_run_for_another_reason_below_the_threshold_leaves_the_band_armed(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, MEMLORD_METRIC_ALLOCATED, 1000);
    grow(t, cuda(0), 900);
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_int_equal(t->gc.runs, 1);
    grow(t, cuda(0), 99);
    assert_int_equal(t->gc.runs, 1);
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 2);
    assert_int_equal(t->gc.last.reason, MEMLORD_REASON_BAND);
    assert_int_equal(t->gc.last.value, 1000);
}

static void a_run_for_another_reason_at_the_threshold_makes_the_band_wait(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, MEMLORD_METRIC_ALLOCATED, 1000);
    t->gc.answer.ran = 0;
    grow(t, cuda(0), 1000);
    assert_int_equal(t->gc.runs, 1);
    t->gc.answer.ran = 1;
    memlord_reset(t->lord); /* armed again */
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    t->gc.runs = 0;
    grow(t, cuda(0), 124);
    assert_int_equal(t->gc.runs, 0);
    grow(t, cuda(0), 1); /* an eighth of the threshold more than at the end of the run */
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.value, 1125);
}

static void a_reset_arms_a_band_that_waits(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, MEMLORD_METRIC_ALLOCATED, 1000);
    grow(t, cuda(0), 1000);
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 1);
    memlord_reset(t->lord);
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 2);
}

/* The edge between two bands may lie at exactly the live bytes of a limit. */
static void a_free_from_the_edge_of_a_band_falls_into_the_one_below(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_band bands[2] = {band_of(0, 50, FREED, 1, 0), band_of(50, 101, FREED, 100000, 0)};
    uint64_t key;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1024));
    assert_ok(memlord_strategy_set(t->lord, all(), bands, 2));
    key = grow(t, cuda(0), 1);
    grow(t, cuda(0), 511);
    assert_int_equal(t->gc.runs, 0);
    shrink(t, cuda(0), key);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.band, 0);
    assert_int_equal(t->gc.last.value, 1);
    assert_true(t->gc.last.used_percent == 100.0 * 511 / 1024);
}

static int setup_fakes_exact(void **state) {
    return test_open_fakes(state, MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_EXACT);
}
#define TEST_FAKES_EXACT(name)                                                                \
    cmocka_unit_test_setup_teardown(name, setup_fakes_exact, test_teardown)

/* -- random histories, against a model of what the header says -- */

enum { MODEL_BLOCKS = 64 };
typedef struct model {
    test_case *t;
    uint64_t seed;
    memlord_band bands[3];
    size_t n;
    uint64_t live, freed, reserved, limit, total, used; /* total 0: unknown */
    uint64_t sampled;                                   /* the bytes held when it was sampled */
    uint64_t block[MODEL_BLOCKS], arena;                /* bytes and 1 more; 0: no block */
    int waits;
    uint64_t end_live, end_freed, end_reserved; /* at the end of the last run */
    uint64_t runs, ran; /* of the callback; those that count on the device */
    size_t band;
    uint64_t threshold; /* 0: no band is in force */
    double percent;
} model;

static uint64_t model_random(model *m, uint64_t below) { return test_random(&m->seed) % below; }

static uint64_t model_metric(memlord_metric metric, uint64_t live, uint64_t freed,
                             uint64_t reserved) {
    if (metric == ALLOCATED) return live;
    if (metric == FREED) return freed;
    if (metric == MEMLORD_METRIC_RESERVED) return reserved;
    if (metric == MEMLORD_METRIC_CACHED) return reserved > live ? reserved - live : 0;
    return live > freed ? live : freed;
}
static uint64_t model_value(const model *m) {
    return model_metric(m->bands[m->band].metric, m->live, m->freed, m->reserved);
}

/* Finds the band in force, and its threshold. */
static void model_band(model *m) {
    const memlord_band *b;
    uint64_t whole = m->total, part;
    const int known = m->total || m->limit;
    uint64_t held = m->live > m->reserved ? m->live : m->reserved, used = m->used + held;
    used = used > m->sampled + held ? used - m->sampled : held;
    m->percent = m->total ? (double)used * 100 / (double)m->total
                 : known  ? (double)m->live * 100 / (double)m->limit
                          : -1;
    m->threshold = 0;
    for (m->band = 0; m->band < m->n; m->band++) {
        b = &m->bands[m->band];
        if (known ? b->lo <= m->percent && (m->percent < b->hi || b->hi > 100)
                  : b->lo <= 0 && b->hi >= 100)
            break;
    }
    if (m->band == m->n) return;
    b = &m->bands[m->band];
    if (m->limit && (!whole || m->limit < whole)) whole = m->limit;
    if (b->metric == MEMLORD_METRIC_CACHED) whole = m->reserved;
    part = (uint64_t)b->percent * whole / 100;
    if (whole && b->percent > 0 && !part) part = 1;
    m->threshold = !part      ? b->bytes
                   : !b->bytes ? part
                   : (b->combine == MEMLORD_COMBINE_MIN) == (part < b->bytes) ? part
                                                                              : b->bytes;
}

/* Looks whether a band that waits may fire again. */
static void model_rearm(model *m) {
    uint64_t value, eighth, end;
    model_band(m);
    if (!m->threshold) return;
    value = model_value(m);
    eighth = m->threshold / 8;
    end = model_metric(m->bands[m->band].metric, m->end_live, m->end_freed, m->end_reserved);
    if (value < m->threshold - eighth || value >= end + (eighth ? eighth : 1)) m->waits = 0;
}

/* The end of a run. */
static void model_ran(model *m, int waits) {
    m->runs++;
    m->ran++;
    if (m->t->gc.answer.ran) m->freed = 0;
    if (waits) {
        m->waits = 1;
        m->end_live = m->live;
        m->end_freed = m->freed;
        m->end_reserved = m->reserved;
    }
    model_rearm(m);
}

/* After a call that may fire: it did if the model does. */
static void model_fires(model *m) {
    const memlord_gc_event *e = &m->t->gc.last;
    model_rearm(m);
    if (m->threshold && !m->waits && model_value(m) >= m->threshold) {
        assert_int_equal(m->t->gc.runs, m->runs + 1);
        assert_int_equal(e->reason, MEMLORD_REASON_BAND);
        assert_int_equal(e->band, m->band);
        assert_int_equal(e->metric, m->bands[m->band].metric);
        assert_int_equal(e->threshold, m->threshold);
        assert_int_equal(e->value, model_value(m));
        assert_int_equal(e->device_runs, m->ran + 1);
        assert_int_equal(e->total_runs, m->ran + 1);
        assert_true(e->used_percent == (m->percent >= 0 ? m->percent : -1));
        model_ran(m, 1);
    }
    assert_int_equal(m->t->gc.runs, m->runs);
}

/* Bytes that often reach the threshold, or just miss it. */
static uint64_t model_bytes(model *m) {
    uint64_t value = m->threshold ? model_value(m) : 0, most = m->live > 50000 ? 10 : 2000;
    if (m->threshold > value && m->threshold - value < 5000 && model_random(m, 3) == 0)
        return m->threshold - value - model_random(m, 2);
    return model_random(m, most);
}

static void model_alloc(model *m, uint64_t i) {
    uint64_t bytes = model_bytes(m);
    m->live += bytes;
    m->block[i] = bytes + 1;
    assert_ok(memlord_alloc(m->t->lord, cuda(0), (i + 1) * 64, bytes, NULL));
    model_fires(m);
}
static void model_free(model *m, uint64_t i) {
    m->live -= m->block[i] - 1;
    m->freed += m->block[i] - 1;
    m->block[i] = 0;
    assert_ok(memlord_free(m->t->lord, cuda(0), (i + 1) * 64, NULL));
    model_fires(m);
}
static void model_arena(model *m) {
    uint64_t bytes = model_bytes(m);
    if (m->arena < 3000) {
        m->arena += bytes;
        m->live += bytes;
        assert_ok(memlord_arena_add(m->t->lord, cuda(0), bytes, NULL));
    } else {
        m->live -= m->arena;
        m->freed += m->arena;
        assert_ok(memlord_arena_sub(m->t->lord, cuda(0), m->arena, NULL));
        m->arena = 0;
    }
    model_fires(m);
}
static void model_pool(model *m) {
    m->reserved = model_random(m, 3) ? m->live + model_random(m, 6000) : model_random(m, 60000);
    assert_ok(memlord_pool_set(m->t->lord, cuda(0), m->reserved, 0));
    model_fires(m);
}

/* What changes the bands lets none run: the next call does. */
static void model_sample(model *m) {
    m->total = model_random(m, 4) ? 20000 + model_random(m, 60000) : 0;
    m->used = m->total ? model_random(m, m->total + 1) : 0;
    m->sampled = m->live > m->reserved ? m->live : m->reserved;
    m->t->source.total = m->total;
    m->t->source.used = m->used;
    m->t->source.fail = !m->total;
    assert_int_equal(memlord_capacity_sample(m->t->lord, cuda(0)),
                     m->total ? MEMLORD_OK : MEMLORD_E_UNKNOWN);
    model_rearm(m);
}
static void model_limit(model *m) {
    m->limit = model_random(m, 2) ? 10000 + model_random(m, 60000) : 0;
    assert_ok(memlord_limit_set(m->t->lord, cuda(0), m->limit));
    model_rearm(m);
}
static void model_strategy(model *m) {
    size_t i;
    double lo = 0;
    m->n = 1 + (size_t)model_random(m, 3);
    for (i = 0; i < m->n; i++) {
        double hi = i + 1 < m->n ? lo + 20 + (double)model_random(m, 20) : 101;
        uint64_t both = model_random(m, 3);
        m->bands[i] = band_of(lo, hi, (memlord_metric)model_random(m, 5),
                              both ? 1 + model_random(m, 20000) : 0,
                              both == 1 ? 0 : (double)(1 + model_random(m, 60)));
        m->bands[i].combine = (memlord_combine)model_random(m, 2);
        lo = hi;
    }
    m->waits = 0;
    assert_ok(memlord_strategy_set(m->t->lord, all(), m->bands, m->n));
    model_rearm(m);
}
static void model_host_run(model *m) {
    const int waits = m->threshold && model_value(m) >= m->threshold;
    assert_int_equal(memlord_gc_run(m->t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL),
                     m->t->gc.answer.ran ? MEMLORD_OK : MEMLORD_E_STATE);
    assert_int_equal(m->t->gc.last.reason, MEMLORD_REASON_HOST);
    assert_int_equal(m->t->gc.last.value, m->live);
    assert_true(m->t->gc.last.band == SIZE_MAX);
    model_ran(m, waits);
    assert_int_equal(m->t->gc.runs, m->runs);
}
static void model_reset(model *m) {
    memlord_reset(m->t->lord);
    m->freed = m->ran = 0;
    m->waits = 0;
    model_rearm(m);
}

static void model_step(model *m) {
    uint64_t i = model_random(m, MODEL_BLOCKS), what = model_random(m, 64);
    m->t->gc.answer.ran = model_random(m, 4) != 0;
    if (what < 48) (m->block[i] ? model_free : model_alloc)(m, i);
    else if (what < 53) model_arena(m);
    else if (what < 58) model_pool(m);
    else if (what < 60) model_sample(m);
    else if (what < 61) model_limit(m);
    else if (what < 62) model_host_run(m);
    else if (what < 63) model_strategy(m);
    else if (model_random(m, 8) == 0) model_reset(m);
}

static void random_histories_fire_as_documented(void **state) {
    static model m;
    test_case *t = (test_case *)*state;
    uint64_t seed = test_env("MEMLORD_TEST_SEED", 20261124), i;
    memset(&m, 0, sizeof m);
    m.t = t;
    m.seed = seed;
    model_strategy(&m);
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (i = 0; i < 20000; i++) model_step(&m);
    assert_true(m.runs > 1000);
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), m.live);
    assert_int_equal(memlord_freed(t->lord, cuda(0)), m.freed);
}

static void selectors_that_name_nothing_are_refused(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_device bad[] = {memlord_device_make(MEMLORD_DEVICE_TYPE_COUNT, 0), cuda(-2),
                                  memlord_device_make(MEMLORD_ANY, 3)};
    memlord_band band = band_of(0, 101, ALLOCATED, 1, 0);
    size_t i;
    for (i = 0; i < 3; i++) {
        assert_int_equal(memlord_strategy_set(t->lord, bad[i], &band, 1), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_strategy_unset(t->lord, bad[i]), MEMLORD_E_DEVICE);
    }
    assert_int_equal(memlord_strategy_unset(t->lord, all()), MEMLORD_E_UNKNOWN);
    set_for(t, cuda(0), 1);
    assert_int_equal(memlord_strategy_unset(t->lord, any(MEMLORD_DEVICE_CUDA)), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_strategy_unset(t->lord, cuda(0)));
    assert_int_equal(memlord_strategy_unset(t->lord, cuda(0)), MEMLORD_E_UNKNOWN);
}

static void a_bad_band_is_found_by_its_index(void **state) {
    memlord_band good = band_of(0, 101, ALLOCATED, 100, 10), bad[20], bands[3];
    size_t n = 0, i, at, found;
    (void)state;
    bad[n++] = band_of(50, 50, ALLOCATED, 1, 0);
    bad[n++] = band_of(60, 50, ALLOCATED, 1, 0);
    bad[n++] = band_of(NAN, 50, ALLOCATED, 1, 0);
    bad[n++] = band_of(0, NAN, ALLOCATED, 1, 0);
    bad[n++] = band_of(0, 50, ALLOCATED, 1, NAN);
    bad[n++] = band_of(1e-300, 50, ALLOCATED, 1, 0);
    bad[n++] = band_of(0, INFINITY, ALLOCATED, 1, 0);
    bad[n++] = band_of(0, 50, ALLOCATED, 1, 1e-320);
    bad[n++] = band_of(-1, 50, ALLOCATED, 1, 0);
    bad[n++] = band_of(-20, -10, ALLOCATED, 1, 0);
    bad[n++] = band_of(0, 50, ALLOCATED, 1, -1);
    bad[n++] = band_of(0, 50, ALLOCATED, 0, 0);
    bad[n++] = band_of(0, 50, (memlord_metric)5, 1, 0);
    bad[n++] = band_of(0, 50, (memlord_metric)1000, 1, 0);
    bad[n++] = band_of(0, 2e9, ALLOCATED, 1, 0);
    bad[n++] = band_of(0, 50, ALLOCATED, 1, 2e9);
    bad[n] = good;
    bad[n++].combine = (memlord_combine)2;
    for (i = 0; i < n; i++)
        for (at = 0; at < 3; at++) {
            bands[0] = bands[1] = bands[2] = good;
            bands[at] = bad[i];
            if (at < 2) bands[2] = bad[n - 1 - i]; /* not the first */
            found = 77;
            assert_int_equal(memlord_strategy_check(bands, 3, &found), MEMLORD_E_INVALID);
            assert_int_equal(found, at);
            assert_int_equal(memlord_strategy_check(bands, 3, NULL), MEMLORD_E_INVALID);
        }
    bands[0] = bands[1] = bands[2] = good;
    assert_ok(memlord_strategy_check(bands, 3, &found));
    assert_ok(memlord_strategy_check(NULL, 0, NULL));
    assert_int_equal(memlord_strategy_check(NULL, 1, NULL), MEMLORD_E_INVALID);
}

static void a_bad_strategy_keeps_the_old_one_and_names_the_band(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band bands[3];
    bands[0] = bands[1] = bands[2] = band_of(0, 101, ALLOCATED, 10, 0);
    bands[2].percent = NAN;
    test_threshold(t->lord, ALLOCATED, 1000);
    test_log_clear(&t->log);
    assert_int_equal(memlord_strategy_set(t->lord, all(), bands, 3), MEMLORD_E_INVALID);
    assert_int_equal(t->log.lines[MEMLORD_LOG_ERROR] + t->log.lines[MEMLORD_LOG_WARNING], 1);
    assert_non_null(strstr(t->log.text, "band 2"));
    assert_int_equal(memlord_strategy_set(t->lord, all(), NULL, 2), MEMLORD_E_INVALID);
    grow(t, cuda(0), 999);
    assert_int_equal(t->gc.runs, 0);
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.threshold, 1000);
}

static void a_bad_strategy_re_arms_nothing(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band bad = band_of(5, 5, ALLOCATED, 1000, 0);
    test_threshold(t->lord, ALLOCATED, 1000);
    grow(t, cuda(0), 1000);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(memlord_strategy_set(t->lord, all(), &bad, 1), MEMLORD_E_INVALID);
    grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, 1);
}

static void a_strategy_without_room_keeps_the_old_one(void **state) {
    test_case *t = (test_case *)*state;
    static memlord_band bands[4096];
    size_t i;
    uint64_t at;
    for (i = 0; i < 4096; i++) bands[i] = band_of(0, 101, ALLOCATED, 10, 0);
    test_threshold(t->lord, ALLOCATED, 1000);
    at = t->heap.calls;
    t->heap.fail_at = at + 1;
    t->heap.fail_from = 1;
    i = memlord_strategy_set(t->lord, all(), bands, 4096);
    t->heap.fail_at = 0;
    if (t->heap.calls > at) assert_int_equal(i, MEMLORD_E_NOMEM);
    grow(t, cuda(0), 999);
    assert_int_equal(t->gc.runs, i == MEMLORD_OK);
}

static void bands_are_copied(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(0, 101, ALLOCATED, 1000, 0);
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    band.bytes = 10;
    grow(t, cuda(0), 999);
    assert_int_equal(t->gc.runs, 0);
}

static void no_bands_is_off(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t reclaimed = 0;
    test_capacity(t, 1000, 900);
    assert_ok(memlord_strategy_set(t->lord, all(), NULL, 0));
    shrink(t, cuda(0), grow(t, cuda(0), 5000));
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, &reclaimed));
    assert_int_equal(t->gc.runs, 1);
    test_threshold(t->lord, ALLOCATED, 10);
    grow(t, cuda(0), 10);
    assert_int_equal(t->gc.runs, 2);
}

static int setup_no_strategy(void **state) {
    return test_open_fakes(state, MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_NO_STRATEGY);
}

static void the_no_strategy_flag_leaves_out_the_default(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 900);
    shrink(t, cuda(0), grow(t, cuda(0), 5000));
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_int_equal(t->gc.runs, 1);
}

static void a_strategy_set_later_overrides_the_flag(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, ALLOCATED, 1000);
    grow(t, cuda(0), 1000);
    assert_int_equal(t->gc.runs, 1);
}

static void the_default_strategy_is_the_documented_one(void **state) {
    const memlord_band *bands;
    const double lo[] = {75, 90}, hi[] = {90, 101}, percent[] = {10, 5};
    size_t n = 77, i;
    (void)state;
    bands = memlord_strategy_default(&n);
    assert_int_equal(n, 2);
    for (i = 0; i < 2; i++) {
        assert_true(bands[i].lo == lo[i]);
        assert_true(bands[i].hi == hi[i]);
        assert_true(bands[i].percent == percent[i]);
        assert_int_equal(bands[i].bytes, 0);
        assert_int_equal(bands[i].metric, FREED);
    }
    assert_ok(memlord_strategy_check(bands, n, NULL));
    assert_ptr_equal(memlord_strategy_default(NULL), bands);
}

/* Frees blocks of one byte. Returns how many it frees until a collection runs. */
static uint64_t frees_until_a_run(test_case *t) {
    const uint64_t runs = t->gc.runs;
    uint64_t n = 0;
    for (; t->gc.runs == runs && n < 100000; n++) shrink(t, cuda(0), grow(t, cuda(0), 1));
    return n;
}

static void the_default_strategy_is_in_force(void **state) {
    test_case *t = (test_case *)*state;
    const uint64_t used[] = {0, 740, 750, 898, 900, 1000};
    const uint64_t frees[] = {100000, 100000, 100, 100, 50, 50};
    size_t i;
    t->gc.answer.reclaimed = 1000;
    for (i = 0; i < 6; i++) {
        memlord_reset(t->lord); /* freed 0, armed */
        test_capacity(t, 1000, used[i]);
        assert_int_equal(frees_until_a_run(t), frees[i]);
    }
}

/* An engine: its weights fill the device for good, and what it caches fits beside them. */
static void the_default_leaves_live_bytes_alone(void **state) {
    test_case *t = (test_case *)*state;
    int i;
    test_capacity(t, 1000, 0);
    grow(t, cuda(0), 600);
    for (i = 0; i < 390; i++) grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 0);
}

/* A quarter of the bytes above 7/8 of the threshold: 3 of 100, of 100. */
static void the_default_waits_twice_as_long_after_a_run_that_gave_little(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 800);
    t->gc.answer.reclaimed = 2;
    assert_int_equal(frees_until_a_run(t), 100);
    assert_int_equal(frees_until_a_run(t), 200);
    assert_int_equal(frees_until_a_run(t), 400);
    t->gc.answer.reclaimed = (800 - 88) / 4;
    assert_int_equal(frees_until_a_run(t), 800);
    assert_int_equal(frees_until_a_run(t), 100);
    t->gc.answer.reclaimed = 3;
    assert_int_equal(frees_until_a_run(t), 100);
    t->gc.answer.reclaimed = 0;
    t->gc.answer.ran = 0;
    assert_int_equal(frees_until_a_run(t), 100);
    assert_int_equal(frees_until_a_run(t), 24); /* not 12, as freed bytes stay after a failed run */
    assert_int_equal(frees_until_a_run(t), 48);
    memlord_reset(t->lord);
    assert_int_equal(frees_until_a_run(t), 100);
    assert_int_equal(frees_until_a_run(t), 24);
    t->gc.answer.ran = 1;
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_int_equal(frees_until_a_run(t), 100); /* the metric has fallen in between */
}

static void the_default_does_nothing_while_the_capacity_is_unknown(void **state) {
    test_case *t = (test_case *)*state;
    shrink(t, cuda(0), grow(t, cuda(0), 1 << 30));
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(t->gc.runs, 0);
}

/* -- warnings -- */

/* How many warnings a strategy is worth; it is set all the same. */
static uint64_t warnings_of(test_case *t, const memlord_band *bands, size_t n) {
    test_log_clear(&t->log);
    assert_ok(memlord_strategy_set(t->lord, all(), bands, n));
    assert_int_equal(t->log.lines[MEMLORD_LOG_ERROR], 0);
    return t->log.lines[MEMLORD_LOG_WARNING];
}

static void a_clean_strategy_is_set_without_a_word(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band bands[3];
    size_t n;
    bands[0] = band_of(50, 75, ALLOCATED, 1, 0); /* the order does not matter */
    bands[1] = band_of(0, 50, ALLOCATED, 1, 0);
    bands[2] = band_of(75, 101, ALLOCATED, 1, 0);
    assert_int_equal(t->log.lines[MEMLORD_LOG_WARNING], 0);
    assert_int_equal(warnings_of(t, bands, 3), 0);
    assert_int_equal(warnings_of(t, memlord_strategy_default(&n), 2), 0);
    assert_int_equal(warnings_of(t, NULL, 0), 0);
}

static void an_overlap_is_warned_of(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band bands[2];
    bands[0] = band_of(0, 60, ALLOCATED, 1, 0);
    bands[1] = band_of(50, 101, ALLOCATED, 1, 0);
    assert_int_equal(warnings_of(t, bands, 2), 1);
    assert_non_null(strstr(t->log.text, "overlap"));
}

static void a_gap_is_warned_of(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band bands[2];
    bands[0] = band_of(0, 50, ALLOCATED, 1, 0);
    bands[1] = band_of(60, 101, ALLOCATED, 1, 0);
    assert_int_equal(warnings_of(t, bands, 2), 1);
    assert_non_null(strstr(t->log.text, "gap"));
    assert_non_null(strstr(t->log.text, "50 %"));
}

static void no_band_below_the_first_is_no_gap(void **state) {
    memlord_band band = band_of(10, 101, ALLOCATED, 1, 0);
    assert_int_equal(warnings_of((test_case *)*state, &band, 1), 0);
}

static void an_uncovered_100_percent_is_warned_of(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(0, 100, ALLOCATED, 1, 0);
    assert_int_equal(warnings_of(t, &band, 1), 1);
    assert_non_null(strstr(t->log.text, "100"));
    band.hi = 100.5;
    assert_int_equal(warnings_of(t, &band, 1), 0);
}

static void a_null_ledger_takes_any_strategy(void **state) {
    memlord_band band = band_of(0, 101, ALLOCATED, 1, 0);
    (void)state;
    assert_ok(memlord_strategy_set(NULL, all(), &band, 1));
    assert_ok(memlord_strategy_unset(NULL, all()));
    assert_ok(memlord_gc_poll(NULL, all()));
}

#define TEST_BARE(name) \
    cmocka_unit_test_setup_teardown(name, setup_no_strategy, test_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_FAKES(bands_are_half_open),
        TEST_FAKES(a_full_device_wants_a_band_beyond_100),
        TEST_FAKES(the_first_band_that_matches_decides),
        TEST_FAKES(the_first_match_decides_even_if_a_later_one_would_fire),
        TEST_FAKES(only_a_band_that_covers_all_matches_the_unknown),
        TEST_FAKES(a_failed_sample_makes_it_unknown_again),
        TEST_FAKES(the_threshold_is_the_larger_of_bytes_and_percent),
        TEST_FAKES(or_the_smaller_with_combine_min),
        TEST_FAKES(a_part_of_0_is_absent),
        TEST_FAKES(the_percent_is_absent_while_the_capacity_is_unknown),
        TEST_FAKES(a_percent_is_cut_to_whole_bytes),
        TEST_FAKES(whole_percents_of_whole_hundreds_are_exact),
        TEST_FAKES(a_threshold_is_at_least_1),
        TEST_FAKES(a_smaller_limit_is_the_capacity),
        TEST_FAKES(a_limit_stands_in_for_an_unknown_capacity),
        TEST_FAKES(a_limit_does_not_change_the_used_percent),
        TEST_FAKES(a_third_of_24_gib_is_8504035246_bytes),
        TEST_FAKES(the_used_percent_is_of_the_limit_where_only_that_is_known),
        TEST_FAKES(live_bytes_that_enter_another_band_of_a_limit_fire_it),
        TEST_FAKES(live_bytes_since_the_sample_fire_another_band_of_a_capacity),
        TEST_FAKES(bytes_of_a_device_that_shares_the_memory_count_too),
        TEST_FAKES(so_do_frees_that_fall_back_into_a_band),
        TEST_FAKES(the_threshold_follows_the_capacity),
        TEST_FAKES(allocated_is_what_lives),
        TEST_FAKES(freed_is_what_went_since_the_last_run),
        TEST_FAKES(max_is_the_larger_of_the_two),
        TEST_FAKES(an_alloc_fires),
        TEST_FAKES(an_alloc_n_fires),
        TEST_FAKES(an_alloc_n_fires_for_each_device_it_touches),
        TEST_FAKES(a_track_fires),
        TEST_FAKES(a_realloc_that_grows_fires),
        TEST_FAKES(a_realloc_in_two_steps_fires_at_its_end),
        TEST_FAKES(a_move_fires_where_it_arrives),
        TEST_FAKES(an_arena_add_fires),
        TEST_FAKES(a_free_fires),
        TEST_FAKES(a_free_n_fires),
        TEST_FAKES(the_last_release_fires),
        TEST_FAKES(a_realloc_that_shrinks_fires),
        TEST_FAKES(a_move_fires_where_it_left),
        TEST_FAKES(an_arena_sub_fires),
        TEST_FAKES(an_alloc_over_a_live_block_fires_as_a_free),
        TEST_FAKES(a_retire_fires),
        TEST_FAKES(an_alloc_that_retires_fires),
        TEST_FAKES(a_poll_that_retires_fires),
        TEST_FAKES(a_call_that_fails_fires_nothing),
        TEST_FAKES(one_thread_is_never_a_call_late),
        TEST_FAKES(several_threads_are_never_a_call_late),
        TEST_FAKES(nor_two_threads_close_to_the_threshold),
        TEST_FAKES(nor_at_the_edge_of_a_band),
        TEST_FAKES(nor_are_their_frees),
        TEST_FAKES_SITES(several_threads_are_never_a_call_late),
        TEST_FAKES(nor_is_one_block_freed_again_and_again),
        TEST_FAKES_SITES(nor_are_their_frees),
        TEST_FAKES_SITES(nor_is_one_block_freed_again_and_again),
        TEST_FAKES(nor_when_threads_come_and_go),
        TEST_FAKES(nor_if_each_holds_back_all_its_bytes),
        TEST_FAKES(a_new_strategy_counts_what_threads_hold_back),
        TEST_FAKES(a_strategy_switched_on_counts_what_threads_hold_back),
        TEST_FAKES(a_new_sample_counts_what_threads_hold_back),
        TEST_FAKES(a_new_limit_counts_what_threads_hold_back),
        TEST_FAKES(a_callback_added_counts_what_threads_hold_back),
        TEST_FAKES(what_was_freed_before_a_sample_counts_after_it),
        TEST_FAKES(what_was_freed_before_a_limit_counts_after_it),
        TEST_FAKES(what_was_freed_before_sharing_counts_after_it),
        TEST_FAKES(a_move_that_names_another_index_fires_where_the_block_was),
        TEST_FAKES(an_alloc_over_a_block_elsewhere_fires_where_that_was),
        TEST_FAKES(a_realloc_that_goes_elsewhere_fires_where_the_block_was),
        TEST_FAKES(a_realloc_onto_a_block_elsewhere_fires_where_that_was),
        TEST_FAKES(a_move_onto_a_block_elsewhere_fires_where_that_was),
        TEST_FAKES(each_device_is_on_its_own),
        TEST_FAKES(a_call_evaluates_only_the_device_it_touches),
        TEST_FAKES(a_poll_evaluates_the_devices_it_names),
        TEST_FAKES(each_device_has_its_own_used_percent),
        TEST_FAKES(a_type_without_a_callback_has_no_bands),
        TEST_FAKES(the_most_specific_strategy_decides),
        TEST_FAKES(an_unset_strategy_gives_way_to_a_less_specific_one),
        TEST_FAKES(bands_may_be_off_for_one_device_alone),
        TEST_FAKES(a_strategy_of_one_type_leaves_the_default_to_the_others),
        TEST_FAKES(a_strategy_waits_for_the_devices_it_names),
        TEST_FAKES(a_strategy_of_another_device_re_arms_nothing),
        TEST_FAKES(a_run_for_another_reason_below_the_threshold_leaves_the_band_armed),
        TEST_FAKES(a_run_for_another_reason_at_the_threshold_makes_the_band_wait),
        TEST_FAKES(a_reset_arms_a_band_that_waits),
        TEST_FAKES(a_free_from_the_edge_of_a_band_falls_into_the_one_below),
        TEST_FAKES_EXACT(a_free_from_the_edge_of_a_band_falls_into_the_one_below),
        TEST_FAKES(random_histories_fire_as_documented),
        TEST_FAKES_EXACT(random_histories_fire_as_documented),
        TEST_FAKES(selectors_that_name_nothing_are_refused),
        cmocka_unit_test(a_bad_band_is_found_by_its_index),
        TEST_FAKES(a_bad_strategy_keeps_the_old_one_and_names_the_band),
        TEST_FAKES(a_bad_strategy_re_arms_nothing),
        TEST_FAKES(a_strategy_without_room_keeps_the_old_one),
        TEST_FAKES(bands_are_copied),
        TEST_FAKES(no_bands_is_off),
        TEST_BARE(the_no_strategy_flag_leaves_out_the_default),
        TEST_BARE(a_strategy_set_later_overrides_the_flag),
        cmocka_unit_test(the_default_strategy_is_the_documented_one),
        TEST_FAKES(the_default_strategy_is_in_force),
        TEST_FAKES(the_default_leaves_live_bytes_alone),
        TEST_FAKES(the_default_waits_twice_as_long_after_a_run_that_gave_little),
        TEST_FAKES(the_default_does_nothing_while_the_capacity_is_unknown),
        TEST_FAKES(a_clean_strategy_is_set_without_a_word),
        TEST_FAKES(an_overlap_is_warned_of),
        TEST_FAKES(a_gap_is_warned_of),
        TEST_FAKES(no_band_below_the_first_is_no_gap),
        TEST_FAKES(an_uncovered_100_percent_is_warned_of),
        cmocka_unit_test(a_null_ledger_takes_any_strategy),
    };
    return cmocka_run_group_tests_name("bands", tests, NULL, NULL);
}
