#include "answers/build.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "profile/read.h"
#include "profile/text.h"

MLR_PRIVATE void *mlr_build_alloc(mlr_build *b, size_t count, size_t size) {
    void *at = b->failed ? NULL : mlr_profile_alloc(b->profile, count ? count : 1, size);
    if (!at) b->failed = 1;
    return at;
}

MLR_PRIVATE uint64_t mlr_less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
MLR_PRIVATE uint64_t mlr_more(uint64_t a, uint64_t b) {
    return a < UINT64_MAX - 1 - b ? a + b : UINT64_MAX - 1;
}
MLR_PRIVATE uint64_t mlr_share(uint64_t part, uint64_t whole) {
    if (!whole || part == MLR_UNKNOWN) return MLR_UNKNOWN;
    return (uint64_t)((double)part / (double)whole * 1000 + 0.5);
}

/* -- texts -- */

static void words_put(mlr_words *w, const char *text, size_t size) {
    if (w->used + size + 1 > w->room) {
        const size_t room = 2 * w->room + size + 120;
        char *at = (char *)mlr_build_alloc(w->b, room, 1);
        if (!at) return;
        if (w->used) memcpy(at, w->at, w->used);
        w->at = at;
        w->room = room;
    }
    memcpy(w->at + w->used, text, size);
    w->used += size;
    w->at[w->used] = 0;
}
static void words_text(mlr_words *w, const char *text) { words_put(w, text, strlen(text)); }

/* Adds a name, and cuts it before a character of UTF-8. */
static void words_name(mlr_words *w, const char *name) {
    size_t at = 0, characters = 0;
    for (; name[at] && characters <= MLR_NAME_MOST; at++) {
        if (((unsigned char)name[at] & 0xc0) == 0x80) continue;
        if (characters++ == MLR_NAME_MOST) break;
    }
    words_put(w, name, at);
    if (name[at]) words_text(w, "...");
}
/* Adds a time of day as "14:02:07 UTC", with the date if the program ran longer than a day. */
static void words_clock(mlr_words *w, uint64_t since_start) {
    const mlr_profile *p = w->b->profile;
    char text[40];
    if (!p->started_unix_ns) {
        words_text(w, mlr_text_duration(text, since_start));
        words_text(w, " after the start");
        return;
    }
    (void)mlr_text_time(text, p->started_unix_ns + since_start);
    text[10] = ' ';
    text[19] = 0;
    if (p->uptime_ns < 86400u * UINT64_C(1000000000))
        words_text(w, text + 11);
    else
        words_put(w, text, 16);
    words_text(w, " UTC");
}
/* Adds "function file.c:12", "file.c:12" or "module+0x1f". */
static void words_place(mlr_words *w, uint32_t number) {
    const mlr_profile *p = w->b->profile;
    const mlr_function *f = mlr_frame_shown(p, number);
    const mlr_frame *frame = number ? &p->frame[number - 1] : NULL;
    const char *file = f->file, *slash;
    char line[32];
    for (slash = file; *slash; slash++)
        if (*slash == '/' || *slash == '\\') file = slash + 1;
    if (*f->name) words_name(w, f->name);
    if (*f->name && *file) words_text(w, " ");
    words_name(w, file);
    if (*file && f->line) {
        (void)snprintf(line, sizeof line, ":%lu", (unsigned long)f->line);
        words_text(w, line);
    }
    if (*f->name || *file) return;
    if (!frame || !frame->module) {
        words_text(w, "(unknown)");
        return;
    }
    file = p->module[frame->module - 1].path;
    for (slash = file; *slash; slash++)
        if (*slash == '/') file = slash + 1;
    words_name(w, file);
    (void)snprintf(line, sizeof line, "+0x%llx", (unsigned long long)frame->offset);
    words_text(w, line);
}

MLR_PRIVATE const char *mlr_device_name(const mlr_profile *p, uint32_t device) {
    return device ? p->device[device - 1].name : "all";
}
MLR_PRIVATE const char *mlr_tag_name(const mlr_profile *p, uint32_t tag) {
    return tag ? p->tag[tag - 1].name : "(untagged)";
}

static void words_number(mlr_words *w, char kind, uint64_t v, uint64_t whole) {
    char text[48];
    switch (kind) {
    case 'u': (void)mlr_text_count(text, v); break;
    case 'b': (void)mlr_text_bytes(text, v); break;
    case 'd': (void)mlr_text_duration(text, v); break;
    case 'g': (void)mlr_text_percent(text, v, whole); break;
    case 'x': (void)snprintf(text, sizeof text, "0x%llx", (unsigned long long)v); break;
    default: (void)snprintf(text, sizeof text, "%c", kind); break; /* %% */
    }
    words_text(w, text);
}
static void words_list(mlr_words *w, const char *form, va_list args) {
    uint64_t v;
    for (; *form; form++) {
        const size_t n = strcspn(form, "%");
        words_put(w, form, n);
        form += n;
        if (!*form || !*++form) return;
        switch (*form) {
        case 's': words_text(w, va_arg(args, const char *)); break;
        case 'n': words_name(w, va_arg(args, const char *)); break;
        case 't': words_clock(w, va_arg(args, uint64_t)); break;
        case 'p': words_place(w, va_arg(args, uint32_t)); break;
        case 'v': words_name(w, mlr_device_name(w->b->profile, va_arg(args, uint32_t))); break;
        case '%': words_text(w, "%"); break;
        default:
            v = va_arg(args, uint64_t);
            words_number(w, *form, v, *form == 'g' ? va_arg(args, uint64_t) : 0);
        }
    }
}
MLR_PRIVATE void mlr_words_add(mlr_words *w, const char *form, ...) {
    va_list args;
    va_start(args, form);
    words_list(w, form, args);
    va_end(args);
}
MLR_PRIVATE const char *mlr_words_end(mlr_words *w) {
    const char *text = w->used ? w->at : "";
    w->at = NULL;
    w->used = w->room = 0;
    return text;
}
MLR_PRIVATE const char *mlr_text_make(mlr_build *b, const char *form, ...) {
    mlr_words w = {NULL, NULL, 0, 0};
    va_list args;
    w.b = b;
    va_start(args, form);
    words_list(&w, form, args);
    va_end(args);
    return mlr_words_end(&w);
}
MLR_PRIVATE const char *mlr_place_name(mlr_build *b, uint32_t frame) {
    return mlr_text_make(b, "%p", frame);
}

