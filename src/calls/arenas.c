#include "calls/arenas.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/anomalies.h"
#include "books/tags.h"
#include "books/events.h"
#include "books/blocks.h"
#include "calls/deferred.h"
#include "calls/record.h"

/* A change of arena balances. At first `in` and `out` are what a call asks for. mli_arena_balance
   replaces them with the bytes that it really added and took off. */
typedef struct mli_arena_change {
    uint32_t dev, tag;      /* the number of the device; the row of the tag, or 0 if there is no
                               tag */
    uint64_t in, out;       /* the bytes to add and to take off; after mli_arena_balance those that
                               the device's balance allowed */
    uint64_t tag_out;       /* the bytes of `out` that came off the tag */
    int over;               /* 1: the tags of the device now have more bytes than the device */
} mli_arena_change;

/* Changes the balance of a tag. Returns how many bytes it took off the tag. */
static MLI_COLD uint64_t mli_arena_tag_balance(memlord *lord, const mli_arena_change *c) {
    mli_row *row = mli_row_at(lord, MLI_BOOK_DEVICE, c->dev);
    mli_row *tag = mli_row_at(lord, MLI_BOOK_TAG, c->tag);
    uint64_t had, out;
    mli_lock_take(&row->lock);
    had = mli_u64_load(&tag->arena);
    out = had < c->out ? had : c->out;
    mli_u64_store(&tag->arena, had + c->in - out);
    (void)mli_u64_add(&mli_device_record_at(lord, c->dev)->arena_tagged, c->in - out);
    mli_lock_drop(&row->lock);
    return out;
}
/* Changes the balances of a device and of a tag. If the tag has too few bytes to take off, the rest
   comes off the bytes of the device that have no tag. Two calls may together leave the tags with
   more bytes than the device. Each call changes `arena`, or both `arena` and `arena_tagged`, before
   it compares the two. All these accesses are seq_cst. So at least one of the two calls notices the
   excess. */
static void mli_arena_balance(memlord *lord, mli_arena_change *c) {
    MLI_REQUIRE(mli_is_inside());
    mli_device_record *device = mli_device_record_at(lord, c->dev);
    uint64_t had = mli_u64_load(&device->arena), in, out;
    do {
        in = had + c->in > (uint64_t)1 << 62 ? 0 : c->in;
        out = had < c->out ? had : c->out;
    } while (!mli_u64_cas(&device->arena, &had, had + in - out));
    c->in = in;
    c->out = out;
    if (c->tag) c->tag_out = mli_arena_tag_balance(lord, c);
    c->over = mli_u64_add(&device->arena_tagged, 0) > mli_u64_add(&device->arena, 0);
}

/* Corrects the tags of a device if together they have more bytes than the device. Takes the excess
   off the tag with the largest balance, but no more than that balance. Returns how many bytes it
   took off, or 0 if there is no excess. *number gets the row of the tag. */
static MLI_COLD uint64_t mli_arena_excess(memlord *lord, uint32_t dev, uint32_t *number) {
    MLI_REQUIRE(mli_is_inside());
    mli_row *row = mli_row_at(lord, MLI_BOOK_DEVICE, dev), *largest = NULL;
    mli_device_record *device = mli_device_record_at(lord, dev);
    const uint32_t rows = mli_row_count(lord, MLI_BOOK_TAG);
    uint64_t arena, tagged, most = 0;
    uint32_t i;
    mli_lock_take(&row->lock);
    arena = mli_u64_load(&device->arena);
    tagged = mli_u64_load(&device->arena_tagged);
    for (i = 1; tagged > arena && i < rows; i++) {
        mli_row *tag = mli_row_at(lord, MLI_BOOK_TAG, i);
        if (tag->dev != dev || mli_u64_load(&tag->arena) <= most) continue;
        most = mli_u64_load(&tag->arena);
        largest = tag;
        *number = i;
    }
    if (largest) {
        if (most > tagged - arena) most = tagged - arena;
        mli_u64_store(&largest->arena, mli_u64_load(&largest->arena) - most);
        (void)mli_u64_add(&device->arena_tagged, (uint64_t)0 - most);
    }
    mli_lock_drop(&row->lock);
    return most;
}
/* Takes the excess off the tags of a device, one tag after another. Each tag that loses bytes
   counts as an underflow. */
