/* The map bench: MemLord beside the maps a host would otherwise use, in one process and turn
   about. README.md says what is measured and how to read it. */
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "../memlord.h"
#include "harness.h"

/* -- MemLord as a row -- */

enum { SITES = 1000, DEVICES = 100 };
static memlord_site sites[SITES];

struct setup {
    uint32_t flags;
    bool tagged;
    size_t guarded = 0; /* blocks under a strategy whose threshold they do not reach */
};

class books : public keyed {
public:
    explicit books(setup s, const memlord_allocator *from = nullptr) : tagged_(s.tagged) {
        memlord_desc desc = {};
        desc.flags = s.flags;
        if (from) desc.allocator = *from;
        if (memlord_create(&desc, &lord_) != MEMLORD_OK) std::abort();
        if (s.guarded) guard(s.guarded);
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
        (void)memlord_alloc(lord_, on(device), o.opened, o.bytes, &sites[site]);
    }
    void closes(uint64_t key, uint32_t site) {
        (void)memlord_free(lord_, on(0), key, &sites[site]);
    }
    verdict state() const {
        memlord_stats s;
        (void)memlord_stats_get(lord_, memlord_device_all(), &s);
        return {true, s.allocated, s.allocs, s.frees,
                s.implicit_frees + s.unknown_frees + s.freed_while_shared + s.dropped_allocs +
                    s.gc_runs};
    }

private:
    /* A capacity, a callback and a band that covers everything. Blocks are 736 bytes in the
       mean, so its threshold leaves each of two threads a MiB and more, but not much more. */
    void guard(size_t blocks) {
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
        if (memlord_capacity_source(lord_, MEMLORD_DEVICE_CUDA, source, nullptr) != MEMLORD_OK ||
            memlord_strategy_set(lord_, &band, 1) != MEMLORD_OK ||
            memlord_gc_callback(lord_, MEMLORD_DEVICE_CUDA, collect, nullptr) != MEMLORD_OK)
            std::abort();
    }
    static memlord_device on(uint32_t i) {
        return memlord_device_make(MEMLORD_DEVICE_CUDA, static_cast<int>(i));
    }
    memlord *lord_ = nullptr;
    bool tagged_;
};

/* -- what section 5 of the contract demands -- */

class demands {
public:
    explicit demands(const char *path) : file_(path ? std::fopen(path, "w") : nullptr) {}
    ~demands() {
        if (file_) std::fclose(file_);
    }
    void at_most(const std::string &what, double limit, double is, const char *unit) {
        put(what, "<=", limit, is, unit, is <= limit);
    }
    void at_least(const std::string &what, double limit, double is, const char *unit) {
        put(what, ">=", limit, is, unit, is >= limit);
    }

private:
    /* Below zero says that it was not measured, which is not the same as held. */
    void put(const std::string &what, const char *sign, double limit, double is,
             const char *unit, bool holds) {
        if (!file_) return;
        std::fprintf(file_, "%s\t%s %.4g%s\t", what.c_str(), sign, limit, unit);
        if (is < 0) std::fprintf(file_, "-\tNOT MEASURED\n");
        else std::fprintf(file_, "%.3g%s\t%s\n", is, unit, holds ? "holds" : "MISSED");
    }
    FILE *file_;
};

/* -- one size: record, fill, play in turn -- */

enum keys { HEAP, ALIGNED, HANDLES, APART };

struct plan {
    const char *title;
    keys kind;
    size_t live, warm, timed, rounds;
};

class contest {
public:
    contest(crew &c, const plan &p) : crew_(c), plan_(p) {}

    template <class Peer>
    int add(const char *name, unsigned modes, mix m, typename row_of<Peer>::maker make) {
        rows_.push_back(std::make_unique<row_of<Peer>>(name, m, make));
        modes_.push_back(crew_.size() > 1 ? modes : modes & 1u << ALONE);
        return static_cast<int>(rows_.size()) - 1;
    }
    int add_lord(const char *name, unsigned modes, mix m, setup s) {
        return add<books>(name, modes, m, [s](size_t) { return std::make_unique<books>(s); });
    }
    template <class Peer> int add_peer(const char *name, unsigned modes) {
        return add<Peer>(name, modes, {1, 1}, [](size_t) { return std::make_unique<Peer>(); });
    }
    void add_all(bool everything);
    bool play();
    void print() const;

