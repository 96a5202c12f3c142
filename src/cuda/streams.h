/* Owns the streams that frees wait for, and the fences on them. A stream is a queue of work on a
   device. An event is recorded on a stream, and is done when the work before it is done. A fence
   makes a freed block wait until a stream has done the work that was queued before the free. While
   a stream is captured, its work is recorded and not run, and no event can be recorded for a fence.
   A context is the driver's state of a process on a device. May use cuda/events and cuda/driver.
   Locks: mli_cuda_streams_lock. No thread holds it while it calls the driver or the ledger. */
#ifndef MLI_CUDA_STREAMS_H
#define MLI_CUDA_STREAMS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/events.h"

/* Each free that waits for a stream gets a position on that stream. The positions of a stream count
   up from 1. An event that is recorded on the stream stands for all positions given before. When
   the event is done, the frees with these positions are done, too. So a stream needs no list of its
   frees. All frees that are made during a capture need only one event after the capture. All fences
   on a stream that ends need only one event, too. A stream stays known for a while after its last
   fence, because making the stream known again takes more calls of the driver. */

/* The most events that a stream has at a time. */
enum { MLI_CUDA_MARKS = 32 };

/* The states of a stream. ENDS means that the stream is destroyed, and no event may be recorded on
   it. CLOSED means that a thread is ending the stream, or that the stream's context is gone. Other
   threads may then neither record an event on the stream nor query its events. A look-up by handle
   finds only an OPEN stream. A reset finds the streams of the device's context in every state,
   because the reset waits for the frees on destroyed streams, too. */
enum { MLI_CUDA_OPEN, MLI_CUDA_ENDS, MLI_CUDA_CLOSED };

/* A mark: an event that is recorded, and the last position that it stands for. */
typedef struct mli_cuda_mark {
    mli_cuda_event *event;
    uint64_t position;
} mli_cuda_mark;

typedef struct mli_cuda_stream {
    struct mli_cuda_stream *next; /* the next stream in the same bucket */
    cudaStream_t handle;
    unsigned long long id;     /* what cuStreamGetId says, or a hash that stands in for it */
    uint64_t thread;           /* the thread that made the stream known, by mli_cuda_thread_id */
    mli_cuda_context *context; /* NULL if the context is not known yet */
    int device;                /* the device of the block that made the stream known; a default
                                  stream without a context gets the primary context of that
                                  device */
    uint64_t number;           /* no other stream has or had this number */
    unsigned users;            /* how many fences, scopes and calls use the stream */
    unsigned inside;           /* how many threads call the driver for the stream */
    unsigned unplaced;         /* how many fences have no position yet, because their blocks are not
                                  freed yet */
    uint64_t given;            /* the last position that was given; each free gets one, and so does
                                  the end of the stream */
    uint64_t recorded;         /* the last position that an event stands for */
    uint64_t done;             /* the last position known to be done */
    uint64_t failed;           /* the last position whose event has failed */
    uint64_t refused;          /* up to this position, a free that has no event never gets one */
    uint64_t apart;            /* a new mark replaces the last mark if the new mark is at most this
                                  many positions after the mark before the last */
    uint64_t pass;             /* the number of the last call of mli_cuda_streams_record that took
                                  the stream */
    unsigned char listed;      /* 1: the stream is in its bucket; 0: its context is gone */
    unsigned char state;       /* MLI_CUDA_OPEN, _ENDS or _CLOSED */
    unsigned char asking;      /* 1: a thread queries the stream's events, so no other thread
                                  queries or replaces them */
    unsigned char answered;    /* 1: when the ledger first asks whether a fence is done, the answer
                                  is "not yet" without a call of the driver */
    int n;                              /* the number of marks */
    mli_cuda_mark mark[MLI_CUDA_MARKS]; /* the events not known to be done, in their order */
} mli_cuda_stream;

/* What the `user` of the layer's memlord_fence points to. */
typedef struct mli_cuda_fence {
    mli_cuda_stream *stream;
    uint64_t position; /* the fence's position on its stream; 0 if the fence has none yet */
    int asked;         /* 1: the ledger has asked before whether the fence is done */
} mli_cuda_fence;

/* 1: this thread waits for an event where it would otherwise only ask whether the event is done. */
MLI_CUDA_VARIABLE(MEMLORD_THREAD_LOCAL int mli_cuda_waits)

/* Returns 1 for a default stream, which has the handle 0, 1 or 2. Every context has a legacy
   default stream, and every thread has a per-thread one in each context. */
MLI_CUDA_PRIVATE int mli_cuda_is_default(cudaStream_t handle);

/* Returns cudaStreamPerThread if `handle` is 0 and the file is compiled so that 0 means the
   per-thread stream. Otherwise returns `handle`. */
MLI_CUDA_PRIVATE cudaStream_t mli_cuda_stream_handle(cudaStream_t handle);

/* Returns the stream of a handle, and adds a user to the stream. Returns NULL if there is no
   memory. `device` is the device of the block that waits for the stream, or 0 without a block.
   *here is 1 if the stream is a default stream of the context that is current. (On a thread that
   never called the runtime no context is current.) */
MLI_CUDA_PRIVATE mli_cuda_stream *mli_cuda_stream_find(cudaStream_t handle, int device, int *here);
/* Removes a user from a stream, for example the user that mli_cuda_stream_find added. */
MLI_CUDA_PRIVATE void mli_cuda_stream_leave(mli_cuda_stream *s);

/* Records an event for those frees on the stream that have no event yet. Returns 1 if they have one
   now. Returns 0 if no event can be recorded now, for example because the stream is captured.
   Returns -1 if these frees never get an event. `here` is the *here of mli_cuda_stream_find on this
   thread, or 0. */
MLI_CUDA_PRIVATE int mli_cuda_stream_record(mli_cuda_stream *s, int here);

/* Calls mli_cuda_stream_record for the streams with this handle, or for all streams if `handle` is
   NULL, except for the per-thread streams of other threads. Wrappers call this before the host
   waits for the streams, because an event that is recorded after the wait is rarely done at once.
   They also call it after a capture. */
MLI_CUDA_PRIVATE void mli_cuda_streams_record(const cudaStream_t *handle);

/* Ends the streams with this handle, and records one event for all fences on each stream. If
   `handle` is NULL, ends the streams of a context instead, and waits for their events. */
MLI_CUDA_PRIVATE void mli_cuda_streams_end(const cudaStream_t *handle, const void *context);

/* Records an event with timing on a stream and returns it. Returns NULL if that cannot be done
   now. */
MLI_CUDA_PRIVATE mli_cuda_event *mli_cuda_stream_time(mli_cuda_stream *s, int here);

/* Makes a fence on a stream. Returns NULL if there is no memory. A `placed` fence waits for the
   work that the stream has now. Any other fence waits for the work that the stream has when the
   ledger first asks the fence whether it is done. */
MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fence_on(mli_cuda_stream *s, int placed);
/* Is the function `done` of a memlord_fence. Returns 1 for done, 0 for not yet, -1 for failed. */
MLI_CUDA_PRIVATE int mli_cuda_fence_done(void *user);
/* Is the function `drop` of a memlord_fence. Frees the fence. */
MLI_CUDA_PRIVATE void mli_cuda_fence_free(void *user);
/* Sets the field `answered` of a stream. */
MLI_CUDA_PRIVATE void mli_cuda_stream_answer(mli_cuda_stream *s, int answered);

/* Forgets the streams that no fence, scope or call uses. Keeps their events for reuse. */
MLI_CUDA_PRIVATE void mli_cuda_streams_forget(void);

#endif
