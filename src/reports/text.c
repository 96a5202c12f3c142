#include "reports/text.h"
#include "os/system.h"
#include "os/machine.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/text.h"
#include "base/log.h"
#include "base/memory.h"
#include "books/devices.h"
#include "books/counters.h"
#include "books/names.h"
#include "books/sites.h"
#include "books/anomalies.h"
#include "books/stacks.h"
#include "books/parts.h"
#include "books/blocks.h"
#include "books/limits.h"
#include "books/map.h"
#include "services/answers.h"
#include "services/stats.h"
#include "services/room.h"
#include "services/snapshots.h"
#include "reports/answers.h"
#include "reports/callers.h"
#include "reports/growth.h"
#include "reports/leaks.h"
#include "reports/lists.h"

#define MLI_TEXT_BAR 48 /* the number of columns of the bar of live bytes */

/* The most lines of each list on the first screen. */
enum {
    MLI_FIRST_PHYS = 2,
    MLI_FIRST_TAGS = 3,
    MLI_FIRST_SITES = 3,
    MLI_FIRST_STACKS = 5,
    MLI_FIRST_BLOCKS = 2
};
#define MLI_TEXT_FRAMES 5      /* the most functions of a stack that are shown */
#define MLI_TEXT_CALLERS 3     /* the most callers that are shown for a site */
#define MLI_TEXT_LEAKS 20      /* the most sites with leaks that are shown */
#define MLI_TEXT_LEAK_GROUPS 3 /* the most groups of leaks that are shown below their site */

static void mli_text_device(mli_report *r, memlord_device d, const memlord_stats *s) {
    mli_putf(r->o, "%-12i%12jo%12jo%10ju%11ju%11ju%12jo", mli_device_code(d), s->allocated,
             s->peak, s->live_blocks, s->allocs, s->frees, s->total_allocated);
}

/* Writes "... and 1 more tag" or "... and 2 more tags". `one` is the word for one item. */
static void mli_text_left_out(mli_report *r, uint64_t n, const char *one) {
    mli_putf(r->o, "... and %ju more %s%s", n, one, n == 1 ? "" : "s");
}
/* Writes how many of the `have` lines of a list are not shown. */
static void mli_text_more(mli_report *r, size_t have, size_t shown, const char *one) {
    if (shown >= have) return;
    mli_text_left_out(r, have - shown, one);
    mli_put_str(r->o, "\n");
}
/* Writes how many of the `have` lines of a list are not shown, and how many bytes they have. */
static MLI_COLD void mli_text_more_bytes(mli_report *r, size_t have, size_t shown, const char *one,
                                         uint64_t bytes) {
    if (shown >= have) return;
    mli_text_left_out(r, have - shown, one);
    mli_putf(r->o, ", %jo\n", bytes);
}

/* Begins a list: writes a blank line, the headings of the columns, and two blanks. */
static void mli_text_head(mli_report *r, mli_list list) {
    mli_put_str(r->o, "\n");
    mli_list_headings(r->o, list, 0);
    mli_put_str(r->o, "  ");
}
/* Writes the numbers of a line of a list. */
static void mli_text_row(mli_report *r, mli_list list, const void *line) {
    mli_list_text(r->o, list, line, 0);
}
/* Writes the numbers of a line of leaks. */
static void mli_text_leak_row(mli_report *r, uint64_t bytes, uint64_t blocks) {
    const mli_leak_sum sum = {bytes, blocks, 0};
    mli_text_row(r, MLI_LIST_LEAKS, &sum);
}

/* Writes the sum of the devices of each type that has several devices. */
static void mli_text_types(mli_report *r) {
    uint32_t i;
    int type;
    for (type = 0; type < MLI_TYPE_COUNT; type++) {
        memlord_stats sum;
        uint32_t devices = 0;
        memset(&sum, 0, sizeof sum);
        for (i = 0; i < r->devices; i++) {
            if (mli_type_of(r->lord, i + 1) != type) continue;
            mli_stats_sum(&sum, &r->stat[i]);
            devices++;
        }
        if (devices < 2) continue;
        mli_text_device(r, memlord_device_make(type, MEMLORD_ANY), &sum);
        mli_put_str(r->o, "\n");
    }
}

MLI_PRIVATE void mli_text_devices(mli_report *r, size_t most) {
    size_t i, shown = r->devices < most ? r->devices : most;
    mli_put_str(r->o, "\ndevice              live        peak    blocks     allocs      frees"
                      "   allocated\n");
    for (i = 0; i < shown; i++) {
        uint32_t dev = (uint32_t)r->top_device[i][1];
        mli_device_record *device = mli_device_record_at(r->lord, dev);
        const char *label = (const char *)mli_ptr_load_acquire(&device->label);
        mli_text_device(r, device->device, &r->stat[dev - 1]);
        if (label) mli_putf(r->o, "  %s", label);
        if (device->device.type == MEMLORD_DEVICE_CPU && r->resident)
            mli_putf(r->o, "  RSS %jo", r->resident);
        mli_put_str(r->o, "\n");
    }
    mli_text_more(r, r->devices, shown, "device");
    if (r->devices == 1) return;
    mli_text_types(r);
    mli_text_device(r, memlord_device_all(), &r->total);
    mli_put_str(r->o, "  (peaks added up)\n");
}

/* Returns the height of the bar at a column, from 0 to 7. The height shows the most live bytes
   among the snapshots whose times fall into the column. If there is no such snapshot, it shows the
   live bytes of the last snapshot before the column. */
