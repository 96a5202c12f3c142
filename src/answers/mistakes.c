#include "answers/mistakes.h"
#include <string.h>

static const char *const kinds[][2] = {{"unknown_free", "a free of what is not live"},
                                       {"implicit_free", "an alloc over a live block, which ended"},
                                       {"freed_while_shared", "a free of a block that has views"},
                                       {"underflow", "more taken off an arena than it had"},
                                       {"fence_failed", "a fence that failed"},
                                       {"refused", "a call with a bad argument"},
                                       {"misplaced_end", "an end of a tag or scope with none open"},
                                       {"dropped", "no room to record an alloc"}};
static const char *kind_text(const char *kind) {
    size_t i;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i][0], kind)) return kinds[i][1];
    return kind;
}

/* -- what was not recorded -- */

static void say_totals(mlr_build *b, uint32_t device) {
    const mlr_stats *s = &b->profile->device[device - 1].stats;
    mlr_words w = {NULL, NULL, 0, 0};
    w.b = b;
    if (!s->dropped_allocs) return;
    mlr_words_add(&w, "%b in %u allocs were not recorded", s->dropped_bytes, s->dropped_allocs);
    (void)mlr_say(b, MLR_SAYS_totals, device, s->dropped_bytes, &w);
}
/* Drops that belong to no device, as when there was no room for a device's row. */
static void say_totals_of_none(mlr_build *b) {
    const mlr_profile *p = b->profile;
    uint64_t allocs = p->total.dropped_allocs, bytes = p->total.dropped_bytes;
    mlr_words w = {NULL, NULL, 0, 0};
    uint32_t i;
    w.b = b;
    if (p->lost_allocs > allocs) allocs = p->lost_allocs;
    for (i = 0; i < p->device_count; i++) {
        allocs = mlr_less(allocs, p->device[i].stats.dropped_allocs);
        bytes = mlr_less(bytes, p->device[i].stats.dropped_bytes);
    }
    if (!allocs) return;
    mlr_words_add(&w, "%b in %u allocs were not recorded", bytes, allocs);
    (void)mlr_say(b, MLR_SAYS_totals, 0, bytes, &w);
}
static void say_detail(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_words w = {NULL, NULL, 0, 0};
    w.b = b;
    if (p->lost_sites)
        mlr_words_add(&w, "%u allocs have no site, as there was no room for it", p->lost_sites);
    if (p->lost_tags)
        mlr_words_add(&w, "%s%u have no tag", p->lost_sites ? "; " : "", p->lost_tags);
    if (!w.used) return;
    (void)mlr_say(b, MLR_SAYS_detail, 0, 0, &w);
}
static const mlr_column loss_columns[] = {{"count", "count", MLR_COUNT, 0},
                                          {"bytes", "bytes", MLR_BYTES, 0},
                                          {"what", "what", MLR_TEXT, 0},
                                          {"device", "device", MLR_TEXT, 0}};
static void loss_row(mlr_build *b, mlr_table *t, uint64_t n, uint64_t bytes, const char *what,
                     uint32_t device) {
    mlr_cell *row;
    if (!n) return;
    row = mlr_row_add(b, t, 0);
    row[0].number = n;
    row[1].number = bytes;
    row[2].text = what;
    row[3].text = mlr_device_name(b->profile, device);
}
static void losses_table(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_losses, loss_columns, 4);
    uint32_t i;
    for (i = 1; i <= p->device_count; i++) {
        const mlr_stats *s = &p->device[i - 1].stats;
        if (!b->device_in[i]) continue;
        loss_row(b, t, s->dropped_allocs, s->dropped_bytes, "allocs not recorded", i);
        loss_row(b, t, s->dropped_sites, MLR_UNKNOWN, "allocs without their site", i);
        loss_row(b, t, s->dropped_events, MLR_UNKNOWN, "events not kept", i);
    }
    loss_row(b, t, p->lost_tags, MLR_UNKNOWN, "allocs without their tag", 0);
    loss_row(b, t, p->stacks_cut, MLR_UNKNOWN, "stacks that could not be taken", 0);
}

/* -- mistakes -- */

