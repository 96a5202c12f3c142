/* Has the __wrap_ functions, to which the linker's --wrap redirects calls. A site is the return
   address of the call. Owns no state. Locks: none. */
#ifndef MLI_CUDA_WRAP_H
#define MLI_CUDA_WRAP_H
#include "cuda/api/api.h"



#endif
