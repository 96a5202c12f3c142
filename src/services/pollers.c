#include "services/pollers.h"
#include "base/atomics.h"
#include "base/text.h"
#include "base/log.h"
#include "base/memory.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/events.h"
#include "books/limits.h"
#include "services/bands.h"
#include "services/contexts.h"
#include "services/room.h"
#include "services/snapshots.h"
#include "calls/deferred.h"
#include "services/neighbours.h"

struct mli_pollers_state {
    struct mli_waiter *waiters;
    uint32_t poll_ms_by_env; /* 1: the environment has set the interval */
};

/* -- pollers -- */

/* Declared here, as a poller may start other pollers. */
static MLI_COLD void mli_poller_run(void *user);

/* Starts the poller of a physical device, unless it runs or polling is off. */
static MLI_COLD memlord_result mli_phys_poller_start(mli_phys *phys) {
    int bad = mli_helper_start(&phys->poller, &phys->lord->devices.polling, MLI_POLLING_OFF,
                               MLI_HELPER_FAILED, mli_poller_run, phys);
    if (bad > 0)
        mli_logf(phys->lord, MEMLORD_LOG_WARNING,
                 "[poller] no thread for %i: memlord_gc_poll samples instead",
                 mli_device_code(phys->device));
    return bad ? MEMLORD_E_NOMEM : MEMLORD_OK;
}

/* Stops all pollers and joins them. Requires: the caller is no helper. */
static MLI_COLD void mli_pollers_stop(memlord *lord) {
    uint32_t i;
    mli_polling_set(lord, MLI_POLLING_OFF);
    for (i = 0; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++)
        mli_helper_stop(&mli_phys_storage(lord, i)->poller);
}

/* Starts the poller of a device's phys, if it has none yet and has a source to sample. */
static MLI_COLD memlord_result mli_dev_poller_start(memlord *lord, uint32_t dev) {
    mli_phys *phys = mli_phys_at(lord, dev);
    if (mli_u32_load(&phys->poller.state) != MLI_HELPER_NONE || !mli_polling_enabled(lord) ||
        mli_polling_is(lord, MLI_POLLING_OFF) ||
        !mli_capacity_reader_of(lord, phys->device.type).fn)
        return MEMLORD_OK;
    return mli_phys_poller_start(phys);
}

/* Starts the host's poller if a type of the mask has a source. */
static MLI_COLD memlord_result mli_host_poller_start(memlord *lord, uint32_t types) {
    int type;
    for (type = 0; type < MLI_TYPE_COUNT; type++)
        if ((types >> type & 1) && mli_capacity_reader_of(lord, type).fn)
            return mli_phys_poller_start(mli_phys_storage(lord, 0));
    return MEMLORD_OK;
}

/* Starts the pollers of all known devices that want one: those with a strategy in force or, after
   memlord_poller_start, all of them. If the alert requests it, the recorders go on and neighbours
   listen, too. A new thread may get its stack from the very allocator that calls come from: under
   MEMLORD_FLAG_DEFER, while no device that wants a poller is known, the host's poller starts, and
   starts the others once they are known. */
static MLI_COLD memlord_result mli_pollers_start(memlord *lord) {
    uint32_t i = 0, known = 0, wanted = mli_types_watched(lord, UINT32_MAX);
    memlord_result r = MEMLORD_OK;
    const int all = mli_polling_is(lord, MLI_POLLING_ALL);
    const mli_neighbours *neighbours = mli_neighbours_of(lord);
    if (all) wanted = UINT32_MAX;
    if (mli_alert_on(lord, MLI_ALERT_POLLER)) {
        mli_alert_set(lord, MLI_ALERT_POLLER, 0);
        mli_snapshots_go_on(lord);
        if (neighbours) (void)neighbours->listen(lord);
    }
    while ((i = mli_phys_next_dev(lord, NULL, i)) != 0) {
        if (!all && !mli_dev_watch(lord, i)) continue;
        known = 1;
        if (mli_dev_poller_start(lord, i)) r = MEMLORD_E_NOMEM;
    }
    if (known || !(lord->flags & MEMLORD_FLAG_DEFER) || !mli_polling_enabled(lord))
        return r;
    return mli_host_poller_start(lord, wanted);
}
/* Starts at a safe point the pollers that calls have requested or could not start. */
static MLI_COLD void mli_pollers_start_missing(memlord *lord) {
    if ((lord->flags & MEMLORD_FLAG_DEFER) ||
        mli_alert_on(lord, MLI_ALERT_POLLER))
        (void)mli_pollers_start(lord);
}

