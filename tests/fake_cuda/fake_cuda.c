/* The fake of fake_cuda.h. One lock over all of it; what a thread has of its own is in `self`. It
   refuses what CUDA refuses: a comment names the function whose description in CUDA's headers says
   so, or the chapter of the CUDA C++ Programming Guide. What those leave undefined is refused. */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STORAGES = 1 << 17, PAGES = 1 << 20, STREAMS = 256, EVENTS = 1 << 14, DEPTH = 64 };
enum { NAMES = 256, QUEUED = 64, THREADS = 64, POOLS = 32, GRAPHS = 4096, CAPTURES = 256 };
enum { PLAIN = 1, POOL, GRAPH, ARRAY, IPC, HOST, REGISTERED };

/* What a storage of a graph is: allocated when the graph runs; by a run; given back after one; or
   nobody's but the graph's, which frees it itself. */
enum { CAPTURED = 1, RUN, GIVEN_BACK, INNER };

enum { RESERVED, RESERVED_HIGH, USED, USED_HIGH, THRESHOLD, NUMBERS };
enum { FOLLOW_EVENTS, OPPORTUNISTIC, INTERNAL, REUSES };

typedef struct pool {
    int alive, dying, device;
    uint64_t *n; /* NUMBERS: of the device for its default pool, else its own */
    uint64_t own[NUMBERS], most;
    int reuse[REUSES];
    int access[FAKE_DEVICES];
} pool;

struct CUgraph_st {
    int alive, runs; /* runs: executable graphs made of it */
    int device;
    uint64_t now, peak; /* bytes of its allocations, while it is captured */
};
struct CUgraphExec_st {
    struct CUgraph_st *graph;
    int auto_free;
};

typedef struct capture {
    uint64_t serial; /* 0: none is here */
    int mode, invalid;
    const void *thread;
    struct CUstream_st *origin;
    struct CUgraph_st *graph;
} capture;

/* One that was freed keeps its addresses for another: `kind` is 0, `was` the kind. */
typedef struct storage {
    int kind, was, device;
    uint64_t bytes;
    char *at;
    int page, pages; /* of the addresses; none: real memory */
    int next;        /* 1 + the one freed before it */
    pool *from;
    struct CUgraph_st *graph;
    int state;
    struct CUstream_st *freed_on;
    uint64_t freed_at;
    uint64_t serial; /* of the allocation; of an IPC handle, that of the process it is of */
    int opened;      /* times it was */
} storage;

struct CUstream_st {
    int device, alive, blocking;
    capture *capture;
    uint64_t nodes, joined; /* captured on it; of them, what another stream waited for */
    uint64_t given, done;
    uint64_t since; /* when the first of what is not done was given; 0: all is */
    struct {
        cudaHostFn_t fn; /* run by a thread of the fake while somebody waits for the stream */
        void *user;
        uint64_t at;
    } queue[QUEUED];
    int queued;
    struct {
        struct CUstream_st *stream; /* that it waits for ... */
        uint64_t at;                /* ... until that has done so much */
    } waits[QUEUED];
    int waiting;
    uint64_t waited;
};
struct CUevent_st {
    int device, alive, recorded, timed;
    uint64_t captured; /* the capture it was last recorded in */
    struct CUstream_st *stream;
    uint64_t at, when;
};

fake_cuda fake;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static storage storages[STORAGES];
static int owner[PAGES]; /* 1 + the storage at each page of the devices' addresses */
static int n_storages, n_pages, freed, spare; /* freed, spare: 1 + the first of the list */
static pool pools[POOLS];                     /* the devices' default ones first */
static pool *pool_now[FAKE_DEVICES];
static struct CUgraph_st graphs[GRAPHS];
static struct CUgraphExec_st runs[GRAPHS];
static capture captures[CAPTURES];
static struct CUstream_st streams[STREAMS];
static struct CUevent_st events[EVENTS];
static struct CUstream_st defaults[FAKE_DEVICES];
static struct CUstream_st own[THREADS][FAKE_DEVICES]; /* default streams of threads */
static char peers[FAKE_DEVICES][FAKE_DEVICES];
static int n_streams, n_events, n_threads;
static uint64_t now;                /* things given to any stream */
static uint64_t serial;             /* of captures and storages */
static char contexts[FAKE_DEVICES]; /* their addresses are the contexts */
static int initialised, forked;
static struct {
    const char *name;
    uint64_t n;
} counts[NAMES];
static __thread struct {
    int error, device, mode, depth;
    int stack[DEPTH]; /* devices whose contexts were pushed */
    int top;          /* 1 + the device the runtime made current, under the stack */
    int number;       /* 1 + its place in own */
    int host_function;
} self;

/* -- calls -- */

static int begin(const char *name) {
    const int nvml = name[0] == 'n', driver = !nvml && name[2] != 'd';
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < NAMES - 1 && counts[i].name && strcmp(counts[i].name, name)) i++;
    counts[i].name = name;
    counts[i].n++;
    fake.driver_calls += driver ? 1 : 0;
    if (++fake.calls == fake.fail_at) return fake.fail_error ? fake.fail_error : 999;
    if (fake.fail_name && fake.fail_times && !strcmp(fake.fail_name, name)) {
        if (fake.fail_times > 0) fake.fail_times--;
        return fake.fail_error ? fake.fail_error : 999;
    }
    if (nvml) return 0;
    /* cudaLaunchHostFunc: the function must not make any CUDA API calls */
    if (self.host_function) {
        fake.host_function_calls++;
        return cudaErrorNotPermitted;
    }
    /* cuInit; and no context of a parent is its child's */
    if (forked || (driver && !initialised && strcmp(name, "cuInit") != 0))
        return cudaErrorInitializationError;
    return 0;
}

static int runtime(const char *name) {
    int r = begin(name);
    if (!r && (fake.no_driver || fake.old_driver)) r = cudaErrorInsufficientDriver;
    if (!r) initialised = 1;
    if (!r && fake.sticky) r = fake.sticky;
    return r;
}

static int leave(int r) {
    pthread_mutex_unlock(&lock);
    return r;
}

static cudaError_t end(int r) {
    pthread_mutex_unlock(&lock);
    if (r) self.error = r;
    return (cudaError_t)r;
}

uint64_t fake_count(const char *name) {
    uint64_t n = 0;
    int i;
    pthread_mutex_lock(&lock);
    for (i = 0; i < NAMES; i++)
        if (counts[i].name && !strcmp(counts[i].name, name)) n = counts[i].n;
    pthread_mutex_unlock(&lock);
    return n;
}

static void pool_make(pool *p, int device, uint64_t *n) {
    memset(p, 0, sizeof *p);
    p->alive = 1;
    p->device = device;
    p->n = n ? n : p->own;
    p->reuse[FOLLOW_EVENTS] = p->reuse[OPPORTUNISTIC] = p->reuse[INTERNAL] = 1;
    p->access[device] = cudaMemAccessFlagsProtReadWrite;
}

static void forget(void) {
    int i;
    for (i = 0; i < n_storages; i++)
        if (storages[i].kind == HOST) free(storages[i].at);
    memset(&fake, 0, sizeof fake);
    memset(storages, 0, sizeof storages[0] * (size_t)n_storages);
    memset(owner, 0, sizeof owner[0] * (size_t)n_pages);
    memset(graphs, 0, sizeof graphs);
    memset(runs, 0, sizeof runs);
    memset(captures, 0, sizeof captures);
    memset(streams, 0, sizeof streams);
    memset(events, 0, sizeof events);
    memset(counts, 0, sizeof counts);
    memset(defaults, 0, sizeof defaults);
    memset(own, 0, sizeof own);
    memset(pools, 0, sizeof pools);
    memset(peers, 0, sizeof peers);
    memset(&self, 0, sizeof self);
    n_storages = n_pages = freed = spare = n_streams = n_events = forked = 0;
}

void fake_reset(int devices) {
    int i;
    pthread_mutex_lock(&lock);
    forget();
    fake.devices = devices;
    for (i = 0; i < FAKE_DEVICES; i++) {
        fake_device *d = &fake.device[i];
        d->total = FAKE_GIB;
        d->pools = 1;
        d->nvml_total = d->total + (16 << 20);
        snprintf(d->pci, sizeof d->pci, "0000:%02x:00.0", 0x80 - i * 16);
        pool_make(&pools[i], i, &d->reserved);
        pool_now[i] = &pools[i];
        defaults[i].device = i;
        defaults[i].alive = defaults[i].blocking = 1;
    }
    pthread_mutex_unlock(&lock);
}

/* The lock may be another thread's, which is not here. */
static void in_the_child(void) {
    pthread_mutex_init(&lock, NULL);
    forked = initialised;
    initialised = 0;
}

/* For programs that know nothing of the fake. */
__attribute__((constructor)) static void from_environment(void) {
    const char *devices = getenv("FAKE_CUDA_DEVICES");
    if (devices) fake_reset(atoi(devices));
    fake.old_driver = getenv("FAKE_CUDA_OLD_DRIVER") != NULL;
    pthread_atfork(NULL, NULL, in_the_child);
}

