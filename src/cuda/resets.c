#include "cuda/resets.h"
#include "cuda/system.h"
#include "cuda/capacity.h"
#include "cuda/collection.h"
#include "cuda/events.h"
#include "cuda/scopes.h"
#include "cuda/virtual.h"

/* Under the lock. Of a taken fence whose context is not known yet it may be this one. */
static int mli_cuda_fence_is_in(const mli_cuda_fence *fence, const void *context) {
    return fence->context == context || (fence->taken && !fence->context);
}

/* Waits until no other thread records an event in a context. */
static void mli_cuda_fences_await(const void *context) {
    mli_cuda_fence *fence, *next;
    int due;
    mli_cuda_lock_take(&mli_cuda_unrecorded_lock);
    for (due = 0; due < 2; due++)
        for (fence = mli_cuda_unrecorded[due]; fence; fence = next)
            next = fence->taken && mli_cuda_fence_is_in(fence, context)
                       ? mli_cuda_fences_wait(due)
                       : fence->next;
    mli_cuda_lock_drop(&mli_cuda_unrecorded_lock);
}

/* Inside a context that is about to end: fences that were to be recorded on its streams are lost,
   and the events they keep for it. */
static void mli_cuda_fences_lose(const mli_cuda_driver *d, void *context) {
    mli_cuda_fence *fence, *next, *dropped = NULL;
    int due;
    mli_cuda_lock_take(&mli_cuda_unrecorded_lock);
    for (due = 0; due < 2; due++)
        for (fence = mli_cuda_unrecorded[due]; fence; fence = next) {
            next = fence->next;
            if (!mli_cuda_fence_is_in(fence, context)) continue;
            if (fence->taken) {
                next = mli_cuda_fences_wait(due);
                continue;
            }
            mli_cuda_fence_take(fence);
            if (fence->event) (void)d->event_destroy(fence->event);
            fence->event = NULL;
            next = mli_cuda_fence_publish(fence, MLI_CUDA_LOST, &dropped);
        }
    mli_cuda_lock_drop(&mli_cuda_unrecorded_lock);
    mli_cuda_fences_free(dropped);
}

typedef struct mli_cuda_reset {
    memlord *lord;
    int device;
    const memlord_site *site;
} mli_cuda_reset;

/* memlord_block_fn: ends a block that goes with the device. CUDA keeps what comes from pools, and
   physical memory; page-locked memory is the device's if the driver says so. */
static int mli_cuda_reset_block(void *user, const memlord_block_info *block) {
    const mli_cuda_reset *reset = (const mli_cuda_reset *)user;
    const mli_cuda_driver *d = mli_cuda_driver_get();
    const int ours = block->device.type == MEMLORD_DEVICE_CUDA;
    cudaMemPool_t pool = NULL;
    int device = ours ? reset->device : -1;
    if (!d || block->pending || (block->meta.name && !strcmp(block->meta.name, mli_cuda_physical)))
        return 0;
    if (d->pointer_attribute(&pool, MLI_CUDA_POINTER_POOL, block->storage)) pool = NULL;
    if (!ours && d->pointer_attribute(&device, MLI_CUDA_POINTER_DEVICE, block->storage))
        device = -1;
    if (pool || device != reset->device) return 0;
    mli_cuda_pool_beside(reset->lord, block->device, -(int64_t)block->bytes);
    (void)memlord_free(reset->lord, block->device, block->storage, reset->site);
    return 0;
}

MLI_CUDA_PRIVATE void mli_cuda_reset_begin(memlord *lord, const mli_cuda_driver *d, int device,
                                           const memlord_site *site) {
    mli_cuda_reset reset;
    void *context = NULL;
    int mode, before = mli_cuda_asker;
    if (!mli_cuda_enter_device(d, device, &mode)) return;
    reset.lord = lord, reset.device = device, reset.site = site;
    (void)d->context_current(&context);
    mli_cuda_fences_record(NULL, NULL, 0);
    mli_cuda_fences_await(context); /* what is recorded can be waited for, now and not later */
    mli_cuda_asker = MLI_CUDA_WAITS;
    (void)memlord_blocks_each(lord, memlord_device_cuda(device), 0, mli_cuda_reset_block, &reset);
    (void)memlord_blocks_each(lord, memlord_device_make(MEMLORD_DEVICE_PINNED, MEMLORD_ANY), 0,
                              mli_cuda_reset_block, &reset);
    (void)memlord_retire(lord, memlord_device_all());
    mli_cuda_times_read(lord, NULL, 0);
    mli_cuda_asker = before;
    mli_cuda_fences_lose(d, context);
    mli_cuda_leave_device(d, device, &mode);
}
