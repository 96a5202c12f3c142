/* Parts: what is inside a storage. They subdivide, lie in it, do not overlap, come in order of
   their offsets, and go with it. */
#include "support.h"

#include "json.h"

#define KEY 0x10000u
#define OTHER 0x900000u

static void describe(memlord_meta *meta, const char *name) {
    memset(meta, 0, sizeof *meta);
    meta->name = name;
}

static memlord_result add(memlord *lord, uint64_t offset, uint64_t bytes) {
    return memlord_part_add(lord, cuda(0), KEY, offset, bytes, NULL);
}

typedef struct listing {
    size_t n, stop_at;
    uint64_t bytes, last_end;
    int disordered;
    memlord_part_info first, last;
} listing;

static int list(void *user, const memlord_part_info *part) {
    listing *l = (listing *)user;
    if (!l->n) l->first = *part;
    if (l->n && part->offset < l->last_end) l->disordered = 1;
    l->last = *part;
    l->last_end = part->offset + part->bytes;
    l->bytes += part->bytes;
    l->n++;
    return l->stop_at && l->n == l->stop_at;
}

static listing listed(memlord *lord, memlord_device device, uint64_t storage) {
    listing l;
    size_t n;
    memset(&l, 0, sizeof l);
    n = memlord_parts_each(lord, device, storage, list, &l);
    assert_int_equal(n, l.n);
    assert_false(l.disordered);
    return l;
}

static void parts_never_add(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats before, after;
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 1000, NULL));
    before = stats_of(lord, all());
    assert_ok(add(lord, 0, 400));
    assert_ok(add(lord, 400, 600));
    after = stats_of(lord, all());
    assert_memory_equal(&before, &after, sizeof before);
    assert_ok(memlord_part_remove(lord, cuda(0), KEY, 0));
    after = stats_of(lord, all());
    assert_memory_equal(&before, &after, sizeof before);
    assert_ok(memlord_free(lord, cuda(0), KEY, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void a_part_lies_inside_its_storage(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 1000, NULL));
    assert_ok(add(lord, 0, 1000));
    assert_ok(memlord_part_remove(lord, cuda(0), KEY, 0));
    assert_int_equal(add(lord, 0, 0), MEMLORD_E_INVALID);
    assert_int_equal(add(lord, 0, 1001), MEMLORD_E_INVALID);
    assert_int_equal(add(lord, 999, 2), MEMLORD_E_INVALID);
    assert_int_equal(add(lord, 1000, 1), MEMLORD_E_INVALID);
    assert_int_equal(add(lord, UINT64_MAX, 1), MEMLORD_E_INVALID);
    assert_int_equal(add(lord, UINT64_MAX - 4, 10), MEMLORD_E_INVALID);
    assert_int_equal(add(lord, 10, UINT64_MAX), MEMLORD_E_INVALID);
    assert_int_equal(add(lord, 10, UINT64_MAX - 5), MEMLORD_E_INVALID);
    assert_int_equal(add(lord, (uint64_t)1 << 63, (uint64_t)1 << 63), MEMLORD_E_INVALID);
    assert_ok(add(lord, 999, 1));
    assert_int_equal(listed(lord, cuda(0), KEY).n, 1);
}

static void a_storage_of_no_bytes_has_no_room_for_parts(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 0, NULL));
    assert_int_equal(add(lord, 0, 0), MEMLORD_E_INVALID);
    assert_int_equal(add(lord, 0, 1), MEMLORD_E_INVALID);
    assert_int_equal(listed(lord, cuda(0), KEY).n, 0);
}

static void parts_do_not_overlap(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 1000, NULL));
    assert_ok(add(lord, 100, 100));
    assert_ok(add(lord, 300, 100));
    assert_int_equal(add(lord, 100, 100), MEMLORD_E_STATE);
    assert_int_equal(add(lord, 99, 2), MEMLORD_E_STATE);
    assert_int_equal(add(lord, 199, 1), MEMLORD_E_STATE);
    assert_int_equal(add(lord, 50, 500), MEMLORD_E_STATE);
    assert_int_equal(add(lord, 200, 101), MEMLORD_E_STATE);
    assert_int_equal(add(lord, 399, 10), MEMLORD_E_STATE);
    assert_ok(add(lord, 200, 100));
    assert_ok(add(lord, 0, 100));
    assert_ok(add(lord, 400, 600));
    assert_int_equal(listed(lord, cuda(0), KEY).n, 5);
    assert_int_equal(listed(lord, cuda(0), KEY).bytes, 1000);
}

