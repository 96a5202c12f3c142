#include "reports/capture.h"
#include "base/atomics.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "books/counters.h"
#include "books/names.h"
#include "books/sites.h"
#include "books/tags.h"
#include "books/picks.h"
#include "books/stacks.h"
#include "books/stack_totals.h"
#include "books/accounts.h"
#include "books/parts.h"
#include "books/limits.h"
#include "services/answers.h"
#include "services/room.h"
#include "services/stats.h"

/* -- the capture -- */

MLI_PRIVATE int mli_report_device(const mli_report *r, uint32_t dev) {
    return mli_device_code(mli_device_record_at(r->lord, dev)->device);
}

/* -- the walk over all blocks: leaks, sizes, scopes, the largest -- */

/* Adds a live block to the leaks of its stack. Does nothing for a block without a stack. */
static MLI_COLD void mli_stack_leak_add(mli_report *r, const mli_entry *e) {
    const mli_pick pick = mli_pick_of(r->lord, e);
    mli_stack_leak *leak;
    if (!r->stack_leak || !pick.row || pick.row >= r->row_count) return; /* leaves out a block
                                                                            without a stack, or with
                                                                            a new one */
    leak = &r->stack_leak[pick.row];
    leak->row = pick.row;
    leak->bytes += mli_pick_weight(&pick, MLI_BYTES(e->word1));
    leak->blocks += (double)mli_pick_units(&pick) / MLI_STACK_UNITS; /* rounded to the units in
                                                                        which the stack's allocs are
                                                                        counted */
    leak->samples++;
}
/* Moves the largest leaks of stacks to the start of their table, the largest first. */
static MLI_COLD void mli_stack_leaks_sort(mli_report *r) {
    uint32_t i;
    for (i = 1; i < r->row_count; i++) {
        const mli_stack_leak leak = r->stack_leak[i];
        if (!leak.samples) continue;
        r->stack_leak_rows++;
        r->stack_leak_bytes += leak.bytes;
        r->stack_leaks = mli_top_insert(r->stack_leak, r->stack_leaks, MLI_LEAKS_SHOWN, &leak,
                                        sizeof leak, offsetof(mli_stack_leak, bytes));
    }
}
MLI_PRIVATE const memlord_site *mli_row_site(memlord *lord, uint32_t row) {
    return mli_site_display(lord, (mli_site_record *)mli_row_at(lord, MLI_BOOK_SITE, row)->subject);
}
MLI_PRIVATE MLI_COLD const char *mli_series_tag(memlord *lord, const mli_series *s) {
    if (s->book != MLI_BOOK_TAG || !s->row) return NULL;
    return (const char *)mli_row_at(lord, MLI_BOOK_TAG, s->row)->subject;
}
MLI_PRIVATE MLI_COLD const memlord_site *mli_series_site(memlord *lord, const mli_series *s) {
    return s->book == MLI_BOOK_SITE && s->row ? mli_row_site(lord, s->row) : NULL;
}
MLI_PRIVATE void mli_put_shape(mli_out *o, const memlord_meta *meta, const char *between) {
    uint32_t i;
    for (i = 0; i < meta->rank; i++) {
        mli_put_str(o, i ? between : "[");
        mli_put_i64(o, meta->shape[i]);
    }
    if (meta->rank) mli_put_str(o, "]");
}
MLI_PRIVATE const mli_route *mli_route_next(const memlord *lord, const mli_route *route) {
    if (route)
        route = route->next;
    else
        route = mli_route_newest(lord);
    while (route && !(mli_u64_load(&route->moves) | mli_u64_load(&route->copies)))
        route = route->next;
    return route;
}
MLI_PRIVATE mli_route_line mli_route_line_of(const mli_route *route) {
    mli_route_line line;
    line.moves = mli_u64_load(&route->moves);
    line.moved_bytes = mli_u64_load(&route->moved_bytes);
    line.copies = mli_u64_load(&route->copies);
    line.copied_bytes = mli_u64_load(&route->copied_bytes);
    return line;
}

