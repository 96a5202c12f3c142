#include "reports/answers.h"
#include "os/system.h"
#include "base/ledger.h"
#include "base/log.h"
#include "books/counters.h"
#include "books/limits.h"
#include "books/anomalies.h"
#include "books/sites.h"
#include "services/answers.h"
#include "services/stats.h"
#include "services/room.h"
#include "services/snapshots.h"
#include "reports/callers.h"
#include "reports/growth.h"

/* -- anomalies and drops -- */

#define MLI_ANOMALIES_SAID 6 /* how many anomalies of a device one sentence names */
enum { MLI_ANOMALY_LOSSES = 2, MLI_ANOMALY_MISTAKES = 6 }; /* how many of each kind follow */
/* The statistics that are anomalies or drops, from the heaviest to the lightest: those that make
   totals too low, then mistakes of the host, then detail that was lost. */
static const unsigned char mli_anomaly_columns[] = {
    MLI_STAT_dropped_allocs,
    MLI_STAT_dropped_bytes,
    MLI_STAT_unknown_frees,
    MLI_STAT_implicit_frees,
    MLI_STAT_freed_while_shared,
    MLI_STAT_underflows,
    MLI_STAT_fence_failures,
    MLI_STAT_refused,
    MLI_STAT_dropped_sites,
    (int)MLI_STAT_COUNT + (int)MLI_LOST_scopes,
    (int)MLI_STAT_COUNT + (int)MLI_LOST_exports,
    (int)MLI_STAT_COUNT + (int)MLI_LOST_scope_invocations,
    (int)MLI_STAT_COUNT + (int)MLI_LOST_snapshots,
    MLI_STAT_dropped_events};
#define MLI_X(name, kind, family, text) +(MLI_KIND_##kind == MLI_KIND_ANOMALY)
typedef char mli_check_anomalies
    [sizeof mli_anomaly_columns == (0 MLI_STATS(MLI_X)) + (int)MLI_LOSS_COUNT ? 1 : -1];
#undef MLI_X

MLI_PRIVATE MLI_COLD const char *mli_anomaly_next(mli_report *r, uint32_t dev, size_t *i,
                                                  uint64_t *v) {
    memlord_stats *s = dev ? &r->stat[dev - 1] : &r->total;
    while (*i < sizeof mli_anomaly_columns) {
        size_t at = mli_anomaly_columns[(*i)++];
        if (dev && at >= MLI_STAT_COUNT) continue;
        *v = at < MLI_STAT_COUNT ? *mli_stat_of(s, at)
                                 : mli_loss_value(r->lord, at - MLI_STAT_COUNT);
        if (*v) return mli_column_names[at];
    }
    return NULL;
}
/* Writes an anomaly, as in "unknown_frees 1": that before index `i` of mli_anomaly_columns. */
static MLI_COLD void mli_put_anomaly(mli_out *o, size_t i, const char *name, uint64_t v) {
    mli_putf(o, mli_anomaly_columns[i - 1] == MLI_STAT_dropped_bytes ? "%s %jo" : "%s %ju", name,
             v);
}
MLI_PRIVATE memlord_device mli_anomaly_device(const mli_report *r, uint32_t dev) {
    return dev ? mli_device_record_at(r->lord, dev)->device : memlord_device_all();
}

MLI_PRIVATE MLI_COLD void mli_text_anomalies(mli_report *r, mli_out *o, const char *head,
                                             uint32_t dev) {
    const char *name;
    size_t i = 0;
    uint64_t v, n = 0;
    while ((name = mli_anomaly_next(r, dev, &i, &v)) != NULL) {
        if (!n) {
            mli_put_str(o, head);
            mli_put_device(o, mli_anomaly_device(r, dev));
        }
        mli_put_str(o, n++ ? ", " : " ");
        mli_put_anomaly(o, i, name, v);
    }
    if (n) mli_put_str(o, "\n");
}

/* -- the verdicts -- A verdict has a kind, and a part for each of at most MLI_FIRST_DEVICES
   devices. The head of the kind and one part are a sentence of at most 25 words, where a name
   counts as one. A part is composed in r->part_text, and each format writes it in its own way. */

/* The kinds of verdicts in their order, with a name for JSON, a head, and a word for how bad it is,
   or "". Anomalies that lost bytes are bad, and come earlier (see mli_verdicts_write). */
