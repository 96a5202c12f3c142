/* Records physical memory and its mappings in the ledger. cuMemCreate makes physical memory, and
   cuMemMap maps the memory to addresses. The key of a block of physical memory is the driver's
   handle. The block has a reference for each handle and for each mapping, and a part for each
   mapped range. In the description of a part, the shape lists the addresses where the range is
   mapped. The driver says which handle an address belongs to. Owns no state. Locks: none. */
#ifndef MLI_CUDA_VIRTUAL_H
#define MLI_CUDA_VIRTUAL_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/driver.h"

/* The name that a block of physical memory has in its description. */
MLI_CUDA_TABLE(const char mli_cuda_physical[])

typedef struct mli_cuda_mapping {
    unsigned long long handle;
    memlord_device device;  /* the device of the physical memory */
    uint64_t address;
    uint64_t offset, bytes; /* the mapped range of the physical memory; 0 bytes if the mapping is
                               not in the ledger */
    memlord_meta meta;      /* the description of the mapping's part, with up to 8 addresses as the
                               shape */
} mli_cuda_mapping;

/* Records a mapping in the ledger. Does nothing if the ledger does not have the handle. */
MLI_CUDA_PRIVATE void mli_cuda_mapping_add(memlord *lord, mli_cuda_mapping *m,
                                           const memlord_site *site);

/* Finds the mapping that begins at an address. Retains its handle until mli_cuda_mapping_end, so
   that no other memory gets the handle before the ledger is updated. Returns 0 if nothing is mapped
   at the address. A mapping that is not in the ledger has 0 bytes, and must not be ended. */
MLI_CUDA_PRIVATE int mli_cuda_mapping_begin(memlord *lord, const mli_cuda_driver *d,
                                            uint64_t address, mli_cuda_mapping *m);

/* Removes a mapping from the ledger if `gone` is 1, and releases the handle that
   mli_cuda_mapping_begin has retained. */
MLI_CUDA_PRIVATE void mli_cuda_mapping_end(memlord *lord, const mli_cuda_driver *d,
                                           mli_cuda_mapping *m, int gone, const memlord_site *site);

#endif
