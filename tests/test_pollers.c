/* Pollers: a thread for a device, when there is something to decide, and not before. Only the
   last test waits for time to pass. */
#include "support.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "json.h"

#define ALLOCATED MEMLORD_METRIC_ALLOCATED
#define SCALE test_env("MEMLORD_TEST_SCALE", 4)
#define MS ((uint64_t)1000000)

/* -- threads, counted and refused -- */

/* A thread that was joined may be listed a moment longer: answers how many are in the end. */
static size_t threads_left(size_t expected) {
    time_t until = time(NULL) + 20;
    while (threads_now() > expected && time(NULL) < until) sched_yield();
    return threads_now();
}

static size_t idle; /* with no ledger */

/* Of this test: those of the one before are gone. */
static size_t threads_before(void) { return threads_left(idle); }

#if !TEST_SANITIZED
static int refuse_threads;

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                   void *arg) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *found;
    if (__atomic_load_n(&refuse_threads, __ATOMIC_SEQ_CST)) return EAGAIN;
    if (!real) {
        found = dlsym(RTLD_NEXT, "pthread_create");
        memcpy(&real, &found, sizeof real);
    }
    return real(thread, attr, fn, arg);
}
#endif

static void *nothing(void *user) { return user; }

/* What a runtime starts beside the first thread is there from now on. */
static int start_a_thread_once(void **state) {
    pthread_t thread;
    (void)state;
    idle = threads_now();
    if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL)) return -1;
#if TEST_SANITIZED
    {
        size_t i; /* which of them stay is for the runtime to say */
        for (i = 0; i < 1000; i++) sched_yield();
        idle = threads_now();
    }
#endif
    return 0;
}

/* -- a source that counts per device, and waits where it is told to -- */

#define WATCHED 4

typedef struct watched {
    test_gate gates[WATCHED]; /* by index; open unless it should block */
    uint64_t total, used;
} watched;

static int ask_watched(void *user, memlord_device device, memlord_capacity *out) {
    watched *w = (watched *)user;
    test_gate_pass(&w->gates[device.index]);
    out->total = __atomic_load_n(&w->total, __ATOMIC_SEQ_CST);
    out->used = __atomic_load_n(&w->used, __ATOMIC_SEQ_CST);
    return 0;
}

static watched *watch(test_case *t) {
    static watched w;
    const test_gate gate = TEST_GATE;
    int i;
    for (i = 0; i < WATCHED; i++) {
        w.gates[i] = gate;
        w.gates[i].open = 1;
    }
    w.total = 1000000;
    w.used = 0;
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, ask_watched, &w));
    return &w;
}

static int setup_threads(void **state) { return test_open_fakes(state, 0); }
static int setup_threads_defer(void **state) {
    return test_open_fakes(state, MEMLORD_FLAG_DEFER);
}
static int setup_threads_bare(void **state) {
    return test_open_fakes(state, MEMLORD_FLAG_NO_STRATEGY);
}

static void remove_callback(test_case *t) {
    assert_ok(
        memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
}

/* -- not before there is something to decide -- */

static void a_device_without_a_source_has_no_poller(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, NULL, NULL));
    grow(t, cuda(0), 100);
    assert_int_equal(threads_now(), before);
}

static void a_device_without_a_callback_has_none(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    remove_callback(t);
    grow(t, cuda(0), 100);
    grow(t, cpu(), 100);
    assert_int_equal(threads_now(), before);
}

static void a_device_without_a_strategy_has_none(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    assert_ok(memlord_strategy_set(t->lord, all(), NULL, 0));
    grow(t, cuda(0), 100);
    assert_int_equal(threads_now(), before);
}

static void nor_has_one_with_the_no_strategy_flag(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    grow(t, cuda(0), 100);
    assert_int_equal(threads_now(), before);
}

static void only_the_devices_with_a_strategy_have_one(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(0, 101, ALLOCATED, 1000000, 0);
    size_t before = threads_before();
    assert_ok(memlord_strategy_set(t->lord, all(), NULL, 0));
    assert_ok(memlord_strategy_set(t->lord, cuda(1), &band, 1));
    grow(t, cuda(0), 100);
    assert_int_equal(threads_now(), before);
    grow(t, cuda(1), 100);
    assert_int_equal(threads_now(), before + 1);
}

static void only_the_devices_with_a_callback_have_one(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    remove_callback(t);
    assert_ok(memlord_gc_callback_add(t->lord, cuda(1), 0, test_gc_run, &t->gc));
    assert_ok(memlord_gc_callback_add(t->lord, cuda(0), 1u << MEMLORD_REASON_OOM, test_gc_run,
                                      &t->gc));
    grow(t, cuda(0), 100);
    assert_int_equal(threads_now(), before);
    grow(t, cuda(1), 100);
    assert_int_equal(threads_now(), before + 1);
}

static void create_and_configuration_start_none(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    test_threshold(t->lord, ALLOCATED, 1000);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1000));
    memlord_allocated(t->lord, all());
    free(report_of(t->lord, MEMLORD_FORMAT_TEXT));
    assert_int_equal(threads_now(), before);
}

/* -- one for each device -- */

static void the_first_call_that_touches_a_device_starts_its_poller(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    grow(t, cuda(0), 100);
    assert_int_equal(threads_now(), before + 1);
    grow(t, cuda(0), 100);
    grow(t, cpu(), 100);
    assert_int_equal(threads_now(), before + 1);
    grow(t, cuda(1), 100);
    assert_int_equal(threads_now(), before + 2);
}

static void one_starts_when_the_last_of_the_three_comes(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    remove_callback(t);
    assert_ok(memlord_strategy_set(t->lord, all(), NULL, 0));
    grow(t, cuda(0), 100);
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, test_gc_run, &t->gc));
    grow(t, cuda(0), 100);
    assert_int_equal(threads_now(), before);
    test_threshold(t->lord, ALLOCATED, 1000000);
    grow(t, cuda(0), 100);
    assert_int_equal(threads_now(), before + 1);
}

