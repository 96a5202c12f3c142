/* Systems that refuse membarrier(2), from the start or later, and real-time threads. Each test runs
   in a child: a process cannot leave a sandbox, and its first ledger asks for the barrier. */
#include "support.h"

#include <sched.h>
#include <sys/wait.h>

#include "refuse.h"

enum { PASSED, WRONG_BOOKS, FAILED_CALL, STUCK, CHANGED_ERRNO, NO_SANDBOX = 77 };

/* Runs a function in a child. Skips the test where the system does not permit it. */
static void in_child(int (*run)(void)) {
    int status = -1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) _exit(run());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) fail_msg("the child died of signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) == NO_SANDBOX) skip();
    assert_int_equal(WEXITSTATUS(status), PASSED);
}

static memlord *open_plain(void) {
    memlord *lord = NULL;
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    return memlord_create(&desc, &lord) ? NULL : lord;
}

/* -- a thread works in one shard after the other, and another takes each of them from it -- */

#define REGION ((uint64_t)1 << 21) /* neighbours are mostly in different shards */
#define COLD_BITS (TEST_SANITIZED ? 22 : 28) /* of bytes that no cache holds */

typedef struct race {
    memlord *lord;
    uint64_t first; /* key */
    char *cold;
    int at, done, stop; /* regions */
    int failed;         /* calls */
} race;

static uint64_t race_key(const race *r, int i) { return r->first + (uint64_t)i * REGION; }

/* Stores that wait for memory: those of the next call wait behind them, while its loads do not. Of
   Knuth's generator only the upper bits are used. */
static void race_store_far(const race *r, uint64_t *seed) {
    int i;
    for (i = 0; i < 24; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        r->cold[*seed >> (64 - COLD_BITS)] = (char)i;
    }
}

/* Over and over in the region of the moment; the last block stays for the other thread to free. */
static void *race_run(void *user) {
    race *r = (race *)user;
    uint64_t seed = 1;
    int left = -1, failed = 0;
    while (!__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE)) {
        int i = __atomic_load_n(&r->at, __ATOMIC_RELAXED), n;
        for (n = 1; n <= 6; n++) {
            uint64_t key = race_key(r, i) + (uint64_t)n * 64;
            race_store_far(r, &seed);
            failed += memlord_alloc(r->lord, cpu(), key, 8, NULL) != 0;
            race_store_far(r, &seed);
            failed += memlord_free(r->lord, cpu(), key, NULL) != 0;
        }
        if (left != i) failed += memlord_alloc(r->lord, cpu(), race_key(r, i), 8, NULL) != 0;
        left = i;
        __atomic_store_n(&r->done, i + 1, __ATOMIC_RELEASE);
    }
    r->failed += failed;
    return NULL;
}

/* Takes `n` regions from a thread; enters a sandbox before number `refuse_at`. */
static int race_steal(race *r, int n, int refuse_at) {
    int i;
    for (i = 0; i < n; i++) {
        volatile int wait = 0;
        unsigned looks = 0;
        if (i == refuse_at && refuse_membarrier(EPERM)) return NO_SANDBOX;
        __atomic_store_n(&r->at, i, __ATOMIC_RELAXED);
        while (__atomic_load_n(&r->done, __ATOMIC_ACQUIRE) != i + 1)
            if (++looks % 10000 == 0) sched_yield();
        while (wait < i * 13 % 200) wait = wait + 1;
        if (memlord_retain(r->lord, cpu(), race_key(r, i) + 4096, NULL) != MEMLORD_E_UNKNOWN ||
            memlord_free(r->lord, cpu(), race_key(r, i), NULL))
            return FAILED_CALL;
    }
    return PASSED;
}

