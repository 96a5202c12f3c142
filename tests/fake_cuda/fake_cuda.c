/* The fake of fake_cuda.h. One lock over all of it; what a thread has of its own is in `self`. It
   refuses what CUDA refuses: a comment names the function whose description in CUDA's headers says
   so, or the chapter of the CUDA C++ Programming Guide. What those leave undefined is refused. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nanosleep, with -std=c99 */
#endif
#include "fake_cuda.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STORAGES = 1 << 17, PAGES = 1 << 20, STREAMS = 256, EVENTS = 1 << 14, DEPTH = 64 };
enum { NAMES = 256, QUEUED = 64, THREADS = 64, POOLS = 96, GRAPHS = 4096, CAPTURES = 256 };
enum { CONTEXTS = 256, CHUNKS = 4096 };
enum { PLAIN = 1, POOL, GRAPH, ARRAY, IPC, HOST, REGISTERED };

/* What a storage of a graph is: allocated when the graph runs; by a run; given back after one; or
   nobody's but the graph's, which frees it itself. */
enum { CAPTURED = 1, RUN, GIVEN_BACK, INNER };

enum { RESERVED, RESERVED_HIGH, USED, USED_HIGH, THRESHOLD, NUMBERS };
enum { FOLLOW_EVENTS, OPPORTUNISTIC, INTERNAL, REUSES };

/* The primary contexts of the devices first. */
typedef struct fake_context {
    int alive, device; /* of a primary one, `active` of its device says whether it is */
    int green;         /* times it is current, if it is one: 1 + those */
    uint64_t id;
} fake_context;

/* What a pool took of its device at once. */
typedef struct chunk {
    struct pool *of;
    uint64_t bytes, used;
    struct CUstream_st *busy; /* whose free in it came last, */
    uint64_t until;           /* done when the stream has done so much */
} chunk;

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
    chunk *part; /* of the pool, if that has any */
    int context; /* that it is of, if it is no pool's */
    struct CUgraph_st *graph;
    int state;
    struct CUstream_st *freed_on;
    uint64_t freed_at;
    uint64_t serial; /* of the allocation; of an IPC handle, that of the process it is of */
    int opened;      /* times it was */
} storage;

