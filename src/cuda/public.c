#include "cuda/public.h"
#include "cuda/system.h"
#include "cuda/driver.h"
#include "cuda/nvml.h"
#include "cuda/seats.h"
#include "cuda/pools.h"
#include "cuda/capacity.h"
#include "cuda/collection.h"
#include "cuda/events.h"
#include "cuda/scopes.h"
#include "cuda/requests.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -- attach -- */

/* An integrated GPU's memory is the cpu's, so that what is known of that, containers' limits
   included, holds for it. Reservations in the way leave it a place of its own. */
static void mli_cuda_share(mli_cuda_attachment *probe, const mli_cuda_driver *d, int on) {
    int i;
    for (i = 0; i < d->known; i++) {
        memlord_device device = memlord_device_cuda(i), with = on ? memlord_device_cpu() : device;
        if (on ? d->integrated[i] : probe->shared[i])
            probe->shared[i] = memlord_device_share(probe->lord, device, with) == MEMLORD_OK && on;
        if (on) continue;
        mli_cuda_store(&probe->pooled[i], 0);
        mli_cuda_store(&probe->before[i], 0);
        mli_cuda_store(&probe->context[i], 0);
        mli_cuda_store(&probe->identified[i], 0);
    }
}

static void mli_cuda_unhook(mli_cuda_attachment *probe, const mli_cuda_driver *d) {
    uint64_t flags = mli_cuda_load(&probe->flags);
    (void)memlord_gc_callback_remove(probe->lord, memlord_device_cuda(MEMLORD_ANY),
                                     mli_cuda_collect, probe);
    if (!(flags & MEMLORD_CUDA_FLAG_NO_CAPACITY))
        (void)memlord_capacity_source_set(probe->lord, MEMLORD_DEVICE_CUDA, NULL, NULL);
    mli_cuda_share(probe, d, 0);
}

static memlord_result mli_cuda_hook(mli_cuda_attachment *probe, const mli_cuda_driver *d) {
    uint64_t flags = mli_cuda_load(&probe->flags), total, used;
    memlord_result r = MEMLORD_OK;
    int i;
    for (i = 0; i < d->known && !(flags & MEMLORD_CUDA_FLAG_NO_NVML); i++)
        if (!mli_cuda_active(d, i) && mli_cuda_nvml_query(i, &total, &used))
            mli_cuda_store(&probe->before[i], used);
    if (!(flags & MEMLORD_CUDA_FLAG_NO_CAPACITY)) {
        mli_cuda_share(probe, d, 1);
        r = memlord_capacity_source_set(probe->lord, MEMLORD_DEVICE_CUDA, mli_cuda_capacity, probe);
    }
    if (r == MEMLORD_OK && !(flags & MEMLORD_CUDA_FLAG_NO_TRIM))
        r = memlord_gc_callback_add(probe->lord, memlord_device_cuda(MEMLORD_ANY),
                                    MEMLORD_GC_QUIET, mli_cuda_collect, probe);
    return r;
}

/* Gives up a claimed seat that is taken. */
static void mli_cuda_attachment_end(mli_cuda_attachment *probe, const mli_cuda_driver *d) {
    int last;
    mli_cuda_unhook(probe, d);
    last = mli_cuda_attachment_fill(probe, MLI_CUDA_TAKEN, d, NULL);
    mli_cuda_times_read(probe->lord, NULL, 1);
    if (last) memlord_cuda_events_release();
}

MEMLORD_API memlord_result memlord_cuda_attach(memlord *lord, const memlord_cuda_desc *desc) {
    const mli_cuda_driver *d;
    mli_cuda_attachment *probe;
    memlord_cuda_desc zeros;
    memlord_result r;
    int seen = MLI_CUDA_EMPTY;
    memset(&zeros, 0, sizeof zeros);
    if (!desc) desc = &zeros;
    if (!lord) return MEMLORD_OK;
    if (desc->retry && memlord_retry_check(desc->retry)) return MEMLORD_E_INVALID;
    d = mli_cuda_driver_get();
    if (!d) return MEMLORD_E_UNSUPPORTED;
    probe = mli_cuda_attachment_claim(lord, &seen);
    if (!probe) return MEMLORD_E_STATE;
    if (seen == MLI_CUDA_TAKEN) mli_cuda_unhook(probe, d);
    (void)mli_cuda_attachment_fill(probe, seen, d, desc);
    r = mli_cuda_hook(probe, d);
    if (r) mli_cuda_attachment_end(probe, d);
    mli_cuda_attachment_set_state(probe, r ? MLI_CUDA_EMPTY : MLI_CUDA_TAKEN);
    return r;
}

MEMLORD_API memlord_result memlord_cuda_detach(memlord *lord) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_attachment *probe;
    int seen = MLI_CUDA_EMPTY;
    if (!lord) return MEMLORD_OK;
    if (!d) return MEMLORD_E_UNKNOWN;
    probe = mli_cuda_attachment_claim(lord, &seen);
    if (!probe) return MEMLORD_E_STATE;
    if (seen == MLI_CUDA_TAKEN) mli_cuda_attachment_end(probe, d);
    mli_cuda_attachment_set_state(probe, MLI_CUDA_EMPTY);
    return seen == MLI_CUDA_TAKEN ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MEMLORD_API int memlord_cuda_attached(memlord *lord) {
    return mli_cuda_attachment_of(lord) != NULL;
}

