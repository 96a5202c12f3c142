/* Capacity: what a source says is read as it was said, or it is unknown; never 0. */
#include "support.h"

#include "json.h"

#include <math.h>
#include <sched.h>

#define MIB ((uint64_t)1 << 20)

static memlord_device pinned(void) { return memlord_device_make(MEMLORD_DEVICE_PINNED, 0); }
static memlord_device mapped(void) { return memlord_device_make(MEMLORD_DEVICE_MAPPED, 0); }
static memlord_device vulkan(void) { return memlord_device_make(MEMLORD_DEVICE_VULKAN, 0); }

static memlord_capacity capacity_of(memlord *lord, memlord_device device) {
    memlord_capacity c;
    memset(&c, 0xee, sizeof c);
    assert_ok(memlord_capacity_get(lord, device, &c));
    return c;
}

/* The same source for the cpu, sampled. */
static void host_capacity(test_case *t, uint64_t total, uint64_t used) {
    t->source.total = total;
    t->source.used = used;
    t->source.fail = 0;
    assert_ok(
        memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CPU, test_source_ask, &t->source));
    assert_ok(memlord_capacity_sample(t->lord, cpu()));
}

/* -- samples -- */

static void a_sample_is_read_as_it_was_said(void **state) {
    test_case *t = (test_case *)*state;
    memlord_capacity c;
    t->source.process = 30;
    test_capacity(t, 1000, 400);
    c = capacity_of(t->lord, cuda(0));
    assert_int_equal(c.known, 1);
    assert_int_equal(c.total, 1000);
    assert_int_equal(c.used, 400);
    assert_int_equal(c.process, 30);
    assert_int_equal(t->source.device.type, MEMLORD_DEVICE_CUDA);
    assert_int_equal(t->source.device.index, 0);
}

static jmp_buf way_out;
static int leave_by_longjmp(void *user, memlord_device device, memlord_capacity *out) {
    (void)device, (void)out;
    if (!(*(int *)user)++) longjmp(way_out, 1);
    out->total = 1000;
    out->used = 400;
    return 0;
}
static void a_source_left_by_longjmp_is_asked_again(void **state) {
    memlord *lord = test_lord(state);
    int calls = 0;
    assert_ok(memlord_capacity_source_set(lord, MEMLORD_DEVICE_CUDA, leave_by_longjmp, &calls));
    if (!setjmp(way_out)) (void)memlord_capacity_sample(lord, cuda(0));
    assert_int_equal(capacity_of(lord, cuda(0)).known, 0);
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(calls, 2);
    assert_int_equal(capacity_of(lord, cuda(0)).used, 400);
    calls = 0;
    if (!setjmp(way_out)) (void)memlord_capacity_sample(lord, cuda(0));
    assert_ok(memlord_capacity_source_set(lord, MEMLORD_DEVICE_CUDA, leave_by_longjmp, &calls));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
}

static void a_get_asks_nobody(void **state) {
    test_case *t = (test_case *)*state;
    int i;
    t->source.total = 1000;
    t->source.fail = 0;
    assert_int_equal(capacity_of(t->lord, cuda(0)).known, 0);
    assert_int_equal(t->source.calls, 0);
    test_capacity(t, 1000, 400);
    t->source.used = 500;
    t->now += (uint64_t)3600 * 1000000000;
    for (i = 0; i < 10; i++) assert_int_equal(capacity_of(t->lord, cuda(0)).used, 400);
    assert_int_equal(t->source.calls, 1);
}

static void a_sample_ages_by_the_clock(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 400);
    assert_int_equal(capacity_of(t->lord, cuda(0)).age_ns, 0);
    t->now += 12345;
    assert_int_equal(capacity_of(t->lord, cuda(0)).age_ns, 12345);
    test_capacity(t, 1000, 401);
    assert_int_equal(capacity_of(t->lord, cuda(0)).age_ns, 0);
    assert_int_equal(capacity_of(t->lord, cuda(0)).used, 401);
}

static int say_age_and_known(void *user, memlord_device device, memlord_capacity *out) {
    (void)user;
    (void)device;
    out->total = 1000;
    out->used = 1;
    out->process = 0;
    out->age_ns = 77;
    out->known = 0;
    return 0;
}

static void a_source_cannot_say_age_or_known(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(
        memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, say_age_and_known, NULL));
    assert_ok(memlord_capacity_sample(t->lord, cuda(0)));
    assert_int_equal(capacity_of(t->lord, cuda(0)).age_ns, 0);
    assert_int_equal(capacity_of(t->lord, cuda(0)).known, 1);
}

static int say_only_total(void *user, memlord_device device, memlord_capacity *out) {
    (void)user;
    (void)device;
    out->total = 1000;
    return 0;
}

static void what_a_source_leaves_alone_is_0(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, say_only_total, NULL));
    assert_ok(memlord_capacity_sample(t->lord, cuda(0)));
    assert_int_equal(capacity_of(t->lord, cuda(0)).used, 0);
    assert_int_equal(capacity_of(t->lord, cuda(0)).process, 0);
}

