/* The peers of the map bench. Each does what MemLord does for a call: it keeps an entry with bytes,
   device, site, tag and references, and for each device the bytes and counts allocated and freed,
   and the peak. It ends a stale entry under a new address, and notices an unknown free.

   To add a peer: a map with try_emplace, find, end and erase goes into locked_map; anything else
   is a class with the members of `keyed`, opens, closes and state. It also needs a line in the list
   of rows of map.cpp, and one in its list of sizes. */
#ifndef BENCH_PEERS_H
#define BENCH_PEERS_H

#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "trace.h"

#if PEER_BOOST
#include <boost/unordered/unordered_flat_map.hpp>
#endif
#if PEER_ABSL
#include <absl/container/flat_hash_map.h>
#endif
#if PEER_TBB
#include <tbb/concurrent_hash_map.h>
#endif


enum { MAX_DEVICES = 128, TAG = 3 };

/* MemLord is called through a function, and so are its peers. */
#define NOINLINE __attribute__((noinline))

/* -- bytes, counted alike for every contender: what the heap really gave, its header too -- */

inline size_t counted_bytes;

inline void *counted_get(size_t size) {
    void *p = std::malloc(size);
    if (!p) std::abort();
    counted_bytes += malloc_usable_size(p) + sizeof(size_t);
    return p;
}

inline void counted_put(void *p) {
    if (p) counted_bytes -= malloc_usable_size(p) + sizeof(size_t);
    std::free(p);
}

inline void *counted_resize(void *p, size_t size) {
    if (p) counted_bytes -= malloc_usable_size(p) + sizeof(size_t);
    p = std::realloc(p, size);
    if (!p) std::abort();
    counted_bytes += malloc_usable_size(p) + sizeof(size_t);
    return p;
}

template <class T> struct counted {
    using value_type = T;
    counted() = default;
    template <class U> counted(const counted<U> &) {}
    T *allocate(size_t n) { return static_cast<T *>(counted_get(n * sizeof(T))); }
    void deallocate(T *p, size_t) { counted_put(p); }
    template <class U> bool operator==(const counted<U> &) const { return true; }
    template <class U> bool operator!=(const counted<U> &) const { return false; }
};

/* -- what every peer keeps -- */

struct entry {
    uint64_t bytes;
    uint32_t site, tag, refs, device;
};

struct alignas(64) account {
    uint64_t allocated, freed, allocs, frees, peak;
    void open(uint64_t bytes) {
        allocated += bytes;
        allocs++;
        if (allocated - freed > peak) peak = allocated - freed;
    }
    void close(uint64_t bytes) {
        freed += bytes;
        frees++;
    }
};

/* The books of a contender at the end, which must be the same for all. */
struct verdict {
    bool keeps_books;
    uint64_t live_bytes, allocs, frees, odd;
};

/* A contender whose keys come from the trace, as those of all but the real heap do. */
struct keyed {
    static uint64_t leaves(const op &o, uint32_t) { return o.freed; }
    void enter() {} /* called before a thread's run of calls, as leave is after it */
    void leave() {}
};

/* -- one lock over one map; with std::map and a shared_mutex, RMM's tracking adaptor -- */

template <class Map, class Lock> class locked_map : public keyed {
public:
    void opens(const op &o, uint32_t, uint32_t device, uint32_t site) {
        open(o.opened, entry{o.bytes, site, TAG, 1, device});
    }
    NOINLINE void open(uint64_t key, const entry &fresh) {
        std::lock_guard<Lock> hold(lock_);
        auto put = map_.try_emplace(key, fresh);
        if (!put.second) {
            entry &stale = put.first->second;
            odd_++;
            accounts_[stale.device].close(stale.bytes);
            stale = fresh;
        }
        accounts_[fresh.device].open(fresh.bytes);
    }
    void closes(uint64_t key, uint32_t) { close(key); }
    NOINLINE void close(uint64_t key) {
        std::lock_guard<Lock> hold(lock_);
        auto it = map_.find(key);
        if (it == map_.end()) {
            odd_++;
            return;
        }
        odd_ += it->second.refs != 1;
        accounts_[it->second.device].close(it->second.bytes);
        map_.erase(it);
    }
    verdict state() const {
        verdict v = {true, 0, 0, 0, odd_};
        for (const account &a : accounts_) {
            v.live_bytes += a.allocated - a.freed;
            v.allocs += a.allocs;
            v.frees += a.frees;
        }
        return v;
    }

private:
    Lock lock_;
    Map map_;
    uint64_t odd_ = 0;
    account accounts_[MAX_DEVICES] = {};
};

template <template <class> class A> using node_of = A<std::pair<const uint64_t, entry>>;
template <template <class> class A>
using std_unordered = locked_map<
    std::unordered_map<uint64_t, entry, std::hash<uint64_t>, std::equal_to<uint64_t>, node_of<A>>,
    std::mutex>;
template <template <class> class A>
using rmm_scheme =
    locked_map<std::map<uint64_t, entry, std::less<uint64_t>, node_of<A>>, std::shared_mutex>;
#if PEER_BOOST
template <template <class> class A>
using boost_flat = locked_map<boost::unordered_flat_map<uint64_t, entry, boost::hash<uint64_t>,
                                                        std::equal_to<uint64_t>, node_of<A>>,
                              std::mutex>;
