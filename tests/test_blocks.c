/* Blocks and leaks: what is alive, what it is, since when. */
#include "support.h"

#include "json.h"

typedef struct seen {
    memlord *lord;
    size_t n;
    size_t stop_at; /* 0: never */
    uint64_t bytes;
    uint64_t keys; /* their exclusive or */
} seen;

static int note(void *user, const memlord_block_info *info) {
    seen *s = (seen *)user;
    s->n++;
    s->bytes += info->bytes;
    s->keys ^= info->storage;
    return s->stop_at && s->n == s->stop_at;
}

static seen walk(memlord *lord, memlord_device sel, uint64_t min_bytes) {
    seen s;
    memset(&s, 0, sizeof s);
    assert_ok(memlord_blocks_each(lord, sel, min_bytes, note, &s));
    return s;
}

static void open_ten(memlord *lord) {
    uint64_t i;
    for (i = 1; i <= 10; i++)
        assert_ok(memlord_alloc(lord, cuda((int)(i % 2)), i * 0x1000, i * 10, NULL));
}

static void every_live_block_is_shown_once(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i, keys = 0, n = 20000;
    for (i = 1; i <= n; i++) {
        assert_ok(memlord_alloc(lord, cpu(), i * 48, 3, NULL));
        keys ^= i * 48;
    }
    assert_int_equal(walk(lord, all(), 0).n, n);
    assert_int_equal(walk(lord, all(), 0).bytes, 3 * n);
    assert_int_equal(walk(lord, all(), 0).keys, keys);
}

static void the_dead_are_not(void **state) {
    memlord *lord = test_lord(state);
    open_ten(lord);
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    assert_int_equal(walk(lord, all(), 0).n, 9);
    assert_int_equal(walk(lord, all(), 0).bytes, 530);
}

static void a_selector_and_a_size_choose(void **state) {
    memlord *lord = test_lord(state);
    open_ten(lord);
    assert_int_equal(walk(lord, cuda(1), 0).n, 5);
    assert_int_equal(walk(lord, cuda(MEMLORD_ANY), 0).n, 10);
    assert_int_equal(walk(lord, cpu(), 0).n, 0);
    assert_int_equal(walk(lord, all(), 51).n, 5);
    assert_int_equal(walk(lord, all(), 100).n, 1);
    assert_int_equal(walk(lord, all(), 101).n, 0);
}

static void a_callback_that_answers_non_zero_stops(void **state) {
    memlord *lord = test_lord(state);
    seen s;
    open_ten(lord);
    memset(&s, 0, sizeof s);
    s.stop_at = 3;
    assert_ok(memlord_blocks_each(lord, all(), 0, note, &s));
    assert_int_equal(s.n, 3);
}

static int free_and_report(void *user, const memlord_block_info *info) {
    seen *s = (seen *)user;
    test_text text;
    memset(&text, 0, sizeof text);
    s->n++;
    if (memlord_free(s->lord, info->device, info->storage, NULL) != MEMLORD_OK) return 1;
    if (memlord_alloc(s->lord, cuda(7), info->storage + 1, info->bytes, NULL) != MEMLORD_OK)
        return 1;
    if (memlord_write(s->lord, MEMLORD_FORMAT_TEXT, test_text_write, &text) != MEMLORD_OK)
        return 1;
    free(text.data);
    return 0;
}

static void a_callback_may_call_the_ledger(void **state) {
    memlord *lord = test_lord(state);
    seen s;
    memset(&s, 0, sizeof s);
    s.lord = lord;
    open_ten(lord);
    assert_ok(memlord_blocks_each(lord, cuda(0), 0, free_and_report, &s));
    assert_int_equal(s.n, 5);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_allocated(lord, cuda(7)), 300);
}

