#include "formats/trace.h"
#include "formats/frames.h"
#include "formats/ring.h"
#include "formats/words.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TAGS         32 /* the most tags of a device that its counter names */
#define SAMPLES      2048
#define NAME_BYTES   200
#define THREADS_MOST (1u << 22)

typedef struct counter { /* of a device */
    uint64_t due;        /* when the next sample is due */
    int64_t shown, sum;  /* live bytes: of the last sample; now */
    int64_t untagged;
} counter;
typedef struct writer {
    const mlr_profile *p;
    mlr_out *o;
    mlr_frames frames;
    mlr_ring ring;    /* MLR_SLOT_OPEN: the slice of the block has begun */
    int64_t *level;   /* by tag, from 1: its live bytes */
    counter *counter; /* by device, from 1 */
    uint32_t *depth;  /* by thread: how many of its scopes are open */
    uint32_t threads; /* how many entries `depth` has */
} writer;

/* Writes a name, or null for "", cut between two characters, because every event repeats it. */
static void put_text(mlr_out *o, const char *text) {
    char buffer[NAME_BYTES + 1];
    size_t n = strlen(text);
    if (n > NAME_BYTES)
        for (n = NAME_BYTES; n && ((unsigned char)text[n] & 0xc0) == 0x80;) n--;
    memcpy(buffer, text, n);
    buffer[n] = 0;
    if (n)
        mlr_put_json(o, buffer);
    else
        mlr_puts(o, "null");
}
static void put_pair(mlr_out *o, const char *key, const char *text) {
    mlr_putf(o, ",\"%s\":", key);
    put_text(o, text);
}
static void put_count(mlr_out *o, const char *key, uint64_t v) {
    mlr_putf(o, ",\"%s\":%" PRIu64, key, v);
}

/* Writes the beginning of an event, up to its name. */
static void open_event(writer *w, const char *phase, uint64_t ns, uint32_t thread) {
    mlr_putf(w->o, ",\n{\"ph\":\"%s\",\"pid\":%" PRIu64 ",\"tid\":%" PRIu32 ",\"ts\":", phase,
             w->p->pid, thread);
    mlr_put_fixed(w->o, ns, 3);
    mlr_puts(w->o, ",\"name\":");
}
static void close_event(writer *w) { mlr_puts(w->o, "}}"); }
/* Writes the beginning of an event that is named after a device, up to its arguments. */
static void open_device(writer *w, const char *phase, uint64_t ns, uint32_t thread, uint32_t device,
                        const char *what) {
    open_event(w, phase, ns, thread);
    mlr_putf(w->o, "\"%s%s\",\"args\":{", w->p->device[device - 1].name, what);
}

static void put_names(writer *w) {
    uint32_t i;
    mlr_putf(w->o,
             "\n{\"ph\":\"M\",\"pid\":%" PRIu64 ",\"tid\":0,\"ts\":0.000,\"name\":", w->p->pid);
    mlr_puts(w->o, "\"process_name\",\"args\":{\"name\":");
    put_text(w->o, w->p->program[0] ? w->p->program : "memlord");
    close_event(w);
    for (i = 0; i < w->p->thread_count; i++) {
        const uint64_t id = w->p->thread[i].id;
        open_event(w, "M", 0, (uint32_t)id);
        mlr_putf(w->o, "\"thread_name\",\"args\":{\"name\":\"thread %" PRIu64 "\"}}", id);
    }
}
static void put_snapshot(writer *w, const mlr_snapshot *s) {
    uint32_t i;
    for (i = 0; i < s->levels && i < w->p->device_count; i++) {
        const mlr_level *l = &s->level[i];
        open_device(w, "C", s->time_ns, 0, i + 1, " snapshots");
        mlr_putf(w->o, "\"live\":%" PRIu64 ",\"pending\":%" PRIu64 ",\"reserved\":%" PRIu64 "}}",
                 l->live, l->pending, l->reserved);
    }
    if (!s->name[0]) return;
    open_event(w, "i", s->time_ns, 0);
    put_text(w->o, s->name);
    mlr_putf(w->o, ",\"s\":\"g\",\"cat\":\"checkpoint\",\"args\":{\"live\":%" PRIu64 "}}", s->live);
}
static void put_run(writer *w, const mlr_scope *scope, const mlr_run *run) {
    open_event(w, "X", run->start_ns, run->thread);
    put_text(w->o, scope->name);
    mlr_puts(w->o, ",\"dur\":");
    mlr_put_fixed(w->o, run->ns, 3);
    mlr_puts(w->o, ",\"cat\":\"scope\",\"args\":{\"path\":");
    put_text(w->o, scope->path);
    mlr_putf(w->o,
             ",\"delta_bytes\":%" PRId64 ",\"delta_blocks\":%" PRId64 ",\"peak_bytes\":%" PRId64,
             run->bytes, run->blocks, run->peak);
    put_pair(w->o, "shapes", run->shapes);
    close_event(w);
}
static void put_runs(writer *w) {
    uint32_t i, k;
    for (i = 0; i < w->p->scope_count && !w->o->failed; i++)
        for (k = 0; k < w->p->scope[i].runs; k++)
            put_run(w, &w->p->scope[i], &w->p->scope[i].run[k]);
}

