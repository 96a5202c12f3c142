/*
    pool.h - a caching pool, as the model of a custom allocator on MemLord: copy it and change it

    Segments of 4 MiB come from the system, or from two functions of yours. Blocks are cut from
    them, and a freed block waits in the list of its size class for the next request of that size.
    Freeing merges nothing, which makes it cheap and lets the pool fragment. MemLord sees by how
    much, and its collection merges what lies side by side and gives idle segments back. The pool
    keeps its own notes beside the segments: their memory may be that of a device, and no pointer
    that is passed in is read through.

    Two bounds hold it: `fraction`, the share of its device that it may reserve, and `cache`, the
    idle bytes that it keeps when blocks are freed. Wrong calls get a result, are counted, and
    change nothing else. It never prints and never aborts.

    One lock guards the pool. The pool calls MemLord under it, and MemLord's collection takes it:
    so the ledger must have MEMLORD_FLAG_DEFER. Then collections run only in memlord_gc_poll,
    memlord_gc_run and on pollers, where this lock is free. pool_alloc calls memlord_gc_run: hold
    no lock there that a collection callback of yours takes. Neither a logger nor the allocator of
    the ledger may use the pool. Include this file where memlord.h is, and link with -pthread.
*/
#ifndef POOL_H
#define POOL_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1 /* posix_memalign; include pool.h before any header of the system */
#endif
#include "memlord.h"

#include <pthread.h>
#include <stdlib.h>

/* name, text */
#define POOL_RESULTS(X)                                                                       \
    X(OK, "ok")                                                                               \
    X(E_INVALID, "no device, a fraction not between 0 and 1, or one function of two")         \
    X(E_SIZE, "0 bytes, or more than a segment")                                              \
    X(E_ALIGN, "an alignment that is no power of two, or more than a segment")                \
    X(E_FOREIGN, "no block of this pool begins there")                                        \
    X(E_DOUBLE_FREE, "the block is free already")                                             \
    X(E_FRACTION, "over the fraction of the device that the pool may reserve")                \
    X(E_MEMORY, "the system gives no memory")                                                 \
    X(E_UNKNOWN, "a fraction of a device without a limit or a known capacity")                \
    X(E_LIVE, "the pool has live blocks")                                                     \
    X(E_DEFER, "a collection inside a call of the pool: its ledger lacks MEMLORD_FLAG_DEFER")

typedef enum pool_result {
#define POOL_X(name, text) POOL_##name,
    POOL_RESULTS(POOL_X)
#undef POOL_X
    POOL_RESULT_COUNT
} pool_result;

enum {
    POOL_GRAIN = 256,       /* sizes are multiples of it, and so are addresses */
    POOL_SEGMENT = 4 << 20, /* a power of two: a segment begins at a multiple of its size */
    POOL_GRAINS = POOL_SEGMENT / POOL_GRAIN,
    POOL_CLASSES = 64,      /* a bit each in `filled` */
    POOL_ROWS = 1024        /* of the table of segments */
};

/* Zero is the default of every field but `device`. */
typedef struct pool_desc {
    memlord *lord;         /* with MEMLORD_FLAG_DEFER; NULL: MemLord is off */
    memlord_device device; /* of the pool alone; memlord_device_share says where its memory is */
    double fraction;       /* of the device's limit or capacity, whichever is less; 0: no bound */
    uint64_t cache;        /* idle bytes that a free leaves, where whole segments are idle; 0:
                              no bound */
    void *(*get)(void *user);                /* a segment, aligned to its size; NULL: none left */
    void (*put)(void *user, void *segment);  /* both are called under the pool's lock */
    void *user;
} pool_desc;

typedef struct pool_stats {
    uint64_t reserved, live, largest; /* bytes: of the segments, in blocks, of the largest free */
    uint64_t hits, misses;            /* served from what was there; with a new segment */
    uint64_t merged, released;        /* free blocks, segments */
    uint64_t trims;                   /* collections that a band asked for */
    uint64_t errors[POOL_RESULT_COUNT];
} pool_stats;

enum { POOL_NEVER, POOL_FREE, POOL_LIVE };

/* The note on a block, at the index of its first grain. */
typedef struct pool_block {
    struct pool_block *next, *prev; /* in the list of its class */
    struct pool_segment *home;
    uint32_t grains;
    uint32_t state; /* one that was merged stays POOL_FREE: a second free of it is told as such */
} pool_block;

typedef struct pool_segment {
    struct pool_segment *next; /* in its row */
    char *base;
    uint64_t last; /* the pool's tick when a block was taken or freed */
    size_t live;   /* blocks */
    pool_block blocks[POOL_GRAINS];
} pool_segment;

