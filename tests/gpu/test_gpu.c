/* What only a GPU can show, a row each: test_gpu [short] [TEXT], TEXT being part of a row's name.
   Each row runs in a process of its own with a ledger of its own, so that no row depends on
   another and what a failed one holds is freed with it. No nvcc: a host function that a stream
   waits for stands for a kernel that takes long; a kernel is what the driver makes of a text. Short
   is for compute-sanitizer, under which calls may wait that otherwise do not.

   A row expects what CUDA promises and MemLord does. What a sound device may do otherwise has room:
   other processes may take and give memory, a busy host runs a host function late, and the driver
   keeps memory for page tables. A comment says so beside the number. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "memlord.h"
#include "memlord_cuda.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, THREADS = 16, SECONDS = 60 /* a row may take; ten times that when short */ };
enum { ALL_SECONDS = 300 /* all rows may take, those that hang included */ };

extern char **environ;

static memlord *lord;
static char *note; /* shared with the parent: why a row was run in part */
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

static int in_part(const char *why) {
    snprintf(note, 80, "%s", why);
    return 0;
}

static void pause_ms(long ms) {
    struct timespec t;
    t.tv_sec = ms / 1000;
    t.tv_nsec = ms % 1000 * 1000000;
    nanosleep(&t, NULL);
}

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static memlord_stats stats(void) {
    memlord_stats s;
    memlord_stats_get(lord, gpu(), &s);
    return s;
}

/* What the stream waits for before it goes on: a long kernel. */
static void CUDART_CB wait_a_while(void *user) {
    (void)user;
    pause_ms(300);
}

/* -- what the device says -- */

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
        EXPECT(context_active() == 0);
        return in_part("NVML does not know the device");
    }
    EXPECT(context_active() == 0);
    OK(memlord_capacity_get(lord, gpu(), &now));
    printf("    NVML: %.0f of %.0f MiB used\n", (double)now.used / MIB, (double)now.total / MIB);
    if (!smi("memory.total", &total)) return in_part("no nvidia-smi"); /* asks the runtime */
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
    if (integrated) return in_part("an integrated device has the host's memory");
    CUDA(memlord_cuda_malloc(lord, &ptr, 256 * MIB, NULL));
    OK(memlord_capacity_sample(lord, gpu()));
    OK(memlord_capacity_get(lord, gpu(), &now));
    CUDA(cudaMemGetInfo(&unused, &all));
    EXPECT(now.total == all);
    EXPECT(now.used + 64 * MIB > all - unused && now.used < all - unused + 64 * MIB);
    if (!smi("memory.used", &used) || !smi("memory.total", &total)) {
        (void)in_part("no nvidia-smi");
    } else { /* the two count another total; used bytes may differ by that and by others' */
        double mib = (double)now.used / MIB, more = total - (double)now.total / MIB;
        EXPECT(mib < used + 256 && mib > used - more - 256);
    }
    CUDA(memlord_cuda_free(lord, ptr, NULL));
    return 0;
}

/* -- streams -- */

/* A thread without a context polls as well. */
static void *retire_bare(void *user) {
    (void)memlord_retire(lord, gpu());
    return user;
}

static int two_streams(void) {
    cudaStream_t compute, copy;
    pthread_t thread;
    void *ptr = NULL;
    CUDA(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&copy, cudaStreamNonBlocking));
    CUDA(memlord_cuda_malloc_async(lord, &ptr, 64 * MIB, compute, NULL));
    CUDA(cudaMemsetAsync(ptr, 0, 64 * MIB, compute)); /* the first one may wait for the device */
    CUDA(cudaStreamSynchronize(compute));
    OK(memlord_cuda_record_use(lord, ptr, copy));
    CUDA(cudaLaunchHostFunc(copy, wait_a_while, NULL));
    CUDA(cudaMemsetAsync(ptr, 1, 64 * MIB, copy));
    CUDA(memlord_cuda_free_async_after(lord, ptr, copy, NULL));
    EXPECT(quick || memlord_retire(lord, gpu()) == 0);
    EXPECT(!pthread_create(&thread, NULL, retire_bare, NULL) && !pthread_join(thread, NULL));
    EXPECT(quick || memlord_pending(lord, gpu()) == 64 * MIB);
    CUDA(memlord_cuda_stream_synchronize(lord, copy, NULL));
    EXPECT(memlord_pending(lord, gpu()) == 0);
    EXPECT(stats().fence_failures == 0 && stats().unknown_frees == 0);
    CUDA(cudaStreamDestroy(compute));
    CUDA(cudaStreamDestroy(copy));
    return 0;
}

