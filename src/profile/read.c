#include "profile/read.h"
#include "profile/arena.h"
#include "profile/fields.h"
#include "profile/older.h"
#include "profile/places.h"
#include "profile/scale.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA_NEWEST = 3 };
#define ARENA_FREE     ((uint64_t)64 << 20) /* what any text may take, besides */
#define ARENA_PER_BYTE 32u                  /* this for each of its bytes */

/* -- what the profile gives to others -- */

MLR_PRIVATE void *mlr_profile_alloc(mlr_profile *profile, size_t count, size_t size) {
    return mlr_arena_alloc(profile->arena, count, size);
}
MLR_PRIVATE const char *mlr_profile_text(mlr_profile *profile, const char *text, size_t size) {
    char *copy = (char *)mlr_arena_alloc(profile->arena, size + 1, 1);
    return copy && size ? (const char *)memcpy(copy, text, size) : copy;
}
MLR_PRIVATE const mlr_function *mlr_frame_shown(const mlr_profile *profile, uint32_t frame) {
    static const mlr_function none = {"", "", 0, 0};
    const mlr_frame *f = frame ? &profile->frame[frame - 1] : NULL;
    return f ? &f->function[f->shown] : &none;
}
MLR_PRIVATE void mlr_profile_free(mlr_profile *profile) {
    if (profile) mlr_arena_free(profile->arena);
}

/* -- the run -- */

/* Returns the moment of "2026-11-29T20:24:45.311Z" in ns since 1970; 0 if the text is no time. */
static uint64_t time_of(const char *text) {
    unsigned year, month, day, hour, minute, second, ms = 0;
    uint64_t days;
    if (sscanf(text, "%4u-%2u-%2uT%2u:%2u:%2u.%3u", &year, &month, &day, &hour, &minute, &second,
               &ms) < 6 ||
        year < 1970 || year > 2500 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 ||
        minute > 59 || second > 60)
        return 0;
    year -= month < 3; /* years that begin in March */
    month = (month + 9) % 12;
    days = year * 365ull + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    return (((days - 719468) * 24 + hour) * 3600 + minute * 60 + second) * 1000000000u +
           ms * 1000000ull;
}

static const mlr_field metadata_fields[] = {
    MLR_FIELD(mlr_profile, TEXT, program, "program"),
    MLR_FIELD(mlr_profile, TEXT, host, "host"),
    MLR_FIELD(mlr_profile, TEXT, arguments, "arguments"),
    MLR_FIELD(mlr_profile, TEXT, labels, "labels"),
    MLR_FIELD(mlr_profile, TEXT, generated_at, "generated_at"),
    MLR_FIELD(mlr_profile, TEXT, started_at, "started_at"),
    MLR_FIELD(mlr_profile, U64, pid, "pid"),
    MLR_FIELD(mlr_profile, U64, uptime_ns, "uptime_ns"),
    MLR_FIELD(mlr_profile, U64, mark, "mark"),
    MLR_FIELD(mlr_profile, U64, own_bytes, "own_bytes"),
    MLR_FIELD(mlr_profile, KNOWN, resident, "resident"),
    MLR_FIELD(mlr_profile, U64, inherited_bytes, "inherited_bytes"),
    MLR_FIELD(mlr_profile, U64, inherited_blocks, "inherited_blocks"),
    MLR_FIELD(mlr_profile, U64, sample_bytes, "stack_sample_bytes"),
    MLR_FIELD(mlr_profile, U32, stack_depth, "stack_depth"),
    MLR_FIELD(mlr_profile, U64, stacks_cut, "stacks_cut"),
    MLR_FIELD(mlr_profile, FLAG, ended, "ended"),
    MLR_FIELD(mlr_profile, FLAG, has_sites, "sites_enabled"),
    MLR_FIELD(mlr_profile, FLAG, has_events, "events_enabled"),
    MLR_FIELD(mlr_profile, FLAG, has_scopes, "operation_tracking_enabled")};
static const mlr_field stats_fields[] = {
#define MLR_X(name) MLR_FIELD(mlr_stats, U64, name, #name),
    MLR_STATS(MLR_X)
#undef MLR_X
};

static void stats_read(mlr_reader *r, const mlr_json *object, mlr_stats *stats) {
    mlr_fields_read(r, object, stats_fields, MLR_COUNT(stats_fields), stats);
    /* the ledger knows no piece of 0 bytes: where it is missing, the pool did not tell */
    if (!stats->largest_free) stats->largest_free = MLR_UNKNOWN;
}
static void metadata_read(mlr_reader *r) {
    mlr_profile *p = r->profile;
    const mlr_json *object = mlr_json_get(r->root, "metadata");
    const mlr_json *dropped = mlr_json_get(object, "dropped");
    mlr_fields_read(r, object, metadata_fields, MLR_COUNT(metadata_fields), p);
    p->version = mlr_reader_text(r, mlr_json_get(r->root, "version"));
    p->started_unix_ns = time_of(p->started_at);
    stats_read(r, mlr_json_get(r->root, "total"), &p->total);
    p->lost_sites = p->total.dropped_sites;
    p->lost_tags = mlr_reader_u64(r, mlr_json_get(dropped, "tags"));
    p->lost_allocs = p->total.dropped_allocs;
    p->lost_events = mlr_reader_u64(r, mlr_json_get(dropped, "events"));
    p->lost_scopes = mlr_reader_u64(r, mlr_json_get(dropped, "scopes"));
    p->lost_runs = mlr_reader_u64(r, mlr_json_get(dropped, "scope_invocations"));
    p->lost_snapshots = mlr_reader_u64(r, mlr_json_get(dropped, "snapshots"));
    p->lost_exports = mlr_reader_u64(r, mlr_json_get(dropped, "exports"));
    p->events_capacity =
        mlr_reader_u64(r, mlr_json_get(mlr_json_get(r->root, "events"), "capacity"));
}

