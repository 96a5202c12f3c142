/* Tags: what bytes are for, per thread, kept by the block until it ends. */
#include "support.h"

#include <pthread.h>

static memlord_tag_stat tag_of(memlord *lord, memlord_device sel, const char *tag) {
    memlord_tag_stat stat;
    memset(&stat, 0xee, sizeof stat);
    assert_ok(memlord_tag_get(lord, sel, tag, &stat));
    return stat;
}

static void what_is_allocated_inside_carries_the_tag(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat tag;
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_track(lord, cuda(0), 0x2000, 20, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_alloc(lord, cuda(0), 0x3000, 3, NULL));
    tag = tag_of(lord, cuda(0), "weights");
    assert_string_equal(tag.tag, "weights");
    assert_int_equal(tag.allocated, 120);
    assert_int_equal(tag.peak, 120);
    assert_int_equal(tag.blocks, 2);
    assert_int_equal(tag.expected, 0);
    assert_int_equal(tag.variance, 0);
}

static void null_reads_what_carries_none(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 3, NULL));
    assert_int_equal(tag_of(lord, cpu(), NULL).allocated, 3);
    assert_int_equal(tag_of(lord, cpu(), NULL).blocks, 1);
}

static void the_innermost_wins(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "outer"));
    assert_ok(memlord_tag_begin(lord, "inner"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 7, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(tag_of(lord, cpu(), "inner").allocated, 100);
    assert_int_equal(tag_of(lord, cpu(), "outer").allocated, 7);
}

static void a_free_debits_the_tag_of_the_block(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_tag_begin(lord, "cache"));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 5, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(tag_of(lord, cpu(), "weights").allocated, 0);
    assert_int_equal(tag_of(lord, cpu(), "weights").blocks, 0);
    assert_int_equal(tag_of(lord, cpu(), "weights").peak, 100);
    assert_int_equal(tag_of(lord, cpu(), "cache").allocated, 5);
}

static void a_view_does_not_change_the_tag(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_tag_begin(lord, "view"));
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(tag_of(lord, cpu(), "weights").allocated, 100);
    assert_int_equal(tag_of(lord, cpu(), "view").allocated, 0);
}

static void tags_are_read_by_device(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cuda(1), 0x2000, 20, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 3, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(tag_of(lord, cuda(0), "weights").allocated, 100);
    assert_int_equal(tag_of(lord, cuda(MEMLORD_ANY), "weights").allocated, 120);
    assert_int_equal(tag_of(lord, all(), "weights").allocated, 123);
    assert_int_equal(tag_of(lord, all(), "weights").blocks, 3);
}

static void a_tag_never_seen_is_unknown(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat stat, zero;
    memset(&stat, 0xee, sizeof stat);
    memset(&zero, 0, sizeof zero);
    assert_int_equal(memlord_tag_get(lord, all(), "nothing", &stat), MEMLORD_E_UNKNOWN);
    assert_memory_equal(&stat, &zero, sizeof stat);
}

static void a_null_out_is_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_tag_get(lord, all(), NULL, NULL), MEMLORD_E_INVALID);
}

static void an_end_without_a_begin_is_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
    assert_ok(memlord_tag_begin(lord, "a"));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
    assert_int_equal(tag_of(lord, cpu(), NULL).allocated, 1);
}

static void tags_nest_64_deep_and_no_deeper(void **state) {
    memlord *lord = test_lord(state);
    char name[32];
    int i;
    for (i = 0; i < 64; i++) {
        snprintf(name, sizeof name, "depth %d", i);
        assert_ok(memlord_tag_begin(lord, name));
    }
    assert_int_equal(memlord_tag_begin(lord, "too deep"), MEMLORD_E_STATE);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
    assert_int_equal(tag_of(lord, cpu(), "depth 63").allocated, 1);
    for (i = 0; i < 64; i++) assert_ok(memlord_tag_end(lord));
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
}

static void a_name_that_is_null_or_empty_is_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_tag_begin(lord, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_tag_begin(lord, ""), MEMLORD_E_INVALID);
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
}

