/*
    torch_allocator.cpp - libmemlord_torch.so: an allocator for PyTorch that keeps books

    PyTorch has no statistics for allocators of this kind; this one has MemLord's. It works as
    PyTorch's own backend "cudaMallocAsync" does: memory comes from the device's pool in stream
    order, stays in the pool until something asks for it, and never makes a stream wait. Use:

        import memlord_torch                        # examples/torch/memlord_torch.py
        memlord_torch.install("build/libmemlord_torch.so")  # before anything is on the GPU
        with memlord_torch.tag("weights"): model = Model().cuda()
        memlord_torch.report("memory.html")

    examples/torch/README.md has the rest: graphs, torch.cuda.MemPool, limits.

    Environment: MEMLORD_TORCH_REPORT=file writes a report when the process ends, in the format its
    suffix names as with memlord_format_for: .json, .html, .pickle for pytorch.org/memory_viz and so
    on (%p in it is the process; a forked child writes none). MEMLORD_TORCH_RETRIES=n is how often
    to try again when memory has run out (0 to 1000; without it as memlord_alloc_retry does).
*/
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#define MEMLORD_CUDA_IMPLEMENTATION
#include "memlord_cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h> /* ssize_t */

#include <algorithm>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

memlord *lord();
void settle(int device);
void sample(int device);

} // namespace

#include "torch/script.h"

/* -- what PyTorch calls, by the types of CUDAPluggableAllocator. Those that throw are marked. -- */
EXPORT void *memlord_torch_alloc(ssize_t size, int device, cudaStream_t stream); /* throws */
EXPORT void memlord_torch_free(void *ptr, ssize_t size, int device, cudaStream_t stream);
EXPORT void memlord_torch_record_stream(void *ptr, cudaStream_t stream);
EXPORT void memlord_torch_empty_cache(void);                                /* set_reset_fn */
EXPORT void memlord_torch_set_memory_fraction(double fraction, int device); /* throws */
/* For torch.cuda.MemPool: cudaMalloc, and NULL when memory has run out, as PyTorch tries again. */
EXPORT void *memlord_torch_segment_alloc(ssize_t size, int device, cudaStream_t stream);

