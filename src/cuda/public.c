#include "cuda/public.h"
#include "cuda/system.h"
#include "cuda/driver.h"
#include "cuda/nvml.h"
#include "cuda/seats.h"
#include "cuda/pools.h"
#include "cuda/capacity.h"
#include "cuda/collection.h"
#include "cuda/events.h"
#include "cuda/streams.h"
#include "cuda/scopes.h"
#include "cuda/requests.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -- attach -- */

/* If `on` is 1, makes integrated GPUs share the cpu's memory in the ledger. These GPUs then have
   the capacity of the cpu, which a container may limit. If the ledger refuses, because
   reservations are open, a GPU stays a device of its own. If `on` is 0, undoes the sharing. */
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

/* Takes the seat's callbacks off its ledger. */
static void mli_cuda_unhook(mli_cuda_attachment *probe, const mli_cuda_driver *d) {
    uint64_t flags = mli_cuda_load(&probe->flags);
    (void)memlord_gc_callback_remove(probe->lord, memlord_device_cuda(MEMLORD_ANY),
                                     mli_cuda_collect, probe);
    if (!(flags & MEMLORD_CUDA_FLAG_NO_CAPACITY))
        (void)memlord_capacity_source_set(probe->lord, MEMLORD_DEVICE_CUDA, NULL, NULL);
    mli_cuda_share(probe, d, 0);
}

/* Registers, with the seat's ledger, the callbacks that the seat's flags ask for. */
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

/* Detaches the ledger of a seat that this thread has claimed. */
static void mli_cuda_attachment_end(mli_cuda_attachment *probe, const mli_cuda_driver *d) {
    int last;
    mli_cuda_unhook(probe, d);
    last = mli_cuda_attachment_fill(probe, MLI_CUDA_TAKEN, d, NULL);
    mli_cuda_times_read(probe->lord, NULL, 1);
    if (last) memlord_cuda_events_release();
}

/* Returns 1 if memlord_alloc_retry accepts a policy. Tests the bits of the multiplier: numbers from
   1 to the largest are between those of 1 and of infinity. */