static void devices_of_a_type_are_sampled_apart(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 400);
    t->source.total = 2000;
    assert_ok(memlord_capacity_sample(t->lord, cuda(1)));
    assert_int_equal(t->source.device.index, 1);
    assert_int_equal(capacity_of(t->lord, cuda(0)).total, 1000);
    assert_int_equal(capacity_of(t->lord, cuda(1)).total, 2000);
    assert_int_equal(capacity_of(t->lord, cuda(2)).known, 0);
}

/* -- unknown, never 0 -- */

static void expect_unknown(test_case *t) {
    assert_int_equal(memlord_capacity_sample(t->lord, cuda(0)), MEMLORD_E_UNKNOWN);
    assert_int_equal(capacity_of(t->lord, cuda(0)).known, 0);
    assert_true(memlord_headroom(t->lord, cuda(0)) == INT64_MAX);
    assert_int_equal(memlord_would_fit(t->lord, cuda(0), 1), -1);
    assert_int_equal(memlord_pressure_level(t->lord, cuda(0)), MEMLORD_PRESSURE_UNKNOWN);
}

static void a_source_that_fails_makes_it_unknown(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 400);
    t->source.fail = 1;
    expect_unknown(t);
    t->source.fail = -1;
    expect_unknown(t);
    test_capacity(t, 1000, 400);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 600);
}

static void a_total_of_0_is_unknown(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 400);
    t->source.total = t->source.used = 0;
    expect_unknown(t);
}

static void used_over_total_is_unknown(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 1000);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    t->source.used = 1001;
    expect_unknown(t);
}

static void a_type_without_a_source_is_unsupported(void **state) {
    test_case *t = (test_case *)*state;
    memlord_device hip = memlord_device_make(MEMLORD_DEVICE_HIP, 0);
    assert_int_equal(memlord_capacity_sample(t->lord, hip), MEMLORD_E_UNSUPPORTED);
    assert_int_equal(memlord_capacity_sample(t->lord, vulkan()), MEMLORD_E_UNSUPPORTED);
    assert_int_equal(capacity_of(t->lord, hip).known, 0);
}

static void a_device_never_seen_reads_unknown_and_stays_unseen(void **state) {
    test_case *t = (test_case *)*state;
    assert_int_equal(capacity_of(t->lord, cuda(7)).known, 0);
    assert_true(memlord_headroom(t->lord, cuda(7)) == INT64_MAX);
    assert_int_equal(memlord_would_fit(t->lord, cuda(7), 1), -1);
    assert_int_equal(memlord_pressure_level(t->lord, cuda(7)), MEMLORD_PRESSURE_UNKNOWN);
    assert_int_equal(memlord_devices(t->lord, NULL, 0), 0);
}

static void bad_arguments_are_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_capacity c;
    memlord_device bad = memlord_device_make(MEMLORD_DEVICE_TYPE_COUNT, 0);
    assert_int_equal(memlord_capacity_get(lord, cuda(0), NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_capacity_get(lord, bad, &c), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_capacity_get(lord, all(), &c), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_capacity_sample(lord, bad), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_capacity_sample(lord, cuda(MEMLORD_ANY)), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_limit_set(lord, bad, 1), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_limit_set(lord, all(), 1), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_limit_set_fraction(lord, bad, 0.5), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_capacity_source_set(lord, -2, test_source_ask, NULL),
                     MEMLORD_E_DEVICE);
    assert_int_equal(
        memlord_capacity_source_set(lord, MEMLORD_DEVICE_TYPE_COUNT, test_source_ask, NULL),
        MEMLORD_E_DEVICE);
    assert_int_equal(memlord_would_fit(lord, bad, 1), -1);
    assert_true(memlord_headroom(lord, bad) == INT64_MAX);
    assert_int_equal(memlord_pressure_level(lord, bad), MEMLORD_PRESSURE_UNKNOWN);
}

static void a_null_ledger_knows_nothing(void **state) {
    memlord_capacity c;
    (void)state;
    memset(&c, 0xee, sizeof c);
    assert_ok(memlord_capacity_source_set(NULL, MEMLORD_DEVICE_CPU, test_source_ask, NULL));
    assert_ok(memlord_capacity_sample(NULL, cpu()));
    assert_ok(memlord_capacity_get(NULL, cpu(), &c));
    assert_int_equal(c.known, 0);
    assert_true(memlord_headroom(NULL, cpu()) == INT64_MAX);
    assert_int_equal(memlord_would_fit(NULL, cpu(), 1), -1);
    assert_ok(memlord_limit_set(NULL, cpu(), 1));
    assert_ok(memlord_limit_set_fraction(NULL, cpu(), 0.5));
    assert_int_equal(memlord_pressure_level(NULL, cpu()), MEMLORD_PRESSURE_UNKNOWN);
}

/* -- sources come and go -- */

static void what_the_old_source_said_is_forgotten(void **state) {
    test_case *t = (test_case *)*state;
    test_source other;
    memset(&other, 0, sizeof other);
    other.total = 5000;
    test_capacity(t, 1000, 400);
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, test_source_ask, &other));
    assert_int_equal(capacity_of(t->lord, cuda(0)).known, 0);
    assert_ok(memlord_capacity_sample(t->lord, cuda(0)));
    assert_int_equal(capacity_of(t->lord, cuda(0)).total, 5000);
    assert_int_equal(t->source.calls, 1);
    assert_int_equal(other.calls, 1);
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, NULL, NULL));
}

