/* Storages: opened once, closed once, counted to the byte. */
#include "support.h"

#include <sys/mman.h>
#include <unistd.h>

static void an_alloc_adds_its_bytes(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 300, NULL));
    s = stats_of(lord, cuda(1));
    assert_int_equal(s.allocated, 300);
    assert_int_equal(s.total_allocated, 300);
    assert_int_equal(s.allocs, 1);
    assert_int_equal(s.live_blocks, 1);
    assert_int_equal(s.peak, 300);
    assert_int_equal(s.freed, 0);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
}

static void a_free_takes_them_off_and_credits_them(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 300, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 50, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    s = stats_of(lord, cpu());
    assert_int_equal(s.allocated, 50);
    assert_int_equal(s.freed, 300);
    assert_int_equal(s.total_freed, 300);
    assert_int_equal(s.total_allocated, 350);
    assert_int_equal(s.frees, 1);
    assert_int_equal(s.live_blocks, 1);
    assert_int_equal(s.peak, 350);
}

static void a_key_can_be_used_again_after_its_free(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    for (i = 1; i <= 1000; i++) {
        assert_ok(memlord_alloc(lord, cpu(), 0x1000, i, NULL));
        assert_int_equal(memlord_allocated(lord, cpu()), i);
        assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    }
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    assert_int_equal(stats_of(lord, cpu()).allocs, 1000);
    assert_int_equal(stats_of(lord, cpu()).implicit_frees, 0);
}

static void a_storage_of_0_bytes_is_a_block(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 0, NULL));
    assert_int_equal(stats_of(lord, cpu()).live_blocks, 1);
    assert_int_equal(stats_of(lord, cpu()).allocated, 0);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(stats_of(lord, cpu()).live_blocks, 0);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 0);
}

static void a_size_of_2_to_the_48_is_fine(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, TEST_MAX_BYTES, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), TEST_MAX_BYTES);
    assert_ok(memlord_track(lord, cuda(0), 0x1000, TEST_MAX_BYTES, NULL));
    assert_int_equal(memlord_peak(lord, cuda(0)), TEST_MAX_BYTES);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_freed(lord, cpu()), TEST_MAX_BYTES);
}

static void a_larger_size_is_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_block block = {{MEMLORD_DEVICE_CPU, 0}, 0x1000, TEST_MAX_BYTES + 1};
    uint64_t sizes[3] = {TEST_MAX_BYTES + 1, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    size_t i;
    for (i = 0; i < 3; i++) {
        block.bytes = sizes[i];
        assert_int_equal(memlord_alloc(lord, cpu(), 0x1000, sizes[i], NULL),
                         MEMLORD_E_INVALID);
        assert_int_equal(memlord_track(lord, cpu(), 0x1000, sizes[i], NULL),
                         MEMLORD_E_INVALID);
        assert_int_equal(memlord_realloc(lord, cpu(), 0, 0x1000, sizes[i], NULL),
                         MEMLORD_E_INVALID);
        assert_int_equal(memlord_alloc_n(lord, &block, 1, NULL), MEMLORD_E_INVALID);
        assert_int_equal(memlord_track_n(lord, &block, 1, NULL), MEMLORD_E_INVALID);
    }
    assert_int_equal(stats_of(lord, all()).total_allocated, 0);
    assert_int_equal(stats_of(lord, all()).live_blocks, 0);
}

