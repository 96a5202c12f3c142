/* Tells a ledger what the layer (memlord_cuda.h) knows of a device: its capacity, this process's
   share, and what its pools hold. A pool is CUDA's store of memory for calls such as
   cudaMallocAsync. A graph is work that a stream has recorded; it may hold memory, too. An
   integrated GPU uses the cpu's memory. Pollers, which are the ledger's threads that sample a
   capacity, call these functions, and so do threads that ask for a sample. Owns no state. Locks:
   none. */
#ifndef MLI_CUDA_CAPACITY_H
#define MLI_CUDA_CAPACITY_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/driver.h"
#include "cuda/seats.h"

/* Returns the reserved bytes of a device: what its pools and graphs hold, and what is live outside
   of them. */
MLI_CUDA_PRIVATE uint64_t mli_cuda_pool_reserved(memlord *lord, int device,
                                                 const memlord_cuda_pool *pool);

/* Sets the ledger's reserved bytes of a device. Does nothing until a pool of CUDA has held a byte,
   because a host with a pool of its own reports that pool itself. Requires: this thread has entered
   the device with mli_cuda_enter_device. */
MLI_CUDA_PRIVATE void mli_cuda_pool_report(const mli_cuda_driver *d, mli_cuda_attachment *probe,
                                           memlord *lord, int device);

/* Adds `delta` to the ledger's reserved bytes of a device, when memory outside of pools is
   allocated or freed. If cudaFree frees a block of a pool, the block counts as outside of pools
   until the next sample. */
MLI_CUDA_PRIVATE void mli_cuda_pool_beside(memlord *lord, memlord_device device, int64_t delta);

/* Sets the reserved bytes of the integrated GPUs: always if `now` is 1, else in one of 64 calls.
   Samples do not set these bytes, because the cpu is sampled in place of these GPUs. So the wrapped
   calls that fill and empty the pools of these GPUs call this function. */
MLI_CUDA_PRIVATE void mli_cuda_pool_check(memlord *lord, int now);

/* Is the ledger's capacity source for cuda devices: stores the capacity of a device in *out. `user`
   is the ledger's mli_cuda_attachment. Returns 0, or -1 if nothing is known. */
MLI_CUDA_PRIVATE int mli_cuda_capacity(void *user, memlord_device device, memlord_capacity *out);

#endif
