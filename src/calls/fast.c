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
#include "books/picks.h"
#include "books/stacks.h"
#include "books/devices.h"
#include "books/accounts.h"
#include "books/parts.h"
#include "books/blocks.h"
#include "calls/deferred.h"
#include "calls/record.h"

/* The steps of one alloc and of one free. mli_open and mli_close have all of them. Both are
   compiled into memlord_alloc and memlord_free, as the plain way, for a thread whose `special` is 0
   and a shard that the thread owns: nothing is recorded for a site, tag, scope or stack, and the
   call takes no lock and no locked instruction. And both are compiled into mli_alloc_words,
   mli_alloc_fast and mli_free_words, for all blocks whose rows the thread knows, in a shard that
   the thread owns or that is shared.

     1. Find the thread's record. mli_self, which is thread-local, has the thread's record in the
        ledger that it used last, and the generation of that ledger. mli_thread_get sets both, on
        the general path. So a thread's first call on a ledger takes the general path, and so does a
        call that follows a call on another ledger. The record, an mli_thread, has a mask `special`,
        whose bits give the thread's calls further work.
     2. Enter the shard of the address: store the shard in t->inside, and then load the state of the
        shard. The state is the id of the thread that owns the shard. A thread that has to stop the
        shard stores another state, makes all threads pass a barrier, and waits until no thread is
        inside. So either this call sees the other state, or the other thread sees t->inside. A
        thread that reads a shard, or makes its table larger, gives the shard back to its owner. The
        first call of another thread makes the shard shared for good: then every call locks the
        buckets that it uses.
     3. Look at the home bucket, which the hash of the address chooses. A bucket has slots, each for
        one entry. The bucket's header has a print of each entry, which is a byte of the hash. A
        call compares all prints at once. An alloc finds a vacant slot, a free finds the entry. If
        the home alone does not settle that, a call that is not plain probes the window of the key
        (books/probes).
     4. Find the rows of the block and the thread's cells for them: an alloc in the thread's record,
        a free in the entry. A cell has the thread's part of the counters of a row. Only this thread
        counts in it. This comes after step 3, so that the bucket is loaded meanwhile.
     5. Change the table. An alloc writes the entry. Then both store the header, which inserts or
        erases the entry.
     6. Count the bytes in the cells. Readers add up the cells of all threads, so they see the count
        at once. The level of a cell is the bytes that the thread allocated, less those that it
        freed. The functions that count return a negative number in two cases. First, an alloc
        raises the level above the cell's limit, or a free takes the level below the published
        part; then mli_cell_publish_due has to publish the cell. Second, after a free, a check of
        the device's bands is due. books/counters has the order of all stores.
     7. Leave the shard: store NULL in t->inside. If that number was negative, if the table should
        grow, or if the thread does not know the site that frees, mli_alloc_finish or
        mli_free_finish leaves the shard, after it has published the cells that are due. These
        functions also run if `alert` has a bit that concerns the device. `alert` is the ledger's
        mask of the reasons for which a call does not end here, such as events, fences, bands,
        waiters, or a report.

   A way that does not serve a call changes nothing and passes it on: plain to words, words to the
   general path. mli_alloc_fast returns MLI_PASS, and its caller goes on to the general path. That
   is calls/record: every block, every shard, every thread. It makes what is missing: the thread's
   record, the device, rows, cells. */

enum {
    MLI_WAY_PLAIN, /* no site, tag, scope or stack; a shard of the thread's own */
    MLI_WAY_WORDS, /* all rows that the thread knows; a shard of its own, or a shared one */
    MLI_WAY_ASKED  /* the same, for a caller that itself goes on to the general path */
};
#define MLI_FAST_SIZE_BITS 32 /* a block of 2^32 bytes or more takes the general path */

/* Returns 1 if the key is an address. Returns 0 for a handle (a key too small for an address), and
   for a key that is refused, such as 0. Returns 0 for the topmost keys too, because the addition
   wraps around. */
static MLI_HOT int mli_key_is_address(uint64_t key) {
    return (key + ((uint64_t)1 << MLI_HANDLE_BITS)) >> MLI_HANDLE_BITS > 1;
}
/* Returns 1 if the ledger is the one that the thread used last, and the thread is not busy. */
static MLI_HOT int mli_is_last_ledger(const memlord *lord) {
    return mli_self.generation == lord->generation;
}

/* Notes the return address of memlord_alloc in the thread's record, before memlord_alloc calls a
   function that may sample a stack. Optimized code makes no note, because memlord_alloc would then
   have to save registers in calls with sites and tags. From -O2 on no note is needed: memlord_alloc
   jumps to that function, and so leaves no frame of its own on the stack. At -O1 the address stays
   unknown, so a stack that cannot be unwound has no frame at all. Code for s390x always makes the
   note, because there memlord_alloc cannot jump: the fifth argument lies in a register that the
   callee preserves. */
