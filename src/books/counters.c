#include "books/counters.h"
#include "os/system.h"
#include "base/memory.h"
#include "base/vectors.h"
#include "books/map.h"
#include "books/watches.h"
#include "books/spans.h"

typedef char mli_check_cell[sizeof(mli_cell) == 64 ? 1 : -1];
#define MLI_SHARE_CALLS 256u /* see mli_share_next */
typedef char mli_check_row[offsetof(mli_row, published) % 8 ? -1 : 1];

MLI_PRIVATE MLI_NOINLINE mli_cell *mli_cell_at(const mli_thread *t, int book, uint32_t number) {
    if (book == MLI_BOOK_DEVICE)
        return (mli_cell *)mli_ptr_load_acquire(&t->devices[(size_t)number]);
    return (mli_cell *)mli_vector_at(&t->cells[book], number, sizeof(mli_cell));
}

MLI_PRIVATE MLI_NOINLINE mli_row *mli_row_at(memlord *lord, int book, uint32_t number) {
    return (mli_row *)mli_vector_at(&lord->counters.rows[book], number, sizeof(mli_row));
}

MLI_PRIVATE void mli_shard_enter_to_count(memlord *lord, mli_thread *t) {
    mli_shard *s = mli_shard_at(lord, 0);
    while (mli_shard_enter(t, s) == MLI_SHARD_STOPPED) {
        mli_shard_leave(t);
        mli_lock_take(&s->lock);
        mli_lock_drop(&s->lock);
    }
}

MLI_PRIVATE MLI_COLD mli_cell *mli_cell_make(memlord *lord, mli_thread *t, int book,
                                             uint32_t number, mli_alloc_fn grab) {
    MLI_REQUIRE(!mli_is_inside());
    mli_cell *cell = mli_cell_at(t, book, number);
    mli_chunk_array *chunks;
    if (cell) return cell;
    if (book == MLI_BOOK_DEVICE)
        cell = (mli_cell *)grab(lord, sizeof(mli_device_cell));
    else
        cell = (mli_cell *)mli_vector_add(lord, &t->cells[book], number, sizeof *cell, grab);
    if (!cell) return NULL;
    if (book == MLI_BOOK_DEVICE) {
        mli_ptr_store_release(&t->devices[number], cell); /* pairs with the load in mli_cell_at */
        return cell;
    }
    chunks = (mli_chunk_array *)mli_ptr_load(&t->cells[book]); /* the array may have grown */
    t->own_chunks[book].at = mli_chunk_array_at(chunks, 0);
    t->own_chunks[book].cap = (size_t)chunks->cap;
    return cell;
}

MLI_PRIVATE uint32_t mli_row_count(memlord *lord, int book) {
    return mli_u32_load_acquire(&lord->counters.row_count[book]);
}
MLI_PRIVATE MLI_COLD mli_row *mli_row_new(memlord *lord, int book, mli_alloc_fn grab) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    const uint32_t n = mli_u32_load(&lord->counters.row_count[book]);
    mli_row *row = (mli_row *)mli_vector_add(lord, &lord->counters.rows[book], n, sizeof *row,
                                             grab);
    if (!row || !mli_cell_make(lord, lord->threads.orphan, book, n, grab)) return NULL;
    mli_lock_rank(&row->lock, MLI_RANK_ROW);
    return row;
}
MLI_PRIVATE MLI_COLD void mli_row_publish(memlord *lord, int book) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    mli_u32 *count = &lord->counters.row_count[book];
    mli_u32_store_release(count, mli_u32_load(count) + 1); /* pairs with mli_row_count's load */
}

MLI_PRIVATE void mli_stat_add(memlord *lord, uint32_t dev, int stat, uint64_t by) {
    mli_u64 *count = dev ? mli_device_record_at(lord, dev)->count : lord->counters.lost;
    (void)mli_u64_add(&count[stat], by);
}
MLI_PRIVATE uint64_t mli_stat_lost(const memlord *lord, int stat) {
    return mli_u64_load(&lord->counters.lost[stat]);
}

MLI_PRIVATE MLI_COLD void mli_loss_add(memlord *lord, int loss) {
    (void)mli_u64_add(&lord->counters.losses[loss], 1);
}
MLI_PRIVATE MLI_COLD uint64_t mli_loss_count(const memlord *lord, int loss) {
    return mli_u64_load(&lord->counters.losses[loss]);
}

