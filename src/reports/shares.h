/* Owns the table that divides the blocks of a site among its stacks, if stacks are samples: if only
   some blocks are picked to have a stack. A whole is what is divided, such as the live blocks of a
   site. A share is what one stack gets of it. A frame is a site or another name by which blocks are
   shown. May use reports/export. Locks: none. */
#ifndef MLI_REPORTS_SHARES_H
#define MLI_REPORTS_SHARES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/export.h"

/* The figures of sites are exact. Those of stacks come from samples, because only some blocks are
   picked for a stack. A stack gets the blocks that were picked, and a share of the other blocks of
   its site. The share is in proportion to the blocks that the stack's samples stand for, without
   the samples themselves. The stacks then add up to the site, and a block that was picked keeps its
   own bytes. If a site has no sample, its blocks stay with the site, as a stack of one frame. Live
   blocks are divided by site, tag and scope. Freed blocks are divided by site. The allocs of a site
   are its live and its freed blocks together. */

#if !defined(MEMLORD_NO_PROFILES)

/* Of the blocks that were not picked, a stack gets at most this many times the number that its
   samples stand for. The site keeps the remainder, which must come from stacks without a picked
   block. */
#define MLI_PORTION_MOST 4

/* A whole, or the share of one stack in a whole. The numbers of a whole are exact. A whole is one
   of these: the live blocks of a site, tag and scope; the allocs of a site; the allocs of a
   device. */
typedef struct mli_portion {
    uint32_t frame, tag, scope; /* frame: the frame of the site, or 0 for the allocs of a
                                   device */
    uint32_t node;              /* the stack that the share is of; 0 if this is a whole */
    uint32_t next;              /* the number of the next share of the same whole, from 1; 0 if this
                                   is the last share */
    unsigned char dev;          /* the device; 0 if the entry is vacant */
    unsigned char allocs;       /* 1: allocs since the last reset; 0: live blocks */
    unsigned char has_live;     /* 1: these are the allocs of a site, and all of its live blocks are
                                   among them */
    int64_t value[2];           /* blocks and bytes: at first those that were picked as samples,
                                   later all blocks of the share */
    double rest[2];             /* the blocks and bytes that the samples stand for, without the
                                   samples themselves */
} mli_portion;
typedef struct mli_shares {
    mli_export *x;
    mli_portion *at;  /* a table with open addressing; NULL if stacks are not samples */
    size_t cap, used; /* the number of entries, which is a power of two; the number of entries in
                         use */
    mli_portion none; /* the entry that callers get if there was no memory for a new one */
    /* By the device's number: the allocs of sites or stacks so far, and their bytes. Used if there
       are no shares. */
    uint64_t allocs[MEMLORD_MAX_DEVICES + 1];
    uint64_t alloc_bytes[MEMLORD_MAX_DEVICES + 1];
} mli_shares;

/* Makes the shares if stacks are samples, else makes no table. If there is no memory, the report
   fails. Requires: t is zeroed. */
MLI_PRIVATE MLI_COLD void mli_shares_make(mli_export *x, mli_shares *t);
MLI_PRIVATE MLI_COLD void mli_shares_free(mli_shares *t);

/* Calls put for every live block, then for the arenas. The blocks of one share come as one
   block. */
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
    void (*put)(void *writer, const mli_group *group); /* NULL if an evicted group need not be
                                                          written */
    mli_part_fn put_part;
    mli_group at[MLI_GROUPS];
} mli_groups;

/* Returns the group of a block. A new group is empty. Looks at 8 slots. If other groups use all of
   them, evicts the first of these: writes it to the output, and gives its slot to the new group. A
   group may be written more than once, and readers of the formats add equal groups up. */
MLI_PRIVATE MLI_COLD mli_group *mli_group_at(mli_groups *groups, const mli_live_block *b);
/* Adds every live block to its group, writes the parts of blocks, and writes all groups. */
MLI_PRIVATE MLI_COLD void mli_groups_each(mli_shares *t, mli_groups *groups);

/* Calls put for the allocs of each site since the last reset or, in a format with stacks, for the
   allocs of each stack. Then calls put, for each device, for the allocs that have no site. If
   stacks are samples, the numbers of a stack are those of its share. */
typedef void (*mli_allocs_fn)(void *writer, const mli_live_block *of, uint64_t allocs,
                              uint64_t bytes);
MLI_PRIVATE MLI_COLD void mli_allocs_each(mli_shares *t, mli_allocs_fn put, void *writer);
#endif

#endif
