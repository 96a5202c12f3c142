#include "services/verify.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/text.h"
#include "base/log.h"
#include "base/memory.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/probes.h"
#include "books/counters.h"
#include "books/names.h"
#include "books/devices.h"
#include "books/sites.h"
#include "books/picks.h"
#include "books/stacks.h"
#include "books/stack_totals.h"
#include "books/fences.h"
#include "books/accounts.h"
#include "books/parts.h"
#include "books/limits.h"
#include "books/tags.h"

#if !defined(MEMLORD_NO_VERIFY)

/* What the blocks of the map add up to, for one row. */
typedef struct mli_verify_sum {
    uint64_t bytes, blocks, pending;
} mli_verify_sum;

typedef struct mli_verify {
    memlord *lord;
    mli_verify_sum *sums[MLI_BOOKS]; /* the sums of each book, by row number */
    uint32_t rows[MLI_BOOKS];        /* one more than the number of rows in each book */
    mli_shard *shard;                /* the shard of the map that is walked now */
    uint32_t displaced;              /* entries of the shard outside their home bucket */
    mli_verify_sum detached;         /* off the map during an open realloc, but counted */
    mli_verify_sum missing;          /* blocks that the devices count and the map does not hold */
    mli_verify_sum picked;           /* blocks whose stack was sampled; `bytes` is the sum of their
                                        weights (the bytes that such a block stands for) */
    mli_out text;
    char line[512];
} mli_verify;

static MLI_COLD void mli_verify_line(mli_verify *v) {
    mli_out_buffer(&v->text, v->line, sizeof v->line);
    mli_put_str(&v->text, "[verify] ");
}
/* Writes the line of a failed check. Returns 1. */
static MLI_COLD MLI_PRINTF_LIKE(2) int mli_verify_fail(mli_verify *v, const char *form, ...) {
    va_list args;
    mli_verify_line(v);
    va_start(args, form);
    mli_put_format(&v->text, 0, form, &args);
    va_end(args);
    return 1;
}
/* Writes the line of a block that fails a check: "[verify] cuda:0 0x7f00: it has ...". */
static MLI_COLD int mli_verify_block(mli_verify *v, const mli_entry *e, const char *what) {
    const memlord_device d = mli_device_record_at(v->lord, MLI_DEV(e->word1))->device;
    return mli_verify_fail(v, "%i %jx: %s", mli_device_code(d), e->key, what);
}
/* Begins the line of a row that fails a check: "[verify] cuda:0, tag weights: ". Returns 1. */
static MLI_COLD int mli_verify_row_line(mli_verify *v, int book, uint32_t number) {
    const mli_row *row = mli_row_at(v->lord, book, number);
    mli_verify_line(v);
    mli_putf(&v->text, "%i", mli_device_code(mli_device_record_at(v->lord, row->dev)->device));
    if (book == MLI_BOOK_TAG) mli_putf(&v->text, ", tag %s", (const char *)row->subject);
    if (book == MLI_BOOK_SITE)
        mli_putf(&v->text, ", site %p",
                 mli_ptr_load_acquire(&((mli_site_record *)row->subject)->display));
    mli_put_str(&v->text, ": ");
    return 1;
}

/* -- index and names -- */

/* Returns 1 if a row has a subject by which a look-up finds it. */
static MLI_COLD int mli_verify_subject(memlord *lord, int book, uint32_t number,
                                       const mli_row *row) {
    const mli_device_record *device = mli_device_record_at(lord, row->dev);
    const mli_site_record *site;
    const mli_stb_string *name;
    if (!row->subject) return 0;
    if (book == MLI_BOOK_DEVICE)
        return row->dev == number && row->subject == device &&
               mli_dev_known(lord, device->device) == number &&
               mli_index_get(lord, mli_device_key(device->device)) == number;
    if (mli_index_get(lord, mli_index_key(row->subject, row->dev)) != number) return 0;
    if (book == MLI_BOOK_TAG) {
        name = mli_string_locked(lord, (const char *)row->subject);
        return name && name->key == row->subject;
    }
    site = (const mli_site_record *)row->subject;
    return mli_site_record_of(lord, &site->original) == site && mli_ptr_load(&site->display);
}
static MLI_COLD int mli_verify_names(mli_verify *v, int book) {
    static const char books[MLI_BOOKS][8] = {"devices", "sites", "tags"};
    uint32_t i;
    for (i = 1; i < v->rows[book]; i++) {
        const mli_row *row = mli_row_at(v->lord, book, i);
        if (!row || !row->dev || row->dev >= v->rows[MLI_BOOK_DEVICE] ||
            !mli_verify_subject(v->lord, book, i, row))
            return mli_verify_fail(v, "row %ju of the %s: the index does not lead to it",
                                   (uint64_t)i, books[book]);
    }
    return 0;
}

