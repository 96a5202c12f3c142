/* ---------------------------------------------------------------------- >>api -- */

/* -- attach -- */

enum {
    MEMLORD_CUDA_FLAG_RETRY = 1,       /* wrapped allocations go through memlord_alloc_retry */
    MEMLORD_CUDA_FLAG_SYNC = 2,        /* a collection first waits for the frees that are
                                          pending on its device */
    MEMLORD_CUDA_FLAG_NO_CAPACITY = 4, /* the host has a capacity source of its own */
    MEMLORD_CUDA_FLAG_NO_TRIM = 8,     /* no collection */
    MEMLORD_CUDA_FLAG_NO_RESERVED = 16, /* the host says itself what its pools hold */
    MEMLORD_CUDA_FLAG_NO_NVML = 32,    /* nothing is known before a context exists, nor of
                                          this process's share */
    MEMLORD_CUDA_FLAG_TIME_SCOPES = 64 /* memlord_cuda_scope_begin measures its stream's time */
};

/* Everything at zero is the default. Copied. */
typedef struct memlord_cuda_desc {
    uint32_t flags;            /* MEMLORD_CUDA_FLAG_... */
    uint64_t keep_bytes;       /* what a collection leaves in a device's pools at least, 0 */
    const memlord_retry *retry; /* for FLAG_RETRY; the policy memlord_alloc_retry has */
    const char *nvml;          /* what is loaded for NVML, "libnvidia-ml.so.1"; while another
                                  ledger uses it, what that one loaded */
} memlord_cuda_desc;

/* Gives a ledger a capacity source for its cuda devices, and a collection callback that trims, not
   by bands before the host has set a strategy. Once it has, the ledger's pollers start, too. An
   integrated GPU shares the cpu's memory from then on (memlord_device_share), so its capacity is
   what is available there. A ledger that is attached takes the new description. `desc` NULL is the
   default.
   Errors: E_UNSUPPORTED no driver or no device, see memlord_cuda_why; E_INVALID the retry policy;
           E_STATE another thread attaches or detaches this ledger, or MEMLORD_CUDA_MAX_LEDGERS are
           attached; E_NOMEM. Nothing is attached then.
   Cost:   initialises the driver and NVML; creates no context. */
MEMLORD_API memlord_result memlord_cuda_attach(memlord *lord,
                                               const memlord_cuda_desc *desc)
    MLI_OFF(MEMLORD_OK)

/* Takes the source and the callback off, and undoes the sharing. Blocks stay on the books, and
   the wrappers go on. The last one of a process also destroys the events kept for reuse; the last
   one that used it unloads NVML.
   Threads: waits for samples and collections of the layer in progress.
   Errors:  E_UNKNOWN not attached; E_STATE. */
MEMLORD_API memlord_result memlord_cuda_detach(memlord *lord)
    MLI_OFF(MEMLORD_OK)

/* 1: attached. */
MEMLORD_API int memlord_cuda_attached(memlord *lord) MLI_OFF(0)

/* Returns why there is no driver, in words: "libcuda.so.1 was not found", "libcuda.so.1 has no
   cuEventQuery", "cuInit answered 802" (the numbers are CUresult's), "there is no device", "forked
   from the process that loaded the driver". Returns "" if there is one. Cost: the first call of a
   process loads the driver, as memlord_cuda_attach does. */
MEMLORD_API const char *memlord_cuda_why(void) MLI_OFF("")

/* -- pools -- */

/* Bytes of a device's memory pools (see >>concepts), and of the memory its graphs own. The highs
   are since somebody last reset them, and those of several pools a sum. */
typedef struct memlord_cuda_pool {
    uint64_t reserved, reserved_high; /* held from the device */
    uint64_t used, used_high;         /* allocated out of it */
    uint64_t graph_reserved, graph_reserved_high;
    uint64_t graph_used, graph_used_high;
    uint64_t pools;         /* in these sums */
    uint64_t pools_dropped; /* times that a pool, of any device, found no room in the list */
} memlord_cuda_pool;

/* Reads them. Errors: E_INVALID `out` NULL; E_DEVICE no such device; E_UNSUPPORTED no driver, or
   no pools there; E_STATE the device is not active; E_UNKNOWN the driver refused. *out is 0 then.
   Cost: some driver calls. */
