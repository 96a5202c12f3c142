#include "calls/fast.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/unwind.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/probes.h"
#include "books/counters.h"
#include "books/tags.h"
#include "books/events.h"
#include "books/stacks.h"
#include "books/blocks.h"
#include "calls/deferred.h"
#include "calls/record.h"

/* The steps of one alloc and of one free. memlord_alloc and memlord_free have all the code of
   the usual case: sites are off, the thread is in no tag and no scope, and the block is in a shard
   of its own. Such a call takes no lock and no locked instruction.

     1. Find the thread's record. mli_self, which is thread-local, has the thread's record in the
        ledger that it used last, and the generation of that ledger. mli_thread_get sets both, on
        the general path. So a thread's first call on a ledger takes the general path, and so does a
        call that follows a call on another ledger. The record, an mli_thread, has a mask `special`,
        whose bits give the thread's calls further work. In the usual case this mask is 0.
     2. Enter the shard of the address: store the shard in t->inside, and then load the state of the
        shard. The state is the id of the thread that owns the shard. A thread that has to stop the
        shard stores another state, makes all threads pass a barrier, and waits until no thread is
        inside. So either this call sees the other state, or the other thread sees t->inside. A
        thread that reads a shard, or makes its table larger, gives the shard back to its owner. The
        first call of another thread makes the shard shared for good: then every call locks the
        buckets that it uses.
     3. Look at the home bucket, which the hash of the address chooses. A bucket has slots, each for
        one entry. The bucket's header has a print of each entry, which is a byte of the hash. A
        call compares all prints at once. An alloc finds a vacant slot, a free finds the entry.
        mli_home_room and mli_home_find prepare the header that the call is to store, with the print
        of the slot set or cleared.
     4. Find the device's number, its dev, and the thread's mli_cell for it: the thread's part of
        the device's counters. Only this thread counts in the cell. A free compares the dev with the
        one in the entry.
     5. Change the table. An alloc writes the entry. Then both store the header, which inserts or
        erases the entry.
     6. Count the bytes in the cell. Readers add up the cells of all threads, so they see the count
        at once. The level of a cell is the bytes that the thread allocated, less those that it
        freed. The function that counts returns a negative number in two cases. First, an alloc
        raises the level above the cell's limit, or a free takes the level below the published
        part; then mli_cell_publish_due has to publish the cell. Second, after a free, a check of
        the device's bands is due.
     7. Leave the shard: store NULL in t->inside. If that number was negative, mli_alloc_finish or
        mli_free_finish leaves the shard, after it has published the cells that are due. These
        functions also run if `alert` has a bit that concerns the device. `alert` is the ledger's
        mask of the work for the end of a call, such as events, fences, bands, waiters, or a report.

   The stores of the usual case, in their order:
     alloc  t->inside; the entry's key, word1 (device, bytes, references 1) and word2 (the number of
            the present mark: see mli_mark_bits); the header; the cell's allocs and level; t->inside
     free   t->inside; the header; the cell's out (the bytes that the thread freed), level and
            frees; t->inside

   A call that the usual case does not serve goes to another function before it has changed
   anything:
     mli_alloc_other   if the arguments do not fit: another ledger than the thread's last one, a
                       handle (a key too small for an address), a large block, a key that is
                       refused. It sends handles to mli_alloc_full, and other calls to
                       mli_alloc_slow
     mli_alloc_full    if `special` is not 0 or the shard is not the thread's own. It serves the
                       bits of MLI_SPECIAL_SERVED (tags, sites, scopes, stacks), also in shared
                       shards
     mli_alloc_window  if the home bucket is not enough. It probes the buckets after the home. The
                       thread stays inside
     mli_alloc_slow    in all other cases, such as a missing cell. It runs the general path, in
                       calls/record: every block, every shard, every thread. It makes what is
                       missing: the thread's record, the device, rows, cells
   A free has mli_free_other, mli_free_full, mli_free_window and mli_free_slow. mli_free_other also
   takes all releases, and mli_free_full all blocks that have a row of a site or a tag. */

#define MLI_FAST_SIZE_BITS 32 /* a block of 2^32 bytes or more takes the general path */

/* Returns 1 if the key is an address. Returns 0 for a handle (a key too small for an address), and
   for a key that is refused, such as 0. Returns 0 for the topmost keys too, because the addition
   wraps around. */
