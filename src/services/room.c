#include "services/room.h"
#include "os/system.h"
#include "os/machine.h"
#include "base/log.h"
#include "base/numbers.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/watches.h"
#include "books/devices.h"
#include "books/anomalies.h"
#include "books/limits.h"
#include "books/accounts.h"
#include "books/names.h"
#include "services/bands.h"
#include "services/answers.h"
#include "services/stats.h"

struct mli_room_state {
    mli_capacity_reader capacity_readers[MEMLORD_DEVICE_TYPE_COUNT];
    uint64_t capacity_reader_numbers[MEMLORD_DEVICE_TYPE_COUNT]; /* by type: how often it was set;
                                                                    under the callbacks lock */
    mli_cpu cpu;
    mli_u32 poll_ms;        /* ms from one sample of a poller to the next */
    mli_u64 refusal_logged; /* when a refused reservation was last logged: see mli_log_due */
    mli_u64 account_logged; /* when one over an account's limit was last logged: mli_log_due */
};

/* -- sources -- */

/* Samples main memory. This is the built-in capacity source of the device type CPU. */
static MLI_COLD int mli_cpu_capacity(void *user, memlord_device d, memlord_capacity *out) {
    memlord *lord = (memlord *)user;
    (void)d;
    return mli_cpu_sample(&lord->room->cpu, &out->total, &out->used, &out->process);
}

MLI_PRIVATE MLI_COLD const char *mli_proc_root(const memlord *lord) {
    return lord->room->cpu.root ? lord->room->cpu.root : "";
}

MLI_PRIVATE MLI_COLD uint32_t mli_poll_ms(const memlord *lord) {
    return mli_u32_load(&lord->room->poll_ms);
}
MLI_PRIVATE MLI_COLD void mli_poll_ms_set(memlord *lord, uint32_t ms) {
    mli_u32_store(&lord->room->poll_ms, ms);
}
MLI_PRIVATE MLI_COLD uint64_t mli_poll_ns(const memlord *lord) {
    return (uint64_t)mli_u32_load(&lord->room->poll_ms) * 1000000u;
}

MLI_PRIVATE MLI_COLD mli_capacity_reader mli_capacity_reader_of(memlord *lord, int type) {
    mli_capacity_reader source;
    mli_callbacks_enter(lord);
    source = lord->room->capacity_readers[type];
    mli_callbacks_leave(lord);
    return source;
}

/* Sets the limit of a physical device to its fraction of the capacity, if the host has set a
   fraction and the capacity is known. */
static void mli_phys_fraction_apply(mli_phys *phys) {
    MLI_REQUIRE(mli_lock_held(&phys->lock));
    if (!(phys->fraction > 0) || !phys->sample.known) return;
    phys->limit = mli_whole(phys->fraction * (double)phys->sample.total);
    if (!phys->limit) phys->limit = 1;
}

/* Stores how many bytes each device of a physical device holds before the capacity source runs. */
static MLI_COLD void mli_phys_marks_begin(memlord *lord, mli_phys *phys) {
    uint32_t i = 0;
    mli_lock_take(&phys->lock);
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0) {
        mli_sample_mark *before = &mli_device_record_at(lord, i)->before;
        before->in = mli_dev_sum(lord, i, 1, 0);
        before->held = mli_since(before->in, mli_dev_sum(lord, i, 0, 0));
    }
    mli_lock_drop(&phys->lock);
}
/* Sets the marks of a sample. A mark tells how many bytes a device held when the source ran. The
   source may have seen the live bytes from before its run or from after it, so the mark is the
   smaller number. If the device's pool has more bytes than that now, the mark is the bytes of the
   pool. The pool is read after the run, because the source itself may call memlord_pool_set. */
static MLI_COLD void mli_phys_marks_set(memlord *lord, mli_phys *phys) {
    MLI_REQUIRE(mli_lock_held(&phys->lock));
    uint32_t i = 0;
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0) {
        mli_device_record *device = mli_device_record_at(lord, i);
        mli_row *row = mli_row_at(lord, MLI_BOOK_DEVICE, i);
        uint64_t in = mli_dev_sum(lord, i, 1, 0), live = mli_since(in, mli_dev_sum(lord, i, 0, 0));
        device->mark = device->before;
        if (live < device->mark.held) device->mark.held = live;
        device->mark.held = mli_dev_held(lord, i, device->mark.held);
        mli_lock_take(&row->lock);
        mli_u64_store(&row->sampled_peak, mli_u64_load(&row->published));
        mli_lock_drop(&row->lock);
    }
}