static void without_a_source_a_type_has_what_is_built_in(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 400);
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, NULL, NULL));
    assert_int_equal(memlord_capacity_sample(t->lord, cuda(0)), MEMLORD_E_UNSUPPORTED);
    assert_int_equal(capacity_of(t->lord, cuda(0)).known, 0);
    assert_int_equal(t->source.calls, 1);
    host_capacity(t, 1000, 400);
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CPU, NULL, NULL));
    assert_int_equal(capacity_of(t->lord, cpu()).known, 0);
    assert_ok(memlord_capacity_sample(t->lord, cpu()));
    assert_true(capacity_of(t->lord, cpu()).total > MIB);
}

typedef struct nested {
    test_case *t;
    memlord_result result;
} nested;

static int sample_again(void *user, memlord_device device, memlord_capacity *out) {
    nested *n = (nested *)user;
    out->total = 1000;
    n->result = memlord_capacity_sample(n->t->lord, device);
    return 0;
}

static void a_sample_inside_a_sample_is_refused(void **state) {
    test_case *t = (test_case *)*state;
    nested n;
    n.t = t;
    n.result = MEMLORD_OK;
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, sample_again, &n));
    assert_ok(memlord_capacity_sample(t->lord, cuda(0)));
    assert_int_equal(n.result, MEMLORD_E_STATE);
    assert_int_equal(capacity_of(t->lord, cuda(0)).total, 1000);
}

/* A source that is inside a sample of cuda:0 until the gate opens. */
typedef struct slow_source {
    memlord *lord;
    test_gate gate;
    int left; /* the source has returned */
    int calling, left_at_return;
} slow_source;

static int ask_slowly(void *user, memlord_device device, memlord_capacity *out) {
    slow_source *s = (slow_source *)user;
    if (!device.index) test_gate_pass(&s->gate);
    out->total = 1000;
    __atomic_store_n(&s->left, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static void *sample_slowly(void *user) {
    slow_source *s = (slow_source *)user;
    memlord_capacity_sample(s->lord, memlord_device_cuda(0));
    return NULL;
}

static void *take_the_source_away(void *user) {
    slow_source *s = (slow_source *)user;
    __atomic_store_n(&s->calling, 1, __ATOMIC_SEQ_CST);
    memlord_capacity_source_set(s->lord, MEMLORD_DEVICE_CUDA, NULL, NULL);
    s->left_at_return = __atomic_load_n(&s->left, __ATOMIC_SEQ_CST);
    return NULL;
}

static void a_slow_source_keeps_others_waiting_for_nothing(void **state) {
    test_case *t = (test_case *)*state;
    slow_source s = {NULL, TEST_GATE, 0, 0, 0};
    pthread_t thread;
    s.lord = t->lord;
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, ask_slowly, &s));
    assert_int_equal(pthread_create(&thread, NULL, sample_slowly, &s), 0);
    assert_true(test_gate_came(&s.gate, 1));
    assert_int_equal(memlord_capacity_sample(t->lord, cuda(0)), MEMLORD_E_STATE);
    assert_int_equal(capacity_of(t->lord, cuda(0)).known, 0);
    assert_ok(memlord_capacity_sample(t->lord, cuda(1)));
    grow(t, cuda(0), 100);
    assert_ok(memlord_gc_poll(t->lord, all()));
    test_gate_open(&s.gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(capacity_of(t->lord, cuda(0)).total, 1000);
}

static void taking_a_source_away_waits_for_its_call(void **state) {
    test_case *t = (test_case *)*state;
    slow_source s = {NULL, TEST_GATE, 0, 0, 0};
    pthread_t asker, taker;
    int i;
    s.lord = t->lord;
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, ask_slowly, &s));
    assert_int_equal(pthread_create(&asker, NULL, sample_slowly, &s), 0);
    assert_true(test_gate_came(&s.gate, 1));
    assert_int_equal(pthread_create(&taker, NULL, take_the_source_away, &s), 0);
    while (!__atomic_load_n(&s.calling, __ATOMIC_SEQ_CST)) sched_yield();
    for (i = 0; i < 1000; i++) sched_yield(); /* a call that does not wait would be back */
    test_gate_open(&s.gate);
    assert_int_equal(pthread_join(asker, NULL), 0);
    assert_int_equal(pthread_join(taker, NULL), 0);
    assert_int_equal(s.left_at_return, 1);
    assert_int_equal(capacity_of(t->lord, cuda(0)).known, 0); /* nor does it come in late */
}

static int take_myself_away(void *user, memlord_device device, memlord_capacity *out) {
    (void)device;
    out->total = 1000;
    return memlord_capacity_source_set((memlord *)user, MEMLORD_DEVICE_CUDA, NULL, NULL) !=
           MEMLORD_OK;
}

static void a_source_may_take_itself_away(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, take_myself_away, t->lord));
    memlord_capacity_sample(t->lord, cuda(0));
    assert_int_equal(capacity_of(t->lord, cuda(0)).known, 0);
    assert_int_equal(memlord_capacity_sample(t->lord, cuda(0)), MEMLORD_E_UNSUPPORTED);
}

/* Samples that are all of one piece, and fail now and then. */
typedef struct pieces {
    memlord *lord;
    uint64_t n, bad;
    int stop;
} pieces;

