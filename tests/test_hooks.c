/* Hosts whose allocator is a table of function pointers. */
#include "support.h"

#include <errno.h>

#include "child.h"

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
    memlord_hooks t = of_host;
    void *p, *q;
    assert_ok(memlord_create(NULL, &other));
    assert_ok(memlord_hooks_install(other, &t, MEMLORD_HOOK_ALL));
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_MALLOC)); /* the same table */
    p = t.malloc_fn(10);
    q = t.calloc_fn(1, 10);
    assert_int_equal(live(lord), 10);
    assert_int_equal(live(other), 0);
    t.free_fn(p);
    t.free_fn(q);
    assert_int_equal(anomalies(lord) + anomalies(other), 0);
    assert_ok(memlord_hooks_uninstall(&t));
    assert_true(same(&t, &of_host));
    memlord_destroy(other);
}

/* -- several hosts: each has a place for its functions as long as the process lives --
   So each of these tests has a process of its own, and the suite begins with them. A host marks its
   blocks, and counts those given to its free that are not its own. */

#define HOSTS 5
static struct {
    int mallocs, frees, foreign;
} pool[HOSTS];
static void *pool_malloc(int n, size_t size) {
    int *p = (int *)malloc(size + 64);
    pool[n].mallocs++;
    *p = 1000 + n;
    return (char *)p + 64;
}
static void pool_free(int n, void *ptr) {
    int *p = (int *)(void *)((char *)ptr - 64);
    if (*p != 1000 + n) {
        pool[n].foreign++;
        return;
    }
    pool[n].frees++;
    free(p);
}
#define POOL(n)                                                                \
    static void *malloc_##n(size_t size) { return pool_malloc(n, size); }      \
    static void free_##n(void *ptr) { pool_free(n, ptr); }
POOL(0)
POOL(1)
POOL(2)
POOL(3)
POOL(4)
static const memlord_hooks of_pool[HOSTS] = {{malloc_0, NULL, NULL, NULL, free_0},
                                             {malloc_1, NULL, NULL, NULL, free_1},
                                             {malloc_2, NULL, NULL, NULL, free_2},
                                             {malloc_3, NULL, NULL, NULL, free_3},
                                             {malloc_4, NULL, NULL, NULL, free_4}};
static int foreign_blocks(void) {
    int i, n = 0;
    for (i = 0; i < HOSTS; i++) n += pool[i].foreign;
    return n;
}

/* In a child: leaves the function with the line of the first thing that is not true. */
#define WANT(truth)              \
    do {                         \
        if (!(truth)) return __LINE__; \
    } while (0)
static void in_a_process_of_its_own(int (*run)(memlord *lord, test_log *log)) {
    int line = -1, pipes[2];
    pid_t pid;
    assert_int_equal(pipe(pipes), 0);
    pid = fork();
    if (!pid) {
        static test_log log;
        memlord_desc desc;
        memlord *lord = NULL;
        memset(&desc, 0, sizeof desc);
        pthread_mutex_init(&log.lock, NULL);
        desc.logger.fn = test_log_line;
        desc.logger.user = &log;
        line = memlord_create(&desc, &lord) ? __LINE__ : run(lord, &log);
        _exit(write(pipes[1], &line, sizeof line) != (ssize_t)sizeof line);
    }
    close(pipes[1]);
    assert_int_equal(child_status(pid), 0);
    assert_int_equal(read(pipes[0], &line, sizeof line), sizeof line);
    close(pipes[0]);
    if (line) fail_msg("line %d", line);
}

static int two_hosts(memlord *lord, test_log *log) {
    memlord_hooks a = of_pool[0], b = of_pool[1], copy_a, copy_b;
    void *p, *q;
    (void)log;
    WANT(!memlord_hooks_install(lord, &a, MEMLORD_HOOK_ALL));
    copy_a = a; /* what a host keeps that takes its functions by a call */
    p = copy_a.malloc_fn(10);
    WANT(!memlord_hooks_install(lord, &b, MEMLORD_HOOK_ALL));
    copy_b = b;
    q = copy_b.malloc_fn(100);
    WANT(pool[0].mallocs == 1 && pool[1].mallocs == 1 && live(lord) == 110);
    copy_a.free_fn(p);
    WANT(pool[0].frees == 1 && live(lord) == 100);
    p = a.malloc_fn(10);
    WANT(!memlord_hooks_uninstall(&a) && same(&a, &of_pool[0])); /* before the later one */
    WANT(same(&b, &copy_b));
    copy_b.free_fn(q);
    q = copy_b.malloc_fn(1);
    WANT(live(lord) == 11);
    WANT(!memlord_hooks_uninstall(&b) && same(&b, &of_pool[1]));
    copy_a.free_fn(p);
    copy_b.free_fn(q);
    copy_a.free_fn(copy_a.malloc_fn(5));
    copy_b.free_fn(copy_b.malloc_fn(5));
    WANT(pool[0].mallocs == 3 && pool[0].frees == 3 && pool[1].mallocs == 3 && pool[1].frees == 3);
    WANT(foreign_blocks() == 0 && stats_of(lord, all()).allocs == 4);
    return 0;
}
static void each_host_keeps_its_own_functions(void **state) {
    (void)state;
    in_a_process_of_its_own(two_hosts);
}

