#include "books/listing.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "books/threads.h"
#include "books/probes.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/sites.h"
#include "books/tags.h"
#include "books/parts.h"

MLI_PRIVATE MLI_COLD void mli_block_copy_out(memlord *lord, const mli_entry *e,
                                             memlord_block_info *out) {
    MLI_REQUIRE(mli_is_inside() || mli_rank_held(MLI_RANK_SHARD) || !(e->word2 & MLI_HAS_SIDE));
    uint64_t rows = mli_word2_rows(e->word2);
    uint32_t site = MLI_SITE_ROW(rows), tag = MLI_TAG_ROW(rows);
    memset(out, 0, sizeof *out);
    out->device = mli_device_record_at(lord, MLI_DEV(e->word1))->device;
    out->storage = e->key;
    out->bytes = MLI_BYTES(e->word1);
    out->refs = mli_refs_of(e->word1, e->word2);
    out->born = mli_mark_of(lord, rows);
    if (mli_scope_of(lord, rows))
        out->scope = mli_scope_record_at(lord, mli_scope_of(lord, rows))->path;
    if (tag) out->tag = (const char *)mli_row_at(lord, MLI_BOOK_TAG, tag)->subject;
    if (site)
        out->site = (const memlord_site *)mli_ptr_load_acquire(
            &((mli_site_record *)mli_row_at(lord, MLI_BOOK_SITE, site)->subject)->display);
    if (e->word2 & MLI_HAS_SIDE) out->meta = mli_side_record_of(e->word2)->meta;
    out->pending = mli_is_pending(e->word2);
    out->stream = mli_stream_of(lord, rows);
}
MLI_PRIVATE mli_walk_query mli_walk_query_of(memlord_device sel) {
    mli_walk_query q;
    memset(&q, 0, sizeof q);
    q.sel = sel;
    return q;
}

static MLI_COLD int mli_visit_entry(const mli_entry *e, void *query) {
    const mli_walk_query *q = (const mli_walk_query *)query;
    uint64_t bytes = MLI_BYTES(e->word1);
    if (bytes < q->min_bytes ||
        !mli_selects(q->sel, mli_device_record_at(q->lord, MLI_DEV(e->word1))->device))
        return 0;
    if (q->containing ? q->address < e->key || q->address - e->key >= bytes
                      : mli_mark_of(q->lord, mli_word2_rows(e->word2)) < q->min_born)
        return 0;
    if (q->parts && (mli_hash(e->key) >> 32) % q->parts != q->part) return 0;
    return q->fn(q->lord, e, q->user);
}

/* Pauses a shard and calls fn for each of its blocks that matches a query, until fn returns a value
   other than 0. Returns what fn returned last. fn may not allocate, and may not call the host. */
static MLI_COLD int mli_shard_visit(memlord *lord, mli_shard *s, mli_walk_query *q,
                                    mli_visit_fn fn, void *user) {
    int stop;
    if (!mli_shard_pause(lord, s)) return 0;
    q->lord = lord;
    q->fn = fn;
    q->user = user;
    stop = mli_shard_each(s, mli_visit_entry, q);
    mli_shard_resume(s);
    return stop;
}

MLI_PRIVATE MLI_COLD void mli_map_visit(memlord *lord, mli_walk_query *q, mli_visit_fn fn,
                                        void *user) {
    uint32_t i;
    for (i = 0; i < MLI_SHARDS; i++)
        if (mli_shard_visit(lord, mli_shard_at(lord, i), q, fn, user)) return;
}

static int mli_visit_count(memlord *lord, const mli_entry *e, void *user) {
    (void)lord;
    (void)e;
    ++*(size_t *)user;
    return 0;
}
typedef struct mli_copies {
    char *at;
    size_t size, count, cap; /* `count` blocks matched; only the first `cap` are copied */
    mli_fill_fn fill;
    void *user;
} mli_copies;
static MLI_COLD int mli_visit_copy(memlord *lord, const mli_entry *e, void *user) {
    mli_copies *c = (mli_copies *)user;
    (void)lord;
    if (c->count < c->cap) c->fill(c->user, e, c->at + c->count * c->size);
    c->count++;
    return 0;
}

