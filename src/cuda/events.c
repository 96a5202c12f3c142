#include "cuda/events.h"
#include "cuda/driver.h"
#include "cuda/collection.h"

typedef char mli_cuda_check_fence[sizeof(mli_cuda_fence) <= 64 ? 1 : -1]; /* as >>costs says */

MLI_CUDA_PRIVATE int mli_cuda_is_default(cudaStream_t stream) { return (uintptr_t)stream <= 2; }

MLI_CUDA_PRIVATE cudaStream_t mli_cuda_stream(cudaStream_t stream) {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
    if (!stream) return cudaStreamPerThread;
#endif
    return stream;
}

MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_unrecorded_lock = MLI_CUDA_LOCK;
MLI_CUDA_VARIABLE_HERE(mli_cuda_fence *mli_cuda_unrecorded[2])
static mli_cuda_u64 mli_cuda_fences_due;       /* so many are; at 0 the lists are not looked at */

MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_events_lock = MLI_CUDA_LOCK;
MLI_CUDA_VARIABLE_HERE(mli_cuda_event_bin mli_cuda_events[MLI_CUDA_BINS], mli_cuda_spare)

/* The bin of a context; NULL: there are too many. Under the lock. */
static mli_cuda_event_bin *mli_cuda_event_bin_of(void *context, int timed) {
    int i;
    for (i = 0; i < MLI_CUDA_BINS; i++) {
        mli_cuda_event_bin *bin = &mli_cuda_events[i];
        if (!bin->context) {
            bin->context = context;
            bin->timed = timed;
        }
        if (bin->context == context && bin->timed == timed) return bin;
    }
    return NULL;
}

/* Under the lock. */
static void mli_cuda_fence_push(mli_cuda_event_bin *bin, mli_cuda_fence *fence) {
    fence->next = bin->first;
    bin->first = fence;
    bin->n++;
}
MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fence_pop(mli_cuda_event_bin *bin) {
    mli_cuda_fence *fence = bin->first;
    if (!fence) return NULL;
    bin->first = fence->next;
    bin->n--;
    return fence;
}

/* Cuts pages into spare fences; the operating system's, so that no malloc of the host's is called.
   Under the lock. */
static void mli_cuda_fences_make(void) {
    enum { PIECE = 16384 };
    memlord_allocator pages;
    mli_cuda_fence *made;
    size_t i, n = PIECE / sizeof *made;
    memlord_os_allocator(&pages);
    made = (mli_cuda_fence *)pages.alloc(pages.user, PIECE);
    if (!made) return;
    memset(made, 0, PIECE);
    for (i = 0; i < n; i++) mli_cuda_fence_push(&mli_cuda_spare, &made[i]);
}

MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fence_on(cudaStream_t stream, int device, int timed) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_fence *fence = NULL;
    mli_cuda_event_bin *bin;
    void *context = NULL;
    stream = mli_cuda_stream(stream);
    if (d && (mli_cuda_is_default(stream) ? d->context_current(&context)
                                          : d->stream_context(stream, &context)))
        context = NULL;
    mli_cuda_lock_take(&mli_cuda_events_lock);
    bin = context ? mli_cuda_event_bin_of(context, timed) : NULL;
    if (bin) fence = mli_cuda_fence_pop(bin);
    if (!fence && !mli_cuda_spare.first) mli_cuda_fences_make();
    if (!fence) fence = mli_cuda_fence_pop(&mli_cuda_spare);
    mli_cuda_lock_drop(&mli_cuda_events_lock);
    if (!fence) return NULL;
    fence->stream = stream;
    fence->thread = mli_cuda_thread_id();
    fence->context = context;
    fence->device = device;
    fence->timed = (unsigned char)timed;
    fence->due = fence->fresh = 0;
    fence->taken = MLI_CUDA_IDLE;
    mli_cuda_store(&fence->state, MLI_CUDA_UNRECORDED);
    return fence;
}

MLI_CUDA_PRIVATE void mli_cuda_event_end(void *context, cudaEvent_t event) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    int mode;
    if (!d || !event || mli_cuda_enter_context(d, context, &mode)) return;
    (void)d->event_destroy(event);
    mli_cuda_leave_context(d, &mode);
}

