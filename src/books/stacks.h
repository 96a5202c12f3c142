/* Owns the stacks of allocs: the draw of samples, the tree of return addresses, the totals of each
   stack, and the table of picked blocks. Invariant: a block in the map has MLI_PICKED exactly if
   the table has its key. Locks: the cold lock, to add nodes and rows; MLI_RANK_STACKS, for a part
   of the table. No lock is held while an unwinder runs. */
#ifndef MLI_BOOKS_STACKS_H
#define MLI_BOOKS_STACKS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/text.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/picks.h"
#include "books/sites.h"

/* Nodes and rows are never removed, and are found without a lock. The live bytes of a row are 0
   again once all its blocks have ended. The table of picked blocks and a block's bit MLI_PICKED
   change while a thread is inside the block's shard, so that no other thread can reach the block.
   The thread reserves room in the table before it enters the shard. All keys of one shard are in
   one part of the table. So threads that use different shards seldom wait for each other. */

/* A return address in a stack. Its site is looked up when the node is added, so the site stays
   right if the module is unloaded later. */
typedef struct mli_stack_node {
    uint64_t stays;        /* the return address, if its module stays loaded; else 0 */
    mli_site_record *site; /* the site of the return address; its `frame` is not 0 */
    uint32_t parent, next; /* the node of the caller; the next node in the same hash chain */
} mli_stack_node;

typedef struct mli_stack_row {
    uint32_t node;        /* the node of the innermost frame */
    uint32_t dev;
    uint32_t next;        /* the next row in the same hash chain */
    uint32_t site;        /* the row of the site in books/counters; 0: no site */
    uint32_t older;       /* the row of the same device that was added before this one, or 0 */
    mli_ptr frames;       /* void **: the frames as the host gets them; NULL until they are made */
    mli_u64 live, peak;   /* estimates of the live bytes: now, and the most since the last reset */
    mli_u64 blocks;       /* how many picked blocks are live */
    mli_u64 variance;     /* a double's bits: the variance of `live`; not read if `blocks` is 0 */
    mli_u64 alloc_bytes;  /* since the last reset: an estimate of the bytes of all allocs */
    mli_u64 picked_bytes; /* since the last reset: the bytes of the allocs that were picked */
    mli_u64 allocs;       /* since the last reset: of all allocs, times MLI_STACK_UNITS */
    mli_u64 samples;      /* since the last reset: how many allocs were picked */
    mli_u64 temporaries;  /* since the last reset: how many picked blocks were freed by the thread
                             that allocated them, before another of its allocs was picked */
    mli_u64 held;         /* an estimate of the bytes that were live at the peak of the device: the
                             value of `live` at the last mli_stacks_hold */
} mli_stack_row;

/* Returns 1 if an alloc is not picked; else the general path serves it and counts its bytes. */
static MLI_HOT int mli_stack_passes(const mli_thread *t, uint64_t bytes) {
    return t->stack_left - (int64_t)bytes > 0;
}
/* Counts the bytes of an alloc that is not picked. */
static MLI_HOT void mli_stack_spend(mli_thread *t, uint64_t bytes) {
    t->stack_left -= (int64_t)bytes;
}

MLI_PRIVATE MLI_NOINLINE mli_stack_node *mli_stack_node_at(const memlord *lord, uint32_t number);
MLI_PRIVATE MLI_NOINLINE mli_stack_row *mli_stack_row_at(const memlord *lord, uint32_t number);
/* Returns how many blocks the table of picked blocks has. */
#if !defined(MEMLORD_NO_VERIFY)
MLI_PRIVATE MLI_COLD uint64_t mli_picks_count(const memlord *lord);
#endif
/* Returns 1 if the ledger takes stacks, or has taken some. */
MLI_PRIVATE MLI_COLD int mli_stacks_on(const memlord *lord);
/* Returns 1 if not every alloc was picked, so that figures of stacks are estimates. */
MLI_PRIVATE MLI_COLD int mli_stacks_sampled(const memlord *lord);
/* Returns how many frames a stack may have now; 0 means that no stacks are taken. */
MLI_PRIVATE MLI_COLD uint32_t mli_stacks_depth(const memlord *lord);
/* Returns the mean bytes from one sample to the next, or 0 if no stacks are taken. */
MLI_PRIVATE MLI_COLD uint64_t mli_stacks_bytes(const memlord *lord);
/* Writes words such as "estimates: a sample each 512 KiB". */
MLI_PRIVATE MLI_COLD void mli_stacks_put_rate(const memlord *lord, mli_out *o);
/* Returns how many stacks could not be unwound since the last reset. */
MLI_PRIVATE MLI_COLD uint64_t mli_stacks_cut(const memlord *lord);
/* Returns the number of nodes. The acquire load pairs with the release store that adds a node. */
#if !defined(MEMLORD_NO_REPORTS)
MLI_PRIVATE MLI_COLD uint32_t mli_stack_node_count(const memlord *lord);
#endif
/* Returns one more than the number of rows. */
MLI_PRIVATE uint32_t mli_stack_rows(const memlord *lord);
/* Returns the site of frame `number`. */
MLI_PRIVATE mli_site_record *mli_stack_frame_at(const memlord *lord, uint32_t number);
/* Returns how many frames there are. A frame is a site that some stack has. */
MLI_PRIVATE uint32_t mli_stack_frame_count(const memlord *lord);

