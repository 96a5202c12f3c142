/* Bytes without identity: a balance per device that never goes below 0. */
#include "support.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void adding_and_taking_move_the_balance(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_arena_add(lord, cuda(0), 100, NULL));
    assert_ok(memlord_arena_add(lord, cuda(0), 50, NULL));
    assert_ok(memlord_arena_sub(lord, cuda(0), 30, NULL));
    s = stats_of(lord, cuda(0));
    assert_int_equal(s.allocated, 120);
    assert_int_equal(s.total_allocated, 150);
    assert_int_equal(s.total_freed, 30);
    assert_int_equal(s.freed, 30);
    assert_int_equal(s.peak, 150);
    assert_int_equal(s.underflows, 0);
}

static void arena_bytes_are_no_blocks(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_arena_add(lord, cpu(), 100, NULL));
    assert_int_equal(stats_of(lord, cpu()).live_blocks, 0);
    assert_int_equal(stats_of(lord, cpu()).allocs, 0);
}

static void storages_and_arena_add_up(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 7, NULL));
    assert_ok(memlord_arena_add(lord, cpu(), 100, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 107);
    assert_int_equal(memlord_peak(lord, cpu()), 107);
}

static void taking_too_much_takes_it_to_0_and_is_counted(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1000, NULL));
    assert_ok(memlord_arena_add(lord, cpu(), 100, NULL));
    assert_ok(memlord_arena_sub(lord, cpu(), 101, NULL));
    s = stats_of(lord, cpu());
    assert_int_equal(s.allocated, 1000);
    assert_int_equal(s.underflows, 1);
    assert_int_equal(s.freed, 100);
    assert_balanced(lord, cpu());
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
}

static void taking_from_an_empty_balance_is_an_underflow(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_arena_sub(lord, cuda(2), 1, NULL));
    assert_int_equal(stats_of(lord, cuda(2)).underflows, 1);
    assert_int_equal(memlord_allocated(lord, cuda(2)), 0);
    assert_int_equal(memlord_freed(lord, cuda(2)), 0);
}

static void taking_exactly_all_is_none(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_arena_add(lord, cpu(), 100, NULL));
    assert_ok(memlord_arena_sub(lord, cpu(), 100, NULL));
    assert_int_equal(stats_of(lord, cpu()).underflows, 0);
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
}

static void each_device_has_its_own_balance(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_arena_add(lord, cuda(0), 100, NULL));
    assert_ok(memlord_arena_sub(lord, cuda(1), 60, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 100);
    assert_int_equal(stats_of(lord, cuda(0)).underflows, 0);
    assert_int_equal(stats_of(lord, cuda(1)).underflows, 1);
}

static void more_than_2_to_the_48_at_once_is_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_arena_add(lord, cpu(), TEST_MAX_BYTES + 1, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_arena_add(lord, cpu(), UINT64_MAX, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    assert_ok(memlord_arena_add(lord, cpu(), TEST_MAX_BYTES, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), TEST_MAX_BYTES);
}

static void a_balance_that_would_overflow_is_refused(void **state) {
    memlord *lord = test_lord(state);
    uint64_t added = 0, before;
    int i;
    memlord_result r = MEMLORD_OK;
    for (i = 0; i < 70000 && r == MEMLORD_OK; i++) {
        before = memlord_allocated(lord, cpu());
        assert_int_equal(before, added);
        r = memlord_arena_add(lord, cpu(), TEST_MAX_BYTES, NULL);
        if (r == MEMLORD_OK) added += TEST_MAX_BYTES;
    }
    assert_int_equal(r, MEMLORD_E_INVALID);
    assert_true(added >= (uint64_t)1 << 62);
    assert_int_equal(memlord_allocated(lord, cpu()), added);
    assert_balanced(lord, cpu());
}

static void a_bad_device_is_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_arena_add(lord, all(), 1, NULL), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_arena_sub(lord, memlord_device_make(99, 0), 1, NULL),
                     MEMLORD_E_DEVICE);
    assert_int_equal(stats_of(lord, all()).underflows, 0);
}

