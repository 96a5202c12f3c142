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
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
