/* Reallocs: one block, its size and address changed; growth and shrinkage, no alloc or free. */
#include "support.h"

static void growth_goes_to_total_allocated(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_realloc(lord, cpu(), 0x1000, 0x1000, 250, NULL));
    s = stats_of(lord, cpu());
    assert_int_equal(s.allocated, 250);
    assert_int_equal(s.total_allocated, 250);
    assert_int_equal(s.total_freed, 0);
    assert_int_equal(s.freed, 0);
    assert_int_equal(s.allocs, 1);
    assert_int_equal(s.frees, 0);
    assert_int_equal(s.implicit_frees, 0);
}

static void shrinkage_goes_to_total_freed_and_freed(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 250, NULL));
    assert_ok(memlord_realloc(lord, cpu(), 0x1000, 0x2000, 100, NULL));
    s = stats_of(lord, cpu());
    assert_int_equal(s.allocated, 100);
    assert_int_equal(s.total_allocated, 250);
    assert_int_equal(s.total_freed, 150);
    assert_int_equal(s.freed, 150);
    assert_int_equal(s.allocs, 1);
    assert_int_equal(s.frees, 0);
    assert_int_equal(s.live_blocks, 1);
}

static void the_old_key_is_dead_and_the_new_one_lives(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_realloc(lord, cpu(), 0x1000, 0x2000, 100, NULL));
    assert_int_equal(memlord_free(lord, cpu(), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
}

static void an_old_storage_of_0_is_an_alloc(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_realloc(lord, cpu(), 0, 0x1000, 100, NULL));
    assert_int_equal(stats_of(lord, cpu()).allocs, 1);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 0);
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
}

static void an_unknown_old_one_is_counted_and_the_new_one_opened(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc(lord, cpu(), 0x1000, 0x2000, 100, NULL);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 1);
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
}

static void a_bad_new_storage_or_size_changes_nothing(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats before, after;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    before = stats_of(lord, cpu());
    assert_int_equal(memlord_realloc(lord, cpu(), 0x1000, UINT64_MAX, 8, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_realloc(lord, cpu(), 0x1000, 0x2000, TEST_MAX_BYTES + 1, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_realloc(lord, memlord_device_make(99, 0), 0x1000, 0x2000, 8, NULL),
                     MEMLORD_E_DEVICE);
    after = stats_of(lord, cpu());
    assert_same_books(&before, &after);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
}

static void a_new_key_that_is_live_is_closed_first(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 10, NULL));
    assert_ok(memlord_realloc(lord, cpu(), 0x1000, 0x2000, 300, NULL));
    assert_int_equal(stats_of(lord, cpu()).implicit_frees, 1);
    assert_int_equal(memlord_allocated(lord, cpu()), 300);
    assert_int_equal(stats_of(lord, cpu()).live_blocks, 1);
    assert_balanced(lord, cpu());
}

/* Opens a block with everything a block can carry. */
static void open_rich(memlord *lord, uint64_t storage) {
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    meta.name = "blk.0.attn_q.weight";
    meta.dtype = "f16";
    meta.rank = 2;
    meta.shape[0] = 4096;
    meta.shape[1] = 32;
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cuda(0), storage, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_retain(lord, cuda(0), storage, NULL));
    assert_ok(memlord_block_describe(lord, cuda(0), storage, &meta));
}

static void assert_rich(memlord *lord, uint64_t storage, uint64_t bytes, uint64_t born) {
    memlord_block_info info;
    memlord_tag_stat tag;
    assert_ok(memlord_block_find(lord, cuda(0), storage, &info));
    assert_int_equal(info.bytes, bytes);
    assert_int_equal(info.refs, 2);
    assert_int_equal(info.born, born);
    assert_string_equal(info.tag, "weights");
    assert_string_equal(info.meta.name, "blk.0.attn_q.weight");
    assert_string_equal(info.meta.dtype, "f16");
    assert_int_equal(info.meta.rank, 2);
    assert_int_equal(info.meta.shape[0], 4096);
    assert_ok(memlord_tag_get(lord, cuda(0), "weights", &tag));
    assert_int_equal(tag.allocated, bytes);
    assert_int_equal(tag.blocks, 1);
}

static void the_block_keeps_all_it_carries(void **state) {
    memlord *lord = test_lord(state);
    uint64_t born = memlord_mark(lord);
    open_rich(lord, 0x1000);
    memlord_mark(lord);
    assert_ok(memlord_realloc(lord, cuda(0), 0x1000, 0x200000, 500, NULL));
    assert_rich(lord, 0x200000, 500, born);
}

