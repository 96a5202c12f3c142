/* Mistakes of the host: each kind, with its place, once in the list and once in the log. */
#include "support.h"
#include "json.h"

#include <pthread.h>

static const memlord_site here = {"a.c", "f", 3}, there = {"b.c", "g", 7};

/* What the ledger says of its mistakes. */
typedef struct told {
    memlord_anomaly at[80];
    size_t n;
} told;

static int tell_one(void *user, const memlord_anomaly *a) {
    told *t = (told *)user;
    assert_in_range(t->n, 0, 79);
    t->at[t->n++] = *a;
    return 0;
}
static told told_by(memlord *lord) {
    told t;
    size_t n;
    memset(&t, 0, sizeof t);
    n = memlord_anomalies_each(lord, tell_one, &t);
    assert_int_equal(n, t.n);
    return t;
}

static void is_site(memlord_site site, memlord_site wanted) {
    assert_string_equal(site.file, wanted.file);
    assert_string_equal(site.function, wanted.function);
    assert_int_equal(site.line, wanted.line);
}
/* Compares the only mistake of a ledger. */
static void is_one(memlord *lord, int kind, uint64_t storage, uint64_t bytes, memlord_site site,
                   memlord_site born, const char *tag) {
    const told t = told_by(lord);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.at[0].kind, kind);
    assert_int_equal(t.at[0].storage, storage);
    assert_int_equal(t.at[0].bytes, bytes);
    assert_int_equal(t.at[0].count, 1);
    assert_int_equal(t.at[0].first_ns, t.at[0].last_ns);
    is_site(t.at[0].site, site);
    is_site(t.at[0].born, born);
    if (tag)
        assert_string_equal(t.at[0].tag, tag);
    else
        assert_null(t.at[0].tag);
}
static const memlord_site none = {"", "", 0};

/* -- the kinds -- */

static int fails(void *user) {
    (void)user;
    return -1;
}

