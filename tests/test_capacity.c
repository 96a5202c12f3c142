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
    assert_true(memlord_headroom(t->lord, vulkan()) == INT64_MAX); /* of a type without a source */
    assert_int_equal(memlord_would_fit(t->lord, vulkan(), 1), -1);
    assert_int_equal(memlord_pressure_level(t->lord, vulkan()), MEMLORD_PRESSURE_UNKNOWN);
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

/* A source that is inside a sample of one cuda device until the gate opens. */
typedef struct slow_source {
    memlord *lord;
    test_gate gate;
    int32_t index; /* of that device */
    int left;      /* the source has returned */
    int calling, left_at_return;
} slow_source;

static int ask_slowly(void *user, memlord_device device, memlord_capacity *out) {
    slow_source *s = (slow_source *)user;
    if (device.index == s->index) test_gate_pass(&s->gate);
    out->total = 1000;
    __atomic_store_n(&s->left, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static void *sample_slowly(void *user) {
    slow_source *s = (slow_source *)user;
    memlord_capacity_sample(s->lord, cuda(s->index));
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
    slow_source s = {NULL, TEST_GATE, 0, 0, 0, 0};
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
    slow_source s = {NULL, TEST_GATE, 0, 0, 0, 0};
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

static void *set_the_source(void *user) {
    slow_source *s = (slow_source *)user;
    memlord_capacity_source_set(s->lord, MEMLORD_DEVICE_CUDA, ask_slowly, s);
    return NULL;
}

static void setting_a_source_waits_for_no_call_of_the_new_one(void **state) {
    test_case *t = (test_case *)*state;
    slow_source old = {NULL, TEST_GATE, 0, 0, 0, 0}, next = {NULL, TEST_GATE, 1, 0, 0, 0};
    pthread_t old_asker, next_asker, setter;
    old.lord = next.lord = t->lord;
    grow(t, cuda(0), 100);
    grow(t, cuda(1), 100);
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, ask_slowly, &old));
    assert_int_equal(pthread_create(&old_asker, NULL, sample_slowly, &old), 0);
    assert_true(test_gate_came(&old.gate, 1));
    assert_int_equal(pthread_create(&setter, NULL, set_the_source, &next), 0);
    while (!__atomic_load_n(&next.left, __ATOMIC_SEQ_CST)) { /* not yet set */
        memlord_result r = memlord_capacity_sample(t->lord, cuda(2));
        assert_true(r == MEMLORD_OK || r == MEMLORD_E_UNKNOWN); /* it is replaced during the call */
    }
    assert_int_equal(pthread_create(&next_asker, NULL, sample_slowly, &next), 0);
    assert_true(test_gate_came(&next.gate, 1));
    test_gate_open(&old.gate); /* the setter has waited for this call, and waits for no other */
    assert_int_equal(pthread_join(old_asker, NULL), 0);
    assert_int_equal(pthread_join(setter, NULL), 0);
    test_gate_open(&next.gate);
    assert_int_equal(pthread_join(next_asker, NULL), 0);
    assert_int_equal(capacity_of(t->lord, cuda(0)).known, 0); /* what the old source said */
    assert_int_equal(capacity_of(t->lord, cuda(1)).total, 1000);
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
    grow(t, cuda(0), 100); /* in the source's `used` from the next sample on */
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
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
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400); /* the limit leaves 500 */
    assert_ok(memlord_limit_set(t->lord, cuda(0), 550));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 350);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 0));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
}

static void reservations_come_off_both(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    test_capacity(t, 1000, 400);
    assert_ok(memlord_reserve(t->lord, cuda(0), 150, &ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 450);
    assert_ok(memlord_limit_set(t->lord, cuda(0), 500));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 350);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
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
    assert_true(memlord_headroom(t->lord, cuda(0)) == -305); /* the ledger itself holds 1300 */
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

static void a_plan_of_nothing_fits_and_one_that_is_none_is_unknown(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_block plan = block_of(cuda(0), 1);
    int64_t lacks = 77;
    test_capacity(t, 1000, 400);
    assert_int_equal(memlord_plan_fit(t->lord, NULL, 0, &lacks), 1);
    assert_int_equal(lacks, 0);
    lacks = 77;
    assert_int_equal(memlord_plan_fit(t->lord, NULL, 1, &lacks), -1);
    assert_int_equal(lacks, 0);
    lacks = 77;
    assert_int_equal(memlord_plan_fit(NULL, &plan, 1, &lacks), -1);
    assert_int_equal(lacks, 0);
}

static void a_plan_on_an_unknown_device_is_unknown(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block plan[2];
    int64_t lacks = 77;
    size_t seen;
    test_capacity(t, 1000, 400);
    seen = memlord_devices(t->lord, NULL, 0);
    plan[0] = block_of(cuda(0), 100);
    plan[1] = block_of(vulkan(), 1);
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

/* -- what was recorded since the sample -- */

static memlord_device pool_of_cuda(void) { return memlord_device_make(MEMLORD_DEVICE_OTHER, 0); }

static void a_host_that_asks_before_each_alloc_gets_what_there_is(void **state) {
    test_case *t = (test_case *)*state;
    int i, yes = 0;
    grow(t, cuda(0), 1);
    test_capacity(t, 1000, 1);
    for (i = 0; i < 30; i++) {
        if (memlord_would_fit(t->lord, cuda(0), 100) != 1) continue;
        grow(t, cuda(0), 100);
        yes++;
    }
    assert_int_equal(yes, 9);
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), 901);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 99);
    assert_int_equal(t->source.calls, 1);
}

static void a_plan_counts_what_was_recorded_since(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block plan = block_of(cuda(0), 500);
    int64_t lacks = 0;
    test_capacity(t, 1000, 0);
    grow(t, cuda(0), 900);
    assert_int_equal(memlord_plan_fit(t->lord, &plan, 1, &lacks), 0);
    assert_int_equal(lacks, 400);
}

static void frees_since_the_sample_give_room(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = grow(t, cuda(0), 300);
    test_capacity(t, 1000, 400);
    assert_ok(memlord_free(t->lord, cuda(0), key, NULL));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 900);
    grow(t, cuda(0), 50);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 850);
    assert_ok(memlord_arena_add(t->lord, cuda(0), 25, NULL));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 825);
    test_capacity(t, 1000, 175);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 825);
}

