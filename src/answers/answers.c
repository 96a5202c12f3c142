#include "answers/answers.h"
#include <stdlib.h>
#include <string.h>
#include "answers/ages.h"
#include "answers/build.h"
#include "answers/capacity.h"
#include "answers/growth.h"
#include "answers/holders.h"
#include "answers/leaks.h"
#include "answers/lists.h"
#include "answers/mistakes.h"
#include "answers/moments.h"
#include "answers/peaks.h"
#include "answers/places.h"
#include "answers/pools.h"
#include "answers/resident.h"
#include "answers/stacks.h"
#include "answers/temporaries.h"
#include "answers/wrappers.h"

#define SENTENCES 4 /* the most of a kind; one more tells how many there are besides */

/* -- the order of sentences -- */

typedef struct weighed {
    mlr_sentence of;
    int small; /* 1: it concerns less than 1 % of the bytes */
    uint32_t number;
} weighed;
static int weighed_order(const void *a, const void *b) {
    const weighed *x = (const weighed *)a, *y = (const weighed *)b;
    if (x->small != y->small) return x->small - y->small;
    if (x->of.kind != y->of.kind) return (int)x->of.kind - (int)y->of.kind;
    if (x->of.bytes != y->of.bytes) return x->of.bytes < y->of.bytes ? 1 : -1;
    return x->number < y->number ? -1 : x->number > y->number;
}
/* Returns 1 if a kind is about bytes at all; mistakes and lost detail are not, and come late. */
static int is_small(const mlr_build *b, const mlr_sentence *s) {
    return s->kind < MLR_SAYS_mistakes && s->bytes < b->bytes / 100;
}
/* Puts the sentences in order, and joins those of a kind beyond SENTENCES in one. */
static void sentences_order(mlr_build *b) {
    mlr_answers *a = b->answers;
    weighed *list = (weighed *)mlr_build_alloc(b, a->sentences + 1u, sizeof *list);
    uint32_t count[MLR_SAYS_COUNT] = {0}, i, n = 0;
    uint64_t bytes[MLR_SAYS_COUNT] = {0};
    if (!list) return;
    for (i = 0; i < a->sentences; i++) {
        list[i].of = a->sentence[i];
        list[i].small = is_small(b, &a->sentence[i]);
        list[i].number = i;
    }
    if (a->sentences > 1) qsort(list, a->sentences, sizeof *list, weighed_order);
    for (i = 0; i < a->sentences; i++) {
        const mlr_says kind = list[i].of.kind;
        if (count[kind]++ < SENTENCES)
            a->sentence[n++] = list[i].of;
        else
            bytes[kind] = mlr_more(bytes[kind], list[i].of.bytes);
    }
    a->sentences = n;
    for (i = 0; i < MLR_SAYS_COUNT; i++) {
        mlr_words w = {NULL, NULL, 0, 0};
        mlr_sentence *s;
        w.b = b;
        if (count[i] <= SENTENCES) continue;
        mlr_words_add(&w, "%u more", (uint64_t)(count[i] - SENTENCES));
        if (bytes[i]) mlr_words_add(&w, ", %b", bytes[i]);
        s = mlr_say(b, MLR_SAYS_more, 0, bytes[i], &w);
        s->head = mlr_text_make(b, "%s, besides", mlr_says_head((mlr_says)i));
    }
}

/* -- what stands above the sentences -- */

