/* Owns rows and cells: the counts of each device, site and tag, and each thread's part of them; the
   record of a device; the peaks in the spans of scopes. May use base/memory and books/threads, and
   books/map to enter a shard. Invariant: no peak is too high, because a peak is computed from
   published bytes, which never exceed the live bytes. Locks: count, then row. */
#ifndef MLI_BOOKS_COUNTERS_H
#define MLI_BOOKS_COUNTERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/vectors.h"
#include "books/threads.h"

/* The counts of one thread on one row of a device, a site or a tag. Only that thread counts in the
   cell; in the orphan's any thread counts, under the count lock. All threads read it. A thread that
   frees another's block counts in its own cell, so a level may be negative; sums of levels are
   exact modulo 2^64.

   The thread publishes the cell at its first bytes, and when level - base leaves 0..share: it brings
   the row up to the level less a reserve, and raises the row's peak (mli_cell_publish_due). The
   share is a batch while one cell of the row is in use; else it is so small that the cells together
   hold back 4 KiB or a 64th of the peak (mli_cell_share). So while no thread is inside a shard the
   row's published bytes are at most the live bytes, and at least the live bytes less a batch for
   each thread. A reader of the peak adds the highs that are not yet published (mli_row_sum). */
typedef struct mli_cell {
    mli_u64 level, out;    /* bytes: allocated less freed by this thread, signed; freed */
    mli_u64 allocs, frees; /* in a site's cell: the frees that were called at the site, of blocks of
                              any site */
    mli_u64 base;          /* the part of the level that is published */
    mli_u64 high;          /* the highest level since the last publication */
    mli_u64 freed_here;    /* of a site: the bytes that were freed at the site; of a device: see
                              mli_cell_next_check */
    mli_u64 publish_seen;  /* the row's publish_count at the last publication; 0: there was none */
} mli_cell;

/* Returns the calling thread's cell for a device; NULL: it has none, or the dev is 0. */
static MLI_HOT mli_cell *mli_cell_own_device(const mli_thread *t, uint32_t dev) {
    return (mli_cell *)mli_ptr_load_own(&t->devices[dev]);
}
/* Counts an alloc. Negative: the level rose above the cell's high. The high is never more than a
   share above base, so a level up to the high needs no publication. */
static MLI_HOT int64_t mli_cell_count_alloc(mli_cell *cell, uint64_t bytes) {
    uint64_t level = mli_u64_load_own(&cell->level) + bytes;
    mli_u64_add_own(&cell->allocs, 1);
    mli_u64_store(&cell->level, level);
    return (int64_t)(mli_u64_load_own(&cell->high) - level);
}
/* Counts the bytes of a free; the caller adds to `frees`. Negative: the level fell below base.
   `out` is stored before `level`: a reader loads them in the other order, so it never finds more
   freed than allocated. */
static MLI_HOT int64_t mli_cell_count_free(mli_cell *cell, uint64_t bytes) {
    uint64_t level = mli_u64_load_own(&cell->level) - bytes;
    mli_u64_add_own(&cell->out, bytes);
    mli_u64_store_release(&cell->level, level);
    return (int64_t)(level - mli_u64_load_own(&cell->base));
}
/* Returns the word of a device's cell that holds its next band check: the thread requests one when
   its `out` exceeds this value. 0 requests one at the next free. The word is freed_here, which only
   sites use otherwise. */
static MLI_HOT mli_u64 *mli_cell_next_check(mli_cell *cell) { return &cell->freed_here; }
/* Returns a negative value if the bytes this thread freed on the device have passed the next band
   check of the cell. */
static MLI_HOT int64_t mli_cell_tripped(mli_cell *cell) {
    return (int64_t)(mli_u64_load(mli_cell_next_check(cell)) - mli_u64_load(&cell->out));
}
/* Counts a free on its device. Negative: the cell is to be published, or to be checked. */
static MLI_HOT int64_t mli_cell_count_device_free(mli_cell *cell, uint64_t bytes) {
    const int64_t past = mli_cell_count_free(cell, bytes);
    mli_u64_add_own(&cell->frees, 1);
    return past | mli_cell_tripped(cell);
}
/* Does the work that a change of a cell makes due: raises its high, publishes it if it now holds
   back more than its share or less than 0, and requests a band check if one is due. Requires: the
   caller is inside, but for a site: see mli_count. */
