/* Owns rows, cells and the records of devices. Invariant: no peak is above the true peak. A peak
   comes from published bytes, which never exceed the live bytes, or from levels that were live
   together. Locks: the count lock, then the lock of a row.

   The process may be killed between any two stores, and another process may read its memory then.
   So the stores of a call have an order, and each store that shows something is a release:
     alloc  the words of the entry; the header of its bucket, which shows it; then `allocs`, `level`
            and, if it is the highest yet, `high` of the cells of the device, the site and the tag
     free   the header, which hides the entry; then `out` and `level` of these cells, and `frees` of
            the device's and the tag's; then `frees` and `freed_here` of the site that freed
   The reader computes what is live from the map alone. Totals (allocs, frees, out, level + out) are
   wrong by a part of one call of each thread at most. A publication comes last, so the reader
   raises a peak to the live bytes. */
#ifndef MLI_BOOKS_COUNTERS_H
#define MLI_BOOKS_COUNTERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/vectors.h"
#include "books/threads.h"
#include "books/watches.h"

/* The counts of one thread on one row. Only this thread counts in the cell, and all threads read
   it; in a cell of the orphan record any thread counts, under the count lock. A thread counts the
   free of another's block in its own cell, so a level may be negative; sums are exact modulo 2^64.
   A thread publishes its cell at the first bytes that it counts there, and whenever the level is
   below the base or above the limit (mli_cell_publish_due). The limit is the base plus the cell's
   share. A cell that is alone in its row may hold back a batch. Beside others it begins with a part
   of a 64th of the row's peak, or of 4 KiB if that is more. The share of a thread that is busy on
   the row doubles, up to a part of an 8th, or of 64 KiB (mli_share_next). A publication adds the
   change of the level since the last one to the row's published bytes, less a part that the cell
   holds back. It also raises the row's peak. So while no thread is inside a shard, the published
   bytes of a row are at most the live bytes, and at least the live bytes less all shares. */
typedef struct mli_cell {
    mli_u64 level;         /* signed */
    mli_u64 out;           /* the bytes that this thread freed */
    mli_u64 allocs, frees; /* in a site's cell `frees` counts the calls of free at the site */
    mli_u64 base;          /* the part of the level that is published */
    mli_u64 high;          /* the highest level since the last publication */
    mli_u64 freed_here;    /* the bytes freed at the site; stays 0 in a cell of a device or a tag */
    mli_u32 share;         /* the most bytes that the cell may hold back; 0 until it is published */
    uint16_t began;        /* the number of calls, modulo 2^16, when the share was chosen last */
    uint16_t published;    /* how often the cell was published since */
} mli_cell;

/* A cell of a device. Every function takes the address of `cell`, which is that of the whole. */
typedef struct mli_device_cell {
    mli_cell cell;
    mli_u64 next_check; /* the free that brings `out` above this number requests a band check; if it
                           is 0, the next free requests one */
    mli_u64 reallocs;   /* the reallocs that the thread's fast way has counted */
} mli_device_cell;

/* Returns the calling thread's cell for a device, or NULL if it has none or the dev is 0. */
static MLI_HOT mli_cell *mli_cell_own_device(const mli_thread *t, uint32_t dev) {
    return (mli_cell *)mli_ptr_load_own(&t->devices[dev]);
}
static MLI_HOT uint64_t mli_cell_limit(const mli_cell *cell) {
    return mli_u64_load_own(&cell->base) + mli_u32_load(&cell->share);
}
/* Counts an alloc in a cell, and raises its `high`. Returns a negative value if the level rose
   above the cell's limit: the thread has to publish the cell. */