/* With an address as its key, as the shortest way through the ledger has its own checks. */
static void a_free_on_a_bad_type_is_refused_and_frees_nothing(void **state) {
    memlord *lord = test_lord(state);
    const uint64_t key = 0x7f0000001000;
    int types[3] = {MEMLORD_DEVICE_TYPE_COUNT, INT16_MAX, -2};
    size_t i;
    assert_ok(memlord_alloc(lord, cpu(), key, 8, NULL));
    assert_ok(memlord_alloc(lord, cpu(), key + 64, 8, NULL));
    for (i = 0; i < 3; i++) {
        memlord_device bad = memlord_device_make(types[i], 0);
        assert_int_equal(memlord_free(lord, bad, key, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_release(lord, bad, key, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_free(lord, bad, key + 128, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_alloc(lord, bad, key + 128, 8, NULL), MEMLORD_E_DEVICE);
    }
    assert_int_equal(memlord_allocated(lord, all()), 16);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

static void key_0_and_all_ones_are_refused(void **state) {
    memlord *lord = test_lord(state);
    uint64_t keys[2] = {0, UINT64_MAX};
    size_t i;
    for (i = 0; i < 2; i++) {
        memlord_block block = {{MEMLORD_DEVICE_CPU, 0}, 0, 8};
        block.storage = keys[i];
        assert_int_equal(memlord_alloc(lord, cpu(), keys[i], 8, NULL), MEMLORD_E_INVALID);
        assert_int_equal(memlord_track(lord, cpu(), keys[i], 8, NULL), MEMLORD_E_INVALID);
        assert_int_equal(memlord_retain(lord, cpu(), keys[i], NULL), MEMLORD_E_INVALID);
        assert_int_equal(memlord_realloc(lord, cpu(), 0, keys[i], 8, NULL), MEMLORD_E_INVALID);
        assert_int_equal(memlord_alloc_n(lord, &block, 1, NULL), MEMLORD_E_INVALID);
        assert_int_equal(memlord_track_n(lord, &block, 1, NULL), MEMLORD_E_INVALID);
    }
    assert_int_equal(stats_of(lord, all()).live_blocks, 0);
}

static void their_neighbours_are_keys_like_any(void **state) {
    memlord *lord = test_lord(state);
    uint64_t keys[6] = {1, 2, UINT64_MAX - 1, UINT64_MAX - 2, (uint64_t)1 << 63,
                        ((uint64_t)1 << 48) - 1};
    size_t i;
    for (i = 0; i < 6; i++) assert_ok(memlord_alloc(lord, cpu(), keys[i], i + 1, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 21);
    for (i = 0; i < 6; i++) {
        memlord_block_info info;
        assert_ok(memlord_block_find(lord, cpu(), keys[i], &info));
        assert_int_equal(info.storage, keys[i]);
        assert_int_equal(info.bytes, i + 1);
        assert_ok(memlord_free(lord, cpu(), keys[i], NULL));
    }
    assert_int_equal(stats_of(lord, cpu()).live_blocks, 0);
}

static void freeing_0_is_a_no_op(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_free(lord, cpu(), 0, NULL));
    assert_ok(memlord_release(lord, cpu(), 0, NULL));
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_int_equal(stats_of(lord, all()).frees, 0);
}

static void freeing_all_ones_is_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_free(lord, cpu(), UINT64_MAX, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_release(lord, cpu(), UINT64_MAX, NULL), MEMLORD_E_INVALID);
}

static void an_unknown_free_is_counted_on_the_device_it_names(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 10, NULL));
    assert_int_equal(memlord_free(lord, cuda(3), 0x2000, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(lord, cuda(3)).unknown_frees, 1);
    assert_int_equal(stats_of(lord, cuda(0)).unknown_frees, 0);
    assert_int_equal(memlord_allocated(lord, all()), 10);
    assert_int_equal(stats_of(lord, all()).frees, 0);
}

static void a_double_free_is_credited_once(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats before, after;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 10, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    before = stats_of(lord, cpu());
    assert_int_equal(memlord_free(lord, cpu(), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    after = stats_of(lord, cpu());
    assert_same_books(&before, &after);
    assert_int_equal(after.unknown_frees, 1);
}

static void an_alloc_over_a_live_storage_closes_the_old_one(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 30, NULL));
    s = stats_of(lord, cpu());
    assert_int_equal(s.implicit_frees, 1);
    assert_int_equal(s.allocated, 30);
    assert_int_equal(s.freed, 100);
    assert_int_equal(s.allocs, 2);
    assert_int_equal(s.frees, 1);
    assert_int_equal(s.live_blocks, 1);
    assert_int_equal(s.peak, 100);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
}

static void the_stale_one_is_debited_where_it_lived(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 30, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_freed(lord, cuda(0)), 100);
    assert_int_equal(memlord_allocated(lord, cuda(1)), 30);
    assert_int_equal(stats_of(lord, all()).implicit_frees, 1);
    assert_int_equal(stats_of(lord, all()).live_blocks, 1);
}

static void an_alloc_over_a_shared_storage_drops_its_views(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_retain(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 30, NULL));
    assert_ok(memlord_block_find(lord, cpu(), 0x1000, &info));
    assert_int_equal(info.refs, 1);
    assert_ok(memlord_release(lord, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
}

static void a_free_ignores_the_index_of_its_device(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 100, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(1)), 0);
    assert_int_equal(memlord_freed(lord, cuda(1)), 100);
    assert_int_equal(memlord_freed(lord, cuda(0)), 0);
}

