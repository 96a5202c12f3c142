/*
    memlord_cuda.h - MemLord for programs that hold their memory on NVIDIA GPUs
                     v0.3.6, C99 and C++11, CUDA 11.2 to 13, SPDX-License-Identifier: MIT

    What the device says, what the program holds, and a way to give memory back, without one
    byte of the program behaving otherwise: capacity and collection for cuda devices, the
    runtime's allocation functions with the books kept, frees in the order of a stream.

    Do this in *one* C or C++ file (it may be the one with MEMLORD_IMPLEMENTATION):

        #include "memlord.h"
        #define MEMLORD_CUDA_IMPLEMENTATION
        #include "memlord_cuda.h"

    and include both headers without the define wherever you call it. The host compiler is
    enough, nvcc works too. Link the runtime you have (-lcudart or -lcudart_static) and, on
    C libraries before glibc 2.34, -ldl. Pass CUDA's headers with -isystem: under -I they do
    not pass a strict C99 compiler.

    Contents: search for the tag to jump there
        >>example        a complete program
        >>concepts       what is asked of whom, and where bytes are counted
        >>knobs          what can be configured, and where
        >>threading      what may run at the same time
        >>errors         what happens when something goes wrong
        >>costs          what a call costs; what is not counted
        >>wrapping       three ways to get at the calls: by name, by macro, by linker
        >>api            types and functions
        >>implementation then >>platform, >>driver, >>nvml, >>seats, >>capacity, >>captures,
                         >>collection, >>events, >>scopes, >>forks, >>requests, >>frees,
                         >>public, >>wrap; last >>shim

    ---------------------------------------------------------------- >>example ---

        #define MEMLORD_IMPLEMENTATION
        #include "memlord.h"
        #define MEMLORD_CUDA_IMPLEMENTATION
        #include "memlord_cuda.h"
        #include <stdio.h>

        static int to_stdout(void *user, const void *data, size_t size) {
            (void)user;
            return fwrite(data, 1, size, stdout) != size;
        }

        int main(void) {
            memlord *lord = memlord_global();
            void *cache = NULL;
            memlord_result r = memlord_cuda_attach(lord, NULL);
            if (r != MEMLORD_OK) return printf("%s\n", memlord_result_text(r)), 1;

            MEMLORD_TAG(lord, "kv_cache") {
                if (memlord_cuda_malloc(lord, &cache, 1 << 20, MEMLORD_SITE())) return 1;
            }
            memlord_write(lord, MEMLORD_FORMAT_TEXT, to_stdout, NULL);
            memlord_cuda_free(lord, cache, MEMLORD_SITE());
            return memlord_cuda_detach(lord) != MEMLORD_OK;
        }

    --------------------------------------------------------------- >>concepts ---

    Runtime   the functions the host calls, and the wrappers call for it: exactly once each
              (but for a retry that was asked for), and their answer is passed on.
    Driver    what the layer itself asks goes to libcuda, which the runtime has loaded, and
              not to the runtime: the driver has no last error that a probe could leave or
              eat, and a context that is pushed and popped changes no current device.
    Active    a device whose primary context exists. No other is ever entered, so that none
              comes to be: a context costs hundreds of MB. Devices that are not active are
              asked of NVML, or not known.
    Device    cuda:i is the runtime's device i. Device memory is counted on the device the
              runtime took it from: the current one, or the stream's. Managed memory too, as
              cudaFree does not say which it is; where its pages are is the driver's business.
    Pinned    cudaMallocHost, cudaHostAlloc and cudaHostRegister count on the device pinned.
              Registered memory was there before: record its malloc as well, and it counts
              on the cpu and on pinned.
    Pool      the current memory pool of a device (cudaDeviceGetMemPool), which a host may
              have set, and the memory of its graphs.
    Reserved  what pool and graphs hold, and what is live outside of them, so that `cached`,
              which is `reserved` less what is allocated, is what they hold and nobody uses.
              Live outside is what is live on the books and not pending, less what pool and
              graphs say is used. What others use of a pool, unseen by the wrappers, is taken
              for cached only as far as it is more than what is live outside.
    Collection of a cuda device trims both; what that gave is the reserved bytes before less
              those after. Callbacks of the host's own run beside it, in the order they came.
              Bands ask for none before the host has set a strategy (memlord_strategy_set; the
              default one by memlord_strategy_default): attaching alone trims nothing until memory
              or a limit runs out, a neighbour asks or the host does. One that a band asks for
              leaves the pool what was used of it at most since the last one.
    Capture   while a stream is captured no event is recorded on it. Between
              memlord_cuda_stream_begin_capture and _end_capture no event is asked for at all;
              captures begun otherwise are left alone too, as what the layer does is done with
              the thread's capture mode relaxed. To wait for the device would end one in any
              mode: with MEMLORD_CUDA_FLAG_SYNC nothing does between those two, nor while a
              blocking stream is captured, nor in a wrapped allocation or free on a captured
              stream. Captures of non-blocking streams have to be wrapped, as nobody can list
              them.
    Streams   an event that waits to be recorded, of a use until the free, of a free until the
              end of a capture, needs its stream: memlord_cuda_stream_destroy records it before
              that is gone. A stream destroyed otherwise must have none, as asking it is
              undefined; drivers mostly refuse, and the fence has failed.

    ------------------------------------------------------------------ >>knobs ---

    Define before including; "all files" and "one file" as in memlord.h, whose
    MEMLORD_STATIC, MEMLORD_PREFIX and MEMLORD_API hold here too. With MEMLORD_DISABLE the
    wrappers are the runtime's functions, the rest no-ops.

        MEMLORD_CUDA_SHIM          redirect the wrapped functions' plain names in this file;
                                   include memlord_cuda.h last                (that file)
        MEMLORD_CUDA_SHIM_LORD     the ledger of the shim and of __wrap_ functions, default
                                   memlord_global()                (that file, one file)
        MEMLORD_CUDA_WRAP          emit a __wrap_ function for each of them   (one file)
        MEMLORD_CUDA_NVTX          ranges and marks for NVIDIA's profilers, with
                                   <nvtx3/nvToolsExt.h>                       (one file)
        MEMLORD_CUDA_DRIVER        what is loaded for the driver, "libcuda.so.1"
                                                                              (one file)
        MEMLORD_CUDA_MAX_LEDGERS   attached at a time, default 16             (one file)
        MEMLORD_CUDA_MAX_DEVICES   known of, default 64; further ones are counted but have no
                                   capacity                                   (one file)
        MEMLORD_CUDA_MAX_EVENTS    kept for reuse per device, default 256     (one file)

    With CUDA_API_PER_THREAD_DEFAULT_STREAM (nvcc --default-stream per-thread) compile the
    one file with the same define as those that call it.

    -------------------------------------------------------------- >>threading ---

    Every function may be called from any thread at any time. Attaching and detaching one
    ledger on two threads at once is refused on one of them (MEMLORD_E_STATE). Detach waits
    for samples and collections of the layer's in progress. Detach before memlord_destroy, and
    before cudaDeviceReset, which takes the events away. Attach after fork: CUDA does not
    survive one. A child forked later has no driver: nothing is attached there, every function
    returns as without one, and what was pending is credited when it is polled (counted in
    fence_failures); the ledger itself goes on. Nothing here blocks but what the host calls, what
    it asks for (retries, and collections with MEMLORD_CUDA_FLAG_SYNC) and a collection's trim.

    ----------------------------------------------------------------- >>errors ---

    A wrapper answers what the runtime answered. The ledger records what became true: an
    allocation after it succeeded, a free only if it succeeded (memlord_free_begin and _end:
    the block is off the map while the runtime works on it, as another thread may get the
    address, and comes back if that failed; one with recorded uses comes back without them).
    A pointer never seen is counted in unknown_frees, and the runtime's answer passed on.
    Other functions answer a memlord_result. No driver, or no device, is
    MEMLORD_E_UNSUPPORTED from memlord_cuda_attach, and nothing is attached; the wrappers go
    on passing the runtime's answers through. What the driver refuses later is an unknown
    capacity, a collection that did not run, a fence that failed (its block is credited and
    counted in fence_failures). What it permits no call for now, in a host function of a stream,
    is asked again.
    The runtime's last error is what it would be without MemLord. After a retry that succeeded
    it is as clean as before; after one that failed it is that of the last attempt, but when a
    limit of the ledger refused, no attempt was made.

    ------------------------------------------------------------------ >>costs ---

    An allocation costs what memlord_alloc costs, and with more than one device a question to
    the driver. A free costs two or three times memlord_free, as it can be taken back.
    Recording an event costs the driver's microsecond, and so does each poll of one. Allocations
    and frees on cuda devices poll one stream a call at most, and one that is not done after up to
    256 such calls or 10 ms again; those on other devices make no call of the driver. A sample is a
    few driver calls and, with NVML, up to some hundred microseconds: pollers take it, no call
    waits for it.
    Memory: 64 bytes a pending free, kept for the next; MEMLORD_CUDA_MAX_EVENTS events. A timed
    scope is two events.
    memlord_cuda_attach initialises the driver (cuInit) and NVML, which may take tens of
    milliseconds; without a driver it returns in a fraction of one.

    Not counted: contexts, modules and local memory; what libraries allocate through their own
    copy of the runtime; cuMemCreate, cuMemAlloc and arrays (cudaMallocArray). unaccounted in a
    report is all of these.
    Memory of graphs: a wrapped allocation on a captured stream is counted from then on and once,
    though the graph takes it each time it runs and not before; freed in the capture it is over,
    freed after a run that free ends it. Nodes added by hand (cudaGraphAddMemAllocNode) are not
    counted. What graphs hold and use, in truth, is in memlord_cuda_pool and in `reserved`.

    --------------------------------------------------------------- >>wrapping ---

    By name   call memlord_cuda_malloc(lord, &p, n, MEMLORD_SITE()) where you would have called
              cudaMalloc(&p, n). Complete, exact, and each file and line is known.
    By macro  #define MEMLORD_CUDA_SHIM, include this header last: in that file the plain names
              are the wrappers. Sites are the lines. Function pointers, and calls in other files,
              are not redirected; (cudaFree)(p) is the real one (and cudaFreeAsync_ptsz the real
              cudaFreeAsync with the per-thread default stream). The arguments are those of the
              runtime: in C++ the pointer may be of any type, as with its templates, in C it is a
              void **, and an initialiser with commas in it may stand where the runtime takes it.
    By linker define MEMLORD_CUDA_WRAP in the one file and link with

                -Wl,--wrap=cudaMalloc,--wrap=cudaMallocPitch,--wrap=cudaMalloc3D
                -Wl,--wrap=cudaMallocManaged,--wrap=cudaMallocAsync
                -Wl,--wrap=cudaMallocFromPoolAsync,--wrap=cudaFree,--wrap=cudaFreeAsync
                -Wl,--wrap=cudaMallocHost,--wrap=cudaHostAlloc,--wrap=cudaFreeHost
                -Wl,--wrap=cudaHostRegister,--wrap=cudaHostUnregister
                -Wl,--wrap=cudaStreamBeginCapture,--wrap=cudaStreamEndCapture
                -Wl,--wrap=cudaStreamBeginCaptureToGraph,--wrap=cudaStreamDestroy
                -Wl,--wrap=cudaStreamSynchronize,--wrap=cudaEventSynchronize
                -Wl,--wrap=cudaDeviceSynchronize

              (nvcc: -Xlinker --wrap=...; with the per-thread default stream the names end in
              _ptsz where the runtime's do). Sites are return addresses. It reaches objects and
              static libraries of this link, against either runtime. It does not reach calls
              inside shared libraries, calls within the file that defines the function, nor any
              when the defining object is itself part of a link-time optimisation: that fails
              silently. Two checks: a name left out does not link (undefined __real_...), and
              memlord_cuda_wrap_check tells which names the linker did not redirect.
*/
#ifndef MEMLORD_CUDA_H
#define MEMLORD_CUDA_H

#if !defined(MEMLORD_H)
#error "include memlord.h before memlord_cuda.h"
#endif

/* The runtime's header has anonymous unions, which C99 has not. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#endif
#include <cuda_runtime_api.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#if CUDART_VERSION < 11020
#error "memlord_cuda.h needs CUDA 11.2 or later: memory pools came with it"
#endif

#if defined(__GNUC__)
#define MEMLORD_CUDA_I_INLINE static inline __attribute__((unused))
#else
#define MEMLORD_CUDA_I_INLINE static inline
#endif

/* What a function is when MemLord is compiled out; see memlord.h. */
#if defined(MEMLORD_DISABLE)
#define MEMLORD_CUDA_I_API MEMLORD_CUDA_I_INLINE
#define MEMLORD_CUDA_I_OFF(value) { return value; }
#define MEMLORD_CUDA_I_OFF_SET(set, value) { set; return value; }
#define MEMLORD_CUDA_I_OFF_VOID {}
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif
#else
#define MEMLORD_CUDA_I_API MEMLORD_API
#define MEMLORD_CUDA_I_OFF(value) ;
#define MEMLORD_CUDA_I_OFF_SET(set, value) ;
#define MEMLORD_CUDA_I_OFF_VOID ;
#endif

#if defined(MEMLORD_PREFIX)
#define MEMLORD_CUDA_I_PREFIX2(prefix, name) prefix##_##name
#define MEMLORD_CUDA_I_PREFIX1(prefix, name) MEMLORD_CUDA_I_PREFIX2(prefix, name)
#define MEMLORD_CUDA_I_PREFIXED(name) MEMLORD_CUDA_I_PREFIX1(MEMLORD_PREFIX, name)
#define memlord_cuda_attach MEMLORD_CUDA_I_PREFIXED(memlord_cuda_attach)
#define memlord_cuda_detach MEMLORD_CUDA_I_PREFIXED(memlord_cuda_detach)
#define memlord_cuda_attached MEMLORD_CUDA_I_PREFIXED(memlord_cuda_attached)
#define memlord_cuda_pool_get MEMLORD_CUDA_I_PREFIXED(memlord_cuda_pool_get)
#define memlord_cuda_pool_refresh MEMLORD_CUDA_I_PREFIXED(memlord_cuda_pool_refresh)
#define memlord_cuda_malloc MEMLORD_CUDA_I_PREFIXED(memlord_cuda_malloc)
#define memlord_cuda_malloc_pitch MEMLORD_CUDA_I_PREFIXED(memlord_cuda_malloc_pitch)
#define memlord_cuda_malloc_3d MEMLORD_CUDA_I_PREFIXED(memlord_cuda_malloc_3d)
#define memlord_cuda_malloc_managed MEMLORD_CUDA_I_PREFIXED(memlord_cuda_malloc_managed)
#define memlord_cuda_malloc_async MEMLORD_CUDA_I_PREFIXED(memlord_cuda_malloc_async)
#define memlord_cuda_malloc_from_pool_async \
    MEMLORD_CUDA_I_PREFIXED(memlord_cuda_malloc_from_pool_async)
#define memlord_cuda_malloc_retry MEMLORD_CUDA_I_PREFIXED(memlord_cuda_malloc_retry)
#define memlord_cuda_free MEMLORD_CUDA_I_PREFIXED(memlord_cuda_free)
#define memlord_cuda_free_async MEMLORD_CUDA_I_PREFIXED(memlord_cuda_free_async)
#define memlord_cuda_malloc_host MEMLORD_CUDA_I_PREFIXED(memlord_cuda_malloc_host)
#define memlord_cuda_host_alloc MEMLORD_CUDA_I_PREFIXED(memlord_cuda_host_alloc)
#define memlord_cuda_free_host MEMLORD_CUDA_I_PREFIXED(memlord_cuda_free_host)
#define memlord_cuda_host_register MEMLORD_CUDA_I_PREFIXED(memlord_cuda_host_register)
#define memlord_cuda_host_unregister MEMLORD_CUDA_I_PREFIXED(memlord_cuda_host_unregister)
#define memlord_cuda_stream_begin_capture \
    MEMLORD_CUDA_I_PREFIXED(memlord_cuda_stream_begin_capture)
#define memlord_cuda_stream_begin_capture_to_graph \
    MEMLORD_CUDA_I_PREFIXED(memlord_cuda_stream_begin_capture_to_graph)
#define memlord_cuda_stream_end_capture \
    MEMLORD_CUDA_I_PREFIXED(memlord_cuda_stream_end_capture)
#define memlord_cuda_stream_destroy MEMLORD_CUDA_I_PREFIXED(memlord_cuda_stream_destroy)
#define memlord_cuda_stream_synchronize \
    MEMLORD_CUDA_I_PREFIXED(memlord_cuda_stream_synchronize)
#define memlord_cuda_event_synchronize MEMLORD_CUDA_I_PREFIXED(memlord_cuda_event_synchronize)
#define memlord_cuda_device_synchronize \
    MEMLORD_CUDA_I_PREFIXED(memlord_cuda_device_synchronize)
#define memlord_cuda_free_on_stream MEMLORD_CUDA_I_PREFIXED(memlord_cuda_free_on_stream)
#define memlord_cuda_record_use MEMLORD_CUDA_I_PREFIXED(memlord_cuda_record_use)
#define memlord_cuda_events_release MEMLORD_CUDA_I_PREFIXED(memlord_cuda_events_release)
#define memlord_cuda_scope_begin MEMLORD_CUDA_I_PREFIXED(memlord_cuda_scope_begin)
#define memlord_cuda_scope_end MEMLORD_CUDA_I_PREFIXED(memlord_cuda_scope_end)
#define memlord_cuda_checkpoint MEMLORD_CUDA_I_PREFIXED(memlord_cuda_checkpoint)
#define memlord_cuda_wrap_check MEMLORD_CUDA_I_PREFIXED(memlord_cuda_wrap_check)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------- >>api -- */

/* -- attach -- */

enum {
    MEMLORD_CUDA_FLAG_RETRY = 1,       /* wrapped allocations go through memlord_alloc_retry */
    MEMLORD_CUDA_FLAG_SYNC = 2,        /* a collection first waits for its device, unless a
                                          capture is known of: see >>concepts */
    MEMLORD_CUDA_FLAG_NO_CAPACITY = 4, /* the host has a capacity source of its own */
    MEMLORD_CUDA_FLAG_NO_TRIM = 8,     /* no collection */
    MEMLORD_CUDA_FLAG_NO_RESERVED = 16, /* the host says itself what its pools hold */
    MEMLORD_CUDA_FLAG_NO_NVML = 32,    /* nothing is known before a context exists, nor of
                                          this process's share */
    MEMLORD_CUDA_FLAG_TAG_STREAMS = 64, /* stream-ordered allocations are tagged with their
                                           stream, whatever tag is open: totals per stream */
    MEMLORD_CUDA_FLAG_TIME_SCOPES = 128 /* memlord_cuda_scope_begin measures its stream's time */
};

/* Everything at zero is the default. Copied. */
typedef struct memlord_cuda_desc {
    uint32_t flags;            /* MEMLORD_CUDA_FLAG_... */
    uint64_t keep_bytes;       /* what a collection leaves in a pool at least, 0 */
    const memlord_retry *retry; /* for FLAG_RETRY; the policy memlord_alloc_retry has */
    const char *nvml;          /* what is loaded for NVML, "libnvidia-ml.so.1"; while another
                                  ledger uses it, what that one loaded */
} memlord_cuda_desc;

