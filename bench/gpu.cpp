/* The cost of a wrapper beside the call that it wraps, on a GPU; of what is not a wrapped call; and
   of the ledger alone from 1 to 16 threads, beside its peers. Bare and wrapped calls take turns in
   rounds. A figure is the median of the rounds; +- is half the distance of its quartiles. Each part
   is a process of its own, with an alarm. The status is 1 if a part failed, else 3 if a figure is
   worse than its aim, else 0. */
#include "memlord.h"
#include "memlord_cuda.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peers.h"

namespace {

memlord *lord; /* with the next two: of the part that runs in this process */
cudaStream_t stream;
cudaMemPool_t pool;
int steps = 200000; /* pairs of each thread in the part on scaling; fewer in bench_gpu short */
const char *only = ""; /* part of the names of the parts that run */
int *missed; /* how many aims all parts have missed, in memory that their processes share */

double now_ns() {
    using namespace std::chrono;
    return static_cast<double>(
        duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count());
}

void must(bool done, const char *what) {
    if (done) return;
    std::fprintf(stderr, "bench_gpu: %s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
    std::exit(1);
}

double quantile(std::vector<double> v, double q) {
    std::sort(v.begin(), v.end());
    return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1) + 0.5)];
}

double median(const std::vector<double> &v) { return quantile(v, 0.5); }

double spread(const std::vector<double> &v) { return (quantile(v, 0.75) - quantile(v, 0.25)) / 2; }

void one(const char *name, const std::vector<double> &ns) {
    std::printf("%-44s %12.0f +- %.0f\n", name, median(ns), spread(ns));
}

/* A pair of calls, bare or wrapped. */
struct pair_of_calls {
    const char *alloc, *release;
    int count;
    double most; /* the aim: what wrapping may add to either call, in %; 0: no aim */
    std::function<bool(memlord *, void **, int)> make;
    std::function<bool(memlord *, void *)> give;
};

/* Prints what wrapping adds. The difference is taken in each round, as the calls themselves vary
   from round to round by more than that. */
void print(const char *name, const std::vector<double> ns[2], double most) {
    std::vector<double> more;
    for (size_t i = 0; i < ns[0].size(); i++) more.push_back(ns[1][i] - ns[0][i]);
    double bare = median(ns[0]), share = 100 * median(more) / bare;
    std::printf("%-28s %10.0f %10.0f %8.0f +- %-6.0f %7.2f %%", name, bare, median(ns[1]),
                median(more), spread(more), share);
    if (most > 0) {
        std::printf("   at most %g %%: %s", most, share <= most ? "met" : "missed");
        *missed += share > most;
    }
    std::printf("\n");
}

void measure(const pair_of_calls &p) {
    enum { ROUNDS = 31 };
    std::vector<double> alloc[2], release[2];
    std::vector<void *> ptr(static_cast<size_t>(p.count));
    for (int round = -2; round < ROUNDS; round++) {
        for (int turn = 0; turn < 2; turn++) {
            int wrapped = (turn + round) & 1;
            memlord *l = wrapped ? lord : nullptr; /* NULL: the bare call */
            double start = now_ns();
            for (int i = 0; i < p.count; i++)
                must(p.make(l, &ptr[static_cast<size_t>(i)], i), p.alloc);
            double made = now_ns();
            for (int i = 0; i < p.count; i++)
                must(p.give(l, ptr[static_cast<size_t>(i)]), p.release);
            double end = now_ns();
            must(cudaDeviceSynchronize() == cudaSuccess, "waiting");
            if (round < 0) continue;
            alloc[wrapped].push_back((made - start) / p.count);
            release[wrapped].push_back((end - made) / p.count);
        }
    }
    print(p.alloc, alloc, p.most);
    print(p.release, release, p.most);
}

const size_t KIB = 1024;