/* A walk lists a crowd in parts of some 4,096 blocks. */
typedef struct walker {
    uint64_t n, most; /* blocks seen; it stops at so many */
    uint64_t bytes;
} walker;
static int walk_to(void *user, const memlord_block_info *info) {
    walker *w = (walker *)user;
    w->bytes += info->bytes;
    return ++w->n == w->most;
}
static void a_walk_of_a_crowd_stops_in_any_of_its_parts(void **state) {
    enum { CROWD = 10000 };
    static const uint64_t stops[] = {1, 4000, 5000, 9999, CROWD};
    test_case *t = (test_case *)*state;
    walker w;
    uint64_t i;
    for (i = 0; i < CROWD; i++)
        assert_ok(memlord_alloc(t->lord, cuda(0), 0x40000000 + i * 64, 3, NULL));
    for (i = 0; i < sizeof stops / sizeof *stops; i++) {
        memset(&w, 0, sizeof w);
        w.most = stops[i];
        assert_ok(memlord_blocks_each(t->lord, cuda(0), 0, walk_to, &w));
        assert_int_equal(w.n, stops[i]);
        assert_int_equal(w.bytes, 3 * stops[i]);
    }
    memset(&w, 0, sizeof w);
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    assert_int_equal(memlord_blocks_each(t->lord, cuda(0), 0, walk_to, &w), MEMLORD_E_NOMEM);
    t->heap.fail_at = 0;
    assert_true(w.n < CROWD);
}

static void a_bad_walk_is_refused(void **state) {
    memlord *lord = test_lord(state);
    seen s;
    memset(&s, 0, sizeof s);
    assert_int_equal(memlord_blocks_each(lord, all(), 0, NULL, NULL), MEMLORD_E_INVALID);
    assert_int_equal(
        memlord_blocks_each(lord, memlord_device_make(99, 0), 0, note, &s), MEMLORD_E_DEVICE);
    assert_int_equal(s.n, 0);
}

static void a_block_shows_all_it_carries(void **state) {
    memlord *lord = test_lord(state);
    static const memlord_site site = {"a.c", "f", 3};
    memlord_block_info info;
    uint64_t mark = memlord_mark(lord);
    assert_ok(memlord_tag_begin(lord, "kv"));
    assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 100, &site));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_retain(lord, cuda(1), 0x1000, NULL));
    memset(&info, 0xee, sizeof info);
    assert_ok(memlord_block_find(lord, cuda(0), 0x1000, &info));
    assert_int_equal(info.device.type, MEMLORD_DEVICE_CUDA);
    assert_int_equal(info.device.index, 1);
    assert_int_equal(info.storage, 0x1000);
    assert_int_equal(info.bytes, 100);
    assert_int_equal(info.refs, 2);
    assert_string_equal(info.tag, "kv");
    assert_null(info.scope);
    assert_int_equal(info.born, mark);
    assert_null(info.meta.name);
    assert_int_equal(info.meta.rank, 0);
    assert_int_equal(info.pending, 0);
}

/* -- streams -- */

static uint64_t stream_of(memlord *lord, memlord_device device, uint64_t storage) {
    memlord_block_info info;
    assert_ok(memlord_block_find(lord, device, storage, &info));
    return info.stream;
}

#define STREAM UINT64_C(0x7fff12345678abcd)

static void a_block_remembers_its_stream_beside_its_tag(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    assert_ok(memlord_tag_begin(lord, "kv"));
    assert_int_equal(memlord_stream_set(lord, STREAM), 0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_int_equal(memlord_stream_set(lord, 7), STREAM);
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 100, NULL));
    assert_int_equal(memlord_stream_set(lord, 0), 7);
    assert_ok(memlord_alloc(lord, cuda(0), 0x3000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_block_find(lord, cuda(0), 0x1000, &info));
    assert_int_equal(info.stream, STREAM);
    assert_string_equal(info.tag, "kv");
    assert_int_equal(stream_of(lord, cuda(0), 0x2000), 7);
    assert_int_equal(stream_of(lord, cuda(0), 0x3000), 0);
}