static MLI_COLD void mli_arena_trim(memlord *lord, mli_thread *t, uint32_t dev) {
    mli_row_delta d;
    uint32_t tag = 0;
    uint64_t bytes;
    memset(&d, 0, sizeof d);
    for (;;) {
        mli_shard_enter_to_count(lord, t);
        bytes = mli_arena_excess(lord, dev, &tag);
        d.word2 = mli_word2_of(0, tag, 0);
        d.out = bytes;
        if (bytes) mli_count(lord, t, &d, 1);
        mli_shard_leave(t);
        if (!bytes) return;
        mli_stat_add(lord, dev, MLI_STAT_underflows, 1);
        (void)mli_anomaly_note(lord, MEMLORD_ANOMALY_UNDERFLOW,
                               mli_device_record_at(lord, dev)->device, 0, bytes, d.word2);
    }
}

/* Changes the balances, and counts the change on the device, on the tag and at the site. Counts no
   alloc and no free. The site counts added bytes as allocated and at once as freed, because no
   later call can know at which site a byte was added. */
static void mli_arena_record(memlord *lord, mli_thread *t, mli_arena_change *c,
                             const memlord_site *site) {
    const int sites = site && mli_hook_on(lord, MLI_HOOK_SITES);
    mli_row_delta d[3];
    unsigned n = 1;
    memset(d, 0, sizeof *d);
    d[0].dev = c->dev;
    if (sites) {
        memset(&d[n], 0, sizeof *d);
        d[n++].word2 = mli_cached_row(lord, t, MLI_BOOK_SITE, site, c->dev);
    }
    if (c->tag) {
        memset(&d[n], 0, sizeof *d);
        d[n++].word2 = mli_word2_of(0, c->tag, 0);
    }
    mli_cells_make(lord, t, d, n);
    mli_shard_enter_to_count(lord, t);
    mli_arena_balance(lord, c);
    if (sites) {
        d[1].in = d[1].out = c->in;
        d[1].freed_here = c->out;
    }
    if (c->tag) {
        d[n - 1].in = c->in;
        d[n - 1].out = c->tag_out;
    }
    d[0].in = c->in;
    d[0].out = c->out;
    mli_count(lord, t, d, n);
    mli_shard_leave(t);
    if (MLI_UNLIKELY(c->over)) mli_arena_trim(lord, t, c->dev);
}

/* Adds arena bytes to a device or, if `adds` is 0, takes them off. Takes off at most the balance of
   the device; if the call asks for more, counts an underflow. Checks the device and the bytes as an
   alloc does. That check also needs a valid storage. An arena has none, so the function passes
   1 as the storage. */
static memlord_result mli_arena_call(memlord *lord, memlord_device device, uint64_t bytes,
                                     int adds, const memlord_site *site) {
    const int refuser = adds ? MLI_REFUSER_arena_add : MLI_REFUSER_arena_sub;
    mli_call call;
    mli_arena_change c = {0, 0, 0, 0, 0, 0};
    memlord_block block = {device, 0, 0};
    uint64_t rows = 0;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = mli_call_begin(lord, device, 1, bytes, site, &call);
    if (!call.t) return mli_refuse(lord, refuser, r, device, mli_block_fault(1, bytes), site);
    if (call.t->now.tag)
        rows = mli_cached_row(lord, call.t, MLI_BOOK_TAG, call.t->now.tag, call.dev);
    c.dev = call.dev;
    c.tag = MLI_TAG_ROW(rows);
    if (!adds) {
        c.out = bytes;
        mli_arena_record(lord, call.t, &c, site);
        if (c.out < bytes) {
            mli_stat_add(lord, call.dev, MLI_STAT_underflows, 1);
            (void)mli_anomaly_note(lord, MEMLORD_ANOMALY_UNDERFLOW, device, 0, bytes - c.out, 0);
        }
    } else if (!mli_would_overflow(lord, call.dev, bytes)) {
        mli_call_draw(lord, &call, bytes);
        c.in = bytes;
        mli_arena_record(lord, call.t, &c, site);
    }
    block.bytes = c.in + c.out;
    if (adds && block.bytes < bytes) r = MEMLORD_E_INVALID;
    if (block.bytes)
        mli_event_record(lord, call.t, adds ? MEMLORD_EVENT_ARENA_ADD : MEMLORD_EVENT_ARENA_SUB,
                         call.dev, 0, block.bytes, rows);
    r = mli_call_finish(lord, &call, r, r == MEMLORD_OK,
                        adds ? "[alloc arena] " : "[free arena] ", &block, site);
    return r ? mli_refuse(lord, refuser, r, device, "a balance that overflows", site) : r;
}

/* -- public -- */

MLI_API memlord_result memlord_arena_add(memlord *lord, memlord_device device, uint64_t bytes,
                                         const memlord_site *site) {
    return mli_arena_call(lord, device, bytes, 1, site);
}
MLI_API memlord_result memlord_arena_sub(memlord *lord, memlord_device device, uint64_t bytes,
                                         const memlord_site *site) {
    return mli_arena_call(lord, device, bytes, 0, site);
}
