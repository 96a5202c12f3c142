/*
    bands.c - a cache that shrinks when a band says so

    Blocks of 64 KiB stay in a cache until the ledger has counted so many bytes of it; then the
    callback drops the older half and hands the pages back to the system. Build and run:

        cc -std=c99 -O2 -I. examples/bands.c -o bands -pthread && ./bands 64MiB
*/
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#include <stdio.h>
#include <stdlib.h>
#if defined(__GLIBC__)
#include <malloc.h> /* malloc_trim: free alone keeps blocks this small in the process */
#else
#define malloc_trim(pad) 0
#endif

enum { BLOCK = 64 << 10, LEAST = 4 << 20, MOST = 256 << 20 };

typedef struct cache {
    memlord *lord;
    void **blocks; /* by key; NULL: not in the cache */
    size_t *order; /* the keys that are in it, oldest first: a ring */
    size_t keys, first, n;
    int collections, failed;
} cache;

static void check(cache *c, memlord_result result) {
    if (result == MEMLORD_OK) return;
    fprintf(stderr, "bands: %s\n", memlord_result_text(result));
    c->failed = 1;
}

/* Answers what is kept under a key; makes it when it is not there. */
static void *cache_get(cache *c, size_t key) {
    if (c->blocks[key]) {
        check(c, memlord_pool_served(c->lord, memlord_device_cpu(), 1, 0));
        return c->blocks[key];
    }
    check(c, memlord_pool_served(c->lord, memlord_device_cpu(), 0, 1));
    c->blocks[key] = malloc(BLOCK);
    if (!c->blocks[key]) return NULL;
    memset(c->blocks[key], 1, BLOCK); /* only pages that were written are really there */
    c->order[(c->first + c->n++) % c->keys] = key;
    MEMLORD_TAG(c->lord, "cache") { /* `collect` runs in here */
        check(c, MEMLORD_ALLOC(c->lord, memlord_device_cpu(), c->blocks[key], BLOCK));
    }
    return c->blocks[key];
}

static void cache_drop(cache *c, size_t n) {
    for (; n > 0; n--) {
        size_t key = c->order[c->first];
        check(c, MEMLORD_FREE(c->lord, memlord_device_cpu(), c->blocks[key]));
        free(c->blocks[key]);
        c->blocks[key] = NULL;
        c->first = (c->first + 1) % c->keys;
        c->n--;
    }
}

/* Bytes of this process that are in memory, as the system has them; 0: not known. */
static uint64_t resident(cache *c) {
    memlord_capacity now;
    if (memlord_capacity_sample(c->lord, memlord_device_cpu()) != MEMLORD_OK) return 0;
    check(c, memlord_capacity_get(c->lord, memlord_device_cpu(), &now));
    return now.known ? now.process : 0;
}

static memlord_gc_result collect(void *user, memlord *lord, const memlord_gc_event *event) {
    cache *c = (cache *)user;
    memlord_gc_result result = {1, 0, 0};
    uint64_t live = memlord_allocated(lord, event->device), rss = resident(c), live_now, rss_now;
    char a[32], b[32], name[32];
    int trimmed;

    cache_drop(c, c->n / 2);
    trimmed = malloc_trim(0);
    live_now = memlord_allocated(lord, event->device), rss_now = resident(c);
    result.reclaimed = live - live_now;
    if (live_now > live / 2 || (trimmed && rss_now >= rss)) c->failed = 1;
    c->collections++;

    memlord_device_name(event->device, name, sizeof name);
    printf("collection %d of %s: band %d, %s >= %s, %.1f %% of the memory in use\n",
           (int)event->device_runs, name, (int)event->band,
           memlord_format_bytes(event->value, a, sizeof a),
           memlord_format_bytes(event->threshold, b, sizeof b), event->used_percent);
    printf("  live %s -> %s", memlord_format_bytes(live, a, sizeof a),
           memlord_format_bytes(live_now, b, sizeof b));
    printf(", resident %s -> %s\n", memlord_format_bytes(rss, a, sizeof a),
           memlord_format_bytes(rss_now, b, sizeof b));
    return result;
}

/* The report as far as its 10th line. */
static int first_lines(void *user, const void *data, size_t size) {
    int *lines = (int *)user;
    for (const char *at = (const char *)data; size > 0 && *lines < 10; at++, size--) {
        putchar(*at);
        *lines += *at == '\n';
    }
    return ferror(stdout);
}

int main(int argc, char **argv) {
    uint64_t threshold = 32 << 20, random = 1;
    memlord_desc desc = {.logger = {memlord_log_stderr, NULL},
                         .flags = MEMLORD_FLAG_SITES | MEMLORD_FLAG_NO_THREADS};
    memlord_band band = {0, 101, MEMLORD_METRIC_ALLOCATED, 0, 0, MEMLORD_COMBINE_MAX};
    cache c = {0};
    int lines = 0;

    if (argc > 2 || (argc == 2 && memlord_parse_bytes(argv[1], &threshold) != MEMLORD_OK) ||
        threshold < LEAST || threshold > MOST) {
        fprintf(stderr, "usage: bands [threshold, 4MiB to 256MiB]\n");
        return 2;
    }
    band.bytes = threshold;
    if (getenv("DEBUG")) setenv("MEMLORD_DEBUG", getenv("DEBUG"), 0); /* DEBUG=1: every event */
    c.keys = (size_t)(threshold / BLOCK * 2);
    c.blocks = (void **)calloc(c.keys, sizeof *c.blocks);
    c.order = (size_t *)calloc(c.keys, sizeof *c.order);
    if (!c.blocks || !c.order || memlord_create(&desc, &c.lord) != MEMLORD_OK) return 1;
    check(&c, memlord_gc_callback_add(c.lord, memlord_device_cpu(), 0, collect, &c));
    check(&c, memlord_strategy_set(c.lord, memlord_device_all(), &band, 1));
    resident(&c); /* so that the first collection knows how full the machine is, */

    for (size_t i = 0; i < 2 * c.keys; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        if (!cache_get(&c, (size_t)(random >> 33) % c.keys)) c.failed = 1;
    }
    resident(&c); /* and the report too */
    printf("%d collections\n\n", c.collections);
    check(&c, memlord_write(c.lord, MEMLORD_FORMAT_TEXT, first_lines, &lines));
    cache_drop(&c, c.n);
    memlord_destroy(c.lord);
    free(c.blocks);
    free(c.order);
    if (c.failed || !c.collections) fprintf(stderr, "bands: the cache did not shrink\n");
    return c.failed || !c.collections;
}
