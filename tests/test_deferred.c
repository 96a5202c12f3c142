/* Deferred frees: memory the device still uses stays counted until its fences are done, and
   every fence that was taken is dropped once, whatever happens to its block. */
#include "support.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- fences that say what happened to them -- */

typedef struct fake fake;
struct fake {
    int answer;        /* of done: 1, 0 or -1 */
    int after;         /* done becomes 1 by itself after so many calls; 0: never */
    int asked;         /* calls of done */
    int inside;        /* calls of done under way */
    int dropped;
    int bad;           /* done after drop, or drop while done runs */
    int taken;         /* by the ledger, which therefore owes one drop */
    uint64_t bytes;    /* of the block, for the tests with a model */
    pthread_t thread;  /* of the latest done */
    void (*in_done)(fake *f);
    void (*in_drop)(fake *f);
    memlord *lord;     /* for these two */
    int order;         /* 1 for the first that was dropped, 2, ... */
};

#define FAKES 8192
static fake fakes[FAKES];
static size_t fakes_used;
static int drops; /* of all of them */

static int get(const int *number) { return __atomic_load_n(number, __ATOMIC_ACQUIRE); }
static int add(int *number, int n) { return __atomic_add_fetch(number, n, __ATOMIC_ACQ_REL); }
static void set(int *number, int n) { __atomic_store_n(number, n, __ATOMIC_RELEASE); }

static int fake_done(void *user) {
    fake *f = (fake *)user;
    int asked, answer;
    add(&f->inside, 1);
    if (get(&f->dropped)) add(&f->bad, 1);
    f->thread = pthread_self();
    asked = add(&f->asked, 1);
    if (f->in_done) f->in_done(f);
    answer = f->after && asked >= f->after ? 1 : get(&f->answer);
    if (get(&f->dropped)) add(&f->bad, 1);
    add(&f->inside, -1);
    return answer;
}

static void fake_drop(void *user) {
    fake *f = (fake *)user;
    if (get(&f->inside)) add(&f->bad, 1);
    f->order = add(&drops, 1);
    add(&f->dropped, 1);
    if (f->in_drop) f->in_drop(f);
}

static fake *fake_new(int answer) {
    fake *f;
    assert_true(fakes_used < FAKES);
    f = &fakes[fakes_used++];
    memset(f, 0, sizeof *f);
    f->answer = answer;
    return f;
}

static memlord_fence fence_of(fake *f, uint64_t queue) {
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    fence.done = fake_done;
    fence.user = f;
    fence.queue = queue;
    fence.drop = fake_drop;
    return fence;
}

static memlord_result defer(memlord *lord, memlord_device device, uint64_t key, fake *f,
                            uint64_t queue) {
    memlord_result r = memlord_free_deferred(lord, device, key, fence_of(f, queue), NULL);
    f->taken = r == MEMLORD_OK;
    return r;
}

static memlord_result use(memlord *lord, memlord_device device, uint64_t key, fake *f,
                          uint64_t queue) {
    memlord_result r = memlord_block_use(lord, device, key, fence_of(f, queue));
    f->taken = r == MEMLORD_OK;
    return r;
}

/* A block that ends up pending on a fence of its own. */
static fake *pend(memlord *lord, memlord_device device, uint64_t key, uint64_t bytes,
                  uint64_t queue) {
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, device, key, bytes, NULL));
    assert_ok(defer(lord, device, key, f, queue));
    f->bytes = bytes;
    return f;
}

static int reset_fakes(void **state) {
    (void)state;
    fakes_used = 0;
    drops = 0;
    return 0;
}

static int setup(void **state) { return reset_fakes(state) || test_open(state, 0); }
static int setup_sites(void **state) {
    return reset_fakes(state) || test_open(state, MEMLORD_FLAG_SITES);
}
static int setup_clock(void **state) { /* it stands still */
    return reset_fakes(state) || test_open_fakes(state, MEMLORD_FLAG_NO_THREADS);
}
static int setup_poller(void **state) {
    return reset_fakes(state) || test_open_fakes(state, 0);
}
static int setup_defer(void **state) {
    return reset_fakes(state) || test_open(state, MEMLORD_FLAG_DEFER);
}

/* Every fence that was taken was dropped once and left alone afterwards; no other was. */
static int fakes_left(void) {
    size_t i;
    int left = 0;
    for (i = 0; i < fakes_used; i++) {
        const fake *f = &fakes[i];
        if (f->dropped == f->taken && !f->bad) continue;
        if (!left++)
            print_error("fence %d: taken %d, dropped %d, %d calls too late\n", (int)i, f->taken,
                        f->dropped, f->bad);
    }
    return left;
}

static int teardown(void **state) {
    int left = test_teardown(state);
    return fakes_left() ? -1 : left;
}

#undef TEST
#undef TEST_DEFER
#undef TEST_SITES
#define TEST_CLOCK(name) cmocka_unit_test_setup_teardown(name, setup_clock, teardown)
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TEST_DEFER(name) cmocka_unit_test_setup_teardown(name, setup_defer, teardown)
#define TEST_SITES(name) cmocka_unit_test_setup_teardown(name, setup_sites, teardown)

/* -- live, pending, freed -- */

static void a_pending_block_is_still_allocated(void **state) {
    memlord *lord = test_lord(state);
    pend(lord, cuda(0), 0x1000, 100, 1);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 100);
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    assert_int_equal(memlord_freed(lord, cuda(0)), 0);
    assert_int_equal(stats_of(lord, cuda(0)).pending, 100);
    assert_balanced(lord, cuda(0));
}

static void it_is_credited_when_its_fence_is_done(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    assert_int_equal(memlord_retire(lord, cuda(0)), 0);
    f->answer = 1;
    assert_int_equal(memlord_retire(lord, cuda(0)), 100);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    assert_int_equal(memlord_freed(lord, cuda(0)), 100);
    assert_int_equal(stats_of(lord, cuda(0)).frees, 1);
    assert_int_equal(f->dropped, 1);
    assert_balanced(lord, cuda(0));
}

static void blocks_opened_and_closed_differ_by_those_live(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 1, NULL));
    s = stats_of(lord, cuda(0));
    assert_int_equal(s.allocs - s.frees, s.live_blocks);
    f->answer = 1;
    memlord_retire(lord, all());
    s = stats_of(lord, cuda(0));
    assert_int_equal(s.allocs - s.frees, s.live_blocks);
    assert_int_equal(s.live_blocks, 1);
}

static void pending_bytes_count_in_the_peak(void **state) {
    memlord *lord = test_lord(state);
    pend(lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 100, NULL));
    assert_int_equal(memlord_peak(lord, cuda(0)), 200);
}

static void done_is_called_once_by_the_free_on_its_thread(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    assert_int_equal(f->asked, 1);
    assert_true(pthread_equal(f->thread, pthread_self()));
}

static void a_fence_done_at_once_is_credited_at_once(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(defer(lord, cuda(0), 0x1000, f, 1));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    assert_int_equal(memlord_freed(lord, cuda(0)), 100);
    assert_int_equal(f->asked, 1);
    assert_int_equal(f->dropped, 1);
}

static void a_fence_without_a_drop_is_legal(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    memlord_fence fence = fence_of(f, 1);
    fence.drop = NULL;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_free_deferred(lord, cuda(0), 0x1000, fence, NULL));
    f->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
}

/* Defers the free of another block, with a fence that is done and whose drop does the same. */
static void defer_again(fake *f) {
    const uint64_t key = 0x1000 * (fakes_used + 1);
    fake *next = fake_new(1);
    next->in_drop = defer_again;
    next->lord = f->lord;
    assert_ok(memlord_alloc(f->lord, cuda(0), key, 100, NULL));
    assert_ok(defer(f->lord, cuda(0), key, next, 1));
}
static void a_drop_that_defers_another_free_is_no_endless_retire(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    const int before = drops;
    f->answer = 1;
    f->in_drop = defer_again;
    f->lord = lord;
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_int_equal(drops - before, 1);
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_int_equal(drops - before, 2);
    fakes[fakes_used - 1].in_drop = NULL;
}

static void the_index_of_a_deferred_free_is_ignored(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(3), 0x1000, 100, NULL));
    assert_ok(defer(lord, cuda(0), 0x1000, f, 1));
    assert_int_equal(memlord_pending(lord, cuda(3)), 100);
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
}

static void a_block_of_0_bytes_can_be_pending(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 0, 1);
    f->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_int_equal(f->dropped, 1);
    assert_int_equal(stats_of(lord, all()).live_blocks, 0);
    assert_int_equal(stats_of(lord, all()).frees, 1);
}

/* -- the host says that the device is done -- */

static void free_done_ends_a_pending_block(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(1), 0x1000, 100, 1);
    fake *later = pend(lord, cuda(1), 0x2000, 20, 1); /* of the same queue */
    assert_ok(memlord_free_done(lord, cuda(0), 0x2000)); /* the index is ignored */
    assert_int_equal(memlord_pending(lord, cuda(1)), 100);
    assert_int_equal(memlord_allocated(lord, cuda(1)), 100);
    assert_int_equal(memlord_freed(lord, cuda(1)), 20);
    assert_int_equal(stats_of(lord, cuda(1)).fence_failures, 0);
    assert_int_equal(later->dropped, 1);
    f->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
}

static void free_done_ends_a_block_that_its_uses_keep(void **state) {
    memlord *lord = test_lord(state);
    fake *first = fake_new(0), *second = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, first, 1));
    assert_ok(use(lord, cuda(0), 0x1000, second, 2));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    assert_ok(memlord_free_done(lord, cuda(0), 0x1000));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(first->dropped + second->dropped, 2);
}

static void free_done_of_what_is_not_pending_changes_nothing(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_int_equal(memlord_free_done(lord, cuda(0), 0x1000), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_free_done(lord, cuda(0), 0x2000), MEMLORD_E_UNKNOWN);
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_int_equal(memlord_free_done(lord, cuda(0), 0x1000), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 100);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_int_equal(memlord_free_done(lord, cuda(0), 0), MEMLORD_E_INVALID);
    assert_int_equal(memlord_free_done(lord, all(), 0x1000), MEMLORD_E_DEVICE);
    assert_int_equal(stats_of(lord, all()).refused, 2);
    assert_ok(memlord_free_done(NULL, cuda(0), 0x1000));
}

static int done_by_the_fence(void *user) {
    memlord **lord = (memlord **)user;
    return memlord_free_done(*lord, cuda(0), 0x1000) == MEMLORD_OK ? 1 : -1;
}
static void a_fence_may_say_it_itself(void **state) {
    memlord *lord = test_lord(state);
    memlord_fence fence = {done_by_the_fence, NULL, 1, NULL};
    fence.user = &lord;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_free_deferred(lord, cuda(0), 0x1000, fence, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(stats_of(lord, all()).frees, 1);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
    assert_int_equal(memlord_retire(lord, all()), 0);
}

static void free_done_under_defer_leaves_its_fence_to_a_safe_point(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_free_done(lord, cuda(0), 0x1000));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(f->asked + f->dropped, 0);
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_int_equal(f->asked, 0);
    assert_int_equal(f->dropped, 1);
}

/* -- failures -- */

static void a_fence_that_fails_retires_and_is_counted(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(1), 0x1000, 100, 1);
    f->answer = -1;
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_int_equal(memlord_allocated(lord, cuda(1)), 0);
    assert_int_equal(stats_of(lord, cuda(1)).fence_failures, 1);
    assert_int_equal(stats_of(lord, cuda(0)).fence_failures, 0);
    assert_int_equal(f->dropped, 1);
}

static void a_fence_that_fails_in_the_free_is_counted(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(-1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(defer(lord, cuda(0), 0x1000, f, 1));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(stats_of(lord, cuda(0)).fence_failures, 1);
}

static void a_failed_fence_does_not_hold_up_its_queue(void **state) {
    memlord *lord = test_lord(state);
    fake *first = pend(lord, cuda(0), 0x1000, 100, 1);
    fake *second = pend(lord, cuda(0), 0x2000, 20, 1);
    first->answer = -1;
    second->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 120);
}

/* Returns the first of two adjacent keys whose allocs were dropped. Memory is still scarce. */
static uint64_t drop_two(test_case *t) {
    uint64_t key = (uint64_t)1 << 40;
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    while (memlord_alloc(t->lord, cuda(0), key, 1, NULL) == MEMLORD_OK) key += 1u << 21;
    assert_int_equal(memlord_alloc(t->lord, cuda(0), key + 1, 1, NULL), MEMLORD_E_NOMEM);
    return key;
}
static void the_deferred_free_of_a_dropped_storage_drops_its_fence(void **state) {
    test_case *t = (test_case *)*state;
    const uint64_t key = drop_two(t);
    fake *scarce = fake_new(0), *f = fake_new(0);
    assert_ok(defer(t->lord, cuda(0), key, scarce, 1));
    t->heap.fail_at = 0;
    assert_ok(defer(t->lord, cuda(0), key + 1, f, 1));
    assert_int_equal(scarce->dropped + f->dropped, 2);
    assert_int_equal(scarce->asked + f->asked, 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).unknown_frees, 0);
    assert_int_equal(defer(t->lord, cuda(0), key, f, 1), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(t->lord, cuda(0)).unknown_frees, 1);
    f->taken = 1;
}
static void under_defer_it_drops_the_fence_at_a_safe_point(void **state) {
    test_case *t = (test_case *)*state;
    const uint64_t key = drop_two(t);
    fake *f = fake_new(0);
    t->heap.fail_at = 0;
    assert_ok(defer(t->lord, cuda(0), key, f, 1));
    assert_int_equal(f->dropped, 0);
    assert_int_equal(memlord_retire(t->lord, all()), 0);
    assert_int_equal(f->dropped, 1);
    assert_int_equal(f->asked, 0);
}

