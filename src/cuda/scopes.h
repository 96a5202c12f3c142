/* Owns the pairs of events that measure scopes, from the begin of one to the reading of its time.
   Locks: times_lock, never while the driver or the ledger is called. */
#ifndef MLI_CUDA_SCOPES_H
#define MLI_CUDA_SCOPES_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/events.h"
#include "cuda/streams.h"

typedef struct mli_cuda_time {
    struct mli_cuda_time *next;
    memlord *lord;
    uint64_t scope;
    mli_cuda_stream *stream;
    mli_cuda_event *start, *stop;
} mli_cuda_time;

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_times_lock)

/* Begins to measure on a stream, now; NULL: it cannot be, or not while the stream is captured. */
MLI_CUDA_PRIVATE mli_cuda_time *mli_cuda_time_begin(memlord *lord, uint64_t scope,
                                                    cudaStream_t handle);
/* Ends that, now, for its time to be read later. What cannot be is not measured. */
MLI_CUDA_PRIVATE void mli_cuda_time_end(mli_cuda_time *time);

/* Reads those of a ledger that are done, on the streams of a handle or on all (NULL): the events of a
   stream are done in their order, so the first that is not ends it for that stream. Streams are told
   apart by 64 marks; of two with one mark the second may have to wait for the next call. With `last`,
   all of the ledger's end unread. */
MLI_CUDA_PRIVATE void mli_cuda_times_read(memlord *lord, const cudaStream_t *handle, int last);

#endif