MLI_PRIVATE uint64_t mli_epoch(const memlord *lord) { return mli_u64_load(&lord->counters.epoch); }

MLI_PRIVATE mli_cell *mli_orphan_cell(const memlord *lord, int book, uint32_t number) {
    MLI_REQUIRE(number < mli_u32_load(&lord->counters.row_count[book]));
    return mli_cell_at(lord->threads.orphan, book, number);
}

MLI_PRIVATE MLI_COLD void mli_check_request(memlord *lord, uint32_t dev) {
    if (!mli_u32_exchange(&mli_device_record_at(lord, dev)->watch.check_requested, 1))
        mli_alert_bands_add(lord, 1);
}
MLI_PRIVATE MLI_COLD void mli_look_set(memlord *lord, uint64_t due) {
    mli_u64_store(&lord->counters.look_due, due);
}
/* Returns 1 if the end of the call is to check whether a snapshot is due. Runs inside a shard, so
   it does not read a clock of the host, but returns 1 if there is one. Without a batch every call
   publishes, so the function returns 0 for 63 publications of 64. */
static MLI_COLD int mli_look_is_due(memlord *lord) {
    const uint64_t due = mli_u64_load(&lord->counters.look_due);
    if (!due || (!lord->counters.batch && mli_u64_add(&lord->counters.looks, 1) & 63)) return 0;
    return lord->clock.fn || mli_now() >= due;
}
/* Requests a check at the end of the call if the published bytes have reached a bound of a band, if
   the device's holders (services/snapshots) must be noted again, or if a snapshot may be due. */
static void mli_check_thresholds(memlord *lord, uint32_t dev, const mli_row *row, uint64_t live) {
    const mli_watch *w = &mli_device_record_at(lord, dev)->watch;
    if (mli_holders_due(w, live, mli_u64_load(&row->peak)) ||
        mli_mark_passed(w, &row->published) || mli_look_is_due(lord))
        mli_check_request(lord, dev);
}

/* If a cell is the calling thread's own and the thread is in a scope, raises the peak of the
   thread's innermost span to the cell's `high`, and returns the thread. Else returns NULL. */
static const mli_thread *mli_span_note_high(memlord *lord, uint32_t dev, const mli_cell *cell) {
    const mli_thread *t = mli_self.thread;
    const int own = mli_self.generation == lord->generation && t->now.span &&
                    mli_cell_own_device(t, dev) == cell;
    if (own) mli_span_raise(t->now.span, dev, mli_u64_load(&cell->high));
    return own ? t : NULL;
}

MLI_PRIVATE uint64_t mli_cell_above(const mli_row *row, const mli_cell *cell) {
    return mli_u64_load(row->latest == cell ? &cell->high : &cell->level) -
           mli_u64_load(&cell->base);
}

/* Returns a cell's part of `1 / part` of a row's peak, or of `least`; at most a batch. */
static uint64_t mli_row_part(const memlord *lord, const mli_row *row, uint64_t part,
                             uint64_t least) {
    const uint32_t cells = mli_u32_load(&row->cells);
    const int64_t peak = (int64_t)mli_u64_load(&row->peak);
    uint64_t share = peak > 0 ? (uint64_t)peak / part : 0;
    if (share < least) share = least;
    if (cells > 1) share /= cells;
    if (share > lord->counters.batch) share = lord->counters.batch;
    return share ? share : 1;
}
/* Returns the share that a cell begins with beside others: a part of a 64th of the peak. */
static uint64_t mli_share_first(const memlord *lord, const mli_row *row) {
    return mli_row_part(lord, row, 64, 4096);
}
/* Returns the share that a cell has after a publication, if other cells of its row have published.
   Compares once in 256 calls of the thread on the row: if the cell was published more often than
   once in 256 calls, the share doubles, else it halves. So a thread that makes few calls has an
   almost exact peak, and a busy one is not slowed down. With `begins` 1 the share begins again. */