static void what_the_ledger_holds_is_in_use_whatever_a_source_says(void **state) {
    test_case *t = (test_case *)*state;
    grow(t, cuda(0), 700);
    test_capacity(t, 1000, 10);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 300);
}

static void all_who_read_a_capacity_say_the_same(void **state) {
    test_case *t = (test_case *)*state;
    char *text;
    test_capacity(t, 1000 * MIB, 100 * MIB);
    grow(t, cuda(0), 850 * MIB);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 50 * MIB);
    assert_int_equal(memlord_would_fit(t->lord, cuda(0), 50 * MIB + 1), 0);
    assert_int_equal(memlord_pressure_level(t->lord, cuda(0)), MEMLORD_PRESSURE_CRITICAL);
    text = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(text, "capacity[0].used"), 950 * MIB);
    assert_int_equal(json_u64(text, "capacity[0].free"), 50 * MIB);
    assert_int_equal(json_u64(text, "capacity[0].self"), 850 * MIB);
    assert_int_equal(json_u64(text, "capacity[0].others"), 100 * MIB);
    assert_int_equal(json_u64(text, "capacity[0].unaccounted"), 100 * MIB);
    free(text);
    text = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "1000 MiB      50 MiB     850 MiB"));
    assert_non_null(strstr(text, "cuda:0: total 1000 MiB = free 50 MiB + self 850 MiB "));
    free(text);
    text = report_of(t->lord, MEMLORD_FORMAT_PROMETHEUS);
    assert_non_null(strstr(text, "\nmemlord_capacity_used_bytes{device=\"cuda:0\"} 996147200\n"));
    free(text);
    assert_int_equal(capacity_of(t->lord, cuda(0)).used, 100 * MIB); /* the sample itself */
}

static void growth_since_the_sample_is_this_process_s(void **state) {
    test_case *t = (test_case *)*state;
    char *text;
    t->source.process = 300;
    test_capacity(t, 1000, 500);
    grow(t, cuda(0), 100);
    text = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(text, "capacity[0].used"), 600);
    assert_int_equal(json_u64(text, "capacity[0].process"), 400);
    assert_int_equal(json_u64(text, "capacity[0].others"), 200);
    free(text);
}

static void mapped_weights_of_five_times_the_ram_use_none(void **state) {
    test_case *t = (test_case *)*state;
    char *text;
    grow(t, mapped(), 2000);
    host_capacity(t, 1000, 300);
    grow(t, mapped(), 3000);
    assert_int_equal(memlord_headroom(t->lord, cpu()), 700);
    assert_int_equal(memlord_would_fit(t->lord, cpu(), 700), 1);
    assert_int_equal(memlord_pressure_level(t->lord, cpu()), MEMLORD_PRESSURE_NORMAL);
    grow(t, cpu(), 200);
    assert_int_equal(memlord_headroom(t->lord, mapped()), 500);
    text = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(text, "capacity[0].used"), 500);
    assert_int_equal(json_u64(text, "capacity[0].self"), 200);
    free(text);
}

static void a_block_out_of_a_pool_takes_no_room(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key;
    grow(t, cuda(0), 100);
    assert_ok(memlord_pool_set(t->lord, cuda(0), 600, UINT64_MAX));
    test_capacity(t, 1000, 650);
    key = grow(t, cuda(0), 400); /* out of the 500 that are idle there */
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 350);
    assert_ok(memlord_free(t->lord, cuda(0), key, NULL)); /* and back into it */
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 350);
    grow(t, cuda(0), 580); /* 80 more than the pool is known to hold */
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 270);
    assert_ok(memlord_pool_set(t->lord, cuda(0), 700, UINT64_MAX));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 250);
    assert_ok(memlord_pool_add(t->lord, cuda(0), -20)); /* a trim */
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 270);
    t->source.used = 60; /* a source that knows less than the pool */
    assert_ok(memlord_capacity_sample(t->lord, cuda(0)));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 320);
}

static void a_pool_that_is_a_device_counts_where_it_lives(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_device_share(t->lord, pool_of_cuda(), cuda(0)));
    assert_ok(memlord_pool_set(t->lord, pool_of_cuda(), 400, UINT64_MAX));
    test_capacity(t, 1000, 500);
    grow(t, pool_of_cuda(), 300);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
    assert_ok(memlord_pool_add(t->lord, pool_of_cuda(), 100));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    grow(t, cuda(0), 50);
    assert_int_equal(memlord_headroom(t->lord, pool_of_cuda()), 350);
}

static int say_and_fill_the_pool(void *user, memlord_device device, memlord_capacity *out) {
    out->total = 1000;
    out->used = 500;
    return memlord_pool_set((memlord *)user, device, 450, UINT64_MAX) != MEMLORD_OK;
}

static void a_source_may_say_what_the_pool_holds(void **state) {
    test_case *t = (test_case *)*state;
    grow(t, cuda(0), 100);
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, say_and_fill_the_pool,
                                          t->lord));
    assert_ok(memlord_capacity_sample(t->lord, cuda(0)));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
}

static void frees_on_the_cpu_give_no_room_until_the_next_sample(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = grow(t, cpu(), 200), later;
    host_capacity(t, 1000, 500);
    assert_ok(memlord_free(t->lord, cpu(), key, NULL));
    assert_int_equal(memlord_headroom(t->lord, cpu()), 500);
    later = grow(t, cpu(), 300);
    assert_ok(memlord_free(t->lord, cpu(), later, NULL));
    assert_int_equal(memlord_headroom(t->lord, cpu()), 200);
    key = grow(t, pinned(), 50);
    assert_int_equal(memlord_headroom(t->lord, cpu()), 150);
    assert_ok(memlord_free(t->lord, pinned(), key, NULL)); /* goes back to the system */
    assert_int_equal(memlord_headroom(t->lord, cpu()), 200);
    host_capacity(t, 1000, 320);
    assert_int_equal(memlord_headroom(t->lord, cpu()), 680);
}

/* The allocator below serves an alloc from what was freed before: a loop of both does not add up.
   The bound is a batch above the highest live bytes. */
static void blocks_that_come_and_go_on_the_cpu_do_not_add_up(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key;
    int i;
    int64_t left;
    key = grow(t, cpu(), 300 * MIB); /* a peak from before the sample is none of its growth */
    assert_ok(memlord_free(t->lord, cpu(), key, NULL));
    host_capacity(t, 1000 * MIB, 500 * MIB);
    for (i = 0; i < 5000; i++) {
        key = grow(t, cpu(), MIB);
        assert_ok(memlord_free(t->lord, cpu(), key, NULL));
    }
    left = memlord_headroom(t->lord, cpu());
    assert_true(left <= (int64_t)(499 * MIB));
    assert_true(left >= (int64_t)(499 * MIB - 2 * 65536)); /* this thread's, and the orphans' */
}

