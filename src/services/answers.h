/* Says who holds the bytes of a device, for memlord_explain, memlord_summary, the log of a failed
   request and the verdicts of reports. Allocates no memory. Owns no state. Locks: the lock of one
   row at a time. */
#ifndef MLI_SERVICES_ANSWERS_H
#define MLI_SERVICES_ANSWERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "base/text.h"

/* The site that stands for the arenas of devices in lists of sites. */
MLI_TABLE(const memlord_site mli_arena_site)

#define MLI_HOLDERS_LISTED 4

/* The kinds of holders: a tag or a site; the blocks that have none; the arena. In a list by tag,
   the arena holds only those of its bytes that have no tag. */
enum { MLI_HOLDER_NAMED, MLI_HOLDER_UNNAMED, MLI_HOLDER_ARENA };
typedef struct mli_holder {
    uint64_t bytes;
    const void *subject; /* the tag or the site; NULL: the holder has no name */
    uint32_t dev;
    int kind; /* one of MLI_HOLDER_... */
} mli_holder;
typedef struct mli_holder_list {
    int book;                          /* MLI_BOOK_TAG or MLI_BOOK_SITE */
    uint32_t dev;                      /* the number of the device that the list is for */
    int elsewhere;                     /* 1: one is on another device of the physical device */
    uint64_t count, named;             /* how many there are; how many are a tag or a site */
    uint64_t bytes;                    /* the bytes of all holders */
    mli_holder at[MLI_HOLDERS_LISTED]; /* the largest holders, the largest first */
} mli_holder_list;
/* Lists who holds the bytes on all devices of a physical device or, if `phys` is NULL, on `dev`, by
   tag or by site (`book`). `dev` is the device that the list is for; 0: not known. */
MLI_PRIVATE MLI_COLD void mli_holders_list(memlord *lord, const mli_phys *phys, uint32_t dev,
                                           int book, mli_holder_list *list);

/* Returns the file and line of a listed site or arena, and looks up no symbols. */
MLI_PRIVATE MLI_COLD const memlord_site *mli_holder_place(const mli_holder *h);
/* Writes the name of a listed holder: its tag or site, "untagged", "no site" or "arenas". */
MLI_PRIVATE MLI_COLD void mli_put_holder(memlord *lord, mli_out *o, int book, const mli_holder *h);
/* Writes "; by tag: untagged 70 GiB, arenas 5 GiB, ..., and 3 more with 1 GiB", with devices if
   there are others. Writes nothing without a tag or a site, unless a list by tag has several. */
MLI_PRIVATE MLI_COLD void mli_put_holders(memlord *lord, mli_out *o, const mli_holder_list *list);

/* Returns how many percent of a device's live bytes a part is: at most 100, although the two may
   have been read at different moments. */
MLI_PRIVATE MLI_COLD double mli_share_of_live(uint64_t part, uint64_t live);

#endif
