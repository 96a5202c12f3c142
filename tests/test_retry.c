/* Out of memory: attempts, the pauses between them, what is done about it meanwhile, and what
   is said when nothing helped. No test waits in earnest but where it says so. */
#include "support.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "json.h"

/* -- an allocation that does as it is told, a sleep that is none, and a trace of all -- */

typedef struct stage {
    test_case *t;
    char trace[256];     /* A: attempt, F: a fence is asked, G: collection, S: sleep */
    const char *answers; /* of the attempts: + done, 0 try again, - give up; the last repeats */
    int calls;
    uint64_t storage;    /* what an attempt makes */
    uint64_t bytes;      /* asked for last */
    uint64_t made_early; /* what a failing attempt leaves in *storage */
    uint64_t room;       /* with it an attempt works once allocated <= room */
    int with_room;
    uint32_t slept[64];
    int sleeps;
    uint64_t free_in_sleep, free_in_try, free_in_gc; /* a storage on cuda:0, once */
    int fence_answer, fence_drops;
} stage;

static void note(stage *s, char what) {
    size_t n = strlen(s->trace);
    if (n + 1 < sizeof s->trace && (!n || s->trace[n - 1] != what)) s->trace[n] = what;
}

static void free_once(stage *s, uint64_t *storage) {
    if (*storage) (void)memlord_free(s->t->lord, memlord_device_cuda(0), *storage, NULL);
    *storage = 0;
}

static int attempt(void *user, uint64_t bytes, uint64_t *storage) {
    stage *s = (stage *)user;
    char answer;
    note(s, 'A');
    __atomic_add_fetch(&s->calls, 1, __ATOMIC_RELEASE);
    s->bytes = bytes;
    free_once(s, &s->free_in_try);
    answer = s->answers && *s->answers ? *s->answers : '0';
    if (s->answers && s->answers[0] && s->answers[1]) s->answers++;
    if (s->with_room)
        answer = memlord_allocated(s->t->lord, memlord_device_cuda(0)) <= s->room ? '+' : '0';
    if (answer == '+') {
        *storage = s->storage;
        return 0;
    }
    if (s->made_early) *storage = s->made_early;
    return answer == '-' ? -1 : 1;
}

static void sleep_not(void *user, uint32_t ms) {
    stage *s = (stage *)user;
    note(s, 'S');
    if (s->sleeps < 64) s->slept[s->sleeps] = ms;
    s->sleeps++;
    free_once(s, &s->free_in_sleep);
}

static int ask_fence(void *user) {
    stage *s = (stage *)user;
    note(s, 'F');
    return s->fence_answer;
}

static void drop_fence(void *user) { ((stage *)user)->fence_drops++; }

static void collect(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    stage *s = (stage *)gc->user;
    (void)lord;
    (void)event;
    note(s, 'G');
    free_once(s, &s->free_in_gc);
}

static stage the_stage;

static stage *stage_of(void **state, const char *answers) {
    stage *s = &the_stage;
    memset(s, 0, sizeof *s);
    s->t = (test_case *)*state;
    s->answers = answers;
    s->storage = 0x5000;
    s->t->gc.act = collect;
    s->t->gc.user = s;
    return s;
}

static memlord_retry policy_of(stage *s, uint32_t max_retries) {
    memlord_retry policy;
    memset(&policy, 0, sizeof policy);
    policy.max_retries = max_retries;
    policy.initial_ms = 50;
    policy.max_ms = 2000;
    policy.multiplier = 1.5;
    policy.sleep_ms = sleep_not;
    policy.user = s;
    return policy;
}

/* A request on cuda:0; answers what alloc_retry did and leaves *storage for a look. */
static uint64_t got;
static memlord_result request(stage *s, uint64_t bytes, uint32_t max_retries) {
    memlord_retry policy = policy_of(s, max_retries);
    got = 0xdead;
    return memlord_alloc_retry(s->t->lord, cuda(0), bytes, attempt, s, &policy, &got, NULL);
}

/* A block on cuda:0 that waits for the stage's fence. */
static void pend(stage *s, uint64_t key, uint64_t bytes) {
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    fence.done = ask_fence;
    fence.drop = drop_fence;
    fence.user = s;
    assert_ok(memlord_alloc(s->t->lord, cuda(0), key, bytes, NULL));
    assert_ok(memlord_free_deferred(s->t->lord, cuda(0), key, fence, NULL));
}

static size_t lines_with(const char *text, const char *word) {
    size_t n = 0;
    while (text && *text) {
        const char *end = strchr(text, '\n');
        const char *hit = strstr(text, word);
        n += hit && (!end || hit < end);
        text = end ? end + 1 : NULL;
    }
    return n;
}

#undef TEST
#define TEST(name) TEST_FAKES(name)
#define TEST_CLOCK(name) cmocka_unit_test_setup_teardown(name, test_setup, test_teardown)

/* -- the pauses -- */

static memlord_retry pauses(uint32_t initial, double multiplier, uint32_t max) {
    memlord_retry policy;
    memset(&policy, 0, sizeof policy);
    policy.max_retries = 5;
    policy.initial_ms = initial;
    policy.multiplier = multiplier;
    policy.max_ms = max;
    return policy;
}

static void the_default_pauses_grow_by_half_and_are_cut(void **state) {
    static const uint32_t expected[] = {50,  75,  112,  168,  253,  379, 569,
                                        854, 1281, 1922, 2000, 2000, 2000};
    memlord_retry same = pauses(50, 1.5, 2000);
    uint32_t k;
    (void)state;
    for (k = 0; k < 13; k++) {
        assert_int_equal(memlord_retry_backoff(NULL, k), expected[k]);
        assert_int_equal(memlord_retry_backoff(&same, k), expected[k]);
    }
}

static void the_number_of_the_attempt_may_be_huge(void **state) {
    memlord_retry flat = pauses(50, 1, 2000), none = pauses(0, 2, 2000);
    memlord_retry steep = pauses(1, 1e300, UINT32_MAX), creep = pauses(50, 1 + 1e-12, 2000);
    memlord_retry large = pauses(UINT32_MAX, 1.5, UINT32_MAX);
    int i;
    (void)state;
    for (i = 0; i < 1000; i++) {
        assert_int_equal(memlord_retry_backoff(NULL, UINT32_MAX - (uint32_t)i), 2000);
        assert_int_equal(memlord_retry_backoff(&flat, UINT32_MAX), 50);
        assert_int_equal(memlord_retry_backoff(&none, UINT32_MAX), 0);
        assert_int_equal(memlord_retry_backoff(&creep, UINT32_MAX), 50);
        assert_int_equal(memlord_retry_backoff(&steep, UINT32_MAX), UINT32_MAX);
        assert_int_equal(memlord_retry_backoff(&large, (uint32_t)i), UINT32_MAX);
    }
    assert_int_equal(memlord_retry_backoff(&steep, 0), 1);
    assert_int_equal(memlord_retry_backoff(&steep, 1), UINT32_MAX);
}

static void a_pause_is_never_over_the_maximum(void **state) {
    const double odd[] = {NAN, INFINITY, -INFINITY, -1.5, 0, 0.5, 1e308};
    size_t i;
    uint32_t k;
    (void)state;
    for (i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        memlord_retry policy = pauses(50, odd[i], 2000), upside = pauses(3000, odd[i], 10);
        for (k = 0; k < 40; k++) {
            assert_true(memlord_retry_backoff(&policy, k * k * k) <= 2000);
            assert_true(memlord_retry_backoff(&upside, k * k * k) <= 10);
        }
    }
}

static memlord_result request_with(stage *s, const memlord_retry *policy) {
    return memlord_alloc_retry(s->t->lord, cuda(0), 0, attempt, s, policy, &got, NULL);
}
static void a_policy_is_checked(void **state) {
    stage *s = stage_of(state, "++++");
    memlord_retry good = pauses(50, 1.5, 50), upside = pauses(51, 1.5, 50);
    const double bad[] = {NAN, INFINITY, -INFINITY, -1, 0, 0.999};
    size_t i;
    assert_ok(request_with(s, NULL));
    assert_ok(request_with(s, &good));
    good = pauses(0, 1, 0);
    assert_ok(request_with(s, &good));
    good = pauses(UINT32_MAX, 1e308, UINT32_MAX);
    assert_ok(request_with(s, &good));
    assert_int_equal(request_with(s, &upside), MEMLORD_E_INVALID);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memlord_retry policy = pauses(50, bad[i], 2000);
        assert_int_equal(request_with(s, &policy), MEMLORD_E_INVALID);
    }
}

static void a_bad_policy_is_refused_before_any_attempt(void **state) {
    stage *s = stage_of(state, "+");
    memlord_retry policy = policy_of(s, 3);
    policy.max_ms = 49;
    got = 0xdead;
    assert_int_equal(memlord_alloc_retry(s->t->lord, cuda(0), 10, attempt, s, &policy, &got, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(s->calls, 0);
    assert_int_equal(got, 0);
}

/* -- attempts -- */

static void what_the_first_attempt_makes_is_recorded(void **state) {
    stage *s = stage_of(state, "+");
    assert_ok(request(s, 100, 5));
    assert_int_equal(got, 0x5000);
    assert_int_equal(s->bytes, 100);
    assert_int_equal(memlord_allocated(s->t->lord, cuda(0)), 100);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).allocs, 1);
    assert_string_equal(s->trace, "A");
    assert_ok(memlord_free(s->t->lord, cuda(0), 0x5000, NULL));
}