static MLI_HOT int mli_key_is_address(uint64_t key) {
    return (key + ((uint64_t)1 << MLI_HANDLE_BITS)) >> MLI_HANDLE_BITS > 1;
}

/* Returns 1 if the ledger's mask `alert` has work for the end of a call on this device. */
static MLI_HOT int mli_alerted(const memlord *lord, uint32_t dev) {
    const uint32_t alert = mli_alert_on(lord, UINT32_MAX);
    return alert && mli_dev_alerts(lord, alert, dev);
}

/* Notes the return address of memlord_alloc, before memlord_alloc calls a function that may sample
   a stack. Optimized code makes no note, because memlord_alloc would then have to save registers in
   calls with sites and tags. From -O2 on no note is needed: memlord_alloc jumps to that function,
   and so leaves no frame of its own on the stack. At -O1 the address stays unknown, so a stack that
   cannot be unwound has no frame at all. Code for s390x always makes the note, because there
   memlord_alloc cannot jump: the fifth argument lies in a register that the callee preserves. */
#if (defined(__OPTIMIZE__) && !defined(__s390x__)) || !defined(__GNUC__)
#define MLI_NOTE_ENTRY() (void)0
#else
#define MLI_NOTE_ENTRY() (void)(mli_self.entered = MLI_RETURN_ADDRESS())
#endif

static memlord_result mli_alloc_full(memlord *lord, memlord_device device, uint64_t storage,
                                     uint64_t bytes, const memlord_site *site);
static memlord_result mli_alloc_other(memlord *lord, memlord_device device, uint64_t storage,
                                      uint64_t bytes, const memlord_site *site);
static memlord_result mli_alloc_window(memlord *lord, memlord_device device, uint64_t storage,
                                       uint64_t bytes, const memlord_site *site);
static memlord_result mli_alloc_finish(memlord *lord, uint32_t dev, uint64_t storage,
                                       uint64_t bytes, uint64_t word2);

MEMLORD_API MLI_OWN_FRAME memlord_result memlord_alloc(memlord *lord, memlord_device device,
                                                       uint64_t storage, uint64_t bytes,
                                                       const memlord_site *site) {
    mli_thread *t = mli_self.thread;
    mli_home home;
    mli_entry *e;
    mli_cell *cell;
    uint64_t birth;
    uint32_t dev;
    if (!lord) return MEMLORD_OK;
    MLI_NOTE_ENTRY();
    if (MLI_UNLIKELY(mli_self.generation != lord->generation ||
                     !mli_key_is_address(storage) || bytes >> MLI_FAST_SIZE_BITS))
        return mli_alloc_other(lord, device, storage, bytes, site);
    if (MLI_UNLIKELY(mli_u32_load(&t->special)) ||
        MLI_UNLIKELY(!mli_home_enter_own(t, mli_shard_of_address(lord, storage), storage, &home)))
        return mli_alloc_full(lord, device, storage, bytes, site);
    e = mli_home_room(&home);
    if (MLI_UNLIKELY(!e)) return mli_alloc_window(lord, device, storage, bytes, site);
    dev = mli_dev_direct(lord, device);
    birth = mli_mark_bits(lord);
    cell = mli_cell_own_device(t, dev);
    if (MLI_UNLIKELY(!cell)) {
        mli_shard_leave(t);
        return mli_alloc_slow(lord, device, storage, bytes, site);
    }
    e->key = storage;
    e->word1 = mli_word1_of(bytes, dev, 1);
    e->word2 = birth;
    mli_home_store(&home);
    if (MLI_UNLIKELY(mli_cell_count_alloc(cell, bytes) < 0 || mli_alerted(lord, dev)))
        return mli_alloc_finish(lord, dev, storage, bytes, birth);
    mli_shard_leave(t);
    return MEMLORD_OK;
}

static memlord_result mli_free_full(memlord *lord, memlord_device device, uint64_t storage, int how,
                                    const memlord_site *site);
static memlord_result mli_free_other(memlord *lord, memlord_device device, uint64_t storage,
                                     int how, const memlord_site *site);
static memlord_result mli_free_window(memlord *lord, memlord_device device, uint64_t storage,
                                      int how, const memlord_site *site);
static memlord_result mli_free_finish(memlord *lord, uint32_t dev, uint64_t storage,
                                      const memlord_site *site, uint64_t bytes, uint64_t word2);

