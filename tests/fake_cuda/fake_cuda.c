/* The fake of fake_cuda.h. One lock over all of it; what a thread has of its own is in `self`. */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STORAGES = 1 << 16, STREAMS = 256, EVENTS = 1 << 14, DEPTH = 64, NAMES = 256, QUEUED = 64 };
enum { THREADS = 64 };
enum { PLAIN = 1, POOL, GRAPH, HOST, REGISTERED };

typedef struct storage {
    int kind, device;
    uint64_t bytes;
    void *host;
} storage;

struct CUstream_st {
    int device, alive, blocking;
    int capturing; /* 0, 1 active, 2 invalidated */
    int mode;
    uint64_t given, done;
    uint64_t since; /* when the first of what is not done was given; 0: all is */
    cudaHostFn_t fn[QUEUED]; /* run by who waits for the stream */
    void *user[QUEUED];
    int queued;
    struct {
        struct CUstream_st *stream; /* that it waits for ... */
        uint64_t at;                /* ... until that has done so much */
    } waits[QUEUED];
    int n_waits;
    uint64_t waited;
};
struct CUevent_st {
    int device, alive, captured;
    struct CUstream_st *stream;
    uint64_t at, when;
};

fake_cuda fake;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static storage storages[STORAGES];
static struct CUstream_st streams[STREAMS];
static struct CUevent_st events[EVENTS];
static struct CUstream_st defaults[FAKE_DEVICES];
static struct CUstream_st own[THREADS][FAKE_DEVICES]; /* default streams of threads */
static int n_storages, n_streams, n_events, n_threads;
static uint64_t now; /* things given to any stream */
static char contexts[FAKE_DEVICES]; /* their addresses are the contexts */
static struct {
    const char *name;
    uint64_t n;
} counts[NAMES];
static __thread struct {
    int error, device, mode, depth;
    int stack[DEPTH]; /* devices whose contexts were pushed */
    int top;          /* 1 + the device the runtime made current, under the stack */
    int number;       /* 1 + its place in own */
} self;

/* -- calls -- */

static int begin(const char *name) {
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < NAMES - 1 && counts[i].name && strcmp(counts[i].name, name)) i++;
    counts[i].name = name;
    counts[i].n++;
    if (!strncmp(name, "cu", 2) && name[2] != 'd') fake.driver_calls++;
    if (++fake.calls == fake.fail_at) return fake.fail_error ? fake.fail_error : 999;
    if (fake.fail_name && fake.fail_times && !strcmp(fake.fail_name, name)) {
        if (fake.fail_times > 0) fake.fail_times--;
        return fake.fail_error ? fake.fail_error : 999;
    }
    return 0;
}

