#include "embed/reset.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/log.h"
#include "books/threads.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/tags.h"
#include "books/stacks.h"
#include "books/blocks.h"
#include "books/limits.h"
#include "services/bands.h"
#include "services/scopes.h"
#include "services/stats.h"
#include "services/snapshots.h"

/* Resets the totals of a device that no cell counts. Levels stay, a peak becomes its level, all
   other totals become 0. Forgets the last failure, and that a band waits to be rearmed. */
static MLI_COLD void mli_device_reset(memlord *lord, uint32_t dev) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    mli_phys *phys = mli_phys_lock(lord, dev);
    int stat;
    for (stat = 0; stat < MLI_STAT_COUNT; stat++)
        if (mli_columns[stat].kind != MLI_KIND_LIVE)
            mli_u64_store(&device->count[stat], 0);
    mli_u64_store(&device->count[MLI_STAT_reserved_peak],
                  mli_u64_load(&device->count[MLI_STAT_reserved]));
    device->watch.waiting_rearm = 0;
    memset(&device->oom, 0, sizeof device->oom);
    mli_lock_drop(&phys->lock);
}

/* -- public -- */

MLI_API void memlord_reset(memlord *lord) {
    mli_thread *t;
    mli_route *route;
    uint32_t i, n;
    if (!lord) return;
    (void)mli_call_end_uncounted(lord, MEMLORD_OK); /* a requested report is of the old epoch */
    t = mli_thread_get(lord);
    if (!t) return;
    mli_lock_take(&mli_process.cold_lock);
    mli_counters_reset(lord, t);
    mli_stacks_reset(lord);
    n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 1; i < n; i++) mli_device_reset(lord, i);
    route = (mli_route *)mli_ptr_load(&lord->blocks.routes);
    for (; route; route = route->next) {
        mli_u64_store(&route->moves, 0);
        mli_u64_store(&route->moved_bytes, 0);
        mli_u64_store(&route->copies, 0);
        mli_u64_store(&route->copied_bytes, 0);
    }
    for (i = 1; i < mli_scope_count(lord); i++)
        mli_u64_store(&mli_scope_record_at(lord, i)->device_ns, 0);
    mli_lock_drop(&mli_process.cold_lock);
    mli_thread_put(lord, t);
    for (i = 1; i < n; i++) mli_holders_restart(lord, i);
    mli_phys_recheck(lord, NULL);
    mli_log(lord, MEMLORD_LOG_INFO, "[reset] a new epoch: totals 0, peaks at what is live");
}

MLI_API void memlord_peak_reset(memlord *lord, memlord_device sel) {
    mli_thread *t;
    uint32_t i, n;
    if (!lord || !mli_selector_valid(sel)) return;
    t = mli_thread_get(lord);
    if (!t) return;
    n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 1; i < n; i++)
        if (mli_selects(sel, mli_device_record_at(lord, i)->device)) {
            mli_row_peak_reset(lord, t, MLI_BOOK_DEVICE, i);
            mli_holders_restart(lord, i);
        }
    mli_thread_put(lord, t);
}
