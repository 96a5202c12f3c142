/* A part of fake_cuda.c: identities, default pools, and streams that do a part of their work. */

int fake_cuCtxGetId(void *context, unsigned long long *id) {
    int r = begin("cuCtxGetId"), number = r ? -1 : context_of(context, &r);
    if (!r) *id = contexts[number].id;
    if (r == RUBBISH) *id = 0x5a;
    return leave(r == RUBBISH ? 0 : r);
}
/* A default stream has the number of its context, or of its thread besides. */
int fake_cuStreamGetId(cudaStream_t stream, unsigned long long *id) {
    int r = begin("cuStreamGetId");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    if (!r && (uintptr_t)stream > 2) *id = s->id;
    if (!r && (uintptr_t)stream <= 2) {
        *id = contexts[s->context].id << 32;
        if (s != &defaults[s->context]) *id += 1u + (unsigned)(s - &own[0][0]);
    }
    if (r == RUBBISH) *id = 0x5a;
    return leave(r == RUBBISH ? 0 : r);
}
int fake_cuDeviceGetName(char *text, int size, int device) {
    int r = begin("cuDeviceGetName");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r) snprintf(text, (size_t)size, "NVIDIA Fake%s", fake.device[device].mig ? " MIG 1g.10gb" : "");
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
