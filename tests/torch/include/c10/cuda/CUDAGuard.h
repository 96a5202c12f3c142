/* A stand-in for PyTorch's header of this name: makes a device the current one for a while. */
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

namespace c10 {
namespace cuda {

struct CUDAGuard {
    explicit CUDAGuard(DeviceIndex device);
    ~CUDAGuard();
    CUDAGuard(const CUDAGuard &) = delete;
    CUDAGuard &operator=(const CUDAGuard &) = delete;

private:
    int before = 0;
};

} // namespace cuda
} // namespace c10
