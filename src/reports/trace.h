/* Writes TRACE, which shows live bytes, blocks and scopes over time. A slice is what the viewer
   draws as a bar from a begin to an end. Owns no state. Locks: none. */
#ifndef MLI_REPORTS_TRACE_H
#define MLI_REPORTS_TRACE_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

#if !defined(MEMLORD_NO_REPORTS)
MLI_PRIVATE MLI_COLD void mli_trace(mli_report *r);
#endif

#endif
