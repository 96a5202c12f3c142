#include "formats/prometheus.h"
#include "formats/holdings.h"
#include "formats/words.h"
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERIES                                                                                     \
    100 /* the most tags of a device, and the most scopes, that have series of their own */

/* The statistics of a device that have families, with their names and help. tests compare them with
   memlord.h. */
#define FAMILIES(X)                                                                                \
    X(allocated, "live_bytes", "bytes live, pending included")                                     \
    X(pending, "pending_bytes", "bytes live that wait for their device")                           \
    X(freed, "freed_since_gc_bytes", "bytes credited since the last collection or reset")          \
    X(peak, "peak_bytes", "highest allocated; never high, low by at most peak_error")              \
    X(peak_error, "peak_error_bytes", "bytes the peak may be low by")                              \
    X(live_blocks, "live_blocks", "storages live")                                                 \
    X(allocs, "allocs_total", "storages opened")                                                   \
    X(frees, "frees_total", "storages closed")                                                     \
    X(total_allocated, "allocated_bytes_total", "bytes ever added, growth included")               \
    X(total_freed, "freed_bytes_total", "bytes ever credited, shrinkage included")                 \
    X(moves, "moves_total", "storages that arrived by memlord_move")                               \
    X(moved_bytes, "moved_bytes_total", "bytes that arrived by memlord_move")                      \
    X(reserved, "reserved_bytes", "bytes the host's pool holds")                                   \
    X(reserved_peak, "reserved_peak_bytes", "highest reserved")                                    \
    X(cached, "cached_bytes", "reserved and not allocated")                                        \
    X(largest_free, "largest_free_bytes", "largest free piece of the host's pool")                 \
    X(cache_hits, "cache_hits_total", "requests the host's pool served")                           \
    X(cache_misses, "cache_misses_total", "requests it passed on")                                 \
    X(gc_runs, "gc_runs_total", "collections that ran")                                            \
    X(gc_failed, "gc_failures_total", "collections that did not")                                  \
    X(gc_reclaimed, "gc_reclaimed_bytes_total", "bytes they gave back")                            \
    X(oom_attempts, "oom_attempts_total", "attempts that found no memory")                         \
    X(oom_failures, "oom_failures_total", "requests that found none in the end")                   \
    X(retries, "retries_total", "attempts after the first")                                        \
    X(recoveries, "recoveries_total", "requests saved by a retry")                                 \
    X(implicit_frees, "implicit_frees_total", "allocs over a live storage")                        \
    X(unknown_frees, "unknown_frees_total", "frees of a storage not live")                         \
    X(freed_while_shared, "freed_while_shared_total", "frees of a storage with views")             \
    X(underflows, "underflows_total", "arena_sub below the balance")                               \
    X(fence_failures, "fence_failures_total", "fences that failed")                                \
    X(dropped_allocs, "dropped_allocs_total",                                                      \
      "allocs there was no room for, in the map or among devices")                                 \
    X(dropped_bytes, "dropped_bytes_total", "their bytes")                                         \
    X(dropped_sites, "dropped_sites_total", "sites, tags or stacks without room")                  \
    X(dropped_events, "dropped_events_total", "events the ring had no room for")                   \
    X(reallocs, "reallocs_total", "storages resized")                                              \
    X(copies, "copies_total", "memlord_copy to this device")                                       \
    X(copied_bytes, "copied_bytes_total", "bytes they copied")                                     \
    X(refused, "refused_total", "calls with a bad argument, ticket or account")

static const struct {
    const char *name, *help;
    size_t at; /* the offset in mlr_stats */
} device_families[] = {
#define X(name, family, text) {family, text, offsetof(mlr_stats, name)},
    FAMILIES(X)
#undef X
};
#define DEVICE_FAMILIES (sizeof device_families / sizeof *device_families)

typedef struct label {
    const char *name, *value;
    size_t name_size, value_size;
} label;
#define LABELS 32
typedef struct writer {
    const mlr_profile *p;
    mlr_out *o;
    label label[LABELS]; /* of every sample */
    int labels, fields;  /* how many labels; how many the sample has so far */
    const char *family;  /* whose head is written next, or is written already */
    const char *help;
    int headed; /* 1: it is written */
    mlr_buffer text;
} writer;