/* -- one block -- */

/* Looks a key up in a shard of the map, as a call inside the shard does. *probe gets the entry and
   its home, the bucket where the look-up begins. */
static MLI_COLD void mli_verify_find(mli_verify *v, mli_shard *s, uint64_t key, uint32_t dev,
                                     mli_probe *probe) {
    memset(probe, 0, sizeof *probe);
    if (!mli_table_at(s)) return;
    mli_probe_begin(probe, s, key, 0);
    (void)mli_probe_scan(v->lord, probe, mli_type_of(v->lord, dev), 0);
}
/* Checks that a look-up of an entry's key finds the entry. */
static MLI_COLD int mli_verify_place(mli_verify *v, const mli_entry *e) {
    mli_probe probe;
    const mli_bucket *bucket;
    if (mli_shard_of(v->lord, e->key) != v->shard)
        return mli_verify_block(v, e, "it lies in the wrong shard of the map");
    mli_verify_find(v, v->shard, e->key, MLI_DEV(e->word1), &probe);
    if (probe.entry != e) return mli_verify_block(v, e, "a probe does not find it in the map");
    bucket = mli_table_at(v->shard) +
             (size_t)((const char *)e - (const char *)mli_table_at(v->shard)) / MLI_BUCKET_BYTES;
    v->displaced += bucket != probe.home;
    return 0;
}

/* Checks the fences of a pending block. */
static MLI_COLD int mli_verify_pending(mli_verify *v, const mli_entry *e) {
    const mli_side_record *side = mli_side_record_of(e->word2);
    const mli_fence_record *f = side->fences;
    if (!f) return mli_verify_block(v, e, "it is pending and waits for no fence");
    for (; f; f = f->sibling)
        if (f->key != e->key || f->serial != side->serial || f->dev != MLI_DEV(e->word1) ||
            f->detached || !f->queue)
            return mli_verify_block(v, e, "it is pending, and a fence of it waits for another");
    return 0;
}

/* Checks that the parts of a block lie within it, in order, and that their sum is right. */
static MLI_COLD int mli_verify_parts(mli_verify *v, const mli_entry *e, const mli_parts *parts) {
    uint64_t end = 0, sum = 0, bytes = MLI_BYTES(e->word1);
    uint32_t i;
    for (i = 0; i < parts->count; i++) {
        const memlord_part_info *part = parts->at[i];
        if (part->offset < end) return mli_verify_block(v, e, "two of its parts overlap");
        if (part->offset > bytes || part->bytes > bytes - part->offset)
            return mli_verify_block(v, e, "a part ends behind its storage");
        end = part->offset + part->bytes;
        sum += part->bytes;
    }
    return sum == parts->bytes ? 0 : mli_verify_block(v, e, "its parts have another sum");
}

/* Checks the references of a block, and its side record if it has one. A side record has the facts
   for which the block's entry has no room. */
static MLI_COLD int mli_verify_side(mli_verify *v, const mli_entry *e) {
    const mli_side_record *side = mli_side_record_of(e->word2);
    const uint64_t refs = MLI_REFS(e->word1);
    if (!refs || (refs == MLI_REFS_MANY && (!side || side->refs < MLI_REFS_MANY)))
        return mli_verify_block(v, e, "its count of references is wrong");
    if (!side) return 0;
    if (side->serial && mli_verify_pending(v, e)) return 1;
    return side->parts ? mli_verify_parts(v, e, side->parts) : 0;
}

