/* Views: references to a storage whose bytes count once. */
#include "support.h"

static uint64_t refs_of(memlord *lord, memlord_device device, uint64_t storage) {
    memlord_block_info info;
    return memlord_block_find(lord, device, storage, &info) == MEMLORD_OK ? info.refs : 0;
}

static void the_first_track_opens_the_storage(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_int_equal(stats_of(lord, cpu()).allocs, 1);
    assert_int_equal(refs_of(lord, cpu(), 0x1000), 1);
}

static void the_next_adds_a_reference_and_no_bytes(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_track(lord, cpu(), 0x1000, 999, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_int_equal(stats_of(lord, cpu()).allocs, 1);
    assert_int_equal(stats_of(lord, cpu()).live_blocks, 1);
    assert_int_equal(stats_of(lord, cpu()).implicit_frees, 0);
    assert_int_equal(refs_of(lord, cpu(), 0x1000), 2);
}

static void a_view_through_another_index_is_a_view(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_track(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_track(lord, cuda(1), 0x1000, 100, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 100);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 100);
    assert_int_equal(refs_of(lord, cuda(0), 0x1000), 2);
}

static void a_retain_adds_a_reference(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_retain(lord, cpu(), 0x1000, NULL));
    assert_int_equal(refs_of(lord, cpu(), 0x1000), 2);
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
}

static void a_retain_of_the_dead_is_unknown(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_retain(lord, cpu(), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_retain(lord, cpu(), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(lord, cpu()).live_blocks, 0);
}

static void the_last_release_ends_the_storage(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_retain(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_release(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_release(lord, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_int_equal(stats_of(lord, cpu()).frees, 0);
    assert_ok(memlord_release(lord, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    assert_int_equal(stats_of(lord, cpu()).frees, 1);
    assert_int_equal(memlord_freed(lord, cpu()), 100);
}

static void a_release_of_the_dead_is_unknown_and_counted(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_release(lord, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_release(lord, cpu(), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 1);
    assert_int_equal(memlord_freed(lord, cpu()), 100);
}

static void a_free_ends_a_shared_storage_and_says_so(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_retain(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(stats_of(lord, cpu()).freed_while_shared, 1);
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    assert_int_equal(memlord_release(lord, cpu(), 0x1000, NULL), MEMLORD_E_UNKNOWN);
}

static void a_free_of_an_unshared_storage_is_no_anomaly(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_retain(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_release(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(stats_of(lord, cpu()).freed_while_shared, 0);
}

static void a_storage_can_have_very_many_views(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i, n = 200000;
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    for (i = 0; i < n; i++) assert_ok(memlord_retain(lord, cpu(), 0x1000, NULL));
    assert_int_equal(refs_of(lord, cpu(), 0x1000), n + 1);
    for (i = 0; i < n; i++) assert_ok(memlord_release(lord, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_ok(memlord_release(lord, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
}

static void track_n_dedups_within_itself(void **state) {
    memlord *lord = test_lord(state);
    memlord_block blocks[3] = {{{MEMLORD_DEVICE_CPU, 0}, 0x1000, 100},
                               {{MEMLORD_DEVICE_CPU, 0}, 0x2000, 10},
                               {{MEMLORD_DEVICE_CPU, 0}, 0x1000, 100}};
    assert_ok(memlord_track_n(lord, blocks, 3, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 110);
    assert_int_equal(refs_of(lord, cpu(), 0x1000), 2);
    assert_int_equal(refs_of(lord, cpu(), 0x2000), 1);
}

static void release_n_drops_one_reference_each(void **state) {
    memlord *lord = test_lord(state);
    memlord_block blocks[3] = {{{MEMLORD_DEVICE_CPU, 0}, 0x1000, 100},
                               {{MEMLORD_DEVICE_CPU, 0}, 0x2000, 10},
                               {{MEMLORD_DEVICE_CPU, 0}, 0x1000, 100}};
    assert_ok(memlord_track_n(lord, blocks, 3, NULL));
    assert_ok(memlord_release_n(lord, blocks, 2, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_int_equal(memlord_release_n(lord, blocks, 2, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 1);
}

static void one_bad_block_and_track_n_records_none(void **state) {
    memlord *lord = test_lord(state);
    memlord_block blocks[2] = {{{MEMLORD_DEVICE_CPU, 0}, 0x1000, 100},
                               {{MEMLORD_DEVICE_CPU, 0}, 0, 10}};
    assert_int_equal(memlord_track_n(lord, blocks, 2, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    assert_int_equal(refs_of(lord, cpu(), 0x1000), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_first_track_opens_the_storage),
        TEST(the_next_adds_a_reference_and_no_bytes),
        TEST(a_view_through_another_index_is_a_view),
        TEST(a_retain_adds_a_reference),
        TEST(a_retain_of_the_dead_is_unknown),
        TEST(the_last_release_ends_the_storage),
        TEST(a_release_of_the_dead_is_unknown_and_counted),
        TEST(a_free_ends_a_shared_storage_and_says_so),
        TEST(a_free_of_an_unshared_storage_is_no_anomaly),
        TEST(a_storage_can_have_very_many_views),
        TEST(track_n_dedups_within_itself),
        TEST(release_n_drops_one_reference_each),
        TEST(one_bad_block_and_track_n_records_none),
    };
    return cmocka_run_group_tests_name("views", tests, NULL, NULL);
}