namespace {

/* -- the driver: it enters a device's context without making another one. cudaSetDevice does not
   do: to set back the device that was current creates its context, since CUDA 12. -- */

struct driver_table {
    int (*init)(unsigned);
    int (*device_get)(int *device, int ordinal);
    int (*primary_state)(int device, unsigned *flags, int *active);
    int (*primary_retain)(void **context, int device);
    int (*context_push)(void *context);
    int (*context_pop)(void **context);
    int (*stream_context)(cudaStream_t stream, void **context);
    bool ready;
};

template <class F> bool find(void *library, const char *name, F *fn) {
    void *found = dlsym(library, name);
    memcpy(fn, &found, sizeof found);
    return found != nullptr;
}

/* The blocks that are not plain blocks of a pool; the others are in no table. */
struct block_note {
    bool plain = false;             /* cudaMalloc's */
    uint64_t capture = 0;           /* the capture it belongs to; 0: none */
    std::vector<cudaStream_t> used; /* recorded streams */
};

struct block {
    void *ptr;
    int device;
    cudaStream_t stream; /* it was allocated on */
    block_note note;
};

struct device_state {
    void *context = nullptr;        /* retained until the process ends */
    bool ready = false;             /* used at least once; the fields below are set */
    bool pools = false;             /* cudaMallocAsync works */
    cudaMemPool_t pool = nullptr;
    cudaStream_t frees = nullptr;   /* waits for other streams, and frees what they used */
};

struct allocator {
    pthread_once_t once = PTHREAD_ONCE_INIT;
    memlord *lord = nullptr; /* NULL: MemLord is off, and the memory comes all the same */
    driver_table driver = {};
    bool finished = false;
    bool forked = false; /* this process is a forked child: CUDA does not survive that */
    std::mutex lock;     /* of all that follows; not held while memory is allocated or freed */
    device_state devices[MAX_DEVICES];
    std::unordered_map<void *, block_note> notes;
    std::vector<block> parked;      /* freed, but not before a capture is over */
    bool capturing = false;
    uint64_t captures = 0;          /* seen so far */
    cudaStream_t origin = nullptr;  /* the first stream seen of the capture under way */
};

/* Never destroyed: libraries free their last tensors as the process ends. */
allocator &torch = *new allocator;

thread_local bool allocating;              /* this thread waits for memory on allocating_on */
thread_local cudaStream_t allocating_on;

/* The host's thread has the same last error when a call is over as when it began. */
class quiet {
    const bool clean = cudaPeekAtLastError() == cudaSuccess;

public:
    ~quiet() {
        if (clean) (void)cudaGetLastError();
    }
};

/* Allows this thread what a capture on another thread forbids. */
class relaxed {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

public:
    relaxed() { (void)cudaThreadExchangeStreamCaptureMode(&mode); }
    ~relaxed() { (void)cudaThreadExchangeStreamCaptureMode(&mode); }
    bool before() const { return mode == cudaStreamCaptureModeRelaxed; }
};

/* This thread is inside a context; NULL: where it was. */
class inside {
    const bool entered;

public:
    explicit inside(void *context)
        : entered(context && torch.driver.ready && torch.driver.context_push(context) == 0) {}
    ~inside() {
        void *context;
        if (entered) (void)torch.driver.context_pop(&context);
    }
    inside(const inside &) = delete;
    inside &operator=(const inside &) = delete;
};

class out_of_memory : public std::bad_alloc {
    char text[640];

public:
    out_of_memory(ssize_t size, int device);
    const char *what() const noexcept override { return text; }
};

/* -- the ledger, made by the first call -- */

/* true if no stream can be asked, as a blocking one is captured: the legacy default stream cannot
   be used then. A stream that is gone is not captured. */
bool is_captured(cudaStream_t stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t r = cudaStreamIsCapturing(stream, &status);
    return r == cudaErrorStreamCaptureImplicit ||
           (r == cudaSuccess && status != cudaStreamCaptureStatusNone);
}

/* What was freed on the stream that lacks memory returns to the pool once it is done. No other
   stream is waited for. */
memlord_gc_result wait_for_stream(void *, memlord *, const memlord_gc_event *) {
    memlord_gc_result result = {0, 0, 0};
    relaxed mode;
    if (allocating && !is_captured(allocating_on))
        result.ran = cudaStreamSynchronize(allocating_on) == cudaSuccess;
    return result;
}

/* Handlers added last run first: this one is added after the driver has been loaded, and again
   after it has made a context, so that it runs before the driver unloads itself. */
void finish() {
    if (torch.forked || torch.finished || !torch.lord) return;
    torch.finished = true;
    save_at_exit();
    (void)memlord_poller_stop(torch.lord);
    (void)memlord_cuda_detach(torch.lord);
}

void fork_before() { torch.lock.lock(); }
void fork_parent() { torch.lock.unlock(); }
void fork_child() {
    torch.forked = true;
    torch.lock.unlock();
}

/* NULL: the ledger's own policy. */
const memlord_retry *policy_from_environment(memlord_retry *policy) {
    const char *text = getenv("MEMLORD_TORCH_RETRIES");
    char *end = nullptr;
    long n;
    if (!text || !*text) return nullptr;
    n = strtol(text, &end, 10);
    if (end == text || *end || n < 0 || n > 1000) {
        fprintf(stderr, "memlord_torch: MEMLORD_TORCH_RETRIES=%s is ignored: not a number from 0 "
                        "to 1000\n", text);
        return nullptr;
    }
    policy->max_retries = (uint32_t)n;
    return policy;
}

void driver_load() {
    driver_table &d = torch.driver;
    void *library = dlopen(MEMLORD_CUDA_DRIVER, RTLD_NOW | RTLD_LOCAL);
    d.ready = library && find(library, "cuInit", &d.init) &&
              find(library, "cuDeviceGet", &d.device_get) &&
              find(library, "cuDevicePrimaryCtxGetState", &d.primary_state) &&
              find(library, "cuDevicePrimaryCtxRetain", &d.primary_retain) &&
              find(library, "cuCtxPushCurrent_v2", &d.context_push) &&
              find(library, "cuCtxPopCurrent_v2", &d.context_pop) &&
              find(library, "cuStreamGetCtx", &d.stream_context) && d.init(0) == 0;
}

void start() {
    memlord_retry policy = {5, 50, 2000, 1.5, nullptr, nullptr};
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_RETRY, 0, nullptr, nullptr};
    memlord_desc ledger = {};
    desc.retry = policy_from_environment(&policy);
    ledger.flags = MEMLORD_FLAG_SITES;
    ledger.event_capacity = 1 << 16; /* what a timeline, and memory_viz, are made of: 2 MiB */
    driver_load();
    if (memlord_create(&ledger, &torch.lord) == MEMLORD_OK) {
        (void)memlord_gc_callback_add(torch.lord, gpu(-1), 1u << MEMLORD_REASON_OOM,
                                      wait_for_stream, nullptr);
        memlord_result r = memlord_cuda_attach(torch.lord, &desc);
        const char *why = r == MEMLORD_E_UNSUPPORTED ? memlord_cuda_why() : memlord_result_text(r);
        if (r != MEMLORD_OK) fprintf(stderr, "memlord_torch: no GPU: %s\n", why);
    }
    /* after the driver has added its own handlers: these run before them */
    (void)pthread_atfork(fork_before, fork_parent, fork_child);
    (void)atexit(finish);
}

