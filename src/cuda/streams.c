#include "cuda/streams.h"
#include "cuda/driver.h"

enum { MLI_CUDA_BUCKETS = 256, MLI_CUDA_IDLE = 64 };
#define MLI_CUDA_HASHED (1ull << 63) /* this bit marks an id that is a hash instead of the driver's
                                        id */

MLI_CUDA_VARIABLE_HERE(MEMLORD_THREAD_LOCAL int mli_cuda_waits)

static struct {
    mli_cuda_stream *bucket[MLI_CUDA_BUCKETS];
    unsigned idle;    /* how many streams have no user */
    uint64_t numbers; /* the number that the last new stream got */
    uint64_t passes;  /* how often mli_cuda_streams_record was called; each call is a pass */
} mli_cuda_streams;

/* Returns a number of this thread that no other living thread has. */
static uint64_t mli_cuda_thread_id(void) { return (uint64_t)(uintptr_t)&mli_cuda_waits; }

MLI_CUDA_PRIVATE int mli_cuda_is_default(cudaStream_t handle) { return (uintptr_t)handle <= 2; }

MLI_CUDA_PRIVATE cudaStream_t mli_cuda_stream_handle(cudaStream_t handle) {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
    if (!handle) return cudaStreamPerThread;
#endif
    return handle;
}

/* Drops the lock, gives other threads time, and takes the lock again. */
static void mli_cuda_streams_yield(void) {
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    mli_cuda_yield();
    mli_cuda_lock_take(&mli_cuda_streams_lock);
}

/* -- the known streams; all functions here require mli_cuda_streams_lock -- */

static mli_cuda_stream **mli_cuda_bucket(cudaStream_t handle) {
    uint64_t hash = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u;
    return &mli_cuda_streams.bucket[hash >> 56];
}

static void mli_cuda_stream_unlist(mli_cuda_stream *s) {
    mli_cuda_stream **at = mli_cuda_bucket(s->handle);
    if (!s->listed) return;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    s->listed = 0;
}

static void mli_cuda_stream_use(mli_cuda_stream *s) {
    if (!s->users++) mli_cuda_streams.idle--;
}

/* Removes the stream's n oldest recorded events, and keeps them for reuse. */
static void mli_cuda_marks_end(mli_cuda_stream *s, int n) {
    int i;
    for (i = 0; i < n; i++) mli_cuda_event_keep(s->context, 0, s->mark[i].event);
    s->n -= n;
    memmove(s->mark, s->mark + n, (size_t)s->n * sizeof *s->mark);
}

/* Forgets a stream. Requires: the stream has no user. */
static void mli_cuda_stream_free(mli_cuda_stream *s) {
    mli_cuda_streams.idle--;
    mli_cuda_stream_unlist(s);
    mli_cuda_marks_end(s, s->n);
    if (s->context) s->context->streams--;
    mli_cuda_cell_give(MLI_CUDA_CELL_STREAM, s);
}

/* Frees streams without a user, bucket by bucket, until at most `most` of them are left. */
static void mli_cuda_streams_evict(unsigned most) {
    mli_cuda_stream *s, *next;
    int i;
    for (i = 0; i < MLI_CUDA_BUCKETS && mli_cuda_streams.idle > most; i++)
        for (s = mli_cuda_streams.bucket[i]; s; s = next) {
            next = s->next;
            if (!s->users) mli_cuda_stream_free(s);
        }
}
MLI_CUDA_PRIVATE void mli_cuda_streams_forget(void) {
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    mli_cuda_streams_evict(0);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}

/* Ends a stream that the driver no longer has. The frees for which no event is recorded have
   failed. If the stream's context is gone, too, so are the events, and all frees on the stream that
   are not done have failed. */
static void mli_cuda_stream_died(mli_cuda_stream *s, int with_context) {
    int i;
    if (with_context) mli_cuda_stream_unlist(s);
    s->state = (unsigned char)(with_context ? MLI_CUDA_CLOSED : MLI_CUDA_ENDS);
    s->refused = ++s->given;
    if (with_context) {
        s->failed = s->given;
        for (i = 0; i < s->n; i++) mli_cuda_cell_give(MLI_CUDA_CELL_EVENT, s->mark[i].event);
        s->n = 0;
    }
    if (!s->users) mli_cuda_stream_free(s);
}

/* Gives a stream its context. `handle` and `id` are those of the context. If an earlier context had
   the same handle, ends the streams of the earlier context. */
