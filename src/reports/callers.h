/* Finds who calls a standard library at a site, which is the first function of each stack of the
   site that is the program's own. Owns the list of stacks by site in the report. May use
   reports/capture and the reading functions of books/. Locks: those of the reading functions. */
#ifndef MLI_REPORTS_CALLERS_H
#define MLI_REPORTS_CALLERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

#define MLI_CALLERS 64 /* the most callers of a site; others count as one without a function */

/* What a function of the program allocated at a site, as far as the stacks of the site tell. The
   numbers are estimates if stacks are samples. */
typedef struct mli_caller {
    const memlord_site *at; /* the function, or NULL for several functions */
    uint64_t live_bytes, alloc_bytes, allocs;
} mli_caller;
typedef struct mli_callers {
    size_t count;
    mli_caller at[MLI_CALLERS + 1]; /* ordered by live bytes, and then by allocated bytes, the most
                                       first */
} mli_callers;

/* Lists the stacks of each site for mli_callers_of. Requires: the report has its stacks. */
MLI_PRIVATE MLI_COLD void mli_callers_begin(mli_report *r);
MLI_PRIVATE MLI_COLD void mli_callers_end(mli_report *r);
/* Finds the callers of a row of sites. There are none if the site is not in a library, or has no
   stack. */
MLI_PRIVATE MLI_COLD void mli_callers_of(mli_report *r, uint32_t row, mli_callers *out);

#endif
