#include "formats/memory_viz.h"
#include "formats/frames.h"
#include "formats/ring.h"
#include "formats/holdings.h"
#include "formats/words.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 1000 /* the most items that are appended at once, as arguments of one call */
#define WORDS 128

/* The numbers that a tag, or the functions of a frame, have in the memo of the pickle. */
typedef struct memo {
    uint32_t first, count; /* first: the number of the tag or of the innermost function; count: how
                              many consecutive numbers are used, or 0 if there are none yet */
} memo;
/* What a segment or an event is of. */
typedef struct subject {
    mlr_where where;
    uint32_t device, tag;
    uint64_t storage, bytes, stream;
    int pending;
} subject;
typedef struct writer {
    const mlr_profile *p;
    mlr_out *o;
    mlr_frames frames;
    uint32_t *path; /* room for the frames of a stack */
    mlr_ring ring;  /* MLR_SLOT_OPEN: the free of the block was requested; MLR_SLOT_DONE: its
                       segment is written */
    mlr_holdings unlisted;
    struct {
        const char *text;
        size_t size;
    } word[WORDS];     /* the words in the memo, by number; a size of 0: unused */
    memo *tag, *frame; /* by number */
    uint32_t numbers;  /* how many numbers the pickle's memo uses, besides those of words */
    uint64_t items;    /* how many segments, or events of a device, are written so far */
    uint32_t *number;  /* by device, from 1: its number in the format */
    uint64_t *beyond;  /* by device, from 1: the next address that no block has */
    mlr_buffer text;
} writer;

/* -- the pickle -- */

static void put_int(mlr_out *o, uint64_t v) {
    const unsigned n = v >> 63 ? 9 : 8;
    if (v < 256) {
        mlr_puts(o, "K");
        mlr_put_le(o, v, 1);
    } else if (v <= INT32_MAX) {
        mlr_puts(o, "J");
        mlr_put_le(o, v, 4);
    } else {
        mlr_puts(o, "\x8a");
        mlr_put_le(o, n, 1);
        mlr_put_le(o, v, 8);
        if (n == 9) mlr_put_le(o, 0, 1);
    }
}
static void put_text(writer *w, const char *text) {
    mlr_out to;
    w->text.used = 0;
    mlr_out_open(&to, mlr_buffer_write, &w->text);
    mlr_put_name(&to, text, 0);
    w->o->failed |= mlr_out_close(&to);
    mlr_puts(w->o, "X");
    mlr_put_le(w->o, w->text.used, 4);
    mlr_put(w->o, w->text.at, w->text.used);
}
/* Writes a word of n characters: in full the first time, then by its number in the memo. */
static void put_word(writer *w, const char *word, size_t n) {
    size_t i = ((unsigned char)word[n / 2] * 5u + (unsigned char)word[n - 1] + n) % WORDS;
    while (w->word[i].size && (w->word[i].size != n || memcmp(w->word[i].text, word, n)))
        i = (i + 1) % WORDS;
    if (w->word[i].size) {
        mlr_puts(w->o, "h");
    } else {
        w->word[i].text = word;
        w->word[i].size = n;
        mlr_puts(w->o, "X");
        mlr_put_le(w->o, n, 4);
        mlr_put(w->o, word, n);
        mlr_puts(w->o, "q");
    }
    mlr_put_le(w->o, i, 1);
}

/* Writes the operation of the pickle that a character of `form` means. { and } begin and end a
   dictionary of at least one pair. : is a new dictionary, and = sets a pair in a dictionary. [ is a
   new list, and + appends an item to a list. ) makes a pair of the last two items. ! is False, and
   0 the number 0. A space does nothing. */
static void put_code(mlr_out *o, char code) {
    static const char names[] = "{}:=[+)!";
    static const char *const codes[] = {"}(", "u", "}", "s", "]", "a", "\x86", "\x89"};
    const char *name = strchr(names, code);
    if (name) mlr_puts(o, codes[name - names]);
    if (code == '0') put_int(o, 0);
}
/* Writes what `form` says. A run of a to z and _ is a word, which put_word writes. # is a uint64_t
   and $ a text. Any other character is an operation, which put_code explains. Requires: `form` is a
   literal; all forms together have fewer than WORDS words. */
static void put(writer *w, const char *form, ...) {
    va_list args;
    size_t n;
    va_start(args, form);
    for (; *form; form += n) {
        for (n = 0; form[n] == '_' || (form[n] >= 'a' && form[n] <= 'z');) n++;
        if (n) {
            put_word(w, form, n);
            continue;
        }
        n = 1;
        if (*form == '$')
            put_text(w, va_arg(args, const char *));
        else if (*form == '#')
            put_int(w->o, va_arg(args, uint64_t));
        else
            put_code(w->o, *form);
    }
    va_end(args);
}