memlord *lord() {
    (void)pthread_once(&torch.once, start);
    return torch.lord;
}

out_of_memory::out_of_memory(ssize_t size, int device) {
    /* hosts look for these first words */
    int n = snprintf(text, sizeof text, "CUDA out of memory. Tried to allocate %zd bytes: ", size);
    (void)memlord_explain(lord(), gpu(device), size < 0 ? 0 : (uint64_t)size, text + n,
                          sizeof text - (size_t)n);
}

/* -- devices -- */

/* Lets every two devices that were used read each other's pools: cudaDeviceEnablePeerAccess, which
   is all that PyTorch does for allocators of this kind, opens cudaMalloc's memory alone. */
void peer_grant(int from, int to) {
    cudaMemAccessDesc access;
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, to, from) != cudaSuccess || !can) return;
    memset(&access, 0, sizeof access);
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = to;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    (void)cudaMemPoolSetAccess(torch.devices[from].pool, &access, 1);
}

/* Sets the pool up as PyTorch does. Requires: the lock; this thread is inside the device. */
cudaError_t device_prepare(int device) {
    device_state &d = torch.devices[device];
    uint64_t all = UINT64_MAX;
    int on = 1, supported = 0, other;
    relaxed mode;
    cudaError_t r = cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device);
    if (r == cudaSuccess && !d.frees)
        r = cudaStreamCreateWithFlags(&d.frees, cudaStreamNonBlocking);
    if (r == cudaSuccess && supported) r = cudaDeviceGetDefaultMemPool(&d.pool, device);
    if (r != cudaSuccess) return r;
    (void)atexit(finish);
    d.pools = supported != 0;
    d.ready = true;
    if (!d.pools) return cudaSuccess;
    (void)cudaMemPoolSetAttribute(d.pool, cudaMemPoolAttrReleaseThreshold, &all);
    (void)cudaMemPoolSetAttribute(d.pool, cudaMemPoolReuseFollowEventDependencies, &on);
    (void)cudaMemPoolSetAttribute(d.pool, cudaMemPoolReuseAllowOpportunistic, &on);
    (void)cudaMemPoolSetAttribute(d.pool, cudaMemPoolReuseAllowInternalDependencies, &on);
    for (other = 0; other < MAX_DEVICES; other++)
        if (other != device && torch.devices[other].pools) {
            peer_grant(other, device);
            peer_grant(device, other);
        }
    return cudaSuccess;
}