static uint64_t mli_share_next(const memlord *lord, const mli_row *row, mli_cell *cell,
                               int begins) {
    const uint64_t least = mli_share_first(lord, row), most = mli_row_part(lord, row, 8, 65536);
    const uint16_t now = (uint16_t)(mli_u64_load_own(&cell->allocs) +
                                    mli_u64_load_own(&cell->frees)),
                   calls = (uint16_t)(now - cell->began);
    uint64_t share = mli_u32_load(&cell->share);
    cell->published++;
    if (begins || calls >= MLI_SHARE_CALLS) {
        share = (uint32_t)cell->published * MLI_SHARE_CALLS > calls ? share * 2 : share / 2;
        cell->began = now;
        cell->published = 0;
    }
    if (share > most) share = most;
    return begins || share < least ? least : share;
}
/* Chooses the share of a cell at a publication, and returns it. A cell that is alone in its row has
   a batch. When others have come since, it begins again. */
static uint64_t mli_cell_share(const memlord *lord, mli_row *row, mli_cell *cell, int begins) {
    MLI_REQUIRE(mli_lock_held(&row->lock));
    const int first = mli_ptr_load(&row->first) == cell;
    const uint32_t old = mli_u32_load(&cell->share);
    uint64_t share = lord->counters.batch;
    if (!first) row->shares -= old;
    if (mli_u32_load(&row->cells) == 1) {
        mli_ptr_store(&row->first, cell);
    } else {
        if (first) mli_ptr_store(&row->first, NULL);
        share = mli_share_next(lord, row, cell, begins || first || !old);
        row->shares += share;
    }
    mli_u32_store(&cell->share, (uint32_t)share);
    return share;
}
/* Returns the margin of a cell: how far its level may rise before the cell is published again. The
   margin is half of the cell's share and, for a device, at most a 32nd of the peak. So even if the
   share is large, a publication finds out when the live bytes have risen by a 16th. The device's
   holders (books/watches) are then noted again. */
static uint64_t mli_publish_margin(int book, const mli_row *row, uint64_t share) {
    int64_t peak = (int64_t)mli_u64_load(&row->peak);
    uint64_t most = share / 2, part = peak > 0 ? (uint64_t)peak >> 5 : 0;
    return book == MLI_BOOK_DEVICE && part < most ? part : most;
}

MLI_PRIVATE void mli_row_raise_peak(mli_row *row, const mli_cell *cell) {
    MLI_REQUIRE(mli_lock_held(&row->lock));
    if (row->latest == cell)
        mli_u64_max(&row->peak, (int64_t)(mli_u64_load(&row->published) +
                                          mli_u64_load(&cell->high) - mli_u64_load(&cell->base)));
}

/* Asks the threads that have published a cell of a row to publish it at their next call. */
static MLI_COLD void mli_row_ask(memlord *lord, int book, uint32_t number) {
    mli_thread *t = mli_thread_first(lord);
    for (; t; t = mli_thread_next(t)) {
        const mli_cell *cell = mli_cell_at(t, book, number);
        if (cell && mli_u32_load(&cell->share)) mli_special_set(t, MLI_SPECIAL_PUBLISH, 1);
    }
}
/* Counts a cell as one that publishes, before its first publication. The row's other cells then
   have a smaller share, so their threads are asked to publish, except in a row of a site: a thread
   that begins may come to thousands of sites, and each time the others would look at all cells. */
static MLI_COLD void mli_row_join(memlord *lord, int book, uint32_t number, mli_row *row) {
    MLI_REQUIRE(mli_lock_held(&row->lock));
    mli_cell *first = (mli_cell *)mli_ptr_load(&row->first);
    mli_u32_add_own(&row->cells, 1);
    if (first) mli_row_raise_peak(row, first); /* from now on its `high` does not count */
    if (book != MLI_BOOK_SITE) mli_row_ask(lord, book, number);
}
/* Returns the bytes that the cell row->first holds back, or 0 if there is none. */
static uint64_t mli_row_first_holds(const mli_row *row) {
    const mli_cell *first = (const mli_cell *)mli_ptr_load(&row->first);
    return first ? mli_u64_load(&first->level) - mli_u64_load(&first->base) : 0;
}
/* Raises row->most to a bound of the live bytes now: the published bytes, and for each cell its
   share. What row->first holds back is known, because its thread is asked to publish as soon as
   another cell publishes or the peak is reset. For another cell of a site it is not asked. */