/* Its event is recorded before it goes; its work goes on. That the device's end waits for the work
   of a stream that is gone is promised nowhere. */
static int a_stream_that_ends(void) {
    cudaStream_t side;
    void *ptr = NULL;
    int i;
    CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CUDA(memlord_cuda_malloc_async(lord, &ptr, MIB, NULL, NULL));
    CUDA(cudaStreamSynchronize(NULL));
    OK(memlord_cuda_record_use(lord, ptr, side));
    CUDA(cudaLaunchHostFunc(side, wait_a_while, NULL));
    CUDA(memlord_cuda_stream_destroy(lord, side, NULL));
    CUDA(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    EXPECT(quick || memlord_pending(lord, gpu()) == MIB);
    for (i = 0; i < 200 && memlord_pending(lord, gpu()); i++) {
        CUDA(memlord_cuda_device_synchronize(lord, NULL));
        pause_ms(10);
    }
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
    OK(memlord_cuda_record_free(lord, ptr, cudaStreamPerThread, NULL));
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

/* To wait for what is pending ends no capture, of a blocking stream or another. */
static int a_collection_that_waits(void) {
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_SYNC, 0, NULL, NULL};
    cudaStream_t stream, busy;
    cudaGraph_t graph = NULL;
    void *ptr = NULL;
    int blocking;
    OK(memlord_cuda_attach(lord, &desc));
    CUDA(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
    for (blocking = 0; blocking < 2; blocking++) {
        CUDA(cudaStreamCreateWithFlags(&stream, blocking ? 0 : cudaStreamNonBlocking));
        CUDA(memlord_cuda_malloc_async(lord, &ptr, MIB, busy, NULL));
        CUDA(cudaLaunchHostFunc(busy, wait_a_while, NULL));
        CUDA(memlord_cuda_free_async_after(lord, ptr, busy, NULL));
        CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        (void)memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, 0, NULL);
        EXPECT(memlord_pending(lord, gpu()) == 0);
        CUDA(memlord_cuda_stream_end_capture(lord, stream, &graph, NULL));
        if (graph) CUDA(cudaGraphDestroy(graph));
        CUDA(memlord_cuda_stream_destroy(lord, stream, NULL));
    }
    CUDA(memlord_cuda_stream_destroy(lord, busy, NULL));
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
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CUDA(memlord_cuda_malloc_async(lord, &node, 2 * MIB, stream, NULL));
    CUDA(cudaMemsetAsync(node, 0, 2 * MIB, stream));
    OK(memlord_cuda_record_free(lord, before, stream, NULL));
    EXPECT(memlord_retire(lord, gpu()) == 0);
    (void)memlord_capacity_sample(lord, gpu());
    (void)memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, 0, NULL);
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
    OK(memlord_cuda_record_free(lord, before, other, NULL));
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
    OK(memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, 0, &reclaimed));
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
    OK(memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, 0, NULL));
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

/* -- graphs, scopes, host functions -- */

/* A graph that allocates: its memory is the device's while it runs, and trimmed afterwards. */
static int a_graph_that_allocates(void) {
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t run = NULL;
    memlord_cuda_pool pool;
    void *node = NULL;
    int i;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CUDA(memlord_cuda_malloc_async(lord, &node, 32 * MIB, stream, NULL));
    CUDA(cudaMemsetAsync(node, 0, 32 * MIB, stream));
    CUDA(memlord_cuda_free_async(lord, node, stream, NULL));
    CUDA(memlord_cuda_stream_end_capture(lord, stream, &graph, NULL));
    CUDA(cudaGraphInstantiateWithFlags(&run, graph, 0));
    for (i = 0; i < 3; i++) CUDA(cudaGraphLaunch(run, stream));
    CUDA(memlord_cuda_stream_synchronize(lord, stream, NULL));
    OK(memlord_cuda_pool_get(lord, 0, &pool));
    EXPECT(pool.graph_reserved >= 32 * MIB);
    OK(memlord_capacity_sample(lord, gpu()));
    EXPECT(stats().reserved >= pool.graph_reserved);
    CUDA(cudaGraphExecDestroy(run));
    CUDA(cudaGraphDestroy(graph));
    /* nothing says how soon a graph's memory is free once the graph is gone */
    for (i = 0; i < 50; i++) {
        OK(memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, 0, NULL));
        OK(memlord_cuda_pool_get(lord, 0, &pool));
        if (!pool.graph_reserved) break;
        pause_ms(100);
    }
    printf("    the graph's memory is given back after %d ms\n", i * 100);
    EXPECT(pool.graph_reserved == 0);
    CUDA(memlord_cuda_stream_destroy(lord, stream, NULL));
    return 0;
}