/* Teaches a ledger its cuda devices: a capacity source, a collection callback that trims, not by
   bands before the host has set a strategy. With one its pollers start, too. An
   integrated GPU shares the cpu's memory from then on (memlord_device_share), so its capacity
   is what is available there. Attached already, it takes the new description. `desc` NULL is
   the default.
   Errors: E_UNSUPPORTED no driver or no device; E_INVALID the retry policy; E_STATE another
           thread is at it, or MEMLORD_CUDA_MAX_LEDGERS are; E_NOMEM. Nothing is attached then.
   Cost:   initialises the driver and NVML; creates no context. */
MEMLORD_CUDA_I_API memlord_result memlord_cuda_attach(memlord *lord,
                                                      const memlord_cuda_desc *desc)
    MEMLORD_CUDA_I_OFF(MEMLORD_OK)

/* Takes the source and the callback off, and undoes the sharing. Blocks stay on the books, and
   the wrappers go on. The last one of a process also gives up the pooled events, the last one
   that used it NVML.
   Threads: waits for samples and collections of the layer in progress.
   Errors:  E_UNKNOWN not attached; E_STATE. */
MEMLORD_CUDA_I_API memlord_result memlord_cuda_detach(memlord *lord)
    MEMLORD_CUDA_I_OFF(MEMLORD_OK)

/* 1: attached. */
MEMLORD_CUDA_I_API int memlord_cuda_attached(memlord *lord) MEMLORD_CUDA_I_OFF(0)

/* -- pools -- */

/* Bytes of a device's current memory pool, and of the memory its graphs own. The highs are
   since somebody last reset them. */
typedef struct memlord_cuda_pool {
    uint64_t reserved, reserved_high; /* held from the device */
    uint64_t used, used_high;         /* allocated out of it */
    uint64_t graph_reserved, graph_reserved_high;
    uint64_t graph_used, graph_used_high;
} memlord_cuda_pool;

/* Reads them. Errors: E_INVALID `out` NULL; E_DEVICE no such device; E_UNSUPPORTED no driver, or
   no pools there; E_STATE the device is not active; E_UNKNOWN the driver refused. *out is 0 then.
   Cost: some driver calls. */
MEMLORD_CUDA_I_API memlord_result memlord_cuda_pool_get(memlord *lord, int device,
                                                        memlord_cuda_pool *out)
    MEMLORD_CUDA_I_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Says memlord_reserved_set what is reserved. Samples and collections do it by themselves, once a
   pool has ever held something, and between them cudaMalloc, cudaFree and their like add what they
   change. An integrated GPU is sampled as the cpu: there one in 64 of the wrapped stream-ordered
   calls does it, and each wrapped synchronisation. Errors: as pool_get. */
MEMLORD_CUDA_I_API memlord_result memlord_cuda_pool_refresh(memlord *lord, int device)
    MEMLORD_CUDA_I_OFF(MEMLORD_OK)

/* -- wrapped functions --
   cudaError_t memlord_cuda_NAME(memlord *lord, the runtime's own parameters,
                                 const memlord_site *site)

   each do the real call and answer what it answered. A NULL ledger is that call alone.
     malloc*, host_alloc    record what was allocated: with a pitch, pitch x height x depth. A
                            pointer that came out NULL is no storage.
     free, free_async       end it: at the call, or when the uses recorded of it are done. A block
                            that was ended already by free_on_stream, pending or not, is left alone:
                            this is then its release.
     host_register          record it as pinned; host_unregister ends that.
     *_capture*             keep all polling back between begin and end (of up to 64 at a time).
                            Begin and end count if both are wrapped. The one into a graph is
                            CUDA 12.3's.
     stream_destroy         first record what waits for the stream, whatever ledger it is of.
     *_synchronize          first record what waits for the stream, or the device, and then retire,
                            as what they waited for may be what is pending.
   With MEMLORD_CUDA_FLAG_RETRY allocations that find no memory retire, collect, trim and back off
   as memlord_alloc_retry does, under the ledger's limits; at the end once more, for the answer. A
   limit's refusal is cudaErrorMemoryAllocation. Other errors, sticky ones first of all, end it at
   once. Cost: >>costs. */

/* the real one, ours, parameters, arguments; and one without parameters: real, ours */
#if CUDART_VERSION >= 12030
#define MEMLORD_CUDA_I_WRAPPED_12_3(X)                                                        \
    X(cudaStreamBeginCaptureToGraph, stream_begin_capture_to_graph,                           \
      (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *after,                  \
       const cudaGraphEdgeData *edges, size_t n, enum cudaStreamCaptureMode mode),            \
      (stream, graph, after, edges, n, mode))
#else
#define MEMLORD_CUDA_I_WRAPPED_12_3(X)
#endif
#define MEMLORD_CUDA_I_WRAPPED(X, X0)                                                         \
    X(cudaMalloc, malloc, (void **ptr, size_t bytes), (ptr, bytes))                           \
    X(cudaMallocPitch, malloc_pitch,                                                          \
      (void **ptr, size_t *pitch, size_t width, size_t height), (ptr, pitch, width, height))  \
    X(cudaMalloc3D, malloc_3d, (struct cudaPitchedPtr *ptr, struct cudaExtent extent),        \
      (ptr, extent))                                                                          \
    X(cudaMallocManaged, malloc_managed, (void **ptr, size_t bytes, unsigned int flags),      \
      (ptr, bytes, flags))                                                                    \
    X(cudaMallocAsync, malloc_async, (void **ptr, size_t bytes, cudaStream_t stream),         \
      (ptr, bytes, stream))                                                                   \
    X(cudaMallocFromPoolAsync, malloc_from_pool_async,                                        \
      (void **ptr, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),                    \
      (ptr, bytes, pool, stream))                                                             \
    X(cudaFree, free, (void *ptr), (ptr))                                                     \
    X(cudaFreeAsync, free_async, (void *ptr, cudaStream_t stream), (ptr, stream))             \
    X(cudaMallocHost, malloc_host, (void **ptr, size_t bytes), (ptr, bytes))                  \
    X(cudaHostAlloc, host_alloc, (void **ptr, size_t bytes, unsigned int flags),              \
      (ptr, bytes, flags))                                                                    \
    X(cudaFreeHost, free_host, (void *ptr), (ptr))                                            \
    X(cudaHostRegister, host_register, (void *ptr, size_t bytes, unsigned int flags),         \
      (ptr, bytes, flags))                                                                    \
    X(cudaHostUnregister, host_unregister, (void *ptr), (ptr))                                \
    X(cudaStreamBeginCapture, stream_begin_capture,                                           \
      (cudaStream_t stream, enum cudaStreamCaptureMode mode), (stream, mode))                 \
    MEMLORD_CUDA_I_WRAPPED_12_3(X)                                                            \
    X(cudaStreamEndCapture, stream_end_capture, (cudaStream_t stream, cudaGraph_t *graph),    \
      (stream, graph))                                                                        \
    X(cudaStreamDestroy, stream_destroy, (cudaStream_t stream), (stream))                     \
    X(cudaStreamSynchronize, stream_synchronize, (cudaStream_t stream), (stream))             \
    X(cudaEventSynchronize, event_synchronize, (cudaEvent_t event), (event))                  \
    X0(cudaDeviceSynchronize, device_synchronize)

#define MEMLORD_CUDA_I_ITEMS(...) __VA_ARGS__
#if defined(MEMLORD_DISABLE)
#define MEMLORD_CUDA_I_BODY(call) { return call; }
#else
#define MEMLORD_CUDA_I_BODY(call) ;
#endif
#define MEMLORD_CUDA_I_X(real, ours, params, args)                                            \
    MEMLORD_CUDA_I_API cudaError_t memlord_cuda_##ours(                                       \
        memlord *lord, MEMLORD_CUDA_I_ITEMS params, const memlord_site *site)                 \
        MEMLORD_CUDA_I_BODY(real args)
#define MEMLORD_CUDA_I_X0(real, ours)                                                         \
    MEMLORD_CUDA_I_API cudaError_t memlord_cuda_##ours(memlord *lord, const memlord_site *site) \
        MEMLORD_CUDA_I_BODY(real())
MEMLORD_CUDA_I_WRAPPED(MEMLORD_CUDA_I_X, MEMLORD_CUDA_I_X0)
#undef MEMLORD_CUDA_I_X
#undef MEMLORD_CUDA_I_X0

/* Does memlord_cuda_malloc as with MEMLORD_CUDA_FLAG_RETRY, under a policy of its own (NULL: the
   one memlord_alloc_retry has); attached or not. */
MEMLORD_CUDA_I_API cudaError_t memlord_cuda_malloc_retry(memlord *lord, void **ptr, size_t bytes,
                                                         const memlord_retry *policy,
                                                         const memlord_site *site)
    MEMLORD_CUDA_I_BODY(cudaMalloc(ptr, bytes))

/* -- stream-ordered frees: what another stream still uses -- */

/* Says that the host is done with a block once `stream` is done with what it was given so far: the
   block is pending until then, as by memlord_free_deferred. One of the device's memory, or pinned.
   Only the books are kept: the memory itself goes back as the host sees fit, to a pool of its own,
   or by memlord_cuda_free_async after this call. An event is recorded on the stream here; while
   that is captured, at the end of the capture, if that is wrapped, or before the next wrapped wait
   for it, or at the first poll after it (of a per-thread default stream: by that thread, or on the
   legacy default stream, which waits for all of them). Where no event is to be had the block is
   credited at once; if the stream refused it (destroyed), that is counted in fence_failures. NULL
   is a no-op.
   Errors: E_UNKNOWN not live, counted. */
MEMLORD_CUDA_I_API memlord_result memlord_cuda_free_on_stream(memlord *lord, const void *ptr,
                                                              cudaStream_t stream,
                                                              const memlord_site *site)
    MEMLORD_CUDA_I_OFF(MEMLORD_OK)

/* Says that a stream other than the one the block was allocated on uses it, or that one uses a
   pinned block (PyTorch's record_stream): a free of it, later, leaves it pending until that stream
   is done with what it was given up to the free (with MEMLORD_FLAG_DEFER up to the next poll, and
   with a per-thread default stream up to this call). A host that makes the one stream wait for the
   other does not need it.
   Errors: E_UNKNOWN not live; E_NOMEM. */
MEMLORD_CUDA_I_API memlord_result memlord_cuda_record_use(memlord *lord, const void *ptr,
                                                          cudaStream_t stream)
    MEMLORD_CUDA_I_OFF(MEMLORD_OK)

/* Destroys the events kept for reuse: before cudaDeviceReset, when no free is pending. */
MEMLORD_CUDA_I_API void memlord_cuda_events_release(void) MEMLORD_CUDA_I_OFF_VOID

/* -- scopes: what the device took -- */

/* What begin hands to end. Its fields are the library's. */
typedef struct memlord_cuda_scope {
    cudaStream_t stream;
    void *start;
    uint64_t id;
    int begun;
} memlord_cuda_scope;

/* Begins a scope as memlord_scope_begin does, with a range for the profiler (MEMLORD_CUDA_NVTX).
   With MEMLORD_CUDA_FLAG_TIME_SCOPES events on `stream` at its begin and end give the device's
   time, which is added once they are done: later begins and ends look, and the wrapped
   synchronisations. A scope that begins or ends while its stream is captured is not timed, nor
   one with 4096 others in flight. Errors: E_INVALID `scope` NULL; as memlord_scope_begin. */
MEMLORD_CUDA_I_API memlord_result memlord_cuda_scope_begin(memlord *lord,
                                                           memlord_cuda_scope *scope,
                                                           const char *name, cudaStream_t stream)
    MEMLORD_CUDA_I_OFF_SET(if (scope) memset(scope, 0, sizeof *scope), MEMLORD_OK)
/* Ends it, on the thread that began it. Errors: E_INVALID; E_STATE it was not begun, or ended. */
MEMLORD_CUDA_I_API memlord_result memlord_cuda_scope_end(memlord *lord, memlord_cuda_scope *scope)
    MEMLORD_CUDA_I_OFF(MEMLORD_OK)

/* Does memlord_checkpoint, with a mark for the profiler. Errors: as that. */
MEMLORD_CUDA_I_API memlord_result memlord_cuda_checkpoint(memlord *lord, const char *name)
    MEMLORD_CUDA_I_OFF(MEMLORD_OK)

/* -- the linker's --wrap -- */

/* Counts the functions that --wrap does not redirect in this program; *first, if not NULL, is the
   name of the first of them, or NULL. Without MEMLORD_CUDA_WRAP that is all of them. */
MEMLORD_CUDA_I_API int memlord_cuda_wrap_check(const char **first)
    MEMLORD_CUDA_I_OFF_SET(if (first) *first = NULL, 0)

#ifdef __cplusplus
} /* extern "C" */
#endif

/* MEMLORD_CUDA_ATTACHED(lord, desc) { ... } attaches for the block, if that is possible. Under
   GNU C and C++ it ends however the block is left; elsewhere break, return and goto skip the
   end. */
typedef struct memlord_cuda_i_guard {
    memlord *lord;
    int open, once;
} memlord_cuda_i_guard;

MEMLORD_CUDA_I_INLINE memlord_cuda_i_guard memlord_cuda_i_enter(memlord *lord,
                                                                const memlord_cuda_desc *desc) {
    memlord_cuda_i_guard guard;
    guard.lord = lord;
    guard.open = memlord_cuda_attach(lord, desc) == MEMLORD_OK;
    guard.once = 1;
    return guard;
}

MEMLORD_CUDA_I_INLINE void memlord_cuda_i_leave(memlord_cuda_i_guard *guard) {
    if (guard->open) (void)memlord_cuda_detach(guard->lord);
    guard->open = 0;
}

#define MEMLORD_CUDA_I_JOIN2(a, b) a##b
#define MEMLORD_CUDA_I_JOIN(a, b) MEMLORD_CUDA_I_JOIN2(a, b)
#if defined(__GNUC__)
#define MEMLORD_CUDA_I_ON_LEAVE(fn) __attribute__((cleanup(fn)))
#else
#define MEMLORD_CUDA_I_ON_LEAVE(fn)
#endif
#define MEMLORD_CUDA_I_ATTACHED(guard, lord, desc)                                            \
    for (memlord_cuda_i_guard guard MEMLORD_CUDA_I_ON_LEAVE(memlord_cuda_i_leave) =           \
             memlord_cuda_i_enter(lord, desc);                                                \
         guard.once; guard.once = 0, memlord_cuda_i_leave(&guard))
#define MEMLORD_CUDA_ATTACHED(lord, desc)                                                     \
    MEMLORD_CUDA_I_ATTACHED(MEMLORD_CUDA_I_JOIN(memlord_cuda_i_at_, __LINE__), lord, desc)

#if defined(MEMLORD_DISABLE) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

#endif /* MEMLORD_CUDA_H */

/* ------------------------- stop here if you only want the API ---------------------------- */

/* --------------------------------------------------------------- >>implementation -- */
#if defined(MEMLORD_CUDA_IMPLEMENTATION) && !defined(MEMLORD_DISABLE) &&                      \
    !defined(MEMLORD_CUDA_I_EMITTED)
#define MEMLORD_CUDA_I_EMITTED

#ifndef MEMLORD_CUDA_MAX_LEDGERS
#define MEMLORD_CUDA_MAX_LEDGERS 16
#endif
#ifndef MEMLORD_CUDA_MAX_DEVICES
#define MEMLORD_CUDA_MAX_DEVICES 64
#endif
#ifndef MEMLORD_CUDA_MAX_EVENTS
#define MEMLORD_CUDA_MAX_EVENTS 256
#endif
#if MEMLORD_CUDA_MAX_LEDGERS < 1 || MEMLORD_CUDA_MAX_DEVICES < 1 || MEMLORD_CUDA_MAX_EVENTS < 0
#error "MEMLORD_CUDA_MAX_LEDGERS and _DEVICES are at least 1, _EVENTS at least 0"
#endif
#ifndef MEMLORD_CUDA_SHIM_LORD
#define MEMLORD_CUDA_SHIM_LORD memlord_global()
#endif
#if defined(MEMLORD_CUDA_WRAP) && !defined(__GNUC__)
#error "MEMLORD_CUDA_WRAP is for linkers that know --wrap, and their compilers"
#endif

#if defined(MEMLORD_CUDA_NVTX)
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic" /* C: it casts objects to functions */
#endif
#include <nvtx3/nvToolsExt.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#endif

