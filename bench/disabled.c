/* Every kind of call a host plants. With MEMLORD_DISABLE this file must compile to what it
   compiles to without any of them (BENCH_WITHOUT). */
#include <stdlib.h> /* malloc, free */

#if defined(BENCH_WITHOUT)
#define CALL(expression) ((void)0)
#define TAGGED(lord, tag)
#else
#include "../memlord.h"
#define CALL(expression)  ((void)(expression))
#define TAGGED(lord, tag) MEMLORD_TAG(lord, tag)
#endif

void *host_get(size_t size);
void host_put(void *ptr, size_t *live);

void *host_get(size_t size) {
    void *ptr = NULL;
    CALL(memlord_sites_enable(memlord_global(), 1));
    TAGGED(memlord_global(), "weights") {
        ptr = malloc(size);
        CALL(MEMLORD_ALLOC(memlord_global(), memlord_device_cpu(), ptr, size));
        CALL(MEMLORD_TRACK(memlord_global(), memlord_device_cuda(1), ptr, size));
        CALL(MEMLORD_RETAIN(memlord_global(), memlord_device_cuda(1), ptr));
    }
    CALL(MEMLORD_REALLOC(memlord_global(), memlord_device_cpu(), ptr, ptr, size));
    CALL(memlord_arena_add(memlord_global(), memlord_device_cuda(0), size, NULL));
    return ptr;
}

void host_put(void *ptr, size_t *live) {
    *live += 1;
    CALL(*live -= (size_t)memlord_allocated(memlord_global(), memlord_device_all()));
    CALL(memlord_arena_sub(memlord_global(), memlord_device_cuda(0), 1, NULL));
    CALL(MEMLORD_RELEASE(memlord_global(), memlord_device_cuda(1), ptr));
    CALL(MEMLORD_FREE(memlord_global(), memlord_device_cpu(), ptr));
    CALL(memlord_save(memlord_global(), MEMLORD_FORMAT_JSON, "report.json"));
    free(ptr);
}