static void it_is_recorded_with_site_and_tag(void **state) {
    stage *s = stage_of(state, "0+");
    static const memlord_site site = {"kv.c", "grow_cache", 7};
    const memlord_alloc_opts opts = {&site, NULL, 0, 0, 0};
    memlord_retry policy = policy_of(s, 1);
    memlord_block_info info;
    assert_ok(memlord_sites_enable(s->t->lord, 1));
    assert_ok(memlord_tag_begin(s->t->lord, "kv_cache"));
    assert_ok(memlord_alloc_retry(s->t->lord, cuda(2), 100, attempt, s, &policy, &got, &opts));
    assert_ok(memlord_tag_end(s->t->lord));
    assert_ok(memlord_block_find(s->t->lord, cuda(2), got, &info));
    assert_string_equal(info.tag, "kv_cache");
    assert_non_null(info.site);
    assert_string_equal(info.site->function, "grow_cache");
    assert_int_equal(info.device.index, 2);
    assert_int_equal(info.bytes, 100);
    assert_int_equal(info.refs, 1);
}

static void there_are_as_many_attempts_as_retries_and_one(void **state) {
    uint32_t max;
    for (max = 0; max < 8; max++) {
        stage *s = stage_of(state, "0");
        assert_int_equal(request(s, 100, max), MEMLORD_E_OOM);
        assert_int_equal(s->calls, max + 1);
        assert_int_equal(s->sleeps, max);
    }
}

static void the_pauses_go_through_the_injected_sleep(void **state) {
    static const uint32_t expected[] = {50, 75, 112, 168, 253};
    stage *s = stage_of(state, "0");
    assert_int_equal(request(s, 100, 5), MEMLORD_E_OOM);
    assert_int_equal(s->sleeps, 5);
    assert_memory_equal(s->slept, expected, sizeof expected);
}

static void a_success_ends_it(void **state) {
    stage *s = stage_of(state, "00+");
    assert_ok(request(s, 100, 5));
    assert_int_equal(s->calls, 3);
    assert_int_equal(got, 0x5000);
    assert_int_equal(memlord_allocated(s->t->lord, cuda(0)), 100);
}

static void it_gives_up_when_told(void **state) {
    stage *s = stage_of(state, "0-");
    assert_int_equal(request(s, 100, 5), MEMLORD_E_OOM);
    assert_int_equal(s->calls, 2);
    assert_int_equal(s->sleeps, 1);
    assert_int_equal(got, 0);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).oom_failures, 1);
}

static void giving_up_at_once_collects_nothing(void **state) {
    stage *s = stage_of(state, "-");
    assert_int_equal(request(s, 100, 5), MEMLORD_E_OOM);
    assert_string_equal(s->trace, "A");
    assert_int_equal(s->t->gc.runs, 0);
}

static void a_failure_leaves_storage_0_and_records_nothing(void **state) {
    stage *s = stage_of(state, "0");
    s->made_early = 0x7777;
    assert_int_equal(request(s, 100, 2), MEMLORD_E_OOM);
    assert_int_equal(got, 0);
    assert_int_equal(memlord_allocated(s->t->lord, all()), 0);
    assert_int_equal(stats_of(s->t->lord, all()).allocs, 0);
    assert_int_equal(stats_of(s->t->lord, all()).dropped_allocs, 0);
}

static void attempts_and_requests_are_counted_apart(void **state) {
    stage *s = stage_of(state, "0");
    memlord_stats n;
    assert_int_equal(request(s, 100, 2), MEMLORD_E_OOM);
    n = stats_of(s->t->lord, cuda(0));
    assert_int_equal(n.oom_attempts, 3);
    assert_int_equal(n.oom_failures, 1);
    assert_int_equal(n.retries, 2);
    assert_int_equal(n.recoveries, 0);
    s = stage_of(state, "00+");
    assert_ok(request(s, 100, 5));
    n = stats_of(s->t->lord, cuda(0));
    assert_int_equal(n.oom_attempts, 5);
    assert_int_equal(n.oom_failures, 1);
    assert_int_equal(n.retries, 4);
    assert_int_equal(n.recoveries, 1);
    s = stage_of(state, "+");
    s->storage = 0x6000;
    assert_ok(request(s, 100, 5));
    assert_int_equal(stats_of(s->t->lord, cuda(0)).oom_attempts, 5);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).recoveries, 1);
    assert_int_equal(stats_of(s->t->lord, cuda(1)).oom_attempts, 0);
}

static void rates_are_of_requests(void **state) {
    stage *s = stage_of(state, "0");
    memlord_stats n;
    assert_int_equal(request(s, 100, 2), MEMLORD_E_OOM);
    n = stats_of(s->t->lord, cuda(0));
    assert_true(memlord_rate(&n, "recovery_rate") == 0);
    assert_true(memlord_rate(&n, "success_rate") == 0);
    s = stage_of(state, "00+");
    assert_ok(request(s, 100, 5));
    n = stats_of(s->t->lord, cuda(0));
    assert_true(memlord_rate(&n, "recovery_rate") == 0.5);
    assert_true(memlord_rate(&n, "success_rate") == 0.5);
}

static void a_reset_starts_the_counts_over(void **state) {
    stage *s = stage_of(state, "0");
    assert_int_equal(request(s, 100, 2), MEMLORD_E_OOM);
    memlord_reset(s->t->lord);
    assert_int_equal(stats_of(s->t->lord, all()).oom_attempts, 0);
    assert_int_equal(stats_of(s->t->lord, all()).oom_failures, 0);
    assert_int_equal(stats_of(s->t->lord, all()).retries, 0);
}

/* -- arguments -- */

static void bad_arguments_reach_no_attempt(void **state) {
    stage *s = stage_of(state, "+");
    memlord *lord = s->t->lord;
    memlord_retry p = policy_of(s, 1);
    memlord_stats before = stats_of(lord, all()), after;
    assert_int_equal(request(s, TEST_MAX_BYTES + 1, 1), MEMLORD_E_INVALID);
    assert_int_equal(got, 0);
    assert_int_equal(request(s, UINT64_MAX, 1), MEMLORD_E_INVALID);
    assert_int_equal(got, 0);
    got = 0xdead;
    assert_int_equal(memlord_alloc_retry(lord, cuda(0), 1, NULL, s, &p, &got, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(got, 0);
    assert_int_equal(memlord_alloc_retry(lord, cuda(0), 1, attempt, s, &p, NULL, NULL),
                     MEMLORD_E_INVALID);
    got = 0xdead;
    assert_int_equal(memlord_alloc_retry(lord, cuda(MEMLORD_ANY), 1, attempt, s, &p, &got, NULL),
                     MEMLORD_E_DEVICE);
    assert_int_equal(got, 0);
    got = 0xdead;
    assert_int_equal(memlord_alloc_retry(lord, all(), 1, attempt, s, &p, &got, NULL),
                     MEMLORD_E_DEVICE);
    assert_int_equal(got, 0);
    assert_int_equal(s->calls, 0);
    after = stats_of(lord, all());
    assert_same_books(&before, &after);
}

static void sizes_of_0_and_of_the_most_are_legal(void **state) {
    stage *s = stage_of(state, "+");
    assert_ok(request(s, 0, 1));
    s->storage = 0x6000;
    assert_ok(request(s, TEST_MAX_BYTES, 1));
    assert_int_equal(memlord_allocated(s->t->lord, cuda(0)), TEST_MAX_BYTES);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).live_blocks, 2);
}

static void an_attempt_that_lies_about_its_storage_is_not_recorded(void **state) {
    stage *s = stage_of(state, "+");
    s->storage = 0;
    assert_int_not_equal(request(s, 100, 1), MEMLORD_OK);
    s->storage = UINT64_MAX;
    assert_int_not_equal(request(s, 100, 1), MEMLORD_OK);
    assert_int_equal(memlord_allocated(s->t->lord, all()), 0);
    assert_int_equal(stats_of(s->t->lord, all()).live_blocks, 0);
}

/* Says that it has the memory, first at no address, then at one that no ledger records. */
static int attempt_that_lies_twice(void *user, uint64_t bytes, uint64_t *storage) {
    static const uint64_t made[] = {0, UINT64_MAX, 0x5000};
    int *calls = (int *)user;
    (void)bytes;
    *storage = made[(*calls)++];
    return 0;
}
static void after_a_lie_it_tries_again(void **state) {
    memlord *lord = test_lord(state);
    memlord_retry policy = policy_of(&the_stage, 2);
    int calls = 0;
    assert_ok(memlord_alloc_retry(lord, cuda(0), 100, attempt_that_lies_twice, &calls, &policy,
                                  &got, NULL));
    assert_int_equal(calls, 3);
    assert_int_equal(got, 0x5000);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 100);
    assert_int_equal(stats_of(lord, cuda(0)).oom_attempts, 2);
    assert_int_equal(stats_of(lord, cuda(0)).retries, 2);
    assert_int_equal(stats_of(lord, cuda(0)).recoveries, 1);
}

/* -- what is done between two attempts -- */

static void each_round_retires_collects_and_pauses_in_this_order(void **state) {
    stage *s = stage_of(state, "0");
    pend(s, 0x1000, 10);
    memset(s->trace, 0, sizeof s->trace);
    assert_int_equal(request(s, 100, 2), MEMLORD_E_OOM);
    assert_string_equal(s->trace, "AFGSAFGSA");
}

static void a_deferred_free_is_retired_before_the_retry(void **state) {
    stage *s = stage_of(state, NULL);
    s->with_room = 1;
    pend(s, 0x1000, 64);
    s->fence_answer = 1;
    assert_ok(request(s, 100, 1));
    assert_int_equal(s->fence_drops, 1);
    assert_int_equal(memlord_allocated(s->t->lord, cuda(0)), 100);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).recoveries, 1);
}

