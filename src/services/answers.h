/* Says who holds a device, without an allocation: for memlord_explain, memlord_summary, the log
   of a failed request, and the verdicts of reports. Owns no state. May use the rows of books/ and
   services/stats. Locks: row, one at a time. */
#ifndef MLI_SERVICES_ANSWERS_H
#define MLI_SERVICES_ANSWERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "base/text.h"

/* The record that lists show for the balance of a device's arena, which no block and no site
   holds. */
MLI_TABLE(const memlord_site mli_arena_site)

#define MLI_HOLDERS_LISTED 4

/* What holds bytes of a device: a tag or a site; the blocks that have no tag or site; or the
   arena. In a list by tag the arena has only its bytes without a tag. */
enum { MLI_HOLDER_NAMED, MLI_HOLDER_UNNAMED, MLI_HOLDER_ARENA };
typedef struct mli_holder {
    uint64_t bytes;
    const void *subject; /* the tag, or the site; NULL: the holder has no name */
    uint32_t dev;
    int kind; /* MLI_HOLDER_... */
} mli_holder;
typedef struct mli_holder_list {
    int book;                          /* MLI_BOOK_TAG or MLI_BOOK_SITE */
    uint32_t dev;                      /* the list is for this device */
    int elsewhere;                     /* 1: some holder is on another device of the phys */
    uint64_t count, named;             /* the holders in all; those that are a tag or a site */
    uint64_t bytes;                    /* the sum over all holders */
    mli_holder at[MLI_HOLDERS_LISTED]; /* the largest ones, in order */
} mli_holder_list;
/* Lists the holders of a phys, by tag or by site, for one of its devices. dev 0: the device was not
   seen yet. phys NULL: lists the holders of the device alone. */
MLI_PRIVATE MLI_COLD void mli_holders_list(memlord *lord, const mli_phys *phys, uint32_t dev,
                                           int book, mli_holder_list *list);

/* Returns the place of a listed site, without a look-up of symbols; for an arena, the record that
   stands for arenas. */
MLI_PRIVATE MLI_COLD const memlord_site *mli_holder_place(const mli_holder *h);
/* Writes the name of a listed holder: its tag or site, "untagged", "no site" or "arenas". */
MLI_PRIVATE MLI_COLD void mli_put_holder(memlord *lord, mli_out *o, int book, const mli_holder *h);
/* Writes "; by tag: untagged 70 GiB, arenas 5 GiB, ..., and 3 more with 1 GiB". If some holder is
   on another device, each name follows its device. Writes nothing for a list of sites that names
   none, nor for a list of tags that has one holder without a name. */
MLI_PRIVATE MLI_COLD void mli_put_holders(memlord *lord, mli_out *o, const mli_holder_list *list);

/* Returns how many percent of a device's live bytes a part is. The two may be of different moments:
   it is at most 100. */
MLI_PRIVATE MLI_COLD double mli_share_of_live(uint64_t part, uint64_t live);

#endif