void memory_of_the_device() {
    measure({"cudaMalloc 4 MiB", "cudaFree", 64, 1,
             [](memlord *l, void **p, int) {
                 return !memlord_cuda_malloc(l, p, 4096 * KIB, MEMLORD_SITE());
             },
             [](memlord *l, void *p) { return !memlord_cuda_free(l, p, nullptr); }});
    measure({"cudaMallocPitch 1000 x 1000", "cudaFree of it", 64, 1,
             [](memlord *l, void **p, int) {
                 size_t pitch;
                 return !memlord_cuda_malloc_pitch(l, p, &pitch, 1000, 1000, MEMLORD_SITE());
             },
             [](memlord *l, void *p) { return !memlord_cuda_free(l, p, nullptr); }});
    measure({"cudaMalloc3D 100 x 100 x 100", "cudaFree of it", 64, 1,
             [](memlord *l, void **p, int) {
                 cudaPitchedPtr box = {nullptr, 0, 0, 0};
                 bool made = !memlord_cuda_malloc_3d(l, &box, {100, 100, 100}, MEMLORD_SITE());
                 *p = box.ptr;
                 return made;
             },
             [](memlord *l, void *p) { return !memlord_cuda_free(l, p, nullptr); }});
    measure({"cudaMallocManaged 1 MiB", "cudaFree of it", 64, 0,
             [](memlord *l, void **p, int) {
                 return !memlord_cuda_malloc_managed(l, p, 1024 * KIB, cudaMemAttachGlobal,
                                                     MEMLORD_SITE());
             },
             [](memlord *l, void *p) { return !memlord_cuda_free(l, p, nullptr); }});
}

void memory_of_a_stream() {
    auto give = [](memlord *l, void *p) {
        return !memlord_cuda_free_async(l, p, stream, nullptr);
    };
    measure({"cudaMallocAsync 256 KiB", "cudaFreeAsync", 512, 5,
             [](memlord *l, void **p, int) {
                 return !memlord_cuda_malloc_async(l, p, 256 * KIB, stream, MEMLORD_SITE());
             },
             give});
    measure({"cudaMallocFromPoolAsync", "cudaFreeAsync of it", 512, 5,
             [](memlord *l, void **p, int) {
                 return !memlord_cuda_malloc_from_pool_async(l, p, 256 * KIB, pool, stream,
                                                             MEMLORD_SITE());
             },
             give});
}

void memory_of_the_host() {
    static char host[64][4096] __attribute__((aligned(4096)));
    auto give = [](memlord *l, void *p) { return !memlord_cuda_free_host(l, p, nullptr); };
    measure({"cudaMallocHost 1 MiB", "cudaFreeHost", 64, 0,
             [](memlord *l, void **p, int) {
                 return !memlord_cuda_malloc_host(l, p, 1024 * KIB, MEMLORD_SITE());
             },
             give});
    measure({"cudaHostAlloc 1 MiB", "cudaFreeHost of it", 64, 0,
             [](memlord *l, void **p, int) {
                 return !memlord_cuda_host_alloc(l, p, 1024 * KIB, cudaHostAllocDefault,
                                                 MEMLORD_SITE());
             },
             give});
    measure({"cudaHostRegister 4 KiB", "cudaHostUnregister", 64, 0,
             [](memlord *l, void **p, int i) {
                 *p = host[i];
                 return !memlord_cuda_host_register(l, *p, 4096, cudaHostRegisterDefault,
                                                    MEMLORD_SITE());
             },
             [](memlord *l, void *p) { return !memlord_cuda_host_unregister(l, p, nullptr); }});
}

/* Measures calls that wait, where there is nothing to wait for, so that only the call is left. */
void waiting() {
    cudaEvent_t event;
    must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess, "an event");
    must(cudaEventRecord(event, stream) == cudaSuccess, "an event");
    measure({"cudaStreamSynchronize, idle", "cudaEventSynchronize, done", 512, 0,
             [=](memlord *l, void **, int) {
                 return !memlord_cuda_stream_synchronize(l, stream, nullptr);
             },
             [=](memlord *l, void *) {
                 return !memlord_cuda_event_synchronize(l, event, nullptr);
             }});
    measure({"cudaDeviceSynchronize, idle", "and again", 512, 0,
             [](memlord *l, void **, int) { return !memlord_cuda_device_synchronize(l, nullptr); },
             [](memlord *l, void *) { return !memlord_cuda_device_synchronize(l, nullptr); }});
    must(cudaEventDestroy(event) == cudaSuccess, "an event");
}

/* Measures captures. The time of an end of capture has the end of its graph in it, bare and
   wrapped. */
void capturing() {
    static cudaStream_t streams[32];
    for (cudaStream_t &s : streams)
        must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    measure({"cudaStreamBeginCapture", "cudaStreamEndCapture", 32, 0,
             [](memlord *, void **p, int i) {
                 *p = streams[i];
                 return !cudaStreamBeginCapture(streams[i], cudaStreamCaptureModeRelaxed);
             },
             [](memlord *l, void *p) {
                 cudaStream_t captured = static_cast<cudaStream_t>(p);
                 cudaGraph_t graph = nullptr;
                 if (l ? memlord_cuda_stream_end_capture(l, captured, &graph, nullptr)
                       : cudaStreamEndCapture(captured, &graph))
                     return false;
                 return !cudaGraphDestroy(graph);
             }});
    for (cudaStream_t s : streams) must(cudaStreamDestroy(s) == cudaSuccess, "a stream");
    measure({"cudaStreamCreateWithFlags", "cudaStreamDestroy", 4, 0,
             [](memlord *, void **p, int) {
                 return !cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t *>(p),
                                                   cudaStreamNonBlocking);
             },
             [](memlord *l, void *p) {
                 return !memlord_cuda_stream_destroy(l, static_cast<cudaStream_t>(p), nullptr);
             }});
}

