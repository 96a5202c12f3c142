/* ---------------------------------------------------------------------- >>api -- */

/* -- attach -- */

enum {
    MEMLORD_CUDA_FLAG_RETRY = 1,       /* wrapped allocations go through memlord_alloc_retry */
    MEMLORD_CUDA_FLAG_SYNC = 2,        /* a collection first waits for the pending frees of its
                                          device */
    MEMLORD_CUDA_FLAG_NO_CAPACITY = 4, /* the host has a capacity source of its own */
    MEMLORD_CUDA_FLAG_NO_TRIM = 8,     /* the layer gives the ledger no collection callback */
    MEMLORD_CUDA_FLAG_NO_RESERVED = 16, /* the host itself sets the reserved bytes of its pools */
    MEMLORD_CUDA_FLAG_NO_NVML = 32,    /* NVML is not loaded: a device without a context has no
                                          capacity, and the bytes of this process are not known */
    MEMLORD_CUDA_FLAG_TIME_SCOPES = 64 /* the layer measures the time of scopes on the device */
};

/* How a ledger is attached. Zeros are the default. memlord_cuda_attach copies the struct. */
typedef struct memlord_cuda_desc {
    uint32_t flags;            /* MEMLORD_CUDA_FLAG_... */
    uint64_t keep_bytes;       /* the bytes that a collection leaves in a device's pools */
    const memlord_retry *retry; /* the policy for FLAG_RETRY; NULL means the default policy */
    const char *nvml;          /* the name of NVML's library; NULL means "libnvidia-ml.so.1". It has
                                  an effect only while no other ledger uses NVML */
} memlord_cuda_desc;

/* Gives a ledger a capacity source for its cuda devices, and a collection callback that trims their
   pools. Bands ask for a collection only after the host has set a strategy; from then on the
   ledger's pollers run, too. While the ledger is attached, an integrated GPU shares the cpu's
   memory (memlord_device_share), so the GPU's capacity is the cpu's. A ledger that is attached
   already gets the new description. `desc` NULL means the default.
   Errors: E_UNSUPPORTED if there is no driver or no device; memlord_cuda_why says which. E_INVALID
           if the retry policy is not valid. E_STATE if another thread attaches or detaches this
           ledger, or if MEMLORD_CUDA_MAX_LEDGERS are attached. E_NOMEM. After an error nothing is
           attached.
   Cost:   initialises the driver and NVML; creates no context. */
MEMLORD_API memlord_result memlord_cuda_attach(memlord *lord,
                                               const memlord_cuda_desc *desc)
    MLI_OFF(MEMLORD_OK)

/* Takes the capacity source and the callback off a ledger, and undoes the sharing. Blocks stay in
   the ledger, and the wrappers go on recording. When the last ledger of the process detaches, the
   events kept for reuse are destroyed. When the last ledger that used NVML detaches, NVML is
   unloaded.
   Threads: waits for samples and collections of the layer that are in progress.
   Errors:  E_UNKNOWN if the ledger is not attached. E_STATE if another thread attaches or detaches
            this ledger. */
MEMLORD_API memlord_result memlord_cuda_detach(memlord *lord)
    MLI_OFF(MEMLORD_OK)

/* Returns 1 if a ledger is attached. */
MEMLORD_API int memlord_cuda_attached(memlord *lord) MLI_OFF(0)

/* Returns why there is no driver, in words: "libcuda.so.1 was not found", "libcuda.so.1 has no
   cuEventQuery", "cuInit answered 802" (the numbers are CUresult's), "there is no device", "forked
   from the process that loaded the driver". Returns "" if there is a driver.
   Cost: the first call of a process loads the driver, as memlord_cuda_attach does. */
MEMLORD_API const char *memlord_cuda_why(void) MLI_OFF("")

/* -- pools -- */

/* The bytes of a device's memory pools (see >>concepts) and of its graphs' memory. A high is the
   largest value since somebody last reset the high. The highs of several pools are added up. */
typedef struct memlord_cuda_pool {
    uint64_t reserved, reserved_high; /* the bytes of the device that the pools hold */
    uint64_t used, used_high;         /* the bytes allocated out of the pools */
    uint64_t graph_reserved, graph_reserved_high; /* the bytes of the device that graphs hold */
    uint64_t graph_used, graph_used_high;         /* the part of these bytes that is in use */
    uint64_t pools;         /* the number of pools in these sums */
    uint64_t pools_dropped; /* how often the layer's list of pools, for all devices, had no room */
} memlord_cuda_pool;

