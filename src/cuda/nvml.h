/* Owns the table of NVML's functions and a handle per device. Found by PCI id, as NVML counts all
   devices of the machine, in another order. Loaded with the first seat that wants it, let go with
   the last: between, nothing of it changes. Locks: nvml_lock, while it comes or goes; holders_lock,
   while it lists processes. */
#ifndef MLI_CUDA_NVML_H
#define MLI_CUDA_NVML_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/driver.h"

/* A device's processes: ours, and the largest others. NVML takes locks of the driver to list them,
   so only one sample in HOLDERS_EVERY does. In a container it knows us by another number: then the
   samples stop asking, and name no others, as we would be among them. */
typedef struct mli_cuda_holders {
    unsigned samples, misses;
    uint64_t ours;
    memlord_other others[MEMLORD_OTHERS];
} mli_cuda_holders;
MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_holders_lock)

MLI_CUDA_PRIVATE void mli_cuda_nvml_acquire(const mli_cuda_driver *d, const char *name);
MLI_CUDA_PRIVATE void mli_cuda_nvml_release(void);

/* Used is what is not free: versions of NVML disagree about what else it means. */
MLI_CUDA_PRIVATE int mli_cuda_nvml_query(int i, uint64_t *total, uint64_t *used);

MLI_CUDA_PRIVATE mli_cuda_holders mli_cuda_holders_get(int i, int active);

#endif
