/* Samples of stacks: their draws, and what their estimates and errors come to over many short runs.
   This suite has the implementation in it, to fix the seeds. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#if defined(MEMLORD_CHECK_LOCKS)
#define MEMLORD_ASSERT(expression) ((expression) ? (void)0 : abort())
#endif
#define MEMLORD_STATIC
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

#include "support.h"

enum { MEAN = 4096, STACKS = 8, THREADS = 8, BLOCKS_MAX = 4096 };
#define SHAPES 8
#define TRIALS (TEST_SANITIZED ? 25 : 250) /* of each shape */

static void *stack; /* the return address of the next allocs */
static size_t unwind_one(void *user, void **frames, size_t cap) {
    (void)user;
    frames[0] = stack;
    return cap ? 1 : 0;
}
static int setup_samples(void **state) {
    test_case *t = (test_case *)calloc(1, sizeof *t);
    memlord_desc desc;
    if (!t) return -1;
    stack = (void *)(uintptr_t)0x1000;
    desc = test_desc(&t->heap, MEMLORD_FLAG_NO_THREADS);
    desc.stack_depth = 4;
    desc.stack_bytes = MEAN;
    desc.unwinder.fn = unwind_one;
    desc.stack_seed = 1;
    *state = t;
    return memlord_create(&desc, &t->lord) == MEMLORD_OK && t->lord ? 0 : -1;
}

/* -- what is computed without libm -- */

static void assert_twelve_digits(double a, double b) {
    assert_true((a > b ? a - b : b - a) <= 3e-13 * (b < 0 ? -b : b));
}
static void logarithms_and_scales_have_twelve_digits(void **state) {
    (void)state;
    assert_twelve_digits(mli_log_of(1), -36.736800569677101);
    assert_twelve_digits(mli_log_of(3ull << 50), -0.98082925301172624);
    assert_twelve_digits(mli_log_of((3ull << 51) - 1), -0.28768207245178107); /* far from a power */
    assert_twelve_digits(mli_log_of(1ull << 53), 0);
    assert_twelve_digits(mli_sample_scale(0.0625), 16.505207994280666);
    assert_twelve_digits(mli_sample_scale(0.001), 1000.5000833333319);
    assert_twelve_digits(mli_sample_scale(1), 1.5819767068693264);
    assert_twelve_digits(mli_sample_scale(10.5), 1.0000275372076267);
    assert_int_equal(mli_square_root(-1), 0);
    assert_int_equal(mli_square_root(0.2), 0);
    assert_int_equal(mli_square_root(0.3), 1);
    assert_int_equal(mli_square_root(2.2), 1);
    assert_int_equal(mli_square_root(2.3), 2);
    assert_int_equal(mli_square_root(8.1e37), 9000000000000000000u);
}
static void a_hash_of_a_number_is_that_of_splitmix64(void **state) {
    (void)state;
    assert_true(mli_mixed(0x9e3779b97f4a7c15u) == 0xe220a8397b1dcdafu);
    assert_true(mli_mixed(0x3c6ef372fe94f82au) == 0x6e789e6aa1b965f4u);
}

/* -- the unwinder that a program has -- */

#if defined(__GLIBC__) && !defined(__arm__) && !TEST_SANITIZED /* which unwind, too */
static uintptr_t unwound[4] = {0x1000, 0x2000, 0x3000, 0};
int unwind_backtrace(int (*fn)(void *, void *), void *user) __asm__("_Unwind_Backtrace");
int unwind_backtrace(int (*fn)(void *, void *), void *user) {
    int i, r = 0;
    for (i = 0; i < 4 && !r; i++) r = fn(&unwound[i], user);
    return r;
}
uintptr_t unwind_ip(void *context) __asm__("_Unwind_GetIP");
uintptr_t unwind_ip(void *context) { return *(uintptr_t *)context; }