/* Adds a block to the sum of its stream. */
static void mli_stream_add(mli_report *r, uint64_t stream, uint32_t dev, uint64_t bytes) {
    const uint64_t hash = (stream + dev) * 0x9e3779b97f4a7c15u;
    size_t i = hash >> 32 & (MLI_STREAMS - 1);
    mli_stream_line *line = &r->stream[i];
    while (line->dev && (line->dev != dev || line->stream != stream)) {
        i = (i + 1) & (MLI_STREAMS - 1);
        line = &r->stream[i];
    }
    if (!line->dev && r->streams == MLI_STREAMS / 2) {
        line = &r->stream_rest;
        r->streams_lost = 1;
    } else if (!line->dev) {
        line->stream = stream;
        line->dev = dev;
        r->streams++;
    }
    line->bytes += bytes;
    line->blocks++;
}
/* Moves the largest streams to the start of their table, the largest first. Of two streams of the
   same size, the one with the lower number comes first. */
static MLI_COLD void mli_streams_sort(mli_report *r) {
    size_t i, k, n = 0;
    for (i = 0; n < r->streams; i++) {
        const mli_stream_line line = r->stream[i];
        if (!line.dev) continue;
        for (k = n++; k && (r->stream[k - 1].bytes < line.bytes ||
                            (r->stream[k - 1].bytes == line.bytes &&
                             r->stream[k - 1].stream > line.stream));
             k--)
            r->stream[k] = r->stream[k - 1];
        r->stream[k] = line;
    }
    r->stream_lines = n < MLI_TOP_STREAMS ? n : MLI_TOP_STREAMS;
    for (i = r->stream_lines; i < n; i++) {
        r->stream_rest.bytes += r->stream[i].bytes;
        r->stream_rest.blocks += r->stream[i].blocks;
    }
}

/* Adds a live block to all lists of a report, so that one walk fills them. These are the largest
   blocks, the sizes, the streams, the leaks, and the live bytes of each scope. */
static MLI_COLD int mli_visit_report(memlord *lord, const mli_entry *e, void *user) {
    mli_report *r = (mli_report *)user;
    uint64_t bytes = MLI_BYTES(e->word1), rows = mli_word2_rows(e->word2);
    uint32_t dev = MLI_DEV(e->word1), scope = mli_scope_of(lord, rows), size = 0;
    const mli_side_record *side = mli_side_record_of(e->word2);
    const uint64_t stream = mli_stream_of(lord, rows);
    for (; bytes >> size; size++) {}
    if (stream) mli_stream_add(r, stream, dev, bytes);
    if (dev <= r->devices) r->sizes[dev - 1][size]++; /* leaves out a device that is new */
    if (mli_mark_of(lord, rows) >= r->mark && !(side && side->serial)) { /* leaves out pending
                                                                            blocks, because the host
                                                                            has freed them */
        mli_leak_add(lord, &r->leaks, rows, dev, bytes);
        mli_leak_sites_add(&r->leak_sites, rows, bytes);
        mli_stack_leak_add(r, e);
    }
    if (scope && scope <= r->scopes) {
        r->scope[scope].live_bytes += bytes;
        r->scope[scope].live_blocks++;
    }
    if (side && side->parts) r->has_parts = 1;
    return mli_visit_top(lord, e, &r->top);
}

/* -- the lifetimes of blocks that begin and end in the event ring -- */

typedef struct mli_lifetime_span { /* a slot of a hash table of blocks, with open addressing */
    uint64_t key;   /* the storage, with its device type in the top bits; 0: vacant */
    uint64_t stamp; /* when the block began; 0 if it has ended */
} mli_lifetime_span;

static void mli_lifetime_event(mli_report *r, mli_lifetime_span *spans, uint64_t mask,
                               const mli_event_copy *e) {
    uint32_t kind = mli_event_kind(e->what), dev = mli_event_dev(e->what);
    int begins = kind == MEMLORD_EVENT_ALLOC || kind == MEMLORD_EVENT_MOVE;
    uint64_t key = e->storage, at;
    if (!dev || !(begins || kind == MEMLORD_EVENT_FREE)) return;
    key ^= (uint64_t)(mli_type_of(r->lord, dev) + 1u) << 57;
    for (at = (key * 0x9e3779b97f4a7c15u) >> 20 & mask; spans[at].key; at = (at + 1) & mask)
        if (spans[at].key == key) break;
    if (begins) {
        spans[at].key = key;
        spans[at].stamp = e->stamp ? e->stamp : 1;
    } else if (spans[at].key && spans[at].stamp && dev <= r->devices) {
        uint64_t ms = mli_stamps_ns(&r->scale, e->stamp - spans[at].stamp) / 1000000u;
        r->lifetime[dev - 1][(ms >= 100) + (ms >= 1000) + (ms >= 10000)]++;
        spans[at].stamp = 0;
    }
}

