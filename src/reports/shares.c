#include "reports/shares.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "books/counters.h"
#include "books/stacks.h"
#include "books/stack_totals.h"
#include "services/stats.h"

#if !defined(MEMLORD_NO_PROFILES)

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
/* Makes room in the table for one more entry. Returns 0 if there is no memory. */
static MLI_COLD int mli_portions_grow(mli_shares *t) {
    const size_t cap = t->cap ? t->cap * 2 : 1024;
    mli_portion *table;
    size_t i;
    if (t->used * 4 < t->cap * 3) return 1;
    table = (mli_portion *)mli_own_alloc(t->x->lord, cap * sizeof *table);
    if (!table) return 0;
    for (i = 0; i < t->cap; i++)
        if (t->at[i].dev) *mli_portion_find(table, cap, &t->at[i]) = t->at[i];
    mli_own_free(t->x->lord, t->at, t->cap * sizeof *table);
    t->at = table;
    t->cap = cap;
    return 1;
}
/* Returns the share of the stack `node` in the live blocks of b's site, tag and scope or, with
   `allocs`, in the allocs of its site. If `node` is 0, returns the whole. The pointer is valid
   until the next call. If there is no memory, the report fails. */
static MLI_COLD mli_portion *mli_portion_of(mli_shares *t, const mli_live_block *b, uint32_t node,
                                            int allocs) {
    mli_portion key, *s;
    memset(&key, 0, sizeof key);
    key.frame = b->frame;
    key.node = node;
    key.tag = allocs ? 0 : b->tag;
    key.scope = allocs ? 0 : b->scope;
    key.dev = b->dev;
    key.allocs = (unsigned char)allocs;
    if (!mli_portions_grow(t)) {
        t->x->r->result = MEMLORD_E_NOMEM;
        return &t->none;
    }
    s = mli_portion_find(t->at, t->cap, &key);
    if (s->dev) return s;
    t->used++;
    *s = key;
    return s;
}

/* Adds a live block to its whole and, if it was picked for a sample, to the share of its stack. */
static MLI_COLD int mli_portion_put(void *user, const mli_alive *alive) {
    mli_shares *t = (mli_shares *)user;
    const mli_live_block *b = &alive->of;
    uint32_t node = b->node;
    for (;; node = 0) {
        mli_portion *s = mli_portion_of(t, b, node, 0);
        s->value[0]++;
        s->value[1] += (int64_t)b->bytes;
        if (!node) return t->x->r->result != MEMLORD_OK;
        s->rest[0] += alive->scale - 1;
        s->rest[1] += (alive->scale - 1) * (double)b->bytes;
        (void)mli_portion_of(t, b, node, 1); /* so that they have an entry, even without allocs
                                                since the last reset */
    }
}
/* Adds to the share of each stack the allocs that the ledger has counted for it. */
static MLI_COLD void mli_portions_stacks(mli_shares *t) {
    uint32_t i;
    for (i = 1; i <= t->x->stacks; i++) {
        const mli_stack_row *row = mli_stack_row_at(t->x->lord, i);
        const mli_stack_totals sum = mli_stack_totals_of(t->x->lord, i);
        mli_live_block of;
        mli_portion *s;
        if (row->dev > t->x->devices) continue;
        of = mli_live_block_make(t->x, row->dev, 0, 0, row->site);
        s = mli_portion_of(t, &of, row->node, 1);
        s->value[0] += (int64_t)sum.samples;
        s->value[1] += (int64_t)sum.picked_bytes;
        s->rest[0] += sum.allocs - (double)sum.samples;
        s->rest[1] += (double)sum.alloc_bytes - (double)sum.picked_bytes;
    }
}
/* Adds an entry for the allocs of each site, of each device, and of each device without a site. */
static MLI_COLD void mli_portions_sites(mli_shares *t) {
    uint32_t i, dev;
    for (dev = 1; dev <= t->x->devices; dev++) {
        const memlord_stats *stat = &t->x->r->stat[dev - 1];
        mli_live_block of = mli_live_block_make(t->x, dev, 0, 0, 0);
        mli_portion *s;
        (void)mli_portion_of(t, &of, 0, 1);
        of.frame = 0;
        s = mli_portion_of(t, &of, 0, 1);
        s->value[0] = (int64_t)stat->allocs;
        s->value[1] = (int64_t)stat->total_allocated;
    }
    for (i = 1; i <= t->x->sites; i++) {
        const mli_live_block of = mli_live_block_make(
            t->x, mli_row_at(t->x->lord, MLI_BOOK_SITE, i)->dev, 0, 0, i);
        mli_row_totals sum;
        mli_portion *s;
        if (of.dev > t->x->devices) continue;
        mli_row_sum(t->x->lord, MLI_BOOK_SITE, i, 0, &sum);
        s = mli_portion_of(t, &of, 0, 1);
        s->value[0] = (int64_t)sum.allocs;
        s->value[1] = (int64_t)sum.total_in;
    }
}

