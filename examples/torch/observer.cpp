/*
    observer.cpp - libmemlord_torch_observer.so: the books of PyTorch's own CUDA allocator

    PyTorch allocates as it always does. This library listens to its allocator's trace (PyTorch 2.2
    and later) and keeps MemLord's books of it. README.md, beside this file, has four lines to
    start and what the numbers mean.

    The tracker runs under the lock of PyTorch's allocator. So it calls the ledger and nothing else,
    and the ledger runs no code of the host there (MEMLORD_FLAG_DEFER). Order of locks: the
    allocator's of a device, then ours of that device.

    Environment: MEMLORD_TORCH_REPORT=file writes a report when the process ends, in the format its
    suffix names, as with memlord_format_for (%p in it is the process; a forked child writes none).
*/
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/api/include/torch/version.h> // TORCH_VERSION

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>

namespace {

memlord *lord();
void settle(int device);
void sample(int device);

} // namespace

#include "script.h"

/* Begins to listen. Requires: PyTorch's allocator is ready (torch.cuda.init()), and is of the
   version that this library was built for, as it calls virtual functions whose order differs
   between versions (memlord_torch.py compares the two first).
   Returns E_STATE it is not, or this is a forked child; E_UNSUPPORTED another allocator, which has
   no trace, is in its place. */
EXPORT int memlord_torch_attach(void);
/* The version of PyTorch that this library was built for: "2.4.0". */
EXPORT const char *memlord_torch_built_for(void);
/* Makes the Python line that allocates the site of each block, and 0 ends that. Lines of files
   whose names begin with `passed_over` (the folder of torch; may be NULL) are passed over, if
   there is one outside of them. Costs about a microsecond an allocation.
   Returns E_STATE not attached, or torch.cuda.memory._record_memory_history is on, whose place in
   the allocator this takes; E_UNSUPPORTED there is no Python. */
EXPORT int memlord_torch_frames(int on, const char *passed_over);
EXPORT void memlord_torch_empty_cache(void); /* torch.cuda.empty_cache */
/* Entries of the trace that were of no use: of an unknown device, or lost for want of memory. */
EXPORT uint64_t memlord_torch_lost(void);

/* Python's functions, if this process has them: no header of Python's is needed, and any version
   serves. */
extern "C" {
typedef struct _object PyObject;
#define OPTIONAL __attribute__((weak))
OPTIONAL int Py_IsInitialized(void);
OPTIONAL void *PyGILState_GetThisThreadState(void);
OPTIONAL int PyGILState_Ensure(void);
OPTIONAL void PyGILState_Release(int state);
OPTIONAL PyObject *PyEval_GetFrame(void);
OPTIONAL PyObject *PyFrame_GetCode(PyObject *frame);
OPTIONAL PyObject *PyFrame_GetBack(PyObject *frame);
OPTIONAL int PyFrame_GetLineNumber(PyObject *frame);
OPTIONAL PyObject *PyObject_GetAttrString(PyObject *o, const char *name);
OPTIONAL const char *PyUnicode_AsUTF8(PyObject *text);
OPTIONAL void PyErr_Clear(void);
OPTIONAL void Py_IncRef(PyObject *o);
OPTIONAL void Py_DecRef(PyObject *o);
}

