#include "reports/trace.h"
#include "os/system.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "books/threads.h"
#include "books/sites.h"
#include "books/tags.h"
#include "books/events.h"
#include "books/map.h"
#include "services/scopes.h"
#include "services/snapshots.h"
#include "reports/text.h"
#include "reports/json.h"
#include "reports/shares.h"

#if !defined(MEMLORD_NO_REPORTS)

MLI_PRIVATE MLI_COLD void mli_put_utf8(mli_out *o, const char *text, const char *escaped) {
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        uint32_t code;
        size_t n = mli_utf8_decode(s, &code);
        if (n) {
            if (n == 1 && strchr(escaped, (int)code)) mli_put_str(o, "\\");
            mli_put(o, (const char *)s, n);
        } else {
            mli_put_invalid_byte(o, *s);
        }
        s += n ? n : 1;
    }
}
MLI_PRIVATE size_t mli_utf8_size(const char *text) {
    mli_out count;
    mli_out_buffer(&count, NULL, 0);
    mli_put_utf8(&count, text, "");
    return count.total;
}

MLI_PRIVATE void mli_put_le(mli_out *o, uint64_t v, unsigned n) {
    for (; n--; v >>= 8) {
        char byte = (char)(unsigned char)(v & 255);
        mli_put(o, &byte, 1);
    }
}

/* -- TRACE, the Trace Event Format, JSON object form (Google's "Trace Event Format" document; read
      by ui.perfetto.dev and chrome://tracing).
   Times are microseconds since the ledger was created. A counter "DEVICE live" has one argument a
   tag, in bytes; they add up to the device's live bytes. Bytes that a change of tag moved count
   under the new tag from the beginning. The counter has a sample whenever its level has moved by
   a 64th of the peak, and at most 2048 more, at even steps of time. "DEVICE snapshots" shows the
   snapshots of the ledger. Scopes are slices of their threads: B and E from the ring or, if the
   ring has no scopes, X for the remembered invocations. A block that begins in the ring is an
   async slice. A block that is still live ends with the file; its end event has its parts, as JSON
   has them. Names are cut to 200 bytes. Snapshots come first, X next, the events of the ring last;
   snapshots and ring are each in the order of their time. Anomalies and drops are in
   "otherData". -- */

#define MLI_TRACE_TAGS    32
#define MLI_TRACE_SAMPLES 2048

/* Writes the beginning of an event, up to its name. */
static MLI_COLD void mli_trace_open(mli_export *x, const char *phase, uint64_t ns,
                                    uint32_t thread) {
    mli_jsonf(x->o, ",\n{'ph':%s,'pid':%ju,'tid':%ju,'ts':", phase, mli_pid(), (uint64_t)thread);
    mli_put_fixed(x->o, ns, 3);
    mli_jsonf(x->o, ",'name':");
}
static void mli_trace_close(mli_export *x) { mli_put_str(x->o, "}}"); }
/* Writes a name; NULL as null. Cuts it where a character begins: every event repeats the name. */
static MLI_COLD void mli_trace_text(mli_export *x, const char *text) {
    char buf[MLI_SCOPE_NAME + 1];
    size_t n = text ? mli_utf8_cut(text) : 0;
    if (n) memcpy(buf, text, n);
    buf[n] = 0;
    mli_put_json(x->o, text ? buf : NULL);
}
static MLI_COLD void mli_trace_pair(mli_export *x, const char *key, const char *text) {
    mli_jsonf(x->o, ",%s:", key);
    mli_trace_text(x, text);
}
/* Writes the beginning of an event named after a device, up to its arguments. */
static MLI_COLD void mli_trace_device(mli_export *x, const char *phase, uint64_t ns,
                                      uint32_t thread, uint32_t dev, const char *what) {
    mli_trace_open(x, phase, ns, thread);
    mli_jsonf(x->o, "'%i", mli_report_device(x->r, dev));
    mli_put_str(x->o, what);
    mli_jsonf(x->o, "','args':{");
}