typedef struct pool {
    pthread_mutex_t lock;
    pool_desc desc;
    pool_stats stats;
    uint64_t most;   /* bytes that may be reserved: what the fraction comes to */
    uint64_t cache;  /* bytes that may be idle after a free */
    uint64_t tick;
    size_t idle;     /* segments without a live block */
    int stale;       /* MemLord was told another size or largest free block */
    uint64_t filled; /* the classes whose list is not empty */
    pool_block *free[POOL_CLASSES];
    uint64_t asked[POOL_CLASSES]; /* requests: which sizes are frequent */
    pool_segment *rows[POOL_ROWS];
} pool;

/* Names a result in a few words. Never NULL. */
static inline const char *pool_result_text(pool_result r) {
    static const char *const texts[] = {
#define POOL_X(name, text) text,
        POOL_RESULTS(POOL_X)
#undef POOL_X
    };
    return (unsigned)r < POOL_RESULT_COUNT ? texts[r] : "no result of a pool";
}

/* -- lists of free blocks, by class: all that follows up to "the calls" needs the lock -- */

static inline unsigned pool_log2(uint32_t grains) { return 31u - (unsigned)__builtin_clz(grains); }

/* Four classes from each power of two to the next. */
static inline unsigned pool_class(uint32_t grains) {
    unsigned log2 = pool_log2(grains);
    return log2 << 2 | ((grains << 2 >> log2) & 3);
}

/* Rounds a size up to the least of its class, so that any block of the class fits. */
static inline uint32_t pool_grains(size_t bytes) {
    uint32_t grains = (uint32_t)((bytes + POOL_GRAIN - 1) / POOL_GRAIN);
    uint32_t step = (1u << pool_log2(grains)) >> 2;
    return step ? (grains + step - 1) & ~(step - 1) : grains;
}

static inline char *pool_address(const pool_block *b) {
    return b->home->base + (b - b->home->blocks) * POOL_GRAIN;
}

static inline uint64_t pool_bytes(const pool_block *b) { return (uint64_t)b->grains * POOL_GRAIN; }

static inline void pool_list_add(pool *p, pool_block *b) {
    unsigned c = pool_class(b->grains);
    b->state = POOL_FREE;
    b->prev = NULL;
    b->next = p->free[c];
    if (b->next) b->next->prev = b;
    p->free[c] = b;
    p->filled |= UINT64_C(1) << c;
    if (pool_bytes(b) <= p->stats.largest) return;
    p->stats.largest = pool_bytes(b);
    p->stale = 1;
}

static inline void pool_list_remove(pool *p, pool_block *b) {
    unsigned c = pool_class(b->grains);
    if (b->prev) b->prev->next = b->next;
    else p->free[c] = b->next;
    if (b->next) b->next->prev = b->prev;
    if (!p->free[c]) p->filled &= ~(UINT64_C(1) << c);
    if (pool_bytes(b) == p->stats.largest) p->stale = 1;
}

/* Tells MemLord, which cannot look into a pool. Under the lock: else an older size could be
   last. */
static inline void pool_tell(pool *p) {
    uint64_t most = 0; /* none is larger than stats.largest, but the largest may be gone */
    pool_block *b = p->filled ? p->free[63 - __builtin_clzll(p->filled)] : NULL;
    for (; b && most < p->stats.largest; b = b->next)
        if (pool_bytes(b) > most) most = pool_bytes(b);
    p->stats.largest = most;
    p->stale = 0;
    (void)memlord_pool_set(p->desc.lord, p->desc.device, p->stats.reserved, most);
}

/* -- segments -- */

static inline pool_segment **pool_row(pool *p, uintptr_t address) {
    return &p->rows[address / POOL_SEGMENT % POOL_ROWS];
}

/* The note of what begins at an address; NULL: no grain of the pool does. */
static inline pool_block *pool_note(pool *p, const void *ptr) {
    uintptr_t at = (uintptr_t)ptr, base = at & ~(uintptr_t)(POOL_SEGMENT - 1);
    pool_segment *s = *pool_row(p, at);
    while (s && (uintptr_t)s->base != base) s = s->next;
    return s && at % POOL_GRAIN == 0 ? &s->blocks[(at - base) / POOL_GRAIN] : NULL;
}

