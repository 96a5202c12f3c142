/* Runs the calls that record something, from their arguments to their end. Owns no state. Uses the
   map, the counters, the sites, the events, the fences, the limits and the bands. A public
   function does nothing on a NULL ledger; the others require one. Invariants: a call checks
   everything before it changes anything; it counts before it leaves the shard, except that the
   general path and mli_free_finish count a free at its own site afterwards; mli_call_end, which may
   run host code, comes last, with nothing held.
   Locks: none of its own.

   An alloc or a free takes one of two paths; the blocks and the totals are the same after both.

   Fast path (mli_alloc_fast, mli_free_fast): one block in a shard that this thread owns, or that is
   shared.
     1. Check that this thread used this ledger last, so that its record is at hand, that the key is
        an address, and that a new block is below 4 GiB. Read `special`, the thread's mask. The bits
        of MLI_SPECIAL_ROWS add to the block what the thread has cached: the rows of a site and a
        tag, the birth bits of a scope. Any other bit sends the call to the general path.
     2. Enter the shard of the key, and look in its home bucket: an alloc for a vacant slot, a free
        for the key. If that does not decide, continue in mli_alloc_window or mli_free_window, which
        probe further. Entering fails for a shard that another thread owns, which the general path
        makes shared, and for a new one, of which the general path makes this thread the owner.
     3. Insert or erase the entry. Add the bytes to up to three cells of this thread, of the device,
        the site and the tag. In an owned shard this needs no lock and no locked instruction: only
        the owner writes to it, and only this thread counts in its cells. A second thread that
        needs the shard sets its state to STOPPED, waits until the owner is outside, and then sets
        it to SHARED for good. In a shared shard entering locks the home bucket, and the store of
        its header unlocks it.
     4. If a level is a new high of its cell or below its base (it may be due to be published; a
        thread that only grows comes here with every alloc), or if `alert` has a bit for the device,
        continue in mli_alloc_finish or mli_free_finish. `alert` is the ledger's mask of what the
        end of a call has to do: events, fences (of the device's type), bands (of any device),
        waiters, threads, pollers, a report.
     5. Leave the shard.
   A call that fails in step 1 or 2 has changed nothing: it starts again on the general path. The
   code of these steps is compiled twice. `bare` calls have special = 0 and a shard that this thread
   owns; those that do not start again in mli_alloc_full or mli_free_full, which serve all the rest.

   General path (mli_alloc_general, mli_free_general): every block, every shard, every thread.
     1. Check the arguments. An alloc makes its device known.
     2. Get a thread record (mli_thread_get): the thread's own, or the orphan record, locked. A call
        from within the ledger's own allocator call gets none: it returns and records nothing.
     3. An alloc draws its bytes off the ticket it names, or off the thread's, and looks up or makes
        the rows and cells of its site and tag.
     4. Insert the entry or erase it, and count, with the functions of books/blocks:
          mli_block_open > mli_entry_put > mli_probe_find > mli_probe_put > mli_count
          mli_block_close > mli_probe_live > mli_probe_end_block > mli_count_close > mli_count
        A release of a block with more references only takes one off. A block with fences becomes
        pending.
     5. Record the event, put the thread record back, write the line of MEMLORD_DEBUG.
     6. mli_call_end does what `alert` asks for. */
#ifndef MLI_CALLS_RECORD_H
#define MLI_CALLS_RECORD_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/unwind.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/tags.h"
#include "books/stacks.h"
#include "books/blocks.h"
#include "books/limits.h"
#include "calls/deferred.h"

#define MLI_FAST_SIZE_BITS 32 /* a block of 2^32 bytes or more takes the general path */

/* A call on the general path. */
typedef struct mli_call {
    mli_thread *t;        /* the record it counts on */
    uint32_t dev;         /* the device of the block it records */
    mli_ticket_draw draw; /* its bytes that may come off tickets */
} mli_call;

/* Begins a call that records a block: checks its arguments, makes its device known, and gets the
   thread record. call->t NULL: the caller returns the result; OK from within the ledger's own
   allocator call, which passes through. */