/* The device's context. Makes one only with `make`, and returns NULL where there is none. */
void *device_context(int device, bool make) {
    int handle = 0, active = 0;
    unsigned flags = 0;
    (void)lord();
    if (device < 0 || device >= MAX_DEVICES || !torch.driver.ready) return nullptr;
    std::lock_guard<std::mutex> hold(torch.lock);
    void *&context = torch.devices[device].context;
    if (context || torch.driver.device_get(&handle, device)) return context;
    if (!make && (torch.driver.primary_state(handle, &flags, &active) || !active)) return nullptr;
    if (torch.driver.primary_retain(&context, handle)) context = nullptr;
    return context;
}

/* -- captures. No list of them is to be had: one is known from the first allocation or free on a
   captured stream until that stream is captured no longer. -- */

/* Requires: the lock. */
bool capture_known() {
    if (torch.capturing && !is_captured(torch.origin)) torch.capturing = false;
    return torch.capturing;
}

/* Requires: the lock; the stream is captured. Returns the number of the capture. */
uint64_t capture_note(cudaStream_t stream) {
    if (!capture_known()) {
        torch.capturing = true;
        torch.origin = stream;
        torch.captures++;
    }
    return torch.captures;
}

/* -- frees -- */

/* Makes one stream wait for what another was given so far; default streams are those of the device
   this thread is in. Returns false if the other is captured: to wait would join its capture. */
bool stream_after(cudaStream_t later, cudaStream_t earlier) {
    void *context = nullptr;
    cudaEvent_t event = nullptr;
    if ((uintptr_t)earlier > 2 && torch.driver.stream_context(earlier, &context)) context = nullptr;
    inside stream(context); /* an event serves the streams of its own context alone */
    cudaError_t r = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (r == cudaSuccess) r = cudaEventRecord(event, earlier);
    const bool captured = is_captured(earlier); /* or it was not when the event was recorded */
    if (r == cudaSuccess && !captured) r = cudaStreamWaitEvent(later, event, 0);
    if (event) (void)cudaEventDestroy(event);
    if (r != cudaSuccess && !captured) (void)cudaStreamSynchronize(earlier);
    return !captured;
}

cudaError_t block_release(const block &b) {
    const block_note &note = b.note;
    cudaStream_t frees;
    if (note.plain) { /* cudaFree knows no streams */
        relaxed mode;
        (void)cudaStreamSynchronize(b.stream);
        for (cudaStream_t used : note.used) (void)cudaStreamSynchronize(used);
        return memlord_cuda_free(lord(), b.ptr, nullptr);
    }
    {
        std::lock_guard<std::mutex> hold(torch.lock);
        frees = torch.devices[b.device].frees;
    }
    if (note.used.empty() || !frees)
        return memlord_cuda_free_async(lord(), b.ptr, b.stream, nullptr);
    bool after = stream_after(frees, b.stream);
    for (cudaStream_t used : note.used) after = after && stream_after(frees, used);
    if (!after) return cudaErrorStreamCaptureUnsupported;
    return memlord_cuda_free_async_after(lord(), b.ptr, frees, nullptr);
}

/* Keeps what a capture forbids to free for later. In its capture a block may be freed where the
   capture began: the graph then reuses its memory. Elsewhere it may not, as the stream may have
   joined that one already, and work left behind would end the capture with an error. */
bool block_park(block *b, bool park = false) {
    std::lock_guard<std::mutex> hold(torch.lock);
    for (cudaStream_t used : b->note.used)
        if (is_captured(used)) {
            (void)capture_note(used);
            park = true;
        }
    if (is_captured(b->stream)) {
        uint64_t capture = capture_note(b->stream);
        park = park || b->note.capture != capture || b->stream != torch.origin ||
               !b->note.used.empty();
    }
    if (b->note.plain && capture_known()) park = true; /* it would wait for the device */
    if (park) torch.parked.push_back(std::move(*b));
    return park;
}

/* Frees a block, or parks it if a capture has begun meanwhile. One of a graph that has not run yet
   is no memory: it leaves the books, and the graph keeps its place for it. */