static MLI_COLD uint32_t mli_text_bar_step(const mli_report *r, uint64_t column, uint64_t most,
                                           uint32_t *at) {
    const uint64_t first = r->snapshot[0]->time;
    const uint64_t span = r->snapshot[r->snapshots - 1]->time - first + 1;
    const uint64_t end = first + span / MLI_TEXT_BAR * (column + 1) +
                         span % MLI_TEXT_BAR * (column + 1) / MLI_TEXT_BAR;
    uint64_t level = *at ? r->snapshot[*at - 1]->live : 0, had = 0;
    for (; *at < r->snapshots && end > r->snapshot[*at]->time; (*at)++)
        if (r->snapshot[*at]->live > had || !had) had = level = r->snapshot[*at]->live;
    return most ? (uint32_t)((double)level * 7 / (double)most + 0.5) : 0;
}
/* Writes the live bytes over the snapshots as one line of block characters. */
static MLI_COLD void mli_text_bar(mli_report *r) {
    uint64_t column, most = 0;
    uint32_t i, at = 0;
    if (!r->snapshots) return;
    for (i = 0; i < r->snapshots; i++)
        if (r->snapshot[i]->live > most) most = r->snapshot[i]->live;
    mli_put_str(r->o, "\nlive ");
    for (column = 0; column < MLI_TEXT_BAR; column++) {
        char block[] = "\xe2\x96\x81"; /* U+2581 to U+2588: an eighth to a full block */
        block[2] = (char)(block[2] + (char)mli_text_bar_step(r, column, most, &at));
        mli_put_str(r->o, block);
    }
    mli_putf(r->o, " at most %jo, from %jX to %jX\n", most, r->snapshot[0]->time,
             r->snapshot[r->snapshots - 1]->time);
}

static void mli_text_tags(mli_report *r, size_t most) {
    size_t i, shown = r->tag_rows < most ? r->tag_rows : most;
    uint64_t left = r->tag_bytes;
    if (!shown) return;
    mli_text_head(r, MLI_LIST_TAGS);
    mli_put_str(r->o, "tag\n");
    for (i = 0; i < shown; i++) {
        const memlord_tag_stat *s = &r->top_tag[i].stat;
        mli_text_row(r, MLI_LIST_TAGS, &r->top_tag[i]);
        mli_putf(r->o, "  %s", s->tag);
        if (r->devices > 1) mli_putf(r->o, " on %i", mli_device_code(r->top_tag[i].of.device));
        mli_put_str(r->o, "\n");
        left -= s->allocated;
    }
    mli_text_more_bytes(r, r->tag_rows, shown, "tag", left);
}

/* Writes the functions that a site was called from, with their shares of the site's bytes, as in
   " < load load.c:7 90 %, ...". The field `share` of mli_caller says which bytes these are. */
static MLI_COLD void mli_text_callers(mli_report *r, const memlord_site_stat *s) {
    const uint32_t dev = mli_dev_known(r->lord, s->device);
    const mli_callers *callers =
        mli_callers_of(r, mli_row_of(r->lord, MLI_BOOK_SITE, s->site, dev));
    size_t i, count;
    if (!callers) return;
    count = callers->count;
    while (count > 1 && !callers->at[count - 1].share) count--;
    for (i = 0; i < count && i < MLI_TEXT_CALLERS; i++)
        mli_putf(r->o, i ? ", %p %g" : " < %p %g", (const void *)callers->at[i].at,
                 callers->sum ? mli_share_of_live(callers->at[i].share, callers->sum) : 0);
    if (i < count) mli_put_str(r->o, ", ...");
    if (mli_stacks_sampled(r->lord)) mli_put_str(r->o, " of samples");
}
static void mli_text_sites(mli_report *r, size_t most) {
    size_t i, shown = r->sites < most ? r->sites : most;
    uint64_t sum = 0;
    if (!shown) return;
    for (i = 0; i < shown; i++) sum += r->site[i].live_bytes;
    mli_text_head(r, MLI_LIST_SITES);
    mli_putf(r->o, "hotspots by %s: %ju of %ju sites, %jo live\n", r->by_peak ? "peak" : "live",
             (uint64_t)shown, r->site_total, sum);
    for (i = 0; i < shown; i++) {
        memlord_site_stat s = r->site[i];
        if (s.site == &mli_arena_site) s.peak_bytes = UINT64_MAX; /* it is not known */
        mli_text_row(r, MLI_LIST_SITES, &s);
        mli_putf(r->o, "  %p", (const void *)s.site);
        if (s.site != &mli_arena_site) mli_text_callers(r, &s);
        if (r->devices > 1) mli_putf(r->o, " on %i", mli_device_code(s.device));
        mli_put_str(r->o, "\n");
    }
}

/* Writes the functions of a stack that are in no standard library, the innermost first, as in "grow
   cache.c:7 < load main.c:3 < ...", or else its innermost frame. */
