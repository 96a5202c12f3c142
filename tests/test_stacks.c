/* Stacks: the return addresses of allocs, every one or a sample. */
#include "support.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "json.h"

/* The unwinder of the tests: the frames that a test has set, the innermost first. */
typedef struct fake_stack {
    void *frames[200];
    size_t depth;
    uint64_t calls;
    memlord *allocates; /* it allocates there: blocks of 7 bytes from key 0x900000 on */
} fake_stack;
static fake_stack fake;

static size_t fake_unwind(void *user, void **frames, size_t cap) {
    fake_stack *f = (fake_stack *)user;
    size_t i;
    __atomic_add_fetch(&f->calls, 1, __ATOMIC_RELAXED);
    if (f->allocates)
        assert_ok(memlord_alloc(f->allocates, cpu(), 0x900000 + f->calls * 64, 7, NULL));
    for (i = 0; i < cap && i < f->depth; i++) frames[i] = f->frames[i];
    return i;
}

/* Sets the frames: letters, the innermost first; a letter is the address 0x1000 + the letter. */
static void at(const char *letters) {
    size_t i;
    fake.depth = strlen(letters);
    for (i = 0; i < fake.depth; i++) fake.frames[i] = (void *)(uintptr_t)(0x1000 + letters[i]);
}

static int open_stacks(void **state, uint32_t depth, uint64_t bytes, uint32_t flags) {
    test_case *t = (test_case *)calloc(1, sizeof *t);
    memlord_desc desc;
    if (!t) return -1;
    memset(&fake, 0, sizeof fake);
    desc = test_desc(&t->heap, flags);
    desc.stack_depth = depth;
    desc.stack_bytes = bytes;
    desc.unwinder.fn = fake_unwind;
    desc.unwinder.user = &fake;
    *state = t;
    return memlord_create(&desc, &t->lord) == MEMLORD_OK && t->lord ? 0 : -1;
}
static int setup_every(void **state) { return open_stacks(state, 8, 1, 0); }
static int setup_sampled(void **state) { return open_stacks(state, 8, 1024, 0); }
static int setup_large_samples(void **state) {
    return open_stacks(state, 8, (uint64_t)1 << 40, 0);
}
static int setup_mean(void **state) { return open_stacks(state, 8, 0, 0); }
static int setup_sampled_sites(void **state) {
    return open_stacks(state, 8, 1024, MEMLORD_FLAG_SITES);
}
/* A sample each MiB: blocks of a few bytes are taken once in 10^5 runs or less often. */
static int setup_rare_sites(void **state) {
    return open_stacks(state, 8, 1 << 20, MEMLORD_FLAG_SITES);
}
static int setup_sites(void **state) { return open_stacks(state, 8, 1, MEMLORD_FLAG_SITES); }

static const memlord_site places[] = {
    {"a.c", "first", 1}, {"b.c", "second", 2}, {"c.c", "third", 3}};

/* The row of a stack on a device, by its letters; zeros if there is none. */
static memlord_stack_stat stack_of(memlord *lord, memlord_device device, const char *letters) {
    memlord_stack_stat rows[256], none;
    size_t i, j, n = memlord_stacks_top(lord, device, MEMLORD_SITE_ORDER_PEAK_BYTES, rows, 256);
    memset(&none, 0, sizeof none);
    for (i = 0; i < n; i++) {
        if (rows[i].depth && !rows[i].frames[rows[i].depth - 1]) rows[i].depth--; /* it is cut */
        if (rows[i].depth != strlen(letters)) continue;
        for (j = 0; j < rows[i].depth; j++)
            if (rows[i].frames[j] != (void *)(uintptr_t)(0x1000 + letters[j])) break;
        if (j == rows[i].depth) return rows[i];
    }
    return none;
}
/* Allocates and frees a block under one frame after the other, which holds so many bytes. */
static void run_phases(memlord *lord) {
    static const struct {
        const char *frame;
        uint64_t bytes;
    } phases[] = {{"a", 100}, {"b", 100}, {"c", 120}};
    size_t i;
    for (i = 0; i < 3; i++) {
        at(phases[i].frame);
        assert_ok(memlord_alloc(lord, cpu(), 0x1000, phases[i].bytes, NULL));
        assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    }
}
static uint64_t live_of(memlord *lord, const char *letters) {
    return stack_of(lord, all(), letters).live_bytes;
}
/* The live bytes of all stacks. */
static uint64_t live_in_all(memlord *lord) {
    static memlord_stack_stat rows[4096];
    size_t i, n = memlord_stacks_top(lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, rows, 4096);
    uint64_t sum = 0;
    assert_true(n < 4096);
    for (i = 0; i < n; i++) sum += rows[i].live_bytes;
    return sum;
}

static void there_are_none_until_a_depth_is_set(void **state) {
    memlord *lord = test_lord(state);
    memlord_stack_stat row;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(memlord_stacks_top(lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, &row, 1), 0);
}

static void a_depth_over_128_is_refused(void **state) {
    memlord_desc desc;
    memlord *lord;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.stack_depth = 129;
    assert_int_equal(memlord_create(&desc, &lord), MEMLORD_E_INVALID);
    assert_null(lord);
}

static void every_alloc_counts_on_its_stack(void **state) {
    memlord *lord = test_lord(state);
    memlord_stack_stat row;
    at("abc");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, NULL));
    at("bc");
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 3, NULL));
    row = stack_of(lord, cpu(), "abc");
    assert_int_equal(row.allocs, 2);
    assert_int_equal(row.samples, 2);
    assert_int_equal(row.alloc_bytes, 120);
    assert_int_equal(row.live_bytes, 120);
    assert_int_equal(row.peak_bytes, 120);
    assert_int_equal(row.error_bytes, 0);
    assert_int_equal(row.depth, 3);
    assert_int_equal(row.device.type, MEMLORD_DEVICE_CPU);
    assert_int_equal(live_of(lord, "bc"), 3);
    assert_int_equal(live_of(lord, "c"), 0);
}

static void a_listed_stack_has_the_sites_of_its_frames(void **state) {
    memlord *lord = test_lord(state);
    memlord_stack_stat row;
    memlord_place place;
    uint32_t i;
    at("abc");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(memlord_stacks_top(lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, &row, 1), 1);
    assert_int_equal(row.depth, 3);
    for (i = 0; i < 3; i++) {
        assert_ptr_equal(memlord_site_address(lord, row.sites[i]), row.frames[i]);
        assert_ok(memlord_site_place(lord, row.sites[i], &place));
        assert_int_equal(place.offset, 0x1060 + i);
    }
}

static void an_alloc_of_no_bytes_counts(void **state) {
    memlord *lord = test_lord(state);
    memlord_stack_stat row;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 0, NULL));
    assert_int_equal(memlord_stacks_top(lord, all(), MEMLORD_SITE_ORDER_ALLOCS, &row, 1), 1);
    assert_int_equal(row.allocs, 1);
    assert_int_equal(row.alloc_bytes, 0);
}

static void a_free_takes_off_exactly_its_block(void **state) {
    memlord *lord = test_lord(state);
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, NULL));
    at("c");
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(live_of(lord, "ab"), 20);
    assert_int_equal(stack_of(lord, cpu(), "ab").peak_bytes, 120);
    assert_int_equal(stack_of(lord, cpu(), "ab").alloc_bytes, 120);
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
    assert_int_equal(live_of(lord, "ab"), 0);
}

static void one_stack_on_two_devices_is_two_rows(void **state) {
    memlord *lord = test_lord(state);
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 7, NULL));
    assert_int_equal(stack_of(lord, cpu(), "ab").live_bytes, 100);
    assert_int_equal(stack_of(lord, cuda(1), "ab").live_bytes, 7);
    assert_ok(memlord_free(lord, cuda(1), 0x1000, NULL));
    assert_int_equal(stack_of(lord, cpu(), "ab").live_bytes, 100);
    assert_int_equal(stack_of(lord, cuda(1), "ab").live_bytes, 0);
}

static void the_list_is_sorted_and_cut(void **state) {
    memlord *lord = test_lord(state);
    memlord_stack_stat rows[2];
    at("a");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 10, NULL));
    at("b");
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 30, NULL));
    at("c");
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 20, NULL));
    assert_int_equal(memlord_stacks_top(lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, rows, 2), 2);
    assert_int_equal(rows[0].live_bytes, 30);
    assert_int_equal(rows[1].live_bytes, 20);
    assert_int_equal(memlord_stacks_top(lord, all(), (memlord_site_order)9, rows, 2), 0);
    assert_int_equal(memlord_stacks_top(NULL, all(), MEMLORD_SITE_ORDER_ALLOCS, rows, 2), 0);
    assert_int_equal(memlord_stacks_top(lord, all(), MEMLORD_SITE_ORDER_ALLOCS, NULL, 2), 0);
    assert_int_equal(memlord_stacks_top(lord, cuda(-2), MEMLORD_SITE_ORDER_ALLOCS, rows, 2), 0);
}

static void a_stack_deeper_than_the_bound_keeps_its_innermost_frames(void **state) {
    memlord *lord = test_lord(state);
    at("abcdefghijklmnopqrstuvwxyz");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(live_of(lord, "abcdefgh"), 100);
}

/* What the outermost frame of the largest stack says; NULL: the frame has an address. */
static const char *cut_of_largest(memlord *lord) {
    memlord_stack_stat row;
    assert_int_equal(memlord_stacks_top(lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, &row, 1), 1);
    return row.frames[row.depth - 1] ? NULL : row.sites[row.depth - 1]->function;
}
static void a_stack_that_is_cut_begins_with_a_frame_that_says_why(void **state) {
    memlord *lord = test_lord(state);
    at("abcdefgh");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
    assert_null(cut_of_largest(lord));
    at("abcdefghi");
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, NULL));
    assert_string_equal(cut_of_largest(lord), "[cut: deeper]");
    assert_int_equal(live_of(lord, "abcdefgh"), 20);
    at("ab?");
    fake.frames[2] = MEMLORD_FRAME_LOST;
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 300, NULL));
    assert_string_equal(cut_of_largest(lord), "[cut: no unwind table]");
    assert_int_equal(live_of(lord, "ab"), 300);
    at("");
    assert_ok(memlord_alloc(lord, cpu(), 0x4000, 4000,
                            memlord_site_at(lord, (void *)(uintptr_t)0x1078)));
    assert_string_equal(cut_of_largest(lord), "[cut: not unwound]");
    assert_int_equal(live_of(lord, "x"), 4000);
}

static void an_unwinder_that_says_too_many_is_not_believed(void **state) {
    memlord *lord = test_lord(state);
    at("ab");
    fake.depth = 200;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(live_in_all(lord), 100);
}

static void frames_inside_the_address_of_the_site_are_left_out(void **state) {
    memlord *lord = test_lord(state);
    const memlord_site *site = memlord_site_at(lord, (void *)(uintptr_t)(0x1000 + 'c'));
    at("abcde");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, site));
    assert_int_equal(live_of(lord, "cde"), 100);
}

static void without_an_unwound_frame_a_stack_is_the_one_return_address(void **state) {
    memlord *lord = test_lord(state);
    const memlord_site *site = memlord_site_at(lord, (void *)(uintptr_t)(0x1000 + 'x'));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, site));
    assert_int_equal(live_of(lord, "x"), 100);
}

static void an_unwinder_that_allocates_is_not_run_again_inside(void **state) {
    memlord *lord = test_lord(state);
    at("ab");
    fake.allocates = lord;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(fake.calls, 1);
    assert_int_equal(live_of(lord, "ab"), 100);
    assert_int_equal(live_in_all(lord), 107);
    assert_int_equal(memlord_allocated(lord, cpu()), 107);
}

static void a_realloc_draws_anew(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    at("cd");
    assert_ok(memlord_realloc(lord, cpu(), 0x1000, 0x2000, 150, NULL));
    assert_int_equal(live_of(lord, "ab"), 0);
    assert_int_equal(live_of(lord, "cd"), 150);
    assert_ok(memlord_realloc_begin(lord, cpu(), 0x2000, &token));
    at("ef");
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 10, NULL));
    assert_int_equal(live_of(lord, "cd"), 0);
    assert_int_equal(live_of(lord, "ef"), 10);
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
    assert_int_equal(live_in_all(lord), 0);
}

static void a_realloc_counts_its_growth_and_no_alloc(void **state) {
    memlord *lord = test_lord(state);
    memlord_stack_stat row;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    at("cd");
    assert_ok(memlord_realloc(lord, cpu(), 0x1000, 0x2000, 150, NULL));
    assert_ok(memlord_realloc(lord, cpu(), 0x2000, 0x1000, 120, NULL));
    row = stack_of(lord, cpu(), "cd");
    assert_int_equal(row.allocs, 0);
    assert_int_equal(row.samples, 0);
    assert_int_equal(row.alloc_bytes, 50);
    assert_int_equal(row.live_bytes, 120);
    assert_int_equal(stack_of(lord, cpu(), "ab").allocs, 1);
    assert_int_equal(stack_of(lord, cpu(), "ab").alloc_bytes, 100);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(live_in_all(lord), 0);
}

static void a_realloc_that_fails_leaves_the_stack(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    memlord_stack_stat row;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_realloc_begin(lord, cpu(), 0x1000, &token));
    at("cd");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 5, NULL)); /* another thread has the address */
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_realloc_end(lord, &token, 0, 0, NULL));
    row = stack_of(lord, cpu(), "ab");
    assert_int_equal(row.live_bytes, 100);
    assert_int_equal(row.allocs, 1);
    assert_int_equal(row.alloc_bytes, 100);
    assert_int_equal(row.samples, 1);
    assert_int_equal(live_of(lord, "cd"), 0);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(live_in_all(lord), 0);
}

static void a_free_in_two_steps_ends_the_stack(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_free_begin(lord, cpu(), 0x1000, &token, NULL));
    assert_int_equal(live_of(lord, "ab"), 100);
    assert_ok(memlord_free_end(lord, &token, 0, NULL));
    assert_int_equal(live_of(lord, "ab"), 0);
}

static void a_move_keeps_the_stack(void **state) {
    memlord *lord = test_lord(state);
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    at("cd");
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x5000, 100, NULL, NULL));
    assert_int_equal(stack_of(lord, cpu(), "ab").live_bytes, 0);
    assert_int_equal(stack_of(lord, cuda(0), "ab").live_bytes, 100);
    assert_ok(memlord_free(lord, cuda(0), 0x5000, NULL));
    assert_int_equal(live_in_all(lord), 0);
}

static int done_now;
static int is_done(void *user) {
    (void)user;
    return done_now;
}