static void every_way_to_allocate_has_the_stream(void **state) {
    memlord *lord = test_lord(state);
    memlord_block some[2];
    uint64_t i;
    memset(some, 0, sizeof some);
    for (i = 0; i < 2; i++) {
        some[i].device = cuda(0);
        some[i].storage = 0x9000 + i * 0x1000;
        some[i].bytes = 8;
    }
    (void)memlord_stream_set(lord, STREAM);
    for (i = 1; i <= 3; i++) /* the later ones take the fast path */
        assert_ok(memlord_alloc(lord, cpu(), i << 24, 100, NULL));
    assert_ok(memlord_track(lord, cuda(0), 0x8000, 8, NULL));
    assert_ok(memlord_alloc_n(lord, some, 2, NULL));
    (void)memlord_stream_set(lord, 0);
    for (i = 1; i <= 3; i++) assert_int_equal(stream_of(lord, cpu(), i << 24), STREAM);
    for (i = 0; i < 3; i++) assert_int_equal(stream_of(lord, cuda(0), 0x8000 + i * 0x1000), STREAM);
}

static void realloc_move_and_retag_keep_the_stream(void **state) {
    memlord *lord = test_lord(state);
    (void)memlord_stream_set(lord, STREAM);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    (void)memlord_stream_set(lord, 7);
    assert_ok(memlord_realloc(lord, cuda(0), 0x1000, 0x2000, 200, NULL));
    assert_int_equal(stream_of(lord, cuda(0), 0x2000), STREAM);
    assert_ok(memlord_block_retag(lord, cuda(0), 0x2000, "kv"));
    assert_ok(memlord_move(lord, cuda(0), 0x2000, cuda(1), 0x3000, 200, NULL, NULL));
    assert_int_equal(stream_of(lord, cuda(1), 0x3000), STREAM);
}

static void a_stream_ends_with_its_block(void **state) {
    memlord *lord = test_lord(state);
    (void)memlord_stream_set(lord, STREAM);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    (void)memlord_stream_set(lord, 0);
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_int_equal(stream_of(lord, cuda(0), 0x1000), 0);
}

static void streams_scopes_and_marks_are_told_apart(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    uint64_t mark, key, stream;
    for (mark = 0; mark < 3; mark++, (void)memlord_mark(lord))
        for (stream = 0; stream < 40; stream++) {
            (void)memlord_stream_set(lord, stream);
            key = 0x100000 + mark * 0x10000 + stream * 0x100;
            assert_ok(memlord_alloc(lord, cuda(0), key, 10, NULL));
            assert_ok(memlord_scope_begin(lord, stream % 2 ? "odd" : "even"));
            assert_ok(memlord_alloc(lord, cuda(0), key + 1, 10, NULL));
            assert_ok(memlord_scope_end(lord));
        }
    for (mark = 0; mark < 3; mark++)
        for (stream = 0; stream < 40; stream++) {
            key = 0x100000 + mark * 0x10000 + stream * 0x100;
            assert_ok(memlord_block_find(lord, cuda(0), key, &info));
            assert_int_equal(info.stream, stream);
            assert_int_equal(info.born, mark);
            assert_null(info.scope);
            assert_ok(memlord_block_find(lord, cuda(0), key + 1, &info));
            assert_int_equal(info.stream, stream);
            assert_int_equal(info.born, mark);
            assert_string_equal(info.scope, stream % 2 ? "odd" : "even");
        }
    assert_ok(memlord_verify(lord));
}

static void *alloc_without_a_stream(void *user) {
    memlord *lord = (memlord *)user;
    assert_int_equal(memlord_stream_set(lord, 9), 0);
    assert_int_equal(memlord_stream_set(lord, 0), 9);
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 100, NULL));
    (void)memlord_stream_set(lord, 9); /* and exits with it */
    return NULL;
}
static void a_stream_is_of_its_thread(void **state) {
    memlord *lord = test_lord(state);
    pthread_t other;
    int i;
    (void)memlord_stream_set(lord, STREAM);
    for (i = 0; i < 2; i++) { /* the second one uses the record of the first */
        assert_int_equal(pthread_create(&other, NULL, alloc_without_a_stream, lord), 0);
        assert_int_equal(pthread_join(other, NULL), 0);
        assert_int_equal(stream_of(lord, cuda(0), 0x2000), 0);
    }
    assert_ok(memlord_alloc(lord, cuda(0), 0x3000, 100, NULL));
    assert_int_equal(stream_of(lord, cuda(0), 0x3000), STREAM);
}

