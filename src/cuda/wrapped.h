/* Has the functions that do what one of CUDA does, and record it: allocations, frees, streams,
   resets, virtual memory. Owns no state. Uses all modules of the layer. Locks: none held at the
   return. */
#ifndef MLI_CUDA_WRAPPED_H
#define MLI_CUDA_WRAPPED_H
#include "cuda/api/api.h"

#endif