static void mli_verify_add(mli_verify_sum *sum, const mli_entry *e) {
    sum->bytes += MLI_BYTES(e->word1);
    sum->blocks++;
    if (mli_is_pending(e->word2)) sum->pending += MLI_BYTES(e->word1);
}

/* Checks the rows of a block and its birth (the memlord_mark, scope and stream at its alloc). Adds
   the block to the sums of its rows. */
static MLI_COLD int mli_verify_rows(mli_verify *v, const mli_entry *e) {
    const uint64_t rows = mli_word2_rows(e->word2), birth = MLI_BIRTH(rows);
    const uint32_t dev = MLI_DEV(e->word1);
    uint32_t number[MLI_BOOKS];
    int book;
    number[MLI_BOOK_DEVICE] = dev;
    number[MLI_BOOK_SITE] = MLI_SITE_ROW(rows);
    number[MLI_BOOK_TAG] = MLI_TAG_ROW(rows);
    if ((birth & MLI_BIRTH_NUMBERED) && ((birth & MLI_MARK_MAX) == 0 ||
                                       (birth & MLI_MARK_MAX) > mli_birth_count(v->lord)))
        return mli_verify_block(v, e, "its scope is unknown");
    for (book = 0; book < MLI_BOOKS; book++) {
        if (!number[book]) continue;
        if (number[book] >= v->rows[book] ||
            mli_row_at(v->lord, book, number[book])->dev != dev)
            return mli_verify_block(v, e, "its site or its tag is of another device");
        mli_verify_add(&v->sums[book][number[book]], e);
    }
    return 0;
}

/* Checks that a picked block is in the table, and adds it to the sum. */
static MLI_COLD int mli_verify_pick(mli_verify *v, const mli_entry *e) {
    mli_pick pick;
    if (!(e->word1 & MLI_PICKED)) return 0;
    pick = mli_stack_rows(v->lord) > 1 ? mli_pick_of(v->lord, e) : mli_pick_none;
    if (!pick.row || pick.row >= mli_stack_rows(v->lord) ||
        mli_stack_row_at(v->lord, pick.row)->dev != MLI_DEV(e->word1))
        return mli_verify_block(v, e, "its stack is unknown");
    v->picked.blocks++;
    v->picked.bytes += mli_pick_weight(&pick, MLI_BYTES(e->word1));
    return 0;
}

static MLI_COLD int mli_verify_entry(const mli_entry *e, void *user) {
    mli_verify *v = (mli_verify *)user;
    const uint32_t dev = MLI_DEV(e->word1);
    if (!dev || dev >= v->rows[MLI_BOOK_DEVICE])
        return mli_verify_fail(v, "%jx: its device is unknown", e->key);
    return mli_verify_place(v, e) || mli_verify_side(v, e) || mli_verify_rows(v, e) ||
           mli_verify_pick(v, e);
}

/* -- the map -- */

/* Computes the overflow counts of a bucket: how many keys a look-up finds only in later buckets,
   after it has passed this one. The result has the layout of the bucket's header. */
static MLI_COLD uint64_t mli_verify_passed(const mli_shard *s, uint64_t at) {
    const mli_bucket *table = mli_table_at(s);
    const uint64_t size = s->size;
    uint64_t sum = 0, i;
    unsigned j;
    for (i = at + 1; i < at + MLI_PROBE_MAX && i < at + size; i++) {
        const mli_bucket *b = table + i % size;
        for (j = 0; j < MLI_BUCKET_SLOTS; j++) {
            const uint64_t hash = mli_hash(b->slots[j].key);
            const uint64_t home = (uint64_t)(mli_home_bucket(s, hash) - table);
            if (!(mli_u64_load(&b->header) >> (8 * j) & 255)) continue;
            if ((at + size - home) % size < (i + size - home) % size)
                sum += (uint64_t)1 << MLI_HASH_OVERFLOW(hash);
        }
    }
    return sum;
}