/* Brings strategies in force, thresholds, alerts and pollers up to date after a change of the
   strategies or callbacks. After it no device uses a strategy that is no longer in the list. */
static void mli_bands_changed(memlord *lord) {
    uint32_t i = 0;
    mli_watched_types_set(lord);
    mli_phys_recheck(lord, NULL);
    while ((i = mli_phys_next_dev(lord, NULL, i)) != 0)
        if (mli_dev_is_watched(lord, i)) mli_check_request(lord, i); /* it starts the poller, too */
    mli_pollers_start_missing(lord);
}

MLI_PRIVATE MLI_COLD void mli_phys_sample_refresh(memlord *lord, mli_phys *phys) {
    MLI_REQUIRE(mli_none_held());
    uint64_t now, at;
    uint32_t state = mli_u32_load_acquire(&phys->poller.state);
    if (state == MLI_HELPER_RUNS || state == MLI_HELPER_BUSY) return;
    if (!mli_capacity_reader_of(lord, phys->device.type).fn) return;
    now = mli_ledger_now(lord);
    mli_lock_take(&phys->lock);
    at = phys->sampled;
    mli_lock_drop(&phys->lock);
    if (!at || now - at >= mli_poll_ns(lord))
        (void)mli_phys_sample(lord, phys);
}

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

/* -- the work at the end of a call -- */

MLI_PRIVATE MLI_COLD void mli_waiter_begin(memlord *lord, mli_waiter *w) {
    mli_callbacks_enter(lord);
    w->next = lord->pollers->waiters;
    lord->pollers->waiters = w;
    mli_alert_set(lord, MLI_ALERT_WAITER, 1);
    mli_callbacks_leave(lord);
}
MLI_PRIVATE MLI_COLD void mli_waiter_end(memlord *lord, mli_waiter *w) {
    mli_waiter **at = &lord->pollers->waiters;
    mli_callbacks_enter(lord);
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    if (!lord->pollers->waiters) mli_alert_set(lord, MLI_ALERT_WAITER, 0);
    mli_callbacks_leave(lord);
}
/* Wakes each waiter for which enough bytes have been freed. */
static void mli_waiters_wake(memlord *lord) {
    mli_waiter *w;
    mli_callbacks_enter(lord);
    for (w = lord->pollers->waiters; w; w = w->next)
        if (mli_phys_freed(lord, w->phys) - w->freed_before >= w->needed)
            mli_os_event_set(&w->event);
    mli_callbacks_leave(lord);
}

/* Frees the records of threads that ended without the exit hook: their first call came in the last
   round of destructors, or after it. Runs at the end of a call that took the last free record
   while there are at least twice as many records as living owners at the last sweep. That bounds
   the records by twice the living threads (or 16). It also bounds the cost: a sweep checks each
   record once, and at least half of them were made or claimed since the last sweep. */
static MLI_COLD void mli_threads_sweep(memlord *lord) {
    mli_thread *t = mli_thread_first(lord);
    uint32_t living = 0;
    int due;
    mli_lock_take(&mli_process.registry_lock);
    due = mli_threads_sweep_due(lord);
    for (; due && t; t = mli_thread_next(t)) {
        uint64_t owner = mli_u64_load(&t->owner);
        if (owner == MLI_NOBODY || (owner && mli_thread_has_ended(owner)))
            mli_thread_release(t);
        else
            living += owner != 0;
    }
    if (due) mli_threads_swept(lord, living);
    mli_lock_drop(&mli_process.registry_lock);
}

