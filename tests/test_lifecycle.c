/* Lifecycle: ledgers open and close; a NULL ledger is MemLord switched off. */
#include "support.h"

#include <dirent.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_null_desc_is_the_default(void **state) {
    memlord *lord = NULL;
    (void)state;
    assert_ok(memlord_create(NULL, &lord));
    assert_non_null(lord);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 5, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 5);
    memlord_destroy(lord);
}

static void a_zeroed_desc_is_the_default(void **state) {
    memlord_desc desc;
    memlord *lord = NULL;
    (void)state;
    memset(&desc, 0, sizeof desc);
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 5, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 5);
    memlord_destroy(lord);
}

static memlord_desc logged_desc(test_log *log) {
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(log, 0, sizeof *log);
    pthread_mutex_init(&log->lock, NULL);
    desc.logger.fn = test_log_line;
    desc.logger.user = log;
    desc.flags = MEMLORD_FLAG_SITES | MEMLORD_FLAG_NO_ENV;
    return desc;
}

static void a_null_out_is_refused(void **state) {
    (void)state;
    assert_int_equal(memlord_create(NULL, NULL), MEMLORD_E_INVALID);
}

static void half_an_allocator_is_refused(void **state) {
    test_heap heap;
    memlord_desc desc;
    memlord *lord = NULL;
    (void)state;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, 0);
    desc.allocator.free = NULL;
    assert_int_equal(memlord_create(&desc, &lord), MEMLORD_E_INVALID);
    desc = test_desc(&heap, 0);
    desc.allocator.alloc = NULL;
    assert_int_equal(memlord_create(&desc, &lord), MEMLORD_E_INVALID);
    assert_null(lord);
    assert_int_equal(heap.calls, 0);
}

/* Each with a logger alone to hear of it. */
static void a_refused_field_is_named_to_the_logger(void **state) {
    static const char *const names[] = {"[create] allocator: ", "[create] stack_depth ",
                                        "[create] snapshot_ms ", "[create] event_capacity "};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        test_log log;
        memlord_desc desc = logged_desc(&log);
        memlord *lord = NULL;
        if (i == 0) desc.allocator.free = test_heap_free;
        if (i == 1) desc.stack_depth = 129;
        if (i == 2) desc.snapshot_ms = 9;
        if (i == 3) desc.event_capacity = ((size_t)1 << 26) + 1;
        assert_int_equal(memlord_create(&desc, &lord), MEMLORD_E_INVALID);
        assert_null(lord);
        assert_int_equal(log.lines[MEMLORD_LOG_ERROR], 1);
        assert_ptr_equal(strstr(log.text, names[i]), log.text);
    }
}

static void an_allocator_that_refuses_makes_no_half_ledger(void **state) {
    test_heap heap;
    memlord_desc desc;
    memlord *lord = NULL;
    (void)state;
    memset(&heap, 0, sizeof heap);
    heap.fail_at = 1;
    heap.fail_from = 1;
    desc = test_desc(&heap, 0);
    assert_int_equal(memlord_create(&desc, &lord), MEMLORD_E_NOMEM);
    assert_null(lord);
    assert_int_equal(heap.blocks, 0);
    assert_true(heap.failed > 0);
}

/* Each allocation of a create with all there is in a description fails once. */
static void a_create_may_fail_at_any_allocation(void **state) {
    uint64_t n, failed = 0;
    (void)state;
    for (n = 1; n < 100; n++) {
        test_heap heap;
        memlord_desc desc;
        memlord *lord = (memlord *)&heap;
        memlord_result r;
        memset(&heap, 0, sizeof heap);
        heap.fail_at = n;
        desc = test_desc(&heap, MEMLORD_FLAG_NO_THREADS);
        desc.output_dir = "/tmp";
        desc.proc_root = "/nonexistent";
        desc.labels = "job=a";
        desc.event_capacity = 1 << 16;
        desc.snapshot_ms = 10;
        desc.stack_depth = 8;
        r = memlord_create(&desc, &lord);
        if (r) {
            assert_int_equal(r, MEMLORD_E_NOMEM);
            assert_null(lord);
        }
        memlord_destroy(lord);
        assert_int_equal(heap.blocks + heap.bad_frees, 0);
        if (!heap.failed) break;
        failed += r != MEMLORD_OK;
    }
    assert_in_range(failed, 2, 50); /* the ledger, and what it has beside */
}

static void only_the_flags_of_the_manual_are_taken(void **state) {
    const uint32_t flags = 1 | 2 | 4 | 8 | 16 | 64 | 128;
    test_heap heap;
    memlord_desc desc;
    memlord *lord;
    uint32_t bit;
    (void)state;
    memset(&heap, 0, sizeof heap);
    for (bit = 1; bit; bit *= 2) {
        desc = test_desc(&heap, bit);
        desc.flags = bit | MEMLORD_FLAG_NO_ENV;
        assert_int_equal(memlord_create(&desc, &lord), flags & bit ? MEMLORD_OK : MEMLORD_E_INVALID);
        memlord_destroy(lord);
    }
    assert_int_equal(heap.blocks + heap.bad_frees, 0);
}

static void *refuse_large(void *user, size_t size) {
    return size > (size_t)16 << 20 ? NULL : test_heap_alloc(user, size);
}
static void the_largest_numbers_of_a_description_are_legal(void **state) {
    test_heap heap;
    memlord_desc desc, plain;
    memlord *lord;
    (void)state;
    memset(&heap, 0, sizeof heap);
    plain = test_desc(&heap, MEMLORD_FLAG_NO_THREADS);
    plain.allocator.alloc = refuse_large;
    desc = plain;
    desc.stack_depth = 128;
    desc.snapshot_ms = 10;
    assert_ok(memlord_create(&desc, &lord));
    memlord_destroy(lord);
    desc = plain;
    desc.event_capacity = (size_t)1 << 26;
    assert_int_equal(memlord_create(&desc, &lord), MEMLORD_E_NOMEM); /* not E_INVALID */
    desc.event_capacity++;
    assert_int_equal(memlord_create(&desc, &lord), MEMLORD_E_INVALID);
    desc = plain;
    desc.stack_depth = 129;
    assert_int_equal(memlord_create(&desc, &lord), MEMLORD_E_INVALID);
    desc = plain;
    desc.snapshot_ms = 9;
    assert_int_equal(memlord_create(&desc, &lord), MEMLORD_E_INVALID);
    desc = plain;
    desc.poll_ms = 9;
    assert_int_equal(memlord_create(&desc, &lord), MEMLORD_E_INVALID);
    assert_null(lord);
    assert_int_equal(heap.blocks + heap.bad_frees, 0);
}

