#include "services/retry.h"
#include "os/system.h"
#include "os/unwind.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/text.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/sites.h"
#include "books/anomalies.h"
#include "books/events.h"
#include "books/parts.h"
#include "books/blocks.h"
#include "books/accounts.h"
#include "books/limits.h"
#include "services/bands.h"
#include "services/room.h"
#include "calls/deferred.h"
#include "services/neighbours.h"
#include "services/call_end.h"
#include "calls/record.h"
#include "calls/fast.h"

struct mli_retry_state {
    memlord_retry policy; /* the retry policy for calls that give no policy of their own */
    mli_u64 explained;    /* when memlord_alloc_failed last logged a line: see mli_log_due */
};

MLI_PRIVATE const memlord_retry mli_default_retry = {5, 50, 2000, 1.5, NULL, NULL};

/* -- MEMLORD_RETRY="max=5,initial_ms=50,multiplier=1.5,max_ms=2000" -- */

/* Parses a policy. After an error *out is unchanged. */
static MLI_COLD memlord_result mli_retry_parse(const char *text, memlord_retry *out) {
    static const char names[][12] = {"max=", "initial_ms=", "max_ms=", "multiplier="};
    memlord_retry read = *out;
    uint32_t *const fields[] = {&read.max_retries, &read.initial_ms, &read.max_ms};
    while (*text) {
        double value;
        size_t i = 0;
        while (i < 4 && strncmp(text, names[i], strlen(names[i]))) i++;
        if (i < 4) text = mli_read_number(text + strlen(names[i]), i == 3, &value);
        if (i == 4 || !text) return MEMLORD_E_INVALID;
        if (i == 3)
            read.multiplier = value;
        else
            *fields[i] = (uint32_t)value;
        if (*text == ',' && !*++text) return MEMLORD_E_INVALID;
    }
    *out = read;
    return MEMLORD_OK;
}

/* -- waiting -- */

/* Waits until `needed` bytes have been freed at a physical device since `out` (mli_phys_freed), or
   until the neighbours have released as many, but at most `ms` ms. Does not wait if the system has
   no event left to wait for. */
static MLI_NOINLINE MLI_COLD void mli_wait_freed(memlord *lord, mli_phys *phys, uint64_t needed,
                                                 uint64_t out, uint32_t ms) {
    const uint64_t deadline = mli_now() + (uint64_t)ms * 1000000u;
    const mli_neighbours *page = mli_neighbours_of(lord);
    mli_waiter w;
    mli_raise raise;
    uint64_t generation;
    uint32_t left = ms, step;
    int failed, raised;
    w.phys = phys;
    w.needed = needed ? needed : 1;
    w.freed_before = out;
    generation = mli_busy_begin();
    failed = mli_os_event_open(&w.event);
    mli_busy_end(generation);
    if (failed) return;
    mli_waiter_begin(lord, &w);
    raise.event = &w.event;
    raised = page && !page->raise_begin(lord, phys, w.needed, &raise);
    mli_barrier_threads(lord); /* from here on each free counts, or wakes this thread */
    while (mli_phys_freed(lord, phys) - w.freed_before < w.needed && left &&
           !(raised && page->raise_check(lord, &raise) > 0)) {
        step = raised ? mli_poll_ms(lord) : left;
        mli_os_event_wait(&w.event, step < left ? step : left);
        left = mli_ms_left(deadline);
    }
    if (raised) page->raise_end(lord, &raise);
    mli_waiter_end(lord, &w);
    mli_os_event_close(&w.event);
}

/* -- a request -- */

typedef struct mli_request {
    memlord *lord;
    mli_phys *phys;
    uint32_t dev;
    uint64_t bytes;
    memlord_alloc_opts opts;
    const memlord_retry *policy;
    memlord_ticket ticket; /* the request's own ticket; 0: it is not open */
    mli_cover cover;       /* bytes that other tickets gave to the request's own one */
    memlord_account refuser; /* the account whose limit applies to the request; 0: none */
    uint64_t freed_before; /* bytes ever freed at `phys` before the attempt */
    void *caller, *frame;  /* of the request: see mli_call */
} mli_request;