/* The same functions, so that only the tables differ. */
static int two_ledgers(memlord *lord, test_log *log) {
    memlord_hooks a = of_host, b = of_host;
    memlord *other = NULL;
    void *p, *q;
    (void)log;
    WANT(!memlord_create(NULL, &other));
    WANT(!memlord_hooks_install(lord, &a, MEMLORD_HOOK_ALL));
    WANT(!memlord_hooks_install(other, &b, MEMLORD_HOOK_CALLOC));
    p = a.malloc_fn(10);
    q = b.calloc_fn(1, 100);
    b.free_fn(b.malloc_fn(1000));
    WANT(live(lord) == 10 && live(other) == 100);
    a.free_fn(p);
    memlord_destroy(other);
    b.free_fn(q);
    p = a.malloc_fn(7);
    WANT(live(lord) == 7 && anomalies(lord) == 0);
    WANT(!memlord_hooks_uninstall(&b) && same(&b, &of_host));
    a.free_fn(p);
    WANT(live(lord) == 0);
    WANT(!memlord_hooks_uninstall(&a) && same(&a, &of_host));
    return 0;
}
static void two_tables_record_in_two_ledgers(void **state) {
    (void)state;
    in_a_process_of_its_own(two_ledgers);
}

static int four_places(memlord *lord, test_log *log) {
    memlord_hooks t[HOSTS], first;
    int i, round;
    for (round = 0; round < 3; round++) { /* a set takes its place again, in any order */
        for (i = 0; i < 4; i++) {
            int n = (i + round) % 4;
            t[n] = of_pool[n];
            WANT(!memlord_hooks_install(lord, &t[n], MEMLORD_HOOK_ALL));
            t[n].free_fn(t[n].malloc_fn(10));
            if (round) WANT(n != 0 || same(&t[0], &first));
            if (n == 0) first = t[0];
        }
        t[4] = of_pool[4];
        WANT(memlord_hooks_install(lord, &t[4], MEMLORD_HOOK_ALL) == MEMLORD_E_STATE);
        WANT(same(&t[4], &of_pool[4]));
        WANT(log->lines[MEMLORD_LOG_ERROR] == (uint64_t)(2 * round + 1));
        WANT(strstr(log->text, "[hooks] refused: 4 tables") != NULL);
        for (i = 3; i >= 0; i--) {
            int n = (i + 2 * round) % 4;
            WANT(!memlord_hooks_uninstall(&t[n]) && same(&t[n], &of_pool[n]));
        }
        WANT(memlord_hooks_install(lord, &t[4], MEMLORD_HOOK_ALL) == MEMLORD_E_STATE);
    }
    for (i = 0; i < 4; i++) WANT(pool[i].mallocs == 3 && pool[i].frees == 3);
    WANT(pool[4].mallocs == 0 && foreign_blocks() == 0);
    WANT(stats_of(lord, all()).allocs == 12 && live(lord) == 0);
    return 0;
}
static void a_fifth_set_of_functions_is_refused_and_four_take_their_places_again(void **state) {
    (void)state;
    in_a_process_of_its_own(four_places);
}

