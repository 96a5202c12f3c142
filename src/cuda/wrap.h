/* Emits what the linker's --wrap redirects to. Their names are the linker's. Sites are the return
   addresses of the callers. Locks: none. */
#ifndef MLI_CUDA_WRAP_H
#define MLI_CUDA_WRAP_H
#include "cuda/api/api.h"



#endif
