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
#include "books/limits.h"
#include "calls/deferred.h"
#include "calls/record.h"

/* A change of arena balances. At first `in` and `out` are what a call asks for. mli_arena_balance
   replaces them with the bytes that it really added and took off. */
typedef struct mli_arena_change {
    uint32_t dev, tag;      /* the device; the row of the tag, or 0 */
    uint64_t in, out;       /* the bytes to add and to take off, as the balance allows */
    uint64_t tag_out;       /* the bytes of `out` that came off the tag */
    int over;               /* 1: the tags of the device now have more bytes than the device */
} mli_arena_change;

/* Returns how many bytes the tags of a device have more than the device. Without the lock a call
   that is halfway may show as an excess. */
static uint64_t mli_arena_excess(const mli_device_record *device) {
    const uint64_t arena = mli_u64_load(&device->arena);
    const uint64_t tagged = mli_u64_load(&device->arena_tagged);
    return tagged > arena ? tagged - arena : 0;
}

/* Changes the balances of a device and of a tag. If the tag has too few bytes to take off, the rest
   comes off the bytes of the device that have no tag. A call with a tag changes both balances under
   the lock, so that mli_arena_trim_tag never sees one without the other. Each call compares `arena`
   and `arena_tagged` after its changes. All these accesses are seq_cst. So of the calls that cause
   an excess together at least one notices it. */
static void mli_arena_balance(memlord *lord, mli_arena_change *c) {
    MLI_REQUIRE(mli_is_inside());
    mli_row *row = c->tag ? mli_row_at(lord, MLI_BOOK_DEVICE, c->dev) : NULL;
    mli_device_record *device = mli_device_record_at(lord, c->dev);
    uint64_t had, in, out;
    if (row) mli_lock_take(&row->lock);
    had = mli_u64_load(&device->arena);
    do {
        in = had + c->in > (uint64_t)1 << 62 ? 0 : c->in;
        out = had < c->out ? had : c->out;
    } while (!mli_u64_cas(&device->arena, &had, had + in - out));
    c->in = in;
    c->out = out;
    if (row) {
        mli_row *tag = mli_row_at(lord, MLI_BOOK_TAG, c->tag);
        had = mli_u64_load(&tag->arena);
        c->tag_out = had < out ? had : out;
        mli_u64_store(&tag->arena, had + in - c->tag_out);
        (void)mli_u64_add(&device->arena_tagged, in - c->tag_out);
        mli_lock_drop(&row->lock);
    }
    c->over = mli_u64_add(&device->arena_tagged, 0) > mli_u64_add(&device->arena, 0);
}

/* Returns the least balance with which a tag has to give up bytes, or 0 if the tags of a device
   have no excess. The tags with larger balances have less than the excess, and together with those
   of this balance they have all of it. *largest gets the row of the tag with the largest balance.
   Finds the result bit by bit, in a walk of the tags for each, so that the cost does not grow with
   the square of their number. Other calls may change the balances meanwhile. */
static MLI_COLD uint64_t mli_arena_cut(memlord *lord, uint32_t dev, uint32_t *largest) {
    const mli_device_record *device = mli_device_record_at(lord, dev);
    const uint64_t excess = mli_arena_excess(device), all = mli_u64_load(&device->arena_tagged);
    uint64_t bit = (uint64_t)1 << 62, cut = 0, most = 0;
    if (!excess) return 0;
    for (; bit && most < excess; bit >>= 1) {
        const uint32_t rows = mli_row_count(lord, MLI_BOOK_TAG);
        uint64_t sum = 0;
        uint32_t i;
        for (i = 1; bit <= all && i < rows; i++) {
            const mli_row *tag = mli_row_at(lord, MLI_BOOK_TAG, i);
            const uint64_t bytes = tag->dev == dev ? mli_u64_load(&tag->arena) : 0;
            if (bytes >= (cut | bit)) sum += bytes;
            if (bytes <= most) continue;
            most = bytes;
            *largest = i;
        }
        if (sum >= excess) cut |= bit;
    }
    return most < excess ? cut | !cut : most;
}
/* Takes the excess of a device off a tag, but no more than the balance of the tag, and nothing if
   that balance is below `least`. If the tag loses bytes, counts an underflow. */