/* A host keeps the functions of its first install while others hook and unhook tables. */
static memlord_hooks kept;
static void *rehook(void *user) {
    memlord *lord = (memlord *)user;
    memlord_hooks t = of_host, before;
    long failed = 0;
    int i;
    t.malloc_fn = malloc; /* they count nothing: threads share them */
    t.realloc_fn = NULL;
    t.calloc_fn = NULL;
    t.aligned_fn = NULL;
    t.free_fn = free;
    before = t;
    for (i = 0; i < 300; i++) {
        failed += memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL) != MEMLORD_OK;
        t.free_fn(t.malloc_fn(10));
        failed += memlord_hooks_uninstall(&t) != MEMLORD_OK || !same(&t, &before);
    }
    return (void *)failed;
}
static void *call_the_kept(void *user) {
    int i;
    for (i = 0; i < 1000; i++) kept.free_fn(kept.malloc_fn(10));
    return user;
}
static int threads_and_tables(memlord *lord, test_log *log) {
    memlord_hooks t = {malloc, NULL, NULL, NULL, free};
    pthread_t threads[4];
    void *failed;
    int i;
    (void)log;
    WANT(!memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL));
    kept = t;
    WANT(!memlord_hooks_uninstall(&t));
    for (i = 0; i < 4; i++)
        WANT(!pthread_create(&threads[i], NULL, i ? rehook : call_the_kept, i ? lord : NULL));
    for (i = 0; i < 4; i++) {
        WANT(!pthread_join(threads[i], &failed));
        WANT(!failed);
    }
    WANT(stats_of(lord, all()).allocs >= 900);
    WANT(stats_of(lord, all()).allocs <= 1900);
    return 0;
}
static void threads_hook_tables_while_copies_are_called(void **state) {
    (void)state;
    in_a_process_of_its_own(threads_and_tables);
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
        assert_int_equal(t.malloc_fn != of_host.malloc_fn, i == 0);
        assert_int_equal(t.calloc_fn != of_host.calloc_fn, i == 1);
        assert_int_equal(t.aligned_fn != of_host.aligned_fn, i == 3);
        assert_true(t.realloc_fn != of_host.realloc_fn && t.free_fn != of_host.free_fn);
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

/* The functions of a table, to name them by number. */
#define FIELDS 5
static void *other_malloc(size_t size) { return host_malloc(size); }
static void *other_calloc(size_t n, size_t size) { return host_calloc(n, size); }
static void *other_realloc(void *ptr, size_t size) { return host_realloc(ptr, size); }
static void *other_aligned(size_t alignment, size_t size) { return host_aligned(alignment, size); }
static void other_free(void *ptr) { host_free(ptr); }
static const memlord_hooks of_others = {other_malloc, other_calloc, other_realloc, other_aligned,
                                        other_free};
static void field_copy(memlord_hooks *to, const memlord_hooks *from, int field) {
    if (field == 0) to->malloc_fn = from->malloc_fn;
    if (field == 1) to->calloc_fn = from->calloc_fn;
    if (field == 2) to->realloc_fn = from->realloc_fn;
    if (field == 3) to->aligned_fn = from->aligned_fn;
    if (field == 4) to->free_fn = from->free_fn;
}

/* Frees a block of the host in every choice of functions. It is unknown if all that the table has
   are recorded: a block that the ledger does not know may else be of one that is not. */
static int unknown_where_all_is_recorded(memlord *lord, const memlord_hooks *table) {
    uint32_t which;
    uint64_t unknown = stats_of(lord, all()).unknown_frees;
    for (which = 0; which <= MEMLORD_HOOK_ALL; which++) {
        memlord_hooks t = *table;
        const int complete = (which & MEMLORD_HOOK_MALLOC) &&
                             (!table->calloc_fn || (which & MEMLORD_HOOK_CALLOC)) &&
                             (!table->realloc_fn || (which & MEMLORD_HOOK_REALLOC)) &&
                             (!table->aligned_fn || (which & MEMLORD_HOOK_ALIGNED));
        WANT(!memlord_hooks_install(lord, &t, which));
        t.free_fn(table->malloc_fn(10));
        WANT(!memlord_hooks_uninstall(&t));
        unknown += (uint64_t)complete;
        if (stats_of(lord, all()).unknown_frees != unknown) return 1000 + (int)which;
    }
    return 0;
}
static int all_and_two(memlord *lord, test_log *log) {
    memlord_hooks two = of_host;
    int line = unknown_where_all_is_recorded(lord, &of_host);
    (void)log;
    if (line) return line;
    two.calloc_fn = NULL;
    two.realloc_fn = NULL;
    two.aligned_fn = NULL;
    return unknown_where_all_is_recorded(lord, &two);
}
static int all_but_one(memlord *lord, test_log *log) {
    const memlord_hooks none = {NULL, NULL, NULL, NULL, NULL};
    int field;
    (void)log;
    for (field = 1; field <= 3; field++) {
        memlord_hooks t = of_host;
        int line;
        field_copy(&t, &none, field);
        line = unknown_where_all_is_recorded(lord, &t);
        if (line) return 1000 * field + line;
    }
    return 0;
}
static void a_foreign_block_is_unknown_where_all_blocks_are_recorded(void **state) {
    (void)state;
    in_a_process_of_its_own(all_and_two);
    in_a_process_of_its_own(all_but_one);
}

static int each_place_and_function(memlord *lord, test_log *log) {
    memlord_hooks hooked[4], t;
    int place, field;
    (void)log;
    for (place = 0; place < 4; place++) {
        hooked[place] = of_host;
        if (place) field_copy(&hooked[place], &of_others, place);
        WANT(!memlord_hooks_install(lord, &hooked[place], MEMLORD_HOOK_ALL));
        WANT(!place || !same(&hooked[place], &hooked[place - 1]));
    }
    for (place = 0; place < 4; place++)
        for (field = 0; field < FIELDS; field++) {
            t = of_host;
            field_copy(&t, &hooked[place], field); /* it would call itself */
            WANT(memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL) == MEMLORD_E_STATE);
            t = hooked[place];
            field_copy(&hooked[place], &of_others, field); /* neither ours nor the host's */
            if (place != field)
                WANT(memlord_hooks_uninstall(&hooked[place]) == MEMLORD_E_STATE);
            hooked[place] = t;
        }
    for (place = 0; place < 4; place++) {
        t = of_host;
        if (place) field_copy(&t, &of_others, place);
        WANT(!memlord_hooks_uninstall(&hooked[place]));
        WANT(same(&hooked[place], &t));
    }
    return 0;
}
static void one_function_of_ours_or_of_a_stranger_is_enough_to_refuse(void **state) {
    (void)state;
    in_a_process_of_its_own(each_place_and_function);
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
    assert_int_equal(memlord_hooks_install(NULL, &copy, MEMLORD_HOOK_ALL), MEMLORD_E_STATE);
    assert_true(same(&t, &before) && same(&copy, &before));
    copy = of_host; /* a single one of them would do so, too */
    copy.calloc_fn = t.calloc_fn;
    assert_int_equal(memlord_hooks_install(lord, &copy, MEMLORD_HOOK_ALL), MEMLORD_E_STATE);
    assert_ok(memlord_hooks_uninstall(&t));
    copy = before; /* and after the uninstall */
    assert_int_equal(memlord_hooks_install(lord, &copy, MEMLORD_HOOK_ALL), MEMLORD_E_STATE);
    assert_int_equal(memlord_hooks_uninstall(&copy), MEMLORD_E_STATE);
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL));
    assert_true(same(&t, &before)); /* the same functions again */
    t.malloc_fn = host_malloc; /* another library's, say */
    assert_int_equal(memlord_hooks_uninstall(&t), MEMLORD_E_STATE);
    t = before;
    assert_ok(memlord_hooks_uninstall(&t));
    assert_true(same(&t, &of_host));
}

