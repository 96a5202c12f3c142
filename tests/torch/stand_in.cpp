/* stand_in.cpp - libc10_cuda.so for tests: a small caching allocator with the trace of PyTorch's.

   It has what the observer sees of PyTorch's allocator: segments that it splits into blocks of
   multiples of 512 bytes, frees that wait for other streams, a lock for each device that may be
   taken again, under which the trackers run, and sums of its own, which the tests compare the
   books with. No memory is behind its addresses. */
#include "stand_in.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

namespace cca = c10::cuda::CUDACachingAllocator;
using cca::TraceEntry;

namespace {

enum { DEVICES = 3 };
const size_t ROUND = 512, SMALL = 1 << 20, SEGMENT = 2 << 20;
const size_t DEVICE_BYTES = size_t{1} << 30, CONTEXT_BYTES = 100 << 20;

struct block {
    size_t size = 0, requested = 0;
    bool allocated = false, active = false;
    int uses = 0; /* by other streams */
};

struct segment {
    size_t size = 0;
    void *stream = nullptr;
    bool expandable = false;
    std::map<size_t, block> blocks; /* by address */
};

struct device {
    std::recursive_mutex lock;
    std::map<size_t, segment> segments;
    cca::DeviceStats stats;
    std::vector<cca::AllocatorTraceTracker> trackers;
};

/* This thread is in a tracker. That may not call the allocator, as PyTorch says. */
thread_local bool tracking;
void outside_of_trackers() {
    if (!tracking) return;
    fputs("a tracker calls the allocator\n", stderr);
    abort();
}

class stand_in final : public cca::CUDAAllocator {
public:
    device devices[DEVICES];
    void (*meanwhile)(int step) = nullptr;
    bool ready = false, refuses = false, history = false;
    std::atomic<cca::CreateContextFn> recorder{nullptr};
    size_t next = size_t{0x7f} << 40;

    bool initialized() override { return ready; }
    void attachAllocatorTraceTracker(cca::AllocatorTraceTracker tracker) override {
        if (refuses) throw std::runtime_error("this allocator has no trace");
        for (device &d : devices) {
            std::lock_guard<std::recursive_mutex> hold(d.lock);
            d.trackers.push_back(tracker);
        }
        if (meanwhile) meanwhile(0);
    }
    cca::DeviceStats getDeviceStats(cca::device_t i) override {
        outside_of_trackers();
        std::lock_guard<std::recursive_mutex> hold(devices[i].lock);
        return devices[i].stats;
    }
    cca::SnapshotInfo snapshot(c10::cuda::MempoolId_t, bool) override {
        cca::SnapshotInfo result;
        outside_of_trackers();
        for (int i = 0; i < DEVICES; i++) snapshot_of(i, result);
        if (meanwhile) meanwhile(1);
        return result;
    }
    void emptyCache(c10::cuda::MempoolId_t) override {
        for (int i = 0; i < DEVICES; i++) stand_in_empty_cache(i);
    }
    bool isHistoryEnabled() override { return history; }
    void recordHistory(bool enabled, cca::CreateContextFn fn, size_t, cca::RecordContext) override {
        history = enabled;
        recorder = enabled ? fn : nullptr;
    }

