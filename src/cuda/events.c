#include "cuda/events.h"

MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_streams_lock = MLI_CUDA_LOCK;

/* -- records -- */

typedef struct mli_cuda_cell {
    struct mli_cuda_cell *next;
} mli_cuda_cell;
static mli_cuda_cell *mli_cuda_cells[MLI_CUDA_CELLS];

/* Takes its memory as pages from the operating system, and so never calls the host's malloc. */
MLI_CUDA_PRIVATE void *mli_cuda_cell_take(int kind, size_t size) {
    enum { PIECE = 16384 };
    mli_cuda_cell *cell = mli_cuda_cells[kind];
    if (!cell) {
        memlord_allocator pages;
        char *made;
        size_t at;
        memlord_os_allocator(&pages);
        made = (char *)pages.alloc(pages.user, PIECE);
        for (at = 0; made && at + size <= PIECE; at += size)
            mli_cuda_cell_give(kind, made + at);
        cell = mli_cuda_cells[kind];
        if (!cell) return NULL;
    }
    mli_cuda_cells[kind] = cell->next;
    return memset((void *)cell, 0, size);
}
MLI_CUDA_PRIVATE void mli_cuda_cell_give(int kind, void *cell) {
    mli_cuda_cell *given = (mli_cuda_cell *)cell;
    given->next = mli_cuda_cells[kind];
    mli_cuda_cells[kind] = given;
}

/* -- contexts -- */

static mli_cuda_context *mli_cuda_contexts;

static mli_cuda_event *mli_cuda_event_pop(mli_cuda_context *context, int timed) {
    mli_cuda_event *event = context->kept[timed];
    if (!event) return NULL;
    context->kept[timed] = event->next;
    context->n[timed]--;
    return event;
}

MLI_CUDA_PRIVATE mli_cuda_context *mli_cuda_context_enter(void *handle, unsigned long long id,
                                                          int *died) {
    mli_cuda_context *c = mli_cuda_contexts;
    mli_cuda_event *event;
    int timed;
    while (c && c->handle != handle) c = c->next;
    if (!c) {
        c = (mli_cuda_context *)mli_cuda_cell_take(MLI_CUDA_CELL_CONTEXT, sizeof *c);
        if (!c) return NULL;
        c->handle = handle;
        c->next = mli_cuda_contexts;
        mli_cuda_contexts = c;
    }
    *died = c->id && id && c->id != id;
    for (timed = 0; timed < 2 && *died; timed++)
        while ((event = mli_cuda_event_pop(c, timed)) != NULL)
            mli_cuda_cell_give(MLI_CUDA_CELL_EVENT, event);
    if (id) c->id = id;
    c->streams++;
    return c;
}

/* -- events -- */

MLI_CUDA_PRIVATE mli_cuda_event *mli_cuda_event_take(mli_cuda_context *context, int timed) {
    mli_cuda_event *event = context ? mli_cuda_event_pop(context, timed) : NULL;
    if (event) return event;
    return (mli_cuda_event *)mli_cuda_cell_take(MLI_CUDA_CELL_EVENT, sizeof *event);
}
MLI_CUDA_PRIVATE void mli_cuda_event_keep(mli_cuda_context *context, int timed,
                                          mli_cuda_event *event) {
    if (!event) return;
    if (!event->handle) {
        mli_cuda_cell_give(MLI_CUDA_CELL_EVENT, event);
        return;
    }
    event->next = context->kept[timed];
    context->kept[timed] = event;
    context->n[timed]++;
}

MLI_CUDA_PRIVATE int mli_cuda_event_make(const mli_cuda_driver *d, void *context, int timed,
                                         mli_cuda_event *event) {
    void *current = NULL;
    int mode, pushed = 0, r = d->context_current(&current);
    if (!r && current != context) {
        r = d->context_push(context);
        pushed = !r;
    }
    if (!r) r = mli_cuda_relax(d, &mode);
    if (!r) {
        r = d->event_create(&event->handle, timed ? 0 : MLI_CUDA_EVENT_PLAIN);
        (void)d->capture_mode(&mode);
    }
    if (r) event->handle = NULL;
    if (pushed) (void)d->context_pop(&current);
    return r;
}

MLI_CUDA_PRIVATE int mli_cuda_event_call(const mli_cuda_driver *d, int (*call)(cudaEvent_t),
                                         void *context, cudaEvent_t event) {
    int r = call(event);
    if (r != MLI_CUDA_NO_CONTEXT || d->context_push(context)) return r;
    r = call(event);
    (void)d->context_pop(&context);
    return r;
}

MLI_CUDA_PRIVATE void mli_cuda_events_trim(mli_cuda_context *context, int most) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_event *event = NULL;
    int mode, timed;
    for (timed = 0; timed < 2; timed += !event) {
        mli_cuda_lock_take(&mli_cuda_streams_lock);
        if (event) mli_cuda_cell_give(MLI_CUDA_CELL_EVENT, event);
        event = context->n[timed] > most ? mli_cuda_event_pop(context, timed) : NULL;
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
        if (!event || !d || mli_cuda_relax(d, &mode)) continue;
        (void)mli_cuda_event_call(d, d->event_destroy, context->handle, event->handle);
        (void)d->capture_mode(&mode);
    }
}

MLI_CUDA_PRIVATE void mli_cuda_events_end(void) {
    mli_cuda_context **at, *c;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    for (c = mli_cuda_contexts; c; c = c->next) {
        c->streams++; /* so that the context stays in the list while the lock is dropped */
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
        mli_cuda_events_trim(c, 0);
        mli_cuda_lock_take(&mli_cuda_streams_lock);
        c->streams--;
    }
    for (at = &mli_cuda_contexts; (c = *at) != NULL;) {
        if (c->streams || c->n[0] || c->n[1]) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        mli_cuda_cell_give(MLI_CUDA_CELL_CONTEXT, c);
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}