static MLI_COLD void mli_text_stack(mli_report *r, uint32_t node) {
    mli_own_walk walk = {NULL, 0, 0};
    const memlord_site *at;
    size_t shown = 0;
    walk.lord = r->lord;
    walk.node = node;
    while ((at = mli_own_next(&walk)) != NULL && shown++ < MLI_TEXT_FRAMES)
        mli_putf(r->o, shown > 1 ? " < %p" : "%p", (const void *)at);
    if (!node)
        mli_put_str(r->o, "(unknown)");
    else if (!shown)
        mli_putf(r->o, "%p",
                 (const void *)mli_site_display(r->lord, mli_stack_node_at(r->lord, node)->site));
    mli_put_str(r->o, at ? " < ...\n" : "\n");
}
/* Writes that the numbers of stacks are estimates, if stacks are sampled. */
static MLI_COLD void mli_text_estimates(mli_report *r) {
    if (!mli_stacks_sampled(r->lord)) return;
    mli_put_str(r->o, ", ");
    mli_stacks_put_rate(r->lord, r->o);
}
/* Writes the largest stacks, in the order that mli_stack_line explains. If stacks are samples, adds
   a column for the standard error of their live bytes. */
static MLI_COLD void mli_text_stacks(mli_report *r) {
    const int samples = mli_stacks_sampled(r->lord);
    uint64_t left = r->by_peak ? r->stack_rest_held : r->stack_rest.live_bytes, cut;
    size_t i, shown = r->stacks;
    if (shown > MLI_FIRST_STACKS) shown = MLI_FIRST_STACKS;
    if (!shown) return;
    mli_putf(r->o, "\nhottest stacks%s: %ju of %ju", r->by_peak ? " at the peak" : "",
             (uint64_t)shown, (uint64_t)r->stack_rows);
    mli_text_estimates(r);
    if (samples) mli_put_str(r->o, "; error: the standard error of live, -: no sample lives");
    mli_put_str(r->o, "\n");
    mli_list_headings(r->o, MLI_LIST_STACKS, samples);
    mli_put_str(r->o, "\n");
    for (i = 0; i < shown; i++) {
        mli_stack_line line = r->stack[i];
        if (!line.stat.live_bytes) line.stat.error_bytes = UINT64_MAX; /* not known, because live
                                                                          blocks may not be
                                                                          picked */
        mli_list_text(r->o, MLI_LIST_STACKS, &line, samples);
        mli_put_str(r->o, "  ");
        mli_text_stack(r, line.node);
    }
    for (; i < r->stacks; i++)
        left += r->by_peak ? r->stack[i].held : r->stack[i].stat.live_bytes;
    mli_text_more_bytes(r, r->stack_rows, shown, "stack", left);
    cut = mli_stacks_cut(r->lord);
    if (cut)
        mli_putf(r->o, "%ju stacks could not be taken: they are one return address, or none\n",
                 cut);
}

static void mli_text_phys_all(mli_report *r, size_t most) {
    size_t i, shown = r->phys_count < most ? r->phys_count : most;
    if (!r->phys_count) return;
    mli_put_str(r->o, "\ncapacity    ");
    mli_list_headings(r->o, MLI_LIST_CAPACITY, 0);
    mli_put_str(r->o, "\n");
    for (i = 0; i < shown; i++) {
        mli_putf(r->o, "%-12i", mli_device_code(r->phys[i].of.device));
        mli_text_row(r, MLI_LIST_CAPACITY, &r->phys[i]);
        mli_put_str(r->o, "\n");
    }
    mli_text_more(r, r->phys_count, shown, "physical device");
}

/* Writes up to three lines for a device: one if it has pending bytes, which the host has freed and
   which still count; one if memory was collected there; and one if it ran out of memory. */
static void mli_text_trouble(mli_report *r, uint32_t i) {
    const memlord_stats *s = &r->stat[i];
    int device = mli_report_device(r, i + 1);
    mli_oom oom;
    if (s->pending)
        mli_putf(r->o, "pending, %i: %jo of what is live are freed, and wait for the device\n",
                 device, s->pending);
    if (s->gc_runs | s->gc_failed)
        mli_putf(r->o, "collections, %i: %ju ran, %ju could not, reclaimed %jo\n", device,
                 s->gc_runs, s->gc_failed, s->gc_reclaimed);
    if (!s->oom_attempts) return;
    oom = mli_oom_of(r->lord, i + 1);
    mli_putf(r->o, "out of memory, %i: %ju attempts found none, %ju requests saved, %ju failed",
             device, s->oom_attempts, s->recoveries, s->oom_failures);
    if (oom.time) {
        mli_putf(r->o, "; the last of %jo with live %jo", oom.bytes, oom.live);
        if (oom.used != UINT64_MAX) mli_putf(r->o, ", used %jo", oom.used);
        if (oom.site) mli_putf(r->o, " at %p", (const void *)oom.site);
    }
    mli_put_str(r->o, "\n");
}

/* Writes a line for a device on which the host reported a pool of its own. The line also has the
   refused calls, because they may have been calls that report the pool. */
static void mli_text_pool(mli_report *r, uint32_t i) {
    const memlord_stats *s = &r->stat[i];
    const uint64_t served = s->cache_hits | s->cache_misses;
    if (!(s->reserved_peak | served)) return;
    mli_putf(r->o, "pool, %i: ", mli_report_device(r, i + 1));
    if (s->reserved_peak)
        mli_putf(r->o, "reserved %jo (peak %jo), cached %jo or %g, fragmentation %g", s->reserved,
                 s->reserved_peak, s->cached, memlord_cached_ratio(s) * 100,
                 memlord_fragmentation(s) * 100);
    if (s->reserved_peak && served) mli_put_str(r->o, ", ");
    if (served)
        mli_putf(r->o, "hit_rate %g: hits %ju, misses %ju",
                 mli_rates[MLI_RATE_hit_rate].of(s) * 100, s->cache_hits, s->cache_misses);
    if (s->refused) mli_putf(r->o, ", calls refused %ju", s->refused);
    mli_put_str(r->o, "\n");
}