/* Reads the pools of a device.
   Errors: E_INVALID if `out` is NULL. E_DEVICE if there is no such device. E_UNSUPPORTED if there
           is no driver, or if the device has no pools. E_STATE if the device is not active.
           E_UNKNOWN if the driver refuses. After an error *out is zero.
   Cost:   as many driver calls as a sample, see >>costs. */
MEMLORD_API memlord_result memlord_cuda_pool_get(memlord *lord, int device,
                                                 memlord_cuda_pool *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Sets the ledger's reserved bytes of a device (memlord_pool_set); see Reserved in >>concepts. Once
   a pool has held a byte, samples and collections set these bytes, too. Until the next sample,
   a wrapped alloc outside of pools, such as cudaMalloc, adds its bytes, and a free there subtracts
   its bytes. For an integrated GPU the cpu is sampled instead. The GPU's reserved bytes are set by
   one in 64 wrapped stream-ordered calls and by each wrapped synchronisation.
   Errors: those of memlord_cuda_pool_get. */
MEMLORD_API memlord_result memlord_cuda_pool_refresh(memlord *lord, int device)
    MLI_OFF(MEMLORD_OK)

/* -- wrapped functions --
   cudaError_t memlord_cuda_NAME(memlord *lord, the runtime's own parameters,
                                 const memlord_site *site)

   Each function makes the real call and returns its result. With a NULL ledger it does no more.
     malloc*, host_alloc    record the bytes. Pitched memory has pitch x height x depth bytes. A
                            NULL pointer is not recorded. A stream-ordered allocation is recorded
                            with its stream (memlord_stream_set).
     free, free_async       end the block at once, or when the recorded uses of it are done.
     host_register          records the memory as pinned; host_unregister ends that.
     stream_end_capture     records an event after the real call, for the frees that the capture
                            held back.
     stream_destroy         first records one event for all frees that wait for the stream and all
                            uses on it, of every ledger.
     device_reset           first waits for the device, and for samples and collections of the layer
                            that are inside the device. It ends the ledger's blocks on the current
                            device and the page-locked blocks that belong to the device. Blocks of
                            pools and physical memory stay, because CUDA keeps them. The frees that
                            wait for the device's streams are done, in all ledgers. The frees that
                            a capture holds back have failed. All events kept for reuse are
                            destroyed. All this happens before the real call, and is not undone if
                            the call fails, because its error may be one of earlier work. Blocks of
                            other ledgers stay in those ledgers. Requires: no ledger has a timed
                            scope open, because its events go.
     stream_synchronize, device_synchronize
                            first record an event for the frees that wait for the stream, or for
                            any stream. Then they end the pending blocks whose frees are done.
                            event_synchronize does only the latter.
     pool_create, device_set_pool
                            put the pool on the list of pools; pool_destroy takes the pool off.
   An allocation that finds no memory is counted as by memlord_alloc_failed.
   With MEMLORD_CUDA_FLAG_RETRY an allocation that finds no memory is tried again, under the
   ledger's limits. Between two tries it frees memory and waits as memlord_alloc_retry does, and
   trims the pools. Without the flag no limit refuses a wrapped allocation. When the retries are
   over, the real call is made once more for its result. Any other error ends the allocation at
   once.
   Cost: >>costs. */

/* the allocations: the real name, our name, parameters, arguments, their number, the kind */
#define MLI_CUDA_ALLOCS(X)                                                                    \
    X(cudaMalloc, malloc, (void **ptr, size_t bytes), (ptr, bytes), 2, PLAIN)                 \
    X(cudaMallocPitch, malloc_pitch,                                                          \
      (void **ptr, size_t *pitch, size_t width, size_t height),                               \
      (ptr, pitch, width, height), 4, PITCH)                                                  \
    X(cudaMalloc3D, malloc_3d, (struct cudaPitchedPtr *pitched, struct cudaExtent extent),    \
      (pitched, extent), 2, 3D)                                                               \
    X(cudaMallocManaged, malloc_managed, (void **ptr, size_t bytes, unsigned int flags),      \
      (ptr, bytes, flags), 3, PLAIN)                                                          \
    X(cudaMallocAsync, malloc_async, (void **ptr, size_t bytes, cudaStream_t stream),         \
      (ptr, bytes, stream), 3, ASYNC)                                                         \
    X(cudaMallocFromPoolAsync, malloc_from_pool_async,                                        \
      (void **ptr, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),                    \
      (ptr, bytes, pool, stream), 4, ASYNC)                                                   \
    X(cudaMallocHost, malloc_host, (void **ptr, size_t bytes), (ptr, bytes), 2, HOST)         \
    X(cudaHostAlloc, host_alloc, (void **ptr, size_t bytes, unsigned int flags),              \
      (ptr, bytes, flags), 3, HOST)

/* the frees: the real name, our name, parameters, arguments, the type of the device */
#define MLI_CUDA_FREES(X)                                                                     \
    X(cudaFree, free, (void *ptr), (ptr), CUDA)                                               \
    X(cudaFreeHost, free_host, (void *ptr), (ptr), PINNED)                                    \
    X(cudaHostUnregister, host_unregister, (void *ptr), (ptr), PINNED)

/* all wrapped functions: X gets the real name, our name, parameters, arguments; X0 gets the two
   names of a function without parameters */
#define MLI_CUDA_AS_X(real, ours, params, args, ...) MLI_CUDA_X(real, ours, params, args)
#define MLI_CUDA_WRAPPED(X, X0)                                                               \
    MLI_CUDA_ALLOCS(MLI_CUDA_AS_X)                                                            \
    MLI_CUDA_FREES(MLI_CUDA_AS_X)                                                             \
    X(cudaFreeAsync, free_async, (void *ptr, cudaStream_t stream), (ptr, stream))             \
    X(cudaHostRegister, host_register, (void *ptr, size_t bytes, unsigned int flags),         \
      (ptr, bytes, flags))                                                                    \
    X(cudaStreamEndCapture, stream_end_capture, (cudaStream_t stream, cudaGraph_t *graph),    \
      (stream, graph))                                                                        \
    X(cudaStreamDestroy, stream_destroy, (cudaStream_t stream), (stream))                     \
    X(cudaStreamSynchronize, stream_synchronize, (cudaStream_t stream), (stream))             \
    X(cudaEventSynchronize, event_synchronize, (cudaEvent_t event), (event))                  \
    X(cudaMemPoolCreate, pool_create,                                                         \
      (cudaMemPool_t *pool, const struct cudaMemPoolProps *props), (pool, props))             \
    X(cudaMemPoolDestroy, pool_destroy, (cudaMemPool_t pool), (pool))                         \
    X(cudaDeviceSetMemPool, device_set_pool, (int device, cudaMemPool_t pool), (device, pool)) \
    X0(cudaDeviceReset, device_reset)                                                         \
    X0(cudaDeviceSynchronize, device_synchronize)

#define MLI_CUDA_ITEMS(...) __VA_ARGS__
#define MLI_CUDA_X(real, ours, params, args)                                                  \
    MEMLORD_API cudaError_t memlord_cuda_##ours(                                              \
        memlord *lord, MLI_CUDA_ITEMS params, const memlord_site *site)                       \
        MLI_OFF(real args)
