/* Collections: once, for one device, with no lock of ours held; what they reset, when the next
   one is due, and what a callback may do. */
#include "support.h"

#include <sched.h>

#define ALLOCATED MEMLORD_METRIC_ALLOCATED
#define FREED MEMLORD_METRIC_FREED
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define SCALE test_env("MEMLORD_TEST_SCALE", 4)

static memlord_device hip(void) { return memlord_device_make(MEMLORD_DEVICE_HIP, 0); }

static void shrink(test_case *t, memlord_device device, uint64_t key) {
    assert_ok(memlord_free(t->lord, device, key, NULL));
}

/* Frees 1000 bytes at a freed threshold of 1000: one run on cuda:0. */
static void fire(test_case *t) {
    uint64_t runs = t->gc.runs;
    test_threshold(t->lord, FREED, 1000);
    shrink(t, cuda(0), grow(t, cuda(0), 1000));
    assert_int_equal(t->gc.runs, runs + 1);
}

/* -- what a run does to the books -- */

/* -- a quiet callback -- */

/* Crosses every band of the default strategy. */
static void cross_the_default_bands(test_case *t) {
    int i;
    test_capacity(t, 1000, 800);
    for (i = 0; i < 10; i++) shrink(t, cuda(0), grow(t, cuda(0), 100));
}

static void the_default_strategy_runs_no_quiet_callback(void **state) {
    test_case *t = (test_case *)*state;
    test_gc loud;
    memset(&loud, 0, sizeof loud);
    loud.answer.ran = 1;
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), MEMLORD_GC_QUIET,
                                      test_gc_run, &t->gc));
    cross_the_default_bands(t);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 0);
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, test_gc_run, &loud));
    cross_the_default_bands(t);
    assert_true(loud.runs > 0);
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_OOM, 0, NULL));
    assert_int_equal(t->gc.runs, 1);
}

static void a_strategy_of_the_hosts_runs_it(void **state) {
    test_case *t = (test_case *)*state;
    size_t n;
    const memlord_band *bands = memlord_strategy_default(&n);
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), MEMLORD_GC_QUIET,
                                      test_gc_run, &t->gc));
    assert_ok(memlord_strategy_set(t->lord, all(), bands, n));
    cross_the_default_bands(t);
    assert_true(t->gc.runs > 0);
}

static void after_a_run_freed_starts_over(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, FREED, 1000);
    grow(t, cuda(0), 300);
    shrink(t, cuda(0), grow(t, cuda(0), 700));
    assert_int_equal(memlord_freed(t->lord, cuda(0)), 700);
    shrink(t, cuda(0), grow(t, cuda(0), 500));
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(memlord_freed(t->lord, cuda(0)), 0);
    shrink(t, cuda(0), grow(t, cuda(0), 7));
    assert_int_equal(memlord_freed(t->lord, cuda(0)), 7);
}

static void live_bytes_and_totals_are_untouched(void **state) {
    test_case *t = (test_case *)*state;
    memlord_stats s;
    t->gc.answer.reclaimed = 5000;
    grow(t, cuda(0), 300);
    fire(t);
    s = stats_of(t->lord, cuda(0));
    assert_int_equal(s.allocated, 300);
    assert_int_equal(s.live_blocks, 1);
    assert_int_equal(s.total_allocated, 1300);
    assert_int_equal(s.total_freed, 1000);
    assert_int_equal(s.frees, 1);
    assert_int_equal(s.peak, 1300);
    assert_balanced(t->lord, cuda(0));
}

static void runs_and_what_they_reclaimed_are_counted(void **state) {
    test_case *t = (test_case *)*state;
    t->gc.answer.reclaimed = 5000;
    fire(t);
    fire(t);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 2);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_failed, 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_reclaimed, 10000);
    assert_int_equal(stats_of(t->lord, cuda(1)).gc_runs, 0);
}

static void what_they_reclaimed_does_not_wrap(void **state) {
    test_case *t = (test_case *)*state;
    t->gc.answer.reclaimed = UINT64_MAX;
    grow(t, cuda(0), 10);
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_true(stats_of(t->lord, cuda(0)).gc_reclaimed == UINT64_MAX);
}

static void a_run_that_could_not_resets_nothing(void **state) {
    test_case *t = (test_case *)*state;
    t->gc.answer.ran = 0;
    fire(t);
    assert_int_equal(memlord_freed(t->lord, cuda(0)), 1000);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_failed, 1);
}

static void other_devices_keep_what_they_freed(void **state) {
    test_case *t = (test_case *)*state;
    shrink(t, cuda(1), grow(t, cuda(1), 50));
    shrink(t, cpu(), grow(t, cpu(), 60));
    fire(t);
    assert_int_equal(memlord_freed(t->lord, cuda(0)), 0);
    assert_int_equal(memlord_freed(t->lord, cuda(1)), 50);
    assert_int_equal(memlord_freed(t->lord, cpu()), 60);
}

static void a_family_run_starts_over_every_device_of_the_type(void **state) {
    test_case *t = (test_case *)*state;
    t->gc.answer.family = 1;
    grow(t, cuda(1), 5);
    shrink(t, cuda(1), grow(t, cuda(1), 50));
    shrink(t, cuda(7), grow(t, cuda(7), 70));
    shrink(t, cpu(), grow(t, cpu(), 60));
    fire(t);
    assert_int_equal(memlord_freed(t->lord, cuda(0)), 0);
    assert_int_equal(memlord_freed(t->lord, cuda(1)), 0);
    assert_int_equal(memlord_freed(t->lord, cuda(7)), 0);
    assert_int_equal(memlord_freed(t->lord, cpu()), 60);
    assert_int_equal(memlord_allocated(t->lord, cuda(1)), 5);
    assert_int_equal(stats_of(t->lord, cuda(1)).gc_runs, 0);
}

static void a_reset_takes_the_counts_to_0(void **state) {
    test_case *t = (test_case *)*state;
    t->gc.answer.reclaimed = 5;
    fire(t);
    t->gc.answer.ran = 0;
    fire(t);
    memlord_reset(t->lord);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_failed, 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_reclaimed, 0);
}

/* -- the event -- */

static void the_event_says_what_fired(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band bands[2];
    bands[0] = band_of(0, 25, ALLOCATED, 1, 0);
    bands[1] = band_of(25, 101, MEMLORD_METRIC_MAX, 100, 20);
    assert_ok(memlord_strategy_set(t->lord, all(), bands, 2));
    test_capacity(t, 2000, 750);
    grow(t, cuda(0), 450);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.device.type, MEMLORD_DEVICE_CUDA);
    assert_int_equal(t->gc.last.device.index, 0);
    assert_int_equal(t->gc.last.reason, MEMLORD_REASON_BAND);
    assert_true(t->gc.last.used_percent == 60.0); /* 750 sampled, and 450 of 2000 since */
    assert_int_equal(t->gc.last.band, 1);
    assert_int_equal(t->gc.last.metric, MEMLORD_METRIC_MAX);
    assert_int_equal(t->gc.last.value, 450);
    assert_int_equal(t->gc.last.threshold, 400);
    assert_int_equal(t->gc.last.needed, 0);
    assert_int_equal(t->gc.last.device_runs, 1);
    assert_int_equal(t->gc.last.total_runs, 1);
}

static void an_unknown_used_percent_is_minus_1(void **state) {
    test_case *t = (test_case *)*state;
    fire(t);
    assert_true(t->gc.last.used_percent == -1);
}

static void runs_are_numbered_per_device_and_over_all(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, ALLOCATED, 1000);
    grow(t, cuda(0), 1000);
    grow(t, cuda(1), 1000);
    assert_int_equal(t->gc.last.device_runs, 1);
    assert_int_equal(t->gc.last.total_runs, 2);
    t->gc.answer.ran = 0; /* failed ones count here too */
    grow(t, cuda(0), 1000);
    assert_int_equal(t->gc.last.device_runs, 2);
    assert_int_equal(t->gc.last.total_runs, 3);
    t->gc.answer.ran = 1;
    grow(t, cuda(0), 1000);
    assert_int_equal(t->gc.last.device_runs, 3);
    assert_int_equal(t->gc.last.total_runs, 4);
}

/* -- several callbacks -- */

typedef struct part {
    memlord_gc_result answer;
    int number, runs;
    char *order; /* each appends its number */
} part;

static memlord_gc_result run_part(void *user, memlord *lord, const memlord_gc_event *event) {
    part *p = (part *)user;
    size_t n = strlen(p->order);
    (void)lord;
    (void)event;
    p->runs++;
    p->order[n] = (char)('0' + p->number);
    p->order[n + 1] = 0;
    return p->answer;
}

/* Replaces the callback of the fakes by three parts. */
static void use_parts(test_case *t, part *parts, char *order) {
    int i;
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    memset(parts, 0, 3 * sizeof *parts);
    for (i = 0; i < 3; i++) {
        parts[i].number = i;
        parts[i].order = order;
        assert_ok(
            memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, run_part, &parts[i]));
    }
    order[0] = 0;
    test_threshold(t->lord, FREED, 1000);
}

