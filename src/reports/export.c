#include "reports/export.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "books/map.h"
#include "books/tags.h"
#include "books/picks.h"
#include "books/stacks.h"
#include "books/parts.h"
#include "books/listing.h"
#include "services/stats.h"

#if !defined(MEMLORD_NO_REPORTS)

MLI_PRIVATE MLI_COLD void mli_export_run(mli_report *r, size_t size, void (*write)(void *writer)) {
    memlord *lord = r->lord;
    mli_export *x = (mli_export *)mli_own_alloc(lord, size);
    if (!x) {
        r->result = MEMLORD_E_NOMEM;
        return;
    }
    x->r = r;
    x->lord = lord;
    x->o = r->o;
    x->devices = r->devices;
    x->sites = r->site_rows;
    x->tags = (uint32_t)r->tags;
    x->scopes = r->scopes;
    write(x);
    mli_own_free(lord, x, size);
}

MLI_PRIVATE memlord_device mli_export_device(const mli_export *x, uint32_t dev) {
    return mli_device_record_at(x->lord, dev)->device;
}
MLI_PRIVATE const char *mli_export_tag(const mli_export *x, uint32_t row) {
    return row ? (const char *)mli_row_at(x->lord, MLI_BOOK_TAG, row)->subject : NULL;
}

/* -- stacks --
   Frames are numbered from 1. The rows of sites come first. Then come the frames MLI_FRAME_... of
   each device, then the scopes, and then the return addresses of stacks. */

MLI_PRIVATE uint32_t mli_frame_of_kind(const mli_export *x, uint32_t dev, uint32_t kind) {
    return x->sites + (dev - 1) * MLI_FRAME_KINDS + kind + 1;
}
MLI_PRIVATE uint32_t mli_frame_of_scope(const mli_export *x, uint32_t id) {
    return x->sites + x->devices * MLI_FRAME_KINDS + id;
}
MLI_PRIVATE uint32_t mli_frame_of_place(const mli_export *x, uint32_t place) {
    return mli_frame_of_scope(x, x->scopes) + place;
}
MLI_PRIVATE uint32_t mli_frame_count(const mli_export *x) { return mli_frame_of_place(x,
                                                                                      x->places); }
MLI_PRIVATE void mli_export_stacks(mli_export *x) {
    if (!mli_stacks_on(x->lord)) return;
    x->stacks = mli_stack_rows(x->lord) - 1; /* first, so that all their nodes have numbers */
    x->nodes = mli_stack_node_count(x->lord);
    x->places = mli_stack_frame_count(x->lord);
}

MLI_PRIVATE const memlord_site *mli_frame_site(const mli_export *x, uint32_t frame) {
    const uint32_t first = mli_frame_of_place(x, 0);
    if (frame <= x->sites) return mli_row_site(x->lord, frame);
    if (frame <= first) return NULL;
    return mli_site_display(x->lord, mli_stack_frame_at(x->lord, frame - first));
}

/* The names of the frames that are no place of code, by MLI_FRAME_... A site without a function
   and without a file has the first of these names. */
static const char *const mli_frame_kinds[] = {"(unknown)", "(arena)", "(no longer live)",
                                              "(others)"};

static void mli_frame_name_set(mli_frame_name *f, const memlord_site *site) {
    f->name = site->function[0] ? site->function : site->file;
    if (!f->name[0]) f->name = mli_frame_kinds[MLI_FRAME_UNKNOWN];
    f->file = site->file;
    f->line = mli_site_line(site);
}
MLI_PRIVATE MLI_COLD void mli_frame_function(mli_frame_name *f, uint32_t i) {
    if (f->functions) mli_frame_name_set(f, &f->functions->at[i].at);
}
static MLI_COLD void mli_frame_name_site(const mli_export *x, uint32_t frame,
                                         const memlord_site *site, mli_frame_name *f) {
    const mli_site_record *record = mli_site_record_of(x->lord, site);
    mli_frame_name_set(f, site);
    if (record) {
        f->module = record->where;
        f->offset = record->offset;
    }
    if (frame <= x->sites) f->dev = mli_row_at(x->lord, MLI_BOOK_SITE, frame)->dev;
    f->functions = mli_site_functions(x->lord, site);
    if (f->functions) f->count = f->functions->count;
    mli_frame_function(f, 0);
}
MLI_PRIVATE MLI_COLD mli_frame_name mli_frame_name_of(const mli_export *x, uint32_t frame) {
    const memlord_site *site = mli_frame_site(x, frame);
    mli_frame_name f = {mli_frame_kinds[MLI_FRAME_UNKNOWN], "", NULL, 0, 0, 0, 0, 1, NULL};
    uint32_t fixed = frame - x->sites - 1;
    if (site) {
        mli_frame_name_site(x, frame, site, &f);
    } else if (fixed < x->devices * MLI_FRAME_KINDS) {
        f.name = mli_frame_kinds[fixed % MLI_FRAME_KINDS];
        f.dev = fixed / MLI_FRAME_KINDS + 1;
    } else {
        const mli_scope_record *scope =
            mli_scope_record_at(x->lord, frame - mli_frame_of_scope(x, 0));
        f.name = scope->name;
        if (scope->parent) f.caller = mli_frame_of_scope(x, scope->parent->id);
    }
    return f;
}

