/* An allocator that fails call N, for every N until nothing fails any more, once and from N
   on, under a script that uses the whole library: results as documented, books exact, the
   next call works, nothing leaks. */
#include "support.h"

#include <unistd.h>

#include "json.h"

#define BLOCKS 24000 /* at most; the script is run short and long */
#define DEVICES 20

typedef struct script {
    test_heap heap;
    memlord *lord;
    uint64_t n;              /* blocks of this run */
    int from;                /* every call from N on fails, not only N */
    uint64_t bytes[BLOCKS];  /* 0: not live */
    uint64_t live, live_blocks;
    uint64_t dropped;        /* blocks the ledger said it dropped */
    int lost[BLOCKS];        /* 1: the latest alloc of it was one of those */
} script;

static uint64_t key_of(uint64_t i) { return 0x10000 + i * 0x1fff1; }
static memlord_device device_of(uint64_t i) { return cuda((int)(i % DEVICES)); }

/* Went well; or not, for want of memory and nothing else. */
static int went(const script *s, memlord_result r) {
    if (r == MEMLORD_OK) return 1;
    assert_int_equal(r, MEMLORD_E_NOMEM);
    assert_true(s->heap.failed > 0);
    return 0;
}

/* Where one call alone fails, the same call works the next time. */
#define CALL(s, call) (went(s, call) || (!(s)->from && (assert_ok(call), 1)))

static void assert_exact(const script *s) {
    assert_int_equal(memlord_allocated(s->lord, all()), s->live);
}

static void opened(script *s, uint64_t i, uint64_t bytes) {
    s->bytes[i] = bytes;
    s->lost[i] = 0;
    s->live += bytes;
    s->live_blocks++;
}

static void lost(script *s, uint64_t i) {
    s->dropped++;
    s->lost[i] = 1;
}

static void closed(script *s, uint64_t i) {
    s->live -= s->bytes[i];
    s->live_blocks--;
    s->bytes[i] = 0;
}

static void open_one(script *s, uint64_t i) {
    static memlord_site sites[60];
    memlord_site *site = &sites[i % 60];
    char tag[32];
    int tagged;
    snprintf(tag, sizeof tag, "tag %d", (int)(i % 50));
    site->file = "nomem.c";
    site->function = "open_one";
    site->line = (int)(i % 60) + 1;
    tagged = CALL(s, memlord_tag_begin(s->lord, tag));
    (void)memlord_stream_set(s->lord, i % 7); /* without memory the block has none */
    if (CALL(s, memlord_alloc(s->lord, device_of(i), key_of(i), i + 1, site)))
        opened(s, i, i + 1);
    else
        lost(s, i);
    (void)memlord_stream_set(s->lord, 0);
    if (tagged) assert_ok(memlord_tag_end(s->lord));
    assert_exact(s);
}

static void open_many(script *s, uint64_t i) {
    memlord_block blocks[4];
    uint64_t k;
    int ok;
    for (k = 0; k < 4; k++) {
        blocks[k].device = device_of(i + k);
        blocks[k].storage = key_of(i + k);
        blocks[k].bytes = i + k + 1;
    }
    ok = i % 8 ? CALL(s, memlord_alloc_n(s->lord, blocks, 4, NULL))
               : CALL(s, memlord_track_n(s->lord, blocks, 4, NULL));
    for (k = 0; ok && k < 4; k++) opened(s, i + k, i + k + 1);
    assert_exact(s);
}

static void name_one(script *s, uint64_t i) {
    char name[32];
    memlord_meta meta;
    const memlord_site *site;
    memset(&meta, 0, sizeof meta);
    snprintf(name, sizeof name, "name %d", (int)i);
    meta.name = meta.dtype = name;
    if (i % 50 == 0) meta.tag = name;
    if (s->bytes[i])
        (void)CALL(s, memlord_block_describe(s->lord, device_of(i), key_of(i), &meta));
    if (i % 25 == 0) (void)CALL(s, memlord_device_label_set(s->lord, device_of(i), name));
    if (i % 25 == 0) (void)CALL(s, memlord_expect(s->lord, device_of(i), name, i));
    site = memlord_site_at(s->lord, (void *)(uintptr_t)(0x400000 + i));
    assert_non_null(site);
    if (memlord_site_address(s->lord, site)) { /* else it could not be kept */
        const memlord_function functions[] = {{{name, "inner", 1}, 1}, {{name, name, 2}, 0}};
        (void)CALL(s, memlord_site_rename(s->lord, site, name, NULL, 7));
        (void)CALL(s, memlord_site_functions_set(s->lord, site, functions, 2));
    }
    assert_exact(s);
}