static void callbacks_run_in_the_order_they_came(void **state) {
    test_case *t = (test_case *)*state;
    part parts[3];
    char order[32];
    use_parts(t, parts, order);
    parts[1].answer.ran = 1;
    shrink(t, cuda(0), grow(t, cuda(0), 1000));
    assert_string_equal(order, "012");
    assert_ok(memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), run_part, &parts[0]));
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, run_part, &parts[0]));
    order[0] = 0;
    test_threshold(t->lord, FREED, 1000);
    shrink(t, cuda(0), grow(t, cuda(0), 1000));
    assert_string_equal(order, "120");
}

static void results_of_several_callbacks_add_up(void **state) {
    test_case *t = (test_case *)*state;
    part parts[3];
    char order[32];
    use_parts(t, parts, order);
    parts[0].answer.ran = 1;
    parts[0].answer.reclaimed = 100;
    parts[2].answer.ran = 1;
    parts[2].answer.family = 1;
    parts[2].answer.reclaimed = 20;
    shrink(t, cuda(1), grow(t, cuda(1), 50));
    shrink(t, cuda(0), grow(t, cuda(0), 1000));
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 1);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_failed, 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_reclaimed, 120);
    assert_int_equal(memlord_freed(t->lord, cuda(0)), 0);
    assert_int_equal(memlord_freed(t->lord, cuda(1)), 0);
}

static void it_failed_only_if_all_did(void **state) {
    test_case *t = (test_case *)*state;
    part parts[3];
    char order[32];
    use_parts(t, parts, order);
    shrink(t, cuda(0), grow(t, cuda(0), 1000));
    assert_string_equal(order, "012");
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_failed, 1);
    assert_int_equal(memlord_freed(t->lord, cuda(0)), 1000);
}

static void remove_takes_off_the_first_that_is_the_same(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, test_gc_run, &t->gc));
    test_threshold(t->lord, FREED, 1000);
    shrink(t, cuda(0), grow(t, cuda(0), 1000));
    assert_int_equal(t->gc.runs, 2);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 1);
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    shrink(t, cuda(0), grow(t, cuda(0), 1000));
    assert_int_equal(t->gc.runs, 3);
    assert_int_equal(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), NULL, &t->gc),
        MEMLORD_E_INVALID);
    assert_int_equal(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->heap),
        MEMLORD_E_UNKNOWN);
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    assert_int_equal(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc),
        MEMLORD_E_UNKNOWN);
    shrink(t, cuda(0), grow(t, cuda(0), 1000));
    assert_int_equal(t->gc.runs, 3);
}

/* -- callbacks of a device, of a type and of all, and the reasons they serve -- */

static void a_devices_callbacks_run_first_then_its_types_then_alls(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_device sels[] = {all(), any(MEMLORD_DEVICE_CUDA), cuda(0),
                                   all(), any(MEMLORD_DEVICE_CUDA), cuda(0), cuda(1)};
    part parts[7];
    char order[32] = "";
    int i;
    memset(parts, 0, sizeof parts);
    for (i = 0; i < 7; i++) {
        parts[i].number = i;
        parts[i].order = order;
        parts[i].answer.ran = 1;
        assert_ok(memlord_gc_callback_add(t->lord, sels[i], 0, run_part, &parts[i]));
    }
    fire(t);
    assert_string_equal(order, "251403");
    order[0] = 0;
    assert_ok(memlord_gc_run(t->lord, hip(), MEMLORD_REASON_HOST, 0, NULL));
    assert_string_equal(order, "03");
}

static void a_callback_serves_only_its_device(void **state) {
    test_case *t = (test_case *)*state;
    test_gc gc = t->gc;
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    assert_ok(memlord_gc_callback_add(t->lord, cuda(1), 0, test_gc_run, &gc));
    test_threshold(t->lord, ALLOCATED, 1000);
    grow(t, cuda(0), 5000);
    assert_int_equal(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL),
                     MEMLORD_E_UNKNOWN);
    assert_int_equal(gc.runs, 0);
    grow(t, cuda(1), 1000);
    assert_int_equal(gc.runs, 1);
    assert_int_equal(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &gc),
        MEMLORD_E_UNKNOWN);
    assert_ok(memlord_gc_callback_remove(t->lord, cuda(1), test_gc_run, &gc));
}

static void a_callback_runs_only_for_its_reasons(void **state) {
    test_case *t = (test_case *)*state;
    test_gc oom = t->gc;
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    assert_ok(memlord_gc_callback_add(
        t->lord, all(), 1u << MEMLORD_REASON_OOM | 1u << MEMLORD_REASON_HOST, test_gc_run, &oom));
    test_threshold(t->lord, ALLOCATED, 1000); /* in force only with a callback that serves bands */
    grow(t, cuda(0), 5000);
    assert_int_equal(oom.runs, 0);
    assert_int_equal(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_LIMIT, 0, NULL),
                     MEMLORD_E_UNKNOWN);
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_OOM, 0, NULL));
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_int_equal(oom.runs, 2);
    assert_ok(memlord_gc_callback_add(t->lord, cuda(0), 1u << MEMLORD_REASON_BAND, test_gc_run,
                                      &t->gc));
    grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(oom.runs, 2);
}

static void a_strategy_for_one_device_runs_a_quiet_callback_there_alone(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(0, 101, ALLOCATED, 1000, 0);
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), MEMLORD_GC_QUIET,
                                      test_gc_run, &t->gc));
    assert_ok(memlord_strategy_set(t->lord, cuda(1), &band, 1));
    cross_the_default_bands(t);
    assert_int_equal(t->gc.runs, 0);
    grow(t, cuda(1), 1000);
    assert_int_equal(t->gc.runs, 1);
    assert_ok(memlord_strategy_unset(t->lord, cuda(1)));
    grow(t, cuda(1), 100000);
    assert_int_equal(t->gc.runs, 1);
}

static void reasons_that_do_not_exist_are_refused(void **state) {
    test_case *t = (test_case *)*state;
    const uint32_t bad[] = {1u << MEMLORD_REASON_COUNT, 1u << 31, UINT32_MAX,
                            (uint32_t)MEMLORD_GC_QUIET | 1u << 29};
    size_t i;
    for (i = 0; i < 4; i++)
        assert_int_equal(memlord_gc_callback_add(t->lord, all(), bad[i], test_gc_run, &t->gc),
                         MEMLORD_E_INVALID);
}

static void bad_callbacks_are_refused(void **state) {
    test_case *t = (test_case *)*state;
    assert_int_equal(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, NULL, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(
        memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_TYPE_COUNT), 0, test_gc_run, &t->gc),
        MEMLORD_E_DEVICE);
    assert_int_equal(memlord_gc_callback_add(t->lord, any(-2), 0, test_gc_run, &t->gc),
                     MEMLORD_E_DEVICE);
    assert_int_equal(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_HIP), test_gc_run, &t->gc),
        MEMLORD_E_UNKNOWN);
    assert_int_equal(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_TYPE_COUNT), test_gc_run, &t->gc),
        MEMLORD_E_DEVICE);
}

/* -- when the next one is due -- */

static void a_metric_flapping_around_its_threshold_fires_once(void **state) {
    test_case *t = (test_case *)*state;
    int i;
    test_threshold(t->lord, ALLOCATED, 800);
    grow(t, cuda(0), 799);
    for (i = 0; i < 1000; i++) shrink(t, cuda(0), grow(t, cuda(0), 1));
    assert_int_equal(t->gc.runs, 1);
}

static void it_is_due_again_from_below_seven_eighths(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t step;
    test_threshold(t->lord, ALLOCATED, 800);
    grow(t, cuda(0), 699);
    step = grow(t, cuda(0), 1);
    grow(t, cuda(0), 100);
    assert_int_equal(t->gc.runs, 1);
    shrink(t, cuda(0), t->key); /* 700: not below */
    grow(t, cuda(0), 100);
    assert_int_equal(t->gc.runs, 1);
    shrink(t, cuda(0), t->key);
    shrink(t, cuda(0), step); /* 699 */
    grow(t, cuda(0), 100);
    assert_int_equal(t->gc.runs, 1);
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 2);
}

/* Down by so many blocks of 1 KiB from 64 MiB, and up again: runs after that. */
static uint64_t dip(test_case *t, uint64_t blocks) {
    uint64_t i, last;
    test_threshold(t->lord, ALLOCATED, 64 * MIB);
    for (i = 0; i < 64 * KIB; i++) grow(t, cuda(0), KIB);
    assert_int_equal(t->gc.runs, 1);
    last = t->key;
    for (i = 0; i < blocks; i++) shrink(t, cuda(0), last - 64 * i);
    for (i = 0; i < blocks; i++) grow(t, cuda(0), KIB);
    return t->gc.runs;
}

static void a_dip_to_seven_eighths_is_not_below(void **state) {
    assert_int_equal(dip((test_case *)*state, 8 * KIB), 1);
}