/* Reserves the bytes that no ticket covers, under the limits of the device and of the account. If
   they do not fit, it ends the pending blocks whose fences are done and tries again, then runs the
   collection callbacks and tries again. */
static MLI_COLD memlord_result mli_request_reserve(mli_request *q) {
    memlord *lord = q->lord;
    memlord_device d = mli_device_record_at(lord, q->dev)->device;
    const memlord_account said = q->opts.account;
    mli_reserve ask = {q->bytes, 0, q->opts.ticket, &q->cover};
    memlord_result r = MEMLORD_E_LIMIT;
    uint64_t reclaimed;
    int round;
    for (round = 0; round < 3 && r == MEMLORD_E_LIMIT; round++) {
        mli_thread *t;
        if (round == 1 && !mli_fences_retire(lord, d)) continue;
        if (round == 2 && mli_collect(lord, q->dev, MEMLORD_REASON_LIMIT,
                                      q->bytes - q->cover.bytes, &reclaimed))
            break;
        t = mli_thread_get(lord);
        ask.account = mli_account_limited(lord, said ? said : mli_account_used(lord, t, q->dev));
        r = mli_reservation_open(lord, q->phys, t, &ask, &q->ticket);
        mli_thread_put(lord, t);
    }
    q->refuser = ask.account;
    return r;
}
/* Ends a request's own ticket. What no alloc has taken goes back to the tickets that gave it. */
static MLI_COLD void mli_request_release(mli_request *q) {
    if (!q->ticket) return;
    if (q->cover.count) mli_cover_return(q->lord, q->phys, &q->cover, q->ticket);
    (void)memlord_reserve_commit(q->lord, q->ticket);
}

/* Records the new block, from the request's own ticket alone. Without memory it counts as dropped,
   and the request succeeds all the same, because the caller has the storage. */
static MLI_COLD void mli_request_record(mli_request *q, uint64_t storage) {
    const memlord_device device = mli_device_record_at(q->lord, q->dev)->device;
    mli_call own, *call;
    q->opts.ticket = q->ticket;
    if (mli_alloc_fast(q->lord, device, storage, q->bytes, q->opts.site, &q->opts) == MEMLORD_OK)
        return;
    call = mli_call_get(q->lord, &own, q->opts.site, q->caller, q->frame);
    (void)mli_alloc_general(q->lord, call, device, storage, q->bytes, &q->opts, MLI_PUT_ALLOC);
}

/* Counts a request for which no attempt found memory, as its device's last failed one. */
static MLI_COLD void mli_oom_note(memlord *lord, uint32_t dev, uint64_t bytes,
                                  const memlord_site *origin) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    const memlord_site *site = origin ? mli_site_kept(lord, origin) : NULL;
    uint64_t now = mli_ledger_now(lord), live = mli_phys_live(lord, mli_phys_at(lord, dev)), held;
    mli_phys *phys = mli_phys_lock(lord, dev);
    phys->failing = 1;
    device->oom.bytes = bytes;
    device->oom.live = live;
    device->oom.used = phys->sample.known ? mli_phys_used(lord, phys, &held) : UINT64_MAX;
    device->oom.site = site;
    device->oom.time = now ? now : 1;
    mli_lock_drop(&phys->lock);
    mli_stat_add(lord, dev, MLI_STAT_oom_failures, 1);
}

/* Logs a failed request. If `oom` is 1, no attempt found memory, and the failure is counted, too.
   If `oom` is 0, a limit refused the bytes that no ticket covers. */
static MLI_COLD void mli_request_failed(mli_request *q, int oom) {
    memlord *lord = q->lord;
    const uint64_t covered = q->cover.bytes;
    const char *head = covered ? "[limit] beyond its ticket, " : "[limit] ";
    if (!oom && mli_account_log_refusal(lord, q->refuser, q->bytes - q->cover.held)) return;
    if (oom) {
        (void)mli_phys_sample(lord, q->phys); /* collections may have run since the last sample */
        mli_oom_note(lord, q->dev, q->bytes, q->opts.site);
    } else {
        mli_phys_sample_refresh(lord, q->phys);
    }
    mli_log_explain(lord, MEMLORD_LOG_ERROR, oom ? "[oom] " : head,
                    mli_device_record_at(lord, q->dev)->device, oom ? q->bytes : q->bytes - covered,
                    oom ? covered : 0);
}