static void bad_arguments_take_no_fence_and_change_nothing(void **state) {
    memlord *lord = test_lord(state);
    memlord_device bad = memlord_device_make(MEMLORD_DEVICE_TYPE_COUNT, 0);
    memlord_fence none;
    memlord_stats before, after;
    fake *f = fake_new(1);
    memset(&none, 0, sizeof none);
    none.drop = fake_drop;
    none.user = f;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    before = stats_of(lord, all());
    assert_int_equal(memlord_free_deferred(lord, cuda(0), 0x1000, none, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_block_use(lord, cuda(0), 0x1000, none), MEMLORD_E_INVALID);
    assert_int_equal(defer(lord, bad, 0x1000, f, 1), MEMLORD_E_DEVICE);
    assert_int_equal(use(lord, bad, 0x1000, f, 1), MEMLORD_E_DEVICE);
    assert_int_equal(defer(lord, cuda(0), UINT64_MAX, f, 1), MEMLORD_E_INVALID);
    assert_int_equal(use(lord, cuda(0), UINT64_MAX, f, 1), MEMLORD_E_INVALID);
    assert_int_not_equal(use(lord, cuda(0), 0, f, 1), MEMLORD_OK);
    after = stats_of(lord, all());
    assert_same_books(&before, &after);
    assert_int_equal(f->asked, 0);
    assert_int_equal(f->dropped, 0);
}

static void an_unknown_storage_takes_no_fence(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(1);
    assert_int_equal(defer(lord, cuda(2), 0x1000, f, 1), MEMLORD_E_UNKNOWN);
    assert_int_equal(use(lord, cuda(2), 0x1000, f, 1), MEMLORD_E_UNKNOWN);
    assert_true(stats_of(lord, cuda(2)).unknown_frees >= 1);
    assert_int_equal(f->asked, 0);
    assert_int_equal(f->dropped, 0);
}

static void storage_0_is_a_no_op_and_drops_the_fence(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    assert_ok(defer(lord, cuda(0), 0, f, 1));
    assert_int_equal(f->dropped, 1);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

static void a_null_ledger_drops_what_it_is_given(void **state) {
    fake *freed = fake_new(0), *used = fake_new(0), *moved = fake_new(0);
    memlord_fence fence = fence_of(moved, 1);
    (void)state;
    assert_ok(defer(NULL, cuda(0), 0x1000, freed, 1));
    assert_ok(use(NULL, cuda(0), 0x1000, used, 1));
    assert_ok(memlord_move(NULL, cuda(0), 0x1000, cpu(), 0x2000, 8, &fence, NULL));
    moved->taken = 1;
    assert_int_equal(freed->dropped, 1);
    assert_int_equal(used->dropped, 1);
    assert_int_equal(moved->dropped, 1);
    assert_int_equal(memlord_retire(NULL, all()), 0);
}

/* -- a pending storage is dead -- */

static void a_pending_storage_is_dead_to_free(void **state) {
    memlord *lord = test_lord(state);
    memlord_block block;
    pend(lord, cuda(0), 0x1000, 100, 1);
    assert_int_equal(memlord_free(lord, cuda(0), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    block.device = cuda(0);
    block.storage = 0x1000;
    block.bytes = 0;
    assert_int_equal(memlord_free_n(lord, &block, 1, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 100);
    assert_int_equal(stats_of(lord, cuda(0)).unknown_frees, 2);
}

static void a_pending_storage_is_dead_to_release(void **state) {
    memlord *lord = test_lord(state);
    memlord_block block;
    pend(lord, cuda(0), 0x1000, 100, 1);
    assert_int_equal(memlord_release(lord, cuda(0), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    block.device = cuda(0);
    block.storage = 0x1000;
    block.bytes = 0;
    assert_int_equal(memlord_release_n(lord, &block, 1, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    assert_int_equal(stats_of(lord, cuda(0)).unknown_frees, 2);
}

static void a_pending_storage_is_dead_to_retain(void **state) {
    memlord *lord = test_lord(state);
    pend(lord, cuda(0), 0x1000, 100, 1);
    assert_int_equal(memlord_retain(lord, cuda(0), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
}

static void a_pending_storage_is_dead_to_use(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    pend(lord, cuda(0), 0x1000, 100, 1);
    assert_int_equal(use(lord, cuda(0), 0x1000, f, 2), MEMLORD_E_UNKNOWN);
    assert_int_equal(f->dropped, 0);
}

static void a_pending_storage_is_dead_to_a_second_deferred_free(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0), *first = pend(lord, cuda(0), 0x1000, 100, 1);
    assert_int_equal(defer(lord, cuda(0), 0x1000, f, 2), MEMLORD_E_UNKNOWN);
    assert_int_equal(f->asked, 0);
    assert_int_equal(first->dropped, 0);
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    assert_int_equal(stats_of(lord, cuda(0)).unknown_frees, 1);
}

static void a_pending_storage_is_dead_to_move_and_realloc(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    pend(lord, cuda(0), 0x1000, 100, 1);
    assert_int_equal(memlord_move(lord, cuda(0), 0x1000, cpu(), 0x2000, 100, NULL, NULL),
                     MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    assert_int_equal(memlord_realloc_begin(lord, cuda(0), 0x1000, &token), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_realloc_end(lord, &token, 0, 0, NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
}

static void a_storage_that_was_retired_is_unknown(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    f->answer = 1;
    memlord_retire(lord, all());
    assert_int_equal(memlord_free(lord, cuda(0), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_freed(lord, cuda(0)), 100);
}

/* -- its address is used again -- */

static void assert_completed(memlord *lord, const fake *f, uint64_t now) {
    assert_int_equal(f->dropped, 1);
    assert_int_equal(memlord_pending(lord, all()), 0);
    assert_int_equal(memlord_allocated(lord, all()), now);
    assert_int_equal(memlord_freed(lord, all()), f->bytes);
    assert_int_equal(stats_of(lord, all()).implicit_frees, 0);
    assert_int_equal(stats_of(lord, all()).live_blocks, 1);
    assert_int_equal(stats_of(lord, all()).frees, 1);
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_balanced(lord, all());
}

static void an_alloc_completes_it_first(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 7, NULL));
    assert_completed(lord, f, 7);
}

static void a_track_completes_it_first(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_track(lord, cuda(0), 0x1000, 7, NULL));
    assert_completed(lord, f, 7);
    assert_ok(memlord_block_find(lord, cuda(0), 0x1000, &info));
    assert_int_equal(info.refs, 1);
}

static void alloc_n_and_track_n_complete_it_first(void **state) {
    memlord *lord = test_lord(state);
    memlord_block block;
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1), *g;
    block.device = cuda(0);
    block.storage = 0x1000;
    block.bytes = 7;
    assert_ok(memlord_alloc_n(lord, &block, 1, NULL));
    assert_completed(lord, f, 7);
    g = fake_new(0);
    assert_ok(defer(lord, cuda(0), 0x1000, g, 1));
    assert_ok(memlord_track_n(lord, &block, 1, NULL));
    assert_int_equal(g->dropped, 1);
    assert_int_equal(memlord_allocated(lord, all()), 7);
}

static void a_realloc_onto_it_completes_it_first(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 50, NULL));
    assert_ok(memlord_realloc(lord, cuda(0), 0x2000, 0x1000, 60, NULL));
    assert_completed(lord, f, 60);
}

static void a_move_onto_it_completes_it_first(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 50, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x2000, cuda(0), 0x1000, 60, NULL, NULL));
    assert_int_equal(f->dropped, 1);
    assert_int_equal(memlord_pending(lord, all()), 0);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 60);
    assert_int_equal(stats_of(lord, all()).implicit_frees, 0);
}

static void another_device_may_use_its_address(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 7, NULL));
    assert_int_equal(f->dropped, 1);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_allocated(lord, cuda(1)), 7);
    assert_int_equal(memlord_freed(lord, cuda(0)), 100);
}

static void another_type_leaves_it_pending(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 7, NULL));
    assert_int_equal(f->dropped, 0);
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
}

static void an_address_may_go_round_many_times(void **state) {
    memlord *lord = test_lord(state);
    int i;
    for (i = 0; i < 1000; i++) pend(lord, cuda(0), 0x1000, 100, (uint64_t)i % 3);
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    assert_int_equal(memlord_freed(lord, cuda(0)), 99900);
    assert_int_equal(drops, 999);
}

static void a_completed_one_leaves_its_queue_in_order(void **state) {
    memlord *lord = test_lord(state);
    fake *a = pend(lord, cuda(0), 0x1000, 1, 1), *b = pend(lord, cuda(0), 0x2000, 10, 1);
    fake *c = pend(lord, cuda(0), 0x3000, 100, 1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 1000, NULL));
    assert_int_equal(b->dropped, 1);
    c->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 0);
    a->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 101);
}

/* -- queues -- */

static void one_queue_completes_in_order(void **state) {
    memlord *lord = test_lord(state);
    fake *first = pend(lord, cuda(0), 0x1000, 1, 7), *second = pend(lord, cuda(0), 0x2000, 2, 7);
    fake *third = pend(lord, cuda(0), 0x3000, 4, 7);
    second->answer = third->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_int_equal(memlord_pending(lord, all()), 7);
    first->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 7);
    assert_int_equal(first->order, 1);
    assert_int_equal(second->order, 2);
    assert_int_equal(third->order, 3);
}

static void a_fence_done_in_its_free_waits_for_its_turn(void **state) {
    memlord *lord = test_lord(state);
    fake *first = pend(lord, cuda(0), 0x1000, 1, 7), *second = fake_new(1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 2, NULL));
    assert_ok(defer(lord, cuda(0), 0x2000, second, 7));
    assert_int_equal(memlord_pending(lord, all()), 3);
    first->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 3);
    assert_int_equal(first->order, 1);
    assert_int_equal(second->order, 2);
    assert_int_equal(second->asked, 1);
}

/* A block that was used before another and freed after it is credited with that one. */
static void a_queue_goes_by_the_frees_and_not_by_the_uses(void **state) {
    enum { BLOCKS = 40 };
    memlord *lord = test_lord(state);
    fake *f[BLOCKS];
    uint64_t i, at;
    for (i = 0; i < BLOCKS; i++) {
        assert_ok(memlord_alloc(lord, cuda(0), 0x1000 + i * 64, 1, NULL));
        f[i] = fake_new(0);
        assert_ok(use(lord, cuda(0), 0x1000 + i * 64, f[i], 7));
    }
    for (i = 0; i < BLOCKS; i++) { /* each once, in no order: 7 and 40 share no factor */
        at = i * 7 % BLOCKS;
        assert_ok(memlord_free(lord, cuda(0), 0x1000 + at * 64, NULL));
    }
    for (i = 0; i < BLOCKS; i++) {
        assert_int_equal(memlord_pending(lord, cuda(0)), BLOCKS - i);
        f[i * 7 % BLOCKS]->answer = 1;
        assert_int_equal(memlord_retire(lord, all()), 1);
    }
    for (i = 0; i < BLOCKS; i++) assert_int_equal(f[i * 7 % BLOCKS]->order, i + 1);
}

static void one_used_first_and_freed_last_is_credited_late(void **state) {
    memlord *lord = test_lord(state);
    fake *early = fake_new(0), *late = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 2, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, early, 7));
    assert_ok(use(lord, cuda(0), 0x2000, late, 7));
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    early->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 0);
    late->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 3);
}

static void a_slow_queue_holds_up_no_other(void **state) {
    memlord *lord = test_lord(state);
    fake *slow = pend(lord, cuda(0), 0x1000, 1, 1), *fast = pend(lord, cuda(0), 0x2000, 2, 2);
    fast->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 2);
    assert_int_equal(slow->dropped, 0);
}

static void equal_queues_of_two_devices_are_two(void **state) {
    memlord *lord = test_lord(state);
    fake *slow = pend(lord, cuda(0), 0x1000, 1, 1), *fast = pend(lord, cuda(1), 0x2000, 2, 1);
    fast->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 2);
    assert_int_equal(slow->dropped, 0);
}

static void a_queue_is_asked_no_further_than_its_first_unfinished(void **state) {
    memlord *lord = test_lord(state);
    fake *first = pend(lord, cuda(0), 0x1000, 1, 1), *second = pend(lord, cuda(0), 0x2000, 2, 1);
    first->asked = second->asked = 0;
    memlord_retire(lord, all());
    memlord_retire(lord, all());
    assert_int_equal(first->asked, 2);
    assert_int_equal(second->asked, 0);
}