static void the_collection_is_told_why_and_how_much(void **state) {
    stage *s = stage_of(state, "0+");
    assert_ok(memlord_alloc(s->t->lord, cuda(0), 0x1000, 64, NULL));
    assert_ok(request(s, 100, 1));
    assert_int_equal(s->t->gc.runs, 1);
    assert_int_equal(s->t->gc.last.reason, MEMLORD_REASON_OOM);
    assert_int_equal(s->t->gc.last.needed, 100);
    assert_int_equal(s->t->gc.last.device.type, MEMLORD_DEVICE_CUDA);
    assert_int_equal(s->t->gc.last.device.index, 0);
    assert_true(s->t->gc.last.band == SIZE_MAX);
    assert_int_equal(s->t->gc.last.value, 64);
    assert_true(s->t->gc.last.used_percent == -1);
    assert_int_equal(s->t->gc.last.device_runs, 1);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).gc_runs, 1);
}

static void a_collection_that_makes_room_saves_the_request(void **state) {
    stage *s = stage_of(state, NULL);
    s->with_room = 1;
    s->free_in_gc = 0x1000;
    s->t->gc.answer.reclaimed = 64;
    assert_ok(memlord_alloc(s->t->lord, cuda(0), 0x1000, 64, NULL));
    assert_ok(request(s, 100, 3));
    assert_int_equal(s->calls, 2);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).recoveries, 1);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).oom_failures, 0);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).gc_reclaimed, 64);
}

static void a_collection_that_could_not_run_ends_nothing(void **state) {
    stage *s = stage_of(state, "00+");
    s->t->gc.answer.ran = 0;
    assert_ok(request(s, 100, 3));
    assert_int_equal(stats_of(s->t->lord, cuda(0)).gc_failed, 2);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).gc_runs, 0);
}

static void bands_switched_off_leave_it_collecting(void **state) {
    stage *s = stage_of(state, "0+");
    assert_ok(memlord_strategy_set(s->t->lord, all(), NULL, 0));
    assert_ok(request(s, 100, 3));
    assert_int_equal(s->t->gc.runs, 1);
}

static void a_device_without_callbacks_retries_all_the_same(void **state) {
    stage *s = stage_of(state, "00+");
    memlord_retry policy = policy_of(s, 3);
    memlord_device hip = memlord_device_make(MEMLORD_DEVICE_HIP, 0);
    assert_ok(memlord_alloc_retry(s->t->lord, hip, 100, attempt, s, &policy, &got, NULL));
    assert_int_equal(s->t->gc.runs, 0);
    assert_int_equal(s->sleeps, 2);
    assert_int_equal(memlord_allocated(s->t->lord, hip), 100);
}

static void an_attempt_may_call_the_ledger(void **state) {
    stage *s = stage_of(state, NULL);
    s->with_room = 1;
    s->free_in_try = 0x1000;
    assert_ok(memlord_alloc(s->t->lord, cuda(0), 0x1000, 64, NULL));
    assert_ok(request(s, 100, 0));
    assert_int_equal(memlord_allocated(s->t->lord, cuda(0)), 100);
    assert_balanced(s->t->lord, cuda(0));
}

static void a_sleep_may_call_the_ledger(void **state) {
    stage *s = stage_of(state, NULL);
    s->with_room = 1;
    s->free_in_sleep = 0x1000;
    assert_ok(memlord_alloc(s->t->lord, cuda(0), 0x1000, 64, NULL));
    assert_ok(request(s, 100, 1));
    assert_int_equal(memlord_allocated(s->t->lord, cuda(0)), 100);
}

static memlord_result nested;
static void collect_by_asking(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    stage *s = (stage *)gc->user;
    stage other;
    memlord_retry policy = policy_of(&other, 2);
    uint64_t storage = 0xdead;
    memset(&other, 0, sizeof other);
    other.t = s->t;
    other.answers = "0";
    nested = memlord_alloc_retry(lord, event->device, 8, attempt, &other, &policy, &storage, NULL);
    s->room = storage;
}

static void a_collection_may_run_out_of_memory_itself(void **state) {
    stage *s = stage_of(state, "0+");
    s->t->gc.act = collect_by_asking;
    assert_ok(request(s, 100, 1));
    assert_int_equal(nested, MEMLORD_E_OOM);
    assert_int_equal(s->room, 0);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).oom_failures, 1);
    assert_int_equal(s->t->gc.runs, 1);
}

static void with_defer_it_is_a_safe_point(void **state) {
    stage *s = stage_of(state, "0+");
    pend(s, 0x1000, 10);
    assert_string_equal(s->trace, "");
    s->fence_answer = 1;
    assert_ok(request(s, 100, 1));
    assert_string_equal(s->trace, "AFGSA");
    assert_int_equal(s->fence_drops, 1);
}

/* -- limits -- */

static void over_the_limit_no_attempt_is_made(void **state) {
    stage *s = stage_of(state, "+");
    memlord_stats n;
    assert_ok(memlord_limit_set(s->t->lord, cuda(0), 100));
    assert_ok(memlord_alloc(s->t->lord, cuda(0), 0x1000, 80, NULL));
    assert_int_equal(request(s, 30, 3), MEMLORD_E_LIMIT);
    assert_int_equal(s->calls, 0);
    assert_int_equal(got, 0);
    assert_int_equal(memlord_allocated(s->t->lord, cuda(0)), 80);
    n = stats_of(s->t->lord, cuda(0));
    assert_int_equal(n.oom_attempts, 0);
    assert_int_equal(n.limit, 100);
}

static void over_the_limit_it_collects_once_and_says_why(void **state) {
    stage *s = stage_of(state, "+");
    assert_ok(memlord_limit_set(s->t->lord, cuda(0), 100));
    assert_ok(memlord_alloc(s->t->lord, cuda(0), 0x1000, 80, NULL));
    assert_int_equal(request(s, 30, 3), MEMLORD_E_LIMIT);
    assert_int_equal(s->t->gc.runs, 1);
    assert_int_equal(s->t->gc.last.reason, MEMLORD_REASON_LIMIT);
    assert_true(s->t->gc.last.needed == 10 || s->t->gc.last.needed == 30);
}

static void a_collection_that_makes_room_lets_it_through(void **state) {
    stage *s = stage_of(state, "+");
    s->free_in_gc = 0x1000;
    assert_ok(memlord_limit_set(s->t->lord, cuda(0), 100));
    assert_ok(memlord_alloc(s->t->lord, cuda(0), 0x1000, 80, NULL));
    assert_ok(request(s, 30, 3));
    assert_int_equal(s->calls, 1);
    assert_int_equal(memlord_allocated(s->t->lord, cuda(0)), 30);
}

static void a_deferred_free_that_makes_room_lets_it_through(void **state) {
    stage *s = stage_of(state, "+");
    assert_ok(memlord_limit_set(s->t->lord, cuda(0), 100));
    pend(s, 0x1000, 80);
    s->fence_answer = 1;
    assert_ok(request(s, 30, 3));
    assert_int_equal(s->calls, 1);
    assert_int_equal(memlord_allocated(s->t->lord, cuda(0)), 30);
}

static void what_just_fits_is_let_through_and_counted_once(void **state) {
    stage *s = stage_of(state, "+");
    assert_ok(memlord_limit_set(s->t->lord, cuda(0), 100));
    assert_ok(request(s, 60, 0));
    assert_int_equal(memlord_headroom(s->t->lord, cuda(0)), 40);
    s->storage = 0x6000;
    assert_int_equal(request(s, 41, 0), MEMLORD_E_LIMIT);
    assert_ok(request(s, 40, 0));
    assert_int_equal(memlord_headroom(s->t->lord, cuda(0)), 0);
    s->storage = 0x7000;
    assert_int_equal(request(s, 1, 0), MEMLORD_E_LIMIT);
    assert_ok(memlord_free(s->t->lord, cuda(0), 0x6000, NULL));
    assert_ok(request(s, 40, 0));
}

static void a_failed_request_gives_its_room_back(void **state) {
    stage *s = stage_of(state, "0");
    assert_ok(memlord_limit_set(s->t->lord, cuda(0), 100));
    assert_int_equal(request(s, 60, 2), MEMLORD_E_OOM);
    assert_int_equal(memlord_headroom(s->t->lord, cuda(0)), 100);
    s = stage_of(state, "+");
    assert_ok(request(s, 100, 0));
}

static void *reserve_half(void *user) {
    memlord_ticket *ticket = (memlord_ticket *)calloc(1, sizeof *ticket);
    if (ticket) (void)memlord_reserve((memlord *)user, memlord_device_cuda(0), 50, ticket);
    return ticket;
}

static void what_it_makes_is_charged_to_the_account_in_use(void **state) {
    stage *s = stage_of(state, "+");
    memlord_account account = 0;
    memlord_account_stat stat;
    assert_ok(memlord_account_open(s->t->lord, cuda(0), "request", 100, &account));
    assert_ok(memlord_account_use(s->t->lord, account));
    assert_ok(request(s, 60, 1));
    assert_ok(memlord_account_get(s->t->lord, account, &stat));
    assert_int_equal(stat.bytes, 60);
    assert_ok(memlord_free(s->t->lord, cuda(0), got, NULL));
    assert_ok(memlord_account_get(s->t->lord, account, &stat));
    assert_int_equal(stat.bytes, 0);
}

/* -- tickets of the thread -- */

static uint64_t held(stage *s) { return stats_of(s->t->lord, cuda(0)).held; }

/* A ticket of this thread under a limit of cuda:0. */
static memlord_ticket reserved(stage *s, uint64_t limit, uint64_t bytes) {
    memlord_ticket ticket = 0;
    assert_ok(memlord_limit_set(s->t->lord, cuda(0), limit));
    assert_ok(memlord_reserve(s->t->lord, cuda(0), bytes, &ticket));
    return ticket;
}

