/* Writes JSON, schema memlord/2. A brief report is the one inside the HTML page. Owns no state.
   Locks: none. */
#ifndef MLI_REPORTS_JSON_H
#define MLI_REPORTS_JSON_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/text.h"
#include "reports/capture.h"

MLI_PRIVATE void mli_json_u64(mli_out *o, const char *name, uint64_t v);

MLI_PRIVATE MLI_COLD void mli_json_parts(mli_report *r, uint32_t type, uint64_t storage);

/* Writes the report. If `brief` is 1, leaves out the members that the HTML page does not read. */
MLI_PRIVATE MLI_COLD void mli_json_run(mli_report *r, int brief);
MLI_PRIVATE MLI_COLD void mli_json(mli_report *r);

#endif
