/* What a wrapper costs of the call it wraps, on a GPU; and the ledger alone from 1 to 16 threads,
   beside what one would otherwise use. Rows are played in turn, medians of rounds. */
#include "memlord.h"
#include "memlord_cuda.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "peers.h"

namespace {

memlord *lord;

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

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

/* A pair of calls, bare or wrapped; answers what each half took. */
struct pair_of_calls {
    const char *alloc, *release;
    int count;
    double most; /* of the alloc, in %; 0: no aim */
    std::function<bool(memlord *, void **, int)> make;
    std::function<bool(memlord *, void *)> give;
};

void measure(const pair_of_calls &p) {
    enum { ROUNDS = 31 };
    std::vector<double> alloc[2], release[2];
    std::vector<void *> ptr(static_cast<size_t>(p.count));
    for (int round = -2; round < ROUNDS; round++) {
        for (int wrapped = 0; wrapped < 2; wrapped++) {
            memlord *l = (wrapped + round) & 1 ? lord : nullptr; /* NULL: the bare call */
            double start = now_ns();
            for (int i = 0; i < p.count; i++)
                must(p.make(l, &ptr[static_cast<size_t>(i)], i), p.alloc);
            double made = now_ns();
            for (int i = 0; i < p.count; i++)
                must(p.give(l, ptr[static_cast<size_t>(i)]), p.release);
            double end = now_ns();
            must(cudaDeviceSynchronize() == cudaSuccess, "waiting");
            if (round < 0) continue;
            alloc[l != nullptr].push_back((made - start) / p.count);
            release[l != nullptr].push_back((end - made) / p.count);
        }
    }
    const char *names[] = {p.alloc, p.release};
    const std::vector<double> *rows[][2] = {{&alloc[0], &alloc[1]}, {&release[0], &release[1]}};
    for (int k = 0; k < 2; k++) {
        double bare = median(*rows[k][0]), with = median(*rows[k][1]);
        double share = 100 * (with - bare) / bare;
        std::printf("%-28s %10.0f %10.0f %8.0f %7.2f %%", names[k], bare, with, with - bare, share);
        if (k == 0 && p.most > 0)
            std::printf("   aim: under %g %%: %s", p.most, share < p.most ? "met" : "missed");
        std::printf("\n");
    }
}

void wrappers() {
    const int KIB = 1024;
    static char host[64][4096] __attribute__((aligned(4096)));
    cudaStream_t stream;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    cudaMemPool_t pool;
    uint64_t keep = UINT64_MAX;
    must(cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess, "the pool");
    must(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep) == cudaSuccess,
         "its threshold");
    std::printf("%-28s %10s %10s %8s %9s\n", "ns a call", "bare", "wrapped", "more", "share");
    measure({"cudaMalloc 4 MiB", "cudaFree", 64, 1,
             [=](memlord *l, void **p, int) {
                 return !memlord_cuda_malloc(l, p, 4096 * KIB, MEMLORD_SITE());
             },
             [](memlord *l, void *p) { return !memlord_cuda_free(l, p, nullptr); }});
    measure({"cudaMallocAsync 256 KiB", "cudaFreeAsync", 512, 5,
             [=](memlord *l, void **p, int) {
                 return !memlord_cuda_malloc_async(l, p, 256 * KIB, stream, MEMLORD_SITE());
             },
             [=](memlord *l, void *p) { return !memlord_cuda_free_async(l, p, stream, nullptr); }});
    measure({"cudaMallocManaged 1 MiB", "cudaFree of it", 64, 0,
             [=](memlord *l, void **p, int) {
                 return !memlord_cuda_malloc_managed(l, p, 1024 * KIB, cudaMemAttachGlobal,
                                                     MEMLORD_SITE());
             },
             [](memlord *l, void *p) { return !memlord_cuda_free(l, p, nullptr); }});
    measure({"cudaMallocHost 1 MiB", "cudaFreeHost", 64, 0,
             [=](memlord *l, void **p, int) {
                 return !memlord_cuda_malloc_host(l, p, 1024 * KIB, MEMLORD_SITE());
             },
             [](memlord *l, void *p) { return !memlord_cuda_free_host(l, p, nullptr); }});
    measure({"cudaHostRegister 4 KiB", "cudaHostUnregister", 64, 0,
             [](memlord *l, void **p, int i) {
                 *p = host[i];
                 return !memlord_cuda_host_register(l, *p, 4096, cudaHostRegisterDefault,
                                                    MEMLORD_SITE());
             },
             [](memlord *l, void *p) { return !memlord_cuda_host_unregister(l, p, nullptr); }});

