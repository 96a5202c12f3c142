/*
    neighbours.c - two servers on one device of 256 MiB: one dies of the other's cache, or neither

    Each server keeps the KV cache of every chat it answers, and needs a large buffer to read a
    document. When the device is full, it drops its own caches. For the second server that is not
    enough: the first one sleeps on the rest. If both have joined a pressure page, MemLord wakes the
    first one, whose callback drops what the second one needs. Build and run:

        cc -std=c99 -O2 -I. examples/neighbours.c -o neighbours -pthread && ./neighbours
*/
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define DEVICE_BYTES (256 * MIB)
enum { CHAT = 16, DOCUMENT = 112, MOST = 64 }; /* MiB of one, MiB of the other; chats */

/* -- the driver: one budget for all processes, in a file --
   The kernel unlocks a robust mutex when its owner ends, however it ends. So the driver learns that
   a process is gone, and takes back its bytes. */

typedef struct budget {
    pthread_mutex_t lock;
    struct {
        pthread_mutex_t alive; /* locked while the process lives */
        uint64_t pid, used;
    } process[2];
} budget;

static int robust_lock(pthread_mutex_t *lock, int (*how)(pthread_mutex_t *)) {
    int error = how(lock);
    if (error == EOWNERDEAD) error = pthread_mutex_consistent(lock);
    return error;
}

static budget *driver_load(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    void *map = MAP_FAILED;
    budget *b;
    pthread_mutexattr_t robust;

    if (file >= 0 && ftruncate(file, sizeof *b) == 0)
        map = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (map == MAP_FAILED) return NULL;
    b = (budget *)map;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&b->lock, &robust);
    for (int i = 0; i < 2; i++) pthread_mutex_init(&b->process[i].alive, &robust);
    return b;
}

static void driver_attach(budget *b, int id) {
    robust_lock(&b->process[id].alive, pthread_mutex_lock);
    b->process[id].pid = (uint64_t)getpid();
    b->process[id].used = 0;
}

/* Counts what the processes that live have. Requires: the lock. */
static uint64_t driver_used(budget *b, int id) {
    int other = !id;
    if (robust_lock(&b->process[other].alive, pthread_mutex_trylock) == 0) {
        b->process[other].used = 0;
        pthread_mutex_unlock(&b->process[other].alive);
    }
    return b->process[0].used + b->process[1].used;
}

/* Takes bytes; negative: gives them back. Returns 0, or 1 if there are not so many. */
static int driver_take(budget *b, int id, int64_t bytes) {
    int full;
    robust_lock(&b->lock, pthread_mutex_lock);
    full = bytes > 0 && driver_used(b, id) + (uint64_t)bytes > DEVICE_BYTES;
    if (!full) b->process[id].used += (uint64_t)bytes;
    pthread_mutex_unlock(&b->lock);
    return full;
}

/* -- a server -- */

typedef struct server {
    const char *name;
    int id, turn; /* turn: a socket to the other server */
    memlord *lord;
    memlord_device device;
    budget *budget;
    pthread_mutex_t lock; /* of the caches: the callback may run on a thread of MemLord's */
    uint64_t cache[MOST], next;
    int oldest, chats;
} server;

static void say(const server *s, const char *text, uint64_t bytes) {
    char a[32], b[32];
    memlord_stats stats;
    memlord_stats_get(s->lord, s->device, &stats);
    printf("  %-7s %s %s, live %s\n", s->name, text, memlord_format_bytes(bytes, a, sizeof a),
           memlord_format_bytes(stats.allocated, b, sizeof b));
    fflush(stdout);
}

static void must(const server *s, memlord_result result) {
    if (result == MEMLORD_OK) return;
    printf("  %-7s dies: %s\n", s->name, memlord_result_text(result));
    fflush(stdout);
    _exit(1); /* its memory is the driver's affair */
}

/* A memlord_capacity_fn. */
static int capacity(void *user, memlord_device device, memlord_capacity *out) {
    const server *s = (const server *)user;
    (void)device;
    robust_lock(&s->budget->lock, pthread_mutex_lock);
    out->total = DEVICE_BYTES;
    out->used = driver_used(s->budget, s->id);
    out->process = s->budget->process[s->id].used;
    out->others[0].pid = s->budget->process[!s->id].pid;
    out->others[0].bytes = out->used - out->process;
    pthread_mutex_unlock(&s->budget->lock);
    return 0;
}

/* A memlord_try_fn. */
static int allocate(void *user, uint64_t bytes, uint64_t *storage) {
    server *s = (server *)user;
    if (driver_take(s->budget, s->id, (int64_t)bytes)) return 1;
    *storage = s->next += DEVICE_BYTES;
    return 0;
}

static void release(server *s, uint64_t storage, uint64_t bytes) {
    must(s, memlord_free(s->lord, s->device, storage, MEMLORD_SITE()));
    driver_take(s->budget, s->id, -(int64_t)bytes);
}