static void an_unknown_free_has_its_site_also_while_sites_are_off(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_free(lord, cuda(1), 0x1000, &here), MEMLORD_E_UNKNOWN);
    is_one(lord, MEMLORD_ANOMALY_UNKNOWN_FREE, 0x1000, 0, here, none, NULL);
    assert_int_equal(told_by(lord).at[0].device.type, MEMLORD_DEVICE_CUDA);
    assert_int_equal(told_by(lord).at[0].device.index, 1);
}
static void every_call_that_frees_gives_its_site(void **state) {
    memlord *lord = test_lord(state);
    const memlord_block block = {cpu(), 0x1000, 1};
    const memlord_fence fence = {fails, NULL, 0, NULL};
    memlord_realloc_token token;
    told t;
    assert_int_equal(memlord_free(lord, cpu(), 0x1000, &here), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_release(lord, cpu(), 0x1000, &here), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_free_n(lord, &block, 1, &here), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_release_n(lord, &block, 1, &here), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_free_begin(lord, cpu(), 0x1000, &token, &here), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_free_deferred(lord, cpu(), 0x1000, fence, &here), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_move(lord, cpu(), 0x1000, cuda(0), 1, 1, NULL, &here),
                     MEMLORD_E_UNKNOWN);
    assert_ok(memlord_realloc(lord, cpu(), 0x1000, 0x2000, 1, &here));
    t = told_by(lord);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.at[0].count, 8);
    is_site(t.at[0].site, here);
}
static void an_implicit_free_has_both_places(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "kv"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &here));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 50, &there));
    is_one(lord, MEMLORD_ANOMALY_IMPLICIT_FREE, 0x1000, 100, there, here, "kv");
}
static void a_shared_free_has_both_places(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &here));
    assert_ok(memlord_retain(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, &there));
    is_one(lord, MEMLORD_ANOMALY_FREED_WHILE_SHARED, 0x1000, 100, there, here, NULL);
}
static void an_underflow_has_what_was_too_much(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_arena_add(lord, cpu(), 10, &there));
    assert_ok(memlord_arena_sub(lord, cpu(), 15, &here));
    is_one(lord, MEMLORD_ANOMALY_UNDERFLOW, 0, 5, here, none, NULL);
}
static void a_failed_fence_has_the_place_of_its_block(void **state) {
    memlord *lord = test_lord(state);
    const memlord_fence fence = {fails, NULL, 0, NULL};
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &here));
    assert_ok(memlord_free_deferred(lord, cpu(), 0x1000, fence, &there));
    is_one(lord, MEMLORD_ANOMALY_FENCE_FAILED, 0x1000, 100, none, here, NULL);
}
static void a_refused_call_has_its_site(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_alloc(lord, cpu(), 0, 1, &here), MEMLORD_E_INVALID);
    is_one(lord, MEMLORD_ANOMALY_REFUSED, 0, 0, here, none, NULL);
}
static void an_end_that_finds_none_is_a_mistake_where_it_is_called(void **state) {
    memlord *lord = test_lord(state);
    told t;
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
    t = told_by(lord);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.at[0].kind, MEMLORD_ANOMALY_MISPLACED_END);
    assert_int_equal(t.at[0].device.type, MEMLORD_ANY);
    assert_non_null(strstr(t.at[0].site.file, "+0x"));
    assert_int_equal(memlord_scope_end(lord), MEMLORD_E_STATE);
    assert_int_equal(told_by(lord).n, 2);
}
static void a_dropped_alloc_has_its_site_and_its_bytes(void **state) {
    test_case *t = (test_case *)*state;
    told all_of;
    uint64_t i;
    assert_ok(memlord_alloc(t->lord, cpu(), 64, 1, NULL));
    assert_int_equal(memlord_free(t->lord, cpu(), 1, &here), MEMLORD_E_UNKNOWN); /* keeps the site */
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    for (i = 2; stats_of(t->lord, cpu()).dropped_allocs < 100; i++)
        (void)memlord_alloc(t->lord, cpu(), i * 64, 7, &here);
    t->heap.fail_at = 0;
    all_of = told_by(t->lord);
    assert_int_equal(all_of.n, 2);
    assert_int_equal(all_of.at[1].kind, MEMLORD_ANOMALY_DROPPED);
    assert_int_equal(all_of.at[1].count, 100);
    assert_int_equal(all_of.at[1].bytes, 700);
    is_site(all_of.at[1].site, here);
}
static void without_memory_a_mistake_has_no_site(void **state) {
    test_case *t = (test_case *)*state;
    static char names[64][2048];
    static memlord_site sites[64];
    told all_of;
    size_t i;
    assert_ok(memlord_alloc(t->lord, cpu(), 64, 1, NULL));
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    for (i = 0; i < 64; i++) {
        memset(names[i], 'a' + (int)i % 26, sizeof names[i] - 1);
        sites[i].file = names[i];
        sites[i].function = "f";
        (void)memlord_free(t->lord, cpu(), 1, &sites[i]);
    }
    t->heap.fail_at = 0;
    all_of = told_by(t->lord);
    is_site(all_of.at[all_of.n - 1].site, none);
    for (i = 0; i < all_of.n; i++) assert_true(all_of.at[i].count >= 1);
    assert_int_equal(stats_of(t->lord, cpu()).unknown_frees, 64);
}

/* -- the list -- */

