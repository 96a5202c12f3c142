#include "services/stats.h"
#include "base/atomics.h"
#include "base/numbers.h"
#include "books/threads.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/names.h"
#include "books/sites.h"
#include "books/stacks.h"
#include "books/stack_totals.h"
#include "books/limits.h"
#include "services/scopes.h"

MLI_PRIVATE const mli_columns_row mli_columns[MLI_COLUMNS] = {
#define MLI_X(name, kind, family, text) {offsetof(memlord_stats, name), MLI_KIND_##kind},
    MLI_STATS(MLI_X)
#undef MLI_X
#define MLI_X(name, text) {0, MLI_KIND_ANOMALY},
    MLI_LOSSES(MLI_X)
#undef MLI_X
};
MLI_PRIVATE const char *const mli_column_names[MLI_COLUMNS] = {
#define MLI_X(name, kind, family, text) #name,
    MLI_STATS(MLI_X)
#undef MLI_X
#define MLI_X(name, text) "dropped_" #name,
    MLI_LOSSES(MLI_X)
#undef MLI_X
};
MLI_PRIVATE uint64_t *mli_stat_of(memlord_stats *stats, size_t i) {
    return (uint64_t *)(void *)((char *)stats + mli_columns[i].at);
}
MLI_PRIVATE MLI_COLD uint64_t mli_loss_value(memlord *lord, size_t i) {
    return i == MLI_LOST_scope_invocations ? mli_invocations_lost(lord)
                                           : mli_loss_count(lord, (int)i);
}

/* Returns part / (part + rest), or -1 if both are 0. */
static MLI_COLD double mli_share(uint64_t part, uint64_t rest) {
    return part | rest ? (double)part / ((double)part + (double)rest) : -1;
}
static MLI_COLD double mli_hit_rate(const memlord_stats *s) {
    return mli_share(s->cache_hits, s->cache_misses);
}
static MLI_COLD double mli_recovery_rate(const memlord_stats *s) {
    return mli_share(s->recoveries, s->oom_failures);
}
static MLI_COLD double mli_success_rate(const memlord_stats *s) {
    return mli_share(s->allocs, s->oom_failures);
}
MLI_PRIVATE const mli_rates_row mli_rates[MLI_RATE_COUNT] = {
#define MLI_X(name, family, text) {#name, family, text, mli_##name},
    MLI_RATES(MLI_X)
#undef MLI_X
};
MLI_PRIVATE MLI_COLD uint64_t mli_rate_read(const memlord_stats *stats, size_t i) {
    double rate = mli_rates[i].of(stats);
    return rate >= 0 ? mli_whole(rate * 1e9 + 0.5) : UINT64_MAX;
}
MLI_PRIVATE MLI_COLD uint64_t mli_mean_read(const memlord_stats *stats) {
    return stats->allocs ? stats->total_allocated / stats->allocs : UINT64_MAX;
}

MLI_PRIVATE MLI_COLD void mli_stats_fill(memlord *lord, uint32_t dev, memlord_stats *out) {
    const mli_device_record *device = mli_device_record_at(lord, dev);
    size_t i;
    mli_row_totals sum;
    mli_row_sum(lord, MLI_BOOK_DEVICE, dev, 1, &sum);
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    out->version = MEMLORD_STATS_VERSION;
    for (i = 0; i < MLI_STAT_COUNT; i++)
        *mli_stat_of(out, i) = mli_u64_load(&device->count[i]);
    out->reallocs += sum.reallocs;
    out->allocated = sum.live;
    out->freed = sum.freed;
    out->peak = sum.peak;
    out->peak_error = sum.peak_error;
    out->live_blocks = sum.blocks;
    out->allocs = sum.allocs;
    out->frees = sum.frees;
    out->total_allocated = sum.total_in;
    out->total_freed = sum.total_out;
    out->largest_free--; /* stored one higher, so 0 (not known) becomes UINT64_MAX */
    if (out->reserved > out->allocated) out->cached = out->reserved - out->allocated;
    mli_phys_stats_add(mli_phys_at(lord, dev), out);
}

