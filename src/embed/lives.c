#include "embed/lives.h"
#include "base/ledger.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/atomics.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/names.h"
#include "books/devices.h"
#include "books/sites.h"
#include "books/anomalies.h"
#include "books/tags.h"
#include "books/events.h"
#include "books/parts.h"
#include "books/blocks.h"
#include "books/fences.h"
#include "books/accounts.h"
#include "books/limits.h"
#include "books/stacks.h"
#include "services/pollers.h"
#include "services/call_end.h"
#include "services/neighbours.h"
#include "services/bands.h"
#include "services/joint.h"
#include "services/scopes.h"
#include "services/contexts.h"
#include "services/room.h"
#include "services/retry.h"
#include "services/snapshots.h"
#include "embed/saving.h"

/* The modules, in the order in which a fork takes their locks, the outermost first, and in which
   they stop their threads. They are freed in the reverse order, so a module stands after those
   whose memory it refers to. */
static const mli_life *const mli_lives[] = {
    &mli_threads_life,
    &mli_map_life,
    &mli_counters_life,
    &mli_names_life,
    &mli_devices_life,
    &mli_sites_life,
    &mli_tags_life,
    &mli_events_life,
    &mli_parts_life,
    &mli_blocks_life,
    &mli_fences_life,
    &mli_contexts_life,
    &mli_pollers_life,
    &mli_call_end_life,
    &mli_neighbours_life,
    &mli_bands_life,
    &mli_limits_life,
    &mli_accounts_life,
    &mli_scopes_life,
    &mli_joint_life,
    &mli_room_life,
    &mli_retry_life,
    &mli_snapshots_life,
    &mli_saving_life,
    &mli_anomalies_life,
    &mli_log_life,
    &mli_stacks_life,
    &mli_memory_life,
};
#define MLI_LIVES (sizeof mli_lives / sizeof *mli_lives)

/* Rounds the size of a state up, so that the next state behind it is aligned. */
static size_t mli_state_room(size_t size) { return (size + 63) & ~(size_t)63; }

MLI_PRIVATE MLI_COLD size_t mli_lives_size(void) {
    size_t i, size = mli_state_room(sizeof(memlord));
    for (i = 0; i < MLI_LIVES; i++) size += mli_state_room(mli_lives[i]->size);
    return size;
}
MLI_PRIVATE MLI_COLD void mli_lives_init(memlord *lord, const memlord_desc *desc) {
    char *state = (char *)lord + mli_state_room(sizeof *lord);
    size_t i;
    for (i = 0; i < MLI_LIVES; i++) {
        const mli_life *life = mli_lives[i];
        if (life->size) memcpy((char *)lord + life->at, &state, sizeof state);
        state += mli_state_room(life->size);
    }
    for (i = 0; i < MLI_LIVES; i++) {
        const mli_life *life = mli_lives[i];
        if (life->init) life->init(lord, desc);
    }
}
MLI_PRIVATE MLI_COLD memlord_result mli_lives_open(memlord *lord, const memlord_desc *desc) {
    memlord_result r = MEMLORD_OK;
    size_t i;
    for (i = 0; i < MLI_LIVES && r == MEMLORD_OK; i++) {
        const mli_life *life = mli_lives[i];
        if (life->open) r = life->open(lord, desc);
    }
    return r;
}
MLI_PRIVATE MLI_COLD void mli_lives_stop(memlord *lord) {
    size_t i;
    for (i = 0; i < MLI_LIVES; i++) {
        const mli_life *life = mli_lives[i];
        if (life->stop) life->stop(lord);
    }
}
MLI_PRIVATE MLI_COLD void mli_lives_free(memlord *lord) {
    size_t i;
    for (i = MLI_LIVES; i--;) {
        const mli_life *life = mli_lives[i];
        if (life->free) life->free(lord);
    }
}

#if !MLI_WINDOWS /* Windows has no fork */
MLI_PRIVATE MLI_COLD void mli_lives_lock(int take) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    memlord *lord;
    size_t i;
    for (i = 0; i < MLI_LIVES; i++) {
        const mli_life *life = mli_lives[i];
        if (!life->lock) continue;
        MLI_LEDGERS_EACH(lord)
            life->lock(lord, take);
    }
}
MLI_PRIVATE MLI_COLD void mli_lives_forked(memlord *lord) {
    size_t i;
    for (i = 0; i < MLI_LIVES; i++) {
        const mli_life *life = mli_lives[i];
        if (life->forked) life->forked(lord);
    }
}
#endif