namespace {

namespace cca = c10::cuda::CUDACachingAllocator;
using cca::TraceEntry;

/* What the trace said of an address while the snapshot was not yet in the books. */
enum class seen { LIVE, GONE, REQUESTED /* its free, and the alloc was before the trace */ };

struct device_books {
    std::mutex lock;                          /* of all that follows */
    uint64_t requested = 0;                   /* its free was requested by the last entry; or 0 */
    bool grew = false;                        /* a segment was added for the next alloc */
    uint64_t rounding = 0;                    /* the arena balance in the ledger */
    bool attaching = false;                   /* the snapshot is not yet in the books */
    int64_t grown = 0;                        /* bytes of segments since the snapshot */
    std::unordered_map<uint64_t, seen> trace; /* by address, while attaching */
    std::atomic<uint64_t> free{0}, total{0};  /* of the device, when it was last asked */
};

struct observer {
    std::atomic<memlord *> lord{nullptr};
    std::atomic<bool> on{false};      /* false: the tracker does nothing */
    std::atomic<uint64_t> lost{0};
    std::mutex attach;                /* of one that attaches */
    std::atomic<std::thread::id> attaching{std::thread::id()}; /* that takes the snapshot */
    size_t cut = 0;                   /* devices that have been in it */
    bool tracked = false, frames = false;
    std::string passed_over;          /* by frames */
    device_books devices[MAX_DEVICES];
};

/* Never destroyed: PyTorch frees its last blocks as the process ends. */
observer &torch_observer = *new observer;

const memlord_site before_us = {"allocated before MemLord was attached", "", 0};
const memlord_site round_off = {"PyTorch's rounding of sizes", "", 0};

memlord *lord() { return torch_observer.lord.load(std::memory_order_acquire); }

/* -- what the trace tells. Requires, in all of them: the lock of the device -- */

/* A site that came with the entry: PyTorch gathers it before it takes its lock. */
struct python_place final : c10::GatheredContext {
    const memlord_site *site = nullptr;
};

int not_yet(void *) { return 0; } /* the entry FREE_COMPLETED says when */

/* Makes the block whose free was requested pending, as no completion followed at once. */
void pend(device_books &b, int device) {
    static char nobody;
    const memlord_fence fence = {not_yet, &nobody, 0, nullptr};
    if (b.requested) (void)memlord_free_deferred(lord(), gpu(device), b.requested, fence, nullptr);
    b.requested = 0;
}

void on_alloc(device_books &b, int device, const TraceEntry &e, uint64_t key) {
    const auto *place = dynamic_cast<const python_place *>(e.context_.get());
    tag_for_backward();
    (void)memlord_stream_set(lord(), reinterpret_cast<uintptr_t>(e.stream_));
    (void)memlord_alloc(lord(), gpu(device), key, static_cast<uint64_t>(e.size_),
                        place ? place->site : site_now);
    (void)memlord_pool_served(lord(), gpu(device), !b.grew, b.grew);
    b.grew = false;
    if (b.attaching) b.trace[key] = seen::LIVE;
}

/* true: the block is in the books. One that is not yet is in the snapshot to come. */
bool is_known(device_books &b, uint64_t key, seen then) {
    if (!b.attaching) return true;
    auto at = b.trace.find(key);
    const bool known = at != b.trace.end() && at->second == seen::LIVE;
    if (!known || then == seen::GONE) b.trace[key] = then;
    return known;
}

void on_completed(device_books &b, int device, uint64_t key) {
    memlord_block_info block;
    if (!is_known(b, key, seen::GONE)) return;
    if (b.requested == key) {
        b.requested = 0;
        (void)memlord_free(lord(), gpu(device), key, nullptr);
    } else if (memlord_free_done(lord(), gpu(device), key) == MEMLORD_OK) {
        (void)memlord_retire(lord(), gpu(device)); /* drops the fence */
    } else if (memlord_block_find(lord(), gpu(device), key, &block) == MEMLORD_OK) {
        (void)memlord_free(lord(), gpu(device), key, nullptr); /* its request was not traced */
    }
}

void on_segment(device_books &b, int device, int64_t bytes) {
    b.grew = bytes > 0;
    if (b.attaching)
        b.grown += bytes;
    else
        (void)memlord_pool_add(lord(), gpu(device), bytes);
}

void on_entry(device_books &b, int device, const TraceEntry &e) {
    const uint64_t key = static_cast<uint64_t>(e.addr_);
    const int64_t bytes = static_cast<int64_t>(e.size_);
    std::lock_guard<std::mutex> hold(b.lock);
    if (e.action_ != TraceEntry::FREE_COMPLETED || key != b.requested) pend(b, device);
    switch (e.action_) {
    case TraceEntry::ALLOC: on_alloc(b, device, e, key); break;
    case TraceEntry::FREE_REQUESTED:
        if (is_known(b, key, seen::REQUESTED)) b.requested = key;
        break;
    case TraceEntry::FREE_COMPLETED: on_completed(b, device, key); break;
    case TraceEntry::SEGMENT_ALLOC:
    case TraceEntry::SEGMENT_MAP: on_segment(b, device, bytes); break;
    case TraceEntry::SEGMENT_FREE:
    case TraceEntry::SEGMENT_UNMAP: on_segment(b, device, -bytes); break;
    case TraceEntry::OOM:
        (void)memlord_alloc_failed(lord(), gpu(device), static_cast<uint64_t>(bytes), site_now);
        break;
    default: break; /* annotations, and what later versions add */
    }
}

/* The snapshot of a device is complete. PyTorch goes through them in order, each under its lock,
   and names device 0 in all of these entries. */
void on_snapshot() {
    if (torch_observer.attaching.load() != std::this_thread::get_id()) return;
    if (torch_observer.cut >= MAX_DEVICES) return;
    device_books &b = torch_observer.devices[torch_observer.cut++];
    std::lock_guard<std::mutex> hold(b.lock);
    b.grown = 0;
}

void tracker(const TraceEntry &e) noexcept {
    if (!torch_observer.on.load(std::memory_order_acquire)) return; /* pairs with attach_locked */
    const int device = e.device_;
    try {
        if (e.action_ == TraceEntry::SNAPSHOT)
            on_snapshot();
        else if (device >= 0 && device < MAX_DEVICES)
            on_entry(torch_observer.devices[device], device, e);
        else
            torch_observer.lost++;
    } catch (const std::exception &) {
        torch_observer.lost++;
    }
}

/* -- what was there before -- */

/* Adds the blocks of a segment that the trace has not told of since. */
void segment_add(device_books &b, int device, const cca::SegmentInfo &segment) {
    uint64_t key = static_cast<uint64_t>(segment.address);
    (void)memlord_stream_set(lord(), reinterpret_cast<uintptr_t>(segment.stream));
    for (const cca::BlockInfo &block : segment.blocks) {
        const auto at = b.trace.find(key);
        const bool freed = at != b.trace.end();
        if (block.active && (!freed || at->second == seen::REQUESTED)) {
            (void)memlord_alloc(lord(), gpu(device), key,
                                static_cast<uint64_t>(block.requested_size), &before_us);
            b.requested = freed || !block.allocated ? key : 0;
            pend(b, device);
        }
        key += static_cast<uint64_t>(block.size);
    }
    (void)memlord_stream_set(lord(), 0);
}

void snapshot_add(int device, const cca::SnapshotInfo &snapshot) {
    device_books &b = torch_observer.devices[device];
    std::lock_guard<std::mutex> hold(b.lock);
    int64_t reserved = b.grown;
    pend(b, device);
    for (const cca::SegmentInfo &segment : snapshot.segments) {
        if (static_cast<int>(segment.device) != device) continue;
        reserved += static_cast<int64_t>(segment.total_size);
        segment_add(b, device, segment);
    }
    if (reserved > 0) (void)memlord_pool_add(lord(), gpu(device), reserved);
    b.attaching = false;
    b.trace.clear();
}

/* -- at rest: on the script's thread, with no lock held -- */

/* Takes PyTorch's own sums: an entry has the size that was asked for, and blocks are larger. */
void rounding_take(int device) {
    const auto stats = cca::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    const int64_t over = stats.active_bytes[0].current - stats.requested_bytes[0].current;
    const uint64_t now = over > 0 ? static_cast<uint64_t>(over) : 0;
    device_books &b = torch_observer.devices[device];
    std::lock_guard<std::mutex> hold(b.lock);
    pend(b, device);
    (void)memlord_tag_begin(lord(), "rounding of sizes"); /* whatever tag the script is in */
    if (now > b.rounding)
        (void)memlord_arena_add(lord(), gpu(device), now - b.rounding, &round_off);
    else if (now < b.rounding)
        (void)memlord_arena_sub(lord(), gpu(device), b.rounding - now, &round_off);
    (void)memlord_tag_end(lord());
    b.rounding = now;
}

/* Asks the device how much of it is used, by everybody. */
void capacity_take(int device) {
    size_t free = 0, total = 0;
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
        (void)cudaGetLastError();
        return;
    }
    torch_observer.devices[device].free.store(free, std::memory_order_relaxed);
    torch_observer.devices[device].total.store(total, std::memory_order_relaxed);
    (void)memlord_capacity_sample(lord(), gpu(device));
}