static int say_one_piece(void *user, memlord_device device, memlord_capacity *out) {
    pieces *p = (pieces *)user;
    (void)device;
    p->n++;
    out->total = p->n * 1000;
    out->used = p->n * 10;
    out->process = p->n;
    return p->n % 16 == 0;
}

static void *read_pieces(void *user) {
    pieces *p = (pieces *)user;
    uint64_t bad = 0;
    while (!__atomic_load_n(&p->stop, __ATOMIC_RELAXED)) {
        memlord_capacity c;
        bad += memlord_capacity_get(p->lord, memlord_device_cuda(0), &c) != MEMLORD_OK;
        bad += c.known && (c.total != c.process * 1000 || c.used != c.process * 10 || !c.total);
        memlord_headroom(p->lord, memlord_device_cuda(0));
    }
    __atomic_add_fetch(&p->bad, bad, __ATOMIC_RELAXED);
    return NULL;
}

static void nobody_reads_half_a_sample(void **state) {
    test_case *t = (test_case *)*state;
    pthread_t threads[3];
    pieces p;
    int i;
    memset(&p, 0, sizeof p);
    p.lord = t->lord;
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, say_one_piece, &p));
    for (i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_pieces, &p), 0);
    for (i = 0; i < 20000; i++) memlord_capacity_sample(t->lord, cuda(0));
    __atomic_store_n(&p.stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 3; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(p.bad, 0);
}

/* -- physical devices -- */

static void cpu_pinned_and_mapped_are_one_physical_device(void **state) {
    test_case *t = (test_case *)*state;
    host_capacity(t, 1000, 400);
    assert_int_equal(capacity_of(t->lord, pinned()).total, 1000);
    assert_int_equal(capacity_of(t->lord, mapped()).used, 400);
    t->source.used = 500;
    assert_ok(memlord_capacity_sample(t->lord, mapped()));
    assert_int_equal(t->source.device.type, MEMLORD_DEVICE_CPU);
    assert_int_equal(capacity_of(t->lord, cpu()).used, 500);
    assert_ok(memlord_limit_set(t->lord, pinned(), 300));
    grow(t, cpu(), 10);
    grow(t, pinned(), 20);
    grow(t, mapped(), 40);
    assert_int_equal(memlord_headroom(t->lord, cpu()), 230);
    assert_int_equal(memlord_headroom(t->lord, pinned()), 230);
    assert_int_equal(memlord_headroom(t->lord, mapped()), 230);
}

static void a_shared_device_is_in_the_others_memory(void **state) {
    test_case *t = (test_case *)*state;
    host_capacity(t, 1000, 400);
    assert_ok(memlord_limit_set(t->lord, cpu(), 500));
    grow(t, vulkan(), 100);
    assert_int_equal(memlord_headroom(t->lord, cpu()), 500);
    assert_ok(memlord_device_share(t->lord, vulkan(), cpu()));
    assert_int_equal(capacity_of(t->lord, vulkan()).total, 1000);
    assert_int_equal(memlord_headroom(t->lord, cpu()), 400);
    assert_int_equal(memlord_headroom(t->lord, vulkan()), 400);
    grow(t, cpu(), 50);
    assert_int_equal(memlord_headroom(t->lord, vulkan()), 350);
    assert_int_equal(memlord_allocated(t->lord, cpu()), 50);
}

static void sharing_with_itself_undoes_it(void **state) {
    test_case *t = (test_case *)*state;
    host_capacity(t, 1000, 400);
    assert_ok(memlord_limit_set(t->lord, cpu(), 500));
    assert_ok(memlord_device_share(t->lord, vulkan(), cpu()));
    grow(t, vulkan(), 100);
    assert_ok(memlord_device_share(t->lord, vulkan(), vulkan()));
    assert_int_equal(memlord_headroom(t->lord, cpu()), 500);
    assert_int_equal(capacity_of(t->lord, vulkan()).known, 0);
    assert_true(memlord_headroom(t->lord, vulkan()) == INT64_MAX);
}

static void what_the_old_source_said_is_forgotten_while_shared_too(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 400);
    assert_ok(memlord_device_share(t->lord, cuda(0), cpu()));
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, NULL, NULL));
    assert_ok(memlord_device_share(t->lord, cuda(0), cuda(0)));
    assert_int_equal(capacity_of(t->lord, cuda(0)).known, 0);
}

static void sharing_makes_no_chains(void **state) {
    memlord *lord = test_lord(state);
    memlord_device bad = memlord_device_make(MEMLORD_DEVICE_TYPE_COUNT, 0);
    assert_ok(memlord_device_share(lord, vulkan(), cuda(0)));
    assert_int_equal(memlord_device_share(lord, cuda(1), vulkan()), MEMLORD_E_STATE);
    assert_int_equal(memlord_device_share(lord, cuda(0), cpu()), MEMLORD_E_STATE);
    assert_int_equal(memlord_device_share(lord, bad, cpu()), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_device_share(lord, cuda(1), all()), MEMLORD_E_DEVICE);
    assert_ok(memlord_device_share(lord, vulkan(), vulkan()));
    assert_ok(memlord_device_share(lord, cuda(0), cpu()));
}

/* -- headroom, would_fit, plan_fit -- */

static void headroom_by_capacity_is_total_less_used(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 400);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 600);
    grow(t, cuda(0), 100); /* in `used` from the next sample on */
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 600);
    test_capacity(t, 1000, 500);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
}