static void a_fenced_move_has_the_stack_at_both_ends(void **state) {
    memlord *lord = test_lord(state);
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    fence.done = is_done;
    done_now = 0;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x5000, 60, &fence, NULL));
    assert_int_equal(stack_of(lord, cpu(), "ab").live_bytes, 100);
    assert_int_equal(stack_of(lord, cuda(0), "ab").live_bytes, 60);
    done_now = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_int_equal(stack_of(lord, cpu(), "ab").live_bytes, 0);
    assert_ok(memlord_free(lord, cuda(0), 0x5000, NULL));
    assert_int_equal(live_in_all(lord), 0);
}

static void a_deferred_free_keeps_the_stack_until_it_retires(void **state) {
    memlord *lord = test_lord(state);
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    fence.done = is_done;
    done_now = 0;
    at("ab");
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_free_deferred(lord, cuda(0), 0x1000, fence, NULL));
    assert_int_equal(live_of(lord, "ab"), 100);
    done_now = 1;
    assert_int_equal(memlord_retire(lord, all()), 100);
    assert_int_equal(live_of(lord, "ab"), 0);
}

static void an_alloc_over_a_live_block_ends_its_stack(void **state) {
    memlord *lord = test_lord(state);
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    at("cd");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 30, NULL));
    assert_int_equal(live_of(lord, "ab"), 0);
    assert_int_equal(live_of(lord, "cd"), 30);
}

static void a_view_counts_on_no_stack(void **state) {
    memlord *lord = test_lord(state);
    int i;
    at("ab");
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    at("cd");
    for (i = 0; i < 200; i++) assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    for (i = 0; i < 200; i++) assert_ok(memlord_release(lord, cpu(), 0x1000, NULL));
    assert_int_equal(live_of(lord, "ab"), 100);
    assert_int_equal(stack_of(lord, cpu(), "cd").samples, 0);
    assert_ok(memlord_release(lord, cpu(), 0x1000, NULL));
    assert_int_equal(live_in_all(lord), 0);
}

static void n_blocks_have_the_stack_of_their_call(void **state) {
    memlord *lord = test_lord(state);
    memlord_block blocks[3];
    int i;
    for (i = 0; i < 3; i++) {
        blocks[i].device = cpu();
        blocks[i].storage = 0x1000 + (uint64_t)i * 64;
        blocks[i].bytes = 10;
    }
    at("ab");
    assert_ok(memlord_alloc_n(lord, blocks, 3, NULL));
    assert_int_equal(live_of(lord, "ab"), 30);
    assert_int_equal(stack_of(lord, cpu(), "ab").allocs, 3);
    assert_ok(memlord_free_n(lord, blocks, 3, NULL));
    assert_int_equal(live_in_all(lord), 0);
}

static void a_reset_keeps_what_lives(void **state) {
    memlord *lord = test_lord(state);
    memlord_stack_stat row;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 30, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    memlord_reset(lord);
    row = stack_of(lord, cpu(), "ab");
    assert_int_equal(row.live_bytes, 30);
    assert_int_equal(row.peak_bytes, 30);
    assert_int_equal(row.alloc_bytes, 0);
    assert_int_equal(row.allocs, 0);
    assert_int_equal(row.samples, 0);
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
    assert_int_equal(live_of(lord, "ab"), 0);
}

static void sites_and_totals_are_those_without_stacks(void **state) {
    memlord *lord = test_lord(state);
    static const memlord_site here = {"a.c", "f", 1};
    memlord_site_stat site;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &here));
    assert_ok(memlord_free(lord, cpu(), 0x1000, &here));
    assert_int_equal(memlord_site_top_alloc(lord, all(), &site), 1);
    assert_int_equal(site.allocs, 1);
    assert_int_equal(site.frees, 1);
    assert_int_equal(site.live_bytes, 0);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void without_memory_blocks_are_recorded_without_stacks(void **state) {
    memlord *lord = test_lord(state);
    test_case *t = (test_case *)*state;
    uint64_t i;
    char letters[3] = "aa";
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    for (i = 0; i < 600; i++) assert_ok(memlord_alloc(lord, cpu(), 0x2000 + i * 64, 10, NULL));
    for (i = 0; i < 600; i++) assert_ok(memlord_free(lord, cpu(), 0x2000 + i * 64, NULL));
    t->heap.fail_at = t->heap.calls + 1; /* the map has its memory */
    t->heap.fail_from = 1;
    for (i = 0; i < 600; i++) {
        letters[0] = (char)('a' + i % 26);
        letters[1] = (char)('a' + i / 26);
        at(letters);
        assert_ok(memlord_alloc(lord, cpu(), 0x2000 + i * 64, 10, NULL));
    }
    t->heap.fail_at = 0;
    assert_true(stats_of(lord, all()).dropped_sites > 0);
    assert_true(live_in_all(lord) < memlord_allocated(lord, all()));
    for (i = 0; i < 600; i++) assert_ok(memlord_free(lord, cpu(), 0x2000 + i * 64, NULL));
    assert_int_equal(live_in_all(lord), 100);
}

static void ten_thousand_blocks_come_and_go(void **state) {
    memlord *lord = test_lord(state);
    char letters[3] = "aa";
    uint64_t i, round;
    for (round = 0; round < 3; round++) {
        for (i = 0; i < 10000; i++) {
            letters[0] = (char)('a' + i % 17);
            at(letters);
            assert_ok(memlord_alloc(lord, cpu(), 0x10000 + i * 48, i, NULL));
        }
        assert_int_equal(live_in_all(lord), 10000u * 9999u / 2);
        for (i = 0; i < 10000; i++)
            assert_ok(memlord_free(lord, cpu(), 0x10000 + (i * 7919 % 10000) * 48, NULL));
        assert_int_equal(live_in_all(lord), 0);
    }
}

/* -- samples -- */

static void a_sample_takes_few_allocs(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i, first;
    at("ab");
    for (i = 0; i < 10000; i++)
        assert_ok(memlord_alloc(lord, cpu(), 0x10000 + i * 64, 16, NULL));
    first = fake.calls;
    assert_in_range(first, 80, 240); /* 156 in the mean; here and below six standard errors */
    assert_int_equal(stack_of(lord, cpu(), "ab").samples, first);
    assert_true(stack_of(lord, cpu(), "ab").error_bytes > 0);
}

static void a_block_far_larger_than_the_mean_is_always_taken(void **state) {
    memlord *lord = test_lord(state);
    memlord_stack_stat row;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1 << 20, NULL));
    row = stack_of(lord, cpu(), "ab");
    assert_int_equal(row.live_bytes, 1 << 20);
    assert_int_equal(row.allocs, 1);
    assert_int_equal(row.error_bytes, 0);
}

/* 1 / (1 - exp(-x)): how many allocs a taken one stands for, if it had x means of bytes. */
static long double stands_for(long double x) {
    const long double y = x / 4096;
    long double power = 1 - y * (1 - y / 2 * (1 - y / 3 * (1 - y / 4 * (1 - y / 5))));
    int i;
    for (i = 0; i < 12; i++) power *= power;
    return 1 / (1 - power);
}
/* The n-th root of a sum of squares, without a library of mathematics. */
static uint64_t root_of(long double v) {
    long double low = 0, high = 1e16L;
    int i;
    for (i = 0; i < 200; i++) {
        long double middle = (low + high) / 2;
        if (middle * middle < v) low = middle;
        else high = middle;
    }
    return (uint64_t)(low + 0.5L);
}
static void is_about(uint64_t is, long double should) {
    const long double error = 1 + should * 2e-12L;
    if ((long double)is < should - error || (long double)is > should + error)
        fail_msg("%llu is not %Lf", (unsigned long long)is, should);
}
/* Allocates blocks of one size until one is taken, in a ledger with samples of that mean. */
static void sample_one(memlord *lord, uint64_t mean, uint64_t bytes, const char *letters) {
    const long double scale = stands_for((long double)bytes / (long double)mean);
    const uint64_t calls = fake.calls;
    memlord_stack_stat row;
    uint64_t n;
    at(letters);
    for (n = 0; fake.calls == calls; n++) {
        if (n) assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
        assert_ok(memlord_alloc(lord, cpu(), 0x1000, bytes, NULL));
    }
    row = stack_of(lord, cpu(), letters);
    assert_int_equal(row.samples, 1);
    is_about(row.allocs, scale);
    is_about(row.alloc_bytes, (long double)bytes * scale);
    is_about(row.live_bytes, (long double)bytes * scale);
    is_about(row.peak_bytes, (long double)bytes * scale);
    is_about(row.error_bytes,
             (long double)root_of((long double)bytes * (long double)bytes * scale * (scale - 1)));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    row = stack_of(lord, cpu(), letters);
    assert_int_equal(row.live_bytes, 0);
    assert_int_equal(row.error_bytes, 0);
    is_about(row.peak_bytes, (long double)bytes * scale);
}
static void a_sample_stands_for_as_many_allocs_as_it_had_chances(void **state) {
    static const uint64_t sizes[] = {1,    8,    16,   64,    100,   300,   512,   1000, 1024,
                                     1500, 3000, 5000, 10000, 20000, 40000, 41000, 100000};
    char letters[2] = {'A', 0};
    size_t i;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++, letters[0]++)
        sample_one(test_lord(state), 1024, sizes[i], letters);
}
static void and_so_it_does_to_12_digits(void **state) {
    const uint64_t mean = (uint64_t)1 << 40;
    char letters[2] = {'A', 0};
    int sixteenths;
    for (sixteenths = 1; sixteenths < 40; sixteenths += 3, letters[0]++)
        sample_one(test_lord(state), mean, mean / 16 * (uint64_t)sixteenths, letters);
}

/* The bytes from one sample to the next are drawn from an exponential distribution of mean 1,024.
   Bounds are of six standard errors. */
static void the_way_from_sample_to_sample_is_exponential(void **state) {
    enum { DRAWN = 4000 };
    static const struct {
        double bytes, share; /* of the ways that are longer */
    } quantiles[] = {{128, 0.8825}, {512, 0.6065}, {1024, 0.3679}, {2048, 0.1353}, {4096, 0.0183}};
    enum { QUANTILES = sizeof quantiles / sizeof *quantiles };
    memlord *lord = test_lord(state);
    uint64_t longer[QUANTILES] = {0}, sum = 0, n = 0, way = 0, calls;
    size_t i;
    at("ab");
    for (calls = fake.calls; n < DRAWN; sum += 8) {
        assert_ok(memlord_alloc(lord, cpu(), 0x1000, 8, NULL));
        assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
        way += 8;
        if (fake.calls == calls) continue;
        calls = fake.calls;
        for (i = 0; i < QUANTILES; i++) longer[i] += (double)way > quantiles[i].bytes;
        n++;
        way = 0;
    }
    assert_in_range(sum / DRAWN, 1024 - 97, 1024 + 8 + 97); /* a way ends with the block it is in */
    for (i = 0; i < QUANTILES; i++) {
        const double share = (double)longer[i] / DRAWN, off = share - quantiles[i].share;
        if (off < -0.05 || off > 0.05)
            fail_msg("%f of the ways are longer than %f", share, quantiles[i].bytes);
    }
}

/* More than there are chains without two in one. */
static void each_of_two_thousand_stacks_is_one_row(void **state) {
    enum { STACKS = 2000 };
    static memlord_stack_stat rows[STACKS + 1];
    memlord *lord = test_lord(state);
    uint64_t i, round, sum = 0;
    size_t n;
    fake.depth = 3;
    for (round = 1; round <= 3; round++)
        for (i = 0; i < STACKS; i++) {
            fake.frames[0] = (void *)(uintptr_t)(0x1000 + i % 50);
            fake.frames[1] = (void *)(uintptr_t)(0x2000 + i / 50);
            fake.frames[2] = (void *)(uintptr_t)(0x3000 + i % 7);
            assert_ok(memlord_alloc(lord, cuda((int)(i % 3)), (round * STACKS + i) * 64, i + 1,
                                    NULL));
        }
    n = memlord_stacks_top(lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, rows, STACKS + 1);
    assert_int_equal(n, STACKS);
    for (i = 0; i < n; i++) {
        assert_int_equal(rows[i].allocs, 3);
        assert_int_equal(rows[i].live_bytes, 3 * (STACKS - i)); /* the largest first */
        assert_int_equal(rows[i].depth, 3);
        sum += rows[i].alloc_bytes;
    }
    assert_int_equal(sum, 3 * STACKS * (STACKS + 1) / 2);
    for (round = 1; round <= 3; round++)
        for (i = 0; i < STACKS; i++)
            assert_ok(memlord_free(lord, cuda((int)(i % 3)), (round * STACKS + i) * 64, NULL));
    assert_int_equal(live_in_all(lord), 0);
}

/* What a sample took of 4,000 allocs of 16 bytes. */
typedef struct drawn {
    uint64_t first; /* the number of the first that it took */
    uint64_t hash;  /* of the numbers of all */
} drawn;
static uint64_t draw_from = 0x10000; /* handles; addresses take another path */
static drawn draw_here(memlord *lord) {
    drawn of = {0, 0};
    uint64_t i, calls;
    at("ab");
    for (i = 1; i <= 4000; i++) {
        calls = fake.calls;
        if (memlord_alloc(lord, cpu(), draw_from + i * 64, 16, NULL)) break;
        if (fake.calls == calls) continue;
        if (!of.first) of.first = i;
        of.hash = (of.hash + i) * 0x9e3779b97f4a7c15u;
    }
    for (i--; i; i--)
        if (memlord_free(lord, cpu(), draw_from + i * 64, NULL)) of.hash = 0;
    return of;
}
/* The same in a forked child, with the ledger that it inherits, or with one of its own. */
static drawn draw_in_child(memlord *lord) {
    drawn of = {0, 0};
    int ends[2], status;
    pid_t child;
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (!child) {
        void *own = NULL;
        if (!lord && open_stacks(&own, 8, 1024, 0)) _exit(1);
        of = draw_here(lord ? lord : test_lord(&own));
        _exit(write(ends[1], &of, sizeof of) != sizeof of);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], &of, sizeof of), sizeof of);
    assert_int_equal(close(ends[0]) | close(ends[1]), 0);
    return of;
}
/* All differ, and so do the first draws: no two values are those of nine by chance. */
#define DRAWN 9
static void assert_differ(const drawn *of) {
    int i, j, differ = 0;
    for (i = 0; i < DRAWN; i++) {
        assert_int_not_equal(of[i].hash, 0);
        for (j = 0; j < i; j++) assert_int_not_equal(of[i].hash, of[j].hash);
        differ += of[i].first != of[0].first && of[i].first != of[1].first;
    }
    assert_true(differ >= 1);
}

