#include "reports/formats.h"
#include "reports/text.h"
#include "reports/json.h"
#include "reports/html.h"
#include "reports/trace.h"
#include "reports/tables.h"
#include "reports/profiles.h"
#include "reports/memory_viz.h"

/* What a knob leaves out has no writer. */
#if defined(MEMLORD_NO_PAGE)
#define mli_html NULL
#endif
#if defined(MEMLORD_NO_PROFILES)
#define mli_pprof NULL
#define mli_heaptrack NULL
#define mli_folded NULL
#endif
#if defined(MEMLORD_NO_REPORTS)
#define mli_trace NULL
#define mli_prometheus NULL
#define mli_memory_viz NULL
#define mli_csv NULL
#endif

/* In the order of MLI_FORMATS. */
static void (*const mli_writers[MEMLORD_FORMAT_COUNT])(mli_report *r) = {
    mli_text,  mli_json,      mli_html,   mli_trace,      mli_prometheus,
    mli_pprof, mli_heaptrack, mli_folded, mli_memory_viz, mli_csv};

MLI_PRIVATE int mli_format_known(memlord_format format) {
    return (unsigned)format < MEMLORD_FORMAT_COUNT && mli_writers[format];
}

MLI_PRIVATE MLI_COLD void mli_format_write(mli_report *r, memlord_format format) {
    MLI_REQUIRE(mli_format_known(format));
    mli_writers[format](r);
}
