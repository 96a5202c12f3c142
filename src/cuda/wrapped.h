/* Has the public functions that each wrap a function of CUDA: allocations, frees, streams, resets,
   virtual memory. Owns no state. May use all modules of cuda/. Locks: none. */
#ifndef MLI_CUDA_WRAPPED_H
#define MLI_CUDA_WRAPPED_H
#include "cuda/api/api.h"

#endif