static void headroom_by_limit_is_limit_less_live(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1000));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 1000);
    key = grow(t, cuda(0), 300);
    assert_ok(memlord_arena_add(t->lord, cuda(0), 50, NULL));
    grow(t, cuda(1), 70);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 650);
    assert_ok(memlord_free(t->lord, cuda(0), key, NULL));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 950);
}

static void headroom_is_the_less_of_both(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 400);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 700));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 600);
    grow(t, cuda(0), 200);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 0));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 600);
}

static void reservations_come_off_both(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    test_capacity(t, 1000, 400);
    assert_ok(memlord_reserve(t->lord, cuda(0), 150, &ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 450);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 500));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 350);
    assert_ok(memlord_reserve_cancel(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
}

static void headroom_goes_below_0(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1000));
    grow(t, cuda(0), 1300);
    assert_true(memlord_headroom(t->lord, cuda(0)) == -300);
    assert_int_equal(memlord_would_fit(t->lord, cuda(0), 1), 0);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 0));
    test_capacity(t, 1000, 1000);
    assert_ok(memlord_reserve(t->lord, cuda(0), 5, &ticket));
    assert_true(memlord_headroom(t->lord, cuda(0)) == -5);
}

static void would_fit_is_exact_to_the_byte(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 400);
    assert_int_equal(memlord_would_fit(t->lord, cuda(0), 600), 1);
    assert_int_equal(memlord_would_fit(t->lord, cuda(0), 601), 0);
    assert_int_equal(memlord_would_fit(t->lord, cuda(0), UINT64_MAX), 0);
    assert_int_equal(memlord_would_fit(t->lord, cuda(0), (uint64_t)1 << 63), 0);
}

static void a_limit_alone_decides_when_capacity_is_unknown(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_limit_set(lord, cuda(0), 500));
    assert_int_equal(memlord_would_fit(lord, cuda(0), 500), 1);
    assert_int_equal(memlord_would_fit(lord, cuda(0), 501), 0);
}

static memlord_block block_of(memlord_device device, uint64_t bytes) {
    memlord_block block;
    block.device = device;
    block.storage = 0;
    block.bytes = bytes;
    return block;
}

static void a_plan_fits_if_each_device_has_room(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block plan[4];
    int64_t lacks = 77;
    test_capacity(t, 1000, 400);
    assert_ok(memlord_limit_set(t->lord, cuda(1), 50));
    plan[0] = block_of(cuda(0), 100);
    plan[1] = block_of(cuda(1), 20);
    plan[2] = block_of(cuda(0), 400);
    plan[3] = block_of(cuda(1), 25);
    assert_int_equal(memlord_plan_fit(t->lord, plan, 4, &lacks), 1);
    assert_true(lacks == -5);
    assert_int_equal(memlord_plan_fit(t->lord, plan, 4, NULL), 1);
    plan[3].bytes = 30;
    assert_int_equal(memlord_plan_fit(t->lord, plan, 4, &lacks), 1);
    assert_int_equal(lacks, 0);
    plan[3].bytes = 33;
    plan[2].bytes = 501;
    assert_int_equal(memlord_plan_fit(t->lord, plan, 4, &lacks), 0);
    assert_int_equal(lacks, 3);
}

static void a_plan_adds_up_what_is_in_one_memory(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block plan[3];
    int64_t lacks = 0;
    host_capacity(t, 1000, 400);
    plan[0] = block_of(cpu(), 300);
    plan[1] = block_of(pinned(), 200);
    plan[2] = block_of(mapped(), 101);
    assert_int_equal(memlord_plan_fit(t->lord, plan, 3, &lacks), 0);
    assert_int_equal(lacks, 1);
    assert_int_equal(memlord_plan_fit(t->lord, plan, 2, &lacks), 1);
    assert_true(lacks == -100);
}

static void a_plan_on_an_unknown_device_is_unknown(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block plan[2];
    int64_t lacks = 77;
    size_t seen;
    test_capacity(t, 1000, 400);
    seen = memlord_devices(t->lord, NULL, 0);
    plan[0] = block_of(cuda(0), 100);
    plan[1] = block_of(cuda(5), 1);
    assert_int_equal(memlord_plan_fit(t->lord, plan, 2, &lacks), -1);
    assert_int_equal(lacks, 0);
    assert_int_equal(memlord_devices(t->lord, NULL, 0), seen);
}

static void a_plan_that_cannot_fit_does_not_whatever_else_is_unknown(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block plan[2];
    int64_t lacks = 77;
    test_capacity(t, 1000, 400);
    plan[0] = block_of(cuda(0), 610);
    plan[1] = block_of(cuda(5), 1);
    assert_int_equal(memlord_plan_fit(t->lord, plan, 2, &lacks), 0);
    assert_int_equal(lacks, 10);
}

static void the_sum_of_a_plan_does_not_wrap(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block plan[3];
    int64_t lacks = 0;
    test_capacity(t, 1000, 400);
    plan[0] = plan[1] = block_of(cuda(0), (uint64_t)1 << 63);
    plan[2] = block_of(cuda(0), 1);
    assert_int_equal(memlord_plan_fit(t->lord, plan, 3, &lacks), 0);
    assert_true(lacks > 0);
    plan[0].bytes = plan[1].bytes = UINT64_MAX;
    assert_int_equal(memlord_plan_fit(t->lord, plan, 3, &lacks), 0);
    assert_true(lacks > 0);
}

