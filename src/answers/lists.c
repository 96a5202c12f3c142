#include "answers/lists.h"
#include "answers/places.h"

#define COLUMNS(list) (uint32_t)(sizeof list / sizeof *list)

/* Adds a row, or counts it as left out and returns NULL. */
static mlr_cell *row_or_more(mlr_build *b, mlr_table *t, uint64_t bytes) {
    if (t->rows < b->top) return mlr_row_add(b, t, 0);
    t->more++;
    t->more_bytes = mlr_more(t->more_bytes, bytes);
    return NULL;
}
static const char *device_cell(const mlr_build *b, uint32_t device) {
    return b->profile->device_count > 1 ? mlr_device_name(b->profile, device) : "";
}
static mlr_ranked *ranked(mlr_build *b, uint32_t n) {
    return (mlr_ranked *)mlr_build_alloc(b, n + 1u, sizeof(mlr_ranked));
}

static const mlr_column run_columns[] = {{"program", "program", MLR_TEXT, 0},
                                         {"pid", "pid", MLR_COUNT, 0},
                                         {"host", "host", MLR_TEXT, 0},
                                         {"started_at", "started", MLR_TEXT, 0},
                                         {"uptime", "ran for", MLR_DURATION, 0},
                                         {"ended", "ended", MLR_COUNT, 1},
                                         {"own_bytes", "MemLord's own", MLR_BYTES, 0},
                                         {"resident", "RSS", MLR_BYTES, 0},
                                         {"peak_error", "peaks low by", MLR_BYTES, 1},
                                         {"mark", "mark", MLR_COUNT, 1},
                                         {"version", "version", MLR_TEXT, 0},
                                         {"arguments", "arguments", MLR_TEXT, 0},
                                         {"labels", "labels", MLR_TEXT, 0}};
static void run_table(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_run, run_columns, COLUMNS(run_columns));
    mlr_cell *row = mlr_row_add(b, t, 0);
    row[0].text = p->program;
    row[1].number = p->pid;
    row[2].text = p->host;
    row[3].text = p->started_at;
    row[4].number = p->uptime_ns;
    row[5].number = p->ended != 0;
    row[6].number = p->own_bytes;
    row[7].number = p->resident;
    row[8].number = p->total.peak_error;
    row[9].number = p->mark;
    row[10].text = p->version;
    row[11].text = p->arguments;
    row[12].text = p->labels;
}

static const mlr_column device_columns[] = {
    {"live", "live", MLR_BYTES, 0},           {"peak", "peak", MLR_BYTES, 0},
    {"blocks", "blocks", MLR_COUNT, 0},       {"allocs", "allocs", MLR_COUNT, 0},
    {"frees", "frees", MLR_COUNT, 0},         {"allocated", "allocated", MLR_BYTES, 0},
    {"reallocs", "reallocs", MLR_COUNT, 1},   {"pending", "pending", MLR_BYTES, 1},
    {"mean", "mean alloc", MLR_BYTES, 1},     {"oom_attempts", "found none", MLR_COUNT, 1},
    {"oom_failures", "failed", MLR_COUNT, 1}, {"peak_at", "peak at", MLR_SINCE, 1},
    {"device", "device", MLR_TEXT, 0},        {"label", "label", MLR_TEXT, 0}};
