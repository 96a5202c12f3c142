/*
    reports.c - what scopes, checkpoints, events and reports cost

        reports

    MEMLORD_BENCH_QUICK=1: fewer rounds.
*/
#define _GNU_SOURCE /* clock_gettime */
#include <stdio.h>  /* the tables */
#include <stdlib.h> /* malloc, qsort, getenv, exit */
#include <string.h> /* memset */
#include <time.h>   /* clock_gettime */

#include "../memlord.h"
#include "common.h"

enum { MOST_ROUNDS = 25, BLOCKS = 100000, EVENTS = 100000, DEVICES = 64 };
#define BASE   (UINT64_C(1) << 40)
#define SECOND UINT64_C(1000000000)

static int rounds = MOST_ROUNDS;

/* Returns this thread's processor time: what else runs on a busy machine is not in it. */
static double now_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* -- a ledger that says how much memory it takes -- */

static uint64_t held, most;

static void *counted_alloc(void *user, size_t size) {
    (void)user;
    held += size;
    if (held > most) most = held;
    return malloc(size);
}
static void counted_free(void *user, void *ptr, size_t size) {
    (void)user;
    held -= size;
    free(ptr);
}

static memlord *lord;
static uint32_t next;

/* Opens the ledger, and makes so many live blocks. */
static void open_ledger(uint64_t blocks, uint32_t flags) {
    memlord_desc desc;
    uint64_t i;
    memset(&desc, 0, sizeof desc);
    desc.flags = flags | MEMLORD_FLAG_NO_ENV;
    desc.allocator.alloc = counted_alloc;
    desc.allocator.free = counted_free;
    need(memlord_create(&desc, &lord) == MEMLORD_OK, "no ledger");
    for (i = 0; i < blocks; i++)
        need(memlord_alloc(lord, memlord_device_cpu(), BASE + i * 64, 64, MEMLORD_SITE()) ==
                 MEMLORD_OK, "no room for a block");
}

/* -- what is called -- */

static void scope_planted(void) { MEMLORD_SCOPE(lord, "planted") {} }
static void scope_named(void) {
    (void)memlord_scope_begin(lord, "named");
    (void)memlord_scope_end(lord);
}
static void scope_with_a_pair(void) {
    MEMLORD_SCOPE(lord, "pair") {
        (void)memlord_alloc(lord, memlord_device_cpu(), BASE - 64, 64, NULL);
        (void)memlord_free(lord, memlord_device_cpu(), BASE - 64, NULL);
    }
}
static memlord_context empty, nested; /* with nothing open; with two tags and two scopes open */
static void swap_empty(void) { (void)memlord_context_swap(lord, &empty); }
static void swap_nested(void) { (void)memlord_context_swap(lord, &nested); }
static void open_contexts(void) {
    memset(&empty, 0, sizeof empty);
    memset(&nested, 0, sizeof nested);
    need(memlord_context_swap(lord, &nested) == MEMLORD_OK, "no context");
    need(memlord_tag_begin(lord, "a") == MEMLORD_OK && memlord_tag_begin(lord, "b") == MEMLORD_OK &&
             memlord_scope_begin(lord, "a") == MEMLORD_OK &&
             memlord_scope_begin(lord, "b") == MEMLORD_OK &&
             memlord_context_swap(lord, &nested) == MEMLORD_OK,
         "no tags and scopes");
}
/* Frees a block of those that live, and allocates it anew. */
static void pair(uint64_t blocks) {
    uint64_t key = BASE + (uint64_t)(next = next * 1664525u + 1013904223u) % blocks * 64;
    (void)memlord_free(lord, memlord_device_cpu(), key, MEMLORD_SITE());
    (void)memlord_alloc(lord, memlord_device_cpu(), key, 64, MEMLORD_SITE());
}
static void pair_of_1000(void) { pair(1000); }

/* -- scopes -- */

typedef struct call {
    const char *name;
    void (*fn)(void);
    double ns[MOST_ROUNDS];
} call;