MLI_PRIVATE MLI_COLD mli_stack mli_stack_of(const mli_export *x, const mli_live_block *b) {
    const mli_scope_record *scope = b->scope ? mli_scope_record_at(x->lord, b->scope) : NULL;
    uint32_t node = b->node;
    mli_stack s;
    s.n = 0;
    if (!node) s.frame[s.n++] = b->frame;
    for (; node; node = mli_stack_node_at(x->lord, node)->parent)
        s.frame[s.n++] = mli_frame_of_place(x, mli_stack_node_at(x->lord, node)->site->frame);
    for (; scope && sizeof s.frame / sizeof *s.frame > s.n; scope = scope->parent)
        s.frame[s.n++] = mli_frame_of_scope(x, scope->id);
    return s;
}

/* -- walking the live blocks -- */

MLI_PRIVATE MLI_COLD mli_live_block mli_live_block_make(const mli_export *x, uint32_t dev,
                                                        uint64_t storage, uint64_t bytes,
                                                        uint64_t where) {
    uint32_t site = (uint32_t)where & MLI_SITE_ROWS_MAX;
    mli_live_block b;
    b.storage = storage;
    b.bytes = bytes;
    b.stream = 0;
    b.frame = site && site <= x->sites ? site : mli_frame_of_kind(x, dev, MLI_FRAME_UNKNOWN);
    b.tag = (uint32_t)(where >> 20) & MLI_TAG_ROWS_MAX;
    if (b.tag > x->tags) b.tag = 0;
    b.scope = (uint32_t)(where >> 36);
    if (b.scope > x->scopes) b.scope = 0;
    b.node = 0;
    b.blocks = 1;
    b.dev = (unsigned char)dev;
    b.state = 0;
    return b;
}

typedef struct mli_alive_walk {
    mli_export *x;
    mli_alive_fn fn;
    void *writer;
} mli_alive_walk;
static MLI_COLD void mli_alive_fill(void *user, const mli_entry *e, void *item) {
    const mli_export *x = ((const mli_alive_walk *)user)->x;
    mli_alive *alive = (mli_alive *)item;
    mli_live_block *b = &alive->of;
    uint64_t rows = mli_word2_rows(e->word2);
    uint64_t scope = mli_scope_of(x->lord, rows);
    const mli_pick pick = x->nodes ? mli_pick_of(x->lord, e) : mli_pick_none;
    const uint32_t node = pick.row ? mli_stack_row_at(x->lord, pick.row)->node : 0;
    *b = mli_live_block_make(x, MLI_DEV(e->word1), e->key, MLI_BYTES(e->word1),
                             (rows & MLI_ROWS_MASK) >> 1 | scope << 36);
    b->stream = mli_stream_of(x->lord, rows);
    if (mli_is_pending(e->word2)) b->state |= MLI_BLOCK_PENDING;
    if ((e->word2 & MLI_HAS_SIDE) && mli_side_record_of(e->word2)->parts)
        b->state |= MLI_BLOCK_PARTS;
    if (node <= x->nodes) b->node = node;
    alive->scale = b->node ? pick.scale : 0;
}
static MLI_COLD int mli_alive_visit(void *user, void *item) {
    const mli_alive_walk *walk = (const mli_alive_walk *)user;
    const mli_alive *alive = (const mli_alive *)item;
    if (alive->of.dev > walk->x->devices) return 0; /* the device was added since the capture */
    return walk->fn(walk->writer, alive);
}
MLI_PRIVATE MLI_COLD void mli_alive_each(mli_export *x, mli_alive_fn fn, void *writer) {
    mli_walk_query all = mli_walk_query_of(memlord_device_all());
    mli_alive_walk walk;
    walk.x = x;
    walk.fn = fn;
    walk.writer = writer;
    if (mli_copies_each(x->lord, &all, sizeof(mli_alive), mli_alive_fill, mli_alive_visit, &walk))
        x->r->result = MEMLORD_E_NOMEM;
}