/* Does what `alert` asks for on a device. Unless the ledger has MEMLORD_FLAG_DEFER, host code may
   run and threads may start. Takes back a requested check before it checks, so that a request that
   comes meanwhile is served by a later call. */
static MLI_COLD void mli_alerts_handle(memlord *lord, mli_thread *t, uint32_t dev, int asks) {
    mli_watch *w = &mli_device_record_at(lord, dev)->watch;
    const uint32_t alert = mli_alert_on(lord, MLI_ALERT_BANDS - 1);
    int safe = !(lord->flags & MEMLORD_FLAG_DEFER), requested;
    if (mli_self.in_host_alloc) return;
    if (alert & MLI_ALERT_THREADS) {
        mli_thread_allowance_grow(lord);
        mli_threads_sweep(lord);
    }
    if ((alert & MLI_ALERT_POLLER) && safe) (void)mli_pollers_start(lord);
    if (safe) mli_fences_poll_due(lord, mli_type_of(lord, dev), asks);
    if (alert & MLI_ALERT_WAITER) mli_waiters_wake(lord);
    if ((alert & MLI_ALERT_SAVE) && safe) mli_save_serve(lord);
    requested = mli_u32_load(&w->check_requested) && mli_u32_exchange(&w->check_requested, 0);
    if (requested) {
        mli_alert_bands_add(lord, (uint32_t)-1);
        if (mli_dev_watch(lord, dev) && safe) (void)mli_dev_poller_start(lord, dev);
        mli_holders_check(lord, dev);
    }
    if (requested || mli_u32_load(&w->near_threshold)) mli_band_check(lord, dev, t, safe);
}

MLI_PRIVATE MLI_NOINLINE void mli_call_end_slow(memlord *lord, mli_thread *t, uint32_t dev,
                                                int asks) {
    uint32_t other = mli_is_orphan(lord, t) ? 0 : t->other_dev;
    mli_alert_barrier(lord);
    if (mli_u32_load(&t->special) & MLI_SPECIAL_NO_BARRIER) {
        mli_marks_again(lord, t, dev);
        if (other) mli_marks_again(lord, t, other);
    }
    if (!(mli_dev_alerts(lord, mli_alert_on(lord, ~(uint32_t)MLI_ALERT_EVENTS), dev))) return;
    mli_alerts_handle(lord, t, dev, asks);
    if (!other) return;
    t->other_dev = 0;
    if (other != dev) mli_alerts_handle(lord, t, other, 0);
}

/* -- safe points -- */

/* Retires and collects what is due on the devices of a selector. Samples physical devices that have
   no poller, saves a due snapshot and export, and writes a requested report. Host code runs. */
static MLI_COLD void mli_serve(memlord *lord, memlord_device sel) {
    const mli_neighbours *neighbours = mli_neighbours_of(lord);
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    mli_pollers_start_missing(lord);
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

/* Runs a poller. Under MEMLORD_FLAG_DEFER it does the work of a safe point, as calls do not; else
   calls check the bands, and the poller only samples and retires. */
static MLI_COLD void mli_poller_run(void *user) {
    mli_phys *phys = (mli_phys *)user;
    memlord *lord = phys->lord;
    uint32_t i = 0;
    mli_self.is_helper = 1;
    do {
        (void)mli_phys_sample(lord, phys);
        mli_pollers_start_missing(lord);
        while ((i = mli_phys_next_dev(lord, phys, i)) != 0) {
            memlord_device device = mli_device_record_at(lord, i)->device;
            if (lord->flags & MEMLORD_FLAG_DEFER)
                mli_serve(lord, device);
            else
                (void)mli_fences_retire(lord, device);
        }
        mli_save_serve(lord);
    } while (mli_helper_wait(&phys->poller, mli_poll_ms(lord)));
}

/* -- life -- */

static MLI_COLD void mli_pollers_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    lord->end_slow = mli_call_end_slow;
}
/* Applies MEMLORD_POLL_INTERVAL_MS, which overrides the description and memlord_poller_start. Logs
   and ignores a value that is too long, malformed or out of range. */