static void a_dip_just_below_is_seen_however_small_the_blocks(void **state) {
    assert_int_equal(dip((test_case *)*state, 8 * KIB + 1), 2);
}

static void it_is_due_again_after_an_eighth_of_growth(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, ALLOCATED, 800);
    grow(t, cuda(0), 850);
    assert_int_equal(t->gc.runs, 1);
    grow(t, cuda(0), 99);
    assert_int_equal(t->gc.runs, 1);
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 2);
    grow(t, cuda(0), 99);
    assert_int_equal(t->gc.runs, 2);
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 3);
}

static void free_while_collecting(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    (void)event;
    memlord_free(lord, memlord_device_cuda(0), *(uint64_t *)gc->user, NULL);
    gc->act = NULL;
}

static void growth_is_since_the_end_of_the_run(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key;
    test_threshold(t->lord, ALLOCATED, 800);
    key = grow(t, cuda(0), 50);
    t->gc.user = &key;
    t->gc.act = free_while_collecting;
    grow(t, cuda(0), 750); /* 750 when it ends */
    assert_int_equal(t->gc.runs, 1);
    grow(t, cuda(0), 99);
    assert_int_equal(t->gc.runs, 1);
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 2);
}

static void what_falls_far_enough_while_collecting_is_due_again(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key;
    test_threshold(t->lord, ALLOCATED, 800);
    key = grow(t, cuda(0), 500);
    t->gc.user = &key;
    t->gc.act = free_while_collecting;
    grow(t, cuda(0), 300);
    assert_int_equal(t->gc.runs, 1);
    grow(t, cuda(0), 499);
    assert_int_equal(t->gc.runs, 1);
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 2);
}

static void a_failed_run_waits_for_growth_too(void **state) {
    test_case *t = (test_case *)*state;
    t->gc.answer.ran = 0;
    test_threshold(t->lord, FREED, 800);
    shrink(t, cuda(0), grow(t, cuda(0), 800));
    assert_int_equal(t->gc.runs, 1);
    shrink(t, cuda(0), grow(t, cuda(0), 99));
    assert_int_equal(t->gc.runs, 1);
    shrink(t, cuda(0), grow(t, cuda(0), 1));
    assert_int_equal(t->gc.runs, 2);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_failed, 2);
}

static void a_run_that_reset_freed_is_due_at_the_threshold_again(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, FREED, 800);
    shrink(t, cuda(0), grow(t, cuda(0), 800));
    shrink(t, cuda(0), grow(t, cuda(0), 799));
    assert_int_equal(t->gc.runs, 1);
    shrink(t, cuda(0), grow(t, cuda(0), 1));
    assert_int_equal(t->gc.runs, 2);
}

static void a_new_strategy_makes_it_due(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, ALLOCATED, 800);
    grow(t, cuda(0), 800);
    grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, 1);
    test_threshold(t->lord, ALLOCATED, 800);
    assert_int_equal(t->gc.runs, 1); /* at the next call, not before */
    grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, 2);
    grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, 2);
}

static void a_reset_makes_it_due(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, ALLOCATED, 800);
    grow(t, cuda(0), 800);
    memlord_reset(t->lord);
    grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, 2);
    grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, 2);
}

static void a_change_of_band_does_not(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band bands[2];
    bands[0] = band_of(0, 50, ALLOCATED, 800, 0);
    bands[1] = band_of(50, 101, ALLOCATED, 800, 0);
    assert_ok(memlord_strategy_set(t->lord, all(), bands, 2));
    test_capacity(t, 2000, 0);
    grow(t, cuda(0), 800);
    assert_int_equal(t->gc.last.band, 0);
    test_capacity(t, 2000, 1600);
    grow(t, cuda(0), 0);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(t->gc.runs, 1);
    grow(t, cuda(0), 100);
    assert_int_equal(t->gc.runs, 2);
    assert_int_equal(t->gc.last.band, 1);
}

static void a_tiny_threshold_needs_growth_as_well(void **state) {
    test_case *t = (test_case *)*state;
    int i;
    test_threshold(t->lord, ALLOCATED, 3);
    grow(t, cuda(0), 3);
    for (i = 0; i < 10; i++) grow(t, cuda(0), 0);
    assert_int_equal(t->gc.runs, 1);
}

/* The rule, written out. */
typedef struct rule {
    memlord_metric metric;
    uint64_t threshold, end, runs, live, freed;
    int armed, ran;
} rule;

static rule rule_of(memlord_metric metric, uint64_t threshold, int ran) {
    rule r;
    memset(&r, 0, sizeof r);
    r.metric = metric;
    r.threshold = threshold;
    r.armed = 1;
    r.ran = ran;
    return r;
}

static uint64_t rule_value(const rule *r) {
    if (r->metric == ALLOCATED) return r->live;
    if (r->metric == FREED) return r->freed;
    return r->live > r->freed ? r->live : r->freed;
}

/* What every call sees: how far the metric went since the last run. */
static void rule_see(rule *r) {
    uint64_t value = rule_value(r), eighth = r->threshold / 8;
    if (value < r->threshold - eighth || (value > r->end && value - r->end >= eighth))
        r->armed = 1;
}

/* What a call that may run anything does then. */
static void rule_step(rule *r) {
    rule_see(r);
    if (!r->armed || rule_value(r) < r->threshold) return;
    r->runs++;
    r->armed = 0;
    if (r->ran) r->freed = 0;
    r->end = rule_value(r);
    rule_see(r);
}

static void storm(test_case *t, uint64_t threshold, uint64_t standing, uint64_t bytes) {
    rule r = rule_of(ALLOCATED, threshold, t->gc.answer.ran);
    uint64_t i, runs;
    grow(t, cuda(0), standing);
    r.live = standing;
    test_threshold(t->lord, ALLOCATED, threshold);
    for (i = 0; i < 100000; i++) {
        grow(t, cuda(0), bytes);
        r.live += bytes;
        rule_step(&r);
    }
    runs = t->gc.answer.ran ? stats_of(t->lord, cuda(0)).gc_runs
                            : stats_of(t->lord, cuda(0)).gc_failed;
    assert_int_equal(t->gc.runs, r.runs);
    assert_int_equal(runs, r.runs);
}

static void a_storm_above_the_threshold_runs_as_the_rule_says(void **state) {
    test_case *t = (test_case *)*state;
    storm(t, 10 * MIB, 15 * MIB, KIB);
    assert_int_equal(t->gc.runs, 1 + (99999 * KIB) / (10 * MIB / 8));
}

static void a_storm_of_failing_runs_does_too(void **state) {
    test_case *t = (test_case *)*state;
    t->gc.answer.ran = 0;
    storm(t, 10 * MIB, 0, KIB);
    assert_true(t->gc.runs > 50 && t->gc.runs < 100);
}

static void a_storm_that_does_not_grow_runs_once(void **state) {
    test_case *t = (test_case *)*state;
    int i;
    grow(t, cuda(0), 15 * MIB);
    test_threshold(t->lord, ALLOCATED, 10 * MIB);
    for (i = 0; i < 100000; i++) shrink(t, cuda(0), grow(t, cuda(0), KIB));
    assert_int_equal(t->gc.runs, 1);
}

/* Random work on several threads, one call at a time: at every call the rule. */
typedef struct walk {
    test_case *t;
    pthread_mutex_t lock;
    rule rule;
    uint64_t ops, next, wrong, seed;
    uint64_t most; /* of one block: with half the slots taken it is about the threshold */
    int poll;      /* runs wait for a poll, one call in so many */
} walk;

static void walk_step(walk *w, uint64_t *keys, uint64_t *sizes) {
    uint64_t slot = test_random(&w->seed) % 64;
    if (keys[slot]) {
        memlord_free(w->t->lord, memlord_device_cuda(0), keys[slot], NULL);
        w->rule.live -= sizes[slot];
        w->rule.freed += sizes[slot];
        keys[slot] = 0;
    } else {
        sizes[slot] = test_random(&w->seed) % w->most;
        keys[slot] = w->next += 64;
        memlord_alloc(w->t->lord, memlord_device_cuda(0), keys[slot], sizes[slot], NULL);
        w->rule.live += sizes[slot];
    }
    if (!w->poll) {
        rule_step(&w->rule);
    } else if (test_random(&w->seed) % (unsigned)w->poll == 0) {
        rule_see(&w->rule);
        memlord_gc_poll(w->t->lord, memlord_device_all());
        rule_step(&w->rule);
    } else {
        rule_see(&w->rule);
    }
    w->wrong += test_gc_runs(&w->t->gc) != w->rule.runs;
}

static void *walk_run(void *user) {
    walk *w = (walk *)user;
    uint64_t keys[64], sizes[64], i;
    memset(keys, 0, sizeof keys);
    memset(sizes, 0, sizeof sizes);
    for (i = 0; i < w->ops; i++) {
        pthread_mutex_lock(&w->lock);
        walk_step(w, keys, sizes);
        pthread_mutex_unlock(&w->lock);
        if (i % 64 == 0) sched_yield();
    }
    return NULL;
}