/* The source of capacities: the last answer, as no thread of MemLord's may enter a device. */
int capacity_of(void *, memlord_device device, memlord_capacity *out) {
    if (device.index < 0 || device.index >= MAX_DEVICES) return -1;
    const device_books &b = torch_observer.devices[device.index];
    out->total = b.total.load(std::memory_order_relaxed);
    out->used = out->total - b.free.load(std::memory_order_relaxed);
    return out->total ? 0 : -1;
}

/* Calls a function for devices of the books. PyTorch has used them, so they have a context. */
void for_devices(int device, void (*take)(int)) {
    if (!torch_observer.on.load(std::memory_order_acquire)) return;
    gpus_each(device, [take](memlord_device d) {
        try {
            if (d.index < MAX_DEVICES) take(d.index);
        } catch (const std::exception &) { /* the numbers of the trace stay */
        }
    });
}
void settle(int device) { for_devices(device, rounding_take); }
void sample(int device) { for_devices(device, capacity_take); }

/* -- attaching -- */

bool ledger_make() {
    memlord_desc desc = {};
    memlord *made;
    if (lord()) return true;
    desc.flags = MEMLORD_FLAG_DEFER | MEMLORD_FLAG_SITES | MEMLORD_FLAG_NO_STRATEGY;
    desc.event_capacity = 1 << 16; /* what a timeline, and memory_viz, are made of */
    if (memlord_create(&desc, &made) != MEMLORD_OK) return false;
    (void)memlord_capacity_source_set(made, MEMLORD_DEVICE_CUDA, capacity_of, nullptr);
    torch_observer.lord.store(made, std::memory_order_release); /* pairs with lord */
    return true;
}