/* Counts in `lifetime` the lifetimes of the blocks whose alloc and free are both in the event ring.
   If the ring is off or there is no memory, the lifetimes stay unknown. */
static MLI_COLD void mli_report_lifetimes(mli_report *r) {
    const mli_ring *ring = mli_ring_of(r->lord);
    uint64_t size = 64;
    mli_ring_reader reading;
    mli_event_copy e;
    mli_lifetime_span *spans;
    if (!ring) return;
    while (size < ring->capacity + ring->capacity / 4) size *= 2; /* at most 80 % are used */
    spans = (mli_lifetime_span *)mli_own_alloc(r->lord, (size_t)size * sizeof *spans);
    if (!spans) return;
    if (mli_ring_reader_begin(r->lord, &reading)) {
        r->lifetimes = 1;
        while (mli_ring_reader_next(&reading, &e))
            mli_lifetime_event(r, spans, size - 1, &e);
        mli_ring_reader_end(&reading);
    }
    mli_own_free(r->lord, spans, (size_t)size * sizeof *spans);
}

MLI_PRIVATE const char *mli_report_peak_name(const mli_report *r) {
    const mli_snapshot *best = NULL;
    uint32_t i;
    for (i = 0; i < r->snapshots; i++)
        if (r->snapshot[i]->name && (!best || r->snapshot[i]->live > best->live))
            best = r->snapshot[i];
    return best ? best->name : NULL;
}

MLI_PRIVATE memlord_capacity mli_phys_sample_of(mli_phys *phys) {
    memlord_capacity sample;
    mli_lock_take(&phys->lock);
    sample = phys->sample;
    mli_lock_drop(&phys->lock);
    return sample;
}

/* Fills in the figures that come from the last sample of a physical device's capacity. Requires:
   the capacity is known, and line->self is filled in. */
static void mli_phys_line_sample(const memlord_capacity *sample, uint64_t neighbours,
                                 mli_phys_line *line) {
    uint64_t mine = mli_add_saturated(line->self, sample->context);
    if (sample->process > mine) mine = sample->process;
    line->total = sample->total;
    line->used = sample->used;
    line->free = sample->total > sample->used ? sample->total - sample->used : 0;
    if (sample->process) {
        line->process = sample->process;
        line->rest = mine - line->self;
    }
    line->others = sample->used > mine ? sample->used - mine : 0;
    if (sample->context) line->context = sample->context;
    line->unaccounted = (int64_t)(sample->total - line->free - line->self - sample->context -
                                  neighbours);
    line->fullness = mli_whole(mli_used_percent(sample) * 1e6) + 1;
}
/* Captures a physical device. Splits its used bytes into those of the ledger, the rest of this
   process, and those of other processes. If the ledger has grown or shrunk since the
   capacity was sampled, adds the difference to the used bytes and to the bytes of this process. */
