#include "services/bands.h"
#include "base/atomics.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/log.h"
#include "base/memory.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/watches.h"
#include "books/devices.h"
#include "books/events.h"
#include "books/fences.h"
#include "books/limits.h"

/* A strategy: the bands that the host has set for the devices that `sel` selects. A strategy never
   changes; the host replaces it as a whole. */
typedef struct mli_strategy {
    struct mli_strategy *next;
    memlord_device sel;
    size_t n;                  /* the number of bands; 0: the host wants none for these devices */
    const memlord_band *bands; /* the bands, which follow in the same allocation; those of the
                                  default strategy are mli_default_bands */
} mli_strategy;

typedef struct mli_gc_entry { /* a collection callback */
    struct mli_gc_entry *next;
    uint64_t serial; /* rises along the list, callbacks for one device first */
    memlord_gc_fn fn;
    void *user;
    memlord_device sel;
    uint32_t reasons; /* 1 << MEMLORD_REASON_..., which it serves, and MEMLORD_GC_QUIET */
} mli_gc_entry;

struct mli_bands_state {
    mli_lock callbacks_lock;
    struct mli_gc_entry *gc_entries; /* this list and `strategies` are under the callbacks lock */
    struct mli_strategy *strategies;
};

MLI_PRIVATE void mli_callbacks_enter(memlord *lord) { mli_lock_take(&lord->bands->callbacks_lock); }
MLI_PRIVATE void mli_callbacks_leave(memlord *lord) { mli_lock_drop(&lord->bands->callbacks_lock); }

/* -- the strategy -- */

#define MLI_DEFAULT_BANDS 2
static const memlord_band mli_default_bands[MLI_DEFAULT_BANDS] = {
    {75, 90, MEMLORD_METRIC_FREED, 0, 10, MEMLORD_COMBINE_MAX},
    {90, 101, MEMLORD_METRIC_FREED, 0, 5, MEMLORD_COMBINE_MAX},
};
static const mli_strategy mli_default_strategy = {
    NULL, {MEMLORD_ANY, MEMLORD_ANY}, MLI_DEFAULT_BANDS, mli_default_bands};

/* Returns what is wrong with a band, or NULL. The caller writes the number of the band first. */
static MLI_COLD const char *mli_band_error(const memlord_band *b) {
    const double lo = mli_argument(&b->lo), hi = mli_argument(&b->hi),
                 percent = mli_argument(&b->percent);
    if (lo < 0 || lo >= hi) return ": lo and hi must be 0 <= lo < hi";
    if (hi > 1e9) return ": hi must be a percentage; 101 is above everything";
    if (percent < 0 || percent > 1e9) return ": percent must be 0 or more";
    if ((unsigned)b->metric > MEMLORD_METRIC_CACHED) return ": unknown metric";
    if ((unsigned)b->combine > MEMLORD_COMBINE_MIN) return ": unknown combine";
    if (!b->bytes && percent <= 0) return ": no threshold: set bytes or percent";
    return NULL;
}

/* Returns the index of the first band that covers a used percent, or n if none does. While the used
   percent is not known (-1), it returns the first band that covers all of 0 to 100. */
static size_t mli_band_at(const memlord_band *bands, size_t n, double used) {
    size_t i;
    for (i = 0; i < n; i++) {
        const memlord_band *b = &bands[i];
        if (used >= 0 ? b->lo <= used && used < b->hi : b->lo <= 0 && b->hi >= 100) break;
    }
    return i;
}

/* Returns 1 if a band overlaps an earlier one. */
static MLI_COLD int mli_band_overlaps(const memlord_band *bands, size_t i) {
    size_t k = 0;
    while (k < i && (bands[i].lo >= bands[k].hi || bands[k].lo >= bands[i].hi)) k++;
    return k < i;
}
/* Returns the lowest start of a band above a used percent, or 1e9 if there is none. */
static MLI_COLD double mli_band_start_above(const memlord_band *bands, size_t n, double used) {
    double start = 1e9;
    size_t i;
    for (i = 0; i < n; i++)
        if (bands[i].lo > used && bands[i].lo < start) start = bands[i].lo;
    return start;
}
/* Warns of bands that are legal but probably not meant: overlaps, and gaps above the first one. */
static MLI_COLD void mli_bands_warn(memlord *lord, const memlord_band *bands, size_t n) {
    size_t i;
    double at = 0, end;
    for (i = 1; i < n; i++)
        if (mli_band_overlaps(bands, i))
            mli_logf(lord, MEMLORD_LOG_WARNING,
                     "[strategy] band %ju overlaps an earlier one, which wins there", (uint64_t)i);
    for (;; at = end) {
        while ((i = mli_band_at(bands, n, at)) < n) at = bands[i].hi;
        if (at > 100) return;
        end = mli_band_start_above(bands, n, at);
        if (end > 100) break;
        if (at > 0)
            mli_logf(lord, MEMLORD_LOG_WARNING, "[strategy] a gap: no band from %g to %g", at, end);
    }
    mli_logf(lord, MEMLORD_LOG_WARNING,
             "[strategy] no band covers from %g up: a full device wants hi over 100",
             (double)(uint64_t)at);
}

