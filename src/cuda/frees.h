/* Owns the way of a free: off the map before the real one, as another thread may get the address
   while that runs; credited when it succeeded, back as it was when it failed. Locks: none. */
#ifndef MLI_CUDA_FREES_H
#define MLI_CUDA_FREES_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"

typedef struct mli_cuda_ending {
    memlord_realloc_token token;
    int begun;
    memlord_device device; /* where `reserved` has so many bytes of it */
    uint64_t bytes;
} mli_cuda_ending;

/* `beside`: it is of no pool. */
MLI_CUDA_PRIVATE void mli_cuda_free_begin(memlord *lord, int type, const void *ptr, int beside,
                                          mli_cuda_ending *end, const memlord_site *site);

/* `reserved` gives it up before the bytes are credited: they are never counted as cached. */
MLI_CUDA_PRIVATE cudaError_t mli_cuda_free_end(memlord *lord, mli_cuda_ending *end,
                                               cudaError_t answer, const memlord_site *site);

#endif
