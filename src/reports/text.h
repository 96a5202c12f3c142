/* Writes TEXT from a capture. Owns no state. Locks: none. */
#ifndef MLI_REPORTS_TEXT_H
#define MLI_REPORTS_TEXT_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

/* TEXT begins with a first screen of about 25 lines, with the verdicts on top. The lists follow. */

MLI_PRIVATE void mli_text_devices(mli_report *r, size_t most);

MLI_PRIVATE MLI_COLD void mli_text(mli_report *r);

#endif
