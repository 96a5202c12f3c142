/* A part of fake_cuda.c: what the libraries libcuda and NVML of the tests call. */

/* -- the driver: no last error -- */

/* CUDA_ERROR_DEINITIALIZED: the driver is in the process of shutting down. */
static void driver_ends(void) { fake.ended = 1; }

int fake_cuInit(unsigned flags) {
    static int ends;
    int r = begin("cuInit");
    (void)flags;
    if (!r && fake.no_driver) r = cudaErrorNoDevice;
    if (!r && fake.ends_at_exit && !ends++) atexit(driver_ends);
    if (!r) initialised = 1;
    return leave(r);
}
int fake_cuDeviceGetCount(int *count) {
    int r = begin("cuDeviceGetCount");
    *count = fake.devices;
    return leave(r);
}
int fake_cuDeviceGet(int *device, int ordinal) {
    int r = begin("cuDeviceGet");
    *device = ordinal;
    return leave(r ? r : valid(ordinal) ? 0 : cudaErrorInvalidDevice);
}
int fake_cuDeviceGetAttribute(int *value, int attribute, int device) {
    int r = begin("cuDeviceGetAttribute");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r) *value = attribute == 18 ? fake.device[device].integrated : fake.device[device].pools;
    return leave(r);
}
int fake_cuDeviceGetPCIBusId(char *text, int size, int device) {
    int r = begin("cuDeviceGetPCIBusId");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r) snprintf(text, (size_t)size, "%s", fake.device[device].pci);
    return leave(r);
}
int fake_cuDeviceGetUuid_v2(unsigned char *uuid, int device) { /* its PCI id, as bytes */
    int r = begin("cuDeviceGetUuid_v2");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r) strncpy((char *)uuid, fake.device[device].pci, 16);
    return leave(r);
}
int fake_cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    int r = begin("cuDevicePrimaryCtxGetState");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r) *flags = 0, *active = fake.device[device].active;
    return leave(r);
}
int fake_cuDevicePrimaryCtxRetain(void **context, int device) {
    int r = begin("cuDevicePrimaryCtxRetain");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r && fake.retain_unsafe) r = unsafe();
    if (!r) {
        activate(device);
        fake.device[device].retained++;
        fake.retains++;
        *context = &contexts[device];
    }
    return leave(r);
}
/* The last one ends the context, unless the runtime holds it. Releases what was retained even when
   told to fail: else a test of failures could not tell a leak of ours from its own. */
int fake_cuDevicePrimaryCtxRelease_v2(int device) {
    int r = begin("cuDevicePrimaryCtxRelease_v2");
    if (!valid(device)) return leave(cudaErrorInvalidDevice);
    fake.device[device].retained--;
    fake.retains--;
    if (!fake.device[device].retained && !fake.device[device].held) context_end(device);
    return leave(r);
}
/* The number of a context; -1: of none that there is. One that was reset or destroyed is dead. */
static int context_of(const void *handle, int *r) {
    const fake_context *c = (const fake_context *)handle;
    if (c < contexts || c >= contexts + n_contexts) {
        *r = cudaErrorDeviceUninitialized;
        return -1;
    }
    if (!is_context((int)(c - contexts))) *r = dead(FAKE_CONTEXT, cudaErrorDeviceUninitialized);
    return (int)(c - contexts);
}

/* cuGreenCtxCreate: current to only one thread at a time */
static void green_enters(int number) {
    if (contexts[number].green && contexts[number].green++ > 1) fake.green_shared++;
}
static void green_leaves(int number) {
    if (contexts[number].green > 1) contexts[number].green--;
}

