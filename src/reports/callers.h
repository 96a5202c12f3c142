/* Finds the callers of a site. In each stack of the site the caller is the innermost function that
   is in no standard library and is not the site's own function. Owns the list of the stacks of each
   site in the report. Locks: those of the reading functions. */
#ifndef MLI_REPORTS_CALLERS_H
#define MLI_REPORTS_CALLERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

#define MLI_CALLERS 64 /* the most that are listed for a site; one more entry has the rest */

/* What was allocated at a site when one function called it, an estimate if stacks are samples. */
typedef struct mli_caller {
    const memlord_site *at; /* the function; NULL: the callers beyond MLI_CALLERS */
    uint64_t live_bytes, alloc_bytes, allocs;
    uint64_t at_peak_bytes; /* what was live at the peak of the device */
    uint64_t share; /* at_peak_bytes, if the report is in this order and a caller has any; else
                       live_bytes, if a caller has any; else alloc_bytes */
} mli_caller;
struct mli_callers {
    size_t count;
    uint64_t sum;                   /* the sum of the shares */
    mli_caller at[MLI_CALLERS + 1]; /* the largest share first */
};

/* Walks the functions of a stack that are in no standard library. */
typedef struct mli_own_walk {
    memlord *lord;
    uint32_t node, function; /* the frame to look at next, and the next function inlined in it; a
                                walk starts at the innermost frame, with 0 */
} mli_own_walk;
/* Returns the next function, the innermost first, or NULL after the last one. */
MLI_PRIVATE MLI_COLD const memlord_site *mli_own_next(mli_own_walk *walk);

/* Lists the stacks of each site for mli_callers_of. Requires: the report has its stacks. */
MLI_PRIVATE MLI_COLD void mli_callers_begin(mli_report *r);
MLI_PRIVATE MLI_COLD void mli_callers_end(mli_report *r);
/* Returns the callers of the site `row`, in memory that the next call overwrites, or NULL if none
   is known. Those of a site in no standard library are known only by names. */
MLI_PRIVATE MLI_COLD const mli_callers *mli_callers_of(mli_report *r, uint32_t row);

#endif