/* -- devices and their memory -- */

static const mlr_field oom_fields[] = {
    MLR_FIELD(mlr_oom, KNOWN, time_ns, "time_ns"), MLR_FIELD(mlr_oom, U64, bytes, "bytes"),
    MLR_FIELD(mlr_oom, U64, live, "live"), MLR_FIELD(mlr_oom, U64, used, "used"),
    MLR_FIELD(mlr_oom, FRAME, frame, "frame")};

/* Reads [n,n,n,n] or {"under_100ms":n,...}. */
static void lifetimes_read(mlr_reader *r, const mlr_json *list, mlr_device *d) {
    const mlr_json *item;
    size_t i = 0;
    MLR_JSON_EACH(item, list) {
        if (i < 4) d->lifetime[i++] = mlr_reader_u64(r, item);
    }
    d->has_lifetimes = i > 0;
}
static void device_read(mlr_reader *r, const mlr_json *item) {
    const uint32_t row = mlr_reader_device(r, mlr_json_get(item, "device"));
    mlr_device *d;
    if (r->result != MLR_OK) return;
    d = &r->profile->device[row - 1];
    d->label = mlr_reader_text(r, mlr_json_get(item, "label"));
    d->arena = mlr_reader_u64(r, mlr_json_get(item, "arena"));
    d->arena_untagged = mlr_reader_u64(r, mlr_json_get(item, "arena_untagged"));
    stats_read(r, mlr_json_get(item, "stats"), &d->stats);
    mlr_reader_sizes(r, mlr_json_get(item, "sizes"), &d->sizes);
    lifetimes_read(r, mlr_json_get(item, "lifetimes"), d);
}
static void devices_read(mlr_reader *r) {
    const mlr_json *item, *list = mlr_json_get(r->root, "devices");
    MLR_JSON_EACH(item, list) { device_read(r, item); }
}
/* Reads the last attempts that found no memory, when the frames are read. */
static void ooms_read(mlr_reader *r) {
    const mlr_json *item, *list = mlr_json_get(r->root, "devices");
    MLR_JSON_EACH(item, list) {
        const mlr_json *oom = mlr_json_get(item, "last_oom");
        mlr_device *d;
        if (!oom || oom->kind != MLR_JSON_OBJECT || r->result != MLR_OK) continue;
        d = &r->profile->device[mlr_reader_device(r, mlr_json_get(item, "device")) - 1];
        mlr_fields_read(r, oom, oom_fields, MLR_COUNT(oom_fields), &d->oom);
        if (!d->oom.frame) d->oom.frame = mlr_places_frame(r, mlr_json_get(oom, "site"));
    }
}

static const mlr_field capacity_fields[] = {
    MLR_FIELD(mlr_capacity, TEXT, device, "device"),
    MLR_FIELD(mlr_capacity, KNOWN, total, "total"),
    MLR_FIELD(mlr_capacity, KNOWN, used, "used"),
    MLR_FIELD(mlr_capacity, KNOWN, free, "free"),
    MLR_FIELD(mlr_capacity, KNOWN, self, "self"),
    MLR_FIELD(mlr_capacity, KNOWN, untagged, "untagged"),
    MLR_FIELD(mlr_capacity, KNOWN, context, "context"),
    MLR_FIELD(mlr_capacity, KNOWN, neighbours, "neighbours"),
    MLR_FIELD(mlr_capacity, KNOWN, process, "process"),
    MLR_FIELD(mlr_capacity, KNOWN, others, "others"),
    MLR_FIELD(mlr_capacity, KNOWN, age_ns, "age_ns"),
    MLR_FIELD(mlr_capacity, KNOWN, limit, "limit"),
    MLR_FIELD(mlr_capacity, KNOWN, held, "held"),
    MLR_FIELD(mlr_capacity, KNOWN, not_resident, "not_resident"),
    MLR_FIELD(mlr_capacity, CHANGE, unaccounted, "unaccounted")};
static const mlr_field process_fields[] = {MLR_FIELD(mlr_process, U64, pid, "pid"),
                                           MLR_FIELD(mlr_process, U64, bytes, "bytes"),
                                           MLR_FIELD(mlr_process, TEXT, name, "name")};

static void capacity_read(mlr_reader *r) {
    mlr_profile *p = r->profile;
    const mlr_json *list = mlr_json_get(r->root, "capacity"), *item = mlr_json_first(list), *name;
    const mlr_rows rows = mlr_rows_read(r, "capacity", list, capacity_fields,
                                        MLR_COUNT(capacity_fields), sizeof(mlr_capacity));
    mlr_capacity *c = (mlr_capacity *)rows.list;
    p->capacity = c;
    p->capacity_count = rows.count;
    for (; item && r->result == MLR_OK; item = mlr_json_after(list, item), c++) {
        const mlr_rows processes =
            mlr_rows_read(r, "other_processes", mlr_json_get(item, "other_processes"),
                          process_fields, MLR_COUNT(process_fields), sizeof(mlr_process));
        const mlr_json *names = mlr_json_get(item, "devices");
        c->process_list = (mlr_process *)processes.list;
        c->processes = processes.count;
        MLR_JSON_EACH(name, names) {
            const uint32_t device = mlr_reader_device(r, name);
            if (r->result == MLR_OK)
                p->device[device - 1].capacity = (uint32_t)(c - p->capacity) + 1;
        }
    }
}