/* Returns 1 if a selector includes the device of a row. */
static int mli_row_selected(memlord *lord, memlord_device sel, int book, uint32_t number) {
    uint32_t dev = mli_row_at(lord, book, number)->dev;
    return mli_selects(sel, mli_device_record_at(lord, dev)->device);
}

MLI_PRIVATE MLI_COLD void mli_stats_sum_phys(memlord *lord, memlord_device sel,
                                             memlord_stats *sum) {
    uint32_t i, k, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    sum->limit = sum->held = sum->neighbours = 0;
    for (i = 0; i < n; i++) {
        mli_phys *phys = mli_phys_storage(lord, i);
        for (k = 1; k < n; k++)
            if (mli_phys_at(lord, k) == phys && mli_row_selected(lord, sel, MLI_BOOK_DEVICE, k))
                break;
        if (k < n) mli_phys_stats_add(phys, sum);
    }
}

MLI_PRIVATE MLI_COLD void mli_stats_sum(memlord_stats *sum, memlord_stats *s) {
    uint64_t a = sum->largest_free, b = s->largest_free;
    size_t i;
    for (i = 0; i < MLI_STAT_COUNT; i++)
        *mli_stat_of(sum, i) = mli_add_saturated(*mli_stat_of(sum, i), *mli_stat_of(s, i));
    sum->largest_free = a == UINT64_MAX || (b != UINT64_MAX && b > a) ? b : a;
}

MLI_PRIVATE MLI_COLD uint64_t mli_site_stat_fill(memlord *lord, uint32_t number,
                                                 memlord_site_stat *out) {
    mli_row *row = mli_row_at(lord, MLI_BOOK_SITE, number);
    mli_row_totals sum;
    mli_row_sum(lord, MLI_BOOK_SITE, number, 1, &sum);
    out->site = (const memlord_site *)mli_ptr_load_acquire(
        &((mli_site_record *)row->subject)->display);
    out->device = mli_device_record_at(lord, row->dev)->device;
    out->alloc_bytes = sum.total_in;
    out->free_bytes = sum.freed_here;
    out->allocs = sum.allocs;
    out->frees = sum.frees;
    out->live_bytes = sum.live;
    out->peak_bytes = sum.peak;
    return sum.peak_error;
}

MLI_PRIVATE MLI_COLD size_t mli_top_insert(void *list, size_t n, size_t cap, const void *item,
                                           size_t size, size_t key) {
    char *first = (char *)list, *at = first + n * size;
    const size_t kept = n < cap ? n : cap - 1; /* how many old items stay in the list */
    uint64_t number, other;
    memcpy(&number, (const char *)item + key, sizeof number);
    for (; at > first; at -= size) {
        memcpy(&other, at - size + key, sizeof other);
        if (other >= number) break;
    }
    if (at == first + cap * size) return n;
    memmove(at + size, at, (size_t)(first + kept * size - at));
    memcpy(at, item, size);
    return kept + 1;
}

MLI_PRIVATE MLI_COLD size_t mli_sites_top(memlord *lord, memlord_device sel,
                                          memlord_site_order order, memlord_site_stat *out,
                                          size_t cap, int names) {
    static const unsigned char keys[] = {
        offsetof(memlord_site_stat, alloc_bytes), offsetof(memlord_site_stat, free_bytes),
        offsetof(memlord_site_stat, allocs),      offsetof(memlord_site_stat, frees),
        offsetof(memlord_site_stat, live_bytes),  offsetof(memlord_site_stat, peak_bytes)};
    const uint32_t dev = mli_dev_known(lord, sel);
    uint32_t i = 0;
    size_t n = 0, at, key;
    if ((unsigned)order >= sizeof keys || !cap) return 0;
    key = keys[order];
    if (names) mli_places_name(lord);
    while ((i = mli_row_next(lord, MLI_BOOK_SITE, dev, i)) != 0) {
        memlord_site_stat s;
        uint64_t number;
        if (!mli_row_selected(lord, sel, MLI_BOOK_SITE, i)) continue;
        if (order == MEMLORD_SITE_ORDER_LIVE_BYTES &&
            mli_row_live(lord, MLI_BOOK_SITE, i) <= (n < cap ? 0 : out[cap - 1].live_bytes))
            continue; /* the list has no place for the site, so its statistics are not needed */
        (void)mli_site_stat_fill(lord, i, &s);
        memcpy(&number, (char *)&s + key, sizeof number);
        if (number) n = mli_top_insert(out, n, cap, &s, sizeof s, key);
    }
    for (at = 0; at < n && names; at++)
        out[at].site = mli_site_display_of(lord, out[at].site);
    return n;
}