static void mli_phys_line_fill(mli_report *r, mli_phys *phys, mli_phys_line *line) {
    uint64_t now = mli_ledger_now(r->lord), sampled, neighbours, held;
    memlord_capacity sample;
    int64_t process;
    uint32_t i;
    memset(line, 0xff, sizeof *line);
    mli_lock_take(&phys->lock);
    sample = phys->sample;
    sample.used = mli_phys_used(r->lord, phys, &held);
    process = (int64_t)(sample.process + sample.used - phys->sample.used);
    if (sample.process) sample.process = process > 0 ? (uint64_t)process : 0;
    sampled = phys->sampled;
    line->of.device = phys->device;
    line->of.name = NULL;
    line->held = phys->ticket_bytes;
    if (phys->limit) line->limit = phys->limit;
    neighbours = phys->neighbours;
    mli_lock_drop(&phys->lock);
    line->phys = phys;
    line->unaccounted = INT64_MIN;
    line->self = line->fullness = 0;
    for (i = 1; i <= r->devices; i++)
        if (mli_phys_at(r->lord, i) == phys && mli_dev_uses_capacity(r->lord, i))
            line->self = mli_add_saturated(line->self, r->stat[i - 1].allocated);
    line->untagged = line->self;
    if (neighbours) line->neighbours = neighbours;
    if (!sample.known) return;
    line->age = now > sampled ? now - sampled : 0;
    mli_phys_line_sample(&sample, neighbours, line);
}
/* Captures each physical device with a known capacity or a limit, the fullest first. */
static void mli_report_phys_all(mli_report *r) {
    uint32_t i;
    for (i = 0; i <= r->devices && r->phys; i++) {
        mli_phys *phys = mli_phys_in_use(r->lord, i);
        mli_phys_line line;
        if (!phys) continue;
        mli_phys_line_fill(r, phys, &line);
        if (line.total != UINT64_MAX || line.limit != UINT64_MAX)
            r->phys_count = mli_top_insert(r->phys, r->phys_count, r->devices + 1, &line,
                                           sizeof line, offsetof(mli_phys_line, fullness));
    }
}
MLI_PRIVATE mli_phys_line *mli_report_phys(mli_report *r, uint32_t dev) {
    const mli_phys *phys = mli_phys_at(r->lord, dev);
    size_t i;
    for (i = 0; i < r->phys_count; i++)
        if (r->phys[i].phys == phys) return &r->phys[i];
    return NULL;
}

static void mli_report_tag_list(mli_report *r, const mli_tag_line *line) {
    r->tag_rows++;
    r->tag_bytes += line->stat.allocated;
    r->tag_lines = mli_top_insert(r->top_tag, r->tag_lines, MLI_TOP_TAGS, line, sizeof *line,
                                  offsetof(mli_tag_line, stat.allocated));
}
/* Captures each tag on each device once, for all lists of tags, and lists the MLI_TOP_TAGS largest.
   Requires: mli_report_phys_all has run. */
static void mli_report_tags(mli_report *r) {
    uint32_t i;
    for (i = 1; i <= r->devices && r->tag; i++) {
        mli_tag_line *rest = &r->tag[r->tags + i];
        memset(rest, 0xff, sizeof *rest);
        rest->stat.allocated = r->stat[i - 1].allocated;
        rest->stat.variance = INT64_MIN;
        rest->of.device = mli_device_record_at(r->lord, i)->device;
        rest->of.name = "";
    }
    for (i = 1; i <= r->tags; i++) {
        mli_tag_line *line = &r->tag[i];
        line->of.dev = mli_row_at(r->lord, MLI_BOOK_TAG, i)->dev;
        line->of.device = mli_device_record_at(r->lord, line->of.dev)->device;
        line->phys = mli_report_phys(r, line->of.dev);
        line->peak_error = mli_tag_stat_fill(r->lord, i, &line->stat);
        line->of.name = line->stat.tag;
        if (!line->stat.expected) {
            line->stat.expected = UINT64_MAX;
            line->stat.variance = INT64_MIN;
        }
        mli_take_off(&r->tag[r->tags + line->of.dev].stat.allocated, line->stat.allocated);
        if (line->phys && mli_dev_uses_capacity(r->lord, line->of.dev))
            mli_take_off(&line->phys->untagged, line->stat.allocated);
        mli_report_tag_list(r, line);
    }
    for (i = 1; i <= r->devices && r->tags; i++) {
        mli_tag_line rest = r->tag[r->tags + i];
        rest.stat.tag = "(untagged)";
        if (rest.stat.allocated) mli_report_tag_list(r, &rest);
    }
}

/* Captures every scope, except for its live bytes, which the walk over all blocks adds. */
static void mli_report_scopes(mli_report *r) {
    uint32_t id;
    for (id = 1; id <= r->scopes; id++) {
        mli_scope_line *line = &r->scope[id];
        mli_scope_sum(r->lord, mli_scope_record_at(r->lord, id), &r->scale, &line->stat, NULL);
        line->of.device = memlord_device_all();
        line->of.name = line->stat.path;
    }
}
MLI_PRIVATE int64_t mli_average(int64_t total, uint64_t count) {
    return count ? total / (int64_t)count : 0;
}

