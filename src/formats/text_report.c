#include "formats/text_report.h"
#include <stdio.h>
#include <string.h>
#include "formats/cells.h"

#define COLUMNS   80
#define SENTENCES 5   /* on the first screen */
#define ROWS      3   /* of a table there */
#define CELL      400 /* the most characters of a text in a table */
#define BAR       48

/* -- lines that are wrapped at a blank -- */

typedef struct lines {
    mlr_out *to;
    mlr_out in; /* what is written here is wrapped */
    size_t column, indent, blanks, used, wide;
    char word[4 * COLUMNS + 8];
} lines;

static void lines_break(lines *l) {
    mlr_puts(l->to, "\n");
    l->column = 0;
    l->blanks = l->indent;
}
/* Writes the word that was collected, on the next line if this one has no room for it. */
static void lines_word(lines *l) {
    if (!l->used) return;
    if (l->column > l->indent && l->column + l->blanks + l->wide > COLUMNS) lines_break(l);
    for (l->column += l->blanks + l->wide; l->blanks; l->blanks--) mlr_puts(l->to, " ");
    mlr_put(l->to, l->word, l->used);
    l->used = l->wide = 0;
}
static int lines_write(void *user, const void *data, size_t size) {
    lines *l = (lines *)user;
    const char *at = (const char *)data, *end = at + size;
    for (; at < end; at++) {
        const int starts = ((unsigned char)*at & 0xc0) != 0x80;
        if (*at == ' ' || (starts && l->wide + l->indent >= COLUMNS) ||
            l->used + 1 >= sizeof l->word)
            lines_word(l);
        if (*at == ' ') {
            l->blanks++;
            continue;
        }
        l->word[l->used++] = *at;
        l->wide += (size_t)starts;
    }
    return l->to->failed;
}
static void lines_begin(lines *l, mlr_out *o, size_t indent) {
    memset(l, 0, sizeof *l);
    l->to = o;
    l->indent = indent;
    mlr_out_open(&l->in, lines_write, l);
}
static void lines_end(lines *l) {
    (void)mlr_out_close(&l->in);
    lines_word(l);
    mlr_puts(l->to, "\n");
}
static void put_wrapped(mlr_out *o, const char *text, size_t first, size_t indent) {
    lines l;
    lines_begin(&l, o, indent);
    l.blanks = first;
    mlr_put_name(&l.in, text, 0);
    lines_end(&l);
}

/* -- sentences -- */

static void put_sentence(mlr_out *o, const mlr_sentence *s, int detail, int colour) {
    static const char *const tones[] = {"\33[1m", "\33[1;33m", "\33[1;31m"};
    lines l;
    uint32_t i;
    if (colour) mlr_puts(o, tones[s->tone]);
    lines_begin(&l, o, 4);
    mlr_put_name(&l.in, s->head, 0);
    mlr_puts(&l.in, ":");
    (void)mlr_out_close(&l.in);
    lines_word(&l);
    if (colour) mlr_puts(o, "\33[0m");
    mlr_puts(&l.in, " ");
    mlr_put_name(&l.in, s->text, 0);
    lines_end(&l);
    for (i = 0; detail && i < s->details; i++) put_wrapped(o, s->detail[i], 4, 6);
}

/* -- tables -- */

typedef struct memory { /* a text of a cell */
    char text[4 * CELL + 64];
    size_t used, wide;
} memory;
static int memory_write(void *user, const void *data, size_t size) {
    memory *m = (memory *)user;
    const char *at = (const char *)data;
    for (; size-- && m->used + 1 < sizeof m->text; at++) {
        m->text[m->used++] = *at;
        m->wide += ((unsigned char)*at & 0xc0) != 0x80;
    }
    m->text[m->used] = 0;
    return 0;
}
static void cell_text(memory *m, const mlr_table *t, uint32_t row, uint32_t column) {
    const mlr_cell *cell = &t->cell[(size_t)row * t->columns + column];
    m->used = m->wide = 0;
    m->text[0] = 0;
    if (t->column[column].type == MLR_TEXT) {
        mlr_out out;
        mlr_out_open(&out, memory_write, m);
        mlr_put_name(&out, cell->text, CELL);
        (void)mlr_out_close(&out);
        return;
    }
    mlr_cell_number(m->text, t->column[column].type, cell->number);
    m->used = m->wide = strlen(m->text);
}

