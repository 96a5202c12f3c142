/* A host with a malloc of its own that records in MemLord: tests/systems.sh links it with several C
   libraries. pthread_atfork may call malloc: in musl always, in glibc if 48 handlers are there.

       malloc CASE [HANDLERS]   installs so many fork handlers before MemLord's first call

   The status is 0 if the case holds; a case that hangs is ended by an alarm. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memlord.h"

#ifndef FROM_THE_START
#define FROM_THE_START 0 /* 1: malloc records from its first call on, before libc is set up */
#endif

/* Blocks are never used again. Each has its size before it. */
static struct {
    char bytes[1 << 22];
    size_t used;
} heap;
static int recording = FROM_THE_START;
static __thread int depth; /* mallocs that the thread is in */
static int inner;          /* mallocs that MemLord's first call made */
static void *last_caller;
static void (*in_inner)(void);
static pthread_mutex_t host_lock = PTHREAD_MUTEX_INITIALIZER;

static memlord_device cpu(void) { return memlord_device_cpu(); }
static uint64_t live(void) { return memlord_allocated(memlord_global(), cpu()); }

static void record(void *p, size_t size, void *caller) {
    if (!recording) return;
    last_caller = caller;
    if (depth++) {
        inner++;
        if (in_inner) in_inner();
    }
    (void)memlord_alloc(memlord_global(), cpu(), MEMLORD_KEY(p), size,
                        memlord_site_at(memlord_global(), caller));
    depth--;
}
static void *take(size_t size, void *caller) {
    const size_t whole = (size + 31) & ~(size_t)15;
    char *p = heap.bytes + __atomic_fetch_add(&heap.used, whole, __ATOMIC_SEQ_CST) + 16;
    if (p + size > heap.bytes + sizeof heap.bytes) return NULL;
    memcpy(p - 16, &size, sizeof size);
    record(p, size ? size : 1, caller);
    return p;
}
#define CALLER __builtin_return_address(0)
void *malloc(size_t size) { return take(size, CALLER); }
void *calloc(size_t n, size_t size) { return take(n * size, CALLER); /* all zeros */ }
void free(void *p) {
    if (p && recording) (void)memlord_free(memlord_global(), cpu(), MEMLORD_KEY(p), NULL);
}
void *realloc(void *p, size_t size) {
    void *moved = take(size, CALLER);
    size_t had = 0;
    if (p) memcpy(&had, (char *)p - 16, sizeof had);
    if (moved && had) memcpy(moved, p, had < size ? had : size);
    free(p);
    return moved;
}

/* -- the cases: 0 if they hold -- */

/* The first call comes from malloc; what it allocates itself passes through. */
static int first(void) {
    void *volatile p;
    recording = 1;
    p = malloc(100);
    recording = 0;
    printf("%d inside, %d live\n", inner, (int)live());
    return !p || live() != 100;
}

/* The global ledger is the one that was asked for. */
static int setup(void) {
    memlord_desc desc;
    memlord_result r;
    memset(&desc, 0, sizeof desc);
    desc.labels = "host=a1";
    recording = depth = 1;
    r = memlord_global_setup(&desc);
    recording = 0;
    printf("%d inside, result %d\n", inner, (int)r);
    return r != MEMLORD_OK;
}

static int turn; /* of the two threads: 1: the other goes, 2: it is done */
static void turn_wait(int wanted) {
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != wanted) usleep(100);
}
static void turn_set(int next) { __atomic_store_n(&turn, next, __ATOMIC_RELEASE); }

static void lets_go(void) {
    in_inner = NULL;
    turn_set(1);
    turn_wait(2);
}

/* Records under a lock of the host, for which the first call waits inside. */
static void *locks(void *user) {
    void *volatile p;
    turn_wait(1);
    pthread_mutex_lock(&host_lock);
    turn_set(2);
    usleep(1000);
    p = malloc(20);
    pthread_mutex_unlock(&host_lock);
    return p ? user : NULL;
}
static void lets_go_and_locks(void) {
    lets_go();
    pthread_mutex_lock(&host_lock);
    pthread_mutex_unlock(&host_lock);
}
static int lock(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, locks, NULL);
    in_inner = lets_go_and_locks;
    recording = depth = 1;
    (void)memlord_global();
    if (in_inner) return 77; /* nothing was called inside */
    pthread_join(thread, NULL);
    recording = 0;
    printf("%d live\n", (int)live());
    return live() != 20;
}

/* Has a tag from its own first call on, though another thread's is still inside. */
static void *tags(void *user) {
    turn_wait(1);
    *(memlord_result *)user = memlord_tag_begin(memlord_global(), "tag");
    return NULL;
}
static void lets_start(void) {
    in_inner = NULL;
    turn_set(1);
    usleep(1000);
}
static int tag(void) {
    memlord_result r = MEMLORD_E_STATE;
    pthread_t thread;
    pthread_create(&thread, NULL, tags, &r);
    in_inner = lets_start;
    recording = depth = 1;
    (void)memlord_global();
    if (in_inner) return 77;
    pthread_join(thread, NULL);
    recording = 0;
    printf("result %d\n", (int)r);
    return r != MEMLORD_OK;
}

/* A fork without handlers while another thread is in the first call: the child records. */
static void *forks(void *user) {
    void *volatile p;
    int status = 1;
    pid_t child;
    turn_wait(1);
    child = _Fork();
    if (!child) {
        alarm(10);
        p = malloc(20);
        _exit(!p || live() != 20);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) status = 1;
    *(int *)user = status;
    turn_set(2);
    return NULL;
}
static int forked(void) {
    pthread_t thread;
    int status = 1;
    pthread_create(&thread, NULL, forks, &status);
    in_inner = lets_go;
    recording = depth = 1;
    (void)memlord_global();
    if (in_inner) return 77;
    pthread_join(thread, NULL);
    recording = 0;
    printf("child %d, %d live\n", status, (int)live());
    return status || live();
}

/* malloc has recorded since before main, and knows from where it was called. */
static int began(void) {
    const uint64_t before = live();
    void *volatile p = malloc(100);
    const memlord_site *site = memlord_site_at(memlord_global(), last_caller);
    const uint64_t then = live(); /* printf takes a buffer */
    printf("%d before main, then %d, at %s\n", (int)before, (int)then, site->file);
    return !p || !before || then != before + 100 || !strstr(site->file, "+0x");
}

static void handler(void) {}
int main(int argc, char **argv) {
    const struct {
        const char *name;
        int (*run)(void);
    } cases[] = {{"first", first}, {"setup", setup}, {"lock", lock},
                 {"tag", tag},     {"fork", forked}, {"began", began}};
    size_t i;
    int n = argc > 2 ? atoi(argv[2]) : 0;
    alarm(10);
    while (n--) pthread_atfork(handler, handler, handler);
    for (i = 0; argc > 1 && i < sizeof cases / sizeof cases[0]; i++)
        if (!strcmp(argv[1], cases[i].name)) return cases[i].run();
    return 2;
}