static void mli_row_bound(int book, mli_row *row) {
    MLI_REQUIRE(mli_lock_held(&row->lock));
    const mli_cell *first = (const mli_cell *)mli_ptr_load(&row->first);
    const int64_t peak = (int64_t)mli_u64_load(&row->peak);
    uint64_t bound = mli_u64_load(&row->published) + row->shares;
    if (first && book == MLI_BOOK_SITE && mli_u32_load(&row->cells) > 1)
        bound += mli_u32_load(&first->share);
    else
        bound += mli_row_first_holds(row);
    if ((int64_t)bound > row->most) row->most = (int64_t)bound;
    if (peak > row->most) row->most = peak;
}

/* Changes the row's published bytes so that a cell holds back `hold` bytes, and raises the row's
   peak. The level can then rise by the margin, or fall by `hold`, before the next publication. So
   the row is locked about once for each half share that the level rises or falls. Returns the bytes
   that are known to be live. */
static uint64_t mli_cell_hold(memlord *lord, int book, uint32_t number, mli_cell *cell,
                              const mli_thread *t, int begins) {
    mli_row *row = mli_row_at(lord, book, number);
    const uint64_t level = mli_u64_load(&cell->level), base = mli_u64_load(&cell->base);
    uint64_t live = mli_u64_load(&row->published) + level - base, hold;
    if (!mli_u32_load(&cell->share)) mli_row_join(lord, book, number, row);
    mli_row_raise_peak(row, cell);
    if (mli_ptr_load(&row->first) != cell) live += mli_row_first_holds(row);
    mli_u64_max(&row->peak, (int64_t)live);
    hold = mli_cell_share(lord, row, cell, begins);
    hold -= mli_publish_margin(book, row, hold);
    mli_spans_share(t, number, level - base - hold, mli_cell_above(row, cell));
    mli_u64_add_own(&row->published, level - base - hold);
    row->latest = cell;
    mli_u64_store(&cell->base, level - hold);
    mli_u64_store(&cell->high, level);
    mli_row_bound(book, row);
    return live;
}
/* Publishes all of a cell, as every call does if there is no batch. Returns the live bytes. */
static uint64_t mli_cell_hold_nothing(mli_row *row, uint32_t number, mli_cell *cell,
                                      const mli_thread *t) {
    const uint64_t level = mli_u64_load(&cell->level), by = level - mli_u64_load(&cell->base);
    const uint64_t live = mli_u64_load(&row->published) + by;
    mli_u64_store(&row->published, live);
    if ((int64_t)live > (int64_t)mli_u64_load(&row->peak)) mli_u64_store(&row->peak, live);
    if (t) mli_spans_share(t, number, by, by);
    mli_u64_store(&cell->base, level);
    mli_u64_store(&cell->high, level);
    return live;
}
/* Publishes a cell. With `begins` 1 its share begins again. */
static MLI_COLD void mli_cell_publish(memlord *lord, int book, uint32_t number, mli_cell *cell,
                                      int begins) {
    mli_row *row = mli_row_at(lord, book, number);
    const mli_thread *t = book == MLI_BOOK_DEVICE ? mli_span_note_high(lord, number, cell) : NULL;
    uint64_t published, live;
    mli_lock_take(&row->lock);
    live = lord->counters.batch ? mli_cell_hold(lord, book, number, cell, t, begins)
                                : mli_cell_hold_nothing(row, number, cell, t);
    published = mli_u64_load(&row->published);
    mli_lock_drop(&row->lock);
    if (book != MLI_BOOK_DEVICE) return;
    mli_u64_max(&row->sampled_peak, (int64_t)published);
    mli_check_thresholds(lord, number, row, live);
}
MLI_PRIVATE MLI_COLD void mli_cell_publish_due(memlord *lord, int book, uint32_t number,
                                               mli_cell *cell) {
    MLI_REQUIRE(mli_is_inside() || book == MLI_BOOK_SITE);
    uint64_t level;
    if (!number || !cell) return;
    level = mli_u64_load_own(&cell->level);
    if ((int64_t)(level - mli_u64_load_own(&cell->high)) > 0) mli_u64_store(&cell->high, level);
    if ((int64_t)(level - mli_u64_load_own(&cell->base)) < 0 ||
        (int64_t)(level - mli_cell_limit(cell)) > 0)
        mli_cell_publish(lord, book, number, cell, 0);
    if (book == MLI_BOOK_DEVICE && MLI_UNLIKELY(mli_cell_tripped(cell) < 0))
        mli_check_request(lord, number);
}