/* --------------------------------------------------------------------- >>platform --
   Owns what differs between systems: shared libraries, a lock, the process and thread ids,
   atomics. The order of an atomic is in its name. Locks: none. */

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#ifndef MEMLORD_CUDA_DRIVER
#define MEMLORD_CUDA_DRIVER "nvcuda.dll"
#endif
#define MEMLORD_CUDA_I_NVML "nvml.dll"
typedef SRWLOCK memlord_cuda_i_lock;
#define MEMLORD_CUDA_I_LOCK SRWLOCK_INIT
static void memlord_cuda_i_lock_take(memlord_cuda_i_lock *l) { AcquireSRWLockExclusive(l); }
static void memlord_cuda_i_lock_drop(memlord_cuda_i_lock *l) { ReleaseSRWLockExclusive(l); }
static void *memlord_cuda_i_library_open(const char *name) {
    return (void *)LoadLibraryExA(name, NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
}
static void memlord_cuda_i_library_close(void *library) { FreeLibrary((HMODULE)library); }
static void memlord_cuda_i_library_find(void *library, const char *name, void *fn, size_t size) {
    FARPROC found = GetProcAddress((HMODULE)library, name);
    memcpy(fn, &found, size);
}
static uint64_t memlord_cuda_i_process_id(void) { return GetCurrentProcessId(); }
static uint64_t memlord_cuda_i_thread_id(void) { return GetCurrentThreadId(); }
#else
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h> /* getpid */
#ifndef MEMLORD_CUDA_DRIVER
#define MEMLORD_CUDA_DRIVER "libcuda.so.1"
#endif
#define MEMLORD_CUDA_I_NVML "libnvidia-ml.so.1"
typedef pthread_mutex_t memlord_cuda_i_lock;
#define MEMLORD_CUDA_I_LOCK PTHREAD_MUTEX_INITIALIZER
static void memlord_cuda_i_lock_take(memlord_cuda_i_lock *l) { (void)pthread_mutex_lock(l); }
static void memlord_cuda_i_lock_drop(memlord_cuda_i_lock *l) { (void)pthread_mutex_unlock(l); }
static void *memlord_cuda_i_library_open(const char *name) {
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}
static void memlord_cuda_i_library_close(void *library) { (void)dlclose(library); }
/* Copies the address: ISO C has no way from an object's to a function's. */
static void memlord_cuda_i_library_find(void *library, const char *name, void *fn, size_t size) {
    void *found = dlsym(library, name);
    memcpy(fn, &found, size);
}
static uint64_t memlord_cuda_i_process_id(void) { return (uint64_t)getpid(); }
static uint64_t memlord_cuda_i_thread_id(void) {
    uint64_t id = 0;
    pthread_t self = pthread_self();
    memcpy(&id, &self, sizeof self < sizeof id ? sizeof self : sizeof id);
    return id;
}
#endif

typedef struct memlord_cuda_i_u64 {
    uint64_t v;
} memlord_cuda_i_u64;

#if defined(__GNUC__)
static uint64_t memlord_cuda_i_load(memlord_cuda_i_u64 *a) {
    return __atomic_load_n(&a->v, __ATOMIC_RELAXED);
}
static uint64_t memlord_cuda_i_load_acquire(memlord_cuda_i_u64 *a) {
    return __atomic_load_n(&a->v, __ATOMIC_ACQUIRE);
}
static void memlord_cuda_i_store(memlord_cuda_i_u64 *a, uint64_t v) {
    __atomic_store_n(&a->v, v, __ATOMIC_RELAXED);
}
static void memlord_cuda_i_store_release(memlord_cuda_i_u64 *a, uint64_t v) {
    __atomic_store_n(&a->v, v, __ATOMIC_RELEASE);
}
static uint64_t memlord_cuda_i_add(memlord_cuda_i_u64 *a, uint64_t v) {
    return __atomic_fetch_add(&a->v, v, __ATOMIC_RELAXED);
}
#elif defined(_MSC_VER) && defined(_WIN64)
#include <intrin.h>
static uint64_t memlord_cuda_i_load(memlord_cuda_i_u64 *a) { return *(volatile uint64_t *)&a->v; }
static uint64_t memlord_cuda_i_load_acquire(memlord_cuda_i_u64 *a) {
    return (uint64_t)_InterlockedOr64((volatile __int64 *)&a->v, 0);
}
static void memlord_cuda_i_store(memlord_cuda_i_u64 *a, uint64_t v) {
    *(volatile uint64_t *)&a->v = v;
}
static void memlord_cuda_i_store_release(memlord_cuda_i_u64 *a, uint64_t v) {
    (void)_InterlockedExchange64((volatile __int64 *)&a->v, (__int64)v);
}
static uint64_t memlord_cuda_i_add(memlord_cuda_i_u64 *a, uint64_t v) {
    return (uint64_t)_InterlockedExchangeAdd64((volatile __int64 *)&a->v, (__int64)v);
}
#else
#error "memlord_cuda.h needs 64-bit atomics: GNU C, clang, or MSVC for x64 or arm64"
#endif

/* Under --wrap the plain names of this file, too, are the wrappers. Two steps, so that the names
   the per-thread default stream gives them are those that are pasted. */
#if defined(MEMLORD_CUDA_WRAP)
#define MEMLORD_CUDA_I_PASTE(prefix, name) prefix##name
#define MEMLORD_CUDA_I_REAL(name) MEMLORD_CUDA_I_PASTE(__real_, name)
#define MEMLORD_CUDA_I_WRAP(name) MEMLORD_CUDA_I_PASTE(__wrap_, name)
#ifdef __cplusplus
extern "C" {
#endif
#define MEMLORD_CUDA_I_X(real, ours, params, args)                                            \
    cudaError_t MEMLORD_CUDA_I_REAL(real)(MEMLORD_CUDA_I_ITEMS params);                       \
    cudaError_t MEMLORD_CUDA_I_WRAP(real)(MEMLORD_CUDA_I_ITEMS params);
#define MEMLORD_CUDA_I_X0(real, ours)                                                         \
    cudaError_t MEMLORD_CUDA_I_REAL(real)(void);                                              \
    cudaError_t MEMLORD_CUDA_I_WRAP(real)(void);
MEMLORD_CUDA_I_WRAPPED(MEMLORD_CUDA_I_X, MEMLORD_CUDA_I_X0)
#undef MEMLORD_CUDA_I_X
#undef MEMLORD_CUDA_I_X0
#ifdef __cplusplus
}
#endif
#else
#define MEMLORD_CUDA_I_REAL(name) name
#endif

/* ----------------------------------------------------------------------- >>driver --
   Owns the table of driver functions and who may be entered. The driver is asked, not the
   runtime, as it keeps no last error, changes no current device and creates no context
   unless told to. Written out here, so that neither cuda.h nor -lcuda is needed. Locks: its
   own, while it loads. */

/* field, symbol, 1: nothing goes without it, parameters. CUdevice and enums are ints, CUcontext
   is a pointer; streams, events and pools are the runtime's own types. */
#define MEMLORD_CUDA_I_FUNCTIONS(X)                                                           \
    X(init, "cuInit", 1, (unsigned flags))                                                    \
    X(device_count, "cuDeviceGetCount", 1, (int *count))                                      \
    X(device_get, "cuDeviceGet", 1, (int *device, int ordinal))                               \
    X(device_attribute, "cuDeviceGetAttribute", 1, (int *value, int attribute, int device))   \
    X(device_pci, "cuDeviceGetPCIBusId", 1, (char *text, int size, int device))               \
    X(primary_state, "cuDevicePrimaryCtxGetState", 1,                                         \
      (int device, unsigned *flags, int *active))                                             \
    X(primary_retain, "cuDevicePrimaryCtxRetain", 1, (void **context, int device))            \
    X(primary_release, "cuDevicePrimaryCtxRelease_v2", 1, (int device))                       \
    X(context_push, "cuCtxPushCurrent_v2", 1, (void *context))                                \
    X(context_pop, "cuCtxPopCurrent_v2", 1, (void **context))                                 \
    X(context_current, "cuCtxGetCurrent", 1, (void **context))                                \
    X(context_device, "cuCtxGetDevice", 1, (int *device))                                     \
    X(context_wait, "cuCtxSynchronize", 1, (void))                                            \
    X(memory_info, "cuMemGetInfo_v2", 1, (size_t *unused, size_t *total))                     \
    X(pointer_attribute, "cuPointerGetAttribute", 1,                                          \
      (void *value, int attribute, unsigned long long pointer))                               \
    X(pool_current, "cuDeviceGetMemPool", 0, (cudaMemPool_t *pool, int device))               \
    X(pool_attribute, "cuMemPoolGetAttribute", 0,                                             \
      (cudaMemPool_t pool, int attribute, void *value))                                       \
    X(pool_trim, "cuMemPoolTrimTo", 0, (cudaMemPool_t pool, size_t keep))                     \
    X(graph_attribute, "cuDeviceGetGraphMemAttribute", 0,                                     \
      (int device, int attribute, void *value))                                               \
    X(graph_trim, "cuDeviceGraphMemTrim", 0, (int device))                                    \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", 1, (int *mode))                      \
    X(stream_capturing, "cuStreamIsCapturing", 1, (cudaStream_t stream, int *status))         \
    X(stream_context, "cuStreamGetCtx", 1, (cudaStream_t stream, void **context))             \
    X(event_create, "cuEventCreate", 1, (cudaEvent_t *event, unsigned flags))                 \
    X(event_destroy, "cuEventDestroy_v2", 1, (cudaEvent_t event))                             \
    X(event_record, "cuEventRecord", 1, (cudaEvent_t event, cudaStream_t stream))             \
    X(event_query, "cuEventQuery", 1, (cudaEvent_t event))                                    \
    X(event_elapsed, "cuEventElapsedTime", 1,                                                 \
      (float *ms, cudaEvent_t start, cudaEvent_t stop))

enum { /* of cuda.h */
    MEMLORD_CUDA_I_NOT_READY = 600,
    MEMLORD_CUDA_I_NOT_PERMITTED = 800, /* in a host function of a stream */
    MEMLORD_CUDA_I_CAPTURE_FIRST = 900, /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED .. */
    MEMLORD_CUDA_I_CAPTURED_EVENT = 907,
    MEMLORD_CUDA_I_CAPTURE_LAST = 908,  /* .. CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD */
    MEMLORD_CUDA_I_MODE_RELAXED = 2,
    MEMLORD_CUDA_I_ATTRIBUTE_INTEGRATED = 18,
    MEMLORD_CUDA_I_ATTRIBUTE_POOLS = 115,
    MEMLORD_CUDA_I_POINTER_DEVICE = 9,
    MEMLORD_CUDA_I_EVENT_PLAIN = 2, /* CU_EVENT_DISABLE_TIMING */
    MEMLORD_CUDA_I_POOL_RESERVED = 5, /* then its high, used, its high */
    MEMLORD_CUDA_I_GRAPH_USED = 0     /* then its high, reserved, its high */
};

typedef struct memlord_cuda_i_driver {
#define MEMLORD_CUDA_I_X(field, symbol, needed, params) int (*field) params;
    MEMLORD_CUDA_I_FUNCTIONS(MEMLORD_CUDA_I_X)
#undef MEMLORD_CUDA_I_X
    int devices; /* that are visible */
    int known;   /* of them; their handles and properties follow */
    int handle[MEMLORD_CUDA_MAX_DEVICES];
    int any_integrated;
    int integrated[MEMLORD_CUDA_MAX_DEVICES];
    int pools[MEMLORD_CUDA_MAX_DEVICES];
} memlord_cuda_i_driver;

enum { MEMLORD_CUDA_I_UNTRIED, MEMLORD_CUDA_I_READY, MEMLORD_CUDA_I_ABSENT };

static memlord_cuda_i_lock memlord_cuda_i_loaded_lock = MEMLORD_CUDA_I_LOCK;
static struct {
    memlord_cuda_i_u64 state; /* READY is stored with release after the table is filled */
    memlord_cuda_i_driver table;
} memlord_cuda_i_loaded;

static int memlord_cuda_i_driver_load(memlord_cuda_i_driver *d) {
    void *library = memlord_cuda_i_library_open(MEMLORD_CUDA_DRIVER);
    int whole = 1, i;
    if (!library) return 0;
#define MEMLORD_CUDA_I_X(field, symbol, needed, params)                                       \
    memlord_cuda_i_library_find(library, symbol, (void *)&d->field, sizeof d->field);         \
    if (needed && !d->field) whole = 0;
    MEMLORD_CUDA_I_FUNCTIONS(MEMLORD_CUDA_I_X)
#undef MEMLORD_CUDA_I_X
    if (!whole) {
        memlord_cuda_i_library_close(library);
        return 0;
    }
    /* from cuInit on it stays, whatever that says: it may have threads and handlers by then */
    if (d->init(0) || d->device_count(&d->devices) || d->devices < 1) return 0;
    for (i = 0; i < d->devices && i < MEMLORD_CUDA_MAX_DEVICES; i++) {
        if (d->device_get(&d->handle[i], i)) break;
        if (d->device_attribute(&d->integrated[i], MEMLORD_CUDA_I_ATTRIBUTE_INTEGRATED,
                                d->handle[i]))
            d->integrated[i] = 0;
        d->any_integrated |= d->integrated[i];
        if (!d->pool_current || !d->pool_attribute || !d->pool_trim ||
            d->device_attribute(&d->pools[i], MEMLORD_CUDA_I_ATTRIBUTE_POOLS, d->handle[i]))
            d->pools[i] = 0;
    }
    d->known = i;
    return 1;
}

static void memlord_cuda_i_fork_first(void);
static void memlord_cuda_i_fork_locks(void);

/* NULL: there is none, or no device, or the process is a child of the one that loaded it. Asked
   once a process. */
static const memlord_cuda_i_driver *memlord_cuda_i_driver_get(void) {
    uint64_t state = memlord_cuda_i_load_acquire(&memlord_cuda_i_loaded.state);
    if (state == MEMLORD_CUDA_I_UNTRIED) {
        memlord_cuda_i_lock_take(&memlord_cuda_i_loaded_lock);
        state = memlord_cuda_i_load(&memlord_cuda_i_loaded.state);
        if (state == MEMLORD_CUDA_I_UNTRIED) {
            memlord_cuda_i_fork_first();
            state = memlord_cuda_i_driver_load(&memlord_cuda_i_loaded.table)
                        ? MEMLORD_CUDA_I_READY
                        : MEMLORD_CUDA_I_ABSENT;
            memlord_cuda_i_fork_locks();
            memlord_cuda_i_store_release(&memlord_cuda_i_loaded.state, state);
        }
        memlord_cuda_i_lock_drop(&memlord_cuda_i_loaded_lock);
    }
    return state == MEMLORD_CUDA_I_READY ? &memlord_cuda_i_loaded.table : NULL;
}

/* The runtime's number of a driver's device; they are the same wherever anybody has looked. */
static int memlord_cuda_i_ordinal(const memlord_cuda_i_driver *d, int handle) {
    int i = 0;
    while (i < d->known && d->handle[i] != handle) i++;
    return i < d->known ? i : handle;
}

static int memlord_cuda_i_active(const memlord_cuda_i_driver *d, int device) {
    unsigned flags;
    int active = 0;
    return device >= 0 && device < d->known &&
           d->primary_state(d->handle[device], &flags, &active) == 0 && active;
}

/* Makes a context current, and the thread's capture mode relaxed, until leave; `mode` keeps the
   old one. A push that failed has changed nothing, and `mode` is the driver's error. */
static int memlord_cuda_i_enter_context(const memlord_cuda_i_driver *d, void *context, int *mode) {
    *mode = -1;
    if (!context || (*mode = d->context_push(context)) != 0) return 0;
    *mode = MEMLORD_CUDA_I_MODE_RELAXED;
    if (d->capture_mode(mode)) *mode = -1;
    return 1;
}

static void memlord_cuda_i_leave_context(const memlord_cuda_i_driver *d, int *mode) {
    void *context;
    if (*mode >= 0) (void)d->capture_mode(mode);
    (void)d->context_pop(&context);
}

/* The same with the primary context of an active device. Retaining it keeps it while we are in. */
static int memlord_cuda_i_enter_device(const memlord_cuda_i_driver *d, int device, int *mode) {
    void *context = NULL;
    if (!memlord_cuda_i_active(d, device)) return 0;
    if (d->primary_retain(&context, d->handle[device])) return 0;
    if (memlord_cuda_i_enter_context(d, context, mode)) return 1;
    (void)d->primary_release(d->handle[device]);
    return 0;
}

static void memlord_cuda_i_leave_device(const memlord_cuda_i_driver *d, int device, int *mode) {
    memlord_cuda_i_leave_context(d, mode);
    (void)d->primary_release(d->handle[device]);
}

/* ------------------------------------------------------------------------- >>nvml --
   Owns the table of NVML's functions and a handle per device. Found by PCI id, as NVML counts all
   devices of the machine, in another order. Loaded with the first seat that wants it, let go with
   the last: between, nothing of it changes. Locks: nvml_lock, while it comes or goes. */

#define MEMLORD_CUDA_I_NVML_FUNCTIONS(X)                                                      \
    X(init, "nvmlInit_v2", 1, (void))                                                         \
    X(shutdown, "nvmlShutdown", 1, (void))                                                    \
    X(by_pci, "nvmlDeviceGetHandleByPciBusId_v2", 1, (const char *id, void **device))         \
    X(memory, "nvmlDeviceGetMemoryInfo", 1, (void *device, void *info))                       \
    X(memory_v2, "nvmlDeviceGetMemoryInfo_v2", 0, (void *device, void *info))                 \
    X(mig, "nvmlDeviceGetMigMode", 0, (void *device, unsigned *current, unsigned *pending))   \
    X(processes, "nvmlDeviceGetComputeRunningProcesses_v3", 0,                                \
      (void *device, unsigned *n, void *info))

typedef struct memlord_cuda_i_nvml {
#define MEMLORD_CUDA_I_X(field, symbol, needed, params) int (*field) params;
    MEMLORD_CUDA_I_NVML_FUNCTIONS(MEMLORD_CUDA_I_X)
#undef MEMLORD_CUDA_I_X
    void *library;                          /* NULL: not there */
    void *device[MEMLORD_CUDA_MAX_DEVICES]; /* NULL: not found, or cut up (MIG) */
} memlord_cuda_i_nvml;

typedef struct memlord_cuda_i_nvml_memory {
    unsigned long long total, unused, used;
} memlord_cuda_i_nvml_memory;

typedef struct memlord_cuda_i_nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, unused, used;
} memlord_cuda_i_nvml_memory_v2;

typedef struct memlord_cuda_i_nvml_process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} memlord_cuda_i_nvml_process;

/* All instances of a MIG device have its PCI id, and it answers for all of them: not for us. */
static void *memlord_cuda_i_nvml_find(const memlord_cuda_i_nvml *n,
                                      const memlord_cuda_i_driver *d, int i) {
    char id[32] = "";
    unsigned cut = 0, pending;
    void *device = NULL;
    if (d->device_pci(id, (int)sizeof id, d->handle[i]) || n->by_pci(id, &device)) return NULL;
    if (n->mig && n->mig(device, &cut, &pending) == 0 && cut) return NULL;
    return device;
}

static void memlord_cuda_i_nvml_load(memlord_cuda_i_nvml *n, const memlord_cuda_i_driver *d,
                                     const char *name) {
    int whole = 1, i;
    memset(n, 0, sizeof *n);
    n->library = memlord_cuda_i_library_open(name ? name : MEMLORD_CUDA_I_NVML);
    if (!n->library) return;
#define MEMLORD_CUDA_I_X(field, symbol, needed, params)                                       \
    memlord_cuda_i_library_find(n->library, symbol, (void *)&n->field, sizeof n->field);      \
    if (needed && !n->field) whole = 0;
    MEMLORD_CUDA_I_NVML_FUNCTIONS(MEMLORD_CUDA_I_X)
#undef MEMLORD_CUDA_I_X
    if (!whole || n->init()) {
        memlord_cuda_i_library_close(n->library);
        memset(n, 0, sizeof *n);
        return;
    }
    for (i = 0; i < d->known; i++) n->device[i] = memlord_cuda_i_nvml_find(n, d, i);
}

static void memlord_cuda_i_nvml_unload(memlord_cuda_i_nvml *n) {
    if (!n->library) return;
    (void)n->shutdown();
    memlord_cuda_i_library_close(n->library);
    memset(n, 0, sizeof *n);
}

static memlord_cuda_i_lock memlord_cuda_i_nvml_lock = MEMLORD_CUDA_I_LOCK;
static memlord_cuda_i_nvml memlord_cuda_i_nvml_table;
static int memlord_cuda_i_nvml_users;

static void memlord_cuda_i_nvml_join(const memlord_cuda_i_driver *d, const char *name) {
    memlord_cuda_i_lock_take(&memlord_cuda_i_nvml_lock);
    if (!memlord_cuda_i_nvml_users++) memlord_cuda_i_nvml_load(&memlord_cuda_i_nvml_table, d, name);
    memlord_cuda_i_lock_drop(&memlord_cuda_i_nvml_lock);
}
static void memlord_cuda_i_nvml_part(void) {
    memlord_cuda_i_lock_take(&memlord_cuda_i_nvml_lock);
    if (!--memlord_cuda_i_nvml_users) memlord_cuda_i_nvml_unload(&memlord_cuda_i_nvml_table);
    memlord_cuda_i_lock_drop(&memlord_cuda_i_nvml_lock);
}

/* `used` is what is not free: versions of NVML disagree about what else it means. */
static int memlord_cuda_i_nvml_ask(const memlord_cuda_i_nvml *n, int i, uint64_t *total,
                                   uint64_t *unused) {
    memlord_cuda_i_nvml_memory_v2 v2;
    memlord_cuda_i_nvml_memory v1;
    if (!n->device[i]) return 0;
    memset(&v2, 0, sizeof v2);
    v2.version = (unsigned)sizeof v2 | 2u << 24;
    if (n->memory_v2 && n->memory_v2(n->device[i], &v2) == 0 && v2.total) {
        *total = v2.total;
        *unused = v2.unused;
        return 1;
    }
    memset(&v1, 0, sizeof v1);
    if (n->memory(n->device[i], &v1) || !v1.total) return 0;
    *total = v1.total;
    *unused = v1.unused;
    return 1;
}

