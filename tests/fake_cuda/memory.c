/* A part of fake_cuda.c: storages, their addresses, arrays, pools, memory of other processes. */

/* -- memory: addresses -- */

#define FIRST UINT64_C(0x700000000000) /* address of what is on devices */
#define PAGE (UINT64_C(2) << 20)

static char *page_at(int page) { return (char *)(uintptr_t)(FIRST + (uint64_t)page * PAGE); }

/* What is live there, or has it in it. */
static storage *find(const void *ptr) {
    int i;
    uint64_t at = (uint64_t)(uintptr_t)ptr;
    if (at >= FIRST && at < FIRST + (uint64_t)n_pages * PAGE) {
        storage *s = &storages[(i = owner[(at - FIRST) / PAGE]) ? i - 1 : 0];
        return i && s->kind && s->state != INNER && (const char *)ptr < s->at + s->bytes ? s : NULL;
    }
    for (i = 0; i < n_storages; i++)
        if (storages[i].kind >= HOST && (const char *)ptr >= storages[i].at &&
            (const char *)ptr < storages[i].at + storages[i].bytes)
            return &storages[i];
    return NULL;
}

static int wait_for_context(int number);

static storage *storage_new(void) {
    storage *s = &storages[spare ? spare - 1 : n_storages];
    if (!spare && n_storages == STORAGES) return NULL;
    if (spare) {
        spare = s->next;
    } else {
        n_storages++;
    }
    memset(s, 0, sizeof *s);
    return s;
}

/* May what one stream freed be another's? cudaMemPoolAttr: on its own stream at once, elsewhere
   when that is done, or after it, by a dependency the driver makes. */
static int again(const storage *s, int kind, pool *from, struct CUstream_st *stream, int pages) {
    if (s->was != kind || s->pages < pages || s->from != from) return 0;
    if (kind != POOL || !s->freed_on || s->freed_on == stream || from->reuse[INTERNAL]) return 1;
    return from->reuse[OPPORTUNISTIC] && s->freed_on->done >= s->freed_at;
}

static void storage_place(storage *s, int page, int pages) {
    int i;
    s->page = page;
    s->pages = pages;
    s->at = page_at(page);
    for (i = 0; i < pages; i++) owner[page + i] = 1 + (int)(s - storages);
}

/* The addresses freed last come first. */
static storage *storage_take(int kind, pool *from, struct CUstream_st *stream, uint64_t bytes) {
    const uint64_t most = bytes / PAGE + (bytes % PAGE != 0);
    const int pages = most < PAGES ? (int)most : PAGES;
    storage *s, *rest;
    int *at = &freed;
    while (*at && !again(&storages[*at - 1], kind, from, stream, pages))
        at = &storages[*at - 1].next;
    if (!*at) {
        if (n_pages + pages > PAGES || !(s = storage_new())) return NULL;
        storage_place(s, n_pages, pages);
        n_pages += pages;
        return s;
    }
    rest = &storages[*at - 1];
    if (rest->pages == pages) {
        *at = rest->next;
        return rest;
    }
    if (!(s = storage_new())) return NULL;
    storage_place(s, rest->page, pages);
    storage_place(rest, rest->page + pages, rest->pages - pages);
    return s;
}

static void storage_end(storage *s) {
    int *list = s->pages ? &freed : &spare;
    if (s->kind == HOST) free(s->at);
    s->was = s->kind;
    s->kind = s->state = 0;
    s->graph = NULL;
    s->next = *list;
    *list = 1 + (int)(s - storages);
}

static storage *storage_add(int kind, int device, uint64_t bytes, pool *from,
                            struct CUstream_st *stream) {
    storage *s = storage_take(kind, from, stream, bytes);
    if (!s) return NULL;
    s->kind = kind;
    s->device = device;
    s->context = self.depth ? self.stack[self.depth - 1] : device;
    s->bytes = bytes;
    s->from = from;
    s->serial = ++serial;
    return s;
}

uint64_t fake_live(void) {
    uint64_t n = 0;
    int i;
    pthread_mutex_lock(&lock);
    for (i = 0; i < n_storages; i++)
        n += storages[i].kind != 0 && storages[i].state < GIVEN_BACK;
    n += virtual_live();
    pthread_mutex_unlock(&lock);
    return n;
}

