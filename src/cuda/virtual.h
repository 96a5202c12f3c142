/* Has the records of physical memory and its mappings. A storage has the driver's handle as its
   key, a reference for each handle and for each mapping, and a part for each mapped range. The
   shape of the part lists the addresses of the range. The driver says which handle an address
   belongs to. Owns no state. Locks: none. */
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
    uint64_t offset, bytes; /* the range of the storage; 0 bytes: it is not on the books */
    memlord_meta meta;      /* the description of its part, with up to 8 addresses as the shape */
} mli_cuda_mapping;

/* Records a mapping that was made. Does nothing if the handle is not on the books. */
MLI_CUDA_PRIVATE void mli_cuda_mapping_add(memlord *lord, mli_cuda_mapping *m,
                                           const memlord_site *site);

/* Finds the mapping that begins at an address. Keeps its handle until mli_cuda_mapping_end, so that
   no other memory gets the handle before the books are right. Returns 0 if nothing is mapped at the
   address. A mapping that is not on the books has 0 bytes, and must not be ended. */
MLI_CUDA_PRIVATE int mli_cuda_mapping_begin(memlord *lord, const mli_cuda_driver *d,
                                            uint64_t address, mli_cuda_mapping *m);

/* Takes a mapping off the books, if it is `gone`, and gives its handle back. */
MLI_CUDA_PRIVATE void mli_cuda_mapping_end(memlord *lord, const mli_cuda_driver *d,
                                           mli_cuda_mapping *m, int gone, const memlord_site *site);

#endif
