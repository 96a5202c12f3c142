#include "books/events.h"
#include "base/memory.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/sites.h"
#include "books/tags.h"
#include "books/stacks.h"

#define MLI_EVENTS_MAX ((size_t)1 << 26) /* the most events of a ring */

#define MLI_EVENT_STACK ((uint64_t)1 << 61)
MLI_PRIVATE uint32_t mli_event_kind(uint64_t what) { return (uint32_t)(what >> 49) & 15; }
MLI_PRIVATE uint32_t mli_event_dev(uint64_t what) { return (uint32_t)(what >> 53) & 255; }

MLI_PRIVATE MLI_COLD mli_ring *mli_ring_of(const memlord *lord) {
    return (mli_ring *)mli_ptr_load_acquire(&lord->events.ring);
}
MLI_PRIVATE MLI_COLD mli_stamp_scale mli_stamp_scale_now(memlord *lord) {
    mli_stamp_scale scale;
    uint64_t ns, ticks;
    scale.from = lord->started_stamp;
    scale.rate = 1;
    if (!lord->stamps_are_ticks) return scale;
    ns = mli_ledger_now(lord) - lord->started; /* is read first: if the thread has to wait between
                                                  the two readings, the rate is too low, and no
                                                  event seems to come after its report */
    ticks = mli_ticks() - scale.from;
    if (ticks) scale.rate = (double)ns / (double)ticks;
    return scale;
}
MLI_PRIVATE MLI_COLD uint64_t mli_stamps_ns(const mli_stamp_scale *scale, uint64_t stamps) {
    return (uint64_t)((double)stamps * scale->rate + 0.5);
}
MLI_PRIVATE uint64_t mli_since_ns(const mli_stamp_scale *scale, uint64_t stamp) {
    return stamp > scale->from ? mli_stamps_ns(scale, stamp - scale->from) : 0;
}

/* -- writing -- */

/* Returns sub-buffer `i` modulo the number of sub-buffers. */
static mli_subbuf *mli_subbuf_at(const mli_ring *ring, uint64_t i) {
    return (mli_subbuf *)(void *)((char *)(uintptr_t)(ring + 1) +
                                  (i % ring->subbufs) * ring->stride);
}

/* Counts as lost the events in a sub-buffer, by one addition for those of one device. */
static void mli_subbuf_count_lost(memlord *lord, const mli_subbuf *b) {
    uint32_t i, run = 0, last = 0, n = mli_u32_load(&b->count);
    for (i = 0; i < n; i++, run++) {
        uint32_t dev = mli_event_dev(mli_u64_load(&b->at[i].what));
        if (run && dev != last) {
            mli_stat_add(lord, last, MLI_STAT_dropped_events, run);
            run = 0;
        }
        last = dev;
    }
    if (run) mli_stat_add(lord, last, MLI_STAT_dropped_events, run);
}

MLI_PRIVATE void mli_subbuf_leave(mli_thread *t) {
    mli_subbuf *b = t->subbuf;
    t->subbuf = NULL;
    if (b) mli_u32_store_release(&b->has_writer, 0);
}

/* Gives a thread the next sub-buffer without a writer. If every sub-buffer has a writer, returns
   NULL, and adds 1 to the lost events of `dev`, because the thread cannot write its event. */
static MLI_NOINLINE mli_subbuf *mli_subbuf_next(memlord *lord, mli_thread *t, uint32_t dev) {
    mli_ring *ring = mli_ring_of(lord);
    uint64_t tries;
    mli_subbuf_leave(t);
    for (tries = 0; tries < ring->subbufs; tries++) {
        uint64_t number = mli_u64_add(&ring->next_subbuf, 1);
        mli_subbuf *b = mli_subbuf_at(ring, number);
        if (mli_u32_load(&b->has_writer) || mli_u32_exchange(&b->has_writer, 1))
            continue;
        if (mli_u64_load(&b->generation) > number) { /* while this thread waited, a thread with a
                                                        later number wrote newer events there */
            mli_u32_store_release(&b->has_writer, 0);
            continue;
        }
        mli_u64_store(&b->generation, 0); /* must be visible before the new `count` and events,
                                             which are therefore stored by releases */
        mli_subbuf_count_lost(lord, b);
        mli_u32_store_release(&b->count, 0);
        mli_u32_store_release(&b->thread, mli_record_number(t->id));
        mli_u64_store_release(&b->generation, number + 1); /* pairs with mli_subbuf_reader_begin */
        return t->subbuf = b;
    }
    mli_stat_add(lord, dev, MLI_STAT_dropped_events, 1);
    return NULL;
}