/* Captures the MLI_TOP_ACCOUNTS largest open accounts, and counts all of these. */
static void mli_report_accounts(mli_report *r) {
    memlord *lord = r->lord;
    uint32_t i;
    mli_lock_take(&mli_process.cold_lock);
    for (i = 1; i <= mli_account_count(lord); i++) {
        memlord_account_stat s;
        uint64_t held;
        if (!mli_account_read_locked(mli_account_at(lord, i), &s, &held)) continue;
        r->accounts++;
        if (!s.limit) s.limit = UINT64_MAX;
        r->account_lines = mli_top_insert(r->account, r->account_lines, MLI_TOP_ACCOUNTS, &s,
                                          sizeof s, offsetof(memlord_account_stat, bytes));
    }
    mli_lock_drop(&mli_process.cold_lock);
}

MLI_PRIVATE uint64_t mli_report_arena(const mli_report *r, uint32_t dev) {
    return mli_u64_load(&mli_device_record_at(r->lord, dev)->arena);
}
MLI_PRIVATE uint64_t mli_report_arena_untagged(const mli_report *r, uint32_t dev) {
    uint64_t arena = mli_report_arena(r, dev);
    mli_take_off(&arena, mli_u64_load(&mli_device_record_at(r->lord, dev)->arena_tagged));
    return arena;
}
/* Lists the largest sites. The arena of each device counts as one more site. */
static void mli_report_sites(mli_report *r) {
    uint32_t i;
    r->site_total = r->site_rows;
    r->sites = mli_sites_top(
        r->lord, memlord_device_all(),
        r->by_peak ? MEMLORD_SITE_ORDER_PEAK_BYTES : MEMLORD_SITE_ORDER_LIVE_BYTES, r->site,
        MLI_TOP_SITES, 1);
    for (i = 1; i <= r->devices; i++) {
        memlord_site_stat arena;
        memset(&arena, 0xff, sizeof arena);
        arena.site = &mli_arena_site;
        arena.device = mli_device_record_at(r->lord, i)->device;
        arena.live_bytes = arena.peak_bytes = mli_report_arena(r, i);
        if (!arena.live_bytes) continue;
        r->site_total++;
        r->sites = mli_top_insert(r->site, r->sites, MLI_TOP_SITES, &arena, sizeof arena,
                                  r->by_peak ? offsetof(memlord_site_stat, peak_bytes)
                                             : offsetof(memlord_site_stat, live_bytes));
    }
}

/* Lists the largest stacks, in the order of their keys, which mli_stack_line explains. */
static void mli_report_stacks(mli_report *r) {
    memlord_stack_stat *rest = &r->stack_rest;
    uint32_t i, rows = mli_stack_rows(r->lord);
    if (!mli_stacks_on(r->lord)) return;
    r->stack_room = rows < MLI_TOP_STACKS ? rows : MLI_TOP_STACKS;
    r->stack = (mli_stack_line *)mli_own_alloc(r->lord, r->stack_room * sizeof *r->stack);
    r->stack_leak = (mli_stack_leak *)mli_own_alloc(r->lord, rows * sizeof *r->stack_leak);
    r->row_count = rows;
    if (!r->stack || !r->stack_leak) {
        r->result = MEMLORD_E_NOMEM;
        rows = 0;
    }
    for (i = 1; i < rows; i++) {
        mli_stack_line line;
        uint64_t first;
        line.held = mli_stack_stat_fill(r->lord, i, &line.stat);
        if (!(line.stat.live_bytes | line.stat.alloc_bytes | line.stat.samples | line.held))
            continue; /* leaves out a stack whose numbers are all 0 since a reset */
        line.node = mli_stack_row_at(r->lord, i)->node;
        first = r->by_peak ? line.held : line.stat.live_bytes;
        line.key = first ? first | (uint64_t)1 << 63 : line.stat.alloc_bytes;
        r->stack_rest_held += line.held;
        rest->live_bytes += line.stat.live_bytes;
        rest->alloc_bytes += line.stat.alloc_bytes;
        rest->allocs += line.stat.allocs;
        r->stack_rows++;
        r->stacks = mli_top_insert(r->stack, r->stacks, r->stack_room, &line, sizeof line,
                                   offsetof(mli_stack_line, key));
    }
    for (i = 0; i < r->stacks; i++) {
        r->stack_rest_held -= r->stack[i].held;
        rest->live_bytes -= r->stack[i].stat.live_bytes;
        rest->alloc_bytes -= r->stack[i].stat.alloc_bytes;
        rest->allocs -= r->stack[i].stat.allocs;
    }
}

