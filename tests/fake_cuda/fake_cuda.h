/* A CUDA runtime, and the driver and NVML under it, that do what a test tells them to. Linked in
   place of -lcudart; the driver and NVML are shared libraries that call back into it. Everything
   may be used from any thread. Devices have memory that is only counted; host memory is real. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#endif
#include <cuda_runtime_api.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

enum { FAKE_DEVICES = 4, FAKE_GIB = 1 << 30 };

/* What the driver does with a handle of something that is destroyed, which CUDA leaves undefined:
   refuses it, crashes, or succeeds and answers rubbish. */
enum { FAKE_DEAD_REFUSED, FAKE_DEAD_CRASHES, FAKE_DEAD_RUBBISH };
enum { FAKE_POOL, FAKE_STREAM, FAKE_EVENT, FAKE_CONTEXT, FAKE_KINDS };

typedef struct fake_device {
    uint64_t total;
    uint64_t others;       /* bytes of other processes */
    int integrated, pools; /* attributes */
    unsigned peers;        /* a bit for each device that reaches its memory */
    int active;            /* the primary context exists */
    int contexts;          /* times it came to be: by cudaSetDevice, too, since CUDA 12 */
    int held;              /* by the runtime: no release by others ends it */
    int retained;          /* by the driver's clients */
    uint64_t context_bytes; /* what the context takes of the device */
    uint64_t plain;        /* bytes of cudaMalloc and its like */
    uint64_t physical;     /* bytes of cuMemCreate */
    uint64_t reserved, reserved_high, used, used_high; /* of the pool */
    uint64_t threshold;                                /* its release threshold */
    uint64_t graph_reserved, graph_reserved_high, graph_used, graph_used_high;
    int trims, graph_trims; /* of its pool, of its graphs' memory */
    uint64_t trimmed;       /* bytes the pool gave back by them */
    char pci[16];
    uint64_t nvml_total; /* NVML counts another one */
    int mig;        /* the mode is on: NVML has figures of the whole device, CUDA of a part of it */
    int nvml_denied; /* NVML names no process: this one may not ask, as in MIG mode */
    unsigned nvml_pid; /* who NVML says holds nvml_used of it */
    uint64_t nvml_used;
    uint64_t nvml_unnamed; /* bytes of one more, whose number NVML does not tell: 0 */
    unsigned nvml_crowd; /* so many more hold a byte each */
    uint64_t nvml_own;   /* bytes that NVML says this process holds */
    unsigned nvml_offset; /* and its number there is so much higher: one of another namespace */
    int pushed; /* times its context is, on all threads */
    int resets_inside; /* resets while another thread was inside */
} fake_device;

typedef struct fake_cuda {
    int devices;
    int no_driver;
    int old_driver; /* older than the runtime can do with */
    int lazy; /* as before CUDA 12: cudaSetDevice makes no context, and none current */
    int host_pools;  /* what comes out of a pool is on no device: -1 */
    int slow_events; /* an event is a thing its stream is given, and never done at once */
    uint64_t pool_chunk; /* pools take memory of the device in such parts; 0: exactly */
    int runs_alone; /* streams do what they are given while nobody waits, on a thread */
    int free_waits; /* cudaFree of what is no pool's waits for the device */
    uint64_t queue_length; /* what a stream holds that is not done; 0: any number of things */
    int lax_host_functions; /* their calls of CUDA are not refused */
    int queue_waits; /* calls that waited until a full stream had done something */
    int retain_unsafe; /* cuDevicePrimaryCtxRetain is one of the calls that a capture forbids */
    int dead_handles;  /* FAKE_DEAD_: what the driver does with one */
    int dead[FAKE_KINDS]; /* times it was given one, by FAKE_POOL and the others */
    int green_shared; /* times a green context became current on a second thread */
    int ended;        /* the driver is over, and every call of CUDA answers so */
    int ends_at_exit; /* cuInit has the driver end in an exit handler */
    fake_device device[FAKE_DEVICES];
    uint64_t calls;        /* of anything */
    uint64_t driver_calls; /* of them, of the driver: what is made beside the runtime's */
    uint64_t context_waits; /* of them, cuCtxSynchronize */
    uint64_t fail_at;     /* the number of the call that fails; 0: none */
    int fail_error;       /* with this, 999 if 0 */
    const char *fail_name; /* calls of this name fail ... */
    int fail_times;        /* ... so often, -1: always */
    int sticky; /* every call that needs a context answers this, of the runtime and the driver */
    int contexts;          /* primary contexts that came to be */
    int retains;           /* of the driver's, not yet released */
    int set_devices;       /* calls of cudaSetDevice */
    int captures;          /* under way */
    int host_function_calls; /* of CUDA, in a host function of a stream: refused */
    int violated;          /* unsafe calls, or queries of captured events, during them */
    int captured_records;  /* events recorded on a stream that was captured */
    int dead_asked;        /* questions to the driver about a stream that is destroyed */
    int events, events_made; /* that exist; that were ever made */
    int nvml_inits;        /* that were not shut down */
    void (*on_nvml_init)(void); /* may take its time */
    const char *before_name; /* the next call of this name is preceded by what another thread */
    void (*before)(void);    /* does meanwhile; NULL: none */
    void (*on_driver_call)(const char *name); /* as one begins, with no lock of the fake's held */
    int depth_errors;      /* pops of a context that was not pushed */
} fake_cuda;

