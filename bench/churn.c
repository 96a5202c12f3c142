/*
    churn.c - a program that does little else than allocate and free, to measure what a
    preloaded memory tool costs.

        churn [-m | -s | -r] [threads [live [operations [depth]]]]     default -m 1 100000 4000000 0

    Every thread fills `live` slots, then `operations` times picks one at random and replaces
    its block:
        -m  mostly free and malloc, one time in 16 a realloc, one in 16 a calloc; sizes are
            log-uniform from 16 B to 4 KiB
        -s  free and malloc alone, of 16 to 1,015 B, each size as often as any other
        -r  realloc alone, of the first block, to 100, 200, ... 800 B and 100 again: it stays where
            it is, as nothing else is allocated. One thread is that of main: malloc locks nothing
    But for -r the first bytes of each block are written, as a program would. The seed is fixed, so
    every run asks for the same sizes in the same order. Only the replacing is timed. For tools that
    take stacks it runs `depth` calls deeper than it needs. It prints one line:

        threads 1 live 100000 operations 4000000 ns_per_pair 61.7

    A pair is one replaced block; the time is that of the slowest thread. One thread alone waits for
    nobody: of it the processor time is taken, so that what else runs on a busy machine is not in it.
*/
#define _POSIX_C_SOURCE 200809L
#include <errno.h>   /* errno: which argument was refused */
#include <pthread.h> /* threads, and a barrier to start them together */
#include <stdint.h>  /* uint64_t */
#include <stdio.h>   /* the result */
#include <stdlib.h>  /* what is measured */
#include <string.h>  /* memset */
#include <time.h>    /* clock_gettime */

#define MAX_THREADS 256
#define MAX_DEPTH 1000
#define SIZES 1024 /* steps between the smallest and the largest size; a power of two */
#define TOUCHED 16 /* bytes written at the head of a block: the smallest size */

typedef struct worker {
    pthread_t thread;
    uint64_t random;
    void **slots;
    uint64_t live, operations, depth;
    uint64_t ns;
    int failed;
} worker;

enum kind { MALLOC, REALLOC, CALLOC, KINDS = 16 };

static char mix = 'm'; /* the option */
static clockid_t clock_of_run = CLOCK_MONOTONIC;
static uint16_t sizes[SIZES];
static uint8_t kinds[KINDS]; /* one of them is drawn for each block */
static pthread_barrier_t ready;

static void fill_mix(void) {
    const double step = 1.0054299011128027; /* 256 to the power of 1 / SIZES */
    double size = 16;
    int i;
    for (i = 0; i < SIZES; i++, size *= step)
        sizes[i] = (uint16_t)(mix == 's' ? 16 + i * 1000 / SIZES : size);
    if (mix == 's') return;
    kinds[0] = REALLOC;
    kinds[1] = CALLOC;
}

/* Returns the next number of xorshift64*, which costs little beside what is measured. */
static uint64_t next_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(2685821657736338717);
}

