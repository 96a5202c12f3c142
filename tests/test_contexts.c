/* Contexts: work that is suspended and goes on elsewhere keeps its tags, scopes, account, stream and
   tickets. Fibres against a model, and contexts that are used the wrong way. */
#include "jobs.h"

#include <sys/wait.h>
#include <unistd.h>

/* Fibres that run on stacks of their own: musl has no makecontext. */
#if defined(__GLIBC__)
#include <ucontext.h>
#define FIBRES 1
#endif
#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
#if defined(TSAN)
#include <sanitizer/tsan_interface.h>
#endif

static void take(memlord *lord, uint64_t key, uint64_t bytes) {
    assert_ok(memlord_alloc(lord, cuda(0), key, bytes, NULL));
}
static void give(memlord *lord, uint64_t key) { assert_ok(memlord_free(lord, cuda(0), key, NULL)); }
static void swap(memlord *lord, memlord_context *context) {
    assert_ok(memlord_context_swap(lord, context));
}
/* Runs a function on a thread of its own. */
typedef struct errand {
    memlord *lord;
    memlord_context *context;
    int (*run)(memlord *lord, memlord_context *context); /* 0: good */
    int bad;
} errand;
static void *errand_run(void *user) {
    errand *e = (errand *)user;
    e->bad = e->run(e->lord, e->context);
    return NULL;
}
static int elsewhere(memlord *lord, memlord_context *context,
                     int (*run)(memlord *, memlord_context *)) {
    errand e;
    pthread_t thread;
    e.lord = lord;
    e.context = context;
    e.run = run;
    e.bad = -1;
    if (pthread_create(&thread, NULL, errand_run, &e) || pthread_join(thread, NULL)) return -1;
    return e.bad;
}

/* -- what a context has -- */

/* Two fibres of one thread that alternate, with a tag and a scope each. */
static void fibres_of_one_thread_keep_their_tags_and_scopes_apart(void **state) {
    memlord *lord = test_lord(state);
    memlord_context a, b;
    memlord_scope_stat s;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    swap(lord, &a);
    assert_ok(memlord_scope_begin(lord, "reqA"));
    assert_ok(memlord_tag_begin(lord, "tagA"));
    take(lord, 0x1000, 1000);
    swap(lord, &a);
    swap(lord, &b);
    assert_null(memlord_tag_current(lord));
    assert_ok(memlord_scope_begin(lord, "reqB"));
    assert_ok(memlord_tag_begin(lord, "tagB"));
    take(lord, 0x2000, 10);
    swap(lord, &b);
    swap(lord, &a);
    take(lord, 0x3000, 1000);
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_scope_end(lord));
    swap(lord, &a);
    swap(lord, &b);
    take(lord, 0x4000, 10);
    assert_string_equal(memlord_tag_current(lord), "tagB");
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_scope_end(lord));
    swap(lord, &b);
    assert_int_equal(tagged(lord, "tagA"), 2000);
    assert_int_equal(tagged(lord, "tagB"), 20);
    s = scope_of(lord, "reqA");
    assert_int_equal(s.count, 1);
    assert_int_equal(s.bytes.total, 2000);
    assert_int_equal(s.peak, 2000);
    assert_int_equal(s.blocks.total, 2);
    s = scope_of(lord, "reqB");
    assert_int_equal(s.bytes.total, 20);
    assert_int_equal(s.peak, 20);
    assert_int_equal(memlord_scope_get(lord, "reqA/reqB", &s), MEMLORD_E_UNKNOWN);
    assert_int_equal(misplaced(lord), 0);
    assert_ok(memlord_context_drop(lord, &a));
    assert_ok(memlord_context_drop(lord, &b));
}

static void everything_that_lasts_over_calls_is_of_the_context(void **state) {
    memlord *lord = test_lord(state);
    memlord_context c;
    memlord_account account;
    memlord_account_stat charged;
    memlord_ticket ticket;
    memlord_block_info info;
    memset(&c, 0, sizeof c);
    assert_ok(memlord_limit_set(lord, cuda(0), 1 << 20));
    assert_ok(memlord_account_open(lord, cuda(0), "user", 0, &account));
    assert_ok(memlord_tag_default_set(lord, "of the thread"));
    assert_int_equal(memlord_stream_set(lord, 7), 0);
    swap(lord, &c);
    assert_null(memlord_tag_current(lord));
    assert_ok(memlord_tag_default_set(lord, "of the fibre"));
    assert_int_equal(memlord_stream_set(lord, 9), 0);
    assert_ok(memlord_account_use(lord, account));
    assert_ok(memlord_reserve(lord, cuda(0), 5000, &ticket));
    swap(lord, &c);
    take(lord, 0x1000, 100);
    assert_int_equal(stats_of(lord, cuda(0)).held, 5000); /* not off the fibre's ticket */
    assert_ok(memlord_account_get(lord, account, &charged));
    assert_int_equal(charged.bytes, 0);
    assert_int_equal(memlord_stream_set(lord, 7), 7);
    swap(lord, &c);
    take(lord, 0x2000, 300);
    assert_int_equal(stats_of(lord, cuda(0)).held, 4700);
    assert_ok(memlord_account_get(lord, account, &charged));
    assert_int_equal(charged.bytes, 300);
    assert_ok(memlord_block_find(lord, cuda(0), 0x2000, &info));
    assert_int_equal(info.stream, 9);
    assert_string_equal(info.tag, "of the fibre");
    swap(lord, &c);
    assert_ok(memlord_block_find(lord, cuda(0), 0x1000, &info));
    assert_int_equal(info.stream, 7);
    assert_string_equal(info.tag, "of the thread");
    assert_ok(memlord_context_drop(lord, &c));
    assert_int_equal(stats_of(lord, cuda(0)).held, 4700); /* the ticket stays open */
    assert_ok(memlord_reserve_commit(lord, ticket));
    assert_string_equal(memlord_tag_current(lord), "of the thread");
}

