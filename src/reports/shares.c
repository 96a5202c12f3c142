#include "reports/shares.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/stacks.h"
#include "books/events.h"
#include "books/listing.h"
#include "services/stats.h"

#if !defined(MEMLORD_NO_REPORTS)

static MLI_COLD mli_portion *mli_portion_find(mli_portion *table, size_t cap,
                                              const mli_portion *key) {
    uint64_t hash = ((uint64_t)key->frame << 32 | key->node) * 0x9e3779b97f4a7c15u;
    size_t at;
    hash += (uint64_t)key->tag << 40 | (uint64_t)key->scope << 8 | key->dev;
    hash = ((hash ^ hash >> 29) + key->allocs) * 0x9e3779b97f4a7c15u;
    for (at = (size_t)(hash >> 32) & (cap - 1); table[at].dev; at = (at + 1) & (cap - 1))
        if (table[at].frame == key->frame && table[at].node == key->node &&
            table[at].tag == key->tag && table[at].scope == key->scope &&
            table[at].dev == key->dev && table[at].allocs == key->allocs)
            break;
    return &table[at];
}
/* Makes room for one more share; 0: no memory. */
static MLI_COLD int mli_portions_grow(mli_export *x) {
    const size_t cap = x->portion_cap ? x->portion_cap * 2 : 1024;
    mli_portion *table;
    size_t i;
    if (x->portion_used * 4 < x->portion_cap * 3) return 1;
    table = (mli_portion *)mli_own_alloc(x->lord, cap * sizeof *table);
    if (!table) return 0;
    for (i = 0; i < x->portion_cap; i++)
        if (x->portion[i].dev) *mli_portion_find(table, cap, &x->portion[i]) = x->portion[i];
    mli_own_free(x->lord, x->portion, x->portion_cap * sizeof *table);
    x->portion = table;
    x->portion_cap = cap;
    return 1;
}
/* Returns the share of a node in the live blocks like `b`, or in the allocs of its site; node 0:
   the whole. It is valid until the next call. Without memory the report fails. */
static MLI_COLD mli_portion *mli_portion_of(mli_export *x, const mli_live_block *b, uint32_t node,
                                          int allocs) {
    mli_portion key, *s;
    memset(&key, 0, sizeof key);
    key.frame = b->frame;
    key.node = node;
    key.tag = allocs ? 0 : b->tag;
    key.scope = allocs ? 0 : b->scope;
    key.dev = b->dev;
    key.allocs = (unsigned char)allocs;
    if (!mli_portions_grow(x)) {
        x->r->result = MEMLORD_E_NOMEM;
        return &x->portion_none;
    }
    s = mli_portion_find(x->portion, x->portion_cap, &key);
    if (s->dev) return s;
    x->portion_used++;
    *s = key;
    return s;
}