/* -- memory: allocations -- */

static void high(uint64_t *at) { /* the next number is the highest of it */
    if (at[0] > at[1]) at[1] = at[0];
}

static int room(int device, uint64_t more) {
    uint64_t total = fake.device[device].total;
    return more <= total && used(device) <= total - more;
}

static int alloc(int kind, int device, uint64_t bytes, void **ptr) {
    storage *s;
    if (!ptr) return cudaErrorInvalidValue;
    if (!bytes) *ptr = NULL;
    if (!bytes) return 0;
    if (!room(device, bytes) || !(s = storage_add(kind, device, bytes, NULL, NULL)))
        return cudaErrorMemoryAllocation;
    *ptr = s->at;
    fake.device[device].plain += bytes;
    return 0;
}

static int alloc_host(int device, uint64_t bytes, void **ptr) {
    storage *s;
    void *host;
    if (!ptr) return cudaErrorInvalidValue;
    if (!bytes) *ptr = NULL;
    if (!bytes) return 0;
    if (!(host = malloc((size_t)bytes))) return cudaErrorMemoryAllocation;
    if (!(s = storage_new())) {
        free(host);
        return cudaErrorMemoryAllocation;
    }
    s->kind = HOST;
    s->device = device;
    s->context = self.depth ? self.stack[self.depth - 1] : device;
    s->bytes = bytes;
    *ptr = s->at = (char *)host;
    return 0;
}

/* cuMemPoolTrimTo: the allocations of the system may happen at another granularity. What a pool
   takes at once is taken for the first that needs it, and shared by the next that have room. */
static chunk *chunk_for(pool *p, uint64_t bytes, uint64_t *more) {
    chunk *c, *unused = NULL;
    for (c = chunks; c < chunks + CHUNKS; c++) {
        if (c->of == p && c->bytes - c->used >= bytes) return c;
        if (!c->of && !unused) unused = c;
    }
    *more = (bytes + fake.pool_chunk - 1) / fake.pool_chunk * fake.pool_chunk;
    return unused;
}

static int alloc_pool(pool *p, struct CUstream_st *stream, uint64_t bytes, void **ptr) {
    chunk *part = NULL;
    uint64_t more = 0;
    storage *s;
    if (fake.pool_chunk) {
        if (!(part = chunk_for(p, bytes, &more))) return cudaErrorMemoryAllocation;
    } else if (p->n[USED] + bytes > p->n[RESERVED]) {
        more = p->n[USED] + bytes - p->n[RESERVED];
    }
    if ((more && !room(p->device, more)) || (p->most && p->n[USED] + bytes > p->most))
        return cudaErrorMemoryAllocation;
    if (!(s = storage_add(POOL, p->device, bytes, p, stream))) return cudaErrorMemoryAllocation;
    if (part && more) {
        memset(part, 0, sizeof *part);
        part->of = p;
        part->bytes = more;
    }
    if (part) part->used += bytes;
    s->part = part;
    *ptr = s->at;
    p->n[USED] += bytes;
    p->n[RESERVED] += more;
    high(&p->n[USED]), high(&p->n[RESERVED]);
    return 0;
}

/* cudaMallocAsync: during stream capture it makes an allocation node, owned by the graph. Its
   memory comes when the graph is launched. */
static int alloc_node(struct CUgraph_st *g, int device, uint64_t bytes, void **ptr) {
    storage *s;
    if (bytes > fake.device[device].total) return cudaErrorMemoryAllocation;
    if (!(s = storage_add(GRAPH, device, bytes, NULL, NULL))) return cudaErrorMemoryAllocation;
    s->graph = g;
    s->state = CAPTURED;
    *ptr = s->at;
    g->now += bytes;
    high(&g->now);
    return 0;
}

static int alloc_async(cudaStream_t stream, pool *p, size_t bytes, void **ptr) {
    struct CUstream_st *s = stream_of(stream);
    int r;
    if (!ptr) return cudaErrorInvalidValue;
    if (!s) return cudaErrorInvalidResourceHandle;
    if (!fake.device[p ? p->device : s->device].pools) return cudaErrorNotSupported;
    if (s->context < FAKE_DEVICES) activate(s->device);
    if ((r = use(s))) return r;
    if (!bytes) *ptr = NULL;
    if (!bytes) return 0;
    if (!p) p = pool_now[s->device];
    return s->capture ? alloc_node(s->capture->graph, p->device, bytes, ptr)
                      : alloc_pool(p, s, bytes, ptr);
}