/* -- devices and contexts -- */

static int valid(int device) { return device >= 0 && device < fake.devices; }

static void activate(int device) {
    fake_device *d = &fake.device[device];
    if (!d->active) {
        fake.contexts++;
        d->contexts++;
    }
    d->active = 1;
}

void fake_activate(int device) {
    pthread_mutex_lock(&lock);
    fake.device[device].active = fake.device[device].held = 1;
    pthread_mutex_unlock(&lock);
}

int fake_depth(void) { return self.depth; }

/* What a call of the runtime that needs one works on. */
static int current(void) {
    int device = self.depth ? self.stack[self.depth - 1] : self.device;
    activate(device);
    fake.device[device].held = 1;
    if (!self.depth) self.top = device + 1;
    return device;
}

/* What a call of the driver works on. Without a context, or with one that was reset, none of them
   does: CUDA_ERROR_INVALID_CONTEXT (cuCtxGetDevice). */
static int driver_current(int *device) {
    if (!self.depth && !self.top) return cudaErrorDeviceUninitialized;
    *device = self.depth ? self.stack[self.depth - 1] : self.top - 1;
    return fake.device[*device].active ? 0 : cudaErrorDeviceUninitialized;
}

static uint64_t used(int device) {
    const fake_device *d = &fake.device[device];
    uint64_t n = d->others + d->plain + d->graph_reserved + (d->active ? d->context_bytes : 0);
    int i;
    for (i = 0; i < POOLS; i++)
        if ((pools[i].alive || pools[i].dying) && pools[i].device == device)
            n += pools[i].n[RESERVED];
    return n;
}

cudaError_t cudaGetDevice(int *device) {
    int r = runtime("cudaGetDevice");
    if (!r && !device) r = cudaErrorInvalidValue;
    if (!r) *device = self.depth ? self.stack[self.depth - 1] : self.device;
    return end(r);
}

/* Since CUDA 12 it creates the context of the device; before, as `lazy`, none. */
cudaError_t cudaSetDevice(int device) {
    int r = runtime("cudaSetDevice");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r) {
        fake.set_devices++;
        self.device = device;
        if (!fake.lazy) {
            self.top = device + 1;
            activate(device);
            fake.device[device].held = 1;
        }
    }
    return end(r);
}

cudaError_t cudaGetDeviceCount(int *count) {
    int r = runtime("cudaGetDeviceCount");
    *count = r ? 0 : fake.devices;
    return end(r);
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = fake.no_driver ? 0 : fake.old_driver ? 11020 : 13000;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
    int was = self.error;
    int r = begin("cudaGetLastError");
    (void)r;
    self.error = fake.sticky;
    leave(0);
    return (cudaError_t)was;
}

cudaError_t cudaPeekAtLastError(void) { return (cudaError_t)self.error; }

const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess ? "no error" : "an error of the fake";
}

const char *cudaGetErrorName(cudaError_t error) {
    return error == cudaSuccess ? "cudaSuccess" : "cudaErrorOfTheFake";
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device) {
    int r = runtime("cudaDeviceGetPCIBusId");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r) snprintf(text, (size_t)size, "%s", fake.device[device].pci);
    return end(r);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    int r = runtime("cudaDeviceGetAttribute");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r && attribute != cudaDevAttrIntegrated && attribute != cudaDevAttrMemoryPoolsSupported)
        r = cudaErrorInvalidValue;
    if (!r)
        *value = attribute == cudaDevAttrIntegrated ? fake.device[device].integrated
                                                    : fake.device[device].pools;
    return end(r);
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total) {
    int r = runtime("cudaMemGetInfo"), d;
    if (!r) {
        d = current();
        *total = (size_t)fake.device[d].total;
        *unused = (size_t)(fake.device[d].total - used(d));
    }
    return end(r);
}

/* -- peers -- */

static int reaches(int device, int peer) {
    return valid(device) && valid(peer) && device != peer && !fake.no_peers;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    int r = runtime("cudaDeviceCanAccessPeer");
    if (!r && (!valid(device) || !valid(peer))) r = cudaErrorInvalidDevice;
    if (!r) *can = reaches(device, peer);
    return end(r);
}

/* cudaDeviceEnablePeerAccess: flags are 0; once; only where cudaDeviceCanAccessPeer says so. */
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
    int r = runtime("cudaDeviceEnablePeerAccess"), device = r ? 0 : current();
    if (!r && flags) r = cudaErrorInvalidValue;
    if (!r && !reaches(device, peer)) r = cudaErrorInvalidDevice;
    if (!r && peers[device][peer]) r = cudaErrorPeerAccessAlreadyEnabled;
    if (!r) {
        activate(peer); /* its memory is mapped into a context of it */
        fake.device[peer].held = 1;
        peers[device][peer] = 1;
    }
    return end(r);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    int r = runtime("cudaDeviceDisablePeerAccess"), device = r ? 0 : current();
    if (!r && !valid(peer)) r = cudaErrorInvalidDevice;
    if (!r && !peers[device][peer]) r = cudaErrorPeerAccessNotEnabled;
    if (!r) peers[device][peer] = 0;
    return end(r);
}

/* -- capture -- */

/* Every stream there is, in turn; NULL after the last. */
static struct CUstream_st *stream_number(int i) {
    if (i < n_streams) return &streams[i];
    i -= n_streams;
    if (i < FAKE_DEVICES) return &defaults[i];
    i -= FAKE_DEVICES;
    return i < THREADS * FAKE_DEVICES ? &own[i / FAKE_DEVICES][i % FAKE_DEVICES] : NULL;
}

/* Programming Guide, "Prohibited and Unhandled Operations" and "Invalidation": what a capture
   forbids ends it. */
static int invalidate(capture *c, int error) {
    fake.violated++;
    if (c) c->invalid = 1;
    return error;
}

/* cudaThreadExchangeStreamCaptureMode: what is potentially unsafe is prohibited to a thread with a
   capture of its own that is not relaxed, and, in the global mode, while another thread has a
   global one. */
static int unsafe(void) {
    int i, r = 0;
    if (!fake.captures || self.mode == cudaStreamCaptureModeRelaxed) return 0;
    for (i = 0; i < CAPTURES; i++) {
        capture *c = &captures[i];
        if (!c->serial || c->mode == cudaStreamCaptureModeRelaxed) continue;
        if (c->thread == &self ||
            (c->mode == cudaStreamCaptureModeGlobal && self.mode == cudaStreamCaptureModeGlobal))
            r = invalidate(c, cudaErrorStreamCaptureUnsupported);
    }
    return r;
}

static struct CUstream_st *stream_of(cudaStream_t stream) {
    int device = self.depth ? self.stack[self.depth - 1] : self.top ? self.top - 1 : self.device;
    struct CUstream_st *s;
    if ((uintptr_t)stream > 2) return stream->alive ? stream : NULL;
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
    if (!stream) stream = cudaStreamPerThread;
#endif
    if (stream != cudaStreamPerThread) return &defaults[device];
    if (!self.number) self.number = 1 + n_threads++ % THREADS;
    s = &own[self.number - 1][device];
    s->device = device;
    s->alive = s->blocking = 1;
    return s;
}

static int is_legacy(const struct CUstream_st *s) { return s == &defaults[s->device]; }

/* The first capture of a blocking stream, which the legacy stream of the device would wait for. */
static capture *implicit(int device) {
    struct CUstream_st *s;
    int i;
    if (!fake.captures) return NULL;
    for (i = 0; (s = stream_number(i)); i++)
        if (s->device == device && s->blocking && s->capture) return s->capture;
    return NULL;
}

/* May a stream be given something? Programming Guide, "Cross-stream Dependencies": no use of the
   legacy stream while a blocking stream is captured. */
