#include "base/memory.h"
#include "os/system.h"
#include "base/atomics.h"

/* A region has 32 KiB, and is cut into pieces of whole grains of 128 bytes. A piece is zeroed, and
   aligned to 128 bytes. A region that is free as a whole goes back to the allocator, unless the
   ledger has no other region. Regions are small, because a small region becomes free as a whole
   sooner than a large one. Blocks above 16 KiB come from the allocator directly and go back to it.
   A free piece merges with free neighbours of any size, because all tables of a ledger's map grow
   at about the same time, and the larger tables need the room of the smaller ones. */

#define MLI_REGION_GRAINS (1u << (MLI_REGION_BITS - MLI_GRAIN_BITS))

typedef struct mli_region { /* one block of the allocator: this header, then the data */
    struct mli_region *next;
    char *data; /* the pieces, aligned to a grain */
    uint16_t run[MLI_REGION_GRAINS]; /* for the first and the last grain of a free piece: how many
                                        grains the piece has; for all other grains: 0 */
} mli_region;
typedef struct mli_piece { /* the record of a free piece, which lies in the piece itself */
    struct mli_piece *next, **back;
    mli_region *region;
    uint32_t first_grain, grains;
} mli_piece;

#define MLI_REGION_BYTES (sizeof(mli_region) + 128 + ((size_t)1 << MLI_REGION_BITS))

MLI_PRIVATE MLI_COLD uint64_t mli_busy_begin(void) {
    uint64_t generation = mli_self.generation;
    mli_self.generation = 0;
    if (!mli_self.in_host_alloc++ && mli_self.orphaned)
        mli_lock_drop(&mli_self.orphaned->threads.orphan_lock);
    MLI_REQUIRE(mli_none_held());
    return generation;
}
MLI_PRIVATE MLI_COLD void mli_busy_end(uint64_t generation) {
    if (!--mli_self.in_host_alloc && mli_self.orphaned)
        mli_lock_take(&mli_self.orphaned->threads.orphan_lock);
    mli_self.generation = generation;
}

/* Calls the ledger's allocator, and counts the bytes that the ledger has from it. */
static MLI_COLD void *mli_host_alloc(memlord *lord, size_t size) {
    uint64_t generation = mli_busy_begin();
    void *p = lord->memory.allocator.alloc(lord->memory.allocator.user, size);
    mli_busy_end(generation);
    if (p) (void)mli_u64_add(&lord->memory.own_bytes, size);
    return p;
}
static MLI_COLD void mli_host_free(memlord *lord, void *ptr, size_t size) {
    uint64_t generation = mli_busy_begin();
    lord->memory.allocator.free(lord->memory.allocator.user, ptr, size);
    mli_busy_end(generation);
    (void)mli_u64_add(&lord->memory.own_bytes, (uint64_t)0 - size);
}

/* -- the operating system's allocator --
   It gives whole pages. On Linux, blocks of 8 KiB to 1 MiB share extents of 4 MiB; the tables of
   the map have this size. If each table had a mapping of its own, it would lie on small pages, and
   every call on a large ledger would miss the TLB. An extent requests huge pages once more than a
   quarter of it is in use. */

#if defined(MADV_HUGEPAGE)

#define MLI_PAGE 4096u
#define MLI_EXTENT ((size_t)4 << 20)
#define MLI_EXTENT_PAGES (MLI_EXTENT / MLI_PAGE)
typedef struct mli_extent { /* the header of an extent, which lies in its first page */
    struct mli_extent *next;
    uint32_t used, huge;                   /* pages in use; 1: huge pages were requested */
    uint32_t fresh;                        /* from this page on no page was ever in use */
    unsigned char taken[MLI_EXTENT_PAGES]; /* for each page: 1 if it is in use */
} mli_extent;

static int mli_os_from_extent(size_t size) { return size >= (8u << 10) && size <= (1u << 20); }

/* Asks for huge pages. The system may ignore the request, so there is no result. */
static void mli_huge_pages_request(void *ptr, size_t size) {
    int saved = errno;
    (void)madvise(ptr, size, MADV_HUGEPAGE);
    /* 25 is MADV_COLLAPSE, since Linux 6.1. It merges the pages that are present now. */
    (void)madvise(ptr, size, 25);
    errno = saved;
}

/* Asks the system for pages that are about to be used, which takes less time than a page fault for
   each. An older system refuses the request. */
static void mli_pages_populate(void *ptr, size_t size) {
    int saved = errno;
    (void)madvise(ptr, size, 23); /* 23 is MADV_POPULATE_WRITE, since Linux 5.14 */
    errno = saved;
}

