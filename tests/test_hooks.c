/* Hosts whose allocator is a table of function pointers. */
#include "support.h"

#include <errno.h>

/* The host's allocator counts its calls, and its realloc fails when it is told to. */
static struct {
    int mallocs, callocs, reallocs, aligneds, frees, fail;
} host;

static void *host_malloc(size_t size) { return host.mallocs++, malloc(size); }
static void *host_calloc(size_t n, size_t size) { return host.callocs++, calloc(n, size); }
static void *host_realloc(void *ptr, size_t size) {
    host.reallocs++;
    if (size) return host.fail ? NULL : realloc(ptr, size);
    free(ptr);
    return NULL;
}
static void *host_aligned(size_t alignment, size_t size) {
    void *p = NULL;
    host.aligneds++;
    return posix_memalign(&p, alignment, size) ? NULL : p;
}
static void host_free(void *ptr) {
    host.frees++;
    free(ptr);
}
static const memlord_hooks of_host = {host_malloc, host_calloc, host_realloc, host_aligned,
                                      host_free};

static int same(const memlord_hooks *a, const memlord_hooks *b) {
    return a->malloc_fn == b->malloc_fn && a->calloc_fn == b->calloc_fn &&
           a->realloc_fn == b->realloc_fn && a->aligned_fn == b->aligned_fn &&
           a->free_fn == b->free_fn;
}

static uint64_t live(memlord *lord) { return memlord_allocated(lord, cpu()); }
static uint64_t anomalies(memlord *lord) {
    memlord_stats s = stats_of(lord, all());
    return s.unknown_frees + s.implicit_frees + s.refused;
}

static void each_function_calls_the_hosts_and_records(void **state) {
    memlord *lord = test_lord(state);
    memlord_hooks t = of_host;
    void *a, *b, *c, *d;
    memset(&host, 0, sizeof host);
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL));
    a = t.malloc_fn(10);
    b = t.calloc_fn(5, 20);
    c = t.aligned_fn(64, 1000);
    d = t.realloc_fn(NULL, 10000);
    assert_true((uintptr_t)c % 64 == 0 && ((char *)b)[99] == 0);
    assert_int_equal(live(lord), 11110);
    a = t.realloc_fn(a, 100000);
    assert_int_equal(live(lord), 111100);
    t.free_fn(a);
    t.free_fn(b);
    t.free_fn(c);
    t.free_fn(d);
    t.free_fn(NULL);
    assert_int_equal(live(lord), 0);
    assert_int_equal(anomalies(lord), 0);
    assert_int_equal(host.mallocs + 10 * host.callocs + 100 * host.aligneds, 111);
    assert_int_equal(host.reallocs, 2);
    assert_int_equal(host.frees, 5);
    assert_ok(memlord_hooks_uninstall(&t));
}

static void an_uninstall_restores_the_exact_pointers(void **state) {
    memlord_hooks t = of_host;
    assert_ok(memlord_hooks_install(test_lord(state), &t, MEMLORD_HOOK_ALL));
    assert_false(same(&t, &of_host));
    assert_ok(memlord_hooks_uninstall(&t));
    assert_true(same(&t, &of_host));
    assert_int_equal(memlord_hooks_uninstall(&t), MEMLORD_E_STATE);
    assert_true(same(&t, &of_host));
}

static void a_second_install_replaces_the_first(void **state) {
    memlord *lord = test_lord(state), *other = NULL;
    memlord_hooks a = of_host, b = of_host;
    void *p;
    assert_ok(memlord_create(NULL, &other));
    assert_ok(memlord_hooks_install(lord, &a, MEMLORD_HOOK_ALL));
    assert_ok(memlord_hooks_install(other, &b, MEMLORD_HOOK_ALL));
    assert_true(same(&a, &of_host));
    assert_ok(memlord_hooks_install(lord, &b, MEMLORD_HOOK_ALL)); /* the same table, once more */
    p = b.malloc_fn(10);
    assert_int_equal(live(lord), 10);
    assert_int_equal(live(other), 0);
    b.free_fn(p);
    assert_ok(memlord_hooks_uninstall(&b));
    assert_true(same(&b, &of_host));
    memlord_destroy(other);
}

