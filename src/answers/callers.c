#include "answers/callers.h"
#include <string.h>
#include "answers/places.h"
#include "profile/read.h"

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }
/* Returns 1 if a function seems to allocate for others: "xmalloc", "PoolAlloc". */
static int allocates_by_name(const char *function) {
    static const char *const words[] = {"alloc", "strdup", "strndup", "memdup", "operator new"};
    const char *at;
    size_t i, n;
    for (at = function; *at; at++)
        for (i = 0; i < sizeof words / sizeof *words; i++) {
            for (n = 0; words[i][n] && lower(at[n]) == words[i][n];) n++;
            if (!words[i][n]) return 1;
        }
    return 0;
}
/* Returns the frame that a place was called from in a stack, or 0. A function is not its own
   caller. If the place has the name of an allocating function, callers with such a name are passed
   over, unless all have one. */
static uint32_t caller_in(const mlr_build *b, const mlr_place *place, const mlr_stack *s) {
    const mlr_profile *p = b->profile;
    const mlr_function *own = mlr_frame_shown(p, place->frame), *f = own;
    uint32_t first, frame;
    mlr_walk walk = {NULL, 0, 0};
    walk.profile = p;
    walk.node = s->node;
    if (!*own->name && !own->library) return 0;
    do {
        first = frame = mlr_walk_next(&walk);
        f = mlr_frame_shown(p, frame);
    } while (frame && (!strcmp(f->name, own->name) || !*f->name));
    while (frame && allocates_by_name(own->name) && allocates_by_name(f->name)) {
        frame = mlr_walk_next(&walk);
        f = mlr_frame_shown(p, frame);
    }
    return frame && *f->name ? frame : first;
}
static int same_function(const mlr_profile *p, uint32_t frame, uint32_t other) {
    const mlr_function *f = mlr_frame_shown(p, frame), *g = mlr_frame_shown(p, other);
    return frame == other ||
           (f->line == g->line && !strcmp(f->name, g->name) && !strcmp(f->file, g->file));
}
static void caller_add(const mlr_build *b, mlr_callers *out, uint32_t frame, const mlr_stack *s) {
    uint32_t i = 0;
    mlr_caller *c;
    while (i < out->count && i < MLR_CALLERS && !same_function(b->profile, out->at[i].frame, frame))
        i++;
    c = &out->at[i];
    if (i == out->count) {
        c->frame = i < MLR_CALLERS ? frame : 0;
        out->count++;
    }
    c->live += s->live;
    c->at_peak += s->at_peak;
    c->allocs += s->allocs;
    c->alloc_bytes += s->alloc_bytes;
    c->temporaries += s->temporaries;
}
static uint64_t caller_key(const mlr_caller *c, mlr_by by) {
    switch (by) {
    case MLR_BY_PEAK: return c->at_peak;
    case MLR_BY_ALLOCS: return c->allocs;
    case MLR_BY_ALLOCATED: return c->alloc_bytes;
    case MLR_BY_TEMPORARY: return c->temporaries;
    case MLR_BY_HELD: return c->live > c->at_peak ? c->live : c->at_peak;
    default: return c->live;
    }
}
static void callers_order(mlr_callers *out, mlr_by by) {
    uint32_t i, k;
    out->sum = 0;
    for (i = 0; i < out->count; i++) out->sum += out->at[i].key = caller_key(&out->at[i], by);
    for (i = 1; i < out->count; i++) {
        const mlr_caller moving = out->at[i];
        for (k = i; k && moving.key > out->at[k - 1].key; k--) out->at[k] = out->at[k - 1];
        out->at[k] = moving;
    }
}
MLR_PRIVATE void mlr_callers_find(const mlr_build *b, uint32_t place, mlr_by by, mlr_callers *out) {
    uint32_t k;
    memset(out, 0, sizeof *out);
    for (k = place ? b->place_stack[place] : 0; k; k = b->stack_next[k]) {
        const mlr_stack *s = &b->profile->stack[k - 1];
        const uint32_t frame = caller_in(b, &b->place[place - 1], s);
        if (frame && (s->live | s->allocs | s->at_peak)) caller_add(b, out, frame, s);
    }
    callers_order(out, by);
    if (!out->sum) callers_order(out, MLR_BY_ALLOCATED);
}

MLR_PRIVATE void mlr_callers_say(mlr_words *w, uint32_t place, mlr_by by) {
    mlr_callers all;
    mlr_callers_find(w->b, place, by, &all);
    if (!all.count || !all.at[0].frame || all.at[0].key <= all.sum / 2) return;
    mlr_words_add(w, all.at[0].key < all.sum ? ", mostly from %p" : ", from %p", all.at[0].frame);
}
MLR_PRIVATE const char *mlr_callers_text(mlr_build *b, uint32_t place, mlr_by by) {
    mlr_words w = {NULL, NULL, 0, 0};
    mlr_callers all;
    uint32_t i;
    w.b = b;
    mlr_callers_find(b, place, by, &all);
    for (i = 0; i < all.count && i < 3 && all.at[i].key; i++) {
        mlr_words_add(&w, i ? ", " : "");
        if (all.at[i].frame)
            mlr_words_add(&w, "%p", all.at[i].frame);
        else
            mlr_words_add(&w, "others");
        if (all.count > 1) mlr_words_add(&w, " %g", all.at[i].key, all.sum);
    }
    if (i < all.count && all.at[i].key) mlr_words_add(&w, ", ...");
    return mlr_words_end(&w);
}

static const mlr_column columns[] = {
    {"share", "share", MLR_SHARE, 0},         {"live", "live", MLR_BYTES, 0},
    {"at_peak", "at peak", MLR_BYTES, 0},     {"allocs", "allocs", MLR_COUNT, 0},
    {"allocated", "allocated", MLR_BYTES, 1}, {"temporaries", "temporary", MLR_COUNT, 1},
    {"caller", "called from", MLR_TEXT, 0},   {"place", "place", MLR_TEXT, 0},
    {"device", "device", MLR_TEXT, 1}};
static void callers_rows(mlr_build *b, mlr_table *t, uint32_t place) {
    const mlr_place *of = &b->place[place - 1];
    mlr_callers all;
    uint32_t i;
    mlr_callers_find(b, place, b->options.by, &all);
    for (i = 0; i < all.count && t->rows < 4 * b->top; i++) {
        const mlr_caller *c = &all.at[i];
        mlr_cell *row = mlr_row_add(b, t, c->frame);
        row[0].number = mlr_share(c->key, all.sum);
        row[1].number = c->live;
        row[2].number = c->at_peak;
        row[3].number = c->allocs;
        row[4].number = c->alloc_bytes;
        row[5].number = c->temporaries;
        row[6].text = c->frame ? mlr_place_name(b, c->frame) : "(others)";
        row[7].text = mlr_place_name(b, of->frame);
        row[8].text = mlr_device_name(b->profile, of->device);
    }
    if (i < all.count) t->more += all.count - i;
}
MLR_PRIVATE void mlr_callers_table(mlr_build *b, const uint32_t *place, uint32_t n) {
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_callers, columns,
                                   (uint32_t)(sizeof columns / sizeof *columns));
    uint32_t i;
    t->more_bytes = MLR_UNKNOWN;
    for (i = 0; i < n; i++) callers_rows(b, t, place[i]);
}