static void equal_keys_of_two_types_never_collide(void **state) {
    memlord *lord = test_lord(state);
    int type;
    for (type = 0; type < MEMLORD_DEVICE_TYPE_COUNT; type++)
        assert_ok(memlord_alloc(lord, memlord_device_make(type, 0), 0x1000,
                                (uint64_t)type + 1, NULL));
    assert_int_equal(stats_of(lord, all()).implicit_frees, 0);
    for (type = 0; type < MEMLORD_DEVICE_TYPE_COUNT; type++) {
        memlord_device device = memlord_device_make(type, 0);
        assert_int_equal(memlord_allocated(lord, device), type + 1);
        assert_ok(memlord_free(lord, device, 0x1000, NULL));
        assert_int_equal(memlord_free(lord, device, 0x1000, NULL), MEMLORD_E_UNKNOWN);
    }
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void two_ledgers_know_nothing_of_each_other(void **state) {
    memlord *lord = test_lord(state), *other = NULL;
    assert_ok(memlord_create(NULL, &other));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(memlord_free(other, cpu(), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_alloc(other, cpu(), 0x1000, 7, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_int_equal(memlord_allocated(other, cpu()), 7);
    memlord_destroy(other);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
}

static void many_blocks_are_all_found_again(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i, n = 100000, bytes = 0;
    for (i = 1; i <= n; i++) {
        assert_ok(memlord_alloc(lord, cpu(), i * 4096, i, NULL));
        bytes += i;
    }
    assert_int_equal(memlord_allocated(lord, cpu()), bytes);
    for (i = n; i >= 1; i--) assert_ok(memlord_free(lord, cpu(), i * 4096, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    assert_int_equal(stats_of(lord, cpu()).frees, n);
}

static void live_bytes_never_wrap(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i, opened = 0;
    for (i = 1; i <= 70000; i++) {
        memlord_result r = memlord_alloc(lord, cpu(), i * 64, TEST_MAX_BYTES, NULL);
        if (r != MEMLORD_OK) assert_int_equal(r, MEMLORD_E_INVALID);
        opened += r == MEMLORD_OK;
        assert_int_equal(memlord_allocated(lord, cpu()), opened << 48);
    }
    assert_in_range(opened, (uint64_t)1 << 14, 65535); /* 2^62 bytes and no wrap */
    assert_int_equal(memlord_peak(lord, cpu()), opened << 48);
    assert_balanced(lord, cpu());
}

/* All calls that record refuse what would pass 2^62 bytes on a device, and change nothing. */
static void no_call_passes_2_to_the_62_bytes(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    memlord_stats before, after;
    uint64_t i;
    for (i = 0; i < 16383; i++) assert_ok(memlord_arena_add(lord, cpu(), TEST_MAX_BYTES, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, (uint64_t)1 << 33, NULL)); /* over a batch */
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1, NULL));
    before = stats_of(lord, cpu());
    assert_int_equal(before.allocated, ((uint64_t)16383 << 48) + ((uint64_t)1 << 33));
    assert_int_equal(memlord_alloc(lord, cpu(), 0x2000, TEST_MAX_BYTES, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_track(lord, cpu(), 0x2000, TEST_MAX_BYTES, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_arena_add(lord, cpu(), TEST_MAX_BYTES, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_realloc(lord, cpu(), 0x1000, 0x2000, TEST_MAX_BYTES, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_move(lord, cuda(0), 0x1000, cpu(), 0x2000, TEST_MAX_BYTES, NULL,
                                  NULL),
                     MEMLORD_E_INVALID);
    after = stats_of(lord, cpu());
    assert_same_books(&before, &after);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 1);
    assert_ok(memlord_realloc_begin(lord, cpu(), 0x1000, &token));
    assert_int_equal(memlord_realloc_end(lord, &token, 0x2000, TEST_MAX_BYTES, NULL),
                     MEMLORD_E_INVALID);
    assert_ok(memlord_realloc_end(lord, &token, 0, 0, NULL)); /* the token still has the block */
    after = stats_of(lord, cpu());
    assert_same_books(&before, &after);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, TEST_MAX_BYTES, NULL)); /* 2^62 itself is legal */
}

/* -- n at once -- */

static void fill(memlord_block *blocks, size_t n, uint64_t bytes) {
    size_t i;
    for (i = 0; i < n; i++) {
        blocks[i].device = cuda((int)(i % 2));
        blocks[i].storage = (i + 1) * 512;
        blocks[i].bytes = bytes;
    }
}

static void alloc_n_opens_every_block(void **state) {
    memlord *lord = test_lord(state);
    memlord_block blocks[100];
    fill(blocks, 100, 10);
    assert_ok(memlord_alloc_n(lord, blocks, 100, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 500);
    assert_int_equal(memlord_allocated(lord, cuda(1)), 500);
    assert_int_equal(stats_of(lord, all()).allocs, 100);
}

static void free_n_closes_every_block_and_ignores_bytes(void **state) {
    memlord *lord = test_lord(state);
    memlord_block blocks[100];
    fill(blocks, 100, 10);
    assert_ok(memlord_alloc_n(lord, blocks, 100, NULL));
    fill(blocks, 100, UINT64_MAX);
    assert_ok(memlord_free_n(lord, blocks, 100, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).frees, 100);
}

static void one_bad_block_and_alloc_n_records_none(void **state) {
    memlord *lord = test_lord(state);
    memlord_block blocks[10];
    memlord_stats s;
    fill(blocks, 10, 10);
    blocks[9].storage = UINT64_MAX;
    assert_int_equal(memlord_alloc_n(lord, blocks, 10, NULL), MEMLORD_E_INVALID);
    fill(blocks, 10, 10);
    blocks[9].bytes = TEST_MAX_BYTES + 1;
    assert_int_equal(memlord_alloc_n(lord, blocks, 10, NULL), MEMLORD_E_INVALID);
    fill(blocks, 10, 10);
    blocks[9].device = memlord_device_make(MEMLORD_DEVICE_TYPE_COUNT, 0);
    assert_int_equal(memlord_alloc_n(lord, blocks, 10, NULL), MEMLORD_E_DEVICE);
    s = stats_of(lord, all());
    assert_int_equal(s.allocs, 0);
    assert_int_equal(s.total_allocated, 0);
    assert_int_equal(s.live_blocks, 0);
}

static void sizes_whose_sum_overflows_are_refused(void **state) {
    memlord *lord = test_lord(state);
    size_t n = 65537;
    memlord_block *blocks = (memlord_block *)malloc(n * sizeof *blocks);
    assert_non_null(blocks);
    fill(blocks, n, TEST_MAX_BYTES);
    assert_int_equal(memlord_alloc_n(lord, blocks, n, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_track_n(lord, blocks, n, NULL), MEMLORD_E_INVALID);
    assert_int_equal(stats_of(lord, all()).live_blocks, 0);
    assert_int_equal(memlord_allocated(lord, all()), 0);
    free(blocks);
}

/* It lies at the end of a page, and nothing can be read after it. */
static void the_block_after_the_last_is_not_read(void **state) {
    memlord *lord = test_lord(state);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = (char *)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                               -1, 0);
    memlord_block *blocks;
    int64_t short_by;
    assert_true(pages != (char *)MAP_FAILED);
    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    blocks = (memlord_block *)(void *)(pages + page) - 3;
    fill(blocks, 3, 10);
    (void)memlord_plan_fit(lord, blocks, 3, &short_by);
    assert_ok(memlord_alloc_n(lord, blocks, 3, NULL));
    assert_ok(memlord_track_n(lord, blocks, 3, NULL));
    assert_ok(memlord_release_n(lord, blocks, 3, NULL));
    assert_int_equal(stats_of(lord, all()).live_blocks, 3);
    assert_ok(memlord_free_n(lord, blocks, 3, NULL));
    assert_int_equal(memlord_free_n(lord, blocks, 3, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 3);
    assert_int_equal(munmap(pages, 2 * page), 0);
}

static void no_blocks_at_all_are_fine(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc_n(lord, NULL, 0, NULL));
    assert_ok(memlord_free_n(lord, NULL, 0, NULL));
    assert_ok(memlord_track_n(lord, NULL, 0, NULL));
    assert_ok(memlord_release_n(lord, NULL, 0, NULL));
}

static void blocks_that_are_null_are_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_alloc_n(lord, NULL, 1, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_free_n(lord, NULL, 1, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_track_n(lord, NULL, 1, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_release_n(lord, NULL, 1, NULL), MEMLORD_E_INVALID);
}

static void free_n_counts_the_dead_and_frees_the_rest(void **state) {
    memlord *lord = test_lord(state);
    memlord_block blocks[10];
    fill(blocks, 10, 10);
    assert_ok(memlord_alloc_n(lord, blocks, 10, NULL));
    assert_ok(memlord_free(lord, cuda(0), blocks[4].storage, NULL));
    assert_int_equal(memlord_free_n(lord, blocks, 10, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).frees, 10);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
}

static void one_key_twice_in_alloc_n_is_an_implicit_free(void **state) {
    memlord *lord = test_lord(state);
    memlord_block blocks[3];
    fill(blocks, 3, 10);
    blocks[2].storage = blocks[0].storage;
    assert_ok(memlord_alloc_n(lord, blocks, 3, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 20);
    assert_int_equal(stats_of(lord, all()).implicit_frees, 1);
    assert_int_equal(stats_of(lord, all()).live_blocks, 2);
}

static void one_key_twice_in_free_n_is_credited_once(void **state) {
    memlord *lord = test_lord(state);
    memlord_block blocks[2];
    fill(blocks, 2, 10);
    assert_ok(memlord_alloc_n(lord, blocks, 2, NULL));
    blocks[1] = blocks[0];
    assert_int_equal(memlord_free_n(lord, blocks, 2, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_allocated(lord, all()), 10);
    assert_int_equal(memlord_freed(lord, all()), 10);
}

/* -- without memory -- */

static void no_memory(test_case *t, int none) {
    t->heap.fail_at = none ? t->heap.calls + 1 : 0;
    t->heap.fail_from = none;
}

/* Takes the memory away and all room that is left: answers a key there is no room for. */
static uint64_t fill_up(test_case *t) {
    uint64_t key = (uint64_t)1 << 40;
    no_memory(t, 1);
    while (memlord_alloc(t->lord, cpu(), key, 1, NULL) == MEMLORD_OK) key += 1u << 21;
    return key;
}

/* One block that there is a place for, as `storage`, and one that there is none for. */
static void two_blocks(memlord_block *blocks, uint64_t storage, uint64_t none) {
    blocks[0].device = cuda(0);
    blocks[0].storage = storage;
    blocks[0].bytes = 5000;
    blocks[1].device = cpu();
    blocks[1].storage = none;
    blocks[1].bytes = 7;
}

static void alloc_n_without_room_leaves_what_it_was_to_replace(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block blocks[2];
    memlord_block_info info;
    memlord_stats before, after;
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    meta.name = "wte";
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_retain(t->lord, cuda(0), 0x1000, NULL));
    assert_ok(memlord_block_describe(t->lord, cuda(0), 0x1000, &meta));
    two_blocks(blocks, 0x1000, fill_up(t));
    before = stats_of(t->lord, all());
    assert_int_equal(memlord_alloc_n(t->lord, blocks, 2, NULL), MEMLORD_E_NOMEM);
    after = stats_of(t->lord, all());
    assert_same_books(&before, &after);
    assert_int_equal(after.implicit_frees, 0);
    assert_int_equal(after.dropped_allocs - before.dropped_allocs, 2);
    assert_int_equal(after.dropped_bytes - before.dropped_bytes, 5007);
    assert_ok(memlord_block_find(t->lord, cuda(0), 0x1000, &info));
    assert_int_equal(info.bytes, 100);
    assert_int_equal(info.refs, 2);
    assert_string_equal(info.meta.name, "wte");
}

static void a_double_free_after_a_failed_alloc_n_is_unknown(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block blocks[2];
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 100, NULL));
    two_blocks(blocks, 0x1000, fill_up(t));
    blocks[1].device = cuda(0);
    assert_int_equal(memlord_alloc_n(t->lord, blocks, 2, NULL), MEMLORD_E_NOMEM);
    assert_ok(memlord_free(t->lord, cuda(0), 0x1000, NULL));
    assert_ok(memlord_free(t->lord, cuda(0), blocks[1].storage, NULL)); /* it was dropped */
    assert_int_equal(memlord_free(t->lord, cuda(0), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(t->lord, cuda(0)).unknown_frees, 1);
}

static void alloc_n_without_room_leaves_the_peak(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block blocks[2];
    memlord_stats before, after;
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x7f0000001000, 100, NULL));
    two_blocks(blocks, 0x7f0000002000, fill_up(t));
    before = stats_of(t->lord, all());
    assert_int_equal(memlord_alloc_n(t->lord, blocks, 2, NULL), MEMLORD_E_NOMEM);
    after = stats_of(t->lord, all());
    assert_same_books(&before, &after);
}

static void an_alloc_without_room_leaves_the_peak(void **state) {
    test_case *t = (test_case *)*state;
    memlord_stats before, after;
    memlord_result r = MEMLORD_OK;
    uint64_t i;
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x7f0000001000, 1, NULL));
    no_memory(t, 1);
    for (i = 1; r == MEMLORD_OK; i++) {
        before = stats_of(t->lord, all());
        r = memlord_alloc(t->lord, cuda(0), 0x7f0000001000 + i * 64, 1000, NULL);
    }
    after = stats_of(t->lord, all());
    assert_int_equal(r, MEMLORD_E_NOMEM);
    assert_same_books(&before, &after);
    assert_int_equal(after.dropped_allocs, 1);
}

static void track_n_without_room_gives_its_views_back(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block blocks[3];
    memlord_block_info info;
    memlord_stats before, after;
    uint64_t none;
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x7f0000001000, 100, NULL));
    none = fill_up(t);
    two_blocks(blocks, 0x7f0000002000, none);
    two_blocks(blocks + 1, 0x7f0000001000, none);
    before = stats_of(t->lord, all());
    assert_int_equal(memlord_track_n(t->lord, blocks, 3, NULL), MEMLORD_E_NOMEM);
    after = stats_of(t->lord, all());
    assert_same_books(&before, &after);
    assert_ok(memlord_block_find(t->lord, cuda(0), 0x7f0000001000, &info));
    assert_int_equal(info.refs, 1);
    assert_int_equal(memlord_block_find(t->lord, cuda(0), 0x7f0000002000, &info),
                     MEMLORD_E_UNKNOWN);
}

/* The view is taken before the memory of a later block is not there. */
static void track_n_gives_back_a_view_that_it_has_taken(void **state) {
    test_case *t = (test_case *)*state;
    static memlord_block blocks[4000];
    memlord_block_info info;
    memlord_result r = MEMLORD_E_NOMEM;
    uint64_t n, i, failed = 0;
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 100, NULL));
    for (i = 0; i < 4000; i++) {
        blocks[i].device = cuda(0);
        blocks[i].storage = i ? i << 21 : 0x1000; /* each in a part of the map of its own */
        blocks[i].bytes = 100;
    }
    for (n = 1; r; n++) {
        t->heap.fail_at = t->heap.calls + n;
        r = memlord_track_n(t->lord, blocks, 4000, NULL);
        t->heap.fail_at = 0;
        assert_ok(memlord_block_find(t->lord, cuda(0), 0x1000, &info));
        assert_int_equal(info.refs, r ? 1 : 2);
        assert_int_equal(memlord_allocated(t->lord, cuda(0)), r ? 100 : 400000);
        failed += r != MEMLORD_OK;
    }
    assert_true(failed > 0);
}