/* Stores a sample of a physical device, or stores that its capacity is not known. */
static MLI_COLD void mli_phys_sample_store(mli_phys *phys, const memlord_capacity *c,
                                           uint64_t now) {
    mli_lock_take(&phys->lock);
    if (c->known) mli_phys_marks_set(phys->lord, phys);
    phys->sample = *c;
    phys->sampled = now;
    mli_phys_fraction_apply(phys);
    mli_lock_drop(&phys->lock);
}

/* Makes this thread the sampler of a physical device, stores in *source the source that it has to
   call, and returns 1. Returns 0 if the device has a sampler already. */
static MLI_COLD int mli_phys_sampler_set(memlord *lord, mli_phys *phys,
                                         mli_capacity_reader *source) {
    int mine;
    mli_callbacks_enter(lord);
    mine = !phys->sampler;
    if (mine) {
        phys->sampler = &mli_self;
        phys->sampler_reader = lord->room->capacity_reader_numbers[phys->device.type];
        *source = lord->room->capacity_readers[phys->device.type];
    }
    mli_callbacks_leave(lord);
    return mine;
}
/* Returns 1 if the source that the sampler asks is no longer the source of the device type. */
static MLI_COLD int mli_phys_reader_replaced(const memlord *lord, const mli_phys *phys) {
    return phys->sampler_reader != lord->room->capacity_reader_numbers[phys->device.type];
}
MLI_PRIVATE MLI_COLD memlord_result mli_phys_sample(memlord *lord, mli_phys *phys) {
    MLI_REQUIRE(mli_none_held());
    mli_capacity_reader source;
    memlord_capacity c;
    uint64_t now;
    memlord_result r = MEMLORD_OK;
    memset(&c, 0, sizeof c);
    if (!mli_phys_sampler_set(lord, phys, &source)) return MEMLORD_E_STATE;
    mli_phys_marks_begin(lord, phys);
    if (!source.fn)
        r = MEMLORD_E_UNSUPPORTED;
    else if (source.fn(source.user, phys->device, &c) || !c.total || c.used > c.total)
        r = MEMLORD_E_UNKNOWN;
    now = mli_ledger_now(lord);
    if (!now) now = 1; /* `sampled` 0 means never */
    mli_callbacks_enter(lord);
    if (r == MEMLORD_OK && mli_phys_reader_replaced(lord, phys)) r = MEMLORD_E_UNKNOWN;
    if (r) memset(&c, 0, sizeof c);
    c.known = r == MEMLORD_OK;
    if (r != MEMLORD_E_UNSUPPORTED) mli_phys_sample_store(phys, &c, now);
    phys->sampler = NULL;
    mli_callbacks_leave(lord);
    mli_phys_recheck(lord, phys);
    return r;
}

/* Replaces the source of a device type, once no thread is in it, and forgets its samples. */
static MLI_COLD void mli_capacity_reader_set(memlord *lord, int type, mli_capacity_reader source) {
    uint32_t i;
    unsigned spins = 0;
    memlord_capacity none;
    memset(&none, 0, sizeof none);
    mli_callbacks_enter(lord);
    lord->room->capacity_readers[type] = source;
    lord->room->capacity_reader_numbers[type]++;
    mli_callbacks_leave(lord);
    /* The loop includes physical devices that no device uses, because a device may use them
       later. */
    for (i = 0; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++) {
        mli_phys *phys = mli_phys_storage(lord, i);
        if (phys->device.type != type) continue;
        mli_callbacks_enter(lord);
        while (phys->sampler && phys->sampler != (void *)&mli_self &&
               mli_phys_reader_replaced(lord, phys)) {
            mli_callbacks_leave(lord);
            mli_spin_wait(&spins);
            mli_callbacks_enter(lord);
        }
        mli_callbacks_leave(lord);
        mli_phys_sample_store(phys, &none, 0);
        mli_phys_recheck(lord, phys);
    }
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

/* -- functions that read the capacity, and sample if no poller does -- */

/* Returns 1 if a function that reads the capacity may run a source on this thread: not under
   MEMLORD_FLAG_DEFER, nor inside code of the host that MemLord called: an allocator, a logger, a
   try function, a fence, a source or a callback. */
static MLI_COLD int mli_reader_may_sample(memlord *lord) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    int inside = 0;
    if ((lord->flags & MEMLORD_FLAG_DEFER) || mli_self.in_host_alloc || mli_self.try_lord ||
        mli_self.logger_call || mli_self.fence_lord)
        return 0;
    mli_callbacks_enter(lord);
    for (i = 0; i < n && !inside; i++) {
        const mli_watch *w = i ? &mli_device_record_at(lord, i)->watch : NULL;
        inside = mli_phys_storage(lord, i)->sampler == (void *)&mli_self ||
                 (w && w->gc_thread == (void *)&mli_self);
    }
    mli_callbacks_leave(lord);
    return !inside;
}

