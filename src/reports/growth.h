/* Finds what grows over the snapshots of a report, by device, by tag and by site. Owns
   mli_series_list, a part of a report. May use books/ and services/snapshots. Locks: none. */
#ifndef MLI_REPORTS_GROWTH_H
#define MLI_REPORTS_GROWTH_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "services/snapshots.h"

/* What grows is found by a straight line through the live bytes of consecutive snapshots, the
   last one included, by least squares. The line has at least MLI_GROWTH_POINTS snapshots and
   MLI_GROWTH_NS, because what a program takes in its first moments tells nothing of a minute. It
   begins in the first half of the time, and explains the bytes with an R2 of at least 0.8. It
   rises by at least 1 MiB a minute, or by at least 1 % of the capacity in all. In its second half
   it rises at least half as fast. Earlier snapshots have less than the middle of the line, so that
   the last tooth of a sawtooth is no growth. Of several such lines the longest one counts whose R2
   is the highest, or 0.02 below it. */
#define MLI_GROWTH_POINTS 8
#define MLI_GROWTH_NS 1000000000u
#define MLI_SERIES 64  /* how many tags, and how many sites, a report follows over its snapshots */
#define MLI_GROWING 20 /* how many of what grows a report lists */

typedef struct mli_series { /* the live bytes of a device, a tag or a site over the snapshots */
    uint64_t most;    /* the highest number of bytes in a snapshot */
    uint64_t rate;    /* by how many bytes a minute it grows; 0: it does not */
    double fit;       /* R2 of the line */
    int book;         /* MLI_BOOK_... */
    uint32_t dev;     /* the device */
    uint32_t row;     /* the row of the tag or site; 0: the bytes that have none, or a device */
    uint32_t since;   /* the index of the snapshot from which on it grows */
    uint32_t points;  /* how many snapshots the line has */
} mli_series;
typedef struct mli_series_list {
    const mli_snapshot *const *snapshot;     /* the snapshots, the oldest first */
    uint32_t snapshots;
    uint32_t count[MLI_BOOKS];               /* by book: how many series of tags or sites */
    mli_series at[MLI_BOOKS][MLI_SERIES];    /* by book: those with the most bytes, the first with
                                                the highest `most`; no devices */
    size_t growing, growing_all;             /* how many are in `grows`; how many grow */
    mli_series grows[MLI_GROWING];           /* what grows, the fastest first */
} mli_series_list;

/* Collects the series of n snapshots. Requires: the list is zeroed. */
MLI_PRIVATE MLI_COLD void mli_series_collect(mli_series_list *list,
                                             const mli_snapshot *const *snapshot, uint32_t n);
/* Returns the bytes of a series in a snapshot. Returns UINT64_MAX if they are not known, because
   MLI_HOLDERS others of the device had more. */
MLI_PRIVATE MLI_COLD uint64_t mli_series_level(const mli_series_list *list, const mli_series *s,
                                               uint32_t snapshot);
/* Finds out which series of a device grow, and adds them to list->grows. `capacity` is that of the
   device, or 0 if it is not known. */
MLI_PRIVATE MLI_COLD void mli_series_fit(mli_series_list *list, uint32_t dev, uint64_t capacity);

#endif