static void devices_in_one_memory_share_a_poller(void **state) {
    test_case *t = (test_case *)*state;
    size_t before;
    assert_ok(
        memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CPU, test_source_ask, &t->source));
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CPU), 0, test_gc_run, &t->gc));
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_PINNED), 0, test_gc_run, &t->gc));
    before = threads_before();
    grow(t, cpu(), 100);
    grow(t, memlord_device_make(MEMLORD_DEVICE_PINNED, 0), 100);
    assert_int_equal(threads_now(), before + 1);
}

static void destroy_joins_them(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    grow(t, cuda(0), 100);
    grow(t, cuda(1), 100);
    memlord_destroy(t->lord);
    t->lord = NULL;
    assert_int_equal(threads_left(before), before);
}

/* -- by hand -- */

static void stop_joins_them_and_none_starts_until_start(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    grow(t, cuda(0), 100);
    memlord_poller_stop(t->lord);
    assert_int_equal(threads_left(before), before);
    grow(t, cuda(0), 100);
    grow(t, cuda(1), 100);
    assert_int_equal(threads_now(), before);
    memlord_poller_stop(t->lord);
    assert_ok(memlord_poller_start(t->lord, 0));
    grow(t, cuda(0), 100);
    grow(t, cuda(1), 100);
    assert_int_equal(threads_now(), before + 2);
}

static void start_wants_neither_callback_nor_strategy(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    remove_callback(t);
    assert_ok(memlord_strategy_set(t->lord, all(), NULL, 0));
    grow(t, cuda(0), 100);
    assert_int_equal(threads_now(), before);
    assert_ok(memlord_poller_start(t->lord, 0));
    assert_int_equal(threads_now(), before + 1);
    assert_ok(memlord_poller_start(t->lord, 0));
    assert_int_equal(threads_now(), before + 1);
    grow(t, cuda(1), 100); /* and from now on for whatever comes */
    assert_int_equal(threads_now(), before + 2);
}

static void intervals_below_10_ms_are_refused(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    uint32_t ms;
    for (ms = 1; ms < 10; ms++)
        assert_int_equal(memlord_poller_start(t->lord, ms), MEMLORD_E_INVALID);
    assert_int_equal(threads_now(), before);
    assert_ok(memlord_poller_start(t->lord, 10));
    assert_ok(memlord_poller_start(t->lord, 0));
    assert_ok(memlord_poller_start(t->lord, UINT32_MAX));
}

static void without_threads_start_is_unsupported(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    assert_int_equal(memlord_poller_start(t->lord, 0), MEMLORD_E_UNSUPPORTED);
    grow(t, cuda(0), 100);
    assert_int_equal(threads_now(), before);
    memlord_poller_stop(t->lord);
}

static void a_null_ledger_polls_nothing(void **state) {
    (void)state;
    assert_ok(memlord_poller_start(NULL, 0));
    memlord_poller_stop(NULL);
}

static void pollers_come_and_go(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    uint64_t i;
    for (i = 0; i < 50 * SCALE; i++) {
        assert_ok(memlord_poller_start(t->lord, 10));
        grow(t, cuda((int)(i % 4)), 100);
        memlord_poller_stop(t->lord);
    }
    assert_int_equal(threads_left(before), before);
}

typedef struct switcher {
    memlord *lord;
    uint64_t rounds, next;
} switcher;

static void *start_and_stop(void *user) {
    switcher *s = (switcher *)user;
    uint64_t i, id = __atomic_add_fetch(&s->next, 1, __ATOMIC_RELAXED);
    for (i = 0; i < s->rounds; i++) {
        memlord_poller_start(s->lord, 10);
        memlord_alloc(s->lord, memlord_device_cuda((int)(i % 4)), id << 40, 100, NULL);
        if (i % 2) memlord_poller_stop(s->lord);
    }
    return NULL;
}

static void several_threads_may_start_and_stop_them(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    pthread_t threads[4];
    switcher s;
    int i;
    s.lord = t->lord;
    s.rounds = 100 * SCALE;
    s.next = 0;
    for (i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, start_and_stop, &s), 0);
    for (i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    memlord_poller_stop(t->lord);
    assert_int_equal(threads_left(before), before);
}

/* -- without threads the caller samples -- */

static void touch_and_poll(test_case *t) {
    grow(t, cuda(0), 1);
    assert_ok(memlord_gc_poll(t->lord, all()));
}

static void without_threads_a_poll_samples_what_has_grown_old(void **state) {
    test_case *t = (test_case *)*state;
    t->source.total = 1000;
    t->source.fail = 0;
    touch_and_poll(t);
    assert_int_equal(t->source.calls, 1);
    t->now += 199 * MS;
    touch_and_poll(t);
    assert_int_equal(t->source.calls, 1);
    t->now += 2 * MS;
    grow(t, cuda(0), 1); /* no track call waits for a sample */
    assert_int_equal(t->source.calls, 1);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(t->source.calls, 2);
}

static void a_clock_that_jumps_is_not_caught_up_with(void **state) {
    test_case *t = (test_case *)*state;
    int i;
    touch_and_poll(t);
    t->now += 3600000 * MS;
    for (i = 0; i < 10; i++) touch_and_poll(t);
    assert_int_equal(t->source.calls, 2);
}

static void a_poll_asks_only_for_the_devices_it_names(void **state) {
    test_case *t = (test_case *)*state;
    grow(t, cuda(0), 1);
    grow(t, cuda(1), 1);
    assert_ok(memlord_gc_poll(t->lord, cuda(1)));
    assert_int_equal(t->source.calls, 1);
    assert_int_equal(t->source.device.index, 1);
    assert_ok(memlord_gc_poll(t->lord, cpu()));
    assert_int_equal(t->source.calls, 1);
}