static int never_done(void *user) {
    ++*(int *)user;
    return 0;
}

static void without_room_what_is_pending_stays_so(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block blocks[2];
    memlord_block_info info;
    memlord_stats before, after;
    memlord_fence fence;
    int asked = 0;
    memset(&fence, 0, sizeof fence);
    fence.done = never_done;
    fence.user = &asked;
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_free_deferred(t->lord, cuda(0), 0x1000, fence, NULL));
    two_blocks(blocks, 0x1000, fill_up(t));
    before = stats_of(t->lord, all());
    assert_int_equal(memlord_alloc_n(t->lord, blocks, 2, NULL), MEMLORD_E_NOMEM);
    assert_int_equal(memlord_track_n(t->lord, blocks, 2, NULL), MEMLORD_E_NOMEM);
    after = stats_of(t->lord, all());
    assert_same_books(&before, &after);
    assert_ok(memlord_block_find(t->lord, cuda(0), 0x1000, &info));
    assert_int_equal(info.pending, 1);
    no_memory(t, 0);
    assert_ok(memlord_track_n(t->lord, blocks, 2, NULL));
    assert_ok(memlord_block_find(t->lord, cuda(0), 0x1000, &info));
    assert_int_equal(info.pending, 0);
    assert_int_equal(info.bytes, 5000);
}