/* Adds a live block to its whole and, if it was taken, to the share of its stack. */
static MLI_COLD int mli_portion_put(void *user, void *item) {
    mli_export *x = (mli_export *)user;
    const mli_alive *alive = (const mli_alive *)item;
    const mli_live_block *b = &alive->of;
    uint32_t node = b->node;
    if (b->dev > x->devices) return 0; /* added since the capture */
    for (;; node = 0) {
        mli_portion *s = mli_portion_of(x, b, node, 0);
        s->value[0]++;
        s->value[1] += (int64_t)b->bytes;
        if (!node) return x->r->result != MEMLORD_OK;
        s->rest[0] += alive->scale - 1;
        s->rest[1] += (alive->scale - 1) * (double)b->bytes;
        (void)mli_portion_of(x, b, node, 1); /* it may have none since the last reset */
    }
}
/* Adds the allocs of each stack. */
static MLI_COLD void mli_portions_stacks(mli_export *x) {
    const uint32_t rows = mli_stack_rows(x->lord);
    uint32_t i;
    for (i = 1; i < rows; i++) {
        const mli_stack_row copy = mli_stack_row_copy(x->lord, i), *row = &copy;
        mli_live_block of;
        mli_portion *s;
        if (row->dev > x->devices || row->node > x->nodes) continue;
        of = mli_live_block_make(x, row->dev, 0, 0, row->site);
        s = mli_portion_of(x, &of, row->node, 1);
        s->value[0] += (int64_t)row->samples;
        s->value[1] += (int64_t)row->taken_bytes;
        s->rest[0] += row->allocs - (double)row->samples;
        s->rest[1] += (double)row->alloc_bytes - (double)row->taken_bytes;
    }
}
/* Adds the wholes of allocs: sites, devices, and what devices have of no site. */
static MLI_COLD void mli_portions_sites(mli_export *x) {
    uint32_t i, dev;
    for (dev = 1; dev <= x->devices; dev++) {
        const memlord_stats *stat = &x->r->stat[dev - 1];
        mli_live_block of = mli_live_block_make(x, dev, 0, 0, 0);
        mli_portion *s;
        (void)mli_portion_of(x, &of, 0, 1);
        of.frame = 0;
        s = mli_portion_of(x, &of, 0, 1);
        s->value[0] = (int64_t)stat->allocs;
        s->value[1] = (int64_t)stat->total_allocated;
    }
    for (i = 1; i <= x->sites; i++) {
        const mli_live_block of = mli_live_block_make(
            x, mli_row_at(x->lord, MLI_BOOK_SITE, i)->dev, 0, 0, i);
        mli_row_totals sum;
        mli_portion *s;
        if (of.dev > x->devices) continue;
        mli_row_sum(x->lord, MLI_BOOK_SITE, i, 0, &sum);
        s = mli_portion_of(x, &of, 0, 1);
        s->value[0] = (int64_t)sum.allocs;
        s->value[1] = (int64_t)sum.total_in;
    }
}

static mli_portion *mli_portion_next(const mli_export *x, const mli_portion *s) {
    return s->next ? &x->portion[s->next - 1] : NULL;
}
/* Returns the share of a node and a frame in the allocs of the site of `s`. */
static mli_portion *mli_portion_site(const mli_export *x, const mli_portion *s, uint32_t frame,
                                     uint32_t node) {
    mli_portion key = *s;
    key.tag = key.scope = 0;
    key.frame = frame;
    key.node = node;
    key.allocs = 1;
    return mli_portion_find(x->portion, x->portion_cap, &key);
}
/* Divides a number over the shares of a whole in proportion to their rest; `all`: to their value,
   in place of it. A share of no block has no bytes. */
static MLI_COLD void mli_portion_divide(const mli_export *x, const mli_portion *whole, int m,
                                        int64_t number, int all) {
    double parts = 0, part = 0;
    int64_t upto, given = 0;
    mli_portion *s;
    for (s = mli_portion_next(x, whole); s; s = mli_portion_next(x, s))
        parts += all ? (double)s->value[m] : s->rest[m];
    for (s = mli_portion_next(x, whole); s && parts > 0; s = mli_portion_next(x, s), given = upto) {
        part += all ? (double)s->value[m] : s->rest[m];
        upto = s->next ? (int64_t)((double)number * (part / parts)) : number;
        if (upto > number) upto = number;
        if (!m && upto == given) s->rest[1] = 0;
        s->value[m] = (all ? 0 : s->value[m]) + upto - given;
    }
}

/* -- the passes that divide the table -- */

static MLI_COLD void mli_portions_each(mli_export *x, void (*fn)(mli_export *x, mli_portion *s)) {
    size_t i;
    for (i = 0; i < x->portion_cap; i++)
        if (x->portion[i].dev) fn(x, &x->portion[i]);
}
static MLI_COLD void mli_portion_list(mli_export *x, mli_portion *s, mli_portion *whole) {
    s->next = whole->next;
    whole->next = (uint32_t)(s - x->portion) + 1;
}
static MLI_COLD void mli_portion_list_site(mli_export *x, mli_portion *s) {
    if (s->allocs && s->frame && !s->node) mli_portion_list(x, s, mli_portion_site(x, s, 0, 0));
}
static MLI_COLD int64_t mli_portion_sum(const mli_export *x, const mli_portion *whole, int m) {
    int64_t sum = 0;
    const mli_portion *s;
    for (s = mli_portion_next(x, whole); s; s = mli_portion_next(x, s)) sum += s->value[m];
    return sum;
}
/* Makes the sites of a device add up to it. A realloc at another site counts the bytes of its block
   there again. */
