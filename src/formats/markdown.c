#include "formats/markdown.h"
#include <string.h>
#include "formats/cells.h"

/* Keeps what a text has from its buffer's writes, to escape it. */
typedef struct escaped {
    mlr_out *to;
} escaped;
static int escape(void *user, const void *data, size_t size) {
    mlr_out *o = ((escaped *)user)->to;
    const char *at = (const char *)data, *end = at + size;
    for (; at < end; at++) {
        if (strchr("\\`*_{}[]<>|~#&$", *at)) mlr_puts(o, "\\");
        mlr_put(o, at, 1);
    }
    return o->failed;
}
/* Writes a name so that Markdown shows it as it is. */
static void put_plain(mlr_out *o, const char *text, size_t most) {
    escaped e;
    mlr_out out;
    e.to = o;
    mlr_out_open(&out, escape, &e);
    mlr_put_name(&out, text, most);
    (void)mlr_out_close(&out);
}
static void put_table(mlr_out *o, const mlr_table *t) {
    uint32_t i, k;
    char number[48];
    mlr_puts(o, "\n### ");
    put_plain(o, t->title, 0);
    mlr_puts(o, "\n\n");
    if (*t->note) {
        put_plain(o, t->note, 0);
        mlr_puts(o, "\n\n");
    }
    mlr_puts(o, "|");
    for (k = 0; k < t->columns; k++)
        if (!mlr_column_is_empty(t, k)) mlr_putf(o, " %s |", t->column[k].title);
    mlr_puts(o, "\n|");
    for (k = 0; k < t->columns; k++)
        if (!mlr_column_is_empty(t, k))
            mlr_puts(o, t->column[k].type == MLR_TEXT ? " --- |" : " ---: |");
    for (i = 0; i < t->rows; i++) {
        mlr_puts(o, "\n|");
        for (k = 0; k < t->columns; k++) {
            const mlr_cell *cell = &t->cell[(size_t)i * t->columns + k];
            if (mlr_column_is_empty(t, k)) continue;
            mlr_puts(o, " ");
            if (t->column[k].type == MLR_TEXT) {
                put_plain(o, cell->text, 200);
            } else {
                mlr_cell_number(number, t->column[k].type, cell->number);
                mlr_puts(o, number);
            }
            mlr_puts(o, " |");
        }
    }
    mlr_puts(o, "\n");
    if (t->more) mlr_putf(o, "\n... and %llu more\n", (unsigned long long)t->more);
}
MLR_PRIVATE void mlr_write_markdown(const mlr_answers *a, mlr_out *o) {
    uint32_t i, k;
    mlr_puts(o, "## MemLord: ");
    put_plain(o, a->program, 0);
    mlr_puts(o, "\n\n");
    if (*a->filter) {
        put_plain(o, a->filter, 0);
        mlr_puts(o, "\n\n");
    }
    for (i = 0; i < a->sentences; i++) {
        const mlr_sentence *s = &a->sentence[i];
        mlr_puts(o, "- **");
        put_plain(o, s->head, 0);
        mlr_puts(o, "**: ");
        put_plain(o, s->text, 0);
        mlr_puts(o, "\n");
        for (k = 0; k < s->details; k++) {
            mlr_puts(o, "  - ");
            put_plain(o, s->detail[k], 0);
            mlr_puts(o, "\n");
        }
    }
    for (i = 0; i < a->tables; i++)
        if (a->table[i].id != MLR_TABLE_curve && a->table[i].id != MLR_TABLE_run)
            put_table(o, &a->table[i]);
    for (i = 0; i < a->notes; i++) {
        mlr_puts(o, "\n");
        put_plain(o, a->note[i], 0);
        mlr_puts(o, "\n");
    }
}
