/* What only a GPU can show, a row each: test_gpu [short]. No nvcc: a function of the host's that a
   stream waits for stands for a kernel that takes long. Short is for compute-sanitizer, under which
   calls may wait that otherwise do not. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "memlord.h"
#include "memlord_cuda.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MIB = 1 << 20, THREADS = 16 };

static memlord *lord;
static const char *why; /* the row was not run */
static int quick;

#define EXPECT(condition)                                                                     \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            printf("    %s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition,         \
                   cudaGetErrorString(cudaPeekAtLastError()));                                \
            return 1;                                                                         \
        }                                                                                     \
    } while (0)
#define CUDA(call) EXPECT((call) == cudaSuccess)
#define OK(call) EXPECT((call) == MEMLORD_OK)

static memlord_device gpu(void) { return memlord_device_cuda(0); }

static memlord_stats stats(void) {
    memlord_stats s;
    memlord_stats_get(lord, gpu(), &s);
    return s;
}

/* What the stream waits for before it goes on: a long kernel. */
static void CUDART_CB wait_a_while(void *user) {
    const struct timespec t = {0, 300000000};
    (void)user;
    nanosleep(&t, NULL);
}

/* -- what the device says; first, while there is no context -- */

static int context_active(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*state)(int, unsigned *, int *) = NULL;
    void *found = driver ? dlsym(driver, "cuDevicePrimaryCtxGetState") : NULL;
    unsigned flags;
    int active = -1;
    memcpy(&state, &found, sizeof state);
    if (!state || state(0, &flags, &active)) return -1;
    return active;
}

/* MiB, as nvidia-smi has them, of the device that CUDA calls 0. 0: no nvidia-smi. */
static int smi(const char *what, double *mib) {
    char id[32], command[160], line[64] = "";
    FILE *pipe;
    if (cudaDeviceGetPCIBusId(id, sizeof id, 0) != cudaSuccess) return 0;
    snprintf(command, sizeof command,
             "nvidia-smi -i %s --query-gpu=%s --format=csv,noheader,nounits 2>/dev/null", id, what);
    pipe = popen(command, "r");
    if (!pipe) return 0;
    if (!fgets(line, sizeof line, pipe)) line[0] = 0;
    pclose(pipe);
    return sscanf(line, "%lf", mib) == 1;
}

static int untouched_device(void) {
    memlord_capacity now;
    double total;
    EXPECT(context_active() == 0);
    if (memlord_capacity_sample(lord, gpu()) != MEMLORD_OK) {
        why = "NVML does not know the device";
        return context_active() != 0;
    }
    EXPECT(context_active() == 0);
    OK(memlord_capacity_get(lord, gpu(), &now));
    printf("    NVML: %.0f of %.0f MiB used\n", (double)now.used / MIB, (double)now.total / MIB);
    if (!smi("memory.total", &total)) return why = "no nvidia-smi", 0; /* the runtime is asked */
    EXPECT((double)now.total / MIB > total - 2 && (double)now.total / MIB < total + 2);
    return 0;
}

static int capacity_against_smi(void) {
    memlord_capacity now;
    size_t unused = 0, all = 0;
    double used, total;
    void *ptr = NULL;
    int integrated = 0;
    CUDA(cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, 0));
    if (integrated) return why = "it is the host's memory that is asked for", 0;
    CUDA(memlord_cuda_malloc(lord, &ptr, 256 * MIB, NULL));
    OK(memlord_capacity_sample(lord, gpu()));
    OK(memlord_capacity_get(lord, gpu(), &now));
    CUDA(cudaMemGetInfo(&unused, &all));
    EXPECT(now.total == all);
    EXPECT(now.used + 64 * MIB > all - unused && now.used < all - unused + 64 * MIB);
    if (!smi("memory.used", &used) || !smi("memory.total", &total)) why = "no nvidia-smi";
    /* the two count another total: so what is used may differ by that, and by others' doing */
    if (!why) {
        double mib = (double)now.used / MIB, more = total - (double)now.total / MIB;
        EXPECT(mib < used + 256 && mib > used - more - 256);
    }
    CUDA(memlord_cuda_free(lord, ptr, NULL));
    return 0;
}

/* -- streams -- */

