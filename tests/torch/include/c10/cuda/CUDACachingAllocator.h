/* A stand-in for PyTorch's header of this name: the shapes that examples/torch/observer.cpp uses,
   and no more. STAND_IN=22, 26, 28 or 214: as in PyTorch 2.2, 2.6, 2.8 or 2.14. Tests alone include
   it. */
#pragma once

#include <cuda_runtime_api.h>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#ifndef STAND_IN
#define STAND_IN 214
#endif

namespace c10 {

using DeviceIndex = int8_t;

struct GatheredContext {
    virtual ~GatheredContext() = default;
};

namespace cuda {

using MempoolId_t = std::pair<unsigned long long, unsigned long long>;

namespace CUDACachingAllocator {

struct Stat {
    int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};
using StatArray = std::array<Stat, 3>; /* all, small, large */

struct DeviceStats {
    StatArray allocated_bytes, reserved_bytes, active_bytes, requested_bytes;
    int64_t num_ooms = 0;
};

using CreateContextFn = std::shared_ptr<GatheredContext> (*)();
enum struct RecordContext { NEVER = 0, STATE = 1, ALLOC = 2, ALL = 3 };

#if STAND_IN >= 26
using bytes_t = size_t;
using device_t = DeviceIndex;
#else
using bytes_t = int64_t;
using device_t = int;
#endif
#if STAND_IN >= 214
using stream_t = void *;
#else
using stream_t = cudaStream_t;
#endif

struct BlockInfo {
    bytes_t size = 0, requested_size = 0;
    bool allocated = false, active = false;
};

struct SegmentInfo {
    device_t device = 0;
    bytes_t address = 0, total_size = 0;
    stream_t stream = nullptr;
    std::vector<BlockInfo> blocks;
};

struct TraceEntry {
    enum Action {
        ALLOC,
        FREE_REQUESTED,
        FREE_COMPLETED,
        SEGMENT_ALLOC,
        SEGMENT_FREE,
        SEGMENT_MAP,
        SEGMENT_UNMAP,
        SNAPSHOT,
        OOM,
#if STAND_IN >= 214
        ANNOTATE
#else
        USER_DEFINED
#endif
    };
    Action action_;
    device_t device_;
    bytes_t addr_;
    std::shared_ptr<GatheredContext> context_;
    stream_t stream_;
    bytes_t size_;
};

struct SnapshotInfo {
    std::vector<SegmentInfo> segments;
    std::string last_allocator_settings; /* differs between the ABIs of std::string */
};

using AllocatorTraceTracker = std::function<void(const TraceEntry &)>;

class CUDAAllocator {
public:
    virtual ~CUDAAllocator() = default;
    virtual bool initialized() = 0;
    virtual void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) = 0;
    virtual DeviceStats getDeviceStats(device_t device) = 0;
    virtual SnapshotInfo snapshot(MempoolId_t pool, bool traces) = 0;
    virtual void emptyCache(MempoolId_t pool) = 0;
    virtual bool isHistoryEnabled() = 0;
    virtual void recordHistory(bool enabled, CreateContextFn recorder, size_t entries,
                               RecordContext when) = 0;
};

extern std::atomic<CUDAAllocator *> allocator;
inline CUDAAllocator *get() { return allocator.load(); }

inline DeviceStats getDeviceStats(device_t device) { return get()->getDeviceStats(device); }
inline bool isHistoryEnabled() { return get()->isHistoryEnabled(); }
#if STAND_IN >= 214
inline void emptyCache(MempoolId_t pool = {0, 0}) { get()->emptyCache(pool); }
inline SnapshotInfo snapshot(MempoolId_t pool = {0, 0}, bool traces = true) {
    return get()->snapshot(pool, traces);
}
inline void recordHistory(bool enabled, CreateContextFn recorder, size_t entries,
                          RecordContext when, bool, const std::vector<std::string> &) {
    get()->recordHistory(enabled, recorder, entries, when);
}
#elif STAND_IN >= 28
inline void emptyCache(MempoolId_t pool = {0, 0}) { get()->emptyCache(pool); }
inline SnapshotInfo snapshot(MempoolId_t pool = {0, 0}) { return get()->snapshot(pool, true); }
inline void recordHistory(bool enabled, CreateContextFn recorder, size_t entries,
                          RecordContext when, bool) {
    get()->recordHistory(enabled, recorder, entries, when);
}
#else
inline void emptyCache() { get()->emptyCache({0, 0}); }
inline SnapshotInfo snapshot() { return get()->snapshot({0, 0}, true); }
inline void recordHistory(bool enabled, CreateContextFn recorder, size_t entries,
                          RecordContext when) {
    get()->recordHistory(enabled, recorder, entries, when);
}
#endif

} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10
