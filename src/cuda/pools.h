/* Owns the list of memory pools that wrapped calls have made or set. Other pools are not in the
   list, because they may be destroyed at any time. A pool is CUDA's store of memory of a device for
   calls such as cudaMallocAsync. A graph is work that a stream has recorded; it may hold memory,
   too. Locks: mli_cuda_pools_lock. No thread holds it while it calls the driver. */
#ifndef MLI_CUDA_POOLS_H
#define MLI_CUDA_POOLS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/driver.h"

enum { MLI_CUDA_POOLS = 64 };

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_pools_lock)

/* Puts a pool on the list. `device` is -1 for a pool of memory of the CPU. */
MLI_CUDA_PRIVATE void mli_cuda_pool_add(cudaMemPool_t pool, int device);

/* Takes a pool off the list, and waits until no thread asks the driver about pools. If the pool was
   on the list, stores its device in *device and returns 1. */
MLI_CUDA_PRIVATE int mli_cuda_pool_remove(cudaMemPool_t pool, int *device);

/* Adds up the bytes of a device's pools and graphs. If `keep` is not NULL, first trims the pools
   and graphs (lets them give back unused memory), but leaves *keep bytes in the pools together. The
   current pool (that of cudaMallocAsync) is the first that may keep bytes. Returns 0 if the driver
   tells nothing about the current pool. Requires: this thread has entered the device. */
MLI_CUDA_PRIVATE int mli_cuda_pools_ask(const mli_cuda_driver *d, int device, uint64_t *keep,
                                        memlord_cuda_pool *out);

#endif