#define MLI_VERDICTS(X)                                                                       \
    X(out_of_memory, "out of memory", "bad")                                                  \
    X(over_limit, "over a limit", "bad")                                                      \
    X(full, "nearly full", "bad")                                                             \
    X(leaks, "leaks since mark", "bad")                                                       \
    X(growth, "growth", "odd")                                                                \
    X(peak, "peak", "")                                                                       \
    X(holders, "biggest holder", "")                                                          \
    X(anomalies, "anomalies and drops", "odd")                                                \
    X(mistakes, "mistakes", "odd")                                                            \
    X(collections, "collections that did not run", "odd")                                     \
    X(fragments, "fragmented pool", "odd")
enum {
#define MLI_X(name, head, tone) MLI_VERDICT_##name,
    MLI_VERDICTS(MLI_X)
#undef MLI_X
    MLI_VERDICT_COUNT
};
static const char *const mli_verdict_texts[MLI_VERDICT_COUNT][3] = {
#define MLI_X(name, head, tone) {#name, head, tone},
    MLI_VERDICTS(MLI_X)
#undef MLI_X
};
enum { MLI_VERDICT_NAME, MLI_VERDICT_HEAD, MLI_VERDICT_TONE };

typedef struct mli_verdict_writer {
    mli_report *r;
    int json, kind;  /* json: 1 for JSON, 0 for TEXT; kind: the kind that is being written */
    int lost;        /* 1: some anomalies lost bytes, so that totals are too low */
    size_t parts;    /* how many parts the kind has so far */
    uint64_t bytes;  /* the bytes of the parts that are left out */
    size_t sentences;   /* TEXT: how many sentences there were so far */
    size_t first, last; /* TEXT: only sentences `first` to `last` - 1 are written, numbered from
                           0 */
    mli_out part;    /* the text of the part that is being composed */
    const memlord_site *site; /* the site that the part names, or NULL */
    const char *tag;          /* the tag that the part names, or NULL */
} mli_verdict_writer;

/* Begins a part that tells of `bytes` bytes, and returns the output for its text. If the kind
   already has MLI_FIRST_DEVICES parts, returns NULL, and adds `bytes` to w->bytes. */
static MLI_COLD mli_out *mli_part_begin(mli_verdict_writer *w, uint64_t bytes) {
    if (w->parts++ >= MLI_FIRST_DEVICES) {
        w->bytes = mli_add_saturated(w->bytes, bytes);
        return NULL;
    }
    mli_out_buffer(&w->part, w->r->part_text, sizeof w->r->part_text);
    w->part.name_max = MLI_TEXT_NAME;
    w->part.html = w->json ? 0 : w->r->out.html;
    w->site = NULL;
    w->tag = NULL;
    return &w->part;
}
/* Writes the head of a kind of verdict; that of the leaks with the mark: "leaks since mark 1". */
static MLI_COLD void mli_verdict_head(const mli_verdict_writer *w) {
    mli_put_str(w->r->o, mli_verdict_texts[w->kind][MLI_VERDICT_HEAD]);
    if (w->kind == MLI_VERDICT_leaks) mli_putf(w->r->o, " %ju", w->r->mark);
}
/* Writes a part's text in a JSON string. The names in the text are escaped already. Adds the
   escapes of JSON, and those that keep a name from ending the page's script element. */
static MLI_COLD void mli_json_composed(mli_out *o, const char *text) {
    for (; *text; text++) {
        if (!strchr("\"\\<>&", *text)) {
            mli_put(o, text, 1);
            continue;
        }
        mli_put_str(o, "\\u");
        mli_put_digits(o, (unsigned char)*text, 16, 4);
    }
}
static MLI_COLD void mli_part_json(mli_verdict_writer *w, const int *device) {
    mli_out *o = w->r->o;
    if (w->parts == 1) {
        const char *tone = mli_verdict_texts[w->kind][MLI_VERDICT_TONE];
        if (w->kind == MLI_VERDICT_anomalies && w->lost) tone = "bad";
        mli_jsonf(o, ",\n{'kind':%s,'tone':%s,'head':'",
                  mli_verdict_texts[w->kind][MLI_VERDICT_NAME], tone);
        mli_verdict_head(w);
        mli_jsonf(o, "','parts':[");
    }
    mli_jsonf(o, device ? ",\n{'device':'%i'" : ",\n{'device':null", device ? *device : 0);
    mli_jsonf(o, ",'text':'");
    mli_json_composed(o, w->r->part_text);
    mli_jsonf(o, "','site':%p,'tag':%s}", (const void *)w->site, w->tag);
}
/* Writes the head of a sentence of TEXT. Returns 0 if the sentence is not to be written. */
static MLI_COLD int mli_sentence_begin(mli_verdict_writer *w) {
    const size_t number = w->sentences++;
    if (number < w->first || number >= w->last) return 0;
    mli_verdict_head(w);
    return 1;
}
/* Writes a composed part. `device` has the code of its device, or is NULL. */
static MLI_COLD void mli_part_put(mli_verdict_writer *w, const int *device) {
    mli_out *o = w->r->o;
    (void)mli_out_end(&w->part, sizeof w->r->part_text);
    if (w->json) {
        mli_part_json(w, device);
        return;
    }
    if (!mli_sentence_begin(w)) return;
    if (device) mli_putf(o, ", %i", *device);
    mli_put_str(o, ": ");
    mli_put_str(o, w->r->part_text);
    mli_put_str(o, "\n");
}
/* Ends a kind of verdict: writes how many of its parts were left out, and their bytes. */
static MLI_COLD void mli_verdict_end(mli_verdict_writer *w) {
    const uint64_t more = w->parts > MLI_FIRST_DEVICES ? w->parts - MLI_FIRST_DEVICES : 0;
    mli_out *o = w->r->o;
    if (w->parts && w->json) {
        mli_jsonf(o, "],'more':%ju,'more_bytes':%ju}", more, w->bytes);
    } else if (more && mli_sentence_begin(w)) {
        mli_putf(o, ": and %ju more", more);
        if (w->bytes) mli_putf(o, ", %jo", w->bytes);
        mli_put_str(o, "\n");
    }
    w->parts = 0;
    w->bytes = 0;
}