extern fake_cuda fake;

/* Starts over: `devices` of 1 GiB, nothing active, this thread's state clean. */
void fake_reset(int devices);
uint64_t fake_count(const char *name);      /* calls of that name since */
uint64_t fake_live(void);                   /* storages of all kinds, and of graphs not run yet */
void fake_stream_work(cudaStream_t stream); /* gives it something to do */
void fake_stream_finish(cudaStream_t stream);
void fake_stream_do(cudaStream_t stream, uint64_t things); /* so many of them */
uint64_t fake_stream_waits(cudaStream_t stream); /* for other streams, that it was told to */
/* A handle of memory that another process holds. */
void fake_ipc_handle(cudaIpcMemHandle_t *handle, int device, uint64_t bytes);
int fake_depth(void); /* contexts pushed on this thread */
void fake_activate(int device);
void fake_before(const char *name, void (*before)(void)); /* sets both, while threads call */
void fake_is_no_child(void); /* in a child of a fork: it goes on as the parent would */
/* Of the driver, for tests: as cuCtxCreate and its like, without what nobody uses here. */
int fake_cuCtxCreate(void **context, unsigned flags, int device);
int fake_cuCtxDestroy_v2(void *context);
int fake_cuStreamCreate(cudaStream_t *stream, unsigned flags);
int fake_cuGreenCtxCreate(void **green, void *resources, int device, unsigned flags);
int fake_cuGreenCtxDestroy(void *green);
int fake_cuCtxFromGreenCtx(void **context, void *green);
int fake_cuGreenCtxStreamCreate(cudaStream_t *stream, void *green, unsigned flags, int priority);

/* What the shared libraries call. */
int fake_nvml_init(void);
int fake_nvml_shutdown(void);
int fake_nvml_by_pci(const char *id, void **device);
int fake_nvml_memory(void *device, void *info);
int fake_nvml_mig(void *device, unsigned *current, unsigned *pending);
int fake_nvml_processes(void *device, unsigned *n, void *info);

