/* Worked examples: the numbers of a model, of a first program and of a strategy, as one would
   compute them by hand. */
#include "support.h"

#include "json.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* -- Llama 3.2 1B: expected against actual -- */

enum {
    VOCABULARY = 128256,
    WIDTH = 2048,
    LAYERS = 16,
    KV_HEADS = 8,
    HEAD = 64,
    FEED_FORWARD = 8192,
    BF16 = 2 /* bytes */
};

/* The tensors of a layer, by their number of weights. */
static const uint64_t layer[] = {
    (uint64_t)WIDTH *WIDTH,          /* q */
    (uint64_t)WIDTH *KV_HEADS *HEAD, /* k */
    (uint64_t)WIDTH *KV_HEADS *HEAD, /* v */
    (uint64_t)WIDTH *WIDTH,          /* output */
    (uint64_t)WIDTH *FEED_FORWARD,   /* gate */
    (uint64_t)WIDTH *FEED_FORWARD,   /* up */
    (uint64_t)WIDTH *FEED_FORWARD,   /* down */
    WIDTH,                           /* norm before attention */
    WIDTH                            /* norm before the feed-forward net */
};
#define TENSORS (sizeof layer / sizeof layer[0])

static uint64_t parameters(void) {
    uint64_t sum = (uint64_t)VOCABULARY * WIDTH + WIDTH; /* embeddings and the last norm */
    size_t i;
    for (i = 0; i < TENSORS; i++) sum += LAYERS * layer[i];
    return sum;
}
/* Keys and values of all layers. */
static uint64_t cache_bytes(uint64_t positions) {
    return 2 * LAYERS * positions * KV_HEADS * HEAD * BF16;
}

static uint64_t add_tensor(memlord *lord, uint64_t storage, uint64_t weights) {
    assert_ok(memlord_track(lord, cuda(0), storage, weights * BF16, NULL));
    return storage + weights * BF16;
}
/* Loads the model. Its output layer is the embeddings again, or with `copied` a copy of them. */
static void load_llama(memlord *lord, int copied) {
    uint64_t embeddings = (uint64_t)VOCABULARY * WIDTH, storage = 0x100000000, next;
    size_t i;
    int l;
    assert_ok(memlord_expect(lord, cuda(0), "weights", parameters() * BF16));
    assert_ok(memlord_expect(lord, cuda(0), "kv_cache", cache_bytes(2048)));
    assert_ok(memlord_tag_begin(lord, "weights"));
    next = add_tensor(lord, storage, embeddings);
    for (l = 0; l < LAYERS; l++)
        for (i = 0; i < TENSORS; i++) next = add_tensor(lord, next, layer[i]);
    next = add_tensor(lord, next, WIDTH);
    (void)add_tensor(lord, copied ? next : storage, embeddings);
    assert_ok(memlord_tag_end(lord));
}
static void add_cache(memlord *lord, uint64_t positions) {
    assert_ok(memlord_tag_begin(lord, "kv_cache"));
    assert_ok(memlord_alloc(lord, cuda(0), 0x4000000000, cache_bytes(positions), NULL));
    assert_ok(memlord_tag_end(lord));
}
static memlord_tag_stat tag_of(memlord *lord, const char *tag) {
    memlord_tag_stat s;
    assert_ok(memlord_tag_get(lord, cuda(0), tag, &s));
    return s;
}

static void llama_3_2_1b_is_what_was_expected(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat s;
    assert_int_equal(parameters(), 1235814400);
    assert_int_equal(cache_bytes(1), 32768);
    load_llama(lord, 0);
    add_cache(lord, 2048);
    s = tag_of(lord, "weights");
    assert_int_equal(s.expected, 2471628800);
    assert_int_equal(s.allocated, 2471628800);
    assert_int_equal(s.variance, 0);
    assert_int_equal(s.blocks, 1 + 16 * 9 + 1); /* the embeddings once */
    s = tag_of(lord, "kv_cache");
    assert_int_equal(s.expected, 64 * MIB);
    assert_int_equal(s.variance, 0);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 2471628800 + 64 * MIB);
}

static void llama_3_2_1b_with_a_copy_of_its_embeddings_is_501_mib_over(void **state) {
    memlord *lord = test_lord(state);
    char *text, *json;
    load_llama(lord, 1);
    add_cache(lord, 4096); /* twice the positions that were planned */
    assert_int_equal(tag_of(lord, "weights").variance, 525336576);
    assert_int_equal(tag_of(lord, "kv_cache").variance, 64 * MIB);
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "\n    2.79 GiB    2.79 GiB         147     2.3 GiB    +501 MiB"
                                 "  weights\n"));
    assert_non_null(strstr(text, "\n     128 MiB     128 MiB           1      64 MiB     +64 MiB"
                                 "  kv_cache\n"));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(json, "\"expected\":2471628800,\"variance\":525336576}"));
    free(text);
    free(json);
}