static int a_timed_scope(void) {
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_TIME_SCOPES, 0, NULL, NULL};
    memlord_cuda_scope scope;
    memlord_scope_stat stat;
    cudaStream_t stream;
    OK(memlord_cuda_attach(lord, &desc));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(memlord_cuda_scope_begin(lord, &scope, "forward", stream));
    CUDA(cudaLaunchHostFunc(stream, wait_a_while, NULL));
    OK(memlord_cuda_scope_end(lord, &scope));
    CUDA(memlord_cuda_stream_synchronize(lord, stream, NULL));
    OK(memlord_scope_get(lord, "forward", &stat));
    printf("    %.1f ms on the device, of 300\n", (double)stat.device_ns / 1e6);
    CUDA(memlord_cuda_stream_destroy(lord, stream, NULL));
    if (getenv("FAKE_CUDA_DEVICES")) return in_part("the fake runtime has its own time");
    /* a busy host may begin the function late, and return from it late */
    EXPECT(stat.device_ns > 290000000u && (quick || stat.device_ns < 3000000000u));
    return 0;
}

/* CUDA permits no call there; the ledger's own calls ask the driver of what is pending. The alarm
   of the row ends one that hangs. */
static void CUDART_CB use_the_ledger(void *user) {
    uint64_t i;
    for (i = 1; i <= 1000; i++) {
        if (memlord_alloc(lord, memlord_device_cpu(), i * 64, 64, NULL)) *(int *)user = 1;
        if (memlord_free(lord, memlord_device_cpu(), i * 64, NULL)) *(int *)user = 1;
        if (memlord_alloc(lord, gpu(), i, 1, NULL)) *(int *)user = 1;
        if (memlord_free(lord, gpu(), i, NULL)) *(int *)user = 1;
    }
}

static int a_host_function(void) {
    cudaStream_t stream, side;
    void *ptr = NULL;
    int failed = 0;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CUDA(memlord_cuda_malloc_async(lord, &ptr, MIB, stream, NULL));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaLaunchHostFunc(side, wait_a_while, NULL));
    CUDA(memlord_cuda_free_async_after(lord, ptr, side, NULL)); /* pending while the other runs */
    CUDA(cudaLaunchHostFunc(stream, use_the_ledger, &failed));
    CUDA(memlord_cuda_stream_synchronize(lord, stream, NULL));
    EXPECT(!failed && stats().fence_failures == 0);
    CUDA(memlord_cuda_stream_synchronize(lord, side, NULL));
    EXPECT(memlord_pending(lord, gpu()) == 0);
    CUDA(memlord_cuda_stream_destroy(lord, stream, NULL));
    CUDA(memlord_cuda_stream_destroy(lord, side, NULL));
    return 0;
}

/* -- processes -- */

/* CUDA does not survive a fork; the ledger does. */
static int child_of_a_fork(void) {
    uint64_t before = memlord_allocated(lord, memlord_device_cpu());
    void *ptr = NULL;
    alarm(10);
    if (memlord_alloc(lord, memlord_device_cpu(), 64, 64, NULL)) return 1;
    if (memlord_alloc(lord, gpu(), 64, 64, NULL)) return 2;
    (void)memlord_retire(lord, memlord_device_all());
    if (memlord_free(lord, gpu(), 64, NULL)) return 3;
    if (memlord_free(lord, memlord_device_cpu(), 64, NULL)) return 4;
    if (memlord_cuda_attached(lord)) return 5;
    if (memlord_cuda_malloc(lord, &ptr, 64, NULL) == cudaSuccess) return 6;
    return memlord_allocated(lord, memlord_device_cpu()) != before;
}

