/* The allocator for PyTorch, loaded and called as PyTorch does: by name, with the types of
   CUDAPluggableAllocator, from C++. Its ledger is its own; what it did to the runtime is seen in
   the fake. */
#include "support_cuda.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/types.h>

/* Of this process: the builds of this suite run at one time. */
static char folder[] = "build/torch-XXXXXX";
static const char *in_folder(const char *name) {
    static char paths[4][64];
    static int n;
    char *path = paths[n++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

typedef void *alloc_fn(ssize_t size, int device, cudaStream_t stream);
typedef void fraction_fn(double fraction, int device);

#define PLUGIN(X)                                                                             \
    X(alloc_fn *, alloc)                                                                      \
    X(alloc_fn *, segment_alloc)                                                              \
    X(fraction_fn *, set_memory_fraction)
#define FUNCTIONS(X)                                                                          \
    X(void, free, (void *ptr, ssize_t size, int device, cudaStream_t stream))                 \
    X(void, record_stream, (void *ptr, cudaStream_t stream))                                  \
    X(void, empty_cache, (void))                                                              \
    X(uint64_t, allocated, (int device))                                                      \
    X(uint64_t, pending, (int device))                                                        \
    X(uint64_t, peak, (int device))                                                           \
    X(uint64_t, reserved, (int device))                                                       \
    X(uint64_t, recoveries, (int device))                                                     \
    X(int, limit_fraction, (int device, double fraction))                                     \
    X(int, tag_begin, (const char *tag))                                                      \
    X(int, tag_end, (void))                                                                   \
    X(uint64_t, mark, (void))                                                                 \
    X(uint64_t, live_since, (uint64_t mark))                                                  \
    X(const void *, site, (const char *file, const char *function, int line))                 \
    X(const void *, site_use, (const void *site))                                             \
    X(const char *, error, (int result))                                                      \
    X(int, save, (const char *path))

typedef struct plugin {
    void *library;
#define X(type, name) type name;
    PLUGIN(X)
#undef X
#define X(type, name, params) type (*name) params;
    FUNCTIONS(X)
#undef X
    int (*torch_alloc)(alloc_fn *fn, ssize_t bytes, int device, cudaStream_t stream, void **out,
                       char *text, size_t size);
    int (*torch_fraction)(fraction_fn *fn, double fraction, int device, char *text, size_t size);
} plugin;

static void find(void *library, const char *name, void *fn) {
    void *found = dlsym(library, name);
    if (!found) fprintf(stderr, "# no %s\n", name);
    child_check(found);
    memcpy(fn, &found, sizeof found);
}

/* In a child: the library has one ledger a process. */
static plugin load(void) {
    plugin p;
    void *caller = dlopen("libtorch.so", RTLD_NOW | RTLD_LOCAL);
    fake_reset(DEVICES);
    fake.device[2].pools = 0;
    p.library = dlopen("libmemlord_torch.so", RTLD_NOW | RTLD_LOCAL);
    if (!p.library || !caller) fprintf(stderr, "# %s\n", dlerror());
    child_check(p.library && caller);
#define X(type, name) find(p.library, "memlord_torch_" #name, (void *)&p.name);
    PLUGIN(X)
#undef X
#define X(type, name, params) find(p.library, "memlord_torch_" #name, (void *)&p.name);
    FUNCTIONS(X)
#undef X
    find(caller, "torch_alloc", (void *)&p.torch_alloc);
    find(caller, "torch_fraction", (void *)&p.torch_fraction);
    return p;
}

enum { NOTHING, BAD_ALLOC, ANOTHER };

/* What the allocator throws. */
static int thrown(const plugin *p, ssize_t bytes, int device, cudaStream_t stream) {
    char text[640];
    void *ptr = NULL;
    int what = p->torch_alloc(p->alloc, bytes, device, stream, &ptr, text, sizeof text);
    child_check((what == NOTHING) == (ptr != NULL));
    if (what == BAD_ALLOC) child_check(!strncmp(text, "CUDA out of memory. Tried to ", 29));
    if (what == ANOTHER) child_check(!strncmp(text, "memlord_torch: ", 15));
    child_check(cudaPeekAtLastError() == cudaSuccess);
    return what;
}

static cudaStream_t a_stream(void) {
    cudaStream_t stream = NULL;
    child_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

/* As PyTorch does: its own call, which MemLord does not see. */
static void begin_capture(cudaStream_t stream) {
    child_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
}
static void end_capture(cudaStream_t stream) {
    cudaGraph_t graph;
    child_check(cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph);
    child_check(!fake.violated && !fake.captured_records);
}

/* A test of this suite is a function that runs in a child. */
#define CHILD(name)                                                                           \
    static void child_##name(void *user);                                                     \
    static void name(void **state) {                                                          \
        (void)state;                                                                          \
        in_child(child_##name, NULL);                                                         \
    }                                                                                         \
    static void child_##name(void *user)

/* -- totals -- */

CHILD(its_totals_are_what_torch_asked_for) {
    plugin p = load();
    cudaStream_t stream = a_stream();
    void *a = p.alloc(1000, 0, stream), *b = p.alloc(24, 0, NULL);
    (void)user;
    child_check(a && b && p.alloc(0, 0, stream) == NULL);
    child_check(p.allocated(0) == 1024 && p.allocated(-1) == 1024 && p.allocated(1) == 0);
    child_check(p.reserved(0) == 1024);
    p.free(a, 1000, 0, stream);
    p.free(b, 24, 0, NULL);
    p.free(NULL, 0, 0, NULL);
    child_check(p.allocated(0) == 0 && p.peak(0) == 1024);
    p.empty_cache();
    child_check(p.reserved(0) == 0 && fake_live() == 0);
}

CHILD(what_no_device_has_is_refused) {
    plugin p = load();
    (void)user;
    child_check(thrown(&p, -1, 0, NULL) == BAD_ALLOC);
    child_check(thrown(&p, (ssize_t)1 << 50, 0, NULL) == BAD_ALLOC);
    child_check(thrown(&p, 1000, -1, NULL) == ANOTHER);
    child_check(thrown(&p, 1000, DEVICES, NULL) == ANOTHER);
    child_check(thrown(&p, 1000, 1 << 20, NULL) == ANOTHER);
    child_check(p.segment_alloc(-1, 0, NULL) == NULL && p.segment_alloc(1000, -1, NULL) == NULL);
    p.free(&p, 1000, -1, NULL);
    p.free(&p, 1000, 1 << 20, NULL);
    p.record_stream(NULL, NULL);
    p.record_stream(&p, NULL); /* never allocated */
    child_check(p.allocated(-1) == 0 && fake_live() == 0);
}

/* -- devices -- */

static cudaMemPool_t pool_of(int device) {
    cudaMemPool_t pool = NULL;
    child_check(cudaDeviceGetDefaultMemPool(&pool, device) == cudaSuccess);
    return pool;
}

static void pool_set(int device, int attribute, int value) {
    child_check(cudaMemPoolSetAttribute(pool_of(device), (enum cudaMemPoolAttr)attribute, &value) ==
                cudaSuccess);
}

static uint64_t pool_get(int device, enum cudaMemPoolAttr attribute) {
    uint64_t value = 0;
    child_check(cudaMemPoolGetAttribute(pool_of(device), attribute, &value) == cudaSuccess);
    return value;
}

/* May `to` read what the pool of `from` has? */
static int is_open(int from, int to) {
    enum cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
    struct cudaMemLocation location;
    memset(&location, 0, sizeof location);
    location.type = cudaMemLocationTypeDevice;
    location.id = to;
    child_check(cudaMemPoolGetAccess(&flags, pool_of(from), &location) == cudaSuccess);
    return flags == cudaMemAccessFlagsProtReadWrite;
}

CHILD(a_device_that_is_not_current_has_its_own_stream) {
    plugin p = load();
    cudaStream_t side;
    int current = -1;
    void *ptr;
    (void)user;
    cudaSetDevice(1);
    side = a_stream();
    fake_stream_work(NULL); /* device 1's default stream */
    cudaSetDevice(0);
    ptr = p.alloc(1000, 1, a_stream());
    child_check(ptr && p.allocated(0) == 1000); /* a stream names its device */
    p.free(ptr, 1000, 0, NULL);
    ptr = p.alloc(1000, 1, NULL);
    child_check(ptr && p.allocated(1) == 1000 && p.allocated(0) == 0);
    p.free(ptr, 1000, 1, NULL);
    ptr = p.alloc(1000, 1, side);
    p.record_stream(ptr, NULL);
    p.free(ptr, 1000, 1, side);
    child_check(p.pending(1) == 1000); /* device 0's is idle, and has nothing to do with it */
    child_check(cudaGetDevice(&current) == cudaSuccess && current == 0);
    cudaSetDevice(1);
    fake_stream_finish(NULL);
    child_check(p.pending(1) == 0 && p.allocated(1) == 0);
}

CHILD(a_pool_is_set_up_at_the_first_use_of_its_device) {
    plugin p = load();
    int i;
    (void)user;
    for (i = 1; i < 4; i++) pool_set(1, i, 0);
    child_check(p.alloc(1000, 1, NULL) && p.alloc(1000, 1, NULL));
    child_check(pool_get(1, cudaMemPoolAttrReleaseThreshold) == UINT64_MAX);
    child_check(pool_get(1, cudaMemPoolReuseFollowEventDependencies) == 1);
    child_check(pool_get(1, cudaMemPoolReuseAllowOpportunistic) == 1);
    child_check(pool_get(1, cudaMemPoolReuseAllowInternalDependencies) == 1);
    child_check(pool_get(0, cudaMemPoolAttrReleaseThreshold) == 0);
    child_check(fake_count("cudaMemPoolSetAttribute") == 3 + 4);
    child_check(fake_count("cudaStreamCreateWithFlags") == 1);
}

/* Torch's synchronize and item() do not give the memory back to the system. */
CHILD(a_synchronisation_leaves_the_pool_its_memory) {
    plugin p = load();
    void *ptr = p.alloc(1000, 0, NULL);
    (void)user;
    p.free(ptr, 1000, 0, NULL);
    child_check(cudaDeviceSynchronize() == cudaSuccess && p.reserved(0) == 1000);
    p.empty_cache();
    child_check(p.reserved(0) == 0);
}

CHILD(pools_are_open_to_the_devices_that_were_used) {
    plugin p = load();
    (void)user;
    fake.device[0].peers = fake.device[1].peers = 7;
    child_check(p.alloc(1000, 0, NULL) && !is_open(0, 1) && !is_open(1, 0));
    child_check(p.alloc(1000, 1, NULL) && is_open(0, 1) && is_open(1, 0));
    child_check(!is_open(0, 2) && !fake.device[2].active);
}

CHILD(a_pool_stays_closed_to_devices_that_cannot_reach_it) {
    plugin p = load();
    (void)user;
    fake.device[0].peers = 2; /* device 1 reaches 0's memory, but not the other way */
    child_check(p.alloc(1000, 0, NULL) && p.alloc(1000, 1, NULL));
    child_check(is_open(0, 1) && !is_open(1, 0) && fake_count("cudaMemPoolSetAccess") == 1);
}

static void *free_elsewhere(void *user) {
    const plugin *p = (const plugin *)((void **)user)[0];
    p->free(((void **)user)[1], 1000, 1, (cudaStream_t)((void **)user)[2]);
    p->free(((void **)user)[3], 1000, 1, NULL);
    return NULL;
}

/* A rank on device 1, whose tensors die on a thread that never chose a device. */
CHILD(no_context_comes_to_be_on_a_device_that_has_none) {
    plugin p = load();
    void *what[4];
    pthread_t thread;
    int chosen;
    (void)user;
    cudaSetDevice(1);
    chosen = fake.set_devices;
    what[0] = &p;
    what[2] = a_stream();
    what[1] = p.alloc(1000, 1, (cudaStream_t)what[2]);
    what[3] = p.alloc(1000, 1, NULL);
    p.record_stream(what[1], NULL);
    child_check(pthread_create(&thread, NULL, free_elsewhere, what) == 0);
    child_check(pthread_join(thread, NULL) == 0);
    p.empty_cache();
    child_check(p.reserved(0) == 0 && p.allocated(1) == 0 && fake_live() == 0);
    child_check(!fake.device[0].active && !fake.device[2].active);
    child_check(fake.set_devices == chosen && fake_depth() == 0);
}

CHILD(a_device_without_pools_has_plain_memory) {
    plugin p = load();
    void *ptr = p.alloc(1000, 2, NULL);
    (void)user;
    child_check(ptr && p.allocated(2) == 1000 && fake.device[2].plain == 1000);
    p.free(ptr, 1000, 2, NULL);
    child_check(p.allocated(2) == 0 && fake_live() == 0);
}

CHILD(nothing_is_trimmed_unasked) {
    plugin p = load();
    cudaStream_t stream = a_stream();
    void *weights = p.alloc(700 * MIB, 0, stream);
    int step;
    (void)user;
    for (step = 0; step < 100; step++) {
        void *a = p.alloc(50 * MIB, 0, stream), *b = p.alloc(50 * MIB, 0, stream);
        p.free(a, 50 * MIB, 0, stream);
        p.free(b, 50 * MIB, 0, stream);
    }
    child_check(weights && fake_count("cuMemPoolTrimTo") == 0);
    child_check(fake_count("cuCtxSynchronize") == 0 && fake_count("cudaStreamSynchronize") == 0);
}

/* -- streams -- */

CHILD(a_recorded_stream_holds_back_block_and_memory) {
    plugin p = load();
    cudaStream_t own = a_stream(), side = a_stream();
    void *ptr = p.alloc(1000, 0, own);
    (void)user;
    p.record_stream(ptr, side);
    p.record_stream(ptr, side);
    fake_stream_work(side);
    p.free(ptr, 1000, 0, own);
    child_check(fake_count("cudaStreamWaitEvent") == 2); /* of a stream that is nobody else's */
    child_check(fake_stream_waits(own) == 0 && fake_stream_waits(side) == 0);
    child_check(fake_count("cudaStreamSynchronize") == 0);
    child_check(p.pending(0) == 1000 && p.allocated(0) == 1000);
    fake_stream_finish(side);
    child_check(p.pending(0) == 0 && p.allocated(0) == 0 && fake_live() == 0);
}

CHILD(its_own_stream_recorded_changes_nothing) {
    plugin p = load();
    cudaStream_t own = a_stream();
    void *ptr = p.alloc(1000, 0, own);
    (void)user;
    fake_stream_work(own);
    p.record_stream(ptr, own);
    p.free(ptr, 1000, 0, own);
    child_check(fake_count("cudaStreamWaitEvent") == 0 && p.allocated(0) == 0);
}

CHILD(a_recorded_stream_of_another_device_is_waited_for) {
    plugin p = load();
    cudaStream_t side;
    void *ptr = p.alloc(1000, 0, NULL);
    (void)user;
    cudaSetDevice(1);
    side = a_stream();
    cudaSetDevice(0);
    p.record_stream(ptr, side);
    fake_stream_work(side);
    p.free(ptr, 1000, 0, NULL);
    child_check(fake_count("cudaStreamSynchronize") == 0 && p.pending(0) == 1000);
    fake_stream_finish(side);
    child_check(p.pending(0) == 0);
}

CHILD(any_number_of_blocks_may_be_used_by_other_streams) {
    enum { N = 5000 };
    static void *ptr[N];
    plugin p = load();
    cudaStream_t own = a_stream(), side = a_stream();
    int i;
    (void)user;
    for (i = 0; i < N; i++) {
        ptr[i] = p.alloc(100, 0, own);
        p.record_stream(ptr[i], side);
    }
    for (i = 0; i < N; i++) p.free(ptr[i], 100, 0, own);
    child_check(fake_count("cudaStreamSynchronize") == 0);
    child_check(p.pending(0) == 0 && p.allocated(0) == 0 && fake.events < 300);
}

/* The host may not: but what it says of a block is not taken for the next one there. */
CHILD(a_use_recorded_after_the_free_is_not_the_next_blocks) {
    plugin p = load();
    cudaStream_t own = a_stream(), side = a_stream();
    void *ptr = p.alloc(1000, 0, own);
    (void)user;
    p.record_stream(ptr, side);
    fake_stream_work(side);
    p.free(ptr, 1000, 0, own);
    child_check(p.pending(0) == 1000);
    p.record_stream(ptr, side);
    child_check(p.alloc(1000, 0, own) == ptr);
    p.free(ptr, 1000, 0, own);
    child_check(fake_count("cudaStreamWaitEvent") == 2);
}

/* The driver may refuse an event: then the host waits, and only then is the memory freed. */
CHILD(without_an_event_the_host_waits) {
    plugin p = load();
    cudaStream_t own = a_stream(), side = a_stream();
    void *ptr = p.alloc(1000, 0, own);
    (void)user;
    p.record_stream(ptr, side);
    fake.fail_name = "cudaEventCreateWithFlags";
    fake.fail_times = -1;
    p.free(ptr, 1000, 0, own);
    child_check(fake_count("cudaStreamSynchronize") == 2 && fake_live() == 0);
    child_check(cudaPeekAtLastError() == cudaSuccess);
}

/* -- graphs -- */

CHILD(a_block_of_before_a_capture_is_freed_after_it) {
    plugin p = load();
    cudaStream_t stream = a_stream();
    void *ptr = p.alloc(1000, 0, stream), *other = p.alloc(24, 0, NULL);
    (void)user;
    begin_capture(stream);
    p.free(ptr, 1000, 0, stream);
    p.free(other, 24, 0, NULL); /* its stream is not captured */
    child_check(p.pending(0) == 0 && p.allocated(0) == 1000 && fake_live() == 1);
    end_capture(stream);
    other = p.alloc(24, 0, NULL); /* whatever is called next */
    child_check(p.allocated(0) == 24 && fake_live() == 1);
}

CHILD(a_used_block_is_freed_after_the_capture_of_the_other_stream) {
    plugin p = load();
    cudaStream_t own = a_stream(), side = a_stream();
    void *ptr = p.alloc(1000, 0, own);
    (void)user;
    p.record_stream(ptr, side);
    begin_capture(side);
    p.free(ptr, 1000, 0, own);
    child_check(p.allocated(0) == 1000);
    end_capture(side);
    child_check(p.pending(0) == 0 && p.allocated(0) == 0 && fake_live() == 0);
}

/* It begins as the free is under way: our own stream for frees must not be drawn into it. */
static cudaStream_t to_capture;
static void begin_meanwhile(void) { begin_capture(to_capture); }

CHILD(a_capture_that_begins_during_a_free_puts_that_off) {
    plugin p = load();
    cudaStream_t own = a_stream(), side = a_stream();
    void *ptr = p.alloc(1000, 0, own), *other = p.alloc(24, 0, own);
    (void)user;
    p.record_stream(ptr, side);
    p.record_stream(other, side);
    to_capture = side;
    fake.before_name = "cudaEventCreateWithFlags";
    fake.before = begin_meanwhile;
    p.free(ptr, 1000, 0, own);
    child_check(fake.captures == 1 && p.allocated(0) == 1024);
    end_capture(side);
    p.free(other, 24, 0, own);
    child_check(fake_live() == 0);
    child_check(cudaDeviceSynchronize() == cudaSuccess);
    child_check(p.allocated(0) == 0);
}

CHILD(a_capture_that_begins_on_the_blocks_stream_puts_its_free_off) {
    plugin p = load();
    cudaStream_t own = a_stream();
    void *ptr = p.alloc(1000, 0, own);
    (void)user;
    to_capture = own;
    fake.before_name = "cudaFreeAsync";
    fake.before = begin_meanwhile;
    p.free(ptr, 1000, 0, own);
    child_check(fake.captures == 1 && p.allocated(0) == 1000);
    fake.violated = 0; /* what the runtime refused may have ended it */
    (void)cudaStreamEndCapture(own, (cudaGraph_t[1]){NULL});
    (void)cudaGetLastError();
    child_check(p.allocated(0) == 0 && fake_live() == 0);
}

CHILD(a_block_of_a_capture_is_freed_in_it) {
    plugin p = load();
    cudaStream_t stream = a_stream();
    void *a, *b;
    (void)user;
    begin_capture(stream);
    a = p.alloc(1000, 0, stream);
    child_check(a && p.allocated(0) == 1000 && fake.device[0].plain == 0);
    p.free(a, 1000, 0, stream);
    child_check(p.allocated(0) == 0 && fake_count("cudaFreeAsync") == 1);
    b = p.alloc(1000, 0, stream);
    end_capture(stream);
    child_check(b && p.allocated(0) == 1000);
}

/* The side stream joins the first before the block is freed: work left on it would end the
   capture. */
CHILD(a_block_of_a_side_stream_is_left_to_the_graph) {
    plugin p = load();
    cudaStream_t stream = a_stream(), side = a_stream();
    cudaEvent_t event;
    void *a, *b;
    (void)user;
    child_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    begin_capture(stream);
    a = p.alloc(1000, 0, stream);
    child_check(cudaEventRecord(event, stream) == cudaSuccess);
    child_check(cudaStreamWaitEvent(side, event, 0) == cudaSuccess);
    b = p.alloc(24, 0, side);
    child_check(cudaEventRecord(event, side) == cudaSuccess);
    child_check(cudaStreamWaitEvent(stream, event, 0) == cudaSuccess);
    p.free(b, 24, 0, side);
    child_check(a && b && fake_count("cudaFreeAsync") == 0 && p.allocated(0) == 1024);
    fake.captured_records = 0;
    end_capture(stream);
    child_check(p.pending(0) == 0 && p.allocated(0) == 1000);
}

/* Nobody knows which of its streams joins the other last. */
CHILD(a_block_of_a_capture_that_two_streams_use_is_left_to_the_graph) {
    plugin p = load();
    cudaStream_t stream = a_stream(), side = a_stream();
    void *ptr;
    (void)user;
    begin_capture(stream);
    ptr = p.alloc(1000, 0, stream);
    p.record_stream(ptr, side);
    p.free(ptr, 1000, 0, stream);
    child_check(fake_count("cudaFreeAsync") == 0 && p.pending(0) == 0 && p.allocated(0) == 1000);
    end_capture(stream);
    child_check(p.pending(0) == 0 && p.allocated(0) == 0);
}

CHILD(a_block_of_a_graph_that_never_ran_leaves_the_books) {
    plugin p = load();
    cudaStream_t stream = a_stream();
    void *ptr;
    (void)user;
    begin_capture(stream);
    ptr = p.alloc(1000, 0, stream);
    end_capture(stream);
    p.free(ptr, 1000, 0, stream);
    child_check(p.allocated(0) == 0 && cudaPeekAtLastError() == cudaSuccess);
}

CHILD(a_block_of_a_graph_that_ran_is_freed_in_stream_order) {
    plugin p = load();
    cudaStream_t stream = a_stream();
    cudaGraph_t graph;
    cudaGraphExec_t run;
    void *ptr;
    (void)user;
    begin_capture(stream);
    ptr = p.alloc(1000, 0, stream);
    child_check(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    child_check(cudaGraphInstantiateWithFlags(
                    &run, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch) == cudaSuccess);
    child_check(cudaGraphLaunch(run, stream) == cudaSuccess);
    child_check(fake.device[0].graph_used == 1000);
    p.free(ptr, 1000, 0, stream);
    child_check(p.allocated(0) == 0 && fake.device[0].graph_used == 0 && !fake.violated);
    child_check(cudaGraphLaunch(run, stream) == cudaSuccess);
}

/* PyTorch allows its thread what a capture forbids around the segments of a MemPool. */
CHILD(a_segment_outlives_the_capture_that_asks_for_it) {
    plugin p = load();
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaStream_t stream = a_stream();
    void *a, *b, *c;
    (void)user;
    c = p.segment_alloc(8, 0, NULL);
    begin_capture(stream);
    cudaThreadExchangeStreamCaptureMode(&mode);
    a = p.alloc(1000, 0, stream);
    b = p.segment_alloc(24, 0, stream);
    cudaThreadExchangeStreamCaptureMode(&mode);
    child_check(mode == cudaStreamCaptureModeRelaxed);
    child_check(a && b && c && fake.device[0].plain == 1032);
    p.free(b, 24, 0, stream); /* to free it waits for the device */
    p.free(c, 8, 0, NULL);    /* likewise, on whatever stream */
    child_check(p.allocated(0) == 1032 && fake_count("cudaFree") == 0);
    end_capture(stream);
    p.free(a, 1000, 0, stream);
    child_check(p.allocated(0) == 0 && fake_live() == 0 && fake_count("cudaFree") == 3);
}

CHILD(a_memory_pool_has_segments_and_handles_their_lack_itself) {
    plugin p = load();
    void *ptr;
    (void)user;
    ptr = p.segment_alloc(1000, 0, NULL);
    child_check(ptr && fake.device[0].plain == 1000 && p.allocated(0) == 1000);
    child_check(p.segment_alloc((ssize_t)3 << 30, 0, NULL) == NULL);
    child_check(cudaPeekAtLastError() == cudaSuccess && fake_count("cudaMalloc") == 2);
    p.free(ptr, 1000, 0, NULL);
    child_check(fake_count("cudaFree") == 1 && p.allocated(0) == 0 && fake_live() == 0);
}

CHILD(two_captures_at_once_leave_each_other_alone) {
    plugin p = load();
    cudaStream_t one = a_stream(), two = a_stream();
    void *a = p.alloc(1000, 0, one), *b = p.alloc(24, 0, two);
    (void)user;
    begin_capture(one);
    begin_capture(two);
    p.free(a, 1000, 0, one);
    p.free(b, 24, 0, two);
    end_capture(one);
    child_check(p.pending(0) == 0 && p.allocated(0) == 24);
    end_capture(two);
    child_check(p.pending(0) == 0 && p.allocated(0) == 0 && fake_live() == 0);
}

/* -- out of memory -- */


CHILD(an_allocation_that_finds_no_memory_is_tried_again) {
    plugin p = load();
    cudaStream_t own = a_stream(), other = a_stream();
    void *held = NULL, *ptr;
    (void)user;
    child_check(cudaMalloc(&held, 600 * MIB) == cudaSuccess);
    fake.device[0].reserved = fake.device[0].reserved_high = 400 * MIB; /* a pool that kept it */
    fake.device[0].used = 0;
    fake.fail_name = "cudaMallocAsync"; /* does not reuse it, being in other pieces */
    fake.fail_error = cudaErrorMemoryAllocation;
    fake.fail_times = 1;
    fake_stream_work(other);
    ptr = p.alloc(300 * MIB, 0, own);
    child_check(ptr && p.recoveries(0) == 1 && cudaPeekAtLastError() == cudaSuccess);
    child_check(fake_count("cudaStreamSynchronize") == 1); /* its own stream */
    child_check(fake_count("cuCtxSynchronize") == 0);
    child_check(fake_count("cudaDeviceSynchronize") == 0);
    p.free(ptr, 300 * MIB, 0, own);
    setenv("MEMLORD_TORCH_RETRIES", "0", 1); /* too late for this process, which has read it */
    child_check(thrown(&p, (ssize_t)3 << 30, 0, own) == BAD_ALLOC);
    child_check(p.allocated(0) == 0);
}

/* A collection might end it. */
CHILD(while_a_stream_is_captured_an_allocation_is_tried_once) {
    plugin p = load();
    cudaStream_t captured = a_stream(), own = a_stream();
    uint64_t tries;
    (void)user;
    child_check(p.alloc(1000, 0, own));
    begin_capture(captured);
    child_check(p.alloc(1000, 0, captured)); /* from here on the capture is known */
    tries = fake_count("cudaMallocAsync");
    child_check(thrown(&p, (ssize_t)3 << 30, 0, captured) == BAD_ALLOC);
    child_check(thrown(&p, (ssize_t)3 << 30, 0, own) == BAD_ALLOC);
    p.empty_cache();
    child_check(fake_count("cudaMallocAsync") == tries + 2);
    child_check(fake_count("cuMemPoolTrimTo") == 0 && fake_count("cudaStreamSynchronize") == 0);
    end_capture(captured);
    child_check(p.allocated(0) == 2000);
}

CHILD(another_error_is_an_exception_of_its_own) {
    plugin p = load();
    (void)user;
    child_check(p.alloc(1000, 0, NULL));
    fake.fail_name = "cudaMallocAsync";
    fake.fail_error = cudaErrorIllegalAddress;
    fake.fail_times = -1;
    child_check(thrown(&p, 1000, 0, NULL) == ANOTHER && p.allocated(0) == 1000);
}

CHILD(a_device_that_cannot_be_set_up_is_tried_again_later) {
    plugin p = load();
    (void)user;
    fake.fail_name = "cudaStreamCreateWithFlags";
    fake.fail_times = 1;
    child_check(thrown(&p, 1000, 0, NULL) == ANOTHER);
    child_check(pool_get(0, cudaMemPoolAttrReleaseThreshold) == 0);
    child_check(thrown(&p, 1000, 0, NULL) == NOTHING);
    child_check(pool_get(0, cudaMemPoolAttrReleaseThreshold) == UINT64_MAX);
}

CHILD(a_memory_fraction_is_a_limit) {
    plugin p = load();
    cudaStream_t stream = a_stream();
    char text[256];
    (void)user;
    child_check(p.torch_fraction(p.set_memory_fraction, 0.5, 0, text, sizeof text) == NOTHING);
    child_check(thrown(&p, 600 * MIB, 0, NULL) == BAD_ALLOC && fake_live() == 0);
    child_check(thrown(&p, 400 * MIB, 0, NULL) == NOTHING);
    begin_capture(stream);
    child_check(thrown(&p, 200 * MIB, 0, stream) == BAD_ALLOC);
    end_capture(stream);
    child_check(p.torch_fraction(p.set_memory_fraction, 1.5, 0, text, sizeof text) == ANOTHER);
    child_check(p.torch_fraction(p.set_memory_fraction, 0.5, -1, text, sizeof text) == ANOTHER);
    child_check(p.limit_fraction(0, -1.0) == MEMLORD_E_INVALID && p.limit_fraction(0, 1.0) == 0);
    child_check(!strcmp(p.error(MEMLORD_E_INVALID), memlord_result_text(MEMLORD_E_INVALID)));
    child_check(thrown(&p, 600 * MIB, 0, NULL) == NOTHING);
}

/* -- the environment -- */

/* Runs a child with its standard error in a file, and returns that. */
static char *said(void (*fn)(void *), void *user) {
    int keep = dup(2), file = open(in_folder("err"), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(keep >= 0 && file >= 0 && dup2(file, 2) == 2);
    in_child(fn, user);
    assert_true(dup2(keep, 2) == 2);
    close(keep);
    close(file);
    return file_text(in_folder("err"));
}

static void child_junk(void *user) {
    plugin p = load();
    fake.fail_name = "cudaMallocAsync";
    fake.fail_error = cudaErrorMemoryAllocation;
    fake.fail_times = 1;
    (void)user;
    child_check(p.alloc(1000, 0, NULL) && p.recoveries(0) == 1); /* it was tried again */
    child_check(p.alloc(1000, 0, NULL));
}

static void a_number_of_retries_that_is_none_is_said_once(void **state) {
    const char *bad[] = {"junk", "x3", "3x", "-1", "1001", "99999999999999999999"};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *text, *at;
        setenv("MEMLORD_TORCH_RETRIES", bad[i], 1);
        text = said(child_junk, NULL);
        at = text ? strstr(text, "memlord_torch: MEMLORD_TORCH_RETRIES=") : NULL;
        assert_non_null(at);
        assert_null(strstr(at + 1, "memlord_torch:"));
        free(text);
    }
    unsetenv("MEMLORD_TORCH_RETRIES");
}

static void child_no_retry(void *user) {
    plugin p = load();
    (void)user;
    fake.fail_name = "cudaMallocAsync";
    fake.fail_error = cudaErrorMemoryAllocation;
    fake.fail_times = 1;
    child_check(thrown(&p, 1000, 0, NULL) == NOTHING); /* once more, for the answer */
    child_check(fake_count("cuMemPoolTrimTo") == 0 && p.recoveries(0) == 0);
}

static void a_number_of_retries_counts(void **state) {
    char *text;
    (void)state;
    setenv("MEMLORD_TORCH_RETRIES", "0", 1);
    text = said(child_no_retry, NULL);
    unsetenv("MEMLORD_TORCH_RETRIES");
    assert_non_null(text);
    assert_string_equal(text, "");
    free(text);
}

static void child_no_driver(void *user) {
    plugin p = load();
    (void)user;
    fake.no_driver = 1;
    child_check(thrown(&p, 1000, 0, NULL) == ANOTHER && thrown(&p, 1000, 0, NULL) == ANOTHER);
    child_check(p.segment_alloc(1000, 0, NULL) == NULL && p.allocated(-1) == 0);
    p.free(&p, 1000, 0, NULL);
    p.empty_cache();
}

static void without_a_driver_it_says_once_what_is_not_there(void **state) {
    char *text;
    (void)state;
    text = said(child_no_driver, NULL);
    assert_non_null(text);
    assert_string_equal(text, "memlord_torch: no GPU: cuInit answered 100\n");
    free(text);
}

/* -- tags and sites -- */

CHILD(a_script_gives_blocks_their_tag_and_place) {
    plugin p = load();
    const void *here = p.site("train.py", "step", 42), *before;
    uint64_t mark;
    char *text;
    (void)user;
    child_check(here && p.site("train.py", "step", 42) == here && !p.site(NULL, "step", 1));
    child_check(p.site("train.py", NULL, 42) != here && p.tag_begin("") == MEMLORD_E_INVALID);
    child_check(p.tag_end() == MEMLORD_E_STATE && p.alloc(24, 0, NULL));
    mark = p.mark();
    before = p.site_use(here);
    child_check(p.tag_begin("weights") == 0 && p.alloc(1000, 0, NULL) && p.tag_end() == 0);
    child_check(before == NULL && p.site_use(before) == here);
    child_check(p.live_since(mark) == 1000 && p.live_since(0) == 1024);
    child_check(p.save(in_folder("sites.json")) == 0);
    text = file_text(in_folder("sites.json"));
    child_check(text && strstr(text, "train.py") && strstr(text, "\"weights\""));
    free(text);
}

static int making_sites;

static void *make_sites(void *user) {
    const plugin *p = (const plugin *)user;
    while (__atomic_load_n(&making_sites, __ATOMIC_ACQUIRE))
        (void)p->site("model.py", "forward", 3);
    return NULL;
}

CHILD(a_forked_child_makes_sites) {
    plugin p = load();
    pthread_t thread;
    int i, status;
    pid_t pid;
    (void)user;
    child_check(p.site("model.py", "load", 1) != NULL); /* the library is in use when it forks */
    __atomic_store_n(&making_sites, 1, __ATOMIC_RELEASE);
    child_check(pthread_create(&thread, NULL, make_sites, &p) == 0);
    for (i = 0; i < 300; i++) {
        pid = fork();
        if (pid == 0) {
            (void)alarm(5);
            _exit(p.site("model.py", "forward", 3) == NULL);
        }
        child_check(waitpid(pid, &status, 0) == pid && status == 0);
    }
    __atomic_store_n(&making_sites, 0, __ATOMIC_RELEASE);
    child_check(pthread_join(thread, NULL) == 0);
}

CHILD(a_report_shows_the_stream_of_each_block) {
    plugin p = load();
    cudaStream_t stream = a_stream(), captured = a_stream();
    char *text, one[64], two[64];
    (void)user;
    snprintf(one, sizeof one, "\"0x%jx\"", (uintmax_t)(uintptr_t)stream);
    snprintf(two, sizeof two, "\"0x%jx\"", (uintmax_t)(uintptr_t)captured);
    child_check(p.alloc(1000, 0, stream) && p.alloc(24, 0, NULL));
    begin_capture(captured);
    child_check(p.alloc(1000, 0, captured) && p.save(in_folder("sites.json")) == 0);
    end_capture(captured);
    text = file_text(in_folder("sites.json"));
    child_check(text && strstr(text, "\"stream\"") && strstr(text, one) && strstr(text, two));
    free(text);
}

static void *backward(void *user) {
    const plugin *p = (const plugin *)user;
    child_check(prctl(PR_SET_NAME, "pt_autograd_0") == 0 && p->alloc(1000, 0, NULL));
    return NULL;
}

CHILD(a_backward_pass_has_the_tag_begun_last) {
    plugin p = load();
    pthread_t thread;
    char *text;
    (void)user;
    child_check(p.tag_begin("step") == 0);
    child_check(pthread_create(&thread, NULL, backward, &p) == 0);
    child_check(pthread_join(thread, NULL) == 0 && p.tag_end() == 0);
    child_check(p.save(in_folder("sites.json")) == 0);
    text = file_text(in_folder("sites.json"));
    child_check(text && strstr(text, "\"step\""));
    free(text);
}

/* -- the report, and the end of the process -- */

static void child_report(void *user) {
    plugin p = load();
    void *ptr = p.alloc(1000, 0, NULL);
    (void)user;
    child_check(ptr && p.save(in_folder("torch.txt")) == 0);
    child_check(p.save(in_folder("none/torch.json")) != 0);
    child_check(p.save(in_folder("torch.pickle")) == 0);
    exit(0); /* not _exit: the report is written now */
}

static void a_report_is_written_when_the_process_ends(void **state) {
    char *text, command[512];
    (void)state;
    setenv("MEMLORD_TORCH_REPORT", in_folder("torch.json"), 1);
    in_child(child_report, NULL);
    unsetenv("MEMLORD_TORCH_REPORT");
    text = file_text(in_folder("torch.json"));
    assert_non_null(text);
    assert_non_null(strstr(text, "\"memlord/2\""));
    assert_non_null(strstr(text, "cuda:0"));
    free(text);
    snprintf(command, sizeof command,
             "cd %s && python3 -c \"import pickle\n"
             "s = pickle.load(open('torch.pickle', 'rb'))\n"
             "assert sum(x['total_size'] for x in s['segments']) == 1000, s\n"
             "assert 'alloc' in [e['action'] for e in s['device_traces'][0]], s\"",
             folder);
    assert_int_equal(system(command), 0);
    text = file_text(in_folder("torch.txt"));
    assert_non_null(text);
    assert_non_null(strstr(text, "1000 B"));
    free(text);
}

/* The child of a parent that has a report already: what its exit handlers would write is seen. */
static void child_forks(void *user) {
    plugin p = load();
    void *ptr = p.alloc(1000, 0, NULL);
    pid_t child;
    int status = -1;
    (void)user;
    child_check(ptr && p.save(in_folder("fork.json")) == 0);
    child = fork();
    if (child == 0) {
        char text[256];
        void *none;
        child_check(p.torch_alloc(p.alloc, 24, 0, NULL, &none, text, sizeof text) == ANOTHER);
        child_check(p.segment_alloc(24, 0, NULL) == NULL);
        p.record_stream(ptr, NULL);
        p.free(ptr, 1000, 0, NULL); /* the parent's */
        p.empty_cache();
        child_check(p.pending(0) == 0 && p.allocated(0) == 1000);
        child_check(remove(in_folder("fork.json")) == 0);
        exit(0);
    }
    child_check(waitpid(child, &status, 0) == child && status == 0);
    child_check(!file_text(in_folder("fork.json")) && fake_live() == 1);
    exit(0);
}

static void a_forked_child_writes_no_report(void **state) {
    char *text;
    (void)state;
    setenv("MEMLORD_TORCH_REPORT", in_folder("fork.json"), 1);
    in_child(child_forks, NULL);
    unsetenv("MEMLORD_TORCH_REPORT");
    text = file_text(in_folder("fork.json"));
    assert_non_null(text);
    assert_non_null(strstr(text, "1000"));
    free(text);
}

static plugin last;
static void *last_ptr;
static void driver_unloads(void) {
    child_check(fake.events == 0); /* the allocator is attached no more: nothing samples */
    fake.sticky = cudaErrorCudartUnloading;
    last.free(last_ptr, 1000, 0, NULL);
}
static void child_exits(void *user) {
    (void)user;
    last = load();
    child_check(last.allocated(0) == 0); /* the driver is loaded, and then makes a context: */
    atexit(driver_unloads);
    last_ptr = last.alloc(1000, 0, NULL);
    last.record_stream(last_ptr, a_stream());
    last.free(last_ptr, 1000, 0, NULL);
    last_ptr = last.alloc(1000, 0, NULL);
    child_check(last_ptr && last.pending(0) == 0 && fake.events > 0);
    exit(0);
}

static void the_end_of_the_process_is_silent(void **state) {
    char *text;
    (void)state;
    text = said(child_exits, NULL);
    assert_non_null(text);
    assert_string_equal(text, "");
    free(text);
}

static void python_drives_it(void **state) {
    (void)state;
    assert_int_equal(system("python3 tests/torch/allocator.py"), 0);
}

static int folder_make(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}
static int folder_remove(void **state) {
    const char *const names[] = {"err", "sites.json", "fork.json", "torch.json", "torch.txt",
                                 "torch.pickle"};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof names / sizeof *names; i++) remove(in_folder(names[i]));
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_totals_are_what_torch_asked_for),
        cmocka_unit_test(what_no_device_has_is_refused),
        cmocka_unit_test(a_device_that_is_not_current_has_its_own_stream),
        cmocka_unit_test(a_pool_is_set_up_at_the_first_use_of_its_device),
        cmocka_unit_test(a_synchronisation_leaves_the_pool_its_memory),
        cmocka_unit_test(pools_are_open_to_the_devices_that_were_used),
        cmocka_unit_test(a_pool_stays_closed_to_devices_that_cannot_reach_it),
        cmocka_unit_test(no_context_comes_to_be_on_a_device_that_has_none),
        cmocka_unit_test(a_device_without_pools_has_plain_memory),
        cmocka_unit_test(nothing_is_trimmed_unasked),
        cmocka_unit_test(a_recorded_stream_holds_back_block_and_memory),
        cmocka_unit_test(its_own_stream_recorded_changes_nothing),
        cmocka_unit_test(a_recorded_stream_of_another_device_is_waited_for),
        cmocka_unit_test(any_number_of_blocks_may_be_used_by_other_streams),
        cmocka_unit_test(a_use_recorded_after_the_free_is_not_the_next_blocks),
        cmocka_unit_test(without_an_event_the_host_waits),
        cmocka_unit_test(a_block_of_before_a_capture_is_freed_after_it),
        cmocka_unit_test(a_used_block_is_freed_after_the_capture_of_the_other_stream),
        cmocka_unit_test(a_capture_that_begins_during_a_free_puts_that_off),
        cmocka_unit_test(a_capture_that_begins_on_the_blocks_stream_puts_its_free_off),
        cmocka_unit_test(a_block_of_a_capture_is_freed_in_it),
        cmocka_unit_test(a_block_of_a_side_stream_is_left_to_the_graph),
        cmocka_unit_test(a_block_of_a_capture_that_two_streams_use_is_left_to_the_graph),
        cmocka_unit_test(a_block_of_a_graph_that_never_ran_leaves_the_books),
        cmocka_unit_test(a_block_of_a_graph_that_ran_is_freed_in_stream_order),
        cmocka_unit_test(a_segment_outlives_the_capture_that_asks_for_it),
        cmocka_unit_test(a_memory_pool_has_segments_and_handles_their_lack_itself),
        cmocka_unit_test(two_captures_at_once_leave_each_other_alone),
        cmocka_unit_test(an_allocation_that_finds_no_memory_is_tried_again),
        cmocka_unit_test(while_a_stream_is_captured_an_allocation_is_tried_once),
        cmocka_unit_test(another_error_is_an_exception_of_its_own),
        cmocka_unit_test(a_device_that_cannot_be_set_up_is_tried_again_later),
        cmocka_unit_test(a_memory_fraction_is_a_limit),
        cmocka_unit_test(a_number_of_retries_that_is_none_is_said_once),
        cmocka_unit_test(a_number_of_retries_counts),
        cmocka_unit_test(without_a_driver_it_says_once_what_is_not_there),
        cmocka_unit_test(a_script_gives_blocks_their_tag_and_place),
        cmocka_unit_test(a_forked_child_makes_sites),
        cmocka_unit_test(a_report_shows_the_stream_of_each_block),
        cmocka_unit_test(a_backward_pass_has_the_tag_begun_last),
        cmocka_unit_test(a_report_is_written_when_the_process_ends),
        cmocka_unit_test(a_forked_child_writes_no_report),
        cmocka_unit_test(the_end_of_the_process_is_silent),
        cmocka_unit_test(python_drives_it),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