static void queue_numbers_are_any_64_bits(void **state) {
    memlord *lord = test_lord(state);
    static const uint64_t queues[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, (uint64_t)1 << 63,
                                      1u << 31};
    fake *f[6];
    size_t i;
    for (i = 0; i < 6; i++)
        f[i] = pend(lord, cuda(0), 0x1000 + i * 64, (uint64_t)1 << i, queues[i]);
    for (i = 6; i-- > 0;) {
        f[i]->answer = 1;
        assert_int_equal(memlord_retire(lord, all()), (uint64_t)1 << i);
    }
}

static void a_thousand_queues_are_retired_at_once(void **state) {
    memlord *lord = test_lord(state);
    fake *f[1000];
    size_t i;
    for (i = 0; i < 1000; i++) f[i] = pend(lord, cuda((int)(i % 3)), 0x1000 + i * 64, 3, i * 977);
    for (i = 0; i < 1000; i++) f[i]->answer = i % 2 == 0;
    assert_int_equal(memlord_retire(lord, all()), 1500);
    for (i = 0; i < 1000; i++) f[i]->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 1500);
}

static void queues_that_come_and_go_leave_nothing_behind(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t bytes = 0, i;
    for (i = 0; i < 6000; i++) {
        fake *f = pend(t->lord, cuda(0), 0x1000, 1, i);
        f->answer = 1;
        assert_int_equal(memlord_retire(t->lord, all()), 1);
        if (i == 1000) bytes = t->heap.bytes;
    }
    assert_true(t->heap.bytes <= bytes);
}

/* -- retire and who else polls -- */

static void retire_credits_selected_devices_only(void **state) {
    memlord *lord = test_lord(state);
    fake *a = pend(lord, cuda(0), 0x1000, 1, 1), *b = pend(lord, cuda(1), 0x2000, 2, 1);
    fake *c = pend(lord, cpu(), 0x3000, 4, 1);
    a->answer = b->answer = c->answer = 1;
    assert_int_equal(memlord_retire(lord, cuda(1)), 2);
    assert_int_equal(memlord_pending(lord, all()), 5);
    assert_int_equal(memlord_retire(lord, cuda(MEMLORD_ANY)), 1);
    assert_int_equal(memlord_retire(lord, memlord_device_make(MEMLORD_DEVICE_HIP, 0)), 0);
    assert_int_equal(memlord_retire(lord, all()), 4);
}

static void retire_asks_no_fence_of_other_devices(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 1, 1);
    memlord_retire(lord, cuda(1));
    memlord_retire(lord, cpu());
    assert_int_equal(f->asked, 1);
}

static void retire_of_no_device_is_0(void **state) {
    memlord *lord = test_lord(state);
    pend(lord, cuda(0), 0x1000, 1, 1)->answer = 1;
    assert_int_equal(memlord_retire(lord, memlord_device_make(MEMLORD_DEVICE_TYPE_COUNT, 0)), 0);
    assert_int_equal(memlord_pending(lord, all()), 1);
}

static void gc_poll_retires(void **state) {
    memlord *lord = test_lord(state);
    fake *a = pend(lord, cuda(0), 0x1000, 1, 1), *b = pend(lord, cuda(1), 0x2000, 2, 1);
    a->answer = b->answer = 1;
    assert_ok(memlord_gc_poll(lord, cuda(0)));
    assert_int_equal(memlord_pending(lord, all()), 2);
    assert_ok(memlord_gc_poll(lord, all()));
    assert_int_equal(memlord_pending(lord, all()), 0);
}

/* Allocates and frees on a device, so often. */
static void churn(memlord *lord, memlord_device device, int pairs) {
    while (pairs--) {
        assert_ok(memlord_alloc(lord, device, 0x7f0000100000, 10, NULL));
        assert_ok(memlord_free(lord, device, 0x7f0000100000, NULL));
    }
}

static void an_alloc_credits_a_few(void **state) {
    memlord *lord = test_lord(state);
    fake *f[100];
    int i, calls = 0, asked = 0;
    for (i = 0; i < 100; i++) f[i] = pend(lord, cuda(0), 0x1000 + (uint64_t)i * 64, 1, 1);
    for (i = 0; i < 100; i++) {
        f[i]->answer = 1;
        f[i]->asked = 0;
    }
    while (!asked && calls++ < 256) { /* the queue is left alone at most so long */
        assert_ok(memlord_alloc(lord, cuda(0), 0x100000, 1000, NULL));
        for (i = 0; i < 100; i++) asked += f[i]->asked;
    }
    assert_in_range(asked, 1, 4);
    assert_in_range(memlord_pending(lord, cuda(0)), 96, 99);
    assert_balanced(lord, cuda(0));
}

static void calls_on_other_types_ask_nothing(void **state) {
    memlord *lord = test_lord(state);
    const memlord_device others[] = {cpu(), memlord_device_make(MEMLORD_DEVICE_PINNED, 0),
                                     memlord_device_make(MEMLORD_DEVICE_HIP, 3)};
    fake *f[4];
    int i;
    for (i = 0; i < 4; i++)
        f[i] = pend(lord, cuda(i % 2), 0x1000 + (uint64_t)i * 64, 1, (uint64_t)i);
    for (i = 0; i < 4; i++) {
        f[i]->asked = 0;
        f[i]->answer = 1;
    }
    for (i = 0; i < 3; i++) churn(lord, others[i], 1000);
    for (i = 0; i < 4; i++) assert_int_equal(f[i]->asked, 0);
    assert_int_equal(memlord_pending(lord, all()), 4);
}

static void a_call_asks_one_queue_at_most(void **state) {
    memlord *lord = test_lord(state);
    fake *f[20];
    int i, k, asked, before;
    for (i = 0; i < 20; i++) f[i] = pend(lord, cuda(0), 0x1000 + (uint64_t)i * 64, 1, (uint64_t)i);
    for (k = 0; k < 1000; k++) {
        for (i = before = 0; i < 20; i++) before += f[i]->asked;
        assert_ok(memlord_alloc(lord, cuda(1), 0x100000 + (uint64_t)k * 64, 10, NULL));
        for (i = asked = 0; i < 20; i++) asked += f[i]->asked;
        assert_in_range(asked - before, 0, 1);
    }
    for (i = 0; i < 20; i++) assert_in_range(f[i]->asked, 4, 20);
}

static void a_queue_that_is_not_done_is_left_alone_longer_and_longer(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 1, 1);
    int i, had = f->asked, last = 0, rest = 0;
    for (i = 1; i <= 3000; i++) {
        assert_ok(memlord_alloc(lord, cuda(0), 0x100000 + (uint64_t)i * 64, 10, NULL));
        if (f->asked == had) continue;
        assert_in_range(i - last, rest, 256);
        rest = i - last;
        last = i;
        had = f->asked;
    }
    assert_int_equal(rest, 256);
    assert_in_range(f->asked, 10, 20);
}

/* The call after which a fence is asked again, counted from the last time. */
static int calls_until_asked(memlord *lord, const fake *f, uint64_t *key) {
    const int had = f->asked;
    int calls = 0;
    while (f->asked == had && calls < 1000) {
        assert_ok(memlord_alloc(lord, cuda(1), *key += 64, 10, NULL));
        calls++;
    }
    return calls;
}

static void the_calls_that_leave_a_queue_alone_double_up_to_256(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 1, 1);
    uint64_t key = 0x100000;
    int calls;
    assert_int_equal(f->asked, 1);
    assert_int_equal(calls_until_asked(lord, f, &key), 1); /* the free itself was a call */
    for (calls = 4; calls < 256; calls *= 2)
        assert_int_equal(calls_until_asked(lord, f, &key), calls);
    assert_int_equal(calls_until_asked(lord, f, &key), 256);
    assert_int_equal(calls_until_asked(lord, f, &key), 256);
}

static void the_next_of_a_queue_is_asked_at_once_when_the_first_is_gone(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 1, 1), *g = pend(lord, cuda(0), 0x2000, 1, 1);
    uint64_t key = 0x100000;
    while (calls_until_asked(lord, f, &key) < 256) {}
    assert_int_equal(g->asked, 1);
    assert_ok(memlord_free_done(lord, cuda(0), 0x1000));
    assert_int_equal(f->dropped, 1);
    assert_int_equal(g->asked, 2);
    assert_int_equal(calls_until_asked(lord, g, &key), 2); /* its rests begin anew */
    assert_int_equal(calls_until_asked(lord, g, &key), 4);
}

static void a_queue_of_another_device_of_the_type_has_its_own_rest(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 1, 1), *g;
    uint64_t key = 0x100000;
    while (calls_until_asked(lord, f, &key) < 256) {}
    g = pend(lord, cuda(2), 0x2000, 1, 1);
    assert_int_equal(calls_until_asked(lord, g, &key), 1);
    assert_int_equal(calls_until_asked(lord, g, &key), 4);
    assert_int_equal(calls_until_asked(lord, g, &key), 8);
}

static void it_is_left_alone_for_10_ms_at_most(void **state) {
    test_case *t = (test_case *)*state;
    fake *f = pend(t->lord, cuda(0), 0x1000, 1, 1);
    int had;
    churn(t->lord, cuda(0), 500);
    t->now += 9999999;
    had = f->asked;
    churn(t->lord, cuda(0), 4);
    assert_int_equal(f->asked, had);
    t->now += 1;
    churn(t->lord, cuda(0), 4); /* one call in eight reads the clock */
    assert_int_equal(f->asked, had + 1);
}

/* A queue that is left alone costs the calls no more than a count: one in eight reads the clock. */
static uint64_t clock_reads;
static uint64_t count_and_stand_still(void *user) {
    (void)user;
    clock_reads++;
    return 1000000000u;
}
static void calls_that_leave_it_alone_seldom_read_the_clock(void **state) {
    test_heap heap;
    memlord_desc desc;
    memlord *lord;
    fake *f;
    int asked;
    (void)state;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, MEMLORD_FLAG_NO_THREADS);
    desc.clock.fn = count_and_stand_still;
    assert_ok(memlord_create(&desc, &lord));
    f = pend(lord, cuda(0), 0x1000, 100, 1);
    churn(lord, cuda(0), 1000); /* now it is left alone for 256 calls */
    asked = f->asked;
    clock_reads = 0;
    churn(lord, cuda(0), 1000);
    assert_in_range(f->asked - asked, 7, 9);
    assert_in_range(clock_reads, 2000 / 8 - 10, 2000 / 8 + 40);
    memlord_destroy(lord);
}

static void frees_of_its_type_ask_too(void **state) {
    memlord *lord = test_lord(state);
    fake *f, *g;
    uint64_t i;
    for (i = 0; i < 600; i++)
        assert_ok(memlord_alloc(lord, cuda(1), 0x100000 + i * 64, 10, NULL));
    f = pend(lord, cuda(0), 0x1000, 1, 1);
    f->answer = 1;
    for (i = 0; i < 300; i++) assert_ok(memlord_free(lord, cuda(1), 0x100000 + i * 64, NULL));
    assert_int_equal(f->dropped, 1);
    f = pend(lord, cuda(0), 0x1000, 1, 1);
    f->answer = 1;
    for (i = 300; i < 600; i++) { /* those that are deferred as well */
        g = fake_new(1);
        assert_ok(defer(lord, cuda(1), 0x100000 + i * 64, g, 2));
    }
    assert_int_equal(f->dropped, 1);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void the_poller_asks_for_a_host_that_calls_nothing(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 1, 1);
    time_t until = time(NULL) + 20;
    set(&f->answer, 1);
    while (memlord_pending(lord, cuda(0)) && time(NULL) < until) sched_yield();
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    assert_false(pthread_equal(f->thread, pthread_self()));
}

static void repeated_allocs_credit_all(void **state) {
    test_heap heap;
    memlord_desc desc;
    memlord *lord;
    fake *f[100];
    uint64_t i;
    (void)state;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, MEMLORD_FLAG_NO_THREADS); /* a poller may hold a queue for long */
    assert_ok(memlord_create(&desc, &lord));
    for (i = 0; i < 100; i++) f[i] = pend(lord, cuda(0), 0x1000 + i * 64, 1, i % 7);
    for (i = 0; i < 100; i++) f[i]->answer = 1;
    for (i = 0; i < 100; i++) assert_ok(memlord_alloc(lord, cuda(0), 0x100000 + i * 64, 1, NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 100);
    memlord_destroy(lord);
}

static void allocs_reach_queues_among_many_slow_ones(void **state) {
    memlord *lord = test_lord(state);
    static fake *f[2000];
    uint64_t i;
    for (i = 0; i < 2000; i++) f[i] = pend(lord, cuda(0), 0x1000 + i * 64, 1, i);
    for (i = 50; i < 2000; i += 100) f[i]->answer = 1;
    for (i = 0; i < 4000; i++) assert_ok(memlord_alloc(lord, cuda(0), 0x100000 + i * 64, 1, NULL));
    for (i = 50; i < 2000; i += 100) assert_int_equal(f[i]->dropped, 1);
    assert_int_equal(memlord_pending(lord, cuda(0)), 1980);
}

/* -- uses -- */

static void a_use_asks_its_fence_nothing_yet(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_int_equal(f->asked, 0);
    assert_int_equal(memlord_pending(lord, all()), 0);
    assert_int_equal(memlord_allocated(lord, all()), 100);
}