static int a_fork_with_frees_pending(void) {
    cudaStream_t stream;
    int i;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (i = 0; i < 8; i++) {
        void *ptr = NULL;
        int status = 0;
        pid_t child;
        CUDA(memlord_cuda_malloc_async(lord, &ptr, MIB, stream, NULL));
        CUDA(cudaLaunchHostFunc(stream, wait_a_while, NULL));
        CUDA(memlord_cuda_free_async_after(lord, ptr, stream, NULL));
        child = fork();
        if (!child) _exit(child_of_a_fork());
        EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    CUDA(memlord_cuda_stream_synchronize(lord, stream, NULL));
    EXPECT(memlord_pending(lord, gpu()) == 0 && stats().fence_failures == 0);
    CUDA(memlord_cuda_stream_destroy(lord, stream, NULL));
    return 0;
}

/* A process that ends while pollers ask the driver: test_gpu exits. */
static int exits(void) {
    memlord *l = memlord_global();
    size_t n = 0;
    const memlord_band *bands = memlord_strategy_default(&n); /* devices without have no poller */
    void *ptr = NULL;
    if (memlord_cuda_attach(l, NULL)) return 1;
    if (memlord_strategy_set(l, gpu(), bands, n)) return 2;
    if (memlord_cuda_malloc_async(l, &ptr, MIB, NULL, NULL) != cudaSuccess) return 3;
    if (memlord_cuda_free_async(l, ptr, NULL, NULL) != cudaSuccess) return 4;
    pause_ms(20);
    return 0;
}

static int exits_with_pollers(void) {
    enum { AT_A_TIME = 8 };
    char *args[] = {(char *)"/proc/self/exe", (char *)"exits", NULL};
    const time_t start = time(NULL);
    int rounds = 0, i;
    EXPECT(!setenv("MEMLORD_POLL_INTERVAL_MS", "10", 1));
    while (rounds < 8 && time(NULL) - start < SECONDS / 3) { /* a context may take a second */
        pid_t pids[AT_A_TIME];
        for (i = 0; i < AT_A_TIME; i++)
            EXPECT(!posix_spawn(&pids[i], args[0], NULL, NULL, args, environ));
        for (i = 0; i < AT_A_TIME; i++) {
            int status = 0;
            EXPECT(waitpid(pids[i], &status, 0) == pids[i]);
            if (status) printf("    a process ended with status %#x\n", status);
            EXPECT(status == 0);
        }
        rounds++;
    }
    printf("    %d processes\n", rounds * AT_A_TIME);
    return 0;
}

/* -- stream-ordered memory -- */

/* A pool that a wrapper made is in `reserved` and is trimmed. */
static int a_pool_of_ones_own(void) {
    uint64_t keep = UINT64_MAX, reclaimed = 0;
    struct cudaMemPoolProps props;
    cudaMemPool_t pool;
    void *ptr = NULL;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = 0;
    CUDA(memlord_cuda_pool_create(lord, &pool, &props, NULL));
    CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    CUDA(memlord_cuda_malloc_from_pool_async(lord, &ptr, 64 * MIB, pool, NULL, NULL));
    OK(memlord_capacity_sample(lord, gpu()));
    EXPECT(memlord_allocated(lord, gpu()) == 64 * MIB && stats().reserved >= 64 * MIB);
    CUDA(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    CUDA(memlord_cuda_device_synchronize(lord, NULL));
    OK(memlord_capacity_sample(lord, gpu()));
    EXPECT(stats().cached >= 64 * MIB);
    OK(memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, 0, &reclaimed));
    EXPECT(reclaimed >= 64 * MIB);
    CUDA(memlord_cuda_pool_destroy(lord, pool, NULL));
    return 0;
}

/* -- virtual memory, and the end of a device -- */

static int driver_symbol(const char *name, void *fn, size_t size) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, name) : NULL;
    memcpy(fn, &found, size);
    return found != NULL;
}

static size_t device_free(void) {
    size_t unused = 0, total;
    return cudaMemGetInfo(&unused, &total) == cudaSuccess ? unused : 0;
}

static int one_part(void *user, const memlord_part_info *part) {
    (void)user;
    return strcmp(part->meta.name, "mapped") != 0;
}