/* -- which strategy is in force; under the callbacks lock -- */

/* Returns the address of the pointer to the strategy that was set with exactly this selector. The
   pointer is NULL if there is no such strategy. */
static MLI_COLD mli_strategy **mli_strategy_link(memlord *lord, memlord_device sel) {
    mli_strategy **at = &lord->bands->strategies;
    while (*at && mli_device_word((*at)->sel) != mli_device_word(sel)) at = &(*at)->next;
    return at;
}
/* Returns the strategy that decides for a device: its own, that of its type, that of all devices
   or, if the host has set none of these, the default strategy. With MEMLORD_FLAG_NO_STRATEGY there
   is no default strategy, and it returns NULL instead. */
static MLI_COLD const mli_strategy *mli_strategy_for(memlord *lord, memlord_device d) {
    const mli_strategy *s = *mli_strategy_link(lord, d);
    d.index = MEMLORD_ANY;
    if (!s) s = *mli_strategy_link(lord, d);
    if (!s) s = *mli_strategy_link(lord, memlord_device_all());
    return s || (lord->flags & MEMLORD_FLAG_NO_STRATEGY) ? s : &mli_default_strategy;
}

/* Returns the first callback with a serial above `after` that serves a reason on a device, or NULL
   if there is none. The bands of the default strategy run no callback with MEMLORD_GC_QUIET. */
static MLI_COLD mli_gc_entry *mli_gc_next(memlord *lord, memlord_device d, int reason,
                                          uint64_t after) {
    mli_gc_entry *c = lord->bands->gc_entries;
    uint32_t skips = 0;
    if (reason == MEMLORD_REASON_BAND && mli_strategy_for(lord, d) == &mli_default_strategy)
        skips = MEMLORD_GC_QUIET;
    while (c && (c->serial <= after || !mli_selects(c->sel, d) || !(c->reasons >> reason & 1) ||
                 (c->reasons & skips)))
        c = c->next;
    return c;
}
/* Returns 1 if a callback serves a reason on a device. Takes the callbacks lock. */
static MLI_COLD int mli_gc_registered(memlord *lord, memlord_device d, int reason) {
    int found;
    mli_callbacks_enter(lord);
    found = mli_gc_next(lord, d, reason, 0) != NULL;
    mli_callbacks_leave(lord);
    return found;
}

/* Returns the strategy in force for a device, or NULL if none is in force. It is the strategy that
   decides for the device, if that strategy has bands and a callback serves them. */
static MLI_COLD const mli_strategy *mli_strategy_in_force(memlord *lord, memlord_device d) {
    const mli_strategy *s = mli_strategy_for(lord, d);
    return s && s->n && mli_gc_next(lord, d, MEMLORD_REASON_BAND, 0) ? s : NULL;
}

/* Stores which device types can have a strategy in force. A strategy may be in force for the whole
   type, or for a device that a strategy or a callback names. */
static MLI_COLD void mli_watched_types_set(memlord *lord) {
    const mli_strategy *s;
    const mli_gc_entry *c;
    uint32_t types = 0;
    int type;
    mli_callbacks_enter(lord);
    for (type = 0; type < MLI_TYPE_COUNT; type++)
        if (mli_strategy_in_force(lord, memlord_device_make(type, MEMLORD_ANY)))
            types |= 1u << type;
    for (s = lord->bands->strategies; s; s = s->next)
        if (s->sel.index >= 0 && mli_strategy_in_force(lord, s->sel)) types |= 1u << s->sel.type;
    for (c = lord->bands->gc_entries; c; c = c->next)
        if (c->sel.index >= 0 && mli_strategy_in_force(lord, c->sel)) types |= 1u << c->sel.type;
    mli_types_watch(lord, types);
    mli_callbacks_leave(lord);
}

MLI_PRIVATE MLI_COLD int mli_dev_watch(memlord *lord, uint32_t dev) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    const mli_strategy *s;
    if (!mli_types_watched(lord, 1u << device->device.type) &&
        !mli_ptr_load(&device->watch.strategy))
        return 0;
    mli_callbacks_enter(lord);
    s = mli_strategy_in_force(lord, device->device);
    if (s != mli_ptr_load(&device->watch.strategy)) {
        mli_phys *phys = mli_phys_lock(lord, dev);
        mli_ptr_store(&device->watch.strategy, (void *)(uintptr_t)s);
        device->watch.waiting_rearm = 0;
        device->watch.distance = 0;
        mli_lock_drop(&phys->lock);
    }
    mli_callbacks_leave(lord);
    return s != NULL;
}

/* Replaces the strategy that was set with exactly this selector by `fresh`, or removes it if
   `fresh` is NULL. Returns the old strategy, or NULL if there was none. */