typedef struct changing {
    memlord *lord;
    int stop;
} changing;

static void *add_and_take(void *user) {
    changing *c = (changing *)user;
    while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
        (void)memlord_arena_add(c->lord, cuda(0), 1000, NULL);
        (void)memlord_arena_sub(c->lord, cuda(0), 1000, NULL);
    }
    return NULL;
}

/* In the child the balance and what is counted are one: with all of it taken nothing is left. */
static void a_fork_may_find_a_thread_in_the_middle_of_a_change(void **state) {
    changing c = {NULL, 0};
    pthread_t thread;
    int i;
    TEST_POSIX();
    c.lord = test_lord(state);
    assert_ok(memlord_arena_add(c.lord, cuda(0), 7, NULL));
    assert_int_equal(pthread_create(&thread, NULL, add_and_take, &c), 0);
    for (i = 0; i < 300; i++) {
        int status = 0;
        pid_t child = fork();
        if (!child) {
            int bad = memlord_arena_sub(c.lord, cuda(0), 5, NULL) != MEMLORD_OK;
            bad |= memlord_arena_sub(c.lord, cuda(0), (uint64_t)1 << 48, NULL) != MEMLORD_OK;
            _exit(bad | 2 * (memlord_allocated(c.lord, cuda(0)) != 0));
        }
        assert_true(waitpid(child, &status, 0) == child);
        assert_int_equal(status, 0);
    }
    __atomic_store_n(&c.stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_int_equal(memlord_allocated(c.lord, cuda(0)), 7);
}

/* -- arenas have tags -- */

static memlord_tag_stat tag_of(memlord *lord, memlord_device sel, const char *tag) {
    memlord_tag_stat stat;
    memset(&stat, 0xee, sizeof stat);
    assert_ok(memlord_tag_get(lord, sel, tag, &stat));
    return stat;
}
/* The tags of a device and its untagged bytes add up to its live bytes. */
static void assert_tags_add_up(memlord *lord, const char *const *tags, size_t n) {
    uint64_t sum = tag_of(lord, cuda(0), NULL).allocated;
    while (n--) sum += tag_of(lord, cuda(0), tags[n]).allocated;
    assert_int_equal(sum, memlord_allocated(lord, cuda(0)));
}
static void add(memlord *lord, const char *tag, uint64_t bytes) {
    if (tag) assert_ok(memlord_tag_begin(lord, tag));
    assert_ok(memlord_arena_add(lord, cuda(0), bytes, NULL));
    if (tag) assert_ok(memlord_tag_end(lord));
}
static void take(memlord *lord, const char *tag, uint64_t bytes) {
    if (tag) assert_ok(memlord_tag_begin(lord, tag));
    assert_ok(memlord_arena_sub(lord, cuda(0), bytes, NULL));
    if (tag) assert_ok(memlord_tag_end(lord));
}

static void its_bytes_are_of_the_threads_tag(void **state) {
    memlord *lord = test_lord(state);
    static const char *const tags[] = {"scratch"};
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1, NULL));
    add(lord, "scratch", 100);
    add(lord, NULL, 10);
    assert_int_equal(tag_of(lord, cuda(0), "scratch").allocated, 100);
    assert_int_equal(tag_of(lord, cuda(0), "scratch").peak, 100);
    assert_int_equal(tag_of(lord, cuda(0), "scratch").blocks, 0);
    assert_int_equal(tag_of(lord, cuda(0), NULL).allocated, 11);
    take(lord, "scratch", 30);
    assert_int_equal(tag_of(lord, cuda(0), "scratch").allocated, 70);
    assert_int_equal(tag_of(lord, cuda(0), "scratch").peak, 100);
    assert_tags_add_up(lord, tags, 1);
    assert_int_equal(stats_of(lord, cuda(0)).underflows, 0);
}

