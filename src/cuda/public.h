/* Has the functions that CUDA has no like of: attach, pools, uses of streams, scopes. Owns no
   state. May use all modules of the layer. Locks: none held at the return. */
#ifndef MLI_CUDA_PUBLIC_H
#define MLI_CUDA_PUBLIC_H
#include "cuda/api/api.h"

#endif
