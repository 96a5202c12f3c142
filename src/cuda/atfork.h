/* Declares the functions that register fork handlers. cuda/driver calls these functions when it
   loads the driver. cuda/forks defines them, because the handlers use cuda/driver. Locks: none. */
#ifndef MLI_CUDA_ATFORK_H
#define MLI_CUDA_ATFORK_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"

/* Registers the handler that makes a forked child find no driver. Requires: the driver is not
   loaded yet. */
MLI_CUDA_PRIVATE void mli_cuda_fork_first(void);
/* Registers the handlers that hold the layer's locks over a fork. Requires: the driver has loaded,
   so that these handlers take the locks before the driver's own handlers run. */
MLI_CUDA_PRIVATE void mli_cuda_fork_locks(void);

#endif
