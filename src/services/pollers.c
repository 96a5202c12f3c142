#include "services/pollers.h"
#include "os/system.h"
#include "base/atomics.h"
#include "base/text.h"
#include "base/log.h"
#include "books/threads.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/limits.h"
#include "services/bands.h"
#include "services/room.h"
#include "services/snapshots.h"
#include "calls/deferred.h"
#include "services/neighbours.h"
#include "services/call_end.h"

struct mli_pollers_state {
    uint32_t poll_ms_by_env; /* 1: the environment has set the interval */
};

/* -- pollers -- */

/* Declared before mli_phys_poller_start, because a poller may start other pollers. */
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

/* Stops all pollers and joins them. Requires: the caller is no thread of MemLord's own. */
static MLI_COLD void mli_pollers_stop(memlord *lord) {
    uint32_t i;
    mli_polling_set(lord, MLI_POLLING_OFF);
    for (i = 0; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++)
        mli_helper_stop(&mli_phys_storage(lord, i)->poller);
}

/* Starts the poller of the physical device that a device belongs to. Does nothing if that poller
   was started before, or if the device's type has no capacity source. */
static MLI_COLD memlord_result mli_dev_poller_start(memlord *lord, uint32_t dev) {
    mli_phys *phys = mli_phys_at(lord, dev);
    if (mli_u32_load(&phys->poller.state) != MLI_HELPER_NONE || !mli_polling_enabled(lord) ||
        mli_polling_is(lord, MLI_POLLING_OFF) ||
        !mli_capacity_reader_of(lord, phys->device.type).fn)
        return MEMLORD_OK;
    return mli_phys_poller_start(phys);
}

/* Starts the poller of main memory if a device type in the mask `types` has a capacity source. */
static MLI_COLD memlord_result mli_host_poller_start(memlord *lord, uint32_t types) {
    int type;
    for (type = 0; type < MLI_TYPE_COUNT; type++)
        if ((types >> type & 1) && mli_capacity_reader_of(lord, type).fn)
            return mli_phys_poller_start(mli_phys_storage(lord, 0));
    return MEMLORD_OK;
}

/* Starts the pollers of all known devices that want one: the devices with a strategy in force or,
   after memlord_poller_start, all devices. If MLI_ALERT_POLLER is set, it also starts the thread
   that takes snapshots, and the one that answers the ledgers of other processes. Under
   MEMLORD_FLAG_DEFER calls start no threads, because a new thread may get its stack from the very
   allocator that the calls come from. So if no known device wants a poller yet, this function
   starts the poller of main memory. That poller starts the others once their devices are known. */
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
/* Starts the poller of a device or, if `dev` is 0, those that calls have requested or could not
   start; under MEMLORD_FLAG_DEFER, when calls request none, those of all devices. */
static MLI_COLD void mli_pollers_start_missing(memlord *lord, uint32_t dev) {
    if (dev)
        (void)mli_dev_poller_start(lord, dev);
    else if ((lord->flags & MEMLORD_FLAG_DEFER) || mli_alert_on(lord, MLI_ALERT_POLLER))
        (void)mli_pollers_start(lord);
}

/* Runs a poller. Under MEMLORD_FLAG_DEFER it has the work of mli_serve. Otherwise calls check the
   bands; the poller samples, calls mli_fences_retire and writes requested reports. */
static MLI_COLD void mli_poller_run(void *user) {
    mli_phys *phys = (mli_phys *)user;
    memlord *lord = phys->lord;
    uint32_t i = 0;
    mli_self.is_helper = 1;
    do {
        (void)mli_phys_sample(lord, phys);
        mli_pollers_start_missing(lord, 0);
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
    lord->start_pollers = mli_pollers_start_missing;
}
/* Applies the variable MEMLORD_POLL_INTERVAL_MS, which overrides memlord_desc and
   memlord_poller_start. Logs and ignores a value that is too long, malformed or out of range. */
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
/* Notes in a forked child that no poller runs, because the parent's threads do not exist there. */
static MLI_COLD void mli_pollers_forked(memlord *lord) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 0; i < n; i++)
        mli_u32_store(&mli_phys_storage(lord, i)->poller.state, MLI_HELPER_NONE);
    if (mli_polling_is(lord, MLI_POLLING_ALL)) mli_alert_set(lord, MLI_ALERT_POLLER, 1);
}
MLI_PRIVATE const mli_life mli_pollers_life = {MLI_LIFE_STATE(pollers), mli_pollers_init,
                                               mli_pollers_open, mli_pollers_stop, NULL,
                                               mli_pollers_forked, NULL};

/* -- public -- */

MLI_API memlord_result memlord_poller_start(memlord *lord, uint32_t interval_ms) {
    uint32_t i;
    if (!lord) return MEMLORD_OK;
    if (interval_ms && interval_ms < MLI_POLL_MS_MIN) return MEMLORD_E_INVALID;
    if (!lord->pollers->poll_ms_by_env)
        mli_poll_ms_set(lord, interval_ms ? interval_ms : 200);
    if (!mli_polling_enabled(lord)) return MEMLORD_E_UNSUPPORTED;
    mli_polling_set(lord, MLI_POLLING_ALL);
    /* Each poller whose thread could not be started gets another try. */
    for (i = 0; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++) {
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