void block_end(block *b) {
    cudaError_t r = block_release(*b);
    if (r == cudaSuccess || r == cudaErrorCudartUnloading) return;
    if (block_park(b, r == cudaErrorStreamCaptureUnsupported)) return;
    if (r == cudaErrorInvalidValue && b->note.capture)
        (void)memlord_free(lord(), gpu(b->device), MEMLORD_KEY(b->ptr), nullptr);
    else
        fprintf(stderr, "memlord_torch: a block could not be freed: %s\n", cudaGetErrorString(r));
}

/* Frees what was parked, if the capture is over. */
void unpark() {
    std::vector<block> ready;
    if (torch.forked) return;
    {
        std::lock_guard<std::mutex> hold(torch.lock);
        if (torch.parked.empty() || capture_known()) return;
        ready.swap(torch.parked);
    }
    quiet errors;
    for (block &b : ready) {
        inside device(device_context(b.device, false));
        if (!block_park(&b)) block_end(&b);
    }
}

/* Brings the books up to date. */
void settle(int device) {
    if (torch.forked) return;
    unpark();
    (void)memlord_retire(lord(), gpu(device));
    gpus_each(device, [](memlord_device d) { (void)memlord_cuda_pool_refresh(lord(), d.index); });
}
void sample(int device) {
    if (torch.forked) return;
    gpus_each(device, [](memlord_device d) { (void)memlord_capacity_sample(lord(), d); });
}

/* -- allocations -- */

struct request {
    void *ptr;
    size_t size;
    int device;
    cudaStream_t stream;
    bool segment; /* it outlives the capture that asks for it: cudaMalloc */
    block_note note;
};

cudaError_t request_call(memlord *books, request *q, const memlord_site *site) {
    if (!q->note.plain) return memlord_cuda_malloc_async(books, &q->ptr, q->size, q->stream, site);
    relaxed mode;
    return memlord_cuda_malloc(books, &q->ptr, q->size, site);
}

/* One attempt: a collection might end a capture, and for segments PyTorch tries again itself. */
cudaError_t request_once(request *q, const memlord_site *site) {
    memlord_ticket ticket = 0;
    cudaError_t r = cudaErrorMemoryAllocation;
    if (memlord_reserve(lord(), gpu(q->device), q->size, &ticket) != MEMLORD_E_LIMIT)
        r = request_call(nullptr, q, site);
    if (r == cudaSuccess)
        (void)memlord_alloc(lord(), gpu(q->device), MEMLORD_KEY(q->ptr), q->size, site);
    if (r == cudaErrorMemoryAllocation)
        (void)memlord_alloc_failed(lord(), gpu(q->device), q->size, site);
    if (ticket) (void)memlord_reserve_commit(lord(), ticket);
    return r;
}

/* PyTorch allows this thread what a capture forbids around what outlives the capture: the segments
   of a MemPool. */
cudaError_t request_prepare(request *q, bool *once) {
    bool captured = is_captured(q->stream), outlives = captured && relaxed().before();
    std::lock_guard<std::mutex> hold(torch.lock);
    device_state &d = torch.devices[q->device];
    cudaError_t r = d.ready ? cudaSuccess : device_prepare(q->device);
    q->note.plain = q->segment || !d.pools || outlives;
    if (captured) {
        uint64_t capture = capture_note(q->stream);
        if (!q->note.plain) q->note.capture = capture;
    }
    *once = captured || capture_known() || q->segment;
    return r;
}

cudaError_t request_run(request *q, const memlord_site *site) {
    bool once = false;
    cudaError_t r = request_prepare(q, &once);
    if (r != cudaSuccess) return r;
    uint64_t stream = (uintptr_t)q->stream > 2 ? MEMLORD_KEY(q->stream) : 0;
    stream = memlord_stream_set(lord(), stream);
    if (once) {
        r = request_once(q, site);
    } else {
        allocating = true;
        allocating_on = q->stream;
        r = request_call(lord(), q, site);
        allocating = false;
    }
    (void)memlord_stream_set(lord(), stream);
    if (r == cudaSuccess) {
        std::lock_guard<std::mutex> hold(torch.lock);
        torch.notes.erase(q->ptr); /* of a block that another way than ours has freed */
        if (q->note.plain || q->note.capture) torch.notes[q->ptr] = q->note;
    }
    return r;
}

