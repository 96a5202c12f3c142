#include "cuda/forks.h"
#include "cuda/atfork.h"
#include "cuda/system.h"
#include "cuda/driver.h"
#include "cuda/nvml.h"
#include "cuda/seats.h"
#include "cuda/pools.h"
#include "cuda/events.h"
#include "cuda/scopes.h"

#if defined(_WIN32)
MLI_CUDA_PRIVATE void mli_cuda_fork_first(void) {}
MLI_CUDA_PRIVATE void mli_cuda_fork_locks(void) {}
#else
static void mli_cuda_locks_each(void (*change)(mli_cuda_lock *)) {
    change(&mli_cuda_process_lock);
    change(&mli_cuda_holders_lock);
    change(&mli_cuda_pools_lock);
    change(&mli_cuda_times_lock);
    change(&mli_cuda_streams_lock);
}
static void mli_cuda_fork_before(void) {
    mli_cuda_locks_each(mli_cuda_lock_take);
}
static void mli_cuda_fork_parent(void) {
    mli_cuda_locks_each(mli_cuda_lock_drop);
}
/* Empties the records of attached ledgers (seats) in the child. The callbacks of a ledger still
   point to its seat, but do nothing without a driver. */
static void mli_cuda_fork_child(void) {
    memset(&mli_cuda_process, 0, sizeof mli_cuda_process);
    mli_cuda_fork_parent();
}
/* Makes the child find no driver. Takes no lock, because mli_cuda_loaded_lock stays held in the
   child if the parent was loading the driver. */
static void mli_cuda_fork_absent(void) {
    static const char forked[] = "forked from the process that loaded the driver";
    if (mli_cuda_load(&mli_cuda_loaded.state) != MLI_CUDA_ABSENT)
        memcpy(mli_cuda_loaded.why, forked, sizeof forked);
    mli_cuda_store(&mli_cuda_loaded.state, MLI_CUDA_ABSENT);
}
MLI_CUDA_PRIVATE void mli_cuda_fork_first(void) {
    (void)pthread_atfork(NULL, NULL, mli_cuda_fork_absent);
}
MLI_CUDA_PRIVATE void mli_cuda_fork_locks(void) {
    (void)pthread_atfork(mli_cuda_fork_before, mli_cuda_fork_parent, mli_cuda_fork_child);
}
#endif