    double pair_ns(int a, mode m) const;
    double against(int a, int b, mode m) const;
    double scaling(int a) const;

    int lord = -1, guarded = -1, full = -1, one = -1, devices = -1, sites = -1;
    int boost = -1, glibc = -1;

private:
    void record_all();
    void open(row &r, unsigned modes);
    double round(row &r, mode m, range steps);
    void turn(row &r, mode m);
    bool agree(mode m) const;
    void print(mode m) const;
    bool has(int a, mode m) const { return a >= 0 && !rows_[a]->ns[m].empty(); }
    double net(int a, mode m, size_t i) const;

    crew &crew_;
    plan plan_;
    std::vector<std::unique_ptr<row>> rows_;
    std::vector<unsigned> modes_;
    trace traces_[MODES]; /* the first thread's, the second's, that of the pair */
    ring ring_;
    int empty_ = -1, empty_slots_ = -1;
};

void contest::add_all(bool everything) {
    const unsigned all = 1u << ALONE | 1u << BOTH | 1u << ACROSS, own = 1u << ALONE | 1u << BOTH;
    const unsigned maps = plan_.kind == HEAP ? all : own;
    lord = add_lord("memlord", maps, {1, 1}, {0, false});
    if (everything) {
        guarded = add<books>("memlord, a strategy", own, {1, 1}, [](size_t blocks) {
            return std::make_unique<books>(setup{0, false, blocks});
        });
        devices = add_lord("memlord, 100 devices", own, {DEVICES, 1}, {0, false});
        add_lord("memlord, a tag", own, {1, 1}, {0, true});
        add_lord("memlord, exact", own, {1, 1}, {MEMLORD_FLAG_EXACT, false});
        one = add_lord("memlord, sites: 1", own, {1, 1}, {MEMLORD_FLAG_SITES, false});
        sites = add_lord("memlord, sites: 1,000", own, {1, SITES}, {MEMLORD_FLAG_SITES, false});
    }
    full = add_lord("memlord, sites and a tag", own, {1, 1}, {MEMLORD_FLAG_SITES, true});
#if PEER_BOOST
    boost = add_peer<boost_flat<std::allocator>>("mutex + boost flat map", maps);
#endif
#if PEER_ABSL
    add_peer<absl_flat<std::allocator>>("mutex + absl flat_hash_map", maps);
#endif
#if PEER_STB
    add_peer<stb_hashmap>("mutex + stb_ds hm", maps);
#endif
#if PEER_TBB
    /* its default hash keeps the low bits: multiples of 2 MiB all fall into one bucket */
    if (plan_.kind != ALIGNED)
        add_peer<tbb_map<std::allocator>>("tbb concurrent_hash_map", maps);
#endif
    add_peer<std_unordered<std::allocator>>("mutex + std::unordered_map", maps);
    add_peer<rmm_scheme<std::allocator>>("RMM: shared_mutex + map", maps);
    if (plan_.kind == HEAP) {
        /* a second and a third heap of millions of blocks would take gigabytes */
        unsigned heaps = plan_.live > 1000000 ? 1u << ALONE : all;
        glibc = add<real_heap>("glibc malloc + free", heaps, {1, 1},
                               [](size_t n) { return std::make_unique<real_heap>(n); });
        empty_slots_ = add<nothing<true>>("the loop around malloc", heaps, {1, 1}, [](size_t n) {
            return std::make_unique<nothing<true>>(n);
        });
    }
    empty_ = add<nothing<false>>("the loop", maps, {1, 1},
                                 [](size_t n) { return std::make_unique<nothing<false>>(n); });
}

static uint64_t synthetic(keys kind, size_t i) {
    if (kind == APART) return 0x7f5500000000u + (uint64_t)i * 5520;
    return kind == ALIGNED ? (uint64_t)(i + 1) << 21 : i + 1;
}

/* On threads made for it: the bench's own may hold blocks of each other's arenas, cached when
   one freed for the other, and then the two records would share addresses. */