static MLI_COLD int mli_verify_shard(mli_verify *v, uint32_t number) {
    mli_shard *s = mli_shard_at(v->lord, number);
    uint32_t i;
    v->shard = s;
    v->displaced = 0;
    if (mli_shard_each(s, mli_verify_entry, v)) return 1;
    if (v->displaced != mli_u32_load(&s->displaced))
        return mli_verify_fail(v, "shard %ju of the map: %ju entries are displaced; it counts %ju",
                               (uint64_t)number, (uint64_t)v->displaced,
                               (uint64_t)mli_u32_load(&s->displaced));
    for (i = 0; i < s->size; i++) {
        const mli_bucket *b = mli_table_at(s) + i;
        if ((mli_u64_load(&b->header) & (uint64_t)0xffff << 40) != mli_verify_passed(s, i))
            return mli_verify_fail(v, "shard %ju of the map: the overflow counts of bucket %ju are "
                                      "wrong", (uint64_t)number, (uint64_t)i);
    }
    return 0;
}
static MLI_COLD int mli_verify_map(mli_verify *v) {
    uint32_t i;
    uint64_t buckets = 0, counted;
    for (i = 0; i < MLI_SHARDS; i++) {
        if (mli_verify_shard(v, i)) return 1;
        buckets += mli_shard_at(v->lord, i)->size;
    }
    counted = mli_u32_load(&v->lord->map.buckets);
    if (buckets == counted) return 0;
    return mli_verify_fail(v, "the map has %ju buckets; it counts %ju", buckets, counted);
}

/* Checks the table of blocks with a sampled stack, and the totals of stacks, against the map. The
   totals may have more blocks than the map, namely those that are detached. */
static MLI_COLD int mli_verify_stacks(mli_verify *v) {
    uint64_t bytes = 0, blocks = 0, picks;
    uint32_t i;
    for (i = 1; i < mli_stack_rows(v->lord); i++) {
        bytes += mli_stack_totals_of(v->lord, i).live;
        blocks += mli_u64_load(&mli_stack_row_at(v->lord, i)->blocks);
    }
    picks = mli_picks_count(v->lord);
    if (picks != v->picked.blocks)
        return mli_verify_fail(v, "blocks with a stack: %ju; the table of stacks has %ju",
                               v->picked.blocks, picks);
    if (blocks - v->picked.blocks <= v->detached.blocks &&
        (bytes == v->picked.bytes || v->detached.blocks))
        return 0;
    return mli_verify_fail(v, "blocks with a stack weigh %ju B; the stacks say %ju B",
                           v->picked.bytes, bytes);
}

/* -- rows -- */

/* Sums what the threads count on a row. *base gets what they have published. */
static MLI_COLD mli_verify_sum mli_verify_counted(memlord *lord, int book, uint32_t number,
                                                  uint64_t *base) {
    mli_verify_sum sum = {0, 0, 0};
    const mli_thread *t = mli_thread_first(lord);
    for (*base = 0; t; t = mli_thread_next(t)) {
        const mli_cell *cell = mli_cell_at(t, book, number);
        if (!cell) continue;
        sum.bytes += mli_u64_load(&cell->level);
        sum.blocks += mli_u64_load(&cell->allocs) - mli_u64_load(&cell->frees);
        *base += mli_u64_load(&cell->base);
    }
    return sum;
}

/* Writes "the map holds 3 blocks, 96 B; its counters say 2, 64 B". A site counts no live blocks. */
static MLI_COLD int mli_verify_row_fail(mli_verify *v, int book, uint32_t number, uint64_t arena,
                                        const mli_verify_sum *counted) {
    const mli_verify_sum *map = &v->sums[book][number];
    const int blocks = book != MLI_BOOK_SITE;
    mli_verify_row_line(v, book, number);
    mli_put_str(&v->text, "the map holds ");
    if (blocks) mli_putf(&v->text, map->blocks == 1 ? "%ju block, " : "%ju blocks, ", map->blocks);
    mli_putf(&v->text, "%ju B", map->bytes);
    if (arena) mli_putf(&v->text, ", its arena %ju B", arena);
    mli_put_str(&v->text, "; its counters say ");
    if (blocks) mli_putf(&v->text, "%ju, ", counted->blocks);
    mli_putf(&v->text, "%ju B", counted->bytes);
    return 1;
}