/* cuMemPoolTrimTo: at least so much stays; what backs outstanding allocations does; and what was
   freed counts as outstanding until its stream has come there. */
static void chunks_let_go(pool *p, uint64_t keep) {
    chunk *c;
    for (c = chunks; c < chunks + CHUNKS; c++)
        if (c->of == p && !c->used && p->n[RESERVED] - c->bytes >= keep &&
            (p->dying || !c->busy || c->busy->done >= c->until)) {
            p->n[RESERVED] -= c->bytes;
            c->of = NULL;
        }
}

static void pool_let_go(pool *p, uint64_t keep) {
    if (fake.pool_chunk) {
        chunks_let_go(p, keep);
    } else if (p->n[RESERVED] > keep) {
        p->n[RESERVED] = p->n[USED] > keep ? p->n[USED] : keep;
    }
    /* cudaMemPoolDestroy: once there are no more outstanding allocations */
    if (p->dying && !p->n[USED]) p->n[RESERVED] = 0;
    if (p->dying && !p->n[USED]) p->dying = 0;
}

/* cudaGraphAddMemAllocNode: freed in the graph it is the graph's; else after a launch, once. */
static int release_node(storage *s, capture *c) {
    if (c ? s->graph != c->graph || s->state != CAPTURED : s->state != RUN)
        return cudaErrorInvalidValue;
    if (c) {
        s->state = INNER;
        c->graph->now -= s->bytes;
        return 0;
    }
    fake.device[s->device].graph_used -= s->bytes;
    s->state = GIVEN_BACK;
    if (!s->graph) storage_end(s);
    return 0;
}

/* Of device memory; of what a kind of page-locked memory is, else. */
static int release(const void *ptr, int host, struct CUstream_st *stream) {
    storage *s = find(ptr);
    if (!s || s->at != ptr) return cudaErrorInvalidValue; /* the base of it, and live */
    if (host ? s->kind != host : s->kind > GRAPH) return cudaErrorInvalidValue;
    if (s->kind == GRAPH) return release_node(s, NULL);
    if (s->kind == PLAIN) fake.device[s->device].plain -= s->bytes;
    s->freed_on = stream;
    s->freed_at = stream ? stream->given : 0;
    if (s->kind == POOL) s->from->n[USED] -= s->bytes;
    if (s->part) {
        s->part->used -= s->bytes;
        s->part->busy = stream;
        s->part->until = s->freed_at;
    }
    if (s->kind == POOL && s->from->dying) pool_let_go(s->from, 0);
    storage_end(s);
    return 0;
}

cudaError_t cudaMalloc(void **ptr, size_t bytes) {
    int r = runtime("cudaMalloc");
    if (!r) r = unsafe();
    if (!r) r = alloc(PLAIN, current(), bytes, ptr);
    return end(r);
}

/* cudaMallocManaged: not of size 0; flags are one of two. */
cudaError_t cudaMallocManaged(void **ptr, size_t bytes, unsigned int flags) {
    int r = runtime("cudaMallocManaged");
    if (!r && (!bytes || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)))
        r = cudaErrorInvalidValue;
    if (!r) r = unsafe();
    if (!r) r = alloc(PLAIN, current(), bytes, ptr);
    return end(r);
}

cudaError_t cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height) {
    int r = runtime("cudaMallocPitch");
    size_t row = (width + 511) / 512 * 512;
    if (!r && !pitch) r = cudaErrorInvalidValue;
    if (!r) r = unsafe();
    if (!r && width > FAKE_GIB) r = cudaErrorMemoryAllocation;
    if (!r) r = alloc(PLAIN, current(), (uint64_t)row * height, ptr);
    if (!r) *pitch = row;
    return end(r);
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *ptr, struct cudaExtent extent) {
    int r = runtime("cudaMalloc3D");
    size_t row = (extent.width + 511) / 512 * 512;
    if (!r && !ptr) r = cudaErrorInvalidValue;
    if (!r) r = unsafe();
    if (!r) r = alloc(PLAIN, current(), (uint64_t)row * extent.height * extent.depth, &ptr->ptr);
    if (!r) {
        ptr->pitch = row;
        ptr->xsize = extent.width;
        ptr->ysize = extent.height;
    }
    return end(r);
}

