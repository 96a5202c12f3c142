/* Owns the operations on a block, the routes of moves and copies, and the counts of dropped allocs.
   Invariants: a call makes the rows and cells of a block before it enters a shard, because a thread
   inside a shard may not allocate; inside it changes the map and counts, so that no fork finds a
   block half counted. Locks: those of the map; the fences lock, inside a shard; the cold lock, for
   a new route. */
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

/* Frees the side record that a word2 points to, if any, and the parts of the block. Detaches the
   block's fences, and takes its bytes off the account that they were charged to. */
MLI_PRIVATE MLI_NOINLINE void mli_side_record_free(memlord *lord, uint64_t word2);

MLI_PRIVATE mli_row_delta mli_delta_open(uint32_t dev, uint64_t word2, uint64_t bytes);
MLI_PRIVATE mli_row_delta mli_delta_close(uint32_t dev, uint64_t word2, uint64_t bytes);

/* Makes the cells that n deltas will change. Requires: the caller is not inside a shard. */
MLI_PRIVATE void mli_cells_make(memlord *lord, mli_thread *t, const mli_row_delta *d, unsigned n);

/* Counts a free at `site`, the place of the call. Requires: the caller is not inside a shard. */
MLI_PRIVATE void mli_count_site_free(memlord *lord, mli_thread *t, uint32_t dev,
                                     const memlord_site *site, uint64_t bytes);

/* Returns 1 if `bytes` more would bring the device's published bytes above 2^62. Checks only blocks
   of more than 2^32 bytes: of smaller ones that takes 2^30 live blocks. */
static MLI_HOT int mli_would_overflow(memlord *lord, uint32_t dev, uint64_t bytes) {
    if (MLI_LIKELY(bytes <= (uint64_t)1 << 32 || !dev)) return 0;
    return (int64_t)(mli_u64_load(&mli_row_at(lord, MLI_BOOK_DEVICE, dev)->published) + bytes) >
           (int64_t)1 << 62;
}

/* Returns 1 if MEMLORD_DEBUG asks for a line of each call that changed something. */
static MLI_HOT int mli_debug_on(memlord *lord) {
    return MLI_UNLIKELY(mli_hook_on(lord, MLI_HOOK_TRACE)) ? 1 : 0;
}
/* Logs a line such as "[alloc] cpu 0x55... 1.5 KiB main file.c:12". If `did` is 0, only for an
   unknown storage, or a block whose free was never recorded. The call is not valid afterwards. */
MLI_PRIVATE MLI_COLD void mli_log_call(memlord *lord, const mli_call *call, int did,
                                       const char *verb, memlord_device d, uint64_t storage,
                                       uint64_t bytes);

/* Logs a line such as "[alloc_n] cuda 12 KiB in 3 blocks main file.c:12". It names a device type or
   a device index only if all n blocks have the same. Requires: n > 0. */
MLI_PRIVATE MLI_COLD void mli_log_call_n(memlord *lord, const char *verb,
                                         const memlord_block *blocks, size_t n,
                                         const mli_debug_note *note, const memlord_site *site);
/* Returns 1 if a free of an unknown storage matches a dropped alloc, each of which matches one. */
MLI_PRIVATE int mli_drop_match(memlord *lord, int type, uint64_t key);

/* Removes the key of a new block from the keys of dropped allocs, whose frees are expected. */
MLI_PRIVATE MLI_COLD int mli_drop_forget(memlord *lord, int type, uint64_t key);
/* Returns `r`, the result of an alloc at `site`. Counts the alloc as dropped if `r` says that there
   was no memory to record it, or no room for its device, and then expects a free of the storage. If
   the device has no dev, counts it for the ledger as a whole. */
MLI_PRIVATE MLI_COLD memlord_result mli_drop_count(memlord *lord, const memlord_site *site,
                                                   memlord_result r, memlord_device d,
                                                   uint64_t key, uint64_t bytes);
/* Counts a call that ends an unknown storage, on the device or else for the ledger, and returns
   MEMLORD_E_UNKNOWN. If the storage matches a dropped alloc, returns MEMLORD_OK instead. */