static MLI_COLD void mli_portion_device(mli_export *x, mli_portion *s) {
    mli_portion *site, *next;
    int m;
    if (s->frame) return;
    for (m = 0; m < 2; m++) {
        const int64_t left = s->value[m] - mli_portion_sum(x, s, m);
        if (left < 0) mli_portion_divide(x, s, m, s->value[m], 1);
        site = mli_portion_site(x, s, mli_frame_of_kind(x, s->dev, MLI_FRAME_UNKNOWN), 0);
        if (left > 0) site->value[m] = left;
    }
    for (site = mli_portion_next(x, s); site; site = next) {
        next = mli_portion_next(x, site);
        site->next = 0;
    }
    s->next = 0;
}
/* Lists the stacks of each whole, and adds the live blocks of each site up in its rest. */
static MLI_COLD void mli_portion_list_stack(mli_export *x, mli_portion *s) {
    mli_portion key = *s, *site = mli_portion_site(x, s, s->frame, 0);
    key.node = 0;
    if (s->node) {
        mli_portion_list(x, s, mli_portion_find(x->portion, x->portion_cap, &key));
    } else if (!s->allocs) {
        site->rest[0] += (double)s->value[0];
        site->rest[1] += (double)s->value[1];
    }
}
/* Decides which sites have all their live blocks among their allocs: not those that a reset has
   left older blocks, or that got blocks by a realloc. */
static MLI_COLD void mli_portion_decide(mli_export *x, mli_portion *s) {
    if (s->allocs && !s->node)
        s->has_live = !mli_epoch(x->lord) &&
                      (double)s->value[0] >= s->rest[0] && (double)s->value[1] >= s->rest[1];
}
/* Take live blocks off the allocs of their site, which are then those that are freed, and put their
   shares back. */
static MLI_COLD void mli_portion_live_off(mli_export *x, mli_portion *s) {
    mli_portion *of = mli_portion_site(x, s, s->frame, s->node);
    int m;
    if (s->allocs || !mli_portion_site(x, s, s->frame, 0)->has_live) return;
    for (m = 0; m < 2; m++) {
        of->value[m] -= s->value[m];
        of->rest[m] -= s->rest[m];
    }
}
static MLI_COLD void mli_portion_live_back(mli_export *x, mli_portion *s) {
    mli_portion *of = mli_portion_site(x, s, s->frame, s->node);
    if (s->allocs || !mli_portion_site(x, s, s->frame, 0)->has_live) return;
    of->value[0] += s->value[0];
    of->value[1] += s->value[1];
}
/* Removes numbers below 0, as those of freed blocks are differences, and the rest of a stack
   without a taken block. */
static MLI_COLD void mli_portion_clamp(mli_export *x, mli_portion *s) {
    int m;
    (void)x;
    for (m = 0; m < 2; m++) {
        if (s->value[m] < 0) s->value[m] = 0;
        if (s->rest[m] < 0 || !s->value[0]) s->rest[m] = 0;
    }
}

/* A stack gets at most so many times what its samples stand for: a site with more has stacks of
   which no block was taken. */
#define MLI_PORTION_MOST 4

/* Divides a whole; what no stack gets stays. Bytes go with their blocks. */
static MLI_COLD void mli_portion_divide_whole(mli_export *x, mli_portion *whole) {
    int64_t blocks = 0, given = 0;
    int m;
    if (whole->node || !whole->frame) return;
    for (m = 0; m < 2; m++) {
        const int64_t left = whole->value[m] - mli_portion_sum(x, whole, m);
        int64_t number = left;
        double rest = 0;
        const mli_portion *s;
        for (s = mli_portion_next(x, whole); s; s = mli_portion_next(x, s)) rest += s->rest[m];
        if (m) number = blocks > 0 ? (int64_t)((double)left * (double)given / (double)blocks) : 0;
        if (!m && rest * MLI_PORTION_MOST < (double)left)
            number = (int64_t)(rest * MLI_PORTION_MOST);
        if (left < 0) mli_portion_divide(x, whole, m, whole->value[m], 1);
        if (left > 0 && rest > 0) mli_portion_divide(x, whole, m, number, 0);
        whole->value[m] = left < 0 ? 0 : rest > 0 ? left - number : left;
        if (!m) blocks = left;
        if (!m) given = left - whole->value[0];
    }
}

