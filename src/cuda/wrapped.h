/* Has the public functions that wrap a function of CUDA: allocations, frees, streams, resets,
   virtual memory. Owns no state. May use all modules of the layer. Locks: none. */
#ifndef MLI_CUDA_WRAPPED_H
#define MLI_CUDA_WRAPPED_H
#include "cuda/api/api.h"

#endif