cudaError_t allocate(request *q, void *caller) {
    void *context = device_context(q->device, true);
    if (!context) return torch.driver.ready ? cudaErrorInvalidDevice : cudaErrorInsufficientDriver;
    quiet errors;
    inside device(context);
    unpark();
    tag_for_backward();
    return request_run(q, site_now ? site_now : memlord_site_at(lord(), caller));
}

request request_for(ssize_t size, int device, cudaStream_t stream, bool segment) {
    request q;
    q.ptr = nullptr;
    q.size = (size_t)size;
    q.device = device;
    q.stream = stream;
    q.segment = segment;
    return q;
}

} // namespace

/* -- what PyTorch calls -- */

/* PyTorch uses what it gets unseen: it gets no NULL, but an exception, which Python sees as
   RuntimeError or MemoryError, by the version. */
void *memlord_torch_alloc(ssize_t size, int device, cudaStream_t stream) {
    if (size == 0) return nullptr;
    if (torch.forked) throw std::runtime_error("memlord_torch: no CUDA in a forked child");
    if (size < 0 || size >> 48) throw out_of_memory(size, device);
    request q = request_for(size, device, stream, false);
    cudaError_t r = allocate(&q, __builtin_return_address(0));
    if (r == cudaErrorMemoryAllocation) throw out_of_memory(size, device);
    if (r != cudaSuccess)
        throw std::runtime_error(std::string("memlord_torch: ") + cudaGetErrorString(r));
    return q.ptr;
}

void *memlord_torch_segment_alloc(ssize_t size, int device, cudaStream_t stream) {
    if (size <= 0 || size >> 48 || torch.forked) return nullptr;
    request q = request_for(size, device, stream, true);
    return allocate(&q, __builtin_return_address(0)) == cudaSuccess ? q.ptr : nullptr;
}

void memlord_torch_free(void *ptr, ssize_t, int device, cudaStream_t stream) {
    block b = {ptr, device, stream, block_note()};
    if (!ptr || torch.forked) return;
    void *context = device_context(device, false);
    {
        std::lock_guard<std::mutex> hold(torch.lock);
        auto at = torch.notes.find(ptr);
        if (at != torch.notes.end()) {
            b.note = std::move(at->second);
            std::vector<cudaStream_t> &used = b.note.used; /* its own says nothing new */
            used.erase(std::remove(used.begin(), used.end(), stream), used.end());
            torch.notes.erase(at);
        }
    }
    if (!context) return; /* nothing was allocated there */
    quiet errors;
    inside entered(context);
    unpark();
    if (!block_park(&b)) block_end(&b);
}

void memlord_torch_record_stream(void *ptr, cudaStream_t stream) {
    memlord_block_info info;
    if (!ptr || torch.forked) return;
    if (lord() && memlord_block_find(lord(), gpu(0), MEMLORD_KEY(ptr), &info) != MEMLORD_OK) return;
    std::lock_guard<std::mutex> hold(torch.lock);
    std::vector<cudaStream_t> &used = torch.notes[ptr].used;
    if (std::find(used.begin(), used.end(), stream) == used.end()) used.push_back(stream);
}

void memlord_torch_empty_cache(void) {
    if (!lord() || torch.forked) return;
    unpark();
    {
        std::lock_guard<std::mutex> hold(torch.lock);
        if (capture_known()) return;
    }
    gpus_each(-1, [](memlord_device device) {
        (void)memlord_gc_run(lord(), device, MEMLORD_REASON_HOST, 0, nullptr);
    });
}

/* The size of a device may be unknown before it has a context: PyTorch has one by then. */
void memlord_torch_set_memory_fraction(double fraction, int device) {
    (void)device_context(device, !torch.forked);
    int r = memlord_torch_limit_fraction(device, fraction);
    if (r) throw std::runtime_error(std::string("memlord_torch: ") + memlord_torch_error(r));
}
