/*
    peaks.c - how close the peak of several threads is, and what that costs

        peaks           a line for each row: its name, the reported part of the true peak, the
                        nanoseconds of processor time a pair of an alloc and its free, and the same
                        with MEMLORD_FLAG_EXACT

    The threads of a row rise together to the true peak, and fall together. Compiled twice where
    there is a base, as instructions.c is.
*/
#define _GNU_SOURCE  /* pthread_barrier_t */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>  /* the rows */
#include <stdlib.h> /* exit */
#include <string.h> /* memset */
#include <time.h>   /* clock_gettime */

#include "common.h"

#ifdef BENCH_MEMLORD_H
#include BENCH_MEMLORD_H
#else
#include "../memlord.h"
#endif

#define KIB UINT64_C(1024)
enum { MOST_THREADS = 8 };

static const struct row {
    const char *name;
    int threads, rounds;
    uint64_t blocks, bytes; /* of each thread */
} rows[] = {
    {"2 threads, 30 KiB each", 2, 2000, 30, KIB},
    {"8 threads, 30 KiB each", 8, 500, 30, KIB},
    {"8 threads, 1 MiB each", 8, 50, 1024, KIB},
    {"8 threads, 1 GiB together", 8, 50, 1024, 128 * KIB},
};

static memlord *lord;
static pthread_barrier_t meet;
static const struct row *now;

static void *rise_and_fall(void *number) {
    const uint64_t first = ((uint64_t)(uintptr_t)number + 1) << 32;
    const memlord_device device = memlord_device_cuda(0);
    uint64_t i;
    int round;
    for (round = 0; round < now->rounds; round++) {
        (void)pthread_barrier_wait(&meet);
        for (i = 0; i < now->blocks; i++)
            need(!memlord_alloc(lord, device, first + i * 4096, now->bytes, NULL), "an alloc");
        (void)pthread_barrier_wait(&meet);
        for (i = 0; i < now->blocks; i++)
            need(!memlord_free(lord, device, first + i * 4096, NULL), "a free");
    }
    return NULL;
}

/* Runs a row. Returns the nanoseconds a pair; *part gets the reported part of the true peak. */
static double run(uint32_t flags, double *part) {
    const double most = (double)now->threads * (double)(now->blocks * now->bytes);
    pthread_t threads[MOST_THREADS];
    struct timespec from, to;
    memlord_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV | flags;
    need(memlord_create(&desc, &lord) == MEMLORD_OK, "out of memory");
    need(!pthread_barrier_init(&meet, NULL, (unsigned)now->threads), "no barrier");
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    for (i = 0; i < now->threads; i++)
        need(!pthread_create(&threads[i], NULL, rise_and_fall, (void *)(uintptr_t)i), "no thread");
    for (i = 0; i < now->threads; i++) (void)pthread_join(threads[i], NULL);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    (void)pthread_barrier_destroy(&meet);
    *part = (double)memlord_peak(lord, memlord_device_cuda(0)) / most;
    memlord_destroy(lord);
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) /
           ((double)now->threads * (double)now->rounds * (double)now->blocks);
}

int main(void) {
    double part, all, pair, exact;
    for (now = rows; now < rows + sizeof rows / sizeof *rows; now++) {
        pair = run(0, &part);
        exact = run(MEMLORD_FLAG_EXACT, &all);
        need(all == 1, "an exact peak");
        (void)printf("%s\t%.4f\t%.0f\t%.0f\n", now->name, part, pair, exact);
    }
    return 0;
}