MLI_PRIVATE MLI_COLD memlord_result mli_unknown_free(memlord *lord, mli_call *call,
                                                     memlord_device d, uint64_t key);

/* Counts a free of a block that has more than one reference. */
MLI_PRIVATE MLI_COLD void mli_shared_free(memlord *lord, const mli_call *call, const mli_entry *e);

enum {
    MLI_KEY_DEAD,    /* the map has no entry with the key */
    MLI_KEY_PENDING, /* the block was freed, and waits for its fences */
    MLI_KEY_LIVE,    /* the block is live, and has no fences */
    MLI_KEY_USED     /* the block is live, and has fences (memlord_block_use) */
};

/* Returns what the map has under a key, MLI_KEY_... *e gets a copy of its entry, with the word2
   that it would have without a side record. */
MLI_PRIVATE MLI_COLD int mli_key_state(memlord *lord, mli_thread *t, memlord_device d, uint64_t key,
                                       mli_entry *e);

/* Returns the result of a call that found no memory: E_NOMEM if its storage is live, else what
   mli_unknown_free returns if `ends` is 1, else E_UNKNOWN. */
MLI_PRIVATE MLI_COLD memlord_result mli_short_of(memlord *lord, mli_call *call, memlord_device d,
                                                 uint64_t key, int ends);

/* Adds a reference to a live block, and a side record if the entry has no room for the number. */
MLI_PRIVATE MLI_COLD memlord_result mli_block_retain(memlord *lord, mli_thread *t, uint32_t type,
                                                     uint64_t key);

enum { /* what mli_entry_put does with a block that already has the key */
    MLI_PUT_ALLOC = 0, /* the old block ends */
    MLI_PUT_TRACK = 1, /* an old block that is live gets a reference; a pending one ends */
    MLI_PUT_HOLD = 2   /* for either: an old block that would end stays, and no entry is put */
};
enum { /* what mli_entry_put did */
    MLI_DID_NOTHING, /* it put no entry and added no reference */
    MLI_DID_OPEN,    /* it put the entry */
    MLI_DID_VIEW     /* it added a reference to the block that had the key */
};

/* Puts an entry on the map, counts n deltas, and charges a side record's account once that is sure.
   `how` is MLI_PUT_...; *did gets MLI_DID_... Requires: the caller is not inside a shard. */
MLI_PRIVATE MLI_COLD memlord_result mli_entry_put(memlord *lord, mli_call *call, const mli_entry *e,
                                                  const mli_row_delta *d, unsigned n, int how,
                                                  int *did);

/* Opens a block with one reference on the call's device, and charges it to an account: to the
   thread's if `account` is 0, to none if it is MEMLORD_NONE. See mli_entry_put. */
MLI_PRIVATE MLI_COLD memlord_result mli_block_open(memlord *lord, mli_call *call, uint64_t key,
                                                   uint64_t bytes, uint64_t rows,
                                                   memlord_account account, int how, int *did);

/* Ends the block that a probe found: erases the entry, counts the end, leaves the shard and frees
   the side record. With `undo` takes back the counts of the alloc instead of counting the end. */
MLI_PRIVATE void mli_probe_end_block(memlord *lord, mli_thread *t, mli_probe *probe, int undo);

/* Undoes the opening of a block of `bytes` by this thread, unless another thread has ended the
   block, or has replaced it by a block of another size. */
MLI_PRIVATE MLI_COLD void mli_block_unopen(memlord *lord, mli_thread *t, uint32_t dev, uint64_t key,
                                           uint64_t bytes);

enum { MLI_END_FREE, MLI_END_RELEASE };

/* Makes a live block pending: queues its fences, asked by this thread. Returns the first one; its
   `sibling` is the next. Requires: the caller is inside the shard; there is a side record. */
MLI_PRIVATE mli_fence_record *mli_block_pend(memlord *lord, mli_entry *e);

/* Frees or releases a block, for a call that the fast path does not serve; `how` is MLI_END_...
   *gone gets the entry of the freed block, with the word2 without a side record, or the key 0. If a
   block becomes pending, *chain gets its first fence, which the caller asks outside the shard. */
