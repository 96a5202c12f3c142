/*
    pool.c - four threads on the pool of pool.h, which MemLord tells when it is fragmented

    The pool may reserve a fraction of its device, here half of the limit, and keeps at most a third
    of that idle. A band asks for a collection when half of what the pool holds is idle, and two
    segments; the quiet moment between two rounds asks for one when free memory lies in pieces.
    Build and run:

        cc -std=c99 -O2 -I. examples/pool.c -o pool -pthread && ./pool 64MiB
*/
#define MEMLORD_IMPLEMENTATION
#include "pool.h"
#include <stdio.h>

enum { THREADS = 4, SLOTS = 64, STEPS = 2000, ROUNDS = 2 };

static int failed; /* set by any thread, read at the end */

static void check(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "pool: not so: %s\n", what);
    __atomic_store_n(&failed, 1, __ATOMIC_RELAXED);
}

/* -- the workload: each thread fills slots, and empties those that any thread filled -- */

typedef struct slot {
    pthread_mutex_t lock;
    uint64_t *words; /* NULL: empty */
    size_t count;
} slot;

static slot table[SLOTS];

typedef struct worker {
    pool *pool;
    uint64_t random;
    pthread_t thread;
} worker;

static uint64_t random_below(worker *w, uint64_t n) {
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (w->random >> 33) % n;
}

/* Half of them of two sizes, the others anything up to 1 MiB, small ones as often as large. */
static size_t random_size(worker *w) {
    size_t base = (size_t)512 << random_below(w, 11);
    if (random_below(w, 2)) return random_below(w, 2) ? 4096 : 65536;
    return base + (size_t)random_below(w, base) / 8 * 8;
}

static void fill(worker *w, slot *s, uint64_t key) {
    size_t size = random_size(w), i;
    void *block;
    MEMLORD_TAG(w->pool->desc.lord, size < 65536 ? "small" : "large") {
        pool_result r = pool_alloc(w->pool, size, 0, MEMLORD_SITE(), &block);
        check(r == POOL_OK, pool_result_text(r));
    }
    s->words = (uint64_t *)block;
    s->count = size / sizeof *s->words;
    for (i = 0; block && i < s->count; i++) s->words[i] = key << 32 | i;
}

static void empty(pool *p, slot *s, uint64_t key) {
    size_t i;
    int intact = 1;
    if (!s->words) return;
    for (i = 0; i < s->count; i++) intact &= s->words[i] == (key << 32 | i);
    check(intact, "a block keeps its contents");
    check(pool_free(p, s->words, MEMLORD_SITE()) == POOL_OK, "a block is freed once");
    s->words = NULL;
}

static void *work(void *user) {
    worker *w = (worker *)user;
    int step;
    for (step = 0; step < STEPS; step++) {
        size_t key = (size_t)random_below(w, SLOTS);
        (void)pthread_mutex_lock(&table[key].lock);
        if (table[key].words)
            empty(w->pool, &table[key], key);
        else
            fill(w, &table[key], key);
        (void)pthread_mutex_unlock(&table[key].lock);
        (void)memlord_gc_poll(w->pool->desc.lord, w->pool->desc.device); /* a safe point */
    }
    return NULL;
}

/* -- the host -- */

/* One block of each size from 1 KiB to 1 MiB, left free for the first requests. All are taken
   before one is freed, or the next size would get the same memory. */
static void preallocate(pool *p) {
    void *blocks[11];
    size_t n = 0, size;
    for (size = 1024; n < 11; size *= 2)
        check(pool_alloc(p, size, 0, MEMLORD_SITE(), &blocks[n++]) == POOL_OK, "there is memory");
    printf("preallocated %d sizes\n", (int)n);
    while (n > 0) (void)pool_free(p, blocks[--n], MEMLORD_SITE());
}

static memlord_stats look(pool *p, const char *when) {
    memlord_stats s;
    char a[32], b[32];
    (void)memlord_stats_get(p->desc.lord, p->desc.device, &s);
    check(s.allocated == p->stats.live && s.reserved == p->stats.reserved, "MemLord counts alike");
    printf("%-8s live %s of %s, cached ratio %.2f, fragmentation %.2f\n", when,
           memlord_format_bytes(s.allocated, a, sizeof a),
           memlord_format_bytes(s.reserved, b, sizeof b), memlord_cached_ratio(&s),
           memlord_fragmentation(&s));
    return s;
}