/* -- events -- */

static int64_t not_negative(int64_t v) { return v > 0 ? v : 0; }

static void put_counter(writer *w, uint32_t device, uint64_t ns) {
    const mlr_profile *p = w->p;
    counter *c = &w->counter[device];
    uint32_t row, n = 0;
    int64_t others = 0;
    open_device(w, "C", ns, 0, device, " live");
    mlr_putf(w->o, "\"(untagged)\":%" PRId64, not_negative(c->untagged));
    for (row = 1; row <= p->tag_count; row++) {
        const int64_t level = not_negative(w->level[row]);
        if (p->tag[row - 1].device != device) continue;
        if (n++ < TAGS) {
            mlr_puts(w->o, ",");
            put_text(w->o, p->tag[row - 1].name);
            mlr_putf(w->o, ":%" PRId64, level);
        } else {
            others += level;
        }
    }
    if (n > TAGS) mlr_putf(w->o, ",\"(other tags)\":%" PRId64, others);
    close_event(w);
    c->due = ns + (p->uptime_ns - w->ring.first) / SAMPLES;
    c->shown = c->sum;
}
static void count_event(writer *w, const mlr_event *e) {
    const int64_t delta = mlr_event_delta(e);
    counter *c = &w->counter[e->device];
    int64_t moved;
    if (!delta) return;
    *(e->tag ? &w->level[e->tag] : &c->untagged) += delta;
    c->sum += delta;
    moved = c->sum < c->shown ? c->shown - c->sum : c->sum - c->shown;
    if (e->time_ns >= c->due || (uint64_t)moved > w->p->device[e->device - 1].stats.peak / 64)
        put_counter(w, e->device, e->time_ns);
}

/* Writes an event of a block's slice, up to the arguments that only some events have. Phase b
   begins the slice, phase e ends it, and phase n is an instant in it. */
static void put_life(writer *w, const char *phase, const mlr_event *b, uint32_t thread,
                     uint64_t ns) {
    const mlr_place place = mlr_place_of(&w->frames, b->site);
    const char *tag = b->tag ? w->p->tag[b->tag - 1].name : "";
    const char *device = w->p->device[b->device - 1].name;
    open_event(w, phase, ns, thread);
    put_text(w->o, *tag ? tag : *place.function ? place.function : "block");
    mlr_puts(w->o, ",\"cat\":\"block\",\"id\":\"");
    mlr_put(w->o, device, strcspn(device, ":"));
    mlr_putf(w->o, " 0x%" PRIx64 "\",\"args\":{", b->storage);
    if (*phase != 'b') return;
    mlr_putf(w->o, "\"device\":\"%s\",\"bytes\":%" PRIu64, device, b->bytes);
    put_pair(w->o, "tag", tag);
    put_pair(w->o, "scope", b->scope ? w->p->scope[b->scope - 1].path : "");
    put_pair(w->o, "file", place.file);
    put_count(w->o, "line", place.line);
    put_pair(w->o, "function", place.function);
}
static void put_block(writer *w, const mlr_event *e) {
    mlr_slot *slot = mlr_ring_slot(&w->ring, e->device, e->storage);
    const int pends = e->kind == MLR_EVENT_PEND;
    if (slot->flags & MLR_SLOT_OPEN) {
        put_life(w, pends ? "n" : "e", slot->event, e->thread, e->time_ns);
        close_event(w);
    }
    if (pends) return;
    slot->event = e;
    slot->flags &= ~MLR_SLOT_OPEN;
    if (e->kind == MLR_EVENT_FREE) return;
    slot->flags |= MLR_SLOT_OPEN;
    put_life(w, "b", e, e->thread, e->time_ns);
    close_event(w);
}