/* This process's bytes; 0: NVML cannot tell. In a container it knows us by another number. */
static uint64_t memlord_cuda_i_nvml_share(const memlord_cuda_i_nvml *n, int i) {
    memlord_cuda_i_nvml_process list[128];
    unsigned count = sizeof list / sizeof *list, k;
    uint64_t sum = 0;
    if (!n->device[i] || !n->processes || n->processes(n->device[i], &count, list)) return 0;
    for (k = 0; k < count && k < sizeof list / sizeof *list; k++)
        if (list[k].pid == memlord_cuda_i_process_id() && list[k].used != UINT64_MAX)
            sum += list[k].used;
    return sum;
}

/* ------------------------------------------------------------------------ >>seats --
   Owns which ledgers are attached, and how. Seats are never freed, so callbacks may hold one.
   Locks: seats_lock, never while the ledger is called. */

enum { MEMLORD_CUDA_I_EMPTY, MEMLORD_CUDA_I_CHANGING, MEMLORD_CUDA_I_TAKEN };

typedef struct memlord_cuda_i_seat {
    int state;
    memlord *lord;
    memlord_cuda_i_u64 key;   /* the ledger's address, for those that look without the lock; the
                                 flags are stored before it, released by it */
    memlord_cuda_i_u64 flags; /* MEMLORD_CUDA_FLAG_... */
    uint64_t keep_bytes;      /* and the policy: under the lock */
    memlord_retry retry;
    int has_retry;
    int has_nvml; /* is one of its users: who changes the seat's alone */
    unsigned char shared[MEMLORD_CUDA_MAX_DEVICES]; /* devices we put into the cpu's memory */
    memlord_cuda_i_u64 pooled[MEMLORD_CUDA_MAX_DEVICES]; /* whose `reserved` we say */
    memlord_cuda_i_u64 calls; /* stream-ordered ones, where those have to look at the pool */
} memlord_cuda_i_seat;

static memlord_cuda_i_lock memlord_cuda_i_process_lock = MEMLORD_CUDA_I_LOCK;
static struct {
    memlord_cuda_i_seat seats[MEMLORD_CUDA_MAX_LEDGERS];
    memlord_cuda_i_u64 taken;   /* so many; changed under the lock */
    memlord_cuda_i_u64 special; /* seats whose flags a wrapped call must know */
} memlord_cuda_i_process;

#define MEMLORD_CUDA_I_SPECIAL                                                                \
    (MEMLORD_CUDA_FLAG_RETRY | MEMLORD_CUDA_FLAG_SYNC | MEMLORD_CUDA_FLAG_TAG_STREAMS |       \
     MEMLORD_CUDA_FLAG_TIME_SCOPES)

/* The seat of a ledger that is attached, without the lock; NULL: it is not. */
static memlord_cuda_i_seat *memlord_cuda_i_seat_of(memlord *lord) {
    int i;
    if (!lord || !memlord_cuda_i_load(&memlord_cuda_i_process.taken)) return NULL;
    for (i = 0; i < MEMLORD_CUDA_MAX_LEDGERS; i++)
        if (memlord_cuda_i_load_acquire(&memlord_cuda_i_process.seats[i].key) ==
            (uint64_t)(uintptr_t)lord)
            return &memlord_cuda_i_process.seats[i];
    return NULL;
}

/* The flags of a ledger that change a wrapped call. Most processes have none: one load. */
static uint64_t memlord_cuda_i_flags_of(memlord *lord) {
    memlord_cuda_i_seat *seat = NULL;
    if (memlord_cuda_i_load(&memlord_cuda_i_process.special)) seat = memlord_cuda_i_seat_of(lord);
    return seat ? memlord_cuda_i_load(&seat->flags) & MEMLORD_CUDA_I_SPECIAL : 0;
}

/* Under the lock. */
static memlord_cuda_i_seat *memlord_cuda_i_seat_find(memlord *lord) {
    int i;
    for (i = 0; i < MEMLORD_CUDA_MAX_LEDGERS; i++)
        if (memlord_cuda_i_process.seats[i].state != MEMLORD_CUDA_I_EMPTY &&
            memlord_cuda_i_process.seats[i].lord == lord)
            return &memlord_cuda_i_process.seats[i];
    return NULL;
}

/* Takes a ledger's seat, or an empty one, to change it. *was is what it had been. */
static memlord_cuda_i_seat *memlord_cuda_i_seat_claim(memlord *lord, int *was) {
    memlord_cuda_i_seat *seat;
    int i;
    memlord_cuda_i_lock_take(&memlord_cuda_i_process_lock);
    seat = memlord_cuda_i_seat_find(lord);
    for (i = 0; !seat && i < MEMLORD_CUDA_MAX_LEDGERS; i++)
        if (memlord_cuda_i_process.seats[i].state == MEMLORD_CUDA_I_EMPTY)
            seat = &memlord_cuda_i_process.seats[i];
    if (seat && seat->state == MEMLORD_CUDA_I_CHANGING) seat = NULL;
    if (seat) {
        *was = seat->state;
        if (*was == MEMLORD_CUDA_I_EMPTY) seat->lord = lord; /* else callbacks may be reading it */
        seat->state = MEMLORD_CUDA_I_CHANGING;
    }
    memlord_cuda_i_lock_drop(&memlord_cuda_i_process_lock);
    return seat;
}

static void memlord_cuda_i_seat_state(memlord_cuda_i_seat *seat, int state) {
    memlord_cuda_i_lock_take(&memlord_cuda_i_process_lock);
    seat->state = state;
    memlord_cuda_i_lock_drop(&memlord_cuda_i_process_lock);
}

/* Gives a claimed seat, of which nothing is hooked, its description; NULL takes it off. NVML takes
   its time to come, and nobody has to wait for that but who attaches. 1: nobody is left. */
static int memlord_cuda_i_seat_fill(memlord_cuda_i_seat *seat, int was,
                                    const memlord_cuda_i_driver *d,
                                    const memlord_cuda_desc *desc) {
    uint64_t old = memlord_cuda_i_load(&seat->flags) & MEMLORD_CUDA_I_SPECIAL;
    uint64_t fresh = desc ? desc->flags & (uint32_t)MEMLORD_CUDA_I_SPECIAL : 0;
    int alone;
    if (seat->has_nvml) memlord_cuda_i_nvml_part();
    seat->has_nvml = desc && !(desc->flags & MEMLORD_CUDA_FLAG_NO_NVML);
    if (seat->has_nvml) memlord_cuda_i_nvml_join(d, desc->nvml);
    memlord_cuda_i_lock_take(&memlord_cuda_i_process_lock);
    if (was == MEMLORD_CUDA_I_TAKEN) memlord_cuda_i_add(&memlord_cuda_i_process.taken, UINT64_MAX);
    alone = memlord_cuda_i_load(&memlord_cuda_i_process.taken) == 0;
    if (desc) memlord_cuda_i_add(&memlord_cuda_i_process.taken, 1);
    memlord_cuda_i_store(&seat->flags, desc ? desc->flags : 0);
    seat->keep_bytes = desc ? desc->keep_bytes : 0;
    seat->has_retry = desc && desc->retry;
    if (seat->has_retry) seat->retry = *desc->retry;
    if (!fresh != !old) memlord_cuda_i_add(&memlord_cuda_i_process.special, fresh ? 1 : UINT64_MAX);
    /* pairs with the acquire in flags_of */
    memlord_cuda_i_store_release(&seat->key, desc ? (uint64_t)(uintptr_t)seat->lord : 0);
    memlord_cuda_i_lock_drop(&memlord_cuda_i_process_lock);
    return alone && !desc;
}

/* -------------------------------------------------------------------- >>capacity --
   Owns what a ledger is told of a device: capacity, this process's share, what its pools hold.
   Runs on pollers and on who asks. Locks: none. */

static int memlord_cuda_i_pool_read(const memlord_cuda_i_driver *d, int device,
                                    memlord_cuda_pool *out) {
    uint64_t pool[4] = {0, 0, 0, 0}, graph[4] = {0, 0, 0, 0};
    cudaMemPool_t current = NULL;
    int k, failed = d->pool_current(&current, d->handle[device]);
    for (k = 0; k < 4 && !failed; k++)
        failed = d->pool_attribute(current, MEMLORD_CUDA_I_POOL_RESERVED + k, &pool[k]);
    for (k = 0; k < 4 && d->graph_attribute; k++) /* since 11.4; without it they stay 0 */
        if (d->graph_attribute(d->handle[device], MEMLORD_CUDA_I_GRAPH_USED + k, &graph[k]))
            graph[k] = 0;
    if (failed) return 0;
    out->reserved = pool[0], out->reserved_high = pool[1];
    out->used = pool[2], out->used_high = pool[3];
    out->graph_used = graph[0], out->graph_used_high = graph[1];
    out->graph_reserved = graph[2], out->graph_reserved_high = graph[3];
    return 1;
}

static uint64_t memlord_cuda_i_pool_reserved(memlord *lord, int device,
                                             const memlord_cuda_pool *pool) {
    uint64_t live = memlord_allocated(lord, memlord_device_cuda(device));
    uint64_t inside = memlord_pending(lord, memlord_device_cuda(device));
    inside += pool->used + pool->graph_used;
    return pool->reserved + pool->graph_reserved + (live > inside ? live - inside : 0);
}

/* Inside the device. A host whose pool never held a byte may have one of its own, and says itself
   what that holds. */
static void memlord_cuda_i_pool_tell(const memlord_cuda_i_driver *d, memlord_cuda_i_seat *seat,
                                     memlord *lord, int device) {
    memlord_cuda_pool pool;
    if (memlord_cuda_i_load(&seat->flags) & MEMLORD_CUDA_FLAG_NO_RESERVED) return;
    if (!d->pools[device] || !memlord_cuda_i_pool_read(d, device, &pool)) return;
    if (!memlord_cuda_i_load(&seat->pooled[device])) {
        if (!pool.reserved_high && !pool.graph_reserved_high) return;
        memlord_cuda_i_store(&seat->pooled[device], 1); /* only ever goes up: order is nobody's */
    }
    (void)memlord_reserved_set(lord, memlord_device_cuda(device),
                               memlord_cuda_i_pool_reserved(lord, device, &pool), UINT64_MAX);
}

/* Bytes came to a device, or went, that are of no pool. A cudaFree of what was one's is taken for
   such: the next sample puts that right. */
static void memlord_cuda_i_pool_beside(memlord *lord, memlord_device device, int64_t delta) {
    memlord_cuda_i_seat *seat = memlord_cuda_i_seat_of(lord);
    if (seat && delta && device.index < MEMLORD_CUDA_MAX_DEVICES &&
        memlord_cuda_i_load(&seat->pooled[device.index]))
        (void)memlord_reserved_add(lord, device, delta);
}

/* Integrated GPUs have no samples of their own, the cpu being asked for both: the calls that fill
   and empty a pool look at it, `now` or one of 64 times. */
static void memlord_cuda_i_pool_look(memlord *lord, int now) {
    const memlord_cuda_i_driver *d;
    memlord_cuda_i_seat *seat = memlord_cuda_i_seat_of(lord);
    int i, mode;
    if (!seat) return; /* and no driver is loaded for who has not attached */
    d = memlord_cuda_i_driver_get();
    if (!d || !d->any_integrated) return;
    if (!now && memlord_cuda_i_add(&seat->calls, 1) % 64) return;
    for (i = 0; i < d->known; i++) {
        if (!d->integrated[i] || !memlord_cuda_i_enter_device(d, i, &mode)) continue;
        memlord_cuda_i_pool_tell(d, seat, lord, i);
        memlord_cuda_i_leave_device(d, i, &mode);
    }
}

/* An integrated GPU that could not share the cpu's place: what is available there all the same, not
   what the driver calls free, which leaves out the page cache. */
static int memlord_cuda_i_capacity_cpu(memlord *lord, memlord_capacity *out) {
    memlord_capacity cpu;
    (void)memlord_capacity_sample(lord, memlord_device_cpu());
    if (memlord_capacity_get(lord, memlord_device_cpu(), &cpu) || !cpu.known) return -1;
    out->total = cpu.total;
    out->used = cpu.used;
    out->process = cpu.process;
    return 0;
}

static int memlord_cuda_i_capacity(void *user, memlord_device device, memlord_capacity *out) {
    memlord_cuda_i_seat *seat = (memlord_cuda_i_seat *)user;
    const memlord_cuda_i_driver *d = memlord_cuda_i_driver_get();
    const memlord_cuda_i_nvml *nvml = &memlord_cuda_i_nvml_table;
    int no_nvml = (memlord_cuda_i_load(&seat->flags) & MEMLORD_CUDA_FLAG_NO_NVML) != 0;
    int i = device.index, mode, known = 0;
    size_t unused = 0, total = 0;
    uint64_t nvml_unused = 0, nvml_total = 0;
    if (!d || i < 0 || i >= d->known) return -1;
    if (d->integrated[i]) {
        memlord_cuda_i_pool_look(seat->lord, 1);
        return memlord_cuda_i_capacity_cpu(seat->lord, out);
    }
    if (memlord_cuda_i_enter_device(d, i, &mode)) {
        known = d->memory_info(&unused, &total) == 0 && total > 0;
        memlord_cuda_i_pool_tell(d, seat, seat->lord, i);
        memlord_cuda_i_leave_device(d, i, &mode);
    }
    if (known) {
        out->total = total;
        out->used = total - unused;
    } else if (!no_nvml && memlord_cuda_i_nvml_ask(nvml, i, &nvml_total, &nvml_unused)) {
        out->total = nvml_total; /* never mixed with the driver's: it counts another total */
        out->used = nvml_total - nvml_unused;
    } else {
        return -1;
    }
    out->process = no_nvml ? 0 : memlord_cuda_i_nvml_share(nvml, i);
    return 0;
}

/* -------------------------------------------------------------------- >>captures --
   Owns which streams are known to be captured. Locks: captures_lock, never while the driver or
   the ledger is called. */

enum { MEMLORD_CUDA_I_CAPTURES = 64 };

static memlord_cuda_i_lock memlord_cuda_i_captures_lock = MEMLORD_CUDA_I_LOCK;
static struct {
    memlord_cuda_i_u64 n; /* begun and not ended: a level, nothing hangs on it */
    uint64_t stream[MEMLORD_CUDA_I_CAPTURES]; /* their keys */
} memlord_cuda_i_captures;

/* 0, and the handles 1 and 2, are streams that every context, or thread, has one of. */
static int memlord_cuda_i_is_default(cudaStream_t stream) { return (uintptr_t)stream <= 2; }

static cudaStream_t memlord_cuda_i_stream(cudaStream_t stream) {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
    if (!stream) return cudaStreamPerThread;
#endif
    return stream;
}

/* What tells a stream from every other; those of threads have one handle. */
static uint64_t memlord_cuda_i_stream_key(cudaStream_t stream) {
    uint64_t key = (uint64_t)(uintptr_t)stream;
    return stream == cudaStreamPerThread ? key | memlord_cuda_i_thread_id() << 2 : key;
}

static int memlord_cuda_i_is_capture(int error) {
    return error >= MEMLORD_CUDA_I_CAPTURE_FIRST && error <= MEMLORD_CUDA_I_CAPTURE_LAST;
}

/* -1: the driver does not say. */
static int memlord_cuda_i_capturing(cudaStream_t stream) {
    const memlord_cuda_i_driver *d = memlord_cuda_i_driver_get();
    int status = 0;
    if (!d) return 0;
    return d->stream_capturing(memlord_cuda_i_stream(stream), &status) ? -1 : status != 0;
}

/* An end is the end of what was begun here: another may have begun behind our back. More captures
   at a time than there is room for are left to themselves. */
static int memlord_cuda_i_capture_add(uint64_t key) {
    uint64_t n;
    int room;
    memlord_cuda_i_lock_take(&memlord_cuda_i_captures_lock);
    n = memlord_cuda_i_load(&memlord_cuda_i_captures.n);
    room = n < MEMLORD_CUDA_I_CAPTURES;
    if (room) {
        memlord_cuda_i_captures.stream[n] = key;
        memlord_cuda_i_store(&memlord_cuda_i_captures.n, n + 1);
    }
    memlord_cuda_i_lock_drop(&memlord_cuda_i_captures_lock);
    return room;
}

static void memlord_cuda_i_capture_drop(uint64_t key) {
    uint64_t n, i = 0;
    memlord_cuda_i_lock_take(&memlord_cuda_i_captures_lock);
    n = memlord_cuda_i_load(&memlord_cuda_i_captures.n);
    while (i < n && memlord_cuda_i_captures.stream[i] != key) i++;
    if (i < n) {
        memlord_cuda_i_captures.stream[i] = memlord_cuda_i_captures.stream[n - 1];
        memlord_cuda_i_store(&memlord_cuda_i_captures.n, n - 1);
    }
    memlord_cuda_i_lock_drop(&memlord_cuda_i_captures_lock);
}

/* What is recorded of a captured stream may cross a band, and with FLAG_SYNC the collection waits:
   until the end of the call that capture is a known one. 1: it needs its end. */
static int memlord_cuda_i_capture_hold(uint64_t flags, cudaStream_t stream) {
    if (!(flags & MEMLORD_CUDA_FLAG_SYNC) || memlord_cuda_i_capturing(stream) != 1) return 0;
    return memlord_cuda_i_capture_add(memlord_cuda_i_stream_key(memlord_cuda_i_stream(stream)));
}

static void memlord_cuda_i_capture_let(int held, cudaStream_t stream) {
    if (held) memlord_cuda_i_capture_drop(memlord_cuda_i_stream_key(memlord_cuda_i_stream(stream)));
}

/* Inside the device: waits for it, if nothing is captured there. The legacy stream cannot be asked
   while a blocking one is captured: that is how one hears of it. An error is nobody's: a capture
   that began meanwhile, or work of the host's, which will hear of it itself. */
static void memlord_cuda_i_wait(const memlord_cuda_i_driver *d) {
    int status = 0;
    if (memlord_cuda_i_load(&memlord_cuda_i_captures.n)) return;
    if (d->stream_capturing(cudaStreamLegacy, &status) == 0 && !status) (void)d->context_wait();
}

/* ------------------------------------------------------------------ >>collection --
   Owns giving back what a device's pools hold and nobody uses. Locks: seats_lock, to read how much
   to keep. */

#if defined(MEMLORD_CUDA_NVTX)
static void memlord_cuda_i_nvtx_begin(const char *what, memlord_device device) {
    char text[96], name[32];
    size_t n = strlen(what);
    (void)memlord_device_name(device, name, sizeof name);
    if (n > sizeof text - sizeof name - 2) n = sizeof text - sizeof name - 2;
    memcpy(text, what, n);
    text[n++] = ' ';
    memcpy(text + n, name, strlen(name) + 1);
    (void)nvtxRangePushA(text);
}
static void memlord_cuda_i_nvtx_mark(const char *what, uint64_t bytes) {
    nvtxEventAttributes_t event;
    memset(&event, 0, sizeof event);
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    event.payload.ullValue = bytes;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = what;
    nvtxMarkEx(&event);
}
static void memlord_cuda_i_nvtx_push(const char *what) { (void)nvtxRangePushA(what); }
static void memlord_cuda_i_nvtx_end(void) { (void)nvtxRangePop(); }
#else
static void memlord_cuda_i_nvtx_begin(const char *what, memlord_device device) {
    (void)what, (void)device;
}
static void memlord_cuda_i_nvtx_mark(const char *what, uint64_t bytes) { (void)what, (void)bytes; }
static void memlord_cuda_i_nvtx_push(const char *what) { (void)what; }
static void memlord_cuda_i_nvtx_end(void) {}
#endif