static void resize_one(script *s, uint64_t i) {
    uint64_t bytes = 2 * i + 5;
    if (!s->bytes[i]) return;
    if (CALL(s, memlord_realloc(s->lord, device_of(i), key_of(i), key_of(i) + 1, bytes, NULL))) {
        closed(s, i);
        opened(s, i, bytes);
        /* Back under the key the rest of the script knows. */
        if (!CALL(s, memlord_realloc(s->lord, device_of(i), key_of(i) + 1, key_of(i), bytes,
                                     NULL))) {
            assert_ok(memlord_free(s->lord, device_of(i), key_of(i) + 1, NULL));
            closed(s, i);
        }
    }
    assert_exact(s);
}

static void resize_in_two_steps(script *s, uint64_t i) {
    memlord_realloc_token token;
    if (!s->bytes[i]) return;
    assert_ok(memlord_realloc_begin(s->lord, device_of(i), key_of(i), &token));
    assert_exact(s);
    if (i % 2) {
        assert_ok(memlord_realloc_end(s->lord, &token, 0, 0, NULL));
        assert_exact(s);
        return;
    }
    closed(s, i);
    if (went(s, memlord_realloc_end(s->lord, &token, key_of(i), 3, NULL)))
        opened(s, i, 3);
    else
        lost(s, i);
    assert_exact(s);
}

static void move_one(script *s, uint64_t i) {
    memlord_device there = memlord_device_make(MEMLORD_DEVICE_VULKAN, (int)(i % 3));
    if (!s->bytes[i]) return;
    if (CALL(s, memlord_move(s->lord, device_of(i), key_of(i), there, key_of(i), s->bytes[i],
                             NULL, NULL))) {
        assert_ok(memlord_free(s->lord, there, key_of(i), NULL));
        closed(s, i);
    }
    assert_exact(s);
}

static void retag_one(script *s, uint64_t i) {
    char name[32];
    snprintf(name, sizeof name, "retag %d", (int)(i % 40));
    if (s->bytes[i]) (void)CALL(s, memlord_block_retag(s->lord, device_of(i), key_of(i), name));
    assert_exact(s);
}

static int count_one(void *user, const memlord_block_info *info) {
    (void)info;
    ++*(uint64_t *)user;
    return 0;
}

static void read_all(script *s) {
    uint64_t n = 0;
    memlord_stats stats;
    test_text text;
    assert_ok(memlord_stats_get(s->lord, all(), &stats));
    assert_int_equal(stats.allocated, s->live);
    assert_int_equal(stats.live_blocks, s->live_blocks);
    if (went(s, memlord_blocks_each(s->lord, all(), 0, count_one, &n)))
        assert_int_equal(n, s->live_blocks);
    memset(&text, 0, sizeof text);
    if (went(s, memlord_write(s->lord, MEMLORD_FORMAT_JSON, test_text_write, &text)))
        assert_true(json_valid(text.data));
    free(text.data);
    memset(&text, 0, sizeof text);
    went(s, memlord_write(s->lord, MEMLORD_FORMAT_TEXT, test_text_write, &text));
    free(text.data);
}

static void use_all(script *s) {
    uint64_t i;
    for (i = 0; i + 4 <= s->n; i += 4) {
        if (i % 12 == 0)
            open_many(s, i);
        else {
            uint64_t k;
            for (k = 0; k < 4; k++) open_one(s, i + k);
        }
        name_one(s, i);
        if (i % 28 == 0) resize_one(s, i + 1);
        if (i % 20 == 0) resize_in_two_steps(s, i + 2);
        if (i % 40 == 0) resize_in_two_steps(s, i + 1);
        if (i % 44 == 0) move_one(s, i + 3);
        if (i % 52 == 0) retag_one(s, i);
        if (i % 100 == 0) memlord_mark(s->lord);
    }
    read_all(s);
}

