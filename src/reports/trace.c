#include "reports/trace.h"
#include "os/system.h"
#include "base/text.h"
#include "base/memory.h"
#include "books/threads.h"
#include "books/sites.h"
#include "books/tags.h"
#include "books/events.h"
#include "books/map.h"
#include "services/joint.h"
#include "services/scopes.h"
#include "services/snapshots.h"
#include "reports/answers.h"
#include "reports/json.h"
#include "reports/export.h"
#include "reports/ring.h"

#if !defined(MEMLORD_NO_REPORTS)

/* -- TRACE, the Trace Event Format, JSON object form (Google's "Trace Event Format" document) --
   ui.perfetto.dev and chrome://tracing read it. Times are microseconds since the ledger was
   created. A counter "DEVICE live" has the bytes of each tag as an argument; they add up to the
   live bytes of the device. A changed tag counts from the beginning. The counter has a sample
   whenever the live bytes have changed by a 64th of the peak, and at most 2048 more, at even steps
   of time. "DEVICE snapshots" shows the snapshots. Scopes are slices of their threads: B and E
   events from the ring or, if that has no scopes, X events for the remembered invocations. A block
   that begins in the ring is an async slice, which ends with the file if the block is still live,
   and whose end event has the parts, as in JSON. Names are cut to 200 bytes. Snapshots come first,
   then X events, then the ring; snapshots and the ring are in order of time. The process, anomalies
   and drops are in "otherData". */

#define MLI_TRACE_TAGS    32
#define MLI_TRACE_SAMPLES 2048

typedef struct mli_trace_writer {
    mli_export x;
    mli_last_events last;
    /* level[row] is the live bytes of the tag in that row. level[x.tags + dev] is the live bytes
       that have no tag on the device `dev`. */
    int64_t *level;
    /* The index of these arrays is the device's number. due: the time in ns when the next sample is
       due; shown: the live bytes of the last sample; sum: the live bytes now. */
    uint64_t due[MEMLORD_MAX_DEVICES + 1], shown[MEMLORD_MAX_DEVICES + 1];
    uint64_t sum[MEMLORD_MAX_DEVICES + 1];
    unsigned char *depth; /* how many scopes of each thread are open, by the thread's number */
    uint32_t threads;     /* how many entries `depth` has */
} mli_trace_writer;

/* Writes the beginning of an event, up to its name. */
static MLI_COLD void mli_trace_open(const mli_export *x, const char *phase, uint64_t ns,
                                    uint32_t thread) {
    mli_jsonf(x->o, ",\n{'ph':%s,'pid':%ju,'tid':%ju,'ts':", phase, mli_pid(), (uint64_t)thread);
    mli_put_fixed(x->o, ns, 3);
    mli_jsonf(x->o, ",'name':");
}
static void mli_trace_close(const mli_export *x) { mli_put_str(x->o, "}}"); }
/* Writes a name, or null, cut between two characters, because every event repeats it. */
static MLI_COLD void mli_trace_text(const mli_export *x, const char *text) {
    char buf[MLI_SCOPE_NAME + 1];
    size_t n = text ? mli_utf8_cut(text) : 0;
    if (n) memcpy(buf, text, n);
    buf[n] = 0;
    mli_put_json(x->o, text ? buf : NULL);
}
static MLI_COLD void mli_trace_pair(const mli_export *x, const char *key, const char *text) {
    mli_jsonf(x->o, ",%s:", key);
    mli_trace_text(x, text);
}
/* Writes the beginning of an event that is named after a device, up to its arguments. */
static MLI_COLD void mli_trace_device(const mli_export *x, const char *phase, uint64_t ns,
                                      uint32_t thread, uint32_t dev, const char *what) {
    mli_trace_open(x, phase, ns, thread);
    mli_jsonf(x->o, "'%i", mli_report_device(x->r, dev));
    mli_put_str(x->o, what);
    mli_jsonf(x->o, "','args':{");
}

static MLI_COLD void mli_trace_names(const mli_export *x) {
    const mli_thread *t = mli_thread_first(x->lord);
    mli_trace_open(x, "M", 0, 0);
    mli_jsonf(x->o, "'process_name','args':{'name':");
    mli_trace_text(x, *x->r->who.program ? x->r->who.program : "memlord");
    mli_trace_close(x);
    for (; t; t = mli_thread_next(t)) {
        uint32_t number = mli_record_number(t->id);
        mli_trace_open(x, "M", 0, number);
        mli_jsonf(x->o, "'thread_name','args':{'name':'thread %ju'}}", (uint64_t)number);
    }
}

