#include "cuda/scopes.h"
#include "cuda/driver.h"
#include "cuda/seats.h"

enum { MLI_CUDA_TIMES = 4096 };

MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_times_lock = MLI_CUDA_LOCK;
typedef struct mli_cuda_times_state {
    mli_cuda_u64 n; /* in use; at 0 no lock is taken: no entry of this thread is missed */
    mli_cuda_time list[MLI_CUDA_TIMES]; /* in the order they ended */
} mli_cuda_times_state;
static mli_cuda_times_state mli_cuda_times;

MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_time_mark(cudaStream_t stream) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_fence *fence = d && d->event_elapsed ? mli_cuda_fence_on(stream, 0, 1) : NULL;
    if (fence && mli_cuda_fence_record(fence) == 1) {
        mli_cuda_store(&fence->state, MLI_CUDA_RECORDED);
        return fence;
    }
    if (fence) mli_cuda_fence_free(fence);
    return NULL;
}

static void mli_cuda_time_end(const mli_cuda_time *time) {
    mli_cuda_fence_free(time->start);
    mli_cuda_fence_free(time->stop);
}

MLI_CUDA_PRIVATE void mli_cuda_time_push(const mli_cuda_time *time) {
    uint64_t n;
    int kept;
    mli_cuda_lock_take(&mli_cuda_times_lock);
    n = mli_cuda_load(&mli_cuda_times.n);
    kept = n < MLI_CUDA_TIMES && mli_cuda_attachment_of(time->lord);
    if (kept) {
        mli_cuda_times.list[n] = *time;
        mli_cuda_store(&mli_cuda_times.n, n + 1);
    }
    mli_cuda_lock_drop(&mli_cuda_times_lock);
    if (!kept) mli_cuda_time_end(time);
}

/* 1: its time is added, or never will be; 0: it is not done. */
static int mli_cuda_time_read(const mli_cuda_driver *d, const mli_cuda_time *time) {
    float ms = 0;
    int mode, r = mli_cuda_fence_done(time->stop);
    if (!r) return 0;
    if (r == 1) r = mli_cuda_enter_context(d, time->stop->context, &mode);
    if (r == 0) {
        r = d->event_elapsed(&ms, time->start->event, time->stop->event);
        mli_cuda_leave_context(d, &mode);
    }
    if (mli_cuda_is_not_yet(r)) return 0;
    if (r == 0 && ms > 0)
        (void)memlord_scope_device_time(time->lord, time->scope, (uint64_t)((double)ms * 1e6));
    return 1;
}

MLI_CUDA_PRIVATE void mli_cuda_times_read(memlord *lord, const cudaStream_t *stream, int last) {
    mli_cuda_time *list = mli_cuda_times.list;
    const mli_cuda_driver *d;
    uint64_t n, i, kept = 0, waits = 0, mark;
    int one = stream && !mli_cuda_is_default(*stream); /* those are several */
    if (!mli_cuda_load(&mli_cuda_times.n) && !last) return;
    d = mli_cuda_driver_get();
    if (!d) return;
    mli_cuda_lock_take(&mli_cuda_times_lock);
    n = mli_cuda_load(&mli_cuda_times.n);
    for (i = 0; i < n && !(one && waits); i++) {
        mli_cuda_time *time = &list[i];
        mark = UINT64_C(1) << (mli_cuda_fence_queue(time->stop) * 0x9e3779b97f4a7c15u >> 58);
        if (time->lord == lord && !(waits & mark) && (!stream || time->stop->stream == *stream)) {
            if (last || mli_cuda_time_read(d, time)) {
                mli_cuda_time_end(time);
                continue;
            }
            waits |= mark;
        }
        list[kept++] = *time;
    }
    if (kept < i) memmove(list + kept, list + i, (size_t)(n - i) * sizeof *list);
    mli_cuda_store(&mli_cuda_times.n, n - (i - kept));
    mli_cuda_lock_drop(&mli_cuda_times_lock);
}