static void walk_on(test_case *t, unsigned n, memlord_metric metric, uint64_t threshold,
                    int poll) {
    pthread_t threads[8];
    walk w;
    unsigned i;
    memset(&w, 0, sizeof w);
    w.t = t;
    w.ops = 20000 / n * SCALE;
    w.next = (uint64_t)1 << 32;
    w.seed = n;
    w.rule = rule_of(metric, threshold, t->gc.answer.ran);
    w.most = threshold / 16 / n;
    w.poll = poll;
    pthread_mutex_init(&w.lock, NULL);
    test_threshold(t->lord, metric, threshold);
    for (i = 0; i < n; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, walk_run, &w), 0);
    for (i = 0; i < n; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_mutex_destroy(&w.lock);
    assert_int_equal(w.wrong, 0);
    assert_true(w.rule.runs > 3);
}

static void walk_threads(test_case *t, unsigned n, uint64_t threshold) {
    walk_on(t, n, ALLOCATED, threshold, 0);
}

static void the_rule_is_exact_for_small_thresholds(void **state) {
    walk_threads((test_case *)*state, 1, 4000);
}

static void the_rule_is_exact_for_large_thresholds(void **state) {
    walk_threads((test_case *)*state, 1, 64 * MIB + 5);
}

static void the_rule_is_exact_on_several_threads(void **state) {
    walk_threads((test_case *)*state, 2, 40000);
}

static void the_rule_is_exact_on_several_threads_with_large_thresholds(void **state) {
    walk_threads((test_case *)*state, 2, 64 * MIB);
}

static void the_rule_is_exact_for_what_is_freed(void **state) {
    walk_on((test_case *)*state, 1, FREED, 64 * MIB, 0);
}

static void the_rule_is_exact_for_what_is_freed_on_several_threads(void **state) {
    walk_on((test_case *)*state, 3, FREED, 3 * MIB, 0);
}

static void the_rule_is_exact_for_the_larger_of_the_two(void **state) {
    walk_on((test_case *)*state, 2, MEMLORD_METRIC_MAX, 16 * MIB, 0);
}

static void the_rule_is_exact_for_runs_that_fail(void **state) {
    test_case *t = (test_case *)*state;
    t->gc.answer.ran = 0;
    walk_on(t, 2, ALLOCATED, 16 * MIB, 0);
}

static void the_rule_is_exact_for_freed_bytes_that_no_run_takes_off(void **state) {
    test_case *t = (test_case *)*state;
    t->gc.answer.ran = 0;
    walk_on(t, 2, FREED, 16 * MIB, 0);
}

static void with_defer_the_rule_is_exact_at_every_poll(void **state) {
    walk_on((test_case *)*state, 2, ALLOCATED, 16 * MIB, 20);
}

static void with_defer_it_is_exact_for_what_is_freed(void **state) {
    walk_on((test_case *)*state, 2, FREED, 16 * MIB, 20);
}

/* Blocks so small that most of what a thread does is not published at once: up and down around
   the threshold and seven eighths of it. */
typedef struct slope {
    test_case *t;
    pthread_mutex_t lock;
    rule rule;
    uint64_t keys[1 << 14], n; /* a stack of blocks of 1 KiB */
    uint64_t ops, next, wrong, seed, floor, ceiling;
    int up;
} slope;

static void slope_step(slope *s) {
    memlord_device device = memlord_device_cuda(0);
    if (s->rule.live <= s->floor) s->up = 1;
    if (s->rule.live >= s->ceiling) s->up = 0;
    if (test_random(&s->seed) % 1000 == 0) s->up = !s->up;
    if (s->up) {
        s->keys[s->n] = s->next += 64;
        memlord_alloc(s->t->lord, device, s->keys[s->n++], KIB, NULL);
        s->rule.live += KIB;
    } else {
        memlord_free(s->t->lord, device, s->keys[--s->n], NULL);
        s->rule.live -= KIB;
        s->rule.freed += KIB;
    }
    rule_step(&s->rule);
    s->wrong += test_gc_runs(&s->t->gc) != s->rule.runs;
}

static void *slope_run(void *user) {
    slope *s = (slope *)user;
    uint64_t i;
    for (i = 0; i < s->ops; i++) {
        pthread_mutex_lock(&s->lock);
        slope_step(s);
        pthread_mutex_unlock(&s->lock);
        if (i % 100 == 0) sched_yield();
    }
    return NULL;
}

static void slope_threads(test_case *t, unsigned n) {
    static slope s;
    pthread_t threads[4];
    unsigned i;
    memset(&s, 0, sizeof s);
    s.t = t;
    s.ops = 100000 / n * SCALE;
    s.next = (uint64_t)1 << 32;
    s.seed = n;
    s.rule = rule_of(ALLOCATED, 8 * MIB, 1);
    s.floor = 7 * MIB - 20 * KIB;
    s.ceiling = 8 * MIB + 200 * KIB;
    pthread_mutex_init(&s.lock, NULL);
    test_threshold(t->lord, ALLOCATED, 8 * MIB);
    for (i = 0; i < n; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, slope_run, &s), 0);
    for (i = 0; i < n; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_mutex_destroy(&s.lock);
    assert_int_equal(s.wrong, 0);
    assert_true(s.rule.runs > 3);
}

static void the_rule_is_exact_for_small_blocks(void **state) {
    slope_threads((test_case *)*state, 1);
}

static void the_rule_is_exact_for_small_blocks_of_several_threads(void **state) {
    slope_threads((test_case *)*state, 4);
}

/* A threshold that is a percent of a capacity that changes. */
static void the_rule_is_exact_while_the_capacity_changes(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(0, 101, ALLOCATED, 0, 50);
    rule r = rule_of(ALLOCATED, 1, 1);
    uint64_t seed = 3, keys[64], sizes[64], i, slot;
    memset(keys, 0, sizeof keys);
    memset(sizes, 0, sizeof sizes);
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    for (i = 0; i < 20000 * SCALE; i++) {
        if (i % 50 == 0) {
            uint64_t capacity = 8 * MIB + test_random(&seed) % (24 * MIB);
            test_capacity(t, capacity, 0);
            assert_ok(memlord_gc_poll(t->lord, all()));
            r.threshold = capacity / 2;
            rule_step(&r);
        }
        slot = test_random(&seed) % 64;
        if (keys[slot]) {
            shrink(t, cuda(0), keys[slot]);
            r.live -= sizes[slot];
            keys[slot] = 0;
        } else {
            sizes[slot] = test_random(&seed) % (512 * KIB);
            keys[slot] = grow(t, cuda(0), sizes[slot]);
            r.live += sizes[slot];
        }
        rule_step(&r);
        if (t->gc.runs != r.runs) fail_msg("at call %d", (int)i);
    }
    assert_true(r.runs > 10);
}

/* -- what a callback may do -- */

static void use_everything(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    memlord_result *bad = (memlord_result *)gc->user;
    uint64_t i;
    char line[256];
    test_text text;
    memset(&text, 0, sizeof text);
    for (i = 1; i <= 100; i++) {
        *bad |= memlord_alloc(lord, event->device, i << 32, 1000, NULL);
        *bad |= memlord_alloc(lord, memlord_device_cpu(), i << 32, 1000, NULL);
    }
    for (i = 1; i <= 100; i++) {
        *bad |= memlord_free(lord, event->device, i << 32, NULL);
        *bad |= memlord_free(lord, memlord_device_cpu(), i << 32, NULL);
    }
    *bad |= memlord_write(lord, MEMLORD_FORMAT_JSON, test_text_write, &text);
    *bad |= memlord_capacity_sample(lord, event->device);
    *bad |= memlord_gc_poll(lord, memlord_device_all());
    memlord_retire(lord, memlord_device_all());
    memlord_summary(lord, line, sizeof line);
    free(text.data);
}

static void a_callback_may_call_the_ledger(void **state) {
    test_case *t = (test_case *)*state;
    memlord_result bad = MEMLORD_OK;
    test_capacity(t, 100000, 0);
    t->gc.user = &bad;
    t->gc.act = use_everything;
    test_threshold(t->lord, ALLOCATED, 1000);
    grow(t, cuda(0), 1000);
    assert_int_equal(bad, MEMLORD_OK);
    assert_int_equal(t->gc.runs, 1); /* no run inside a run */
    assert_int_equal(memlord_allocated(t->lord, all()), 1000);
}

static void free_one(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    (void)event;
    memlord_free(lord, memlord_device_cuda(0), *(uint64_t *)gc->user, NULL);
}

static void what_the_callback_frees_is_not_left_in_freed(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = grow(t, cuda(0), 300);
    t->gc.user = &key;
    t->gc.act = free_one;
    fire(t);
    assert_int_equal(memlord_freed(t->lord, cuda(0)), 0);
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).total_freed, 1300);
}

static void a_callback_may_free_the_block_that_fired(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = t->key + 64;
    t->gc.user = &key;
    t->gc.act = free_one;
    test_threshold(t->lord, ALLOCATED, 1000);
    assert_int_equal(grow(t, cuda(0), 1000), key);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), 0);
    assert_int_equal(memlord_free(t->lord, cuda(0), key, NULL), MEMLORD_E_UNKNOWN);
    assert_balanced(t->lord, cuda(0));
}