static void mistakes_of_one_site_are_one_entry(void **state) {
    memlord *lord = test_lord(state);
    uint64_t *now = &((test_case *)*state)->now;
    static memlord_site copy;
    told t;
    copy = here;
    *now += 1000;
    assert_int_equal(memlord_free(lord, cpu(), 0x1000, &here), MEMLORD_E_UNKNOWN);
    *now += 500;
    assert_int_equal(memlord_free(lord, cpu(), 0x2000, &copy), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_free(lord, cpu(), 0x3000, &there), MEMLORD_E_UNKNOWN);
    t = told_by(lord);
    assert_int_equal(t.n, 2);
    assert_int_equal(t.at[0].count, 2);
    assert_int_equal(t.at[0].storage, 0x1000);
    assert_int_equal(t.at[0].last_ns - t.at[0].first_ns, 500);
    assert_int_equal(t.at[1].count, 1);
}
static void sixty_four_sites_are_kept_and_the_others_counted(void **state) {
    memlord *lord = test_lord(state);
    static memlord_site sites[70], copy;
    char *json;
    size_t i;
    for (i = 0; i < 70; i++) {
        sites[i] = here;
        sites[i].line = (int)i + 1;
        (void)memlord_free(lord, cpu(), 0x1000, &sites[i]);
        (void)memlord_free(lord, cpu(), 0x1000, &sites[i]);
    }
    assert_int_equal(told_by(lord).n, 64);
    assert_int_equal(told_by(lord).at[63].count, 2);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 140);
    copy = sites[63]; /* the same place in another struct is kept, too */
    (void)memlord_free(lord, cpu(), 0x1000, &copy);
    assert_int_equal(told_by(lord).at[63].count, 3);
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(json, "mistakes.more"), 12);
    free(json);
    json = report_of(lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(json, "\n... and 12 more at other sites\n"));
    free(json);
    memlord_reset(lord);
    (void)memlord_free(lord, cpu(), 0x1000, &here);
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(json, "mistakes.more"), 0);
    free(json);
}
static void a_million_unknown_frees_take_no_memory(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t i, calls;
    (void)memlord_free(t->lord, cpu(), 8, &here);
    calls = t->heap.calls;
    for (i = 2; i <= 1000000; i++) (void)memlord_free(t->lord, cpu(), i * 8, &here);
    assert_int_equal(t->heap.calls, calls);
    assert_int_equal(told_by(t->lord).n, 1);
    assert_int_equal(told_by(t->lord).at[0].count, 1000000);
    assert_int_equal(t->log.lines[MEMLORD_LOG_WARNING], 1);
}
static void a_reset_forgets_them(void **state) {
    memlord *lord = test_lord(state);
    (void)memlord_free(lord, cpu(), 1, &here);
    memlord_reset(lord);
    assert_int_equal(told_by(lord).n, 0);
    (void)memlord_free(lord, cpu(), 1, &here);
    assert_int_equal(told_by(lord).at[0].count, 1);
}
static int stop_at_once(void *user, const memlord_anomaly *a) {
    (void)a;
    ++*(int *)user;
    return 1;
}
static void the_walk_stops_where_it_is_asked_to(void **state) {
    memlord *lord = test_lord(state);
    int calls = 0;
    (void)memlord_free(lord, cpu(), 1, &here);
    (void)memlord_free(lord, cpu(), 1, &there);
    assert_int_equal(memlord_anomalies_each(lord, stop_at_once, &calls), 1);
    assert_int_equal(calls, 1);
    assert_int_equal(memlord_anomalies_each(lord, NULL, NULL), 2);
    assert_int_equal(memlord_anomalies_each(NULL, stop_at_once, &calls), 0);
    assert_int_equal(calls, 1);
}
static int free_and_reset(void *user, const memlord_anomaly *a) {
    memlord *lord = (memlord *)user;
    (void)a;
    (void)memlord_free(lord, cpu(), 7, &there);
    (void)memlord_alloc(lord, cpu(), 0x9000, 1, &here);
    memlord_reset(lord);
    return 0;
}
static void the_function_may_call_the_ledger(void **state) {
    memlord *lord = test_lord(state);
    (void)memlord_free(lord, cpu(), 1, &here);
    assert_int_equal(memlord_anomalies_each(lord, free_and_reset, lord), 1);
    assert_int_equal(told_by(lord).n, 0);
    assert_ok(memlord_free(lord, cpu(), 0x9000, NULL));
}
static void *make_mistakes(void *user) {
    memlord *lord = (memlord *)user;
    uint64_t i;
    for (i = 0; i < 2000; i++) {
        (void)memlord_free(lord, cpu(), 1, i % 2 ? &here : &there);
        if (i % 512 == 0) (void)memlord_anomalies_each(lord, NULL, NULL);
    }
    return NULL;
}
static void threads_that_make_one_mistake_share_its_entry(void **state) {
    test_case *t = (test_case *)*state;
    pthread_t threads[4];
    told all_of;
    size_t i;
    for (i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_mistakes, t->lord), 0);
    for (i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    all_of = told_by(t->lord);
    assert_int_equal(all_of.n, 2);
    assert_int_equal(all_of.at[0].count + all_of.at[1].count, 8000);
    assert_int_equal(t->log.lines[MEMLORD_LOG_WARNING], 2);
}