static int two_streams(void) {
    cudaStream_t compute, copy;
    void *ptr = NULL;
    CUDA(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&copy, cudaStreamNonBlocking));
    CUDA(memlord_cuda_malloc_async(lord, &ptr, 64 * MIB, compute, NULL));
    CUDA(cudaMemsetAsync(ptr, 0, 64 * MIB, compute)); /* the first one may wait for the device */
    CUDA(cudaStreamSynchronize(compute));
    OK(memlord_cuda_record_use(lord, ptr, copy));
    CUDA(cudaLaunchHostFunc(copy, wait_a_while, NULL));
    CUDA(cudaMemsetAsync(ptr, 1, 64 * MIB, copy));
    OK(memlord_cuda_free_on_stream(lord, ptr, copy, NULL));
    CUDA(memlord_cuda_free_async(lord, ptr, copy, NULL));
    EXPECT(quick || memlord_retire(lord, gpu()) == 0);
    EXPECT(quick || memlord_pending(lord, gpu()) == 64 * MIB);
    CUDA(memlord_cuda_stream_synchronize(lord, copy, NULL));
    EXPECT(memlord_pending(lord, gpu()) == 0);
    EXPECT(stats().fence_failures == 0 && stats().unknown_frees == 0);
    CUDA(cudaStreamDestroy(compute));
    CUDA(cudaStreamDestroy(copy));
    return 0;
}

/* Its event is recorded before it goes; what it was given goes on. */
static int a_stream_that_ends(void) {
    cudaStream_t side;
    void *ptr = NULL;
    CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CUDA(memlord_cuda_malloc_async(lord, &ptr, MIB, NULL, NULL));
    CUDA(cudaStreamSynchronize(NULL));
    OK(memlord_cuda_record_use(lord, ptr, side));
    CUDA(cudaLaunchHostFunc(side, wait_a_while, NULL));
    CUDA(memlord_cuda_stream_destroy(lord, side, NULL));
    CUDA(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    EXPECT(quick || memlord_pending(lord, gpu()) == MIB);
    CUDA(memlord_cuda_device_synchronize(lord, NULL));
    EXPECT(memlord_pending(lord, gpu()) == 0 && stats().fence_failures == 0);
    return 0;
}

/* A thread's own stream, captured by it and asked for by another thread. */
static void *retire(void *user) {
    if (cudaSetDevice(0) == cudaSuccess) (void)memlord_retire(lord, gpu());
    return user;
}

static int retire_elsewhere(void) {
    pthread_t thread;
    return pthread_create(&thread, NULL, retire, NULL) || pthread_join(thread, NULL);
}

static int a_threads_own_stream(void) {
    cudaGraph_t graph = NULL;
    void *ptr = NULL;
    CUDA(memlord_cuda_malloc(lord, &ptr, MIB, NULL));
    CUDA(cudaLaunchHostFunc(cudaStreamPerThread, wait_a_while, NULL));
    CUDA(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal));
    OK(memlord_cuda_free_on_stream(lord, ptr, cudaStreamPerThread, NULL));
    EXPECT(!retire_elsewhere());
    EXPECT(memlord_pending(lord, gpu()) == MIB);
    CUDA(cudaStreamEndCapture(cudaStreamPerThread, &graph));
    if (graph) CUDA(cudaGraphDestroy(graph));
    EXPECT(!retire_elsewhere());
    EXPECT(quick || memlord_pending(lord, gpu()) == MIB);
    CUDA(cudaDeviceSynchronize()); /* for the legacy stream, too, which has the event */
    EXPECT(!retire_elsewhere());
    EXPECT(memlord_pending(lord, gpu()) == 0 && stats().fence_failures == 0);
    CUDA(cudaFree(ptr));
    return 0;
}

/* Waiting for the device would end it, or be refused. */
static int a_collection_that_waits(void) {
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_SYNC, 0, NULL, NULL};
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    int wrapped;
    OK(memlord_cuda_attach(lord, &desc));
    for (wrapped = 0; wrapped < 2; wrapped++) { /* a blocking stream is found out */
        CUDA(cudaStreamCreateWithFlags(&stream, wrapped ? cudaStreamNonBlocking : 0));
        CUDA(wrapped ? memlord_cuda_stream_begin_capture(lord, stream, cudaStreamCaptureModeGlobal,
                                                         NULL)
                     : cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        (void)memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, NULL); /* may have been refused */
        CUDA(memlord_cuda_stream_end_capture(lord, stream, &graph, NULL));
        if (graph) CUDA(cudaGraphDestroy(graph));
        CUDA(memlord_cuda_stream_destroy(lord, stream, NULL));
    }
    OK(memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, NULL));
    CUDA(cudaPeekAtLastError());
    OK(memlord_cuda_attach(lord, NULL));
    return 0;
}

