#include "cuda/seats.h"
#include "cuda/nvml.h"

MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_process_lock = MLI_CUDA_LOCK;
MLI_CUDA_VARIABLE_HERE(mli_cuda_process_state mli_cuda_process)

MLI_CUDA_PRIVATE mli_cuda_attachment *mli_cuda_attachment_of(memlord *lord) {
    int i;
    if (!lord || !mli_cuda_load(&mli_cuda_process.taken)) return NULL;
    for (i = 0; i < MEMLORD_CUDA_MAX_LEDGERS; i++)
        if (mli_cuda_load_acquire(&mli_cuda_process.seats[i].key) == (uint64_t)(uintptr_t)lord)
            return &mli_cuda_process.seats[i];
    return NULL;
}

MLI_CUDA_PRIVATE mli_cuda_attachment *mli_cuda_attachment_claim(memlord *lord, int *seen) {
    mli_cuda_attachment *probe = NULL;
    int i;
    mli_cuda_lock_take(&mli_cuda_process_lock);
    for (i = 0; i < MEMLORD_CUDA_MAX_LEDGERS; i++) {
        mli_cuda_attachment *seat = &mli_cuda_process.seats[i];
        if (seat->state == MLI_CUDA_EMPTY ? !probe : seat->lord == lord) probe = seat;
    }
    if (probe && probe->state == MLI_CUDA_CHANGING) probe = NULL;
    if (probe) {
        *seen = probe->state;
        /* a taken seat already has this ledger in `lord`, and a callback may be reading `lord` */
        if (*seen == MLI_CUDA_EMPTY) probe->lord = lord;
        probe->state = MLI_CUDA_CHANGING;
    }
    mli_cuda_lock_drop(&mli_cuda_process_lock);
    return probe;
}

MLI_CUDA_PRIVATE void mli_cuda_attachment_set_state(mli_cuda_attachment *probe, int state) {
    mli_cuda_lock_take(&mli_cuda_process_lock);
    probe->state = state;
    mli_cuda_lock_drop(&mli_cuda_process_lock);
}

MLI_CUDA_PRIVATE int mli_cuda_attachment_fill(mli_cuda_attachment *probe, int seen,
                                              const mli_cuda_driver *d,
                                              const memlord_cuda_desc *desc) {
    int alone;
    if (probe->has_nvml) mli_cuda_nvml_release();
    probe->has_nvml = desc && !(desc->flags & MEMLORD_CUDA_FLAG_NO_NVML);
    if (probe->has_nvml) mli_cuda_nvml_acquire(d, desc->nvml);
    mli_cuda_lock_take(&mli_cuda_process_lock);
    if (seen == MLI_CUDA_TAKEN) mli_cuda_add(&mli_cuda_process.taken, UINT64_MAX);
    alone = mli_cuda_load(&mli_cuda_process.taken) == 0;
    if (desc) mli_cuda_add(&mli_cuda_process.taken, 1);
    mli_cuda_store(&probe->flags, desc ? desc->flags : 0);
    mli_cuda_store(&probe->keep_bytes, desc ? desc->keep_bytes : 0);
    probe->has_retry = desc && desc->retry;
    if (probe->has_retry) probe->retry = *desc->retry;
    /* the release store pairs with the acquire load in mli_cuda_attachment_of */
    mli_cuda_store_release(&probe->key, desc ? (uint64_t)(uintptr_t)probe->lord : 0);
    mli_cuda_lock_drop(&mli_cuda_process_lock);
    return alone && !desc;
}