/* Finds the dev of an entry. Returns 0 if the block has more than one reference or a sampled stack,
   or if its device is not of the type of `device`. The block is most often on `device`, so the
   function starts from the dev of `device`, and then compares that dev with the entry's. The
   processor predicts the branch, so the call can go on before the entry has come from memory. With
   100,000 blocks this saves a fifth of a call's time. The return in the branch keeps compilers from
   a conditional move, which would wait for the entry. */
static MLI_HOT int mli_entry_dev(const memlord *lord, memlord_device device, const mli_entry *e,
                                 uint32_t *dev) {
    *dev = mli_dev_direct(lord, device);
    if (MLI_UNLIKELY(MLI_UPPER(e->word1) != MLI_UPPER_OF(*dev, 1))) {
        *dev = MLI_DEV(e->word1);
        if (MLI_UPPER(e->word1) != MLI_UPPER_OF(*dev, 1) ||
            mli_type_of(lord, *dev) != (uint16_t)device.type)
            return 0;
    }
    return 1;
}

/* Finds the dev of an entry, and returns the thread's cell for it. Returns NULL if mli_entry_dev
   returns 0, if the block has a row of a site or a tag, or a side record, or if the thread has no
   cell. */
static MLI_HOT mli_cell *mli_entry_cell(const memlord *lord, const mli_thread *t,
                                        memlord_device device, const mli_entry *e, uint32_t *dev) {
    if (!mli_entry_dev(lord, device, e, dev)) return NULL;
    if (MLI_UNLIKELY(e->word2 & MLI_ROWS_MASK)) return NULL;
    return mli_cell_own_device(t, *dev);
}

MEMLORD_API memlord_result memlord_free(memlord *lord, memlord_device device, uint64_t storage,
                                        const memlord_site *site) {
    mli_thread *t = mli_self.thread;
    mli_home home;
    const mli_entry *e;
    mli_cell *cell;
    uint64_t bytes, word2;
    uint32_t dev;
    if (!lord) return MEMLORD_OK;
    if (MLI_UNLIKELY(mli_self.generation != lord->generation || mli_key_is_handle(storage)))
        return mli_free_other(lord, device, storage, MLI_END_FREE, site);
    if (MLI_UNLIKELY(mli_u32_load(&t->special)) ||
        MLI_UNLIKELY(!mli_home_enter_own(t, mli_shard_of_address(lord, storage), storage, &home)))
        return mli_free_full(lord, device, storage, MLI_END_FREE, site);
    e = mli_home_find(&home, storage);
    if (MLI_UNLIKELY(!e)) return mli_free_window(lord, device, storage, MLI_END_FREE, site);
    cell = mli_entry_cell(lord, t, device, e, &dev);
    if (MLI_UNLIKELY(!cell)) {
        mli_shard_leave(t);
        return mli_free_full(lord, device, storage, MLI_END_FREE, site);
    }
    bytes = MLI_BYTES(e->word1);
    word2 = e->word2;
    mli_home_store(&home);
    if (MLI_UNLIKELY(mli_cell_count_device_free(cell, bytes) < 0 || mli_alerted(lord, dev)))
        return mli_free_finish(lord, dev, storage, site, bytes, word2);
    mli_shard_leave(t);
    return MEMLORD_OK;
}
/* Releases a block. A release of the last reference is a free. Most releases take one of several
   references off a block. Only the general path does that, so this function does not try what
   memlord_free does. */
MEMLORD_API memlord_result memlord_release(memlord *lord, memlord_device device, uint64_t storage,
                                           const memlord_site *site) {
    if (!lord) return MEMLORD_OK;
    return mli_free_other(lord, device, storage, MLI_END_RELEASE, site);
}

/* -- what the usual case leaves out --
   Only memlord_alloc, memlord_free and memlord_release come here. */

/* The rows of a block, and the cells of this thread for them. */
typedef struct mli_block_rows {
    uint64_t word2;
    mli_cell *device_cell, *site_cell, *tag_cell; /* this thread's counters; NULL if the block has
                                                     no site, or no tag */
    uint32_t dev;                  /* the number of the device */
} mli_block_rows;

/* Finds what a new block needs: its rows, its birth (mark, scope and stream) and this thread's
   cells for the rows. The bits in the thread's mask `special` say whether the function looks for a
   scope, a tag or a site. Looks only in the thread's record and in the cache of that record.
   Returns 0 if something is not found there, or if the stack of this alloc is to be sampled. */