struct CUevent_st {
    int context, alive, recorded, timed;
    uint64_t captured; /* the capture it was last recorded in */
    struct CUstream_st *stream;
    uint64_t at, when;
    uint64_t serial; /* of the record */
};
struct CUstream_st {
    int context, device, alive, blocking;
    capture *capture;
    uint64_t nodes, joined; /* captured on it; of them, what another stream waited for */
    uint64_t given, done;
    uint64_t since; /* when the first of what is not done was given; 0: all is */
    struct {
        cudaHostFn_t fn; /* run by a thread of the fake while somebody waits for the stream */
        void *user;
        uint64_t at;
    } queue[QUEUED];
    int queued, running;
    struct {
        struct CUevent_st event; /* as it was then */
        uint64_t serial;
    } waits[QUEUED];
    int n_waits;
    uint64_t waited; /* for other streams, that it was ever told to */
    uint64_t id;
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
static struct CUstream_st defaults[CONTEXTS];
static struct CUstream_st own[THREADS][FAKE_DEVICES]; /* default streams of threads */
static char peers[FAKE_DEVICES][FAKE_DEVICES];
static int n_streams, n_events, n_threads;
static uint64_t now;                /* things given to any stream */
static uint64_t serial;             /* of captures, storages, records and waits */
static fake_context contexts[CONTEXTS];
static int n_contexts;
static uint64_t ids; /* of contexts and streams: none of the process has that of another */
static chunk chunks[CHUNKS];
static int initialised, forked, device_runs;
static void virtual_reset(void);
static uint64_t virtual_live(void);
static struct {
    const char *name;
    uint64_t n;
} counts[NAMES];
static __thread struct {
    int error, device, mode, depth;
    int stack[DEPTH]; /* numbers of the contexts that were pushed; a primary one has its device's */
    int top;          /* 1 + the device the runtime made current, under the stack */
    int number;       /* 1 + its place in own */
    int host_function;
} self;

/* -- calls -- */

/* CUDA_ERROR_ILLEGAL_ADDRESS and its like: any further CUDA work will return the same error. What
   only says which devices, contexts and modes there are is no work. */
static int is_work(const char *name) {
    static const char *const not_work[] = {"cuInit", "cuDeviceGet", "cuDevicePrimary", "cuCtxP",
                                           "cuCtxGet", "cuThread"};
    size_t i;
    if (!strcmp(name, "cuDeviceGetGraphMemAttribute")) return 1;
    for (i = 0; i < sizeof not_work / sizeof *not_work; i++)
        if (!strncmp(name, not_work[i], strlen(not_work[i]))) return 0;
    return 1;
}

void fake_before(const char *name, void (*before)(void)) {
    pthread_mutex_lock(&lock);
    fake.before_name = name;
    fake.before = before;
    pthread_mutex_unlock(&lock);
}

static int begin(const char *name) {
    const int nvml = name[0] == 'n', driver = !nvml && name[2] != 'd';
    int i = 0;
    void (*before)(void);
    if (driver && fake.on_driver_call) fake.on_driver_call(name);
    pthread_mutex_lock(&lock);
    before = fake.before && !strcmp(fake.before_name, name) ? fake.before : NULL;
    if (before) {
        fake.before = NULL;
        pthread_mutex_unlock(&lock);
        before();
        pthread_mutex_lock(&lock);
    }
    while (i < NAMES - 1 && counts[i].name && strcmp(counts[i].name, name)) i++;
    counts[i].name = name;
    counts[i].n++;
    fake.driver_calls += driver ? 1 : 0;
    if (fake.ended && !nvml) return cudaErrorCudartUnloading; /* CUDA_ERROR_DEINITIALIZED */
    if (++fake.calls == fake.fail_at) return fake.fail_error ? fake.fail_error : 999;
    if (fake.fail_name && fake.fail_times && !strcmp(fake.fail_name, name)) {
        if (fake.fail_times > 0) fake.fail_times--;
        return fake.fail_error ? fake.fail_error : 999;
    }
    if (nvml) return 0;
    /* cudaLaunchHostFunc: the function must not make any CUDA API calls; that they are refused is
       not required */
    if (self.host_function) {
        fake.host_function_calls++;
        if (!fake.lax_host_functions) return cudaErrorNotPermitted;
    }
    /* cuInit; and no context of a parent is its child's */
    if (forked || (driver && !initialised && strcmp(name, "cuInit") != 0))
        return cudaErrorInitializationError;
    return driver && fake.sticky && is_work(name) ? fake.sticky : 0;
}

static void device_start(void);

static int runtime(const char *name) {
    int r = begin(name);
    if (!r && fake.runs_alone) device_start();
    if (!r && (fake.no_driver || fake.old_driver)) r = cudaErrorInsufficientDriver;
    if (!r) initialised = 1;
    if (!r && fake.sticky) r = fake.sticky;
    return r;
}

static int leave(int r) {
    pthread_mutex_unlock(&lock);
    return r;
}

/* A handle of what is destroyed, given to the driver. RUBBISH: success, and the caller makes up the
   answer. */
enum { RUBBISH = -1 };
static int dead(int kind, int refusal) {
    fake.dead[kind]++;
    if (fake.dead_handles == FAKE_DEAD_CRASHES) raise(SIGSEGV);
    return fake.dead_handles == FAKE_DEAD_RUBBISH ? RUBBISH : refusal;
}

static cudaError_t end(int r) {
    pthread_mutex_unlock(&lock);
    if (r) self.error = r;
    return (cudaError_t)r;
}

/* Functions that are one call, or one after another's refusal. */
#define RUNTIME(name, params, work)                                                           \
    cudaError_t name params {                                                                 \
        int r = runtime(#name);                                                               \
        return end(r ? r : (work));                                                           \
    }
#define DRIVER(name, params, work)                                                            \
    int fake_##name params {                                                                  \
        int r = begin(#name);                                                                 \
        return leave(r ? r : (work));                                                         \
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
    memset(defaults, 0, sizeof defaults[0] * (size_t)n_contexts);
    memset(contexts, 0, sizeof contexts);
    memset(chunks, 0, sizeof chunks);
    memset(own, 0, sizeof own);
    memset(pools, 0, sizeof pools);
    memset(peers, 0, sizeof peers);
    virtual_reset();
    memset(&self, 0, sizeof self);
    n_storages = n_pages = freed = spare = n_streams = n_events = forked = 0;
}

/* A context has a default stream. */
static void context_new(int number, int device, int green) {
    struct CUstream_st *s = &defaults[number];
    contexts[number].id = ++ids;
    contexts[number].alive = 1;
    contexts[number].device = device;
    contexts[number].green = green;
    memset(s, 0, sizeof *s);
    s->context = number;
    s->device = device;
    s->alive = s->blocking = 1;
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
        context_new(i, i, 0);
    }
    n_contexts = FAKE_DEVICES;
    pthread_mutex_unlock(&lock);
}

/* The lock may be another thread's, which is not here. */
static void in_the_child(void) {
    pthread_mutex_init(&lock, NULL);
    forked = initialised;
    initialised = device_runs = 0;
}

void fake_is_no_child(void) {
    initialised = forked;
    forked = 0;
}

/* For programs that know nothing of the fake. */
__attribute__((constructor)) static void from_environment(void) {
    const char *devices = getenv("FAKE_CUDA_DEVICES");
    if (devices) fake_reset(atoi(devices));
    fake.old_driver = getenv("FAKE_CUDA_OLD_DRIVER") != NULL;
    if (getenv("FAKE_CUDA_UNKIND")) { /* as a device may be */
        fake.pool_chunk = 32 << 20;
        fake.free_waits = fake.ends_at_exit = fake.runs_alone = 1;
        fake.lax_host_functions = fake.slow_events = fake.retain_unsafe = 1;
        fake.queue_length = 1024;
    }
    pthread_atfork(NULL, NULL, in_the_child);
}

/* -- devices and contexts -- */

static int valid(int device) { return device >= 0 && device < fake.devices; }

static void activate(int device) {
    fake_device *d = &fake.device[device];
    if (!d->active) {
        contexts[device].id = ++ids;
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
    int number = self.depth ? self.stack[self.depth - 1] : self.device;
    const int device = contexts[number].device;
    if (number < FAKE_DEVICES) {
        activate(device);
        fake.device[device].held = 1;
    }
    if (!self.depth) self.top = device + 1;
    return device;
}

/* The context that call works in, once it has one. */
static int current_context(void) {
    const int device = current();
    return self.depth ? self.stack[self.depth - 1] : device;
}

/* What a call of the driver works on. Without a context, or with one that was reset, none of them
   does: CUDA_ERROR_INVALID_CONTEXT (cuCtxGetDevice). */
static int is_context(int number) {
    return contexts[number].alive &&
           (number >= FAKE_DEVICES || fake.device[contexts[number].device].active);
}
static int driver_context(int *number) {
    if (!self.depth && !self.top) return cudaErrorDeviceUninitialized;
    *number = self.depth ? self.stack[self.depth - 1] : self.top - 1;
    if (*number >= FAKE_DEVICES && !contexts[*number].alive) return cudaErrorContextIsDestroyed;
    return is_context(*number) ? 0 : cudaErrorDeviceUninitialized;
}
static int driver_current(int *device) {
    int number, r = driver_context(&number);
    if (!r) *device = contexts[number].device;
    return r;
}

static uint64_t used(int device) {
    const fake_device *d = &fake.device[device];
    uint64_t n = d->others + d->plain + d->physical + d->graph_reserved;
    int i;
    if (d->active) n += d->context_bytes;
    for (i = 0; i < POOLS; i++)
        if ((pools[i].alive || pools[i].dying) && pools[i].device == device)
            n += pools[i].n[RESERVED];
    return n;
}

cudaError_t cudaGetDevice(int *device) {
    int r = runtime("cudaGetDevice");
    if (!r && !device) r = cudaErrorInvalidValue;
    if (!r) *device = self.depth ? contexts[self.stack[self.depth - 1]].device : self.device;
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
    return valid(device) && valid(peer) && (fake.device[peer].peers >> device & 1);
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
    if (i < n_contexts) return &defaults[i];
    i -= n_contexts;
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
    int number = self.depth ? self.stack[self.depth - 1] : self.top ? self.top - 1 : self.device;
    struct CUstream_st *s;
    if ((uintptr_t)stream > 2) return stream->alive ? stream : NULL;
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
    if (!stream) stream = cudaStreamPerThread;
#endif
    if (stream != cudaStreamPerThread) return &defaults[number];
    if (number >= FAKE_DEVICES) return NULL; /* the fake has none there; a green context has none */
    if (!self.number) self.number = 1 + n_threads++ % THREADS;
    s = &own[self.number - 1][number];
    s->context = s->device = number;
    s->alive = s->blocking = 1;
    return s;
}

static int is_legacy(const struct CUstream_st *s) { return s == &defaults[s->context]; }

/* cuGreenCtxDestroy: streams made in it remain; any call with one says that it is destroyed. */
static int is_orphan(const struct CUstream_st *s) { return !contexts[s->context].alive; }

/* The first capture of a blocking stream, which the legacy stream of the context would wait for. */
static capture *implicit(int number) {
    struct CUstream_st *s;
    int i;
    if (!fake.captures) return NULL;
    for (i = 0; (s = stream_number(i)); i++)
        if (s->context == number && s->blocking && s->capture) return s->capture;
    return NULL;
}

static int await_room(struct CUstream_st *s);

/* May a stream be given something? Programming Guide, "Cross-stream Dependencies": no use of the
   legacy stream while a blocking stream is captured. */
static int use(struct CUstream_st *s) {
    capture *c;
    if (!s) return cudaErrorInvalidResourceHandle;
    if (is_orphan(s)) return cudaErrorContextIsDestroyed;
    if (s->capture && s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (is_legacy(s) && (c = implicit(s->context)))
        return invalidate(c, cudaErrorStreamCaptureImplicit);
    if (s->capture) s->nodes++;
    return s->capture ? 0 : await_room(s);
}

/* May it be asked whether it is done, or waited for? Not while it is captured, whatever the
   thread's mode. */
static int look(struct CUstream_st *s) {
    if (!s) return cudaErrorInvalidResourceHandle;
    if (is_orphan(s)) return cudaErrorContextIsDestroyed;
    if (s->capture) return invalidate(s->capture, cudaErrorStreamCaptureUnsupported);
    if (is_legacy(s) && implicit(s->context)) return use(s);
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

RUNTIME(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode),
        capture_begin(stream, NULL, mode))

#if CUDART_VERSION >= 12030
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t *after,
                                          const cudaGraphEdgeData *edges, size_t n,
                                          enum cudaStreamCaptureMode mode) {
    int r = runtime("cudaStreamBeginCaptureToGraph");
    (void)after, (void)edges, (void)n;
    if (!r && !is_graph(graph)) r = cudaErrorInvalidValue;
    return end(r ? r : capture_begin(stream, graph, mode));
}
#endif

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
    if (is_orphan(s)) return cudaErrorContextIsDestroyed;
    if (is_legacy(s) && implicit(s->context)) return cudaErrorStreamCaptureImplicit;
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

/* Each is a part of this file, and uses what is above it. */
#include "memory.c"
#include "streams.c"
#include "graphs.c"

/* -- the end of a device -- */

/* What was created in the context goes with it. */
static void context_empty(int number) {
    struct CUstream_st *s;
    int i;
    for (i = 0; (s = stream_number(i)); i++) {
        if (s->context != number) continue;
        if (s->capture) {
            s->capture->invalid = 1;
            (void)capture_end(s->capture);
        }
        s->queued = s->n_waits = 0;
        finish(s);
        if (i < n_streams) s->alive = 0;
    }
    for (i = 0; i < n_events; i++)
        if (events[i].context == number) (void)event_end(&events[i]);
    for (i = 0; i < n_storages; i++)
        if (storages[i].kind && storages[i].kind != POOL && storages[i].context == number) {
            if (storages[i].kind == PLAIN || storages[i].kind == ARRAY)
                fake.device[storages[i].device].plain -= storages[i].bytes;
            storage_end(&storages[i]);
        }
}

static void context_end(int device) {
    int i;
    context_empty(device);
    for (i = 0; i < FAKE_DEVICES; i++) peers[device][i] = peers[i][device] = 0;
    fake.device[device].graph_used = fake.device[device].graph_reserved = 0;
    fake.device[device].active = fake.device[device].held = 0;
}

/* cudaDeviceReset: what the device has is destroyed, but for what cudaMallocAsync and
   cudaMallocFromPoolAsync made. */
cudaError_t cudaDeviceReset(void) {
    int r = runtime("cudaDeviceReset"), i, mine = 0;
    const int device = self.depth ? contexts[self.stack[self.depth - 1]].device : self.device;
    for (i = 0; i < self.depth; i++) mine += self.stack[i] == device;
    fake.device[device].resets_inside += fake.device[device].pushed > mine;
    if (!r) context_end(device);
    if (!r) self.top = 0;
    return end(r);
}

#include "driver.c"
#include "contexts.c"
#include "ids.c"
#include "virtual.c"