/* -- a fraction of the capacity as limit -- */

static void a_limit_may_be_a_fraction(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 0);
    assert_ok(memlord_limit_set_fraction(t->lord, cuda(0), 0.75));
    assert_int_equal(stats_of(t->lord, cuda(0)).limit, 750);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 750);
    assert_ok(memlord_limit_set_fraction(t->lord, cuda(0), 1.0));
    assert_int_equal(stats_of(t->lord, cuda(0)).limit, 1000);
}

static void a_fraction_follows_the_capacity(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 0);
    assert_ok(memlord_limit_set_fraction(t->lord, cuda(0), 0.5));
    test_capacity(t, 4000, 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).limit, 2000);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 2000);
    test_capacity(t, 600, 0);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 300);
}

static void a_plain_limit_ends_the_fraction(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 0);
    assert_ok(memlord_limit_set_fraction(t->lord, cuda(0), 0.5));
    assert_ok(memlord_limit_set(t->lord, cuda(0), 123));
    test_capacity(t, 4000, 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).limit, 123);
    assert_ok(memlord_limit_set_fraction(t->lord, cuda(0), 0.5));
    assert_ok(memlord_limit_set(t->lord, cuda(0), 0));
    test_capacity(t, 8000, 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).limit, 0);
}

static void a_fraction_samples_a_capacity_not_known(void **state) {
    test_case *t = (test_case *)*state;
    t->source.total = 1000;
    t->source.fail = 0;
    assert_ok(memlord_limit_set_fraction(t->lord, cuda(0), 0.5));
    assert_int_equal(t->source.calls, 1);
    assert_int_equal(stats_of(t->lord, cuda(0)).limit, 500);
}

static void a_fraction_of_the_unknown_is_refused(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 123));
    assert_int_equal(memlord_limit_set_fraction(t->lord, cuda(0), 0.5), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_limit_set_fraction(t->lord, vulkan(), 0.5), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(t->lord, cuda(0)).limit, 123);
}

static void a_fraction_outside_0_to_1_is_refused(void **state) {
    test_case *t = (test_case *)*state;
    const double bad[] = {0, 1.5, 1.0000001, -0.5, -1, NAN, INFINITY, -INFINITY};
    size_t i;
    test_capacity(t, 1000, 0);
    assert_ok(memlord_limit_set_fraction(t->lord, cuda(0), 0.25));
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(memlord_limit_set_fraction(t->lord, cuda(0), bad[i]), MEMLORD_E_INVALID);
    assert_int_equal(stats_of(t->lord, cuda(0)).limit, 250);
}

/* -- pressure -- */

static int level_at(test_case *t, uint64_t used) {
    test_capacity(t, 1000, used);
    return memlord_pressure_level(t->lord, cuda(0));
}

static void pressure_by_capacity_has_its_levels_at_80_and_95(void **state) {
    test_case *t = (test_case *)*state;
    assert_int_equal(level_at(t, 0), MEMLORD_PRESSURE_NORMAL);
    assert_int_equal(level_at(t, 799), MEMLORD_PRESSURE_NORMAL);
    assert_int_equal(level_at(t, 800), MEMLORD_PRESSURE_WARNING);
    assert_int_equal(level_at(t, 949), MEMLORD_PRESSURE_WARNING);
    assert_int_equal(level_at(t, 950), MEMLORD_PRESSURE_CRITICAL);
    assert_int_equal(level_at(t, 1000), MEMLORD_PRESSURE_CRITICAL);
    assert_int_equal(level_at(t, 500), MEMLORD_PRESSURE_NORMAL);
}

static void pressure_by_limit_has_the_same_levels(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1000));
    assert_int_equal(memlord_pressure_level(t->lord, cuda(0)), MEMLORD_PRESSURE_NORMAL);
    grow(t, cuda(0), 799);
    assert_int_equal(memlord_pressure_level(t->lord, cuda(0)), MEMLORD_PRESSURE_NORMAL);
    grow(t, cuda(0), 1);
    assert_int_equal(memlord_pressure_level(t->lord, cuda(0)), MEMLORD_PRESSURE_WARNING);
    grow(t, cuda(0), 149);
    assert_int_equal(memlord_pressure_level(t->lord, cuda(0)), MEMLORD_PRESSURE_WARNING);
    grow(t, cuda(0), 1);
    assert_int_equal(memlord_pressure_level(t->lord, cuda(0)), MEMLORD_PRESSURE_CRITICAL);
}

static void the_worse_of_capacity_and_limit_is_the_pressure(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1000));
    grow(t, cuda(0), 850);
    assert_int_equal(level_at(t, 100), MEMLORD_PRESSURE_WARNING);
    assert_int_equal(level_at(t, 960), MEMLORD_PRESSURE_CRITICAL);
}

static int try_and_fail(void *user, uint64_t bytes, uint64_t *storage) {
    (void)bytes;
    *storage = 0x7000;
    return *(int *)user;
}

