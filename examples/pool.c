/*
    pool.c - a small caching pool, as the model of a custom allocator on MemLord

    Blocks are cut from segments and reused by size. Freeing merges nothing, which makes it cheap
    and lets the pool fragment; MemLord sees by how much, and its collection merges what lies side
    by side and gives idle segments back. A band asks for one when half of what the pool holds is
    idle, and two segments. One thread. Build and run:

        cc -std=c99 -O2 -I. examples/pool.c -o pool -pthread && ./pool 64MiB
*/
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#include <stdio.h>
#include <stdlib.h>

/* -- the pool -- */

enum { GRAIN = 64, SEGMENT = 4 << 20, LARGEST = 1 << 20, CLASSES = 23 /* 2^22 is a segment */ };

typedef struct segment {
    struct block *first; /* NULL: not there; blocks follow each other without a gap */
    size_t live;         /* blocks in use */
    uint64_t last;       /* the pool's tick when one was taken or freed */
} segment;

/* Lies in the grain before what the caller gets: how a block is found by its pointer. */
typedef struct block {
    size_t size; /* this grain included, so that live and free bytes add up to the reserved */
    segment *home;
    struct block *next, *prev; /* in its free list */
    int live;
    int fresh; /* nobody had it yet: taking it is no reuse */
} block;

typedef struct pool {
    memlord *lord;
    memlord_device device;
    segment *segments;
    size_t count;             /* of segments that may be there: the cache size */
    block *free[CLASSES];     /* by log2 of the size */
    uint64_t asked[CLASSES];  /* requests of that size, ever: which sizes are frequent */
    uint64_t tick, reserved, live, merged, dropped, trims;
    int failed;
} pool;

static void check(pool *p, memlord_result result) {
    if (result == MEMLORD_OK) return;
    fprintf(stderr, "pool: %s\n", memlord_result_text(result));
    p->failed = 1;
}

static void expect(pool *p, int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "pool: not so: %s\n", what);
    p->failed = 1;
}

static int class_of(size_t size) {
    int log2 = 0;
    while (size >>= 1) log2++;
    return log2;
}

/* The next block of its segment; NULL: it is the last. */
static block *behind(block *b) {
    char *at = (char *)b + b->size;
    return at < (char *)b->home->first + SEGMENT ? (block *)(void *)at : NULL;
}

static void list_add(pool *p, block *b) {
    block **head = &p->free[class_of(b->size)];
    b->live = 0;
    b->prev = NULL;
    b->next = *head;
    if (b->next) b->next->prev = b;
    *head = b;
}

static void list_remove(pool *p, block *b) {
    if (b->prev)
        b->prev->next = b->next;
    else
        p->free[class_of(b->size)] = b->next;
    if (b->next) b->next->prev = b->prev;
}

/* MemLord cannot look into a pool: it is told after each change. */
static void tell(pool *p) {
    size_t largest = 0;
    for (int c = CLASSES - 1; c >= 0 && !largest; c--)
        for (block *b = p->free[c]; b; b = b->next)
            if (b->size > largest) largest = b->size;
    check(p, memlord_pool_set(p->lord, p->device, p->reserved, largest));
}

/* Best fit. A higher class has larger blocks only: the first class with one that fits is it. */
static block *find(pool *p, size_t size) {
    block *best = NULL;
    for (int c = class_of(size); c < CLASSES && !best; c++)
        for (block *b = p->free[c]; b; b = b->next)
            if (b->size >= size && (!best || b->size < best->size)) best = b;
    return best;
}

/* One more segment, if the cache size allows it. */
static block *grow(pool *p) {
    size_t i = 0;
    block *b;
    while (i < p->count && p->segments[i].first) i++;
    b = i < p->count ? (block *)malloc(SEGMENT) : NULL;
    if (!b) return NULL;
    p->segments[i].first = b;
    p->segments[i].live = 0;
    p->reserved += SEGMENT;
    b->size = SEGMENT;
    b->home = &p->segments[i];
    b->fresh = 1;
    list_add(p, b);
    return b;
}

/* Takes a free block; what is behind the size becomes one of its own. */
static void take(pool *p, block *b, size_t size) {
    list_remove(p, b);
    if (b->size - size >= 2 * GRAIN) { /* less holds no more than its header */
        block *rest = (block *)(void *)((char *)b + size);
        rest->size = b->size - size;
        rest->home = b->home;
        rest->fresh = b->fresh;
        b->size = size;
        list_add(p, rest);
    }
    b->live = 1;
    b->home->live++;
    b->home->last = ++p->tick;
    p->live += b->size;
}

static void *pool_alloc(pool *p, const char *tag, size_t bytes) {
    size_t size = (bytes + 2 * GRAIN - 1) / GRAIN * GRAIN; /* rounded up, and a header */
    block *b;

    if (bytes > LARGEST) return NULL;
    p->asked[class_of(size)]++;
    if (!(b = find(p, size)) && !(b = grow(p))) {
        /* The room may be there in pieces: the collection may merge them, or free a segment. */
        check(p, memlord_gc_run(p->lord, p->device, MEMLORD_REASON_OOM, NULL));
        if (!(b = find(p, size)) && !(b = grow(p))) return NULL;
    }
    check(p, memlord_pool_served(p->lord, p->device, !b->fresh, !!b->fresh));
    take(p, b, size);
    MEMLORD_TAG(p->lord, tag) {
        check(p, MEMLORD_ALLOC(p->lord, p->device, (char *)b + GRAIN, b->size));
    }
    tell(p);
    return (char *)b + GRAIN;
}

