#include "reports/tables.h"
#include "os/system.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/text.h"
#include "base/memory.h"
#include "books/counters.h"
#include "books/names.h"
#include "books/blocks.h"
#include "books/listing.h"
#include "books/limits.h"
#include "services/stats.h"
#include "services/snapshots.h"
#include "reports/capture.h"
#include "reports/export.h"

#if !defined(MEMLORD_NO_REPORTS)

static const char *const mli_families[MLI_COLUMNS][2] = { /* name, help */
#define MLI_X(name, kind, family, text) {family, text},
    MLI_STATS(MLI_X)
#undef MLI_X
#define MLI_X(name, text) {"dropped_" #name "_total", text},
    MLI_LOSSES(MLI_X)
#undef MLI_X
};

typedef struct mli_prom_writer {
    mli_export x;
    char label[1024]; /* of every sample: "name=value" and a 0 each, and one more 0 */
    uint64_t known[MEMLORD_MAX_DEVICES + 1]; /* by dev: the values that mli_prom_known writes */
    uint32_t named[MEMLORD_MAX_DEVICES + 1]; /* by dev: the lines with a name, by mli_prom_limit */
    char *rest[MEMLORD_MAX_DEVICES + 1];     /* by dev: the sums of the lines without a series */
} mli_prom_writer;

/* Writes the HELP and TYPE lines of a metric family. A family is a counter if its name ends in
   _total. Exactly the families that only grow have such a name. */
static MLI_COLD void mli_prom_head(mli_out *o, const char *name, const char *help) {
    size_t n = strlen(name);
    int counter = n > 6 && !strcmp(name + n - 6, "_total");
    mli_putf(o, "# HELP memlord_%s %s\n# TYPE memlord_%s %s\n", name, help, name,
             counter ? "counter" : "gauge");
}
/* Returns 1 if a label with this name of n bytes is in a list. The list has strings, "name" or
   "name=value", and ends with an empty string. */
static MLI_COLD int mli_prom_label_in(const char *list, const char *name, size_t n) {
    for (; *list; list += strlen(list) + 1)
        if (!strncmp(list, name, n) && (!list[n] || list[n] == '=')) return 1;
    return 0;
}
/* Sets w->label to the labels of the ledger. If it has none but writes exports, sets a label with
   the process id. Leaves out a label whose name is not valid, is that of an earlier label, or
   is one that the format itself uses. Also leaves out a label that does not fit in w->label. */
static MLI_COLD void mli_prom_labels(mli_prom_writer *w) {
    static const char own[] = "device\0tag\0scope\0rest\0site\0from\0to\0version\0",
                      letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    const char *at = mli_labels(w->x.lord), *end;
    char pid[32], *to = w->label;
    mli_out o;
    mli_out_buffer(&o, pid, sizeof pid);
    mli_putf(&o, "pid=%ju", mli_pid());
    (void)mli_out_end(&o, sizeof pid);
    if (!at && w->x.r->exports) at = pid;
    for (; at && *at; at = end + (*end == ',')) {
        size_t n;
        at += strspn(at, " ");
        end = at + strcspn(at, ",");
        n = strspn(at, letters);
        if (!n || at[n] != '=' || (*at >= '0' && *at <= '9') || !strncmp(at, "__", 2) ||
            end - at + 2 > w->label + sizeof w->label - to || mli_prom_label_in(own, at, n) ||
            mli_prom_label_in(w->label, at, n))
            continue;
        memcpy(to, at, (size_t)(end - at));
        to += end - at + 1;
        *to = to[-1] = 0;
    }
}
/* Writes text as a part of a label's value. */
static void mli_prom_text(mli_out *o, const char *text) { mli_put_utf8(o, text, "\\\""); }
/* Writes the labels of the ledger after the first n labels of a sample, and a space. */
static MLI_COLD void mli_prom_labels_put(mli_prom_writer *w, int n) {
    const char *at;
    for (at = w->label; *at; at += strlen(at) + 1) {
        size_t name = strcspn(at, "=") + 1;
        mli_put_str(w->x.o, n++ ? "," : "{");
        mli_put(w->x.o, at, name);
        mli_put_str(w->x.o, "\"");
        mli_prom_text(w->x.o, at + name);
        mli_put_str(w->x.o, "\"");
    }
    mli_put_str(w->x.o, n ? "} " : " ");
}
/* Writes a sample of the value `v`. If `kind` is 'd', v is signed. If it is 'X', v is in
   billionths, such as nanoseconds (written as seconds) or a rate. Any other kind writes v unsigned.
   A sample of memlord_device_all() has no device label. `key` and `label` are the name and the
   value of one more label. If `key` is NULL, there is no such label. If only `label` is NULL, v is
   the sum of the lines without series of their own. */
