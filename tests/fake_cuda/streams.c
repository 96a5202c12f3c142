/* A part of fake_cuda.c: streams, host functions, events, waits. */

/* -- streams -- */

static void give(struct CUstream_st *s) {
    s->given++;
    now++;
    if (!s->since) s->since = now;
}

static void finish(struct CUstream_st *s) {
    s->done = s->given;
    s->since = 0;
}

void fake_stream_work(cudaStream_t stream) {
    pthread_mutex_lock(&lock);
    give(stream_of(stream));
    pthread_mutex_unlock(&lock);
}

typedef struct host_function {
    cudaHostFn_t fn;
    void *user;
} host_function;

static void *run_host_function(void *user) {
    const host_function *f = (const host_function *)user;
    self.host_function = 1;
    f->fn(f->user);
    return NULL;
}

/* What is asked of the host happens in its order, on a thread that is nobody's. */
static void run_queue(struct CUstream_st *s, uint64_t at) {
    while (s->running || (s->queued && s->queue[0].at <= at)) {
        const int run = !s->running;
        host_function f = {s->queue[0].fn, s->queue[0].user};
        pthread_t thread;
        if (run) {
            s->queued--;
            memmove(s->queue, s->queue + 1, sizeof s->queue[0] * (size_t)s->queued);
        }
        s->running = 1;
        pthread_mutex_unlock(&lock);
        if (!run) sched_yield();
        if (run && pthread_create(&thread, NULL, run_host_function, &f) == 0)
            pthread_join(thread, NULL);
        pthread_mutex_lock(&lock);
        if (run) s->running = 0;
    }
}

void fake_stream_finish(cudaStream_t stream) {
    struct CUstream_st *s;
    pthread_mutex_lock(&lock);
    s = (uintptr_t)stream > 2 ? stream : stream_of(stream); /* or what is left of it */
    run_queue(s, s->given);
    finish(s);
    pthread_mutex_unlock(&lock);
}

static void event_await(const struct CUevent_st *event);

/* Until it has done so much, and what it was told before `before` to wait for is done. */
static void go_on(struct CUstream_st *s, uint64_t at, uint64_t before) {
    int i;
    for (i = 0; i < s->n_waits; i++) {
        const struct CUevent_st event = s->waits[i].event; /* the lock may be dropped */
        if (s->waits[i].serial < before) event_await(&event);
    }
    run_queue(s, at);
    if (s->done < at) s->done = at;
    if (s->done == s->given) s->since = 0;
}

static void wait_until(struct CUstream_st *s, uint64_t at, uint64_t before) {
    int i;
    go_on(s, at, before);
    /* cudaMemPoolAttrReleaseThreshold: a pool gives back what is more at the next wait */
    for (i = 0; i < POOLS; i++)
        if (pools[i].alive && pools[i].device == s->device)
            pool_let_go(&pools[i], pools[i].n[THRESHOLD]);
}

/* A device that nobody waits for. A host function that takes long holds up its own stream, and the
   others until it returns: CUDA may run all on one thread as well. */
static void *device_run(void *user) {
    const struct timespec pause = {0, 1000000};
    struct CUstream_st *s;
    int i;
    for (;; nanosleep(&pause, NULL)) {
        pthread_mutex_lock(&lock);
        for (i = 0; (s = stream_number(i)); i++)
            if (s->since) go_on(s, s->given, serial + 1);
        pthread_mutex_unlock(&lock);
    }
    return user;
}

static void device_start(void) {
    pthread_t thread;
    if (device_runs) return;
    device_runs = pthread_create(&thread, NULL, device_run, NULL) == 0;
    if (device_runs) pthread_detach(thread);
}

/* The legacy stream comes after all that the blocking ones were given. */
static void wait_for(struct CUstream_st *s, uint64_t before) {
    struct CUstream_st *other;
    int i;
    for (i = 0; is_legacy(s) && (other = stream_number(i)); i++)
        if (other->context == s->context && other->blocking && other != s)
            wait_until(other, other->given, before);
    wait_until(s, s->given, before);
}

/* A call on a stream that holds as much as it may waits until the device has done something of it,
   which may need a host function to return. */
static int await_room(struct CUstream_st *s) {
    if (!fake.queue_length || s->given - s->done < fake.queue_length) return 0;
    fake.queue_waits++;
    go_on(s, s->given - fake.queue_length + 1, serial + 1);
    return s->alive ? 0 : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user) {
    int r = runtime("cudaLaunchHostFunc");
    struct CUstream_st *s = stream_of(stream);
    if (!r && (!fn || (s && s->queued == QUEUED))) r = cudaErrorInvalidValue;
    if (!r) r = use(s);
    if (!r && !s->capture) {
        give(s);
        s->queue[s->queued].fn = fn;
        s->queue[s->queued].user = user;
        s->queue[s->queued++].at = s->given;
    }
    return end(r);
}