static void no_ledger_has_no_stream(void **state) {
    (void)state;
    assert_int_equal(memlord_stream_set(NULL, 5), 0);
    assert_int_equal(memlord_stream_set(NULL, 0), 0);
}

/* Each mark and stream is a birth of its own; past the last one blocks go without. */
static void streams_past_the_last_birth_are_counted(void **state) {
    TEST_ONE_THREAD();
    memlord *lord = test_lord(state);
    char *json;
    uint64_t stream;
    for (stream = 1; stream <= (1u << 20) + 2; stream++) {
        (void)memlord_stream_set(lord, stream);
        assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 10, NULL));
        assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    }
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 10, NULL));
    assert_int_equal(stream_of(lord, cuda(0), 0x1000), 0);
    (void)memlord_stream_set(lord, 5); /* one that is known */
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 10, NULL));
    assert_int_equal(stream_of(lord, cuda(0), 0x2000), 5);
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(json, "metadata.dropped.scopes"), 3);
    free(json);
    assert_ok(memlord_verify(lord));
}

static void the_dead_are_not_found(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    assert_int_equal(memlord_block_find(lord, cpu(), 0x1000, &info), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(memlord_block_find(lord, cuda(0), 0x1000, &info), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_block_find(lord, cpu(), 0x1000, &info), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_block_find(lord, cpu(), 0x1000, NULL), MEMLORD_E_INVALID);
}

static void the_largest_come_first(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info top[16];
    uint64_t i;
    for (i = 0; i < 500; i++)
        assert_ok(memlord_alloc(lord, cpu(), (i + 1) * 64, (i * 211) % 500, NULL));
    assert_int_equal(memlord_blocks_top(lord, all(), top, 16), 16);
    for (i = 0; i < 16; i++) {
        assert_int_equal(top[i].bytes, 499 - i);
        assert_int_equal(((top[i].storage / 64 - 1) * 211) % 500, 499 - i);
    }
}

static void fewer_blocks_than_asked_for_is_fine(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info top[16];
    open_ten(lord);
    assert_int_equal(memlord_blocks_top(lord, cuda(1), top, 16), 5);
    assert_int_equal(top[0].bytes, 90);
    assert_int_equal(top[4].bytes, 10);
    assert_int_equal(memlord_blocks_top(lord, cpu(), top, 16), 0);
    assert_int_equal(memlord_blocks_top(lord, all(), top, 0), 0);
    assert_int_equal(memlord_blocks_top(lord, all(), NULL, 0), 0);
    assert_int_equal(memlord_blocks_top(lord, all(), NULL, 16), 0);
}

static void listing_the_largest_allocates_nothing(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block_info top[4];
    uint64_t calls;
    open_ten(t->lord);
    calls = t->heap.calls;
    assert_int_equal(memlord_blocks_top(t->lord, all(), top, 4), 4);
    assert_int_equal(t->heap.calls, calls);
}

static void an_address_inside_finds_its_block(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    assert_ok(memlord_alloc(lord, cpu(), 0x100000, 0x1000, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x101000, 0x10, NULL));
    assert_ok(memlord_block_containing(lord, cpu(), 0x100000, &info));
    assert_int_equal(info.storage, 0x100000);
    assert_ok(memlord_block_containing(lord, cpu(), 0x100fff, &info));
    assert_int_equal(info.storage, 0x100000);
    assert_ok(memlord_block_containing(lord, cpu(), 0x101000, &info));
    assert_int_equal(info.storage, 0x101000);
    assert_int_equal(memlord_block_containing(lord, cpu(), 0x101010, &info), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_block_containing(lord, cpu(), 0xfffff, &info), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_block_containing(lord, cuda(0), 0x100000, &info),
                     MEMLORD_E_UNKNOWN);
}

static void a_block_at_the_end_of_the_address_space_does_not_wrap(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    assert_ok(memlord_alloc(lord, cpu(), UINT64_MAX - 15, 0x1000, NULL));
    assert_ok(memlord_block_containing(lord, cpu(), UINT64_MAX - 1, &info));
    assert_int_equal(memlord_block_containing(lord, cpu(), 0x10, &info), MEMLORD_E_UNKNOWN);
}

static void a_description_is_copied(void **state) {
    memlord *lord = test_lord(state);
    char name[] = "blk.0.attn_q.weight", dtype[] = "f16";
    memlord_meta meta;
    memlord_block_info info;
    memset(&meta, 0, sizeof meta);
    meta.name = name;
    meta.dtype = dtype;
    meta.rank = 8;
    meta.shape[0] = -1;
    meta.shape[7] = INT64_MAX;
    meta.flags = 0xdeadbeef;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_block_describe(lord, cpu(), 0x1000, &meta));
    memset(name, '?', sizeof name - 1);
    memset(dtype, '?', sizeof dtype - 1);
    assert_ok(memlord_block_find(lord, cpu(), 0x1000, &info));
    assert_string_equal(info.meta.name, "blk.0.attn_q.weight");
    assert_string_equal(info.meta.dtype, "f16");
    assert_int_equal(info.meta.rank, 8);
    assert_true(info.meta.shape[0] == -1);
    assert_true(info.meta.shape[7] == INT64_MAX);
    assert_int_equal(info.meta.flags, 0xdeadbeef);
}