/* Publishes the cells of a thread in a book that may hold back more than a cell that begins. */
static MLI_COLD void mli_book_publish_asked(memlord *lord, mli_thread *t, int book) {
    const uint32_t n = mli_row_count(lord, book);
    uint32_t i;
    for (i = 1; i < n; i++) {
        const mli_row *row = mli_row_at(lord, book, i);
        mli_cell *cell = mli_cell_at(t, book, i);
        if (cell && (mli_u32_load(&cell->share) > mli_share_first(lord, row) ||
                     mli_ptr_load(&row->first) == cell))
            mli_cell_publish(lord, book, i, cell, 1);
    }
}
/* Publishes a thread's cells, because another thread has asked for it. Runs before the present call
   is counted, so that the peak includes the level after the last call. */
static MLI_COLD void mli_cells_publish_asked(memlord *lord, mli_thread *t) {
    MLI_REQUIRE(mli_is_inside());
    int book;
    mli_special_set(t, MLI_SPECIAL_PUBLISH, 0);
    if (mli_is_orphan(lord, t)) return; /* every call publishes the cells of the orphan record */
    for (book = 0; book < MLI_BOOKS; book++) mli_book_publish_asked(lord, t, book);
    t->other_dev = MLI_DEV_ALL; /* any of the devices may need a band check now */
}

/* -- the general path: deltas, applied to all rows of a block -- */

/* Counts the bytes of a pending block as freed. If the block was freed before the last reset, they
   do not count as freed since the reset. The lock keeps a reset from coming between the two. */
static MLI_COLD void mli_cell_free_pended(memlord *lord, uint32_t dev, mli_cell *cell,
                                          const mli_row_delta *d) {
    mli_row *row = mli_row_at(lord, MLI_BOOK_DEVICE, dev);
    mli_lock_take(&row->lock);
    if (d->pended - 1 != mli_epoch(lord)) row->freed_before += d->out;
    mli_u64_add_own(&cell->out, d->out);
    mli_lock_drop(&row->lock);
}
/* Applies a delta to a cell. Publishes the cell if that is due, or if `publish` is 1. Changes the
   level once, by the difference of the bytes in and out. So bytes that are both in and out never
   raise the level. Stores `out`, `level` and `frees` in the order of mli_cell_count_device_free. */
static void mli_cell_apply(memlord *lord, int book, uint32_t number, mli_cell *cell,
                           const mli_row_delta *d, int publish) {
    const uint64_t sign = d->undo ? UINT64_MAX : 1;
    mli_u64_add_own(&cell->allocs, d->allocs * sign);
    if (d->pended && book == MLI_BOOK_DEVICE)
        mli_cell_free_pended(lord, number, cell, d);
    else
        mli_u64_add_own(&cell->out, d->out);
    if (d->freed_here) mli_u64_add_own(&cell->freed_here, d->freed_here);
    mli_u64_store_release(&cell->level, mli_u64_load_own(&cell->level) + d->in * sign - d->out);
    mli_u64_add_own(&cell->frees, book == MLI_BOOK_SITE ? d->frees_here : d->frees);
    if (d->frees_here) return; /* the level is the same, and the thread may be outside of shards */
    if (publish)
        mli_cell_publish(lord, book, number, cell, 0);
    else
        mli_cell_publish_due(lord, book, number, cell);
}

/* Adds a delta to all spans of a thread. The cell of the orphan record has counted the delta, so
   the level of the thread's own cell has not changed. A span compares that level with levels that
   it has stored. So the function lowers the stored levels by the bytes of the delta. */
static MLI_COLD void mli_spans_adjust(mli_thread *t, const mli_row_delta *d) {
    const mli_cell *cell = mli_cell_own_device(t, d->dev);
    uint64_t sign = d->undo ? UINT64_MAX : 1, rise = (d->in - d->out) * sign;
    mli_span *f = t->now.span;
    for (; f; f = f->around) {
        mli_span_peak *at = mli_span_peak_at(f, d->dev);
        at->from -= rise;
        at->high -= rise;
        mli_span_raise(f, d->dev, cell ? mli_u64_load_own(&cell->level) : 0);
        if (f->shared) mli_joint_add(f->shared, d->dev, rise, rise);
        f->blocks -= (d->allocs - d->frees) * sign;
    }
}