    /* Requires: the lock of the device. */
    void trace(int i, TraceEntry::Action action, size_t address, size_t size, void *stream,
               std::shared_ptr<c10::GatheredContext> context = nullptr) {
        TraceEntry e = {action,
                        static_cast<cca::device_t>(i),
                        static_cast<cca::bytes_t>(address),
                        std::move(context),
                        static_cast<cca::stream_t>(stream),
                        static_cast<cca::bytes_t>(size)};
        track(devices[i < 0 || i >= DEVICES ? 0 : i], e);
    }

private:
    void track(device &d, const TraceEntry &e) {
        tracking = true;
        for (const auto &tracker : d.trackers) tracker(e);
        tracking = false;
    }
    void snapshot_of(int i, cca::SnapshotInfo &result) {
        device &d = devices[i];
        std::lock_guard<std::recursive_mutex> hold(d.lock);
        for (const auto &at : d.segments) {
            cca::SegmentInfo info;
            info.device = static_cast<cca::device_t>(i);
            info.address = static_cast<cca::bytes_t>(at.first);
            info.total_size = static_cast<cca::bytes_t>(at.second.size);
            info.stream = static_cast<cca::stream_t>(at.second.stream);
            for (const auto &b : at.second.blocks) {
                cca::BlockInfo one;
                one.size = static_cast<cca::bytes_t>(b.second.size);
                one.requested_size = static_cast<cca::bytes_t>(b.second.requested);
                one.allocated = b.second.allocated;
                one.active = b.second.active;
                info.blocks.push_back(one);
            }
            result.segments.push_back(info);
        }
        /* as PyTorch does, under the lock of device i */
        TraceEntry e = {TraceEntry::SNAPSHOT, 0, 0, nullptr, nullptr, 0};
        track(d, e);
    }
};

stand_in &torch = *new stand_in;

void add(cca::StatArray &stat, int64_t bytes) {
    stat[0].current += bytes;
    if (stat[0].current > stat[0].peak) stat[0].peak = stat[0].current;
}

size_t round_up(size_t size, size_t to) { return (size + to - 1) / to * to; }

/* Returns a free block that is large enough, in *in; NULL: there is none. */
std::pair<const size_t, block> *find_free(device &d, size_t size, void *stream, segment **in) {
    for (auto &s : d.segments) {
        if (s.second.stream != stream) continue;
        for (auto &b : s.second.blocks) {
            *in = &s.second;
            if (!b.second.active && b.second.size >= size) return &b;
        }
    }
    return nullptr;
}

bool grow(int i, size_t size, void *stream, bool expandable) {
    device &d = torch.devices[i];
    const size_t bytes = round_up(size, SEGMENT);
    if (d.stats.reserved_bytes[0].current + static_cast<int64_t>(bytes) >
        static_cast<int64_t>(DEVICE_BYTES - CONTEXT_BYTES))
        return false;
    const size_t at = __atomic_fetch_add(&torch.next, bytes, __ATOMIC_RELAXED);
    segment &s = d.segments[at];
    s.size = bytes;
    s.stream = stream;
    s.expandable = expandable;
    s.blocks[at].size = bytes;
    add(d.stats.reserved_bytes, static_cast<int64_t>(bytes));
    torch.trace(i, expandable ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_ALLOC, at, bytes,
                stream);
    return true;
}

/* The end of a block: its neighbours that are free become one with it. */
void complete(int i, segment &s, size_t at) {
    device &d = torch.devices[i];
    block &b = s.blocks[at];
    torch.trace(i, TraceEntry::FREE_COMPLETED, at, b.requested, s.stream);
    add(d.stats.active_bytes, -static_cast<int64_t>(b.size));
    add(d.stats.requested_bytes, -static_cast<int64_t>(b.requested));
    b.active = false;
    b.requested = 0;
    for (auto it = s.blocks.begin(); it != s.blocks.end();) {
        auto after = std::next(it);
        if (after == s.blocks.end()) break;
        if (it->second.active || after->second.active) {
            it = after;
            continue;
        }
        it->second.size += after->second.size;
        s.blocks.erase(after);
    }
}

segment *segment_of(device &d, size_t at) {
    auto it = d.segments.upper_bound(at);
    if (it == d.segments.begin()) return nullptr;
    --it;
    return it->second.blocks.count(at) ? &it->second : nullptr;
}

std::atomic<int> current{0};
std::atomic<int> memory_asked{0};

} // namespace

std::atomic<cca::CUDAAllocator *> cca::allocator{&torch};

c10::cuda::CUDAGuard::CUDAGuard(DeviceIndex device) : before(current) { current = device; }
c10::cuda::CUDAGuard::~CUDAGuard() { current = before; }

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    outside_of_trackers();
    device &d = torch.devices[current];
    std::lock_guard<std::recursive_mutex> hold(d.lock);
    memory_asked++;
    *total = DEVICE_BYTES;
    *free = DEVICE_BYTES - CONTEXT_BYTES - static_cast<size_t>(d.stats.reserved_bytes[0].current);
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }

void stand_in_init(int ready, int refuses) {
    torch.ready = ready != 0;
    torch.refuses = refuses != 0;
}
void stand_in_meanwhile(void (*hook)(int step)) { torch.meanwhile = hook; }
void stand_in_history(int on) { torch.history = on != 0; }

