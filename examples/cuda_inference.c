/*
    cuda_inference.c - weights, KV cache and workspace on a GPU, over two streams

    One stream computes, another copies. The KV cache grows from the device's memory pool;
    workspaces are handed from the one stream to the other and are pending until that is done with
    them. The pool keeps what was freed. After each 256 MiB of frees a band gives back what cannot
    have been used since the last time: part of the prompt's workspace.
    Build and run (status 77: there is no GPU):

        cc -std=c99 -O2 -I. -isystem /usr/local/cuda/include examples/cuda_inference.c \
            -o cuda_inference -L/usr/local/cuda/lib64 -lcudart -lm -ldl -pthread
*/
#if defined(WITHOUT_CUDA)
#include <stdio.h>
int main(void) {
    fprintf(stderr, "cuda_inference: built without the CUDA toolkit (CUDA_HOME=...)\n");
    return 77;
}
#else
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#define MEMLORD_CUDA_IMPLEMENTATION
#include "memlord_cuda.h"
#include <stdio.h>
#include <stdlib.h>

enum { MIB = 1 << 20, WEIGHTS = 512 * MIB, KV = 4 * MIB, WORK = 32 * MIB };
enum { PROMPT = 384 * MIB, BAND = 256 * MIB };
enum { STEPS = 64, KEPT = 16 };

typedef struct engine {
    memlord *lord;
    memlord_device gpu;
    cudaStream_t compute, copy;
    void *weights, *kv[KEPT];
    uint64_t most_pending;
    int failed;
} engine;

static int check(engine *e, int status, const char *what) {
    if (!status) return 1;
    fprintf(stderr, "cuda_inference: %s: %d\n", what, status);
    e->failed = 1;
    return 0;
}

/* The pool goes on holding what is freed: a device like any engine's. */
static void keep_pool(engine *e) {
    uint64_t all_of_it = UINT64_MAX;
    cudaMemPool_t pool;
    if (check(e, cudaDeviceGetDefaultMemPool(&pool, 0), "the memory pool"))
        check(e, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all_of_it),
              "its threshold");
}

static void load(engine *e) {
    MEMLORD_TAG(e->lord, "weights") {
        if (check(e, memlord_cuda_malloc(e->lord, &e->weights, WEIGHTS, MEMLORD_SITE()), "weights"))
            check(e, cudaMemsetAsync(e->weights, 1, WEIGHTS, e->compute), "filling them");
    }
    check(e, memlord_cuda_stream_synchronize(e->lord, e->compute, MEMLORD_SITE()), "waiting");
}

/* The prompt, then one token a step: the KV cache grows, and the oldest of it goes once there is
   enough. */
static void step(engine *e, int i) {
    size_t size = i == 0 ? PROMPT : WORK;
    void *work = NULL, **kv = &e->kv[i % KEPT];
    uint64_t now;
    if (*kv) check(e, memlord_cuda_free_async(e->lord, *kv, e->compute, MEMLORD_SITE()), "KV free");
    *kv = NULL;
    MEMLORD_TAG(e->lord, "kv_cache") {
        check(e, memlord_cuda_malloc_async(e->lord, kv, KV, e->compute, MEMLORD_SITE()),
              "KV cache");
    }
    MEMLORD_TAG(e->lord, "workspace") {
        check(e, memlord_cuda_malloc_async(e->lord, &work, size, e->compute, MEMLORD_SITE()),
              "workspace");
    }
    if (!*kv || !work) return;
    check(e, cudaMemsetAsync(work, i, size, e->compute), "compute");
    check(e, cudaStreamSynchronize(e->compute), "waiting"); /* the copy reads what was computed */
    check(e, cudaMemsetAsync(work, 0, size, e->copy), "copy");
    /* the copy stream still uses it: freed in its order, and pending until then */
    check(e, memlord_cuda_free_async_after(e->lord, work, e->copy, MEMLORD_SITE()),
          "workspace free");
    now = memlord_pending(e->lord, e->gpu);
    if (now > e->most_pending) e->most_pending = now;
}

static void report(engine *e) {
    memlord_stats s;
    char a[32], b[32], c[32];
    memlord_stats_get(e->lord, e->gpu, &s);
    printf("%d tokens; %s pending at most, %s now; %d collections gave back %s\n", (int)STEPS,
           memlord_format_bytes(e->most_pending, a, sizeof a),
           memlord_format_bytes(s.pending, b, sizeof b),
           (int)s.gc_runs, memlord_format_bytes(s.gc_reclaimed, c, sizeof c));
    memlord_capacity_sample(e->lord, e->gpu);
    fflush(stdout); /* the report does not go through stdio */
    memlord_save(e->lord, MEMLORD_FORMAT_TEXT, "-");
}

int main(void) {
    memlord_desc desc = {.logger = {memlord_log_stderr, NULL}, .flags = MEMLORD_FLAG_SITES};
    memlord_band band = {0, 101, MEMLORD_METRIC_FREED, BAND, 0, MEMLORD_COMBINE_MAX};
    engine e = {0};
    memlord_result r;

    if (getenv("DEBUG")) setenv("MEMLORD_DEBUG", getenv("DEBUG"), 0); /* DEBUG=1: every event */
    if (memlord_create(&desc, &e.lord) != MEMLORD_OK) return 1;
    e.gpu = memlord_device_cuda(0);
    r = memlord_cuda_attach(e.lord, NULL);
    if (r == MEMLORD_E_UNSUPPORTED) {
        fprintf(stderr, "cuda_inference: no NVIDIA driver, or no GPU: %s\n", memlord_cuda_why());
        memlord_destroy(e.lord);
        return 77;
    }
    check(&e, (int)r, "attach");
    check(&e, (int)memlord_strategy_set(e.lord, e.gpu, &band, 1), "the band");
    check(&e, cudaStreamCreateWithFlags(&e.compute, cudaStreamNonBlocking), "a stream");
    check(&e, cudaStreamCreateWithFlags(&e.copy, cudaStreamNonBlocking), "a stream");
    if (!e.failed) keep_pool(&e);
    if (!e.failed) load(&e);
    for (int i = 0; i < STEPS && !e.failed; i++) step(&e, i);
    check(&e, memlord_cuda_device_synchronize(e.lord, MEMLORD_SITE()), "waiting");
    report(&e);
    for (int i = 0; i < KEPT; i++)
        if (e.kv[i])
            check(&e, memlord_cuda_free_async(e.lord, e.kv[i], e.compute, NULL), "KV free");
    check(&e, memlord_cuda_free(e.lord, e.weights, MEMLORD_SITE()), "weights free");
    check(&e, cudaStreamDestroy(e.compute), "a stream");
    check(&e, cudaStreamDestroy(e.copy), "a stream");
    if (memlord_allocated(e.lord, e.gpu)) e.failed = 1;
    memlord_cuda_detach(e.lord);
    memlord_destroy(e.lord);
    return e.failed;
}
#endif