static MLI_COLD void mli_trace_names(mli_export *x) {
    const mli_thread *t = mli_thread_first(x->lord);
    mli_trace_open(x, "M", 0, 0);
    mli_jsonf(x->o, "'process_name','args':{'name':'memlord " MEMLORD_VERSION "'}}");
    for (; t; t = mli_thread_next(t)) {
        uint32_t number = mli_record_number(t->id);
        mli_trace_open(x, "M", 0, number);
        mli_jsonf(x->o, "'thread_name','args':{'name':'thread %ju'}}", (uint64_t)number);
    }
}

static MLI_COLD void mli_trace_snapshot(mli_export *x, const mli_snapshot *s) {
    uint32_t dev;
    for (dev = 1; dev <= s->devices && dev <= x->devices; dev++) {
        const mli_device_usage *held = &mli_snapshot_devices(s)[dev - 1];
        mli_trace_device(x, "C", s->time, 0, dev, " snapshots");
        mli_jsonf(x->o, "'live':%ju,'pending':%ju,'reserved':%ju}}", held->live, held->pending,
                  held->reserved);
    }
    if (!s->name) return;
    mli_trace_open(x, "i", s->time, 0);
    mli_trace_text(x, s->name);
    mli_jsonf(x->o, ",'s':'g','cat':'checkpoint','args':{'live':%ju}}", s->live);
}

/* Writes the invocations of a scope that one thread remembers. */
static MLI_COLD void mli_trace_thread_scope(mli_export *x, const mli_scope_record *scope,
                                            const mli_thread_scope *s) {
    size_t i, n = mli_thread_scope_read(x->lord, s, x->r->run);
    for (i = 0; i < n; i++) {
        const mli_scope_run *v = &x->r->run[i];
        mli_trace_open(x, "X", mli_since_ns(&x->r->scale, v->start), mli_record_number(s->thread));
        mli_trace_text(x, scope->name);
        mli_jsonf(x->o, ",'dur':");
        mli_put_fixed(x->o, mli_span_ns(&x->r->scale, v->stamps), 3);
        mli_jsonf(x->o, ",'cat':'scope','args':{");
        mli_trace_pair(x, "path", scope->path);
        mli_jsonf(x->o, ",'delta_bytes':%jd,'delta_blocks':%jd,'peak_bytes':%ju",
                  (int64_t)v->bytes, (int64_t)v->blocks, v->peak);
        mli_trace_pair(x, "shapes", (const char *)(uintptr_t)v->shapes);
        mli_trace_close(x);
    }
}
static MLI_COLD void mli_trace_scopes(mli_export *x) {
    uint32_t id;
    for (id = 1; id <= x->scopes && !x->o->failed; id++) {
        const mli_scope_record *scope = mli_scope_record_at(x->lord, id);
        const mli_thread_scope *s = (const mli_thread_scope *)mli_ptr_load_acquire(&scope->threads);
        for (; s; s = s->next) mli_trace_thread_scope(x, scope, s);
    }
}

/* -- TRACE: the events of the ring -- */

static int64_t mli_not_negative(int64_t v) { return v > 0 ? v : 0; }

static MLI_COLD void mli_trace_counter(mli_export *x, uint32_t dev, uint64_t ns) {
    uint32_t row, n = 0;
    int64_t others = 0;
    mli_trace_device(x, "C", ns, 0, dev, " live");
    mli_jsonf(x->o, "'(untagged)':%jd", mli_not_negative(x->level[x->tags + dev]));
    for (row = 1; row <= x->tags; row++) {
        int64_t level = mli_not_negative(x->level[row]);
        if (x->r->tag[row].dev != dev) continue;
        if (n++ < MLI_TRACE_TAGS) {
            mli_put_str(x->o, ",");
            mli_trace_text(x, mli_export_tag(x, row));
            mli_jsonf(x->o, ":%jd", level);
        } else {
            others += level;
        }
    }
    if (n > MLI_TRACE_TAGS) mli_jsonf(x->o, ",'(other tags)':%jd", others);
    mli_trace_close(x);
    x->due[dev] = ns + (x->r->uptime - x->first) / MLI_TRACE_SAMPLES;
    x->shown[dev] = x->sum[dev];
}