static const mlr_field account_fields[] = {
    MLR_FIELD(mlr_account, TEXT, name, "name"),  MLR_FIELD(mlr_account, TEXT, device, "device"),
    MLR_FIELD(mlr_account, U64, bytes, "bytes"), MLR_FIELD(mlr_account, U64, peak, "peak"),
    MLR_FIELD(mlr_account, U64, limit, "limit"), MLR_FIELD(mlr_account, U64, refused, "refused")};
static const mlr_field stream_fields[] = {
    MLR_FIELD(mlr_stream, DEVICE, device, "device"), MLR_FIELD(mlr_stream, HEX, stream, "stream"),
    MLR_FIELD(mlr_stream, U64, bytes, "bytes"), MLR_FIELD(mlr_stream, U64, blocks, "blocks")};
static const mlr_field tag_fields[] = {MLR_FIELD(mlr_tag, TEXT, name, "tag"),
                                       MLR_FIELD(mlr_tag, DEVICE, device, "device"),
                                       MLR_FIELD(mlr_tag, U64, live, "allocated"),
                                       MLR_FIELD(mlr_tag, U64, peak, "peak"),
                                       MLR_FIELD(mlr_tag, U64, peak_error, "peak_error"),
                                       MLR_FIELD(mlr_tag, U64, blocks, "blocks"),
                                       MLR_FIELD(mlr_tag, U64, expected, "expected"),
                                       MLR_FIELD(mlr_tag, I64, variance, "variance")};
static const mlr_field thread_fields[] = {
    MLR_FIELD(mlr_thread, U64, id, "id"), MLR_FIELD(mlr_thread, U64, allocs, "allocs"),
    MLR_FIELD(mlr_thread, U64, frees, "frees"),
    MLR_FIELD(mlr_thread, U64, alloc_bytes, "bytes_allocated"),
    MLR_FIELD(mlr_thread, U64, free_bytes, "bytes_freed")};

/* Reads a list of the profile, `member` and its count, from the array `from`. */
#define READ_ROWS(r, member, type, key, from, fields)                                              \
    do {                                                                                           \
        const mlr_rows rows_ =                                                                     \
            mlr_rows_read(r, key, from, fields, MLR_COUNT(fields), sizeof(type));                  \
        (r)->profile->member = (type *)rows_.list;                                                 \
        (r)->profile->member##_count = rows_.count;                                                \
    } while (0)

/* Returns the list at a key or, in an object there, at a key of it. */
static const mlr_json *list_at(const mlr_reader *r, const char *key, const char *within) {
    const mlr_json *list = mlr_json_get(r->root, key);
    return list && list->kind == MLR_JSON_OBJECT ? mlr_json_get(list, within) : list;
}
static void small_lists_read(mlr_reader *r) {
    mlr_profile *p = r->profile;
    const mlr_json *open = mlr_json_get(mlr_json_get(r->root, "accounts"), "open");
    READ_ROWS(r, account, mlr_account, "accounts", list_at(r, "accounts", "largest"),
              account_fields);
    p->accounts_open =
        open ? mlr_reader_u64(r, open)
             : p->account_count + mlr_reader_u64(r, mlr_json_get(r->root, "accounts_more"));
    READ_ROWS(r, stream, mlr_stream, "streams", list_at(r, "streams", "largest"), stream_fields);
    READ_ROWS(r, tag, mlr_tag, "tags", mlr_json_get(r->root, "tags"), tag_fields);
    READ_ROWS(r, thread, mlr_thread, "threads", mlr_json_get(r->root, "threads"), thread_fields);
}

/* -- places, sites and stacks of memlord/3 -- */

static const mlr_field site_fields[] = {MLR_FIELD(mlr_site, FRAME, frame, "frame"),
                                        MLR_FIELD(mlr_site, DEVICE, device, "device"),
                                        MLR_FIELD(mlr_site, U64, live, "live_bytes"),
                                        MLR_FIELD(mlr_site, U64, peak, "peak_bytes"),
                                        MLR_FIELD(mlr_site, U64, peak_error, "peak_error"),
                                        MLR_FIELD(mlr_site, U64, allocs, "allocs"),
                                        MLR_FIELD(mlr_site, U64, alloc_bytes, "alloc_bytes"),
                                        MLR_FIELD(mlr_site, U64, frees, "frees"),
                                        MLR_FIELD(mlr_site, U64, free_bytes, "free_bytes")};
static const mlr_field stack_fields[] = {MLR_FIELD(mlr_stack, NODE, node, "node"),
                                         MLR_FIELD(mlr_stack, DEVICE, device, "device"),
                                         MLR_FIELD(mlr_stack, SITE, site, "site"),
                                         MLR_FIELD(mlr_stack, U64, allocs, "allocs"),
                                         MLR_FIELD(mlr_stack, U64, alloc_bytes, "alloc_bytes"),
                                         MLR_FIELD(mlr_stack, U64, live, "live_bytes"),
                                         MLR_FIELD(mlr_stack, U64, peak, "peak_bytes"),
                                         MLR_FIELD(mlr_stack, U64, at_peak, "at_peak_bytes"),
                                         MLR_FIELD(mlr_stack, U64, samples, "samples"),
                                         MLR_FIELD(mlr_stack, U64, error, "error_bytes"),
                                         MLR_FIELD(mlr_stack, U64, temporaries, "temporaries")};

