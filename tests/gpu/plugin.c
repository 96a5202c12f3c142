/* A plug-in, for plugins.c. It is linked with a runtime of its own, and allocates. With
   CARRIES_MEMLORD it carries MemLord instead, as a private one, and keeps books of its own. */
#if defined(CARRIES_MEMLORD)
#define MEMLORD_STATIC
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#define MEMLORD_CUDA_IMPLEMENTATION
#include "memlord_cuda.h"

/* 0: a ledger was made, had a block whose free was pending, and is gone. */
int plug_run(void) {
    const memlord_device device = memlord_device_cuda(0);
    memlord *lord = NULL;
    cudaStream_t stream;
    void *ptr = NULL;
    int bad;
    if (memlord_create(NULL, &lord) || memlord_cuda_attach(lord, NULL)) return 1;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) return 2;
    bad = memlord_cuda_malloc_async(lord, &ptr, 1 << 20, stream, NULL) != cudaSuccess;
    bad |= memlord_capacity_sample(lord, device) != MEMLORD_OK;
    bad |= memlord_allocated(lord, device) != 1 << 20;
    bad |= memlord_cuda_free_async_after(lord, ptr, stream, NULL) != cudaSuccess;
    bad |= memlord_cuda_stream_destroy(lord, stream, NULL) != cudaSuccess;
    bad |= memlord_cuda_device_synchronize(lord, NULL) != cudaSuccess;
    bad |= memlord_allocated(lord, device) != 0 || memlord_pending(lord, device) != 0;
    bad |= memlord_cuda_detach(lord) != MEMLORD_OK;
    memlord_destroy(lord);
    memlord_cuda_events_release();
    return bad ? 3 : 0;
}
#else
#include <cuda_runtime_api.h>
#include <string.h>

/* Where its cudaMalloc is: a runtime of its own has another one than the program's. */
void plug_where(void *out) {
    cudaError_t (*const fn)(void **, size_t) = cudaMalloc;
    memcpy(out, (const void *)&fn, sizeof fn);
}
int plug_alloc(void **ptr, size_t bytes) { return (int)cudaMalloc(ptr, bytes); }
int plug_free(void *ptr) { return (int)cudaFree(ptr); }
int plug_stream(cudaStream_t *stream) {
    return (int)cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
}
int plug_wait(cudaStream_t stream) { return (int)cudaStreamSynchronize(stream); }
#endif
