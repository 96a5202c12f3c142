#include "cuda/pools.h"

MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_pools_lock = MLI_CUDA_LOCK;
typedef struct mli_cuda_pools_state {
    mli_cuda_u64 pool[MLI_CUDA_POOLS]; /* 0: room for one; changed under the lock */
    int device[MLI_CUDA_POOLS];        /* -1: the host's memory */
    uint64_t dropped;
} mli_cuda_pools_state;
static mli_cuda_pools_state mli_cuda_pools;

MLI_CUDA_PRIVATE int mli_cuda_pool_find(cudaMemPool_t pool) {
    int i = 0;
    while (i < MLI_CUDA_POOLS &&
           mli_cuda_load(&mli_cuda_pools.pool[i]) != (uint64_t)(uintptr_t)pool)
        i++;
    return i;
}

MLI_CUDA_PRIVATE void mli_cuda_pool_add(cudaMemPool_t pool, int device) {
    int i;
    mli_cuda_lock_take(&mli_cuda_pools_lock);
    i = mli_cuda_pool_find(pool);
    if (i == MLI_CUDA_POOLS) i = mli_cuda_pool_find(NULL);
    if (i == MLI_CUDA_POOLS) {
        mli_cuda_pools.dropped++;
    } else {
        mli_cuda_pools.device[i] = device;
        mli_cuda_store(&mli_cuda_pools.pool[i], (uint64_t)(uintptr_t)pool);
    }
    mli_cuda_lock_drop(&mli_cuda_pools_lock);
}

MLI_CUDA_PRIVATE int mli_cuda_pool_remove(cudaMemPool_t pool, int *device) {
    int i;
    mli_cuda_lock_take(&mli_cuda_pools_lock);
    i = pool ? mli_cuda_pool_find(pool) : MLI_CUDA_POOLS;
    if (i < MLI_CUDA_POOLS) {
        *device = mli_cuda_pools.device[i];
        mli_cuda_store(&mli_cuda_pools.pool[i], 0);
    }
    mli_cuda_lock_drop(&mli_cuda_pools_lock);
    return i < MLI_CUDA_POOLS;
}

/* Inside the device, under the lock: trims a pool to *keep, if that is not NULL, and adds what it
   has; what one keeps, the next need not. */
static int mli_cuda_pool_ask(const mli_cuda_driver *d, cudaMemPool_t pool, uint64_t *keep,
                             memlord_cuda_pool *sum) {
    uint64_t bytes[4];
    int k;
    if (keep && d->pool_trim(pool, *keep > SIZE_MAX ? SIZE_MAX : (size_t)*keep)) return 0;
    for (k = 0; k < 4; k++)
        if (d->pool_attribute(pool, MLI_CUDA_POOL_RESERVED + k, &bytes[k])) return 0;
    sum->reserved += bytes[0], sum->reserved_high += bytes[1];
    sum->used += bytes[2], sum->used_high += bytes[3];
    sum->pools++;
    if (keep) *keep -= bytes[0] < *keep ? bytes[0] : *keep;
    return 1;
}

MLI_CUDA_PRIVATE int mli_cuda_pools_ask(const mli_cuda_driver *d, int device, uint64_t *keep,
                                        memlord_cuda_pool *out) {
    uint64_t graph[4] = {0, 0, 0, 0};
    cudaMemPool_t current = NULL, pool;
    int i, k, good;
    memset(out, 0, sizeof *out);
    mli_cuda_lock_take(&mli_cuda_pools_lock);
    good = !d->pool_current(&current, d->handle[device]);
    if (good) good = mli_cuda_pool_ask(d, current, keep, out);
    for (i = 0; i < MLI_CUDA_POOLS && good; i++) {
        pool = (cudaMemPool_t)(uintptr_t)mli_cuda_load(&mli_cuda_pools.pool[i]);
        if (pool && pool != current && mli_cuda_pools.device[i] == device)
            (void)mli_cuda_pool_ask(d, pool, keep, out);
    }
    out->pools_dropped = mli_cuda_pools.dropped;
    mli_cuda_lock_drop(&mli_cuda_pools_lock);
    if (keep && d->graph_trim) (void)d->graph_trim(d->handle[device]);
    for (k = 0; k < 4 && d->graph_attribute; k++) /* since 11.4; without it they stay 0 */
        if (d->graph_attribute(d->handle[device], MLI_CUDA_GRAPH_USED + k, &graph[k]))
            graph[k] = 0;
    out->graph_used = graph[0], out->graph_used_high = graph[1];
    out->graph_reserved = graph[2], out->graph_reserved_high = graph[3];
    return good;
}
