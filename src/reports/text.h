/* Writes TEXT from a capture: a first screen of about 25 lines, then the lists in full. The screen
   begins with the verdicts. Owns no state. Uses reports/capture and reports/verdicts. Locks:
   none. */
#ifndef MLI_REPORTS_TEXT_H
#define MLI_REPORTS_TEXT_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

MLI_PRIVATE void mli_text_devices(mli_report *r, size_t most);

MLI_PRIVATE MLI_COLD void mli_text(mli_report *r);

#endif