static void sites_read(mlr_reader *r) {
    const mlr_json *list = mlr_json_get(r->root, "sites"), *item;
    mlr_site *site;
    READ_ROWS(r, site, mlr_site, "sites", list, site_fields);
    site = r->profile->site;
    if (r->result != MLR_OK) return;
    MLR_JSON_EACH(item, list) {
        const mlr_json *sizes = mlr_json_get(item, "sizes");
        if (sizes) site->sizes = (mlr_sizes *)mlr_reader_alloc(r, 1, sizeof *site->sizes);
        if (site->sizes) mlr_reader_sizes(r, sizes, site->sizes);
        site++;
    }
}
static void nodes_read(mlr_reader *r) {
    mlr_profile *p = r->profile;
    const mlr_json *list = mlr_json_get(r->root, "nodes"), *item;
    if (!list || !list->size) return;
    p->node = (mlr_node *)mlr_reader_alloc(r, list->size, sizeof *p->node);
    MLR_JSON_EACH(item, list) {
        const mlr_json *caller = mlr_json_first(item);
        mlr_node *node = &p->node[p->node_count];
        if (r->result != MLR_OK) return;
        node->caller = mlr_reader_row(r, caller, p->node_count, "caller");
        node->frame = mlr_reader_row(r, caller ? mlr_json_after(item, caller) : NULL,
                                     p->frame_count, "frame");
        p->node_count++;
    }
}
static void places_read(mlr_reader *r) {
    mlr_rows rows;
    mlr_places_modules(r, mlr_json_get(r->root, "modules"));
    mlr_places_frames(r, mlr_json_get(r->root, "frames"));
    sites_read(r);
    nodes_read(r);
    if (r->result != MLR_OK) return;
    rows = mlr_columns_read(r, "stacks", mlr_json_get(r->root, "stacks"), stack_fields,
                            MLR_COUNT(stack_fields), sizeof(mlr_stack));
    r->profile->stack = (mlr_stack *)rows.list;
    r->profile->stack_count = rows.count;
}

/* -- scopes -- */

static const mlr_field scope_fields[] = {MLR_FIELD(mlr_scope, TEXT, name, "name"),
                                         MLR_FIELD(mlr_scope, TEXT, path, "path"),
                                         MLR_FIELD(mlr_scope, U32, parent, "parent"),
                                         MLR_FIELD(mlr_scope, FRAME, frame, "frame"),
                                         MLR_FIELD(mlr_scope, U64, count, "count"),
                                         MLR_FIELD(mlr_scope, U64, running, "running"),
                                         MLR_FIELD(mlr_scope, U64, peak, "peak_bytes"),
                                         MLR_FIELD(mlr_scope, U64, device_ns, "device_time_ns"),
                                         MLR_FIELD(mlr_scope, U64, live, "live_bytes"),
                                         MLR_FIELD(mlr_scope, U64, live_blocks, "live_blocks")};

/* Reads [total,min,max] or {"total":n,"min":n,"max":n}. */
static void three_read(mlr_reader *r, const mlr_json *list, int64_t *three) {
    static const char *const keys[] = {"total", "min", "max"};
    const mlr_json *item = list && list->kind == MLR_JSON_ARRAY ? mlr_json_first(list) : NULL;
    size_t i;
    for (i = 0; i < 3; i++) {
        three[i] = mlr_reader_i64(r, item ? item : mlr_json_get(list, keys[i]));
        item = item ? mlr_json_after(list, item) : NULL;
    }
}
static uint64_t above_0(int64_t v) { return v > 0 ? (uint64_t)v : 0; }
static void scope_numbers(mlr_reader *r, const mlr_json *item, mlr_scope *s) {
    int64_t three[3];
    three_read(r, mlr_json_get(item, "delta_bytes"), three);
    s->bytes = three[0];
    s->bytes_min = three[1];
    s->bytes_max = three[2];
    three_read(r, mlr_json_get(item, "delta_blocks"), three);
    s->blocks = three[0];
    s->blocks_min = three[1];
    s->blocks_max = three[2];
    three_read(r, mlr_json_get(item, "time_ns"), three);
    s->ns = above_0(three[0]);
    s->ns_min = above_0(three[1]);
    s->ns_max = above_0(three[2]);
}
static void scope_devices(mlr_reader *r, const mlr_json *list, mlr_scope *s) {
    const mlr_json *item;
    if (!mlr_json_first(list)) return;
    MLR_JSON_EACH(item, list)(void) mlr_reader_device(r, item - 1);
    if (r->result == MLR_OK)
        s->device_bytes =
            (int64_t *)mlr_reader_alloc(r, r->profile->device_count, sizeof *s->device_bytes);
    if (!s->device_bytes) return;
    MLR_JSON_EACH(item, list)
    s->device_bytes[mlr_reader_device(r, item - 1) - 1] = mlr_reader_i64(r, item);
}
/* Reads [start_ns,duration_ns,thread,delta_bytes,delta_blocks,pre,post,peak,shapes]. */
static void run_read(mlr_reader *r, const mlr_json *list, mlr_run *run) {
    int64_t number[8] = {0};
    const mlr_json *item = list->kind == MLR_JSON_ARRAY ? mlr_json_first(list) : NULL;
    size_t i;
    for (i = 0; i < 8; i++) {
        number[i] = mlr_reader_i64(r, item);
        item = item ? mlr_json_after(list, item) : NULL;
    }
    run->start_ns = above_0(number[0]);
    run->ns = above_0(number[1]);
    run->thread = number[2] > 0 && number[2] < UINT32_MAX ? (uint32_t)number[2] : 0;
    run->bytes = number[3];
    run->blocks = number[4];
    run->before = number[5];
    run->after = number[6];
    run->peak = number[7];
    run->shapes = mlr_reader_text(r, item);
}
static void scope_runs(mlr_reader *r, const mlr_json *list, mlr_scope *s) {
    const mlr_json *item;
    if (!mlr_json_first(list)) return;
    s->run = (mlr_run *)mlr_reader_alloc(r, list->size, sizeof *s->run);
    if (!s->run) return;
    MLR_JSON_EACH(item, list) run_read(r, item, &s->run[s->runs++]);
}
static void scopes_read(mlr_reader *r) {
    const mlr_json *list = mlr_json_get(r->root, "scopes"), *item;
    mlr_scope *s;
    READ_ROWS(r, scope, mlr_scope, "scopes", list, scope_fields);
    s = r->profile->scope;
    MLR_JSON_EACH(item, list) {
        const uint32_t number = (uint32_t)(s - r->profile->scope) + 1;
        if (s && s->parent >= number)
            mlr_reader_fail(r, MLR_E_INVALID, "has scope %lu in scope %lu", (unsigned long)number,
                            (unsigned long)s->parent);
        if (r->result != MLR_OK) return;
        scope_numbers(r, item, s);
        scope_devices(r, mlr_json_get(item, "devices"), s);
        scope_runs(r, mlr_json_get(item, "invocations"), s);
        s++;
    }
}