static MLI_COLD void mli_prom_sample(mli_prom_writer *w, const char *name, memlord_device d,
                                     const char *key, const char *label, char kind, uint64_t v) {
    mli_out *o = w->x.o;
    int device = d.type != MEMLORD_ANY;
    mli_putf(o, "memlord_%s", name);
    if (device) mli_putf(o, "{device=\"%i\"", mli_device_code(d));
    if (key) {
        mli_putf(o, device ? ",%s=\"" : "{%s=\"", key);
        if (label) mli_prom_text(o, label);
        mli_put_str(o, label ? "\"" : "\",rest=\"1\"");
    }
    mli_prom_labels_put(w, device + (key != NULL));
    if (kind == 'X')
        mli_put_fixed(o, v, 9);
    else if (kind == 'd')
        mli_put_i64(o, (int64_t)v);
    else
        mli_put_u64(o, v);
    mli_put_str(o, "\n");
}
/* Writes a family with one sample, which is of the whole ledger. */
static MLI_COLD void mli_prom_whole(mli_prom_writer *w, const char *name,
                                    const char *help, char kind, uint64_t v) {
    mli_prom_head(w->x.o, name, help);
    mli_prom_sample(w, name, memlord_device_all(), NULL, NULL, kind, v);
}

/* Writes a family for each statistic, with a sample for each device, because the format wants all
   samples of a family together. A value of UINT64_MAX is not known, and has no sample. */
static MLI_COLD void mli_prom_devices(mli_prom_writer *w) {
    size_t stat;
    uint32_t i;
    for (stat = 0; stat < MLI_STAT_COUNT; stat++) {
        const char *name = mli_families[stat][0];
        uint64_t rest = *mli_stat_of(&w->x.r->total, stat);
        if (!*name || !w->x.devices) continue;
        mli_prom_head(w->x.o, name, mli_families[stat][1]);
        for (i = 1; i <= w->x.devices; i++) {
            uint64_t v = *mli_stat_of(&w->x.r->stat[i - 1], stat);
            if (v != UINT64_MAX)
                mli_prom_sample(w, name, mli_export_device(&w->x, i), NULL, NULL, 'u', v);
            rest -= v;
        }
        if (mli_columns[stat].kind == MLI_KIND_ANOMALY && rest) /* the anomalies of no device */
            mli_prom_sample(w, name, memlord_device_all(), NULL, NULL, 'u', rest);
    }
}

/* Writes a family of the values in w->known, with a sample for each device whose value is known.
   Writes nothing if no value is known. */
static MLI_COLD void mli_prom_known(mli_prom_writer *w, const char *name, const char *help,
                                    char kind) {
    uint32_t i, samples = 0;
    for (i = 1; i <= w->x.devices; i++) {
        uint64_t v = w->known[i];
        if (v == UINT64_MAX) continue;
        if (!samples++) mli_prom_head(w->x.o, name, help);
        mli_prom_sample(w, name, mli_export_device(&w->x, i), NULL, NULL, kind, v);
    }
}
static MLI_COLD void mli_prom_rates(mli_prom_writer *w) {
    size_t k;
    uint32_t i;
    for (k = 0; k < MLI_RATE_COUNT; k++) {
        for (i = 1; i <= w->x.devices; i++) w->known[i] = mli_rate_read(&w->x.r->stat[i - 1], k);
        mli_prom_known(w, mli_rates[k].family, mli_rates[k].text, 'X');
    }
    for (i = 1; i <= w->x.devices; i++) w->known[i] = mli_mean_read(&w->x.r->stat[i - 1]);
    mli_prom_known(w, "mean_bytes", "bytes of an alloc in the mean", 'u');
}