/* Sets the frames and the depth of a listed stack. Before the call `depth` has the index of the
   stack's row. Returns 0 if there is no memory. */
static MLI_COLD int mli_stack_stat_frames(memlord *lord, memlord_stack_stat *s) {
    mli_stack_row *row = mli_stack_row_at(lord, s->depth);
    void **frames;
    s->depth = mli_stack_depth(lord, row);
    frames = mli_stack_frames(lord, row, s->depth);
    if (!frames) return 0;
    s->frames = frames;
    s->sites = (const memlord_site **)(void *)(frames + s->depth);
    return 1;
}
/* Lists the largest stacks of a selector, as mli_sites_top lists sites. If there is no memory for
   the frames of a stack, the list ends before that stack. */
static MLI_COLD size_t mli_stacks_top(memlord *lord, memlord_device sel, memlord_site_order order,
                                      memlord_stack_stat *out, size_t cap) {
    static const unsigned char keys[] = {
        offsetof(memlord_stack_stat, alloc_bytes), offsetof(memlord_stack_stat, alloc_bytes),
        offsetof(memlord_stack_stat, allocs),      offsetof(memlord_stack_stat, allocs),
        offsetof(memlord_stack_stat, live_bytes),  offsetof(memlord_stack_stat, peak_bytes)};
    uint32_t i, rows = mli_stack_rows(lord);
    size_t n = 0, key, named = 0;
    if ((unsigned)order >= sizeof keys) return 0;
    key = keys[order];
    mli_places_name(lord);
    for (i = 1; i < rows; i++) {
        memlord_stack_stat s;
        uint64_t number;
        (void)mli_stack_stat_fill(lord, i, &s);
        if (!mli_selects(sel, s.device)) continue;
        s.depth = i;
        memcpy(&number, (char *)&s + key, sizeof number);
        if (number) n = mli_top_insert(out, n, cap, &s, sizeof s, key);
    }
    while (named < n && mli_stack_stat_frames(lord, &out[named])) named++;
    return named;
}

MLI_PRIVATE MLI_COLD uint64_t mli_tag_stat_fill(memlord *lord, uint32_t number,
                                                memlord_tag_stat *out) {
    mli_row *row = mli_row_at(lord, MLI_BOOK_TAG, number);
    mli_row_totals sum;
    mli_row_sum(lord, MLI_BOOK_TAG, number, 1, &sum);
    out->tag = (const char *)row->subject;
    out->allocated = sum.live;
    out->peak = sum.peak;
    out->blocks = sum.blocks;
    out->expected = mli_u64_load(&row->expected);
    out->variance = out->expected ? (int64_t)(out->allocated - out->expected) : 0;
    return sum.peak_error;
}

MLI_PRIVATE void mli_take_off(uint64_t *sum, uint64_t bytes) {
    *sum -= bytes < *sum ? bytes : *sum;
}

/* Returns what has no tag on the devices of a selector, where *tagged has one. */
static MLI_COLD memlord_tag_stat mli_untagged(memlord *lord, memlord_device sel,
                                              const memlord_tag_stat *tagged) {
    uint32_t i;
    memlord_tag_stat rest;
    memset(&rest, 0, sizeof rest);
    for (i = 1; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++) {
        mli_row_totals sum;
        if (!mli_row_selected(lord, sel, MLI_BOOK_DEVICE, i)) continue;
        mli_row_sum(lord, MLI_BOOK_DEVICE, i, 0, &sum);
        rest.allocated += sum.live;
        rest.blocks += sum.blocks;
    }
    mli_take_off(&rest.allocated, tagged->allocated);
    mli_take_off(&rest.blocks, tagged->blocks);
    return rest;
}
MLI_PRIVATE MLI_COLD void mli_stats_add_losses(memlord *lord, memlord_stats *out) {
    size_t i;
    for (i = 0; i < MLI_STAT_COUNT; i++)
        *mli_stat_of(out, i) =
            mli_add_saturated(*mli_stat_of(out, i), mli_stat_lost(lord, (int)i));
}