static MLI_HOT memlord_result mli_call_begin(memlord *lord, memlord_device device, uint64_t storage,
                                             uint64_t bytes, mli_call *call) {
    memlord_result r;
    call->t = NULL;
    call->draw = mli_draw_none;
    if (MLI_UNLIKELY(mli_self.in_host_alloc)) return MEMLORD_OK;
    if (MLI_UNLIKELY(!mli_key_valid(storage) || bytes > MLI_BYTES_MAX))
        return MEMLORD_E_INVALID;
    r = mli_dev(lord, device, &call->dev);
    if (r == MEMLORD_OK) call->t = mli_thread_get(lord);
    return r;
}
/* Sets the bytes that the call is about to record in flight, if it or its thread has tickets. */
static MLI_HOT void mli_call_draw(memlord *lord, mli_call *call, uint64_t bytes) {
    if (call->draw.named || (mli_u32_load(&call->t->special) & MLI_SPECIAL_TICKET))
        mli_ticket_draw_begin(lord, call->t, call->dev, bytes, &call->draw);
}
/* Ends a call and returns r. `did`: the block was recorded. Puts the thread record back first, so
   that nothing is held while the logger and the end of the call run host code. */
static MLI_HOT memlord_result mli_call_finish(memlord *lord, mli_call *call, memlord_result r,
                                              int did, const char *verb, const memlord_block *block,
                                              const memlord_site *site) {
    mli_thread_put(lord, call->t);
    if (call->draw.phys) mli_ticket_draw_end(lord, call->t, &call->draw, did);
    if (mli_debug_on(lord))
        mli_log_call(lord, did, verb, block->device, block->storage, block->bytes, site);
    if (call->dev) mli_call_end(lord, call->t, call->dev, 1);
    return r;
}

/* Records a block in any shard, for any thread; `how` is MLI_PUT_ALLOC or MLI_PUT_TRACK. Its bytes
   come off a ticket, or with 0 off those of its thread. Without memory it counts as dropped. */
MLI_PRIVATE memlord_result mli_alloc_off_ticket(memlord *lord, memlord_ticket ticket,
                                                memlord_device device, uint64_t storage,
                                                uint64_t bytes, const memlord_site *site, int how);

/* Frees or releases a block in any shard, for any thread; `how` is MLI_END_FREE or
   MLI_END_RELEASE. Storage 0 does nothing. *gone is the entry that ended, with key 0 if none did.
   With `gone` NULL this function writes the line of MEMLORD_DEBUG, else its caller does. */
MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_general(memlord *lord, memlord_device device,
                                                         uint64_t storage, int how,
                                                         const memlord_site *site, mli_entry *gone);
MLI_PRIVATE MLI_NOINLINE memlord_result mli_alloc_slow(memlord *lord, memlord_device device,
                                                       uint64_t storage, uint64_t bytes,
                                                       const memlord_site *site);
MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_slow(memlord *lord, memlord_device device,
                                                      uint64_t storage, int how,
                                                      const memlord_site *site);

/* The rows of a block, and the cells of this thread for them. */
typedef struct mli_block_rows {
    uint64_t word2;
    mli_cell *device, *site, *tag; /* site, tag: NULL for none */
    uint32_t dev;                  /* the number of the device */
} mli_block_rows;

/* Finds the rows and the birth of a new block that the bits in `special` ask for, and the cells of
   this thread, from its cache. 0: the thread lacks one, or the alloc is taken. */
