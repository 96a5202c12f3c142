/* Has what a wrapped allocation does: the real call, the choice of its device, its record in the
   ledger, and the retries. Owns no state. Locks: mli_cuda_process_lock, to read a policy. */
#ifndef MLI_CUDA_REQUESTS_H
#define MLI_CUDA_REQUESTS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"

/* The kinds of allocations. */
enum {
    MLI_CUDA_PLAIN,
    MLI_CUDA_PITCH,
    MLI_CUDA_3D,
    MLI_CUDA_ASYNC,   /* stream-ordered, from a pool */
    MLI_CUDA_HOST,    /* page-locked memory */
    MLI_CUDA_PHYSICAL /* cuMemCreate */
};

/* A call of an allocation function, with its arguments. The members for arguments have the names of
   the parameters in MLI_CUDA_ALLOCS and MLI_CUDA_VIRTUAL. */
typedef struct mli_cuda_request {
    int kind;                                              /* MLI_CUDA_PLAIN, MLI_CUDA_PITCH and so
                                                              on */
    cudaError_t (*call)(const struct mli_cuda_request *q); /* makes the real call */
    void **ptr;
    struct cudaPitchedPtr *pitched;
    unsigned long long *handle, mem_flags; /* the arguments for physical memory */
    const void *prop;
    memlord_device location; /* where physical memory is */
    size_t bytes, *pitch, width, height;
    struct cudaExtent extent;
    unsigned flags;
    cudaMemPool_t pool; /* NULL means the current pool of the device */
    cudaStream_t stream;
    int clean;          /* 1: cudaGetLastError had no error before the call */
    cudaError_t answer; /* what the last call returned */
} mli_cuda_request;

/* Returns the current device, by asking the runtime. (Before CUDA 12 cudaSetDevice makes no context
   current, so the driver may still have the previous device.) */
MLI_CUDA_PRIVATE int mli_cuda_device_current(void);

/* Makes an allocation and records it, with retries under a policy. If `policy` is NULL, uses the
   default policy. */

MLI_CUDA_PRIVATE cudaError_t mli_cuda_alloc_retry(memlord *lord, mli_cuda_request *q,
                                                  const memlord_retry *policy,
                                                  const memlord_site *site);

/* Makes an allocation and records it, with retries if the ledger is attached with
   MEMLORD_CUDA_FLAG_RETRY. If `lord` is NULL, only makes the real call. */
MLI_CUDA_PRIVATE cudaError_t mli_cuda_alloc(memlord *lord, mli_cuda_request *q,
                                            const memlord_site *site);

/* Returns a request whose arguments are not set yet. */

MLI_CUDA_PRIVATE mli_cuda_request mli_cuda_request_for(int kind,
        cudaError_t (*call)(const mli_cuda_request *));

/* Finds a block of any cuda device, or of page-locked memory. Returns 0 if the ledger has no such
   block. */
MLI_CUDA_PRIVATE int mli_cuda_block_find(memlord *lord, uint64_t key, memlord_block_info *block);

#endif