#if (defined(__OPTIMIZE__) && !defined(__s390x__)) || !defined(__GNUC__)
#define MLI_NOTE_ENTRY(lord) (void)0
#else
#define MLI_NOTE_ENTRY(lord) mli_entry_note(lord, MLI_RETURN_ADDRESS())
static void mli_entry_note(memlord *lord, void *address) {
    const mli_thread *t = mli_is_last_ledger(lord) ? NULL : mli_thread_get(lord);
    if (t) mli_thread_put(lord, t);
    if (mli_is_last_ledger(lord)) mli_self.thread->call.entered = address;
}
#endif

/* -- the rows of a block -- */

/* The rows of a block, and the cells of this thread for them. */
typedef struct mli_block_rows {
    uint64_t word2, upper;         /* `upper` is word1 without the bytes */
    mli_cell *device_cell, *site_cell, *tag_cell; /* this thread's counters; NULL if the block has
                                                     no site, or no tag */
    uint32_t dev;                  /* the number of the device */
} mli_block_rows;

/* Makes `device` the thread's latest device. Returns 0 if the ledger does not have it, or if the
   thread has no cell for it. */
static MLI_HOT int mli_latest_set(const memlord *lord, mli_thread *t, memlord_device device) {
    const uint32_t dev = mli_dev_direct(lord, device);
    mli_cell *cell = mli_cell_own_device(t, dev);
    if (MLI_UNLIKELY(!cell)) return 0;
    t->latest.word = mli_device_word(device);
    t->latest.dev = dev;
    t->latest.upper = mli_word1_of(0, dev, 1);
    t->latest.cell = cell;
    t->latest.tag.key = t->latest.site.key = t->latest.here.key = NULL;
    return 1;
}
/* Finds the dev of a device, and the thread's cell for it. Returns 0 as mli_latest_set does. */
static MLI_HOT int mli_device_find(const memlord *lord, mli_thread *t, memlord_device device,
                                   mli_block_rows *rows) {
    if ((MLI_UNLIKELY(t->latest.word != mli_device_word(device)) ||
         MLI_UNLIKELY(!t->latest.cell)) &&
        !mli_latest_set(lord, t, device))
        return 0;
    rows->dev = t->latest.dev;
    rows->upper = t->latest.upper;
    rows->device_cell = t->latest.cell;
    return 1;
}

/* Finds the row of a tag or a site on the thread's latest device. Returns 0 if the thread's cache
   does not have it. */
static MLI_HOT int mli_latest_row_find(mli_thread *t, int book, const void *key,
                                       mli_latest_row *row) {
    const mli_cache_entry *memo;
    if (MLI_LIKELY(row->key == key)) return 1;
    memo = mli_cache_find(t, key, mli_cache_salt(book, t->latest.dev));
    if (MLI_UNLIKELY(!memo)) return 0;
    row->key = key;
    row->cell = (mli_cell *)memo->value;
    row->bits = memo->bits;
    return 1;
}
/* Returns the thread's cell for the row that the bits of an entry's word2 name, or NULL if it has
   none. The row is most often that of the thread's last alloc. */
static MLI_HOT mli_cell *mli_latest_cell(const mli_thread *t, int book, uint64_t bits,
                                         const mli_latest_row *row) {
    if (MLI_LIKELY(bits == row->bits)) return row->cell;
    return mli_cell_own_row(t, book,
                            book == MLI_BOOK_SITE ? MLI_SITE_ROW(bits) : MLI_TAG_ROW(bits));
}

/* Returns 1 if the fast way serves an alloc with these options: no ticket, and no other stream than
   that of the thread. */
static MLI_HOT int mli_opts_served(const mli_thread *t, const memlord_alloc_opts *opts) {
    return !opts->ticket && (!opts->stream ||
                             t->now.stream == (opts->stream == MEMLORD_NONE ? 0 : opts->stream));
}
/* Charges a new block to the account that the call or the thread names, and returns its word2.
   Returns 0, and has changed nothing, if this way does not serve that. */
static MLI_NOINLINE uint64_t mli_word2_charged(memlord *lord, mli_thread *t, memlord_device device,
                                               const memlord_alloc_opts *opts, uint64_t word2,
                                               uint64_t bytes) {
    memlord_account account = opts ? opts->account : 0;
    if (account == MEMLORD_NONE ||
        (!account && !mli_selects(t->now.account_device, device)))
        return word2;
    return mli_side_open(lord, t, account ? account : t->now.account, device, word2, bytes);
}
/* Finds what a new block needs: its rows, its birth (mark, scope and stream) and this thread's
   cells for the rows. The bits in the thread's mask `special` say whether the function looks for a
   scope, a tag or a site. Looks only in the thread's record and in the cache of that record.
   Returns 0 if something is not found there. */