/* Returns 1 if a function that reads the capacity has to sample a physical device: there is no
   sample, or it is older than three poll intervals and no poller runs. Returns 1 at most once in an
   interval, because a failed one sets `sampled`, too. */
static MLI_COLD int mli_phys_sample_due(memlord *lord, mli_phys *phys) {
    const uint64_t interval = mli_poll_ns(lord);
    const uint32_t poller = mli_u32_load_acquire(&phys->poller.state);
    uint64_t at, now;
    int known;
    mli_lock_take(&phys->lock);
    at = phys->sampled;
    known = phys->sample.known;
    mli_lock_drop(&phys->lock);
    if (!at) return 1;
    if (known && (poller == MLI_HELPER_RUNS || poller == MLI_HELPER_BUSY)) return 0;
    now = mli_ledger_now(lord);
    return now > at && now - at >= (known ? 3 * interval : interval);
}

/* Samples a physical device for a function that reads the capacity, if that is due and allowed.
   With `own` 1 only the built-in source may run. */
static MLI_COLD void mli_phys_sample_for_reader(memlord *lord, mli_phys *phys, int own) {
    memlord_capacity_fn fn;
    if (!mli_phys_sample_due(lord, phys) || !mli_reader_may_sample(lord)) return;
    fn = mli_capacity_reader_of(lord, phys->device.type).fn;
    if (fn && (!own || fn == mli_cpu_capacity)) (void)mli_phys_sample(lord, phys);
}

MLI_PRIVATE MLI_COLD void mli_capacities_refresh(memlord *lord, int own) {
    uint32_t i = 0;
    while ((i = mli_phys_next_dev(lord, NULL, i)) != 0)
        if (mli_dev_uses_capacity(lord, i))
            mli_phys_sample_for_reader(lord, mli_phys_at(lord, i), own);
}

/* Finds the physical device of a device, and samples it if that is due. Adds a new device if its
   type has a source that may run now. */
static MLI_COLD memlord_result mli_phys_read(memlord *lord, memlord_device d, mli_phys **phys) {
    memlord_result r = mli_phys_find(lord, d, 0, phys);
    if (r == MEMLORD_E_UNKNOWN && mli_reader_may_sample(lord) &&
        mli_capacity_reader_of(lord, d.type).fn)
        r = mli_phys_find(lord, d, 1, phys);
    if (r == MEMLORD_OK) mli_phys_sample_for_reader(lord, *phys, 0);
    return r;
}

/* -- the explanation of a refusal -- */

#define MLI_EXPLAIN_TOP 4

MLI_PRIVATE MLI_COLD void mli_process_name(const memlord *lord, uint64_t pid, char *name,
                                           size_t cap) {
    const char *root = mli_proc_root(lord);
    char path[300];
    mli_out o;
    *name = 0;
    mli_out_buffer(&o, path, sizeof path);
    mli_put_str(&o, root);
    mli_put_str(&o, "/proc/self/ns/pid");
    if (mli_out_end(&o, sizeof path) >= sizeof path) return;
    if (!mli_link_is(path, "pid:[4026531836]")) return; /* the first namespace, since Linux 3.8 */
    mli_out_buffer(&o, path, sizeof path);
    mli_put_str(&o, root);
    mli_put_str(&o, "/proc/");
    mli_put_u64(&o, pid);
    mli_put_str(&o, "/comm");
    if (mli_out_end(&o, sizeof path) < sizeof path) mli_line_read(path, name, cap);
}