/* -- what is not a wrapped call -- */

/* A host function that keeps its stream busy until `held` is 0. */
std::atomic<int> held{0};
void CUDART_CB hold(void *) {
    while (held) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void attaching() {
    std::vector<double> first, again;
    for (int i = 0; i < 9; i++) {
        memlord *l = nullptr;
        must(memlord_create(nullptr, &l) == MEMLORD_OK, "a ledger");
        double start = now_ns();
        must(memlord_cuda_attach(l, nullptr) == MEMLORD_OK, "attach");
        first.push_back(now_ns() - start);
        start = now_ns();
        must(memlord_cuda_attach(l, nullptr) == MEMLORD_OK, "attach");
        again.push_back(now_ns() - start);
        must(memlord_cuda_detach(l) == MEMLORD_OK, "detach");
        memlord_destroy(l);
    }
    one("attach, the driver loaded", first);
    one("attach once more", again);
}

void books_of_a_stream() {
    std::vector<double> sample, use, pend, after;
    void *ptr = reinterpret_cast<void *>(64);
    for (int i = 0; i < 301; i++) {
        double start = now_ns();
        if (i % 10 == 0) {
            must(!memlord_capacity_sample(lord, memlord_device_cuda(0)), "a sample");
            sample.push_back(now_ns() - start);
        }
        must(!memlord_alloc(lord, memlord_device_cuda(0), 64, 1, nullptr), "a block");
        start = now_ns();
        must(!memlord_cuda_record_use(lord, ptr, stream), "a use");
        use.push_back(now_ns() - start);
        start = now_ns();
        must(!memlord_cuda_record_free(lord, ptr, stream, nullptr), "a free");
        pend.push_back(now_ns() - start);
        must(!memlord_cuda_malloc_async(lord, &ptr, 4096, stream, nullptr), "cudaMallocAsync");
        start = now_ns();
        must(!memlord_cuda_free_async_after(lord, ptr, stream, nullptr), "a free");
        after.push_back(now_ns() - start);
        ptr = reinterpret_cast<void *>(64);
        must(!memlord_cuda_stream_synchronize(lord, stream, nullptr), "waiting");
    }
    one("a sample of the capacity", sample);
    one("record_use", use);
    one("record_free: pending by an event", pend);
    one("free_async_after: the same, and freed", after);
}

/* Measures an alloc and a free on another device, while frees wait for four streams. */
void pairs_beside_pending_frees() {
    enum { STREAMS = 4, ROUNDS = 31, PAIRS = 20000 };
    cudaStream_t streams[STREAMS];
    std::vector<double> cpu[2], cuda[2];
    held = 1;
    for (cudaStream_t &s : streams)
        must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    auto pairs = [](memlord_device device) {
        double start = now_ns();
        for (uint64_t i = 0; i < PAIRS; i++) {
            (void)memlord_alloc(lord, device, 4096 + i % 64 * 64, 64, nullptr);
            (void)memlord_free(lord, device, 4096 + i % 64 * 64, nullptr);
        }
        return (now_ns() - start) / PAIRS;
    };
    for (int busy = 0; busy < 2; busy++) {
        for (int i = 0; busy && i < STREAMS; i++) {
            uint64_t key = 64 + static_cast<uint64_t>(i);
            must(!cudaLaunchHostFunc(streams[i], hold, nullptr), "a host function");
            must(!memlord_alloc(lord, memlord_device_cuda(0), key, 1, nullptr), "a block");
            void *p = reinterpret_cast<void *>(key);
            must(!memlord_cuda_record_free(lord, p, streams[i], nullptr), "a free");
        }
        for (int round = 0; round < ROUNDS; round++) {
            cpu[busy].push_back(pairs(memlord_device_cpu()));
            cuda[busy].push_back(pairs(memlord_device_cuda(0)));
        }
    }
    held = 0;
    must(!memlord_cuda_device_synchronize(lord, nullptr), "waiting");
    print("cpu pair, 4 frees pending", cpu, 5);
    print("cuda pair, 4 frees pending", cuda, 0);
    for (cudaStream_t s : streams)
        must(!memlord_cuda_stream_destroy(lord, s, nullptr), "a stream");
}

/* Measures a collection of what a pool keeps, with the driver's trim in it. */
void collecting() {
    size_t unused = 0, all = 0;
    must(cudaMemGetInfo(&unused, &all) == cudaSuccess, "the device's memory");
    for (size_t gib : {1, 10, 100}) {
        std::vector<double> ns;
        char name[64];
        size_t bytes = gib << 30;
        if (bytes > unused / 10 * 9) continue;
        for (int i = 0; i < 3; i++) {
            void *ptr = nullptr;
            must(!memlord_cuda_malloc_async(lord, &ptr, bytes, stream, nullptr), "cudaMallocAsync");
            must(!memlord_cuda_free_async(lord, ptr, stream, nullptr), "cudaFreeAsync");
            must(!memlord_cuda_stream_synchronize(lord, stream, nullptr), "waiting");
            double start = now_ns();
            must(!memlord_gc_run(lord, memlord_device_cuda(0), MEMLORD_REASON_HOST, 0, nullptr),
                 "a collection");
            ns.push_back(now_ns() - start);
        }
        std::snprintf(name, sizeof name, "a collection of %zu GiB", gib);
        one(name, ns);
    }
}

/* Measures what a poller with bands costs the calls beside it. It samples at most ten times a
   second, and a sample asks the device. */
void pairs_beside_a_band() {
    enum { ROUNDS = 31, PAIRS = 2000 };
    std::vector<double> ns[2], books[2];
    size_t n = 0;
    const memlord_band *bands = memlord_strategy_default(&n);
    for (int on = 0; on < 2; on++) {
        must(!memlord_strategy_set(lord, memlord_device_cuda(0), on ? bands : nullptr, on ? n : 0),
             "a strategy");
        for (int round = 0; round < ROUNDS; round++) {
            void *ptr = nullptr;
            double start = now_ns();
            for (int i = 0; i < PAIRS; i++) {
                must(!memlord_cuda_malloc_async(lord, &ptr, 4096, stream, nullptr),
                     "cudaMallocAsync");
                must(!memlord_cuda_free_async(lord, ptr, stream, nullptr), "cudaFreeAsync");
            }
            ns[on].push_back((now_ns() - start) / PAIRS);
            start = now_ns();
            for (uint64_t i = 0; i < PAIRS * 10; i++) {
                (void)memlord_alloc(lord, memlord_device_cuda(0), 64 + i % 64, 1, nullptr);
                (void)memlord_free(lord, memlord_device_cuda(0), 64 + i % 64, nullptr);
            }
            books[on].push_back((now_ns() - start) / PAIRS / 10);
            must(cudaStreamSynchronize(stream) == cudaSuccess, "waiting");
        }
    }
    must(!memlord_strategy_set(lord, memlord_device_cuda(0), nullptr, 0), "no strategy");
    print("stream-ordered pair, bands", ns, 0);
    print("cuda pair, bands", books, 0);
}

/* -- parts, each of which is a process with a ledger, a stream and a pool of its own -- */

void open_device() {
    uint64_t keep = UINT64_MAX;
    must(memlord_create(nullptr, &lord) == MEMLORD_OK, "a ledger");
    must(memlord_cuda_attach(lord, nullptr) == MEMLORD_OK, "attach");
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    must(cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess, "the pool");
    must(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep) == cudaSuccess,
         "its threshold");
}

