#include "services/call_end.h"
#include "base/atomics.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/watches.h"
#include "books/devices.h"
#include "books/limits.h"
#include "services/bands.h"
#include "services/room.h"
#include "services/snapshots.h"
#include "services/thread_end.h"
#include "calls/deferred.h"
#include "services/neighbours.h"

struct mli_call_end_state {
    struct mli_waiter *waiters; /* list of the waiting threads, under the callbacks lock */
};

MLI_PRIVATE uint64_t mli_phys_freed(memlord *lord, const mli_phys *phys) {
    uint32_t i = 0;
    mli_thread *t;
    uint64_t out = 0;
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0) {
        for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) {
            const mli_cell *cell = mli_cell_at(t, MLI_BOOK_DEVICE, i);
            if (cell) out += mli_u64_load(&cell->out);
        }
    }
    return out;
}

/* -- waiters -- */

MLI_PRIVATE MLI_COLD void mli_waiter_begin(memlord *lord, mli_waiter *w) {
    mli_callbacks_enter(lord);
    w->next = lord->call_end->waiters;
    lord->call_end->waiters = w;
    mli_alert_set(lord, MLI_ALERT_WAITER, 1);
    mli_callbacks_leave(lord);
}
MLI_PRIVATE MLI_COLD void mli_waiter_end(memlord *lord, mli_waiter *w) {
    mli_waiter **at = &lord->call_end->waiters;
    mli_callbacks_enter(lord);
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    if (!lord->call_end->waiters) mli_alert_set(lord, MLI_ALERT_WAITER, 0);
    mli_callbacks_leave(lord);
}
/* Wakes each waiter for which enough bytes have been freed. */
static void mli_waiters_wake(memlord *lord) {
    mli_waiter *w;
    mli_callbacks_enter(lord);
    for (w = lord->call_end->waiters; w; w = w->next)
        if (mli_phys_freed(lord, w->phys) - w->freed_before >= w->needed)
            mli_os_event_set(&w->event);
    mli_callbacks_leave(lord);
}

/* -- the end of a call -- */

/* Does the work that the alert mask asks for at the end of a call on a device. Without
   MEMLORD_FLAG_DEFER host code may run and threads may start. A request for a band check is cleared
   before the check, so that a new one meanwhile stays for a later call. With `asks` 1 also asks
   fences of one queue of the device's type. */
static MLI_COLD void mli_alerts_handle(memlord *lord, mli_thread *t, uint32_t dev, int asks) {
    mli_watch *w = &mli_device_record_at(lord, dev)->watch;
    const uint32_t alert = mli_alert_on(lord, MLI_ALERT_BANDS - 1);
    int safe = !(lord->flags & MEMLORD_FLAG_DEFER), requested;
    if (alert & MLI_ALERT_THREADS) {
        mli_thread_allowance_grow(lord);
        mli_threads_sweep(lord);
    }
    if ((alert & MLI_ALERT_POLLER) && safe) lord->start_pollers(lord, 0);
    if (safe) mli_fences_poll_due(lord, mli_type_of(lord, dev), asks);
    if (alert & MLI_ALERT_WAITER) mli_waiters_wake(lord);
    if ((alert & MLI_ALERT_SAVE) && safe) mli_save_serve(lord);
    requested = mli_u32_load(&w->check_requested) && mli_u32_exchange(&w->check_requested, 0);
    if (requested) {
        mli_alert_bands_add(lord, (uint32_t)-1);
        if (mli_dev_watch(lord, dev) && safe) lord->start_pollers(lord, dev);
        mli_holders_check(lord, dev);
        mli_snapshots_look(lord);
    }
    if (requested || mli_u32_load(&w->near_threshold)) mli_phys_bands_check(lord, dev, t, safe);
}

/* Does the work that the alert mask asks for on the device `other`, or on all devices if `other` is
   MLI_DEV_ALL. Leaves out the device `dev`, which is done already. */
static MLI_COLD void mli_others_handle(memlord *lord, mli_thread *t, uint32_t dev,
                                       uint32_t other) {
    const uint32_t n = mli_row_count(lord, MLI_BOOK_DEVICE);
    uint32_t i;
    t->other_dev = 0;
    for (i = 1; i < n; i++)
        if (i != dev && (i == other || other == MLI_DEV_ALL)) mli_alerts_handle(lord, t, i, 0);
}

/* Ends a call that found a bit in the alert mask. Serves the device of the call and those that
   t->other_dev names. A thread that changes marks or the mask calls mli_barrier_threads. Where the
   system has no barrier for all threads, mli_barrier_threads and mli_alert_barrier each do an
   atomic addition. The thread that adds second then sees what the first thread stored before
   the first addition. So this thread, after its addition, compares its counts with the marks of its
   devices again, and reads the alert mask again. */
static MLI_NOINLINE void mli_call_end_slow(memlord *lord, mli_thread *t, uint32_t dev, int asks) {
    const uint32_t other = mli_is_orphan(lord, t) ? 0 : t->other_dev;
    mli_alert_barrier(lord);
    if (mli_u32_load(&t->special) & MLI_SPECIAL_NO_BARRIER) {
        mli_marks_again(lord, t, dev);
        if (other && other != MLI_DEV_ALL) mli_marks_again(lord, t, other);
    }
    if (!(mli_dev_alerts(lord, mli_alert_on(lord, ~(uint32_t)MLI_ALERT_EVENTS), dev))) return;
    mli_alerts_handle(lord, t, dev, asks);
    if (other) mli_others_handle(lord, t, dev, other);
}

/* -- safe points -- */

MLI_PRIVATE MLI_COLD void mli_serve(memlord *lord, memlord_device sel) {
    const mli_neighbours *neighbours = mli_neighbours_of(lord);
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    lord->start_pollers(lord, 0);
    mli_recorders_poll(lord);
    if (neighbours) neighbours->serve(lord);
    mli_save_serve(lord);
    (void)mli_fences_retire(lord, sel);
    for (i = 1; i < n; i++) {
        if (!mli_selects(sel, mli_device_record_at(lord, i)->device)) continue;
        mli_phys_sample_refresh(lord, mli_phys_at(lord, i));
        if (mli_dev_watch(lord, i)) mli_band_check(lord, i, NULL, 1);
    }
}

/* -- life -- */

static MLI_COLD void mli_call_end_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    lord->end_slow = mli_call_end_slow;
}
/* In a forked child: forgets the threads that waited, because they do not exist there. */
static MLI_COLD void mli_call_end_forked(memlord *lord) {
    lord->call_end->waiters = NULL;
    mli_alert_set(lord, MLI_ALERT_WAITER, 0);
}
MLI_PRIVATE const mli_life mli_call_end_life = {MLI_LIFE_STATE(call_end), mli_call_end_init, NULL,
                                                NULL, NULL, mli_call_end_forked, NULL};

/* -- public -- */

MLI_API memlord_result memlord_gc_poll(memlord *lord, memlord_device sel) {
    if (!lord) return MEMLORD_OK;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    if (!mli_self.in_host_alloc) mli_serve(lord, sel);
    return MEMLORD_OK;
}