static void a_free_waits_for_the_uses(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(f->asked, 1);
    assert_true(pthread_equal(f->thread, pthread_self()));
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    assert_int_equal(memlord_free(lord, cuda(0), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    f->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_int_equal(f->dropped, 1);
}

static void the_last_release_waits_for_the_uses(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_retain(lord, cuda(0), 0x1000, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(memlord_release(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    assert_int_equal(f->asked, 0);
    assert_ok(memlord_release(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    assert_int_equal(f->asked, 1);
    f->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
}

static void free_n_and_release_n_wait_too(void **state) {
    memlord *lord = test_lord(state);
    memlord_block blocks[2];
    fake *f = fake_new(0), *g = fake_new(0);
    blocks[0].device = blocks[1].device = cuda(0);
    blocks[0].storage = 0x1000;
    blocks[1].storage = 0x2000;
    blocks[0].bytes = blocks[1].bytes = 50;
    assert_ok(memlord_alloc_n(lord, blocks, 2, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(use(lord, cuda(0), 0x2000, g, 1));
    assert_ok(memlord_free_n(lord, blocks, 1, NULL));
    assert_ok(memlord_release_n(lord, blocks + 1, 1, NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    f->answer = g->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
}

static void uses_done_by_then_defer_nothing(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(1), *g = fake_new(1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(use(lord, cuda(0), 0x1000, g, 2));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_freed(lord, cuda(0)), 100);
    assert_int_equal(f->dropped, 1);
    assert_int_equal(g->dropped, 1);
}

static void uses_on_several_queues_are_all_needed(void **state) {
    memlord *lord = test_lord(state);
    fake *f[3];
    int i;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    for (i = 0; i < 3; i++) {
        f[i] = fake_new(0);
        assert_ok(use(lord, cuda(0), 0x1000, f[i], (uint64_t)i));
    }
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    for (i = 0; i < 3; i++) assert_int_equal(f[i]->asked, 1);
    f[1]->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 0);
    f[2]->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_int_equal(memlord_pending(lord, all()), 100);
    f[0]->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
}

static void a_deferred_free_needs_its_fence_and_the_uses(void **state) {
    memlord *lord = test_lord(state);
    fake *used = fake_new(0), *freed = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, used, 1));
    assert_ok(defer(lord, cuda(0), 0x1000, freed, 2));
    freed->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 0);
    used->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
}

static void a_later_use_takes_the_place_of_an_earlier(void **state) {
    memlord *lord = test_lord(state);
    fake *old = fake_new(0), *young = fake_new(0), *other = fake_new(1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, old, 1));
    assert_ok(use(lord, cuda(0), 0x1000, other, 2));
    assert_ok(use(lord, cuda(0), 0x1000, young, 1));
    assert_int_equal(old->dropped, 1);
    assert_int_equal(old->asked, 0);
    assert_int_equal(other->dropped, 0);
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    young->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
}

static void a_failed_use_counts_as_done(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(-1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(stats_of(lord, cuda(0)).fence_failures, 1);
}

static void a_block_waiting_for_two_queues_holds_up_neither(void **state) {
    memlord *lord = test_lord(state);
    fake *slow = fake_new(0), *fast = fake_new(0), *next;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, slow, 1));
    assert_ok(use(lord, cuda(0), 0x1000, fast, 2));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    next = pend(lord, cuda(0), 0x2000, 7, 2);
    fast->answer = next->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 7);
    slow->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
}

static void many_uses_of_one_block_are_kept(void **state) {
    memlord *lord = test_lord(state);
    fake *f[200];
    uint64_t i;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    for (i = 0; i < 200; i++) {
        f[i] = fake_new(0);
        assert_ok(use(lord, cuda(0), 0x1000, f[i], i));
    }
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    for (i = 0; i < 199; i++) f[i]->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 0);
    f[199]->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
}

static void uses_that_come_and_go_leave_nothing_behind(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t bytes = 0, i;
    for (i = 0; i < 3000; i++) {
        fake *f = fake_new(1), *g = fake_new(1);
        if (i == 100) bytes = t->heap.bytes;
        assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 100, NULL));
        assert_ok(use(t->lord, cuda(0), 0x1000, f, i % 2));
        assert_ok(use(t->lord, cuda(0), 0x1000, g, 0));
        assert_ok(memlord_free(t->lord, cuda(0), 0x1000, NULL));
    }
    assert_true(t->heap.bytes <= bytes);
}

static void an_alloc_over_a_used_live_block_drops_its_uses(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 7, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 7);
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    assert_int_equal(f->dropped, 1);
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
}

static void a_realloc_of_a_used_block_keeps_the_books(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(memlord_realloc(lord, cuda(0), 0x1000, 0x2000, 60, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)) - memlord_pending(lord, cuda(0)), 60);
    f->answer = 1;
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(f->dropped, 1);
    assert_balanced(lord, cuda(0));
}

static void a_realloc_in_two_steps_keeps_the_uses_when_it_fails(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(memlord_realloc_begin(lord, cuda(0), 0x1000, &token));
    assert_ok(memlord_realloc_end(lord, &token, 0, 0, NULL));
    assert_int_equal(f->dropped, 0);
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    f->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
}

static void a_realloc_in_two_steps_keeps_the_books(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(memlord_realloc_begin(lord, cuda(0), 0x1000, &token));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 5, NULL)); /* somebody got the address */
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 60, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)) - memlord_pending(lord, cuda(0)), 65);
    f->answer = 1;
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(f->dropped, 1);
    assert_balanced(lord, cuda(0));
}

static void a_deferred_free_of_a_shared_block_is_counted(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_retain(lord, cuda(0), 0x1000, NULL));
    assert_ok(defer(lord, cuda(0), 0x1000, f, 1));
    assert_int_equal(stats_of(lord, cuda(0)).freed_while_shared, 1);
    f->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_int_equal(stats_of(lord, cuda(0)).freed_while_shared, 1);
}

static void a_deferred_free_of_a_used_shared_block_is_counted(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_retain(lord, cuda(0), 0x1000, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    assert_int_equal(stats_of(lord, cuda(0)).freed_while_shared, 1);
}

/* -- moves -- */

static void a_move_that_waits_takes_the_views_along(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    memlord_fence fence = fence_of(f, 1);
    memlord_block_info info;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_retain(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x2000, 128, &fence, NULL));
    f->taken = 1;
    assert_ok(use(lord, cuda(0), 0x2000, fake_new(0), 2));
    assert_ok(memlord_move(lord, cuda(0), 0x2000, cuda(1), 0x3000, 128, NULL, NULL));
    assert_ok(memlord_block_find(lord, cuda(1), 0x3000, &info));
    assert_int_equal(info.refs, 2);
    assert_int_equal(memlord_pending(lord, all()), 228);
    assert_int_equal(stats_of(lord, all()).freed_while_shared, 0);
}

static void a_move_that_waits_takes_any_number_of_views_along(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    memlord_fence fence = fence_of(f, 1);
    memlord_block_info info;
    int i;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    for (i = 1; i < 1000; i++) assert_ok(memlord_retain(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x2000, 128, &fence, NULL));
    f->taken = 1;
    assert_ok(memlord_block_find(lord, cuda(0), 0x2000, &info));
    assert_int_equal(info.refs, 1000);
    for (i = 1; i < 1000; i++) assert_ok(memlord_release(lord, cuda(0), 0x2000, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 128);
    assert_ok(memlord_release(lord, cuda(0), 0x2000, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
}

static void a_move_with_a_fence_leaves_the_source_pending(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    memlord_fence fence = fence_of(f, 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x2000, 128, &fence, NULL));
    f->taken = 1;
    assert_int_equal(f->asked, 1);
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_int_equal(memlord_pending(lord, cpu()), 100);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 128);
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    assert_int_equal(stats_of(lord, cuda(0)).moves, 1);
    assert_int_equal(stats_of(lord, cuda(0)).moved_bytes, 128);
    assert_int_equal(memlord_free(lord, cpu(), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    f->answer = 1;
    assert_int_equal(memlord_retire(lord, cuda(0)), 0);
    assert_int_equal(memlord_retire(lord, cpu()), 100);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 128);
    assert_balanced(lord, cpu());
    assert_balanced(lord, cuda(0));
}

static void a_move_whose_fence_is_done_is_a_plain_one(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(1);
    memlord_fence fence = fence_of(f, 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x2000, 128, &fence, NULL));
    f->taken = 1;
    assert_int_equal(f->dropped, 1);
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 128);
}

static void what_moved_keeps_its_tag_and_references(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    memlord_tag_stat tag;
    fake *f = fake_new(0);
    memlord_fence fence = fence_of(f, 1);
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_retain(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x2000, 128, &fence, NULL));
    f->taken = 1;
    assert_ok(memlord_block_find(lord, cuda(0), 0x2000, &info));
    assert_int_equal(info.refs, 2);
    assert_string_equal(info.tag, "weights");
    assert_int_equal(info.pending, 0);
    f->answer = 1;
    memlord_retire(lord, all());
    assert_ok(memlord_tag_get(lord, all(), "weights", &tag));
    assert_int_equal(tag.allocated, 128);
    assert_int_equal(tag.blocks, 1);
}

static void a_move_that_fails_takes_no_fence(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    memlord_fence fence = fence_of(f, 1), none = fence;
    none.done = NULL;
    assert_int_equal(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x2000, 8, &fence, NULL),
                     MEMLORD_E_UNKNOWN);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(memlord_move(lord, cpu(), 0x1000, cuda(0), 0, 8, &fence, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x2000, 8, &none, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(f->asked, 0);
    assert_int_equal(f->dropped, 0);
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_pending(lord, all()), 0);
}

static void a_fenced_move_onto_itself_leaves_nothing_pending(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    memlord_fence fence = fence_of(f, 1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_move(lord, cuda(0), 0x1000, cuda(1), 0x1000, 60, &fence, NULL));
    f->taken = 1;
    assert_int_equal(f->dropped, 1);
    assert_int_equal(memlord_pending(lord, all()), 0);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_allocated(lord, cuda(1)), 60);
    assert_int_equal(stats_of(lord, all()).implicit_frees, 0);
}

static void a_fenced_move_onto_a_live_block_closes_that(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0), *used = fake_new(0);
    memlord_fence fence = fence_of(f, 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 10, NULL));
    assert_ok(use(lord, cuda(0), 0x2000, used, 1));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x2000, 60, &fence, NULL));
    f->taken = 1;
    assert_int_equal(used->dropped, 1);
    assert_int_equal(stats_of(lord, cuda(0)).implicit_frees, 1);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 60);
    assert_int_equal(memlord_pending(lord, cpu()), 100);
    assert_balanced(lord, cuda(0));
}

static void a_move_of_a_used_block_keeps_the_books(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(memlord_move(lord, cuda(0), 0x1000, cpu(), 0x2000, 60, NULL, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 60);
    f->answer = 1;
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
    memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(f->dropped, 1);
    assert_balanced(lord, cuda(0));
    assert_balanced(lord, cpu());
}

/* -- epochs -- */

static void what_was_pending_at_a_reset_is_not_freed_in_the_new_epoch(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    memlord_reset(lord);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 100);
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    f->answer = 1;
    memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    assert_int_equal(memlord_freed(lord, cuda(0)), 0);
    assert_int_equal(f->dropped, 1);
}

static void an_older_block_deferred_in_the_new_epoch_is_freed_there(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    memlord_reset(lord);
    assert_ok(defer(lord, cuda(0), 0x1000, f, 1));
    f->answer = 1;
    memlord_retire(lord, all());
    assert_int_equal(memlord_freed(lord, cuda(0)), 100);
}

/* -- who sees it -- */

static int sum_pending(void *user, const memlord_block_info *info) {
    uint64_t *sums = (uint64_t *)user;
    sums[info->pending ? 1 : 0] += info->bytes;
    return 0;
}

static void blocks_each_shows_it_pending(void **state) {
    memlord *lord = test_lord(state);
    uint64_t sums[2] = {0, 0};
    pend(lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 7, NULL));
    assert_ok(memlord_blocks_each(lord, all(), 0, sum_pending, sums));
    assert_int_equal(sums[0], 7);
    assert_int_equal(sums[1], 100);
}

static void block_find_shows_it_pending(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_block_find(lord, cuda(0), 0x1000, &info));
    assert_int_equal(info.pending, 1);
    assert_int_equal(info.bytes, 100);
    f->answer = 1;
    memlord_retire(lord, all());
    assert_int_equal(memlord_block_find(lord, cuda(0), 0x1000, &info), MEMLORD_E_UNKNOWN);
}

static void a_live_block_is_not_shown_pending(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(memlord_block_find(lord, cuda(0), 0x1000, &info));
    assert_int_equal(info.pending, 0);
}

static void its_tag_holds_it_until_it_is_credited(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat tag;
    fake *f;
    assert_ok(memlord_tag_begin(lord, "kv_cache"));
    f = pend(lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_tag_get(lord, cuda(0), "kv_cache", &tag));
    assert_int_equal(tag.allocated, 100);
    f->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_ok(memlord_tag_get(lord, cuda(0), "kv_cache", &tag));
    assert_int_equal(tag.allocated, 0);
    assert_int_equal(tag.blocks, 0);
    assert_int_equal(tag.peak, 100);
}