static int frees_in_a_capture(void) {
    cudaStream_t stream, other;
    cudaGraph_t graph = NULL;
    void *before = NULL, *node = NULL;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CUDA(memlord_cuda_malloc_async(lord, &before, MIB, stream, NULL));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(memlord_cuda_stream_begin_capture(lord, stream, cudaStreamCaptureModeGlobal, NULL));
    CUDA(memlord_cuda_malloc_async(lord, &node, 2 * MIB, stream, NULL));
    CUDA(cudaMemsetAsync(node, 0, 2 * MIB, stream));
    OK(memlord_cuda_free_on_stream(lord, before, stream, NULL));
    EXPECT(memlord_retire(lord, gpu()) == 0);
    (void)memlord_capacity_sample(lord, gpu());
    (void)memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, NULL);
    CUDA(memlord_cuda_free_async(lord, node, stream, NULL));
    CUDA(memlord_cuda_stream_end_capture(lord, stream, &graph, NULL));
    EXPECT(graph != NULL);
    CUDA(cudaGraphDestroy(graph));
    CUDA(memlord_cuda_stream_synchronize(lord, stream, NULL));
    EXPECT(memlord_pending(lord, gpu()) == 0);
    CUDA(cudaFreeAsync(before, stream));
    CUDA(cudaStreamSynchronize(stream));
    /* and a capture that is not known of */
    CUDA(memlord_cuda_malloc_async(lord, &before, MIB, other, NULL));
    CUDA(cudaLaunchHostFunc(other, wait_a_while, NULL));
    OK(memlord_cuda_free_on_stream(lord, before, other, NULL));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    (void)memlord_retire(lord, gpu());
    (void)memlord_capacity_sample(lord, gpu());
    CUDA(cudaStreamEndCapture(stream, &graph));
    if (graph) CUDA(cudaGraphDestroy(graph));
    CUDA(memlord_cuda_stream_synchronize(lord, other, NULL));
    EXPECT(memlord_pending(lord, gpu()) == 0);
    CUDA(cudaFreeAsync(before, other));
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaStreamDestroy(other));
    return 0;
}

/* -- memory -- */

static int a_trim_gives_back(void) {
    uint64_t keep = UINT64_MAX, reclaimed = 0;
    cudaMemPool_t pool;
    size_t before = 0, after = 0, all;
    void *ptr = NULL;
    CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    CUDA(memlord_cuda_malloc_async(lord, &ptr, 512 * MIB, NULL, NULL));
    CUDA(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    CUDA(memlord_cuda_device_synchronize(lord, NULL));
    CUDA(cudaMemGetInfo(&before, &all));
    OK(memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, &reclaimed));
    CUDA(cudaMemGetInfo(&after, &all));
    printf("    reclaimed %.0f MiB, the device has %.0f MiB more\n", (double)reclaimed / MIB,
           ((double)after - (double)before) / MIB);
    EXPECT(reclaimed >= (uint64_t)512 * MIB);
    EXPECT(after >= before + (size_t)448 * MIB); /* others may have taken some */
    keep = 0;
    CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    return 0;
}

/* What the pool holds and nobody uses, and nothing else. */
static int what_is_cached(void) {
    uint64_t keep = UINT64_MAX;
    memlord_cuda_pool pool;
    cudaMemPool_t handle;
    void *plain = NULL, *a = NULL, *b = NULL;
    CUDA(cudaDeviceGetDefaultMemPool(&handle, 0));
    CUDA(cudaMemPoolSetAttribute(handle, cudaMemPoolAttrReleaseThreshold, &keep));
    CUDA(memlord_cuda_malloc(lord, &plain, 256 * MIB, NULL));
    CUDA(memlord_cuda_malloc_async(lord, &a, 64 * MIB, NULL, NULL));
    CUDA(memlord_cuda_malloc_async(lord, &b, 64 * MIB, NULL, NULL));
    CUDA(memlord_cuda_free_async(lord, b, NULL, NULL));
    CUDA(memlord_cuda_device_synchronize(lord, NULL));
    OK(memlord_capacity_sample(lord, gpu()));
    OK(memlord_cuda_pool_get(lord, 0, &pool));
    EXPECT(stats().cached == pool.reserved - pool.used + pool.graph_reserved - pool.graph_used);
    EXPECT(stats().reserved >= (uint64_t)384 * MIB && stats().cached >= (uint64_t)64 * MIB);
    CUDA(memlord_cuda_free(lord, plain, NULL));
    EXPECT(stats().cached == pool.reserved - pool.used + pool.graph_reserved - pool.graph_used);
    CUDA(memlord_cuda_free_async(lord, a, NULL, NULL));
    CUDA(memlord_cuda_device_synchronize(lord, NULL));
    OK(memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, NULL));
    EXPECT(stats().cached == stats().reserved);
    keep = 0;
    CUDA(cudaMemPoolSetAttribute(handle, cudaMemPoolAttrReleaseThreshold, &keep));
    return 0;
}