/* Checks the arena bytes of a device against those of its tags. */
static MLI_COLD int mli_verify_arenas(mli_verify *v, uint32_t dev) {
    mli_device_record *device = mli_device_record_at(v->lord, dev);
    const uint64_t arena = mli_u64_load(&device->arena);
    const uint64_t tagged = mli_u64_load(&device->arena_tagged);
    uint64_t sum = 0;
    uint32_t i;
    for (i = 1; i < v->rows[MLI_BOOK_TAG]; i++) {
        mli_row *row = mli_row_at(v->lord, MLI_BOOK_TAG, i);
        if (row->dev == dev) sum += mli_u64_load(&row->arena);
    }
    if (sum == tagged && sum <= arena) return 0;
    return mli_verify_fail(v, "%i: its tags have %ju B of arenas; it says %ju B of its %ju B",
                           mli_device_code(device->device), sum, tagged, arena);
}

/* Checks the counts of a row against the map. Detached blocks count, but it is not known on which
   rows, so only their sum over all devices is exact. */
static MLI_COLD int mli_verify_row(mli_verify *v, int book, uint32_t number) {
    const mli_verify_sum *map = &v->sums[book][number];
    const mli_row *row = mli_row_at(v->lord, book, number);
    mli_device_record *device = mli_device_record_at(v->lord, row->dev);
    const int whole = book == MLI_BOOK_DEVICE;
    const uint64_t arena = mli_u64_load(whole ? &device->arena : &row->arena);
    uint64_t base, bytes, blocks;
    const mli_verify_sum counted = mli_verify_counted(v->lord, book, number, &base);
    bytes = counted.bytes - map->bytes - arena;
    blocks = book == MLI_BOOK_SITE ? 0 : counted.blocks - map->blocks;
    if (bytes > v->detached.bytes || blocks > v->detached.blocks)
        return mli_verify_row_fail(v, book, number, arena, &counted);
    if (base != mli_u64_load(&row->published)) {
        mli_verify_row_line(v, book, number);
        mli_put_str(&v->text, "its threads have published other bytes than it shows");
        return 1;
    }
    if (!whole) return 0;
    v->missing.bytes += bytes;
    v->missing.blocks += blocks;
    if (mli_verify_arenas(v, number)) return 1;
    if (map->pending == mli_u64_load(&device->count[MLI_STAT_pending])) return 0;
    return mli_verify_fail(v, "%i: the map has %ju B pending; its counter says %ju B",
                           mli_device_code(device->device), map->pending,
                           mli_u64_load(&device->count[MLI_STAT_pending]));
}
static MLI_COLD int mli_verify_books(mli_verify *v) {
    const mli_thread *t = mli_thread_first(v->lord);
    uint64_t slots = 0;
    uint32_t i;
    int book;
    for (; t; t = mli_thread_next(t)) {
        v->detached.blocks += mli_u64_load(&t->detached);
        v->detached.bytes += mli_u64_load(&t->detached_bytes);
        for (i = 0; i < MLI_SLOTS; i++) slots += mli_u64_load(&t->slots[i].key) != 0;
    }
    /* the sums are modulo 2^64, and below 0 each row would agree with them */
    if ((int64_t)v->detached.blocks < 0 || (int64_t)v->detached.bytes < 0)
        return mli_verify_fail(v, "reallocs have ended %ju blocks, %ju B more than they began",
                               0 - v->detached.blocks, 0 - v->detached.bytes);
    if (slots > v->detached.blocks)
        return mli_verify_fail(v, "%ju slots have blocks; %ju reallocs are open", slots,
                               v->detached.blocks);
    for (book = 0; book < MLI_BOOKS; book++)
        for (i = 1; i < v->rows[book]; i++)
            if (mli_verify_row(v, book, i)) return 1;
    if (v->missing.blocks == v->detached.blocks && v->missing.bytes == v->detached.bytes) return 0;
    return mli_verify_fail(v, "open reallocs have %ju blocks, %ju B; the map lacks %ju, %ju B",
                           v->detached.blocks, v->detached.bytes, v->missing.blocks,
                           v->missing.bytes);
}