static MLI_HOT int mli_rows_of_call(const memlord *lord, mli_thread *t, uint32_t special,
                                    memlord_device device, const memlord_site *site,
                                    const memlord_alloc_opts *opts, mli_block_rows *rows) {
    const char *tag = special & MLI_SPECIAL_TAG ? t->now.tag : NULL;
    if (!mli_device_find(lord, t, device, rows)) return 0;
    rows->word2 = mli_mark_bits(lord);
    if (special & MLI_SPECIAL_SCOPE) {
        if (MLI_UNLIKELY(!t->now.birth_bits || t->now.birth_mark != rows->word2)) return 0;
        rows->word2 = t->now.birth_bits;
    }
    if (opts && opts->tag) {
        tag = *opts->tag ? mli_tag_cached(t, opts->tag) : NULL;
        if (MLI_UNLIKELY(!tag && *opts->tag)) return 0;
    }
    if (tag) {
        if (!mli_latest_row_find(t, MLI_BOOK_TAG, tag, &t->latest.tag)) return 0;
        rows->tag_cell = t->latest.tag.cell;
        rows->word2 |= t->latest.tag.bits;
    }
    if (site && (special & MLI_SPECIAL_SITES)) {
        if (!mli_latest_row_find(t, MLI_BOOK_SITE, site, &t->latest.site)) return 0;
        rows->site_cell = t->latest.site.cell;
        rows->word2 |= t->latest.site.bits;
    }
    return 1;
}

/* Finds the rows of an entry, and this thread's cells for them; *bytes gets the bytes of the block.
   Returns 0 if the block has a second reference, a sampled stack, or a side record with more than
   an account, if its device is not of the type of `device`, or if the thread lacks a cell. With
   `plain` also returns 0 if the block has a site or a tag. The block is most often on `device`. The
   processor predicts that branch, so the call can go on before the entry has come from memory. With
   100,000 blocks this saves a fifth of a call's time. */
static MLI_HOT int mli_rows_of_entry(const memlord *lord, mli_thread *t, memlord_device device,
                                     const mli_entry *e, int plain, mli_block_rows *rows,
                                     uint64_t *bytes) {
    uint64_t bits;
    if (!mli_device_find(lord, t, device, rows)) return 0;
    *bytes = e->word1 ^ rows->upper;
    if (MLI_UNLIKELY(*bytes >> MLI_BYTES_BITS)) {
        if (plain) return 0;
        rows->dev = MLI_DEV(e->word1);
        rows->upper = mli_word1_of(0, rows->dev, 1);
        rows->device_cell = mli_cell_own_device(t, rows->dev);
        *bytes = MLI_BYTES(e->word1);
        if ((e->word1 ^ rows->upper) >> MLI_BYTES_BITS || !rows->device_cell ||
            mli_type_of(lord, rows->dev) != (uint16_t)device.type)
            return 0;
    }
    rows->word2 = e->word2;
    if (plain) return !(e->word2 & MLI_ROWS_MASK);
    if (MLI_UNLIKELY(rows->word2 & MLI_HAS_SIDE)) {
        rows->word2 = mli_side_plain(e->word2);
        if (rows->word2 & MLI_HAS_SIDE || t->side_count == MLI_SIDES_MAX) return 0;
    }
    bits = rows->word2 & MLI_SITE_BITS;
    if (bits && !(rows->site_cell = mli_latest_cell(t, MLI_BOOK_SITE, bits, &t->latest.site)))
        return 0;
    bits = rows->word2 & MLI_TAG_BITS;
    if (bits && !(rows->tag_cell = mli_latest_cell(t, MLI_BOOK_TAG, bits, &t->latest.tag)))
        return 0;
    return 1;
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

/* -- one alloc -- */

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
    if (mli_alert_on(lord, MLI_ALERT_FORGET))
        (void)mli_drop_forget(lord, mli_type_of(lord, dev), storage);
    mli_event_record(lord, t, MEMLORD_EVENT_ALLOC, dev, storage, bytes, word2);
    mli_call_end(lord, t, dev, 1);
    return MEMLORD_OK;
}

/* Inserts an entry in the window of its key, if the home alone does not settle where. Returns 1
   if the shard's table should grow, else 0. If the window of the key has no room or may have the
   key, leaves the shard and returns -1. Requires: mli_home_enter has entered the shard. */
static MLI_NOINLINE int mli_window_insert(memlord *lord, mli_thread *t, uint32_t type,
                                          const mli_entry *e) {
    MLI_REQUIRE(mli_is_inside());
    mli_probe probe;
    mli_home_probe(t, e->key, &probe);
    if (mli_probe_scan(lord, &probe, type, 1) || probe.entry || !probe.room) {
        mli_probe_leave(t, &probe);
        return -1;
    }
    mli_probe_insert(&probe, e->word1, e->word2);
    return mli_shard_crowded(lord, probe.shard);
}

