#include "reports/memory_viz.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "reports/capture.h"
#include "reports/text.h"
#include "reports/shares.h"
#include "reports/trace.h"

#if !defined(MEMLORD_NO_REPORTS)

#define MLI_VIZ_BATCH 1000 /* items; the viewer passes a batch as arguments of one call */

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
static MLI_COLD void mli_viz_word(mli_export *x, const char *word, size_t n) {
    size_t i = ((unsigned char)word[n / 2] * 5u + (unsigned char)word[n - 1] + n) % MLI_VIZ_WORDS;
    while (x->word[i].size && (x->word[i].size != n || memcmp(x->word[i].text, word, n)))
        i = (i + 1) % MLI_VIZ_WORDS;
    if (x->word[i].size) {
        mli_put_str(x->o, "h");
    } else {
        x->word[i].text = word;
        x->word[i].size = n;
        mli_put_str(x->o, "X");
        mli_put_le(x->o, n, 4);
        mli_put(x->o, word, n);
        mli_put_str(x->o, "q");
    }
    mli_put_le(x->o, i, 1);
}

/* Writes what one character of a form stands for: { and } begin and end a dictionary of at least
   one pair, : is a new one, = sets a pair in it, [ is a new list, + appends to it, ) makes a pair
   of the last two items, ! is False, 0 the number 0; a space is nothing. */
static MLI_COLD void mli_viz_code(mli_out *o, char code) {
    static const char names[] = "{}:=[+)!";
    static const char *const codes[] = {"}(", "u", "}", "s", "]", "a", "\x86", "\x89"};
    const char *name = strchr(names, code);
    if (name) mli_put_str(o, codes[name - names]);
    if (code == '0') mli_viz_u64(o, 0);
}
MLI_PRIVATE MLI_COLD MLI_PRINTF_LIKE(2) void mli_viz(mli_export *x, const char *form, ...) {
    va_list args;
    size_t n;
    va_start(args, form);
    for (; *form; form += n) {
        for (n = 0; form[n] == '_' || (form[n] >= 'a' && form[n] <= 'z');) n++;
        if (n) {
            mli_viz_word(x, form, n);
        } else if (*form != '%') {
            mli_viz_code(x->o, *form);
            n = 1;
        } else if (form[1] == 's') {
            mli_viz_text(x->o, va_arg(args, const char *));
            n = 2;
        } else {
            mli_viz_u64(x->o, va_arg(args, uint64_t));
            n = 3;
        }
    }
    va_end(args);
}

/* Begins item i of a list, from 0; every MLI_VIZ_BATCH items it ends a batch and begins the next.
   mli_viz_list_end ends the last one. */
static void mli_viz_item(mli_out *o, uint64_t i) {
    mli_put_str(o, i % MLI_VIZ_BATCH ? "" : i ? "e(" : "(");
}
static void mli_viz_list_end(mli_out *o, uint64_t n) {
    mli_put_str(o, n ? "e" : "");
}

/* Returns 1 and writes the memo's item of a number, if it has one. Else returns 0: the caller then
   writes the item and passes its number to mli_viz_put. */
static MLI_COLD int mli_viz_get(mli_export *x, uint32_t number) {
    if (!((const char *)x->table)[number]) return 0;
    mli_put_str(x->o, "j");
    mli_put_le(x->o, MLI_VIZ_WORDS + number, 4);
    return 1;
}
static MLI_COLD void mli_viz_put(mli_export *x, uint32_t number) {
    ((char *)x->table)[number] = 1;
    mli_put_str(x->o, "r");
    mli_put_le(x->o, MLI_VIZ_WORDS + number, 4);
}

/* Writes the stack of a block. Without a site it begins with a scope. */
static MLI_COLD void mli_viz_frames(mli_export *x, const mli_live_block *b) {
    mli_stack stack = mli_stack_of(x, b);
    uint32_t i = b->node || mli_frame_site(x, b->frame) ? 0 : 1, n;
    mli_viz(x, "frames [");
    for (n = 0; i < stack.n; i++, n++) {
        uint32_t frame = stack.frame[i];
        mli_frame_name f;
        mli_viz_item(x->o, n);
        if (mli_viz_get(x, x->tags + frame)) continue;
        f = mli_frame_name_of(x, frame);
        mli_viz(x, "{name %s filename %s line %ju}", f.name,
                mli_frame_site(x, frame) ? f.file : "scope", f.line);
        mli_viz_put(x, x->tags + frame);
    }
    mli_viz_list_end(x->o, n);
}