/* A metric family that has a sample for each line of a list. */
typedef struct mli_family {
    const char *name;
    char kind;   /* u: a number; d: a number that may be below 0; m: a number, of which
                    mli_prom_add keeps the highest; X: nanoseconds, which are written as seconds */
    uint16_t at; /* the offset of the value in the line */
    const char *help;
} mli_family;
static const mli_family mli_prom_phys[] = {
    {"capacity_bytes", 'u', offsetof(mli_phys_line, total), "bytes of a physical device"},
    {"capacity_used_bytes", 'u', offsetof(mli_phys_line, used),
     "bytes of it in use, whoever uses them"},
    {"self_bytes", 'u', offsetof(mli_phys_line, self),
     "bytes of it the ledger knows; files mapped are not in it"},
    {"process_rest_bytes", 'u', offsetof(mli_phys_line, rest),
     "bytes of it this process uses and the ledger does not know"},
    {"context_bytes", 'u', offsetof(mli_phys_line, context),
     "bytes of it the driver holds for this process"},
    {"others_bytes", 'u', offsetof(mli_phys_line, others), "bytes of it others use"},
    {"neighbour_bytes", 'u', offsetof(mli_phys_line, neighbours),
     "bytes of it that other processes of the pressure page hold"},
    {"unaccounted_bytes", 'd', offsetof(mli_phys_line, unaccounted),
     "capacity_used_bytes - self_bytes - context_bytes - neighbour_bytes; may be below 0"},
    {"limit_bytes", 'u', offsetof(mli_phys_line, limit),
     "bytes allowed of it; no sample: no limit"},
    {"held_bytes", 'u', offsetof(mli_phys_line, held), "bytes of it that tickets keep"},
    {"capacity_age_seconds", 'X', offsetof(mli_phys_line, age), "age of these samples"},
    {NULL, 0, 0, NULL}};
static const mli_family mli_prom_tags[] = {
    {"tag_bytes", 'u', offsetof(mli_tag_line, stat.allocated),
     "bytes live by what they are for; an empty tag: those without one"},
    {"tag_peak_bytes", 'u', offsetof(mli_tag_line, stat.peak),
     "highest tag_bytes; of the rest: the sum of these"},
    {"tag_blocks", 'u', offsetof(mli_tag_line, stat.blocks), "storages live by what they are for"},
    {"tag_expected_bytes", 'u', offsetof(mli_tag_line, stat.expected), "bytes planned for a tag"},
    {"tag_variance_bytes", 'd', offsetof(mli_tag_line, stat.variance),
     "tag_bytes - tag_expected_bytes; may be below 0"},
    {NULL, 0, 0, NULL}};
static const mli_family mli_prom_scopes[] = {
    {"scope_invocations_total", 'u', offsetof(mli_scope_line, stat.count),
     "invocations of a scope that are over"},
    {"scope_running", 'u', offsetof(mli_scope_line, stat.running),
     "invocations of a scope that are not"},
    {"scope_seconds_total", 'X', offsetof(mli_scope_line, stat.ns.total),
     "time of the host in a scope"},
    {"scope_delta_bytes", 'd', offsetof(mli_scope_line, stat.bytes.total),
     "bytes a scope allocated less those it freed; may be below 0"},
    {"scope_peak_bytes", 'm', offsetof(mli_scope_line, stat.peak),
     "highest in one invocation, above where that began"},
    {NULL, 0, 0, NULL}};