/* A ledger whose books are known at the end. */
static int race_once(race *r, int n, int refuse_at) {
    pthread_t thread;
    memlord_stats s;
    int answer;
    r->at = r->done = r->stop = r->failed = 0;
    r->lord = open_plain();
    if (!r->lord || pthread_create(&thread, NULL, race_run, r)) return FAILED_CALL;
    answer = race_steal(r, n, refuse_at);
    __atomic_store_n(&r->stop, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    if (answer) return answer;
    if (r->failed) return FAILED_CALL;
    if (memlord_stats_get(r->lord, cpu(), &s)) return FAILED_CALL;
    if (s.allocated || s.live_blocks || s.implicit_frees || s.unknown_frees) return WRONG_BOOKS;
    if (memlord_verify(r->lord)) return WRONG_BOOKS;
    memlord_destroy(r->lord);
    return PASSED;
}

static int race_open(race *r) {
    memset(r, 0, sizeof *r);
    r->first = 0x7f0000000000u;
    r->cold = (char *)malloc((size_t)1 << COLD_BITS);
    if (!r->cold) return FAILED_CALL;
    memset(r->cold, 1, (size_t)1 << COLD_BITS);
    return PASSED;
}

static int race_refused_before(void) {
    race r;
    if (refuse_membarrier(EPERM)) return NO_SANDBOX;
    return race_open(&r) ? FAILED_CALL : race_once(&r, 200, -1);
}
static void books_are_right_where_the_barrier_is_refused_from_the_start(void **state) {
    (void)state;
    in_child(race_refused_before);
}

static int race_refused_later(void) {
    race r;
    memlord *first = open_plain(); /* which asks for the barrier and is granted it */
    int answer, i;
    if (!first || race_open(&r)) return FAILED_CALL;
    answer = race_once(&r, 400, 0);
    for (i = 0; i < 2 && !answer; i++) answer = race_once(&r, 400, -1);
    memlord_destroy(first);
    return answer;
}
static void books_are_right_where_the_barrier_is_refused_later(void **state) {
    (void)state;
    in_child(race_refused_later);
}

/* Only the first take after the refusal meets a thread that has not noticed it. */
static int race_refused_amid(void) {
    race r;
    return race_open(&r) ? FAILED_CALL : race_once(&r, 12, 8);
}
static void books_are_right_when_the_barrier_is_refused_amid_calls(void **state) {
    int i;
    (void)state;
    for (i = 0; i < 10; i++) in_child(race_refused_amid);
}

/* -- the refusal itself -- */

#define SLEEPER_BLOCKS 32

typedef struct sleeper {
    memlord *lord;
    test_gate gate;
    int failed;
} sleeper;

static void *sleeper_run(void *user) {
    sleeper *s = (sleeper *)user;
    uint64_t i;
    for (i = 1; i <= SLEEPER_BLOCKS; i++)
        s->failed += memlord_alloc(s->lord, cpu(), i * REGION * 2, 8, NULL) != 0;
    test_gate_pass(&s->gate);
    for (i = 1; i <= SLEEPER_BLOCKS; i++)
        s->failed += memlord_alloc(s->lord, cpu(), i * REGION * 2, 8, NULL) != 0;
    return NULL;
}

/* A thread that sleeps through the refusal cannot notice it. */
static int free_of_a_sleeper(void) {
    sleeper s = {NULL, TEST_GATE, 0};
    pthread_t thread;
    uint64_t i;
    int failed = 0;
    s.lord = open_plain();
    if (!s.lord || pthread_create(&thread, NULL, sleeper_run, &s)) return FAILED_CALL;
    if (!test_gate_came(&s.gate, 1)) return STUCK;
    if (refuse_membarrier(ENOSYS)) return NO_SANDBOX;
    errno = EXDEV;
    for (i = 1; i <= SLEEPER_BLOCKS; i++)
        failed += memlord_free(s.lord, cpu(), i * REGION * 2, NULL) != 0;
    if (errno != EXDEV) return CHANGED_ERRNO;
    if (failed || s.failed || memlord_allocated(s.lord, cpu())) return FAILED_CALL;
    test_gate_open(&s.gate);
    pthread_join(thread, NULL);
    if (s.failed || memlord_allocated(s.lord, cpu()) != SLEEPER_BLOCKS * 8) return WRONG_BOOKS;
    if (memlord_verify(s.lord)) return WRONG_BOOKS;
    memlord_destroy(s.lord);
    return PASSED;
}
static void blocks_of_a_thread_that_sleeps_through_the_refusal_are_freed(void **state) {
    (void)state;
    in_child(free_of_a_sleeper);
}

/* In a child that is born after the refusal. */
static int fork_after_refusal(void) {
    int answer = free_of_a_sleeper(), status = -1;
    race r;
    pid_t pid;
    if (answer) return answer;
    r.lord = open_plain();
    if (!r.lord || memlord_alloc(r.lord, cpu(), REGION, 8, NULL)) return FAILED_CALL;
    pid = fork();
    if (pid < 0) return FAILED_CALL;
    if (!pid) {
        answer = memlord_free(r.lord, cpu(), REGION, NULL) ? FAILED_CALL : PASSED;
        if (!answer && memlord_allocated(r.lord, cpu())) answer = WRONG_BOOKS;
        if (!answer) answer = race_open(&r);
        _exit(answer ? answer : race_once(&r, 50, -1));
    }
    if (waitpid(pid, &status, 0) != pid) return STUCK;
    return WIFEXITED(status) ? WEXITSTATUS(status) : WRONG_BOOKS;
}
static void a_child_born_after_the_refusal_goes_on(void **state) {
    (void)state;
    in_child(fork_after_refusal);
}

/* -- a thread of a high priority waits for one of a low priority, on one processor -- */

static memlord *ranked;
static unsigned long ranked_rounds;

static uint64_t ranked_key(uint64_t i) { return 0x7f0000000000u + i % 64 * REGION / 8; }

static void *ranked_low(void *user) {
    uint64_t i;
    (void)user;
    for (i = 0;; i++) {
        memlord_alloc(ranked, cpu(), ranked_key(i), 1, NULL);
        memlord_free(ranked, cpu(), ranked_key(i), NULL);
    }
    return NULL;
}

static int discard(void *user, const void *data, size_t size) {
    (void)user;
    (void)data;
    (void)size;
    return 0;
}

static void *ranked_high(void *user) {
    const struct timespec pause = {0, 50000};
    uint64_t i;
    (void)user;
    for (i = 0;; i++) {
        nanosleep(&pause, NULL); /* wherever the other thread is by then */
        memlord_retain(ranked, cpu(), ranked_key(i), NULL);
        if (i % 16 == 0) memlord_write(ranked, MEMLORD_FORMAT_TEXT, discard, NULL);
        __atomic_add_fetch(&ranked_rounds, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* 0: it runs, on the processor that all of them share. */
static int ranked_start(void *(*run)(void *), int priority, size_t processor) {
    struct sched_param param;
    pthread_attr_t attr;
    pthread_t thread;
    cpu_set_t set;
    int bad;
    memset(&param, 0, sizeof param);
    param.sched_priority = priority;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    pthread_attr_init(&attr);
    pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
    pthread_attr_setschedparam(&attr, &param);
    pthread_attr_setaffinity_np(&attr, sizeof set, &set);
    bad = pthread_create(&thread, &attr, run, NULL);
    pthread_attr_destroy(&attr);
    return bad;
}

/* The watcher has a higher priority than both. */
static int ranked_watch(void) {
    const struct timespec pause = {0, 20000000};
    struct sched_param param;
    unsigned long seen = 0, now = 0;
    const size_t processor = (size_t)sched_getcpu();
    int idle = 0;
    memset(&param, 0, sizeof param);
    param.sched_priority = 60;
    if (sched_setscheduler(0, SCHED_FIFO, &param)) return NO_SANDBOX;
    ranked = open_plain();
    if (!ranked) return FAILED_CALL;
    if (ranked_start(ranked_low, 1, processor) || ranked_start(ranked_high, 50, processor))
        return NO_SANDBOX;
    while (now < 300) {
        nanosleep(&pause, NULL);
        now = __atomic_load_n(&ranked_rounds, __ATOMIC_RELAXED);
        idle = now == seen ? idle + 1 : 0;
        if (idle == 250) return STUCK;
        seen = now;
    }
    return PASSED;
}
static void a_real_time_thread_lets_a_lower_one_that_is_inside_go_on(void **state) {
    (void)state;
    in_child(ranked_watch);
}

/* Where the barrier is refused, it is a wait of at least 1 ms. */
static int strategy_waits(void) {
    const memlord_band band = {0, 101, MEMLORD_METRIC_ALLOCATED, 1 << 20, 0, MEMLORD_COMBINE_MAX};
    struct timespec from, to;
    memlord *lord = open_plain();
    test_gc gc;
    memset(&gc, 0, sizeof gc);
    if (!lord || memlord_alloc(lord, cuda(0), 0x1000, 8, NULL) ||
        memlord_gc_callback_add(lord, cuda(0), 0, test_gc_run, &gc))
        return FAILED_CALL;
    if (refuse_membarrier(EPERM)) return NO_SANDBOX;
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    if (memlord_strategy_set(lord, cuda(0), &band, 1)) return FAILED_CALL;
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    to.tv_nsec -= from.tv_nsec;
    return (to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec < 1000000 ? WRONG_BOOKS : PASSED;
}
static void a_strategy_waits_for_calls_that_compared_with_older_marks(void **state) {
    (void)state;
    in_child(strategy_waits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(books_are_right_where_the_barrier_is_refused_from_the_start),
        cmocka_unit_test(books_are_right_where_the_barrier_is_refused_later),
        cmocka_unit_test(books_are_right_when_the_barrier_is_refused_amid_calls),
        cmocka_unit_test(blocks_of_a_thread_that_sleeps_through_the_refusal_are_freed),
        cmocka_unit_test(a_child_born_after_the_refusal_goes_on),
        cmocka_unit_test(a_strategy_waits_for_calls_that_compared_with_older_marks),
        cmocka_unit_test(a_real_time_thread_lets_a_lower_one_that_is_inside_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