static MLI_COLD mli_strategy *mli_strategy_swap(memlord *lord, memlord_device sel,
                                                     mli_strategy *fresh) {
    mli_strategy *old, **at;
    mli_callbacks_enter(lord);
    at = mli_strategy_link(lord, sel);
    old = *at;
    if (fresh) fresh->next = old ? old->next : NULL;
    if (fresh || old) *at = fresh ? fresh : old->next;
    mli_callbacks_leave(lord);
    return old;
}
static MLI_COLD void mli_strategy_free(memlord *lord, mli_strategy *s) {
    if (s) mli_own_free(lord, s, sizeof *s + s->n * sizeof(memlord_band));
}

/* Returns 1 if a device has a strategy in force. */
static int mli_dev_is_watched(memlord *lord, uint32_t dev) {
    return mli_ptr_load(&mli_device_record_at(lord, dev)->watch.strategy) != NULL;
}

/* -- the band check, under the lock of the device's phys -- */

typedef struct mli_band_state {
    memlord_gc_event event; /* what the callbacks are told; `band` is SIZE_MAX if no band is in
                               force, and then only used_percent is set */
    uint64_t whole, used;   /* the capacity or the limit, or 0; the bytes of it in use */
    uint64_t part;          /* how many bytes of `used` are the device's */
    int64_t least;          /* how many of these remain if all blocks are freed; INT64_MAX: all */
    int due;                /* 1: a collection is due: the metric is at the threshold */
    int near_threshold;     /* 1: the end of every call must check the bands */
    mli_levels level;
    uint64_t rise;  /* a check is due once there are this many live bytes; UINT64_MAX: never */
    uint64_t fall;  /* a check is due once there are fewer live bytes than this; 0: never */
    uint64_t freed; /* a check is due once there are this many freed bytes; UINT64_MAX: never */
} mli_band_state;

/* Returns the threshold of a band in bytes, or 0 if it has none now. A percentage is of the phys's
   limit or capacity, whichever is less or, for the metric CACHED, of the reserved bytes. */
static uint64_t mli_band_threshold(const mli_phys *phys, const memlord_band *b,
                                   uint64_t reserved) {
    uint64_t cap = phys->sample.known ? phys->sample.total : 0, part;
    double share;
    if (phys->limit && (!cap || phys->limit < cap)) cap = phys->limit;
    if (b->metric == MEMLORD_METRIC_CACHED) cap = reserved;
    share = (double)cap * b->percent / 100.0; /* exact for whole percents */
    if (!(share > 0)) return b->bytes;
    part = share < 1 ? 1 : mli_whole(share);
    if (!b->bytes) return part;
    return (part < b->bytes) == (b->combine == MEMLORD_COMBINE_MIN) ? part : b->bytes;
}

static uint64_t mli_metric_value(memlord_metric metric, const mli_levels *level) {
    switch (metric) {
    case MEMLORD_METRIC_ALLOCATED: return level->live;
    case MEMLORD_METRIC_FREED: return level->freed;
    case MEMLORD_METRIC_RESERVED: return level->reserved;
    case MEMLORD_METRIC_CACHED:
        return level->reserved > level->live ? level->reserved - level->live : 0;
    case MEMLORD_METRIC_MAX: break;
    }
    return level->live > level->freed ? level->live : level->freed;
}
static int64_t mli_clamp_to_int64(uint64_t v) { return v > INT64_MAX ? INT64_MAX : (int64_t)v; }

/* Sets v->rise, v->fall and v->freed, at which the next band check is due. While the band waits to
   rearm, a check is due when the metric reaches `again` or falls below seven eighths of the
   threshold. In both cases mli_band_compare rearms the band. For the metric RESERVED nothing is
   set, because memlord_pool_set and memlord_pool_add request a check at each change. */
static void mli_band_marks(const mli_watch *w, uint64_t again, mli_band_state *v) {
    const memlord_metric metric = v->event.metric;
    uint64_t up = v->event.threshold, down = up - up / 8, reserved = v->level.reserved;
    if (w->waiting_rearm && again > up) up = again;
    if (metric == MEMLORD_METRIC_CACHED) {
        if (reserved >= up) v->fall = reserved - up + 1;
        if (w->waiting_rearm) v->rise = reserved - down + 1;
    }
    if (metric == MEMLORD_METRIC_ALLOCATED || metric == MEMLORD_METRIC_MAX) {
        v->rise = up;
        if (w->waiting_rearm) v->fall = down;
    }
    if (metric == MEMLORD_METRIC_FREED || metric == MEMLORD_METRIC_MAX) v->freed = up;
}

/* Sets v->whole, used, part and least. The used bytes are those of the latest sample and what the
   ledger recorded since, the figure of memlord_headroom. On the cpu they may be less than the
   ledger holds, because memory that was never touched is not in use. If no sample is known, they
   are the live bytes, and the limit is the whole. */
static void mli_band_usage(memlord *lord, const mli_phys *phys, uint32_t dev, mli_band_state *v) {
    const int known = phys->sample.known;
    uint64_t held;
    v->whole = known ? phys->sample.total : phys->limit;
    v->part = v->level.live;
    v->used = known ? mli_phys_grown(lord, phys, dev, &held, &v->part) : mli_phys_live(lord, phys);
    if (!known) return;
    if (phys->device.type != MEMLORD_DEVICE_CPU && v->used < held) v->used = held;
    v->least = (int64_t)v->level.reserved;
    if (mli_type_of(lord, dev) == MEMLORD_DEVICE_CPU) v->least = INT64_MAX;
}

