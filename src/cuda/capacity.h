/* Owns what a ledger is told of a device: capacity, this process's share, what its pools hold. Runs
   on pollers and on threads that ask for a sample. Locks: none. */
#ifndef MLI_CUDA_CAPACITY_H
#define MLI_CUDA_CAPACITY_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/driver.h"
#include "cuda/seats.h"

MLI_CUDA_PRIVATE uint64_t mli_cuda_pool_reserved(memlord *lord, int device,
                                                 const memlord_cuda_pool *pool);

/* Inside the device. Not before a pool held a byte: the host may have one of its own, and report
   that itself. */
MLI_CUDA_PRIVATE void mli_cuda_pool_report(const mli_cuda_driver *d, mli_cuda_attachment *probe,
                                           memlord *lord, int device);

/* Bytes came to a device, or went, that are of no pool. A cudaFree of what was one's is taken for
   such: the next sample puts that right. */
MLI_CUDA_PRIVATE void mli_cuda_pool_beside(memlord *lord, memlord_device device, int64_t delta);

/* Integrated GPUs have no samples of their own, the cpu being asked for both: the calls that fill
   and empty a pool look at it, `now` or one of 64 times. */
MLI_CUDA_PRIVATE void mli_cuda_pool_check(memlord *lord, int now);

MLI_CUDA_PRIVATE int mli_cuda_capacity(void *user, memlord_device device, memlord_capacity *out);

#endif