uint64_t stand_in_alloc(int i, uint64_t size, uint64_t stream, int expandable) {
    device &d = torch.devices[i];
    const cca::CreateContextFn gather = torch.recorder;
    auto context = gather ? gather() : nullptr; /* before the lock */
    std::lock_guard<std::recursive_mutex> hold(d.lock);
    const size_t rounded = round_up(size, ROUND);
    void *on = reinterpret_cast<void *>(static_cast<uintptr_t>(stream));
    segment *s = nullptr;
    auto *at = find_free(d, rounded, on, &s);
    if (!at && grow(i, rounded, on, expandable != 0)) at = find_free(d, rounded, on, &s);
    if (!at) {
        d.stats.num_ooms++;
        torch.trace(i, TraceEntry::OOM, 12345, rounded, on, context);
        return 0;
    }
    block &b = at->second;
    /* a large block is not split if little would be left: it is larger than its request by more
       than the rounding */
    if (b.size - rounded >= (rounded > SMALL ? SMALL : ROUND)) {
        s->blocks[at->first + rounded].size = b.size - rounded;
        b.size = rounded;
    }
    b.allocated = b.active = true;
    b.requested = size;
    torch.trace(i, TraceEntry::ALLOC, at->first, size, on, std::move(context));
    add(d.stats.allocated_bytes, static_cast<int64_t>(b.size));
    add(d.stats.active_bytes, static_cast<int64_t>(b.size));
    add(d.stats.requested_bytes, static_cast<int64_t>(size));
    return at->first;
}

void stand_in_record_stream(int i, uint64_t at) {
    std::lock_guard<std::recursive_mutex> hold(torch.devices[i].lock);
    segment_of(torch.devices[i], at)->blocks[at].uses++;
}

void stand_in_free(int i, uint64_t at) {
    device &d = torch.devices[i];
    std::lock_guard<std::recursive_mutex> hold(d.lock);
    segment *s = segment_of(d, at);
    block &b = s->blocks[at];
    b.allocated = false;
    add(d.stats.allocated_bytes, -static_cast<int64_t>(b.size));
    torch.trace(i, TraceEntry::FREE_REQUESTED, at, b.requested, s->stream);
    if (!b.uses) complete(i, *s, at);
}

void stand_in_streams_done(int i) {
    device &d = torch.devices[i];
    std::lock_guard<std::recursive_mutex> hold(d.lock);
    for (auto &s : d.segments) {
        std::vector<size_t> done;
        for (auto &b : s.second.blocks) {
            if (b.second.active && !b.second.allocated) done.push_back(b.first);
            b.second.uses = 0;
        }
        for (size_t at : done) complete(i, s.second, at);
    }
}

void stand_in_empty_cache(int i) {
    outside_of_trackers();
    device &d = torch.devices[i];
    std::lock_guard<std::recursive_mutex> hold(d.lock);
    for (auto it = d.segments.begin(); it != d.segments.end();) {
        const segment &s = it->second;
        if (s.blocks.size() > 1 || s.blocks.begin()->second.active) {
            ++it;
            continue;
        }
        add(d.stats.reserved_bytes, -static_cast<int64_t>(s.size));
        torch.trace(i, s.expandable ? TraceEntry::SEGMENT_UNMAP : TraceEntry::SEGMENT_FREE,
                    it->first, s.size, s.stream);
        it = d.segments.erase(it);
    }
}

void stand_in_entry(int action, int i, uint64_t address, uint64_t size) {
    std::lock_guard<std::recursive_mutex> hold(torch.devices[0].lock);
    torch.trace(i, static_cast<TraceEntry::Action>(action), address, size, nullptr);
}

int64_t stand_in_bytes(int i, const char *what) {
    const cca::DeviceStats stats = torch.getDeviceStats(static_cast<cca::device_t>(i));
    return !strcmp(what, "allocated") ? stats.allocated_bytes[0].current
           : !strcmp(what, "active")  ? stats.active_bytes[0].current
           : !strcmp(what, "requested") ? stats.requested_bytes[0].current
           : !strcmp(what, "reserved")  ? stats.reserved_bytes[0].current
                                        : -1;
}
int stand_in_memory_asked(void) { return memory_asked; }