static int go_on(memlord *lord, memlord_context *c) {
    int bad = memlord_tag_begin(lord, "of the other thread") != MEMLORD_OK;
    bad |= memlord_alloc(lord, cuda(0), 0x9000, 1 << 20, NULL) != MEMLORD_OK;
    bad |= memlord_context_swap(lord, c) != MEMLORD_OK;
    bad |= strcmp(memlord_tag_current(lord), "inner") != 0;
    bad |= memlord_free(lord, cuda(0), 0x1000, NULL) != MEMLORD_OK;
    bad |= memlord_alloc(lord, cuda(0), 0x2000, 2000, NULL) != MEMLORD_OK;
    bad |= memlord_tag_end(lord) != MEMLORD_OK;
    bad |= memlord_scope_end(lord) != MEMLORD_OK;
    bad |= memlord_alloc(lord, cuda(0), 0x3000, 30, NULL) != MEMLORD_OK;
    bad |= memlord_context_swap(lord, c) != MEMLORD_OK;
    bad |= memlord_free(lord, cuda(0), 0x9000, NULL) != MEMLORD_OK;
    return bad;
}
/* Two scopes and two tags begin here, and one of each ends on another thread. */
static void a_context_goes_on_on_another_thread(void **state) {
    memlord *lord = test_lord(state);
    memlord_context c;
    memlord_scope_stat s;
    memset(&c, 0, sizeof c);
    take(lord, 0x8000, 1 << 20); /* levels of the threads differ */
    swap(lord, &c);
    assert_ok(memlord_scope_begin(lord, "outer"));
    assert_ok(memlord_tag_begin(lord, "tag"));
    assert_ok(memlord_scope_begin(lord, "inner"));
    assert_ok(memlord_tag_begin(lord, "inner"));
    take(lord, 0x1000, 1000);
    swap(lord, &c);
    give(lord, 0x8000);
    assert_int_equal(scope_of(lord, "outer/inner").running, 1);
    assert_int_equal(elsewhere(lord, &c, go_on), 0);
    swap(lord, &c);
    assert_string_equal(memlord_tag_current(lord), "tag");
    take(lord, 0x4000, 4);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(memlord_scope_end(lord), MEMLORD_E_STATE);
    swap(lord, &c);
    s = scope_of(lord, "outer/inner");
    assert_int_equal(s.count, 1);
    assert_int_equal(s.running, 0);
    assert_int_equal(s.bytes.total, 2000);
    assert_int_equal(s.blocks.total, 1);
    assert_int_equal(s.peak, 2000);
    s = scope_of(lord, "outer");
    assert_int_equal(s.count, 1);
    assert_int_equal(s.bytes.total, 2034);
    assert_int_equal(s.blocks.total, 3);
    assert_int_equal(s.peak, 2034);
    assert_int_equal(tagged(lord, "inner"), 2000);
    assert_int_equal(tagged(lord, "tag"), 34);
    assert_ok(memlord_context_drop(lord, &c));
}

static void a_peak_of_before_the_swap_counts(void **state) {
    memlord *lord = test_lord(state);
    memlord_context c;
    memset(&c, 0, sizeof c);
    swap(lord, &c);
    assert_ok(memlord_scope_begin(lord, "s"));
    take(lord, 0x1000, 5000);
    give(lord, 0x1000);
    take(lord, 0x2000, 100);
    swap(lord, &c);
    take(lord, 0x3000, 1 << 20); /* not of the scope */
    give(lord, 0x3000);
    swap(lord, &c);
    assert_ok(memlord_scope_end(lord));
    swap(lord, &c);
    assert_int_equal(scope_of(lord, "s").peak, 5000);
    assert_int_equal(scope_of(lord, "s").bytes.total, 100);
    assert_ok(memlord_context_drop(lord, &c));
}