static MLI_HOT int mli_rows_cached(const memlord *lord, mli_thread *t, uint32_t special,
                                   memlord_device device, uint64_t bytes, const memlord_site *site,
                                   mli_block_rows *rows) {
    MLI_REQUIRE(!(special & ~(uint32_t)(MLI_SPECIAL_ROWS | MLI_SPECIAL_STACKS)));
    const uint32_t dev =
        mli_dev_direct(lord, device);
    const mli_cache_entry *memo;
    rows->dev = dev;
    rows->word2 = mli_mark_bits(lord);
    rows->device = mli_cell_own_device(t, dev);
    if (MLI_UNLIKELY(!rows->device)) return 0;
    if (special & MLI_SPECIAL_SCOPE) {
        if (MLI_UNLIKELY(!t->birth_bits || t->birth_mark != rows->word2)) return 0;
        rows->word2 = t->birth_bits;
    }
    if (special & MLI_SPECIAL_TAG) {
        memo = mli_cache_find(t, t->tag, mli_cache_salt(MLI_CACHE_TAG, dev));
        if (MLI_UNLIKELY(!memo)) return 0;
        rows->tag = (mli_cell *)memo->value;
        rows->word2 |= memo->bits;
    }
    if (site && (special & MLI_SPECIAL_SITES)) {
        memo = mli_cache_find(t, site, mli_cache_salt(MLI_CACHE_SITE, dev));
        if (MLI_UNLIKELY(!memo)) return 0;
        rows->site = (mli_cell *)memo->value;
        rows->word2 |= memo->bits;
    }
    return !(special & MLI_SPECIAL_STACKS) || mli_stack_passes(t, bytes);
}

/* Ends an alloc of the fast path that has inserted and counted its block and has more to do: a
   cell to publish, a table to grow, an event, an alert. Requires: inside. Leaves. */
MLI_PRIVATE MLI_NOINLINE memlord_result mli_alloc_finish(memlord *lord, uint32_t dev,
                                                         uint64_t storage, uint64_t bytes,
                                                         uint64_t word2);
/* Ends a free of the fast path that has erased and counted its block and has more to do: a cell to
   publish, the count at the site of the free, an event, an alert. Requires: inside. Leaves. */
MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_finish(memlord *lord, uint32_t dev,
                                                        uint64_t storage, const memlord_site *site,
                                                        uint64_t bytes, uint64_t word2);

/* 1: the key is an address: no handle, not 0 or another refused key, and none of the topmost keys,
   where the addition wraps around. */
static MLI_HOT int mli_key_is_address(uint64_t key) {
    return (key + ((uint64_t)1 << MLI_HANDLE_BITS)) >> MLI_HANDLE_BITS > 1;
}

/* 1: `alert` has something for the end of a call on this device, an event included. */
static MLI_HOT int mli_alerted(const memlord *lord, uint32_t dev) {
    const uint32_t any = mli_alert_on(lord, UINT32_MAX);
    return any && mli_dev_alerts(lord, any, dev);
}

/* Counts an inserted block in the thread's cells, and leaves. `past` collects the signs of the
   counts: negative if a level is a new high of its cell, or if the shard should grow. */
static MLI_HOT memlord_result mli_alloc_count(memlord *lord, mli_thread *t, uint64_t storage,
                                              uint64_t bytes, const mli_block_rows *rows,
                                              int64_t past) {
    past |= mli_cell_count_alloc(rows->device, bytes);
    if (rows->site) past |= mli_cell_count_alloc(rows->site, bytes);
    if (rows->tag) past |= mli_cell_count_alloc(rows->tag, bytes);
    if (MLI_UNLIKELY(past < 0 || mli_alerted(lord, rows->dev)))
        return mli_alloc_finish(lord, rows->dev, storage, bytes, rows->word2);
    mli_shard_leave(t);
    return MEMLORD_OK;
}
/* Goes on with an alloc of the fast path whose home bucket does not decide: probes the buckets
   after it, or falls back to the general path before it changes anything. Requires: inside; a
   shared shard's home is locked. Leaves. */
MLI_PRIVATE MLI_OWN_FRAME MLI_NOINLINE memlord_result mli_alloc_window(memlord *lord,
                                                                       memlord_device device,
                                                                       uint64_t storage,
                                                                       uint64_t bytes,
                                                                       const memlord_site *site);

MLI_PRIVATE MLI_NOINLINE memlord_result mli_alloc_full(memlord *lord, memlord_device device,
                                                  uint64_t storage, uint64_t bytes,
                                                  const memlord_site *site);