MEMLORD_API const char *memlord_cuda_why(void) {
    (void)mli_cuda_driver_get();
    return mli_cuda_loaded.why;
}

/* -- pools -- */

MEMLORD_API memlord_result memlord_cuda_pool_get(memlord *lord, int device,
                                                 memlord_cuda_pool *out) {
    const mli_cuda_driver *d;
    int mode, read;
    if (out) memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!out) return MEMLORD_E_INVALID;
    d = mli_cuda_driver_get();
    if (!d) return MEMLORD_E_UNSUPPORTED;
    if (device < 0 || device >= d->known) return MEMLORD_E_DEVICE;
    if (!d->pools[device]) return MEMLORD_E_UNSUPPORTED;
    if (!mli_cuda_active(d, device)) return MEMLORD_E_STATE;
    if (!mli_cuda_enter_device(d, device, &mode)) return MEMLORD_E_UNKNOWN;
    read = mli_cuda_pools_ask(d, device, NULL, out);
    mli_cuda_leave_device(d, device, &mode);
    if (!read) memset(out, 0, sizeof *out);
    return read ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MEMLORD_API memlord_result memlord_cuda_pool_refresh(memlord *lord, int device) {
    memlord_cuda_pool pool;
    memlord_result r = memlord_cuda_pool_get(lord, device, &pool);
    if (r) return r;
    return memlord_pool_set(lord, memlord_device_cuda(device),
                            mli_cuda_pool_reserved(lord, device, &pool), UINT64_MAX);
}

