/* Peaks that are never too high, whatever the moment at which a thread is interrupted: signals
   interrupt it in the middle of a call. */
#include "support.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

static uint64_t ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Two threads that have one block between them. `has` is the number of the thread that has it; 2:
   neither. `wants` is the number of the thread that is to have it; 2: both end. */
static struct {
    memlord *lord;
    int has, wants;
} relay;
static void *run_relay(void *number) {
    const int mine = (int)(intptr_t)number;
    const uint64_t key = (uint64_t)(mine + 1) << 24;
    int wants;
    while ((wants = __atomic_load_n(&relay.wants, __ATOMIC_ACQUIRE)) < 2) {
        const int has = __atomic_load_n(&relay.has, __ATOMIC_ACQUIRE);
        if (has == mine && wants != mine) {
            (void)memlord_free(relay.lord, memlord_device_cpu(), key, NULL);
            __atomic_store_n(&relay.has, 2, __ATOMIC_RELEASE);
        } else if (has == 2 && wants == mine) {
            (void)memlord_alloc(relay.lord, memlord_device_cpu(), key, 1000, NULL);
            __atomic_store_n(&relay.has, mine, __ATOMIC_RELEASE);
        } else {
            sched_yield();
        }
    }
    return NULL;
}
/* Lets the block change hands while the interrupted reader stands between two cells. The threads may
   have to wait for a lock that the reader holds, so the block may be late. */
static void pass_the_block(int signal) {
    const int wants = __atomic_load_n(&relay.wants, __ATOMIC_ACQUIRE);
    int i;
    (void)signal;
    if (__atomic_load_n(&relay.has, __ATOMIC_ACQUIRE) != wants) return;
    __atomic_store_n(&relay.wants, !wants, __ATOMIC_RELEASE);
    for (i = 0; i < 200 && __atomic_load_n(&relay.has, __ATOMIC_ACQUIRE) == wants; i++)
        sched_yield();
    for (; i < 200 && __atomic_load_n(&relay.has, __ATOMIC_ACQUIRE) == 2; i++) sched_yield();
}
static void no_reader_adds_up_what_two_threads_had_in_turn(void **state) {
    const struct itimerval every = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    const uint64_t begin = ms();
    struct sigaction action, before;
    pthread_t runner[2];
    sigset_t alarms;
    uint64_t most = 0;
    int i;
    memset(&action, 0, sizeof action);
    action.sa_handler = pass_the_block;
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    relay.lord = test_lord(state);
    relay.has = 2;
    relay.wants = 0;
    for (i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&runner[i], NULL, run_relay, (void *)(intptr_t)i), 0);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
    while (ms() - begin < 400 && most <= 1000)
        for (i = 0; i < 1000 && most <= 1000; i++) most = memlord_peak(relay.lord, cpu());
    while (ms() - begin < 600 && most <= 1000) {
        memlord_peak_reset(relay.lord, all());
        most = memlord_peak(relay.lord, cpu());
    }
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    __atomic_store_n(&relay.wants, 2, __ATOMIC_RELEASE);
    for (i = 0; i < 2; i++) assert_int_equal(pthread_join(runner[i], NULL), 0);
    (void)sigaction(SIGALRM, &before, NULL);
    assert_in_range(most, 0, 1000);
}

/* A thread that is interrupted again and again while it allocates and frees 50 bytes. */
static struct {
    memlord *lord;
    int pairs, in, out, stops; /* pairs so far; 1: it is in the handler; 1: it may leave that */
} steady;
static void *run_steady(void *user) {
    (void)user;
    while (!__atomic_load_n(&steady.stops, __ATOMIC_ACQUIRE)) {
        (void)memlord_alloc(steady.lord, memlord_device_cpu(), 1 << 24, 50, NULL);
        (void)memlord_free(steady.lord, memlord_device_cpu(), 1 << 24, NULL);
        __atomic_add_fetch(&steady.pairs, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}
/* Waits until the reset is over, but not for ever: the reset may wait for the thread. */
static void stand_still(int signal) {
    int i;
    (void)signal;
    __atomic_store_n(&steady.in, 1, __ATOMIC_RELEASE);
    for (i = 0; i < 200 && !__atomic_load_n(&steady.out, __ATOMIC_ACQUIRE); i++) sched_yield();
}
static void a_thread_in_a_call_does_not_bring_back_the_peak_before_a_reset(void **state) {
    memlord *lord = steady.lord = test_lord(state);
    const uint64_t begin = ms();
    struct sigaction action, before;
    uint64_t most = 0;
    pthread_t thread;
    int i, pairs;
    memset(&action, 0, sizeof action);
    action.sa_handler = stand_still;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    steady.pairs = steady.stops = 0;
    assert_int_equal(pthread_create(&thread, NULL, run_steady, NULL), 0);
    for (i = 0; i < 3000 && most <= 50 && ms() - begin < 1000; i++) {
        __atomic_store_n(&steady.in, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&steady.out, 0, __ATOMIC_RELEASE);
        assert_ok(memlord_alloc(lord, cpu(), 2 << 24, 1000, NULL));
        pthread_kill(thread, SIGUSR1);
        while (!__atomic_load_n(&steady.in, __ATOMIC_ACQUIRE)) sched_yield();
        assert_ok(memlord_free(lord, cpu(), 2 << 24, NULL));
        memlord_peak_reset(lord, cpu());
        __atomic_store_n(&steady.out, 1, __ATOMIC_RELEASE);
        pairs = __atomic_load_n(&steady.pairs, __ATOMIC_ACQUIRE);
        while (__atomic_load_n(&steady.pairs, __ATOMIC_ACQUIRE) - pairs < 2) sched_yield();
        most = memlord_peak(lord, cpu());
    }
    __atomic_store_n(&steady.stops, 1, __ATOMIC_RELEASE);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)sigaction(SIGUSR1, &before, NULL);
    assert_in_range(most, 0, 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(no_reader_adds_up_what_two_threads_had_in_turn),
        TEST_EXACT(no_reader_adds_up_what_two_threads_had_in_turn),
        TEST(a_thread_in_a_call_does_not_bring_back_the_peak_before_a_reset),
        TEST_EXACT(a_thread_in_a_call_does_not_bring_back_the_peak_before_a_reset),
    };
    return cmocka_run_group_tests_name("peaks", tests, NULL, NULL);
}