/* Writes a verdict such as "out of memory, cuda:0: 9 GiB wanted with 5 GiB live at grow cache.c:7,
   1 GiB short, 1 failed". "1 GiB short" is how much the device lacked at that moment. */
static MLI_COLD void mli_verdict_out_of_memory(mli_verdict_writer *w) {
    mli_report *r = w->r;
    size_t i;
    for (i = 0; i < r->devices; i++) {
        const uint32_t dev = (uint32_t)r->top_device[i][1];
        const int device = mli_report_device(r, dev);
        const mli_oom oom = mli_oom_of(r->lord, dev);
        const mli_phys_line *phys = mli_report_phys(r, dev);
        mli_out *o;
        if (!oom.time || !r->stat[dev - 1].oom_failures) continue;
        if ((o = mli_part_begin(w, 0)) == NULL) continue;
        mli_putf(o, "%jo wanted with %jo live", oom.bytes, oom.live);
        if (oom.site) mli_putf(o, " at %p", (const void *)oom.site);
        if (oom.used != UINT64_MAX && phys && phys->total != UINT64_MAX &&
            mli_add_saturated(oom.used, oom.bytes) > phys->total)
            mli_putf(o, ", %jo short", mli_add_saturated(oom.used, oom.bytes) - phys->total);
        mli_putf(o, ", %ju failed", r->stat[dev - 1].oom_failures);
        w->site = oom.site;
        mli_part_put(w, &device);
    }
}

/* Writes such as "over a limit, cuda:0: 5 GiB of 4 GiB; cpu: account req-7 3 MiB of 2 MiB". */
static MLI_COLD void mli_verdict_over_limit(mli_verdict_writer *w) {
    mli_report *r = w->r;
    mli_out *o;
    int device;
    size_t i;
    for (i = 0; i < r->phys_count; i++) {
        const mli_phys_line *line = &r->phys[i];
        uint64_t live = 0;
        uint32_t dev;
        for (dev = 1; dev <= r->devices; dev++) /* with mapped files, which the limit counts */
            if (mli_report_phys(r, dev) == line) live += r->stat[dev - 1].allocated;
        if (live <= line->limit || (o = mli_part_begin(w, live)) == NULL) continue;
        mli_putf(o, "%jo of %jo", live, line->limit);
        device = mli_device_code(line->of.device);
        mli_part_put(w, &device);
    }
    for (i = 0; i < r->account_lines; i++) {
        const memlord_account_stat *s = &r->account[i];
        /* passes 0, because the bytes of an account are also bytes of its device */
        if (s->bytes <= s->limit || (o = mli_part_begin(w, 0)) == NULL) continue;
        mli_putf(o, "account %s %jo of %jo", s->name, s->bytes, s->limit);
        device = mli_device_code(s->device);
        mli_part_put(w, &device);
    }
}

/* Writes who holds most of a physical device: the largest other process, or all other processes
   together if the largest is not known, and then the largest tag. Leaves out the other processes
   if they all together hold no more than this ledger. */