MLI_PRIVATE MLI_COLD void mli_put_others(const memlord *lord, mli_out *o, const char *head,
                                         const memlord_capacity *sample, size_t most) {
    size_t i;
    for (i = 0; i < most && sample->others[i].pid; i++) {
        char name[32];
        mli_process_name(lord, sample->others[i].pid, name, sizeof name);
        mli_putf(o, "%s pid %ju", i ? "," : head, sample->others[i].pid);
        if (*name) mli_putf(o, " (%s)", name);
        mli_putf(o, " holds %jo", sample->others[i].bytes);
    }
}

/* Writes "512 MiB wanted, 100 MiB short: limit 2 GiB, live 1.9 GiB, ..." for a physical device. Of
   the bytes that tickets hold there, `covered` are for the request, so they count as left. */
static MLI_COLD void mli_explain_phys(memlord *lord, mli_out *o, mli_phys *phys, uint64_t wanted,
                                      uint64_t covered) {
    memlord_capacity sample;
    uint64_t limit, tickets, held, neighbours, resting;
    int64_t left;
    int known;
    mli_lock_take(&phys->lock);
    known = mli_phys_available(lord, phys, &left);
    sample = phys->sample;
    sample.used = mli_phys_used(lord, phys, &held);
    limit = phys->limit;
    tickets = phys->ticket_bytes;
    neighbours = phys->neighbours;
    resting = phys->neighbours_resting;
    mli_lock_drop(&phys->lock);
    if (known) left += mli_bytes_signed(covered);
    mli_putf(o, " %jo wanted, ", wanted);
    if (!known)
        mli_put_str(o, "limit and capacity unknown");
    else if (left < 0 || (uint64_t)left < wanted)
        mli_putf(o, "%jo short", wanted - (uint64_t)left);
    else
        mli_putf(o, "%jo to spare", (uint64_t)left - wanted);
    if (limit) mli_putf(o, ": limit %jo", limit);
    mli_putf(o, limit ? ", live %jo" : ": live %jo", mli_phys_live(lord, phys));
    if (tickets) mli_putf(o, ", held %jo", tickets);
    if (covered) mli_putf(o, " of which %jo for this request", covered);
    if (sample.known)
        mli_putf(o, ", capacity %jo with %g used", sample.total, mli_used_percent(&sample));
    if (neighbours) mli_putf(o, "; neighbours hold %jo", neighbours);
    if (resting) mli_putf(o, "; neighbours resting: %ju", resting);
    mli_put_others(lord, o, "; others:", &sample, MLI_EXPLAIN_TOP);
}

/* Writes why a device has or lacks room for `wanted` bytes, and what holds most there. */
static MLI_COLD size_t mli_explain_device(memlord *lord, memlord_device d, uint64_t wanted,
                                          uint64_t covered, char *buf, size_t cap) {
    mli_holder_list list;
    const uint32_t dev = mli_dev_known(lord, d);
    uint64_t failed = 0;
    mli_phys *phys;
    mli_out o;
    mli_out_buffer(&o, buf, cap);
    mli_putf(&o, "%i:", mli_device_code(d));
    if (mli_phys_find(lord, d, 0, &phys) == MEMLORD_OK)
        mli_explain_phys(lord, &o, phys, wanted, covered);
    else
        mli_put_str(&o, " never seen");
    if (dev) failed = mli_u64_load(&mli_device_record_at(lord, dev)->count[MLI_STAT_oom_failures]);
    if (failed) mli_putf(&o, "; requests failed %ju", failed);
    if (phys) {
        mli_holders_list(lord, phys, dev, MLI_BOOK_TAG, &list);
        mli_put_holders(lord, &o, &list);
        mli_holders_list(lord, phys, dev, MLI_BOOK_SITE, &list);
        mli_put_holders(lord, &o, &list);
    }
    return mli_out_end(&o, cap);
}