static void parts_of_what_is_not_live_are_unknown(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(add(lord, 0, 1), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_part_remove(lord, cuda(0), KEY, 0), MEMLORD_E_UNKNOWN);
    assert_int_equal(listed(lord, cuda(0), KEY).n, 0);
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 10, NULL));
    assert_int_equal(memlord_part_remove(lord, cuda(0), KEY, 0), MEMLORD_E_UNKNOWN);
    assert_ok(add(lord, 2, 4));
    assert_int_equal(memlord_part_remove(lord, cuda(0), KEY, 0), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_part_remove(lord, cuda(0), KEY, 3), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_free(lord, cuda(0), KEY, NULL));
    assert_int_equal(memlord_part_remove(lord, cuda(0), KEY, 2), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_part_add(lord, cuda(0), 0, 0, 1, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_part_add(lord, memlord_device_make(99, 0), KEY, 0, 1, NULL),
                     MEMLORD_E_DEVICE);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

static void the_last_part_can_go_and_others_come(void **state) {
    memlord *lord = test_lord(state);
    int i;
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 1000, NULL));
    for (i = 0; i < 10; i++) {
        assert_ok(add(lord, 10, 100));
        assert_ok(add(lord, 200, 100));
        assert_ok(memlord_part_remove(lord, cuda(0), KEY, 10));
        assert_ok(memlord_part_remove(lord, cuda(0), KEY, 200));
        assert_int_equal(listed(lord, cuda(0), KEY).n, 0);
    }
}

static void a_part_says_what_it_is(void **state) {
    memlord *lord = test_lord(state);
    memlord_meta meta;
    char name[32] = "blk.0.attn_q.weight", dtype[8] = "f16", tag[16] = "weights";
    listing l;
    describe(&meta, name);
    meta.dtype = dtype;
    meta.tag = tag;
    meta.rank = 2;
    meta.shape[0] = 2048;
    meta.shape[1] = -1;
    meta.flags = 5;
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 1000, NULL));
    assert_ok(memlord_part_add(lord, cuda(0), KEY, 8, 16, &meta));
    memset(name, 'x', sizeof name);
    memset(dtype, 'x', sizeof dtype);
    memset(tag, 'x', sizeof tag);
    l = listed(lord, cuda(0), KEY);
    assert_int_equal(l.first.offset, 8);
    assert_int_equal(l.first.bytes, 16);
    assert_string_equal(l.first.meta.name, "blk.0.attn_q.weight");
    assert_string_equal(l.first.meta.dtype, "f16");
    assert_string_equal(l.first.meta.tag, "weights");
    assert_int_equal(l.first.meta.rank, 2);
    assert_int_equal(l.first.meta.shape[1], -1);
    assert_int_equal(l.first.meta.flags, 5);
    meta.rank = 9;
    assert_int_equal(memlord_part_add(lord, cuda(0), KEY, 100, 16, &meta), MEMLORD_E_INVALID);
}

static void the_tag_of_a_part_is_not_the_storages(void **state) {
    memlord *lord = test_lord(state);
    memlord_meta meta;
    memlord_block_info info;
    describe(&meta, "slot");
    meta.tag = "kv_cache";
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 1000, NULL));
    assert_ok(memlord_part_add(lord, cuda(0), KEY, 8, 16, &meta));
    assert_ok(memlord_block_find(lord, cuda(0), KEY, &info));
    assert_null(info.tag);
    assert_null(info.meta.name);
}

static void each_stops_when_told_to(void **state) {
    memlord *lord = test_lord(state);
    listing l;
    uint64_t i;
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 1000, NULL));
    for (i = 0; i < 100; i++) assert_ok(add(lord, i * 10, 10));
    memset(&l, 0, sizeof l);
    l.stop_at = 37;
    assert_int_equal(memlord_parts_each(lord, cuda(0), KEY, list, &l), 37);
    assert_int_equal(l.n, 37);
}

/* fn that changes what it is called for. */
typedef struct changer {
    memlord *lord;
    size_t n;
} changer;
static int remove_it(void *user, const memlord_part_info *part) {
    changer *c = (changer *)user;
    c->n++;
    assert_ok(memlord_part_remove(c->lord, cuda(0), KEY, part->offset));
    return 0;
}
static int free_the_storage(void *user, const memlord_part_info *part) {
    changer *c = (changer *)user;
    (void)part;
    c->n++;
    (void)memlord_free(c->lord, cuda(0), KEY, NULL);
    return 0;
}