/* Writes the event that begins or ends a scope. An end whose begin is not there is left out. */
static void put_scope(writer *w, const mlr_event *e) {
    const mlr_scope *scope = e->scope ? &w->p->scope[e->scope - 1] : NULL;
    const int begins = e->kind == MLR_EVENT_SCOPE_BEGIN;
    if (e->thread >= w->threads || (begins ? !scope : !w->depth[e->thread])) return;
    open_event(w, begins ? "B" : "E", e->time_ns, e->thread);
    put_text(w->o, scope ? scope->name : "(unknown)");
    mlr_puts(w->o, ",\"cat\":\"scope\",\"args\":{");
    if (begins) mlr_puts(w->o, "\"path\":");
    if (begins) put_text(w->o, scope->path);
    close_event(w);
    if (begins)
        w->depth[e->thread]++;
    else
        w->depth[e->thread]--;
}
static void put_event(writer *w, const mlr_event *e) {
    const int gc = e->kind == MLR_EVENT_GC;
    if (e->kind == MLR_EVENT_SCOPE_BEGIN || e->kind == MLR_EVENT_SCOPE_END) put_scope(w, e);
    if (!e->device) return;
    count_event(w, e);
    if (mlr_event_is_of_block(e)) put_block(w, e);
    if (!gc && e->kind != MLR_EVENT_OOM) return;
    open_device(w, "i", e->time_ns, e->thread, e->device, gc ? " gc" : " out of memory");
    mlr_putf(w->o, "\"bytes\":%" PRIu64 "},\"s\":\"p\",\"cat\":\"memory\"}", e->bytes);
}

/* Sets the counters to the live bytes before the first event: those of the report, minus what all
   events add. */
static void set_counters(writer *w) {
    const mlr_profile *p = w->p;
    uint32_t i;
    for (i = 1; i <= p->device_count; i++) {
        counter *c = &w->counter[i];
        c->sum = c->shown = (int64_t)p->device[i - 1].stats.allocated - w->ring.device_sum[i];
        c->untagged = c->sum;
    }
    for (i = 1; i <= p->tag_count; i++) {
        w->level[i] = (int64_t)p->tag[i - 1].live - w->ring.tag_sum[i];
        w->counter[p->tag[i - 1].device].untagged -= w->level[i];
    }
}

/* -- the end -- */

static void put_part(writer *w, const mlr_part *part, int first) {
    mlr_putf(w->o,
             first ? "\n{\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64
                   : ",\n{\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64,
             part->offset, part->bytes);
    put_pair(w->o, "name", part->name);
    put_pair(w->o, "dtype", part->dtype);
    mlr_putf(w->o, ",\"shape\":%s", part->shape[0] ? part->shape : "[]");
    put_pair(w->o, "tag", part->tag);
    mlr_puts(w->o, "}");
}
/* Writes the parts of a block, or null if it has none. */
static void put_parts(writer *w, const mlr_block *b) {
    uint32_t i;
    mlr_puts(w->o, "\"parts\":");
    if (!b || !b->all_parts) {
        mlr_puts(w->o, "null");
        return;
    }
    mlr_putf(w->o, "{\"count\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"listed\":[", b->all_parts,
             b->part_bytes);
    for (i = 0; i < b->parts; i++) put_part(w, &b->part[i], !i);
    mlr_puts(w->o, "]}");
}
static void put_last(writer *w, mlr_slot *slot, const mlr_block *b) {
    if (!slot || !(slot->flags & MLR_SLOT_OPEN)) return;
    put_life(w, "e", slot->event, 0, w->p->uptime_ns);
    put_parts(w, b);
    close_event(w);
    slot->flags &= ~MLR_SLOT_OPEN;
}
/* Ends all open scopes and blocks with the report, and writes a last sample of each device. */
static void put_end(writer *w) {
    const mlr_profile *p = w->p;
    uint32_t i;
    size_t k;
    for (i = 0; i < w->threads; i++)
        for (; w->depth[i]; w->depth[i]--) {
            open_event(w, "E", p->uptime_ns, i);
            mlr_puts(w->o, "\"\",\"cat\":\"scope\",\"args\":{}}");
        }
    for (i = 0; i < p->block_count; i++)
        put_last(w, mlr_ring_slot(&w->ring, p->block[i].device, p->block[i].storage), &p->block[i]);
    for (k = 0; k < w->ring.size; k++) put_last(w, &w->ring.at[k], NULL);
    for (i = 1; i <= p->device_count; i++) put_counter(w, i, p->uptime_ns);
}
/* Writes which process the trace is about. Then writes the counts of anomalies and drops that are
   not 0: first for all devices together, then for each device. */