static void a_sample_by_poll_may_fire_a_band(void **state) {
    test_case *t = (test_case *)*state;
    memlord_band band = band_of(50, 101, ALLOCATED, 1, 0);
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    t->source.total = 1000;
    t->source.fail = 0;
    touch_and_poll(t);
    assert_int_equal(t->gc.runs, 0);
    t->source.used = 600;
    t->now += 201 * MS;
    touch_and_poll(t);
    assert_int_equal(t->gc.runs, 1);
    assert_true(t->gc.last.used_percent == 60.0);
}

static uint32_t started_with; /* 0: the host starts no poller */
static int started_at_0;      /* 1: the host starts one with 0 */
/* How many ms old a sample must be for a poll to take another. */
static uint32_t interval_of(test_case *t, uint32_t poll_ms, const char *variable) {
    memlord_desc desc = test_desc(&t->heap, MEMLORD_FLAG_NO_THREADS);
    memlord *lord = NULL;
    uint64_t calls;
    uint32_t ms;
    desc.poll_ms = poll_ms;
    desc.clock.fn = test_now;
    desc.clock.user = &t->now;
    desc.logger.fn = test_log_line;
    desc.logger.user = &t->log;
    if (variable) {
        desc.flags &= ~(uint32_t)MEMLORD_FLAG_NO_ENV;
        setenv("MEMLORD_POLL_INTERVAL_MS", variable, 1);
    }
    assert_ok(memlord_create(&desc, &lord));
    unsetenv("MEMLORD_POLL_INTERVAL_MS");
    if (started_with || started_at_0) (void)memlord_poller_start(lord, started_with);
    assert_ok(
        memlord_capacity_source_set(lord, MEMLORD_DEVICE_CUDA, test_source_ask, &t->source));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1, NULL));
    assert_ok(memlord_gc_poll(lord, all()));
    calls = t->source.calls;
    for (ms = 0; ms < 2000 && t->source.calls == calls; ms++) {
        t->now += MS;
        assert_ok(memlord_gc_poll(lord, all()));
    }
    memlord_destroy(lord);
    return ms;
}

static void the_interval_is_200_ms_or_as_configured(void **state) {
    test_case *t = (test_case *)*state;
    assert_int_equal(interval_of(t, 0, NULL), 200);
    assert_int_equal(interval_of(t, 1000, NULL), 1000);
    assert_int_equal(interval_of(t, 50, NULL), 50);
    assert_int_equal(interval_of(t, 10, NULL), 10);
}
static void a_poller_started_with_0_has_an_interval_of_200_ms(void **state) {
    started_at_0 = 1;
    assert_int_equal(interval_of((test_case *)*state, 1000, NULL), 200);
    started_at_0 = 0;
}

static void the_environment_overrides_the_interval(void **state) {
    test_case *t = (test_case *)*state;
    assert_int_equal(interval_of(t, 0, "70"), 70);
    assert_int_equal(interval_of(t, 1000, "70"), 70);
    assert_int_equal(interval_of(t, 0, "10"), 10);
    started_with = 1000;
    assert_int_equal(interval_of(t, 0, "70"), 70);
    started_with = 0;
}

static void nonsense_in_the_environment_is_ignored(void **state) {
    test_case *t = (test_case *)*state;
    const char *const bad[] = {"", "fast", "50x", "50,", "-20", "9", "0"};
    const char *const told =
        "[poller] MEMLORD_POLL_INTERVAL_MS is not a number of at least 10: ignored\n";
    size_t i;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        test_log_clear(&t->log);
        assert_int_equal(interval_of(t, 0, bad[i]), 200);
        assert_int_equal(strncmp(t->log.text, told, strlen(told)) == 0, i > 0);
    }
}

#if !TEST_SANITIZED
static void a_thread_that_cannot_be_had_leaves_it_to_the_caller(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    test_log_clear(&t->log);
    refuse_threads = 1;
    grow(t, cuda(0), 100);
    grow(t, cuda(0), 100);
    refuse_threads = 0;
    assert_int_equal(threads_now(), before);
    assert_int_equal(t->log.lines[MEMLORD_LOG_WARNING] + t->log.lines[MEMLORD_LOG_ERROR], 1);
    assert_int_equal(t->source.calls, 0);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(t->source.calls, 1);
}

static void a_page_without_a_thread_is_served_by_polls(void **state) {
    test_case *t = (test_case *)*state;
    char path[64];
    size_t before;
#if !defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_8)
    skip(); /* pages need 64-bit atomics */
#endif
    snprintf(path, sizeof path, "/tmp/memlord-pollers-%d", (int)getpid());
    assert_ok(memlord_device_id_set(t->lord, cuda(0), "GPU-0"));
    assert_ok(memlord_poller_stop(t->lord));
    before = threads_now();
    refuse_threads = 1;
    assert_ok(memlord_pressure_open(t->lord, path));
    assert_ok(memlord_gc_poll(t->lord, all()));
    refuse_threads = 0;
    assert_int_equal(threads_now(), before);
    assert_int_equal(t->log.lines[MEMLORD_LOG_WARNING], 1);
    assert_string_equal(t->log.text,
                        "[neighbours] no thread: memlord_gc_poll answers instead\n");
    assert_ok(memlord_pressure_close(t->lord));
    assert_ok(memlord_pressure_open(t->lord, path)); /* now with one */
    assert_int_equal(threads_now(), before + 1);
    assert_ok(memlord_pressure_close(t->lord));
    assert_int_equal(threads_left(before), before);
    (void)unlink(path);
}