/* Begins item i of a list, counted from 0. Items are appended to the list in batches. list_end
   appends the last batch. */
static void item(mlr_out *o, uint64_t i) { mlr_puts(o, i % BATCH ? "" : i ? "e(" : "("); }
static void list_end(mlr_out *o, uint64_t n) { mlr_puts(o, n ? "e" : ""); }

/* Gives a tag or frame `count` numbers of the memo, and returns 0. Returns 1 if it has numbers
   already, so that the caller does not write it again. */
static int is_known(writer *w, memo *m, uint32_t count) {
    if (m->count) return 1;
    m->first = w->numbers;
    m->count = count;
    w->numbers += count;
    return 0;
}
/* Gives the last item a number in the memo (code "r"), or writes the item of a number ("j"). */
static void put_memo(writer *w, const char *code, uint32_t number) {
    mlr_puts(w->o, code);
    mlr_put_le(w->o, WORDS + number, 4);
}

/* -- frames -- */

/* Writes the functions of a frame into a list of n items, and returns its new length. */
static uint32_t put_frame(writer *w, uint32_t frame, uint32_t n) {
    const uint32_t first = w->frames.first[frame];
    memo *m = &w->frame[frame];
    const int known = is_known(w, m, w->frames.first[frame + 1] - first);
    uint32_t i;
    for (i = 0; i < m->count; i++) {
        const mlr_function *f = &w->frames.function[first + i];
        item(w->o, n + i);
        if (!known)
            put(w, "{name $ filename $ line #}", f->name,
                frame > w->p->frame_count ? "scope" : f->file, (uint64_t)f->line);
        put_memo(w, known ? "j" : "r", m->first + i);
    }
    return n + m->count;
}
/* Writes the frames of a subject. If it has neither a stack nor a site, its scopes come first. */
static void put_frames(writer *w, const subject *s) {
    const uint32_t frames = mlr_frames_of(&w->frames, &s->where, w->path);
    uint32_t i = s->where.stack || s->where.site ? 0 : 1, n = 0;
    put(w, "frames [");
    for (; i < frames; i++) n = put_frame(w, w->path[i], n);
    list_end(w->o, n);
}

/* -- segments -- */

static void put_parts(writer *w, const mlr_block *b) {
    uint64_t i;
    put(w, "parts [");
    for (i = 0; i < b->parts; i++) {
        const mlr_part *part = &b->part[i];
        item(w->o, i);
        put(w, "{name $ offset # size #}", part->name, part->offset, part->bytes);
    }
    list_end(w->o, i);
}
/* Writes a segment with one block. `block` has the parts, if there are any. `many`: how many blocks
   it stands for; 0: itself. */
static void put_segment(writer *w, const subject *s, const mlr_block *block, uint64_t many) {
    if (!s->bytes) return;
    item(w->o, w->items++);
    put(w, "{device # address # total_size # allocated_size # active_size #",
        (uint64_t)w->number[s->device], s->storage, s->bytes, s->pending ? 0 : s->bytes, s->bytes);
    put(w, "requested_size # stream # segment_pool_id 0 0) is_expandable !", s->bytes, s->stream);
    put(w, s->bytes >> 20 ? "segment_type large" : "segment_type small");
    put_frames(w, s);
    put(w, "blocks [{address # size # requested_size #", s->storage, s->bytes, s->bytes);
    put(w, s->pending ? "state active_pending_free" : "state active_allocated");
    put_frames(w, s);
    if (block && block->parts) put_parts(w, block);
    if (many) put(w, "count #", many);
    put(w, "}+}");
}
static subject subject_of_event(const mlr_event *e) {
    subject s;
    memset(&s, 0, sizeof s);
    s.where.site = e->site;
    s.where.stack = e->stack;
    s.where.scope = e->scope;
    s.device = e->device;
    s.tag = e->tag;
    s.storage = e->storage;
    s.bytes = e->bytes;
    s.stream = e->stream;
    s.pending = e->kind == MLR_EVENT_PEND;
    return s;
}
/* Writes a live block. If there are events of the block's storage, writes the block as the last of
   these events left it. The blocks were read a moment later, and may differ. */
