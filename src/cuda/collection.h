/* Owns the trim of a device's pools and graphs. Locks: none. */
#ifndef MLI_CUDA_COLLECTION_H
#define MLI_CUDA_COLLECTION_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"

#if defined(MEMLORD_CUDA_NVTX)
MLI_CUDA_PRIVATE void mli_cuda_nvtx_mark(const char *what, uint64_t bytes);
MLI_CUDA_PRIVATE void mli_cuda_nvtx_push(const char *what);
MLI_CUDA_PRIVATE void mli_cuda_nvtx_end(void);
#else
MLI_CUDA_PRIVATE void mli_cuda_nvtx_mark(const char *what, uint64_t bytes);
MLI_CUDA_PRIVATE void mli_cuda_nvtx_push(const char *what);
MLI_CUDA_PRIVATE void mli_cuda_nvtx_end(void);
#endif

MLI_CUDA_PRIVATE memlord_gc_result mli_cuda_collect(void *user, memlord *lord,
                                                    const memlord_gc_event *event);

#endif