static MLI_COLD void mli_full_holders(mli_verdict_writer *w, const mli_phys_line *line) {
    const memlord_capacity sample = mli_phys_sample_of(line->phys);
    mli_out *o = &w->part;
    mli_holder_list tags;
    if (line->others != UINT64_MAX && line->others > line->self) {
        if (sample.others[0].pid) {
            char name[32];
            mli_process_name(w->r->lord, sample.others[0].pid, name, sizeof name);
            mli_putf(o, "; process %ju %s holds %jo", sample.others[0].pid, name,
                     sample.others[0].bytes);
        } else {
            mli_putf(o, "; other processes hold %jo", line->others);
        }
    }
    mli_holders_list(w->r->lord, line->phys, 0, MLI_BOOK_TAG, &tags);
    if (!tags.named) return;
    mli_put_str(o, tags.at[0].kind == MLI_HOLDER_NAMED ? "; tag " : "; ");
    mli_put_holder(w->r->lord, o, MLI_BOOK_TAG, &tags.at[0]);
    mli_putf(o, " holds %jo", tags.at[0].bytes);
    if (tags.at[0].kind == MLI_HOLDER_NAMED) w->tag = (const char *)tags.at[0].subject;
}
/* Writes a verdict such as "nearly full, cuda:0: 512 MiB of 24 GiB free; process 77 serve holds 20
   GiB; tag weights holds 3 GiB", but only for a physical device that is at least 95 % full. */
static MLI_COLD void mli_verdict_full(mli_verdict_writer *w) {
    size_t i;
    for (i = 0; i < w->r->phys_count; i++) {
        const mli_phys_line *line = &w->r->phys[i];
        const int device = mli_device_code(line->of.device);
        mli_out *o;
        if (line->total == UINT64_MAX || line->free > line->total / 20) continue;
        if ((o = mli_part_begin(w, 0)) == NULL) continue;
        mli_putf(o, "%jo of %jo free", line->free, line->total);
        mli_full_holders(w, line);
        mli_part_put(w, &device);
    }
}

MLI_PRIVATE MLI_COLD void mli_put_leak_site(mli_report *r, mli_out *o, const mli_leak_site *s) {
    if (s->devices == 1) mli_putf(o, " %i", mli_report_device(r, s->dev));
    if (s->devices > 1) mli_putf(o, " %ju devices", (uint64_t)s->devices);
    if (s->tags == 1) mli_putf(o, s->untagged ? " partly [%s]" : " [%s]", s->tag);
    if (s->tags > 1) mli_putf(o, " with %ju tags", (uint64_t)s->tags);
    if (s->scopes == 1) mli_putf(o, s->unscoped ? " partly in %s" : " in %s", s->scope);
    if (s->scopes > 1) mli_putf(o, " in %ju scopes", (uint64_t)s->scopes);
    mli_putf(o, "  %p", (const void *)mli_leak_site_of(&r->leak_sites, s));
}
/* Writes a verdict such as "leaks since mark 1: 3 MiB in 2 blocks, 2 MiB of them cpu [kv] f x.c:3".
   Writes nothing if the host has set no mark, because every live block would then be a leak. */
static MLI_COLD void mli_verdict_leaks(mli_verdict_writer *w) {
    mli_report *r = w->r;
    const mli_leak_site *most = &r->leak_sites.line[0];
    mli_out *o;
    if (!r->mark || !r->leaks.blocks || (o = mli_part_begin(w, 0)) == NULL) return;
    mli_put_amount(o, r->leaks.bytes, r->leaks.blocks);
    if (most->bytes) {
        mli_putf(o, ", %jo of them", most->bytes);
        mli_put_leak_site(r, o, most);
        w->site = mli_leak_site_of(&r->leak_sites, most);
    }
    mli_part_put(w, NULL);
}

/* Returns 1 if less than a quarter of a device's peak is still live, as at the end of a program.
   The holders at the peak then tell more than the holders of the live bytes. */
static int mli_peak_tells(const mli_report *r, uint32_t dev) {
    return r->stat[dev - 1].allocated < r->stat[dev - 1].peak / 4;
}

/* Writes the caller that more than half of a site's bytes come from, as in ", mostly from load
   loader.c:10", if any. Takes the bytes at the peak if `peak` is 1, else the live bytes. */
static MLI_COLD void mli_put_caller(mli_verdict_writer *w, const memlord_site *site, uint32_t dev,
                                    int peak) {
    const memlord_site *most = NULL;
    const mli_callers *callers;
    uint64_t sum = 0, highest = 0;
    size_t i;
    if (site == &mli_arena_site) return;
    callers = mli_callers_of(w->r, mli_row_of(w->r->lord, MLI_BOOK_SITE, site, dev));
    for (i = 0; callers && i < callers->count; i++) {
        const uint64_t bytes = peak ? callers->at[i].at_peak_bytes : callers->at[i].live_bytes;
        sum += bytes;
        if (bytes <= highest) continue;
        highest = bytes;
        most = callers->at[i].at;
    }
    if (!most || highest <= sum / 2) return;
    mli_putf(&w->part, highest < sum ? ", mostly from %p" : ", from %p", (const void *)most);
}
/* Returns the series of a device that grows fastest: that of a tag, of a site or of the device
   itself, as `book` says. Returns NULL if none of these grows. */