void contest::record_all() {
    size_t steps = plan_.rounds * (plan_.warm + plan_.timed);
    std::unique_ptr<heap> alive[MODES];
    std::vector<std::thread> recorders;
    traces_[BOTH].first_slot = static_cast<uint32_t>(plan_.live);
    for (size_t id = 0; id < MODES; id++)
        recorders.emplace_back([&, id] {
            auto key = [&](size_t i) { return synthetic(plan_.kind, 2 * i + id); };
            size_t delay = id == ACROSS ? 4 * ring::CAPACITY : 0;
            if (plan_.kind == HEAP)
                alive[id] = record(traces_[id], plan_.live, steps, delay, id + 1);
            else if (id != ACROSS)
                record_keys(traces_[id], plan_.live, steps, key, id + 1);
        });
    for (std::thread &t : recorders) t.join();
    for (auto &h : alive) h.reset();
    malloc_trim(0);
}

/* Every thread brings in its own blocks, so that a map which keeps them apart can. */
void contest::open(row &r, unsigned modes) {
    for (int m = ALONE; m < MODES; m++) {
        if (!(modes >> m & 1)) continue;
        mode as = static_cast<mode>(m);
        r.open(as, plan_.live * (as == BOTH ? 2 : 1));
        crew_.run(1, [&](int) { r.fill(as, traces_[as == ACROSS ? ACROSS : ALONE]); });
        if (as == BOTH)
            crew_.run(2, [&](int id) {
                if (id == 1) r.fill(as, traces_[BOTH]);
            });
    }
}

double contest::round(row &r, mode m, range steps) {
    size_t n = steps.to - steps.from;
    double ns;
    if (m == ACROSS) {
        ring_.start();
        ns = crew_.run(2, [&](int id) {
            if (id == 0) r.give(traces_[ACROSS], steps, ring_);
            else r.take(n, ring_);
        });
    } else {
        ns = crew_.run(m == BOTH ? 2 : 1, [&](int id) { r.own(m, traces_[id], steps); });
    }
    return ns / static_cast<double>(n);
}

/* Warms the caches, then measures; slow contenders get fewer steps, not a longer run. */
void contest::turn(row &r, mode m) {
    const double budget_ns = 20e6;
    size_t from = r.at[m], begin = from + plan_.warm;
    double pace = round(r, m, {from, begin});
    size_t steps = std::min(plan_.timed, static_cast<size_t>(budget_ns / std::max(1.0, pace)));
    steps = std::max(steps, plan_.timed / 10);
    r.ns[m].push_back(round(r, m, {begin, begin + steps}));
    r.at[m] = begin + steps;
}

bool contest::play() {
    record_all();
    for (size_t i = 0; i < rows_.size(); i++) open(*rows_[i], modes_[i]);
    for (size_t n = 0; n < plan_.rounds; n++)
        for (size_t i = 0; i < rows_.size(); i++)
            for (int m = ALONE; m < MODES; m++)
                if (modes_[i] >> m & 1) turn(*rows_[i], static_cast<mode>(m));
    bool same = agree(ALONE) && agree(BOTH) && agree(ACROSS);
    for (auto &r : rows_) r->shut();
    for (trace &t : traces_) t = trace();
    return same;
}

static uint64_t live_bytes(const trace &t, size_t steps) {
    std::vector<uint64_t> bytes;
    for (const op &o : t.fill) bytes.push_back(o.bytes);
    for (size_t i = 0; i < steps; i++) bytes[t.slots[i] - t.first_slot] = t.churn[i].bytes;
    return std::accumulate(bytes.begin(), bytes.end(), uint64_t(0));
}

/* A contender that lost a block on the way would be fast for the wrong reason. */
bool contest::agree(mode m) const {
    bool all = true;
    for (size_t i = 0; i < rows_.size(); i++) {
        verdict v = rows_[i]->state(m);
        if (!v.keeps_books) continue;
        size_t steps = rows_[i]->at[m], threads = m == BOTH ? 2 : 1;
        uint64_t bytes = live_bytes(traces_[m == ACROSS ? ACROSS : ALONE], steps);
        if (m == BOTH) bytes += live_bytes(traces_[BOTH], steps);
        if (v.live_bytes == bytes && v.allocs == threads * (steps + plan_.live) &&
            v.frees == threads * steps && v.odd == 0)
            continue;
        std::printf("WRONG BOOKS: %s: %" PRIu64 " bytes live, %" PRIu64 " allocs, %" PRIu64
                    " frees, %" PRIu64 " odd\n",
                    rows_[i]->name.c_str(), v.live_bytes, v.allocs, v.frees, v.odd);
        all = false;
    }
    return all;
}