static double batch_ns(void (*fn)(void), int n) {
    double begun;
    int i;
    for (i = 0; i < n / 10; i++) fn();
    begun = now_ns();
    for (i = 0; i < n; i++) fn();
    return (now_ns() - begun) / n;
}

static void measure_scopes(void) {
    static call calls[] = {{"scope begin + end", scope_planted, {0}},
                           {"scope begin + end, by name", scope_named, {0}},
                           {"scope with an alloc + free in it", scope_with_a_pair, {0}},
                           {"alloc + free, 1,000 live", pair_of_1000, {0}},
                           {"context swap, nothing open", swap_empty, {0}},
                           {"context swap, 2 tags and 2 scopes", swap_nested, {0}}};
    size_t i;
    int r;
    open_ledger(1000, 0);
    open_contexts();
    for (r = 0; r < rounds; r++)
        for (i = 0; i < sizeof calls / sizeof *calls; i++)
            calls[i].ns[r] = batch_ns(calls[i].fn, 100000);
    (void)printf("\nScopes: ns\n%-36s %8s %8s %8s\n", "", "median", "min", "max");
    for (i = 0; i < sizeof calls / sizeof *calls; i++) {
        call *c = &calls[i];
        qsort(c->ns, (size_t)rounds, sizeof(double), by_value);
        (void)printf("%-36s %8.1f %8.1f %8.1f\n", c->name, c->ns[rounds / 2], c->ns[0],
                     c->ns[rounds - 1]);
    }
    memlord_destroy(lord);
}

/* -- checkpoints -- */

static void checkpoint(void) { (void)memlord_checkpoint(lord, "here"); }

static void measure_checkpoints(void) {
    double ns[MOST_ROUNDS];
    int i;
    open_ledger(0, 0);
    for (i = 0; i < DEVICES; i++)
        (void)memlord_alloc(lord, memlord_device_cuda(i), BASE + (uint64_t)i * 64, 64, NULL);
    for (i = 0; i < rounds; i++) ns[i] = batch_ns(checkpoint, 1000);
    qsort(ns, (size_t)rounds, sizeof(double), by_value);
    (void)printf("%-36s %8.0f %8.0f %8.0f\n", "checkpoint, 64 devices", ns[rounds / 2], ns[0],
                 ns[rounds - 1]);
    memlord_destroy(lord);
}

/* -- events: the same pairs with and without, in turn -- */

enum { PAIRS = 100000 };
static struct {
    uint64_t freed, opened, bytes;
} step[PAIRS + PAIRS / 10]; /* as many as batch_ns calls */
static void *block[BLOCKS];
static int at;

static uint64_t random_number(void) {
    static uint64_t state = 1; /* Knuth's MMIX generator; its high bits are the good ones */
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state >> 33;
}
static size_t random_size(void) {
    size_t least = (size_t)16 << random_number() % 8;
    return least + random_number() % least;
}

/* Replaces blocks of a real heap at random, and records the addresses: those that a counter makes
   would never meet in the map. */
static void record_pairs(uint64_t blocks) {
    int i;
    for (i = 0; i < PAIRS + PAIRS / 10; i++) {
        void **one = &block[random_number() % blocks];
        step[i].freed = MEMLORD_KEY(*one);
        free(*one);
        step[i].bytes = random_size();
        need((*one = malloc(step[i].bytes)) != NULL, "no memory");
        step[i].opened = MEMLORD_KEY(*one);
    }
    at = 0;
}
static void pair_recorded(void) {
    (void)memlord_free(lord, memlord_device_cpu(), step[at].freed, MEMLORD_SITE());
    (void)memlord_alloc(lord, memlord_device_cpu(), step[at].opened, step[at].bytes,
                        MEMLORD_SITE());
    at++;
}
static double batch_recorded(uint64_t blocks) {
    record_pairs(blocks);
    return batch_ns(pair_recorded, PAIRS);
}

/* Measures pairs with and without events. With `full` they have sites and a tag; without these a
   pair is little more than the time stamps of its two events. */
