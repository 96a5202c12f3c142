/* What the benches in C have in common: random numbers, and the end of a bench that cannot go on. */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define RANDOM_SEED UINT64_C(0x9E3779B97F4A7C15)

static uint64_t random_state = RANDOM_SEED;

/* Returns the next number of xorshift64. */
static inline uint64_t draw(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state >> 11;
}

/* Ends the bench unless `good`. */
static inline void need(int good, const char *what) {
    if (good) return;
    (void)fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

#endif