static void each_function_is_switched_alone(void **state) {
    static const uint64_t expected[] = {1, 2, 4, 8};
    memlord *lord = test_lord(state);
    uint32_t i;
    for (i = 0; i < 4; i++) {
        memlord_hooks t = of_host;
        void *p[4];
        int k;
        assert_ok(memlord_hooks_install(lord, &t, (uint32_t)1 << i));
        p[0] = t.malloc_fn(1);
        p[1] = t.calloc_fn(1, 2);
        p[2] = t.realloc_fn(NULL, 4);
        p[3] = t.aligned_fn(64, 8);
        assert_int_equal(live(lord), expected[i]);
        for (k = 0; k < 4; k++) t.free_fn(p[k]);
        assert_int_equal(live(lord), 0);
        assert_ok(memlord_hooks_uninstall(&t));
        assert_true(same(&t, &of_host));
    }
    assert_int_equal(anomalies(lord), 0); /* what is not recorded is no unknown free */
}

static void a_realloc_that_records_nothing_ends_a_block(void **state) {
    memlord *lord = test_lord(state);
    memlord_hooks t = of_host;
    void *p, *q;
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_MALLOC));
    p = t.malloc_fn(10);
    host.fail = 1;
    assert_null(t.realloc_fn(p, 100));
    host.fail = 0;
    assert_int_equal(live(lord), 10);
    p = t.realloc_fn(p, 100);
    assert_int_equal(live(lord), 0);
    q = t.malloc_fn(7);
    t.free_fn(p);
    t.free_fn(q);
    assert_int_equal(anomalies(lord) + live(lord), 0);
    assert_ok(memlord_hooks_uninstall(&t));
}

static void a_realloc_of_a_block_not_on_the_books_opens_one(void **state) {
    memlord *lord = test_lord(state);
    memlord_hooks t = of_host;
    void *p;
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_REALLOC));
    p = t.realloc_fn(t.malloc_fn(10), 100);
    assert_int_equal(live(lord), 100);
    t.free_fn(p);
    assert_int_equal(anomalies(lord) + live(lord), 0);
    assert_ok(memlord_hooks_uninstall(&t));
}

static void a_realloc_that_fails_keeps_the_block_and_one_to_0_ends_it(void **state) {
    memlord *lord = test_lord(state);
    memlord_hooks t = of_host;
    void *p;
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL));
    p = t.malloc_fn(10);
    host.fail = 1;
    assert_null(t.realloc_fn(p, 100));
    host.fail = 0;
    assert_int_equal(live(lord), 10);
    assert_null(t.realloc_fn(p, 0));
    assert_int_equal(live(lord) + anomalies(lord), 0);
    assert_ok(memlord_hooks_uninstall(&t));
}

static void what_the_host_lacks_stays_absent(void **state) {
    memlord *lord = test_lord(state);
    const memlord_hooks two = {host_malloc, NULL, NULL, NULL, host_free};
    memlord_hooks t = two;
    void *p;
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL));
    assert_true(!t.calloc_fn && !t.realloc_fn && !t.aligned_fn);
    p = t.malloc_fn(10);
    assert_int_equal(live(lord), 10);
    t.free_fn(p);
    assert_ok(memlord_hooks_uninstall(&t));
    assert_true(same(&t, &two));
}

static void a_foreign_block_counts_as_unknown(void **state) {
    memlord *lord = test_lord(state);
    memlord_hooks t = of_host;
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL));
    t.free_fn(malloc(10));
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
    assert_ok(memlord_hooks_uninstall(&t));
}

static void a_table_that_is_not_as_it_should_be_is_refused(void **state) {
    memlord *lord = test_lord(state);
    const memlord_hooks no_malloc = {NULL, host_calloc, NULL, NULL, host_free};
    const memlord_hooks no_free = {host_malloc, NULL, NULL, NULL, NULL};
    memlord_hooks t = no_malloc, copy, before;
    assert_int_equal(memlord_hooks_install(lord, NULL, 1), MEMLORD_E_INVALID);
    assert_int_equal(memlord_hooks_install(lord, &t, 1), MEMLORD_E_INVALID);
    t = no_free;
    assert_int_equal(memlord_hooks_install(lord, &t, 1), MEMLORD_E_INVALID);
    t = of_host;
    assert_int_equal(memlord_hooks_install(lord, &t, 16), MEMLORD_E_INVALID);
    assert_true(same(&t, &of_host));
    assert_int_equal(memlord_hooks_uninstall(NULL), MEMLORD_E_STATE);
    assert_int_equal(memlord_hooks_uninstall(&t), MEMLORD_E_STATE);
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL));
    before = copy = t; /* functions of ours that would call themselves */
    assert_int_equal(memlord_hooks_install(lord, &copy, MEMLORD_HOOK_ALL), MEMLORD_E_STATE);
    assert_true(same(&t, &before) && same(&copy, &before));
    t.malloc_fn = host_malloc; /* another library's, say */
    assert_int_equal(memlord_hooks_uninstall(&t), MEMLORD_E_STATE);
    t = before;
    assert_ok(memlord_hooks_uninstall(&t));
    assert_true(same(&t, &of_host));
}