cudaError_t cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t stream) {
    int r = runtime("cudaMallocAsync");
    if (!r && (uintptr_t)stream <= 2) (void)current();
    if (!r) r = alloc_async(stream, NULL, bytes, ptr);
    return end(r);
}

/* cudaFree: no implicit synchronization for what is a pool's; for all other pointers it may. */
static int free_waits(const void *ptr) {
    const storage *s = find(ptr);
    return s && s->kind == PLAIN ? wait_for_context(s->context) : 0;
}

cudaError_t cudaFree(void *ptr) {
    int r = runtime("cudaFree");
    if (!r) r = unsafe();
    if (!r) (void)current();
    if (!r && ptr && fake.free_waits) r = free_waits(ptr);
    if (!r && ptr) r = release(ptr, 0, NULL);
    return end(r);
}

/* cudaFreeAsync: during stream capture it makes a free node, which must be passed the address of a
   graph allocation. */
cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream) {
    int r = runtime("cudaFreeAsync");
    struct CUstream_st *s = stream_of(stream);
    storage *block = find(ptr);
    if (!r) r = use(s);
    if (!r && s->capture) {
        r = block && block->kind == GRAPH && block->at == ptr ? release_node(block, s->capture)
                                                              : cudaErrorInvalidValue;
        if (r) invalidate(s->capture, r);
    } else if (!r) {
        r = release(ptr, 0, s);
    }
    return end(r);
}

cudaError_t cudaMallocHost(void **ptr, size_t bytes) {
    int r = runtime("cudaMallocHost");
    if (!r) r = unsafe();
    if (!r) r = alloc_host(current(), bytes, ptr);
    return end(r);
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned int flags) {
    int r = runtime("cudaHostAlloc");
    if (!r && flags > 7) r = cudaErrorInvalidValue; /* portable, mapped, write-combined */
    if (!r) r = unsafe();
    if (!r) r = alloc_host(current(), bytes, ptr);
    return end(r);
}

cudaError_t cudaFreeHost(void *ptr) {
    int r = runtime("cudaFreeHost");
    if (!r) r = unsafe();
    if (!r && ptr) r = release(ptr, HOST, NULL);
    return end(r);
}

/* cudaHostRegister: not what is page-locked already. */
cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned int flags) {
    int r = runtime("cudaHostRegister");
    storage *s = NULL;
    if (!r && (!ptr || !bytes || flags > 15)) r = cudaErrorInvalidValue;
    if (!r && (find(ptr) || find((char *)ptr + bytes - 1)))
        r = cudaErrorHostMemoryAlreadyRegistered;
    if (!r) r = unsafe();
    if (!r && !(s = storage_new())) r = cudaErrorMemoryAllocation;
    if (!r) {
        s->kind = REGISTERED;
        s->device = current();
        s->context = current_context();
        s->bytes = bytes;
        s->at = (char *)ptr;
    }
    return end(r);
}

/* cudaHostUnregister: the base that cudaHostRegister was passed. */
cudaError_t cudaHostUnregister(void *ptr) {
    int r = runtime("cudaHostUnregister");
    storage *s = find(ptr);
    if (!r && !ptr) r = cudaErrorInvalidValue;
    if (!r && (!s || s->kind != REGISTERED || s->at != ptr)) r = cudaErrorHostMemoryNotRegistered;
    if (!r) r = unsafe();
    if (!r) r = release(ptr, REGISTERED, NULL);
    return end(r);
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream) {
    int r = runtime("cudaMemsetAsync");
    storage *s = r ? NULL : find(ptr);
    (void)value;
    if (!r && (!s || (char *)ptr + bytes > s->at + s->bytes)) r = cudaErrorInvalidValue;
    if (!r) r = use(stream_of(stream));
    return end(r);
}

/* -- memory: arrays, handled by address -- */