static void what_a_tag_lacks_comes_off_the_untagged_balance(void **state) {
    memlord *lord = test_lord(state);
    static const char *const tags[] = {"scratch"};
    add(lord, "scratch", 100);
    add(lord, NULL, 50);
    take(lord, "scratch", 120);
    assert_int_equal(tag_of(lord, cuda(0), "scratch").allocated, 0);
    assert_int_equal(tag_of(lord, cuda(0), NULL).allocated, 30);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 30);
    assert_int_equal(stats_of(lord, cuda(0)).underflows, 0);
    assert_tags_add_up(lord, tags, 1);
}

static void a_tag_never_holds_more_than_its_device(void **state) {
    memlord *lord = test_lord(state);
    static const char *const tags[] = {"a", "b"};
    add(lord, "a", 100);
    add(lord, "b", 60);
    take(lord, NULL, 90); /* what is untagged is 0 */
    assert_int_equal(memlord_allocated(lord, cuda(0)), 70);
    assert_int_equal(tag_of(lord, cuda(0), "a").allocated, 10); /* the largest gives first */
    assert_int_equal(tag_of(lord, cuda(0), "b").allocated, 60);
    assert_int_equal(stats_of(lord, cuda(0)).underflows, 1);
    take(lord, NULL, 65);
    assert_int_equal(tag_of(lord, cuda(0), "a").allocated, 5);
    assert_int_equal(tag_of(lord, cuda(0), "b").allocated, 0);
    assert_int_equal(stats_of(lord, cuda(0)).underflows, 3);
    assert_tags_add_up(lord, tags, 2);
}

static void blocks_of_a_tag_are_never_taken(void **state) {
    memlord *lord = test_lord(state);
    static const char *const tags[] = {"a"};
    assert_ok(memlord_tag_begin(lord, "a"));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1000, NULL));
    assert_ok(memlord_tag_end(lord));
    add(lord, "a", 100);
    take(lord, "a", 200);
    assert_int_equal(tag_of(lord, cuda(0), "a").allocated, 1000);
    assert_int_equal(stats_of(lord, cuda(0)).underflows, 1);
    assert_tags_add_up(lord, tags, 1);
}

static void an_arena_with_an_identity_is_a_block_that_is_resized(void **state) {
    memlord *lord = test_lord(state);
    static const memlord_site site = {"arena.c", "grow", 7};
    static const uint64_t key = 0x7000;
    memlord_block_info info;
    memlord_site_stat top;
    assert_ok(memlord_tag_begin(lord, "frame"));
    assert_ok(memlord_alloc(lord, cpu(), key, 1 << 20, &site));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_realloc(lord, cpu(), key, key, 4 << 20, &site));
    assert_ok(memlord_realloc(lord, cpu(), key, key, 1 << 10, &site));
    assert_ok(memlord_block_find(lord, cpu(), key, &info));
    assert_int_equal(info.bytes, 1 << 10);
    assert_string_equal(info.tag, "frame");
    assert_int_equal(tag_of(lord, cpu(), "frame").allocated, 1 << 10);
    assert_int_equal(tag_of(lord, cpu(), "frame").peak, 4 << 20);
    assert_int_equal(memlord_sites_top(lord, cpu(), MEMLORD_SITE_ORDER_LIVE_BYTES, &top, 1), 1);
    assert_int_equal(top.live_bytes, 1 << 10);
    assert_int_equal(top.peak_bytes, 4 << 20);
    assert_int_equal(stats_of(lord, cpu()).allocs, 1);
    assert_int_equal(stats_of(lord, cpu()).reallocs, 2);
    assert_ok(memlord_free(lord, cpu(), key, &site));
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
}

