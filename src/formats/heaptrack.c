#include "formats/heaptrack.h"
#include "formats/frames.h"
#include "formats/holdings.h"
#include "formats/words.h"
#include <stdlib.h>
#include <string.h>

#define FREED_MOST 1048576u /* the most freed allocations that are written */

/* The live blocks are walked four times: to see which of them fit in the peak, to write those
   (first those that no call allocates, then those of calls), and to write the others. */
enum { WALK_LOOK, WALK_PEAK_BYTES, WALK_PEAK_CALLS, WALK_REST, WALKS };
typedef struct walk {
    uint64_t older, room; /* blocks whose allocation is not in the file; bytes left at the peak */
} walk;
/* What a trace has: a site, a kind of a device, or a stack. */
typedef struct sum {
    uint64_t allocs, bytes, live, live_bytes; /* later allocs and bytes are of the freed ones */
    uint64_t peak;                            /* bytes held at the peak */
    uint64_t held, extra;                     /* of these: of a freed allocation, and of no call */
    uint32_t device;                          /* 0: the trace is only a caller */
    walk walk[WALKS];
} sum;
typedef struct writer {
    const mlr_profile *p;
    mlr_out *o;
    mlr_frames frames;
    sum *sum;          /* by number of the trace */
    mlr_holdings live; /* the live blocks; those that the profile lists are each a row */
    uint64_t *scoped;  /* the traces of sites in scopes: trace << 32 | scope, sorted */
    size_t scopeds;
    uint32_t kinds, scopes, nodes, stacks, traces; /* the number before the first of each */
    uint64_t strings, infos, calls, held, peak;    /* held: bytes at this point of the file */
} writer;

/* -- lines -- */

static void put_line2(mlr_out *o, const char *mode, uint64_t a, uint64_t b) {
    mlr_puts(o, mode);
    mlr_puts(o, " ");
    mlr_put_hex(o, a);
    mlr_puts(o, " ");
    mlr_put_hex(o, b);
    mlr_puts(o, "\n");
}
static void put_line(mlr_out *o, const char *mode, uint64_t a) {
    mlr_puts(o, mode);
    mlr_puts(o, " ");
    mlr_put_hex(o, a);
    mlr_puts(o, "\n");
}
static void put_string(writer *w, const char *text) {
    mlr_puts(w->o, "s ");
    mlr_put_name(w->o, text, 0);
    mlr_puts(w->o, "\n");
    w->strings++;
}
/* Writes the size and trace of an allocation, and returns the description's number. */
static uint64_t put_info(writer *w, uint64_t bytes, uint64_t trace) {
    put_line2(w->o, "a", bytes, trace);
    return w->infos++;
}
/* Adds bytes that no call allocated, as a free of a negative number of bytes. */
static void put_bytes(writer *w, uint64_t bytes, uint64_t trace) {
    if (!bytes) return;
    put_line(w->o, "-", put_info(w, 0 - bytes, trace));
    w->held += bytes;
}
static void put_call(writer *w, uint64_t info, uint64_t bytes) {
    put_line(w->o, "+", info);
    w->held += bytes;
}
static void put_free(writer *w, uint64_t info, uint64_t bytes) {
    put_line(w->o, "-", info);
    w->held -= bytes;
}

/* -- frames and traces --
   Traces of sites come first, then those of the kinds of each device, of scopes, of nodes and of
   stacks, and last those of sites in scopes. Instruction pointers have the same numbers, except
   that after the scopes come the frames of the profile. */

static uint32_t trace_of_kind(const writer *w, uint32_t device, uint32_t kind) {
    return w->kinds + (device - 1) * MLR_KINDS + kind + 1;
}
/* Returns 1 if a stack is no more than its site. */
static int is_site(const mlr_profile *p, uint32_t stack) {
    const mlr_stack *s = &p->stack[stack - 1];
    if (!s->node) return 1;
    return s->site && !p->node[s->node - 1].caller &&
           mlr_frame_innermost(p, stack) == p->site[s->site - 1].frame;
}
static uint32_t trace_of(const writer *w, const mlr_holding *row) {
    const uint32_t stack = row->where.stack;
    if (stack && !is_site(w->p, stack)) return w->stacks + stack;
    return row->where.site ? row->where.site : trace_of_kind(w, row->device, row->where.kind);
}
/* Returns the pointer of a frame of the profile; that of one not known is of the first device. */
static uint32_t pointer_of(const writer *w, uint32_t frame) {
    return frame ? w->nodes + frame : trace_of_kind(w, 1, MLR_KIND_UNKNOWN);
}