static uint64_t texels(const struct cudaChannelFormatDesc *d, struct cudaExtent e,
                       unsigned levels) {
    uint64_t n = 0, bytes = (uint64_t)(d->x + d->y + d->z + d->w) / 8;
    unsigned i;
    for (i = 0; i < (levels ? levels : 1); i++)
        n += bytes * ((e.width >> i) ? e.width >> i : 1) * ((e.height >> i) ? e.height >> i : 1) *
             ((e.depth >> i) ? e.depth >> i : 1);
    return n;
}

static int alloc_array(void *array, const struct cudaChannelFormatDesc *desc,
                       struct cudaExtent extent, unsigned levels) {
    void *ptr = NULL;
    int r = 0;
    if (!array || !desc || !extent.width) r = cudaErrorInvalidValue;
    if (!r) r = unsafe();
    if (!r) r = alloc(ARRAY, current(), texels(desc, extent, levels), &ptr);
    if (!r) memcpy(array, &ptr, sizeof ptr);
    return r;
}

/* cudaFreeArray: what cudaMallocArray returned; NULL is no operation. */
static int free_array(void *array) {
    storage *s = find(array);
    int r = unsafe();
    if (r || !array) return r;
    if (!s || s->kind != ARRAY || s->at != array) return cudaErrorInvalidValue;
    fake.device[s->device].plain -= s->bytes;
    storage_end(s);
    return 0;
}

cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc,
                            size_t width, size_t height, unsigned int flags) {
    int r = runtime("cudaMallocArray");
    struct cudaExtent extent = {width, height, 0};
    (void)flags;
    return end(r ? r : alloc_array(array, desc, extent, 1));
}

cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc,
                              struct cudaExtent extent, unsigned int flags) {
    int r = runtime("cudaMalloc3DArray");
    (void)flags;
    return end(r ? r : alloc_array(array, desc, extent, 1));
}

cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t *array,
                                     const struct cudaChannelFormatDesc *desc,
                                     struct cudaExtent extent, unsigned int levels,
                                     unsigned int flags) {
    int r = runtime("cudaMallocMipmappedArray");
    (void)flags;
    return end(r ? r : alloc_array(array, desc, extent, levels));
}

RUNTIME(cudaFreeArray, (cudaArray_t array), free_array((void *)array))
RUNTIME(cudaFreeMipmappedArray, (cudaMipmappedArray_t array), free_array((void *)array))

/* -- memory: of other processes -- */

typedef struct ipc {
    uint64_t magic, bytes, serial;
    uintptr_t at; /* in the process that exported it */
    int device, foreign;
} ipc;

enum { IPC_MAGIC = 0x1bc };

static void ipc_make(cudaIpcMemHandle_t *handle, int device, uint64_t bytes, uintptr_t at,
                     uint64_t number, int foreign) {
    ipc made;
    memset(&made, 0, sizeof made);
    made.magic = IPC_MAGIC;
    made.bytes = bytes;
    made.serial = number;
    made.at = at;
    made.device = device;
    made.foreign = foreign;
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &made, sizeof made);
}

void fake_ipc_handle(cudaIpcMemHandle_t *handle, int device, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    ipc_make(handle, device, bytes, 4096, ++serial, 1);
    pthread_mutex_unlock(&lock);
}

/* cudaIpcGetMemHandle: the base of what cudaMalloc made, and of no pool. */
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr) {
    int r = runtime("cudaIpcGetMemHandle");
    storage *s = find(ptr);
    if (!r && (!handle || !s || s->kind != PLAIN || s->at != ptr)) r = cudaErrorInvalidValue;
    if (!r) ipc_make(handle, s->device, s->bytes, (uintptr_t)s->at, s->serial, 0);
    return end(r);
}