/* Counts a delta on one row: in the thread's own cell or else in that of the orphan record. Takes
   only the locks count and row, which may be taken inside a shard. */
static void mli_count_row(memlord *lord, mli_thread *t, int book, uint32_t number,
                          const mli_row_delta *d) {
    mli_cell *cell = mli_cell_at(t, book, number);
    if (MLI_LIKELY(cell && !mli_is_orphan(lord, t))) {
        mli_cell_apply(lord, book, number, cell, d, d->undo);
        return;
    }
    mli_lock_take(&lord->counters.count_lock);
    mli_cell_apply(lord, book, number, mli_orphan_cell(lord, book, number), d, 1);
    mli_lock_drop(&lord->counters.count_lock);
    if (book == MLI_BOOK_DEVICE) mli_spans_adjust(t, d);
}
MLI_PRIVATE void mli_detached_count(mli_thread *t, int by, uint64_t bytes) {
    MLI_REQUIRE(mli_is_inside());
    mli_u64_add_own(&t->detached, (uint64_t)(int64_t)by);
    mli_u64_add_own(&t->detached_bytes, by < 0 ? (uint64_t)0 - bytes : bytes);
}
MLI_PRIVATE MLI_NOINLINE void mli_count(memlord *lord, mli_thread *t, const mli_row_delta *d,
                                        unsigned n) {
    MLI_REQUIRE(mli_is_inside() || (n == 1 && !d->dev && d->frees_here));
    if (MLI_UNLIKELY(mli_u32_load(&t->special) & MLI_SPECIAL_PUBLISH) && !d->frees_here)
        mli_cells_publish_asked(lord, t);
    for (; n--; d++) {
        uint32_t site = MLI_SITE_ROW(d->word2), tag = MLI_TAG_ROW(d->word2);
        if (d->attaches) mli_detached_count(t, -1, d->attaches - 1);
        if (d->slot) mli_slot_move(lord, d->slot, 0);
        if (d->dev) mli_count_row(lord, t, MLI_BOOK_DEVICE, d->dev, d);
        if (site) mli_count_row(lord, t, MLI_BOOK_SITE, site, d);
        if (tag) mli_count_row(lord, t, MLI_BOOK_TAG, tag, d);
    }
}

/* -- reading -- */

MLI_PRIVATE uint64_t mli_since(uint64_t a, uint64_t b) {
    return b - a < (uint64_t)1 << 56 ? 0 : a - b;
}

MLI_PRIVATE uint64_t mli_add_saturated(uint64_t a, uint64_t b) {
    return a + b < a ? UINT64_MAX : a + b;
}
MLI_PRIVATE MLI_COLD double mli_percent(uint64_t part, uint64_t whole) {
    return (double)part * 100.0 / (double)whole;
}

/* Adds up the cells of a row. The loads are acquires, so that they stay in the order of the code.
   The load of `level` also pairs with the release stores of `level` by the calls that count. So the
   later loads see all that the cell's thread counted before it stored that level. */
static mli_cell_sums mli_cells_sum(memlord *lord, int book, uint32_t number) {
    mli_cell_sums sum = {0, 0, 0, 0, 0, 0};
    const mli_thread *t = mli_thread_first(lord);
    for (; t; t = mli_thread_next(t)) {
        const mli_cell *cell = mli_cell_at(t, book, number);
        uint64_t level, out;
        if (!cell) continue;
        level = mli_u64_load_acquire(&cell->level);
        out = mli_u64_load_acquire(&cell->out);
        sum.in += level + out;
        sum.out += out;
        sum.allocs += mli_u64_load_acquire(&cell->allocs);
        sum.frees += mli_u64_load_acquire(&cell->frees);
        sum.freed_here += mli_u64_load_acquire(&cell->freed_here);
        if (book == MLI_BOOK_DEVICE)
            sum.reallocs +=
                mli_u64_load_acquire(&((const mli_device_cell *)(const void *)cell)->reallocs);
    }
    return sum;
}