/* Physical memory lives until its handle is released and its last mapping is gone. */
static int physical_memory(void) {
    const size_t bytes = (size_t)64 * MIB;
    const size_t most = bytes / 4 * 3; /* the rest is page tables, and what others take or give */
    int (*reserve)(unsigned long long *, size_t, size_t, unsigned long long, unsigned long long);
    int (*unreserve)(unsigned long long, size_t);
    void *prop[4] = {NULL, NULL, NULL, NULL}; /* CUmemAllocationProp */
    const int pinned_here[4] = {1, 0, 1, 0};  /* its type and location: device 0 */
    unsigned long long handle = 0, at = 0;
    size_t before;
    memcpy(prop, pinned_here, sizeof pinned_here);
    EXPECT(driver_symbol("cuMemAddressReserve", (void *)&reserve, sizeof reserve));
    EXPECT(driver_symbol("cuMemAddressFree", (void *)&unreserve, sizeof unreserve));
    CUDA(cudaSetDevice(0));
    CUDA(cudaFree(NULL));
    EXPECT(!reserve(&at, bytes, 0, 0, 0));
    before = device_free();
    EXPECT(!memlord_cuda_mem_create(lord, &handle, bytes, (const void *)prop, 0, NULL));
    EXPECT(memlord_allocated(lord, gpu()) == bytes && device_free() + most <= before);
    EXPECT(!memlord_cuda_mem_map(lord, at, bytes, 0, handle, 0, NULL));
    EXPECT(memlord_parts_each(lord, gpu(), handle, one_part, NULL) == 1);
    EXPECT(!memlord_cuda_mem_release(lord, handle, NULL));
    EXPECT(memlord_allocated(lord, gpu()) == bytes && device_free() + most <= before);
    EXPECT(!memlord_cuda_mem_unmap(lord, at, bytes, NULL));
    EXPECT(memlord_allocated(lord, gpu()) == 0 && device_free() + bytes > before + most);
    EXPECT(!unreserve(at, bytes));
    return 0;
}

/* A reset ends what the device has, but for what is a pool's. */
static int a_reset(void) {
    void *plain = NULL, *host = NULL, *kept = NULL;
    CUDA(memlord_cuda_malloc(lord, &plain, 16 * MIB, NULL));
    CUDA(memlord_cuda_malloc_host(lord, &host, MIB, NULL));
    CUDA(memlord_cuda_malloc_async(lord, &kept, 8 * MIB, NULL, NULL));
    CUDA(memlord_cuda_device_reset(lord, NULL));
    EXPECT(memlord_allocated(lord, memlord_device_all()) == 8 * MIB);
    CUDA(memlord_cuda_malloc(lord, &plain, MIB, NULL)); /* and a new context */
    CUDA(memlord_cuda_free(lord, plain, NULL));
    if (memlord_cuda_free_async(lord, kept, NULL, NULL) != cudaSuccess) {
        (void)cudaGetLastError(); /* the books follow what the runtime does */
        EXPECT(memlord_allocated(lord, gpu()) == 8 * MIB);
        OK(memlord_free(lord, gpu(), MEMLORD_KEY(kept), NULL));
        return in_part("the runtime frees nothing of a pool after a reset");
    }
    EXPECT(memlord_allocated(lord, memlord_device_all()) == 0);
    return 0;
}

/* Memory that is free for one stream and not yet for another: a request that finds none waits for
   what is pending with MEMLORD_CUDA_FLAG_SYNC, and backs off without. */
static int out_of_memory_in_stream_order(void) {
    memlord_retry policy = {8, 100, 100, 1.0, NULL, NULL};
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_RETRY, 0, NULL, NULL};
    size_t unused = 0, all = 0;
    cudaStream_t stream;
    void *most = NULL, *next = NULL;
    int sync;
    desc.retry = &policy;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (sync = 0; sync < 2; sync++) {
        uint64_t asked;
        desc.flags = MEMLORD_CUDA_FLAG_RETRY | (sync ? MEMLORD_CUDA_FLAG_SYNC : 0u);
        OK(memlord_cuda_attach(lord, &desc));
        CUDA(cudaMemGetInfo(&unused, &all));
        asked = unused / 4 * 3;
        CUDA(memlord_cuda_malloc_async(lord, &most, asked, stream, NULL));
        CUDA(cudaLaunchHostFunc(stream, wait_a_while, NULL));
        CUDA(memlord_cuda_free_async_after(lord, most, stream, NULL));
        CUDA(memlord_cuda_malloc(lord, &next, asked, NULL));
        CUDA(cudaPeekAtLastError());
        CUDA(memlord_cuda_stream_synchronize(lord, stream, NULL));
        EXPECT(memlord_allocated(lord, gpu()) == asked);
        CUDA(memlord_cuda_free(lord, next, NULL));
    }
    CUDA(memlord_cuda_stream_destroy(lord, stream, NULL));
    return 0;
}