/* -- numbers out of it -- */

/* What the loop costs without a contender in it is taken off, from all alike. */
double contest::net(int a, mode m, size_t i) const {
    int loop = a == glibc ? empty_slots_ : empty_;
    double ns = rows_[a]->ns[m][i];
    return a == empty_ || a == empty_slots_ ? ns : std::max(0.01, ns - median(rows_[loop]->ns[m]));
}

double contest::pair_ns(int a, mode m) const {
    std::vector<double> v;
    for (size_t i = 0; has(a, m) && i < rows_[a]->ns[m].size(); i++) v.push_back(net(a, m, i));
    return v.empty() ? -1 : median(v);
}

/* Each round gives a ratio of neighbours in time; the median of those is what is said. */
double contest::against(int a, int b, mode m) const {
    std::vector<double> v;
    if (!has(a, m) || !has(b, m)) return -1;
    for (size_t i = 0; i < rows_[a]->ns[m].size(); i++) v.push_back(net(a, m, i) / net(b, m, i));
    return median(v);
}

double contest::scaling(int a) const {
    std::vector<double> v;
    if (!has(a, ALONE) || !has(a, BOTH)) return -1;
    for (size_t i = 0; i < rows_[a]->ns[BOTH].size(); i++)
        v.push_back(2 * net(a, ALONE, i) / net(a, BOTH, i));
    return median(v);
}

static std::string cell(double value) {
    char text[32] = "-";
    if (value >= 0) std::snprintf(text, sizeof text, "%.*f", value < 9.995 ? 2 : 1, value);
    return text;
}

void contest::print(mode m) const {
    static const char *const titles[] = {"one thread", "two threads, each its own blocks",
                                         "two threads, one frees what the other allocated"};
    std::printf("\n%s, %s: ns per alloc+free pair\n", plan_.title, titles[m]);
    std::printf("%-30s %8s %8s %8s %8s %8s%s\n", "", "median", "min", "max", "x boost", "x glibc",
                m == BOTH ? "  x of one thread's throughput" : "");
    for (size_t i = 0; i < rows_.size(); i++) {
        int a = static_cast<int>(i);
        if (!has(a, m)) continue;
        std::vector<double> v;
        for (size_t k = 0; k < rows_[i]->ns[m].size(); k++) v.push_back(net(a, m, k));
        std::sort(v.begin(), v.end());
        bool loop = a == empty_ || a == empty_slots_;
        std::printf("%-30s %8s %8s %8s %8s %8s%s%s\n", rows_[i]->name.c_str(),
                    cell(median(v)).c_str(), cell(v.front()).c_str(), cell(v.back()).c_str(),
                    cell(loop ? -1 : against(a, boost, m)).c_str(),
                    cell(loop ? -1 : against(a, glibc, m)).c_str(), m == BOTH ? "  " : "",
                    m == BOTH && !loop ? cell(scaling(a)).c_str() : "");
    }
}

void contest::print() const {
    print(ALONE);
    if (crew_.size() > 1) print(BOTH);
    if (crew_.size() > 1 && plan_.kind == HEAP) print(ACROSS);
    std::fflush(stdout);
}

/* -- bytes per block -- */

struct weight {
    double worst, full, shrunk;
    size_t worst_at;
};

/* Looks after every single insert, so just after every growth too. */
template <class Peer> static weight weigh(Peer &p, size_t base, const std::vector<op> &blocks) {
    weight w = {0, 0, 0, 0};
    size_t n = 0, left = blocks.size();
    for (const op &o : blocks) {
        p.opens(o, 0, 0, 0);
        if (++n < 10000) continue;
        double each = double(counted_bytes - base) / double(n);
        if (each > w.worst) {
            w.worst = each;
            w.worst_at = n;
        }
    }
    w.full = double(counted_bytes - base) / double(n);
    for (; left > n / 10; left--) p.closes(blocks[left - 1].opened, 0);
    w.shrunk = double(counted_bytes - base) / double(left);
    return w;
}

static void print_weight(const char *name, const weight &w) {
    std::printf("%-30s %8.1f at %-9zu %8.1f %16.1f\n", name, w.worst, w.worst_at, w.full, w.shrunk);
}