static mli_portion *mli_portion_next(const mli_shares *t, const mli_portion *s) {
    return s->next ? &t->at[s->next - 1] : NULL;
}
/* Returns the entry for the allocs of a frame and a stack on the device of `s`. */
static mli_portion *mli_portion_site(const mli_shares *t, const mli_portion *s, uint32_t frame,
                                     uint32_t node) {
    mli_portion key = *s;
    key.tag = key.scope = 0;
    key.frame = frame;
    key.node = node;
    key.allocs = 1;
    return mli_portion_find(t->at, t->cap, &key);
}
/* Returns the weight of a share in its whole: its `rest` or, if `all`, its `value`. */
static double mli_portion_weight(const mli_portion *s, int m, int all) {
    return all ? (double)s->value[m] : s->rest[m];
}
static double mli_portion_weights(const mli_shares *t, const mli_portion *whole, int m, int all) {
    double sum = 0;
    const mli_portion *s;
    for (s = mli_portion_next(t, whole); s; s = mli_portion_next(t, s))
        sum += mli_portion_weight(s, m, all);
    return sum;
}
/* Divides a number of blocks (m is 0) or bytes (m is 1) among the shares of a whole, by their
   weights. Adds the results to the shares' values or, if `all` is 1, replaces the values. A share
   that gets no blocks here also gets no bytes in the later division of the bytes. */
static MLI_COLD void mli_portion_divide(const mli_shares *t, const mli_portion *whole, int m,
                                        int64_t number, int all) {
    const double parts = mli_portion_weights(t, whole, m, all);
    double part = 0;
    int64_t upto, given = 0;
    mli_portion *s = parts > 0 ? mli_portion_next(t, whole) : NULL;
    for (; s; s = mli_portion_next(t, s), given = upto) {
        part += mli_portion_weight(s, m, all);
        upto = s->next ? (int64_t)((double)number * (part / parts)) : number;
        if (upto > number) upto = number;
        if (!m && upto == given) s->rest[1] = 0;
        s->value[m] = (all ? 0 : s->value[m]) + upto - given;
    }
}

/* -- the passes that divide the table -- */

static MLI_COLD void mli_portions_each(mli_shares *t, void (*fn)(mli_shares *t, mli_portion *s)) {
    size_t i;
    for (i = 0; i < t->cap; i++)
        if (t->at[i].dev) fn(t, &t->at[i]);
}
static MLI_COLD void mli_portion_list(mli_shares *t, mli_portion *s, mli_portion *whole) {
    s->next = whole->next;
    whole->next = (uint32_t)(s - t->at) + 1;
}
static MLI_COLD void mli_portion_list_site(mli_shares *t, mli_portion *s) {
    if (s->allocs && s->frame && !s->node) mli_portion_list(t, s, mli_portion_site(t, s, 0, 0));
}
static MLI_COLD int64_t mli_portion_sum(const mli_shares *t, const mli_portion *whole, int m) {
    int64_t sum = 0;
    const mli_portion *s;
    for (s = mli_portion_next(t, whole); s; s = mli_portion_next(t, s)) sum += s->value[m];
    return sum;
}
/* Makes the allocs of a device's sites add up to those of the device. They may not add up, because
   a realloc at another site counts the bytes of its block there again. */