/* -- what CUDA leaves undefined or does not say -- */

/* A capture holds back every free that is recorded in it. The end of it costs an event or two, not
   one of each: a framework's step has thousands. */
static int many_frees_in_a_capture(void) {
    enum { FREES = 10000 };
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    uint64_t i;
    double seconds;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (i = 1; i <= FREES; i++) OK(memlord_alloc(lord, gpu(), i * 256, 256, NULL));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    seconds = seconds_now();
    for (i = 1; i <= FREES; i++)
        OK(memlord_cuda_record_free(lord, (void *)(uintptr_t)(i * 256), stream, NULL));
    EXPECT(memlord_pending(lord, gpu()) == FREES * 256);
    CUDA(memlord_cuda_stream_end_capture(lord, stream, &graph, NULL));
    CUDA(memlord_cuda_stream_synchronize(lord, stream, NULL));
    seconds = seconds_now() - seconds;
    printf("    %.3f s for %d frees\n", seconds, FREES);
    EXPECT(memlord_pending(lord, gpu()) == 0 && stats().fence_failures == 0);
    EXPECT(quick || seconds < 5); /* three calls of the driver each are some 10 ms */
    if (graph) CUDA(cudaGraphDestroy(graph));
    CUDA(memlord_cuda_stream_destroy(lord, stream, NULL));
    return 0;
}

/* A call on a stream whose launch queue is full waits for the device, and the device for a host
   function, which may use the ledger. One that waits for the other's lock hangs. */
static void CUDART_CB free_a_used_block(void *user) {
    pause_ms(1000); /* the queue fills meanwhile */
    if (memlord_free(lord, gpu(), 64, NULL)) *(int *)user = 1;
}

static int a_full_queue(void) {
    enum { FREES = 5000 }; /* more than a queue holds, which is some 1,000 */
    cudaStream_t stream, side;
    double longest = 0, began, took;
    int failed = 0;
    uint64_t i;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    OK(memlord_alloc(lord, gpu(), 64, 64, NULL));
    OK(memlord_cuda_record_use(lord, (void *)64, side));
    CUDA(cudaLaunchHostFunc(stream, free_a_used_block, &failed));
    for (i = 2; i < FREES; i++) {
        OK(memlord_alloc(lord, gpu(), i * 64, 64, NULL));
        OK(memlord_cuda_record_use(lord, (void *)(uintptr_t)(i * 64), stream));
        began = seconds_now();
        OK(memlord_free(lord, gpu(), i * 64, NULL)); /* which records an event on the stream */
        took = seconds_now() - began;
        if (took > longest) longest = took;
    }
    printf("    the longest free took %.3f s\n", longest);
    CUDA(memlord_cuda_stream_synchronize(lord, stream, NULL));
    CUDA(memlord_cuda_stream_synchronize(lord, side, NULL));
    EXPECT(!failed && memlord_pending(lord, gpu()) == 0 && stats().fence_failures == 0);
    CUDA(memlord_cuda_stream_destroy(lord, stream, NULL));
    CUDA(memlord_cuda_stream_destroy(lord, side, NULL));
    return longest < 0.2 ? in_part("the queue was never full") : 0;
}

/* The end of a pool that MemLord is not told of: its handle is of nothing then, and may be another
   pool's. */
static int a_pool_that_ends_untold(void) {
    struct cudaMemPoolProps props;
    memlord_cuda_pool figures;
    cudaMemPool_t pool;
    void *ptr = NULL;
    int i;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = 0;
    for (i = 0; i < 20; i++) {
        CUDA(cudaMemPoolCreate(&pool, &props));
        CUDA(memlord_cuda_malloc_from_pool_async(lord, &ptr, MIB, pool, NULL, NULL));
        CUDA(memlord_cuda_free_async(lord, ptr, NULL, NULL));
        CUDA(memlord_cuda_device_synchronize(lord, NULL));
        CUDA(cudaMemPoolDestroy(pool));
        OK(memlord_capacity_sample(lord, gpu()));
        OK(memlord_cuda_pool_get(lord, 0, &figures));
        OK(memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, 0, NULL));
        EXPECT(figures.used <= figures.reserved && stats().reserved < (uint64_t)1 << 40);
    }
    return 0;
}

