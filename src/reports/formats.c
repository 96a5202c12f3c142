#include "reports/formats.h"
#include "base/text.h"
#include "base/memory.h"
#include "reports/text.h"
#include "reports/json.h"
#include "reports/page.h"
#include "reports/export.h"
#include "reports/trace.h"
#include "reports/tables.h"
#include "reports/profiles.h"
#include "reports/memory_viz.h"

#if !defined(MEMLORD_NO_REPORTS)

/* -- HTML: the page with the JSON report in it, and for readers without scripts the verdicts and
      the devices of TEXT. JSON escapes < and >, so that no string of it can end its element -- */

/* Writes a part of the page: `all` bytes of literals, each in a place of `size` bytes. */
static MLI_COLD void mli_put_page(mli_out *o, const char *literal, size_t size, size_t all) {
    size_t at;
    for (at = 0; at < all; at += size) mli_put_str(o, literal + at);
}

static MLI_COLD void mli_html(mli_report *r) {
    mli_put_page(r->o, mli_page_head[0], sizeof mli_page_head[0], sizeof mli_page_head);
    r->out.html = 1;
    mli_text_verdicts(r);
    mli_text_devices(r, r->devices);
    r->out.html = 0;
    r->out.name_max = 0;
    mli_put_page(r->o, mli_page_middle[0], sizeof mli_page_middle[0], sizeof mli_page_middle);
    r->brief = 1;
    mli_json(r);
    mli_put_page(r->o, mli_page_tail[0], sizeof mli_page_tail[0], sizeof mli_page_tail);
}

/* -- the writer of each format -- */

/* From TRACE on, in the order of MLI_FORMATS. */
static void (*const mli_export_writers[])(mli_export *x) = {
    mli_trace_json, mli_prometheus, mli_pprof, mli_heaptrack, mli_folded, mli_memory_viz, mli_csv};

/* Runs a writer with an export of its own. A writer may leave its last events: they are freed
   here. */
static MLI_COLD void mli_export_write(mli_report *r, memlord_format format) {
    memlord *lord = r->lord;
    mli_export *x = (mli_export *)mli_own_alloc(lord, sizeof *x);
    if (!x) {
        r->result = MEMLORD_E_NOMEM;
        return;
    }
    x->r = r;
    x->lord = lord;
    x->o = r->o;
    x->devices = r->devices;
    x->sites = r->site_rows;
    x->tags = (uint32_t)r->tags;
    x->scopes = r->scopes;
    mli_export_writers[format - MEMLORD_FORMAT_TRACE](x);
    mli_own_free(lord, x->portion, x->portion_cap * sizeof *x->portion);
    mli_own_free(lord, x->last_events, (size_t)x->last_events_size * sizeof *x->last_events);
    mli_own_free(lord, x, sizeof *x);
}
#endif

#if !defined(MEMLORD_NO_REPORTS)
enum { MLI_WRITERS = MEMLORD_FORMAT_COUNT };
#else
enum { MLI_WRITERS = MEMLORD_FORMAT_JSON + 1 };
#endif

MLI_PRIVATE int mli_format_known(memlord_format format) { return (unsigned)format < MLI_WRITERS; }

MLI_PRIVATE MLI_COLD void mli_format_write(mli_report *r, memlord_format format) {
    switch (format) {
    case MEMLORD_FORMAT_TEXT: mli_text(r); break;
    case MEMLORD_FORMAT_JSON: mli_json(r); break;
#if !defined(MEMLORD_NO_REPORTS)
    case MEMLORD_FORMAT_HTML: mli_html(r); break;
    default: mli_export_write(r, format);
#else
    default: break;
#endif
    }
}