static MLI_COLD void mli_portion_device(mli_shares *t, mli_portion *s) {
    mli_portion *site, *next;
    int m;
    if (s->frame) return;
    for (m = 0; m < 2; m++) {
        const int64_t left = s->value[m] - mli_portion_sum(t, s, m);
        if (left < 0) mli_portion_divide(t, s, m, s->value[m], 1);
        site = mli_portion_site(t, s, mli_frame_of_kind(t->x, s->dev, MLI_FRAME_UNKNOWN), 0);
        if (left > 0) site->value[m] = left;
    }
    for (site = mli_portion_next(t, s); site; site = next) {
        next = mli_portion_next(t, site);
        site->next = 0;
    }
    s->next = 0;
}
/* If `s` is a share of a stack, adds it to the list of its whole. If `s` is the live blocks of a
   site, tag and scope, adds them to the `rest` of the site's allocs, for mli_portion_decide. */
static MLI_COLD void mli_portion_list_stack(mli_shares *t, mli_portion *s) {
    mli_portion key = *s, *site = mli_portion_site(t, s, s->frame, 0);
    key.node = 0;
    if (s->node) {
        mli_portion_list(t, s, mli_portion_find(t->at, t->cap, &key));
    } else if (!s->allocs) {
        site->rest[0] += (double)s->value[0];
        site->rest[1] += (double)s->value[1];
    }
}
/* Decides whether all live blocks of a site are among its allocs. They are not if some of them are
   older than the last reset, or came from a realloc. */
static MLI_COLD void mli_portion_decide(mli_shares *t, mli_portion *s) {
    if (s->allocs && !s->node)
        s->has_live = !mli_epoch(t->x->lord) &&
                      (double)s->value[0] >= s->rest[0] && (double)s->value[1] >= s->rest[1];
}
/* Subtract the live blocks of a site or stack from its allocs, so that only the freed ones are left
   there, and add the shares of the live blocks again. */
static MLI_COLD void mli_portion_live_off(mli_shares *t, mli_portion *s) {
    mli_portion *of = mli_portion_site(t, s, s->frame, s->node);
    int m;
    if (s->allocs || !mli_portion_site(t, s, s->frame, 0)->has_live) return;
    for (m = 0; m < 2; m++) {
        of->value[m] -= s->value[m];
        of->rest[m] -= s->rest[m];
    }
}
static MLI_COLD void mli_portion_live_back(mli_shares *t, mli_portion *s) {
    mli_portion *of = mli_portion_site(t, s, s->frame, s->node);
    if (s->allocs || !mli_portion_site(t, s, s->frame, 0)->has_live) return;
    of->value[0] += s->value[0];
    of->value[1] += s->value[1];
}
/* Sets numbers below 0 to 0. The numbers of freed blocks are differences, so some are below 0. Also
   sets the `rest` of a stack without a picked block to 0. */
static MLI_COLD void mli_portion_clamp(mli_shares *t, mli_portion *s) {
    int m;
    (void)t;
    for (m = 0; m < 2; m++) {
        if (s->value[m] < 0) s->value[m] = 0;
        if (s->rest[m] < 0 || !s->value[0]) s->rest[m] = 0;
    }
}

/* Divides blocks (m is 0) or bytes (m is 1) of a whole among its stacks. `left` is the number of
   blocks or bytes that no stack has yet. `rest` is the sum of the stacks' weights. If `rest` is
   above 0, the stacks get `number` of these blocks or bytes. The whole keeps the remainder. If the
   stacks already have more than the whole (left < 0), divides all of the whole among them. */