static int use(struct CUstream_st *s) {
    capture *c;
    if (!s) return cudaErrorInvalidResourceHandle;
    if (s->capture && s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (is_legacy(s) && (c = implicit(s->device)))
        return invalidate(c, cudaErrorStreamCaptureImplicit);
    if (s->capture) s->nodes++;
    return 0;
}

/* May it be asked whether it is done, or waited for? Not while it is captured, whatever the
   thread's mode. */
static int look(struct CUstream_st *s) {
    if (!s) return cudaErrorInvalidResourceHandle;
    if (s->capture) return invalidate(s->capture, cudaErrorStreamCaptureUnsupported);
    if (is_legacy(s) && implicit(s->device)) return use(s);
    return unsafe();
}

static void storage_end(storage *s);

/* What a graph owns and no run has allocated. */
static void graph_end(struct CUgraph_st *g) {
    int i;
    for (i = 0; i < n_storages; i++)
        if (storages[i].kind == GRAPH && storages[i].graph == g) {
            storages[i].graph = NULL;
            if (storages[i].state != RUN) storage_end(&storages[i]);
        }
    g->alive = 0;
}

static struct CUgraph_st *graph_make(void) {
    int i = 0;
    while (i < GRAPHS && (graphs[i].alive || graphs[i].runs)) i++;
    if (i == GRAPHS) return NULL;
    memset(&graphs[i], 0, sizeof graphs[i]);
    graphs[i].alive = 1;
    return &graphs[i];
}

static int is_graph(cudaGraph_t g) { return g >= graphs && g < graphs + GRAPHS && g->alive; }

/* cudaStreamBeginCapture: not the legacy stream, and none that is captured. */
static int capture_begin(cudaStream_t stream, cudaGraph_t graph, enum cudaStreamCaptureMode mode) {
    struct CUstream_st *s = stream_of(stream);
    int i = 0;
    if (!s) return cudaErrorInvalidResourceHandle;
    if (s->capture || is_legacy(s) || (int)mode < 0 || (int)mode > 2) return cudaErrorInvalidValue;
    while (i < CAPTURES && captures[i].serial) i++;
    if (!graph) graph = graph_make();
    if (i == CAPTURES || !graph) return cudaErrorMemoryAllocation;
    captures[i].serial = ++serial;
    captures[i].mode = (int)mode;
    captures[i].invalid = 0;
    captures[i].thread = &self;
    captures[i].origin = s;
    captures[i].graph = graph;
    graph->device = s->device;
    s->capture = &captures[i];
    s->nodes = s->joined = 0;
    fake.captures++;
    return 0;
}

/* Takes its streams out; cudaErrorStreamCaptureUnjoined: one was not joined to the first. */
static int capture_end(capture *c) {
    struct CUstream_st *s;
    int i, r = c->invalid ? cudaErrorStreamCaptureInvalidated : 0;
    for (i = 0; (s = stream_number(i)); i++) {
        if (s->capture != c) continue;
        if (!r && s != c->origin && s->joined < s->nodes) r = cudaErrorStreamCaptureUnjoined;
        s->capture = NULL;
    }
    if (r) graph_end(c->graph);
    c->serial = 0;
    fake.captures--;
    return r;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    int r = runtime("cudaStreamBeginCapture");
    return end(r ? r : capture_begin(stream, NULL, mode));
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t *after,
                                          const cudaGraphEdgeData *edges, size_t n,
                                          enum cudaStreamCaptureMode mode) {
    int r = runtime("cudaStreamBeginCaptureToGraph");
    (void)after, (void)edges, (void)n;
    if (!r && !is_graph(graph)) r = cudaErrorInvalidValue;
    return end(r ? r : capture_begin(stream, graph, mode));
}

/* cudaStreamEndCapture: on the stream it began on, and, unless it is relaxed, by its thread. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    int r = runtime("cudaStreamEndCapture");
    struct CUstream_st *s = stream_of(stream);
    capture *c = s ? s->capture : NULL;
    if (graph) *graph = NULL;
    if (!r && !graph) r = cudaErrorInvalidValue;
    if (!r && !s) r = cudaErrorInvalidResourceHandle;
    if (!r && !c) r = cudaErrorIllegalState;
    if (!r && c->origin != s) r = cudaErrorStreamCaptureUnmatched;
    if (!r && c->mode != cudaStreamCaptureModeRelaxed && c->thread != &self)
        r = cudaErrorStreamCaptureWrongThread;
    if (!r && !(r = capture_end(c))) *graph = c->graph;
    return end(r);
}

/* cudaStreamIsCapturing: an error for the legacy stream, which ends no capture. */
static int is_capturing(struct CUstream_st *s, int *status) {
    if (!s) return cudaErrorInvalidResourceHandle;
    if (is_legacy(s) && implicit(s->device)) return cudaErrorStreamCaptureImplicit;
    *status = !s->capture ? 0 : s->capture->invalid ? 2 : 1;
    return 0;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    int r = runtime("cudaStreamIsCapturing"), is = 0;
    if (!r) r = is_capturing(stream_of(stream), &is);
    if (!r) *status = (enum cudaStreamCaptureStatus)is;
    return end(r);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    int r = runtime("cudaThreadExchangeStreamCaptureMode"), was = self.mode;
    if (!r && (!mode || (int)*mode < 0 || (int)*mode > 2)) r = cudaErrorInvalidValue;
    if (!r) self.mode = (int)*mode;
    if (!r) *mode = (enum cudaStreamCaptureMode)was;
    return end(r);
}

/* -- memory: addresses -- */

#define FIRST UINT64_C(0x700000000000) /* address of what is on devices */
#define PAGE (UINT64_C(2) << 20)

static char *page_at(int page) { return (char *)(uintptr_t)(FIRST + (uint64_t)page * PAGE); }

/* What is live there, or has it in it. */
static storage *find(const void *ptr) {
    int i;
    uint64_t at = (uint64_t)(uintptr_t)ptr;
    if (at >= FIRST && at < FIRST + (uint64_t)n_pages * PAGE) {
        storage *s = &storages[(i = owner[(at - FIRST) / PAGE]) ? i - 1 : 0];
        return i && s->kind && s->state != INNER && (const char *)ptr < s->at + s->bytes ? s : NULL;
    }
    for (i = 0; i < n_storages; i++)
        if (storages[i].kind >= HOST && (const char *)ptr >= storages[i].at &&
            (const char *)ptr < storages[i].at + storages[i].bytes)
            return &storages[i];
    return NULL;
}

static storage *storage_new(void) {
    storage *s = &storages[spare ? spare - 1 : n_storages];
    if (!spare && n_storages == STORAGES) return NULL;
    if (spare) {
        spare = s->next;
    } else {
        n_storages++;
    }
    memset(s, 0, sizeof *s);
    return s;
}

/* May what one stream freed be another's? cudaMemPoolAttr: on its own stream at once, elsewhere
   when that is done, or after it, by a dependency the driver makes. */
static int again(const storage *s, int kind, pool *from, struct CUstream_st *stream, int pages) {
    if (s->was != kind || s->pages < pages || s->from != from) return 0;
    if (kind != POOL || !s->freed_on || s->freed_on == stream || from->reuse[INTERNAL]) return 1;
    return from->reuse[OPPORTUNISTIC] && s->freed_on->done >= s->freed_at;
}

static void storage_place(storage *s, int page, int pages) {
    int i;
    s->page = page;
    s->pages = pages;
    s->at = page_at(page);
    for (i = 0; i < pages; i++) owner[page + i] = 1 + (int)(s - storages);
}

/* The addresses freed last come first. */
static storage *storage_take(int kind, pool *from, struct CUstream_st *stream, uint64_t bytes) {
    const uint64_t most = bytes / PAGE + (bytes % PAGE != 0);
    const int pages = most < PAGES ? (int)most : PAGES;
    storage *s, *rest;
    int *at = &freed;
    while (*at && !again(&storages[*at - 1], kind, from, stream, pages)) at = &storages[*at - 1].next;
    if (!*at) {
        if (n_pages + pages > PAGES || !(s = storage_new())) return NULL;
        storage_place(s, n_pages, pages);
        n_pages += pages;
        return s;
    }
    rest = &storages[*at - 1];
    if (rest->pages == pages) {
        *at = rest->next;
        return rest;
    }
    if (!(s = storage_new())) return NULL;
    storage_place(s, rest->page, pages);
    storage_place(rest, rest->page + pages, rest->pages - pages);
    return s;
}

static void storage_end(storage *s) {
    int *list = s->pages ? &freed : &spare;
    if (s->kind == HOST) free(s->at);
    s->was = s->kind;
    s->kind = s->state = 0;
    s->graph = NULL;
    s->next = *list;
    *list = 1 + (int)(s - storages);
}

static storage *storage_add(int kind, int device, uint64_t bytes, pool *from,
                            struct CUstream_st *stream) {
    storage *s = storage_take(kind, from, stream, bytes);
    if (!s) return NULL;
    s->kind = kind;
    s->device = device;
    s->bytes = bytes;
    s->from = from;
    s->serial = ++serial;
    return s;
}

uint64_t fake_live(void) {
    uint64_t n = 0;
    int i;
    pthread_mutex_lock(&lock);
    for (i = 0; i < n_storages; i++)
        n += storages[i].kind != 0 && storages[i].state < GIVEN_BACK;
    pthread_mutex_unlock(&lock);
    return n;
}

/* -- memory: allocations -- */

static void high(uint64_t *at) { /* the next number is the highest of it */
    if (at[0] > at[1]) at[1] = at[0];
}

static int room(int device, uint64_t more) {
    uint64_t total = fake.device[device].total;
    return more <= total && used(device) <= total - more;
}

static int alloc(int kind, int device, uint64_t bytes, void **ptr) {
    storage *s;
    if (!ptr) return cudaErrorInvalidValue;
    if (!bytes) *ptr = NULL;
    if (!bytes) return 0;
    if (!room(device, bytes) || !(s = storage_add(kind, device, bytes, NULL, NULL)))
        return cudaErrorMemoryAllocation;
    *ptr = s->at;
    fake.device[device].plain += bytes;
    return 0;
}

static int alloc_host(int device, uint64_t bytes, void **ptr) {
    storage *s;
    void *host;
    if (!ptr) return cudaErrorInvalidValue;
    if (!bytes) *ptr = NULL;
    if (!bytes) return 0;
    if (!(host = malloc((size_t)bytes))) return cudaErrorMemoryAllocation;
    if (!(s = storage_new())) {
        free(host);
        return cudaErrorMemoryAllocation;
    }
    s->kind = HOST;
    s->device = device;
    s->bytes = bytes;
    *ptr = s->at = (char *)host;
    return 0;
}

static int alloc_pool(pool *p, struct CUstream_st *stream, uint64_t bytes, void **ptr) {
    uint64_t more = 0;
    storage *s;
    if (p->n[USED] + bytes > p->n[RESERVED]) more = p->n[USED] + bytes - p->n[RESERVED];
    if ((more && !room(p->device, more)) || (p->most && p->n[USED] + bytes > p->most))
        return cudaErrorMemoryAllocation;
    if (!(s = storage_add(POOL, p->device, bytes, p, stream))) return cudaErrorMemoryAllocation;
    *ptr = s->at;
    p->n[USED] += bytes;
    p->n[RESERVED] += more;
    high(&p->n[USED]), high(&p->n[RESERVED]);
    return 0;
}

/* cudaMallocAsync: during stream capture it makes an allocation node, owned by the graph. Its
   memory comes when the graph is launched. */
static int alloc_node(struct CUgraph_st *g, int device, uint64_t bytes, void **ptr) {
    storage *s;
    if (bytes > fake.device[device].total) return cudaErrorMemoryAllocation;
    if (!(s = storage_add(GRAPH, device, bytes, NULL, NULL))) return cudaErrorMemoryAllocation;
    s->graph = g;
    s->state = CAPTURED;
    *ptr = s->at;
    g->now += bytes;
    high(&g->now);
    return 0;
}

static int alloc_async(cudaStream_t stream, pool *p, size_t bytes, void **ptr) {
    struct CUstream_st *s = stream_of(stream);
    int r;
    if (!ptr) return cudaErrorInvalidValue;
    if (!s) return cudaErrorInvalidResourceHandle;
    if (!fake.device[p ? p->device : s->device].pools) return cudaErrorNotSupported;
    activate(s->device);
    if ((r = use(s))) return r;
    if (!bytes) *ptr = NULL;
    if (!bytes) return 0;
    if (!p) p = pool_now[s->device];
    return s->capture ? alloc_node(s->capture->graph, p->device, bytes, ptr)
                      : alloc_pool(p, s, bytes, ptr);
}

static void pool_let_go(pool *p, uint64_t keep) {
    if (p->n[RESERVED] > keep) p->n[RESERVED] = p->n[USED] > keep ? p->n[USED] : keep;
    /* cudaMemPoolDestroy: once there are no more outstanding allocations */
    if (p->dying && !p->n[USED]) p->n[RESERVED] = 0;
    if (p->dying && !p->n[USED]) p->dying = 0;
}

/* cudaGraphAddMemAllocNode: freed in the graph it is the graph's; else after a launch, once. */
static int release_node(storage *s, capture *c) {
    if (c ? s->graph != c->graph || s->state != CAPTURED : s->state != RUN)
        return cudaErrorInvalidValue;
    if (c) {
        s->state = INNER;
        c->graph->now -= s->bytes;
        return 0;
    }
    fake.device[s->device].graph_used -= s->bytes;
    s->state = GIVEN_BACK;
    if (!s->graph) storage_end(s);
    return 0;
}

/* Of device memory; of what a kind of page-locked memory is, else. */
static int release(const void *ptr, int host, struct CUstream_st *stream) {
    storage *s = find(ptr);
    if (!s || s->at != ptr) return cudaErrorInvalidValue; /* the base of it, and live */
    if (host ? s->kind != host : s->kind > GRAPH) return cudaErrorInvalidValue;
    if (s->kind == GRAPH) return release_node(s, NULL);
    if (s->kind == PLAIN) fake.device[s->device].plain -= s->bytes;
    s->freed_on = stream;
    s->freed_at = stream ? stream->given : 0;
    if (s->kind == POOL) s->from->n[USED] -= s->bytes;
    if (s->kind == POOL && s->from->dying) pool_let_go(s->from, 0);
    storage_end(s);
    return 0;
}

cudaError_t cudaMalloc(void **ptr, size_t bytes) {
    int r = runtime("cudaMalloc");
    if (!r) r = unsafe();
    if (!r) r = alloc(PLAIN, current(), bytes, ptr);
    return end(r);
}

/* cudaMallocManaged: not of size 0; flags are one of two. */
cudaError_t cudaMallocManaged(void **ptr, size_t bytes, unsigned int flags) {
    int r = runtime("cudaMallocManaged");
    if (!r && (!bytes || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)))
        r = cudaErrorInvalidValue;
    if (!r) r = unsafe();
    if (!r) r = alloc(PLAIN, current(), bytes, ptr);
    return end(r);
}

