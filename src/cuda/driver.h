/* Owns the table of the driver's functions, and the number of threads inside each device. A context
   is the driver's state of a process on a device. The runtime uses the device's primary context;
   while that exists, the device is active. A capture records the work of a stream instead of
   running it. A thread's capture mode decides which calls end a capture with an error. The driver's
   prototypes are written out here, so that a host needs neither cuda.h nor -lcuda. Locks:
   mli_cuda_loaded_lock, while the driver loads. */
#ifndef MLI_CUDA_DRIVER_H
#define MLI_CUDA_DRIVER_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"

/* The functions of the driver. Each line has the field in the table, the symbol, 1 if the layer
   cannot do without the function, and the parameters. The functions of virtual memory come from
   MLI_CUDA_VIRTUAL. A CUdevice and an enum are an int here, and a CUcontext is a void *. Streams,
   events and pools have the runtime's types. */
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

enum { /* constants of cuda.h, which is not included */
    MLI_CUDA_NO_MEMORY = 2,
    MLI_CUDA_NOT_INITIALIZED = 3,
    MLI_CUDA_NO_CONTEXT = 201, /* no context is current on the thread */
    MLI_CUDA_NOT_READY = 600,
    MLI_CUDA_NOT_PERMITTED = 800,  /* the thread runs a function that cudaLaunchHostFunc queued */
    MLI_CUDA_CAPTURE_FIRST = 900,  /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
    MLI_CUDA_CAPTURED_EVENT = 907, /* the event was last recorded in a capture */
    MLI_CUDA_CAPTURE_LAST = 908,   /* CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD */
    MLI_CUDA_MODE_RELAXED = 2,
    MLI_CUDA_ATTRIBUTE_INTEGRATED = 18,
    MLI_CUDA_ATTRIBUTE_POOLS = 115,
    MLI_CUDA_POINTER_DEVICE = 9,
    MLI_CUDA_POINTER_POOL = 17,
    MLI_CUDA_EVENT_PLAIN = 2, /* CU_EVENT_DISABLE_TIMING */
    MLI_CUDA_POOL_RESERVED = 5, /* reserved bytes; 6: their peak; 7: used bytes; 8: their peak */
    MLI_CUDA_GRAPH_USED = 0     /* used bytes; 1: their peak; 2: reserved bytes; 3: their peak */
};

typedef struct mli_cuda_driver {
#define MLI_CUDA_X(field, symbol, needed, params) int (*field) params;
    MLI_CUDA_FUNCTIONS(MLI_CUDA_X)
#undef MLI_CUDA_X
    int devices; /* the number of devices that the process sees */
    int known;   /* the number of devices in the arrays below */
    int handle[MEMLORD_CUDA_MAX_DEVICES];     /* the driver's handle of the device */
    int any_integrated;                       /* 1: some device is integrated */
    int integrated[MEMLORD_CUDA_MAX_DEVICES]; /* 1: the device uses the cpu's memory */
    int pools[MEMLORD_CUDA_MAX_DEVICES];      /* 1: the device has memory pools */
} mli_cuda_driver;

enum { MLI_CUDA_UNTRIED, MLI_CUDA_READY, MLI_CUDA_ABSENT };
typedef struct mli_cuda_loaded_state {
    mli_cuda_u64 state; /* MLI_CUDA_UNTRIED, _READY or _ABSENT; stored with release after the table
                           and `why` are filled */
    mli_cuda_driver table;
    char why[128]; /* what memlord_cuda_why returns */
} mli_cuda_loaded_state;
MLI_CUDA_VARIABLE(mli_cuda_loaded_state mli_cuda_loaded)

/* Returns the driver's functions. The first call of a process loads the driver. Returns NULL if
   there is no driver; memlord_cuda_why then says why. */
MLI_CUDA_PRIVATE const mli_cuda_driver *mli_cuda_driver_get(void);

/* Runs when the process exits. From then on mli_cuda_driver_get returns NULL, because CUDA ends
   with the process. Waits until no thread is inside a device. The handler is registered after the
   driver's own exit handlers, and so runs before them. */
MLI_CUDA_PRIVATE void mli_cuda_driver_leave(void);

/* Returns the runtime's number of the device for which the driver has this handle, or the handle
   itself if the device is not known. */
MLI_CUDA_PRIVATE int mli_cuda_ordinal(const mli_cuda_driver *d, int handle);

/* Returns 1 if the device's primary context exists. */
MLI_CUDA_PRIVATE int mli_cuda_active(const mli_cuda_driver *d, int device);

/* Returns 1 for an error that means "not now": the work is not done, a stream is captured, or the
   thread runs a function that cudaLaunchHostFunc queued. */
MLI_CUDA_PRIVATE int mli_cuda_is_not_yet(int error);

/* Relaxes this thread's capture mode, so that the thread's calls of the driver end no capture.
   *mode gets the previous mode, which the caller restores later with d->capture_mode(mode). Returns
   0 or the driver's error. After an error nothing has changed. */
MLI_CUDA_PRIVATE int mli_cuda_relax(const mli_cuda_driver *d, int *mode);

/* Makes a context current on this thread and relaxes the thread's capture mode, until
   mli_cuda_leave_context. Returns 0 or the driver's error. After an error nothing has changed. */
MLI_CUDA_PRIVATE int mli_cuda_enter_context(const mli_cuda_driver *d, void *context, int *mode);

MLI_CUDA_PRIVATE void mli_cuda_leave_context(const mli_cuda_driver *d, int *mode);

/* For each device, the number of threads inside it, plus MLI_CUDA_RESETTING for each thread that
   resets the device or ends the process. While such a thread is there, no other thread enters the
   device, because a reset destroys the context. */
#define MLI_CUDA_RESETTING (UINT64_C(1) << 32)
MLI_CUDA_VARIABLE(mli_cuda_u64 mli_cuda_inside[MEMLORD_CUDA_MAX_DEVICES])

/* Enters an active device, until mli_cuda_leave_device: retains the device's primary context, makes
   it current on this thread, and relaxes the capture mode. Returns 1, or 0 if the thread could not
   enter. If another thread has just reset the device by an unwrapped cudaDeviceReset, retaining
   makes a new context, and mli_cuda_leave_device ends it again. */
MLI_CUDA_PRIVATE int mli_cuda_enter_device(const mli_cuda_driver *d, int device, int *mode);

MLI_CUDA_PRIVATE void mli_cuda_leave_device(const mli_cuda_driver *d, int device, int *mode);

#endif
