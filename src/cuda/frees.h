/* Has the two halves of a wrapped free, before and after the real free. The first half takes the
   block off the ledger's map, because another thread may get the address while the real free runs.
   The second half ends the block, so that its bytes are no longer live, or puts it back if the real
   free has failed. Owns no state. Locks: none. */
#ifndef MLI_CUDA_FREES_H
#define MLI_CUDA_FREES_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"

typedef struct mli_cuda_ending {
    memlord_realloc_token token; /* the token of memlord_free_begin, if `begun` is 1 */
    int begun;
    memlord_device device; /* the block's device, if `bytes` is not 0 */
    uint64_t bytes;        /* how many bytes the free takes off the device's reserved bytes */
} mli_cuda_ending;

/* Takes a block off the map before its real free. `beside` is 1 if the memory may be outside of
   CUDA's pools. */
MLI_CUDA_PRIVATE void mli_cuda_free_begin(memlord *lord, int type, const void *ptr, int beside,
                                          mli_cuda_ending *end, const memlord_site *site);

/* Ends a free whose real free has returned `answer`, and returns `answer`. Lowers the device's
   reserved bytes before it ends the block, so that the block's bytes never count as cached
   (reserved but not allocated). */
MLI_CUDA_PRIVATE cudaError_t mli_cuda_free_end(memlord *lord, mli_cuda_ending *end,
                                               cudaError_t answer, const memlord_site *site);

#endif