static MLI_HOT int mli_rows_cached(const memlord *lord, mli_thread *t, uint32_t special,
                                   memlord_device device, uint64_t bytes, const memlord_site *site,
                                   mli_block_rows *rows) {
    MLI_REQUIRE(!(special & ~(uint32_t)MLI_SPECIAL_SERVED));
    const uint32_t dev = mli_dev_direct(lord, device);
    const mli_cache_entry *memo;
    rows->dev = dev;
    rows->word2 = mli_mark_bits(lord);
    rows->device_cell = mli_cell_own_device(t, dev);
    if (MLI_UNLIKELY(!rows->device_cell)) return 0;
    if (special & MLI_SPECIAL_SCOPE) {
        if (MLI_UNLIKELY(!t->now.birth_bits || t->now.birth_mark != rows->word2)) return 0;
        rows->word2 = t->now.birth_bits;
    }
    if (special & MLI_SPECIAL_TAG) {
        memo = mli_cache_find(t, t->now.tag, mli_cache_salt(MLI_CACHE_TAG, dev));
        if (MLI_UNLIKELY(!memo)) return 0;
        rows->tag_cell = (mli_cell *)memo->value;
        rows->word2 |= memo->bits;
    }
    if (site && (special & MLI_SPECIAL_SITES)) {
        memo = mli_cache_find(t, site, mli_cache_salt(MLI_CACHE_SITE, dev));
        if (MLI_UNLIKELY(!memo)) return 0;
        rows->site_cell = (mli_cell *)memo->value;
        rows->word2 |= memo->bits;
    }
    return !(special & MLI_SPECIAL_STACKS) || mli_stack_passes(t, bytes);
}
/* Finds the rows of an entry, and this thread's cells for them. Returns 0 if mli_entry_dev returns
   0, if the block has a side record, or if the thread lacks a cell. */
static MLI_HOT int mli_rows_of_entry(const memlord *lord, const mli_thread *t,
                                     memlord_device device, const mli_entry *e,
                                     mli_block_rows *rows) {
    uint32_t row;
    if (!mli_entry_dev(lord, device, e, &rows->dev)) return 0;
    if (MLI_UNLIKELY(e->word2 & MLI_HAS_SIDE)) return 0;
    rows->word2 = e->word2;
    rows->device_cell = mli_cell_own_device(t, rows->dev);
    if (MLI_UNLIKELY(!rows->device_cell)) return 0;
    row = MLI_SITE_ROW(e->word2);
    if (row && !(rows->site_cell = mli_cell_own_row(t, MLI_BOOK_SITE, row))) return 0;
    row = MLI_TAG_ROW(e->word2);
    return !row || (rows->tag_cell = mli_cell_own_row(t, MLI_BOOK_TAG, row)) != NULL;
}

/* Publishes those cells of a block's rows that have too many bytes unpublished. */
static MLI_COLD void mli_rows_publish_due(memlord *lord, const mli_thread *t,
                                          uint32_t dev, uint64_t word2) {
    MLI_REQUIRE(mli_is_inside());
    const uint32_t site = MLI_SITE_ROW(word2), tag = MLI_TAG_ROW(word2);
    mli_cell_publish_due(lord, MLI_BOOK_DEVICE, dev, mli_cell_own_device(t, dev));
    mli_cell_publish_due(lord, MLI_BOOK_SITE, site, mli_cell_own_row(t, MLI_BOOK_SITE, site));
    mli_cell_publish_due(lord, MLI_BOOK_TAG, tag, mli_cell_own_row(t, MLI_BOOK_TAG, tag));
}

/* Ends an alloc that has inserted and counted its block and has more to do: a cell to publish, a
   table to grow, an event, an alert. Leaves the shard. */
static MLI_NOINLINE memlord_result mli_alloc_finish(memlord *lord, uint32_t dev, uint64_t storage,
                                                    uint64_t bytes, uint64_t word2) {
    MLI_REQUIRE(mli_is_inside());
    mli_thread *t = mli_self.thread;
    mli_shard *s = mli_shard_entered(t);
    const int crowded = mli_shard_crowded(lord, s);
    const uint32_t size = s->size;
    mli_rows_publish_due(lord, t, dev, word2);
    mli_shard_leave(t);
    if (crowded) (void)mli_shard_grow(lord, t, s, size); /* without memory the table keeps its
                                                            size */
    mli_event_record(lord, t, MEMLORD_EVENT_ALLOC, dev, storage, bytes, word2);
    mli_call_end(lord, t, dev, 1);
    return MEMLORD_OK;
}
/* Ends a free that has erased and counted its block and has more to do: a cell to publish, the
   count at the site of the free, an event, an alert. Leaves the shard. */
