#include "reports/profiles.h"
#include "os/system.h"
#include "os/unwind.h"
#include "base/text.h"
#include "base/memory.h"
#include "books/counters.h"
#include "books/spans.h"
#include "books/sites.h"
#include "books/stacks.h"
#include "services/stats.h"
#include "reports/capture.h"
#include "reports/answers.h"
#include "reports/export.h"
#include "reports/peaks.h"
#include "reports/shares.h"

#if !defined(MEMLORD_NO_PROFILES)

#define MLI_FOLDED_LINES 65536u

typedef struct mli_folded_line {
    mli_live_block of;
    const char *part; /* the name of a part of the block, written as the innermost frame of the
                         line; NULL if the line is for no part */
    uint64_t bytes;
} mli_folded_line;
typedef struct mli_folded_writer {
    mli_export x;
    const char *measure; /* after the device's name, such as " (peak)"; "": live bytes */
    mli_shares shares;
    mli_groups groups;
    mli_folded_line *table;
    size_t lines, most; /* the number of lines in the table, and the number that it has room for */
} mli_folded_writer;

static MLI_COLD void mli_folded_text(mli_out *o, const char *text) {
    mli_put_str(o, ";");
    mli_put_escaped(o, text, ';', ":");
}

/* A walk over the functions of a stack, from the outermost one. */
typedef struct mli_folded_walk {
    mli_stack stack;   /* the frames that are still to come */
    uint32_t left;     /* how many functions of the walk's frame are still to come */
    mli_frame_name at; /* the function that the walk has reached */
} mli_folded_walk;

/* Moves to the next function, and returns 1. Returns 0 if there is none. */
static MLI_COLD int mli_folded_next(const mli_export *x, mli_folded_walk *walk) {
    if (!walk->left) {
        if (!walk->stack.n) return 0;
        walk->at = mli_frame_name_of(x, walk->stack.frame[--walk->stack.n]);
        walk->left = walk->at.count;
    }
    mli_frame_function(&walk->at, --walk->left);
    return 1;
}
static MLI_COLD void mli_folded_begin(const mli_export *x, const mli_folded_line *line,
                                      mli_folded_walk *walk) {
    walk->stack = mli_stack_of(x, &line->of);
    walk->left = 0;
}

/* Writes a line: device, tag, functions from the outermost one, part, and bytes. */
static MLI_COLD void mli_folded_put(mli_folded_writer *w, const mli_folded_line *line) {
    const mli_export *x = &w->x;
    mli_folded_walk walk;
    mli_out *o = x->o;
    mli_putf(o, "%i", mli_report_device(x->r, line->of.dev));
    mli_put_str(o, w->measure);
    if (line->of.tag) mli_folded_text(o, mli_export_tag(x, line->of.tag));
    mli_folded_begin(x, line, &walk);
    while (mli_folded_next(x, &walk)) {
        const mli_frame_name *f = &walk.at;
        const memlord_site site = {f->file, f->name == f->file ? "" : f->name, (int)f->line};
        mli_put_str(o, ";");
        mli_put_site_escaped(o, &site, ';', ":");
    }
    if (line->part) mli_folded_text(o, line->part);
    mli_putf(o, " %ju\n", line->bytes);
}

/* Compares two functions as strcmp does. Functions that show the same text are equal. */
static MLI_COLD int mli_folded_functions(const mli_frame_name *f, const mli_frame_name *g) {
    int order = f->name == g->name ? 0 : strcmp(f->name, g->name);
    if (!order && f->file != g->file) order = strcmp(f->file, g->file);
    return order ? order : (f->line > g->line) - (f->line < g->line);
}
/* Compares two stacks from the outermost function inwards. */
static MLI_COLD int mli_folded_stacks(const mli_export *x, const mli_folded_line *a,
                                      const mli_folded_line *b) {
    mli_folded_walk s, t;
    int order = 0, more, other;
    mli_folded_begin(x, a, &s);
    mli_folded_begin(x, b, &t);
    while (s.stack.n && t.stack.n &&
           s.stack.frame[s.stack.n - 1] == t.stack.frame[t.stack.n - 1]) {
        s.stack.n--;
        t.stack.n--;
    }
    do {
        more = mli_folded_next(x, &s);
        other = mli_folded_next(x, &t);
        if (more && other) order = mli_folded_functions(&s.at, &t.at);
    } while (!order && more && other);
    return order ? order : more - other;
}
static MLI_COLD int mli_folded_devices(const mli_export *x, uint32_t a, uint32_t b) {
    char name[2][32];
    (void)memlord_device_name(mli_export_device(x, a), name[0], sizeof name[0]);
    (void)memlord_device_name(mli_export_device(x, b), name[1], sizeof name[1]);
    return strcmp(name[0], name[1]);
}
static int mli_folded_texts(const char *a, const char *b) {
    return a && b ? strcmp(a, b) : (a != NULL) - (b != NULL);
}
static MLI_COLD int mli_folded_order(const mli_export *x, const mli_folded_line *a,
                                     const mli_folded_line *b) {
    int order = a->of.dev == b->of.dev ? 0 : mli_folded_devices(x, a->of.dev, b->of.dev);
    if (!order)
        order = mli_folded_texts(mli_export_tag(x, a->of.tag), mli_export_tag(x, b->of.tag));
    if (!order) order = mli_folded_stacks(x, a, b);
    return order ? order : mli_folded_texts(a->part, b->part);
}