/* Lists the scopes with the most live bytes. Requires: the walk over all blocks has run. */
static void mli_report_scopes_sort(mli_report *r) {
    uint64_t line[2];
    for (line[1] = 1; line[1] <= r->scopes; line[1]++) {
        line[0] = r->scope[line[1]].live_bytes;
        r->scope_lines = (uint32_t)mli_top_insert(r->top_scope, r->scope_lines, MLI_TOP_SITES,
                                                  line, sizeof line, 0);
    }
}

/* The kinds of mistakes, the most serious first. Kinds that make totals too low come first, then
   frees and allocs that contradict the live blocks, then the others. */
static const unsigned char mli_mistake_kinds[] = {
    MEMLORD_ANOMALY_DROPPED,       MEMLORD_ANOMALY_UNKNOWN_FREE,
    MEMLORD_ANOMALY_IMPLICIT_FREE, MEMLORD_ANOMALY_FREED_WHILE_SHARED,
    MEMLORD_ANOMALY_UNDERFLOW,     MEMLORD_ANOMALY_FENCE_FAILED,
    MEMLORD_ANOMALY_REFUSED,       MEMLORD_ANOMALY_MISPLACED_END};
typedef char mli_check_mistake_kinds
    [sizeof mli_mistake_kinds == (size_t)MEMLORD_ANOMALY_COUNT ? 1 : -1];

/* Captures the mistakes of the host, in the order of mli_mistake_kinds. Within a kind, the line
   with the most bytes comes first. A line whose bytes are not known is sorted by its count. */
static MLI_COLD void mli_report_mistakes(mli_report *r) {
    mli_anomaly_line line;
    uint32_t i;
    for (i = 0; mli_anomaly_read(r->lord, i, &line.is); i++) {
        const uint64_t most = UINT64_MAX >> 8, size = line.is.bytes ? line.is.bytes : line.is.count;
        uint64_t rank = sizeof mli_mistake_kinds;
        while (rank && mli_mistake_kinds[sizeof mli_mistake_kinds - rank] != line.is.kind) rank--;
        line.weight = rank << 56 | (size < most ? size : most);
        r->mistakes = mli_top_insert(r->mistake, r->mistakes, MLI_ANOMALIES, &line, sizeof line,
                                     offsetof(mli_anomaly_line, weight));
    }
    r->mistakes_more = mli_anomalies_left_out(r->lord);
}

/* Reads the live bytes of devices, tags and sites in the snapshots. Finds which of them grow. */
static MLI_COLD void mli_report_series(mli_report *r) {
    uint32_t dev;
    mli_series_collect(&r->series, r->snapshot, r->snapshots);
    for (dev = 1; dev <= r->devices; dev++) {
        const mli_phys_line *phys = mli_report_phys(r, dev);
        mli_series_fit(&r->series, dev, phys && phys->total != UINT64_MAX ? phys->total : 0);
    }
}

/* Allocates the lists by device. If there is no memory, the report has no devices. */
static MLI_COLD void mli_report_devices(mli_report *r) {
    const size_t n = mli_row_count(r->lord, MLI_BOOK_DEVICE) - 1;
    r->device_size = n * (sizeof *r->stat + sizeof *r->sizes + sizeof *r->lifetime +
                          sizeof *r->top_device) + (n + 1) * sizeof *r->phys;
    r->stat = (memlord_stats *)mli_own_alloc(r->lord, r->device_size);
    if (!r->stat) {
        r->result = MEMLORD_E_NOMEM;
        return;
    }
    r->phys = (mli_phys_line *)(void *)(r->stat + n);
    r->sizes = (uint64_t (*)[MLI_SIZES])(void *)(r->phys + n + 1);
    r->lifetime = (uint64_t (*)[4])(void *)(r->sizes + n);
    r->top_device = (uint64_t (*)[2])(void *)(r->lifetime + n);
    r->devices = (uint32_t)n;
}