static void a_failing_allocation_is_an_emergency_until_one_succeeds(void **state) {
    test_case *t = (test_case *)*state;
    memlord_retry once;
    uint64_t storage = 0;
    int answer = 1;
    memset(&once, 0, sizeof once);
    once.multiplier = 1;
    test_capacity(t, 1000, 100);
    assert_int_equal(memlord_alloc_retry(t->lord, cuda(0), 10, try_and_fail, &answer, &once,
                                         &storage, NULL),
                     MEMLORD_E_OOM);
    assert_int_equal(memlord_pressure_level(t->lord, cuda(0)), MEMLORD_PRESSURE_EMERGENCY);
    assert_int_equal(memlord_pressure_level(t->lord, cuda(1)), MEMLORD_PRESSURE_UNKNOWN);
    answer = 0;
    assert_ok(memlord_alloc_retry(t->lord, cuda(0), 10, try_and_fail, &answer, &once, &storage,
                                  NULL));
    assert_int_equal(memlord_pressure_level(t->lord, cuda(0)), MEMLORD_PRESSURE_NORMAL);
}

/* -- the report -- */

static void the_text_report_splits_what_is_used(void **state) {
    test_case *t = (test_case *)*state;
    char *text;
    t->source.process = 210 * MIB;
    test_capacity(t, 1000 * MIB, 610 * MIB);
    grow(t, cuda(0), 53 * MIB);
    text = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "1000 MiB")); /* total */
    assert_non_null(strstr(text, "53 MiB"));   /* what the ledger knows */
    assert_non_null(strstr(text, "157 MiB"));  /* the rest of this process */
    assert_non_null(strstr(text, "400 MiB"));  /* others */
    free(text);
}

static void a_split_that_does_not_add_up_does_not_wrap(void **state) {
    test_case *t = (test_case *)*state;
    char *text;
    t->source.process = 700 * MIB;
    test_capacity(t, 1000 * MIB, 610 * MIB);
    grow(t, cuda(0), 900 * MIB);
    text = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_null(strstr(text, "EiB"));
    assert_null(strstr(text, "PiB"));
    free(text);
}

static void the_text_report_invents_no_capacity(void **state) {
    test_case *t = (test_case *)*state;
    char *before, *after;
    grow(t, cuda(0), 53 * MIB);
    before = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_int_equal(memlord_capacity_sample(t->lord, cuda(0)), MEMLORD_E_UNKNOWN);
    after = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_string_equal(before, after);
    assert_null(strstr(after, "capacity"));
    free(before);
    free(after);
}

static void the_context_of_the_driver_is_accounted_for(void **state) {
    test_case *t = (test_case *)*state;
    char *text;
    t->source.process = 210 * MIB;
    t->source.context = 100 * MIB;
    test_capacity(t, 1000 * MIB, 610 * MIB);
    grow(t, cuda(0), 53 * MIB);
    assert_int_equal(capacity_of(t->lord, cuda(0)).context, 100 * MIB);
    text = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, " + self 53 MiB + context 100 MiB + unaccounted 457 MiB\n"));
    assert_non_null(strstr(text, "157 MiB     400 MiB")); /* this process's rest, the others */
    free(text);
    text = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(text, "capacity[0].context"), 100 * MIB);
    assert_int_equal(json_u64(text, "capacity[0].unaccounted"), 457 * MIB);
    free(text);
    text = report_of(t->lord, MEMLORD_FORMAT_HTML);
    assert_non_null(strstr(text, "\"context\":104857600,\"neighbours\":null,"
                                 "\"unaccounted\":479199232,"));
    free(text);
    text = report_of(t->lord, MEMLORD_FORMAT_PROMETHEUS);
    assert_non_null(strstr(text, "\nmemlord_context_bytes{device=\"cuda:0\"} 104857600\n"));
    free(text);
}

static void a_context_is_no_other_process_s(void **state) {
    test_case *t = (test_case *)*state;
    char *text;
    t->source.context = 100 * MIB; /* of a process whose share is not known */
    test_capacity(t, 1000 * MIB, 610 * MIB);
    grow(t, cuda(0), 53 * MIB);
    text = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(text, "capacity[0].others"), 457 * MIB);
    assert_int_equal(json_u64(text, "capacity[0].process"), UINT64_MAX); /* null */
    free(text);
}

static void an_unknown_context_is_not_shown(void **state) {
    test_case *t = (test_case *)*state;
    char *text;
    test_capacity(t, 1000 * MIB, 610 * MIB);
    text = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_null(strstr(text, "context"));
    assert_non_null(strstr(text, " + unaccounted 610 MiB\n"));
    free(text);
    text = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(text, "\"context\":null,"));
    free(text);
}

static void a_context_over_what_is_used_does_not_wrap(void **state) {
    test_case *t = (test_case *)*state;
    char *text;
    t->source.context = 100 * MIB;
    test_capacity(t, 1000 * MIB, 60 * MIB);
    text = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, " + context 100 MiB - unaccounted 40 MiB (less is in use"));
    free(text);
    t->source.context = UINT64_MAX - 1;
    assert_ok(memlord_capacity_sample(t->lord, cuda(0)));
    text = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_true(json_valid(text));
    free(text);
}