static void fn_may_take_the_parts_away(void **state) {
    changer c = {test_lord(state), 0};
    uint64_t i;
    assert_ok(memlord_alloc(c.lord, cuda(0), KEY, 10000, NULL));
    for (i = 0; i < 1000; i++) assert_ok(add(c.lord, i * 10, 10));
    assert_int_equal(memlord_parts_each(c.lord, cuda(0), KEY, remove_it, &c), 1000);
    assert_int_equal(c.n, 1000);
    assert_int_equal(listed(c.lord, cuda(0), KEY).n, 0);
}

static void fn_may_free_the_storage(void **state) {
    changer c = {test_lord(state), 0};
    uint64_t i;
    size_t n;
    assert_ok(memlord_alloc(c.lord, cuda(0), KEY, 10000, NULL));
    for (i = 0; i < 1000; i++) assert_ok(add(c.lord, i * 10, 10));
    n = memlord_parts_each(c.lord, cuda(0), KEY, free_the_storage, &c);
    assert_int_equal(n, c.n);
    assert_true(n >= 1 && n < 1000);
    assert_int_equal(memlord_allocated(c.lord, all()), 0);
}

/* -- against a model: slots of a bitmap -- */

#define SLOTS (TEST_SANITIZED ? 20000u : 100000u)

static void check_model(memlord *lord, const unsigned char *used, size_t count) {
    listing l = listed(lord, cuda(0), KEY);
    assert_int_equal(l.n, count);
    assert_int_equal(l.bytes, count * 16);
    if (count) {
        assert_true(used[l.first.offset / 16]);
        assert_true(used[l.last.offset / 16]);
    }
}

static void a_hundred_thousand_parts_in_random_order(void **state) {
    TEST_ONE_THREAD();
    memlord *lord = test_lord(state);
    uint64_t seed = test_env("MEMLORD_TEST_SEED", 7), i;
    uint64_t steps = TEST_SANITIZED ? 60000 : 400000;
    unsigned char *used = (unsigned char *)calloc(SLOTS, 1);
    uint32_t *order = (uint32_t *)malloc(SLOTS * sizeof *order);
    size_t count = 0;
    assert_true(used && order);
    print_message("# seed %llu\n", (unsigned long long)seed);
    assert_ok(memlord_alloc(lord, cuda(0), KEY, SLOTS * 16, NULL));
    for (i = 0; i < SLOTS; i++) order[i] = (uint32_t)i;
    for (i = SLOTS - 1; i > 0; i--) {
        uint64_t j = test_random(&seed) % (i + 1);
        uint32_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (i = 0; i < SLOTS; i++) {
        assert_ok(add(lord, order[i] * 16u, 16));
        used[order[i]] = 1;
        count++;
    }
    check_model(lord, used, count);
    for (i = 0; i < steps; i++) {
        uint64_t slot = test_random(&seed) % SLOTS;
        if (used[slot]) {
            if (test_random(&seed) & 1) {
                assert_int_equal(add(lord, slot * 16 + 3, 5), MEMLORD_E_STATE);
            } else {
                assert_ok(memlord_part_remove(lord, cuda(0), KEY, slot * 16));
                used[slot] = 0;
                count--;
            }
        } else {
            assert_ok(add(lord, slot * 16, 16));
            used[slot] = 1;
            count++;
        }
    }
    check_model(lord, used, count);
    for (i = 0; i < SLOTS; i++) {
        uint32_t slot = order[i];
        assert_int_equal(memlord_part_remove(lord, cuda(0), KEY, slot * 16u),
                         used[slot] ? MEMLORD_OK : MEMLORD_E_UNKNOWN);
    }
    check_model(lord, used, 0);
    assert_ok(add(lord, 0, SLOTS * 16));
    free(used);
    free(order);
}

static void parts_of_many_sizes_against_a_model(void **state) {
    memlord *lord = test_lord(state);
    enum { CELLS = 4096 };
    static uint16_t owner[CELLS]; /* 1 + where its part begins; 0: none */
    uint64_t seed = test_env("MEMLORD_TEST_SEED", 99), i, j;
    size_t count = 0;
    memset(owner, 0, sizeof owner);
    print_message("# seed %llu\n", (unsigned long long)seed);
    assert_ok(memlord_alloc(lord, cuda(0), KEY, CELLS, NULL));
    for (i = 0; i < 30000; i++) {
        uint64_t at = test_random(&seed) % CELLS, n = 1 + test_random(&seed) % 24;
        int inside = at + n <= CELLS, overlap = 0;
        if (owner[at] == at + 1 && test_random(&seed) % 3) {
            assert_ok(memlord_part_remove(lord, cuda(0), KEY, at));
            for (j = at; j < CELLS && owner[j] == at + 1; j++) owner[j] = 0;
            count--;
            continue;
        }
        for (j = at; inside && j < at + n; j++) overlap |= owner[j] != 0;
        assert_int_equal(add(lord, at, n), !inside   ? MEMLORD_E_INVALID
                                           : overlap ? MEMLORD_E_STATE
                                                     : MEMLORD_OK);
        if (!inside || overlap) continue;
        for (j = at; j < at + n; j++) owner[j] = (uint16_t)(at + 1);
        count++;
        if (i % 1000 == 0) assert_int_equal(listed(lord, cuda(0), KEY).n, count);
    }
    assert_int_equal(listed(lord, cuda(0), KEY).n, count);
}

/* -- they go with their storage -- */

static void ten_parts(memlord *lord) {
    uint64_t i;
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 1000, NULL));
    for (i = 0; i < 10; i++) assert_ok(add(lord, i * 100, 50));
}