static void a_request_that_its_ticket_covers_needs_no_room(void **state) {
    stage *s = stage_of(state, "+");
    memlord_ticket ticket = reserved(s, 10 << 20, 10 << 20);
    assert_ok(request(s, 5 << 20, 0));
    assert_int_equal(held(s), 5 << 20);
    assert_int_equal(memlord_allocated(s->t->lord, cuda(0)), 5 << 20);
    assert_ok(memlord_limit_set(s->t->lord, cuda(0), 1)); /* what is admitted stays so */
    s->storage = 0x6000;
    assert_ok(request(s, 5 << 20, 0));
    assert_int_equal(held(s), 0);
    s->storage = 0x7000;
    assert_int_equal(request(s, 1, 0), MEMLORD_E_LIMIT);
    assert_ok(memlord_reserve_commit(s->t->lord, ticket));
}

static void a_request_comes_off_its_ticket(void **state) {
    stage *s = stage_of(state, "+");
    memlord_ticket ticket = reserved(s, 100, 60);
    assert_ok(request(s, 40, 0));
    assert_int_equal(held(s), 20);
    assert_int_equal(memlord_headroom(s->t->lord, cuda(0)), 40);
    s->storage = 0x6000;
    assert_ok(request(s, 30, 0)); /* 20 of the ticket, 10 beyond it */
    assert_int_equal(held(s), 0);
    assert_int_equal(memlord_headroom(s->t->lord, cuda(0)), 30);
    assert_ok(memlord_reserve_commit(s->t->lord, ticket));
    assert_int_equal(memlord_headroom(s->t->lord, cuda(0)), 30);
}

static void a_request_comes_off_several_tickets(void **state) {
    stage *s = stage_of(state, "+");
    memlord_ticket first = reserved(s, 100, 30), second = reserved(s, 100, 30);
    memlord_ticket elsewhere = 0;
    assert_ok(memlord_reserve(s->t->lord, cuda(1), 70, &elsewhere));
    assert_ok(request(s, 50, 0));
    assert_int_equal(held(s), 10);
    assert_int_equal(stats_of(s->t->lord, cuda(1)).held, 70);
    assert_ok(memlord_reserve_commit(s->t->lord, first)); /* had nothing left */
    assert_int_equal(held(s), 10);
    assert_ok(memlord_reserve_commit(s->t->lord, second));
    assert_int_equal(held(s), 0);
    assert_ok(memlord_reserve_commit(s->t->lord, elsewhere));
}

static void only_what_exceeds_the_ticket_must_fit(void **state) {
    stage *s = stage_of(state, "+");
    memlord_ticket ticket = reserved(s, 100, 40);
    assert_int_equal(request(s, 101, 0), MEMLORD_E_LIMIT);
    assert_int_equal(s->calls, 0);
    assert_int_equal(held(s), 40);
    assert_int_equal(s->t->gc.last.reason, MEMLORD_REASON_LIMIT);
    assert_int_equal(s->t->gc.last.needed, 61);
    assert_int_equal(lines_with(s->t->log.text,
                                "[limit] beyond its ticket, cuda:0: 61 B wanted, 1 B short"),
                     1);
    assert_ok(request(s, 100, 0));
    assert_int_equal(held(s), 0);
    assert_ok(memlord_reserve_commit(s->t->lord, ticket));
    assert_int_equal(memlord_headroom(s->t->lord, cuda(0)), 0);
}

static void a_failed_request_is_not_short_of_what_its_ticket_holds(void **state) {
    stage *s = stage_of(state, "-");
    memlord_ticket ticket = reserved(s, 1000, 800);
    assert_int_equal(request(s, 900, 0), MEMLORD_E_OOM);
    assert_int_equal(held(s), 800);
    assert_int_equal(lines_with(s->t->log.text,
                                "[oom] cuda:0: 900 B wanted, 100 B to spare: limit 1000 B, live "
                                "0 B, held 800 B of which 800 B for this request"),
                     1);
    assert_ok(memlord_reserve_commit(s->t->lord, ticket));
}

static void a_request_comes_off_an_adopted_ticket(void **state) {
    stage *s = stage_of(state, "+");
    pthread_t thread;
    void *ticket = NULL;
    assert_ok(memlord_limit_set(s->t->lord, cuda(0), 100));
    assert_int_equal(pthread_create(&thread, NULL, reserve_half, s->t->lord), 0);
    assert_int_equal(pthread_join(thread, &ticket), 0);
    assert_non_null(ticket);
    assert_ok(memlord_reserve_adopt(s->t->lord, *(memlord_ticket *)ticket));
    assert_ok(request(s, 70, 1));
    assert_int_equal(held(s), 0);
    assert_int_equal(memlord_headroom(s->t->lord, cuda(0)), 30);
    assert_ok(memlord_reserve_commit(s->t->lord, *(memlord_ticket *)ticket));
    free(ticket);
}

typedef struct adopter {
    memlord *lord;
    memlord_ticket ticket;
    memlord_result result;
} adopter;

static void *adopt(void *user) {
    adopter *a = (adopter *)user;
    a->result = memlord_reserve_adopt(a->lord, a->ticket);
    return NULL;
}

static void a_ticket_that_another_thread_adopted_covers_nothing(void **state) {
    stage *s = stage_of(state, "+");
    pthread_t thread;
    adopter a;
    a.lord = s->t->lord;
    a.ticket = reserved(s, 100, 60);
    assert_int_equal(pthread_create(&thread, NULL, adopt, &a), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(a.result);
    assert_int_equal(request(s, 41, 0), MEMLORD_E_LIMIT);
    assert_ok(request(s, 40, 0));
    assert_int_equal(held(s), 60);
    assert_ok(memlord_reserve_commit(s->t->lord, a.ticket));
}

static void a_request_that_fails_leaves_its_ticket_as_it_was(void **state) {
    stage *s = stage_of(state, "0");
    memlord_ticket ticket = reserved(s, 100, 60);
    assert_int_equal(request(s, 80, 2), MEMLORD_E_OOM);
    assert_int_equal(held(s), 60);
    assert_int_equal(memlord_headroom(s->t->lord, cuda(0)), 40);
    assert_ok(memlord_alloc(s->t->lord, cuda(0), 0x1000, 60, NULL));
    assert_int_equal(held(s), 0);
    assert_ok(memlord_reserve_commit(s->t->lord, ticket));
}

static void a_collection_may_make_room_for_what_exceeds_the_ticket(void **state) {
    stage *s = stage_of(state, "+");
    memlord_ticket ticket;
    assert_ok(memlord_strategy_set(s->t->lord, cuda(0), NULL, 0)); /* no band collects before */
    assert_ok(memlord_alloc(s->t->lord, cuda(0), 0x1000, 50, NULL));
    ticket = reserved(s, 100, 40);
    s->free_in_gc = 0x1000;
    assert_ok(request(s, 60, 0));
    assert_int_equal(s->t->gc.last.needed, 20);
    assert_int_equal(memlord_allocated(s->t->lord, cuda(0)), 60);
    assert_int_equal(held(s), 0);
    assert_ok(memlord_reserve_commit(s->t->lord, ticket));
}

/* An attempt that does to the thread's ticket what a host may do meanwhile. */
typedef struct meddler {
    memlord *lord;
    memlord_ticket commit;
    uint64_t record, storage, held;
} meddler;

static int meddle(void *user, uint64_t bytes, uint64_t *storage) {
    meddler *m = (meddler *)user;
    (void)bytes;
    if (m->commit) (void)memlord_reserve_commit(m->lord, m->commit);
    if (m->record) (void)memlord_alloc(m->lord, memlord_device_cuda(0), 0x9000, m->record, NULL);
    m->held = stats_of(m->lord, memlord_device_cuda(0)).held;
    *storage = m->storage;
    return m->storage ? 0 : -1;
}

static void an_alloc_inside_an_attempt_does_not_draw_on_its_bytes(void **state) {
    stage *s = stage_of(state, "+");
    memlord_ticket ticket = reserved(s, 100, 60);
    meddler m = {NULL, 0, 60, 0x5000, 0};
    m.lord = s->t->lord;
    assert_ok(memlord_alloc_retry(m.lord, cuda(0), 40, meddle, &m, NULL, &got, NULL));
    assert_int_equal(m.held, 40); /* 20 of the ticket were free for it */
    assert_int_equal(held(s), 0);
    assert_int_equal(memlord_allocated(m.lord, cuda(0)), 100);
    assert_ok(memlord_reserve_commit(m.lord, ticket));
}

static void a_ticket_that_closes_meanwhile_gets_nothing_back(void **state) {
    stage *s = stage_of(state, "+");
    meddler m = {NULL, 0, 0, 0, 0};
    m.lord = s->t->lord;
    m.commit = reserved(s, 100, 60);
    assert_int_equal(memlord_alloc_retry(m.lord, cuda(0), 40, meddle, &m, NULL, &got, NULL),
                     MEMLORD_E_OOM);
    assert_int_equal(m.held, 40);
    assert_int_equal(held(s), 0);
    assert_int_equal(memlord_headroom(m.lord, cuda(0)), 100);
}

static void what_another_thread_reserved_is_not_there(void **state) {
    stage *s = stage_of(state, "0+");
    pthread_t thread;
    void *ticket = NULL;
    assert_ok(memlord_limit_set(s->t->lord, cuda(0), 100));
    assert_int_equal(pthread_create(&thread, NULL, reserve_half, s->t->lord), 0);
    assert_int_equal(pthread_join(thread, &ticket), 0);
    assert_non_null(ticket);
    assert_int_equal(request(s, 60, 1), MEMLORD_E_LIMIT);
    assert_int_equal(s->calls, 0);
    assert_ok(request(s, 50, 1));
    assert_int_equal(held(s), 50);
    assert_ok(memlord_reserve_commit(s->t->lord, *(memlord_ticket *)ticket));
    assert_int_equal(memlord_headroom(s->t->lord, cuda(0)), 50);
    free(ticket);
}

/* -- when the ledger itself has no memory -- */

static void the_host_never_loses_a_storage(void **state) {
    stage *s = stage_of(state, "+");
    uint64_t i;
    s->t->heap.fail_at = s->t->heap.calls + 1;
    s->t->heap.fail_from = 1;
    for (i = 1; i <= 20000; i++) {
        s->storage = i * 64;
        (void)request(s, 1, 0);
        assert_int_equal(got, i * 64);
    }
    s->t->heap.fail_at = 0;
    assert_true(stats_of(s->t->lord, cuda(0)).dropped_allocs > 0);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).dropped_allocs +
                         memlord_allocated(s->t->lord, cuda(0)),
                     20000);
}