/* -- fences, tickets, accounts -- */

/* Checks that a queued fence is in the list of fences of the pending block that waits for it. In a
   forked child the block may have left the map, because at the fork a thread of the parent was
   about to remove the block's fences. */
static MLI_COLD int mli_verify_fence(mli_verify *v, const mli_fence_record *f) {
    const mli_fence_record *of;
    const mli_side_record *side;
    mli_probe probe;
    mli_verify_find(v, mli_shard_of(v->lord, f->key), f->key, f->dev, &probe);
    side = probe.entry ? mli_side_record_of(probe.entry->word2) : NULL;
    if (!side || side->serial != f->serial) return 0;
    for (of = side->fences; of; of = of->sibling)
        if (of == f) return 0;
    return mli_verify_block(v, probe.entry, "it is pending, and lacks a fence that holds it back");
}
static MLI_COLD int mli_verify_fences(mli_verify *v) {
    const mli_fence_record *f = NULL;
    while ((f = mli_fence_next(v->lord, f)) != NULL)
        if (f->serial && f->queue && !f->detached && mli_verify_fence(v, f)) return 1;
    return 0;
}

static MLI_COLD uint64_t mli_verify_list(const mli_handle *h) {
    uint64_t n = 0;
    for (; h; h = h->next) n++;
    return n;
}
static MLI_COLD int mli_verify_handles(mli_verify *v, const char *what, uint64_t records,
                                       uint64_t open, uint64_t closed) {
    if (open + closed == records) return 0;
    return mli_verify_fail(v, "%ju records of %s: %ju are open and %ju are closed", records, what,
                           open, closed);
}

/* Checks the bytes of a physical device's tickets against its `ticket_bytes`. Adds the numbers of
   its open and closed tickets to *open and *closed. */
static MLI_COLD int mli_verify_phys(mli_verify *v, mli_phys *phys, uint64_t *open,
                                    uint64_t *closed) {
    const uint32_t n = mli_ticket_count(v->lord);
    uint32_t i;
    uint64_t sum = 0, bytes;
    mli_lock_take(&phys->lock);
    for (i = 1; i <= n; i++) {
        const mli_reservation *r = mli_ticket_at(v->lord, i);
        if (r->phys != phys || !(mli_u32_load(&r->handle.generation) & 1)) continue;
        sum += r->remaining;
        ++*open;
    }
    *closed += mli_verify_list(phys->closed_tickets);
    bytes = phys->ticket_bytes;
    mli_lock_drop(&phys->lock);
    if (sum == bytes) return 0;
    return mli_verify_fail(v, "%i: its tickets have %ju B left; %ju B are reserved",
                           mli_device_code(phys->device), sum, bytes);
}
static MLI_COLD int mli_verify_tickets(mli_verify *v) {
    uint64_t open = 0, closed = 0;
    uint32_t i;
    for (i = 0; i < v->rows[MLI_BOOK_DEVICE]; i++)
        if (mli_verify_phys(v, mli_phys_storage(v->lord, i), &open, &closed)) return 1;
    return mli_verify_handles(v, "tickets", mli_ticket_count(v->lord), open, closed);
}