static void a_device_that_comes_to_share_brings_its_bytes(void **state) {
    test_case *t = (test_case *)*state;
    grow(t, cuda(0), 100);
    test_capacity(t, 1000, 100);
    host_capacity(t, 1000, 400);
    assert_ok(memlord_device_share(t->lord, cuda(0), cpu()));
    assert_int_equal(memlord_headroom(t->lord, cpu()), 500); /* the sample may be without them */
    grow(t, cuda(0), 30);
    grow(t, pinned(), 7);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 463);
    host_capacity(t, 1000, 437);
    assert_int_equal(memlord_headroom(t->lord, cpu()), 563);
}

static void a_reservation_comes_off_once(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    test_capacity(t, 1000, 400);
    assert_ok(memlord_reserve(t->lord, cuda(0), 150, &ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 450);
    grow(t, cuda(0), 100); /* off the ticket */
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 450);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
    test_capacity(t, 1000, 500);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
}

typedef struct busy_source {
    test_case *t;
    uint64_t drop; /* a block that it frees; 0: none */
} busy_source;

static int change_while_asked(void *user, memlord_device device, memlord_capacity *out) {
    busy_source *s = (busy_source *)user;
    out->total = 1000;
    out->used = 400;
    if (s->drop) return memlord_free(s->t->lord, device, s->drop, NULL) != MEMLORD_OK;
    return memlord_alloc(s->t->lord, device, 0x9000, 100, NULL) != MEMLORD_OK;
}

static void what_comes_while_a_source_runs_counts_as_since(void **state) {
    test_case *t = (test_case *)*state;
    busy_source s = {NULL, 0};
    s.t = t;
    grow(t, cuda(0), 200);
    assert_ok(
        memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, change_while_asked, &s));
    assert_ok(memlord_capacity_sample(t->lord, cuda(0)));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
    s.drop = 0x9000; /* the source may have seen it freed already */
    assert_ok(memlord_capacity_sample(t->lord, cuda(0)));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 600);
}

static void a_reset_changes_no_headroom(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key;
    test_capacity(t, 1000, 400);
    host_capacity(t, 1000, 400);
    grow(t, cuda(0), 100);
    key = grow(t, cpu(), 50);
    grow(t, cpu(), 20);
    assert_ok(memlord_free(t->lord, cpu(), key, NULL));
    memlord_reset(t->lord);
    memlord_peak_reset(t->lord, all());
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
    assert_int_equal(memlord_headroom(t->lord, cpu()), 530);
    grow(t, cuda(0), 10);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 490);
}

static void *hold_a_little(void *user) {
    test_case *t = (test_case *)user;
    static uint64_t next;
    uint64_t key = 0x100000 + 64 * __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
    return memlord_alloc(t->lord, cuda(0), key, 1000, NULL) ? t : NULL;
}

/* Far below a batch: nothing of it is published while the thread lives. */
static void what_a_thread_holds_back_counts(void **state) {
    test_case *t = (test_case *)*state;
    pthread_t threads[4];
    void *failed;
    int i;
    test_capacity(t, 10000, 400);
    for (i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hold_a_little, t), 0);
    for (i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 5600);
}

/* Allocs and samples at once: none is lost between the two. */
static void *sample_on_and_on(void *user) {
    pieces *p = (pieces *)user;
    while (!__atomic_load_n(&p->stop, __ATOMIC_RELAXED))
        memlord_capacity_sample(p->lord, memlord_device_cuda(0));
    return NULL;
}
static int say_what_is_live(void *user, memlord_device device, memlord_capacity *out) {
    pieces *p = (pieces *)user;
    out->total = (uint64_t)1 << 40;
    out->used = memlord_allocated(p->lord, device);
    return 0;
}
static void samples_in_between_lose_no_alloc(void **state) {
    test_case *t = (test_case *)*state;
    pthread_t thread;
    pieces p;
    uint64_t i, bad = 0;
    memset(&p, 0, sizeof p);
    p.lord = t->lord;
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, say_what_is_live, &p));
    assert_ok(memlord_capacity_sample(t->lord, cuda(0)));
    assert_int_equal(pthread_create(&thread, NULL, sample_on_and_on, &p), 0);
    for (i = 0; i < 20000; i++) {
        uint64_t key = grow(t, cuda(0), 1000 + i % 7);
        uint64_t left = (uint64_t)memlord_headroom(t->lord, cuda(0));
        bad += left + memlord_allocated(t->lord, cuda(0)) > (uint64_t)1 << 40;
        if (i % 2) assert_ok(memlord_free(t->lord, cuda(0), key, NULL));
    }
    __atomic_store_n(&p.stop, 1, __ATOMIC_RELAXED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(bad, 0);
}

/* -- readers sample -- */

#define POLL ((uint64_t)200 * 1000000) /* ns: the default interval */

static void the_capacity_of_the_cpu_is_known_to_who_asks(void **state) {
    memlord *lord = test_lord(state);
    memlord_block plan = block_of(cpu(), 1);
    int64_t lacks = 0;
    assert_int_equal(memlord_would_fit(lord, cpu(), (uint64_t)1 << 60), 0);
    assert_true(memlord_headroom(lord, cpu()) < (int64_t)1 << 60);
    assert_int_equal(memlord_plan_fit(lord, &plan, 1, &lacks), 1);
    assert_true(memlord_pressure_level(lord, cpu()) != MEMLORD_PRESSURE_UNKNOWN);
    assert_int_equal(capacity_of(lord, cpu()).known, 1);
    assert_int_equal(memlord_devices(lord, NULL, 0), 0); /* it needs no record */
}

static void every_reader_samples_what_nobody_has_sampled(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block plan = block_of(cuda(2), 601);
    char line[200];
    int64_t lacks = 0;
    t->source.total = 1000;
    t->source.used = 400;
    t->source.fail = 0;
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 600);
    assert_int_equal(memlord_would_fit(t->lord, cuda(1), 601), 0);
    assert_int_equal(memlord_plan_fit(t->lord, &plan, 1, &lacks), 0);
    assert_int_equal(lacks, 1);
    assert_int_equal(memlord_pressure_level(t->lord, cuda(3)), MEMLORD_PRESSURE_NORMAL);
    assert_ok(memlord_limit_set(t->lord, cuda(4), 0)); /* explain alone adds no device */
    (void)memlord_explain(t->lord, cuda(4), 601, line, sizeof line);
    assert_non_null(strstr(line, "601 B wanted, 1 B short: live 0 B, capacity 1000 B with 40 %"));
    assert_int_equal(t->source.calls, 5);
}