static void a_realloc_takes_its_parts_along(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    ten_parts(lord);
    assert_ok(memlord_realloc(lord, cuda(0), KEY, OTHER, 2000, NULL));
    assert_int_equal(listed(lord, cuda(0), KEY).n, 0);
    assert_int_equal(listed(lord, cuda(0), OTHER).n, 10);
    assert_ok(memlord_realloc_begin(lord, cuda(0), OTHER, &token));
    assert_int_equal(listed(lord, cuda(0), OTHER).n, 0);
    assert_ok(memlord_realloc_end(lord, &token, 0, 0, NULL)); /* the real call failed */
    assert_int_equal(listed(lord, cuda(0), OTHER).n, 10);
    assert_ok(memlord_part_add(lord, cuda(0), OTHER, 1900, 100, NULL));
}

static void a_shrinking_realloc_drops_what_is_outside(void **state) {
    memlord *lord = test_lord(state);
    ten_parts(lord);
    assert_ok(memlord_realloc(lord, cuda(0), KEY, KEY, 350, NULL));
    assert_int_equal(listed(lord, cuda(0), KEY).n, 4); /* 0, 100, 200 and 300..350 */
    assert_ok(memlord_realloc(lord, cuda(0), KEY, KEY, 349, NULL));
    assert_int_equal(listed(lord, cuda(0), KEY).n, 3);
    assert_ok(memlord_realloc(lord, cuda(0), KEY, KEY, 0, NULL));
    assert_int_equal(listed(lord, cuda(0), KEY).n, 0);
    assert_ok(memlord_realloc(lord, cuda(0), KEY, KEY, 1000, NULL));
    assert_int_equal(listed(lord, cuda(0), KEY).n, 0);
    assert_ok(add(lord, 0, 1000));
}

static void a_move_takes_its_parts_along(void **state) {
    memlord *lord = test_lord(state);
    ten_parts(lord);
    assert_ok(memlord_move(lord, cuda(0), KEY, cpu(), OTHER, 1000, NULL, NULL));
    assert_int_equal(listed(lord, cuda(0), KEY).n, 0);
    assert_int_equal(listed(lord, cpu(), OTHER).n, 10);
    assert_ok(memlord_move(lord, cpu(), OTHER, cuda(1), KEY, 350, NULL, NULL));
    assert_int_equal(listed(lord, cuda(1), KEY).n, 4);
}

static int fence_done(void *user) { return *(int *)user; }

static void a_move_behind_a_fence_takes_its_parts_along(void **state) {
    memlord *lord = test_lord(state);
    int done = 0;
    memlord_fence fence = {fence_done, NULL, 0, NULL};
    memlord_meta meta;
    fence.user = &done;
    describe(&meta, "tensor");
    ten_parts(lord);
    assert_ok(memlord_part_add(lord, cuda(0), KEY, 990, 10, &meta));
    assert_ok(memlord_move(lord, cuda(0), KEY, cpu(), OTHER, 1000, &fence, NULL));
    assert_int_equal(listed(lord, cpu(), OTHER).n, 11);
    assert_string_equal(listed(lord, cpu(), OTHER).last.meta.name, "tensor");
    done = 1;
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(listed(lord, cpu(), OTHER).n, 11);
    assert_ok(memlord_part_add(lord, cpu(), OTHER, 60, 10, NULL));
    assert_ok(memlord_free(lord, cpu(), OTHER, NULL));
}