/* Joins the scope of the token behind the context, and leaves it. */
static int adopt_and_return(memlord *lord, memlord_context *c) {
    const memlord_scope_token *token = (const memlord_scope_token *)(const void *)(c + 1);
    return memlord_scope_adopt(lord, token) != MEMLORD_OK ||
           memlord_scope_return(lord, token) != MEMLORD_OK;
}
/* The bytes in between are few beside the first ones, so the thread does not publish them. */
static void what_a_thread_did_before_it_enters_is_no_peak_of_a_shared_scope(void **state) {
    memlord *lord = test_lord(state);
    struct {
        memlord_context context;
        memlord_scope_token token;
    } c;
    memset(&c, 0, sizeof c);
    take(lord, 0x1000, 10 << 20);
    swap(lord, &c.context);
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_scope_export(lord, &c.token));
    assert_int_equal(elsewhere(lord, &c.context, adopt_and_return), 0);
    swap(lord, &c.context);
    take(lord, 0x2000, 20000);
    give(lord, 0x2000);
    swap(lord, &c.context);
    take(lord, 0x3000, 10);
    assert_ok(memlord_scope_end(lord));
    swap(lord, &c.context);
    assert_int_equal(scope_of(lord, "s").count, 1);
    assert_int_equal(scope_of(lord, "s").bytes.total, 10);
    assert_int_equal(scope_of(lord, "s").peak, 10);
    assert_ok(memlord_context_drop(lord, &c.context));
}

static int first_of_its_device(memlord *lord, memlord_context *c) {
    (void)c;
    return memlord_alloc(lord, cuda(5), 0x5000, 555, NULL) != MEMLORD_OK;
}
static int leave_it(memlord *lord, memlord_context *c) {
    int bad = memlord_alloc(lord, cuda(6), 0x6000, 600, NULL) != MEMLORD_OK;
    bad |= memlord_context_swap(lord, c) != MEMLORD_OK;
    bad |= memlord_alloc(lord, cuda(6), 0x6040, 6, NULL) != MEMLORD_OK;
    bad |= memlord_scope_end(lord) != MEMLORD_OK;
    return bad | (memlord_context_swap(lord, c) != MEMLORD_OK);
}
static void devices_that_are_new_while_a_context_rests_do_not_count(void **state) {
    memlord *lord = test_lord(state);
    memlord_context c;
    memset(&c, 0, sizeof c);
    take(lord, 0x1000, 10);
    swap(lord, &c);
    assert_ok(memlord_scope_begin(lord, "s"));
    swap(lord, &c);
    assert_int_equal(elsewhere(lord, &c, first_of_its_device), 0);
    assert_int_equal(elsewhere(lord, &c, leave_it), 0);
    assert_int_equal(scope_of(lord, "s").bytes.total, 6);
    assert_int_equal(scope_of(lord, "s").peak, 6);
    assert_ok(memlord_context_drop(lord, &c));
}

/* A generator inside a fibre that is suspended as a whole, and goes on elsewhere. */
static int from_the_generator(memlord *lord, memlord_context *both) {
    int bad = memlord_context_swap(lord, &both[0]) != MEMLORD_OK;
    bad |= strcmp(memlord_tag_current(lord), "generator") != 0;
    bad |= memlord_context_swap(lord, &both[1]) != MEMLORD_OK;
    bad |= strcmp(memlord_tag_current(lord), "fibre") != 0;
    bad |= memlord_context_swap(lord, &both[0]) != MEMLORD_OK;
    return bad | (memlord_tag_current(lord) != NULL);
}
static void a_context_inside_another_moves_with_it(void **state) {
    memlord *lord = test_lord(state);
    memlord_context both[2];
    memset(both, 0, sizeof both);
    swap(lord, &both[0]);
    assert_ok(memlord_tag_begin(lord, "fibre"));
    swap(lord, &both[1]);
    assert_null(memlord_tag_current(lord));
    assert_ok(memlord_tag_begin(lord, "generator"));
    swap(lord, &both[0]);
    assert_null(memlord_tag_current(lord));
    assert_int_equal(memlord_context_drop(lord, &both[0]), MEMLORD_E_STATE);
    assert_int_equal(elsewhere(lord, both, from_the_generator), 0);
    assert_ok(memlord_context_drop(lord, &both[1]));
    assert_ok(memlord_context_drop(lord, &both[0]));
}