#define MLI_CUDA_X0(real, ours)                                                               \
    MEMLORD_API cudaError_t memlord_cuda_##ours(memlord *lord, const memlord_site *site)      \
        MLI_OFF(real())
MLI_CUDA_WRAPPED(MLI_CUDA_X, MLI_CUDA_X0)
#undef MLI_CUDA_X
#undef MLI_CUDA_X0

/* -- virtual memory --
   These functions wrap those of the driver, and call the driver that the layer has loaded. Without
   a driver they return 3, CUDA_ERROR_NOT_INITIALIZED. If cuda.h is included before this header,
   they have the types of cuda.h, MEMLORD_CUDA_SHIM redirects them, and with MEMLORD_DISABLE they
   are the driver's own. Else they return a CUresult as an int, and MEMLORD_DISABLE leaves them out.
   memlord_cuda_wrap_check does not check them.
     mem_create   records the bytes, with the handle as the key and "cuMemCreate" as the name, on
                  the device of the location; memory of the host is pinned. Retries, limits and
                  failures are those of the other allocations.
     mem_map      adds a reference, and the range as a part named "mapped" of the storage. The shape
                  of the part lists the addresses of the range, up to 8. A range that overlaps
                  another one in part adds neither.
     mem_retain_handle
                  adds a reference.
     mem_release, mem_unmap
                  drop one reference each. The bytes are live until the last handle and the last
                  mapping with a reference are gone. One unmap may end several mappings side by
                  side. A cache grows by create, map and release, and shrinks by unmap.
   A handle that the ledger does not have is passed on and not counted. An imported handle is
   another process's memory, and so is what cudaIpcOpenMemHandle opens. Reserved addresses take no
   memory. */