/* Dropped blocks are freed by a host that does not know, and are not called unknown. */
static void free_all(script *s) {
    uint64_t i;
    for (i = 0; i < s->n; i++) {
        if (!s->bytes[i]) continue;
        assert_ok(memlord_free(s->lord, device_of(i), key_of(i), NULL));
        closed(s, i);
    }
    assert_exact(s);
    assert_int_equal(s->live, 0);
    for (i = 0; i < s->n; i++)
        if (s->lost[i]) assert_ok(memlord_free(s->lord, device_of(i), key_of(i), NULL));
    assert_int_equal(stats_of(s->lord, all()).unknown_frees, 0);
    assert_true(stats_of(s->lord, all()).dropped_allocs >= s->dropped);
}

static void works_again(script *s) {
    char *json;
    s->heap.fail_at = 0;
    assert_ok(memlord_tag_begin(s->lord, "afterwards"));
    assert_ok(memlord_alloc(s->lord, cpu(), 0x77, 11, NULL));
    assert_ok(memlord_tag_end(s->lord));
    assert_int_equal(memlord_allocated(s->lord, cpu()), 11);
    json = report_of(s->lord, MEMLORD_FORMAT_JSON);
    assert_true(json_valid(json));
    free(json);
    assert_ok(memlord_free(s->lord, cpu(), 0x77, NULL));
}

/* What is gone was taken off its tag and its site too, whoever had no memory to count there. */
static void assert_none_holds(const script *s) {
    memlord_site_stat rows[8];
    memlord_tag_stat stat;
    char tag[32];
    int i;
    for (i = 0; i < 50; i++) {
        snprintf(tag, sizeof tag, "tag %d", i);
        if (memlord_tag_get(s->lord, all(), tag, &stat) == MEMLORD_OK)
            assert_int_equal(stat.allocated + stat.blocks, 0);
    }
    assert_int_equal(memlord_sites_top(s->lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, rows, 8), 0);
}

/* Answers whether anything failed. */
static int run(uint64_t blocks, uint64_t n, int from) {
    static script s;
    memlord_desc desc;
    int failed;
    memset(&s, 0, sizeof s);
    s.n = blocks;
    s.heap.fail_at = n;
    s.heap.fail_from = s.from = from;
    desc = test_desc(&s.heap, MEMLORD_FLAG_SITES);
    if (went(&s, memlord_create(&desc, &s.lord))) {
        use_all(&s);
        assert_int_not_equal(memlord_verify(s.lord), MEMLORD_E_STATE);
        free_all(&s);
        assert_none_holds(&s);
        works_again(&s);
        assert_ok(memlord_verify(s.lord));
        memlord_destroy(s.lord);
    } else {
        assert_null(s.lord);
    }
    failed = s.heap.failed > 0;
    if (s.heap.blocks || s.heap.bytes || s.heap.bad_frees)
        fail_msg("call %d: %d blocks left, %d bad frees", (int)n, (int)s.heap.blocks,
                 (int)s.heap.bad_frees);
    return failed;
}

static void run_every(int from) {
    static const uint64_t lengths[] = {40, 400, 4000, BLOCKS};
    uint64_t tried = 0;
    size_t i, most = TEST_SANITIZED ? 3 : 4; /* the longest takes minutes there */
    if (test_env("MEMLORD_TEST_SCALE", 4) == 1) most = 2;
    for (i = 0; i < most; i++) {
        uint64_t n, step = lengths[i] == BLOCKS && !getenv("MEMLORD_TEST_ALL") ? 4 : 1;
        for (n = 1; run(lengths[i], n, from); n += step) tried++;
        assert_true(n > 2);
    }
    print_message("%d allocations were made to fail\n", (int)tried);
}

static void any_one_allocation_may_fail(void **state) {
    (void)state;
    run_every(0);
}

static void all_from_any_one_on_may_fail(void **state) {
    (void)state;
    run_every(1);
}

static void the_script_alone_passes(void **state) {
    (void)state;
    assert_int_equal(run(BLOCKS, 0, 0), 0);
}