MLI_PRIVATE MLI_COLD void mli_cell_publish_due(memlord *lord, int book, uint32_t number,
                                               mli_cell *cell);

/* A row: the totals of a device, of a site on a device, or of a tag on a device. */
typedef struct mli_row {
    mli_lock lock;         /* guards at_reset, first and slack; with a batch also published,
                              publish_count and the changes of cells */
    uint32_t dev;          /* the device */
    mli_u32 cells;         /* its cells in use: those that have published; 0 without a batch */
    void *subject;         /* mli_device_record, mli_site_record or a tag's kept name */
    mli_u64 published;     /* bytes, signed; at most the live bytes while no thread is inside */
    mli_u64 peak;          /* signed */
    mli_u64 sampled_peak;  /* of a device: signed; the highest `published` since its phys was
                              sampled */
    mli_u64 publish_count; /* publications, peak resets, and leaves of mli_joint_settle so far */
    mli_u64 expected;      /* tags: the bytes of memlord_expect; 0: none */
    mli_u64 arena;         /* tags: their arena bytes; under the lock of the device's row */
    mli_cell *first;       /* the cell that was in use before others, until it publishes again; NULL:
                              it has */
    uint64_t slack;        /* the most that mli_row_slack has been: a reset lowers the peak */
    struct {               /* sums at the last reset; freed: at the last reset or collection */
        uint64_t in, out, freed, allocs, frees, freed_here;
    } at_reset;
} mli_row;

/* The sums of a row over all threads. All but in, out, live and blocks are since the last reset. */
typedef struct mli_row_totals {
    uint64_t in, out; /* bytes since create, modulo 2^64 */
    uint64_t total_in, total_out, freed, allocs, frees, freed_here, live, blocks, peak, peak_error;
} mli_row_totals;

#define MLI_SCOPE_DEPTH_MAX 64

/* A span's view of a device: the thread's level when the span began, and the highest since. */
typedef struct mli_span_peak {
    uint64_t from, high;
} mli_span_peak;

/* An invocation of a scope that was exported. While a thread is in a member, which is a context,
   the member adds to `level` the base of the thread's cell, less the level at which its span began.
   So `level` is at most what all have added, and `high` at most their peak. `bytes`, `blocks` and
   `delta` are of the members that have left. */
typedef struct mli_joint {
    mli_lock lock;                  /* guards all members but token and began */
    uint64_t token;                 /* its handle, the second word of a memlord_scope_token */
    struct mli_thread_scope *began; /* of the thread that it began on */
    uint32_t members, over, adopted; /* contexts in it; 1: its exporter has left; 1: was adopted */
    uint64_t start, before, bytes, blocks; /* as in a span */
    const char *shapes;
    struct { uint64_t level, high, delta; } at[MEMLORD_MAX_DEVICES + 1];
} mli_joint;

/* A span: one scope that a thread is in. */
typedef struct mli_span {
    struct mli_span *around; /* the span of the scope around; NULL: none */
    struct mli_span *inner;  /* the span for a scope inside; NULL: not made yet */
    uint32_t depth;          /* 1 for the outermost span */
    struct mli_scope_record *scope;
    struct mli_thread_scope *stats;
    mli_joint *shared; /* the invocation, once it was exported; else NULL */
    int adopted;        /* 1: the scope began in another context, which shared it */
    uint32_t devices; /* the number of `peaks` that are set, from index 1 */
    uint64_t start, before, blocks; /* when it began: the stamp, the live bytes of the ledger, its
                                       blocks */
    const char *shapes;
    mli_span_peak peaks[MEMLORD_MAX_DEVICES + 1]; /* by dev */
} mli_span;