static void a_stack_ends_at_its_room_or_at_no_address(void **state) {
    void *frames[4] = {NULL, NULL, NULL, NULL};
    (void)state;
    assert_int_equal(mli_unwind(NULL, frames, 2), 2);
    assert_null(frames[2]);
    assert_int_equal(mli_unwind(NULL, frames, 4), 3);
    assert_memory_equal(frames, unwound, sizeof frames);
}
#endif

/* -- draws -- */

/* The first draws of many thread records in many ledgers are exponential: their mean, and how many
   are larger than one, two and three times that, are right within four standard errors. */
static void first_draws_are_exponential(void **state) {
    static const double p[3] = {0.36787944, 0.13533528, 0.04978707}; /* exp(-1), and so on */
    const int ids = 40, seeds = 500, n = ids * seeds;
    memlord *lord = test_lord(state);
    mli_thread *t = (mli_thread *)calloc(1, sizeof *t);
    int larger[3] = {0, 0, 0}, i, k;
    double sum = 0, off;
    assert_non_null(t);
    for (i = 0; i < n; i++) {
        t->id = (uint32_t)(i % ids);
        lord->stacks.seed = (uint64_t)(i / ids);
        t->stack_random = 0; /* as a new thread begins */
        t->stack_left = 0;
        t->stack_mean = MEAN;
        mli_stack_draw(lord, t);
        sum += (double)t->stack_left;
        for (k = 0; k < 3; k++) larger[k] += t->stack_left > MEAN * (k + 1);
    }
    off = sum / n / MEAN - 1;
    assert_true(off * off * n < 16);
    for (k = 0; k < 3; k++) {
        off = larger[k] - n * p[k];
        assert_true(off * off < 16 * n * p[k] * (1 - p[k]));
    }
    free(t);
}

/* Returns which of 256 allocs of half the mean a new ledger picks: a bit each. */
static void picks_of(test_case *t, uint64_t seed, uint64_t picked[4]) {
    memlord_desc desc = test_desc(&t->heap, MEMLORD_FLAG_NO_THREADS);
    memlord *lord = NULL;
    memlord_stack_stat row;
    uint64_t i, before = 0;
    desc.stack_depth = 4;
    desc.stack_bytes = MEAN;
    desc.stack_seed = seed;
    desc.unwinder.fn = unwind_one;
    assert_ok(memlord_create(&desc, &lord));
    memset(picked, 0, 4 * sizeof *picked);
    for (i = 0; i < 256; i++) {
        assert_ok(memlord_alloc(lord, cpu(), 0x10000 + i * 64, MEAN / 2, NULL));
        memset(&row, 0, sizeof row);
        (void)memlord_stacks_top(lord, cpu(), MEMLORD_SITE_ORDER_LIVE_BYTES, &row, 1);
        picked[i / 64] |= (uint64_t)(row.samples - before) << i % 64;
        before = row.samples;
    }
    memlord_destroy(lord);
}

static void a_seed_makes_the_samples_repeatable(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t one[4], again[4], other[4];
    picks_of(t, 1, one);
    picks_of(t, 1, again);
    picks_of(t, 2, other);
    assert_memory_equal(one, again, sizeof one);
    assert_true(memcmp(one, other, sizeof one) != 0);
}

static void without_a_seed_each_ledger_has_another(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t one[4], other[4];
    picks_of(t, 0, one);
    picks_of(t, 0, other);
    assert_true(memcmp(one, other, sizeof one) != 0);
}

/* -- estimates -- */

/* A trial: blocks that stay live until it ends. */
typedef struct trial {
    memlord *lord;
    uint64_t random; /* decides the sizes of blocks, and the seeds */
    uint64_t sizes[BLOCKS_MAX], count, truth, failed;
} trial;

