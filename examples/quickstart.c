/* quickstart.c - tag what you allocate, count views once, ask where the memory is */
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#include <stdlib.h>
#if defined(_WIN32)
#define setenv(name, value, overwrite) _putenv_s(name, value)
#endif

static int failed;

static void check(memlord_result result) {
    failed |= result != MEMLORD_OK;
}

int main(void) {
    const memlord_logger logger = {memlord_log_stderr, NULL}; /* errors and warnings */
    memlord_device cpu = memlord_device_cpu(), gpu = memlord_device_cuda(0);
    uint64_t weights = 0x7f4000000000, cache = 0x7f4100000000; /* say, from cudaMalloc */
    void *staging = malloc(64 << 20);
    if (getenv("DEBUG")) setenv("MEMLORD_DEBUG", getenv("DEBUG"), 0); /* DEBUG=1: every event */
    memlord *lord = memlord_global();

    check(memlord_logger_set(lord, &logger));
    check(memlord_sites_enable(lord, 1));
    check(memlord_expect(lord, gpu, "kv_cache", (uint64_t)2 * 16 * 8 * 64 * 8192 * 2));
    MEMLORD_TAG(lord, "weights") {
        if (staging) check(MEMLORD_ALLOC(lord, cpu, staging, 64 << 20));
        check(MEMLORD_ALLOC(lord, gpu, weights, 2471645608));
        check(MEMLORD_TRACK(lord, gpu, weights, 2471645608)); /* tied: a view, no new bytes */
    }
    MEMLORD_TAG(lord, "kv_cache") { check(MEMLORD_ALLOC(lord, gpu, cache, 256 << 20)); }
    check(MEMLORD_FREE(lord, cpu, staging)); /* before the real one */
    free(staging);

    check(memlord_save(lord, MEMLORD_FORMAT_TEXT, "-")); /* to standard output */
    return failed;
}