/* The last request that found no memory. */
typedef struct mli_oom {
    uint64_t bytes, live, used; /* used UINT64_MAX: not known */
    const memlord_site *site;
    uint64_t time; /* 0: there was none */
} mli_oom;

/* The bytes of a device from which the metrics of bands are computed. */
typedef struct mli_levels {
    uint64_t live, freed, reserved;
} mli_levels;

/* The state of a device's bands. The lock of its phys guards what is not atomic, except gc_thread,
   gc_frame and gc_serial. */
typedef struct mli_watch {
    mli_ptr strategy; /* mli_strategy *: in force; NULL: none. Set under callbacks and phys */
    mli_u64 check_above, check_below; /* signed: published bytes that request a band check */
    mli_u32 near_threshold;           /* 1: every call on the device checks its bands */
    mli_u32 check_requested;          /* 1: the end of the next call checks the bands */
    mli_u64 next_holders_peak;        /* the peak from which on its holders are noted again */
    mli_u64 checks;                   /* band checks so far; the addition orders them */
    uint64_t free_interval;     /* bytes a thread frees until it requests a check; 0: never */
    int waiting_rearm;          /* 1: a collection ran, and the metric has not moved since */
    mli_levels gc_end;          /* when the last collection ended */
    mli_u32 gc_running;         /* 1: a collection is running; taken by exchange */
    void *gc_thread;            /* the thread that runs the collection; under the callbacks lock */
    uintptr_t gc_frame;         /* the frame that runs the collection: see mli_frame_runs; same
                                   lock */
    uint64_t gc_serial;         /* the serial of the callback that runs; 0: none; under the
                                   callbacks lock */
} mli_watch;

/* The bytes of a device at the latest sample of its phys. All 0: the device is newer than the
   sample. */
typedef struct mli_sample_mark {
    uint64_t held; /* the least bytes that the device held */
    uint64_t in;   /* the bytes ever allocated, before the source ran */
} mli_sample_mark;

typedef struct mli_device_record {
    memlord_device device;
    mli_ptr label;                 /* const char * */
    mli_u64 arena, arena_tagged;   /* arena bytes on the device now; the part that tags have */
    mli_u64 count[MLI_STAT_COUNT]; /* statistics that no cell counts */
    mli_ptr phys;                  /* mli_phys *: the physical device that has its bytes */
    mli_watch watch;
    mli_oom oom;                 /* under the lock of its phys */
    mli_sample_mark mark, before; /* before: while a source runs; under the lock of its phys */
    struct mli_holders *holders; /* the holders at its peak; under the snapshots lock */
    mli_u64 peak_since;          /* ns since create; snapshots taken from then on belong to this
                                    peak */
    mli_phys own_phys;
} mli_device_record;

/* Returns the record of a dev; NULL: it was not made yet. */
static MLI_HOT mli_device_record *mli_device_record_at(memlord *lord, uint32_t dev) {
    return (mli_device_record *)mli_ptr_load(&lord->devices.at[dev]);
}

/* Returns a row by its number. */
MLI_PRIVATE MLI_NOINLINE mli_row *mli_row_at(memlord *lord, int book, uint32_t number);

/* Returns a thread's cell for a row; NULL: it has none. Any thread may call it. */
MLI_PRIVATE MLI_NOINLINE mli_cell *mli_cell_at(const mli_thread *t, int book, uint32_t number);

/* Returns the calling thread's cell for a site or a tag; NULL: it has none. The thread made the
   cell itself, so it needs no acquire. */
static MLI_HOT mli_cell *mli_cell_own_row(const mli_thread *t, int book, uint32_t number) {
    uint32_t i = number >> MLI_CHUNK_BITS;
    char *chunk;
    if (MLI_UNLIKELY(i >= t->own_chunks[book].cap)) return NULL;
    chunk = (char *)mli_ptr_load_own(&t->own_chunks[book].at[i]);
    if (MLI_UNLIKELY(!chunk)) return NULL;
    return (mli_cell *)(void *)chunk + (number & (MLI_CHUNK_ROWS - 1));
}