/* What a host does at a quiet moment: looks, and compacts when it pays. */
static void compact(pool *p) {
    pool_stats was = pool_stats_get(p), now;
    memlord_stats before = look(p, "before"), after;
    uint64_t reclaimed;
    char text[32];
    if (!(memlord_fragmentation(&before) > 0.3)) return;
    check(memlord_gc_run(p->desc.lord, p->desc.device, MEMLORD_REASON_FRAGMENTATION, 0, &reclaimed) ==
              MEMLORD_OK, "the collection ran");
    now = pool_stats_get(p);
    printf("         merged %d blocks, released %d segments, %s\n", (int)(now.merged - was.merged),
           (int)(now.released - was.released), memlord_format_bytes(reclaimed, text, sizeof text));
    after = look(p, "after");
    check(before.reserved - after.reserved == reclaimed, "it is what MemLord was told");
    check(memlord_fragmentation(&after) < memlord_fragmentation(&before), "it got better");
}

static void run(pool *p) {
    worker workers[THREADS];
    size_t i;
    int round;
    for (i = 0; i < SLOTS; i++) (void)pthread_mutex_init(&table[i].lock, NULL);
    for (round = 1; round <= ROUNDS; round++) {
        printf("round %d\n", round);
        for (i = 0; i < THREADS; i++) {
            workers[i].pool = p;
            workers[i].random = i + 1;
            check(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0, "a thread");
        }
        for (i = 0; i < THREADS; i++) (void)pthread_join(workers[i].thread, NULL);
        for (i = 0; i < SLOTS; i++) /* most work is done, some goes on */
            if (i % 24) empty(p, &table[i], i);
        compact(p);
    }
    for (i = 0; i < SLOTS; i++) empty(p, &table[i], i);
}

int main(int argc, char **argv) {
    const memlord_desc desc = {.logger = {memlord_log_stderr, NULL}, .flags = MEMLORD_FLAG_DEFER};
    const memlord_band idle = {0, 101, MEMLORD_METRIC_CACHED, 2 * POOL_SEGMENT, 50,
                               MEMLORD_COMBINE_MAX};
    static pool p;
    pool_desc how = {.fraction = 0.5};
    uint64_t most = UINT64_C(64) << 20, asked;
    memlord_stats stats;

    if (argc > 2 || (argc == 2 && memlord_parse_bytes(argv[1], &most) != MEMLORD_OK) ||
        most < UINT64_C(48) << 20 || most > UINT64_C(16) << 30) {
        fprintf(stderr, "usage: pool [bytes it may reserve, 48MiB to 16GiB]\n");
        return 2;
    }
    if (getenv("DEBUG")) setenv("MEMLORD_DEBUG", getenv("DEBUG"), 0); /* DEBUG=1: every event */
    if (memlord_create(&desc, &how.lord) != MEMLORD_OK) return 1;
    how.device = memlord_device_make(MEMLORD_DEVICE_OTHER, 0); /* a pool is a device of its own */
    how.cache = most / 3;
    check(memlord_limit_set(how.lord, how.device, 2 * most) == MEMLORD_OK, "a limit");
    check(memlord_strategy_set(how.lord, how.device, &idle, 1) == MEMLORD_OK, "a band");
    if (pool_open(&p, &how) != POOL_OK) return 1;
    preallocate(&p);
    run(&p);
    check(memlord_gc_run(how.lord, how.device, MEMLORD_REASON_HOST, 0, NULL) == MEMLORD_OK, "a run");
    stats = look(&p, "at last");
    check(!stats.allocated && !stats.live_blocks, "nothing is live");
    asked = stats.cache_hits + stats.cache_misses;
    printf("%d requests, hit rate %.1f %%, %d collections, %d for the band\n", (int)asked,
           100 * (double)stats.cache_hits / (double)asked, (int)stats.gc_runs, (int)p.stats.trims);
    check(stats.cache_hits > stats.cache_misses && stats.gc_runs > 1, "it was worth it");
    check(!stats.unknown_frees && !stats.implicit_frees, "every free has its alloc");
    check(pool_close(&p) == POOL_OK, "nothing is left");
    memlord_destroy(how.lord);
    return failed;
}