/* Under the lock of the lists, in both. */
static void mli_cuda_fence_list(mli_cuda_fence *fence) {
    mli_cuda_fence **first = &mli_cuda_unrecorded[fence->due];
    if (fence->slot) return;
    fence->slot = first;
    fence->next = *first;
    if (fence->next) fence->next->slot = &fence->next;
    *first = fence;
    if (fence->due) mli_cuda_add(&mli_cuda_fences_due, 1);
}
MLI_CUDA_PRIVATE void mli_cuda_fence_unlist(mli_cuda_fence *fence) {
    if (!fence->slot) return;
    *fence->slot = fence->next;
    if (fence->next) fence->next->slot = fence->slot;
    fence->slot = NULL;
    if (fence->due) mli_cuda_add(&mli_cuda_fences_due, UINT64_MAX);
}

MLI_CUDA_PRIVATE void mli_cuda_fence_take(mli_cuda_fence *fence) {
    fence->taken = MLI_CUDA_BUSY;
    mli_cuda_lock_drop(&mli_cuda_unrecorded_lock);
}
MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fence_publish(mli_cuda_fence *fence, uint64_t state,
                                                        mli_cuda_fence **dropped) {
    mli_cuda_fence *next;
    int gone;
    mli_cuda_lock_take(&mli_cuda_unrecorded_lock);
    next = fence->next;
    gone = fence->taken == MLI_CUDA_DROPPED;
    fence->taken = MLI_CUDA_IDLE;
    if (!gone && state == MLI_CUDA_UNRECORDED) return next;
    mli_cuda_fence_unlist(fence);
    if (gone) {
        fence->next = *dropped;
        *dropped = fence;
    } else { /* from here on its owner may free it */
        mli_cuda_store_release(&fence->state, state);
    }
    return next;
}
MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fences_wait(int due) {
    mli_cuda_lock_drop(&mli_cuda_unrecorded_lock);
    mli_cuda_yield();
    mli_cuda_lock_take(&mli_cuda_unrecorded_lock);
    return mli_cuda_unrecorded[due];
}

MLI_CUDA_PRIVATE void mli_cuda_fence_free(void *user) {
    mli_cuda_fence *fence = (mli_cuda_fence *)user;
    mli_cuda_event_bin *bin = NULL;
    void *context;
    cudaEvent_t event;
    if (mli_cuda_load_acquire(&fence->state) != MLI_CUDA_RECORDED) {
        int taken;
        mli_cuda_lock_take(&mli_cuda_unrecorded_lock);
        taken = fence->taken;
        if (taken)
            fence->taken = MLI_CUDA_DROPPED;
        else
            mli_cuda_fence_unlist(fence);
        mli_cuda_lock_drop(&mli_cuda_unrecorded_lock);
        if (taken) return;
    }
    context = fence->context;
    event = fence->event;
    mli_cuda_lock_take(&mli_cuda_events_lock);
    if (event) bin = mli_cuda_event_bin_of(context, fence->timed);
    if (bin && (int)bin->n < MEMLORD_CUDA_MAX_EVENTS) {
        event = NULL;
    } else {
        fence->event = NULL;
        bin = &mli_cuda_spare;
    }
    mli_cuda_fence_push(bin, fence);
    mli_cuda_lock_drop(&mli_cuda_events_lock);
    mli_cuda_event_end(context, event);
}

/* Finds the context of a fence that had none: its stream's, of a default stream the primary one of
   its block's device. Returns the driver's error. */
static int mli_cuda_fence_find(const mli_cuda_driver *d, const mli_cuda_fence *fence,
                               void **context) {
    unsigned flags;
    int active = 0, r;
    if (!mli_cuda_is_default(fence->stream)) return d->stream_context(fence->stream, context);
    if (fence->device >= d->known) return MLI_CUDA_NO_CONTEXT;
    r = d->primary_state(d->handle[fence->device], &flags, &active);
    if (!r && !active) r = MLI_CUDA_NO_CONTEXT;
    if (!r) r = d->primary_retain(context, d->handle[fence->device]);
    if (!r) (void)d->primary_release(d->handle[fence->device]); /* others hold it: it was active */
    return r;
}
/* The same, and keeps it: under the lock, as a reset of a device looks for the fences of one. */
static int mli_cuda_fence_context(const mli_cuda_driver *d, mli_cuda_fence *fence) {
    void *context = NULL;
    int r = mli_cuda_fence_find(d, fence, &context);
    if (r) return r;
    mli_cuda_lock_take(&mli_cuda_unrecorded_lock);
    fence->context = context;
    mli_cuda_lock_drop(&mli_cuda_unrecorded_lock);
    return 0;
}

