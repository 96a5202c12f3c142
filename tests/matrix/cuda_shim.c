/* A host that knows only the runtime's names, and its C++ forms: counted by the shim. */
#include "memlord.h"
#define MEMLORD_CUDA_SHIM
#include "memlord_cuda.h"

#ifndef USE
#define USE shim
#endif
#ifdef __cplusplus
extern "C"
#endif
int USE(void);

static int wrong(uint64_t expected) {
    return memlord_allocated(memlord_global(), memlord_device_all()) != expected;
}

int USE(void) {
    float *a = NULL;
    void *b = NULL, *c = NULL, *d = NULL, *e = NULL, *f = NULL;
    char mine[64];
    size_t pitch = 0;
    struct cudaPitchedPtr box = {NULL, 0, 0, 0};
    struct cudaExtent extent = {64, 2, 2};
    cudaStream_t stream = NULL;
    cudaGraph_t graph = NULL;
    int bad = 0;
#ifdef __cplusplus
    bad |= cudaMalloc(&a, 100) != cudaSuccess;
    bad |= cudaMallocManaged(&b, 20) != cudaSuccess;
    bad |= cudaMallocHost(&c, 3, 0) != cudaSuccess;
#else
    bad |= cudaMalloc((void **)&a, 100) != cudaSuccess;
    bad |= cudaMallocManaged(&b, 20, cudaMemAttachGlobal) != cudaSuccess;
    bad |= cudaMallocHost(&c, 3) != cudaSuccess;
#endif
    bad |= wrong(123);
    bad |= cudaMallocAsync(&d, 1000, NULL) != cudaSuccess;
    bad |= cudaHostAlloc(&e, 5000, cudaHostAllocDefault) != cudaSuccess;
    bad |= cudaMallocPitch(&f, &pitch, 512, 2) != cudaSuccess;
    bad |= cudaMalloc3D(&box, extent) != cudaSuccess;
    bad |= cudaHostRegister(mine, sizeof mine, cudaHostRegisterDefault) != cudaSuccess;
    bad |= wrong(6123 + 1024 + 2048 + 64);
    bad |= cudaHostUnregister(mine) != cudaSuccess;
    bad |= cudaFree(a) != cudaSuccess || cudaFree(b) != cudaSuccess;
    bad |= cudaFree(f) != cudaSuccess || cudaFree(box.ptr) != cudaSuccess;
    bad |= cudaFreeHost(c) != cudaSuccess || cudaFreeHost(e) != cudaSuccess;
    bad |= cudaFreeAsync(d, NULL) != cudaSuccess;
    bad |= cudaStreamSynchronize(NULL) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess;
    bad |= cudaStreamEndCapture(stream, &graph) == cudaSuccess;
    return bad | wrong(0);
}

#if defined(USE_MAIN)
int main(void) { return USE(); }
#endif
