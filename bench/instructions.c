/*
    instructions.c - makes pairs of calls, for a program that counts instructions

        instructions

    A ledger for each row makes pairs until its tables have grown, then counted_pairs makes the
    pairs whose instructions callgrind counts (run.sh). The row `the loop` tells how many are the
    loop's. Keys are those of a heap of blocks of 16 B to 4 KiB, or handles, the same in every run.
    Prints the rows in turn, with their live blocks and counted pairs. Compiled twice where there
    is a base, as books.cpp is: a row that the base cannot play has no pairs there.
*/
#include <stdint.h>
#include <stdio.h>  /* the rows */
#include <stdlib.h> /* malloc, exit */
#include <string.h> /* memset */

#include "common.h"

#ifdef BENCH_MEMLORD_H
#include BENCH_MEMLORD_H
#else
#include "../memlord.h"
#endif

#define FIRST_KEY UINT64_C(0x7f0000000000)
#define NEVER     (UINT64_C(1) << 47) /* a limit that is not reached */
#define BYTES     736
enum { COUNTED = 10000, LEAST_BEFORE = 5000 }; /* pairs; and at least so many before them */

static memlord *lord;
static memlord_device device;
static memlord_account account;
static const memlord_site here = {"bench/instructions.c", "replace", 1};
static uint64_t *live, *dead; /* keys, `blocks` of each */
static size_t blocks;

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
           (memlord_alloc(lord, device, live[at], BYTES, &here) != MEMLORD_OK);
}

#if MEMLORD_VERSION_MAJOR > 0 || MEMLORD_VERSION_MINOR >= 5
static int free_alloc_with(void) {
    size_t at;
    uint64_t old = exchange(&at);
    return (memlord_free(lord, device, old, NULL) != MEMLORD_OK) +
           (memlord_alloc_with(lord, device, live[at], BYTES, NULL) != MEMLORD_OK);
}

static int free_alloc_options(void) {
    size_t at;
    uint64_t old = exchange(&at);
    memlord_alloc_opts options;
    memset(&options, 0, sizeof options);
    options.tag = "bench";
    options.account = account;
    return (memlord_free(lord, device, old, NULL) != MEMLORD_OK) +
           (memlord_alloc_with(lord, device, live[at], BYTES, &options) != MEMLORD_OK);
}
#else /* these came with 0.5 */
#define free_alloc_with    NULL
#define free_alloc_options NULL
#endif

static int free_track(void) {
    size_t at;
    uint64_t old = exchange(&at);
    return (memlord_free(lord, device, old, &here) != MEMLORD_OK) +
           (memlord_track(lord, device, live[at], BYTES, &here) != MEMLORD_OK);
}

static int track_release(void) {
    size_t at = (size_t)(draw() % blocks);
    return (memlord_track(lord, device, live[at], BYTES, &here) != MEMLORD_OK) +
           (memlord_release(lord, device, live[at], &here) != MEMLORD_OK);
}

static int arena_add_sub(void) {
    return (memlord_arena_add(lord, device, BYTES, &here) != MEMLORD_OK) +
           (memlord_arena_sub(lord, device, BYTES, &here) != MEMLORD_OK);
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
           (memlord_retire(lord, device) != BYTES) +
           (memlord_alloc(lord, device, live[at], BYTES, &here) != MEMLORD_OK);
}

static int resize_in_place(void) {
    uint64_t key = live[draw() % blocks];
    return (memlord_realloc(lord, device, key, key, 2 * BYTES, &here) != MEMLORD_OK) +
           (memlord_realloc(lord, device, key, key, BYTES, &here) != MEMLORD_OK);
}

static int resize_and_move(void) {
    size_t at;
    uint64_t old = exchange(&at);
    return (memlord_realloc(lord, device, old, live[at], 2 * BYTES, &here) != MEMLORD_OK) +
           (memlord_realloc(lord, device, live[at], live[at], BYTES, &here) != MEMLORD_OK);
}

/* -- rows -- */

enum { LIMIT = 1, SITES = 2, TAG = 4, ACCOUNT = 8, USED = 16, HANDLES = 32 };