static void ledgers_of_a_process_draw_differently(void **state) {
    drawn of[DRAWN];
    int i;
    of[0] = draw_here(test_lord(state));
    for (i = 1; i < DRAWN; i++) {
        void *other = NULL;
        assert_int_equal(open_stacks(&other, 8, 1024, 0), 0);
        of[i] = draw_here(test_lord(&other));
        assert_int_equal(test_teardown(&other), 0);
    }
    assert_differ(of);
}
static void processes_draw_differently(void **state) {
    drawn of[DRAWN];
    int i;
    of[0] = draw_here(test_lord(state));
    for (i = 1; i < DRAWN; i++) of[i] = draw_in_child(NULL);
    assert_differ(of);
}
/* Where the parent has drawn already, too. */
static void forked_children_and_their_parent_draw_differently(void **state) {
    memlord *lord = test_lord(state);
    drawn of[DRAWN];
    int i;
    (void)draw_here(lord);
    for (i = 1; i < DRAWN; i++) of[i] = draw_in_child(lord);
    of[0] = draw_here(lord);
    assert_differ(of);
}
/* The least first draw of eight children is 8 on average, as the mean is 64 allocs. A child that went
   on with what is left of its parent's draw, 64 on average, would draw only after that. */
static void a_forked_child_draws_anew(void **state) {
    memlord *lord = test_lord(state);
    uint64_t sum = 0;
    int parent, child;
    draw_from = 0x7f0000000000u;
    for (parent = 0; parent < 6; parent++) {
        uint64_t least = UINT64_MAX;
        (void)draw_here(lord);
        for (child = 0; child < 8; child++) {
            const drawn of = draw_in_child(lord);
            if (of.first < least) least = of.first;
        }
        sum += least;
    }
    draw_from = 0x10000;
    assert_in_range(sum, 6, 170);
}
static void *draw_in_thread(void *user) {
    static drawn of;
    of = draw_here((memlord *)user);
    return &of;
}
/* The second thread uses the record of the first one again. */
static void threads_draw_differently(void **state) {
    drawn of[DRAWN];
    int i;
    of[0] = draw_here(test_lord(state));
    for (i = 1; i < DRAWN; i++) {
        pthread_t thread;
        void *drew;
        assert_int_equal(pthread_create(&thread, NULL, draw_in_thread, test_lord(state)), 0);
        assert_int_equal(pthread_join(thread, &drew), 0);
        of[i] = *(drawn *)drew;
    }
    assert_differ(of);
}

static void the_mean_is_512_kib_unless_told(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    at("ab");
    for (i = 0; i < 2000; i++)
        assert_ok(memlord_alloc(lord, cpu(), 0x10000 + i * 64, 64 << 10, NULL));
    assert_in_range(fake.calls, 150, 320); /* 235 in the mean */
}

static void a_stack_whose_blocks_are_gone_has_no_bytes(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    at("ab");
    for (i = 0; i < 5000; i++)
        assert_ok(memlord_alloc(lord, cpu(), 0x10000 + i * 64, i % 900, NULL));
    for (i = 0; i < 5000; i++) {
        assert_ok(memlord_realloc(lord, cpu(), 0x10000 + i * 64, 0x900000 + i * 64, 100, NULL));
        assert_ok(memlord_free(lord, cpu(), 0x900000 + i * 64, NULL));
    }
    assert_int_equal(live_of(lord, "ab"), 0);
    assert_int_equal(stack_of(lord, cpu(), "ab").error_bytes, 0);
    assert_true(stack_of(lord, cpu(), "ab").peak_bytes > 0);
}

/* -- formats -- */

static int contains(memlord *lord, memlord_format format, const char *text) {
    char *report = report_of(lord, format);
    int found = strstr(report, text) != NULL;
    if (!found) print_message("%s\n", report);
    free(report);
    return found;
}

static void folded_lines_carry_whole_stacks(void **state) {
    memlord *lord = test_lord(state);
    at("abc");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_begin(lord, "kv"));
    assert_ok(memlord_alloc(lord, cuda(1), 0x2000, 20, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_arena_add(lord, cpu(), 5, NULL));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED, "cpu;0x1062;0x1061;0x1060 100\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED, "cuda:1;kv;0x1062;0x1061;0x1060 20\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED, "cpu;(arena) 5\n"));
}

/* Checks that each line comes after the one before; returns the sum of their bytes. */
static uint64_t sorted_lines(char *folded, size_t *lines) {
    char *line = folded, *end, *before = NULL;
    uint64_t sum = 0;
    for (*lines = 0; (end = strchr(line, '\n')) != NULL; line = end + 1, ++*lines) {
        *end = 0;
        sum += strtoull(strrchr(line, ' '), NULL, 10);
        *strrchr(line, ' ') = 0;
        if (before) assert_true(strcmp(before, line) < 0);
        before = line;
    }
    return sum;
}

static void folded_lines_are_sorted_and_equal_stacks_are_one_line(void **state) {
    TEST_ONE_THREAD();
    memlord *lord = test_lord(state);
    test_case *t = (test_case *)*state;
    uint64_t i, wanted;
    size_t lines;
    char *report;
    test_text text;
    at("abc");
    for (i = 0; i < 5000; i++) {
        fake.frames[i % 3] = (void *)(uintptr_t)(0x1061 + i * 7919 % 611);
        assert_ok(memlord_alloc(lord, i % 2 ? cpu() : cuda(0), 0x10000 + i * 64, 1 + i % 9, NULL));
    }
    wanted = memlord_allocated(lord, all());
    report = report_of(lord, MEMLORD_FORMAT_FOLDED);
    assert_int_equal(sorted_lines(report, &lines), wanted);
    assert_true(lines > 256);
    free(report);
    for (i = 1; i < 12; i++) { /* one call of the allocator fails: perhaps that for the lines */
        memset(&text, 0, sizeof text);
        t->heap.fail_at = t->heap.calls + i;
        if (memlord_write(lord, MEMLORD_FORMAT_FOLDED, test_text_write, &text) == MEMLORD_OK)
            assert_int_equal(sorted_lines(text.data, &lines), wanted);
        free(text.data);
    }
    t->heap.fail_at = 0;
}

static void memory_viz_has_whole_stacks_the_innermost_first(void **state) {
    memlord *lord = test_lord(state);
    test_text text;
    char *s;
    memset(&text, 0, sizeof text);
    at("abc");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    at("dbc");
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 100, NULL));
    assert_ok(memlord_write(lord, MEMLORD_FORMAT_MEMORY_VIZ, test_text_write, &text));
    for (s = text.data; s < text.data + text.size; s++)
        if (!*s) *s = '.';
    s = strstr(text.data, "0x1060");
    assert_non_null(s);
    s = strstr(s, "0x1061");
    assert_non_null(s);
    s = strstr(s, "0x1062");
    assert_non_null(s);
    assert_non_null(strstr(text.data, "0x1063"));
    free(text.data);
}

/* The frames of tests in a MEMORY_VIZ report as letters, in the order of their first use. */
static void viz_letters(memlord *lord, char *out, size_t cap) {
    test_text text;
    size_t i, n = 0;
    memset(&text, 0, sizeof text);
    assert_ok(memlord_write(lord, MEMLORD_FORMAT_MEMORY_VIZ, test_text_write, &text));
    for (i = 0; i + 6 < text.size && n + 1 < cap; i++) {
        if (memcmp(text.data + i, "0x10", 4)) continue;
        out[n] = (char)(strtoul(text.data + i, NULL, 16) - 0x1000 + 1);
        n += !n || out[n] != out[n - 1]; /* a frame has it as its file, too */
    }
    out[n] = 0;
    free(text.data);
}

static void memory_viz_has_the_stacks_of_allocs_that_are_gone(void **state) {
    memlord *lord = test_lord(state);
    char letters[64];
    assert_ok(memlord_events_start(lord, 64));
    at("abc");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    at("xyz");
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    viz_letters(lord, letters, sizeof letters);
    assert_string_equal(letters, "abc");
}

static void memory_viz_has_the_stacks_of_every_way_to_begin_a_block(void **state) {
    memlord *lord = test_lord(state);
    memlord_block two[2];
    char letters[64];
    assert_ok(memlord_events_start(lord, 64));
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    at("cb");
    assert_ok(memlord_realloc(lord, cpu(), 0x1000, 0x2000, 200, NULL));
    at("eb");
    memset(two, 0, sizeof two);
    two[0].device = two[1].device = cpu();
    two[0].storage = 0x3000;
    two[1].storage = 0x4000;
    two[0].bytes = two[1].bytes = 7;
    assert_ok(memlord_alloc_n(lord, two, 2, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x2000, cuda(0), 0x2000, 200, NULL, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x3000, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x4000, NULL));
    viz_letters(lord, letters, sizeof letters);
    assert_string_equal(letters, "cbae"); /* cuda:0 comes first; a frame is written once */
}

static int is_of_site(void *user, const memlord_event *e) {
    assert_non_null(e->site);
    assert_string_equal(e->site->function, (const char *)user);
    return 0;
}
static void events_with_stacks_keep_their_site(void **state) {
    memlord *lord = test_lord(state);
    char letters[64];
    assert_ok(memlord_events_start(lord, 64));
    at("abc");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &places[1]));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, &places[1]));
    assert_ok(memlord_free(lord, cpu(), 0x1000, &places[1]));
    assert_ok(memlord_events_each(lord, is_of_site, (void *)(uintptr_t) "second"));
    viz_letters(lord, letters, sizeof letters);
    assert_string_equal(letters, "abc");
    assert_true(contains(lord, MEMLORD_FORMAT_TRACE, "\"function\":\"second\""));
}

static void memory_viz_has_every_block_where_stacks_are_samples(void **state) {
    memlord *lord = test_lord(state);
    test_text text;
    uint64_t i, segments = 0;
    size_t k;
    memset(&text, 0, sizeof text);
    at("abc");
    for (i = 0; i < 100; i++)
        assert_ok(memlord_alloc(lord, cpu(), 0x10000 + i * 64, 64, NULL));
    assert_ok(memlord_write(lord, MEMLORD_FORMAT_MEMORY_VIZ, test_text_write, &text));
    for (k = 0; k + 4 < text.size; k++)
        segments += !memcmp(text.data + k, "}(", 2);
    assert_true(segments >= 200); /* each has a dictionary of its own and one of its block */
    free(text.data);
}

static void samples_of_one_stack_stand_for_all_blocks(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    at("ab");
    for (i = 0; i < 1000; i++)
        assert_ok(memlord_alloc(lord, cpu(), 0x10000 + i * 64, 100, NULL));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED, "cpu;0x1061;0x1060 100000\n"));
}

static void a_site_without_a_sample_is_its_frame(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    at("ab");
    for (i = 0; i < 1000; i++)
        assert_ok(memlord_alloc(lord, cpu(), 0x10000 + i * 64, 100000, &places[0]));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, &places[1]));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED,
                         "cpu;0x1061;0x1060 100000000\ncpu;second b.c:2 1\n"));
}

static void a_block_that_was_taken_has_its_own_bytes(void **state) {
    memlord *lord = test_lord(state);
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1 << 26, &places[0])); /* stands for itself */
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 1, &places[0]));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 2, &places[0]));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED,
                         "cpu;0x1061;0x1060 67108864\ncpu;first a.c:1 3\n"));
}

static void one_stack_at_two_sites_is_two_rows(void **state) {
    memlord *lord = test_lord(state);
    memlord_stack_stat rows[3];
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1 << 16, &places[0]));
    assert_ok(memlord_alloc(lord, cpu(), 0x100000, 1 << 17, &places[1]));
    assert_int_equal(memlord_stacks_top(lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, rows, 3), 2);
    assert_int_equal(rows[0].live_bytes, 1 << 17);
    assert_int_equal(rows[1].live_bytes, 1 << 16);
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(1), 0x1000, 1 << 16, NULL, &places[1]));
    assert_int_equal(stack_of(lord, cpu(), "ab").live_bytes, 1 << 17);
    assert_int_equal(stack_of(lord, cuda(1), "ab").live_bytes, 1 << 16);
}

/* The bytes of the lines of a folded report with a text in them. */
static uint64_t folded_bytes(memlord *lord, memlord_format format, const char *text) {
    char *report = report_of(lord, format), *line, *rest = NULL;
    uint64_t sum = 0;
    for (line = strtok_r(report, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (strstr(line, text)) sum += strtoull(strrchr(line, ' '), NULL, 10);
    free(report);
    return sum;
}
static uint64_t folded_with(memlord *lord, const char *text) {
    return folded_bytes(lord, MEMLORD_FORMAT_FOLDED, text);
}

static void stacks_share_their_site_and_tag_as_their_samples_do(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat tag;
    uint64_t i, first = 0;
    for (i = 0; i < 40000; i++) {
        const uint64_t bytes = 1 + i * 7919 % 200;
        at(i % 4 ? "ab" : "cb");
        if (i % 4) first += bytes;
        assert_ok(memlord_tag_begin(lord, i % 3 ? "x" : "y"));
        assert_ok(memlord_alloc(lord, cpu(), 0x100000 + i * 256, bytes, &places[0]));
        assert_ok(memlord_tag_end(lord));
    }
    assert_ok(memlord_tag_get(lord, cpu(), "x", &tag));
    assert_int_equal(folded_with(lord, "cpu;x;"), tag.allocated);
    assert_int_equal(folded_with(lord, "cpu;"), memlord_allocated(lord, cpu()));
    assert_in_range(folded_with(lord, "0x1060"), first - first / 20, first + first / 20);
}

static void folded_has_a_choice_of_live_peak_and_allocated_bytes(void **state) {
    memlord *lord = test_lord(state);
    char *report;
    run_phases(lord);
    at("d");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 10, NULL));
    report = report_of(lord, MEMLORD_FORMAT_FOLDED);
    assert_string_equal(report, "cpu;0x1063 10\n");
    free(report);
    report = report_of(lord, MEMLORD_FORMAT_FOLDED_PEAK);
    assert_string_equal(report, "cpu (peak);0x1062 120\n");
    free(report);
    report = report_of(lord, MEMLORD_FORMAT_FOLDED_ALLOCATED);
    assert_string_equal(report, "cpu (allocated);0x1060 100\ncpu (allocated);0x1061 100\n"
                                "cpu (allocated);0x1062 120\ncpu (allocated);0x1063 10\n");
    free(report);
}