static MLI_HOT int64_t mli_cell_count_alloc(mli_cell *cell, uint64_t bytes) {
    uint64_t level = mli_u64_load_own(&cell->level) + bytes;
    mli_u64_add_own(&cell->allocs, 1);
    mli_u64_store_release(&cell->level, level); /* pairs with the load in mli_cells_sum */
    if (MLI_LIKELY((int64_t)(mli_u64_load_own(&cell->high) - level) >= 0)) return 0;
    mli_u64_store(&cell->high, level);
    return (int64_t)(mli_cell_limit(cell) - level);
}
/* Counts the bytes of a free in a cell; the caller adds to `frees`. Returns a negative value if the
   level fell below its `base`. A reader loads `level` first, so it finds no excess of frees. */
static MLI_HOT int64_t mli_cell_count_free(mli_cell *cell, uint64_t bytes) {
    uint64_t level = mli_u64_load_own(&cell->level) - bytes;
    mli_u64_add_own(&cell->out, bytes);
    mli_u64_store_release(&cell->level, level); /* pairs with the load in mli_cells_sum */
    return (int64_t)(level - mli_u64_load_own(&cell->base));
}
/* Counts a change of a block's size in a cell: from `had` bytes to `bytes`. Returns a negative
   value if the thread has to publish the cell. */
static MLI_HOT int64_t mli_cell_count_resize(mli_cell *cell, uint64_t had, uint64_t bytes) {
    uint64_t level;
    if (bytes <= had) return mli_cell_count_free(cell, had - bytes);
    level = mli_u64_load_own(&cell->level) + bytes - had;
    mli_u64_store_release(&cell->level, level); /* pairs with the load in mli_cells_sum */
    if (MLI_LIKELY((int64_t)(mli_u64_load_own(&cell->high) - level) >= 0)) return 0;
    mli_u64_store(&cell->high, level);
    return (int64_t)(mli_cell_limit(cell) - level);
}
static MLI_HOT mli_u64 *mli_cell_next_check(mli_cell *cell) {
    return &((mli_device_cell *)(void *)cell)->next_check;
}
/* Returns a negative value if the thread has freed enough bytes to request a band check. */
static MLI_HOT int64_t mli_cell_tripped(mli_cell *cell) {
    return (int64_t)(mli_u64_load(mli_cell_next_check(cell)) - mli_u64_load(&cell->out));
}
/* Counts a free in the thread's cell of the device. Returns a negative value if the thread has to
   publish the cell or to request a band check. */
static MLI_HOT int64_t mli_cell_count_device_free(mli_cell *cell, uint64_t bytes) {
    const uint64_t out = mli_u64_load_own(&cell->out) + bytes;
    const uint64_t level = mli_u64_load_own(&cell->level) - bytes;
    mli_u64_store(&cell->out, out);
    mli_u64_store_release(&cell->level, level); /* pairs with the load in mli_cells_sum */
    mli_u64_add_own(&cell->frees, 1);
    return (int64_t)(level - mli_u64_load_own(&cell->base)) |
           (int64_t)(mli_u64_load(mli_cell_next_check(cell)) - out);
}
/* Does the rare work after a change of a cell: raises its `high`, publishes it if it now holds back
   less than 0 bytes or more than its share, and requests a band check if one is due. Requires: the
   caller is inside a shard, or the cell is that of a site (see mli_count). */
MLI_PRIVATE MLI_COLD void mli_cell_publish_due(memlord *lord, int book, uint32_t number,
                                               mli_cell *cell);

/* The sums of the cells of a row; `in` is the bytes allocated. */
typedef struct mli_cell_sums {
    uint64_t in, out, allocs, frees, freed_here, reallocs;
} mli_cell_sums;
/* A row: the totals of a device, of a site on a device, or of a tag on a device. `latest` buys the
   exact peak of a thread that is alone. `first` buys a true peak in a program whose main thread
   waits for its threads. `most` buys a small peak_error. */
