#include "answers/ages.h"
#include "answers/places.h"

static void ages_add(mlr_ages *a, const mlr_group *g) {
    a->bytes += g->bytes;
    a->blocks += g->blocks;
    if (g->oldest_ns < a->oldest) a->oldest = g->oldest_ns;
    if (g->youngest_ns != MLR_UNKNOWN &&
        (a->youngest == MLR_UNKNOWN || g->youngest_ns > a->youngest))
        a->youngest = g->youngest_ns;
}
static mlr_age_kind ages_kind(const mlr_build *b, const mlr_ages *a, const mlr_place *place) {
    const uint64_t now = b->profile->uptime_ns;
    const int freed = place->frees >= mlr_less(place->allocs, place->frees);
    if (a->oldest == MLR_UNKNOWN || a->youngest == MLR_UNKNOWN || !now) return MLR_AGE_UNKNOWN;
    if (freed && mlr_less(now, a->oldest) < now / 4) return MLR_AGE_REPLACED;
    if (mlr_less(now, a->youngest) > now / 2) return MLR_AGE_KEPT;
    if (!freed && a->blocks >= 8 && mlr_less(a->youngest, a->oldest) >= now / 4 &&
        mlr_less(now, a->youngest) <= now / 4)
        return MLR_AGE_ACCUMULATES;
    return MLR_AGE_UNKNOWN;
}
/* Fills in the ages of all places, by number. */
static void ages_all(const mlr_build *b, mlr_ages *all) {
    const mlr_profile *p = b->profile;
    uint32_t i;
    for (i = 0; i <= b->places; i++) all[i].oldest = all[i].youngest = MLR_UNKNOWN;
    for (i = 0; i < p->group_count; i++)
        if (!p->group[i].arena && mlr_group_in(b, &p->group[i]))
            ages_add(&all[mlr_place_of_group(b, &p->group[i])], &p->group[i]);
    for (i = 1; i <= b->places; i++) all[i].kind = ages_kind(b, &all[i], &b->place[i - 1]);
}
MLR_PRIVATE mlr_ages mlr_ages_of(const mlr_build *b, uint32_t place) {
    const mlr_profile *p = b->profile;
    mlr_ages a = {0, 0, MLR_UNKNOWN, MLR_UNKNOWN, MLR_AGE_UNKNOWN};
    uint32_t i;
    for (i = 0; i < p->group_count; i++)
        if (!p->group[i].arena && mlr_place_of_group(b, &p->group[i]) == place)
            ages_add(&a, &p->group[i]);
    a.kind = ages_kind(b, &a, &b->place[place - 1]);
    return a;
}

static const char *const kind_texts[] = {"", "accumulates", "replaced, as in a cache",
                                         "kept since early"};
static void words_freed(mlr_words *w, const mlr_place *place) {
    if (!place->frees)
        mlr_words_add(w, "none of %u allocs was freed", place->allocs);
    else
        mlr_words_add(w, "%g of %u allocs were freed", place->frees, place->allocs, place->allocs);
}
MLR_PRIVATE void mlr_ages_say(mlr_build *b, mlr_sentence *s, uint32_t place) {
    const mlr_ages a = mlr_ages_of(b, place);
    const uint64_t now = b->profile->uptime_ns;
    mlr_words w = {NULL, NULL, 0, 0};
    w.b = b;
    if (a.oldest == MLR_UNKNOWN) return;
    mlr_words_add(&w, "%p: %u blocks, the oldest %d old", b->place[place - 1].frame, a.blocks,
                  mlr_less(now, a.oldest));
    if (a.youngest != MLR_UNKNOWN && a.blocks > 1)
        mlr_words_add(&w, ", the youngest %d", mlr_less(now, a.youngest));
    mlr_words_add(&w, "; ");
    words_freed(&w, &b->place[place - 1]);
    if (a.kind) mlr_words_add(&w, ": %s", kind_texts[a.kind]);
    mlr_say_more(b, s, mlr_words_end(&w));
}

static const mlr_column columns[] = {
    {"live", "live", MLR_BYTES, 0},        {"blocks", "blocks", MLR_COUNT, 0},
    {"oldest", "oldest", MLR_DURATION, 0}, {"youngest", "youngest", MLR_DURATION, 0},
    {"freed", "freed", MLR_SHARE, 0},      {"looks", "looks", MLR_TEXT, 0},
    {"place", "place", MLR_TEXT, 0},       {"device", "device", MLR_TEXT, 1}};
static void ages_row(mlr_build *b, mlr_table *t, const mlr_ages *a, uint32_t number) {
    const mlr_place *place = &b->place[number - 1];
    const uint64_t now = b->profile->uptime_ns;
    mlr_cell *row = mlr_row_add(b, t, place->frame);
    row[0].number = a->bytes;
    row[1].number = a->blocks;
    row[2].number = mlr_less(now, a->oldest);
    if (a->youngest != MLR_UNKNOWN) row[3].number = mlr_less(now, a->youngest);
    row[4].number = mlr_share(place->frees, place->allocs);
    row[5].text = kind_texts[a->kind];
    row[6].text = mlr_place_name(b, place->frame);
    row[7].text = mlr_device_name(b->profile, place->device);
}
MLR_PRIVATE void mlr_ages_answer(mlr_build *b) {
    mlr_table *t =
        mlr_table_begin(b, MLR_TABLE_ages, columns, (uint32_t)(sizeof columns / sizeof *columns));
    mlr_ages *all = (mlr_ages *)mlr_build_alloc(b, b->places + 1u, sizeof *all);
    mlr_ranked *list = (mlr_ranked *)mlr_build_alloc(b, b->places + 1u, sizeof *list);
    uint32_t i, n = 0;
    if (!all || !list) return;
    ages_all(b, all);
    for (i = 1; i <= b->places; i++) {
        if (all[i].oldest == MLR_UNKNOWN) continue;
        list[n].key = all[i].bytes;
        list[n++].number = i;
    }
    mlr_rank(list, n);
    for (i = 0; i < n && i < b->top; i++) ages_row(b, t, &all[list[i].number], list[i].number);
    for (; i < n; i++, t->more++) t->more_bytes += list[i].key;
}
