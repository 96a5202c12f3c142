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

/* Why this thread asks fences: in a poll; in a collection with FLAG_SYNC, which waits for their
   events; in a free, which does not ask the driver for an event that it has just recorded; in a
   free that records its events after the real one. */
enum { MLI_CUDA_ASKS, MLI_CUDA_WAITS, MLI_CUDA_FREES, MLI_CUDA_FREES_FIRST };
MLI_CUDA_VARIABLE(MEMLORD_THREAD_LOCAL int mli_cuda_asker)

/* A number of this thread: no other has it while both live. */
MLI_CUDA_PRIVATE uint64_t mli_cuda_thread_id(void);

MLI_CUDA_PRIVATE memlord_gc_result mli_cuda_collect(void *user, memlord *lord,
                                                    const memlord_gc_event *event);

#endif