/* The allocations of a destroy: those of a verification, if there is one. */
static uint64_t allocations_of_a_destroy(const char *debug) {
    static test_log log;
    test_heap heap;
    memlord_desc desc;
    memlord *lord;
    uint64_t i, before;
    memset(&heap, 0, sizeof heap);
    pthread_mutex_init(&log.lock, NULL);
    desc = test_desc(&heap, 0);
    desc.flags = MEMLORD_FLAG_NO_THREADS;
    desc.logger.fn = test_log_line;
    desc.logger.user = &log;
    assert_int_equal(setenv("MEMLORD_DEBUG", debug, 1), 0);
    assert_ok(memlord_create(&desc, &lord));
    unsetenv("MEMLORD_DEBUG");
    for (i = 0; i < 2000; i++) { /* so many rows that no free piece has room for their sums */
        char tag[16];
        snprintf(tag, sizeof tag, "t%d", (int)i);
        assert_ok(memlord_expect(lord, cuda(0), tag, 1));
    }
    before = heap.calls;
    memlord_destroy(lord);
    assert_int_equal(heap.blocks + heap.bad_frees, 0);
    return heap.calls - before;
}
static void a_destroy_verifies_if_debug_is_2(void **state) {
    const uint64_t plain = allocations_of_a_destroy("1");
    (void)state;
    assert_int_equal(allocations_of_a_destroy("0"), plain);
    assert_int_equal(allocations_of_a_destroy("22"), plain);
    assert_true(allocations_of_a_destroy("2") > plain);
}

static void *allocate_once(void *user) {
    assert_ok(memlord_alloc((memlord *)user, cpu(), 0x2000, 1 << 20, NULL));
    return NULL;
}
static void a_batch_in_the_description_bounds_what_threads_hold_back(void **state) {
    static const uint64_t batches[] = {1000, 0, (uint64_t)1 << 50};
    static const uint64_t expected[] = {500, 8192, 8192}; /* half of a share */
    size_t i;
    (void)state;
    for (i = 0; i < 3; i++) {
        memlord_desc desc;
        memlord *lord;
        pthread_t thread;
        memset(&desc, 0, sizeof desc);
        desc.flags = MEMLORD_FLAG_NO_ENV;
        desc.counter_batch = batches[i];
        assert_ok(memlord_create(&desc, &lord));
        assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1 << 20, NULL));
        assert_int_equal(stats_of(lord, cpu()).peak_error, 0);
        assert_int_equal(pthread_create(&thread, NULL, allocate_once, lord), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(stats_of(lord, cpu()).peak_error, expected[i]);
        memlord_destroy(lord);
    }
}

static void the_desc_is_copied(void **state) {
    test_heap heap;
    memlord_desc desc;
    memlord *lord = NULL;
    uint64_t i;
    (void)state;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, 0);
    assert_ok(memlord_create(&desc, &lord));
    memset(&desc, 0xee, sizeof desc);
    for (i = 1; i < 5000; i++) assert_ok(memlord_alloc(lord, cpu(), i * 64, 1, NULL));
    memlord_destroy(lord);
    assert_int_equal(heap.blocks, 0);
    assert_int_equal(heap.bad_frees, 0);
}

static void destroying_null_is_fine(void **state) {
    (void)state;
    memlord_destroy(NULL);
}

static void destroy_returns_everything(void **state) {
    test_heap heap;
    memlord_desc desc;
    memlord *lord = NULL;
    memlord_meta meta;
    uint64_t i;
    static const memlord_site site = {"a.c", "f", 3};
    (void)state;
    memset(&heap, 0, sizeof heap);
    memset(&meta, 0, sizeof meta);
    meta.name = "a name";
    desc = test_desc(&heap, MEMLORD_FLAG_SITES);
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_tag_begin(lord, "left open"));
    for (i = 1; i < 50000; i++) assert_ok(memlord_alloc(lord, cpu(), i * 64, i, &site));
    assert_ok(memlord_block_describe(lord, cpu(), 64, &meta));
    assert_ok(memlord_device_label_set(lord, cpu(), "label"));
    assert_ok(memlord_expect(lord, cpu(), "expected", 7));
    assert_non_null(memlord_site_at(lord, (void *)(uintptr_t)0x1234));
    free(report_of(lord, MEMLORD_FORMAT_JSON));
    assert_true(heap.bytes > 0);
    memlord_destroy(lord);
    assert_int_equal(heap.blocks, 0);
    assert_int_equal(heap.bytes, 0);
    assert_int_equal(heap.bad_frees, 0);
}

static void ledgers_come_and_go(void **state) {
    TEST_ONE_THREAD();
    int i;
    (void)state;
    for (i = 0; i < 3000; i++) {
        memlord *lord = NULL;
        assert_ok(memlord_create(NULL, &lord));
        assert_int_equal(memlord_allocated(lord, all()), 0);
        assert_ok(memlord_alloc(lord, cpu(), 0x1000, 5, NULL));
        assert_int_equal(memlord_allocated(lord, all()), 5);
        memlord_destroy(lord);
    }
}