/* -- a null ledger -- */

static void a_null_ledger_makes_one_attempt(void **state) {
    stage *s = stage_of(state, "0+");
    memlord_retry policy = policy_of(s, 5);
    got = 0xdead;
    assert_int_equal(memlord_alloc_retry(NULL, cuda(0), 100, attempt, s, &policy, &got, NULL),
                     MEMLORD_E_OOM);
    assert_int_equal(got, 0);
    assert_int_equal(s->calls, 1);
    assert_ok(memlord_alloc_retry(NULL, cuda(0), 100, attempt, s, &policy, &got, NULL));
    assert_int_equal(got, 0x5000);
    assert_int_equal(s->calls, 2);
    assert_int_equal(s->sleeps, 0);
}

/* -- what is said in the end -- */

static void hold(test_case *t) {
    static const memlord_site site = {"loader.c", "load_weights", 12};
    assert_ok(memlord_sites_enable(t->lord, 1));
    assert_ok(memlord_tag_begin(t->lord, "weights"));
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 5000, &site));
    assert_ok(memlord_tag_end(t->lord));
    test_log_clear(&t->log);
}

static void the_last_failure_logs_who_holds_the_device(void **state) {
    stage *s = stage_of(state, "0");
    hold(s->t);
    assert_int_equal(request(s, 100, 2), MEMLORD_E_OOM);
    assert_int_equal(lines_with(s->t->log.text, "weights"), 1);
    assert_int_equal(s->t->log.lines[MEMLORD_LOG_ERROR] + s->t->log.lines[MEMLORD_LOG_WARNING], 1);
}

/* What the callbacks of the attempts gave back shows, although the sample before is young. */
static int attempt_after_which_others_give_back(void *user, uint64_t bytes, uint64_t *storage) {
    stage *s = (stage *)user;
    s->t->source.used = 100;
    return attempt(user, bytes, storage);
}
static void the_last_failure_samples_the_device_first(void **state) {
    stage *s = stage_of(state, "0");
    memlord_retry policy = policy_of(s, 1);
    test_capacity(s->t, 1000, 900);
    test_log_clear(&s->t->log);
    assert_int_equal(memlord_alloc_retry(s->t->lord, cuda(0), 1200,
                                         attempt_after_which_others_give_back, s, &policy, &got,
                                         NULL),
                     MEMLORD_E_OOM);
    assert_non_null(strstr(s->t->log.text, "300 B short"));
    assert_non_null(strstr(s->t->log.text, "10 % used"));
}

static void a_refusal_by_the_limit_logs_who_holds_the_device(void **state) {
    stage *s = stage_of(state, "0");
    assert_ok(memlord_limit_set(s->t->lord, cuda(0), 5050));
    hold(s->t);
    assert_int_equal(request(s, 100, 2), MEMLORD_E_LIMIT);
    assert_int_equal(lines_with(s->t->log.text, "weights"), 1);
}

static void a_refusal_by_the_limit_samples_what_is_old(void **state) {
    stage *s = stage_of(state, "+");
    test_case *t = s->t;
    const uint64_t interval = 200000000u;
    memlord_capacity c;
    uint64_t calls;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 100));
    test_capacity(t, 1000, 10);
    calls = t->source.calls;
    assert_int_equal(request(s, 101, 1), MEMLORD_E_LIMIT);
    assert_int_equal(t->source.calls, calls);
    t->now += interval;
    t->source.used = 777;
    assert_int_equal(request(s, 101, 1), MEMLORD_E_LIMIT);
    assert_int_equal(t->source.calls, calls + 1);
    assert_ok(memlord_capacity_get(t->lord, cuda(0), &c));
    assert_int_equal(c.used, 777);
    t->now += interval - 1;
    assert_int_equal(request(s, 101, 1), MEMLORD_E_LIMIT);
    assert_int_equal(t->source.calls, calls + 1);
}

static void a_recovery_logs_no_failure(void **state) {
    stage *s = stage_of(state, "00+");
    hold(s->t);
    assert_ok(request(s, 100, 2));
    assert_int_equal(s->t->log.lines[MEMLORD_LOG_ERROR], 0);
    assert_int_equal(lines_with(s->t->log.text, "weights"), 0);
}

static void the_last_failure_is_in_the_reports(void **state) {
    stage *s = stage_of(state, "0");
    static const memlord_site site = {"kv.c", "grow_cache", 77};
    const memlord_alloc_opts opts = {&site, NULL, 0, 0, 0};
    memlord_retry policy = policy_of(s, 1);
    char *json, *text, *metrics;
    hold(s->t);
    assert_int_equal(memlord_alloc_retry(s->t->lord, cuda(0), 987654321, attempt, s, &policy, &got,
                                         &opts),
                     MEMLORD_E_OOM);
    json = report_of(s->t->lord, MEMLORD_FORMAT_JSON);
    text = report_of(s->t->lord, MEMLORD_FORMAT_TEXT);
    assert_true(json_valid(json));
    assert_non_null(strstr(json, "987654321"));
    assert_non_null(strstr(json, "grow_cache"));
    assert_non_null(strstr(text, "941.9 MiB")); /* 987654321 bytes */
    assert_non_null(strstr(text, "grow_cache"));
    metrics = report_of(s->t->lord, MEMLORD_FORMAT_PROMETHEUS);
    assert_non_null(strstr(metrics, "\n# TYPE memlord_last_oom_bytes gauge\n"
                                    "memlord_last_oom_bytes{device=\"cuda:0\","
                                    "site=\"grow_cache kv.c:77\"} 987654321\n"));
    assert_non_null(strstr(metrics, "\nmemlord_last_oom_live_bytes{device=\"cuda:0\","));
    assert_null(strstr(metrics, "memlord_last_oom_used_bytes")); /* no source can tell */
    free(json);
    free(text);
    free(metrics);
}

static void without_a_failure_the_reports_show_none(void **state) {
    stage *s = stage_of(state, "+");
    char *text, *metrics;
    assert_ok(request(s, 100, 1));
    text = report_of(s->t->lord, MEMLORD_FORMAT_TEXT);
    assert_null(strstr(text, "out of memory"));
    metrics = report_of(s->t->lord, MEMLORD_FORMAT_PROMETHEUS);
    assert_null(strstr(metrics, "last_oom"));
    free(text);
    free(metrics);
}

static void failing_allocations_are_an_emergency(void **state) {
    stage *s = stage_of(state, "0");
    assert_ok(memlord_limit_set(s->t->lord, cuda(0), 1000));
    assert_int_equal(memlord_pressure_level(s->t->lord, cuda(0)), MEMLORD_PRESSURE_NORMAL);
    assert_int_equal(request(s, 100, 1), MEMLORD_E_OOM);
    assert_int_equal(memlord_pressure_level(s->t->lord, cuda(0)), MEMLORD_PRESSURE_EMERGENCY);
    assert_int_not_equal(memlord_pressure_level(s->t->lord, cuda(1)), MEMLORD_PRESSURE_EMERGENCY);
    s = stage_of(state, "+");
    assert_ok(request(s, 100, 1));
    assert_int_equal(memlord_pressure_level(s->t->lord, cuda(0)), MEMLORD_PRESSURE_NORMAL);
}

static void a_recovery_is_no_emergency(void **state) {
    stage *s = stage_of(state, "0+");
    assert_ok(memlord_limit_set(s->t->lord, cuda(0), 1000));
    assert_ok(request(s, 100, 1));
    assert_int_equal(memlord_pressure_level(s->t->lord, cuda(0)), MEMLORD_PRESSURE_NORMAL);
}

/* -- an allocation that failed and is not tried again -- */

static void a_failed_alloc_is_an_attempt_and_a_failure(void **state) {
    test_case *t = (test_case *)*state;
    memlord_stats n;
    assert_ok(memlord_alloc_failed(t->lord, cuda(0), 100, NULL));
    n = stats_of(t->lord, cuda(0));
    assert_int_equal(n.oom_attempts, 1);
    assert_int_equal(n.oom_failures, 1);
    assert_int_equal(n.retries, 0);
    assert_int_equal(n.recoveries, 0);
    assert_int_equal(n.allocated, 0);
    assert_int_equal(n.dropped_allocs, 0);
    assert_int_equal(t->gc.runs, 0);
}

static void a_failed_alloc_is_the_last_failure_in_the_reports(void **state) {
    test_case *t = (test_case *)*state;
    static const memlord_site site = {"kv.c", "grow_cache", 77};
    char *text;
    hold(t);
    assert_ok(memlord_alloc_failed(t->lord, cuda(0), 987654321, &site));
    text = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "941.9 MiB"));
    assert_non_null(strstr(text, "grow_cache"));
    free(text);
}