static void names_are_copied(void **state) {
    memlord *lord = test_lord(state);
    char name[] = "volatile name";
    assert_ok(memlord_tag_begin(lord, name));
    memset(name, 'x', sizeof name - 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 9, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(tag_of(lord, cpu(), "volatile name").allocated, 9);
}

static void *allocate_untagged(void *lord) {
    memlord_alloc((memlord *)lord, memlord_device_cpu(), 0x9000, 5, NULL);
    memlord_free((memlord *)lord, memlord_device_cpu(), 0x1000, NULL);
    return NULL;
}

static void a_tag_belongs_to_its_thread_and_a_block_keeps_it(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(pthread_create(&thread, NULL, allocate_untagged, lord), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(tag_of(lord, cpu(), "weights").allocated, 0);
    assert_int_equal(tag_of(lord, cpu(), NULL).allocated, 5);
}

static void *leave_a_tag_open(void *lord) {
    memlord_tag_begin((memlord *)lord, "left open");
    return NULL;
}

static void a_thread_may_end_inside_a_tag(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat left;
    pthread_t thread;
    int i;
    for (i = 0; i < 10; i++) {
        assert_int_equal(pthread_create(&thread, NULL, leave_a_tag_open, lord), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(pthread_create(&thread, NULL, allocate_untagged, lord), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        memlord_tag_get(lord, cpu(), "left open", &left);
        assert_int_equal(left.allocated, 0);
    }
}

static void each_ledger_has_its_own_stack(void **state) {
    memlord *lord = test_lord(state), *other = NULL;
    assert_ok(memlord_create(NULL, &other));
    assert_ok(memlord_tag_begin(lord, "mine"));
    assert_int_equal(memlord_tag_end(other), MEMLORD_E_STATE);
    assert_ok(memlord_alloc(other, cpu(), 0x1000, 5, NULL));
    assert_int_equal(tag_of(other, cpu(), NULL).allocated, 5);
    assert_ok(memlord_tag_end(lord));
    memlord_destroy(other);
}

static void leave_by_return(memlord *lord) {
    MEMLORD_TAG(lord, "scoped") {
        memlord_alloc(lord, memlord_device_cpu(), 0x1000, 1, NULL);
        return;
    }
}

static void the_block_form_ends_however_it_is_left(void **state) {
    memlord *lord = test_lord(state);
    int rounds = 0;
    MEMLORD_TAG(lord, "scoped") {
        assert_ok(memlord_alloc(lord, cpu(), 0x2000, 2, NULL));
        rounds++;
    }
    assert_int_equal(rounds, 1);
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
    MEMLORD_TAG(lord, "scoped") {
        assert_ok(memlord_alloc(lord, cpu(), 0x3000, 4, NULL));
        break;
    }
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
    leave_by_return(lord);
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
    assert_int_equal(tag_of(lord, cpu(), "scoped").allocated, 7);
}

static void a_block_form_that_could_not_begin_does_not_end(void **state) {
    memlord *lord = test_lord(state);
    int rounds = 0;
    assert_ok(memlord_tag_begin(lord, "outer"));
    MEMLORD_TAG(lord, "") rounds++;
    assert_int_equal(rounds, 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
    assert_int_equal(tag_of(lord, cpu(), "outer").allocated, 1);
    assert_ok(memlord_tag_end(lord));
}

static int leave_in_a_loop(memlord *lord, int how) {
    int i, rounds = 0;
    for (i = 0; i < 10; i++) {
        MEMLORD_TAGGED(lord, "tagged");
        rounds++;
        memlord_alloc(lord, memlord_device_cpu(), 0x1000 + (uint64_t)i * 64, 1, NULL);
        if (how == 1 && i == 3) break;
        if (how == 2) continue;
        if (how == 3) return rounds;
        if (how == 4) goto out;
        rounds += 100;
    }
out:
    return rounds;
}

static void the_declaration_ends_however_its_block_is_left(void **state) {
    memlord *lord = test_lord(state);
    static const int rounds[] = {1010, 304, 10, 1, 1};
    int how;
    for (how = 0; how < 5; how++) {
        assert_int_equal(leave_in_a_loop(lord, how), rounds[how]); /* break and continue are ours */
        assert_null(memlord_tag_current(lord));
        assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
    }
    assert_int_equal(tag_of(lord, cpu(), "tagged").blocks, 10);
}

static void a_declaration_tags_from_there_to_the_end_of_the_block(void **state) {
    memlord *lord = test_lord(state);
    const char *variable = "inner";
    {
        assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
        MEMLORD_TAGGED(lord, "outer");
        assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, NULL));
        {
            MEMLORD_TAGGED(lord, variable);
            assert_ok(memlord_alloc(lord, cpu(), 0x3000, 300, NULL));
        }
        assert_ok(memlord_alloc(lord, cpu(), 0x4000, 4000, NULL));
    }
    assert_ok(memlord_alloc(lord, cpu(), 0x5000, 50000, NULL));
    assert_int_equal(tag_of(lord, cpu(), NULL).allocated, 50001);
    assert_int_equal(tag_of(lord, cpu(), "outer").allocated, 4020);
    assert_int_equal(tag_of(lord, cpu(), "inner").allocated, 300);
}

static void two_declarations_stand_in_one_block_and_on_one_line(void **state) {
    memlord *lord = test_lord(state);
    {
        MEMLORD_TAGGED(lord, "a"); MEMLORD_TAGGED(lord, "b");
        assert_string_equal(memlord_tag_current(lord), "b");
        MEMLORD_TAGGED(lord, "c");
        assert_string_equal(memlord_tag_current(lord), "c");
    }
    assert_null(memlord_tag_current(lord));
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
}

static void a_declaration_that_could_not_begin_does_not_end(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "outer"));
    {
        MEMLORD_TAGGED(lord, "");
        MEMLORD_TAGGED(lord, NULL);
        MEMLORD_TAGGED(NULL, "of no ledger");
        assert_string_equal(memlord_tag_current(lord), "outer");
    }
    assert_string_equal(memlord_tag_current(lord), "outer");
    assert_ok(memlord_tag_end(lord));
}

static jmp_buf away;
static void leave_by_longjmp(memlord *lord) {
    MEMLORD_TAGGED(lord, "jumped over");
    MEMLORD_TAG(lord, "this too") longjmp(away, 1);
}

static void a_longjmp_is_healed_by_the_guard_around(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_begin(lord, "outermost");
    {
        MEMLORD_TAGGED(lord, "around");
        if (!setjmp(away)) leave_by_longjmp(lord);
        assert_string_equal(memlord_tag_current(lord), "this too");
    }
    assert_string_equal(memlord_tag_current(lord), "outermost");
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
}

static void a_guard_ends_what_was_begun_inside_and_not_what_is_around(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "around"));
    {
        MEMLORD_TAGGED(lord, "tagged");
        assert_ok(memlord_tag_begin(lord, "left open"));
    }
    assert_string_equal(memlord_tag_current(lord), "around");
    {
        MEMLORD_TAGGED(lord, "tagged");
        assert_ok(memlord_tag_end(lord)); /* the guard finds its depth already */
    }
    assert_string_equal(memlord_tag_current(lord), "around");
    assert_ok(memlord_tag_end(lord));
}

