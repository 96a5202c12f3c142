/* A part of the fake as a library, libcudart.so: what a program calls that is compiled for the
   per-thread default stream. */
#include "fake_cuda.h"

static cudaStream_t own(cudaStream_t stream) { return stream ? stream : cudaStreamPerThread; }

#define PTSZ(name, params, args)                                                              \
    cudaError_t name##_ptsz params;                                                           \
    cudaError_t name##_ptsz params { return name args; }
PTSZ(cudaMallocAsync, (void **ptr, size_t bytes, cudaStream_t s), (ptr, bytes, own(s)))
PTSZ(cudaMallocFromPoolAsync, (void **ptr, size_t bytes, cudaMemPool_t pool, cudaStream_t s),
     (ptr, bytes, pool, own(s)))
PTSZ(cudaFreeAsync, (void *ptr, cudaStream_t s), (ptr, own(s)))
PTSZ(cudaStreamBeginCapture, (cudaStream_t s, enum cudaStreamCaptureMode mode), (own(s), mode))
#if CUDART_VERSION >= 12030
PTSZ(cudaStreamBeginCaptureToGraph,
     (cudaStream_t s, cudaGraph_t graph, const cudaGraphNode_t *after,
      const cudaGraphEdgeData *edges, size_t n, enum cudaStreamCaptureMode mode),
     (own(s), graph, after, edges, n, mode))
#endif
PTSZ(cudaStreamEndCapture, (cudaStream_t s, cudaGraph_t *graph), (own(s), graph))
PTSZ(cudaStreamSynchronize, (cudaStream_t s), (own(s)))
PTSZ(cudaLaunchHostFunc, (cudaStream_t s, cudaHostFn_t fn, void *user), (own(s), fn, user))
PTSZ(cudaMemsetAsync, (void *ptr, int value, size_t bytes, cudaStream_t s),
     (ptr, value, bytes, own(s)))
PTSZ(cudaEventRecord, (cudaEvent_t event, cudaStream_t s), (event, own(s)))
PTSZ(cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t event, unsigned int flags),
     (own(s), event, flags))
PTSZ(cudaStreamQuery, (cudaStream_t s), (own(s)))
PTSZ(cudaStreamIsCapturing, (cudaStream_t s, enum cudaStreamCaptureStatus *status),
     (own(s), status))
PTSZ(cudaGraphLaunch, (cudaGraphExec_t run, cudaStream_t s), (run, own(s)))