/* Writes a pointer, whose strings come before it. */
static void put_pointer(writer *w, uint64_t pointer, uint32_t frame, uint64_t module) {
    const mlr_frames *f = &w->frames;
    uint64_t next = w->strings;
    uint32_t i;
    for (i = f->first[frame]; i < f->first[frame + 1]; i++) {
        put_string(w, f->function[i].name);
        if (f->function[i].file[0]) put_string(w, f->function[i].file);
    }
    mlr_puts(w->o, "i ");
    mlr_put_hex(w->o, 0x1000 + 16 * pointer);
    mlr_puts(w->o, " ");
    mlr_put_hex(w->o, module);
    for (i = f->first[frame]; i < f->first[frame + 1]; i++) {
        mlr_puts(w->o, " ");
        mlr_put_hex(w->o, ++next);
        mlr_puts(w->o, " ");
        mlr_put_hex(w->o, f->function[i].file[0] ? ++next : 0);
        mlr_puts(w->o, " ");
        mlr_put_hex(w->o, f->function[i].line);
    }
    mlr_puts(w->o, "\n");
}
static void put_pointers(writer *w) {
    const mlr_profile *p = w->p;
    uint32_t i;
    uint64_t n = 0;
    for (i = 0; i < p->device_count; i++) put_string(w, p->device[i].name);
    for (i = 0; i < p->module_count; i++) put_string(w, p->module[i].path);
    for (i = 0; i < p->site_count; i++) {
        const uint32_t frame = p->site[i].frame;
        put_pointer(w, ++n, frame ? frame : mlr_frame_of_kind(p, MLR_KIND_UNKNOWN),
                    p->site[i].device);
    }
    for (i = 0; i < p->device_count * MLR_KINDS; i++)
        put_pointer(w, ++n, mlr_frame_of_kind(p, i % MLR_KINDS), i / MLR_KINDS + 1);
    for (i = 1; i <= p->scope_count; i++) put_pointer(w, ++n, mlr_frame_of_scope(p, i), 0);
    for (i = 1; i <= p->frame_count && !w->o->failed; i++) {
        const uint32_t module = p->frame[i - 1].module;
        put_pointer(w, ++n, i, module ? (uint64_t)p->device_count + module : 0);
    }
}
/* Returns the trace of a node, or 0 for none. */
static uint32_t trace_of_node(const writer *w, uint32_t node) { return node ? w->nodes + node : 0; }

static void put_stack(writer *w, uint32_t stack) {
    const mlr_profile *p = w->p;
    const mlr_stack *s = &p->stack[stack - 1];
    const uint32_t frame = s->node ? mlr_frame_innermost(p, stack) : 0;
    const uint32_t caller = s->node ? p->node[s->node - 1].caller : 0;
    put_line2(w->o, "t", pointer_of(w, frame), trace_of_node(w, caller));
}
static void put_traces(writer *w) {
    const mlr_profile *p = w->p;
    uint32_t i;
    size_t k;
    for (i = 1; i <= w->scopes; i++) put_line2(w->o, "t", i, 0);
    for (i = 1; i <= p->scope_count; i++) {
        const uint32_t caller = mlr_scope_caller(p, i);
        put_line2(w->o, "t", w->scopes + i, caller ? w->scopes + caller : 0);
    }
    for (i = 1; i <= p->node_count && !w->o->failed; i++)
        put_line2(w->o, "t", pointer_of(w, p->node[i - 1].frame),
                  trace_of_node(w, p->node[i - 1].caller));
    for (i = 1; i <= p->stack_count && !w->o->failed; i++) put_stack(w, i);
    for (k = 0; k < w->scopeds; k++)
        put_line2(w->o, "t", w->scoped[k] >> 32, w->scopes + (w->scoped[k] & UINT32_MAX));
}

static int number_order(const void *x, const void *y) {
    const uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}
