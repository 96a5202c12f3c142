/* Chooses the writer of a format, and writes HTML. Owns no state. Uses the writers. Locks: none. */
#ifndef MLI_REPORTS_FORMATS_H
#define MLI_REPORTS_FORMATS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

MLI_PRIVATE int mli_format_known(memlord_format format);

MLI_PRIVATE MLI_COLD void mli_format_write(mli_report *r, memlord_format format);

#endif