/* Writes a line such as "rates, cuda:0: recovery_rate 50 %, success_rate 100 %, 2 MiB an alloc",
   without the hit rate, and without rates of which nothing was counted. */
static void mli_text_rates(mli_report *r, uint32_t i) {
    const memlord_stats *s = &r->stat[i];
    uint64_t mean = mli_mean_read(s);
    size_t k, shown = 0;
    for (k = 0; k < MLI_RATE_COUNT; k++) {
        double rate = mli_rates[k].of(s);
        if (!(rate >= 0) || k == MLI_RATE_hit_rate) continue;
        if (!shown++) mli_putf(r->o, "rates, %i:", mli_report_device(r, i + 1));
        mli_putf(r->o, shown > 1 ? ", %s %g" : " %s %g", mli_rates[k].name, rate * 100);
    }
    if (mean != UINT64_MAX) mli_putf(r->o, ", %jo an alloc", mean); /* success_rate is known here */
    if (shown) mli_put_str(r->o, "\n");
}

/* Writes a line such as "sizes of live blocks, cpu: 12 from 64 B, 3 from 1 MiB". In this line, 12
   blocks have 64 to 127 bytes. Writes another line for the lifetimes of blocks. */
static void mli_text_ages(mli_report *r, uint32_t i) {
    const uint64_t *n = r->lifetime[i];
    uint32_t size, shown = 0;
    int device = mli_report_device(r, i + 1);
    for (size = 0; size < MLI_SIZES; size++) {
        if (!r->sizes[i][size]) continue;
        if (!shown++) mli_putf(r->o, "sizes of live blocks, %i", device);
        mli_putf(r->o, shown > 1 ? ", %ju from %jo" : ": %ju from %jo", r->sizes[i][size],
                 size ? (uint64_t)1 << (size - 1) : 0);
    }
    if (shown) mli_put_str(r->o, "\n");
    if (r->lifetimes)
        mli_putf(
            r->o, "lifetimes, %i: %ju under 0.1 s, %ju under 1 s, %ju under 10 s, %ju longer\n",
            device, n[0], n[1], n[2], n[3]);
}

static void mli_text_accounts(mli_report *r) {
    size_t i;
    if (!r->accounts) return;
    mli_text_head(r, MLI_LIST_ACCOUNTS);
    mli_putf(r->o, "accounts: %ju of %ju\n", (uint64_t)r->account_lines, (uint64_t)r->accounts);
    for (i = 0; i < r->account_lines; i++) {
        const memlord_account_stat *s = &r->account[i];
        mli_text_row(r, MLI_LIST_ACCOUNTS, s);
        mli_putf(r->o, "  %s on %i\n", s->name, mli_device_code(s->device));
    }
}

static void mli_text_streams(mli_report *r) {
    size_t i;
    if (!r->streams) return;
    mli_text_head(r, MLI_LIST_STREAMS);
    mli_putf(r->o, "streams: %ju of %ju%s\n", (uint64_t)r->stream_lines, (uint64_t)r->streams,
             r->streams_lost ? " or more" : "");
    for (i = 0; i < r->stream_lines; i++) {
        mli_text_row(r, MLI_LIST_STREAMS, &r->stream[i]);
        mli_putf(r->o, "  %jx on %i\n", r->stream[i].stream,
                 mli_report_device(r, r->stream[i].dev));
    }
    if (!r->stream_rest.blocks) return;
    mli_text_row(r, MLI_LIST_STREAMS, &r->stream_rest);
    mli_put_str(r->o, "  on others\n");
}

static void mli_text_meta(mli_out *o, const memlord_meta *meta) {
    if (meta->name) mli_putf(o, " %s", meta->name);
    if (meta->dtype || meta->rank) mli_put_str(o, " ");
    if (meta->dtype) mli_put_escaped(o, meta->dtype, 0, "");
    mli_put_shape(o, meta, "x");
}

/* Writes the first parts of a block below the block's line. */
static void mli_text_parts(mli_report *r, const memlord_block_info *b) {
    uint64_t count, bytes;
    size_t i, n = mli_parts_copy(r->lord, (uint32_t)b->device.type, b->storage, 0, r->part, 8,
                                 &count, &bytes);
    for (i = 0; i < n; i++) {
        const memlord_part_info *part = &r->part[i];
        mli_putf(r->o, "%26jo at %ju", part->bytes, part->offset);
        if (part->meta.tag) mli_putf(r->o, " [%s]", part->meta.tag);
        mli_text_meta(r->o, &part->meta);
        mli_put_str(r->o, "\n");
    }
    if (count <= n) return;
    mli_put_str(r->o, "          ");
    mli_text_left_out(r, count - n, "part");
    mli_putf(r->o, ", %jo in all\n", bytes);
}