/* -- samples -- */

/* Begins a family. Its head is written with its first sample. */
static void family(writer *w, const char *name, const char *help) {
    w->family = name;
    w->help = help;
    w->headed = 0;
}
/* Writes the HELP and TYPE lines. A family is a counter if its name ends in _total. Exactly the
   families that only grow have such a name. */
static void head(writer *w) {
    const size_t n = strlen(w->family);
    const int counter = n > 6 && !strcmp(w->family + n - 6, "_total");
    if (w->headed) return;
    w->headed = 1;
    mlr_putf(w->o, "# HELP memlord_%s %s\n# TYPE memlord_%s %s\n", w->family, w->help, w->family,
             counter ? "counter" : "gauge");
}
/* Writes the value of a label. */
static void put_value(writer *w, const char *text) {
    mlr_out to;
    size_t i;
    w->text.used = 0;
    mlr_out_open(&to, mlr_buffer_write, &w->text);
    mlr_put_name(&to, text, 0);
    w->o->failed |= mlr_out_close(&to);
    for (i = 0; i < w->text.used; i++) {
        if (w->text.at[i] == '"' || w->text.at[i] == '\\') mlr_puts(w->o, "\\");
        mlr_put(w->o, w->text.at + i, 1);
    }
}
static void begin(writer *w) {
    head(w);
    w->fields = 0;
    mlr_putf(w->o, "memlord_%s", w->family);
}
static void put_label(writer *w, const char *name, size_t size, const char *value) {
    mlr_puts(w->o, w->fields++ ? "," : "{");
    mlr_put(w->o, name, size);
    mlr_puts(w->o, "=\"");
    put_value(w, value);
    mlr_puts(w->o, "\"");
}
static void with(writer *w, const char *name, const char *value) {
    put_label(w, name, strlen(name), value);
}
static int has_label(const writer *w, const char *name, size_t size) {
    int i;
    for (i = 0; i < w->labels; i++)
        if (w->label[i].name_size == size && !memcmp(w->label[i].name, name, size)) return 1;
    return 0;
}
/* Writes the labels of the ledger, and what stands between labels and a number. */
static void put_own(writer *w) {
    char value[1024];
    int i;
    for (i = 0; i < w->labels; i++) {
        const label *l = &w->label[i];
        const size_t n = l->value_size < sizeof value ? l->value_size : sizeof value - 1;
        memcpy(value, l->value, n);
        value[n] = 0;
        put_label(w, l->name, l->name_size, value);
    }
    mlr_puts(w->o, w->fields ? "} " : " ");
}
static void end_u64(writer *w, uint64_t v) {
    put_own(w);
    mlr_put_u64(w->o, v);
    mlr_puts(w->o, "\n");
}
static void end_i64(writer *w, int64_t v) {
    put_own(w);
    mlr_put_i64(w->o, v);
    mlr_puts(w->o, "\n");
}
/* Ends a sample whose value is in billionths, such as nanoseconds, which are written as seconds. */
static void end_fixed(writer *w, uint64_t v) {
    put_own(w);
    mlr_put_fixed(w->o, v, 9);
    mlr_puts(w->o, "\n");
}
/* Writes a family of one sample, which is of the whole ledger. */
static void whole(writer *w, const char *name, const char *help, uint64_t v) {
    family(w, name, help);
    begin(w);
    end_u64(w, v);
}
static void whole_seconds(writer *w, const char *name, const char *help, uint64_t ns) {
    family(w, name, help);
    begin(w);
    end_fixed(w, ns);
}

/* Finds the labels of the ledger. Leaves out one whose name is not valid, is that of an earlier
   label, or is one that the format itself uses. */
static void find_labels(writer *w) {
    static const char own[] = " device tag scope rest site from to version ",
                      letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    const char *at = w->p->labels, *end;
    for (; *at && w->labels < LABELS; at = end + (*end == ',')) {
        label *l = &w->label[w->labels];
        char word[40];
        size_t n;
        at += strspn(at, " ");
        end = at + strcspn(at, ",");
        n = strspn(at, letters);
        if (!n || at[n] != '=' || (*at >= '0' && *at <= '9') || !strncmp(at, "__", 2)) continue;
        word[0] = ' ';
        memcpy(word + 1, at, n < sizeof word - 3 ? n : sizeof word - 3);
        strcpy(word + 1 + (n < sizeof word - 3 ? n : sizeof word - 3), " ");
        if (strstr(own, word) || has_label(w, at, n)) continue;
        l->name = at;
        l->name_size = n;
        l->value = at + n + 1;
        l->value_size = (size_t)(end - l->value);
        w->labels++;
    }
}