static void many_ledgers_live_at_once(void **state) {
    memlord *lords[100];
    uint64_t i;
    (void)state;
    for (i = 0; i < 100; i++) assert_ok(memlord_create(NULL, &lords[i]));
    for (i = 0; i < 100; i++) assert_ok(memlord_alloc(lords[i], cpu(), 0x1000, i, NULL));
    for (i = 0; i < 100; i++) assert_int_equal(memlord_allocated(lords[i], cpu()), i);
    for (i = 0; i < 100; i++) memlord_destroy(lords[i]);
}

static void a_generation_finds_its_ledger_as_long_as_that_lives(void **state) {
    memlord *a = NULL, *b = NULL;
    uint64_t first, second;
    (void)state;
    assert_ok(memlord_create(NULL, &a));
    first = memlord_generation(a);
    assert_ptr_equal(memlord_find(first), a);
    assert_ok(memlord_create(NULL, &b));
    second = memlord_generation(b);
    assert_int_not_equal(first, second);
    assert_ptr_equal(memlord_find(second), b);
    assert_ptr_equal(memlord_find(first), a);
    memlord_destroy(b);
    assert_null(memlord_find(second));
    assert_ptr_equal(memlord_find(first), a);
    memlord_destroy(a);
    assert_null(memlord_find(first));
    assert_int_equal(memlord_generation(NULL), 0);
    assert_null(memlord_find(0));
    assert_null(memlord_find(UINT64_MAX));
    assert_int_equal(memlord_generation(memlord_find(memlord_generation(memlord_global()))),
                     memlord_generation(memlord_global()));
}

static void *find_ledger(void *generation) { return memlord_find(*(uint64_t *)generation); }

static void a_ledger_that_another_thread_ended_is_not_found(void **state) {
    pthread_t thread;
    memlord *lord = NULL;
    void *seen = NULL;
    uint64_t generation;
    (void)state;
    assert_ok(memlord_create(NULL, &lord));
    generation = memlord_generation(lord);
    assert_int_equal(pthread_create(&thread, NULL, find_ledger, &generation), 0);
    assert_int_equal(pthread_join(thread, &seen), 0);
    assert_ptr_equal(seen, lord);
    assert_ptr_equal(memlord_find(generation), lord);
    memlord_destroy(lord);
    assert_null(memlord_find(generation));
    assert_int_equal(pthread_create(&thread, NULL, find_ledger, &generation), 0);
    assert_int_equal(pthread_join(thread, &seen), 0);
    assert_null(seen);
}

static void *ask_for_global(void *out) {
    *(memlord **)out = memlord_global();
    return NULL;
}

static void the_global_ledger_is_one(void **state) {
    pthread_t threads[8];
    memlord *seen[8];
    size_t i;
    (void)state;
    for (i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_for_global, &seen[i]), 0);
    for (i = 0; i < 8; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_non_null(memlord_global());
    for (i = 0; i < 8; i++) assert_ptr_equal(seen[i], memlord_global());
    assert_ok(memlord_alloc(memlord_global(), cpu(), 0x1000, 5, NULL));
    assert_int_equal(memlord_allocated(memlord_global(), cpu()), 5);
    assert_ok(memlord_free(memlord_global(), cpu(), 0x1000, NULL));
}

/* -- the global ledger, set up --
   In a child of its own: a process has one. The child may not use what fails by longjmp. */

#define CHILD(holds) ((holds) ? (void)0 : _exit(__LINE__ % 250 + 1))

static void in_child(void (*fn)(void)) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        fn();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status))
        fail_msg("failed in the child at line %d (modulo 250)", WEXITSTATUS(status) - 1);
    assert_int_equal(status, 0);
}

static void set_up_a_global(void) {
    static const memlord_site site = {"a.c", "f", 3};
    test_log log, late;
    memlord_desc desc = logged_desc(&log), other = logged_desc(&late);
    memlord_site_stat top;
    desc.labels = "host=a1";
    desc.snapshot_ms = 10000;
    desc.event_capacity = 64;
    CHILD(memlord_global_setup(&desc) == MEMLORD_OK);
    CHILD(memlord_global() != NULL);
    CHILD(memlord_alloc(memlord_global(), memlord_device_all(), 1, 1, NULL) == MEMLORD_E_DEVICE);
    CHILD(log.lines[MEMLORD_LOG_WARNING] == 1); /* its logger */
    CHILD(memlord_alloc(memlord_global(), memlord_device_cpu(), 64, 7, &site) == MEMLORD_OK);
    CHILD(memlord_site_top_alloc(memlord_global(), memlord_device_all(), &top)); /* its flags */
    CHILD(memlord_events_start(memlord_global(), 65) == MEMLORD_E_STATE);        /* its ring */
    CHILD(memlord_global_setup(&other) == MEMLORD_E_STATE);
    CHILD(memlord_allocated(memlord_global(), memlord_device_all()) == 7);
    CHILD(log.lines[MEMLORD_LOG_ERROR] == 1 && strstr(log.text, "[setup] memlord_global_setup"));
    CHILD(late.size == 0);
    CHILD(memlord_snapshots_stop(memlord_global()) == MEMLORD_OK);
}
static void the_global_ledger_is_never_destroyed(void **state) {
    memlord *lord = memlord_global();
    (void)state;
    memlord_destroy(lord);
    assert_ptr_equal(memlord_global(), lord);
    assert_ok(memlord_alloc(lord, cuda(5), 0x77000, 9, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(5)), 9);
    assert_ok(memlord_free(lord, cuda(5), 0x77000, NULL));
}

static void a_global_ledger_can_be_set_up_once(void **state) {
    (void)state;
    in_child(set_up_a_global);
}

static void set_up_too_late(void) {
    test_log log;
    memlord_desc desc = logged_desc(&log);
    memlord *lord = memlord_global();
    size_t said;
    CHILD(lord != NULL);
    CHILD(memlord_global_setup(&desc) == MEMLORD_E_STATE);
    CHILD(memlord_global_setup(NULL) == MEMLORD_E_STATE);
    CHILD(memlord_global() == lord);
    said = log.size;
    CHILD(memlord_alloc(lord, memlord_device_all(), 1, 1, NULL) == MEMLORD_E_DEVICE);
    CHILD(log.size == said); /* the logger of the desc is not in force */
}
static void a_setup_after_first_use_changes_nothing(void **state) {
    (void)state;
    in_child(set_up_too_late);
}