static void a_block_whose_free_fired_is_dead_to_the_callback(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key;
    test_threshold(t->lord, FREED, 1000);
    key = grow(t, cuda(0), 1000);
    t->gc.user = &key;
    t->gc.act = free_one;
    shrink(t, cuda(0), key);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(stats_of(t->lord, cuda(0)).unknown_frees, 1);
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), 0);
}

static void set_a_strategy(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    memlord_band band = band_of(0, 101, ALLOCATED, 5000, 0);
    (void)event;
    *(memlord_result *)gc->user = memlord_strategy_set(lord, all(), &band, 1);
}

static void a_callback_may_set_the_strategy(void **state) {
    test_case *t = (test_case *)*state;
    memlord_result result = MEMLORD_E_STATE;
    t->gc.user = &result;
    t->gc.act = set_a_strategy;
    test_threshold(t->lord, ALLOCATED, 1000);
    grow(t, cuda(0), 1000);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(result, MEMLORD_OK);
    t->gc.act = NULL;
    grow(t, cuda(0), 3999);
    assert_int_equal(t->gc.runs, 1);
    grow(t, cuda(0), 1);
    assert_int_equal(t->gc.runs, 2);
    assert_int_equal(t->gc.last.threshold, 5000);
}

static void run_again(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    *(memlord_result *)gc->user =
        memlord_gc_run(lord, event->device, MEMLORD_REASON_HOST, 0, NULL);
}

static void a_run_inside_a_run_is_refused(void **state) {
    test_case *t = (test_case *)*state;
    memlord_result result = MEMLORD_OK;
    t->gc.user = &result;
    t->gc.act = run_again;
    fire(t);
    assert_int_equal(result, MEMLORD_E_STATE);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 1);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_failed, 0);
}

static void fill_another_device(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    if (event->device.index) return;
    memlord_alloc(lord, memlord_device_cuda(1), 0x100000, 1000, NULL);
    *(uint64_t *)gc->user = gc->runs;
}

static void another_device_may_run_inside_a_run(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t runs_inside = 0;
    t->gc.user = &runs_inside;
    t->gc.act = fill_another_device;
    test_threshold(t->lord, ALLOCATED, 1000);
    grow(t, cuda(0), 1000);
    assert_int_equal(runs_inside, 2);
    assert_int_equal(t->gc.last.device.index, 1);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 1);
    assert_int_equal(stats_of(t->lord, cuda(1)).gc_runs, 1);
}

/* -- callbacks that come and go meanwhile -- */

static void remove_myself(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    *(memlord_result *)gc->user =
        memlord_gc_callback_remove(lord, any(event->device.type), test_gc_run, gc);
}

static void a_callback_may_remove_itself(void **state) {
    test_case *t = (test_case *)*state;
    memlord_result result = MEMLORD_E_STATE;
    t->gc.user = &result;
    t->gc.act = remove_myself;
    fire(t);
    assert_int_equal(result, MEMLORD_OK);
    assert_int_equal(memlord_freed(t->lord, cuda(0)), 0);
    shrink(t, cuda(0), grow(t, cuda(0), 5000));
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL),
                     MEMLORD_E_UNKNOWN);
}

/* Removes, and may put back, parts when the callback of the fakes runs. */
typedef struct change {
    part *remove, *add;
    memlord_result bad;
} change;

static void change_parts(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    change *c = (change *)gc->user;
    if (c->remove)
        c->bad |=
            memlord_gc_callback_remove(lord, any(event->device.type), run_part, c->remove);
    if (c->add)
        c->bad |= memlord_gc_callback_add(lord, any(event->device.type), 0, run_part, c->add);
    gc->act = NULL;
}

static void one_that_is_removed_meanwhile_is_not_called(void **state) {
    test_case *t = (test_case *)*state;
    part parts[3];
    change c = {NULL, NULL, MEMLORD_OK};
    char order[32];
    use_parts(t, parts, order);
    assert_ok(memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), run_part, &parts[1]));
    assert_ok(memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), run_part, &parts[2]));
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, test_gc_run, &t->gc));
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, run_part, &parts[1]));
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, run_part, &parts[2]));
    c.remove = &parts[1];
    t->gc.user = &c;
    t->gc.act = change_parts;
    fire(t);
    assert_int_equal(c.bad, MEMLORD_OK);
    assert_string_equal(order, "02");
    fire(t);
    assert_string_equal(order, "0202");
}

static void one_that_ran_already_may_be_removed(void **state) {
    test_case *t = (test_case *)*state;
    part parts[3];
    change c = {NULL, NULL, MEMLORD_OK};
    char order[32];
    use_parts(t, parts, order);
    assert_ok(memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), run_part, &parts[2]));
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, test_gc_run, &t->gc));
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, run_part, &parts[2]));
    c.remove = &parts[0];
    t->gc.user = &c;
    t->gc.act = change_parts;
    fire(t);
    assert_int_equal(c.bad, MEMLORD_OK);
    assert_string_equal(order, "012"); /* each once, whatever moved up */
    fire(t);
    assert_string_equal(order, "01212");
}

static void one_that_is_added_meanwhile_runs_from_the_next_on(void **state) {
    test_case *t = (test_case *)*state;
    part late;
    change c = {NULL, NULL, MEMLORD_OK};
    char order[32] = "";
    memset(&late, 0, sizeof late);
    late.order = order;
    c.add = &late;
    t->gc.user = &c;
    t->gc.act = change_parts;
    fire(t);
    assert_int_equal(c.bad, MEMLORD_OK);
    assert_int_equal(late.runs, 0);
    fire(t);
    assert_int_equal(late.runs, 1);
    assert_ok(memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), run_part, &late));
}

/* Adds a callback each time it runs; one that removed itself before is added again. */
static void add_myself(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    const memlord_device sel = gc->user ? event->device : any(event->device.type);
    if (gc->user) (void)memlord_gc_callback_remove(lord, sel, test_gc_run, gc);
    (void)memlord_gc_callback_add(lord, sel, 0, test_gc_run, gc);
    if (gc->runs > 1000) gc->act = NULL; /* the failure of a run that does not end */
}

static void a_run_calls_nothing_that_is_added_in_it(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t doubled;
    t->gc.act = add_myself;
    for (doubled = 1; doubled <= 8; doubled *= 2) {
        t->gc.runs = 0;
        assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
        assert_int_equal(t->gc.runs, doubled);
    }
}

static void a_callback_that_puts_itself_back_runs_once_a_run(void **state) {
    test_case *t = (test_case *)*state;
    int i;
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    assert_ok(memlord_gc_callback_add(t->lord, cuda(0), 0, test_gc_run, &t->gc));
    t->gc.act = add_myself;
    t->gc.user = t;
    for (i = 1; i < 5; i++) {
        fire(t); /* inside a free */
        assert_int_equal(t->gc.runs, i);
    }
}

/* -- a callback that takes its time -- */

/* A callback that is inside a run of cuda:0 until the gate opens. */
typedef struct slow {
    test_case *t;
    test_gate gate;
    int left, calling, left_at_return;
    uint64_t others; /* runs of other devices */
    uint64_t twice;  /* runs of cuda:0 while one was running */
    int inside;
} slow;

static memlord_gc_result run_slowly(void *user, memlord *lord, const memlord_gc_event *event) {
    slow *s = (slow *)user;
    memlord_gc_result result;
    (void)lord;
    memset(&result, 0, sizeof result);
    result.ran = 1;
    if (event->device.index) {
        __atomic_add_fetch(&s->others, 1, __ATOMIC_SEQ_CST);
        return result;
    }
    s->twice += __atomic_exchange_n(&s->inside, 1, __ATOMIC_SEQ_CST) != 0;
    test_gate_pass(&s->gate);
    __atomic_store_n(&s->inside, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&s->left, 1, __ATOMIC_SEQ_CST);
    return result;
}

static void *cross_slowly(void *user) {
    slow *s = (slow *)user;
    memlord_alloc(s->t->lord, memlord_device_cuda(0), (uint64_t)1 << 40, 800, NULL);
    return NULL;
}

/* Replaces the callback of the fakes; a thread is inside it when this returns. */
static void enter_slowly(test_case *t, slow *s, pthread_t *thread) {
    s->t = t;
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, run_slowly, s));
    test_threshold(t->lord, ALLOCATED, 800);
    assert_int_equal(pthread_create(thread, NULL, cross_slowly, s), 0);
    assert_true(test_gate_came(&s->gate, 1));
}