static MLI_COLD memlord_result mli_pollers_open(memlord *lord, const memlord_desc *desc) {
    char value[128];
    double ms;
    int set = desc->flags & MEMLORD_FLAG_NO_ENV
                  ? 0
                  : mli_env_read("MEMLORD_POLL_INTERVAL_MS", value, sizeof value);
    if (set > 0 && mli_read_number(value, 0, &ms) && !strchr(value, ',') && ms >= MLI_POLL_MS_MIN) {
        mli_poll_ms_set(lord, (uint32_t)ms);
        lord->pollers->poll_ms_by_env = 1;
    } else if (set) {
        mli_log(lord, MEMLORD_LOG_WARNING,
                "[poller] MEMLORD_POLL_INTERVAL_MS is not a number of at least 10: ignored");
    }
    return MEMLORD_OK;
}
/* Clears the marks of threads that polled or waited: they are gone. */
static MLI_COLD void mli_pollers_forked(memlord *lord) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 0; i < n; i++)
        mli_u32_store(&mli_phys_storage(lord, i)->poller.state, MLI_HELPER_NONE);
    lord->pollers->waiters = NULL;
    if (mli_polling_is(lord, MLI_POLLING_ALL)) mli_alert_set(lord, MLI_ALERT_POLLER, 1);
}
MLI_PRIVATE MLI_COLD void mli_pollers_life(mli_life *life) {
    MLI_LIFE_STATE(life, pollers);
    life->init = mli_pollers_init;
    life->open = mli_pollers_open;
    life->stop = mli_pollers_stop;
    life->forked = mli_pollers_forked;
}

/* -- public -- */

