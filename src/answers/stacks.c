#include "answers/stacks.h"
#include <stdlib.h>
#include <string.h>
#include "answers/places.h"
#include "profile/read.h"

#define FRAMES 5 /* the most functions of a stack in a row */

/* What a stack is ordered by. */
static uint64_t stack_key(const mlr_build *b, const mlr_stack *s) {
    switch (b->options.by) {
    case MLR_BY_PEAK: return s->at_peak;
    case MLR_BY_ALLOCS: return s->allocs;
    case MLR_BY_ALLOCATED: return s->alloc_bytes;
    case MLR_BY_TEMPORARY: return s->temporaries;
    case MLR_BY_HELD: return s->live > s->at_peak ? s->live : s->at_peak;
    default: return s->live;
    }
}
static int stack_in(const mlr_build *b, uint32_t stack) {
    const uint32_t place = b->stack_place[stack];
    return place && b->place[place - 1].in;
}

/* Returns "grow cache.c:7 < load main.c:3 < ...": functions in no standard library, or else the
   place. */
static const char *stack_text(mlr_build *b, uint32_t stack) {
    const mlr_stack *s = &b->profile->stack[stack - 1];
    mlr_words w = {NULL, NULL, 0, 0};
    mlr_walk walk = {NULL, 0, 0};
    uint32_t frame, shown = 0;
    w.b = b;
    walk.profile = b->profile;
    walk.node = s->node;
    while ((frame = mlr_walk_next(&walk)) != 0 && shown < FRAMES)
        mlr_words_add(&w, shown++ ? " < %p" : "%p", frame);
    if (!shown) mlr_words_add(&w, "%p", b->place[b->stack_place[stack] - 1].frame);
    if (frame) mlr_words_add(&w, " < ...");
    return mlr_words_end(&w);
}
static const mlr_column columns[] = {{"share", "share", MLR_SHARE, 0},
                                     {"live", "live", MLR_BYTES, 0},
                                     {"at_peak", "at peak", MLR_BYTES, 0},
                                     {"allocs", "allocs", MLR_COUNT, 0},
                                     {"error", "error", MLR_BYTES, 1},
                                     {"allocated", "allocated", MLR_BYTES, 1},
                                     {"temporaries", "temporary", MLR_COUNT, 1},
                                     {"blocks", "blocks", MLR_COUNT, 1},
                                     {"stack", "stack", MLR_TEXT, 0},
                                     {"device", "device", MLR_TEXT, 0}};
static void stack_row(mlr_build *b, mlr_table *t, uint32_t number, uint64_t key, uint64_t whole) {
    const mlr_stack *s = &b->profile->stack[number - 1];
    mlr_cell *row = mlr_row_add(b, t, b->place[b->stack_place[number] - 1].frame);
    row[0].number = mlr_share(key, whole);
    row[1].number = s->live;
    row[2].number = s->at_peak;
    row[3].number = s->allocs;
    if (s->samples) row[4].number = s->error;
    row[5].number = s->alloc_bytes;
    row[6].number = s->temporaries;
    row[7].number = s->live_blocks;
    row[8].text = stack_text(b, number);
    if (b->profile->device_count > 1) row[9].text = mlr_device_name(b->profile, s->device);
}
static void stacks_table(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t =
        mlr_table_begin(b, MLR_TABLE_stacks, columns, (uint32_t)(sizeof columns / sizeof *columns));
    mlr_ranked *list = (mlr_ranked *)mlr_build_alloc(b, p->stack_count + 1u, sizeof *list);
    uint64_t whole = 0;
    uint32_t i, n = 0;
    if (!list || b->by_tag) return;
    for (i = 1; i <= p->stack_count; i++) {
        const uint64_t key = stack_in(b, i) ? stack_key(b, &p->stack[i - 1]) : 0;
        if (!key) continue;
        list[n].key = key;
        list[n++].number = i;
        whole += key;
    }
    mlr_rank(list, n);
    for (i = 0; i < n && i < b->top; i++) stack_row(b, t, list[i].number, list[i].key, whole);
    for (; i < n; i++, t->more++) t->more_bytes += p->stack[list[i].number - 1].live;
    if (p->sample_bytes)
        t->note = mlr_text_make(b,
                                "stacks are a sample, one each %b, scaled to exact totals; "
                                "error: standard error of live",
                                p->sample_bytes);
}

/* -- the tree -- A node of the tree is a function (or a place without a name) below its caller. It
   has what all stacks through it have. */

typedef struct branch {
    uint32_t parent, frame, child, sibling; /* child: the first of its callees; 0: none */
    uint64_t key, live, at_peak, allocs, temporaries;
} branch;
typedef struct tree {
    mlr_build *b;
    branch *at; /* at[0] is the root, over all stacks */
    uint32_t count, room;
    mlr_table *t;
    uint64_t whole;
} tree;

