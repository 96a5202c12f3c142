/* Moves: the source ends, the destination begins. */
#include "support.h"

static void the_bytes_change_device(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(1), 0x9000, 128, NULL, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    assert_int_equal(memlord_allocated(lord, cuda(1)), 128);
    assert_int_equal(stats_of(lord, cpu()).live_blocks, 0);
    assert_int_equal(stats_of(lord, cuda(1)).live_blocks, 1);
    assert_balanced(lord, cpu());
    assert_balanced(lord, cuda(1));
}

static void the_destination_counts_it(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(1), 0x9000, 128, NULL, NULL));
    assert_int_equal(stats_of(lord, cuda(1)).moves, 1);
    assert_int_equal(stats_of(lord, cuda(1)).moved_bytes, 128);
    assert_int_equal(stats_of(lord, cpu()).moves, 0);
    assert_int_equal(stats_of(lord, cpu()).moved_bytes, 0);
}

static void the_source_key_is_dead_and_the_destination_lives(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(1), 0x9000, 100, NULL, NULL));
    assert_int_equal(memlord_free(lord, cpu(), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_free(lord, cuda(1), 0x9000, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void all_a_block_carries_goes_along(void **state) {
    memlord *lord = test_lord(state);
    memlord_meta meta;
    memlord_block_info info;
    memlord_tag_stat tag;
    uint64_t born = memlord_mark(lord);
    memset(&meta, 0, sizeof meta);
    meta.name = "tok_embd";
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_retain(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_block_describe(lord, cpu(), 0x1000, &meta));
    memlord_mark(lord);
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x9000, 120, NULL, NULL));
    assert_ok(memlord_block_find(lord, cuda(0), 0x9000, &info));
    assert_int_equal(info.refs, 2);
    assert_int_equal(info.born, born);
    assert_string_equal(info.tag, "weights");
    assert_string_equal(info.meta.name, "tok_embd");
    assert_ok(memlord_tag_get(lord, cuda(0), "weights", &tag));
    assert_int_equal(tag.allocated, 120);
    assert_ok(memlord_tag_get(lord, cpu(), "weights", &tag));
    assert_int_equal(tag.allocated, 0);
}

static void an_unknown_source_is_counted_and_opens_nothing(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x9000, 8, NULL, NULL),
                     MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 1);
    assert_int_equal(stats_of(lord, all()).live_blocks, 0);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void a_fence_without_done_is_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x9000, 8, &fence, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
}

static void bad_arguments_change_nothing(void **state) {
    memlord *lord = test_lord(state);
    memlord_device bad = memlord_device_make(MEMLORD_DEVICE_TYPE_COUNT, 0);
    memlord_stats before, after;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    before = stats_of(lord, all());
    assert_int_equal(memlord_move(lord, cpu(), 0x1000, bad, 0x9000, 8, NULL, NULL),
                     MEMLORD_E_DEVICE);
    assert_int_equal(memlord_move(lord, bad, 0x1000, cpu(), 0x9000, 8, NULL, NULL),
                     MEMLORD_E_DEVICE);
    assert_int_equal(memlord_move(lord, cpu(), 0x1000, cuda(0), 0, 8, NULL, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_move(lord, cpu(), 0x1000, cuda(0), UINT64_MAX, 8, NULL, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(
        memlord_move(lord, cpu(), 0x1000, cuda(0), 0x9000, TEST_MAX_BYTES + 1, NULL, NULL),
        MEMLORD_E_INVALID);
    after = stats_of(lord, all());
    assert_same_books(&before, &after);
}

static void a_live_destination_is_closed_first(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x9000, 10, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x9000, 100, NULL, NULL));
    assert_int_equal(stats_of(lord, all()).implicit_frees, 1);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 100);
    assert_int_equal(stats_of(lord, all()).live_blocks, 1);
    assert_balanced(lord, cuda(0));
}