static void mli_cuda_stream_place(mli_cuda_stream *s, void *handle, unsigned long long id) {
    mli_cuda_context *context;
    mli_cuda_stream *other, *next;
    int died = 0, i;
    if (!handle || s->context) return;
    context = mli_cuda_context_enter(handle, id, &died);
    for (i = 0; i < MLI_CUDA_BUCKETS && died; i++)
        for (other = mli_cuda_streams.bucket[i]; other; other = next) {
            next = other->next;
            if (other->context == context) mli_cuda_stream_died(other, 1);
        }
    s->context = context;
}

/* Returns the open stream with this handle and id, and adds a user. If there is none, makes the
   stream if `add` is 1, else returns NULL. Before it makes the stream, it ends an open stream that
   has this handle and another id, if both ids are the driver's. (The driver gave the handle to a
   new stream, so the old stream was destroyed.) */
static mli_cuda_stream *mli_cuda_stream_known(cudaStream_t handle, unsigned long long id, int add) {
    mli_cuda_stream **bucket = mli_cuda_bucket(handle), *s = *bucket, *next;
    while (s && (s->handle != handle || s->id != id || s->state)) s = s->next;
    if (!s && add) {
        for (s = *bucket; s && !mli_cuda_is_default(handle); s = next) {
            next = s->next;
            if (s->handle == handle && !s->state && !((s->id | id) & MLI_CUDA_HASHED))
                mli_cuda_stream_died(s, 0);
        }
        if (mli_cuda_streams.idle >= MLI_CUDA_IDLE) mli_cuda_streams_evict(MLI_CUDA_IDLE / 2);
        s = (mli_cuda_stream *)mli_cuda_cell_take(MLI_CUDA_CELL_STREAM, sizeof *s);
        if (!s) return NULL;
        s->handle = handle;
        s->id = id;
        s->thread = mli_cuda_thread_id();
        s->number = ++mli_cuda_streams.numbers;
        s->listed = 1;
        s->next = *bucket;
        *bucket = s;
        mli_cuda_streams.idle++;
    }
    if (s) mli_cuda_stream_use(s);
    return s;
}

/* -- what the driver says of a stream -- */

/* The context of a stream, and the context's id from cuCtxGetId. The id is 0 if it is not known. */
typedef struct mli_cuda_home {
    void *context;
    unsigned long long id;
} mli_cuda_home;

/* Asks for the context of a stream. For a default stream that is the context current on this
   thread. Returns the driver's error. */
static int mli_cuda_home_of(const mli_cuda_driver *d, cudaStream_t handle, mli_cuda_home *home) {
    int r;
    memset(home, 0, sizeof *home);
    r = mli_cuda_is_default(handle) ? d->context_current(&home->context)
                                    : d->stream_context(handle, &home->context);
    if (r) home->context = NULL;
    if (home->context && d->context_id && d->context_id(home->context, &home->id)) home->id = 0;
    return r;
}

MLI_CUDA_PRIVATE mli_cuda_stream *mli_cuda_stream_find(cudaStream_t handle, int device, int *here) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_home home = {NULL, 0};
    unsigned long long id = 0;
    mli_cuda_stream *s;
    int named = d && d->stream_id && !d->stream_id(handle, &id);
    if (d && !named) (void)mli_cuda_home_of(d, handle, &home);
    if (!named) {
        id = (unsigned long long)(uintptr_t)home.context * 0x9e3779b97f4a7c15u;
        id += handle == cudaStreamPerThread ? mli_cuda_thread_id() << 8 : 0;
        id = MLI_CUDA_HASHED | (home.context ? id : id + (unsigned)device);
    }
    *here = mli_cuda_is_default(handle) && (named || home.context);
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s = mli_cuda_stream_known(handle, id, 0);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    if (s) return s;
    if (named) (void)mli_cuda_home_of(d, handle, &home);
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s = mli_cuda_stream_known(handle, id, 1);
    if (s && s->users == 1) s->device = device;
    if (s) mli_cuda_stream_place(s, home.context, home.id);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    return s;
}