static void llama_3_2_1b_fits_before_it_is_loaded_or_not(void **state) {
    memlord *lord = test_lord(state);
    memlord_block plan[2];
    int64_t lack;
    memset(plan, 0, sizeof plan);
    plan[0].device = plan[1].device = cuda(0);
    plan[0].bytes = parameters() * BF16;
    plan[1].bytes = cache_bytes(131072); /* 4 GiB */
    assert_int_equal(plan[1].bytes, 4 * GIB);
    assert_ok(memlord_limit_set(lord, cuda(0), 8 * GIB));
    assert_int_equal(memlord_plan_fit(lord, plan, 2, &lack), 1);
    assert_ok(memlord_limit_set(lord, cuda(0), 6 * GIB));
    assert_int_equal(memlord_plan_fit(lord, plan, 2, &lack), 0);
    assert_int_equal(lack, 2471628800 - 2 * GIB);
}

/* -- a first program: x of 1024 x 1024 floats is brought from cuda:0 to cuda:1 -- */

#define X 0x10000000
#define Y 0x20000000

static void a_copy_leaves_its_source_live(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), X, 4 * MIB, NULL));
    assert_ok(memlord_alloc(lord, cuda(1), Y, 4 * MIB, NULL)); /* y = x.to("cuda:1") */
    assert_int_equal(memlord_allocated(lord, cuda(0)), 4 * MIB);
    assert_int_equal(memlord_allocated(lord, cuda(1)), 4 * MIB);
    assert_int_equal(memlord_allocated(lord, all()), 8 * MIB);
    assert_int_equal(stats_of(lord, all()).moves, 0);
    assert_ok(memlord_free(lord, cuda(0), X, NULL)); /* del x */
    assert_int_equal(memlord_freed(lord, cuda(0)), 4 * MIB);
    assert_int_equal(memlord_freed(lord, cuda(1)), 0);
    assert_int_equal(memlord_allocated(lord, all()), 4 * MIB);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

static void a_move_ends_its_source(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), X, 4 * MIB, NULL));
    assert_ok(memlord_move(lord, cuda(0), X, cuda(1), Y, 4 * MIB, NULL, NULL)); /* x = x.to(...) */
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_allocated(lord, cuda(1)), 4 * MIB);
    assert_int_equal(memlord_freed(lord, cuda(0)), 4 * MIB);
    assert_int_equal(stats_of(lord, cuda(1)).moves, 1);
    assert_int_equal(stats_of(lord, cuda(1)).moved_bytes, 4 * MIB);
    /* a host that keeps x wants an alloc for the copy: after a move x is not live */
    assert_int_equal(memlord_free(lord, cuda(0), X, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
    assert_int_equal(memlord_allocated(lord, all()), 4 * MIB);
}

/* -- a band from 33 % of a device of 24 GiB -- */

static void a_band_of_33_percent_fires_at_its_byte(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_band band = band_of(0, 101, MEMLORD_METRIC_MAX, 0, 33);
    test_capacity(t, 24 * GIB, 0);
    assert_ok(memlord_strategy_set(t->lord, cuda(0), &band, 1));
    assert_ok(memlord_alloc(t->lord, cuda(0), X, 8504035245, NULL));
    assert_int_equal(t->gc.runs, 0);
    assert_ok(memlord_alloc(t->lord, cuda(0), Y, 1, NULL));
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(t->gc.last.threshold, 8504035246);
}

/* -- the ratios of a pool that holds 1 GiB of a device -- */

static void a_pool_that_is_a_third_empty_in_pieces(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cuda(0), X, 640 * MIB, NULL));
    assert_ok(memlord_pool_set(lord, cuda(0), 1024 * MIB, 96 * MIB));
    s = stats_of(lord, cuda(0));
    assert_int_equal(s.cached, 384 * MIB);
    assert_true(memlord_cached_ratio(&s) == 0.375);  /* (1024 - 640) / 1024: over 0.3 */
    assert_true(memlord_fragmentation(&s) == 0.75);  /* 1 - 96 / (1024 - 640) */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(llama_3_2_1b_is_what_was_expected),
        TEST(llama_3_2_1b_with_a_copy_of_its_embeddings_is_501_mib_over),
        TEST(llama_3_2_1b_fits_before_it_is_loaded_or_not),
        TEST(a_copy_leaves_its_source_live),
        TEST(a_move_ends_its_source),
        TEST_FAKES(a_band_of_33_percent_fires_at_its_byte),
        TEST(a_pool_that_is_a_third_empty_in_pieces),
    };
    return cmocka_run_group_tests_name("worked", tests, NULL, NULL);
}