static MLI_COLD void mli_arena_trim_tag(memlord *lord, const mli_call *call, uint32_t number,
                                        uint64_t least) {
    mli_thread *t = call->t;
    const uint32_t dev = call->dev;
    mli_row *row = mli_row_at(lord, MLI_BOOK_DEVICE, dev);
    mli_row *tag = mli_row_at(lord, MLI_BOOK_TAG, number);
    mli_device_record *device = mli_device_record_at(lord, dev);
    mli_row_delta d;
    uint64_t had;
    if (tag->dev != dev || mli_u64_load(&tag->arena) < least) return;
    memset(&d, 0, sizeof d);
    d.word2 = mli_word2_of(0, number, 0);
    mli_shard_enter_to_count(lord, t);
    mli_lock_take(&row->lock);
    had = mli_u64_load(&tag->arena);
    d.out = mli_arena_excess(device);
    if (d.out > had) d.out = had;
    mli_u64_store(&tag->arena, had - d.out);
    (void)mli_u64_add(&device->arena_tagged, 0 - d.out);
    mli_lock_drop(&row->lock);
    mli_count(lord, t, &d, 1);
    mli_shard_leave(t);
    if (!d.out) return;
    mli_stat_add(lord, dev, MLI_STAT_underflows, 1);
    (void)mli_anomaly_note(lord, call->site, MEMLORD_ANOMALY_UNDERFLOW, device->device, 0, d.out,
                           d.word2);
}
/* Takes the excess off the tags of a device, the largest balances first. The largest tag comes
   first of all, because the list of mistakes names the first. Other calls may add to the excess. */
static MLI_COLD void mli_arena_trim(memlord *lord, const mli_call *call) {
    const uint32_t dev = call->dev;
    const mli_device_record *device = mli_device_record_at(lord, dev);
    uint32_t rows, i, largest = 1;
    uint64_t cut, least;
    while ((cut = mli_arena_cut(lord, dev, &largest)) != 0) {
        rows = mli_row_count(lord, MLI_BOOK_TAG);
        mli_arena_trim_tag(lord, call, largest, cut);
        for (least = cut + 1; least >= cut; least--)
            for (i = 1; i < rows && mli_arena_excess(device); i++)
                mli_arena_trim_tag(lord, call, i, least);
    }
}

/* Changes the balances, and counts the change on the device, on the tag and at the site. Counts no
   alloc and no free. The site counts added bytes as allocated and at once as freed, because no
   later call can know at which site a byte was added. */
static void mli_arena_record(memlord *lord, const mli_call *call, mli_arena_change *c) {
    mli_thread *t = call->t;
    const int sites = call->site && mli_hook_on(lord, MLI_HOOK_SITES);
    mli_row_delta d[3];
    unsigned n = 1;
    memset(d, 0, sizeof d);
    d[0].dev = c->dev;
    if (sites) d[n++].word2 = mli_cached_row(lord, t, MLI_BOOK_SITE, call->site, c->dev);
    if (c->tag) d[n++].word2 = mli_word2_of(0, c->tag, 0);
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
    if (MLI_UNLIKELY(c->over)) mli_arena_trim(lord, call);
}

/* Adds arena bytes to a device or, if `adds` is 0, takes off at most its balance, and counts an
   underflow if the call asks for more. Checks the device and the bytes as an alloc does, which also
   needs a valid storage: 1. */
static memlord_result mli_arena_call(memlord *lord, memlord_device device, uint64_t bytes,
                                     int adds, const memlord_site *site) {
    const int refuser = adds ? MLI_REFUSER_arena_add : MLI_REFUSER_arena_sub;
    mli_call own, *call = mli_call_get(lord, &own, site, NULL, NULL);
    mli_arena_change c = {0, 0, 0, 0, 0, 0};
    memlord_block block = {device, 0, 0};
    uint64_t rows = 0;
    memlord_result r;
    if (!call) return MEMLORD_OK;
    r = mli_call_begin(lord, call, device, 1, bytes);
    if (r) return mli_refuse(lord, refuser, r, device, mli_block_fault(1, bytes), site);
    if (call->t->now.tag)
        rows = mli_cached_row(lord, call->t, MLI_BOOK_TAG, call->t->now.tag, call->dev);
    c.dev = call->dev;
    c.tag = MLI_TAG_ROW(rows);
    if (!adds) {
        c.out = bytes;
        mli_arena_record(lord, call, &c);
        if (c.out < bytes) {
            mli_stat_add(lord, call->dev, MLI_STAT_underflows, 1);
            (void)mli_anomaly_note(lord, site, MEMLORD_ANOMALY_UNDERFLOW, device, 0,
                                   bytes - c.out, 0);
        }
    } else if (!mli_would_overflow(lord, call->dev, bytes)) {
        mli_ticket_draw_begin(lord, call, bytes);
        c.in = bytes;
        mli_arena_record(lord, call, &c);
    }
    block.bytes = c.in + c.out;
    if (adds && block.bytes < bytes) r = MEMLORD_E_INVALID;
    if (block.bytes)
        mli_event_record(lord, call->t, adds ? MEMLORD_EVENT_ARENA_ADD : MEMLORD_EVENT_ARENA_SUB,
                         call->dev, 0, block.bytes, rows);
    r = mli_call_finish(lord, call, r, r == MEMLORD_OK,
                        adds ? "[alloc arena] " : "[free arena] ", &block);
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