static void pool_free(pool *p, void *ptr) {
    block *b = (block *)(void *)((char *)ptr - GRAIN);
    expect(p, b->live, "what is freed is in use");
    if (!b->live) return;
    check(p, MEMLORD_FREE(p->lord, p->device, ptr)); /* before another can get the address */
    b->fresh = 0;
    b->home->live--;
    b->home->last = ++p->tick;
    p->live -= b->size;
    list_add(p, b);
    tell(p);
}

/* -- the collection -- */

/* Makes one of each run of free blocks, from the first block of a segment on. */
static void merge(pool *p, block *b) {
    for (block *next; (next = behind(b)) != NULL;) {
        if (b->live || next->live) {
            b = next;
            continue;
        }
        list_remove(p, next);
        list_remove(p, b); /* its class changes with its size */
        b->size += next->size;
        b->fresh = b->fresh && next->fresh;
        list_add(p, b);
        p->merged++;
    }
}

/* Free bytes worth keeping: some blocks of every class that got an eighth of the requests. */
static uint64_t frequent(const pool *p) {
    uint64_t all = 0, bytes = 0;
    for (int c = 0; c < CLASSES; c++) all += p->asked[c];
    for (int c = 0; c < CLASSES; c++)
        if (p->asked[c] && p->asked[c] >= all / 8) bytes += UINT64_C(16) << (c + 1);
    return bytes;
}

/* Gives back the segment without a live block that was unused longest. 0: there is none. */
static int drop(pool *p) {
    segment *idle = NULL;
    for (segment *s = p->segments; s < p->segments + p->count; s++)
        if (s->first && !s->live && (!idle || s->last < idle->last)) idle = s;
    if (!idle) return 0;
    list_remove(p, idle->first); /* merged before: one block */
    free(idle->first);
    idle->first = NULL;
    p->reserved -= SEGMENT;
    p->dropped++;
    return 1;
}

/* A memlord_gc_fn. It keeps the room that frequent sizes will want again; when memory is out
   nothing is worth that. */
static memlord_gc_result collect(void *user, memlord *lord, const memlord_gc_event *event) {
    pool *p = (pool *)user;
    uint64_t before = p->reserved;
    uint64_t keep = event->reason == MEMLORD_REASON_OOM ? 0 : frequent(p);
    memlord_gc_result result = {1, 0, 0};

    (void)lord;
    for (size_t i = 0; i < p->count; i++)
        if (p->segments[i].first) merge(p, p->segments[i].first);
    while (p->reserved - p->live >= keep + SEGMENT && drop(p)) continue;
    tell(p);
    result.reclaimed = before - p->reserved;
    if (event->reason == MEMLORD_REASON_BAND) p->trims++;
    return result;
}

/* -- opening and closing -- */

/* One block of each size from 1 KiB to 1 MiB, as long as it fits, left free for the first who
   come. All are taken before one is freed, or the next size would get the same memory. */
static void preallocate(pool *p) {
    void *blocks[11];
    size_t n = 0, size = 1024;
    for (; size <= LARGEST && memlord_would_fit(p->lord, p->device, size) == 1; size *= 2)
        if ((blocks[n] = pool_alloc(p, "prealloc", size)) != NULL) n++;
    printf("preallocated %d sizes\n", (int)n);
    while (n > 0) pool_free(p, blocks[--n]);
}

static int pool_open(pool *p, uint64_t cache) {
    /* A collection inside MEMLORD_FREE would meet lists that are half changed: with DEFER it waits
       for memlord_gc_poll. */
    const memlord_desc desc = {.logger = {memlord_log_stderr, NULL},
                               .flags = MEMLORD_FLAG_DEFER};
    const memlord_band idle = {0, 101, MEMLORD_METRIC_CACHED, 2 * SEGMENT, 50,
                               MEMLORD_COMBINE_MAX};
    p->device = memlord_device_make(MEMLORD_DEVICE_OTHER, 0); /* a pool is a device of its own */
    p->count = (size_t)(cache / SEGMENT);
    p->segments = (segment *)calloc(p->count, sizeof *p->segments);
    if (!p->segments || memlord_create(&desc, &p->lord) != MEMLORD_OK) return 1;
    check(p, memlord_limit_set(p->lord, p->device, cache));
    check(p, memlord_strategy_set(p->lord, p->device, &idle, 1));
    check(p, memlord_gc_callback_add(p->lord, p->device, 0, collect, p));
    preallocate(p);
    return 0;
}

static void pool_close(pool *p) {
    for (size_t i = 0; i < p->count; i++) free(p->segments[i].first);
    check(p, memlord_pool_set(p->lord, p->device, 0, 0));
    memlord_destroy(p->lord);
    free(p->segments);
}

