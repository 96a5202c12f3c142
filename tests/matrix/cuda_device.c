/* Compiled by nvcc -rdc=true -x cu: a kernel that allocates on the device, and a host that does. */
#include "memlord.h"
#define MEMLORD_CUDA_SHIM
#include "memlord_cuda.h"

__global__ void kernel(void **out) {
    void *ptr = 0;
    if (cudaMalloc(&ptr, 64) == cudaSuccess) cudaFree(ptr);
    *out = ptr;
}

int host(void);
int host(void) {
    void *ptr = 0;
    return cudaMalloc(&ptr, 64) != cudaSuccess || cudaFree(ptr) != cudaSuccess;
}