MLI_PRIVATE MLI_COLD void mli_log_explain(memlord *lord, int level, const char *head,
                                          memlord_device d, uint64_t wanted, uint64_t covered) {
    char line[1024];
    size_t n = strlen(head);
    if (!mli_log_hears(lord, level)) return;
    memcpy(line, head, n);
    (void)mli_explain_device(lord, d, wanted, covered, line + n, sizeof line - n);
    mli_log(lord, level, line);
}

MLI_PRIVATE MLI_COLD int mli_log_due(memlord *lord, mli_u64 *last) {
    const uint64_t now = mli_ledger_now(lord);
    uint64_t seen = mli_u64_load(last);
    if (seen && now + 1 - seen < 1000000000u) return 0;
    return mli_u64_cas(last, &seen, now + 1);
}
MLI_PRIVATE MLI_COLD int mli_account_log_refusal(memlord *lord, memlord_account account,
                                                uint64_t wanted) {
    memlord_account_stat stat;
    if (!mli_account_refuse(lord, account, wanted, &stat)) return 0;
    if (mli_log_hears(lord, MEMLORD_LOG_WARNING) && mli_log_due(lord, &lord->room->account_logged))
        mli_logf(lord, MEMLORD_LOG_WARNING,
                 "[limit] account %s: %jo wanted, it has %jo with what its tickets hold, and its "
                 "limit is %jo",
                 stat.name, wanted, stat.bytes, stat.limit);
    return 1;
}
/* Logs a refused reservation, at most once a second. A full server may refuse thousands of
   reservations a second, and each line costs a walk over all tags and sites. */
static MLI_COLD void mli_log_refusal(memlord *lord, memlord_device d, memlord_account account,
                                     uint64_t wanted) {
    if (mli_account_log_refusal(lord, account, wanted)) return;
    if (mli_log_hears(lord, MEMLORD_LOG_WARNING) && mli_log_due(lord, &lord->room->refusal_logged))
        mli_log_explain(lord, MEMLORD_LOG_WARNING, "[limit] ", d, wanted, 0);
}

/* Finds the physical device of a device. Adds a device that was not yet seen if its type has a
   capacity source; otherwise returns E_UNKNOWN. */
static memlord_result mli_phys_with_capacity(memlord *lord, memlord_device d, mli_phys **phys) {
    int make = mli_device_valid(d) && mli_capacity_reader_of(lord, d.type).fn;
    return mli_phys_find(lord, d, make, phys);
}

/* Sets the limit of a physical device in bytes or, if not 0, as a `fraction` of its capacity. */
static MLI_COLD memlord_result mli_limit_set(memlord *lord, mli_phys *phys,
                                             uint64_t bytes, double fraction) {
    mli_lock_take(&phys->lock);
    phys->fraction = fraction;
    phys->limit = bytes;
    mli_phys_fraction_apply(phys);
    mli_lock_drop(&phys->lock);
    mli_phys_recheck(lord, phys);
    return MEMLORD_OK;
}

/* Computes the bytes left at the physical device of a device. Returns 0 if they are not known. */
static MLI_COLD int mli_dev_available(memlord *lord, memlord_device device, int64_t *left) {
    mli_phys *phys;
    int known;
    *left = INT64_MAX;
    if (mli_phys_read(lord, device, &phys)) return 0;
    mli_lock_take(&phys->lock);
    known = mli_phys_available(lord, phys, left);
    mli_lock_drop(&phys->lock);
    return known;
}

/* Computes how many bytes a plan lacks at the physical device of block `first`. If an earlier block
   of the plan is at the same physical device, sets *lack to INT64_MIN, because the call for the
   earlier block computes what the plan lacks there. Returns 0 if the bytes left are not known. */
static MLI_COLD int mli_plan_lack(memlord *lord, const memlord_block *blocks, size_t n,
                                  size_t first, int64_t *lack) {
    const int64_t least = -((int64_t)1 << 62); /* so that no difference overflows */
    mli_phys *phys, *other;
    uint64_t sum = 0;
    int64_t left;
    size_t i;
    *lack = INT64_MIN;
    if (!mli_dev_available(lord, blocks[first].device, &left)) return 0;
    (void)mli_phys_find(lord, blocks[first].device, 0, &phys);
    for (i = 0; i < n; i++) {
        (void)mli_phys_find(lord, blocks[i].device, 0, &other);
        if (other != phys) continue;
        if (i < first) return 1;
        sum = mli_add_saturated(sum, blocks[i].bytes);
    }
    *lack = mli_bytes_signed(sum) - (left > least ? left : least);
    return 1;
}

