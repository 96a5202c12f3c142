/*
    jobs.c - a job system whose fibres move between worker threads

    Each request is a fibre: a function with a stack of its own, which gives way where it would
    wait. Here a fibre goes on on the next worker thread each time, so every switch is a move. Its
    tags, scopes, account, stream and tickets are in a memlord_context, which goes with it. The two
    lines that do so are in run(): a worker swaps the context in before the fibre runs, and out
    again when the fibre has given way.

        cc -O2 -c -x c -DMEMLORD_IMPLEMENTATION memlord.h -o memlord.o
        cc -O2 -I. -c examples/embed/jobs.c -o jobs.o
        cc jobs.o memlord.o -o jobs -pthread
        ./jobs

    Leave the implementation in a file of its own. In the file of the fibres a compiler may keep the
    address of a thread-local variable of MemLord across a switch, and then the fibre works on the
    record of the thread that it has left. The same holds for thread-local variables of yours.
    Fibres are from <ucontext.h>, which musl and Windows lack; with Boost.Context, Windows fibres or
    coroutines of C++20 (mlord::context) the two lines are the same.
*/
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "memlord.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { WORKERS = 3, REQUESTS = 8, STEPS = 50, STACK = 64 << 10 };

typedef struct fibre {
    struct fibre *next;     /* in the queue of a worker */
    ucontext_t here, *back; /* where it goes on; where its worker does */
    memlord_context books;  /* what is open in it; all 0 at first */
    void *stack;
    uint64_t bytes; /* what it has allocated, for the comparison at the end */
    int done;
} fibre;

typedef struct queue {
    fibre *first, **end;
} queue;

static memlord *lord;
static fibre fibres[REQUESTS];
static queue queues[WORKERS];
static int left = REQUESTS; /* fibres that are not done; under the lock, as are the queues */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* -- a request, as its author sees it -- */

static void give_way(fibre *f) { (void)swapcontext(&f->here, f->back); }

static void keep_tokens(fibre *f, int number, int step) {
    const uint64_t bytes = (uint64_t)(1000 * (number + 1) + step);
    const uint64_t key = (uint64_t)(number + 1) << 32 | (uint64_t)(step + 1) << 12;
    (void)memlord_alloc(lord, memlord_device_cuda(0), key, bytes, NULL);
    f->bytes += bytes;
}

static void request(int number) {
    fibre *f = &fibres[number];
    char tag[32];
    int step;
    (void)snprintf(tag, sizeof tag, "request %d", number);
    (void)memlord_tag_begin(lord, tag);
    (void)memlord_scope_begin(lord, "request");
    for (step = 0; step < STEPS; step++) {
        keep_tokens(f, number, step);
        give_way(f); /* for a device, a socket, a lock: it goes on on another thread */
    }
    (void)memlord_scope_end(lord);
    (void)memlord_tag_end(lord);
    f->done = 1;
    give_way(f);
}

/* -- the workers -- */

static void put(queue *q, fibre *f) {
    f->next = NULL;
    *q->end = f;
    q->end = &f->next;
}
static fibre *take(queue *q) {
    fibre *f;
    pthread_mutex_lock(&lock);
    while (!q->first && left) pthread_cond_wait(&changed, &lock);
    f = q->first;
    if (f) q->first = f->next;
    if (!q->first) q->end = &q->first;
    pthread_mutex_unlock(&lock);
    return f;
}

/* Runs a fibre until it gives way. */
static void run(fibre *f) {
    ucontext_t here;
    f->back = &here;
    (void)memlord_context_swap(lord, &f->books); /* this thread is in the books of the fibre */
    (void)swapcontext(&here, &f->here);
    (void)memlord_context_swap(lord, &f->books); /* and in its own again */
    if (f->done) (void)memlord_context_drop(lord, &f->books);
}

static void *work(void *user) {
    queue *own = (queue *)user, *next = &queues[(own - queues + 1) % WORKERS];
    fibre *f;
    while ((f = take(own)) != NULL) {
        run(f);
        pthread_mutex_lock(&lock); /* only now: its context is out of this thread */
        if (f->done)
            left--;
        else
            put(next, f);
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* Makes the fibre of a request. Returns 0 without memory. */
static int begin(int number) {
    fibre *f = &fibres[number];
    f->stack = malloc(STACK);
    if (!f->stack || getcontext(&f->here)) return 0;
    f->here.uc_stack.ss_sp = f->stack;
    f->here.uc_stack.ss_size = STACK;
    makecontext(&f->here, (void (*)(void))request, 1, number);
    put(&queues[number % WORKERS], f);
    return 1;
}

/* -- the comparison -- */

static int agrees(int number, uint64_t *all) {
    memlord_tag_stat stat;
    char tag[32];
    (void)snprintf(tag, sizeof tag, "request %d", number);
    (void)memlord_tag_get(lord, memlord_device_cuda(0), tag, &stat);
    printf("%s: %lu bytes in %lu blocks\n", tag, (unsigned long)stat.allocated,
           (unsigned long)stat.blocks);
    *all += stat.allocated;
    return stat.allocated == fibres[number].bytes && stat.blocks == STEPS;
}

int main(void) {
    pthread_t threads[WORKERS];
    memlord_scope_stat scope;
    uint64_t all = 0;
    int i, good = memlord_create(NULL, &lord) == MEMLORD_OK;
    for (i = 0; i < WORKERS; i++) queues[i].end = &queues[i].first;
    for (i = 0; i < REQUESTS && good; i++) good = begin(i);
    for (i = 0; i < WORKERS && good; i++)
        if (pthread_create(&threads[i], NULL, work, &queues[i])) return 1;
    for (i = 0; i < WORKERS && good; i++) pthread_join(threads[i], NULL);
    for (i = 0; i < REQUESTS; i++) {
        good &= agrees(i, &all);
        free(fibres[i].stack);
    }
    (void)memlord_scope_get(lord, "request", &scope);
    good &= scope.count == REQUESTS && scope.running == 0 && scope.bytes.total == (int64_t)all;
    printf("%d requests of %d steps, each on the next of %d threads: %s\n", REQUESTS, STEPS,
           WORKERS, good ? "all to the byte" : "THEY DIFFER");
    memlord_destroy(lord);
    return !good;
}