/* Returns the bytes that open tickets hold for an account. */
static MLI_COLD uint64_t mli_verify_held(mli_verify *v, uint32_t number, uint32_t generation) {
    const memlord_account account = (uint64_t)number << 32 | generation;
    uint64_t held = 0;
    uint32_t i;
    for (i = 1; i <= mli_ticket_count(v->lord); i++) {
        const mli_reservation *ticket = mli_ticket_at(v->lord, i);
        if (mli_u32_load(&ticket->handle.generation) & 1 && ticket->account == account)
            held += ticket->remaining;
    }
    return held;
}
static MLI_COLD int mli_verify_accounts(mli_verify *v) {
    const uint32_t n = mli_account_count(v->lord);
    uint64_t open = 0;
    uint32_t i;
    for (i = 1; i <= n; i++) {
        mli_account_record *a = mli_account_at(v->lord, i);
        memlord_account_stat stat;
        uint64_t held, tickets;
        if (!mli_account_read_locked(a, &stat, &held)) continue;
        open++;
        if (stat.bytes > stat.peak)
            return mli_verify_fail(v, "account %s: it has %ju B, above its peak of %ju B",
                                   stat.name, stat.bytes, stat.peak);
        tickets = mli_verify_held(v, i, mli_u32_load(&a->handle.generation));
        if (tickets != held)
            return mli_verify_fail(v, "account %s: %ju B are held, and its tickets have %ju B",
                                   stat.name, held, tickets);
    }
    return mli_verify_handles(v, "accounts", n, open,
                              mli_verify_list(mli_accounts_closed(v->lord)));
}

/* Runs the checks until one fails. The names come first, because the other checks use them. The map
   comes before the rows, because the walk of the map sums what the rows are checked against. */
static MLI_COLD int mli_verify_all(mli_verify *v) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_FENCES));
    MLI_REQUIRE(mli_rank_held(MLI_RANK_SHARD));
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    int book;
    for (book = 0; book < MLI_BOOKS; book++)
        if (mli_verify_names(v, book)) return 1;
    return mli_verify_map(v) || mli_verify_books(v) || mli_verify_stacks(v) ||
           mli_verify_fences(v) || mli_verify_tickets(v) || mli_verify_accounts(v);
}

/* -- public -- */

/* Allocates a sum for each row and takes the cold lock, under which rows are made. Returns the
   bytes that it allocated; 0 means that there is no memory, and that the lock is not taken. */
static MLI_COLD size_t mli_verify_begin(mli_verify *v) {
    memlord *lord = v->lord;
    for (;;) {
        size_t bytes = 0;
        int book, grew = 0;
        for (book = 0; book < MLI_BOOKS; book++) {
            v->rows[book] = mli_row_count(lord, book);
            bytes += v->rows[book] * sizeof *v->sums[book];
        }
        v->sums[0] = (mli_verify_sum *)mli_own_alloc(lord, bytes);
        if (!v->sums[0]) return 0;
        for (book = 1; book < MLI_BOOKS; book++)
            v->sums[book] = v->sums[book - 1] + v->rows[book - 1];
        mli_lock_take(&mli_process.cold_lock);
        for (book = 0; book < MLI_BOOKS; book++) grew |= v->rows[book] != mli_row_count(lord, book);
        if (!grew) return bytes;
        mli_lock_drop(&mli_process.cold_lock); /* another thread made a row meanwhile */
        mli_own_free(lord, v->sums[0], bytes);
    }
}

MLI_API memlord_result memlord_verify(memlord *lord) {
    mli_verify v;
    size_t bytes;
    int failed;
    if (!lord) return MEMLORD_OK;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    memset(&v, 0, sizeof v);
    v.lord = lord;
    bytes = mli_verify_begin(&v);
    if (!bytes) return MEMLORD_E_NOMEM;
    mli_map_freeze(lord);
    mli_fences_enter(lord);
    failed = mli_verify_all(&v);
    mli_fences_leave(lord);
    mli_map_thaw(lord);
    mli_lock_drop(&mli_process.cold_lock);
    mli_own_free(lord, v.sums[0], bytes);
    if (failed) mli_log_end(lord, MEMLORD_LOG_ERROR, &v.text);
    return failed ? MEMLORD_E_STATE : MEMLORD_OK;
}

#else

MLI_API memlord_result memlord_verify(memlord *lord) {
    return lord ? MEMLORD_E_UNSUPPORTED : MEMLORD_OK;
}
#endif
