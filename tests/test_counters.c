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

/* Climbs under a tag. */
static void *climb_tagged(void *user) {
    stair *s = (stair *)user;
    assert_ok(memlord_tag_begin(s->lord, "work"));
    climb(s);
    assert_ok(memlord_tag_end(s->lord));
    return NULL;
}
static uint64_t tag_peak(memlord *lord) {
    memlord_tag_stat s;
    assert_ok(memlord_tag_get(lord, cpu(), "work", &s));
    return s.peak;
}
static void on_another_thread(void *(*fn)(void *), stair *s) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fn, s), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* The first thread holds back what it likes as long as it is alone. */
static void of_two_threads_the_peak_is_low_by_4_kib_at_most(void **state) {
    memlord *lord = test_lord(state);
    stair first = {NULL, 1 << 24, 30, 1024}, second = {NULL, 2 << 24, 30, 1024};
    int turn;
    first.lord = second.lord = lord;
    for (turn = 0; turn < 3; turn++) {
        memlord_peak_reset(lord, all());
        climb_tagged(&first);
        on_another_thread(climb_tagged, &second); /* the first one is idle */
        on_another_thread(descend, &second);
        descend(&first);
        assert_in_range(memlord_peak(lord, cpu()), 61440 - 4096, 61440);
        assert_in_range(stats_of(lord, cpu()).peak_error, 0, 4096);
        assert_in_range(tag_peak(lord), 61440 - 4096, 61440);
        on_another_thread(climb_tagged, &second);
        climb_tagged(&first); /* now the second one */
        descend(&first);
        on_another_thread(descend, &second);
        assert_in_range(memlord_peak(lord, cpu()), 61440 - 4096, 61440);
        assert_in_range(tag_peak(lord), 61440 - 4096, 61440);
    }
    assert_ok(memlord_verify(lord));
}

typedef struct tide {
    stair s;
    pthread_barrier_t *meet;
} tide;
static void *rise_and_fall(void *user) {
    tide *t = (tide *)user;
    int turn;
    for (turn = 0; turn < 4; turn++) {
        pthread_barrier_wait(t->meet);
        climb(&t->s);
        pthread_barrier_wait(t->meet);
        descend(&t->s);
    }
    return NULL;
}
/* Returns the peak of 8 threads that rise together to so many blocks each. */
static uint64_t peak_of_8(memlord *lord, uint64_t n, uint64_t bytes) {
    pthread_barrier_t meet;
    pthread_t threads[8];
    tide tides[8];
    size_t i;
    pthread_barrier_init(&meet, NULL, 8);
    for (i = 0; i < 8; i++) {
        tides[i].s.lord = lord;
        tides[i].s.first = (i + 1) << 24;
        tides[i].s.n = n;
        tides[i].s.bytes = bytes;
        tides[i].meet = &meet;
        assert_int_equal(pthread_create(&threads[i], NULL, rise_and_fall, &tides[i]), 0);
    }
    for (i = 0; i < 8; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&meet);
    return memlord_peak(lord, cpu());
}
static void of_8_threads_the_peak_is_low_by_a_64th_at_most(void **state) {
    const uint64_t gib = (uint64_t)1 << 30;
    assert_in_range(peak_of_8(test_lord(state), 128, gib / 8 / 128), gib - gib / 64, gib);
}
static void so_it_is_of_small_blocks(void **state) {
    const uint64_t mib = 1 << 20;
    assert_in_range(peak_of_8(test_lord(state), 128, mib / 8 / 128), mib - mib / 64, mib);
}

