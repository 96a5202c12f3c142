/* A static program under examples/embed/wrap.c: each wrapped function counts exactly the bytes it
   was asked for, also where the C library calls it. Prints what does not hold. Compiled with
   -fno-builtin: else the compiler may leave out a malloc and its free. */
#define _GNU_SOURCE
#include "memlord.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__real_malloc(size_t size); /* the C library's malloc, past the wrapper */

static int wrong;
static memlord_stats now(void) {
    memlord_stats s;
    (void)memlord_stats_get(memlord_global(), memlord_device_all(), &s);
    return s;
}
static void check(int holds, const char *what, int line) {
    if (!holds) printf("wrapped.c:%d: %s\n", line, what), wrong = 1;
}
#define CHECK(expression) check(expression, #expression, __LINE__)

/* One block of so many bytes came with the first expression, and went with the second. */
#define COUNTS(bytes, get, drop)                                                                   \
    do {                                                                                           \
        const memlord_stats before = now();                                                        \
        get;                                                                                       \
        CHECK(p && now().allocated - before.allocated == (bytes));                                 \
        CHECK(now().allocs - before.allocs == 1);                                                  \
        drop;                                                                                      \
        CHECK(now().allocated == before.allocated && now().frees - before.frees == 1);             \
        CHECK(now().unknown_frees == before.unknown_frees);                                        \
    } while (0)

static volatile size_t too_much = SIZE_MAX / 2; /* volatile: or the compiler warns */

static void each_function_counts(void) {
    void *p = NULL, *out = NULL;
    COUNTS(100, p = malloc(100), free(p));
    COUNTS(700, p = calloc(7, 100), free(p));
    COUNTS(30, p = realloc(NULL, 30), free(p));
    COUNTS(4096, p = aligned_alloc(4096, 4096), free(p));
    COUNTS(33, p = memalign(64, 33), free(p));
    COUNTS(55, (CHECK(!posix_memalign(&out, 128, 55)), p = out), free(p));
    COUNTS(12345, p = mmap(NULL, 12345, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
           CHECK(!munmap(p, 12345)));
    COUNTS(6, p = strdup("hello"), free(p)); /* the C library calls malloc */
}

static void realloc_moves_and_ends(void) {
    const memlord_stats before = now();
    void *p = malloc(10);
    p = realloc(p, 1 << 20);
    CHECK(now().allocated - before.allocated == 1 << 20);
    CHECK(now().reallocs - before.reallocs == 1);
    p = realloc(p, 0);
    CHECK(!p && now().allocated == before.allocated);
}

static void failures_record_nothing_and_keep_errno(void) {
    const memlord_stats before = now();
    void *p = malloc(10), *q = NULL;
    errno = 0;
    CHECK(!malloc(too_much) && errno == ENOMEM);
    CHECK(!calloc(too_much, 3) && !realloc(p, too_much));
    CHECK(posix_memalign(&q, 3, 10) == EINVAL && !q);
    errno = 0;
    CHECK(munmap((void *)(uintptr_t)1, 1) == -1 && errno == EINVAL);
    CHECK(now().allocs - before.allocs == 1 && now().allocated - before.allocated == 10);
    free(p);
    errno = 7;
    free(NULL);
    CHECK(errno == 7 && now().unknown_frees == before.unknown_frees);
}

static void foreign_pointers_are_counted_and_freed(void) {
    const memlord_stats before = now();
    void *p = __real_malloc(100), *q = __real_malloc(100);
    free(p);
    CHECK(now().unknown_frees - before.unknown_frees == 1);
    CHECK(now().allocated == before.allocated);
    q = realloc(q, 50); /* its new block is known */
    CHECK(now().unknown_frees - before.unknown_frees == 2);
    CHECK(now().allocated - before.allocated == 50);
    free(q);
    CHECK(now().allocated == before.allocated);
}

static void *free_it(void *p) {
    free(p);
    return malloc(77);
}
static void threads_free_what_others_took(void) {
    uint64_t before;
    pthread_t thread;
    void *p = NULL;
    CHECK(!pthread_create(&thread, NULL, free_it, malloc(10)) && !pthread_join(thread, &p));
    free(p); /* what the C library keeps of its first thread is there now */
    before = now().allocated;
    for (int i = 0; i < 100; i++) {
        CHECK(!pthread_create(&thread, NULL, free_it, malloc(1000)) && !pthread_join(thread, &p));
        free(p);
    }
    CHECK(now().allocated == before);
}

int main(void) {
    each_function_counts();
    realloc_moves_and_ends();
    failures_record_nothing_and_keep_errno();
    foreign_pointers_are_counted_and_freed();
    threads_free_what_others_took();
    CHECK(memlord_verify(memlord_global()) == MEMLORD_OK);
    return wrong;
}