static void set_up_what_is_silent(void) {
    test_log log;
    memlord_desc desc = logged_desc(&log);
    CHILD(memlord_global() != NULL);
    CHILD(memlord_global_setup(&desc) == MEMLORD_E_STATE);
    CHILD(log.lines[MEMLORD_LOG_ERROR] == 1 && strstr(log.text, "[setup] memlord_global_setup"));
}
static void a_setup_after_first_use_is_said_where_the_ledger_is_silent(void **state) {
    (void)state;
    in_child(set_up_what_is_silent);
}

/* A ledger that is made tells the logger of its description that the variable is wrong. */
static void set_up_late_with_a_bad_variable(void) {
    test_log log;
    memlord_desc desc = logged_desc(&log);
    CHILD(memlord_global() != NULL);
    desc.flags = 0;
    CHILD(setenv("MEMLORD_POLL_INTERVAL_MS", "soon", 1) == 0);
    CHILD(memlord_global_setup(&desc) == MEMLORD_E_STATE);
    CHILD(log.lines[MEMLORD_LOG_ERROR] == 1 && log.lines[MEMLORD_LOG_WARNING] == 0);
}
static void a_setup_after_first_use_makes_no_ledger(void **state) {
    (void)state;
    in_child(set_up_late_with_a_bad_variable);
}

static void set_up_badly(void) {
    test_heap heap;
    test_log log;
    memlord_desc desc = logged_desc(&log);
    memset(&heap, 0, sizeof heap);
    desc.allocator = test_desc(&heap, 0).allocator;
    CHILD(memlord_global_setup(&desc) == MEMLORD_E_INVALID);
    CHILD(strstr(log.text, "[setup] allocator: ") == log.text);
    desc.allocator.free = NULL;
    CHILD(memlord_global_setup(&desc) == MEMLORD_E_INVALID);
    desc.allocator.free = desc.allocator.alloc ? test_heap_free : NULL;
    desc.allocator.alloc = NULL;
    CHILD(memlord_global_setup(&desc) == MEMLORD_E_INVALID);
    CHILD(heap.calls == 0);
    desc = logged_desc(&log);
    desc.snapshot_ms = 9;
    CHILD(memlord_global_setup(&desc) == MEMLORD_E_INVALID);
    desc = logged_desc(&log);
    desc.event_capacity = ((size_t)1 << 26) + 1;
    CHILD(memlord_global_setup(&desc) == MEMLORD_E_INVALID);
    desc = logged_desc(&log);
    CHILD(memlord_global_setup(&desc) == MEMLORD_OK); /* none of them made one */
}
static void set_up_with_nothing(void) {
    memlord *lord;
    CHILD(memlord_global_setup(NULL) == MEMLORD_OK);
    lord = memlord_global();
    CHILD(memlord_alloc(lord, memlord_device_cpu(), 64, 7, NULL) == MEMLORD_OK);
    CHILD(memlord_allocated(lord, memlord_device_all()) == 7);
    CHILD(memlord_snapshots_stop(lord) == MEMLORD_OK);
    CHILD(memlord_global_setup(NULL) == MEMLORD_E_STATE);
}
static void a_setup_without_a_description_makes_the_global_ledger(void **state) {
    (void)state;
    in_child(set_up_with_nothing);
}
static void a_bad_setup_makes_no_global_ledger(void **state) {
    (void)state;
    in_child(set_up_badly);
}

static void *set_up_by_thread(void *out) {
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.snapshot_ms = 10000;
    test_gate_pass((test_gate *)out);
    return (void *)(intptr_t)memlord_global_setup(&desc);
}
static void set_up_by_all(void) {
    static test_gate gate = TEST_GATE;
    pthread_t threads[8];
    int i, won = 0, late = 0;
    for (i = 0; i < 8; i++)
        CHILD(pthread_create(&threads[i], NULL, set_up_by_thread, &gate) == 0);
    CHILD(test_gate_came(&gate, 8));
    test_gate_open(&gate);
    for (i = 0; i < 8; i++) {
        void *r = NULL;
        CHILD(pthread_join(threads[i], &r) == 0);
        won += (intptr_t)r == MEMLORD_OK;
        late += (intptr_t)r == MEMLORD_E_STATE;
    }
    CHILD(won == 1 && late == 7);
    CHILD(memlord_snapshots_stop(memlord_global()) == MEMLORD_OK);
}
static void of_two_threads_that_set_it_up_one_wins(void **state) {
    int i;
    (void)state;
    for (i = 0; i < 5; i++) in_child(set_up_by_all);
}

/* -- a logger that is set -- */

typedef struct log_host {
    test_gate gate; /* its logger waits here, if `waits` */
    memlord *lord;
    int waits;
    memlord_logger next; /* set from within, if it has a fn */
    memlord_result r;
    uint64_t lines, begun, set;
} log_host;

static void hear(void *user, int level, const char *text) {
    log_host *h = (log_host *)user;
    (void)level;
    (void)text;
    __atomic_add_fetch(&h->lines, 1, __ATOMIC_RELAXED);
    if (h->waits) test_gate_pass(&h->gate);
    if (h->next.fn) h->r = memlord_logger_set(h->lord, &h->next);
}

static memlord_logger logger_of(log_host *h) {
    memlord_logger logger = {hear, h};
    return logger;
}
static log_host log_host_of(memlord *lord) {
    log_host h;
    memset(&h, 0, sizeof h);
    pthread_mutex_init(&h.gate.lock, NULL);
    pthread_cond_init(&h.gate.changed, NULL);
    h.lord = lord;
    return h;
}
static uint64_t lines_of(log_host *h) { return __atomic_load_n(&h->lines, __ATOMIC_RELAXED); }