MLI_PRIVATE MLI_COLD void mli_portions_make(mli_export *x) {
    static void (*const passes[])(mli_export *x, mli_portion *s) = {
        mli_portion_list_site, mli_portion_device, mli_portion_list_stack,   mli_portion_decide,
        mli_portion_live_off,  mli_portion_clamp,  mli_portion_divide_whole, mli_portion_live_back};
    mli_walk_query all = mli_walk_query_of(memlord_device_all());
    size_t i;
    if (!x->nodes || !mli_stacks_sampled(x->lord)) return;
    mli_portions_sites(x);
    mli_portions_stacks(x);
    if (mli_copies_each(x->lord, &all, sizeof(mli_alive), mli_alive_fill, mli_portion_put, x))
        x->r->result = MEMLORD_E_NOMEM;
    for (i = 0; i < sizeof passes / sizeof *passes && x->r->result == MEMLORD_OK; i++)
        mli_portions_each(x, passes[i]);
}
/* Returns a share as a block. */
static mli_live_block mli_portion_block(const mli_portion *s) {
    mli_live_block b;
    memset(&b, 0, sizeof b);
    b.bytes = (uint64_t)s->value[1];
    b.frame = s->frame;
    b.tag = s->tag;
    b.scope = s->scope;
    b.node = s->node;
    b.blocks = s->value[0] < UINT32_MAX ? (uint32_t)s->value[0] : UINT32_MAX;
    b.dev = s->dev;
    return b;
}

MLI_PRIVATE MLI_COLD void mli_live_blocks_each(mli_export *x,
        void (*put)(mli_export *x, const mli_live_block *b)) {
    mli_walk_query all = mli_walk_query_of(memlord_device_all());
    uint32_t dev;
    size_t i;
    x->put_block = put;
    for (i = 0; i < x->portion_cap; i++) {
        const mli_live_block b = mli_portion_block(&x->portion[i]);
        if (b.blocks && !x->portion[i].allocs) put(x, &b);
    }
    if (!x->portion && mli_copies_each(x->lord, &all, sizeof(mli_alive), mli_alive_fill,
                                     mli_alive_put, x))
        x->r->result = MEMLORD_E_NOMEM;
    for (dev = 1; dev <= x->devices; dev++) {
        uint64_t arena = mli_u64_load(&mli_device_record_at(x->lord, dev)->arena);
        mli_live_block b = mli_live_block_make(
            x, dev, ((uint64_t)1 << 62) + ((uint64_t)dev << 50), arena, 0);
        b.frame = mli_frame_of_kind(x, dev, MLI_FRAME_ARENA);
        b.state = MLI_BLOCK_ARENA;
        if (arena) put(x, &b);
    }
}

MLI_PRIVATE const char *mli_part_name(const memlord_part_info *part) {
    return part->meta.name ? part->meta.name : "(part)";
}
/* Writes the parts of a block; returns how many of its bytes are in none. Stops at a part with more
   bytes than are left: another block has begun at that storage since, and the part is of it. */
static MLI_COLD int mli_export_part(void *user, const memlord_part_info *part) {
    mli_export *x = (mli_export *)user;
    if (part->bytes > x->beside) return 1;
    x->beside -= part->bytes;
    x->put_part(x, part);
    x->parts++;
    return x->o->failed;
}
MLI_PRIVATE MLI_COLD uint64_t mli_export_parts(mli_export *x, const mli_live_block *b) {
    x->whole = b;
    x->beside = b->bytes;
    if (b->state & MLI_BLOCK_PARTS)
        (void)memlord_parts_each(x->lord, mli_export_device(x, b->dev), b->storage,
                                 mli_export_part, x);
    return x->beside;
}

