/* Owns the operations on a block, the routes of moves and copies, and the counts of dropped allocs.
   A dropped alloc is one that the ledger had no room to record. The map has an entry for each
   block: its key (the storage), word1 (the bytes, the device, the references) and word2 (its site,
   tag, mark (memlord_mark), scope and stream). A block with further facts has a side record, to
   which its word2 then points. A probe finds an entry in the map. A pending block was freed, and
   waits for its fences. A dev is the number of a device, and a delta a change of counters. May use
   books/. Invariant: a call makes the counters of a block before it enters a shard, a part of the
   map, because a thread inside a shard may not allocate. The counters are the rows of the block's
   device, site and tag, and the thread's cell of each row. Inside the shard the call changes the
   map and counts the change, so that no fork finds a block half counted. Locks: those of the map;
   the fences lock, inside a shard; the cold lock, for a new route. */
#ifndef MLI_BOOKS_BLOCKS_H
#define MLI_BOOKS_BLOCKS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/probes.h"
#include "books/counters.h"
#include "books/picks.h"
#include "books/fences.h"

/* The counts of the moves and copies from one device to another. */
typedef struct mli_route {
    struct mli_route *next; /* the route that was made before this one, or NULL */
    uint32_t from, to;      /* the numbers (devs) of the two devices */
    mli_u64 moves, moved_bytes, copies, copied_bytes;
} mli_route;

/* Frees the side record that a word2 points to, and the parts of the block (described ranges of its
   bytes). Detaches the block's fences, and takes the block's bytes off the account that they were
   charged to. If word2 points to no side record, does nothing. */
MLI_PRIVATE MLI_NOINLINE void mli_side_record_free(memlord *lord, uint64_t word2);

/* Returns the delta that counts a block as opened. */
MLI_PRIVATE mli_row_delta mli_delta_open(uint32_t dev, uint64_t word2, uint64_t bytes);
/* Returns the delta that counts a block as closed. */
MLI_PRIVATE mli_row_delta mli_delta_close(uint32_t dev, uint64_t word2, uint64_t bytes);

/* Makes the thread's cells that n deltas will change. Requires: the caller is not inside a shard,
   because the function may allocate. */
MLI_PRIVATE void mli_cells_make(memlord *lord, mli_thread *t, const mli_row_delta *d, unsigned n);

/* Counts a free at `site`, the place of the call that frees the block. The site of the block does
   not matter. Requires: the caller is not inside a shard. */
MLI_PRIVATE void mli_count_site_free(memlord *lord, mli_thread *t, uint32_t dev,
                                     const memlord_site *site, uint64_t bytes);

/* Returns 1 if `bytes` more would bring the device's published bytes (mli_row) above 2^62, half of
   the largest int64. Checks only blocks of more than 2^32 bytes. Smaller blocks reach 2^62 only if
   2^30 of them are live. */
static MLI_HOT int mli_would_overflow(memlord *lord, uint32_t dev, uint64_t bytes) {
    if (MLI_LIKELY(bytes <= (uint64_t)1 << 32 || !dev)) return 0;
    return (int64_t)(mli_u64_load(&mli_row_at(lord, MLI_BOOK_DEVICE, dev)->published) + bytes) >
           (int64_t)1 << 62;
}

/* Returns 1 if MEMLORD_DEBUG asks for a log line of each call that changed something or found an
   anomaly. */
static MLI_HOT int mli_debug_on(memlord *lord) {
    return MLI_UNLIKELY(mli_hook_on(lord, MLI_HOOK_TRACE)) ? 1 : 0;
}
/* Logs a line such as "[alloc] cpu 0x55... 1.5 KiB main file.c:12". If the call recorded nothing
   (`did` is 0), logs the line only if the call freed an unknown storage, or ended a block whose
   free was never recorded. The call is no longer valid afterwards. */
MLI_PRIVATE MLI_COLD void mli_log_call(memlord *lord, const mli_call *call, int did,
                                       const char *verb, memlord_device d, uint64_t storage,
                                       uint64_t bytes);

/* Logs a line such as "[alloc_n] cuda 12 KiB in 3 blocks main file.c:12", with the facts that the
   call has noted. The line names a device
   type or a device index only if all n blocks have the same. Requires: n > 0. */
MLI_PRIVATE MLI_COLD void mli_log_call_n(memlord *lord, const char *verb,
                                         const memlord_block *blocks, size_t n,
                                         const mli_debug_note *note, const memlord_site *site);
/* Returns 1 if a free of an unknown storage matches a dropped alloc. Each dropped alloc matches one
   free. */
MLI_PRIVATE int mli_drop_match(memlord *lord, int type, uint64_t key);

/* Removes the key of a new block from the keys of dropped allocs, whose frees are expected. */
MLI_PRIVATE MLI_COLD int mli_drop_forget(memlord *lord, int type, uint64_t key);
/* Counts an alloc at `site` as dropped if `r`, the result of the alloc, says that the ledger had no
   memory to record it, or no room for its device. If `r` is another error, counts nothing. Returns
   `r`. If the device has no number (dev), counts the alloc for the ledger as a whole. A later free
   of the storage is expected, and does not count as an unknown free: see mli_drop_match. */