static const mli_series *mli_grower(const mli_report *r, uint32_t dev, int book) {
    size_t i;
    for (i = 0; i < r->series.growing; i++)
        if (r->series.grows[i].dev == dev && r->series.grows[i].book == book)
            return &r->series.grows[i];
    return NULL;
}
/* Writes "tag kv_cache grows", "untagged grows", "site f x.c:3 grows" or "it grows". */
static MLI_COLD void mli_growth_subject(mli_verdict_writer *w, const mli_series *s) {
    w->site = mli_series_site(w->r->lord, s);
    w->tag = mli_series_tag(w->r->lord, s);
    if (w->site)
        mli_putf(&w->part, "site %p grows", (const void *)w->site);
    else if (w->tag)
        mli_putf(&w->part, "tag %s grows", w->tag);
    else
        mli_put_str(&w->part, s->book == MLI_BOOK_TAG ? "untagged grows" : "it grows");
}
/* Returns what a verdict on the growth of a device names: the tag that grows fastest, or else the
   site, or else the device. Returns NULL if nothing grows, or less than a quarter of the peak is
   live. Sets *site to the site that grows fastest, or to NULL. */
static const mli_series *mli_growth_of(const mli_report *r, uint32_t dev, const mli_series **site) {
    const mli_series *most = mli_grower(r, dev, MLI_BOOK_TAG);
    *site = mli_grower(r, dev, MLI_BOOK_SITE);
    if (*site && !(*site)->row) *site = NULL; /* leaves out the bytes without a site */
    if (mli_peak_tells(r, dev)) return NULL;
    if (!most) most = *site;
    return most ? most : mli_grower(r, dev, MLI_BOOK_DEVICE);
}
/* Writes a verdict such as "growth, cpu: tag kv_cache grows by 96 MiB a minute since 14:02:07 UTC,
   82 % of it at cache_put store.c:41", the fastest growth first. */
static MLI_COLD void mli_verdict_growth(mli_verdict_writer *w) {
    mli_report *r = w->r;
    size_t i;
    for (i = 0; i < r->series.growing; i++) {
        const mli_series *most = &r->series.grows[i], *site;
        const int device = mli_report_device(r, most->dev);
        mli_out *o;
        if (most != mli_growth_of(r, most->dev, &site)) continue;
        if ((o = mli_part_begin(w, most->rate)) == NULL) continue;
        mli_growth_subject(w, most);
        mli_putf(o, " by %jo a minute since ", most->rate);
        mli_put_clock(o, (r->lord->started_wall + r->series.snapshot[most->since]->time) /
                             1000000000u);
        mli_put_str(o, " UTC");
        if (site) w->site = mli_series_site(r->lord, site);
        if (site && most->book == MLI_BOOK_TAG)
            mli_putf(o, ", %g of it at %p", mli_share_of_live(site->rate, most->rate),
                     (const void *)w->site);
        if (site) mli_put_caller(w, w->site, site->dev, 0);
        mli_part_put(w, &device);
    }
}

/* Returns 1 if the first holder in a list of holders by tag is worth a verdict. It is not if it
   holds less than 1 % of `live`, or if all bytes are untagged and the ledger has no tag. */
static int mli_holder_tells(const mli_report *r, const mli_holder_list *list, uint64_t live) {
    if (!list->count || list->at[0].bytes < live / 100) return 0;
    return list->count > 1 || list->at[0].kind == MLI_HOLDER_ARENA || r->tags != 0;
}
/* Returns the first site or arena in a list of holders by site. Returns NULL if the list has
   neither, or if the first holds less than 1 % of `live`. */
static const mli_holder *mli_holder_site(const mli_holder_list *list, uint64_t live) {
    size_t i;
    for (i = 0; i < MLI_HOLDERS_LISTED && list->at[i].bytes; i++)
        if (list->at[i].kind != MLI_HOLDER_UNNAMED)
            return list->at[i].bytes < live / 100 ? NULL : &list->at[i];
    return NULL;
}
/* Writes a part such as "tag weights 90 %, site load loader.c:10 79 % of 2.55 GiB". The tag and the
   site may be of different blocks, so each has its own share. If the arenas, or the bytes without
   a tag, are more than the bytes of any tag, writes "arenas" or "untagged" in place of the tag.
   Leaves out a tag that mli_holder_tells rejects. */
