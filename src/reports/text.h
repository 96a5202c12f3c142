/* Writes TEXT from a capture, which has the lists that a report is written from. A snapshot is the
   live bytes at one moment, and a checkpoint is a snapshot with a name. Leaks are the live blocks
   that were allocated since the last mark. Owns no state. May use reports/capture, reports/answers,
   reports/callers, reports/growth, reports/leaks and reports/lists. Locks: none. */
#ifndef MLI_REPORTS_TEXT_H
#define MLI_REPORTS_TEXT_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

/* TEXT begins with a first screen of about 25 lines, with the verdicts at its top. The full lists
   follow. */

MLI_PRIVATE void mli_text_devices(mli_report *r, size_t most);

MLI_PRIVATE MLI_COLD void mli_text(mli_report *r);

#endif
