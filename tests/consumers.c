/* A ledger as an inference server would have it, saved in every format: what consumers.sh hands to
   the programs that read them. consumers DIRECTORY EVENTS: with a ring of so many, 0 none; prints
   what they have to find. */
#include "memlord.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static memlord *lord;

/* Ahead of the wall's, as one of a simulation is, or the wall's after it was set back. */
static uint64_t fast(void *user) {
    struct timespec t;
    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec) * 1000;
}

static int capacity(void *user, memlord_device device, memlord_capacity *out) {
    (void)user;
    out->total = (uint64_t)80 << 30;
    out->used = ((uint64_t)40 + (uint64_t)device.index) << 30;
    out->process = 0;
    return 0;
}

static int never(void *user) {
    (void)user;
    return 0;
}

/* Heads of a layer, of 4096 bytes each, beside some that are in none. */
static void parts(memlord_device card, uint64_t storage, uint64_t n) {
    memlord_meta meta;
    char name[64];
    uint64_t k;
    memset(&meta, 0, sizeof meta);
    meta.name = name;
    for (k = 0; k < n; k++) {
        snprintf(name, sizeof name, "head; %d", (int)k);
        memlord_part_add(lord, card, storage, k * 8192, 4096, &meta);
    }
}

/* Two cards: layers of weights through pinned memory, caches that grow, scratch that comes and
   goes. Storages repeat from card to card only where a real allocator's could. */
static void load(memlord_device card, uint64_t base) {
    uint64_t i;
    const uint64_t staging = UINT64_C(0x10000) + ((uint64_t)card.index << 32); /* its own */
    MEMLORD_TAG(lord, "weights") {
        for (i = 0; i < 48; i++) {
            memlord_meta meta;
            char name[64];
            snprintf(name, sizeof name, "blk.%d.attn_q.weight", (int)i);
            memset(&meta, 0, sizeof meta);
            meta.name = name;
            meta.dtype = "f16";
            meta.shape[0] = 4096;
            meta.shape[1] = 4096 + (int64_t)i;
            meta.rank = 2;
            memlord_alloc(lord, memlord_device_make(MEMLORD_DEVICE_PINNED, 0), staging, 32 << 20,
                          MEMLORD_SITE());
            memlord_alloc(lord, card, base + (i << 28), 8192 * (4096 + i), MEMLORD_SITE());
            memlord_block_describe(lord, card, base + (i << 28), &meta);
            parts(card, base + (i << 28), 1 + i * 50); /* to more than a batch of a pickle */
            memlord_free(lord, memlord_device_make(MEMLORD_DEVICE_PINNED, 0), staging,
                         MEMLORD_SITE());
        }
    }
}

static void attention(memlord_device card, uint64_t key, uint64_t scratch, uint64_t i) {
    MEMLORD_SCOPE(lord, "attention; \"heads\"") {
        MEMLORD_TAG(lord, "kv_cache") {
            memlord_alloc(lord, card, key, (2 << 20) + i, MEMLORD_SITE());
        }
        memlord_alloc(lord, card, scratch, (uint64_t)(16 + i % 7) << 20, MEMLORD_SITE());
        memlord_free(lord, card, scratch, MEMLORD_SITE());
    }
}

static void decode(memlord_device card, uint64_t base, int steps) {
    int i;
    for (i = 0; i < steps; i++) {
        uint64_t key = base + ((uint64_t)i << 24);
        MEMLORD_SCOPE(lord, "decode") {
            attention(card, key, base - 4096, (uint64_t)i);
            if (i % 4 == 3) memlord_free(lord, card, key - ((uint64_t)2 << 24), NULL);
            if (i % 8 == 0) memlord_scope_shapes_set(lord, "q[1,32,128]");
        }
    }
}