/* Moves the marks v->rise and v->fall closer if the used percent reaches an edge of a band before.
   All devices at the physical device change the used percent, so each may go its share of the way.
   That is cut to whole bytes, so a check may come too early, but not too late. */
static void mli_band_edges(memlord *lord, const mli_phys *phys, mli_band_state *v) {
    double devices = 0;
    uint32_t i = 0;
    size_t k;
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0) devices++;
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0) {
        const mli_watch *w = &mli_device_record_at(lord, i)->watch;
        const mli_strategy *s = (const mli_strategy *)mli_ptr_load(&w->strategy);
        for (k = 0; s && k < 2 * s->n; k++) {
            const double edge = k & 1 ? s->bands[k / 2].hi : s->bands[k / 2].lo;
            const double way = (edge - v->event.used_percent) / 100 * (double)v->whole / devices;
            uint64_t mark = v->part;
            if (way > 9e18 || way < -9e18) continue; /* too far to reach */
            mark += (uint64_t)(int64_t)way;
            if (way > 0 && mark < v->rise) v->rise = mark;
            if (way <= 0 && (int64_t)mark > v->least && mark > v->fall) v->fall = mark;
        }
    }
}

/* Sets the marks check_above and check_below: a publication past one of them requests the next band
   check. Also decides whether the device is near its threshold. */
static void mli_watch_set_margins(memlord *lord, uint32_t dev, mli_watch *w, mli_band_state *v) {
    uint64_t threads = mli_threads_allowed(lord);
    uint64_t margin = threads * lord->counters.batch,
             unseen = threads * w->free_interval; /* `margin` and `unseen`: the most live and the
                                                     most freed bytes that no check has seen. Far
                                                     from a threshold they buy calls that check
                                                     nothing */
    /* Twice the margin is hysteresis: a device that is near the threshold does not leave that state
       at once. */
    uint64_t twice = mli_u32_load(&w->near_threshold) ? 2 : 1;
    int64_t published = (int64_t)mli_u64_load(&mli_row_at(lord, MLI_BOOK_DEVICE, dev)->published);
    int64_t above = mli_clamp_to_int64(v->rise), below = mli_clamp_to_int64(v->fall);
    if (v->rise != UINT64_MAX) above -= mli_clamp_to_int64(margin);
    if (!v->fall) below = INT64_MIN;
    v->near_threshold = v->due || published < below ||
                        mli_add_saturated(v->level.live, twice * margin) >= v->rise ||
                        mli_add_saturated(v->level.freed, twice * unseen) >= v->freed;
    mli_u64_store(&w->check_above, (uint64_t)above);
    mli_u64_store(&w->check_below, (uint64_t)below);
}

/* Sets how many bytes a thread frees between two checks. The interval is at least a batch. If all
   threads free equally, each thread checks 64 times on the way to the threshold. If the interval
   shrinks, every thread checks at its next free, and not only after the old interval. */
static void mli_free_interval_set(memlord *lord, uint32_t dev, mli_watch *w,
                                  const mli_band_state *v) {
    const uint64_t had = w->free_interval, batch = lord->counters.batch;
    uint64_t share = v->event.threshold / 64 / mli_threads_allowed(lord);
    mli_thread *t;
    if (share < batch) share = batch;
    if (!share) share = 1;
    if (v->event.metric != MEMLORD_METRIC_FREED && v->event.metric != MEMLORD_METRIC_MAX)
        share = 0; /* 0: no thread checks because of its freed bytes */
    w->free_interval = share;
    if (!share || (had && share >= had)) return;
    for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) {
        mli_cell *cell = mli_cell_at(t, MLI_BOOK_DEVICE, dev);
        if (cell) mli_u64_store(mli_cell_next_check(cell), 0);
    }
}

/* Compares a device with the threshold of its band, and sets the marks for the next check. */
static void mli_band_compare(mli_watch *w, mli_band_state *v) {
    memlord_gc_event *e = &v->event;
    const uint64_t eighth = e->threshold / 8, end = mli_metric_value(e->metric, &w->gc_end);
    const uint64_t again = mli_add_saturated(end, w->distance ? w->distance : eighth ? eighth : 1);
    uint64_t low = e->threshold - eighth;
    if (w->distance && end < low) low = end; /* the collection itself made the metric fall */
    e->value = mli_metric_value(e->metric, &v->level);
    if (e->value < low) w->distance = 0;
    if (e->value < low || e->value >= again) w->waiting_rearm = 0;
    v->due = !w->waiting_rearm && e->value >= e->threshold;
    mli_band_marks(w, again, v);
}