/* -- groups and blocks of memlord/3 -- */

static const mlr_field sampled_fields[] = {
    MLR_FIELD(mlr_sampled, DEVICE, of.device, "device"),
    MLR_FIELD(mlr_sampled, TAG, of.tag, "tag"),
    MLR_FIELD(mlr_sampled, SCOPE, of.scope, "scope"),
    MLR_FIELD(mlr_sampled, SITE, of.site, "site"),
    MLR_FIELD(mlr_sampled, STACK, of.stack, "stack"),
    MLR_FIELD(mlr_sampled, FLAG, of.arena, "arena"),
    MLR_FIELD(mlr_sampled, U64, of.blocks, "blocks"),
    MLR_FIELD(mlr_sampled, U64, of.bytes, "bytes"),
    MLR_FIELD(mlr_sampled, U64, of.pending, "pending"),
    MLR_FIELD(mlr_sampled, KNOWN, of.oldest_ns, "oldest_ns"),
    MLR_FIELD(mlr_sampled, KNOWN, of.youngest_ns, "youngest_ns"),
    MLR_FIELD(mlr_sampled, U64, of.marked_blocks, "marked_blocks"),
    MLR_FIELD(mlr_sampled, U64, of.marked_bytes, "marked_bytes"),
    MLR_FIELD(mlr_sampled, U64, blocks, "sampled_blocks"),
    MLR_FIELD(mlr_sampled, U64, bytes, "sampled_bytes")};
static const mlr_field block_fields[] = {
    MLR_FIELD(mlr_block, DEVICE, device, "device"),
    MLR_FIELD(mlr_block, TAG, tag, "tag"),
    MLR_FIELD(mlr_block, SCOPE, scope, "scope"),
    MLR_FIELD(mlr_block, SITE, site, "site"),
    MLR_FIELD(mlr_block, STACK, stack, "stack"),
    MLR_FIELD(mlr_block, KNOWN, born_ns, "born_ns"),
    MLR_FIELD(mlr_block, FLAG, requires_grad, "requires_grad")};
/* These are in every schema. */
static const mlr_field block_plain_fields[] = {
    MLR_FIELD(mlr_block, DEVICE, device, "device"), MLR_FIELD(mlr_block, HEX, storage, "storage"),
    MLR_FIELD(mlr_block, U64, bytes, "bytes"),      MLR_FIELD(mlr_block, U64, refs, "refs"),
    MLR_FIELD(mlr_block, HEX, stream, "stream"),    MLR_FIELD(mlr_block, FLAG, pending, "pending"),
    MLR_FIELD(mlr_block, U64, flags, "flags"),      MLR_FIELD(mlr_block, TEXT, name, "name"),
    MLR_FIELD(mlr_block, TEXT, dtype, "dtype"),     MLR_FIELD(mlr_block, SHAPE, shape, "shape")};
static const mlr_field part_fields[] = {
    MLR_FIELD(mlr_part, U64, offset, "offset"), MLR_FIELD(mlr_part, U64, bytes, "bytes"),
    MLR_FIELD(mlr_part, TEXT, name, "name"),    MLR_FIELD(mlr_part, TEXT, dtype, "dtype"),
    MLR_FIELD(mlr_part, SHAPE, shape, "shape"), MLR_FIELD(mlr_part, TEXT, tag, "tag")};