MLI_CUDA_PRIVATE void mli_cuda_stream_leave(mli_cuda_stream *s) {
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    if (!--s->users) {
        mli_cuda_streams.idle++;
        if (s->state) mli_cuda_stream_free(s);
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}

/* Finds the context of a stream whose context is not known, and gives it to the stream. For a
   default stream that is the primary context of the stream's device. Returns the driver's error. */
static int mli_cuda_stream_home(const mli_cuda_driver *d, mli_cuda_stream *s, void **context) {
    mli_cuda_home home = {NULL, 0};
    unsigned flags;
    int active = 0, mode, r;
    if (!mli_cuda_is_default(s->handle)) {
        r = mli_cuda_home_of(d, s->handle, &home);
    } else {
        if (s->device >= d->known) return MLI_CUDA_NO_CONTEXT;
        r = d->primary_state(d->handle[s->device], &flags, &active);
        if (!r && !active) r = MLI_CUDA_NO_CONTEXT;
        if (!r) r = mli_cuda_relax(d, &mode); /* a capture may forbid retaining a context */
        if (r) return r;
        r = d->primary_retain(&home.context, d->handle[s->device]);
        /* this release does not end the context: it was active before, so others hold it */
        if (!r) (void)d->primary_release(d->handle[s->device]);
        (void)d->capture_mode(&mode);
        if (!r && d->context_id && d->context_id(home.context, &home.id)) home.id = 0;
    }
    if (r) return r;
    *context = home.context;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    mli_cuda_stream_place(s, home.context, home.id);
    if (!s->context) r = MLI_CUDA_NO_MEMORY;
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    return r;
}

/* -- recording -- */

/* Records an event on a stream. Makes the event's handle first if it has none. If the device was
   reset, a kept handle may be gone, and the function makes and records a new one. Returns the
   driver's error. */
static int mli_cuda_event_put(const mli_cuda_driver *d, cudaStream_t handle, void *context,
                              int timed, mli_cuda_event *event) {
    int status = 0, mode, r = d->stream_capturing(handle, &status);
    if (r) return r;
    if (status) return MLI_CUDA_NOT_READY;
    if (event->handle) {
        r = d->event_record(event->handle, handle);
        if (r == 0 || r == MLI_CUDA_NO_CONTEXT || mli_cuda_is_not_yet(r)) return r;
        if (mli_cuda_relax(d, &mode) == 0) {
            (void)mli_cuda_event_call(d, d->event_destroy, context, event->handle);
            (void)d->capture_mode(&mode);
        }
        event->handle = NULL;
    }
    r = mli_cuda_event_make(d, context, timed, event);
    return r ? r : d->event_record(event->handle, handle);
}

/* Records an event on a stream in the stream's context, and looks for the context first if that is
   not known. On this thread no handle names the per-thread stream of another thread. So the event
   for such a stream is recorded on the legacy stream, which waits for all blocking streams. Returns
   1, 0 or -1, as mli_cuda_stream_record does. */
static int mli_cuda_event_on(const mli_cuda_driver *d, mli_cuda_stream *s, int here, void *context,
                             int timed, mli_cuda_event *event) {
    cudaStream_t handle = s->handle;
    void *current = context;
    int pushed = 0, r = 0;
    if (handle == cudaStreamPerThread && s->thread != mli_cuda_thread_id()) {
        handle = cudaStreamLegacy;
        here = 0;
    }
    if (!context) r = mli_cuda_stream_home(d, s, &context);
    if (!r && mli_cuda_is_default(handle) && !here) {
        r = d->context_current(&current);
        if (!r && current != context) {
            r = d->context_push(context);
            pushed = !r;
        }
    }
    if (!r) r = mli_cuda_event_put(d, handle, context, timed, event);
    if (r == MLI_CUDA_NO_CONTEXT && context && !pushed && d->context_push(context) == 0) {
        pushed = 1; /* the driver may want the stream's context to be current */
        r = mli_cuda_event_put(d, handle, context, timed, event);
    }
    if (pushed) (void)d->context_pop(&current);
    return r == 0 ? 1 : mli_cuda_is_not_yet(r) ? 0 : -1;
}

/* Adds a mark, which is a recorded event that stands for all frees up to `position`. If the mark
   before the last is at most s->apart positions before the new mark, the new mark replaces the last
   mark. If all marks are in use, first removes every second mark and doubles s->apart. The frees of
   a removed mark then wait for the next mark. Returns 1 or 0, as mli_cuda_stream_record does.
   Requires: the caller holds mli_cuda_streams_lock. */
static int mli_cuda_mark_put(mli_cuda_stream *s, mli_cuda_event *event, uint64_t position) {
    int i;
    if (position <= s->recorded || (s->n == MLI_CUDA_MARKS && s->asking)) {
        mli_cuda_event_keep(s->context, 0, event);
        return position <= s->recorded;
    }
    if (s->n < MLI_CUDA_MARKS / 4) s->apart = 1;
    if (s->n == MLI_CUDA_MARKS) {
        s->n /= 2;
        s->apart *= 2;
        for (i = 0; i < s->n; i++) {
            mli_cuda_event_keep(s->context, 0, s->mark[2 * i].event);
            s->mark[i] = s->mark[2 * i + 1];
        }
    } else if (s->n > 1 && !s->asking && position - s->mark[s->n - 2].position <= s->apart) {
        mli_cuda_event_keep(s->context, 0, s->mark[--s->n].event);
    }
    s->mark[s->n].event = event;
    s->mark[s->n++].position = position;
    s->recorded = position;
    s->answered = 0;
    return 1;
}

/* Takes an event and records it. Drops the lock while the driver records, so that no other thread
   waits. Returns 1, 0 or -1, as mli_cuda_stream_record does. *event is NULL unless the result is 1.
   Requires: the caller holds mli_cuda_streams_lock. */
static int mli_cuda_stream_put(mli_cuda_stream *s, int here, int timed, mli_cuda_event **event) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    void *context = s->context ? s->context->handle : NULL;
    int r = -1;
    s->inside++;
    *event = mli_cuda_event_take(s->context, timed);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    if (d && *event) r = mli_cuda_event_on(d, s, here, context, timed, *event);
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s->inside--;
    if (r == 1) return 1;
    mli_cuda_event_keep(s->context, timed, *event);
    *event = NULL;
    return r;
}

