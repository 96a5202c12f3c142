/* Declares the registration of fork handlers, which cuda/driver needs when the driver loads.
   cuda/forks defines the functions, because the handlers use cuda/driver. Locks: none. */
#ifndef MLI_CUDA_ATFORK_H
#define MLI_CUDA_ATFORK_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"

/* Registers the handler that leaves a child without a driver. Requires: the driver is not loaded
   yet. */
MLI_CUDA_PRIVATE void mli_cuda_fork_first(void);
/* Registers the handlers that hold the layer's locks over a fork. Requires: the driver has loaded,
   so that they take the locks before the driver's own handlers run. */
MLI_CUDA_PRIVATE void mli_cuda_fork_locks(void);

#endif