/* -- the log -- */

static void each_is_logged_once(void **state) {
    test_case *t = (test_case *)*state;
    (void)memlord_free(t->lord, cpu(), 0x1000, &here);
    (void)memlord_free(t->lord, cpu(), 0x2000, &here);
    (void)memlord_free(t->lord, cpu(), 0x3000, &there);
    assert_string_equal(t->log.text,
                        "[unknown_free] cpu 0x00001000: a free of a storage that is not live, at "
                        "f a.c:3\n"
                        "[unknown_free] cpu 0x00003000: a free of a storage that is not live, at "
                        "g b.c:7\n");
    assert_int_equal(t->log.lines[MEMLORD_LOG_WARNING], 2);
}
static void a_refusal_is_logged_once_a_site(void **state) {
    test_case *t = (test_case *)*state;
    (void)memlord_alloc(t->lord, cpu(), 0, 1, &here);
    (void)memlord_alloc(t->lord, cpu(), 0, 1, &here);
    (void)memlord_alloc(t->lord, cpu(), 0, 1, &there);
    (void)memlord_track(t->lord, cpu(), 0, 1, &there);
    assert_string_equal(t->log.text, "memlord_alloc: a storage cannot be 0, at f a.c:3\n"
                                     "memlord_alloc: a storage cannot be 0, at g b.c:7\n"
                                     "memlord_track: a storage cannot be 0, at g b.c:7\n");
}
/* A logger that makes a mistake of its own for each line. */
typedef struct careless {
    memlord *lord;
    int lines, deepest, depth;
} careless;
static void free_what_is_not_there(void *user, int level, const char *text) {
    careless *c = (careless *)user;
    (void)level;
    (void)text;
    c->lines++;
    if (++c->depth > c->deepest) c->deepest = c->depth;
    (void)memlord_free(c->lord, cpu(), 0x7000, &there);
    (void)memlord_alloc(c->lord, cpu(), 0, 1, &there);
    assert_ok(memlord_alloc(c->lord, cpu(), 0x8000, 1, &there));
    assert_ok(memlord_free(c->lord, cpu(), 0x8000, &there));
    c->depth--;
}
static void a_logger_that_makes_mistakes_is_not_called_from_within(void **state) {
    memlord *lord = test_lord(state);
    careless c = {NULL, 0, 0, 0};
    memlord_logger logger = {free_what_is_not_there, NULL};
    c.lord = lord;
    logger.user = &c;
    assert_ok(memlord_logger_set(lord, &logger));
    (void)memlord_free(lord, cpu(), 0x1000, &here);
    assert_int_equal(c.deepest, 1);
    assert_int_equal(c.lines, 2); /* its own unknown free is told once it has returned */
    (void)memlord_free(lord, cpu(), 0x1000, &here);
    assert_int_equal(c.lines, 2);
    assert_int_equal(told_by(lord).n, 3);
    assert_ok(memlord_logger_set(lord, NULL));
}
/* A logger that frees what is not there once, when it hears of a reset. */
static void free_at_a_reset(void *user, int level, const char *text) {
    careless *c = (careless *)user;
    (void)level;
    c->lines += strncmp(text, "[unknown_free]", 14) == 0;
    if (strncmp(text, "[reset]", 7) == 0) (void)memlord_free(c->lord, cpu(), 0x7000, &there);
}
static void a_call_on_another_ledger_leaves_a_mistake_to_be_told(void **state) {
    memlord *lord = test_lord(state), *other = NULL;
    careless c = {NULL, 0, 0, 0};
    memlord_logger logger = {free_at_a_reset, NULL};
    c.lord = lord;
    logger.user = &c;
    assert_ok(memlord_create(NULL, &other));
    assert_ok(memlord_logger_set(lord, &logger));
    memlord_reset(lord);
    assert_int_equal(c.lines, 0); /* the logger is not called from within */
    assert_ok(memlord_track(other, cpu(), 0x1000, 1, &here));
    assert_ok(memlord_track(lord, cpu(), 0x1000, 1, &here));
    assert_int_equal(c.lines, 1);
    assert_ok(memlord_logger_set(lord, NULL));
    memlord_destroy(other);
}