/* At exit the driver may be gone already. PyTorch's allocator, which is older, is not. */
void finish() {
    settle(-1);
    if (torch_observer.on.exchange(false)) save_at_exit();
}
void fork_before() { torch_observer.attach.lock(); }
void fork_parent() { torch_observer.attach.unlock(); }
void fork_child() {
    torch_observer.on.store(false);
    torch_observer.attach.unlock();
}

/* Throws as PyTorch does. */
int attach_locked() {
    if (torch_observer.on) return MEMLORD_OK;
    if (torch_observer.tracked) return MEMLORD_E_STATE; /* in a forked child */
    if (!cca::get() || !cca::get()->initialized()) return MEMLORD_E_STATE;
    if (!ledger_make()) return MEMLORD_E_NOMEM;
    for (device_books &b : torch_observer.devices) b.attaching = true;
    torch_observer.attaching = std::this_thread::get_id();
    torch_observer.on.store(true, std::memory_order_release);
    cca::get()->attachAllocatorTraceTracker(tracker);
    torch_observer.tracked = true;
    const cca::SnapshotInfo snapshot = cca::snapshot();
    for (int i = 0; i < MAX_DEVICES; i++) snapshot_add(i, snapshot);
    torch_observer.attaching = std::thread::id();
    (void)pthread_atfork(fork_before, fork_parent, fork_child);
    (void)atexit(finish);
    return MEMLORD_OK;
}

/* -- Python lines -- */

/* Fills `out` with an attribute's text, which is Python's as long as the frame's code lives. */
bool text_of(PyObject *code, const char *name, const char **out) {
    PyObject *value = PyObject_GetAttrString(code, name);
    *out = value ? PyUnicode_AsUTF8(value) : nullptr;
    if (value) Py_DecRef(value);
    if (!*out) PyErr_Clear();
    return *out != nullptr;
}