static MLI_COLD void mli_trace_level(mli_export *x, const mli_export_event *e) {
    uint32_t dev = e->of.dev;
    int64_t delta = mli_event_delta(e), moved;
    if (!delta) return;
    x->level[e->of.tag ? e->of.tag : x->tags + dev] += delta;
    x->sum[dev] += (uint64_t)delta;
    moved = (int64_t)(x->sum[dev] - x->shown[dev]);
    if (e->ns >= x->due[dev] ||
        (uint64_t)(moved < 0 ? -moved : moved) > x->r->stat[dev - 1].peak / 64)
        mli_trace_counter(x, dev, e->ns);
}

/* Writes an event of a block's slice, up to the arguments that only some have. Phase b begins the
   slice, e ends it, n is an instant in it. */
static MLI_COLD void mli_trace_life(mli_export *x, const char *phase, const mli_live_block *b,
                                    uint32_t thread, uint64_t ns) {
    const memlord_site *site = mli_frame_site(x, b->frame);
    const char *tag = mli_export_tag(x, b->tag);
    mli_trace_open(x, phase, ns, thread);
    mli_trace_text(x, tag ? tag : site && site->function[0] ? site->function : "block");
    mli_jsonf(x->o, ",'cat':'block','id':'");
    mli_put_str(x->o, mli_type_names[mli_type_of(x->lord, b->dev)]);
    mli_put_str(x->o, " 0x");
    mli_put_hex_short(x->o, b->storage);
    mli_jsonf(x->o, "','args':{");
    if (*phase != 'b') return;
    mli_jsonf(x->o, "'device':'%i','bytes':%ju", mli_report_device(x->r, b->dev), b->bytes);
    mli_trace_pair(x, "tag", tag);
    mli_trace_pair(x, "scope", b->scope ? mli_scope_record_at(x->lord, b->scope)->path : NULL);
    mli_trace_pair(x, "file", site ? site->file : NULL);
    mli_json_u64(x->o, "line", mli_site_line(site));
    mli_trace_pair(x, "function", site ? site->function : NULL);
}
static MLI_COLD void mli_trace_block(mli_export *x, const mli_export_event *e) {
    mli_live_block *f = mli_last_event_at(x, &e->of);
    int pends = e->kind == MEMLORD_EVENT_PEND;
    if (!f || !f->dev) return;
    if (f->state & MLI_BLOCK_OPEN) {
        mli_trace_life(x, pends ? "n" : "e", f, e->thread, e->ns);
        mli_trace_close(x);
    }
    if (pends) return;
    *f = e->of;
    if (e->kind == MEMLORD_EVENT_FREE) return;
    f->state |= MLI_BLOCK_OPEN;
    mli_trace_life(x, "b", f, e->thread, e->ns);
    mli_trace_close(x);
}

/* Writes the begin or the end of a scope. x->depth counts the open scopes of each thread, so that
   an end without its begin in the ring is left out. */
static MLI_COLD void mli_trace_scope(mli_export *x, const mli_export_event *e) {
    const mli_scope_record *scope = e->of.scope ? mli_scope_record_at(x->lord, e->of.scope) : NULL;
    int begins = e->kind == MEMLORD_EVENT_SCOPE_BEGIN;
    if (e->thread >= x->threads || (begins ? !scope : !x->depth[e->thread])) return;
    mli_trace_open(x, begins ? "B" : "E", e->ns, e->thread);
    mli_trace_text(x, scope ? scope->name : "");
    mli_jsonf(x->o, ",'cat':'scope','args':{");
    if (begins) mli_trace_pair(x, "path", scope->path);
    mli_trace_close(x);
    x->depth[e->thread] = (unsigned char)(x->depth[e->thread] + (begins ? 1 : -1));
}