typedef struct mli_row {
    mli_lock lock; /* guards what follows, but not next, subject, sampled_peak, expected, arena */
    uint32_t dev;          /* the number of the device */
    mli_u32 next;          /* the device's next row in the book, or 0 */
    mli_u32 cells;         /* how many cells of the row have published; always 0 without a batch */
    void *subject;         /* mli_device_record, mli_site_record or the ledger's copy of a tag */
    mli_u64 published;     /* signed; at most the live bytes while no thread is in a shard */
    mli_u64 peak;          /* the most live bytes known since the last peak reset; signed */
    mli_u64 sampled_peak;  /* of a device: the highest `published` since its phys was sampled */
    mli_cell *latest;      /* published last; NULL after a peak reset; see mli_joint_settle */
    mli_u64 expected;      /* of a tag: the bytes given to memlord_expect; 0 if there are none */
    mli_u64 arena;         /* of a tag: its arena bytes; under the lock of the device's row */
    mli_ptr first;         /* mli_cell *: the cell that is alone in the row, or was and waits */
    uint64_t shares;       /* the sum of the shares of all cells but `first` */
    int64_t most;          /* there were at most so many live bytes since the last peak reset */
    mli_cell_sums at_reset; /* the sums at the last reset */
    uint64_t freed_before;  /* the bytes freed before the last reset or collection */
} mli_row;

/* The sums of a row over all threads. All members but in, out, live and blocks count from the last
   reset; `freed` from the last collection if that is later. */
typedef struct mli_row_totals {
    uint64_t in, out; /* bytes allocated and bytes freed since the ledger was made, modulo 2^64 */
    uint64_t total_in, total_out, freed, allocs, frees, freed_here, reallocs, live, blocks, peak,
        peak_error;
} mli_row_totals;

/* The last request on a device that found no memory. */
typedef struct mli_oom {
    uint64_t bytes; /* the size of the request */
    uint64_t live;  /* the live bytes of the device when the request failed */
    uint64_t used;  /* the bytes in use at the phys at that time; UINT64_MAX if unknown */
    const memlord_site *site;
    uint64_t time;  /* when the request failed; 0 means that there was no such request */
} mli_oom;

/* The bytes of a device at the latest sample of its phys; both 0 if the device is newer. */
typedef struct mli_sample_mark {
    uint64_t held; /* a lower bound of the bytes that the device held */
    uint64_t in;   /* the bytes allocated so far, read before the sample was taken */
} mli_sample_mark;

typedef struct mli_device_record {
    memlord_device device;
    mli_ptr label;                 /* const char * */
    mli_u64 arena, arena_tagged;   /* the arena bytes (memlord_arena_add); those with a tag */
    mli_u64 count[MLI_STAT_COUNT]; /* statistics that no cell counts */
    mli_ptr phys;                  /* mli_phys *: the physical device that has the device's bytes */
    mli_u32 first[MLI_BOOKS], stack; /* its first row in each book, and its newest stack, or 0 */
    mli_u32 *end[MLI_BOOKS];     /* the `next` of its last row there; NULL if there is none */
    mli_watch watch;
    mli_oom oom;                 /* the last failed request; the lock of the phys guards it */
    mli_sample_mark mark;        /* the bytes at the latest sample; under the lock of the phys */
    mli_sample_mark before;      /* the bytes read before a sample; under the lock of the phys */
    struct mli_queue *queues[2]; /* the tree and the ring of its fence queues: see books/fences */
    struct mli_holders *holders; /* what had the most bytes at the peak; under the snapshots lock */
    mli_phys own_phys;           /* the device's phys, unless the device uses another phys */
} mli_device_record;

/* Returns the record of the device with a number (dev), or NULL if the record is not made yet. */
static MLI_HOT mli_device_record *mli_device_record_at(memlord *lord, uint32_t dev) {
    return (mli_device_record *)mli_ptr_load(&lord->devices.at[dev]);
}