static void other_processes_are_listed(void **state) {
    test_case *t = (test_case *)*state;
    memlord_capacity c;
    char *text;
    t->source.others[0].pid = 1u << 30; /* over any pid: it has no name */
    t->source.others[0].bytes = 500 * MIB;
    t->source.others[1].pid = (1u << 30) + 1;
    t->source.others[1].bytes = 10 * MIB;
    t->source.others[3].pid = 7; /* behind the end */
    test_capacity(t, 1000 * MIB, 610 * MIB);
    c = capacity_of(t->lord, cuda(0));
    assert_memory_equal(c.others, t->source.others, sizeof c.others);
    text = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "\ncuda:0: others: pid 1073741824 holds 500 MiB, "
                                 "pid 1073741825 holds 10 MiB\n"));
    free(text);
    text = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(text, "capacity[0].other_processes[0].pid"), 1u << 30);
    assert_int_equal(json_u64(text, "capacity[0].other_processes[1].bytes"), 10 * MIB);
    assert_int_equal(json_u64(text, "capacity[0].other_processes[2].pid"), UINT64_MAX);
    free(text);
    t->source.fail = 1;
    (void)memlord_capacity_sample(t->lord, cuda(0));
    t->source.fail = 0;
    memset(t->source.others, 0, sizeof t->source.others);
    test_capacity(t, 1000 * MIB, 610 * MIB);
    text = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(text, "\"other_processes\":[]"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_FAKES(a_sample_is_read_as_it_was_said),
        TEST_FAKES(a_source_left_by_longjmp_is_asked_again),
        TEST_FAKES(a_get_asks_nobody),
        TEST_FAKES(a_sample_ages_by_the_clock),
        TEST_FAKES(a_source_cannot_say_age_or_known),
        TEST_FAKES(what_a_source_leaves_alone_is_0),
        TEST_FAKES(devices_of_a_type_are_sampled_apart),
        TEST_FAKES(a_source_that_fails_makes_it_unknown),
        TEST_FAKES(a_total_of_0_is_unknown),
        TEST_FAKES(used_over_total_is_unknown),
        TEST_FAKES(a_type_without_a_source_is_unsupported),
        TEST_FAKES(a_device_never_seen_reads_unknown_and_stays_unseen),
        TEST_FAKES(bad_arguments_are_refused),
        cmocka_unit_test(a_null_ledger_knows_nothing),
        TEST_FAKES(what_the_old_source_said_is_forgotten),
        TEST_FAKES(without_a_source_a_type_has_what_is_built_in),
        TEST_FAKES(a_sample_inside_a_sample_is_refused),
        TEST_FAKES(a_slow_source_keeps_others_waiting_for_nothing),
        TEST_FAKES(taking_a_source_away_waits_for_its_call),
        TEST_FAKES(a_source_may_take_itself_away),
        TEST_FAKES(nobody_reads_half_a_sample),
        TEST_FAKES(cpu_pinned_and_mapped_are_one_physical_device),
        TEST_FAKES(a_shared_device_is_in_the_others_memory),
        TEST_FAKES(sharing_with_itself_undoes_it),
        TEST_FAKES(what_the_old_source_said_is_forgotten_while_shared_too),
        TEST_FAKES(sharing_makes_no_chains),
        TEST_FAKES(headroom_by_capacity_is_total_less_used),
        TEST_FAKES(headroom_by_limit_is_limit_less_live),
        TEST_FAKES(headroom_is_the_less_of_both),
        TEST_FAKES(reservations_come_off_both),
        TEST_FAKES(headroom_goes_below_0),
        TEST_FAKES(would_fit_is_exact_to_the_byte),
        TEST_FAKES(a_limit_alone_decides_when_capacity_is_unknown),
        TEST_FAKES(a_plan_fits_if_each_device_has_room),
        TEST_FAKES(a_plan_adds_up_what_is_in_one_memory),
        TEST_FAKES(a_plan_on_an_unknown_device_is_unknown),
        TEST_FAKES(a_plan_that_cannot_fit_does_not_whatever_else_is_unknown),
        TEST_FAKES(the_sum_of_a_plan_does_not_wrap),
        TEST_FAKES(a_limit_may_be_a_fraction),
        TEST_FAKES(a_fraction_follows_the_capacity),
        TEST_FAKES(a_plain_limit_ends_the_fraction),
        TEST_FAKES(a_fraction_samples_a_capacity_not_known),
        TEST_FAKES(a_fraction_of_the_unknown_is_refused),
        TEST_FAKES(a_fraction_outside_0_to_1_is_refused),
        TEST_FAKES(pressure_by_capacity_has_its_levels_at_80_and_95),
        TEST_FAKES(pressure_by_limit_has_the_same_levels),
        TEST_FAKES(the_worse_of_capacity_and_limit_is_the_pressure),
        TEST_FAKES(a_failing_allocation_is_an_emergency_until_one_succeeds),
        TEST_FAKES(the_text_report_splits_what_is_used),
        TEST_FAKES(a_split_that_does_not_add_up_does_not_wrap),
        TEST_FAKES(the_text_report_invents_no_capacity),
        TEST_FAKES(the_context_of_the_driver_is_accounted_for),
        TEST_FAKES(a_context_is_no_other_process_s),
        TEST_FAKES(an_unknown_context_is_not_shown),
        TEST_FAKES(a_context_over_what_is_used_does_not_wrap),
        TEST_FAKES(other_processes_are_listed),
    };
    return cmocka_run_group_tests_name("capacity", tests, NULL, NULL);
}