cudaError_t cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height) {
    int r = runtime("cudaMallocPitch");
    size_t row = (width + 511) / 512 * 512;
    if (!r && !pitch) r = cudaErrorInvalidValue;
    if (!r) r = unsafe();
    if (!r && width > FAKE_GIB) r = cudaErrorMemoryAllocation;
    if (!r) r = alloc(PLAIN, current(), (uint64_t)row * height, ptr);
    if (!r) *pitch = row;
    return end(r);
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *ptr, struct cudaExtent extent) {
    int r = runtime("cudaMalloc3D");
    size_t row = (extent.width + 511) / 512 * 512;
    if (!r && !ptr) r = cudaErrorInvalidValue;
    if (!r) r = unsafe();
    if (!r) r = alloc(PLAIN, current(), (uint64_t)row * extent.height * extent.depth, &ptr->ptr);
    if (!r) {
        ptr->pitch = row;
        ptr->xsize = extent.width;
        ptr->ysize = extent.height;
    }
    return end(r);
}

cudaError_t cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t stream) {
    int r = runtime("cudaMallocAsync");
    if (!r && (uintptr_t)stream <= 2) (void)current();
    if (!r) r = alloc_async(stream, NULL, bytes, ptr);
    return end(r);
}

cudaError_t cudaFree(void *ptr) {
    int r = runtime("cudaFree");
    if (!r) r = unsafe();
    if (!r) (void)current();
    if (!r && ptr) r = release(ptr, 0, NULL);
    return end(r);
}

/* cudaFreeAsync: during stream capture it makes a free node, which must be passed the address of a
   graph allocation. */
cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream) {
    int r = runtime("cudaFreeAsync");
    struct CUstream_st *s = stream_of(stream);
    storage *block = find(ptr);
    if (!r) r = use(s);
    if (!r && s->capture) {
        r = block && block->kind == GRAPH && block->at == ptr ? release_node(block, s->capture)
                                                              : cudaErrorInvalidValue;
        if (r) invalidate(s->capture, r);
    } else if (!r) {
        r = release(ptr, 0, s);
    }
    return end(r);
}

cudaError_t cudaMallocHost(void **ptr, size_t bytes) {
    int r = runtime("cudaMallocHost");
    if (!r) r = unsafe();
    if (!r) r = alloc_host(current(), bytes, ptr);
    return end(r);
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned int flags) {
    int r = runtime("cudaHostAlloc");
    if (!r && flags > 7) r = cudaErrorInvalidValue; /* portable, mapped, write-combined */
    if (!r) r = unsafe();
    if (!r) r = alloc_host(current(), bytes, ptr);
    return end(r);
}

cudaError_t cudaFreeHost(void *ptr) {
    int r = runtime("cudaFreeHost");
    if (!r) r = unsafe();
    if (!r && ptr) r = release(ptr, HOST, NULL);
    return end(r);
}

/* cudaHostRegister: not what is page-locked already. */
cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned int flags) {
    int r = runtime("cudaHostRegister");
    storage *s = NULL;
    if (!r && (!ptr || !bytes || flags > 15)) r = cudaErrorInvalidValue;
    if (!r && (find(ptr) || find((char *)ptr + bytes - 1)))
        r = cudaErrorHostMemoryAlreadyRegistered;
    if (!r) r = unsafe();
    if (!r && !(s = storage_new())) r = cudaErrorMemoryAllocation;
    if (!r) {
        s->kind = REGISTERED;
        s->device = current();
        s->bytes = bytes;
        s->at = (char *)ptr;
    }
    return end(r);
}

/* cudaHostUnregister: the base that cudaHostRegister was passed. */
cudaError_t cudaHostUnregister(void *ptr) {
    int r = runtime("cudaHostUnregister");
    storage *s = find(ptr);
    if (!r && !ptr) r = cudaErrorInvalidValue;
    if (!r && (!s || s->kind != REGISTERED || s->at != ptr)) r = cudaErrorHostMemoryNotRegistered;
    if (!r) r = unsafe();
    if (!r) r = release(ptr, REGISTERED, NULL);
    return end(r);
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream) {
    int r = runtime("cudaMemsetAsync");
    storage *s = r ? NULL : find(ptr);
    (void)value;
    if (!r && (!s || (char *)ptr + bytes > s->at + s->bytes)) r = cudaErrorInvalidValue;
    if (!r) r = use(stream_of(stream));
    return end(r);
}

