/* Owns the table that divides the blocks of a site among its stacks. May use reports/export. Locks:
   none. */
#ifndef MLI_REPORTS_SHARES_H
#define MLI_REPORTS_SHARES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/export.h"

/* Sites are exact and stacks are samples. So a stack has the picked blocks, and a share of the
   other blocks of its site, in proportion to the blocks that its samples stand for besides
   themselves. Then the stacks add up to the site, and a block that was picked has its own bytes.
   Blocks of a site without a sample stay with the site: a stack of its one frame. Live blocks are
   divided by site, tag and scope. The allocs of a site are its live blocks and its freed ones,
   which are divided by site. */

#if !defined(MEMLORD_NO_PROFILES)

/* A whole, whose numbers are exact, or the share of one stack in it. The wholes of live blocks are
   those of one site, tag and scope; the wholes of allocs are sites, and those of their device. */
typedef struct mli_portion {
    uint32_t frame, tag, scope; /* frame 0: the allocs of a device */
    uint32_t node;              /* 0: a whole */
    uint32_t next;              /* the next share of the same whole, from 1; 0: the last */
    unsigned char dev;          /* 0: a vacant entry */
    unsigned char allocs;       /* 1: of allocs since the last reset; 0: of live blocks */
    unsigned char has_live;     /* 1: the allocs of a site, and its live blocks are among them */
    int64_t value[2];           /* blocks and bytes: first of the samples alone, then of the
                                   share */
    double rest[2];             /* for the blocks that samples stand for, besides themselves */
} mli_portion;
typedef struct mli_shares {
    mli_export *x;
    mli_portion *at;  /* open addressing; NULL: stacks are no samples, there are no shares */
    size_t cap, used; /* the number of its entries, a power of two; how many are in use */
    mli_portion none; /* takes the place of an entry for which there is no memory */
    uint64_t allocs[MEMLORD_MAX_DEVICES + 1]; /* by dev: the allocs of its sites or stacks, without
                                                 shares */
    uint64_t alloc_bytes[MEMLORD_MAX_DEVICES + 1];
} mli_shares;

/* Makes the shares, where stacks are samples. Requires: t is zeroed. Without memory the report
   fails. */
MLI_PRIVATE MLI_COLD void mli_shares_make(mli_export *x, mli_shares *t);
MLI_PRIVATE MLI_COLD void mli_shares_free(mli_shares *t);

/* Calls put for every live block; the blocks of one share come as one block. Then it calls put for
   the arenas. */
MLI_PRIVATE MLI_COLD void mli_share_blocks_each(mli_shares *t, mli_block_fn put, void *writer);

MLI_PRIVATE const char *mli_part_name(const memlord_part_info *part);

/* Live blocks of one stack, tag and device. */
#define MLI_GROUPS 256
typedef struct mli_group {
    mli_live_block of; /* dev 0: a free group */
    uint64_t blocks, bytes;
} mli_group;
typedef struct mli_groups {
    mli_export *x;
    void *writer;
    void (*put)(void *writer, const mli_group *group); /* NULL: an evicted group is not written */
    mli_part_fn put_part;
    mli_group at[MLI_GROUPS];
} mli_groups;

/* Returns the group of a block, empty if it is new. Probes 8 slots; if all have other groups,
   writes the group at the home slot and evicts it. An evicted group may be written again later:
   readers of the formats with groups add equal ones up. */
MLI_PRIVATE MLI_COLD mli_group *mli_group_at(mli_groups *groups, const mli_live_block *b);
/* Puts every live block into its group and the parts of blocks beside it, and writes all groups. */
MLI_PRIVATE MLI_COLD void mli_groups_each(mli_shares *t, mli_groups *groups);

/* Calls put for the allocations of each site or, in a format with stacks, of each stack since the
   last reset; then for those of each device that no site has. With samples they are shares. */
typedef void (*mli_allocs_fn)(void *writer, const mli_live_block *of, uint64_t allocs,
                              uint64_t bytes);
MLI_PRIVATE MLI_COLD void mli_allocs_each(mli_shares *t, mli_allocs_fn put, void *writer);
#endif

#endif
