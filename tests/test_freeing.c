/* Frees whose real call may fail: free_begin and free_end. */
#include "support.h"

static void a_free_that_succeeded_is_a_free(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    memlord_stats s;
    memlord_site_stat top;
    memlord_block_info info;
    const memlord_site *site = MEMLORD_SITE();
    MEMLORD_TAG(lord, "cache") assert_ok(MEMLORD_ALLOC(lord, cuda(1), 64, 1000));
    assert_ok(memlord_free_begin(lord, cuda(0), 64, &token, site));
    assert_int_equal(memlord_allocated(lord, cuda(1)), 1000); /* counted, and not there */
    assert_int_equal(memlord_block_find(lord, cuda(1), 64, &info), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_free_end(lord, &token, 0, site));
    s = stats_of(lord, cuda(1));
    assert_int_equal(s.allocated, 0);
    assert_int_equal(s.freed, 1000);
    assert_int_equal(s.frees, 1);
    assert_int_equal(s.allocs, 1);
    assert_int_equal(memlord_site_top_free(lord, cuda(1), &top), 1);
    assert_int_equal(top.free_bytes, 1000);
    assert_balanced(lord, all());
}

static void a_free_that_failed_was_none(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    memlord_stats before, after;
    memlord_block_info was, now;
    memlord_meta meta = {"wte", "f16", {2, 3}, 2, 7, NULL};
    memlord_mark(lord);
    MEMLORD_TAG(lord, "weights") assert_ok(MEMLORD_ALLOC(lord, cuda(0), 64, 1000));
    assert_ok(memlord_retain(lord, cuda(0), 64, NULL));
    assert_ok(memlord_block_describe(lord, cuda(0), 64, &meta));
    assert_ok(memlord_block_find(lord, cuda(0), 64, &was));
    before = stats_of(lord, all());
    assert_ok(memlord_free_begin(lord, cuda(0), 64, &token, NULL));
    assert_ok(memlord_free_end(lord, &token, 1, NULL));
    after = stats_of(lord, all());
    assert_memory_equal(&before, &after, sizeof after);
    assert_ok(memlord_block_find(lord, cuda(0), 64, &now));
    assert_memory_equal(&was, &now, sizeof now);
}

static void a_realloc_does_not_end_what_a_free_began(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_ok(memlord_alloc(lord, cuda(0), 64, 1000, NULL));
    assert_ok(memlord_free_begin(lord, cuda(0), 64, &token, NULL));
    assert_int_equal(memlord_realloc_end(lord, &token, 64, 9, NULL), MEMLORD_E_STATE);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 1000);
    assert_ok(memlord_free_end(lord, &token, 0, NULL)); /* it is as good as before */
    assert_int_equal(memlord_free_end(lord, &token, 0, NULL), MEMLORD_E_STATE);
    assert_ok(memlord_alloc(lord, cuda(0), 64, 1000, NULL));
    assert_ok(memlord_realloc_begin(lord, cuda(0), 64, &token));
    assert_ok(memlord_free_end(lord, &token, 0, NULL)); /* a realloc to 0 bytes */
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_ok(memlord_verify(lord));
}