static void begin_and_end_keep_it_too(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    uint64_t born = memlord_mark(lord);
    open_rich(lord, 0x1000);
    memlord_mark(lord);
    assert_ok(memlord_realloc_begin(lord, cuda(0), 0x1000, &token));
    assert_ok(memlord_realloc_end(lord, &token, 0x200000, 500, NULL));
    assert_rich(lord, 0x200000, 500, born);
}

static void an_end_with_0_brings_it_back_as_it_was(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    memlord_stats before, after;
    uint64_t born = memlord_mark(lord);
    open_rich(lord, 0x1000);
    before = stats_of(lord, cuda(0));
    assert_ok(memlord_realloc_begin(lord, cuda(0), 0x1000, &token));
    assert_ok(memlord_realloc_end(lord, &token, 0, 500, NULL));
    assert_rich(lord, 0x1000, 100, born);
    after = stats_of(lord, cuda(0));
    assert_memory_equal(&before, &after, sizeof before);
}

static void between_begin_and_end_the_bytes_stay_counted(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_realloc_begin(lord, cpu(), 0x1000, &token));
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_int_equal(memlord_freed(lord, cpu()), 0);
    assert_int_equal(stats_of(lord, cpu()).frees, 0);
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 400, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 400);
    assert_int_equal(stats_of(lord, cpu()).total_allocated, 400);
    assert_int_equal(stats_of(lord, cpu()).allocs, 1);
}

static void between_begin_and_end_the_old_key_is_another_s(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_realloc_begin(lord, cpu(), 0x1000, &token));
    assert_int_equal(memlord_free(lord, cpu(), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 7, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 107);
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 200, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 207);
    assert_int_equal(stats_of(lord, cpu()).implicit_frees, 0);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
}

static void a_second_end_is_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    memlord_stats before, after;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_realloc_begin(lord, cpu(), 0x1000, &token));
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 200, NULL));
    before = stats_of(lord, cpu());
    assert_int_equal(memlord_realloc_end(lord, &token, 0x3000, 300, NULL), MEMLORD_E_STATE);
    assert_int_equal(memlord_realloc_end(lord, &token, 0, 0, NULL), MEMLORD_E_STATE);
    after = stats_of(lord, cpu());
    assert_same_books(&before, &after);
}

static void a_failed_realloc_may_have_asked_for_any_size(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_realloc_begin(lord, cpu(), 0x1000, &token));
    assert_ok(memlord_realloc_end(lord, &token, 0, UINT64_MAX, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
}

static void an_end_that_is_refused_may_be_tried_again(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_realloc_begin(lord, cpu(), 0x1000, &token));
    assert_int_equal(memlord_realloc_end(lord, &token, UINT64_MAX, 8, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_realloc_end(lord, &token, 0x2000, TEST_MAX_BYTES + 1, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 8, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 8);
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
}

static void a_begin_of_the_unknown_still_opens_at_its_end(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_int_equal(memlord_realloc_begin(lord, cpu(), 0x1000, &token), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 1);
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 200, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 200);
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
}

static void a_failed_realloc_of_the_unknown_opens_nothing(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_int_equal(memlord_realloc_begin(lord, cpu(), 0x1000, &token), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_realloc_end(lord, &token, 0, 200, NULL));
    assert_int_equal(stats_of(lord, cpu()).live_blocks, 0);
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
}

static void a_begin_of_0_is_an_alloc_at_its_end(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    memlord_realloc_begin(lord, cpu(), 0, &token);
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 200, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 200);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 0);
    assert_int_equal(stats_of(lord, cpu()).allocs, 1);
}

static void a_null_token_is_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(memlord_realloc_begin(lord, cpu(), 0x1000, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_realloc_end(lord, NULL, 0x2000, 100, NULL), MEMLORD_E_INVALID);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
}

/* The token looks as if it held a block. */
static void a_begin_that_is_refused_makes_no_token(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_realloc_begin(lord, cpu(), 0x1000, &token));
    assert_ok(memlord_realloc_end(lord, &token, 0x1000, 100, NULL));
    token.state = 2; /* live */
    assert_int_equal(memlord_realloc_begin(lord, cpu(), UINT64_MAX, &token), MEMLORD_E_INVALID);
    assert_int_equal(memlord_realloc_end(lord, &token, 0x2000, 7, NULL), MEMLORD_E_STATE);
    assert_int_equal(memlord_allocated(lord, all()), 100);
    assert_int_equal(stats_of(lord, all()).live_blocks, 1);
}

static void a_begin_of_the_unknown_on_any_device_opens_on_the_first(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_int_equal(memlord_realloc_begin(lord, cuda(MEMLORD_ANY), 0x1000, &token),
                     MEMLORD_E_UNKNOWN);
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 70, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 70);
}