static int wait_events; /* refuses conditions, which what waits is made of */
int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attr) {
    static int (*real)(pthread_cond_t *, const pthread_condattr_t *);
    void *found;
    if (__atomic_load_n(&wait_events, __ATOMIC_SEQ_CST)) return ENOMEM;
    if (!real) {
        found = dlsym(RTLD_NEXT, "pthread_cond_init");
        memcpy(&real, &found, sizeof real);
    }
    return real(cond, attr);
}
static int no_memory(void *user, uint64_t bytes, uint64_t *storage) {
    (void)bytes, (void)storage;
    ++*(int *)user;
    return 1;
}

/* With nothing to wait for, the attempts follow at once, and no neighbour is asked. */
static void without_events_nobody_waits(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_retry slow = {2, 60000, 60000, 1, NULL, NULL};
    const time_t begun = time(NULL);
    uint64_t storage;
    int attempts = 0;
    char path[64];
    memlord_result opened;
    snprintf(path, sizeof path, "/tmp/memlord-pollers-%d", (int)getpid());
    opened = memlord_pressure_open(t->lord, path); /* pages need 64-bit atomics */
    grow(t, cuda(0), 1);
    wait_events = 1;
    assert_int_equal(memlord_alloc_retry(t->lord, cuda(0), 1, no_memory, &attempts, &slow, &storage,
                                         NULL),
                     MEMLORD_E_OOM);
    if (opened == MEMLORD_OK)
        assert_int_equal(memlord_pressure_raise(t->lord, cuda(0), 1), MEMLORD_E_NOMEM);
    wait_events = 0;
    assert_int_equal(attempts, 3);
    assert_true(time(NULL) - begun < 60);
    assert_ok(memlord_pressure_close(t->lord));
    (void)unlink(path);
}

static void without_a_thread_polls_take_snapshots_and_write_exports(void **state) {
    test_case *t = (test_case *)*state;
    char path[64], *text;
    snprintf(path, sizeof path, "/tmp/memlord-pollers-%d.prom", (int)getpid());
    test_log_clear(&t->log);
    refuse_threads = 1;
    assert_ok(memlord_snapshots_start(t->lord, 10));
    assert_ok(memlord_export_start(t->lord, path, 10));
    refuse_threads = 0;
    assert_string_equal(
        t->log.text, "[snapshots] no thread for them: memlord_gc_poll takes them instead\n"
                     "[export] no thread for them: memlord_gc_poll takes them instead\n");
    (void)unlink(path);
    (void)usleep(20000);
    assert_ok(memlord_gc_poll(t->lord, all()));
    text = file_text(path);
    assert_non_null(text);
    free(text);
    assert_ok(memlord_export_stop(t->lord));
    assert_ok(memlord_snapshots_stop(t->lord));
    (void)unlink(path);
}

/* A ledger without threads has none for a page either. */
static void without_threads_a_page_has_none(void **state) {
    test_case *t = (test_case *)*state;
    const size_t before = threads_now();
    char path[64];
#if !defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_8)
    skip(); /* pages need 64-bit atomics */
#endif
    snprintf(path, sizeof path, "/tmp/memlord-pollers-%d", (int)getpid());
    assert_ok(memlord_pressure_open(t->lord, path));
    assert_int_equal(threads_now(), before);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(threads_now(), before);
    assert_ok(memlord_pressure_close(t->lord));
    assert_int_equal(t->log.lines[MEMLORD_LOG_WARNING], 0);
    (void)unlink(path);
}

static void a_start_without_a_thread_says_so_and_the_next_tries_again(void **state) {
    test_case *t = (test_case *)*state;
    size_t before = threads_before();
    memlord_poller_stop(t->lord);
    grow(t, cuda(0), 100);
    refuse_threads = 1;
    assert_int_equal(memlord_poller_start(t->lord, 0), MEMLORD_E_NOMEM);
    assert_int_equal(memlord_poller_start(t->lord, 0), MEMLORD_E_NOMEM);
    assert_int_equal(threads_now(), before);
    refuse_threads = 0;
    assert_ok(memlord_poller_start(t->lord, 0));
    assert_true(threads_now() > before);
    memlord_poller_stop(t->lord);
}
#endif

/* -- sources that block -- */

static void a_blocked_source_delays_no_other_device(void **state) {
    test_case *t = (test_case *)*state;
    watched *w = watch(t);
    memlord_capacity c;
    w->gates[0].open = 0;
    grow(t, cuda(0), 100);
    assert_true(test_gate_came(&w->gates[0], 1));
    grow(t, cuda(1), 100);
    assert_true(test_gate_came(&w->gates[1], 1));
    assert_ok(memlord_capacity_get(t->lord, cuda(0), &c));
    assert_int_equal(c.known, 0);
    test_gate_open(&w->gates[0]);
}

static void a_blocked_source_delays_no_track_call(void **state) {
    test_case *t = (test_case *)*state;
    watched *w = watch(t);
    int i;
    test_threshold(t->lord, ALLOCATED, 100000);
    w->gates[0].open = 0;
    grow(t, cuda(0), 100);
    assert_true(test_gate_came(&w->gates[0], 1));
    for (i = 0; i < 1000; i++)
        assert_ok(memlord_free(t->lord, cuda(0), grow(t, cuda(0), 10), NULL));
    grow(t, cuda(0), 100000);
    assert_int_equal(test_gc_runs(&t->gc), 1);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(memlord_capacity_sample(t->lord, cuda(0)), MEMLORD_E_STATE);
    free(report_of(t->lord, MEMLORD_FORMAT_TEXT));
    test_gate_open(&w->gates[0]);
}

/* -- ends -- */

typedef struct opener {
    test_gate *gate;
    int opened;
} opener;

static void *open_late(void *user) {
    opener *o = (opener *)user;
    int i;
    for (i = 0; i < 1000; i++) sched_yield(); /* whoever does not wait would be back */
    __atomic_store_n(&o->opened, 1, __ATOMIC_SEQ_CST);
    test_gate_open(o->gate);
    return NULL;
}