typedef struct carried {
    memlord *lord;
    memlord_guard tag, scope;
} carried;

static void *end_guards_elsewhere(void *user) {
    carried *c = (carried *)user;
    memlord_tag_begin(c->lord, "mine");
    memlord_tag_begin(c->lord, "mine, too");
    memlord_scope_begin(c->lord, "mine");
    memlord_guard_end(&c->tag);
    memlord_guard_end(&c->scope);
    if (strcmp(memlord_tag_current(c->lord), "mine, too") != 0) return c;
    if (memlord_scope_end(c->lord) || memlord_tag_end(c->lord)) return c;
    return memlord_tag_end(c->lord) ? c : NULL;
}

static void a_guard_that_ends_on_another_thread_is_counted_and_logged_once(void **state) {
    memlord *lord = test_lord(state);
    test_log *log = &((test_case *)*state)->log;
    pthread_t thread;
    carried c;
    void *bad = NULL;
    c.lord = lord;
    c.tag = memlord_guard_tag(lord, "here");
    c.scope = memlord_guard_scope(lord, "here", NULL);
    assert_int_equal(pthread_create(&thread, NULL, end_guards_elsewhere, &c), 0);
    assert_int_equal(pthread_join(thread, &bad), 0);
    assert_null(bad);
    assert_int_equal(stats_of(lord, all()).dropped_sites, 2);
    assert_int_equal(log->lines[MEMLORD_LOG_WARNING], 1);
    assert_non_null(strstr(log->text, "none to end in this context\n"));
    assert_string_equal(memlord_tag_current(lord), "here");
    assert_int_not_equal(memlord_scope_current(lord), 0);
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_scope_end(lord));
}