static void device_cells(mlr_cell *row, const mlr_stats *s) {
    row[0].number = s->allocated;
    row[1].number = s->peak;
    row[2].number = s->live_blocks;
    row[3].number = s->allocs;
    row[4].number = s->frees;
    row[5].number = s->total_allocated;
    row[6].number = s->reallocs;
    row[7].number = s->pending;
    if (s->allocs) row[8].number = s->total_allocated / s->allocs;
    row[9].number = s->oom_attempts;
    row[10].number = s->oom_failures;
}
static void devices_table(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_devices, device_columns, COLUMNS(device_columns));
    mlr_ranked *list = ranked(b, p->device_count);
    uint32_t i, n = 0;
    if (!list) return;
    for (i = 1; i <= p->device_count; i++) {
        const mlr_stats *s = &p->device[i - 1].stats;
        if (!b->device_in[i]) continue;
        list[n].key = s->peak > s->allocated ? s->peak : s->allocated;
        list[n++].number = i;
    }
    mlr_rank(list, n);
    for (i = 0; i < n; i++) {
        const mlr_device *d = &p->device[list[i].number - 1];
        mlr_cell *row = row_or_more(b, t, b->device_live[list[i].number]);
        if (!row) continue;
        if (!b->narrow) device_cells(row, &d->stats);
        if (!b->narrow && d->peak_time_ns) row[11].number = d->peak_time_ns;
        row[0].number = b->device_live[list[i].number];
        row[2].number = b->device_blocks[list[i].number];
        row[12].text = d->name;
        row[13].text = d->label;
    }
    if (n < 2 || b->narrow || b->options.device) return;
    device_cells(mlr_row_add(b, t, 0), &p->total);
    t->cell[(size_t)(t->rows - 1) * t->columns + 12].text = "all";
    t->cell[(size_t)(t->rows - 1) * t->columns + 13].text = "peaks added up";
}

static const mlr_column size_columns[] = {{"blocks", "blocks", MLR_COUNT, 0},
                                          {"from", "from", MLR_BYTES, 0},
                                          {"below", "to below", MLR_BYTES, 0},
                                          {"device", "device", MLR_TEXT, 0}};
static const mlr_column lifetime_columns[] = {{"under_100ms", "under 0.1 s", MLR_COUNT, 0},
                                              {"under_1s", "under 1 s", MLR_COUNT, 0},
                                              {"under_10s", "under 10 s", MLR_COUNT, 0},
                                              {"longer", "longer", MLR_COUNT, 0},
                                              {"device", "device", MLR_TEXT, 0}};
static void sizes_tables(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_sizes, size_columns, COLUMNS(size_columns));
    mlr_table *lives =
        mlr_table_begin(b, MLR_TABLE_lifetimes, lifetime_columns, COLUMNS(lifetime_columns));
    uint32_t i, k;
    for (i = 1; i <= p->device_count && !b->narrow; i++) {
        const mlr_device *d = &p->device[i - 1];
        mlr_cell *row;
        if (!b->device_in[i]) continue;
        for (k = 0; k < MLR_SIZES; k++) {
            if (!d->sizes.blocks[k]) continue;
            row = mlr_row_add(b, t, 0);
            row[0].number = d->sizes.blocks[k];
            row[1].number = k ? UINT64_C(1) << (k - 1) : 0;
            row[2].number = UINT64_C(1) << k;
            row[3].text = device_cell(b, i);
        }
        if (!d->has_lifetimes) continue;
        row = mlr_row_add(b, lives, 0);
        for (k = 0; k < 4; k++) row[k].number = d->lifetime[k];
        row[4].text = device_cell(b, i);
    }
}

static const mlr_column scope_columns[] = {{"count", "count", MLR_COUNT, 0},
                                           {"bytes", "change in all", MLR_CHANGE, 0},
                                           {"mean", "mean change", MLR_CHANGE, 1},
                                           {"peak", "peak inside", MLR_BYTES, 0},
                                           {"live", "live", MLR_BYTES, 0},
                                           {"ns", "time in all", MLR_DURATION, 0},
                                           {"mean_ns", "mean time", MLR_DURATION, 1},
                                           {"device_ns", "on the device", MLR_DURATION, 1},
                                           {"running", "running", MLR_COUNT, 1},
                                           {"path", "scope", MLR_TEXT, 0}};
static void scopes_table(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_scopes, scope_columns, COLUMNS(scope_columns));
    mlr_ranked *list = ranked(b, p->scope_count);
    uint32_t i;
    if (!list || b->narrow) return;
    for (i = 0; i < p->scope_count; i++) {
        const mlr_scope *s = &p->scope[i];
        list[i].key = s->live > s->peak ? s->live : s->peak;
        list[i].number = i;
    }
    mlr_rank(list, p->scope_count);
    for (i = 0; i < p->scope_count; i++) {
        const mlr_scope *s = &p->scope[list[i].number];
        mlr_cell *row = row_or_more(b, t, s->live);
        if (!row) continue;
        row[0].number = s->count;
        row[1].number = (uint64_t)s->bytes;
        if (s->count) row[2].number = (uint64_t)(s->bytes / (int64_t)s->count);
        row[3].number = s->peak;
        row[4].number = s->live;
        row[5].number = s->ns;
        if (s->count) row[6].number = s->ns / s->count;
        if (s->device_ns) row[7].number = s->device_ns;
        row[8].number = s->running;
        row[9].text = s->path;
    }
}