#endif
#if PEER_ABSL
template <template <class> class A>
using absl_flat =
    locked_map<absl::flat_hash_map<uint64_t, entry, absl::Hash<uint64_t>, std::equal_to<uint64_t>,
                                   node_of<A>>,
               std::mutex>;
#endif


/* -- stb_ds -- */

#if PEER_STB
#define STBDS_NO_SHORT_NAMES
#define STBDS_REALLOC(context, p, size) counted_resize(p, size)
#define STBDS_FREE(context, p) counted_put(p)
#define STB_DS_IMPLEMENTATION
#include PEER_STB_H

struct stb_slot {
    uint64_t key;
    entry second;
};

/* The part of a map's interface that locked_map wants. */
class stb_map {
public:
    ~stb_map() { stbds_hmfree(slots_); }
    stb_slot *end() const { return nullptr; }
    stb_slot *find(uint64_t key) { return stbds_hmgetp_null(slots_, key); }
    std::pair<stb_slot *, bool> try_emplace(uint64_t key, const entry &e) {
        if (stb_slot *live = find(key)) return {live, false};
        stb_slot fresh = {key, e};
        stbds_hmputs(slots_, fresh);
        return {nullptr, true};
    }
    void erase(const stb_slot *slot) {
        uint64_t key = slot->key;
        (void)stbds_hmdel(slots_, key);
    }

private:
    stb_slot *slots_ = nullptr;
};
using stb_hashmap = locked_map<stb_map, std::mutex>;
#endif

/* -- TBB: a lock per bucket, so the counters are shared atomics -- */

#if PEER_TBB
struct alignas(64) shared_account {
    std::atomic<uint64_t> live, allocated, freed, allocs, frees, peak;
    static void add(std::atomic<uint64_t> &to, uint64_t n) {
        to.fetch_add(n, std::memory_order_relaxed);
    }
    void open(uint64_t bytes) {
        uint64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
        uint64_t high = peak.load(std::memory_order_relaxed);
        while (now > high && !peak.compare_exchange_weak(high, now, std::memory_order_relaxed)) {
        }
        add(allocated, bytes);
        add(allocs, 1);
    }
    void close(uint64_t bytes) {
        live.fetch_sub(bytes, std::memory_order_relaxed);
        add(freed, bytes);
        add(frees, 1);
    }
};

template <template <class> class A> class tbb_map : public keyed {
public:
    using map = tbb::concurrent_hash_map<uint64_t, entry, tbb::tbb_hash_compare<uint64_t>,
                                         node_of<A>>;
    void opens(const op &o, uint32_t, uint32_t device, uint32_t site) {
        open(o.opened, entry{o.bytes, site, TAG, 1, device});
    }
    NOINLINE void open(uint64_t key, const entry &fresh) {
        typename map::accessor at;
        if (!map_.insert(at, key)) {
            shared_account::add(odd_, 1);
            accounts_[at->second.device].close(at->second.bytes);
        }
        at->second = fresh;
        accounts_[fresh.device].open(fresh.bytes);
    }
    void closes(uint64_t key, uint32_t) { close(key); }
    NOINLINE void close(uint64_t key) {
        typename map::accessor at;
        if (!map_.find(at, key)) {
            shared_account::add(odd_, 1);
            return;
        }
        if (at->second.refs != 1) shared_account::add(odd_, 1);
        accounts_[at->second.device].close(at->second.bytes);
        map_.erase(at);
    }
    verdict state() const {
        verdict v = {true, 0, 0, 0, odd_};
        for (const shared_account &a : accounts_) {
            v.live_bytes += a.live;
            v.allocs += a.allocs;
            v.frees += a.frees;
        }
        return v;
    }

private:
    map map_;
    std::atomic<uint64_t> odd_{0};
    shared_account accounts_[MAX_DEVICES] = {};
};
#endif

/* -- what is not a map: the real heap, and nothing at all -- */

class real_heap {
public:
    explicit real_heap(size_t blocks) : at_(blocks) {}
    ~real_heap() {
        for (void *p : at_) std::free(p);
    }
    void enter() {}
    void leave() {}
    uint64_t leaves(const op &, uint32_t slot) const {
        return reinterpret_cast<uintptr_t>(at_[slot]);
    }
    void opens(const op &o, uint32_t slot, uint32_t, uint32_t) { at_[slot] = std::malloc(o.bytes); }
    void closes(uint64_t key, uint32_t) { std::free(reinterpret_cast<void *>(key)); }
    verdict state() const { return {}; }

private:
    std::vector<void *> at_;
};

/* The loop without a contender, whose time is subtracted from the others'. With slots it also reads
   and writes the host's own pointers, as the loop around the real heap has to. */
template <bool Slots> class nothing {
public:
    explicit nothing(size_t blocks) : at_(Slots ? blocks : 0) {}
    void enter() {}
    void leave() {}
    uint64_t leaves(const op &o, uint32_t slot) const { return Slots ? at_[slot] : o.freed; }
    void opens(const op &o, uint32_t slot, uint32_t device, uint32_t site) {
        if (Slots) at_[slot] = o.opened;
        __asm__ volatile("" ::"r"(o.opened), "r"(o.bytes), "r"(device), "r"(site));
    }
    void closes(uint64_t key, uint32_t site) { __asm__ volatile("" ::"r"(key), "r"(site)); }
    verdict state() const { return {}; }

private:
    std::vector<uint64_t> at_;
};

#endif
