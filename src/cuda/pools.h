/* Owns the list of memory pools that wrapped calls have made or set. One that others made may be
   gone by the next question. Locks: pools_lock, never while the driver is called. */
#ifndef MLI_CUDA_POOLS_H
#define MLI_CUDA_POOLS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/driver.h"

enum { MLI_CUDA_POOLS = 64 };

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_pools_lock)

MLI_CUDA_PRIVATE void mli_cuda_pool_add(cudaMemPool_t pool, int device);

/* Takes a pool off the list, and waits until no thread asks one. 1: it was there, on *device. */
MLI_CUDA_PRIVATE int mli_cuda_pool_remove(cudaMemPool_t pool, int *device);

/* Adds up what the pools of a device keep and hold, the current pool first, and what its graphs do.
   Returns 0 if the driver does not say. */
MLI_CUDA_PRIVATE int mli_cuda_pools_ask(const mli_cuda_driver *d, int device, uint64_t *keep,
                                        memlord_cuda_pool *out);

#endif