static MLI_COLD void mli_verdict_holder(mli_verdict_writer *w, uint32_t dev) {
    mli_report *r = w->r;
    const uint64_t live = r->stat[dev - 1].allocated;
    const int device = mli_report_device(r, dev);
    mli_holder_list tags, sites;
    const mli_holder *site;
    mli_out *o;
    int tells;
    mli_holders_list(r->lord, NULL, dev, MLI_BOOK_TAG, &tags);
    mli_holders_list(r->lord, NULL, dev, MLI_BOOK_SITE, &sites);
    site = mli_holder_site(&sites, live);
    tells = mli_holder_tells(r, &tags, live);
    if (tells && site && tags.at[0].kind == MLI_HOLDER_ARENA && site->kind == MLI_HOLDER_ARENA)
        site = NULL; /* the arena is already written in place of the tag */
    if (!live || !(tells || site) || mli_peak_tells(r, dev)) return;
    if ((o = mli_part_begin(w, live)) == NULL) return;
    if (tells) {
        if (tags.at[0].kind == MLI_HOLDER_NAMED) {
            mli_put_str(o, "tag ");
            w->tag = (const char *)tags.at[0].subject;
        }
        mli_put_holder(r->lord, o, MLI_BOOK_TAG, &tags.at[0]);
        mli_putf(o, " %g", mli_share_of_live(tags.at[0].bytes, live));
    }
    if (site) {
        w->site = mli_site_display_of(r->lord, mli_holder_place(site));
        mli_putf(o, tells ? ", site %p %g" : "site %p %g", (const void *)w->site,
                 mli_share_of_live(site->bytes, live));
    }
    mli_putf(o, r->ended ? " of %jo still live at the end" : " of %jo", live);
    if (site) mli_put_caller(w, mli_holder_place(site), dev, 0);
    mli_part_put(w, &device);
}
static MLI_COLD void mli_verdict_holders(mli_verdict_writer *w) {
    size_t i;
    for (i = 0; i < w->r->devices; i++)
        mli_verdict_holder(w, (uint32_t)w->r->top_device[i][1]);
}

/* Returns the tag that held most of a device at its peak. The bytes without a tag count as one tag.
   Returns NULL if nothing had a tag, or if the largest tag held less than 1 %. */
static const memlord_tag_stat *mli_peak_tag(const mli_holders *h) {
    const memlord_tag_stat *largest = NULL;
    size_t i;
    if (h->tags == 1 && !h->tag[0].tag) return NULL;
    for (i = 0; i < h->tags; i++)
        if (!largest || h->tag[i].allocated > largest->allocated) largest = &h->tag[i];
    return largest && largest->allocated >= h->bytes / 100 ? largest : NULL;
}
/* Writes a verdict such as "peak, cpu: 2.55 GiB, tag weights 90 %, site load loader.c:10 79 %; 12
   KiB left". If the live bytes were more than a 64th below the peak when the holders were noted,
   also writes these bytes, because the percentages are of them. */
static MLI_COLD void mli_verdict_peak(mli_verdict_writer *w) {
    mli_report *r = w->r;
    mli_holders *h = &r->holders;
    size_t i;
    for (i = 0; i < r->devices; i++) {
        const uint32_t dev = (uint32_t)r->top_device[i][1];
        const memlord_stats *s = &r->stat[dev - 1];
        const int device = mli_report_device(r, dev);
        const memlord_tag_stat *tag;
        mli_out *o;
        if (!mli_peak_tells(r, dev) || (o = mli_part_begin(w, 0)) == NULL) continue;
        mli_putf(o, "%jo", s->peak);
        memset(h, 0, sizeof *h);
        (void)mli_holders_get(r->lord, dev, h);
        tag = mli_peak_tag(h);
        if (tag) {
            mli_putf(o, tag->tag ? ", tag %s" : ", untagged", tag->tag);
            mli_putf(o, " %g", mli_share_of_live(tag->allocated, h->bytes));
            w->tag = tag->tag;
        }
        if (h->sites && h->site[0].live_bytes >= h->bytes / 100) {
            w->site = h->site[0].site;
            mli_putf(o, ", site %p %g", (const void *)w->site,
                     mli_share_of_live(h->site[0].live_bytes, h->bytes));
            mli_put_caller(w, w->site, dev, 1);
        }
        if ((tag || w->site) && h->bytes < s->peak - s->peak / 64)
            mli_putf(o, " of %jo", h->bytes);
        mli_putf(o, "; %jo left", s->allocated);
        mli_part_put(w, &device);
    }
}