/* Adds up the cells until two sums agree, and returns 1. Then the levels were live together,
   because a call changes `allocs` or `out` before the level. Otherwise one thread may have freed
   before another allocated. Returns 0 if no two sums in 16 agree; *sum is then the last one. */
static MLI_COLD int mli_cells_sum_together(memlord *lord, int book, uint32_t number,
                                           mli_cell_sums *sum) {
    mli_cell_sums before;
    int tries = 0;
    *sum = mli_cells_sum(lord, book, number);
    do {
        before = *sum;
        *sum = mli_cells_sum(lord, book, number);
    } while (memcmp(sum, &before, sizeof before) && ++tries < 16);
    return tries < 16;
}
/* Raises the peak of a row to what its cells show. No cell can publish while the row is locked, so
   the published bytes and what one cell holds back were live together. `live` is a sum of the
   cells. */
static MLI_COLD void mli_row_peak_raise(memlord *lord, int book, uint32_t number, uint64_t live) {
    mli_row *row = mli_row_at(lord, book, number);
    mli_cell_sums sum;
    if (row->latest) mli_row_raise_peak(row, row->latest);
    mli_u64_max(&row->peak, (int64_t)(mli_u64_load(&row->published) + mli_row_first_holds(row)));
    if ((int64_t)live > (int64_t)mli_u64_load(&row->peak) &&
        mli_cells_sum_together(lord, book, number, &sum))
        mli_u64_max(&row->peak, (int64_t)(sum.in - sum.out));
    mli_row_bound(book, row);
}

MLI_PRIVATE MLI_COLD void mli_row_sum(memlord *lord, int book, uint32_t number, int peaks,
                                      mli_row_totals *sum) {
    mli_row *row = mli_row_at(lord, book, number);
    mli_cell_sums cells;
    memset(sum, 0, sizeof *sum);
    mli_lock_take(&row->lock);
    cells = mli_cells_sum(lord, book, number);
    sum->in = cells.in;
    sum->out = cells.out;
    sum->live = mli_since(sum->in, sum->out);
    if (peaks) {
        mli_row_peak_raise(lord, book, number, sum->live);
        sum->peak = mli_u64_load(&row->peak);
        sum->peak_error = (uint64_t)row->most - sum->peak;
        if (sum->live > sum->peak) sum->live = sum->peak;
    }
    sum->total_in = mli_since(sum->in, row->at_reset.in);
    sum->total_out = mli_since(sum->out, row->at_reset.out);
    sum->freed = mli_since(sum->out, row->freed_before);
    sum->blocks = (int64_t)(cells.allocs - cells.frees) > 0 ? cells.allocs - cells.frees : 0;
    sum->allocs = cells.allocs - row->at_reset.allocs;
    sum->frees = cells.frees - row->at_reset.frees;
    sum->freed_here = cells.freed_here - row->at_reset.freed_here;
    sum->reallocs = cells.reallocs - row->at_reset.reallocs;
    mli_lock_drop(&row->lock);
}

MLI_PRIVATE MLI_NOINLINE uint64_t mli_row_live(memlord *lord, int book, uint32_t number) {
    const mli_cell_sums sum = mli_cells_sum(lord, book, number);
    return (int64_t)(sum.in - sum.out) > 0 ? sum.in - sum.out : 0;
}

MLI_PRIVATE MLI_COLD mli_levels mli_row_levels(memlord *lord, uint32_t dev) {
    mli_row_totals sum;
    mli_levels out;
    mli_row_sum(lord, MLI_BOOK_DEVICE, dev, 0, &sum);
    out.live = sum.live;
    out.freed = sum.freed;
    out.reserved = mli_u64_load(&mli_device_record_at(lord, dev)->count[MLI_STAT_reserved]);
    return out;
}

/* Restarts the peak of a row and, with `totals` 1, its totals. `t` is the record of the calling
   thread. The highs that cells have now no longer count, but that of t, which becomes its level.
   The threads are asked to publish before their levels are read. So each of them makes at most one
   call, the one that is in progress, before it publishes the level that this call left. */
