/*
    torch_allocator.c - libmemlord_torch.so: an allocator for PyTorch that keeps books

    PyTorch has no statistics for allocators of this kind; this one has MemLord's. Memory comes from
    the device's pool in stream order, and one that is full is trimmed and tried again. Use:

        alloc = torch.cuda.memory.CUDAPluggableAllocator(
            "build/libmemlord_torch.so", "memlord_torch_alloc", "memlord_torch_free")
        lib = ctypes.CDLL("build/libmemlord_torch.so")
        alloc.allocator().set_record_stream_fn(
            ctypes.cast(lib.memlord_torch_record_stream, ctypes.c_void_p).value)
        torch.cuda.memory.change_current_allocator(alloc)      # before anything is on the GPU
        lib.memlord_torch_allocated.restype = ctypes.c_uint64  # and so on: the functions below

    Environment: MEMLORD_TORCH_REPORT=file writes a report when the process ends, in the format its
    suffix names as with memlord_format_for: .json, .html, .pickle for pytorch.org/memory_viz and so
    on (%p in it is the process). MEMLORD_TORCH_RETRIES=n is how often to try again (5).
*/
#define _GNU_SOURCE
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#define MEMLORD_CUDA_IMPLEMENTATION
#include "memlord_cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h> /* ssize_t */

#define EXPORT __attribute__((visibility("default")))
EXPORT void *memlord_torch_alloc(ssize_t size, int device, cudaStream_t stream);
EXPORT void memlord_torch_free(void *ptr, ssize_t size, int device, cudaStream_t stream);
EXPORT void memlord_torch_record_stream(void *ptr, cudaStream_t stream);
EXPORT void memlord_torch_empty_cache(void); /* set_reset_fn */
EXPORT uint64_t memlord_torch_allocated(int device); /* bytes; device -1: of all */
EXPORT uint64_t memlord_torch_pending(int device);
EXPORT uint64_t memlord_torch_peak(int device);
EXPORT uint64_t memlord_torch_reserved(int device);
EXPORT uint64_t memlord_torch_recoveries(int device); /* allocations that a retry saved */
EXPORT void memlord_torch_peak_reset(int device);
EXPORT int memlord_torch_save(const char *path); /* 0: written */

/* -- the ledger, made by the first call -- */

static struct {
    pthread_once_t once;
    memlord *lord; /* NULL: MemLord is off, and the memory comes all the same */
} torch = {PTHREAD_ONCE_INIT, NULL};

static void start(void) {
    const char *retries = getenv("MEMLORD_TORCH_RETRIES");
    memlord_retry policy = {5, 50, 2000, 1.5, NULL, NULL};
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_RETRY | MEMLORD_CUDA_FLAG_SYNC, 0, &policy, NULL};
    memlord_desc ledger = {0};
    ledger.flags = MEMLORD_FLAG_SITES;
    ledger.event_capacity = 1 << 16; /* what a timeline, and memory_viz, are made of: 2 MiB */
    if (retries) policy.max_retries = (uint32_t)strtoul(retries, NULL, 10);
    if (memlord_create(&ledger, &torch.lord) != MEMLORD_OK) return;
    if (memlord_cuda_attach(torch.lord, &desc) != MEMLORD_OK)
        fprintf(stderr, "memlord_torch: no GPU to attach to\n");
}

static memlord *lord(void) {
    (void)pthread_once(&torch.once, start);
    return torch.lord;
}

static memlord_device gpu(int device) {
    return memlord_device_make(MEMLORD_DEVICE_CUDA, device < 0 ? MEMLORD_ANY : device);
}

/* -- who else uses a block: their work has to be over before its stream may have it back -- */

enum { USES = 4096 };
typedef struct use {
    void *ptr;
    cudaStream_t stream;
} use;
static struct {
    pthread_mutex_t lock;
    use list[USES];
    int n;
} uses = {PTHREAD_MUTEX_INITIALIZER, {{NULL, NULL}}, 0};

static int use_add(void *ptr, cudaStream_t stream) {
    int i = 0, added;
    pthread_mutex_lock(&uses.lock);
    while (i < uses.n && (uses.list[i].ptr != ptr || uses.list[i].stream != stream)) i++;
    added = i < USES;
    if (i == uses.n && added) {
        uses.list[uses.n].ptr = ptr;
        uses.list[uses.n++].stream = stream;
    }
    pthread_mutex_unlock(&uses.lock);
    return added;
}

static int use_take(void *ptr, cudaStream_t *stream) {
    int i = 0, found;
    pthread_mutex_lock(&uses.lock);
    while (i < uses.n && uses.list[i].ptr != ptr) i++;
    found = i < uses.n;
    if (found) {
        *stream = uses.list[i].stream;
        uses.list[i] = uses.list[--uses.n];
    }
    pthread_mutex_unlock(&uses.lock);
    return found;
}