static void a_reader_samples_again_after_three_intervals(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 400);
    t->source.used = 500;
    t->now += 3 * POLL - 1;
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 600);
    t->now += 1;
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
    assert_int_equal(t->source.calls, 2);
}

static void a_source_that_fails_is_asked_once_an_interval(void **state) {
    test_case *t = (test_case *)*state;
    int i;
    for (i = 0; i < 5; i++) assert_int_equal(memlord_would_fit(t->lord, cuda(0), 1), -1);
    assert_true(memlord_headroom(t->lord, cuda(0)) == INT64_MAX); /* still unknown */
    assert_int_equal(t->source.calls, 1);
    t->now += POLL;
    for (i = 0; i < 5; i++) assert_int_equal(memlord_would_fit(t->lord, cuda(0), 1), -1);
    assert_int_equal(t->source.calls, 2);
}

static void a_clock_at_0_does_not_make_readers_sample_each_time(void **state) {
    test_case *t = (test_case *)*state;
    t->now = 0;
    test_capacity(t, 1000, 400);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 600);
    assert_int_equal(t->source.calls, 1);
}

static void a_reader_of_a_host_that_defers_asks_nobody(void **state) {
    test_case *t = (test_case *)*state;
    char *text;
    t->source.total = 1000;
    t->source.fail = 0;
    grow(t, cuda(0), 1);
    assert_int_equal(memlord_would_fit(t->lord, cuda(0), 1), -1);
    assert_int_equal(memlord_would_fit(t->lord, cuda(1), 1), -1);
    text = report_of(t->lord, MEMLORD_FORMAT_JSON);
    free(text);
    assert_int_equal(t->source.calls, 0);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(memlord_would_fit(t->lord, cuda(0), 1), 1);
    assert_int_equal(t->source.calls, 1);
}

/* Reads in code of the host that MemLord calls: the cpu's capacity is not known, and stays so. */
typedef struct inner_reader {
    test_case *t;
    int runs;
} inner_reader;

static void read_inside(inner_reader *r) {
    if (!r->t->lord) return; /* its create allocates, too */
    r->runs++;
    (void)memlord_would_fit(r->t->lord, cpu(), 1);
    (void)memlord_headroom(r->t->lord, cpu());
    (void)memlord_pressure_level(r->t->lord, cpu());
    (void)memlord_would_fit(r->t->lord, cuda(9), 1);
}
static int read_in_a_source(void *user, memlord_device device, memlord_capacity *out) {
    (void)device;
    read_inside((inner_reader *)user);
    out->total = 1000;
    return 0;
}
static int read_in_a_try(void *user, uint64_t bytes, uint64_t *storage) {
    (void)bytes;
    read_inside((inner_reader *)user);
    *storage = 0x7000;
    return 0;
}
static int read_in_a_fence(void *user) {
    read_inside((inner_reader *)user);
    return 1;
}
static void read_in_a_logger(void *user, int level, const char *text) {
    (void)level;
    (void)text;
    read_inside((inner_reader *)user);
}
static void read_in_a_callback(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    (void)lord;
    (void)event;
    read_inside((inner_reader *)gc->user);
}

static void a_reader_inside_host_code_asks_nobody(void **state) {
    test_case *t = (test_case *)*state;
    inner_reader r = {NULL, 0};
    memlord_fence fence = {read_in_a_fence, NULL, 0, NULL};
    uint64_t storage, key = grow(t, cuda(0), 1);
    size_t seen;
    r.t = t;
    fence.user = &r;
    t->gc.act = read_in_a_callback;
    t->gc.user = &r;
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_ok(memlord_alloc_retry(t->lord, cuda(0), 1, read_in_a_try, &r, NULL, &storage, NULL));
    assert_ok(memlord_free_deferred(t->lord, cuda(0), key, fence, NULL));
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, read_in_a_source, &r));
    assert_ok(memlord_capacity_sample(t->lord, cuda(0)));
    assert_int_equal(r.runs, 4);
    assert_int_equal(capacity_of(t->lord, cpu()).known, 0);
    seen = memlord_devices(t->lord, NULL, 0);
    assert_int_equal(seen, 1); /* cuda:9 is not made */
    assert_int_equal(memlord_would_fit(t->lord, cpu(), 1), 1);
}

static void a_reader_inside_a_logger_asks_nobody(void **state) {
    test_case *t = (test_case *)*state;
    inner_reader r = {NULL, 0};
    const memlord_logger logger = {read_in_a_logger, &r}, none = {NULL, NULL};
    r.t = t;
    assert_ok(memlord_logger_set(t->lord, &logger));
    memlord_reset(t->lord); /* logs one line */
    assert_int_equal(r.runs, 1);
    assert_ok(memlord_logger_set(t->lord, &none));
    assert_int_equal(capacity_of(t->lord, cpu()).known, 0);
    assert_int_equal(memlord_devices(t->lord, NULL, 0), 0);
    assert_int_equal(memlord_would_fit(t->lord, cpu(), 1), 1);
}

static inner_reader in_the_allocator;
static void *read_and_alloc(void *user, size_t size) {
    read_inside(&in_the_allocator);
    return test_heap_alloc(user, size);
}

static void a_reader_in_the_ledgers_allocator_asks_nobody(void **state) {
    test_case *t = (test_case *)*state;
    memlord_desc desc = test_desc(&t->heap, 0);
    memlord *outer = t->lord;
    desc.allocator.alloc = read_and_alloc;
    in_the_allocator.t = t;
    t->lord = NULL;
    assert_ok(memlord_create(&desc, &t->lord));
    grow(t, vulkan(), 1);
    assert_ok(memlord_events_start(t->lord, 4096)); /* more than a region has left */
    assert_true(in_the_allocator.runs > 0);
    assert_int_equal(capacity_of(t->lord, cpu()).known, 0);
    assert_int_equal(memlord_devices(t->lord, NULL, 0), 1);
    memlord_destroy(t->lord);
    t->lord = outer;
}

