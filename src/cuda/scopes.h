/* Owns the pairs of events that measure scopes, from the end of one to the reading of its time.
   Locks: times_lock, also while their events are asked. */
#ifndef MLI_CUDA_SCOPES_H
#define MLI_CUDA_SCOPES_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/events.h"

typedef struct mli_cuda_time {
    memlord *lord;
    uint64_t scope;
    mli_cuda_fence *start, *stop;
} mli_cuda_time;

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_times_lock)

/* An event on a stream, now; NULL: it cannot be, or not while the stream is captured. */
MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_time_mark(cudaStream_t stream);

/* Keeps it, if there is room and the ledger is attached, or ends it. Detaching takes the key off
   the seat and then everything off the list, so what it has missed finds no key here. */
MLI_CUDA_PRIVATE void mli_cuda_time_push(const mli_cuda_time *time);

/* Reads those of a ledger that are done, on one stream or on all (NULL): the events of a stream are
   done in their order, so the first that is not ends it for that stream. Streams are told apart by
   64 marks; of two with one mark the second may have to wait for the next call. With `last`, all
   of the ledger's end unread. */
MLI_CUDA_PRIVATE void mli_cuda_times_read(memlord *lord, const cudaStream_t *stream, int last);

#endif