static const mlr_column account_columns[] = {
    {"bytes", "bytes", MLR_BYTES, 0}, {"peak", "peak", MLR_BYTES, 0},
    {"limit", "limit", MLR_BYTES, 0}, {"refused", "refused", MLR_COUNT, 0},
    {"name", "account", MLR_TEXT, 0}, {"device", "device", MLR_TEXT, 0}};
static const mlr_column stream_columns[] = {{"bytes", "bytes", MLR_BYTES, 0},
                                            {"blocks", "blocks", MLR_COUNT, 0},
                                            {"stream", "stream", MLR_ADDRESS, 0},
                                            {"device", "device", MLR_TEXT, 0}};
static const mlr_column transfer_columns[] = {
    {"moves", "moves", MLR_COUNT, 0},   {"moved", "moved", MLR_BYTES, 0},
    {"copies", "copies", MLR_COUNT, 0}, {"copied", "copied", MLR_BYTES, 0},
    {"from", "from", MLR_TEXT, 0},      {"to", "to", MLR_TEXT, 0}};
static const mlr_column thread_columns[] = {{"id", "thread", MLR_COUNT, 0},
                                            {"allocs", "allocs", MLR_COUNT, 0},
                                            {"frees", "frees", MLR_COUNT, 0},
                                            {"allocated", "allocated", MLR_BYTES, 0},
                                            {"freed", "freed", MLR_BYTES, 0}};
static void small_tables(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t =
        mlr_table_begin(b, MLR_TABLE_accounts, account_columns, COLUMNS(account_columns));
    mlr_cell *row;
    uint32_t i;
    for (i = 0; i < p->account_count; i++) {
        const mlr_account *a = &p->account[i];
        if ((row = row_or_more(b, t, a->bytes)) == NULL) continue;
        row[0].number = a->bytes;
        row[1].number = a->peak;
        if (a->limit < UINT64_MAX - 1 && a->limit) row[2].number = a->limit;
        row[3].number = a->refused;
        row[4].text = a->name;
        row[5].text = a->device;
    }
    t = mlr_table_begin(b, MLR_TABLE_streams, stream_columns, COLUMNS(stream_columns));
    for (i = 0; i < p->stream_count; i++) {
        const mlr_stream *s = &p->stream[i];
        if (!b->device_in[s->device] || (row = row_or_more(b, t, s->bytes)) == NULL) continue;
        row[0].number = s->bytes;
        row[1].number = s->blocks;
        row[2].number = s->stream;
        row[3].text = mlr_device_name(p, s->device);
    }
    t = mlr_table_begin(b, MLR_TABLE_transfers, transfer_columns, COLUMNS(transfer_columns));
    for (i = 0; i < p->transfer_count; i++) {
        const mlr_transfer *x = &p->transfer[i];
        if ((row = row_or_more(b, t, x->moved_bytes)) == NULL) continue;
        row[0].number = x->moves;
        row[1].number = x->moved_bytes;
        row[2].number = x->copies;
        row[3].number = x->copied_bytes;
        row[4].text = mlr_device_name(p, x->from);
        row[5].text = mlr_device_name(p, x->to);
    }
    t = mlr_table_begin(b, MLR_TABLE_threads, thread_columns, COLUMNS(thread_columns));
    for (i = 0; i < p->thread_count; i++) {
        const mlr_thread *x = &p->thread[i];
        if ((row = row_or_more(b, t, x->alloc_bytes)) == NULL) continue;
        row[0].number = x->id;
        row[1].number = x->allocs;
        row[2].number = x->frees;
        row[3].number = x->alloc_bytes;
        row[4].number = x->free_bytes;
    }
}