/* -- memory: arrays, handled by address -- */

static uint64_t texels(const struct cudaChannelFormatDesc *d, struct cudaExtent e, unsigned levels) {
    uint64_t n = 0, bytes = (uint64_t)(d->x + d->y + d->z + d->w) / 8;
    unsigned i;
    for (i = 0; i < (levels ? levels : 1); i++)
        n += bytes * ((e.width >> i) ? e.width >> i : 1) * ((e.height >> i) ? e.height >> i : 1) *
             ((e.depth >> i) ? e.depth >> i : 1);
    return n;
}

static int alloc_array(void *array, const struct cudaChannelFormatDesc *desc,
                       struct cudaExtent extent, unsigned levels) {
    void *ptr = NULL;
    int r = 0;
    if (!array || !desc || !extent.width) r = cudaErrorInvalidValue;
    if (!r) r = unsafe();
    if (!r) r = alloc(ARRAY, current(), texels(desc, extent, levels), &ptr);
    if (!r) memcpy(array, &ptr, sizeof ptr);
    return r;
}

/* cudaFreeArray: what cudaMallocArray returned; NULL is no operation. */
static int free_array(void *array) {
    storage *s = find(array);
    int r = unsafe();
    if (r || !array) return r;
    if (!s || s->kind != ARRAY || s->at != array) return cudaErrorInvalidValue;
    fake.device[s->device].plain -= s->bytes;
    storage_end(s);
    return 0;
}

cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc,
                            size_t width, size_t height, unsigned int flags) {
    int r = runtime("cudaMallocArray");
    struct cudaExtent extent = {width, height, 0};
    (void)flags;
    return end(r ? r : alloc_array(array, desc, extent, 1));
}

cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc,
                              struct cudaExtent extent, unsigned int flags) {
    int r = runtime("cudaMalloc3DArray");
    (void)flags;
    return end(r ? r : alloc_array(array, desc, extent, 1));
}

cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t *array,
                                     const struct cudaChannelFormatDesc *desc,
                                     struct cudaExtent extent, unsigned int levels,
                                     unsigned int flags) {
    int r = runtime("cudaMallocMipmappedArray");
    (void)flags;
    return end(r ? r : alloc_array(array, desc, extent, levels));
}

cudaError_t cudaFreeArray(cudaArray_t array) {
    int r = runtime("cudaFreeArray");
    return end(r ? r : free_array((void *)array));
}

cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t array) {
    int r = runtime("cudaFreeMipmappedArray");
    return end(r ? r : free_array((void *)array));
}

/* -- memory: of other processes -- */

typedef struct ipc {
    uint64_t magic, bytes, serial;
    uintptr_t at; /* in the process that exported it */
    int device, foreign;
} ipc;

enum { IPC_MAGIC = 0x1bc };

static void ipc_make(cudaIpcMemHandle_t *handle, int device, uint64_t bytes, uintptr_t at,
                     uint64_t number, int foreign) {
    ipc made;
    memset(&made, 0, sizeof made);
    made.magic = IPC_MAGIC;
    made.bytes = bytes;
    made.serial = number;
    made.at = at;
    made.device = device;
    made.foreign = foreign;
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &made, sizeof made);
}

void fake_ipc_handle(cudaIpcMemHandle_t *handle, int device, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    ipc_make(handle, device, bytes, 4096, ++serial, 1);
    pthread_mutex_unlock(&lock);
}

/* cudaIpcGetMemHandle: the base of what cudaMalloc made, and of no pool. */
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr) {
    int r = runtime("cudaIpcGetMemHandle");
    storage *s = find(ptr);
    if (!r && (!handle || !s || s->kind != PLAIN || s->at != ptr)) r = cudaErrorInvalidValue;
    if (!r) ipc_make(handle, s->device, s->bytes, (uintptr_t)s->at, s->serial, 0);
    return end(r);
}

/* cudaIpcOpenMemHandle: of another process, with one flag; opened again it is the same pointer. */
cudaError_t cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle, unsigned int flags) {
    int r = runtime("cudaIpcOpenMemHandle"), device = r ? 0 : current(), i;
    storage *s = NULL;
    ipc what;
    memcpy(&what, &handle, sizeof what);
    if (!r && (!ptr || flags != cudaIpcMemLazyEnablePeerAccess || what.magic != IPC_MAGIC))
        r = cudaErrorInvalidValue;
    if (!r && !what.foreign) r = cudaErrorDeviceUninitialized; /* not in the process it is of */
    if (!r && what.device != device && !reaches(device, what.device))
        r = cudaErrorMapBufferObjectFailed;
    for (i = 0; !r && !s && i < n_storages; i++)
        if (storages[i].kind == IPC && storages[i].serial == what.serial) s = &storages[i];
    if (!r && !s && !(s = storage_add(IPC, what.device, what.bytes, NULL, NULL)))
        r = cudaErrorMapBufferObjectFailed;
    if (!r) {
        s->opened++;
        s->serial = what.serial;
        *ptr = s->at;
    }
    return end(r);
}

/* cudaIpcCloseMemHandle: what cudaIpcOpenMemHandle returned, as often. */
cudaError_t cudaIpcCloseMemHandle(void *ptr) {
    int r = runtime("cudaIpcCloseMemHandle");
    storage *s = find(ptr);
    if (!r && (!s || s->kind != IPC || s->at != ptr)) r = cudaErrorInvalidValue;
    if (!r && !--s->opened) storage_end(s);
    return end(r);
}

/* -- pools -- */

static cudaMemPool_t handle_of(pool *p) {
    int i = (int)(p - pools);
    return (cudaMemPool_t)(i < FAKE_DEVICES ? (void *)&fake.device[i] : (void *)p);
}

/* The default pool of a device is the device it is of. NULL: none, or one that was destroyed. */
static pool *pool_of(cudaMemPool_t handle) {
    int i;
    for (i = 0; i < POOLS; i++)
        if (pools[i].alive && handle_of(&pools[i]) == handle) return &pools[i];
    return NULL;
}

static int pool_on(cudaMemPool_t *handle, int device, pool *const *found) {
    if (!valid(device)) return cudaErrorInvalidDevice;
    if (!handle) return cudaErrorInvalidValue;
    if (!fake.device[device].pools) return cudaErrorNotSupported;
    *handle = handle_of(*found);
    return 0;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *handle, int device) {
    int r = runtime("cudaDeviceGetDefaultMemPool");
    pool *p = &pools[valid(device) ? device : 0];
    return end(r ? r : pool_on(handle, device, &p));
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *handle, int device) {
    int r = runtime("cudaDeviceGetMemPool");
    return end(r ? r : pool_on(handle, device, &pool_now[valid(device) ? device : 0]));
}

/* cudaDeviceSetMemPool: the pool must be local to the device. */
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t handle) {
    int r = runtime("cudaDeviceSetMemPool");
    pool *p = pool_of(handle);
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r && (!p || p->device != device)) r = cudaErrorInvalidValue;
    if (!r) pool_now[device] = p;
    return end(r);
}

/* cudaMemPoolCreate: of pinned memory, on a device. */
cudaError_t cudaMemPoolCreate(cudaMemPool_t *handle, const struct cudaMemPoolProps *props) {
    int r = runtime("cudaMemPoolCreate"), i = FAKE_DEVICES;
    if (!r && (!handle || !props || props->allocType != cudaMemAllocationTypePinned ||
               props->location.type != cudaMemLocationTypeDevice || !valid(props->location.id)))
        r = cudaErrorInvalidValue;
    if (!r && !fake.device[props->location.id].pools) r = cudaErrorNotSupported;
    while (i < POOLS && (pools[i].alive || pools[i].dying)) i++;
    if (!r && i == POOLS) r = cudaErrorMemoryAllocation;
    if (!r) {
        pool_make(&pools[i], props->location.id, NULL);
#if CUDART_VERSION >= 12030
        pools[i].most = props->maxSize;
#endif
        *handle = handle_of(&pools[i]);
    }
    return end(r);
}

/* cudaMemPoolDestroy: never a default one; what is out stays until it is freed; the current pool
   of the device is then the default one. */
cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle) {
    int r = runtime("cudaMemPoolDestroy");
    pool *p = pool_of(handle);
    if (!r && (!p || p < pools + FAKE_DEVICES)) r = cudaErrorInvalidValue;
    if (!r) {
        p->alive = 0;
        p->dying = 1;
        pool_let_go(p, 0);
        if (pool_now[p->device] == p) pool_now[p->device] = &pools[p->device];
    }
    return end(r);
}