/* cuCtxPushCurrent: CUDA_ERROR_INVALID_CONTEXT, for one that was reset as well */
int fake_cuCtxPushCurrent_v2(void *context) {
    int r = begin("cuCtxPushCurrent_v2"), number = r ? -1 : context_of(context, &r);
    if (!r && self.depth == DEPTH) r = cudaErrorDeviceUninitialized;
    if (!r || r == RUBBISH) {
        fake.device[contexts[number].device].pushed++;
        self.stack[self.depth++] = number;
        green_enters(number);
        r = 0;
    }
    return leave(r);
}
int fake_cuCtxPopCurrent_v2(void **context) {
    int r = begin("cuCtxPopCurrent_v2");
    if (!self.depth) {
        fake.depth_errors++;
        return leave(cudaErrorDeviceUninitialized);
    }
    *context = &contexts[self.stack[--self.depth]];
    fake.device[contexts[self.stack[self.depth]].device].pushed--;
    green_leaves(self.stack[self.depth]);
    return leave(r);
}
int fake_cuCtxGetCurrent(void **context) {
    int r = begin("cuCtxGetCurrent"), number;
    if (!r) *context = driver_context(&number) ? NULL : &contexts[number];
    return leave(r);
}
DRIVER(cuCtxGetDevice, (int *device), driver_current(device))
int fake_cuCtxSynchronize(void) {
    int r = begin("cuCtxSynchronize"), number;
    fake.context_waits++;
    if (!r) r = driver_context(&number);
    return leave(r ? r : wait_for_context(number));
}
int fake_cuMemGetInfo_v2(size_t *unused, size_t *total) {
    int r = begin("cuMemGetInfo_v2"), device;
    if (!r) r = driver_current(&device);
    if (!r) r = unsafe();
    if (!r) {
        *total = (size_t)fake.device[device].total;
        *unused = (size_t)(fake.device[device].total - used(device));
    }
    return leave(r);
}
/* cuPointerGetAttribute: 9 is the device, 17 the pool */
int fake_cuPointerGetAttribute(void *value, int attribute, unsigned long long ptr) {
    int r = begin("cuPointerGetAttribute");
    storage *s = find((void *)(uintptr_t)ptr);
    const int host = -1;
    cudaMemPool_t handle = s && s->kind == POOL ? handle_of(s->from) : NULL;
    if (!r && (!s || !value || (attribute != 9 && attribute != 17))) r = cudaErrorInvalidValue;
    if (!r && attribute == 9) memcpy(value, fake.host_pools ? &host : &s->device, sizeof(int));
    if (!r && attribute == 17) memcpy(value, &handle, sizeof handle);
    return leave(r);
}
DRIVER(cuDeviceGetMemPool, (cudaMemPool_t *handle, int device),
       pool_on(handle, device, &pool_now[valid(device) ? device : 0]))
/* cuMemPoolDestroy says nothing of a handle that is used after it. */
static int pool_look(cudaMemPool_t handle) {
    return pool_of(handle) ? 0 : dead(FAKE_POOL, cudaErrorInvalidValue);
}
int fake_cuMemPoolGetAttribute(cudaMemPool_t handle, int attribute, void *value) {
    int r = begin("cuMemPoolGetAttribute");
    if (!r) r = pool_look(handle);
    if (r == RUBBISH) memset(value, 0x5a, attribute < 4 ? sizeof(int) : sizeof(uint64_t));
    return leave(r == RUBBISH ? 0 : r ? r : attribute_get(handle, attribute, value));
}
int fake_cuMemPoolTrimTo(cudaMemPool_t handle, size_t keep) {
    int r = begin("cuMemPoolTrimTo");
    if (!r) r = pool_look(handle);
    return leave(r == RUBBISH ? 0 : r ? r : pool_trim(handle, keep));
}
int fake_cuDeviceGetGraphMemAttribute(int device, int attribute, void *value) {
    int r = begin("cuDeviceGetGraphMemAttribute");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    return leave(r ? r : graph_attribute(device, attribute, value));
}
int fake_cuDeviceGraphMemTrim(int device) {
    int r = begin("cuDeviceGraphMemTrim");
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    return leave(r ? r : graph_trim(device));
}
int fake_cuThreadExchangeStreamCaptureMode(int *mode) {
    int r = begin("cuThreadExchangeStreamCaptureMode");
    int was = self.mode;
    if (!r && (*mode < 0 || *mode > 2)) r = cudaErrorInvalidValue;
    if (r) return leave(r);
    self.mode = *mode;
    *mode = was;
    return leave(0);
}
/* A stream that is gone may be anything by now: who asks it is counted. The default streams are
   those of the current context, and there has to be one. */
static int asked(cudaStream_t stream, struct CUstream_st **s) {
    int device;
    int r = (uintptr_t)stream <= 2 ? driver_current(&device) : 0;
    if (r) return r;
    *s = stream_of(stream);
    if (*s) return is_orphan(*s) ? cudaErrorContextIsDestroyed : 0;
    if ((uintptr_t)stream <= 2) return cudaErrorInvalidResourceHandle;
    fake.dead_asked++;
    return dead(FAKE_STREAM, cudaErrorInvalidResourceHandle);
}