static void a_move_within_one_device_keeps_one_block(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_move(lord, cuda(0), 0x1000, cuda(0), 0x2000, 100, NULL, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 100);
    assert_int_equal(stats_of(lord, cuda(0)).live_blocks, 1);
    assert_int_equal(stats_of(lord, cuda(0)).implicit_frees, 0);
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
}

static void a_move_onto_itself_only_changes_the_size(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_move(lord, cuda(0), 0x1000, cuda(1), 0x1000, 60, NULL, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_allocated(lord, cuda(1)), 60);
    assert_int_equal(stats_of(lord, all()).live_blocks, 1);
    assert_int_equal(stats_of(lord, all()).implicit_frees, 0);
    assert_ok(memlord_free(lord, cuda(1), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void the_index_of_the_source_is_ignored(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_move(lord, cuda(5), 0x1000, cpu(), 0x2000, 100, NULL, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
}

typedef struct fence_seen {
    int asked, dropped;
} fence_seen;
static int fence_wait(void *user) {
    ((fence_seen *)user)->asked++;
    return 0;
}
static void fence_gone(void *user) { ((fence_seen *)user)->dropped++; }
static memlord_fence fence_to(fence_seen *seen) {
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    memset(seen, 0, sizeof *seen);
    fence.done = fence_wait;
    fence.drop = fence_gone;
    fence.user = seen;
    return fence;
}

/* Memory runs out within a move: in another place of it each time, as more is taken before. */
static void a_move_without_memory_leaves_a_live_destination(void **state) {
    uint64_t taken, i;
    (void)state;
    for (taken = 0; taken < 12; taken++) {
        test_heap heap;
        memlord *lord;
        memlord_desc desc;
        memlord_stats before, after;
        fence_seen seen;
        memlord_fence fence = fence_to(&seen);
        memlord_result r = MEMLORD_OK;
        memset(&heap, 0, sizeof heap);
        desc = test_desc(&heap, MEMLORD_FLAG_EXACT);
        assert_ok(memlord_create(&desc, &lord));
        for (i = 1; i < 1000; i++) {
            assert_ok(memlord_alloc(lord, cuda(0), i * 64, 100, NULL));
            assert_ok(memlord_alloc(lord, cuda(1), (i + 1000) * 64, 30, NULL));
        }
        assert_ok(memlord_alloc(lord, cpu(), 64, 1, NULL));
        heap.fail_at = heap.calls + 1;
        heap.fail_from = 1;
        for (i = 0; i < taken; i++)
            assert_ok(memlord_block_use(lord, i % 2 ? cuda(0) : cuda(1), 64 * (999 - i), fence));
        for (i = 1; r == MEMLORD_OK; i++) {
            before = stats_of(lord, all());
            r = memlord_move(lord, cuda(0), i * 64, cuda(1), (i + 1000) * 64, 5000, &fence, NULL);
        }
        after = stats_of(lord, all());
        assert_int_equal(r, MEMLORD_E_NOMEM);
        assert_same_books(&before, &after);
        assert_int_equal(after.implicit_frees, before.implicit_frees);
        memlord_destroy(lord);
        assert_int_equal(heap.blocks, 0);
    }
}

/* The books have no block to move, but the host has one. */
static void the_fence_of_a_move_of_what_was_dropped_is_dropped_once(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key = (uint64_t)1 << 40;
    fence_seen seen;
    memlord_fence fence = fence_to(&seen);
    assert_ok(memlord_alloc(t->lord, cuda(1), 0x1000, 1, NULL));
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    while (memlord_alloc(t->lord, cuda(0), key, 1, NULL) == MEMLORD_OK) key += 1u << 21;
    t->heap.fail_at = 0;
    t->heap.fail_from = 0;
    assert_ok(memlord_move(t->lord, cuda(0), key, cuda(1), 0x9000, 1, &fence, NULL));
    assert_int_equal(seen.dropped, 1);
    assert_int_equal(seen.asked, 0);
}

/* -- copies: the source stays -- */

static void a_copy_counts_at_its_destination_and_changes_nothing_live(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_copy(lord, cpu(), cuda(1), 100));
    assert_ok(memlord_copy(lord, cpu(), cuda(1), 28));
    assert_int_equal(stats_of(lord, cuda(1)).copies, 2);
    assert_int_equal(stats_of(lord, cuda(1)).copied_bytes, 128);
    assert_int_equal(stats_of(lord, cpu()).copies, 0);
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_int_equal(memlord_allocated(lord, cuda(1)), 0);
    assert_int_equal(stats_of(lord, all()).live_blocks, 1);
    assert_int_equal(stats_of(lord, all()).moves, 0);
}

static void a_copy_refuses_selectors_and_too_many_bytes(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_copy(lord, all(), cuda(0), 1), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_copy(lord, cpu(), cuda(MEMLORD_ANY), 1), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_copy(lord, cpu(), cuda(0), TEST_MAX_BYTES + 1), MEMLORD_E_INVALID);
    assert_int_equal(memlord_devices(lord, NULL, 0), 0);
    assert_ok(memlord_copy(lord, cpu(), cuda(0), TEST_MAX_BYTES));
    assert_int_equal(stats_of(lord, all()).copies, 1);
}

static void a_copy_on_no_ledger_does_nothing(void **state) {
    (void)state;
    assert_ok(memlord_copy(NULL, cpu(), cuda(0), 1));
}

static void a_copy_within_a_device_counts_there(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_copy(lord, cuda(0), cuda(0), 7));
    assert_int_equal(stats_of(lord, cuda(0)).copied_bytes, 7);
}

static void a_reset_starts_copies_over(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_copy(lord, cpu(), cuda(0), 7));
    memlord_reset(lord);
    assert_int_equal(stats_of(lord, cuda(0)).copies, 0);
    assert_int_equal(stats_of(lord, cuda(0)).copied_bytes, 0);
}