/* Counts an attempt that found no memory. */
static MLI_COLD void mli_attempt_failed(memlord *lord, uint32_t dev, uint64_t bytes) {
    mli_stat_add(lord, dev, MLI_STAT_oom_attempts, 1);
    mli_event_record_other(lord, MEMLORD_EVENT_OOM, dev, 0, bytes);
}

/* Returns E_INVALID if a value of the policy is out of its range. */
static MLI_COLD memlord_result mli_retry_check(const memlord_retry *policy) {
    return policy && (policy->max_ms < policy->initial_ms || mli_argument(&policy->multiplier) < 1)
               ? MEMLORD_E_INVALID
               : MEMLORD_OK;
}

MLI_API uint32_t memlord_retry_backoff(const memlord_retry *policy, uint32_t attempt) {
    const double most = 4294967296.0; /* over any max_ms; larger powers could overflow */
    double ms, power;
    if (!policy) policy = &mli_default_retry;
    if (mli_retry_check(policy) || !policy->initial_ms)
        return policy->initial_ms ? policy->max_ms : 0;
    ms = policy->initial_ms;
    for (power = policy->multiplier; attempt && ms < policy->max_ms; attempt >>= 1) {
        if (power > most) power = most;
        if (attempt & 1) ms *= power;
        power *= power;
    }
    return ms < policy->max_ms ? (uint32_t)mli_whole(ms) : policy->max_ms;
}

/* Pauses by the host's function sleep_ms. Asks the neighbours for memory before the pause, and
   withdraws that request after the pause. */
static MLI_NOINLINE MLI_COLD void mli_request_sleep(mli_request *q, uint32_t ms) {
    const mli_neighbours *page = mli_neighbours_of(q->lord);
    mli_raise raise;
    int raised;
    raise.event = NULL;
    raised = page && !page->raise_begin(q->lord, q->phys, q->bytes, &raise);
    q->policy->sleep_ms(q->policy->user, ms);
    if (raised) page->raise_end(q->lord, &raise);
}

/* Makes room between two attempts. Asks how full the device is, ends the pending blocks whose
   fences are done, and runs the collection callbacks. Then asks the neighbours and pauses: calls
   the policy's sleep_ms or, without one, waits until enough bytes were freed. */
static MLI_COLD void mli_request_reclaim(mli_request *q, uint32_t attempt) {
    memlord *lord = q->lord;
    uint64_t reclaimed;
    uint32_t ms = memlord_retry_backoff(q->policy, attempt);
    (void)mli_phys_sample(lord, q->phys);
    (void)mli_fences_retire(lord, mli_device_record_at(lord, q->dev)->device);
    (void)mli_collect(lord, q->dev, MEMLORD_REASON_OOM, q->bytes, &reclaimed);
    if (q->policy->sleep_ms)
        mli_request_sleep(q, ms);
    else if (ms)
        mli_wait_freed(lord, q->phys, q->bytes, q->freed_before, ms);
}

/* Runs the attempts, and records the block of the one that succeeds. A storage of 0 or UINT64_MAX
   counts as failed, because no ledger can record it. Requires: the bytes are reserved. */
static MLI_COLD memlord_result mli_request_try(mli_request *q, memlord_try_fn fn,
                                               void *user, uint64_t *storage) {
    const uint64_t outer = mli_self.try_lord;
    uint32_t attempt;
    int answer = 1;
    for (attempt = 0;; attempt++) {
        *storage = 0;
        if (attempt) mli_stat_add(q->lord, q->dev, MLI_STAT_retries, 1);
        q->freed_before = mli_phys_freed(q->lord, q->phys);
        mli_self.try_lord = q->lord->generation;
        answer = fn(user, q->bytes, storage);
        mli_self.try_lord = outer;
        if (!answer && mli_key_valid(*storage)) break;
        mli_attempt_failed(q->lord, q->dev, q->bytes);
        if (answer < 0 || attempt == q->policy->max_retries) {
            *storage = 0;
            return MEMLORD_E_OOM;
        }
        mli_request_reclaim(q, attempt);
    }
    if (attempt) mli_stat_add(q->lord, q->dev, MLI_STAT_recoveries, 1);
    mli_lock_take(&q->phys->lock);
    q->phys->failing = 0;
    mli_lock_drop(&q->phys->lock);
    mli_request_record(q, *storage);
    return MEMLORD_OK;
}

