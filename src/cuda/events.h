/* Owns the events kept for reuse, the contexts they are of, and the memory of small records. May use
   cuda/driver. Lock: streams_lock, which cuda/streams has, too; never while the driver or the ledger
   is called. */
#ifndef MLI_CUDA_EVENTS_H
#define MLI_CUDA_EVENTS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/driver.h"

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_streams_lock)

typedef struct mli_cuda_event {
    struct mli_cuda_event *next;
    cudaEvent_t handle; /* NULL: to be made */
} mli_cuda_event;

/* An event serves only the streams of its context. */
typedef struct mli_cuda_context {
    struct mli_cuda_context *next;
    void *handle;
    unsigned long long id;   /* cuCtxGetId; 0: not known */
    unsigned streams;        /* that are known of it */
    mli_cuda_event *kept[2]; /* without time, and with */
    int n[2];
} mli_cuda_context;

/* Records are cut from pages that are kept, a list for each kind. Under the lock. A new one is
   zeroed; NULL: no memory. */
enum { MLI_CUDA_CELL_FENCE, MLI_CUDA_CELL_STREAM, MLI_CUDA_CELL_EVENT, MLI_CUDA_CELL_CONTEXT,
       MLI_CUDA_CELL_TIME, MLI_CUDA_CELLS };
MLI_CUDA_PRIVATE void *mli_cuda_cell_take(int kind, size_t size);
MLI_CUDA_PRIVATE void mli_cuda_cell_give(int kind, void *cell);

/* Under the lock: the context of a handle, with a further stream; NULL: no memory. *died is 1 if the
   handle was that of another one before, whose events are forgotten. */
MLI_CUDA_PRIVATE mli_cuda_context *mli_cuda_context_enter(void *handle, unsigned long long id,
                                                          int *died);

/* Under the lock: an event that is kept, or one to be made; NULL: no memory. A context that is NULL
   keeps none. */
MLI_CUDA_PRIVATE mli_cuda_event *mli_cuda_event_take(mli_cuda_context *context, int timed);
/* Under the lock: keeps one. NULL is none. */
MLI_CUDA_PRIVATE void mli_cuda_event_keep(mli_cuda_context *context, int timed,
                                          mli_cuda_event *event);

/* Makes the handle of an event in a context. Returns the driver's error. */
MLI_CUDA_PRIVATE int mli_cuda_event_make(const mli_cuda_driver *d, void *context, int timed,
                                         mli_cuda_event *event);
/* Calls a function for an event. It knows its context: a driver that wants that to be current all
   the same says so. Requires: the capture mode is relaxed. */
MLI_CUDA_PRIVATE int mli_cuda_event_call(const mli_cuda_driver *d, int (*call)(cudaEvent_t),
                                         void *context, cudaEvent_t event);
/* Destroys what a context keeps beyond so many. */
MLI_CUDA_PRIVATE void mli_cuda_events_trim(mli_cuda_context *context, int most);
/* Destroys all that is kept, and forgets contexts without streams. */
MLI_CUDA_PRIVATE void mli_cuda_events_end(void);

#endif