static memlord_result mli_alloc_words(memlord *lord, memlord_device device, uint64_t storage,
                                      uint64_t bytes, const memlord_site *site);

/* Passes on an alloc that a way does not serve. */
static MLI_HOT int mli_open_pass(memlord *lord, memlord_device device, uint64_t storage,
                                 uint64_t bytes, const memlord_site *site, int way) {
    if (way == MLI_WAY_PLAIN) return (int)mli_alloc_words(lord, device, storage, bytes, site);
    if (way == MLI_WAY_WORDS) return (int)mli_alloc_slow(lord, device, storage, bytes, site);
    return MLI_PASS;
}
/* Records an alloc. If this way does not serve the alloc, changes nothing and passes it on. */
static MLI_HOT int mli_open(memlord *lord, mli_thread *t, memlord_device device, uint64_t storage,
                            uint64_t bytes, const memlord_site *site,
                            const memlord_alloc_opts *opts, int way) {
    const int plain = way == MLI_WAY_PLAIN;
    const uint32_t special = plain ? 0 : mli_u32_load(&t->special);
    mli_block_rows rows = {0, 0, NULL, NULL, NULL, 0};
    int64_t past = 0; /* only the sign counts: negative means that there is more to do */
    int crowded;
    mli_home home;
    mli_entry *e, put;
    uint64_t word2;
    if (MLI_UNLIKELY(special & ~(uint32_t)MLI_SPECIAL_SERVED) ||
        (opts && MLI_UNLIKELY(!mli_opts_served(t, opts))) ||
        ((special & MLI_SPECIAL_STACKS) && MLI_UNLIKELY(!mli_stack_passes(t, bytes))) ||
        MLI_UNLIKELY(!mli_home_enter(t, lord, storage, plain, &home)))
        return mli_open_pass(lord, device, storage, bytes, site, way);
    e = mli_home_room(&home);
    if ((plain && MLI_UNLIKELY(!e)) ||
        MLI_UNLIKELY(!mli_rows_of_call(lord, t, special, device, site, opts, &rows))) {
        if (!plain) mli_home_unlock(&home);
        mli_shard_leave(t);
        return mli_open_pass(lord, device, storage, bytes, site, way);
    }
    word2 = rows.word2;
    if (!plain && MLI_UNLIKELY((special & MLI_SPECIAL_ACCOUNT) || (opts && opts->account))) {
        word2 = e ? mli_word2_charged(lord, t, device, opts, word2, bytes) : 0;
        if (!word2) {
            mli_home_unlock(&home);
            mli_shard_leave(t);
            return mli_open_pass(lord, device, storage, bytes, site, way);
        }
    }
    if (plain || MLI_LIKELY(e != NULL)) {
        e->key = storage;
        e->word1 = bytes | rows.upper;
        e->word2 = word2;
        mli_home_store(&home);
    } else {
        put.key = storage;
        put.word1 = bytes | rows.upper;
        put.word2 = word2;
        crowded = mli_window_insert(lord, t, (uint32_t)device.type, &put);
        if (crowded < 0) return mli_open_pass(lord, device, storage, bytes, site, way);
        past = -crowded;
    }
    past |= mli_cell_count_alloc(rows.device_cell, bytes);
    if (rows.site_cell) past |= mli_cell_count_alloc(rows.site_cell, bytes);
    if (rows.tag_cell) past |= mli_cell_count_alloc(rows.tag_cell, bytes);
    if (special & MLI_SPECIAL_STACKS) mli_stack_spend(t, bytes);
    if (MLI_UNLIKELY(past < 0 || mli_alerted(lord, t->latest.dev)))
        return (int)mli_alloc_finish(lord, t->latest.dev, storage, bytes, rows.word2);
    mli_shard_leave(t);
    return MEMLORD_OK;
}

/* Records an alloc of memlord_alloc that is not plain. Requires: the ledger is the one that the
   thread used last, and the block is smaller than 2^32 bytes. */