static MLI_COLD void mli_portion_give(const mli_shares *t, mli_portion *whole, int m, int64_t left,
                                      int64_t number, double rest) {
    if (left < 0) mli_portion_divide(t, whole, m, whole->value[m], 1);
    if (left > 0 && rest > 0) mli_portion_divide(t, whole, m, number, 0);
    whole->value[m] = left < 0 ? 0 : rest > 0 ? left - number : left;
}
/* Divides a whole among its stacks. It keeps what no stack gets. */
static MLI_COLD void mli_portion_divide_whole(mli_shares *t, mli_portion *whole) {
    int64_t blocks, bytes, given, number;
    double rest;
    if (whole->node || !whole->frame) return;
    blocks = number = whole->value[0] - mli_portion_sum(t, whole, 0);
    rest = mli_portion_weights(t, whole, 0, 0);
    if (rest * MLI_PORTION_MOST < (double)blocks) number = (int64_t)(rest * MLI_PORTION_MOST);
    mli_portion_give(t, whole, 0, blocks, number, rest);
    given = blocks - whole->value[0];
    bytes = whole->value[1] - mli_portion_sum(t, whole, 1);
    rest = mli_portion_weights(t, whole, 1, 0);
    number = blocks > 0 ? (int64_t)((double)bytes * (double)given / (double)blocks) : 0;
    mli_portion_give(t, whole, 1, bytes, number, rest);
}

MLI_PRIVATE MLI_COLD void mli_shares_make(mli_export *x, mli_shares *t) {
    MLI_REQUIRE(!t->x);
    static void (*const passes[])(mli_shares *t, mli_portion *s) = {
        mli_portion_list_site, mli_portion_device, mli_portion_list_stack,   mli_portion_decide,
        mli_portion_live_off,  mli_portion_clamp,  mli_portion_divide_whole, mli_portion_live_back};
    size_t i;
    t->x = x;
    if (!x->nodes || !mli_stacks_sampled(x->lord)) return;
    mli_portions_sites(t);
    mli_portions_stacks(t);
    mli_alive_each(x, mli_portion_put, t);
    for (i = 0; i < sizeof passes / sizeof *passes && x->r->result == MEMLORD_OK; i++)
        mli_portions_each(t, passes[i]);
}
/* Returns a block that stands for all blocks of a share. */
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

MLI_PRIVATE MLI_COLD void mli_shares_free(mli_shares *t) {
    mli_own_free(t->x->lord, t->at, t->cap * sizeof *t->at);
}

MLI_PRIVATE MLI_COLD void mli_share_blocks_each(mli_shares *t, mli_block_fn put, void *writer) {
    size_t i;
    if (!t->at) {
        mli_live_blocks_each(t->x, put, writer);
        return;
    }
    for (i = 0; i < t->cap; i++) {
        const mli_live_block b = mli_portion_block(&t->at[i]);
        if (b.blocks && !t->at[i].allocs) put(writer, &b);
    }
    mli_arena_blocks_each(t->x, put, writer);
}

MLI_PRIVATE const char *mli_part_name(const memlord_part_info *part) {
    return part->meta.name ? part->meta.name : "(part)";
}

