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
#include "cuda/frees.h"
#include "cuda/virtual.h"
#include "cuda/resets.h"

/* ---------------------------------------------------------------------- cuda/public --
   The functions of the API. */

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

/* -- wrapped functions: allocations -- */

#define MLI_CUDA_EACH2(f, a, b) f(a), f(b)
#define MLI_CUDA_EACH3(f, a, b, c) f(a), f(b), f(c)
#define MLI_CUDA_EACH4(f, a, b, c, d) f(a), f(b), f(c), f(d)
#define MLI_CUDA_EACH5(f, a, b, c, d, e) f(a), f(b), f(c), f(d), f(e)
/* ITEMS: before that MSVC takes the arguments for one */
#define MLI_CUDA_EACH(n, f, ...) MLI_CUDA_ITEMS(MLI_CUDA_EACH##n(f, __VA_ARGS__))
#define MLI_CUDA_SET(name) q.name = name
#define MLI_CUDA_GET(name) q->name
#define MLI_CUDA_ALLOC(real, ours, params, args, n, kind)                                     \
    static cudaError_t mli_cuda_call_##ours(const mli_cuda_request *q) {                      \
        return MLI_CUDA_REAL(real)(MLI_CUDA_EACH(n, MLI_CUDA_GET, MLI_CUDA_ITEMS args));      \
    }                                                                                         \
    MEMLORD_API cudaError_t memlord_cuda_##ours(memlord *lord, MLI_CUDA_ITEMS params,         \
                                                const memlord_site *site) {                   \
        mli_cuda_request q = mli_cuda_request_for(MLI_CUDA_##kind, mli_cuda_call_##ours);     \
        MLI_CUDA_EACH(n, MLI_CUDA_SET, MLI_CUDA_ITEMS args);                                  \
        return mli_cuda_alloc(lord, &q, site);                                                \
    }
MLI_CUDA_ALLOCS(MLI_CUDA_ALLOC)
#undef MLI_CUDA_ALLOC
#undef MLI_CUDA_EACH
#undef MLI_CUDA_EACH2
#undef MLI_CUDA_EACH3
#undef MLI_CUDA_EACH4
#undef MLI_CUDA_EACH5
#undef MLI_CUDA_SET
#undef MLI_CUDA_GET

MEMLORD_API cudaError_t memlord_cuda_malloc_retry(memlord *lord, void **ptr, size_t bytes,
                                                  const memlord_retry *policy,
                                                  const memlord_site *site) {
    mli_cuda_request q = mli_cuda_request_for(MLI_CUDA_PLAIN, mli_cuda_call_malloc);
    q.ptr = ptr;
    q.bytes = bytes;
    if (!lord) return q.call(&q);
    return mli_cuda_alloc_retry(lord, &q, policy, site);
}

MEMLORD_API cudaError_t memlord_cuda_host_register(memlord *lord, void *ptr, size_t bytes,
                                                   unsigned int flags, const memlord_site *site) {
    cudaError_t r = MLI_CUDA_REAL(cudaHostRegister)(ptr, bytes, flags);
    if (r == cudaSuccess && ptr)
        (void)memlord_alloc(lord, memlord_device_make(MEMLORD_DEVICE_PINNED, 0), MEMLORD_KEY(ptr),
                            bytes, site);
    return r;
}

/* -- wrapped functions: frees -- */

#define MLI_CUDA_FREE(real, ours, params, args, on)                                           \
    MEMLORD_API cudaError_t memlord_cuda_##ours(memlord *lord, MLI_CUDA_ITEMS params,         \
                                                const memlord_site *site) {                   \
        mli_cuda_ending end;                                                                  \
        mli_cuda_free_begin(lord, MEMLORD_DEVICE_##on, MLI_CUDA_ITEMS args, 1, &end, site);   \
        return mli_cuda_free_end(lord, &end, MLI_CUDA_REAL(real) args, site);                 \
    }
MLI_CUDA_FREES(MLI_CUDA_FREE)
#undef MLI_CUDA_FREE

MEMLORD_API cudaError_t memlord_cuda_free_async(memlord *lord, void *ptr, cudaStream_t stream,
                                                const memlord_site *site) {
    mli_cuda_ending end;
    cudaError_t r;
    mli_cuda_free_begin(lord, MEMLORD_DEVICE_CUDA, ptr, 0, &end, site);
    r = mli_cuda_free_end(lord, &end, MLI_CUDA_REAL(cudaFreeAsync)(ptr, stream), site);
    mli_cuda_pool_check(lord, 0);
    return r;
}

/* -- wrapped functions: streams -- */

static cudaError_t mli_cuda_synchronized(memlord *lord, const cudaStream_t *stream,
                                         cudaError_t answer) {
    (void)memlord_retire(lord, memlord_device_make(MEMLORD_DEVICE_CUDA, MEMLORD_ANY));
    (void)memlord_retire(lord, memlord_device_make(MEMLORD_DEVICE_PINNED, MEMLORD_ANY));
    if (lord) mli_cuda_times_read(lord, stream, 0);
    mli_cuda_pool_check(lord, 1);
    return answer;
}

MEMLORD_API cudaError_t memlord_cuda_stream_synchronize(memlord *lord, cudaStream_t stream,
                                                        const memlord_site *site) {
    cudaStream_t own = mli_cuda_stream(stream);
    (void)site;
    if (lord) mli_cuda_fences_record(&own, NULL, 0);
    return mli_cuda_synchronized(lord, &own, MLI_CUDA_REAL(cudaStreamSynchronize)(stream));
}

MEMLORD_API cudaError_t memlord_cuda_event_synchronize(memlord *lord, cudaEvent_t event,
                                                       const memlord_site *site) {
    (void)site;
    return mli_cuda_synchronized(lord, NULL, MLI_CUDA_REAL(cudaEventSynchronize)(event));
}

MEMLORD_API cudaError_t memlord_cuda_device_synchronize(memlord *lord, const memlord_site *site) {
    (void)site;
    if (lord) mli_cuda_fences_record(NULL, NULL, 0);
    return mli_cuda_synchronized(lord, NULL, MLI_CUDA_REAL(cudaDeviceSynchronize)());
}

MEMLORD_API cudaError_t memlord_cuda_device_reset(memlord *lord, const memlord_site *site) {
    const mli_cuda_driver *d = lord ? mli_cuda_driver_get() : NULL;
    const int device = d ? mli_cuda_device_current() : 0;
    mli_cuda_u64 *inside = d && device < d->known ? &mli_cuda_inside[device] : NULL;
    cudaError_t r;
    if (d) {
        mli_cuda_reset_begin(lord, d, device, site);
        memlord_cuda_events_release();
    }
    if (inside) (void)mli_cuda_add(inside, MLI_CUDA_RESETTING);
    while (inside && mli_cuda_load(inside) % MLI_CUDA_RESETTING) mli_cuda_yield();
    r = MLI_CUDA_REAL(cudaDeviceReset)();
    if (inside) (void)mli_cuda_add(inside, ~MLI_CUDA_RESETTING + 1);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_stream_end_capture(memlord *lord, cudaStream_t stream,
                                                        cudaGraph_t *graph,
                                                        const memlord_site *site) {
    cudaError_t r = MLI_CUDA_REAL(cudaStreamEndCapture)(stream, graph);
    (void)lord, (void)site;
    stream = mli_cuda_stream(stream);
    mli_cuda_fences_record(&stream, NULL, 0);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_stream_destroy(memlord *lord, cudaStream_t stream,
                                                    const memlord_site *site) {
    (void)lord, (void)site;
    if (!mli_cuda_is_default(stream)) mli_cuda_fences_record(&stream, NULL, 1);
    return MLI_CUDA_REAL(cudaStreamDestroy)(stream);
}

/* -- virtual memory -- */

#define MLI_CUDA_MEM(ours, params)                                                            \
    MEMLORD_API mli_cuda_result memlord_cuda_##ours(memlord *lord, MLI_CUDA_ITEMS params,     \
                                                    const memlord_site *site)
#define MLI_CUDA_MEM_DRIVER(d)                                                                \
    const mli_cuda_driver *d = mli_cuda_driver_get();                                         \
    if (!d || !d->mem_create) return (mli_cuda_result)MLI_CUDA_NOT_INITIALIZED

/* The errors of both have the same numbers. */
static cudaError_t mli_cuda_call_mem_create(const mli_cuda_request *q) {
    return (cudaError_t)mli_cuda_loaded.table.mem_create(q->handle, q->bytes, q->prop,
                                                         q->mem_flags);
}

MLI_CUDA_MEM(mem_create, (unsigned long long *handle, size_t bytes, const mli_cuda_prop *prop,
                          unsigned long long flags)) {
    mli_cuda_request q = mli_cuda_request_for(MLI_CUDA_PHYSICAL, mli_cuda_call_mem_create);
    int of[4] = {0, 0, 0, 0}; /* type, handle types, the location's type and number */
    memlord_meta meta;
    cudaError_t r;
    MLI_CUDA_MEM_DRIVER(d);
    if (prop) memcpy(of, prop, sizeof of);
    q.handle = handle, q.bytes = bytes, q.prop = prop, q.mem_flags = flags;
    q.location = of[2] == 1 ? memlord_device_cuda(mli_cuda_ordinal(d, of[3]))
                            : memlord_device_make(MEMLORD_DEVICE_PINNED, 0);
    r = mli_cuda_alloc(lord, &q, site);
    memset(&meta, 0, sizeof meta);
    meta.name = mli_cuda_physical;
    if (r == cudaSuccess) (void)memlord_block_describe(lord, q.location, *handle, &meta);
    return (mli_cuda_result)r;
}

MLI_CUDA_MEM(mem_release, (unsigned long long handle)) {
    const void *key = (const void *)(uintptr_t)handle;
    mli_cuda_ending end;
    memlord_block_info block;
    int known, r;
    MLI_CUDA_MEM_DRIVER(d);
    known = mli_cuda_block_find(lord, handle, &block);
    if (known && block.refs == 1) {
        mli_cuda_free_begin(lord, block.device.type, key, 1, &end, site);
        return (mli_cuda_result)mli_cuda_free_end(lord, &end, (cudaError_t)d->mem_release(handle),
                                                  site);
    }
    if (known) (void)memlord_release(lord, block.device, handle, site);
    r = d->mem_release(handle);
    if (known && r) (void)memlord_retain(lord, block.device, handle, site);
    return (mli_cuda_result)r;
}

MLI_CUDA_MEM(mem_map, (unsigned long long ptr, size_t bytes, size_t offset,
                       unsigned long long handle, unsigned long long flags)) {
    memlord_block_info block;
    memlord_meta meta;
    int r;
    MLI_CUDA_MEM_DRIVER(d);
    r = d->mem_map(ptr, bytes, offset, handle, flags);
    if (r || !mli_cuda_block_find(lord, handle, &block)) return (mli_cuda_result)r;
    memset(&meta, 0, sizeof meta);
    meta.name = mli_cuda_part;
    meta.shape[0] = (int64_t)ptr;
    meta.rank = 1;
    if (memlord_part_add(lord, block.device, handle, offset, bytes, &meta) == MEMLORD_OK)
        (void)memlord_retain(lord, block.device, handle, site);
    return (mli_cuda_result)r;
}

/* Mappings that are more than there is room for end before the real call, whatever that says. */
MLI_CUDA_MEM(mem_unmap, (unsigned long long ptr, size_t bytes)) {
    enum { ROOM = 64, GRAIN = 2 << 20 }; /* a mapping is a multiple of that */
    mli_cuda_mapping held[ROOM], m;
    uint64_t at = ptr;
    int n = 0, r;
    MLI_CUDA_MEM_DRIVER(d);
    for (; at - ptr < bytes && mli_cuda_mapping_begin(lord, d, at, &m);
         at += m.bytes ? m.bytes : (uint64_t)GRAIN) {
        if (!m.bytes) continue;
        if (n < ROOM)
            held[n++] = m;
        else
            mli_cuda_mapping_end(lord, d, &m, 1, site);
    }
    r = d->mem_unmap(ptr, bytes);
    while (n--) mli_cuda_mapping_end(lord, d, &held[n], r == 0, site);
    return (mli_cuda_result)r;
}

MLI_CUDA_MEM(mem_retain_handle, (unsigned long long *handle, void *ptr)) {
    memlord_block_info block;
    int r;
    MLI_CUDA_MEM_DRIVER(d);
    r = d->mem_retain_handle(handle, ptr);
    if (r == 0 && mli_cuda_block_find(lord, *handle, &block))
        (void)memlord_retain(lord, block.device, *handle, site);
    return (mli_cuda_result)r;
}
#undef MLI_CUDA_MEM
#undef MLI_CUDA_MEM_DRIVER

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