#if defined(__OPTIMIZE__) || !defined(__GNUC__)
#define MLI_ENTER() (void)0
#else
#define MLI_ENTER() (void)(mli_self.entered = MLI_RETURN_ADDRESS())
#endif

/* Records a block on the fast path, or falls back before it changes anything: to the general path,
   or with `bare` = 1 to mli_alloc_full, the same with 0. `bare` serves only calls with no special
   bit, in a shard of this thread: the compiler leaves out the rest, and saves few registers. */
static MLI_HOT memlord_result mli_alloc_fast(memlord *lord, memlord_device device, uint64_t storage,
                                             uint64_t bytes, const memlord_site *site, int bare) {
    mli_thread *t = mli_self.thread;
    mli_block_rows rows = {0, NULL, NULL, NULL, 0};
    mli_home home;
    mli_entry *e;
    uint64_t with;
    uint32_t special;
    if (bare && MLI_UNLIKELY(mli_self.generation != lord->generation ||
                             !mli_key_is_address(storage) || bytes >> MLI_FAST_SIZE_BITS))
        return MLI_ENTER(), mli_alloc_slow(lord, device, storage, bytes, site);
    special = mli_u32_load(&t->special);
    if (bare && MLI_UNLIKELY(special))
        return MLI_ENTER(), mli_alloc_full(lord, device, storage, bytes, site);
    if (MLI_UNLIKELY((special & ~(uint32_t)(MLI_SPECIAL_ROWS | MLI_SPECIAL_STACKS)) ||
                     !mli_home_enter(t, mli_shard_of(lord, storage, 1), storage, bare, &home)))
        return bare ? (MLI_ENTER(), mli_alloc_full(lord, device, storage, bytes, site))
                    : mli_alloc_slow(lord, device, storage, bytes, site);
    e = mli_home_room(home, &with);
    if (bare && MLI_UNLIKELY(!e)) MLI_ENTER();
    if (MLI_UNLIKELY(!e)) return mli_alloc_window(lord, device, storage, bytes, site);
    if (MLI_UNLIKELY(!mli_rows_cached(lord, t, special, device, bytes, site, &rows))) {
        if (bare) MLI_ENTER();
        mli_home_leave(t, home.bucket);
        return mli_alloc_slow(lord, device, storage, bytes, site);
    }
    e->key = storage;
    e->word1 = mli_word1_of(bytes, rows.dev, 1);
    e->word2 = rows.word2;
    mli_u64_store_release(&home.bucket->header, with); /* inserts it, and unlocks */
    return mli_alloc_count(lord, t, storage, bytes, &rows, 0);
}

/* Finds the cells of a block for this thread. 0: the block has more references, a side record or a
   stack, its device is of another type, or the thread lacks a cell. It begins with the device that
   the caller names, which is most often the block's, and then compares the two: so the processor
   predicts that branch and counts before the entry has come from memory (with 100,000 blocks that
   saves a fifth of a call). The return in the branch keeps compilers from a conditional move, which
   would wait for the entry. */
static MLI_HOT int mli_entry_cells(const memlord *lord, const mli_thread *t, memlord_device device,
                                   const mli_entry *e, int bare, mli_block_rows *rows) {
    uint32_t dev = mli_dev_direct(lord, device);
    uint32_t row;
    if (MLI_UNLIKELY(e->word1 >> 49 != dev + 256u)) { /* 256: one reference */
        dev = (uint32_t)(e->word1 >> 49) - 256u;
        if (dev > 255 || mli_type_of(lord, dev) != (uint16_t)device.type) return 0;
    }
    if (MLI_UNLIKELY(e->word2 & (bare ? MLI_ROWS_MASK : 1))) return 0;
    rows->word2 = e->word2;
    rows->dev = dev;
    rows->device = mli_cell_own_device(t, dev);
    if (MLI_UNLIKELY(!rows->device)) return 0;
    if (bare) return 1;
    row = MLI_SITE_ROW(e->word2);
    if (row && !(rows->site = mli_cell_own_row(t, MLI_BOOK_SITE, row))) return 0;
    row = MLI_TAG_ROW(e->word2);
    return !row || (rows->tag = mli_cell_own_row(t, MLI_BOOK_TAG, row)) != NULL;
}