static const struct row {
    const char *name;
    int (*pair)(void);
    size_t live;
    int with; /* what is set before the pairs. USED: the account, for the thread; HANDLES: keys are
                 1, 2, 3, ... */
} rows[] = {
    {"the loop", nothing, 1000, 0},
    {"plain", free_alloc, 1000, 0},
    {"plain", free_alloc, 100000, 0},
    {"plain, keys 1, 2, 3, ...", free_alloc, 10000, HANDLES},
    {"a limit", free_alloc, 1000, LIMIT},
    {"sites and a tag", free_alloc, 1000, SITES | TAG},
    {"sites and a tag", free_alloc, 100000, SITES | TAG},
    {"alloc_with, no options", free_alloc_with, 1000, 0},
    {"alloc_with, tag and account named", free_alloc_options, 1000, ACCOUNT},
    {"alloc_with, tag and account in use", free_alloc_with, 1000, TAG | ACCOUNT | USED},
    {"alloc_with, tag and account in use", free_alloc_with, 100000, TAG | ACCOUNT | USED},
    {"track that opens + free", free_track, 1000, 0},
    {"track + release of a view", track_release, 1000, 0},
    {"arena_add + arena_sub", arena_add_sub, 1000, 0},
    {"free_deferred + retire + alloc", deferred_alloc, 1000, 0},
    {"realloc in place, and back", resize_in_place, 1000, 0},
    {"realloc, moved and in place", resize_and_move, 1000, 0},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static void fill(const struct row *row) {
    uint64_t key = row->with & HANDLES ? 0 : FIRST_KEY;
    memlord_desc desc;
    size_t i;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV | (row->with & SITES ? MEMLORD_FLAG_SITES : 0);
    blocks = row->live;
    random_state = RANDOM_SEED;
    live = (uint64_t *)malloc(blocks * sizeof *live);
    dead = (uint64_t *)malloc(blocks * sizeof *dead);
    need(live && dead && memlord_create(&desc, &lord) == MEMLORD_OK, "out of memory");
    if (row->with & LIMIT) need(!memlord_limit_set(lord, device, NEVER), "no limit");
    if (row->with & TAG) need(!memlord_tag_begin(lord, "bench"), "no tag");
    if (row->with & ACCOUNT)
        need(!memlord_account_open(lord, device, "bench", 0, &account), "no account");
    if (row->with & USED) need(!memlord_account_use(lord, account), "no account in use");
    for (i = 0; i < 2 * blocks; i++) {
        key +=
            row->with & HANDLES ? 1 : 16 + ((UINT64_C(16) << draw() % 8) + draw() % 2048) / 16 * 16;
        (i % 2 ? dead : live)[i / 2] = key;
    }
    for (i = 0; i < blocks; i++)
        need(memlord_alloc(lord, device, live[i], BYTES, &here) == MEMLORD_OK, "an alloc fails");
}

/* Not static: callgrind finds it by its name. */
__attribute__((noinline)) int counted_pairs(const struct row *row);
int counted_pairs(const struct row *row) {
    int i, bad = 0;
    for (i = 0; i < COUNTED; i++) bad += row->pair();
    return bad;
}

/* Makes as many pairs as blocks are live, so that the tables have grown, and then those that are
   counted. */
static void play(const struct row *row) {
    size_t i;
    int bad = 0;
    fill(row);
    for (i = 0; i < (blocks > LEAST_BEFORE ? blocks : LEAST_BEFORE); i++) bad += row->pair();
    bad += counted_pairs(row);
    need(!bad, "a call fails");
    need(memlord_allocated(lord, device) == BYTES * (uint64_t)blocks, "bytes are lost");
    memlord_destroy(lord);
    free(live);
    free(dead);
}

int main(void) {
    const struct row *row = rows;
    device = memlord_device_cuda(0);
    for (; row < rows + ROWS; row++) {
        if (row->pair) play(row);
        (void)printf("%s\t%u\t%d\n", row->name, (unsigned)row->live, row->pair ? COUNTED : 0);
    }
    return 0;
}
