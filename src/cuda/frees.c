#include "cuda/frees.h"
#include "cuda/seats.h"
#include "cuda/capacity.h"

MLI_CUDA_PRIVATE void mli_cuda_free_begin(memlord *lord, int type, const void *ptr, int beside,
                                          mli_cuda_ending *end, const memlord_site *site) {
    memlord_device device = memlord_device_make(type, 0);
    memlord_block_info block;
    memset(end, 0, sizeof *end);
    if (!lord || !ptr) return;
    if (beside && mli_cuda_attachment_of(lord) &&
        memlord_block_find(lord, device, MEMLORD_KEY(ptr), &block) == MEMLORD_OK)
        end->device = block.device, end->bytes = block.bytes;
    end->begun =
        memlord_free_begin(lord, device, MEMLORD_KEY(ptr), &end->token, site) == MEMLORD_OK;
}

MLI_CUDA_PRIVATE cudaError_t mli_cuda_free_end(memlord *lord, mli_cuda_ending *end,
                                               cudaError_t answer, const memlord_site *site) {
    if (answer == cudaSuccess) mli_cuda_pool_beside(lord, end->device, -(int64_t)end->bytes);
    if (end->begun) (void)memlord_free_end(lord, &end->token, answer != cudaSuccess, site);
    return answer;
}