static MLI_COLD void mli_trace_event(mli_export *x, const mli_export_event *e) {
    int gc = e->kind == MEMLORD_EVENT_GC;
    if (e->kind == MEMLORD_EVENT_SCOPE_BEGIN || e->kind == MEMLORD_EVENT_SCOPE_END)
        mli_trace_scope(x, e);
    if (!e->of.dev) return;
    mli_trace_level(x, e);
    if (mli_event_is_of_block(e)) mli_trace_block(x, e);
    if (!gc && e->kind != MEMLORD_EVENT_OOM) return;
    mli_trace_device(x, "i", e->ns, e->thread, e->of.dev, gc ? " gc" : " out of memory");
    mli_jsonf(x->o, "'bytes':%ju},'s':'p','cat':'memory'}", e->of.bytes);
}

/* Sets the levels at the start of the ring: those of the report less all that the ring adds. */
static MLI_COLD void mli_trace_levels(mli_export *x) {
    uint32_t i;
    for (i = 1; i <= x->devices; i++) {
        x->sum[i] = x->shown[i] = x->r->stat[i - 1].allocated - x->sum[i];
        x->level[x->tags + i] = (int64_t)x->sum[i];
    }
    for (i = 1; i <= x->tags; i++) {
        x->level[i] += (int64_t)x->r->tag[i].stat.allocated;
        x->level[x->tags + x->r->tag[i].dev] -= x->level[i];
    }
}

/* Ends all open scopes and blocks at the time of the report; writes a last sample a device. */
static MLI_COLD void mli_trace_end(mli_export *x) {
    uint64_t i, now = x->r->uptime;
    for (i = 0; i < x->threads; i++)
        for (; x->depth[i]; x->depth[i]--) {
            mli_trace_open(x, "E", now, (uint32_t)i);
            mli_jsonf(x->o, "'','cat':'scope','args':{}}");
        }
    for (i = 0; i < x->last_events_size; i++) {
        const mli_live_block *f = &x->last_events[i];
        if (!(f->state & MLI_BLOCK_OPEN)) continue;
        mli_trace_life(x, "e", f, 0, now);
        mli_json_parts(x->r, mli_type_of(x->lord, f->dev), f->storage);
        mli_trace_close(x);
    }
    for (i = 1; i <= x->devices; i++) mli_trace_counter(x, (uint32_t)i, now);
}

/* Writes the anomalies and drops that are not 0, of all devices and of each. */
static MLI_COLD void mli_trace_anomalies(mli_export *x) {
    uint32_t dev;
    mli_jsonf(x->o, "\n],'otherData':{'anomalies_and_drops':{");
    for (dev = 0; dev <= x->devices; dev++) {
        const char *name;
        size_t i = 0;
        uint64_t v;
        mli_jsonf(x->o, ",'%i':{", mli_device_code(mli_anomaly_device(x->r, dev)));
        while ((name = mli_anomaly_next(x->r, dev, &i, &v)) != NULL)
            mli_json_u64(x->o, name, v);
        mli_put_str(x->o, "}");
    }
    mli_put_str(x->o, "}}}\n");
}

MLI_PRIVATE MLI_COLD void mli_trace_json(mli_export *x) {
    size_t size = ((size_t)x->tags + x->devices + 1) * sizeof *x->level;
    uint32_t i;
    x->threads = mli_thread_count(x->lord) + 2;
    x->level = (int64_t *)mli_own_alloc(x->lord, size);
    x->depth = (unsigned char *)mli_own_alloc(x->lord, x->threads + 1);
    mli_jsonf(x->o, "{'displayTimeUnit':'ms','traceEvents':[");
    mli_trace_names(x);
    for (i = 0; i < x->r->snapshots; i++) mli_trace_snapshot(x, x->r->snapshot[i]);
    if (x->level && x->depth) {
        x->first = x->r->uptime;
        mli_last_events_build(x);
        if (!x->scoped) mli_trace_scopes(x);
        mli_trace_levels(x);
        for (i = 1; i <= x->devices && x->last_events_size; i++) mli_trace_counter(x, i, x->first);
        mli_ring_each(x, mli_trace_event);
        mli_trace_end(x);
    } else {
        x->r->result = MEMLORD_E_NOMEM;
    }
    mli_trace_anomalies(x);
    mli_own_free(x->lord, x->depth, x->threads + 1);
    mli_own_free(x->lord, x->level, size);
}
#endif