/* Inside the fence's context. An event that was kept may be gone with a reset of the device: then
   one try with a fresh one. */
static int mli_cuda_event_record(const mli_cuda_driver *d,
                                 mli_cuda_fence *fence, cudaStream_t stream) {
    int mode, r;
    if (fence->event) {
        r = d->event_record(fence->event, stream);
        if (r == 0 || mli_cuda_is_not_yet(r)) return r;
        (void)d->event_destroy(fence->event);
        fence->event = NULL;
    }
    r = mli_cuda_relax(d, &mode);
    if (!r) {
        r = d->event_create(&fence->event, fence->timed ? 0 : MLI_CUDA_EVENT_PLAIN);
        (void)d->capture_mode(&mode);
    }
    if (r) {
        fence->event = NULL;
        return r;
    }
    return d->event_record(fence->event, stream);
}

MLI_CUDA_PRIVATE int mli_cuda_fence_record(mli_cuda_fence *fence) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    cudaStream_t stream = fence->stream;
    void *current = NULL;
    int status = 0, entered = 0, r = 0;
    if (stream == cudaStreamPerThread && fence->thread != mli_cuda_thread_id())
        stream = cudaStreamLegacy;
    if (!d) return -1;
    if (!fence->context) r = mli_cuda_fence_context(d, fence);
    if (!r) r = d->context_current(&current);
    if (!r && current != fence->context) {
        r = d->context_push(fence->context);
        entered = !r;
    }
    if (!r) r = d->stream_capturing(stream, &status);
    if (!r && !status) r = mli_cuda_event_record(d, fence, stream);
    if (entered) (void)d->context_pop(&current);
    if (r) return mli_cuda_is_not_yet(r) ? 0 : -1;
    fence->fresh = !status;
    return !status;
}

MLI_CUDA_PRIVATE void mli_cuda_fence_begin(mli_cuda_fence *fence, int now) {
    if (now) fence->due = 1;
    if (now && mli_cuda_fence_record(fence) == 1) {
        mli_cuda_store(&fence->state, MLI_CUDA_RECORDED);
        return;
    }
    mli_cuda_lock_take(&mli_cuda_unrecorded_lock);
    mli_cuda_store(&fence->state, MLI_CUDA_UNRECORDED);
    mli_cuda_fence_list(fence);
    mli_cuda_lock_drop(&mli_cuda_unrecorded_lock);
}

MLI_CUDA_PRIVATE void mli_cuda_fences_free(mli_cuda_fence *dropped) {
    while (dropped) {
        mli_cuda_fence *next = dropped->next;
        mli_cuda_fence_free(dropped);
        dropped = next;
    }
}

/* The state that a fence has after mli_cuda_fence_record. */
static uint64_t mli_cuda_state_of(int recorded, int ends) {
    if (recorded == 1) return MLI_CUDA_RECORDED;
    return recorded == 0 && !ends ? MLI_CUDA_UNRECORDED : MLI_CUDA_LOST;
}

/* Returns 1 if a fence is one of a stream's (NULL: any) that this thread may record. */
static int mli_cuda_fence_is_ours(const mli_cuda_fence *fence, const cudaStream_t *stream,
                                  uint64_t self, const mli_cuda_fence *asked) {
    if (stream && fence->stream != *stream) return 0;
    return fence->stream != cudaStreamPerThread || fence->thread == self || fence == asked;
}