/* Counts an erased block in the thread's cells, and leaves. `past`: negative if a level fell below
   its cell's base, or if the freed bytes call for a band check. */
static MLI_HOT memlord_result mli_free_count(memlord *lord, mli_thread *t, uint64_t storage,
                                             uint64_t bytes, const mli_block_rows *rows,
                                             const memlord_site *site, uint32_t special) {
    int64_t past = mli_cell_count_free(rows->device, bytes);
    const mli_cache_entry *here = NULL;
    mli_u64_add_own(&rows->device->frees, 1);
    past |= mli_cell_tripped(rows->device);
    if (rows->site) past |= mli_cell_count_free(rows->site, bytes);
    if (rows->tag) {
        past |= mli_cell_count_free(rows->tag, bytes);
        mli_u64_add_own(&rows->tag->frees, 1);
    }
    if (site && (special & MLI_SPECIAL_SITES)) {
        here = mli_cache_find(t, site, mli_cache_salt(MLI_CACHE_SITE, rows->dev));
        if (MLI_UNLIKELY(!here)) past = -1;
    }
    if (MLI_UNLIKELY(past < 0 || mli_alerted(lord, rows->dev)))
        return mli_free_finish(lord, rows->dev, storage, site, bytes, rows->word2);
    if (here) {
        mli_u64_add_own(&((mli_cell *)here->value)->frees, 1);
        mli_u64_add_own(&((mli_cell *)here->value)->freed_here, bytes);
    }
    mli_shard_leave(t);
    return MEMLORD_OK;
}
/* Goes on with a free of the fast path whose home bucket does not decide, as mli_alloc_window does.
   Requires: inside; a shared shard's home is locked. Leaves. */
MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_window(memlord *lord, memlord_device device,
                                                        uint64_t storage, int how,
                                                        const memlord_site *site);

MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_full(memlord *lord, memlord_device device,
                                                 uint64_t storage, int how,
                                                 const memlord_site *site);
/* Frees or releases a block on the fast path, or falls back as mli_alloc_fast does. Both are the
   same for a block with one reference, the only kind served here; `bare` = 1 serves none with rows.
   A handle needs no test: the probe treats it as an address, does not find it and falls back. */
static MLI_HOT memlord_result mli_free_fast(memlord *lord, memlord_device device, uint64_t storage,
                                            int how, const memlord_site *site, int bare) {
    mli_thread *t = mli_self.thread;
    mli_block_rows rows = {0, NULL, NULL, NULL, 0};
    mli_home home;
    const mli_entry *e;
    uint64_t bytes, without;
    uint32_t special;
    if (bare && MLI_UNLIKELY(mli_self.generation != lord->generation || !storage))
        return mli_free_slow(lord, device, storage, how, site);
    special = mli_u32_load(&t->special);
    if (bare && MLI_UNLIKELY(special)) return mli_free_full(lord, device, storage, how, site);
    if (MLI_UNLIKELY((special & ~(uint32_t)(MLI_SPECIAL_ROWS | MLI_SPECIAL_STACKS)) ||
                     !mli_home_enter(t, mli_shard_of(lord, storage, 1), storage, bare, &home)))
        return bare ? mli_free_full(lord, device, storage, how, site)
                    : mli_free_slow(lord, device, storage, how, site);
    e = mli_home_find(home, storage, &without);
    if (MLI_UNLIKELY(!e)) return mli_free_window(lord, device, storage, how, site);
    if (MLI_UNLIKELY(!mli_entry_cells(lord, t, device, e, bare, &rows))) {
        mli_home_leave(t, home.bucket);
        return bare ? mli_free_full(lord, device, storage, how, site)
                    : mli_free_slow(lord, device, storage, how, site);
    }
    bytes = MLI_BYTES(e->word1);
    mli_u64_store_release(&home.bucket->header, without); /* erases it, and unlocks */
    return mli_free_count(lord, t, storage, bytes, &rows, site, special);
}

#endif
