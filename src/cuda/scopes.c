#include "cuda/scopes.h"
#include "cuda/driver.h"
#include "cuda/events.h"
#include "cuda/seats.h"

enum { MLI_CUDA_TIMES = 4096 }; /* the limit on measurements that are not yet read */

MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_times_lock = MLI_CUDA_LOCK;
static struct {
    mli_cuda_u64 n;       /* how many measurements have begun and are not yet read; accesses are
                             relaxed, because a thread always sees its own changes */
    mli_cuda_time *first; /* the measurements that have ended, in the order of their ends */
} mli_cuda_times;

static void mli_cuda_time_free(mli_cuda_time *time) {
    mli_cuda_stream *s = time->stream;
    mli_cuda_context *context;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    context = s->context; /* once the lock is dropped, another thread may set s->context */
    mli_cuda_event_keep(context, 1, time->start);
    mli_cuda_event_keep(context, 1, time->stop);
    mli_cuda_cell_give(MLI_CUDA_CELL_TIME, time);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    if (context) mli_cuda_events_trim(context, MEMLORD_CUDA_MAX_EVENTS);
    mli_cuda_stream_leave(s);
    mli_cuda_add(&mli_cuda_times.n, UINT64_MAX);
}

MLI_CUDA_PRIVATE mli_cuda_time *mli_cuda_time_begin(memlord *lord, uint64_t scope,
                                                    cudaStream_t handle) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_time *time = NULL;
    mli_cuda_stream *s;
    int here;
    if (!d || !d->event_elapsed) return NULL;
    s = mli_cuda_stream_find(handle, 0, &here);
    if (!s) return NULL;
    if (mli_cuda_add(&mli_cuda_times.n, 1) < MLI_CUDA_TIMES) {
        mli_cuda_lock_take(&mli_cuda_streams_lock);
        time = (mli_cuda_time *)mli_cuda_cell_take(MLI_CUDA_CELL_TIME, sizeof *time);
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
    }
    if (!time) {
        mli_cuda_add(&mli_cuda_times.n, UINT64_MAX);
        mli_cuda_stream_leave(s);
        return NULL;
    }
    time->lord = lord;
    time->scope = scope;
    time->stream = s;
    time->start = mli_cuda_stream_time(s, here);
    if (time->start) return time;
    mli_cuda_time_free(time);
    return NULL;
}

/* Puts measurements at the end of the list, or at its front if `back` is 1. If the ledger of a
   measurement is no longer attached, frees the measurement instead, because memlord_cuda_detach may
   have emptied the list already. (memlord_cuda_detach marks the ledger as not attached before it
   empties the list, so no measurement of the ledger stays in the list.) */
static void mli_cuda_times_put(mli_cuda_time *times, int back) {
    mli_cuda_time **at, *time, *over = NULL;
    mli_cuda_lock_take(&mli_cuda_times_lock);
    at = &mli_cuda_times.first;
    while (*at && !back) at = &(*at)->next;
    while ((time = times) != NULL) {
        times = time->next;
        if (mli_cuda_attachment_of(time->lord)) {
            time->next = *at;
            *at = time;
            at = &time->next;
        } else {
            time->next = over;
            over = time;
        }
    }
    mli_cuda_lock_drop(&mli_cuda_times_lock);
    while ((time = over) != NULL) {
        over = time->next;
        mli_cuda_time_free(time);
    }
}

MLI_CUDA_PRIVATE void mli_cuda_time_end(mli_cuda_time *time) {
    mli_cuda_stream *again;
    int here;
    again = mli_cuda_stream_find(time->stream->handle, 0, &here);
    if (again == time->stream) time->stop = mli_cuda_stream_time(again, here);
    if (again) mli_cuda_stream_leave(again);
    if (time->stop)
        mli_cuda_times_put(time, 0);
    else
        mli_cuda_time_free(time);
}

/* Adds the time of a measurement to its scope. Returns 0 if its events are not done yet. Returns 1
   if the time is added, or can never be read. */
static int mli_cuda_time_read(const mli_cuda_driver *d, const mli_cuda_time *time) {
    void *context = time->stream->context->handle;
    float ms = 0;
    int mode, r = mli_cuda_relax(d, &mode);
    if (r == 0) {
        r = mli_cuda_event_call(d, d->event_query, context, time->stop->handle);
        (void)d->capture_mode(&mode);
    }
    if (r == 0) r = mli_cuda_enter_context(d, context, &mode);
    if (r == 0) {
        r = d->event_elapsed(&ms, time->start->handle, time->stop->handle);
        mli_cuda_leave_context(d, &mode);
    }
    if (mli_cuda_is_not_yet(r)) return 0;
    if (r == 0 && ms > 0)
        (void)memlord_scope_device_time(time->lord, time->scope, (uint64_t)((double)ms * 1e6));
    return 1;
}

/* Takes measurements of a ledger off the list and returns them in their order. If `handle` is NULL,
   takes all of them, else those on the streams with this handle. */
static mli_cuda_time *mli_cuda_times_take(const memlord *lord, const cudaStream_t *handle) {
    mli_cuda_time **at, *time, *taken = NULL, **end = &taken;
    mli_cuda_lock_take(&mli_cuda_times_lock);
    for (at = &mli_cuda_times.first; (time = *at) != NULL;) {
        if (time->lord != lord || (handle && time->stream->handle != *handle)) {
            at = &time->next;
            continue;
        }
        *at = time->next;
        *end = time;
        end = &time->next;
        time->next = NULL;
    }
    mli_cuda_lock_drop(&mli_cuda_times_lock);
    return taken;
}

MLI_CUDA_PRIVATE void mli_cuda_times_read(memlord *lord, const cudaStream_t *handle, int last) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_time *time, *times, *kept = NULL, **end = &kept;
    uint64_t waits = 0, mark;
    if (!d || (!mli_cuda_load(&mli_cuda_times.n) && !last)) return;
    times = mli_cuda_times_take(lord, handle);
    while ((time = times) != NULL) {
        times = time->next;
        mark = UINT64_C(1) << time->stream->number % 64;
        if (!(waits & mark) && (last || mli_cuda_time_read(d, time))) {
            mli_cuda_time_free(time);
            continue;
        }
        waits |= mark;
        *end = time;
        end = &time->next;
        time->next = NULL;
    }
    if (kept) mli_cuda_times_put(kept, 1);
}
