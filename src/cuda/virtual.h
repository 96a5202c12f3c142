/* Has the records of physical memory and its mappings. The key of such a storage is the driver's
   handle. It has a reference for each handle and for each mapping, and a part for each mapped
   range. The shape of the part lists the addresses of the range. The driver says which handle an
   address belongs to. Owns no state. Locks: none. */
#ifndef MLI_CUDA_VIRTUAL_H
#define MLI_CUDA_VIRTUAL_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/driver.h"

/* The name of physical memory in its description. */
MLI_CUDA_TABLE(const char mli_cuda_physical[])

typedef struct mli_cuda_mapping {
    unsigned long long handle;
    memlord_device device;  /* the device of the storage */
    uint64_t address;
    uint64_t offset, bytes; /* the range of the storage; 0 bytes if the mapping is not in the
                               ledger */
    memlord_meta meta;      /* the description of the mapping's part, with up to 8 addresses as the
                               shape */
} mli_cuda_mapping;

/* Records a mapping that was made. Does nothing if the ledger does not have the handle. */
MLI_CUDA_PRIVATE void mli_cuda_mapping_add(memlord *lord, mli_cuda_mapping *m,
                                           const memlord_site *site);

/* Finds the mapping that begins at an address. Keeps its handle until mli_cuda_mapping_end, so that
   no other memory gets the handle before the ledger is right. Returns 0 if nothing is mapped at the
   address. A mapping that is not in the ledger has 0 bytes, and must not be ended. */
MLI_CUDA_PRIVATE int mli_cuda_mapping_begin(memlord *lord, const mli_cuda_driver *d,
                                            uint64_t address, mli_cuda_mapping *m);

/* Removes a mapping from the ledger if `gone` is 1, and gives its handle back. */
MLI_CUDA_PRIVATE void mli_cuda_mapping_end(memlord *lord, const mli_cuda_driver *d,
                                           mli_cuda_mapping *m, int gone, const memlord_site *site);

#endif