template <class Peer> static void weigh_peer(const char *name, const std::vector<op> &blocks) {
    size_t base = counted_bytes;
    Peer p;
    print_weight(name, weigh(p, base, blocks));
}

static weight weigh_lord(const char *name, setup s, const std::vector<op> &blocks) {
    memlord_allocator from = {[](void *, size_t size) { return counted_get(size); },
                              [](void *, void *p, size_t) { counted_put(p); }, nullptr};
    size_t base = counted_bytes;
    weight w;
    {
        books b(s, &from);
        b.enter();
        w = weigh(b, base, blocks);
        b.leave();
    }
    if (counted_bytes != base) std::printf("memlord kept %zu bytes\n", counted_bytes - base);
    print_weight(name, w);
    return w;
}

static std::vector<op> blocks_of(keys kind, size_t n) {
    trace t;
    if (kind == HEAP) record(t, n, 0, 0, 9);
    else record_keys(t, n, 0, [&](size_t i) { return synthetic(kind, i / 2 + i % 2 * n); }, 9);
    return t.fill;
}

static void weigh_all(const char *title, keys kind, size_t n, demands &must) {
    std::vector<op> blocks = blocks_of(kind, n);
    std::printf("\n%s: bytes per live block, over 10,000 blocks\n", title);
    std::printf("%-30s %8s %21s %16s\n", "", "worst", "at the last", "after 9/10 freed");
    weight w = weigh_lord("memlord", {0, false}, blocks);
    must.at_most(std::string("bytes per live block, ") + title, 64, w.worst, " B");
    weigh_lord("memlord, sites and a tag", {MEMLORD_FLAG_SITES, true}, blocks);
#if PEER_BOOST
    weigh_peer<boost_flat<counted>>("boost flat map", blocks);
#endif
#if PEER_ABSL
    weigh_peer<absl_flat<counted>>("absl flat_hash_map", blocks);
#endif
#if PEER_STB
    weigh_peer<stb_hashmap>("stb_ds hm", blocks);
#endif
#if PEER_TBB
    if (kind != ALIGNED) weigh_peer<tbb_map<counted>>("tbb concurrent_hash_map", blocks);
#endif
    weigh_peer<std_unordered<counted>>("std::unordered_map", blocks);
    weigh_peer<rmm_scheme<counted>>("RMM: std::map", blocks);
    std::fflush(stdout);
}

/* -- readers -- */