static void put_other(writer *w) {
    const mlr_profile *p = w->p;
    uint32_t dev;
    mlr_puts(w->o, "\n],\"otherData\":{\"version\":");
    mlr_put_json(w->o, p->version);
    put_pair(w->o, "program", p->program);
    put_pair(w->o, "host", p->host);
    put_count(w->o, "pid", p->pid);
    put_pair(w->o, "started_at", p->started_at);
    put_count(w->o, "uptime_ns", p->uptime_ns);
    if (p->arguments[0]) mlr_puts(w->o, ",\"arguments\":");
    if (p->arguments[0]) mlr_put_json(w->o, p->arguments);
    mlr_puts(w->o, ",\"anomalies_and_drops\":{");
    for (dev = 0; dev <= p->device_count; dev++) {
        const char *name;
        size_t i = 0, n = 0;
        uint64_t v;
        mlr_putf(w->o, dev ? ",\"%s\":{" : "\"%s\":{", mlr_anomaly_device(p, dev));
        while ((name = mlr_anomaly_next(p, dev, &i, &v)) != NULL)
            mlr_putf(w->o, n++ ? ",\"%s\":%" PRIu64 : "\"%s\":%" PRIu64, name, v);
        mlr_puts(w->o, "}");
    }
    mlr_puts(w->o, "}}}\n");
}

static void put_trace(writer *w) {
    const mlr_profile *p = w->p;
    uint32_t i;
    mlr_puts(w->o, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    put_names(w);
    for (i = 0; i < p->snapshot_count; i++) put_snapshot(w, &p->snapshot[i]);
    if (!w->ring.scoped) put_runs(w);
    set_counters(w);
    for (i = 1; i <= p->device_count && p->events_capacity; i++) put_counter(w, i, w->ring.first);
    for (i = 0; i < p->event_count && !w->o->failed; i++)
        if (mlr_event_is_past(p, &p->event[i])) put_event(w, &p->event[i]);
    put_end(w);
    put_other(w);
}
static int make(writer *w) {
    const mlr_profile *p = w->p;
    uint32_t i, most = 0;
    for (i = 0; i < p->event_count; i++)
        if (p->event[i].thread > most && p->event[i].thread < THREADS_MOST)
            most = p->event[i].thread;
    w->threads = most + 1;
    w->depth = (uint32_t *)calloc(w->threads, sizeof *w->depth);
    w->level = (int64_t *)calloc((size_t)p->tag_count + 1, sizeof *w->level);
    w->counter = (counter *)calloc((size_t)p->device_count + 1, sizeof *w->counter);
    return w->depth && w->level && w->counter && mlr_frames_open(&w->frames, p);
}
MLR_PRIVATE mlr_result mlr_trace(const mlr_profile *p, mlr_out *o) {
    writer w;
    int done;
    memset(&w, 0, sizeof w);
    w.p = p;
    w.o = o;
    done = make(&w) && mlr_ring_open(&w.ring, p);
    if (done) put_trace(&w);
    mlr_frames_close(&w.frames);
    mlr_ring_close(&w.ring);
    free(w.level);
    free(w.counter);
    free(w.depth);
    return done ? MLR_OK : MLR_E_NOMEM;
}