static void a_begin_that_failed_needs_no_end(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_int_equal(memlord_free_begin(lord, cuda(0), 64, &token, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_free_end(lord, &token, 0, NULL), MEMLORD_E_STATE);
    assert_int_equal(memlord_realloc_begin(lord, cuda(0), 64, &token), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_realloc_end(lord, &token, 64, 7, NULL)); /* that one is good all the same */
    assert_int_equal(memlord_allocated(lord, cuda(0)), 7);
    assert_ok(memlord_free_begin(lord, cuda(0), 0, &token, NULL)); /* free(NULL) */
    assert_ok(memlord_free_end(lord, &token, 0, NULL));
}

static void another_may_have_the_address_meanwhile(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_ok(memlord_alloc(lord, cuda(0), 64, 1000, NULL));
    assert_ok(memlord_free_begin(lord, cuda(0), 64, &token, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 64, 30, NULL)); /* the real free has returned */
    assert_int_equal(memlord_allocated(lord, cuda(0)), 1030);
    assert_ok(memlord_free_end(lord, &token, 0, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 30);
    assert_int_equal(stats_of(lord, all()).implicit_frees, 0);
    assert_ok(memlord_free(lord, cuda(0), 64, NULL));
}

static void a_shared_block_is_counted_when_it_is_gone(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_ok(memlord_track(lord, cuda(0), 64, 1000, NULL));
    assert_ok(memlord_track(lord, cuda(0), 64, 1000, NULL));
    assert_ok(memlord_free_begin(lord, cuda(0), 64, &token, NULL));
    assert_ok(memlord_free_end(lord, &token, 0, NULL));
    assert_int_equal(stats_of(lord, all()).freed_while_shared, 1);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static int answer;
static int ask(void *user) {
    (void)user;
    return answer;
}

static void a_block_with_uses_pends_from_the_begin(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    memlord_fence fence = {ask, NULL, 1, NULL};
    answer = 0;
    assert_ok(memlord_alloc(lord, cuda(0), 64, 1000, NULL));
    assert_ok(memlord_block_use(lord, cuda(0), 64, fence));
    assert_ok(memlord_free_begin(lord, cuda(0), 64, &token, NULL));
    assert_int_equal(memlord_pending(lord, all()), 1000);
    assert_ok(memlord_free_end(lord, &token, 0, NULL));
    assert_int_equal(memlord_pending(lord, all()), 1000);
    assert_int_equal(memlord_free_begin(lord, cuda(0), 64, &token, NULL), MEMLORD_E_STATE);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    answer = 1;
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_balanced(lord, all());
}

static void a_block_with_uses_comes_back_without_them(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    memlord_fence fence = {ask, NULL, 1, NULL};
    memlord_block_info info;
    int done;
    for (done = 0; done < 2; done++) { /* whether it was credited meanwhile or not */
        answer = 0;
        MEMLORD_TAG(lord, "cache") assert_ok(memlord_alloc(lord, cuda(0), 64, 1000, NULL));
        assert_ok(memlord_block_use(lord, cuda(0), 64, fence));
        assert_ok(memlord_free_begin(lord, cuda(0), 64, &token, NULL));
        answer = done;
        (void)memlord_retire(lord, all());
        assert_ok(memlord_free_end(lord, &token, 1, NULL));
        assert_int_equal(memlord_allocated(lord, all()), 1000);
        assert_int_equal(memlord_pending(lord, all()), 0);
        assert_ok(memlord_block_find(lord, cuda(0), 64, &info));
        assert_string_equal(info.tag, "cache");
        assert_ok(memlord_free(lord, cuda(0), 64, NULL));
        assert_int_equal(memlord_allocated(lord, all()), 0);
        assert_balanced(lord, all());
    }
    answer = 1;
}

static void what_is_not_live_is_counted_and_what_does_not_match_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_int_equal(memlord_free_begin(lord, cuda(0), 64, &token, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
    assert_int_equal(memlord_free_end(lord, &token, 0, NULL), MEMLORD_E_STATE);
    assert_ok(memlord_free_begin(lord, cuda(0), 0, &token, NULL));
    assert_ok(memlord_free_end(lord, &token, 1, NULL));
    assert_int_equal(memlord_free_begin(lord, cuda(0), 64, NULL, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_free_end(lord, NULL, 0, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_free_begin(lord, cuda(0), UINT64_MAX, &token, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_free_begin(lord, memlord_device_make(99, 0), 64, &token, NULL),
                     MEMLORD_E_DEVICE);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
    assert_ok(memlord_free_begin(NULL, cuda(0), 64, &token, NULL));
    assert_ok(memlord_free_end(NULL, &token, 0, NULL));
}

static void a_dropped_block_is_not_found_and_not_invented(void **state) {
    test_case *t = (test_case *)*state;
    memlord_realloc_token token;
    uint64_t key = 64, dropped;
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    while (memlord_alloc(t->lord, cuda(0), key << 24, 10, NULL) == MEMLORD_OK) key++;
    t->heap.fail_at = 0;
    dropped = memlord_allocated(t->lord, all());
    assert_ok(memlord_free_begin(t->lord, cuda(0), key << 24, &token, NULL));
    assert_ok(memlord_free_end(t->lord, &token, 0, NULL));
    assert_ok(memlord_free_begin(t->lord, cuda(0), 64u << 24, &token, NULL));
    assert_ok(memlord_free_end(t->lord, &token, 1, NULL));
    assert_int_equal(memlord_allocated(t->lord, all()), dropped);
    assert_int_equal(stats_of(t->lord, all()).unknown_frees, 0);
}

static void *churn(void *user) {
    memlord *lord = (memlord *)user;
    static uint64_t threads;
    uint64_t base = (__atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED)) << 32;
    int i;
    for (i = 0; i < 5000; i++) {
        memlord_realloc_token token;
        uint64_t key = base + (uint64_t)(i % 100 + 1) * 4096;
        (void)memlord_alloc(lord, cuda(0), key, 64, NULL);
        (void)memlord_free_begin(lord, cuda(0), key, &token, NULL);
        (void)memlord_free_end(lord, &token, i % 3 == 0, NULL);
        if (i % 3 == 0) (void)memlord_free(lord, cuda(0), key, NULL);
    }
    return NULL;
}

static void threads_lose_nothing(void **state) {
    memlord *lord = test_lord(state);
    pthread_t threads[4];
    memlord_stats s;
    int i;
    for (i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, churn, lord), 0);
    for (i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    s = stats_of(lord, all());
    assert_int_equal(s.allocated, 0);
    assert_int_equal(s.allocs, 4 * 5000);
    assert_int_equal(s.frees, 4 * 5000);
    assert_int_equal(s.total_freed, 4 * 5000 * 64);
    assert_int_equal(s.implicit_frees + s.unknown_frees, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_SITES(a_free_that_succeeded_is_a_free),
        TEST_SITES(a_free_that_failed_was_none),
        TEST(a_realloc_does_not_end_what_a_free_began),
        TEST(a_begin_that_failed_needs_no_end),
        TEST(another_may_have_the_address_meanwhile),
        TEST(a_shared_block_is_counted_when_it_is_gone),
        TEST(a_block_with_uses_pends_from_the_begin),
        TEST(a_block_with_uses_comes_back_without_them),
        TEST(what_is_not_live_is_counted_and_what_does_not_match_refused),
        TEST(a_dropped_block_is_not_found_and_not_invented),
        TEST(threads_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
