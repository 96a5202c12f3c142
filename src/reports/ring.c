#include "reports/ring.h"
#include "base/memory.h"
#include "books/map.h"
#include "books/stacks.h"
#include "books/events.h"

#if !defined(MEMLORD_NO_REPORTS)

/* The most slots of the table of last events. Events of storages without a slot are left out. */
#define MLI_LAST_EVENTS ((uint64_t)1 << 20)

MLI_PRIVATE mli_live_block *mli_last_event_at(const mli_last_events *last,
                                              const mli_live_block *of) {
    const memlord *lord = last->x->lord;
    const uint32_t type = mli_type_of(lord, of->dev);
    uint64_t at = (of->storage ^ (uint64_t)(type + 1) << 57) * 0x9e3779b97f4a7c15u >> 20;
    for (; last->size; at++) {
        mli_live_block *f = &last->at[at & (last->size - 1)];
        if (!f->dev || (f->storage == of->storage && mli_type_of(lord, f->dev) == type)) return f;
    }
    return NULL;
}
MLI_PRIVATE MLI_COLD void mli_ring_each(mli_export *x, mli_ring_event_fn fn, void *writer) {
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
        if (out.ns <= x->r->uptime && out.of.dev <= x->devices) fn(writer, &out);
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

static MLI_COLD void mli_last_event_update(void *user, const mli_export_event *e) {
    mli_last_events *last = (mli_last_events *)user;
    mli_live_block *f;
    if (e->ns < last->first) last->first = e->ns;
    last->scoped |= e->kind == MEMLORD_EVENT_SCOPE_BEGIN;
    if (!e->of.dev) return;
    last->sum[e->of.dev] += (uint64_t)mli_event_delta(e);
    last->events[e->of.dev]++;
    if (last->tag_sum && e->of.tag) last->tag_sum[e->of.tag] += mli_event_delta(e);
    f = mli_event_is_of_block(e) ? mli_last_event_at(last, &e->of) : NULL;
    if (!f || (!f->dev && last->used >= last->size - last->size / 8)) return;
    last->used += !f->dev;
    *f = e->of;
}
MLI_PRIVATE MLI_COLD void mli_last_events_read(mli_export *x, mli_last_events *last) {
    MLI_REQUIRE(!last->size);
    const mli_ring *ring = mli_ring_of(x->lord);
    uint64_t size = 64;
    last->x = x;
    last->first = x->r->uptime;
    if (!ring) return;
    while (size < ring->capacity + ring->capacity / 4 && size < MLI_LAST_EVENTS) size *= 2;
    last->at = (mli_live_block *)mli_own_alloc(x->lord, (size_t)size * sizeof *last->at);
    if (last->at) {
        last->size = size;
        mli_ring_each(x, mli_last_event_update, last);
    } else {
        x->r->result = MEMLORD_E_NOMEM;
    }
}
MLI_PRIVATE MLI_COLD void mli_last_events_free(mli_last_events *last) {
    mli_own_free(last->x->lord, last->at, (size_t)last->size * sizeof *last->at);
}
#endif