static int stream_make(cudaStream_t *stream, int number, unsigned flags) {
    struct CUstream_st *s;
    int i = n_streams;
    if (!stream || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    if (i == STREAMS) /* handles come again, too */
        for (i = 0; i < STREAMS && (streams[i].alive || streams[i].since);) i++;
    if (i == STREAMS) return cudaErrorMemoryAllocation;
    s = &streams[i];
    n_streams += i == n_streams;
    s->context = number;
    s->device = contexts[number].device;
    s->alive = 1;
    s->n_waits = 0;
    s->id = ++ids;
    s->blocking = !(flags & cudaStreamNonBlocking);
    *stream = s;
    return 0;
}

RUNTIME(cudaStreamCreate, (cudaStream_t *stream), stream_make(stream, current_context(), 0))
RUNTIME(cudaStreamCreateWithFlags, (cudaStream_t *stream, unsigned int flags),
        stream_make(stream, current_context(), flags))

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
    int r = runtime("cudaStreamCreateWithPriority");
    (void)priority;
    return end(r ? r : stream_make(stream, current_context(), flags));
}

/* cudaStreamDestroy: what it was given goes on. A capture that began on it is over; one it only
   joined cannot be joined again. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    int r = runtime("cudaStreamDestroy");
    if (!r && (!stream_of(stream) || (uintptr_t)stream <= 2)) r = cudaErrorInvalidResourceHandle;
    if (!r && is_orphan(stream)) r = cudaErrorContextIsDestroyed;
    if (!r) {
        capture *c = stream->capture;
        if (c && c->origin != stream) c->invalid = 1;
        if (c && c->origin == stream) {
            c->invalid = 1;
            (void)capture_end(c);
        }
        stream->capture = NULL;
        stream->alive = 0;
    }
    return end(r);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    int r = runtime("cudaStreamSynchronize");
    struct CUstream_st *s = stream_of(stream);
    if (!r) r = look(s);
    if (!r) wait_for(s, serial + 1);
    return end(r);
}

static int is_done(const struct CUevent_st *event);

/* Is what it was told before `before` to wait for done? */
static int is_let(const struct CUstream_st *s, uint64_t before) {
    int i;
    for (i = 0; i < s->n_waits; i++)
        if (s->waits[i].serial < before && !is_done(&s->waits[i].event)) return 0;
    return 1;
}

static int is_idle(struct CUstream_st *s) {
    struct CUstream_st *other;
    int i;
    if (s->done < s->given || !is_let(s, serial + 1)) return 0;
    for (i = 0; is_legacy(s) && (other = stream_number(i)); i++)
        if (other->context == s->context && other->blocking && other->since) return 0;
    return 1;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    int r = runtime("cudaStreamQuery");
    struct CUstream_st *s = stream_of(stream);
    if (!r) r = look(s);
    if (!r && !is_idle(s)) r = cudaErrorNotReady;
    return end(r);
}

/* Programming Guide, "Prohibited and Unhandled Operations": nor a broader handle that has a
   capture in it, as a device or a context, whatever the thread's mode. */
static int wait_for_context(int number) {
    struct CUstream_st *s;
    int i, r = unsafe();
    for (i = 0; (s = stream_number(i)); i++)
        if (s->context == number && s->capture)
            r = invalidate(s->capture, cudaErrorStreamCaptureUnsupported);
    for (i = 0; !r && (s = stream_number(i)); i++)
        if (s->context == number) wait_until(s, s->given, serial + 1);
    return r;
}

RUNTIME(cudaDeviceSynchronize, (void), wait_for_context(current_context()))

/* -- events -- */

static int event_make(cudaEvent_t *event, int number, unsigned flags) {
    int i = n_events;
    if (!event) return cudaErrorInvalidValue;
    if (i == EVENTS) /* likewise */
        for (i = 0; i < EVENTS && events[i].alive;) i++;
    if (i == EVENTS) return cudaErrorMemoryAllocation;
    n_events += i == n_events;
    *event = &events[i];
    memset(*event, 0, sizeof **event);
    (*event)->context = number;
    (*event)->alive = 1;
    (*event)->timed = !(flags & cudaEventDisableTiming);
    fake.events++;
    fake.events_made++;
    return 0;
}

static int event_end(cudaEvent_t event) {
    if (!event || !event->alive) return cudaErrorInvalidResourceHandle;
    event->alive = 0;
    fake.events--;
    return 0;
}

/* cudaEventRecord: event and stream are of one context. */
static int event_record(cudaEvent_t event, cudaStream_t stream) {
    struct CUstream_st *s = stream_of(stream);
    int r;
    if (!s || !event || !event->alive || event->context != s->context)
        return cudaErrorInvalidResourceHandle;
    if ((r = use(s))) return r;
    event->captured = s->capture ? s->capture->serial : 0;
    if (fake.slow_events && !s->capture) give(s);
    event->recorded = 1;
    event->serial = ++serial;
    event->stream = s;
    event->at = s->capture ? s->nodes : s->given;
    event->when = now;
    return 0;
}

/* The legacy default stream comes after all that blocking streams were given before. */
static int is_done(const struct CUevent_st *event) {
    struct CUstream_st *s = event->stream;
    int i;
    if (!s) return 1;
    if (!is_let(s, event->serial)) return 0;
    if (!is_legacy(s)) return s->done >= event->at;
    for (i = 0; (s = stream_number(i)); i++)
        if (s->context == event->context && s->blocking && s->since && s->since <= event->when)
            return 0;
    return 1;
}

