#include "reports/memory_viz.h"
#include "base/text.h"
#include "base/memory.h"
#include "reports/capture.h"
#include "reports/answers.h"
#include "reports/export.h"
#include "reports/ring.h"

#if !defined(MEMLORD_NO_REPORTS)

#define MLI_VIZ_BATCH 1000 /* the most items that are appended at once, as arguments of one call */
#define MLI_VIZ_WORDS 128

/* The numbers that a tag, or the functions of a frame, have in the memo of the pickle. */
typedef struct mli_viz_memo {
    uint32_t first, count; /* first: the number of the tag or of the innermost function; count: how
                              many consecutive numbers are used, or 0 if there are none yet */
} mli_viz_memo;

typedef struct mli_viz_writer {
    mli_export x;
    mli_last_events last; /* the last event of each storage; MLI_BLOCK_OPEN means that the free of
                             the block was requested, MLI_BLOCK_DONE that its segment is written */
    struct {
        const char *text;
        size_t size;
    } word[MLI_VIZ_WORDS]; /* the words in the memo, by number; a size of 0: unused */
    mli_viz_memo *memo;    /* an array: the memo's number of each tag, by the number of the tag;
                              then the memo's number of each frame, by the number of the frame */
    uint32_t numbers;      /* how many numbers the pickle's memo uses, besides those of words */
    uint64_t items, parts; /* items: how many segments, or events of a device, are written so far;
                              parts: how many parts of the latest block are written */
    int32_t number[MEMLORD_MAX_DEVICES + 1]; /* by dev: the device's number in the format */
    uint32_t only; /* the device whose events are being written */
} mli_viz_writer;

static MLI_COLD void mli_viz_u64(mli_out *o, uint64_t v) {
    unsigned n = v >> 63 ? 9 : 8;
    if (v < 256) {
        mli_put_str(o, "K");
        mli_put_le(o, v, 1);
    } else if (v <= INT32_MAX) {
        mli_put_str(o, "J");
        mli_put_le(o, v, 4);
    } else {
        mli_put_str(o, "\x8a");
        mli_put_le(o, n, 1);
        mli_put_le(o, v, 8);
        if (n == 9) mli_put_le(o, 0, 1);
    }
}
static MLI_COLD void mli_viz_text(mli_out *o, const char *text) {
    mli_put_str(o, "X");
    mli_put_le(o, mli_utf8_size(text), 4);
    mli_put_utf8(o, text, "");
}
/* Writes a word of n characters: in full the first time, then by its number in the memo. */
static MLI_COLD void mli_viz_word(mli_viz_writer *w, const char *word, size_t n) {
    size_t i = ((unsigned char)word[n / 2] * 5u + (unsigned char)word[n - 1] + n) % MLI_VIZ_WORDS;
    while (w->word[i].size && (w->word[i].size != n || memcmp(w->word[i].text, word, n)))
        i = (i + 1) % MLI_VIZ_WORDS;
    if (w->word[i].size) {
        mli_put_str(w->x.o, "h");
    } else {
        w->word[i].text = word;
        w->word[i].size = n;
        mli_put_str(w->x.o, "X");
        mli_put_le(w->x.o, n, 4);
        mli_put(w->x.o, word, n);
        mli_put_str(w->x.o, "q");
    }
    mli_put_le(w->x.o, i, 1);
}

/* Writes the operation of the pickle that a character of mli_viz's `form` means. { and } begin and
   end a dictionary of at least one pair. : is a new dictionary, and = sets a pair in a dictionary.
   [ is a new list, and + appends an item to a list. ) makes a pair of the last two items. ! is
   False, and 0 the number 0. A space does nothing. */
static MLI_COLD void mli_viz_code(mli_out *o, char code) {
    static const char names[] = "{}:=[+)!";
    static const char *const codes[] = {"}(", "u", "}", "s", "]", "a", "\x86", "\x89"};
    const char *name = strchr(names, code);
    if (name) mli_put_str(o, codes[name - names]);
    if (code == '0') mli_viz_u64(o, 0);
}
/* Writes what `form` says. A run of a to z and _ is a word, which mli_viz_word writes. %ju is a
   uint64_t and %s a string. Any other character is an operation, which mli_viz_code explains.
   Requires: `form` is a literal; all forms together have fewer than MLI_VIZ_WORDS words. */
