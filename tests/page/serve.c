/*
    serve.c FILE.html - the program in the pictures of README: it plays a server with two GPUs

    What MemLord records is what a server would tell it. The memory itself is not there, and time is
    a counter, so that any machine takes the same pictures. Each GPU of 24 GiB holds half of a
   model, which comes by way of a pinned buffer. Then requests fill the caches, and a band drops the
    prefix cache when a GPU is nearly full.
*/
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

enum { GPUS = 2, LAYERS = 32, STEPS = 260, REQUESTS = 20, PREFIXES = 400, STEP_NS = 11000000 };
#define MIB ((uint64_t)1 << 20)

typedef struct server {
    memlord *lord;
    uint64_t now_ns, last, seed, cache[REQUESTS][GPUS], prefix[GPUS][PREFIXES];
    int kept[GPUS]; /* prefixes that a GPU keeps */
} server;

static uint64_t clock_read(void *user) { return ((server *)user)->now_ns; }

static memlord_device gpu(int i) { return memlord_device_cuda((int16_t)i); }

static int capacity(void *user, memlord_device device, memlord_capacity *out) {
    const server *s = (const server *)user;
    out->total = 24 * 1024 * MIB;
    out->process = memlord_allocated(s->lord, device) + 420 * MIB;
    out->context = 420 * MIB;
    out->used = out->process + 1100 * MIB; /* another process is there, too */
    return 0;
}

static uint64_t address(server *s) {
    s->now_ns += 15000;
    return s->last += UINT64_C(1) << 34;
}

static uint64_t dice(server *s, uint64_t sides) {
    s->seed = s->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (s->seed >> 33) % sides;
}

static memlord_gc_result drop_prefixes(void *user, memlord *lord, const memlord_gc_event *event) {
    server *s = (server *)user;
    memlord_gc_result result = {1, 0, 0};
    for (int i = 0; i < GPUS; i++)
        while (s->kept[i] > 0 && event->device.index == i) {
            (void)MEMLORD_FREE(lord, gpu(i), s->prefix[i][--s->kept[i]]);
            result.reclaimed += 48 * MIB;
        }
    s->now_ns += 9000000;
    return result;
}

static void load_model(server *s) {
    uint64_t staging = address(s);
    MEMLORD_SCOPED(s->lord, "load");
    MEMLORD_TAG(s->lord, "staging") {
        (void)MEMLORD_ALLOC(s->lord, memlord_device_make(MEMLORD_DEVICE_PINNED, 0), staging,
                            512 * MIB);
    }
    MEMLORD_TAG(s->lord, "weights") for (int layer = 0; layer < LAYERS; layer++) {
        (void)MEMLORD_ALLOC(s->lord, gpu(layer * GPUS / LAYERS), address(s), 812 * MIB);
        s->now_ns += 40000000;
    }
    (void)MEMLORD_FREE(s->lord, memlord_device_make(MEMLORD_DEVICE_PINNED, 0), staging);
    (void)memlord_checkpoint(s->lord, "ready");
}

static void grow_cache(server *s, int request, uint64_t bytes) {
    for (int i = 0; i < GPUS; i++) {
        if (s->cache[request][i]) (void)MEMLORD_FREE(s->lord, gpu(i), s->cache[request][i]);
        s->cache[request][i] = bytes ? address(s) : 0;
        MEMLORD_TAG(s->lord, "kv_cache")
        if (bytes) (void)MEMLORD_ALLOC(s->lord, gpu(i), s->cache[request][i], bytes);
    }
}

static void keep_prefix(server *s) {
    for (int i = 0; i < GPUS; i++) {
        if (s->kept[i] >= PREFIXES) continue;
        s->prefix[i][s->kept[i]] = address(s);
        MEMLORD_TAG(s->lord, "prefix_cache") {
            (void)MEMLORD_ALLOC(s->lord, gpu(i), s->prefix[i][s->kept[i]++], 48 * MIB);
        }
    }
}

static void run_step(server *s, int step) {
    const int request = (int)dice(s, REQUESTS);
    uint64_t work[GPUS];
    MEMLORD_SCOPED(s->lord, "step");
    if (dice(s, 3) == 0) keep_prefix(s);
    {
        MEMLORD_SCOPED(s->lord, "attention");
        grow_cache(s, request, dice(s, 5) ? (64 + dice(s, 256)) * MIB : 0);
        s->now_ns += STEP_NS / 2;
    }
    MEMLORD_SCOPED(s->lord, "feed_forward");
    for (int i = 0; i < GPUS; i++) MEMLORD_TAG(s->lord, "activations") {
            work[i] = address(s);
            (void)MEMLORD_ALLOC(s->lord, gpu(i), work[i], (300 + (uint64_t)(step % 7) * 90) * MIB);
        }
    MEMLORD_TAG(s->lord, "tokens")
    (void)MEMLORD_ALLOC(s->lord, memlord_device_cpu(), address(s), 640 << 10);
    s->now_ns += STEP_NS / 2;
    for (int i = 0; i < GPUS; i++) (void)MEMLORD_FREE(s->lord, gpu(i), work[i]);
}

int main(int argc, char **argv) {
    static server s = {.seed = 7};
    const memlord_desc desc = {
        .clock = {clock_read, &s}, .event_capacity = 1 << 14, .flags = MEMLORD_FLAG_NO_THREADS};
    const memlord_band full = {0, 101, MEMLORD_METRIC_MAX, 19456 * MIB, 0, MEMLORD_COMBINE_MAX};
    if (argc < 2 || memlord_create(&desc, &s.lord) != MEMLORD_OK) return 1;
    (void)memlord_sites_enable(s.lord, 1);
    (void)memlord_capacity_source_set(s.lord, MEMLORD_DEVICE_CUDA, capacity, &s);
    (void)memlord_gc_callback_add(s.lord, memlord_device_cuda(MEMLORD_ANY),
                                  1u << MEMLORD_REASON_BAND, drop_prefixes, &s);
    (void)memlord_strategy_set(s.lord, memlord_device_cuda(MEMLORD_ANY), &full, 1);
    load_model(&s);
    for (int step = 0; step < STEPS; step++) {
        run_step(&s, step);
        for (int i = 0; i < GPUS; i++) (void)memlord_capacity_sample(s.lord, gpu(i));
        if (step % 65 == 64)
            (void)memlord_checkpoint(s.lord, step < 200 ? "batch done" : "drained");
    }
    return memlord_save(s.lord, MEMLORD_FORMAT_HTML, argv[1]) != MEMLORD_OK;
}