/* cudaMemPoolSetAccess: a peer has to reach the device; the device itself always does. */
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t handle, const struct cudaMemAccessDesc *list,
                                 size_t n) {
    int r = runtime("cudaMemPoolSetAccess");
    pool *p = pool_of(handle);
    size_t i;
    if (!r && (!p || !list)) r = cudaErrorInvalidValue;
    for (i = 0; !r && i < n; i++) {
        int peer = list[i].location.id;
        if (list[i].location.type != cudaMemLocationTypeDevice || !valid(peer) ||
            (peer == p->device ? list[i].flags != cudaMemAccessFlagsProtReadWrite
                               : !reaches(peer, p->device)))
            r = cudaErrorInvalidValue;
    }
    for (i = 0; !r && i < n; i++) p->access[list[i].location.id] = (int)list[i].flags;
    return end(r);
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t handle,
                                 struct cudaMemLocation *location) {
    int r = runtime("cudaMemPoolGetAccess");
    pool *p = pool_of(handle);
    if (!r && (!flags || !p || !location || location->type != cudaMemLocationTypeDevice ||
               !valid(location->id)))
        r = cudaErrorInvalidValue;
    if (!r) *flags = (enum cudaMemAccessFlags)p->access[location->id];
    return end(r);
}

/* cudaMemPoolAttr: three ints, the threshold, four numbers. */
static int attribute_get(cudaMemPool_t handle, int attribute, void *value) {
    pool *p = pool_of(handle);
    if (!p || !value || attribute < 1 || attribute > 8) return cudaErrorInvalidValue;
    if (attribute < 4) memcpy(value, &p->reuse[attribute - 1], sizeof(int));
    if (attribute == 4) memcpy(value, &p->n[THRESHOLD], sizeof(uint64_t));
    if (attribute > 4) memcpy(value, &p->n[attribute - 5], sizeof(uint64_t));
    return 0;
}

/* cudaMemPoolSetAttribute: of the numbers the two high ones, and those to 0. */
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, enum cudaMemPoolAttr attr, void *value) {
    int r = runtime("cudaMemPoolSetAttribute"), attribute = (int)attr;
    pool *p = pool_of(handle);
    uint64_t n = 0;
    if (!r && (!p || !value || attribute < 1 || attribute > 8)) r = cudaErrorInvalidValue;
    if (!r && attribute < 4) memcpy(&p->reuse[attribute - 1], value, sizeof(int));
    if (!r && attribute >= 4) memcpy(&n, value, sizeof n);
    if (!r && attribute == 4) p->n[THRESHOLD] = n;
    if (!r && attribute > 4 && (n || attribute == 5 || attribute == 7)) r = cudaErrorInvalidValue;
    if (!r && attribute > 4) p->n[attribute - 5] = p->n[attribute - 6];
    return end(r);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, enum cudaMemPoolAttr attr, void *value) {
    int r = runtime("cudaMemPoolGetAttribute");
    return end(r ? r : attribute_get(handle, (int)attr, value));
}

static int pool_trim(cudaMemPool_t handle, uint64_t keep) {
    pool *p = pool_of(handle);
    int r = p ? unsafe() : cudaErrorInvalidValue;
    uint64_t was;
    if (r) return r;
    was = p->n[RESERVED];
    fake.device[p->device].trims++;
    pool_let_go(p, keep);
    if (was > p->n[RESERVED]) fake.device[p->device].trimmed += was - p->n[RESERVED];
    return 0;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, size_t keep) {
    int r = runtime("cudaMemPoolTrimTo");
    return end(r ? r : pool_trim(handle, keep));
}

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t bytes, cudaMemPool_t handle,
                                    cudaStream_t stream) {
    int r = runtime("cudaMallocFromPoolAsync");
    pool *p = pool_of(handle);
    if (!r && (!p || !valid(p->device))) r = cudaErrorInvalidValue;
    if (!r && (uintptr_t)stream <= 2) (void)current();
    if (!r) r = alloc_async(stream, p, bytes, ptr);
    return end(r);
}

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