static MLI_COLD void mli_row_restart(memlord *lord, mli_thread *t, int book, uint32_t number,
                                     int totals) {
    mli_row *row = mli_row_at(lord, book, number);
    mli_cell *own = mli_is_orphan(lord, t) ? NULL : mli_cell_at(t, book, number);
    mli_cell_sums sum;
    mli_lock_take(&row->lock);
    if (own && book == MLI_BOOK_DEVICE)
        mli_spans_share(mli_span_note_high(lord, number, own), number, 0, mli_cell_above(row, own));
    if (own) mli_u64_store(&own->high, mli_u64_load(&own->level));
    row->latest = own && mli_u32_load(&own->share) ? own : NULL;
    mli_row_ask(lord, book, number);
    (void)mli_cells_sum_together(lord, book, number, &sum);
    if (totals) {
        row->at_reset = sum;
        row->freed_before = sum.out;
    }
    mli_u64_store(&row->peak, 0);
    row->most = 0;
    mli_row_peak_raise(lord, book, number, sum.in - sum.out);
    mli_lock_drop(&row->lock);
}
MLI_PRIVATE MLI_COLD void mli_row_peak_reset(memlord *lord, mli_thread *t, uint32_t dev) {
    mli_row_restart(lord, t, MLI_BOOK_DEVICE, dev, 0);
}
MLI_PRIVATE MLI_COLD void mli_row_freed_reset(memlord *lord, uint32_t dev) {
    mli_row *row = mli_row_at(lord, MLI_BOOK_DEVICE, dev);
    mli_row_totals sum;
    mli_row_sum(lord, MLI_BOOK_DEVICE, dev, 0, &sum);
    mli_lock_take(&row->lock);
    row->freed_before += sum.freed;
    mli_lock_drop(&row->lock);
}

/* -- life -- */

static MLI_COLD void mli_counters_init(memlord *lord, const memlord_desc *desc) {
    const uint64_t batch = desc->counter_batch ? desc->counter_batch : 65536;
    int book;
    mli_lock_rank(&lord->counters.count_lock, MLI_RANK_COUNT);
    if (!(desc->flags & MEMLORD_FLAG_EXACT))
        lord->counters.batch = batch < UINT32_MAX ? batch : UINT32_MAX; /* it has 32 bits */
    for (book = 0; book < MLI_BOOKS; book++) lord->counters.row_count[book].v = 1;
}
/* Clears the row locks in a forked child, which lacks the threads that held them. During a fork the
   map is frozen, so such a thread only read the row, or changed its peak, `most` and `latest`. */
static MLI_COLD void mli_counters_forked(memlord *lord) {
    int book;
    uint32_t i, n;
    for (book = 0; book < MLI_BOOKS; book++) {
        n = mli_row_count(lord, book);
        for (i = 1; i < n; i++) mli_u32_store(&mli_row_at(lord, book, i)->lock.locked, 0);
    }
}
/* Begins the epoch first, and then restarts the rows one by one. A block that is pending by then
   does not count in the new epoch: see mli_cell_free_pended. No call waits but for a row's lock. */
MLI_PRIVATE MLI_COLD void mli_counters_reset(memlord *lord, mli_thread *t) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    int book, stat;
    (void)mli_u64_add(&lord->counters.epoch, 1);
    for (book = 0; book < MLI_BOOKS; book++) {
        const uint32_t n = mli_row_count(lord, book);
        uint32_t i;
        for (i = 1; i < n; i++) mli_row_restart(lord, t, book, i, 1);
    }
    for (stat = 0; stat < MLI_STAT_COUNT; stat++) mli_u64_store(&lord->counters.lost[stat], 0);
    mli_u64_store(&lord->counters.losses[MLI_LOST_scopes], 0);
    mli_u64_store(&lord->counters.losses[MLI_LOST_snapshots], 0);
}
static MLI_COLD void mli_counters_free(memlord *lord) {
    mli_thread *t;
    int book;
    for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) {
        mli_vector_free(lord, &t->cells[MLI_BOOK_SITE], sizeof(mli_cell));
        mli_vector_free(lord, &t->cells[MLI_BOOK_TAG], sizeof(mli_cell));
    }
    for (book = 0; book < MLI_BOOKS; book++)
        mli_vector_free(lord, &lord->counters.rows[book], sizeof(mli_row));
}
MLI_PRIVATE const mli_life mli_counters_life = {0, 0, mli_counters_init, NULL, NULL, NULL,
                                                mli_counters_forked, mli_counters_free};