static void say_mistake(mlr_build *b, const mlr_mistake *m, uint32_t device) {
    mlr_words w = {NULL, NULL, 0, 0};
    mlr_sentence *s;
    w.b = b;
    mlr_words_add(&w, "%s", kind_text(m->kind));
    if (m->bytes) mlr_words_add(&w, ", %b", m->bytes);
    if (m->frame) mlr_words_add(&w, ", at %p", m->frame);
    if (m->count > 1)
        mlr_words_add(&w, ", %u times", m->count);
    else
        mlr_words_add(&w, ", once");
    s = mlr_say(b, MLR_SAYS_mistakes, device, m->bytes, &w);
    s->frame = m->frame;
    if (*m->tag) s->tag = m->tag;
    if (m->born) mlr_say_more(b, s, mlr_text_make(b, "its block is from %p", m->born));
}
static const mlr_column columns[] = {
    {"count", "count", MLR_COUNT, 0},     {"bytes", "bytes", MLR_BYTES, 0},
    {"first", "first", MLR_SINCE, 0},     {"last", "last", MLR_SINCE, 1},
    {"storage", "block", MLR_ADDRESS, 1}, {"kind", "kind", MLR_TEXT, 1},
    {"what", "what", MLR_TEXT, 0},        {"place", "at", MLR_TEXT, 0},
    {"born", "block from", MLR_TEXT, 0},  {"tag", "tag", MLR_TEXT, 0},
    {"device", "device", MLR_TEXT, 0}};
static void mistake_row(mlr_build *b, mlr_table *t, const mlr_mistake *m) {
    mlr_cell *row = mlr_row_add(b, t, m->frame);
    row[0].number = m->count;
    row[1].number = m->bytes;
    row[2].number = m->first_ns;
    row[3].number = m->last_ns;
    if (m->storage) row[4].number = m->storage;
    row[5].text = m->kind;
    row[6].text = kind_text(m->kind);
    if (m->frame) row[7].text = mlr_place_name(b, m->frame);
    if (m->born) row[8].text = mlr_place_name(b, m->born);
    row[9].text = m->tag;
    row[10].text = m->device;
}
/* The weight of a mistake: bytes, then how often. */
static uint64_t mistake_key(const mlr_mistake *m) {
    return mlr_more(m->bytes > UINT64_MAX >> 8 ? UINT64_MAX >> 1 : m->bytes << 7,
                    m->count < 127 ? m->count : 127);
}
static void mistakes_table(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_mistakes, columns,
                                   (uint32_t)(sizeof columns / sizeof *columns));
    mlr_ranked *list = (mlr_ranked *)mlr_build_alloc(b, p->mistake_count, sizeof *list);
    uint32_t i, device;
    t->more_bytes = MLR_UNKNOWN;
    if (!list || b->narrow) return;
    for (i = 0; i < p->mistake_count; i++) {
        list[i].key = mistake_key(&p->mistake[i]);
        list[i].number = i;
    }
    mlr_rank(list, p->mistake_count);
    for (i = 0; i < p->mistake_count; i++) {
        const mlr_mistake *m = &p->mistake[list[i].number];
        for (device = p->device_count; device; device--)
            if (!strcmp(p->device[device - 1].name, m->device)) break;
        if (device ? !b->device_in[device] : b->options.device != NULL) continue;
        if (strcmp(m->kind, "dropped")) say_mistake(b, m, device);
        if (t->rows < b->top)
            mistake_row(b, t, m);
        else
            t->more++;
    }
}

static void say_inherited(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_words w = {NULL, NULL, 0, 0};
    w.b = b;
    if (!p->inherited_bytes || b->narrow || b->options.device) return;
    mlr_words_add(&w, "%b in %u blocks were live at the fork that made the process",
                  p->inherited_bytes, p->inherited_blocks);
    (void)mlr_say(b, MLR_SAYS_inherited, 0, p->inherited_bytes, &w);
}
MLR_PRIVATE void mlr_mistakes_answer(mlr_build *b) {
    uint32_t i;
    for (i = 1; i <= b->profile->device_count; i++)
        if (b->device_in[i]) say_totals(b, i);
    if (!b->options.device) say_totals_of_none(b);
    mistakes_table(b);
    losses_table(b);
    say_inherited(b);
    if (!b->narrow) say_detail(b);
}