static MLI_OWN_FRAME MLI_NOINLINE memlord_result mli_alloc_words(memlord *lord,
                                                                 memlord_device device,
                                                                 uint64_t storage, uint64_t bytes,
                                                                 const memlord_site *site) {
    MLI_REQUIRE(mli_is_last_ledger(lord) && !(bytes >> MLI_FAST_SIZE_BITS));
    if (MLI_UNLIKELY(!mli_key_valid(storage)))
        return mli_alloc_slow(lord, device, storage, bytes, site);
    return (memlord_result)mli_open(lord, mli_self.thread, device, storage, bytes, site, NULL,
                                    MLI_WAY_WORDS);
}
MEMLORD_API MLI_OWN_FRAME memlord_result memlord_alloc(memlord *lord, memlord_device device,
                                                       uint64_t storage, uint64_t bytes,
                                                       const memlord_site *site) {
    mli_thread *t;
    if (!lord) return MEMLORD_OK;
    MLI_NOTE_ENTRY(lord);
    t = mli_self.thread;
    if (MLI_UNLIKELY(!mli_is_last_ledger(lord) || bytes >> MLI_FAST_SIZE_BITS))
        return mli_alloc_slow(lord, device, storage, bytes, site);
    if (MLI_UNLIKELY(!mli_key_is_address(storage) || mli_u32_load(&t->special)))
        return mli_alloc_words(lord, device, storage, bytes, site);
    return (memlord_result)mli_open(lord, t, device, storage, bytes, site, NULL, MLI_WAY_PLAIN);
}
MLI_PRIVATE MLI_NOINLINE int mli_alloc_fast(memlord *lord, memlord_device device, uint64_t storage,
                                            uint64_t bytes, const memlord_site *site,
                                            const memlord_alloc_opts *opts) {
    if (!mli_is_last_ledger(lord) || !mli_key_valid(storage) || bytes >> MLI_FAST_SIZE_BITS)
        return MLI_PASS;
    return mli_open(lord, mli_self.thread, device, storage, bytes, site, opts, MLI_WAY_ASKED);
}

/* -- finding an entry -- */

/* Looks for a key in its whole window. If the entry is not there, leaves the shard and returns
   NULL. */
static MLI_NOINLINE mli_entry *mli_window_find(memlord *lord, mli_thread *t, uint32_t type,
                                               uint64_t key, mli_probe *probe) {
    MLI_REQUIRE(mli_is_inside());
    mli_home_probe(t, key, probe);
    if (!mli_probe_scan(lord, probe, type, 0) && probe->entry) return probe->entry;
    mli_probe_leave(t, probe);
    return NULL;
}
/* Enters the shard of a key and returns the entry. Returns NULL, outside of the shard, if this way
   does not find it. *beyond is 1 if the entry is in a bucket after the home, which `probe` then
   has; `home` has it otherwise. */
static MLI_HOT mli_entry *mli_spot_find(memlord *lord, mli_thread *t, uint32_t type, uint64_t key,
                                        int plain, mli_home *home, mli_probe *probe, int *beyond) {
    mli_entry *e;
    *beyond = 0;
    if (MLI_UNLIKELY(!mli_home_enter(t, lord, key, plain, home))) return NULL;
    e = mli_home_find(home, key);
    if (MLI_LIKELY(e != NULL)) return e;
    if (plain) {
        mli_shard_leave(t);
        return NULL;
    }
    *beyond = 1;
    home->next = home->header; /* not used: `probe` has the entry */
    return mli_window_find(lord, t, type, key, probe);
}
/* Erases the entry, and unlocks its bucket. */
static MLI_HOT void mli_spot_erase(const mli_home *home, mli_probe *probe, int beyond) {
    if (MLI_UNLIKELY(beyond))
        mli_probe_erase(probe);
    else
        mli_home_store(home);
}
/* Unlocks the bucket of an entry that stays. */
static MLI_HOT void mli_spot_keep(mli_home *home, mli_probe *probe, int beyond) {
    if (MLI_UNLIKELY(beyond))
        mli_probe_unlock(probe);
    else
        mli_home_unlock(home);
}

/* -- one free -- */

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

/* Counts the free of a block in the thread's cells. Returns a negative value if there is more to
   do. */
static MLI_HOT int64_t mli_rows_count_free(const mli_block_rows *rows, uint64_t bytes) {
    int64_t past = mli_cell_count_device_free(rows->device_cell, bytes);
    if (rows->site_cell) past |= mli_cell_count_free(rows->site_cell, bytes);
    if (rows->tag_cell) {
        past |= mli_cell_count_free(rows->tag_cell, bytes);
        mli_u64_add_own(&rows->tag_cell->frees, 1);
    }
    return past;
}

static memlord_result mli_free_words(memlord *lord, memlord_device device, uint64_t storage,
                                     int how, const memlord_site *site);