static void destroy_waits_for_a_source(void **state) {
    test_case *t = (test_case *)*state;
    watched *w = watch(t);
    opener o = {&w->gates[0], 0};
    pthread_t thread;
    w->gates[0].open = 0;
    grow(t, cuda(0), 100);
    assert_true(test_gate_came(&w->gates[0], 1));
    assert_int_equal(pthread_create(&thread, NULL, open_late, &o), 0);
    memlord_destroy(t->lord);
    t->lord = NULL;
    assert_int_equal(__atomic_load_n(&o.opened, __ATOMIC_SEQ_CST), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void pass_the_gate(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    (void)lord;
    (void)event;
    test_gate_pass((test_gate *)gc->user);
}

static void with_defer_destroy_waits_for_a_run_on_a_poller(void **state) {
    test_case *t = (test_case *)*state;
    test_gate gate = TEST_GATE;
    opener o = {&gate, 0};
    pthread_t thread;
    t->gc.user = &gate;
    t->gc.act = pass_the_gate;
    test_threshold(t->lord, ALLOCATED, 1000);
    assert_ok(memlord_poller_start(t->lord, 10));
    grow(t, cuda(0), 1000);
    assert_true(test_gate_came(&gate, 1));
    assert_int_equal(pthread_create(&thread, NULL, open_late, &o), 0);
    memlord_destroy(t->lord);
    t->lord = NULL;
    assert_int_equal(__atomic_load_n(&o.opened, __ATOMIC_SEQ_CST), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(test_gc_runs(&t->gc), 1);
}

static void stop_and_pass_the_gate(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    (void)event;
    if (memlord_poller_stop(lord) == MEMLORD_E_STATE &&
        memlord_snapshots_stop(lord) == MEMLORD_E_STATE &&
        memlord_events_stop(lord) == MEMLORD_E_STATE &&
        memlord_export_stop(lord) == MEMLORD_E_STATE)
        test_gate_pass((test_gate *)gc->user);
}

static void with_defer_a_callback_cannot_stop_the_poller_it_runs_on(void **state) {
    test_case *t = (test_case *)*state;
    test_gate gate = TEST_GATE;
    size_t before;
    assert_ok(memlord_poller_stop(t->lord)); /* the one that waits for devices to come */
    before = threads_before();
    gate.open = 1;
    t->gc.user = &gate;
    t->gc.act = stop_and_pass_the_gate;
    test_threshold(t->lord, ALLOCATED, 1000);
    assert_ok(memlord_poller_start(t->lord, 10));
    grow(t, cuda(0), 1000);
    assert_true(test_gate_came(&gate, 1));
    assert_true(threads_now() > before);
    assert_ok(memlord_poller_stop(t->lord));
    assert_int_equal(threads_left(before), before);
}

static int count_event(void *user, const memlord_event *event) {
    *(uint64_t *)user += event->kind == MEMLORD_EVENT_ALLOC;
    return 0;
}
static void stop_events_and_pass_the_gate(test_gc *gc, memlord *lord,
                                          const memlord_gc_event *event) {
    (void)event;
    if (memlord_events_stop(lord) == MEMLORD_E_STATE) test_gate_pass((test_gate *)gc->user);
}
static void with_defer_a_callback_on_a_poller_cannot_stop_the_events(void **state) {
    test_case *t = (test_case *)*state;
    test_gate gate = TEST_GATE;
    uint64_t allocs = 0;
    gate.open = 1;
    t->gc.user = &gate;
    t->gc.act = stop_events_and_pass_the_gate;
    test_threshold(t->lord, ALLOCATED, 1000);
    assert_ok(memlord_events_start(t->lord, 100));
    assert_ok(memlord_poller_start(t->lord, 10));
    grow(t, cuda(0), 1000);
    assert_true(test_gate_came(&gate, 1));
    grow(t, cuda(0), 1);
    assert_ok(memlord_events_each(t->lord, count_event, &allocs));
    assert_int_equal(allocs, 2);
    assert_ok(memlord_poller_stop(t->lord));
}

/* -- what its own threads do to a ledger -- */

/* A source that does something to its ledger, once on each of the pollers there should be. */
enum { STOP, STOP_WHILE_STOPPED, STOP_EACH_OTHER, CANCEL };
typedef struct meddler {
    memlord *lord;
    int what;
    pthread_t host;
    test_gate gate;
    uint64_t came, left, stopped;
} meddler;
static int meddle(void *user, memlord_device device, memlord_capacity *out) {
    meddler *m = (meddler *)user;
    const struct timespec nap = {0, 50 * 1000 * 1000};
    (void)device;
    out->total = 1000;
    if (pthread_equal(pthread_self(), m->host)) return 0;
    if (__atomic_add_fetch(&m->came, 1, __ATOMIC_SEQ_CST) <= (m->what == STOP_EACH_OTHER ? 2 : 1)) {
        test_gate_pass(&m->gate);
        if (m->what == STOP_WHILE_STOPPED) nanosleep(&nap, NULL); /* the other side has begun to */
        if (m->what == CANCEL)
            pthread_cancel(pthread_self());
        else if (memlord_poller_stop(m->lord) != MEMLORD_E_STATE)
            __atomic_add_fetch(&m->stopped, 1, __ATOMIC_SEQ_CST);
    }
    __atomic_add_fetch(&m->left, 1, __ATOMIC_SEQ_CST);
    return 0;
}

/* Lets a source meddle on pollers of two devices; answers how often it was asked there. */
static uint64_t meddled(void **state, int what, uint64_t expected) {
    static meddler m;
    const test_gate gate = TEST_GATE;
    memlord *lord = test_lord(state);
    uint64_t seen;
    memset(&m, 0, sizeof m);
    m.lord = lord;
    m.what = what;
    m.host = pthread_self();
    m.gate = gate;
    m.gate.open = what == STOP || what == CANCEL;
    alarm(60); /* somebody would wait for ever */
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1, NULL));
    if (what == STOP_EACH_OTHER) assert_ok(memlord_alloc(lord, cuda(1), 0x2000, 1, NULL));
    assert_ok(memlord_capacity_source_set(lord, MEMLORD_DEVICE_CUDA, meddle, &m));
    assert_ok(memlord_poller_start(lord, 10));
    if (what == STOP_WHILE_STOPPED || what == STOP_EACH_OTHER) {
        assert_true(test_gate_came(&m.gate, what == STOP_EACH_OTHER ? 2 : 1));
        test_gate_open(&m.gate);
    }
    if (what == STOP_WHILE_STOPPED) assert_ok(memlord_poller_stop(lord));
    do {
        sched_yield();
        seen = __atomic_load_n(&m.left, __ATOMIC_SEQ_CST);
    } while (seen < expected);
    memlord_destroy(lord);
    ((test_case *)*state)->lord = NULL;
    alarm(0);
    assert_int_equal(__atomic_load_n(&m.stopped, __ATOMIC_SEQ_CST), 0);
    return __atomic_load_n(&m.left, __ATOMIC_SEQ_CST);
}

static void a_source_on_a_poller_cannot_stop_it(void **state) {
    assert_true(meddled(state, STOP, 3) >= 3);
}
static void nor_while_the_host_stops_it(void **state) {
    assert_int_equal(meddled(state, STOP_WHILE_STOPPED, 1), 1);
}
static void two_pollers_cannot_stop_each_other(void **state) {
    assert_true(meddled(state, STOP_EACH_OTHER, 4) >= 4);
}
static void a_poller_cannot_be_cancelled(void **state) {
    assert_true(meddled(state, CANCEL, 3) >= 3);
}

/* -- a poller that ends another ledger -- */

static int linger(void *user, memlord_device device, memlord_capacity *out) {
    const struct timespec nap = {0, 50 * 1000 * 1000};
    (void)device;
    out->total = 1000;
    test_gate_pass((test_gate *)user);
    nanosleep(&nap, NULL);
    return 0;
}
typedef struct ender {
    memlord *other;
    test_gate ended;
} ender;
static int end_the_other(void *user, memlord_device device, memlord_capacity *out) {
    ender *e = (ender *)user;
    (void)device;
    out->total = 1000;
    if (!e->other) return 0;
    memlord_destroy(e->other);
    e->other = NULL;
    test_gate_pass(&e->ended);
    return 0;
}

static void a_poller_that_destroys_another_ledger_waits_for_its_pollers(void **state) {
    memlord *lord = test_lord(state), *other;
    static const test_gate open = TEST_GATE;
    test_gate at_work = TEST_GATE;
    static ender e;
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    assert_ok(memlord_create(&desc, &other));
    at_work.open = 1;
    e.ended = open;
    e.ended.open = 1;
    assert_ok(memlord_alloc(other, cuda(0), 0x1000, 1, NULL));
    assert_ok(memlord_capacity_source_set(other, MEMLORD_DEVICE_CUDA, linger, &at_work));
    assert_ok(memlord_poller_start(other, 10));
    assert_true(test_gate_came(&at_work, 1));
    e.other = other;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1, NULL));
    assert_ok(memlord_capacity_source_set(lord, MEMLORD_DEVICE_CUDA, end_the_other, &e));
    assert_ok(memlord_poller_start(lord, 10));
    assert_true(test_gate_came(&e.ended, 1));
    assert_ok(memlord_poller_stop(lord));
}

