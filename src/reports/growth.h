/* Finds what grows over the snapshots of a report. A series is the live bytes of a device, a tag or
   a site over the snapshots. Owns mli_series_list, a part of a report. Locks: none. */
#ifndef MLI_REPORTS_GROWTH_H
#define MLI_REPORTS_GROWTH_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "services/snapshots.h"

/* A series grows if a straight line fits the live bytes of consecutive snapshots, up to the last
   one, by least squares. It has at least MLI_GROWTH_POINTS snapshots over at least MLI_GROWTH_NS,
   begins in the first half of the time, and fits with an R2 of at least 0.8. It rises by at least 1
   MiB a minute, or by at least 1 % of the capacity in all, and a line through its second half rises
   at least half as fast. The last snapshot has at least the mean of the line's snapshots, because a
   program that frees all at its end does not grow. No snapshot before the line has more bytes than
   its middle, so that the last tooth of a sawtooth is no growth. Of several such lines, those with
   an R2 of at most 0.02 below the highest remain, and the longest is taken. */
#define MLI_GROWTH_POINTS 8
#define MLI_GROWTH_NS 1000000000u
#define MLI_SERIES 64  /* the most series of tags, and the most series of sites, in a report */
#define MLI_GROWING 20 /* the most growing series that a report lists */

typedef struct mli_series { /* the live bytes of a device, a tag or a site over the snapshots */
    uint64_t most;    /* the highest number of bytes in a snapshot */
    uint64_t rate;    /* by how many bytes a minute the series grows; 0 if it does not grow */
    double fit;       /* R2, which says how well the line fits, from 0 to 1 */
    uint64_t points;  /* how many snapshots the line goes through */
    int book;         /* MLI_BOOK_DEVICE, _TAG or _SITE: whose bytes the series has */
    uint32_t dev;     /* the ledger's number of the device */
    uint32_t row;     /* the tag or site on the device; 0: the bytes without one, or the device */
    uint32_t since;   /* the index of the snapshot at which the growth begins */
} mli_series;
typedef struct mli_series_list {
    const mli_snapshot *const *snapshot;     /* the snapshots, the oldest first */
    uint32_t snapshots;
    uint32_t count[MLI_BOOKS];               /* how many series there are, by MLI_BOOK_... */
    mli_series at[MLI_BOOKS][MLI_SERIES];    /* by MLI_BOOK_..., those of tags and of sites with the
                                                highest `most` first */
    size_t growing, growing_all;             /* how many are in `grows`, and how many grow in all */
    mli_series grows[MLI_GROWING];           /* the growing series, the fastest first */
} mli_series_list;

/* Collects the series of n snapshots. Requires: the list is zeroed. */
MLI_PRIVATE MLI_COLD void mli_series_collect(mli_series_list *list,
                                             const mli_snapshot *const *snapshot, uint32_t n);
/* Returns the bytes of a series in a snapshot, or UINT64_MAX if it is not listed there. */
MLI_PRIVATE MLI_COLD uint64_t mli_series_level(const mli_series_list *list, const mli_series *s,
                                               uint32_t snapshot);
/* Adds the series of a device that grow to list->grows. `capacity` is 0 if it is not known. */
MLI_PRIVATE MLI_COLD void mli_series_fit(mli_series_list *list, uint32_t dev, uint64_t capacity);

#endif
