/* Owns the table that divides the blocks of a site among its stacks, if stacks are samples. A whole
   is what is divided, such as the live blocks of a site. A share is what one stack gets of it.
   Locks: none. */
#ifndef MLI_REPORTS_SHARES_H
#define MLI_REPORTS_SHARES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/export.h"

/* The figures of sites are exact; those of stacks come from samples. A stack gets the blocks that
   were picked, with their own bytes, and a share of the other blocks of its site, in proportion to
   those that its samples stand for without the samples themselves. The stacks then add up to the
   site. If a site has no sample, its blocks stay with it, as a stack of one frame. Live blocks are
   divided by site, tag and scope, and freed blocks by site; the allocs of a site are both
   together. */

#if !defined(MEMLORD_NO_PROFILES)

/* A stack gets at most this many times the number that its samples stand for. The site keeps the
   rest, which must come from stacks without a picked block. */
#define MLI_PORTION_MOST 4

/* A whole, whose numbers are exact, or the share of one stack in it. A whole is the live blocks of
   a site, tag and scope, the allocs of a site, or the allocs of a device. */
typedef struct mli_portion {
    uint32_t frame, tag, scope; /* frame: that of the site, or 0 for the allocs of a device */
    uint32_t node;              /* the stack that the share is of; 0 if this is a whole */
    uint32_t next;              /* the next share of the same whole, from 1; 0: this is the last */
    unsigned char dev;          /* the device; 0 if the entry is vacant */
    unsigned char allocs;       /* 1: allocs since the last reset; 0: live blocks */
    unsigned char has_live;     /* 1: the allocs of a site, with all of its live blocks */
    int64_t value[2];           /* blocks and bytes: first the picked ones, later all */
    double rest[2];             /* what the samples stand for, without themselves */
} mli_portion;
typedef struct mli_shares {
    mli_export *x;
    mli_portion *at;  /* a table with open addressing; NULL if stacks are not samples */
    size_t cap, used; /* the number of entries, a power of two; those in use */
    mli_portion none; /* the entry that callers get if there was no memory for a new one */
    /* By dev: the allocs of sites or stacks so far, and their bytes, if there are no shares. */
    uint64_t allocs[MEMLORD_MAX_DEVICES + 1];
    uint64_t alloc_bytes[MEMLORD_MAX_DEVICES + 1];
} mli_shares;

/* Makes the shares if stacks are samples and there is memory. Requires: t is zeroed. */
MLI_PRIVATE MLI_COLD void mli_shares_make(mli_export *x, mli_shares *t);
MLI_PRIVATE MLI_COLD void mli_shares_free(mli_shares *t);

/* Calls `put` for every live block, those of one share as one, and then for the arenas. */
MLI_PRIVATE MLI_COLD void mli_share_blocks_each(mli_shares *t, mli_block_fn put, void *writer);

/* Returns the name of a part. For a part without a name, returns words that say so. */
MLI_PRIVATE const char *mli_part_name(const memlord_part_info *part);

/* Live blocks that have the same site or stack, tag, scope and device. */
#define MLI_GROUPS 256
typedef struct mli_group {
    mli_live_block of; /* one of the blocks; its dev is 0 if the slot is vacant */
    uint64_t blocks, bytes;
} mli_group;
typedef struct mli_groups {
    mli_export *x;
    void *writer;
    void (*put)(void *writer, const mli_group *group); /* NULL: an evicted group is not written */
    mli_part_fn put_part;
    mli_group at[MLI_GROUPS];
} mli_groups;

/* Returns the group of a block. If other groups use all of its 8 slots, writes the first of these,
   and gives its slot to the new, empty group. Readers of the formats add equal groups up. */
MLI_PRIVATE MLI_COLD mli_group *mli_group_at(mli_groups *groups, const mli_live_block *b);
/* Adds every live block to its group, writes the parts of blocks, and writes all groups. */
MLI_PRIVATE MLI_COLD void mli_groups_each(mli_shares *t, mli_groups *groups);

/* Calls put for the allocs of each site or, in a format with stacks, of each stack or its share,
   since the last reset, then, for each device, for those that have no site. */
typedef void (*mli_allocs_fn)(void *writer, const mli_live_block *of, uint64_t allocs,
                              uint64_t bytes);
MLI_PRIVATE MLI_COLD void mli_allocs_each(mli_shares *t, mli_allocs_fn put, void *writer);
#endif

#endif
