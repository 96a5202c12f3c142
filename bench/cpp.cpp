/*
    cpp.cpp - what mlord::allocator and mlord::resource add to what they wrap

    A pair replaces one of 1,000 live blocks, sizes log-uniform from 16 B to 4 KiB, on one thread.
    The ways are played in turn. A line each: its name, and medians over the rounds in ns per pair:
    its time, what it adds to the same way without books, and how much more that is than what the
    calls by hand add.

    MEMLORD_BENCH_QUICK=1: fewer rounds.
*/
#define MEMLORD_PMR
#include "../memlord.h"

#include <cstdio>
#include <cstdlib>

#include "harness.h"

namespace {

enum { LIVE = 1000, SIZES = 1024, PAIRS = 20000, WAYS = 6 };

struct ledger {
    ledger() {
        if (memlord_create(nullptr, &lord) != MEMLORD_OK) std::abort();
    }
    ~ledger() { memlord_destroy(lord); }
    ledger(const ledger &) = delete;
    memlord *lord = nullptr;
};

/* -- the ways to a block -- */

struct by_new {
    char *take(size_t bytes) { return static_cast<char *>(::operator new(bytes)); }
    void give(char *p, size_t) { ::operator delete(p); }
};

struct by_hand {
    char *take(size_t bytes) {
        char *p = static_cast<char *>(::operator new(bytes));
        (void)memlord_alloc(books.lord, memlord_device_cpu(), MEMLORD_KEY(p), bytes, nullptr);
        return p;
    }
    void give(char *p, size_t) {
        (void)memlord_free(books.lord, memlord_device_cpu(), MEMLORD_KEY(p), nullptr);
        ::operator delete(p);
    }
    ledger books;
};

struct by_std_allocator {
    char *take(size_t bytes) { return from.allocate(bytes); }
    void give(char *p, size_t bytes) { from.deallocate(p, bytes); }
    std::allocator<char> from;
};

struct by_allocator {
    char *take(size_t bytes) { return from.allocate(bytes); }
    void give(char *p, size_t bytes) { from.deallocate(p, bytes); }
    ledger books;
    mlord::allocator<char> from{books.lord};
};

/* A container knows no more of its resource than this. */
struct by_pmr {
    char *take(size_t bytes) { return static_cast<char *>(from->allocate(bytes, 16)); }
    void give(char *p, size_t bytes) { from->deallocate(p, bytes, 16); }
    std::pmr::memory_resource *from = std::pmr::new_delete_resource();
};

struct by_resource {
    char *take(size_t bytes) { return static_cast<char *>(from->allocate(bytes, 16)); }
    void give(char *p, size_t bytes) { from->deallocate(p, bytes, 16); }
    ledger books;
    mlord::resource counted{books.lord};
    std::pmr::memory_resource *from = &counted;
};

/* -- rounds -- */

/* A way with the blocks that are live by it. */
template <class Way> class play {
public:
    play() : random_(1) {
        for (size_t &bytes : sizes_) bytes = random_.size();
        for (slot &s : live_) fill(s);
    }
    ~play() {
        for (slot &s : live_) way_.give(s.p, s.bytes);
    }
    play(const play &) = delete;
    __attribute__((noinline)) double round() {
        double from = now_ns(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < PAIRS; i++) {
            slot &s = live_[random_.below(LIVE)];
            way_.give(s.p, s.bytes);
            fill(s);
        }
        return (now_ns(CLOCK_THREAD_CPUTIME_ID) - from) / PAIRS;
    }

private:
    struct slot {
        char *p;
        size_t bytes;
    };
    void fill(slot &s) {
        s.bytes = sizes_[random_.below(SIZES)]; /* to draw one would take longer than a call */
        s.p = way_.take(s.bytes);
        s.p[0] = 1; /* as a program would */
    }
    Way way_;
    dice random_;
    size_t sizes_[SIZES];
    slot live_[LIVE];
};

struct named {
    const char *name;
    int without; /* the way it is compared with */
};
const named ways[WAYS] = {
    {"operator new + delete", 0},    {"  with memlord_alloc + memlord_free", 0},
    {"std::allocator", 2},           {"  mlord::allocator", 2},
    {"pmr::new_delete_resource", 4}, {"  mlord::resource", 4},
};

} // namespace

int main() {
    const int rounds = std::getenv("MEMLORD_BENCH_QUICK") ? 51 : 301;
    play<by_new> a;
    play<by_hand> b;
    play<by_std_allocator> c;
    play<by_allocator> d;
    play<by_pmr> e;
    play<by_resource> f;
    std::vector<double> ns[WAYS];
    for (int r = -1; r < rounds; r++) { /* the first warms up */
        double now[WAYS] = {a.round(), b.round(), c.round(), d.round(), e.round(), f.round()};
        for (int w = 0; w < WAYS && r >= 0; w++) ns[w].push_back(now[w]);
    }
    for (int w = 0; w < WAYS; w++) {
        std::vector<double> added, over;
        for (int r = 0; r < rounds; r++) {
            size_t i = static_cast<size_t>(r);
            added.push_back(ns[w][i] - ns[ways[w].without][i]);
            over.push_back(added.back() - (ns[1][i] - ns[0][i]));
        }
        std::printf("%s\t%.1f", ways[w].name, median(ns[w]));
        if (w != ways[w].without) std::printf("\t%.1f\t%.1f", median(added), median(over));
        std::printf("\n");
    }
    return 0;
}