static int end_guards(memlord *lord, memlord_context *c) {
    memlord_guard *guards = (memlord_guard *)(void *)(c + 1);
    int bad;
    memlord_guard_end(&guards[0]);
    memlord_guard_end(&guards[1]);
    bad = memlord_context_swap(lord, c) != MEMLORD_OK;
    memlord_guard_end(&guards[2]);
    memlord_guard_end(&guards[3]);
    bad |= memlord_scope_current(lord) != 0 || memlord_tag_current(lord) != NULL;
    return bad | (memlord_context_swap(lord, c) != MEMLORD_OK);
}
static void a_guard_ends_in_its_context_on_any_thread(void **state) {
    memlord *lord = test_lord(state);
    struct {
        memlord_context context;
        memlord_guard guard[4];
    } c;
    memset(&c, 0, sizeof c);
    c.guard[0] = memlord_guard_scope(lord, "of the thread", NULL);
    c.guard[1] = memlord_guard_tag(lord, "of the thread");
    swap(lord, &c.context);
    c.guard[2] = memlord_guard_scope(lord, "s", NULL);
    c.guard[3] = memlord_guard_tag(lord, "t");
    swap(lord, &c.context);
    assert_int_equal(elsewhere(lord, &c.context, end_guards), 0);
    assert_int_equal(scope_of(lord, "s").count, 1);
    assert_int_equal(misplaced(lord), 2); /* those of this thread, which stay open */
    assert_int_equal(scope_of(lord, "of the thread").count, 0);
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_context_drop(lord, &c.context));
}

static void an_end_that_finds_nothing_to_end_is_counted(void **state) {
    memlord *lord = test_lord(state);
    test_log *log = &((test_case *)*state)->log;
    memlord_context c;
    memset(&c, 0, sizeof c);
    assert_ok(memlord_tag_begin(lord, "of the thread"));
    assert_ok(memlord_scope_begin(lord, "of the thread"));
    swap(lord, &c);
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
    assert_int_equal(memlord_scope_end(lord), MEMLORD_E_STATE);
    swap(lord, &c);
    assert_int_equal(misplaced(lord), 2);
    assert_non_null(strstr(log->text, "none to end in this context"));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(misplaced(lord), 2);
    assert_ok(memlord_context_drop(lord, &c));
}

typedef struct seen {
    char text[64];
    size_t n;
} seen;
static int note(void *user, const memlord_event *e) {
    seen *s = (seen *)user;
    if (e->kind == MEMLORD_EVENT_SCOPE_BEGIN) s->text[s->n++] = '+';
    if (e->kind == MEMLORD_EVENT_SCOPE_END) s->text[s->n++] = '-';
    s->text[s->n++] = (char)('0' + e->scope);
    return 0;
}
static void the_timeline_has_a_scope_while_its_context_runs(void **state) {
    memlord *lord = test_lord(state);
    memlord_context c;
    seen s;
    memset(&c, 0, sizeof c);
    memset(&s, 0, sizeof s);
    assert_ok(memlord_events_start(lord, 1024));
    swap(lord, &c);
    assert_ok(memlord_scope_begin(lord, "outer"));
    assert_ok(memlord_scope_begin(lord, "inner"));
    swap(lord, &c);
    assert_ok(memlord_scope_begin(lord, "other"));
    assert_ok(memlord_scope_end(lord));
    swap(lord, &c);
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_context_drop(lord, &c));
    memlord_events_each(lord, note, &s);
    assert_string_equal(s.text, "+1+2-2-1+3-3+1+2-2-1");
}

/* -- ends -- */

static void drop_ends_what_is_open(void **state) {
    memlord *lord = test_lord(state);
    memlord_context c, zero;
    memlord_scope_stat s;
    memset(&c, 0, sizeof c);
    memset(&zero, 0, sizeof zero);
    swap(lord, &c);
    assert_ok(memlord_scope_begin(lord, "outer"));
    assert_ok(memlord_scope_begin(lord, "inner"));
    assert_ok(memlord_tag_begin(lord, "tag"));
    take(lord, 0x1000, 77);
    swap(lord, &c);
    take(lord, 0x2000, 7);
    assert_int_equal(scope_of(lord, "outer").running, 1);
    assert_ok(memlord_context_drop(lord, &c));
    assert_memory_equal(&c, &zero, sizeof c);
    s = scope_of(lord, "outer");
    assert_int_equal(s.count, 1);
    assert_int_equal(s.running, 0);
    assert_int_equal(s.bytes.total, 77);
    assert_int_equal(s.peak, 77);
    assert_int_equal(scope_of(lord, "outer/inner").bytes.total, 77);
    assert_ok(memlord_context_drop(lord, &c)); /* once more: nothing */
    swap(lord, &c);
    assert_null(memlord_tag_current(lord));
    assert_int_equal(memlord_scope_current(lord), 0);
    assert_ok(memlord_context_drop(lord, &c));
}

static void drop_of_the_context_one_is_in_leaves_it(void **state) {
    memlord *lord = test_lord(state);
    memlord_context c;
    memset(&c, 0, sizeof c);
    assert_ok(memlord_tag_begin(lord, "mine"));
    swap(lord, &c);
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_context_drop(lord, &c));
    assert_string_equal(memlord_tag_current(lord), "mine");
    assert_int_equal(scope_of(lord, "s").count, 1);
    assert_int_equal(scope_of(lord, "s").running, 0);
    assert_ok(memlord_tag_end(lord));
}