static void a_readers_sample_runs_no_band(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_band bands[] = {{0, 50, MEMLORD_METRIC_ALLOCATED, 1000, 0, MEMLORD_COMBINE_MAX},
                                  {50, 101, MEMLORD_METRIC_ALLOCATED, 10, 0, MEMLORD_COMBINE_MAX}};
    assert_ok(memlord_strategy_set(t->lord, cuda(0), bands, 2));
    test_capacity(t, 1000, 100);
    grow(t, cuda(0), 100);
    t->source.used = 700;
    t->now += 3 * POLL;
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 300);
    assert_int_equal(t->source.calls, 2);
    assert_int_equal(t->gc.runs, 0);
    grow(t, cuda(0), 1); /* a recorded call looks at the bands */
    assert_int_equal(t->gc.runs, 1);
}

/* One figure for both. */
static void bands_see_what_headroom_sees(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_band bands[] = {{0, 50, MEMLORD_METRIC_ALLOCATED, 900, 0, MEMLORD_COMBINE_MAX},
                                  {50, 101, MEMLORD_METRIC_ALLOCATED, 10, 0, MEMLORD_COMBINE_MAX}};
    uint64_t key;
    assert_ok(memlord_strategy_set(t->lord, cuda(0), bands, 2));
    test_capacity(t, 1000, 100);
    key = grow(t, cuda(0), 399);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 501);
    assert_int_equal(t->gc.runs, 0);
    grow(t, cuda(0), 1);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
    assert_int_equal(t->gc.runs, 1);
    assert_true(t->gc.last.used_percent == 50);
    assert_ok(memlord_free(t->lord, cuda(0), key, NULL));
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_true(t->gc.last.used_percent == 10.1);
    assert_ok(memlord_pool_set(t->lord, cuda(0), 301, 0)); /* the pool kept the block */
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_true(t->gc.last.used_percent == 40.1);
    grow(t, cuda(0), 5000); /* more than the device has */
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_true(t->gc.last.used_percent == 510.1);
    assert_int_equal(t->gc.runs, 5);
}

/* The cpu's memory is not in use before it is touched. A free may leave it with the allocator. */
static void bands_of_the_cpu_take_the_sample_at_its_word(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_band band = band_of(50, 101, MEMLORD_METRIC_ALLOCATED, 1, 0);
    uint64_t key;
    assert_ok(
        memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CPU, test_source_ask, &t->source));
    assert_ok(memlord_gc_callback_add(t->lord, cpu(), 0, test_gc_run, &t->gc));
    assert_ok(memlord_strategy_set(t->lord, all(), &band, 1));
    t->source.fail = 0;
    t->source.total = 1000 * MIB;
    t->source.used = 100 * MIB;
    grow(t, cpu(), 900 * MIB);
    assert_ok(memlord_capacity_sample(t->lord, cpu()));
    key = grow(t, cpu(), 300 * MIB);
    assert_int_equal(memlord_headroom(t->lord, cpu()), -(int64_t)(200 * MIB));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_free(t->lord, cpu(), key, NULL));
    assert_int_equal(t->gc.runs, 0);
    grow(t, cpu(), 400 * MIB); /* 300 of these may be the freed ones */
    assert_int_equal(t->gc.runs, 1);
    assert_in_range((int)t->gc.last.used_percent, 50, 80);
}

static void while_a_poller_runs_readers_leave_it_to_that(void **state) {
    test_case *t = (test_case *)*state;
    memlord_desc desc = test_desc(&t->heap, 0);
    memlord *outer = t->lord;
    int i;
    desc.clock.fn = test_now;
    desc.clock.user = &t->now;
    t->lord = NULL;
    assert_ok(memlord_create(&desc, &t->lord));
    t->source.total = 1000;
    t->source.fail = 0;
    assert_ok(
        memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, test_source_ask, &t->source));
    grow(t, cuda(0), 1);
    assert_ok(memlord_poller_start(t->lord, 3600000));
    while (!capacity_of(t->lord, cuda(0)).known) sched_yield();
    __atomic_add_fetch(&t->now, 10 * (uint64_t)3600000 * 1000000, __ATOMIC_RELAXED);
    for (i = 0; i < 3; i++) assert_int_equal(memlord_headroom(t->lord, cuda(0)), 999);
    assert_int_equal(__atomic_load_n(&t->source.calls, __ATOMIC_RELAXED), 1);
    assert_ok(memlord_poller_stop(t->lord));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 999);
    assert_int_equal(t->source.calls, 2);
    memlord_destroy(t->lord);
    t->lord = outer;
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

static void the_smallest_fraction_allows_a_byte(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 0);
    assert_ok(memlord_limit_set_fraction(t->lord, cuda(0), 1e-9));
    assert_int_equal(stats_of(t->lord, cuda(0)).limit, 1);
}

static void far_more_than_the_capacity_is_still_a_number(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t i;
    char line[200], *text;
    test_capacity(t, 1, 0);
    for (i = 1; i <= 40; i++)
        assert_ok(memlord_alloc(t->lord, cuda(0), i << 49, (uint64_t)1 << 48, NULL));
    (void)memlord_explain(t->lord, cuda(0), 0, line, sizeof line);
    assert_non_null(strstr(line, "capacity 1 B with 900000000000000000 % used"));
    text = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "nearly full, cuda:0: 0 B of 1 B free"));
    free(text);
}

static void what_is_in_no_other_memory_is_not_shared(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_device_share(NULL, cuda(0), cuda(1)));
    assert_int_equal(memlord_device_share(lord, cuda(0), all()), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_device_share(lord, all(), cuda(0)), MEMLORD_E_DEVICE);
    assert_ok(memlord_device_share(lord, pinned(), cpu()));
    assert_int_equal(memlord_device_share(lord, pinned(), cuda(0)), MEMLORD_E_STATE);
    assert_ok(memlord_device_share(lord, pinned(), pinned()));
    assert_int_equal(memlord_device_share(lord, cuda(0), pinned()), MEMLORD_E_STATE);
    assert_ok(memlord_limit_set(lord, cpu(), 1000));
    assert_true(memlord_headroom(lord, cuda(0)) == INT64_MAX); /* it is at its own memory */
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
    const double bad[] = {0, 1.5, 1.0000001, -0.5, -1, 1e-320, NAN, INFINITY, -INFINITY};
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
    assert_int_equal(memlord_pressure_level(t->lord, cuda(1)), MEMLORD_PRESSURE_NORMAL);
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
    grow(t, cuda(0), 53 * MIB);
    test_capacity(t, 1000 * MIB, 610 * MIB);
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
    assert_null(strstr(strchr(after, '\n'), "capacity")); /* the first line has the program's name */
    free(before);
    free(after);
}

