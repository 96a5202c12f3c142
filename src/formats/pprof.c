#include "formats/pprof.h"
#include "formats/frames.h"
#include "formats/holdings.h"
#include "formats/words.h"
#include <stdlib.h>
#include <string.h>

static const char *const pprof_words[] = {"",       "alloc_objects", "count",       "alloc_space",
                                          "bytes",  "inuse_objects", "inuse_space", "space",
                                          "device", "tag",           "part",        "peak_space"};
enum {
    WORD_COUNT = 2,
    WORD_BYTES = 4,
    WORD_INUSE_SPACE = 6,
    WORD_SPACE,
    WORD_DEVICE,
    WORD_TAG,
    WORD_PART,
    WORD_PEAK_SPACE,
    WORDS
};
#define VALUES 5 /* allocs, their bytes, live blocks, their bytes, bytes at the peak */
enum { PAIR_ALLOCS, PAIR_LIVE, PAIR_PEAK };

/* A message that is composed before its size is known. */
typedef struct message {
    mlr_out out;
    mlr_buffer buffer;
} message;
typedef struct writer {
    const mlr_profile *p;
    mlr_out *o;
    mlr_frames frames;
    uint32_t *path;              /* room for the frames of a stack */
    uint64_t *limit;             /* by module: the address behind its last one */
    uint64_t strings, functions; /* how many strings and functions are written */
    message sample, inner, pair;
} writer;

/* -- protocol buffers (https://protobuf.dev/programming-guides/encoding/) -- */

static void put_varint(mlr_out *o, uint64_t v) {
    for (; v >= 128; v >>= 7) mlr_put_le(o, (v & 127) | 128, 1);
    mlr_put_le(o, v, 1);
}
static void put_number(mlr_out *o, unsigned field, uint64_t v) {
    put_varint(o, field << 3);
    put_varint(o, v);
}
static mlr_out *begin(message *m) {
    m->buffer.used = 0;
    mlr_out_open(&m->out, mlr_buffer_write, &m->buffer);
    return &m->out;
}
/* Writes a message as a field. */
static void put_message(mlr_out *o, unsigned field, message *m) {
    if (mlr_out_close(&m->out)) o->failed = 1;
    put_varint(o, field << 3 | 2);
    put_varint(o, m->buffer.used);
    mlr_put(o, m->buffer.at, m->buffer.used);
}
/* Writes, as a field, a message whose fields 1 to n are numbers. Leaves out a number of 0. */
static void put_numbers(writer *w, mlr_out *o, unsigned field, const uint64_t *v, unsigned n) {
    mlr_out *to = begin(&w->pair);
    unsigned i;
    for (i = 0; i < n; i++)
        if (v[i]) put_number(to, i + 1, v[i]);
    put_message(o, field, &w->pair);
}
static void put_pair(writer *w, mlr_out *o, unsigned field, uint64_t first, uint64_t second) {
    const uint64_t v[] = {first, second};
    put_numbers(w, o, field, v, 2);
}
/* Writes the next string of the table of strings, and returns its number. */
static uint64_t put_string(writer *w, const char *text) {
    mlr_put_name(begin(&w->pair), text, 0);
    put_message(w->o, 6, &w->pair);
    return w->strings++;
}

/* -- samples -- */

static void put_sample(writer *w, const mlr_holding *row, unsigned pair, uint64_t first,
                       uint64_t second) {
    const uint64_t part = row->part ? put_string(w, row->part) : 0;
    const uint32_t n = mlr_frames_of(&w->frames, &row->where, w->path);
    mlr_out *to = begin(&w->sample), *inner = begin(&w->inner);
    uint32_t i;
    for (i = 0; i < n; i++) put_varint(inner, w->path[i]);
    put_message(to, 1, &w->inner);
    inner = begin(&w->inner);
    for (i = 0; i < VALUES; i++) {
        const uint64_t v = i / 2 != pair ? 0 : i % 2 ? second : first;
        put_varint(inner, v > INT64_MAX ? INT64_MAX : v);
    }
    put_message(to, 2, &w->inner);
    put_pair(w, to, 3, WORD_DEVICE, WORDS + row->device - 1u);
    if (row->tag) put_pair(w, to, 3, WORD_TAG, (uint64_t)WORDS + w->p->device_count + row->tag - 1);
    if (part) put_pair(w, to, 3, WORD_PART, part);
    put_message(w->o, 2, &w->sample);
}
/* Writes the samples of a pair of values. Returns 0 if there is no memory. */
static int put_samples(writer *w, unsigned pair,
                       void (*fill)(const mlr_profile *, mlr_holdings *)) {
    mlr_holdings rows;
    size_t i;
    int failed;
    memset(&rows, 0, sizeof rows);
    fill(w->p, &rows);
    for (i = 0; i < rows.count && !w->o->failed; i++) {
        const mlr_holding *row = &rows.at[i];
        if (pair == PAIR_PEAK)
            put_sample(w, row, pair, row->bytes, 0);
        else
            put_sample(w, row, pair, row->blocks, row->bytes);
    }
    failed = rows.failed;
    mlr_holdings_free(&rows);
    return !failed;
}

/* -- names -- */