/* Enters shard 0 only to count, so that fork waits for the caller; it does not use the table. While
   the shard is stopped it waits for the shard's lock. */
MLI_PRIVATE void mli_shard_enter_to_count(memlord *lord, mli_thread *t);

/* Returns a thread's cell for a row, and makes it if there is none; NULL: no memory. Requires: the
   caller is not inside. */
MLI_PRIVATE MLI_COLD mli_cell *mli_cell_make(memlord *lord, mli_thread *t, int book,
                                             uint32_t number, mli_alloc_fn grab);

/* Returns one more than the last row number of a book. The acquire pairs with the release in
   mli_row_publish: rows below it can be read. */
MLI_PRIVATE uint32_t mli_row_count(memlord *lord, int book);
/* Makes the next row of a book, and the orphan record's cell for it. NULL: no memory. If the last
   row that was made was not published, it is made again. Requires: the cold lock. */
MLI_PRIVATE MLI_COLD mli_row *mli_row_new(memlord *lord, int book, mli_alloc_fn grab);
/* Publishes the row that was made last. Requires: the cold lock. */
MLI_PRIVATE MLI_COLD void mli_row_publish(memlord *lord, int book);

/* Adds to a statistic that no cell counts: to that of a device or, if dev is 0, to that of the
   ledger as a whole. */
MLI_PRIVATE void mli_stat_add(memlord *lord, uint32_t dev, int stat, uint64_t by);
/* Returns a statistic of the ledger as a whole. */
MLI_PRIVATE uint64_t mli_stat_lost(const memlord *lord, int stat);

/* Counts a record that is lost, by MLI_LOST_...; returns how many are. */
MLI_PRIVATE MLI_COLD void mli_loss_add(memlord *lord, int loss);
MLI_PRIVATE MLI_COLD uint64_t mli_loss_count(const memlord *lord, int loss);

/* Returns the number of resets. Counts of an earlier epoch no longer count. */
MLI_PRIVATE uint64_t mli_epoch(const memlord *lord);

/* Returns the cell of the orphan record for a row. Requires: the row exists. */
MLI_PRIVATE mli_cell *mli_orphan_cell(const memlord *lord, int book, uint32_t number);

/* Requests a band check of a device at the end of this call, or of the next one on the device. Safe
   inside a shard. */
MLI_PRIVATE MLI_COLD void mli_check_request(memlord *lord, uint32_t dev);
/* Returns 1 if a row's published bytes have reached a bound that requests a band check. */
MLI_PRIVATE int mli_mark_passed(const mli_watch *w, const mli_row *row);

/* Returns a span's peak on a device. A device that was first seen after the span began starts at
   level 0. */
MLI_PRIVATE MLI_NOINLINE mli_span_peak *mli_span_peak_at(mli_span *f, uint32_t dev);
/* Raises a span's highest level on a device to `level`: levels count modulo 2^64. */
MLI_PRIVATE void mli_span_raise(mli_span *f, uint32_t dev, uint64_t level);

/* Adds `by` to the level of an invocation, after it was `above` higher. Both are signed. */
MLI_PRIVATE void mli_joint_add(mli_joint *shared, uint32_t dev, uint64_t by, uint64_t above);
/* The same for all that a thread is in: the base of its cell changes by `by`. */
MLI_PRIVATE void mli_spans_share(const mli_thread *t, uint32_t dev, uint64_t by, uint64_t above);

/* Returns how far a cell's level has been above its base, as far as mli_row_raise_peak could tell.
   Requires: the row's lock, if the ledger has a batch. */
MLI_PRIVATE uint64_t mli_cell_above(const mli_row *row, const mli_cell *cell);

/* Raises a row's peak by a cell's high, if no other thread has published since the cell did. If
   another thread has, `published` may have been lower when the cell had its high. Requires: the
   caller holds the row's lock. */
MLI_PRIVATE void mli_row_raise_peak(mli_row *row, const mli_cell *cell);