/* Sums the counts of a device, compares them with its band, and sets the next marks. */
static void mli_band_evaluate(memlord *lord, const mli_phys *phys, uint32_t dev,
                              mli_band_state *v) {
    MLI_REQUIRE(mli_lock_held(&phys->lock));
    mli_watch *w = &mli_device_record_at(lord, dev)->watch;
    const mli_strategy *s = (const mli_strategy *)mli_ptr_load(&w->strategy);
    memlord_gc_event *e = &v->event;
    double used = -1;
    size_t i = 0;
    memset(v, 0, sizeof *v);
    v->rise = v->freed = UINT64_MAX;
    v->level = mli_row_levels(lord, dev);
    mli_band_usage(lord, phys, dev, v);
    e->used_percent = -1;
    if (v->whole) e->used_percent = used = mli_percent(v->used, v->whole);
    if (used > 100) used = 100;
    if (s) i = mli_band_at(s->bands, s->n, used);
    if (s && i < s->n) e->threshold = mli_band_threshold(phys, &s->bands[i], v->level.reserved);
    e->band = e->threshold ? i : SIZE_MAX;
    if (e->threshold) e->metric = s->bands[i].metric;
    mli_free_interval_set(lord, dev, w, v);
    if (e->threshold) mli_band_compare(w, v);
    if (v->whole) mli_band_edges(lord, phys, v);
    mli_watch_set_margins(lord, dev, w, v);
}

/* Sets the freed bytes at which a thread checks next. `cell` has the thread's counters on the
   device. With an interval of 0 the thread never checks. */
static void mli_next_check_set(mli_cell *cell, uint64_t interval) {
    uint64_t never = (uint64_t)INT64_MAX; /* mli_cell_tripped compares as signed */
    if (cell)
        mli_u64_store(mli_cell_next_check(cell),
                      interval ? mli_u64_load(&cell->out) + interval : never);
}

/* Returns 1 if a thread published bytes past the marks of a device while this one set the marks. A
   later publication sees them, because both take the row lock. */
static int mli_marks_missed(memlord *lord, uint32_t dev) {
    mli_row *row = mli_row_at(lord, MLI_BOOK_DEVICE, dev);
    int missed;
    mli_lock_take(&row->lock);
    missed = mli_mark_passed(&mli_device_record_at(lord, dev)->watch, &row->published);
    mli_lock_drop(&row->lock);
    return missed;
}

/* Evaluates the bands of a device and tells calls whether it is near its threshold. When it becomes
   near, evaluates once more after a barrier: the second sum includes every call that counted
   before, and every later call checks at its end. Does so also if a publication has passed the
   marks that were just set. The addition to `checks` in mli_band_check orders two checks: the later
   one sees the counts of the call that ran the earlier one. */
static MLI_COLD void mli_band_update(memlord *lord, uint32_t dev, mli_thread *t,
                                     mli_band_state *v) {
    mli_watch *w = &mli_device_record_at(lord, dev)->watch;
    int again = 0, pass = 0;
    do {
        mli_phys *phys = mli_phys_lock(lord, dev);
        mli_cell *cell = t ? mli_cell_at(t, MLI_BOOK_DEVICE, dev) : NULL;
        mli_band_evaluate(lord, phys, dev, v);
        again = v->near_threshold && !mli_u32_load(&w->near_threshold);
        if (v->near_threshold != (int)mli_u32_load(&w->near_threshold)) {
            mli_u32_store(&w->near_threshold, (uint32_t)v->near_threshold);
            mli_alert_bands_add(lord, v->near_threshold ? 1u : (uint32_t)-1);
        }
        mli_next_check_set(cell, w->free_interval);
        mli_next_check_set(mli_orphan_cell(lord, MLI_BOOK_DEVICE, dev),
                           w->free_interval);
        mli_lock_drop(&phys->lock);
        if (again)
            mli_barrier_threads(lord);
        else if (!pass && !v->near_threshold)
            again = mli_marks_missed(lord, dev);
        pass++;
    } while (again);
}

/* -- callbacks -- */

/* Returns 1 if another thread runs the callback that has this serial number, on any device. */
static MLI_COLD int mli_gc_runs_elsewhere(memlord *lord, uint64_t serial) {
    MLI_REQUIRE(mli_lock_held(&lord->bands->callbacks_lock));
    uint32_t i = 0;
    while ((i = mli_phys_next_dev(lord, NULL, i)) != 0) {
        const mli_watch *w = &mli_device_record_at(lord, i)->watch;
        if (w->gc_serial == serial && w->gc_thread != (void *)&mli_self) return 1;
    }
    return 0;
}

/* Adds a callback to the list, as the last one of its kind. The kinds are callbacks for one device,
   for a type and for all devices. Requires: the top bits of the callback's serial are its kind. */
