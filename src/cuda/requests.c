#include "cuda/requests.h"
#include "cuda/system.h"
#include "cuda/driver.h"
#include "cuda/seats.h"
#include "cuda/capacity.h"
#include "cuda/streams.h"

/* Returns the pointer or handle that a call made. */
static void *mli_cuda_request_result(const mli_cuda_request *q) {
    if (q->pitched) return q->pitched->ptr;
    if (q->handle) return (void *)(uintptr_t)*q->handle;
    return q->ptr ? *q->ptr : NULL;
}

/* Returns the product, or 2^48 if the product is larger, because the ledger takes no more. */
static uint64_t mli_cuda_product(uint64_t a, uint64_t b) {
    const uint64_t most = (uint64_t)1 << 48;
    return b && a > most / b ? most : a * b;
}

/* Returns the bytes that a request asks for, without the padding of rows. */
static uint64_t mli_cuda_asked(const mli_cuda_request *q) {
    const struct cudaExtent *e = &q->extent;
    if (q->kind == MLI_CUDA_PITCH) return mli_cuda_product(q->width, q->height);
    if (q->kind == MLI_CUDA_3D)
        return mli_cuda_product(mli_cuda_product(e->width, e->height), e->depth);
    return mli_cuda_product(q->bytes, 1);
}

/* Returns the bytes of an allocation that was made. Its rows are as long as the pitch, which the
   call has set. */
static uint64_t mli_cuda_size(const mli_cuda_request *q) {
    if (q->kind == MLI_CUDA_PITCH) return (uint64_t)*q->pitch * q->height;
    if (q->kind == MLI_CUDA_3D)
        return (uint64_t)q->pitched->pitch * q->extent.height * q->extent.depth;
    return mli_cuda_asked(q);
}

MLI_CUDA_PRIVATE int mli_cuda_device_current(void) {
    int clean = cudaPeekAtLastError() == cudaSuccess, device = 0;
    if (cudaGetDevice(&device) == cudaSuccess) return device;
    if (clean) (void)cudaGetLastError();
    return 0;
}

/* Returns the device of a stream. The device of a default stream is the current device. */
static int mli_cuda_device_stream(const mli_cuda_driver *d, cudaStream_t stream) {
    void *context = NULL;
    int handle, r;
    if (mli_cuda_is_default(stream) || d->stream_context(stream, &context) ||
        d->context_push(context))
        return mli_cuda_device_current();
    r = d->context_device(&handle);
    (void)d->context_pop(&context);
    return r ? mli_cuda_device_current() : mli_cuda_ordinal(d, handle);
}

/* Returns the device on which the ledger counts the block of a request. `made` is the pointer that
   the call made, or NULL before the call. The pool of a stream-ordered allocation may be on another
   device than the stream, so the function asks the driver for the device of the pointer. A pool of
   CPU memory is on no device. The ledger counts its blocks on the stream's device, because
   cudaFreeAsync does not say which pool a block comes from. */
static memlord_device mli_cuda_where(const mli_cuda_request *q, const void *made) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    int ordinal = -1;
    if (q->kind == MLI_CUDA_PHYSICAL) return q->location;
    if (q->kind == MLI_CUDA_HOST) return memlord_device_make(MEMLORD_DEVICE_PINNED, 0);
    if (d && d->devices == 1) return memlord_device_cuda(0);
    if (!d || q->kind != MLI_CUDA_ASYNC) return memlord_device_cuda(mli_cuda_device_current());
    if (made && d->pointer_attribute(&ordinal, MLI_CUDA_POINTER_DEVICE, MEMLORD_KEY(made)))
        ordinal = -1;
    return memlord_device_cuda(ordinal >= 0 ? ordinal : mli_cuda_device_stream(d, q->stream));
}

/* Sets the stream that the ledger records with blocks. A default stream is recorded as 0. Returns
   the stream that was set before. */
static uint64_t mli_cuda_stream_say(memlord *lord, const mli_cuda_request *q) {
    return memlord_stream_set(lord, mli_cuda_is_default(q->stream) ? 0 : MEMLORD_KEY(q->stream));
}

/* Updates the ledger's reserved bytes after an allocation. */
static void mli_cuda_recorded(memlord *lord, const mli_cuda_request *q, memlord_device device) {
    if (q->kind == MLI_CUDA_ASYNC)
        mli_cuda_pool_check(lord, 0);
    else
        mli_cuda_pool_beside(lord, device, (int64_t)mli_cuda_size(q));
}

/* Makes the real call once, and records what it made. */
static cudaError_t mli_cuda_alloc_plain(memlord *lord, mli_cuda_request *q,
                                        const memlord_site *site) {
    cudaError_t r = q->call(q);
    void *made = r == cudaSuccess ? mli_cuda_request_result(q) : NULL;
    memlord_device device;
    uint64_t before = 0;
    if (!made) return r;
    device = mli_cuda_where(q, made);
    if (q->kind == MLI_CUDA_ASYNC) before = mli_cuda_stream_say(lord, q);
    (void)memlord_alloc(lord, device, MEMLORD_KEY(made), mli_cuda_size(q), site);
    if (q->kind == MLI_CUDA_ASYNC) (void)memlord_stream_set(lord, before);
    mli_cuda_recorded(lord, q, device);
    return r;
}

/* Makes the real call once, records what it made, and counts a call that found no memory. */
static cudaError_t mli_cuda_alloc_once(memlord *lord, mli_cuda_request *q,
                                       const memlord_site *site) {
    cudaError_t r = mli_cuda_alloc_plain(lord, q, site);
    if (r == cudaErrorMemoryAllocation)
        (void)memlord_alloc_failed(lord, mli_cuda_where(q, NULL), mli_cuda_asked(q), site);
    return r;
}