static int of_arena(void *user, const memlord_event *event) {
    if (event->kind == MEMLORD_EVENT_ARENA_ADD || event->kind == MEMLORD_EVENT_ARENA_SUB)
        *(int *)user += event->tag && !strcmp(event->tag, "scratch");
    return 0;
}
static void its_events_have_the_tag(void **state) {
    memlord *lord = test_lord(state);
    int tagged = 0;
    assert_ok(memlord_events_start(lord, 64));
    add(lord, "scratch", 100);
    take(lord, "scratch", 100);
    add(lord, NULL, 100);
    assert_ok(memlord_events_each(lord, of_arena, &tagged));
    assert_int_equal(tagged, 2);
}

/* Threads under different tags that take more than they added. */
static void *churn_tags(void *user) {
    memlord *lord = *(memlord **)user;
    static const char *const names[] = {"a", "b", "c"};
    uint64_t random = (uint64_t)(uintptr_t)&random;
    int i;
    for (i = 0; i < 3000; i++) {
        const uint64_t n = test_random(&random);
        if (n % 4 < 3) (void)memlord_tag_begin(lord, names[n % 4]);
        if (n / 4 % 2)
            (void)memlord_arena_add(lord, memlord_device_cuda(0), n / 64 % 1000, NULL);
        else
            (void)memlord_arena_sub(lord, memlord_device_cuda(0), n / 64 % 1100, NULL);
        if (n % 4 < 3) (void)memlord_tag_end(lord);
    }
    return NULL;
}
static void tags_add_up_whatever_threads_take(void **state) {
    memlord *lord = test_lord(state);
    static const char *const tags[] = {"a", "b", "c"};
    pthread_t threads[4];
    int i;
    for (i = 0; i < 3; i++) add(lord, tags[i], 1);
    for (i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn_tags, &lord), 0);
    for (i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_tags_add_up(lord, tags, 3); /* and the ledger agrees with itself: see the teardown */
}

/* A thread that adds to its own tag, and takes off what it added. */
typedef struct adding {
    memlord *lord;
    const char *tag;
    uint64_t seed, left;
} adding;

