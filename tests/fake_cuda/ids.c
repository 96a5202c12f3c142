/* A part of fake_cuda.c: identities, default pools, and streams that do a part of their work. */

/* A default stream has the number of its place, and of its context. */
int fake_cuCtxGetId(void *context, unsigned long long *id) {
    int r = begin("cuCtxGetId"), device = 0;
    while (device < FAKE_DEVICES && context != (void *)&contexts[device]) device++;
    if (!r && (device == FAKE_DEVICES || !fake.device[device].active))
        r = cudaErrorDeviceUninitialized;
    if (!r) *id = 1 + (unsigned)device + ((unsigned long long)fake.device[device].contexts << 8);
    return leave(r);
}
int fake_cuStreamGetId(cudaStream_t stream, unsigned long long *id) {
    int r = begin("cuStreamGetId");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    if (!r && (uintptr_t)stream > 2) *id = s->id;
    if (!r && (uintptr_t)stream <= 2)
        *id = ((unsigned long long)fake.device[s->device].contexts << 32) +
              (s == &defaults[s->device] ? 1u + (unsigned)s->device
                                         : 100u + (unsigned)(s - &own[0][0]));
    return leave(r);
}

int fake_cuDeviceGetDefaultMemPool(cudaMemPool_t *handle, int device) {
    int r = begin("cuDeviceGetDefaultMemPool");
    pool *p = &pools[valid(device) ? device : 0];
    return leave(r ? r : pool_on(handle, device, &p));
}

void fake_stream_do(cudaStream_t stream, uint64_t things) {
    struct CUstream_st *s;
    pthread_mutex_lock(&lock);
    s = stream_of(stream);
    s->done = s->done + things < s->given ? s->done + things : s->given;
    if (s->done == s->given) s->since = 0;
    pthread_mutex_unlock(&lock);
}
