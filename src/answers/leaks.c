#include "answers/leaks.h"
#include <string.h>
#include "answers/ages.h"
#include "answers/callers.h"
#include "answers/places.h"

typedef struct still { /* the blocks of a place, of all tags and scopes, that are still live */
    uint64_t bytes, blocks, oldest;
    uint32_t tag, scope;   /* one of them */
    uint32_t tags, scopes; /* 0: only blocks without one; 1: one; 2: several */
    int untagged, unscoped;
} still;

static void still_add(still *s, const mlr_group *g, int marked) {
    const uint64_t blocks = marked ? g->marked_blocks : g->blocks;
    if (!blocks) return;
    s->bytes += marked ? g->marked_bytes : g->bytes;
    s->blocks += blocks;
    if (g->oldest_ns < s->oldest) s->oldest = g->oldest_ns;
    if (!g->tag)
        s->untagged = 1;
    else if (!s->tags || g->tag != s->tag)
        s->tags++;
    if (g->tag) s->tag = g->tag;
    if (!g->scope)
        s->unscoped = 1;
    else if (!s->scopes || g->scope != s->scope)
        s->scopes++;
    if (g->scope) s->scope = g->scope;
}
/* The bytes that may be a leak. Of blocks that are replaced all the time none, but all if the place
   grows. */
static uint64_t suspect(const mlr_build *b, uint32_t place, const still *s) {
    const mlr_place *of = &b->place[place - 1];
    const mlr_ages ages = mlr_ages_of(b, place);
    if (b->place_grows && b->place_grows[place]) return s->bytes;
    if (ages.kind == MLR_AGE_REPLACED) return 0;
    if (ages.kind != MLR_AGE_UNKNOWN || !of->allocs || ages.oldest != MLR_UNKNOWN) return s->bytes;
    return (uint64_t)((double)s->bytes * (1 - (double)of->frees / (double)of->allocs));
}
/* Finds the place that the sentence names, among the largest; a growing one first. */
static uint32_t most_suspect(const mlr_build *b, const still *all, const mlr_ranked *list,
                             uint32_t n) {
    uint32_t i, most = n ? list[0].number : 0;
    uint64_t bytes = 0;
    int grows = 0;
    for (i = 0; i < n && i < 32; i++) {
        const uint32_t place = list[i].number;
        const int rises = b->place_grows && b->place_grows[place];
        const uint64_t mine = suspect(b, place, &all[place]);
        if (rises < grows || (rises == grows && mine <= bytes)) continue;
        grows = rises;
        bytes = mine;
        most = place;
    }
    return most;
}
/* Adds "(cpu, tag kv, in load)" or "(cpu, 2 tags)". */
static void words_of(mlr_words *w, const still *s, uint32_t device) {
    const mlr_profile *p = w->b->profile;
    mlr_words_add(w, " (%v", device);
    if (s->tags == 1)
        mlr_words_add(w, s->untagged ? ", partly tag %n" : ", tag %n", mlr_tag_name(p, s->tag));
    if (s->tags > 1) mlr_words_add(w, ", several tags");
    if (s->scopes == 1)
        mlr_words_add(w, s->unscoped ? ", partly in %n" : ", in %n", p->scope[s->scope - 1].path);
    if (s->scopes > 1) mlr_words_add(w, ", in several scopes");
    mlr_words_add(w, ")");
}
static void say_still(mlr_build *b, const still *all, const mlr_ranked *list, uint32_t n) {
    const uint32_t place = most_suspect(b, all, list, n);
    uint64_t bytes = 0, blocks = 0;
    uint32_t i;
    mlr_words w = {NULL, NULL, 0, 0};
    mlr_sentence *s;
    w.b = b;
    for (i = 0; i <= b->places; i++) {
        bytes += all[i].bytes;
        blocks += all[i].blocks;
    }
    if (!blocks) return;
    mlr_words_add(&w, "%b in %u block%s", bytes, blocks, blocks == 1 ? "" : "s");
    if (place) {
        mlr_words_add(&w, "; %b of it from %p", all[place].bytes, b->place[place - 1].frame);
        words_of(&w, &all[place], b->place[place - 1].device);
        mlr_callers_say(&w, place, MLR_BY_LIVE);
    }
    s = mlr_say(b, MLR_SAYS_still_live, 0, bytes, &w);
    s->head = mlr_text_make(b, "%s %u", s->head, b->profile->mark);
    if (!place) return;
    s->frame = b->place[place - 1].frame;
    if (all[place].tags == 1) s->tag = mlr_tag_name(b->profile, all[place].tag);
    mlr_ages_say(b, s, place);
    if (list[0].number != place) mlr_ages_say(b, s, list[0].number);
}