static void its_site_holds_it_until_it_is_credited(void **state) {
    memlord *lord = test_lord(state);
    static const memlord_site opened = {"a.c", "opens", 1}, closed = {"b.c", "closes", 2};
    memlord_site_stat stat;
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, &opened));
    assert_ok(memlord_free_deferred(lord, cuda(0), 0x1000, fence_of(f, 1), &closed));
    f->taken = 1;
    assert_int_equal(memlord_site_top_alloc(lord, cuda(0), &stat), 1);
    assert_string_equal(stat.site->function, "opens");
    assert_int_equal(stat.live_bytes, 100);
    f->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_int_equal(memlord_site_top_alloc(lord, cuda(0), &stat), 1);
    assert_int_equal(stat.live_bytes, 0);
    assert_int_equal(memlord_site_top_free(lord, cuda(0), &stat), 1);
    assert_string_equal(stat.site->function, "closes");
    assert_int_equal(stat.free_bytes, 100);
    assert_int_equal(stat.frees, 1);
}

static void a_free_that_had_to_wait_keeps_its_site(void **state) {
    memlord *lord = test_lord(state);
    static const memlord_site closed = {"b.c", "closes", 2};
    memlord_site_stat stat;
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, &closed));
    f->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_int_equal(memlord_site_top_free(lord, cuda(0), &stat), 1);
    assert_string_equal(stat.site->function, "closes");
    assert_int_equal(stat.free_bytes, 100);
}

/* -- MEMLORD_FLAG_DEFER -- */

static void with_defer_a_free_calls_nothing_of_the_host(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(defer(lord, cuda(0), 0x1000, f, 1));
    assert_int_equal(f->asked, 0);
    assert_int_equal(f->dropped, 0);
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_int_equal(f->dropped, 1);
}

static void with_defer_a_free_of_a_used_block_calls_nothing(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, f, 1));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(f->asked, 0);
    assert_int_equal(f->dropped, 0);
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    assert_ok(memlord_gc_poll(lord, all()));
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    assert_int_equal(f->dropped, 1);
}

static void with_defer_an_alloc_calls_nothing(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1), *over = pend(lord, cuda(0), 0x2000, 10, 2);
    f->answer = over->answer = 1;
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 1, NULL));
    assert_int_equal(f->asked + over->asked, 0);
    assert_int_equal(f->dropped + over->dropped, 0);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 101);
    assert_int_equal(memlord_freed(lord, cuda(0)), 10);
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_int_equal(f->dropped, 1);
    assert_int_equal(over->dropped, 1);
    assert_int_equal(over->asked, 0);
}

static void with_defer_a_later_use_calls_nothing(void **state) {
    memlord *lord = test_lord(state);
    fake *old = fake_new(0), *young = fake_new(0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, old, 1));
    assert_ok(use(lord, cuda(0), 0x1000, young, 1));
    assert_int_equal(old->dropped, 0);
    memlord_retire(lord, all());
    assert_int_equal(old->dropped, 1);
    assert_int_equal(young->dropped, 0);
}

static void with_defer_a_move_calls_nothing(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(1);
    memlord_fence fence = fence_of(f, 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x2000, 128, &fence, NULL));
    f->taken = 1;
    assert_int_equal(f->asked + f->dropped, 0);
    assert_int_equal(memlord_pending(lord, cpu()), 100);
    assert_int_equal(memlord_retire(lord, all()), 100);
}

static void with_defer_the_queue_still_keeps_its_order(void **state) {
    memlord *lord = test_lord(state);
    fake *first = pend(lord, cuda(0), 0x1000, 1, 1), *second = pend(lord, cuda(0), 0x2000, 2, 1);
    second->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 0);
    first->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 3);
    assert_int_equal(first->order, 1);
}

/* It may record its event then: one that waited for its turn would have it from far too late. */
static void with_defer_the_next_poll_asks_all_that_is_new(void **state) {
    memlord *lord = test_lord(state);
    fake *f[9];
    int i;
    for (i = 0; i < 9; i++) {
        if (i % 3) {
            f[i] = pend(lord, cuda(0), 0x1000 + (uint64_t)i * 64, 1, 1);
            continue;
        }
        f[i] = fake_new(0);
        assert_ok(memlord_alloc(lord, cuda(0), 0x1000 + (uint64_t)i * 64, 1, NULL));
        assert_ok(use(lord, cuda(0), 0x1000 + (uint64_t)i * 64, f[i], 1));
        assert_ok(memlord_free(lord, cuda(0), 0x1000 + (uint64_t)i * 64, NULL));
    }
    f[4]->answer = 1;
    f[5]->answer = -1;
    assert_int_equal(memlord_retire(lord, cpu()), 0); /* not of its devices */
    assert_int_equal(f[0]->asked, 0);
    assert_int_equal(memlord_retire(lord, all()), 0);
    for (i = 0; i < 9; i++) assert_int_equal(f[i]->asked, 1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1040, 7, NULL)); /* ends what pended there */
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_int_equal(f[0]->asked, 2);
    assert_int_equal(f[1]->dropped, 1);
    for (i = 0; i < 9; i++) f[i]->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 8);
    assert_int_equal(f[4]->asked, 1);
    assert_int_equal(f[5]->asked, 1);
    assert_int_equal(f[8]->asked, 2);
    assert_int_equal(stats_of(lord, all()).fence_failures, 1);
    assert_true(f[0]->order < f[4]->order);
    assert_true(f[4]->order < f[8]->order);
}

/* -- many queues -- */

static int never_done(void *user) {
    (void)user;
    return 0;
}
/* In ns: the frees into queues, a poll of them, and allocs and frees of another block. */
static void queues_cost(uint64_t queues, uint64_t least[3]) {
    memlord *lord;
    uint64_t i, from;
    void *one = NULL;
    assert_int_equal(test_open(&one, MEMLORD_FLAG_NO_THREADS), 0);
    lord = ((test_case *)one)->lord;
    for (i = 1; i <= queues; i++) assert_ok(memlord_alloc(lord, cuda(0), i << 8, 10, NULL));
    from = test_cpu_ns();
    for (i = 1; i <= queues; i++) {
        memlord_fence fence = {never_done, NULL, i, NULL};
        assert_ok(memlord_free_deferred(lord, cuda(0), i << 8, fence, NULL));
    }
    test_cpu_least(&least[0], from);
    from = test_cpu_ns();
    assert_int_equal(memlord_retire(lord, cuda(0)), 0);
    test_cpu_least(&least[1], from);
    from = test_cpu_ns();
    for (i = 0; i < 2000; i++) {
        assert_ok(memlord_alloc(lord, cuda(1), 0x1001, 10, NULL));
        assert_ok(memlord_free(lord, cuda(1), 0x1001, NULL));
    }
    test_cpu_least(&least[2], from);
    assert_int_equal(test_teardown(&one), 0);
}
static void no_call_costs_more_for_more_queues(void **state) {
    uint64_t few[3] = {0, 0, 0}, many[3] = {0, 0, 0};
    int run;
    (void)state;
    TEST_POSIX();
    for (run = 0; run < 3; run++) {
        queues_cost(100, few);
        queues_cost(10000, many);
    }
    assert_in_range(many[0] / 100, 1, 25 * few[0]); /* new memory costs more than used memory */
    assert_in_range(many[1] / 100, 1, 10 * few[1]);
    assert_in_range(many[2], 1, 10 * few[2]);
}
static void of_many_queues_each_ends_when_it_is_done(void **state) {
    memlord *lord = test_lord(state);
    fake *f[500];
    uint64_t i, random = 1;
    int left = 500, ended;
    for (i = 0; i < 500; i++) f[i] = pend(lord, cuda((int)(i % 3)), (i + 1) << 8, 1, i * i);
    for (; left; left -= ended) {
        for (ended = 0, i = 0; i < 500; i++)
            if (!f[i]->answer && test_random(&random) % 4 == 0) ended += f[i]->answer = 1;
        assert_int_equal(memlord_retire(lord, all()), ended);
        for (i = 0; i < 500; i++) assert_int_equal(f[i]->dropped, f[i]->answer);
    }
}

/* -- fences that call the ledger -- */

#define TOO_DEEP 6 /* however many queues there are */
static int depth, deepest;
static uint64_t next_key;

static void call_back(fake *f, void (*fn)(fake *)) {
    if (++depth > deepest) deepest = depth;
    if (depth < TOO_DEEP) fn(f);
    depth--;
}

static void retire_inside(fake *f) { memlord_retire(f->lord, memlord_device_all()); }
static void poll_inside(fake *f) { memlord_gc_poll(f->lord, memlord_device_all()); }
static void allocate_inside(fake *f) {
    uint64_t key = next_key += 64;
    if (memlord_alloc(f->lord, memlord_device_cuda(0), key, 1, NULL)) f->bad++;
    if (memlord_free(f->lord, memlord_device_cuda(0), key, NULL)) f->bad++;
}
static void free_a_used_block_inside(fake *f) {
    uint64_t key = next_key += 64;
    fake *g;
    if (fakes_used + 10 > FAKES) return;
    g = fake_new(1);
    if (memlord_alloc(f->lord, memlord_device_cuda(0), key, 1, NULL)) f->bad++;
    if (use(f->lord, memlord_device_cuda(0), key, g, key)) f->bad++;
    if (memlord_free(f->lord, memlord_device_cuda(0), key, NULL)) f->bad++;
}
static void read_inside(fake *f) {
    memlord_stats stats;
    if (memlord_stats_get(f->lord, memlord_device_all(), &stats)) f->bad++;
    if (stats.allocated - stats.pending > stats.allocated) f->bad++;
}

static void (*const inside[])(fake *) = {retire_inside, poll_inside, allocate_inside,
                                         free_a_used_block_inside, read_inside};
#define INSIDE (sizeof inside / sizeof inside[0])
static size_t chosen;

static void chosen_inside(fake *f) { call_back(f, inside[chosen]); }

/* Frees, uses, retires and allocs over fences that do what was chosen, in done or in drop. */
static void run_reentrant(memlord *lord, uint64_t queues, int in_done, int in_drop) {
    uint64_t i;
    fake *f[40];
    depth = deepest = 0;
    next_key = 0x10000000;
    for (i = 0; i < 40; i++) {
        uint64_t key = 0x1000 + (i % 20) * 64; /* the second half comes over the first */
        f[i] = fake_new(0);
        f[i]->lord = lord;
        if (in_done) f[i]->in_done = chosen_inside;
        if (in_drop) f[i]->in_drop = chosen_inside;
        assert_ok(memlord_alloc(lord, cuda(0), key, 10, NULL));
        if (i % 3 == 0) {
            assert_ok(use(lord, cuda(0), key, f[i], i % queues));
            assert_ok(memlord_free(lord, cuda(0), key, NULL));
        } else {
            assert_ok(defer(lord, cuda(0), key, f[i], i % queues));
        }
    }
    assert_int_equal(memlord_pending(lord, cuda(0)), 200);
    for (i = 0; i < 40; i++) f[i]->answer = 1;
    memlord_retire(lord, all());
    memlord_retire(lord, all());
    assert_int_equal(memlord_pending(lord, all()), 0);
    assert_int_equal(memlord_allocated(lord, all()), 0);
    if (deepest < 1 || deepest >= TOO_DEEP)
        fail_msg("what %d is called %d deep", (int)chosen, deepest);
    assert_balanced(lord, all());
}

static void run_all_reentrant(memlord *lord, uint64_t queues, int in_done, int in_drop) {
    for (chosen = 0; chosen < INSIDE; chosen++) {
        fakes_used = 0;
        run_reentrant(lord, queues, in_done, in_drop);
        assert_int_equal(fakes_left(), 0);
    }
}

static void done_may_call_the_ledger(void **state) {
    run_all_reentrant(test_lord(state), 2, 1, 0);
}

static void drop_may_call_the_ledger(void **state) {
    run_all_reentrant(test_lord(state), 2, 0, 1);
}

static void both_may_call_the_ledger(void **state) {
    run_all_reentrant(test_lord(state), 2, 1, 1);
}

static void many_queues_do_not_nest_deeper(void **state) {
    run_all_reentrant(test_lord(state), 40, 1, 1);
}

static void the_drop_of_a_fence_without_a_block_asks_no_other(void **state) {
    memlord *lord = test_lord(state);
    fake *waits = pend(lord, cuda(0), 0x1000, 1, 1), *f = fake_new(0);
    f->lord = lord;
    f->in_drop = retire_inside;
    waits->asked = 0;
    assert_ok(defer(lord, cuda(0), 0, f, 1));
    assert_int_equal(f->dropped, 1);
    assert_int_equal(waits->asked, 0);
    waits->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 1);
}

static void take_over_the_address(fake *f) {
    f->in_done = NULL;
    if (memlord_alloc(f->lord, memlord_device_cuda(0), 0x1000, 7, NULL)) f->bad++;
}

static void a_done_that_allocates_the_address_it_frees_credits_once(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    f->lord = lord;
    f->in_done = take_over_the_address;
    f->answer = 1;
    memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, cuda(0)), 7);
    assert_int_equal(memlord_freed(lord, cuda(0)), 100);
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    assert_int_equal(get(&f->dropped), 1);
    f->bad = 0; /* it was dropped inside done, which called for it */
}

static void free_the_event(fake *f) {
    if (memlord_free(f->lord, memlord_device_cpu(), 0x9000, NULL)) f->bad++;
}

