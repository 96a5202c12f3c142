#include "reports/verdicts.h"
#include "base/ledger.h"
#include "base/log.h"
#include "books/counters.h"
#include "books/limits.h"
#include "services/stats.h"

/* -- anomalies and drops -- */

/* The columns of the anomalies and drops, the heaviest first: what makes totals too low, mistakes
   of the host, lost detail. */
enum { MLI_ANOMALY_LOSSES = 2, MLI_ANOMALY_MISTAKES = 6 };
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
/* Writes "unknown_frees 1", for the column before `i`. */
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

/* -- the verdicts -- */

/* Begins the part of a verdict about a device: "out of memory, cpu: " or "; cuda:0: ". Returns 0 if
   the line has enough of them. */
static MLI_COLD int mli_text_verdict(mli_report *r, size_t *parts, const char *head, int device) {
    if ((*parts)++ >= MLI_FIRST_DEVICES) return 0;
    mli_putf(r->o, *parts > 1 ? "%s%i: " : "%s, %i: ", *parts > 1 ? "; " : head, device);
    return 1;
}
static MLI_COLD void mli_text_verdict_end(mli_report *r, size_t parts) {
    if (parts > MLI_FIRST_DEVICES)
        mli_putf(r->o, "; and %ju more", (uint64_t)(parts - MLI_FIRST_DEVICES));
    if (parts) mli_put_str(r->o, "\n");
}

/* Writes "out of memory, cuda:0: 9 GiB wanted with 5 GiB live at grow cache.c:7, 1 failed". */
static MLI_COLD void mli_text_verdict_oom(mli_report *r) {
    size_t i, parts = 0;
    for (i = 0; i < r->devices; i++) {
        uint32_t dev = (uint32_t)r->top_device[i][1];
        mli_oom oom = mli_oom_of(r->lord, dev);
        if (!oom.time || !r->stat[dev - 1].oom_failures) continue;
        if (!mli_text_verdict(r, &parts, "out of memory", mli_report_device(r, dev))) continue;
        mli_putf(r->o, "%jo wanted with %jo live", oom.bytes, oom.live);
        if (oom.site) mli_putf(r->o, " at %p", (const void *)oom.site);
        mli_putf(r->o, ", %ju failed", r->stat[dev - 1].oom_failures);
    }
    mli_text_verdict_end(r, parts);
}

/* Writes "over a limit, cuda:0: 5 GiB of 4 GiB; cpu: account req-7 3 MiB of 2 MiB". */
static MLI_COLD void mli_text_verdict_limit(mli_report *r) {
    size_t i, parts = 0;
    for (i = 0; i < r->phys_count; i++) {
        const mli_phys_line *line = &r->phys[i];
        uint64_t live = 0;
        uint32_t dev;
        for (dev = 1; dev <= r->devices; dev++) /* also of mapped files, as the limit counts them */
            if (mli_report_phys(r, dev) == line) live += r->stat[dev - 1].allocated;
        if (live > line->limit &&
            mli_text_verdict(r, &parts, "over a limit", mli_device_code(line->of.device)))
            mli_putf(r->o, "%jo of %jo", live, line->limit);
    }
    for (i = 0; i < r->account_lines; i++) {
        const memlord_account_stat *s = &r->account[i];
        if (s->bytes > s->limit &&
            mli_text_verdict(r, &parts, "over a limit", mli_device_code(s->device)))
            mli_putf(r->o, "account %s %jo of %jo", s->name, s->bytes, s->limit);
    }
    mli_text_verdict_end(r, parts);
}

/* Writes ", 2 MiB of them cpu [kv] in decode  f x.c:3". Counts several tags and scopes: "with 3
   tags in 300 scopes". Writes "partly [kv]" where the other blocks have no tag. */
static MLI_COLD void mli_text_culprit(mli_report *r) {
    const mli_culprit *c = &r->culprit;
    mli_putf(r->o, ", %jo of them", c->sum.bytes);
    if (c->devices == 1) mli_putf(r->o, " %i", mli_report_device(r, c->dev));
    if (c->devices > 1) mli_putf(r->o, " %ju devices", (uint64_t)c->devices);
    if (c->tags == 1) mli_putf(r->o, r->tag[0].leaked ? " partly [%s]" : " [%s]", c->tag);
    if (c->tags > 1) mli_putf(r->o, " with %ju tags", (uint64_t)c->tags);
    if (c->scopes == 1) mli_putf(r->o, r->scope[0].leaked ? " partly in %s" : " in %s", c->scope);
    if (c->scopes > 1) mli_putf(r->o, " in %ju scopes", (uint64_t)c->scopes);
    mli_putf(r->o, "  %p", (const void *)mli_culprit_site(r));
}
/* Writes "leaks since mark 1: 3 MiB in 2 blocks, 2 MiB of them cpu [kv]  f x.c:3". Without a mark
   it writes nothing: every live block would be one. */
static MLI_COLD void mli_text_verdict_leaks(mli_report *r) {
    if (!r->mark || !r->leaks.blocks) return;
    mli_putf(r->o, "leaks since mark %ju: ", r->mark);
    mli_put_amount(r->o, r->leaks.bytes, r->leaks.blocks);
    if (r->culprit.sum.bytes) mli_text_culprit(r);
    mli_put_str(r->o, "\n");
}