/* Writes "memlord": the devices with their numbers, and the anomalies and drops that are not 0. */
static MLI_COLD void mli_viz_memlord(mli_export *x) {
    uint32_t dev;
    mli_viz(x, "memlord {version %s devices :", MEMLORD_VERSION);
    for (dev = 1; dev <= x->devices; dev++) {
        char name[32];
        (void)memlord_device_name(mli_export_device(x, dev), name, sizeof name);
        mli_viz(x, "%s %ju =", name, (uint64_t)x->number[dev]);
    }
    mli_viz(x, "anomalies_and_drops :");
    for (dev = 0; dev <= x->devices; dev++) {
        char device[32];
        const char *name;
        size_t i = 0;
        uint64_t v;
        (void)memlord_device_name(mli_anomaly_device(x->r, dev), device, sizeof device);
        mli_viz(x, "%s :", device);
        while ((name = mli_anomaly_next(x->r, dev, &i, &v)) != NULL)
            mli_viz(x, "%s %ju =", name, v);
        mli_viz(x, "=");
    }
    mli_viz(x, "}");
}

/* Writes a part as the next item of its block's list. */
static MLI_COLD void mli_viz_part(mli_export *x, const memlord_part_info *part) {
    mli_viz_item(x->o, x->parts);
    mli_viz(x, "{name %s offset %ju size %ju}", part->meta.name ? part->meta.name : "",
            part->offset, part->bytes);
}

/* Writes a segment with its block. */
static MLI_COLD void mli_viz_segment(mli_export *x, const mli_live_block *b) {
    int pending = b->state & MLI_BLOCK_PENDING;
    if (!b->bytes) return;
    mli_viz_item(x->o, x->written++);
    mli_viz(x, "{device %ju address %ju total_size %ju allocated_size %ju active_size %ju",
            (uint64_t)x->number[b->dev], b->storage, b->bytes, pending ? 0 : b->bytes, b->bytes);
    mli_viz(x, "requested_size %ju stream %ju segment_pool_id 0 0) is_expandable !", b->bytes,
            b->stream);
    mli_viz(x, b->bytes >> 20 ? "segment_type large" : "segment_type small");
    mli_viz_frames(x, b);
    mli_viz(x, "blocks [{address %ju size %ju requested_size %ju", b->storage, b->bytes, b->bytes);
    mli_viz(x, pending ? "state active_pending_free" : "state active_allocated");
    mli_viz_frames(x, b);
    if (b->state & MLI_BLOCK_PARTS) {
        mli_viz(x, "parts [");
        x->parts = 0;
        (void)mli_export_parts(x, b);
        mli_viz_list_end(x->o, x->parts);
    }
    mli_viz(x, "}+}");
}

/* Writes a live block. The ring's last event of a storage overrides the map's entry, which was read
   a moment later. */
static MLI_COLD void mli_viz_live_block(mli_export *x, const mli_live_block *b) {
    mli_live_block *f = mli_last_event_at(x, b), known = *b;
    if (f && f->dev) {
        if (f->state & (MLI_BLOCK_DONE | MLI_BLOCK_FREED)) return;
        known.bytes = f->bytes;
        known.dev = f->dev;
        known.state = (unsigned char)((b->state & MLI_BLOCK_PARTS) | f->state);
        f->state |= MLI_BLOCK_DONE;
    }
    mli_viz_segment(x, &known);
}
/* Writes the blocks that are live in the ring but no longer in the map. */
static MLI_COLD void mli_viz_ring_only(mli_export *x) {
    uint64_t i;
    for (i = 0; i < x->last_events_size; i++) {
        const mli_live_block *f = &x->last_events[i];
        if (f->dev && !(f->state & (MLI_BLOCK_DONE | MLI_BLOCK_FREED))) mli_viz_segment(x, f);
    }
}