static void parts_read(mlr_reader *r, const mlr_json *parts, mlr_block *block) {
    const mlr_json *list = mlr_json_get(parts, "list");
    mlr_rows rows;
    if (!parts || parts->kind != MLR_JSON_OBJECT) return;
    rows = mlr_rows_read(r, "parts", list ? list : mlr_json_get(parts, "listed"), part_fields,
                         MLR_COUNT(part_fields), sizeof(mlr_part));
    block->part = (mlr_part *)rows.list;
    block->parts = rows.count;
    block->all_parts = mlr_reader_u64(r, mlr_json_get(parts, "count"));
    block->part_bytes = mlr_reader_u64(r, mlr_json_get(parts, "bytes"));
}
static void blocks_read(mlr_reader *r) {
    mlr_profile *p = r->profile;
    const int older = p->schema < 3;
    const mlr_json *object = mlr_json_get(r->root, older ? "largest_blocks" : "blocks");
    const mlr_json *list = mlr_json_get(object, older ? "blocks" : "list"), *item;
    mlr_block *block;
    READ_ROWS(r, block, mlr_block, "blocks", list, block_plain_fields);
    block = p->block;
    MLR_JSON_EACH(item, list) {
        if (r->result != MLR_OK) return;
        if (older)
            mlr_older_block(r, item, block);
        else
            mlr_fields_read(r, item, block_fields, MLR_COUNT(block_fields), block);
        parts_read(r, mlr_json_get(item, "parts"), block++);
    }
    p->blocks_of = mlr_reader_u64(r, mlr_json_get(object, "of"));
    p->blocks_bytes = older ? p->total.allocated : mlr_reader_u64(r, mlr_json_get(object, "bytes"));
    if (p->block_count < p->blocks_of) p->lacks |= MLR_LACKS_BLOCKS;
}

/* -- time: peaks, snapshots, events -- */

static void peaks_read(mlr_reader *r) {
    mlr_profile *p = r->profile;
    const mlr_json *list = mlr_json_get(r->root, "peaks"), *item;
    MLR_JSON_EACH(item, list) {
        const uint32_t row = mlr_reader_device(r, mlr_json_get(item, "device"));
        mlr_device *d;
        if (r->result != MLR_OK) return;
        d = &p->device[row - 1];
        d->peak_bytes = mlr_reader_u64(r, mlr_json_get(item, "bytes"));
        d->peak_time_ns = mlr_reader_u64(r, mlr_json_get(item, "time_ns"));
        d->peak_arena = mlr_reader_u64(r, mlr_json_get(item, "arena"));
        d->peak_tags =
            mlr_reader_held(r, mlr_json_get(item, "tags"), p->tag_count, "tag", &d->peak_tag);
        d->peak_sites =
            mlr_reader_held(r, mlr_json_get(item, "sites"), p->site_count, "site", &d->peak_site);
    }
}

static const mlr_field snapshot_fields[] = {MLR_FIELD(mlr_snapshot, U64, time_ns, "time_ns"),
                                            MLR_FIELD(mlr_snapshot, TEXT, name, "checkpoint_name"),
                                            MLR_FIELD(mlr_snapshot, U64, live, "total_bytes"),
                                            MLR_FIELD(mlr_snapshot, U64, blocks, "tensor_count")};
static const mlr_field level_fields[] = {MLR_FIELD(mlr_level, U64, live, "total_bytes"),
                                         MLR_FIELD(mlr_level, U64, pending, "pending_bytes"),
                                         MLR_FIELD(mlr_level, U64, reserved, "reserved_bytes"),
                                         MLR_FIELD(mlr_level, U64, peak, "peak_bytes"),
                                         MLR_FIELD(mlr_level, U64, blocks, "count")};

static void levels_read(mlr_reader *r, const mlr_json *devices, mlr_snapshot *s) {
    const mlr_json *item;
    MLR_JSON_EACH(item, devices) {
        const uint32_t row = mlr_reader_device(r, item - 1);
        if (row > s->levels) s->levels = row;
    }
    if (!s->levels || r->result != MLR_OK) s->levels = 0;
    if (s->levels) s->level = (mlr_level *)mlr_reader_alloc(r, s->levels, sizeof *s->level);
    if (!s->level) return;
    MLR_JSON_EACH(item, devices)
    mlr_fields_read(r, item, level_fields, MLR_COUNT(level_fields),
                    &s->level[mlr_reader_device(r, item - 1) - 1]);
}
static void snapshots_read(mlr_reader *r) {
    mlr_profile *p = r->profile;
    const mlr_json *list = mlr_json_get(r->root, "snapshots"), *item;
    mlr_snapshot *s;
    READ_ROWS(r, snapshot, mlr_snapshot, "snapshots", list, snapshot_fields);
    s = p->snapshot;
    MLR_JSON_EACH(item, list) {
        if (r->result != MLR_OK) return;
        if (s > p->snapshot && s->time_ns < s[-1].time_ns)
            mlr_reader_fail(r, MLR_E_INVALID, "has a snapshot before the one in front of it");
        levels_read(r, mlr_json_get(item, "device_breakdown"), s);
        s->tags = mlr_reader_held(r, mlr_json_get(item, "tags"), p->tag_count, "tag", &s->tag);
        s->sites = mlr_reader_held(r, mlr_json_get(item, "sites"), p->site_count, "site", &s->site);
        s++;
    }
}