/* Maps an extent that is aligned to its size: maps twice as much and unmaps the rest. */
static mli_extent *mli_extent_map(void) {
    char *p = (char *)mli_pages_map(2 * MLI_EXTENT);
    size_t before = (size_t)((0 - (uintptr_t)p) & (MLI_EXTENT - 1));
    mli_extent *e = (mli_extent *)(void *)(p + before);
    if (!p) return NULL;
    if (before) mli_pages_unmap(p, before);
    mli_pages_unmap(p + before + MLI_EXTENT, MLI_EXTENT - before);
    e->taken[0] = 1;
    e->used = e->fresh = 1;
    return e;
}

/* Returns a run of free pages of an extent, or NULL. Sets *dirty to how many bytes at the start of
   the run may differ from 0. The pages behind them were never in use, so they are zero. */
static void *mli_extent_alloc(mli_extent *e, uint32_t pages, size_t *dirty) {
    MLI_REQUIRE(e->used == 1 || mli_lock_held(&mli_process.pages_lock));
    uint32_t i, run = 0, first;
    if (e->used + pages > MLI_EXTENT_PAGES) return NULL;
    for (i = 0; i < MLI_EXTENT_PAGES && run < pages; i++) run = e->taken[i] ? 0 : run + 1;
    if (run < pages) return NULL;
    first = i - pages;
    memset(e->taken + first, 1, pages);
    e->used += pages;
    *dirty = e->fresh > first ? (size_t)((e->fresh < i ? e->fresh : i) - first) * MLI_PAGE : 0;
    if (e->fresh < i) e->fresh = i;
    if (!e->huge && e->used > MLI_EXTENT_PAGES / 4) {
        e->huge = 1;
        mli_huge_pages_request(e, MLI_EXTENT);
    }
    return (char *)e + (size_t)first * MLI_PAGE;
}

/* Zeroes the first `dirty` bytes of a run of pages; those behind them were never in use. */
static void *mli_run_clear(void *run, size_t dirty, size_t size) {
    if (dirty < size) mli_pages_populate((char *)run + dirty, size - dirty);
    return memset(run, 0, dirty);
}

/* Returns zeroed memory. */
static MLI_COLD void *mli_os_alloc(void *user, size_t size) {
    uint32_t pages = (uint32_t)((size + MLI_PAGE - 1) / MLI_PAGE);
    mli_extent *e;
    size_t dirty = 0;
    void *p = NULL;
    (void)user;
    if (!mli_os_from_extent(size)) {
        p = mli_pages_map(size);
        if (p && size >= (size_t)1 << 21) mli_huge_pages_request(p, size);
        if (p && size <= MLI_EXTENT) mli_pages_populate(p, size); /* not for a larger block, such as
                                                                     a ring, which fills slowly */
        return p;
    }
    mli_lock_take(&mli_process.pages_lock);
    for (e = mli_process.extents; e && !p; e = e->next) p = mli_extent_alloc(e, pages, &dirty);
    mli_lock_drop(&mli_process.pages_lock);
    if (p) return mli_run_clear(p, dirty, size);
    e = mli_extent_map();
    if (!e) return NULL;
    p = mli_extent_alloc(e, pages, &dirty);
    mli_pages_populate(e, MLI_PAGE + size);
    mli_lock_take(&mli_process.pages_lock);
    e->next = mli_process.extents;
    mli_process.extents = e;
    mli_lock_drop(&mli_process.pages_lock);
    return p;
}
static MLI_COLD void mli_os_free(void *user, void *ptr, size_t size) {
    mli_extent *e = (mli_extent *)((uintptr_t)ptr & ~(uintptr_t)(MLI_EXTENT - 1));
    mli_extent **at = &mli_process.extents;
    uint32_t pages = (uint32_t)((size + MLI_PAGE - 1) / MLI_PAGE);
    (void)user;
    if (!mli_os_from_extent(size)) {
        mli_pages_unmap(ptr, size);
        return;
    }
    mli_lock_take(&mli_process.pages_lock);
    memset(e->taken + (size_t)((char *)ptr - (char *)e) / MLI_PAGE, 0, pages);
    e->used -= pages;
    if (e->used == 1) {
        while (*at != e) at = &(*at)->next;
        *at = e->next;
    } else {
        e = NULL;
    }
    mli_lock_drop(&mli_process.pages_lock);
    if (e) mli_pages_unmap(e, MLI_EXTENT);
}
#else
static MLI_COLD void *mli_os_alloc(void *user, size_t size) {
    (void)user;
    return mli_pages_map(size);
}
static MLI_COLD void mli_os_free(void *user, void *ptr, size_t size) {
    (void)user;
    mli_pages_unmap(ptr, size);
}
#endif