static MLI_COLD MLI_PRINTF_LIKE(2) void mli_viz(mli_viz_writer *w, const char *form, ...) {
    va_list args;
    size_t n;
    va_start(args, form);
    for (; *form; form += n) {
        for (n = 0; form[n] == '_' || (form[n] >= 'a' && form[n] <= 'z');) n++;
        if (n) {
            mli_viz_word(w, form, n);
        } else if (*form != '%') {
            mli_viz_code(w->x.o, *form);
            n = 1;
        } else if (form[1] == 's') {
            mli_viz_text(w->x.o, va_arg(args, const char *));
            n = 2;
        } else {
            mli_viz_u64(w->x.o, va_arg(args, uint64_t));
            n = 3;
        }
    }
    va_end(args);
}

/* Begins item i of a list, counted from 0. Items are appended to the list in batches of
   MLI_VIZ_BATCH. mli_viz_list_end appends the last batch. */
static void mli_viz_item(mli_out *o, uint64_t i) {
    mli_put_str(o, i % MLI_VIZ_BATCH ? "" : i ? "e(" : "(");
}
static void mli_viz_list_end(mli_out *o, uint64_t n) {
    mli_put_str(o, n ? "e" : "");
}

/* Gives a tag or frame `count` numbers of the memo, and returns 0. Returns 1 if it has numbers
   already, so that the caller does not write it again. */
static int mli_viz_known(mli_viz_writer *w, mli_viz_memo *memo, uint32_t count) {
    if (memo->count) return 1;
    memo->first = w->numbers;
    memo->count = count;
    w->numbers += count;
    return 0;
}
/* Gives the last item a number in the memo (code "r"), or writes the item of a number ("j"). */
static MLI_COLD void mli_viz_number_of(mli_viz_writer *w, const char *code, uint32_t number) {
    mli_put_str(w->x.o, code);
    mli_put_le(w->x.o, MLI_VIZ_WORDS + number, 4);
}

/* Writes the functions of a frame into a list of n items, and returns its new length. */
static MLI_COLD uint32_t mli_viz_frame(mli_viz_writer *w, uint32_t frame, uint32_t n) {
    mli_frame_name f = mli_frame_name_of(&w->x, frame);
    mli_viz_memo *memo = &w->memo[w->x.tags + frame];
    const int known = mli_viz_known(w, memo, f.count);
    uint32_t i;
    for (i = 0; i < memo->count; i++) {
        mli_viz_item(w->x.o, n + i);
        if (!known) {
            mli_frame_function(&f, i);
            mli_viz(w, "{name %s filename %s line %ju}", f.name,
                    mli_frame_site(&w->x, frame) ? f.file : "scope", f.line);
        }
        mli_viz_number_of(w, known ? "j" : "r", memo->first + i);
    }
    return n + memo->count;
}
/* Writes the frames of a block's stack. If the block has neither a stack nor a site, leaves out the
   first frame, so that the block's scopes come first. */
static MLI_COLD void mli_viz_frames(mli_viz_writer *w, const mli_live_block *b) {
    mli_stack stack = mli_stack_of(&w->x, b);
    uint32_t i = b->node || mli_frame_site(&w->x, b->frame) ? 0 : 1, n = 0;
    mli_viz(w, "frames [");
    for (; i < stack.n; i++) n = mli_viz_frame(w, stack.frame[i], n);
    mli_viz_list_end(w->x.o, n);
}

/* Writes "memlord": the devices with their numbers, and the anomalies and drops that are not 0. */
static MLI_COLD void mli_viz_memlord(mli_viz_writer *w) {
    uint32_t dev;
    mli_viz(w, "memlord {version %s devices :", MEMLORD_VERSION);
    for (dev = 1; dev <= w->x.devices; dev++) {
        char name[32];
        (void)memlord_device_name(mli_export_device(&w->x, dev), name, sizeof name);
        mli_viz(w, "%s %ju =", name, (uint64_t)w->number[dev]);
    }
    mli_viz(w, "anomalies_and_drops :");
    for (dev = 0; dev <= w->x.devices; dev++) {
        char device[32];
        const char *name;
        size_t i = 0;
        uint64_t v;
        (void)memlord_device_name(mli_anomaly_device(w->x.r, dev), device, sizeof device);
        mli_viz(w, "%s :", device);
        while ((name = mli_anomaly_next(w->x.r, dev, &i, &v)) != NULL)
            mli_viz(w, "%s %ju =", name, v);
        mli_viz(w, "=");
    }
    mli_viz(w, "}");
}