static void a_guard_ends_once(void **state) {
    memlord *lord = test_lord(state);
    memlord_guard guard;
    assert_ok(memlord_tag_begin(lord, "around"));
    guard = memlord_guard_tag(lord, "tag");
    memlord_guard_end(&guard);
    memlord_guard_end(&guard);
    memlord_guard_end(NULL);
    assert_string_equal(memlord_tag_current(lord), "around");
    assert_ok(memlord_tag_end(lord));
}

static void the_current_tag_is_the_innermost(void **state) {
    memlord *lord = test_lord(state);
    char name[] = "a name in a buffer";
    assert_null(memlord_tag_current(lord));
    assert_ok(memlord_tag_begin(lord, name));
    memset(name, 'x', sizeof name - 1);
    assert_string_equal(memlord_tag_current(lord), "a name in a buffer");
    assert_ok(memlord_tag_begin(lord, "inner"));
    assert_string_equal(memlord_tag_current(lord), "inner");
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_tag_end(lord));
    assert_null(memlord_tag_current(lord));
    assert_null(memlord_tag_current(NULL));
}

static void the_default_tag_is_below_every_open_tag(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_default_set(lord, "default"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
    assert_ok(memlord_tag_begin(lord, "open"));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, NULL));
    assert_ok(memlord_tag_begin(lord, "inner"));
    assert_ok(memlord_tag_default_set(lord, "another")); /* from inside */
    assert_string_equal(memlord_tag_current(lord), "inner");
    assert_ok(memlord_tag_end(lord));
    assert_string_equal(memlord_tag_current(lord), "open");
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 300, NULL));
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE); /* it is no open tag */
    assert_int_equal(tag_of(lord, cpu(), "default").allocated, 1);
    assert_int_equal(tag_of(lord, cpu(), "open").allocated, 20);
    assert_int_equal(tag_of(lord, cpu(), "another").allocated, 300);
}

static void a_default_tag_of_null_takes_it_off(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_default_set(lord, NULL));
    assert_ok(memlord_tag_default_set(lord, "default"));
    assert_ok(memlord_tag_begin(lord, "open"));
    assert_ok(memlord_tag_default_set(lord, NULL));
    assert_string_equal(memlord_tag_current(lord), "open");
    assert_ok(memlord_tag_end(lord));
    assert_null(memlord_tag_current(lord));
    assert_ok(memlord_tag_default_set(lord, "default"));
    assert_ok(memlord_tag_default_set(lord, NULL));
    assert_null(memlord_tag_current(lord));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 5, NULL));
    assert_int_equal(tag_of(lord, cpu(), NULL).allocated, 5);
    assert_ok(memlord_tag_default_set(NULL, "of no ledger"));
}

static void an_empty_default_tag_is_refused_and_changes_nothing(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_default_set(lord, "default"));
    assert_int_equal(memlord_tag_default_set(lord, ""), MEMLORD_E_INVALID);
    assert_string_equal(memlord_tag_current(lord), "default");
}

static void *set_a_default_tag(void *user) {
    memlord *lord = (memlord *)user;
    const char *before = memlord_tag_current(lord);
    memlord_tag_default_set(lord, "of that thread");
    return before ? lord : NULL;
}

static void a_default_tag_belongs_to_its_thread_and_ends_with_it(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    void *bad;
    int i;
    assert_ok(memlord_tag_default_set(lord, "of this thread"));
    for (i = 0; i < 4; i++) { /* a thread that takes over the record of an earlier one has none */
        assert_int_equal(pthread_create(&thread, NULL, set_a_default_tag, lord), 0);
        assert_int_equal(pthread_join(thread, &bad), 0);
        assert_null(bad);
    }
    assert_string_equal(memlord_tag_current(lord), "of this thread");
}

static void a_default_tag_without_memory_is_counted_and_changes_nothing(void **state) {
    memlord *lord = test_lord(state);
    test_heap *heap = &((test_case *)*state)->heap;
    char name[4096];
    memlord_result r = MEMLORD_OK;
    int i;
    assert_ok(memlord_tag_default_set(lord, "default"));
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    heap->fail_at = heap->calls + 1;
    heap->fail_from = 1;
    for (i = 0; i < 26 * 26 && r == MEMLORD_OK; i++) {
        name[0] = (char)('a' + i % 26);
        name[1] = (char)('a' + i / 26);
        r = memlord_tag_default_set(lord, name);
    }
    heap->fail_at = 0;
    assert_int_equal(r, MEMLORD_E_NOMEM);
    assert_int_equal(stats_of(lord, all()).dropped_sites, 1);
    assert_non_null(memlord_tag_current(lord));
}