/* -- devices -- */

static uint64_t stat_of(const mlr_stats *s, size_t i) {
    uint64_t v;
    memcpy(&v, (const char *)s + device_families[i].at, sizeof v);
    return v;
}
/* Returns 1 if a statistic may count what belongs to no device: an anomaly or a drop. */
static int is_anomaly(size_t i) {
    return device_families[i].at >= offsetof(mlr_stats, implicit_frees) &&
           (device_families[i].at <= offsetof(mlr_stats, dropped_events) ||
            device_families[i].at == offsetof(mlr_stats, refused));
}
/* Writes a family for each statistic, with a sample for each device, because the format wants all
   samples of a family together. A value that is not known has no sample. */
static void put_devices(writer *w) {
    size_t i;
    uint32_t d;
    for (i = 0; i < DEVICE_FAMILIES && w->p->device_count; i++) {
        uint64_t rest = stat_of(&w->p->total, i);
        family(w, device_families[i].name, device_families[i].help);
        head(w);
        for (d = 0; d < w->p->device_count; d++) {
            const uint64_t v = stat_of(&w->p->device[d].stats, i);
            (void)mlr_take(&rest, v);
            if (v == MLR_UNKNOWN) continue;
            begin(w);
            with(w, "device", w->p->device[d].name);
            end_u64(w, v);
        }
        if (!is_anomaly(i) || !rest) continue;
        begin(w);
        end_u64(w, rest);
    }
}

/* Writes part / (part + rest) of each device where it is known. */
static void put_ratio(writer *w, size_t part, size_t rest) {
    uint32_t d;
    for (d = 0; d < w->p->device_count; d++) {
        uint64_t a, b;
        memcpy(&a, (const char *)&w->p->device[d].stats + part, sizeof a);
        memcpy(&b, (const char *)&w->p->device[d].stats + rest, sizeof b);
        if (!(a | b)) continue;
        begin(w);
        with(w, "device", w->p->device[d].name);
        end_fixed(w, (uint64_t)((double)a / ((double)a + (double)b) * 1e9 + 0.5));
    }
}
static void put_rates(writer *w) {
    uint32_t d;
    family(w, "hit_ratio", "requests that the pool served, of all");
    put_ratio(w, offsetof(mlr_stats, cache_hits), offsetof(mlr_stats, cache_misses));
    family(w, "recovery_ratio",
           "requests saved by a retry, of those that found no memory at first");
    put_ratio(w, offsetof(mlr_stats, recoveries), offsetof(mlr_stats, oom_failures));
    family(w, "success_ratio", "allocations that found memory, of all");
    put_ratio(w, offsetof(mlr_stats, allocs), offsetof(mlr_stats, oom_failures));
    family(w, "mean_bytes", "bytes of an alloc in the mean");
    for (d = 0; d < w->p->device_count; d++) {
        const mlr_stats *s = &w->p->device[d].stats;
        if (!s->allocs) continue;
        begin(w);
        with(w, "device", w->p->device[d].name);
        end_u64(w, s->total_allocated / s->allocs);
    }
}

/* Writes "function file:line" as the value of a label. */
static void with_site(writer *w, uint32_t frame) {
    const mlr_function *f = mlr_frame_shown(w->p, frame);
    mlr_puts(w->o, ",site=\"");
    put_value(w, f->name);
    if (f->name[0] && f->file[0]) mlr_puts(w->o, " ");
    put_value(w, f->file);
    if (f->line) mlr_putf(w->o, ":%" PRIu32, f->line);
    mlr_puts(w->o, "\"");
}
static void put_oom(writer *w, size_t at) {
    uint32_t d;
    for (d = 0; d < w->p->device_count; d++) {
        const mlr_oom *oom = &w->p->device[d].oom;
        uint64_t v;
        memcpy(&v, (const char *)oom + at, sizeof v);
        if (!oom->time_ns || v == MLR_UNKNOWN) continue;
        begin(w);
        with(w, "device", w->p->device[d].name);
        if (oom->frame) with_site(w, oom->frame);
        end_u64(w, v);
    }
}
/* Writes for each device the last request that found no memory. */
static void put_ooms(writer *w) {
    family(w, "last_oom_bytes", "bytes the last request that found no memory wanted");
    put_oom(w, offsetof(mlr_oom, bytes));
    family(w, "last_oom_live_bytes", "bytes live then");
    put_oom(w, offsetof(mlr_oom, live));
    family(w, "last_oom_used_bytes", "bytes of its physical device in use then");
    put_oom(w, offsetof(mlr_oom, used));
}