/* -- sentences -- */

static const struct {
    const char *name, *head;
    mlr_tone tone;
} kinds[MLR_SAYS_COUNT] = {
#define MLR_X(name, head, tone) {#name, head, MLR_##tone},
    MLR_SAYS(MLR_X)
#undef MLR_X
};
MLR_PRIVATE const char *mlr_says_name(mlr_says kind) { return kinds[kind].name; }

MLR_PRIVATE const char *mlr_says_head(mlr_says kind) { return kinds[kind].head; }

MLR_PRIVATE mlr_sentence *mlr_say(mlr_build *b, mlr_says kind, uint32_t device, uint64_t bytes,
                                  mlr_words *w) {
    mlr_answers *a = b->answers;
    mlr_sentence *s = &b->no_sentence;
    if (a->sentences == b->sentence_room) {
        const uint32_t room = 2 * b->sentence_room + 16;
        s = (mlr_sentence *)mlr_build_alloc(b, room, sizeof *s);
        if (s && a->sentences) memcpy(s, a->sentence, a->sentences * sizeof *s);
        if (s) {
            a->sentence = s;
            b->sentence_room = room;
        }
    }
    s = a->sentences < b->sentence_room ? &a->sentence[a->sentences++] : &b->no_sentence;
    memset(s, 0, sizeof *s);
    s->kind = kind;
    s->tone = kinds[kind].tone;
    s->device = device;
    s->bytes = bytes;
    s->head = kinds[kind].head;
    if (device) s->head = mlr_text_make(b, "%s, %v", s->head, device);
    s->text = mlr_words_end(w);
    return s;
}
MLR_PRIVATE void mlr_say_more(mlr_build *b, mlr_sentence *s, const char *line) {
    const char **detail = (const char **)mlr_build_alloc(b, s->details + 1u, sizeof *detail);
    if (!detail) return;
    if (s->details) memcpy((void *)detail, (const void *)s->detail, s->details * sizeof *detail);
    detail[s->details++] = line;
    s->detail = detail;
}

/* -- tables -- */

static const char *const table_texts[MLR_TABLE_COUNT][2] = {
#define MLR_X(name, title) {#name, title},
    MLR_TABLES(MLR_X)
#undef MLR_X
};
MLR_PRIVATE mlr_table *mlr_table_begin(mlr_build *b, mlr_table_id id, const mlr_column *column,
                                       uint32_t columns) {
    mlr_table *t = &b->answers->table[b->answers->tables++];
    memset(t, 0, sizeof *t);
    t->id = id;
    t->key = table_texts[id][0];
    t->title = table_texts[id][1];
    t->column = column;
    t->columns = columns;
    t->note = "";
    return t;
}
static int table_grow(mlr_build *b, mlr_table *t) {
    const uint32_t room = 2 * t->room + 8;
    mlr_cell *cell = (mlr_cell *)mlr_build_alloc(b, (size_t)room * t->columns, sizeof *cell);
    uint32_t *frame = (uint32_t *)mlr_build_alloc(b, room, sizeof *frame);
    if (!cell || !frame) return 0;
    if (t->rows) {
        memcpy(cell, t->cell, (size_t)t->rows * t->columns * sizeof *cell);
        memcpy(frame, t->frame, t->rows * sizeof *frame);
    }
    t->cell = cell;
    t->frame = frame;
    t->room = room;
    return 1;
}
MLR_PRIVATE mlr_cell *mlr_row_add(mlr_build *b, mlr_table *t, uint32_t frame) {
    mlr_cell *row = b->scratch;
    uint32_t i;
    if (t->rows < t->room || table_grow(b, t)) {
        t->frame[t->rows] = frame;
        row = &t->cell[(size_t)t->rows++ * t->columns];
    }
    for (i = 0; i < t->columns; i++) {
        row[i].number = MLR_UNKNOWN;
        row[i].text = "";
    }
    return row;
}

static int ranked_order(const void *a, const void *b) {
    const mlr_ranked *x = (const mlr_ranked *)a, *y = (const mlr_ranked *)b;
    if (x->key != y->key) return x->key < y->key ? 1 : -1;
    return x->number < y->number ? -1 : x->number > y->number;
}
MLR_PRIVATE void mlr_rank(mlr_ranked *list, uint32_t n) {
    if (n > 1) qsort(list, n, sizeof *list, ranked_order);
}