static void put_block(writer *w, const mlr_block *b) {
    mlr_slot *slot = mlr_ring_slot(&w->ring, b->device, b->storage);
    const mlr_holding row = mlr_holding_of_block(b);
    subject s;
    memset(&s, 0, sizeof s);
    s.where = row.where;
    s.device = b->device;
    s.storage = b->storage;
    s.bytes = b->bytes;
    s.stream = b->stream;
    s.pending = b->pending;
    if (slot && slot->event) {
        if (slot->flags & MLR_SLOT_DONE || slot->event->kind == MLR_EVENT_FREE) return;
        s.bytes = slot->event->bytes;
        s.device = slot->event->device;
        s.pending = slot->event->kind == MLR_EVENT_PEND;
        slot->flags |= MLR_SLOT_DONE;
    }
    put_segment(w, &s, b, 0);
}
/* Writes the blocks that live by the events, but are not listed, and adds them to `rows`. */
static void put_event_blocks(writer *w, mlr_holdings *rows) {
    size_t i;
    for (i = 0; i < w->ring.size; i++) {
        const mlr_slot *slot = &w->ring.at[i];
        subject s;
        mlr_holding row;
        if (!slot->event || slot->flags & MLR_SLOT_DONE || slot->event->kind == MLR_EVENT_FREE)
            continue;
        s = subject_of_event(slot->event);
        put_segment(w, &s, NULL, 0);
        memset(&row, 0, sizeof row);
        row.where = s.where;
        row.device = s.device;
        row.tag = s.tag;
        row.blocks = 1;
        row.bytes = s.bytes;
        mlr_holding_add(rows, &row);
    }
}
/* Writes what is left: arenas, and blocks that are not listed. */
static void put_unlisted(writer *w, const mlr_holdings *others) {
    size_t i;
    mlr_holdings_unlisted(w->p, others, &w->unlisted);
    for (i = 0; i < w->unlisted.count && !w->o->failed; i++) {
        const mlr_holding *row = &w->unlisted.at[i];
        subject s;
        memset(&s, 0, sizeof s);
        s.where = row->where;
        s.device = row->device;
        s.storage = w->beyond[row->device];
        s.bytes = row->bytes;
        w->beyond[row->device] += row->bytes;
        put_segment(w, &s, NULL, row->blocks);
    }
}
static void put_segments(writer *w) {
    mlr_holdings others;
    uint32_t i;
    memset(&others, 0, sizeof others);
    put(w, "segments [");
    for (i = 0; i < w->p->block_count && !w->o->failed; i++) put_block(w, &w->p->block[i]);
    put_event_blocks(w, &others);
    put_unlisted(w, &others);
    w->unlisted.failed |= others.failed;
    list_end(w->o, w->items);
    mlr_holdings_free(&others);
}

/* Writes "memlord": the devices with their numbers, the anomalies and drops that are not 0, and
   what has no segment of its own. */
static void put_memlord(writer *w) {
    const mlr_profile *p = w->p;
    uint64_t blocks = 0, bytes = 0;
    uint32_t dev;
    size_t k;
    put(w, "memlord {version $ devices :", p->version);
    for (dev = 1; dev <= p->device_count; dev++)
        put(w, "$ # =", p->device[dev - 1].name, (uint64_t)w->number[dev]);
    put(w, "anomalies_and_drops :");
    for (dev = 0; dev <= p->device_count; dev++) {
        const char *name;
        size_t i = 0;
        uint64_t v;
        put(w, "$ :", mlr_anomaly_device(p, dev));
        while ((name = mlr_anomaly_next(p, dev, &i, &v)) != NULL) put(w, "$ # =", name, v);
        put(w, "=");
    }
    for (k = 0; k < w->unlisted.count; k++) {
        const mlr_holding *row = &w->unlisted.at[k];
        blocks += row->blocks;
        if (row->where.kind != MLR_KIND_ARENA) bytes += row->bytes;
    }
    put(w, "blocks_left_out # bytes_left_out # }", blocks, bytes);
}

/* -- events -- */

/* Writes an event. An event without a block has another number in place of an address: "oom" has
   the free bytes of the device, and "snapshot" has 0. */