MEMLORD_API memlord_result memlord_cuda_pool_get(memlord *lord, int device,
                                                 memlord_cuda_pool *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Sets the ledger's reserved bytes of a device (memlord_pool_set) to what its pools hold. Samples
   and collections do it by themselves, once a pool has ever held something, and between them
   cudaMalloc, cudaFree and their like add what they change. An integrated GPU is sampled as the
   cpu: there one in 64 of the wrapped stream-ordered calls does it, and each wrapped
   synchronisation. Errors: as pool_get. */
MEMLORD_API memlord_result memlord_cuda_pool_refresh(memlord *lord, int device)
    MLI_OFF(MEMLORD_OK)

/* -- wrapped functions --
   cudaError_t memlord_cuda_NAME(memlord *lord, the runtime's own parameters,
                                 const memlord_site *site)

   each make the real call and return its result. A NULL ledger is that call alone.
     malloc*, host_alloc    record what was allocated: with a pitch, pitch x height x depth. A
                            pointer that came out NULL is no storage. A stream-ordered allocation has its stream beside its tag (memlord_stream_set).
     free, free_async       end it: at the call, or when the uses recorded of it are done.
     host_register          record it as pinned; host_unregister ends that.
     stream_end_capture     then records what the capture held back.
     stream_destroy         first record one event for all that waits for the stream, or was used
                            there, whatever ledger it is of.
     device_reset           first waits for the device, and for samples and collections of the layer
                            that are inside it, and ends what the ledger has on it: blocks of
                            the current device and page-locked ones of it, but for those of pools
                            and physical memory, which CUDA keeps. Frees that wait for its streams
                            are done then, of all ledgers; what a capture holds back has failed; and
                            all events kept for reuse are destroyed. All this happens before the
                            call, and stays if that fails: its error may be one of earlier work.
                            Blocks of other ledgers there stay on their books; none may have a timed
                            scope open, as its events are gone.
     *_synchronize          first record what waits for the stream, or the device, and then retire,
                            as what they waited for may be what is pending.
     pool_create, device_set_pool
                            take the pool into the list; pool_destroy takes it off.
   An allocation that finds no memory is counted as by memlord_alloc_failed.
   With MEMLORD_CUDA_FLAG_RETRY allocations that find no memory retire, collect, trim and back off
   as memlord_alloc_retry does, under the ledger's limits (without the flag a limit refuses none of
   them); at the end once more, for the result. Other errors, sticky ones first of all, end it at
   once. Cost: >>costs. */

/* of an allocation: the real one, ours, parameters, arguments, how many, what kind it is */
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

/* of a free: the same, and the device that it counts on */
#define MLI_CUDA_FREES(X)                                                                     \
    X(cudaFree, free, (void *ptr), (ptr), CUDA)                                               \
    X(cudaFreeHost, free_host, (void *ptr), (ptr), PINNED)                                    \
    X(cudaHostUnregister, host_unregister, (void *ptr), (ptr), PINNED)

/* of any: the first four of these; and one without parameters: real, ours */
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
   The driver's functions, wrapped as those of the runtime are; memlord_cuda_wrap_check does not
   look for them. With cuda.h before this header they have its types, are shimmed, and are the
   driver's own with MEMLORD_DISABLE; without it they return a CUresult as an int and are not there
   with MEMLORD_DISABLE. They call the driver that the layer has loaded; 3 (not initialised): none.
     mem_create   records the bytes on the device of the location, or as pinned for the host's,
                  under the handle, described as "cuMemCreate". Retry, limits and failures are
                  those of the other allocations.
     mem_map      adds a reference, and the range as a part "mapped" of the storage; the part's
                  shape is its address, or up to 8 at which the same range is mapped. One that
                  overlaps another in part adds neither.
     mem_retain_handle
                  adds a reference.
     mem_release, mem_unmap
                  drop a reference each; the bytes are live until the last handle and the last
                  mapping with a reference are gone. An unmap may be of several mappings side by
                  side. So a cache grows by create, map and release, and shrinks by unmap.
   A handle that is not on the books is passed on and not counted: an imported one is another
   process's memory, as is what cudaIpcOpenMemHandle opens. Reserved addresses take no memory. */
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

/* Does memlord_cuda_malloc as with MEMLORD_CUDA_FLAG_RETRY, under a policy of its own (NULL: the
   one memlord_alloc_retry has); attached or not. */
MEMLORD_API cudaError_t memlord_cuda_malloc_retry(memlord *lord, void **ptr, size_t bytes,
                                                  const memlord_retry *policy,
                                                  const memlord_site *site)
    MLI_OFF(cudaMalloc(ptr, bytes))

/* -- stream-ordered frees: what another stream still uses -- */

/* Frees a block in the order of `stream`, as cudaFreeAsync does, and keeps it pending until the
   stream has done what it was given so far. If the block was allocated on another stream, `stream`
   has to wait for that one first (cudaStreamWaitEvent). Returns what cudaFreeAsync returned.
   Cost: free_async, and an event recorded on the stream. */
MEMLORD_API cudaError_t memlord_cuda_free_async_after(memlord *lord, void *ptr,
                                                      cudaStream_t stream,
                                                      const memlord_site *site)
    MLI_OFF(cudaFreeAsync(ptr, stream))

/* Records that the host is done with a block once `stream` has done what it was given so far: the
   block is pending until then, as by memlord_free_deferred. Only the books are kept: the memory
   goes back as the host sees fit, to a pool of its own, or by the runtime's own function (the
   wrapper ends nothing then, and counts an unknown free if the block is no longer pending). The
   block is one of a cuda device, or pinned. So a pool of the host's own is a cuda device with an
   index that no device has (memlord_device_share), not of the type OTHER. Records an event on the
   stream at once, or after a capture (see >>concepts; of a per-thread default stream by its thread,
   or on the legacy one, which waits for all of them). Without memory for an event the block is
   credited at once; also if the stream refused it (destroyed), counted in fence_failures. NULL does
   nothing.
   Errors: E_UNKNOWN not live, counted. */
MEMLORD_API memlord_result memlord_cuda_record_free(memlord *lord, const void *ptr,
                                                    cudaStream_t stream,
                                                    const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Records that a stream other than the one the block was allocated on uses it, or that one uses a
   pinned block (PyTorch's record_stream): a free of it, later, leaves it pending until that stream
   has done what it was given up to the free (with MEMLORD_FLAG_DEFER up to the next poll, and
   with a per-thread default stream up to this call). A host that makes the one stream wait for the
   other does not need it.
   Errors: E_UNKNOWN not live; E_NOMEM. */
MEMLORD_API memlord_result memlord_cuda_record_use(memlord *lord, const void *ptr,
                                                   cudaStream_t stream)
    MLI_OFF(MEMLORD_OK)

/* Destroys the events kept for reuse: before cudaDeviceReset, when no free is pending. */
MEMLORD_API void memlord_cuda_events_release(void) MLI_OFF_VOID

/* -- scopes: what the device took -- */

/* A scope from its begin to its end. Its fields are private. */
typedef struct memlord_cuda_scope {
    cudaStream_t stream;
    void *start;
    int begun;
} memlord_cuda_scope;

/* Begins a scope as memlord_scope_begin does, with a range for the profiler (MEMLORD_CUDA_NVTX).
   With MEMLORD_CUDA_FLAG_TIME_SCOPES events on `stream` at its begin and end give the device's
   time, which is added once they are done: later begins and ends look, and the wrapped
   synchronisations. A scope that begins or ends while its stream is captured is not timed, nor
   one with 4096 others in flight. Errors: E_INVALID `scope` NULL; as memlord_scope_begin. */
MEMLORD_API memlord_result memlord_cuda_scope_begin(memlord *lord,
                                                    memlord_cuda_scope *scope,
                                                    const char *name, cudaStream_t stream)
    MLI_OFF_SET(if (scope) memset(scope, 0, sizeof *scope), MEMLORD_OK)
/* Ends it, on the thread that began it. Errors: E_INVALID; E_STATE it was not begun, or ended. */
MEMLORD_API memlord_result memlord_cuda_scope_end(memlord *lord, memlord_cuda_scope *scope)
    MLI_OFF(MEMLORD_OK)

/* Does memlord_checkpoint, with a mark for the profiler. Errors: as that. */
MEMLORD_API memlord_result memlord_cuda_checkpoint(memlord *lord, const char *name)
    MLI_OFF(MEMLORD_OK)

/* -- the linker's --wrap -- */

/* Counts the functions that --wrap does not redirect in this program; *first, if not NULL, is the
   name of the first of them, or NULL. Without MEMLORD_CUDA_WRAP that is all of them. */
MEMLORD_API int memlord_cuda_wrap_check(const char **first)
    MLI_OFF_SET(if (first) *first = NULL, 0)

#ifdef __cplusplus
} /* extern "C" */
#endif

/* MEMLORD_CUDA_ATTACHED(lord, desc) { ... } attaches for the block, if that is possible. Under
   GNU C and C++ it ends however the block is left; elsewhere break, return and goto skip the
   end. */
typedef struct mli_cuda_guard {
    memlord *lord; /* NULL: nothing to detach */
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