MEMLORD_API cudaError_t memlord_cuda_pool_create(memlord *lord, cudaMemPool_t *pool,
                                                 const struct cudaMemPoolProps *props,
                                                 const memlord_site *site) {
    cudaError_t r = MLI_CUDA_REAL(cudaMemPoolCreate)(pool, props);
    (void)lord, (void)site;
    if (r == cudaSuccess && props)
        mli_cuda_pool_add(*pool, props->location.type == cudaMemLocationTypeDevice
                                     ? props->location.id : -1);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_pool_destroy(memlord *lord, cudaMemPool_t pool,
                                                  const memlord_site *site) {
    int device, seen = mli_cuda_pool_remove(pool, &device);
    cudaError_t r = MLI_CUDA_REAL(cudaMemPoolDestroy)(pool);
    (void)lord, (void)site;
    if (r != cudaSuccess && seen) mli_cuda_pool_add(pool, device);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_device_set_pool(memlord *lord, int device, cudaMemPool_t pool,
                                                     const memlord_site *site) {
    const mli_cuda_driver *d = lord ? mli_cuda_driver_get() : NULL;
    cudaMemPool_t before = NULL;
    cudaError_t r;
    (void)site;
    if (d && device >= 0 && device < d->known && d->pools[device])
        (void)d->pool_current(&before, d->handle[device]);
    r = MLI_CUDA_REAL(cudaDeviceSetMemPool)(device, pool);
    if (r == cudaSuccess && before) mli_cuda_pool_add(before, device);
    if (r == cudaSuccess) mli_cuda_pool_add(pool, device);
    return r;
}

/* -- stream-ordered frees -- */

/* A fence on what a stream was given so far, for a block; and its device. NULL: no memory. */
static mli_cuda_fence *mli_cuda_fence_for(memlord *lord, const void *ptr, cudaStream_t stream,
                                          memlord_device *device, memlord_fence *out) {
    memlord_block_info block;
    mli_cuda_fence *fence;
    *device = memlord_device_cuda(0);
    if (mli_cuda_block_find(lord, MEMLORD_KEY(ptr), &block)) *device = block.device;
    fence = mli_cuda_fence_on(stream, device->index, 0);
    if (!fence) return NULL;
    out->done = mli_cuda_fence_done;
    out->user = fence;
    out->drop = mli_cuda_fence_free;
    out->queue = mli_cuda_fence_queue(fence);
    return fence;
}

/* A use of a block; its event is `due` once it may be recorded, or else when the block is freed. */
static memlord_result mli_cuda_use(memlord *lord, const void *ptr, cudaStream_t stream, int due) {
    memlord_fence fence;
    memlord_device device;
    mli_cuda_fence *own;
    memlord_result r;
    if (!lord || !ptr) return MEMLORD_OK;
    own = mli_cuda_fence_for(lord, ptr, stream, &device, &fence);
    if (!own) return MEMLORD_E_NOMEM;
    own->due = (unsigned char)due;
    mli_cuda_fence_begin(own, !due && own->stream == cudaStreamPerThread);
    r = memlord_block_use(lord, device, MEMLORD_KEY(ptr), fence);
    if (r) mli_cuda_fence_free(own);
    return r;
}

MEMLORD_API memlord_result memlord_cuda_record_use(memlord *lord, const void *ptr,
                                                   cudaStream_t stream) {
    return mli_cuda_use(lord, ptr, stream, 0);
}

/* Pending from before the real free on, as another thread may get the address; its event comes
   after that. Without memory for an event the block is credited at once. */
MEMLORD_API cudaError_t memlord_cuda_free_async_after(memlord *lord, void *ptr,
                                                      cudaStream_t stream,
                                                      const memlord_site *site) {
    int before = mli_cuda_asker;
    cudaError_t r;
    (void)mli_cuda_use(lord, ptr, stream, 1);
    mli_cuda_asker = MLI_CUDA_FREES_FIRST;
    r = memlord_cuda_free_async(lord, ptr, stream, site);
    mli_cuda_asker = before;
    if (lord) mli_cuda_fences_record(NULL, NULL, 0);
    return r;
}

MEMLORD_API memlord_result memlord_cuda_record_free(memlord *lord, const void *ptr,
                                                    cudaStream_t stream,
                                                    const memlord_site *site) {
    memlord_fence fence;
    memlord_device device;
    mli_cuda_fence *own;
    memlord_result r = MEMLORD_E_NOMEM;
    int before = mli_cuda_asker;
    if (!lord || !ptr) return MEMLORD_OK;
    own = mli_cuda_fence_for(lord, ptr, stream, &device, &fence);
    if (own) {
        /* now, and not in the ledger's first question, which a deferring one asks later */
        mli_cuda_fence_begin(own, 1);
        mli_cuda_asker = MLI_CUDA_FREES;
        r = memlord_free_deferred(lord, device, MEMLORD_KEY(ptr), fence, site);
        mli_cuda_asker = before;
        if (r) mli_cuda_fence_free(own);
    }
    return r == MEMLORD_E_NOMEM ? memlord_free(lord, device, MEMLORD_KEY(ptr), site) : r;
}

MEMLORD_API void memlord_cuda_events_release(void) {
    mli_cuda_fence *gone = NULL, *fence;
    int i;
    mli_cuda_lock_take(&mli_cuda_events_lock);
    for (i = 0; i < MLI_CUDA_BINS; i++) {
        mli_cuda_events[i].context = NULL;
        while ((fence = mli_cuda_fence_pop(&mli_cuda_events[i])) != NULL) {
            fence->next = gone;
            gone = fence;
        }
    }
    mli_cuda_lock_drop(&mli_cuda_events_lock);
    while ((fence = gone) != NULL) {
        gone = fence->next;
        mli_cuda_event_end(fence->context, fence->event);
        fence->event = NULL;
        mli_cuda_fence_free(fence);
    }
}

/* -- scopes -- */

MEMLORD_API memlord_result memlord_cuda_scope_begin(memlord *lord, memlord_cuda_scope *scope,
                                                    const char *name, cudaStream_t stream) {
    mli_cuda_attachment *probe;
    memlord_result r;
    if (scope) memset(scope, 0, sizeof *scope);
    if (!lord) return MEMLORD_OK;
    if (!scope) return MEMLORD_E_INVALID;
    r = memlord_scope_begin(lord, name);
    if (r) return r;
    mli_cuda_nvtx_push(name);
    scope->begun = 1;
    scope->stream = mli_cuda_stream(stream);
    mli_cuda_times_read(lord, &scope->stream, 0);
    probe = mli_cuda_attachment_of(lord);
    if (!probe || !(mli_cuda_load(&probe->flags) & MEMLORD_CUDA_FLAG_TIME_SCOPES))
        return MEMLORD_OK;
    scope->id = memlord_scope_current(lord);
    scope->start = mli_cuda_time_mark(stream);
    return MEMLORD_OK;
}

MEMLORD_API memlord_result memlord_cuda_scope_end(memlord *lord, memlord_cuda_scope *scope) {
    mli_cuda_time time;
    if (!lord) return MEMLORD_OK;
    if (!scope) return MEMLORD_E_INVALID;
    if (!scope->begun) return MEMLORD_E_STATE;
    scope->begun = 0;
    mli_cuda_nvtx_end();
    time.lord = lord;
    time.scope = scope->id;
    time.start = (mli_cuda_fence *)scope->start;
    time.stop = time.start ? mli_cuda_time_mark(scope->stream) : NULL;
    if (time.stop)
        mli_cuda_time_push(&time);
    else if (time.start)
        mli_cuda_fence_free(time.start);
    mli_cuda_times_read(lord, &scope->stream, 0);
    return memlord_scope_end(lord);
}

MEMLORD_API memlord_result memlord_cuda_checkpoint(memlord *lord, const char *name) {
    memlord_result r = memlord_checkpoint(lord, name);
    if (r == MEMLORD_OK && lord)
        mli_cuda_nvtx_mark(name, memlord_allocated(lord, memlord_device_all()));
    return r;
}

#ifdef __cplusplus
} /* extern "C" */
#endif
