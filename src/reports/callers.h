/* Finds the functions of the program that call a standard library at a site: in each stack of the
   site, the innermost function that is in no library. A row is the number of a site on one device,
   or of a stack. Owns the list of stacks by site in the report. May use reports/capture and the
   reading functions of books/. Locks: those of the reading functions. */
#ifndef MLI_REPORTS_CALLERS_H
#define MLI_REPORTS_CALLERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

#define MLI_CALLERS 64 /* the most callers that are listed for a site; the others are added up in
                          one without a function */

/* What one function of the program allocated at a site, as far as the site's stacks tell. The
   numbers are estimates if stacks are samples. */
typedef struct mli_caller {
    const memlord_site *at; /* the function; NULL: the callers beyond MLI_CALLERS */
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
/* Finds the callers of the site with the number `row`. There are none if the site is not in a
   standard library, or has no stack. */
MLI_PRIVATE MLI_COLD void mli_callers_of(mli_report *r, uint32_t row, mli_callers *out);

#endif