/* A cache of the host's that fills the device, and goes when it is told to. */
static struct {
    void *block[4096]; /* of 256 MiB: more than any device has */
    int n;
} cache;

static memlord_gc_result drop_cache(void *user, memlord *l, const memlord_gc_event *event) {
    memlord_gc_result result = {1, 0, 0};
    (void)user, (void)event;
    while (cache.n) {
        result.reclaimed += 256 * MIB;
        (void)memlord_cuda_free(l, cache.block[--cache.n], NULL);
    }
    return result;
}

static int out_of_memory_is_survived(void) {
    memlord_retry policy = {2, 10, 10, 1.0, NULL, NULL};
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_RETRY, 0, NULL, NULL};
    void *ptr = NULL;
    desc.retry = &policy;
    while (cache.n < 4096 &&
           memlord_cuda_malloc(lord, &cache.block[cache.n], 256 * MIB, NULL) == cudaSuccess)
        cache.n++;
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
    EXPECT(memlord_cuda_malloc(lord, &ptr, 512 * MIB, NULL) == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
    OK(memlord_gc_callback_add(lord, memlord_device_cuda(MEMLORD_ANY), 0, drop_cache, NULL));
    OK(memlord_cuda_attach(lord, &desc));
    CUDA(memlord_cuda_malloc(lord, &ptr, 512 * MIB, NULL));
    CUDA(cudaPeekAtLastError());
    EXPECT(stats().recoveries == 1 && cache.n == 0);
    EXPECT(memlord_allocated(lord, gpu()) == 512 * MIB);
    CUDA(memlord_cuda_free(lord, ptr, NULL));
    /* what can never fit fails as it does without */
    EXPECT(memlord_cuda_malloc(lord, &ptr, (size_t)1 << 46, NULL) == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
    OK(memlord_gc_callback_remove(lord, memlord_device_cuda(MEMLORD_ANY), drop_cache, NULL));
    OK(memlord_cuda_attach(lord, NULL));
    return 0;
}

static int pinned_and_managed(void) {
    memlord_device pinned = memlord_device_make(MEMLORD_DEVICE_PINNED, 0);
    uint64_t live = memlord_allocated(lord, gpu());
    void *host = NULL, *managed = NULL, *mine = NULL, *rows = NULL;
    size_t pitch = 0;
    EXPECT(posix_memalign(&mine, 4096, 8 * MIB) == 0);
    CUDA(memlord_cuda_malloc_host(lord, &host, 16 * MIB, NULL));
    CUDA(memlord_cuda_host_register(lord, mine, 8 * MIB, cudaHostRegisterDefault, NULL));
    CUDA(memlord_cuda_malloc_managed(lord, &managed, 32 * MIB, cudaMemAttachGlobal, NULL));
    CUDA(memlord_cuda_malloc_pitch(lord, &rows, &pitch, 1000, 1000, NULL));
    EXPECT(memlord_allocated(lord, pinned) == 24 * MIB);
    EXPECT(memlord_allocated(lord, gpu()) == live + 32 * MIB + pitch * 1000);
    CUDA(memlord_cuda_free(lord, rows, NULL));
    CUDA(memlord_cuda_free(lord, managed, NULL));
    CUDA(memlord_cuda_host_unregister(lord, mine, NULL));
    CUDA(memlord_cuda_free_host(lord, host, NULL));
    free(mine);
    EXPECT(memlord_allocated(lord, pinned) == 0 && memlord_allocated(lord, gpu()) == live);
    return 0;
}

static int what_the_runtime_refuses(void) {
    uint64_t unknown = stats().unknown_frees;
    void *host = NULL;
    CUDA(memlord_cuda_malloc_host(lord, &host, MIB, NULL));
    EXPECT(memlord_cuda_free(lord, (void *)0x1000, NULL) != cudaSuccess);
    EXPECT(cudaGetLastError() != cudaSuccess);
    EXPECT(stats().unknown_frees == unknown + 1);
    CUDA(memlord_cuda_free_host(lord, host, NULL));
    EXPECT(cudaGetLastError() == cudaSuccess);
    return 0;
}

/* -- threads -- */

static void *churn(void *user) {
    cudaStream_t stream;
    int i, rounds = quick ? 100 : 2000;
    if (cudaSetDevice(0) != cudaSuccess ||
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        return user;
    for (i = 0; i < rounds; i++) {
        void *ptr = NULL;
        if (memlord_cuda_malloc_async(lord, &ptr, 4096, stream, NULL) != cudaSuccess) return user;
        if (i % 4 == 0 && memlord_cuda_record_use(lord, ptr, stream) != MEMLORD_OK) return user;
        if (memlord_cuda_free_async(lord, ptr, stream, NULL) != cudaSuccess) return user;
    }
    if (memlord_cuda_stream_synchronize(lord, stream, NULL) != cudaSuccess) return user;
    return cudaStreamDestroy(stream) == cudaSuccess ? NULL : user;
}

static int sixteen_threads(void) {
    pthread_t threads[THREADS];
    memlord_stats before = stats(), after;
    void *failed = NULL, *end;
    int i;
    for (i = 0; i < THREADS; i++) EXPECT(!pthread_create(&threads[i], NULL, churn, &failed));
    for (i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &end);
        if (end) failed = end;
    }
    EXPECT(!failed);
    (void)memlord_retire(lord, gpu());
    after = stats();
    EXPECT(after.allocs - before.allocs == (uint64_t)THREADS * (quick ? 100 : 2000));
    EXPECT(after.frees - before.frees == after.allocs - before.allocs);
    EXPECT(after.allocated == before.allocated && after.fence_failures == before.fence_failures);
    EXPECT(after.unknown_frees == before.unknown_frees && after.implicit_frees == 0);
    return 0;
}

static int nothing_is_left(void) {
    EXPECT(memlord_allocated(lord, memlord_device_all()) == 0);
    CUDA(cudaPeekAtLastError());
    return 0;
}

static const struct {
    const char *name;
    int (*fn)(void);
    int whole; /* wants all of the device, or none of it yet: not under compute-sanitizer */
} rows[] = {
    {"an untouched device: capacity by NVML, and no context", untouched_device, 1},
    {"an active device: capacity against nvidia-smi", capacity_against_smi, 0},
    {"two streams: pending bytes before, none after", two_streams, 0},
    {"a stream that ends is not asked again", a_stream_that_ends, 0},
    {"a thread's own stream, asked for by another", a_threads_own_stream, 0},
    {"a trim gives bytes back to the device", a_trim_gives_back, 0},
    {"reserved and cached, with cudaMalloc beside the pool", what_is_cached, 0},
    {"out of memory: survived with the retry, not without", out_of_memory_is_survived, 1},
    {"pinned, registered, managed and pitched memory", pinned_and_managed, 0},
    {"frees, samples and collections inside a capture", frees_in_a_capture, 0},
    {"a collection that waits, but not in a capture", a_collection_that_waits, 0},
    {"what the runtime refuses changes no books", what_the_runtime_refuses, 0},
    {"16 threads on one device", sixteen_threads, 0},
    {"nothing is left, and no error", nothing_is_left, 0},
};

int main(int argc, char **argv) {
    size_t i;
    int failed = 0;
    memlord_result r;
    quick = argc > 1 && !strcmp(argv[1], "short");
    if (memlord_create(NULL, &lord) != MEMLORD_OK) return 1;
    if (memlord_strategy_set(lord, memlord_device_all(), NULL, 0)) return 1; /* the rows collect */
    r = memlord_cuda_attach(lord, NULL);
    if (r != MEMLORD_OK) return printf("attach: %s\n", memlord_result_text(r)), 1;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int bad;
        why = NULL;
        if (quick && rows[i].whole) continue;
        bad = rows[i].fn();
        failed += bad;
        printf("%-60s %s%s\n", rows[i].name, bad ? "FAILED" : why ? "passed, in part: " : "passed",
               bad || !why ? "" : why);
        fflush(stdout);
    }
    (void)memlord_cuda_detach(lord);
    memlord_destroy(lord);
    return failed != 0;
}