MLI_PRIVATE MLI_COLD mli_group *mli_group_at(mli_export *x, const mli_live_block *b) {
    uint64_t key = (uint64_t)(b->frame ^ b->node * 0x9e3779b9u) << 24 ^ (uint64_t)b->tag << 8 ^
                   b->dev;
    uint64_t at = ((key ^ (uint64_t)b->scope << 44) * 0x9e3779b97f4a7c15u) >> 56;
    mli_group *g;
    unsigned tries;
    for (tries = 0; tries < 8; tries++) {
        g = &x->group[(at + tries) % MLI_GROUPS];
        if (!g->of.dev) break;
        if (g->of.frame == b->frame && g->of.tag == b->tag && g->of.scope == b->scope &&
            g->of.dev == b->dev && g->of.node == b->node)
            return g;
    }
    if (tries == 8) g = &x->group[at];
    if (g->of.dev && x->put_group) x->put_group(x, g);
    g->of = *b;
    g->blocks = 0;
    g->bytes = 0;
    return g;
}
static MLI_COLD void mli_group_add(mli_export *x, const mli_live_block *b) {
    mli_group *g = mli_group_at(x, b);
    if (!(b->state & MLI_BLOCK_ARENA)) g->blocks += b->blocks;
    g->bytes += mli_export_parts(x, b);
}
MLI_PRIVATE MLI_COLD void mli_groups_each(mli_export *x,
                                          void (*put)(mli_export *, const mli_group *)) {
    uint32_t i;
    x->put_group = put;
    mli_live_blocks_each(x, mli_group_add);
    for (i = 0; i < MLI_GROUPS; i++)
        if (x->group[i].of.dev) put(x, &x->group[i]);
}
static MLI_COLD void mli_stack_allocs_each(mli_export *x, mli_allocs_fn put) {
    const uint32_t rows = mli_stack_rows(x->lord);
    uint32_t i;
    for (i = 1; i < rows && !x->o->failed; i++) {
        const mli_stack_row *row = mli_stack_row_at(x->lord, i);
        mli_live_block of = mli_live_block_make(x, row->dev, 0, 0, 0);
        memlord_stack_stat s;
        if (row->dev > x->devices || row->node > x->nodes) continue;
        mli_stack_stat_fill(x->lord, i, &s);
        of.node = row->node;
        x->sum[of.dev] += s.allocs;
        x->events[of.dev] += s.alloc_bytes;
        put(x, &of, s.allocs, s.alloc_bytes);
    }
}
MLI_PRIVATE MLI_COLD void mli_allocs_each(mli_export *x, mli_allocs_fn put) {
    uint32_t i, dev;
    size_t at;
    for (at = 0; at < x->portion_cap; at++) {
        const mli_portion *s = &x->portion[at];
        const mli_live_block of = mli_portion_block(s);
        if (s->allocs && s->frame) put(x, &of, (uint64_t)s->value[0], (uint64_t)s->value[1]);
    }
    if (x->portion) return;
    if (x->nodes) mli_stack_allocs_each(x, put);
    for (i = 1; i <= x->sites && !x->nodes && !x->o->failed; i++) {
        mli_live_block of = mli_live_block_make(
            x, mli_row_at(x->lord, MLI_BOOK_SITE, i)->dev, 0, 0, i);
        memlord_site_stat s;
        (void)mli_site_stat_fill(x->lord, i, &s);
        x->sum[of.dev] += s.allocs;
        x->events[of.dev] += s.alloc_bytes;
        put(x, &of, s.allocs, s.alloc_bytes);
    }
    for (dev = 1; dev <= x->devices; dev++) {
        const memlord_stats *s = &x->r->stat[dev - 1];
        mli_live_block of = mli_live_block_make(x, dev, 0, 0, 0);
        put(x, &of, s->allocs > x->sum[dev] ? s->allocs - x->sum[dev] : 0,
            s->total_allocated > x->events[dev] ? s->total_allocated - x->events[dev] : 0);
    }
}

/* -- the event ring, up to the moment of the report -- */

/* The most slots of the table of last events. Events of further storages are left out. */
#define MLI_LAST_EVENTS ((uint64_t)1 << 20)