/* The host's fibre could go on elsewhere: its context is as it was. */
static int exit_inside(memlord *lord, memlord_context *c) {
    int bad = memlord_scope_begin(lord, "of the thread") != MEMLORD_OK;
    bad |= memlord_context_swap(lord, &c[0]) != MEMLORD_OK;
    bad |= memlord_scope_begin(lord, "s") != MEMLORD_OK;
    bad |= memlord_alloc(lord, cuda(0), 0x1000, 100, NULL) != MEMLORD_OK;
    bad |= memlord_context_swap(lord, &c[1]) != MEMLORD_OK;
    bad |= memlord_tag_begin(lord, "inside") != MEMLORD_OK;
    return bad | (memlord_alloc(lord, cuda(0), 0x2000, 20, NULL) != MEMLORD_OK);
}
static void a_thread_that_exits_inside_leaves_the_context_as_it_is(void **state) {
    memlord *lord = test_lord(state);
    memlord_context c[2];
    memset(c, 0, sizeof c);
    assert_int_equal(elsewhere(lord, c, exit_inside), 0);
    assert_int_equal(scope_of(lord, "of the thread").count, 1);
    assert_int_equal(scope_of(lord, "s").running, 1);
    swap(lord, &c[1]);
    assert_string_equal(memlord_tag_current(lord), "inside");
    swap(lord, &c[1]);
    swap(lord, &c[0]);
    take(lord, 0x3000, 3);
    assert_ok(memlord_scope_end(lord));
    swap(lord, &c[0]);
    assert_int_equal(scope_of(lord, "s").count, 1);
    assert_int_equal(scope_of(lord, "s").bytes.total, 103);
    assert_int_equal(scope_of(lord, "s").running, 0);
    assert_ok(memlord_context_drop(lord, &c[0]));
    assert_ok(memlord_context_drop(lord, &c[1]));
}

/* Destroy frees it with the ledger: the teardown counts the bytes. */
static void a_context_that_is_never_dropped_ends_with_its_ledger(void **state) {
    memlord *lord = test_lord(state);
    memlord_context c[40];
    int i;
    memset(c, 0, sizeof c);
    for (i = 0; i < 40; i++) {
        swap(lord, &c[i]);
        assert_ok(memlord_scope_begin(lord, "s"));
        swap(lord, &c[i]);
    }
    assert_int_equal(scope_of(lord, "s").running, 40);
}

static void past_its_ledger_a_context_is_zeroed(void **state) {
    memlord *lord = test_lord(state), *other = NULL;
    test_heap heap;
    memlord_desc desc;
    memlord_context c, zero;
    memset(&zero, 0, sizeof zero);
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, 0);
    c = zero;
    assert_ok(memlord_create(&desc, &other));
    swap(other, &c);
    assert_int_equal(memlord_context_swap(lord, &c), MEMLORD_E_STATE); /* the other's, alive */
    assert_int_equal(memlord_context_drop(lord, &c), MEMLORD_E_STATE);
    swap(other, &c);
    memlord_destroy(other);
    assert_ok(memlord_tag_begin(lord, "still here"));
    assert_ok(memlord_context_swap(lord, &c));
    assert_memory_equal(&c, &zero, sizeof c);
    assert_string_equal(memlord_tag_current(lord), "still here");
    assert_ok(memlord_tag_end(lord));
    memset(&c, 0x5a, sizeof c);
    assert_ok(memlord_context_drop(lord, &c));
    assert_memory_equal(&c, &zero, sizeof c);
}

/* Inside an allocator nobody can tell whether the other ledger lives. */
typedef struct swapper {
    test_heap heap;
    memlord *lord;
    memlord_context *context;
    memlord_result swapped, dropped;
} swapper;
static void *swap_and_alloc(void *user, size_t size) {
    swapper *s = (swapper *)user;
    s->swapped = memlord_context_swap(s->lord, s->context);
    s->dropped = memlord_context_drop(s->lord, s->context);
    return test_heap_alloc(&s->heap, size);
}
static void swap_and_free(void *user, void *ptr, size_t size) {
    test_heap_free(&((swapper *)user)->heap, ptr, size);
}
static void an_allocator_keeps_the_context_of_another_ledger(void **state) {
    memlord *lord = test_lord(state), *other = NULL, *allocates = NULL;
    test_heap heap;
    memlord_desc desc;
    memlord_context c, before;
    swapper s;
    memset(&heap, 0, sizeof heap);
    memset(&c, 0, sizeof c);
    memset(&s, 0, sizeof s);
    desc = test_desc(&heap, 0);
    assert_ok(memlord_create(&desc, &other));
    swap(other, &c);
    assert_ok(memlord_tag_begin(other, "fibre"));
    swap(other, &c);
    before = c;
    s.lord = lord;
    s.context = &c;
    desc.allocator.alloc = swap_and_alloc;
    desc.allocator.free = swap_and_free;
    desc.allocator.user = &s;
    assert_ok(memlord_create(&desc, &allocates));
    assert_int_equal(s.swapped, MEMLORD_E_STATE);
    assert_int_equal(s.dropped, MEMLORD_E_STATE);
    assert_memory_equal(&c, &before, sizeof c);
    memlord_destroy(allocates);
    swap(other, &c);
    assert_string_equal(memlord_tag_current(other), "fibre");
    memlord_destroy(other);
}