static MLI_COLD void mli_gc_entry_add(memlord *lord, mli_gc_entry *c) {
    mli_gc_entry **at = &lord->bands->gc_entries;
    mli_callbacks_enter(lord);
    c->serial += mli_serial_next(lord);
    while (*at && (*at)->serial < c->serial) at = &(*at)->next;
    c->next = *at;
    *at = c;
    mli_callbacks_leave(lord);
}
/* Takes a callback off the list, waits until no other thread runs it, and returns it, or NULL. */
static MLI_COLD mli_gc_entry *mli_gc_entry_take(memlord *lord, memlord_device sel,
                                                     memlord_gc_fn fn, void *user) {
    mli_gc_entry *c, **at;
    unsigned spins = 0;
    mli_callbacks_enter(lord);
    for (at = &lord->bands->gc_entries; *at; at = &(*at)->next)
        if (mli_device_word((*at)->sel) == mli_device_word(sel) && (*at)->fn == fn &&
            (*at)->user == user)
            break;
    c = *at;
    if (c) *at = c->next; /* a run of the callback on this thread goes on with a copy */
    while (c && mli_gc_runs_elsewhere(lord, c->serial)) {
        mli_callbacks_leave(lord);
        mli_spin_wait(&spins);
        mli_callbacks_enter(lord);
    }
    mli_callbacks_leave(lord);
    return c;
}

/* -- collecting -- */

/* Copies the next callback that serves an event, and marks it as the one that this thread runs for
   the device. Returns 0 if there is none, but for those that were added after `newest`. */
static MLI_COLD int mli_gc_advance(memlord *lord, mli_watch *w, const memlord_gc_event *e,
                                   uint64_t newest, mli_gc_entry *out) {
    const mli_gc_entry *c;
    uint64_t last;
    mli_callbacks_enter(lord);
    last = w->gc_serial;
    while ((c = mli_gc_next(lord, e->device, e->reason, last)) && c->serial << 2 > newest << 2)
        last = c->serial;
    if (c) *out = *c;
    w->gc_serial = c ? c->serial : 0;
    w->gc_thread = c ? &mli_self : NULL;
    mli_callbacks_leave(lord);
    return c != NULL;
}

static MLI_NOINLINE MLI_COLD void mli_log_gc(memlord *lord, const memlord_gc_event *e,
                                             const memlord_gc_result *result) {
    static const char reasons[] =
#define MLI_X(name, text) text "\0"
        MLI_REASONS(MLI_X);
#undef MLI_X
    static const char metrics[][10] = {"allocated", "freed", "max", "reserved", "cached"};
    char line[320];
    mli_out o;
    if (!mli_log_hears(lord, MEMLORD_LOG_INFO)) return;
    mli_out_buffer(&o, line, sizeof line);
    mli_putf(&o, "[gc] %i run %ju (%ju in all): %s", mli_device_code(e->device),
             e->device_runs, e->total_runs, mli_text_at(reasons, (unsigned)e->reason));
    if (e->band != SIZE_MAX)
        mli_putf(&o, " %ju, %s %jo >= %jo", (uint64_t)e->band, metrics[e->metric], e->value,
                 e->threshold);
    if (e->needed) mli_putf(&o, ", needed %jo", e->needed);
    mli_putf(&o, result->ran ? ", used %g, reclaimed %jo" : ", used %g, could not run",
             e->used_percent, result->reclaimed);
    mli_log_end(lord, MEMLORD_LOG_INFO, &o);
}

/* Numbers a collection that is about to begin: e->device_runs on the device, and e->total_runs on
   the ledger, with this one and those that failed. */
static MLI_COLD void mli_gc_number(memlord *lord, uint32_t dev, memlord_gc_event *e) {
    uint32_t i = 0;
    e->total_runs = 1;
    while ((i = mli_phys_next_dev(lord, NULL, i)) != 0) {
        const mli_u64 *count = mli_device_record_at(lord, i)->count;
        uint64_t runs = mli_u64_load(&count[MLI_STAT_gc_runs]) +
                        mli_u64_load(&count[MLI_STAT_gc_failed]);
        e->total_runs += runs;
        if (i == dev) e->device_runs = runs + 1;
    }
}

/* Records the end of a collection. If a callback could run, the freed bytes of the device start
   again from 0; if result->family is 1, so do those of all devices of its type. If no callback
   could run, the freed bytes stay, and the collection counts as failed. With `rest` 1 the bands
   then wait to rearm. If the default strategy has got back less than a quarter of the bytes from
   which on it rearms, its next collection is twice as far away. */
static MLI_COLD void mli_gc_finish(memlord *lord, uint32_t dev, const memlord_gc_event *e, int rest,
                                   const memlord_gc_result *result) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    mli_watch *w = &device->watch;
    mli_u64 *sum = &device->count[MLI_STAT_gc_reclaimed];
    mli_phys *phys;
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    mli_stat_add(lord, dev, result->ran ? MLI_STAT_gc_runs : MLI_STAT_gc_failed, 1);
    /* The sum saturates, because the host may report any number. gc_running makes this thread the
       only writer. */
    if (result->ran)
        mli_u64_store(sum, mli_add_saturated(mli_u64_load(sum), result->reclaimed));
    for (i = 1; i < n && result->ran; i++)
        if (i == dev || (result->family && mli_type_of(lord, i) == device->device.type))
            mli_row_freed_reset(lord, i);
    phys = mli_phys_lock(lord, dev);
    if (rest) {
        w->gc_end = mli_row_levels(lord, dev);
        w->waiting_rearm = 1;
    }
    if (e->band != SIZE_MAX && mli_ptr_load(&w->strategy) == &mli_default_strategy) {
        const uint64_t eighth = e->threshold / 8, above = e->value - (e->threshold - eighth);
        if (!w->distance) w->distance = result->ran ? e->threshold : eighth;
        w->distance = result->reclaimed < above / 4 ? 2 * w->distance : 0;
    }
    mli_lock_drop(&phys->lock);
}

