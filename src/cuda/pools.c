#include "cuda/pools.h"

MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_pools_lock = MLI_CUDA_LOCK;
static struct {
    cudaMemPool_t pool[MLI_CUDA_POOLS]; /* NULL if this place of the list is empty */
    int device[MLI_CUDA_POOLS];         /* the device of each pool; -1: memory of the CPU */
    uint64_t dropped;                   /* how many pools found no empty place */
    int asking;                         /* how many threads ask the driver about pools */
} mli_cuda_pools;

/* Returns the place of a pool in the list, or the first empty place if `pool` is NULL. Returns
   MLI_CUDA_POOLS if there is none. Requires: the caller holds mli_cuda_pools_lock. */
static int mli_cuda_pool_find(cudaMemPool_t pool) {
    int i = 0;
    while (i < MLI_CUDA_POOLS && mli_cuda_pools.pool[i] != pool) i++;
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
        mli_cuda_pools.pool[i] = pool;
    }
    mli_cuda_lock_drop(&mli_cuda_pools_lock);
}

MLI_CUDA_PRIVATE int mli_cuda_pool_remove(cudaMemPool_t pool, int *device) {
    int i;
    mli_cuda_lock_take(&mli_cuda_pools_lock);
    i = pool ? mli_cuda_pool_find(pool) : MLI_CUDA_POOLS;
    if (i < MLI_CUDA_POOLS) {
        *device = mli_cuda_pools.device[i];
        mli_cuda_pools.pool[i] = NULL;
    }
    /* A forked child inherits `asking`, but not the threads that would lower it. The child has no
       driver, so it does not wait. */
    while (mli_cuda_pools.asking && mli_cuda_driver_get()) {
        mli_cuda_lock_drop(&mli_cuda_pools_lock);
        mli_cuda_yield();
        mli_cuda_lock_take(&mli_cuda_pools_lock);
    }
    mli_cuda_lock_drop(&mli_cuda_pools_lock);
    return i < MLI_CUDA_POOLS;
}

/* Adds the bytes of a pool to a sum. If `keep` is not NULL, trims the pool to *keep bytes first,
   and subtracts from *keep what the pool still holds. Returns 0 if the driver refuses. */
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
    cudaMemPool_t pools[MLI_CUDA_POOLS + 2] = {NULL, NULL}; /* the current pool, the default pool,
                                                               and those of the list */
    int i, k, n = 2, good;
    memset(out, 0, sizeof *out);
    mli_cuda_lock_take(&mli_cuda_pools_lock);
    mli_cuda_pools.asking++;
    for (i = 0; i < MLI_CUDA_POOLS; i++)
        if (mli_cuda_pools.pool[i] && mli_cuda_pools.device[i] == device)
            pools[n++] = mli_cuda_pools.pool[i];
    out->pools_dropped = mli_cuda_pools.dropped;
    mli_cuda_lock_drop(&mli_cuda_pools_lock);
    good = !d->pool_current(&pools[0], d->handle[device]);
    if (d->pool_default && d->pool_default(&pools[1], d->handle[device])) pools[1] = NULL;
    if (good) good = mli_cuda_pool_ask(d, pools[0], keep, out);
    for (i = 1; i < n && good; i++)
        if (pools[i] && pools[i] != pools[0] && (i == 1 || pools[i] != pools[1]))
            (void)mli_cuda_pool_ask(d, pools[i], keep, out);
    mli_cuda_lock_take(&mli_cuda_pools_lock);
    mli_cuda_pools.asking--;
    mli_cuda_lock_drop(&mli_cuda_pools_lock);
    if (keep && d->graph_trim) (void)d->graph_trim(d->handle[device]);
    for (k = 0; k < 4 && d->graph_attribute; k++) /* drivers before 11.4 lack this function */
        if (d->graph_attribute(d->handle[device], MLI_CUDA_GRAPH_USED + k, &graph[k]))
            graph[k] = 0;
    out->graph_used = graph[0], out->graph_used_high = graph[1];
    out->graph_reserved = graph[2], out->graph_reserved_high = graph[3];
    return good;
}
