/* Owns the measurements. A measurement is a pair of events that gives the time that a scope takes
   on the device. An event is recorded on a stream (a queue of work on a device), and is done when
   the work before it is done. A measurement lives until its time is read. Locks:
   mli_cuda_times_lock. No thread holds it while it calls the driver or the ledger. */
#ifndef MLI_CUDA_SCOPES_H
#define MLI_CUDA_SCOPES_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/events.h"
#include "cuda/streams.h"

typedef struct mli_cuda_time {
    struct mli_cuda_time *next;   /* the next measurement in the list of those that have ended */
    memlord *lord;
    uint64_t scope;               /* what memlord_scope_current returned when the scope began */
    mli_cuda_stream *stream;      /* the stream; its record lives at least as long as the
                                     measurement */
    mli_cuda_event *start, *stop; /* NULL if the event is not recorded */
} mli_cuda_time;

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_times_lock)

/* Begins a measurement: records its first event on a stream. Returns NULL if that cannot be done
   now, for example because a capture records the stream's work. */
MLI_CUDA_PRIVATE mli_cuda_time *mli_cuda_time_begin(memlord *lord, uint64_t scope,
                                                    cudaStream_t handle);
/* Ends a measurement: records its second event. mli_cuda_times_read reads the time later. If the
   event cannot be recorded, the scope is not timed. */
MLI_CUDA_PRIVATE void mli_cuda_time_end(mli_cuda_time *time);

/* Reads the times of a ledger's measurements whose events are done: those on the streams with this
   handle, or on all streams if `handle` is NULL. The events of a stream are done in their order. So
   after an event that is not done, the function does not query a later event of the stream. The
   function tells streams apart only by their numbers modulo 64. So an event that is not done may
   also make the measurements of another stream wait for the next call. If `last` is 1, the function
   reads no times, and frees the measurements. */
MLI_CUDA_PRIVATE void mli_cuda_times_read(memlord *lord, const cudaStream_t *handle, int last);

#endif
