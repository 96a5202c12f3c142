/* Owns the events kept for reuse, their contexts, and the memory of small records. May use
   cuda/driver. Locks: streams_lock, which cuda/streams takes, too; never while the driver or the
   ledger is called. */
#ifndef MLI_CUDA_EVENTS_H
#define MLI_CUDA_EVENTS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/driver.h"

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_streams_lock)

typedef struct mli_cuda_event {
    struct mli_cuda_event *next; /* the next one that its context keeps */
    cudaEvent_t handle;          /* NULL: the driver has not made it yet */
} mli_cuda_event;

/* A context of the driver. It keeps events for its own streams, as an event serves no stream of
   another context. */
typedef struct mli_cuda_context {
    struct mli_cuda_context *next;
    void *handle;
    unsigned long long id;   /* what cuCtxGetId says; 0: not known */
    unsigned streams;        /* the number of known streams of this context */
    mli_cuda_event *kept[2]; /* the events kept: [0] without timing, [1] with timing */
    int n[2];                /* the length of each of these lists */
} mli_cuda_context;

/* mli_cuda_cell_take returns a zeroed record of a kind; NULL: no memory. mli_cuda_cell_give gives a
   record back. Records are cut from pages that are never freed, and each kind has a list of unused
   records. Requires: streams_lock is held. */
enum { MLI_CUDA_CELL_FENCE, MLI_CUDA_CELL_STREAM, MLI_CUDA_CELL_EVENT, MLI_CUDA_CELL_CONTEXT,
       MLI_CUDA_CELL_TIME, MLI_CUDA_CELLS };
MLI_CUDA_PRIVATE void *mli_cuda_cell_take(int kind, size_t size);
MLI_CUDA_PRIVATE void mli_cuda_cell_give(int kind, void *cell);

/* Returns the context with this handle and counts one more stream of it; NULL: no memory. *died is
   1 if another context had the handle before; the events kept for that one are forgotten. Requires:
   streams_lock is held. */
MLI_CUDA_PRIVATE mli_cuda_context *mli_cuda_context_enter(void *handle, unsigned long long id,
                                                          int *died);

/* Returns an event that the context has kept, or a new one without a handle; NULL: no memory.
   `context` may be NULL. Requires: streams_lock is held. */
MLI_CUDA_PRIVATE mli_cuda_event *mli_cuda_event_take(mli_cuda_context *context, int timed);
/* Keeps an event for reuse. `event` may be NULL. Requires: streams_lock is held. */
MLI_CUDA_PRIVATE void mli_cuda_event_keep(mli_cuda_context *context, int timed,
                                          mli_cuda_event *event);

/* Makes the handle of an event in a context. Returns the driver's error. */
MLI_CUDA_PRIVATE int mli_cuda_event_make(const mli_cuda_driver *d, void *context, int timed,
                                         mli_cuda_event *event);
/* Calls a function of the driver for an event, and returns the driver's error. An event knows its
   context, so none is made current. If the driver asks for one all the same, the call is made again
   with `context` current. Requires: the capture mode is relaxed. */
MLI_CUDA_PRIVATE int mli_cuda_event_call(const mli_cuda_driver *d, int (*call)(cudaEvent_t),
                                         void *context, cudaEvent_t event);
/* Destroys the events that a context keeps beyond `most`, of those with timing and of those
   without. */
MLI_CUDA_PRIVATE void mli_cuda_events_trim(mli_cuda_context *context, int most);
/* Destroys all events that are kept, and forgets the contexts without a known stream. */
MLI_CUDA_PRIVATE void mli_cuda_events_end(void);

#endif