static void the_context_of_the_driver_is_accounted_for(void **state) {
    test_case *t = (test_case *)*state;
    char *text;
    t->source.process = 210 * MIB;
    t->source.context = 100 * MIB;
    grow(t, cuda(0), 53 * MIB);
    test_capacity(t, 1000 * MIB, 610 * MIB);
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
    grow(t, cuda(0), 53 * MIB);
    test_capacity(t, 1000 * MIB, 610 * MIB);
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
    assert_non_null(strstr(text, " + unaccounted 610 MiB (others hold 610 MiB)\n"));
    free(text);
    t->source.process = 100 * MIB;
    test_capacity(t, 1000 * MIB, 610 * MIB);
    text = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, " + unaccounted 610 MiB (others hold 510 MiB)\n"));
    free(text);
    t->source.process = 0;
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

/* -- random histories of devices, pools, limits and tickets, against a model -- */

enum { ROOM_DEVICES = 6, ROOM_PHYS = 3, ROOM_BLOCKS = 64, ROOM_TICKETS = 12, ROOM_ATTACHED = 8 };

typedef struct room_phys {
    memlord_device device; /* that its source is asked about */
    uint64_t total, used;  /* what the source says; total 0: it fails */
    uint64_t limit, reserved;
    double fraction;
    memlord_capacity sample;
} room_phys;
typedef struct room_device {
    memlord_device device;
    int phys;
    uint64_t live, pool, mark, highest; /* held at the sample; the most live since */
} room_device;
typedef struct room {
    memlord *lord;
    uint64_t seed;
    room_phys phys[ROOM_PHYS];
    room_device devices[ROOM_DEVICES];
    struct {
        int device, live;
        uint64_t bytes;
    } block[ROOM_BLOCKS];
    struct {
        memlord_ticket ticket;
        int phys;
        uint64_t left;
    } tickets[ROOM_TICKETS]; /* the latest last; an alloc draws on the last 8 */
    size_t open;
} room;

static uint64_t room_random(room *m, uint64_t below) { return test_random(&m->seed) % below; }

static int room_ask(void *user, memlord_device device, memlord_capacity *out) {
    const room *m = (const room *)user;
    int i;
    for (i = 0; i < ROOM_PHYS; i++)
        if (m->phys[i].device.type == device.type && m->phys[i].device.index == device.index) {
            out->total = m->phys[i].total;
            out->used = m->phys[i].used;
        }
    return !out->total;
}

static uint64_t room_held(const room_device *d) { return d->pool > d->live ? d->pool : d->live; }

/* What a device has, as far as it counts against its memory. Frees on the cpu give no room. */
static uint64_t room_held_since(const room_device *d) {
    uint64_t held = room_held(d);
    if (d->device.type != MEMLORD_DEVICE_CPU) return held;
    if (held == d->live) held = d->highest;
    return held > d->mark ? held : d->mark;
}

/* The bytes in use at a memory; *held: of the ledger, *live: its live ones, mapped files too. */
static int64_t room_used(const room *m, int phys, int64_t *held, int64_t *live) {
    const room_phys *p = &m->phys[phys];
    int64_t used = p->sample.known ? (int64_t)p->sample.used : 0;
    int i;
    *held = *live = 0;
    for (i = 0; i < ROOM_DEVICES; i++) {
        const room_device *d = &m->devices[i];
        if (d->phys != phys) continue;
        *live += (int64_t)d->live;
        if (d->device.type == MEMLORD_DEVICE_MAPPED) continue;
        *held += (int64_t)room_held(d);
        used += (int64_t)room_held_since(d) - (int64_t)d->mark;
    }
    return used > *held ? used : *held;
}

static int room_level(int64_t used, int64_t total) {
    return used * 100 >= total * 95 ? MEMLORD_PRESSURE_CRITICAL
           : used * 100 >= total * 80 ? MEMLORD_PRESSURE_WARNING
                                      : MEMLORD_PRESSURE_NORMAL;
}

/* All that is said of a memory, through any device of it. */
static void room_check(room *m, const room_device *d) {
    const room_phys *p = &m->phys[d->phys];
    int64_t held, live, used = room_used(m, d->phys, &held, &live), left = INT64_MAX, by;
    int level = MEMLORD_PRESSURE_UNKNOWN, other;
    memlord_block plan;
    if (p->limit) left = (int64_t)p->limit - live - (int64_t)p->reserved;
    if (p->sample.known) {
        by = (int64_t)p->sample.total - used - (int64_t)p->reserved;
        if (by < left) left = by;
        level = room_level(held + (int64_t)p->reserved > used ? held + (int64_t)p->reserved : used,
                           (int64_t)p->sample.total);
    }
    if (p->limit) {
        other = room_level(live + (int64_t)p->reserved, (int64_t)p->limit);
        if (other > level) level = other;
    }
    assert_true(memlord_headroom(m->lord, d->device) == left);
    assert_int_equal(memlord_pressure_level(m->lord, d->device), level);
    assert_int_equal(stats_of(m->lord, d->device).held, p->reserved);
    memset(&plan, 0, sizeof plan);
    plan.device = d->device;
    plan.bytes = left > 0 && left < INT64_MAX ? (uint64_t)left : 0;
    if (left == INT64_MAX) {
        assert_int_equal(memlord_would_fit(m->lord, d->device, 1), -1);
        assert_int_equal(memlord_plan_fit(m->lord, &plan, 1, NULL), -1);
        return;
    }
    assert_int_equal(memlord_would_fit(m->lord, d->device, plan.bytes), left >= 0);
    assert_int_equal(memlord_would_fit(m->lord, d->device, plan.bytes + 1), 0);
    assert_int_equal(memlord_plan_fit(m->lord, &plan, 1, &by), left >= 0);
    assert_true(by == (int64_t)plan.bytes - left);
}