static uint64_t now_ns(void) {
    struct timespec t;
    (void)clock_gettime(clock_of_run, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* Replaces a block. Returns the new one; NULL: there is no memory. */
static void *replace(void *block, size_t size, unsigned kind) {
    void *fresh;
    if (kind == REALLOC) {
        fresh = realloc(block, size);
        if (!fresh) free(block);
    } else {
        free(block);
        fresh = kind == CALLOC ? calloc(1, size) : malloc(size);
    }
    if (fresh) memset(fresh, (int)size, TOUCHED);
    return fresh;
}

static void churn(worker *w, uint64_t operations) {
    uint64_t i;
    for (i = 0; i < operations; i++) {
        uint64_t r = next_random(&w->random);
        /* the high 32 bits choose the victim, by multiplication instead of a division */
        uint64_t victim = ((r >> 32) * w->live) >> 32;
        w->slots[victim] =
            replace(w->slots[victim], sizes[r % SIZES], kinds[r / SIZES % KINDS]);
        if (!w->slots[victim]) w->failed = 1;
    }
}

static void resize(worker *w, uint64_t operations) {
    uint64_t i;
    for (i = 0; i < operations; i++) {
        void *block = realloc(w->slots[0], 100 + i % 8 * 100);
        if (block) w->slots[0] = block;
        else w->failed = 1;
    }
}

/* Churns inside `depth` more calls. */
static __attribute__((noinline)) void churn_deep(worker *w, uint64_t depth) {
    if (depth)
        churn_deep(w, depth - 1);
    else if (mix == 'r')
        resize(w, w->operations);
    else
        churn(w, w->operations);
    w->ns++; /* no tail call, which would leave no frame */
}

static void *work(void *user) {
    worker *w = (worker *)user;
    uint64_t i, begun;
    for (i = 0; i < w->live; i++) {
        w->slots[i] = replace(NULL, sizes[next_random(&w->random) % SIZES], MALLOC);
        if (!w->slots[i]) w->failed = 1;
    }
    (void)pthread_barrier_wait(&ready);
    begun = now_ns();
    churn_deep(w, w->depth);
    w->ns = now_ns() - begun;
    for (i = 0; i < w->live; i++) free(w->slots[i]);
    return NULL;
}

/* Reads an argument; 0: it is no number from low to high. */
static uint64_t argument(int argc, char **argv, int at, uint64_t low, uint64_t high,
                         uint64_t otherwise) {
    char *end;
    unsigned long long value;
    if (at >= argc) return otherwise;
    errno = 0;
    value = strtoull(argv[at], &end, 10);
    return errno || *end || value < low || value > high ? 0 : value;
}

/* Returns how many threads ran to their end. */
static uint64_t run(worker *workers, uint64_t threads) {
    uint64_t i;
    if (mix == 'r' && threads == 1) {
        (void)work(workers);
        return 1;
    }
    for (i = 0; i < threads; i++) {
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i])) {
            (void)fprintf(stderr, "churn: no thread %u\n", (unsigned)i);
            exit(1); /* the threads that have started wait at the barrier for ever */
        }
    }
    for (i = 0; i < threads && !pthread_join(workers[i].thread, NULL); i++) {}
    return i;
}

int main(int argc, char **argv) {
    static worker workers[MAX_THREADS];
    if (argc > 1 && argv[1][0] == '-') mix = argv[1][1], argc--, argv++;
    uint64_t threads = argument(argc, argv, 1, 1, MAX_THREADS, 1);
    uint64_t live = argument(argc, argv, 2, 1, UINT32_MAX, 100000);
    uint64_t operations = argument(argc, argv, 3, 1, INT64_MAX, 4000000);
    uint64_t depth = argument(argc, argv, 4, 1, MAX_DEPTH, 0);
    uint64_t i, slowest = 0;
    int failed = 0;

    if (!mix || !strchr("msr", mix) || argc > 5 || !threads || !live || !operations ||
        (argc == 5 && !depth)) {
        (void)fprintf(stderr,
                      "usage: churn [-m | -s | -r] [threads [live [operations [depth]]]]\n");
        return 2;
    }
    fill_mix();
    if (threads == 1) clock_of_run = CLOCK_THREAD_CPUTIME_ID;
    if (pthread_barrier_init(&ready, NULL, (unsigned)threads)) return 1;
    for (i = 0; i < threads; i++) {
        workers[i].random = UINT64_C(0x9e3779b97f4a7c15) * (i + 1);
        workers[i].live = live;
        workers[i].operations = operations;
        workers[i].depth = depth;
        workers[i].slots = (void **)calloc((size_t)live, sizeof(void *));
        if (!workers[i].slots) failed = 1;
    }
    if (failed || run(workers, threads) != threads) return 1;
    for (i = 0; i < threads; i++) {
        failed |= workers[i].failed;
        if (workers[i].ns > slowest) slowest = workers[i].ns;
        free(workers[i].slots);
    }
    (void)pthread_barrier_destroy(&ready);
    (void)printf("threads %u live %llu operations %llu ns_per_pair %.1f\n", (unsigned)threads,
                 (unsigned long long)live, (unsigned long long)operations,
                 (double)slowest / (double)operations);
    return failed;
}
