/* Walks the blocks of the map, and lists the k largest. Owns no state. Invariant: host code gets
   copies of blocks, and runs while no shard is paused. Locks: those of the map. */
#ifndef MLI_BOOKS_LISTING_H
#define MLI_BOOKS_LISTING_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "books/map.h"

/* Copies a block for the host, with its site as reports display it now; the names of a return
   address may not have been looked up yet. Requires: the caller is inside the block's shard, or has
   paused it, or `e` is a copy without a side record. */
MLI_PRIVATE MLI_COLD void mli_block_copy_out(memlord *lord, const mli_entry *e,
                                             memlord_block_info *out);
/* Is called for each block of a query in a paused shard. A value other than 0 ends the walk. */
typedef int (*mli_visit_fn)(memlord *lord, const mli_entry *e, void *user);

/* What selects the blocks that a walk over the map visits. */
typedef struct mli_walk_query {
    memlord_device sel;
    uint64_t min_bytes, min_born;
    uint64_t address;   /* if `containing` is 1, selects only blocks that have this address */
    int containing;     /* 1: `address` is used, and min_born is not */
    size_t part, parts; /* visits part `part` of each shard, out of `parts`; 0: all of each shard */
    memlord *lord;      /* mli_shard_visit sets this member and the next two */
    mli_visit_fn fn;
    void *user;
} mli_walk_query;
/* Returns a query that selects all blocks on the devices that `sel` includes. */
MLI_PRIVATE mli_walk_query mli_walk_query_of(memlord_device sel);

/* Calls fn for each block that matches a query, one shard after the other: see mli_shard_visit. */
MLI_PRIVATE MLI_COLD void mli_map_visit(memlord *lord, mli_walk_query *q, mli_visit_fn fn,
                                        void *user);

/* Fills an item, the copy of a block, from its entry while its shard is paused. */
typedef void (*mli_fill_fn)(void *user, const mli_entry *e, void *item);
/* A function that is called for each item. If it returns a value other than 0, the walk ends. */
typedef int (*mli_item_fn)(void *user, void *item);

/* Makes an item of `size` bytes for each block that matches a query, and calls fn for each item
   while no shard is paused, so fn may call the host. */
MLI_PRIVATE MLI_COLD memlord_result mli_copies_each(memlord *lord, mli_walk_query *q, size_t size,
                                                    mli_fill_fn fill, mli_item_fn fn, void *user);
MLI_PRIVATE MLI_COLD memlord_result mli_map_each(memlord *lord, mli_walk_query *q,
                                                 memlord_block_fn fn, void *user, size_t *seen);

/* The k largest blocks, where k is `cap`. The array is a heap once `count` is `cap`. */
typedef struct mli_largest {
    memlord_block_info *at;
    size_t count, cap;
} mli_largest;
/* An mli_visit_fn that keeps a block if it is one of the k largest so far. */
MLI_PRIVATE MLI_COLD int mli_visit_top(memlord *lord, const mli_entry *e, void *user);
/* Sorts the heap, the largest block first, names the sites, and returns the number of blocks. */
MLI_PRIVATE MLI_COLD size_t mli_block_heap_sort(memlord *lord, mli_largest *top);

#endif