void fake_stream_finish(cudaStream_t stream) {
    pthread_mutex_lock(&lock);
    finish((uintptr_t)stream > 2 ? stream : stream_of(stream)); /* or what is left of it */
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

/* Until it has done so much. What is asked of the host happens on a thread that is nobody's. */
static void wait_until(struct CUstream_st *s, uint64_t at) {
    int i;
    while (s->queued && s->queue[0].at <= at) {
        pthread_t thread;
        host_function f;
        f.fn = s->queue[0].fn;
        f.user = s->queue[0].user;
        s->queued--;
        memmove(s->queue, s->queue + 1, sizeof s->queue[0] * (size_t)s->queued);
        pthread_mutex_unlock(&lock);
        if (pthread_create(&thread, NULL, run_host_function, &f) == 0) pthread_join(thread, NULL);
        pthread_mutex_lock(&lock);
    }
    if (s->done < at) s->done = at;
    if (s->done == s->given) s->since = 0;
    /* cudaMemPoolAttrReleaseThreshold: a pool gives back what is more at the next wait */
    for (i = 0; i < POOLS; i++)
        if (pools[i].alive && pools[i].device == s->device)
            pool_let_go(&pools[i], pools[i].n[THRESHOLD]);
}

/* The legacy stream comes after all that the blocking ones were given. */
static void wait_for(struct CUstream_st *s) {
    struct CUstream_st *other;
    int i;
    for (i = 0; is_legacy(s) && (other = stream_number(i)); i++)
        if (other->device == s->device && other->blocking && other != s)
            wait_until(other, other->given);
    wait_until(s, s->given);
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

static int stream_make(cudaStream_t *stream, unsigned flags) {
    struct CUstream_st *s;
    int i = n_streams;
    if (!stream || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    if (i == STREAMS) /* handles come again, too */
        for (i = 0; i < STREAMS && (streams[i].alive || streams[i].since);) i++;
    if (i == STREAMS) return cudaErrorMemoryAllocation;
    s = &streams[i];
    n_streams += i == n_streams;
    s->device = current();
    s->alive = 1;
    s->blocking = !(flags & cudaStreamNonBlocking);
    *stream = s;
    return 0;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    int r = runtime("cudaStreamCreate");
    return end(r ? r : stream_make(stream, 0));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    int r = runtime("cudaStreamCreateWithFlags");
    return end(r ? r : stream_make(stream, flags));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
    int r = runtime("cudaStreamCreateWithPriority");
    (void)priority;
    return end(r ? r : stream_make(stream, flags));
}

/* cudaStreamDestroy: what it was given goes on. A capture that began on it is over; one it only
   joined cannot be joined again. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    int r = runtime("cudaStreamDestroy");
    if (!r && (!stream_of(stream) || (uintptr_t)stream <= 2)) r = cudaErrorInvalidResourceHandle;
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
    if (!r) wait_for(s);
    return end(r);
}

static int is_idle(struct CUstream_st *s) {
    struct CUstream_st *other;
    int i;
    if (s->done < s->given) return 0;
    for (i = 0; is_legacy(s) && (other = stream_number(i)); i++)
        if (other->device == s->device && other->blocking && other->since) return 0;
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
static int wait_for_device(int device) {
    struct CUstream_st *s;
    int i, r = unsafe();
    for (i = 0; (s = stream_number(i)); i++)
        if (s->device == device && s->capture)
            r = invalidate(s->capture, cudaErrorStreamCaptureUnsupported);
    for (i = 0; !r && (s = stream_number(i)); i++)
        if (s->device == device) wait_until(s, s->given);
    return r;
}

cudaError_t cudaDeviceSynchronize(void) {
    int r = runtime("cudaDeviceSynchronize");
    return end(r ? r : wait_for_device(current()));
}

/* -- events -- */

static int event_make(cudaEvent_t *event, int device, unsigned flags) {
    int i = n_events;
    if (!event) return cudaErrorInvalidValue;
    if (i == EVENTS) /* likewise */
        for (i = 0; i < EVENTS && events[i].alive;) i++;
    if (i == EVENTS) return cudaErrorMemoryAllocation;
    n_events += i == n_events;
    *event = &events[i];
    memset(*event, 0, sizeof **event);
    (*event)->device = device;
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
    if (!s || !event || !event->alive || event->device != s->device)
        return cudaErrorInvalidResourceHandle;
    if ((r = use(s))) return r;
    event->captured = s->capture ? s->capture->serial : 0;
    if (fake.slow_events && !s->capture) give(s);
    event->recorded = 1;
    event->stream = s;
    event->at = s->capture ? s->nodes : s->given;
    event->when = now;
    return 0;
}

/* The legacy default stream comes after all that blocking streams were given before. */
static int is_done(cudaEvent_t event) {
    struct CUstream_st *s = event->stream;
    int i, device = event->device;
    if (!s) return 1;
    for (i = 0; i < s->waiting; i++)
        if (s->waits[i].stream->done < s->waits[i].at) return 0;
    if (s != &defaults[device]) return s->done >= event->at;
    for (i = 0; (s = stream_number(i)); i++)
        if (s->device == device && s->blocking && s->since && s->since <= event->when) return 0;
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

static int event_wait(cudaEvent_t event) {
    int r = event_look(event);
    if (r || !event->stream) return r;
    if (is_legacy(event->stream)) {
        wait_for(event->stream);
    } else {
        wait_until(event->stream, event->at);
    }
    return 0;
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

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    int r = runtime("cudaEventCreate");
    return end(r ? r : event_make(event, current(), 0));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    int r = runtime("cudaEventCreateWithFlags");
    if (!r && flags > 7) r = cudaErrorInvalidValue;
    return end(r ? r : event_make(event, current(), flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    int r = runtime("cudaEventDestroy");
    return end(r ? r : event_end(event));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    int r = runtime("cudaEventRecord");
    return end(r ? r : event_record(event, stream));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    int r = runtime("cudaEventQuery");
    return end(r ? r : event_query(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    int r = runtime("cudaEventSynchronize");
    return end(r ? r : event_wait(event));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t stop) {
    int r = runtime("cudaEventElapsedTime");
    if (!r && !ms) r = cudaErrorInvalidValue;
    return end(r ? r : event_elapsed(ms, start, stop));
}

/* What it is given from now on is not done before the event is. */
static void wait_after(struct CUstream_st *s, cudaEvent_t event) {
    int i, n = 0;
    if (!event->stream || event->stream == s) return;
    for (i = 0; i < s->waiting; i++)
        if (s->waits[i].stream->done < s->waits[i].at) s->waits[n++] = s->waits[i];
    s->waits[n].stream = event->stream;
    s->waits[n].at = event->at;
    s->waiting = n + (n < QUEUED - 1);
    s->waited++;
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
    if (!event->captured && s->capture && flags != cudaEventWaitExternal)
        return invalidate(s->capture, cudaErrorStreamCaptureIsolation);
    if (!event->captured) wait_after(s, event);
    if (!event->captured) return 0;
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

/* -- graphs -- */

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags) {
    int r = runtime("cudaGraphCreate");
    if (!r && (!graph || flags)) r = cudaErrorInvalidValue;
    if (!r && !(*graph = graph_make())) r = cudaErrorMemoryAllocation;
    return end(r);
}

static void graph_drop(struct CUgraph_st *g) {
    if (!g->alive && !g->runs) graph_end(g);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    int r = runtime("cudaGraphDestroy");
    if (!r && !is_graph(graph)) r = cudaErrorInvalidValue;
    if (!r) {
        graph->alive = 0;
        graph_drop(graph);
    }
    return end(r);
}

static int instantiate(cudaGraphExec_t *run, cudaGraph_t graph, unsigned long long flags) {
    int i = 0;
    if (!run || !is_graph(graph)) return cudaErrorInvalidValue;
    /* cudaGraphInstantiate: at most one of a graph with allocations */
    if (graph->peak && graph->runs) return cudaErrorInvalidValue;
    while (i < GRAPHS && runs[i].graph) i++;
    if (i == GRAPHS) return cudaErrorMemoryAllocation;
    runs[i].graph = graph;
    runs[i].auto_free = flags == cudaGraphInstantiateFlagAutoFreeOnLaunch;
    graph->runs++;
    *run = &runs[i];
    return 0;
}

#if CUDART_VERSION >= 12000
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *run, cudaGraph_t graph,
                                 unsigned long long flags) {
    int r = runtime("cudaGraphInstantiate");
    return end(r ? r : instantiate(run, graph, flags));
}
#endif

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *run, cudaGraph_t graph,
                                          unsigned long long flags) {
    int r = runtime("cudaGraphInstantiateWithFlags");
    return end(r ? r : instantiate(run, graph, flags));
}

static int is_run(cudaGraphExec_t run) {
    return run >= runs && run < runs + GRAPHS && run->graph != NULL;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t run) {
    int r = runtime("cudaGraphExecDestroy");
    if (!r && !is_run(run)) r = cudaErrorInvalidValue;
    if (!r) {
        run->graph->runs--;
        graph_drop(run->graph);
        run->graph = NULL;
    }
    return end(r);
}

static void graph_free(storage *s) {
    fake.device[s->device].graph_used -= s->bytes;
    s->state = GIVEN_BACK;
}

/* cudaGraphLaunch: not while an allocation of the last launch is live, unless launches free. */
static int launch(struct CUgraphExec_st *run) {
    struct CUgraph_st *g = run->graph;
    fake_device *d = &fake.device[g->device];
    uint64_t most;
    int i;
    for (i = 0; i < n_storages; i++)
        if (storages[i].kind == GRAPH && storages[i].graph == g && storages[i].state == RUN) {
            if (!run->auto_free) return cudaErrorInvalidValue;
            graph_free(&storages[i]);
        }
    most = d->graph_used + g->peak;
    if (most > d->graph_reserved && !room(g->device, most - d->graph_reserved))
        return cudaErrorMemoryAllocation;
    if (most > d->graph_reserved) d->graph_reserved = most;
    if (most > d->graph_used_high) d->graph_used_high = most;
    if (d->graph_reserved > d->graph_reserved_high) d->graph_reserved_high = d->graph_reserved;
    for (i = 0; i < n_storages; i++)
        if (storages[i].kind == GRAPH && storages[i].graph == g && storages[i].state != INNER) {
            storages[i].state = RUN;
            d->graph_used += storages[i].bytes;
        }
    return 0;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t run, cudaStream_t stream) {
    int r = runtime("cudaGraphLaunch");
    struct CUstream_st *s = stream_of(stream);
    if (!r && !is_run(run)) r = cudaErrorInvalidValue;
    if (!r) r = use(s);
    if (!r && !s->capture) r = launch(run);
    if (!r && !s->capture) give(s);
    return end(r);
}

static int graph_attribute(int device, int attribute, void *value) {
    const fake_device *d = &fake.device[device];
    const uint64_t values[] = {d->graph_used, d->graph_used_high, d->graph_reserved,
                               d->graph_reserved_high};
    if (!value || attribute < 0 || attribute > 3) return cudaErrorInvalidValue;
    memcpy(value, &values[attribute], sizeof values[0]);
    return 0;
}

static int graph_trim(int device) {
    int r = unsafe();
    if (r) return r;
    fake.device[device].graph_trims++;
    fake.device[device].graph_reserved = fake.device[device].graph_used;
    return 0;
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute,
                                           void *value) {
    int r = runtime("cudaDeviceGetGraphMemAttribute");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    return end(r ? r : graph_attribute(device, (int)attribute, value));
}

cudaError_t cudaDeviceGraphMemTrim(int device) {
    int r = runtime("cudaDeviceGraphMemTrim");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    return end(r ? r : graph_trim(device));
}

/* -- the end of a device -- */

static void context_end(int device) {
    struct CUstream_st *s;
    int i;
    for (i = 0; (s = stream_number(i)); i++) {
        if (s->device != device) continue;
        if (s->capture) {
            s->capture->invalid = 1;
            (void)capture_end(s->capture);
        }
        s->queued = 0;
        finish(s);
        if (i < n_streams) s->alive = 0;
    }
    for (i = 0; i < n_events; i++)
        if (events[i].device == device) (void)event_end(&events[i]);
    for (i = 0; i < n_storages; i++)
        if (storages[i].kind && storages[i].kind != POOL && storages[i].device == device)
            storage_end(&storages[i]);
    for (i = 0; i < FAKE_DEVICES; i++) peers[device][i] = peers[i][device] = 0;
    fake.device[device].plain = fake.device[device].graph_used = 0;
    fake.device[device].graph_reserved = 0;
    fake.device[device].active = fake.device[device].held = 0;
}

/* cudaDeviceReset: what the device has is destroyed, but for what cudaMallocAsync and
   cudaMallocFromPoolAsync made. */
cudaError_t cudaDeviceReset(void) {
    int r = runtime("cudaDeviceReset");
    if (!r) context_end(self.depth ? self.stack[self.depth - 1] : self.device);
    if (!r) self.top = 0;
    return end(r);
}

/* -- the driver: no last error -- */

int fake_cuInit(unsigned flags) {
    int r = begin("cuInit");
    (void)flags;
    if (!r && fake.no_driver) r = cudaErrorNoDevice;
    if (!r) initialised = 1;
    return leave(r);
}
int fake_cuDeviceGetCount(int *count) {
    int r = begin("cuDeviceGetCount");
    *count = fake.devices;
    return leave(r);
}
int fake_cuDeviceGet(int *device, int ordinal) {
    int r = begin("cuDeviceGet");
    *device = ordinal;
    return leave(r ? r : valid(ordinal) ? 0 : cudaErrorInvalidDevice);
}
int fake_cuDeviceGetAttribute(int *value, int attribute, int device) {
    int r = begin("cuDeviceGetAttribute");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r) *value = attribute == 18 ? fake.device[device].integrated : fake.device[device].pools;
    return leave(r);
}
int fake_cuDeviceGetPCIBusId(char *text, int size, int device) {
    int r = begin("cuDeviceGetPCIBusId");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r) snprintf(text, (size_t)size, "%s", fake.device[device].pci);
    return leave(r);
}
int fake_cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    int r = begin("cuDevicePrimaryCtxGetState");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r) *flags = 0, *active = fake.device[device].active;
    return leave(r);
}
int fake_cuDevicePrimaryCtxRetain(void **context, int device) {
    int r = begin("cuDevicePrimaryCtxRetain");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r) {
        activate(device);
        fake.device[device].retained++;
        fake.retains++;
        *context = &contexts[device];
    }
    return leave(r);
}
/* The last one ends the context, unless the runtime holds it. Releases what was retained even when
   told to fail: else a test of failures could not tell a leak of ours from its own. */
int fake_cuDevicePrimaryCtxRelease_v2(int device) {
    int r = begin("cuDevicePrimaryCtxRelease_v2");
    if (!valid(device)) return leave(cudaErrorInvalidDevice);
    fake.device[device].retained--;
    fake.retains--;
    if (!fake.device[device].retained && !fake.device[device].held) context_end(device);
    return leave(r);
}
/* cuCtxPushCurrent: CUDA_ERROR_INVALID_CONTEXT, for one that was reset as well */
int fake_cuCtxPushCurrent_v2(void *context) {
    int r = begin("cuCtxPushCurrent_v2");
    char *at = (char *)context;
    if (!r && (at < contexts || at >= contexts + FAKE_DEVICES || self.depth == DEPTH ||
               !fake.device[at - contexts].active))
        r = cudaErrorDeviceUninitialized;
    if (!r) self.stack[self.depth++] = (int)(at - contexts);
    return leave(r);
}
int fake_cuCtxPopCurrent_v2(void **context) {
    int r = begin("cuCtxPopCurrent_v2");
    if (!self.depth) {
        fake.depth_errors++;
        return leave(cudaErrorDeviceUninitialized);
    }
    *context = &contexts[self.stack[--self.depth]];
    return leave(r);
}
int fake_cuCtxGetCurrent(void **context) {
    int r = begin("cuCtxGetCurrent"), device;
    if (!r) *context = driver_current(&device) ? NULL : &contexts[device];
    return leave(r);
}
int fake_cuCtxGetDevice(int *device) {
    int r = begin("cuCtxGetDevice");
    return leave(r ? r : driver_current(device));
}
int fake_cuCtxSynchronize(void) {
    int r = begin("cuCtxSynchronize"), device;
    fake.context_waits++;
    if (!r) r = driver_current(&device);
    return leave(r ? r : wait_for_device(device));
}
int fake_cuMemGetInfo_v2(size_t *unused, size_t *total) {
    int r = begin("cuMemGetInfo_v2"), device;
    if (!r) r = driver_current(&device);
    if (!r) r = unsafe();
    if (!r) {
        *total = (size_t)fake.device[device].total;
        *unused = (size_t)(fake.device[device].total - used(device));
    }
    return leave(r);
}
/* cuPointerGetAttribute: 9 is the device, 17 the pool */
int fake_cuPointerGetAttribute(void *value, int attribute, unsigned long long ptr) {
    int r = begin("cuPointerGetAttribute");
    storage *s = find((void *)(uintptr_t)ptr);
    const int host = -1;
    cudaMemPool_t handle = s && s->kind == POOL ? handle_of(s->from) : NULL;
    if (!r && (!s || !value || (attribute != 9 && attribute != 17))) r = cudaErrorInvalidValue;
    if (!r && attribute == 9) memcpy(value, fake.host_pools ? &host : &s->device, sizeof(int));
    if (!r && attribute == 17) memcpy(value, &handle, sizeof handle);
    return leave(r);
}
int fake_cuDeviceGetMemPool(cudaMemPool_t *handle, int device) {
    int r = begin("cuDeviceGetMemPool");
    return leave(r ? r : pool_on(handle, device, &pool_now[valid(device) ? device : 0]));
}
int fake_cuMemPoolGetAttribute(cudaMemPool_t handle, int attribute, void *value) {
    int r = begin("cuMemPoolGetAttribute");
    return leave(r ? r : attribute_get(handle, attribute, value));
}
int fake_cuMemPoolTrimTo(cudaMemPool_t handle, size_t keep) {
    int r = begin("cuMemPoolTrimTo");
    return leave(r ? r : pool_trim(handle, keep));
}
int fake_cuDeviceGetGraphMemAttribute(int device, int attribute, void *value) {
    int r = begin("cuDeviceGetGraphMemAttribute");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    return leave(r ? r : graph_attribute(device, attribute, value));
}
int fake_cuDeviceGraphMemTrim(int device) {
    int r = begin("cuDeviceGraphMemTrim");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    return leave(r ? r : graph_trim(device));
}
int fake_cuThreadExchangeStreamCaptureMode(int *mode) {
    int r = begin("cuThreadExchangeStreamCaptureMode");
    int was = self.mode;
    if (!r && (*mode < 0 || *mode > 2)) r = cudaErrorInvalidValue;
    if (r) return leave(r);
    self.mode = *mode;
    *mode = was;
    return leave(0);
}
/* A stream that is gone may be anything by now: who asks it is counted. The default streams are
   those of the current context, and there has to be one. */
static int asked(cudaStream_t stream, struct CUstream_st **s) {
    int device;
    if ((uintptr_t)stream <= 2 && driver_current(&device)) return cudaErrorDeviceUninitialized;
    *s = stream_of(stream);
    if (!*s) fake.dead_asked++;
    return *s ? 0 : cudaErrorInvalidResourceHandle;
}

int fake_cuStreamIsCapturing(cudaStream_t stream, int *status) {
    int r = begin("cuStreamIsCapturing");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    return leave(r ? r : is_capturing(s, status));
}
int fake_cuStreamGetCtx(cudaStream_t stream, void **context) {
    int r = begin("cuStreamGetCtx");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    if (!r) *context = &contexts[s->device];
    return leave(r);
}
int fake_cuStreamGetDevice(cudaStream_t stream, int *device) {
    int r = begin("cuStreamGetDevice");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    if (!r) *device = s->device;
    return leave(r);
}
int fake_cuEventCreate(cudaEvent_t *event, unsigned flags) {
    int r = begin("cuEventCreate"), device;
    if (!r) r = driver_current(&device);
    return leave(r ? r : event_make(event, device, flags));
}
int fake_cuEventDestroy_v2(cudaEvent_t event) {
    int r = begin("cuEventDestroy_v2");
    return leave(r ? r : event_end(event));
}
int fake_cuEventRecord(cudaEvent_t event, cudaStream_t stream) {
    int r = begin("cuEventRecord");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    if (!r) r = event_record(event, stream);
    if (!r && event->captured) fake.captured_records++;
    return leave(r);
}
int fake_cuEventQuery(cudaEvent_t event) {
    int r = begin("cuEventQuery");
    return leave(r ? r : event_query(event));
}
int fake_cuEventSynchronize(cudaEvent_t event) {
    int r = begin("cuEventSynchronize");
    return leave(r ? r : event_wait(event));
}
int fake_cuEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t stop) {
    int r = begin("cuEventElapsedTime");
    return leave(r ? r : event_elapsed(ms, start, stop));
}