MLI_CUDA_PRIVATE void mli_cuda_fences_record(const cudaStream_t *stream,
                                             const mli_cuda_fence *asked, int ends) {
    uint64_t self = mli_cuda_thread_id();
    mli_cuda_fence *fence, *next, *dropped = NULL;
    int due, r;
    if (!ends && !mli_cuda_load(&mli_cuda_fences_due)) return;
    mli_cuda_lock_take(&mli_cuda_unrecorded_lock);
    for (due = !ends; due < 2; due++)
        for (fence = mli_cuda_unrecorded[due]; fence; fence = next) {
            next = fence->next;
            if (!mli_cuda_fence_is_ours(fence, stream, self, asked)) continue;
            if (fence->taken) {
                if (ends) next = mli_cuda_fences_wait(due);
                continue;
            }
            mli_cuda_fence_take(fence);
            r = mli_cuda_fence_record(fence);
            next = mli_cuda_fence_publish(fence, mli_cuda_state_of(r, ends), &dropped);
        }
    mli_cuda_lock_drop(&mli_cuda_unrecorded_lock);
    mli_cuda_fences_free(dropped);
}

/* 1: its event is recorded, now or before; 0: not yet, or another thread records it now; -1: it
   never will be. The ledger asks one fence on one thread at a time; the end of its stream, and
   threads that ask for others of its stream, come between. */
static int mli_cuda_fence_recorded(mli_cuda_fence *fence) {
    uint64_t state = mli_cuda_load_acquire(&fence->state);
    if (state == MLI_CUDA_UNRECORDED) {
        mli_cuda_lock_take(&mli_cuda_unrecorded_lock);
        if (fence->slot && !fence->due && !fence->taken) { /* a use: its block is freed now */
            mli_cuda_fence_unlist(fence);
            fence->due = 1;
            mli_cuda_fence_list(fence);
        }
        mli_cuda_lock_drop(&mli_cuda_unrecorded_lock);
        if (mli_cuda_asker == MLI_CUDA_FREES_FIRST) return 0;
        mli_cuda_fences_record(&fence->stream, fence, 0);
        state = mli_cuda_load_acquire(&fence->state);
    }
    return state == MLI_CUDA_RECORDED ? 1 : state == MLI_CUDA_LOST ? -1 : 0;
}

/* Asks for an event, or waits for it. An event knows its context: a driver that wants one current
   all the same says so. */
static int mli_cuda_event_ask(const mli_cuda_driver *d, const mli_cuda_fence *fence) {
    int (*ask)(cudaEvent_t) = d->event_query;
    void *context;
    int mode, r = mli_cuda_relax(d, &mode);
    if (mli_cuda_asker == MLI_CUDA_WAITS && d->event_wait) ask = d->event_wait;
    if (r) return r;
    r = ask(fence->event);
    if (r == MLI_CUDA_NO_CONTEXT && d->context_push(fence->context) == 0) {
        r = ask(fence->event);
        (void)d->context_pop(&context);
    }
    (void)d->capture_mode(&mode);
    return r;
}

MLI_CUDA_PRIVATE int mli_cuda_fence_done(void *user) {
    mli_cuda_fence *fence = (mli_cuda_fence *)user;
    const mli_cuda_driver *d = mli_cuda_driver_get();
    int fresh, r;
    if (!d) return -1;
    r = mli_cuda_fence_recorded(fence);
    if (r <= 0) return r;
    fresh = fence->fresh;
    fence->fresh = 0;
    if (fresh && mli_cuda_asker >= MLI_CUDA_FREES) return 0;
    r = mli_cuda_event_ask(d, fence);
    if (r == 0) return 1;
    if (r == MLI_CUDA_CAPTURED_EVENT) { /* a capture began as it was recorded: once more */
        fence->due = 1;
        mli_cuda_fence_begin(fence, 0);
    }
    return mli_cuda_is_not_yet(r) ? 0 : -1;
}

MLI_CUDA_PRIVATE uint64_t mli_cuda_fence_queue(const mli_cuda_fence *fence) {
    const uint64_t golden = 0x9e3779b97f4a7c15u;
    uint64_t queue = (uint64_t)(uintptr_t)fence->stream;
    if (!mli_cuda_is_default(fence->stream)) return queue;
    if (fence->stream == cudaStreamPerThread) queue |= fence->thread << 2;
    return queue + (uint64_t)(uintptr_t)fence->context * golden;
}