MLI_PRIVATE MLI_COLD size_t mli_tags_top(memlord *lord, memlord_device d, memlord_tag_stat *out,
                                         size_t cap) {
    const uint32_t dev = mli_dev_known(lord, d);
    uint32_t i = 0;
    size_t n = 0;
    while ((i = mli_row_next(lord, MLI_BOOK_TAG, dev, i)) != 0) {
        memlord_tag_stat s;
        if (!mli_row_selected(lord, d, MLI_BOOK_TAG, i)) continue;
        (void)mli_tag_stat_fill(lord, i, &s);
        if (s.allocated)
            n = mli_top_insert(out, n, cap, &s, sizeof s, offsetof(memlord_tag_stat, allocated));
    }
    return n;
}

MLI_PRIVATE MLI_COLD void mli_put_largest(mli_out *o, const memlord_tag_stat *tag, size_t tags,
                                          const memlord_site_stat *site, size_t sites) {
    size_t i;
    for (i = 0; i < tags; i++)
        mli_putf(o, i ? ", %s %jo" : "; by tag: %s %jo", tag[i].tag ? tag[i].tag : "(untagged)",
                 tag[i].allocated);
    for (i = 0; i < sites; i++)
        mli_putf(o, i ? ", %p %jo" : "; by site: %p %jo", (const void *)site[i].site,
                 site[i].live_bytes);
}

/* Returns the bytes that the host's pool holds and no block uses. */
static double mli_unused_share(const memlord_stats *s) {
    return s->reserved > s->allocated ? (double)(s->reserved - s->allocated) : 0;
}

MLI_PRIVATE MLI_COLD void mli_stats_reset(memlord *lord) {
    uint32_t dev, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    int i;
    for (dev = 1; dev < n; dev++) {
        mli_device_record *device = mli_device_record_at(lord, dev);
        mli_phys *phys = mli_phys_lock(lord, dev);
        for (i = 0; i < MLI_STAT_COUNT; i++)
            if (mli_columns[i].kind != MLI_KIND_LIVE) mli_u64_store(&device->count[i], 0);
        mli_u64_store(&device->count[MLI_STAT_reserved_peak],
                      mli_u64_load(&device->count[MLI_STAT_reserved]));
        device->watch.waiting_rearm = 0;
        device->watch.distance = 0;
        memset(&device->oom, 0, sizeof device->oom);
        mli_lock_drop(&phys->lock);
    }
}

/* -- public -- */

MLI_API size_t memlord_stacks_top(memlord *lord, memlord_device sel, memlord_site_order order,
                                  memlord_stack_stat *out, size_t cap) {
    if (!lord || !out || !mli_selector_valid(sel)) return 0;
    return mli_stacks_top(lord, sel, order, out, cap);
}
MLI_API size_t memlord_sites_top(memlord *lord, memlord_device sel, memlord_site_order order,
                                 memlord_site_stat *out, size_t cap) {
    if (!lord || !out || !mli_selector_valid(sel)) return 0;
    return mli_sites_top(lord, sel, order, out, cap, 1);
}
MLI_API int memlord_site_top_alloc(memlord *lord, memlord_device sel, memlord_site_stat *out) {
    return memlord_sites_top(lord, sel, MEMLORD_SITE_ORDER_ALLOC_BYTES, out, 1) == 1;
}
MLI_API int memlord_site_top_free(memlord *lord, memlord_device sel, memlord_site_stat *out) {
    return memlord_sites_top(lord, sel, MEMLORD_SITE_ORDER_FREE_BYTES, out, 1) == 1;
}

