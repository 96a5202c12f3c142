/* Threads that take turns: what each of them adds to the counts of devices, sites and tags is known
   after each call, so live bytes and totals are compared exactly, and each peak with the bound of
   its own row. MEMLORD_TEST_SEED replays a run. This suite has the implementation in it, because no
   call gives the bounds of sites and tags. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define MEMLORD_STATIC
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

#include "support.h"

enum { THREADS = 3, DEVICES = 2, SITES = 3, TAGS = 3 /* 0: none */, KEYS = 64, GAMES = 4 };

static const memlord_site sites[SITES] = {{"t.c", "a", 1}, {"t.c", "b", 2}, {"t.c", "c", 3}};
static const char *const tags[TAGS] = {NULL, "weights", "kv"};

/* -- what should be in the ledger -- */

typedef struct row {
    uint64_t live, peak, blocks;
    uint64_t in, out, freed, allocs, frees; /* since the last reset; freed: at a site, by it */
} row;
typedef struct block {
    uint64_t bytes; /* 0: none */
    int dev, site, tag;
} block;
typedef struct books {
    row device[DEVICES], site[DEVICES][SITES], tag[DEVICES][TAGS];
    block blocks[KEYS];
} books;

static void row_alloc(row *r, uint64_t bytes) {
    r->live += bytes;
    r->in += bytes;
    r->allocs++;
    r->blocks++;
    if (r->live > r->peak) r->peak = r->live;
}
static void row_free(row *r, uint64_t bytes) {
    r->live -= bytes;
    r->out += bytes;
    r->freed += bytes;
    r->frees++;
    r->blocks--;
}
static void row_reset(row *r) {
    const row now = {r->live, r->live, r->blocks, 0, 0, 0, 0, 0};
    *r = now;
}

/* -- threads that do what they are told, one at a time -- */

typedef struct turn {
    enum { ALLOC, FREE, RESET, PEAK_RESET, END } kind;
    int key, dev, site, tag;
    uint64_t bytes;
} turn;
typedef struct turns { /* on the heap, because its threads go on waiting after a test has failed */
    memlord *lord;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int threads; /* the number of threads that have begun */
    int whose;   /* a thread; THREADS: of the test */
    turn turn;
    memlord_result r;
} turns;

static uint64_t key_of(int key) { return 0x7f3a00000000u + (uint64_t)key * 0x12340; }

static memlord_result take_turn(memlord *lord, const turn *t) {
    memlord_result r = MEMLORD_OK;
    switch (t->kind) {
    case ALLOC:
        if (t->tag) r = memlord_tag_begin(lord, tags[t->tag]);
        if (!r)
            r = memlord_alloc(lord, memlord_device_cuda(t->dev), key_of(t->key), t->bytes,
                              &sites[t->site]);
        if (!r && t->tag) r = memlord_tag_end(lord);
        break;
    case FREE:
        r = memlord_free(lord, memlord_device_cuda(t->dev), key_of(t->key), &sites[t->site]);
        break;
    case RESET: memlord_reset(lord); break;
    case PEAK_RESET: memlord_peak_reset(lord, memlord_device_cuda(t->dev)); break;
    case END: break;
    }
    return r;
}

