/* Owns the table of driver functions, and enters devices. Written out here, so that neither cuda.h
   nor -lcuda is needed. Locks: its own, while it loads. */
#ifndef MLI_CUDA_DRIVER_H
#define MLI_CUDA_DRIVER_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"

/* field, symbol, 1: nothing goes without it, parameters; virtual memory has its own table.
   CUdevice and enums are ints, CUcontext is a pointer; streams, events and pools are the runtime's
   own types. */
#define MLI_CUDA_AS_FUNCTION(real, ours, params, args) MLI_CUDA_X(ours, #real, 0, params)
#define MLI_CUDA_FUNCTIONS(X)                                                                 \
    X(init, "cuInit", 1, (unsigned flags))                                                    \
    X(device_count, "cuDeviceGetCount", 1, (int *count))                                      \
    X(device_get, "cuDeviceGet", 1, (int *device, int ordinal))                               \
    X(device_attribute, "cuDeviceGetAttribute", 1, (int *value, int attribute, int device))   \
    X(device_pci, "cuDeviceGetPCIBusId", 0, (char *text, int size, int device))               \
    X(device_name, "cuDeviceGetName", 0, (char *text, int size, int device))                  \
    X(device_uuid, "cuDeviceGetUuid_v2", 0, (unsigned char *uuid, int device))                \
    X(primary_state, "cuDevicePrimaryCtxGetState", 1,                                         \
      (int device, unsigned *flags, int *active))                                             \
    X(primary_retain, "cuDevicePrimaryCtxRetain", 1, (void **context, int device))            \
    X(primary_release, "cuDevicePrimaryCtxRelease_v2", 1, (int device))                       \
    X(context_push, "cuCtxPushCurrent_v2", 1, (void *context))                                \
    X(context_pop, "cuCtxPopCurrent_v2", 1, (void **context))                                 \
    X(context_current, "cuCtxGetCurrent", 1, (void **context))                                \
    X(context_device, "cuCtxGetDevice", 1, (int *device))                                     \
    X(context_id, "cuCtxGetId", 0, (void *context, unsigned long long *id))                   \
    X(memory_info, "cuMemGetInfo_v2", 1, (size_t *unused, size_t *total))                     \
    X(pointer_attribute, "cuPointerGetAttribute", 1,                                          \
      (void *value, int attribute, unsigned long long pointer))                               \
    X(pool_current, "cuDeviceGetMemPool", 0, (cudaMemPool_t *pool, int device))               \
    X(pool_default, "cuDeviceGetDefaultMemPool", 0, (cudaMemPool_t *pool, int device))        \
    X(pool_attribute, "cuMemPoolGetAttribute", 0,                                             \
      (cudaMemPool_t pool, int attribute, void *value))                                       \
    X(pool_trim, "cuMemPoolTrimTo", 0, (cudaMemPool_t pool, size_t keep))                     \
    X(graph_attribute, "cuDeviceGetGraphMemAttribute", 0,                                     \
      (int device, int attribute, void *value))                                               \
    X(graph_trim, "cuDeviceGraphMemTrim", 0, (int device))                                    \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", 1, (int *mode))                      \
    X(stream_capturing, "cuStreamIsCapturing", 1, (cudaStream_t stream, int *status))         \
    X(stream_context, "cuStreamGetCtx", 1, (cudaStream_t stream, void **context))             \
    X(stream_id, "cuStreamGetId", 0, (cudaStream_t stream, unsigned long long *id))           \
    X(event_create, "cuEventCreate", 1, (cudaEvent_t *event, unsigned flags))                 \
    X(event_destroy, "cuEventDestroy_v2", 1, (cudaEvent_t event))                             \
    X(event_record, "cuEventRecord", 1, (cudaEvent_t event, cudaStream_t stream))             \
    X(event_query, "cuEventQuery", 1, (cudaEvent_t event))                                    \
    X(event_wait, "cuEventSynchronize", 0, (cudaEvent_t event))                               \
    X(event_elapsed, "cuEventElapsedTime", 0,                                                 \
      (float *ms, cudaEvent_t start, cudaEvent_t stop))                                       \
    MLI_CUDA_VIRTUAL(MLI_CUDA_AS_FUNCTION)