/* Pools take more of the device than is asked of them, in parts. The books have what they took. */
static int what_pools_take(void) {
    uint64_t keep = UINT64_MAX, before = 0, after = 0, reclaimed = 0;
    cudaMemPool_t pool;
    void *small = NULL, *large = NULL;
    CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    CUDA(memlord_cuda_malloc_async(lord, &small, 512, NULL, NULL));
    CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &before));
    printf("    a pool takes %.1f MiB for 512 bytes\n", (double)before / MIB);
    CUDA(memlord_cuda_malloc_async(lord, &large, 100 * MIB, NULL, NULL));
    CUDA(memlord_cuda_free_async(lord, large, NULL, NULL));
    CUDA(memlord_cuda_device_synchronize(lord, NULL));
    CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &before));
    OK(memlord_capacity_sample(lord, gpu()));
    EXPECT(memlord_allocated(lord, gpu()) == 512 && stats().cached >= 100 * MIB);
    EXPECT(before >= 100 * MIB + 512 && stats().cached < before);
    OK(memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, 0, &reclaimed));
    CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &after));
    printf("    %.1f MiB reserved, %.1f after the trim\n", (double)before / MIB,
           (double)after / MIB);
    EXPECT(reclaimed == before - after && after >= 512);
    CUDA(memlord_cuda_free_async(lord, small, NULL, NULL));
    CUDA(memlord_cuda_device_synchronize(lord, NULL));
    keep = 0;
    CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    return 0;
}

/* A kernel that writes to address 16: "illegal address", 700. It ends the context for good. */
static const char fault_text[] =
    ".version 6.3\n.target sm_70\n.address_size 64\n.visible .entry fault()\n{\n"
    ".reg .b64 %a;\n.reg .b32 %v;\nmov.u64 %a, 16;\nmov.u32 %v, 1;\n"
    "st.global.u32 [%a], %v;\nret;\n}\n";

static int launch_fault(cudaStream_t stream) {
    int (*load)(void **, const void *);
    int (*find)(void **, void *, const char *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  cudaStream_t, void **, void **);
    void *module = NULL, *kernel = NULL;
    return driver_symbol("cuModuleLoadData", (void *)&load, sizeof load) &&
           driver_symbol("cuModuleGetFunction", (void *)&find, sizeof find) &&
           driver_symbol("cuLaunchKernel", (void *)&launch, sizeof launch) &&
           !load(&module, fault_text) && !find(&kernel, module, "fault") &&
           !launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

/* The process ends here: no call of CUDA succeeds any more. */
static int an_error_with_frees_pending(void) {
    cudaStream_t stream;
    void *ptr = NULL, *next = NULL;
    int i;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(memlord_cuda_malloc_async(lord, &ptr, MIB, stream, NULL));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaLaunchHostFunc(stream, wait_a_while, NULL));
    OK(memlord_cuda_record_free(lord, ptr, stream, NULL));
    EXPECT(memlord_pending(lord, gpu()) == MIB);
    if (!launch_fault(stream)) {
        CUDA(memlord_cuda_stream_synchronize(lord, stream, NULL));
        CUDA(cudaFreeAsync(ptr, stream));
        CUDA(memlord_cuda_stream_destroy(lord, stream, NULL));
        return in_part("the driver takes no kernel");
    }
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
    for (i = 0; i < 100 && memlord_pending(lord, gpu()); i++) (void)memlord_retire(lord, gpu());
    printf("    pending %llu, fence failures %llu\n",
           (unsigned long long)memlord_pending(lord, gpu()),
           (unsigned long long)stats().fence_failures);
    EXPECT(memlord_pending(lord, gpu()) == 0 && memlord_allocated(lord, gpu()) == 0);
    EXPECT(memlord_cuda_malloc(lord, &next, MIB, NULL) == cudaErrorIllegalAddress);
    EXPECT(memlord_allocated(lord, gpu()) == 0);
    (void)memlord_capacity_sample(lord, gpu());
    (void)memlord_gc_run(lord, gpu(), MEMLORD_REASON_HOST, 0, NULL);
    OK(memlord_cuda_detach(lord));
    memlord_destroy(lord);
    memlord_cuda_events_release();
    fflush(stdout);
    _exit(0);
}

