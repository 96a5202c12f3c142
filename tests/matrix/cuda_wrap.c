/* A program whose allocations know nothing of MemLord; the linker's --wrap counts them, and the
   argument is how many functions it is said not to reach. With REAL there may be no device. */
#include "memlord.h"
#include "memlord_cuda.h"
#include <stdlib.h>

int main(int argc, char **argv) {
    memlord *lord = memlord_global();
    void *ptr = NULL;
    memlord_site_stat top;
    const char *first = NULL;
    int missing = memlord_cuda_wrap_check(&first), bad;
    bad = argc != 2 || missing != atoi(argv[1]) || (missing == 0) != (first == NULL);
    memlord_sites_enable(lord, 1);
    if (cudaMalloc(&ptr, 4096) != cudaSuccess) {
#if defined(REAL)
        return bad || cudaGetLastError() == cudaSuccess ||
               memlord_allocated(lord, memlord_device_all()) != 0;
#else
        return 2;
#endif
    }
    if (missing == 0) {
        bad |= memlord_allocated(lord, memlord_device_cuda(0)) != 4096;
        bad |= !memlord_site_top_alloc(lord, memlord_device_cuda(0), &top) ||
               !memlord_site_address(lord, top.site);
    }
    bad |= cudaFree(ptr) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess;
    return bad | (memlord_allocated(lord, memlord_device_all()) != 0);
}