static void a_dropped_block_is_counted_with_its_bytes(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t i, dropped = 0, bytes = 0, kept = 0;
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    for (i = 1; i <= 100000; i++) {
        memlord_result r = memlord_alloc(t->lord, cpu(), i * 64, i, NULL);
        if (r == MEMLORD_OK) {
            kept += i;
            continue;
        }
        assert_int_equal(r, MEMLORD_E_NOMEM);
        dropped++;
        bytes += i;
    }
    t->heap.fail_at = 0;
    assert_true(dropped > 0);
    assert_int_equal(stats_of(t->lord, cpu()).dropped_allocs, dropped);
    assert_int_equal(stats_of(t->lord, cpu()).dropped_bytes, bytes);
    assert_int_equal(memlord_allocated(t->lord, cpu()), kept);
    for (i = 1; i <= 100000; i++) memlord_free(t->lord, cpu(), i * 64, NULL);
    assert_int_equal(memlord_allocated(t->lord, cpu()), 0);
    assert_int_equal(stats_of(t->lord, cpu()).unknown_frees, 0);
    assert_int_equal(memlord_free(t->lord, cpu(), 64, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(t->lord, cpu()).unknown_frees, 1);
}

static void every_report_with_a_place_for_them_shows_the_drops(void **state) {
    static const memlord_format formats[] = {MEMLORD_FORMAT_TEXT, MEMLORD_FORMAT_JSON,
                                             MEMLORD_FORMAT_PROMETHEUS};
    test_case *t = (test_case *)*state;
    size_t format;
    uint64_t i;
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    for (i = 1; i <= 100000; i++) memlord_alloc(t->lord, cpu(), i * 64, i, NULL);
    t->heap.fail_at = 0;
    for (format = 0; format < sizeof formats / sizeof *formats; format++) {
        char *report = report_of(t->lord, formats[format]);
        assert_non_null(strstr(report, "dropped"));
        free(report);
    }
}

/* -- what comes and goes leaves no memory behind -- */

enum { ROUNDS = 1000 }; /* a piece of 128 bytes that each leaves shows after 256 */
#define PLACE 0x7000000

static void a_block(memlord *lord) { assert_ok(memlord_alloc(lord, cuda(0), PLACE, 1000, NULL)); }
static void no_block(memlord *lord) { assert_ok(memlord_free(lord, cuda(0), PLACE, NULL)); }
static void with_parts(memlord *lord, uint64_t n) {
    uint64_t i;
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    meta.name = "layer";
    a_block(lord);
    for (i = 0; i < n; i++)
        assert_ok(memlord_part_add(lord, cuda(0), PLACE, i * 10, 10, i % 2 ? &meta : NULL));
}

static void parts_removed_one_by_one(memlord *lord) {
    uint64_t i;
    with_parts(lord, 20);
    for (i = 0; i < 20; i++) assert_ok(memlord_part_remove(lord, cuda(0), PLACE, i * 10));
    assert_int_equal(memlord_part_remove(lord, cuda(0), PLACE, 0), MEMLORD_E_UNKNOWN);
    no_block(lord);
}
static void parts_that_go_with_their_block(memlord *lord) {
    with_parts(lord, 9);
    no_block(lord);
}
static void parts_refused(memlord *lord) {
    with_parts(lord, 3);
    assert_int_equal(memlord_part_add(lord, cuda(0), PLACE, 5, 1, NULL), MEMLORD_E_STATE);
    assert_int_equal(memlord_part_add(lord, cuda(0), PLACE, 991, 10, NULL), MEMLORD_E_INVALID);
    no_block(lord);
    assert_int_equal(memlord_part_add(lord, cuda(0), PLACE, 0, 1, NULL), MEMLORD_E_UNKNOWN);
}
static void parts_cut_off_by_a_realloc(memlord *lord) {
    with_parts(lord, 20);
    assert_ok(memlord_realloc(lord, cuda(0), PLACE, PLACE, 95, NULL));
    no_block(lord);
}
static void parts_moved(memlord *lord) {
    with_parts(lord, 20);
    assert_ok(memlord_move(lord, cuda(0), PLACE, cuda(1), PLACE, 95, NULL, NULL));
    assert_ok(memlord_free(lord, cuda(1), PLACE, NULL));
}
static void views_that_need_a_record(memlord *lord) {
    int i;
    a_block(lord);
    for (i = 0; i < 70; i++) assert_ok(memlord_retain(lord, cuda(0), PLACE, NULL));
    for (i = 0; i < 71; i++) assert_ok(memlord_release(lord, cuda(0), PLACE, NULL));
}
static void descriptions(memlord *lord) {
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    meta.name = "layer";
    a_block(lord);
    assert_ok(memlord_block_describe(lord, cuda(0), PLACE, &meta));
    assert_ok(memlord_alloc(lord, cuda(0), PLACE, 7, NULL)); /* over it */
    no_block(lord);
    assert_int_equal(memlord_block_describe(lord, cuda(0), PLACE, &meta), MEMLORD_E_UNKNOWN);
}
static int is_done(void *user) {
    (void)user;
    return 1;
}
static void fences(memlord *lord) {
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    fence.done = is_done;
    a_block(lord);
    assert_ok(memlord_block_use(lord, cuda(0), PLACE, fence));
    fence.queue = 1;
    assert_ok(memlord_block_use(lord, cuda(0), PLACE, fence));
    assert_ok(memlord_free_deferred(lord, cuda(0), PLACE, fence, NULL));
    a_block(lord);
    assert_ok(memlord_move(lord, cuda(0), PLACE, cuda(1), PLACE, 95, &fence, NULL));
    assert_ok(memlord_free_deferred(lord, cuda(1), PLACE, fence, NULL));
    assert_int_equal(memlord_block_use(lord, cuda(1), PLACE, fence), MEMLORD_E_UNKNOWN);
}
static void accounts_and_tickets(memlord *lord) {
    memlord_account account;
    memlord_ticket ticket;
    assert_ok(memlord_account_open(lord, cuda(0), "request", 0, &account));
    assert_ok(memlord_account_use(lord, account));
    assert_ok(memlord_reserve(lord, cuda(0), 2000, &ticket));
    a_block(lord);
    assert_ok(memlord_alloc_reserved(lord, ticket, cuda(0), PLACE + 64, 10, NULL));
    assert_ok(memlord_account_use(lord, 0));
    assert_ok(memlord_realloc(lord, cuda(0), PLACE, PLACE, 95, NULL));
    assert_ok(memlord_free(lord, cuda(0), PLACE + 64, NULL));
    no_block(lord);
    assert_ok(memlord_reserve_commit(lord, ticket));
    assert_ok(memlord_account_close(lord, account));
}
static void scopes_and_tags(memlord *lord) {
    memlord_scope_stat stat;
    assert_ok(memlord_scope_begin(lord, "outer"));
    assert_ok(memlord_scope_begin(lord, "inner"));
    assert_ok(memlord_tag_begin(lord, "tag"));
    a_block(lord);
    assert_ok(memlord_block_retag(lord, cuda(0), PLACE, "another"));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_get(lord, "outer/inner", &stat));
    no_block(lord);
}
static memlord_gc_result nothing_to_give(void *user, memlord *lord, const memlord_gc_event *event) {
    const memlord_gc_result result = {1, 0, 0};
    (void)user, (void)lord, (void)event;
    return result;
}
static void strategies_and_callbacks(memlord *lord) {
    const memlord_band bands[2] = {band_of(0, 50, MEMLORD_METRIC_FREED, 500, 0),
                                   band_of(50, 101, MEMLORD_METRIC_ALLOCATED, 10, 5)};
    assert_ok(memlord_gc_callback_add(lord, cuda(0), 0, nothing_to_give, NULL));
    assert_ok(memlord_strategy_set(lord, cuda(0), bands, 2));
    assert_ok(memlord_strategy_set(lord, cuda(0), bands, 1));
    assert_ok(memlord_strategy_set(lord, all(), NULL, 0));
    a_block(lord);
    no_block(lord);
    assert_ok(memlord_strategy_unset(lord, cuda(0)));
    assert_ok(memlord_strategy_unset(lord, all()));
    assert_ok(memlord_gc_callback_remove(lord, cuda(0), nothing_to_give, NULL));
}
static int stop_at_once(void *user, const memlord_block_info *info) {
    (void)user, (void)info;
    return 1;
}
static int go_on(void *user, const memlord_event *event) {
    (void)user, (void)event;
    return 0;
}
static void readers(memlord *lord) {
    char text[500];
    memlord_site_stat sites[4];
    a_block(lord);
    assert_ok(memlord_blocks_each(lord, all(), 0, stop_at_once, NULL));
    assert_int_equal(memlord_leaks(lord, 0, stop_at_once, NULL), 1);
    assert_ok(memlord_events_each(lord, go_on, NULL));
    assert_true(memlord_summary(lord, text, sizeof text) > 0);
    assert_true(memlord_explain(lord, cuda(0), 1, text, sizeof text) > 0);
    (void)memlord_sites_top(lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, sites, 4);
    assert_ok(memlord_verify(lord));
    no_block(lord);
}
static void resets(memlord *lord) {
    a_block(lord);
    memlord_peak_reset(lord, all());
    no_block(lord);
    memlord_reset(lord);
}