/* -- fork; the thread sanitizer lets no child start a thread -- */

#if !TEST_SANITIZED
static memlord *polled_ledger(void) {
    static test_source source;
    memlord_desc desc;
    memlord *lord = NULL;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    source.total = 1000;
    assert_ok(memlord_create(&desc, &lord)); /* its own pages: malloc's may be locked */
    assert_ok(memlord_capacity_source_set(lord, MEMLORD_DEVICE_CUDA, test_source_ask, &source));
    assert_ok(memlord_poller_start(lord, 10));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    return lord;
}

static void without_a_device_no_poller_starts(void **state) {
    memlord_desc desc;
    memlord *lord = NULL;
    size_t before;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    assert_ok(memlord_create(&desc, &lord));
    before = threads_now();
    assert_ok(memlord_poller_start(lord, 10));
    assert_int_equal(threads_now(), before);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
    assert_int_equal(threads_now(), before + 1);
    memlord_destroy(lord);
}

static void a_child_has_no_poller_until_it_uses_the_ledger(void **state) {
    memlord *lord;
    size_t before;
    pid_t pid;
    (void)state;
    if (threads_of_a_child() != 1) skip();
    lord = polled_ledger();
    before = threads_now();
    pid = fork();
    if (pid == 0) {
        alarm(20);
        if (threads_now() != 1) _exit(1);
        if (memlord_allocated(lord, cuda(0)) != 100) _exit(2);
        if (memlord_alloc(lord, cuda(0), 0x2000, 10, NULL)) _exit(3);
        if (threads_now() != 2) _exit(4);
        memlord_destroy(lord);
        _exit(threads_left(1) != 1 ? 5 : 0);
    }
    assert_int_equal(child_status(pid), 0);
    assert_int_equal(threads_now(), before);
    memlord_destroy(lord);
}

/* A child of a process whose ledger has one kind of thread: it has one again after a call, which
   works until `done` says so. */
