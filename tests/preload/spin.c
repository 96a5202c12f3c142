/* Ends while argv[1] threads compute, and prints when, by the monotonic clock, in ns. It has blocks
   of many sites, so that its report takes time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile unsigned long turns;
static void *spin(void *unused) {
    for (;;) turns++;
    return unused;
}

static void *volatile kept;
#define SITE kept = malloc(100);
#define SITES8 SITE SITE SITE SITE SITE SITE SITE SITE
#define SITES64 SITES8 SITES8 SITES8 SITES8 SITES8 SITES8 SITES8 SITES8
#define SITES512 SITES64 SITES64 SITES64 SITES64 SITES64 SITES64 SITES64 SITES64

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 0;
    pthread_t thread;
    struct timespec t;
    SITES512 SITES512 SITES512 SITES512
    while (n-- > 0)
        if (pthread_create(&thread, NULL, spin, NULL)) return 1;
    if (clock_gettime(CLOCK_MONOTONIC, &t)) return 1;
    printf("%lld\n", (long long)t.tv_sec * 1000000000 + t.tv_nsec);
    return fflush(stdout);
}