static void a_blocked_callback_blocks_nobody_else(void **state) {
    test_case *t = (test_case *)*state;
    slow s = {NULL, TEST_GATE, 0, 0, 0, 0, 0, 0};
    pthread_t thread;
    int i;
    enter_slowly(t, &s, &thread);
    for (i = 0; i < 1000; i++) grow(t, cuda(0), 800);
    shrink(t, cuda(0), t->key);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL),
                     MEMLORD_E_STATE);
    grow(t, cuda(1), 800);
    assert_int_equal(s.others, 1);
    grow(t, cpu(), 800);
    free(report_of(t->lord, MEMLORD_FORMAT_TEXT));
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), 1000 * 800);
    test_gate_open(&s.gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(s.twice, 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 1);
    grow(t, cuda(0), 99); /* growth counts from the end of the run */
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 1);
    grow(t, cuda(0), 1);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_runs, 2);
}

static void *remove_slowly(void *user) {
    slow *s = (slow *)user;
    __atomic_store_n(&s->calling, 1, __ATOMIC_SEQ_CST);
    memlord_gc_callback_remove(s->t->lord, any(MEMLORD_DEVICE_CUDA), run_slowly, s);
    s->left_at_return = __atomic_load_n(&s->left, __ATOMIC_SEQ_CST);
    return NULL;
}

static void remove_waits_for_a_run_on_another_thread(void **state) {
    test_case *t = (test_case *)*state;
    slow s = {NULL, TEST_GATE, 0, 0, 0, 0, 0, 0};
    pthread_t runner, remover;
    int i;
    enter_slowly(t, &s, &runner);
    assert_int_equal(pthread_create(&remover, NULL, remove_slowly, &s), 0);
    while (!__atomic_load_n(&s.calling, __ATOMIC_SEQ_CST)) sched_yield();
    for (i = 0; i < 1000; i++) sched_yield(); /* a call that does not wait would be back */
    grow(t, cuda(0), 10);                     /* nor does the wait hold a lock */
    test_gate_open(&s.gate);
    assert_int_equal(pthread_join(runner, NULL), 0);
    assert_int_equal(pthread_join(remover, NULL), 0);
    assert_int_equal(s.left_at_return, 1);
    grow(t, cuda(0), 10000);
    assert_int_equal(s.gate.came, 1);
}

static void remove_does_not_wait_for_others(void **state) {
    test_case *t = (test_case *)*state;
    slow s = {NULL, TEST_GATE, 0, 0, 0, 0, 0, 0};
    pthread_t thread;
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_HIP), 0, test_gc_run, &t->gc));
    enter_slowly(t, &s, &thread);
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_HIP), test_gc_run, &t->gc));
    test_gate_open(&s.gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* -- deferred to the safe point -- */

static void with_defer_no_track_call_runs_anything(void **state) {
    test_case *t = (test_case *)*state;
    memlord_realloc_token token;
    uint64_t key;
    test_threshold(t->lord, MEMLORD_METRIC_MAX, 1000);
    key = grow(t, cuda(0), 5000);
    grow(t, cuda(0), 5000);
    assert_ok(memlord_track(t->lord, cuda(0), 0x900000, 5000, NULL));
    assert_ok(memlord_realloc(t->lord, cuda(0), key, key, 9000, NULL));
    assert_ok(memlord_realloc_begin(t->lord, cuda(0), key, &token));
    assert_ok(memlord_realloc_end(t->lord, &token, key, 19000, NULL));
    assert_ok(memlord_arena_add(t->lord, cuda(0), 5000, NULL));
    assert_ok(memlord_arena_sub(t->lord, cuda(0), 5000, NULL));
    assert_ok(memlord_move(t->lord, cuda(0), key, cuda(1), key, 5000, NULL, NULL));
    shrink(t, cuda(0), t->key);
    assert_ok(memlord_release(t->lord, cuda(0), 0x900000, NULL));
    assert_int_equal(t->gc.runs, 0);
}

static void with_defer_a_poll_runs_what_is_due(void **state) {
    test_case *t = (test_case *)*state;
    test_threshold(t->lord, ALLOCATED, 1000);
    grow(t, cuda(0), 1000);
    grow(t, cuda(1), 1000);
    grow(t, cuda(2), 999);
    assert_ok(memlord_gc_poll(t->lord, cpu()));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_gc_poll(t->lord, cuda(1)));
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.device.index, 1);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(t->gc.runs, 2);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(t->gc.runs, 2);
}

static void with_defer_a_dip_between_polls_re_arms(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key;
    test_threshold(t->lord, ALLOCATED, 1000);
    key = grow(t, cuda(0), 1000);
    assert_ok(memlord_gc_poll(t->lord, all()));
    shrink(t, cuda(0), key);
    grow(t, cuda(0), 1000);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(t->gc.runs, 2);
}

static void with_defer_an_explicit_run_runs_at_once(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_int_equal(t->gc.runs, 1);
}

/* -- explicit -- */

static void a_run_may_be_asked_for(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t reclaimed = 77;
    t->gc.answer.reclaimed = 4096;
    grow(t, cuda(0), 300);
    shrink(t, cuda(0), grow(t, cuda(0), 50));
    assert_ok(
        memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_FRAGMENTATION, 0, &reclaimed));
    assert_int_equal(reclaimed, 4096);
    assert_int_equal(t->gc.last.reason, MEMLORD_REASON_FRAGMENTATION);
    assert_true(t->gc.last.band == SIZE_MAX);
    assert_int_equal(t->gc.last.value, 300);
    assert_int_equal(t->gc.last.needed, 0);
    assert_int_equal(t->gc.last.device_runs, 1);
    assert_int_equal(memlord_freed(t->lord, cuda(0)), 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_reclaimed, 4096);
}

static void a_run_that_none_could_do_says_so(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t reclaimed = 77;
    t->gc.answer.ran = 0;
    shrink(t, cuda(0), grow(t, cuda(0), 50));
    assert_int_equal(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, &reclaimed),
                     MEMLORD_E_STATE);
    assert_int_equal(reclaimed, 0);
    assert_int_equal(memlord_freed(t->lord, cuda(0)), 50);
    assert_int_equal(stats_of(t->lord, cuda(0)).gc_failed, 1);
}

static void without_a_callback_there_is_nothing_to_run(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t reclaimed = 77;
    grow(t, hip(), 50);
    assert_int_equal(memlord_gc_run(t->lord, hip(), MEMLORD_REASON_HOST, 0, &reclaimed),
                     MEMLORD_E_UNKNOWN);
    assert_int_equal(reclaimed, 0);
    assert_int_equal(stats_of(t->lord, hip()).gc_failed, 0);
}

static void a_run_of_no_device_or_reason_is_refused(void **state) {
    test_case *t = (test_case *)*state;
    const int host = MEMLORD_REASON_HOST;
    memlord_device bad = memlord_device_make(MEMLORD_DEVICE_TYPE_COUNT, 0);
    assert_int_equal(memlord_gc_run(t->lord, cuda(0), -1, 0, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_COUNT, 0, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_gc_run(t->lord, bad, host, 0, NULL), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_gc_run(t->lord, all(), host, 0, NULL), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_gc_poll(t->lord, bad), MEMLORD_E_DEVICE);
    assert_int_equal(t->gc.runs, 0);
}

static void a_null_ledger_collects_nothing(void **state) {
    uint64_t reclaimed = 77;
    (void)state;
    assert_ok(memlord_gc_callback_add(NULL, any(MEMLORD_DEVICE_CPU), 0, test_gc_run, NULL));
    assert_ok(memlord_gc_run(NULL, cpu(), MEMLORD_REASON_HOST, 4096, &reclaimed));
    assert_int_equal(reclaimed, 0);
    assert_ok(memlord_gc_callback_remove(NULL, any(MEMLORD_DEVICE_CPU), test_gc_run, NULL));
}

/* -- threads -- */

typedef struct race {
    memlord *lord;
    pthread_barrier_t start;
    uint64_t blocks, bytes;
    int devices;
    int inside[2];
    uint64_t runs[2], twice, next;
} race;

static memlord_gc_result run_raced(void *user, memlord *lord, const memlord_gc_event *event) {
    race *r = (race *)user;
    memlord_gc_result result;
    int i, device = event->device.index;
    memset(&result, 0, sizeof result);
    result.ran = 1;
    if (__atomic_exchange_n(&r->inside[device], 1, __ATOMIC_SEQ_CST))
        __atomic_add_fetch(&r->twice, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&r->runs[device], 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < 20; i++) sched_yield();
    memlord_allocated(lord, event->device);
    __atomic_store_n(&r->inside[device], 0, __ATOMIC_SEQ_CST);
    return result;
}

static void *race_run(void *user) {
    race *r = (race *)user;
    uint64_t i, id = __atomic_add_fetch(&r->next, 1, __ATOMIC_RELAXED);
    pthread_barrier_wait(&r->start);
    for (i = 0; i < r->blocks; i++)
        memlord_alloc(r->lord, memlord_device_cuda((int)(i % (uint64_t)r->devices)),
                      (id << 40) + i * 64, r->bytes, NULL);
    return NULL;
}

static void race_across(test_case *t, int devices, uint64_t blocks, uint64_t bytes,
                        uint64_t threshold) {
    pthread_t threads[8];
    race r;
    int i;
    memset(&r, 0, sizeof r);
    r.lord = t->lord;
    r.blocks = blocks;
    r.bytes = bytes;
    r.devices = devices;
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, run_raced, &r));
    test_threshold(t->lord, ALLOCATED, threshold);
    assert_int_equal(pthread_barrier_init(&r.start, NULL, 8), 0);
    for (i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race_run, &r), 0);
    for (i = 0; i < 8; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&r.start);
    assert_int_equal(r.twice, 0);
    for (i = 0; i < devices; i++) {
        uint64_t live = memlord_allocated(t->lord, cuda(i));
        assert_int_equal(live, 8 * blocks / (uint64_t)devices * bytes);
        assert_true(r.runs[i] >= 1);
        assert_true(r.runs[i] <= 1 + (live - threshold) / (threshold / 8));
        assert_int_equal(stats_of(t->lord, cuda(i)).gc_runs, r.runs[i]);
    }
    assert_ok(memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), run_raced, &r));
}