static void a_host_may_put_its_functions_back_itself(void **state) {
    memlord *lord = test_lord(state);
    memlord_hooks t = of_host;
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL));
    t = of_host;
    assert_ok(memlord_hooks_install(lord, &t, MEMLORD_HOOK_ALL));
    t.free_fn(t.malloc_fn(10));
    assert_int_equal(stats_of(lord, cpu()).allocs, 1);
    t = of_host;
    assert_ok(memlord_hooks_uninstall(&t));
    assert_true(same(&t, &of_host));
    assert_int_equal(memlord_hooks_uninstall(&t), MEMLORD_E_STATE);
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
        /* in children, while this process has hooked no table yet */
        cmocka_unit_test(each_host_keeps_its_own_functions),
        cmocka_unit_test(two_tables_record_in_two_ledgers),
        cmocka_unit_test(a_fifth_set_of_functions_is_refused_and_four_take_their_places_again),
        cmocka_unit_test(threads_hook_tables_while_copies_are_called),
        cmocka_unit_test(a_foreign_block_is_unknown_where_all_blocks_are_recorded),
        cmocka_unit_test(one_function_of_ours_or_of_a_stranger_is_enough_to_refuse),
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
        TEST(a_host_may_put_its_functions_back_itself),
        TEST(copies_of_the_functions_work_after_the_uninstall),
        TEST(the_functions_outlive_the_ledger),
        TEST_SITES(each_caller_is_a_site),
        TEST(a_function_keeps_errno),
        TEST(threads_share_a_table),
    };
    return cmocka_run_group_tests_name("hooks", tests, NULL, NULL);
}