static void destroy_lets_a_drop_call_the_ledger(void **state) {
    test_case *t = (test_case *)*state;
    fake *f = pend(t->lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_alloc(t->lord, cpu(), 0x9000, 64, NULL));
    f->lord = t->lord;
    f->in_drop = free_the_event;
    memlord_destroy(t->lord);
    t->lord = NULL;
    assert_int_equal(f->dropped, 1);
    assert_int_equal(f->bad, 0);
}

/* -- destroy -- */

static void defer_another(fake *f) {
    f->in_drop = NULL;
    (void)defer(f->lord, memlord_device_cuda(0), 0x2000, fake_new(0), 1);
}

static void destroy_drops_what_a_drop_deferred(void **state) {
    test_case *t = (test_case *)*state;
    fake *f = pend(t->lord, cuda(0), 0x1000, 100, 1);
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x2000, 64, NULL));
    f->lord = t->lord;
    f->in_drop = defer_another;
    memlord_destroy(t->lord);
    t->lord = NULL;
    assert_int_equal(drops, 2);
}

/* Drops that each defer another free would never end: destroy gives up, and frees what is left. */
static void defer_one_more(fake *f) {
    fake *next = fake_new(0);
    next->lord = f->lord;
    next->in_drop = defer_one_more;
    next->bytes = f->bytes + 64;
    if (memlord_alloc(f->lord, memlord_device_cuda(0), next->bytes, 1, NULL)) f->bad++;
    (void)defer(f->lord, memlord_device_cuda(0), next->bytes, next, 1);
}
static void destroy_drops_a_thousand_rounds_at_most(void **state) {
    test_case *t = (test_case *)*state;
    fake *f = pend(t->lord, cuda(0), 0x1000, 0x1000, 1);
    f->lord = t->lord;
    f->in_drop = defer_one_more;
    memlord_destroy(t->lord);
    t->lord = NULL;
    assert_int_equal(drops, 1000);
    assert_int_equal(fakes[1000].taken, 1); /* the last, which is not dropped */
    fakes[1000].taken = 0;
}

static memlord *open_with_log(test_heap *heap, test_log *log) {
    memlord_desc desc;
    memlord *lord = NULL;
    memset(heap, 0, sizeof *heap);
    memset(log, 0, sizeof *log);
    pthread_mutex_init(&log->lock, NULL);
    desc = test_desc(heap, 0);
    desc.logger.fn = test_log_line;
    desc.logger.user = log;
    assert_ok(memlord_create(&desc, &lord));
    return lord;
}

static void destroy_drops_all_and_logs_what_was_pending(void **state) {
    static test_log log;
    test_heap heap;
    memlord *lord = open_with_log(&heap, &log);
    fake *freed, *used = fake_new(0), *superseded = fake_new(0);
    (void)state;
    freed = pend(lord, cuda(0), 0x1000, 12345, 1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 1, NULL));
    assert_ok(use(lord, cuda(0), 0x2000, superseded, 1));
    assert_ok(use(lord, cuda(0), 0x2000, used, 1));
    memlord_destroy(lord);
    assert_int_equal(freed->dropped, 1);
    assert_int_equal(used->dropped, 1);
    assert_int_equal(superseded->dropped, 1);
    assert_non_null(strstr(log.text, "pending"));
    assert_int_equal(heap.blocks, 0);
    assert_int_equal(heap.bad_frees, 0);
}

static void destroy_says_nothing_of_pending_when_there_is_none(void **state) {
    static test_log log;
    test_heap heap;
    memlord *lord = open_with_log(&heap, &log);
    (void)state;
    pend(lord, cuda(0), 0x1000, 12345, 1)->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 12345);
    memlord_destroy(lord);
    assert_null(strstr(log.text, "pending"));
}

/* -- no memory -- */

#define BLOCKS 300

/* A deferred free, a use, or a move to the cpu. */
static memlord_result end_somehow(memlord *lord, memlord_device device, uint64_t key, fake *f,
                                  uint64_t queue, int how) {
    memlord_fence fence = fence_of(f, queue);
    memlord_result r;
    if (how == 0) return defer(lord, device, key, f, queue);
    if (how == 1) return use(lord, device, key, f, queue);
    r = memlord_move(lord, device, key, cpu(), key, 5, &fence, NULL);
    f->taken = r == MEMLORD_OK;
    return r;
}

/* Defers, uses and moves BLOCKS blocks while allocation n fails; answers whether one did. */
static int run_short_of_memory(uint64_t n) {
    test_heap heap;
    memlord_desc desc;
    memlord *lord = NULL;
    memlord_block_info info;
    memlord_stats before, after;
    uint64_t i;
    int failed;
    fakes_used = 0;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, 0);
    assert_ok(memlord_create(&desc, &lord));
    for (i = 0; i < BLOCKS; i++)
        assert_ok(memlord_alloc(lord, cuda((int)(i % 3)), 0x1000 + i * 64, i + 1, NULL));
    heap.fail_at = heap.calls + n;
    for (i = 0; i < BLOCKS; i++) {
        memlord_device device = cuda((int)(i % 3));
        uint64_t key = 0x1000 + i * 64;
        fake *f = fake_new(0);
        int how = (int)((i / 3 + n) % 3);
        memlord_result r;
        before = stats_of(lord, all());
        r = end_somehow(lord, device, key, f, i % 40, how);
        if (r != MEMLORD_OK) {
            assert_int_equal(r, MEMLORD_E_NOMEM);
            assert_int_equal(heap.failed, 1);
            after = stats_of(lord, all());
            assert_same_books(&before, &after);
            assert_int_equal(after.unknown_frees, 0);
            assert_ok(memlord_block_find(lord, device, key, &info));
            assert_int_equal(info.pending, 0);
            assert_int_equal(f->asked, 0);
            assert_int_equal(f->dropped, 0);
            assert_ok(end_somehow(lord, device, key, f, i % 40, how));
        }
        if (how == 1) assert_ok(memlord_free(lord, device, key, NULL));
        if (how == 2) {
            assert_ok(memlord_block_find(lord, cpu(), key, &info));
            assert_ok(memlord_free(lord, cpu(), key, NULL));
        }
        assert_int_equal(memlord_pending(lord, all()), (i + 1) * (i + 2) / 2);
    }
    failed = heap.failed > 0;
    for (i = 0; i < fakes_used; i++) fakes[i].answer = 1;
    heap.fail_at = heap.calls + 1;
    heap.fail_from = 1; /* retire needs no memory */
    assert_int_equal(memlord_retire(lord, all()), BLOCKS * (BLOCKS + 1) / 2);
    assert_int_equal(memlord_allocated(lord, all()), 0);
    heap.fail_at = 0;
    memlord_destroy(lord);
    assert_int_equal(heap.blocks, 0);
    assert_int_equal(heap.bad_frees, 0);
    assert_int_equal(fakes_left(), 0);
    return failed;
}

static void any_allocation_may_fail(void **state) {
    uint64_t n = 1;
    (void)state;
    while (run_short_of_memory(n)) n++;
    assert_true(n > 1);
}

static void a_free_of_a_used_block_needs_no_memory(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t i;
    for (i = 0; i < BLOCKS; i++) {
        fake *f = fake_new(0);
        assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000 + i * 64, 1, NULL));
        assert_ok(use(t->lord, cuda(0), 0x1000 + i * 64, f, i));
    }
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    for (i = 0; i < BLOCKS; i++)
        assert_ok(memlord_free(t->lord, cuda(0), 0x1000 + i * 64, NULL));
    assert_int_equal(memlord_pending(t->lord, cuda(0)), BLOCKS);
    t->heap.fail_at = 0;
}

/* Takes all memory that the ledger has left, in blocks of cuda:7, and lets no more be had. */
static void exhaust(test_case *t) {
    uint64_t i;
    t->heap.failed = 0;
    t->heap.fail_at = 1;
    t->heap.fail_from = 1;
    for (i = 1; i < 100000; i++) {
        fake *f;
        memlord_result r;
        (void)memlord_alloc(t->lord, cuda(7), i << 24, 1, NULL);
        if (memlord_allocated(t->lord, cuda(7)) < i) break;
        f = fake_new(0);
        r = use(t->lord, cuda(7), i << 24, f, i);
        if (r == MEMLORD_OK) continue;
        assert_int_equal(r, MEMLORD_E_NOMEM);
        f->answer = 1;
        return;
    }
}
/* Of a block that is not there the memory decides nothing: it is unknown, and a use is no free. */
static void without_memory_a_use_of_no_block_is_unknown_and_counts_nothing(void **state) {
    test_case *t = (test_case *)*state;
    memlord_stats before, after;
    fake *f = fake_new(0);
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 10, NULL));
    exhaust(t);
    assert_true(t->heap.failed > 0);
    before = stats_of(t->lord, all());
    assert_int_equal(use(t->lord, cuda(0), 0x2000, f, 1), MEMLORD_E_UNKNOWN);
    assert_int_equal(use(t->lord, cuda(0), 0x1000, f, 1), MEMLORD_E_NOMEM);
    assert_int_equal(defer(t->lord, cuda(0), 0x1000, f, 1), MEMLORD_E_NOMEM);
    after = stats_of(t->lord, all());
    assert_memory_equal(&before, &after, sizeof after);
    t->heap.fail_at = 0;
    assert_ok(use(t->lord, cuda(0), 0x1000, f, 1));
    assert_ok(memlord_free(t->lord, cuda(0), 0x1000, NULL));
    assert_int_equal(memlord_pending(t->lord, cuda(0)), 10);
}

static void with_defer_the_fence_of_no_block_is_dropped_at_a_safe_point(void **state) {
    memlord *lord = test_lord(state);
    fake *f = fake_new(0);
    assert_ok(defer(lord, cuda(0), 0, f, 1));
    assert_int_equal(f->dropped, 0);
    assert_ok(memlord_gc_poll(lord, all()));
    assert_int_equal(f->dropped, 1);
    assert_int_equal(f->asked, 0);
}

/* -- blocks that tokens have -- */

static void uses_of_an_open_token_are_dropped_once_at_destroy(void **state) {
    test_case *t = (test_case *)*state;
    memlord_realloc_token tokens[3];
    fake *f[6];
    size_t i;
    for (i = 0; i < 6; i++) {
        f[i] = fake_new(0);
        if (i < 3) assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000 + i * 64, 100, NULL));
        assert_ok(use(t->lord, cuda(0), 0x1000 + i % 3 * 64, f[i], i));
    }
    for (i = 0; i < 3; i++)
        assert_ok(memlord_realloc_begin(t->lord, cuda(0), 0x1000 + i * 64, &tokens[i]));
    assert_ok(memlord_realloc_end(t->lord, &tokens[1], 0x2000, 200, NULL));
    assert_ok(memlord_free(t->lord, cuda(0), 0x2000, NULL));
    assert_int_equal(f[1]->asked + f[4]->asked, 2);
    memlord_destroy(t->lord);
    t->lord = NULL;
    for (i = 0; i < 6; i++) {
        assert_int_equal(f[i]->dropped, 1);
        if (i % 3 != 1) assert_int_equal(f[i]->asked, 0);
    }
}

static void uses_of_tokens_ended_in_any_order_stay_with_their_blocks(void **state) {
    static const size_t orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}};
    memlord *lord = test_lord(state);
    size_t o, i;
    for (o = 0; o < 4; o++) {
        memlord_realloc_token tokens[3];
        fake *f[3];
        for (i = 0; i < 3; i++) {
            uint64_t key = 0x1000 + i * 64;
            f[i] = fake_new(0);
            assert_ok(memlord_alloc(lord, cuda(0), key, 100, NULL));
            assert_ok(use(lord, cuda(0), key, f[i], i));
            assert_ok(memlord_realloc_begin(lord, cuda(0), key, &tokens[i]));
        }
        for (i = 0; i < 3; i++) {
            size_t at = orders[o][i];
            uint64_t key = at ? 0x2000 + at * 64 : 0; /* 0: the real call failed */
            assert_ok(memlord_realloc_end(lord, &tokens[at], key, 10, NULL));
            assert_ok(memlord_free(lord, cuda(0), key ? key : 0x1000, NULL));
            assert_true(f[at]->asked > 0);
        }
        for (i = 0; i < 3; i++) f[i]->answer = 1;
        assert_int_equal(memlord_retire(lord, all()), 120);
        for (i = 0; i < 3; i++) assert_int_equal(f[i]->dropped, 1);
    }
}

/* -- against a model -- */

#define SLOTS 64

typedef struct slot {
    int live;
    uint64_t bytes;
    size_t uses;
    fake *used[4];
} slot;

/* What was freed and waits: some fence of it was not dropped yet. */
typedef struct parting {
    uint64_t bytes;
    size_t n;
    fake *fences[5];
} parting;

typedef struct model {
    slot slots[SLOTS];
    parting partings[FAKES];
    size_t n;
} model;

static uint64_t model_pending(const model *m) {
    uint64_t sum = 0;
    size_t i, k;
    for (i = 0; i < m->n; i++) {
        int waits = 0;
        for (k = 0; k < m->partings[i].n; k++) waits |= !get(&m->partings[i].fences[k]->dropped);
        if (waits) sum += m->partings[i].bytes;
    }
    return sum;
}