static void eight_threads_that_just_cross_run_once(void **state) {
    test_case *t = (test_case *)*state;
    race_across(t, 1, 1000, 1000, 8 * 1000 * 1000);
}

static void eight_threads_run_at_most_once_per_eighth_of_growth(void **state) {
    test_case *t = (test_case *)*state;
    race_across(t, 1, 2000 * SCALE, KIB, 2 * MIB);
}

static void eight_threads_on_two_devices_run_each_on_its_own(void **state) {
    test_case *t = (test_case *)*state;
    race_across(t, 2, 2000 * SCALE, KIB, MIB);
}

/* Callbacks come and go, strategies change, while others cross. */
typedef struct churn {
    memlord *lord;
    int stop;
    uint64_t bad, next;
} churn;

static memlord_gc_result run_checked(void *user, memlord *lord, const memlord_gc_event *event) {
    int *registered = (int *)user;
    memlord_gc_result result;
    (void)lord;
    (void)event;
    memset(&result, 0, sizeof result);
    result.ran = 1;
    if (!__atomic_load_n(registered, __ATOMIC_SEQ_CST)) abort();
    return result;
}

static void *churn_blocks(void *user) {
    churn *c = (churn *)user;
    uint64_t id = __atomic_add_fetch(&c->next, 1, __ATOMIC_RELAXED), i = 0;
    while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
        uint64_t key = (id << 40) + (i++ % 64) * 64;
        memlord_alloc(c->lord, memlord_device_cuda(0), key, 500, NULL);
        if (i % 2) memlord_free(c->lord, memlord_device_cuda(0), key, NULL);
    }
    return NULL;
}

static void callbacks_may_change_while_threads_cross(void **state) {
    test_case *t = (test_case *)*state;
    pthread_t threads[3];
    churn c;
    uint64_t i;
    int registered = 0;
    memset(&c, 0, sizeof c);
    c.lord = t->lord;
    for (i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn_blocks, &c), 0);
    for (i = 0; i < 300 * SCALE; i++) {
        test_threshold(t->lord, FREED, 1000 + i % 5000);
        __atomic_store_n(&registered, 1, __ATOMIC_SEQ_CST);
        c.bad += memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, run_checked,
                                         &registered) != MEMLORD_OK;
        sched_yield();
        c.bad += memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), run_checked,
                                            &registered) != MEMLORD_OK;
        __atomic_store_n(&registered, 0, __ATOMIC_SEQ_CST);
    }
    __atomic_store_n(&c.stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 3; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(c.bad, 0);
    assert_balanced(t->lord, cuda(0));
}

/* Everything at once, by threads that do what comes to their mind. */
typedef struct chaos {
    memlord *lord;
    uint64_t next, rounds;
} chaos;

static memlord_gc_result run_any(void *user, memlord *lord, const memlord_gc_event *event) {
    memlord_gc_result result;
    (void)user;
    memset(&result, 0, sizeof result);
    result.ran = event->device_runs % 4 != 0;
    result.family = event->device_runs % 8 == 1;
    memlord_allocated(lord, event->device);
    return result;
}

static int ask_any(void *user, memlord_device device, memlord_capacity *out) {
    uint64_t calls = __atomic_add_fetch(&((chaos *)user)->next, 1, __ATOMIC_RELAXED);
    (void)device;
    out->total = 4 * MIB + calls % 7 * MIB;
    out->used = calls % 11 * (MIB / 2);
    return calls % 13 == 0;
}

static int done_now(void *user) {
    (void)user;
    return 1;
}

static int try_any(void *user, uint64_t bytes, uint64_t *storage) {
    (void)bytes;
    *storage = *(uint64_t *)user;
    return *storage % 128 ? 0 : -1;
}

static void chaos_track(chaos *c, memlord_device device, uint64_t key, uint64_t random) {
    memlord_retry once;
    memlord_ticket ticket;
    memlord_fence fence;
    memset(&once, 0, sizeof once);
    once.multiplier = 1;
    memset(&fence, 0, sizeof fence);
    fence.done = done_now;
    switch (random % 8) {
    case 0: memlord_free(c->lord, device, key, NULL); break;
    case 1: memlord_free_deferred(c->lord, device, key, fence, NULL); break;
    case 2: memlord_block_use(c->lord, device, key, fence); break;
    case 3:
        memlord_alloc_retry(c->lord, device, 1000, try_any, &key, &once, &key, NULL);
        break;
    case 4:
        if (memlord_reserve(c->lord, device, 5000, &ticket)) break;
        memlord_alloc(c->lord, device, key, 5000, NULL);
        memlord_reserve_commit(c->lord, ticket);
        break;
    default: memlord_alloc(c->lord, device, key, random % (64 * KIB), NULL);
    }
}

static void chaos_configure(chaos *c, memlord_device device, uint64_t random) {
    memlord_band band = band_of(0, random % 2 ? 101 : 60, (memlord_metric)(random % 5),
                                random % MIB + 1, (double)(random % 50));
    const memlord_device sels[] = {memlord_device_all(), any(device.type), device};
    const memlord_device sel = sels[random / 2048 % 3];
    memlord_capacity capacity;
    char line[512];
    int type = device.type;
    switch (random / 64 % 20) {
    case 0: memlord_strategy_set(c->lord, sel, &band, 1); break;
    case 1: memlord_strategy_set(c->lord, sel, NULL, 0); break;
    case 2: memlord_capacity_source_set(c->lord, type, ask_any, c); break;
    case 3: memlord_capacity_source_set(c->lord, type, NULL, NULL); break;
    case 4: memlord_gc_callback_add(c->lord, sel, 0, run_any, c); break;
    case 5: memlord_gc_callback_remove(c->lord, sel, run_any, c); break;
    case 6: memlord_limit_set(c->lord, device, random % (16 * MIB)); break;
    case 7: memlord_limit_set_fraction(c->lord, device, 0.5); break;
    case 8:
        memlord_device_share(c->lord, device, random % 2 ? memlord_device_cpu() : device);
        break;
    case 9: memlord_poller_start(c->lord, 10); break;
    case 10: memlord_poller_stop(c->lord); break;
    case 11: memlord_reset(c->lord); break;
    case 12: memlord_capacity_get(c->lord, device, &capacity); break;
    case 13: memlord_capacity_sample(c->lord, device); break;
    case 14: memlord_gc_run(c->lord, device, MEMLORD_REASON_HOST, 0, NULL); break;
    case 15: memlord_explain(c->lord, device, random, line, sizeof line); break;
    case 16: memlord_pressure_level(c->lord, device); break;
    case 17: memlord_strategy_unset(c->lord, sel); break;
    case 18: memlord_pool_add(c->lord, device, (int64_t)(random % MIB)); break;
    default: memlord_gc_poll(c->lord, memlord_device_all());
    }
}

static void *chaos_run(void *user) {
    chaos *c = (chaos *)user;
    uint64_t id = __atomic_add_fetch(&c->next, 1, __ATOMIC_RELAXED), seed = id, i;
    for (i = 0; i < c->rounds; i++) {
        uint64_t random = test_random(&seed);
        memlord_device device = random % 5 == 4 ? memlord_device_cpu()
                                                : memlord_device_cuda((int)(random % 5));
        chaos_track(c, device, (id << 40) + random / 64 % 64 * 64, random / 4096);
        if (random >> 60 == 0) chaos_configure(c, device, test_random(&seed));
    }
    return NULL;
}

static void everything_may_happen_at_once(void **state) {
    test_case *t = (test_case *)*state;
    pthread_t threads[4];
    chaos c;
    int i;
    memset(&c, 0, sizeof c);
    c.lord = t->lord;
    c.rounds = 5000 * SCALE;
    assert_ok( /* it is for one device at a time */
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    for (i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, chaos_run, &c), 0);
    for (i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    memlord_poller_stop(t->lord);
    memlord_retire(t->lord, all());
    assert_int_equal(memlord_pending(t->lord, all()), 0);
    assert_ok(memlord_strategy_set(t->lord, all(), NULL, 0));
    for (i = 0; i < 4; i++) assert_ok(memlord_device_share(t->lord, cuda(i), cuda(i)));
    t->source.fail = 1; /* so that the limit alone counts */
    memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CPU, test_source_ask, &t->source);
    memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, NULL, NULL);
    for (i = 0; i < 5; i++) {
        memlord_device device = i < 4 ? cuda(i) : cpu();
        int64_t headroom;
        assert_ok(memlord_limit_set(t->lord, device, (uint64_t)1 << 40));
        headroom = memlord_headroom(t->lord, device); /* nothing stayed reserved */
        assert_int_equal((uint64_t)headroom + memlord_allocated(t->lord, device),
                         (uint64_t)1 << 40);
    }
}

