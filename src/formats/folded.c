#include "formats/folded.h"
#include "formats/frames.h"
#include "formats/holdings.h"
#include "formats/words.h"
#include <stdlib.h>
#include <string.h>

/* Functions are compared by their numbers: equal texts have equal numbers, and a higher number
   comes later in the order. */
typedef struct line {
    const char *device, *tag, *part; /* "": none */
    const uint32_t *path;            /* the numbers of its functions, the outermost first */
    uint32_t depth;
    uint64_t bytes;
} line;
typedef struct folded {
    mlr_frames frames;
    mlr_holdings rows;
    const mlr_function **sorted; /* the functions in their order */
    uint32_t *number;            /* of each function of `frames` */
    uint32_t *path;              /* of all lines */
    line *at;
    size_t count;
} folded;

static int function_order(const void *x, const void *y) {
    const mlr_function *a = *(const mlr_function *const *)x, *b = *(const mlr_function *const *)y;
    int order = strcmp(a->name, b->name);
    if (!order) order = strcmp(a->file, b->file);
    return order ? order : (a->line > b->line) - (a->line < b->line);
}
static int line_order(const void *x, const void *y) {
    const line *a = (const line *)x, *b = (const line *)y;
    uint32_t i;
    int order = strcmp(a->device, b->device);
    if (!order) order = strcmp(a->tag, b->tag);
    for (i = 0; !order && i < a->depth && i < b->depth; i++)
        order = (a->path[i] > b->path[i]) - (a->path[i] < b->path[i]);
    if (!order) order = (a->depth > b->depth) - (a->depth < b->depth);
    return order ? order : strcmp(a->part, b->part);
}

/* Gives each function its number. */
static int number_functions(folded *w) {
    const mlr_frames *f = &w->frames;
    const uint32_t n = f->first[f->count + 1];
    uint32_t i, number = 0;
    w->sorted = (const mlr_function **)malloc(n * sizeof *w->sorted);
    w->number = (uint32_t *)malloc(n * sizeof *w->number);
    if (!w->sorted || !w->number) return 0;
    for (i = 0; i < n; i++) w->sorted[i] = &f->function[i];
    qsort(w->sorted, n, sizeof *w->sorted, function_order);
    for (i = 0; i < n; i++) {
        if (i && function_order(&w->sorted[i], &w->sorted[number]))
            w->sorted[++number] = w->sorted[i];
        w->number[w->sorted[i] - f->function] = number;
    }
    return 1;
}

/* Returns how many functions the frames of a row have, and writes their numbers to `to`, the
   outermost first; NULL: nowhere. */
static uint32_t row_path(const folded *w, const mlr_holding *row, uint32_t *frames, uint32_t *to) {
    uint32_t n = mlr_frames_of(&w->frames, &row->where, frames), depth = 0, k;
    while (n--) {
        const uint32_t *first = &w->frames.first[frames[n]];
        for (k = first[1]; k > first[0]; k--, depth++)
            if (to) to[depth] = w->number[k - 1];
    }
    return depth;
}
static int make_lines(folded *w, uint32_t *frames) {
    const mlr_profile *p = w->frames.profile;
    size_t i, depth = 0;
    for (i = 0; i < w->rows.count; i++) depth += row_path(w, &w->rows.at[i], frames, NULL);
    w->path = (uint32_t *)malloc((depth + 1) * sizeof *w->path);
    w->at = (line *)malloc((w->rows.count + 1) * sizeof *w->at);
    if (!w->path || !w->at) return 0;
    for (i = depth = 0; i < w->rows.count; i++) {
        const mlr_holding *row = &w->rows.at[i];
        line *to = &w->at[w->count];
        if (!row->bytes) continue;
        w->count++;
        to->device = p->device[row->device - 1].name;
        to->tag = row->tag ? p->tag[row->tag - 1].name : "";
        to->part = row->part ? row->part : "";
        to->path = w->path + depth;
        to->depth = row_path(w, row, frames, w->path + depth);
        to->bytes = row->bytes;
        depth += to->depth;
    }
    qsort(w->at, w->count, sizeof *w->at, line_order);
    return 1;
}