static void model_part(model *m, slot *s, fake *extra) {
    parting *p = &m->partings[m->n++];
    assert_true(m->n < FAKES);
    memset(p, 0, sizeof *p);
    p->bytes = s->bytes;
    memcpy(p->fences, s->used, s->uses * sizeof s->used[0]);
    p->n = s->uses;
    if (extra) p->fences[p->n++] = extra;
    s->live = 0;
    s->uses = 0;
}

static void model_step(memlord *lord, model *m, uint64_t *seed) {
    uint64_t at = test_random(seed) % SLOTS, key = 0x1000 + at * 64, dice = test_random(seed) % 10;
    memlord_device device = cuda((int)(at % 2));
    slot *s = &m->slots[at];
    if (dice == 0 && fakes_used) {
        fake *f = &fakes[test_random(seed) % fakes_used];
        f->answer = test_random(seed) % 8 ? 1 : -1;
    } else if (dice == 1) {
        memlord_retire(lord, test_random(seed) % 2 ? all() : device);
    } else if (!s->live) {
        s->bytes = test_random(seed) % 1000;
        assert_ok(memlord_alloc(lord, device, key, s->bytes, NULL));
        s->live = 1;
    } else if (dice < 4 && s->uses < 4) {
        fake *f = fake_new((int)(test_random(seed) % 2));
        assert_ok(use(lord, device, key, f, 10 + s->uses));
        s->used[s->uses++] = f;
    } else if (dice < 7) {
        fake *f = fake_new((int)(test_random(seed) % 2));
        f->after = (int)(test_random(seed) % 6);
        assert_ok(defer(lord, device, key, f, test_random(seed) % 4));
        model_part(m, s, f);
    } else {
        assert_ok(memlord_free(lord, device, key, NULL));
        model_part(m, s, NULL);
    }
}

static void random_histories_agree_with_a_model(void **state) {
    memlord *lord = test_lord(state);
    static model m;
    uint64_t seed = test_env("MEMLORD_TEST_SEED", 1), i, k, live;
    memset(&m, 0, sizeof m);
    for (i = 0; fakes_used < (TEST_SANITIZED ? 1500 : 4000); i++) {
        model_step(lord, &m, &seed);
        live = 0;
        for (k = 0; k < SLOTS; k++) live += m.slots[k].live ? m.slots[k].bytes : 0;
        assert_int_equal(memlord_pending(lord, all()), model_pending(&m));
        assert_int_equal(memlord_allocated(lord, all()), live + model_pending(&m));
    }
    for (i = 0; i < fakes_used; i++) fakes[i].answer = 1;
    memlord_retire(lord, all());
    assert_int_equal(memlord_pending(lord, all()), 0);
    assert_balanced(lord, all());
}

/* -- threads -- */

#define THREADS 4
#define OWN (FAKES / THREADS)

typedef struct worker {
    memlord *lord;
    uint64_t id, seed;
    size_t used;
    int live[SLOTS];
    uint64_t bytes[SLOTS];
    int bad;
} worker;

static fake *worker_fake(worker *w) {
    fake *f = &fakes[w->id * OWN + w->used++];
    memset(f, 0, sizeof *f);
    f->taken = 1; /* before another thread can drop it */
    f->after = (int)(test_random(&w->seed) % 12);
    if (test_random(&w->seed) % 20 == 0) f->answer = -1;
    return f;
}

static void worker_step(worker *w) {
    uint64_t at = test_random(&w->seed) % SLOTS, key = ((w->id + 1) << 32) + at * 64 + 64;
    uint64_t dice = test_random(&w->seed) % 8;
    memlord_device device = memlord_device_cuda((int)(at % 2));
    if (dice == 0) {
        memlord_retire(w->lord, memlord_device_all());
    } else if (dice == 1) {
        w->bad += memlord_gc_poll(w->lord, device) != MEMLORD_OK;
    } else if (!w->live[at]) {
        w->bytes[at] = test_random(&w->seed) % 5000;
        w->bad += memlord_alloc(w->lord, device, key, w->bytes[at], NULL) != MEMLORD_OK;
        w->live[at] = 1;
    } else if (dice < 4) {
        memlord_fence fence = fence_of(worker_fake(w), test_random(&w->seed) % 3);
        w->bad += memlord_block_use(w->lord, device, key, fence) != MEMLORD_OK;
    } else if (dice < 6) {
        memlord_fence fence = fence_of(worker_fake(w), test_random(&w->seed) % 3);
        w->bad += memlord_free_deferred(w->lord, device, key, fence, NULL) != MEMLORD_OK;
        w->live[at] = 0;
    } else if (dice == 6) {
        memlord_fence fence = fence_of(worker_fake(w), test_random(&w->seed) % 3);
        w->bad += memlord_move(w->lord, device, key, device, key + (1 << 20), 10, &fence, NULL) !=
                  MEMLORD_OK;
        w->bad += memlord_free(w->lord, device, key + (1 << 20), NULL) != MEMLORD_OK;
        w->live[at] = 0;
    } else {
        w->bad += memlord_free(w->lord, device, key, NULL) != MEMLORD_OK;
        w->live[at] = 0;
    }
}

static void *work(void *user) {
    worker *w = (worker *)user;
    while (w->used < OWN - 1) worker_step(w);
    return NULL;
}

static void threads_lose_no_byte_and_no_fence(void **state) {
    memlord *lord = test_lord(state);
    static worker workers[THREADS];
    pthread_t threads[THREADS];
    uint64_t i, k, live = 0;
    memset(workers, 0, sizeof workers);
    memset(fakes, 0, sizeof fakes);
    for (i = 0; i < THREADS; i++) {
        workers[i].lord = lord;
        workers[i].id = i;
        workers[i].seed = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    fakes_used = FAKES;
    for (i = 0; i < FAKES; i++) fakes[i].answer = 1;
    memlord_retire(lord, all());
    assert_int_equal(memlord_pending(lord, all()), 0);
    for (i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].bad, 0);
        for (k = 0; k < SLOTS; k++) live += workers[i].live[k] ? workers[i].bytes[k] : 0;
    }
    assert_int_equal(memlord_allocated(lord, all()), live);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_balanced(lord, all());
}

/* One address for all: each alloc completes what another thread left pending there. */
static void *fight(void *user) {
    worker *w = (worker *)user;
    while (w->used < OWN - 1) {
        fake *f = worker_fake(w);
        memlord_result r = memlord_alloc(w->lord, memlord_device_cuda(0), 0x1000, 1, NULL);
        w->bad += r != MEMLORD_OK;
        r = memlord_free_deferred(w->lord, memlord_device_cuda(0), 0x1000, fence_of(f, w->id),
                                  NULL);
        w->bad += r != MEMLORD_OK && r != MEMLORD_E_UNKNOWN;
        if (r != MEMLORD_OK) f->taken = 0;
        if (w->used % 5 == 0) memlord_retire(w->lord, memlord_device_all());
    }
    return NULL;
}

static void threads_at_one_address_lose_no_fence(void **state) {
    memlord *lord = test_lord(state);
    static worker workers[THREADS];
    pthread_t threads[THREADS];
    uint64_t i;
    memset(workers, 0, sizeof workers);
    memset(fakes, 0, sizeof fakes);
    for (i = 0; i < THREADS; i++) {
        workers[i].lord = lord;
        workers[i].id = i;
        workers[i].seed = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, fight, &workers[i]), 0);
    }
    for (i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].bad, 0);
    }
    fakes_used = FAKES;
    for (i = 0; i < FAKES; i++) fakes[i].answer = 1;
    memlord_retire(lord, all());
    assert_int_equal(memlord_pending(lord, all()), 0);
    assert_balanced(lord, all());
}

/* A done that waits until the test says so. */
static test_gate gate;

static void wait_at_the_gate(fake *f) {
    (void)f;
    test_gate_pass(&gate);
}

static void *retire_elsewhere(void *user) {
    memlord_retire((memlord *)user, memlord_device_all());
    return NULL;
}

static void start_at_the_gate(memlord *lord, fake *f, pthread_t *thread) {
    static const test_gate closed = TEST_GATE;
    gate = closed;
    f->in_done = wait_at_the_gate;
    assert_int_equal(pthread_create(thread, NULL, retire_elsewhere, lord), 0);
    assert_true(test_gate_came(&gate, 1));
}

static void a_fence_that_blocks_holds_up_no_other_queue(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    fake *stuck = pend(lord, cuda(0), 0x1000, 100, 1), *other;
    start_at_the_gate(lord, stuck, &thread);
    other = pend(lord, cuda(0), 0x2000, 7, 2);
    set(&other->answer, 1);
    assert_int_equal(memlord_retire(lord, all()), 7);
    assert_ok(memlord_alloc(lord, cuda(0), 0x3000, 1, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x3000, NULL));
    test_gate_open(&gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
    stuck->in_done = NULL;
    stuck->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
}

static void *open_the_gate_later(void *user) {
    int i;
    (void)user;
    for (i = 0; i < 1000; i++) sched_yield();
    test_gate_open(&gate);
    return NULL;
}

static void an_alloc_over_a_block_whose_fence_is_running_drops_it_after(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread, opener;
    fake *stuck = pend(lord, cuda(0), 0x1000, 100, 1);
    start_at_the_gate(lord, stuck, &thread);
    assert_int_equal(pthread_create(&opener, NULL, open_the_gate_later, NULL), 0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 7, NULL));
    assert_int_equal(pthread_join(opener, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 7);
    assert_int_equal(memlord_freed(lord, cuda(0)), 100);
    assert_int_equal(get(&stuck->dropped), 1);
}

/* -- fork -- */

static void expect_child(pid_t pid) {
    int status = -1;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) fail_msg("the child died of signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_child_retires_what_was_pending(void **state) {
    memlord *lord = test_lord(state);
    fake *f = pend(lord, cuda(0), 0x1000, 100, 1);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(30);
        if (memlord_pending(lord, cuda(0)) != 100) _exit(1);
        f->answer = 1;
        if (memlord_retire(lord, all()) != 100) _exit(2);
        if (memlord_allocated(lord, all()) != 0) _exit(3);
        _exit(f->dropped != 1);
    }
    expect_child(pid);
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    f->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
}

