/* Owns the events that are kept for reuse, their contexts, and the memory of small records. A
   stream is a queue of work on a device. An event is recorded on a stream, and is done when the
   work before it is done. A context is the driver's state of a process on a device. May use
   cuda/driver. Locks: mli_cuda_streams_lock, which cuda/streams takes, too. No thread holds it
   while it calls the driver or the ledger. */
#ifndef MLI_CUDA_EVENTS_H
#define MLI_CUDA_EVENTS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/driver.h"

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_streams_lock)

typedef struct mli_cuda_event {
    struct mli_cuda_event *next; /* the next event that the same context keeps */
    cudaEvent_t handle;          /* NULL if the driver has not made the event yet */
} mli_cuda_event;

/* A context of the driver. It keeps events for its own streams, because an event serves no stream
   of another context. */
typedef struct mli_cuda_context {
    struct mli_cuda_context *next;
    void *handle;
    unsigned long long id;   /* what cuCtxGetId says; 0 if that is not known */
    unsigned streams;        /* the number of known streams of this context */
    mli_cuda_event *kept[2]; /* the kept events: [0] those without timing, [1] those with timing */
    int n[2];                /* the length of each of these lists */
} mli_cuda_context;

/* mli_cuda_cell_take returns a zeroed record of a kind (MLI_CUDA_CELL_...), or NULL if there is no
   memory. mli_cuda_cell_give gives a record back. Records are cut from pages that are never freed,
   and each kind has a list of unused records. Requires: the caller holds mli_cuda_streams_lock. */
enum { MLI_CUDA_CELL_FENCE, MLI_CUDA_CELL_STREAM, MLI_CUDA_CELL_EVENT, MLI_CUDA_CELL_CONTEXT,
       MLI_CUDA_CELL_TIME, MLI_CUDA_CELLS };
MLI_CUDA_PRIVATE void *mli_cuda_cell_take(int kind, size_t size);
MLI_CUDA_PRIVATE void mli_cuda_cell_give(int kind, void *cell);

/* Returns the record of the context with this handle, and counts one more stream of it. Returns
   NULL if there is no memory. *died is 1 if another context had the handle before; the events kept
   for that context are then forgotten. Requires: the caller holds mli_cuda_streams_lock. */
MLI_CUDA_PRIVATE mli_cuda_context *mli_cuda_context_enter(void *handle, unsigned long long id,
                                                          int *died);

/* Returns an event that the context has kept, or a new event without a handle. Returns NULL if
   there is no memory. `context` may be NULL. Requires: the caller holds mli_cuda_streams_lock. */
MLI_CUDA_PRIVATE mli_cuda_event *mli_cuda_event_take(mli_cuda_context *context, int timed);
/* Keeps an event for reuse. `event` may be NULL. Requires: the caller holds
   mli_cuda_streams_lock. */
MLI_CUDA_PRIVATE void mli_cuda_event_keep(mli_cuda_context *context, int timed,
                                          mli_cuda_event *event);

/* Makes the handle of an event in a context. Returns the driver's error. */
MLI_CUDA_PRIVATE int mli_cuda_event_make(const mli_cuda_driver *d, void *context, int timed,
                                         mli_cuda_event *event);
/* Calls a function of the driver for an event, and returns the driver's error. An event knows its
   context, so the first call makes no context current. If the driver still asks for a current
   context, calls again with `context` current. Requires: the capture mode is relaxed
   (mli_cuda_relax). */
MLI_CUDA_PRIVATE int mli_cuda_event_call(const mli_cuda_driver *d, int (*call)(cudaEvent_t),
                                         void *context, cudaEvent_t event);
/* Destroys kept events of a context, until the context keeps at most `most` events with timing
   and `most` without. */
MLI_CUDA_PRIVATE void mli_cuda_events_trim(mli_cuda_context *context, int most);
/* Destroys all events that are kept, and forgets the contexts without a known stream. */
MLI_CUDA_PRIVATE void mli_cuda_events_end(void);

#endif