    void *ptr = nullptr;
    must(!memlord_cuda_malloc(lord, &ptr, 4096, nullptr), "cudaMalloc");
    double start = now_ns();
    for (int i = 0; i < 200; i++)
        must(!memlord_capacity_sample(lord, memlord_device_cuda(0)), "a sample");
    double sample = (now_ns() - start) / 200;
    start = now_ns();
    for (int i = 0; i < 200; i++) {
        must(!memlord_alloc(lord, memlord_device_cuda(0), 64, 1, nullptr), "a block");
        must(!memlord_cuda_free_on_stream(lord, reinterpret_cast<void *>(64), stream, nullptr),
             "a free");
        (void)memlord_retire(lord, memlord_device_cuda(0));
    }
    std::printf("%-28s %10.0f\n%-28s %10.0f\n", "a sample of the capacity", sample,
                "a free on a stream", (now_ns() - start) / 200);
    must(!memlord_cuda_free(lord, ptr, nullptr), "cudaFree");
    must(cudaStreamDestroy(stream) == cudaSuccess, "a stream");
}

/* Each thread its own 1,000 blocks; ns of a pair on each of them. */
template <class Open, class Close> double threads_ns(int n, Open open, Close close) {
    enum { LIVE = 1000, STEPS = 200000 };
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
            for (int i = 0; i < STEPS; i++) {
                turn = turn * 6364136223846793005u + 1442695040888963407u;
                uint64_t key = base + (turn >> 33) % LIVE * 4096;
                close(key);
                open(key);
            }
            took[static_cast<size_t>(t)] = (now_ns() - start) / STEPS;
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

double lord_ns(int n) {
    return threads_ns(
        n,
        [](uint64_t key) { (void)memlord_alloc(lord, memlord_device_cuda(0), key, 4096, nullptr); },
        [](uint64_t key) { (void)memlord_free(lord, memlord_device_cuda(0), key, nullptr); });
}

void scaling() {
    using mutex_map = locked_map<std::unordered_map<uint64_t, entry>, std::mutex>;
    using rmm_map = locked_map<std::map<uint64_t, entry>, std::shared_mutex>;
    std::printf("\n%-28s %8s %8s %8s %8s %8s   (%u processors)\n", "ns a pair, threads:", "1", "2",
                "4", "8", "16", std::thread::hardware_concurrency());
    const struct {
        const char *name;
        double (*run)(int);
    } rows[] = {{"memlord", lord_ns},
                {"mutex + std::unordered_map", peer_ns<mutex_map>},
                {"RMM: shared_mutex + map", peer_ns<rmm_map>}};
    for (const auto &row : rows) {
        std::printf("%-28s", row.name);
        for (int n : {1, 2, 4, 8, 16})
            std::printf(" %8.1f", median({row.run(n), row.run(n), row.run(n)}));
        std::printf("\n");
    }
}

} // namespace

int main() {
    must(memlord_create(nullptr, &lord) == MEMLORD_OK, "a ledger");
    must(memlord_cuda_attach(lord, nullptr) == MEMLORD_OK, "attach");
    wrappers();
    scaling();
    (void)memlord_cuda_detach(lord);
    memlord_destroy(lord);
    return 0;
}