#define MLI_BLOCK_LIST_MIN 4096u /* a query of at most this many matches in a shard is not split */
/* If a shard has more matches than may be copied at once, splits the query into parts, by the hash
   of the key, and returns 1. So each block is listed once, even if the table changes between the
   walks. */
static int mli_walk_query_split(mli_walk_query *q, size_t count) {
    if (q->parts || count <= MLI_BLOCK_LIST_MIN) return 0;
    q->parts = (count + MLI_BLOCK_LIST_MIN - 1) / MLI_BLOCK_LIST_MIN;
    return 1;
}

/* Copies the blocks of a shard that match a query, of the current part if it is split. Allocates
   more room while the shard is not paused, and tries again. */
static MLI_COLD memlord_result mli_shard_copy(memlord *lord, mli_shard *s, mli_walk_query *q,
                                              mli_copies *c) {
    for (;;) {
        size_t cap;
        c->count = 0;
        (void)mli_shard_visit(lord, s, q, mli_visit_copy, c);
        if (mli_walk_query_split(q, c->count)) continue;
        if (c->count <= c->cap) return MEMLORD_OK;
        mli_own_free(lord, c->at, c->cap * c->size);
        for (cap = c->cap ? c->cap : 64; cap < c->count;) cap *= 2;
        c->cap = 0;
        c->at = (char *)mli_own_alloc(lord, cap * c->size);
        if (!c->at) return MEMLORD_E_NOMEM;
        c->cap = cap;
    }
}

MLI_PRIVATE MLI_COLD memlord_result mli_copies_each(memlord *lord, mli_walk_query *q, size_t size,
                                                    mli_fill_fn fill, mli_item_fn fn, void *user) {
    mli_copies c = {NULL, size, 0, 0, fill, user};
    memlord_result r = MEMLORD_OK;
    uint32_t i;
    size_t k;
    int stop = 0;
    for (i = 0; i < MLI_SHARDS && !stop && r == MEMLORD_OK; i++) {
        mli_walk_query some = *q;
        do {
            r = mli_shard_copy(lord, mli_shard_at(lord, i), &some, &c);
            for (k = 0; k < c.count && !stop && r == MEMLORD_OK; k++)
                stop = fn(user, c.at + k * size);
        } while (++some.part < some.parts && !stop && r == MEMLORD_OK);
    }
    mli_own_free(lord, c.at, c.cap * size);
    return r;
}

typedef struct mli_block_call { /* a function of the host, and how many times it was called */
    memlord *lord;
    memlord_block_fn fn;
    void *user;
    size_t count;
} mli_block_call;
static MLI_COLD void mli_block_fill(void *user, const mli_entry *e, void *item) {
    mli_block_copy_out(((mli_block_call *)user)->lord, e, (memlord_block_info *)item);
}
static MLI_COLD int mli_block_call_on(void *user, void *item) {
    mli_block_call *call = (mli_block_call *)user;
    memlord_block_info *info = (memlord_block_info *)item;
    info->site = mli_site_display_of(call->lord, info->site);
    call->count++;
    return call->fn(call->user, info);
}
MLI_PRIVATE MLI_COLD memlord_result mli_map_each(memlord *lord, mli_walk_query *q,
                                                 memlord_block_fn fn, void *user, size_t *seen) {
    mli_block_call call = {lord, fn, user, 0};
    memlord_result r = mli_copies_each(lord, q, sizeof(memlord_block_info),
                                       mli_block_fill, mli_block_call_on, &call);
    if (seen) *seen = call.count;
    return r;
}

/* -- the k largest: a heap with the smallest block at the root --
   Equal blocks are ordered by address, so that the list is stable. */

