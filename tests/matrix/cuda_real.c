/* Linked to a real runtime on a machine without a driver (with one, there is nothing to show).
   There cudaPeekAtLastError itself answers that there is none, whatever was called before: that
   the layer leaves no error of its own is shown on the fake. */
#include "memlord.h"
#define MEMLORD_CUDA_IMPLEMENTATION
#include "memlord_cuda.h"
#include <stdio.h>
#include <time.h>

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* other processes do not count */
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

#define EXPECT(condition)                                                                     \
    if (!(condition)) return printf("%d: %s\n", __LINE__, #condition), 1

int main(void) {
    memlord *lord = NULL;
    void *ptr = NULL;
    double start, first, second;
    int driver = -1;
    cudaError_t none;
    EXPECT(cudaDriverGetVersion(&driver) == cudaSuccess);
    if (driver) return 0;
    EXPECT(memlord_create(NULL, &lord) == MEMLORD_OK);
    start = now_ms();
    EXPECT(memlord_cuda_attach(lord, NULL) == MEMLORD_E_UNSUPPORTED);
    first = now_ms() - start;
    EXPECT(memlord_cuda_attach(lord, NULL) == MEMLORD_E_UNSUPPORTED);
    second = now_ms() - start - first;
    EXPECT(first < 1 && second < 0.1);
    EXPECT(memlord_capacity_sample(lord, memlord_device_cuda(0)) == MEMLORD_E_UNSUPPORTED);
    none = cudaMalloc(&ptr, 64);
    EXPECT(none != cudaSuccess && cudaGetLastError() == none);
    EXPECT(memlord_cuda_malloc(lord, &ptr, 64, MEMLORD_SITE()) == none);
    EXPECT(cudaGetLastError() == none);
    EXPECT(memlord_cuda_malloc_async(lord, &ptr, 64, NULL, NULL) != cudaSuccess);
    EXPECT(memlord_cuda_malloc_retry(lord, &ptr, 64, NULL, NULL) == none);
    EXPECT(cudaGetLastError() == none);
    EXPECT(memlord_cuda_free(lord, (void *)4096, NULL) == none);
    EXPECT(memlord_cuda_device_synchronize(lord, NULL) == none);
    EXPECT(cudaGetLastError() == none);
    EXPECT(memlord_allocated(lord, memlord_device_all()) == 0);
    memlord_destroy(lord);
    return 0;
}
