/* MemLord as a contender. Compiled once with the present memlord.h, and with BASE a second time
   with that revision's: BENCH_MEMLORD_H names its header, and MEMLORD_PREFIX keeps the two apart.

   Both revisions must declare what is used here, except under #if !BENCH_BASE. Where a revision
   renames a call, a constant or a field, the name that the base knows goes under #if BENCH_BASE. */
#include <chrono>
#include <cstdio>

#ifdef BENCH_MEMLORD_H
#include BENCH_MEMLORD_H
#else
#include "../memlord.h"
#endif
#include "books.h"

namespace { /* the types of two revisions share their names */

struct site_table {
    site_table() {
        for (int i = 0; i < SITES; i++) at[i] = {"bench/map.cpp", "replay", i + 1};
    }
    memlord_site at[SITES];
} sites;

class books : public keyed {
public:
    explicit books(setup s, const memlord_allocator *from = nullptr) : tagged_(s.tagged) {
        memlord_desc desc = {};
        if (s.sites) desc.flags |= MEMLORD_FLAG_SITES;
        if (s.exact) desc.flags |= MEMLORD_FLAG_EXACT;
        if (from) desc.allocator = *from;
        if (memlord_create(&desc, &lord_) != MEMLORD_OK) std::abort();
    }
    ~books() { memlord_destroy(lord_); }
    books(const books &) = delete;
    memlord *lord() const { return lord_; }
    void enter() {
        if (tagged_) (void)memlord_tag_begin(lord_, "bench");
    }
    void leave() {
        if (tagged_) (void)memlord_tag_end(lord_);
    }
    void opens(const op &o, uint32_t, uint32_t device, uint32_t site) {
        (void)memlord_alloc(lord_, on(device), o.opened, o.bytes, &sites.at[site]);
    }
    void closes(uint64_t key, uint32_t site) {
        (void)memlord_free(lord_, on(0), key, &sites.at[site]);
    }
    verdict state() const {
        memlord_stats s;
        (void)memlord_stats_get(lord_, memlord_device_all(), &s);
        return {true, s.allocated, s.allocs, s.frees,
                s.implicit_frees + s.unknown_frees + s.freed_while_shared + s.dropped_allocs +
                    s.gc_runs};
    }

    static memlord_device on(uint32_t i) {
        return memlord_device_make(MEMLORD_DEVICE_CUDA, static_cast<int>(i));
    }

private:
    memlord *lord_ = nullptr;
    bool tagged_;
};

#if !BENCH_BASE
/* Records by memlord_alloc_with what an account of the thread is charged. */
class charged_books : public books {
public:
    explicit charged_books(setup s) : books(s) {
        if (memlord_account_open(lord(), on(0), "bench", 0, &account_) != MEMLORD_OK) std::abort();
    }
    void enter() {
        books::enter();
        (void)memlord_account_use(lord(), account_);
    }
    void leave() {
        (void)memlord_account_use(lord(), 0);
        books::leave();
    }
    void opens(const op &o, uint32_t, uint32_t device, uint32_t) {
        (void)memlord_alloc_with(lord(), on(device), o.opened, o.bytes, nullptr);
    }
    verdict state() const {
        verdict v = books::state();
        memlord_account_stat s;
        (void)memlord_account_get(lord(), account_, &s);
        v.odd += s.bytes != v.live_bytes;
        return v;
    }

private:
    memlord_account account_ = 0;
};

/* A capacity, a callback and a band that covers everything. Blocks are 736 bytes in the mean, so
   its threshold leaves each of two threads a MiB and more, but not much more. */
void guard(memlord *lord, size_t blocks) {
    memlord_band band = {0, 101, MEMLORD_METRIC_ALLOCATED, blocks * 1024 + (2 << 20), 0,
                         MEMLORD_COMBINE_MAX};
    auto source = [](void *, memlord_device, memlord_capacity *out) {
        out->total = uint64_t(80) << 30;
        out->used = uint64_t(8) << 30;
        return 0;
    };
    auto collect = [](void *, memlord *, const memlord_gc_event *) {
        return memlord_gc_result{1, 0, 0};
    };
    if (memlord_capacity_source_set(lord, MEMLORD_DEVICE_CUDA, source, nullptr) != MEMLORD_OK ||
        memlord_strategy_set(lord, memlord_device_all(), &band, 1) != MEMLORD_OK ||
        memlord_gc_callback_add(lord, memlord_device_cuda(MEMLORD_ANY), 0, collect, nullptr) !=
            MEMLORD_OK)
        std::abort();
}
#endif

std::unique_ptr<row> play(const std::string &name, mix m, setup s) {
#if !BENCH_BASE
    if (s.charged)
        return std::make_unique<row_of<charged_books>>(
            name, m, [s](size_t) { return std::make_unique<charged_books>(s); });
#endif
    return std::make_unique<row_of<books>>(name, m, [s](size_t blocks) {
        auto b = std::make_unique<books>(s);
#if !BENCH_BASE
        if (s.guarded) guard(b->lord(), blocks);
#endif
        (void)blocks;
        return b;
    });
}

weight weigh(setup s, const std::vector<op> &blocks) {
    memlord_allocator from = {[](void *, size_t size) { return counted_get(size); },
                              [](void *, void *p, size_t) { counted_put(p); }, nullptr};
    size_t before = counted_bytes;
    weight w;
    {
        books b(s, &from);
        b.enter();
        w = ::weigh(b, before, blocks);
        b.leave();
    }
    if (counted_bytes != before) std::printf("memlord kept %zu bytes\n", counted_bytes - before);
    return w;
}

/* A reading of `allocated` while so many threads have an account of their own. */
double read_ns(int threads) {
    books b({});
    memlord_device device = memlord_device_cuda(0);
    std::atomic<int> in{0}, out{0};
    std::vector<std::thread> crowd;
    for (int i = 0; i < threads; i++)
        crowd.emplace_back([&, i] {
            uint64_t storage = static_cast<uint64_t>(i + 1) << 12;
            (void)memlord_alloc(b.lord(), device, storage, 64, nullptr);
            in++;
            while (!out) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
    while (in < threads) std::this_thread::yield();
    std::vector<double> rounds;
    const int calls = 100000;
    uint64_t sum = 0;
    for (int r = 0; r < 9; r++) {
        double from = now_ns();
        for (int i = 0; i < calls; i++) sum += memlord_allocated(b.lord(), device);
        rounds.push_back((now_ns() - from) / calls);
    }
    out = 1;
    for (std::thread &t : crowd) t.join();
    if (sum != 9ull * calls * 64 * static_cast<uint64_t>(threads)) std::abort();
    return median(rounds);
}

} // namespace

#if BENCH_BASE
const revision base_revision = {play, weigh, read_ns};
#else
const revision present_revision = {play, weigh, read_ns};
#endif