static void room_grew(room_device *d) {
    if (d->live > d->highest) d->highest = d->live;
}
/* An alloc came off the tickets, the earliest first. */
static void room_draw(room *m, int phys, uint64_t bytes) {
    size_t i = m->open > ROOM_ATTACHED ? m->open - ROOM_ATTACHED : 0;
    for (; i < m->open && bytes; i++) {
        uint64_t part = m->tickets[i].left < bytes ? m->tickets[i].left : bytes;
        if (m->tickets[i].phys != phys) continue;
        m->tickets[i].left -= part;
        m->phys[phys].reserved -= part;
        bytes -= part;
    }
}
static void room_block(room *m) {
    uint64_t i = room_random(m, ROOM_BLOCKS), key = (i + 1) * 64;
    int device = (int)room_random(m, ROOM_DEVICES);
    uint64_t bytes = room_random(m, 3000);
    room_device *d;
    if (m->block[i].live) {
        d = &m->devices[m->block[i].device];
        d->live -= m->block[i].bytes;
        m->block[i].live = 0;
        assert_ok(memlord_free(m->lord, d->device, key, NULL));
        return;
    }
    d = &m->devices[device];
    m->block[i].device = device;
    m->block[i].bytes = bytes;
    m->block[i].live = 1;
    d->live += bytes;
    room_grew(d);
    room_draw(m, d->phys, bytes);
    assert_ok(memlord_alloc(m->lord, d->device, key, bytes, NULL));
}
/* What the thread's tickets cover of a request. */
static uint64_t room_covered(const room *m, int phys, uint64_t bytes) {
    size_t i = m->open > ROOM_ATTACHED ? m->open - ROOM_ATTACHED : 0;
    uint64_t covered = 0;
    for (; i < m->open; i++)
        if (m->tickets[i].phys == phys) covered += m->tickets[i].left;
    return covered < bytes ? covered : bytes;
}
static int room_try(void *user, uint64_t bytes, uint64_t *storage) {
    (void)bytes;
    *storage = *(uint64_t *)user;
    return 0;
}
static void room_request(room *m) {
    uint64_t i = room_random(m, ROOM_BLOCKS), key = (i + 1) * 64, bytes, covered, storage;
    int device = (int)room_random(m, ROOM_DEVICES);
    room_device *d = &m->devices[device];
    room_phys *p = &m->phys[d->phys];
    int64_t held, live;
    memlord_result r;
    if (m->block[i].live) return;
    (void)room_used(m, d->phys, &held, &live);
    bytes = room_random(m, 6000);
    covered = room_covered(m, d->phys, bytes);
    r = memlord_alloc_retry(m->lord, d->device, bytes, room_try, &key, NULL, &storage, NULL);
    if (p->limit && covered < bytes && (uint64_t)live + p->reserved + bytes - covered > p->limit) {
        assert_int_equal(r, MEMLORD_E_LIMIT);
        return;
    }
    assert_ok(r);
    m->block[i].device = device;
    m->block[i].bytes = bytes;
    m->block[i].live = 1;
    d->live += bytes;
    room_grew(d);
    room_draw(m, d->phys, bytes);
}
static void room_reserve(room *m) {
    room_device *d = &m->devices[room_random(m, ROOM_DEVICES)];
    room_phys *p = &m->phys[d->phys];
    int64_t held, live;
    uint64_t bytes = room_random(m, 4000);
    memlord_ticket ticket;
    memlord_result r;
    if (m->open == ROOM_TICKETS) return;
    (void)room_used(m, d->phys, &held, &live);
    if (p->limit && room_random(m, 2)) /* to the byte */
        bytes = p->limit > (uint64_t)live + p->reserved
                    ? p->limit - (uint64_t)live - p->reserved + room_random(m, 2)
                    : 1;
    r = memlord_reserve(m->lord, d->device, bytes, &ticket);
    if (p->limit && (uint64_t)live + p->reserved + bytes > p->limit) {
        assert_int_equal(r, MEMLORD_E_LIMIT);
        return;
    }
    assert_ok(r);
    p->reserved += bytes;
    m->tickets[m->open].ticket = ticket;
    m->tickets[m->open].phys = d->phys;
    m->tickets[m->open++].left = bytes;
}
static void room_commit(room *m) {
    size_t i = m->open ? (size_t)room_random(m, m->open) : 0;
    if (!m->open) return;
    if (m->open > ROOM_ATTACHED) i = 0; /* which of more are attached goes by when they closed */
    assert_ok(memlord_reserve_commit(m->lord, m->tickets[i].ticket));
    assert_int_equal(memlord_reserve_commit(m->lord, m->tickets[i].ticket), MEMLORD_E_UNKNOWN);
    m->phys[m->tickets[i].phys].reserved -= m->tickets[i].left;
    memmove(&m->tickets[i], &m->tickets[i + 1], (--m->open - i) * sizeof *m->tickets);
}

static void room_limit_follows(room_phys *p) {
    if (p->fraction > 0 && p->sample.known) p->limit = (uint64_t)(p->fraction * (double)p->total);
}
static void room_sample(room *m) {
    int phys = (int)room_random(m, ROOM_PHYS), i;
    room_phys *p = &m->phys[phys];
    p->total = room_random(m, 5) ? 40000 + room_random(m, 60000) : 0;
    p->used = p->total ? room_random(m, p->total + 1) : 0;
    assert_int_equal(memlord_capacity_sample(m->lord, p->device),
                     p->total ? MEMLORD_OK : MEMLORD_E_UNKNOWN);
    p->sample.known = p->total != 0;
    p->sample.total = p->total;
    p->sample.used = p->used;
    for (i = 0; i < ROOM_DEVICES && p->total; i++) {
        room_device *d = &m->devices[i];
        if (d->phys != phys) continue;
        d->mark = room_held(d);
        d->highest = d->live;
    }
    room_limit_follows(p);
}
static void room_limit(room *m) {
    room_phys *p = &m->phys[room_random(m, ROOM_PHYS)];
    p->fraction = p->sample.known && room_random(m, 3) == 0 ? (double)(1 + room_random(m, 8)) / 8 : 0;
    p->limit = room_random(m, 3) ? 10000 + room_random(m, 80000) : 0;
    if (p->fraction > 0) assert_ok(memlord_limit_set_fraction(m->lord, p->device, p->fraction));
    else assert_ok(memlord_limit_set(m->lord, p->device, p->limit));
    room_limit_follows(p);
}
static void room_pool(room *m) {
    room_device *d = &m->devices[room_random(m, ROOM_DEVICES)];
    d->pool = room_random(m, 2) ? d->live + room_random(m, 4000) : 0;
    assert_ok(memlord_pool_set(m->lord, d->device, d->pool, 0));
}