/* Looks up what the fraction comes to: a limit may change at any time, and so may the capacity. */
static inline void pool_measure(pool *p) {
    memlord_capacity c;
    memlord_stats s;
    uint64_t whole;
    if (!(p->desc.fraction > 0)) return;
    (void)memlord_capacity_get(p->desc.lord, p->desc.device, &c);
    (void)memlord_stats_get(p->desc.lord, p->desc.device, &s);
    whole = c.known ? c.total : 0;
    if (s.limit && (!whole || s.limit < whole)) whole = s.limit;
    if (whole) p->most = (uint64_t)(p->desc.fraction * (double)whole);
}

/* Adds a segment, all of it one free block. */
static inline pool_result pool_grow(pool *p) {
    pool_segment *s, **row;
    void *base = NULL;
    pool_measure(p);
    if (p->stats.reserved + POOL_SEGMENT > p->most) return POOL_E_FRACTION;
    s = (pool_segment *)calloc(1, sizeof *s);
    if (s && p->desc.get) base = p->desc.get(p->desc.user);
    else if (s && posix_memalign(&base, POOL_SEGMENT, POOL_SEGMENT)) base = NULL;
    if (!base) {
        free(s);
        return POOL_E_MEMORY;
    }
    row = pool_row(p, (uintptr_t)base);
    s->base = (char *)base;
    s->next = *row;
    *row = s;
    s->blocks->home = s;
    s->blocks->grains = POOL_GRAINS;
    p->stats.reserved += POOL_SEGMENT;
    p->idle++;
    p->stale = 1;
    pool_list_add(p, s->blocks);
    return POOL_OK;
}

/* Makes one of each run of free blocks. */
static inline void pool_merge(pool *p, pool_segment *s) {
    pool_block *b = s->blocks, *next;
    while ((next = b + b->grains) < s->blocks + POOL_GRAINS) {
        if (b->state == POOL_LIVE || next->state == POOL_LIVE) {
            b = next;
            continue;
        }
        pool_list_remove(p, next);
        pool_list_remove(p, b); /* its class changes with its size */
        b->grains += next->grains;
        pool_list_add(p, b);
        p->stats.merged++;
    }
}

/* Gives back the idle segment that was unused longest. */
static inline void pool_release(pool *p) {
    pool_segment **oldest = NULL, **at, *s;
    size_t row;
    for (row = 0; row < POOL_ROWS; row++)
        for (at = &p->rows[row]; *at; at = &(*at)->next)
            if (!(*at)->live && (!oldest || (*at)->last < (*oldest)->last)) oldest = at;
    s = *oldest;
    *oldest = s->next;
    pool_merge(p, s);
    pool_list_remove(p, s->blocks);
    if (p->desc.put) p->desc.put(p->desc.user, s->base);
    else free(s->base);
    free(s);
    p->stats.reserved -= POOL_SEGMENT;
    p->stats.released++;
    p->idle--;
    p->stale = 1;
}

/* Merges all that is free. Then gives idle segments back, as long as `keep` idle bytes stay. */
static inline void pool_compact(pool *p, uint64_t keep) {
    pool_segment *s;
    size_t row;
    for (row = 0; row < POOL_ROWS; row++)
        for (s = p->rows[row]; s; s = s->next) pool_merge(p, s);
    while (p->idle && p->stats.reserved - p->stats.live >= keep + POOL_SEGMENT) pool_release(p);
}

/* Idle bytes worth keeping: some blocks of every class that got an eighth of the requests. */
static inline uint64_t pool_wanted(const pool *p) {
    uint64_t all = 0, bytes = 0;
    unsigned c;
    for (c = 0; c < POOL_CLASSES; c++) all += p->asked[c];
    for (c = 0; c < POOL_CLASSES; c++)
        if (p->asked[c] && p->asked[c] >= all / 8)
            bytes += UINT64_C(16) * POOL_GRAIN * (4 + c % 4) / 4 << c / 4;
    return bytes < p->cache ? bytes : p->cache;
}

/* -- blocks -- */

/* Grains from the beginning of a block to the first aligned one. */
static inline uint32_t pool_gap(const pool_block *b, size_t align) {
    return (uint32_t)((0 - (uintptr_t)pool_address(b)) & (align - 1)) / POOL_GRAIN;
}

/* The first that fits, in the lowest class that has one; NULL: none does. Without an alignment
   the first block of the lowest class that is not empty fits. */
static inline pool_block *pool_find(pool *p, uint32_t grains, size_t align) {
    uint64_t left = p->filled & ~UINT64_C(0) << pool_class(grains);
    pool_block *b;
    for (; left; left &= left - 1)
        for (b = p->free[__builtin_ctzll(left)]; b; b = b->next)
            if (align <= POOL_GRAIN || pool_gap(b, align) + grains <= b->grains) return b;
    return NULL;
}