static void what_comes_and_goes_leaves_no_memory_behind(void **state) {
    static void (*const each[])(memlord *lord) = {
        parts_removed_one_by_one, parts_that_go_with_their_block, parts_refused,
        parts_cut_off_by_a_realloc, parts_moved, views_that_need_a_record, descriptions, fences,
        accounts_and_tickets, scopes_and_tags, strategies_and_callbacks, readers, resets};
    test_case *t = (test_case *)*state;
    size_t i, k;
    assert_ok(memlord_events_start(t->lord, 100));
    for (i = 0; i < sizeof each / sizeof *each; i++) {
        uint64_t bytes = 0;
        for (k = 0; k < ROUNDS; k++) {
            each[i](t->lord);
            if (k == 20) bytes = t->heap.bytes;
        }
        if (t->heap.bytes > bytes)
            fail_msg("number %d leaves %llu bytes behind", (int)i,
                     (unsigned long long)(t->heap.bytes - bytes));
    }
}

static int no_part(void *user, const memlord_part_info *info) {
    (void)user, (void)info;
    return 0;
}

/* Whatever of the map has no room left for one more. */
static void what_is_dead_is_looked_up_without_memory(void **state) {
    test_case *t = (test_case *)*state;
    memlord *lord = t->lord;
    memlord_meta meta;
    memlord_fence fence;
    memlord_block_info info;
    uint64_t i, dropped = 0;
    memset(&meta, 0, sizeof meta);
    memset(&fence, 0, sizeof fence);
    fence.done = is_done;
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    for (i = 1; dropped < 20000; i++)
        dropped += memlord_alloc(lord, cuda(0), i << 20, 1, NULL) == MEMLORD_E_NOMEM;
    for (; i < 40000; i++) {
        assert_int_equal(memlord_retain(lord, cuda(0), i << 20, NULL), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_part_remove(lord, cuda(0), i << 20, 0), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_parts_each(lord, cuda(0), i << 20, no_part, NULL), 0);
        assert_int_equal(memlord_block_describe(lord, cuda(0), i << 20, &meta), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_block_find(lord, cuda(0), i << 20, &info), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_free_done(lord, cuda(0), i << 20), MEMLORD_E_UNKNOWN);
    }
    t->heap.fail_at = 0;
    assert_int_equal(stats_of(lord, cuda(0)).dropped_allocs, dropped);
    assert_int_equal(stats_of(lord, cuda(0)).live_blocks, stats_of(lord, cuda(0)).allocs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_script_alone_passes),
        cmocka_unit_test(any_one_allocation_may_fail),
        cmocka_unit_test(all_from_any_one_on_may_fail),
        TEST(a_dropped_block_is_counted_with_its_bytes),
        TEST(every_report_with_a_place_for_them_shows_the_drops),
        TEST_SITES(what_comes_and_goes_leaves_no_memory_behind),
        TEST(what_is_dead_is_looked_up_without_memory),
    };
    return cmocka_run_group_tests_name("nomem", tests, NULL, NULL);
}
