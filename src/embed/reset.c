#include "embed/reset.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "base/log.h"
#include "base/atomics.h"
#include "books/threads.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/anomalies.h"
#include "books/blocks.h"
#include "books/stacks.h"
#include "services/bands.h"
#include "services/snapshots.h"
#include "services/scopes.h"
#include "services/stats.h"

/* -- public -- */

MLI_API void memlord_reset(memlord *lord) {
    mli_thread *t;
    uint32_t i;
    if (!lord) return;
    (void)mli_call_end_uncounted(lord, MEMLORD_OK); /* first: earlier requests report the old
                                                       totals */
    t = mli_thread_get(lord);
    if (!t) return;
    mli_lock_take(&mli_process.cold_lock);
    mli_counters_reset(lord, t);
    mli_blocks_reset(lord);
    mli_scopes_reset(lord);
    mli_stats_reset(lord);
    mli_anomalies_reset(lord);
    mli_stacks_reset(lord);
    mli_lock_drop(&mli_process.cold_lock);
    mli_thread_put(lord, t);
    for (i = 1; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++) mli_holders_restart(lord, i);
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
    for (i = 1; i < n; i++) {
        if (!mli_selects(sel, mli_device_record_at(lord, i)->device)) continue;
        mli_row_peak_reset(lord, t, i);
        mli_holders_restart(lord, i);
    }
    mli_thread_put(lord, t);
}