static void at_the_peak_the_blocks_without_a_stack_are_their_site_or_the_arena(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_stacks_set(lord, 0, 0));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &places[0]));
    assert_ok(memlord_stacks_set(lord, 8, 1));
    at("a");
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 200, &places[0]));
    at("b");
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 300, NULL));
    assert_ok(memlord_stacks_set(lord, 0, 0));
    assert_ok(memlord_alloc(lord, cpu(), 0x4000, 400, NULL));
    assert_ok(memlord_arena_add(lord, cpu(), 500, NULL));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED_PEAK,
                         "cpu (peak);(arena) 500\ncpu (peak);(unknown) 400\n"
                         "cpu (peak);0x1060 200\ncpu (peak);0x1061 300\n"
                         "cpu (peak);first a.c:1 100\n"));
}

static void at_the_peak_the_sites_beyond_the_largest_are_one_frame(void **state) {
    static memlord_site sites[20];
    memlord *lord = test_lord(state);
    uint64_t i;
    assert_ok(memlord_stacks_set(lord, 0, 0));
    for (i = 0; i < 20; i++) {
        sites[i].file = "d.c";
        sites[i].function = "d";
        sites[i].line = (int)i + 1;
        assert_ok(memlord_alloc(lord, cpu(), 0x1000 + i * 0x10000, 2000 - i, &sites[i]));
    }
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED_PEAK, "cpu (peak);d d.c:1 2000\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED_PEAK, "cpu (peak);(others) 7930\n"));
}

static void samples_at_the_peak_add_up_to_what_the_holders_had(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    uint64_t i, first = 0;
    for (i = 0; i < 40000; i++) {
        const uint64_t bytes = 1 + i * 7919 % 200;
        at(i % 4 ? "ab" : "cb");
        if (i % 4) first += bytes;
        assert_ok(memlord_alloc(lord, cpu(), 0x100000 + i * 256, bytes, &places[i % 2]));
    }
    for (i = 0; i < 40000; i++)
        assert_ok(memlord_free(lord, cpu(), 0x100000 + i * 256, NULL));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(folded_bytes(lord, MEMLORD_FORMAT_FOLDED_PEAK, "cpu (peak);"),
                     json_u64(json, "peak_holders[0].bytes"));
    free(json);
    assert_in_range(folded_bytes(lord, MEMLORD_FORMAT_FOLDED_PEAK, "0x1060"), first - first / 8,
                    first + first / 20);
}

/* How many kinds of calls, of a size and a stack each, a HEAPTRACK report has calls of. */
static uint64_t kinds_of_calls(memlord *lord) {
    char *report = report_of(lord, MEMLORD_FORMAT_HEAPTRACK), *s = report;
    unsigned char *seen = (unsigned char *)calloc(strlen(report), 1);
    uint64_t kinds = 0;
    assert_non_null(seen);
    for (; *s; s = strchr(s, '\n') + 1) {
        const uint64_t kind = *s == '+' ? strtoull(s + 2, NULL, 16) : 0;
        if (*s != '+' || seen[kind]) continue;
        seen[kind] = 1;
        kinds++;
    }
    free(seen);
    free(report);
    return kinds;
}
/* Of 49 sites on one device each has one alloc: a 49th of 49 is less than 1 in floating point. */
static void sites_that_add_up_to_their_device_keep_their_numbers(void **state) {
    static memlord_site sites[49];
    memlord *lord = test_lord(state);
    uint64_t i;
    at("ab");
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1 << 20, &places[0])); /* is picked */
    for (i = 0; i < 49; i++) {
        sites[i].file = "d.c";
        sites[i].function = "d";
        sites[i].line = (int)i + 1;
        assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, &sites[i]));
        assert_ok(memlord_free(lord, cpu(), 0x1000, &sites[i]));
    }
    assert_int_equal(kinds_of_calls(lord), 50);
}

static void json_has_each_frame_once_and_the_totals_of_stacks(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    at("cb");
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 50, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(json, "\"stacks\":{\"depth\":8,\"bytes\":1,\"cut\":0,\"modules\":[],"));
    assert_true(json_is(json, "stacks.frames[0].site.file", "0x1061")); /* the call in b */
    assert_true(json_is(json, "stacks.frames[1].site.file", "0x1060"));
    assert_true(json_is(json, "stacks.frames[2].site.file", "0x1062"));
    assert_int_equal(json_u64(json, "stacks.frames[2].offset"), 0x1062);
    assert_non_null(strstr(json, "{\"frames\":[2,0],\"device\":\"cuda:0\",\"live_bytes\":50,"
                                 "\"error_bytes\":0,\"peak_bytes\":50,\"at_peak_bytes\":50,"
                                 "\"allocs\":1,\"alloc_bytes\":50,\"samples\":1,"
                                 "\"temporaries\":0},\n"
                                 "{\"frames\":[1,0],\"device\":\"cpu\",\"live_bytes\":0,"
                                 "\"error_bytes\":0,\"peak_bytes\":100,\"at_peak_bytes\":100,"
                                 "\"allocs\":1,\"alloc_bytes\":100,\"samples\":1,"
                                 "\"temporaries\":0}],"
                                 "\"more\":{\"stacks\":0,\"alloc_bytes\":0,\"allocs\":0,"
                                 "\"live_bytes\":0,\"at_peak_bytes\":0}}"));
    free(json);
}

static void json_has_module_and_offset_of_a_frame(void **state) {
    memlord *lord = test_lord(state);
    char *json, *file;
    uint64_t module;
    fake.frames[0] = (char *)(uintptr_t)&json_has_module_and_offset_of_a_frame + 1;
    fake.depth = 1;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    module = json_u64(json, "stacks.frames[0].module");
    if (module == 0) { /* else the system cannot tell */
        file = strstr(json, "\"modules\":[\n{\"module\":\"/");
        assert_non_null(file);
        assert_non_null(strstr(file, "test_stacks\""));
        assert_true(json_u64(json, "stacks.frames[0].offset") < 16u << 20);
    }
    free(json);
}

/* 2,500 stacks of three frames; the smallest are not in the list. */
static void json_lists_the_largest_stacks_and_sums_the_rest(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i, live = 0;
    char *json, *list;
    at("abc");
    for (i = 1; i <= 2500; i++) {
        fake.frames[0] = (void *)(uintptr_t)(0x4000 + 16 * i);
        assert_ok(memlord_alloc(lord, cpu(), 0x100000 + i * 64, i, NULL));
        if (i <= 2500 - 2048) live += i;
    }
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(json, "stacks.more.stacks"), 2500 - 2048);
    assert_int_equal(json_u64(json, "stacks.more.live_bytes"), live);
    assert_int_equal(json_u64(json, "stacks.more.alloc_bytes"), live);
    assert_int_equal(json_u64(json, "stacks.more.allocs"), 2500 - 2048);
    assert_int_equal(json_u64(json, "stacks.list[0].live_bytes"), 2500);
    assert_int_equal(json_u64(json, "stacks.list[2047].live_bytes"), 2500 - 2047);
    assert_int_equal(json_u64(json, "stacks.frames[2049].line"), UINT64_MAX);
    assert_int_equal(json_u64(json, "stacks.frames[2049].offset"), 0x4000 + 16 * 2500 - 1);
    assert_int_equal(json_u64(json, "stacks.frames[2050].offset"), UINT64_MAX);
    list = strstr(json, "\"stacks\":");
    assert_true(strstr(list, "\"more\"") - list < 512 * 1024);
    free(json);
}

static void json_says_where_there_are_no_stacks(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_true(contains(lord, MEMLORD_FORMAT_JSON,
                         "\"stacks\":{\"depth\":0,\"bytes\":0,\"cut\":0,\"modules\":[],"
                         "\"frames\":[],\"list\":[],\"more\":{\"stacks\":0,\"alloc_bytes\":0,"
                         "\"allocs\":0,\"live_bytes\":0,\"at_peak_bytes\":0}}"));
}

static uint64_t held_in_json(const char *json, const char *what, uint64_t index) {
    char path[64];
    snprintf(path, sizeof path, "stacks.list[%d].%s", (int)index, what);
    return json_u64(json, path);
}

static void stacks_keep_what_they_held_at_the_peak_of_their_device(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    run_phases(lord);
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(held_in_json(json, "peak_bytes", 0), 120); /* the list begins with these */
    assert_int_equal(held_in_json(json, "at_peak_bytes", 0), 120);
    assert_int_equal(held_in_json(json, "peak_bytes", 1), 100);
    assert_int_equal(held_in_json(json, "at_peak_bytes", 1), 0);
    assert_int_equal(held_in_json(json, "peak_bytes", 2), 100);
    assert_int_equal(held_in_json(json, "at_peak_bytes", 2), 0);
    free(json);
}

static void a_peak_reset_forgets_what_stacks_held(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    run_phases(lord);
    at("a");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 30, NULL));
    memlord_peak_reset(lord, all());
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(held_in_json(json, "at_peak_bytes", 0), 30);
    assert_int_equal(held_in_json(json, "at_peak_bytes", 1), 0);
    assert_int_equal(held_in_json(json, "at_peak_bytes", 2), 0);
    free(json);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    memlord_peak_reset(lord, all());
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(held_in_json(json, "at_peak_bytes", 0), 0);
    free(json);
}

static void stacks_of_another_device_keep_their_own_peak(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    at("a");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    at("b");
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 300, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(held_in_json(json, "at_peak_bytes", 0), 300);
    assert_int_equal(held_in_json(json, "at_peak_bytes", 1), 100);
    free(json);
}

static void text_has_the_hottest_stacks_in_five_frames(void **state) {
    memlord *lord = test_lord(state);
    at("abcdefgh");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    at("b");
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 300, NULL));
    at("");
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 200, NULL));
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT,
                         "hottest stacks: 3 of 3\n"
                         "        live        peak     at peak      allocs   allocated\n"
                         "       300 B       300 B       300 B           1       300 B  0x1061\n"
                         "       200 B       200 B       200 B           1       200 B  "));
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT,
                         "       100 B       100 B       100 B           1       100 B  "
                         "0x1060 < 0x1061 < 0x1062 < 0x1063 <\n        0x1064 < ...\n"));
}

static void text_has_the_stacks_of_the_peak_where_nothing_lives(void **state) {
    memlord *lord = test_lord(state);
    char letters[2] = "a";
    uint64_t i;
    for (i = 0; i < 7; i++) {
        letters[0] = (char)('a' + i);
        at(letters);
        assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100 + i, NULL));
        assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    }
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT,
                         "hottest stacks at the peak: 5 of 7\n"
                         "        live        peak     at peak      allocs   allocated\n"
                         "         0 B       100 B       100 B           1       100 B  0x1060\n"
                         "         0 B       106 B         0 B           1       106 B  0x1066\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT, "... and 2 more stacks, 0 B\n"));
}

static void text_of_samples_says_that_they_are_estimates(void **state) {
    memlord *lord = test_lord(state);
    memlord_stack_stat row;
    char live[32], error[32], line[128];
    uint64_t i;
    at("ab");
    for (i = 0; i < 1000; i++)
        assert_ok(memlord_alloc(lord, cpu(), 0x10000 + i * 64, 100, NULL));
    row = stack_of(lord, cpu(), "ab");
    memlord_format_bytes(row.live_bytes, live, sizeof live);
    snprintf(line, sizeof line, "\n%12s%12s", live,
             memlord_format_bytes(row.error_bytes, error, sizeof error));
    assert_true(row.error_bytes > 0);
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT, line));
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT,
                         "hottest stacks: 1 of 1, estimates: a sample each 1 KiB; error: the standard "
                         "error of live, -: no\n        sample lives\n"
                         "        live       error        peak     at peak      allocs   allocated\n"));
    for (i = 0; i < 1000; i++) assert_ok(memlord_free(lord, cpu(), 0x10000 + i * 64, NULL));
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT, "\n         0 B           -  "));
}

static void leaks_are_listed_by_stack(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1000, NULL));
    memlord_mark(lord);
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 100, NULL));
    at("cb");
    assert_ok(memlord_alloc(lord, cpu(), 0x4000, 500, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x5000, 7, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x5000, NULL));
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT,
                         "       bytes      blocks  leaks by stack\n"
                         "       500 B           1  0x1062 < 0x1061\n"
                         "       200 B           2  0x1060 < 0x1061\n"));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(json, "\"by_stack\":[\n{\"frames\":[2,0],\"device\":\"cpu\",\"bytes\":500,"
                                 "\"count\":1,\"samples\":1},\n{\"frames\":[1,0],\"device\":"
                                 "\"cpu\",\"bytes\":200,\"count\":2,\"samples\":2}],"));
    free(json);
}

static void cut_lists_of_stacks_say_what_they_leave_out(void **state) {
    static const char *const stacks[] = {"ab", "cb", "db", "eb", "fb", "gb", "hb"};
    memlord *lord = test_lord(state);
    uint64_t i;
    memlord_mark(lord);
    for (i = 0; i < 7; i++) {
        at(stacks[i]);
        assert_ok(memlord_alloc(lord, cpu(), 0x1000 * (i + 1), 700 - i * 100, NULL));
    }
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT,
                         "\n       300 B       300 B       300 B           1       300 B  "
                         "0x1065 < 0x1061\n"
                         "... and 2 more stacks, 300 B\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT,
                         "       300 B           1  0x1065 < 0x1061\n"
                         "... and 2 more stacks, 300 B\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_JSON, "\"stacks\":0,\"stack_bytes\":0,"));
}

static void leaks_by_stack_of_samples_are_estimates(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    uint64_t i;
    memlord_mark(lord);
    at("ab");
    for (i = 0; i < 1000; i++)
        assert_ok(memlord_alloc(lord, cpu(), 0x10000 + i * 64, 100, NULL));
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT,
                         "leaks by stack, estimates: a sample each 1 KiB\n"));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(json, "leaks.by_stack[0].bytes"), live_of(lord, "ab"));
    assert_int_equal(json_u64(json, "leaks.by_stack[0].count"),
                     stack_of(lord, cpu(), "ab").allocs);
    assert_int_equal(json_u64(json, "leaks.by_stack[0].samples"),
                     stack_of(lord, cpu(), "ab").samples);
    free(json);
}