static uint32_t branch_get(tree *t, uint32_t parent, uint32_t frame) {
    const mlr_profile *p = t->b->profile;
    const mlr_function *f = mlr_frame_shown(p, frame);
    uint32_t i;
    for (i = t->at[parent].child; i; i = t->at[i].sibling) {
        const mlr_function *g = mlr_frame_shown(p, t->at[i].frame);
        if (t->at[i].frame == frame || (*f->name && !strcmp(f->name, g->name))) return i;
    }
    if (t->count == t->room) {
        const uint32_t room = 2 * t->room;
        branch *at = (branch *)mlr_build_alloc(t->b, room, sizeof *at);
        if (!at) return parent;
        memcpy(at, t->at, t->count * sizeof *at);
        t->at = at;
        t->room = room;
    }
    i = t->count++;
    t->at[i].parent = parent;
    t->at[i].frame = frame;
    t->at[i].sibling = t->at[parent].child;
    t->at[parent].child = i;
    return i;
}
static void branch_add(branch *at, const mlr_stack *s, uint64_t key) {
    at->key += key;
    at->live += s->live;
    at->at_peak += s->at_peak;
    at->allocs += s->allocs;
    at->temporaries += s->temporaries;
}
/* Adds a stack to the tree: the functions of its walk, the outermost first. */
static void tree_add(tree *t, uint32_t number) {
    const mlr_stack *s = &t->b->profile->stack[number - 1];
    const uint64_t key = stack_key(t->b, s);
    uint32_t frame[256], n = 0, at = 0;
    mlr_walk walk = {NULL, 0, 0};
    walk.profile = t->b->profile;
    walk.node = s->node;
    while (n < 256 && (frame[n] = mlr_walk_next(&walk)) != 0) n++;
    if (!n) frame[n++] = t->b->place[t->b->stack_place[number] - 1].frame;
    branch_add(&t->at[0], s, key);
    while (n--) {
        at = branch_get(t, at, frame[n]);
        branch_add(&t->at[at], s, key);
    }
}
static const mlr_column tree_columns[] = {
    {"share", "share", MLR_SHARE, 0},           {"live", "live", MLR_BYTES, 0},
    {"at_peak", "at peak", MLR_BYTES, 0},       {"allocs", "allocs", MLR_COUNT, 0},
    {"temporaries", "temporary", MLR_COUNT, 1}, {"depth", "depth", MLR_COUNT, 1},
    {"function", "function", MLR_TEXT, 0}};
/* Adds a node that has at least 1 % of the whole, and its callees below it, the largest first. A
   node that has all of its caller's stays at its depth. */
static void tree_row(tree *t, uint32_t at, uint32_t depth) {
    const branch *br = &t->at[at];
    mlr_cell *row;
    mlr_words w = {NULL, NULL, 0, 0};
    mlr_ranked *list;
    uint32_t i, n = 0, k;
    if (t->t->rows >= 4 * t->b->top) {
        t->t->more++;
        return;
    }
    w.b = t->b;
    if (at) {
        for (k = 0; k < depth && k < 30; k++) mlr_words_add(&w, "| ");
        mlr_words_add(&w, "%p", br->frame);
        row = mlr_row_add(t->b, t->t, br->frame);
        row[0].number = mlr_share(br->key, t->whole);
        row[1].number = br->live;
        row[2].number = br->at_peak;
        row[3].number = br->allocs;
        row[4].number = br->temporaries;
        row[5].number = depth;
        row[6].text = mlr_words_end(&w);
    }
    for (i = br->child; i; i = t->at[i].sibling) n++;
    list = (mlr_ranked *)mlr_build_alloc(t->b, n, sizeof *list);
    if (!list) return;
    for (i = br->child, n = 0; i; i = t->at[i].sibling) {
        list[n].key = t->at[i].key;
        list[n++].number = i;
    }
    mlr_rank(list, n);
    for (i = 0; i < n && list[i].key && list[i].key >= t->whole / 100; i++)
        tree_row(t, list[i].number, at ? depth + (n > 1) : depth);
    t->t->more += n - i;
}
static void tree_table(mlr_build *b) {
    tree t;
    uint32_t i;
    memset(&t, 0, sizeof t);
    t.b = b;
    t.room = 1024;
    t.count = 1;
    t.at = (branch *)mlr_build_alloc(b, t.room, sizeof *t.at);
    if (!t.at || b->by_tag) return;
    for (i = 1; i <= b->profile->stack_count; i++)
        if (stack_in(b, i) && stack_key(b, &b->profile->stack[i - 1])) tree_add(&t, i);
    t.whole = t.at[0].key;
    t.t = mlr_table_begin(b, MLR_TABLE_tree, tree_columns,
                          (uint32_t)(sizeof tree_columns / sizeof *tree_columns));
    t.t->more_bytes = MLR_UNKNOWN;
    t.t->note = "from the outermost function inwards, without standard libraries and wrappers; "
                "parts below 1 % are left out";
    tree_row(&t, 0, 0);
}
MLR_PRIVATE void mlr_stacks_answer(mlr_build *b) {
    stacks_table(b);
    if (b->options.tree) tree_table(b);
}