static const struct {
    const char *name;
    int (*fn)(void);
    int whole; /* wants the whole device or many processes: not under compute-sanitizer */
} rows[] = {
    {"an untouched device: capacity by NVML, and no context", untouched_device, 1},
    {"an active device: capacity against nvidia-smi", capacity_against_smi, 0},
    {"two streams: pending bytes before, none after", two_streams, 0},
    {"a stream that ends is not asked again", a_stream_that_ends, 0},
    {"a thread's own stream, asked for by another", a_threads_own_stream, 0},
    {"a trim gives bytes back to the device", a_trim_gives_back, 0},
    {"reserved and cached, with cudaMalloc beside the pool", what_is_cached, 0},
    {"a pool of one's own is reserved and trimmed", a_pool_of_ones_own, 0},
    {"physical memory by handle, mapped", physical_memory, 0},
    {"a reset ends what the device has, but for pools", a_reset, 0},
    {"pinned, registered, managed and pitched memory", pinned_and_managed, 0},
    {"frees, samples and collections inside a capture", frees_in_a_capture, 0},
    {"a collection that waits ends no capture", a_collection_that_waits, 0},
    {"a graph that allocates is reserved and trimmed", a_graph_that_allocates, 0},
    {"a scope's time on its stream", a_timed_scope, 0},
    {"allocs and frees of the ledger in a host function", a_host_function, 0},
    {"what the runtime refuses changes no books", what_the_runtime_refuses, 0},
    {"16 threads on one device", sixteen_threads, 0},
    {"many frees in one capture", many_frees_in_a_capture, 0},
    {"a full queue, and a host function that uses the ledger", a_full_queue, 1},
    {"a pool that ends untold", a_pool_that_ends_untold, 0},
    {"what pools take of the device, and give back", what_pools_take, 0},
    {"an illegal address while frees are pending", an_error_with_frees_pending, 1},
    {"a fork while frees are pending", a_fork_with_frees_pending, 1},
    {"processes that end while pollers run", exits_with_pollers, 1},
    {"out of memory in stream order, with and without waiting", out_of_memory_in_stream_order, 1},
    {"out of memory: survived with the retry, not without", out_of_memory_is_survived, 1},
};

/* A row in this process: nothing is left when it has passed, and no error. The reset is the end of
   the context, at which leaks are reported. */
static int play(int (*fn)(void)) {
    OK(memlord_create(NULL, &lord));
    OK(memlord_strategy_set(lord, memlord_device_all(), NULL, 0)); /* the rows collect */
    OK(memlord_cuda_attach(lord, NULL));
    if (fn()) return 1;
    EXPECT(memlord_allocated(lord, memlord_device_all()) == 0);
    EXPECT(stats().unknown_frees == 0 || fn == what_the_runtime_refuses);
    OK(memlord_cuda_detach(lord));
    memlord_destroy(lord);
    memlord_cuda_events_release();
    if (fn == untouched_device) return 0; /* a reset would touch it */
    CUDA(cudaPeekAtLastError());
    CUDA(cudaDeviceReset());
    return 0;
}

/* The status of its process; its output is all out before that ends. */
static int play_apart(int (*fn)(void)) {
    int status = 0;
    pid_t child = fork();
    if (!child) {
        alarm(quick ? SECONDS * 10 : SECONDS);
        status = play(fn);
        fflush(stdout);
        exit(status);
    }
    return child < 0 || waitpid(child, &status, 0) != child ? -1 : status;
}

int main(int argc, char **argv) {
    const char *only = "";
    size_t i;
    int failed = 0, ran = 0;
    const time_t start = time(NULL);
    if (argc > 1 && !strcmp(argv[1], "exits")) return exits();
    quick = argc > 1 && !strcmp(argv[1], "short");
    if (argc > 1 + quick) only = argv[1 + quick];
    note = (char *)mmap(NULL, 80, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (note == MAP_FAILED) return 1;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int status;
        if ((quick && rows[i].whole) || !strstr(rows[i].name, only)) continue;
        ran++;
        if (!quick && time(NULL) - start > ALL_SECONDS) {
            printf("%-60s not run: no time left\n", rows[i].name);
            continue;
        }
        note[0] = 0;
        status = play_apart(rows[i].fn);
        failed += status != 0;
        if (status > 0 && WIFSIGNALED(status))
            printf("    signal %d%s\n", WTERMSIG(status),
                   WTERMSIG(status) == SIGALRM ? ": it took too long" : "");
        printf("%-60s %s%s\n", rows[i].name,
               status    ? "FAILED"
               : note[0] ? "passed, in part: "
                         : "passed",
               status ? "" : note);
        fflush(stdout);
    }
    if (!ran) return printf("no row has \"%s\" in its name\n", only), 77;
    return failed != 0;
}
