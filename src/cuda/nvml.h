/* Owns the table of functions of NVML (NVIDIA's library that tells the state of GPUs), and NVML's
   handle of each device. Finds a device by its PCI id, because NVML counts all devices of the
   machine, in another order. NVML is loaded for the first attached ledger that uses it, and
   unloaded after the last. The table changes at no other time. Locks: mli_cuda_nvml_lock, while
   NVML loads or unloads; mli_cuda_holders_lock, while NVML lists processes. */
#ifndef MLI_CUDA_NVML_H
#define MLI_CUDA_NVML_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/driver.h"

/* The bytes that processes hold on a device. NVML takes locks of the driver to list them, so only
   one sample in MLI_CUDA_HOLDERS_EVERY asks for the list. In a container NVML knows this process by
   another process id, so this process looks like another one in the list. If a list lacks this
   process although the process has a context on the device, `others` is therefore made empty. After
   MLI_CUDA_HOLDERS_MISSES such lists in a row no sample asks for a list again. */
typedef struct mli_cuda_holders {
    unsigned samples; /* how many samples of the device were taken */
    unsigned misses;  /* how many lists in a row lacked this process, though it had a context (was
                         using the device) */
    uint64_t ours;    /* the bytes of this process */
    memlord_other others[MEMLORD_OTHERS]; /* the other processes that hold the most bytes */
} mli_cuda_holders;
MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_holders_lock)

/* Adds a user of NVML. The first user loads the library `name`, or the usual library if
   `name` is NULL. */

MLI_CUDA_PRIVATE void mli_cuda_nvml_acquire(const mli_cuda_driver *d, const char *name);
/* Removes a user of NVML. The last user unloads the library. */
MLI_CUDA_PRIVATE void mli_cuda_nvml_release(void);

/* Asks for the total and used bytes of device i. Returns 1, or 0 if NVML does not know the device.
   *used is the total less the free bytes, because what NVML itself counts as used depends on
   NVML's version. */
MLI_CUDA_PRIVATE int mli_cuda_nvml_query(int i, uint64_t *total, uint64_t *used);

/* Returns the bytes that processes hold on device i, as of the last list. `active` is 1 if this
   process has a context there. */
MLI_CUDA_PRIVATE mli_cuda_holders mli_cuda_holders_get(int i, int active);

#endif