/* Writes a part as the next item of its block's list. */
static MLI_COLD void mli_viz_part(void *writer, const mli_live_block *whole,
                                  const memlord_part_info *part) {
    mli_viz_writer *w = (mli_viz_writer *)writer;
    (void)whole;
    mli_viz_item(w->x.o, w->parts++);
    mli_viz(w, "{name %s offset %ju size %ju}", part->meta.name ? part->meta.name : "",
            part->offset, part->bytes);
}

static MLI_COLD void mli_viz_segment(mli_viz_writer *w, const mli_live_block *b) {
    int pending = b->state & MLI_BLOCK_PENDING;
    if (!b->bytes) return;
    mli_viz_item(w->x.o, w->items++);
    mli_viz(w, "{device %ju address %ju total_size %ju allocated_size %ju active_size %ju",
            (uint64_t)w->number[b->dev], b->storage, b->bytes, pending ? 0 : b->bytes, b->bytes);
    mli_viz(w, "requested_size %ju stream %ju segment_pool_id 0 0) is_expandable !", b->bytes,
            b->stream);
    mli_viz(w, b->bytes >> 20 ? "segment_type large" : "segment_type small");
    mli_viz_frames(w, b);
    mli_viz(w, "blocks [{address %ju size %ju requested_size %ju", b->storage, b->bytes, b->bytes);
    mli_viz(w, pending ? "state active_pending_free" : "state active_allocated");
    mli_viz_frames(w, b);
    if (b->state & MLI_BLOCK_PARTS) {
        mli_viz(w, "parts [");
        w->parts = 0;
        (void)mli_export_parts(&w->x, b, mli_viz_part, w);
        mli_viz_list_end(w->x.o, w->parts);
    }
    mli_viz(w, "}+}");
}

/* Writes a live block. If the ring has events of the block's storage, writes the block as the last
   of these events left it. The map of live blocks was read a moment later, and may differ. */
static MLI_COLD void mli_viz_live_block(void *writer, const mli_live_block *b) {
    mli_viz_writer *w = (mli_viz_writer *)writer;
    mli_live_block *f = mli_last_event_at(&w->last, b), known = *b;
    if (f && f->dev) {
        if (f->state & (MLI_BLOCK_DONE | MLI_BLOCK_FREED)) return;
        known.bytes = f->bytes;
        known.dev = f->dev;
        known.state = (unsigned char)((b->state & MLI_BLOCK_PARTS) | f->state);
        f->state |= MLI_BLOCK_DONE;
    }
    mli_viz_segment(w, &known);
}
/* Writes the blocks that live by the ring's events, but are no longer in the map. */
static MLI_COLD void mli_viz_ring_only(mli_viz_writer *w) {
    uint64_t i;
    for (i = 0; i < w->last.size; i++) {
        const mli_live_block *f = &w->last.at[i];
        if (f->dev && !(f->state & (MLI_BLOCK_DONE | MLI_BLOCK_FREED))) mli_viz_segment(w, f);
    }
}

/* Writes an event. An event without a block has another number in place of an address: "oom" has
   the free bytes of the device, and "snapshot" has 0. */
static MLI_COLD void mli_viz_event(mli_viz_writer *w, const char *action, const mli_live_block *b,
                                   uint64_t ns) {
    int snapshot = !strcmp(action, "snapshot");
    mli_viz_item(w->x.o, w->items++);
    mli_viz(w, "{addr %ju size %ju stream %ju time_us %ju action", b->storage, b->bytes, b->stream,
            (w->x.lord->started_wall + ns) / 1000);
    mli_viz_word(w, action, strlen(action));
    if (!strcmp(action, "oom")) mli_viz(w, "device_free %ju", b->storage);
    mli_viz_frames(w, b);
    if (snapshot) mli_viz(w, "category unknown");
    if (b->tag) {
        mli_viz_memo *memo = &w->memo[b->tag];
        const int known = mli_viz_known(w, memo, 1);
        mli_viz(w, "category");
        if (!known) mli_viz_text(w->x.o, mli_export_tag(&w->x, b->tag));
        mli_viz_number_of(w, known ? "j" : "r", memo->first);
    }
    mli_viz(w, "}");
}