/* Calls `put` for the bytes of one tag in an arena, as if they were a block at address `at`.
   Returns the address after that block. */
static MLI_COLD uint64_t mli_arena_block(mli_export *x, uint32_t dev, uint32_t tag, uint64_t at,
                                         uint64_t bytes, mli_block_fn put, void *writer) {
    mli_live_block b = mli_live_block_make(x, dev, at, bytes, (uint64_t)tag << 20);
    b.frame = mli_frame_of_kind(x, dev, MLI_FRAME_ARENA);
    b.state = MLI_BLOCK_ARENA;
    if (bytes) put(writer, &b);
    return at + bytes;
}
MLI_PRIVATE MLI_COLD void mli_arena_blocks_each(mli_export *x, mli_block_fn put, void *writer) {
    uint32_t dev, i;
    for (dev = 1; dev <= x->devices; dev++) {
        uint64_t at = ((uint64_t)1 << 62) + ((uint64_t)dev << 50);
        uint64_t left = mli_report_arena(x->r, dev);
        uint64_t untagged = mli_report_arena_untagged(x->r, dev);
        at = mli_arena_block(x, dev, 0, at, untagged, put, writer);
        mli_take_off(&left, untagged);
        for (i = 1; left && i <= x->tags; i++) {
            mli_row *row = mli_row_at(x->lord, MLI_BOOK_TAG, i);
            uint64_t bytes = row->dev == dev ? mli_u64_load(&row->arena) : 0;
            if (bytes > left) bytes = left; /* writes no more than the arena's bytes, which are
                                               read above; the tag may have got bytes since */
            at = mli_arena_block(x, dev, i, at, bytes, put, writer);
            mli_take_off(&left, bytes);
        }
    }
}
typedef struct mli_block_walk {
    mli_export *x;
    mli_block_fn put;
    void *writer;
} mli_block_walk;
static MLI_COLD int mli_block_visit(void *user, const mli_alive *alive) {
    const mli_block_walk *walk = (const mli_block_walk *)user;
    walk->put(walk->writer, &alive->of);
    return walk->x->o->failed;
}
MLI_PRIVATE MLI_COLD void mli_live_blocks_each(mli_export *x, mli_block_fn put, void *writer) {
    mli_block_walk walk;
    walk.x = x;
    walk.put = put;
    walk.writer = writer;
    mli_alive_each(x, mli_block_visit, &walk);
    mli_arena_blocks_each(x, put, writer);
}

typedef struct mli_part_walk {
    mli_export *x;
    mli_part_fn put;
    void *writer;
    const mli_live_block *whole;
    uint64_t beside; /* the bytes of the block that no part has taken so far */
} mli_part_walk;
/* Writes a part. Stops at a part that has more bytes than the rest of the block. Such a part
   belongs to a newer block that has the same storage. */
static MLI_COLD int mli_part_visit(void *user, const memlord_part_info *part) {
    mli_part_walk *walk = (mli_part_walk *)user;
    if (part->bytes > walk->beside) return 1;
    walk->beside -= part->bytes;
    walk->put(walk->writer, walk->whole, part);
    return walk->x->o->failed;
}
MLI_PRIVATE MLI_COLD uint64_t mli_export_parts(mli_export *x, const mli_live_block *b,
                                               mli_part_fn put, void *writer) {
    mli_part_walk walk;
    walk.x = x;
    walk.put = put;
    walk.writer = writer;
    walk.whole = b;
    walk.beside = b->bytes;
    if (b->state & MLI_BLOCK_PARTS)
        (void)memlord_parts_each(x->lord, mli_export_device(x, b->dev), b->storage,
                                 mli_part_visit, &walk);
    return walk.beside;
}

/* -- text and numbers -- */

MLI_PRIVATE MLI_COLD void mli_put_utf8(mli_out *o, const char *text, const char *escaped) {
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        uint32_t code;
        size_t n = mli_utf8_decode(s, &code);
        if (n) {
            if (n == 1 && strchr(escaped, (int)code)) mli_put_str(o, "\\");
            mli_put(o, (const char *)s, n);
        } else {
            mli_put_invalid_byte(o, *s);
        }
        s += n ? n : 1;
    }
}
MLI_PRIVATE size_t mli_utf8_size(const char *text) {
    mli_out count;
    mli_out_buffer(&count, NULL, 0);
    mli_put_utf8(&count, text, "");
    return count.total;
}

MLI_PRIVATE void mli_put_le(mli_out *o, uint64_t v, unsigned n) {
    for (; n--; v >>= 8) {
        char byte = (char)(unsigned char)(v & 255);
        mli_put(o, &byte, 1);
    }
}
#endif