static void measure_events(uint64_t blocks, int full, const char *name) {
    double off[MOST_ROUNDS], on[MOST_ROUNDS], ratio[MOST_ROUNDS];
    memlord_stats stats;
    uint64_t i;
    int r;
    open_ledger(0, full ? MEMLORD_FLAG_SITES : 0);
    if (full) need(memlord_tag_begin(lord, "tag") == MEMLORD_OK, "no tag");
    for (i = 0; i < blocks; i++) {
        size_t bytes = random_size();
        need((block[i] = malloc(bytes)) != NULL, "no memory");
        (void)memlord_alloc(lord, memlord_device_cpu(), MEMLORD_KEY(block[i]), bytes, NULL);
    }
    for (r = 0; r < rounds; r++) {
        memlord_events_stop(lord);
        off[r] = batch_recorded(blocks);
        need(memlord_events_start(lord, EVENTS) == MEMLORD_OK, "no ring");
        on[r] = batch_recorded(blocks);
        ratio[r] = on[r] / off[r];
    }
    need(memlord_stats_get(lord, memlord_device_cpu(), &stats) == MEMLORD_OK &&
             stats.allocs - stats.frees == blocks && !stats.unknown_frees, "the books are wrong");
    for (i = 0; i < blocks; i++) free(block[i]);
    qsort(off, (size_t)rounds, sizeof(double), by_value);
    qsort(on, (size_t)rounds, sizeof(double), by_value);
    qsort(ratio, (size_t)rounds, sizeof(double), by_value);
    (void)printf("%-36s %8.1f %8.1f %8.2f\n", name, off[rounds / 2], on[rounds / 2],
                 ratio[rounds / 2]);
    memlord_destroy(lord);
}

/* -- reports -- */

static uint64_t written;
static int count_bytes(void *user, const void *data, size_t size) {
    (void)user, (void)data;
    written += size;
    return 0;
}

static void measure_report(memlord_format format, const char *name) {
    double ns[MOST_ROUNDS];
    uint64_t before = 0, extra = 0;
    int r;
    for (r = 0; r < rounds; r++) {
        before = most = held;
        written = 0;
        ns[r] = now_ns();
        need(memlord_write(lord, format, count_bytes, NULL) == MEMLORD_OK, name);
        ns[r] = now_ns() - ns[r];
        if (most - before > extra) extra = most - before;
    }
    qsort(ns, (size_t)rounds, sizeof(double), by_value);
    (void)printf("%-36s %8.1f %8.2f %8.2f\n", name, ns[rounds / 2] / 1e6,
                 (double)written / 1048576, (double)extra / 1048576);
}

static void measure_reports(void) {
    int i;
    (void)printf("\nReports%-29s %8s %8s %8s\n", "", "ms", "MiB out", "MiB used");
    open_ledger(BLOCKS, MEMLORD_FLAG_SITES);
    measure_report(MEMLORD_FORMAT_JSON, "JSON of 100,000 blocks");
    memlord_destroy(lord);
    open_ledger(1000, MEMLORD_FLAG_SITES);
    need(memlord_events_start(lord, EVENTS) == MEMLORD_OK, "no ring");
    for (i = 0; i < EVENTS; i++) pair(1000);
    measure_report(MEMLORD_FORMAT_JSON, "JSON of 100,000 events");
    measure_report(MEMLORD_FORMAT_HTML, "HTML of 100,000 events");
    memlord_destroy(lord);
}

int main(void) {
    const char *quick = getenv("MEMLORD_BENCH_QUICK");
    if (quick && *quick == '1') rounds = 5;
    measure_scopes();
    measure_checkpoints();
    (void)printf("\nEvents%-30s %8s %8s %8s\n", "", "off", "on", "x");
    measure_events(1000, 1, "events on, 1,000 live");
    measure_events(1000, 0, "  no sites, no tag, 1,000 live");
    measure_events(100000, 1, "events on, 100,000 live");
    measure_events(100000, 0, "  no sites, no tag, 100,000 live");
    measure_reports();
    return 0;
}
