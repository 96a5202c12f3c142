/* Owns the table of NVML's functions and its handle of each device. A device is found by its PCI
   id, as NVML counts all devices of the machine, in another order. NVML is loaded for the first
   seat that uses it, and unloaded after the last; the table changes at no other time. Locks:
   nvml_lock, while NVML loads or unloads; holders_lock, while NVML lists processes. */
#ifndef MLI_CUDA_NVML_H
#define MLI_CUDA_NVML_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/driver.h"

/* What the processes hold of a device. To list them NVML takes locks of the driver, so only one
   sample in HOLDERS_EVERY asks for the list. In a container NVML knows this process by another
   number, so `others` would have it. After a list without this process `others` is empty, and after
   HOLDERS_MISSES such lists no sample asks any more. */
typedef struct mli_cuda_holders {
    unsigned samples; /* the samples so far */
    unsigned misses;  /* the lists in a row that lacked this process, though it had a context */
    uint64_t ours;    /* bytes of this process */
    memlord_other others[MEMLORD_OTHERS]; /* the largest other holders */
} mli_cuda_holders;
MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_holders_lock)

/* Adds a user of NVML. The first one loads it; `name` NULL is the usual library. */

MLI_CUDA_PRIVATE void mli_cuda_nvml_acquire(const mli_cuda_driver *d, const char *name);
/* Takes a user off. The last one unloads NVML. */
MLI_CUDA_PRIVATE void mli_cuda_nvml_release(void);

/* Asks for the total and used bytes of device i. Returns 1, or 0 if NVML does not know the device.
   *used is the total less what is free, as versions of NVML disagree about their own figure. */
MLI_CUDA_PRIVATE int mli_cuda_nvml_query(int i, uint64_t *total, uint64_t *used);

/* Returns what the processes hold of device i, as of the last list. `active` is 1 if this process
   has a context there. */
MLI_CUDA_PRIVATE mli_cuda_holders mli_cuda_holders_get(int i, int active);

#endif
