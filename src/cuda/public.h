/* Has the other public functions of the layer: those of attaching, pools, frees that wait for a
   stream, and scopes. Owns no state. May use all modules of the layer. Locks: none. */
#ifndef MLI_CUDA_PUBLIC_H
#define MLI_CUDA_PUBLIC_H
#include "cuda/api/api.h"

#endif
