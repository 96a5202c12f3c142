/*
    pool.c - a hit of examples/pool.h with its accounting, beside malloc of the C library

    Half of 1,000 live blocks are freed and as many allocated, sizes log-uniform from 256 B to
    64 KiB, on one thread; every request is a hit. A line each: its name, and the medians over the
    rounds in ns of an alloc, of a free, and of both.
*/
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "../examples/pool.h"
#include <stdio.h>
#include <time.h>

enum { LIVE = 1000, BATCH = 500, ROUNDS = 2001 };

static double now_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *v, size_t n) {
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

static void *(*take)(size_t bytes);
static void (*give)(void *block);

static pool the_pool;
static void *from_pool(size_t bytes) {
    void *block;
    return pool_alloc(&the_pool, bytes, 0, NULL, &block) ? NULL : block;
}
static void to_pool(void *block) { (void)pool_free(&the_pool, block, NULL); }

/* Frees a batch and takes as many of the same sizes in another order. */
static int play(const char *name) {
    static void *live[LIVE];
    static size_t sizes[LIVE];
    static double alloc_ns[ROUNDS], free_ns[ROUNDS], both[ROUNDS];
    uint64_t random = 1;
    size_t i, r, at;
    for (i = 0; i < LIVE; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        sizes[i] = ((size_t)256 << (random >> 33) % 8) + (size_t)(random >> 40) % 256;
        live[i] = take(sizes[i]);
        if (!live[i]) return 1;
    }
    for (r = 0; r < ROUNDS; r++) {
        double start, middle, end;
        at = r * 37 % LIVE;
        start = now_ns();
        for (i = 0; i < BATCH; i++) give(live[(at + i) % LIVE]);
        middle = now_ns();
        for (i = BATCH; i-- > 0;) {
            char *p = (char *)take(sizes[(at + i) % LIVE]);
            live[(at + i) % LIVE] = p;
            *p = 1; /* as a program would */
        }
        end = now_ns();
        free_ns[r] = (middle - start) / BATCH;
        alloc_ns[r] = (end - middle) / BATCH;
        both[r] = (end - start) / BATCH;
    }
    for (i = 0; i < LIVE; i++) give(live[i]);
    printf("%s\t%.1f\t%.1f\t%.1f\n", name, median(alloc_ns, ROUNDS), median(free_ns, ROUNDS),
           median(both, ROUNDS));
    return 0;
}

int main(void) {
    memlord_desc desc;
    pool_desc how;
    int bad;
    memset(&desc, 0, sizeof desc);
    memset(&how, 0, sizeof how);
    desc.flags = MEMLORD_FLAG_DEFER;
    if (memlord_create(&desc, &how.lord)) return 1;
    how.device = memlord_device_make(MEMLORD_DEVICE_OTHER, 0);
    if (pool_open(&the_pool, &how)) return 1;
    take = malloc;
    give = free;
    bad = play("malloc + free");
    take = from_pool;
    give = to_pool;
    bad |= play("pool_alloc + pool_free, with accounting");
    if (pool_close(&the_pool)) return 1;
    memlord_destroy(how.lord);
    return bad;
}