/* Makes one stream wait for what another was given so far. */
static cudaError_t stream_after(cudaStream_t later, cudaStream_t earlier) {
    cudaEvent_t event;
    cudaError_t r = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (r != cudaSuccess) return r;
    r = cudaEventRecord(event, earlier);
    if (r == cudaSuccess) r = cudaStreamWaitEvent(later, event, 0);
    (void)cudaEventDestroy(event);
    return r;
}

/* -- what PyTorch calls: it names a device, but does not make it current, and NULL is the stream of
   the device that is -- */

/* Answers which was current before, -1: that one, or none. */
static int device_enter(int device) {
    int before;
    if (device < 0 || cudaGetDevice(&before) != cudaSuccess || before == device) return -1;
    return cudaSetDevice(device) == cudaSuccess ? before : -1;
}
static void device_leave(int before) {
    if (before >= 0) (void)cudaSetDevice(before);
}

/* PyTorch does not look at a NULL: say why there is one. */
void *memlord_torch_alloc(ssize_t size, int device, cudaStream_t stream) {
    const memlord_site *site = memlord_site_at(lord(), __builtin_return_address(0));
    void *ptr = NULL;
    char text[512];
    cudaError_t r;
    int before;
    if (size <= 0) return NULL;
    before = device_enter(device);
    r = memlord_cuda_malloc_async(lord(), &ptr, (size_t)size, stream, site);
    device_leave(before);
    if (r == cudaSuccess) return ptr;
    memlord_explain(lord(), gpu(device < 0 ? 0 : device), (uint64_t)size, text, sizeof text);
    fprintf(stderr, "memlord_torch: %s: %s\n", cudaGetErrorString(r), text);
    return NULL;
}

void memlord_torch_free(void *ptr, ssize_t size, int device, cudaStream_t stream) {
    cudaStream_t other;
    int before;
    (void)size;
    if (!ptr) return;
    before = device_enter(device);
    while (use_take(ptr, &other))
        if (stream_after(stream, other) != cudaSuccess) (void)cudaStreamSynchronize(other);
    if (memlord_cuda_free_async(lord(), ptr, stream, NULL) != cudaSuccess)
        fprintf(stderr, "memlord_torch: a block could not be freed\n");
    device_leave(before);
}

void memlord_torch_record_stream(void *ptr, cudaStream_t stream) {
    memlord_block_info block;
    int before = -1;
    if (lord() && memlord_block_find(lord(), gpu(0), MEMLORD_KEY(ptr), &block) == MEMLORD_OK)
        before = device_enter(block.device.index);
    (void)memlord_cuda_record_use(lord(), ptr, stream);
    if (!use_add(ptr, stream)) (void)cudaStreamSynchronize(stream); /* no room to remember it */
    device_leave(before);
}

void memlord_torch_empty_cache(void) {
    memlord_device devices[64];
    size_t i, n = memlord_devices(lord(), devices, 64);
    for (i = 0; i < n && i < 64; i++)
        if (devices[i].type == MEMLORD_DEVICE_CUDA)
            (void)memlord_gc_run(lord(), devices[i], MEMLORD_REASON_HOST, NULL);
}

/* -- what a script asks -- */

uint64_t memlord_torch_allocated(int device) { return memlord_allocated(lord(), gpu(device)); }
uint64_t memlord_torch_peak(int device) { return memlord_peak(lord(), gpu(device)); }
void memlord_torch_peak_reset(int device) { memlord_peak_reset(lord(), gpu(device)); }
uint64_t memlord_torch_pending(int device) {
    (void)memlord_retire(lord(), gpu(device));
    return memlord_pending(lord(), gpu(device));
}
uint64_t memlord_torch_reserved(int device) {
    memlord_stats s;
    if (device >= 0) (void)memlord_cuda_pool_refresh(lord(), device);
    return memlord_stats_get(lord(), gpu(device), &s) == MEMLORD_OK ? s.reserved : 0;
}
uint64_t memlord_torch_recoveries(int device) {
    memlord_stats s;
    return memlord_stats_get(lord(), gpu(device), &s) == MEMLORD_OK ? s.recoveries : 0;
}

int memlord_torch_save(const char *path) {
    return memlord_save(lord(), memlord_format_for(path), path) != MEMLORD_OK;
}

__attribute__((destructor)) static void finish(void) {
    const char *path = getenv("MEMLORD_TORCH_REPORT");
    if (!torch.lord || !path || !*path) return;
    if (memlord_torch_save(path)) fprintf(stderr, "memlord_torch: could not write %s\n", path);
}
