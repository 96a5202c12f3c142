#include "base/ledger.h"

MLI_VARIABLE_HERE(mli_process_state mli_process)
MLI_VARIABLE_HERE(MEMLORD_THREAD_LOCAL mli_self_state mli_self)

MLI_PRIVATE uint64_t mli_ledger_now(memlord *lord) {
    return lord->clock.fn ? lord->clock.fn(lord->clock.user) : mli_now();
}
MLI_PRIVATE uint64_t mli_ledger_age(memlord *lord) {
    const uint64_t ended = mli_u64_load(&lord->program_ended);
    return (ended ? ended : mli_ledger_now(lord)) - lord->started;
}
MLI_PRIVATE void mli_lock_set(mli_lock *lock, int take) {
    if (take)
        mli_lock_take(lock);
    else
        mli_lock_drop(lock);
}