static void *add_to_a_tag(void *user) {
    adding *a = (adding *)user;
    int i;
    (void)memlord_tag_begin(a->lord, a->tag);
    for (i = 0; i < 100000; i++) {
        const uint64_t n = test_random(&a->seed);
        const uint64_t bytes = 1 + n / 2 % (n & 1 || !a->left ? 1000 : a->left);
        if (n & 1 || !a->left) {
            (void)memlord_arena_add(a->lord, memlord_device_cuda(0), bytes, NULL);
            a->left += bytes;
        } else {
            (void)memlord_arena_sub(a->lord, memlord_device_cuda(0), bytes, NULL);
            a->left -= bytes;
        }
    }
    (void)memlord_tag_end(a->lord);
    return NULL;
}
static void threads_that_take_what_they_added_lose_none(void **state) {
    static const char *const tags[] = {"a", "b", "c"};
    memlord *lord = test_lord(state);
    adding a[3];
    pthread_t threads[3];
    uint64_t sum = 0;
    int i;
    for (i = 0; i < 3; i++) {
        a[i].lord = lord;
        a[i].tag = tags[i];
        a[i].seed = 7 + (uint64_t)i;
        a[i].left = 0;
        assert_int_equal(pthread_create(&threads[i], NULL, add_to_a_tag, &a[i]), 0);
    }
    for (i = 0; i < 3; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (i = 0; i < 3; i++) {
        assert_int_equal(tag_of(lord, cuda(0), tags[i]).allocated, a[i].left);
        sum += a[i].left;
    }
    assert_int_equal(tag_of(lord, cuda(0), NULL).allocated, 0);
    assert_int_equal(memlord_allocated(lord, cuda(0)), sum);
    assert_int_equal(stats_of(lord, cuda(0)).underflows, 0);
}

static const char *tag_name(int i) {
    static char name[16];
    (void)snprintf(name, sizeof name, "tag%d", i);
    return name;
}
static void the_largest_of_many_tags_give_first(void **state) {
    memlord *lord = test_lord(state);
    uint64_t have[200], seed = 5, sum = 0, gave = 0;
    int i, takes;
    for (i = 0; i < 200; i++) { /* another device has the same tags, and keeps its bytes */
        const uint64_t n = test_random(&seed);
        have[i] = 1 + n / 64 % ((uint64_t)1 << (4 + n % 40)); /* 1 B to 16 TiB */
        if (i % 4 == 1) have[i] = have[i - 1];                /* equal ones: the earlier gives */
        sum += have[i];
        add(lord, tag_name(i), have[i]);
        assert_ok(memlord_tag_begin(lord, tag_name(i)));
        assert_ok(memlord_arena_add(lord, cuda(1), (uint64_t)1 << 45, NULL));
        assert_ok(memlord_tag_end(lord));
    }
    for (takes = 0; takes < 60; takes++) {
        uint64_t bytes = 1 + test_random(&seed) % (sum / 4 + 1), rest = bytes;
        take(lord, NULL, bytes);
        sum -= bytes;
        while (rest) {
            int largest = 0;
            for (i = 1; i < 200; i++)
                if (have[i] > have[largest]) largest = i;
            bytes = have[largest] < rest ? have[largest] : rest;
            have[largest] -= bytes;
            rest -= bytes;
            gave++;
        }
        for (i = 0; i < 200; i++)
            assert_int_equal(tag_of(lord, cuda(0), tag_name(i)).allocated, have[i]);
        assert_int_equal(stats_of(lord, cuda(0)).underflows, gave);
    }
    assert_int_equal(memlord_allocated(lord, cuda(1)), (uint64_t)200 << 45);
}

/* Returns the seconds of CPU that one call takes if each of n tags gives up all its bytes. */
static double seconds_to_trim(memlord *lord, int n) {
    struct timespec before, after;
    int i;
    for (i = 0; i < n; i++) add(lord, tag_name(i), 1000 + (uint64_t)i);
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    take(lord, NULL, memlord_allocated(lord, cuda(0)));
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    assert_int_equal(tag_of(lord, cuda(0), tag_name(n - 1)).allocated, 0);
    return (double)(after.tv_sec - before.tv_sec) +
           (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
}
static void a_call_costs_no_square_of_the_tags(void **state) {
    memlord *lord = test_lord(state);
    double few;
    TEST_ONE_THREAD();
    few = seconds_to_trim(lord, 500);
    assert_true(seconds_to_trim(lord, 16000) < few * 32 * 8); /* the square would be 32 x 32 */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(adding_and_taking_move_the_balance),
        TEST(arena_bytes_are_no_blocks),
        TEST(storages_and_arena_add_up),
        TEST(taking_too_much_takes_it_to_0_and_is_counted),
        TEST(taking_from_an_empty_balance_is_an_underflow),
        TEST(taking_exactly_all_is_none),
        TEST(each_device_has_its_own_balance),
        TEST(more_than_2_to_the_48_at_once_is_refused),
        TEST(a_balance_that_would_overflow_is_refused),
        TEST(a_bad_device_is_refused),
        TEST(a_fork_may_find_a_thread_in_the_middle_of_a_change),
        TEST(its_bytes_are_of_the_threads_tag),
        TEST(what_a_tag_lacks_comes_off_the_untagged_balance),
        TEST(a_tag_never_holds_more_than_its_device),
        TEST(blocks_of_a_tag_are_never_taken),
        TEST(its_events_have_the_tag),
        TEST(tags_add_up_whatever_threads_take),
        TEST(threads_that_take_what_they_added_lose_none),
        TEST(the_largest_of_many_tags_give_first),
        TEST(a_call_costs_no_square_of_the_tags),
        TEST_SITES(an_arena_with_an_identity_is_a_block_that_is_resized),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