static void a_new_description_replaces_the_old(void **state) {
    memlord *lord = test_lord(state);
    memlord_meta meta;
    memlord_block_info info;
    memset(&meta, 0, sizeof meta);
    meta.name = "first";
    meta.dtype = "f16";
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_block_describe(lord, cpu(), 0x1000, &meta));
    meta.name = "second";
    meta.dtype = NULL;
    assert_ok(memlord_block_describe(lord, cpu(), 0x1000, &meta));
    assert_ok(memlord_block_find(lord, cpu(), 0x1000, &info));
    assert_string_equal(info.meta.name, "second");
    assert_null(info.meta.dtype);
}

static void a_description_ends_with_its_block(void **state) {
    memlord *lord = test_lord(state);
    memlord_meta meta;
    memlord_block_info info;
    memset(&meta, 0, sizeof meta);
    meta.name = "old";
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_block_describe(lord, cpu(), 0x1000, &meta));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 50, NULL));
    assert_ok(memlord_block_find(lord, cpu(), 0x1000, &info));
    assert_null(info.meta.name);
}

static void descriptions_do_not_pile_up(void **state) {
    test_case *t = (test_case *)*state;
    memlord_meta meta;
    uint64_t i, bytes = 0;
    memset(&meta, 0, sizeof meta);
    meta.name = "the same name";
    for (i = 0; i < 20000; i++) {
        assert_ok(memlord_alloc(t->lord, cpu(), 0x1000, 100, NULL));
        assert_ok(memlord_block_describe(t->lord, cpu(), 0x1000, &meta));
        assert_ok(memlord_free(t->lord, cpu(), 0x1000, NULL));
        if (i == 100) bytes = t->heap.bytes;
    }
    assert_true(t->heap.bytes <= bytes + 4096);
}

static int fence_not_done(void *user) {
    (void)user;
    return 0;
}
static void a_pending_block_takes_no_description_and_no_tag(void **state) {
    memlord *lord = test_lord(state);
    memlord_meta meta;
    memlord_block_info info;
    memlord_fence fence = {fence_not_done, NULL, 0, NULL};
    memset(&meta, 0, sizeof meta);
    meta.name = "late";
    assert_ok(memlord_alloc(lord, cpu(), 0x10, 100, NULL));
    assert_ok(memlord_free_deferred(lord, cpu(), 0x10, fence, NULL));
    assert_int_equal(memlord_block_describe(lord, cpu(), 0x10, &meta), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_block_retag(lord, cpu(), 0x10, "late"), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_block_find(lord, cpu(), 0x10, &info));
    assert_null(info.meta.name);
    assert_null(info.tag);
}

static void a_description_can_retag(void **state) {
    memlord *lord = test_lord(state);
    memlord_meta meta;
    memlord_tag_stat tag;
    memset(&meta, 0, sizeof meta);
    meta.tag = "weights";
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_block_describe(lord, cpu(), 0x1000, &meta));
    assert_ok(memlord_tag_get(lord, cpu(), "weights", &tag));
    assert_int_equal(tag.allocated, 100);
    assert_ok(memlord_tag_get(lord, cpu(), NULL, &tag));
    assert_int_equal(tag.allocated, 0);
}

