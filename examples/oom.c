/*
    oom.c - a workload that overruns a 64 MiB device, and completes

    Every answered request leaves its KV cache on the device, for the conversation to go on. When
    the device is full, memlord_alloc_retry has the callback drop the oldest and tries again.
    Build and run:

        cc -std=c99 -O2 -I. examples/oom.c -o oom -pthread && ./oom 100
*/
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#include <stdio.h>
#include <stdlib.h>

/* -- the driver: pages, first fit; full is full -- */

enum { PAGE = 256 << 10, PAGES = (64 << 20) / PAGE };
#define DEVICE_BASE UINT64_C(0xd00000000000)

typedef struct driver {
    size_t run[PAGES]; /* where an allocation begins: its pages; 0 elsewhere */
    size_t used;
    int attempts;
} driver;

/* A memlord_try_fn. */
static int driver_alloc(void *user, uint64_t bytes, uint64_t *storage) {
    driver *d = (driver *)user;
    size_t want = (size_t)((bytes + PAGE - 1) / PAGE), from = 0, at = 0;

    d->attempts++;
    for (; at < PAGES && at - from < want; at++) {
        if (!d->run[at]) continue;
        at += d->run[at] - 1; /* taken: begin again behind it */
        from = at + 1;
    }
    if (at - from < want) return 1;
    d->run[from] = want;
    d->used += want;
    *storage = DEVICE_BASE + (uint64_t)from * PAGE;
    return 0;
}

static void driver_free(driver *d, uint64_t storage) {
    size_t at = (size_t)((storage - DEVICE_BASE) / PAGE);
    d->used -= d->run[at];
    d->run[at] = 0;
}

/* A memlord_capacity_fn. */
static int driver_capacity(void *user, memlord_device device, memlord_capacity *out) {
    (void)device;
    out->total = (uint64_t)PAGES * PAGE;
    out->used = out->process = (uint64_t)((driver *)user)->used * PAGE;
    return 0;
}

/* -- the server -- */

enum { MOST = 1000 };

typedef struct server {
    memlord *lord;
    memlord_device device;
    driver driver;
    uint64_t cache[MOST]; /* of answered requests; 0: dropped */
    int oldest, answered;
    int failed;
} server;

static void check(server *s, memlord_result result) {
    if (result == MEMLORD_OK) return;
    fprintf(stderr, "oom: %s\n", memlord_result_text(result));
    s->failed = 1;
}

/* Drops the oldest caches until that is what is needed, in one piece or not. */
static memlord_gc_result collect(void *user, memlord *lord, const memlord_gc_event *event) {
    server *s = (server *)user;
    memlord_gc_result result = {0, 0, 0};
    uint64_t before = memlord_allocated(lord, event->device);
    int from = s->oldest;
    char a[32], b[32];

    for (; s->oldest < s->answered && result.reclaimed < event->needed; s->oldest++) {
        uint64_t *cache = &s->cache[s->oldest];
        check(s, memlord_free(lord, event->device, *cache, MEMLORD_SITE()));
        driver_free(&s->driver, *cache);
        *cache = 0;
        result.reclaimed = before - memlord_allocated(lord, event->device);
        result.ran = 1;
    }
    printf("    out of memory, %s needed: ", memlord_format_bytes(event->needed, a, sizeof a));
    if (result.ran)
        printf("dropped %d to %d, %s\n", from, s->oldest - 1,
               memlord_format_bytes(result.reclaimed, b, sizeof b));
    else
        printf("nothing left to drop\n");
    return result;
}

static memlord_result device_alloc(server *s, const char *tag, uint64_t bytes, uint64_t *out) {
    const memlord_retry policy = {6, 1, 4, 2, NULL, NULL}; /* 7 attempts, 1, 2, 4, 4 ... ms */
    memlord_alloc_opts opts = {0}; /* what is not set is the thread's */

    s->driver.attempts = 0;
    opts.site = MEMLORD_SITE();
    opts.tag = tag;
    return memlord_alloc_retry(s->lord, s->device, bytes, driver_alloc, &s->driver, &policy, out,
                               &opts);
}

static void answer(server *s, int id, uint64_t bytes) {
    char text[32];
    memlord_result result = device_alloc(s, "kv_cache", bytes, &s->cache[id]);

    printf("request %3d: a cache of %s, %s after %d attempt%s\n", id,
           memlord_format_bytes(bytes, text, sizeof text),
           result == MEMLORD_OK ? "allocated" : "refused", s->driver.attempts,
           s->driver.attempts == 1 ? "" : "s");
    check(s, result);
    if (result == MEMLORD_OK) s->answered++;
}

/* More than can be had when every cache is gone, because the weights stay. */
static void ask_too_much(server *s) {
    uint64_t wanted = UINT64_C(41) << 20, storage;
    char why[512];
    memlord_result result = device_alloc(s, "kv_cache", wanted, &storage);

    printf("a cache of 41 MiB: %s, after %d attempts\n", memlord_result_text(result),
           s->driver.attempts);
    check(s, memlord_capacity_sample(s->lord, s->device));
    (void)memlord_explain(s->lord, s->device, wanted, why, sizeof why);
    printf("%s\n\n", why);
    if (result != MEMLORD_E_OOM) s->failed = 1;
}

int main(int argc, char **argv) {
    memlord_desc desc = {.logger = {memlord_log_stderr, NULL}};
    server s = {0};
    uint64_t weights;
    memlord_stats stats;
    char *end = "";
    long requests = argc == 2 ? strtol(argv[1], &end, 10) : 16;

    if (argc > 2 || *end || requests < 8 || requests > MOST) {
        fprintf(stderr, "usage: oom [requests, 8 to %d]\n", (int)MOST);
        return 2;
    }
    s.device = memlord_device_make(MEMLORD_DEVICE_OTHER, 0);
    if (getenv("DEBUG")) setenv("MEMLORD_DEBUG", getenv("DEBUG"), 0); /* DEBUG=1: every event */
    if (memlord_create(&desc, &s.lord) != MEMLORD_OK) return 1;
    check(&s, memlord_capacity_source_set(s.lord, MEMLORD_DEVICE_OTHER, driver_capacity,
                                          &s.driver));
    /* no bands: only when it is full */
    check(&s, memlord_gc_callback_add(s.lord, s.device, 1u << MEMLORD_REASON_OOM, collect, &s));
    check(&s, device_alloc(&s, "weights", UINT64_C(24) << 20, &weights));

    for (int id = 0; id < (int)requests && !s.failed; id++)
        answer(&s, id, (uint64_t)(3 + id * 7 % 11) << 20); /* 3 to 13 MiB */
    ask_too_much(&s);

    check(&s, memlord_stats_get(s.lord, s.device, &stats));
    printf("%d requests answered\n", s.answered);
    printf("%d attempts found no memory, %d retries, %d collections\n", (int)stats.oom_attempts,
           (int)stats.retries, (int)stats.gc_runs);
    printf("%d requests recovered, %d failed\n", (int)stats.recoveries, (int)stats.oom_failures);
    if (!stats.recoveries || stats.oom_failures != 1) s.failed = 1;
    check(&s, memlord_free(s.lord, s.device, weights, MEMLORD_SITE()));
    driver_free(&s.driver, weights);
    memlord_destroy(s.lord);
    return s.failed;
}
