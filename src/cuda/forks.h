/* Owns the handlers of forks. In a child the layer (memlord_cuda.h) has no driver and no
   attached ledger, and the locks that a fork takes are free. May use all modules of the layer.
   Invariants: no thread takes a lock of the layer while it holds a lock of the ledger, or the
   reverse. No thread holds a lock over a call of the driver, except mli_cuda_loaded_lock while the
   driver loads. mli_cuda_holders_lock is held while NVML lists processes, and a fork waits until
   NVML has done so. Locks: a fork takes all locks of the layer except mli_cuda_loaded_lock and
   mli_cuda_nvml_lock. */
#ifndef MLI_CUDA_FORKS_H
#define MLI_CUDA_FORKS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"

/* The handlers that run before a fork are called in the reverse order of their registration. The
   layer registers its handlers after the driver has loaded, so they take the layer's locks before
   the driver's handlers run. A fork does not wait for a call of the driver.
   mli_cuda_loaded_lock and mli_cuda_nvml_lock are held while the driver and NVML load. Loading may
   fork, so neither a fork nor a child takes these two locks. */

#endif