static uint32_t mli_grain_count(size_t size) {
    return (uint32_t)((size + ((size_t)1 << MLI_GRAIN_BITS) - 1) >> MLI_GRAIN_BITS);
}
static uint32_t mli_size_class(uint32_t grains) {
    uint32_t log = 0;
    while (grains >>= 1) log++;
    return log;
}

static mli_piece *mli_piece_at(mli_region *r, uint32_t at) {
    return (mli_piece *)(void *)(r->data + ((size_t)at << MLI_GRAIN_BITS));
}

static MLI_COLD void mli_piece_push(memlord *lord, mli_region *r, uint32_t at, uint32_t grains) {
    mli_piece **head = &lord->memory.pieces[mli_size_class(grains)];
    mli_piece *piece = mli_piece_at(r, at);
    r->run[at] = r->run[at + grains - 1] = (uint16_t)grains;
    piece->region = r;
    piece->first_grain = at;
    piece->grains = grains;
    piece->next = *head;
    piece->back = head;
    if (*head) (*head)->back = &piece->next;
    *head = piece;
}
static MLI_COLD void mli_piece_unlink(mli_piece *piece) {
    piece->region->run[piece->first_grain] = 0;
    piece->region->run[piece->first_grain + piece->grains - 1] = 0;
    *piece->back = piece->next;
    if (piece->next) piece->next->back = piece->back;
}
/* Returns the link to the region that has a piece, in the list of regions. */
static mli_region **mli_region_link(memlord *lord, const void *at) {
    mli_region **link = &lord->memory.regions;
    while (((uintptr_t)at - (uintptr_t)(*link)->data) >> MLI_REGION_BITS) link = &(*link)->next;
    return link;
}

/* Rounds an address up to a grain of 128 bytes. */
static void *mli_align_to_grain(void *at) {
    return (void *)(((uintptr_t)at + 127) & ~(uintptr_t)127);
}

/* Gets one more region from the allocator. Returns 0, or -1 if there is no memory. */
static MLI_COLD int mli_region_add(memlord *lord) {
    MLI_REQUIRE(mli_none_held_but_orphan());
    mli_region *r = (mli_region *)mli_host_alloc(lord, MLI_REGION_BYTES);
    if (!r) return -1;
    memset(r->run, 0, sizeof r->run);
    r->data = (char *)mli_align_to_grain(r + 1);
    mli_lock_take(&lord->memory.lock);
    r->next = lord->memory.regions;
    lord->memory.regions = r;
    mli_piece_push(lord, r, 0, MLI_REGION_GRAINS);
    mli_lock_drop(&lord->memory.lock);
    return 0;
}

/* Returns a free piece that is large enough, or NULL: of the first size class that has one, the
   smallest among the first 16 pieces, or else the first later one. */
static mli_piece *mli_piece_find(memlord *lord, uint32_t grains) {
    MLI_REQUIRE(mli_lock_held(&lord->memory.lock));
    mli_piece *best = NULL, *piece;
    uint32_t have;
    for (have = mli_size_class(grains); have < MLI_SIZE_CLASSES && !best; have++) {
        unsigned looked = 0;
        for (piece = lord->memory.pieces[have]; piece && (!best || looked < 16);
             piece = piece->next, looked++)
            if (piece->grains >= grains && (!best || piece->grains < best->grains)) best = piece;
    }
    return best;
}

MLI_PRIVATE void *mli_piece_new(memlord *lord, size_t size) {
    uint32_t grains = mli_grain_count(size);
    mli_piece *fit;
    mli_lock_take(&lord->memory.lock);
    fit = mli_piece_find(lord, grains);
    if (fit) {
        mli_piece_unlink(fit);
        if (fit->grains > grains)
            mli_piece_push(lord, fit->region, fit->first_grain + grains, fit->grains - grains);
    }
    mli_lock_drop(&lord->memory.lock);
    return fit ? memset(fit, 0, (size_t)grains << MLI_GRAIN_BITS) : NULL;
}

/* Returns 1 for the os allocator, whose memory is zeroed and aligned to pages. */
static int mli_is_os(const memlord_allocator *allocator) {
    return allocator->alloc == mli_os_alloc;
}
/* Returns how many bytes a block above 16 KiB takes besides its size: for its alignment, and for a
   pointer to the start of the allocator's memory. A block of the os allocator needs neither. */
static size_t mli_large_overhead(const memlord *lord) {
    return mli_is_os(&lord->memory.allocator) ? 0 : 256;
}