/* The thread has a high that it has not published, and is below it when another thread comes. */
static void what_one_thread_had_stays_in_the_peak_when_another_comes(void **state) {
    memlord *lord = test_lord(state);
    stair first = {NULL, 1 << 24, 30, 1024}, second = {NULL, 2 << 24, 1, 64};
    first.lord = second.lord = lord;
    climb_tagged(&first);
    descend(&first);
    on_another_thread(climb_tagged, &second);
    assert_int_equal(memlord_peak(lord, cpu()), 30720);
    assert_int_equal(tag_peak(lord), 30720);
}
/* Each thread that comes asks the others to publish, in the middle of their calls. */
static void threads_may_come_while_others_allocate(void **state) {
    int i;
    (void)state;
    for (i = 0; i < (TEST_SANITIZED ? 60 : 300); i++) {
        memlord_desc desc;
        memlord *lord;
        memset(&desc, 0, sizeof desc);
        desc.flags = MEMLORD_FLAG_NO_ENV;
        assert_ok(memlord_create(&desc, &lord));
        (void)peak_of_8(lord, 300, 100); /* they come together */
        assert_int_equal(memlord_allocated(lord, cpu()), 0);
        assert_ok(memlord_verify(lord));
        memlord_destroy(lord);
    }
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
static void after_a_reset_of_another_thread_the_peak_of_a_site_is_exact_again(void **state) {
    static const memlord_site site = {"a.c", "a", 1};
    memlord *lord = test_lord(state);
    memlord_site_stat top;
    pthread_t thread;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1000, &site));
    assert_int_equal(pthread_create(&thread, NULL, reset, lord), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 10, &site));
    assert_ok(memlord_free(lord, cpu(), 0x2000, &site));
    assert_int_equal(memlord_sites_top(lord, cpu(), MEMLORD_SITE_ORDER_PEAK_BYTES, &top, 1), 1);
    assert_int_equal(top.peak_bytes, 1010);
}
/* The reset asks the other thread to publish at its next call. */
static void after_a_reset_of_another_thread_the_peak_is_exact_again(void **state) {
    memlord *lord = test_lord(state);
    stair worker = {NULL, 1 << 24, 30, 1024};
    memlord_stats s;
    int round;
    worker.lord = lord;
    climb_tagged(&worker);
    descend(&worker);
    for (round = 0; round < 2; round++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, reset, lord), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        climb_tagged(&worker);
        descend(&worker);
    }
    s = stats_of(lord, cpu());
    assert_int_equal(s.peak, 30720); /* its calls after the reset have published */
    assert_int_equal(s.peak_error, 0);
    assert_int_equal(tag_peak(lord), 30720);
    worker.first = 2 << 24;
    worker.n = 1;
    worker.bytes = 64;
    on_another_thread(climb_tagged, &worker);
    s = stats_of(lord, cpu());
    assert_true(s.peak <= 30720);
    assert_true(s.peak + s.peak_error >= 30720);
    memlord_peak_reset(lord, all()); /* of more than one thread the error is the usual one */
    assert_in_range(stats_of(lord, cpu()).peak_error, 1, 8192);
}

/* What threads held back before the reset counts until they have published once more. */
static void after_a_peak_reset_the_error_goes_by_the_new_peak(void **state) {
    memlord *lord = test_lord(state);
    stair first = {NULL, 1 << 24, 64, 1 << 20}, second = {NULL, 2 << 24, 64, 1 << 20};
    stair small = {NULL, 3 << 24, 64, 1000};
    memlord_stats s;
    first.lord = second.lord = small.lord = lord;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
    on_another_thread(climb_tagged, &second);
    climb_tagged(&first);
    assert_int_equal(stats_of(lord, cpu()).peak_error, 65536); /* half of the share of each */
    descend(&first);
    on_another_thread(descend, &second);
    memlord_peak_reset(lord, all());
    assert_in_range(stats_of(lord, cpu()).peak_error, 1, 131072);
    climb_tagged(&small);
    on_another_thread(descend, &small);
    memlord_peak_reset(lord, all());
    assert_in_range(stats_of(lord, cpu()).peak_error, 1, 8192);
    climb_tagged(&small);
    s = stats_of(lord, cpu());
    assert_true(s.peak <= 64001);
    assert_true(s.peak + s.peak_error >= 64001);
    assert_in_range(s.peak_error, 0, 8192);
}

