/* A part of fake_cuda.c: contexts beside the primary ones, and green ones. Tests make them. */

static int context_make(int *number, int device, int green) {
    int i = n_contexts;
    if (i == CONTEXTS) /* handles come again, too */
        for (i = FAKE_DEVICES; i < CONTEXTS && contexts[i].alive;) i++;
    if (i == CONTEXTS) return cudaErrorMemoryAllocation;
    n_contexts += i == n_contexts;
    context_new(i, device, green);
    *number = i;
    return 0;
}

/* cuCtxCreate: and it is the current one of the thread. */
int fake_cuCtxCreate(void **handle, unsigned flags, int device) {
    int r = begin("cuCtxCreate"), number;
    (void)flags;
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r && self.depth == DEPTH) r = cudaErrorDeviceUninitialized;
    if (!r) r = context_make(&number, device, 0);
    if (r) return leave(r);
    *handle = &contexts[number];
    fake.device[device].pushed++;
    self.stack[self.depth++] = number;
    return leave(0);
}

/* cuCtxDestroy: whoever has it current; if it is current here it is popped. */
int fake_cuCtxDestroy_v2(void *handle) {
    int r = begin("cuCtxDestroy_v2"), number = r ? -1 : context_of(handle, &r);
    if (!r && (number < FAKE_DEVICES || contexts[number].green)) r = cudaErrorDeviceUninitialized;
    if (r) return leave(r == RUBBISH ? 0 : r);
    context_empty(number);
    contexts[number].alive = 0;
    if (self.depth && self.stack[self.depth - 1] == number) {
        fake.device[contexts[number].device].pushed--;
        self.depth--;
    }
    return leave(0);
}

int fake_cuStreamCreate(cudaStream_t *stream, unsigned flags) {
    int r = begin("cuStreamCreate"), number;
    if (!r) r = driver_context(&number);
    return leave(r ? r : stream_make(stream, number, flags));
}

/* cuGreenCtxCreate: retains the primary context; CU_GREEN_CTX_DEFAULT_STREAM, 1, is required. */
int fake_cuGreenCtxCreate(void **green, void *resources, int device, unsigned flags) {
    int r = begin("cuGreenCtxCreate"), number;
    (void)resources;
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r && (!green || flags != 1)) r = cudaErrorInvalidValue;
    if (!r) r = context_make(&number, device, 1);
    if (r) return leave(r);
    activate(device);
    fake.device[device].retained++;
    *green = &contexts[number];
    return leave(0);
}

/* cuGreenCtxDestroy: releases the primary context, and destroys no stream. */
int fake_cuGreenCtxDestroy(void *green) {
    int r = begin("cuGreenCtxDestroy"), number = r ? -1 : context_of(green, &r);
    if (!r && !contexts[number].green) r = cudaErrorDeviceUninitialized;
    if (r) return leave(r == RUBBISH ? 0 : r);
    contexts[number].alive = 0;
    number = contexts[number].device;
    if (!--fake.device[number].retained && !fake.device[number].held) context_end(number);
    return leave(0);
}

int fake_cuCtxFromGreenCtx(void **handle, void *green) {
    int r = begin("cuCtxFromGreenCtx"), number = r ? -1 : context_of(green, &r);
    if (!r && !contexts[number].green) r = cudaErrorDeviceUninitialized;
    if (!r) *handle = green;
    return leave(r == RUBBISH ? 0 : r);
}

/* cuGreenCtxStreamCreate: CU_STREAM_NON_BLOCKING is required. */
int fake_cuGreenCtxStreamCreate(cudaStream_t *stream, void *green, unsigned flags, int priority) {
    int r = begin("cuGreenCtxStreamCreate"), number = r ? -1 : context_of(green, &r);
    (void)priority;
    if (!r && !contexts[number].green) r = cudaErrorDeviceUninitialized;
    if (!r && flags != cudaStreamNonBlocking) r = cudaErrorInvalidValue;
    return leave(r ? r : stream_make(stream, number, flags));
}
