/* Has the collection callback for cuda devices, and the ranges and marks of NVIDIA's profilers.
   Owns no state. Locks: none. */
#ifndef MLI_CUDA_COLLECTION_H
#define MLI_CUDA_COLLECTION_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"

/* These functions set a mark, begin a range and end a range in NVIDIA's profilers. They do nothing
   without MEMLORD_CUDA_NVTX. */
MLI_CUDA_PRIVATE void mli_cuda_nvtx_mark(const char *what, uint64_t bytes);
MLI_CUDA_PRIVATE void mli_cuda_nvtx_push(const char *what);
MLI_CUDA_PRIVATE void mli_cuda_nvtx_end(void);

/* The ledger's collection callback for cuda devices. `user` is the ledger's mli_cuda_attachment.
   Trims the pools and graphs of the event's device. */

MLI_CUDA_PRIVATE memlord_gc_result mli_cuda_collect(void *user, memlord *lord,
                                                    const memlord_gc_event *event);

#endif