/* A card's work, on a thread of its own. */
static void *work(void *user) {
    memlord_device card = *(const memlord_device *)user;
    uint64_t base = (uint64_t)0x7f0000000000 + ((uint64_t)(unsigned)card.index << 40);
    MEMLORD_SCOPE(lord, "load") { load(card, base); }
    memlord_checkpoint(lord, card.index ? "second card loaded" : "first card loaded");
    decode(card, base + ((uint64_t)1 << 38), 64);
    memlord_capacity_sample(lord, card);
    return NULL;
}

static void odds_and_ends(memlord_device cpu, memlord_device card) {
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    fence.done = never;
    memlord_device_label_set(lord, card, "the \"first\" card");
    memlord_arena_add(lord, cpu, 12345678, MEMLORD_SITE());
    memlord_alloc(lord, cpu, UINT64_MAX - 1, (uint64_t)1 << 33, NULL);
    memlord_alloc(lord, card, 77, 0, MEMLORD_SITE());
    memlord_alloc(lord, card, 99, 5 << 20, MEMLORD_SITE());
    memlord_free_deferred(lord, card, 99, fence, MEMLORD_SITE());
    memlord_expect(lord, card, "kv_cache", (uint64_t)1 << 30);
    memlord_free(lord, card, 123456789, MEMLORD_SITE());
    MEMLORD_TAG(lord, "a;b \"c\"\\\n=1+1,\xff\xe2\x80\xa8</script>%n") {
        memlord_alloc(lord, cpu, 0x5000, 4321, MEMLORD_SITE());
    }
}

static int save_all(const char *directory) {
    static const char *const suffixes[] = {
#define SUFFIX(name, suffix, text) suffix,
        MLI_FORMATS(SUFFIX)
#undef SUFFIX
    };
    int format, bad = 0;
    for (format = 0; format < MEMLORD_FORMAT_COUNT; format++) {
        char path[512];
        memlord_result r;
        snprintf(path, sizeof path, "%s/ledger.%s", directory, suffixes[format]);
        r = memlord_save(lord, (memlord_format)format, path);
        if (r && r != MEMLORD_E_UNSUPPORTED) {
            fprintf(stderr, "%s: %s\n", path, memlord_result_text(r));
            bad = 1;
        }
    }
    return bad;
}

/* name=value, a line each, of all devices. */
static void print_stats(void) {
    memlord_stats s;
    memlord_stats_get(lord, memlord_device_all(), &s);
#define PRINT(name, kind, family, text) printf(#name "=%llu\n", (unsigned long long)s.name);
    MLI_STATS(PRINT)
#undef PRINT
}

int main(int argc, char **argv) {
    memlord_device card[2] = {memlord_device_cuda(0), memlord_device_cuda(1)};
    pthread_t thread[2];
    memlord_desc desc;
    int i;
    if (argc != 3) return 2;
    memset(&desc, 0, sizeof desc);
    desc.clock.fn = fast;
    desc.flags = MEMLORD_FLAG_SITES | MEMLORD_FLAG_NO_ENV | MEMLORD_FLAG_NO_THREADS;
    if (memlord_create(&desc, &lord)) return 1;
    memlord_capacity_source_set(lord, MEMLORD_DEVICE_CUDA, capacity, NULL);
    memlord_alloc(lord, card[1], 0x600000000000, 123 << 20, MEMLORD_SITE()); /* the ring's past */
    memlord_alloc(lord, card[1], 0x610000000000, 45 << 20, MEMLORD_SITE());
    if (strtoul(argv[2], NULL, 10)) memlord_events_start(lord, strtoul(argv[2], NULL, 10));
    memlord_snapshots_start(lord, 0);
    for (i = 0; i < 2; i++)
        if (pthread_create(&thread[i], NULL, work, &card[i])) return 1;
    for (i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    memlord_free(lord, card[1], 0x610000000000, MEMLORD_SITE());
    odds_and_ends(memlord_device_cpu(), card[0]);
    memlord_scope_begin(lord, "never ended");
    print_stats();
    return save_all(argv[1]);
}