static void mli_text_block(mli_report *r, const memlord_block_info *b) {
    mli_text_row(r, MLI_LIST_BLOCKS, b);
    mli_putf(r->o, "  %i %jx", mli_device_code(b->device), b->storage);
    if (b->tag) mli_putf(r->o, " [%s]", b->tag);
    mli_text_meta(r->o, &b->meta);
    if (b->scope) mli_putf(r->o, " in %s", b->scope);
    if (b->stream) mli_putf(r->o, " on stream %jx", b->stream);
    if (b->site) mli_putf(r->o, "  %p", (const void *)b->site);
    mli_put_str(r->o, b->pending ? " (pending)\n" : "\n");
}
static void mli_text_blocks(mli_report *r, size_t most, int parts) {
    size_t i, shown = r->blocks < most ? r->blocks : most;
    uint64_t sum = 0;
    if (!shown) return;
    for (i = 0; i < shown; i++) sum += r->block[i].bytes;
    mli_text_head(r, MLI_LIST_BLOCKS);
    mli_putf(r->o, "largest blocks: %ju of %ju, %jo\n", (uint64_t)shown, r->total.live_blocks, sum);
    for (i = 0; i < shown; i++) {
        mli_text_block(r, &r->block[i]);
        if (parts) mli_text_parts(r, &r->block[i]);
    }
}

/* -- TEXT, second part: scopes, snapshots, the peak, leaks -- */

static void mli_text_scopes(mli_report *r) {
    uint64_t left = 0;
    uint32_t i;
    if (!r->scope_lines) return;
    mli_put_str(r->o, "\n   count  delta in all   delta avg  peak inside        live"
                      "   time in all    time avg  scope; live is exclusive: without inner"
                      " scopes\n");
    for (i = 0; i < r->scope_lines; i++) {
        const mli_scope_line *line = &r->scope[r->top_scope[i][1]];
        const memlord_scope_stat *s = &line->stat;
        mli_putf(r->o, "%8ju%14jd%12jd%13jo%12jo%14jX%12jX  %s", s->count, s->bytes.total,
                 mli_average(s->bytes.total, s->count), s->peak, line->live_bytes, s->ns.total,
                 (uint64_t)mli_average((int64_t)s->ns.total, s->count), s->path);
        if (s->device_ns) mli_putf(r->o, ", on its device %jX", s->device_ns);
        mli_put_str(r->o, s->running ? " (running)\n" : "\n");
        left -= line->live_bytes;
    }
    for (i = 1; i <= r->scopes; i++) left += r->scope[i].live_bytes;
    mli_text_more_bytes(r, r->scopes, r->scope_lines, "scope", left);
}

/* Writes one line for all snapshots, and one for each of at most 20 checkpoints. */
static void mli_text_snapshots(mli_report *r) {
    uint32_t i, named = 0;
    const char *peak = mli_report_peak_name(r);
    if (!r->snapshots) return;
    for (i = 0; i < r->snapshots; i++) named += r->snapshot[i]->name != NULL;
    mli_putf(r->o, "\nsnapshots: %ju, checkpoints %ju", (uint64_t)r->snapshots, (uint64_t)named);
    if (peak) mli_putf(r->o, ", most at %s", peak);
    mli_put_str(r->o, "\n");
    for (i = 0; i < r->snapshots && named <= 20; i++) {
        const mli_snapshot *s = r->snapshot[i];
        if (s->name)
            mli_putf(r->o, "%12jX%12jo%11ju blocks  %s\n", s->time, s->live, s->blocks, s->name);
    }
}

/* Lists what grows over the snapshots, the fastest first, and says what counts as growth. */
static MLI_COLD void mli_text_growth(mli_report *r) {
    size_t i;
    if (!r->series.growing) return;
    mli_put_str(r->o, "\ngrowth: by 1 MiB a minute or 1 % of the capacity, by a line through at "
                      "least 8 snapshots and 1 s with R2 >= 0.8\n");
    mli_list_headings(r->o, MLI_LIST_GROWTH, 0);
    mli_put_str(r->o, "       since       R2\n");
    for (i = 0; i < r->series.growing; i++) {
        const mli_series *s = &r->series.grows[i];
        const char *tag = mli_series_tag(r->lord, s);
        mli_text_row(r, MLI_LIST_GROWTH, s);
        mli_putf(r->o, "%12jX    ", r->series.snapshot[s->since]->time);
        mli_put_fixed(r->o, (uint64_t)(s->fit * 1000 + 0.5), 3);
        if (s->book == MLI_BOOK_TAG) mli_putf(r->o, "  tag %s", tag ? tag : "(untagged)");
        if (s->book == MLI_BOOK_SITE)
            mli_putf(r->o, "  site %p", (const void *)mli_series_site(r->lord, s));
        mli_putf(r->o, "  %i\n", mli_report_device(r, s->dev));
    }
    mli_text_more(r, r->series.growing_all, r->series.growing, "line");
}

/* Writes such as "at the peak of cpu, with 12 MiB; by tag: weights 8 MiB, ...; by site: ...", with
   "noted at 12 MiB of 12.5 MiB" if the holders are of another moment. */
static void mli_text_holders(mli_report *r, uint32_t dev) {
    mli_holders *h = &r->holders;
    const uint64_t peak = r->stat[dev - 1].peak;
    if (!mli_holders_get(r->lord, dev, h)) return;
    if (h->tags == 1 && !h->tag[0].tag) h->tags = 0; /* leaves out the tags: there are none */
    if (!(h->tags | h->sites)) return;
    mli_putf(r->o, h->bytes < peak ? "at the peak of %i, noted at %jo of %jo"
                                   : "at the peak of %i, with %jo",
             mli_report_device(r, dev), h->bytes, peak);
    mli_put_largest(r->o, h->tag, h->tags < 6 ? h->tags : 6, h->site, h->sites < 4 ? h->sites : 4);
    mli_put_str(r->o, "\n");
}