/* -- the workload -- */

enum { SLOTS = 128, STEPS = 4000, ROUNDS = 2 };

typedef struct slot {
    uint64_t *words; /* NULL: empty */
    size_t count;
} slot;

static uint64_t random_below(uint64_t n) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
}

/* Half of them of two sizes, the others anything up to 1 MiB, small ones as often as large. */
static size_t random_size(void) {
    size_t base = (size_t)512 << random_below(11);
    if (random_below(2)) return random_below(2) ? 4096 : 65536;
    return base + (size_t)random_below(base) / 8 * 8;
}

static void fill(pool *p, slot *s, uint64_t key) {
    size_t size = random_size();
    s->count = size / sizeof *s->words;
    s->words = (uint64_t *)pool_alloc(p, size < 65536 ? "small" : "large", size);
    expect(p, s->words != NULL, "there is memory");
    for (size_t i = 0; s->words && i < s->count; i++) s->words[i] = key << 32 | i;
}

static void empty(pool *p, slot *s, uint64_t key) {
    int intact = 1;
    if (!s->words) return;
    for (size_t i = 0; i < s->count; i++) intact &= s->words[i] == (key << 32 | i);
    expect(p, intact, "a block keeps its contents");
    pool_free(p, s->words);
    s->words = NULL;
}

static memlord_stats look(pool *p, const char *when) {
    memlord_stats s;
    char a[32], b[32];
    check(p, memlord_stats_get(p->lord, p->device, &s));
    expect(p, s.allocated == p->live && s.reserved == p->reserved, "MemLord counts as the pool");
    printf("%-8s live %s of %s, cached ratio %.2f, fragmentation %.2f\n", when,
           memlord_format_bytes(s.allocated, a, sizeof a),
           memlord_format_bytes(s.reserved, b, sizeof b), memlord_cached_ratio(&s),
           memlord_fragmentation(&s));
    return s;
}

/* What a host does at a quiet moment: looks, and compacts when it pays. */
static void compact(pool *p) {
    uint64_t merged = p->merged, dropped = p->dropped, reclaimed;
    memlord_stats before = look(p, "before"), after;
    char text[32];

    if (!(memlord_fragmentation(&before) > 0.3)) return;
    check(p, memlord_gc_run(p->lord, p->device, MEMLORD_REASON_FRAGMENTATION, &reclaimed));
    merged = p->merged - merged, dropped = p->dropped - dropped;
    printf("         merged %d blocks, released %d segments, %s\n", (int)merged, (int)dropped,
           memlord_format_bytes(reclaimed, text, sizeof text));
    after = look(p, "after");
    expect(p, merged > 0 && reclaimed == dropped * SEGMENT, "what was merged and released");
    expect(p, before.reserved - after.reserved == reclaimed, "it is what MemLord was told");
    expect(p, memlord_fragmentation(&after) < memlord_fragmentation(&before), "it got better");
}

static void work(pool *p) {
    slot table[SLOTS] = {{NULL, 0}};
    for (int round = 1; round <= ROUNDS; round++) {
        printf("round %d\n", round);
        for (int step = 0; step < STEPS; step++) {
            size_t key = (size_t)random_below(SLOTS);
            (table[key].words ? empty : fill)(p, &table[key], key);
            check(p, memlord_gc_poll(p->lord, p->device)); /* the pool is whole: a quiet point */
        }
        for (size_t key = 0; key < SLOTS; key++) /* most work is done, some goes on */
            if (random_below(24)) empty(p, &table[key], key);
        compact(p);
    }
    for (size_t key = 0; key < SLOTS; key++) empty(p, &table[key], key);
}

int main(int argc, char **argv) {
    uint64_t cache = UINT64_C(64) << 20, asked;
    pool p = {0};
    memlord_stats stats;

    if (argc > 2 || (argc == 2 && memlord_parse_bytes(argv[1], &cache) != MEMLORD_OK) ||
        cache < UINT64_C(16) << 20 || cache > UINT64_C(16) << 30) {
        fprintf(stderr, "usage: pool [cache size, 16MiB to 16GiB]\n");
        return 2;
    }
    if (getenv("DEBUG")) setenv("MEMLORD_DEBUG", getenv("DEBUG"), 0); /* DEBUG=1: every event */
    if (pool_open(&p, cache)) return 1;
    work(&p);
    check(&p, memlord_gc_run(p.lord, p.device, MEMLORD_REASON_HOST, NULL));
    stats = look(&p, "at last");
    expect(&p, !stats.allocated && !stats.live_blocks, "nothing is live");
    asked = stats.cache_hits + stats.cache_misses;
    printf("%d requests, hit rate %.1f %%, %d collections, %d for the band\n", (int)asked,
           100 * (double)stats.cache_hits / (double)asked, (int)stats.gc_runs, (int)p.trims);
    expect(&p, stats.cache_hits > stats.cache_misses && stats.gc_runs > 1, "it was worth it");
    expect(&p, !stats.unknown_frees && !stats.implicit_frees, "every free has its alloc");
    pool_close(&p);
    return p.failed;
}
