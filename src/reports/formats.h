/* Chooses the writer of a format. Owns no state. Locks: none. */
#ifndef MLI_REPORTS_FORMATS_H
#define MLI_REPORTS_FORMATS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/capture.h"

/* Returns 1 if a format exists and no MEMLORD_NO_... macro leaves it out. */
MLI_PRIVATE int mli_format_known(memlord_format format);

/* Returns 1 if a format needs the lists that take a walk over all blocks. One of metrics does not,
   so that a program can read it often at little cost. Requires: the format is known. */
MLI_PRIVATE int mli_format_whole(memlord_format format);
/* Requires: the format is known. */
MLI_PRIVATE MLI_COLD void mli_format_write(mli_report *r, memlord_format format);

#endif