static capture *captured_in(cudaEvent_t event) {
    int i;
    for (i = 0; event->captured && i < CAPTURES; i++)
        if (captures[i].serial == event->captured) return &captures[i];
    return NULL;
}

/* cudaErrorCapturedEvent: it was last recorded in a capture, and stands for nothing that runs. */
static int event_look(cudaEvent_t event) {
    if (!event || !event->alive) return cudaErrorInvalidResourceHandle;
    if (event->captured) return invalidate(captured_in(event), cudaErrorCapturedEvent);
    return unsafe();
}

static int event_query(cudaEvent_t event) {
    int r = event_look(event);
    return r ? r : is_done(event) ? 0 : cudaErrorNotReady;
}

static void event_await(const struct CUevent_st *event) {
    if (!event->stream) return;
    if (is_legacy(event->stream)) {
        wait_for(event->stream, event->serial);
    } else {
        wait_until(event->stream, event->at, event->serial);
    }
}

static int event_wait(cudaEvent_t event) {
    int r = event_look(event);
    if (!r) event_await(event);
    return r;
}

/* cudaEventElapsedTime: both recorded, with times, and done. */
static int event_elapsed(float *ms, cudaEvent_t start, cudaEvent_t stop) {
    int r = event_query(start);
    if (!r) r = event_query(stop);
    if (r && r != cudaErrorNotReady) return r;
    if (!start->recorded || !stop->recorded || !start->timed || !stop->timed)
        return cudaErrorInvalidResourceHandle;
    if (!r) *ms = (float)(stop->at - start->at); /* a thing a millisecond */
    return r;
}

RUNTIME(cudaEventCreate, (cudaEvent_t *event), event_make(event, current_context(), 0))

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    int r = runtime("cudaEventCreateWithFlags");
    if (!r && flags > 7) r = cudaErrorInvalidValue;
    return end(r ? r : event_make(event, current_context(), flags));
}

RUNTIME(cudaEventDestroy, (cudaEvent_t event), event_end(event))
RUNTIME(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), event_record(event, stream))
RUNTIME(cudaEventQuery, (cudaEvent_t event), event_query(event))
RUNTIME(cudaEventSynchronize, (cudaEvent_t event), event_wait(event))

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t stop) {
    int r = runtime("cudaEventElapsedTime");
    if (!r && !ms) r = cudaErrorInvalidValue;
    return end(r ? r : event_elapsed(ms, start, stop));
}

/* A stream that has to wait for too much is refused more: the fake keeps so many. */
static int wait_later(struct CUstream_st *s, cudaEvent_t event) {
    int i, n = 0;
    for (i = 0; i < s->n_waits; i++)
        if (!is_done(&s->waits[i].event)) s->waits[n++] = s->waits[i];
    s->n_waits = n;
    if (!event->stream || event->stream == s) return 0;
    s->waited++;
    if (is_done(event)) return 0;
    if (n == QUEUED) return cudaErrorMemoryAllocation;
    s->waits[n].event = *event;
    s->waits[n].serial = ++serial;
    s->n_waits++;
    return 0;
}

uint64_t fake_stream_waits(cudaStream_t stream) {
    uint64_t n;
    pthread_mutex_lock(&lock);
    n = stream_of(stream)->waited;
    pthread_mutex_unlock(&lock);
    return n;
}

/* Programming Guide, "Cross-stream Dependencies": a captured event takes the stream into its
   capture, and no other one's; one that was not captured does not come into a capture, nor a
   captured one out of it, unless it is external. */
static int wait_event(struct CUstream_st *s, cudaEvent_t event, unsigned flags) {
    capture *c = captured_in(event);
    int r = use(s);
    if (r) return r;
    if (!event->captured && !s->capture) return wait_later(s, event);
    if (!event->captured)
        return flags == cudaEventWaitExternal
                   ? 0
                   : invalidate(s->capture, cudaErrorStreamCaptureIsolation);
    if (!c) return invalidate(s->capture, cudaErrorStreamCaptureIsolation);
    if (c->invalid) return cudaErrorStreamCaptureInvalidated;
    if (is_legacy(s)) return invalidate(c, cudaErrorStreamCaptureImplicit);
    if (s->capture && s->capture != c) {
        (void)invalidate(c, 0);
        return invalidate(s->capture, cudaErrorStreamCaptureMerge);
    }
    if (!s->capture) {
        s->capture = c;
        s->nodes = s->joined = 0;
    }
    if (event->stream != s && event->at > event->stream->joined) event->stream->joined = event->at;
    return 0;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    int r = runtime("cudaStreamWaitEvent");
    if (!r && (!event || !event->alive || !stream_of(stream))) r = cudaErrorInvalidResourceHandle;
    if (!r && flags > cudaEventWaitExternal) r = cudaErrorInvalidValue;
    return end(r ? r : wait_event(stream_of(stream), event, flags));
}
