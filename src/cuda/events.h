/* Owns the fences made of events, and the events between uses: a bin for each context, as an event
   serves only the streams of its own. May use cuda/driver. Locks: events_lock and unrecorded_lock,
   never while the driver or the ledger is called. */
#ifndef MLI_CUDA_EVENTS_H
#define MLI_CUDA_EVENTS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"

/* The driver may block a record until a host function of a stream has run, which may wait for the
   locks. So no lock is held then: the fence is marked as taken while its event is recorded, and the
   end of its stream waits for that one. Fences come from pages that are kept. Those with an event
   still to be recorded are in a list, so that the end of their stream finds them. */

enum { MLI_CUDA_BINS = MEMLORD_CUDA_MAX_DEVICES * 2 }; /* with time and without */

enum { MLI_CUDA_UNRECORDED, MLI_CUDA_RECORDED, MLI_CUDA_LOST };

/* Whether a thread records, or ends, the event of a listed fence without the lock; DROPPED: it
   does, and frees the fence then, as the ledger dropped it meanwhile. */
enum { MLI_CUDA_IDLE, MLI_CUDA_BUSY, MLI_CUDA_DROPPED };

typedef struct mli_cuda_fence {
    struct mli_cuda_fence *next, **slot; /* the pointer to it in its list; NULL: in none */
    mli_cuda_u64 state; /* what is not listed is its owner's alone */
    cudaStream_t stream;
    uint64_t thread;   /* of a per-thread stream */
    cudaEvent_t event; /* of `context`; NULL: none yet */
    void *context;     /* the stream's; NULL: not known yet */
    int device;        /* the block's: its context stands in for that of a default stream */
    unsigned char due;   /* to be recorded as soon as its stream allows, as its block is freed */
    unsigned char taken; /* MLI_CUDA_BUSY, or DROPPED meanwhile; the fence stays listed */
    unsigned char timed; /* its event keeps the time */
    unsigned char fresh; /* recorded, and not asked since */
} mli_cuda_fence;

/* 0, and the handles 1 and 2, are streams that every context, or thread, has one of. */
MLI_CUDA_PRIVATE int mli_cuda_is_default(cudaStream_t stream);

MLI_CUDA_PRIVATE cudaStream_t mli_cuda_stream(cudaStream_t stream);

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_unrecorded_lock)
MLI_CUDA_VARIABLE(mli_cuda_fence *mli_cuda_unrecorded[2])

typedef struct mli_cuda_event_bin {
    void *context; /* NULL: the bin has none yet, nor have those after it */
    int timed;
    mli_cuda_fence *first;
    unsigned n;
} mli_cuda_event_bin;

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_events_lock)
MLI_CUDA_VARIABLE(mli_cuda_event_bin mli_cuda_events[MLI_CUDA_BINS], mli_cuda_spare)
MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fence_pop(mli_cuda_event_bin *bin);

/* A fence on a stream, with an event of its context, if one is kept. Default streams are of the
   context that is current: a thread that never called the runtime has none. NULL: no memory. */
MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fence_on(cudaStream_t stream, int device, int timed);

MLI_CUDA_PRIVATE void mli_cuda_event_end(void *context, cudaEvent_t event);
MLI_CUDA_PRIVATE void mli_cuda_fence_unlist(mli_cuda_fence *fence);

/* Takes a listed fence, so that its driver calls need no lock. Drops the lock of the lists. */
MLI_CUDA_PRIVATE void mli_cuda_fence_take(mli_cuda_fence *fence);
/* Publishes the state of a taken fence; an unrecorded one stays listed. Takes the lock of the
   lists. Returns the next fence of its list. A fence that was dropped meanwhile is put before
   *dropped, to be freed without the lock. */
MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fence_publish(mli_cuda_fence *fence, uint64_t state,
                                                        mli_cuda_fence **dropped);
/* Gives other threads time to publish what they took. Under the lock, which it drops meanwhile.
   Returns the first fence of a list. */
MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fences_wait(int due);

/* memlord_fence.drop, too. */
MLI_CUDA_PRIVATE void mli_cuda_fence_free(void *user);

/* 1: recorded; 0: not while the stream is captured, or here; -1: it cannot be. The default stream
   of another thread cannot be named: the legacy one, which waits for all of those, stands for
   it. */
MLI_CUDA_PRIVATE int mli_cuda_fence_record(mli_cuda_fence *fence);

/* The same of a fence that is this thread's alone yet; what is not recorded is listed. */
MLI_CUDA_PRIVATE void mli_cuda_fence_begin(mli_cuda_fence *fence, int now);

/* Frees what mli_cuda_fence_publish put into the list. */
MLI_CUDA_PRIVATE void mli_cuda_fences_free(mli_cuda_fence *dropped);

/* Records what is due on a stream of this thread's, or on any (NULL): before somebody waits for it,
   as an event that is recorded after the wait is rarely done at once, and once it is no longer
   captured. When the stream ends, all that is not recorded; what it would not record is lost then,
   and what another thread is recording is waited for.
   `asked`: also if its stream is another thread's. */
MLI_CUDA_PRIVATE void mli_cuda_fences_record(const cudaStream_t *stream,
                                             const mli_cuda_fence *asked, int ends);

/* memlord_fence.done. Recording disturbs no capture, asking might. */
MLI_CUDA_PRIVATE int mli_cuda_fence_done(void *user);

/* A number of the stream: default streams share a handle, and differ by their context, and
   per-thread ones by the thread, too. */
MLI_CUDA_PRIVATE uint64_t mli_cuda_fence_queue(const mli_cuda_fence *fence);

#endif