static void a_failed_alloc_is_an_emergency(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1000));
    assert_ok(memlord_alloc_failed(t->lord, cuda(0), 100, NULL));
    assert_int_equal(memlord_pressure_level(t->lord, cuda(0)), MEMLORD_PRESSURE_EMERGENCY);
    assert_ok(request(stage_of(state, "+"), 100, 1));
    assert_int_equal(memlord_pressure_level(t->lord, cuda(0)), MEMLORD_PRESSURE_NORMAL);
}

static int count_oom(void *user, const memlord_event *event) {
    if (event->kind == MEMLORD_EVENT_OOM) *(uint64_t *)user += event->bytes;
    return 0;
}
static void a_failed_alloc_is_an_event(void **state) {
    memlord *lord = test_lord(state);
    uint64_t bytes = 0;
    assert_ok(memlord_events_start(lord, 16));
    assert_ok(memlord_alloc_failed(lord, cuda(0), 100, NULL));
    assert_ok(memlord_events_each(lord, count_oom, &bytes));
    assert_int_equal(bytes, 100);
}

static void failed_allocs_log_who_holds_the_device_once_a_second(void **state) {
    test_case *t = (test_case *)*state;
    hold(t);
    assert_ok(memlord_alloc_failed(t->lord, cuda(0), 100, NULL));
    assert_int_equal(lines_with(t->log.text, "weights"), 1);
    assert_int_equal(lines_with(t->log.text, "[oom] cuda:0"), 1);
    t->now += 999999999;
    assert_ok(memlord_alloc_failed(t->lord, cuda(0), 100, NULL));
    assert_int_equal(lines_with(t->log.text, "[oom]"), 1);
    t->now += 1;
    assert_ok(memlord_alloc_failed(t->lord, cuda(0), 100, NULL));
    assert_int_equal(lines_with(t->log.text, "[oom]"), 2);
    assert_int_equal(stats_of(t->lord, cuda(0)).oom_failures, 3);
}

/* A wrapped allocator that says so itself: memlord_alloc_retry counts what it sees. */
static int attempt_that_tells(void *user, uint64_t bytes, uint64_t *storage) {
    stage *s = (stage *)user;
    int answer = attempt(user, bytes, storage);
    if (answer) assert_ok(memlord_alloc_failed(s->t->lord, cuda(0), bytes, NULL));
    return answer;
}
static void inside_an_attempt_a_failed_alloc_is_not_counted_twice(void **state) {
    stage *s = stage_of(state, "0");
    memlord_retry policy = policy_of(s, 1);
    assert_int_equal(memlord_alloc_retry(s->t->lord, cuda(0), 8, attempt_that_tells, s, &policy,
                                         &got, NULL),
                     MEMLORD_E_OOM);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).oom_attempts, 2);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).oom_failures, 1);
    assert_ok(memlord_alloc_failed(s->t->lord, cuda(0), 8, NULL));
    assert_int_equal(stats_of(s->t->lord, cuda(0)).oom_failures, 2);
}

/* The attempt of one ledger says so to another, which counts it. */
static memlord *told;
static int attempt_that_tells_another(void *user, uint64_t bytes, uint64_t *storage) {
    (void)user;
    *storage = 0;
    assert_ok(memlord_alloc_failed(told, cuda(0), bytes, NULL));
    return -1;
}
static void inside_an_attempt_another_ledger_counts_a_failed_alloc(void **state) {
    test_case *t = (test_case *)*state;
    test_heap heap;
    memlord_desc desc;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, MEMLORD_FLAG_NO_THREADS);
    assert_ok(memlord_create(&desc, &told));
    assert_int_equal(memlord_alloc_retry(t->lord, cuda(0), 8, attempt_that_tells_another, NULL,
                                         NULL, &got, NULL),
                     MEMLORD_E_OOM);
    assert_int_equal(stats_of(told, cuda(0)).oom_failures, 1);
    memlord_destroy(told);
}

/* Has a request of its own, which ends, and then finds no memory. */
static int attempt_after_another(void *user, uint64_t bytes, uint64_t *storage) {
    stage *s = (stage *)user;
    uint64_t inner = 0;
    (void)storage;
    assert_ok(memlord_alloc_retry(s->t->lord, cuda(1), 8, attempt, s, NULL, &inner, NULL));
    assert_ok(memlord_alloc_failed(s->t->lord, cuda(0), bytes, NULL));
    return -1;
}
static void an_attempt_goes_on_after_a_request_within_it(void **state) {
    stage *s = stage_of(state, "+");
    assert_int_equal(memlord_alloc_retry(s->t->lord, cuda(0), 8, attempt_after_another, s, NULL,
                                         &got, NULL),
                     MEMLORD_E_OOM);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).oom_attempts, 1);
    assert_int_equal(stats_of(s->t->lord, cuda(0)).oom_failures, 1);
    assert_int_equal(memlord_allocated(s->t->lord, cuda(1)), 8);
}

static void a_failed_alloc_refuses_selectors_and_too_many_bytes(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_alloc_failed(lord, all(), 1, NULL), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_alloc_failed(lord, cuda(MEMLORD_ANY), 1, NULL), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_alloc_failed(lord, cuda(0), TEST_MAX_BYTES + 1, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(stats_of(lord, all()).oom_attempts, 0);
    assert_ok(memlord_alloc_failed(NULL, cuda(0), 1, NULL));
}

/* -- the environment -- */

/* A ledger made while MEMLORD_RETRY says `value`; answers its warnings. */
static uint64_t open_with(const char *value, uint32_t flags, test_case *t) {
    memlord_desc desc;
    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->log.lock, NULL);
    desc = test_desc(&t->heap, 0);
    desc.flags = flags | MEMLORD_FLAG_NO_THREADS;
    desc.logger.fn = test_log_line;
    desc.logger.user = &t->log;
    assert_int_equal(setenv("MEMLORD_RETRY", value, 1), 0);
    assert_ok(memlord_create(&desc, &t->lord));
    unsetenv("MEMLORD_RETRY");
    return t->log.lines[MEMLORD_LOG_WARNING] + t->log.lines[MEMLORD_LOG_ERROR];
}

static void close_env(test_case *t) {
    memlord_destroy(t->lord);
    assert_int_equal(t->heap.blocks, 0);
}

/* How many attempts the ledger's own policy makes: pauses of 0 ms are none. */
static int attempts_of(test_case *t, const char *answers) {
    void *state = t;
    stage *s = stage_of(&state, answers);
    got = 0xdead;
    (void)memlord_alloc_retry(t->lord, cuda(0), 10, attempt, s, NULL, &got, NULL);
    return s->calls;
}

static void the_environment_sets_the_policy(void **state) {
    static const struct {
        const char *value;
        int attempts;
    } good[] = {{"max=3,initial_ms=0,multiplier=2,max_ms=0", 4},
                {"max=0", 1},
                {"max_ms=0,multiplier=1,initial_ms=0,max=7", 8},
                {"initial_ms=0,max_ms=0", 6},
                {"max=1,initial_ms=0", 2},
                {"max=2,multiplier=1.25,initial_ms=0", 3},
                {"max=2,multiplier=1.00000000000000,initial_ms=0", 3},
                {"max=2,multiplier=3.,initial_ms=0", 3},
                {"max=1,initial_ms=0,max_ms=4294967295", 2}};
    static test_case t;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(open_with(good[i].value, 0, &t), 0);
        assert_int_equal(attempts_of(&t, "0"), good[i].attempts);
        close_env(&t);
    }
}

static void the_environment_sets_the_pauses(void **state) {
    static test_case t;
    struct timespec from, to;
    double ms;
    (void)state;
    assert_int_equal(open_with("max=3,initial_ms=20,multiplier=2.5,max_ms=60", 0, &t), 0);
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    assert_int_equal(attempts_of(&t, "0"), 4);
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    close_env(&t);
    ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6;
    assert_true(ms >= 20 + 50 + 60);
    assert_true(ms < 1500);
}

static void a_policy_of_127_characters_is_the_longest(void **state) {
    static test_case t;
    char value[256] = "";
    (void)state;
    while (strlen(value) < 114) strcat(value, "max=7,");
    strcat(value, "initial_ms=00");
    assert_int_equal(strlen(value), 127);
    assert_int_equal(open_with(value, 0, &t), 0);
    assert_int_equal(attempts_of(&t, "0"), 8);
    close_env(&t);
    strcat(value, "0");
    assert_int_equal(open_with(value, 0, &t), 1);
    close_env(&t);
}

static void a_policy_given_to_the_call_wins_over_the_environment(void **state) {
    static test_case t;
    void *other = &t;
    stage *s;
    (void)state;
    assert_int_equal(open_with("max=0", 0, &t), 0);
    s = stage_of(&other, "0");
    assert_int_equal(request(s, 10, 2), MEMLORD_E_OOM);
    assert_int_equal(s->calls, 3);
    close_env(&t);
}

static void junk_in_the_environment_is_warned_of(void **state) {
    static const char *const junk[] = {
        "junk", "max", "max=", "=3", "max=-1", "max=5x", "max= ", "max=99999999999999999999",
        "max=4294967296", "max=00000000004", "initial_ms=100,max_ms=50", "initial_ms=3000", "multiplier=nan",
        "multiplier=inf", "multiplier=0.5", "multiplier=-2", "multiplier=1e999", "multiplier=x",
        "multiplier=1,5", "retries=3", "max=1,,", "max=1,",
        "multiplier=1.000000000000000", "multiplier=.",
        "max=1,max", "max=1;initial_ms=0", "MAX=1x",
        "max=0x", "max=1,initial_ms=0,multiplier=2,max_ms=0,%n%s", "\xff\xfe"};
    static test_case t;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof junk / sizeof junk[0]; i++) {
        if (open_with(junk[i], 0, &t) != 1)
            fail_msg("not one warning of MEMLORD_RETRY=%s", junk[i]);
        assert_non_null(strstr(t.log.text, "MEMLORD_RETRY"));
        close_env(&t);
    }
}

