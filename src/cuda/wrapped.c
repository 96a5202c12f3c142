#include "cuda/wrapped.h"
#include "cuda/system.h"
#include "cuda/driver.h"
#include "cuda/capacity.h"
#include "cuda/streams.h"
#include "cuda/scopes.h"
#include "cuda/requests.h"
#include "cuda/frees.h"
#include "cuda/virtual.h"
#include "cuda/resets.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -- wrapped functions: allocations -- */

#define MLI_CUDA_EACH2(f, a, b) f(a), f(b)
#define MLI_CUDA_EACH3(f, a, b, c) f(a), f(b), f(c)
#define MLI_CUDA_EACH4(f, a, b, c, d) f(a), f(b), f(c), f(d)
/* MSVC takes __VA_ARGS__ for one argument unless another macro, MLI_CUDA_ITEMS, expands it */
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

/* Is called after a wait of the host. Ends the frees whose streams have done their work, and reads
   the times of scopes that are done. `stream` is the stream that the host has waited for, or NULL
   if the wait was for an event or for the whole device. Returns `answer`. */
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
    cudaStream_t own = mli_cuda_stream_handle(stream);
    (void)site;
    if (lord) mli_cuda_streams_record(&own);
    return mli_cuda_synchronized(lord, &own, MLI_CUDA_REAL(cudaStreamSynchronize)(stream));
}

MEMLORD_API cudaError_t memlord_cuda_event_synchronize(memlord *lord, cudaEvent_t event,
                                                       const memlord_site *site) {
    (void)site;
    return mli_cuda_synchronized(lord, NULL, MLI_CUDA_REAL(cudaEventSynchronize)(event));
}

MEMLORD_API cudaError_t memlord_cuda_device_synchronize(memlord *lord, const memlord_site *site) {
    (void)site;
    if (lord) mli_cuda_streams_record(NULL);
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
    /* The addition is relaxed, as in mli_cuda_enter_device. The acquire load pairs with the release
       in mli_cuda_exit_device. */
    if (inside) (void)mli_cuda_add(inside, MLI_CUDA_RESETTING);
    while (inside && mli_cuda_load_acquire(inside) % MLI_CUDA_RESETTING) mli_cuda_yield();
    r = MLI_CUDA_REAL(cudaDeviceReset)();
    if (inside) (void)mli_cuda_add(inside, ~MLI_CUDA_RESETTING + 1);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_stream_end_capture(memlord *lord, cudaStream_t stream,
                                                        cudaGraph_t *graph,
                                                        const memlord_site *site) {
    cudaError_t r = MLI_CUDA_REAL(cudaStreamEndCapture)(stream, graph);
    (void)site;
    stream = mli_cuda_stream_handle(stream);
    if (lord) mli_cuda_streams_record(&stream);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_stream_destroy(memlord *lord, cudaStream_t stream,
                                                    const memlord_site *site) {
    (void)site;
    if (lord && !mli_cuda_is_default(stream)) mli_cuda_streams_end(&stream, NULL);
    return MLI_CUDA_REAL(cudaStreamDestroy)(stream);
}

/* -- virtual memory -- */

#define MLI_CUDA_MEM(ours, params)                                                            \
    MEMLORD_API mli_cuda_result memlord_cuda_##ours(memlord *lord, MLI_CUDA_ITEMS params,     \
                                                    const memlord_site *site)
#define MLI_CUDA_MEM_DRIVER(d)                                                                \
    const mli_cuda_driver *d = mli_cuda_driver_get();                                         \
    if (!d || !d->mem_create) return (mli_cuda_result)MLI_CUDA_NOT_INITIALIZED

/* An error has the same number as a CUresult and as a cudaError_t, so a cast converts it. */
static cudaError_t mli_cuda_call_mem_create(const mli_cuda_request *q) {
    return (cudaError_t)mli_cuda_loaded.table.mem_create(
        q->handle, q->bytes, (const mli_cuda_prop *)q->prop, q->mem_flags);
}

MLI_CUDA_MEM(mem_create, (unsigned long long *handle, size_t bytes, const mli_cuda_prop *prop,
                          unsigned long long flags)) {
    mli_cuda_request q = mli_cuda_request_for(MLI_CUDA_PHYSICAL, mli_cuda_call_mem_create);
    int of[4] = {0, 0, 0, 0}; /* the property's type, its handle types, and the type and number of
                                 its location */
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
    mli_cuda_mapping m;
    int r;
    MLI_CUDA_MEM_DRIVER(d);
    r = d->mem_map(ptr, bytes, offset, handle, flags);
    m.handle = handle, m.address = ptr, m.offset = offset, m.bytes = bytes;
    if (r == 0) mli_cuda_mapping_add(lord, &m, site);
    return (mli_cuda_result)r;
}

/* Takes the mappings in the range off the ledger after the real call, if the call succeeds. Only
   the first ROOM mappings can wait for the result. The others leave the ledger before the call,
   even if the call then fails. */
MLI_CUDA_MEM(mem_unmap, (unsigned long long ptr, size_t bytes)) {
    enum { ROOM = 64, GRAIN = 2 << 20 }; /* the bytes of a mapping are a multiple of GRAIN */
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

#ifdef __cplusplus
} /* extern "C" */
#endif