/* -- NVML: devices in its own order, totals of its own -- */

int fake_nvml_init(void) {
    int r = begin("nvmlInit_v2");
    if (!r) fake.nvml_inits++;
    (void)leave(0);
    if (fake.on_nvml_init) fake.on_nvml_init();
    return r;
}
int fake_nvml_shutdown(void) {
    int r = begin("nvmlShutdown");
    fake.nvml_inits--;
    return leave(r);
}
int fake_nvml_by_pci(const char *id, void **device) {
    int r = begin("nvmlDeviceGetHandleByPciBusId_v2"), i;
    if (!r) r = 6;
    for (i = 0; i < fake.devices && r == 6; i++)
        if (!strcmp(fake.device[i].pci, id)) *device = &fake.device[i], r = 0;
    return leave(r);
}
int fake_nvml_memory(void *device, void *info, int version) {
    int r = begin(version == 2 ? "nvmlDeviceGetMemoryInfo_v2" : "nvmlDeviceGetMemoryInfo");
    fake_device *d = (fake_device *)device;
    unsigned long long free_bytes = d->nvml_total - used((int)(d - fake.device)) - (16 << 20);
    unsigned v;
    if (version == 2) {
        unsigned long long v2[5] = {0, d->nvml_total, 16 << 20, free_bytes,
                                    d->nvml_total - free_bytes - (16 << 20)};
        memcpy(&v, info, sizeof v);
        if (!r && v != 0x02000028) r = 25;
        if (!r) memcpy((char *)info + 8, &v2[1], 4 * sizeof v2[0]);
    } else if (!r) {
        unsigned long long v1[3] = {d->nvml_total, free_bytes, d->nvml_total - free_bytes};
        memcpy(info, v1, sizeof v1);
    }
    return leave(r);
}
int fake_nvml_mig(void *device, unsigned *current_mode, unsigned *pending) {
    int r = begin("nvmlDeviceGetMigMode");
    if (!r) *current_mode = *pending = ((fake_device *)device)->mig != 0;
    return leave(r);
}
int fake_nvml_processes(void *device, unsigned *n, void *info) {
    int r = begin("nvmlDeviceGetComputeRunningProcesses_v3");
    const fake_device *d = (fake_device *)device;
    struct {
        unsigned pid;
        unsigned long long bytes;
        unsigned gpu, compute;
    } one = {d->nvml_pid, d->nvml_used, 0, 0};
    if (r) return leave(r);
    *n = d->nvml_pid ? 1 : 0;
    if (*n) memcpy(info, &one, sizeof one);
    return leave(0);
}