void close_device() {
    must(cudaStreamDestroy(stream) == cudaSuccess, "a stream");
    (void)memlord_cuda_detach(lord);
    memlord_destroy(lord);
}

int parts, failed;

void part(const char *name, int seconds, void (*run)()) {
    int status = 0;
    if (!std::strstr(name, only)) return;
    parts++;
    std::fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(static_cast<unsigned>(seconds));
        open_device();
        run();
        close_device();
        std::fflush(stdout);
        std::_Exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) status = -1;
    if (status == 0) return;
    failed++;
    std::printf("%-44s FAILED: %s\n", name,
                status > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "took too long"
                                                                                 : "see above");
}

/* Returns the ns of a pair while n threads make pairs, each with 1,000 blocks of its own. */
template <class Open, class Close> double threads_ns(int n, Open open, Close close) {
    enum { LIVE = 1000 };
    std::vector<std::thread> crowd;
    std::vector<double> took(static_cast<size_t>(n));
    std::atomic<int> ready{0};
    for (int t = 0; t < n; t++)
        crowd.emplace_back([&, t] {
            uint64_t base = (static_cast<uint64_t>(t) + 1) << 36, turn = 1;
            for (uint64_t i = 0; i < LIVE; i++) open(base + i * 4096);
            ready++;
            while (ready < n) std::this_thread::yield();
            double start = now_ns();
            for (int i = 0; i < steps; i++) {
                turn = turn * 6364136223846793005u + 1442695040888963407u;
                uint64_t key = base + (turn >> 33) % LIVE * 4096;
                close(key);
                open(key);
            }
            took[static_cast<size_t>(t)] = (now_ns() - start) / steps;
            for (uint64_t i = 0; i < LIVE; i++) close(base + i * 4096);
        });
    for (std::thread &t : crowd) t.join();
    return median(took);
}