static void a_bad_description_is_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    assert_int_equal(memlord_block_describe(lord, cpu(), 0x1000, &meta), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(memlord_block_describe(lord, cpu(), 0x1000, NULL), MEMLORD_E_INVALID);
    meta.rank = 9;
    assert_int_equal(memlord_block_describe(lord, cpu(), 0x1000, &meta), MEMLORD_E_INVALID);
}

static void a_mark_grows(void **state) {
    memlord *lord = test_lord(state);
    uint64_t first = memlord_mark(lord);
    assert_true(first >= 1);
    assert_int_equal(memlord_mark(lord), first + 1);
    assert_int_equal(memlord_mark(lord), first + 2);
}

static void leaks_are_what_was_born_since(void **state) {
    memlord *lord = test_lord(state);
    uint64_t mark;
    seen s;
    memset(&s, 0, sizeof s);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    mark = memlord_mark(lord);
    assert_int_equal(memlord_leaks(lord, mark, NULL, NULL), 0);
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 20, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 3, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x3000, NULL));
    assert_int_equal(memlord_leaks(lord, mark, note, &s), 1);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.keys, 0x2000);
    memlord_mark(lord);
    assert_ok(memlord_alloc(lord, cpu(), 0x4000, 4, NULL));
    assert_int_equal(memlord_leaks(lord, mark, NULL, NULL), 2);
    assert_int_equal(memlord_leaks(lord, mark + 1, NULL, NULL), 1);
    assert_int_equal(memlord_leaks(lord, mark + 2, NULL, NULL), 0);
}

static void since_0_is_everything(void **state) {
    memlord *lord = test_lord(state);
    open_ten(lord);
    memlord_mark(lord);
    assert_int_equal(memlord_leaks(lord, 0, NULL, NULL), 10);
}

static void a_leak_callback_may_stop(void **state) {
    memlord *lord = test_lord(state);
    seen s;
    memset(&s, 0, sizeof s);
    s.stop_at = 2;
    open_ten(lord);
    assert_true(memlord_leaks(lord, 0, note, &s) >= 2);
    assert_int_equal(s.n, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_live_block_is_shown_once),
        TEST(the_dead_are_not),
        TEST(a_selector_and_a_size_choose),
        TEST(a_callback_that_answers_non_zero_stops),
        TEST(a_callback_may_call_the_ledger),
        TEST(a_walk_of_a_crowd_stops_in_any_of_its_parts),
        TEST(a_bad_walk_is_refused),
        TEST(a_block_shows_all_it_carries),
        TEST(a_block_remembers_its_stream_beside_its_tag),
        TEST(every_way_to_allocate_has_the_stream),
        TEST(realloc_move_and_retag_keep_the_stream),
        TEST(a_stream_ends_with_its_block),
        TEST(streams_scopes_and_marks_are_told_apart),
        TEST(a_stream_is_of_its_thread),
        TEST(no_ledger_has_no_stream),
        TEST(streams_past_the_last_birth_are_counted),
        TEST(the_dead_are_not_found),
        TEST(the_largest_come_first),
        TEST(fewer_blocks_than_asked_for_is_fine),
        TEST(listing_the_largest_allocates_nothing),
        TEST(an_address_inside_finds_its_block),
        TEST(a_block_at_the_end_of_the_address_space_does_not_wrap),
        TEST(a_description_is_copied),
        TEST(a_new_description_replaces_the_old),
        TEST(a_description_ends_with_its_block),
        TEST(descriptions_do_not_pile_up),
        TEST(a_pending_block_takes_no_description_and_no_tag),
        TEST(a_description_can_retag),
        TEST(a_bad_description_is_refused),
        TEST(a_mark_grows),
        TEST(leaks_are_what_was_born_since),
        TEST(since_0_is_everything),
        TEST(a_leak_callback_may_stop),
    };
    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