/* Inside the device: trims both, and answers the bytes; 0 in *ran: it could not. To wait may give
   back what the pool does not keep, so that is in them. */
static uint64_t memlord_cuda_i_trim(const memlord_cuda_i_driver *d, int device, uint64_t keep,
                                    int sync, int *ran) {
    memlord_cuda_pool before, after;
    cudaMemPool_t pool = NULL;
    uint64_t had, has;
    *ran = 0;
    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    if (!memlord_cuda_i_pool_read(d, device, &before)) return 0;
    if (sync) memlord_cuda_i_wait(d);
    if (d->pool_current(&pool, d->handle[device]) == 0)
        *ran |= d->pool_trim(pool, keep > SIZE_MAX ? SIZE_MAX : (size_t)keep) == 0;
    if (d->graph_trim) *ran |= d->graph_trim(d->handle[device]) == 0;
    if (!*ran || !memlord_cuda_i_pool_read(d, device, &after)) return 0;
    had = before.reserved + before.graph_reserved;
    has = after.reserved + after.graph_reserved;
    return had > has ? had - has : 0;
}

/* Inside the device: what was used of its pool at most since the last collection. What was freed
   since may have been used all at once, and no more than ever was. */
static uint64_t memlord_cuda_i_pool_lately(const memlord_cuda_i_driver *d, memlord *lord,
                                           memlord_device device) {
    memlord_cuda_pool pool;
    uint64_t lately = memlord_freed(lord, device) + memlord_pending(lord, device);
    if (!memlord_cuda_i_pool_read(d, device.index, &pool)) return 0;
    lately += pool.used;
    return lately < pool.used_high ? lately : pool.used_high;
}

static memlord_gc_result memlord_cuda_i_collect(void *user, memlord *lord,
                                                const memlord_gc_event *event) {
    memlord_cuda_i_seat *seat = (memlord_cuda_i_seat *)user;
    const memlord_cuda_i_driver *d = memlord_cuda_i_driver_get();
    memlord_gc_result result = {0, 0, 0};
    int i = event->device.index, mode;
    int sync = (memlord_cuda_i_load(&seat->flags) & MEMLORD_CUDA_FLAG_SYNC) != 0;
    uint64_t keep, lately;
    if (!d || i < 0 || i >= d->known || !d->pools[i]) return result;
    memlord_cuda_i_lock_take(&memlord_cuda_i_process_lock);
    keep = seat->keep_bytes;
    memlord_cuda_i_lock_drop(&memlord_cuda_i_process_lock);
    memlord_cuda_i_nvtx_begin("memlord collection", event->device);
    if (memlord_cuda_i_enter_device(d, i, &mode)) {
        lately = event->reason == MEMLORD_REASON_BAND
                     ? memlord_cuda_i_pool_lately(d, lord, event->device)
                     : 0;
        if (keep < lately) keep = lately;
        result.reclaimed = memlord_cuda_i_trim(d, i, keep, sync, &result.ran);
        memlord_cuda_i_pool_tell(d, seat, lord, i);
        memlord_cuda_i_leave_device(d, i, &mode);
    }
    memlord_cuda_i_nvtx_mark("memlord reclaimed", result.reclaimed);
    memlord_cuda_i_nvtx_end();
    return result;
}

/* ---------------------------------------------------------------------- >>events --
   Owns fences made of events, and the events between uses: a list per context, since an event
   serves the streams of its own alone. Fences come from pages that are kept; those whose event is
   still to be recorded are in a list by their stream, so that its end finds them. Locks:
   events_lock, never while the driver or the ledger is called; a list's, while an event of it is
   recorded, so that no stream ends meanwhile. */

enum { MEMLORD_CUDA_I_BINS = MEMLORD_CUDA_MAX_DEVICES * 2 }; /* with time and without */

enum { MEMLORD_CUDA_I_LISTS = 8 };
enum { MEMLORD_CUDA_I_UNRECORDED, MEMLORD_CUDA_I_RECORDED, MEMLORD_CUDA_I_LOST };

typedef struct memlord_cuda_i_fence {
    struct memlord_cuda_i_fence *next, *previous;
    memlord_cuda_i_u64 state; /* what is not listed is its owner's alone */
    cudaStream_t stream;
    uint64_t thread;   /* whose stream it is, if that is the per-thread one */
    cudaEvent_t event; /* of `context`; NULL: none yet */
    void *context;     /* the stream's; NULL: the stream has none, and the fence fails */
    unsigned char listed;
    unsigned char due;   /* to be recorded as soon as its stream allows, as its block is freed */
    unsigned char timed; /* its event keeps the time */
} memlord_cuda_i_fence;

typedef struct memlord_cuda_i_list {
    memlord_cuda_i_lock lock;
    memlord_cuda_i_fence *first;
} memlord_cuda_i_list;

#define MEMLORD_CUDA_I_LIST {MEMLORD_CUDA_I_LOCK, NULL}
static memlord_cuda_i_list memlord_cuda_i_lists[MEMLORD_CUDA_I_LISTS] = {
    MEMLORD_CUDA_I_LIST, MEMLORD_CUDA_I_LIST, MEMLORD_CUDA_I_LIST, MEMLORD_CUDA_I_LIST,
    MEMLORD_CUDA_I_LIST, MEMLORD_CUDA_I_LIST, MEMLORD_CUDA_I_LIST, MEMLORD_CUDA_I_LIST};
#undef MEMLORD_CUDA_I_LIST
static memlord_cuda_i_u64 memlord_cuda_i_due; /* so many are listed: who finds 0 looks for none */

typedef struct memlord_cuda_i_bin {
    void *context;
    int timed;
    memlord_cuda_i_fence *first; /* with events */
    unsigned n;
} memlord_cuda_i_bin;

static memlord_cuda_i_lock memlord_cuda_i_events_lock = MEMLORD_CUDA_I_LOCK;
static struct {
    memlord_cuda_i_bin bins[MEMLORD_CUDA_I_BINS];
    memlord_cuda_i_fence *spare;  /* without */
} memlord_cuda_i_events;

/* Under the lock. */
static memlord_cuda_i_bin *memlord_cuda_i_bin_of(void *context, int timed) {
    memlord_cuda_i_bin *empty = NULL;
    int i;
    for (i = 0; i < MEMLORD_CUDA_I_BINS; i++) {
        memlord_cuda_i_bin *bin = &memlord_cuda_i_events.bins[i];
        if (bin->first && bin->context == context && bin->timed == timed) return bin;
        if (!bin->first && !empty) empty = bin;
    }
    if (empty) {
        empty->context = context;
        empty->timed = timed;
    }
    return empty;
}

/* Cuts pages into fences; the operating system's, so that no malloc of the host's is called. */
static void memlord_cuda_i_fences_make(void) {
    enum { PIECE = 16384 };
    memlord_allocator pages;
    memlord_cuda_i_fence *made;
    size_t i, n = PIECE / sizeof *made;
    memlord_os_allocator(&pages);
    made = (memlord_cuda_i_fence *)pages.alloc(pages.user, PIECE);
    if (!made) return;
    memset(made, 0, PIECE);
    for (i = 0; i + 1 < n; i++) made[i].next = &made[i + 1];
    memlord_cuda_i_lock_take(&memlord_cuda_i_events_lock);
    made[n - 1].next = memlord_cuda_i_events.spare;
    memlord_cuda_i_events.spare = made;
    memlord_cuda_i_lock_drop(&memlord_cuda_i_events_lock);
}

/* With an event of the context, if one is kept. NULL: no memory. */
static memlord_cuda_i_fence *memlord_cuda_i_fence_take(void *context, int timed) {
    memlord_cuda_i_fence *fence = NULL;
    memlord_cuda_i_bin *bin;
    int round;
    for (round = 0; round < 2 && !fence; round++) {
        if (round) memlord_cuda_i_fences_make();
        memlord_cuda_i_lock_take(&memlord_cuda_i_events_lock);
        bin = context ? memlord_cuda_i_bin_of(context, timed) : NULL;
        if (bin && bin->first) {
            fence = bin->first;
            bin->first = fence->next;
            bin->n--;
        } else if (memlord_cuda_i_events.spare) {
            fence = memlord_cuda_i_events.spare;
            memlord_cuda_i_events.spare = fence->next;
        }
        memlord_cuda_i_lock_drop(&memlord_cuda_i_events_lock);
    }
    if (fence) {
        fence->next = NULL;
        fence->context = context;
        fence->timed = (unsigned char)timed;
        fence->due = 0;
        memlord_cuda_i_store(&fence->state, MEMLORD_CUDA_I_UNRECORDED);
    }
    return fence;
}

static void memlord_cuda_i_event_end(void *context, cudaEvent_t event) {
    const memlord_cuda_i_driver *d = memlord_cuda_i_driver_get();
    int mode;
    if (!d || !event || !memlord_cuda_i_enter_context(d, context, &mode)) return;
    (void)d->event_destroy(event);
    memlord_cuda_i_leave_context(d, &mode);
}

static memlord_cuda_i_list *memlord_cuda_i_list_of(cudaStream_t stream) {
    uint64_t hash = (uint64_t)(uintptr_t)stream * 0x9e3779b97f4a7c15u;
    return &memlord_cuda_i_lists[hash >> 61];
}

/* Under the list's lock. */
static void memlord_cuda_i_list_put(memlord_cuda_i_list *list, memlord_cuda_i_fence *fence) {
    if (fence->listed) return;
    fence->previous = NULL;
    fence->next = list->first;
    if (list->first) list->first->previous = fence;
    list->first = fence;
    fence->listed = 1;
    if (fence->due) memlord_cuda_i_add(&memlord_cuda_i_due, 1);
}
static void memlord_cuda_i_list_take(memlord_cuda_i_list *list, memlord_cuda_i_fence *fence) {
    if (!fence->listed) return;
    if (fence->next) fence->next->previous = fence->previous;
    if (fence->previous)
        fence->previous->next = fence->next;
    else
        list->first = fence->next;
    fence->listed = 0;
    if (fence->due) memlord_cuda_i_add(&memlord_cuda_i_due, UINT64_MAX);
}

static void memlord_cuda_i_fence_give(memlord_cuda_i_fence *fence) {
    memlord_cuda_i_list *list = memlord_cuda_i_list_of(fence->stream);
    cudaEvent_t event;
    void *context = fence->context;
    memlord_cuda_i_bin *bin = NULL;
    if (memlord_cuda_i_load_acquire(&fence->state) != MEMLORD_CUDA_I_RECORDED) {
        memlord_cuda_i_lock_take(&list->lock);
        memlord_cuda_i_list_take(list, fence);
        memlord_cuda_i_lock_drop(&list->lock);
    }
    event = fence->event;
    memlord_cuda_i_lock_take(&memlord_cuda_i_events_lock);
    if (event) bin = memlord_cuda_i_bin_of(context, fence->timed);
    if (bin && bin->n < MEMLORD_CUDA_MAX_EVENTS) {
        fence->next = bin->first;
        bin->first = fence;
        bin->n++;
        event = NULL;
    } else {
        fence->event = NULL;
        fence->next = memlord_cuda_i_events.spare;
        memlord_cuda_i_events.spare = fence;
    }
    memlord_cuda_i_lock_drop(&memlord_cuda_i_events_lock);
    memlord_cuda_i_event_end(context, event);
}

/* The context of a stream. A thread that never called the runtime has none current: then it is
   that of the block's device. */
static void *memlord_cuda_i_context_of(const memlord_cuda_i_driver *d, cudaStream_t stream,
                                       memlord *lord, uint64_t storage) {
    memlord_block_info info;
    void *context = NULL;
    int device;
    if (!memlord_cuda_i_is_default(stream))
        return d->stream_context(stream, &context) ? NULL : context;
    if (d->context_current(&context) == 0 && context) return context;
    if (memlord_block_find(lord, memlord_device_cuda(0), storage, &info)) return NULL;
    device = info.device.index;
    if (!memlord_cuda_i_active(d, device)) return NULL;
    if (d->primary_retain(&context, d->handle[device])) return NULL;
    (void)d->primary_release(d->handle[device]); /* others hold it: it was active */
    return context;
}

/* Inside the fence's context. An event that was kept may be gone with a reset of the device: then
   one try with a fresh one. */
static int memlord_cuda_i_event_record(const memlord_cuda_i_driver *d,
                                       memlord_cuda_i_fence *fence, cudaStream_t stream) {
    int r = 1;
    if (fence->event) {
        r = d->event_record(fence->event, stream);
        if (r == 0 || memlord_cuda_i_is_capture(r)) return r;
        (void)d->event_destroy(fence->event);
        fence->event = NULL;
    }
    r = d->event_create(&fence->event, fence->timed ? 0 : MEMLORD_CUDA_I_EVENT_PLAIN);
    if (r) {
        fence->event = NULL;
        return r;
    }
    return d->event_record(fence->event, stream);
}

/* 1: recorded; 0: not while the stream is captured, or here; -1: it cannot be. The default stream
   of another thread cannot be named: the legacy one, which waits for all of those, stands for it. */
static int memlord_cuda_i_fence_record(memlord_cuda_i_fence *fence) {
    const memlord_cuda_i_driver *d = memlord_cuda_i_driver_get();
    cudaStream_t stream = fence->stream;
    int mode, status = 0, captured, r;
    if (stream == cudaStreamPerThread && fence->thread != memlord_cuda_i_thread_id())
        stream = cudaStreamLegacy;
    if (!d) return -1;
    if (!memlord_cuda_i_enter_context(d, fence->context, &mode))
        return mode == MEMLORD_CUDA_I_NOT_PERMITTED ? 0 : -1;
    r = d->stream_capturing(stream, &status);
    captured = !r && status;
    if (!r && !captured) r = memlord_cuda_i_event_record(d, fence, stream);
    memlord_cuda_i_leave_context(d, &mode);
    if (captured || memlord_cuda_i_is_capture(r)) return 0;
    return r ? -1 : 1;
}

/* The same of a fence that nobody else knows of yet; what is not recorded is listed. */
static void memlord_cuda_i_fence_begin(memlord_cuda_i_fence *fence, int now) {
    memlord_cuda_i_list *list = memlord_cuda_i_list_of(fence->stream);
    if (now) fence->due = 1;
    if (now && memlord_cuda_i_fence_record(fence) == 1) {
        memlord_cuda_i_store(&fence->state, MEMLORD_CUDA_I_RECORDED);
        return;
    }
    memlord_cuda_i_lock_take(&list->lock);
    memlord_cuda_i_store(&fence->state, MEMLORD_CUDA_I_UNRECORDED);
    memlord_cuda_i_list_put(list, fence);
    memlord_cuda_i_lock_drop(&list->lock);
}

/* Under the list's lock. Off it before the state says so: then the ledger may give it back. */
static void memlord_cuda_i_fence_end(memlord_cuda_i_list *list, memlord_cuda_i_fence *fence,
                                     uint64_t state) {
    memlord_cuda_i_list_take(list, fence);
    memlord_cuda_i_store_release(&fence->state, state);
}

/* Records what waits in a list for a stream of this thread's, or for any (NULL), to be recorded:
   what is due, and when the stream ends all; what it would not record is lost then. */
static void memlord_cuda_i_list_settle(memlord_cuda_i_list *list, const cudaStream_t *stream,
                                       int ends) {
    uint64_t self = memlord_cuda_i_thread_id();
    memlord_cuda_i_fence *fence, *next;
    memlord_cuda_i_lock_take(&list->lock);
    for (fence = list->first; fence; fence = next) {
        int recorded;
        next = fence->next;
        if ((stream && fence->stream != *stream) || (!ends && !fence->due)) continue;
        if (fence->stream == cudaStreamPerThread && fence->thread != self) continue;
        recorded = memlord_cuda_i_fence_record(fence) == 1;
        if (recorded || ends)
            memlord_cuda_i_fence_end(list, fence, recorded ? MEMLORD_CUDA_I_RECORDED
                                                           : MEMLORD_CUDA_I_LOST);
    }
    memlord_cuda_i_lock_drop(&list->lock);
}

/* What is due, before somebody waits for a stream, or for all of them (NULL), or once it is no
   longer captured: an event that is recorded after the wait is rarely done at once. */
static void memlord_cuda_i_settle_due(const cudaStream_t *stream) {
    int i;
    if (!memlord_cuda_i_load(&memlord_cuda_i_due)) return;
    if (stream) memlord_cuda_i_list_settle(memlord_cuda_i_list_of(*stream), stream, 0);
    for (i = 0; !stream && i < MEMLORD_CUDA_I_LISTS; i++)
        memlord_cuda_i_list_settle(&memlord_cuda_i_lists[i], NULL, 0);
}

/* Whether its event is recorded, now or before. The ledger asks one fence on one thread at a time;
   only the end of its stream comes between. */
static int memlord_cuda_i_fence_settle(memlord_cuda_i_fence *fence) {
    memlord_cuda_i_list *list = memlord_cuda_i_list_of(fence->stream);
    uint64_t state = memlord_cuda_i_load_acquire(&fence->state);
    int late = 0, r = state == MEMLORD_CUDA_I_RECORDED ? 1 : -1;
    if (state != MEMLORD_CUDA_I_UNRECORDED) return r;
    memlord_cuda_i_lock_take(&list->lock);
    state = memlord_cuda_i_load(&fence->state);
    if (state == MEMLORD_CUDA_I_RECORDED) r = 1;
    if (state == MEMLORD_CUDA_I_UNRECORDED) {
        r = memlord_cuda_i_fence_record(fence);
        late = r == 1;
        if (late) memlord_cuda_i_fence_end(list, fence, MEMLORD_CUDA_I_RECORDED);
        if (r == 0 && fence->listed && !fence->due) { /* a use, whose block is freed now */
            fence->due = 1;
            memlord_cuda_i_add(&memlord_cuda_i_due, 1);
        }
    }
    memlord_cuda_i_lock_drop(&list->lock);
    if (late) memlord_cuda_i_settle_due(&fence->stream); /* a capture is over: for others as well */
    return r;
}

/* What the ledger asks: memlord_fence.done. Recording disturbs no capture, asking may. */
static int memlord_cuda_i_fence_done(void *user) {
    memlord_cuda_i_fence *fence = (memlord_cuda_i_fence *)user;
    const memlord_cuda_i_driver *d = memlord_cuda_i_driver_get();
    int mode, r;
    if (!d) return -1;
    r = memlord_cuda_i_fence_settle(fence);
    if (r <= 0) return r;
    if (memlord_cuda_i_load(&memlord_cuda_i_captures.n)) return 0;
    if (!memlord_cuda_i_enter_context(d, fence->context, &mode))
        return mode == MEMLORD_CUDA_I_NOT_PERMITTED ? 0 : -1;
    r = d->event_query(fence->event);
    memlord_cuda_i_leave_context(d, &mode);
    if (r == 0) return 1;
    if (r == MEMLORD_CUDA_I_CAPTURED_EVENT) { /* once more */
        fence->due = 1;
        memlord_cuda_i_fence_begin(fence, 0);
    }
    if (r == MEMLORD_CUDA_I_NOT_READY || r == MEMLORD_CUDA_I_NOT_PERMITTED) return 0;
    return memlord_cuda_i_is_capture(r) ? 0 : -1;
}

