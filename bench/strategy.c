/*
    strategy.c - what reservations, capacity and retire cost the thread that calls

    MEMLORD_BENCH_QUICK=1: fewer rounds. map.cpp measures what a strategy costs alloc and free.
*/
#define _POSIX_C_SOURCE 200809L
#include <pthread.h> /* a second thread; a mutex for scale */
#include <stdio.h>   /* the table */
#include <stdlib.h>  /* qsort, getenv, exit */
#include <string.h>  /* strcmp */
#include <time.h>    /* clock_gettime */

#include "../memlord.h"
#include "common.h"

enum { MOST_ROUNDS = 25 };
#define STORAGE UINT64_C(0x10000)
#define SECOND  UINT64_C(1000000000)

static int rounds = MOST_ROUNDS;

static uint64_t now_ns(clockid_t clock) {
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* -- what is called -- */

static memlord *lord;
static memlord_device device;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Each of these returns how many of its calls returned something unexpected. */
static int nothing(uint64_t storage) { return storage == 0; }

static int mutex_pair(uint64_t storage) {
    (void)storage;
    return pthread_mutex_lock(&mutex) + pthread_mutex_unlock(&mutex);
}

static int reserve_commit(uint64_t storage) {
    memlord_ticket ticket;
    int bad = memlord_reserve(lord, device, 4096, &ticket) != MEMLORD_OK;
    (void)storage;
    return bad + (memlord_reserve_commit(lord, ticket) != MEMLORD_OK);
}

static int reserve_refused(uint64_t storage) {
    memlord_ticket ticket;
    (void)storage;
    return memlord_reserve(lord, device, UINT64_C(1) << 40, &ticket) != MEMLORD_E_LIMIT;
}

static int alloc_free(uint64_t storage) {
    int bad = memlord_alloc(lord, device, storage, 4096, NULL) != MEMLORD_OK;
    return bad + (memlord_free(lord, device, storage, NULL) != MEMLORD_OK);
}

static int reserve_alloc_commit_free(uint64_t storage) {
    memlord_ticket ticket;
    int bad = memlord_reserve(lord, device, 4096, &ticket) != MEMLORD_OK;
    bad += memlord_alloc(lord, device, storage, 4096, NULL) != MEMLORD_OK;
    bad += memlord_reserve_commit(lord, ticket) != MEMLORD_OK;
    return bad + (memlord_free(lord, device, storage, NULL) != MEMLORD_OK);
}

static int capacity_get(uint64_t storage) {
    memlord_capacity c;
    (void)storage;
    return memlord_capacity_get(lord, device, &c) != MEMLORD_OK || !c.known;
}

static int headroom(uint64_t storage) {
    (void)storage;
    return memlord_headroom(lord, device) <= 0;
}

static int retire_one(uint64_t storage) {
    (void)storage;
    return memlord_retire(lord, device) != 0;
}

static int retire_all(uint64_t storage) {
    (void)storage;
    return memlord_retire(lord, memlord_device_all()) != 0;
}

/* -- their cost, a batch of each in turn -- */

typedef int (*call_fn)(uint64_t storage);

typedef struct call {
    const char *name;
    call_fn fn;
    int threads, batch;
    double ns[MOST_ROUNDS];
} call;

static call calls[] = {
    {"the loop", nothing, 1, 200000, {0}},
    {"pthread_mutex, lock + unlock", mutex_pair, 1, 200000, {0}},
    {"alloc + free", alloc_free, 1, 200000, {0}},
    {"reserve + commit", reserve_commit, 1, 200000, {0}},
    {"reserve + commit, two threads", reserve_commit, 2, 100000, {0}},
    {"reserve, refused", reserve_refused, 1, 2000, {0}},
    {"reserve + alloc + commit + free", reserve_alloc_commit_free, 1, 200000, {0}},
    {"capacity_get", capacity_get, 1, 200000, {0}},
    {"headroom", headroom, 1, 200000, {0}},
    {"retire, nothing pending", retire_one, 1, 200000, {0}},
    {"retire, all devices", retire_all, 1, 200000, {0}},
};
enum { CALLS = sizeof calls / sizeof calls[0] };

typedef struct batch {
    const call *of;
    uint64_t storage;
    double ns;
} batch;

/* Times a batch of calls, in this thread's processor time: what else runs on a busy machine is not
   in it. */
static void *play(void *user) {
    batch *b = (batch *)user;
    call_fn volatile hidden = b->of->fn; /* so that it is called as a library is, and not inlined */
    call_fn fn = hidden;
    int bad = 0;
    uint64_t begun;
    int i;

    for (i = 0; i < b->of->batch / 10; i++) bad += fn(b->storage);
    begun = now_ns(CLOCK_THREAD_CPUTIME_ID);
    for (i = 0; i < b->of->batch; i++) bad += fn(b->storage);
    b->ns = (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - begun) / b->of->batch;
    need(bad == 0, b->of->name);
    return NULL;
}

static double round_ns(const call *c) {
    batch mine = {c, STORAGE, 0}, other = {c, STORAGE * 2, 0};
    pthread_t second;
    if (c->threads == 2) need(!pthread_create(&second, NULL, play, &other), "no second thread");
    (void)play(&mine);
    if (c->threads == 2) (void)pthread_join(second, NULL);
    return mine.ns > other.ns ? mine.ns : other.ns;
}

static void measure_calls(void) {
    double loop;
    int i, r;

    for (r = 0; r < rounds; r++)
        for (i = 0; i < CALLS; i++) calls[i].ns[r] = round_ns(&calls[i]);
    (void)printf("\nLimits, capacity, deferred frees: ns per call or pair, the loop taken off\n");
    (void)printf("%-36s %8s %8s %8s %8s\n", "", "median", "min", "max", "x mutex");
    for (i = 0; i < CALLS; i++) qsort(calls[i].ns, (size_t)rounds, sizeof(double), by_value);
    loop = calls[0].ns[rounds / 2];
    for (i = 1; i < CALLS; i++) {
        const call *c = &calls[i];
        double ns = c->ns[rounds / 2] - loop;
        (void)printf("%-36s %8.1f %8.1f %8.1f %8.2f\n", c->name, ns, c->ns[0] - loop,
                     c->ns[rounds - 1] - loop, ns / (calls[1].ns[rounds / 2] - loop));
    }
}

/* -- a ledger with all of it -- */

static int source(void *user, memlord_device d, memlord_capacity *out) {
    (void)user, (void)d;
    out->total = UINT64_C(80) << 30;
    out->used = UINT64_C(8) << 30;
    return 0;
}

static int done_at_once(void *user) {
    (void)user;
    return 1;
}

/* A known capacity, a limit, and a deferred free that has come and gone. */
static void open_ledger(void) {
    memlord_fence fence = {done_at_once, NULL, 1, NULL};
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_THREADS;
    device = memlord_device_cuda(0);
    need(memlord_create(&desc, &lord) == MEMLORD_OK &&
             memlord_capacity_source_set(lord, MEMLORD_DEVICE_CUDA, source, NULL) == MEMLORD_OK &&
             memlord_capacity_sample(lord, device) == MEMLORD_OK &&
             memlord_limit_set(lord, device, UINT64_C(1) << 32) == MEMLORD_OK &&
             memlord_alloc(lord, device, STORAGE, 4096, NULL) == MEMLORD_OK &&
             memlord_free_deferred(lord, device, STORAGE, fence, NULL) == MEMLORD_OK,
         "no limit");
    (void)memlord_retire(lord, device);
    need(memlord_pending(lord, device) == 0, "a deferred free does not end");
}

int main(void) {
    const char *quick = getenv("MEMLORD_BENCH_QUICK");

    if (quick && strcmp(quick, "0") != 0) rounds = 7;
    open_ledger();
    measure_calls();
    memlord_destroy(lord);
    return 0;
}
