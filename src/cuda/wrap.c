#include "cuda/wrap.h"
#include "cuda/knobs.h"
#include "cuda/system.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(MEMLORD_CUDA_WRAP)
#define MLI_CUDA_HERE                                                                         \
    memlord_site_at(MEMLORD_CUDA_SHIM_LORD, __builtin_return_address(0))
#define MLI_CUDA_X(real, ours, params, args)                                                  \
    cudaError_t MLI_CUDA_WRAP(real)(MLI_CUDA_ITEMS params) {                                  \
        return memlord_cuda_##ours(MEMLORD_CUDA_SHIM_LORD, MLI_CUDA_ITEMS args,               \
                                   MLI_CUDA_HERE);                                            \
    }
#define MLI_CUDA_X0(real, ours)                                                               \
    cudaError_t MLI_CUDA_WRAP(real)(void) {                                                   \
        return memlord_cuda_##ours(MEMLORD_CUDA_SHIM_LORD, MLI_CUDA_HERE);                    \
    }
MLI_CUDA_WRAPPED(MLI_CUDA_X, MLI_CUDA_X0)
#undef MLI_CUDA_X
#undef MLI_CUDA_X0
#define MLI_CUDA_X(real, ours, params, args)                                                  \
    mli_cuda_result MLI_CUDA_WRAP(real)(MLI_CUDA_ITEMS params);                               \
    mli_cuda_result MLI_CUDA_WRAP(real)(MLI_CUDA_ITEMS params) {                              \
        return memlord_cuda_##ours(MEMLORD_CUDA_SHIM_LORD, MLI_CUDA_ITEMS args,               \
                                   MLI_CUDA_HERE);                                            \
    }
MLI_CUDA_VIRTUAL(MLI_CUDA_X)
#undef MLI_CUDA_X
#undef MLI_CUDA_HERE
#endif

/* Counts a function that is not redirected. *name gets the name of the first such function. */
static void mli_cuda_wrap_note(int redirected, const char *real, int *missing, const char **name) {
    if (!redirected && !(*missing)++) *name = real;
}

/* The two addresses are in volatile pointers, because a compiler assumes that two names are never
   one function. */
MEMLORD_API int memlord_cuda_wrap_check(const char **first) {
    int missing = 0;
    const char *name = NULL;
#if defined(MEMLORD_CUDA_WRAP)
#define MLI_CUDA_X0(real, ours)                                                               \
    {                                                                                         \
        __typeof__(real) *volatile original = real, *volatile wrapped = MLI_CUDA_WRAP(real);  \
        mli_cuda_wrap_note(original == wrapped, #real, &missing, &name);                      \
    }
#else
#define MLI_CUDA_X0(real, ours) mli_cuda_wrap_note(0, #real, &missing, &name);
#endif
#define MLI_CUDA_X(real, ours, params, args) MLI_CUDA_X0(real, ours)
    MLI_CUDA_WRAPPED(MLI_CUDA_X, MLI_CUDA_X0)
#undef MLI_CUDA_X
#undef MLI_CUDA_X0
    if (first) *first = name;
    return missing;
}

#ifdef __cplusplus
} /* extern "C" */
#endif
