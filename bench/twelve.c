/* The twelve calls of the manual's index but memlord_save, as a program makes them. bench/run.sh
   measures how much of the implementation they keep. */
#include <stdlib.h> /* malloc, realloc, free */

#include "../memlord.h"

static int host_try(void *user, uint64_t bytes, uint64_t *storage) {
    void *ptr = malloc((size_t)bytes);
    (void)user;
    *storage = MEMLORD_KEY(ptr);
    return ptr ? 0 : 1;
}

static memlord_gc_result host_collect(void *user, memlord *lord, const memlord_gc_event *event) {
    const memlord_gc_result none = {0, 0, 0};
    (void)user;
    (void)lord;
    (void)event;
    return none;
}

int host_run(size_t size);
int host_run(size_t size) {
    static const memlord_logger logger = {memlord_log_stderr, NULL};
    const memlord_device cpu = memlord_device_cpu();
    memlord *lord = memlord_global();
    memlord_realloc_token token;
    uint64_t storage;
    void *ptr = malloc(size), *moved;
    MEMLORD_SCOPED(lord, "decode");
    MEMLORD_TAGGED(lord, "kv_cache");
    (void)memlord_logger_set(lord, &logger);
    (void)memlord_gc_callback_add(lord, cpu, 0, host_collect, NULL);
    (void)MEMLORD_ALLOC(lord, cpu, ptr, size);
    (void)memlord_realloc_begin(lord, cpu, MEMLORD_KEY(ptr), &token);
    moved = realloc(ptr, 2 * size);
    (void)memlord_realloc_end(lord, &token, MEMLORD_KEY(moved), 2 * size, MEMLORD_SITE());
    (void)MEMLORD_TRACK(lord, cpu, moved, 2 * size);
    (void)MEMLORD_RELEASE(lord, cpu, moved);
    (void)MEMLORD_FREE(lord, cpu, moved);
    free(moved);
    memlord_alloc_opts opts = {MEMLORD_SITE(), NULL, 0, 0, 0};
    (void)memlord_alloc_retry(lord, cpu, size, host_try, NULL, NULL, &storage, &opts);
    return memlord_allocated(lord, memlord_device_all()) != 0;
}