static const mlr_column columns[] = {
    {"bytes", "live", MLR_BYTES, 0},       {"blocks", "blocks", MLR_COUNT, 0},
    {"oldest", "oldest", MLR_DURATION, 0}, {"freed", "freed", MLR_SHARE, 0},
    {"place", "place", MLR_TEXT, 0},       {"from", "called from", MLR_TEXT, 0},
    {"tags", "tags", MLR_TEXT, 0},         {"scopes", "scopes", MLR_TEXT, 0},
    {"device", "device", MLR_TEXT, 0}};
static const char *one_or_several(const char *name, uint32_t n, int others) {
    return n > 1 ? "(several)" : !n ? "" : others ? "(several)" : name;
}
static void still_row(mlr_build *b, mlr_table *t, const still *s, uint32_t place) {
    const mlr_profile *p = b->profile;
    const mlr_place *of = place ? &b->place[place - 1] : NULL;
    mlr_cell *row = mlr_row_add(b, t, of ? of->frame : 0);
    row[0].number = s->bytes;
    row[1].number = s->blocks;
    if (s->oldest != MLR_UNKNOWN) row[2].number = mlr_less(p->uptime_ns, s->oldest);
    if (of) row[3].number = mlr_share(of->frees, of->allocs);
    row[4].text = of ? mlr_place_name(b, of->frame) : "(no place known)";
    if (place) row[5].text = mlr_callers_text(b, place, MLR_BY_LIVE);
    row[6].text = one_or_several(s->tag ? mlr_tag_name(p, s->tag) : "", s->tags, s->untagged);
    row[7].text =
        one_or_several(s->scope ? p->scope[s->scope - 1].path : "", s->scopes, s->unscoped);
    if (of && p->device_count > 1) row[8].text = mlr_device_name(p, of->device);
}
MLR_PRIVATE void mlr_leaks_answer(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_still_live, columns,
                                   (uint32_t)(sizeof columns / sizeof *columns));
    still *all = (still *)mlr_build_alloc(b, b->places + 1u, sizeof *all);
    mlr_ranked *list = (mlr_ranked *)mlr_build_alloc(b, b->places + 1u, sizeof *list);
    uint32_t i, n = 0;
    if (!all || !list || !(p->mark || p->ended)) return;
    for (i = 0; i <= b->places; i++) all[i].oldest = MLR_UNKNOWN;
    for (i = 0; i < p->group_count; i++)
        if (!p->group[i].arena && mlr_group_in(b, &p->group[i]))
            still_add(&all[mlr_place_of_group(b, &p->group[i])], &p->group[i], p->mark != 0);
    for (i = 1; i <= b->places; i++) {
        if (!all[i].blocks) continue;
        list[n].key = all[i].bytes;
        list[n++].number = i;
    }
    mlr_rank(list, n);
    t->title =
        p->mark ? mlr_text_make(b, "still live since mark %u", p->mark) : "still live at the end";
    if (p->mark) say_still(b, all, list, n);
    for (i = 0; i < n && i < b->top; i++) still_row(b, t, &all[list[i].number], list[i].number);
    for (; i < n; i++, t->more++) t->more_bytes += list[i].key;
    if (all[0].blocks) still_row(b, t, &all[0], 0);
}
