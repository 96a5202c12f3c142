/* Writes TRACE, and the strings and numbers that writers of JSON share. Owns no state. Uses
   reports/export. Locks: none. */
#ifndef MLI_REPORTS_TRACE_H
#define MLI_REPORTS_TRACE_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/text.h"
#include "reports/export.h"

#if !defined(MEMLORD_NO_REPORTS)

/* Writes text as UTF-8. Puts a backslash before each character of `escaped`. */
MLI_PRIVATE MLI_COLD void mli_put_utf8(mli_out *o, const char *text, const char *escaped);
MLI_PRIVATE size_t mli_utf8_size(const char *text);

/* Writes the low n bytes of v, little-endian. */
MLI_PRIVATE void mli_put_le(mli_out *o, uint64_t v, unsigned n);

MLI_PRIVATE MLI_COLD void mli_trace_json(mli_export *x);
#endif

#endif