/* Finds the next anomaly or drop as mli_anomaly_next does, but leaves out the counts of scope
   invocations and of snapshots that are no longer kept. These counts show no fault, because the
   lists of both are bounded. If dev is 0, finds the counts that belong to no device. */
static MLI_COLD const char *mli_anomaly_own(mli_report *r, uint32_t dev, size_t *i, uint64_t *v) {
    const char *name;
    uint32_t k;
    while ((name = mli_anomaly_next(r, dev, i, v)) != NULL) {
        const size_t at = mli_anomaly_columns[*i - 1];
        if (at == (size_t)MLI_STAT_COUNT + MLI_LOST_scope_invocations ||
            at == (size_t)MLI_STAT_COUNT + MLI_LOST_snapshots)
            continue;
        for (k = 0; !dev && k < r->devices && at < MLI_STAT_COUNT; k++)
            mli_take_off(v, *mli_stat_of(&r->stat[k], at));
        if (*v) break;
    }
    return name;
}
/* Returns the weight of a device's anomalies, or 0. The heaviest kind decides, and then the number
   of anomalies or, if bytes were lost, of bytes. */
static MLI_COLD uint64_t mli_anomaly_weight(mli_report *r, uint32_t dev) {
    const uint64_t most = ((uint64_t)1 << 62) - 1;
    uint64_t v, sum = 0, heaviest = 0;
    size_t i = 0;
    while (mli_anomaly_own(r, dev, &i, &v)) {
        const uint64_t kind = i <= MLI_ANOMALY_LOSSES                          ? 3
                              : i <= MLI_ANOMALY_LOSSES + MLI_ANOMALY_MISTAKES ? 2
                                                                               : 1;
        if (kind < heaviest) break;
        heaviest = kind;
        if (mli_anomaly_columns[i - 1] != MLI_STAT_dropped_allocs) sum = mli_add_saturated(sum, v);
    }
    return heaviest << 62 | (sum < most ? sum : most);
}
/* Writes a verdict such as "anomalies and drops, cpu: unknown_frees 1; all: dropped_exports 2".
   The device with the heaviest anomalies comes first. What no device has counted stands under
   "all". */
static MLI_COLD void mli_verdict_anomalies(mli_verdict_writer *w) {
    mli_report *r = w->r;
    uint64_t top[MLI_FIRST_DEVICES][2], one[2], v;
    size_t i, column, n, found = 0;
    const char *name;
    for (i = 0; i <= r->devices; i++) {
        one[1] = i < r->devices ? r->top_device[i][1] : 0;
        one[0] = mli_anomaly_weight(r, (uint32_t)one[1]);
        if (!one[0]) continue;
        n = found++;
        if (n > MLI_FIRST_DEVICES) n = MLI_FIRST_DEVICES;
        (void)mli_top_insert(top, n, MLI_FIRST_DEVICES, one, sizeof one, 0);
    }
    for (i = 0; i < found; i++) {
        mli_out *o = mli_part_begin(w, 0);
        const uint32_t dev = o ? (uint32_t)top[i][1] : 0;
        const int device = mli_device_code(mli_anomaly_device(r, dev));
        if (!o) continue;
        column = n = 0;
        while ((name = mli_anomaly_own(r, dev, &column, &v)) != NULL) {
            if (n++ >= MLI_ANOMALIES_SAID) continue;
            if (n > 1) mli_put_str(o, ", ");
            mli_put_anomaly(o, column, name, v);
        }
        if (n > MLI_ANOMALIES_SAID) mli_putf(o, ", %ju others", (uint64_t)n - MLI_ANOMALIES_SAID);
        mli_part_put(w, &device);
    }
}

/* Writes such as "mistakes, cpu: unknown_free at main x.c:12, 3 times; ...", the heaviest first. */
static MLI_COLD void mli_verdict_mistakes(mli_verdict_writer *w) {
    size_t i;
    for (i = 0; i < w->r->mistakes; i++) {
        const memlord_anomaly *a = &w->r->mistake[i].is;
        const int device = mli_device_code(a->device);
        mli_out *o = mli_part_begin(w, a->bytes);
        if (!o) continue;
        mli_put_str(o, mli_anomaly_name(a->kind));
        if (a->bytes) mli_putf(o, " %jo", a->bytes);
        if (a->site.file[0]) {
            mli_putf(o, " at %p", (const void *)&a->site);
            w->site = &a->site;
        }
        if (a->count > 1) mli_putf(o, ", %ju times", a->count);
        mli_part_put(w, &device);
    }
}