/* The sums of the samples of a PPROF report, and its locations by id. */
typedef struct pprof {
    uint64_t value[4], deepest, address[256];
} pprof;
static uint64_t varint(const unsigned char **p) {
    uint64_t v = 0;
    int shift = 0;
    do v |= (uint64_t)(**p & 127) << shift, shift += 7;
    while (*(*p)++ & 128);
    return v;
}
static void read_sample(pprof *out, const unsigned char *p, const unsigned char *end) {
    while (p < end) {
        uint64_t field = varint(&p) >> 3, size = varint(&p), n = 0;
        const unsigned char *stop = p + size;
        for (; p < stop && field < 3; n++) {
            uint64_t v = varint(&p);
            if (field == 2 && n < 4) out->value[n] += v;
        }
        if (field == 1 && n > out->deepest) out->deepest = n;
        p = stop;
    }
}
static void read_location(pprof *out, const unsigned char *p, const unsigned char *end) {
    uint64_t id = 0;
    while (p < end) {
        uint64_t key = varint(&p), v = varint(&p);
        if (key == 1 << 3) id = v;
        if (key == 3 << 3 && id < 256) out->address[id] = v;
        if ((key & 7) == 2) p += v;
    }
}
static pprof pprof_of(memlord *lord) {
    test_text text;
    const unsigned char *p, *end;
    pprof out;
    memset(&text, 0, sizeof text);
    memset(&out, 0, sizeof out);
    assert_ok(memlord_write(lord, MEMLORD_FORMAT_PPROF, test_text_write, &text));
    p = (const unsigned char *)text.data;
    for (end = p + text.size; p < end;) {
        uint64_t key = varint(&p), v = varint(&p);
        if (key == (2 << 3 | 2)) read_sample(&out, p, p + v);
        if (key == (4 << 3 | 2)) read_location(&out, p, p + v);
        if ((key & 7) == 2) p += v;
    }
    free(text.data);
    return out;
}

static void pprof_has_stacks_with_addresses_and_exact_sums(void **state) {
    memlord *lord = test_lord(state);
    pprof found;
    int i, calls = 0;
    at("abc");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, NULL));
    at("bc");
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 7, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
    found = pprof_of(lord);
    assert_int_equal(found.value[0], 3);
    assert_int_equal(found.value[1], 127);
    assert_int_equal(found.value[2], 2);
    assert_int_equal(found.value[3], 107);
    assert_int_equal(found.deepest, 3);
    for (i = 0; i < 256; i++) calls += found.address[i] == 0x1000 + 'a' - 1;
    assert_int_equal(calls, 1);
}

/* The calls, the live bytes, the peak and the bytes of the calls of a HEAPTRACK report; bytes that
   no call allocated are frees of minus so many. */
static void heaptrack_of(memlord *lord, uint64_t out[4]) {
    char *report = report_of(lord, MEMLORD_FORMAT_HEAPTRACK), *s = report;
    uint64_t *info = (uint64_t *)calloc(strlen(report) / 4 + 1, sizeof *info), infos = 0;
    assert_non_null(info);
    out[0] = out[1] = out[2] = out[3] = 0;
    for (; *s; s = strchr(s, '\n') + 1) {
        const uint64_t v = strtoull(s + 2, NULL, 16);
        if (*s == 'a') info[infos++] = v;
        if (*s == '-') out[1] -= info[v];
        if (*s != '+') continue;
        out[0]++;
        out[1] += info[v];
        out[3] += info[v];
        if (out[1] > out[2]) out[2] = out[1];
    }
    free(info);
    free(report);
}

static void heaptrack_has_whole_stacks_and_the_totals_of_the_ledger(void **state) {
    memlord *lord = test_lord(state);
    uint64_t found[4], i;
    for (i = 0; i < 600; i++) {
        at(i % 3 ? "abc" : "dbc");
        assert_ok(memlord_alloc(lord, i % 2 ? cpu() : cuda(0), 0x10000 + i * 64, i, NULL));
        at("ebc");
        if (i % 5 == 0)
            assert_ok(memlord_realloc(lord, i % 2 ? cpu() : cuda(0), 0x10000 + i * 64,
                                      0x900000 + i * 64, 2 * i, NULL));
        else if (i % 4)
            assert_ok(memlord_free(lord, i % 2 ? cpu() : cuda(0), 0x10000 + i * 64, NULL));
    }
    assert_ok(memlord_arena_add(lord, cpu(), 12345, NULL));
    heaptrack_of(lord, found);
    assert_int_equal(found[0], stats_of(lord, all()).allocs);
    assert_int_equal(found[1], memlord_allocated(lord, all()));
    assert_int_equal(found[2], stats_of(lord, all()).peak);
    assert_int_equal(pprof_of(lord).value[0], stats_of(lord, all()).allocs);
    assert_int_equal(pprof_of(lord).value[1], stats_of(lord, all()).total_allocated);
    /* a trace is a frame and the trace of its caller: 4 frames for each device, then c, b, a */
    assert_true(contains(lord, MEMLORD_FORMAT_HEAPTRACK, "\nt 9 0\nt a 9\nt b a\n"));
    memlord_reset(lord);
    at("f");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 7, NULL));
    heaptrack_of(lord, found);
    assert_int_equal(found[0], 1);
    assert_int_equal(found[1], memlord_allocated(lord, all()));
}

static void formats_of_samples_say_that_stacks_are_estimates(void **state) {
    memlord *lord = test_lord(state);
    uint64_t found[4], i;
    at("ab");
    for (i = 0; i < 1000; i++)
        assert_ok(memlord_alloc(lord, cpu(), 0x10000 + i * 64, 100, NULL));
    for (i = 0; i < 500; i++) assert_ok(memlord_free(lord, cpu(), 0x10000 + i * 64, NULL));
    heaptrack_of(lord, found);
    assert_int_equal(found[0], 1000);
    assert_int_equal(found[1], 50000);
    assert_int_equal(found[2], memlord_peak(lord, all()));
    assert_int_equal(found[3], 100000);
    assert_true(contains(lord, MEMLORD_FORMAT_HEAPTRACK, "\n# estimates: a sample each 1 KiB\n"));
}

static void without_memory_shares_are_not_written_by_halves(void **state) {
    TEST_ONE_THREAD();
    memlord *lord = test_lord(state);
    test_case *t = (test_case *)*state;
    uint64_t i, wanted, failed = 0;
    for (i = 0; i < 5000; i++) {
        at("abc");
        fake.frames[i % 3] = (void *)(uintptr_t)(0x1061 + i * 7919 % 611);
        assert_ok(memlord_alloc(lord, cpu(), 0x10000 + i * 1024, 1 + i % 999, &places[i % 3]));
    }
    wanted = memlord_allocated(lord, all());
    assert_int_equal(folded_with(lord, ""), wanted);
    for (i = 1; i < 20; i++) {
        test_text text;
        size_t lines;
        memset(&text, 0, sizeof text);
        t->heap.fail_at = t->heap.calls + i;
        if (memlord_write(lord, MEMLORD_FORMAT_FOLDED, test_text_write, &text) == MEMLORD_OK)
            assert_int_equal(sorted_lines(text.data, &lines), wanted);
        else
            failed++;
        free(text.data);
    }
    t->heap.fail_at = 0;
    assert_true(failed > 2); /* the table of shares grows twice */
}

/* Tables that are too large for the ledger's small pieces: each is an allocation of the host's. */
enum { LARGE_STACKS = 2200, LARGE_TAGS = 300, LARGE_SCOPES = 400 };
static void fill_large_tables(memlord *lord) {
    uint64_t i, k;
    char name[32];
    assert_ok(memlord_events_start(lord, 4096));
    (void)memlord_mark(lord);
    for (i = 0; i < LARGE_STACKS; i++) {
        fake.depth = 8;
        for (k = 0; k < 8; k++) fake.frames[k] = (void *)(uintptr_t)(0x1000 + i * 8 + k);
        snprintf(name, sizeof name, "name %d", (int)(i % LARGE_SCOPES));
        assert_ok(memlord_scope_begin(lord, name));
        name[0] = (char)(i % LARGE_SCOPES < LARGE_TAGS ? 't' : 0);
        if (name[0]) assert_ok(memlord_tag_begin(lord, name));
        assert_ok(memlord_alloc(lord, cuda((int)(i % 3)), 0x10000 + i * 64, i + 1, &places[i % 3]));
        if (name[0]) assert_ok(memlord_tag_end(lord));
        assert_ok(memlord_scope_end(lord));
    }
    for (i = 0; i < 64; i++) assert_ok(memlord_checkpoint(lord, "point"));
}
static int count_size(void *user, const void *data, size_t size) {
    (void)data;
    *(size_t *)user += size;
    return 0;
}
/* What was written is as long as the whole, but for the digits of times, and for lifetimes: without
   memory they are unknown. */
static int is_whole(size_t size, size_t whole) {
    return size + whole / 50 > whole && size < whole + whole / 50;
}

static void without_memory_a_report_of_any_format_is_whole_or_an_error(void **state) {
    TEST_ONE_THREAD();
    test_case *t = (test_case *)*state;
    int format;
    fill_large_tables(t->lord);
    for (format = 0; format < MEMLORD_FORMAT_COUNT; format++) {
        uint64_t n, failed, before, errors = 0;
        size_t whole = 0;
        assert_ok(memlord_write(t->lord, (memlord_format)format, count_size, &whole));
        before = t->heap.bytes;
        t->heap.fail_from = 0;
        for (n = 1;; n++) {
            size_t size = 0;
            memlord_result r;
            failed = t->heap.failed;
            t->heap.fail_at = t->heap.calls + n;
            r = memlord_write(t->lord, (memlord_format)format, count_size, &size);
            t->heap.fail_at = 0;
            if (r == MEMLORD_OK && !is_whole(size, whole))
                fail_msg("format %d: %zu of %zu bytes", format, size, whole);
            if (r) assert_int_equal(r, MEMLORD_E_NOMEM);
            errors += r != MEMLORD_OK;
            assert_int_equal(t->heap.bytes, before);
            if (t->heap.failed == failed && t->heap.fail_from) break;
            if (t->heap.failed == failed) t->heap.fail_from = 1, n = 0; /* now, all from there on */
        }
        assert_true(errors > 0);
    }
}

typedef struct limited {
    uint64_t left, after; /* calls that succeed, and those after one that failed */
} limited;
static int fail_later(void *user, const void *data, size_t size) {
    limited *l = (limited *)user;
    (void)data, (void)size;
    if (l->left) return l->left--, 0;
    l->after++;
    return -1;
}
/* In whatever list a write fails, it is the last. */
static void a_write_that_fails_ends_a_report_with_large_tables(void **state) {
    TEST_ONE_THREAD();
    memlord *lord = test_lord(state);
    int format;
    fill_large_tables(lord);
    for (format = 0; format < MEMLORD_FORMAT_COUNT; format++) {
        uint64_t n;
        for (n = 0;; n += 1 + n / 2) {
            limited l = {0, 0};
            l.left = n;
            if (memlord_write(lord, (memlord_format)format, fail_later, &l) == MEMLORD_OK) break;
            assert_int_equal(l.after, 1);
        }
        if (n <= 8) fail_msg("format %d: %d writes", format, (int)n);
    }
}

static void without_memory_the_list_of_stacks_ends_early(void **state) {
    TEST_ONE_THREAD();
    static memlord_stack_stat rows[LARGE_STACKS];
    test_case *t = (test_case *)*state;
    size_t i, n;
    fill_large_tables(t->lord);
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    n = memlord_stacks_top(t->lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, rows, LARGE_STACKS);
    t->heap.fail_at = 0;
    assert_true(n < LARGE_STACKS);
    for (i = 0; i < n; i++) {
        assert_int_equal(rows[i].live_bytes, LARGE_STACKS - i);
        assert_int_equal(rows[i].depth, 8);
        assert_true(rows[i].frames[0] == (void *)(uintptr_t)(0x1000 + (LARGE_STACKS - i - 1) * 8));
    }
    assert_int_equal(memlord_stacks_top(t->lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, rows,
                                        LARGE_STACKS),
                     LARGE_STACKS);
}

/* A program of random calls. Without `moves` it allocates and frees alone. */
typedef struct program {
    memlord *lord;
    uint64_t seed, size[512], of[512]; /* by key: bytes and 1 more, 0: not live; device */
    int moves;
} program;
static uint64_t draw(program *p, uint64_t below) { return test_random(&p->seed) % below; }

static void random_call(program *p) {
    static const char *const stacks[] = {"abcz", "bcz", "dcz", "eefgz", "a", "hijklmnopqz"};
    const uint64_t i = draw(p, 512), key = 0x100000 + i * 0x100000;
    const uint64_t bytes = draw(p, 8) ? draw(p, 300) : draw(p, 40) ? draw(p, 9000) : 1 << 19;
    const memlord_site *site = draw(p, 5) ? &places[draw(p, 3)] : NULL;
    const memlord_device device = p->of[i] ? cuda(1) : cpu();
    at(stacks[draw(p, 6)]);
    if (!p->size[i]) {
        p->of[i] = draw(p, 2);
        assert_ok(memlord_alloc(p->lord, p->of[i] ? cuda(1) : cpu(), key, bytes, site));
        p->size[i] = bytes + 1;
    } else if (!p->moves || draw(p, 2)) {
        assert_ok(memlord_free(p->lord, device, key, site));
        p->size[i] = 0;
    } else if (draw(p, 2)) {
        assert_ok(memlord_realloc(p->lord, device, key, key, bytes, site));
        p->size[i] = bytes + 1;
    } else {
        p->of[i] = !p->of[i];
        assert_ok(memlord_move(p->lord, device, key, p->of[i] ? cuda(1) : cpu(), key,
                               p->size[i] - 1, NULL, site));
    }
}
static void random_calls(program *p, uint64_t n) {
    static const char *const names[] = {"kv", "weights", "x"};
    while (n--) {
        const uint64_t tag = draw(p, 4), scope = draw(p, 3);
        if (tag) assert_ok(memlord_tag_begin(p->lord, names[tag - 1]));
        if (scope) assert_ok(memlord_scope_begin(p->lord, names[scope]));
        random_call(p);
        if (scope) assert_ok(memlord_scope_end(p->lord));
        if (tag) assert_ok(memlord_tag_end(p->lord));
    }
}

static void assert_formats_add_up(program *p) {
    const memlord_stats stats = stats_of(p->lord, all());
    const pprof profile = pprof_of(p->lord);
    uint64_t heap[4];
    heaptrack_of(p->lord, heap);
    assert_int_equal(profile.value[0], stats.allocs);
    assert_int_equal(profile.value[1], stats.total_allocated);
    assert_int_equal(profile.value[2], stats.live_blocks);
    assert_int_equal(profile.value[3], stats.allocated);
    assert_int_equal(folded_with(p->lord, ""), stats.allocated);
    assert_int_equal(heap[0], stats.allocs);
    assert_int_equal(heap[1], stats.allocated);
    if (stats.allocs) assert_int_equal(heap[2], stats.peak); /* a call shows it */
    if (!p->moves) assert_int_equal(heap[3], stats.total_allocated);
}

