#include "formats/answers_json.h"
#include <stdio.h>

static const char *const tones[] = {"plain", "odd", "bad"};
static const char *const types[] = {"bytes", "change", "count",   "share", "duration",
                                    "since", "rate",   "address", "text"};

static void put_number(mlr_out *o, uint64_t v) { mlr_putf(o, "%llu", (unsigned long long)v); }
static void put_member(mlr_out *o, const char *key, const char *text) {
    if (!*text) return;
    mlr_putf(o, ",\"%s\":", key);
    mlr_put_json(o, text);
}
static void put_texts(mlr_out *o, const char *key, const char **text, uint32_t n) {
    uint32_t i;
    if (!n) return;
    mlr_putf(o, ",\"%s\":[", key);
    for (i = 0; i < n; i++) {
        if (i) mlr_puts(o, ",");
        mlr_put_json(o, text[i]);
    }
    mlr_puts(o, "]");
}
static void put_sentence(mlr_out *o, const mlr_answers *a, const mlr_sentence *s) {
    mlr_putf(o, "{\"kind\":\"%s\",\"tone\":\"%s\",\"device\":", mlr_says_name(s->kind),
             tones[s->tone]);
    if (s->device)
        mlr_put_json(o, a->profile->device[s->device - 1].name);
    else
        mlr_puts(o, "null");
    mlr_puts(o, ",\"bytes\":");
    put_number(o, s->bytes);
    put_member(o, "head", s->head);
    put_member(o, "text", s->text);
    if (s->frame) {
        mlr_puts(o, ",\"frame\":");
        put_number(o, s->frame);
    }
    if (s->tag) put_member(o, "tag", s->tag);
    put_texts(o, "detail", s->detail, s->details);
    mlr_puts(o, "}");
}
static void put_cell(mlr_out *o, mlr_type type, const mlr_cell *cell) {
    if (type == MLR_TEXT)
        mlr_put_json(o, cell->text);
    else if (cell->number == MLR_UNKNOWN && type != MLR_CHANGE)
        mlr_puts(o, "null");
    else if (type == MLR_CHANGE)
        mlr_putf(o, "%lld", (long long)(int64_t)cell->number);
    else
        put_number(o, cell->number);
}
static void put_rows(mlr_out *o, const mlr_table *t) {
    uint32_t i, k;
    int frames = 0;
    mlr_puts(o, ",\n\"rows\":[");
    for (i = 0; i < t->rows; i++) {
        mlr_puts(o, i ? ",\n[" : "[");
        for (k = 0; k < t->columns; k++) {
            if (k) mlr_puts(o, ",");
            put_cell(o, t->column[k].type, &t->cell[(size_t)i * t->columns + k]);
        }
        mlr_puts(o, "]");
        frames |= t->frame[i] != 0;
    }
    mlr_puts(o, "]");
    for (i = 0; frames && i < t->rows; i++) {
        mlr_puts(o, i ? "," : ",\"frames\":[");
        put_number(o, t->frame[i]);
    }
    if (frames) mlr_puts(o, "]");
}
static void put_table(mlr_out *o, const mlr_table *t) {
    uint32_t k;
    mlr_putf(o, "\"%s\":{\"title\":", t->key);
    mlr_put_json(o, t->title);
    put_member(o, "note", t->note);
    for (k = 0; k < t->columns; k++) {
        mlr_putf(o, "%s{\"key\":\"%s\",\"title\":\"%s\",\"type\":\"%s\"}",
                 k ? "," : ",\"columns\":[", t->column[k].key, t->column[k].title,
                 types[t->column[k].type]);
    }
    mlr_puts(o, "]");
    put_rows(o, t);
    if (t->more) {
        mlr_puts(o, ",\"more\":");
        put_number(o, t->more);
    }
    if (t->more && t->more_bytes != MLR_UNKNOWN) {
        mlr_puts(o, ",\"more_bytes\":");
        put_number(o, t->more_bytes);
    }
    mlr_puts(o, "}");
}
MLR_PRIVATE void mlr_write_answers_json(const mlr_answers *a, mlr_out *o) {
    uint32_t i;
    mlr_puts(o, "{\"schema\":\"memlord-answers/1\"");
    put_member(o, "program", a->program);
    put_member(o, "filter", a->filter);
    put_texts(o, "notes", a->note, a->notes);
    mlr_puts(o, ",\n\"sentences\":[");
    for (i = 0; i < a->sentences; i++) {
        if (i) mlr_puts(o, ",\n");
        put_sentence(o, a, &a->sentence[i]);
    }
    mlr_puts(o, "],\n\"tables\":{");
    for (i = 0; i < a->tables; i++) {
        if (i) mlr_puts(o, ",\n");
        put_table(o, &a->table[i]);
    }
    mlr_puts(o, "}}\n");
}