MLI_API memlord_result memlord_capacity_source_set(memlord *lord, int type,
                                                   memlord_capacity_fn fn, void *user) {
    mli_capacity_reader source = {fn, user};
    if (!lord) return MEMLORD_OK;
    if ((unsigned)type >= (unsigned)MLI_TYPE_COUNT) return MEMLORD_E_DEVICE;
    if (!fn && type == MEMLORD_DEVICE_CPU) {
        source.fn = mli_cpu_capacity;
        source.user = lord;
    }
    mli_capacity_reader_set(lord, type, source);
    mli_pollers_start_missing(lord);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_poller_start(memlord *lord, uint32_t interval_ms) {
    uint32_t i;
    if (!lord) return MEMLORD_OK;
    if (interval_ms && interval_ms < MLI_POLL_MS_MIN) return MEMLORD_E_INVALID;
    if (!lord->pollers->poll_ms_by_env)
        mli_poll_ms_set(lord, interval_ms ? interval_ms : 200);
    if (!mli_polling_enabled(lord)) return MEMLORD_E_UNSUPPORTED;
    mli_polling_set(lord, MLI_POLLING_ALL);
    for (i = 0; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++) { /* tries failed ones again */
        uint32_t failed = MLI_HELPER_FAILED;
        (void)mli_u32_cas(&mli_phys_storage(lord, i)->poller.state, &failed, MLI_HELPER_NONE);
    }
    return mli_pollers_start(lord);
}
MLI_API memlord_result memlord_poller_stop(memlord *lord) {
    if (!lord) return MEMLORD_OK;
    if (mli_self.is_helper) return MEMLORD_E_STATE;
    mli_pollers_stop(lord);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_strategy_set(memlord *lord, memlord_device sel,
                                            const memlord_band *bands, size_t n) {
    mli_strategy *fresh = NULL, *old;
    size_t bad = 0;
    if (!lord) return MEMLORD_OK;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    if (memlord_strategy_check(bands, n, &bad)) {
        if (bands)
            mli_logf(lord, MEMLORD_LOG_ERROR, "[strategy] refused, band %ju%s",
                     (uint64_t)bad, mli_band_error(&bands[bad]));
        return MEMLORD_E_INVALID;
    }
    if (n < SIZE_MAX / 2 / sizeof *bands)
        fresh = (mli_strategy *)mli_own_alloc(lord, sizeof *fresh + n * sizeof *bands);
    if (!fresh) return MEMLORD_E_NOMEM;
    fresh->sel = sel;
    fresh->n = n;
    fresh->bands = (const memlord_band *)(void *)(fresh + 1);
    if (n) memcpy(fresh + 1, bands, n * sizeof *bands);
    if (n) mli_bands_warn(lord, bands, n);
    old = mli_strategy_swap(lord, sel, fresh);
    mli_bands_changed(lord);
    mli_strategy_free(lord, old);
    return MEMLORD_OK;
}
MLI_API memlord_result memlord_strategy_unset(memlord *lord, memlord_device sel) {
    mli_strategy *old;
    if (!lord) return MEMLORD_OK;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    old = mli_strategy_swap(lord, sel, NULL);
    if (!old) return MEMLORD_E_UNKNOWN;
    mli_bands_changed(lord);
    mli_strategy_free(lord, old);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_gc_callback_add(memlord *lord, memlord_device sel,
                                               uint32_t reasons, memlord_gc_fn fn, void *user) {
    const uint32_t every = (1u << MEMLORD_REASON_COUNT) - 1;
    mli_gc_entry *c;
    if (!lord) return MEMLORD_OK;
    if (!fn || (reasons & ~(every | MEMLORD_GC_QUIET))) return MEMLORD_E_INVALID;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    c = (mli_gc_entry *)mli_own_alloc(lord, sizeof *c);
    if (!c) return MEMLORD_E_NOMEM;
    c->fn = fn;
    c->user = user;
    c->sel = sel;
    c->reasons = reasons & every ? reasons : reasons | every;
    c->serial = (uint64_t)((sel.index < 0) + (sel.type < 0)) << 62;
    mli_gc_entry_add(lord, c);
    mli_bands_changed(lord);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_gc_callback_remove(memlord *lord, memlord_device sel,
                                                  memlord_gc_fn fn, void *user) {
    mli_gc_entry *c;
    if (!lord) return MEMLORD_OK;
    if (!fn) return MEMLORD_E_INVALID;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    c = mli_gc_entry_take(lord, sel, fn, user);
    if (!c) return MEMLORD_E_UNKNOWN;
    mli_own_free(lord, c, sizeof *c);
    mli_bands_changed(lord);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_gc_run(memlord *lord, memlord_device device, int reason,
                                      uint64_t *reclaimed) {
    uint64_t ignored;
    uint32_t dev;
    memlord_result r;
    if (reclaimed) *reclaimed = 0;
    if (!lord) return MEMLORD_OK;
    if ((unsigned)reason >= MEMLORD_REASON_COUNT) return MEMLORD_E_INVALID;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    if (mli_device_valid(device) && !mli_gc_registered(lord, device, reason))
        return MEMLORD_E_UNKNOWN; /* before mli_dev, which would make the device known */
    r = mli_dev(lord, device, &dev);
    return r ? r : mli_collect(lord, dev, reason, 0, reclaimed ? reclaimed : &ignored);
}

MLI_API memlord_result memlord_gc_poll(memlord *lord, memlord_device sel) {
    if (!lord) return MEMLORD_OK;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    if (!mli_self.in_host_alloc) mli_serve(lord, sel);
    return MEMLORD_OK;
}
