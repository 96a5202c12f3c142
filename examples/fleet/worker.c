/*
    worker.c - a worker of a fleet, which exports its metrics

    It serves requests until it is killed, or for a minute. Each request takes a buffer and gives it
    back. A worker that leaks also keeps a session of each request for ever. Build and run:

        cc -std=c99 -O2 -I. examples/fleet/worker.c -o worker -pthread
        ./worker rank=0 /run/memlord/rank0.prom
        ./worker rank=1 /run/memlord/rank1.prom leak
*/
#define _DEFAULT_SOURCE /* nanosleep */
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { EXPORT_MS = 100, REQUEST_MS = 25, REQUESTS = 60 * 1000 / REQUEST_MS };
enum { OPEN = 16 }; /* requests open at a time */
enum { BUFFER = 64 << 10, SESSION = 24 << 10 };

static void check(memlord_result result) {
    if (result == MEMLORD_OK) return;
    fprintf(stderr, "worker: %s\n", memlord_result_text(result));
    exit(1);
}
static void *take(memlord *lord, const char *tag, size_t bytes) {
    void *ptr = malloc(bytes);
    if (!ptr) check(MEMLORD_E_NOMEM);
    MEMLORD_TAG(lord, tag) check(MEMLORD_ALLOC(lord, memlord_device_cpu(), ptr, bytes));
    return ptr;
}
static void give_back(memlord *lord, void *ptr) {
    if (ptr) check(MEMLORD_FREE(lord, memlord_device_cpu(), ptr));
    free(ptr);
}

int main(int argc, char **argv) {
    const struct timespec pause = {0, REQUEST_MS * 1000000L};
    memlord *lord = memlord_global();
    void *open[OPEN] = {NULL}, *sessions[REQUESTS] = {NULL};
    int i, n;

    if (argc < 3) return fprintf(stderr, "usage: worker LABELS FILE.prom [leak]\n"), 2;
    check(memlord_labels_set(lord, argv[1]));
    check(memlord_export_start(lord, argv[2], EXPORT_MS));
    for (n = 0; n < REQUESTS; n++) {
        give_back(lord, open[n % OPEN]);
        open[n % OPEN] = take(lord, "requests", BUFFER);
        if (argc > 3) sessions[n] = take(lord, "sessions", SESSION);
        nanosleep(&pause, NULL);
    }
    for (i = 0; i < OPEN; i++) give_back(lord, open[i]);
    for (i = 0; i < n; i++) give_back(lord, sessions[i]);
    check(memlord_export_stop(lord));
    return 0;
}