/* Writes the line of a site with leaks and, if its blocks differ in tag, scope or device, the
   largest groups of them below it. */
static MLI_COLD void mli_text_leak_site(mli_report *r, size_t number) {
    const mli_leak_site *s = &r->leak_sites.line[number - 1];
    size_t i, groups = 0;
    mli_text_leak_row(r, s->bytes, s->blocks);
    mli_put_str(r->o, " ");
    mli_put_leak_site(r, r->o, s);
    mli_put_str(r->o, "\n");
    if (s->devices < 2 && s->tags + (uint32_t)s->untagged < 2 &&
        s->scopes + (uint32_t)s->unscoped < 2)
        return;
    for (i = 0; i < r->leaks.count && groups < MLI_TEXT_LEAK_GROUPS; i++) {
        const mli_leak_group *leak = &r->leaks.at[i];
        if (r->leak_sites.of[i] != number) continue;
        mli_text_leak_row(r, leak->bytes, leak->blocks);
        mli_put_str(r->o, "      ");
        mli_put_leak(r->o, r->lord, leak, 0);
        mli_put_str(r->o, "\n");
        groups++;
    }
}
/* Writes the sum of the other leaks, as in "... and 281 more sites, 281 MiB in 281 blocks". */
static MLI_COLD void mli_text_leaks_more(mli_report *r, size_t shown) {
    const mli_leak_sum rest = mli_leak_sites_rest(&r->leak_sites, &r->leaks, shown);
    const size_t total = r->leak_sites.total;
    if (!rest.blocks) return;
    if (total > shown)
        mli_text_left_out(r, total - shown, "site");
    else
        mli_put_str(r->o, "... and others");
    mli_put_str(r->o, ", ");
    mli_put_amount(r->o, rest.bytes, rest.blocks);
    mli_put_str(r->o, "\n");
}
/* Lists the leaks since the last mark. If no mark was set, lists the blocks that are still live,
   but only if the program has ended or has freed most of its memory. Otherwise lists nothing,
   because the lists of sites and stacks are in the order of live bytes and show these blocks. */
static void mli_text_leaks(mli_report *r) {
    uint64_t left = r->stack_leak_bytes;
    size_t i;
    if (!(r->mark || r->by_peak || r->ended) || !r->leaks.blocks) return;
    mli_text_head(r, MLI_LIST_LEAKS);
    mli_putf(r->o, r->mark ? "leaks since mark %ju: " : "still live, and no mark was set: ",
             r->mark);
    mli_put_amount(r->o, r->leaks.bytes, r->leaks.blocks);
    mli_put_str(r->o, "\n");
    for (i = 0; i < r->leak_sites.lines && i < MLI_TEXT_LEAKS; i++) mli_text_leak_site(r, i + 1);
    mli_text_leaks_more(r, i);
    if (!r->stack_leaks) return;
    mli_text_head(r, MLI_LIST_LEAKS);
    mli_put_str(r->o, r->mark ? "leaks by stack" : "still live, by stack");
    mli_text_estimates(r);
    mli_put_str(r->o, "\n");
    for (i = 0; i < r->stack_leaks && i < MLI_FIRST_STACKS; i++) {
        const mli_stack_leak *leak = &r->stack_leak[i];
        mli_text_leak_row(r, leak->bytes, (uint64_t)(leak->blocks + 0.5));
        mli_put_str(r->o, "  ");
        mli_text_stack(r, mli_stack_row_at(r->lord, leak->row)->node);
        left -= leak->bytes;
    }
    mli_text_more_bytes(r, r->stack_leak_rows, i, "stack", left);
}

/* Lists the moves and the copies of each pair of devices, the newest pair first. */
static void mli_text_routes(mli_report *r) {
    const mli_route *route = NULL;
    int lines = 0;
    while ((route = mli_route_next(r->lord, route)) != NULL) {
        const mli_route_line line = mli_route_line_of(route);
        if (!lines++) {
            mli_text_head(r, MLI_LIST_ROUTES);
            mli_put_str(r->o, "from, to\n");
        }
        mli_text_row(r, MLI_LIST_ROUTES, &line);
        mli_putf(r->o, "  %i, %i\n", mli_report_device(r, route->from),
                 mli_report_device(r, route->to));
    }
}

/* Writes the tags on a physical device, as in " (weights 40 GiB, ..., untagged 1 GiB)". */
static void mli_text_phys_self(mli_report *r, const mli_phys_line *line) {
    uint64_t left = line->self - line->untagged;
    size_t i, shown = 0;
    if (!left) return;
    for (i = 0; i < r->tag_lines && shown < 6; i++) {
        const mli_tag_line *tag = &r->top_tag[i];
        if (tag->phys != line || !mli_dev_uses_capacity(r->lord, tag->of.dev)) continue;
        if (!tag->stat.allocated) break;
        mli_putf(r->o, shown++ ? ", %s %jo" : " (%s %jo", tag->stat.tag, tag->stat.allocated);
        mli_take_off(&left, tag->stat.allocated);
    }
    if (left) mli_putf(r->o, shown ? ", other tags %jo" : " (other tags %jo", left);
    if (line->untagged) mli_putf(r->o, ", untagged %jo", line->untagged);
    mli_put_str(r->o, ")");
}