/* -- life -- */

static MLI_COLD void mli_room_init(memlord *lord, const memlord_desc *desc) {
    lord->room->capacity_readers[MEMLORD_DEVICE_CPU].fn = mli_cpu_capacity;
    lord->room->capacity_readers[MEMLORD_DEVICE_CPU].user = lord;
    lord->room->poll_ms.v = desc->poll_ms ? desc->poll_ms : 200;
}
static MLI_COLD memlord_result mli_room_open(memlord *lord, const memlord_desc *desc) {
    return mli_name(lord, desc->proc_root, &lord->room->cpu.root);
}
/* Forgets the threads that sample, because a forked child does not have them. */
static MLI_COLD void mli_room_forked(memlord *lord) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 0; i < n; i++) mli_phys_storage(lord, i)->sampler = NULL;
}
MLI_PRIVATE const mli_life mli_room_life = {MLI_LIFE_STATE(room), mli_room_init, mli_room_open,
                                            NULL, NULL, mli_room_forked, NULL};

/* -- the pool of the host -- */

#define MLI_POOL_MAX ((uint64_t)1 << 62) /* most bytes that a host's pool can hold */

/* Ends a call that has changed the bytes of a device's pool, and runs a band check on the device.
   If the device's capacity source made the call, a due collection runs in a later call. */
static MLI_COLD memlord_result mli_pool_changed(memlord *lord, uint32_t dev) {
    int safe = !(lord->flags & MEMLORD_FLAG_DEFER);
    if (!mli_self.in_host_alloc &&
        (mli_dev_watch(lord, dev) || mli_types_watched(lord, UINT32_MAX))) {
        mli_callbacks_enter(lord);
        if (mli_phys_at(lord, dev)->sampler == (void *)&mli_self) safe = 0;
        mli_callbacks_leave(lord);
        mli_phys_bands_check(lord, dev, NULL, safe);
    }
    return mli_call_end_uncounted(lord, MEMLORD_OK);
}

static MLI_COLD memlord_result mli_pool_add(memlord *lord, memlord_device device, int64_t delta) {
    mli_u64 *count, had;
    uint64_t now;
    uint32_t dev;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (delta < 0 && mli_device_valid(device) && !mli_dev_known(lord, device))
        return MEMLORD_E_INVALID;
    r = mli_dev(lord, device, &dev);
    if (r) return r;
    count = mli_device_record_at(lord, dev)->count;
    had.v = mli_u64_load(&count[MLI_STAT_reserved]);
    do {
        now = had.v + (uint64_t)delta;
        if (now > MLI_POOL_MAX) return MEMLORD_E_INVALID; /* a sum below 0 is above it, too */
    } while (!mli_u64_cas(&count[MLI_STAT_reserved], &had.v, now));
    mli_u64_max(&count[MLI_STAT_reserved_peak], (int64_t)now);
    return mli_pool_changed(lord, dev);
}

/* -- public -- */

MLI_API memlord_result memlord_capacity_get(memlord *lord, memlord_device device,
                                            memlord_capacity *out) {
    mli_phys *phys;
    uint64_t now, at;
    memlord_result r;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    r = mli_phys_find(lord, device, 0, &phys);
    if (r) return r == MEMLORD_E_UNKNOWN ? MEMLORD_OK : r;
    now = mli_ledger_now(lord);
    mli_lock_take(&phys->lock);
    *out = phys->sample;
    at = phys->sampled;
    mli_lock_drop(&phys->lock);
    if (out->known) out->age_ns = now > at ? now - at : 0;
    return MEMLORD_OK;
}

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
    lord->start_pollers(lord, 0);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_capacity_sample(memlord *lord, memlord_device device) {
    mli_phys *phys;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    r = mli_phys_with_capacity(lord, device, &phys);
    if (r == MEMLORD_E_UNKNOWN) return MEMLORD_E_UNSUPPORTED;
    return r ? r : mli_phys_sample(lord, phys);
}