/* Writes a verdict such as "collections that did not run, cuda:0: 2 of 3". */
static MLI_COLD void mli_verdict_collections(mli_verdict_writer *w) {
    size_t i;
    for (i = 0; i < w->r->devices; i++) {
        const uint32_t dev = (uint32_t)w->r->top_device[i][1];
        const memlord_stats *s = &w->r->stat[dev - 1];
        const int device = mli_report_device(w->r, dev);
        mli_out *o = s->gc_failed ? mli_part_begin(w, 0) : NULL;
        if (!o) continue;
        mli_putf(o, "%ju of %ju", s->gc_failed, s->gc_failed + s->gc_runs);
        mli_part_put(w, &device);
    }
}

/* Writes a verdict such as "fragmented pool, cuda:0: 60 % of 3 GiB cached, the largest piece is 1.2
   GiB". Does so for a pool that has at least a sixteenth of its bytes cached, if the largest piece
   is at most half of the cached bytes. */
static MLI_COLD void mli_verdict_fragments(mli_verdict_writer *w) {
    size_t i;
    for (i = 0; i < w->r->devices; i++) {
        const uint32_t dev = (uint32_t)w->r->top_device[i][1];
        const memlord_stats *s = &w->r->stat[dev - 1];
        const int device = mli_report_device(w->r, dev);
        const double fragmented = memlord_fragmentation(s);
        mli_out *o;
        if (!(fragmented >= 0.5) || s->cached < s->reserved / 16) continue;
        if ((o = mli_part_begin(w, s->cached)) == NULL) continue;
        mli_putf(o, "%g of %jo cached, the largest piece is %jo", fragmented * 100, s->cached,
                 s->largest_free);
        mli_part_put(w, &device);
    }
}

/* Writes all verdicts in the order of MLI_VERDICTS. But anomalies that lost bytes come before
   growth, peaks and the holders of live bytes, because all totals are too low then. */
static MLI_COLD void mli_verdicts_write(mli_verdict_writer *w) {
    static void (*const all[MLI_VERDICT_COUNT])(mli_verdict_writer *w) = {
#define MLI_X(name, head, tone) mli_verdict_##name,
        MLI_VERDICTS(MLI_X)
#undef MLI_X
    };
    int i;
    w->lost = w->r->total.dropped_allocs != 0;
    for (i = 0; i < MLI_VERDICT_COUNT; i++) {
        w->kind = i;
        if (w->lost && i >= MLI_VERDICT_growth && i <= MLI_VERDICT_anomalies)
            w->kind = i == MLI_VERDICT_growth ? MLI_VERDICT_anomalies : i - 1;
        all[w->kind](w);
        mli_verdict_end(w);
    }
}
static MLI_COLD void mli_put_name(mli_out *o, const char *name, int raw) {
    if (raw)
        mli_put_str(o, name);
    else
        mli_put_escaped(o, name, 0, "");
}
MLI_PRIVATE MLI_COLD void mli_text_process(mli_report *r, mli_out *o, int raw) {
    mli_put_name(o, r->who.program, raw);
    mli_putf(o, *r->who.program ? ", pid %ju" : "pid %ju", mli_pid());
    if (*r->who.host) mli_put_str(o, " on ");
    mli_put_name(o, r->who.host, raw);
    mli_put_str(o, ", since ");
    mli_put_time(o, r->lord->started_wall, 0);
    mli_put_str(o, " for ");
    mli_put_fixed(o, r->uptime / 100000000u, 1);
    mli_put_str(o, " s");
}

MLI_PRIVATE MLI_COLD void mli_json_process(mli_report *r) {
    const char *program = *r->who.program ? r->who.program : NULL;
    const char *host = *r->who.host ? r->who.host : NULL;
    mli_jsonf(r->o, ",'program':%s,'host':%s,'pid':%ju,'started_at':'", program, host, mli_pid());
    mli_put_time(r->o, r->lord->started_wall, 0);
    mli_jsonf(r->o, "','uptime_ns':%ju", r->uptime);
    if (*r->who.arguments) mli_jsonf(r->o, ",'arguments':%s", (const char *)r->who.arguments);
}

MLI_PRIVATE MLI_COLD size_t mli_text_verdicts(mli_report *r, size_t first, size_t last) {
    mli_verdict_writer w;
    memset(&w, 0, sizeof w);
    w.r = r;
    w.first = first;
    w.last = last;
    r->out.name_max = MLI_TEXT_NAME;
    mli_verdicts_write(&w);
    return w.sentences;
}
MLI_PRIVATE MLI_COLD void mli_json_verdicts(mli_report *r) {
    mli_verdict_writer w;
    memset(&w, 0, sizeof w);
    w.r = r;
    w.json = 1;
    mli_jsonf(r->o, ",\n'verdicts':[");
    mli_verdicts_write(&w);
    mli_put_str(r->o, "]");
}