MLI_PRIVATE MLI_COLD mli_group *mli_group_at(mli_groups *groups, const mli_live_block *b) {
    uint64_t key = (uint64_t)(b->frame ^ b->node * 0x9e3779b9u) << 24 ^ (uint64_t)b->tag << 8 ^
                   b->dev;
    uint64_t at = ((key ^ (uint64_t)b->scope << 44) * 0x9e3779b97f4a7c15u) >> 56;
    mli_group *g;
    unsigned tries;
    for (tries = 0; tries < 8; tries++) {
        g = &groups->at[(at + tries) % MLI_GROUPS];
        if (!g->of.dev) break;
        if (g->of.frame == b->frame && g->of.tag == b->tag && g->of.scope == b->scope &&
            g->of.dev == b->dev && g->of.node == b->node)
            return g;
    }
    if (tries == 8) g = &groups->at[at];
    if (g->of.dev && groups->put) groups->put(groups->writer, g);
    g->of = *b;
    g->blocks = 0;
    g->bytes = 0;
    return g;
}
static MLI_COLD void mli_group_add(void *user, const mli_live_block *b) {
    mli_groups *groups = (mli_groups *)user;
    mli_group *g = mli_group_at(groups, b);
    if (!(b->state & MLI_BLOCK_ARENA)) g->blocks += b->blocks;
    g->bytes += mli_export_parts(groups->x, b, groups->put_part, groups->writer);
}
MLI_PRIVATE MLI_COLD void mli_groups_each(mli_shares *t, mli_groups *groups) {
    uint32_t i;
    groups->x = t->x;
    mli_share_blocks_each(t, mli_group_add, groups);
    for (i = 0; i < MLI_GROUPS; i++)
        if (groups->at[i].of.dev) groups->put(groups->writer, &groups->at[i]);
}

/* Calls put for the allocs of a site or a stack, and adds them to the sum of their device. */
static MLI_COLD void mli_allocs_put(mli_shares *t, const mli_live_block *of, uint64_t allocs,
                                    uint64_t bytes, mli_allocs_fn put, void *writer) {
    t->allocs[of->dev] += allocs;
    t->alloc_bytes[of->dev] += bytes;
    put(writer, of, allocs, bytes);
}
static MLI_COLD void mli_stack_allocs_each(mli_shares *t, mli_allocs_fn put, void *writer) {
    const mli_export *x = t->x;
    uint32_t i;
    for (i = 1; i <= x->stacks && !x->o->failed; i++) {
        const mli_stack_row *row = mli_stack_row_at(x->lord, i);
        mli_live_block of = mli_live_block_make(x, row->dev, 0, 0, 0);
        memlord_stack_stat s;
        if (row->dev > x->devices) continue;
        (void)mli_stack_stat_fill(x->lord, i, &s);
        of.node = row->node;
        mli_allocs_put(t, &of, s.allocs, s.alloc_bytes, put, writer);
    }
}
static MLI_COLD void mli_site_allocs_each(mli_shares *t, mli_allocs_fn put, void *writer) {
    const mli_export *x = t->x;
    uint32_t i;
    for (i = 1; i <= x->sites && !x->o->failed; i++) {
        mli_live_block of = mli_live_block_make(
            x, mli_row_at(x->lord, MLI_BOOK_SITE, i)->dev, 0, 0, i);
        memlord_site_stat s;
        (void)mli_site_stat_fill(x->lord, i, &s);
        mli_allocs_put(t, &of, s.allocs, s.alloc_bytes, put, writer);
    }
}
MLI_PRIVATE MLI_COLD void mli_allocs_each(mli_shares *t, mli_allocs_fn put, void *writer) {
    uint32_t dev;
    size_t at;
    for (at = 0; at < t->cap; at++) {
        const mli_portion *s = &t->at[at];
        const mli_live_block of = mli_portion_block(s);
        if (s->allocs && s->frame)
            put(writer, &of, (uint64_t)s->value[0], (uint64_t)s->value[1]);
    }
    if (t->at) return;
    if (t->x->nodes)
        mli_stack_allocs_each(t, put, writer);
    else
        mli_site_allocs_each(t, put, writer);
    for (dev = 1; dev <= t->x->devices; dev++) {
        const memlord_stats *s = &t->x->r->stat[dev - 1];
        const mli_live_block of = mli_live_block_make(t->x, dev, 0, 0, 0);
        uint64_t allocs = s->allocs, bytes = s->total_allocated;
        mli_take_off(&allocs, t->allocs[dev]);
        mli_take_off(&bytes, t->alloc_bytes[dev]);
        put(writer, &of, allocs, bytes);
    }
}
#endif