MLI_PRIVATE MLI_COLD memlord_result mli_drop_count(memlord *lord, const memlord_site *site,
                                                   memlord_result r, memlord_device d,
                                                   uint64_t key, uint64_t bytes);
/* Counts a call that ends an unknown storage (one that the map does not have), and returns
   MEMLORD_E_UNKNOWN. If the device cannot be added, counts the call for the ledger as a whole. If
   the storage matches a dropped alloc, counts nothing and returns MEMLORD_OK. */
MLI_PRIVATE MLI_COLD memlord_result mli_unknown_free(memlord *lord, mli_call *call,
                                                     memlord_device d, uint64_t key);

/* Counts a free of a block that has more than one reference. */
MLI_PRIVATE MLI_COLD void mli_shared_free(memlord *lord, const mli_call *call, const mli_entry *e);

enum { /* what the map has under a key */
    MLI_KEY_DEAD,    /* the map has no entry with the key */
    MLI_KEY_PENDING, /* the block was freed, and waits for its fences */
    MLI_KEY_LIVE,    /* the block is live, and has no fences */
    MLI_KEY_USED     /* the block is live, and has fences (memlord_block_use) */
};

/* Returns what the map has under a key, as MLI_KEY_... If the map has an entry, *e gets a copy of
   it, with the word2 that it would have without a side record. */
MLI_PRIVATE MLI_COLD int mli_key_state(memlord *lord, mli_thread *t, memlord_device d, uint64_t key,
                                       mli_entry *e);

/* Returns the error of a call that found no memory: E_NOMEM if its storage is live, else E_UNKNOWN.
   `ends` is 1 if the call was to free the storage. Such a call counts as an unknown free if the
   storage is not live. */
MLI_PRIVATE MLI_COLD memlord_result mli_short_of(memlord *lord, mli_call *call, memlord_device d,
                                                 uint64_t key, int ends);

/* Adds a reference to a live block. If the entry has no room for the number of references, adds a
   side record first. */
MLI_PRIVATE MLI_COLD memlord_result mli_block_retain(memlord *lord, mli_thread *t, uint32_t type,
                                                     uint64_t key);

enum { /* what mli_entry_put does with a block that already has the key */
    MLI_PUT_ALLOC = 0, /* the old block ends: its free was not recorded, or it still waits for its
                          fences */
    MLI_PUT_TRACK = 1, /* if the old block is live, it gets a reference; if it is pending, it
                          ends */
    MLI_PUT_HOLD = 2   /* a bit that can be added to either of these: if the old block would end, it
                          stays, and mli_entry_put puts no entry */
};
enum { /* what mli_entry_put did */
    MLI_DID_NOTHING, /* it put no entry and added no reference */
    MLI_DID_OPEN,    /* it put the entry */
    MLI_DID_VIEW     /* it added a reference to the block that had the key */
};

/* Puts an entry on the map under its key, and counts n deltas. If the entry has a side record, its
   account is charged once it is known that the entry is put. `how` is MLI_PUT_...; *did gets
   MLI_DID_... Requires: the caller is not inside a shard. */
MLI_PRIVATE MLI_COLD memlord_result mli_entry_put(memlord *lord, mli_call *call, const mli_entry *e,
                                                  const mli_row_delta *d, unsigned n, int how,
                                                  int *did);

/* Opens a block with one reference on the call's device, and charges it to an account. If `account`
   is 0, charges the account that the thread uses; if it is MEMLORD_NONE, charges no account. `how`
   and *did are those of mli_entry_put. */
MLI_PRIVATE MLI_COLD memlord_result mli_block_open(memlord *lord, mli_call *call, uint64_t key,
                                                   uint64_t bytes, uint64_t rows,
                                                   memlord_account account, int how, int *did);

/* Ends the block that a probe found: erases the entry, counts the end, leaves the shard and frees
   the side record. With `undo` takes back the counts of the alloc instead of counting the end, as
   if the block had never been opened. */
MLI_PRIVATE void mli_probe_end_block(memlord *lord, mli_thread *t, mli_probe *probe, int undo);

/* Undoes the opening of a block of `bytes` by this thread. Does nothing if another thread has ended
   the block, or has replaced it by a block of another size. */
MLI_PRIVATE MLI_COLD void mli_block_unopen(memlord *lord, mli_thread *t, uint32_t dev, uint64_t key,
                                           uint64_t bytes);

enum { MLI_END_FREE, MLI_END_RELEASE };

/* Makes a live block pending: queues its fences, and notes this thread as the one that asks each
   fence whether it is done. Returns the block's first fence; its `sibling` is the next one.
   Requires: the caller is inside the shard, and the block has a side record. */
MLI_PRIVATE mli_fence_record *mli_block_pend(memlord *lord, mli_entry *e);