#if defined(CUDA_VERSION)
typedef CUresult mli_cuda_result;
typedef CUmemAllocationProp mli_cuda_prop;
#else
typedef int mli_cuda_result;
typedef void mli_cuda_prop;
#endif
#define MLI_CUDA_VIRTUAL(X)                                                                   \
    X(cuMemCreate, mem_create,                                                                \
      (unsigned long long *handle, size_t bytes, const mli_cuda_prop *prop,                   \
       unsigned long long flags),                                                             \
      (handle, bytes, prop, flags))                                                           \
    X(cuMemRelease, mem_release, (unsigned long long handle), (handle))                       \
    X(cuMemMap, mem_map,                                                                      \
      (unsigned long long ptr, size_t bytes, size_t offset, unsigned long long handle,        \
       unsigned long long flags),                                                             \
      (ptr, bytes, offset, handle, flags))                                                    \
    X(cuMemUnmap, mem_unmap, (unsigned long long ptr, size_t bytes), (ptr, bytes))            \
    X(cuMemRetainAllocationHandle, mem_retain_handle,                                         \
      (unsigned long long *handle, void *ptr), (handle, ptr))
#define MLI_CUDA_X(real, ours, params, args)                                                  \
    MEMLORD_API mli_cuda_result memlord_cuda_##ours(                                          \
        memlord *lord, MLI_CUDA_ITEMS params, const memlord_site *site)                       \
        MLI_OFF(real args)
#if defined(CUDA_VERSION) || !defined(MEMLORD_DISABLE)
MLI_CUDA_VIRTUAL(MLI_CUDA_X)
#endif
#undef MLI_CUDA_X

/* Does what memlord_cuda_malloc does, with retries under this policy, as with
   MEMLORD_CUDA_FLAG_RETRY. The ledger need not be attached. `policy` NULL means the default policy
   of memlord_alloc_retry. */
MEMLORD_API cudaError_t memlord_cuda_malloc_retry(memlord *lord, void **ptr, size_t bytes,
                                                  const memlord_retry *policy,
                                                  const memlord_site *site)
    MLI_OFF(cudaMalloc(ptr, bytes))

/* -- stream-ordered frees: what another stream still uses -- */

/* Frees a block in the order of `stream`, as cudaFreeAsync does, and keeps the block pending until
   the stream has done the work that it has now. Returns what cudaFreeAsync returned. Requires: if
   the block was allocated on another stream, `stream` waits for that one (cudaStreamWaitEvent). */
MEMLORD_API cudaError_t memlord_cuda_free_async_after(memlord *lord, void *ptr,
                                                      cudaStream_t stream,
                                                      const memlord_site *site)
    MLI_OFF(cudaFreeAsync(ptr, stream))

/* Records the free of a block. The block is pending, as after memlord_free_deferred, until `stream`
   has done the work that it has now. This function frees no memory: the host gives the memory back
   to a pool of its own, or calls the runtime's own function, not the wrapper. (The wrapper ends no
   pending block, and counts an unknown free if the block is no longer pending.) The block must be
   on a cuda device or pinned. If the host records the blocks of its own pool on a separate device,
   that device must be a cuda device with an index that no GPU has (memlord_device_share), not a
   device of the type OTHER. An event is recorded on the stream now, or after a capture (see
   >>concepts). If there is no memory for an event, the block ends at once. If the stream refuses
   the event, the block ends and is counted in fence_failures. `ptr` NULL does nothing.
   Errors: E_UNKNOWN if the block is not live; the ledger counts this mistake. */