static void memlord_cuda_i_fence_drop(void *user) {
    memlord_cuda_i_fence_give((memlord_cuda_i_fence *)user);
}

/* A fence on what a stream was given so far. Default streams share a handle, and are told apart
   by their context, and per-thread ones by the thread. 0: no memory. */
static int memlord_cuda_i_fence_make(memlord *lord, const void *ptr, cudaStream_t stream,
                                     memlord_fence *out) {
    const memlord_cuda_i_driver *d = memlord_cuda_i_driver_get();
    memlord_cuda_i_fence *fence;
    void *context = NULL;
    stream = memlord_cuda_i_stream(stream);
    if (d) context = memlord_cuda_i_context_of(d, stream, lord, MEMLORD_KEY(ptr));
    fence = memlord_cuda_i_fence_take(context, 0);
    if (!fence) return 0;
    fence->stream = stream;
    fence->thread = memlord_cuda_i_thread_id();
    out->done = memlord_cuda_i_fence_done;
    out->user = fence;
    out->drop = memlord_cuda_i_fence_drop;
    out->queue = memlord_cuda_i_stream_key(stream);
    if (memlord_cuda_i_is_default(stream)) /* golden ratio: keeps contexts and threads apart */
        out->queue += (uint64_t)(uintptr_t)context * 0x9e3779b97f4a7c15u;
    return 1;
}

/* ---------------------------------------------------------------------- >>scopes --
   Owns the pairs of events that measure scopes, from the end of one to the reading of its time.
   Locks: times_lock, never while the driver or the ledger is called. */

enum { MEMLORD_CUDA_I_TIMES = 4096 };

typedef struct memlord_cuda_i_time {
    memlord *lord;
    uint64_t scope;
    memlord_cuda_i_fence *start, *stop;
} memlord_cuda_i_time;

static memlord_cuda_i_lock memlord_cuda_i_times_lock = MEMLORD_CUDA_I_LOCK;
static struct {
    memlord_cuda_i_u64 n; /* in use: who finds 0 takes no lock, and has missed nothing of its own */
    uint64_t turn;        /* where the next search begins, so that all have their turn */
    memlord_cuda_i_time list[MEMLORD_CUDA_I_TIMES];
} memlord_cuda_i_times;

/* An event on a stream, now; NULL: it cannot be, or not while the stream is captured. */
static memlord_cuda_i_fence *memlord_cuda_i_time_mark(memlord *lord, cudaStream_t stream) {
    const memlord_cuda_i_driver *d = memlord_cuda_i_driver_get();
    memlord_cuda_i_fence *fence;
    void *context;
    if (!d || memlord_cuda_i_load(&memlord_cuda_i_captures.n)) return NULL;
    stream = memlord_cuda_i_stream(stream);
    context = memlord_cuda_i_context_of(d, stream, lord, 0);
    fence = context ? memlord_cuda_i_fence_take(context, 1) : NULL;
    if (!fence) return NULL;
    fence->stream = stream;
    fence->thread = memlord_cuda_i_thread_id();
    if (memlord_cuda_i_fence_record(fence) == 1) {
        memlord_cuda_i_store(&fence->state, MEMLORD_CUDA_I_RECORDED);
        return fence;
    }
    memlord_cuda_i_fence_give(fence);
    return NULL;
}

/* 1: it is kept; 0: there is no room, or the ledger is not attached. Detaching takes the key off
   the seat and then everything off the list, so what it has missed finds no key here. */
static int memlord_cuda_i_time_push(const memlord_cuda_i_time *time) {
    uint64_t n;
    int kept;
    memlord_cuda_i_lock_take(&memlord_cuda_i_times_lock);
    n = memlord_cuda_i_load(&memlord_cuda_i_times.n);
    kept = n < MEMLORD_CUDA_I_TIMES && memlord_cuda_i_seat_of(time->lord);
    if (kept) {
        memlord_cuda_i_times.list[n] = *time;
        memlord_cuda_i_store(&memlord_cuda_i_times.n, n + 1);
    }
    memlord_cuda_i_lock_drop(&memlord_cuda_i_times_lock);
    return kept;
}

/* Takes one of a ledger's; what belongs to others is left where it is. */
static int memlord_cuda_i_time_pop(memlord *lord, memlord_cuda_i_time *time) {
    uint64_t n, i, at = 0;
    int found = 0;
    memlord_cuda_i_lock_take(&memlord_cuda_i_times_lock);
    n = memlord_cuda_i_load(&memlord_cuda_i_times.n);
    for (i = 0; i < n && !found; i++) {
        at = (memlord_cuda_i_times.turn + i) % n;
        found = memlord_cuda_i_times.list[at].lord == lord;
    }
    if (found) {
        *time = memlord_cuda_i_times.list[at];
        memlord_cuda_i_times.list[at] = memlord_cuda_i_times.list[n - 1];
        memlord_cuda_i_times.turn = at;
        memlord_cuda_i_store(&memlord_cuda_i_times.n, n - 1);
    }
    memlord_cuda_i_lock_drop(&memlord_cuda_i_times_lock);
    return found;
}

static void memlord_cuda_i_time_end(memlord_cuda_i_time *time) {
    memlord_cuda_i_fence_give(time->start);
    memlord_cuda_i_fence_give(time->stop);
}

/* Reads those of a ledger that are done, looking at `most`. With `last`, the others end unread. */
static void memlord_cuda_i_times_read(memlord *lord, uint64_t most, int last) {
    const memlord_cuda_i_driver *d;
    memlord_cuda_i_time time;
    uint64_t n = memlord_cuda_i_load(&memlord_cuda_i_times.n);
    if (!n && !last) return;
    d = memlord_cuda_i_driver_get();
    if (n > most || last) n = most; /* with the last, the list itself says when it is empty */
    for (; d && n && memlord_cuda_i_time_pop(lord, &time); n--) {
        int mode, done = memlord_cuda_i_fence_done(time.stop);
        float ms = 0;
        if (!done && !last && memlord_cuda_i_time_push(&time)) continue;
        if (done == 1 && memlord_cuda_i_enter_context(d, time.stop->context, &mode)) {
            if (d->event_elapsed(&ms, time.start->event, time.stop->event)) ms = 0;
            memlord_cuda_i_leave_context(d, &mode);
        }
        if (ms > 0) (void)memlord_scope_device_time(lord, time.scope, (uint64_t)((double)ms * 1e6));
        memlord_cuda_i_time_end(&time);
    }
}

/* ----------------------------------------------------------------------- >>forks --
   Owns what a forked child finds: no driver, nothing attached, no lock held. Handlers before a
   fork run in the order opposite to that they were registered in: these are registered after the
   driver is loaded, and so take the layer's locks before the driver's own handlers and mostly
   before the ledger's. Calls do so, too: a list's lock is held while an event is recorded, and
   no lock of the ledger while one of these is taken, nor the other way. Not taken are the locks of
   loading: they are held while the driver or NVML loads, which may fork itself, and a child takes
   neither. */

#if defined(_WIN32)
static void memlord_cuda_i_fork_first(void) {}
static void memlord_cuda_i_fork_locks(void) {}
#else
static void memlord_cuda_i_locks_each(void (*change)(memlord_cuda_i_lock *)) {
    int i;
    change(&memlord_cuda_i_process_lock);
    change(&memlord_cuda_i_captures_lock);
    change(&memlord_cuda_i_times_lock);
    for (i = 0; i < MEMLORD_CUDA_I_LISTS; i++) change(&memlord_cuda_i_lists[i].lock);
    change(&memlord_cuda_i_events_lock);
}
static void memlord_cuda_i_fork_before(void) {
    memlord_cuda_i_locks_each(memlord_cuda_i_lock_take);
}
static void memlord_cuda_i_fork_parent(void) {
    memlord_cuda_i_locks_each(memlord_cuda_i_lock_drop);
}
/* Callbacks of a ledger may hold a seat: without a driver they look no further. */
static void memlord_cuda_i_fork_child(void) {
    memset(&memlord_cuda_i_process, 0, sizeof memlord_cuda_i_process);
    memset(&memlord_cuda_i_captures, 0, sizeof memlord_cuda_i_captures);
    memlord_cuda_i_fork_parent();
}
/* The parent may be loading: then its lock is held for good. */
static void memlord_cuda_i_fork_absent(void) {
    memlord_cuda_i_store(&memlord_cuda_i_loaded.state, MEMLORD_CUDA_I_ABSENT);
}
static void memlord_cuda_i_fork_first(void) {
    (void)pthread_atfork(NULL, NULL, memlord_cuda_i_fork_absent);
}
static void memlord_cuda_i_fork_locks(void) {
    (void)pthread_atfork(memlord_cuda_i_fork_before, memlord_cuda_i_fork_parent,
                         memlord_cuda_i_fork_child);
}
#endif

/* -------------------------------------------------------------------- >>requests --
   Owns the way of an allocation: the real call, its device, its record, and the retry.
   Locks: seats_lock, to read a policy. */

enum {
    MEMLORD_CUDA_I_PLAIN,
    MEMLORD_CUDA_I_PITCH,
    MEMLORD_CUDA_I_3D,
    MEMLORD_CUDA_I_MANAGED,
    MEMLORD_CUDA_I_ASYNC,
    MEMLORD_CUDA_I_POOL,
    MEMLORD_CUDA_I_HOST,
    MEMLORD_CUDA_I_HOST_FLAGS
};

typedef struct memlord_cuda_i_request {
    int kind;
    unsigned flags;
    void **ptr;
    size_t *pitch;
    struct cudaPitchedPtr *pitched;
    size_t bytes; /* of a row, where there are rows */
    size_t height, depth;
    cudaMemPool_t pool;
    cudaStream_t stream;
    int clean; /* the runtime had no last error before */
    cudaError_t answer;
} memlord_cuda_i_request;

static cudaError_t memlord_cuda_i_call(const memlord_cuda_i_request *q) {
    struct cudaExtent extent;
    switch (q->kind) {
    case MEMLORD_CUDA_I_PLAIN: return MEMLORD_CUDA_I_REAL(cudaMalloc)(q->ptr, q->bytes);
    case MEMLORD_CUDA_I_PITCH:
        return MEMLORD_CUDA_I_REAL(cudaMallocPitch)(q->ptr, q->pitch, q->bytes, q->height);
    case MEMLORD_CUDA_I_3D:
        extent.width = q->bytes;
        extent.height = q->height;
        extent.depth = q->depth;
        return MEMLORD_CUDA_I_REAL(cudaMalloc3D)(q->pitched, extent);
    case MEMLORD_CUDA_I_MANAGED:
        return MEMLORD_CUDA_I_REAL(cudaMallocManaged)(q->ptr, q->bytes, q->flags);
    case MEMLORD_CUDA_I_ASYNC:
        return MEMLORD_CUDA_I_REAL(cudaMallocAsync)(q->ptr, q->bytes, q->stream);
    case MEMLORD_CUDA_I_POOL:
        return MEMLORD_CUDA_I_REAL(cudaMallocFromPoolAsync)(q->ptr, q->bytes, q->pool, q->stream);
    case MEMLORD_CUDA_I_HOST: return MEMLORD_CUDA_I_REAL(cudaMallocHost)(q->ptr, q->bytes);
    default: return MEMLORD_CUDA_I_REAL(cudaHostAlloc)(q->ptr, q->bytes, q->flags);
    }
}

/* What came out of a call that succeeded. */
static void *memlord_cuda_i_made(const memlord_cuda_i_request *q) {
    if (q->kind == MEMLORD_CUDA_I_3D) return q->pitched ? q->pitched->ptr : NULL;
    return q->ptr ? *q->ptr : NULL;
}

static uint64_t memlord_cuda_i_size(const memlord_cuda_i_request *q) {
    if (q->kind == MEMLORD_CUDA_I_PITCH) return (uint64_t)*q->pitch * q->height;
    if (q->kind == MEMLORD_CUDA_I_3D) return (uint64_t)q->pitched->pitch * q->height * q->depth;
    return q->bytes;
}

/* The current device as the runtime has it, when there is no driver to ask. */
static int memlord_cuda_i_device_runtime(void) {
    int clean = cudaPeekAtLastError() == cudaSuccess, device = 0;
    if (cudaGetDevice(&device) == cudaSuccess) return device;
    if (clean) (void)cudaGetLastError();
    return 0;
}

static int memlord_cuda_i_device_current(const memlord_cuda_i_driver *d) {
    int handle;
    return d->context_device(&handle) ? memlord_cuda_i_device_runtime()
                                      : memlord_cuda_i_ordinal(d, handle);
}

static int memlord_cuda_i_device_stream(const memlord_cuda_i_driver *d, cudaStream_t stream) {
    void *context = NULL;
    int mode, device;
    if (memlord_cuda_i_is_default(stream) || d->stream_context(stream, &context) ||
        !memlord_cuda_i_enter_context(d, context, &mode))
        return memlord_cuda_i_device_current(d);
    device = memlord_cuda_i_device_current(d);
    memlord_cuda_i_leave_context(d, &mode);
    return device;
}

/* Where a request is, or was, served. A pool may be another device's than its stream: what came out
   of it is known to the driver. One of the host's memory is no device's, and counted as its
   stream's, since a free does not say which it is. */
static memlord_device memlord_cuda_i_where(const memlord_cuda_i_request *q, const void *made) {
    const memlord_cuda_i_driver *d;
    int ordinal = 0;
    if (q->kind == MEMLORD_CUDA_I_HOST || q->kind == MEMLORD_CUDA_I_HOST_FLAGS)
        return memlord_device_make(MEMLORD_DEVICE_PINNED, 0);
    d = memlord_cuda_i_driver_get();
    if (!d) return memlord_device_cuda(memlord_cuda_i_device_runtime());
    if (d->devices == 1) return memlord_device_cuda(0);
    if (q->kind == MEMLORD_CUDA_I_POOL && made &&
        !d->pointer_attribute(&ordinal, MEMLORD_CUDA_I_POINTER_DEVICE, MEMLORD_KEY(made)) &&
        ordinal >= 0)
        return memlord_device_cuda(ordinal);
    if (q->kind == MEMLORD_CUDA_I_POOL || q->kind == MEMLORD_CUDA_I_ASYNC)
        return memlord_device_cuda(memlord_cuda_i_device_stream(d, q->stream));
    return memlord_device_cuda(memlord_cuda_i_device_current(d));
}

/* "stream 0x7f12", "default stream": the tag of FLAG_TAG_STREAMS. */
static int memlord_cuda_i_tag_stream(memlord *lord, const memlord_cuda_i_request *q,
                                     uint64_t flags) {
    char text[32] = "default stream";
    uintptr_t v = (uintptr_t)q->stream;
    int i = 9, shift = (int)(sizeof v * 8) - 4;
    if (!(flags & MEMLORD_CUDA_FLAG_TAG_STREAMS)) return 0;
    if (q->kind != MEMLORD_CUDA_I_ASYNC && q->kind != MEMLORD_CUDA_I_POOL) return 0;
    if (!memlord_cuda_i_is_default(q->stream)) {
        memcpy(text, "stream 0x", 9);
        while (!(v >> shift)) shift -= 4;
        for (; shift >= 0; shift -= 4) text[i++] = "0123456789abcdef"[(v >> shift) & 15];
        text[i] = 0;
    }
    return memlord_tag_begin(lord, text) == MEMLORD_OK;
}

/* What was recorded may have to be in `reserved`. */
static void memlord_cuda_i_recorded(memlord *lord, const memlord_cuda_i_request *q,
                                    memlord_device device) {
    if (q->kind == MEMLORD_CUDA_I_ASYNC || q->kind == MEMLORD_CUDA_I_POOL)
        memlord_cuda_i_pool_look(lord, 0);
    else if (device.type == MEMLORD_DEVICE_CUDA)
        memlord_cuda_i_pool_beside(lord, device, (int64_t)memlord_cuda_i_size(q));
}

static cudaError_t memlord_cuda_i_alloc_plain(memlord *lord, memlord_cuda_i_request *q,
                                              uint64_t flags, const memlord_site *site) {
    cudaError_t r = memlord_cuda_i_call(q);
    void *made = r == cudaSuccess ? memlord_cuda_i_made(q) : NULL;
    memlord_device device;
    int tagged, held = 0;
    if (!made) return r;
    device = memlord_cuda_i_where(q, made);
    if (q->kind == MEMLORD_CUDA_I_ASYNC || q->kind == MEMLORD_CUDA_I_POOL)
        held = memlord_cuda_i_capture_hold(flags, q->stream);
    tagged = memlord_cuda_i_tag_stream(lord, q, flags);
    (void)memlord_alloc(lord, device, MEMLORD_KEY(made), memlord_cuda_i_size(q), site);
    if (tagged) (void)memlord_tag_end(lord);
    memlord_cuda_i_capture_let(held, q->stream);
    memlord_cuda_i_recorded(lord, q, device);
    return r;
}

/* memlord_try_fn. Out of memory is no sticky error: it is taken out of the slot, if that was clean,
   so that neither the callbacks of a collection nor the host, after a success, see it. */
static int memlord_cuda_i_try(void *user, uint64_t bytes, uint64_t *storage) {
    memlord_cuda_i_request *q = (memlord_cuda_i_request *)user;
    (void)bytes;
    q->answer = memlord_cuda_i_call(q);
    if (q->answer == cudaSuccess) *storage = MEMLORD_KEY(memlord_cuda_i_made(q));
    if (q->answer == cudaErrorMemoryAllocation && q->clean) (void)cudaGetLastError();
    return q->answer == cudaSuccess ? 0 : q->answer == cudaErrorMemoryAllocation ? 1 : -1;
}

/* Before the call the runtime is asked which device is current, as the driver may still have the
   one before: until CUDA 12 cudaSetDevice only says what the next call is to work on. */
static memlord_device memlord_cuda_i_whereto(const memlord_cuda_i_request *q) {
    const memlord_cuda_i_driver *d = memlord_cuda_i_driver_get();
    int stream = q->kind == MEMLORD_CUDA_I_POOL || q->kind == MEMLORD_CUDA_I_ASYNC;
    if (q->kind == MEMLORD_CUDA_I_HOST || q->kind == MEMLORD_CUDA_I_HOST_FLAGS ||
        (stream && !memlord_cuda_i_is_default(q->stream)) || (d && d->devices == 1))
        return memlord_cuda_i_where(q, NULL);
    return memlord_device_cuda(memlord_cuda_i_device_runtime());
}

/* Rows get longer by the pitch, which is known only afterwards; and a pool's device is. */
static void memlord_cuda_i_settle(memlord *lord, const memlord_cuda_i_request *q,
                                  memlord_device device, uint64_t asked, uint64_t storage,
                                  const memlord_site *site) {
    memlord_device where = memlord_cuda_i_where(q, memlord_cuda_i_made(q));
    uint64_t bytes = memlord_cuda_i_size(q);
    if (where.index != device.index) {
        (void)memlord_free(lord, device, storage, site);
        (void)memlord_alloc(lord, where, storage, bytes, site);
    } else if (bytes != asked) {
        (void)memlord_realloc(lord, device, storage, storage, bytes, site);
    }
    memlord_cuda_i_recorded(lord, q, where);
}

