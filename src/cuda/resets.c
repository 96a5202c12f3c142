#include "cuda/resets.h"
#include "cuda/system.h"
#include "cuda/capacity.h"
#include "cuda/streams.h"
#include "cuda/scopes.h"
#include "cuda/virtual.h"

typedef struct mli_cuda_reset {
    memlord *lord;
    int device;
    const memlord_site *site;
} mli_cuda_reset;

/* Is a memlord_block_fn that frees a block in the ledger if a reset of the device frees its memory.
   A reset does not free blocks of pools, or physical memory. A reset frees page-locked memory if
   the driver says that the memory belongs to the device. */
static int mli_cuda_reset_block(void *user, const memlord_block_info *block) {
    const mli_cuda_reset *reset = (const mli_cuda_reset *)user;
    const mli_cuda_driver *d = mli_cuda_driver_get();
    const int ours = block->device.type == MEMLORD_DEVICE_CUDA;
    cudaMemPool_t pool = NULL;
    int device = reset->device;
    if (!d || block->pending || (block->meta.name && !strcmp(block->meta.name, mli_cuda_physical)))
        return 0;
    if (d->pointer_attribute(&pool, MLI_CUDA_POINTER_POOL, block->storage)) pool = NULL;
    if (!ours && d->pointer_attribute(&device, MLI_CUDA_POINTER_DEVICE, block->storage))
        device = -1;
    if (pool || device != reset->device) return 0;
    mli_cuda_pool_beside(reset->lord, block->device, -(int64_t)block->bytes);
    (void)memlord_free(reset->lord, block->device, block->storage, reset->site);
    return 0;
}

MLI_CUDA_PRIVATE void mli_cuda_reset_begin(memlord *lord, const mli_cuda_driver *d, int device,
                                           const memlord_site *site) {
    mli_cuda_reset reset;
    void *context = NULL;
    int mode;
    if (!mli_cuda_enter_device(d, device, &mode)) return;
    reset.lord = lord, reset.device = device, reset.site = site;
    (void)d->context_current(&context);
    (void)memlord_blocks_each(lord, memlord_device_cuda(device), 0, mli_cuda_reset_block, &reset);
    (void)memlord_blocks_each(lord, memlord_device_make(MEMLORD_DEVICE_PINNED, MEMLORD_ANY), 0,
                              mli_cuda_reset_block, &reset);
    mli_cuda_streams_end(NULL, context);
    (void)memlord_retire(lord, memlord_device_all());
    mli_cuda_times_read(lord, NULL, 0);
    mli_cuda_leave_device(d, device, &mode);
}
