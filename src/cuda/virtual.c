#include "cuda/virtual.h"
#include "cuda/capacity.h"
#include "cuda/requests.h"

MLI_CUDA_PRIVATE const char mli_cuda_physical[] = "cuMemCreate";
MLI_CUDA_PRIVATE const char mli_cuda_part[] = "mapped";

/* memlord_part_fn: the one that is mapped at an address. */
static int mli_cuda_mapping_match(void *user, const memlord_part_info *part) {
    mli_cuda_mapping *m = (mli_cuda_mapping *)user;
    if (!part->meta.name || strcmp(part->meta.name, mli_cuda_part) ||
        (uint64_t)part->meta.shape[0] != m->address)
        return 0;
    m->offset = part->offset;
    m->bytes = part->bytes;
    return 1;
}

MLI_CUDA_PRIVATE int mli_cuda_mapping_begin(memlord *lord, const mli_cuda_driver *d,
                                            uint64_t address, mli_cuda_mapping *m) {
    memlord_block_info block;
    m->address = address;
    m->bytes = 0;
    if (!lord || d->mem_retain_handle(&m->handle, (void *)(uintptr_t)address)) return 0;
    if (mli_cuda_block_find(lord, m->handle, &block)) {
        m->device = block.device;
        (void)memlord_parts_each(lord, m->device, m->handle, mli_cuda_mapping_match, m);
    }
    if (!m->bytes) (void)d->mem_release(m->handle);
    return 1;
}

MLI_CUDA_PRIVATE void mli_cuda_mapping_end(memlord *lord, const mli_cuda_driver *d,
                                           mli_cuda_mapping *m, int gone,
                                           const memlord_site *site) {
    memlord_block_info block;
    if (gone && mli_cuda_block_find(lord, m->handle, &block)) {
        (void)memlord_part_remove(lord, m->device, m->handle, m->offset);
        if (block.refs == 1)
            mli_cuda_pool_beside(lord, block.device, -(int64_t)block.bytes);
        (void)memlord_release(lord, m->device, m->handle, site);
    }
    (void)d->mem_release(m->handle);
}