static cudaError_t memlord_cuda_i_alloc_retry(memlord *lord, memlord_cuda_i_request *q,
                                              const memlord_retry *policy, uint64_t flags,
                                              const memlord_site *site) {
    memlord_device device = memlord_cuda_i_whereto(q);
    uint64_t storage = 0, asked = (uint64_t)q->bytes * q->height * q->depth;
    memlord_result r;
    int tagged;
    /* what asks for nothing, or for more than there is address space, the runtime may answer; and
       what is captured allocates nothing yet, but a collection that waits would end the capture */
    if (!asked || asked >> 48 || asked / q->height / q->depth != q->bytes)
        return memlord_cuda_i_alloc_plain(lord, q, flags, site);
    if ((flags & MEMLORD_CUDA_FLAG_SYNC) &&
        (q->kind == MEMLORD_CUDA_I_ASYNC || q->kind == MEMLORD_CUDA_I_POOL) &&
        memlord_cuda_i_capturing(q->stream) == 1)
        return memlord_cuda_i_alloc_plain(lord, q, flags, site);
    q->clean = cudaPeekAtLastError() == cudaSuccess;
    q->answer = cudaErrorMemoryAllocation;
    tagged = memlord_cuda_i_tag_stream(lord, q, flags);
    r = memlord_alloc_retry(lord, device, asked, memlord_cuda_i_try, q, policy, &storage, site);
    if (r == MEMLORD_OK) memlord_cuda_i_settle(lord, q, device, asked, storage, site);
    if (tagged) (void)memlord_tag_end(lord);
    if (r == MEMLORD_OK || r == MEMLORD_E_LIMIT) return q->answer;
    if (r == MEMLORD_E_OOM && q->answer != cudaErrorMemoryAllocation) return q->answer;
    /* once more, for the answer and the last error the host expects; and where the ledger has no
       room for a request, as if nothing had been asked of it */
    return memlord_cuda_i_alloc_plain(lord, q, flags, site);
}

/* The policy of a ledger's seat; NULL: the ledger's own. */
static const memlord_retry *memlord_cuda_i_policy(memlord *lord, memlord_retry *copy) {
    memlord_cuda_i_seat *seat;
    const memlord_retry *policy = NULL;
    memlord_cuda_i_lock_take(&memlord_cuda_i_process_lock);
    seat = memlord_cuda_i_seat_find(lord);
    if (seat && seat->has_retry) {
        *copy = seat->retry;
        policy = copy;
    }
    memlord_cuda_i_lock_drop(&memlord_cuda_i_process_lock);
    return policy;
}

static cudaError_t memlord_cuda_i_alloc(memlord *lord, memlord_cuda_i_request *q,
                                        const memlord_site *site) {
    memlord_retry copy;
    uint64_t flags;
    if (!lord) return memlord_cuda_i_call(q);
    flags = memlord_cuda_i_flags_of(lord);
    if (!(flags & MEMLORD_CUDA_FLAG_RETRY)) return memlord_cuda_i_alloc_plain(lord, q, flags, site);
    return memlord_cuda_i_alloc_retry(lord, q, memlord_cuda_i_policy(lord, &copy), flags, site);
}

static memlord_cuda_i_request memlord_cuda_i_request_of(int kind, void **ptr, size_t bytes) {
    memlord_cuda_i_request q;
    memset(&q, 0, sizeof q);
    q.kind = kind;
    q.ptr = ptr;
    q.bytes = bytes;
    q.height = q.depth = 1;
    return q;
}

/* ----------------------------------------------------------------------- >>frees --
   Owns the way of a free: off the map before the real one, as another thread may get the address
   while that runs; credited when it succeeded, back as it was when it failed. Locks: none. */

typedef struct memlord_cuda_i_ending {
    memlord_realloc_token token;
    int begun;
    uint64_t key;
    memlord_cuda_i_u64 *handed; /* its place below; NULL: it was not freed on a stream before */
} memlord_cuda_i_ending;

/* What was freed on a stream and is to be released: by then the ledger may have it no more. One
   that has lost its place here to another is unknown then. */
enum { MEMLORD_CUDA_I_HANDED_BITS = 12 };
static memlord_cuda_i_u64 memlord_cuda_i_handed[1 << MEMLORD_CUDA_I_HANDED_BITS];

static memlord_cuda_i_u64 *memlord_cuda_i_handed_at(const void *ptr) {
    uint64_t hash = MEMLORD_KEY(ptr) * 0x9e3779b97f4a7c15u;
    return &memlord_cuda_i_handed[hash >> (64 - MEMLORD_CUDA_I_HANDED_BITS)];
}

/* What pends is the ledger's already, what was freed on a stream it has had, and what it does not
   know it has counted. */
static void memlord_cuda_i_free_begin(memlord *lord, int type, const void *ptr,
                                      memlord_cuda_i_ending *end, const memlord_site *site) {
    memlord_device device = memlord_device_make(type, 0);
    memlord_block_info info;
    end->begun = 0;
    end->key = MEMLORD_KEY(ptr);
    end->handed = NULL;
    if (!lord || !ptr) return;
    if (memlord_cuda_i_load(memlord_cuda_i_handed_at(ptr)) == end->key) {
        end->handed = memlord_cuda_i_handed_at(ptr);
        memlord_cuda_i_store(end->handed, 0);
        if (memlord_block_find(lord, device, end->key, &info) || info.pending) return;
    }
    end->begun = memlord_free_begin(lord, device, end->key, &end->token, site) == MEMLORD_OK;
}

static cudaError_t memlord_cuda_i_free_end(memlord *lord, memlord_cuda_i_ending *end,
                                           cudaError_t answer, const memlord_site *site) {
    if (end->handed && answer != cudaSuccess) memlord_cuda_i_store(end->handed, end->key);
    if (end->begun) (void)memlord_free_end(lord, &end->token, answer != cudaSuccess, site);
    return answer;
}

/* ---------------------------------------------------------------------- >>public --
   The functions of the API. */