static void programs_add_up(uint64_t seed, uint32_t flags) {
    int i;
    for (i = 0; i < 30; i++) {
        static program p;
        void *of;
        memset(&p, 0, sizeof p);
        p.seed = seed + (uint64_t)i;
        p.moves = i % 2;
        assert_int_equal(open_stacks(&of, 8, 1024, flags), 0);
        p.lord = test_lord(&of);
        random_calls(&p, 50 + draw(&p, 3000));
        assert_formats_add_up(&p);
        if (p.moves) { /* a reset leaves blocks that no alloc since has made */
            memlord_reset(p.lord);
            assert_formats_add_up(&p);
            random_calls(&p, draw(&p, 500));
            assert_formats_add_up(&p);
        }
        assert_int_equal(test_teardown(&of), 0);
    }
}
static void formats_of_samples_add_up_to_the_ledger(void **state) {
    TEST_ONE_THREAD();
    const uint64_t seed = test_env("MEMLORD_TEST_SEED", (uint64_t)time(NULL) << 8);
    (void)state;
    print_message("MEMLORD_TEST_SEED=%llu\n", (unsigned long long)seed);
    programs_add_up(seed, MEMLORD_FLAG_SITES);
    programs_add_up(seed, 0);
}

/* -- threads, exits, forks -- */

static void *run_late(void *user);
static pthread_key_t late_key;
static void at_late_exit(void *user) {
    memlord *lord = (memlord *)user;
    static int again;
    if (again++ < 2) /* until the ledger's own hook has run */
        pthread_setspecific(late_key, user);
    else
        assert_ok(memlord_alloc(lord, cpu(), 0x7000, 64, NULL));
}
static void *run_late(void *user) {
    assert_ok(memlord_alloc((memlord *)user, cpu(), 0x6000, 32, NULL));
    pthread_setspecific(late_key, user);
    return NULL;
}

static void past_its_exit_hook_a_thread_is_not_unwound(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    at("ab");
    assert_int_equal(pthread_key_create(&late_key, at_late_exit), 0);
    assert_int_equal(pthread_create(&thread, NULL, run_late, lord), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_key_delete(late_key), 0);
    assert_int_equal(fake.calls, 1);
    assert_int_equal(live_of(lord, "ab"), 32);
    assert_int_equal(live_in_all(lord), 96);
    assert_ok(memlord_free(lord, cpu(), 0x7000, NULL));
    assert_int_equal(live_in_all(lord), 32);
}

#define WORKERS 4
static memlord *shared;
static void *work(void *user) {
    const uint64_t base = (uint64_t)(uintptr_t)user << 32;
    uint64_t i;
    for (i = 0; i < 2000; i++) {
        memlord_device d = i % 2 ? cpu() : cuda(0);
        if (memlord_alloc(shared, d, base + i * 64, i, NULL)) return user;
        if (i % 3 && memlord_free(shared, d, base + i * 64, NULL)) return user;
    }
    for (i = 0; i < 2000; i += 3)
        if (memlord_free(shared, i % 2 ? cpu() : cuda(0), base + i * 64, NULL)) return user;
    return NULL;
}
static size_t still_unwind(void *user, void **frames, size_t cap) {
    size_t i;
    (void)user;
    for (i = 0; i < cap && i < 3; i++) frames[i] = (void *)(uintptr_t)(0x1000 + i * 16);
    return i;
}

static void threads_count_on_one_stack(void **state) {
    test_heap heap;
    memlord_desc desc;
    memlord_stack_stat row;
    pthread_t threads[WORKERS];
    uintptr_t i;
    void *bad;
    (void)state;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, 0);
    desc.stack_depth = 4;
    desc.stack_bytes = 1;
    desc.unwinder.fn = still_unwind;
    assert_ok(memlord_create(&desc, &shared));
    for (i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
    for (i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(threads[i], &bad), 0);
        assert_null(bad);
    }
    assert_int_equal(memlord_stacks_top(shared, cpu(), MEMLORD_SITE_ORDER_ALLOCS, &row, 1), 1);
    assert_int_equal(row.allocs, WORKERS * 1000);
    assert_int_equal(row.live_bytes, 0);
    assert_ok(memlord_verify(shared));
    memlord_destroy(shared);
    assert_int_equal(heap.bytes, 0);
}

static size_t varied_unwind(void *user, void **frames, size_t cap) {
    static __thread uint64_t turn;
    (void)user, (void)cap;
    frames[0] = (void *)(uintptr_t)(0x1000 + test_random(&turn) % 50);
    frames[1] = (void *)(uintptr_t)0x2000;
    return 2;
}
static void *work_at_sites(void *user) {
    const uint64_t base = (uint64_t)(uintptr_t)user << 32;
    uint64_t i;
    for (i = 0; i < 6000; i++) {
        const memlord_site *site = i % 4 ? &places[i % 3] : NULL;
        if (memlord_alloc(shared, cpu(), base + i * 64, i % 500, site)) return user;
        if (i % 3 && memlord_free(shared, cpu(), base + i * 64, site)) return user;
    }
    return NULL;
}
static void samples_are_divided_while_threads_work(void **state) {
    test_heap heap;
    memlord_desc desc;
    pthread_t threads[WORKERS];
    uintptr_t i;
    void *bad;
    (void)state;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, MEMLORD_FLAG_SITES);
    desc.stack_depth = 4;
    desc.stack_bytes = 1024;
    desc.unwinder.fn = varied_unwind;
    assert_ok(memlord_create(&desc, &shared));
    assert_ok(memlord_alloc(shared, cpu(), 0x1000, 9, NULL)); /* FOLDED has a line */
    for (i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work_at_sites, (void *)(i + 1)), 0);
    for (i = 0; i < 20; i++) {
        uint64_t found[4];
        heaptrack_of(shared, found);
        (void)pprof_of(shared);
        (void)folded_with(shared, "");
    }
    for (i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(threads[i], &bad), 0);
        assert_null(bad);
    }
    assert_int_equal(folded_with(shared, ""), memlord_allocated(shared, all()));
    assert_int_equal(pprof_of(shared).value[0], WORKERS * 6000 + 1);
    memlord_destroy(shared);
    assert_int_equal(heap.bytes, 0);
}

static void a_forked_child_goes_on_with_the_stacks(void **state) {
    memlord *lord = test_lord(state);
    int status;
    pid_t child;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    child = fork();
    if (!child) {
        memlord_stack_stat row;
        int bad = memlord_free(lord, cpu(), 0x1000, NULL) != MEMLORD_OK;
        bad |= memlord_alloc(lord, cpu(), 0x2000, 30, NULL) != MEMLORD_OK;
        bad |= memlord_stacks_top(lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, &row, 1) != 1;
        _exit(bad || row.live_bytes != 30);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(live_of(lord, "ab"), 100);
}

static void an_unwinder_that_writes_garbage_does_no_harm(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    at("abc");
    fake.frames[2] = NULL;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(live_of(lord, "ab"), 100);
    fake.frames[0] = (void *)UINTPTR_MAX;
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 30, NULL));
    at("abcdefgh");
    for (i = 0; i < 500; i++) {
        size_t k;
        for (k = 0; k < 8; k++)
            fake.frames[k] = (void *)(uintptr_t)((i * 8 + k) * 0x9e3779b97f4a7c15u);
        assert_ok(memlord_alloc(lord, cpu(), 0x100000 + i * 64, 1, NULL));
    }
    assert_int_equal(live_in_all(lord), 630);
    assert_ok(memlord_verify(lord));
    for (i = 0; i < MEMLORD_FORMAT_COUNT; i++) {
        test_text text;
        memset(&text, 0, sizeof text);
        assert_ok(memlord_write(lord, (memlord_format)i, test_text_write, &text));
        free(text.data);
    }
}

static void reports_count_the_stacks_that_could_not_be_taken(void **state) {
    memlord *lord = test_lord(state);
    at("");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 100, NULL));
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 100, NULL));
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT,
                         "\n2 stacks could not be taken: they are one return address, or none\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_JSON, "\"bytes\":1,\"cut\":2,"));
    memlord_reset(lord);
    assert_true(contains(lord, MEMLORD_FORMAT_JSON, "\"bytes\":1,\"cut\":0,"));
}

/* -- the platform's unwinder, on stacks of all kinds -- */

static memlord *real; /* a ledger with every stack, 64 deep */
static test_heap real_heap;
static memlord_desc real_desc(void) {
    memlord_desc desc;
    memset(&real_heap, 0, sizeof real_heap);
    desc = test_desc(&real_heap, 0);
    desc.stack_depth = 64;
    desc.stack_bytes = 1;
    return desc;
}
static int setup_real(void **state) {
    const memlord_desc desc = real_desc();
    (void)state;
    return memlord_create(&desc, &real) == MEMLORD_OK ? 0 : -1;
}
/* For a handler of signals, which may not call malloc. */
static int setup_real_pages(void **state) {
    memlord_desc desc = real_desc();
    (void)state;
    memlord_os_allocator(&desc.allocator);
    return memlord_create(&desc, &real) == MEMLORD_OK ? 0 : -1;
}
static int teardown_real(void **state) {
    (void)state;
    memlord_destroy(real);
    return real_heap.bytes != 0;
}
static memlord_stack_stat real_stack(void) {
    memlord_stack_stat row;
    assert_int_equal(memlord_stacks_top(real, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, &row, 1), 1);
    assert_int_equal(memlord_allocated(real, all()), 100);
    return row;
}
/* 1: a frame is in a function, of at most 512 bytes. */
static int has_frame_in(const memlord_stack_stat *row, uintptr_t function) {
    uint32_t i;
    for (i = 0; i < row->depth; i++) {
        const uintptr_t address = (uintptr_t)row->frames[i];
        if (address > function && address < function + 512) return 1;
    }
    return 0;
}

static int make_0x1000(void *user, uint64_t bytes, uint64_t *storage) {
    (void)user, (void)bytes;
    assert_ok(memlord_alloc(real, cpu(), 0x2000, 1, NULL)); /* which comes from somewhere else */
    assert_ok(memlord_free(real, cpu(), 0x2000, NULL));
    *storage = 0x1000;
    return 0;
}
/* Makes a block of 100 bytes by one of several calls. */
static __attribute__((noinline)) memlord_result begin_of(int how) {
    const memlord_block block = {cpu(), 0x1000, 100};
    memlord_realloc_token token;
    uint64_t made = 0;
    volatile memlord_result r = MEMLORD_E_STATE; /* so that none of the calls is a tail call */
    if (how == 0) r = memlord_alloc(real, cpu(), 0x1000, 100, NULL);
    if (how == 1) r = memlord_track(real, cpu(), 0x1000, 100, NULL);
    if (how == 2) r = memlord_alloc_n(real, &block, 1, NULL);
    if (how == 3) r = memlord_realloc(real, cpu(), 0, 0x1000, 100, NULL);
    if (how == 5) r = memlord_alloc_retry(real, cpu(), 100, make_0x1000, NULL, NULL, &made, NULL);
    if (how == 4) {
        (void)memlord_realloc_begin(real, cpu(), 0, &token);
        r = memlord_realloc_end(real, &token, 0x1000, 100, NULL);
    }
    return r;
}
static void a_stack_begins_with_the_function_of_the_host(void **state) {
    memlord_stack_stat row;
    int how;
    (void)state;
    for (how = 0; how < 6; how++) {
        assert_ok(begin_of(how));
        row = real_stack();
        if ((uintptr_t)row.frames[0] - (uintptr_t)begin_of >= 1024)
            fail_msg("call %d: the first frame is %p", how, row.frames[0]);
        assert_ok(memlord_free(real, cpu(), 0x1000, NULL));
    }
}

static __attribute__((noinline)) void alloc_here(memlord *lord, uint64_t key) {
    assert_ok(memlord_alloc(lord, cpu(), key, 100, NULL));
    __asm__ volatile(""); /* no tail call */
}

static __attribute__((noinline)) void alloc_deep(int depth) {
    if (depth)
        alloc_deep(depth - 1);
    else
        alloc_here(real, 0x1000);
    __asm__ volatile("");
}
static void a_deep_stack_is_cut_at_the_bound(void **state) {
    memlord_stack_stat row;
    (void)state;
#if defined(__arm__)
    skip(); /* the platform's unwinder is not used there */
#endif
    alloc_deep(5000);
    row = real_stack();
    assert_int_equal(row.depth, 64 + 1);
    assert_null(row.frames[64]);
    assert_string_equal(row.sites[64]->function, "[cut: deeper]");
    assert_true(has_frame_in(&row, (uintptr_t)alloc_here));
}

static void on_signal(int number) {
    (void)number;
    alloc_here(real, 0x1000);
}
static void a_stack_of_signals_is_unwound_or_cut(void **state) {
    struct sigaction action, before;
    stack_t own, old;
    memlord_stack_stat row;
    (void)state;
    memset(&action, 0, sizeof action);
    memset(&own, 0, sizeof own);
    own.ss_size = 128 * 1024;
    own.ss_sp = malloc(own.ss_size);
    assert_non_null(own.ss_sp);
    action.sa_handler = on_signal;
    action.sa_flags = SA_ONSTACK;
    assert_int_equal(sigaltstack(&own, &old), 0);
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    raise(SIGUSR1);
    (void)sigaction(SIGUSR1, &before, NULL);
    (void)sigaltstack(&old, NULL);
    free(own.ss_sp);
    row = real_stack();
    assert_true(has_frame_in(&row, (uintptr_t)alloc_here));
    assert_ok(memlord_verify(real));
}

static ucontext_t fibre_main, fibre;
static void run_fibre(void) {
    alloc_here(real, 0x1000);
    (void)swapcontext(&fibre, &fibre_main);
}
static memlord_stack_stat stack_on_a_fibre(void) {
    const size_t size = 128 * 1024;
    char *stack = (char *)malloc(size);
    assert_non_null(stack);
    assert_int_equal(getcontext(&fibre), 0);
    fibre.uc_stack.ss_sp = stack;
    fibre.uc_stack.ss_size = size;
    fibre.uc_link = &fibre_main;
    makecontext(&fibre, run_fibre, 0);
    assert_int_equal(swapcontext(&fibre_main, &fibre), 0);
    free(stack);
    return real_stack();
}
static void the_stack_of_a_fibre_ends_with_it(void **state) {
    memlord_stack_stat row;
    (void)state;
    if (TEST_SANITIZED) skip(); /* the sanitizers do not know fibres */
#if defined(__i386__) || defined(__powerpc64__)
    skip(); /* glibc's makecontext marks no end there: an unwinder reads on, and may crash */
#endif
    row = stack_on_a_fibre();
    assert_true(has_frame_in(&row, (uintptr_t)alloc_here));
    assert_false(has_frame_in(&row, (uintptr_t)the_stack_of_a_fibre_ends_with_it));
}