/* A pair's first copy needs memory for the pair; the next ones need none. */
static void a_copy_without_memory_counts_nothing(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t pairs = 0;
    int i;
    for (i = 0; i < 100; i++) assert_ok(memlord_arena_add(t->lord, cuda(i), 0, NULL));
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    for (i = 0; i < 10000 && !memlord_copy(t->lord, cuda(i / 100), cuda(i % 100), 1); i++) pairs++;
    assert_true(i < 10000);
    assert_int_equal(memlord_copy(t->lord, cuda(i / 100), cuda(i % 100), 1), MEMLORD_E_NOMEM);
    assert_ok(memlord_copy(t->lord, cuda(0), cuda(0), 1));
    assert_int_equal(stats_of(t->lord, all()).copies, pairs + 1);
    t->heap.fail_at = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_bytes_change_device),
        TEST(the_destination_counts_it),
        TEST(the_source_key_is_dead_and_the_destination_lives),
        TEST(all_a_block_carries_goes_along),
        TEST(an_unknown_source_is_counted_and_opens_nothing),
        TEST(a_fence_without_done_is_refused),
        TEST(bad_arguments_change_nothing),
        TEST(a_live_destination_is_closed_first),
        TEST(a_move_within_one_device_keeps_one_block),
        TEST(a_move_onto_itself_only_changes_the_size),
        TEST(the_index_of_the_source_is_ignored),
        TEST(a_move_without_memory_leaves_a_live_destination),
        TEST(the_fence_of_a_move_of_what_was_dropped_is_dropped_once),
        TEST(a_copy_counts_at_its_destination_and_changes_nothing_live),
        TEST(a_copy_refuses_selectors_and_too_many_bytes),
        cmocka_unit_test(a_copy_on_no_ledger_does_nothing),
        TEST(a_copy_within_a_device_counts_there),
        TEST(a_reset_starts_copies_over),
        TEST(a_copy_without_memory_counts_nothing),
    };
    return cmocka_run_group_tests_name("move", tests, NULL, NULL);
}