/* Restores the heap, the largest line first, after line i has become smaller. */
static MLI_COLD void mli_folded_down(const mli_export *x, mli_folded_line *heap, size_t n,
                                     size_t i) {
    const mli_folded_line moving = heap[i];
    size_t child;
    while ((child = 2 * i + 1) < n) {
        if (child + 1 < n && mli_folded_order(x, &heap[child], &heap[child + 1]) < 0) child++;
        if (mli_folded_order(x, &heap[child], &moving) <= 0) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}
/* Sorts the lines of the table, and merges equal ones. */
static MLI_COLD void mli_folded_merge(mli_folded_writer *w) {
    mli_folded_line *lines = w->table;
    size_t i, n = w->lines, kept = 0;
    for (i = n / 2; i--;) mli_folded_down(&w->x, lines, n, i);
    for (i = n; i > 1;) {
        const mli_folded_line last = lines[--i];
        lines[i] = lines[0];
        lines[0] = last;
        mli_folded_down(&w->x, lines, i, 0);
    }
    for (i = 0; i < n; i++) {
        if (kept && !mli_folded_order(&w->x, &lines[kept - 1], &lines[i]))
            lines[kept - 1].bytes += lines[i].bytes;
        else
            lines[kept++] = lines[i];
    }
    w->lines = kept;
}
/* Writes the lines of the table, and empties it. */
static MLI_COLD void mli_folded_flush(mli_folded_writer *w) {
    size_t i;
    for (i = 0; i < w->lines && !w->x.o->failed; i++) mli_folded_put(w, &w->table[i]);
    w->lines = 0;
}

static MLI_COLD void mli_folded_add(mli_folded_writer *w, const mli_live_block *of,
                                    const char *part, uint64_t bytes) {
    mli_folded_line *line;
    if (!bytes) return;
    if (w->lines == w->most) {
        mli_folded_merge(w);
        if (w->lines > w->most / 2) mli_folded_flush(w);
    }
    line = &w->table[w->lines++];
    line->of = *of;
    line->part = part;
    line->bytes = bytes;
}
static MLI_COLD void mli_folded_group(void *writer, const mli_group *g) {
    mli_folded_add((mli_folded_writer *)writer, &g->of, NULL, g->bytes);
}
static MLI_COLD void mli_folded_part(void *writer, const mli_live_block *whole,
                                     const memlord_part_info *part) {
    mli_folded_add((mli_folded_writer *)writer, whole, mli_part_name(part), part->bytes);
}

/* Fills the table with lines for the live blocks and their parts. */
static MLI_COLD void mli_folded_add_live(mli_folded_writer *w) {
    w->groups.writer = w;
    w->groups.put = mli_folded_group;
    w->groups.put_part = mli_folded_part;
    mli_shares_make(&w->x, &w->shares);
    mli_groups_each(&w->shares, &w->groups);
    mli_shares_free(&w->shares);
}
static MLI_COLD void mli_folded_held(void *writer, const mli_live_block *b) {
    mli_folded_add((mli_folded_writer *)writer, b, NULL, b->bytes);
}
static MLI_COLD void mli_folded_add_peak(mli_folded_writer *w) {
    mli_peak_blocks_each(&w->x, mli_folded_held, w);
}
static MLI_COLD void mli_folded_allocs(void *writer, const mli_live_block *of, uint64_t allocs,
                                       uint64_t bytes) {
    (void)allocs;
    mli_folded_add((mli_folded_writer *)writer, of, NULL, bytes);
}
static MLI_COLD void mli_folded_add_allocated(mli_folded_writer *w) {
    mli_shares_make(&w->x, &w->shares);
    mli_allocs_each(&w->shares, mli_folded_allocs, w);
    mli_shares_free(&w->shares);
}

static MLI_COLD void mli_folded_write(mli_folded_writer *w, const char *measure,
                                      void (*add)(mli_folded_writer *w)) {
    w->measure = measure;
    mli_export_stacks(&w->x);
    w->most = MLI_FOLDED_LINES;
    while (w->most && !w->table) {
        w->table = (mli_folded_line *)mli_own_alloc(w->x.lord, w->most * sizeof *w->table);
        if (!w->table) w->most /= 2;
    }
    if (w->table)
        add(w);
    else
        w->x.r->result = MEMLORD_E_NOMEM;
    mli_folded_merge(w);
    mli_folded_flush(w);
    mli_own_free(w->x.lord, w->table, w->most * sizeof *w->table);
}
static MLI_COLD void mli_folded_write_live(void *writer) {
    mli_folded_write((mli_folded_writer *)writer, "", mli_folded_add_live);
}
static MLI_COLD void mli_folded_write_peak(void *writer) {
    mli_folded_write((mli_folded_writer *)writer, " (peak)", mli_folded_add_peak);
}
static MLI_COLD void mli_folded_write_allocated(void *writer) {
    mli_folded_write((mli_folded_writer *)writer, " (allocated)", mli_folded_add_allocated);
}
MLI_PRIVATE MLI_COLD void mli_folded(mli_report *r) {
    mli_export_run(r, sizeof(mli_folded_writer), mli_folded_write_live);
}
MLI_PRIVATE MLI_COLD void mli_folded_peak(mli_report *r) {
    mli_export_run(r, sizeof(mli_folded_writer), mli_folded_write_peak);
}
MLI_PRIVATE MLI_COLD void mli_folded_allocated(mli_report *r) {
    mli_export_run(r, sizeof(mli_folded_writer), mli_folded_write_allocated);
}

/* -- PPROF, an uncompressed profile.proto (https://github.com/google/pprof/blob/main/proto/
    profile.proto) --
   A sample has the allocations of a site since the last reset (alloc_objects and alloc_space),
   its live blocks (inuse_...), and the bytes that it held at the peak of its device (peak_space).
   With stacks a sample is of a stack. If stacks are samples themselves, its numbers are shares of
   those of the site, and a comment says so. Labels give the device and, if there is one, the tag
   and the part. The bytes of a part are a sample of their own, in which no object counts. The
   scopes that a block was allocated in are the callers of its site.
   A block without a site is "(unknown)"; the balance of an arena is "(arena)". Locations have the
   numbers of frames. The strings are mli_pprof_words, the devices, the tags, the names of frames,
   the modules, the comments, and the names of parts. The comments are the anomalies and drops, of
   all devices and of each; `go tool pprof -comments` shows them. The location of a return address
   has the module as its mapping, and the address in the module's file, as if the module were loaded
   at 0. (The load address does not tell the module, because another module may be there by now.) A
   mapping says that it has no functions, so that pprof looks for better names and lines in the
   file. */

static const char *const mli_pprof_words[] = {
    "",      "alloc_objects", "count", "alloc_space", "bytes",  "inuse_objects", "inuse_space",
    "space", "device",        "tag",   "part",        "peak_space"};
enum {
    MLI_WORD_BYTES = 4,
    MLI_WORD_INUSE_SPACE = 6,
    MLI_WORD_DEVICE = 8,
    MLI_WORD_TAG,
    MLI_WORD_PART,
    MLI_WORD_PEAK_SPACE,
    MLI_WORDS
};
#define MLI_PPROF_VALUES 5 /* 2 numbers of blocks, 2 sums of bytes, peak_space */
enum { MLI_PAIR_ALLOCS, MLI_PAIR_LIVE, MLI_PAIR_PEAK };

typedef struct mli_pprof_writer {
    mli_export x;
    mli_shares shares;
    mli_groups groups;
    uint64_t strings, functions; /* how many strings and functions are written */
} mli_pprof_writer;

/* The functions below write fields of a protocol buffer
   (https://protobuf.dev/programming-guides/encoding/). */
static MLI_COLD void mli_pb_varint(mli_out *o, uint64_t v) {
    for (; v >= 128; v >>= 7) mli_put_le(o, (v & 127) | 128, 1);
    mli_put_le(o, v, 1);
}
static void mli_pb_u64(mli_out *o, unsigned field, uint64_t v) {
    mli_pb_varint(o, field << 3);
    mli_pb_varint(o, v);
}
static void mli_pb_size(mli_out *o, unsigned field, uint64_t size) {
    mli_pb_varint(o, field << 3 | 2);
    mli_pb_varint(o, size);
}
/* Writes the contents of a buffer as a field. */
static void mli_pb_message(mli_out *o, unsigned field, const mli_out *message) {
    mli_pb_size(o, field, message->used);
    mli_put(o, message->buf, message->used);
}
/* Writes the next string of the profile's table of strings, and returns its number. */
static MLI_COLD uint64_t mli_pb_string(mli_pprof_writer *w, const char *text) {
    mli_pb_size(w->x.o, 6, mli_utf8_size(text));
    mli_put_utf8(w->x.o, text, "");
    return w->strings++;
}
/* Writes, as a field, a message whose fields 1 to n are numbers. Leaves out a number of 0. */
static MLI_COLD void mli_pb_numbers(mli_out *o, unsigned field, const uint64_t *v, unsigned n) {
    char buf[80];
    mli_out m;
    unsigned i;
    mli_out_buffer(&m, buf, sizeof buf);
    for (i = 0; i < n; i++)
        if (v[i]) mli_pb_u64(&m, i + 1, v[i]);
    mli_pb_message(o, field, &m);
}
static void mli_pb_pair(mli_out *o, unsigned field, uint64_t first, uint64_t second) {
    const uint64_t v[] = {first, second};
    mli_pb_numbers(o, field, v, 2);
}

#define MLI_PPROF_PLACES ((MLI_SCOPE_DEPTH_MAX + MLI_STACK_DEPTH_MAX) * 5)

/* Writes a sample. `pair` (MLI_PAIR_...) says what it counts. For allocations or live blocks,
   `first` is their number and `second` their bytes. For the peak, `first` is the bytes. `part` is
   the number of the string that names a block's part, or 0. */
static MLI_COLD void mli_pprof_sample(const mli_export *x, const mli_live_block *of,
                                      uint64_t part, unsigned pair, uint64_t first,
                                      uint64_t second) {
    char buf[MLI_PPROF_PLACES + 128], values[48], places[MLI_PPROF_PLACES];
    mli_stack stack = mli_stack_of(x, of);
    mli_out m, v, p;
    uint32_t i;
    mli_out_buffer(&m, buf, sizeof buf);
    mli_out_buffer(&v, values, sizeof values);
    mli_out_buffer(&p, places, sizeof places);
    for (i = 0; i < MLI_PPROF_VALUES; i++) {
        uint64_t n = i / 2 != pair ? 0 : i % 2 ? second : first;
        mli_pb_varint(&v, n > INT64_MAX ? INT64_MAX : n);
    }
    for (i = 0; i < stack.n; i++) mli_pb_varint(&p, stack.frame[i]);
    mli_pb_message(&m, 1, &p);
    mli_pb_message(&m, 2, &v);
    mli_pb_pair(&m, 3, MLI_WORD_DEVICE, MLI_WORDS + of->dev - 1u);
    if (of->tag) mli_pb_pair(&m, 3, MLI_WORD_TAG, MLI_WORDS + x->devices + of->tag - 1u);
    if (part) mli_pb_pair(&m, 3, MLI_WORD_PART, part);
    mli_pb_message(x->o, 2, &m);
}
static void mli_pprof_group(void *writer, const mli_group *g) {
    mli_pprof_sample((const mli_export *)writer, &g->of, 0, MLI_PAIR_LIVE, g->blocks, g->bytes);
}
static void mli_pprof_allocs(void *writer, const mli_live_block *of, uint64_t allocs,
                             uint64_t bytes) {
    if (allocs | bytes)
        mli_pprof_sample((const mli_export *)writer, of, 0, MLI_PAIR_ALLOCS, allocs, bytes);
}
static void mli_pprof_held(void *writer, const mli_live_block *b) {
    mli_pprof_sample((const mli_export *)writer, b, 0, MLI_PAIR_PEAK, b->bytes, 0);
}

/* Writes a function under the next number, and adds it as a line to a location. */
static MLI_COLD void mli_pprof_function(mli_pprof_writer *w, mli_out *location,
                                        const mli_frame_name *f) {
    uint64_t function[] = {++w->functions, 0, 0, 0};
    function[1] = mli_pb_string(w, f->name);
    if (f->file[0]) function[3] = mli_pb_string(w, f->file);
    mli_pb_numbers(w->x.o, 5, function, 4);
    mli_pb_pair(location, 4, function[0], f->line);
}
/* Writes the location of a frame, a line for each function, the outermost last. */
static MLI_COLD void mli_pprof_location(mli_pprof_writer *w, uint32_t frame) {
    mli_frame_name f = mli_frame_name_of(&w->x, frame);
    const uint64_t place[] = {frame, f.module ? f.module->number : 0, f.offset};
    char buf[64 + 14 * MLI_FUNCTIONS_MAX]; /* a line takes 14 bytes at most */
    mli_out m;
    uint32_t i;
    mli_out_buffer(&m, buf, sizeof buf);
    for (i = 0; i < 3; i++)
        if (place[i]) mli_pb_u64(&m, i + 1, place[i]);
    for (i = 0; i < f.count; i++) {
        mli_frame_function(&f, i);
        mli_pprof_function(w, &m, &f);
    }
    mli_pb_message(w->x.o, 4, &m);
}
/* Writes the executable as a mapping or, if `others` is 1, all other modules. The executable comes
   first, because pprof takes the first mapping for the program. */
static MLI_COLD void mli_pprof_mappings(mli_pprof_writer *w, int others) {
    const mli_module *m = mli_module_newest(w->x.lord);
    for (; m && !w->x.o->failed; m = m->next) {
        uint64_t of[6];
        if ((m->image.loaded[0] != 0) != others) continue;
        of[0] = m->number;
        of[1] = m->image.segment.start;
        of[2] = m->image.segment.end;
        of[3] = m->image.segment.offset;
        of[4] = mli_pb_string(w, m->image.path);
        of[5] = m->build_id[0] ? mli_pb_string(w, m->build_id) : 0;
        mli_pb_numbers(w->x.o, 3, of, 6);
    }
}
static MLI_COLD void mli_pprof_names(mli_pprof_writer *w) {
    uint32_t i;
    for (i = 0; i < MLI_WORDS; i++) (void)mli_pb_string(w, mli_pprof_words[i]);
    for (i = 1; i <= w->x.devices; i++) {
        char name[32];
        (void)memlord_device_name(mli_export_device(&w->x, i), name, sizeof name);
        (void)mli_pb_string(w, name);
    }
    for (i = 1; i <= w->x.tags; i++) (void)mli_pb_string(w, mli_export_tag(&w->x, i));
    for (i = 1; i <= mli_frame_count(&w->x) && !w->x.o->failed; i++) mli_pprof_location(w, i);
    mli_pprof_mappings(w, 0);
    mli_pprof_mappings(w, 1);
}

static MLI_COLD void mli_pprof_part(void *writer, const mli_live_block *whole,
                                    const memlord_part_info *part) {
    mli_pprof_writer *w = (mli_pprof_writer *)writer;
    const uint64_t name = mli_pb_string(w, mli_part_name(part));
    mli_pprof_sample(&w->x, whole, name, MLI_PAIR_LIVE, 0, part->bytes);
}

static MLI_COLD void mli_pprof_process(mli_pprof_writer *w) {
    char buf[2 * sizeof w->x.r->who.program + 128]; /* room for the names of the program and the
                                                       host, and for the rest of the line */
    mli_out line;
    mli_out_buffer(&line, buf, sizeof buf);
    mli_text_process(w->x.r, &line, 1);
    (void)mli_out_end(&line, sizeof buf);
    mli_pb_u64(w->x.o, 13, mli_pb_string(w, buf));
}
static MLI_COLD void mli_pprof_anomalies(mli_pprof_writer *w) {
    uint32_t dev;
    for (dev = 0; dev <= w->x.devices; dev++) {
        char buf[1024]; /* room for one name and up to 20 digits for each anomaly */
        mli_out line;
        mli_out_buffer(&line, buf, sizeof buf);
        mli_text_anomalies(w->x.r, &line, "anomalies and drops, ", dev);
        if (!line.used) continue;
        buf[line.used - 1] = 0;
        mli_pb_u64(w->x.o, 13, mli_pb_string(w, buf));
    }
}
static MLI_COLD void mli_pprof_estimates(mli_pprof_writer *w) {
    char buf[80];
    mli_out line;
    if (!w->shares.at) return;
    mli_out_buffer(&line, buf, sizeof buf);
    mli_stacks_put_rate(w->x.lord, &line);
    (void)mli_out_end(&line, sizeof buf);
    mli_pb_u64(w->x.o, 13, mli_pb_string(w, buf));
}

static MLI_COLD void mli_pprof_write(void *writer) {
    mli_pprof_writer *w = (mli_pprof_writer *)writer;
    mli_out *o = w->x.o;
    uint32_t i;
    mli_export_stacks(&w->x);
    mli_shares_make(&w->x, &w->shares);
    for (i = 1; i <= 5; i += 2) mli_pb_pair(o, 1, i, i == 3 ? 4 : 2);
    mli_pb_pair(o, 1, MLI_WORD_INUSE_SPACE, MLI_WORD_BYTES);
    mli_pb_pair(o, 1, MLI_WORD_PEAK_SPACE, MLI_WORD_BYTES);
    mli_pprof_names(w);
    mli_pprof_process(w);
    mli_pprof_anomalies(w);
    mli_pprof_estimates(w);
    w->groups.writer = w;
    w->groups.put = mli_pprof_group;
    w->groups.put_part = mli_pprof_part;
    mli_allocs_each(&w->shares, mli_pprof_allocs, w);
    mli_groups_each(&w->shares, &w->groups);
    mli_peak_blocks_each(&w->x, mli_pprof_held, w);
    mli_pb_u64(o, 9, mli_wall_now());
    mli_pb_pair(o, 11, 7, 4);
    mli_pb_u64(o, 12, 1);
    mli_pb_u64(o, 14, w->x.r->by_peak ? MLI_WORD_PEAK_SPACE : MLI_WORD_INUSE_SPACE);
    mli_shares_free(&w->shares);
}
MLI_PRIVATE MLI_COLD void mli_pprof(mli_report *r) {
    mli_export_run(r, sizeof(mli_pprof_writer), mli_pprof_write);
}

/* -- HEAPTRACK, its text format version 2 (https://github.com/KDE/heaptrack, as heaptrack_print
    1.4 reads it) --
   The format wants every allocation in order. The ledger has sums, so the writer makes a sequence
   from them or, if stacks are samples, from their shares. First come the freed allocations of each
   stack or site. All of them have their average size, except that the last one has what remains.
   Then come the live blocks. So the calls, the bytes at the peak and the leaks, which are the live
   blocks, are those of the ledger. Times are not known, and no call is temporary. If there are more
   than MLI_HEAP_FREED_SIZE freed allocations, the number of each stack is divided by the same
   factor, to 1 at least, and a comment says so.

   Bytes that no call allocated are written as frees of a negative number of bytes. These are the
   bytes of arenas, of blocks that were live at the last reset, and of blocks that a realloc made.
   Bytes that were live at the peak, but no longer are, come before the last call, and are freed at
   the end of the file. Nobody knows whose they were, so their frame is "(no longer live)". The
   module of a site is its device; that of a return address is its real module. Without stacks the
   scopes that a live block was allocated in are its callers. Parts are left out, because each
   would be another allocation. Anomalies and drops are comments. */

#define MLI_HEAP_FREED_SIZE 1048576u

/* The sums of the allocations and of the live blocks of a trace. A trace is a stack, or a site with
   its callers. `older` is the number of live blocks whose allocation is not in the file. Two walks
   write the live blocks, and each of them counts down an element of `older`. */
typedef struct mli_heap_sum {
    uint64_t allocs, bytes, live, live_bytes, older[2];
} mli_heap_sum;
typedef struct mli_heap_writer {
    mli_export x;
    mli_shares shares;
    mli_groups groups; /* the groups of blocks in scopes; each group stores in `bytes` the number of
                          its trace, or 0 until the trace is written */
    mli_heap_sum *sum; /* the sums of each trace */
    uint64_t traces, infos;  /* how many traces and descriptions ("a" lines) are written */
    uint64_t calls, held;    /* calls: how many allocations are still to be written; held: the bytes
                                that are allocated at this point of the file */
    uint64_t gone, gone_end; /* the first description of bytes that were live at the peak but no
                                longer are, and the one after the last */
} mli_heap_writer;

static MLI_COLD void mli_heap_words(mli_out *o, const uint64_t *v, unsigned n) {
    while (n--) {
        mli_put_str(o, " ");
        mli_put_hex_short(o, *v++);
    }
}
/* Writes a line "mode a b ..." with the n numbers in hexadecimal. */
static MLI_COLD void mli_heap_line(mli_out *o, const char *mode, const uint64_t *v, unsigned n) {
    mli_put_str(o, mode);
    mli_heap_words(o, v, n);
    mli_put_str(o, "\n");
}
static void mli_heap_line1(mli_out *o, const char *mode, uint64_t v) {
    mli_heap_line(o, mode, &v, 1);
}
static void mli_heap_line2(mli_out *o, const char *mode, uint64_t a, uint64_t b) {
    const uint64_t v[] = {a, b};
    mli_heap_line(o, mode, v, 2);
}

/* Returns the trace of a node or, if that is 0, of a frame; traces of frames come first. */
static uint32_t mli_heap_trace(const mli_export *x, uint32_t node, uint32_t frame) {
    return node ? mli_frame_of_place(x, 0) + node : frame;
}
static uint32_t mli_heap_traces_count(const mli_export *x) {
    return mli_frame_of_place(x, 0) + x->nodes;
}

/* Writes the names of a frame, its instruction pointer and, if it is in no stack, its trace.
   *strings is how many strings were written. */
static MLI_COLD void mli_heap_frame(const mli_export *x, uint32_t frame, uint64_t modules,
                                    uint64_t *strings) {
    mli_frame_name f = mli_frame_name_of(x, frame);
    uint64_t place[] = {0x1000 + 16 * (uint64_t)frame, f.dev}, next = *strings;
    uint32_t i;
    if (!f.dev && f.module) place[1] = x->devices + modules - f.module->number + 1;
    for (i = 0; i < f.count; i++) {
        mli_frame_function(&f, i);
        mli_putf(x->o, "s %s\n", f.name);
        if (f.file[0]) mli_putf(x->o, "s %s\n", f.file);
        *strings += f.file[0] ? 2 : 1;
    }
    mli_put_str(x->o, "i");
    mli_heap_words(x->o, place, 2);
    for (i = 0; i < f.count; i++) {
        uint64_t function[3] = {++next, 0, 0};
        mli_frame_function(&f, i);
        if (f.file[0]) function[1] = ++next;
        function[2] = f.line;
        mli_heap_words(x->o, function, 3);
    }
    mli_put_str(x->o, "\n");
    if (frame <= mli_frame_of_place(x, 0)) mli_heap_line2(x->o, "t", frame, f.caller);
}
/* Writes the names of devices, modules and frames, and the traces of frames and nodes. A site in a
   scope gets the next trace when it is first written. Each frame has an instruction pointer. */
static MLI_COLD void mli_heap_traces(mli_heap_writer *w) {
    const mli_export *x = &w->x;
    const mli_module *last = mli_module_newest(x->lord), *m;
    const uint64_t modules = last ? last->number : 0;
    uint64_t strings = x->devices + modules;
    uint32_t i;
    for (i = 1; i <= x->devices; i++) mli_putf(x->o, "s %i\n", mli_report_device(x->r, i));
    for (m = last; m; m = m->next) mli_putf(x->o, "s %s\n", m->image.path);
    for (i = 1; i <= mli_frame_count(x) && !x->o->failed; i++)
        mli_heap_frame(x, i, modules, &strings);
    for (i = 1; i <= x->nodes && !x->o->failed; i++) {
        const mli_stack_node *node = mli_stack_node_at(x->lord, i);
        mli_heap_line2(x->o, "t", mli_frame_of_place(x, node->site->frame),
                       mli_heap_trace(x, node->parent, 0));
    }
    w->traces = mli_heap_traces_count(x);
}

/* Writes the size and trace of an allocation, and returns the description's number. */
static uint64_t mli_heap_info(mli_heap_writer *w, uint64_t bytes, uint64_t trace) {
    mli_heap_line2(w->x.o, "a", bytes, trace);
    return w->infos++;
}
/* Adds bytes that no call allocated, as a free of a negative number of bytes. */
static void mli_heap_bytes(mli_heap_writer *w, uint64_t bytes, uint64_t trace) {
    mli_heap_line1(w->x.o, "-", mli_heap_info(w, 0 - bytes, trace));
    w->held += bytes;
}
/* Adds the bytes that were live at a device's peak and are no longer. `held` is live now. */
static MLI_COLD void mli_heap_gone(mli_heap_writer *w, uint64_t held) {
    uint32_t i;
    w->gone = w->infos;
    for (i = 1; i <= w->x.devices && held < w->x.r->total.peak; i++) {
        const uint32_t trace = mli_frame_of_kind(&w->x, i, MLI_FRAME_GONE);
        const uint64_t left = w->x.r->total.peak - held;
        uint64_t bytes = w->x.r->stat[i - 1].peak - w->x.r->stat[i - 1].allocated;
        if (bytes > left || i == w->x.devices) bytes = left; /* fits the sum to the total peak, as
                                                                devices peak at different moments */
        if (!bytes) continue;
        mli_heap_bytes(w, bytes, trace);
        (void)mli_heap_info(w, bytes, trace); /* the description for the free at the end */
        held += bytes;
    }
    w->gone_end = w->infos;
}
static MLI_COLD void mli_heap_call(mli_heap_writer *w, uint64_t info, uint64_t bytes) {
    if (!--w->calls) mli_heap_gone(w, w->held + bytes);
    mli_heap_line1(w->x.o, "+", info);
    w->held += bytes;
}

static MLI_COLD void mli_heap_count(void *writer, const mli_live_block *b) {
    mli_heap_writer *w = (mli_heap_writer *)writer;
    mli_heap_sum *sum = w->sum + mli_heap_trace(&w->x, b->node, b->frame);
    if (b->state & MLI_BLOCK_ARENA) return;
    sum->live += b->blocks;
    sum->live_bytes += b->bytes;
}
static MLI_COLD void mli_heap_allocs(void *writer, const mli_live_block *of, uint64_t allocs,
                                     uint64_t bytes) {
    mli_heap_writer *w = (mli_heap_writer *)writer;
    mli_heap_sum *sum = w->sum + mli_heap_trace(&w->x, of->node, of->frame);
    sum->allocs += allocs;
    sum->bytes += bytes;
}
/* Turns the sums of a trace's allocations into the sums of those that were freed. */
static void mli_heap_settle_one(mli_heap_sum *sum) {
    if (sum->live > sum->allocs) {
        sum->older[0] = sum->older[1] = sum->live - sum->allocs;
        sum->live = sum->allocs;
    }
    sum->allocs -= sum->live;
    mli_take_off(&sum->bytes, sum->live_bytes);
}
/* Multiplies a trace's freed allocations by a factor below 1, but leaves at least 1. */
static void mli_heap_shrink(mli_heap_sum *sum, double scale) {
    uint64_t n = (uint64_t)((double)sum->allocs * scale);
    if (!sum->allocs) return;
    if (!n) n = 1;
    sum->bytes = sum->bytes / sum->allocs * n;
    sum->allocs = n;
}
/* Turns the sums of each trace's allocations into those of the freed ones, and counts the calls. */
static MLI_COLD void mli_heap_settle(mli_heap_writer *w) {
    const uint32_t n = mli_heap_traces_count(&w->x);
    uint64_t freed = 0, calls = 0;
    uint32_t i;
    for (i = 1; i <= n; i++) {
        mli_heap_settle_one(&w->sum[i]);
        calls = mli_add_saturated(calls, w->sum[i].live);
        freed = mli_add_saturated(freed, w->sum[i].allocs);
    }
    w->calls = calls;
    for (i = 1; i <= n; i++) {
        if (freed > MLI_HEAP_FREED_SIZE)
            mli_heap_shrink(&w->sum[i], MLI_HEAP_FREED_SIZE / (double)freed);
        w->calls += w->sum[i].allocs;
    }
    if (freed > MLI_HEAP_FREED_SIZE)
        mli_putf(w->x.o, "# calls: %ju of %ju\n", w->calls, mli_add_saturated(calls, freed));
}

/* Writes the freed allocations of a trace. Writes a free of description 0, which has no bytes,
   before each free, so that heaptrack does not take the allocation for a temporary one. */
static MLI_COLD void mli_heap_freed(mli_heap_writer *w, uint32_t trace) {
    const mli_heap_sum *sum = w->sum + trace;
    const uint64_t peak = w->x.r->total.peak, n = sum->allocs, size = n ? sum->bytes / n : 0;
    uint64_t i, bytes = size, info = 0;
    for (i = 0; i < n && !w->x.o->failed; i++) {
        if (i + 1 == n) bytes = sum->bytes - size * (n - 1);
        if (bytes > peak) bytes = peak; /* the bytes may exceed the peak after a reset of it */
        if (!i || bytes != size) info = mli_heap_info(w, bytes, trace);
        mli_heap_call(w, info, bytes);
        mli_put_str(w->x.o, "- 0\n");
        mli_heap_line1(w->x.o, "-", info);
        w->held -= bytes;
    }
}

/* Writes a live block: first those that no call allocated, in a second walk the others. */
static MLI_COLD void mli_heap_block(mli_heap_writer *w, const mli_live_block *b, int second) {
    uint64_t trace = mli_heap_trace(&w->x, b->node, b->frame), n = b->blocks, i;
    uint64_t *older = &w->sum[trace].older[second];
    const uint64_t size = b->bytes / n, few = *older < n ? *older : n;
    if (b->state & MLI_BLOCK_ARENA) return;
    *older -= few;
    if (second ? few == n : !few) return;
    if (b->scope && !b->node) {
        mli_group *g = mli_group_at(&w->groups, b);
        if (!g->bytes) {
            mli_heap_line2(w->x.o, "t", trace, mli_frame_of_scope(&w->x, b->scope));
            g->bytes = ++w->traces;
        }
        trace = g->bytes;
    }
    if (!second) mli_heap_bytes(w, few == n ? b->bytes : size * few, trace);
    for (i = few; i < n && second; i++) {
        const uint64_t bytes = i + 1 == n ? b->bytes - size * (n - 1) : size;
        mli_heap_call(w, mli_heap_info(w, bytes, trace), bytes);
    }
}
static MLI_COLD void mli_heap_older(void *writer, const mli_live_block *b) {
    mli_heap_block((mli_heap_writer *)writer, b, 0);
}
static MLI_COLD void mli_heap_live(void *writer, const mli_live_block *b) {
    mli_heap_block((mli_heap_writer *)writer, b, 1);
}

static MLI_COLD void mli_heap_head(mli_heap_writer *w) {
    uint32_t i;
    mli_heap_line2(w->x.o, "v", 0x10400, 2);
    mli_put_str(w->x.o, "X memlord " MEMLORD_VERSION "\n# ");
    mli_text_process(w->x.r, w->x.o, 0);
    mli_put_str(w->x.o, "\n");
    for (i = 0; i <= w->x.devices; i++)
        mli_text_anomalies(w->x.r, w->x.o, "# anomalies and drops, ", i);
    if (w->shares.at) {
        mli_put_str(w->x.o, "# ");
        mli_stacks_put_rate(w->x.lord, w->x.o);
        mli_put_str(w->x.o, "\n");
    }
    mli_heap_traces(w);
    mli_heap_line1(w->x.o, "c", 0);
}

static MLI_COLD void mli_heap_body(mli_heap_writer *w) {
    MLI_REQUIRE(w->sum);
    uint32_t i;
    mli_heap_head(w);
    if (w->x.devices) (void)mli_heap_info(w, 0, 1); /* writes description 0, which has no bytes */
    mli_share_blocks_each(&w->shares, mli_heap_count, w);
    mli_allocs_each(&w->shares, mli_heap_allocs, w);
    mli_heap_settle(w);
    for (i = 1; i <= mli_heap_traces_count(&w->x); i++) mli_heap_freed(w, i);
    for (i = 1; i <= w->x.devices; i++) {
        const uint64_t arena = mli_report_arena(w->x.r, i);
        if (arena) mli_heap_bytes(w, arena, mli_frame_of_kind(&w->x, i, MLI_FRAME_ARENA));
    }
    mli_share_blocks_each(&w->shares, mli_heap_older, w);
    mli_share_blocks_each(&w->shares, mli_heap_live, w);
    mli_heap_line1(w->x.o, "c", w->x.r->uptime / 1000000u);
    for (; w->gone_end > w->gone; w->gone += 2) mli_heap_line1(w->x.o, "-", w->gone + 1);
}
static MLI_COLD void mli_heap_write(void *writer) {
    mli_heap_writer *w = (mli_heap_writer *)writer;
    size_t size;
    mli_export_stacks(&w->x);
    mli_shares_make(&w->x, &w->shares);
    size = ((size_t)mli_heap_traces_count(&w->x) + 1) * sizeof *w->sum;
    w->sum = (mli_heap_sum *)mli_own_alloc(w->x.lord, size);
    if (w->sum)
        mli_heap_body(w);
    else
        w->x.r->result = MEMLORD_E_NOMEM;
    mli_own_free(w->x.lord, w->sum, size);
    mli_shares_free(&w->shares);
}
MLI_PRIVATE MLI_COLD void mli_heaptrack(mli_report *r) {
    mli_export_run(r, sizeof(mli_heap_writer), mli_heap_write);
}
#endif
