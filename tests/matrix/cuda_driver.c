/* A host of the driver's virtual memory, by cuda.h's names and types: the shim counts what it maps,
   or with -DWRAPPED the linker's --wrap does. */
#include <cuda.h>
#include "memlord.h"
#if !defined(WRAPPED)
#define MEMLORD_CUDA_SHIM
#endif
#include "memlord_cuda.h"

static int wrong(uint64_t expected) {
#if defined(MEMLORD_DISABLE)
    expected = 0;
#endif
    return memlord_allocated(memlord_global(), memlord_device_all()) != expected;
}

int main(void) {
    const size_t bytes = 2 << 20;
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle handle = 0, again = 0;
    CUdeviceptr at = 0;
    CUresult r;
    int bad = 0;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    bad |= cuInit(0) != CUDA_SUCCESS || cuMemAddressReserve(&at, bytes, 0, 0, 0) != CUDA_SUCCESS;
    r = cuMemCreate(&handle, bytes, &prop, 0);
    bad |= r != CUDA_SUCCESS || wrong(bytes);
    bad |= cuMemMap(at, bytes, 0, handle, 0) != CUDA_SUCCESS;
    bad |= cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at) != CUDA_SUCCESS;
    bad |= again != handle || cuMemRelease(again) != CUDA_SUCCESS;
    bad |= cuMemRelease(handle) != CUDA_SUCCESS || wrong(bytes);
    bad |= cuMemUnmap(at, bytes) != CUDA_SUCCESS || wrong(0);
    return bad;
}