/* -- capacity -- */

/* Returns the bytes that this process uses and the ledger does not know. */
static uint64_t rest_of(const mlr_capacity *c) {
    uint64_t mine = c->self + (c->context != MLR_UNKNOWN ? c->context : 0);
    if (c->process == MLR_UNKNOWN || c->self == MLR_UNKNOWN) return MLR_UNKNOWN;
    if (c->process > mine) mine = c->process;
    return mine - c->self;
}
static const struct {
    const char *name, *help;
    size_t at; /* the offset in mlr_capacity */
} capacity_families[] = {
    {"capacity_bytes", "bytes of a physical device", offsetof(mlr_capacity, total)},
    {"capacity_used_bytes", "bytes of it in use, whoever uses them", offsetof(mlr_capacity, used)},
    {"self_bytes", "bytes of it the ledger knows; files mapped are not in it",
     offsetof(mlr_capacity, self)},
    {"process_rest_bytes", "bytes of it this process uses and the ledger does not know", 0},
    {"context_bytes", "bytes of it the driver holds for this process",
     offsetof(mlr_capacity, context)},
    {"others_bytes", "bytes of it others use", offsetof(mlr_capacity, others)},
    {"neighbour_bytes", "bytes of it that other processes of the pressure page hold",
     offsetof(mlr_capacity, neighbours)},
    {"unaccounted_bytes",
     "capacity_used_bytes - self_bytes - context_bytes - neighbour_bytes; may be below 0",
     offsetof(mlr_capacity, unaccounted)},
    {"limit_bytes", "bytes allowed of it; no sample: no limit", offsetof(mlr_capacity, limit)},
    {"held_bytes", "bytes of it that tickets keep", offsetof(mlr_capacity, held)},
    {"capacity_age_seconds", "age of these samples", offsetof(mlr_capacity, age_ns)}};

static void put_capacity_sample(writer *w, const mlr_capacity *c, size_t at) {
    const int is_signed = at == offsetof(mlr_capacity, unaccounted);
    uint64_t v;
    memcpy(&v, (const char *)c + at, sizeof v);
    if (!at) v = rest_of(c);
    if (is_signed ? c->unaccounted == INT64_MIN : v == MLR_UNKNOWN) return;
    begin(w);
    with(w, "device", c->device);
    if (is_signed)
        end_i64(w, c->unaccounted);
    else if (at == offsetof(mlr_capacity, age_ns))
        end_fixed(w, v);
    else
        end_u64(w, v);
}
static void put_capacity(writer *w) {
    size_t i;
    uint32_t k;
    for (i = 0; i < sizeof capacity_families / sizeof *capacity_families; i++) {
        family(w, capacity_families[i].name, capacity_families[i].help);
        for (k = 0; k < w->p->capacity_count; k++)
            put_capacity_sample(w, &w->p->capacity[k], capacity_families[i].at);
    }
}

/* -- tags -- */

enum { TAG_BYTES, TAG_PEAK, TAG_BLOCKS, TAG_EXPECTED, TAG_VARIANCE, TAG_FAMILIES };
static const char *const tag_families[TAG_FAMILIES][2] = {
    {"tag_bytes", "bytes live by what they are for; an empty tag: those without one"},
    {"tag_peak_bytes", "highest tag_bytes; of the rest: the sum of these"},
    {"tag_blocks", "storages live by what they are for"},
    {"tag_expected_bytes", "bytes planned for a tag"},
    {"tag_variance_bytes", "tag_bytes - tag_expected_bytes; may be below 0"}};