static int setup_threads(void **state) { return test_open_fakes(state, 0); }
static int setup_threads_defer(void **state) {
    return test_open_fakes(state, MEMLORD_FLAG_DEFER);
}

static void a_run_tells_the_callbacks_how_much_is_needed(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t reclaimed = 7;
    (void)grow(t, cuda(0), 100);
    t->gc.answer.reclaimed = 30;
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_LIMIT, 4096, &reclaimed));
    assert_int_equal(t->gc.last.needed, 4096);
    assert_int_equal(reclaimed, 30);
}

static void a_need_over_the_capacity_reaches_the_callbacks_as_it_is(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t reclaimed = 7;
    (void)grow(t, cuda(0), 100);
    test_capacity(t, 1000, 100);
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_OOM, 1001, &reclaimed));
    assert_int_equal(t->gc.last.needed, 1001);
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_OOM, UINT64_MAX, &reclaimed));
    assert_true(t->gc.last.needed == UINT64_MAX);
    assert_int_equal(t->gc.runs, 2);
    assert_int_equal(reclaimed, t->gc.answer.reclaimed);
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), 100);
}

static void a_run_that_fails_reclaimed_nothing(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t reclaimed = 7;
    assert_int_equal(memlord_gc_run(t->lord, cpu(), MEMLORD_REASON_HOST, 1, &reclaimed),
                     MEMLORD_E_UNKNOWN);
    assert_int_equal(reclaimed, 0);
    reclaimed = 7;
    assert_int_equal(memlord_gc_run(t->lord, cuda(0), 99, 1, &reclaimed), MEMLORD_E_INVALID);
    assert_int_equal(reclaimed, 0);
    reclaimed = 7;
    assert_ok(memlord_gc_run(NULL, cuda(0), MEMLORD_REASON_HOST, 1, &reclaimed));
    assert_int_equal(reclaimed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_FAKES(the_default_strategy_runs_no_quiet_callback),
        TEST_FAKES(a_strategy_of_the_hosts_runs_it),
        TEST_FAKES(after_a_run_freed_starts_over),
        TEST_FAKES(live_bytes_and_totals_are_untouched),
        TEST_FAKES(runs_and_what_they_reclaimed_are_counted),
        TEST_FAKES(what_they_reclaimed_does_not_wrap),
        TEST_FAKES(a_run_that_could_not_resets_nothing),
        TEST_FAKES(other_devices_keep_what_they_freed),
        TEST_FAKES(a_family_run_starts_over_every_device_of_the_type),
        TEST_FAKES(what_the_callback_frees_is_not_left_in_freed),
        TEST_FAKES(a_reset_takes_the_counts_to_0),
        TEST_FAKES(the_event_says_what_fired),
        TEST_FAKES(an_unknown_used_percent_is_minus_1),
        TEST_FAKES(runs_are_numbered_per_device_and_over_all),
        TEST_FAKES(callbacks_run_in_the_order_they_came),
        TEST_FAKES(results_of_several_callbacks_add_up),
        TEST_FAKES(it_failed_only_if_all_did),
        TEST_FAKES(remove_takes_off_the_first_that_is_the_same),
        TEST_FAKES(a_devices_callbacks_run_first_then_its_types_then_alls),
        TEST_FAKES(a_callback_serves_only_its_device),
        TEST_FAKES(a_callback_runs_only_for_its_reasons),
        TEST_FAKES(a_strategy_for_one_device_runs_a_quiet_callback_there_alone),
        TEST_FAKES(reasons_that_do_not_exist_are_refused),
        TEST_FAKES(bad_callbacks_are_refused),
        TEST_FAKES(a_metric_flapping_around_its_threshold_fires_once),
        TEST_FAKES(it_is_due_again_from_below_seven_eighths),
        TEST_FAKES(a_dip_to_seven_eighths_is_not_below),
        TEST_FAKES(a_dip_just_below_is_seen_however_small_the_blocks),
        TEST_FAKES(it_is_due_again_after_an_eighth_of_growth),
        TEST_FAKES(growth_is_since_the_end_of_the_run),
        TEST_FAKES(what_falls_far_enough_while_collecting_is_due_again),
        TEST_FAKES(a_failed_run_waits_for_growth_too),
        TEST_FAKES(a_run_that_reset_freed_is_due_at_the_threshold_again),
        TEST_FAKES(a_new_strategy_makes_it_due),
        TEST_FAKES(a_reset_makes_it_due),
        TEST_FAKES(a_change_of_band_does_not),
        TEST_FAKES(a_tiny_threshold_needs_growth_as_well),
        TEST_FAKES(a_storm_above_the_threshold_runs_as_the_rule_says),
        TEST_FAKES(a_storm_of_failing_runs_does_too),
        TEST_FAKES(a_storm_that_does_not_grow_runs_once),
        TEST_FAKES(the_rule_is_exact_for_small_thresholds),
        TEST_FAKES(the_rule_is_exact_for_large_thresholds),
        TEST_FAKES(the_rule_is_exact_on_several_threads),
        TEST_FAKES(the_rule_is_exact_on_several_threads_with_large_thresholds),
        TEST_FAKES(the_rule_is_exact_for_what_is_freed),
        TEST_FAKES(the_rule_is_exact_for_what_is_freed_on_several_threads),
        TEST_FAKES(the_rule_is_exact_for_the_larger_of_the_two),
        TEST_FAKES(the_rule_is_exact_for_runs_that_fail),
        TEST_FAKES(the_rule_is_exact_for_freed_bytes_that_no_run_takes_off),
        TEST_DEFER(with_defer_the_rule_is_exact_at_every_poll),
        TEST_DEFER(with_defer_it_is_exact_for_what_is_freed),
        TEST_FAKES(the_rule_is_exact_for_small_blocks),
        TEST_FAKES(the_rule_is_exact_for_small_blocks_of_several_threads),
        TEST_FAKES(the_rule_is_exact_while_the_capacity_changes),
        TEST_FAKES(a_callback_may_call_the_ledger),
        TEST_FAKES(a_callback_may_free_the_block_that_fired),
        TEST_FAKES(a_block_whose_free_fired_is_dead_to_the_callback),
        TEST_FAKES(a_callback_may_set_the_strategy),
        TEST_FAKES(a_run_inside_a_run_is_refused),
        TEST_FAKES(another_device_may_run_inside_a_run),
        TEST_FAKES(a_callback_may_remove_itself),
        TEST_FAKES(one_that_is_removed_meanwhile_is_not_called),
        TEST_FAKES(one_that_ran_already_may_be_removed),
        TEST_FAKES(one_that_is_added_meanwhile_runs_from_the_next_on),
        TEST_FAKES(a_run_calls_nothing_that_is_added_in_it),
        TEST_FAKES(a_callback_that_puts_itself_back_runs_once_a_run),
        TEST_FAKES(a_blocked_callback_blocks_nobody_else),
        TEST_FAKES(remove_waits_for_a_run_on_another_thread),
        TEST_FAKES(remove_does_not_wait_for_others),
        TEST_DEFER(with_defer_no_track_call_runs_anything),
        TEST_DEFER(with_defer_a_poll_runs_what_is_due),
        TEST_DEFER(with_defer_a_dip_between_polls_re_arms),
        TEST_DEFER(with_defer_an_explicit_run_runs_at_once),
        TEST_FAKES(a_run_may_be_asked_for),
        TEST_FAKES(a_run_that_none_could_do_says_so),
        TEST_FAKES(without_a_callback_there_is_nothing_to_run),
        TEST_FAKES(a_run_of_no_device_or_reason_is_refused),
        cmocka_unit_test(a_null_ledger_collects_nothing),
        TEST_FAKES(eight_threads_that_just_cross_run_once),
        TEST_FAKES(eight_threads_run_at_most_once_per_eighth_of_growth),
        TEST_FAKES(eight_threads_on_two_devices_run_each_on_its_own),
        TEST_FAKES(callbacks_may_change_while_threads_cross),
        cmocka_unit_test_setup_teardown(everything_may_happen_at_once, setup_threads,
                                        test_teardown),
        cmocka_unit_test_setup_teardown(everything_may_happen_at_once, setup_threads_defer,
                                        test_teardown),
        TEST_FAKES(a_run_tells_the_callbacks_how_much_is_needed),
        TEST_FAKES(a_need_over_the_capacity_reaches_the_callbacks_as_it_is),
        TEST_FAKES(a_run_that_fails_reclaimed_nothing),
    };
    return cmocka_run_group_tests_name("collect", tests, NULL, NULL);
}