/* -- calls from within the ledger's allocator -- */

/* Makes a call that is refused, at a site of its own, whenever the ledger takes memory. */
typedef struct nested {
    memlord *lord;
    int calls;
} nested;
static void *nested_alloc(void *user, size_t size) {
    nested *n = (nested *)user;
    if (n->lord) {
        n->calls++;
        (void)memlord_alloc_n(n->lord, NULL, 1, &there);
        (void)memlord_retain(n->lord, cpu(), 0x7000, &there);
    }
    return malloc(size);
}
static void nested_free(void *user, void *ptr, size_t size) {
    (void)user;
    (void)size;
    free(ptr);
}
static void a_call_within_the_allocator_makes_no_mistake_and_moves_none(void **state) {
    test_log log;
    nested n = {NULL, 0};
    memlord_desc desc;
    memlord *lord = NULL;
    told t;
    int i;
    (void)state;
    memset(&log, 0, sizeof log);
    pthread_mutex_init(&log.lock, NULL);
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    desc.allocator.alloc = nested_alloc;
    desc.allocator.free = nested_free;
    desc.allocator.user = &n;
    desc.logger.fn = test_log_line;
    desc.logger.user = &log;
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1, &here));
    n.lord = lord;
    for (i = 1; i < 32; i++) { /* each takes memory for a new device, and frees implicitly */
        assert_ok(memlord_alloc(lord, cuda(i), 0x1000, 1, &here));
        assert_ok(memlord_alloc(lord, cpu(), (uint64_t)i << 21, 1, &here)); /* and for a table */
    }
    n.lord = NULL;
    assert_in_range(n.calls, 1, 1000);
    t = told_by(lord);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.at[0].kind, MEMLORD_ANOMALY_IMPLICIT_FREE);
    assert_int_equal(t.at[0].count, 31);
    is_site(t.at[0].site, here);
    assert_int_equal(stats_of(lord, all()).refused, 0);
    assert_int_equal(log.lines[MEMLORD_LOG_WARNING], 1);
    memlord_destroy(lord);
}

/* Frees and allocates, whether the ledger has room to record that or not. */
static void free_and_allocate(careless *c) {
    c->lines++;
    (void)memlord_free(c->lord, cpu(), 0x7000, &there);
    if (memlord_alloc(c->lord, cpu(), 0x8000, 1, &there) == MEMLORD_OK)
        assert_ok(memlord_free(c->lord, cpu(), 0x8000, &there));
}
static void free_and_allocate_in_a_logger(void *user, int level, const char *text) {
    (void)level;
    (void)text;
    free_and_allocate((careless *)user);
}
static int free_and_allocate_in_the_walk(void *user, const memlord_anomaly *a) {
    (void)a;
    free_and_allocate((careless *)user);
    return 0;
}
static void a_logger_may_free_and_allocate_while_there_is_no_memory(void **state) {
    test_case *t = (test_case *)*state;
    careless c = {NULL, 0, 0, 0};
    memlord_logger logger = {free_and_allocate_in_a_logger, NULL};
    uint64_t i, live = 0;
    c.lord = t->lord;
    logger.user = &c;
    assert_ok(memlord_logger_set(t->lord, &logger));
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    for (i = 0x1000; stats_of(t->lord, cpu()).dropped_allocs < 10; i++)
        live += memlord_alloc(t->lord, cpu(), i * 64, 3, &here) == MEMLORD_OK ? 3 : 0;
    assert_true(c.lines > 0);
    assert_int_equal(memlord_anomalies_each(t->lord, free_and_allocate_in_the_walk, &c),
                     told_by(t->lord).n);
    assert_int_equal(memlord_allocated(t->lord, cpu()), live);
    t->heap.fail_at = 0;
    assert_true(t->heap.failed > 0);
    assert_ok(memlord_alloc(t->lord, cpu(), 64, 5, &here));
    assert_int_equal(memlord_allocated(t->lord, cpu()), live + 5);
    assert_ok(memlord_logger_set(t->lord, NULL));
    assert_ok(memlord_verify(t->lord));
}
static void a_later_logger_hears_of_earlier_mistakes(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_logger logger = {test_log_line, &t->log};
    assert_ok(memlord_logger_set(t->lord, NULL));
    (void)memlord_free(t->lord, cpu(), 0x1000, &here);
    assert_ok(memlord_logger_set(t->lord, &logger));
    (void)memlord_free(t->lord, cpu(), 0x2000, &there);
    assert_int_equal(t->log.lines[MEMLORD_LOG_WARNING], 2);
}
static void a_block_leaked_at_destroy_is_a_warning(void **state) {
    test_log log;
    memlord_desc desc;
    memlord *lord = NULL;
    (void)state;
    memset(&log, 0, sizeof log);
    memset(&desc, 0, sizeof desc);
    pthread_mutex_init(&log.lock, NULL);
    desc.logger.fn = test_log_line;
    desc.logger.user = &log;
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 64, NULL));
    memlord_destroy(lord);
    assert_string_equal(log.text, "[destroy] cpu: live 64 B in 1 block\n");
    assert_int_equal(log.lines[MEMLORD_LOG_WARNING], 1);
}