static uint64_t mli_prom_value(const mli_family *f, const char *line) {
    uint64_t v;
    memcpy(&v, line + f->at, sizeof v);
    return v;
}
static int mli_prom_is_known(const mli_family *f, uint64_t v) {
    return v != (f->kind == 'd' ? (uint64_t)INT64_MIN : UINT64_MAX);
}
/* Adds the values of a line to those of the line `rest`. */
static MLI_COLD void mli_prom_add(const mli_family *f, char *rest, const char *line) {
    for (; f->name; f++) {
        uint64_t sum = mli_prom_value(f, rest), v = mli_prom_value(f, line);
        if (!mli_prom_is_known(f, v)) continue;
        if (!mli_prom_is_known(f, sum)) sum = 0;
        sum = f->kind != 'm' ? sum + v : v > sum ? v : sum;
        memcpy(rest + f->at, &sum, sizeof sum);
    }
}
/* Keeps the first MEMLORD_MAX_SERIES lines of each device in a list, and adds up its other lines in
   one line whose name is NULL. Keeps lines whose name is "". Returns how many lines are left. */
static MLI_COLD size_t mli_prom_limit(mli_prom_writer *w, const mli_family *f, char *lines,
                                      size_t size, size_t n) {
    char *line = lines, *to = lines;
    memset(w->named, 0, sizeof w->named);
    for (; n--; line += size) {
        mli_line *of = (mli_line *)(void *)line;
        uint32_t named = *of->name ? ++w->named[of->dev] : 0;
        if (named > MEMLORD_MAX_SERIES + 1u) {
            mli_prom_add(f, w->rest[of->dev], line);
            continue;
        }
        if (named == MEMLORD_MAX_SERIES + 1u) {
            of->name = NULL;
            w->rest[of->dev] = to;
        }
        memmove(to, line, size);
        to += size;
    }
    return (size_t)(to - lines) / size;
}

/* Writes a family of n lines, of `size` bytes each. `key` is the label of their names. */
static MLI_COLD void mli_prom_family(mli_prom_writer *w, const mli_family *f, const char *key,
                                     const void *lines, size_t size, size_t n) {
    size_t samples = 0;
    const char *line = (const char *)lines;
    for (; n-- && !w->x.o->failed; line += size) {
        const mli_line *of = (const mli_line *)(const void *)line;
        uint64_t v = mli_prom_value(f, line);
        if (!mli_prom_is_known(f, v)) continue;
        if (!samples++) mli_prom_head(w->x.o, f->name, f->help);
        mli_prom_sample(w, f->name, of->device, key, of->name, f->kind, v);
    }
}
/* Writes the families of a list of n lines. With a `key` the lines begin at index 1, and
   mli_prom_limit bounds their number. */
static MLI_COLD void mli_prom_list(mli_prom_writer *w, const mli_family *f, const char *key,
                                   void *lines, size_t size, size_t n) {
    char *first = (char *)lines;
    if (!lines) return;
    if (key) n = mli_prom_limit(w, f, first += size, size, n);
    for (; f->name; f++) mli_prom_family(w, f, key, first, size, n);
}

/* Returns 1 if a tag of a device has series of its own. Requires: mli_prom_limit has run. */
static MLI_COLD int mli_prom_named(const mli_prom_writer *w, uint32_t dev, const char *tag) {
    const mli_tag_line *line = w->x.r->tag + 1;
    uint32_t left = w->named[dev] < MEMLORD_MAX_SERIES ? w->named[dev] : MEMLORD_MAX_SERIES;
    for (; left; line++)
        if (line->of.dev == dev && line->of.name) {
            if (line->of.name == tag) return 1;
            left--;
        }
    return 0;
}
/* Writes the bytes by tag that each device had at its peak. Bytes without a tag, and of tags
   without series of their own, have an empty tag. Requires: mli_prom_limit has run on the tags. */
static MLI_COLD void mli_prom_holders(mli_prom_writer *w) {
    static const char name[] = "peak_holder_bytes";
    mli_holders *h = &w->x.r->holders;
    uint32_t i, families = 0;
    size_t k;
    for (i = 1; i <= w->x.devices; i++) {
        memlord_device d = mli_export_device(&w->x, i);
        uint64_t rest;
        if (!mli_holders_get(w->x.lord, i, h)) continue;
        if (!families++)
            mli_prom_head(w->x.o, name, "bytes live by tag when the peak was last looked at");
        for (k = 0, rest = h->bytes; k < h->tags; k++) {
            if (!h->tag[k].tag || !mli_prom_named(w, i, h->tag[k].tag)) continue;
            mli_prom_sample(w, name, d, "tag", h->tag[k].tag, 'u', h->tag[k].allocated);
            mli_take_off(&rest, h->tag[k].allocated);
        }
        mli_prom_sample(w, name, d, "tag", "", 'u', rest);
    }
}