static void a_child_goes_on(memlord *lord, int (*done)(memlord *lord)) {
    pid_t pid = fork();
    if (pid == 0) {
        const time_t until = time(NULL) + 10;
        alarm(20);
        if (threads_now() != 1) _exit(1);
        if (memlord_alloc(lord, cuda(0), 0x2000, 10, NULL)) _exit(2);
        if (threads_now() != 2) _exit(3);
        while (!done(lord) && time(NULL) < until) usleep(1000);
        if (!done(lord)) _exit(4);
        memlord_destroy(lord);
        _exit(0);
    }
    assert_int_equal(child_status(pid), 0);
    memlord_destroy(lord);
}
static memlord *plain_ledger(uint32_t snapshot_ms) {
    memlord_desc desc;
    memlord *lord = NULL;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    desc.snapshot_ms = snapshot_ms;
    desc.poll_ms = 10;
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    return lord;
}

static uint64_t snapshots_of(memlord *lord) {
    char *text = report_of(lord, MEMLORD_FORMAT_JSON);
    uint64_t n = json_u64(text, "summary.num_snapshots");
    free(text);
    return n;
}
static int snapshots_grow(memlord *lord) {
    static uint64_t before;
    if (!before) before = snapshots_of(lord);
    return snapshots_of(lord) > before + 2;
}
static void a_childs_snapshots_go_on_after_a_call(void **state) {
    (void)state;
    if (threads_of_a_child() != 1) skip();
    a_child_goes_on(plain_ledger(10), snapshots_grow);
}

/* The source forks on the poller's thread: in the child that thread is the host's. */
static pid_t born;
static int fork_once(void *user, memlord_device device, memlord_capacity *out) {
    memlord *lord = (memlord *)user;
    static int forked;
    pid_t pid;
    (void)device, (void)out;
    if (forked++) return -1;
    pid = fork();
    if (!pid) {
        alarm(20);
        if (memlord_poller_stop(lord)) _exit(1);
        _exit(memlord_alloc(lord, cuda(0), 0x3000, 1, NULL) ? 2 : 0);
    }
    __atomic_store_n(&born, pid, __ATOMIC_RELEASE);
    return -1;
}
static void a_child_born_on_a_poller_is_none(void **state) {
    memlord *lord = plain_ledger(0);
    const time_t until = time(NULL) + 20;
    (void)state;
    assert_ok(memlord_capacity_source_set(lord, MEMLORD_DEVICE_CUDA, fork_once, lord));
    assert_ok(memlord_poller_start(lord, 10));
    while (!__atomic_load_n(&born, __ATOMIC_ACQUIRE) && time(NULL) < until) usleep(1000);
    assert_int_equal(child_status(born), 0);
    memlord_destroy(lord);
}

static test_source sampled;
static int is_sampled(memlord *lord) {
    (void)lord;
    return __atomic_load_n(&sampled.calls, __ATOMIC_RELAXED) > 1000;
}
static void a_childs_pollers_sample_again_after_a_call(void **state) {
    memlord *lord = plain_ledger(0);
    (void)state;
    if (threads_of_a_child() != 1) skip();
    assert_ok(memlord_capacity_source_set(lord, MEMLORD_DEVICE_CUDA, test_source_ask, &sampled));
    assert_ok(memlord_poller_start(lord, 10)); /* neither a strategy nor a callback wants it */
    __atomic_store_n(&sampled.calls, 999, __ATOMIC_RELAXED);
    a_child_goes_on(lord, is_sampled);
}

static void a_childs_poller_of_the_cpu_samples_again_after_a_call(void **state) {
    memlord *lord = plain_ledger(0);
    (void)state;
    if (threads_of_a_child() != 1) skip();
    memset(&sampled, 0, sizeof sampled);
    assert_ok(memlord_capacity_source_set(lord, MEMLORD_DEVICE_CPU, test_source_ask, &sampled));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 1, NULL));
    assert_ok(memlord_poller_start(lord, 10));
    __atomic_store_n(&sampled.calls, 999, __ATOMIC_RELAXED);
    a_child_goes_on(lord, is_sampled);
}

static void a_child_may_stop_what_it_does_not_have(void **state) {
    memlord *lord;
    pid_t pid;
    (void)state;
    if (threads_of_a_child() != 1) skip();
    lord = polled_ledger();
    pid = fork();
    if (pid == 0) {
        alarm(20);
        memlord_poller_stop(lord);
        if (memlord_alloc(lord, cuda(0), 0x2000, 10, NULL)) _exit(1);
        if (threads_now() != 1) _exit(2);
        if (memlord_poller_start(lord, 10)) _exit(3);
        if (threads_now() != 2) _exit(4);
        memlord_destroy(lord);
        _exit(0);
    }
    assert_int_equal(child_status(pid), 0);
    memlord_destroy(lord);
}

static void a_child_may_destroy_at_once(void **state) {
    memlord *lord = polled_ledger();
    pid_t pid = fork();
    (void)state;
    if (pid == 0) {
        alarm(20);
        memlord_destroy(lord);
        _exit(0);
    }
    assert_int_equal(child_status(pid), 0);
    memlord_destroy(lord);
}

static void children_born_while_pollers_work_never_hang(void **state) {
    memlord *lord;
    uint64_t i;
    (void)state;
    if (threads_of_a_child() != 1) skip(); /* such an emulator may fail at another thread */
    lord = polled_ledger();
    for (i = 0; i < 50 * SCALE; i++) {
        pid_t pid;
        memlord_capacity c;
        memlord_poller_stop(lord); /* a poller that starts is at work */
        assert_ok(memlord_poller_start(lord, 10));
        pid = fork();
        if (pid == 0) {
            alarm(10);
            if (memlord_capacity_get(lord, cuda(0), &c)) _exit(1);
            if (memlord_alloc(lord, cuda(0), 0x2000, 10, NULL)) _exit(2);
            while (memlord_capacity_sample(lord, cuda(0)) == MEMLORD_E_STATE) sched_yield();
            if (memlord_gc_poll(lord, all())) _exit(3);
            memlord_destroy(lord);
            _exit(0);
        }
        assert_int_equal(child_status(pid), 0);
    }
    memlord_destroy(lord);
}
#endif