/* The counts that a call adds to the rows of a block: to the rows of its device, its site and its
   tag. A free counts on the rows of the block, and counts freed_here and frees_here at the site
   that called free. */
typedef struct mli_row_delta {
    uint32_t dev;                    /* the device; 0: no device's row changes */
    uint64_t word2;                  /* the rows of the site and the tag */
    uint64_t in, out;                /* bytes */
    uint64_t allocs, frees;          /* 0 or 1 */
    uint64_t freed_here, frees_here; /* bytes and frees that the site freed, of blocks of any
                                        site */
    int undo;                        /* 1: takes back an `in` and `allocs` that were counted
                                        before */
    uint64_t attaches; /* the bytes, plus 1, of a detached block that the call puts back on the map
                          or ends; 0: there is none */
} mli_row_delta;
/* Counts a block that is detached (by = 1), or put back or ended (by = -1): taken off the map while
   its bytes stay counted. Requires: the caller is inside, so that a fork finds both or neither. */
MLI_PRIVATE void mli_detached_count(mli_thread *t, int by, uint64_t bytes);
/* Counts n deltas, each on up to three rows. Requires: the caller is inside, so that fork finds a
   block and its counts both or neither. Only mli_count_site_free counts outside: its rows may need
   memory, and fork may come between the block and that count. */
MLI_PRIVATE MLI_NOINLINE void mli_count(memlord *lord, mli_thread *t, const mli_row_delta *d,
                                        unsigned n);

/* Returns a - b, both modulo 2^64. A small negative difference is 0: it comes from calls of which
   the sum has one half, and these never add up to 2^56 bytes. */
MLI_PRIVATE uint64_t mli_since(uint64_t a, uint64_t b);

/* Returns a + b, at most UINT64_MAX. */
MLI_PRIVATE uint64_t mli_add_saturated(uint64_t a, uint64_t b);

/* Returns a part of a whole in percent. Out of line, as processors without AVX-512 convert a
   uint64_t in 40 bytes of code. */
MLI_PRIVATE MLI_COLD double mli_percent(uint64_t part, uint64_t whole);

/* Sums a row over all threads, under its lock: no cell can publish meanwhile, so published plus
   one cell's level - base never exceeds the live bytes, and row->at_reset does not change. The peak
   is computed only with `peaks`. Without a batch cells publish without the lock, and the row's peak
   is exact by itself. */
MLI_PRIVATE MLI_COLD void mli_row_sum(memlord *lord, int book, uint32_t number, int peaks,
                                      mli_row_totals *sum);

/* Returns the live bytes of a row, without a lock, for memlord_allocated. It adds the level of
   every thread's cell, published or not. A sum below 0 is returned as 0: the sum may have a free of
   another thread, but not yet the alloc before it. */
MLI_PRIVATE uint64_t mli_row_live(memlord *lord, int book, uint32_t number);

/* Returns three figures of a device: the live bytes, the bytes freed since the last reset or
   collection, and the bytes that its pool holds. */
MLI_PRIVATE MLI_COLD mli_levels mli_row_levels(memlord *lord, uint32_t dev);

/* Sets a row's peak to its live bytes. The publication count rises, so that the highs of other
   threads no longer count. The caller's own cell stays exact; the orphan's cell is nobody's own. */
MLI_PRIVATE MLI_COLD void mli_row_peak_reset(memlord *lord, mli_thread *t, int book,
                                             uint32_t number);

/* Excludes bytes from `freed` that are credited now but were freed in an earlier epoch. */
MLI_PRIVATE void mli_row_freed_exclude(memlord *lord, uint32_t dev, uint64_t bytes);
/* Restarts `freed` at 0, as a collection does. It adds to at_reset, so that an addition of another
   thread there is not lost. */
MLI_PRIVATE MLI_COLD void mli_row_freed_reset(memlord *lord, uint32_t dev);

MLI_PRIVATE MLI_COLD void mli_counters_life(mli_life *life);

#endif