static void put_event(writer *w, const char *action, const subject *s, uint64_t ns) {
    item(w->o, w->items++);
    put(w, "{addr # size # stream # time_us # action", s->storage, s->bytes, s->stream,
        (w->p->started_unix_ns + ns) / 1000);
    put_word(w, action, strlen(action));
    if (!strcmp(action, "oom")) put(w, "device_free #", s->storage);
    put_frames(w, s);
    if (!strcmp(action, "snapshot")) put(w, "category unknown");
    if (s->tag) {
        memo *m = &w->tag[s->tag];
        const int known = is_known(w, m, 1);
        put(w, "category");
        if (!known) put_text(w, w->p->tag[s->tag - 1].name);
        put_memo(w, known ? "j" : "r", m->first);
    }
    put(w, "}");
}
/* Returns the free bytes of a device's physical device, or 0 if they are not known. */
static uint64_t free_of(const mlr_profile *p, uint32_t device) {
    const uint32_t row = p->device[device - 1].capacity;
    const uint64_t bytes = row ? p->capacity[row - 1].free : MLR_UNKNOWN;
    return bytes != MLR_UNKNOWN ? bytes : 0;
}
static void put_ring_event(writer *w, const mlr_event *e) {
    const int pends = e->kind == MLR_EVENT_PEND, frees = e->kind == MLR_EVENT_FREE;
    subject s = subject_of_event(e);
    mlr_slot *slot;
    if (e->kind == MLR_EVENT_OOM) {
        s.storage = free_of(w->p, e->device);
        put_event(w, "oom", &s, e->time_ns);
    }
    if (!mlr_event_is_of_block(e) || !e->bytes) return;
    slot = mlr_ring_slot(&w->ring, e->device, e->storage);
    if (pends || (frees && !(slot->flags & MLR_SLOT_OPEN)))
        put_event(w, "free_requested", &s, e->time_ns);
    slot->flags |= MLR_SLOT_OPEN;
    if (pends) return;
    slot->flags ^= MLR_SLOT_OPEN;
    put_event(w, frees ? "free_completed" : "segment_alloc", &s, e->time_ns);
    put_event(w, frees ? "segment_free" : "alloc", &s, e->time_ns);
}
/* Writes the events of a device. The last event has the category "unknown", because viewers give
   the category of the last event to blocks without a category. */
static void put_trace(writer *w, uint32_t device) {
    const mlr_profile *p = w->p;
    subject none;
    uint32_t i;
    memset(&none, 0, sizeof none);
    w->items = 0;
    for (i = 0; i < p->event_count && w->ring.device_events[device] && !w->o->failed; i++)
        if (p->event[i].device == device && mlr_event_is_past(p, &p->event[i]))
            put_ring_event(w, &p->event[i]);
    put_event(w, "snapshot", &none, p->uptime_ns);
    list_end(w->o, w->items);
}

/* Gives the devices their numbers. Returns how many lists of events the format needs. */
static uint32_t number_devices(writer *w) {
    const mlr_profile *p = w->p;
    uint32_t i, n = 0;
    for (i = 1; i <= p->device_count; i++) {
        const char *name = p->device[i - 1].name;
        const int cuda = !strncmp(name, "cuda:", 5);
        const unsigned long index = cuda ? strtoul(name + 5, NULL, 10) : 0;
        w->number[i] = cuda && index < 4096 ? (uint32_t)index : UINT32_MAX;
        if (w->number[i] != UINT32_MAX && w->number[i] >= n) n = w->number[i] + 1;
        w->beyond[i] = ((uint64_t)1 << 62) + ((uint64_t)i << 50);
    }
    for (i = 1; i <= p->device_count; i++)
        if (w->number[i] == UINT32_MAX) w->number[i] = n++;
    return n;
}

static void put_snapshot(writer *w) {
    const uint32_t lists = number_devices(w);
    uint32_t n, dev;
    mlr_puts(w->o, "\x80\x02");
    put(w, "{");
    put_segments(w);
    put_memlord(w);
    put(w, "device_traces [");
    for (n = 0; n < lists; n++) {
        put(w, "[");
        for (dev = 1; dev <= w->p->device_count; dev++)
            if (w->number[dev] == n) put_trace(w, dev);
        put(w, "+");
    }
    put(w, "allocator_settings : }");
    mlr_puts(w->o, ".");
}
static int make(writer *w) {
    const size_t devices = (size_t)w->p->device_count + 1;
    if (!mlr_frames_open(&w->frames, w->p)) return 0;
    w->path = (uint32_t *)malloc(w->frames.deepest * sizeof *w->path);
    w->tag = (memo *)calloc((size_t)w->p->tag_count + 1, sizeof *w->tag);
    w->frame = (memo *)calloc((size_t)w->frames.count + 1, sizeof *w->frame);
    w->number = (uint32_t *)calloc(devices, sizeof *w->number);
    w->beyond = (uint64_t *)calloc(devices, sizeof *w->beyond);
    return w->path && w->tag && w->frame && w->number && w->beyond;
}
MLR_PRIVATE mlr_result mlr_memory_viz(const mlr_profile *p, mlr_out *o) {
    writer *w = (writer *)calloc(1, sizeof *w);
    int done;
    if (!w) return MLR_E_NOMEM;
    w->p = p;
    w->o = o;
    done = make(w) && mlr_ring_open(&w->ring, p);
    if (done) put_snapshot(w);
    done = done && !w->unlisted.failed;
    mlr_frames_close(&w->frames);
    mlr_ring_close(&w->ring);
    mlr_holdings_free(&w->unlisted);
    free(w->path);
    free(w->tag);
    free(w->frame);
    free(w->number);
    free(w->beyond);
    free(w->text.at);
    free(w);
    return done ? MLR_OK : MLR_E_NOMEM;
}