/* If a call has picked its alloc, adds the block to the table and to the row of its stack, and
   returns MLI_PICKED for its word1, else 0. Requires: the call has reserved room for the key; the
   caller is inside the shard, or no other thread can reach the entry. */
MLI_PRIVATE MLI_NOINLINE uint64_t mli_pick_put(memlord *lord, mli_call *call,
                                               const mli_entry *e);

/* Returns the stack of a block, with row 0 if the block was not picked. Requires, like the next two
   functions: the caller is inside the shard, or no other thread can reach the entry. */
MLI_PRIVATE MLI_COLD mli_pick mli_pick_of(memlord *lord, const mli_entry *e);
/* Removes a block from the table, and returns its stack, whose totals still include it. */
MLI_PRIVATE MLI_COLD mli_pick mli_pick_out(memlord *lord, const mli_entry *e);
/* Removes a block from the table and from the totals of its stack, because the block ends. If
   `undo` is 1, the totals are then as if the block had not been allocated. */
MLI_PRIVATE MLI_NOINLINE void mli_pick_end(memlord *lord, const mli_entry *e, int undo);
/* Subtracts a removed block from the totals of its stack. `frees` is 1 if the block ends. */
MLI_PRIVATE void mli_pick_off(memlord *lord, const mli_pick *pick, uint64_t bytes, int frees);
/* Gives back the room that the call has reserved in the table and has not used. */
MLI_PRIVATE void mli_stack_forget(mli_call *call);
/* Gives the stack `pick` to the block that a call records under `key`. The call moves the block
   that had this stack, or puts that block back on the map. The block under `key` counts in the
   totals of the stack on the call's device, for the site with the row `site`. */
MLI_PRIVATE MLI_COLD void mli_stack_keep(memlord *lord, mli_call *call, const mli_pick *pick,
                                         uint64_t key, uint32_t site);

/* Decides at random whether the alloc that a call records is picked. If so, finds the stack,
   reserves room for `key` in the table, and notes the stack's row in the call for mli_pick_put.
   Requires: the caller is not inside a shard. */
MLI_PRIVATE MLI_COLD void mli_stack_pick_slow(memlord *lord, mli_call *call, uint64_t key,
                                              uint64_t bytes);
/* Calls mli_stack_pick_slow, if the thread's allocs may be picked. */
static MLI_HOT void mli_stack_pick(memlord *lord, mli_call *call, uint64_t key, uint64_t bytes) {
    if (MLI_UNLIKELY(mli_u32_load(&call->t->special) & MLI_SPECIAL_STACKS))
        mli_stack_pick_slow(lord, call, key, bytes);
}

MLI_PRIVATE MLI_COLD uint32_t mli_stack_depth(const memlord *lord, const mli_stack_row *row);

/* Returns the return addresses of a row's stack and, behind them, their sites, in an array for the
   host, or NULL if there is no memory. Requires: the caller holds no lock of the ledger. */
MLI_PRIVATE MLI_COLD void **mli_stack_frames(memlord *lord, mli_stack_row *row, uint32_t depth);

/* Begins to take stacks of `depth` frames, one for each `bytes` bytes on average (0:
   MLI_STACK_BYTES). The first call seeds the random numbers, and unwinds once, because the system's
   unwinder may load a library then. Requires: no other thread changes the settings. */
MLI_PRIVATE MLI_COLD void mli_stacks_begin(memlord *lord, uint32_t depth, uint64_t bytes);

/* Restarts the figures since the last reset, in all rows and in mli_stacks_cut. */
MLI_PRIVATE MLI_COLD void mli_stacks_reset(memlord *lord);
/* Returns what is wrong with the stack settings of a memlord_desc, or NULL if nothing is. */
MLI_PRIVATE MLI_COLD const char *mli_stacks_check(const memlord_desc *desc);
MLI_TABLE(const mli_life mli_stacks_life)

#endif