static const char *const event_names[] = {"alloc",       "free",      "pend",      "move",
                                          "arena_add",   "arena_sub", "gc",        "oom",
                                          "scope_begin", "scope_end", "checkpoint"};
enum { EVENT_KINDS = sizeof event_names / sizeof *event_names };

/* Finds for each number in the list "kinds" the kind that this program gives it; EVENT_KINDS: none.
   Returns how many there are. */
static size_t kinds_read(mlr_reader *r, const mlr_json *names, int *kinds) {
    const mlr_json *name;
    size_t n = 0;
    MLR_JSON_EACH(name, names) {
        const char *text = mlr_reader_text(r, name);
        int kind = 0;
        while (kind < EVENT_KINDS && strcmp(event_names[kind], text) != 0) kind++;
        if (n < 64) kinds[n++] = kind;
    }
    return n;
}
/* Reads [time_ns,kind,thread,device,storage,bytes,site,tag or name,scope,stream,stack] in which the
   kind is known. Before memlord/3 devices count from 0, and sites and tags are numbers of
   "strings". */
static void event_read(mlr_reader *r, const mlr_json *const *value, mlr_event *e) {
    const mlr_profile *p = r->profile;
    static const mlr_field hex[] = {MLR_FIELD(mlr_event, HEX, storage, ""),
                                    MLR_FIELD(mlr_event, HEX, stream, ""),
                                    MLR_FIELD(mlr_event, U32, thread, "")};
    const int older = p->schema < 3;
    int64_t device = mlr_reader_i64(r, value[3]) + older;
    if (device < 0 || device > (int64_t)p->device_count)
        mlr_reader_fail(r, MLR_E_INVALID, "has an event of device %lld of %lu", (long long)device,
                        (unsigned long)p->device_count);
    e->time_ns = mlr_reader_u64(r, value[0]);
    mlr_field_read(r, value[2], &hex[2], e);
    e->device = r->result == MLR_OK ? (uint32_t)device : 0;
    mlr_field_read(r, value[4], &hex[0], e);
    e->bytes = mlr_reader_u64(r, value[5]);
    if (e->kind == MLR_EVENT_CHECKPOINT)
        e->name = mlr_reader_text(r, value[7]);
    else if (older)
        mlr_older_event(r, value[6], value[7], e);
    else
        e->tag = mlr_reader_row(r, value[7], p->tag_count, "tag");
    if (!older) e->site = mlr_reader_row(r, value[6], p->site_count, "site");
    e->scope = mlr_reader_row(r, value[8], p->scope_count, "scope");
    mlr_field_read(r, value[9], &hex[1], e);
    e->stack = mlr_reader_row(r, value[10], p->stack_count, "stack");
}
static void events_read(mlr_reader *r) {
    mlr_profile *p = r->profile;
    const mlr_json *object = mlr_json_get(r->root, "events"), *list = mlr_json_get(object, "list");
    const mlr_json *item;
    int kinds[64];
    const size_t count = kinds_read(r, mlr_json_get(object, "kinds"), kinds);
    if (!mlr_json_first(list) || r->result != MLR_OK) return;
    p->event = (mlr_event *)mlr_reader_alloc(r, list->size, sizeof *p->event);
    MLR_JSON_EACH(item, list) {
        const mlr_json *value[11] = {NULL}, *v = mlr_json_first(item);
        mlr_event *e = &p->event[p->event_count];
        uint64_t kind;
        size_t i;
        for (i = 0; v && i < 11; i++, v = mlr_json_after(item, v)) value[i] = v;
        kind = mlr_reader_u64(r, value[1]);
        if (r->result != MLR_OK) return;
        if (kind >= count || kinds[kind] == EVENT_KINDS) continue; /* of a newer program */
        e->kind = (mlr_event_kind)kinds[kind];
        event_read(r, value, e);
        p->event_count++;
    }
}

/* -- transfers and mistakes -- */

static const mlr_field transfer_fields[] = {
    MLR_FIELD(mlr_transfer, DEVICE, from, "from"),
    MLR_FIELD(mlr_transfer, DEVICE, to, "to"),
    MLR_FIELD(mlr_transfer, U64, moves, "moves"),
    MLR_FIELD(mlr_transfer, U64, moved_bytes, "moved_bytes"),
    MLR_FIELD(mlr_transfer, U64, copies, "copies"),
    MLR_FIELD(mlr_transfer, U64, copied_bytes, "copied_bytes")};
static const mlr_field older_transfer_fields[] = {
    MLR_FIELD(mlr_transfer, U64, moves, "count"),
    MLR_FIELD(mlr_transfer, U64, moved_bytes, "bytes")};
static const mlr_field mistake_fields[] = {MLR_FIELD(mlr_mistake, TEXT, kind, "kind"),
                                           MLR_FIELD(mlr_mistake, TEXT, device, "device"),
                                           MLR_FIELD(mlr_mistake, TEXT, tag, "tag"),
                                           MLR_FIELD(mlr_mistake, HEX, storage, "storage"),
                                           MLR_FIELD(mlr_mistake, U64, count, "count"),
                                           MLR_FIELD(mlr_mistake, U64, bytes, "bytes"),
                                           MLR_FIELD(mlr_mistake, U64, first_ns, "first_ns"),
                                           MLR_FIELD(mlr_mistake, U64, last_ns, "last_ns")};
static const mlr_field mistake_frames[] = {MLR_FIELD(mlr_mistake, FRAME, frame, "frame"),
                                           MLR_FIELD(mlr_mistake, FRAME, born, "born")};