template <class Peer> double peer_ns(int n) {
    static Peer peer;
    return threads_ns(
        n, [](uint64_t key) { peer.open(key, entry{4096, 1, TAG, 1, 0}); },
        [](uint64_t key) { peer.close(key); });
}

#if PEER_TBB
/* TBB takes the low bits of an integer as its hash. Those of memory that is allocated by pages are
   all the same, and the table would be a list: a user would set another hash, as this class
   does. */
struct mixed_tbb : tbb_map<std::allocator> {
    static uint64_t mix(uint64_t key) {
        key *= 0x9e3779b97f4a7c15u;
        return key >> 32 | key << 32;
    }
    void open(uint64_t key, const entry &fresh) { tbb_map::open(mix(key), fresh); }
    void close(uint64_t key) { tbb_map::close(mix(key)); }
};
#endif

double lord_ns(int n) {
    return threads_ns(
        n,
        [](uint64_t key) { (void)memlord_alloc(lord, memlord_device_cuda(0), key, 4096, nullptr); },
        [](uint64_t key) { (void)memlord_free(lord, memlord_device_cuda(0), key, nullptr); });
}

void scaling() {
    std::printf("\n%-28s %8s %8s %8s %8s %8s   (%u processors)\n", "ns a pair, threads:", "1", "2",
                "4", "8", "16", std::thread::hardware_concurrency());
    const struct {
        const char *name;
        double (*run)(int);
    } rows[] = {{"memlord", lord_ns},
#if PEER_TBB
                {"tbb::concurrent_hash_map", peer_ns<mixed_tbb>},
#endif
#if PEER_BOOST
                {"mutex + boost flat_map", peer_ns<boost_flat<std::allocator>>},
#endif
#if PEER_ABSL
                {"mutex + absl flat_hash_map", peer_ns<absl_flat<std::allocator>>},
#endif
#if PEER_STB
                {"mutex + stb_ds", peer_ns<stb_hashmap>},
#endif
                {"mutex + std::unordered_map", peer_ns<std_unordered<std::allocator>>},
                {"RMM: shared_mutex + map", peer_ns<rmm_scheme<std::allocator>>}};
    for (const auto &row : rows) {
        std::printf("%-28s", row.name);
        for (int n : {1, 2, 4, 8, 16})
            std::printf(" %8.1f", median({row.run(n), row.run(n), row.run(n)}));
        std::printf("\n");
    }
}

} // namespace

/* bench_gpu [short] [TEXT]: runs the parts whose names contain TEXT */
int main(int argc, char **argv) {
    const bool quick = argc > 1 && !std::strcmp(argv[1], "short");
    if (quick) steps /= 20;
    if (argc > 1 + quick) only = argv[1 + quick];
    missed = static_cast<int *>(
        mmap(nullptr, sizeof *missed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (missed == MAP_FAILED) return 1;
    std::printf("%-28s %10s %10s %8s    %-6s %9s\n", "ns a call", "bare", "wrapped", "more", "+-",
                "share");
    part("memory of the device", 60, memory_of_the_device);
    part("memory of a stream", 30, memory_of_a_stream);
    part("memory of the host", 60, memory_of_the_host);
    part("waiting", 30, waiting);
    part("capturing", 30, capturing);
    part("frees pending", 30, pairs_beside_pending_frees);
    part("bands", 30, pairs_beside_a_band);
    std::printf("\n%-44s %12s +-\n", "ns a call", "");
    part("attaching", 30, attaching);
    part("books of a stream", 30, books_of_a_stream);
    part("collecting", 60, collecting);
    part("threads", 150, scaling);
    std::printf("\n%d parts, %d failed, %d aims missed\n", parts, failed, *missed);
    return failed ? 1 : *missed ? 3 : 0;
}