static void many_tokens_can_be_open_at_once(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token tokens[200];
    uint64_t i;
    for (i = 0; i < 200; i++) assert_ok(memlord_alloc(lord, cpu(), (i + 1) * 64, 10, NULL));
    for (i = 0; i < 200; i++)
        assert_ok(memlord_realloc_begin(lord, cpu(), (i + 1) * 64, &tokens[i]));
    assert_int_equal(memlord_allocated(lord, cpu()), 2000);
    for (i = 0; i < 200; i++)
        assert_ok(memlord_realloc_end(lord, &tokens[i], (i + 1) * 64, 20, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 4000);
    assert_int_equal(stats_of(lord, cpu()).live_blocks, 200);
}

static void a_copy_of_a_token_is_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token, copy;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 30, NULL));
    assert_ok(memlord_realloc_begin(lord, cuda(0), 0x1000, &token));
    copy = token;
    assert_int_equal(memlord_realloc_end(lord, &copy, 0x2000, 50, NULL), MEMLORD_E_STATE);
    assert_int_equal(memlord_free_end(lord, &copy, 0, NULL), MEMLORD_E_STATE);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 30);
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 50, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 50);
    assert_ok(memlord_free_begin(lord, cuda(0), 0x2000, &token, NULL));
    copy = token;
    assert_int_equal(memlord_free_end(lord, &copy, 0, NULL), MEMLORD_E_STATE);
    assert_ok(memlord_free_end(lord, &token, 0, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(stats_of(lord, cuda(0)).live_blocks, 0);
}

static void an_end_on_another_ledger_is_refused(void **state) {
    memlord *lord = test_lord(state), *other = NULL;
    memlord_realloc_token moved, freed;
    assert_ok(memlord_create(NULL, &other));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 10, NULL));
    assert_ok(memlord_realloc_begin(lord, cuda(0), 0x1000, &moved));
    assert_ok(memlord_free_begin(lord, cuda(0), 0x2000, &freed, NULL));
    assert_int_equal(memlord_realloc_end(other, &moved, 0x3000, 5, NULL), MEMLORD_E_STATE);
    assert_int_equal(memlord_free_end(other, &freed, 0, NULL), MEMLORD_E_STATE);
    assert_int_equal(memlord_devices(other, NULL, 0), 0);
    memlord_destroy(other);
    assert_ok(memlord_realloc_end(lord, &moved, 0x3000, 5, NULL));
    assert_ok(memlord_free_end(lord, &freed, 0, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 5);
}

static void an_end_without_room_counts_the_block_as_dropped(void **state) {
    test_case *t = (test_case *)*state;
    memlord_realloc_token token;
    uint64_t key = (uint64_t)1 << 40;
    memlord_stats before, after;
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 100, NULL));
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    while (memlord_alloc(t->lord, cpu(), key, 1, NULL) == MEMLORD_OK) key += 1u << 21;
    before = stats_of(t->lord, cuda(0));
    assert_ok(memlord_realloc_begin(t->lord, cuda(0), 0x1000, &token));
    assert_int_equal(memlord_realloc_end(t->lord, &token, key, 5000, NULL), MEMLORD_E_NOMEM);
    after = stats_of(t->lord, cuda(0));
    assert_int_equal(after.allocated, 0);
    assert_int_equal(after.peak, before.peak);
    assert_int_equal(after.total_allocated, 100);
    assert_int_equal(after.total_freed, 100);
    assert_int_equal(after.dropped_allocs - before.dropped_allocs, 1);
    assert_int_equal(after.dropped_bytes - before.dropped_bytes, 5000);
    assert_ok(memlord_free(t->lord, cuda(0), key, NULL)); /* taken for the dropped one */
    assert_int_equal(stats_of(t->lord, cuda(0)).unknown_frees, 0);
}

/* -- the frees of what was dropped -- */

/* Returns a key for which the map has no room, when it finds no memory any more. */
static uint64_t fill_map(test_case *t) {
    uint64_t key = (uint64_t)1 << 40;
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    while (memlord_alloc(t->lord, cpu(), key, 1, NULL) == MEMLORD_OK) key += 1u << 21;
    return key + (1u << 21);
}

