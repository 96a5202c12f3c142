#include "reports/formats.h"
#include "reports/text.h"
#include "reports/json.h"
#include "reports/html.h"
#include "reports/trace.h"
#include "reports/tables.h"
#include "reports/profiles.h"
#include "reports/memory_viz.h"

typedef struct mli_writer {
    void (*write)(mli_report *r); /* NULL if a MEMLORD_NO_... macro leaves the format out */
    int whole;                    /* 1: it needs mli_report.whole */
} mli_writer;

/* The entry of each format in the table mli_writers. */
#define MLI_WRITER_TEXT {mli_text, 1}
#define MLI_WRITER_JSON {mli_json, 1}
#define MLI_WRITER_NONE {NULL, 0}
#if defined(MEMLORD_NO_PAGE)
#define MLI_WRITER_HTML MLI_WRITER_NONE
#else
#define MLI_WRITER_HTML {mli_html, 1}
#endif
#if defined(MEMLORD_NO_PROFILES)
#define MLI_WRITER_PPROF MLI_WRITER_NONE
#define MLI_WRITER_HEAPTRACK MLI_WRITER_NONE
#define MLI_WRITER_FOLDED MLI_WRITER_NONE
#define MLI_WRITER_FOLDED_PEAK MLI_WRITER_NONE
#define MLI_WRITER_FOLDED_ALLOCATED MLI_WRITER_NONE
#else
#define MLI_WRITER_PPROF {mli_pprof, 0}
#define MLI_WRITER_HEAPTRACK {mli_heaptrack, 0}
#define MLI_WRITER_FOLDED {mli_folded, 0}
#define MLI_WRITER_FOLDED_PEAK {mli_folded_peak, 0}
#define MLI_WRITER_FOLDED_ALLOCATED {mli_folded_allocated, 0}
#endif
#if defined(MEMLORD_NO_REPORTS)
#define MLI_WRITER_TRACE MLI_WRITER_NONE
#define MLI_WRITER_PROMETHEUS MLI_WRITER_NONE
#define MLI_WRITER_MEMORY_VIZ MLI_WRITER_NONE
#define MLI_WRITER_CSV MLI_WRITER_NONE
#define MLI_WRITER_TIMELINE MLI_WRITER_NONE
#else
#define MLI_WRITER_TRACE {mli_trace, 0}
#define MLI_WRITER_PROMETHEUS {mli_prometheus, 0}
#define MLI_WRITER_MEMORY_VIZ {mli_memory_viz, 0}
#define MLI_WRITER_CSV {mli_csv, 0}
#define MLI_WRITER_TIMELINE {mli_timeline, 0}
#endif

static const mli_writer mli_writers[MEMLORD_FORMAT_COUNT] = {
#define MLI_X(name, suffix, text) MLI_WRITER_##name,
    MLI_FORMATS(MLI_X)
#undef MLI_X
};

MLI_PRIVATE int mli_format_known(memlord_format format) {
    return (unsigned)format < MEMLORD_FORMAT_COUNT && mli_writers[format].write;
}

MLI_PRIVATE int mli_format_whole(memlord_format format) {
    MLI_REQUIRE(mli_format_known(format));
    return mli_writers[format].whole;
}

MLI_PRIVATE MLI_COLD void mli_format_write(mli_report *r, memlord_format format) {
    MLI_REQUIRE(mli_format_known(format));
    mli_writers[format].write(r);
}