static void alloc_n_has_the_peak_of_one_by_one(void **state) {
    memlord *lord = test_lord(state);
    memlord_block blocks[2];
    fill(blocks, 2, 100);
    blocks[0].device = blocks[1].device = cuda(0);
    blocks[1].bytes = 1000;
    assert_ok(memlord_alloc(lord, cuda(0), blocks[0].storage, 1000, NULL));
    assert_ok(memlord_alloc_n(lord, blocks, 2, NULL));
    assert_int_equal(memlord_peak(lord, cuda(0)), 1100);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 1100);
    assert_int_equal(stats_of(lord, cuda(0)).implicit_frees, 1);
}

static void more_tracks_than_an_entry_can_count_are_all_views(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    int i;
    for (i = 0; i < 130; i++) assert_ok(memlord_track(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_block_find(lord, cuda(0), 0x1000, &info));
    assert_int_equal(info.refs, 130);
    for (i = 0; i < 130; i++) assert_ok(memlord_release(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(stats_of(lord, cuda(0)).live_blocks, 0);
    assert_int_equal(stats_of(lord, cuda(0)).total_allocated, 100);
}

/* -- unknown storages on a device that cannot be made known -- */

static void ends_of_the_unknown_are_counted_without_memory(void **state) {
    test_case *t = (test_case *)*state;
    memlord_realloc_token token;
    memlord_fence fence;
    memlord_block block;
    uint64_t n = 0, before;
    int i, asked = 0;
    memset(&fence, 0, sizeof fence);
    fence.done = never_done;
    fence.user = &asked;
    assert_ok(memlord_alloc(t->lord, cpu(), 0x1000, 1, NULL));
    no_memory(t, 1);
    before = stats_of(t->lord, all()).unknown_frees;
    for (i = 1; i < 100; i++) {
        memlord_device d = memlord_device_make(MEMLORD_DEVICE_OTHER, i);
        block.device = d;
        block.storage = 0x7000;
        block.bytes = 0;
        assert_int_equal(memlord_free(t->lord, d, 0x7000, NULL), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_release(t->lord, d, 0x7000, NULL), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_free_n(t->lord, &block, 1, NULL), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_release_n(t->lord, &block, 1, NULL), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_realloc_begin(t->lord, d, 0x7000, &token), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_free_begin(t->lord, d, 0x7000, &token, NULL), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_free_deferred(t->lord, d, 0x7000, fence, NULL),
                         MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_move(t->lord, d, 0x7000, cpu(), (uint64_t)(i + 1) << 21, 1, NULL,
                                      NULL), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_move(t->lord, d, 0x7000, cpu(), (uint64_t)(i + 1) << 21, 1,
                                      &fence, NULL), MEMLORD_E_UNKNOWN);
        n += 9;
        assert_int_equal(memlord_retain(t->lord, d, 0x7000, NULL), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_block_use(t->lord, d, 0x7000, fence), MEMLORD_E_UNKNOWN);
    }
    assert_true(t->heap.failed > 0);
    assert_int_equal(stats_of(t->lord, all()).unknown_frees, before + n);
    assert_int_equal(asked, 0);
    memlord_reset(t->lord);
    assert_int_equal(stats_of(t->lord, all()).unknown_frees, 0);
}

static void free_n_goes_on_past_one_device_too_many(void **state) {
    memlord *lord = test_lord(state);
    memlord_block blocks[2];
    int n = 0;
    while (memlord_alloc(lord, memlord_device_make(MEMLORD_DEVICE_OTHER, n),
                         (uint64_t)(n + 1) * 64, 8, NULL) == MEMLORD_OK)
        n++;
    assert_ok(memlord_free(lord, memlord_device_make(MEMLORD_DEVICE_OTHER, n),
                           (uint64_t)(n + 1) * 64, NULL)); /* the one that was dropped */
    fill(blocks, 2, 0);
    blocks[1].device = memlord_device_make(MEMLORD_DEVICE_OTHER, 0);
    blocks[1].storage = 64;
    assert_int_equal(memlord_free_n(lord, blocks, 2, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_allocated(lord, all()), 8 * (n - 1));
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_alloc_adds_its_bytes),
        TEST(a_free_takes_them_off_and_credits_them),
        TEST(a_key_can_be_used_again_after_its_free),
        TEST(a_storage_of_0_bytes_is_a_block),
        TEST(a_size_of_2_to_the_48_is_fine),
        TEST(a_larger_size_is_refused),
        TEST(a_free_on_a_bad_type_is_refused_and_frees_nothing),
        TEST(key_0_and_all_ones_are_refused),
        TEST(their_neighbours_are_keys_like_any),
        TEST(freeing_0_is_a_no_op),
        TEST(freeing_all_ones_is_refused),
        TEST(an_unknown_free_is_counted_on_the_device_it_names),
        TEST(a_double_free_is_credited_once),
        TEST(an_alloc_over_a_live_storage_closes_the_old_one),
        TEST(the_stale_one_is_debited_where_it_lived),
        TEST(an_alloc_over_a_shared_storage_drops_its_views),
        TEST(a_free_ignores_the_index_of_its_device),
        TEST(equal_keys_of_two_types_never_collide),
        TEST(two_ledgers_know_nothing_of_each_other),
        TEST(many_blocks_are_all_found_again),
        TEST(live_bytes_never_wrap),
        TEST(no_call_passes_2_to_the_62_bytes),
        TEST(alloc_n_opens_every_block),
        TEST(free_n_closes_every_block_and_ignores_bytes),
        TEST(one_bad_block_and_alloc_n_records_none),
        TEST(sizes_whose_sum_overflows_are_refused),
        TEST(the_block_after_the_last_is_not_read),
        TEST(no_blocks_at_all_are_fine),
        TEST(blocks_that_are_null_are_refused),
        TEST(free_n_counts_the_dead_and_frees_the_rest),
        TEST(one_key_twice_in_alloc_n_is_an_implicit_free),
        TEST(one_key_twice_in_free_n_is_credited_once),
        TEST_EXACT(alloc_n_without_room_leaves_what_it_was_to_replace),
        TEST(a_double_free_after_a_failed_alloc_n_is_unknown),
        TEST_EXACT(alloc_n_without_room_leaves_the_peak),
        TEST_EXACT(an_alloc_without_room_leaves_the_peak),
        TEST_EXACT(track_n_without_room_gives_its_views_back),
        TEST_EXACT(track_n_gives_back_a_view_that_it_has_taken),
        TEST_EXACT(without_room_what_is_pending_stays_so),
        TEST_EXACT(alloc_n_has_the_peak_of_one_by_one),
        TEST(more_tracks_than_an_entry_can_count_are_all_views),
        TEST(ends_of_the_unknown_are_counted_without_memory),
        TEST(free_n_goes_on_past_one_device_too_many),
    };
    return cmocka_run_group_tests_name("track", tests, NULL, NULL);
}
