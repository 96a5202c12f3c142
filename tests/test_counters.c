/* Counters: what is read is what happened; peaks are never high; epochs. */
#include "support.h"

#include <pthread.h>

static void a_fresh_ledger_reads_zeros(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s = stats_of(lord, all()), zero;
    memset(&zero, 0, sizeof zero);
    zero.size = sizeof zero;
    zero.version = MEMLORD_STATS_VERSION;
    assert_memory_equal(&s, &zero, sizeof s);
}

static void statistics_say_their_size_and_version(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    memset(&s, 0xee, sizeof s);
    assert_ok(memlord_stats_get(lord, cpu(), &s));
    assert_int_equal(s.size, sizeof s);
    assert_int_equal(s.version, MEMLORD_STATS_VERSION);
}

static void a_null_out_is_refused(void **state) {
    assert_int_equal(memlord_stats_get(test_lord(state), cpu(), NULL), MEMLORD_E_INVALID);
}

static void readers_and_statistics_agree(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 30, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    s = stats_of(lord, cpu());
    assert_int_equal(s.allocated, memlord_allocated(lord, cpu()));
    assert_int_equal(s.freed, memlord_freed(lord, cpu()));
    assert_int_equal(s.peak, memlord_peak(lord, cpu()));
    assert_int_equal(s.pending, memlord_pending(lord, cpu()));
    assert_int_equal(s.pending, 0);
}

static void with_one_thread_the_peak_is_exact(void **state) {
    memlord *lord = test_lord(state);
    uint64_t seed = 7, live = 0, peak = 0, sizes[256];
    int i;
    memset(sizes, 0, sizeof sizes);
    for (i = 0; i < 20000; i++) {
        uint64_t slot = test_random(&seed) % 256;
        if (sizes[slot]) {
            assert_ok(memlord_free(lord, cpu(), (slot + 1) * 64, NULL));
            live -= sizes[slot];
            sizes[slot] = 0;
        } else {
            sizes[slot] = 1 + test_random(&seed) % 1000000;
            assert_ok(memlord_alloc(lord, cpu(), (slot + 1) * 64, sizes[slot], NULL));
            live += sizes[slot];
        }
        if (live > peak) peak = live;
        assert_int_equal(memlord_peak(lord, cpu()), peak);
    }
    assert_int_equal(stats_of(lord, cpu()).peak_error, 0);
}

/* Threads that raise the sum in turn, so that the true peak is known. */
typedef struct stair {
    memlord *lord;
    uint64_t first; /* key of this thread's first block */
    uint64_t n, bytes;
} stair;

static void *climb(void *user) {
    stair *s = (stair *)user;
    uint64_t i;
    for (i = 0; i < s->n; i++)
        memlord_alloc(s->lord, memlord_device_cpu(), s->first + i * 64, s->bytes, NULL);
    return NULL;
}

static void *descend(void *user) {
    stair *s = (stair *)user;
    uint64_t i;
    for (i = 0; i < s->n; i++)
        memlord_free(s->lord, memlord_device_cpu(), s->first + i * 64, NULL);
    return NULL;
}

