/* Has the public functions of the layer (memlord_cuda.h) that wrap no function of CUDA: those of
   attaching, pools, frees that wait for a stream, and scopes. A seat is the record of an attached
   ledger. A fence makes a freed block wait until a stream has done the work that was queued before
   the free. Owns no state. May use all modules of the layer. Locks: none. */
#ifndef MLI_CUDA_PUBLIC_H
#define MLI_CUDA_PUBLIC_H
#include "cuda/api/api.h"

#endif