/* Returns row `number` of a book: of the devices, the sites or the tags. */
MLI_PRIVATE MLI_NOINLINE mli_row *mli_row_at(memlord *lord, int book, uint32_t number);
/* Returns a thread's cell for a row, or NULL if it has none. Any thread may call this function. */
MLI_PRIVATE MLI_NOINLINE mli_cell *mli_cell_at(const mli_thread *t, int book, uint32_t number);

/* Returns the calling thread's cell for a site or a tag, or NULL, without acquire loads. */
static MLI_HOT mli_cell *mli_cell_own_row(const mli_thread *t, int book, uint32_t number) {
    uint32_t i = number >> MLI_CHUNK_BITS;
    char *chunk;
    if (MLI_UNLIKELY(i >= t->own_chunks[book].cap)) return NULL;
    chunk = (char *)mli_ptr_load_own(&t->own_chunks[book].at[i]);
    if (MLI_UNLIKELY(!chunk)) return NULL;
    return (mli_cell *)(void *)chunk + (number & (MLI_CHUNK_ROWS - 1));
}

/* Enters shard 0, so that a fork waits until the caller has counted and left. The caller does not
   use the table. If the shard is stopped, waits for its lock. */
MLI_PRIVATE void mli_shard_enter_to_count(memlord *lord, mli_thread *t);

/* Returns a thread's cell for a row, makes it on first use, or returns NULL if there is no memory.
   Requires: the caller is not inside a shard. */
MLI_PRIVATE MLI_COLD mli_cell *mli_cell_make(memlord *lord, mli_thread *t, int book,
                                             uint32_t number, mli_alloc_fn grab);

/* Returns one more than the number of the last row of a book. All rows below it can be read: the
   acquire load pairs with the release store in mli_row_publish. */
MLI_PRIVATE uint32_t mli_row_count(memlord *lord, int book);
/* Makes the next row of a book, or again an unpublished one, and the orphan record's cell for it.
   Returns NULL if there is no memory. Requires: the caller holds the cold lock. */
MLI_PRIVATE MLI_COLD mli_row *mli_row_new(memlord *lord, int book, mli_alloc_fn grab);
/* Shows other threads the row that was made last. Requires: the caller holds the cold lock. */
MLI_PRIVATE MLI_COLD void mli_row_publish(memlord *lord, int book);

/* Adds to a statistic that no cell counts: of a device or, if dev is 0, of the whole ledger. */
MLI_PRIVATE void mli_stat_add(memlord *lord, uint32_t dev, int stat, uint64_t by);
/* Counts a realloc in the thread's cell of the device. */
static MLI_HOT void mli_cell_count_realloc(mli_cell *cell) {
    mli_u64_add_own(&((mli_device_cell *)(void *)cell)->reallocs, 1);
}
/* Returns what mli_stat_add has added to a statistic of the whole ledger. */
MLI_PRIVATE uint64_t mli_stat_lost(const memlord *lord, int stat);
/* Counts a lost record of a kind, MLI_LOST_... */
MLI_PRIVATE MLI_COLD void mli_loss_add(memlord *lord, int loss);
MLI_PRIVATE MLI_COLD uint64_t mli_loss_count(const memlord *lord, int loss);

MLI_PRIVATE uint64_t mli_epoch(const memlord *lord);

/* Sets the time from which publications check whether a snapshot is due; 0 means never. */
MLI_PRIVATE MLI_COLD void mli_look_set(memlord *lord, uint64_t due);

/* Returns the cell of the orphan record for a row. Requires: the row exists. */
MLI_PRIVATE mli_cell *mli_orphan_cell(const memlord *lord, int book, uint32_t number);

/* Requests a band check at the end of a call on the device. May be called inside a shard. */
MLI_PRIVATE MLI_COLD void mli_check_request(memlord *lord, uint32_t dev);

/* Returns how far a cell's highest level since its last publication is above its base; its present
   level, if another cell has published since. Requires: the caller holds the row's lock. */
MLI_PRIVATE uint64_t mli_cell_above(const mli_row *row, const mli_cell *cell);