typedef struct layout {
    uint32_t column[24]; /* the columns that are shown */
    size_t width[24];
    uint32_t count, last; /* last: how many there are before the last one */
    size_t indent;        /* where the last column begins */
} layout;

/* Chooses the columns and their widths. Numbers that would not fit are left out from the right; a
   text but the last takes at most a third of a line. */
static void layout_make(layout *l, const mlr_table *t, uint32_t rows) {
    memory m;
    size_t width, total = 0;
    uint32_t k, i;
    memset(l, 0, sizeof *l);
    for (k = 0; k < t->columns && l->count < 24; k++) {
        const int text = t->column[k].type == MLR_TEXT;
        if (t->column[k].wide || mlr_column_is_empty(t, k)) continue;
        width = strlen(t->column[k].title);
        for (i = 0; i < rows; i++) {
            cell_text(&m, t, i, k);
            if (m.wide > width) width = m.wide;
        }
        if (text && width > COLUMNS / 3) width = COLUMNS / 3;
        if (!text && total + width + 2 > COLUMNS - 18) continue;
        l->column[l->count] = k;
        l->width[l->count++] = width;
        total += width + 2;
    }
    l->last = l->count ? l->count - 1 : 0;
    for (i = 0; i < l->last; i++) l->indent += l->width[i] + 2;
    if (l->indent > COLUMNS / 2) l->indent = COLUMNS / 2;
}
static void put_blanks(mlr_out *o, size_t n) {
    for (; n; n--) mlr_puts(o, " ");
}
/* Writes a cell in its column; the last is wrapped. A text that is wider than its column goes on
   after it, and the next cells follow it. */
static void put_cells(mlr_out *o, const mlr_table *t, const layout *l, uint32_t row) {
    lines line;
    memory m;
    uint32_t i;
    lines_begin(&line, o, l->indent);
    for (i = 0; i < l->count; i++) {
        const uint32_t k = l->column[i];
        const int text = t->column[k].type == MLR_TEXT;
        size_t pad;
        cell_text(&m, t, row, k);
        pad = m.wide < l->width[i] ? l->width[i] - m.wide : 0;
        if (i == l->last && text) pad = 0;
        if (!text) put_blanks(&line.in, pad);
        mlr_put(&line.in, m.text, m.used);
        if (i == l->last) break;
        put_blanks(&line.in, (text ? pad : 0) + 2);
    }
    lines_end(&line);
}
static void put_heading(mlr_out *o, const mlr_table *t, const layout *l) {
    uint32_t i;
    for (i = 0; i < l->count; i++) {
        const char *title = t->column[l->column[i]].title;
        const size_t pad = l->width[i] > strlen(title) ? l->width[i] - strlen(title) : 0;
        const int text = t->column[l->column[i]].type == MLR_TEXT;
        if (!text) put_blanks(o, pad);
        mlr_puts(o, title);
        if (i < l->last) put_blanks(o, (text ? pad : 0) + 2);
    }
    mlr_puts(o, "\n");
}
static void put_table(mlr_out *o, const mlr_table *t, uint32_t most, int colour) {
    const uint32_t rows = t->rows < most ? t->rows : most;
    const uint64_t left = mlr_rows_left(t, rows);
    char bytes[48];
    layout l;
    uint32_t i;
    layout_make(&l, t, rows);
    mlr_puts(o, "\n");
    if (colour) mlr_puts(o, "\33[1m");
    put_wrapped(o, t->title, 0, 2);
    if (colour) mlr_puts(o, "\33[0m");
    if (*t->note && most > ROWS) put_wrapped(o, t->note, 0, 2);
    put_heading(o, t, &l);
    for (i = 0; i < rows; i++) put_cells(o, t, &l, i);
    if (!left) return;
    mlr_putf(o, "... and %llu more", (unsigned long long)left);
    if (rows == t->rows && t->more_bytes && t->more_bytes != MLR_UNKNOWN)
        mlr_putf(o, ", %s", mlr_text_bytes(bytes, t->more_bytes));
    mlr_puts(o, "\n");
}

