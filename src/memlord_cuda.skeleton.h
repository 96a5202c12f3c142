#include "cuda/api/manual.h"
#include "cuda/api/api.h"

/* ------------------------- stop here if you only want the API ---------------------------- */

#if defined(MEMLORD_CUDA_IMPLEMENTATION) && !defined(MEMLORD_DISABLE) &&                      \
    !defined(MLI_CUDA_EMITTED)
#define MLI_CUDA_EMITTED

/* join: cuda */

#undef MLI_CUDA_FUNCTIONS
#undef MLI_CUDA_AS_FUNCTION
#undef MLI_CUDA_WHY
#undef MLI_CUDA_NVML_FUNCTIONS
#undef MLI_CUDA_NVML
#undef MLI_CUDA_LOCK
#undef MLI_CUDA_RESETTING
#undef MLI_CUDA_REAL
#undef MLI_CUDA_WRAP
#undef MLI_CUDA_PASTE
#endif /* MEMLORD_CUDA_IMPLEMENTATION */

#include "cuda/api/shim.h"
