/* The map bench: MemLord beside the maps that a host would otherwise use, in one process, in turn.
   README.md says what is measured and how to read it. */
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "books.h"

#if BENCH_BASE
static const bool has_base = true;
#else
static const bool has_base = false;
const revision base_revision = {};
#endif

/* -- what the contract demands -- */

class demands {
public:
    explicit demands(const char *path) : file_(path ? std::fopen(path, "a") : nullptr) {}
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
    /* Notes a demand. `is` below 0: it was not measured, which is not the same as met. */
    void put(const std::string &what, const char *sign, double limit, double is,
             const char *unit, bool holds) {
        if (!file_) return;
        std::fprintf(file_, "%s\t%s %.4g%s\t", what.c_str(), sign, limit, unit);
        if (is < 0) std::fprintf(file_, "-\tNOT MEASURED\n");
        else std::fprintf(file_, "%.3g%s\t%s\n", is, unit, holds ? "holds" : "MISSED");
    }
    FILE *file_;
};

/* Returns whether an environment variable asks for something: 0 is no. */
static bool asked(const char *name, bool otherwise) {
    const char *value = std::getenv(name);
    return value ? std::strcmp(value, "0") != 0 : otherwise;
}

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

    int add(std::unique_ptr<row> fresh, unsigned modes) {
        rows_.push_back(std::move(fresh));
        modes_.push_back(crew_.size() > 1 ? modes : modes & 1u << ALONE);
        bases_.push_back(-1);
        return static_cast<int>(rows_.size()) - 1;
    }
    template <class Peer>
    int add(const char *name, unsigned modes, mix m, typename row_of<Peer>::maker make) {
        return add(std::make_unique<row_of<Peer>>(name, m, make), modes);
    }
    int add_lord(const std::string &name, unsigned modes, mix m, setup s) {
        return add(present_revision.play(name, m, s), modes);
    }
    /* Adds a row, and that of the base, which is played right after it. */
    int add_lords(const std::string &name, unsigned modes, mix m, setup s) {
        int a = add_lord(name, modes, m, s);
        if (has_base)
            bases_[static_cast<size_t>(a)] =
                add(base_revision.play(name + ", base", m, s), modes);
        return a;
    }
    template <class Peer> int add_peer(const char *name, unsigned modes) {
        return add<Peer>(name, modes, {1, 1}, [](size_t) { return std::make_unique<Peer>(); });
    }
    void add_peers(unsigned modes);
    void add_all(bool everything);
    bool play();
    void print() const;

    double against(int a, int b, mode m) const;
    double against_base(int a, mode m) const;
    double scaling(int a) const;

    int lord = -1, full = -1, devices = -1, places = -1, charged = -1, boost = -1, glibc = -1;

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
    std::vector<int> bases_; /* of each row, the row of the base beside it */
    trace traces_[MODES];    /* of the first thread, of the second, of the two together */
    ring ring_;
    int empty_ = -1, empty_slots_ = -1;
};

/* The members of a setup: sites, tagged, exact, guarded, charged. */
static const setup with_sites = {true, false, false, false, false};
static const setup exact = {false, false, true, false, false};
static const setup guarded = {false, false, false, true, false};
static const setup sites_and_tag = {true, true, false, false, false};
static const setup tag_and_account = {false, true, false, false, true};

void contest::add_peers(unsigned maps) {
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
    /* The default hash keeps the low bits, so that multiples of 2 MiB all fall into one bucket. */
    if (plan_.kind != ALIGNED)
        add_peer<tbb_map<std::allocator>>("tbb concurrent_hash_map", maps);
#endif
    add_peer<std_unordered<std::allocator>>("mutex + std::unordered_map", maps);
    add_peer<rmm_scheme<std::allocator>>("RMM: shared_mutex + map", maps);
}