static void mli_ring_write(memlord *lord, mli_thread *t, int kind, uint32_t dev, uint64_t storage,
                           uint64_t bytes, uint64_t rows) {
    const mli_ring *ring = mli_ring_of(lord);
    mli_subbuf *b = t->subbuf;
    mli_ring_event *note;
    uint32_t n;
    if (MLI_UNLIKELY(!b || mli_u32_load(&b->count) >= ring->subbuf_events)) {
        b = mli_subbuf_next(lord, t, dev);
        if (!b) return;
    }
    n = mli_u32_load(&b->count);
    note = &b->at[n];
    mli_u64_store_release(&note->stamp, mli_stamp_now(lord));
    mli_u64_store_release(&note->storage, storage);
    mli_u64_store_release(&note->what, bytes | (uint64_t)(unsigned)kind << 49 |
                                                 (uint64_t)dev << 53);
    mli_u64_store_release(&note->where,
                          (rows & MLI_ROWS_MASK) >> 1 | (uint64_t)mli_scope_id(t) << 36);
    mli_u64_store_release(&note->stream, mli_stream_of(lord, rows));
    mli_u32_store_release(&b->count, n + 1); /* pairs with the load in mli_subbuf_reader_begin */
}
MLI_PRIVATE MLI_NOINLINE void mli_event_write(memlord *lord, mli_thread *t, int kind, uint32_t dev,
                                              uint64_t storage, uint64_t bytes, uint64_t rows) {
    const mli_ring *ring = mli_ring_of(lord);
    if (ring) /* a thread may see MLI_ALERT_EVENTS before it sees the ring */
        ring->write(lord, t, kind, dev, storage, bytes, rows);
    else
        mli_stat_add(lord, dev, MLI_STAT_dropped_events, 1);
}
MLI_PRIVATE void mli_event_record_begin(memlord *lord, mli_thread *t, int kind, uint32_t dev,
                                        uint64_t storage, uint64_t bytes, uint64_t rows,
                                        uint32_t stack) {
    if (stack && stack <= MLI_SITE_ROWS_MAX &&
        mli_stack_row_at(lord, stack)->site == MLI_SITE_ROW(rows)) {
        rows = (rows & ~MLI_SITE_BITS) | mli_word2_of(stack, 0, 0);
        bytes |= MLI_EVENT_STACK;
    }
    mli_event_record(lord, t, kind, dev, storage, bytes, rows);
}
MLI_PRIVATE MLI_NOINLINE void mli_event_record_end(memlord *lord, mli_thread *t, int kind,
                                                   uint64_t storage, uint64_t word1, uint64_t rows,
                                                   const memlord_site *site) {
    uint32_t dev = MLI_DEV(word1);
    if (!mli_alert_on(lord, MLI_ALERT_EVENTS)) return;
    rows &= MLI_TAG_BITS | ~MLI_ROWS_MASK;
    if (site && mli_hook_on(lord, MLI_HOOK_SITES))
        rows |= mli_cached_row(lord, t, MLI_BOOK_SITE, site, dev);
    mli_event_write(lord, t, kind, dev, storage, MLI_BYTES(word1), rows);
}

MLI_PRIVATE MLI_COLD void mli_event_record_other(memlord *lord, int kind, uint32_t dev,
                                                 uint64_t storage, uint64_t bytes) {
    MLI_REQUIRE(mli_none_held());
    mli_thread *t;
    if (!mli_alert_on(lord, MLI_ALERT_EVENTS)) return;
    t = mli_thread_get(lord);
    if (!t) return;
    if (bytes > MLI_BYTES_MAX) bytes = MLI_BYTES_MAX;
    mli_event_record(lord, t, kind, dev, storage, bytes, 0);
    mli_thread_put(lord, t);
}

/* -- starting and ending -- */
#define MLI_EVENTS_DEFAULT 65536

/* Allocates a ring of `capacity` events in at least 16 sub-buffers of up to 64, or of one event
   each if there are fewer than 16; or returns NULL. */
static mli_ring *mli_ring_new(memlord *lord, size_t capacity) {
    uint32_t most = capacity / 16 < 64 ? (uint32_t)(capacity / 16) : 64;
    size_t stride, size;
    mli_ring *ring;
    if (!most) most = 1;
    stride = sizeof(mli_subbuf) + (most - 1) * sizeof(mli_ring_event);
    size = sizeof *ring + capacity / most * stride;
    ring = (mli_ring *)mli_own_alloc(lord, size);
    if (!ring) return NULL;
    ring->write = mli_ring_write;
    ring->size = size;
    ring->capacity = capacity;
    ring->subbufs = capacity / most;
    ring->subbuf_events = most;
    ring->stride = stride;
    return ring;
}