/* Frees or releases a block, for a call that the fast path does not serve; `how` is MLI_END_...
   *gone gets the entry of the freed block, with the word2 that it would have without a side record.
   If no block was freed, gone->key is 0. A block with fences (memlord_block_use) is not ended, but
   becomes pending. *chain then gets the block's first fence. The caller asks the fences after this
   call, outside the shard. */
MLI_PRIVATE MLI_COLD memlord_result mli_block_close(memlord *lord, mli_call *call,
                                                    memlord_device d, uint64_t key, int how,
                                                    mli_entry *gone, mli_fence_record **chain);

/* Puts a block in a vacant slot of the thread, before the caller erases it. Returns the number of
   the slot, or 0 if none is vacant or if the threads without a record share this one. */
MLI_PRIVATE uint32_t mli_slot_take(const memlord *lord, mli_thread *t, uint64_t key,
                                   uint64_t word1, uint64_t word2, const mli_pick *pick);
/* Detaches a live block: erases its entry without counting a free, and copies the entry to *out.
   *pick gets the call stack of the block's alloc, if the alloc was sampled. The totals of that
   stack include the block's bytes until mli_pick_off subtracts them. If `slot` is not NULL, *slot
   gets the number of the slot that has the block, or 0. */
MLI_PRIVATE memlord_result mli_entry_detach(memlord *lord, mli_thread *t, uint32_t type,
                                            uint64_t key, mli_entry *out, mli_pick *pick,
                                            uint32_t *slot);

/* Returns the new word2 of a block that a call at `site` resizes or moves to `dev`. The block keeps
   its tag. If sites are counted and `site` is not NULL, the block's site becomes `site`. The result
   has the numbers of the rows that the site and the tag have on `dev`. Requires: the caller is not
   inside a shard, and `word2` is that of an entry without a side record. */
MLI_PRIVATE MLI_COLD uint64_t mli_word2_moved(memlord *lord, mli_thread *t, uint64_t word2,
                                              uint32_t dev, const memlord_site *site,
                                              int same_device);

/* Ends a detached block: counts it as closed, makes its slot vacant, and frees its side record. */
MLI_PRIVATE void mli_entry_abandon(memlord *lord, mli_thread *t, const mli_entry *e,
                                   uint32_t slot);

/* Sets the site, the tag and the birth (mark, scope and stream) of a block to those in the word2
   `rows`. Stores them in the block's entry, or in its side record if it has one. Requires: the
   entry is detached, or a probe of the caller holds it. */
MLI_PRIVATE void mli_entry_set_rows(mli_entry *e, uint64_t rows);

/* Attaches a detached block: puts it back on the map under a key, with the call's device and a
   size, counts the change, and makes its slot vacant. If `site` is not NULL, it becomes the block's
   site. With `moves` the change counts as the end of one block and the start of another, else as a
   change of size. *rows gets the word2 that the entry would have without a side record. The caller
   cannot read this word2 from the side record: another thread may free the side record once the
   block is on the map. If the map has no room, ends the block with its old bytes, and counts an
   alloc of the new bytes as dropped. */
MLI_PRIVATE memlord_result mli_entry_attach(memlord *lord, mli_call *call, mli_entry *e,
                                            uint32_t slot, uint64_t key, uint64_t bytes,
                                            const memlord_site *site, int moves, uint64_t *rows);

/* Returns the route that was made last, or NULL if there is none. The member `next` of a route
   leads to the one made before it. */
MLI_PRIVATE MLI_COLD mli_route *mli_route_newest(const memlord *lord);
/* Returns the route between two devices, and makes it on first use. Returns NULL if there is no
   memory. Requires: the caller is not inside a shard. */
MLI_PRIVATE MLI_COLD mli_route *mli_route_of(memlord *lord, uint32_t from, uint32_t to);
/* Counts a move on its target device and on its route. If there is no memory for a new route,
   counts the move on the device alone. Requires: the caller is not inside a shard. */
MLI_PRIVATE MLI_COLD void mli_move_count(memlord *lord, uint32_t from, uint32_t to, uint64_t bytes);

/* Makes room in the map for a key, so that a later insert of the key finds a vacant slot unless
   another thread takes it. */
MLI_PRIVATE memlord_result mli_map_reserve(memlord *lord, mli_thread *t, uint32_t dev,
                                           uint64_t key);

/* Moves a block to the call's device, with another key or size, and counts the move. The block
   keeps its side record. If it has no side record and the move will charge it to an account, adds a
   side record first. */
MLI_PRIVATE MLI_COLD memlord_result mli_block_move(memlord *lord, mli_call *call,
                                                   memlord_device from, uint64_t from_key,
                                                   uint64_t key, uint64_t bytes);

/* Sets the totals of moves and copies to 0. */
MLI_PRIVATE MLI_COLD void mli_blocks_reset(memlord *lord);
MLI_PRIVATE MLI_COLD void mli_blocks_life(mli_life *life);

#endif
