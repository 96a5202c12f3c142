/* Owns the streams that frees wait for, and the fences on them. May use cuda/events and
   cuda/driver. Locks: streams_lock, never while the driver or the ledger is called. */
#ifndef MLI_CUDA_STREAMS_H
#define MLI_CUDA_STREAMS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/events.h"

/* Each free that waits for a stream gets a position, a number that rises by one on that stream. An
   event that is recorded on the stream stands for all positions given before: when the event is
   done, all of them are. So a stream needs no list of its frees. One event serves all frees that a
   capture has held back, and one event serves all uses of a stream that ends. A stream stays known
   for a while after its last fence, as it takes more calls of the driver to find it anew. */

/* The most events that a stream has at a time. */
enum { MLI_CUDA_MARKS = 32 };

/* The states of a stream. ENDS: the stream is destroyed, and no event may be recorded on it.
   CLOSED: a thread ends the stream, or its context is gone, and no other thread may ask its events
   either. A handle finds only an OPEN stream. A reset finds the streams of its context in every
   state, as it waits for the frees on destroyed streams, too. */
enum { MLI_CUDA_OPEN, MLI_CUDA_ENDS, MLI_CUDA_CLOSED };

/* An event that is recorded, and the last position that it stands for. */
typedef struct mli_cuda_mark {
    mli_cuda_event *event;
    uint64_t position;
} mli_cuda_mark;

typedef struct mli_cuda_stream {
    struct mli_cuda_stream *next; /* the next one in its bucket */
    cudaStream_t handle;
    unsigned long long id;     /* what cuStreamGetId says, or a hash that stands in for it */
    uint64_t thread;           /* the thread that made the stream known, by mli_cuda_thread_id */
    mli_cuda_context *context; /* NULL: not known yet */
    int device;                /* the device of the block that made the stream known; a default
                                  stream without a context gets the primary one of that device */
    uint64_t number;           /* no other stream has or had this number */
    unsigned users;            /* the fences and scopes on it, and the calls that work with it */
    unsigned inside;           /* the threads that call the driver for it */
    unsigned unplaced;         /* the fences without a position: uses of blocks that are live */
    uint64_t given;            /* the last position given */
    uint64_t recorded;         /* the last position that an event stands for */
    uint64_t done;             /* the last position known to be done */
    uint64_t failed;           /* the last position whose event failed */
    uint64_t refused;          /* positions up to this one that have no event never get one */
    uint64_t apart;            /* the least distance between two marks, in positions */
    uint64_t pass;             /* the last call of mli_cuda_streams_record that took the stream */
    unsigned char listed;      /* 1: it is in its bucket; 0: its context is gone */
    unsigned char state;       /* MLI_CUDA_OPEN .. */
    unsigned char asking;      /* 1: a thread asks the stream's events; no other thread asks them,
                                  and no mark is replaced */
    unsigned char answered;    /* 1: the first question of a fence is answered "not yet" without a
                                  call of the driver */
    int n;                              /* the number of marks */
    mli_cuda_mark mark[MLI_CUDA_MARKS]; /* the events not known to be done, in their order */
} mli_cuda_stream;

/* What a memlord_fence of the layer points to. */
typedef struct mli_cuda_fence {
    mli_cuda_stream *stream;
    uint64_t position; /* the position that the fence waits for; 0: none yet */
    int asked;         /* 1: the ledger has asked before */
} mli_cuda_fence;

/* 1: this thread waits until an event is done, where else it would ask whether it is done. */
MLI_CUDA_VARIABLE(MEMLORD_THREAD_LOCAL int mli_cuda_waits)

/* Returns 1 for a default stream: the handles 0, 1 and 2. Every context has a legacy one, and every
   thread has a per-thread one in each context. */
MLI_CUDA_PRIVATE int mli_cuda_is_default(cudaStream_t handle);

/* Returns the handle, or cudaStreamPerThread for 0 where the file is compiled to mean that. */
MLI_CUDA_PRIVATE cudaStream_t mli_cuda_stream_handle(cudaStream_t handle);

/* Returns the stream of a handle, and makes this call a user of it; NULL: no memory. `device` is
   that of the block. *here is 1 for a default stream of the context that is current. On a thread
   that never called the runtime no context is current. */
MLI_CUDA_PRIVATE mli_cuda_stream *mli_cuda_stream_find(cudaStream_t handle, int device, int *here);
/* Makes this call no longer a user of the stream. */
MLI_CUDA_PRIVATE void mli_cuda_stream_leave(mli_cuda_stream *s);

/* Records an event for the positions that have none. Returns 1 if they have one now. Returns 0 if
   that cannot be done now, for example because the stream is captured. Returns -1 if the positions
   never get an event. `here` is what mli_cuda_stream_find said on this thread, or 0. */
MLI_CUDA_PRIVATE int mli_cuda_stream_record(mli_cuda_stream *s, int here);

/* Does mli_cuda_stream_record for the streams with this handle, or for all streams if `handle` is
   NULL, but for per-thread streams of other threads. It is called before the host waits for the
   streams, as an event that is recorded after the wait is rarely done at once; and after a
   capture. */
MLI_CUDA_PRIVATE void mli_cuda_streams_record(const cudaStream_t *handle);

/* Ends the streams with this handle, and records one event for all fences on each. If `handle` is
   NULL, ends the streams of a context, and waits for these events. */
MLI_CUDA_PRIVATE void mli_cuda_streams_end(const cudaStream_t *handle, const void *context);

/* Records an event with timing on a stream and returns it; NULL: that cannot be done now. */
MLI_CUDA_PRIVATE mli_cuda_event *mli_cuda_stream_time(mli_cuda_stream *s, int here);

/* Makes a fence on a stream; NULL: no memory. A `placed` fence gets a position now, any other one
   when the ledger first asks it. */
MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fence_on(mli_cuda_stream *s, int placed);
/* memlord_fence.done: 1 done, 0 not yet, -1 failed. */
MLI_CUDA_PRIVATE int mli_cuda_fence_done(void *user);
/* memlord_fence.drop. */
MLI_CUDA_PRIVATE void mli_cuda_fence_free(void *user);
/* Sets `answered` of a stream. */
MLI_CUDA_PRIVATE void mli_cuda_stream_answer(mli_cuda_stream *s, int answered);

/* Forgets the streams without a user. Their events are kept for reuse. */
MLI_CUDA_PRIVATE void mli_cuda_streams_forget(void);

#endif