static void a_logger_can_be_set_and_taken_off(void **state) {
    memlord *lord = test_lord(state);
    log_host a = log_host_of(lord), b = log_host_of(lord);
    memlord_logger of_a = logger_of(&a), of_b = logger_of(&b), none = {NULL, NULL};
    memlord_reset(lord); /* logs a line */
    assert_ok(memlord_logger_set(lord, &of_a));
    memlord_reset(lord);
    assert_ok(memlord_logger_set(lord, &of_b));
    memlord_reset(lord);
    memlord_reset(lord);
    assert_ok(memlord_logger_set(lord, NULL));
    memlord_reset(lord);
    assert_ok(memlord_logger_set(lord, &of_a));
    assert_ok(memlord_logger_set(lord, &none));
    memlord_reset(lord);
    assert_int_equal(lines_of(&a), 1);
    assert_int_equal(lines_of(&b), 2);
    assert_ok(memlord_logger_set(NULL, &of_a));
}

static void a_logger_may_set_the_next(void **state) {
    memlord *lord = test_lord(state);
    log_host a = log_host_of(lord), b = log_host_of(lord);
    memlord_logger of_a = logger_of(&a);
    a.next = logger_of(&b);
    b.next = of_a;
    assert_ok(memlord_logger_set(lord, &of_a));
    memlord_reset(lord);
    assert_int_equal(lines_of(&a), 1);
    memlord_reset(lord);
    assert_int_equal(lines_of(&b), 1);
    memlord_reset(lord);
    assert_int_equal(lines_of(&a), 2);
    assert_int_equal(a.r | b.r, MEMLORD_OK);
    assert_ok(memlord_logger_set(lord, NULL));
}

static void *log_a_line(void *user) {
    memlord_reset(((log_host *)user)->lord);
    return NULL;
}
static void *take_the_logger_off(void *user) {
    log_host *h = (log_host *)user;
    __atomic_store_n(&h->begun, 1, __ATOMIC_RELEASE);
    h->r = memlord_logger_set(h->lord, NULL);
    __atomic_store_n(&h->set, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void a_set_waits_for_the_old_logger(void **state) {
    memlord *lord = test_lord(state);
    log_host a = log_host_of(lord), setter = log_host_of(lord);
    memlord_logger of_a = logger_of(&a);
    pthread_t logs, sets;
    struct timespec nap = {0, 20 * 1000 * 1000};
    a.waits = 1;
    assert_ok(memlord_logger_set(lord, &of_a));
    assert_int_equal(pthread_create(&logs, NULL, log_a_line, &a), 0);
    assert_true(test_gate_came(&a.gate, 1));
    assert_int_equal(pthread_create(&sets, NULL, take_the_logger_off, &setter), 0);
    while (!__atomic_load_n(&setter.begun, __ATOMIC_ACQUIRE)) nanosleep(&nap, NULL);
    nanosleep(&nap, NULL);
    assert_false(__atomic_load_n(&setter.set, __ATOMIC_ACQUIRE));
    assert_ok(memlord_alloc(lord, cpu(), 64, 1, NULL)); /* others go on */
    test_gate_open(&a.gate);
    assert_int_equal(pthread_join(sets, NULL), 0);
    assert_int_equal(pthread_join(logs, NULL), 0);
    assert_ok(setter.r);
    assert_int_equal(lines_of(&a), 1);
}

/* Sets it once the test lets it. */
static void hear_and_set(void *user, int level, const char *text) {
    log_host *h = (log_host *)user;
    const memlord_logger none = {NULL, NULL};
    (void)level;
    (void)text;
    test_gate_pass(&h->gate);
    h->r = memlord_logger_set(h->lord, &none);
}
/* The logger sets one while another thread waits in its set for that logger's call to end. */
static memlord_result both_set(memlord *lord) {
    log_host a = log_host_of(lord), setter = log_host_of(lord);
    memlord_logger of_a = {hear_and_set, &a};
    pthread_t logs, sets;
    struct timespec nap = {0, 5 * 1000 * 1000};
    assert_ok(memlord_logger_set(lord, &of_a));
    assert_int_equal(pthread_create(&logs, NULL, log_a_line, &a), 0);
    assert_true(test_gate_came(&a.gate, 1));
    assert_int_equal(pthread_create(&sets, NULL, take_the_logger_off, &setter), 0);
    while (!__atomic_load_n(&setter.begun, __ATOMIC_ACQUIRE)) nanosleep(&nap, NULL);
    nanosleep(&nap, NULL);
    test_gate_open(&a.gate);
    assert_int_equal(pthread_join(logs, NULL), 0);
    assert_int_equal(pthread_join(sets, NULL), 0);
    assert_ok(setter.r);
    return a.r;
}

static void two_that_would_wait_for_each_other_do_not(void **state) {
    int tries = 0; /* on a busy machine the other thread may come too late to wait */
    while (both_set(test_lord(state)) == MEMLORD_OK) assert_true(++tries < 100);
}

static void the_logger_of_another_ledger_may_not_set_one(void **state) {
    memlord *lord = test_lord(state), *other = NULL;
    log_host a = log_host_of(lord), b = log_host_of(lord);
    memlord_logger of_a = logger_of(&a);
    assert_ok(memlord_create(NULL, &other));
    a.lord = other;
    a.next = logger_of(&b);
    assert_ok(memlord_logger_set(lord, &of_a));
    memlord_reset(lord);
    assert_int_equal(a.r, MEMLORD_E_STATE);
    memlord_reset(other);
    assert_int_equal(lines_of(&b), 0);
    assert_ok(memlord_logger_set(lord, NULL));
    memlord_destroy(other);
}

typedef struct log_storm {
    memlord *lord;
    memlord_logger loggers[2];
    int stop;
} log_storm;
static void *storm_logs(void *user) {
    log_storm *s = (log_storm *)user;
    while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED)) memlord_reset(s->lord);
    return NULL;
}
static void *storm_sets(void *user) {
    log_storm *s = (log_storm *)user;
    int i;
    for (i = 0; i < 500; i++) (void)memlord_logger_set(s->lord, &s->loggers[i & 1]);
    return NULL;
}
static void loggers_change_under_many_threads(void **state) {
    memlord *lord = test_lord(state);
    log_host a = log_host_of(lord), b = log_host_of(lord);
    log_storm s;
    pthread_t logs[3], sets[2];
    uint64_t heard;
    int i;
    s.lord = lord;
    s.stop = 0;
    s.loggers[0] = logger_of(&a);
    s.loggers[1] = logger_of(&b);
    for (i = 0; i < 3; i++) assert_int_equal(pthread_create(&logs[i], NULL, storm_logs, &s), 0);
    for (i = 0; i < 2; i++) assert_int_equal(pthread_create(&sets[i], NULL, storm_sets, &s), 0);
    for (i = 0; i < 2; i++) assert_int_equal(pthread_join(sets[i], NULL), 0);
    assert_ok(memlord_logger_set(lord, NULL));
    heard = lines_of(&a) + lines_of(&b); /* no thread is in them */
    memlord_reset(lord);
    assert_int_equal(lines_of(&a) + lines_of(&b), heard);
    __atomic_store_n(&s.stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 3; i++) assert_int_equal(pthread_join(logs[i], NULL), 0);
}