/* Writes "cuda:0: total 80 GiB = free 20 GiB + self 50 GiB (weights 40 GiB, ...) + context 500 MiB
   + unaccounted 9.5 GiB", and another line for the other processes there. */
static void mli_text_phys_sum(mli_report *r, const mli_phys_line *line) {
    memlord_capacity sample;
    if (line->total == UINT64_MAX) return;
    mli_putf(r->o, "%i: total %jo = free %jo + self %jo", mli_device_code(line->of.device),
             line->total, line->free, line->self);
    mli_text_phys_self(r, line);
    if (line->context != UINT64_MAX) mli_putf(r->o, " + context %jo", line->context);
    if (line->neighbours != UINT64_MAX) mli_putf(r->o, " + neighbours %jo", line->neighbours);
    if (line->unaccounted < 0)
        mli_putf(r->o, " - unaccounted %jo (less is in use than these hold)",
                 (uint64_t)0 - (uint64_t)line->unaccounted);
    else
        mli_putf(r->o, " + unaccounted %jo", (uint64_t)line->unaccounted);
    sample = mli_phys_sample_of(line->phys);
    if (line->unaccounted > 0 && line->neighbours == UINT64_MAX && sample.others[0].pid)
        mli_putf(r->o, " (others hold %jo)", line->others);
    if (line->age > 1000000000u) mli_putf(r->o, ", sampled %jX ago", line->age);
    mli_put_str(r->o, "\n");
    if (!sample.others[0].pid) return;
    mli_putf(r->o, "%i", mli_device_code(line->of.device));
    mli_put_others(r->lord, r->o, ": others:", &sample, MEMLORD_OTHERS);
    mli_put_str(r->o, "\n");
}

/* Lists the modules (the program and its libraries) that return addresses are in. With this list a
   tool can name the addresses later and elsewhere. */
static MLI_COLD void mli_text_modules(const mli_report *r) {
    const mli_module *m = mli_module_newest(r->lord);
    uint32_t left = MLI_TOP_SITES;
    if (!m) return;
    mli_putf(r->o, "\n%-40s  module of return addresses\n", "build id");
    for (; m && left; m = m->next, left--)
        mli_putf(r->o, "%-40s  %s\n", m->build_id[0] ? m->build_id : "none", m->image.path);
    if (m) mli_putf(r->o, "... and %ju\n", (uint64_t)m->number);
}

/* Lists the mistakes of the host, each with the first block that it concerned. */
static MLI_COLD void mli_text_mistakes(mli_report *r) {
    size_t i;
    if (!r->mistakes) return;
    mli_text_head(r, MLI_LIST_MISTAKES);
    mli_put_str(r->o, "mistakes, the heaviest first\n");
    for (i = 0; i < r->mistakes; i++) {
        const memlord_anomaly *a = &r->mistake[i].is;
        mli_text_row(r, MLI_LIST_MISTAKES, a);
        mli_putf(r->o, "  %s, %i", mli_anomaly_name(a->kind), mli_device_code(a->device));
        if (a->storage) mli_putf(r->o, " %jx", a->storage);
        if (a->site.file[0]) mli_putf(r->o, ", at %p", (const void *)&a->site);
        if (a->born.file[0]) mli_putf(r->o, ", born at %p", (const void *)&a->born);
        if (a->tag) mli_putf(r->o, " [%s]", a->tag);
        mli_put_str(r->o, "\n");
    }
    if (r->mistakes_more)
        mli_putf(r->o, "... and %ju more at other sites\n", r->mistakes_more);
}

/* -- the first screen -- Its lines end before MLI_TEXT_COLUMNS. A longer line goes on in the next
   one, after MLI_TEXT_INDENT blanks. */

#define MLI_TEXT_COLUMNS 100
#define MLI_TEXT_INDENT 8

typedef struct mli_wrap {
    mli_out to;               /* the output that gets the wrapped lines */
    char buf[1024];           /* the buffer of `to` */
    size_t column, blanks;    /* the columns of the line so far; the blanks before the next word */
    size_t used, wide;        /* the bytes and the columns of the word that is being collected */
    char word[4 * MLI_TEXT_COLUMNS];
} mli_wrap;

/* Writes the collected word, on the next line if this one has no room for it. */
static MLI_COLD void mli_wrap_word(mli_wrap *w) {
    if (!w->used) return;
    if (w->column && w->column + w->blanks + w->wide > MLI_TEXT_COLUMNS) {
        mli_put_str(&w->to, "\n");
        w->column = 0;
        w->blanks = MLI_TEXT_INDENT;
    }
    w->column += w->blanks + w->wide;
    for (; w->blanks; w->blanks--) mli_put(&w->to, " ", 1);
    mli_put(&w->to, w->word, w->used);
    w->used = w->wide = 0;
}
/* Passes data on to the host's function, and wraps long lines. Splits a word that is wider than a
   line. The type of this function is memlord_write_fn. */