static int mli_block_smaller(const memlord_block_info *a, const memlord_block_info *b) {
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->storage > b->storage;
}
static MLI_COLD void mli_block_heap_down(memlord_block_info *heap, size_t n, size_t i) {
    memlord_block_info moving = heap[i];
    size_t child;
    while ((child = 2 * i + 1) < n) {
        if (child + 1 < n && mli_block_smaller(&heap[child + 1], &heap[child])) child++;
        if (!mli_block_smaller(&heap[child], &moving)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}
static MLI_COLD void mli_block_heap_make(mli_largest *top) {
    size_t i;
    for (i = top->count / 2; i--;) mli_block_heap_down(top->at, top->count, i);
}
MLI_PRIVATE MLI_COLD int mli_visit_top(memlord *lord, const mli_entry *e, void *user) {
    mli_largest *top = (mli_largest *)user;
    memlord_block_info info;
    if (top->count < top->cap) {
        mli_block_copy_out(lord, e, &top->at[top->count++]);
        if (top->count == top->cap) mli_block_heap_make(top);
        return 0;
    }
    if (MLI_BYTES(e->word1) < top->at[0].bytes) return 0;
    mli_block_copy_out(lord, e, &info);
    if (mli_block_smaller(&top->at[0], &info)) {
        top->at[0] = info;
        mli_block_heap_down(top->at, top->count, 0);
    }
    return 0;
}
MLI_PRIVATE MLI_COLD size_t mli_block_heap_sort(memlord *lord, mli_largest *top) {
    memlord_block_info *out = top->at;
    size_t n;
    if (top->count < top->cap) mli_block_heap_make(top);
    for (n = top->count; n > 1;) { /* moves the smallest block behind the heap */
        memlord_block_info least = out[0];
        out[0] = out[--n];
        out[n] = least;
        mli_block_heap_down(out, n, 0);
    }
    for (n = 0; n < top->count; n++) out[n].site = mli_site_display_of(lord, out[n].site);
    return top->count;
}
static MLI_COLD size_t mli_map_top(memlord *lord, mli_walk_query *q,
                                   memlord_block_info *out, size_t k) {
    mli_largest top = {NULL, 0, 0};
    top.at = out;
    top.cap = k;
    if (k) mli_map_visit(lord, q, mli_visit_top, &top);
    return mli_block_heap_sort(lord, &top);
}

/* -- public -- */

MLI_API memlord_result memlord_blocks_each(memlord *lord, memlord_device sel, uint64_t min_bytes,
                                           memlord_block_fn fn, void *user) {
    mli_walk_query q = mli_walk_query_of(sel);
    if (!lord) return MEMLORD_OK;
    if (!fn) return MEMLORD_E_INVALID;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    q.min_bytes = min_bytes;
    return mli_map_each(lord, &q, fn, user, NULL);
}

MLI_API size_t memlord_blocks_top(memlord *lord, memlord_device sel, memlord_block_info *out,
                                  size_t k) {
    mli_walk_query q = mli_walk_query_of(sel);
    if (!lord || !out || !mli_selector_valid(sel)) return 0;
    mli_places_name(lord);
    return mli_map_top(lord, &q, out, k);
}

MLI_API memlord_result memlord_block_find(memlord *lord, memlord_device device,
                                          uint64_t storage, memlord_block_info *out) {
    mli_thread *t;
    mli_probe probe;
    int found;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!mli_type_valid(device)) return MEMLORD_E_DEVICE;
    if (!mli_key_valid(storage)) return MEMLORD_E_UNKNOWN;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_E_UNKNOWN;
    (void)mli_probe_find(lord, t, (uint32_t)device.type, storage, 0, &probe);
    found = probe.entry != NULL;
    if (found) mli_block_copy_out(lord, probe.entry, out);
    mli_probe_leave(t, &probe);
    mli_thread_put(lord, t);
    if (!found) return MEMLORD_E_UNKNOWN;
    out->site = mli_site_display_of(lord, out->site);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_block_containing(memlord *lord, memlord_device device,
                                                uint64_t address, memlord_block_info *out) {
    mli_walk_query q = mli_walk_query_of(device);
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!mli_type_valid(device)) return MEMLORD_E_DEVICE;
    q.address = address;
    q.containing = 1;
    return mli_map_top(lord, &q, out, 1) ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MLI_API size_t memlord_leaks(memlord *lord, uint64_t since_mark, memlord_block_fn fn, void *user) {
    mli_walk_query q = mli_walk_query_of(memlord_device_all());
    size_t seen = 0;
    if (!lord) return 0;
    q.min_born = since_mark;
    if (fn)
        (void)mli_map_each(lord, &q, fn, user, &seen);
    else
        mli_map_visit(lord, &q, mli_visit_count, &seen);
    return seen;
}