static void a_free_takes_its_parts_along(void **state) {
    memlord *lord = test_lord(state);
    ten_parts(lord);
    assert_ok(memlord_free(lord, cuda(0), KEY, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 1000, NULL));
    assert_int_equal(listed(lord, cuda(0), KEY).n, 0);
    assert_ok(add(lord, 0, 1000));
}

static void an_alloc_over_a_live_storage_takes_its_parts_away(void **state) {
    memlord *lord = test_lord(state);
    ten_parts(lord);
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 1000, NULL));
    assert_int_equal(listed(lord, cuda(0), KEY).n, 0);
    assert_int_equal(stats_of(lord, cuda(0)).implicit_frees, 1);
}

static void a_pending_storage_takes_no_parts(void **state) {
    memlord *lord = test_lord(state);
    int done = 0;
    memlord_fence fence = {fence_done, NULL, 0, NULL};
    fence.user = &done;
    ten_parts(lord);
    assert_ok(memlord_free_deferred(lord, cuda(0), KEY, fence, NULL));
    assert_int_equal(add(lord, 60, 10), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_part_remove(lord, cuda(0), KEY, 0), MEMLORD_E_UNKNOWN);
    done = 1;
    assert_int_equal(memlord_retire(lord, all()), 1000);
}

static void a_description_and_views_leave_parts_alone(void **state) {
    memlord *lord = test_lord(state);
    memlord_meta meta;
    memlord_block_info info;
    ten_parts(lord);
    describe(&meta, "buffer");
    assert_ok(memlord_block_describe(lord, cuda(0), KEY, &meta));
    assert_ok(memlord_block_retag(lord, cuda(0), KEY, "weights"));
    assert_ok(memlord_retain(lord, cuda(0), KEY, NULL));
    assert_ok(memlord_release(lord, cuda(0), KEY, NULL));
    assert_int_equal(listed(lord, cuda(0), KEY).n, 10);
    assert_ok(memlord_block_find(lord, cuda(0), KEY, &info));
    assert_string_equal(info.meta.name, "buffer");
}

/* -- failing allocators -- */

static void an_allocator_that_fails_at_any_call_changes_nothing(void **state) {
    uint64_t n;
    (void)state;
    for (n = 1;; n++) {
        test_heap heap;
        memlord_desc desc;
        memlord *lord;
        uint64_t i;
        size_t added = 0;
        memset(&heap, 0, sizeof heap);
        desc = test_desc(&heap, 0);
        assert_ok(memlord_create(&desc, &lord));
        assert_ok(memlord_alloc(lord, cuda(0), KEY, 20000, NULL));
        heap.fail_at = heap.calls + n;
        for (i = 0; i < 1200; i++) {
            memlord_meta meta;
            char name[32];
            memlord_result r;
            snprintf(name, sizeof name, "part %d", (int)i);
            describe(&meta, name);
            r = memlord_part_add(lord, cuda(0), KEY, (i * 7 % 1200) * 16, 16, &meta);
            if (r != MEMLORD_OK) {
                assert_int_equal(r, MEMLORD_E_NOMEM);
                assert_true(heap.failed);
                assert_int_equal(listed(lord, cuda(0), KEY).n, added);
                assert_ok(memlord_part_add(lord, cuda(0), KEY, (i * 7 % 1200) * 16, 16, &meta));
            }
            added++;
        }
        assert_int_equal(listed(lord, cuda(0), KEY).n, added);
        assert_int_equal(memlord_allocated(lord, all()), 20000);
        memlord_destroy(lord);
        assert_int_equal(heap.blocks, 0);
        assert_int_equal(heap.bad_frees, 0);
        if (!heap.failed) break;
    }
    assert_true(n > 1);
}

/* -- shown -- */