/* -- life -- */

static MLI_COLD void mli_retry_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    lord->retry->policy = mli_default_retry;
}
/* Applies the variable MEMLORD_RETRY. Logs and ignores a value that is no policy. */
static MLI_COLD memlord_result mli_retry_open(memlord *lord, const memlord_desc *desc) {
    memlord_retry policy = lord->retry->policy;
    char value[128];
    int set = desc->flags & MEMLORD_FLAG_NO_ENV
                  ? 0
                  : mli_env_read("MEMLORD_RETRY", value, sizeof value);
    if (set > 0 && !mli_retry_parse(value, &policy) && !mli_retry_check(&policy))
        lord->retry->policy = policy;
    else if (set)
        mli_log(lord, MEMLORD_LOG_WARNING,
                "[retry] MEMLORD_RETRY is ignored: it is like max=5,initial_ms=50,multiplier=1.5,"
                "max_ms=2000, with initial_ms at most max_ms and multiplier at least 1");
    return MEMLORD_OK;
}
MLI_PRIVATE const mli_life mli_retry_life = {MLI_LIFE_STATE(retry), mli_retry_init, mli_retry_open,
                                             NULL, NULL, NULL, NULL};

/* -- public -- */

MLI_API memlord_result memlord_alloc_retry(memlord *lord, memlord_device device,
                                           uint64_t bytes, memlord_try_fn fn, void *user,
                                           const memlord_retry *policy, uint64_t *storage,
                                           const memlord_alloc_opts *opts) {
    mli_request q;
    memlord_result r;
    if (storage) *storage = 0;
    if (!storage || !fn) return MEMLORD_E_INVALID;
    if (!lord || mli_self.in_host_alloc) {
        if (fn(user, bytes, storage) == 0) return MEMLORD_OK;
        *storage = 0;
        return MEMLORD_E_OOM;
    }
    if (bytes > MLI_BYTES_MAX || mli_retry_check(policy)) return MEMLORD_E_INVALID;
    memset(&q, 0, sizeof q);
    q.caller = MLI_RETURN_ADDRESS();
    q.frame = MLI_FRAME_ADDRESS();
    r = mli_dev(lord, device, &q.dev);
    if (r) return r;
    q.lord = lord;
    q.phys = mli_phys_at(lord, q.dev);
    q.bytes = bytes;
    if (!mli_opts_settle(lord, device, opts, &q.opts))
        mli_opts_refuse(lord, MLI_REFUSER_alloc_retry, device, q.opts.site);
    q.policy = policy ? policy : &lord->retry->policy;
    r = mli_request_reserve(&q);
    if (r == MEMLORD_OK) r = mli_request_try(&q, fn, user, storage);
    mli_request_release(&q);
    if (r == MEMLORD_E_OOM || r == MEMLORD_E_LIMIT)
        mli_request_failed(&q, r == MEMLORD_E_OOM);
    return r;
}

MLI_API memlord_result memlord_alloc_failed(memlord *lord, memlord_device device, uint64_t bytes,
                                            const memlord_site *site) {
    uint32_t dev;
    memlord_result r;
    if (!lord || mli_self.in_host_alloc || mli_self.try_lord == lord->generation)
        return MEMLORD_OK;
    r = bytes > MLI_BYTES_MAX ? MEMLORD_E_INVALID : mli_dev(lord, device, &dev);
    if (r)
        return mli_refuse(lord, MLI_REFUSER_alloc_failed, r, device, mli_block_fault(1, bytes),
                          site);
    mli_attempt_failed(lord, dev, bytes);
    mli_phys_sample_refresh(lord, mli_phys_at(lord, dev));
    mli_oom_note(lord, dev, bytes, site);
    if (mli_log_hears(lord, MEMLORD_LOG_ERROR) && mli_log_due(lord, &lord->retry->explained))
        mli_log_explain(lord, MEMLORD_LOG_ERROR, "[oom] ", device, bytes, 0);
    return mli_call_end_uncounted(lord, MEMLORD_OK);
}
