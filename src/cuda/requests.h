/* Owns the way of an allocation: the real call, its device, its record, and the retry. Locks:
   seats_lock, to read a policy. */
#ifndef MLI_CUDA_REQUESTS_H
#define MLI_CUDA_REQUESTS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"

enum {
    MLI_CUDA_PLAIN,
    MLI_CUDA_PITCH,
    MLI_CUDA_3D,
    MLI_CUDA_ASYNC, /* in the order of a stream, out of a pool */
    MLI_CUDA_HOST,
    MLI_CUDA_PHYSICAL
};

/* The fields are named as the parameters of MLI_CUDA_ALLOCS are. */
typedef struct mli_cuda_request {
    int kind;
    cudaError_t (*call)(const struct mli_cuda_request *q); /* the real one */
    void **ptr;
    struct cudaPitchedPtr *pitched;
    unsigned long long *handle, mem_flags; /* of physical memory, and where that is */
    const void *prop;
    memlord_device location;
    size_t bytes, *pitch, width, height;
    struct cudaExtent extent;
    unsigned flags;
    cudaMemPool_t pool; /* NULL: the device's current one */
    cudaStream_t stream;
    int clean; /* the runtime had no last error before */
    cudaError_t answer;
} mli_cuda_request;

/* Returns the current device. The runtime is asked: until CUDA 12 cudaSetDevice only says what its
   next call is to work on, and the driver may still have the device before. */
MLI_CUDA_PRIVATE int mli_cuda_device_current(void);

MLI_CUDA_PRIVATE cudaError_t mli_cuda_alloc_retry(memlord *lord, mli_cuda_request *q,
                                                  const memlord_retry *policy,
                                                  const memlord_site *site);

MLI_CUDA_PRIVATE cudaError_t mli_cuda_alloc(memlord *lord, mli_cuda_request *q,
                                            const memlord_site *site);

MLI_CUDA_PRIVATE mli_cuda_request mli_cuda_request_for(int kind,
        cudaError_t (*call)(const mli_cuda_request *));

/* Finds a block of a device, or page-locked memory. 0: it is not on the books. */
MLI_CUDA_PRIVATE int mli_cuda_block_find(memlord *lord, uint64_t key, memlord_block_info *block);

#endif