static void header(mlr_build *b) {
    const mlr_profile *p = b->profile;
    const mlr_options *o = &b->options;
    mlr_words w = {NULL, NULL, 0, 0};
    w.b = b;
    if (*p->program) mlr_words_add(&w, "%n, ", p->program);
    mlr_words_add(&w, "pid %s", mlr_text_make(b, "%u", p->pid));
    if (*p->host) mlr_words_add(&w, " on %n", p->host);
    if (*p->started_at) mlr_words_add(&w, ", since %n", p->started_at);
    mlr_words_add(&w, " for %d", p->uptime_ns);
    b->answers->program = mlr_words_end(&w);
    if (o->device) mlr_words_add(&w, ", device %n", o->device);
    if (o->tag) mlr_words_add(&w, ", tag %n", o->tag);
    if (o->site) mlr_words_add(&w, ", site %n", o->site);
    if (o->module) mlr_words_add(&w, ", module %n", o->module);
    b->answers->filter = w.used ? mlr_text_make(b, "only %s", w.at + 2) : "";
}
static void note(mlr_build *b, const char *text) {
    mlr_answers *a = b->answers;
    const char **list = (const char **)mlr_build_alloc(b, a->notes + 1u, sizeof *list);
    if (!list) return;
    if (a->notes) memcpy((void *)list, (const void *)a->note, a->notes * sizeof *list);
    list[a->notes++] = text;
    a->note = list;
}
static void notes(mlr_build *b) {
    const mlr_profile *p = b->profile;
    if (p->sample_bytes)
        note(b, mlr_text_make(b, "stacks are a sample, one each %b, scaled to exact totals",
                              p->sample_bytes));
    if (p->total.peak_error)
        note(b, mlr_text_make(b, "peaks are low by at most %b", p->total.peak_error));
    if (p->lacks & MLR_LACKS_GROUPS)
        note(b, mlr_text_make(b,
                              "memlord/%u has no live blocks by tag and place together: no "
                              "shares within a tag, no leaks by place",
                              (uint64_t)p->schema));
    if (p->lacks & MLR_LACKS_BIRTHS) note(b, "the file has no ages of blocks");
    if (p->lacks & MLR_LACKS_STACKS) note(b, "the file has only its largest stacks");
    if (b->narrow && (p->lacks & MLR_LACKS_GROUPS) && b->by_tag &&
        (b->options.site || b->options.module))
        note(b, "the file cannot answer for a tag and a place together: sums are of the tag");
}
static void say_nothing(mlr_build *b) {
    mlr_words w = {NULL, NULL, 0, 0};
    uint32_t i;
    w.b = b;
    for (i = 0; i < b->profile->device_count; i++)
        if (b->device_in[i + 1] && b->profile->device[i].stats.allocs && !b->narrow) return;
    if (b->narrow)
        for (i = 1; i <= b->places; i++)
            if (b->place_live[i] || (b->place[i - 1].in && !b->by_tag)) return;
    if (b->answers->sentences) return;
    mlr_words_add(&w, b->narrow || b->options.device ? "nothing fits what is asked for"
                                                     : "the program allocated nothing");
    (void)mlr_say(b, MLR_SAYS_nothing, 0, 0, &w);
}

static int table_order(const void *a, const void *b) {
    return (int)((const mlr_table *)a)->id - (int)((const mlr_table *)b)->id;
}
static void tables_order(mlr_answers *a) {
    uint32_t i, n = 0;
    for (i = 0; i < a->tables; i++)
        if (a->table[i].rows) a->table[n++] = a->table[i];
    a->tables = n;
    if (n > 1) qsort(a->table, n, sizeof *a->table, table_order);
}

static void answer(mlr_build *b) {
    mlr_mistakes_answer(b);
    mlr_capacity_answer(b);
    mlr_growth_answer(b);
    mlr_leaks_answer(b);
    mlr_resident_answer(b);
    mlr_peaks_answer(b);
    mlr_holders_answer(b);
    mlr_ages_answer(b);
    mlr_temporaries_answer(b);
    mlr_pools_answer(b);
    mlr_stacks_answer(b);
    mlr_moments_answer(b);
    mlr_lists_answer(b);
    say_nothing(b);
}
/* All bytes of which a sentence may concern less than 1 %. */
static uint64_t all_bytes(const mlr_build *b) {
    uint64_t sum = 0;
    uint32_t i;
    for (i = 1; i <= b->profile->device_count; i++) {
        const mlr_stats *s = &b->profile->device[i - 1].stats;
        if (!b->device_in[i]) continue;
        sum = mlr_more(sum, b->narrow                ? b->device_live[i]
                            : s->peak > s->allocated ? s->peak
                                                     : s->allocated);
    }
    return b->narrow || b->options.device ? sum : mlr_more(sum, mlr_outside_books(b->profile));
}
MLR_PRIVATE mlr_answers *mlr_answers_make(mlr_profile *profile, const mlr_options *options) {
    mlr_build b;
    memset(&b, 0, sizeof b);
    b.profile = profile;
    b.no_sentence.head = b.no_sentence.text = "";
    b.answers = (mlr_answers *)mlr_build_alloc(&b, 1, sizeof *b.answers);
    if (options) b.options = *options;
    b.top = b.options.top ? b.options.top : MLR_TOP;
    if (b.failed) return NULL;
    b.answers->profile = profile;
    b.answers->options = b.options;
    b.answers->table = (mlr_table *)mlr_build_alloc(&b, MLR_TABLE_COUNT, sizeof *b.answers->table);
    if (!b.options.keep_wrappers) mlr_wrappers_mark(profile);
    mlr_places_find(&b);
    if (b.failed) return NULL;
    b.bytes = all_bytes(&b);
    header(&b);
    answer(&b);
    sentences_order(&b);
    notes(&b);
    tables_order(b.answers);
    return b.failed ? NULL : b.answers;
}

MLR_PRIVATE mlr_table *mlr_answers_table(const mlr_answers *a, mlr_table_id id) {
    uint32_t i;
    for (i = 0; i < a->tables; i++)
        if (a->table[i].id == id) return &a->table[i];
    return NULL;
}
MLR_PRIVATE mlr_cell *mlr_table_cell(const mlr_table *t, uint32_t row, const char *key) {
    uint32_t i;
    for (i = 0; i < t->columns; i++)
        if (!strcmp(t->column[i].key, key)) return &t->cell[(size_t)row * t->columns + i];
    return NULL;
}