/* -- used the wrong way -- */

static void a_stale_copy_is_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_context c, copy;
    memset(&c, 0, sizeof c);
    swap(lord, &c);
    copy = c;
    assert_ok(memlord_tag_begin(lord, "fibre"));
    swap(lord, &c);
    assert_int_equal(memlord_context_swap(lord, &copy), MEMLORD_E_STATE);
    assert_int_equal(memlord_context_drop(lord, &copy), MEMLORD_E_STATE);
    assert_null(memlord_tag_current(lord));
    copy = c; /* a context may move */
    swap(lord, &copy);
    assert_string_equal(memlord_tag_current(lord), "fibre");
    assert_int_equal(memlord_context_swap(lord, &c), MEMLORD_E_STATE);
    swap(lord, &copy);
    c = copy;
    assert_ok(memlord_context_drop(lord, &copy));
    assert_int_equal(memlord_context_swap(lord, &c), MEMLORD_E_STATE);
    swap(lord, &copy); /* the record again: the old copy stays stale */
    assert_int_equal(memlord_context_swap(lord, &c), MEMLORD_E_STATE);
    assert_ok(memlord_context_drop(lord, &copy));
}

static int swap_and_drop(memlord *lord, memlord_context *c) {
    return memlord_context_swap(lord, c) != MEMLORD_E_STATE ||
           memlord_context_drop(lord, c) != MEMLORD_E_STATE ||
           memlord_tag_current(lord) != NULL;
}
static void a_context_that_another_thread_is_in_is_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_context c[2];
    memset(c, 0, sizeof c);
    assert_ok(memlord_tag_begin(lord, "mine"));
    swap(lord, &c[0]);
    assert_int_equal(elsewhere(lord, &c[0], swap_and_drop), 0);
    swap(lord, &c[1]);
    assert_int_equal(elsewhere(lord, &c[0], swap_and_drop), 0); /* it holds this thread's own */
    assert_int_equal(elsewhere(lord, &c[1], swap_and_drop), 0);
    swap(lord, &c[1]);
    swap(lord, &c[0]);
    assert_string_equal(memlord_tag_current(lord), "mine");
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_context_drop(lord, &c[0]));
    assert_ok(memlord_context_drop(lord, &c[1]));
}

static void what_is_no_context_is_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_context c;
    uint64_t i;
    assert_int_equal(memlord_context_swap(lord, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_context_drop(lord, NULL), MEMLORD_E_INVALID);
    for (i = 0; i < 200; i++) {
        memset(&c, 0, sizeof c);
        c.word[0] = memlord_generation(lord);
        c.word[1] = i << (i % 60) | 1;
        c.word[2] = i % 3;
        assert_int_equal(memlord_context_swap(lord, &c), MEMLORD_E_STATE);
        assert_int_equal(memlord_context_drop(lord, &c), MEMLORD_E_STATE);
    }
}

static void without_a_ledger_nothing_happens(void **state) {
    memlord_context c, zero;
    (void)state;
    memset(&c, 0, sizeof c);
    memset(&zero, 0, sizeof zero);
    assert_ok(memlord_context_swap(NULL, &c));
    assert_ok(memlord_context_swap(NULL, NULL));
    assert_ok(memlord_context_drop(NULL, &c));
    assert_ok(memlord_context_drop(NULL, NULL));
    assert_memory_equal(&c, &zero, sizeof c);
}

static void the_first_swap_alone_needs_memory(void **state) {
    test_case *t = (test_case *)*state;
    memlord *lord = t->lord;
    memlord_context c[100], zero;
    uint64_t calls;
    int i, none = -1;
    memset(c, 0, sizeof c);
    memset(&zero, 0, sizeof zero);
    assert_ok(memlord_tag_begin(lord, "mine"));
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    for (i = 0; i < 100; i++) { /* what the ledger had room for may do for the first ones */
        if (memlord_context_swap(lord, &c[i])) {
            none = i;
            assert_int_equal(memlord_context_swap(lord, &c[i]), MEMLORD_E_NOMEM);
            assert_memory_equal(&c[i], &zero, sizeof zero);
            assert_string_equal(memlord_tag_current(lord), "mine");
            break;
        }
        swap(lord, &c[i]);
    }
    assert_in_range(none, 0, 99);
    t->heap.fail_at = 0;
    swap(lord, &c[none]);
    swap(lord, &c[none]);
    calls = t->heap.calls;
    for (i = 0; i < 100; i++) swap(lord, &c[none]);
    assert_int_equal(t->heap.calls, calls);
    for (i = 0; i <= none; i++) assert_ok(memlord_context_drop(lord, &c[i]));
    assert_ok(memlord_tag_end(lord));
}