/* Writes the location of a frame, a line for each function, the outermost last. */
static void put_location(writer *w, uint32_t frame) {
    const mlr_profile *p = w->p;
    const mlr_frame *at = frame <= p->frame_count ? &p->frame[frame - 1] : NULL;
    mlr_out *to = begin(&w->sample);
    uint32_t i;
    put_number(to, 1, frame);
    if (at && at->module) put_number(to, 2, at->module);
    if (at && at->offset) put_number(to, 3, at->offset);
    for (i = w->frames.first[frame]; i < w->frames.first[frame + 1]; i++) {
        const mlr_function *f = &w->frames.function[i];
        uint64_t function[] = {++w->functions, 0, 0, 0};
        function[1] = put_string(w, f->name);
        if (f->file[0]) function[3] = put_string(w, f->file);
        put_numbers(w, w->o, 5, function, 4);
        put_pair(w, to, 4, function[0], f->line);
    }
    put_message(w->o, 4, &w->sample);
}
/* Returns 1 if a module is the program's own file. */
static int is_program(const mlr_profile *p, const mlr_module *m) {
    const char *slash = strrchr(m->path, '/');
    return p->program[0] && !strcmp(slash ? slash + 1 : m->path, p->program);
}
/* Writes the program as a mapping or, if `others` is 1, all other modules. The program comes first,
   because pprof takes the first mapping for it. */
static void put_mappings(writer *w, int others) {
    uint32_t i;
    for (i = 0; i < w->p->module_count; i++) {
        const mlr_module *m = &w->p->module[i];
        uint64_t of[6];
        if (is_program(w->p, m) == others) continue;
        of[0] = i + 1u;
        of[1] = 0;
        of[2] = w->limit[i];
        of[3] = 0;
        of[4] = put_string(w, m->path);
        of[5] = m->build_id[0] ? put_string(w, m->build_id) : 0;
        put_numbers(w, w->o, 3, of, 6);
    }
}
static void put_names(writer *w) {
    const mlr_profile *p = w->p;
    uint32_t i;
    for (i = 0; i < WORDS; i++) (void)put_string(w, pprof_words[i]);
    for (i = 0; i < p->device_count; i++) (void)put_string(w, p->device[i].name);
    for (i = 0; i < p->tag_count; i++) (void)put_string(w, p->tag[i].name);
    for (i = 0; i < p->frame_count; i++) {
        const mlr_frame *f = &p->frame[i];
        if (f->module && f->offset >= w->limit[f->module - 1])
            w->limit[f->module - 1] = f->offset + 1;
    }
    for (i = 1; i <= w->frames.count && !w->o->failed; i++) put_location(w, i);
    put_mappings(w, 0);
    put_mappings(w, 1);
}

/* Writes a comment: the string that was composed in w->pair. */
static void put_comment(writer *w) {
    put_message(w->o, 6, &w->pair);
    put_number(w->o, 13, w->strings++);
}
static void put_comments(writer *w) {
    uint32_t i;
    mlr_put_process(begin(&w->pair), w->p);
    put_comment(w);
    for (i = 0; i <= w->p->device_count; i++)
        if (mlr_put_anomalies(begin(&w->pair), w->p, i)) put_comment(w);
    if (mlr_put_estimates(begin(&w->pair), w->p)) put_comment(w);
}

static int put_profile(writer *w) {
    const mlr_profile *p = w->p;
    const mlr_stats *total = &p->total;
    uint64_t type;
    int done;
    for (type = 1; type <= 5; type += 2)
        put_pair(w, w->o, 1, type, type == 3 ? WORD_BYTES : WORD_COUNT);
    put_pair(w, w->o, 1, WORD_INUSE_SPACE, WORD_BYTES);
    put_pair(w, w->o, 1, WORD_PEAK_SPACE, WORD_BYTES);
    put_names(w);
    put_comments(w);
    done = put_samples(w, PAIR_ALLOCS, mlr_holdings_allocated) &&
           put_samples(w, PAIR_LIVE, mlr_holdings_live) &&
           put_samples(w, PAIR_PEAK, mlr_holdings_peak);
    put_number(w->o, 9, p->started_unix_ns + p->uptime_ns);
    put_pair(w, w->o, 11, WORD_SPACE, WORD_BYTES);
    put_number(w->o, 12, 1);
    put_number(w->o, 14, total->allocated < total->peak / 4 ? WORD_PEAK_SPACE : WORD_INUSE_SPACE);
    return done;
}
MLR_PRIVATE mlr_result mlr_pprof(const mlr_profile *p, mlr_out *o) {
    writer *w = (writer *)calloc(1, sizeof *w);
    int done;
    if (!w) return MLR_E_NOMEM;
    w->p = p;
    w->o = o;
    done = mlr_frames_open(&w->frames, p);
    if (done) w->path = (uint32_t *)malloc(w->frames.deepest * sizeof *w->path);
    w->limit = (uint64_t *)calloc((size_t)p->module_count + 1, sizeof *w->limit);
    done = done && w->path && w->limit && put_profile(w);
    mlr_frames_close(&w->frames);
    free(w->path);
    free(w->limit);
    free(w->sample.buffer.at);
    free(w->inner.buffer.at);
    free(w->pair.buffer.at);
    free(w);
    return done ? MLR_OK : MLR_E_NOMEM;
}