MEMLORD_API uint64_t memlord_allocated(memlord *lord, memlord_device sel) {
    uint64_t sum = 0;
    uint32_t i, n;
    if (!lord || !mli_selector_valid(sel)) return 0;
    n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 1; i < n; i++)
        if (mli_row_selected(lord, sel, MLI_BOOK_DEVICE, i))
            sum = mli_add_saturated(sum, mli_row_live(lord, MLI_BOOK_DEVICE, i));
    return sum;
}

MLI_API memlord_result memlord_stats_get(memlord *lord, memlord_device sel, memlord_stats *out) {
    mli_phys *phys;
    uint32_t i, n, found = 0;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    out->version = MEMLORD_STATS_VERSION;
    if (!lord) return MEMLORD_OK;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 1; i < n; i++) {
        memlord_stats s;
        if (!mli_row_selected(lord, sel, MLI_BOOK_DEVICE, i)) continue;
        mli_stats_fill(lord, i, &s);
        if (!found++) out->largest_free = UINT64_MAX;
        mli_stats_sum(out, &s);
    }
    mli_stats_sum_phys(lord, sel, out);
    if (!found && mli_phys_find(lord, sel, 0, &phys) == MEMLORD_OK)
        mli_phys_stats_add(phys, out); /* main memory may have a limit before it has a device */
    if (sel.type == MEMLORD_ANY) mli_stats_add_losses(lord, out);
    return MEMLORD_OK;
}

static memlord_stats mli_stats_of(memlord *lord, memlord_device sel) {
    memlord_stats s;
    (void)memlord_stats_get(lord, sel, &s);
    return s;
}
MLI_API uint64_t memlord_freed(memlord *lord, memlord_device sel) {
    return mli_stats_of(lord, sel).freed;
}
MLI_API uint64_t memlord_pending(memlord *lord, memlord_device sel) {
    return mli_stats_of(lord, sel).pending;
}
MLI_API uint64_t memlord_peak(memlord *lord, memlord_device sel) {
    return mli_stats_of(lord, sel).peak;
}

MLI_API memlord_result memlord_tag_get(memlord *lord, memlord_device sel, const char *tag,
                                       memlord_tag_stat *out) {
    uint32_t i = 0, dev;
    int found = !tag;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    dev = tag ? 0 : mli_dev_known(lord, sel);
    while ((i = mli_row_next(lord, MLI_BOOK_TAG, dev, i)) != 0) {
        const char *name = (const char *)mli_row_at(lord, MLI_BOOK_TAG, i)->subject;
        memlord_tag_stat s;
        if (tag && strcmp(name, tag)) continue;
        found = 1;
        out->tag = name;
        if (!mli_row_selected(lord, sel, MLI_BOOK_TAG, i)) continue;
        (void)mli_tag_stat_fill(lord, i, &s);
        out->allocated += s.allocated;
        out->peak += s.peak;
        out->blocks += s.blocks;
        out->expected += s.expected;
    }
    if (out->expected) out->variance = (int64_t)(out->allocated - out->expected);
    if (!tag) *out = mli_untagged(lord, sel, out);
    return found ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MLI_API double memlord_cached_ratio(const memlord_stats *stats) {
    return stats && stats->reserved ? mli_unused_share(stats) / (double)stats->reserved : 0;
}
MLI_API double memlord_fragmentation(const memlord_stats *stats) {
    double unused, f;
    if (!stats || stats->largest_free == UINT64_MAX) return -1;
    unused = mli_unused_share(stats);
    f = unused > 0 ? 1 - (double)stats->largest_free / unused : 0;
    return f > 0 ? f : 0;
}
MLI_API double memlord_rate(const memlord_stats *stats, const char *name) {
    size_t i;
    if (!stats || !name) return -1;
    for (i = 0; i < MLI_RATE_COUNT; i++)
        if (!strcmp(name, mli_rates[i].name)) return mli_rates[i].of(stats);
    if (strcmp(name, "mean_bytes") || !stats->allocs) return -1;
    return (double)stats->total_allocated / (double)stats->allocs;
}