/* -- the reports -- */

static void reports_list_what_lost_bytes_first(void **state) {
    test_case *t = (test_case *)*state;
    char *text, *json;
    uint64_t i;
    assert_ok(memlord_alloc(t->lord, cpu(), 64, 1, NULL));
    for (i = 0; i < 3; i++) (void)memlord_free(t->lord, cpu(), 1, &there);
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    for (i = 2; !stats_of(t->lord, cpu()).dropped_allocs; i++)
        (void)memlord_alloc(t->lord, cpu(), i * 64, 7, &there);
    t->heap.fail_at = 0;
    json = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_true(json_is(json, "mistakes.list[0].kind", "dropped"));
    assert_true(json_is(json, "mistakes.list[1].kind", "unknown_free"));
    assert_true(json_is(json, "mistakes.list[1].site.file", "b.c"));
    assert_int_equal(json_u64(json, "mistakes.list[1].count"), 3);
    free(json);
    text = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_true(strstr(text, "  dropped, cpu") < strstr(text, "  unknown_free, cpu"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_unknown_free_has_its_site_also_while_sites_are_off),
        TEST(every_call_that_frees_gives_its_site),
        TEST_SITES(an_implicit_free_has_both_places),
        TEST_SITES(a_shared_free_has_both_places),
        TEST(an_underflow_has_what_was_too_much),
        TEST_SITES(a_failed_fence_has_the_place_of_its_block),
        TEST(a_refused_call_has_its_site),
        TEST(an_end_that_finds_none_is_a_mistake_where_it_is_called),
        TEST(a_dropped_alloc_has_its_site_and_its_bytes),
        TEST(without_memory_a_mistake_has_no_site),
        TEST_FAKES(mistakes_of_one_site_are_one_entry),
        TEST(sixty_four_sites_are_kept_and_the_others_counted),
        TEST_FAKES(a_million_unknown_frees_take_no_memory),
        TEST(a_reset_forgets_them),
        TEST(the_walk_stops_where_it_is_asked_to),
        TEST(the_function_may_call_the_ledger),
        TEST_FAKES(threads_that_make_one_mistake_share_its_entry),
        TEST_FAKES(each_is_logged_once),
        TEST_FAKES(a_refusal_is_logged_once_a_site),
        TEST(a_logger_that_makes_mistakes_is_not_called_from_within),
        TEST(a_call_on_another_ledger_leaves_a_mistake_to_be_told),
        cmocka_unit_test(a_call_within_the_allocator_makes_no_mistake_and_moves_none),
        TEST_FAKES(a_logger_may_free_and_allocate_while_there_is_no_memory),
        TEST_FAKES(a_later_logger_hears_of_earlier_mistakes),
        TEST(a_block_leaked_at_destroy_is_a_warning),
        TEST(reports_list_what_lost_bytes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
