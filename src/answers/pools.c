#include "answers/pools.h"

static void say_fragments(mlr_build *b, uint32_t device) {
    const mlr_stats *s = &b->profile->device[device - 1].stats;
    mlr_words w = {NULL, NULL, 0, 0};
    w.b = b;
    if (!s->cached || s->cached < s->reserved / 16 || s->largest_free > s->cached / 2) return;
    mlr_words_add(&w, "%b of %b are free, but the largest piece is %b", s->cached, s->reserved,
                  s->largest_free);
    (void)mlr_say(b, MLR_SAYS_fragments, device, s->cached, &w);
}
static void say_collections(mlr_build *b, uint32_t device) {
    const mlr_stats *s = &b->profile->device[device - 1].stats;
    mlr_words w = {NULL, NULL, 0, 0};
    w.b = b;
    if (!s->gc_failed) return;
    mlr_words_add(&w, "%u of %u", s->gc_failed, s->gc_failed + s->gc_runs);
    (void)mlr_say(b, MLR_SAYS_collections, device, 0, &w);
}
static const mlr_column columns[] = {{"reserved", "reserved", MLR_BYTES, 0},
                                     {"reserved_peak", "at most", MLR_BYTES, 0},
                                     {"cached", "keeps free", MLR_BYTES, 0},
                                     {"largest_free", "largest piece", MLR_BYTES, 0},
                                     {"hits", "hits", MLR_COUNT, 0},
                                     {"misses", "misses", MLR_COUNT, 0},
                                     {"hit_rate", "hit rate", MLR_SHARE, 1},
                                     {"gc_runs", "collections", MLR_COUNT, 1},
                                     {"gc_reclaimed", "reclaimed", MLR_BYTES, 1},
                                     {"device", "device", MLR_TEXT, 0},
                                     {"label", "label", MLR_TEXT, 0}};
MLR_PRIVATE void mlr_pools_answer(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t =
        mlr_table_begin(b, MLR_TABLE_pools, columns, (uint32_t)(sizeof columns / sizeof *columns));
    uint32_t i;
    for (i = 1; i <= p->device_count && !b->narrow; i++) {
        const mlr_stats *s = &p->device[i - 1].stats;
        mlr_cell *row;
        if (!b->device_in[i]) continue;
        say_fragments(b, i);
        say_collections(b, i);
        if (!(s->reserved_peak | s->reserved | s->cache_hits | s->cache_misses | s->gc_runs))
            continue;
        row = mlr_row_add(b, t, 0);
        row[0].number = s->reserved;
        row[1].number = s->reserved_peak;
        row[2].number = s->cached;
        row[3].number = s->largest_free;
        row[4].number = s->cache_hits;
        row[5].number = s->cache_misses;
        row[6].number = mlr_share(s->cache_hits, s->cache_hits + s->cache_misses);
        row[7].number = s->gc_runs;
        row[8].number = s->gc_reclaimed;
        row[9].text = p->device[i - 1].name;
        row[10].text = p->device[i - 1].label;
    }
}