/* Passes on a free that a way does not serve. `how` is MLI_END_FREE or MLI_END_RELEASE. */
static MLI_HOT int mli_close_pass(memlord *lord, memlord_device device, uint64_t storage, int how,
                                  const memlord_site *site, int way) {
    if (way == MLI_WAY_PLAIN) return (int)mli_free_words(lord, device, storage, how, site);
    return (int)mli_free_slow(lord, device, storage, how, site);
}
/* Records a free. If this way does not serve the free, changes nothing and passes it on. */
static MLI_HOT int mli_close(memlord *lord, mli_thread *t, memlord_device device, uint64_t storage,
                             int how, const memlord_site *site, int way) {
    const int plain = way == MLI_WAY_PLAIN;
    const uint32_t special = plain ? 0 : mli_u32_load(&t->special);
    mli_block_rows rows = {0, 0, NULL, NULL, NULL, 0};
    mli_cell *here = NULL; /* the cell of the site that frees the block */
    mli_home home;
    mli_probe probe;
    int beyond = 0;
    const mli_entry *e = NULL;
    uint64_t bytes, word2;
    int64_t past;
    if (MLI_LIKELY(!(special & ~(uint32_t)MLI_SPECIAL_SERVED)))
        e = mli_spot_find(lord, t, (uint32_t)device.type, storage, plain, &home, &probe, &beyond);
    if (MLI_UNLIKELY(!e))
        return mli_close_pass(lord, device, storage, how, site, way);
    if (MLI_UNLIKELY(!mli_rows_of_entry(lord, t, device, e, plain, &rows, &bytes))) {
        if (!plain) mli_spot_keep(&home, &probe, beyond);
        mli_shard_leave(t);
        if (how == MLI_END_RELEASE && mli_refer_fast(lord, device, storage, -1) == MEMLORD_OK)
            return MEMLORD_OK;
        return mli_close_pass(lord, device, storage, how, site, way);
    }
    word2 = e->word2;
    mli_spot_erase(&home, &probe, beyond);
    past = mli_rows_count_free(&rows, bytes);
    if (site && (special & MLI_SPECIAL_SITES)) {
        if (MLI_LIKELY(rows.dev == t->latest.dev) &&
            mli_latest_row_find(t, MLI_BOOK_SITE, site, &t->latest.here))
            here = t->latest.here.cell;
        else
            past = -1;
    }
    if (!plain && MLI_UNLIKELY(word2 & MLI_HAS_SIDE)) mli_side_close(lord, t, word2);
    if (MLI_UNLIKELY(past < 0 || mli_alerted(lord, plain ? t->latest.dev : rows.dev)))
        return (int)mli_free_finish(lord, plain ? t->latest.dev : rows.dev, storage, site, bytes,
                                    rows.word2);
    if (here) {
        mli_u64_add_own(&here->frees, 1);
        mli_u64_add_own(&here->freed_here, bytes);
    }
    mli_shard_leave(t);
    return MEMLORD_OK;
}

/* Records a free of memlord_free that is not plain, or a release. A release of the last reference
   is a free. Requires: the ledger is the one that the thread used last. */
static MLI_NOINLINE memlord_result mli_free_words(memlord *lord, memlord_device device,
                                                  uint64_t storage, int how,
                                                  const memlord_site *site) {
    MLI_REQUIRE(mli_is_last_ledger(lord));
    if (MLI_UNLIKELY(!storage)) return mli_free_slow(lord, device, storage, how, site);
    return (memlord_result)mli_close(lord, mli_self.thread, device, storage, how, site,
                                     MLI_WAY_WORDS);
}
MEMLORD_API memlord_result memlord_free(memlord *lord, memlord_device device, uint64_t storage,
                                        const memlord_site *site) {
    mli_thread *t = mli_self.thread;
    if (!lord) return MEMLORD_OK;
    if (MLI_UNLIKELY(!mli_is_last_ledger(lord)))
        return mli_free_slow(lord, device, storage, MLI_END_FREE, site);
    if (MLI_UNLIKELY(mli_key_is_handle(storage) || mli_u32_load(&t->special)))
        return mli_free_words(lord, device, storage, MLI_END_FREE, site);
    return (memlord_result)mli_close(lord, t, device, storage, MLI_END_FREE, site, MLI_WAY_PLAIN);
}
MEMLORD_API memlord_result memlord_release(memlord *lord, memlord_device device, uint64_t storage,
                                           const memlord_site *site) {
    if (!lord) return MEMLORD_OK;
    if (MLI_UNLIKELY(!mli_is_last_ledger(lord)))
        return mli_free_slow(lord, device, storage, MLI_END_RELEASE, site);
    return mli_free_words(lord, device, storage, MLI_END_RELEASE, site);
}

/* -- references -- */

/* Adds a reference to a live block (`by` is 1), or takes off one that is not the last (-1). Returns
   MLI_PASS, and has changed nothing, if the entry cannot have the new number, or if the end of the
   call has work to do. */
