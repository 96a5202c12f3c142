/*
    beside.c - what MemLord adds to the malloc and free that a host calls anyway

        beside      a line for each row: its name; the nanoseconds of a free, a malloc and a touch;
                    those that books add, and their share of the former; both again with sites and
                    a tag

    A thread replaces blocks at random among those that are live: free, malloc, and a write to the
    block's first byte. The same heap is used with books and without, in turn. Before a turn that
    keeps books its live blocks are recorded, and afterwards they are taken off again. A share is
    the median over the rounds, each of which compares turns that are close in time. Compiled twice
    where there is a base, as instructions.c is.
*/
#define _POSIX_C_SOURCE 200809L
#include <math.h> /* exp2 */
#include <stdint.h>
#include <stdio.h>  /* the rows */
#include <stdlib.h> /* what is measured */
#include <string.h> /* memset */
#include <time.h>   /* clock_gettime */

#include "common.h"

#ifdef BENCH_MEMLORD_H
#include BENCH_MEMLORD_H
#else
#include "../memlord.h"
#endif

enum { MOST_LIVE = 100000, WARM = MOST_LIVE, TIMED = 50000, ROUNDS = 9 };
enum way { LOOP, BARE, BOOKS, FULL, WAYS }; /* of a turn; FULL: with sites and a tag */

static const struct row {
    const char *name;
    int small; /* 16 to 1,015 B, uniform; else 16 B to 4 KiB, log-uniform */
    size_t live;
} rows[] = {
    {"16 B to 4 KiB, 1,000 live", 0, 1000},     {"16 B to 4 KiB, 10,000 live", 0, 10000},
    {"16 B to 4 KiB, 100,000 live", 0, 100000}, {"16 to 1,015 B, 1,000 live", 1, 1000},
    {"16 to 1,015 B, 10,000 live", 1, 10000},   {"16 to 1,015 B, 100,000 live", 1, 100000},
};

static const memlord_site here = {"bench/beside.c", "replace", 1};
static memlord *lords[WAYS];
static memlord_device device;
static unsigned char *at[MOST_LIVE];
static uint32_t slots[WARM + TIMED];
static uint16_t sizes[WARM + TIMED];

static uint16_t size_of(const struct row *row) {
    if (row->small) return (uint16_t)(16 + draw() % 1000);
    return (uint16_t)(16 * exp2((double)(draw() % 8192) / 1024));
}

static void draw_steps(const struct row *row) {
    size_t i;
    for (i = 0; i < WARM + TIMED; i++) {
        slots[i] = (uint32_t)(draw() % row->live);
        sizes[i] = size_of(row);
    }
}

static uint64_t key(uint32_t slot) { return (uint64_t)(uintptr_t)at[slot]; }

/* Replaces a block, with its books if there is a ledger. */
static inline void replace(memlord *lord, uint32_t slot, uint16_t size) {
    if (lord) (void)memlord_free(lord, device, key(slot), &here);
    free(at[slot]);
    at[slot] = (unsigned char *)malloc(size);
    need(at[slot] != NULL, "out of memory");
    if (lord) (void)memlord_alloc(lord, device, key(slot), size, &here);
    *(volatile unsigned char *)at[slot] = 1;
}

/* Makes steps. Returns the nanoseconds of the thread's processor time that each takes. */
static double steps(enum way way, size_t from, size_t to) {
    memlord *const lord = lords[way];
    struct timespec begun, ended;
    size_t i;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    if (way == LOOP)
        for (i = from; i < to; i++) __asm__ volatile("" ::"r"(at[slots[i]]), "r"(sizes[i]));
    else if (way == BARE)
        for (i = from; i < to; i++) replace(NULL, slots[i], sizes[i]);
    else
        for (i = from; i < to; i++) replace(lord, slots[i], sizes[i]);
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
    return ((double)(ended.tv_sec - begun.tv_sec) * 1e9 + (double)(ended.tv_nsec - begun.tv_nsec)) /
           (double)(to - from);
}

/* Takes a turn. The untimed steps come first until all blocks may have been replaced: the turn
   before has used the caches, and so has the recording of the live blocks. */
static double turn(const struct row *row, enum way way) {
    double ns;
    uint32_t i;
    draw_steps(row);
    for (i = 0; lords[way] && i < row->live; i++)
        need(!memlord_alloc(lords[way], device, key(i), 16, &here), "an alloc");
    (void)steps(way, 0, WARM);
    ns = steps(way, WARM, WARM + TIMED);
    for (i = 0; lords[way] && i < row->live; i++)
        need(!memlord_free(lords[way], device, key(i), &here), "a free");
    return ns;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values) {
    qsort(values, ROUNDS, sizeof *values, by_value);
    return values[ROUNDS / 2];
}

static void play(const struct row *row) {
    double bare[ROUNDS], added[2][ROUNDS], share[2][ROUNDS];
    uint32_t i;
    int r, way;
    for (i = 0; i < row->live; i++)
        need((at[i] = (unsigned char *)malloc(size_of(row))) != NULL, "out of memory");
    for (i = 0; i < 2 * row->live; i += TIMED) { /* ages the heap, as map.cpp does */
        draw_steps(row);
        (void)steps(BARE, 0, TIMED);
    }
    for (r = 0; r < ROUNDS; r++) {
        double loop = turn(row, LOOP), all = turn(row, BARE);
        bare[r] = all - loop;
        for (way = BOOKS; way < WAYS; way++) {
            double *const to = &added[way - BOOKS][r];
            *to = turn(row, (enum way)way) - all;
            share[way - BOOKS][r] = *to / bare[r];
        }
    }
    for (i = 0; i < row->live; i++) free(at[i]);
    (void)printf("%s\t%.1f\t%.1f\t%.3f\t%.1f\t%.3f\n", row->name, median(bare), median(added[0]),
                 median(share[0]), median(added[1]), median(share[1]));
}

int main(void) {
    const struct row *row;
    int way;
    device = memlord_device_cpu();
    for (way = BOOKS; way < WAYS; way++) {
        memlord_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.flags = MEMLORD_FLAG_NO_ENV | (way == FULL ? MEMLORD_FLAG_SITES : 0);
        need(memlord_create(&desc, &lords[way]) == MEMLORD_OK, "no ledger");
    }
    need(memlord_tag_begin(lords[FULL], "bench") == MEMLORD_OK, "no tag");
    for (row = rows; row < rows + sizeof rows / sizeof *rows; row++) play(row);
    for (way = BOOKS; way < WAYS; way++) {
        memlord_stats s;
        (void)memlord_stats_get(lords[way], device, &s);
        need(!s.allocated && !s.implicit_frees && !s.unknown_frees && !s.dropped_allocs,
             "wrong books");
        memlord_destroy(lords[way]);
    }
    return 0;
}