/* Runs the callbacks of a device, but none that is added meanwhile, then clears `gc_running` and
   updates the bands. Requires: this thread has set `gc_running`. */
static MLI_COLD void mli_gc_run_callbacks(memlord *lord, uint32_t dev, mli_thread *t,
                                          mli_band_state *v, int rest, memlord_gc_result *all) {
    MLI_REQUIRE(mli_none_held());
    MLI_REQUIRE(mli_u32_load(&mli_device_record_at(lord, dev)->watch.gc_running));
    mli_device_record *device = mli_device_record_at(lord, dev);
    const uint64_t newest = mli_serial_next(lord);
    memlord_gc_event *e = &v->event;
    mli_gc_entry c;
    memset(all, 0, sizeof *all);
    e->device = device->device;
    mli_gc_number(lord, dev, e);
    while (mli_gc_advance(lord, &device->watch, e, newest, &c)) {
        memlord_gc_result one = c.fn(c.user, lord, e);
        if (!one.ran) continue;
        all->ran = 1;
        all->family |= one.family;
        all->reclaimed = mli_add_saturated(all->reclaimed, one.reclaimed);
    }
    mli_gc_finish(lord, dev, e, rest, all);
    mli_log_gc(lord, e, all);
    if (all->ran) mli_event_record_other(lord, MEMLORD_EVENT_GC, dev, 0, all->reclaimed);
    mli_u32_store_release(&device->watch.gc_running, 0); /* pairs with what sets gc_running */
    mli_band_update(lord, dev, t, v);
}

MLI_PRIVATE MLI_COLD void mli_band_check(memlord *lord, uint32_t dev, mli_thread *t, int safe) {
    mli_watch *w = &mli_device_record_at(lord, dev)->watch;
    mli_band_state v;
    memlord_gc_result result;
    (void)mli_u64_add(&w->checks, 1);
    if (t && !mli_is_orphan(lord, t)) /* makes the cell, which a thread that has only freed lacks */
        (void)mli_cell_make(lord, t, MLI_BOOK_DEVICE, dev, mli_own_alloc);
    mli_band_update(lord, dev, t, &v);
    if (!v.due || !safe) return;
    if (mli_u32_exchange(&w->gc_running, 1)) return; /* pairs with mli_gc_run_callbacks */
    mli_band_update(lord, dev, t, &v); /* another run may have ended since the first update */
    v.event.reason = MEMLORD_REASON_BAND;
    if (v.due)
        mli_gc_run_callbacks(lord, dev, t, &v, 1, &result);
    else
        mli_u32_store_release(&w->gc_running, 0);
}

MLI_PRIVATE MLI_COLD void mli_phys_bands_check(memlord *lord, uint32_t dev, mli_thread *t,
                                               int safe) {
    const mli_phys *phys = mli_phys_at(lord, dev);
    uint32_t i = 0;
    mli_band_check(lord, dev, t, safe);
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0)
        if (i != dev) mli_band_check(lord, i, NULL, safe);
}

MLI_PRIVATE MLI_COLD memlord_result mli_collect(memlord *lord, uint32_t dev, int reason,
                                                uint64_t needed, uint64_t *reclaimed) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    memlord_gc_result result;
    mli_band_state v;
    int rest;
    *reclaimed = 0;
    if (!mli_gc_registered(lord, device->device, reason)) return MEMLORD_E_UNKNOWN;
    if (mli_u32_exchange(&device->watch.gc_running, 1)) /* pairs with mli_gc_run_callbacks */
        return MEMLORD_E_STATE;
    mli_band_update(lord, dev, NULL, &v);
    rest = v.event.threshold && v.event.value >= v.event.threshold;
    v.event.reason = reason;
    v.event.band = SIZE_MAX;
    v.event.metric = MEMLORD_METRIC_ALLOCATED;
    v.event.value = mli_row_live(lord, MLI_BOOK_DEVICE, dev);
    v.event.threshold = 0;
    v.event.needed = needed;
    mli_gc_run_callbacks(lord, dev, NULL, &v, rest, &result);
    *reclaimed = result.reclaimed;
    return result.ran ? MEMLORD_OK : MEMLORD_E_STATE;
}

MLI_PRIVATE MLI_COLD void mli_phys_recheck(memlord *lord, const mli_phys *phys) {
    uint32_t i = 0;
    mli_band_state v;
    int again;
    for (again = 0; again < 2; again++) {
        while ((i = mli_phys_next_dev(lord, phys, i)) != 0) {
            (void)mli_dev_watch(lord, i);
            mli_band_update(lord, i, NULL, &v);
        }
        if (!mli_types_watched(lord, UINT32_MAX)) return;
        /* A call may have compared its bytes with the old marks. The second pass counts these
           bytes. */
        if (!again) mli_barrier_threads(lord);
    }
}