/* -- reading: merges the sub-buffers by time, with a heap of readers -- */

/* Returns 1 if the next event of reader a comes before that of b. If the stamps are equal, the
   reader whose sub-buffer was given to its writer earlier comes first. */
static int mli_subbuf_reader_before(const mli_subbuf_reader *a, const mli_subbuf_reader *b) {
    return a->stamp != b->stamp ? a->stamp < b->stamp : a->generation < b->generation;
}

/* Moves the reader at index i down the heap, until it comes before its children. */
static void mli_ring_reader_sift(mli_ring_reader *r, size_t i) {
    for (;;) {
        size_t child = 2 * i + 1;
        mli_subbuf_reader swap = r->heap[i];
        if (child + 1 < r->n && mli_subbuf_reader_before(&r->heap[child + 1], &r->heap[child]))
            child++;
        if (child >= r->n || !mli_subbuf_reader_before(&r->heap[child], &swap)) return;
        r->heap[i] = r->heap[child];
        r->heap[child] = swap;
        i = child;
    }
}

/* Begins to read a sub-buffer. Returns 1 if it has events. The acquire loads pair with the release
   stores of mli_subbuf_next and mli_ring_write. The generation is loaded again at the end. If it
   has changed, a later writer may have stored the count or the stamp, so the result is 0. */
static int mli_subbuf_reader_begin(mli_subbuf_reader *s, mli_subbuf *b) {
    s->subbuf = b;
    s->at = 0;
    s->generation = mli_u64_load_acquire(&b->generation);
    s->count = mli_u32_load_acquire(&b->count);
    s->stamp = mli_u64_load_acquire(&b->at[0].stamp);
    return s->generation && s->count && mli_u64_load(&b->generation) == s->generation;
}

MLI_PRIVATE MLI_COLD int mli_ring_reader_begin(memlord *lord, mli_ring_reader *r) {
    const mli_ring *ring = mli_ring_of(lord);
    uint64_t i;
    memset(r, 0, sizeof *r);
    r->lord = lord;
    r->scale = mli_stamp_scale_now(lord);
    if (!ring) return 1;
    r->size = (size_t)ring->subbufs * sizeof *r->heap;
    r->heap = (mli_subbuf_reader *)mli_own_alloc(lord, r->size);
    if (!r->heap) return 0;
    for (i = 0; i < ring->subbufs; i++)
        r->n += (size_t)mli_subbuf_reader_begin(&r->heap[r->n], mli_subbuf_at(ring, i));
    for (i = r->n / 2; i-- > 0;) mli_ring_reader_sift(r, (size_t)i);
    return 1;
}
MLI_PRIVATE void mli_ring_reader_end(mli_ring_reader *r) {
    mli_own_free(r->lord, r->heap, r->size);
}

/* If an event has the row of a stack in e->where, moves this row to e->stack, and stores the row of
   the stack's site in e->where instead. */
static MLI_COLD void mli_event_stack_split(const memlord *lord, mli_event_copy *e) {
    e->stack = e->what & MLI_EVENT_STACK ? (uint32_t)e->where & MLI_SITE_ROWS_MAX : 0;
    if (e->stack)
        e->where = (e->where & ~(uint64_t)MLI_SITE_ROWS_MAX) |
                   mli_stack_row_at(lord, e->stack)->site;
}
MLI_PRIVATE MLI_COLD int mli_ring_reader_next(mli_ring_reader *r, mli_event_copy *out) {
    while (r->n) {
        mli_subbuf_reader *s = &r->heap[0];
        mli_subbuf *b = s->subbuf;
        const mli_ring_event *note = &b->at[s->at];
        int whole;
        out->stamp = mli_u64_load_acquire(&note->stamp);
        out->storage = mli_u64_load_acquire(&note->storage);
        out->what = mli_u64_load_acquire(&note->what);
        out->where = mli_u64_load_acquire(&note->where);
        out->stream = mli_u64_load_acquire(&note->stream);
        out->thread = mli_u32_load_acquire(&b->thread);
        if (++s->at < s->count) s->stamp = mli_u64_load_acquire(&b->at[s->at].stamp);
        whole = mli_u64_load(&b->generation) == s->generation;
        if (!whole || s->at == s->count) *s = r->heap[--r->n];
        mli_ring_reader_sift(r, 0);
        if (!whole) continue;
        mli_event_stack_split(r->lord, out);
        return 1;
    }
    return 0;
}