/* Returns the trace of a site in a scope, or 0 if a row is not of one. */
static uint64_t scoped_key(const writer *w, const mlr_holding *row) {
    const uint32_t trace = trace_of(w, row);
    return row->where.scope && trace <= w->scopes ? (uint64_t)trace << 32 | row->where.scope : 0;
}
static int find_scoped(writer *w) {
    size_t i, kept = 0;
    w->scoped = (uint64_t *)malloc((w->live.count + 1) * sizeof *w->scoped);
    if (!w->scoped) return 0;
    for (i = 0; i < w->live.count; i++) {
        const uint64_t key = scoped_key(w, &w->live.at[i]);
        if (key) w->scoped[w->scopeds++] = key;
    }
    qsort(w->scoped, w->scopeds, sizeof *w->scoped, number_order);
    for (i = 0; i < w->scopeds; i++)
        if (!kept || w->scoped[i] != w->scoped[kept - 1]) w->scoped[kept++] = w->scoped[i];
    w->scopeds = kept;
    return 1;
}
static uint64_t trace_with_scope(const writer *w, const mlr_holding *row) {
    const uint64_t key = scoped_key(w, row);
    const uint64_t *at = key ? (const uint64_t *)bsearch(&key, w->scoped, w->scopeds,
                                                         sizeof *w->scoped, number_order)
                             : NULL;
    return at ? w->traces + (uint64_t)(at - w->scoped) + 1 : trace_of(w, row);
}

/* -- sums -- */

/* Makes the list of live blocks. Those of a sample's share have no sizes of their own. */
static int list_live(writer *w) {
    const mlr_profile *p = w->p;
    uint32_t i;
    if (p->sample_bytes)
        mlr_holdings_live(p, &w->live);
    else
        mlr_holdings_unlisted(p, NULL, &w->live);
    for (i = 0; i < p->block_count && !p->sample_bytes; i++) {
        const mlr_holding row = mlr_holding_of_block(&p->block[i]);
        mlr_holding_add(&w->live, &row);
    }
    return !w->live.failed;
}
static sum *sum_of(writer *w, const mlr_holding *row) {
    sum *s = &w->sum[trace_of(w, row)];
    s->device = row->device;
    return s;
}
static int add_sums(writer *w) {
    mlr_holdings rows[2];
    size_t i;
    int failed;
    memset(rows, 0, sizeof rows);
    mlr_holdings_allocated(w->p, &rows[0]);
    mlr_holdings_peak(w->p, &rows[1]);
    for (i = 0; i < rows[0].count; i++) {
        sum *s = sum_of(w, &rows[0].at[i]);
        s->allocs += rows[0].at[i].blocks;
        s->bytes += rows[0].at[i].bytes;
    }
    for (i = 0; i < rows[1].count; i++) sum_of(w, &rows[1].at[i])->peak += rows[1].at[i].bytes;
    for (i = 0; i < w->live.count; i++) {
        sum *s = sum_of(w, &w->live.at[i]);
        s->live += w->live.at[i].blocks;
        s->live_bytes += w->live.at[i].bytes;
    }
    failed = rows[0].failed || rows[1].failed;
    mlr_holdings_free(&rows[0]);
    mlr_holdings_free(&rows[1]);
    return !failed;
}

/* Moves the bytes at the peak of a device's traces towards what is live, so that they add up to
   `wanted`, a number from the live bytes of the device to its peak. */
static void fit_device(writer *w, uint32_t device, uint64_t live, uint64_t peak, uint64_t wanted) {
    const double part = (double)(wanted - live) / (double)(peak - live);
    int64_t all = 0, given = 0;
    uint32_t i;
    for (i = 1; i <= w->traces; i++) {
        sum *s = &w->sum[i];
        int64_t upto;
        if (s->device != device) continue;
        all += (int64_t)s->peak - (int64_t)s->live_bytes;
        upto = all == (int64_t)(peak - live) ? (int64_t)(wanted - live)
                                             : (int64_t)((double)all * part);
        s->peak = (uint64_t)((int64_t)s->live_bytes + upto - given);
        if ((int64_t)s->peak < 0) s->peak = 0;
        given = (int64_t)s->peak - (int64_t)s->live_bytes + given;
    }
}
/* Fits what the devices held, each at its own peak, to the peak of all. */
static void fit_peak(writer *w) {
    const mlr_profile *p = w->p;
    uint64_t live = 0, more;
    uint32_t i;
    for (i = 0; i < p->device_count; i++) live += p->device[i].stats.allocated;
    w->peak = p->total.peak > live ? p->total.peak : live;
    more = w->peak - live;
    for (i = 0; i < p->device_count; i++) {
        const uint64_t now = p->device[i].stats.allocated, peak = mlr_device_peak(&p->device[i]);
        const uint64_t own = mlr_take(&more, peak - now);
        if (own < peak - now) fit_device(w, i + 1, now, peak, now + own);
    }
    w->peak -= more;
}

