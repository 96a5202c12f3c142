#include "cuda/virtual.h"
#include "cuda/capacity.h"
#include "cuda/requests.h"

MLI_CUDA_PRIVATE const char mli_cuda_physical[] = "cuMemCreate";
static const char mli_cuda_part[] = "mapped";

/* Is a memlord_part_fn that looks for the part of a mapping. If m->bytes is 0, that is the part
   that lists the mapping's address. Otherwise it is the part that is exactly the mapping's range.
   Copies the part into the mapping, and returns 1 so that the search ends. */
static int mli_cuda_mapping_match(void *user, const memlord_part_info *part) {
    mli_cuda_mapping *m = (mli_cuda_mapping *)user;
    int k, found = part->offset == m->offset && part->bytes == m->bytes;
    if (!part->meta.name || strcmp(part->meta.name, mli_cuda_part)) return 0;
    for (k = 0; k < (int)part->meta.rank && !m->bytes; k++)
        found |= (uint64_t)part->meta.shape[k] == m->address;
    if (!found) return 0;
    m->offset = part->offset;
    m->bytes = part->bytes;
    m->meta = part->meta;
    return 1;
}

MLI_CUDA_PRIVATE void mli_cuda_mapping_add(memlord *lord, mli_cuda_mapping *m,
                                           const memlord_site *site) {
    memlord_block_info block;
    memlord_result r;
    if (!mli_cuda_block_find(lord, m->handle, &block)) return;
    memset(&m->meta, 0, sizeof m->meta);
    m->meta.name = mli_cuda_part;
    m->meta.shape[0] = (int64_t)m->address;
    m->meta.rank = 1;
    r = memlord_part_add(lord, block.device, m->handle, m->offset, m->bytes, &m->meta);
    if (r == MEMLORD_E_STATE) { /* the range is mapped already, so it gets one more address */
        m->meta.rank = 8;
        (void)memlord_parts_each(lord, block.device, m->handle, mli_cuda_mapping_match, m);
        if (m->meta.rank >= 8) return;
        m->meta.shape[m->meta.rank++] = (int64_t)m->address;
        (void)memlord_part_remove(lord, block.device, m->handle, m->offset);
        r = memlord_part_add(lord, block.device, m->handle, m->offset, m->bytes, &m->meta);
    }
    if (r == MEMLORD_OK) (void)memlord_retain(lord, block.device, m->handle, site);
}

MLI_CUDA_PRIVATE int mli_cuda_mapping_begin(memlord *lord, const mli_cuda_driver *d,
                                            uint64_t address, mli_cuda_mapping *m) {
    memlord_block_info block;
    m->address = address;
    m->offset = m->bytes = 0;
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
    int k;
    if (gone && mli_cuda_block_find(lord, m->handle, &block)) {
        m->bytes = 0; /* makes mli_cuda_mapping_match search by address again, because the
                         part may have changed when another mapping ended */
        (void)memlord_parts_each(lord, m->device, m->handle, mli_cuda_mapping_match, m);
        (void)memlord_part_remove(lord, m->device, m->handle, m->offset);
        if (--m->meta.rank) { /* the range is mapped at another address, too */
            for (k = 0; k < (int)m->meta.rank && (uint64_t)m->meta.shape[k] != m->address;) k++;
            m->meta.shape[k] = m->meta.shape[m->meta.rank];
            (void)memlord_part_add(lord, m->device, m->handle, m->offset, m->bytes, &m->meta);
        }
        if (block.refs == 1)
            mli_cuda_pool_beside(lord, block.device, -(int64_t)block.bytes);
        (void)memlord_release(lord, m->device, m->handle, site);
    }
    (void)d->mem_release(m->handle);
}