/* Raises a row's peak to its published bytes plus how far a cell's `high` is above its base, unless
   another cell has published since: the published bytes may have been lower at that time. Requires:
   the caller holds the row's lock. */
MLI_PRIVATE void mli_row_raise_peak(mli_row *row, const mli_cell *cell);

/* The counts that a call adds to the rows of a block. A free makes another delta with freed_here
   and frees_here, for the site that called free. */
typedef struct mli_row_delta {
    uint32_t dev;                    /* the device, or 0 if no device's row changes */
    uint64_t word2;                  /* the rows of the site and the tag, as in mli_entry */
    uint64_t in, out;                /* bytes */
    uint64_t allocs, frees;          /* 0 or 1 */
    uint64_t freed_here, frees_here; /* bytes freed at the site; number of frees at the site */
    int undo;                        /* 1: takes back `in` and `allocs` that were counted before */
    uint64_t attaches; /* the bytes of a detached block that is put back or ends, plus 1; 0: none */
    uint32_t slot;     /* the slot of this block: see mli_slot; 0: none */
    uint64_t pended;   /* of a free that ends a pending block: the free's epoch, plus 1; else 0 */
} mli_row_delta;
/* Counts that a block is detached (by = 1), put back or ended (-1). Requires: the caller is inside
   a shard, so that a fork finds both the change of the map and this count, or neither. */
MLI_PRIVATE void mli_detached_count(mli_thread *t, int by, uint64_t bytes);
/* Counts n deltas, each on up to three rows. Requires: the caller is inside a shard, so that a fork
   finds both a block and its counts, or neither; only mli_count_site_free counts outside one. */
MLI_PRIVATE MLI_NOINLINE void mli_count(memlord *lord, mli_thread *t, const mli_row_delta *d,
                                        unsigned n);

/* Returns a - b modulo 2^64, or 0 if b exceeds a by less than 2^56, because sums may lack some of
   the counts of a call in progress. */
MLI_PRIVATE uint64_t mli_since(uint64_t a, uint64_t b);

/* Returns a + b, or UINT64_MAX if the sum is larger. */
MLI_PRIVATE uint64_t mli_add_saturated(uint64_t a, uint64_t b);

MLI_PRIVATE MLI_COLD double mli_percent(uint64_t part, uint64_t whole);

/* Sums a row over all threads, under its lock. With `peaks` also raises its peak to what the cells
   show, and sets the sums `peak` and `peak_error`; `live` is then at most `peak`. */
MLI_PRIVATE MLI_COLD void mli_row_sum(memlord *lord, int book, uint32_t number, int peaks,
                                      mli_row_totals *sum);

/* Returns the live bytes of a row, for memlord_allocated: the sum of the levels of its cells, read
   without a lock. May find a free without its alloc; a sum below 0 becomes 0. */
MLI_PRIVATE MLI_NOINLINE uint64_t mli_row_live(memlord *lord, int book, uint32_t number);

/* Returns a device's live bytes, those freed since the last reset or collection, and its pool's. */
MLI_PRIVATE MLI_COLD mli_levels mli_row_levels(memlord *lord, uint32_t dev);

/* Sets the peak of a device to its live bytes or, if other threads change these meanwhile, to the
   published bytes. Requires: t is the record of the calling thread. */
MLI_PRIVATE MLI_COLD void mli_row_peak_reset(memlord *lord, mli_thread *t, uint32_t dev);

/* Restarts `freed` of a device at 0. Adds to at_reset, so that no addition by a thread is lost. */
MLI_PRIVATE MLI_COLD void mli_row_freed_reset(memlord *lord, uint32_t dev);

/* Starts all totals and peaks over, and begins an epoch. Requires: t is the caller's record. */
MLI_PRIVATE MLI_COLD void mli_counters_reset(memlord *lord, mli_thread *t);
MLI_TABLE(const mli_life mli_counters_life)

#endif