/* cudaIpcOpenMemHandle: of another process, with one flag; opened again it is the same pointer. */
cudaError_t cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle, unsigned int flags) {
    int r = runtime("cudaIpcOpenMemHandle"), device = r ? 0 : current(), i;
    storage *s = NULL;
    ipc what;
    memcpy(&what, &handle, sizeof what);
    if (!r && (!ptr || flags != cudaIpcMemLazyEnablePeerAccess || what.magic != IPC_MAGIC))
        r = cudaErrorInvalidValue;
    if (!r && !what.foreign) r = cudaErrorDeviceUninitialized; /* not in the process it is of */
    if (!r && what.device != device && !reaches(device, what.device))
        r = cudaErrorMapBufferObjectFailed;
    for (i = 0; !r && !s && i < n_storages; i++)
        if (storages[i].kind == IPC && storages[i].serial == what.serial) s = &storages[i];
    if (!r && !s && !(s = storage_add(IPC, what.device, what.bytes, NULL, NULL)))
        r = cudaErrorMapBufferObjectFailed;
    if (!r) {
        s->opened++;
        s->serial = what.serial;
        *ptr = s->at;
    }
    return end(r);
}

/* cudaIpcCloseMemHandle: what cudaIpcOpenMemHandle returned, as often. */
cudaError_t cudaIpcCloseMemHandle(void *ptr) {
    int r = runtime("cudaIpcCloseMemHandle");
    storage *s = find(ptr);
    if (!r && (!s || s->kind != IPC || s->at != ptr)) r = cudaErrorInvalidValue;
    if (!r && !--s->opened) storage_end(s);
    return end(r);
}

/* -- pools -- */

static cudaMemPool_t handle_of(pool *p) {
    int i = (int)(p - pools);
    return (cudaMemPool_t)(i < FAKE_DEVICES ? (void *)&fake.device[i] : (void *)p);
}

/* The default pool of a device is the device it is of. NULL: none, or one that was destroyed. */
static pool *pool_of(cudaMemPool_t handle) {
    int i;
    for (i = 0; i < POOLS; i++)
        if (pools[i].alive && handle_of(&pools[i]) == handle) return &pools[i];
    return NULL;
}

static int pool_on(cudaMemPool_t *handle, int device, pool *const *found) {
    if (!valid(device)) return cudaErrorInvalidDevice;
    if (!handle) return cudaErrorInvalidValue;
    if (!fake.device[device].pools) return cudaErrorNotSupported;
    *handle = handle_of(*found);
    return 0;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *handle, int device) {
    int r = runtime("cudaDeviceGetDefaultMemPool");
    pool *p = &pools[valid(device) ? device : 0];
    return end(r ? r : pool_on(handle, device, &p));
}

RUNTIME(cudaDeviceGetMemPool, (cudaMemPool_t *handle, int device),
        pool_on(handle, device, &pool_now[valid(device) ? device : 0]))

/* cudaDeviceSetMemPool: the pool must be local to the device. */
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t handle) {
    int r = runtime("cudaDeviceSetMemPool");
    pool *p = pool_of(handle);
    if (!r && !valid(device)) r = cudaErrorInvalidDevice;
    if (!r && (!p || p->device != device)) r = cudaErrorInvalidValue;
    if (!r) pool_now[device] = p;
    return end(r);
}

/* cudaMemPoolCreate: of pinned memory, on a device. */
cudaError_t cudaMemPoolCreate(cudaMemPool_t *handle, const struct cudaMemPoolProps *props) {
    int r = runtime("cudaMemPoolCreate"), i = FAKE_DEVICES;
    if (!r && (!handle || !props || props->allocType != cudaMemAllocationTypePinned ||
               props->location.type != cudaMemLocationTypeDevice || !valid(props->location.id)))
        r = cudaErrorInvalidValue;
    if (!r && !fake.device[props->location.id].pools) r = cudaErrorNotSupported;
    while (i < POOLS && (pools[i].alive || pools[i].dying)) i++;
    if (!r && i == POOLS) r = cudaErrorMemoryAllocation;
    if (!r) {
        pool_make(&pools[i], props->location.id, NULL);
#if CUDART_VERSION >= 12020
        pools[i].most = props->maxSize;
#endif
        *handle = handle_of(&pools[i]);
    }
    return end(r);
}

/* cudaMemPoolDestroy: never a default one; what is out stays until it is freed; the current pool
   of the device is then the default one. */
cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle) {
    int r = runtime("cudaMemPoolDestroy");
    pool *p = pool_of(handle);
    if (!r && (!p || p < pools + FAKE_DEVICES)) r = cudaErrorInvalidValue;
    if (!r) {
        p->alive = 0;
        p->dying = 1;
        pool_let_go(p, 0);
        if (pool_now[p->device] == p) pool_now[p->device] = &pools[p->device];
    }
    return end(r);
}

