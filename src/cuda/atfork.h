/* Declares what cuda/driver has registered when it loads; cuda/forks, which uses the driver, defines
   it. Locks: none. */
#ifndef MLI_CUDA_ATFORK_H
#define MLI_CUDA_ATFORK_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"

/* Before the driver loads: a child forked from now on has no driver. */
MLI_CUDA_PRIVATE void mli_cuda_fork_first(void);
/* After it: the layer's locks are held in a fork, and before the driver's own handlers run. */
MLI_CUDA_PRIVATE void mli_cuda_fork_locks(void);

#endif
