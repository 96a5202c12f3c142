/* The shim: the plain calls of this file are recorded, with their sites. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEMLORD_SHIM
#include "memlord.h"

#ifdef __cplusplus
extern "C" {
#endif
int USE(void);
#ifdef __cplusplus
}
#endif

static uint64_t live(int type) {
    return memlord_allocated(memlord_global(), memlord_device_make(type, MEMLORD_ANY));
}

static int use_heap(void) {
    uint64_t before = live(MEMLORD_DEVICE_CPU);
    char *a = (char *)malloc(100), *b = (char *)calloc(10, 20), *c;
    int bad = !a || !b || live(MEMLORD_DEVICE_CPU) != before + 300;
    c = (char *)realloc(a, 5000);
    bad += !c || live(MEMLORD_DEVICE_CPU) != before + 5200;
    if (c) c[4999] = b ? b[199] : 1;
    free(c);
    free(b);
    free(NULL);
    a = (char *)realloc(NULL, 7);
    bad += live(MEMLORD_DEVICE_CPU) != before + 7;
    free(a);
    return bad + (live(MEMLORD_DEVICE_CPU) != before);
}

static int use_pages(void) {
    uint64_t before = memlord_allocated(memlord_global(), memlord_device_all());
    void *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int bad = p == MAP_FAILED;
    bad += memlord_allocated(memlord_global(), memlord_device_all()) != before + 8192;
    bad += munmap(p, 8192) != 0;
    return bad + (memlord_allocated(memlord_global(), memlord_device_all()) != before);
}

static int use_failure(void) {
    uint64_t before = live(MEMLORD_DEVICE_CPU);
    volatile size_t huge = SIZE_MAX / 4;
    char *p = (char *)malloc(50), *q = (char *)realloc(p, huge);
    int bad = q != NULL || live(MEMLORD_DEVICE_CPU) != before + 50;
    bad += malloc(huge) != NULL || calloc(huge, 8) != NULL;
    bad += live(MEMLORD_DEVICE_CPU) != before + 50;
    if (!q) free(p);
    return bad + (live(MEMLORD_DEVICE_CPU) != before);
}

int USE(void) {
    memlord_stats before, after;
    int bad = memlord_global() == NULL;
    memlord_stats_get(memlord_global(), memlord_device_all(), &before);
    bad += use_heap() + use_pages() + use_failure();
    memlord_stats_get(memlord_global(), memlord_device_all(), &after);
    bad += after.unknown_frees != before.unknown_frees;
    return bad + (after.implicit_frees != before.implicit_frees);
}