/* 16 KiB, or the least that the system gives a thread. */
static size_t small_stack(void) {
    const long least = sysconf(_SC_THREAD_STACK_MIN);
    return least > 16384 ? (size_t)least : 16384;
}
static void *run_small(void *user) {
    (void)user;
    alloc_here(real, 0x1000);
    return NULL;
}
static void a_thread_of_16_kib_has_stacks(void **state) {
    memlord_stack_stat row;
    pthread_attr_t attr;
    pthread_t thread;
    (void)state;
    if (TEST_SANITIZED) skip();
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, small_stack()), 0);
    assert_int_equal(pthread_create(&thread, &attr, run_small, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_attr_destroy(&attr), 0);
    row = real_stack();
    assert_true(has_frame_in(&row, (uintptr_t)alloc_here));
}

/* -- frame pointers -- */

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#define FRAME_POINTERS 1
/* Calls fn with a frame pointer. */
size_t unwind_at(const void *frame, void **frames, size_t cap,
                 size_t (*fn)(void *user, void **frames, size_t cap));
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl unwind_at\n"
        ".type unwind_at, @function\n"
        "unwind_at:\n"
        "    push %rbp\n"
        "    mov %rdi, %rbp\n"
        "    mov %rcx, %rax\n"
        "    call *%rax\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size unwind_at, . - unwind_at\n");
#else
__asm__(".text\n"
        ".globl unwind_at\n"
        ".type unwind_at, %function\n"
        "unwind_at:\n"
        "    stp x29, x30, [sp, #-16]!\n"
        "    mov x29, x0\n"
        "    blr x3\n"
        "    ldp x29, x30, [sp], #16\n"
        "    ret\n"
        ".size unwind_at, . - unwind_at\n");
#endif
#else
#define FRAME_POINTERS 0
static size_t unwind_at(const void *frame, void **frames, size_t cap,
                        size_t (*fn)(void *user, void **frames, size_t cap)) {
    (void)frame;
    return fn(NULL, frames, cap);
}
#endif

/* Unwinds from a frame; returns how many frames behind the first, which is in unwind_at, have the
   return addresses 0x1001, 0x1002 ... */
static size_t unwound(const void *frame, size_t cap) {
    void *frames[64];
    size_t i, n = unwind_at(frame, frames, cap, memlord_unwind_frame_pointers);
    assert_in_range(n, 1, cap);
    for (i = 1; i < n; i++) assert_ptr_equal(frames[i], (void *)(uintptr_t)(0x1000 + i));
    return n - 1;
}
/* Makes a chain of frames, the last one without a caller. */
typedef struct frame_record {
    const void *caller;
    uintptr_t address;
} frame_record;
static void make_chain(frame_record *chain, size_t n) {
    size_t i;
    for (i = 0; i < n; i++) {
        chain[i].caller = i + 1 < n ? &chain[i + 1] : NULL;
        chain[i].address = 0x1001 + i;
    }
}
/* Room on the stack itself: a sanitizer keeps arrays elsewhere. */
#define NEW_CHAIN(n) ((frame_record *)__builtin_alloca((n) * sizeof(frame_record)))

static void a_chain_of_frames_is_followed_to_its_end(void **state) {
    frame_record *chain = NEW_CHAIN(5);
    (void)state;
    if (!FRAME_POINTERS) skip();
    make_chain(chain, 5);
    assert_int_equal(unwound(chain, 64), 5);
    assert_int_equal(unwound(chain, 6), 5);
    assert_int_equal(unwound(chain, 3), 2); /* and one that is deeper than the bound is cut */
    chain[3].address = 0;
    assert_int_equal(unwound(chain, 64), 3);
}

static void a_corrupt_frame_pointer_ends_the_stack(void **state) {
    static frame_record elsewhere[2];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    frame_record *chain = NEW_CHAIN(4);
    char *hole;
    (void)state;
    if (!FRAME_POINTERS) skip();
    hole = (char *)mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(hole != MAP_FAILED);
    make_chain(chain, 4);
    make_chain(elsewhere, 2);
    chain[1].caller = (char *)&chain[2] + 1; /* not aligned */
    assert_int_equal(unwound(chain, 64), 2);
    chain[1].caller = &chain[1]; /* cycles */
    assert_int_equal(unwound(chain, 64), 2);
    chain[1].caller = &chain[0];
    assert_int_equal(unwound(chain, 64), 2);
    chain[1].caller = &chain[1].address; /* overlaps */
    assert_int_equal(unwound(chain, 64), 2);
    chain[1].caller = elsewhere; /* memory, but not of the stack */
    assert_int_equal(unwound(chain, 64), 2);
    chain[1].caller = hole;
    assert_int_equal(unwound(chain, 64), 2);
    chain[1].caller = (void *)(uintptr_t)8;
    assert_int_equal(unwound(chain, 64), 2);
    chain[1].caller = (void *)(UINTPTR_MAX - 15);
    assert_int_equal(unwound(chain, 64), 2);
    assert_int_equal(unwound(hole, 64), 0);
    (void)munmap(hole, page);
}

#if FRAME_POINTERS
int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr);
static char *stack_end(void) {
    pthread_attr_t attr;
    void *from;
    size_t size;
    assert_int_equal(pthread_getattr_np(pthread_self(), &attr), 0);
    assert_int_equal(pthread_attr_getstack(&attr, &from, &size), 0);
    (void)pthread_attr_destroy(&attr);
    return (char *)from + size;
}
static void frames_end_with_the_stack(void **state) {
    frame_record *chain = NEW_CHAIN(2);
    (void)state;
    make_chain(chain, 2);
    chain[0].caller = stack_end();
    assert_int_equal(unwound(chain, 64), 1);
    chain[0].caller = stack_end() - sizeof(void *);
    assert_int_equal(unwound(chain, 64), 1);
}
#endif

static void *unwind_in_thread(void *user) {
    frame_record *chain = NEW_CHAIN(3);
    make_chain(chain, 3);
    *(size_t *)user = unwound(chain, 64);
    make_chain(chain, 3);
    *(size_t *)user += unwound(chain, 64);
    return NULL;
}
static void a_thread_of_16_kib_is_unwound_by_frame_pointers(void **state) {
    pthread_attr_t attr;
    pthread_t thread;
    size_t found = 0;
    (void)state;
    if (TEST_SANITIZED || !FRAME_POINTERS) skip();
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, small_stack()), 0);
    assert_int_equal(pthread_create(&thread, &attr, unwind_in_thread, &found), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_attr_destroy(&attr), 0);
    assert_int_equal(found, 6);
}

static size_t on_other_stack; /* the frames found there */
static void unwind_there(int number) {
    void *frames[8];
    (void)number;
    on_other_stack = unwind_at(NULL, frames, 8, memlord_unwind_frame_pointers);
}
static void on_a_stack_of_signals_frame_pointers_are_not_followed(void **state) {
    struct sigaction action, before;
    stack_t own, old;
    (void)state;
    memset(&action, 0, sizeof action);
    memset(&own, 0, sizeof own);
    own.ss_size = 128 * 1024;
    own.ss_sp = malloc(own.ss_size);
    assert_non_null(own.ss_sp);
    action.sa_handler = unwind_there;
    action.sa_flags = SA_ONSTACK;
    on_other_stack = 99;
    assert_int_equal(sigaltstack(&own, &old), 0);
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    raise(SIGUSR1);
    (void)sigaction(SIGUSR1, &before, NULL);
    (void)sigaltstack(&old, NULL);
    free(own.ss_sp);
    assert_int_equal(on_other_stack, 0);
}

static void unwind_in_fibre(void) {
    unwind_there(0);
    (void)swapcontext(&fibre, &fibre_main);
}
static void on_a_fibre_frame_pointers_are_not_followed(void **state) {
    const size_t size = 128 * 1024;
    char *stack;
    (void)state;
    if (TEST_SANITIZED) skip(); /* the sanitizers do not know fibres */
    stack = (char *)malloc(size);
    assert_non_null(stack);
    on_other_stack = 99;
    assert_int_equal(getcontext(&fibre), 0);
    fibre.uc_stack.ss_sp = stack;
    fibre.uc_stack.ss_size = size;
    fibre.uc_link = &fibre_main;
    makecontext(&fibre, unwind_in_fibre, 0);
    assert_int_equal(swapcontext(&fibre_main, &fibre), 0);
    assert_int_equal(on_other_stack, 0);
    free(stack);
}

static int setup_frame_pointers(void **state) {
    memlord_desc desc = real_desc();
    (void)state;
    desc.unwinder.fn = memlord_unwind_frame_pointers;
    return memlord_create(&desc, &real) == MEMLORD_OK ? 0 : -1;
}
/* An unwinder by its type alone: it allocates, with the frame pointer that unwind_at sets. */
static __attribute__((noinline)) size_t alloc_as_unwinder(void *user, void **frames, size_t cap) {
    (void)user, (void)frames;
    assert_ok(memlord_alloc(real, cpu(), 0x1000, 100, NULL));
    return cap;
}
static void frame_pointers_begin_with_the_caller(void **state) {
    frame_record *chain = NEW_CHAIN(3);
    memlord_stack_stat row;
    void *none[1];
    uint32_t i;
    (void)state;
    if (TEST_SANITIZED || !FRAME_POINTERS) skip(); /* they use the register for something else */
    make_chain(chain, 3);
    (void)unwind_at(chain, none, 1, alloc_as_unwinder);
    row = real_stack();
    assert_true(has_frame_in(&row, (uintptr_t)alloc_as_unwinder));
    for (i = 0; i < row.depth && (uintptr_t)row.frames[i] != 0x1001; i++) {}
    assert_true(i < row.depth && i <= 3); /* behind alloc_as_unwinder and unwind_at, at most */
    assert_int_equal(row.depth, i + 3);
    assert_ptr_equal(row.frames[row.depth - 1], (void *)(uintptr_t)0x1003);
}
static void a_fibre_has_the_one_frame_of_the_call(void **state) {
    memlord_stack_stat row;
    (void)state;
    if (TEST_SANITIZED) skip();
    row = stack_on_a_fibre();
    assert_int_equal(row.depth, 1 + 1);
    assert_string_equal(row.sites[1]->function, "[cut: not unwound]");
}

static void the_platform_unwinds_to_the_caller(void **state) {
    test_heap heap;
    memlord_desc desc;
    memlord *lord;
    memlord_stack_stat row;
    uint32_t i, found = 0;
    (void)state;
#if defined(__arm__)
    skip(); /* the platform's unwinder is not used there */
#endif
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, 0);
    desc.stack_depth = 32;
    desc.stack_bytes = 1;
    assert_ok(memlord_create(&desc, &lord));
    alloc_here(lord, 0x1000);
    assert_int_equal(memlord_stacks_top(lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, &row, 1), 1);
    for (i = 0; i < row.depth; i++) {
        const uintptr_t from = (uintptr_t)alloc_here, address = (uintptr_t)row.frames[i];
        if (address > from && address < from + 512 && !found) found = i + 1;
    }
    assert_in_range(found, 1, 2); /* the first frame, or the second behind memlord_alloc */
    assert_true(row.depth >= found + 2);
    memlord_destroy(lord);
    assert_int_equal(heap.bytes, 0);
}

/* -- switched on and off in a running ledger -- */

static int setup_none(void **state) { return open_stacks(state, 0, 0, 0); }

static void a_ledger_that_began_without_stacks_can_take_them(void **state) {
    memlord *lord = test_lord(state);
    at("abc");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(fake.calls, 0);
    assert_ok(memlord_stacks_set(lord, 2, 1));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, NULL));
    assert_int_equal(live_in_all(lord), 20); /* no history is invented */
    assert_int_equal(live_of(lord, "ab"), 20);
    assert_ok(memlord_stacks_set(lord, 3, 1));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 3, NULL));
    assert_int_equal(live_of(lord, "abc"), 3);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(live_in_all(lord), 23);
}
static void at_depth_0_no_more_are_taken_and_blocks_keep_theirs(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, NULL));
    assert_ok(memlord_stacks_set(lord, 0, 0));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 3, NULL));
    assert_int_equal(fake.calls, 2);
    assert_int_equal(live_of(lord, "ab"), 120);
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(json, "stacks.depth"), 0);
    assert_int_equal(json_u64(json, "stacks.list[0].live_bytes"), 120);
    free(json);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x3000, NULL));
    assert_int_equal(live_of(lord, "ab"), 20);
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
    assert_int_equal(live_in_all(lord), 0);
}
/* The thread has drawn 2^40 bytes until its next sample, which every alloc then does not wait for. */
static void a_new_rate_holds_from_the_next_alloc_on(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    at("ab");
    for (i = 1; i <= 100; i++) assert_ok(memlord_alloc(lord, cpu(), i * 64, 1, NULL));
    assert_int_equal(live_of(lord, "ab"), 0);
    assert_ok(memlord_stacks_set(lord, 8, 1));
    for (; i <= 200; i++) assert_ok(memlord_alloc(lord, cpu(), i * 64, 1, NULL));
    assert_int_equal(live_of(lord, "ab"), 100);
    assert_ok(memlord_stacks_set(lord, 8, (uint64_t)1 << 40));
    for (; i <= 300; i++) assert_ok(memlord_alloc(lord, cpu(), i * 64, 1, NULL));
    assert_int_equal(live_of(lord, "ab"), 100);
}
/* Each sample stands for its own rate, so the sum has no bias: 20,000 blocks of 64 bytes at each. */
static void samples_of_two_rates_add_up_without_a_bias(void **state) {
    memlord *lord = test_lord(state);
    const uint64_t n = 20000, truth = 2 * n * 64;
    uint64_t i, found;
    at("ab");
    assert_ok(memlord_stacks_set(lord, 8, 512));
    for (i = 1; i <= n; i++) assert_ok(memlord_alloc(lord, cpu(), i * 64, 64, NULL));
    assert_ok(memlord_stacks_set(lord, 8, 4096));
    for (; i <= 2 * n; i++) assert_ok(memlord_alloc(lord, cpu(), i * 64, 64, NULL));
    found = live_of(lord, "ab");
    assert_in_range(found, truth - truth / 4, truth + truth / 4);
}
static void what_stacks_set_cannot_do_is_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_stacks_set(lord, 129, 1), MEMLORD_E_INVALID);
    assert_ok(memlord_stacks_set(NULL, 8, 1));
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(live_of(lord, "ab"), 100); /* as before */
}
static void *alloc_and_free(void *user) {
    memlord *lord = (memlord *)user;
    const uint64_t from = (uint64_t)(uintptr_t)&from & ~(uint64_t)0xffff;
    uint64_t i;
    for (i = 1; i <= 20000; i++) {
        assert_ok(memlord_alloc(lord, cpu(), from + i % 32 * 64, 64, NULL));
        assert_ok(memlord_free(lord, cpu(), from + i % 32 * 64, NULL));
    }
    return NULL;
}
static void they_may_be_switched_while_others_alloc(void **state) {
    memlord *lord = test_lord(state);
    pthread_t threads[3];
    int i;
    at("ab");
    for (i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, alloc_and_free, lord), 0);
    for (i = 0; i < 200; i++)
        assert_ok(memlord_stacks_set(lord, (uint32_t)i % 3 * 4, i % 2 ? 1 : 512));
    for (i = 0; i < 3; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(live_in_all(lord), 0);
}