static void copies_of_the_functions_work_after_the_uninstall(void **state) {
    memlord *lord = test_lord(state);
    memlord_hooks t = of_host, copy;
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL));
    copy = t;
    assert_ok(memlord_hooks_uninstall(&t));
    copy.free_fn(copy.realloc_fn(copy.malloc_fn(10), 100));
    copy.free_fn(copy.calloc_fn(1, 1));
    copy.free_fn(copy.aligned_fn(64, 1));
    assert_int_equal(stats_of(lord, all()).allocs + anomalies(lord), 0);
}

static void the_functions_outlive_the_ledger(void **state) {
    memlord *lord = NULL;
    memlord_hooks t = of_host;
    void *p;
    (void)state;
    assert_ok(memlord_create(NULL, &lord));
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL));
    p = t.malloc_fn(10);
    memlord_destroy(lord);
    t.free_fn(t.realloc_fn(p, 100));
    assert_ok(memlord_hooks_uninstall(&t));
    assert_ok(memlord_hooks_install(NULL, &t, MEMLORD_HOOK_ALL)); /* MemLord switched off */
    t.free_fn(t.calloc_fn(1, 10));
    assert_ok(memlord_hooks_uninstall(&t));
    assert_true(same(&t, &of_host));
}

static void each_caller_is_a_site(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat rows[8];
    memlord_hooks t = of_host;
    void *a, *b;
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL));
    a = t.malloc_fn(3000);
    b = t.malloc_fn(500);
    assert_int_equal(memlord_sites_top(lord, cpu(), MEMLORD_SITE_ORDER_LIVE_BYTES, rows, 8), 2);
    assert_int_equal(rows[0].live_bytes, 3000);
    t.free_fn(a);
    t.free_fn(b);
    assert_ok(memlord_hooks_uninstall(&t));
}

static void a_function_keeps_errno(void **state) {
    memlord_hooks t = of_host;
    assert_ok(memlord_hooks_install(test_lord(state), &t, MEMLORD_HOOK_ALL));
    errno = 77;
    t.free_fn(t.malloc_fn(10));
    assert_int_equal(errno, 77);
    assert_ok(memlord_hooks_uninstall(&t));
}

static memlord_hooks shared;
static void *churn(void *user) {
    int i;
    for (i = 0; i < 1000; i++) shared.free_fn(shared.realloc_fn(shared.malloc_fn(10), 100));
    return user;
}
static void threads_share_a_table(void **state) {
    memlord *lord = test_lord(state);
    pthread_t threads[4];
    int i;
    shared = of_host;
    shared.malloc_fn = malloc;
    shared.realloc_fn = realloc;
    shared.free_fn = free;
    assert_ok(memlord_hooks_install(lord, &shared, MEMLORD_HOOK_ALL));
    for (i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, churn, NULL), 0);
    for (i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(live(lord) + anomalies(lord), 0);
    assert_int_equal(stats_of(lord, cpu()).allocs, 4000);
    assert_ok(memlord_hooks_uninstall(&shared));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(each_function_calls_the_hosts_and_records),
        TEST(an_uninstall_restores_the_exact_pointers),
        TEST(a_second_install_replaces_the_first),
        TEST(each_function_is_switched_alone),
        TEST(a_realloc_that_records_nothing_ends_a_block),
        TEST(a_realloc_of_a_block_not_on_the_books_opens_one),
        TEST(a_realloc_that_fails_keeps_the_block_and_one_to_0_ends_it),
        TEST(what_the_host_lacks_stays_absent),
        TEST(a_foreign_block_counts_as_unknown),
        TEST(a_table_that_is_not_as_it_should_be_is_refused),
        TEST(copies_of_the_functions_work_after_the_uninstall),
        TEST(the_functions_outlive_the_ledger),
        TEST_SITES(each_caller_is_a_site),
        TEST(a_function_keeps_errno),
        TEST(threads_share_a_table),
    };
    return cmocka_run_group_tests_name("hooks", tests, NULL, NULL);
}