/* Makes the real call once, as a memlord_try_fn. If the runtime had no last error before, clears
   the error of a call that found no memory. So the callbacks that give memory back do not see
   the error, nor does the host after a later success. (The error is not sticky, so it can be
   cleared.) */
static int mli_cuda_request_attempt(void *user, uint64_t bytes, uint64_t *storage) {
    mli_cuda_request *q = (mli_cuda_request *)user;
    (void)bytes;
    q->answer = q->call(q);
    if (q->answer == cudaSuccess) *storage = MEMLORD_KEY(mli_cuda_request_result(q));
    if (q->answer == cudaErrorMemoryAllocation && q->clean) (void)cudaGetLastError();
    return q->answer == cudaSuccess ? 0 : q->answer == cudaErrorMemoryAllocation ? 1 : -1;
}

/* Sets the pointer of a request to NULL, because a limit has refused the request. Makes no real
   call, so the runtime's last error does not change. A real call would set the last error, but it
   might trim pools, wait, or return an earlier error. */
static void mli_cuda_request_refuse(const mli_cuda_request *q) {
    if (q->pitched) q->pitched->ptr = NULL;
    if (q->ptr) *q->ptr = NULL;
}

/* Corrects the record of an allocation after the retries, because only now the pitch and the device
   of a pool are known. */
static void mli_cuda_request_finish(memlord *lord, const mli_cuda_request *q, memlord_device device,
                                    uint64_t asked, uint64_t storage, const memlord_site *site) {
    memlord_device where = mli_cuda_where(q, mli_cuda_request_result(q));
    uint64_t bytes = mli_cuda_size(q);
    if (where.index != device.index) {
        (void)memlord_free(lord, device, storage, site);
        (void)memlord_alloc(lord, where, storage, bytes, site);
    } else if (bytes != asked) {
        (void)memlord_realloc(lord, device, storage, storage, bytes, site);
    }
    mli_cuda_recorded(lord, q, where);
}

MLI_CUDA_PRIVATE cudaError_t mli_cuda_alloc_retry(memlord *lord, mli_cuda_request *q,
                                                  const memlord_retry *policy,
                                                  const memlord_site *site) {
    memlord_device device = mli_cuda_where(q, NULL);
    uint64_t storage = 0, asked = mli_cuda_asked(q), before = 0;
    memlord_alloc_opts opts;
    memlord_result r;
    /* no retry helps a request for 0 bytes, or for more than the address space */
    if (!asked || asked >> 48) return mli_cuda_alloc_once(lord, q, site);
    memset(&opts, 0, sizeof opts);
    opts.site = site;
    q->clean = cudaPeekAtLastError() == cudaSuccess;
    q->answer = cudaErrorMemoryAllocation;
    if (q->kind == MLI_CUDA_ASYNC) before = mli_cuda_stream_say(lord, q);
    r = memlord_alloc_retry(lord, device, asked, mli_cuda_request_attempt, q, policy, &storage,
                            &opts);
    if (r == MEMLORD_OK) mli_cuda_request_finish(lord, q, device, asked, storage, site);
    if (q->kind == MLI_CUDA_ASYNC) (void)memlord_stream_set(lord, before);
    if (r == MEMLORD_E_LIMIT) mli_cuda_request_refuse(q);
    if (r == MEMLORD_OK || r == MEMLORD_E_LIMIT) return q->answer;
    if (r == MEMLORD_E_OOM && q->answer != cudaErrorMemoryAllocation) return q->answer;
    /* After E_OOM one more real call gives the result and the last error that the host expects. The
       ledger has counted the failure already. Any other error comes from the ledger itself. The
       real call is then made once, without retries. */
    return r == MEMLORD_E_OOM ? mli_cuda_alloc_plain(lord, q, site)
                              : mli_cuda_alloc_once(lord, q, site);
}

MLI_CUDA_PRIVATE cudaError_t mli_cuda_alloc(memlord *lord, mli_cuda_request *q,
                                            const memlord_site *site) {
    mli_cuda_attachment *probe = mli_cuda_attachment_of(lord);
    memlord_retry policy;
    int has_retry;
    if (!lord) return q->call(q);
    if (!probe || !(mli_cuda_load(&probe->flags) & MEMLORD_CUDA_FLAG_RETRY))
        return mli_cuda_alloc_once(lord, q, site);
    mli_cuda_lock_take(&mli_cuda_process_lock);
    has_retry = probe->has_retry;
    policy = probe->retry;
    mli_cuda_lock_drop(&mli_cuda_process_lock);
    return mli_cuda_alloc_retry(lord, q, has_retry ? &policy : NULL, site);
}

MLI_CUDA_PRIVATE mli_cuda_request mli_cuda_request_for(int kind,
        cudaError_t (*call)(const mli_cuda_request *)) {
    mli_cuda_request q;
    memset(&q, 0, sizeof q);
    q.kind = kind;
    q.call = call;
    return q;
}

MLI_CUDA_PRIVATE int mli_cuda_block_find(memlord *lord, uint64_t key, memlord_block_info *block) {
    const memlord_device pinned = memlord_device_make(MEMLORD_DEVICE_PINNED, 0);
    if (!lord) return 0;
    return memlord_block_find(lord, memlord_device_cuda(0), key, block) == MEMLORD_OK ||
           memlord_block_find(lord, pinned, key, block) == MEMLORD_OK;
}