/* Leaves so many grains to a block; the rest of it becomes a free one. */
static inline pool_block *pool_split(pool *p, pool_block *b, uint32_t grains) {
    pool_block *rest = b + grains;
    rest->grains = b->grains - grains;
    rest->home = b->home;
    b->grains = grains;
    pool_list_add(p, rest);
    return rest;
}

static inline void pool_take(pool *p, pool_block **at, uint32_t grains, size_t align) {
    uint32_t gap = align <= POOL_GRAIN ? 0 : pool_gap(*at, align);
    pool_block *b = *at;
    pool_list_remove(p, b);
    if (gap) {
        *at = pool_split(p, b, gap);
        pool_list_add(p, b);
        b = *at;
        pool_list_remove(p, b);
    }
    if (b->grains > grains) (void)pool_split(p, b, grains);
    b->state = POOL_LIVE;
    if (!b->home->live++) p->idle--;
    b->home->last = ++p->tick;
    p->stats.live += pool_bytes(b);
}

/* Takes a block that is there, or one of a new segment. */
static inline pool_result pool_serve(pool *p, uint32_t grains, size_t align, pool_block **out) {
    pool_result r = POOL_OK;
    int miss = !(*out = pool_find(p, grains, align));
    if (miss && !(r = pool_grow(p))) *out = pool_find(p, grains, align);
    if (r) return r;
    pool_take(p, out, grains, align);
    if (miss) p->stats.misses++;
    else p->stats.hits++;
    (void)memlord_pool_served(p->desc.lord, p->desc.device, !miss, (uint64_t)miss);
    if (p->stale) pool_tell(p);
    return POOL_OK;
}

static inline void pool_put(pool *p, pool_block *b) {
    p->stats.live -= pool_bytes(b);
    if (!--b->home->live) p->idle++;
    b->home->last = ++p->tick;
    pool_list_add(p, b);
    while (p->idle && p->stats.reserved - p->stats.live > p->cache) pool_release(p);
    if (p->stale) pool_tell(p);
}

/* A memlord_gc_fn. It keeps what frequent sizes will want again; when memory is out nothing is
   worth that. */
static inline memlord_gc_result pool_collect(void *user, memlord *lord,
                                             const memlord_gc_event *event) {
    pool *p = (pool *)user;
    memlord_gc_result result = {0, 0, 0};
    int inside = pthread_mutex_lock(&p->lock); /* EDEADLK: this thread has it */
    (void)lord;
    if (inside) {
        p->stats.errors[POOL_E_DEFER]++;
        return result;
    }
    result.ran = 1;
    result.reclaimed = p->stats.reserved;
    pool_compact(p, event->reason == MEMLORD_REASON_OOM ? 0 : pool_wanted(p));
    result.reclaimed -= p->stats.reserved;
    if (event->reason == MEMLORD_REASON_BAND) p->stats.trims++;
    pool_tell(p);
    (void)pthread_mutex_unlock(&p->lock);
    return result;
}

/* -- the calls -- */

static inline pool_result pool_refuse(pool *p, pool_result r) {
    (void)pthread_mutex_lock(&p->lock);
    p->stats.errors[r]++;
    (void)pthread_mutex_unlock(&p->lock);
    return r;
}

static inline pool_result pool_lock_open(pthread_mutex_t *lock) {
    pthread_mutexattr_t kind;
    int failed;
    if (pthread_mutexattr_init(&kind)) return POOL_E_MEMORY;
    failed = pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK) ||
             pthread_mutex_init(lock, &kind);
    (void)pthread_mutexattr_destroy(&kind);
    return failed ? POOL_E_MEMORY : POOL_OK;
}

/* Opens a pool in *p, without a segment, and adds its collection to the device's. With a fraction
   it samples the capacity.
   Errors: E_INVALID, E_UNKNOWN, E_MEMORY. *p is not open then. */