static MLI_NOINLINE memlord_result mli_free_finish(memlord *lord, uint32_t dev, uint64_t storage,
                                                   const memlord_site *site, uint64_t bytes,
                                                   uint64_t word2) {
    MLI_REQUIRE(mli_is_inside());
    mli_thread *t = mli_self.thread;
    mli_rows_publish_due(lord, t, dev, word2);
    mli_shard_leave(t);
    mli_count_site_free(lord, t, dev, site, bytes);
    mli_event_record_end(lord, t, MEMLORD_EVENT_FREE, storage, mli_word1_of(bytes, dev, 1), word2,
                         site);
    mli_call_end(lord, t, dev, 1);
    return MEMLORD_OK;
}

/* Counts an inserted block in the thread's cells, and leaves the shard. `past` is negative if one
   of the counts returned a negative value, because a bitwise or keeps the sign bit. If `crowded` is
   1, the shard's table should grow. */
static MLI_HOT memlord_result mli_alloc_count(memlord *lord, mli_thread *t, uint64_t storage,
                                              uint64_t bytes, const mli_block_rows *rows,
                                              int crowded) {
    int64_t past = mli_cell_count_alloc(rows->device_cell, bytes);
    if (rows->site_cell) past |= mli_cell_count_alloc(rows->site_cell, bytes);
    if (rows->tag_cell) past |= mli_cell_count_alloc(rows->tag_cell, bytes);
    if (MLI_UNLIKELY(past < 0 || crowded || mli_alerted(lord, rows->dev)))
        return mli_alloc_finish(lord, rows->dev, storage, bytes, rows->word2);
    mli_shard_leave(t);
    return MEMLORD_OK;
}
/* Counts an erased block in the thread's cells and at the site of the free, and leaves the
   shard. */