MLI_PRIVATE mli_live_block *mli_last_event_at(const mli_export *x, const mli_live_block *of) {
    const uint32_t type = mli_type_of(x->lord, of->dev);
    uint64_t at = (of->storage ^ (uint64_t)(type + 1) << 57) * 0x9e3779b97f4a7c15u >> 20;
    for (; x->last_events_size; at++) {
        mli_live_block *f = &x->last_events[at & (x->last_events_size - 1)];
        if (!f->dev) return f;
        if (f->storage == of->storage && mli_type_of(x->lord, f->dev) == type) return f;
    }
    return NULL;
}
MLI_PRIVATE MLI_COLD void mli_ring_each(mli_export *x, mli_ring_event_fn fn) {
    mli_ring_reader reading;
    mli_event_copy e;
    if (!mli_ring_reader_begin(x->lord, &reading)) {
        x->r->result = MEMLORD_E_NOMEM;
        return;
    }
    while (!x->o->failed && mli_ring_reader_next(&reading, &e)) {
        mli_export_event out;
        out.of = mli_live_block_make(x, mli_event_dev(e.what), e.storage, MLI_BYTES(e.what),
                                     e.where);
        out.of.stream = e.stream;
        if (e.stack && mli_stack_row_at(x->lord, e.stack)->node <= x->nodes)
            out.of.node = mli_stack_row_at(x->lord, e.stack)->node;
        out.ns = mli_since_ns(&x->r->scale, e.stamp);
        out.kind = mli_event_kind(e.what);
        out.thread = e.thread;
        if (out.kind == MEMLORD_EVENT_PEND) out.of.state = MLI_BLOCK_PENDING;
        if (out.kind == MEMLORD_EVENT_FREE) out.of.state = MLI_BLOCK_FREED;
        if (out.ns <= x->r->uptime && out.of.dev <= x->devices) fn(x, &out);
    }
    mli_ring_reader_end(&reading);
}

MLI_PRIVATE int64_t mli_event_delta(const mli_export_event *e) {
    int adds = e->kind == MEMLORD_EVENT_ALLOC || e->kind == MEMLORD_EVENT_MOVE ||
               e->kind == MEMLORD_EVENT_ARENA_ADD;
    int takes = e->kind == MEMLORD_EVENT_FREE || e->kind == MEMLORD_EVENT_ARENA_SUB;
    return (adds - takes) * (int64_t)e->of.bytes;
}
MLI_PRIVATE int mli_event_is_of_block(const mli_export_event *e) {
    return e->kind == MEMLORD_EVENT_ALLOC || e->kind == MEMLORD_EVENT_FREE ||
           e->kind == MEMLORD_EVENT_PEND || e->kind == MEMLORD_EVENT_MOVE;
}

static MLI_COLD void mli_last_event_update(mli_export *x, const mli_export_event *e) {
    mli_live_block *f;
    if (e->ns < x->first) x->first = e->ns;
    x->scoped |= e->kind == MEMLORD_EVENT_SCOPE_BEGIN;
    if (!e->of.dev) return;
    x->sum[e->of.dev] += (uint64_t)mli_event_delta(e);
    x->events[e->of.dev]++;
    if (x->level && e->of.tag) x->level[e->of.tag] -= mli_event_delta(e);
    f = mli_event_is_of_block(e) ? mli_last_event_at(x, &e->of) : NULL;
    if (!f || (!f->dev && x->last_events_used >= x->last_events_size - x->last_events_size / 8))
        return;
    x->last_events_used += !f->dev;
    *f = e->of;
}

MLI_PRIVATE MLI_COLD void mli_last_events_build(mli_export *x) {
    const mli_ring *ring = mli_ring_of(x->lord);
    uint64_t size = 64;
    if (!ring) return;
    while (size < ring->capacity + ring->capacity / 4 && size < MLI_LAST_EVENTS) size *= 2;
    x->last_events = (mli_live_block *)mli_own_alloc(x->lord,
                                                     (size_t)size * sizeof *x->last_events);
    if (x->last_events) {
        x->last_events_size = size;
        mli_ring_each(x, mli_last_event_update);
    } else {
        x->r->result = MEMLORD_E_NOMEM;
    }
}
#endif