MEMLORD_API memlord_result memlord_cuda_record_free(memlord *lord, const void *ptr,
                                                    cudaStream_t stream,
                                                    const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Records that a stream uses a block that was allocated on another stream, or a pinned block
   (PyTorch's record_stream). When the block is freed later, it stays pending until `stream` has
   done the work that it had at the free. With MEMLORD_FLAG_DEFER the block waits for the work that
   `stream` has at the next poll. If `stream` is a per-thread default stream, the block waits for
   the work that the stream has now. The call is not needed where the host makes the one stream wait
   for the other.
   Errors: E_UNKNOWN if the block is not live. E_NOMEM. */
MEMLORD_API memlord_result memlord_cuda_record_use(memlord *lord, const void *ptr,
                                                   cudaStream_t stream)
    MLI_OFF(MEMLORD_OK)

/* Destroys the events kept for reuse. Call this, while no free is pending, before a cudaDeviceReset
   that is not wrapped and before a cuCtxDestroy, because both end the events of the context. */
MEMLORD_API void memlord_cuda_events_release(void) MLI_OFF_VOID

/* -- scopes: what the device took -- */

/* A scope that memlord_cuda_scope_begin has begun. The fields are private. */
typedef struct memlord_cuda_scope {
    cudaStream_t stream;
    void *start;
    int begun;
} memlord_cuda_scope;

/* Begins a scope as memlord_scope_begin does, with a range for the profiler (MEMLORD_CUDA_NVTX).
   With MEMLORD_CUDA_FLAG_TIME_SCOPES an event on `stream` at the beginning of the scope and another
   at its end measure the device's time. After both events are done, a later call that begins or
   ends a scope, or a wrapped synchronisation, adds this time to the scope
   (memlord_scope_device_time). A scope that begins or ends while its stream is captured is not
   timed. A scope that begins while the times of 4096 others are not yet known is not timed
   either.
   Errors: E_INVALID if `scope` is NULL; those of memlord_scope_begin. */
MEMLORD_API memlord_result memlord_cuda_scope_begin(memlord *lord,
                                                    memlord_cuda_scope *scope,
                                                    const char *name, cudaStream_t stream)
    MLI_OFF_SET(if (scope) memset(scope, 0, sizeof *scope), MEMLORD_OK)
/* Ends a scope, on the thread that began it.
   Errors: E_INVALID if `scope` is NULL. E_STATE if the scope was not begun, or has ended. */
MEMLORD_API memlord_result memlord_cuda_scope_end(memlord *lord, memlord_cuda_scope *scope)
    MLI_OFF(MEMLORD_OK)

/* Does what memlord_checkpoint does, with a mark for the profiler.
   Errors: those of memlord_checkpoint. */
MEMLORD_API memlord_result memlord_cuda_checkpoint(memlord *lord, const char *name)
    MLI_OFF(MEMLORD_OK)

/* -- the linker's --wrap -- */

/* Returns the number of wrapped functions that --wrap does not redirect in this program. If `first`
   is not NULL, sets *first to the name of the first such function, or to NULL. Without
   MEMLORD_CUDA_WRAP no function is redirected. */
MEMLORD_API int memlord_cuda_wrap_check(const char **first)
    MLI_OFF_SET(if (first) *first = NULL, 0)

#ifdef __cplusplus
} /* extern "C" */
#endif

/* MEMLORD_CUDA_ATTACHED(lord, desc) { ... } attaches a ledger while the block runs, if that is
   possible. In GNU C and C++ the ledger is detached however the block is left. In other compilers
   break, return and goto leave it attached. */
typedef struct mli_cuda_guard {
    memlord *lord; /* NULL if there is nothing to detach */
} mli_cuda_guard;

MLI_INLINE mli_cuda_guard mli_cuda_enter(memlord *lord, const memlord_cuda_desc *desc) {
    mli_cuda_guard guard;
    guard.lord = memlord_cuda_attach(lord, desc) == MEMLORD_OK ? lord : NULL;
    return guard;
}

MLI_INLINE void mli_cuda_leave(mli_cuda_guard *guard) {
    if (guard->lord) (void)memlord_cuda_detach(guard->lord);
    guard->lord = NULL;
}

#if defined(__GNUC__)
#define MLI_CUDA_ON_LEAVE(fn) __attribute__((cleanup(fn)))
#else
#define MLI_CUDA_ON_LEAVE(fn)
#endif
#define MLI_CUDA_ATTACHED(guard, lord, desc)                                                  \
    for (mli_cuda_guard guard MLI_CUDA_ON_LEAVE(mli_cuda_leave) = mli_cuda_enter(lord, desc), \
                              *guard##_round = &guard;                                        \
         guard##_round; guard##_round = NULL, mli_cuda_leave(&guard))
#define MLI_CUDA_ATTACHED_AT(guard, lord, desc) MLI_CUDA_ATTACHED(guard, lord, desc)
#define MEMLORD_CUDA_ATTACHED(lord, desc)                                                     \
    MLI_COUNTER_BEGIN MLI_CUDA_ATTACHED_AT(MLI_UNIQUE(mli_cuda_at_), lord, desc) MLI_COUNTER_END

#if defined(MEMLORD_DISABLE) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