/* name, parameters, arguments */
#define FAKE_DRIVER(X)                                                                        \
    X(cuInit, (unsigned flags), (flags))                                                      \
    X(cuDeviceGetCount, (int *count), (count))                                                \
    X(cuDeviceGet, (int *device, int ordinal), (device, ordinal))                             \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device),                          \
      (value, attribute, device))                                                             \
    X(cuDeviceGetPCIBusId, (char *text, int size, int device), (text, size, device))          \
    X(cuDeviceGetName, (char *text, int size, int device), (text, size, device))              \
    X(cuDeviceGetUuid_v2, (unsigned char *uuid, int device), (uuid, device))                  \
    X(cuDevicePrimaryCtxGetState, (int device, unsigned *flags, int *active),                 \
      (device, flags, active))                                                                \
    X(cuDevicePrimaryCtxRetain, (void **context, int device), (context, device))              \
    X(cuDevicePrimaryCtxRelease_v2, (int device), (device))                                   \
    X(cuCtxPushCurrent_v2, (void *context), (context))                                        \
    X(cuCtxPopCurrent_v2, (void **context), (context))                                        \
    X(cuCtxGetCurrent, (void **context), (context))                                           \
    X(cuCtxGetDevice, (int *device), (device))                                                \
    X(cuCtxGetId, (void *context, unsigned long long *id), (context, id))                     \
    X(cuCtxSynchronize, (void), ())                                                           \
    X(cuMemGetInfo_v2, (size_t *unused, size_t *total), (unused, total))                      \
    X(cuPointerGetAttribute, (void *value, int attribute, unsigned long long ptr),            \
      (value, attribute, ptr))                                                                \
    X(cuDeviceGetMemPool, (cudaMemPool_t *pool, int device), (pool, device))                  \
    X(cuDeviceGetDefaultMemPool, (cudaMemPool_t *pool, int device), (pool, device))           \
    X(cuMemPoolGetAttribute, (cudaMemPool_t pool, int attribute, void *value),                \
      (pool, attribute, value))                                                               \
    X(cuMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), (pool, keep))                       \
    X(cuDeviceGetGraphMemAttribute, (int device, int attribute, void *value),                 \
      (device, attribute, value))                                                             \
    X(cuDeviceGraphMemTrim, (int device), (device))                                           \
    X(cuThreadExchangeStreamCaptureMode, (int *mode), (mode))                                 \
    X(cuStreamIsCapturing, (cudaStream_t stream, int *status), (stream, status))              \
    X(cuStreamGetCtx, (cudaStream_t stream, void **context), (stream, context))               \
    X(cuStreamGetCtx_v2, (cudaStream_t stream, void **context, void **green),                 \
      (stream, context, green))                                                               \
    X(cuStreamGetId, (cudaStream_t stream, unsigned long long *id), (stream, id))             \
    X(cuEventCreate, (cudaEvent_t *event, unsigned flags), (event, flags))                    \
    X(cuEventDestroy_v2, (cudaEvent_t event), (event))                                        \
    X(cuEventRecord, (cudaEvent_t event, cudaStream_t stream), (event, stream))               \
    X(cuEventQuery, (cudaEvent_t event), (event))                                             \
    X(cuEventSynchronize, (cudaEvent_t event), (event))                                       \
    X(cuEventElapsedTime, (float *ms, cudaEvent_t start, cudaEvent_t end), (ms, start, end))  \
    X(cuMemCreate,                                                                            \
      (unsigned long long *handle, size_t bytes, const void *prop, unsigned long long flags), \
      (handle, bytes, prop, flags))                                                           \
    X(cuMemRelease, (unsigned long long handle), (handle))                                    \
    X(cuMemMap,                                                                               \
      (unsigned long long ptr, size_t bytes, size_t offset, unsigned long long handle,        \
       unsigned long long flags),                                                             \
      (ptr, bytes, offset, handle, flags))                                                    \
    X(cuMemUnmap, (unsigned long long ptr, size_t bytes), (ptr, bytes))                       \
    X(cuMemRetainAllocationHandle, (unsigned long long *handle, void *address),               \
      (handle, address))                                                                      \
    X(cuMemAddressReserve,                                                                    \
      (unsigned long long *ptr, size_t bytes, size_t alignment, unsigned long long at,        \
       unsigned long long flags),                                                             \
      (ptr, bytes, alignment, at, flags))                                                     \
    X(cuMemAddressFree, (unsigned long long ptr, size_t bytes), (ptr, bytes))                 \
    X(cuMemImportFromShareableHandle,                                                         \
      (unsigned long long *handle, void *shared, int type), (handle, shared, type))

#define FAKE_X(name, params, args) int fake_##name params;
FAKE_DRIVER(FAKE_X)
#undef FAKE_X

#endif /* FAKE_CUDA_H */
