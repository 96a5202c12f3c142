/* Implements the table of picked blocks, which tells the stack of each block. Owns no state: the
   table is in the state of books/stacks. Invariant: a part of the table is at most three quarters
   full. Locks: MLI_RANK_STACKS, one for each part. */
#ifndef MLI_BOOKS_PICKS_H
#define MLI_BOOKS_PICKS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/map.h"

/* A picked block. It stands for `scale` allocs of its size: `scale` is 1 divided by the probability
   that such an alloc is picked. The weight of the block is its bytes times `scale`. */
typedef struct mli_pick {
    uint64_t key;
    double scale;
    uint32_t row;  /* the row of the stack; 0 if the entry is vacant or the block was not picked */
    uint32_t type; /* the device type of the key */
} mli_pick;
MLI_TABLE(const mli_pick mli_pick_none)

#define MLI_PICK_PART_BITS 6 /* log2 of the number of parts of the table */
#define MLI_PICK_PARTS (1u << MLI_PICK_PART_BITS)

/* A part of the table, in a cache line of its own: a hash table with linear probing. */
typedef struct mli_picks {
    mli_lock lock; /* guards all other members */
    mli_ptr table; /* mli_pick_slot *: the address of the slots, plus log2 of their number; NULL if
                      there are none. The address is a multiple of 128 (base/memory) */
    size_t count, reserved; /* slots in use; vacant slots that calls have reserved */
    char pad[32];
} mli_picks;

/* Returns the part of the table for a key: all keys of a shard of the map are in one part. */
MLI_PRIVATE mli_picks *mli_picks_part(memlord *lord, mli_picks *parts, uint64_t key);
/* Reserves room for one more block in a part. Returns 0 if there is no memory. */
MLI_PRIVATE MLI_COLD int mli_pick_reserve(memlord *lord, mli_picks *part);
/* Gives back the room that was reserved for a block, because the call does not record the block. */
MLI_PRIVATE void mli_pick_unreserve(mli_picks *part);
/* Adds a block to a part, in the room that mli_pick_reserve has reserved for it. */
MLI_PRIVATE void mli_pick_add(mli_picks *part, const mli_pick *pick);
/* Returns the picked block of a key, or row 0, and removes it if `remove` is 1. */
MLI_PRIVATE mli_pick mli_pick_take(mli_picks *part, uint32_t type, uint64_t key, int remove);
/* Returns the weight of a picked block of `bytes`: these bytes times pick->scale. */
MLI_PRIVATE MLI_NOINLINE uint64_t mli_pick_weight(const mli_pick *pick, uint64_t bytes);
/* The weight of a picked block is an estimate of the bytes of the allocs that the block stands for.
   Returns the variance of this estimate, which is 0 if every alloc is picked. */
MLI_PRIVATE double mli_pick_variance(const mli_pick *pick, uint64_t bytes);
#define MLI_STACK_UNITS 256
/* Returns the number of allocs that a block stands for, times MLI_STACK_UNITS. */
MLI_PRIVATE uint64_t mli_pick_units(const mli_pick *pick);

/* Each of the next four functions works on all parts of a table. In this order they give the locks
   their rank, take or drop the locks, free the memory, and return the number of blocks. */
MLI_PRIVATE MLI_COLD void mli_picks_init(mli_picks *parts);
MLI_PRIVATE MLI_COLD void mli_picks_lock(mli_picks *parts, int take);
MLI_PRIVATE MLI_COLD void mli_picks_free(memlord *lord, mli_picks *parts);
#if !defined(MEMLORD_NO_VERIFY)
MLI_PRIVATE MLI_COLD uint64_t mli_picks_sum(const mli_picks *parts);
#endif

#endif