MLI_PRIVATE MLI_NOINLINE void *mli_own_alloc(memlord *lord, size_t size) {
    MLI_REQUIRE(mli_none_held_but_orphan());
    size_t overhead = mli_large_overhead(lord);
    void *p, **at;
    if (size <= (size_t)1 << MLI_PIECE_MAX_BITS) {
        do p = mli_piece_new(lord, size);
        while (!p && !mli_region_add(lord));
        return p;
    }
    if (size > SIZE_MAX - overhead) return NULL;
    p = mli_host_alloc(lord, size + overhead);
    if (!p || mli_is_os(&lord->memory.allocator)) return p;
    at = (void **)mli_align_to_grain((void **)p + 1);
    at[-1] = p; /* mli_own_free reads this pointer */
    return memset(at, 0, size);
}

/* Frees a piece. If no piece of its region is in use any more, and the ledger has another region,
   takes the region off the list of regions and returns the region. The caller gives the region back
   to the allocator, without the lock. Otherwise returns NULL. */
static MLI_COLD mli_region *mli_piece_free(memlord *lord, void *ptr, size_t size) {
    uint32_t grains = mli_grain_count(size), at;
    mli_region **link, *r;
    mli_lock_take(&lord->memory.lock);
    link = mli_region_link(lord, ptr);
    r = *link;
    at = (uint32_t)((size_t)((char *)ptr - r->data) >> MLI_GRAIN_BITS);
    if (at + grains < MLI_REGION_GRAINS && r->run[at + grains]) {
        mli_piece *after = mli_piece_at(r, at + grains);
        mli_piece_unlink(after);
        grains += after->grains;
    }
    if (at && r->run[at - 1]) {
        mli_piece *before = mli_piece_at(r, at - r->run[at - 1]);
        mli_piece_unlink(before);
        at -= before->grains;
        grains += before->grains;
    }
    if (grains == MLI_REGION_GRAINS && lord->memory.regions->next) {
        *link = r->next;
    } else {
        mli_piece_push(lord, r, at, grains);
        r = NULL;
    }
    mli_lock_drop(&lord->memory.lock);
    return r;
}

MLI_PRIVATE MLI_NOINLINE void mli_own_free(memlord *lord, void *ptr, size_t size) {
    MLI_REQUIRE(mli_none_held_but_orphan());
    size_t overhead = mli_large_overhead(lord);
    if (!ptr) return;
    if (size <= (size_t)1 << MLI_PIECE_MAX_BITS) {
        mli_region *idle = mli_piece_free(lord, ptr, size);
        if (idle) mli_host_free(lord, idle, MLI_REGION_BYTES);
    } else {
        mli_host_free(lord, overhead ? ((void **)ptr)[-1] : ptr, size + overhead);
    }
}

MLI_PRIVATE MLI_COLD uint64_t mli_own_bytes(const memlord *lord) {
    return mli_u64_load(&lord->memory.own_bytes);
}
static MLI_COLD void mli_regions_free(memlord *lord) {
    while (lord->memory.regions) {
        mli_region *r = lord->memory.regions;
        lord->memory.regions = r->next;
        mli_host_free(lord, r, MLI_REGION_BYTES);
    }
}

/* -- life -- */

static MLI_COLD void mli_memory_lock(memlord *lord, int take) {
    mli_lock_set(&lord->memory.lock, take);
}
MLI_PRIVATE MLI_COLD memlord *mli_ledger_new(const memlord_allocator *allocator, size_t size) {
    const uint64_t generation = mli_busy_begin();
    memlord *lord = (memlord *)allocator->alloc(allocator->user, size);
    mli_busy_end(generation);
    if (!lord) return NULL;
    if (!mli_is_os(allocator)) memset(lord, 0, size);
    mli_lock_rank(&lord->memory.lock, MLI_RANK_MEMORY);
    lord->memory.allocator = *allocator;
    lord->memory.own_bytes.v = lord->memory.ledger = size;
    return lord;
}
MLI_PRIVATE MLI_COLD void mli_ledger_delete(memlord *lord) {
    MLI_REQUIRE(!lord->back);
    const memlord_allocator allocator = lord->memory.allocator;
    const size_t size = lord->memory.ledger;
    uint64_t generation;
    mli_regions_free(lord);
    generation = mli_busy_begin();
    allocator.free(allocator.user, lord, size);
    mli_busy_end(generation);
}
MLI_PRIVATE const mli_life mli_memory_life = {0, 0, NULL, NULL, NULL, mli_memory_lock, NULL, NULL};

/* -- public -- */

MLI_API void memlord_os_allocator(memlord_allocator *out) {
    if (!out) return;
    out->alloc = mli_os_alloc;
    out->free = mli_os_free;
    out->user = NULL;
}