/* Writes a metric family with a sample for each pair of devices between which bytes moved or were
   copied. `at` is the offset of the family's count in an mli_route. */
static MLI_COLD void mli_prom_routes(mli_prom_writer *w, const char *name, const char *help,
                                     size_t at) {
    const mli_route *route = NULL;
    int samples = 0;
    while ((route = mli_route_next(w->x.lord, route)) != NULL) {
        if (!samples++) mli_prom_head(w->x.o, name, help);
        mli_putf(w->x.o, "memlord_%s{from=\"%i\",to=\"%i\"", name,
                 mli_report_device(w->x.r, route->from), mli_report_device(w->x.r, route->to));
        mli_prom_labels_put(w, 2);
        mli_putf(w->x.o, "%ju\n",
                 mli_u64_load((const mli_u64 *)(const void *)((const char *)route + at)));
    }
}

/* Writes for each device the last request that found no memory. The site is a label. */
static MLI_COLD void mli_prom_ooms(mli_prom_writer *w) {
    static const mli_family families[] = {
        {"last_oom_bytes", 'u', offsetof(mli_oom, bytes),
         "bytes the last request that found no memory wanted"},
        {"last_oom_live_bytes", 'u', offsetof(mli_oom, live), "bytes live then"},
        {"last_oom_used_bytes", 'u', offsetof(mli_oom, used),
         "bytes of its physical device in use then"},
        {NULL, 0, 0, NULL}};
    const mli_family *f;
    for (f = families; f->name; f++) {
        uint32_t i, samples = 0;
        for (i = 1; i <= w->x.devices; i++) {
            const mli_oom oom = mli_oom_of(w->x.lord, i);
            uint64_t v;
            memcpy(&v, (const char *)&oom + f->at, sizeof v);
            if (!oom.time || v == UINT64_MAX) continue;
            if (!samples++) mli_prom_head(w->x.o, f->name, f->help);
            mli_putf(w->x.o, "memlord_%s{device=\"%i\"", f->name, mli_report_device(w->x.r, i));
            if (oom.site) {
                mli_put_str(w->x.o, ",site=\"");
                mli_put_site_by(w->x.o, oom.site, mli_prom_text);
                mli_put_str(w->x.o, "\"");
            }
            mli_prom_labels_put(w, 1 + (oom.site != NULL));
            mli_putf(w->x.o, "%ju\n", v);
        }
    }
}

/* Writes which process the samples are of. A label of the ledger replaces one of the same name. */
static MLI_COLD void mli_prom_info(mli_prom_writer *w) {
    const char *const labels[][2] = {{"program", w->x.r->who.program}, {"host", w->x.r->who.host}};
    size_t i;
    mli_prom_head(w->x.o, "info", "1, with the process that these samples are of");
    mli_put_str(w->x.o, "memlord_info{version=\"" MEMLORD_VERSION "\"");
    for (i = 0; i < 2; i++) {
        if (mli_prom_label_in(w->label, labels[i][0], strlen(labels[i][0]))) continue;
        mli_putf(w->x.o, ",%s=\"", labels[i][0]);
        mli_prom_text(w->x.o, labels[i][1]);
        mli_put_str(w->x.o, "\"");
    }
    if (!mli_prom_label_in(w->label, "pid", 3)) mli_putf(w->x.o, ",pid=\"%ju\"", mli_pid());
    mli_prom_labels_put(w, 1);
    mli_put_str(w->x.o, "1\n");
}