static void a_promise_is_compared_with_what_is_there(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_expect(lord, cuda(0), "weights", 150));
    assert_int_equal(tag_of(lord, cuda(0), "weights").expected, 150);
    assert_true(tag_of(lord, cuda(0), "weights").variance == -150);
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 170, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_true(tag_of(lord, cuda(0), "weights").variance == 20);
    assert_ok(memlord_expect(lord, cuda(0), "weights", 70));
    assert_true(tag_of(lord, cuda(0), "weights").variance == 100);
}

static void a_bad_promise_is_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_expect(lord, cpu(), NULL, 1), MEMLORD_E_INVALID);
    assert_int_equal(memlord_expect(lord, cpu(), "", 1), MEMLORD_E_INVALID);
    assert_int_equal(memlord_expect(lord, memlord_device_make(99, 0), "t", 1), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_expect(lord, all(), "t", 1), MEMLORD_E_DEVICE);
}

static void a_retag_takes_the_bytes_along(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    assert_ok(memlord_tag_begin(lord, "from"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_block_retag(lord, cpu(), 0x1000, "to"));
    assert_int_equal(tag_of(lord, cpu(), "from").allocated, 0);
    assert_int_equal(tag_of(lord, cpu(), "from").blocks, 0);
    assert_int_equal(tag_of(lord, cpu(), "to").allocated, 100);
    assert_int_equal(tag_of(lord, cpu(), "to").blocks, 1);
    assert_ok(memlord_block_find(lord, cpu(), 0x1000, &info));
    assert_string_equal(info.tag, "to");
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(tag_of(lord, cpu(), "to").allocated, 0);
}

static void a_tag_first_used_after_a_reset_has_its_peak(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat tag;
    assert_ok(memlord_expect(lord, cpu(), "late", 10));
    memlord_reset(lord);
    assert_ok(memlord_tag_begin(lord, "late"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_tag_get(lord, all(), "late", &tag));
    assert_int_equal(tag.peak, 100);
}

static void a_retag_is_in_the_peak(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_block_retag(lord, cpu(), 0x1000, "to"));
    assert_ok(memlord_tag_begin(lord, "other"));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 10, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(tag_of(lord, cpu(), "to").peak, 100);
}

static void a_retag_to_nothing_unties_it(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    assert_ok(memlord_tag_begin(lord, "from"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 10, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_block_retag(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_block_retag(lord, cpu(), 0x2000, ""));
    assert_int_equal(tag_of(lord, cpu(), "from").allocated, 0);
    assert_int_equal(tag_of(lord, cpu(), NULL).allocated, 110);
    assert_ok(memlord_block_find(lord, cpu(), 0x1000, &info));
    assert_null(info.tag);
}

/* An empty one would be a second `tag=""` of PROMETHEUS, and an empty frame of FOLDED. */
static void a_description_with_an_empty_tag_has_none(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info block;
    memlord_tag_stat stat;
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    meta.tag = "";
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 10, NULL));
    assert_ok(memlord_block_describe(lord, cpu(), 0x1000, &meta));
    assert_ok(memlord_block_describe(lord, cpu(), 0x2000, &meta));
    assert_int_equal(memlord_tag_get(lord, cpu(), "", &stat), MEMLORD_E_UNKNOWN);
    assert_int_equal(tag_of(lord, cpu(), "weights").allocated, 100);
    assert_int_equal(tag_of(lord, cpu(), NULL).allocated, 10);
    assert_ok(memlord_block_find(lord, cpu(), 0x2000, &block));
    assert_null(block.tag);
    assert_null(block.meta.tag);
}

static void a_retag_of_the_dead_is_unknown(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_block_retag(lord, cpu(), 0x1000, "to"), MEMLORD_E_UNKNOWN);
}

static void a_reset_sets_the_peak_to_what_lives(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "cache"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 10, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    memlord_reset(lord);
    assert_int_equal(tag_of(lord, cpu(), "cache").peak, 10);
    assert_int_equal(tag_of(lord, cpu(), "cache").allocated, 10);
    assert_int_equal(tag_of(lord, cpu(), "cache").blocks, 1);
}