/* Returns the part of a device's live bytes in percent. */
static double mli_text_share(uint64_t part, uint64_t live) {
    return part < live ? mli_percent(part, live) : 100;
}
/* Finds the largest site of a device, or its arena. Returns 0 if it has neither. */
static int mli_report_top_site(mli_report *r, uint32_t dev, memlord_site_stat *out) {
    const uint64_t arena = mli_report_arena(r, dev);
    const memlord_device device = mli_device_record_at(r->lord, dev)->device;
    memset(out, 0, sizeof *out);
    (void)mli_sites_top(r->lord, device, MEMLORD_SITE_ORDER_LIVE_BYTES, out, 1, 1);
    if (arena > out->live_bytes) {
        out->site = &mli_arena_site;
        out->live_bytes = arena;
    }
    return out->live_bytes != 0;
}
/* Returns 1 if the largest holder of a device by tag is worth a word: an arena, or bytes that a tag
   has or could have. */
static int mli_holder_tells(const mli_report *r, const mli_holder_list *list) {
    if (!list->count) return 0;
    return list->count > 1 || list->at[0].kind == MLI_HOLDER_ARENA || r->tags != 0;
}
/* Writes "tag weights 90 %". */
static MLI_COLD void mli_text_holder(mli_report *r, const mli_holder *holder, uint64_t live) {
    if (holder->kind == MLI_HOLDER_NAMED) mli_put_str(r->o, "tag ");
    mli_put_holder(r->lord, r->o, MLI_BOOK_TAG, holder);
    mli_putf(r->o, " %g", mli_text_share(holder->bytes, live));
}
/* Writes "biggest holder, cuda:0: tag weights 90 %, site load loader.c:10 79 % of 2.55 GiB". The
   tag and the site may be of different blocks, so each has its own share. In place of a tag stands
   "untagged" or "arenas", if these hold more; not "untagged" where nothing else could. */
static MLI_COLD void mli_text_verdict_holders(mli_report *r) {
    size_t i, parts = 0;
    for (i = 0; i < r->devices; i++) {
        const uint32_t dev = (uint32_t)r->top_device[i][1];
        const uint64_t live = r->stat[dev - 1].allocated;
        mli_holder_list list;
        memlord_site_stat site;
        int tells, sites = mli_report_top_site(r, dev, &site);
        mli_holders_list(r->lord, NULL, dev, MLI_BOOK_TAG, &list);
        tells = mli_holder_tells(r, &list);
        if (tells && list.at[0].kind == MLI_HOLDER_ARENA && site.site == &mli_arena_site)
            sites = 0; /* told already */
        if (!live || !(tells || sites) ||
            !mli_text_verdict(r, &parts, "biggest holder", mli_report_device(r, dev)))
            continue;
        if (tells) mli_text_holder(r, &list.at[0], live);
        if (sites)
            mli_putf(r->o, tells ? ", site %p %g" : "site %p %g", (const void *)site.site,
                     mli_text_share(site.live_bytes, live));
        mli_putf(r->o, " of %jo", live);
    }
    mli_text_verdict_end(r, parts);
}

/* As mli_anomaly_next; dev 0: what no device counted. */
static MLI_COLD const char *mli_anomaly_own(mli_report *r, uint32_t dev, size_t *i, uint64_t *v) {
    const char *name;
    uint32_t k;
    while ((name = mli_anomaly_next(r, dev, i, v)) != NULL) {
        const size_t at = mli_anomaly_columns[*i - 1];
        for (k = 0; !dev && k < r->devices && at < MLI_STAT_COUNT; k++)
            mli_take_off(v, *mli_stat_of(&r->stat[k], at));
        if (*v) break;
    }
    return name;
}
/* Returns the weight of a device's anomalies, 0 if there are none. The heaviest kind of anomaly
   decides; among equal kinds their number, or the bytes that were lost. */
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
/* Writes "anomalies and drops, cpu: unknown_frees 1; all: dropped_snapshots 2", the heaviest first;
   under all what no device counted. */
static MLI_COLD void mli_text_verdict_anomalies(mli_report *r) {
    uint64_t top[MLI_FIRST_DEVICES][2], one[2], v;
    size_t i, column, n, found = 0, parts = 0;
    const char *name;
    for (i = 0; i <= r->devices; i++) {
        one[1] = i < r->devices ? r->top_device[i][1] : 0;
        one[0] = mli_anomaly_weight(r, (uint32_t)one[1]);
        if (!one[0]) continue;
        n = found++;
        if (n > MLI_FIRST_DEVICES) n = MLI_FIRST_DEVICES;
        (void)mli_top_insert(top, n, MLI_FIRST_DEVICES, one, sizeof one, 0);
    }
    for (i = 0; i < found && i < MLI_FIRST_DEVICES; i++) {
        const uint32_t dev = (uint32_t)top[i][1];
        (void)mli_text_verdict(r, &parts, "anomalies and drops",
                               mli_device_code(mli_anomaly_device(r, dev)));
        column = n = 0;
        while ((name = mli_anomaly_own(r, dev, &column, &v)) != NULL) {
            if (n++) mli_put_str(r->o, ", ");
            mli_put_anomaly(r->o, column, name, v);
        }
    }
    mli_text_verdict_end(r, found);
}

MLI_PRIVATE MLI_COLD void mli_text_verdicts(mli_report *r) {
    r->out.name_max = MLI_TEXT_NAME;
    mli_text_verdict_oom(r);
    mli_text_verdict_limit(r);
    mli_text_verdict_leaks(r);
    mli_text_verdict_holders(r);
    mli_text_verdict_anomalies(r);
}