enum { /* of cuda.h */
    MLI_CUDA_NO_MEMORY = 2,
    MLI_CUDA_NOT_INITIALIZED = 3,
    MLI_CUDA_NO_CONTEXT = 201, /* none is current */
    MLI_CUDA_NOT_READY = 600,
    MLI_CUDA_NOT_PERMITTED = 800, /* in a host function of a stream */
    MLI_CUDA_CAPTURE_FIRST = 900, /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED .. */
    MLI_CUDA_CAPTURED_EVENT = 907,
    MLI_CUDA_CAPTURE_LAST = 908,  /* .. CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD */
    MLI_CUDA_MODE_RELAXED = 2,
    MLI_CUDA_ATTRIBUTE_INTEGRATED = 18,
    MLI_CUDA_ATTRIBUTE_POOLS = 115,
    MLI_CUDA_POINTER_DEVICE = 9,
    MLI_CUDA_POINTER_POOL = 17,
    MLI_CUDA_EVENT_PLAIN = 2, /* CU_EVENT_DISABLE_TIMING */
    MLI_CUDA_POOL_RESERVED = 5, /* then its high, used, its high */
    MLI_CUDA_GRAPH_USED = 0     /* then its high, reserved, its high */
};

typedef struct mli_cuda_driver {
#define MLI_CUDA_X(field, symbol, needed, params) int (*field) params;
    MLI_CUDA_FUNCTIONS(MLI_CUDA_X)
#undef MLI_CUDA_X
    int devices; /* that are visible */
    int known;   /* of them; their handles and properties follow */
    int handle[MEMLORD_CUDA_MAX_DEVICES];
    int any_integrated;
    int integrated[MEMLORD_CUDA_MAX_DEVICES];
    int pools[MEMLORD_CUDA_MAX_DEVICES];
} mli_cuda_driver;

enum { MLI_CUDA_UNTRIED, MLI_CUDA_READY, MLI_CUDA_ABSENT };
typedef struct mli_cuda_loaded_state {
    mli_cuda_u64 state; /* READY is stored with release after the table is filled */
    mli_cuda_driver table;
    char why[128]; /* as memlord_cuda_why says; stored before the state */
} mli_cuda_loaded_state;
MLI_CUDA_VARIABLE(mli_cuda_loaded_state mli_cuda_loaded)

/* NULL: memlord_cuda_why says why. Loads it once a process. */
MLI_CUDA_PRIVATE const mli_cuda_driver *mli_cuda_driver_get(void);

/* From now on there is no driver: the process ends, and CUDA with it. Waits for threads inside
   devices. Registered after the driver's own handlers, it runs before them. */
MLI_CUDA_PRIVATE void mli_cuda_driver_leave(void);

/* The runtime's number of a driver's device; they are the same wherever anybody has looked. */
MLI_CUDA_PRIVATE int mli_cuda_ordinal(const mli_cuda_driver *d, int handle);

MLI_CUDA_PRIVATE int mli_cuda_active(const mli_cuda_driver *d, int device);

/* 1: an error that says "not now": the work is not done, a stream is captured, or the thread is in
   a host function of a stream. */
MLI_CUDA_PRIVATE int mli_cuda_is_not_yet(int error);

/* Relaxes the thread's capture mode, so that the next calls end no capture, and keeps the mode
   before in *mode, to be given back by capture_mode. Returns the driver's error; then nothing has
   changed. */
MLI_CUDA_PRIVATE int mli_cuda_relax(const mli_cuda_driver *d, int *mode);

/* Makes a context current and the thread's capture mode relaxed, until leave. Returns the driver's
   error; then nothing has changed. */
MLI_CUDA_PRIVATE int mli_cuda_enter_context(const mli_cuda_driver *d, void *context, int *mode);

MLI_CUDA_PRIVATE void mli_cuda_leave_context(const mli_cuda_driver *d, int *mode);

/* Threads inside each device, and RESETTING for each that resets it: then no other enters, as a
   reset destroys the context. */
#define MLI_CUDA_RESETTING (UINT64_C(1) << 32)
MLI_CUDA_VARIABLE(mli_cuda_u64 mli_cuda_inside[MEMLORD_CUDA_MAX_DEVICES])

/* The same with the primary context of an active device. Retaining it keeps it while we are in; one
   that others reset meanwhile ends again when we leave, as nobody else holds it. */
MLI_CUDA_PRIVATE int mli_cuda_enter_device(const mli_cuda_driver *d, int device, int *mode);

MLI_CUDA_PRIVATE void mli_cuda_leave_device(const mli_cuda_driver *d, int device, int *mode);

#endif