MLI_PRIVATE void mli_thread_allowance_grow(memlord *lord) {
    uint32_t threads;
    mli_alert_set(lord, MLI_ALERT_THREADS, 0); /* cleared before the count, because a thread that
                                                  starts from here on sets the alert again */
    do mli_threads_allow(lord, threads = mli_thread_count(lord) + 4);
    while (mli_thread_count(lord) > threads);
    mli_phys_recheck(lord, NULL);
}

/* Updates the strategies in force, the marks, and the pollers, after a change of strategies or
   callbacks. Then no device uses a strategy that is not in the list. */
static void mli_bands_changed(memlord *lord) {
    uint32_t i = 0;
    mli_watched_types_set(lord);
    mli_phys_recheck(lord, NULL);
    while ((i = mli_phys_next_dev(lord, NULL, i)) != 0)
        /* The check also starts the threads that sample the device (pollers). */
        if (mli_dev_is_watched(lord, i)) mli_check_request(lord, i);
    lord->start_pollers(lord, 0);
}

/* -- the end of a call -- */

MLI_PRIVATE void mli_marks_again(memlord *lord, const mli_thread *t, uint32_t dev) {
    const mli_watch *w = &mli_device_record_at(lord, dev)->watch;
    mli_cell *cell = mli_cell_at(t, MLI_BOOK_DEVICE, dev);
    if (!cell || mli_u32_load(&w->near_threshold)) return;
    if (mli_mark_passed(w, &mli_row_at(lord, MLI_BOOK_DEVICE, dev)->published) ||
        mli_cell_tripped(cell) < 0)
        mli_check_request(lord, dev);
}

/* -- life -- */

static MLI_COLD void mli_bands_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    mli_lock_rank(&lord->bands->callbacks_lock, MLI_RANK_CALLBACKS);
}
static MLI_COLD void mli_bands_lock(memlord *lord, int take) {
    mli_lock_set(&lord->bands->callbacks_lock, take);
}
/* Ends the collections that other threads of the parent were running, because a forked child lacks
   these threads. Also counts again how many flags near_threshold and check_requested are set. (At
   the fork a thread may have changed a flag but not yet the count.) */
static MLI_COLD void mli_bands_forked(memlord *lord) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE), alerts = 0;
    for (i = 1; i < n; i++) {
        mli_watch *w = &mli_device_record_at(lord, i)->watch;
        alerts += mli_u32_load(&w->near_threshold) + mli_u32_load(&w->check_requested);
        if (w->gc_thread == (void *)&mli_self) continue;
        w->gc_serial = 0;
        mli_u32_store(&w->gc_running, 0);
    }
    mli_alert_bands_set(lord, alerts);
}
static MLI_COLD void mli_bands_free(memlord *lord) {
    mli_strategy *s, *next;
    for (s = lord->bands->strategies; s; s = next) {
        next = s->next;
        mli_strategy_free(lord, s);
    }
}
MLI_PRIVATE const mli_life mli_bands_life = {MLI_LIFE_STATE(bands), mli_bands_init, NULL, NULL,
                                             mli_bands_lock, mli_bands_forked, mli_bands_free};

/* -- public -- */

MLI_API memlord_result memlord_strategy_check(const memlord_band *bands, size_t n, size_t *bad) {
    size_t i = 0;
    if (n && !bands) return MEMLORD_E_INVALID;
    while (i < n && !mli_band_error(&bands[i])) i++;
    if (i < n && bad) *bad = i;
    return i < n ? MEMLORD_E_INVALID : MEMLORD_OK;
}

MLI_API const memlord_band *memlord_strategy_default(size_t *n) {
    if (n) *n = MLI_DEFAULT_BANDS;
    return mli_default_bands;
}

MLI_API memlord_result memlord_strategy_set(memlord *lord, memlord_device sel,
                                            const memlord_band *bands, size_t n) {
    mli_strategy *fresh, *old;
    size_t bad = 0;
    if (!lord) return MEMLORD_OK;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    if (memlord_strategy_check(bands, n, &bad)) {
        if (bands)
            mli_logf(lord, MEMLORD_LOG_ERROR, "[strategy] refused, band %ju%s",
                     (uint64_t)bad, mli_band_error(&bands[bad]));
        return MEMLORD_E_INVALID;
    }
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
                                      uint64_t needed, uint64_t *reclaimed) {
    uint64_t ignored;
    uint32_t dev;
    memlord_result r;
    if (reclaimed) *reclaimed = 0;
    if (!lord) return MEMLORD_OK;
    if ((unsigned)reason >= MEMLORD_REASON_COUNT) return MEMLORD_E_INVALID;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    if (mli_device_valid(device) && !mli_gc_registered(lord, device, reason))
        return MEMLORD_E_UNKNOWN; /* before mli_dev, which makes the device known */
    r = mli_dev(lord, device, &dev);
    return r ? r : mli_collect(lord, dev, reason, needed, reclaimed ? reclaimed : &ignored);
}