/* Makes all that is drawn from here on that of a new run of the program. */
static void new_run(trial *run) {
    mli_thread *t;
    run->lord->stacks.seed = test_random(&run->random);
    for (t = mli_thread_first(run->lord); t; t = mli_thread_next(t)) {
        t->stack_random = 0;
        t->stack_left = 0;
    }
}
/* Opens blocks of `bytes` together: most of 1 to `most` bytes, one in 16 of up to 16 times that. */
static void open_blocks(trial *run, uint64_t bytes, uint64_t most) {
    while (bytes) {
        uint64_t size = 1 + test_random(&run->random) % most;
        if (test_random(&run->random) % 16 == 0) size *= 16;
        if (size > bytes) size = bytes;
        bytes -= size;
        if (run->count == BLOCKS_MAX ||
            memlord_alloc(run->lord, cpu(), 0x10000 + run->count * 64, size, NULL)) {
            run->failed++; /* other threads may not assert */
            return;
        }
        run->sizes[run->count++] = size;
        run->truth += size;
    }
}
static void free_block(trial *run, uint64_t i) {
    if (!run->sizes[i]) return;
    assert_ok(memlord_free(run->lord, cpu(), 0x10000 + i * 64, NULL));
    run->truth -= run->sizes[i];
    run->sizes[i] = 0;
}

static void of_a_first_thread(trial *run) {
    new_run(run);
    open_blocks(run, 64 * MEAN, MEAN / 4);
}
static void of_blocks_of_which_half_are_freed(trial *run) {
    uint64_t i;
    new_run(run);
    open_blocks(run, 128 * MEAN, MEAN / 4);
    for (i = 0; i < run->count; i++)
        if (test_random(&run->random) % 2) free_block(run, i);
}
static void of_several_stacks(trial *run) {
    uintptr_t i;
    new_run(run);
    for (i = 0; i < STACKS; i++) {
        stack = (void *)(0x1000 + i * 16);
        open_blocks(run, 64 * MEAN / STACKS, MEAN / 4);
    }
    stack = (void *)(uintptr_t)0x1000;
}