static int mli_cuda_policy_valid(const memlord_retry *policy) {
    uint64_t bits;
    memcpy(&bits, &policy->multiplier, sizeof bits);
    return policy->max_ms >= policy->initial_ms && bits >= (uint64_t)0x3ff << 52 &&
           bits < (uint64_t)0x7ff << 52;
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
    if (desc->retry && !mli_cuda_policy_valid(desc->retry)) return MEMLORD_E_INVALID;
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
    if (!probe) return mli_cuda_attachment_of(lord) ? MEMLORD_E_STATE : MEMLORD_E_UNKNOWN;
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
    (void)site;
    if (r == cudaSuccess && props && lord)
        mli_cuda_pool_add(*pool, props->location.type == cudaMemLocationTypeDevice
                                     ? props->location.id : -1);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_pool_destroy(memlord *lord, cudaMemPool_t pool,
                                                  const memlord_site *site) {
    int device = 0, seen = lord && mli_cuda_pool_remove(pool, &device);
    cudaError_t r = MLI_CUDA_REAL(cudaMemPoolDestroy)(pool);
    (void)site;
    if (r != cudaSuccess && seen) mli_cuda_pool_add(pool, device);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_device_set_pool(memlord *lord, int device, cudaMemPool_t pool,
                                                     const memlord_site *site) {
    cudaError_t r = MLI_CUDA_REAL(cudaDeviceSetMemPool)(device, pool);
    (void)site;
    if (r == cudaSuccess && lord) mli_cuda_pool_add(pool, device);
    return r;
}

/* -- stream-ordered frees -- */

/* The use of a block on a stream. From mli_cuda_use_begin to mli_cuda_use_end the stream's
   record has one more user, so the record stays. */
typedef struct mli_cuda_use {
    mli_cuda_stream *stream; /* NULL if there was no memory */
    memlord_device device;   /* the device of the block */
    memlord_fence fence;
} mli_cuda_use;

/* Makes a fence for a block. A `placed` fence waits for the work that the stream has now, and an
   event is recorded for it. Any other fence waits for the work that the stream has when the block
   is freed. Returns 0 if there is no memory. */
static int mli_cuda_use_begin(memlord *lord, const void *ptr, cudaStream_t stream, int placed,
                              mli_cuda_use *use) {
    memlord_block_info block;
    int here;
    memset(use, 0, sizeof *use);
    use->device = memlord_device_cuda(0);
    if (mli_cuda_block_find(lord, MEMLORD_KEY(ptr), &block)) use->device = block.device;
    use->stream =
        mli_cuda_stream_find(mli_cuda_stream_handle(stream), use->device.index, &here);
    if (!use->stream) return 0;
    /* a per-thread stream needs its event now, because the thread that later asks whether the fence
       is done may be another one, and that thread cannot name this stream */
    placed |= use->stream->handle == cudaStreamPerThread;
    use->fence.user = mli_cuda_fence_on(use->stream, placed);
    use->fence.done = mli_cuda_fence_done;
    use->fence.drop = mli_cuda_fence_free;
    use->fence.queue = use->stream->number;
    if (!use->fence.user) return 0;
    if (placed) (void)mli_cuda_stream_record(use->stream, here);
    return 1;
}
/* Ends what mli_cuda_use_begin began, and returns `r`, the ledger's result. If `r` is an error, the
   ledger has not taken the fence, so this function frees it. */
static memlord_result mli_cuda_use_end(mli_cuda_use *use, memlord_result r) {
    if (r && use->fence.user) mli_cuda_fence_free(use->fence.user);
    if (use->stream) mli_cuda_stream_leave(use->stream);
    return r;
}

MEMLORD_API memlord_result memlord_cuda_record_use(memlord *lord, const void *ptr,
                                                   cudaStream_t stream) {
    mli_cuda_use use;
    memlord_result r = MEMLORD_E_NOMEM;
    if (!lord || !ptr) return MEMLORD_OK;
    if (mli_cuda_use_begin(lord, ptr, stream, 0, &use))
        r = memlord_block_use(lord, use.device, MEMLORD_KEY(ptr), use.fence);
    return mli_cuda_use_end(&use, r);
}

/* Gives the block its fence before the real free, because after the real free another thread may
   get the address. If there is no memory for a fence, the block does not wait for the stream. */
MEMLORD_API cudaError_t memlord_cuda_free_async_after(memlord *lord, void *ptr,
                                                      cudaStream_t stream,
                                                      const memlord_site *site) {
    mli_cuda_use use;
    memlord_result r = MEMLORD_E_NOMEM;
    cudaError_t answer;
    if (!lord || !ptr) return memlord_cuda_free_async(lord, ptr, stream, site);
    if (mli_cuda_use_begin(lord, ptr, stream, 1, &use)) {
        r = memlord_block_use(lord, use.device, MEMLORD_KEY(ptr), use.fence);
        mli_cuda_stream_answer(use.stream, 1);
    }
    answer = memlord_cuda_free_async(lord, ptr, stream, site);
    if (use.stream) mli_cuda_stream_answer(use.stream, 0);
    (void)mli_cuda_use_end(&use, r);
    return answer;
}

MEMLORD_API memlord_result memlord_cuda_record_free(memlord *lord, const void *ptr,
                                                    cudaStream_t stream,
                                                    const memlord_site *site) {
    mli_cuda_use use;
    memlord_result r = MEMLORD_E_NOMEM;
    if (!lord || !ptr) return MEMLORD_OK;
    if (mli_cuda_use_begin(lord, ptr, stream, 1, &use)) {
        mli_cuda_stream_answer(use.stream, 1);
        r = memlord_free_deferred(lord, use.device, MEMLORD_KEY(ptr), use.fence, site);
        mli_cuda_stream_answer(use.stream, 0);
    }
    (void)mli_cuda_use_end(&use, r);
    return r == MEMLORD_E_NOMEM ? memlord_free(lord, use.device, MEMLORD_KEY(ptr), site) : r;
}

MEMLORD_API void memlord_cuda_events_release(void) {
    mli_cuda_streams_forget();
    mli_cuda_events_end();
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
    scope->stream = mli_cuda_stream_handle(stream);
    mli_cuda_times_read(lord, &scope->stream, 0);
    probe = mli_cuda_attachment_of(lord);
    if (probe && mli_cuda_load(&probe->flags) & MEMLORD_CUDA_FLAG_TIME_SCOPES)
        scope->start = mli_cuda_time_begin(lord, memlord_scope_current(lord), scope->stream);
    return MEMLORD_OK;
}

MEMLORD_API memlord_result memlord_cuda_scope_end(memlord *lord, memlord_cuda_scope *scope) {
    if (!lord) return MEMLORD_OK;
    if (!scope) return MEMLORD_E_INVALID;
    if (!scope->begun) return MEMLORD_E_STATE;
    scope->begun = 0;
    mli_cuda_nvtx_end();
    if (scope->start) mli_cuda_time_end((mli_cuda_time *)scope->start);
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