/* Does what mli_cuda_stream_record does. `last` is 1 for the thread that ends the stream. That
   thread may record an event although the stream is closed. */
static int mli_cuda_stream_mark(mli_cuda_stream *s, int here, int last) {
    mli_cuda_event *event;
    uint64_t position;
    int r;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    position = s->given;
    r = position == s->recorded;
    if (!r && (last || !s->state)) {
        r = mli_cuda_stream_put(s, here, 0, &event);
        if (r == 1) r = mli_cuda_mark_put(s, event, position);
        if (r < 0 && s->refused < position) s->refused = position;
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    return r;
}
MLI_CUDA_PRIVATE int mli_cuda_stream_record(mli_cuda_stream *s, int here) {
    return mli_cuda_stream_mark(s, here, 0);
}

MLI_CUDA_PRIVATE mli_cuda_event *mli_cuda_stream_time(mli_cuda_stream *s, int here) {
    mli_cuda_event *event = NULL;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    if (!s->state) (void)mli_cuda_stream_put(s, here, 1, &event);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    return event;
}

/* Stores in `out` up to `most` streams that need an event, adds a user to each, and returns their
   number. Leaves out a stream that has been taken with this `pass` before. Requires: the caller
   holds mli_cuda_streams_lock. */
static int mli_cuda_streams_take(const cudaStream_t *handle, uint64_t pass, mli_cuda_stream **out,
                                 int most) {
    const uint64_t self = mli_cuda_thread_id();
    mli_cuda_stream *s;
    int i, n = 0;
    for (i = 0; i < MLI_CUDA_BUCKETS; i++)
        for (s = mli_cuda_streams.bucket[i]; s && n < most; s = s->next) {
            if (s->given == s->recorded || s->pass >= pass || s->state) continue;
            if (handle ? s->handle != *handle : 0) continue;
            if (s->handle == cudaStreamPerThread && s->thread != self) continue;
            s->pass = pass;
            mli_cuda_stream_use(s);
            out[n++] = s;
        }
    return n;
}
MLI_CUDA_PRIVATE void mli_cuda_streams_record(const cudaStream_t *handle) {
    enum { AT_ONCE = 64 };
    mli_cuda_stream *taken[AT_ONCE];
    uint64_t pass;
    int i, n;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    pass = ++mli_cuda_streams.passes;
    while ((n = mli_cuda_streams_take(handle, pass, taken, AT_ONCE)) != 0) {
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
        for (i = 0; i < n; i++) {
            (void)mli_cuda_stream_record(taken[i], 0);
            mli_cuda_stream_leave(taken[i]);
        }
        mli_cuda_lock_take(&mli_cuda_streams_lock);
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}

/* -- asking -- */

/* Stores in *done how many of a stream's n marks (recorded events) are done. Queries the first
   mark, and then uses a binary search to find the last mark that is done. If `waits` is not 0, it
   is a position, and the function instead waits for the mark that stands for this position. If the
   wait fails, the function queries the marks after all, because an earlier mark may have the error.
   Returns the driver's error for mark[*done], or 0 if no mark has an error. */
static int mli_cuda_marks_ask(const mli_cuda_driver *d, void *context, const mli_cuda_mark *mark,
                              int n, uint64_t waits, int *done) {
    int mode, i, refused = 0, r = mli_cuda_relax(d, &mode);
    if (r) return r;
    while (*done < n) {
        i = *done ? (*done + n) / 2 : 0;
        if (waits)
            for (i = 0; i < n - 1 && waits > mark[i].position;) i++;
        r = mli_cuda_event_call(d, waits && d->event_wait ? d->event_wait : d->event_query, context,
                                mark[i].event->handle);
        if (r == 0) {
            *done = i + 1;
            if (waits) break;
        } else {
            refused = r;
            n = i;
            waits = 0;
        }
    }
    (void)d->capture_mode(&mode);
    return refused;
}

/* Stores in the stream what mli_cuda_marks_ask found. If an event has failed, the frees that it
   stands for have failed. If an event was recorded in a capture, all frees that are not done need a
   new event. Requires: the caller holds mli_cuda_streams_lock. */
static void mli_cuda_stream_learn(mli_cuda_stream *s, int done, int r) {
    s->answered = 1;
    if (!s->n) return; /* another thread has found meanwhile that the context is gone */
    if (done) s->done = s->mark[done - 1].position;
    mli_cuda_marks_end(s, done);
    if (!r || !s->n) return;
    if (r == MLI_CUDA_CAPTURED_EVENT) {
        mli_cuda_marks_end(s, s->n);
        s->recorded = s->done < s->failed ? s->failed : s->done;
    } else if (!mli_cuda_is_not_yet(r)) {
        s->failed = s->mark[0].position;
        mli_cuda_marks_end(s, 1);
    }
}

/* Asks the driver how far a stream has come. If `waits` is not 0, waits until the free with this
   position is done. One thread asks at a time, and the others use what it has learned. `last` is 1
   for the thread that ends the stream. That thread may ask although the stream is closed. */
static void mli_cuda_stream_ask(mli_cuda_stream *s, uint64_t waits, int last) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_mark mark[MLI_CUDA_MARKS];
    mli_cuda_context *context;
    int n, done = 0, r;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    while (waits && s->asking && !last) mli_cuda_streams_yield();
    if (!d || s->asking || !s->n || (s->state == MLI_CUDA_CLOSED && !last)) {
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
        return;
    }
    s->asking = 1;
    s->inside++;
    n = s->n;
    context = s->context;
    memcpy(mark, s->mark, (size_t)n * sizeof *mark);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    r = mli_cuda_marks_ask(d, context->handle, mark, n, waits, &done);
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s->asking = 0;
    s->inside--;
    mli_cuda_stream_learn(s, done, r);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    mli_cuda_events_trim(context, MEMLORD_CUDA_MAX_EVENTS);
}

/* -- the end of a stream -- */

/* Ends a stream, and records an event if a fence needs one. `open` is 1 if the stream had not ended
   before. If `waits` is 1, waits for the stream's events. A free that is not done after the wait
   has failed, because the context is about to be destroyed. Requires: the caller has set the state
   to CLOSED, and has added a user to the stream. */
static void mli_cuda_stream_end(mli_cuda_stream *s, int open, int waits) {
    uint64_t last;
    int needed;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    while (s->inside) mli_cuda_streams_yield();
    needed = open && (s->unplaced || s->given > s->recorded);
    if (open) s->given++;
    last = s->given;
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    if (needed) (void)mli_cuda_stream_mark(s, 0, 1);
    if (waits) mli_cuda_stream_ask(s, last, 1);
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s->refused = last;
    if (waits) {
        s->failed = s->recorded;
        mli_cuda_marks_end(s, s->n);
    } else {
        s->state = MLI_CUDA_ENDS;
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}

/* Returns an open stream with this handle, or NULL if there is none. If `handle` is NULL, searches
   all buckets for a stream that is on `context`, or whose context another thread is looking up.
   Requires: the caller holds mli_cuda_streams_lock. */
static mli_cuda_stream *mli_cuda_stream_of(const cudaStream_t *handle, const void *context) {
    mli_cuda_stream *s = NULL;
    int i;
    if (handle) {
        for (s = *mli_cuda_bucket(*handle); s && (s->handle != *handle || s->state);) s = s->next;
        return s;
    }
    for (i = 0; i < MLI_CUDA_BUCKETS; i++)
        for (s = mli_cuda_streams.bucket[i]; s; s = s->next)
            if (s->context ? s->context->handle == context : s->inside) return s;
    return NULL;
}
MLI_CUDA_PRIVATE void mli_cuda_streams_end(const cudaStream_t *handle, const void *context) {
    mli_cuda_stream *s;
    int open;
    if (!mli_cuda_driver_get()) return;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    while ((s = mli_cuda_stream_of(handle, context)) != NULL) {
        if (!handle && (!s->context || s->state == MLI_CUDA_CLOSED)) {
            mli_cuda_streams_yield(); /* another thread looks for the stream's context, or ends the
                                         stream */
            continue;
        }
        open = !s->state;
        s->state = MLI_CUDA_CLOSED;
        mli_cuda_stream_use(s);
        if (!handle) mli_cuda_stream_unlist(s);
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
        mli_cuda_stream_end(s, open, !handle);
        mli_cuda_stream_leave(s);
        mli_cuda_lock_take(&mli_cuda_streams_lock);
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}

/* -- fences -- */

MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fence_on(mli_cuda_stream *s, int placed) {
    mli_cuda_fence *fence;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    fence = (mli_cuda_fence *)mli_cuda_cell_take(MLI_CUDA_CELL_FENCE, sizeof *fence);
    if (fence) {
        fence->stream = s;
        s->users++;
        if (!placed)
            s->unplaced++;
        else
            fence->position = s->state ? s->given : ++s->given;
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    return fence;
}
MLI_CUDA_PRIVATE void mli_cuda_fence_free(void *user) {
    mli_cuda_fence *fence = (mli_cuda_fence *)user;
    mli_cuda_stream *s = fence->stream;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s->unplaced -= !fence->position;
    mli_cuda_cell_give(MLI_CUDA_CELL_FENCE, fence);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    mli_cuda_stream_leave(s);
}

MLI_CUDA_PRIVATE void mli_cuda_stream_answer(mli_cuda_stream *s, int answered) {
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s->answered = (unsigned char)answered;
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}

/* What is known of a fence. RECORD means that an event must be recorded first, and ASK that the
   driver must be asked. */
enum { MLI_CUDA_FAILED = -1, MLI_CUDA_NOT_YET, MLI_CUDA_DONE, MLI_CUDA_RECORD, MLI_CUDA_ASK };

/* Returns what is known of a fence. If `passed_on` is 0, returns NOT_YET where it would otherwise
   return RECORD or ASK. Requires: the caller holds mli_cuda_streams_lock. */
static int mli_cuda_fence_look(const mli_cuda_fence *fence, int passed_on) {
    const mli_cuda_stream *s = fence->stream;
    const uint64_t at = fence->position;
    if (at <= s->done) return MLI_CUDA_DONE;
    if (at <= s->failed) return MLI_CUDA_FAILED;
    if (at <= s->recorded)
        return passed_on && s->state != MLI_CUDA_CLOSED ? MLI_CUDA_ASK : MLI_CUDA_NOT_YET;
    if (at <= s->refused) return MLI_CUDA_FAILED;
    return passed_on && !s->state ? MLI_CUDA_RECORD : MLI_CUDA_NOT_YET;
}

/* The ledger first calls this function for a fence when the block of the fence is freed. If the
   fence has no position yet, the fence gets one in this call. If the first call records an
   event, the call does not query the event, because an event is rarely done at once. */
MLI_CUDA_PRIVATE int mli_cuda_fence_done(void *user) {
    mli_cuda_fence *fence = (mli_cuda_fence *)user;
    mli_cuda_stream *s = fence->stream;
    const int waits = mli_cuda_waits;
    int first, known;
    if (!mli_cuda_driver_get()) return -1;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    first = !fence->asked && !waits;
    known = first && fence->position && s->answered;
    fence->asked = 1;
    if (!fence->position) {
        s->unplaced--;
        fence->position = s->state ? s->given : ++s->given;
    }
    known = mli_cuda_fence_look(fence, !known);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    if (known == MLI_CUDA_RECORD) {
        known = mli_cuda_stream_record(s, 0);
        if (!known) mli_cuda_stream_answer(s, 1);
        if (known == 1) known = first ? MLI_CUDA_NOT_YET : MLI_CUDA_ASK;
    }
    if (known == MLI_CUDA_ASK) {
        mli_cuda_stream_ask(s, waits ? fence->position : 0, 0);
        mli_cuda_lock_take(&mli_cuda_streams_lock);
        known = mli_cuda_fence_look(fence, 0);
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
    }
    return known;
}
