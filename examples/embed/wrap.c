/*
    wrap.c - records malloc and its kin in a program that is linked statically, with glibc

    LD_PRELOAD does not reach a static program; the linker does. --wrap=malloc turns each call of
    malloc into one of __wrap_malloc, below, and __real_malloc is then malloc. That holds for
    archives, too: the blocks of strdup, getline, fopen and, in C++, of new are counted. The
    program's own files stay as they are:

        cc -O2 -I. -c examples/embed/wrap.c -o wrap.o
        cc -O2 -I. -c examples/embed/at_exit.c -o at_exit.o
        cc -g -static app.c at_exit.o wrap.o -o app -lm -pthread @examples/embed/wrap.ld
        MEMLORD_APP_REPORT=report.json ./app && build/symbolize report.json

    This file has MemLord's implementation: link no other. A site is a return address; a static
    program has no dynamic symbols to name it by, so compile with -g and run build/symbolize.
    Not seen: calls in_real one object file of an archive, such as realloc's own use of malloc. What
    glibc keeps until the end (the buffer of stdout, a few blocks from before main) stays live.
*/
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *ptr, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__real_memalign(size_t alignment, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t size);
void __real_free(void *ptr);
void *__real_mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t size);

/* More than 0 while this thread is in a real function. musl makes calloc, realloc and aligned_alloc of
   malloc and free, which the linker wraps, too: those calls are part of one that counts. */
static __thread int in_real;
static void *leave(void *p) { return in_real--, p; }
static void *real_malloc(size_t size) { return in_real++, leave(__real_malloc(size)); }
static void *real_calloc(size_t n, size_t size) { return in_real++, leave(__real_calloc(n, size)); }
static void *real_realloc(void *p, size_t size) { return in_real++, leave(__real_realloc(p, size)); }
static void real_free(void *p) { in_real++, __real_free(p), in_real--; }

/* MemLord itself calls the real ones: else its shim would call itself, and its pages be counted. */
#define malloc real_malloc
#define calloc real_calloc
#define realloc real_realloc
#define free real_free
#define mmap __real_mmap
#define munmap __real_munmap
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

#define LORD (in_real ? NULL : memlord_global()) /* with NULL the shim only calls on */
#define SITE MEMLORD_SITE_OF_CALLER()

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *ptr, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_memalign(size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
void __wrap_free(void *ptr);
void *__wrap_mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t size);

void *__wrap_malloc(size_t size) { return memlord_shim_malloc(LORD, size, SITE); }
void *__wrap_calloc(size_t n, size_t size) { return memlord_shim_calloc(LORD, n, size, SITE); }
void *__wrap_realloc(void *p, size_t size) { return memlord_shim_realloc(LORD, p, size, SITE); }
void __wrap_free(void *p) { memlord_shim_free(LORD, p, SITE); }
void *__wrap_mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
    return memlord_shim_mmap(LORD, at, size, prot, flags, fd, offset, SITE);
}
int __wrap_munmap(void *at, size_t size) { return memlord_shim_munmap(LORD, at, size, SITE); }

/* The shim has no aligned functions: the real call, then the record. */
static void *record(void *p, size_t size, const memlord_site *site) {
    if (p) (void)memlord_alloc(LORD, memlord_device_cpu(), MEMLORD_KEY(p), size, site);
    return p;
}
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return in_real++, record(leave(__real_aligned_alloc(alignment, size)), size, SITE);
}
void *__wrap_memalign(size_t alignment, size_t size) {
    return in_real++, record(leave(__real_memalign(alignment, size)), size, SITE);
}
int __wrap_posix_memalign(void **out, size_t alignment, size_t size) {
    int error;
    in_real++;
    error = __real_posix_memalign(out, alignment, size);
    in_real--;
    if (!error) (void)record(*out, size, SITE);
    return error;
}