/* Converts an event for the host. Looks up the symbol of its site, if that was not done before. */
static MLI_COLD void mli_event_to_public(mli_ring_reader *r, const mli_event_copy *in,
                                         memlord_event *out) {
    MLI_REQUIRE(mli_none_held());
    uint32_t dev = mli_event_dev(in->what);
    uint32_t site = (uint32_t)in->where & MLI_SITE_ROWS_MAX;
    uint32_t tag = (uint32_t)(in->where >> 20) & MLI_TAG_ROWS_MAX;
    memset(out, 0, sizeof *out);
    out->time_ns = mli_since_ns(&r->scale, in->stamp);
    out->thread = in->thread;
    out->kind = (int)mli_event_kind(in->what);
    out->device = dev ? mli_device_record_at(r->lord, dev)->device : memlord_device_all();
    out->storage = in->storage;
    out->bytes = MLI_BYTES(in->what);
    out->scope = in->where >> 36;
    out->stream = in->stream;
    if (site)
        out->site = mli_site_display(
            r->lord, (mli_site_record *)mli_row_at(r->lord, MLI_BOOK_SITE, site)->subject);
    if (tag) out->tag = (const char *)mli_row_at(r->lord, MLI_BOOK_TAG, tag)->subject;
    if (out->kind == MEMLORD_EVENT_CHECKPOINT) { /* the name of the checkpoint is in `storage` */
        out->tag = (const char *)(uintptr_t)in->storage;
        out->storage = 0;
    }
}

/* -- life -- */

MLI_PRIVATE MLI_COLD const char *mli_events_check(const memlord_desc *desc) {
    return desc->event_capacity > MLI_EVENTS_MAX ? "[create] event_capacity is over 67108864"
                                                 : NULL;
}
/* Mends a forked child, where no sub-buffer but this thread's has a writer. */
static MLI_COLD void mli_events_forked(memlord *lord) {
    const mli_ring *ring = mli_ring_of(lord);
    const mli_thread *t = mli_thread_own(lord);
    uint64_t i;
    for (i = 0; ring && i < ring->subbufs; i++) {
        mli_subbuf *b = mli_subbuf_at(ring, i);
        if (!t || t->subbuf != b) mli_u32_store(&b->has_writer, 0);
    }
}
static MLI_COLD void mli_events_free(memlord *lord) {
    mli_ring *ring = mli_ring_of(lord);
    if (ring) mli_own_free(lord, ring, ring->size);
}
MLI_PRIVATE const mli_life mli_events_life = {0, 0, NULL, NULL, NULL, NULL, mli_events_forked,
                                              mli_events_free};

/* -- public -- */

MLI_API memlord_result memlord_events_start(memlord *lord, size_t capacity) {
    mli_ring *ring, *fresh;
    if (!lord) return MEMLORD_OK;
    if (capacity > MLI_EVENTS_MAX) return MEMLORD_E_INVALID;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    if (!capacity) capacity = MLI_EVENTS_DEFAULT;
    if (!mli_ptr_load(&lord->events.ring)) {
        fresh = mli_ring_new(lord, capacity);
        if (!fresh) return MEMLORD_E_NOMEM;
        mli_lock_take(&mli_process.registry_lock);
        if (!mli_ptr_load(&lord->events.ring)) { /* else another thread has installed one */
            mli_ptr_store_release(&lord->events.ring, fresh);
            fresh = NULL;
        }
        mli_lock_drop(&mli_process.registry_lock);
        if (fresh) mli_own_free(lord, fresh, fresh->size);
    }
    ring = mli_ring_of(lord);
    if (ring->capacity != capacity) return MEMLORD_E_STATE;
    mli_alert_set(lord, MLI_ALERT_EVENTS, 1);
    return MEMLORD_OK;
}
MLI_API memlord_result memlord_events_stop(memlord *lord) {
    if (!lord) return MEMLORD_OK;
    if (mli_self.is_helper) return MEMLORD_E_STATE;
    mli_alert_set(lord, MLI_ALERT_EVENTS, 0);
    return MEMLORD_OK;
}
MLI_API memlord_result memlord_events_each(memlord *lord, memlord_event_fn fn, void *user) {
    mli_ring_reader reading;
    mli_event_copy read;
    memlord_event event;
    int stop = 0;
    if (!lord) return MEMLORD_OK;
    if (!fn) return MEMLORD_E_INVALID;
    if (!mli_ring_reader_begin(lord, &reading)) return MEMLORD_E_NOMEM;
    while (!stop && mli_ring_reader_next(&reading, &read)) {
        mli_event_to_public(&reading, &read, &event);
        stop = fn(user, &event);
    }
    mli_ring_reader_end(&reading);
    return MEMLORD_OK;
}