/* Writes an event of a block, or without one: `addr` is then the number that it has there. */
static MLI_COLD void mli_viz_event(mli_export *x, const char *action, const mli_live_block *b,
                                   uint64_t ns) {
    int snapshot = !strcmp(action, "snapshot");
    mli_viz_item(x->o, x->written++);
    mli_viz(x, "{addr %ju size %ju stream %ju time_us %ju action", b->storage, b->bytes, b->stream,
            (x->lord->started_wall + ns) / 1000);
    mli_viz_word(x, action, strlen(action));
    if (!strcmp(action, "oom")) mli_viz(x, "device_free %ju", b->storage);
    mli_viz_frames(x, b);
    if (snapshot) mli_viz(x, "category unknown");
    if (b->tag) {
        mli_viz(x, "category");
        if (!mli_viz_get(x, b->tag)) {
            mli_viz_text(x->o, mli_export_tag(x, b->tag));
            mli_viz_put(x, b->tag);
        }
    }
    mli_viz(x, "}");
}

/* Returns the free bytes of a device's physical device; 0: not known. */
static uint64_t mli_viz_free(const mli_export *x, uint32_t dev) {
    const mli_phys_line *line = mli_report_phys(x->r, dev);
    return line && line->free != UINT64_MAX ? line->free : 0;
}

static MLI_COLD void mli_viz_ring(mli_export *x, const mli_export_event *e) {
    int pends = e->kind == MEMLORD_EVENT_PEND, frees = e->kind == MEMLORD_EVENT_FREE;
    mli_live_block *f, of = e->of;
    if (of.dev != x->only) return;
    if (e->kind == MEMLORD_EVENT_OOM) {
        of.storage = mli_viz_free(x, x->only);
        mli_viz_event(x, "oom", &of, e->ns);
    }
    f = mli_event_is_of_block(e) ? mli_last_event_at(x, &of) : NULL;
    if (!f || !f->dev || !of.bytes) return;
    if (pends || (frees && !(f->state & MLI_BLOCK_OPEN)))
        mli_viz_event(x, "free_requested", &of, e->ns);
    f->state |= MLI_BLOCK_OPEN;
    if (pends) return;
    f->state ^= MLI_BLOCK_OPEN;
    mli_viz_event(x, frees ? "free_completed" : "segment_alloc", &of, e->ns);
    mli_viz_event(x, frees ? "segment_free" : "alloc", &of, e->ns);
}

/* Writes a device's events. Viewers give the category of the last one to blocks without any. */
static MLI_COLD void mli_viz_trace(mli_export *x, uint32_t dev) {
    mli_live_block none = mli_live_block_make(x, dev, 0, 0, 0);
    x->written = 0;
    x->only = dev;
    if (x->events[dev]) mli_ring_each(x, mli_viz_ring);
    mli_viz_event(x, "snapshot", &none, x->r->uptime);
    mli_viz_list_end(x->o, x->written);
}

/* Numbers the devices; returns how many lists of events the numbers need. */
static MLI_COLD int32_t mli_viz_number(mli_export *x) {
    int32_t n = 0;
    uint32_t dev;
    for (dev = 1; dev <= x->devices; dev++) {
        memlord_device d = mli_export_device(x, dev);
        x->number[dev] = d.type == MEMLORD_DEVICE_CUDA ? d.index : -1;
        if (x->number[dev] >= n) n = x->number[dev] + 1;
    }
    for (dev = 1; dev <= x->devices; dev++)
        if (x->number[dev] < 0) x->number[dev] = n++;
    return n;
}

MLI_PRIVATE MLI_COLD void mli_memory_viz(mli_export *x) {
    size_t size;
    int32_t n, lists = mli_viz_number(x);
    uint32_t dev;
    mli_export_stacks(x);
    size = (size_t)x->tags + mli_frame_count(x) + 1;
    x->table = mli_own_alloc(x->lord, size);
    if (!x->table) {
        x->r->result = MEMLORD_E_NOMEM;
        return;
    }
    mli_put_str(x->o, "\x80\x02");
    mli_viz(x, "{");
    mli_viz_memlord(x);
    mli_viz(x, "segments [");
    x->put_part = mli_viz_part;
    mli_last_events_build(x);
    mli_live_blocks_each(x, mli_viz_live_block);
    mli_viz_ring_only(x);
    mli_viz_list_end(x->o, x->written);
    mli_viz(x, "device_traces [");
    for (n = 0; n < lists; n++) {
        mli_viz(x, "[");
        for (dev = 1; dev <= x->devices; dev++)
            if (x->number[dev] == n) mli_viz_trace(x, dev);
        mli_viz(x, "+");
    }
    mli_viz(x, "allocator_settings : }");
    mli_put_str(x->o, ".");
    mli_own_free(x->lord, x->table, size);
}
#endif