static int runtime(const char *name) {
    int r = begin(name);
    if (!r && (fake.no_driver || fake.old_driver)) r = cudaErrorInsufficientDriver;
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

void fake_reset(int devices) {
    int i;
    pthread_mutex_lock(&lock);
    for (i = 0; i < n_storages; i++)
        if (storages[i].kind == HOST) free(storages[i].host);
    memset(&fake, 0, sizeof fake);
    memset(storages, 0, sizeof storages);
    memset(streams, 0, sizeof streams);
    memset(events, 0, sizeof events);
    memset(counts, 0, sizeof counts);
    memset(defaults, 0, sizeof defaults);
    memset(own, 0, sizeof own);
    memset(&self, 0, sizeof self);
    n_storages = n_streams = n_events = 0;
    fake.devices = devices;
    for (i = 0; i < FAKE_DEVICES; i++) {
        fake_device *d = &fake.device[i];
        d->total = FAKE_GIB;
        d->pools = 1;
        d->nvml_total = d->total + (16 << 20);
        snprintf(d->pci, sizeof d->pci, "0000:%02x:00.0", 0x80 - i * 16);
        defaults[i].device = i;
        defaults[i].alive = defaults[i].blocking = 1;
    }
    pthread_mutex_unlock(&lock);
}

/* For programs that know nothing of the fake. */
__attribute__((constructor)) static void from_environment(void) {
    const char *devices = getenv("FAKE_CUDA_DEVICES");
    if (devices) fake_reset(atoi(devices));
    fake.old_driver = getenv("FAKE_CUDA_OLD_DRIVER") != NULL;
}

/* -- devices and contexts -- */

static void activate(int device) {
    if (!fake.device[device].active) {
        fake.contexts++;
        fake.device[device].contexts++;
    }
    fake.device[device].active = 1;
}

void fake_activate(int device) {
    pthread_mutex_lock(&lock);
    fake.device[device].active = 1;
    pthread_mutex_unlock(&lock);
}

int fake_depth(void) { return self.depth; }

/* What a call of the runtime that needs one works on. */
static int current(void) {
    int device = self.depth ? self.stack[self.depth - 1] : self.device;
    activate(device);
    if (!self.depth) self.top = device + 1;
    return device;
}

static uint64_t used(int device) {
    const fake_device *d = &fake.device[device];
    return d->others + d->plain + d->reserved + d->graph_reserved;
}

cudaError_t cudaGetDevice(int *device) {
    int r = runtime("cudaGetDevice");
    if (!r) *device = self.depth ? self.stack[self.depth - 1] : self.device;
    return end(r);
}

cudaError_t cudaSetDevice(int device) {
    int r = runtime("cudaSetDevice");
    if (!r && (device < 0 || device >= fake.devices)) r = cudaErrorInvalidDevice;
    if (!r) {
        fake.set_devices++;
        self.device = device;
        if (!fake.lazy) {
            self.top = device + 1;
            activate(device);
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

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device) {
    int r = runtime("cudaDeviceGetPCIBusId");
    if (!r && (device < 0 || device >= fake.devices)) r = cudaErrorInvalidDevice;
    if (!r) snprintf(text, (size_t)size, "%s", fake.device[device].pci);
    return end(r);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    int r = runtime("cudaDeviceGetAttribute");
    if (!r && (device < 0 || device >= fake.devices)) r = cudaErrorInvalidDevice;
    if (!r && attribute == cudaDevAttrIntegrated)
        *value = fake.device[device].integrated;
    else if (!r && attribute == cudaDevAttrMemoryPoolsSupported)
        *value = fake.device[device].pools;
    else if (!r)
        r = cudaErrorInvalidValue;
    return end(r);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    int r = runtime("cudaDeviceCanAccessPeer");
    if (!r && (device < 0 || device >= fake.devices || peer < 0 || peer >= fake.devices))
        r = cudaErrorInvalidDevice;
    if (!r) *can = (int)(fake.device[peer].peers >> device & 1);
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

/* -- capture -- */

/* Every stream there is, in turn; NULL after the last. */
static struct CUstream_st *stream_number(int i) {
    if (i < n_streams) return &streams[i];
    i -= n_streams;
    if (i < FAKE_DEVICES) return &defaults[i];
    i -= FAKE_DEVICES;
    return i < THREADS * FAKE_DEVICES ? &own[i / FAKE_DEVICES][i % FAKE_DEVICES] : NULL;
}

/* Ends what is captured on a device, or on any (-1), with an error. */
static int invalidate(int device) {
    struct CUstream_st *s;
    int i;
    fake.violated++;
    for (i = 0; (s = stream_number(i)); i++)
        if (s->capturing && (device < 0 || s->device == device)) s->capturing = 2;
    return cudaErrorStreamCaptureUnsupported;
}

/* Calls that a capture forbids, unless the thread says it knows what it does. */
static int unsafe(void) {
    return fake.captures && self.mode != cudaStreamCaptureModeRelaxed ? invalidate(-1) : 0;
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

static int capture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    struct CUstream_st *s = stream_of(stream);
    if (!s || s->capturing || s == &defaults[s->device]) return cudaErrorInvalidValue;
    s->capturing = 1;
    s->mode = (int)mode;
    fake.captures++;
    return 0;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    int r = runtime("cudaStreamBeginCapture");
    return end(r ? r : capture(stream, mode));
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t *after,
                                          const cudaGraphEdgeData *edges, size_t n,
                                          enum cudaStreamCaptureMode mode) {
    int r = runtime("cudaStreamBeginCaptureToGraph");
    (void)graph, (void)after, (void)edges, (void)n;
    return end(r ? r : capture(stream, mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    int r = runtime("cudaStreamEndCapture");
    struct CUstream_st *s = stream_of(stream);
    *graph = NULL;
    if (!r && (!s || !s->capturing)) r = cudaErrorIllegalState;
    if (!r) {
        if (s->capturing == 2) r = cudaErrorStreamCaptureInvalidated;
        s->capturing = 0;
        fake.captures--;
        if (!r) *graph = (cudaGraph_t)s;
    }
    return end(r);
}

/* The legacy stream cannot be asked while a blocking one is captured. */
static int capturing(struct CUstream_st *s, int *status) {
    struct CUstream_st *other;
    int i;
    for (i = 0; s == &defaults[s->device] && (other = stream_number(i)); i++)
        if (other->capturing && other->blocking && other->device == s->device)
            return cudaErrorStreamCaptureImplicit;
    *status = s->capturing;
    return 0;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    int r = runtime("cudaStreamIsCapturing"), state = 0;
    struct CUstream_st *s = stream_of(stream);
    if (!r && !s) r = cudaErrorInvalidResourceHandle;
    if (!r) r = capturing(s, &state);
    if (!r) *status = (enum cudaStreamCaptureStatus)state;
    return end(r);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    int r = runtime("cudaThreadExchangeStreamCaptureMode"), was = self.mode;
    if (!r) {
        self.mode = (int)*mode;
        *mode = (enum cudaStreamCaptureMode)was;
    }
    return end(r);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    (void)graph;
    return end(runtime("cudaGraphDestroy"));
}

/* -- memory -- */

#define FIRST UINT64_C(0x700000000000) /* address of what is on devices */

static void *address_of(int i) {
    return storages[i].host ? storages[i].host : (void *)(uintptr_t)(FIRST + ((uint64_t)i << 21));
}

static storage *find(const void *ptr) {
    int i;
    uint64_t at = (uint64_t)(uintptr_t)ptr;
    if (at >= FIRST && at < FIRST + ((uint64_t)STORAGES << 21))
        if (storages[(at - FIRST) >> 21].kind) return &storages[(at - FIRST) >> 21];
    for (i = 0; i < n_storages; i++)
        if (storages[i].kind >= HOST && storages[i].host == ptr) return &storages[i];
    return NULL;
}

/* When the pool of numbers is used up, addresses come again. */
static int unused(void) {
    int i = n_storages;
    if (i < STORAGES) return n_storages++;
    for (i = 0; i < STORAGES - 1 && storages[i].kind;) i++;
    return i;
}

static int alloc(int kind, int device, uint64_t bytes, void **ptr) {
    fake_device *d = &fake.device[device];
    uint64_t more = bytes;
    int i;
    void *host = NULL;
    if (!ptr) return cudaErrorInvalidValue;
    if (!bytes) {
        *ptr = NULL;
        return 0;
    }
    if (kind == POOL) more = d->used + bytes > d->reserved ? d->used + bytes - d->reserved : 0;
    if (kind < HOST && (bytes > d->total || used(device) + more > d->total))
        return cudaErrorMemoryAllocation;
    if (kind == HOST && !(host = malloc((size_t)bytes))) return cudaErrorMemoryAllocation;
    i = unused();
    storages[i].kind = kind;
    storages[i].device = device;
    storages[i].bytes = bytes;
    storages[i].host = host;
    *ptr = address_of(i);
    if (kind == PLAIN) d->plain += bytes;
    if (kind == POOL) {
        d->used += bytes, d->reserved += more;
        if (d->used > d->used_high) d->used_high = d->used;
        if (d->reserved > d->reserved_high) d->reserved_high = d->reserved;
    }
    if (kind == GRAPH) {
        d->graph_used += bytes, d->graph_reserved += bytes;
        if (d->graph_used > d->graph_used_high) d->graph_used_high = d->graph_used;
        if (d->graph_reserved > d->graph_reserved_high)
            d->graph_reserved_high = d->graph_reserved;
    }
    return 0;
}

static int release(const void *ptr, int host) {
    storage *s = find(ptr);
    fake_device *d;
    if (!ptr) return 0;
    if (!s || (host ? s->kind != host : s->kind >= HOST)) return cudaErrorInvalidValue;
    if (s->kind == GRAPH && fake.unlaunched) return cudaErrorInvalidValue;
    d = &fake.device[s->device];
    if (s->kind == PLAIN) d->plain -= s->bytes;
    if (s->kind == POOL) d->used -= s->bytes;
    if (s->kind == GRAPH) d->graph_used -= s->bytes;
    if (s->kind == HOST) free(s->host);
    memset(s, 0, sizeof *s);
    return 0;
}

uint64_t fake_live(void) {
    uint64_t n = 0;
    int i;
    pthread_mutex_lock(&lock);
    for (i = 0; i < n_storages; i++) n += storages[i].kind != 0;
    pthread_mutex_unlock(&lock);
    return n;
}

cudaError_t cudaMalloc(void **ptr, size_t bytes) {
    int r = runtime("cudaMalloc");
    if (!r) r = unsafe();
    if (!r) r = alloc(PLAIN, current(), bytes, ptr);
    return end(r);
}

cudaError_t cudaMallocManaged(void **ptr, size_t bytes, unsigned int flags) {
    int r = runtime("cudaMallocManaged");
    (void)flags;
    if (!r) r = unsafe();
    if (!r) r = alloc(PLAIN, current(), bytes, ptr);
    return end(r);
}

cudaError_t cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height) {
    int r = runtime("cudaMallocPitch");
    size_t row = (width + 511) / 512 * 512;
    if (!r && width > FAKE_GIB) r = cudaErrorMemoryAllocation;
    if (!r) r = alloc(PLAIN, current(), (uint64_t)row * height, ptr);
    if (!r) *pitch = row;
    return end(r);
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *ptr, struct cudaExtent extent) {
    int r = runtime("cudaMalloc3D");
    size_t row = (extent.width + 511) / 512 * 512;
    if (!r) r = alloc(PLAIN, current(), (uint64_t)row * extent.height * extent.depth, &ptr->ptr);
    if (!r) {
        ptr->pitch = row;
        ptr->xsize = extent.width;
        ptr->ysize = extent.height;
    }
    return end(r);
}

static int alloc_async(cudaStream_t stream, int device, size_t bytes, void **ptr) {
    struct CUstream_st *s = stream_of(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (!fake.device[s->device].pools) return cudaErrorNotSupported;
    activate(s->device);
    return alloc(s->capturing ? GRAPH : POOL, device < 0 ? s->device : device, bytes, ptr);
}

cudaError_t cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t stream) {
    int r = runtime("cudaMallocAsync");
    if (!r && (uintptr_t)stream <= 2) (void)current();
    if (!r) r = alloc_async(stream, -1, bytes, ptr);
    return end(r);
}

/* A pool is the device it is of. */
cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
    int r = runtime("cudaMallocFromPoolAsync");
    int device = (int)((fake_device *)(void *)pool - fake.device);
    if (!r && (device < 0 || device >= fake.devices)) r = cudaErrorInvalidValue;
    if (!r && (uintptr_t)stream <= 2) (void)current();
    if (!r) r = alloc_async(stream, device, bytes, ptr);
    return end(r);
}

cudaError_t cudaFree(void *ptr) {
    int r = runtime("cudaFree");
    if (!r) r = unsafe();
    if (!r) (void)current();
    if (!r) r = release(ptr, 0);
    return end(r);
}

/* On a stream that is captured it is a node of the graph: nothing else can be freed there. */
static int release_async(const void *ptr, struct CUstream_st *stream) {
    storage *s = find(ptr);
    int r, unlaunched = fake.unlaunched;
    if (stream->capturing && s && s->kind != GRAPH) {
        fake.violated++;
        stream->capturing = 2;
        return cudaErrorInvalidValue;
    }
    if (stream->capturing) fake.unlaunched = 0;
    r = release(ptr, 0);
    fake.unlaunched = unlaunched;
    return r;
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream) {
    int r = runtime("cudaFreeAsync");
    if (!r && !stream_of(stream)) r = cudaErrorInvalidResourceHandle;
    if (!r) r = ptr ? release_async(ptr, stream_of(stream)) : cudaErrorInvalidValue;
    return end(r);
}

cudaError_t cudaMallocHost(void **ptr, size_t bytes) {
    int r = runtime("cudaMallocHost");
    if (!r) r = alloc(HOST, current(), bytes, ptr);
    return end(r);
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned int flags) {
    int r = runtime("cudaHostAlloc");
    (void)flags;
    if (!r) r = alloc(HOST, current(), bytes, ptr);
    return end(r);
}

cudaError_t cudaFreeHost(void *ptr) {
    int r = runtime("cudaFreeHost");
    if (!r) r = release(ptr, HOST);
    return end(r);
}

cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned int flags) {
    int r = runtime("cudaHostRegister"), i;
    (void)flags;
    if (!r && (!ptr || !bytes || find(ptr))) r = cudaErrorInvalidValue;
    if (!r) {
        i = unused();
        storages[i].kind = REGISTERED;
        storages[i].bytes = bytes;
        storages[i].host = ptr;
    }
    return end(r);
}

cudaError_t cudaHostUnregister(void *ptr) {
    int r = runtime("cudaHostUnregister");
    if (!r) r = ptr ? release(ptr, REGISTERED) : cudaErrorInvalidValue;
    return end(r);
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream) {
    int r = runtime("cudaMemsetAsync");
    storage *s = r ? NULL : find(ptr);
    (void)value;
    if (!r && (!s || bytes > s->bytes)) r = cudaErrorInvalidValue;
    if (!r && !stream_of(stream)) r = cudaErrorInvalidResourceHandle;
    return end(r);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    int r = runtime("cudaDeviceGetDefaultMemPool");
    if (!r && (device < 0 || device >= fake.devices)) r = cudaErrorInvalidDevice;
    if (!r) *pool = (cudaMemPool_t)(void *)&fake.device[device];
    return end(r);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value) {
    int r = runtime("cudaMemPoolSetAttribute");
    if (!r && attr == cudaMemPoolAttrReleaseThreshold)
        memcpy(&((fake_device *)(void *)pool)->threshold, value, sizeof(uint64_t));
    else if (!r && attr <= cudaMemPoolReuseAllowInternalDependencies)
        memcpy(&((fake_device *)(void *)pool)->reuse[attr], value, sizeof(int));
    return end(r);
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *access, size_t n) {
    int r = runtime("cudaMemPoolSetAccess");
    for (; !r && n; n--, access++) {
        if (!(((fake_device *)(void *)pool)->peers >> access->location.id & 1))
            r = cudaErrorInvalidDevice;
        else
            ((fake_device *)(void *)pool)->granted |= 1u << access->location.id;
    }
    return end(r);
}

/* -- streams and events -- */

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

/* What is asked of the host happens when somebody waits. */
static void wait_for(struct CUstream_st *s) {
    while (s->queued) {
        cudaHostFn_t fn = s->fn[0];
        void *user = s->user[0];
        memmove(s->fn, s->fn + 1, sizeof s->fn - sizeof s->fn[0]);
        memmove(s->user, s->user + 1, sizeof s->user - sizeof s->user[0]);
        s->queued--;
        pthread_mutex_unlock(&lock);
        fn(user);
        pthread_mutex_lock(&lock);
    }
    finish(s);
    /* a pool gives back what it need not keep */
    if (fake.device[s->device].reserved > fake.device[s->device].threshold) {
        fake_device *d = &fake.device[s->device];
        d->reserved = d->used > d->threshold ? d->used : d->threshold;
    }
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user) {
    int r = runtime("cudaLaunchHostFunc");
    struct CUstream_st *s = stream_of(stream);
    if (!r && (!s || s->queued == QUEUED)) r = cudaErrorInvalidResourceHandle;
    if (!r) {
        s->fn[s->queued] = fn;
        s->user[s->queued++] = user;
        give(s);
    }
    return end(r);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    int r = runtime("cudaStreamCreateWithFlags"), i = n_streams;
    if (i == STREAMS) /* handles come again, too */
        for (i = 0; i < STREAMS && (streams[i].alive || streams[i].since);) i++;
    if (!r && i == STREAMS) r = cudaErrorMemoryAllocation;
    if (!r) {
        struct CUstream_st *s = &streams[i];
        n_streams += i == n_streams;
        s->device = current();
        s->alive = 1;
        s->blocking = !(flags & cudaStreamNonBlocking);
        *stream = s;
    }
    return end(r);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    int r = runtime("cudaStreamDestroy");
    if (!r && (!stream_of(stream) || (uintptr_t)stream <= 2)) r = cudaErrorInvalidResourceHandle;
    if (!r) { /* what it was given goes on */
        if (stream->capturing) fake.captures--;
        stream->capturing = 0;
        stream->alive = 0;
    }
    return end(r);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    int r = runtime("cudaStreamSynchronize");
    struct CUstream_st *s = stream_of(stream);
    if (!r && !s) r = cudaErrorInvalidResourceHandle;
    if (!r) wait_for(s);
    return end(r);
}

/* Waiting for a device ends what is captured on it, whatever the thread's mode. */
static int wait_for_device(int device) {
    struct CUstream_st *s;
    int i;
    for (i = 0; (s = stream_number(i)); i++)
        if (s->device == device && s->capturing) return invalidate(device);
    for (i = 0; (s = stream_number(i)); i++)
        if (s->device == device) wait_for(s);
    return 0;
}

cudaError_t cudaDeviceSynchronize(void) {
    int r = runtime("cudaDeviceSynchronize");
    return end(r ? r : wait_for_device(current()));
}

static int event_make(cudaEvent_t *event, int device) {
    if (n_events == EVENTS) return cudaErrorMemoryAllocation;
    *event = &events[n_events++];
    (*event)->device = device;
    (*event)->alive = 1;
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

static int event_record(cudaEvent_t event, cudaStream_t stream) {
    struct CUstream_st *s = stream_of(stream);
    if (!s || !event || !event->alive || event->device != s->device)
        return cudaErrorInvalidResourceHandle;
    event->captured = s->capturing != 0;
    if (s->capturing) fake.captured_records++;
    if (fake.slow_events) give(s);
    event->stream = s;
    event->at = s->given;
    event->when = now;
    return 0;
}

/* The legacy default stream comes after all that blocking streams were given before. */
static int is_done(cudaEvent_t event) {
    struct CUstream_st *s = event->stream;
    int i, device = event->device;
    if (!s) return 1;
    for (i = 0; i < s->n_waits; i++)
        if (s->waits[i].stream->done < s->waits[i].at) return 0;
    if (s != &defaults[device]) return s->done >= event->at;
    for (i = 0; (s = stream_number(i)); i++)
        if (s->device == device && s->blocking && s->since && s->since <= event->when) return 0;
    return 1;
}

static int event_query(cudaEvent_t event) {
    if (!event || !event->alive) return cudaErrorInvalidResourceHandle;
    if (event->captured) {
        fake.violated++;
        return cudaErrorCapturedEvent;
    }
    return is_done(event) ? 0 : cudaErrorNotReady;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    int r = runtime("cudaEventCreateWithFlags");
    (void)flags;
    if (!r) r = event_make(event, current());
    return end(r);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    int r = runtime("cudaEventDestroy");
    if (!r) r = event_end(event);
    return end(r);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    int r = runtime("cudaEventRecord");
    if (!r) r = event_record(event, stream);
    return end(r);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    int r = runtime("cudaEventSynchronize");
    if (!r && (!event || !event->alive)) r = cudaErrorInvalidResourceHandle;
    if (!r && event->stream) wait_for(event->stream);
    return end(r);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    int r = runtime("cudaStreamWaitEvent");
    (void)flags;
    struct CUstream_st *s = stream_of(stream);
    if (!r && (!s || !event || !event->alive)) r = cudaErrorInvalidResourceHandle;
    if (!r && event->stream && event->stream != s) {
        int i, n = 0;
        for (i = 0; i < s->n_waits; i++)
            if (s->waits[i].stream->done < s->waits[i].at) s->waits[n++] = s->waits[i];
        s->waits[n].stream = event->stream;
        s->waits[n].at = event->at;
        s->n_waits = n + (n < QUEUED - 1);
        s->waited++;
    }
    return end(r);
}

uint64_t fake_stream_waits(cudaStream_t stream) {
    uint64_t n;
    pthread_mutex_lock(&lock);
    n = stream_of(stream)->waited;
    pthread_mutex_unlock(&lock);
    return n;
}

/* -- the driver: no last error -- */

static int valid(int device) { return device >= 0 && device < fake.devices; }

int fake_cuInit(unsigned flags) {
    int r = begin("cuInit");
    (void)flags;
    return leave(r ? r : fake.no_driver ? cudaErrorNoDevice : 0);
}
int fake_cuDeviceGetCount(int *count) {
    int r = begin("cuDeviceGetCount");
    *count = fake.devices;
    return leave(r);
}
int fake_cuDeviceGet(int *device, int ordinal) {
    int r = begin("cuDeviceGet");
    *device = ordinal;
    return leave(r ? r : valid(ordinal) ? 0 : 101);
}
int fake_cuDeviceGetAttribute(int *value, int attribute, int device) {
    int r = begin("cuDeviceGetAttribute");
    if (!r) *value = attribute == 18 ? fake.device[device].integrated : fake.device[device].pools;
    return leave(r);
}
int fake_cuDeviceGetPCIBusId(char *text, int size, int device) {
    int r = begin("cuDeviceGetPCIBusId");
    if (!r) snprintf(text, (size_t)size, "%s", fake.device[device].pci);
    return leave(r);
}
int fake_cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    int r = begin("cuDevicePrimaryCtxGetState");
    if (!r) *flags = 0, *active = fake.device[device].active;
    return leave(r);
}
int fake_cuDevicePrimaryCtxRetain(void **context, int device) {
    int r = begin("cuDevicePrimaryCtxRetain");
    if (!r) {
        activate(device);
        fake.device[device].retained++;
        fake.retains++;
        *context = &contexts[device];
    }
    return leave(r);
}
/* Releases what was retained even when told to fail: else a test of failures could not tell a leak
   of ours from its own. */
int fake_cuDevicePrimaryCtxRelease_v2(int device) {
    int r = begin("cuDevicePrimaryCtxRelease_v2");
    fake.device[device].retained--;
    fake.retains--;
    return leave(r);
}
int fake_cuCtxPushCurrent_v2(void *context) {
    int r = begin("cuCtxPushCurrent_v2");
    char *at = (char *)context;
    if (!r && (at < contexts || at >= contexts + FAKE_DEVICES || self.depth == DEPTH)) r = 201;
    if (!r) self.stack[self.depth++] = (int)(at - contexts);
    return leave(r);
}
int fake_cuCtxPopCurrent_v2(void **context) {
    int r = begin("cuCtxPopCurrent_v2");
    if (!self.depth) {
        fake.depth_errors++;
        return leave(201);
    }
    *context = &contexts[self.stack[--self.depth]];
    return leave(r);
}
int fake_cuCtxGetCurrent(void **context) {
    int r = begin("cuCtxGetCurrent");
    if (!r)
        *context = self.depth ? &contexts[self.stack[self.depth - 1]]
                   : self.top ? &contexts[self.top - 1]
                              : NULL;
    return leave(r);
}
int fake_cuCtxGetDevice(int *device) {
    int r = begin("cuCtxGetDevice");
    if (!r && !self.depth && !self.top) r = 201;
    if (!r) *device = self.depth ? self.stack[self.depth - 1] : self.top - 1;
    return leave(r);
}
int fake_cuCtxSynchronize(void) {
    int r = begin("cuCtxSynchronize");
    fake.context_waits++;
    if (!r && !self.depth && !self.top) r = 201;
    if (!r) r = wait_for_device(self.depth ? self.stack[self.depth - 1] : self.top - 1);
    return leave(r);
}
int fake_cuMemGetInfo_v2(size_t *unused, size_t *total) {
    int r = begin("cuMemGetInfo_v2");
    if (!r && !self.depth && !self.top) r = 201;
    if (!r) r = unsafe();
    if (!r) {
        int device = self.depth ? self.stack[self.depth - 1] : self.top - 1;
        *total = (size_t)fake.device[device].total;
        *unused = (size_t)(fake.device[device].total - used(device));
    }
    return leave(r);
}
int fake_cuPointerGetAttribute(void *value, int attribute, unsigned long long ptr) {
    int r = begin("cuPointerGetAttribute");
    storage *s = find((void *)(uintptr_t)ptr);
    const int host = -1;
    if (!r && (!s || attribute != 9)) r = 1;
    if (!r) memcpy(value, fake.host_pools ? &host : &s->device, sizeof s->device);
    return leave(r);
}
int fake_cuDeviceGetMemPool(cudaMemPool_t *pool, int device) {
    int r = begin("cuDeviceGetMemPool");
    if (!r) *pool = (cudaMemPool_t)(void *)&fake.device[device];
    return leave(r);
}
int fake_cuMemPoolGetAttribute(cudaMemPool_t pool, int attribute, void *value) {
    int r = begin("cuMemPoolGetAttribute");
    fake_device *d = (fake_device *)(void *)pool;
    if (!r && (attribute < 5 || attribute > 8)) r = 1;
    if (!r) memcpy(value, &(&d->reserved)[attribute - 5], sizeof(uint64_t));
    return leave(r);
}
int fake_cuMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
    int r = begin("cuMemPoolTrimTo");
    fake_device *d = (fake_device *)(void *)pool;
    if (!r) r = unsafe();
    if (!r) d->trims++;
    if (!r && d->reserved > keep) {
        uint64_t was = d->reserved;
        d->reserved = d->used > keep ? d->used : keep;
        d->trimmed += was > d->reserved ? was - d->reserved : 0;
    }
    return leave(r);
}
int fake_cuDeviceGetGraphMemAttribute(int device, int attribute, void *value) {
    int r = begin("cuDeviceGetGraphMemAttribute");
    const fake_device *d = &fake.device[device];
    const uint64_t values[] = {d->graph_used, d->graph_used_high, d->graph_reserved,
                               d->graph_reserved_high};
    if (!r) memcpy(value, &values[attribute & 3], sizeof values[0]);
    return leave(r);
}
int fake_cuDeviceGraphMemTrim(int device) {
    int r = begin("cuDeviceGraphMemTrim");
    if (!r) r = unsafe();
    if (!r) fake.device[device].graph_trims++;
    if (!r) fake.device[device].graph_reserved = fake.device[device].graph_used;
    return leave(r);
}
int fake_cuThreadExchangeStreamCaptureMode(int *mode) {
    int r = begin("cuThreadExchangeStreamCaptureMode");
    int was = self.mode;
    if (r) return leave(r);
    self.mode = *mode;
    *mode = was;
    return leave(0);
}
/* A stream that is gone may be anything by now: who asks it is counted. */
static struct CUstream_st *asked(cudaStream_t stream) {
    struct CUstream_st *s = stream_of(stream);
    if (!s) fake.dead_asked++;
    return s;
}

int fake_cuStreamIsCapturing(cudaStream_t stream, int *status) {
    int r = begin("cuStreamIsCapturing");
    struct CUstream_st *s = asked(stream);
    if (!r && !s) r = cudaErrorInvalidResourceHandle;
    return leave(r ? r : capturing(s, status));
}
int fake_cuStreamGetCtx(cudaStream_t stream, void **context) {
    int r = begin("cuStreamGetCtx");
    struct CUstream_st *s = asked(stream);
    if (!r && !s) r = cudaErrorInvalidResourceHandle;
    if (!r) *context = &contexts[s->device];
    return leave(r);
}
int fake_cuEventCreate(cudaEvent_t *event, unsigned flags) {
    int r = begin("cuEventCreate");
    (void)flags;
    if (!r && !self.depth && !self.top) r = 201;
    if (!r) r = event_make(event, self.depth ? self.stack[self.depth - 1] : self.top - 1);
    return leave(r);
}
int fake_cuEventDestroy_v2(cudaEvent_t event) {
    int r = begin("cuEventDestroy_v2");
    return leave(r ? r : event_end(event));
}
int fake_cuEventRecord(cudaEvent_t event, cudaStream_t stream) {
    int r = begin("cuEventRecord");
    if (!r && !asked(stream)) r = cudaErrorInvalidResourceHandle;
    return leave(r ? r : event_record(event, stream));
}
int fake_cuEventQuery(cudaEvent_t event) {
    int r = begin("cuEventQuery");
    if (!r) r = unsafe();
    return leave(r ? r : event_query(event));
}
/* A millisecond for each thing the stream was given between the two. */
int fake_cuEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t stop) {
    int r = begin("cuEventElapsedTime");
    if (!r) r = event_query(stop);
    if (!r) *ms = (float)(stop->at - start->at);
    return leave(r);
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
