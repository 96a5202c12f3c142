/*
    instructions.c - a process that makes so many pairs of calls, for a program that counts
    instructions

        instructions ROW LIVE PAIRS
        instructions rows               prints the rows, with the live blocks of each

    A ledger with LIVE blocks makes the pairs of one row. Two runs that differ in PAIRS differ by
    the instructions of these pairs, and the row `the loop` tells how many of them are the loop's:
    run.sh computes both. Keys are those of a heap of blocks of 16 B to 4 KiB, or handles, the
    same in every run. Compiled twice where there is a base, as books.cpp is.
*/
#include <stdint.h>
#include <stdio.h>  /* the rows */
#include <stdlib.h> /* malloc, strtoul, exit */
#include <string.h> /* strcmp */

#ifdef BENCH_MEMLORD_H
#include BENCH_MEMLORD_H
#else
#include "../memlord.h"
#endif

#define FIRST_KEY UINT64_C(0x7f0000000000)
#define NEVER     (UINT64_C(1) << 47) /* a limit that is not reached */

static memlord *lord;
static memlord_device device;
static const memlord_site here = {"bench/instructions.c", "replace", 1};
static uint64_t *live, *dead; /* keys, LIVE of each */
static size_t blocks;
static uint64_t random_state = 0x9E3779B97F4A7C15u;

static void need(int good, const char *what) {
    if (good) return;
    (void)fprintf(stderr, "instructions: %s\n", what);
    exit(1);
}

static uint64_t draw(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state >> 11;
}

/* Replaces the key of a block by one that is not live; returns the old one. */
static uint64_t exchange(size_t *at) {
    size_t from = (size_t)(draw() % blocks);
    uint64_t old;
    *at = (size_t)(draw() % blocks);
    old = live[*at];
    live[*at] = dead[from];
    dead[from] = old;
    return old;
}

/* -- pairs: each returns how many calls failed -- */

static int nothing(void) {
    size_t at;
    return exchange(&at) == 0;
}

static int free_alloc(void) {
    size_t at;
    uint64_t old = exchange(&at);
    return (memlord_free(lord, device, old, &here) != MEMLORD_OK) +
           (memlord_alloc(lord, device, live[at], 736, &here) != MEMLORD_OK);
}

static int track_release(void) {
    size_t at = (size_t)(draw() % blocks);
    return (memlord_track(lord, device, live[at], 736, &here) != MEMLORD_OK) +
           (memlord_release(lord, device, live[at], &here) != MEMLORD_OK);
}

static int arena_add_sub(void) {
    return (memlord_arena_add(lord, device, 736, &here) != MEMLORD_OK) +
           (memlord_arena_sub(lord, device, 736, &here) != MEMLORD_OK);
}

static int done_at_second(void *user) {
    int *asked = (int *)user;
    return (*asked)++ != 0;
}

static int deferred_alloc(void) {
    int asked = 0;
    size_t at;
    uint64_t old = exchange(&at);
    memlord_fence fence = {done_at_second, NULL, 1, NULL};
    fence.user = &asked;
    return (memlord_free_deferred(lord, device, old, fence, &here) != MEMLORD_OK) +
           (memlord_retire(lord, device) != 736) +
           (memlord_alloc(lord, device, live[at], 736, &here) != MEMLORD_OK);
}

static int resize_twice(void) {
    size_t at;
    uint64_t old = exchange(&at);
    return (memlord_realloc(lord, device, old, live[at], 1472, &here) != MEMLORD_OK) +
           (memlord_realloc(lord, device, live[at], live[at], 736, &here) != MEMLORD_OK);
}

static const struct row {
    const char *name;
    int (*pair)(void);
    int limit, sites; /* with a limit; with sites, in a tag */
    int handles;      /* its keys are 1, 2, 3, ... */
    const char *live; /* for `rows` */
} rows[] = {
    {"the loop", nothing, 0, 0, 0, ""},
    {"plain", free_alloc, 0, 0, 0, "1000 100000"},
    {"plain, keys 1, 2, 3, ...", free_alloc, 0, 0, 1, "10000"},
    {"a limit", free_alloc, 1, 0, 0, "1000 100000"},
    {"sites and a tag", free_alloc, 0, 1, 0, "1000 100000"},
    {"track + release of a view", track_release, 0, 0, 0, "1000"},
    {"arena_add + arena_sub", arena_add_sub, 0, 0, 0, "1000"},
    {"free_deferred + retire + alloc", deferred_alloc, 0, 0, 0, "1000"},
    {"realloc, moved and in place", resize_twice, 0, 0, 0, "1000"},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static void fill(const struct row *row) {
    uint64_t key = row->handles ? 0 : FIRST_KEY;
    memlord_desc desc;
    size_t i;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV | (row->sites ? MEMLORD_FLAG_SITES : 0);
    device = memlord_device_cuda(0);
    live = (uint64_t *)malloc(blocks * sizeof *live);
    dead = (uint64_t *)malloc(blocks * sizeof *dead);
    need(live && dead && memlord_create(&desc, &lord) == MEMLORD_OK, "out of memory");
    if (row->limit) need(memlord_limit_set(lord, device, NEVER) == MEMLORD_OK, "no limit");
    if (row->sites) need(memlord_tag_begin(lord, "bench") == MEMLORD_OK, "no tag");
    for (i = 0; i < 2 * blocks; i++) {
        key += row->handles ? 1 : 16 + ((UINT64_C(16) << draw() % 8) + draw() % 2048) / 16 * 16;
        (i % 2 ? dead : live)[i / 2] = key;
    }
    for (i = 0; i < blocks; i++)
        need(memlord_alloc(lord, device, live[i], 736, &here) == MEMLORD_OK, "an alloc fails");
}

int main(int argc, char **argv) {
    const struct row *row = rows;
    unsigned long pairs, i;
    int bad = 0;
    if (argc == 2 && !strcmp(argv[1], "rows")) {
        for (; row < rows + ROWS; row++) (void)printf("%s\t%s\n", row->name, row->live);
        return 0;
    }
    need(argc == 4, "ROW LIVE PAIRS");
    while (row < rows + ROWS && strcmp(row->name, argv[1]) != 0) row++;
    blocks = strtoul(argv[2], NULL, 10);
    pairs = strtoul(argv[3], NULL, 10);
    need(row < rows + ROWS && blocks > 0, "no such row, or no blocks");
    fill(row);
    for (i = 0; i < pairs; i++) bad += row->pair();
    need(!bad, "a call fails");
    need(memlord_allocated(lord, device) == 736 * (uint64_t)blocks, "bytes are lost");
    memlord_destroy(lord);
    free(live);
    free(dead);
    return 0;
}