static MLI_COLD int mli_wrap_write(void *user, const void *data, size_t size) {
    mli_wrap *w = (mli_wrap *)user;
    const char *at = (const char *)data, *end = at + size;
    for (; at < end; at++) {
        const int starts = ((unsigned char)*at & 0xc0) != 0x80; /* 1: begins a character */
        if (*at == ' ' || *at == '\n' ||
            (starts && w->wide == MLI_TEXT_COLUMNS - MLI_TEXT_INDENT) ||
            w->used == sizeof w->word)
            mli_wrap_word(w);
        if (*at == '\n') {
            mli_put_str(&w->to, "\n");
            w->column = w->blanks = 0;
        } else if (*at == ' ') {
            w->blanks++;
        } else {
            w->word[w->used++] = *at;
            w->wide += (size_t)starts;
        }
    }
    return w->to.failed;
}
static MLI_COLD void mli_wrap_begin(mli_report *r, mli_wrap *w) {
    memset(w, 0, sizeof *w);
    mli_out_buffer(&w->to, w->buf, sizeof w->buf);
    w->to.fn = r->out.fn;
    w->to.user = r->out.user;
    r->out.fn = mli_wrap_write;
    r->out.user = w;
}
static MLI_COLD void mli_wrap_end(mli_report *r, mli_wrap *w) {
    mli_flush(&r->out);
    mli_wrap_word(w);
    mli_flush(&w->to);
    r->out.fn = w->to.fn;
    r->out.user = w->to.user;
    r->out.failed |= w->to.failed;
}

static MLI_COLD void mli_text_full(mli_report *r) {
    uint32_t i;
    size_t k;
    mli_put_str(r->o, "\n---- in full ----\n");
    (void)mli_text_verdicts(r, MLI_FIRST_SENTENCES, SIZE_MAX);
    if (r->devices > MLI_FIRST_DEVICES) mli_text_devices(r, r->devices);
    if (r->phys_count > MLI_FIRST_PHYS) mli_text_phys_all(r, r->phys_count);
    mli_put_str(r->o, "\n");
    for (k = 0; k < r->phys_count; k++) mli_text_phys_sum(r, &r->phys[k]);
    for (i = 0; i < r->devices; i++) {
        mli_text_holders(r, i + 1);
        mli_text_trouble(r, i);
        mli_text_pool(r, i);
        mli_text_rates(r, i);
        mli_text_ages(r, i);
        if (r->devices > 1) mli_text_anomalies(r, r->o, "anomalies and drops, ", i + 1);
    }
    mli_text_anomalies(r, r->o, "anomalies and drops, ", 0);
    mli_text_mistakes(r);
    mli_text_snapshots(r);
    mli_text_growth(r);
    mli_text_scopes(r);
    mli_text_leaks(r);
    mli_text_routes(r);
    mli_text_accounts(r);
    mli_text_streams(r);
    if (r->tag_rows > MLI_FIRST_TAGS) mli_text_tags(r, MLI_TOP_TAGS);
    if (r->sites > MLI_FIRST_SITES) mli_text_sites(r, MLI_TOP_SITES);
    if (r->blocks > MLI_FIRST_BLOCKS || r->has_parts) mli_text_blocks(r, 20, 1);
    mli_text_modules(r);
}

/* Writes the labels of the ledger in full. The limit for the length of names is off meanwhile. */
static MLI_COLD void mli_text_labels(mli_report *r) {
    const char *labels = mli_labels(r->lord);
    r->out.name_max = 0;
    if (labels) mli_putf(r->o, "labels: %s\n", labels);
    r->out.name_max = MLI_TEXT_NAME;
}

/* Writes the memory of the ledger itself, and how exact its peaks are. */
static MLI_COLD void mli_text_own(mli_report *r) {
    mli_putf(r->o, "its own memory %jo", mli_own_bytes(r->lord));
    if (r->total.peak_error)
        mli_putf(r->o, ", peaks low by at most %jo", r->total.peak_error);
    mli_put_str(r->o, "\n");
}

#define MLI_TEXT_ARGUMENTS 85 /* the most characters of the arguments that are written */
static MLI_COLD void mli_text_first(mli_report *r) {
    size_t n;
    r->cpu.root = mli_proc_root(r->lord);
    r->resident = mli_cpu_resident(&r->cpu);
    r->out.name_max = MLI_TEXT_NAME;
    mli_put_str(r->o, "MemLord " MEMLORD_VERSION "  ");
    mli_text_process(r, r->o, 0);
    mli_put_str(r->o, "\n");
    r->out.name_max = MLI_TEXT_ARGUMENTS;
    if (*r->who.arguments) mli_putf(r->o, "arguments: %s\n", (const char *)r->who.arguments);
    n = mli_text_verdicts(r, 0, MLI_FIRST_SENTENCES);
    if (n > MLI_FIRST_SENTENCES) {
        mli_text_left_out(r, n - MLI_FIRST_SENTENCES, "sentence");
        mli_put_str(r->o, " below\n");
    }
    mli_text_labels(r);
    if (!r->devices) {
        mli_put_str(r->o, "nothing recorded\n");
        mli_text_own(r);
        return;
    }
    mli_text_devices(r, MLI_FIRST_DEVICES);
    mli_text_own(r);
    mli_text_bar(r);
    mli_text_phys_all(r, MLI_FIRST_PHYS);
    mli_text_tags(r, MLI_FIRST_TAGS);
    mli_text_sites(r, MLI_FIRST_SITES);
    mli_text_stacks(r);
    mli_text_blocks(r, MLI_FIRST_BLOCKS, 0);
}
MLI_PRIVATE MLI_COLD void mli_text(mli_report *r) {
    mli_wrap wrap;
    mli_wrap_begin(r, &wrap);
    mli_text_first(r);
    mli_wrap_end(r, &wrap);
    if (r->devices) mli_text_full(r);
}
