/* Writes HTML: the page with the JSON report in it. Owns no state. Locks: none. */
#ifndef MLI_REPORTS_HTML_H
#define MLI_REPORTS_HTML_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

#if !defined(MEMLORD_NO_PAGE)
MLI_PRIVATE MLI_COLD void mli_html(mli_report *r);
#endif

#endif