/* Returns 1 if a tag has a value of a family, which *v is then. */
static int tag_value(const mlr_tag *t, int which, int64_t *v) {
    const int64_t values[] = {(int64_t)t->live, (int64_t)t->peak, (int64_t)t->blocks,
                              (int64_t)t->expected, t->variance};
    *v = values[which];
    return which < TAG_EXPECTED || t->expected;
}
/* Writes the tags of a device: the first with their names, then the others as one. */
static void put_device_tags(writer *w, uint32_t device, int which) {
    const mlr_profile *p = w->p;
    uint32_t i, n = 0, others = 0;
    int64_t v, rest = 0;
    for (i = 0; i < p->tag_count; i++) {
        if (p->tag[i].device != device) continue;
        if (!tag_value(&p->tag[i], which, &v)) {
            n++;
        } else if (n++ < SERIES) {
            begin(w);
            with(w, "device", p->device[device - 1].name);
            with(w, "tag", p->tag[i].name);
            end_i64(w, v);
        } else {
            others++;
            rest += v;
        }
    }
    if (!others) return;
    begin(w);
    with(w, "device", p->device[device - 1].name);
    with(w, "tag", "");
    with(w, "rest", "1");
    end_i64(w, rest);
}
static void put_untagged(writer *w, uint32_t device) {
    const mlr_profile *p = w->p;
    uint64_t left = p->device[device - 1].stats.allocated;
    uint32_t i;
    for (i = 0; i < p->tag_count; i++)
        if (p->tag[i].device == device) (void)mlr_take(&left, p->tag[i].live);
    begin(w);
    with(w, "device", p->device[device - 1].name);
    with(w, "tag", "");
    end_u64(w, left);
}
static void put_tags(writer *w) {
    uint32_t d;
    int which;
    for (which = 0; which < TAG_FAMILIES; which++) {
        family(w, tag_families[which][0], tag_families[which][1]);
        for (d = 1; d <= w->p->device_count; d++) put_device_tags(w, d, which);
        for (d = 1; d <= w->p->device_count && which == TAG_BYTES; d++) put_untagged(w, d);
    }
}

/* Returns how many tags of its device come before a tag. */
static uint32_t tags_before(const mlr_profile *p, uint32_t tag) {
    uint32_t i, n = 0;
    for (i = 0; i + 1 < tag; i++) n += p->tag[i].device == p->tag[tag - 1].device;
    return n;
}
/* Writes the bytes by tag that each device had at its peak. Bytes without a tag, and of tags
   without series of their own, have an empty tag. */
static void put_holders(writer *w) {
    uint32_t d, k;
    family(w, "peak_holder_bytes", "bytes live by tag when the peak was last looked at");
    for (d = 0; d < w->p->device_count; d++) {
        const mlr_device *device = &w->p->device[d];
        uint64_t rest = device->peak_bytes;
        if (!rest) continue;
        for (k = 0; k < device->peak_tags; k++) {
            const uint32_t tag = device->peak_tag[k].row;
            if (!tag || tags_before(w->p, tag) >= SERIES) continue;
            begin(w);
            with(w, "device", device->name);
            with(w, "tag", w->p->tag[tag - 1].name);
            end_u64(w, device->peak_tag[k].bytes);
            (void)mlr_take(&rest, device->peak_tag[k].bytes);
        }
        begin(w);
        with(w, "device", device->name);
        with(w, "tag", "");
        end_u64(w, rest);
    }
}

/* -- transfers, scopes and the ledger -- */

static void put_transfers(writer *w, const char *name, const char *help, size_t at) {
    uint32_t i;
    family(w, name, help);
    for (i = 0; i < w->p->transfer_count; i++) {
        const mlr_transfer *t = &w->p->transfer[i];
        uint64_t v;
        memcpy(&v, (const char *)t + at, sizeof v);
        begin(w);
        with(w, "from", w->p->device[t->from - 1].name);
        with(w, "to", w->p->device[t->to - 1].name);
        end_u64(w, v);
    }
}

/* Writes the scopes: the first with their paths, then the others as one, with their sum or, for
   `most`, the highest. */
