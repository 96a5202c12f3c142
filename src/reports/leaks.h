/* Groups and sums up leaked blocks, which are the live blocks that were allocated since a mark. A
   mark is set by memlord_mark. A row is the number of a site or tag on one device. An entry is a
   live block in the ledger's map; its word2 has the rows of its site and tag. Owns mli_leak_table
   and mli_leak_sites, which are parts of a report and of the log at destroy. May use books/ and
   services/stats. Locks: those of the reading functions of books/. */
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
    uint64_t key; /* the numbers of the site and tag as in an entry's word2, with the device from
                     bit 40 and the scope from bit 48 */
    mli_entry of; /* an entry for mli_block_copy_out: word1 has the device, and word2 has the rows
                     and the birth of one block of the group; the rest is 0 */
    uint64_t bytes, blocks;
} mli_leak_group;
typedef struct mli_leak_table {
    uint64_t bytes, blocks; /* the sums over all blocks, also over blocks in no group */
    int lost;               /* 1: some blocks are in no group */
    size_t groups, count;   /* groups: how many groups there are; count: how many of them, at the
                               start of `at`, are shown; both set by mli_leaks_sort */
    size_t room;            /* the number of groups that `at` has room for, a power of 2 */
    mli_leak_group *at;     /* the groups; NULL if there was no memory, or no live block */
} mli_leak_table;

/* Allocates the groups of a table. Their number is a power of 2: at least 64 and at least twice the
   number of blocks, but at most MLI_LEAKS. Returns 0 if there is no memory. Requires: the table is
   zeroed. */
MLI_PRIVATE MLI_COLD int mli_leaks_begin(memlord *lord, mli_leak_table *leaks, uint64_t blocks);
/* Frees the groups of a table. */
MLI_PRIVATE MLI_COLD void mli_leaks_free(memlord *lord, mli_leak_table *leaks);

/* Adds a live block to the group of its site, tag, scope and device. Looks for this group, or for
   an unused one, in at most MLI_LEAKS_TRIED places. If all these places have other groups, sets
   `lost`, and replaces the smallest of these groups if it has fewer bytes than the block. If all
   blocks belong to at most MLI_LEAKS / 2 groups, the probability that the table has every group is
   about 99 %. If they belong to more, the table has the large groups, but the bytes of a group of
   many small blocks may be too low. The sums of the table count every block in either case. */
MLI_PRIVATE MLI_COLD void mli_leak_add(memlord *lord, mli_leak_table *leaks, uint64_t rows,
                                       uint32_t dev, uint64_t bytes);
/* Moves the `most` largest groups to the start of the table, the largest first. */
MLI_PRIVATE MLI_COLD void mli_leaks_sort(mli_leak_table *leaks, size_t most);
/* Returns a memlord_block_info with the device, site, tag and scope of a group. */
MLI_PRIVATE memlord_block_info mli_leak_info(memlord *lord, const mli_leak_group *leak);
/* Writes a group of leaks, as in "cuda:0 [weights] in load read_tensors loader.c:12". If `site` is
   0, leaves out the site. */
MLI_PRIVATE MLI_COLD void mli_put_leak(mli_out *o, memlord *lord, const mli_leak_group *leak,
                                       int site);

/* Leaks by site. Each site has a sum of its own on each device, so the sums are right however many
   groups there are. The groups tell the tags, scopes and devices of a site's blocks. If some of
   these blocks are in no group, their tags, scopes and devices are not known. Blocks without a site
   are added up by their tag. */

typedef struct mli_leak_sum { /* the leaked blocks of a site, or of a tag, on one device */
    uint64_t bytes, blocks;
    uint32_t number; /* the number of this site in the list, from 1; 0 if the site is not listed */
} mli_leak_sum;
typedef struct mli_leak_site { /* the leaked blocks of a site, over all its tags, scopes and
                                  devices */
    uint64_t bytes, blocks;
    const void *subject; /* the record of the site, or the name of the tag of blocks without a site;
                            NULL if the blocks have neither */
    int is_site;
    size_t sum;                     /* the index of the site's sum in mli_leak_sites.sum */
    uint32_t devices, tags, scopes; /* how many devices, tags and scopes the blocks have; if some of
                                       the blocks are in no group, these numbers are not known, and
                                       devices is 0 */
    int untagged, unscoped;         /* untagged: 1 if some of the blocks have no tag; unscoped: 1 if
                                       some of them are in no scope */
    uint32_t dev;                   /* one of the blocks' devices */
    const char *tag, *scope;        /* one of the blocks' tags, and one of their scopes */
} mli_leak_site;
typedef struct mli_leak_sites {
    memlord *lord;
    uint32_t rows, tags, scopes, devices; /* the number of the last site, tag, scope and device that
                                             is counted; later ones are left out */
    size_t size;                          /* the bytes of the allocation at `sum` */
    mli_leak_sum *sum;   /* for each row of a site: the sum of its blocks; then, for each row of a
                            tag: the sum of its blocks without a site; NULL if there was no
                            memory */
    unsigned char *seen; /* for each tag, then each scope, then each device: the number of the last
                            listed site that has it */
    mli_leak_site line[MLI_LEAKS_SHOWN]; /* the largest sites, the largest first */
    size_t lines, total;                 /* how many sites are listed, and how many have leaks */
    unsigned char of[MLI_LEAKS]; /* for each group, the number of its site in the list, from 1; 0 if
                                    the site is not listed */
} mli_leak_sites;

/* Begins the sums. Returns 0 if there is no memory for them. Requires: s is zeroed. */
MLI_PRIVATE MLI_COLD int mli_leak_sites_begin(mli_leak_sites *s, memlord *lord, uint32_t devices,
                                              uint32_t tags, uint32_t scopes);
/* Adds a leaked block. `rows` has the numbers of its site and tag, as an entry's word2 has them. */
MLI_PRIVATE MLI_COLD void mli_leak_sites_add(mli_leak_sites *s, uint64_t rows, uint64_t bytes);
/* Lists the sites. Then sorts the groups, and finds the site of each group that is shown. Requires:
   all blocks are added. */
MLI_PRIVATE MLI_COLD void mli_leak_sites_list(mli_leak_sites *s, mli_leak_table *groups);
MLI_PRIVATE MLI_COLD void mli_leak_sites_free(mli_leak_sites *s);

/* Returns the sum of the leaked blocks that are in none of the first `lines` lines of the list. */
MLI_PRIVATE MLI_COLD mli_leak_sum mli_leak_sites_rest(const mli_leak_sites *s,
                                                      const mli_leak_table *groups, size_t lines);
/* Returns the site of a line of the list, or NULL if its blocks have no site. */
MLI_PRIVATE MLI_COLD const memlord_site *mli_leak_site_of(const mli_leak_sites *s,
                                                          const mli_leak_site *line);

#endif