static void *run_short_thread(void *user) {
    open_blocks((trial *)user, 4 * MEAN, MEAN / 2);
    return NULL;
}
static void of_short_threads_in_turn(trial *run) {
    pthread_t thread;
    int i;
    new_run(run);
    for (i = 0; i < 16; i++) {
        assert_int_equal(pthread_create(&thread, NULL, run_short_thread, run), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
}
/* Each has a thread record of its own, as all live until the last one has its blocks. */
typedef struct team {
    trial *run;
    pthread_mutex_t turn;
    pthread_barrier_t done;
} team;
static void *run_beside_others(void *user) {
    team *all_of = (team *)user;
    pthread_mutex_lock(&all_of->turn);
    open_blocks(all_of->run, 64 * MEAN / THREADS, MEAN / 4);
    pthread_mutex_unlock(&all_of->turn);
    pthread_barrier_wait(&all_of->done);
    return NULL;
}
static void of_threads_at_once(trial *run) {
    pthread_t threads[THREADS];
    team all_of;
    int i;
    all_of.run = run;
    assert_int_equal(pthread_mutex_init(&all_of.turn, NULL), 0);
    assert_int_equal(pthread_barrier_init(&all_of.done, NULL, THREADS), 0);
    new_run(run);
    for (i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_beside_others, &all_of), 0);
    for (i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&all_of.done);
    pthread_mutex_destroy(&all_of.turn);
}

/* Small programs are pooled, as their profiles would be merged: in a program with less than some
   twenty samples the number of samples is no normal variable (most of the smallest here have none),
   so two errors of one program are no interval of 95 %. */
static void small_programs(trial *run, int programs) {
    const uint64_t bytes = 64 * MEAN / (uint64_t)programs;
    int i;
    for (i = 0; i < programs; i++) {
        new_run(run);
        open_blocks(run, bytes, bytes < MEAN ? bytes / 4 : MEAN / 4);
    }
}
static void of_programs_of_a_quarter_of_the_mean(trial *run) { small_programs(run, 256); }
static void of_programs_of_the_mean(trial *run) { small_programs(run, 64); }
static void of_programs_of_four_times_the_mean(trial *run) { small_programs(run, 16); }

typedef struct tally {
    double ratios, trials, inside; /* ratios: the sum of estimate / truth */
} tally;

/* Runs one trial: how its estimate, the sum of all stacks, compares with the truth, and whether
   that is within two of the errors that they state. */
static void run_trial(trial *run, void (*shape)(trial *run), tally *to) {
    memlord_stack_stat rows[STACKS];
    double estimate = 0, variance = 0, off;
    uint64_t i;
    size_t n;
    run->count = run->truth = 0;
    shape(run);
    assert_int_equal(run->failed, 0);
    n = memlord_stacks_top(run->lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, rows, STACKS);
    while (n--) {
        estimate += (double)rows[n].live_bytes;
        variance += (double)rows[n].error_bytes * (double)rows[n].error_bytes;
    }
    to->trials++;
    to->ratios += estimate / (double)run->truth;
    off = estimate - (double)run->truth;
    to->inside += off * off <= 4 * variance;
    for (i = 0; i < run->count; i++) free_block(run, i);
}

/* Says whether the mean of the estimates is within 1 % of the truth, and the truth within two
   stated errors in 93 to 97 % of the trials: some 3.5 and 4 times what chance makes of 2,000
   trials. Of fewer, as of one shape and under a sanitizer, both bounds are wider in proportion. */
static void assert_true_estimates(const char *name, const tally *of) {
    const double wide = 2000 / of->trials; /* squared */
    const double mean = of->ratios / of->trials, inside = of->inside / of->trials;
    print_message("# %-34s %4.0f trials, %.4f of the truth, %.1f %% within two errors\n", name,
                  of->trials, mean, 100 * inside);
    assert_true((mean - 1) * (mean - 1) < 0.01 * 0.01 * wide);
    assert_true((inside - 0.95) * (inside - 0.95) < 0.02 * 0.02 * wide);
}
static void estimates_and_their_errors_are_true(void **state) {
    static const struct {
        const char *name;
        void (*run)(trial *run);
    } shapes[SHAPES] = {
        {"a first thread", of_a_first_thread},
        {"blocks of which half are freed", of_blocks_of_which_half_are_freed},
        {"several stacks", of_several_stacks},
        {"short threads in turn", of_short_threads_in_turn},
        {"threads at once", of_threads_at_once},
        {"programs of a quarter of the mean", of_programs_of_a_quarter_of_the_mean},
        {"programs of the mean", of_programs_of_the_mean},
        {"programs of four times the mean", of_programs_of_four_times_the_mean},
    };
    static trial run;
    tally every = {0, 0, 0}, of[SHAPES];
    int s, i;
    memset(of, 0, sizeof of);
    run.lord = test_lord(state);
    run.random = 1;
    for (s = 0; s < SHAPES; s++)
        for (i = 0; i < TRIALS; i++) run_trial(&run, shapes[s].run, &of[s]);
    for (s = 0; s < SHAPES; s++) {
        assert_true_estimates(shapes[s].name, &of[s]);
        every.trials += of[s].trials;
        every.ratios += of[s].ratios;
        every.inside += of[s].inside;
    }
    assert_true_estimates("all", &every);
}

/* Over many blocks of one size the estimates come to the truth, within four standard errors, and
   the mean of the square of what they are wrong by to that of the error they state. */
static void estimate(void **state, uint64_t bytes) {
    TEST_ONE_THREAD();
    memlord *lord = test_lord(state);
    const uint64_t rounds = 200, blocks = 400, truth = blocks * bytes;
    double sum = 0, squares = 0, stated = 0, allocs = 0, off;
    uint64_t r, i;
    for (r = 0; r < rounds; r++) {
        memlord_stack_stat row;
        memlord_reset(lord);
        for (i = 0; i < blocks; i++)
            assert_ok(memlord_alloc(lord, cpu(), 0x10000 + i * 64, bytes, NULL));
        memset(&row, 0, sizeof row);
        (void)memlord_stacks_top(lord, cpu(), MEMLORD_SITE_ORDER_LIVE_BYTES, &row, 1);
        off = (double)row.live_bytes - (double)truth;
        sum += off;
        squares += off * off;
        stated += (double)row.error_bytes * (double)row.error_bytes;
        allocs += (double)row.allocs - (double)blocks;
        assert_int_equal(row.live_bytes, row.alloc_bytes);
        for (i = 0; i < blocks; i++)
            assert_ok(memlord_free(lord, cpu(), 0x10000 + i * 64, NULL));
        assert_int_equal(
            memlord_stacks_top(lord, cpu(), MEMLORD_SITE_ORDER_LIVE_BYTES, &row, 1), 0);
    }
    assert_true(sum * sum < 16 * squares);
    assert_true(allocs * allocs * (double)(bytes * bytes) < 16 * squares * 1.1);
    assert_true(stated > squares * 0.7 && stated < squares * 1.4);
}
static void an_estimate_of_small_blocks_is_unbiased(void **state) { estimate(state, MEAN / 64); }
static void an_estimate_of_blocks_near_the_mean_is_unbiased(void **state) { estimate(state, MEAN); }
static void an_estimate_of_large_blocks_is_unbiased(void **state) { estimate(state, 3 * MEAN); }

/* -- a block that is taken back -- */

/* So large that every draw picks it. */
static void a_block_that_is_taken_back_leaves_the_allocs_of_its_stack(void **state) {
    const uint64_t bytes = 1 << 20;
    memlord *lord = test_lord(state);
    const mli_stack_row *row;
    mli_thread *t;
    uint32_t dev;
    assert_ok(memlord_alloc(lord, cpu(), 0x10000, bytes, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x10000, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x20000, 2 * bytes, NULL));
    row = mli_stack_row_at(lord, 1);
    assert_int_equal(mli_u64_load(&row->samples), 2);
    assert_int_equal(mli_u64_load(&row->picked_bytes), 3 * bytes);
    assert_int_equal(mli_u64_load(&row->live), 2 * bytes);
    dev = mli_dev_known(lord, cpu());
    t = mli_thread_get(lord);
    mli_block_unopen(lord, t, dev, 0x20000, 2 * bytes);
    mli_thread_put(lord, t);
    assert_int_equal(mli_u64_load(&row->samples), 1);
    assert_int_equal(mli_u64_load(&row->picked_bytes), bytes);
    assert_int_equal(mli_u64_load(&row->alloc_bytes), bytes);
    assert_int_equal(mli_u64_load(&row->live), 0);
    assert_int_equal(mli_u64_load(&row->allocs), MLI_STACK_UNITS);
}

int main(void) {
#define TEST_SAMPLES(name) cmocka_unit_test_setup_teardown(name, setup_samples, test_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logarithms_and_scales_have_twelve_digits),
#if defined(__GLIBC__) && !defined(__arm__) && !TEST_SANITIZED
        cmocka_unit_test(a_stack_ends_at_its_room_or_at_no_address),
#endif
        cmocka_unit_test(a_hash_of_a_number_is_that_of_splitmix64),
        TEST_SAMPLES(first_draws_are_exponential),
        TEST_SAMPLES(a_seed_makes_the_samples_repeatable),
        TEST_SAMPLES(without_a_seed_each_ledger_has_another),
        TEST_SAMPLES(an_estimate_of_small_blocks_is_unbiased),
        TEST_SAMPLES(an_estimate_of_blocks_near_the_mean_is_unbiased),
        TEST_SAMPLES(an_estimate_of_large_blocks_is_unbiased),
        TEST_SAMPLES(estimates_and_their_errors_are_true),
        TEST_SAMPLES(a_block_that_is_taken_back_leaves_the_allocs_of_its_stack),
    };
    return cmocka_run_group_tests_name("samples", tests, NULL, NULL);
}