static void room_step(room *m) {
    uint64_t what = room_random(m, 32);
    if (what < 20) room_block(m);
    else if (what < 23) room_reserve(m);
    else if (what < 26) room_commit(m);
    else if (what < 28) room_pool(m);
    else if (what < 30) room_sample(m);
    else if (what < 31) room_limit(m);
    else room_request(m);
}

/* Two devices share the memory of one of them; cpu, pinned and mapped that of the host. */
static void room_open(room *m) {
    const memlord_device devices[ROOM_DEVICES] = {
        cpu(), memlord_device_make(MEMLORD_DEVICE_PINNED, 0),
        memlord_device_make(MEMLORD_DEVICE_MAPPED, 0), cuda(0), cuda(1), cuda(2)};
    static const int phys[ROOM_DEVICES] = {0, 0, 0, 1, 1, 2};
    int i;
    for (i = 0; i < ROOM_DEVICES; i++) {
        m->devices[i].device = devices[i];
        m->devices[i].phys = phys[i];
        assert_ok(memlord_arena_add(m->lord, devices[i], 0, NULL));
    }
    m->phys[0].device = cpu();
    m->phys[1].device = cuda(0);
    m->phys[2].device = cuda(2);
    assert_ok(memlord_capacity_source_set(m->lord, MEMLORD_DEVICE_CPU, room_ask, m));
    assert_ok(memlord_capacity_source_set(m->lord, MEMLORD_DEVICE_CUDA, room_ask, m));
    assert_ok(memlord_device_share(m->lord, cuda(1), cuda(0)));
    for (i = 0; i < ROOM_PHYS; i++)
        assert_int_equal(memlord_capacity_sample(m->lord, m->phys[i].device), MEMLORD_E_UNKNOWN);
}

static void random_histories_leave_the_room_that_is_documented(void **state) {
    static room m;
    uint64_t seed = test_env("MEMLORD_TEST_SEED", 20261124), i;
    memset(&m, 0, sizeof m);
    m.lord = test_lord(state);
    m.seed = seed;
    print_message("# seed %llu\n", (unsigned long long)seed);
    room_open(&m);
    for (i = 0; i < 6000; i++) {
        room_step(&m);
        room_check(&m, &m.devices[room_random(&m, ROOM_DEVICES)]);
    }
}

static int setup_room(void **state) {
    return test_open_fakes(state, MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_EXACT |
                                      MEMLORD_FLAG_NO_STRATEGY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_FAKES(a_sample_is_read_as_it_was_said),
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
        TEST_FAKES(setting_a_source_waits_for_no_call_of_the_new_one),
        TEST_FAKES(a_source_may_take_itself_away),
        TEST_FAKES(nobody_reads_half_a_sample),
        TEST_FAKES(cpu_pinned_and_mapped_are_one_physical_device),
        TEST_FAKES(a_shared_device_is_in_the_others_memory),
        TEST_FAKES(sharing_with_itself_undoes_it),
        TEST_FAKES(what_the_old_source_said_is_forgotten_while_shared_too),
        TEST_FAKES(sharing_makes_no_chains),
        TEST_FAKES(far_more_than_the_capacity_is_still_a_number),
        TEST_FAKES(what_is_in_no_other_memory_is_not_shared),
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
        TEST_FAKES(a_plan_of_nothing_fits_and_one_that_is_none_is_unknown),
        TEST_FAKES(a_plan_that_cannot_fit_does_not_whatever_else_is_unknown),
        TEST_FAKES(the_sum_of_a_plan_does_not_wrap),
        TEST_FAKES(a_host_that_asks_before_each_alloc_gets_what_there_is),
        TEST_FAKES(a_plan_counts_what_was_recorded_since),
        TEST_FAKES(frees_since_the_sample_give_room),
        TEST_FAKES(what_the_ledger_holds_is_in_use_whatever_a_source_says),
        TEST_FAKES(all_who_read_a_capacity_say_the_same),
        TEST_FAKES(growth_since_the_sample_is_this_process_s),
        TEST_FAKES(mapped_weights_of_five_times_the_ram_use_none),
        TEST_FAKES(a_block_out_of_a_pool_takes_no_room),
        TEST_FAKES(a_pool_that_is_a_device_counts_where_it_lives),
        TEST_FAKES(a_source_may_say_what_the_pool_holds),
        TEST_FAKES(frees_on_the_cpu_give_no_room_until_the_next_sample),
        TEST_FAKES(blocks_that_come_and_go_on_the_cpu_do_not_add_up),
        TEST_FAKES(a_device_that_comes_to_share_brings_its_bytes),
        TEST_FAKES(a_reservation_comes_off_once),
        TEST_FAKES(what_comes_while_a_source_runs_counts_as_since),
        TEST_FAKES(a_reset_changes_no_headroom),
        TEST_FAKES(what_a_thread_holds_back_counts),
        TEST_FAKES(samples_in_between_lose_no_alloc),
        TEST_FAKES(the_capacity_of_the_cpu_is_known_to_who_asks),
        TEST_FAKES(every_reader_samples_what_nobody_has_sampled),
        TEST_FAKES(a_reader_samples_again_after_three_intervals),
        TEST_FAKES(a_source_that_fails_is_asked_once_an_interval),
        TEST_FAKES(a_clock_at_0_does_not_make_readers_sample_each_time),
        cmocka_unit_test_setup_teardown(a_reader_of_a_host_that_defers_asks_nobody,
                                        test_setup_defer, test_teardown),
        TEST_FAKES(a_reader_inside_host_code_asks_nobody),
        TEST_FAKES(a_reader_inside_a_logger_asks_nobody),
        TEST_FAKES(a_reader_in_the_ledgers_allocator_asks_nobody),
        TEST_FAKES(a_readers_sample_runs_no_band),
        TEST_FAKES(bands_see_what_headroom_sees),
        TEST_FAKES(bands_of_the_cpu_take_the_sample_at_its_word),
        TEST_FAKES(while_a_poller_runs_readers_leave_it_to_that),
        TEST_FAKES(a_limit_may_be_a_fraction),
        TEST_FAKES(a_fraction_follows_the_capacity),
        TEST_FAKES(the_smallest_fraction_allows_a_byte),
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
        cmocka_unit_test_setup_teardown(random_histories_leave_the_room_that_is_documented, setup_room,
                                        test_teardown),
    };
    return cmocka_run_group_tests_name("capacity", tests, NULL, NULL);
}