static void the_free_of_a_dropped_storage_is_known_from_a_double_free(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block two[2] = {{cuda(0), 0x1000, 5000}, {cuda(0), 0, 7}};
    memlord_stats s;
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 100, NULL));
    two[1].storage = fill_map(t);
    assert_int_equal(memlord_alloc_n(t->lord, two, 2, NULL), MEMLORD_E_NOMEM);
    s = stats_of(t->lord, cuda(0));
    assert_int_equal(s.allocated, 100); /* as before */
    assert_int_equal(s.dropped_allocs, 2);
    assert_int_equal(s.dropped_bytes, 5007);
    assert_ok(memlord_free(t->lord, cuda(0), 0x1000, NULL));
    assert_int_equal(memlord_free(t->lord, cuda(0), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_free(t->lord, cuda(0), two[1].storage, NULL)); /* it was dropped */
    assert_int_equal(memlord_free(t->lord, cuda(0), two[1].storage, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(t->lord, cuda(0)).unknown_frees, 2);
}

/* A realloc puts a block at the key of a dropped alloc: what was expected of that key is over. */
static void a_realloc_to_a_dropped_storage_ends_what_was_expected_of_it(void **state) {
    test_case *t = (test_case *)*state;
    const uint64_t key = fill_map(t);
    assert_int_equal(memlord_alloc(t->lord, cuda(0), key, 5, NULL), MEMLORD_E_NOMEM);
    t->heap.fail_at = 0;
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_realloc(t->lord, cuda(0), 0x1000, key, 200, NULL));
    assert_ok(memlord_free(t->lord, cuda(0), key, NULL));
    assert_int_equal(memlord_free(t->lord, cuda(0), key, NULL), MEMLORD_E_UNKNOWN);
}
static void a_realloc_without_room_leaves_the_block_and_drops_nothing(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block_info info;
    uint64_t key;
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 100, NULL));
    key = fill_map(t);
    assert_int_equal(memlord_realloc(t->lord, cuda(0), 0x1000, key, 200, NULL), MEMLORD_E_NOMEM);
    assert_int_equal(stats_of(t->lord, cuda(0)).dropped_allocs, 0);
    assert_ok(memlord_block_find(t->lord, cuda(0), 0x1000, &info));
    assert_int_equal(info.bytes, 100);
    assert_int_equal(memlord_free(t->lord, cuda(0), key, NULL), MEMLORD_E_UNKNOWN);
}
static int add_bytes(void *user, const memlord_block_info *info) {
    *(uint64_t *)user += info->bytes;
    return 0;
}
static void the_block_of_an_open_realloc_is_counted_and_not_listed(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    memlord_block_info info;
    memlord_stats before, open;
    uint64_t listed = 0;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    before = stats_of(lord, cuda(0));
    assert_ok(memlord_realloc_begin(lord, cuda(0), 0x1000, &token));
    open = stats_of(lord, cuda(0));
    assert_same_books(&before, &open);
    assert_int_equal(open.live_blocks, 1);
    assert_ok(memlord_blocks_each(lord, all(), 0, add_bytes, &listed));
    assert_int_equal(listed + memlord_blocks_top(lord, all(), &info, 1), 0);
    assert_int_equal(memlord_block_find(lord, cuda(0), 0x1000, &info), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 50, NULL));
    assert_ok(memlord_blocks_each(lord, all(), 0, add_bytes, &listed));
    assert_int_equal(listed, 50);
}
static void a_moved_realloc_that_is_refused_leaves_the_block(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    uint64_t i;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_int_equal(memlord_realloc(lord, memlord_device_cuda(MEMLORD_ANY), 0x1000, 0x2000, 5, NULL),
                     MEMLORD_E_DEVICE);
    for (i = 1; i <= 1 << 14; i++) /* until 2^62 bytes are live */
        assert_ok(memlord_alloc(lord, cuda(0), i << 24, UINT64_C(1) << 48, NULL));
    assert_int_equal(memlord_realloc(lord, cuda(0), 0x1000, 0x2000, UINT64_C(5) << 30, NULL),
                     MEMLORD_E_INVALID);
    assert_ok(memlord_block_find(lord, cuda(0), 0x1000, &info));
    assert_int_equal(info.bytes, 100);
}