/* -- the curve -- A level holds until the next point. */

static void put_bar(mlr_out *o, const mlr_table *t) {
    const uint64_t first = t->cell[0].number, last = t->cell[2 * (t->rows - 1)].number;
    const double part = (double)(last - first) / BAR;
    uint64_t most = 0, level = 0, high;
    uint32_t i, k;
    char text[2][48];
    for (i = 0; i < t->rows; i++)
        if (t->cell[2 * i + 1].number > most) most = t->cell[2 * i + 1].number;
    mlr_puts(o, "\nlive ");
    for (i = k = 0; k < BAR; k++) {
        const double end = (double)first + part * (k + 1);
        char block[] = "\xe2\x96\x81"; /* U+2581 to U+2588: an eighth to a full block */
        for (high = level; i < t->rows && ((double)t->cell[2 * i].number < end || k == BAR - 1);
             i++) {
            level = t->cell[2 * i + 1].number;
            if (level > high) high = level;
        }
        if (most) block[2] = (char)(block[2] + (char)((double)high * 7 / (double)most + 0.5));
        mlr_puts(o, high ? block : "_");
    }
    mlr_putf(o, "\n     from %s to %s; ", mlr_text_duration(text[0], first),
             mlr_text_duration(text[1], last));
    mlr_puts(o, t->note);
    mlr_puts(o, "\n");
}

static int is_on_first_screen(mlr_table_id id) {
    return id == MLR_TABLE_devices || id == MLR_TABLE_curve || id == MLR_TABLE_tags ||
           id == MLR_TABLE_sites || id == MLR_TABLE_moment || id == MLR_TABLE_tree ||
           id == MLR_TABLE_comparison;
}
/* Writes the arguments and labels of the run. */
static void put_run(mlr_out *o, const mlr_table *t) {
    static const char *const keys[] = {"arguments", "labels"};
    size_t i;
    for (i = 0; t && i < 2; i++) {
        const mlr_cell *cell = mlr_table_cell(t, 0, keys[i]);
        lines l;
        if (!*cell->text) continue;
        lines_begin(&l, o, 4);
        mlr_putf(&l.in, "%s: ", keys[i]);
        mlr_put_name(&l.in, cell->text, 2 * COLUMNS);
        lines_end(&l);
    }
}
MLR_PRIVATE void mlr_write_text(const mlr_answers *a, const mlr_text_options *options, mlr_out *o) {
    const int first = options && options->first, colour = options && options->colour;
    const uint32_t most = first && a->sentences > SENTENCES ? SENTENCES : a->sentences;
    uint32_t i;
    put_wrapped(o, a->program, 0, 4);
    if (*a->filter) put_wrapped(o, a->filter, 0, 4);
    put_run(o, mlr_answers_table(a, MLR_TABLE_run));
    mlr_puts(o, "\n");
    for (i = 0; i < most; i++) put_sentence(o, &a->sentence[i], !first || !i, colour);
    if (most < a->sentences) mlr_putf(o, "... and %u more\n", (unsigned)(a->sentences - most));
    for (i = 0; i < a->tables; i++) {
        const mlr_table *t = &a->table[i];
        const int asked = t->id == MLR_TABLE_moment || t->id == MLR_TABLE_tree;
        if (t->id == MLR_TABLE_run || (first && !is_on_first_screen(t->id))) continue;
        if (t->id == MLR_TABLE_curve)
            put_bar(o, t);
        else
            put_table(o, t, first && !asked ? ROWS : UINT32_MAX, colour);
    }
    for (i = 0; !first && i < a->notes; i++) {
        mlr_puts(o, i ? "" : "\n");
        put_wrapped(o, a->note[i], 0, 2);
    }
}