/* Writes a frame's text, with a colon in place of a semicolon. */
static void put_text(mlr_out *o, const char *text, mlr_buffer *buffer) {
    mlr_out to;
    size_t i;
    mlr_out_open(&to, mlr_buffer_write, buffer);
    buffer->used = 0;
    mlr_put_name(&to, text, 0);
    o->failed |= mlr_out_close(&to);
    for (i = 0; i < buffer->used; i++)
        if (buffer->at[i] == ';') buffer->at[i] = ':';
    mlr_put(o, buffer->at, buffer->used);
}
/* Writes "function file:line", or the name of what is no place. */
static void put_function(mlr_out *o, const mlr_function *f, mlr_buffer *buffer) {
    if (!f->file[0] || strcmp(f->name, f->file)) put_text(o, f->name, buffer);
    if (!f->file[0]) return;
    if (strcmp(f->name, f->file)) mlr_puts(o, " ");
    put_text(o, f->file, buffer);
    if (f->line) mlr_putf(o, ":%u", (unsigned)f->line);
}
static void put_line(folded *w, mlr_out *o, const line *l, const char *measure,
                     mlr_buffer *buffer) {
    uint32_t i;
    mlr_puts(o, l->device);
    mlr_puts(o, measure);
    if (l->tag[0]) mlr_puts(o, ";");
    put_text(o, l->tag, buffer);
    for (i = 0; i < l->depth; i++) {
        mlr_puts(o, ";");
        put_function(o, w->sorted[l->path[i]], buffer);
    }
    if (l->part[0]) mlr_puts(o, ";");
    put_text(o, l->part, buffer);
    mlr_puts(o, " ");
    mlr_put_u64(o, l->bytes);
    mlr_puts(o, "\n");
}
static void put_lines(folded *w, mlr_out *o, const char *measure) {
    mlr_buffer buffer = {NULL, 0, 0};
    size_t i;
    for (i = 0; i < w->count && !o->failed; i++) {
        if (i + 1 < w->count && !line_order(&w->at[i], &w->at[i + 1]))
            w->at[i + 1].bytes += w->at[i].bytes; /* the next is written with the sum */
        else
            put_line(w, o, &w->at[i], measure, &buffer);
    }
    free(buffer.at);
}

typedef void (*rows_fn)(const mlr_profile *p, mlr_holdings *rows);
static mlr_result write_folded(const mlr_profile *p, mlr_out *o, const char *measure,
                               rows_fn fill) {
    folded w;
    uint32_t *frames = NULL;
    int done;
    memset(&w, 0, sizeof w);
    done = mlr_frames_open(&w.frames, p) && number_functions(&w);
    if (done) fill(p, &w.rows);
    if (done) frames = (uint32_t *)malloc(w.frames.deepest * sizeof *frames);
    done = done && !w.rows.failed && frames && make_lines(&w, frames);
    if (done) put_lines(&w, o, measure);
    mlr_holdings_free(&w.rows);
    mlr_frames_close(&w.frames);
    free(frames);
    free(w.sorted);
    free(w.number);
    free(w.path);
    free(w.at);
    return done ? MLR_OK : MLR_E_NOMEM;
}
MLR_PRIVATE mlr_result mlr_folded_live(const mlr_profile *p, mlr_out *o) {
    return write_folded(p, o, "", mlr_holdings_live);
}
MLR_PRIVATE mlr_result mlr_folded_peak(const mlr_profile *p, mlr_out *o) {
    return write_folded(p, o, " (peak)", mlr_holdings_peak);
}
MLR_PRIVATE mlr_result mlr_folded_allocated(const mlr_profile *p, mlr_out *o) {
    return write_folded(p, o, " (allocated)", mlr_holdings_allocated);
}