void contest::add_all(bool everything) {
    const unsigned all = 1u << ALONE | 1u << BOTH | 1u << ACROSS, own = 1u << ALONE | 1u << BOTH;
    const unsigned maps = plan_.kind == HEAP ? all : plan_.kind == ALIGNED ? own : 1u << ALONE;
    lord = add_lords("memlord", maps, {1, 1}, {});
    if (everything) {
        add_lord("memlord, a strategy", own, {1, 1}, guarded);
        devices = add_lords("memlord, 100 devices", own, {DEVICES, 1}, {});
        add_lord("memlord, exact", own, {1, 1}, exact);
        places = add_lords("memlord, sites: 1,000", own, {1, SITES}, with_sites);
        charged = add_lord("memlord, tag and account", 1u << ALONE, {1, 1}, tag_and_account);
    }
    full = add_lords("memlord, sites and a tag", maps & own, {1, 1}, sites_and_tag);
    if (asked("MEMLORD_BENCH_PEERS", true)) add_peers(maps);
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

/* Records the traces on threads of their own. The bench's threads may hold blocks of each other's
   arenas, cached when one freed for the other, and the two records would share addresses. */
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

/* Fills the containers of a row. Each thread brings in its own blocks, so that a map that keeps the
   blocks of threads apart can do so. */
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

/* Plays a row: warms the caches, then measures. A slow contender gets fewer steps, so that its turn
   does not take longer. */
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

/* Checks that all contenders have the same books: one that lost blocks would be fast for the wrong
   reason. */
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

/* Returns the ns of a pair in a round, less what the loop takes without a contender. */
double contest::net(int a, mode m, size_t i) const {
    int loop = a == glibc ? empty_slots_ : empty_;
    double ns = rows_[a]->ns[m][i];
    return a == empty_ || a == empty_slots_ ? ns : std::max(0.01, ns - median(rows_[loop]->ns[m]));
}

/* Returns how many times the time of another contender one takes: the median over the rounds, each
   of which compares two turns that are close in time. */
double contest::against(int a, int b, mode m) const {
    std::vector<double> v;
    if (!has(a, m) || !has(b, m)) return -1;
    for (size_t i = 0; i < rows_[a]->ns[m].size(); i++) v.push_back(net(a, m, i) / net(b, m, i));
    return median(v);
}

double contest::against_base(int a, mode m) const {
    return a < 0 ? -1 : against(a, bases_[static_cast<size_t>(a)], m);
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
    std::printf("%-30s %8s %8s %8s %8s %8s%s%s\n", "", "median", "min", "max", "x boost", "x glibc",
                has_base ? "   x base" : "", m == BOTH ? "  x of one thread's throughput" : "");
    for (size_t i = 0; i < rows_.size(); i++) {
        int a = static_cast<int>(i);
        if (!has(a, m)) continue;
        std::vector<double> v;
        for (size_t k = 0; k < rows_[i]->ns[m].size(); k++) v.push_back(net(a, m, k));
        std::sort(v.begin(), v.end());
        bool loop = a == empty_ || a == empty_slots_;
        std::printf("%-30s %8s %8s %8s %8s %8s", rows_[i]->name.c_str(), cell(median(v)).c_str(),
                    cell(v.front()).c_str(), cell(v.back()).c_str(),
                    cell(loop ? -1 : against(a, boost, m)).c_str(),
                    cell(loop ? -1 : against(a, glibc, m)).c_str());
        if (has_base) std::printf(" %8s", cell(against_base(a, m)).c_str());
        if (m == BOTH) std::printf("  %s", loop ? "" : cell(scaling(a)).c_str());
        std::printf("\n");
    }
}

void contest::print() const {
    print(ALONE);
    if (crew_.size() > 1 && plan_.kind != HANDLES) print(BOTH);
    if (crew_.size() > 1 && plan_.kind == HEAP) print(ACROSS);
    std::fflush(stdout);
}

/* -- bytes per block -- */

static void print_weight(const char *name, const weight &w) {
    std::printf("%-30s %8.1f at %-9zu %8.1f %16.1f\n", name, w.worst, w.worst_at, w.full, w.shrunk);
}

template <class Peer> static void weigh_peer(const char *name, const std::vector<op> &blocks) {
    size_t base = counted_bytes;
    Peer p;
    print_weight(name, weigh(p, base, blocks));
}

static weight weigh_lord(const std::string &name, setup s, const std::vector<op> &blocks) {
    weight w = present_revision.weigh(s, blocks);
    print_weight(name.c_str(), w);
    if (has_base) print_weight((name + ", base").c_str(), base_revision.weigh(s, blocks));
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
    weight w = weigh_lord("memlord", {}, blocks);
    must.at_most(std::string("bytes per live block, ") + title, 64, w.worst, " B");
    weigh_lord("memlord, sites and a tag", sites_and_tag, blocks);
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

static void read_all(demands &must) {
    double first = 0, last = 0;
    std::printf("\nmemlord_allocated of one device\n%-30s %8s%s\n", "", "ns",
                has_base ? "     base" : "");
    for (int threads : {1, 2, 8}) {
        last = present_revision.read_ns(threads);
        if (threads == 1) first = last;
        std::printf("%-30s %8.1f",
                    (std::to_string(threads) + (threads > 1 ? " threads" : " thread")).c_str(),
                    last);
        if (has_base) std::printf(" %8.1f", base_revision.read_ns(threads));
        std::printf("\n");
    }
    must.at_most("memlord_allocated, 8 threads", 8, last / 8, " ns a thread");
    must.at_most("  each thread more", 8, std::max(0.0, last - first) / 7, " ns");
}

/* -- the bench -- */

struct limits {
    double glibc, glibc_full, boost, scaling, base;
};

static limits limits_of(size_t live) {
    if (live <= 1000) return {0.55, 0.85, 1.05, 1.8, 1.45};
    if (live <= 100000) return {0.45, 0.60, 0.9, 1.6, 1.12};
    return {0.45, 0.65, 1.0, 1.3, 1.12};
}

static void check_base(const contest &c, const std::string &at, double most, demands &must) {
    must.at_most("pair, 1 thread" + at, most, c.against_base(c.lord, ALONE), " x base");
    must.at_most("  with sites and a tag" + at, most, c.against_base(c.full, ALONE), " x base");
    must.at_most("pair, 2 threads" + at, most, c.against_base(c.lord, BOTH), " x base");
    must.at_most("  with sites and a tag" + at, most, c.against_base(c.full, BOTH), " x base");
    must.at_most("one frees the other's" + at, 1.12, c.against_base(c.lord, ACROSS), " x base");
}

static void check(const contest &c, const plan &p, demands &must) {
    std::string at = std::string(", ") + p.title;
    limits most = limits_of(p.live);
    must.at_most("pair, 1 thread" + at, most.glibc, c.against(c.lord, c.glibc, ALONE), " x glibc");
    must.at_most("  with sites and a tag" + at, most.glibc_full, c.against(c.full, c.glibc, ALONE),
                 " x glibc");
    must.at_most("pair, 1 thread" + at, most.boost, c.against(c.lord, c.boost, ALONE), " x boost");
    must.at_least("throughput, 2 threads" + at, most.scaling, c.scaling(c.lord), " x one");
    if (p.live <= 1000) {
        must.at_least("  with 100 devices" + at, 1.8, c.scaling(c.devices), " x one");
        must.at_least("  with 1,000 sites" + at, 1.7, c.scaling(c.places), " x one");
        must.at_most("alloc_with, tag and account in use" + at, 2,
                     c.against(c.charged, c.lord, ALONE), " x plain");
        must.at_most("pair, 2 threads" + at, 0.2, c.against(c.lord, c.boost, BOTH), " x boost");
    }
    must.at_most("one frees the other's" + at, 0.5, c.against(c.lord, c.boost, ACROSS), " x boost");
    if (has_base) check_base(c, at, most.base, must);
}

/* Returns whether /proc says that there is memory for millions of blocks: four containers for each
   contender, and a heap to record. With a base there are two contenders more. */
static bool room_for_millions() {
    unsigned long long kib = 0;
    char line[128];
    FILE *f = std::fopen("/proc/meminfo", "r");
    while (f && std::fgets(line, sizeof line, f))
        if (std::sscanf(line, "MemAvailable: %llu", &kib) == 1) break;
    if (f) std::fclose(f);
    return kib >= (has_base ? 9ull : 8ull) << 20;
}

static bool run_size(crew &c, const plan &p, bool everything, demands &must) {
    contest play(c, p);
    play.add_all(everything);
    bool same = play.play();
    play.print();
    if (p.kind == HEAP) check(play, p, must);
    if (p.kind == HANDLES)
        must.at_most("pair, 1 thread, keys 1, 2, 3, ...", 1.5, play.against(play.lord, play.boost, ALONE),
                     " x boost");
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
                quick ? "a quick run" : "too little memory is free");
    check(contest(c, millions), millions, must);
    return same;
}

int main(int argc, char **argv) {
    demands must(argc > 1 ? argv[1] : nullptr);
    bool quick = asked("MEMLORD_BENCH_QUICK", false);
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
