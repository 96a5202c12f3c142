/* Groups and sums up leaked blocks, the live blocks that were allocated since a mark. Owns
   mli_leak_table and mli_leak_sites, which are parts of a report and of the log at destroy. Locks:
   those of the reading functions of books/. */
#ifndef MLI_REPORTS_LEAKS_H
#define MLI_REPORTS_LEAKS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "base/text.h"
#include "books/map.h"
#include "books/blocks.h"

#define MLI_LEAKS 4096      /* the most groups of leaked blocks in a table */
#define MLI_LEAKS_SHOWN 100 /* the most sites, groups and stacks of leaks that a report lists */

/* The leaked blocks of one site, tag, scope and device. */
typedef struct mli_leak_group {
    uint64_t key; /* as in a word2, with the device from bit 40, the scope from bit 48 */
    mli_entry of; /* for mli_block_copy_out: the device, and rows and birth of one of its blocks */
    uint64_t bytes, blocks;
} mli_leak_group;
typedef struct mli_leak_table {
    uint64_t bytes, blocks; /* the sums over all blocks, also over blocks in no group */
    int lost;               /* how many there are; of them, shown */
    size_t groups, count;   /* groups: how many groups there are; count: how many of them, at the
                               start of `at`, are shown; both set by mli_leaks_sort */
    size_t room;            /* the number of groups that `at` has room for, a power of 2 */
    mli_leak_group *at;     /* the groups; NULL if there was no memory, or no live block */
} mli_leak_table;

/* Allocates the groups of a table: a power of 2, at least 64 and twice the number of blocks, but at
   most MLI_LEAKS. Returns 0 if there is no memory. Requires: the table is zeroed. */
MLI_PRIVATE MLI_COLD int mli_leaks_begin(memlord *lord, mli_leak_table *leaks, uint64_t blocks);
MLI_PRIVATE MLI_COLD void mli_leaks_free(memlord *lord, mli_leak_table *leaks);

/* Adds a live block to the group of its site, tag, scope and device, in one of MLI_LEAKS_TRIED
   places. If all have other groups, sets `lost`, and replaces the smallest if it has fewer bytes
   than the block. With at most MLI_LEAKS / 2 groups the table has every group with a probability of
   about 99 %. With more it has the large groups, but a group of many small blocks may be too low.
   The sums of the table count every block. */
MLI_PRIVATE MLI_COLD void mli_leak_add(memlord *lord, mli_leak_table *leaks, uint64_t rows,
                                       uint32_t dev, uint64_t bytes);
/* Moves the `most` largest groups to the start of the table, the largest first. */
MLI_PRIVATE MLI_COLD void mli_leaks_sort(mli_leak_table *leaks, size_t most);
/* Returns a memlord_block_info with the device, site, tag and scope of a group. */
MLI_PRIVATE memlord_block_info mli_leak_info(memlord *lord, const mli_leak_group *leak);
/* Writes a group, as in "cuda:0 [weights] in load read_tensors loader.c:12", if `site` with it. */
MLI_PRIVATE MLI_COLD void mli_put_leak(mli_out *o, memlord *lord, const mli_leak_group *leak,
                                       int site);

/* Leaks by site. Each site has a sum of its own on each device, so the sums are right however many
   groups there are. The groups tell the tags, scopes and devices of its blocks, unless some are in
   no group. Blocks without a site are added up by their tag. */

typedef struct mli_leak_sum { /* the leaked blocks of a site, or of a tag, on one device */
    uint64_t bytes, blocks;
    uint32_t number; /* the number of this site in the list, from 1; 0 if the site is not listed */
} mli_leak_sum;
typedef struct mli_leak_site { /* the leaked blocks of a site, of all tags, scopes and devices */
    uint64_t bytes, blocks;
    const void *subject; /* the site's record, or the tag of blocks without one; NULL: neither */
    int is_site;
    size_t sum;                     /* the index of the site's sum in mli_leak_sites.sum */
    uint32_t devices, tags, scopes; /* how many the blocks have; not known, with `devices` 0, if
                                       some of the blocks are in no group */
    int untagged, unscoped;         /* 1: some of the blocks have no tag; are in no scope */
    uint32_t dev;                   /* one of the blocks' devices */
    const char *tag, *scope;        /* one of the blocks' tags, and one of their scopes */
} mli_leak_site;
typedef struct mli_leak_sites {
    memlord *lord;
    uint32_t rows, tags, scopes, devices; /* the last site, tag, scope and device that is counted */
    size_t size;                          /* the bytes of the allocation at `sum` */
    mli_leak_sum *sum;   /* for each row of a site the sum of its blocks, then for each row of a tag
                            that of its blocks without a site; NULL: there was no memory */
    unsigned char *seen; /* for each tag, scope, device: the last listed site that has it */
    mli_leak_site line[MLI_LEAKS_SHOWN]; /* the largest sites, the largest first */
    size_t lines, total;                 /* how many sites are listed, and how many have leaks */
    unsigned char of[MLI_LEAKS]; /* each group's site in the list, from 1; 0: not listed */
} mli_leak_sites;

/* Begins the sums. Returns 0 if there is no memory for them. Requires: s is zeroed. */
MLI_PRIVATE MLI_COLD int mli_leak_sites_begin(mli_leak_sites *s, memlord *lord, uint32_t devices,
                                              uint32_t tags, uint32_t scopes);
/* Adds a leaked block. `rows` has the numbers of its site and tag, as an entry's word2 has them. */
MLI_PRIVATE MLI_COLD void mli_leak_sites_add(mli_leak_sites *s, uint64_t rows, uint64_t bytes);
/* Lists the sites, sorts the groups, and finds the sites of these. Requires: all are added. */
MLI_PRIVATE MLI_COLD void mli_leak_sites_list(mli_leak_sites *s, mli_leak_table *groups);
MLI_PRIVATE MLI_COLD void mli_leak_sites_free(mli_leak_sites *s);

/* Returns the sum of the leaked blocks that are in none of the first `lines` lines of the list. */
MLI_PRIVATE MLI_COLD mli_leak_sum mli_leak_sites_rest(const mli_leak_sites *s,
                                                      const mli_leak_table *groups, size_t lines);
/* Returns the site of a line of the list, or NULL if its blocks have no site. */
MLI_PRIVATE MLI_COLD const memlord_site *mli_leak_site_of(const mli_leak_sites *s,
                                                          const mli_leak_site *line);

#endif