static void a_thousand_tags_are_kept_apart(void **state) {
    memlord *lord = test_lord(state);
    char name[32];
    uint64_t i, sum = 0;
    for (i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "request %d", (int)i);
        assert_ok(memlord_tag_begin(lord, name));
        assert_ok(memlord_alloc(lord, cpu(), (i + 1) * 64, i + 1, NULL));
        assert_ok(memlord_tag_end(lord));
    }
    for (i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "request %d", (int)i);
        sum += tag_of(lord, cpu(), name).allocated;
        assert_int_equal(tag_of(lord, cpu(), name).allocated, i + 1);
    }
    assert_int_equal(sum, memlord_allocated(lord, cpu()));
}

/* One tag more than there may be on all devices. */
static void a_block_whose_tag_has_no_room_counts_once(void **state) {
    TEST_ONE_THREAD();
    memlord *lord = test_lord(state);
    uint64_t i, dropped = 0;
    char name[32];
    for (i = 0; !dropped; i++) {
        assert_true(i < 100000);
        snprintf(name, sizeof name, "tag %d", (int)i);
        assert_ok(memlord_tag_begin(lord, name));
        assert_ok(memlord_alloc(lord, cuda(0), (i + 1) * 64, 8, NULL));
        dropped = stats_of(lord, cuda(0)).dropped_sites;
        if (!dropped) assert_ok(memlord_tag_end(lord));
    }
    assert_int_equal(dropped, 1);
    assert_ok(memlord_alloc(lord, cuda(0), (i + 1) * 64, 8, NULL));
    assert_int_equal(stats_of(lord, cuda(0)).dropped_sites, 2);
    assert_ok(memlord_tag_end(lord));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_is_allocated_inside_carries_the_tag),
        TEST(null_reads_what_carries_none),
        TEST(the_innermost_wins),
        TEST(a_free_debits_the_tag_of_the_block),
        TEST(a_view_does_not_change_the_tag),
        TEST(tags_are_read_by_device),
        TEST(a_tag_never_seen_is_unknown),
        TEST(a_null_out_is_refused),
        TEST(an_end_without_a_begin_is_refused),
        TEST(tags_nest_64_deep_and_no_deeper),
        TEST(a_name_that_is_null_or_empty_is_refused),
        TEST(names_are_copied),
        TEST(a_tag_belongs_to_its_thread_and_a_block_keeps_it),
        TEST(a_thread_may_end_inside_a_tag),
        TEST(each_ledger_has_its_own_stack),
        TEST(the_block_form_ends_however_it_is_left),
        TEST(a_block_form_that_could_not_begin_does_not_end),
        TEST(the_declaration_ends_however_its_block_is_left),
        TEST(a_declaration_tags_from_there_to_the_end_of_the_block),
        TEST(two_declarations_stand_in_one_block_and_on_one_line),
        TEST(a_declaration_that_could_not_begin_does_not_end),
        TEST(a_longjmp_is_healed_by_the_guard_around),
        TEST(a_guard_ends_what_was_begun_inside_and_not_what_is_around),
        TEST_FAKES(a_guard_that_ends_on_another_thread_is_counted_and_logged_once),
        TEST(a_guard_ends_once),
        TEST(the_current_tag_is_the_innermost),
        TEST(the_default_tag_is_below_every_open_tag),
        TEST(a_default_tag_of_null_takes_it_off),
        TEST(an_empty_default_tag_is_refused_and_changes_nothing),
        TEST(a_default_tag_belongs_to_its_thread_and_ends_with_it),
        TEST(a_default_tag_without_memory_is_counted_and_changes_nothing),
        TEST(a_promise_is_compared_with_what_is_there),
        TEST(a_bad_promise_is_refused),
        TEST(a_retag_takes_the_bytes_along),
        TEST(a_tag_first_used_after_a_reset_has_its_peak),
        TEST(a_retag_is_in_the_peak),
        TEST(a_retag_to_nothing_unties_it),
        TEST(a_description_with_an_empty_tag_has_none),
        TEST(a_retag_of_the_dead_is_unknown),
        TEST(a_reset_sets_the_peak_to_what_lives),
        TEST(a_thousand_tags_are_kept_apart),
        TEST(a_block_whose_tag_has_no_room_counts_once),
    };
    return cmocka_run_group_tests_name("tags", tests, NULL, NULL);
}