/* Turns the sums of a trace's allocations into those of the freed ones. */
static void settle(sum *s) {
    int k;
    if (s->live > s->allocs) {
        for (k = 0; k < WALKS; k++) s->walk[k].older = s->live - s->allocs;
        s->live = s->allocs;
    }
    s->allocs -= s->live;
    (void)mlr_take(&s->bytes, s->live_bytes);
    for (k = 0; k < WALKS; k++) s->walk[k].room = s->peak;
}
/* Gives what a trace held at the peak besides its live blocks to its last freed allocation. */
static void hold(sum *s) {
    s->extra = s->walk[WALK_LOOK].room;
    if (!s->extra || !s->allocs || !s->bytes || (s->allocs == 1 && s->bytes > s->extra)) return;
    s->held = mlr_take(&s->bytes, s->extra);
    s->extra -= s->held;
    s->allocs--;
}
/* Multiplies a trace's freed allocations by a factor below 1, but leaves at least 1. */
static void shrink(sum *s, double scale) {
    uint64_t n = (uint64_t)((double)s->allocs * scale);
    if (!s->allocs) return;
    if (!n) n = 1;
    s->bytes = s->bytes / s->allocs * n;
    s->allocs = n;
}
/* Counts the calls, and shrinks the freed ones if there are too many. */
static void settle_calls(writer *w) {
    uint64_t freed = 0, others = 0, written;
    uint32_t i;
    for (i = 1; i <= w->traces; i++) {
        freed += w->sum[i].allocs;
        others += w->sum[i].live + (w->sum[i].held != 0);
    }
    if (freed <= FREED_MOST) return;
    for (i = 1, written = others; i <= w->traces; i++) {
        shrink(&w->sum[i], FREED_MOST / (double)freed);
        written += w->sum[i].allocs;
    }
    mlr_puts(w->o, "# calls: ");
    mlr_put_u64(w->o, written);
    mlr_puts(w->o, " of ");
    mlr_put_u64(w->o, others + freed);
    mlr_puts(w->o, "\n");
}

/* -- calls -- */

/* Writes the freed allocations of a trace: those below the peak or, if `late`, the others, which
   have the room that is left then. A free of description 0, which has no bytes, stands before each
   free, so that heaptrack does not take the allocation for a temporary one. */
static void put_freed(writer *w, uint32_t trace, int late) {
    const sum *s = &w->sum[trace];
    const uint64_t n = s->allocs, size = n ? s->bytes / n : 0;
    uint64_t i, info = 0, last = UINT64_MAX;
    for (i = 0; i < n && !w->o->failed; i++) {
        uint64_t bytes = i + 1 == n ? s->bytes - size * (n - 1) : size;
        if ((bytes >= w->peak) != late) continue;
        if (bytes > w->peak - w->held) bytes = w->peak - w->held;
        if (bytes != last) info = put_info(w, bytes, trace);
        last = bytes;
        put_call(w, info, bytes);
        mlr_puts(w->o, "- 0\n");
        put_free(w, info, bytes);
    }
}

/* Handles a live block, or with `called` 0 bytes of an arena, in a walk: it is at the peak if its
   bytes fit in what its trace held then. A block that no call has allocated may be there in part.
 */
static void put_live(writer *w, sum *s, uint64_t trace, uint64_t bytes, int called, int k) {
    walk *at = &s->walk[k];
    uint64_t then = bytes <= at->room ? bytes : 0;
    if (called && at->older) {
        at->older--;
        called = 0;
    }
    if (!called && bytes > at->room) then = at->room;
    at->room -= then;
    if (k == WALK_LOOK || (k != WALK_REST && called != (k == WALK_PEAK_CALLS))) return;
    if (!called)
        put_bytes(w, k == WALK_REST ? bytes - then : then, trace);
    else if ((then == bytes) == (k != WALK_REST))
        put_call(w, put_info(w, bytes, trace), bytes);
}
static void walk_live(writer *w, int k) {
    size_t i;
    for (i = 0; i < w->live.count && !w->o->failed; i++) {
        const mlr_holding *row = &w->live.at[i];
        const uint64_t n = row->blocks, size = n ? row->bytes / n : row->bytes;
        const uint64_t trace = k == WALK_LOOK ? 0 : trace_with_scope(w, row);
        sum *s = sum_of(w, row);
        uint64_t b;
        for (b = 1; b < n && !w->o->failed; b++) put_live(w, s, trace, size, 1, k);
        put_live(w, s, trace, n ? row->bytes - size * (n - 1) : size, n != 0, k);
    }
}
/* Writes what was there at the peak, and is freed behind it. The allocations come last, because a
   reader looks for the peak at allocations alone. */