int fake_cuStreamIsCapturing(cudaStream_t stream, int *status) {
    int r = begin("cuStreamIsCapturing");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    if (r == RUBBISH) *status = 0x5a;
    return leave(r == RUBBISH ? 0 : r ? r : is_capturing(s, status));
}
int fake_cuStreamGetCtx(cudaStream_t stream, void **context) {
    int r = begin("cuStreamGetCtx");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    if (!r) *context = &contexts[s->context];
    if (r == RUBBISH) *context = stream;
    return leave(r == RUBBISH ? 0 : r);
}
/* cuStreamGetCtx_v2: of a stream of a green context that and the primary one; else NULL */
int fake_cuStreamGetCtx_v2(cudaStream_t stream, void **context, void **green) {
    int r = begin("cuStreamGetCtx_v2");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    if (!r) {
        *green = contexts[s->context].green ? &contexts[s->context] : NULL;
        *context = &contexts[*green ? s->device : s->context];
    }
    if (r == RUBBISH) *context = *green = stream;
    return leave(r == RUBBISH ? 0 : r);
}
int fake_cuEventCreate(cudaEvent_t *event, unsigned flags) {
    int r = begin("cuEventCreate"), number;
    if (!r) r = driver_context(&number);
    return leave(r ? r : event_make(event, number, flags));
}
static int driver_event(cudaEvent_t event) {
    return !event || event->alive ? 0 : dead(FAKE_EVENT, cudaErrorInvalidResourceHandle);
}
/* Destroys it after a sticky error, too: else a test of one could not tell a leak of ours. */
int fake_cuEventDestroy_v2(cudaEvent_t event) {
    int r = begin("cuEventDestroy_v2"), bad = r && r == fake.sticky ? 0 : r;
    if (!bad) bad = driver_event(event);
    if (!bad) bad = event_end(event);
    return leave(bad == RUBBISH ? 0 : r ? r : bad);
}
int fake_cuEventRecord(cudaEvent_t event, cudaStream_t stream) {
    int r = begin("cuEventRecord");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    if (!r) r = driver_event(event);
    if (r == RUBBISH) return leave(0);
    if (!r) r = event_record(event, stream);
    if (!r && event->captured) fake.captured_records++;
    return leave(r);
}
int fake_cuEventQuery(cudaEvent_t event) {
    int r = begin("cuEventQuery");
    if (!r) r = driver_event(event);
    return leave(r == RUBBISH ? 0 : r ? r : event_query(event));
}
int fake_cuEventSynchronize(cudaEvent_t event) {
    int r = begin("cuEventSynchronize");
    if (!r) r = driver_event(event);
    return leave(r == RUBBISH ? 0 : r ? r : event_wait(event));
}
DRIVER(cuEventElapsedTime, (float *ms, cudaEvent_t start, cudaEvent_t stop),
       event_elapsed(ms, start, stop))

/* -- NVML: devices in its own order, totals of its own -- */

int fake_nvml_init(void) {
    int r = begin("nvmlInit_v2");
    if (!r) fake.nvml_inits++;
    (void)leave(0);
    if (fake.on_nvml_init) fake.on_nvml_init();
    return r;
}
int fake_nvml_shutdown(void) {
    int r = begin("nvmlShutdown");
    fake.nvml_inits--;
    return leave(r);
}
int fake_nvml_by_pci(const char *id, void **device) {
    int r = begin("nvmlDeviceGetHandleByPciBusId_v2"), i;
    if (!r) r = 6;
    for (i = 0; i < fake.devices && r == 6; i++)
        if (!strcmp(fake.device[i].pci, id)) *device = &fake.device[i], r = 0;
    return leave(r);
}
int fake_nvml_memory(void *device, void *info) {
    int r = begin("nvmlDeviceGetMemoryInfo");
    fake_device *d = (fake_device *)device;
    unsigned long long free_bytes = d->nvml_total - used((int)(d - fake.device)) - (16 << 20);
    unsigned long long v1[3] = {d->nvml_total, free_bytes, d->nvml_total - free_bytes};
    if (!r) memcpy(info, v1, sizeof v1);
    return leave(r);
}
int fake_nvml_mig(void *device, unsigned *current_mode, unsigned *pending) {
    int r = begin("nvmlDeviceGetMigMode");
    if (!r) *current_mode = *pending = ((fake_device *)device)->mig != 0;
    return leave(r);
}
int fake_nvml_processes(void *device, unsigned *n, void *info) {
    int r = begin("nvmlDeviceGetComputeRunningProcesses_v3");
    const fake_device *d = (fake_device *)device;
    struct process {
        unsigned pid;
        unsigned long long bytes;
        unsigned gpu, compute;
    } one = {0, 1, ~0u, ~0u}, *list = (struct process *)info; /* of no instance */
    const unsigned all = d->nvml_crowd + (d->nvml_unnamed ? 1 : 0) + (d->nvml_pid ? 1 : 0) +
                         (d->nvml_own ? 1 : 0);
    unsigned i;
    if (!r && d->nvml_denied) r = 4; /* NVML_ERROR_NO_PERMISSION */
    if (!r && all > *n) r = 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
    *n = all;
    if (r) return leave(r);
    for (i = 0; i < d->nvml_crowd; i++) {
        one.pid = 100000 + i;
        *list++ = one;
    }
    one.pid = 0, one.bytes = d->nvml_unnamed;
    if (d->nvml_unnamed) *list++ = one;
    one.pid = d->nvml_pid, one.bytes = d->nvml_used;
    if (d->nvml_pid) *list++ = one;
    one.pid = (unsigned)getpid() + d->nvml_offset, one.bytes = d->nvml_own;
    if (d->nvml_own) *list++ = one;
    return leave(0);
}