static void *work(void *user) {
    turns *t = (turns *)user;
    int number, end = 0;
    pthread_mutex_lock(&t->lock);
    number = t->threads++;
    while (!end) {
        while (t->whose != number) pthread_cond_wait(&t->changed, &t->lock);
        end = t->turn.kind == END;
        t->r = take_turn(t->lord, &t->turn);
        t->whose = THREADS;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}
static void let(turns *t, int whose, turn what) {
    pthread_mutex_lock(&t->lock);
    t->turn = what;
    t->whose = whose;
    pthread_cond_broadcast(&t->changed);
    while (t->whose != THREADS) pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
    assert_ok(t->r);
}

/* -- comparing -- */

/* A peak is never too high, and at most `error` too low. */
static void compare_peak(const char *what, int at, uint64_t peak, uint64_t error, const row *r) {
    if (peak > r->peak || peak + error < r->peak || peak < r->live)
        fail_msg("%s %d: peak %llu, error %llu; it was %llu, and %llu live", what, at,
                 (unsigned long long)peak, (unsigned long long)error, (unsigned long long)r->peak,
                 (unsigned long long)r->live);
}
static void compare_devices(memlord *lord, const books *b) {
    int d;
    for (d = 0; d < DEVICES; d++) {
        const memlord_stats s = stats_of(lord, cuda(d));
        const row *r = &b->device[d];
        assert_int_equal(memlord_allocated(lord, cuda(d)), r->live);
        assert_int_equal(s.allocated, r->live);
        assert_int_equal(s.live_blocks, r->blocks);
        assert_int_equal(s.total_allocated, r->in);
        assert_int_equal(s.total_freed, r->out);
        assert_int_equal(s.freed, r->freed);
        assert_int_equal(s.allocs, r->allocs);
        assert_int_equal(s.frees, r->frees);
        compare_peak("device", d, s.peak, s.peak_error, r);
    }
}
static void compare_sites(memlord *lord, const books *b) {
    const uint32_t n = mli_row_count(lord, MLI_BOOK_SITE);
    memlord_site_stat s;
    uint32_t i;
    for (i = 1; i < n; i++) {
        const uint64_t error = mli_site_stat_fill(lord, i, &s);
        const row *r = &b->site[s.device.index][s.site->line - 1];
        assert_int_equal(s.live_bytes, r->live);
        assert_int_equal(s.alloc_bytes, r->in);
        assert_int_equal(s.free_bytes, r->freed);
        assert_int_equal(s.allocs, r->allocs);
        assert_int_equal(s.frees, r->frees);
        compare_peak("site", s.site->line, s.peak_bytes, error, r);
    }
}
static void compare_tags(memlord *lord, const books *b) {
    const uint32_t n = mli_row_count(lord, MLI_BOOK_TAG);
    memlord_tag_stat s;
    uint32_t i;
    for (i = 1; i < n; i++) {
        const uint64_t error = mli_tag_stat_fill(lord, i, &s);
        const uint32_t dev = mli_row_at(lord, MLI_BOOK_TAG, i)->dev;
        const int tag = strcmp(s.tag, tags[1]) ? 2 : 1;
        const row *r = &b->tag[mli_device_record_at(lord, dev)->device.index][tag];
        assert_int_equal(s.allocated, r->live);
        assert_int_equal(s.blocks, r->blocks);
        compare_peak("tag", tag, s.peak, error, r);
    }
}

/* -- a run -- */

static uint64_t size_of(uint64_t *seed, uint64_t most) {
    return 1 + test_random(seed) % (most >> test_random(seed) % 12);
}

/* Chooses a turn, and does in the books what it should do in the ledger. */
static turn choose(books *b, uint64_t *seed, uint64_t most) {
    const uint64_t dice = test_random(seed) % 400;
    block *at;
    turn t;
    int d, i;
    memset(&t, 0, sizeof t);
    t.key = (int)(test_random(seed) % KEYS);
    t.dev = (int)(test_random(seed) % DEVICES);
    t.site = (int)(test_random(seed) % SITES);
    t.tag = (int)(test_random(seed) % TAGS);
    at = &b->blocks[t.key];
    t.kind = dice == 0 ? RESET : dice == 1 ? PEAK_RESET : at->bytes ? FREE : ALLOC;
    switch (t.kind) {
    case ALLOC:
        t.bytes = at->bytes = size_of(seed, most);
        at->dev = t.dev, at->site = t.site, at->tag = t.tag;
        row_alloc(&b->device[t.dev], t.bytes);
        row_alloc(&b->site[t.dev][t.site], t.bytes);
        row_alloc(&b->tag[t.dev][t.tag], t.bytes);
        break;
    case FREE: /* by a thread and at a site that need not be those of the alloc */
        t.dev = at->dev;
        row_free(&b->device[at->dev], at->bytes);
        row_free(&b->tag[at->dev][at->tag], at->bytes);
        b->site[at->dev][at->site].live -= at->bytes;
        b->site[at->dev][t.site].freed += at->bytes;
        b->site[at->dev][t.site].frees++;
        at->bytes = 0;
        break;
    case RESET:
        for (d = 0; d < DEVICES; d++) {
            row_reset(&b->device[d]);
            for (i = 0; i < SITES; i++) row_reset(&b->site[d][i]);
            for (i = 0; i < TAGS; i++) row_reset(&b->tag[d][i]);
        }
        break;
    case PEAK_RESET: b->device[t.dev].peak = b->device[t.dev].live; break;
    case END: break;
    }
    return t;
}

enum { STEPS = TEST_SANITIZED ? 1000 : 4000 };

static void play(memlord *lord, int threads, uint64_t seed, uint64_t most) {
    static books b;
    pthread_t thread[THREADS];
    const turn end = {END, 0, 0, 0, 0, 0};
    turns *t = (turns *)calloc(1, sizeof *t);
    uint64_t n;
    int i;
    memset(&b, 0, sizeof b);
    assert_non_null(t);
    t->lord = lord;
    t->whose = THREADS;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    for (i = 0; i < threads; i++) assert_int_equal(pthread_create(&thread[i], NULL, work, t), 0);
    for (n = 0; n < STEPS; n++) {
        let(t, (int)(test_random(&seed) % (unsigned)threads), choose(&b, &seed, most));
        compare_devices(lord, &b);
        if (n % 8) continue;
        compare_sites(lord, &b);
        compare_tags(lord, &b);
    }
    for (i = 0; i < threads; i++) let(t, i, end);
    for (i = 0; i < threads; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    compare_devices(lord, &b);
    compare_sites(lord, &b);
    compare_tags(lord, &b);
    free(t);
}

/* Plays several games, each with a seed and a ledger of its own. */
static void play_games(void **state, uint32_t flags, int threads, uint64_t most) {
    uint64_t seed = test_env("MEMLORD_TEST_SEED", 1);
    int i;
    for (i = 0; i < GAMES; i++) {
        if (i) assert_int_equal(test_teardown(state) | test_open(state, flags), 0);
        play(test_lord(state), threads, seed + (unsigned)i, most);
    }
}

static void the_books_of_one_thread_are_exact(void **state) {
    play_games(state, MEMLORD_FLAG_SITES, 1, 1 << 20);
    assert_int_equal(stats_of(test_lord(state), all()).peak_error, 0);
}
static void the_books_of_threads_with_small_blocks_are_right(void **state) {
    play_games(state, MEMLORD_FLAG_SITES, THREADS, 1 << 13);
}
static void the_books_of_threads_with_large_blocks_are_right(void **state) {
    play_games(state, MEMLORD_FLAG_SITES, THREADS, 1 << 20);
}
static void with_the_exact_flag_the_books_of_threads_are_exact(void **state) {
    play_games(state, MEMLORD_FLAG_EXACT | MEMLORD_FLAG_SITES, THREADS, 1 << 16);
    assert_int_equal(stats_of(test_lord(state), all()).peak_error, 0);
}

static int setup_exact_sites(void **state) {
    return test_open(state, MEMLORD_FLAG_EXACT | MEMLORD_FLAG_SITES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_SITES(the_books_of_one_thread_are_exact),
        TEST_SITES(the_books_of_threads_with_small_blocks_are_right),
        TEST_SITES(the_books_of_threads_with_large_blocks_are_right),
        cmocka_unit_test_setup_teardown(with_the_exact_flag_the_books_of_threads_are_exact,
                                        setup_exact_sites, test_teardown),
    };
    return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
