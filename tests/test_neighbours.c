/* Neighbours: ledgers that share a page. Most tests have both in one process, as each has a slot
   and a lock of its own; those about the end of a process, and forks, have real ones. */
#include "support.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "json.h"

#define MIB ((uint64_t)1 << 20)

/* The thread sanitizer of clang starts no thread in the child of a process with threads. The
   address sanitizer has no fork handlers: if a listener of the parent allocates during the fork, the
   listener of the child waits for ever for the lock of the sanitizer's allocator. */
#if defined(__SANITIZE_ADDRESS__)
#define NO_FORKS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define NO_FORKS 1
#endif
#endif
#ifndef NO_FORKS
#define NO_FORKS 0
#endif

typedef struct pair {
    memlord *a, *b;
    test_log log;
    char path[64];
} pair;

static memlord *ledger(pair *p) {
    memlord_desc desc;
    memlord *lord;
    memset(&desc, 0, sizeof desc);
    desc.poll_ms = 20;
    desc.logger.fn = test_log_line;
    desc.logger.user = &p->log;
    assert_ok(memlord_create(&desc, &lord));
    return lord;
}
static int setup(void **state) {
    pair *p = (pair *)calloc(1, sizeof *p);
    static int number;
    sprintf(p->path, "/tmp/memlord-test-%d-%d", (int)getpid(), number++);
    p->a = ledger(p);
    p->b = ledger(p);
    *state = p;
    return 0;
}
static int teardown(void **state) {
    pair *p = (pair *)*state;
    memlord_destroy(p->a);
    memlord_destroy(p->b);
    (void)unlink(p->path);
    free(p);
    return 0;
}
static pair *joined(void **state) {
    pair *p = (pair *)*state;
    assert_ok(memlord_device_id_set(p->a, cuda(0), "GPU-0"));
    assert_ok(memlord_device_id_set(p->b, cuda(0), "GPU-0"));
    assert_ok(memlord_pressure_open(p->a, p->path));
    assert_ok(memlord_pressure_open(p->b, p->path));
    return p;
}
static uint64_t neighbours(memlord *lord, memlord_device d) {
    assert_ok(memlord_gc_poll(lord, d));
    return stats_of(lord, d).neighbours;
}
static void publish(memlord *lord) { assert_ok(memlord_gc_poll(lord, all())); }
static double seconds(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* -- what each says of itself -- */

static void each_sees_the_bytes_of_the_others(void **state) {
    pair *p = joined(state);
    assert_ok(memlord_alloc(p->a, cuda(0), 0x1000, 5 * MIB, NULL));
    assert_ok(memlord_alloc(p->b, cuda(0), 0x1000, 7 * MIB, NULL));
    publish(p->a);
    publish(p->b);
    assert_int_equal(neighbours(p->a, cuda(0)), 7 * MIB);
    assert_int_equal(neighbours(p->b, cuda(0)), 5 * MIB);
    assert_ok(memlord_free(p->a, cuda(0), 0x1000, NULL));
    publish(p->a);
    assert_int_equal(neighbours(p->b, cuda(0)), 0);
}

static void an_index_is_no_identity(void **state) {
    pair *p = joined(state);
    assert_ok(memlord_device_id_set(p->b, cuda(0), "GPU-1"));
    assert_ok(memlord_device_id_set(p->b, cuda(3), "GPU-0"));
    assert_ok(memlord_alloc(p->b, cuda(0), 0x1000, 7 * MIB, NULL));
    assert_ok(memlord_alloc(p->b, cuda(3), 0x2000, 9 * MIB, NULL));
    publish(p->b);
    assert_int_equal(neighbours(p->a, cuda(0)), 9 * MIB);
}

static void a_device_without_identity_is_alone(void **state) {
    pair *p = joined(state);
    assert_ok(memlord_device_id_set(p->a, cuda(1), "")); /* as good as none */
    assert_ok(memlord_device_id_set(p->b, cuda(1), ""));
    assert_ok(memlord_alloc(p->a, cuda(1), 0x1000, MIB, NULL));
    assert_ok(memlord_alloc(p->b, cuda(1), 0x1000, MIB, NULL));
    publish(p->b);
    assert_int_equal(neighbours(p->a, cuda(1)), 0);
    assert_int_equal(memlord_pressure_raise(p->a, cuda(1), 1), MEMLORD_E_UNKNOWN);
}

static void the_cpu_has_an_identity_and_pinned_shares_it(void **state) {
    pair *p = joined(state);
    assert_ok(memlord_alloc(p->b, cpu(), 0x1000, 3 * MIB, NULL));
    assert_ok(memlord_alloc(p->b, memlord_device_make(MEMLORD_DEVICE_PINNED, 0), 0x2000, MIB,
                            NULL));
    publish(p->b);
    assert_int_equal(neighbours(p->a, cpu()), 4 * MIB);
}

static void mapped_files_are_no_bytes_of_the_cpu(void **state) {
    pair *p = joined(state);
    assert_ok(memlord_alloc(p->b, cpu(), 0x1000, 3 * MIB, NULL));
    assert_ok(memlord_alloc(p->b, memlord_device_make(MEMLORD_DEVICE_MAPPED, 0), 0x2000, MIB,
                            NULL));
    publish(p->b);
    assert_int_equal(neighbours(p->a, cpu()), 3 * MIB);
}

static void what_a_pool_keeps_counts(void **state) {
    pair *p = joined(state);
    assert_ok(memlord_alloc(p->b, cuda(0), 0x1000, MIB, NULL));
    assert_ok(memlord_pool_set(p->b, cuda(0), 4 * MIB, MIB));
    publish(p->b);
    assert_int_equal(neighbours(p->a, cuda(0)), 4 * MIB);
}

static void a_ledger_that_leaves_is_no_longer_counted(void **state) {
    pair *p = joined(state);
    assert_ok(memlord_alloc(p->b, cuda(0), 0x1000, MIB, NULL));
    publish(p->b);
    assert_int_equal(neighbours(p->a, cuda(0)), MIB);
    assert_ok(memlord_pressure_close(p->b));
    assert_int_equal(neighbours(p->a, cuda(0)), 0);
    assert_ok(memlord_pressure_open(p->b, p->path));
    assert_int_equal(neighbours(p->a, cuda(0)), MIB);
    assert_ok(memlord_pressure_close(p->a));
    assert_int_equal(stats_of(p->a, cuda(0)).neighbours, 0);
}

/* -- requests -- */

typedef struct giver {
    memlord_gc_event event;
    uint64_t gives;
    int runs;
} giver;
static memlord_gc_result give(void *user, memlord *lord, const memlord_gc_event *event) {
    giver *g = (giver *)user;
    memlord_gc_result result = {1, 0, 0};
    (void)lord;
    g->event = *event;
    result.reclaimed = g->gives;
    __atomic_add_fetch(&g->runs, 1, __ATOMIC_RELEASE);
    return result;
}
static void serves(memlord *lord, memlord_device sel, giver *g) {
    assert_ok(memlord_gc_callback_add(lord, sel, 1u << MEMLORD_REASON_NEIGHBOUR, give, g));
}

static void a_raise_runs_the_callbacks_of_the_others(void **state) {
    pair *p = joined(state);
    giver own = {{{0, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0, 0}, other = own;
    other.gives = 3 * MIB;
    serves(p->a, cuda(0), &own);
    serves(p->b, cuda(0), &other);
    publish(p->a);
    publish(p->b);
    assert_ok(memlord_alloc(p->b, cuda(0), 0x1000, 5 * MIB, NULL));
    assert_ok(memlord_pressure_raise(p->a, cuda(0), 2 * MIB));
    assert_int_equal(__atomic_load_n(&other.runs, __ATOMIC_ACQUIRE), 1);
    assert_int_equal(other.event.reason, MEMLORD_REASON_NEIGHBOUR);
    assert_int_equal(other.event.needed, 2 * MIB);
    assert_int_equal(own.runs, 0);
}

/* With an interval longer than any raise waits, only the bells wake the two listeners. */
static void bells_wake_who_is_asked_and_who_asked(void **state) {
    pair *p = (pair *)*state;
    giver g = {{{0, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0}, MIB, 0};
    double start;
    int i;
    assert_int_equal(memlord_poller_start(p->a, 60000) | memlord_poller_start(p->b, 60000), 0);
    (void)joined(state);
    serves(p->b, cuda(0), &g);
    publish(p->b);
    assert_ok(memlord_alloc(p->a, cuda(0), 0x1000, 1, NULL));
    publish(p->a);
    usleep(50000); /* the first rounds of the listeners are over */
    start = seconds();
    for (i = 0; i < 3; i++) assert_ok(memlord_pressure_raise(p->a, cuda(0), MIB));
    assert_int_equal(__atomic_load_n(&g.runs, __ATOMIC_ACQUIRE), 3);
    for (i = 0; i < 3; i++)
        assert_int_equal(memlord_pressure_raise(p->a, cuda(0), 2 * MIB), MEMLORD_E_OOM);
    assert_true(seconds() - start < 1.9);
    assert_int_equal(__atomic_load_n(&g.runs, __ATOMIC_ACQUIRE), 6);
}

static void a_raise_ends_when_all_have_answered_with_less(void **state) {
    pair *p = joined(state);
    giver g = {{{0, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0}, MIB, 0};
    double start = seconds();
    serves(p->b, cuda(0), &g);
    publish(p->b);
    assert_int_equal(memlord_pressure_raise(p->a, cuda(0), 2 * MIB), MEMLORD_E_OOM);
    assert_int_equal(memlord_pressure_raise(p->a, cuda(0), 2 * MIB), MEMLORD_E_OOM);
    assert_true(seconds() - start < 1.5);
    assert_int_equal(__atomic_load_n(&g.runs, __ATOMIC_ACQUIRE), 2);
}

static void a_raise_without_neighbours_does_not_wait(void **state) {
    pair *p = joined(state);
    double start = seconds();
    assert_ok(memlord_pressure_close(p->b));
    assert_ok(memlord_alloc(p->a, cuda(0), 0x1000, MIB, NULL));
    assert_int_equal(memlord_pressure_raise(p->a, cuda(0), MIB), MEMLORD_E_OOM);
    assert_true(seconds() - start < 1);
}

static void a_raise_of_nothing_asks_and_does_not_wait(void **state) {
    pair *p = joined(state);
    giver g = {{{0, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0, 0};
    int spins = 0;
    serves(p->b, cuda(0), &g);
    publish(p->b);
    assert_ok(memlord_pressure_raise(p->a, cuda(0), 0));
    while (!__atomic_load_n(&g.runs, __ATOMIC_ACQUIRE) && spins++ < 5000) usleep(1000);
    assert_int_equal(g.runs, 1);
    assert_int_equal(g.event.needed, 0);
}

static void a_run_that_gave_nothing_back_is_followed_by_a_rest(void **state) {
    pair *p = joined(state);
    giver g = {{{0, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0, 0};
    double start = seconds();
    int i, spins = 0;
    serves(p->b, cuda(0), &g);
    assert_ok(memlord_alloc(p->b, cuda(0), 0x1000, 8 * MIB, NULL));
    publish(p->b);
    for (i = 0; i < 20; i++)
        assert_int_equal(memlord_pressure_raise(p->a, cuda(0), MIB), MEMLORD_E_OOM);
    assert_true(seconds() - start < 0.9); /* who asks is answered at once */
    assert_int_equal(__atomic_load_n(&g.runs, __ATOMIC_ACQUIRE), 1);
    assert_ok(memlord_alloc(p->b, cuda(0), 0x2000, 2 * MIB, NULL)); /* more than an eighth */
    assert_int_equal(memlord_pressure_raise(p->a, cuda(0), MIB), MEMLORD_E_OOM);
    assert_int_equal(__atomic_load_n(&g.runs, __ATOMIC_ACQUIRE), 2);
    start = seconds(); /* the second rest is twice as long */
    while (__atomic_load_n(&g.runs, __ATOMIC_ACQUIRE) < 3 && spins++ < 2000) {
        assert_int_equal(memlord_pressure_raise(p->a, cuda(0), MIB), MEMLORD_E_OOM);
        usleep(5000);
    }
    assert_int_equal(g.runs, 3);
    assert_true(seconds() - start > 1.5);
}

static int says_resting(memlord *lord) {
    char line[1024];
    (void)memlord_explain(lord, cuda(0), MIB, line, sizeof line);
    return strstr(line, "; neighbours resting: 1") ? 1 : strstr(line, "resting") ? -1 : 0;
}
static void who_asks_is_told_that_the_neighbour_rests(void **state) {
    pair *p = joined(state);
    giver g = {{{0, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0, 0};
    serves(p->b, cuda(0), &g);
    assert_ok(memlord_alloc(p->b, cuda(0), 0x1000, 8 * MIB, NULL));
    publish(p->b);
    publish(p->a);
    assert_int_equal(says_resting(p->a), 0);
    assert_int_equal(memlord_pressure_raise(p->a, cuda(0), MIB), MEMLORD_E_OOM);
    assert_int_equal(says_resting(p->a), 1); /* at once: no interval has passed */
    assert_int_equal(says_resting(p->b), 0);
    assert_ok(memlord_alloc(p->b, cuda(0), 0x2000, 2 * MIB, NULL)); /* which ends the rest */
    publish(p->b);
    publish(p->a);
    assert_int_equal(says_resting(p->a), 0);
}

static void an_explanation_says_what_the_neighbours_hold(void **state) {
    pair *p = joined(state);
    char line[1024];
    assert_ok(memlord_alloc(p->b, cuda(0), 0x1000, 8 * MIB, NULL));
    publish(p->b);
    publish(p->a);
    (void)memlord_explain(p->a, cuda(0), MIB, line, sizeof line);
    assert_non_null(strstr(line, "; neighbours hold 8 MiB"));
    (void)memlord_explain(p->b, cuda(0), MIB, line, sizeof line);
    assert_null(strstr(line, "neighbours"));
}

static void a_page_that_was_removed_is_joined_again(void **state) {
    pair *p = joined(state);
    memlord *c;
    int spins = 0;
    assert_ok(memlord_alloc(p->a, cuda(0), 0x1000, MIB, NULL));
    assert_int_equal(unlink(p->path), 0);
    c = ledger(p);
    assert_ok(memlord_device_id_set(c, cuda(0), "GPU-0"));
    assert_ok(memlord_alloc(c, cuda(0), 0x1000, 3 * MIB, NULL));
    assert_ok(memlord_pressure_open(c, p->path));
    while (stats_of(c, cuda(0)).neighbours != MIB && spins++ < 1000) usleep(5000);
    assert_int_equal(stats_of(c, cuda(0)).neighbours, MIB);
    for (spins = 0; stats_of(p->b, cuda(0)).neighbours != 4 * MIB && spins < 1000; spins++) {
        assert_ok(memlord_gc_poll(p->b, all()));
        usleep(5000);
    }
    assert_int_equal(stats_of(p->b, cuda(0)).neighbours, 4 * MIB);
    assert_non_null(strstr(p->log.text, "was removed, and is joined again"));
    memlord_destroy(c);
}

#if !TEST_SANITIZED
/* Called on a thread of its own while whoever makes the next thread waits behind pthread_create. */
static void *(*meanwhile)(void *);
static void *meanwhile_user;
static int make_thread(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                       void *user) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *found;
    if (!real) {
        found = dlsym(RTLD_NEXT, "pthread_create");
        memcpy(&real, &found, sizeof real);
    }
    return real(thread, attr, fn, user);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                   void *user) {
    void *(*run)(void *) = meanwhile;
    pthread_t other;
    int r = make_thread(thread, attr, fn, user);
    meanwhile = NULL;
    if (r || !run) return r;
    assert_int_equal(make_thread(&other, NULL, run, meanwhile_user), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    return 0;
}

static void *remove_and_poll(void *user) {
    pair *p = (pair *)user;
    usleep(300000); /* the listener waits at its bell by now */
    assert_int_equal(unlink(p->path), 0);
    assert_ok(memlord_gc_poll(p->a, all()));
    return NULL;
}
/* Even while the thread that starts the listener has not come back. */
static void a_poll_does_not_take_the_page_from_under_the_listener(void **state) {
    pair *p = (pair *)*state;
    assert_int_equal(memlord_poller_start(p->a, 60000), 0);
    meanwhile = remove_and_poll;
    meanwhile_user = p;
    assert_ok(memlord_pressure_open(p->a, p->path));
    assert_null(meanwhile);
    assert_null(strstr(p->log.text, "was removed"));
    assert_ok(memlord_pressure_close(p->a)); /* and the listener hears its bell */
}
#endif

static void wrong_raises_are_refused(void **state) {
    pair *p = (pair *)*state;
    assert_ok(memlord_alloc(p->a, cuda(0), 0x1000, 1, NULL));
    assert_int_equal(memlord_pressure_raise(p->a, cuda(0), 1), MEMLORD_E_STATE);
    assert_int_equal(memlord_pressure_raise(p->a, all(), 1), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_device_id_set(p->a, all(), "x"), MEMLORD_E_DEVICE);
    assert_ok(memlord_pressure_raise(NULL, cuda(0), 1));
    assert_ok(memlord_device_id_set(NULL, cuda(0), "x"));
    assert_ok(memlord_pressure_open(NULL, "x"));
    assert_ok(memlord_pressure_close(NULL));
    assert_ok(memlord_pressure_close(p->a));
}

typedef struct hoard {
    uint64_t left, held;
    memlord *lord;
} hoard;
static int take(void *user, uint64_t bytes, uint64_t *storage) {
    hoard *h = (hoard *)user;
    if (__atomic_load_n(&h->left, __ATOMIC_ACQUIRE) < bytes) return 1;
    *storage = 0x5000;
    return 0;
}
static memlord_gc_result release(void *user, memlord *lord, const memlord_gc_event *event) {
    hoard *h = (hoard *)user;
    memlord_gc_result result = {1, 0, 0};
    (void)memlord_free(lord, event->device, 0x1000, NULL);
    result.reclaimed = h->held;
    __atomic_store_n(&h->left, h->left + h->held, __ATOMIC_RELEASE);
    return result;
}

static void out_of_memory_asks_the_neighbours_and_goes_on_at_once(void **state) {
    pair *p = joined(state);
    const memlord_retry slow = {1, 20000, 20000, 1, NULL, NULL};
    hoard h = {MIB, 8 * MIB, NULL};
    uint64_t storage = 0;
    double start = seconds();
    assert_ok(memlord_alloc(p->b, cuda(0), 0x1000, 8 * MIB, NULL));
    assert_ok(memlord_gc_callback_add(p->b, cuda(0), 0, release, &h));
    publish(p->b);
    assert_ok(memlord_alloc_retry(p->a, cuda(0), 4 * MIB, take, &h, &slow, &storage, NULL));
    assert_int_equal(storage, 0x5000);
    assert_true(seconds() - start < 5);
    assert_int_equal(memlord_allocated(p->b, cuda(0)), 0);
}

/* -- levels and reports -- */

static void an_emergency_of_one_is_one_of_all(void **state) {
    pair *p = joined(state);
    assert_int_equal(memlord_pressure_level(p->b, cuda(0)), MEMLORD_PRESSURE_UNKNOWN);
    assert_ok(memlord_alloc_failed(p->a, cuda(0), MIB, NULL));
    publish(p->a);
    publish(p->b);
    assert_int_equal(memlord_pressure_level(p->b, cuda(0)), MEMLORD_PRESSURE_EMERGENCY);
}

static void an_emergency_counts_whichever_neighbour_has_it(void **state) {
    pair *p = joined(state);
    memlord *third = ledger(p);
    assert_ok(memlord_device_id_set(third, cuda(0), "GPU-0"));
    assert_ok(memlord_pressure_open(third, p->path));
    assert_ok(memlord_alloc_failed(p->a, cuda(0), MIB, NULL)); /* the slots of b and third come after it */
    publish(p->a);
    publish(p->b);
    publish(third);
    assert_int_equal(memlord_pressure_level(third, cuda(0)), MEMLORD_PRESSURE_EMERGENCY);
    memlord_destroy(third);
}

static void the_level_is_that_of_all_bytes(void **state) {
    pair *p = joined(state);
    assert_ok(memlord_limit_set(p->a, cuda(0), 10 * MIB));
    assert_ok(memlord_alloc(p->a, cuda(0), 0x1000, 5 * MIB, NULL));
    publish(p->a);
    assert_int_equal(memlord_pressure_level(p->a, cuda(0)), MEMLORD_PRESSURE_NORMAL);
    assert_ok(memlord_alloc(p->b, cuda(0), 0x1000, 3 * MIB, NULL));
    publish(p->b);
    publish(p->a);
    assert_int_equal(memlord_pressure_level(p->a, cuda(0)), MEMLORD_PRESSURE_WARNING);
}

static int sample(void *user, memlord_device d, memlord_capacity *out) {
    (void)user, (void)d;
    out->total = 100 * MIB;
    out->used = 60 * MIB;
    return 0;
}
static int keep(void *user, const void *data, size_t size) {
    strncat((char *)user, (const char *)data, size);
    return 0;
}
static void reports_have_neighbours_in_a_part_of_their_own(void **state) {
    pair *p = joined(state);
    static char text[1 << 20];
    assert_ok(memlord_capacity_source_set(p->a, MEMLORD_DEVICE_CUDA, sample, NULL));
    assert_ok(memlord_alloc(p->a, cuda(0), 0x1000, 10 * MIB, NULL));
    assert_ok(memlord_alloc(p->b, cuda(0), 0x1000, 20 * MIB, NULL));
    publish(p->b);
    assert_ok(memlord_capacity_sample(p->a, cuda(0)));
    publish(p->a);
    text[0] = 0;
    assert_ok(memlord_write(p->a, MEMLORD_FORMAT_TEXT, keep, text));
    assert_non_null(strstr(text, " + neighbours 20 MiB + unaccounted 30 MiB\n"));
    text[0] = 0;
    assert_ok(memlord_write(p->a, MEMLORD_FORMAT_JSON, keep, text));
    assert_non_null(strstr(text, "\"neighbours\":20971520,\"unaccounted\":31457280,"));
    text[0] = 0;
    assert_ok(memlord_write(p->a, MEMLORD_FORMAT_PROMETHEUS, keep, text));
    assert_non_null(strstr(text, "\nmemlord_neighbour_bytes{device=\"cuda:0\"} 20971520\n"));
}

static memlord_gc_result destroy_other(void *user, memlord *lord, const memlord_gc_event *event) {
    pair *p = (pair *)user;
    const memlord_gc_result result = {1, 0, 0};
    (void)lord, (void)event;
    memlord_destroy(p->b);
    __atomic_store_n(&p->b, NULL, __ATOMIC_RELEASE);
    return result;
}
static void a_listener_may_destroy_another_ledger(void **state) {
    pair *p = joined(state);
    int spins = 0;
    assert_ok(memlord_alloc(p->a, cuda(0), 0x1000, 1, NULL));
    assert_ok(memlord_gc_callback_add(p->a, cuda(0), 1u << MEMLORD_REASON_NEIGHBOUR,
                                      destroy_other, p));
    publish(p->a);
    assert_ok(memlord_pressure_raise(p->b, cuda(0), 0));
    while (__atomic_load_n(&p->b, __ATOMIC_ACQUIRE) && spins++ < 5000) usleep(1000);
    assert_null(p->b);
}

static memlord_gc_result close_inside(void *user, memlord *lord, const memlord_gc_event *event) {
    const memlord_gc_result result = {1, 0, 0};
    (void)event;
    __atomic_store_n((int *)user, (int)memlord_pressure_close(lord) + 1, __ATOMIC_RELEASE);
    return result;
}
static void a_listener_cannot_close_its_page(void **state) {
    pair *p = joined(state);
    int answer = 0, spins = 0;
    assert_ok(memlord_alloc(p->a, cuda(0), 0x1000, 1, NULL));
    assert_ok(memlord_gc_callback_add(p->a, cuda(0), 1u << MEMLORD_REASON_NEIGHBOUR, close_inside,
                                      &answer));
    usleep(60000); /* the listener publishes the device: no poll on this thread may answer */
    while (!__atomic_load_n(&answer, __ATOMIC_ACQUIRE) && spins++ < 200) {
        assert_ok(memlord_pressure_raise(p->b, cuda(0), 0));
        usleep(10000);
    }
    assert_int_equal(answer, MEMLORD_E_STATE + 1);
    assert_int_equal(memlord_pressure_raise(p->a, cuda(0), 0), MEMLORD_OK);
}

/* -- processes -- */

static void a_killed_process_is_gone_within_one_interval(void **state) {
    pair *p = joined(state);
    int pipes[2];
    char byte;
    pid_t child;
    if (NO_FORKS) skip();
    assert_int_equal(pipe(pipes), 0);
    assert_ok(memlord_pressure_close(p->b)); /* else its listener, too, may be freeing the slot */
    child = fork();
    if (!child) {
        (void)memlord_pressure_open(p->b, p->path);
        (void)memlord_alloc(p->b, cuda(0), 0x1000, 6 * MIB, NULL);
        (void)memlord_gc_poll(p->b, all());
        (void)write(pipes[1], "x", 1);
        for (;;) pause();
    }
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    assert_int_equal(neighbours(p->a, cuda(0)), 6 * MIB);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(neighbours(p->a, cuda(0)), 0);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

static void a_forked_child_has_a_slot_of_its_own(void **state) {
    pair *p = joined(state);
    int status = 0;
    pid_t child;
    if (NO_FORKS) skip();
    assert_ok(memlord_alloc(p->a, cuda(0), 0x1000, 2 * MIB, NULL));
    publish(p->a);
    child = fork();
    if (!child) {
        uint64_t seen;
        (void)memlord_alloc(p->a, cuda(0), 0x2000, 3 * MIB, NULL);
        (void)memlord_gc_poll(p->a, all());
        seen = stats_of(p->a, cuda(0)).neighbours;
        _exit(seen == 2 * MIB ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(neighbours(p->b, cuda(0)), 2 * MIB);
}

static memlord_gc_result gives_what_is_needed(void *user, memlord *lord,
                                              const memlord_gc_event *event) {
    memlord_gc_result all;
    (void)user, (void)lord;
    memset(&all, 0, sizeof all);
    all.ran = 1;
    all.reclaimed = event->needed;
    return all;
}

static void a_forked_child_may_raise_first(void **state) {
    pair *p = joined(state);
    int status = 0;
    pid_t child;
    if (NO_FORKS) skip();
    assert_ok(memlord_gc_callback_add(p->b, cuda(0), 0, gives_what_is_needed, NULL));
    publish(p->b);
    child = fork();
    if (!child) _exit(memlord_pressure_raise(p->a, cuda(0), MIB) != MEMLORD_OK);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Nothing in the child polls: its listener joins the page, publishes and answers. */
static void a_forked_child_answers_by_itself(void **state) {
    pair *p = joined(state);
    giver g = {{{0, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0}, MIB, 0};
    int pipes[2], status = 0;
    char byte;
    pid_t child;
    if (NO_FORKS) skip();
    serves(p->a, cuda(0), &g);
    assert_ok(memlord_alloc(p->a, cuda(0), 0x1000, 2 * MIB, NULL));
    publish(p->a);
    assert_int_equal(pipe(pipes), 0);
    child = fork();
    if (!child) {
        int spins = 0;
        if (memlord_alloc(p->a, cuda(0), 0x2000, 3 * MIB, NULL)) _exit(1);
        while (stats_of(p->a, cuda(0)).neighbours != 2 * MIB && spins++ < 10000) usleep(1000);
        if (write(pipes[1], "x", 1) != 1) _exit(2);
        while (!__atomic_load_n(&g.runs, __ATOMIC_ACQUIRE) && spins++ < 20000) usleep(1000);
        _exit(g.runs == 1 && g.event.needed == 2 * MIB ? 0 : 3);
    }
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    assert_int_equal(neighbours(p->b, cuda(0)), 7 * MIB);
    assert_ok(memlord_pressure_raise(p->b, cuda(0), 2 * MIB)); /* each gives one */
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

static int has_logged(pair *p, const char *line) {
    int found;
    pthread_mutex_lock(&p->log.lock);
    found = strstr(p->log.text, line) != NULL;
    pthread_mutex_unlock(&p->log.lock);
    return found;
}
static void a_forked_child_that_cannot_join_works_alone(void **state) {
    pair *p = joined(state);
    char link[80];
    int status = 0;
    pid_t child;
    if (NO_FORKS) skip();
    assert_ok(memlord_alloc(p->a, cuda(0), 0x1000, 2 * MIB, NULL));
    publish(p->a);
    sprintf(link, "%s.link", p->path);
    assert_int_equal(symlink("/nonexistent", link), 0);
    /* At once: a listener would make a page again that is removed first. */
    assert_int_equal(rename(link, p->path), 0);
    child = fork();
    if (!child) {
        int spins = 0; /* the poll or the listener tries to join, whichever comes first */
        if (memlord_gc_poll(p->a, all())) _exit(1);
        while (!has_logged(p, "[neighbours] the child works alone: it is a symbolic link\n"))
            if (spins++ == 10000 || usleep(1000)) _exit(2);
        if (memlord_pressure_raise(p->a, cuda(0), MIB) != MEMLORD_E_STATE) _exit(3);
        if (stats_of(p->a, cuda(0)).neighbours) _exit(4);
        if (memlord_free(p->a, cuda(0), 0x1000, NULL)) _exit(5);
        if (memlord_pressure_open(p->a, "other") != MEMLORD_E_STATE) _exit(8);
        if (memlord_pressure_close(p->a)) _exit(6);
        if (memlord_pressure_raise(p->a, cuda(0), MIB) != MEMLORD_E_STATE) _exit(7);
        memlord_destroy(p->a);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(neighbours(p->b, cuda(0)), 2 * MIB); /* the parent's slot is its own */
}

static int blocks(void *user, memlord_device device, memlord_capacity *out) {
    (void)device, (void)out;
    (void)__atomic_add_fetch((int *)user, 1, __ATOMIC_RELAXED);
    (void)usleep(300000);
    return -1;
}

static void a_source_that_blocks_delays_answers_once_at_most(void **state) {
    pair *p = joined(state);
    int calls = 0, i;
    double slowest = 0;
    assert_ok(memlord_capacity_source_set(p->b, MEMLORD_DEVICE_VULKAN, blocks, &calls));
    assert_ok(memlord_alloc(p->b, memlord_device_make(MEMLORD_DEVICE_VULKAN, 0), 0x1000, 1, NULL));
    assert_ok(memlord_gc_callback_add(p->b, cuda(0), 1u << MEMLORD_REASON_NEIGHBOUR,
                                      gives_what_is_needed, NULL));
    usleep(600000);
    for (i = 0; i < 8; i++) {
        double began = seconds();
        assert_ok(memlord_pressure_raise(p->a, cuda(0), MIB));
        if (seconds() - began > slowest) slowest = seconds() - began;
        usleep(25000);
    }
    assert_int_equal(__atomic_load_n(&calls, __ATOMIC_RELAXED), 1);
    assert_true(slowest < 0.25);
}

/* Refuses futexes between processes, and no others, to the thread and those it starts. */
static int refuse_shared_futexes(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_futex, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program;
    program.len = sizeof rules / sizeof *rules;
    program.filter = rules;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program);
}

/* What a child leaves whose listener has waited for half a second: 0 if that took little time of
   the processor, 77 if the system has no way to refuse futexes. */
static int listen_in_a_child(pair *p, int refuse) {
    int status = 0;
    pid_t child = fork();
    if (!child) {
        struct timespec used;
        if (refuse && refuse_shared_futexes()) _exit(77);
        if (memlord_pressure_open(p->a, p->path)) _exit(2);
        usleep(500000);
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        _exit(used.tv_sec || used.tv_nsec > 200000000);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}
static void a_listener_that_waits_does_not_spin(void **state) {
    if (NO_FORKS) skip();
    assert_int_equal(listen_in_a_child((pair *)*state, 0), 0);
}
static void a_listener_without_futexes_does_not_spin(void **state) {
    int left;
    if (NO_FORKS) skip();
    left = listen_in_a_child((pair *)*state, 1);
    if (left == 77) skip();
    assert_int_equal(left, 0);
}

static void a_fork_without_a_page_closes_nothing(void **state) {
    pair *p = (pair *)*state;
    int status = 0, was = fcntl(0, F_GETFD);
    pid_t child;
    assert_ok(memlord_alloc(p->a, cpu(), 0x1000, 1, NULL));
    child = fork();
    if (!child) _exit(fcntl(0, F_GETFD) != was);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_kernel_without_stall_information_is_no_error(void **state) {
    pair *p = (pair *)*state;
    memlord_desc desc;
    memlord *lord;
    memset(&desc, 0, sizeof desc);
    desc.proc_root = "/nonexistent";
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_pressure_open(lord, p->path));
    assert_ok(memlord_gc_poll(lord, all()));
    memlord_destroy(lord);
}

/* -- refusals -- */

static void refused(pair *p, const char *why) {
    test_log_clear(&p->log);
    assert_int_equal(memlord_pressure_open(p->a, p->path), MEMLORD_E_STATE);
    assert_non_null(strstr(p->log.text, why));
    assert_ok(memlord_alloc(p->a, cpu(), 0x1000, 1, NULL)); /* works alone */
    assert_ok(memlord_free(p->a, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_pressure_raise(p->a, cpu(), 1), MEMLORD_E_STATE);
}
static void damage(const char *path, long at, const void *bytes, size_t n) {
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
    (void)close(fd);
}

static void a_file_that_is_no_page_is_refused(void **state) {
    pair *p = (pair *)*state;
    const uint64_t newer = 2, older = 0, noise = 12345;
    struct stat st;
    assert_ok(memlord_pressure_open(p->b, p->path));
    assert_int_equal(stat(p->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_true(st.st_blocks * 512 >= st.st_size);
    assert_ok(memlord_pressure_close(p->b));
    damage(p->path, 8, &newer, 8);
    refused(p, "newer version");
    damage(p->path, 8, &older, 8);
    refused(p, "older version");
    damage(p->path, 0, &noise, 8);
    refused(p, "no page of MemLord");
    assert_int_equal(truncate(p->path, 100), 0);
    refused(p, "its size");
    assert_int_equal(chmod(p->path, 0644), 0);
    refused(p, "0600");
}

static void what_is_no_regular_file_is_refused(void **state) {
    pair *p = (pair *)*state;
    assert_int_equal(symlink("/etc/passwd", p->path), 0);
    refused(p, "symbolic link");
    assert_int_equal(unlink(p->path), 0);
    assert_int_equal(mkfifo(p->path, 0600), 0);
    refused(p, "no regular file");
}

static void a_page_that_cannot_be_made_is_an_error(void **state) {
    pair *p = (pair *)*state;
    char name[600];
    assert_int_equal(memlord_pressure_open(p->a, "/no/such/directory/page"), MEMLORD_E_IO);
    assert_non_null(strstr(p->log.text, "cannot be opened or made"));
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(memlord_pressure_open(p->a, name), MEMLORD_E_INVALID);
}

static void a_second_page_is_refused(void **state) {
    pair *p = joined(state);
    assert_int_equal(memlord_pressure_open(p->a, "other"), MEMLORD_E_STATE);
    assert_non_null(strstr(p->log.text, "open already"));
}

static void sixty_four_ledgers_fit(void **state) {
    pair *p = joined(state);
    memlord *more[63];
    int i;
    for (i = 0; i < 62; i++) {
        more[i] = ledger(p);
        assert_ok(memlord_pressure_open(more[i], p->path));
    }
    more[62] = ledger(p);
    assert_int_equal(memlord_pressure_open(more[62], p->path), MEMLORD_E_LIMIT);
    assert_non_null(strstr(p->log.text, "all its slots are taken"));
    memlord_destroy(more[5]);
    assert_ok(memlord_pressure_open(more[62], p->path));
    for (i = 0; i < 63; i++)
        if (i != 5) memlord_destroy(more[i]);
}

static void sixteen_devices_fit(void **state) {
    pair *p = joined(state);
    int i;
    for (i = 1; i < 20; i++) {
        char id[32];
        sprintf(id, "GPU-%d", i);
        assert_ok(memlord_device_id_set(p->a, cuda(i), id));
        assert_ok(memlord_device_id_set(p->b, cuda(i), id));
        assert_ok(memlord_alloc(p->b, cuda(i), 0x1000 * (uint64_t)(i + 1), MIB, NULL));
    }
    publish(p->b);
    publish(p->a);
    assert_int_equal(neighbours(p->a, cuda(15)), MIB);
    assert_int_equal(neighbours(p->a, cuda(16)), 0);
    assert_non_null(strstr(p->log.text, "more than 16 devices"));
    assert_int_equal(memlord_pressure_raise(p->a, cuda(17), 1), MEMLORD_E_UNKNOWN);
}

static void a_page_of_random_bytes_heals(void **state) {
    pair *p = joined(state);
    uint64_t noise[1024];
    unsigned seed = 1;
    int round;
    long at;
    size_t i;
    assert_ok(memlord_alloc(p->a, cuda(0), 0x1000, 5 * MIB, NULL));
    for (round = 0; round < 20; round++) {
        for (at = 0; at < 128 << 10; at += (long)sizeof noise) {
            for (i = 0; i < 1024; i++)
                noise[i] = (uint64_t)rand_r(&seed) << 33 ^ (uint64_t)rand_r(&seed);
            damage(p->path, at, noise, sizeof noise);
        }
        publish(p->a);
        publish(p->b);
    }
    usleep(60000);
    publish(p->a);
    publish(p->b);
    assert_int_equal(neighbours(p->b, cuda(0)), 5 * MIB);
    assert_int_equal(memlord_allocated(p->a, cuda(0)), 5 * MIB);
}

#define PAIR(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void) {
    const struct CMUnitTest tests[] = {
        PAIR(each_sees_the_bytes_of_the_others),
        PAIR(an_index_is_no_identity),
        PAIR(a_device_without_identity_is_alone),
        PAIR(the_cpu_has_an_identity_and_pinned_shares_it),
        PAIR(mapped_files_are_no_bytes_of_the_cpu),
        PAIR(what_a_pool_keeps_counts),
        PAIR(a_ledger_that_leaves_is_no_longer_counted),
        PAIR(a_raise_runs_the_callbacks_of_the_others),
        PAIR(bells_wake_who_is_asked_and_who_asked),
        PAIR(a_raise_ends_when_all_have_answered_with_less),
        PAIR(a_raise_without_neighbours_does_not_wait),
        PAIR(a_raise_of_nothing_asks_and_does_not_wait),
        PAIR(a_run_that_gave_nothing_back_is_followed_by_a_rest),
        PAIR(who_asks_is_told_that_the_neighbour_rests),
        PAIR(an_explanation_says_what_the_neighbours_hold),
        PAIR(a_page_that_was_removed_is_joined_again),
#if !TEST_SANITIZED
        PAIR(a_poll_does_not_take_the_page_from_under_the_listener),
#endif
        PAIR(wrong_raises_are_refused),
        PAIR(out_of_memory_asks_the_neighbours_and_goes_on_at_once),
        PAIR(a_listener_may_destroy_another_ledger),
        PAIR(a_listener_cannot_close_its_page),
        PAIR(an_emergency_of_one_is_one_of_all),
        PAIR(an_emergency_counts_whichever_neighbour_has_it),
        PAIR(the_level_is_that_of_all_bytes),
        PAIR(reports_have_neighbours_in_a_part_of_their_own),
        PAIR(a_killed_process_is_gone_within_one_interval),
        PAIR(a_forked_child_has_a_slot_of_its_own),
        PAIR(a_forked_child_may_raise_first),
        PAIR(a_forked_child_answers_by_itself),
        PAIR(a_forked_child_that_cannot_join_works_alone),
        PAIR(a_source_that_blocks_delays_answers_once_at_most),
        PAIR(a_listener_that_waits_does_not_spin),
        PAIR(a_listener_without_futexes_does_not_spin),
        PAIR(a_fork_without_a_page_closes_nothing),
        PAIR(a_kernel_without_stall_information_is_no_error),
        PAIR(a_file_that_is_no_page_is_refused),
        PAIR(what_is_no_regular_file_is_refused),
        PAIR(a_page_that_cannot_be_made_is_an_error),
        PAIR(a_second_page_is_refused),
        PAIR(sixty_four_ledgers_fit),
        PAIR(sixteen_devices_fit),
        PAIR(a_page_of_random_bytes_heals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
