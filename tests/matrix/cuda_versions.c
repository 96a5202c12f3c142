/* What differs between CUDA's runtime headers from 11.2 to 13.0, of what memlord_cuda.h, the tests and
   the examples use. A header has these declarations if this file compiles. tests/gates/cuda_headers.sh
   compiles it against the header of the tests as each version, and against those of NVIDIA that are
   there.

   Sources:
   - 11.4   NVIDIA's headers as github.com/tangjicheng1/design_patterns keeps them in cuda/include
   - 11.8   NVIDIA's headers as github.com/xiaohaoo/Yolo_TensorRT keeps them in include
   - 12.5   cuda_runtime_api.h and driver_types.h in github.com/SciNim/nimcuda, include/cuda12_5
   - 13.0   the toolkit
   - between: github.com/coreylowman/cudarc at 8995648e2ea7, src/runtime/sys/mod.rs and src/driver/sys,
     which are made from NVIDIA's headers of each version from 11.4 to 13.0
   - 11.2, 11.3: no header was found. They are taken to be as 11.4 without what that version added: the
     memory of graphs, and cudaGraphInstantiateWithFlags.

   MemLord uses none of these, which differ as well: cudaMemAdvise, cudaMemPrefetchAsync (a location in
   place of the device in 13.0), cudaStreamGetCaptureInfo, cudaStreamUpdateCaptureDependencies (edges
   in 13.0), cuCtxCreate (parameters in 13.0).

   The functions of the driver that MemLord looks up have one prototype from 11.4 to 13.0, and one set
   of numbers. cuda.h of 13.0 has cuEventElapsedTime as a macro for its _v2; the library has both. */
#include <cuda_runtime_api.h>

#define SIZE(what, bytes) typedef char size_of_##what[sizeof(what) == (bytes) ? 1 : -1]
#define VALUE(name, number) typedef char value_of_##name[(int)(name) == (number) ? 1 : -1]
typedef struct cudaMemPoolProps props;
SIZE(props, 88); /* 11.4 to 13.0: what is new comes out of `reserved` */

VALUE(cudaErrorContextIsDestroyed, 709);
VALUE(cudaDevAttrMemoryPoolsSupported, 115);
VALUE(cudaMemPoolAttrReservedMemCurrent, 5);
VALUE(cudaMemLocationTypeDevice, 1);
VALUE(cudaMemAllocationTypePinned, 1);

#if CUDART_VERSION >= 12000 /* as cudaGraphInstantiateWithFlags */
static cudaError_t (*const instantiate)(cudaGraphExec_t *, cudaGraph_t,
                                        unsigned long long) = cudaGraphInstantiate;
#else /* 11.4, 11.8 */
static cudaError_t (*const instantiate)(cudaGraphExec_t *, cudaGraph_t, cudaGraphNode_t *, char *,
                                        size_t) = cudaGraphInstantiate;
#endif

#if CUDART_VERSION >= 11040 /* memory of graphs */
static cudaError_t (*const with_flags)(cudaGraphExec_t *, cudaGraph_t,
                                       unsigned long long) = cudaGraphInstantiateWithFlags;
static cudaError_t (*const attribute)(int, enum cudaGraphMemAttributeType,
                                      void *) = cudaDeviceGetGraphMemAttribute;
static cudaError_t (*const trim)(int) = cudaDeviceGraphMemTrim;
VALUE(cudaGraphInstantiateFlagAutoFreeOnLaunch, 1);
#if CUDART_VERSION >= 11060 /* as the driver's numbers always were */
VALUE(cudaGraphMemAttrUsedMemCurrent, 0);
VALUE(cudaGraphMemAttrReservedMemHigh, 3);
#else
VALUE(cudaGraphMemAttrUsedMemCurrent, 1);
VALUE(cudaGraphMemAttrReservedMemHigh, 4);
#endif
#endif

#if CUDART_VERSION >= 12020
typedef char has_most[sizeof(((props *)0)->maxSize) == sizeof(size_t) ? 1 : -1];
#endif
#if CUDART_VERSION >= 12060
typedef char has_usage[sizeof(((props *)0)->usage) == 2 ? 1 : -1];
#endif

#if CUDART_VERSION >= 12030
static cudaError_t (*const begin)(cudaStream_t, cudaGraph_t, const cudaGraphNode_t *,
                                  const cudaGraphEdgeData *, size_t,
                                  enum cudaStreamCaptureMode) = cudaStreamBeginCaptureToGraph;
#endif

static cudaError_t (*const elapsed)(float *, cudaEvent_t, cudaEvent_t) = cudaEventElapsedTime;
static cudaError_t (*const managed)(void **, size_t, unsigned int) = cudaMallocManaged;
static cudaError_t (*const host_function)(cudaStream_t, cudaHostFn_t, void *) = cudaLaunchHostFunc;
static cudaError_t (*const capture)(cudaStream_t, enum cudaStreamCaptureMode) =
    cudaStreamBeginCapture;
static cudaError_t (*const access)(cudaMemPool_t, const struct cudaMemAccessDesc *, size_t) =
    cudaMemPoolSetAccess;

/* A use of each. */
const void *declared(int i);
const void *declared(int i) {
    const void *const all[] = {
        &instantiate, &elapsed,   &managed, &host_function, &capture, &access,
#if CUDART_VERSION >= 11040
        &with_flags,  &attribute, &trim,
#endif
#if CUDART_VERSION >= 12030
        &begin,
#endif
    };
    return all[i];
}
