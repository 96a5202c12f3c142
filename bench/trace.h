/* What the map bench replays: addresses that a real heap handed out under random churn. */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

/* One step: a block ends and another takes its place. It has 16 bytes, so that reading the trace
   takes as little of the cache as possible from the table under test. */
struct op {
    uint64_t freed : 48;
    uint64_t who : 16; /* 0 to 1023: chooses the device and the site */
    uint64_t opened : 48;
    uint64_t bytes : 16;
};

enum : uint64_t { ADDRESS = (uint64_t(1) << 48) - 1, WHO = 1023 };

struct trace {
    std::vector<op> fill;         /* the blocks that are live at the start; `freed` is not used */
    std::vector<op> churn;
    std::vector<uint32_t> slots;  /* which block of the host each step replaces */
    uint32_t first_slot = 0;
};

class dice {
public:
    explicit dice(uint64_t seed) : x_(seed * 0x9E3779B97F4A7C15u + 1) {}
    uint64_t next() {
        x_ ^= x_ << 13;
        x_ ^= x_ >> 7;
        x_ ^= x_ << 17;
        return x_ >> 11;
    }
    size_t below(size_t n) { return static_cast<size_t>(next() % n); }
    /* log-uniform, 16 B to 4 KiB */
    size_t size() { return static_cast<size_t>(16 * std::exp2(double(next() % 8192) / 1024)); }

private:
    uint64_t x_;
};

/* The live blocks of one thread. With a delay the real free of a block comes so many steps late: a
   replay that hands frees to another thread may then run ahead of that thread by as many steps,
   and meets no address that is used again. */
class heap {
public:
    heap(size_t live, size_t delay, uint64_t seed)
        : at_(live), bytes_(live), late_(delay), random_(seed) {
        for (size_t i = 0; i < live; i++) grow(i);
    }
    ~heap() {
        for (void *p : at_) std::free(p);
        for (void *p : late_) std::free(p);
    }
    op step(uint32_t &slot) {
        size_t i = random_.below(at_.size());
        op o = {key(i) & ADDRESS, random_.next() & WHO, 0, 0};
        void *old = at_[i];
        if (!late_.empty()) std::swap(old, late_[turn_++ % late_.size()]);
        std::free(old);
        grow(i);
        o.opened = key(i) & ADDRESS;
        o.bytes = bytes_[i];
        slot = static_cast<uint32_t>(i);
        return o;
    }
    op block(size_t i) { return {0, random_.next() & WHO, key(i) & ADDRESS, bytes_[i]}; }

private:
    uint64_t key(size_t i) const { return reinterpret_cast<uintptr_t>(at_[i]); }
    void grow(size_t i) {
        bytes_[i] = static_cast<uint16_t>(random_.size());
        at_[i] = std::malloc(bytes_[i]);
        if (!at_[i]) std::abort();
    }

    std::vector<void *> at_;
    std::vector<uint16_t> bytes_;
    std::vector<void *> late_;
    size_t turn_ = 0;
    dice random_;
};

/* Records a trace on the calling thread, so from the arena of that thread. The heap is aged first:
   a fresh heap hands out addresses in order, which no program sees that has run for a while. The
   heap is returned alive, as addresses that are freed may turn up in another thread's record. */
inline std::unique_ptr<heap> record(trace &t, size_t live, size_t steps, size_t delay,
                                    uint64_t seed) {
    auto h = std::make_unique<heap>(live, delay, seed);
    uint32_t slot;
    for (size_t i = 0; i < 2 * live; i++) h->step(slot);
    t.fill.resize(live);
    t.churn.resize(steps);
    t.slots.resize(steps);
    for (size_t i = 0; i < live; i++) t.fill[i] = h->block(i);
    for (size_t i = 0; i < steps; i++) {
        t.churn[i] = h->step(slot);
        t.slots[i] = slot + t.first_slot;
    }
    return h;
}

/* Records the same churn over keys that are no heap addresses: key(0), key(1), ... A block takes
   any key that is not live. */
template <class Key> void record_keys(trace &t, size_t live, size_t steps, Key key, uint64_t seed) {
    dice random(seed);
    std::vector<uint64_t> at(live), dead(live);
    for (size_t i = 0; i < live; i++) {
        at[i] = key(2 * i);
        dead[i] = key(2 * i + 1);
        t.fill.push_back({0, random.next() & WHO, at[i] & ADDRESS, 4096});
    }
    for (size_t i = 0; i < steps; i++) {
        size_t slot = random.below(live), from = random.below(live);
        std::swap(at[slot], dead[from]);
        t.churn.push_back({dead[from] & ADDRESS, random.next() & WHO, at[slot] & ADDRESS, 4096});
        t.slots.push_back(static_cast<uint32_t>(slot) + t.first_slot);
    }
}

#endif