static MLI_HOT memlord_result mli_free_count(memlord *lord, mli_thread *t, uint64_t storage,
                                             uint64_t bytes, const mli_block_rows *rows,
                                             const memlord_site *site, uint32_t special) {
    int64_t past = mli_cell_count_device_free(rows->device_cell, bytes);
    const mli_cache_entry *here = NULL;
    if (rows->site_cell) past |= mli_cell_count_free(rows->site_cell, bytes);
    if (rows->tag_cell) {
        past |= mli_cell_count_free(rows->tag_cell, bytes);
        mli_u64_add_own(&rows->tag_cell->frees, 1);
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

static MLI_OWN_FRAME MLI_NOINLINE memlord_result mli_alloc_full(memlord *lord,
                                                                memlord_device device,
                                                                uint64_t storage, uint64_t bytes,
                                                                const memlord_site *site) {
    mli_thread *t = mli_self.thread;
    const uint32_t special = mli_u32_load(&t->special);
    mli_block_rows rows = {0, NULL, NULL, NULL, 0};
    mli_home home;
    mli_entry *e;
    if (MLI_UNLIKELY(special & ~(uint32_t)MLI_SPECIAL_SERVED) ||
        MLI_UNLIKELY(!mli_home_enter(t, mli_shard_of(lord, storage), storage, &home)))
        return mli_alloc_slow(lord, device, storage, bytes, site);
    e = mli_home_room(&home);
    if (MLI_UNLIKELY(!e)) return mli_alloc_window(lord, device, storage, bytes, site);
    if (MLI_UNLIKELY(!mli_rows_cached(lord, t, special, device, bytes, site, &rows))) {
        mli_home_leave(t, &home);
        return mli_alloc_slow(lord, device, storage, bytes, site);
    }
    e->key = storage;
    e->word1 = mli_word1_of(bytes, rows.dev, 1);
    e->word2 = rows.word2;
    mli_home_store(&home);
    return mli_alloc_count(lord, t, storage, bytes, &rows, 0);
}
static MLI_NOINLINE memlord_result mli_free_full(memlord *lord, memlord_device device,
                                                 uint64_t storage, int how,
                                                 const memlord_site *site) {
    mli_thread *t = mli_self.thread;
    const uint32_t special = mli_u32_load(&t->special);
    mli_block_rows rows = {0, NULL, NULL, NULL, 0};
    mli_home home;
    const mli_entry *e;
    uint64_t bytes;
    if (MLI_UNLIKELY(special & ~(uint32_t)MLI_SPECIAL_SERVED) ||
        MLI_UNLIKELY(!mli_home_enter(t, mli_shard_of(lord, storage), storage, &home)))
        return mli_free_slow(lord, device, storage, how, site);
    e = mli_home_find(&home, storage);
    if (MLI_UNLIKELY(!e)) return mli_free_window(lord, device, storage, how, site);
    if (MLI_UNLIKELY(!mli_rows_of_entry(lord, t, device, e, &rows))) {
        mli_home_leave(t, &home);
        return mli_free_slow(lord, device, storage, how, site);
    }
    bytes = MLI_BYTES(e->word1);
    mli_home_store(&home);
    return mli_free_count(lord, t, storage, bytes, &rows, site, special);
}

/* mli_alloc_other and mli_free_other take the calls that the usual case refuses because of their
   arguments, and all releases. Handles and releases go on to mli_alloc_full or mli_free_full. All
   other calls take the general path: a call on another ledger than the thread's last one, a large
   block, a key of 0. */
static MLI_OWN_FRAME MLI_NOINLINE memlord_result mli_alloc_other(memlord *lord,
                                                                 memlord_device device,
                                                                 uint64_t storage, uint64_t bytes,
                                                                 const memlord_site *site) {
    if (mli_self.generation != lord->generation || !storage || !mli_key_is_handle(storage) ||
        bytes >> MLI_FAST_SIZE_BITS)
        return mli_alloc_slow(lord, device, storage, bytes, site);
    return mli_alloc_full(lord, device, storage, bytes, site);
}
static MLI_NOINLINE memlord_result mli_free_other(memlord *lord, memlord_device device,
                                                  uint64_t storage, int how,
                                                  const memlord_site *site) {
    if (mli_self.generation != lord->generation || !storage)
        return mli_free_slow(lord, device, storage, how, site);
    return mli_free_full(lord, device, storage, how, site);
}

/* mli_alloc_window and mli_free_window take the calls for which the home bucket of the key is not
   enough. They probe the buckets after the home bucket, and leave the shard. Require: the thread is
   inside the shard; if the shard is shared, the thread has locked the home bucket. */
static MLI_OWN_FRAME MLI_NOINLINE memlord_result mli_alloc_window(memlord *lord,
                                                                  memlord_device device,
                                                                  uint64_t storage, uint64_t bytes,
                                                                  const memlord_site *site) {
    MLI_REQUIRE(mli_is_inside());
    mli_thread *t = mli_self.thread;
    /* Other threads may have set further bits of this mask since the call began. The thread's next
       call serves these bits. */
    const uint32_t special = mli_u32_load(&t->special) & MLI_SPECIAL_SERVED;
    mli_block_rows rows = {0, NULL, NULL, NULL, 0};
    mli_probe probe;
    mli_home_probe(t, storage, &probe);
    if (mli_probe_scan(lord, &probe, (uint32_t)device.type, 1) || probe.entry || !probe.room ||
        !mli_rows_cached(lord, t, special, device, bytes, site, &rows)) {
        mli_probe_leave(t, &probe);
        return mli_alloc_slow(lord, device, storage, bytes, site);
    }
    mli_probe_insert(&probe, mli_word1_of(bytes, rows.dev, 1), rows.word2);
    return mli_alloc_count(lord, t, storage, bytes, &rows, mli_shard_crowded(lord, probe.shard));
}
static MLI_NOINLINE memlord_result mli_free_window(memlord *lord, memlord_device device,
                                                   uint64_t storage, int how,
                                                   const memlord_site *site) {
    MLI_REQUIRE(mli_is_inside());
    mli_thread *t = mli_self.thread;
    mli_block_rows rows = {0, NULL, NULL, NULL, 0};
    uint64_t bytes;
    mli_probe probe;
    mli_home_probe(t, storage, &probe);
    if (mli_probe_scan(lord, &probe, (uint32_t)device.type, 0) || !probe.entry ||
        !mli_rows_of_entry(lord, t, device, probe.entry, &rows)) {
        mli_probe_leave(t, &probe);
        return mli_free_slow(lord, device, storage, how, site);
    }
    bytes = MLI_BYTES(probe.entry->word1);
    mli_probe_erase(&probe);
    return mli_free_count(lord, t, storage, bytes, &rows, site, mli_u32_load(&t->special));
}