MLI_API memlord_result memlord_device_share(memlord *lord, memlord_device device,
                                            memlord_device physical) {
    mli_phys *to;
    uint32_t dev, other;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!mli_device_valid(physical)) return MEMLORD_E_DEVICE;
    r = mli_dev(lord, device, &dev);
    if (r) return r;
    to = mli_phys_storage(lord, 0);
    if (mli_type_host[physical.type]) {
        if (physical.type != MEMLORD_DEVICE_CPU &&
            mli_device_word(physical) != mli_device_word(device))
            return MEMLORD_E_STATE;
    } else {
        r = mli_dev(lord, physical, &other);
        if (r) return r;
        to = &mli_device_record_at(lord, other)->own_phys;
        if (other != dev && mli_phys_at(lord, other) != to) return MEMLORD_E_STATE;
    }
    if (mli_type_host[device.type])
        return to == mli_phys_storage(lord, 0) ? MEMLORD_OK : MEMLORD_E_STATE;
    r = mli_phys_assign(lord, dev, to);
    if (r == MEMLORD_OK) mli_phys_recheck(lord, NULL);
    return r;
}

MLI_API memlord_result memlord_limit_set(memlord *lord, memlord_device device, uint64_t bytes) {
    mli_phys *phys;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = mli_phys_find(lord, device, 1, &phys);
    return r ? r : mli_limit_set(lord, phys, bytes, 0);
}

MLI_API memlord_result memlord_limit_set_fraction(memlord *lord, memlord_device device,
                                                  double fraction) {
    mli_phys *phys;
    memlord_capacity c;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    fraction = mli_argument(&fraction);
    if (fraction <= 0 || fraction > 1) return MEMLORD_E_INVALID;
    r = mli_phys_with_capacity(lord, device, &phys);
    if (r) return r;
    (void)memlord_capacity_get(lord, device, &c);
    if (!c.known && mli_phys_sample(lord, phys)) return MEMLORD_E_UNKNOWN;
    return mli_limit_set(lord, phys, 0, fraction);
}

MEMLORD_API int64_t memlord_headroom(memlord *lord, memlord_device device) {
    int64_t left = INT64_MAX;
    if (lord) (void)mli_dev_available(lord, device, &left);
    return left;
}

MEMLORD_API int memlord_would_fit(memlord *lord, memlord_device device, uint64_t bytes) {
    int64_t left;
    if (!lord || !mli_dev_available(lord, device, &left)) return -1;
    return left >= 0 && bytes <= (uint64_t)left;
}

MLI_API int memlord_plan_fit(memlord *lord, const memlord_block *blocks, size_t n,
                             int64_t *short_by) {
    int64_t worst = INT64_MIN, lack;
    int known = 1;
    size_t i;
    if (short_by) *short_by = 0;
    if (!lord || (n && !blocks)) return -1;
    for (i = 0; i < n; i++) {
        known &= mli_plan_lack(lord, blocks, n, i, &lack);
        if (lack > worst) worst = lack;
    }
    if (worst <= 0 && !known) return -1;
    if (short_by && worst != INT64_MIN) *short_by = worst;
    return worst <= 0;
}

MEMLORD_API memlord_result memlord_reserve(memlord *lord, memlord_device device, uint64_t bytes,
                                           memlord_ticket *out) {
    mli_reserve ask = {bytes, 0, 0, NULL};
    mli_thread *t;
    mli_phys *phys;
    memlord_result r;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    *out = 0;
    if (!lord) return MEMLORD_OK;
    if (bytes > MLI_BYTES_MAX) return MEMLORD_E_INVALID;
    r = mli_phys_find(lord, device, 1, &phys);
    if (r) return r;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_E_STATE;
    ask.account = mli_account_limited(lord, mli_account_used_on(lord, t, device));
    r = mli_reservation_open(lord, phys, t, &ask, out);
    if (r == MEMLORD_OK) mli_ticket_attach(lord, t, *out);
    mli_thread_put(lord, t);
    if (r == MEMLORD_E_LIMIT) mli_log_refusal(lord, device, ask.account, bytes);
    return mli_call_end_uncounted(lord, r);
}