MLI_PRIVATE void mli_report_capture(memlord *lord, mli_report *r) {
    MLI_REQUIRE(!r->lord);
    mli_walk_query all = mli_walk_query_of(memlord_device_all());
    uint32_t i;
    mli_places_name(lord);
    r->lord = lord;
    r->uptime = mli_ledger_age(lord);
    r->ended = mli_u64_load(&lord->program_ended) != 0;
    mli_identity_read(mli_proc_root(lord), lord->arguments, &r->who);
    r->scale = mli_stamp_scale_now(lord);
    r->scopes = mli_scope_count(lord) - 1;
    r->scope = (mli_scope_line *)mli_own_alloc(lord, (r->scopes + 1) * sizeof *r->scope);
    r->site_rows = mli_row_count(lord, MLI_BOOK_SITE) - 1;
    r->mark = MLI_BIRTH(mli_mark_bits(lord));
    r->tags = mli_row_count(lord, MLI_BOOK_TAG) - 1; /* read before the devices, so that the report
                                                        has that of every tag */
    mli_report_devices(r);
    if (!r->devices) r->tags = 0;
    r->tag = (mli_tag_line *)mli_own_alloc(lord, (r->tags + r->devices + 1) * sizeof *r->tag);
    if (!r->tag || !r->scope) r->result = MEMLORD_E_NOMEM;
    if (!r->tag) r->tags = 0;
    if (!r->scope) r->scopes = 0;
    for (i = 0; i < r->devices; i++) {
        uint64_t line[2];
        mli_stats_fill(lord, i + 1, &r->stat[i]);
        if (!i) r->total.largest_free = UINT64_MAX;
        mli_stats_sum(&r->total, &r->stat[i]);
        line[0] = r->stat[i].peak;
        line[1] = i + 1;
        (void)mli_top_insert(r->top_device, i, r->devices, line, sizeof line, 0);
    }
    mli_stats_sum_phys(lord, all.sel, &r->total);
    r->by_peak = r->total.allocated < r->total.peak / 4;
    mli_report_phys_all(r);
    mli_report_accounts(r);
    mli_stats_add_losses(lord, &r->total);
    mli_report_tags(r);
    mli_report_scopes(r);
    if (!r->whole) return;
    mli_report_series(r);
    mli_report_mistakes(r);
    mli_report_sites(r);
    mli_report_stacks(r);
    mli_report_lifetimes(r);
    if (!mli_leak_sites_begin(&r->leak_sites, lord, r->devices, (uint32_t)r->tags, r->scopes))
        r->result = MEMLORD_E_NOMEM;
    if (r->total.live_blocks && !mli_leaks_begin(lord, &r->leaks, r->total.live_blocks))
        r->result = MEMLORD_E_NOMEM;
    r->top.at = r->block;
    r->top.cap = MLI_TOP_BLOCKS;
    mli_map_visit(lord, &all, mli_visit_report, r);
    r->blocks = mli_block_heap_sort(lord, &r->top);
    mli_leak_sites_list(&r->leak_sites, &r->leaks);
    mli_streams_sort(r);
    if (r->stack_leak) mli_stack_leaks_sort(r);
    mli_report_scopes_sort(r);
}
MLI_PRIVATE MLI_COLD void mli_report_free(mli_report *r) {
    memlord *lord = r->lord;
    mli_own_free(lord, r->stack, r->stack_room * sizeof *r->stack);
    mli_own_free(lord, r->stack_leak, r->row_count * sizeof *r->stack_leak);
    mli_leaks_free(lord, &r->leaks);
    mli_leak_sites_free(&r->leak_sites);
    mli_own_free(lord, r->scope, (r->scopes + 1) * sizeof *r->scope);
    mli_own_free(lord, r->tag, (r->tags + r->devices + 1) * sizeof *r->tag);
    mli_own_free(lord, r->stat, r->device_size);
}