/* cudaMemPoolSetAccess: a peer has to reach the device; the device itself always does. */
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t handle, const struct cudaMemAccessDesc *list,
                                 size_t n) {
    int r = runtime("cudaMemPoolSetAccess");
    pool *p = pool_of(handle);
    size_t i;
    if (!r && (!p || !list)) r = cudaErrorInvalidValue;
    for (i = 0; !r && i < n; i++) {
        int peer = list[i].location.id;
        if (list[i].location.type != cudaMemLocationTypeDevice || !valid(peer) ||
            (peer == p->device ? list[i].flags != cudaMemAccessFlagsProtReadWrite
                               : !reaches(peer, p->device)))
            r = cudaErrorInvalidValue;
    }
    for (i = 0; !r && i < n; i++) p->access[list[i].location.id] = (int)list[i].flags;
    return end(r);
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t handle,
                                 struct cudaMemLocation *location) {
    int r = runtime("cudaMemPoolGetAccess");
    pool *p = pool_of(handle);
    if (!r && (!flags || !p || !location || location->type != cudaMemLocationTypeDevice ||
               !valid(location->id)))
        r = cudaErrorInvalidValue;
    if (!r) *flags = (enum cudaMemAccessFlags)p->access[location->id];
    return end(r);
}

/* cudaMemPoolAttr: three ints, the threshold, four numbers. */
static int attribute_get(cudaMemPool_t handle, int attribute, void *value) {
    pool *p = pool_of(handle);
    if (!p || !value || attribute < 1 || attribute > 8) return cudaErrorInvalidValue;
    if (attribute < 4) memcpy(value, &p->reuse[attribute - 1], sizeof(int));
    if (attribute == 4) memcpy(value, &p->n[THRESHOLD], sizeof(uint64_t));
    if (attribute > 4) memcpy(value, &p->n[attribute - 5], sizeof(uint64_t));
    return 0;
}

/* cudaMemPoolSetAttribute: of the numbers the two high ones, and those to 0. */
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, enum cudaMemPoolAttr attr, void *value) {
    int r = runtime("cudaMemPoolSetAttribute"), attribute = (int)attr;
    pool *p = pool_of(handle);
    uint64_t n = 0;
    if (!r && (!p || !value || attribute < 1 || attribute > 8)) r = cudaErrorInvalidValue;
    if (!r && attribute < 4) memcpy(&p->reuse[attribute - 1], value, sizeof(int));
    if (!r && attribute >= 4) memcpy(&n, value, sizeof n);
    if (!r && attribute == 4) p->n[THRESHOLD] = n;
    if (!r && attribute > 4 && (n || attribute == 5 || attribute == 7)) r = cudaErrorInvalidValue;
    if (!r && attribute > 4) p->n[attribute - 5] = p->n[attribute - 6];
    return end(r);
}

RUNTIME(cudaMemPoolGetAttribute, (cudaMemPool_t handle, enum cudaMemPoolAttr attr, void *value),
        attribute_get(handle, (int)attr, value))

static int pool_trim(cudaMemPool_t handle, uint64_t keep) {
    pool *p = pool_of(handle);
    int r = p ? unsafe() : cudaErrorInvalidValue;
    uint64_t was;
    if (r) return r;
    was = p->n[RESERVED];
    fake.device[p->device].trims++;
    pool_let_go(p, keep);
    if (was > p->n[RESERVED]) fake.device[p->device].trimmed += was - p->n[RESERVED];
    return 0;
}

RUNTIME(cudaMemPoolTrimTo, (cudaMemPool_t handle, size_t keep), pool_trim(handle, keep))

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t bytes, cudaMemPool_t handle,
                                    cudaStream_t stream) {
    int r = runtime("cudaMallocFromPoolAsync");
    pool *p = pool_of(handle);
    if (!r && (!p || !valid(p->device))) r = cudaErrorInvalidValue;
    if (!r && (uintptr_t)stream <= 2) (void)current();
    if (!r) r = alloc_async(stream, p, bytes, ptr);
    return end(r);
}