static MLI_COLD void mli_trace_snapshot(const mli_export *x, const mli_snapshot *s) {
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

/* Writes the invocations of a scope on one thread: the latest ones, which the ledger keeps. */
static MLI_COLD void mli_trace_thread_scope(const mli_export *x, const mli_scope_record *scope,
                                            const mli_thread_scope *s) {
    size_t i, n = mli_thread_scope_read(x->lord, s, x->r->run);
    for (i = 0; i < n; i++) {
        const mli_scope_run *v = &x->r->run[i];
        mli_trace_open(x, "X", mli_since_ns(&x->r->scale, v->start), mli_record_number(s->thread));
        mli_trace_text(x, scope->name);
        mli_jsonf(x->o, ",'dur':");
        mli_put_fixed(x->o, mli_stamps_ns(&x->r->scale, v->stamps), 3);
        mli_jsonf(x->o, ",'cat':'scope','args':{");
        mli_trace_pair(x, "path", scope->path);
        mli_jsonf(x->o, ",'delta_bytes':%jd,'delta_blocks':%jd,'peak_bytes':%ju",
                  (int64_t)v->bytes, (int64_t)v->blocks, v->peak);
        mli_trace_pair(x, "shapes", (const char *)(uintptr_t)v->shapes);
        mli_trace_close(x);
    }
}
static MLI_COLD void mli_trace_scopes(const mli_export *x) {
    uint32_t id;
    for (id = 1; id <= x->scopes && !x->o->failed; id++) {
        const mli_scope_record *scope = mli_scope_record_at(x->lord, id);
        const mli_thread_scope *s = (const mli_thread_scope *)mli_ptr_load_acquire(&scope->threads);
        for (; s; s = s->next) mli_trace_thread_scope(x, scope, s);
    }
}

/* -- TRACE: the events of the ring -- */

static int64_t mli_not_negative(int64_t v) { return v > 0 ? v : 0; }

static MLI_COLD void mli_trace_counter(mli_trace_writer *w, uint32_t dev, uint64_t ns) {
    uint32_t row, n = 0;
    int64_t others = 0;
    mli_trace_device(&w->x, "C", ns, 0, dev, " live");
    mli_jsonf(w->x.o, "'(untagged)':%jd", mli_not_negative(w->level[w->x.tags + dev]));
    for (row = 1; row <= w->x.tags; row++) {
        int64_t level = mli_not_negative(w->level[row]);
        if (w->x.r->tag[row].of.dev != dev) continue;
        if (n++ < MLI_TRACE_TAGS) {
            mli_put_str(w->x.o, ",");
            mli_trace_text(&w->x, mli_export_tag(&w->x, row));
            mli_jsonf(w->x.o, ":%jd", level);
        } else {
            others += level;
        }
    }
    if (n > MLI_TRACE_TAGS) mli_jsonf(w->x.o, ",'(other tags)':%jd", others);
    mli_trace_close(&w->x);
    w->due[dev] = ns + (w->x.r->uptime - w->last.first) / MLI_TRACE_SAMPLES;
    w->shown[dev] = w->sum[dev];
}

static MLI_COLD void mli_trace_level(mli_trace_writer *w, const mli_export_event *e) {
    uint32_t dev = e->of.dev;
    int64_t delta = mli_event_delta(e), moved;
    if (!delta) return;
    w->level[e->of.tag ? e->of.tag : w->x.tags + dev] += delta;
    w->sum[dev] += (uint64_t)delta;
    moved = (int64_t)(w->sum[dev] - w->shown[dev]);
    if (e->ns >= w->due[dev] ||
        (uint64_t)(moved < 0 ? -moved : moved) > w->x.r->stat[dev - 1].peak / 64)
        mli_trace_counter(w, dev, e->ns);
}

/* Writes an event of a block's slice, up to the arguments that only some events have. Phase b
   begins the slice, phase e ends it, and phase n is an instant in it. */
static MLI_COLD void mli_trace_life(const mli_export *x, const char *phase, const mli_live_block *b,
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
static MLI_COLD void mli_trace_block(mli_trace_writer *w, const mli_export_event *e) {
    mli_live_block *f = mli_last_event_at(&w->last, &e->of);
    int pends = e->kind == MEMLORD_EVENT_PEND;
    if (!f || !f->dev) return;
    if (f->state & MLI_BLOCK_OPEN) {
        mli_trace_life(&w->x, pends ? "n" : "e", f, e->thread, e->ns);
        mli_trace_close(&w->x);
    }
    if (pends) return;
    *f = e->of;
    if (e->kind == MEMLORD_EVENT_FREE) return;
    f->state |= MLI_BLOCK_OPEN;
    mli_trace_life(&w->x, "b", f, e->thread, e->ns);
    mli_trace_close(&w->x);
}

/* Writes the event that begins or ends a scope. w->depth counts the open scopes of each thread, so
   that an end whose begin is not in the ring is left out. */
static MLI_COLD void mli_trace_scope(mli_trace_writer *w, const mli_export_event *e) {
    const uint32_t id = e->of.scope;
    const mli_scope_record *scope = id ? mli_scope_record_at(w->x.lord, id) : NULL;
    int begins = e->kind == MEMLORD_EVENT_SCOPE_BEGIN;
    if (e->thread >= w->threads || (begins ? !scope : !w->depth[e->thread])) return;
    mli_trace_open(&w->x, begins ? "B" : "E", e->ns, e->thread);
    mli_trace_text(&w->x, scope ? scope->name : "");
    mli_jsonf(w->x.o, ",'cat':'scope','args':{");
    if (begins) mli_trace_pair(&w->x, "path", scope->path);
    mli_trace_close(&w->x);
    w->depth[e->thread] = (unsigned char)(w->depth[e->thread] + (begins ? 1 : -1));
}

static MLI_COLD void mli_trace_event(void *writer, const mli_export_event *e) {
    mli_trace_writer *w = (mli_trace_writer *)writer;
    int gc = e->kind == MEMLORD_EVENT_GC;
    if (e->kind == MEMLORD_EVENT_SCOPE_BEGIN || e->kind == MEMLORD_EVENT_SCOPE_END)
        mli_trace_scope(w, e);
    if (!e->of.dev) return;
    mli_trace_level(w, e);
    if (mli_event_is_of_block(e)) mli_trace_block(w, e);
    if (!gc && e->kind != MEMLORD_EVENT_OOM) return;
    mli_trace_device(&w->x, "i", e->ns, e->thread, e->of.dev, gc ? " gc" : " out of memory");
    mli_jsonf(w->x.o, "'bytes':%ju},'s':'p','cat':'memory'}", e->of.bytes);
}

/* Sets w->level to the live bytes before the first event of the ring: the live bytes of the report,
   minus what all events of the ring add. */
static MLI_COLD void mli_trace_levels(mli_trace_writer *w) {
    uint32_t i;
    for (i = 1; i <= w->x.devices; i++) {
        w->sum[i] = w->shown[i] = w->x.r->stat[i - 1].allocated - w->last.sum[i];
        w->level[w->x.tags + i] = (int64_t)w->sum[i];
    }
    for (i = 1; i <= w->x.tags; i++) {
        w->level[i] = (int64_t)w->x.r->tag[i].stat.allocated - w->level[i];
        w->level[w->x.tags + w->x.r->tag[i].of.dev] -= w->level[i];
    }
}

/* Ends all open scopes and blocks with the report, and writes a last sample of each device. */
static MLI_COLD void mli_trace_end(mli_trace_writer *w) {
    uint64_t i, now = w->x.r->uptime;
    for (i = 0; i < w->threads; i++)
        for (; w->depth[i]; w->depth[i]--) {
            mli_trace_open(&w->x, "E", now, (uint32_t)i);
            mli_jsonf(w->x.o, "'','cat':'scope','args':{}}");
        }
    for (i = 0; i < w->last.size; i++) {
        const mli_live_block *f = &w->last.at[i];
        if (!(f->state & MLI_BLOCK_OPEN)) continue;
        mli_trace_life(&w->x, "e", f, 0, now);
        mli_json_parts(w->x.r, mli_type_of(w->x.lord, f->dev), f->storage);
        mli_trace_close(&w->x);
    }
    for (i = 1; i <= w->x.devices; i++) mli_trace_counter(w, (uint32_t)i, now);
}

/* Writes which process the trace is about. Then writes the counts of anomalies and drops that are
   not 0: first for all devices together, then for each device. */
static MLI_COLD void mli_trace_other(const mli_export *x) {
    uint32_t dev;
    mli_jsonf(x->o, "\n],'otherData':{'version':'" MEMLORD_VERSION "'");
    mli_json_process(x->r);
    mli_jsonf(x->o, ",'anomalies_and_drops':{");
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

static MLI_COLD void mli_trace_ring(mli_trace_writer *w) {
    MLI_REQUIRE(w->level && w->depth);
    uint32_t i;
    w->last.tag_sum = w->level;
    mli_last_events_read(&w->x, &w->last);
    if (!w->last.scoped) mli_trace_scopes(&w->x);
    mli_trace_levels(w);
    for (i = 1; i <= w->x.devices && w->last.size; i++) mli_trace_counter(w, i, w->last.first);
    mli_ring_each(&w->x, mli_trace_event, w);
    mli_trace_end(w);
    mli_last_events_free(&w->last);
}
static MLI_COLD void mli_trace_write(void *writer) {
    mli_trace_writer *w = (mli_trace_writer *)writer;
    const mli_export *x = &w->x;
    const size_t size = ((size_t)x->tags + x->devices + 1) * sizeof *w->level;
    uint32_t i;
    w->threads = mli_thread_count(x->lord) + 2;
    w->level = (int64_t *)mli_own_alloc(x->lord, size);
    w->depth = (unsigned char *)mli_own_alloc(x->lord, w->threads + 1);
    mli_jsonf(x->o, "{'displayTimeUnit':'ms','traceEvents':[");
    mli_trace_names(x);
    for (i = 0; i < x->r->snapshots; i++) mli_trace_snapshot(x, x->r->snapshot[i]);
    if (w->level && w->depth)
        mli_trace_ring(w);
    else
        x->r->result = MEMLORD_E_NOMEM;
    mli_trace_other(x);
    mli_own_free(x->lord, w->depth, w->threads + 1);
    mli_own_free(x->lord, w->level, size);
}
MLI_PRIVATE MLI_COLD void mli_trace(mli_report *r) {
    mli_export_run(r, sizeof(mli_trace_writer), mli_trace_write);
}
#endif