MLI_PRIVATE MLI_NOINLINE int mli_refer_fast(memlord *lord, memlord_device device, uint64_t storage,
                                            int by) {
    mli_thread *t = mli_self.thread;
    mli_home home;
    mli_probe probe;
    int beyond, fits;
    mli_entry *e;
    uint32_t refs;
    if (!mli_is_last_ledger(lord) || !mli_key_valid(storage) ||
        (mli_u32_load(&t->special) & ~(uint32_t)MLI_SPECIAL_SERVED) ||
        (t->now.tag && t->now.tag != t->latest.tag.key)) /* the general path makes the tag's row */
        return MLI_PASS;
    e = mli_spot_find(lord, t, (uint32_t)device.type, storage, 0, &home, &probe, &beyond);
    if (!e) return MLI_PASS;
    refs = MLI_REFS(e->word1) + (uint32_t)by;
    fits = refs && refs < MLI_REFS_MANY - 1 && mli_dev_direct(lord, device) &&
           !(e->word2 & MLI_HAS_SIDE) &&
           mli_type_of(lord, MLI_DEV(e->word1)) == (uint16_t)device.type &&
           !mli_alerted(lord, MLI_DEV(e->word1));
    if (fits) e->word1 += (uint64_t)(int64_t)by * MLI_REFS_ONE;
    mli_spot_keep(&home, &probe, beyond);
    mli_shard_leave(t);
    return fits ? 0 : MLI_PASS;
}

/* -- one realloc -- */

/* What a realloc changes. */
typedef struct mli_resize {
    mli_block_rows rows; /* of the block, with word2 as it is afterwards */
    mli_cell *to;        /* the cell of the site that the block has afterwards, if it had another
                            one before, or none; else NULL */
    uint64_t had, bytes, was; /* the bytes before and afterwards, and word2 before */
    uint32_t special;
} mli_resize;

/* Begins a realloc to `bytes` bytes. Returns 0 if this way does not serve it. */
static MLI_HOT int mli_resize_begin(const memlord *lord, const mli_thread *t, uint64_t bytes,
                                    mli_resize *r) {
    if (!mli_is_last_ledger(lord) || bytes >> MLI_FAST_SIZE_BITS) return 0;
    memset(&r->rows, 0, sizeof r->rows);
    r->bytes = bytes;
    r->special = mli_u32_load(&t->special);
    return !(r->special & ~(uint32_t)MLI_SPECIAL_SERVED) &&
           !mli_alert_on(lord, MLI_ALERT_EVENTS) &&
           (!(r->special & MLI_SPECIAL_STACKS) || mli_stack_passes(t, bytes));
}
/* Finds the rows of a block that a call at `site` resizes. Returns 0 if this way does not serve
   it. */
static MLI_HOT int mli_resize_rows(const memlord *lord, mli_thread *t, memlord_device device,
                                        const mli_entry *e, const memlord_site *site,
                                        mli_resize *r) {
    const mli_cache_entry *memo;
    r->to = NULL;
    r->was = e->word2;
    if (e->word2 & MLI_HAS_SIDE || !mli_rows_of_entry(lord, t, device, e, 0, &r->rows, &r->had))
        return 0;
    if (!site || !(r->special & MLI_SPECIAL_SITES)) return 1;
    memo = mli_cache_find(t, site, mli_cache_salt(MLI_BOOK_SITE, r->rows.dev));
    if (MLI_UNLIKELY(!memo)) return 0;
    if (memo->bits == (r->was & MLI_SITE_BITS)) return 1;
    r->to = (mli_cell *)memo->value;
    r->rows.word2 = (r->was & ~MLI_SITE_BITS) | memo->bits;
    return 1;
}
/* Counts a realloc in the thread's cells. Leaves the shard. */
static MLI_HOT int mli_resize_end(memlord *lord, mli_thread *t, uint64_t storage,
                                       const mli_resize *r) {
    MLI_REQUIRE(mli_is_inside());
    const uint32_t dev = r->rows.dev;
    int64_t past = mli_cell_count_resize(r->rows.device_cell, r->had, r->bytes);
    past |= mli_cell_tripped(r->rows.device_cell);
    if (r->rows.tag_cell) past |= mli_cell_count_resize(r->rows.tag_cell, r->had, r->bytes);
    if (r->rows.site_cell)
        past |= mli_cell_count_resize(r->rows.site_cell, r->had, r->to ? 0 : r->bytes);
    if (r->to) past |= mli_cell_count_resize(r->to, 0, r->bytes);
    mli_cell_count_realloc(r->rows.device_cell);
    if (r->special & MLI_SPECIAL_STACKS) mli_stack_spend(t, r->bytes);
    if (past < 0) {
        mli_rows_publish_due(lord, t, dev, r->rows.word2);
        mli_rows_publish_due(lord, t, dev, r->was & MLI_SITE_BITS);
    }
    mli_shard_leave(t);
    if (MLI_LIKELY(past >= 0 && !mli_alerted(lord, dev))) return MEMLORD_OK;
    if (mli_alert_on(lord, MLI_ALERT_FORGET))
        (void)mli_drop_forget(lord, mli_type_of(lord, dev), storage);
    mli_call_end(lord, t, dev, 1);
    return MEMLORD_OK;
}