/* Drops the oldest caches until that is what is needed. */
static memlord_gc_result collect(void *user, memlord *lord, const memlord_gc_event *event) {
    server *s = (server *)user;
    memlord_gc_result result = {1, 0, 0};
    (void)lord;
    pthread_mutex_lock(&s->lock);
    for (; s->oldest < s->chats && result.reclaimed < event->needed; s->oldest++) {
        release(s, s->cache[s->oldest], CHAT * MIB);
        result.reclaimed += CHAT * MIB;
    }
    pthread_mutex_unlock(&s->lock);
    if (result.reclaimed)
        say(s, event->reason == MEMLORD_REASON_NEIGHBOUR ? "drops for its neighbour" : "drops",
            result.reclaimed);
    return result;
}

static uint64_t get(server *s, const char *tag, uint64_t bytes) {
    const memlord_retry policy = {4, 10, 50, 2, NULL, NULL};
    memlord_alloc_opts opts = {0}; /* what is not set is the thread's */
    uint64_t storage = 0;
    opts.site = MEMLORD_SITE();
    opts.tag = tag;
    must(s, memlord_alloc_retry(s->lord, s->device, bytes, allocate, s, &policy, &storage, &opts));
    return storage;
}

static void answer_chats(server *s, int n) {
    for (int i = 0; i < n; i++) {
        uint64_t cache = get(s, "kv_cache", CHAT * MIB);
        pthread_mutex_lock(&s->lock);
        s->cache[s->chats++] = cache;
        pthread_mutex_unlock(&s->lock);
    }
    say(s, "answered chats of", (uint64_t)n * CHAT * MIB);
}

static void read_document(server *s) {
    uint64_t buffer = get(s, "document", DOCUMENT * MIB);
    say(s, "read a document with", DOCUMENT * MIB);
    release(s, buffer, DOCUMENT * MIB);
}

/* -- the two of them, in turns -- */

static void pass_turn(server *s) {
    if (send(s->turn, "", 1, MSG_NOSIGNAL) < 0) return; /* the other server ended */
}

/* Sleeps until the other server passes its turn, or ends. */
static void wait_turn(server *s) {
    char byte;
    if (read(s->turn, &byte, 1) < 0) return;
}

static void serve(server *s, const char *page) {
    const memlord_desc desc = {.logger = {memlord_log_stderr, NULL}};
    const uint32_t reasons = 1u << MEMLORD_REASON_OOM | 1u << MEMLORD_REASON_NEIGHBOUR;

    driver_attach(s->budget, s->id);
    pthread_mutex_init(&s->lock, NULL);
    s->device = memlord_device_cuda(0);
    must(s, memlord_create(&desc, &s->lord));
    must(s, memlord_capacity_source_set(s->lord, MEMLORD_DEVICE_CUDA, capacity, s));
    must(s, memlord_gc_callback_add(s->lord, s->device, reasons, collect, s));
    must(s, memlord_device_id_set(s->lord, s->device, "the device of neighbours.c"));
    if (page) must(s, memlord_pressure_open(s->lord, page));
    if (s->id == 0) {
        answer_chats(s, 12);
        pass_turn(s);
    }
    wait_turn(s);
    if (s->id == 1) answer_chats(s, 4);
    read_document(s);
    pass_turn(s);
    say(s, "finishes with caches of", (uint64_t)(s->chats - s->oldest) * CHAT * MIB);
    memlord_destroy(s->lord);
}

/* Runs two servers, as processes. Returns how many of them died, or -1. */
static int run(const char *directory, int with_page) {
    char device[256], page[256];
    int turns[2], status, died = 0;
    budget *b;

    snprintf(device, sizeof device, "%s/device", directory);
    snprintf(page, sizeof page, "%s/page", directory);
    printf("%s the page:\n", with_page ? "with" : "without");
    fflush(stdout);
    b = driver_load(device);
    if (!b || socketpair(AF_UNIX, SOCK_STREAM, 0, turns)) return -1;
    for (int id = 0; id < 2; id++) {
        if (fork() != 0) continue;
        server s = {.name = id ? "second" : "first", .id = id, .turn = turns[id], .budget = b};
        close(turns[!id]);
        serve(&s, with_page ? page : NULL);
        _exit(0);
    }
    close(turns[0]), close(turns[1]);
    while (wait(&status) > 0) died += status != 0;
    munmap(b, sizeof *b);
    remove(device), remove(page);
    return died;
}

int main(void) {
    char directory[] = "/tmp/neighbours-XXXXXX";
    int without, with;

    if (!mkdtemp(directory)) {
        perror("neighbours");
        return 1;
    }
    without = run(directory, 0);
    with = run(directory, 1);
    rmdir(directory);
    printf("%d of 2 died without the page, %d with it\n", without, with);
    return without != 1 || with != 0;
}
