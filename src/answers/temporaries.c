#include "answers/temporaries.h"
#include "answers/callers.h"

static const mlr_column columns[] = {
    {"share", "share", MLR_SHARE, 0},   {"temporaries", "temporary", MLR_COUNT, 0},
    {"allocs", "allocs", MLR_COUNT, 0}, {"allocated", "allocated", MLR_BYTES, 0},
    {"place", "place", MLR_TEXT, 0},    {"from", "called from", MLR_TEXT, 0},
    {"device", "device", MLR_TEXT, 1}};

static void say(mlr_build *b, uint64_t temporaries, uint64_t allocs, uint32_t number) {
    const mlr_place *place = &b->place[number - 1];
    mlr_words w = {NULL, NULL, 0, 0};
    mlr_sentence *s;
    w.b = b;
    mlr_words_add(&w, "%g of %u allocs die before the next; %g of these at %p", temporaries, allocs,
                  allocs, place->temporaries, temporaries, place->frame);
    mlr_callers_say(&w, number, MLR_BY_TEMPORARY);
    s = mlr_say(b, MLR_SAYS_temporaries, place->device, place->alloc_bytes, &w);
    s->head = "short-lived";
    s->frame = place->frame;
}
MLR_PRIVATE void mlr_temporaries_answer(mlr_build *b) {
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_temporaries, columns,
                                   (uint32_t)(sizeof columns / sizeof *columns));
    mlr_ranked *list = (mlr_ranked *)mlr_build_alloc(b, b->places + 1u, sizeof *list);
    uint64_t temporaries = 0, allocs = 0;
    uint32_t i, n = 0;
    t->more_bytes = MLR_UNKNOWN;
    if (!list || b->by_tag) return;
    for (i = 1; i <= b->places; i++) {
        const mlr_place *place = &b->place[i - 1];
        if (!place->in) continue;
        temporaries += place->temporaries;
        allocs += place->allocs;
        if (!place->temporaries) continue;
        list[n].key = place->temporaries;
        list[n++].number = i;
    }
    mlr_rank(list, n);
    if (n && allocs >= 10000 && temporaries >= allocs / 2)
        say(b, temporaries, allocs, list[0].number);
    for (i = 0; i < n && i < b->top; i++) {
        const mlr_place *place = &b->place[list[i].number - 1];
        mlr_cell *row = mlr_row_add(b, t, place->frame);
        row[0].number = mlr_share(place->temporaries, temporaries);
        row[1].number = place->temporaries;
        row[2].number = place->allocs;
        row[3].number = place->alloc_bytes;
        row[4].text = mlr_place_name(b, place->frame);
        row[5].text = mlr_callers_text(b, list[i].number, MLR_BY_TEMPORARY);
        row[6].text = mlr_device_name(b->profile, place->device);
    }
    t->more = n - i;
}