/* The thread that is in the logger is gone in the child, whose own lines still come. */
static void a_forked_child_waits_for_no_logger(void **state) {
    memlord *lord = test_lord(state);
    const memlord_logger none = {NULL, NULL};
    int sets;
    for (sets = 0; sets < 2; sets++) { /* an even number of sets before, and an odd one */
        log_host a = log_host_of(lord);
        memlord_logger of_a = logger_of(&a);
        pthread_t logs;
        int status = -1;
        pid_t pid;
        a.waits = 1;
        if (sets) assert_ok(memlord_logger_set(lord, &none));
        assert_ok(memlord_logger_set(lord, &of_a));
        assert_int_equal(pthread_create(&logs, NULL, log_a_line, &a), 0);
        assert_true(test_gate_came(&a.gate, 1));
        pid = fork();
        if (pid == 0) {
            alarm(30);
            a.waits = 0;
            memlord_reset(lord);
            _exit(lines_of(&a) != 2 ? 99 : (int)memlord_logger_set(lord, NULL));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        test_gate_open(&a.gate);
        assert_int_equal(pthread_join(logs, NULL), 0);
        assert_ok(memlord_logger_set(lord, NULL));
    }
}

/* Nor for the thread that sets one, and waits for the old one. */
static void nor_for_one_that_is_being_set(void **state) {
    memlord *lord = test_lord(state);
    log_host a = log_host_of(lord), b = log_host_of(lord), setter = log_host_of(lord);
    memlord_logger of_a = logger_of(&a), of_b = logger_of(&b);
    pthread_t logs, sets;
    struct timespec nap = {0, 20 * 1000 * 1000};
    int status = -1;
    pid_t pid;
    a.waits = 1;
    assert_ok(memlord_logger_set(lord, &of_a));
    assert_int_equal(pthread_create(&logs, NULL, log_a_line, &a), 0);
    assert_true(test_gate_came(&a.gate, 1));
    assert_int_equal(pthread_create(&sets, NULL, take_the_logger_off, &setter), 0);
    while (!__atomic_load_n(&setter.begun, __ATOMIC_ACQUIRE)) nanosleep(&nap, NULL);
    nanosleep(&nap, NULL);
    pid = fork();
    if (pid == 0) {
        alarm(30);
        if (memlord_logger_set(lord, &of_b)) _exit(1);
        memlord_reset(lord);
        _exit(lines_of(&b) != 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    test_gate_open(&a.gate);
    assert_int_equal(pthread_join(sets, NULL), 0);
    assert_int_equal(pthread_join(logs, NULL), 0);
    assert_ok(setter.r);
}

/* The logger itself forks; in the child it sets the next, and the call that it is in goes on. */
static void fork_in_a_logger(void *user, int level, const char *text) {
    log_host *h = (log_host *)user;
    (void)level;
    (void)text;
    h->lines++;
    if (h->lines > 1) return;
    h->begun = (uint64_t)fork();
    if (h->begun) return;
    alarm(30);
    if (memlord_logger_set(h->lord, &h->next)) _exit(2);
}
static void a_child_born_in_a_logger_may_set_the_next(void **state) {
    memlord *lord = test_lord(state);
    log_host a = log_host_of(lord), b = log_host_of(lord);
    memlord_logger of_a = {fork_in_a_logger, &a};
    int status = -1;
    a.next = logger_of(&b);
    assert_ok(memlord_logger_set(lord, &of_a));
    memlord_reset(lord);
    if (!a.begun) { /* the child */
        memlord_reset(lord);
        _exit(a.lines == 1 && lines_of(&b) == 1 && !memlord_logger_set(lord, NULL) ? 0 : 3);
    }
    assert_int_equal(waitpid((pid_t)a.begun, &status, 0), (pid_t)a.begun);
    assert_int_equal(status, 0);
    memlord_reset(lord);
    assert_int_equal(a.lines, 2);
    assert_ok(memlord_logger_set(lord, NULL));
}

static void the_os_allocator_gives_memory(void **state) {
    memlord_allocator os;
    size_t sizes[5] = {1, 100, 4096, 100000, 5 << 20}, i;
    (void)state;
    memset(&os, 0, sizeof os);
    memlord_os_allocator(&os);
    assert_non_null((void *)(uintptr_t)os.alloc);
    assert_non_null((void *)(uintptr_t)os.free);
    for (i = 0; i < 5; i++) {
        char *p = (char *)os.alloc(os.user, sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        memset(p, 0x5a, sizes[i]);
        os.free(os.user, p, sizes[i]);
    }
    assert_null(os.alloc(os.user, SIZE_MAX - 4096));
    memlord_os_allocator(NULL);
}

static size_t count_threads(void) {
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    size_t n = 0;
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void no_thread_is_started(void **state) {
    memlord *lord = NULL;
    size_t before = count_threads();
    uint64_t i;
    (void)state;
    assert_ok(memlord_create(NULL, &lord));
    for (i = 1; i < 5000; i++) assert_ok(memlord_alloc(lord, cpu(), i * 64, 1, NULL));
    assert_int_equal(count_threads(), before);
    memlord_destroy(lord);
}

#if !TEST_SANITIZED && defined(__GLIBC__)
static void a_ledger_on_the_os_allocator_calls_no_malloc(void **state) {
    memlord_desc desc;
    memlord *lord = NULL;
    struct mallinfo2 before, after;
    memlord_result r = MEMLORD_OK;
    uint64_t i;
    char summary[128];
    (void)state;
    memset(&desc, 0, sizeof desc);
    memlord_os_allocator(&desc.allocator);
    desc.flags = MEMLORD_FLAG_NO_ENV | MEMLORD_FLAG_SITES;
    free(malloc(1));
    before = mallinfo2();
    r = memlord_create(&desc, &lord);
    for (i = 1; i < 50000 && r == MEMLORD_OK; i++)
        r = MEMLORD_ALLOC(lord, memlord_device_cpu(), (uintptr_t)i * 64, i);
    if (r == MEMLORD_OK) r = memlord_tag_begin(lord, "tag");
    memlord_summary(lord, summary, sizeof summary);
    after = mallinfo2();
    assert_ok(r);
    assert_int_equal(after.uordblks, before.uordblks);
    assert_int_equal(after.fordblks, before.fordblks);
    assert_int_equal(after.arena, before.arena);
    memlord_destroy(lord);
}
#endif

static int never(void *user, const memlord_block_info *info) {
    (void)info;
    *(int *)user = 1;
    return 0;
}

static void on_null_what_records_answers_ok(void **state) {
    memlord_realloc_token token;
    memlord_block block = {{0, 0}, 0x1000, 8};
    memlord_meta meta;
    (void)state;
    memset(&meta, 0, sizeof meta);
    assert_ok(memlord_alloc(NULL, cpu(), 0x1000, 8, NULL));
    assert_ok(memlord_free(NULL, cpu(), 0x1000, NULL));
    assert_ok(memlord_free(NULL, cpu(), 0x1000, NULL));
    assert_ok(memlord_realloc(NULL, cpu(), 0x1000, 0x2000, 8, NULL));
    assert_ok(memlord_realloc_begin(NULL, cpu(), 0x1000, &token));
    assert_ok(memlord_realloc_end(NULL, &token, 0x2000, 8, NULL));
    assert_ok(memlord_alloc_n(NULL, &block, 1, NULL));
    assert_ok(memlord_free_n(NULL, &block, 1, NULL));
    assert_ok(memlord_track_n(NULL, &block, 1, NULL));
    assert_ok(memlord_release_n(NULL, &block, 1, NULL));
    assert_ok(memlord_move(NULL, cpu(), 0x1000, cuda(0), 0x1000, 8, NULL, NULL));
    assert_ok(memlord_track(NULL, cpu(), 0x1000, 8, NULL));
    assert_ok(memlord_retain(NULL, cpu(), 0x1000, NULL));
    assert_ok(memlord_release(NULL, cpu(), 0x1000, NULL));
    assert_ok(memlord_arena_add(NULL, cpu(), 8, NULL));
    assert_ok(memlord_arena_sub(NULL, cpu(), 8, NULL));
    assert_ok(memlord_sites_enable(NULL, 1));
    assert_ok(memlord_tag_begin(NULL, "tag"));
    assert_ok(memlord_tag_end(NULL));
    assert_ok(memlord_expect(NULL, cpu(), "tag", 8));
    assert_ok(memlord_device_label_set(NULL, cpu(), "x"));
    assert_ok(memlord_block_describe(NULL, cpu(), 0x1000, &meta));
    assert_ok(memlord_block_retag(NULL, cpu(), 0x1000, "x"));
    assert_ok(MEMLORD_ALLOC(NULL, cpu(), &block, 8));
    MEMLORD_TAG(NULL, "tag") assert_ok(MEMLORD_FREE(NULL, cpu(), &block));
}

static void on_null_what_reads_answers_0(void **state) {
    memlord_stats stats;
    memlord_site_stat site;
    memlord_tag_stat tag;
    memlord_block_info info;
    memlord_device device;
    int called = 0;
    char text[8] = "x";
    (void)state;
    assert_int_equal(memlord_allocated(NULL, all()), 0);
    assert_int_equal(memlord_freed(NULL, all()), 0);
    assert_int_equal(memlord_pending(NULL, all()), 0);
    assert_int_equal(memlord_peak(NULL, all()), 0);
    memset(&stats, 0xee, sizeof stats);
    assert_ok(memlord_stats_get(NULL, all(), &stats));
    assert_int_equal(stats.allocated, 0);
    assert_int_equal(stats.allocs, 0);
    assert_int_equal(memlord_devices(NULL, &device, 1), 0);
    assert_int_equal(
        memlord_sites_top(NULL, all(), MEMLORD_SITE_ORDER_ALLOC_BYTES, &site, 1), 0);
    assert_int_equal(memlord_site_top_alloc(NULL, all(), &site), 0);
    assert_int_equal(memlord_site_top_free(NULL, all(), &site), 0);
    assert_non_null(memlord_site_at(NULL, (void *)(uintptr_t)0x1234));
    assert_null(memlord_site_address(NULL, memlord_site_at(NULL, NULL)));
    assert_int_equal(memlord_summary(NULL, text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_ok(memlord_blocks_each(NULL, all(), 0, never, &called));
    assert_int_equal(memlord_blocks_top(NULL, all(), &info, 1), 0);
    memlord_block_find(NULL, cpu(), 0x1000, &info);
    assert_int_equal(info.bytes, 0);
    memlord_block_containing(NULL, cpu(), 0x1000, &info);
    assert_int_equal(info.bytes, 0);
    memlord_tag_get(NULL, all(), "x", &tag);
    assert_int_equal(tag.allocated, 0);
    assert_int_equal(memlord_mark(NULL), 0);
    assert_int_equal(memlord_leaks(NULL, 0, never, &called), 0);
    assert_int_equal(called, 0);
    memlord_reset(NULL);
    memlord_peak_reset(NULL, all());
}

static void every_result_has_a_text_of_its_own(void **state) {
    int i, j;
    (void)state;
    for (i = 0; i < MEMLORD_RESULT_COUNT; i++) {
        const char *text = memlord_result_text((memlord_result)i);
        assert_true(strlen(text) > 0);
        for (j = 0; j < i; j++)
            assert_string_not_equal(text, memlord_result_text((memlord_result)j));
    }
    assert_non_null(memlord_result_text(MEMLORD_RESULT_COUNT));
    assert_non_null(memlord_result_text((memlord_result)0x7fff));
}

#if !TEST_SANITIZED && defined(__GLIBC__)
static size_t keys_left(void) {
    static pthread_key_t keys[PTHREAD_KEYS_MAX];
    size_t n = 0, i;
    while (n < PTHREAD_KEYS_MAX && !pthread_key_create(&keys[n], NULL)) n++;
    for (i = 0; i < n; i++) (void)pthread_key_delete(keys[i]);
    return n;
}
/* The last buffers of stdio are written after the destructors of all libraries. */
static ssize_t count_keys_at_the_end(void *cookie, const char *data, size_t size) {
    (void)data;
    if (keys_left() != *(size_t *)cookie + 1) _exit(3);
    return (ssize_t)size;
}
static void an_exit_deletes_the_thread_key(void **state) {
    int status = -1;
    pid_t pid;
    (void)state;
    fflush(NULL);
    pid = fork();
    if (!pid) {
        static size_t before;
        const cookie_io_functions_t calls = {NULL, count_keys_at_the_end, NULL, NULL};
        memlord *lord;
        FILE *late;
        if (memlord_create(NULL, &lord) || memlord_alloc(lord, cpu(), 0x1000, 5, NULL)) _exit(1);
        before = keys_left();
        late = fopencookie(&before, "w", calls);
        if (!late || fputc('x', late) == EOF) _exit(2);
        exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}
#endif

static void the_version_is_written_once(void **state) {
    char text[32];
    (void)state;
    snprintf(text, sizeof text, "%d.%d.%d", MEMLORD_VERSION_MAJOR, MEMLORD_VERSION_MINOR,
             MEMLORD_VERSION_PATCH);
    if (strstr(MEMLORD_VERSION, "-dev")) snprintf(text + strlen(text), 5, "-dev");
    assert_string_equal(text, MEMLORD_VERSION);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_null_desc_is_the_default),
        cmocka_unit_test(a_zeroed_desc_is_the_default),
        cmocka_unit_test(a_null_out_is_refused),
        cmocka_unit_test(half_an_allocator_is_refused),
        cmocka_unit_test(a_refused_field_is_named_to_the_logger),
        cmocka_unit_test(an_allocator_that_refuses_makes_no_half_ledger),
        cmocka_unit_test(a_create_may_fail_at_any_allocation),
        cmocka_unit_test(a_batch_in_the_description_bounds_what_threads_hold_back),
        cmocka_unit_test(only_the_flags_of_the_manual_are_taken),
        cmocka_unit_test(the_largest_numbers_of_a_description_are_legal),
        cmocka_unit_test(a_destroy_verifies_if_debug_is_2),
        cmocka_unit_test(the_desc_is_copied),
        cmocka_unit_test(destroying_null_is_fine),
        cmocka_unit_test(destroy_returns_everything),
        cmocka_unit_test(ledgers_come_and_go),
        cmocka_unit_test(many_ledgers_live_at_once),
        cmocka_unit_test(a_global_ledger_can_be_set_up_once),
        cmocka_unit_test(a_setup_after_first_use_changes_nothing),
        cmocka_unit_test(a_setup_after_first_use_is_said_where_the_ledger_is_silent),
        cmocka_unit_test(a_setup_after_first_use_makes_no_ledger),
        cmocka_unit_test(a_bad_setup_makes_no_global_ledger),
        cmocka_unit_test(a_setup_without_a_description_makes_the_global_ledger),
        cmocka_unit_test(of_two_threads_that_set_it_up_one_wins),
        cmocka_unit_test(a_ledger_that_another_thread_ended_is_not_found),
        cmocka_unit_test(the_global_ledger_is_one), /* from here on this process has one */
        cmocka_unit_test(the_global_ledger_is_never_destroyed),
        cmocka_unit_test(a_generation_finds_its_ledger_as_long_as_that_lives),
        TEST(a_logger_can_be_set_and_taken_off),
        TEST(a_logger_may_set_the_next),
        TEST(a_set_waits_for_the_old_logger),
        TEST(two_that_would_wait_for_each_other_do_not),
        TEST(the_logger_of_another_ledger_may_not_set_one),
        TEST(loggers_change_under_many_threads),
        TEST(a_forked_child_waits_for_no_logger),
        TEST(nor_for_one_that_is_being_set),
        TEST(a_child_born_in_a_logger_may_set_the_next),
        cmocka_unit_test(the_os_allocator_gives_memory),
        cmocka_unit_test(no_thread_is_started),
#if !TEST_SANITIZED && defined(__GLIBC__)
        cmocka_unit_test(a_ledger_on_the_os_allocator_calls_no_malloc),
        cmocka_unit_test(an_exit_deletes_the_thread_key),
#endif
        cmocka_unit_test(on_null_what_records_answers_ok),
        cmocka_unit_test(on_null_what_reads_answers_0),
        cmocka_unit_test(every_result_has_a_text_of_its_own),
        cmocka_unit_test(the_version_is_written_once),
    };
    return cmocka_run_group_tests_name("lifecycle", tests, NULL, NULL);
}