static void run_all(stair *stairs, size_t n, void *(*fn)(void *)) {
    pthread_t threads[8];
    size_t i;
    for (i = 0; i < n; i++) assert_int_equal(pthread_create(&threads[i], NULL, fn, &stairs[i]), 0);
    for (i = 0; i < n; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static uint64_t climb_and_descend(memlord *lord, uint64_t bytes) {
    stair stairs[8];
    size_t i;
    for (i = 0; i < 8; i++) {
        stairs[i].lord = lord;
        stairs[i].first = (i + 1) << 24;
        stairs[i].n = 500;
        stairs[i].bytes = bytes;
    }
    run_all(stairs, 8, climb);
    assert_int_equal(memlord_allocated(lord, cpu()), 8 * 500 * bytes);
    run_all(stairs, 8, descend);
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    return 8 * 500 * bytes;
}

static void with_the_exact_flag_threads_peak_exactly(void **state) {
    memlord *lord = test_lord(state);
    uint64_t peak = climb_and_descend(lord, 100);
    assert_int_equal(memlord_peak(lord, cpu()), peak);
    assert_int_equal(stats_of(lord, cpu()).peak_error, 0);
}

static void without_it_the_peak_is_low_by_at_most_its_error(void **state) {
    memlord *lord = test_lord(state);
    uint64_t peak = climb_and_descend(lord, 100);
    memlord_stats s = stats_of(lord, cpu());
    assert_true(s.peak <= peak);
    assert_true(s.peak + s.peak_error >= peak);
}

static void *reset(void *lord) {
    memlord_reset((memlord *)lord);
    return NULL;
}
static void nor_by_more_after_a_reset_on_another_thread(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    pthread_t thread;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1000, NULL));
    assert_int_equal(pthread_create(&thread, NULL, reset, lord), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 10, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
    s = stats_of(lord, cpu());
    assert_true(s.peak <= 1010);
    assert_true(s.peak + s.peak_error >= 1010);
}

/* One thread has one block at a time, or none. */
static void *come_and_go(void *user) {
    stair *s = (stair *)user;
    uint64_t i;
    for (i = 0; i < s->n; i++) {
        memlord_alloc(s->lord, memlord_device_cpu(), s->first, s->bytes, NULL);
        memlord_free(s->lord, memlord_device_cpu(), s->first, NULL);
    }
    return NULL;
}
static void no_reader_sees_a_higher_peak_while_a_thread_publishes(void **state) {
    stair s = {NULL, 0x7f0000001000u, 200000, 100 << 10};
    pthread_t thread;
    s.lord = test_lord(state);
    assert_int_equal(pthread_create(&thread, NULL, come_and_go, &s), 0);
    while (stats_of(s.lord, cpu()).frees < s.n)
        assert_in_range(memlord_peak(s.lord, cpu()), 0, s.bytes);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_wide_peak_is_the_sum_of_the_devices_peaks(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 70, NULL));
    assert_int_equal(memlord_peak(lord, all()), 170);
}

static void a_reset_starts_an_epoch(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 30, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_free(lord, cpu(), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_arena_add(lord, cpu(), 5, NULL));
    memlord_reset(lord);
    s = stats_of(lord, cpu());
    assert_int_equal(s.allocated, 35);
    assert_int_equal(s.live_blocks, 1);
    assert_int_equal(s.peak, 35);
    assert_int_equal(s.freed, 0);
    assert_int_equal(s.allocs, 0);
    assert_int_equal(s.frees, 0);
    assert_int_equal(s.total_allocated, 0);
    assert_int_equal(s.total_freed, 0);
    assert_int_equal(s.unknown_frees, 0);
}

static void a_free_of_an_older_block_counts_in_the_new_epoch(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    memlord_reset(lord);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    s = stats_of(lord, cpu());
    assert_int_equal(s.allocated, 0);
    assert_int_equal(s.live_blocks, 0);
    assert_int_equal(s.freed, 100);
    assert_int_equal(s.total_freed, 100);
    assert_int_equal(s.frees, 1);
    assert_int_equal(s.allocs, 0);
}

static void a_reset_is_seen_by_every_thread(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    climb_and_descend(lord, 100);
    memlord_reset(lord);
    s = stats_of(lord, cpu());
    assert_int_equal(s.total_allocated, 0);
    assert_int_equal(s.peak, 0);
    climb_and_descend(lord, 10);
    s = stats_of(lord, cpu());
    assert_int_equal(s.total_allocated, 40000);
    assert_int_equal(s.total_freed, 40000);
    assert_int_equal(s.allocs, 4000);
    assert_true(s.peak <= 40000);
    assert_true(s.peak + s.peak_error >= 40000);
}

