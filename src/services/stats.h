/* Computes the statistics of devices, sites, stacks and tags from the counts of all threads, and
   lists the largest. Owns no state. Invariant: the counters of one row are summed under the row's
   lock. Two rows are summed at different moments, so a report sums each device once and uses that
   sum throughout. Locks: cold for look-ups, phys and row, one at a time. */
#ifndef MLI_SERVICES_STATS_H
#define MLI_SERVICES_STATS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "base/text.h"

/* The columns of a device in reports: its statistics (MLI_STAT_), then the ledger's losses. */
enum { MLI_KIND_LIVE, MLI_KIND_PEAK, MLI_KIND_COUNT, MLI_KIND_ANOMALY };
enum { MLI_COLUMNS = (int)MLI_STAT_COUNT + (int)MLI_LOSS_COUNT };
typedef struct mli_columns_row {
    uint16_t at, kind; /* the offset in memlord_stats (0 for a loss); one of MLI_KIND_... */
} mli_columns_row;
MLI_TABLE(const mli_columns_row mli_columns[MLI_COLUMNS])
MLI_TABLE(const char *const mli_column_names[MLI_COLUMNS])
/* Returns the statistic of column i of a device. Requires: i is less than MLI_STAT_COUNT. */
MLI_PRIVATE uint64_t *mli_stat_of(memlord_stats *stats, size_t i);
/* Returns how many records of a kind, MLI_LOST_..., were lost. */
MLI_PRIVATE MLI_COLD uint64_t mli_loss_value(memlord *lord, size_t i);

/* A rate that is computed from the statistics of a device: its name, its metric name and help text
   in PROMETHEUS, and the function that computes it. */
typedef struct mli_rates_row {
    const char *name, *family, *text;
    double (*of)(const memlord_stats *stats);
} mli_rates_row;
enum {
#define MLI_X(name, family, text) MLI_RATE_##name,
    MLI_RATES(MLI_X)
#undef MLI_X
    MLI_RATE_COUNT
};
MLI_TABLE(const mli_rates_row mli_rates[MLI_RATE_COUNT])
/* Returns the rate MLI_RATE_... in billionths, or UINT64_MAX if nothing was counted. */
MLI_PRIVATE MLI_COLD uint64_t mli_rate_read(const memlord_stats *stats, size_t i);
/* Returns the mean bytes of an alloc, or UINT64_MAX without an alloc. */
MLI_PRIVATE MLI_COLD uint64_t mli_mean_read(const memlord_stats *stats);

MLI_PRIVATE MLI_COLD void mli_stats_fill(memlord *lord, uint32_t dev, memlord_stats *out);

/* Completes a sum over devices by the statistics of physical devices, of which each counts once. */
MLI_PRIVATE MLI_COLD void mli_stats_sum_phys(memlord *lord, memlord_device sel, memlord_stats *sum);

/* Adds the statistics of a device to a sum. Its largest_free becomes the larger of the two values
   that are known, because free pieces of two pools are not one piece. */
MLI_PRIVATE MLI_COLD void mli_stats_sum(memlord_stats *sum, memlord_stats *s);

/* Computes the statistics of a site. Returns by how many bytes its peak may be too low. */
MLI_PRIVATE MLI_COLD uint64_t mli_site_stat_fill(memlord *lord, uint32_t number,
                                                 memlord_site_stat *out);

/* Inserts an item into a list of n items, with room for `cap`, by the number at offset `key`, the
   largest first. Returns the new length. Searches from the end, because most items are small. */
MLI_PRIVATE MLI_COLD size_t mli_top_insert(void *list, size_t n, size_t cap, const void *item,
                                           size_t size, size_t key);

/* Lists the largest sites of a selector and returns how many. Leaves out a site for which the
   number that `order` names is 0. With `names` 1 looks up the symbols of the listed sites. */
MLI_PRIVATE MLI_COLD size_t mli_sites_top(memlord *lord, memlord_device sel,
                                          memlord_site_order order, memlord_site_stat *out,
                                          size_t cap, int names);

/* Computes the statistics of a tag. Returns by how many bytes its peak may be too low. */
MLI_PRIVATE MLI_COLD uint64_t mli_tag_stat_fill(memlord *lord, uint32_t number,
                                                memlord_tag_stat *out);

/* Subtracts bytes from a sum, and stops at 0. */
MLI_PRIVATE void mli_take_off(uint64_t *sum, uint64_t bytes);
/* Completes a sum over all devices by the counts that no device has: see mli_stat_lost. */
MLI_PRIVATE MLI_COLD void mli_stats_add_losses(memlord *lord, memlord_stats *out);

/* Lists the tags of a selector with the most live bytes and returns how many it lists. */
MLI_PRIVATE MLI_COLD size_t mli_tags_top(memlord *lord, memlord_device d, memlord_tag_stat *out,
                                         size_t cap);

/* Writes "; by tag: weights 40 GiB, (untagged) 1 GiB; by site: read_tensors loader.c:12 40 GiB". */
MLI_PRIVATE MLI_COLD void mli_put_largest(mli_out *o, const memlord_tag_stat *tag, size_t tags,
                                          const memlord_site_stat *site, size_t sites);

/* Resets the statistics of the devices, except those that each thread counts for itself: levels
   stay, a peak becomes the present level, all others become 0. Forgets the last failed requests,
   and ends the wait to rearm after a collection (services/bands). */
MLI_PRIVATE MLI_COLD void mli_stats_reset(memlord *lord);

#endif
