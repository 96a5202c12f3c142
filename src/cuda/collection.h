/* Has the collection callback for cuda devices, which gives back unused memory of CUDA's pools and
   graphs. Also has the ranges and marks of NVIDIA's profilers. Owns no state. Locks: none. */
#ifndef MLI_CUDA_COLLECTION_H
#define MLI_CUDA_COLLECTION_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"

/* These functions set a mark, begin a range and end a range in NVIDIA's profilers. They do nothing
   without MEMLORD_CUDA_NVTX. */
MLI_CUDA_PRIVATE void mli_cuda_nvtx_mark(const char *what, uint64_t bytes);
MLI_CUDA_PRIVATE void mli_cuda_nvtx_push(const char *what);
MLI_CUDA_PRIVATE void mli_cuda_nvtx_end(void);

/* Is the ledger's collection callback for cuda devices: trims the pools and graphs of the event's
   device. `user` is the ledger's mli_cuda_attachment. */

MLI_CUDA_PRIVATE memlord_gc_result mli_cuda_collect(void *user, memlord *lord,
                                                    const memlord_gc_event *event);

#endif