/* Returns the site of a frame; NULL: it cannot be told. */
const memlord_site *site_of_frame(PyObject *frame, bool *passed_over) {
    const memlord_site *site = nullptr;
    const std::string &over = torch_observer.passed_over;
    const char *file, *function;
    PyObject *code = PyFrame_GetCode(frame);
    if (text_of(code, "co_filename", &file) &&
        (text_of(code, "co_qualname", &function) || text_of(code, "co_name", &function))) {
        *passed_over = !over.empty() && !strncmp(file, over.c_str(), over.size());
        site = memlord_site_of(lord(), file, function, PyFrame_GetLineNumber(frame));
    }
    Py_DecRef(code);
    return site;
}

enum { FRAMES = 16 }; /* that are looked at */

/* Returns the site of the innermost frame that is not passed over, else of the innermost. */
const memlord_site *site_of_python() {
    const memlord_site *innermost = nullptr, *site = nullptr;
    PyObject *frame = PyEval_GetFrame();
    if (frame) Py_IncRef(frame);
    for (int i = 0; frame && i < FRAMES; i++) {
        bool passed_over = false;
        PyObject *outer;
        site = site_of_frame(frame, &passed_over);
        if (!innermost) innermost = site;
        outer = site && passed_over ? PyFrame_GetBack(frame) : nullptr;
        if (passed_over) site = nullptr;
        Py_DecRef(frame);
        frame = outer;
    }
    if (frame) Py_DecRef(frame);
    return site ? site : innermost;
}

/* What PyTorch calls before it takes the allocator's lock: there the interpreter may be waited for,
   which most operators have let go. */
std::shared_ptr<c10::GatheredContext> gather() {
    if (!Py_IsInitialized() || !PyGILState_GetThisThreadState()) return nullptr;
    std::shared_ptr<python_place> place;
    const int state = PyGILState_Ensure();
    try {
        place = std::make_shared<python_place>();
        place->site = site_of_python();
    } catch (const std::exception &) {
        torch_observer.lost++;
    }
    PyGILState_Release(state);
    return place;
}

/* Calls recordHistory, which has had more parameters from version to version. */
template <class... More>
void history_set(bool on, void (*record)(bool, cca::CreateContextFn, size_t, cca::RecordContext,
                                         More...)) {
    record(on, on ? gather : nullptr, 1,
           on ? cca::RecordContext::ALLOC : cca::RecordContext::NEVER, std::decay_t<More>()...);
}

} // namespace

int memlord_torch_attach(void) {
    std::lock_guard<std::mutex> hold(torch_observer.attach);
    try {
        return attach_locked();
    } catch (const std::exception &) {
        torch_observer.on.store(false);
        return MEMLORD_E_UNSUPPORTED;
    }
}

int memlord_torch_frames(int on, const char *passed_over) {
    std::lock_guard<std::mutex> hold(torch_observer.attach);
    if (!torch_observer.on) return MEMLORD_E_STATE;
    if (!PyFrame_GetBack || !PyFrame_GetLineNumber) return MEMLORD_E_UNSUPPORTED;
    try {
        if (!torch_observer.frames && cca::isHistoryEnabled()) return MEMLORD_E_STATE;
        if (!torch_observer.frames) torch_observer.passed_over = passed_over ? passed_over : "";
        if ((on != 0) != torch_observer.frames) history_set(on != 0, &cca::recordHistory);
        torch_observer.frames = on != 0;
        return MEMLORD_OK;
    } catch (const std::exception &) {
        return MEMLORD_E_UNSUPPORTED;
    }
}

void memlord_torch_empty_cache(void) {
    try {
        if (torch_observer.on) cca::emptyCache();
    } catch (const std::exception &) { /* a stream is captured: nothing was given back */
    }
}

uint64_t memlord_torch_lost(void) { return torch_observer.lost; }

const char *memlord_torch_built_for(void) { return TORCH_VERSION; }