MLI_PRIVATE MLI_NOINLINE int mli_resize_fast(memlord *lord, memlord_device device, uint64_t storage,
                                             uint64_t bytes, const memlord_site *site) {
    mli_thread *t = mli_self.thread;
    mli_home home;
    mli_probe probe;
    mli_resize r;
    mli_entry *e;
    int beyond;
    if (!storage || !mli_resize_begin(lord, t, bytes, &r)) return MLI_PASS;
    e = mli_spot_find(lord, t, (uint32_t)device.type, storage, 0, &home, &probe, &beyond);
    if (!e) return MLI_PASS;
    if (MLI_UNLIKELY(!mli_resize_rows(lord, t, device, e, site, &r))) {
        mli_spot_keep(&home, &probe, beyond);
        mli_shard_leave(t);
        return MLI_PASS;
    }
    e->word1 = bytes | r.rows.upper;
    e->word2 = r.rows.word2;
    mli_spot_keep(&home, &probe, beyond);
    return mli_resize_end(lord, t, storage, &r);
}

MLI_PRIVATE MLI_NOINLINE int mli_detach_fast(memlord *lord, memlord_device device, uint64_t storage,
                                             uint64_t *word, uint32_t *slot) {
    mli_thread *t = mli_self.thread;
    mli_home home;
    mli_probe probe;
    int beyond;
    const mli_entry *e;
    uint64_t word1, word2;
    if (!mli_is_last_ledger(lord) || !storage ||
        (mli_u32_load(&t->special) & ~(uint32_t)MLI_SPECIAL_SERVED) ||
        mli_alert_on(lord, MLI_ALERT_EVENTS))
        return MLI_PASS;
    e = mli_spot_find(lord, t, (uint32_t)device.type, storage, 0, &home, &probe, &beyond);
    if (!e) return MLI_PASS;
    word1 = e->word1;
    word2 = e->word2;
    if (word2 & MLI_HAS_SIDE || (word1 & MLI_PICKED) || MLI_REFS(word1) != 1 ||
        mli_type_of(lord, MLI_DEV(word1)) != (uint16_t)device.type) {
        mli_spot_keep(&home, &probe, beyond);
        mli_shard_leave(t);
        return MLI_PASS;
    }
    *slot = mli_slot_take(lord, t, storage, word1, word2, &mli_pick_none);
    mli_spot_erase(&home, &probe, beyond);
    word[0] = word1;
    word[1] = word2;
    mli_detached_count(t, 1, MLI_BYTES(word1));
    mli_shard_leave(t);
    return MEMLORD_OK;
}
MLI_PRIVATE MLI_NOINLINE int mli_room_fast(memlord *lord, memlord_device device, uint64_t storage,
                                           uint64_t bytes) {
    mli_thread *t = mli_self.thread;
    mli_home home;
    int has;
    if (!mli_is_last_ledger(lord) || !mli_key_valid(storage) || bytes >> MLI_FAST_SIZE_BITS ||
        !mli_dev_direct(lord, device) ||
        (mli_u32_load(&t->special) & ~(uint32_t)MLI_SPECIAL_SERVED) ||
        !mli_home_enter(t, lord, storage, 0, &home))
        return MLI_PASS;
    has = mli_home_room(&home) != NULL;
    mli_home_unlock(&home);
    mli_shard_leave(t);
    return has ? 0 : MLI_PASS;
}
MLI_PRIVATE MLI_NOINLINE int mli_attach_fast(memlord *lord, memlord_device device,
                                             const mli_entry *from, uint32_t slot,
                                             uint64_t storage, uint64_t bytes,
                                             const memlord_site *site) {
    mli_thread *t = mli_self.thread;
    mli_home home;
    mli_resize r;
    mli_entry *e;
    if (!mli_key_valid(storage) || !mli_resize_begin(lord, t, bytes, &r) ||
        (slot && slot / MLI_SLOTS != t->id) ||
        !mli_resize_rows(lord, t, device, from, site, &r) ||
        !mli_home_enter(t, lord, storage, 0, &home))
        return MLI_PASS;
    e = mli_home_room(&home);
    if (MLI_UNLIKELY(!e)) {
        mli_home_unlock(&home);
        mli_shard_leave(t);
        return MLI_PASS;
    }
    if (slot) mli_u64_store_release(&t->slots[slot % MLI_SLOTS].key, storage);
    e->key = storage;
    e->word1 = bytes | r.rows.upper;
    e->word2 = r.rows.word2;
    mli_home_store(&home);
    mli_detached_count(t, -1, r.had);
    if (slot) mli_u64_store_release(&t->slots[slot % MLI_SLOTS].key, 0);
    return mli_resize_end(lord, t, storage, &r);
}