/* With the ledger's own pages: the malloc of a sanitizer does not survive fork. */
static void a_child_born_while_done_runs_can_retire(void **state) {
    memlord_desc desc;
    memlord *lord = NULL;
    pthread_t thread;
    fake *stuck, *behind;
    pid_t pid;
    TEST_POSIX();
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    assert_ok(memlord_create(&desc, &lord));
    stuck = pend(lord, cuda(0), 0x1000, 100, 1);
    behind = pend(lord, cuda(0), 0x2000, 7, 1);
    start_at_the_gate(lord, stuck, &thread);
    pid = fork();
    if (pid == 0) {
        alarm(30);
        stuck->in_done = NULL;
        stuck->answer = behind->answer = 1;
        if (memlord_retire(lord, all()) != 107) _exit(1);
        if (memlord_allocated(lord, all()) != 0) _exit(2);
        _exit(0);
    }
    expect_child(pid);
    test_gate_open(&gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
    memlord_destroy(lord);
}

/* Its `drop` was called: `done` is not called any more. */
static void a_child_born_while_drop_runs_retires_without_asking_again(void **state) {
    static const test_gate closed = TEST_GATE;
    memlord_desc desc;
    memlord *lord = NULL;
    pthread_t thread;
    fake *stuck;
    pid_t pid;
    TEST_POSIX();
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    assert_ok(memlord_create(&desc, &lord));
    stuck = pend(lord, cuda(0), 0x1000, 100, 1);
    gate = closed;
    stuck->answer = 1;
    stuck->in_drop = wait_at_the_gate;
    assert_int_equal(pthread_create(&thread, NULL, retire_elsewhere, lord), 0);
    assert_true(test_gate_came(&gate, 1));
    pid = fork();
    if (pid == 0) {
        alarm(30);
        if (memlord_retire(lord, all()) != 100) _exit(1);
        if (memlord_allocated(lord, all()) != 0) _exit(2);
        if (stuck->asked != 2) _exit(3); /* once by the free, once by the parent */
        _exit(stuck->dropped != 1);
    }
    expect_child(pid);
    test_gate_open(&gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(memlord_allocated(lord, all()), 0);
    memlord_destroy(lord);
}

/* Nor does it hold up its queue if its block was allocated again meanwhile. */
static void a_child_retires_behind_a_fence_whose_block_is_gone(void **state) {
    memlord_desc desc;
    memlord *lord = NULL;
    pthread_t thread;
    fake *stuck, *behind;
    pid_t pid;
    TEST_POSIX();
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    assert_ok(memlord_create(&desc, &lord));
    stuck = pend(lord, cuda(0), 0x1000, 100, 1);
    behind = pend(lord, cuda(0), 0x2000, 7, 1);
    start_at_the_gate(lord, stuck, &thread);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 20, NULL));
    pid = fork();
    if (pid == 0) {
        alarm(30);
        behind->answer = 1;
        if (memlord_retire(lord, all()) != 7) _exit(1);
        if (memlord_pending(lord, all()) != 0) _exit(2);
        if (stuck->dropped != 1 || behind->dropped != 1) _exit(3);
        _exit(memlord_allocated(lord, all()) != 20);
    }
    expect_child(pid);
    test_gate_open(&gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
    memlord_destroy(lord);
}

static void *free_at_the_gate(void *user) {
    memlord *lord = (memlord *)user;
    (void)defer(lord, memlord_device_cuda(0), 0x1000, &fakes[0], 1);
    return NULL;
}

static void a_child_born_while_a_free_asks_its_fence_can_retire(void **state) {
    TEST_POSIX();
    static const test_gate closed = TEST_GATE;
    memlord_desc desc;
    memlord *lord = NULL;
    pthread_t thread;
    fake *stuck = fake_new(0), *used = fake_new(0);
    pid_t pid;
    (void)state;
    gate = closed;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(use(lord, cuda(0), 0x1000, used, 2));
    stuck->in_done = used->in_done = wait_at_the_gate;
    assert_int_equal(pthread_create(&thread, NULL, free_at_the_gate, lord), 0);
    assert_true(test_gate_came(&gate, 1));
    pid = fork();
    if (pid == 0) {
        alarm(30);
        stuck->in_done = used->in_done = NULL;
        stuck->answer = used->answer = 1;
        if (memlord_pending(lord, cuda(0)) != 100) _exit(1);
        if (memlord_retire(lord, all()) != 100) _exit(2);
        if (memlord_allocated(lord, all()) != 0) _exit(3);
        _exit(stuck->dropped != 1 || used->dropped != 1);
    }
    test_gate_open(&gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
    memlord_destroy(lord);
    expect_child(pid);
}

static memlord *the_other;
static uint64_t retired_there;

static void retire_the_other(fake *f) {
    f->in_done = NULL;
    retired_there = memlord_retire(the_other, memlord_device_all());
}

static void destroy_the_other(fake *f) {
    (void)f;
    memlord_destroy(the_other);
}

static void a_fence_may_retire_another_ledger(void **state) {
    memlord *lord = test_lord(state);
    test_heap heap;
    memlord_desc desc;
    fake *here, *there;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, 0);
    assert_ok(memlord_create(&desc, &the_other));
    here = pend(lord, cuda(0), 0x1000, 100, 1);
    there = pend(the_other, cuda(0), 0x1000, 7, 1);
    here->in_done = retire_the_other;
    here->answer = there->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_int_equal(retired_there, 7);
    assert_int_equal(there->dropped, 1);
    memlord_destroy(the_other);
    assert_int_equal(heap.blocks, 0);
}

/* A `done` that retires another ledger is still the one that its own thread is in. */
static void retire_the_other_then_here(fake *f) {
    f->in_done = NULL;
    retired_there = memlord_retire(the_other, memlord_device_all());
    if (memlord_retire(f->lord, memlord_device_all())) f->bad++;
}
static void a_fence_that_has_retired_another_ledger_is_still_running(void **state) {
    memlord *lord = test_lord(state);
    fake *here = pend(lord, cuda(0), 0x1000, 100, 1), *next = pend(lord, cuda(0), 0x2000, 5, 2),
         *there;
    assert_ok(memlord_create(NULL, &the_other));
    there = pend(the_other, cuda(0), 0x1000, 7, 1);
    here->lord = lord;
    here->asked = next->asked = 0;
    here->in_done = retire_the_other_then_here;
    here->answer = next->answer = there->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 105);
    assert_int_equal(retired_there, 7);
    assert_int_equal(here->asked, 1);
    assert_int_equal(next->asked, 1);
    memlord_destroy(the_other);
}
static void a_fence_may_destroy_another_ledger(void **state) {
    memlord *lord = test_lord(state);
    test_heap heap;
    memlord_desc desc;
    fake *here, *there;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, 0);
    assert_ok(memlord_create(&desc, &the_other));
    here = pend(lord, cuda(0), 0x1000, 100, 1);
    there = pend(the_other, cuda(0), 0x1000, 7, 1);
    here->in_drop = destroy_the_other;
    here->answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_int_equal(there->dropped, 1);
    assert_int_equal(heap.blocks, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_pending_block_is_still_allocated),
        TEST(it_is_credited_when_its_fence_is_done),
        TEST(blocks_opened_and_closed_differ_by_those_live),
        TEST(pending_bytes_count_in_the_peak),
        TEST(done_is_called_once_by_the_free_on_its_thread),
        TEST(a_fence_done_at_once_is_credited_at_once),
        TEST(a_fence_without_a_drop_is_legal),
        TEST(a_drop_that_defers_another_free_is_no_endless_retire),
        TEST(the_index_of_a_deferred_free_is_ignored),
        TEST(a_block_of_0_bytes_can_be_pending),
        TEST(free_done_ends_a_pending_block),
        TEST(free_done_ends_a_block_that_its_uses_keep),
        TEST(free_done_of_what_is_not_pending_changes_nothing),
        TEST(a_fence_may_say_it_itself),
        TEST_DEFER(free_done_under_defer_leaves_its_fence_to_a_safe_point),
        TEST(a_fence_that_fails_retires_and_is_counted),
        TEST(a_fence_that_fails_in_the_free_is_counted),
        TEST(a_failed_fence_does_not_hold_up_its_queue),
        TEST(the_deferred_free_of_a_dropped_storage_drops_its_fence),
        TEST_DEFER(under_defer_it_drops_the_fence_at_a_safe_point),
        TEST(bad_arguments_take_no_fence_and_change_nothing),
        TEST(an_unknown_storage_takes_no_fence),
        TEST(storage_0_is_a_no_op_and_drops_the_fence),
        TEST(a_null_ledger_drops_what_it_is_given),
        TEST(a_pending_storage_is_dead_to_free),
        TEST(a_pending_storage_is_dead_to_release),
        TEST(a_pending_storage_is_dead_to_retain),
        TEST(a_pending_storage_is_dead_to_use),
        TEST(a_pending_storage_is_dead_to_a_second_deferred_free),
        TEST(a_pending_storage_is_dead_to_move_and_realloc),
        TEST(a_storage_that_was_retired_is_unknown),
        TEST(an_alloc_completes_it_first),
        TEST(a_track_completes_it_first),
        TEST(alloc_n_and_track_n_complete_it_first),
        TEST(a_realloc_onto_it_completes_it_first),
        TEST(a_move_onto_it_completes_it_first),
        TEST(another_device_may_use_its_address),
        TEST(another_type_leaves_it_pending),
        TEST(an_address_may_go_round_many_times),
        TEST(a_completed_one_leaves_its_queue_in_order),
        TEST(one_queue_completes_in_order),
        TEST(a_fence_done_in_its_free_waits_for_its_turn),
        TEST(a_queue_goes_by_the_frees_and_not_by_the_uses),
        TEST(one_used_first_and_freed_last_is_credited_late),
        TEST(a_slow_queue_holds_up_no_other),
        TEST(equal_queues_of_two_devices_are_two),
        TEST(a_queue_is_asked_no_further_than_its_first_unfinished),
        TEST(queue_numbers_are_any_64_bits),
        TEST(a_thousand_queues_are_retired_at_once),
        TEST(queues_that_come_and_go_leave_nothing_behind),
        TEST(retire_credits_selected_devices_only),
        TEST(retire_asks_no_fence_of_other_devices),
        TEST(retire_of_no_device_is_0),
        TEST(gc_poll_retires),
        TEST(an_alloc_credits_a_few),
        TEST(calls_on_other_types_ask_nothing),
        TEST_CLOCK(a_call_asks_one_queue_at_most),
        TEST_CLOCK(a_queue_that_is_not_done_is_left_alone_longer_and_longer),
        TEST_CLOCK(it_is_left_alone_for_10_ms_at_most),
        TEST_CLOCK(the_calls_that_leave_a_queue_alone_double_up_to_256),
        TEST_CLOCK(the_next_of_a_queue_is_asked_at_once_when_the_first_is_gone),
        TEST_CLOCK(a_queue_of_another_device_of_the_type_has_its_own_rest),
        TEST(calls_that_leave_it_alone_seldom_read_the_clock),
        TEST_CLOCK(frees_of_its_type_ask_too),
        cmocka_unit_test_setup_teardown(the_poller_asks_for_a_host_that_calls_nothing,
                                        setup_poller, teardown),
        TEST(repeated_allocs_credit_all),
        TEST(allocs_reach_queues_among_many_slow_ones),
        TEST(a_use_asks_its_fence_nothing_yet),
        TEST(a_free_waits_for_the_uses),
        TEST(the_last_release_waits_for_the_uses),
        TEST(free_n_and_release_n_wait_too),
        TEST(uses_done_by_then_defer_nothing),
        TEST(uses_on_several_queues_are_all_needed),
        TEST(a_deferred_free_needs_its_fence_and_the_uses),
        TEST(a_later_use_takes_the_place_of_an_earlier),
        TEST(a_failed_use_counts_as_done),
        TEST(a_block_waiting_for_two_queues_holds_up_neither),
        TEST(many_uses_of_one_block_are_kept),
        TEST(uses_that_come_and_go_leave_nothing_behind),
        TEST(an_alloc_over_a_used_live_block_drops_its_uses),
        TEST(a_realloc_of_a_used_block_keeps_the_books),
        TEST(a_realloc_in_two_steps_keeps_the_uses_when_it_fails),
        TEST(a_realloc_in_two_steps_keeps_the_books),
        TEST(a_deferred_free_of_a_shared_block_is_counted),
        TEST(a_deferred_free_of_a_used_shared_block_is_counted),
        TEST(a_move_with_a_fence_leaves_the_source_pending),
        TEST(a_move_that_waits_takes_the_views_along),
        TEST(a_move_that_waits_takes_any_number_of_views_along),
        TEST(a_move_whose_fence_is_done_is_a_plain_one),
        TEST(what_moved_keeps_its_tag_and_references),
        TEST(a_move_that_fails_takes_no_fence),
        TEST(a_fenced_move_onto_itself_leaves_nothing_pending),
        TEST(a_fenced_move_onto_a_live_block_closes_that),
        TEST(a_move_of_a_used_block_keeps_the_books),
        TEST(what_was_pending_at_a_reset_is_not_freed_in_the_new_epoch),
        TEST(an_older_block_deferred_in_the_new_epoch_is_freed_there),
        TEST(blocks_each_shows_it_pending),
        TEST(block_find_shows_it_pending),
        TEST(a_live_block_is_not_shown_pending),
        TEST(its_tag_holds_it_until_it_is_credited),
        TEST_SITES(its_site_holds_it_until_it_is_credited),
        TEST_SITES(a_free_that_had_to_wait_keeps_its_site),
        TEST_DEFER(with_defer_a_free_calls_nothing_of_the_host),
        TEST_DEFER(with_defer_a_free_of_a_used_block_calls_nothing),
        TEST_DEFER(with_defer_an_alloc_calls_nothing),
        TEST_DEFER(with_defer_a_later_use_calls_nothing),
        TEST_DEFER(with_defer_a_move_calls_nothing),
        TEST_DEFER(with_defer_the_queue_still_keeps_its_order),
        TEST_DEFER(with_defer_the_next_poll_asks_all_that_is_new),
        cmocka_unit_test(no_call_costs_more_for_more_queues),
        TEST(of_many_queues_each_ends_when_it_is_done),
        TEST(done_may_call_the_ledger),
        TEST(drop_may_call_the_ledger),
        TEST(both_may_call_the_ledger),
        TEST(many_queues_do_not_nest_deeper),
        TEST(the_drop_of_a_fence_without_a_block_asks_no_other),
        TEST(a_done_that_allocates_the_address_it_frees_credits_once),
        TEST(destroy_lets_a_drop_call_the_ledger),
        TEST(destroy_drops_what_a_drop_deferred),
        TEST(destroy_drops_a_thousand_rounds_at_most),
        TEST(destroy_drops_all_and_logs_what_was_pending),
        TEST(destroy_says_nothing_of_pending_when_there_is_none),
        TEST(any_allocation_may_fail),
        TEST(a_free_of_a_used_block_needs_no_memory),
        TEST(without_memory_a_use_of_no_block_is_unknown_and_counts_nothing),
        TEST_DEFER(with_defer_the_fence_of_no_block_is_dropped_at_a_safe_point),
        TEST(uses_of_an_open_token_are_dropped_once_at_destroy),
        TEST(uses_of_tokens_ended_in_any_order_stay_with_their_blocks),
        TEST(random_histories_agree_with_a_model),
        TEST(threads_lose_no_byte_and_no_fence),
        TEST(threads_at_one_address_lose_no_fence),
        TEST(a_fence_that_blocks_holds_up_no_other_queue),
        TEST(an_alloc_over_a_block_whose_fence_is_running_drops_it_after),
        TEST(a_child_retires_what_was_pending),
        TEST(a_child_born_while_done_runs_can_retire),
        cmocka_unit_test_setup(a_child_born_while_drop_runs_retires_without_asking_again, reset_fakes),
        TEST(a_child_retires_behind_a_fence_whose_block_is_gone),
        TEST(a_child_born_while_a_free_asks_its_fence_can_retire),
        TEST(a_fence_may_retire_another_ledger),
        TEST(a_fence_that_has_retired_another_ledger_is_still_running),
        TEST(a_fence_may_destroy_another_ledger),
    };
    return cmocka_run_group_tests_name("deferred", tests, NULL, NULL);
}