/* Returns the free bytes of a device's physical device, or 0 if they are not known. */
static uint64_t mli_viz_free(const mli_viz_writer *w, uint32_t dev) {
    const mli_phys_line *line = mli_report_phys(w->x.r, dev);
    return line && line->free != UINT64_MAX ? line->free : 0;
}

static MLI_COLD void mli_viz_ring(void *writer, const mli_export_event *e) {
    mli_viz_writer *w = (mli_viz_writer *)writer;
    int pends = e->kind == MEMLORD_EVENT_PEND, frees = e->kind == MEMLORD_EVENT_FREE;
    mli_live_block *f, of = e->of;
    if (of.dev != w->only) return;
    if (e->kind == MEMLORD_EVENT_OOM) {
        of.storage = mli_viz_free(w, w->only);
        mli_viz_event(w, "oom", &of, e->ns);
    }
    f = mli_event_is_of_block(e) ? mli_last_event_at(&w->last, &of) : NULL;
    if (!f || !f->dev || !of.bytes) return;
    if (pends || (frees && !(f->state & MLI_BLOCK_OPEN)))
        mli_viz_event(w, "free_requested", &of, e->ns);
    f->state |= MLI_BLOCK_OPEN;
    if (pends) return;
    f->state ^= MLI_BLOCK_OPEN;
    mli_viz_event(w, frees ? "free_completed" : "segment_alloc", &of, e->ns);
    mli_viz_event(w, frees ? "segment_free" : "alloc", &of, e->ns);
}

/* Writes the events of a device. The last event has the category "unknown", because viewers give
   the category of the last event to blocks without a category. */
static MLI_COLD void mli_viz_trace(mli_viz_writer *w, uint32_t dev) {
    mli_live_block none = mli_live_block_make(&w->x, dev, 0, 0, 0);
    w->items = 0;
    w->only = dev;
    if (w->last.events[dev]) mli_ring_each(&w->x, mli_viz_ring, w);
    mli_viz_event(w, "snapshot", &none, w->x.r->uptime);
    mli_viz_list_end(w->x.o, w->items);
}

/* Gives the devices their numbers. Returns how many lists of events the format needs. */
static MLI_COLD int32_t mli_viz_number(mli_viz_writer *w) {
    int32_t n = 0;
    uint32_t dev;
    for (dev = 1; dev <= w->x.devices; dev++) {
        memlord_device d = mli_export_device(&w->x, dev);
        w->number[dev] = d.type == MEMLORD_DEVICE_CUDA ? d.index : -1;
        if (w->number[dev] >= n) n = w->number[dev] + 1;
    }
    for (dev = 1; dev <= w->x.devices; dev++)
        if (w->number[dev] < 0) w->number[dev] = n++;
    return n;
}

static MLI_COLD void mli_viz_body(mli_viz_writer *w) {
    MLI_REQUIRE(w->memo);
    const int32_t lists = mli_viz_number(w);
    uint32_t dev;
    int32_t n;
    mli_put_str(w->x.o, "\x80\x02");
    mli_viz(w, "{");
    mli_viz_memlord(w);
    mli_viz(w, "segments [");
    mli_last_events_read(&w->x, &w->last);
    mli_live_blocks_each(&w->x, mli_viz_live_block, w);
    mli_viz_ring_only(w);
    mli_viz_list_end(w->x.o, w->items);
    mli_viz(w, "device_traces [");
    for (n = 0; n < lists; n++) {
        mli_viz(w, "[");
        for (dev = 1; dev <= w->x.devices; dev++)
            if (w->number[dev] == n) mli_viz_trace(w, dev);
        mli_viz(w, "+");
    }
    mli_viz(w, "allocator_settings : }");
    mli_put_str(w->x.o, ".");
    mli_last_events_free(&w->last);
}
static MLI_COLD void mli_viz_write(void *writer) {
    mli_viz_writer *w = (mli_viz_writer *)writer;
    size_t size;
    mli_export_stacks(&w->x);
    size = ((size_t)w->x.tags + mli_frame_count(&w->x) + 1) * sizeof *w->memo;
    w->memo = (mli_viz_memo *)mli_own_alloc(w->x.lord, size);
    if (w->memo)
        mli_viz_body(w);
    else
        w->x.r->result = MEMLORD_E_NOMEM;
    mli_own_free(w->x.lord, w->memo, size);
}
MLI_PRIVATE MLI_COLD void mli_memory_viz(mli_report *r) {
    mli_export_run(r, sizeof(mli_viz_writer), mli_viz_write);
}
#endif