/* A thread that has had 20 MiB when the peak is reset, and climbs to 60,000 bytes after it, on keys
   that it has used, so that the map does not grow. */
typedef struct climber {
    memlord *lord;
    pthread_barrier_t *turn;
    uint64_t key;
} climber;
static void allocs_of(const climber *c, uint64_t from, uint64_t n, uint64_t bytes) {
    uint64_t i;
    for (i = 0; i < n; i++)
        assert_ok(memlord_alloc(c->lord, cpu(), c->key + (from + i) * 64, bytes, NULL));
}
static void frees_of(const climber *c, uint64_t from, uint64_t n) {
    uint64_t i;
    for (i = 0; i < n; i++) assert_ok(memlord_free(c->lord, cpu(), c->key + (from + i) * 64, NULL));
}
static void *fall_and_climb(void *user) {
    const climber *c = (const climber *)user;
    allocs_of(c, 1000, 32, 1000);
    allocs_of(c, 0, 300, 65536);
    pthread_barrier_wait(c->turn); /* both are up at once */
    frees_of(c, 1, 299);
    allocs_of(c, 2000, 30, 1000); /* a high that the thread has not published */
    frees_of(c, 2000, 30);
    frees_of(c, 1000, 32);
    pthread_barrier_wait(c->turn);
    pthread_barrier_wait(c->turn); /* the peak is reset in between */
    allocs_of(c, 3000, 1, 16);
    frees_of(c, 3000, 1);
    allocs_of(c, 1, 60, 1000);
    pthread_barrier_wait(c->turn);
    pthread_barrier_wait(c->turn); /* the peak is read in between */
    frees_of(c, 0, 61);
    return NULL;
}
static void after_a_reset_the_peak_has_what_threads_climb_to(void **state) {
    memlord *lord = test_lord(state);
    pthread_barrier_t turn;
    pthread_t threads[2];
    climber c[2];
    uint64_t i, live;
    assert_int_equal(pthread_barrier_init(&turn, NULL, 3), 0);
    for (i = 0; i < 2; i++) {
        c[i].lord = lord;
        c[i].turn = &turn;
        c[i].key = (i + 1) << 32;
        assert_int_equal(pthread_create(&threads[i], NULL, fall_and_climb, &c[i]), 0);
    }
    for (i = 0; i < 2; i++) pthread_barrier_wait(&turn);
    memlord_peak_reset(lord, cpu());
    for (i = 0; i < 2; i++) pthread_barrier_wait(&turn);
    live = memlord_allocated(lord, cpu());
    pthread_barrier_wait(&turn);
    for (i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(live, 2 * (65536 + 60000));
    assert_in_range(memlord_peak(lord, cpu()), live - 4096, live);
    assert_int_equal(pthread_barrier_destroy(&turn), 0);
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

/* -- a reset of everything -- */

static int give_up(void *user, uint64_t bytes, uint64_t *storage) {
    (void)user;
    (void)bytes;
    (void)storage;
    return -1;
}
static int at_the_second_attempt(void *user, uint64_t bytes, uint64_t *storage) {
    (void)bytes;
    *storage = 0xa000;
    return !(*(int *)user)++;
}
static int failed(void *user) {
    (void)user;
    return -1;
}

/* Counts collections, attempts and retries on cuda:0. */
static void count_requests(test_case *t) {
    const memlord_retry policy = {1, 0, 0, 1, NULL, NULL};
    uint64_t storage;
    int tries = 0;
    t->gc.answer.reclaimed = 5;
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    t->gc.answer.ran = 0;
    assert_int_equal(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL), MEMLORD_E_STATE);
    assert_int_equal(memlord_alloc_retry(t->lord, cuda(0), 7, give_up, NULL, &policy, &storage, NULL),
                     MEMLORD_E_OOM);
    assert_ok(memlord_alloc_retry(t->lord, cuda(0), 7, at_the_second_attempt, &tries, &policy,
                                  &storage, NULL));
}

/* Counts every anomaly on cuda:0, but what is dropped. */
static void count_anomalies(memlord *lord) {
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    fence.done = failed;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 10, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 20, NULL));
    assert_ok(memlord_retain(lord, cuda(0), 0x1000, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(memlord_free(lord, cuda(0), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_arena_sub(lord, cuda(0), 4, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 30, NULL));
    assert_ok(memlord_free_deferred(lord, cuda(0), 0x1000, fence, NULL));
    assert_int_equal(memlord_alloc(lord, cuda(0), 0, 1, NULL), MEMLORD_E_INVALID);
}

/* Drops an alloc, a site, a scope and a snapshot without memory, and events of a full ring. */
static void count_drops(test_case *t) {
    static memlord_site sites[2000];
    size_t i;
    assert_ok(memlord_events_start(t->lord, 16));
    for (i = 0; i < 40; i++)
        assert_ok(memlord_alloc(t->lord, cuda(0), 0x2000, 1, NULL));
    memlord_events_stop(t->lord);
    t->heap.fail_at = 1;
    t->heap.fail_from = 1;
    for (i = 0; i < 2000; i++) {
        sites[i].file = "many.c";
        sites[i].function = "f";
        sites[i].line = (int)i;
        (void)memlord_alloc(t->lord, cuda(0), 0x100000 + i * 0x1000, 1, &sites[i]);
    }
    for (i = 0; memlord_alloc(t->lord, cuda(0), 0x1000000 + i * 64, 1, NULL) == MEMLORD_OK;) i++;
    assert_int_equal(memlord_scope_begin(t->lord, "no room"), MEMLORD_E_NOMEM);
    assert_int_equal(memlord_checkpoint(t->lord, "no room"), MEMLORD_E_NOMEM);
    t->heap.fail_at = 0;
}

static void report_has(memlord *lord, const char *line, int times) {
    char *text = report_of(lord, MEMLORD_FORMAT_PROMETHEUS);
    const char *at = text;
    int n = 0;
    for (; (at = strstr(at, line)) != NULL; at++) n++;
    free(text);
    if (n != times) fail_msg("%d times: %s", n, line);
}

/* What a ledger has counted by now, and a reset is to start over. */
static void count_everything(test_case *t) {
    memlord *lord = t->lord;
    assert_ok(memlord_sites_enable(lord, 1));
    assert_ok(memlord_arena_add(lord, cuda(0), 3, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 100, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x3000, cuda(0), 0x3000, 90, NULL, NULL));
    assert_ok(memlord_copy(lord, cpu(), cuda(0), 11));
    assert_ok(memlord_realloc(lord, cuda(0), 0x3000, 0x3000, 80, NULL));
    assert_ok(memlord_pool_set(lord, cuda(0), 1 << 20, 2000));
    assert_ok(memlord_pool_set(lord, cuda(0), 1 << 19, 1000));
    assert_ok(memlord_pool_served(lord, cuda(0), 2, 3));
    count_requests(t);
    count_anomalies(lord);
    count_drops(t);
}

static void a_reset_starts_every_count_over_and_keeps_every_level(void **state) {
    test_case *t = (test_case *)*state;
    memlord_stats before, after;
    count_everything(t);
    before = stats_of(t->lord, cuda(0));
    memlord_reset(t->lord);
    after = stats_of(t->lord, cuda(0));
#define CHECK_LIVE(name) assert_int_equal(after.name, before.name);
#define CHECK_PEAK(name)
#define CHECK_COUNT(name) \
    assert_int_not_equal(before.name, 0); \
    assert_int_equal(after.name, 0);
#define CHECK_ANOMALY(name) CHECK_COUNT(name)
#define CHECK(name, kind, family, text) CHECK_##kind(name)
    MLI_STATS(CHECK)
#undef CHECK
#undef CHECK_ANOMALY
#undef CHECK_COUNT
#undef CHECK_PEAK
#undef CHECK_LIVE
    assert_int_equal(after.peak, after.allocated);
    assert_int_equal(after.reserved_peak, 1 << 19);
    assert_int_equal(after.largest_free, 1000);
}

static void a_reset_starts_routes_losses_and_the_last_failure_over(void **state) {
    test_case *t = (test_case *)*state;
    int after;
    count_everything(t);
    for (after = 0; after < 2; after++) {
        report_has(t->lord, "\nmemlord_pair_moves_total{from=\"cpu\",to=\"cuda:0\"} 1\n", !after);
        report_has(t->lord, "\nmemlord_pair_moved_bytes_total{from=\"cpu\",to=\"cuda:0\"} 90\n",
                   !after);
        report_has(t->lord, "\nmemlord_pair_copies_total{from=\"cpu\",to=\"cuda:0\"} 1\n", !after);
        report_has(t->lord, "\nmemlord_pair_copied_bytes_total{from=\"cpu\",to=\"cuda:0\"} 11\n",
                   !after);
        report_has(t->lord, "\nmemlord_dropped_scopes_total 0\n", after);
        report_has(t->lord, "\nmemlord_dropped_snapshots_total 0\n", after);
        report_has(t->lord, "\nmemlord_last_oom_bytes{device=\"cuda:0\"} 7\n", !after);
        memlord_reset(t->lord);
    }
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

static void a_summary_names_the_tag_that_holds_most(void **state) {
    memlord *lord = test_lord(state);
    char line[256];
    assert_ok(memlord_tag_begin(lord, "kv"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 3 << 20, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 1 << 20, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 5, NULL));
    (void)memlord_summary(lord, line, sizeof line);
    assert_string_equal(line, "memlord cpu 4 MiB in 2 (peak 4 MiB, kv 75 %), cuda:0 5 B in 1 (peak 5 B)");
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 4 << 20, NULL));
    (void)memlord_summary(lord, line, sizeof line);
    assert_string_equal(line, "memlord cpu 8 MiB in 3 (peak 8 MiB, untagged 62.5 %), "
                              "cuda:0 5 B in 1 (peak 5 B)");
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
        TEST(of_two_threads_the_peak_is_low_by_4_kib_at_most),
        TEST(of_8_threads_the_peak_is_low_by_a_64th_at_most),
        TEST(so_it_is_of_small_blocks),
        TEST(what_one_thread_had_stays_in_the_peak_when_another_comes),
        TEST(after_a_reset_of_another_thread_the_peak_is_exact_again),
        TEST_SITES(after_a_reset_of_another_thread_the_peak_of_a_site_is_exact_again),
        TEST(after_a_peak_reset_the_error_goes_by_the_new_peak),
        TEST(after_a_reset_the_peak_has_what_threads_climb_to),
        TEST(threads_may_come_while_others_allocate),
        TEST(nor_by_more_after_a_reset_on_another_thread),
        TEST(no_reader_sees_a_higher_peak_while_a_thread_publishes),
        TEST_EXACT(no_reader_sees_a_higher_peak_while_a_thread_publishes),
        TEST(a_wide_peak_is_the_sum_of_the_devices_peaks),
        TEST(a_reset_starts_an_epoch),
        TEST(a_free_of_an_older_block_counts_in_the_new_epoch),
        TEST(a_reset_is_seen_by_every_thread),
        TEST(a_peak_reset_sets_the_peak_to_what_lives),
        TEST_FAKES(a_reset_starts_every_count_over_and_keeps_every_level),
        TEST_FAKES(a_reset_starts_routes_losses_and_the_last_failure_over),
        TEST(what_nothing_has_set_reads_0_or_unknown),
        TEST(a_summary_is_one_line_with_every_device),
        TEST(a_summary_names_the_tag_that_holds_most),
        TEST(a_summary_is_cut_as_snprintf_cuts),
        TEST(lifetime_totals_count_modulo_2_64_and_live_bytes_stay_exact),
    };
    return cmocka_run_group_tests_name("counters", tests, NULL, NULL);
}