static MLI_COLD void mli_prom_write(void *writer) {
    mli_prom_writer *w = (mli_prom_writer *)writer;
    const mli_report *r = w->x.r;
    size_t i;
    mli_prom_labels(w);
    mli_prom_devices(w);
    mli_prom_rates(w);
    mli_prom_ooms(w);
    mli_prom_list(w, mli_prom_phys, NULL, r->phys, sizeof *r->phys, r->phys_count);
    mli_prom_list(w, mli_prom_tags, "tag", r->tag, sizeof *r->tag, r->tags + r->devices);
    mli_prom_holders(w);
    mli_prom_routes(w, "pair_moves_total", "storages moved between two devices",
                    offsetof(mli_route, moves));
    mli_prom_routes(w, "pair_moved_bytes_total", "bytes moved between two devices",
                    offsetof(mli_route, moved_bytes));
    mli_prom_routes(w, "pair_copies_total", "copies between two devices",
                    offsetof(mli_route, copies));
    mli_prom_routes(w, "pair_copied_bytes_total", "bytes copied between two devices",
                    offsetof(mli_route, copied_bytes));
    mli_prom_list(w, mli_prom_scopes, "scope", r->scope, sizeof *r->scope, r->scopes);
    for (i = MLI_STAT_COUNT; i < MLI_COLUMNS; i++)
        mli_prom_whole(w, mli_families[i][0], mli_families[i][1], 'u',
                       mli_loss_value(w->x.lord, i - MLI_STAT_COUNT));
    mli_prom_whole(w, "accounts_open", "accounts open now", 'u', w->x.r->accounts);
    mli_prom_whole(w, "own_bytes", "bytes the ledger itself takes", 'u',
                   mli_own_bytes(w->x.lord));
    mli_prom_whole(w, "uptime_seconds", "age of the ledger", 'X', w->x.r->uptime);
    mli_prom_whole(w, "written_timestamp_seconds", "Unix time of these samples", 'X',
                   mli_wall_now());
    mli_prom_whole(w, "start_time_seconds", "Unix time when the ledger was made", 'X',
                   w->x.lord->started_wall);
    mli_prom_info(w);
}
MLI_PRIVATE MLI_COLD void mli_prometheus(mli_report *r) {
    mli_export_run(r, sizeof(mli_prom_writer), mli_prom_write);
}

/* -- CSV, RFC 4180: one table with the live blocks --
   Each block is one line, which ends in CR LF, below a line of names. Text is as in TEXT: control
   characters are escaped like bytes that are not UTF-8, so that a block stays one line. Names come
   from model files, so a text may begin with = + - or @, which a spreadsheet would take for a
   formula. Such text gets an apostrophe before it. So does text that begins with an apostrophe, so
   that a reader can always remove one. `shape` reads as JSON. The parts of a block follow it, one
   line each. A part repeats the block's device, storage, site and stream, and has its own tag and
   description. It has a `part_offset` and a `part_bytes`, and 0 in `bytes` and `refs`, so that
   `bytes` add up to the live bytes. Anomalies and drops are left out, because readers know no
   comments. */

static MLI_COLD void mli_csv_text(mli_out *o, const char *text) {
    mli_put_str(o, ",");
    if (!text || !*text) return;
    mli_put_str(o, "\"");
    if (strchr("=+-@'", *text)) mli_put_str(o, "'");
    mli_put_escaped(o, text, '"', "\"\"");
    mli_put_str(o, "\"");
}