static int end_without_memory(memlord *lord, memlord_context *c) {
    test_heap *heap = *(test_heap **)(void *)(c + 1);
    int bad = memlord_context_swap(lord, c) != MEMLORD_OK;
    heap->fail_at = heap->calls + 1;
    heap->fail_from = 1;
    bad |= memlord_scope_end(lord) != MEMLORD_OK;
    heap->fail_at = 0;
    return bad | (memlord_context_swap(lord, c) != MEMLORD_OK);
}
static void a_scope_that_ends_elsewhere_without_memory_is_counted(void **state) {
    test_case *t = (test_case *)*state;
    memlord *lord = t->lord;
    struct {
        memlord_context context;
        test_heap *heap;
    } c;
    memset(&c, 0, sizeof c);
    c.heap = &t->heap;
    swap(lord, &c.context);
    assert_ok(memlord_scope_begin(lord, "s"));
    swap(lord, &c.context);
    assert_int_equal(elsewhere(lord, &c.context, end_without_memory), 0);
    assert_int_equal(scope_of(lord, "s").running, 0);
    assert_ok(memlord_context_drop(lord, &c.context));
}

/* -- fork -- */

static int in_child(pid_t child) {
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}
typedef struct inside {
    memlord *lord;
    memlord_context *context;
    test_gate gate;
} inside;
static void *wait_inside(void *user) {
    inside *w = (inside *)user;
    assert_ok(memlord_scope_begin(w->lord, "of the thread"));
    swap(w->lord, w->context);
    assert_ok(memlord_scope_begin(w->lord, "running"));
    take(w->lord, 0x5000, 50);
    test_gate_pass(&w->gate);
    assert_ok(memlord_scope_end(w->lord));
    swap(w->lord, w->context);
    assert_ok(memlord_scope_end(w->lord));
    return NULL;
}
/* The child goes on in the context it was in, and in those that nobody was in. One that a thread was
   in which is not there any more can be dropped. */
static void a_child_goes_on_in_its_contexts(void **state) {
    memlord *lord = test_lord(state);
    static const test_gate closed = TEST_GATE;
    memlord_context mine, rests, theirs;
    pthread_t thread;
    pid_t child;
    inside w;
    TEST_POSIX();
    memset(&mine, 0, sizeof mine);
    rests = theirs = mine;
    w.lord = lord;
    w.context = &theirs;
    w.gate = closed;
    assert_int_equal(pthread_create(&thread, NULL, wait_inside, &w), 0);
    assert_true(test_gate_came(&w.gate, 1));
    swap(lord, &rests);
    assert_ok(memlord_scope_begin(lord, "rests"));
    swap(lord, &rests);
    swap(lord, &mine);
    assert_ok(memlord_scope_begin(lord, "mine"));
    take(lord, 0x1000, 1);
    child = fork();
    if (!child) {
        memlord_scope_stat s;
        int bad;
        take(lord, 0x2000, 2);
        bad = memlord_scope_end(lord) || memlord_scope_get(lord, "mine", &s) ||
              s.bytes.total != 3 || s.running != 0;
        bad |= 2 * (memlord_context_swap(lord, &mine) || memlord_context_swap(lord, &rests) ||
                    memlord_scope_end(lord) || memlord_context_swap(lord, &rests) ||
                    memlord_scope_get(lord, "rests", &s) || s.count != 1 || s.running != 0);
        bad |= 4 * (memlord_scope_get(lord, "of the thread", &s) || s.running != 0 || s.count != 0);
        bad |= 8 * (memlord_scope_get(lord, "running", &s) || s.running != 1);
        bad |= 16 * (memlord_context_drop(lord, &theirs) != MEMLORD_OK);
        bad |= 32 * (memlord_scope_get(lord, "running", &s) || s.running != 0 ||
                     s.bytes.total != 50);
        bad |= 64 * (memlord_verify(lord) == MEMLORD_E_STATE);
        _exit(bad);
    }
    assert_int_equal(in_child(child), 0);
    test_gate_open(&w.gate);
    pthread_join(thread, NULL);
    assert_ok(memlord_context_drop(lord, &mine));
    assert_ok(memlord_context_drop(lord, &rests));
    assert_ok(memlord_context_drop(lord, &theirs));
    assert_int_equal(scope_of(lord, "running").bytes.total, 50);
}

/* -- eight fibres on two threads, against a model -- */

/* Jobs that return where they suspend. */
static void resume_state(job *j) {
    int i;
    j->bad |= memlord_context_swap(j->lord, &j->context) != MEMLORD_OK;
    for (i = 0; i < 5 && j->step < STEPS; i++, j->step++) job_step(j);
    if (j->step == STEPS) job_end(j);
    j->bad |= memlord_context_swap(j->lord, &j->context) != MEMLORD_OK;
}
static void jobs_on_two_threads_against_a_model(void **state) {
    job *jobs = (job *)calloc(JOBS, sizeof *jobs);
    assert_non_null(jobs);
    run_jobs(test_lord(state), jobs, resume_state);
    free(jobs);
}