static const mlr_column block_columns[] = {
    {"bytes", "bytes", MLR_BYTES, 0}, {"count", "blocks", MLR_COUNT, 0},
    {"age", "age", MLR_DURATION, 0},  {"storage", "storage", MLR_ADDRESS, 1},
    {"place", "place", MLR_TEXT, 0},  {"tag", "tag", MLR_TEXT, 0},
    {"name", "name", MLR_TEXT, 0},    {"shape", "shape", MLR_TEXT, 0},
    {"scope", "scope", MLR_TEXT, 1},  {"state", "state", MLR_TEXT, 0},
    {"device", "device", MLR_TEXT, 0}};
static uint32_t block_frame(const mlr_build *b, const mlr_block *at) {
    const uint32_t place = at->stack  ? b->stack_place[at->stack]
                           : at->site ? b->site_place[at->site]
                                      : 0;
    if (place) return b->place[place - 1].frame;
    return at->site ? b->profile->site[at->site - 1].frame : 0;
}
/* Blocks that look the same in all but their addresses and ages are one row. */
static int same_block(const mlr_build *b, const mlr_block *x, const mlr_block *y) {
    return x->bytes == y->bytes && x->device == y->device && x->tag == y->tag &&
           block_frame(b, x) == block_frame(b, y) && x->name == y->name && x->shape == y->shape &&
           x->scope == y->scope && x->pending == y->pending && !x->parts && !y->parts &&
           !*x->name && !*y->name;
}
static int block_in(const mlr_build *b, const mlr_block *at) {
    mlr_group g = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    g.device = at->device;
    g.tag = at->tag;
    g.site = at->site;
    g.stack = at->stack;
    return mlr_group_in(b, &g);
}
static void block_cells(mlr_build *b, mlr_cell *row, const mlr_block *at, uint64_t count) {
    const mlr_profile *p = b->profile;
    const uint32_t frame = block_frame(b, at);
    row[0].number = at->bytes;
    row[1].number = count;
    if (at->born_ns != MLR_UNKNOWN) row[2].number = mlr_less(p->uptime_ns, at->born_ns);
    row[3].number = at->storage;
    row[4].text = frame ? mlr_place_name(b, frame) : "";
    row[5].text = at->tag ? mlr_tag_name(p, at->tag) : "";
    row[6].text = at->name;
    row[7].text = *at->dtype ? mlr_text_make(b, "%n%s", at->dtype, at->shape) : at->shape;
    row[8].text = at->scope ? p->scope[at->scope - 1].path : "";
    row[9].text = at->pending ? "pending" : "";
    row[10].text = device_cell(b, at->device);
}
static void blocks_table(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_blocks, block_columns, COLUMNS(block_columns));
    mlr_ranked *list = ranked(b, p->block_count);
    uint32_t i, k, n = 0;
    if (!list) return;
    for (i = 0; i < p->block_count; i++) {
        if (!block_in(b, &p->block[i])) continue;
        list[n].key = p->block[i].bytes;
        list[n++].number = i;
    }
    mlr_rank(list, n);
    for (i = 0; i < n && t->rows < b->top; i = k) {
        const mlr_block *at = &p->block[list[i].number];
        for (k = i + 1; k < n && same_block(b, at, &p->block[list[k].number]);) k++;
        block_cells(b, mlr_row_add(b, t, block_frame(b, at)), at, k - i);
    }
    for (; i < n; i++, t->more++) t->more_bytes += list[i].key;
    if (b->narrow || b->options.device || p->blocks_of <= p->block_count) return;
    t->more += p->blocks_of - p->block_count;
    t->more_bytes = MLR_UNKNOWN;
}

static const mlr_column module_columns[] = {{"build_id", "build id", MLR_TEXT, 0},
                                            {"path", "module", MLR_TEXT, 0}};
static void modules_table(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_modules, module_columns, 2);
    uint32_t i;
    for (i = 0; i < p->module_count; i++) {
        mlr_cell *row = row_or_more(b, t, 0);
        if (!row) continue;
        row[0].text = p->module[i].build_id;
        row[1].text = p->module[i].path;
    }
    t->more_bytes = MLR_UNKNOWN;
}

MLR_PRIVATE void mlr_lists_answer(mlr_build *b) {
    run_table(b);
    devices_table(b);
    sizes_tables(b);
    scopes_table(b);
    small_tables(b);
    blocks_table(b);
    modules_table(b);
}