static void transfers_read(mlr_reader *r) {
    const int older = r->profile->schema < 3;
    const mlr_json *list = mlr_json_get(r->root, older ? "moves" : "transfers"), *item;
    mlr_transfer *t;
    READ_ROWS(r, transfer, mlr_transfer, "transfers", list, transfer_fields);
    t = r->profile->transfer;
    if (!older || r->result != MLR_OK) return;
    MLR_JSON_EACH(item, list)
    mlr_fields_read(r, item, older_transfer_fields, MLR_COUNT(older_transfer_fields), t++);
}
static void mistakes_read(mlr_reader *r) {
    const mlr_json *list = list_at(r, "mistakes", "list"), *item;
    mlr_mistake *m;
    READ_ROWS(r, mistake, mlr_mistake, "mistakes", list, mistake_fields);
    m = r->profile->mistake;
    MLR_JSON_EACH(item, list) {
        if (r->result != MLR_OK) return;
        if (r->profile->schema < 3) {
            m->frame = mlr_places_frame(r, mlr_json_get(item, "site"));
            m->born = mlr_places_frame(r, mlr_json_get(item, "born"));
        } else {
            mlr_fields_read(r, item, mistake_frames, MLR_COUNT(mistake_frames), m);
        }
        m++;
    }
}

/* -- the whole -- */

static void groups_read(mlr_reader *r) {
    mlr_rows rows;
    if (r->result != MLR_OK) return;
    rows = mlr_columns_read(r, "groups", mlr_json_get(r->root, "groups"), sampled_fields,
                            MLR_COUNT(sampled_fields), sizeof(mlr_sampled));
    if (r->result == MLR_OK && mlr_scale(r->profile, (mlr_sampled *)rows.list, rows.count))
        mlr_reader_fail(r, MLR_E_NOMEM, "out of memory");
}
static void sections_read(mlr_reader *r) {
    const int older = r->profile->schema < 3;
    metadata_read(r);
    devices_read(r);
    capacity_read(r);
    small_lists_read(r);
    if (older)
        mlr_older_places(r);
    else
        places_read(r);
    ooms_read(r);
    scopes_read(r);
    if (older) mlr_older_scopes(r);
    blocks_read(r);
    snapshots_read(r);
    events_read(r);
    transfers_read(r);
    mistakes_read(r);
    if (older) {
        mlr_older_rest(r);
    } else {
        peaks_read(r);
        groups_read(r);
    }
}

/* Finds which schema a profile has. */
static void schema_read(mlr_reader *r) {
    const char *text = mlr_reader_text(r, mlr_json_get(r->root, "schema"));
    const char *version = mlr_reader_text(r, mlr_json_get(r->root, "version"));
    char *end;
    unsigned long schema;
    if (r->root->kind != MLR_JSON_OBJECT || strncmp(text, "memlord/", 8) != 0) {
        mlr_reader_fail(r, MLR_E_UNSUPPORTED,
                        "is no profile: write one with memlord_save(lord, MEMLORD_FORMAT_JSON, "
                        "\"run.json\") or memlord run -o run.json");
        return;
    }
    schema = strtoul(text + 8, &end, 10);
    if (*end || schema < 1 || schema > SCHEMA_NEWEST)
        mlr_reader_fail(r, MLR_E_UNSUPPORTED,
                        "is of schema %.40s, and this program reads up to memlord/%d: use the "
                        "command memlord of version %.40s or later",
                        text, SCHEMA_NEWEST, *version ? version : "(not told)");
    r->profile->schema = (int)schema;
}

/* Makes an empty profile. Returns NULL if there is no memory. */
static mlr_profile *profile_make(size_t size) {
    mlr_arena *arena = mlr_arena_make(ARENA_FREE + ARENA_PER_BYTE * (uint64_t)size);
    mlr_profile *p = arena ? (mlr_profile *)mlr_arena_alloc(arena, 1, sizeof *p) : NULL;
    if (!p) {
        mlr_arena_free(arena);
        return NULL;
    }
    p->arena = arena;
    return p;
}

MLR_PRIVATE mlr_result mlr_profile_read(const char *path, const char *text, size_t size,
                                        mlr_profile **out, char *message, size_t room) {
    mlr_reader r;
    mlr_json_error error;
    mlr_json *root = mlr_json_read(text, size, &error);
    memset(&r, 0, sizeof r);
    r.path = path;
    r.message = message;
    r.room = room;
    r.root = root;
    *out = NULL;
    r.profile = root ? profile_make(size) : NULL;
    if (!size)
        mlr_reader_fail(&r, MLR_E_INVALID, "is empty: the program has written no profile");
    else if (!root && error.what)
        mlr_reader_fail(&r, MLR_E_INVALID, "is no JSON, or cut off, at line %lu: %s; save it again",
                        (unsigned long)error.line, error.what);
    else if (!r.profile)
        mlr_reader_fail(&r, MLR_E_NOMEM, "out of memory");
    else
        r.profile->path = mlr_reader_text_of(&r, path, strlen(path));
    if (r.result == MLR_OK) schema_read(&r);
    if (r.result == MLR_OK) sections_read(&r);
    mlr_reader_close(&r);
    free(root);
    if (r.result == MLR_OK)
        *out = r.profile;
    else
        mlr_profile_free(r.profile);
    return r.result;
}