static void reports_show_parts_under_their_storage(void **state) {
    memlord *lord = test_lord(state);
    memlord_meta meta;
    char *json, *text;
    describe(&meta, "blk.0.attn_q.weight");
    meta.dtype = "q4_0";
    meta.rank = 2;
    meta.shape[0] = 64;
    meta.shape[1] = 32;
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 10000, NULL));
    assert_ok(memlord_part_add(lord, cuda(0), KEY, 4096, 1024, &meta));
    assert_ok(memlord_part_add(lord, cuda(0), KEY, 0, 512, NULL));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_true(json_valid(json));
    assert_int_equal(json_u64(json, "largest_blocks.blocks[0].parts.count"), 2);
    assert_int_equal(json_u64(json, "largest_blocks.blocks[0].parts.bytes"), 1536);
    assert_int_equal(json_u64(json, "largest_blocks.blocks[0].parts.listed[0].offset"), 0);
    assert_int_equal(json_u64(json, "largest_blocks.blocks[0].parts.listed[1].offset"), 4096);
    assert_true(json_is(json, "largest_blocks.blocks[0].parts.listed[1].name",
                        "blk.0.attn_q.weight"));
    assert_true(json_is(json, "largest_blocks.blocks[0].parts.listed[1].dtype", "q4_0"));
    assert_int_equal(json_u64(json, "largest_blocks.blocks[0].parts.listed[1].shape[1]"), 32);
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "blk.0.attn_q.weight"));
    free(json);
    free(text);
}

static void a_report_of_very_many_parts_says_how_many(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    uint64_t i;
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 160000, NULL));
    for (i = 0; i < 10000; i++) assert_ok(add(lord, i * 16, 16));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_true(json_valid(json));
    assert_int_equal(json_u64(json, "largest_blocks.blocks[0].parts.count"), 10000);
    assert_int_equal(json_u64(json, "largest_blocks.blocks[0].parts.bytes"), 160000);
    free(json);
}

/* -- at once -- */

typedef struct crew {
    memlord *lord;
    uint64_t from, rounds;
} crew;
static void *slots(void *user) {
    crew *c = (crew *)user;
    uint64_t i, round;
    for (round = 0; round < c->rounds; round++) {
        for (i = 0; i < 64; i++)
            assert_ok(memlord_part_add(c->lord, cuda(0), KEY, c->from + i * 16, 16, NULL));
        for (i = 0; i < 64; i++)
            if (round + 1 < c->rounds)
                assert_ok(memlord_part_remove(c->lord, cuda(0), KEY, c->from + i * 16));
    }
    return NULL;
}

static void threads_fill_one_storage(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread[4];
    crew c[4];
    uint64_t i;
    assert_ok(memlord_alloc(lord, cuda(0), KEY, 4 * 64 * 16, NULL));
    for (i = 0; i < 4; i++) {
        c[i].lord = lord;
        c[i].from = i * 64 * 16;
        c[i].rounds = 50;
        assert_int_equal(pthread_create(&thread[i], NULL, slots, &c[i]), 0);
    }
    for (i = 0; i < 20; i++) (void)listed(lord, cuda(0), KEY);
    for (i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    assert_int_equal(listed(lord, cuda(0), KEY).n, 256);
    assert_int_equal(listed(lord, cuda(0), KEY).bytes, 4096);
}

static void a_null_ledger_has_no_parts(void **state) {
    (void)state;
    assert_ok(memlord_part_add(NULL, cuda(0), KEY, 0, 1, NULL));
    assert_ok(memlord_part_remove(NULL, cuda(0), KEY, 0));
    assert_int_equal(memlord_parts_each(NULL, cuda(0), KEY, list, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(parts_never_add),
        TEST(a_part_lies_inside_its_storage),
        TEST(a_storage_of_no_bytes_has_no_room_for_parts),
        TEST(parts_do_not_overlap),
        TEST(parts_of_what_is_not_live_are_unknown),
        TEST(the_last_part_can_go_and_others_come),
        TEST(a_part_says_what_it_is),
        TEST(the_tag_of_a_part_is_not_the_storages),
        TEST(each_stops_when_told_to),
        TEST(fn_may_take_the_parts_away),
        TEST(fn_may_free_the_storage),
        TEST(a_hundred_thousand_parts_in_random_order),
        TEST(parts_of_many_sizes_against_a_model),
        TEST(a_realloc_takes_its_parts_along),
        TEST(a_shrinking_realloc_drops_what_is_outside),
        TEST(a_move_takes_its_parts_along),
        TEST(a_move_behind_a_fence_takes_its_parts_along),
        TEST(a_free_takes_its_parts_along),
        TEST(an_alloc_over_a_live_storage_takes_its_parts_away),
        TEST(a_pending_storage_takes_no_parts),
        TEST(a_description_and_views_leave_parts_alone),
        cmocka_unit_test(an_allocator_that_fails_at_any_call_changes_nothing),
        TEST(reports_show_parts_under_their_storage),
        TEST(a_report_of_very_many_parts_says_how_many),
        TEST(threads_fill_one_storage),
        cmocka_unit_test(a_null_ledger_has_no_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
