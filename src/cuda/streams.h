/* Owns what is known of the streams that frees wait for, and the fences on them. May use cuda/events
   and cuda/driver. Lock: streams_lock, never while the driver or the ledger is called. */
#ifndef MLI_CUDA_STREAMS_H
#define MLI_CUDA_STREAMS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/events.h"

/* A stream numbers the places in its order at which something was freed: its positions. An event
   that is recorded on it stands for all positions given until then. So what waits for a stream needs
   no list, one event serves all that a capture held back, and one all uses of a stream that ends. A
   stream stays known for a while after its last fence, as it takes more calls to find it anew. */

enum { MLI_CUDA_MARKS = 32 };

/* ENDS: no event may be recorded any more; CLOSED: nor asked. */
enum { MLI_CUDA_OPEN, MLI_CUDA_ENDS, MLI_CUDA_CLOSED };

typedef struct mli_cuda_mark {
    mli_cuda_event *event;
    uint64_t position; /* the last that it stands for */
} mli_cuda_mark;

typedef struct mli_cuda_stream {
    struct mli_cuda_stream *next; /* of its bucket */
    cudaStream_t handle;
    unsigned long long id;     /* cuStreamGetId, or a hash of what tells it apart */
    uint64_t thread;           /* of a per-thread stream */
    mli_cuda_context *context; /* NULL: not known yet */
    int device;                /* the first block's: its context stands in for a default stream's */
    uint64_t number;           /* no other stream has or had it */
    unsigned users;            /* fences and scopes on it, and calls that work with it */
    unsigned inside;           /* threads that call the driver for it */
    unsigned unplaced;         /* fences without a position: uses of blocks that are live */
    uint64_t given;            /* the last position */
    uint64_t recorded;         /* the last one that an event stands for */
    uint64_t done, failed;     /* the last ones that were found to be so */
    uint64_t refused;          /* up to it those without an event get none */
    uint64_t apart;            /* positions from one mark to the next, at least */
    uint64_t pass;             /* the last mli_cuda_streams_record that took it */
    unsigned char listed;      /* it is in its bucket */
    unsigned char state;       /* MLI_CUDA_OPEN .. */
    unsigned char asking;      /* a thread asks its events: no other does, and none is replaced */
    unsigned char answered;    /* asked since the last record: first questions are not passed on */
    int n;
    mli_cuda_mark mark[MLI_CUDA_MARKS];
} mli_cuda_stream;

typedef struct mli_cuda_fence {
    mli_cuda_stream *stream;
    uint64_t position; /* 0: none yet */
    int asked;
} mli_cuda_fence;

/* 1: this thread waits for the events that it asks. */
MLI_CUDA_VARIABLE(MEMLORD_THREAD_LOCAL int mli_cuda_waits)

/* 0, and the handles 1 and 2, are streams that every context, or thread, has one of. */
MLI_CUDA_PRIVATE int mli_cuda_is_default(cudaStream_t handle);

/* The handle that means the same whatever the default stream is compiled to be. */
MLI_CUDA_PRIVATE cudaStream_t mli_cuda_stream_handle(cudaStream_t handle);

/* Returns the stream of a handle, with this call as a user; NULL: no memory. *here is 1 if it is a
   default one of the context that is current. A thread that never called the runtime has none. */
MLI_CUDA_PRIVATE mli_cuda_stream *mli_cuda_stream_find(cudaStream_t handle, int device, int *here);
MLI_CUDA_PRIVATE void mli_cuda_stream_leave(mli_cuda_stream *s);

/* Records an event for the positions that have none. Returns 1: they have one now; 0: not while the
   stream is captured, or on this thread; -1: they get none. */
MLI_CUDA_PRIVATE int mli_cuda_stream_record(mli_cuda_stream *s, int here);

/* The same of the streams of a handle that are this thread's, or of all (NULL): before somebody waits
   for them, as an event that is recorded after the wait is rarely done at once, and once they are no
   longer captured. */
MLI_CUDA_PRIVATE void mli_cuda_streams_record(const cudaStream_t *handle);

/* Ends the streams of a handle, with one event each for all that is on it; NULL: those of a context,
   and waits for that. */
MLI_CUDA_PRIVATE void mli_cuda_streams_end(const cudaStream_t *handle, const void *context);

/* Returns an event with time, recorded on a stream now; NULL: it cannot be, or not now. */
MLI_CUDA_PRIVATE mli_cuda_event *mli_cuda_stream_time(mli_cuda_stream *s, int here);

/* A fence on a stream, at the present position if it is `placed`, else at that where it is first
   asked. NULL: no memory. */
MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fence_on(mli_cuda_stream *s, int placed);
/* memlord_fence.done and .drop. */
MLI_CUDA_PRIVATE int mli_cuda_fence_done(void *user);
MLI_CUDA_PRIVATE void mli_cuda_fence_free(void *user);
/* First questions of fences on a stream are answered "not yet", or are passed on again. */
MLI_CUDA_PRIVATE void mli_cuda_stream_answer(mli_cuda_stream *s, int answered);

/* Ends the streams that nothing waits for: their events are kept. */
MLI_CUDA_PRIVATE void mli_cuda_streams_forget(void);

#endif