static inline pool_result pool_open(pool *p, const pool_desc *desc) {
    memlord_result r;
    memset(p, 0, sizeof *p);
    p->desc = *desc;
    p->most = UINT64_MAX;
    p->cache = desc->cache ? desc->cache : UINT64_MAX;
    r = memlord_pool_set(desc->lord, desc->device, 0, 0);
    if (r == MEMLORD_E_DEVICE || !(desc->fraction >= 0 && desc->fraction <= 1) ||
        !desc->get != !desc->put)
        return POOL_E_INVALID;
    if (desc->fraction > 0) (void)memlord_capacity_sample(desc->lord, desc->device);
    pool_measure(p);
    if (desc->lord && desc->fraction > 0 && p->most == UINT64_MAX) return POOL_E_UNKNOWN;
    if (r || pool_lock_open(&p->lock)) return POOL_E_MEMORY;
    if (memlord_gc_callback_add(desc->lord, desc->device, 0, pool_collect, p) == MEMLORD_OK)
        return POOL_OK;
    (void)pthread_mutex_destroy(&p->lock);
    return POOL_E_MEMORY;
}

/* Gives all segments back and closes the pool. Requires: no other call of it in flight.
   Errors: E_LIVE, and nothing is changed. */
static inline pool_result pool_close(pool *p) {
    if (p->stats.live) return pool_refuse(p, POOL_E_LIVE);
    (void)memlord_gc_callback_remove(p->desc.lord, p->desc.device, pool_collect, p);
    while (p->idle) pool_release(p);
    pool_tell(p);
    (void)pthread_mutex_destroy(&p->lock);
    return POOL_OK;
}

/* Collects, merges and tries once more. The collection may be that of another thread, or off. */
static inline pool_result pool_serve_again(pool *p, pool_result was, uint32_t grains, size_t align,
                                           pool_block **out) {
    int reason = was == POOL_E_FRACTION ? MEMLORD_REASON_LIMIT : MEMLORD_REASON_OOM;
    pool_result r;
    (void)memlord_gc_run(p->desc.lord, p->desc.device, reason, 0, NULL);
    (void)pthread_mutex_lock(&p->lock);
    pool_compact(p, p->stats.reserved); /* gives nothing back */
    r = pool_serve(p, grains, align, out);
    p->stats.errors[r]++;
    if (p->stale) pool_tell(p);
    (void)pthread_mutex_unlock(&p->lock);
    return r;
}

/* Takes a block of at least so many bytes and records it at `site`. An `align` of 0 is that of a
   grain. Where neither the lists nor the system have room, a collection runs first.
   Errors: E_SIZE; E_ALIGN; E_FRACTION; E_MEMORY, also recorded by memlord_alloc_failed.
           *out is NULL then. */
static inline pool_result pool_alloc(pool *p, size_t bytes, size_t align, const memlord_site *site,
                                     void **out) {
    pool_block *b;
    pool_result r;
    uint32_t grains;
    *out = NULL;
    if (!bytes || bytes > POOL_SEGMENT) return pool_refuse(p, POOL_E_SIZE);
    if ((align & (align - 1)) || align > POOL_SEGMENT) return pool_refuse(p, POOL_E_ALIGN);
    grains = pool_grains(bytes);
    (void)pthread_mutex_lock(&p->lock);
    p->asked[pool_class(grains)]++;
    r = pool_serve(p, grains, align, &b);
    (void)pthread_mutex_unlock(&p->lock);
    if (r) r = pool_serve_again(p, r, grains, align, &b);
    if (r == POOL_E_MEMORY) (void)memlord_alloc_failed(p->desc.lord, p->desc.device, bytes, site);
    if (r) return r;
    *out = pool_address(b);
    (void)memlord_alloc(p->desc.lord, p->desc.device, MEMLORD_KEY(*out), pool_bytes(b), site);
    return POOL_OK;
}

/* Records the end of a block and keeps it for the next. NULL does nothing. Gives idle segments
   back while more is idle than the pool may keep.
   Errors: E_FOREIGN; E_DOUBLE_FREE. Nothing but their counters is changed then. */
static inline pool_result pool_free(pool *p, void *ptr, const memlord_site *site) {
    pool_result r = POOL_OK;
    pool_block *b;
    if (!ptr) return POOL_OK;
    (void)pthread_mutex_lock(&p->lock);
    b = pool_note(p, ptr);
    if (!b || b->state != POOL_LIVE) {
        r = b && b->state == POOL_FREE ? POOL_E_DOUBLE_FREE : POOL_E_FOREIGN;
        p->stats.errors[r]++;
    } else {
        /* before another thread can get the address */
        (void)memlord_free(p->desc.lord, p->desc.device, MEMLORD_KEY(ptr), site);
        pool_put(p, b);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return r;
}

/* Reads the figures, all of one moment. */
static inline pool_stats pool_stats_get(pool *p) {
    pool_stats s;
    (void)pthread_mutex_lock(&p->lock);
    s = p->stats;
    (void)pthread_mutex_unlock(&p->lock);
    return s;
}

#endif