/* -- the one that waits -- */

static void samples_come_by_themselves_and_fire_bands(void **state) {
    test_case *t = (test_case *)*state;
    watched *w = watch(t);
    test_gate ran = TEST_GATE;
    memlord_band band = band_of(50, 101, ALLOCATED, 1, 0);
    memlord_capacity c;
    ran.open = 1;
    t->gc.user = &ran;
    t->gc.act = pass_the_gate;
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    grow(t, cuda(0), 100); /* no safe point follows, and yet they start */
    assert_true(test_gate_came(&w->gates[0], 1));
    assert_ok(memlord_poller_start(t->lord, 10));
    assert_true(test_gate_came(&w->gates[0], 3));
    assert_ok(memlord_capacity_get(t->lord, cuda(0), &c));
    assert_int_equal(c.known, 1);
    assert_int_equal(c.total, 1000000);
    assert_int_equal(test_gc_runs(&t->gc), 0);
    __atomic_store_n(&w->used, 600000, __ATOMIC_SEQ_CST);
    assert_true(test_gate_came(&ran, 1)); /* no track call: the poller saw it */
    memlord_poller_stop(t->lord);
    assert_int_equal(test_gc_runs(&t->gc), 1);
}

#define TEST_THREADS(name) cmocka_unit_test_setup_teardown(name, setup_threads, test_teardown)
#define TEST_THREADS_DEFER(name) \
    cmocka_unit_test_setup_teardown(name, setup_threads_defer, test_teardown)
#define TEST_THREADS_BARE(name) \
    cmocka_unit_test_setup_teardown(name, setup_threads_bare, test_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_THREADS(a_device_without_a_source_has_no_poller),
        TEST_THREADS(a_device_without_a_callback_has_none),
        TEST_THREADS(a_device_without_a_strategy_has_none),
        TEST_THREADS(only_the_devices_with_a_strategy_have_one),
        TEST_THREADS(only_the_devices_with_a_callback_have_one),
        TEST_THREADS_BARE(nor_has_one_with_the_no_strategy_flag),
        TEST_THREADS(create_and_configuration_start_none),
        TEST_THREADS(the_first_call_that_touches_a_device_starts_its_poller),
        TEST_THREADS(one_starts_when_the_last_of_the_three_comes),
        TEST_THREADS(devices_in_one_memory_share_a_poller),
        TEST_THREADS(destroy_joins_them),
        TEST_THREADS(stop_joins_them_and_none_starts_until_start),
        TEST_THREADS(start_wants_neither_callback_nor_strategy),
        TEST_THREADS(intervals_below_10_ms_are_refused),
        TEST_FAKES(without_threads_start_is_unsupported),
        cmocka_unit_test(a_null_ledger_polls_nothing),
        TEST_THREADS(pollers_come_and_go),
        TEST_THREADS(several_threads_may_start_and_stop_them),
        TEST_FAKES(without_threads_a_poll_samples_what_has_grown_old),
        TEST_FAKES(a_clock_that_jumps_is_not_caught_up_with),
        TEST_FAKES(a_poll_asks_only_for_the_devices_it_names),
        TEST_FAKES(a_sample_by_poll_may_fire_a_band),
        TEST_FAKES(the_interval_is_200_ms_or_as_configured),
        TEST_FAKES(a_poller_started_with_0_has_an_interval_of_200_ms),
        TEST_FAKES(the_environment_overrides_the_interval),
        TEST_FAKES(nonsense_in_the_environment_is_ignored),
#if !TEST_SANITIZED
        TEST_THREADS(a_thread_that_cannot_be_had_leaves_it_to_the_caller),
        TEST_THREADS(a_page_without_a_thread_is_served_by_polls),
        TEST_FAKES(without_threads_a_page_has_none),
        TEST_THREADS(a_start_without_a_thread_says_so_and_the_next_tries_again),
        TEST_FAKES(without_events_nobody_waits),
        TEST_THREADS(without_a_thread_polls_take_snapshots_and_write_exports),
#endif
        TEST_THREADS(a_blocked_source_delays_no_other_device),
        TEST_THREADS(a_blocked_source_delays_no_track_call),
        TEST_THREADS(destroy_waits_for_a_source),
        TEST_THREADS_DEFER(with_defer_destroy_waits_for_a_run_on_a_poller),
        TEST_THREADS_DEFER(with_defer_a_callback_cannot_stop_the_poller_it_runs_on),
        TEST_THREADS_DEFER(with_defer_a_callback_on_a_poller_cannot_stop_the_events),
        TEST_THREADS(a_source_on_a_poller_cannot_stop_it),
        TEST_THREADS(nor_while_the_host_stops_it),
        TEST_THREADS(two_pollers_cannot_stop_each_other),
        TEST_THREADS(a_poller_cannot_be_cancelled),
        TEST_THREADS(a_poller_that_destroys_another_ledger_waits_for_its_pollers),
#if !TEST_SANITIZED
        cmocka_unit_test(without_a_device_no_poller_starts),
        cmocka_unit_test(a_child_has_no_poller_until_it_uses_the_ledger),
        cmocka_unit_test(a_childs_snapshots_go_on_after_a_call),
        cmocka_unit_test(a_childs_pollers_sample_again_after_a_call),
        cmocka_unit_test(a_child_born_on_a_poller_is_none),
        cmocka_unit_test(a_childs_poller_of_the_cpu_samples_again_after_a_call),
        cmocka_unit_test(a_child_may_stop_what_it_does_not_have),
        cmocka_unit_test(a_child_may_destroy_at_once),
        cmocka_unit_test(children_born_while_pollers_work_never_hang),
#endif
        TEST_THREADS_DEFER(samples_come_by_themselves_and_fire_bands),
    };
    return cmocka_run_group_tests_name("pollers", tests, start_a_thread_once, NULL);
}