MLI_PRIVATE MLI_COLD memlord_result mli_block_close(memlord *lord, mli_call *call,
                                                    memlord_device d, uint64_t key, int how,
                                                    mli_entry *gone, mli_fence_record **chain);

/* Puts a block in a vacant slot of the thread, before the caller erases it. Returns the number of
   the slot, or 0 if none is vacant or if the threads without a record share this one. */
MLI_PRIVATE uint32_t mli_slot_take(const memlord *lord, mli_thread *t, uint64_t key,
                                   uint64_t word1, uint64_t word2, const mli_pick *pick);
/* Detaches a live block: erases its entry without counting a free, and copies the entry to *out.
   *pick gets its stack, if it was picked, whose totals include the block until mli_pick_off
   subtracts it. *slot, if not NULL, gets the number of the slot that has the block, or 0. */
MLI_PRIVATE memlord_result mli_entry_detach(memlord *lord, mli_thread *t, uint32_t type,
                                            uint64_t key, mli_entry *out, mli_pick *pick,
                                            uint32_t *slot);

/* Returns the new word2 of a block that a call at `site` resizes or moves to `dev`: the rows there
   of its tag and its site, which becomes `site` if sites are counted, unless NULL. Requires: the
   caller is not inside a shard; `word2` is that of an entry without a side record. */
MLI_PRIVATE MLI_COLD uint64_t mli_word2_moved(memlord *lord, mli_thread *t, uint64_t word2,
                                              uint32_t dev, const memlord_site *site,
                                              int same_device);

/* Ends a detached block: counts it as closed, makes its slot vacant, and frees its side record. */
MLI_PRIVATE void mli_entry_abandon(memlord *lord, mli_thread *t, const mli_entry *e,
                                   uint32_t slot);

/* Sets the site, the tag and the birth of a block to those in the word2 `rows`, in its entry or
   side record. Requires: the entry is detached, or a probe of the caller holds it. */
MLI_PRIVATE void mli_entry_set_rows(mli_entry *e, uint64_t rows);

/* Puts a detached block back on the map under a key, with the call's device and a size, counts the
   change, and makes its slot vacant. `site` becomes its site, unless that is NULL. With `moves` the
   change counts as the end of one block and the start of another, else as a change of size. *rows
   gets the word2 without a side record, which the caller cannot read from there, because another
   thread may free the record. If the map has no room, ends the block with its old bytes, and counts
   an alloc of the new bytes as dropped. */
MLI_PRIVATE memlord_result mli_entry_attach(memlord *lord, mli_call *call, mli_entry *e,
                                            uint32_t slot, uint64_t key, uint64_t bytes,
                                            const memlord_site *site, int moves, uint64_t *rows);

/* Returns the route that was made last, or NULL; its `next` is the one made before it. */
MLI_PRIVATE MLI_COLD mli_route *mli_route_newest(const memlord *lord);
/* Returns the route between two devices, makes it on first use, or returns NULL if there is no
   memory. Requires: the caller is not inside a shard. */
MLI_PRIVATE MLI_COLD mli_route *mli_route_of(memlord *lord, uint32_t from, uint32_t to);
/* Counts a move on its target device and, if there is memory, on its route, outside a shard. */
MLI_PRIVATE MLI_COLD void mli_move_count(memlord *lord, uint32_t from, uint32_t to, uint64_t bytes);

/* Makes room in the map for a key; another thread may still take it. */
MLI_PRIVATE memlord_result mli_map_reserve(memlord *lord, mli_thread *t, uint32_t dev,
                                           uint64_t key);

/* Moves a block to the call's device, with another key or size, and counts the move. The block
   keeps its side record. If it has no side record and the move will charge it to an account, adds a
   side record first. */
MLI_PRIVATE MLI_COLD memlord_result mli_block_move(memlord *lord, mli_call *call,
                                                   memlord_device from, uint64_t from_key,
                                                   uint64_t key, uint64_t bytes);

MLI_PRIVATE MLI_COLD void mli_blocks_reset(memlord *lord);
MLI_TABLE(const mli_life mli_blocks_life)

#endif