/* A reading of `allocated` while so many threads have an account of their own. */
static double read_ns(memlord *lord, int threads) {
    memlord_device device = memlord_device_cuda(0);
    std::atomic<int> in{0}, out{0};
    std::vector<std::thread> crowd;
    for (int i = 0; i < threads; i++)
        crowd.emplace_back([&, i] {
            (void)memlord_alloc(lord, device, static_cast<uint64_t>(i + 1) << 12, 64, nullptr);
            in++;
            while (!out) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
    while (in < threads) std::this_thread::yield();
    std::vector<double> rounds;
    const int calls = 100000;
    uint64_t sum = 0;
    for (int r = 0; r < 9; r++) {
        double from = now_ns();
        for (int i = 0; i < calls; i++) sum += memlord_allocated(lord, device);
        rounds.push_back((now_ns() - from) / calls);
    }
    out = 1;
    for (std::thread &t : crowd) t.join();
    if (sum != 9ull * calls * 64 * static_cast<uint64_t>(threads)) std::abort();
    return median(rounds);
}

static void read_all(demands &must) {
    double first = 0, last = 0;
    std::printf("\nmemlord_allocated of one device\n%-30s %8s\n", "", "ns");
    for (int threads : {1, 2, 8}) {
        books b({0, false});
        last = read_ns(b.lord(), threads);
        if (threads == 1) first = last;
        std::printf("%-30s %8.1f\n",
                    (std::to_string(threads) + (threads > 1 ? " threads" : " thread")).c_str(),
                    last);
    }
    must.at_most("memlord_allocated, 8 threads", 8, last / 8, " ns a thread");
    must.at_most("  each thread more", 8, std::max(0.0, last - first) / 7, " ns");
}

/* -- the bench -- */

static void check(const contest &c, const plan &p, demands &must) {
    std::string at = std::string(", ") + p.title;
    double alone = p.live <= 1000 ? 0.5 : p.live <= 100000 ? 0.8 : 1.0;
    must.at_most("pair, 1 thread" + at, alone, c.against(c.lord, c.boost, ALONE), " x boost");
    must.at_most("  with sites and a tag" + at, alone, c.against(c.full, c.boost, ALONE),
                 " x boost");
    if (p.live <= 1000) {
        must.at_most("pair, 1 thread" + at, 1, c.against(c.lord, c.glibc, ALONE), " x glibc");
        must.at_most("  with sites and a tag" + at, 1, c.against(c.full, c.glibc, ALONE),
                     " x glibc");
        must.at_most("pair, 2 threads" + at, 0.2, c.against(c.lord, c.boost, BOTH), " x boost");
    }
    must.at_least("throughput, 2 threads" + at, p.live <= 1000 ? 1.8 : 1.4, c.scaling(c.lord),
                  " x one");
    must.at_most("one frees the other's" + at, 0.5, c.against(c.lord, c.boost, ACROSS),
                 " x boost");
    if (c.devices < 0) return;
    must.at_most("a strategy or none, 1 thread" + at, 1.15,
                 c.against(c.guarded, c.lord, ALONE), " x");
    must.at_most("  2 threads" + at, 1.15, c.against(c.guarded, c.lord, BOTH), " x");
    /* no slower, that is: not by more than two runs of the same code differ */
    must.at_most("100 devices against 1" + at, 1.05, c.against(c.devices, c.lord, ALONE), " x");
    must.at_most("1,000 sites against 1" + at, 1.05, c.against(c.sites, c.one, ALONE), " x");
}

/* Four containers for each contender, and a heap to record: what /proc says is free. */
static bool room_for_millions() {
    unsigned long long kib = 0;
    char line[128];
    FILE *f = std::fopen("/proc/meminfo", "r");
    while (f && std::fgets(line, sizeof line, f))
        if (std::sscanf(line, "MemAvailable: %llu", &kib) == 1) break;
    if (f) std::fclose(f);
    return kib >= 8ull << 20;
}

static bool run_size(crew &c, const plan &p, bool everything, demands &must) {
    contest play(c, p);
    play.add_all(everything);
    bool same = play.play();
    play.print();
    if (p.kind == HEAP) check(play, p, must);
    return same;
}

static bool run_sizes(crew &c, bool quick, demands &must) {
    const size_t rounds = quick ? 7 : 25;
    const plan sizes[] = {
        {"1,000 live", HEAP, 1000, 5000, 60000, rounds},
        {"100,000 live", HEAP, 100000, 20000, 60000, rounds},
        {"10,000 live, 2 MiB-aligned keys", ALIGNED, 10000, 10000, 50000, 9},
        {"10,000 live, keys 1, 2, 3, ...", HANDLES, 10000, 10000, 50000, 9},
    };
    const plan millions = {"2,000,000 live", HEAP, 2000000, 20000, 300000, 5};
    bool same = true;
    for (const plan &p : sizes) same = run_size(c, p, p.kind == HEAP, must) && same;
    if (!quick && room_for_millions()) return run_size(c, millions, false, must) && same;
    std::printf("\n%s: left out, %s\n", millions.title,
                quick ? "a quick run" : "less than 8 GiB of memory is free");
    check(contest(c, millions), millions, must);
    return same;
}

int main(int argc, char **argv) {
    demands must(argc > 1 ? argv[1] : nullptr);
    const char *ask = std::getenv("MEMLORD_BENCH_QUICK");
    bool quick = ask && std::strcmp(ask, "0") != 0;
    for (int i = 0; i < SITES; i++) sites[i] = {"bench/map.cpp", "replay", i + 1};
    crew c;
    if (c.size() < 2) std::printf("one processor: nothing with two threads is measured\n");
    bool same = run_sizes(c, quick, must);
    weigh_all("heap addresses", HEAP, quick ? 200000 : 1000000, must);
    weigh_all("2 MiB-aligned keys", ALIGNED, quick ? 100000 : 300000, must);
    weigh_all("keys 1, 2, 3, ...", HANDLES, quick ? 100000 : 300000, must);
    weigh_all("keys 5,520 bytes apart", APART, quick ? 100000 : 300000, must);
    read_all(must);
    return same ? 0 : 1;
}