#ifdef __cplusplus
extern "C" {
#endif

/* -- attach -- */

/* An integrated GPU's memory is the cpu's, so that what is known of that, containers' limits
   included, holds for it. Reservations in the way leave it a place of its own. */
static void memlord_cuda_i_share(memlord_cuda_i_seat *seat, const memlord_cuda_i_driver *d,
                                 int on) {
    int i;
    for (i = 0; i < d->known; i++) {
        memlord_device device = memlord_device_cuda(i);
        if (on && d->integrated[i])
            seat->shared[i] =
                memlord_device_share(seat->lord, device, memlord_device_cpu()) == MEMLORD_OK;
        if (!on && seat->shared[i]) {
            (void)memlord_device_share(seat->lord, device, device);
            seat->shared[i] = 0;
        }
        if (!on) memlord_cuda_i_store(&seat->pooled[i], 0);
    }
}

/* Takes everything off the ledger that a seat has put there. */
static void memlord_cuda_i_unhook(memlord_cuda_i_seat *seat, const memlord_cuda_i_driver *d) {
    uint64_t flags = memlord_cuda_i_load(&seat->flags);
    (void)memlord_gc_callback_remove(seat->lord, MEMLORD_DEVICE_CUDA, memlord_cuda_i_collect, seat);
    if (!(flags & MEMLORD_CUDA_FLAG_NO_CAPACITY))
        (void)memlord_capacity_source(seat->lord, MEMLORD_DEVICE_CUDA, NULL, NULL);
    memlord_cuda_i_share(seat, d, 0);
}

static memlord_result memlord_cuda_i_hook(memlord_cuda_i_seat *seat,
                                          const memlord_cuda_i_driver *d) {
    uint64_t flags = memlord_cuda_i_load(&seat->flags);
    memlord_result r = MEMLORD_OK;
    if (!(flags & MEMLORD_CUDA_FLAG_NO_CAPACITY)) {
        memlord_cuda_i_share(seat, d, 1);
        r = memlord_capacity_source(seat->lord, MEMLORD_DEVICE_CUDA, memlord_cuda_i_capacity, seat);
    }
    if (r == MEMLORD_OK && !(flags & MEMLORD_CUDA_FLAG_NO_TRIM))
        r = memlord_gc_callback_quiet(seat->lord, MEMLORD_DEVICE_CUDA, memlord_cuda_i_collect,
                                      seat);
    return r;
}

MEMLORD_API memlord_result memlord_cuda_attach(memlord *lord, const memlord_cuda_desc *desc) {
    const memlord_cuda_i_driver *d;
    memlord_cuda_i_seat *seat;
    memlord_cuda_desc plain;
    memlord_result r;
    int was = MEMLORD_CUDA_I_EMPTY;
    memset(&plain, 0, sizeof plain);
    if (!desc) desc = &plain;
    if (!lord) return MEMLORD_OK;
    if (desc->retry && memlord_retry_check(desc->retry)) return MEMLORD_E_INVALID;
    d = memlord_cuda_i_driver_get();
    if (!d) return MEMLORD_E_UNSUPPORTED;
    seat = memlord_cuda_i_seat_claim(lord, &was);
    if (!seat) return MEMLORD_E_STATE;
    if (was == MEMLORD_CUDA_I_TAKEN) memlord_cuda_i_unhook(seat, d);
    (void)memlord_cuda_i_seat_fill(seat, was, d, desc);
    r = memlord_cuda_i_hook(seat, d);
    if (r) {
        memlord_cuda_i_unhook(seat, d);
        if (memlord_cuda_i_seat_fill(seat, MEMLORD_CUDA_I_TAKEN, d, NULL))
            memlord_cuda_events_release();
    }
    memlord_cuda_i_seat_state(seat, r ? MEMLORD_CUDA_I_EMPTY : MEMLORD_CUDA_I_TAKEN);
    return r;
}

MEMLORD_API memlord_result memlord_cuda_detach(memlord *lord) {
    const memlord_cuda_i_driver *d = memlord_cuda_i_driver_get();
    memlord_cuda_i_seat *seat;
    int was = MEMLORD_CUDA_I_EMPTY;
    if (!lord) return MEMLORD_OK;
    if (!d) return MEMLORD_E_UNKNOWN;
    seat = memlord_cuda_i_seat_claim(lord, &was);
    if (!seat) return MEMLORD_E_STATE;
    if (was == MEMLORD_CUDA_I_TAKEN) {
        int last;
        memlord_cuda_i_unhook(seat, d);
        last = memlord_cuda_i_seat_fill(seat, was, d, NULL);
        memlord_cuda_i_times_read(lord, UINT64_MAX, 1);
        if (last) memlord_cuda_events_release();
    }
    memlord_cuda_i_seat_state(seat, MEMLORD_CUDA_I_EMPTY);
    return was == MEMLORD_CUDA_I_TAKEN ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MEMLORD_API int memlord_cuda_attached(memlord *lord) {
    memlord_cuda_i_seat *seat;
    int attached;
    if (!lord) return 0;
    memlord_cuda_i_lock_take(&memlord_cuda_i_process_lock);
    seat = memlord_cuda_i_seat_find(lord);
    attached = seat && seat->state == MEMLORD_CUDA_I_TAKEN;
    memlord_cuda_i_lock_drop(&memlord_cuda_i_process_lock);
    return attached;
}

/* -- pools -- */

MEMLORD_API memlord_result memlord_cuda_pool_get(memlord *lord, int device,
                                                 memlord_cuda_pool *out) {
    const memlord_cuda_i_driver *d;
    int mode, read;
    if (out) memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!out) return MEMLORD_E_INVALID;
    d = memlord_cuda_i_driver_get();
    if (!d) return MEMLORD_E_UNSUPPORTED;
    if (device < 0 || device >= d->known) return MEMLORD_E_DEVICE;
    if (!d->pools[device]) return MEMLORD_E_UNSUPPORTED;
    if (!memlord_cuda_i_active(d, device)) return MEMLORD_E_STATE;
    if (!memlord_cuda_i_enter_device(d, device, &mode)) return MEMLORD_E_UNKNOWN;
    read = memlord_cuda_i_pool_read(d, device, out);
    memlord_cuda_i_leave_device(d, device, &mode);
    return read ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MEMLORD_API memlord_result memlord_cuda_pool_refresh(memlord *lord, int device) {
    memlord_cuda_pool pool;
    memlord_result r = memlord_cuda_pool_get(lord, device, &pool);
    if (r) return r;
    return memlord_reserved_set(lord, memlord_device_cuda(device),
                                memlord_cuda_i_pool_reserved(lord, device, &pool), UINT64_MAX);
}

/* -- wrapped functions: allocations -- */

MEMLORD_API cudaError_t memlord_cuda_malloc(memlord *lord, void **ptr, size_t bytes,
                                            const memlord_site *site) {
    memlord_cuda_i_request q = memlord_cuda_i_request_of(MEMLORD_CUDA_I_PLAIN, ptr, bytes);
    return memlord_cuda_i_alloc(lord, &q, site);
}

MEMLORD_API cudaError_t memlord_cuda_malloc_retry(memlord *lord, void **ptr, size_t bytes,
                                                  const memlord_retry *policy,
                                                  const memlord_site *site) {
    memlord_cuda_i_request q = memlord_cuda_i_request_of(MEMLORD_CUDA_I_PLAIN, ptr, bytes);
    if (!lord) return memlord_cuda_i_call(&q);
    return memlord_cuda_i_alloc_retry(lord, &q, policy, 0, site);
}

MEMLORD_API cudaError_t memlord_cuda_malloc_pitch(memlord *lord, void **ptr, size_t *pitch,
                                                  size_t width, size_t height,
                                                  const memlord_site *site) {
    memlord_cuda_i_request q = memlord_cuda_i_request_of(MEMLORD_CUDA_I_PITCH, ptr, width);
    q.pitch = pitch;
    q.height = height;
    return memlord_cuda_i_alloc(lord, &q, site);
}

MEMLORD_API cudaError_t memlord_cuda_malloc_3d(memlord *lord, struct cudaPitchedPtr *ptr,
                                               struct cudaExtent extent,
                                               const memlord_site *site) {
    memlord_cuda_i_request q = memlord_cuda_i_request_of(MEMLORD_CUDA_I_3D, NULL, extent.width);
    q.pitched = ptr;
    q.height = extent.height;
    q.depth = extent.depth;
    return memlord_cuda_i_alloc(lord, &q, site);
}

MEMLORD_API cudaError_t memlord_cuda_malloc_managed(memlord *lord, void **ptr, size_t bytes,
                                                    unsigned int flags, const memlord_site *site) {
    memlord_cuda_i_request q = memlord_cuda_i_request_of(MEMLORD_CUDA_I_MANAGED, ptr, bytes);
    q.flags = flags;
    return memlord_cuda_i_alloc(lord, &q, site);
}

MEMLORD_API cudaError_t memlord_cuda_malloc_async(memlord *lord, void **ptr, size_t bytes,
                                                  cudaStream_t stream, const memlord_site *site) {
    memlord_cuda_i_request q = memlord_cuda_i_request_of(MEMLORD_CUDA_I_ASYNC, ptr, bytes);
    q.stream = stream;
    return memlord_cuda_i_alloc(lord, &q, site);
}

MEMLORD_API cudaError_t memlord_cuda_malloc_from_pool_async(memlord *lord, void **ptr,
                                                            size_t bytes, cudaMemPool_t pool,
                                                            cudaStream_t stream,
                                                            const memlord_site *site) {
    memlord_cuda_i_request q = memlord_cuda_i_request_of(MEMLORD_CUDA_I_POOL, ptr, bytes);
    q.pool = pool;
    q.stream = stream;
    return memlord_cuda_i_alloc(lord, &q, site);
}

MEMLORD_API cudaError_t memlord_cuda_malloc_host(memlord *lord, void **ptr, size_t bytes,
                                                 const memlord_site *site) {
    memlord_cuda_i_request q = memlord_cuda_i_request_of(MEMLORD_CUDA_I_HOST, ptr, bytes);
    return memlord_cuda_i_alloc(lord, &q, site);
}

MEMLORD_API cudaError_t memlord_cuda_host_alloc(memlord *lord, void **ptr, size_t bytes,
                                                unsigned int flags, const memlord_site *site) {
    memlord_cuda_i_request q = memlord_cuda_i_request_of(MEMLORD_CUDA_I_HOST_FLAGS, ptr, bytes);
    q.flags = flags;
    return memlord_cuda_i_alloc(lord, &q, site);
}

MEMLORD_API cudaError_t memlord_cuda_host_register(memlord *lord, void *ptr, size_t bytes,
                                                   unsigned int flags, const memlord_site *site) {
    cudaError_t r = MEMLORD_CUDA_I_REAL(cudaHostRegister)(ptr, bytes, flags);
    if (r == cudaSuccess && ptr)
        (void)memlord_alloc(lord, memlord_device_make(MEMLORD_DEVICE_PINNED, 0), MEMLORD_KEY(ptr),
                            bytes, site);
    return r;
}

/* -- wrapped functions: frees -- */

MEMLORD_API cudaError_t memlord_cuda_free(memlord *lord, void *ptr, const memlord_site *site) {
    memlord_cuda_i_ending end;
    memlord_block_info block;
    cudaError_t r;
    memset(&block, 0, sizeof block);
    if (ptr && memlord_cuda_i_seat_of(lord))
        (void)memlord_block_find(lord, memlord_device_cuda(0), MEMLORD_KEY(ptr), &block);
    memlord_cuda_i_free_begin(lord, MEMLORD_DEVICE_CUDA, ptr, &end, site);
    r = memlord_cuda_i_free_end(lord, &end, MEMLORD_CUDA_I_REAL(cudaFree)(ptr), site);
    if (r == cudaSuccess)
        memlord_cuda_i_pool_beside(lord, block.device, -(int64_t)block.bytes);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_free_async(memlord *lord, void *ptr, cudaStream_t stream,
                                                const memlord_site *site) {
    memlord_cuda_i_ending end;
    int held = memlord_cuda_i_capture_hold(memlord_cuda_i_flags_of(lord), stream);
    cudaError_t r;
    memlord_cuda_i_free_begin(lord, MEMLORD_DEVICE_CUDA, ptr, &end, site);
    r = memlord_cuda_i_free_end(lord, &end, MEMLORD_CUDA_I_REAL(cudaFreeAsync)(ptr, stream), site);
    memlord_cuda_i_capture_let(held, stream);
    memlord_cuda_i_pool_look(lord, 0);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_free_host(memlord *lord, void *ptr,
                                               const memlord_site *site) {
    memlord_cuda_i_ending end;
    memlord_cuda_i_free_begin(lord, MEMLORD_DEVICE_PINNED, ptr, &end, site);
    return memlord_cuda_i_free_end(lord, &end, MEMLORD_CUDA_I_REAL(cudaFreeHost)(ptr), site);
}

MEMLORD_API cudaError_t memlord_cuda_host_unregister(memlord *lord, void *ptr,
                                                     const memlord_site *site) {
    memlord_cuda_i_ending end;
    memlord_cuda_i_free_begin(lord, MEMLORD_DEVICE_PINNED, ptr, &end, site);
    return memlord_cuda_i_free_end(lord, &end, MEMLORD_CUDA_I_REAL(cudaHostUnregister)(ptr), site);
}

/* -- wrapped functions: streams -- */

static cudaError_t memlord_cuda_i_synchronized(memlord *lord, cudaError_t answer) {
    (void)memlord_retire(lord, memlord_device_make(MEMLORD_DEVICE_CUDA, MEMLORD_ANY));
    (void)memlord_retire(lord, memlord_device_make(MEMLORD_DEVICE_PINNED, MEMLORD_ANY));
    if (lord) memlord_cuda_i_times_read(lord, UINT64_MAX, 0);
    memlord_cuda_i_pool_look(lord, 1);
    return answer;
}

MEMLORD_API cudaError_t memlord_cuda_stream_synchronize(memlord *lord, cudaStream_t stream,
                                                        const memlord_site *site) {
    cudaStream_t own = memlord_cuda_i_stream(stream);
    (void)site;
    if (lord) memlord_cuda_i_settle_due(&own);
    return memlord_cuda_i_synchronized(lord, MEMLORD_CUDA_I_REAL(cudaStreamSynchronize)(stream));
}

MEMLORD_API cudaError_t memlord_cuda_event_synchronize(memlord *lord, cudaEvent_t event,
                                                       const memlord_site *site) {
    (void)site;
    return memlord_cuda_i_synchronized(lord, MEMLORD_CUDA_I_REAL(cudaEventSynchronize)(event));
}

MEMLORD_API cudaError_t memlord_cuda_device_synchronize(memlord *lord, const memlord_site *site) {
    (void)site;
    if (lord) memlord_cuda_i_settle_due(NULL);
    return memlord_cuda_i_synchronized(lord, MEMLORD_CUDA_I_REAL(cudaDeviceSynchronize)());
}

/* Counted before the real one: a poll on another thread must not come between. */
MEMLORD_API cudaError_t memlord_cuda_stream_begin_capture(memlord *lord, cudaStream_t stream,
                                                          enum cudaStreamCaptureMode mode,
                                                          const memlord_site *site) {
    uint64_t key = memlord_cuda_i_stream_key(memlord_cuda_i_stream(stream));
    int counted = memlord_cuda_i_capture_add(key);
    cudaError_t r = MEMLORD_CUDA_I_REAL(cudaStreamBeginCapture)(stream, mode);
    (void)lord, (void)site;
    if (r != cudaSuccess && counted) memlord_cuda_i_capture_drop(key);
    return r;
}

#if CUDART_VERSION >= 12030
MEMLORD_API cudaError_t memlord_cuda_stream_begin_capture_to_graph(
    memlord *lord, cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *after,
    const cudaGraphEdgeData *edges, size_t n, enum cudaStreamCaptureMode mode,
    const memlord_site *site) {
    uint64_t key = memlord_cuda_i_stream_key(memlord_cuda_i_stream(stream));
    int counted = memlord_cuda_i_capture_add(key);
    cudaError_t r = MEMLORD_CUDA_I_REAL(cudaStreamBeginCaptureToGraph)(stream, graph, after, edges,
                                                                       n, mode);
    (void)lord, (void)site;
    if (r != cudaSuccess && counted) memlord_cuda_i_capture_drop(key);
    return r;
}
#endif

/* An error may have ended the capture, or not: the stream knows. */
MEMLORD_API cudaError_t memlord_cuda_stream_end_capture(memlord *lord, cudaStream_t stream,
                                                        cudaGraph_t *graph,
                                                        const memlord_site *site) {
    int was = memlord_cuda_i_load(&memlord_cuda_i_captures.n) && memlord_cuda_i_capturing(stream);
    cudaError_t r = MEMLORD_CUDA_I_REAL(cudaStreamEndCapture)(stream, graph);
    (void)lord, (void)site;
    stream = memlord_cuda_i_stream(stream);
    if (r == cudaSuccess || (was && memlord_cuda_i_capturing(stream) != 1))
        memlord_cuda_i_capture_drop(memlord_cuda_i_stream_key(stream));
    memlord_cuda_i_settle_due(&stream);
    return r;
}

/* A capture that was under way ends with its stream. */
MEMLORD_API cudaError_t memlord_cuda_stream_destroy(memlord *lord, cudaStream_t stream,
                                                    const memlord_site *site) {
    cudaError_t r;
    (void)lord, (void)site;
    if (!memlord_cuda_i_is_default(stream))
        memlord_cuda_i_list_settle(memlord_cuda_i_list_of(stream), &stream, 1);
    r = MEMLORD_CUDA_I_REAL(cudaStreamDestroy)(stream);
    if (r == cudaSuccess) memlord_cuda_i_capture_drop(memlord_cuda_i_stream_key(stream));
    return r;
}

/* -- stream-ordered frees -- */

/* What streams use is the device's, or page-locked memory they copy from or to. */
static memlord_device memlord_cuda_i_device_of(memlord *lord, const void *ptr) {
    const memlord_device pinned = memlord_device_make(MEMLORD_DEVICE_PINNED, 0);
    memlord_block_info info;
    return memlord_block_find(lord, pinned, MEMLORD_KEY(ptr), &info) == MEMLORD_OK
               ? pinned
               : memlord_device_cuda(0);
}

MEMLORD_API memlord_result memlord_cuda_free_on_stream(memlord *lord, const void *ptr,
                                                       cudaStream_t stream,
                                                       const memlord_site *site) {
    memlord_fence fence;
    memlord_device device;
    memlord_result r = MEMLORD_E_NOMEM;
    if (!lord || !ptr) return MEMLORD_OK;
    device = memlord_cuda_i_device_of(lord, ptr);
    if (memlord_cuda_i_fence_make(lord, ptr, stream, &fence)) {
        memlord_cuda_i_fence *own = (memlord_cuda_i_fence *)fence.user;
        /* now, and not in the ledger's first question, which a deferring one asks later */
        memlord_cuda_i_fence_begin(own, 1);
        r = memlord_free_deferred(lord, device, MEMLORD_KEY(ptr), fence, site);
        if (r) memlord_cuda_i_fence_give(own);
    }
    if (r == MEMLORD_OK || r == MEMLORD_E_NOMEM)
        memlord_cuda_i_store(memlord_cuda_i_handed_at(ptr), MEMLORD_KEY(ptr));
    return r == MEMLORD_E_NOMEM ? memlord_free(lord, device, MEMLORD_KEY(ptr), site) : r;
}

MEMLORD_API memlord_result memlord_cuda_record_use(memlord *lord, const void *ptr,
                                                   cudaStream_t stream) {
    memlord_fence fence;
    memlord_cuda_i_fence *own;
    memlord_result r;
    if (!lord || !ptr) return MEMLORD_OK;
    if (!memlord_cuda_i_fence_make(lord, ptr, stream, &fence)) return MEMLORD_E_NOMEM;
    own = (memlord_cuda_i_fence *)fence.user;
    memlord_cuda_i_fence_begin(own, own->stream == cudaStreamPerThread);
    r = memlord_block_use(lord, memlord_cuda_i_device_of(lord, ptr), MEMLORD_KEY(ptr), fence);
    if (r) memlord_cuda_i_fence_give(own);
    return r;
}

MEMLORD_API void memlord_cuda_events_release(void) {
    memlord_cuda_i_fence *fence;
    int i;
    do {
        fence = NULL;
        memlord_cuda_i_lock_take(&memlord_cuda_i_events_lock);
        for (i = 0; i < MEMLORD_CUDA_I_BINS && !fence; i++) {
            memlord_cuda_i_bin *bin = &memlord_cuda_i_events.bins[i];
            fence = bin->first;
            if (!fence) continue;
            bin->first = fence->next;
            bin->n--;
        }
        memlord_cuda_i_lock_drop(&memlord_cuda_i_events_lock);
        if (fence) {
            memlord_cuda_i_event_end(fence->context, fence->event);
            fence->event = NULL;
            memlord_cuda_i_fence_give(fence);
        }
    } while (fence);
}

/* -- scopes -- */

MEMLORD_API memlord_result memlord_cuda_scope_begin(memlord *lord, memlord_cuda_scope *scope,
                                                    const char *name, cudaStream_t stream) {
    memlord_result r;
    if (scope) memset(scope, 0, sizeof *scope);
    if (!lord) return MEMLORD_OK;
    if (!scope) return MEMLORD_E_INVALID;
    r = memlord_scope_begin(lord, name);
    if (r) return r;
    memlord_cuda_i_nvtx_push(name);
    scope->begun = 1;
    scope->stream = stream;
    memlord_cuda_i_times_read(lord, 8, 0);
    if (!(memlord_cuda_i_flags_of(lord) & MEMLORD_CUDA_FLAG_TIME_SCOPES)) return MEMLORD_OK;
    scope->id = memlord_scope_current(lord);
    scope->start = memlord_cuda_i_time_mark(lord, stream);
    return MEMLORD_OK;
}

MEMLORD_API memlord_result memlord_cuda_scope_end(memlord *lord, memlord_cuda_scope *scope) {
    memlord_cuda_i_time time;
    if (!lord) return MEMLORD_OK;
    if (!scope) return MEMLORD_E_INVALID;
    if (!scope->begun) return MEMLORD_E_STATE;
    scope->begun = 0;
    memlord_cuda_i_nvtx_end();
    time.lord = lord;
    time.scope = scope->id;
    time.start = (memlord_cuda_i_fence *)scope->start;
    if (time.start) {
        time.stop = memlord_cuda_i_time_mark(lord, scope->stream);
        if (!time.stop)
            memlord_cuda_i_fence_give(time.start);
        else if (!memlord_cuda_i_time_push(&time))
            memlord_cuda_i_time_end(&time);
    }
    memlord_cuda_i_times_read(lord, 8, 0);
    return memlord_scope_end(lord);
}

MEMLORD_API memlord_result memlord_cuda_checkpoint(memlord *lord, const char *name) {
    memlord_result r = memlord_checkpoint(lord, name);
    if (r == MEMLORD_OK && lord)
        memlord_cuda_i_nvtx_mark(name, memlord_allocated(lord, memlord_device_all()));
    return r;
}

/* ------------------------------------------------------------------------ >>wrap --
   Emits what --wrap redirects to. Their names are the linker's. Sites are the callers' return
   addresses. */

#if defined(MEMLORD_CUDA_WRAP)
#define MEMLORD_CUDA_I_HERE                                                                   \
    memlord_site_at(MEMLORD_CUDA_SHIM_LORD, __builtin_return_address(0))
#define MEMLORD_CUDA_I_X(real, ours, params, args)                                            \
    cudaError_t MEMLORD_CUDA_I_WRAP(real)(MEMLORD_CUDA_I_ITEMS params) {                      \
        return memlord_cuda_##ours(MEMLORD_CUDA_SHIM_LORD, MEMLORD_CUDA_I_ITEMS args,         \
                                   MEMLORD_CUDA_I_HERE);                                      \
    }
#define MEMLORD_CUDA_I_X0(real, ours)                                                         \
    cudaError_t MEMLORD_CUDA_I_WRAP(real)(void) {                                             \
        return memlord_cuda_##ours(MEMLORD_CUDA_SHIM_LORD, MEMLORD_CUDA_I_HERE);              \
    }
MEMLORD_CUDA_I_WRAPPED(MEMLORD_CUDA_I_X, MEMLORD_CUDA_I_X0)
#undef MEMLORD_CUDA_I_X
#undef MEMLORD_CUDA_I_X0
#undef MEMLORD_CUDA_I_HERE
#endif

/* Read through volatile pointers: compilers take two names for two functions. */
MEMLORD_API int memlord_cuda_wrap_check(const char **first) {
    int missing = 0;
    const char *name = NULL;
#if defined(MEMLORD_CUDA_WRAP)
#define MEMLORD_CUDA_I_CHECK(real, params)                                                    \
    {                                                                                         \
        cudaError_t (*volatile plain) params = real;                                          \
        cudaError_t (*volatile wrapped) params = MEMLORD_CUDA_I_WRAP(real);                   \
        if (plain != wrapped && !missing++) name = #real;                                     \
    }
#else
#define MEMLORD_CUDA_I_CHECK(real, params) if (!missing++) name = #real;
#endif
#define MEMLORD_CUDA_I_X(real, ours, params, args) MEMLORD_CUDA_I_CHECK(real, params)
#define MEMLORD_CUDA_I_X0(real, ours) MEMLORD_CUDA_I_CHECK(real, (void))
    MEMLORD_CUDA_I_WRAPPED(MEMLORD_CUDA_I_X, MEMLORD_CUDA_I_X0)
#undef MEMLORD_CUDA_I_X
#undef MEMLORD_CUDA_I_X0
#undef MEMLORD_CUDA_I_CHECK
    if (first) *first = name;
    return missing;
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#undef MEMLORD_CUDA_I_FUNCTIONS
#undef MEMLORD_CUDA_I_NVML_FUNCTIONS
#undef MEMLORD_CUDA_I_NVML
#undef MEMLORD_CUDA_I_LOCK
#undef MEMLORD_CUDA_I_SPECIAL
#undef MEMLORD_CUDA_I_REAL
#undef MEMLORD_CUDA_I_WRAP
#undef MEMLORD_CUDA_I_PASTE
#endif /* MEMLORD_CUDA_IMPLEMENTATION */

/* ------------------------------------------------------------------------- >>shim --
   Last, so that nothing above is redirected; outside the guard, as another header may have
   included memlord_cuda.h plainly before. Variadic, as a preprocessor takes the commas of
   sizeof(std::pair<int, int>) and of compound literals for its own; and functions beneath, so that
   the compiler sees the types. In C++ these have the forms of cuda_runtime.h as well: pointers of
   any type, more or fewer arguments. */
#if defined(MEMLORD_CUDA_SHIM) && !defined(MEMLORD_DISABLE) && !defined(MEMLORD_CUDA_I_SHIMMED)
#define MEMLORD_CUDA_I_SHIMMED
#ifndef MEMLORD_CUDA_SHIM_LORD
#define MEMLORD_CUDA_SHIM_LORD memlord_global()
#endif

#ifdef __cplusplus
#define MEMLORD_CUDA_I_FORM(name, params, call)                                               \
    template <class T>                                                                        \
    inline cudaError_t memlord_cuda_##name(memlord *lord, T **ptr, MEMLORD_CUDA_I_ITEMS params, \
                                           const memlord_site *site) {                        \
        void **made = static_cast<void **>(static_cast<void *>(ptr)); /* T may be const */    \
        return call;                                                                          \
    }
MEMLORD_CUDA_I_FORM(malloc, (size_t bytes), memlord_cuda_malloc(lord, made, bytes, site))
MEMLORD_CUDA_I_FORM(malloc_pitch, (size_t *pitch, size_t width, size_t height),
                    memlord_cuda_malloc_pitch(lord, made, pitch, width, height, site))
MEMLORD_CUDA_I_FORM(malloc_managed, (size_t bytes, unsigned int flags),
                    memlord_cuda_malloc_managed(lord, made, bytes, flags, site))
MEMLORD_CUDA_I_FORM(malloc_managed, (size_t bytes),
                    memlord_cuda_malloc_managed(lord, made, bytes, cudaMemAttachGlobal, site))
MEMLORD_CUDA_I_FORM(malloc_async, (size_t bytes, cudaStream_t stream),
                    memlord_cuda_malloc_async(lord, made, bytes, stream, site))
MEMLORD_CUDA_I_FORM(malloc_async, (size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
                    memlord_cuda_malloc_from_pool_async(lord, made, bytes, pool, stream, site))
MEMLORD_CUDA_I_FORM(malloc_from_pool_async,
                    (size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
                    memlord_cuda_malloc_from_pool_async(lord, made, bytes, pool, stream, site))
MEMLORD_CUDA_I_FORM(malloc_host, (size_t bytes), memlord_cuda_malloc_host(lord, made, bytes, site))
MEMLORD_CUDA_I_FORM(malloc_host, (size_t bytes, unsigned int flags),
                    memlord_cuda_host_alloc(lord, made, bytes, flags, site))
MEMLORD_CUDA_I_FORM(host_alloc, (size_t bytes, unsigned int flags),
                    memlord_cuda_host_alloc(lord, made, bytes, flags, site))
#undef MEMLORD_CUDA_I_FORM
#endif

#define MEMLORD_CUDA_I_SHIM(name, ...)                                                        \
    memlord_cuda_##name(MEMLORD_CUDA_SHIM_LORD, __VA_ARGS__, MEMLORD_SITE())
#undef cudaMalloc
#undef cudaMallocPitch
#undef cudaMalloc3D
#undef cudaMallocManaged
#undef cudaMallocAsync
#undef cudaMallocFromPoolAsync
#undef cudaFree
#undef cudaFreeAsync
#undef cudaMallocHost
#undef cudaHostAlloc
#undef cudaFreeHost
#undef cudaHostRegister
#undef cudaHostUnregister
#undef cudaStreamBeginCapture
#undef cudaStreamBeginCaptureToGraph
#undef cudaStreamEndCapture
#undef cudaStreamDestroy
#undef cudaStreamSynchronize
#undef cudaEventSynchronize
#undef cudaDeviceSynchronize
#define cudaMalloc(...) MEMLORD_CUDA_I_SHIM(malloc, __VA_ARGS__)
#define cudaMallocPitch(...) MEMLORD_CUDA_I_SHIM(malloc_pitch, __VA_ARGS__)
#define cudaMalloc3D(...) MEMLORD_CUDA_I_SHIM(malloc_3d, __VA_ARGS__)
#define cudaMallocManaged(...) MEMLORD_CUDA_I_SHIM(malloc_managed, __VA_ARGS__)
#define cudaMallocAsync(...) MEMLORD_CUDA_I_SHIM(malloc_async, __VA_ARGS__)
#define cudaMallocFromPoolAsync(...) MEMLORD_CUDA_I_SHIM(malloc_from_pool_async, __VA_ARGS__)
#define cudaFree(...) MEMLORD_CUDA_I_SHIM(free, __VA_ARGS__)
#define cudaFreeAsync(...) MEMLORD_CUDA_I_SHIM(free_async, __VA_ARGS__)
#define cudaMallocHost(...) MEMLORD_CUDA_I_SHIM(malloc_host, __VA_ARGS__)
#define cudaHostAlloc(...) MEMLORD_CUDA_I_SHIM(host_alloc, __VA_ARGS__)
#define cudaFreeHost(...) MEMLORD_CUDA_I_SHIM(free_host, __VA_ARGS__)
#define cudaHostRegister(...) MEMLORD_CUDA_I_SHIM(host_register, __VA_ARGS__)
#define cudaHostUnregister(...) MEMLORD_CUDA_I_SHIM(host_unregister, __VA_ARGS__)
#define cudaStreamBeginCapture(...) MEMLORD_CUDA_I_SHIM(stream_begin_capture, __VA_ARGS__)
#if CUDART_VERSION >= 12030
#define cudaStreamBeginCaptureToGraph(...)                                                    \
    MEMLORD_CUDA_I_SHIM(stream_begin_capture_to_graph, __VA_ARGS__)
#endif
#define cudaStreamEndCapture(...) MEMLORD_CUDA_I_SHIM(stream_end_capture, __VA_ARGS__)
#define cudaStreamDestroy(...) MEMLORD_CUDA_I_SHIM(stream_destroy, __VA_ARGS__)
#define cudaStreamSynchronize(...) MEMLORD_CUDA_I_SHIM(stream_synchronize, __VA_ARGS__)
#define cudaEventSynchronize(...) MEMLORD_CUDA_I_SHIM(event_synchronize, __VA_ARGS__)
#define cudaDeviceSynchronize()                                                               \
    memlord_cuda_device_synchronize(MEMLORD_CUDA_SHIM_LORD, MEMLORD_SITE())
#endif

/* MIT license: its text is at the end of memlord.h. */