/* A cap under the default first pause is refused for a reason that the syntax does not show. */
static void a_refused_policy_is_told_which_numbers_are_allowed(void **state) {
    static const char *const refused[] = {"max_ms=10", "max=3,initial_ms=100,max_ms=50",
                                          "multiplier=0.5"};
    static test_case t;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(open_with(refused[i], 0, &t), 1);
        assert_non_null(strstr(t.log.text, "initial_ms at most max_ms and multiplier at least 1"));
        close_env(&t);
    }
}

static void junk_of_any_length_is_warned_of(void **state) {
    static test_case t;
    static char value[5000];
    (void)state;
    memset(value, ',', sizeof value - 1);
    memcpy(value, "max=0", 5);
    assert_int_equal(open_with(value, 0, &t), 1);
    close_env(&t);
}

/* One pause of 50 ms in earnest: the default policy is in force again. */
static void of_what_is_partly_junk_nothing_is_applied(void **state) {
    static test_case t;
    (void)state;
    assert_int_equal(open_with("max=0,initial_ms=0,multiplier=x", 0, &t), 1);
    assert_int_equal(attempts_of(&t, "0+"), 2);
    close_env(&t);
}

static void the_flag_ignores_the_environment(void **state) {
    static test_case t;
    (void)state;
    assert_int_equal(open_with("junk", MEMLORD_FLAG_NO_ENV, &t), 0);
    close_env(&t);
    assert_int_equal(open_with("max=0", MEMLORD_FLAG_NO_ENV, &t), 0);
    assert_int_equal(attempts_of(&t, "0+"), 2);
    close_env(&t);
}

static void a_locale_with_a_comma_changes_nothing(void **state) {
    static test_case t;
    (void)state;
    TEST_COMMA();
    assert_int_equal(open_with("max=1,initial_ms=0,multiplier=1.5", 0, &t), 0);
    setlocale(LC_ALL, "C");
    assert_int_equal(attempts_of(&t, "0"), 2);
    close_env(&t);
}

/* -- waiting in earnest, for another thread -- */

enum { BY_FREE, BY_RETIRE, BY_ARENA, BY_MOVE, IN_THE_ATTEMPT };

typedef struct waiter {
    stage *s;
    memlord *lord;
    int how;
    int fence_done;
    int stop;
} waiter;

static int ask_waiter(void *user) {
    return __atomic_load_n(&((waiter *)user)->fence_done, __ATOMIC_ACQUIRE);
}

/* Gives 100 bytes back in ten pieces, once the request has failed for the first time: perhaps
   before it sleeps, perhaps while it does. */
static void *give_enough(void *user) {
    waiter *w = (waiter *)user;
    struct timespec nap = {0, 1000000};
    memlord_device device = memlord_device_cuda(0);
    memlord_device there = memlord_device_make(MEMLORD_DEVICE_NPU, 0);
    uint64_t i;
    while (!__atomic_load_n(&w->s->calls, __ATOMIC_ACQUIRE)) nanosleep(&nap, NULL);
    __atomic_store_n(&w->fence_done, 1, __ATOMIC_RELEASE);
    if (w->how == BY_RETIRE) memlord_retire(w->lord, memlord_device_all());
    for (i = 0; i < 10; i++) {
        uint64_t key = 0x1000 + i * 64;
        if (w->how == BY_FREE) (void)memlord_free(w->lord, device, key, NULL);
        if (w->how == BY_ARENA) (void)memlord_arena_sub(w->lord, device, 10, NULL);
        if (w->how == BY_MOVE)
            (void)memlord_move(w->lord, device, key, there, key, 10, NULL, NULL);
    }
    return NULL;
}

static waiter the_waiter;

/* Fails once, having seen too little; before it says so another thread frees enough. */
static int fail_too_late(void *user, uint64_t bytes, uint64_t *storage) {
    stage *s = (stage *)user;
    pthread_t thread;
    int answer = attempt(user, bytes, storage);
    if (answer) {
        the_waiter.how = BY_FREE;
        if (pthread_create(&thread, NULL, give_enough, &the_waiter)) return -1;
        if (pthread_join(thread, NULL)) return -1;
        s->answers = "+";
    }
    return answer;
}

static void wait_for(stage *s, int how) {
    memlord_retry policy = policy_of(s, 1);
    struct timespec start, end;
    pthread_t thread;
    waiter *w = &the_waiter;
    uint64_t i;
    memset(w, 0, sizeof *w);
    w->s = s;
    w->lord = s->t->lord;
    w->how = how;
    policy.initial_ms = policy.max_ms = 20000;
    policy.sleep_ms = NULL;
    s->answers = "0+";
    if (how == BY_ARENA) assert_ok(memlord_arena_add(w->lord, cuda(0), 100, NULL));
    for (i = 0; i < 10 && how != BY_ARENA; i++) {
        assert_ok(memlord_alloc(w->lord, cuda(0), 0x1000 + i * 64, 10, NULL));
        if (how == BY_RETIRE) {
            memlord_fence fence;
            memset(&fence, 0, sizeof fence);
            fence.done = ask_waiter;
            fence.user = w;
            assert_ok(memlord_free_deferred(w->lord, cuda(0), 0x1000 + i * 64, fence, NULL));
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (how != IN_THE_ATTEMPT)
        assert_int_equal(pthread_create(&thread, NULL, give_enough, w), 0);
    assert_ok(memlord_alloc_retry(w->lord, cuda(0), 100,
                                  how == IN_THE_ATTEMPT ? fail_too_late : attempt, s, &policy,
                                  &got, NULL));
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (how != IN_THE_ATTEMPT) assert_int_equal(pthread_join(thread, NULL), 0);
    memlord_retire(w->lord, all());
    assert_true(end.tv_sec - start.tv_sec < 10);
    assert_int_equal(memlord_allocated(w->lord, cuda(0)), 100);
}

static void a_free_of_another_thread_wakes_who_waits(void **state) {
    wait_for(stage_of(state, NULL), BY_FREE);
}

static void a_retire_of_another_thread_wakes_who_waits(void **state) {
    wait_for(stage_of(state, NULL), BY_RETIRE);
}

static void a_move_of_another_thread_wakes_who_waits(void **state) {
    wait_for(stage_of(state, NULL), BY_MOVE);
}

static void arena_bytes_of_another_thread_wake_who_waits(void **state) {
    wait_for(stage_of(state, NULL), BY_ARENA);
}

static void what_was_freed_during_the_attempt_needs_no_wait(void **state) {
    wait_for(stage_of(state, NULL), IN_THE_ATTEMPT);
}

static void *free_again_and_again(void *user) {
    waiter *w = (waiter *)user;
    struct timespec nap = {0, 1000000};
    while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
        (void)memlord_alloc(w->lord, memlord_device_cuda(0), 0x9000, 1 << 20, NULL);
        (void)memlord_free(w->lord, memlord_device_cuda(0), 0x9000, NULL);
        nanosleep(&nap, NULL);
    }
    return NULL;
}

static int never(void *user, uint64_t bytes, uint64_t *storage) {
    (void)bytes;
    (void)storage;
    __atomic_add_fetch((int *)user, 1, __ATOMIC_SEQ_CST);
    return 1;
}
static void *wait_to_be_cancelled(void *user) {
    waiter *w = (waiter *)user;
    memlord_retry policy = pauses(200, 1, 200);
    uint64_t storage;
    policy.max_retries = 1;
    (void)memlord_alloc_retry(w->lord, memlord_device_cuda(0), 10, never, &w->stop, &policy,
                              &storage, NULL);
    return NULL;
}

/* Waits in earnest: 200 ms, whose end the thread does not know it will not see. */
static void a_thread_cancelled_in_its_pause_leaves_nobody_waiting(void **state) {
    stage *s = stage_of(state, "-");
    pthread_t thread;
    waiter w;
    memset(&w, 0, sizeof w);
    w.lord = s->t->lord;
    assert_int_equal(pthread_create(&thread, NULL, wait_to_be_cancelled, &w), 0);
    while (!__atomic_load_n(&w.stop, __ATOMIC_SEQ_CST)) sched_yield();
    assert_int_equal(pthread_cancel(thread), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    alarm(60); /* a free would look for it, and wait for ever */
    assert_ok(memlord_alloc(w.lord, cuda(0), 0x9000, 1 << 20, NULL));
    assert_ok(memlord_free(w.lord, cuda(0), 0x9000, NULL));
    alarm(0);
}

/* Waits in earnest: a millisecond. */
static void after_a_pause_the_thread_can_be_cancelled_as_before(void **state) {
    stage *s = stage_of(state, "0");
    const memlord_retry policy = pauses(1, 1, 1);
    int before = -1;
    assert_int_equal(memlord_alloc_retry(s->t->lord, cuda(0), 10, attempt, s, &policy, &got, NULL),
                     MEMLORD_E_OOM);
    assert_int_equal(s->calls, 6);
    assert_int_equal(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before), 0);
    assert_int_equal(before, PTHREAD_CANCEL_ENABLE);
}

/* Frees on another thread keep the pauses short. */
static void a_null_policy_makes_six_attempts(void **state) {
    stage *s = stage_of(state, "0");
    pthread_t thread;
    waiter w;
    memset(&w, 0, sizeof w);
    w.lord = s->t->lord;
    assert_int_equal(pthread_create(&thread, NULL, free_again_and_again, &w), 0);
    assert_int_equal(memlord_alloc_retry(w.lord, cuda(0), 10, attempt, s, NULL, &got, NULL),
                     MEMLORD_E_OOM);
    __atomic_store_n(&w.stop, 1, __ATOMIC_RELEASE);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(s->calls, 6);
}

/* -- threads -- */

typedef struct racer {
    memlord *lord;
    pthread_barrier_t *start;
    uint64_t *in_use; /* of all, as the device itself would count it */
    uint64_t id, made, bad;
} racer;

static int make_one(void *user, uint64_t bytes, uint64_t *storage) {
    racer *r = (racer *)user;
    r->bad += __atomic_add_fetch(r->in_use, bytes, __ATOMIC_ACQ_REL) > 60;
    *storage = (r->id << 32) + ++r->made * 64;
    return 0;
}

static void *race_for_room(void *user) {
    racer *r = (racer *)user;
    memlord_retry policy = pauses(0, 1, 0);
    uint64_t storage, i, bytes = 10 + r->id;
    policy.max_retries = 0;
    pthread_barrier_wait(r->start);
    for (i = 0; i < 2000; i++) {
        memlord_result result = memlord_alloc_retry(r->lord, memlord_device_cuda(0), bytes,
                                                    make_one, r, &policy, &storage, NULL);
        if (result == MEMLORD_OK) {
            __atomic_sub_fetch(r->in_use, bytes, __ATOMIC_ACQ_REL);
            r->bad += memlord_free(r->lord, memlord_device_cuda(0), storage, NULL) != MEMLORD_OK;
        } else {
            r->bad += result != MEMLORD_E_LIMIT || storage != 0;
        }
    }
    return NULL;
}

/* Holds a ticket of 10 bytes. What it covers is never refused; what exceeds it may be. */
static void *race_with_a_ticket(void *user) {
    racer *r = (racer *)user;
    const memlord_device device = memlord_device_cuda(0);
    memlord_retry policy = pauses(0, 1, 0);
    memlord_ticket ticket = 0;
    uint64_t storage, i;
    policy.max_retries = 0;
    pthread_barrier_wait(r->start);
    for (i = 0; i < 1000; i++) {
        const uint64_t bytes = i % 2 ? 4 : 18;
        memlord_result result;
        if (!ticket && memlord_reserve(r->lord, device, 10, &ticket)) continue;
        sched_yield(); /* others take the room that is left */
        result = memlord_alloc_retry(r->lord, device, bytes, make_one, r, &policy, &storage, NULL);
        r->bad += result != MEMLORD_OK && (bytes <= 10 || result != MEMLORD_E_LIMIT);
        if (result == MEMLORD_OK) {
            __atomic_sub_fetch(r->in_use, bytes, __ATOMIC_ACQ_REL);
            r->bad += memlord_free(r->lord, device, storage, NULL) != MEMLORD_OK;
            r->bad += memlord_reserve_commit(r->lord, ticket) != MEMLORD_OK;
            ticket = 0;
        }
    }
    if (ticket) r->bad += memlord_reserve_commit(r->lord, ticket) != MEMLORD_OK;
    return NULL;
}

static void race(test_case *t, void *(*fn)(void *)) {
    racer racers[8];
    pthread_t threads[8];
    pthread_barrier_t start;
    uint64_t i, in_use = 0, made = 0;
    assert_int_equal(pthread_barrier_init(&start, NULL, 8), 0);
    assert_ok(memlord_gc_callback_remove(t->lord, any(MEMLORD_DEVICE_CUDA), test_gc_run, &t->gc));
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1000));
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 940, NULL));
    memset(racers, 0, sizeof racers);
    for (i = 0; i < 8; i++) {
        racers[i].lord = t->lord;
        racers[i].start = &start;
        racers[i].in_use = &in_use;
        racers[i].id = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, fn, &racers[i]), 0);
    }
    for (i = 0; i < 8; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(racers[i].bad, 0);
        made += racers[i].made;
    }
    pthread_barrier_destroy(&start);
    assert_true(made > 0);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 60);
    assert_balanced(t->lord, cuda(0));
}