MLI_API size_t memlord_explain(memlord *lord, memlord_device device, uint64_t wanted,
                               char *buf, size_t cap) {
    mli_phys *phys;
    /* memlord_explain allocates nothing, so it adds no device that was not yet seen. */
    if (lord && mli_phys_find(lord, device, 0, &phys) == MEMLORD_OK)
        mli_phys_sample_for_reader(lord, phys, 0);
    if (lord) return mli_explain_device(lord, device, wanted, 0, buf, cap);
    if (buf && cap) buf[0] = 0;
    return 0;
}

/* Returns the pressure level if `used` of `total` bytes are in use. The function multiplies
   and does not divide, because the registers of the x87 are wider than a double. There a quotient
   that is equal to the threshold could seem to be below it. */
static MLI_COLD int mli_pressure(uint64_t used, uint64_t total) {
    const double part = (double)used, all = (double)total;
    return part * 20 >= all * 19 ? MEMLORD_PRESSURE_CRITICAL
           : part * 5 >= all * 4 ? MEMLORD_PRESSURE_WARNING
                                 : MEMLORD_PRESSURE_NORMAL;
}
MLI_API int memlord_pressure_level(memlord *lord, memlord_device device) {
    mli_phys *phys;
    int level = MEMLORD_PRESSURE_UNKNOWN, limited;
    uint64_t live, all, held, used;
    if (!lord || mli_phys_read(lord, device, &phys)) return MEMLORD_PRESSURE_UNKNOWN;
    mli_lock_take(&phys->lock);
    live = mli_add_saturated(mli_phys_live(lord, phys), phys->ticket_bytes);
    all = mli_add_saturated(live, phys->neighbours);
    used = mli_phys_used(lord, phys, &held);
    held = mli_add_saturated(mli_add_saturated(held, phys->ticket_bytes), phys->neighbours);
    if (phys->sample.known)
        level = mli_pressure(held > used ? held : used, phys->sample.total);
    if (phys->limit) {
        limited = mli_pressure(phys->sample.known ? live : all, phys->limit);
        if (limited > level) level = limited;
    }
    if (phys->stalled && mli_now() - phys->stalled < 2000000000u &&
        level < MEMLORD_PRESSURE_WARNING)
        level = MEMLORD_PRESSURE_WARNING;
    if (phys->failing || phys->neighbour_failing) level = MEMLORD_PRESSURE_EMERGENCY;
    mli_lock_drop(&phys->lock);
    return level;
}

MLI_API memlord_result memlord_pool_set(memlord *lord, memlord_device device,
                                        uint64_t reserved, uint64_t largest_free) {
    uint32_t dev;
    mli_u64 *count;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = mli_device_valid(device) && reserved > MLI_POOL_MAX ? MEMLORD_E_INVALID
                                                            : mli_dev(lord, device, &dev);
    if (r)
        return mli_refuse(lord, MLI_REFUSER_pool_set, r, device, "a pool of more than 2^62 bytes",
                          NULL);
    count = mli_device_record_at(lord, dev)->count;
    mli_u64_store(&count[MLI_STAT_reserved], reserved);
    mli_u64_max(&count[MLI_STAT_reserved_peak], (int64_t)reserved);
    /* The number is stored plus 1, because the initial value 0 means that the largest free piece is
       not known. */
    mli_u64_store(&count[MLI_STAT_largest_free], largest_free + 1);
    return mli_pool_changed(lord, dev);
}

MLI_API memlord_result memlord_pool_add(memlord *lord, memlord_device device, int64_t delta) {
    return mli_refuse(lord, MLI_REFUSER_pool_add, mli_pool_add(lord, device, delta), device,
                      "a pool of less than 0 bytes, or of more than 2^62", NULL);
}
MEMLORD_API memlord_result memlord_pool_served(memlord *lord, memlord_device device,
                                               uint64_t hits, uint64_t misses) {
    uint32_t dev;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = mli_dev(lord, device, &dev);
    if (r) return mli_refuse(lord, MLI_REFUSER_pool_served, r, device, NULL, NULL);
    mli_stat_add(lord, dev, MLI_STAT_cache_hits, hits);
    mli_stat_add(lord, dev, MLI_STAT_cache_misses, misses);
    return MEMLORD_OK;
}