static void a_peak_reset_sets_the_peak_to_what_lives(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 30, NULL));
    assert_ok(memlord_alloc(lord, cuda(1), 0x3000, 7, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_ok(memlord_free(lord, cuda(1), 0x3000, NULL));
    memlord_peak_reset(lord, cuda(0));
    assert_int_equal(memlord_peak(lord, cuda(0)), 30);
    assert_int_equal(memlord_peak(lord, cuda(1)), 7);
    s = stats_of(lord, cuda(0));
    assert_int_equal(s.total_allocated, 130);
    assert_int_equal(s.freed, 100);
    memlord_peak_reset(lord, all());
    assert_int_equal(memlord_peak(lord, cuda(1)), 0);
    assert_ok(memlord_alloc(lord, cuda(1), 0x3000, 3, NULL));
    assert_int_equal(memlord_peak(lord, cuda(1)), 3);
}

static void what_nothing_has_set_reads_0_or_unknown(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    s = stats_of(lord, cpu());
    assert_int_equal(s.reserved | s.reserved_peak | s.cached, 0);
    assert_true(s.largest_free == UINT64_MAX);
    assert_int_equal(s.cache_hits | s.cache_misses | s.limit, 0);
    assert_int_equal(s.gc_runs | s.gc_failed | s.gc_reclaimed, 0);
    assert_int_equal(s.oom_attempts | s.oom_failures | s.retries | s.recoveries, 0);
    assert_int_equal(s.fence_failures | s.dropped_events, 0);
}

static void a_summary_is_one_line_with_every_device(void **state) {
    test_case *t = (test_case *)*state;
    char line[512];
    uint64_t calls;
    size_t n;
    assert_ok(memlord_alloc(t->lord, cuda(1), 0x1000, 1536, NULL));
    assert_ok(memlord_alloc(t->lord, cpu(), 0x1000, 3 << 20, NULL));
    calls = t->heap.calls;
    n = memlord_summary(t->lord, line, sizeof line);
    assert_int_equal(n, strlen(line));
    assert_int_equal(t->heap.calls, calls);
    assert_null(strchr(line, '\n'));
    assert_non_null(strstr(line, "cuda:1"));
    assert_non_null(strstr(line, "1.5 KiB"));
    assert_non_null(strstr(line, "cpu"));
    assert_non_null(strstr(line, "3 MiB"));
}

static void a_summary_is_cut_as_snprintf_cuts(void **state) {
    memlord *lord = test_lord(state);
    char whole[512], part[16];
    size_t n;
    assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 1536, NULL));
    n = memlord_summary(lord, whole, sizeof whole);
    assert_int_equal(memlord_summary(lord, NULL, 0), n);
    memset(part, '#', sizeof part);
    assert_int_equal(memlord_summary(lord, part, 9), n);
    assert_int_equal(strlen(part), 8);
    assert_memory_equal(part, whole, 8);
    assert_int_equal(part[9], '#');
}

static void lifetime_totals_count_modulo_2_64_and_live_bytes_stay_exact(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i, total = 0;
    for (i = 0; i < 70000; i++) { /* 2^48 each: over 2^64 */
        memlord_stats s;
        memlord_alloc(lord, cpu(), 0x1000, TEST_MAX_BYTES, NULL);
        memlord_free(lord, cpu(), 0x1000, NULL);
        total += TEST_MAX_BYTES;
        if (i % 1000 && i < 69990) continue;
        s = stats_of(lord, cpu());
        assert_true(s.total_allocated == total);
        assert_true(s.total_freed == total);
        assert_true(s.freed == total);
        assert_int_equal(s.allocated, 0);
    }
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_fresh_ledger_reads_zeros),
        TEST(statistics_say_their_size_and_version),
        TEST(a_null_out_is_refused),
        TEST(readers_and_statistics_agree),
        TEST(with_one_thread_the_peak_is_exact),
        TEST_EXACT(with_the_exact_flag_threads_peak_exactly),
        TEST(without_it_the_peak_is_low_by_at_most_its_error),
        TEST(nor_by_more_after_a_reset_on_another_thread),
        TEST(no_reader_sees_a_higher_peak_while_a_thread_publishes),
        TEST_EXACT(no_reader_sees_a_higher_peak_while_a_thread_publishes),
        TEST(a_wide_peak_is_the_sum_of_the_devices_peaks),
        TEST(a_reset_starts_an_epoch),
        TEST(a_free_of_an_older_block_counts_in_the_new_epoch),
        TEST(a_reset_is_seen_by_every_thread),
        TEST(a_peak_reset_sets_the_peak_to_what_lives),
        TEST(what_nothing_has_set_reads_0_or_unknown),
        TEST(a_summary_is_one_line_with_every_device),
        TEST(a_summary_is_cut_as_snprintf_cuts),
        TEST(lifetime_totals_count_modulo_2_64_and_live_bytes_stay_exact),
    };
    return cmocka_run_group_tests_name("counters", tests, NULL, NULL);
}