static void *set_and_clear(void *lord) {
    int i;
    for (i = 0; i < 2000; i++) assert_ok(memlord_stacks_set((memlord *)lord, i % 2 ? 8 : 0, 1));
    return NULL;
}
/* They are on if the report says so: either all of the last call's settings hold, or none. */
static void two_threads_may_switch_them(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    char *json;
    int i, on;
    at("ab");
    for (i = 0; i < 20; i++) {
        assert_int_equal(pthread_create(&thread, NULL, set_and_clear, lord), 0);
        set_and_clear(lord);
        assert_ok(memlord_stacks_set(lord, 0, 1));
        assert_int_equal(pthread_join(thread, NULL), 0);
        json = report_of(lord, MEMLORD_FORMAT_JSON);
        on = strstr(json, "\"stacks\":{\"depth\":8") != NULL;
        free(json);
        assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
        assert_int_equal(live_in_all(lord), on ? 100 : 0);
        assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    }
}

/* -- temporary blocks -- */

static void a_block_freed_before_the_next_is_temporary(void **state) {
    memlord *lord = test_lord(state);
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(stack_of(lord, all(), "ab").temporaries, 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    at("cd");
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 100, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL)); /* another came between */
    assert_int_equal(stack_of(lord, all(), "ab").temporaries, 1);
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
    assert_int_equal(stack_of(lord, all(), "cd").temporaries, 1);
    memlord_reset(lord);
    assert_int_equal(stack_of(lord, all(), "ab").temporaries, 0);
}
static void *free_0x1000(void *user) {
    assert_ok(memlord_free((memlord *)user, cpu(), 0x1000, NULL));
    return NULL;
}
static void a_block_that_another_thread_frees_is_not_temporary(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(pthread_create(&thread, NULL, free_0x1000, lord), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(stack_of(lord, all(), "ab").temporaries, 0);
}
static void *alloc_0x1000(void *user) {
    assert_ok(memlord_alloc((memlord *)user, cpu(), 0x1000, 100, NULL));
    return NULL;
}
static void a_block_of_a_thread_that_ended_is_not_temporary(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    at("ab");
    assert_int_equal(pthread_create(&thread, NULL, alloc_0x1000, lord), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, free_0x1000, lord), 0); /* in its record */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(live_in_all(lord), 0);
    assert_int_equal(stack_of(lord, all(), "ab").temporaries, 0);
}
static void a_realloc_that_fails_makes_its_block_not_the_last(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    at("cd");
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 100, NULL));
    assert_ok(memlord_realloc_begin(lord, cpu(), 0x1000, &token));
    assert_ok(memlord_realloc_end(lord, &token, 0, 0, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(stack_of(lord, all(), "ab").temporaries, 0);
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
    assert_int_equal(stack_of(lord, all(), "cd").temporaries, 1);
}
static void a_realloc_that_fails_leaves_its_block_the_last(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_realloc_begin(lord, cpu(), 0x1000, &token));
    assert_ok(memlord_realloc_end(lord, &token, 0, 0, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(stack_of(lord, all(), "ab").temporaries, 1);
}
static void a_realloc_is_no_free_of_a_temporary(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    at("ab");
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_realloc(lord, cpu(), 0x1000, 0x2000, 200, NULL));
    assert_int_equal(stack_of(lord, all(), "ab").temporaries, 0);
    assert_ok(memlord_free_begin(lord, cpu(), 0x2000, &token, NULL));
    assert_ok(memlord_free_end(lord, &token, 0, NULL));
    assert_int_equal(stack_of(lord, all(), "ab").temporaries, 1);
}

#define TEST_FRAMES(name)                                                                       \
    cmocka_unit_test_setup_teardown(name, setup_frame_pointers, teardown_real)
#define TEST_REAL(name) cmocka_unit_test_setup_teardown(name, setup_real, teardown_real)
#define TEST_OF(setup, name) cmocka_unit_test_setup_teardown(name, setup, test_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(there_are_none_until_a_depth_is_set),
        cmocka_unit_test(a_depth_over_128_is_refused),
        TEST_OF(setup_every, every_alloc_counts_on_its_stack),
        TEST_OF(setup_every, a_listed_stack_has_the_sites_of_its_frames),
        TEST_OF(setup_every, an_alloc_of_no_bytes_counts),
        TEST_OF(setup_every, a_free_takes_off_exactly_its_block),
        TEST_OF(setup_every, one_stack_on_two_devices_is_two_rows),
        TEST_OF(setup_every, the_list_is_sorted_and_cut),
        TEST_OF(setup_every, a_stack_deeper_than_the_bound_keeps_its_innermost_frames),
        TEST_OF(setup_every, a_stack_that_is_cut_begins_with_a_frame_that_says_why),
        TEST_OF(setup_every, an_unwinder_that_says_too_many_is_not_believed),
        TEST_OF(setup_every, frames_inside_the_address_of_the_site_are_left_out),
        TEST_OF(setup_every, without_an_unwound_frame_a_stack_is_the_one_return_address),
        TEST_OF(setup_every, an_unwinder_that_allocates_is_not_run_again_inside),
        TEST_OF(setup_every, a_realloc_draws_anew),
        TEST_OF(setup_every, a_realloc_counts_its_growth_and_no_alloc),
        TEST_OF(setup_every, a_realloc_that_fails_leaves_the_stack),
        TEST_OF(setup_every, a_free_in_two_steps_ends_the_stack),
        TEST_OF(setup_every, a_move_keeps_the_stack),
        TEST_OF(setup_every, a_fenced_move_has_the_stack_at_both_ends),
        TEST_OF(setup_every, a_deferred_free_keeps_the_stack_until_it_retires),
        TEST_OF(setup_every, an_alloc_over_a_live_block_ends_its_stack),
        TEST_OF(setup_every, a_view_counts_on_no_stack),
        TEST_OF(setup_every, n_blocks_have_the_stack_of_their_call),
        TEST_OF(setup_every, a_reset_keeps_what_lives),
        TEST_OF(setup_sites, sites_and_totals_are_those_without_stacks),
        TEST_OF(setup_every, without_memory_blocks_are_recorded_without_stacks),
        TEST_OF(setup_every, ten_thousand_blocks_come_and_go),
        TEST_OF(setup_sampled, a_sample_takes_few_allocs),
        TEST_OF(setup_sampled, a_block_far_larger_than_the_mean_is_always_taken),
        TEST_OF(setup_sampled, a_sample_stands_for_as_many_allocs_as_it_had_chances),
        TEST_OF(setup_large_samples, and_so_it_does_to_12_digits),
        TEST_OF(setup_sampled, the_way_from_sample_to_sample_is_exponential),
        TEST_OF(setup_every, each_of_two_thousand_stacks_is_one_row),
        TEST_OF(setup_sampled, ledgers_of_a_process_draw_differently),
        TEST_OF(setup_sampled, processes_draw_differently),
        TEST_OF(setup_sampled, forked_children_and_their_parent_draw_differently),
        TEST_OF(setup_sampled, a_forked_child_draws_anew),
        TEST_OF(setup_sampled, threads_draw_differently),
        TEST_OF(setup_mean, the_mean_is_512_kib_unless_told),
        TEST_OF(setup_sampled, a_stack_whose_blocks_are_gone_has_no_bytes),
        TEST_OF(setup_every, folded_lines_carry_whole_stacks),
        TEST_OF(setup_every, folded_lines_are_sorted_and_equal_stacks_are_one_line),
        TEST_OF(setup_every, memory_viz_has_whole_stacks_the_innermost_first),
        TEST_OF(setup_every, memory_viz_has_the_stacks_of_allocs_that_are_gone),
        TEST_OF(setup_every, memory_viz_has_the_stacks_of_every_way_to_begin_a_block),
        TEST_OF(setup_sites, events_with_stacks_keep_their_site),
        TEST_OF(setup_sampled, memory_viz_has_every_block_where_stacks_are_samples),
        TEST_OF(setup_sampled, samples_of_one_stack_stand_for_all_blocks),
        TEST_OF(setup_rare_sites, a_site_without_a_sample_is_its_frame),
        TEST_OF(setup_rare_sites, a_block_that_was_taken_has_its_own_bytes),
        TEST_OF(setup_sampled_sites, one_stack_at_two_sites_is_two_rows),
        TEST_OF(setup_sampled_sites, stacks_share_their_site_and_tag_as_their_samples_do),
        TEST_OF(setup_sampled_sites, sites_that_add_up_to_their_device_keep_their_numbers),
        TEST_OF(setup_every, json_has_each_frame_once_and_the_totals_of_stacks),
        TEST_OF(setup_every, json_has_module_and_offset_of_a_frame),
        TEST_OF(setup_every, json_lists_the_largest_stacks_and_sums_the_rest),
        TEST(json_says_where_there_are_no_stacks),
        TEST_OF(setup_every, folded_has_a_choice_of_live_peak_and_allocated_bytes),
        TEST_OF(setup_sites,
                at_the_peak_the_blocks_without_a_stack_are_their_site_or_the_arena),
        TEST_OF(setup_sites, at_the_peak_the_sites_beyond_the_largest_are_one_frame),
        TEST_OF(setup_sampled_sites, samples_at_the_peak_add_up_to_what_the_holders_had),
        TEST_OF(setup_every, stacks_keep_what_they_held_at_the_peak_of_their_device),
        TEST_OF(setup_every, a_peak_reset_forgets_what_stacks_held),
        TEST_OF(setup_every, stacks_of_another_device_keep_their_own_peak),
        TEST_OF(setup_every, text_has_the_hottest_stacks_in_five_frames),
        TEST_OF(setup_every, text_has_the_stacks_of_the_peak_where_nothing_lives),
        TEST_OF(setup_sampled, text_of_samples_says_that_they_are_estimates),
        TEST_OF(setup_every, leaks_are_listed_by_stack),
        TEST_OF(setup_every, cut_lists_of_stacks_say_what_they_leave_out),
        TEST_OF(setup_sampled, leaks_by_stack_of_samples_are_estimates),
        TEST_OF(setup_every, pprof_has_stacks_with_addresses_and_exact_sums),
        TEST_OF(setup_every, heaptrack_has_whole_stacks_and_the_totals_of_the_ledger),
        TEST_OF(setup_sampled, formats_of_samples_say_that_stacks_are_estimates),
        cmocka_unit_test(formats_of_samples_add_up_to_the_ledger),
        TEST_OF(setup_sampled_sites, without_memory_shares_are_not_written_by_halves),
        TEST_OF(setup_sites, without_memory_a_report_of_any_format_is_whole_or_an_error),
        TEST_OF(setup_sites, without_memory_the_list_of_stacks_ends_early),
        TEST_OF(setup_sites, a_write_that_fails_ends_a_report_with_large_tables),
        TEST_OF(setup_sampled_sites, a_write_that_fails_ends_a_report_with_large_tables),
        TEST_OF(setup_every, past_its_exit_hook_a_thread_is_not_unwound),
        cmocka_unit_test(threads_count_on_one_stack),
        cmocka_unit_test(samples_are_divided_while_threads_work),
        TEST_OF(setup_every, a_forked_child_goes_on_with_the_stacks),
        cmocka_unit_test(the_platform_unwinds_to_the_caller),
        TEST_OF(setup_every, an_unwinder_that_writes_garbage_does_no_harm),
        TEST_OF(setup_every, reports_count_the_stacks_that_could_not_be_taken),
        TEST_REAL(a_deep_stack_is_cut_at_the_bound),
        TEST_REAL(a_stack_begins_with_the_function_of_the_host),
        cmocka_unit_test_setup_teardown(a_stack_of_signals_is_unwound_or_cut, setup_real_pages,
                                        teardown_real),
        TEST_REAL(the_stack_of_a_fibre_ends_with_it),
        TEST_REAL(a_thread_of_16_kib_has_stacks),
        cmocka_unit_test(a_chain_of_frames_is_followed_to_its_end),
        TEST_OF(setup_none, a_ledger_that_began_without_stacks_can_take_them),
        TEST_OF(setup_every, at_depth_0_no_more_are_taken_and_blocks_keep_theirs),
        TEST_OF(setup_large_samples, a_new_rate_holds_from_the_next_alloc_on),
        TEST_OF(setup_none, samples_of_two_rates_add_up_without_a_bias),
        TEST_OF(setup_every, what_stacks_set_cannot_do_is_refused),
        TEST_OF(setup_every, they_may_be_switched_while_others_alloc),
        TEST_OF(setup_every, two_threads_may_switch_them),
        TEST_OF(setup_every, a_block_freed_before_the_next_is_temporary),
        TEST_OF(setup_every, a_block_that_another_thread_frees_is_not_temporary),
        TEST_OF(setup_every, a_block_of_a_thread_that_ended_is_not_temporary),
        TEST_OF(setup_every, a_realloc_that_fails_makes_its_block_not_the_last),
        TEST_OF(setup_every, a_realloc_that_fails_leaves_its_block_the_last),
        TEST_OF(setup_every, a_realloc_is_no_free_of_a_temporary),
        cmocka_unit_test(a_corrupt_frame_pointer_ends_the_stack),
#if FRAME_POINTERS
        cmocka_unit_test(frames_end_with_the_stack),
#endif
        cmocka_unit_test(a_thread_of_16_kib_is_unwound_by_frame_pointers),
        cmocka_unit_test(on_a_stack_of_signals_frame_pointers_are_not_followed),
        cmocka_unit_test(on_a_fibre_frame_pointers_are_not_followed),
        TEST_FRAMES(frame_pointers_begin_with_the_caller),
        TEST_FRAMES(a_fibre_has_the_one_frame_of_the_call),
    };
    return cmocka_run_group_tests_name("stacks", tests, NULL, NULL);
}