/* A host may take the error for a refusal: it frees nothing, and tries again later. */
static void an_alloc_that_is_recorded_after_all_is_freed_once(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block two[2] = {{cuda(0), 0x1000, 5000}, {cuda(0), 0, 7}};
    two[1].storage = fill_map(t);
    assert_int_equal(memlord_alloc_n(t->lord, two, 2, NULL), MEMLORD_E_NOMEM);
    t->heap.fail_at = 0;
    assert_ok(memlord_alloc_n(t->lord, two, 2, NULL));
    assert_ok(memlord_free_n(t->lord, two, 2, NULL));
    assert_int_equal(memlord_free(t->lord, cuda(0), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_free(t->lord, cuda(0), two[1].storage, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(t->lord, cuda(0)).unknown_frees, 2);
}

static void more_drops_than_are_remembered_are_freed_as_often(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = fill_map(t), i, n = 0;
    for (i = 0; i < 100; i++)
        n += memlord_alloc(t->lord, cpu(), key + (i << 21), 1, NULL) == MEMLORD_E_NOMEM;
    assert_true(n > 64);
    for (i = 0; i < 100; i++) assert_ok(memlord_free(t->lord, cpu(), key + (i << 21), NULL));
    assert_int_equal(stats_of(t->lord, cpu()).unknown_frees, 0);
    assert_ok(memlord_free(t->lord, cpu(), key - (1u << 21), NULL)); /* fill_map's */
    assert_int_equal(memlord_free(t->lord, cpu(), key, NULL), MEMLORD_E_UNKNOWN);
}

/* -- the count of resized storages -- */

static void each_resize_counts_as_a_realloc(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_realloc(lord, cuda(0), 0x1000, 0x2000, 300, NULL));
    assert_ok(memlord_realloc_begin(lord, cuda(0), 0x2000, &token));
    assert_int_equal(stats_of(lord, cuda(0)).reallocs, 1);
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 200, NULL));
    assert_int_equal(stats_of(lord, cuda(0)).reallocs, 2);
    assert_int_equal(stats_of(lord, cuda(0)).allocs, 1);
    assert_int_equal(stats_of(lord, all()).reallocs, 2);
    memlord_reset(lord);
    assert_int_equal(stats_of(lord, cuda(0)).reallocs, 0);
}

static void what_resizes_nothing_is_no_realloc(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_ok(memlord_realloc(lord, cuda(0), 0, 0x1000, 100, NULL)); /* an alloc */
    assert_ok(memlord_realloc(lord, cuda(0), 0x9000, 0x2000, 100, NULL)); /* an unknown one */
    assert_ok(memlord_realloc_begin(lord, cuda(0), 0x1000, &token));
    assert_ok(memlord_realloc_end(lord, &token, 0, 0, NULL)); /* the real one failed */
    assert_ok(memlord_free_begin(lord, cuda(0), 0x2000, &token, NULL));
    assert_ok(memlord_free_end(lord, &token, 0, NULL));
    assert_int_equal(stats_of(lord, all()).reallocs, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(growth_goes_to_total_allocated),
        TEST(shrinkage_goes_to_total_freed_and_freed),
        TEST(the_old_key_is_dead_and_the_new_one_lives),
        TEST(an_old_storage_of_0_is_an_alloc),
        TEST(an_unknown_old_one_is_counted_and_the_new_one_opened),
        TEST(a_bad_new_storage_or_size_changes_nothing),
        TEST(a_new_key_that_is_live_is_closed_first),
        TEST(the_block_keeps_all_it_carries),
        TEST(begin_and_end_keep_it_too),
        TEST(an_end_with_0_brings_it_back_as_it_was),
        TEST(between_begin_and_end_the_bytes_stay_counted),
        TEST(between_begin_and_end_the_old_key_is_another_s),
        TEST(a_second_end_is_refused),
        TEST(a_copy_of_a_token_is_refused),
        TEST(an_end_on_another_ledger_is_refused),
        TEST(a_failed_realloc_may_have_asked_for_any_size),
        TEST(an_end_that_is_refused_may_be_tried_again),
        TEST(a_begin_of_the_unknown_still_opens_at_its_end),
        TEST(a_failed_realloc_of_the_unknown_opens_nothing),
        TEST(a_begin_of_0_is_an_alloc_at_its_end),
        TEST(a_null_token_is_refused),
        TEST(a_begin_that_is_refused_makes_no_token),
        TEST(a_begin_of_the_unknown_on_any_device_opens_on_the_first),
        TEST(many_tokens_can_be_open_at_once),
        TEST(an_end_without_room_counts_the_block_as_dropped),
        TEST(the_free_of_a_dropped_storage_is_known_from_a_double_free),
        TEST(a_realloc_to_a_dropped_storage_ends_what_was_expected_of_it),
        TEST(a_realloc_without_room_leaves_the_block_and_drops_nothing),
        TEST(the_block_of_an_open_realloc_is_counted_and_not_listed),
        TEST(a_moved_realloc_that_is_refused_leaves_the_block),
        TEST(an_alloc_that_is_recorded_after_all_is_freed_once),
        TEST(more_drops_than_are_remembered_are_freed_as_often),
        TEST(each_resize_counts_as_a_realloc),
        TEST(what_resizes_nothing_is_no_realloc),
    };
    return cmocka_run_group_tests_name("realloc", tests, NULL, NULL);
}
