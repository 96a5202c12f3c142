/* Owns the books of physical memory: a storage by its handle, with a reference for each handle and
   each mapping, and a part for each range that is mapped, in which the addresses stand. The driver says of which
   handle an address is. Locks: none. */
#ifndef MLI_CUDA_VIRTUAL_H
#define MLI_CUDA_VIRTUAL_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/driver.h"

MLI_CUDA_TABLE(const char mli_cuda_physical[])
typedef struct mli_cuda_mapping {
    unsigned long long handle;
    memlord_device device;
    uint64_t address, offset, bytes;
    memlord_meta meta; /* of its part: its shape is the addresses, up to 8 */
} mli_cuda_mapping;

/* Records a mapping that was made, as far as `handle` is on the books. */
MLI_CUDA_PRIVATE void mli_cuda_mapping_add(memlord *lord, mli_cuda_mapping *m,
                                           const memlord_site *site);

/* Finds the mapping that begins at an address, and holds its memory until the end: the handle is
   not given to another before the books are right. Returns 0 if nothing is mapped there. What is
   not on the books has no bytes, and is not held. */
MLI_CUDA_PRIVATE int mli_cuda_mapping_begin(memlord *lord, const mli_cuda_driver *d,
                                            uint64_t address, mli_cuda_mapping *m);

MLI_CUDA_PRIVATE void mli_cuda_mapping_end(memlord *lord, const mli_cuda_driver *d,
                                           mli_cuda_mapping *m, int gone, const memlord_site *site);

#endif
