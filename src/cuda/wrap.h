/* Has the __wrap_ functions, to which the linker's --wrap redirects calls. The site of such a call
   is its return address. Owns no state. Locks: none. */
#ifndef MLI_CUDA_WRAP_H
#define MLI_CUDA_WRAP_H
#include "cuda/api/api.h"



#endif