/* Writes a line of the table, up to the columns of parts. */
static MLI_COLD void mli_csv_line(mli_out *o, const memlord_block_info *b) {
    mli_putf(o, "%i,0x", mli_device_code(b->device));
    mli_put_hex_short(o, b->storage);
    mli_putf(o, ",%ju,%ju,%ju,%ju", b->bytes, b->refs, b->born, (uint64_t)(b->pending != 0));
    mli_csv_text(o, b->tag);
    mli_csv_text(o, b->scope);
    mli_csv_text(o, b->meta.name);
    mli_csv_text(o, b->meta.dtype);
    mli_put_str(o, b->meta.rank ? ",\"" : ",");
    mli_put_shape(o, &b->meta, ",");
    mli_putf(o, b->meta.rank ? "\",%ju" : ",%ju", (uint64_t)b->meta.flags);
    mli_csv_text(o, b->site ? b->site->file : NULL);
    mli_putf(o, ",%ju", mli_site_line(b->site));
    mli_csv_text(o, b->site ? b->site->function : NULL);
}
/* Writes the last column, the stream of the block, and ends the line. */
static MLI_COLD void mli_csv_end(mli_out *o, const memlord_block_info *b) {
    mli_put_str(o, b->stream ? ",0x" : ",");
    if (b->stream) mli_put_hex_short(o, b->stream);
    mli_put_str(o, "\r\n");
}
/* What mli_csv_part needs to write the lines of a block's parts. */
typedef struct mli_csv_whole {
    mli_report *r;
    const memlord_block_info *block;
} mli_csv_whole;
/* Writes the line of a part, which has 0 in the columns `bytes` and `refs`. */
static MLI_COLD int mli_csv_part(void *user, const memlord_part_info *part) {
    const mli_csv_whole *whole = (const mli_csv_whole *)user;
    memlord_block_info b = *whole->block;
    b.bytes = b.refs = 0;
    b.meta = part->meta;
    b.tag = part->meta.tag;
    mli_csv_line(whole->r->o, &b);
    mli_putf(whole->r->o, ",%ju,%ju", part->offset, part->bytes);
    mli_csv_end(whole->r->o, &b);
    return whole->r->o->failed;
}
static MLI_COLD int mli_csv_block(void *user, const memlord_block_info *b) {
    mli_csv_whole whole;
    whole.r = (mli_report *)user;
    whole.block = b;
    mli_csv_line(whole.r->o, b);
    mli_put_str(whole.r->o, ",,");
    mli_csv_end(whole.r->o, b);
    (void)memlord_parts_each(whole.r->lord, b->device, b->storage, mli_csv_part, &whole);
    return whole.r->o->failed;
}

MLI_PRIVATE MLI_COLD void mli_csv(mli_report *r) {
    mli_walk_query all = mli_walk_query_of(memlord_device_all());
    mli_put_str(r->o, "device,storage,bytes,refs,born,pending,tag,scope,name,dtype,shape,"
                      "flags,file,line,function,part_offset,part_bytes,stream\r\n");
    if (mli_map_each(r->lord, &all, mli_csv_block, r, NULL)) r->result = MEMLORD_E_NOMEM;
}

/* -- TIMELINE, a CSV file with the snapshots --
   Each snapshot has lines for each device: one for each of the largest tags, and a last one without
   a tag, for the rest. So the live bytes of the lines of a device add up to its own. Every line has
   the peak of its device until then. */

static MLI_COLD void mli_timeline_line(mli_report *r, const mli_snapshot *s, uint32_t dev,
                                       const char *tag, uint64_t bytes) {
    mli_put_fixed(r->o, s->time, 9);
    mli_putf(r->o, ",%i", mli_report_device(r, dev));
    mli_csv_text(r->o, tag);
    mli_putf(r->o, ",%ju,%ju\r\n", bytes, mli_snapshot_devices(s)[dev - 1].peak);
}
static MLI_COLD void mli_timeline_device(mli_report *r, const mli_snapshot *s, uint32_t dev) {
    uint64_t rest = mli_snapshot_devices(s)[dev - 1].live;
    uint32_t i, n;
    const mli_holding *held = mli_snapshot_holdings(s, dev, MLI_BOOK_TAG, &n);
    for (i = 0; i < n; i++) {
        const uint32_t row = held[i].row;
        if (!row) continue; /* the bytes without a tag are in the last line */
        mli_timeline_line(r, s, dev, (const char *)mli_row_at(r->lord, MLI_BOOK_TAG, row)->subject,
                          held[i].bytes);
        mli_take_off(&rest, held[i].bytes);
    }
    mli_timeline_line(r, s, dev, NULL, rest);
}
MLI_PRIVATE MLI_COLD void mli_timeline(mli_report *r) {
    uint32_t i, dev;
    mli_put_str(r->o, "seconds,device,tag,live,peak\r\n");
    for (i = 0; i < r->snapshots; i++)
        for (dev = 1; dev <= r->snapshot[i]->devices && dev <= r->devices; dev++)
            mli_timeline_device(r, r->snapshot[i], dev);
}
#endif
