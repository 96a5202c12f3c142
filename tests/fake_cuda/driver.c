/* A part of fake_cuda.c: what the libraries libcuda and NVML of the tests call. */

/* -- the driver: no last error -- */

int fake_cuInit(unsigned flags) {
    int r = begin("cuInit");
    (void)flags;
    if (!r && fake.no_driver) r = cudaErrorNoDevice;
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
/* cuCtxPushCurrent: CUDA_ERROR_INVALID_CONTEXT, for one that was reset as well */
int fake_cuCtxPushCurrent_v2(void *context) {
    int r = begin("cuCtxPushCurrent_v2");
    char *at = (char *)context;
    if (!r && (at < contexts || at >= contexts + FAKE_DEVICES || self.depth == DEPTH ||
               !fake.device[at - contexts].active))
        r = cudaErrorDeviceUninitialized;
    if (!r) {
        fake.device[at - contexts].pushed++;
        self.stack[self.depth++] = (int)(at - contexts);
    }
    return leave(r);
}
int fake_cuCtxPopCurrent_v2(void **context) {
    int r = begin("cuCtxPopCurrent_v2");
    if (!self.depth) {
        fake.depth_errors++;
        return leave(cudaErrorDeviceUninitialized);
    }
    fake.device[self.stack[--self.depth]].pushed--;
    *context = &contexts[self.stack[self.depth]];
    return leave(r);
}
int fake_cuCtxGetCurrent(void **context) {
    int r = begin("cuCtxGetCurrent"), device;
    if (!r) *context = driver_current(&device) ? NULL : &contexts[device];
    return leave(r);
}
DRIVER(cuCtxGetDevice, (int *device), driver_current(device))
int fake_cuCtxSynchronize(void) {
    int r = begin("cuCtxSynchronize"), device;
    fake.context_waits++;
    if (!r) r = driver_current(&device);
    return leave(r ? r : wait_for_device(device));
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
DRIVER(cuMemPoolGetAttribute, (cudaMemPool_t handle, int attribute, void *value),
       attribute_get(handle, attribute, value))
DRIVER(cuMemPoolTrimTo, (cudaMemPool_t handle, size_t keep), pool_trim(handle, keep))
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
    if ((uintptr_t)stream <= 2 && driver_current(&device)) return cudaErrorDeviceUninitialized;
    *s = stream_of(stream);
    if (!*s) fake.dead_asked++;
    return *s ? 0 : cudaErrorInvalidResourceHandle;
}

int fake_cuStreamIsCapturing(cudaStream_t stream, int *status) {
    int r = begin("cuStreamIsCapturing");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    return leave(r ? r : is_capturing(s, status));
}
int fake_cuStreamGetCtx(cudaStream_t stream, void **context) {
    int r = begin("cuStreamGetCtx");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    if (!r) *context = &contexts[s->device];
    return leave(r);
}
int fake_cuStreamGetDevice(cudaStream_t stream, int *device) {
    int r = begin("cuStreamGetDevice");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    if (!r) *device = s->device;
    return leave(r);
}
int fake_cuEventCreate(cudaEvent_t *event, unsigned flags) {
    int r = begin("cuEventCreate"), device;
    if (!r) r = driver_current(&device);
    return leave(r ? r : event_make(event, device, flags));
}
DRIVER(cuEventDestroy_v2, (cudaEvent_t event), event_end(event))
int fake_cuEventRecord(cudaEvent_t event, cudaStream_t stream) {
    int r = begin("cuEventRecord");
    struct CUstream_st *s = NULL;
    if (!r) r = asked(stream, &s);
    if (!r) r = event_record(event, stream);
    if (!r && event->captured) fake.captured_records++;
    return leave(r);
}
DRIVER(cuEventQuery, (cudaEvent_t event), event_query(event))
DRIVER(cuEventSynchronize, (cudaEvent_t event), event_wait(event))
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
    } one = {0, 1, 0, 0}, *list = (struct process *)info;
    const unsigned all = d->nvml_crowd + (d->nvml_unnamed ? 1 : 0) + (d->nvml_pid ? 1 : 0);
    unsigned i;
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
    return leave(0);
}