#if defined(FIBRES)
typedef struct fibre {
    ucontext_t here, *out;
    char *stack;
#if defined(TSAN)
    void *fiber, *thread_fiber;
#endif
} fibre;
static void fibre_switch(fibre *f, int in) {
#if defined(TSAN)
    __tsan_switch_to_fiber(in ? f->fiber : f->thread_fiber, 0);
#endif
    (void)(in ? swapcontext(f->out, &f->here) : swapcontext(&f->here, f->out));
}
static void fibre_run(unsigned low, unsigned high) {
    job *j = (job *)(uintptr_t)((uint64_t)high << 32 | low);
    fibre *f = (fibre *)j->resume;
    for (; j->step < STEPS; j->step++) {
        job_step(j);
        if (test_random(&j->random) % 4 == 0) fibre_switch(f, 0);
    }
    job_end(j);
    for (;;) fibre_switch(f, 0);
}
static void resume_fibre(job *j) {
    fibre *f = (fibre *)j->resume;
    ucontext_t out;
    j->bad |= memlord_context_swap(j->lord, &j->context) != MEMLORD_OK;
    f->out = &out;
#if defined(TSAN)
    f->thread_fiber = __tsan_get_current_fiber();
#endif
    fibre_switch(f, 1);
    j->bad |= memlord_context_swap(j->lord, &j->context) != MEMLORD_OK;
}
#define STACK ((size_t)256 << 10)
static void eight_fibres_on_two_threads_against_a_model(void **state) {
    job *jobs = (job *)calloc(JOBS, sizeof *jobs);
    fibre *fibres = (fibre *)calloc(JOBS, sizeof *fibres);
    int i;
    assert_non_null(jobs);
    assert_non_null(fibres);
    for (i = 0; i < JOBS; i++) {
        fibre *f = &fibres[i];
        const uint64_t at = (uint64_t)(uintptr_t)&jobs[i];
        jobs[i].resume = f;
        assert_int_equal(getcontext(&f->here), 0);
        f->stack = (char *)malloc(STACK);
        assert_non_null(f->stack);
        f->here.uc_stack.ss_sp = f->stack;
        f->here.uc_stack.ss_size = STACK;
#if defined(TSAN)
        f->fiber = __tsan_create_fiber(0);
#endif
        makecontext(&f->here, (void (*)(void))fibre_run, 2, (unsigned)at, (unsigned)(at >> 32));
    }
    run_jobs(test_lord(state), jobs, resume_fibre);
    for (i = 0; i < JOBS; i++) {
#if defined(TSAN)
        __tsan_destroy_fiber(fibres[i].fiber);
#endif
        free(fibres[i].stack);
    }
    free(fibres);
    free(jobs);
}
#else
static void eight_fibres_on_two_threads_against_a_model(void **state) {
    (void)state;
    skip();
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(fibres_of_one_thread_keep_their_tags_and_scopes_apart),
        TEST(everything_that_lasts_over_calls_is_of_the_context),
        TEST(a_context_goes_on_on_another_thread),
        TEST(a_peak_of_before_the_swap_counts),
        TEST_EXACT(a_peak_of_before_the_swap_counts),
        TEST(what_a_thread_did_before_it_enters_is_no_peak_of_a_shared_scope),
        TEST(devices_that_are_new_while_a_context_rests_do_not_count),
        TEST(a_context_inside_another_moves_with_it),
        TEST(a_guard_ends_in_its_context_on_any_thread),
        TEST_FAKES(an_end_that_finds_nothing_to_end_is_counted),
        TEST(the_timeline_has_a_scope_while_its_context_runs),
        TEST(drop_ends_what_is_open),
        TEST(drop_of_the_context_one_is_in_leaves_it),
        TEST(a_thread_that_exits_inside_leaves_the_context_as_it_is),
        TEST(a_context_that_is_never_dropped_ends_with_its_ledger),
        TEST(past_its_ledger_a_context_is_zeroed),
        TEST(an_allocator_keeps_the_context_of_another_ledger),
        TEST(a_stale_copy_is_refused),
        TEST(a_context_that_another_thread_is_in_is_refused),
        TEST(what_is_no_context_is_refused),
        cmocka_unit_test(without_a_ledger_nothing_happens),
        TEST(the_first_swap_alone_needs_memory),
        TEST(a_scope_that_ends_elsewhere_without_memory_is_counted),
        TEST(a_child_goes_on_in_its_contexts),
        TEST(jobs_on_two_threads_against_a_model),
        TEST_EXACT(jobs_on_two_threads_against_a_model),
        TEST(eight_fibres_on_two_threads_against_a_model),
        TEST_EXACT(eight_fibres_on_two_threads_against_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