static void put_scope_family(writer *w, size_t at, int most, void (*end)(writer *, uint64_t)) {
    const mlr_profile *p = w->p;
    uint64_t rest = 0;
    uint32_t i;
    for (i = 0; i < p->scope_count; i++) {
        uint64_t v;
        memcpy(&v, (const char *)&p->scope[i] + at, sizeof v);
        if (i >= SERIES) {
            rest = !most ? rest + v : v > rest ? v : rest;
            continue;
        }
        begin(w);
        with(w, "scope", p->scope[i].path);
        end(w, v);
    }
    if (p->scope_count <= SERIES) return;
    begin(w);
    with(w, "scope", "");
    with(w, "rest", "1");
    end(w, rest);
}
static void end_signed(writer *w, uint64_t v) { end_i64(w, (int64_t)v); }
static void put_scopes(writer *w) {
    family(w, "scope_invocations_total", "invocations of a scope that are over");
    put_scope_family(w, offsetof(mlr_scope, count), 0, end_u64);
    family(w, "scope_running", "invocations of a scope that are not");
    put_scope_family(w, offsetof(mlr_scope, running), 0, end_u64);
    family(w, "scope_seconds_total", "time of the host in a scope");
    put_scope_family(w, offsetof(mlr_scope, ns), 0, end_fixed);
    family(w, "scope_delta_bytes", "bytes a scope allocated less those it freed; may be below 0");
    put_scope_family(w, offsetof(mlr_scope, bytes), 0, end_signed);
    family(w, "scope_peak_bytes", "highest in one invocation, above where that began");
    put_scope_family(w, offsetof(mlr_scope, peak), 1, end_u64);
}

/* Writes which process the samples are of. A label of the ledger replaces one of the same name. */
static void put_info(writer *w) {
    char pid[24];
    (void)snprintf(pid, sizeof pid, "%" PRIu64, w->p->pid);
    family(w, "info", "1, with the process that these samples are of");
    begin(w);
    with(w, "version", w->p->version);
    if (!has_label(w, "program", 7)) with(w, "program", w->p->program);
    if (!has_label(w, "host", 4)) with(w, "host", w->p->host);
    if (!has_label(w, "pid", 3)) with(w, "pid", pid);
    end_u64(w, 1);
}
static void put_ledger(writer *w) {
    const mlr_profile *p = w->p;
    whole(w, "dropped_scopes_total", "scopes there was no room for", p->lost_scopes);
    whole(w, "dropped_scope_invocations_total", "invocations of scopes no longer kept",
          p->lost_runs);
    whole(w, "dropped_snapshots_total", "snapshots no longer kept", p->lost_snapshots);
    whole(w, "dropped_exports_total", "exports that failed", p->lost_exports);
    whole(w, "accounts_open", "accounts open now", p->accounts_open);
    whole(w, "own_bytes", "bytes the ledger itself takes", p->own_bytes);
    whole_seconds(w, "uptime_seconds", "age of the ledger", p->uptime_ns);
    whole_seconds(w, "written_timestamp_seconds", "Unix time of these samples",
                  p->started_unix_ns + p->uptime_ns);
    whole_seconds(w, "start_time_seconds", "Unix time when the ledger was made",
                  p->started_unix_ns);
    put_info(w);
}

MLR_PRIVATE mlr_result mlr_prometheus(const mlr_profile *p, mlr_out *o) {
    writer *w = (writer *)calloc(1, sizeof *w);
    if (!w) return MLR_E_NOMEM;
    w->p = p;
    w->o = o;
    find_labels(w);
    put_devices(w);
    put_rates(w);
    put_ooms(w);
    put_capacity(w);
    put_tags(w);
    put_holders(w);
    put_transfers(w, "pair_moves_total", "storages moved between two devices",
                  offsetof(mlr_transfer, moves));
    put_transfers(w, "pair_moved_bytes_total", "bytes moved between two devices",
                  offsetof(mlr_transfer, moved_bytes));
    put_transfers(w, "pair_copies_total", "copies between two devices",
                  offsetof(mlr_transfer, copies));
    put_transfers(w, "pair_copied_bytes_total", "bytes copied between two devices",
                  offsetof(mlr_transfer, copied_bytes));
    put_scopes(w);
    put_ledger(w);
    free(w->text.at);
    free(w);
    return MLR_OK;
}