static void threads_never_pass_the_limit(void **state) {
    race((test_case *)*state, race_for_room);
}

static void threads_with_tickets_never_pass_the_limit(void **state) {
    race((test_case *)*state, race_with_a_ticket);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_default_pauses_grow_by_half_and_are_cut),
        TEST(the_number_of_the_attempt_may_be_huge),
        TEST(a_pause_is_never_over_the_maximum),
        TEST(a_policy_is_checked),
        TEST(a_bad_policy_is_refused_before_any_attempt),
        TEST(what_the_first_attempt_makes_is_recorded),
        TEST(it_is_recorded_with_site_and_tag),
        TEST(there_are_as_many_attempts_as_retries_and_one),
        TEST(the_pauses_go_through_the_injected_sleep),
        TEST(a_success_ends_it),
        TEST(it_gives_up_when_told),
        TEST(giving_up_at_once_collects_nothing),
        TEST(a_failure_leaves_storage_0_and_records_nothing),
        TEST(attempts_and_requests_are_counted_apart),
        TEST(rates_are_of_requests),
        TEST(a_reset_starts_the_counts_over),
        TEST(bad_arguments_reach_no_attempt),
        TEST(sizes_of_0_and_of_the_most_are_legal),
        TEST(an_attempt_that_lies_about_its_storage_is_not_recorded),
        TEST(after_a_lie_it_tries_again),
        TEST(each_round_retires_collects_and_pauses_in_this_order),
        TEST(a_deferred_free_is_retired_before_the_retry),
        TEST(the_collection_is_told_why_and_how_much),
        TEST(a_collection_that_makes_room_saves_the_request),
        TEST(a_collection_that_could_not_run_ends_nothing),
        TEST(bands_switched_off_leave_it_collecting),
        TEST(a_device_without_callbacks_retries_all_the_same),
        TEST(an_attempt_may_call_the_ledger),
        TEST(a_sleep_may_call_the_ledger),
        TEST(a_collection_may_run_out_of_memory_itself),
        TEST_DEFER(with_defer_it_is_a_safe_point),
        TEST(over_the_limit_no_attempt_is_made),
        TEST(over_the_limit_it_collects_once_and_says_why),
        TEST(a_collection_that_makes_room_lets_it_through),
        TEST(a_deferred_free_that_makes_room_lets_it_through),
        TEST(what_just_fits_is_let_through_and_counted_once),
        TEST(a_failed_request_gives_its_room_back),
        TEST(what_it_makes_is_charged_to_the_account_in_use),
        TEST(a_request_that_its_ticket_covers_needs_no_room),
        TEST(a_request_comes_off_its_ticket),
        TEST(a_request_comes_off_several_tickets),
        TEST(only_what_exceeds_the_ticket_must_fit),
        TEST(a_failed_request_is_not_short_of_what_its_ticket_holds),
        TEST(a_request_comes_off_an_adopted_ticket),
        TEST(a_ticket_that_another_thread_adopted_covers_nothing),
        TEST(a_request_that_fails_leaves_its_ticket_as_it_was),
        TEST(a_collection_may_make_room_for_what_exceeds_the_ticket),
        TEST(an_alloc_inside_an_attempt_does_not_draw_on_its_bytes),
        TEST(a_ticket_that_closes_meanwhile_gets_nothing_back),
        TEST(what_another_thread_reserved_is_not_there),
        TEST(the_host_never_loses_a_storage),
        TEST(a_null_ledger_makes_one_attempt),
        TEST(the_last_failure_logs_who_holds_the_device),
        TEST(the_last_failure_samples_the_device_first),
        TEST(a_refusal_by_the_limit_logs_who_holds_the_device),
        TEST(a_refusal_by_the_limit_samples_what_is_old),
        TEST(a_recovery_logs_no_failure),
        TEST(the_last_failure_is_in_the_reports),
        TEST(without_a_failure_the_reports_show_none),
        TEST(failing_allocations_are_an_emergency),
        TEST(a_recovery_is_no_emergency),
        TEST(a_failed_alloc_is_an_attempt_and_a_failure),
        TEST(a_failed_alloc_is_the_last_failure_in_the_reports),
        TEST(a_failed_alloc_is_an_emergency),
        TEST(a_failed_alloc_is_an_event),
        TEST(failed_allocs_log_who_holds_the_device_once_a_second),
        TEST(inside_an_attempt_a_failed_alloc_is_not_counted_twice),
        TEST(inside_an_attempt_another_ledger_counts_a_failed_alloc),
        TEST(an_attempt_goes_on_after_a_request_within_it),
        TEST(a_failed_alloc_refuses_selectors_and_too_many_bytes),
        TEST(the_environment_sets_the_policy),
        TEST(the_environment_sets_the_pauses),
        TEST(a_policy_of_127_characters_is_the_longest),
        TEST(a_policy_given_to_the_call_wins_over_the_environment),
        TEST(junk_in_the_environment_is_warned_of),
        TEST(a_refused_policy_is_told_which_numbers_are_allowed),
        TEST(junk_of_any_length_is_warned_of),
        TEST(of_what_is_partly_junk_nothing_is_applied),
        TEST(the_flag_ignores_the_environment),
        TEST(a_locale_with_a_comma_changes_nothing),
        TEST_CLOCK(a_free_of_another_thread_wakes_who_waits),
        TEST_CLOCK(a_retire_of_another_thread_wakes_who_waits),
        TEST_CLOCK(a_move_of_another_thread_wakes_who_waits),
        TEST_CLOCK(arena_bytes_of_another_thread_wake_who_waits),
        TEST_CLOCK(what_was_freed_during_the_attempt_needs_no_wait),
        TEST_CLOCK(a_null_policy_makes_six_attempts),
        TEST_CLOCK(a_thread_cancelled_in_its_pause_leaves_nobody_waiting),
        TEST_CLOCK(after_a_pause_the_thread_can_be_cancelled_as_before),
        TEST(threads_never_pass_the_limit),
        TEST(threads_with_tickets_never_pass_the_limit),
    };
    return cmocka_run_group_tests_name("retry", tests, NULL, NULL);
}