static void put_peak(writer *w) {
    uint64_t first, info;
    uint32_t i;
    for (i = 1; i <= w->traces; i++) put_bytes(w, w->sum[i].extra, i);
    walk_live(w, WALK_PEAK_BYTES);
    first = w->infos;
    for (i = 1; i <= w->traces; i++)
        if (w->sum[i].held) put_call(w, put_info(w, w->sum[i].held, i), w->sum[i].held);
    walk_live(w, WALK_PEAK_CALLS);
    if (w->infos) mlr_puts(w->o, "- 0\n");
    for (i = 1, info = first; i <= w->traces; i++)
        if (w->sum[i].held) put_free(w, info++, w->sum[i].held);
    for (i = 1; i <= w->traces; i++)
        if (w->sum[i].extra) put_free(w, put_info(w, w->sum[i].extra, i), w->sum[i].extra);
}

/* -- the file -- */

static void put_head(writer *w) {
    uint32_t i;
    put_line2(w->o, "v", 0x10400, 2);
    mlr_puts(w->o, "X memlord ");
    mlr_put_name(w->o, w->p->version, 0);
    mlr_puts(w->o, "\n# ");
    mlr_put_process(w->o, w->p);
    mlr_puts(w->o, "\n");
    for (i = 0; i <= w->p->device_count; i++) {
        mlr_buffer line = {NULL, 0, 0};
        mlr_out to;
        mlr_out_open(&to, mlr_buffer_write, &line);
        if (mlr_put_anomalies(&to, w->p, i)) mlr_puts(w->o, "# ");
        w->o->failed |= mlr_out_close(&to);
        mlr_put(w->o, line.at, line.used);
        if (line.used) mlr_puts(w->o, "\n");
        free(line.at);
    }
    if (w->p->sample_bytes) {
        mlr_puts(w->o, "# ");
        (void)mlr_put_estimates(w->o, w->p);
        mlr_puts(w->o, "\n");
    }
}
static int put_file(writer *w) {
    uint32_t i;
    w->sum = (sum *)calloc((size_t)w->traces + 1, sizeof *w->sum);
    if (!w->sum || !list_live(w) || !find_scoped(w) || !add_sums(w)) return 0;
    put_head(w);
    fit_peak(w);
    for (i = 1; i <= w->traces; i++) settle(&w->sum[i]);
    walk_live(w, WALK_LOOK);
    for (i = 1; i <= w->traces; i++) hold(&w->sum[i]);
    settle_calls(w);
    put_pointers(w);
    put_traces(w);
    put_line(w->o, "c", 0);
    if (w->p->device_count) (void)put_info(w, 0, 1); /* description 0, which has no bytes */
    for (i = 1; i <= w->traces; i++) put_freed(w, i, 0);
    put_peak(w);
    for (i = 1; i <= w->traces; i++) put_freed(w, i, 1);
    walk_live(w, WALK_REST);
    put_line(w->o, "c", w->p->uptime_ns / 1000000u);
    return 1;
}
MLR_PRIVATE mlr_result mlr_heaptrack(const mlr_profile *p, mlr_out *o) {
    writer w;
    int done;
    memset(&w, 0, sizeof w);
    w.p = p;
    w.o = o;
    w.kinds = p->site_count;
    w.scopes = w.kinds + p->device_count * MLR_KINDS;
    w.nodes = w.scopes + p->scope_count;
    w.stacks = w.nodes + p->node_count;
    w.traces = w.stacks + p->stack_count;
    done = mlr_frames_open(&w.frames, p) && put_file(&w);
    mlr_frames_close(&w.frames);
    mlr_holdings_free(&w.live);
    free(w.sum);
    free(w.scoped);
    return done ? MLR_OK : MLR_E_NOMEM;
}
