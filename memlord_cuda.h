/*
    memlord_cuda.h - MemLord for programs that hold their memory on NVIDIA GPUs
                     v0.6.0-dev, C99 and C++11, CUDA 11.2 to 13, SPDX-License-Identifier: MIT
                     Made from src/. Edit there.

    The header gives a ledger the capacity of cuda devices and a collection for them. It has
    wrappers that record the runtime's allocations, and frees in the order of a stream. The text
    below calls it the layer. The program behaves as it does without the layer.

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
        >>concepts       what the layer asks the driver, and where bytes are counted
        >>knobs          what can be configured, and where
        >>threading      what may run at the same time
        >>errors         what happens when something goes wrong
        >>costs          what a call costs; what is not counted
        >>wrapping       three ways to get at the calls: by name, by macro, by linker
        >>api            types and functions
        >>implementation the modules: each under a banner with its path in src/, where it is made
        >>shim           what MEMLORD_CUDA_SHIM redirects

    ---------------------------------------------------------------- >>example ---

        #define MEMLORD_IMPLEMENTATION
        #include "memlord.h"
        #define MEMLORD_CUDA_IMPLEMENTATION
        #include "memlord_cuda.h"
        #include <stdio.h>

        int main(void) {
            const memlord_logger logger = {memlord_log_stderr, NULL};
            memlord *lord = memlord_global();
            void *cache = NULL;
            memlord_result r = memlord_cuda_attach(lord, NULL);
            memlord_logger_set(lord, &logger);
            if (r != MEMLORD_OK) return printf("%s\n", memlord_cuda_why()), 1;

            MEMLORD_TAG(lord, "kv_cache") {
                if (memlord_cuda_malloc(lord, &cache, 1 << 20, MEMLORD_SITE())) return 1;
            }
            memlord_save(lord, MEMLORD_FORMAT_TEXT, "-");
            memlord_cuda_free(lord, cache, MEMLORD_SITE());
            return memlord_cuda_detach(lord) != MEMLORD_OK;
        }

    --------------------------------------------------------------- >>concepts ---

    Runtime   a wrapper makes the real call exactly once, unless retries were asked for, and returns
              its result. The layer itself asks the runtime only for the current device.
    Driver    all other questions go to libcuda, which the runtime has loaded. The driver has no
              last error to change, and to push and pop a context changes no current device.
    Active    a device is active if its primary context exists. The layer makes no device active,
              because a context costs hundreds of MB. The capacity of a device that is not active
              comes from NVML alone.
    Device    cuda:i is the runtime's device i. Memory counts on the device that the runtime takes
              it from: the current device, or that of the stream. So does managed memory, wherever
              its pages are, because cudaFree does not say whether memory is managed.
    Context   the size of a context is computed once, when a sample first finds the context. It is
              what NVML says that the process holds, less what is in the ledger. If NVML does not
              name the process, the growth of the used bytes since the attach stands in for what
              the process holds.
    Pinned    cudaMallocHost, cudaHostAlloc and cudaHostRegister count on the device pinned.
              Registered memory was there before. If its malloc is recorded, too, the memory counts
              on the cpu and on pinned.
    Pool      a memory pool of a device: the current one (cudaDeviceGetMemPool), the default one,
              and each pool that a wrapped call made or set, up to 64 of a process at a time.
              Destroy a pool that a wrapped call made or set by memlord_cuda_pool_destroy. Otherwise
              the layer would ask the pool after its end, which is undefined. The blocks of a
              destroyed pool count as outside of pools until they are freed. The layer never asks a
              pool that others made. What is allocated from such a pool counts as outside of pools.
    Reserved  the bytes that pools and graphs hold, and those that are live outside of them. Bytes
              outside are those that are live in the ledger and not pending, less those that pools
              and graphs say are used. `cached` is what is reserved less what is allocated, and so
              what pools and graphs hold unused. Where unwrapped calls use a pool, their bytes count
              as cached, as far as they are more than the bytes outside.
    Collection  the collection of a cuda device trims its pools and graphs. Its result is the
              reserved bytes before the trim less those after it. The host's own callbacks run, too,
              in the order in which they were added.
              Bands ask the layer for a collection only after the host has set a strategy
              (memlord_strategy_set, or memlord_strategy_default). Without one the layer trims only
              when memory or a limit runs out, or when a neighbour or the host asks for a
              collection. The host's own callbacks need no strategy. A collection for a band leaves
              the pools the most bytes that were used of them since the last collection.
    Capture   the layer ends no capture. It records no event on a stream that is captured, and
              relaxes the thread's capture mode while it asks and trims. An event that a capture
              held back is recorded at the wrapped end of the capture, before the next wrapped wait,
              or in a poll.
    Streams   a stream must exist while an event is still to be recorded on it.
              memlord_cuda_stream_destroy records the event first. If you end a stream in another
              way, wait until no free waits for it: asking a stream that is gone is undefined.
              Drivers mostly refuse, and the fence has then failed. Since CUDA 12 the layer notices
              a new stream or context at the address of one that is gone. The frees that still
              needed an event have then failed, and the events of the old context are forgotten.
              Only its own thread can name a per-thread stream. If a capture held back an event for
              such a stream, and a poll of another thread records the event, the event goes to the
              legacy stream, which waits for all blocking streams.

    ------------------------------------------------------------------ >>knobs ---

    Define these before including the header; "one file" means what it does in memlord.h. Its
    MEMLORD_STATIC, MEMLORD_PREFIX and MEMLORD_API hold for this header, too. With MEMLORD_DISABLE a
    wrapper is the runtime's own function, and the other functions do nothing.

        MEMLORD_CUDA_SHIM          redirects the plain names of the wrapped functions in this file;
                                   include memlord_cuda.h last                (that file)
        MEMLORD_CUDA_SHIM_LORD     the ledger of the shim and of the __wrap_ functions, default
                                   memlord_global()                (that file, one file)
        MEMLORD_CUDA_WRAP          emits a __wrap_ function for each name     (one file)
        MEMLORD_CUDA_NVTX          emits ranges and marks for NVIDIA's profilers, with
                                   <nvtx3/nvToolsExt.h>                       (one file)
        MEMLORD_CUDA_DRIVER        the driver's library, default
                                   "libcuda.so.1"; "nvcuda.dll" on Windows    (one file)
        MEMLORD_CUDA_MAX_LEDGERS   the most ledgers attached at a time,
                                   default 16                                 (one file)
        MEMLORD_CUDA_MAX_DEVICES   the most devices with a capacity, default 64; memory on further
                                   ones is counted                            (one file)
        MEMLORD_CUDA_MAX_EVENTS    the most events kept for reuse per context,
                                   default 256                                (one file)

    With CUDA_API_PER_THREAD_DEFAULT_STREAM (nvcc --default-stream per-thread) compile the one file
    with the same define as those that call it.

    -------------------------------------------------------------- >>threading ---

    Any thread may call any function at any time. The layer holds no lock over a call of the driver,
    except while the first call of a process loads the driver. It holds a lock while NVML loads and
    while NVML lists processes; a fork waits for the list. These calls may wait in the driver:

        record_free, free_async_after, record_use of a per-thread stream, a free after record_use, a
        poll, stream_end_capture, *_synchronize
                                 while they record an event on a stream whose launch queue is full
        stream_destroy           likewise, and until no other thread records on that stream
        device_reset             until the device has done its work, and the running samples and
                                 collections have ended
        pool_destroy             until no other thread asks or trims pools
        a collection             until its trim is done; with MEMLORD_CUDA_FLAG_SYNC also until
                                 pending frees are done
        attach, detach           until the driver and NVML are loaded, and until samples and
                                 collections that are running have ended

    Detach before memlord_destroy. Before a cudaDeviceReset that is not wrapped, and before a
    cuCtxDestroy, wait until no free pends on the streams of the context, and call
    memlord_cuda_events_release: both destroy the layer's events.
    CUDA may not be called once a process ends. The layer registers an exit handler when it loads
    the driver. The handler runs before the driver's own exit handlers, and waits for the pollers
    that are inside a device. From then on every function returns as without a driver.
    Attach after a fork, because CUDA does not survive a fork. A child of a process that has loaded
    the driver has no driver: nothing is attached there, and every function returns as without one.
    A block that was pending ends when it is polled, and is counted in fence_failures. The ledger
    itself goes on.
    A host function of a stream (cudaLaunchHostFunc) may call no function of CUDA, and none of this
    header. It may call those of memlord.h, which ask the driver only if they poll or collect. What
    the driver refuses there is asked again later; with MEMLORD_FLAG_DEFER nothing is asked there.

    ----------------------------------------------------------------- >>errors ---

    A wrapper returns what the runtime returned, with a driver or without. The ledger records only
    calls that succeeded. While the runtime frees a block, the ledger does not have the block,
    because another thread may get the address (memlord_free_begin). If the free fails, the block
    comes back, without its recorded uses. A free of a pointer that the ledger does not have is
    counted in unknown_frees.
    The other functions return a memlord_result. If the driver refuses something after the attach, a
    capacity is unknown, a collection does not run, or a fence fails. The block of a failed fence
    ends, and is counted in fence_failures. A fence that cannot be asked now, in a host function of
    a stream or in a capture, is asked again later.
    The runtime's last error is what it would be without MemLord. After retries that succeed it is
    as clean as before. After retries that fail it is that of the last attempt. If a limit of the
    ledger refuses, no attempt is made: the result is cudaErrorMemoryAllocation, the pointer is
    NULL, and the last error is as before.

    ------------------------------------------------------------------ >>costs ---

    An allocation costs what memlord_alloc costs. A free costs two or three times what memlord_free
    does, because it can be taken back. Each makes these calls of the driver beside the real one:

        malloc, free, free_async           0
        malloc_async                       0; with several devices 1
        record_use                         1; 3 for a per-thread stream, where it records an event
        record_free, free_async_after      3
        a free after record_use            2 for each stream, 3 for a per-thread one; with
                                           MEMLORD_FLAG_DEFER the first poll makes these calls
        a poll of a stream                 3; when a part of what waits is done, up to 11
        stream_end_capture                 2, whatever the capture held back
        stream_destroy                     2, whatever was used there; 0 where nothing was
        the first of these on a stream     2 more, to learn its context
        while no event is kept             4 more, to make one
        an event on a default stream that a later call records
                                           1 more; 3 more from another context
        a sample, pool_get                 18 for a device with one pool, 4 for each further pool

    A poll makes no more calls if more frees wait. A stream has at most 32 events, and each event
    stands for all frees before it. With more than 32 frees on a stream, a block ends together with
    some that were freed soon after it.
    Allocations and frees on cuda devices poll only while frees pend there. A call polls one stream.
    A stream that was not done is polled again after 256 such calls or 10 ms at the latest. Calls on
    other devices make no call of the driver. A sample takes up to some hundred microseconds with
    NVML. Pollers take the samples, and no call waits for one. One sample in 16 lists the device's
    processes, for which NVML takes locks of the driver. In a container, where NVML does not know
    this process, the layer makes no more such lists after 8.
    Memory: 24 bytes for a pending free, kept for the next one, and 700 for a stream. 64 streams on
    which nothing waits stay known, because to find a stream again takes more calls. At most
    MEMLORD_CUDA_MAX_EVENTS events are kept per context. A timed scope takes two events.
    memlord_cuda_attach initialises the driver (cuInit) and NVML, which may take tens of
    milliseconds. Without a driver it returns in less than one millisecond.

    Not counted: contexts, modules and local memory; what libraries allocate through their own
    copy of the runtime; arrays; cuMemAlloc. In a report all of these are `unaccounted`.
    Memory of graphs: a wrapped allocation on a captured stream counts once, from the capture on,
    although the graph takes the memory only while it runs. A wrapped free in the capture ends the
    block, and so does a wrapped free after a run. Nodes added by hand (cudaGraphAddMemAllocNode)
    are not counted. What graphs really hold and use is in memlord_cuda_pool and in `reserved`.

    --------------------------------------------------------------- >>wrapping ---

    By name   call memlord_cuda_malloc(lord, &p, n, MEMLORD_SITE()) where you would have called
              cudaMalloc(&p, n). All is counted, and each file and line is known.
    By macro  #define MEMLORD_CUDA_SHIM and include this header last. In that file, which may be the
              one file, the plain names are the wrappers. Those of the driver are, too, if cuda.h is
              included before. Sites are file and line. Function pointers, and calls in other files,
              are not redirected. (cudaFree)(p) calls the real function; with the per-thread default
              stream cudaFreeAsync_ptsz is the real cudaFreeAsync. The arguments are those of the
              runtime. In C++ the pointer may be of any type, as with the runtime's templates; in C
              it is a void **. An argument may be an initialiser with commas. Device code (nvcc
              -rdc=true) keeps the device's own cudaMalloc and cudaFree.
    By linker define MEMLORD_CUDA_WRAP in the one file and link with

                -Wl,--wrap=cudaMalloc,--wrap=cudaMallocPitch,--wrap=cudaMalloc3D
                -Wl,--wrap=cudaMallocManaged,--wrap=cudaMallocAsync
                -Wl,--wrap=cudaMallocFromPoolAsync,--wrap=cudaFree,--wrap=cudaFreeAsync
                -Wl,--wrap=cudaMallocHost,--wrap=cudaHostAlloc,--wrap=cudaFreeHost
                -Wl,--wrap=cudaHostRegister,--wrap=cudaHostUnregister
                -Wl,--wrap=cudaStreamEndCapture,--wrap=cudaStreamDestroy
                -Wl,--wrap=cudaStreamSynchronize,--wrap=cudaEventSynchronize
                -Wl,--wrap=cudaDeviceSynchronize,--wrap=cudaMemPoolCreate
                -Wl,--wrap=cudaMemPoolDestroy,--wrap=cudaDeviceSetMemPool
                -Wl,--wrap=cudaDeviceReset

              and, if the program calls these of the driver,

                -Wl,--wrap=cuMemCreate,--wrap=cuMemRelease,--wrap=cuMemMap
                -Wl,--wrap=cuMemUnmap,--wrap=cuMemRetainAllocationHandle

              (nvcc: -Xlinker --wrap=...; with the per-thread default stream the names end in
              _ptsz where the runtime's do). Sites are return addresses. The linker redirects the
              calls in objects and static libraries of this link, with the shared and the static
              runtime. It does not redirect calls inside shared libraries or in the file that
              defines the function. If the object that defines the function takes part in a
              link-time optimisation, it redirects nothing and says nothing. Two checks: a name left
              out does not link (undefined __real_...), and memlord_cuda_wrap_check tells which
              names the linker did not redirect.
*/
#ifndef MEMLORD_CUDA_H
#define MEMLORD_CUDA_H

#if !defined(MEMLORD_H)
#error "include memlord.h before memlord_cuda.h"
#endif

/* The runtime's header has anonymous unions, which C99 does not know. */
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

#if defined(MEMLORD_DISABLE) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif

#if defined(MEMLORD_PREFIX)
#define MLI_CUDA_NAMED(name) MLI_PREFIXED(memlord_cuda_##name)
#define memlord_cuda_attach MLI_CUDA_NAMED(attach)
#define memlord_cuda_detach MLI_CUDA_NAMED(detach)
#define memlord_cuda_attached MLI_CUDA_NAMED(attached)
#define memlord_cuda_why MLI_CUDA_NAMED(why)
#define memlord_cuda_pool_get MLI_CUDA_NAMED(pool_get)
#define memlord_cuda_pool_refresh MLI_CUDA_NAMED(pool_refresh)
#define memlord_cuda_malloc MLI_CUDA_NAMED(malloc)
#define memlord_cuda_malloc_pitch MLI_CUDA_NAMED(malloc_pitch)
#define memlord_cuda_malloc_3d MLI_CUDA_NAMED(malloc_3d)
#define memlord_cuda_malloc_managed MLI_CUDA_NAMED(malloc_managed)
#define memlord_cuda_malloc_async MLI_CUDA_NAMED(malloc_async)
#define memlord_cuda_malloc_from_pool_async MLI_CUDA_NAMED(malloc_from_pool_async)
#define memlord_cuda_malloc_retry MLI_CUDA_NAMED(malloc_retry)
#define memlord_cuda_free MLI_CUDA_NAMED(free)
#define memlord_cuda_free_async MLI_CUDA_NAMED(free_async)
#define memlord_cuda_malloc_host MLI_CUDA_NAMED(malloc_host)
#define memlord_cuda_host_alloc MLI_CUDA_NAMED(host_alloc)
#define memlord_cuda_free_host MLI_CUDA_NAMED(free_host)
#define memlord_cuda_host_register MLI_CUDA_NAMED(host_register)
#define memlord_cuda_host_unregister MLI_CUDA_NAMED(host_unregister)
#define memlord_cuda_stream_end_capture MLI_CUDA_NAMED(stream_end_capture)
#define memlord_cuda_stream_destroy MLI_CUDA_NAMED(stream_destroy)
#define memlord_cuda_stream_synchronize MLI_CUDA_NAMED(stream_synchronize)
#define memlord_cuda_event_synchronize MLI_CUDA_NAMED(event_synchronize)
#define memlord_cuda_device_synchronize MLI_CUDA_NAMED(device_synchronize)
#define memlord_cuda_mem_create MLI_CUDA_NAMED(mem_create)
#define memlord_cuda_mem_release MLI_CUDA_NAMED(mem_release)
#define memlord_cuda_mem_map MLI_CUDA_NAMED(mem_map)
#define memlord_cuda_mem_unmap MLI_CUDA_NAMED(mem_unmap)
#define memlord_cuda_mem_retain_handle MLI_CUDA_NAMED(mem_retain_handle)
#define memlord_cuda_device_reset MLI_CUDA_NAMED(device_reset)
#define memlord_cuda_pool_create MLI_CUDA_NAMED(pool_create)
#define memlord_cuda_pool_destroy MLI_CUDA_NAMED(pool_destroy)
#define memlord_cuda_device_set_pool MLI_CUDA_NAMED(device_set_pool)
#define memlord_cuda_free_async_after MLI_CUDA_NAMED(free_async_after)
#define memlord_cuda_record_free MLI_CUDA_NAMED(record_free)
#define memlord_cuda_record_use MLI_CUDA_NAMED(record_use)
#define memlord_cuda_events_release MLI_CUDA_NAMED(events_release)
#define memlord_cuda_scope_begin MLI_CUDA_NAMED(scope_begin)
#define memlord_cuda_scope_end MLI_CUDA_NAMED(scope_end)
#define memlord_cuda_checkpoint MLI_CUDA_NAMED(checkpoint)
#define memlord_cuda_wrap_check MLI_CUDA_NAMED(wrap_check)
#endif

#ifdef __cplusplus
extern "C" {
#endif
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

#endif /* MEMLORD_CUDA_H */

/* ------------------------- stop here if you only want the API ---------------------------- */

#if defined(MEMLORD_CUDA_IMPLEMENTATION) && !defined(MEMLORD_DISABLE) &&                      \
    !defined(MLI_CUDA_EMITTED)
#define MLI_CUDA_EMITTED

/* -------------------------------------------------------------------------- src/cuda/knobs.h -- */

/* Owns the bounds that a host may set by macros, and the macros of private declarations. Uses no
   other module. Locks: none. */

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
#pragma GCC diagnostic ignored "-Wpedantic" /* the header casts object pointers to function
                                               pointers */
#endif
#include <nvtx3/nvToolsExt.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#endif

#include <stdio.h> /* snprintf */

/* The linkage of private functions, tables and variables that several modules use: static in the
   product, extern where each module is an object of its own. */
#if defined(MLI_MODULES)
#define MLI_CUDA_PRIVATE
#define MLI_CUDA_TABLE(...) extern __VA_ARGS__;
#define MLI_CUDA_VARIABLE(...) extern __VA_ARGS__;
#define MLI_CUDA_VARIABLE_HERE(...) __VA_ARGS__;
#else
#define MLI_CUDA_PRIVATE static
#define MLI_CUDA_TABLE(...)
#define MLI_CUDA_VARIABLE(...) static __VA_ARGS__;
#define MLI_CUDA_VARIABLE_HERE(...)
#endif

/* ------------------------------------------------------------------------- src/cuda/atfork.h -- */

/* Declares the functions that register fork handlers. cuda/driver calls these functions when it
   loads the driver. cuda/forks defines them, because the handlers use cuda/driver. Locks: none. */

/* Registers the handler that makes a forked child find no driver. Requires: the driver is not
   loaded yet. */
MLI_CUDA_PRIVATE void mli_cuda_fork_first(void);
/* Registers the handlers that hold the layer's locks over a fork. Requires: the driver has loaded,
   so that these handlers take the locks before the driver's own handlers run. */
MLI_CUDA_PRIVATE void mli_cuda_fork_locks(void);

/* ------------------------------------------------------------------------- src/cuda/system.h -- */

/* Owns what differs between operating systems: shared libraries, a lock, the process id, atomics.
   Locks: none. */

#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
#ifndef MEMLORD_CUDA_DRIVER
#define MEMLORD_CUDA_DRIVER "nvcuda.dll"
#endif
#define MLI_CUDA_NVML "nvml.dll"
typedef SRWLOCK mli_cuda_lock;
#define MLI_CUDA_LOCK SRWLOCK_INIT
#else
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h> /* getpid */
#ifndef MEMLORD_CUDA_DRIVER
#define MEMLORD_CUDA_DRIVER "libcuda.so.1"
#endif
#define MLI_CUDA_NVML "libnvidia-ml.so.1"
typedef pthread_mutex_t mli_cuda_lock;
#define MLI_CUDA_LOCK PTHREAD_MUTEX_INITIALIZER
#endif
MLI_CUDA_PRIVATE void mli_cuda_lock_take(mli_cuda_lock *l);
MLI_CUDA_PRIVATE void mli_cuda_lock_drop(mli_cuda_lock *l);
MLI_CUDA_PRIVATE void *mli_cuda_library_open(const char *name);
MLI_CUDA_PRIVATE void mli_cuda_library_close(void *library);
MLI_CUDA_PRIVATE void mli_cuda_yield(void);
MLI_CUDA_PRIVATE uint64_t mli_cuda_process_id(void);

/* A function of a library, and its place in a table of function pointers. */
typedef struct mli_cuda_symbol {
    const char *name;
    uint16_t at;     /* the offset of the function's pointer in the table */
    uint16_t needed; /* 1: without this function the library is of no use */
} mli_cuda_symbol;
/* Fills a table with pointers to functions of a library. The pointer of a function that the library
   lacks is NULL. Returns the name of the last needed function that is missing, or NULL if none is
   missing. */
MLI_CUDA_PRIVATE const char *mli_cuda_library_fill(void *library, const mli_cuda_symbol *symbols,
                                                   size_t n, void *table);

typedef struct mli_cuda_u64 {
    uint64_t v;
} mli_cuda_u64;

/* Atomic operations. They are relaxed unless their name says acquire or release. An add returns the
   old value. */
MLI_CUDA_PRIVATE uint64_t mli_cuda_load(mli_cuda_u64 *a);
MLI_CUDA_PRIVATE uint64_t mli_cuda_load_acquire(mli_cuda_u64 *a);
MLI_CUDA_PRIVATE void mli_cuda_store(mli_cuda_u64 *a, uint64_t v);
MLI_CUDA_PRIVATE void mli_cuda_store_release(mli_cuda_u64 *a, uint64_t v);
MLI_CUDA_PRIVATE uint64_t mli_cuda_add(mli_cuda_u64 *a, uint64_t v);
MLI_CUDA_PRIVATE uint64_t mli_cuda_add_release(mli_cuda_u64 *a, uint64_t v);

/* MLI_CUDA_REAL(name) is the runtime's own function, even where the linker's --wrap redirects its
   name. With the per-thread default stream some names are macros. MLI_CUDA_PASTE is a macro of its
   own, so that these macros are expanded before it pastes. */
#if defined(MEMLORD_CUDA_WRAP)
#define MLI_CUDA_PASTE(prefix, name) prefix##name
#define MLI_CUDA_REAL(name) MLI_CUDA_PASTE(__real_, name)
#define MLI_CUDA_WRAP(name) MLI_CUDA_PASTE(__wrap_, name)
#else
#define MLI_CUDA_REAL(name) name
#endif

/* ------------------------------------------------------------------------- src/cuda/system.c -- */

#if defined(_WIN32)
MLI_CUDA_PRIVATE void mli_cuda_lock_take(mli_cuda_lock *l) { AcquireSRWLockExclusive(l); }
MLI_CUDA_PRIVATE void mli_cuda_lock_drop(mli_cuda_lock *l) { ReleaseSRWLockExclusive(l); }
MLI_CUDA_PRIVATE void *mli_cuda_library_open(const char *name) {
    return (void *)LoadLibraryExA(name, NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
}
MLI_CUDA_PRIVATE void mli_cuda_library_close(void *library) { FreeLibrary((HMODULE)library); }
static void *mli_cuda_library_find(void *library, const char *name) {
    FARPROC found = GetProcAddress((HMODULE)library, name);
    void *copy;
    memcpy(&copy, &found, sizeof copy);
    return copy;
}
MLI_CUDA_PRIVATE void mli_cuda_yield(void) { (void)SwitchToThread(); }
MLI_CUDA_PRIVATE uint64_t mli_cuda_process_id(void) { return GetCurrentProcessId(); }
#else
MLI_CUDA_PRIVATE void mli_cuda_lock_take(mli_cuda_lock *l) { (void)pthread_mutex_lock(l); }
MLI_CUDA_PRIVATE void mli_cuda_lock_drop(mli_cuda_lock *l) { (void)pthread_mutex_unlock(l); }
MLI_CUDA_PRIVATE void *mli_cuda_library_open(const char *name) {
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}
MLI_CUDA_PRIVATE void mli_cuda_library_close(void *library) { (void)dlclose(library); }
static void *mli_cuda_library_find(void *library, const char *name) {
    return dlsym(library, name);
}
MLI_CUDA_PRIVATE void mli_cuda_yield(void) { (void)sched_yield(); }
MLI_CUDA_PRIVATE uint64_t mli_cuda_process_id(void) { return (uint64_t)getpid(); }
#endif
MLI_CUDA_PRIVATE const char *mli_cuda_library_fill(void *library, const mli_cuda_symbol *symbols,
                                                   size_t n, void *table) {
    const char *missing = NULL;
    size_t i;
    for (i = 0; i < n; i++) {
        void *found = mli_cuda_library_find(library, symbols[i].name);
        /* ISO C does not convert a pointer to an object to a pointer to a function */
        memcpy((char *)table + symbols[i].at, &found, sizeof found);
        if (symbols[i].needed && !found) missing = symbols[i].name;
    }
    return missing;
}

#if defined(__GNUC__)
MLI_CUDA_PRIVATE uint64_t mli_cuda_load(mli_cuda_u64 *a) {
    return __atomic_load_n(&a->v, __ATOMIC_RELAXED);
}
MLI_CUDA_PRIVATE uint64_t mli_cuda_load_acquire(mli_cuda_u64 *a) {
    return __atomic_load_n(&a->v, __ATOMIC_ACQUIRE);
}
MLI_CUDA_PRIVATE void mli_cuda_store(mli_cuda_u64 *a, uint64_t v) {
    __atomic_store_n(&a->v, v, __ATOMIC_RELAXED);
}
MLI_CUDA_PRIVATE void mli_cuda_store_release(mli_cuda_u64 *a, uint64_t v) {
    __atomic_store_n(&a->v, v, __ATOMIC_RELEASE);
}
MLI_CUDA_PRIVATE uint64_t mli_cuda_add(mli_cuda_u64 *a, uint64_t v) {
    return __atomic_fetch_add(&a->v, v, __ATOMIC_RELAXED);
}
MLI_CUDA_PRIVATE uint64_t mli_cuda_add_release(mli_cuda_u64 *a, uint64_t v) {
    return __atomic_fetch_add(&a->v, v, __ATOMIC_RELEASE);
}
#elif defined(_MSC_VER) && defined(_WIN64)
#include <intrin.h>
MLI_CUDA_PRIVATE uint64_t mli_cuda_load(mli_cuda_u64 *a) { return *(volatile uint64_t *)&a->v; }
MLI_CUDA_PRIVATE uint64_t mli_cuda_load_acquire(mli_cuda_u64 *a) {
    return (uint64_t)_InterlockedOr64((volatile __int64 *)&a->v, 0);
}
MLI_CUDA_PRIVATE void mli_cuda_store(mli_cuda_u64 *a, uint64_t v) {
    *(volatile uint64_t *)&a->v = v;
}
MLI_CUDA_PRIVATE void mli_cuda_store_release(mli_cuda_u64 *a, uint64_t v) {
    (void)_InterlockedExchange64((volatile __int64 *)&a->v, (__int64)v);
}
MLI_CUDA_PRIVATE uint64_t mli_cuda_add(mli_cuda_u64 *a, uint64_t v) {
    return (uint64_t)_InterlockedExchangeAdd64((volatile __int64 *)&a->v, (__int64)v);
}
MLI_CUDA_PRIVATE uint64_t mli_cuda_add_release(mli_cuda_u64 *a, uint64_t v) {
    return mli_cuda_add(a, v); /* the addition is a full barrier */
}
#else
#error "memlord_cuda.h needs 64-bit atomics: GNU C, clang, or MSVC for x64 or arm64"
#endif

/* Under --wrap the linker redirects the plain names in this file, too. So the wrappers call the
   runtime by its __real_ names, and are defined under the __wrap_ names. */
#if defined(MEMLORD_CUDA_WRAP)
#ifdef __cplusplus
extern "C" {
#endif
#define MLI_CUDA_X0(real, ours) __typeof__(real) MLI_CUDA_REAL(real), MLI_CUDA_WRAP(real);
#define MLI_CUDA_X(real, ours, params, args) MLI_CUDA_X0(real, ours)
MLI_CUDA_WRAPPED(MLI_CUDA_X, MLI_CUDA_X0)
#undef MLI_CUDA_X
#undef MLI_CUDA_X0
#ifdef __cplusplus
}
#endif
#endif

/* ------------------------------------------------------------------------- src/cuda/driver.h -- */

/* Owns the table of the driver's functions, and the number of threads inside each device. A context
   is the driver's state of a process on a device. The runtime uses the device's primary context;
   while that exists, the device is active. A capture records the work of a stream instead of
   running it. A thread's capture mode decides which calls end a capture with an error. The driver's
   prototypes are written out here, so that a host needs neither cuda.h nor -lcuda. Locks:
   mli_cuda_loaded_lock, while the driver loads. */

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

/* ------------------------------------------------------------------------- src/cuda/driver.c -- */

#include <stdlib.h> /* atexit */

static mli_cuda_lock mli_cuda_loaded_lock = MLI_CUDA_LOCK;
MLI_CUDA_VARIABLE_HERE(mli_cuda_loaded_state mli_cuda_loaded)

/* Stores why there is no driver, as a text that printf formats. The value of the expression is
   0. */
#define MLI_CUDA_WHY(...)                                                                     \
    (snprintf(mli_cuda_loaded.why, sizeof mli_cuda_loaded.why, __VA_ARGS__), 0)

static const mli_cuda_symbol mli_cuda_driver_symbols[] = {
#define MLI_CUDA_X(field, symbol, needed, params)                                             \
    {symbol, (uint16_t)offsetof(mli_cuda_driver, field), needed},
    MLI_CUDA_FUNCTIONS(MLI_CUDA_X)
#undef MLI_CUDA_X
};

/* Reads the handles and properties of the devices. */
static void mli_cuda_devices_read(mli_cuda_driver *d) {
    const int has_pools = d->pool_current && d->pool_attribute && d->pool_trim;
    int i;
    for (i = 0; i < d->devices && i < MEMLORD_CUDA_MAX_DEVICES; i++) {
        if (d->device_get(&d->handle[i], i)) break;
        if (d->device_attribute(&d->integrated[i], MLI_CUDA_ATTRIBUTE_INTEGRATED, d->handle[i]))
            d->integrated[i] = 0;
        d->any_integrated |= d->integrated[i];
        if (!has_pools ||
            d->device_attribute(&d->pools[i], MLI_CUDA_ATTRIBUTE_POOLS, d->handle[i]))
            d->pools[i] = 0;
    }
    d->known = i;
}

static int mli_cuda_driver_load(mli_cuda_driver *d) {
    void *library = mli_cuda_library_open(MEMLORD_CUDA_DRIVER);
    const char *missing;
    int i;
    if (!library) return MLI_CUDA_WHY("%s was not found", MEMLORD_CUDA_DRIVER);
    missing = mli_cuda_library_fill(library, mli_cuda_driver_symbols,
                                    sizeof mli_cuda_driver_symbols / sizeof(mli_cuda_symbol), d);
    if (missing) {
        mli_cuda_library_close(library);
        return MLI_CUDA_WHY("%s has no %s", MEMLORD_CUDA_DRIVER, missing);
    }
    /* the library stays loaded after cuInit, even if cuInit fails, because the library may have
       started threads */
    if ((i = d->init(0)) != 0) return MLI_CUDA_WHY("cuInit answered %d", i);
    if ((i = d->device_count(&d->devices)) != 0)
        return MLI_CUDA_WHY("cuDeviceGetCount answered %d", i);
    if (d->devices < 1) return MLI_CUDA_WHY("there is no device");
    mli_cuda_devices_read(d);
    return 1;
}

MLI_CUDA_PRIVATE const mli_cuda_driver *mli_cuda_driver_get(void) {
    uint64_t state = mli_cuda_load_acquire(&mli_cuda_loaded.state);
    if (state == MLI_CUDA_UNTRIED) {
        mli_cuda_lock_take(&mli_cuda_loaded_lock);
        state = mli_cuda_load(&mli_cuda_loaded.state);
        if (state == MLI_CUDA_UNTRIED) {
            mli_cuda_fork_first();
            state = mli_cuda_driver_load(&mli_cuda_loaded.table) ? MLI_CUDA_READY : MLI_CUDA_ABSENT;
            mli_cuda_fork_locks();
            if (state == MLI_CUDA_READY) (void)atexit(mli_cuda_driver_leave);
            mli_cuda_store_release(&mli_cuda_loaded.state, state);
        }
        mli_cuda_lock_drop(&mli_cuda_loaded_lock);
    }
    return state == MLI_CUDA_READY ? &mli_cuda_loaded.table : NULL;
}

MLI_CUDA_PRIVATE int mli_cuda_ordinal(const mli_cuda_driver *d, int handle) {
    int i = 0;
    while (i < d->known && d->handle[i] != handle) i++;
    return i < d->known ? i : handle;
}

MLI_CUDA_PRIVATE int mli_cuda_active(const mli_cuda_driver *d, int device) {
    unsigned flags;
    int active = 0;
    return device >= 0 && device < d->known &&
           d->primary_state(d->handle[device], &flags, &active) == 0 && active;
}

MLI_CUDA_PRIVATE int mli_cuda_is_not_yet(int error) {
    return error == MLI_CUDA_NOT_READY || error == MLI_CUDA_NOT_PERMITTED ||
           (error >= MLI_CUDA_CAPTURE_FIRST && error <= MLI_CUDA_CAPTURE_LAST);
}

MLI_CUDA_PRIVATE int mli_cuda_relax(const mli_cuda_driver *d, int *mode) {
    *mode = MLI_CUDA_MODE_RELAXED;
    return d->capture_mode(mode);
}

MLI_CUDA_PRIVATE int mli_cuda_enter_context(const mli_cuda_driver *d, void *context, int *mode) {
    int r = d->context_push(context);
    if (!r && (r = mli_cuda_relax(d, mode)) != 0) (void)d->context_pop(&context);
    return r;
}

MLI_CUDA_PRIVATE void mli_cuda_leave_context(const mli_cuda_driver *d, int *mode) {
    void *context;
    (void)d->capture_mode(mode);
    (void)d->context_pop(&context);
}
MLI_CUDA_VARIABLE_HERE(mli_cuda_u64 mli_cuda_inside[MEMLORD_CUDA_MAX_DEVICES])

/* Makes a device's primary context current. Relaxes the capture mode first, because a capture may
   forbid retaining a context. Returns 1, or 0 if the device is not active or the driver refuses. */
static int mli_cuda_enter_primary(const mli_cuda_driver *d, int device, int *mode) {
    void *context = NULL;
    if (mli_cuda_relax(d, mode)) return 0;
    if (mli_cuda_active(d, device) && d->primary_retain(&context, d->handle[device]) == 0) {
        if (d->context_push(context) == 0) return 1;
        (void)d->primary_release(d->handle[device]);
    }
    (void)d->capture_mode(mode);
    return 0;
}
/* Counts a thread as no longer inside a device. The release pairs with the acquire load of a thread
   that waits, in mli_cuda_driver_leave or in memlord_cuda_device_reset. */
static void mli_cuda_exit_device(int device) {
    (void)mli_cuda_add_release(&mli_cuda_inside[device], UINT64_MAX);
}
MLI_CUDA_PRIVATE int mli_cuda_enter_device(const mli_cuda_driver *d, int device, int *mode) {
    if (device < 0 || device >= d->known) return 0;
    /* relaxed: a reset adds to the same counter, and one of the two additions comes first; so
       either this thread sees the reset, or the reset sees this thread */
    if (mli_cuda_add(&mli_cuda_inside[device], 1) < MLI_CUDA_RESETTING &&
        mli_cuda_enter_primary(d, device, mode))
        return 1;
    mli_cuda_exit_device(device);
    return 0;
}

MLI_CUDA_PRIVATE void mli_cuda_leave_device(const mli_cuda_driver *d, int device, int *mode) {
    mli_cuda_leave_context(d, mode);
    (void)d->primary_release(d->handle[device]);
    mli_cuda_exit_device(device);
}

MLI_CUDA_PRIVATE void mli_cuda_driver_leave(void) {
    static const char over[] = "the process ends";
    int i;
    if (mli_cuda_load(&mli_cuda_loaded.state) != MLI_CUDA_READY) return;
    memcpy(mli_cuda_loaded.why, over, sizeof over);
    mli_cuda_store_release(&mli_cuda_loaded.state, MLI_CUDA_ABSENT);
    for (i = 0; i < MEMLORD_CUDA_MAX_DEVICES; i++) {
        /* relaxed, as in mli_cuda_enter_device; nothing subtracts MLI_CUDA_RESETTING again, so no
           thread enters the device any more */
        (void)mli_cuda_add(&mli_cuda_inside[i], MLI_CUDA_RESETTING);
        /* the acquire load pairs with the release in mli_cuda_exit_device */
        while (mli_cuda_load_acquire(&mli_cuda_inside[i]) % MLI_CUDA_RESETTING) mli_cuda_yield();
    }
}

/* --------------------------------------------------------------------------- src/cuda/nvml.h -- */

/* Owns the table of functions of NVML (NVIDIA's library that tells the state of GPUs), and NVML's
   handle of each device. Finds a device by its PCI id, because NVML counts all devices of the
   machine, in another order. NVML is loaded for the first attached ledger that uses it, and
   unloaded after the last. The table changes at no other time. Locks: mli_cuda_nvml_lock, while
   NVML loads or unloads; mli_cuda_holders_lock, while NVML lists processes. */

/* The bytes that processes hold on a device. NVML takes locks of the driver to list them, so only
   one sample in MLI_CUDA_HOLDERS_EVERY asks for the list. In a container NVML knows this process by
   another process id, so this process looks like another one in the list. If a list lacks this
   process although the process has a context on the device, `others` is therefore made empty. After
   MLI_CUDA_HOLDERS_MISSES such lists in a row no sample asks for a list again. */
typedef struct mli_cuda_holders {
    unsigned samples; /* how many samples of the device were taken */
    unsigned misses;  /* how many lists in a row lacked this process, though it had a context (was
                         using the device) */
    uint64_t ours;    /* the bytes of this process */
    memlord_other others[MEMLORD_OTHERS]; /* the other processes that hold the most bytes */
} mli_cuda_holders;
MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_holders_lock)

/* Adds a user of NVML. The first user loads the library `name`, or the usual library if
   `name` is NULL. */

MLI_CUDA_PRIVATE void mli_cuda_nvml_acquire(const mli_cuda_driver *d, const char *name);
/* Removes a user of NVML. The last user unloads the library. */
MLI_CUDA_PRIVATE void mli_cuda_nvml_release(void);

/* Asks for the total and used bytes of device i. Returns 1, or 0 if NVML does not know the device.
   *used is the total less the free bytes, because what NVML itself counts as used depends on
   NVML's version. */
MLI_CUDA_PRIVATE int mli_cuda_nvml_query(int i, uint64_t *total, uint64_t *used);

/* Returns the bytes that processes hold on device i, as of the last list. `active` is 1 if this
   process has a context there. */
MLI_CUDA_PRIVATE mli_cuda_holders mli_cuda_holders_get(int i, int active);

/* --------------------------------------------------------------------------- src/cuda/nvml.c -- */

#define MLI_CUDA_NVML_FUNCTIONS(X)                                                            \
    X(init, "nvmlInit_v2", 1, (void))                                                         \
    X(shutdown, "nvmlShutdown", 1, (void))                                                    \
    X(by_pci, "nvmlDeviceGetHandleByPciBusId_v2", 1, (const char *id, void **device))         \
    X(memory, "nvmlDeviceGetMemoryInfo", 1, (void *device, void *info))                       \
    X(mig, "nvmlDeviceGetMigMode", 0, (void *device, unsigned *current, unsigned *pending))   \
    X(processes, "nvmlDeviceGetComputeRunningProcesses_v3", 0,                                \
      (void *device, unsigned *n, void *info))

static mli_cuda_lock mli_cuda_nvml_lock = MLI_CUDA_LOCK;
static int mli_cuda_nvml_users;
typedef struct mli_cuda_nvml_state {
#define MLI_CUDA_X(field, symbol, needed, params) int (*field) params;
    MLI_CUDA_NVML_FUNCTIONS(MLI_CUDA_X)
#undef MLI_CUDA_X
    void *library;                          /* NULL if NVML is not loaded */
    void *device[MEMLORD_CUDA_MAX_DEVICES]; /* NULL if NVML lacks the device, or if the device is in
                                               MIG mode (cut into instances) */
} mli_cuda_nvml_state;
static mli_cuda_nvml_state mli_cuda_nvml;

/* Returns NVML's handle of device i, or NULL if there is none. Returns NULL also for a device in
   MIG mode (cut into instances). All its instances have the same PCI id, and NVML's figures are
   those of the whole device. */
static void *mli_cuda_nvml_find(const mli_cuda_driver *d, int i) {
    char id[32] = "";
    unsigned cut = 0, pending;
    void *device = NULL;
    if (!d->device_pci || d->device_pci(id, (int)sizeof id, d->handle[i])) return NULL;
    if (mli_cuda_nvml.by_pci(id, &device)) return NULL;
    if (mli_cuda_nvml.mig && mli_cuda_nvml.mig(device, &cut, &pending) == 0 && cut) return NULL;
    return device;
}

enum { MLI_CUDA_HOLDERS_EVERY = 16, MLI_CUDA_HOLDERS_MISSES = 8 };
MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_holders_lock = MLI_CUDA_LOCK;
static mli_cuda_holders mli_cuda_holders_of[MEMLORD_CUDA_MAX_DEVICES];

static const mli_cuda_symbol mli_cuda_nvml_symbols[] = {
#define MLI_CUDA_X(field, symbol, needed, params)                                             \
    {symbol, (uint16_t)offsetof(mli_cuda_nvml_state, field), needed},
    MLI_CUDA_NVML_FUNCTIONS(MLI_CUDA_X)
#undef MLI_CUDA_X
};

static void mli_cuda_nvml_load(const mli_cuda_driver *d, const char *name) {
    void *library = mli_cuda_library_open(name);
    int i;
    if (!library) return;
    if (mli_cuda_library_fill(library, mli_cuda_nvml_symbols,
                              sizeof mli_cuda_nvml_symbols / sizeof(mli_cuda_symbol),
                              &mli_cuda_nvml) ||
        mli_cuda_nvml.init()) {
        mli_cuda_library_close(library);
        return;
    }
    mli_cuda_nvml.library = library;
    for (i = 0; i < d->known; i++) mli_cuda_nvml.device[i] = mli_cuda_nvml_find(d, i);
}

MLI_CUDA_PRIVATE void mli_cuda_nvml_acquire(const mli_cuda_driver *d, const char *name) {
    mli_cuda_lock_take(&mli_cuda_nvml_lock);
    if (!mli_cuda_nvml_users++) mli_cuda_nvml_load(d, name ? name : MLI_CUDA_NVML);
    mli_cuda_lock_drop(&mli_cuda_nvml_lock);
}
MLI_CUDA_PRIVATE void mli_cuda_nvml_release(void) {
    mli_cuda_lock_take(&mli_cuda_nvml_lock);
    if (!--mli_cuda_nvml_users) {
        if (mli_cuda_nvml.library) {
            (void)mli_cuda_nvml.shutdown();
            mli_cuda_library_close(mli_cuda_nvml.library);
        }
        memset(&mli_cuda_nvml, 0, sizeof mli_cuda_nvml);
        memset(mli_cuda_holders_of, 0, sizeof mli_cuda_holders_of);
    }
    mli_cuda_lock_drop(&mli_cuda_nvml_lock);
}

MLI_CUDA_PRIVATE int mli_cuda_nvml_query(int i, uint64_t *total, uint64_t *used) {
    unsigned long long info[3] = {0, 0, 0}; /* total, free, used */
    void *device = mli_cuda_nvml.device[i];
    if (!device || mli_cuda_nvml.memory(device, info) || !info[0]) return 0;
    *total = info[0];
    *used = info[0] - info[1];
    return 1;
}

/* Adds a process to `others` if it is among the largest. `others` is sorted by bytes,
   the largest first. */
static void mli_cuda_holder_add(mli_cuda_holders *h, uint64_t pid, uint64_t bytes) {
    int k = MEMLORD_OTHERS;
    while (k && h->others[k - 1].bytes < bytes) k--;
    if (k == MEMLORD_OTHERS || !pid) return; /* pid 0 means the end of `others` */
    memmove(&h->others[k + 1], &h->others[k], sizeof *h->others * (size_t)(MEMLORD_OTHERS - 1 - k));
    h->others[k].pid = pid;
    h->others[k].bytes = bytes;
}

/* Makes NVML list the processes. The list has room for 1024 processes, because NVML fills in none
   if the list is too short. The list is static, because a thread's stack may be small. Requires:
   the caller holds mli_cuda_holders_lock. */
static void mli_cuda_holders_ask(int i, int active, mli_cuda_holders *h) {
    static struct {
        unsigned pid;
        unsigned long long used;
        unsigned gpu_instance, compute_instance;
    } list[1024];
    unsigned count = sizeof list / sizeof *list, k;
    void *device = mli_cuda_nvml.device[i];
    int found = 0;
    h->ours = 0;
    memset(h->others, 0, sizeof h->others);
    if (!device || !mli_cuda_nvml.processes || mli_cuda_nvml.processes(device, &count, list))
        return;
    for (k = 0; k < count && k < sizeof list / sizeof *list; k++) {
        const int us = list[k].pid == mli_cuda_process_id();
        found |= us;
        if (list[k].used == UINT64_MAX) continue; /* NVML does not know the bytes */
        if (us)
            h->ours += list[k].used;
        else
            mli_cuda_holder_add(h, list[k].pid, list[k].used);
    }
    h->misses = found || !active ? 0 : h->misses + 1;
    if (h->misses) memset(h->others, 0, sizeof h->others);
}

MLI_CUDA_PRIVATE mli_cuda_holders mli_cuda_holders_get(int i, int active) {
    mli_cuda_holders *h = &mli_cuda_holders_of[i], copy;
    mli_cuda_lock_take(&mli_cuda_holders_lock);
    if (h->misses < MLI_CUDA_HOLDERS_MISSES && h->samples++ % MLI_CUDA_HOLDERS_EVERY == 0)
        mli_cuda_holders_ask(i, active, h);
    copy = *h;
    mli_cuda_lock_drop(&mli_cuda_holders_lock);
    return copy;
}

/* -------------------------------------------------------------------------- src/cuda/pools.h -- */

/* Owns the list of memory pools that wrapped calls have made or set. Other pools are not in the
   list, because they may be destroyed at any time. A pool is CUDA's store of memory of a device for
   calls such as cudaMallocAsync. A graph is work that a stream has recorded; it may hold memory,
   too. Locks: mli_cuda_pools_lock. No thread holds it while it calls the driver. */

enum { MLI_CUDA_POOLS = 64 };

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_pools_lock)

/* Puts a pool on the list. `device` is -1 for a pool of memory of the CPU. */
MLI_CUDA_PRIVATE void mli_cuda_pool_add(cudaMemPool_t pool, int device);

/* Takes a pool off the list, and waits until no thread asks the driver about pools. If the pool was
   on the list, stores its device in *device and returns 1. */
MLI_CUDA_PRIVATE int mli_cuda_pool_remove(cudaMemPool_t pool, int *device);

/* Adds up the bytes of a device's pools and graphs. If `keep` is not NULL, first trims the pools
   and graphs (lets them give back unused memory), but leaves *keep bytes in the pools together. The
   current pool (that of cudaMallocAsync) is the first that may keep bytes. Returns 0 if the driver
   tells nothing about the current pool. Requires: this thread has entered the device. */
MLI_CUDA_PRIVATE int mli_cuda_pools_ask(const mli_cuda_driver *d, int device, uint64_t *keep,
                                        memlord_cuda_pool *out);

/* -------------------------------------------------------------------------- src/cuda/pools.c -- */

MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_pools_lock = MLI_CUDA_LOCK;
static struct {
    cudaMemPool_t pool[MLI_CUDA_POOLS]; /* NULL if this place of the list is empty */
    int device[MLI_CUDA_POOLS];         /* the device of each pool; -1: memory of the CPU */
    uint64_t dropped;                   /* how many pools found no empty place */
    int asking;                         /* how many threads ask the driver about pools */
} mli_cuda_pools;

/* Returns the place of a pool in the list, or the first empty place if `pool` is NULL. Returns
   MLI_CUDA_POOLS if there is none. Requires: the caller holds mli_cuda_pools_lock. */
static int mli_cuda_pool_find(cudaMemPool_t pool) {
    int i = 0;
    while (i < MLI_CUDA_POOLS && mli_cuda_pools.pool[i] != pool) i++;
    return i;
}

MLI_CUDA_PRIVATE void mli_cuda_pool_add(cudaMemPool_t pool, int device) {
    int i;
    mli_cuda_lock_take(&mli_cuda_pools_lock);
    i = mli_cuda_pool_find(pool);
    if (i == MLI_CUDA_POOLS) i = mli_cuda_pool_find(NULL);
    if (i == MLI_CUDA_POOLS) {
        mli_cuda_pools.dropped++;
    } else {
        mli_cuda_pools.device[i] = device;
        mli_cuda_pools.pool[i] = pool;
    }
    mli_cuda_lock_drop(&mli_cuda_pools_lock);
}

MLI_CUDA_PRIVATE int mli_cuda_pool_remove(cudaMemPool_t pool, int *device) {
    int i;
    mli_cuda_lock_take(&mli_cuda_pools_lock);
    i = pool ? mli_cuda_pool_find(pool) : MLI_CUDA_POOLS;
    if (i < MLI_CUDA_POOLS) {
        *device = mli_cuda_pools.device[i];
        mli_cuda_pools.pool[i] = NULL;
    }
    /* A forked child inherits `asking`, but not the threads that would lower it. The child has no
       driver, so it does not wait. */
    while (mli_cuda_pools.asking && mli_cuda_driver_get()) {
        mli_cuda_lock_drop(&mli_cuda_pools_lock);
        mli_cuda_yield();
        mli_cuda_lock_take(&mli_cuda_pools_lock);
    }
    mli_cuda_lock_drop(&mli_cuda_pools_lock);
    return i < MLI_CUDA_POOLS;
}

/* Adds the bytes of a pool to a sum. If `keep` is not NULL, trims the pool to *keep bytes first,
   and subtracts from *keep what the pool still holds. Returns 0 if the driver refuses. */
static int mli_cuda_pool_ask(const mli_cuda_driver *d, cudaMemPool_t pool, uint64_t *keep,
                             memlord_cuda_pool *sum) {
    uint64_t bytes[4];
    int k;
    if (keep && d->pool_trim(pool, *keep > SIZE_MAX ? SIZE_MAX : (size_t)*keep)) return 0;
    for (k = 0; k < 4; k++)
        if (d->pool_attribute(pool, MLI_CUDA_POOL_RESERVED + k, &bytes[k])) return 0;
    sum->reserved += bytes[0], sum->reserved_high += bytes[1];
    sum->used += bytes[2], sum->used_high += bytes[3];
    sum->pools++;
    if (keep) *keep -= bytes[0] < *keep ? bytes[0] : *keep;
    return 1;
}

MLI_CUDA_PRIVATE int mli_cuda_pools_ask(const mli_cuda_driver *d, int device, uint64_t *keep,
                                        memlord_cuda_pool *out) {
    uint64_t graph[4] = {0, 0, 0, 0};
    cudaMemPool_t pools[MLI_CUDA_POOLS + 2] = {NULL, NULL}; /* the current pool, the default pool,
                                                               and those of the list */
    int i, k, n = 2, good;
    memset(out, 0, sizeof *out);
    mli_cuda_lock_take(&mli_cuda_pools_lock);
    mli_cuda_pools.asking++;
    for (i = 0; i < MLI_CUDA_POOLS; i++)
        if (mli_cuda_pools.pool[i] && mli_cuda_pools.device[i] == device)
            pools[n++] = mli_cuda_pools.pool[i];
    out->pools_dropped = mli_cuda_pools.dropped;
    mli_cuda_lock_drop(&mli_cuda_pools_lock);
    good = !d->pool_current(&pools[0], d->handle[device]);
    if (d->pool_default && d->pool_default(&pools[1], d->handle[device])) pools[1] = NULL;
    if (good) good = mli_cuda_pool_ask(d, pools[0], keep, out);
    for (i = 1; i < n && good; i++)
        if (pools[i] && pools[i] != pools[0] && (i == 1 || pools[i] != pools[1]))
            (void)mli_cuda_pool_ask(d, pools[i], keep, out);
    mli_cuda_lock_take(&mli_cuda_pools_lock);
    mli_cuda_pools.asking--;
    mli_cuda_lock_drop(&mli_cuda_pools_lock);
    if (keep && d->graph_trim) (void)d->graph_trim(d->handle[device]);
    for (k = 0; k < 4 && d->graph_attribute; k++) /* drivers before 11.4 lack this function */
        if (d->graph_attribute(d->handle[device], MLI_CUDA_GRAPH_USED + k, &graph[k]))
            graph[k] = 0;
    out->graph_used = graph[0], out->graph_used_high = graph[1];
    out->graph_reserved = graph[2], out->graph_reserved_high = graph[3];
    return good;
}

/* -------------------------------------------------------------------------- src/cuda/seats.h -- */

/* Owns the seats. A seat is the record of an attached ledger, with the description that the host
   gave. Seats are never freed, so a callback may keep a pointer to its seat. Locks:
   mli_cuda_process_lock. No thread holds it while it calls the ledger. */

/* The states of a seat. While it is CHANGING, one thread attaches or detaches its ledger, and no
   other thread may claim it. */
enum { MLI_CUDA_EMPTY, MLI_CUDA_CHANGING, MLI_CUDA_TAKEN };

typedef struct mli_cuda_attachment {
    int state;           /* MLI_CUDA_EMPTY, _CHANGING or _TAKEN */
    memlord *lord;       /* the ledger, or the last ledger of an empty seat */
    mli_cuda_u64 key;    /* the ledger's address, for threads that look without the lock; 0 if the
                            ledger is not attached; stored with release after `flags` */
    mli_cuda_u64 flags;  /* MEMLORD_CUDA_FLAG_... */
    mli_cuda_u64 keep_bytes; /* the bytes that a trim leaves in a device's pools */
    memlord_retry retry; /* the host's retry policy, if has_retry is 1; used under
                            mli_cuda_process_lock */
    int has_retry;       /* 1: `retry` is set; used under mli_cuda_process_lock */
    int has_nvml; /* 1: the seat is a user of NVML; used only by the thread that changes the seat */
    /* 1: the layer has told the ledger that the device shares the memory of the cpu */
    unsigned char shared[MEMLORD_CUDA_MAX_DEVICES];
    /* 1: the layer keeps the ledger's reserved bytes of the device up to date */
    mli_cuda_u64 pooled[MEMLORD_CUDA_MAX_DEVICES];
    /* the bytes that were in use on the device before this process made a context there; 0 if not
       known */
    mli_cuda_u64 before[MEMLORD_CUDA_MAX_DEVICES];
    /* the bytes that the driver needs for this process's context on the device; 0 if not known */
    mli_cuda_u64 context[MEMLORD_CUDA_MAX_DEVICES];
    /* 1: the ledger was told the UUID of the device */
    mli_cuda_u64 identified[MEMLORD_CUDA_MAX_DEVICES];
    /* the number of stream-ordered calls (such as cudaMallocAsync), counted only where there is an
       integrated GPU */
    mli_cuda_u64 calls;
} mli_cuda_attachment;

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_process_lock)
typedef struct mli_cuda_process_state {
    mli_cuda_attachment seats[MEMLORD_CUDA_MAX_LEDGERS];
    mli_cuda_u64 taken; /* the number of attached ledgers; changed under mli_cuda_process_lock */
} mli_cuda_process_state;
MLI_CUDA_VARIABLE(mli_cuda_process_state mli_cuda_process)

/* Returns the seat of a ledger, or NULL if the ledger is not attached. Takes no lock. */
MLI_CUDA_PRIVATE mli_cuda_attachment *mli_cuda_attachment_of(memlord *lord);

/* Claims the seat of a ledger, or else an empty one, for this thread to change. *seen gets the
   state that the seat had. Returns NULL if there is no empty seat, or if another thread changes the
   seat of this ledger. */
MLI_CUDA_PRIVATE mli_cuda_attachment *mli_cuda_attachment_claim(memlord *lord, int *seen);

/* Ends the change of a claimed seat, and sets its state. */
MLI_CUDA_PRIVATE void mli_cuda_attachment_set_state(mli_cuda_attachment *probe, int state);

/* Gives a claimed seat its description, or detaches its ledger if `desc` is NULL. Returns 1 if no
   ledger is attached any more. Loads NVML before it takes the lock, because loading may take long.
   Requires: the ledger does not call the seat's callbacks. */
MLI_CUDA_PRIVATE int mli_cuda_attachment_fill(mli_cuda_attachment *probe, int seen,
                                              const mli_cuda_driver *d,
                                              const memlord_cuda_desc *desc);

/* -------------------------------------------------------------------------- src/cuda/seats.c -- */

MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_process_lock = MLI_CUDA_LOCK;
MLI_CUDA_VARIABLE_HERE(mli_cuda_process_state mli_cuda_process)

MLI_CUDA_PRIVATE mli_cuda_attachment *mli_cuda_attachment_of(memlord *lord) {
    int i;
    if (!lord || !mli_cuda_load(&mli_cuda_process.taken)) return NULL;
    for (i = 0; i < MEMLORD_CUDA_MAX_LEDGERS; i++)
        if (mli_cuda_load_acquire(&mli_cuda_process.seats[i].key) == (uint64_t)(uintptr_t)lord)
            return &mli_cuda_process.seats[i];
    return NULL;
}

MLI_CUDA_PRIVATE mli_cuda_attachment *mli_cuda_attachment_claim(memlord *lord, int *seen) {
    mli_cuda_attachment *probe = NULL;
    int i;
    mli_cuda_lock_take(&mli_cuda_process_lock);
    for (i = 0; i < MEMLORD_CUDA_MAX_LEDGERS; i++) {
        mli_cuda_attachment *seat = &mli_cuda_process.seats[i];
        if (seat->state == MLI_CUDA_EMPTY ? !probe : seat->lord == lord) probe = seat;
    }
    if (probe && probe->state == MLI_CUDA_CHANGING) probe = NULL;
    if (probe) {
        *seen = probe->state;
        /* a taken seat already has this ledger in `lord`, and a callback may be reading `lord` */
        if (*seen == MLI_CUDA_EMPTY) probe->lord = lord;
        probe->state = MLI_CUDA_CHANGING;
    }
    mli_cuda_lock_drop(&mli_cuda_process_lock);
    return probe;
}

MLI_CUDA_PRIVATE void mli_cuda_attachment_set_state(mli_cuda_attachment *probe, int state) {
    mli_cuda_lock_take(&mli_cuda_process_lock);
    probe->state = state;
    mli_cuda_lock_drop(&mli_cuda_process_lock);
}

MLI_CUDA_PRIVATE int mli_cuda_attachment_fill(mli_cuda_attachment *probe, int seen,
                                              const mli_cuda_driver *d,
                                              const memlord_cuda_desc *desc) {
    int alone;
    if (probe->has_nvml) mli_cuda_nvml_release();
    probe->has_nvml = desc && !(desc->flags & MEMLORD_CUDA_FLAG_NO_NVML);
    if (probe->has_nvml) mli_cuda_nvml_acquire(d, desc->nvml);
    mli_cuda_lock_take(&mli_cuda_process_lock);
    if (seen == MLI_CUDA_TAKEN) mli_cuda_add(&mli_cuda_process.taken, UINT64_MAX);
    alone = mli_cuda_load(&mli_cuda_process.taken) == 0;
    if (desc) mli_cuda_add(&mli_cuda_process.taken, 1);
    mli_cuda_store(&probe->flags, desc ? desc->flags : 0);
    mli_cuda_store(&probe->keep_bytes, desc ? desc->keep_bytes : 0);
    probe->has_retry = desc && desc->retry;
    if (probe->has_retry) probe->retry = *desc->retry;
    /* the release store pairs with the acquire load in mli_cuda_attachment_of */
    mli_cuda_store_release(&probe->key, desc ? (uint64_t)(uintptr_t)probe->lord : 0);
    mli_cuda_lock_drop(&mli_cuda_process_lock);
    return alone && !desc;
}

/* ----------------------------------------------------------------------- src/cuda/capacity.h -- */

/* Tells a ledger what the layer (memlord_cuda.h) knows of a device: its capacity, this process's
   share, and what its pools hold. A pool is CUDA's store of memory for calls such as
   cudaMallocAsync. A graph is work that a stream has recorded; it may hold memory, too. An
   integrated GPU uses the cpu's memory. Pollers, which are the ledger's threads that sample a
   capacity, call these functions, and so do threads that ask for a sample. Owns no state. Locks:
   none. */

/* Returns the reserved bytes of a device: what its pools and graphs hold, and what is live outside
   of them. */
MLI_CUDA_PRIVATE uint64_t mli_cuda_pool_reserved(memlord *lord, int device,
                                                 const memlord_cuda_pool *pool);

/* Sets the ledger's reserved bytes of a device. Does nothing until a pool of CUDA has held a byte,
   because a host with a pool of its own reports that pool itself. Requires: this thread has entered
   the device with mli_cuda_enter_device. */
MLI_CUDA_PRIVATE void mli_cuda_pool_report(const mli_cuda_driver *d, mli_cuda_attachment *probe,
                                           memlord *lord, int device);

/* Adds `delta` to the ledger's reserved bytes of a device, when memory outside of pools is
   allocated or freed. If cudaFree frees a block of a pool, the block counts as outside of pools
   until the next sample. */
MLI_CUDA_PRIVATE void mli_cuda_pool_beside(memlord *lord, memlord_device device, int64_t delta);

/* Sets the reserved bytes of the integrated GPUs: always if `now` is 1, else in one of 64 calls.
   Samples do not set these bytes, because the cpu is sampled in place of these GPUs. So the wrapped
   calls that fill and empty the pools of these GPUs call this function. */
MLI_CUDA_PRIVATE void mli_cuda_pool_check(memlord *lord, int now);

/* Is the ledger's capacity source for cuda devices: stores the capacity of a device in *out. `user`
   is the ledger's mli_cuda_attachment. Returns 0, or -1 if nothing is known. */
MLI_CUDA_PRIVATE int mli_cuda_capacity(void *user, memlord_device device, memlord_capacity *out);

/* ----------------------------------------------------------------------- src/cuda/capacity.c -- */

MLI_CUDA_PRIVATE uint64_t mli_cuda_pool_reserved(memlord *lord, int device,
                                                 const memlord_cuda_pool *pool) {
    uint64_t live = memlord_allocated(lord, memlord_device_cuda(device));
    uint64_t inside = memlord_pending(lord, memlord_device_cuda(device));
    inside += pool->used + pool->graph_used;
    return pool->reserved + pool->graph_reserved + (live > inside ? live - inside : 0);
}

MLI_CUDA_PRIVATE void mli_cuda_pool_report(const mli_cuda_driver *d, mli_cuda_attachment *probe,
                                           memlord *lord, int device) {
    memlord_cuda_pool pool;
    if (mli_cuda_load(&probe->flags) & MEMLORD_CUDA_FLAG_NO_RESERVED) return;
    if (!d->pools[device] || !mli_cuda_pools_ask(d, device, NULL, &pool)) return;
    if (!mli_cuda_load(&probe->pooled[device])) {
        if (!pool.reserved_high && !pool.graph_reserved_high) return;
        mli_cuda_store(&probe->pooled[device], 1); /* the store is relaxed, because only detaching
                                                      clears the flag */
    }
    (void)memlord_pool_set(lord, memlord_device_cuda(device),
                           mli_cuda_pool_reserved(lord, device, &pool), UINT64_MAX);
}

MLI_CUDA_PRIVATE void mli_cuda_pool_beside(memlord *lord, memlord_device device, int64_t delta) {
    mli_cuda_attachment *probe = mli_cuda_attachment_of(lord);
    memlord_stats s;
    if (!probe || !delta || device.type != MEMLORD_DEVICE_CUDA ||
        device.index >= MEMLORD_CUDA_MAX_DEVICES ||
        !mli_cuda_load(&probe->pooled[device.index]))
        return;
    if (delta < 0) (void)memlord_stats_get(lord, device, &s);
    if (delta > 0 || s.reserved + (uint64_t)delta <= s.reserved) /* never takes the reserved bytes
                                                                    below 0 */
        (void)memlord_pool_add(lord, device, delta);
}

MLI_CUDA_PRIVATE void mli_cuda_pool_check(memlord *lord, int now) {
    const mli_cuda_driver *d;
    mli_cuda_attachment *probe = mli_cuda_attachment_of(lord);
    int i, mode;
    if (!probe) return; /* a ledger that is not attached must not load the driver */
    d = mli_cuda_driver_get();
    if (!d || !d->any_integrated) return;
    if (!now && mli_cuda_add(&probe->calls, 1) % 64) return;
    for (i = 0; i < d->known; i++) {
        if (!d->integrated[i] || !mli_cuda_enter_device(d, i, &mode)) continue;
        mli_cuda_pool_report(d, probe, lord, i);
        mli_cuda_leave_device(d, i, &mode);
    }
}

/* Reads the cpu's capacity for an integrated GPU. The ledger asks for this only if it has refused
   to let the GPU share the cpu's memory. The driver's free bytes would not do, because they do
   not include the page cache. */
static int mli_cuda_capacity_cpu(memlord *lord, memlord_capacity *out) {
    memlord_capacity cpu;
    (void)memlord_capacity_sample(lord, memlord_device_cpu());
    if (memlord_capacity_get(lord, memlord_device_cpu(), &cpu) || !cpu.known) return -1;
    out->total = cpu.total;
    out->used = cpu.used;
    out->process = cpu.process;
    return 0;
}

/* Returns the bytes of this process's context on device i, which is what the driver itself needs
   there. The function computes them once, when a sample first finds the context: the bytes that the
   process holds then, less those in the ledger. If NVML does not name the process, the function
   takes the growth of the device's used bytes instead, since the layer last saw the device without
   the context. */
static uint64_t mli_cuda_context_size(mli_cuda_attachment *probe, int i, uint64_t process) {
    memlord_stats s;
    uint64_t held, total, used, more = process, before = mli_cuda_load(&probe->before[i]);
    uint64_t size = mli_cuda_load(&probe->context[i]);
    if (size || memlord_stats_get(probe->lord, memlord_device_cuda(i), &s)) return size;
    held = s.reserved > s.allocated ? s.reserved : s.allocated;
    if (!process && before && mli_cuda_nvml_query(i, &total, &used))
        more = used > before ? used - before : 0;
    size = more > held ? more - held : 0;
    mli_cuda_store(&probe->context[i], size);
    return size;
}

/* Sets the identity by which other processes know a device: its UUID as nvidia-smi -L prints it.
   (The index of a device depends on CUDA_VISIBLE_DEVICES.) A MIG device is one of several instances
   that a GPU is cut into, and each has a UUID of its own. */
static void mli_cuda_identify(mli_cuda_attachment *probe, const mli_cuda_driver *d, int i) {
    unsigned char uuid[16];
    char text[48], name[256] = "";
    int k, n;
    if (mli_cuda_load(&probe->identified[i]) || !d->device_uuid) return;
    if (d->device_uuid(uuid, d->handle[i])) return;
    if (d->device_name) (void)d->device_name(name, (int)sizeof name, d->handle[i]);
    n = snprintf(text, sizeof text, "%s", strstr(name, " MIG ") ? "MIG" : "GPU");
    for (k = 0; k < 16; k++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%02x",
                      k % 2 == 0 && (k == 0 || (k >= 4 && k <= 10)) ? "-" : "", uuid[k]);
    if (memlord_device_id_set(probe->lord, memlord_device_cuda(i), text) == MEMLORD_OK)
        mli_cuda_store(&probe->identified[i], 1);
}

MLI_CUDA_PRIVATE int mli_cuda_capacity(void *user, memlord_device device, memlord_capacity *out) {
    mli_cuda_attachment *probe = (mli_cuda_attachment *)user;
    const mli_cuda_driver *d = mli_cuda_driver_get();
    int no_nvml = (mli_cuda_load(&probe->flags) & MEMLORD_CUDA_FLAG_NO_NVML) != 0;
    int i = device.index, mode, known = 0;
    size_t unused = 0, total = 0;
    mli_cuda_holders holders;
    if (!d || i < 0 || i >= d->known) return -1;
    if (d->integrated[i]) {
        mli_cuda_pool_check(probe->lord, 1);
        return mli_cuda_capacity_cpu(probe->lord, out);
    }
    mli_cuda_identify(probe, d, i);
    if (mli_cuda_enter_device(d, i, &mode)) {
        known = d->memory_info(&unused, &total) == 0 && total > 0;
        mli_cuda_pool_report(d, probe, probe->lord, i);
        mli_cuda_leave_device(d, i, &mode);
    }
    if (known) {
        out->total = total;
        out->used = total - unused;
    } else if (!no_nvml && mli_cuda_nvml_query(i, &out->total, &out->used)) {
        /* `total` and `used` both come from NVML here, because NVML's total is not the driver's */
        if (!mli_cuda_active(d, i)) mli_cuda_store(&probe->before[i], out->used);
    } else {
        return -1;
    }
    if (no_nvml) return 0;
    holders = mli_cuda_holders_get(i, known);
    out->process = holders.ours;
    memcpy(out->others, holders.others, sizeof out->others);
    if (known) out->context = mli_cuda_context_size(probe, i, holders.ours);
    return 0;
}

/* ------------------------------------------------------------------------- src/cuda/events.h -- */

/* Owns the events that are kept for reuse, their contexts, and the memory of small records. A
   stream is a queue of work on a device. An event is recorded on a stream, and is done when the
   work before it is done. A context is the driver's state of a process on a device. May use
   cuda/driver. Locks: mli_cuda_streams_lock, which cuda/streams takes, too. No thread holds it
   while it calls the driver or the ledger. */

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_streams_lock)

typedef struct mli_cuda_event {
    struct mli_cuda_event *next; /* the next event that the same context keeps */
    cudaEvent_t handle;          /* NULL if the driver has not made the event yet */
} mli_cuda_event;

/* A context of the driver. It keeps events for its own streams, because an event serves no stream
   of another context. */
typedef struct mli_cuda_context {
    struct mli_cuda_context *next;
    void *handle;
    unsigned long long id;   /* what cuCtxGetId says; 0 if that is not known */
    unsigned streams;        /* the number of known streams of this context */
    mli_cuda_event *kept[2]; /* the kept events: [0] those without timing, [1] those with timing */
    int n[2];                /* the length of each of these lists */
} mli_cuda_context;

/* mli_cuda_cell_take returns a zeroed record of a kind (MLI_CUDA_CELL_...), or NULL if there is no
   memory. mli_cuda_cell_give gives a record back. Records are cut from pages that are never freed,
   and each kind has a list of unused records. Requires: the caller holds mli_cuda_streams_lock. */
enum { MLI_CUDA_CELL_FENCE, MLI_CUDA_CELL_STREAM, MLI_CUDA_CELL_EVENT, MLI_CUDA_CELL_CONTEXT,
       MLI_CUDA_CELL_TIME, MLI_CUDA_CELLS };
MLI_CUDA_PRIVATE void *mli_cuda_cell_take(int kind, size_t size);
MLI_CUDA_PRIVATE void mli_cuda_cell_give(int kind, void *cell);

/* Returns the record of the context with this handle, and counts one more stream of it. Returns
   NULL if there is no memory. *died is 1 if another context had the handle before; the events kept
   for that context are then forgotten. Requires: the caller holds mli_cuda_streams_lock. */
MLI_CUDA_PRIVATE mli_cuda_context *mli_cuda_context_enter(void *handle, unsigned long long id,
                                                          int *died);

/* Returns an event that the context has kept, or a new event without a handle. Returns NULL if
   there is no memory. `context` may be NULL. Requires: the caller holds mli_cuda_streams_lock. */
MLI_CUDA_PRIVATE mli_cuda_event *mli_cuda_event_take(mli_cuda_context *context, int timed);
/* Keeps an event for reuse. `event` may be NULL. Requires: the caller holds
   mli_cuda_streams_lock. */
MLI_CUDA_PRIVATE void mli_cuda_event_keep(mli_cuda_context *context, int timed,
                                          mli_cuda_event *event);

/* Makes the handle of an event in a context. Returns the driver's error. */
MLI_CUDA_PRIVATE int mli_cuda_event_make(const mli_cuda_driver *d, void *context, int timed,
                                         mli_cuda_event *event);
/* Calls a function of the driver for an event, and returns the driver's error. An event knows its
   context, so the first call makes no context current. If the driver still asks for a current
   context, calls again with `context` current. Requires: the capture mode is relaxed
   (mli_cuda_relax). */
MLI_CUDA_PRIVATE int mli_cuda_event_call(const mli_cuda_driver *d, int (*call)(cudaEvent_t),
                                         void *context, cudaEvent_t event);
/* Destroys kept events of a context, until the context keeps at most `most` events with timing
   and `most` without. */
MLI_CUDA_PRIVATE void mli_cuda_events_trim(mli_cuda_context *context, int most);
/* Destroys all events that are kept, and forgets the contexts without a known stream. */
MLI_CUDA_PRIVATE void mli_cuda_events_end(void);

/* ------------------------------------------------------------------------- src/cuda/events.c -- */

MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_streams_lock = MLI_CUDA_LOCK;

/* -- records -- */

typedef struct mli_cuda_cell {
    struct mli_cuda_cell *next;
} mli_cuda_cell;
static mli_cuda_cell *mli_cuda_cells[MLI_CUDA_CELLS];

/* Takes its memory as pages from the operating system, and so never calls the host's malloc. */
MLI_CUDA_PRIVATE void *mli_cuda_cell_take(int kind, size_t size) {
    enum { PIECE = 16384 };
    mli_cuda_cell *cell = mli_cuda_cells[kind];
    if (!cell) {
        memlord_allocator pages;
        char *made;
        size_t at;
        memlord_os_allocator(&pages);
        made = (char *)pages.alloc(pages.user, PIECE);
        for (at = 0; made && at + size <= PIECE; at += size)
            mli_cuda_cell_give(kind, made + at);
        cell = mli_cuda_cells[kind];
        if (!cell) return NULL;
    }
    mli_cuda_cells[kind] = cell->next;
    return memset((void *)cell, 0, size);
}
MLI_CUDA_PRIVATE void mli_cuda_cell_give(int kind, void *cell) {
    mli_cuda_cell *given = (mli_cuda_cell *)cell;
    given->next = mli_cuda_cells[kind];
    mli_cuda_cells[kind] = given;
}

/* -- contexts -- */

static mli_cuda_context *mli_cuda_contexts;

static mli_cuda_event *mli_cuda_event_pop(mli_cuda_context *context, int timed) {
    mli_cuda_event *event = context->kept[timed];
    if (!event) return NULL;
    context->kept[timed] = event->next;
    context->n[timed]--;
    return event;
}

MLI_CUDA_PRIVATE mli_cuda_context *mli_cuda_context_enter(void *handle, unsigned long long id,
                                                          int *died) {
    mli_cuda_context *c = mli_cuda_contexts;
    mli_cuda_event *event;
    int timed;
    while (c && c->handle != handle) c = c->next;
    if (!c) {
        c = (mli_cuda_context *)mli_cuda_cell_take(MLI_CUDA_CELL_CONTEXT, sizeof *c);
        if (!c) return NULL;
        c->handle = handle;
        c->next = mli_cuda_contexts;
        mli_cuda_contexts = c;
    }
    *died = c->id && id && c->id != id;
    for (timed = 0; timed < 2 && *died; timed++)
        while ((event = mli_cuda_event_pop(c, timed)) != NULL)
            mli_cuda_cell_give(MLI_CUDA_CELL_EVENT, event);
    if (id) c->id = id;
    c->streams++;
    return c;
}

/* -- events -- */

MLI_CUDA_PRIVATE mli_cuda_event *mli_cuda_event_take(mli_cuda_context *context, int timed) {
    mli_cuda_event *event = context ? mli_cuda_event_pop(context, timed) : NULL;
    if (event) return event;
    return (mli_cuda_event *)mli_cuda_cell_take(MLI_CUDA_CELL_EVENT, sizeof *event);
}
MLI_CUDA_PRIVATE void mli_cuda_event_keep(mli_cuda_context *context, int timed,
                                          mli_cuda_event *event) {
    if (!event) return;
    if (!event->handle) {
        mli_cuda_cell_give(MLI_CUDA_CELL_EVENT, event);
        return;
    }
    event->next = context->kept[timed];
    context->kept[timed] = event;
    context->n[timed]++;
}

MLI_CUDA_PRIVATE int mli_cuda_event_make(const mli_cuda_driver *d, void *context, int timed,
                                         mli_cuda_event *event) {
    void *current = NULL;
    int mode, pushed = 0, r = d->context_current(&current);
    if (!r && current != context) {
        r = d->context_push(context);
        pushed = !r;
    }
    if (!r) r = mli_cuda_relax(d, &mode);
    if (!r) {
        r = d->event_create(&event->handle, timed ? 0 : MLI_CUDA_EVENT_PLAIN);
        (void)d->capture_mode(&mode);
    }
    if (r) event->handle = NULL;
    if (pushed) (void)d->context_pop(&current);
    return r;
}

MLI_CUDA_PRIVATE int mli_cuda_event_call(const mli_cuda_driver *d, int (*call)(cudaEvent_t),
                                         void *context, cudaEvent_t event) {
    int r = call(event);
    if (r != MLI_CUDA_NO_CONTEXT || d->context_push(context)) return r;
    r = call(event);
    (void)d->context_pop(&context);
    return r;
}

MLI_CUDA_PRIVATE void mli_cuda_events_trim(mli_cuda_context *context, int most) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_event *event = NULL;
    int mode, timed;
    for (timed = 0; timed < 2; timed += !event) {
        mli_cuda_lock_take(&mli_cuda_streams_lock);
        if (event) mli_cuda_cell_give(MLI_CUDA_CELL_EVENT, event);
        event = context->n[timed] > most ? mli_cuda_event_pop(context, timed) : NULL;
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
        if (!event || !d || mli_cuda_relax(d, &mode)) continue;
        (void)mli_cuda_event_call(d, d->event_destroy, context->handle, event->handle);
        (void)d->capture_mode(&mode);
    }
}

MLI_CUDA_PRIVATE void mli_cuda_events_end(void) {
    mli_cuda_context **at, *c;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    for (c = mli_cuda_contexts; c; c = c->next) {
        c->streams++; /* so that the context stays in the list while the lock is dropped */
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
        mli_cuda_events_trim(c, 0);
        mli_cuda_lock_take(&mli_cuda_streams_lock);
        c->streams--;
    }
    for (at = &mli_cuda_contexts; (c = *at) != NULL;) {
        if (c->streams || c->n[0] || c->n[1]) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        mli_cuda_cell_give(MLI_CUDA_CELL_CONTEXT, c);
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}

/* ------------------------------------------------------------------------ src/cuda/streams.h -- */

/* Owns the streams that frees wait for, and the fences on them. A stream is a queue of work on a
   device. An event is recorded on a stream, and is done when the work before it is done. A fence
   makes a freed block wait until a stream has done the work that was queued before the free. While
   a stream is captured, its work is recorded and not run, and no event can be recorded for a fence.
   A context is the driver's state of a process on a device. May use cuda/events and cuda/driver.
   Locks: mli_cuda_streams_lock. No thread holds it while it calls the driver or the ledger. */

/* Each free that waits for a stream gets a position on that stream. The positions of a stream count
   up from 1. An event that is recorded on the stream stands for all positions given before. When
   the event is done, the frees with these positions are done, too. So a stream needs no list of its
   frees. All frees that are made during a capture need only one event after the capture. All fences
   on a stream that ends need only one event, too. A stream stays known for a while after its last
   fence, because making the stream known again takes more calls of the driver. */

/* The most events that a stream has at a time. */
enum { MLI_CUDA_MARKS = 32 };

/* The states of a stream. ENDS means that the stream is destroyed, and no event may be recorded on
   it. CLOSED means that a thread is ending the stream, or that the stream's context is gone. Other
   threads may then neither record an event on the stream nor query its events. A look-up by handle
   finds only an OPEN stream. A reset finds the streams of the device's context in every state,
   because the reset waits for the frees on destroyed streams, too. */
enum { MLI_CUDA_OPEN, MLI_CUDA_ENDS, MLI_CUDA_CLOSED };

/* A mark: an event that is recorded, and the last position that it stands for. */
typedef struct mli_cuda_mark {
    mli_cuda_event *event;
    uint64_t position;
} mli_cuda_mark;

typedef struct mli_cuda_stream {
    struct mli_cuda_stream *next; /* the next stream in the same bucket */
    cudaStream_t handle;
    unsigned long long id;     /* what cuStreamGetId says, or a hash that stands in for it */
    uint64_t thread;           /* the thread that made the stream known, by mli_cuda_thread_id */
    mli_cuda_context *context; /* NULL if the context is not known yet */
    int device;                /* the device of the block that made the stream known; a default
                                  stream without a context gets the primary context of that
                                  device */
    uint64_t number;           /* no other stream has or had this number */
    unsigned users;            /* how many fences, scopes and calls use the stream */
    unsigned inside;           /* how many threads call the driver for the stream */
    unsigned unplaced;         /* how many fences have no position yet, because their blocks are not
                                  freed yet */
    uint64_t given;            /* the last position that was given; each free gets one, and so does
                                  the end of the stream */
    uint64_t recorded;         /* the last position that an event stands for */
    uint64_t done;             /* the last position known to be done */
    uint64_t failed;           /* the last position whose event has failed */
    uint64_t refused;          /* up to this position, a free that has no event never gets one */
    uint64_t apart;            /* a new mark replaces the last mark if the new mark is at most this
                                  many positions after the mark before the last */
    uint64_t pass;             /* the number of the last call of mli_cuda_streams_record that took
                                  the stream */
    unsigned char listed;      /* 1: the stream is in its bucket; 0: its context is gone */
    unsigned char state;       /* MLI_CUDA_OPEN, _ENDS or _CLOSED */
    unsigned char asking;      /* 1: a thread queries the stream's events, so no other thread
                                  queries or replaces them */
    unsigned char answered;    /* 1: when the ledger first asks whether a fence is done, the answer
                                  is "not yet" without a call of the driver */
    int n;                              /* the number of marks */
    mli_cuda_mark mark[MLI_CUDA_MARKS]; /* the events not known to be done, in their order */
} mli_cuda_stream;

/* What the `user` of the layer's memlord_fence points to. */
typedef struct mli_cuda_fence {
    mli_cuda_stream *stream;
    uint64_t position; /* the fence's position on its stream; 0 if the fence has none yet */
    int asked;         /* 1: the ledger has asked before whether the fence is done */
} mli_cuda_fence;

/* 1: this thread waits for an event where it would otherwise only ask whether the event is done. */
MLI_CUDA_VARIABLE(MEMLORD_THREAD_LOCAL int mli_cuda_waits)

/* Returns 1 for a default stream, which has the handle 0, 1 or 2. Every context has a legacy
   default stream, and every thread has a per-thread one in each context. */
MLI_CUDA_PRIVATE int mli_cuda_is_default(cudaStream_t handle);

/* Returns cudaStreamPerThread if `handle` is 0 and the file is compiled so that 0 means the
   per-thread stream. Otherwise returns `handle`. */
MLI_CUDA_PRIVATE cudaStream_t mli_cuda_stream_handle(cudaStream_t handle);

/* Returns the stream of a handle, and adds a user to the stream. Returns NULL if there is no
   memory. `device` is the device of the block that waits for the stream, or 0 without a block.
   *here is 1 if the stream is a default stream of the context that is current. (On a thread that
   never called the runtime no context is current.) */
MLI_CUDA_PRIVATE mli_cuda_stream *mli_cuda_stream_find(cudaStream_t handle, int device, int *here);
/* Removes a user from a stream, for example the user that mli_cuda_stream_find added. */
MLI_CUDA_PRIVATE void mli_cuda_stream_leave(mli_cuda_stream *s);

/* Records an event for those frees on the stream that have no event yet. Returns 1 if they have one
   now. Returns 0 if no event can be recorded now, for example because the stream is captured.
   Returns -1 if these frees never get an event. `here` is the *here of mli_cuda_stream_find on this
   thread, or 0. */
MLI_CUDA_PRIVATE int mli_cuda_stream_record(mli_cuda_stream *s, int here);

/* Calls mli_cuda_stream_record for the streams with this handle, or for all streams if `handle` is
   NULL, except for the per-thread streams of other threads. Wrappers call this before the host
   waits for the streams, because an event that is recorded after the wait is rarely done at once.
   They also call it after a capture. */
MLI_CUDA_PRIVATE void mli_cuda_streams_record(const cudaStream_t *handle);

/* Ends the streams with this handle, and records one event for all fences on each stream. If
   `handle` is NULL, ends the streams of a context instead, and waits for their events. */
MLI_CUDA_PRIVATE void mli_cuda_streams_end(const cudaStream_t *handle, const void *context);

/* Records an event with timing on a stream and returns it. Returns NULL if that cannot be done
   now. */
MLI_CUDA_PRIVATE mli_cuda_event *mli_cuda_stream_time(mli_cuda_stream *s, int here);

/* Makes a fence on a stream. Returns NULL if there is no memory. A `placed` fence waits for the
   work that the stream has now. Any other fence waits for the work that the stream has when the
   ledger first asks the fence whether it is done. */
MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fence_on(mli_cuda_stream *s, int placed);
/* Is the function `done` of a memlord_fence. Returns 1 for done, 0 for not yet, -1 for failed. */
MLI_CUDA_PRIVATE int mli_cuda_fence_done(void *user);
/* Is the function `drop` of a memlord_fence. Frees the fence. */
MLI_CUDA_PRIVATE void mli_cuda_fence_free(void *user);
/* Sets the field `answered` of a stream. */
MLI_CUDA_PRIVATE void mli_cuda_stream_answer(mli_cuda_stream *s, int answered);

/* Forgets the streams that no fence, scope or call uses. Keeps their events for reuse. */
MLI_CUDA_PRIVATE void mli_cuda_streams_forget(void);

/* ------------------------------------------------------------------------ src/cuda/streams.c -- */

enum { MLI_CUDA_BUCKETS = 256, MLI_CUDA_IDLE = 64 };
#define MLI_CUDA_HASHED (1ull << 63) /* this bit marks an id that is a hash instead of the driver's
                                        id */

MLI_CUDA_VARIABLE_HERE(MEMLORD_THREAD_LOCAL int mli_cuda_waits)

static struct {
    mli_cuda_stream *bucket[MLI_CUDA_BUCKETS];
    unsigned idle;    /* how many streams have no user */
    uint64_t numbers; /* the number that the last new stream got */
    uint64_t passes;  /* how often mli_cuda_streams_record was called; each call is a pass */
} mli_cuda_streams;

/* Returns a number of this thread that no other living thread has. */
static uint64_t mli_cuda_thread_id(void) { return (uint64_t)(uintptr_t)&mli_cuda_waits; }

MLI_CUDA_PRIVATE int mli_cuda_is_default(cudaStream_t handle) { return (uintptr_t)handle <= 2; }

MLI_CUDA_PRIVATE cudaStream_t mli_cuda_stream_handle(cudaStream_t handle) {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
    if (!handle) return cudaStreamPerThread;
#endif
    return handle;
}

/* Drops the lock, gives other threads time, and takes the lock again. */
static void mli_cuda_streams_yield(void) {
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    mli_cuda_yield();
    mli_cuda_lock_take(&mli_cuda_streams_lock);
}

/* -- the known streams; all functions here require mli_cuda_streams_lock -- */

static mli_cuda_stream **mli_cuda_bucket(cudaStream_t handle) {
    uint64_t hash = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u;
    return &mli_cuda_streams.bucket[hash >> 56];
}

static void mli_cuda_stream_unlist(mli_cuda_stream *s) {
    mli_cuda_stream **at = mli_cuda_bucket(s->handle);
    if (!s->listed) return;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    s->listed = 0;
}

static void mli_cuda_stream_use(mli_cuda_stream *s) {
    if (!s->users++) mli_cuda_streams.idle--;
}

/* Removes the stream's n oldest recorded events, and keeps them for reuse. */
static void mli_cuda_marks_end(mli_cuda_stream *s, int n) {
    int i;
    for (i = 0; i < n; i++) mli_cuda_event_keep(s->context, 0, s->mark[i].event);
    s->n -= n;
    memmove(s->mark, s->mark + n, (size_t)s->n * sizeof *s->mark);
}

/* Forgets a stream. Requires: the stream has no user. */
static void mli_cuda_stream_free(mli_cuda_stream *s) {
    mli_cuda_streams.idle--;
    mli_cuda_stream_unlist(s);
    mli_cuda_marks_end(s, s->n);
    if (s->context) s->context->streams--;
    mli_cuda_cell_give(MLI_CUDA_CELL_STREAM, s);
}

/* Frees streams without a user, bucket by bucket, until at most `most` of them are left. */
static void mli_cuda_streams_evict(unsigned most) {
    mli_cuda_stream *s, *next;
    int i;
    for (i = 0; i < MLI_CUDA_BUCKETS && mli_cuda_streams.idle > most; i++)
        for (s = mli_cuda_streams.bucket[i]; s; s = next) {
            next = s->next;
            if (!s->users) mli_cuda_stream_free(s);
        }
}
MLI_CUDA_PRIVATE void mli_cuda_streams_forget(void) {
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    mli_cuda_streams_evict(0);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}

/* Ends a stream that the driver no longer has. The frees for which no event is recorded have
   failed. If the stream's context is gone, too, so are the events, and all frees on the stream that
   are not done have failed. */
static void mli_cuda_stream_died(mli_cuda_stream *s, int with_context) {
    int i;
    if (with_context) mli_cuda_stream_unlist(s);
    s->state = (unsigned char)(with_context ? MLI_CUDA_CLOSED : MLI_CUDA_ENDS);
    s->refused = ++s->given;
    if (with_context) {
        s->failed = s->given;
        for (i = 0; i < s->n; i++) mli_cuda_cell_give(MLI_CUDA_CELL_EVENT, s->mark[i].event);
        s->n = 0;
    }
    if (!s->users) mli_cuda_stream_free(s);
}

/* Gives a stream its context. `handle` and `id` are those of the context. If an earlier context had
   the same handle, ends the streams of the earlier context. */
static void mli_cuda_stream_place(mli_cuda_stream *s, void *handle, unsigned long long id) {
    mli_cuda_context *context;
    mli_cuda_stream *other, *next;
    int died = 0, i;
    if (!handle || s->context) return;
    context = mli_cuda_context_enter(handle, id, &died);
    for (i = 0; i < MLI_CUDA_BUCKETS && died; i++)
        for (other = mli_cuda_streams.bucket[i]; other; other = next) {
            next = other->next;
            if (other->context == context) mli_cuda_stream_died(other, 1);
        }
    s->context = context;
}

/* Returns the open stream with this handle and id, and adds a user. If there is none, makes the
   stream if `add` is 1, else returns NULL. Before it makes the stream, it ends an open stream that
   has this handle and another id, if both ids are the driver's. (The driver gave the handle to a
   new stream, so the old stream was destroyed.) */
static mli_cuda_stream *mli_cuda_stream_known(cudaStream_t handle, unsigned long long id, int add) {
    mli_cuda_stream **bucket = mli_cuda_bucket(handle), *s = *bucket, *next;
    while (s && (s->handle != handle || s->id != id || s->state)) s = s->next;
    if (!s && add) {
        for (s = *bucket; s && !mli_cuda_is_default(handle); s = next) {
            next = s->next;
            if (s->handle == handle && !s->state && !((s->id | id) & MLI_CUDA_HASHED))
                mli_cuda_stream_died(s, 0);
        }
        if (mli_cuda_streams.idle >= MLI_CUDA_IDLE) mli_cuda_streams_evict(MLI_CUDA_IDLE / 2);
        s = (mli_cuda_stream *)mli_cuda_cell_take(MLI_CUDA_CELL_STREAM, sizeof *s);
        if (!s) return NULL;
        s->handle = handle;
        s->id = id;
        s->thread = mli_cuda_thread_id();
        s->number = ++mli_cuda_streams.numbers;
        s->listed = 1;
        s->next = *bucket;
        *bucket = s;
        mli_cuda_streams.idle++;
    }
    if (s) mli_cuda_stream_use(s);
    return s;
}

/* -- what the driver says of a stream -- */

/* The context of a stream, and the context's id from cuCtxGetId. The id is 0 if it is not known. */
typedef struct mli_cuda_home {
    void *context;
    unsigned long long id;
} mli_cuda_home;

/* Asks for the context of a stream. For a default stream that is the context current on this
   thread. Returns the driver's error. */
static int mli_cuda_home_of(const mli_cuda_driver *d, cudaStream_t handle, mli_cuda_home *home) {
    int r;
    memset(home, 0, sizeof *home);
    r = mli_cuda_is_default(handle) ? d->context_current(&home->context)
                                    : d->stream_context(handle, &home->context);
    if (r) home->context = NULL;
    if (home->context && d->context_id && d->context_id(home->context, &home->id)) home->id = 0;
    return r;
}

MLI_CUDA_PRIVATE mli_cuda_stream *mli_cuda_stream_find(cudaStream_t handle, int device, int *here) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_home home = {NULL, 0};
    unsigned long long id = 0;
    mli_cuda_stream *s;
    int named = d && d->stream_id && !d->stream_id(handle, &id);
    if (d && !named) (void)mli_cuda_home_of(d, handle, &home);
    if (!named) {
        id = (unsigned long long)(uintptr_t)home.context * 0x9e3779b97f4a7c15u;
        id += handle == cudaStreamPerThread ? mli_cuda_thread_id() << 8 : 0;
        id = MLI_CUDA_HASHED | (home.context ? id : id + (unsigned)device);
    }
    *here = mli_cuda_is_default(handle) && (named || home.context);
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s = mli_cuda_stream_known(handle, id, 0);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    if (s) return s;
    if (named) (void)mli_cuda_home_of(d, handle, &home);
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s = mli_cuda_stream_known(handle, id, 1);
    if (s && s->users == 1) s->device = device;
    if (s) mli_cuda_stream_place(s, home.context, home.id);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    return s;
}

MLI_CUDA_PRIVATE void mli_cuda_stream_leave(mli_cuda_stream *s) {
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    if (!--s->users) {
        mli_cuda_streams.idle++;
        if (s->state) mli_cuda_stream_free(s);
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}

/* Finds the context of a stream whose context is not known, and gives it to the stream. For a
   default stream that is the primary context of the stream's device. Returns the driver's error. */
static int mli_cuda_stream_home(const mli_cuda_driver *d, mli_cuda_stream *s, void **context) {
    mli_cuda_home home = {NULL, 0};
    unsigned flags;
    int active = 0, mode, r;
    if (!mli_cuda_is_default(s->handle)) {
        r = mli_cuda_home_of(d, s->handle, &home);
    } else {
        if (s->device >= d->known) return MLI_CUDA_NO_CONTEXT;
        r = d->primary_state(d->handle[s->device], &flags, &active);
        if (!r && !active) r = MLI_CUDA_NO_CONTEXT;
        if (!r) r = mli_cuda_relax(d, &mode); /* a capture may forbid retaining a context */
        if (r) return r;
        r = d->primary_retain(&home.context, d->handle[s->device]);
        /* this release does not end the context: it was active before, so others hold it */
        if (!r) (void)d->primary_release(d->handle[s->device]);
        (void)d->capture_mode(&mode);
        if (!r && d->context_id && d->context_id(home.context, &home.id)) home.id = 0;
    }
    if (r) return r;
    *context = home.context;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    mli_cuda_stream_place(s, home.context, home.id);
    if (!s->context) r = MLI_CUDA_NO_MEMORY;
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    return r;
}

/* -- recording -- */

/* Records an event on a stream. Makes the event's handle first if it has none. If the device was
   reset, a kept handle may be gone, and the function makes and records a new one. Returns the
   driver's error. */
static int mli_cuda_event_put(const mli_cuda_driver *d, cudaStream_t handle, void *context,
                              int timed, mli_cuda_event *event) {
    int status = 0, mode, r = d->stream_capturing(handle, &status);
    if (r) return r;
    if (status) return MLI_CUDA_NOT_READY;
    if (event->handle) {
        r = d->event_record(event->handle, handle);
        if (r == 0 || r == MLI_CUDA_NO_CONTEXT || mli_cuda_is_not_yet(r)) return r;
        if (mli_cuda_relax(d, &mode) == 0) {
            (void)mli_cuda_event_call(d, d->event_destroy, context, event->handle);
            (void)d->capture_mode(&mode);
        }
        event->handle = NULL;
    }
    r = mli_cuda_event_make(d, context, timed, event);
    return r ? r : d->event_record(event->handle, handle);
}

/* Records an event on a stream in the stream's context, and looks for the context first if that is
   not known. On this thread no handle names the per-thread stream of another thread. So the event
   for such a stream is recorded on the legacy stream, which waits for all blocking streams. Returns
   1, 0 or -1, as mli_cuda_stream_record does. */
static int mli_cuda_event_on(const mli_cuda_driver *d, mli_cuda_stream *s, int here, void *context,
                             int timed, mli_cuda_event *event) {
    cudaStream_t handle = s->handle;
    void *current = context;
    int pushed = 0, r = 0;
    if (handle == cudaStreamPerThread && s->thread != mli_cuda_thread_id()) {
        handle = cudaStreamLegacy;
        here = 0;
    }
    if (!context) r = mli_cuda_stream_home(d, s, &context);
    if (!r && mli_cuda_is_default(handle) && !here) {
        r = d->context_current(&current);
        if (!r && current != context) {
            r = d->context_push(context);
            pushed = !r;
        }
    }
    if (!r) r = mli_cuda_event_put(d, handle, context, timed, event);
    if (r == MLI_CUDA_NO_CONTEXT && context && !pushed && d->context_push(context) == 0) {
        pushed = 1; /* the driver may want the stream's context to be current */
        r = mli_cuda_event_put(d, handle, context, timed, event);
    }
    if (pushed) (void)d->context_pop(&current);
    return r == 0 ? 1 : mli_cuda_is_not_yet(r) ? 0 : -1;
}

/* Adds a mark, which is a recorded event that stands for all frees up to `position`. If the mark
   before the last is at most s->apart positions before the new mark, the new mark replaces the last
   mark. If all marks are in use, first removes every second mark and doubles s->apart. The frees of
   a removed mark then wait for the next mark. Returns 1 or 0, as mli_cuda_stream_record does.
   Requires: the caller holds mli_cuda_streams_lock. */
static int mli_cuda_mark_put(mli_cuda_stream *s, mli_cuda_event *event, uint64_t position) {
    int i;
    if (position <= s->recorded || (s->n == MLI_CUDA_MARKS && s->asking)) {
        mli_cuda_event_keep(s->context, 0, event);
        return position <= s->recorded;
    }
    if (s->n < MLI_CUDA_MARKS / 4) s->apart = 1;
    if (s->n == MLI_CUDA_MARKS) {
        s->n /= 2;
        s->apart *= 2;
        for (i = 0; i < s->n; i++) {
            mli_cuda_event_keep(s->context, 0, s->mark[2 * i].event);
            s->mark[i] = s->mark[2 * i + 1];
        }
    } else if (s->n > 1 && !s->asking && position - s->mark[s->n - 2].position <= s->apart) {
        mli_cuda_event_keep(s->context, 0, s->mark[--s->n].event);
    }
    s->mark[s->n].event = event;
    s->mark[s->n++].position = position;
    s->recorded = position;
    s->answered = 0;
    return 1;
}

/* Takes an event and records it. Drops the lock while the driver records, so that no other thread
   waits. Returns 1, 0 or -1, as mli_cuda_stream_record does. *event is NULL unless the result is 1.
   Requires: the caller holds mli_cuda_streams_lock. */
static int mli_cuda_stream_put(mli_cuda_stream *s, int here, int timed, mli_cuda_event **event) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    void *context = s->context ? s->context->handle : NULL;
    int r = -1;
    s->inside++;
    *event = mli_cuda_event_take(s->context, timed);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    if (d && *event) r = mli_cuda_event_on(d, s, here, context, timed, *event);
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s->inside--;
    if (r == 1) return 1;
    mli_cuda_event_keep(s->context, timed, *event);
    *event = NULL;
    return r;
}

/* Does what mli_cuda_stream_record does. `last` is 1 for the thread that ends the stream. That
   thread may record an event although the stream is closed. */
static int mli_cuda_stream_mark(mli_cuda_stream *s, int here, int last) {
    mli_cuda_event *event;
    uint64_t position;
    int r;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    position = s->given;
    r = position == s->recorded;
    if (!r && (last || !s->state)) {
        r = mli_cuda_stream_put(s, here, 0, &event);
        if (r == 1) r = mli_cuda_mark_put(s, event, position);
        if (r < 0 && s->refused < position) s->refused = position;
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    return r;
}
MLI_CUDA_PRIVATE int mli_cuda_stream_record(mli_cuda_stream *s, int here) {
    return mli_cuda_stream_mark(s, here, 0);
}

MLI_CUDA_PRIVATE mli_cuda_event *mli_cuda_stream_time(mli_cuda_stream *s, int here) {
    mli_cuda_event *event = NULL;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    if (!s->state) (void)mli_cuda_stream_put(s, here, 1, &event);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    return event;
}

/* Stores in `out` up to `most` streams that need an event, adds a user to each, and returns their
   number. Leaves out a stream that has been taken with this `pass` before. Requires: the caller
   holds mli_cuda_streams_lock. */
static int mli_cuda_streams_take(const cudaStream_t *handle, uint64_t pass, mli_cuda_stream **out,
                                 int most) {
    const uint64_t self = mli_cuda_thread_id();
    mli_cuda_stream *s;
    int i, n = 0;
    for (i = 0; i < MLI_CUDA_BUCKETS; i++)
        for (s = mli_cuda_streams.bucket[i]; s && n < most; s = s->next) {
            if (s->given == s->recorded || s->pass >= pass || s->state) continue;
            if (handle ? s->handle != *handle : 0) continue;
            if (s->handle == cudaStreamPerThread && s->thread != self) continue;
            s->pass = pass;
            mli_cuda_stream_use(s);
            out[n++] = s;
        }
    return n;
}
MLI_CUDA_PRIVATE void mli_cuda_streams_record(const cudaStream_t *handle) {
    enum { AT_ONCE = 64 };
    mli_cuda_stream *taken[AT_ONCE];
    uint64_t pass;
    int i, n;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    pass = ++mli_cuda_streams.passes;
    while ((n = mli_cuda_streams_take(handle, pass, taken, AT_ONCE)) != 0) {
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
        for (i = 0; i < n; i++) {
            (void)mli_cuda_stream_record(taken[i], 0);
            mli_cuda_stream_leave(taken[i]);
        }
        mli_cuda_lock_take(&mli_cuda_streams_lock);
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}

/* -- asking -- */

/* Stores in *done how many of a stream's n marks (recorded events) are done. Queries the first
   mark, and then uses a binary search to find the last mark that is done. If `waits` is not 0, it
   is a position, and the function instead waits for the mark that stands for this position. If the
   wait fails, the function queries the marks after all, because an earlier mark may have the error.
   Returns the driver's error for mark[*done], or 0 if no mark has an error. */
static int mli_cuda_marks_ask(const mli_cuda_driver *d, void *context, const mli_cuda_mark *mark,
                              int n, uint64_t waits, int *done) {
    int mode, i, refused = 0, r = mli_cuda_relax(d, &mode);
    if (r) return r;
    while (*done < n) {
        i = *done ? (*done + n) / 2 : 0;
        if (waits)
            for (i = 0; i < n - 1 && waits > mark[i].position;) i++;
        r = mli_cuda_event_call(d, waits && d->event_wait ? d->event_wait : d->event_query, context,
                                mark[i].event->handle);
        if (r == 0) {
            *done = i + 1;
            if (waits) break;
        } else {
            refused = r;
            n = i;
            waits = 0;
        }
    }
    (void)d->capture_mode(&mode);
    return refused;
}

/* Stores in the stream what mli_cuda_marks_ask found. If an event has failed, the frees that it
   stands for have failed. If an event was recorded in a capture, all frees that are not done need a
   new event. Requires: the caller holds mli_cuda_streams_lock. */
static void mli_cuda_stream_learn(mli_cuda_stream *s, int done, int r) {
    s->answered = 1;
    if (!s->n) return; /* another thread has found meanwhile that the context is gone */
    if (done) s->done = s->mark[done - 1].position;
    mli_cuda_marks_end(s, done);
    if (!r || !s->n) return;
    if (r == MLI_CUDA_CAPTURED_EVENT) {
        mli_cuda_marks_end(s, s->n);
        s->recorded = s->done < s->failed ? s->failed : s->done;
    } else if (!mli_cuda_is_not_yet(r)) {
        s->failed = s->mark[0].position;
        mli_cuda_marks_end(s, 1);
    }
}

/* Asks the driver how far a stream has come. If `waits` is not 0, waits until the free with this
   position is done. One thread asks at a time, and the others use what it has learned. `last` is 1
   for the thread that ends the stream. That thread may ask although the stream is closed. */
static void mli_cuda_stream_ask(mli_cuda_stream *s, uint64_t waits, int last) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_mark mark[MLI_CUDA_MARKS];
    mli_cuda_context *context;
    int n, done = 0, r;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    while (waits && s->asking && !last) mli_cuda_streams_yield();
    if (!d || s->asking || !s->n || (s->state == MLI_CUDA_CLOSED && !last)) {
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
        return;
    }
    s->asking = 1;
    s->inside++;
    n = s->n;
    context = s->context;
    memcpy(mark, s->mark, (size_t)n * sizeof *mark);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    r = mli_cuda_marks_ask(d, context->handle, mark, n, waits, &done);
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s->asking = 0;
    s->inside--;
    mli_cuda_stream_learn(s, done, r);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    mli_cuda_events_trim(context, MEMLORD_CUDA_MAX_EVENTS);
}

/* -- the end of a stream -- */

/* Ends a stream, and records an event if a fence needs one. `open` is 1 if the stream had not ended
   before. If `waits` is 1, waits for the stream's events. A free that is not done after the wait
   has failed, because the context is about to be destroyed. Requires: the caller has set the state
   to CLOSED, and has added a user to the stream. */
static void mli_cuda_stream_end(mli_cuda_stream *s, int open, int waits) {
    uint64_t last;
    int needed;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    while (s->inside) mli_cuda_streams_yield();
    needed = open && (s->unplaced || s->given > s->recorded);
    if (open) s->given++;
    last = s->given;
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    if (needed) (void)mli_cuda_stream_mark(s, 0, 1);
    if (waits) mli_cuda_stream_ask(s, last, 1);
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s->refused = last;
    if (waits) {
        s->failed = s->recorded;
        mli_cuda_marks_end(s, s->n);
    } else {
        s->state = MLI_CUDA_ENDS;
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}

/* Returns an open stream with this handle, or NULL if there is none. If `handle` is NULL, searches
   all buckets for a stream that is on `context`, or whose context another thread is looking up.
   Requires: the caller holds mli_cuda_streams_lock. */
static mli_cuda_stream *mli_cuda_stream_of(const cudaStream_t *handle, const void *context) {
    mli_cuda_stream *s = NULL;
    int i;
    if (handle) {
        for (s = *mli_cuda_bucket(*handle); s && (s->handle != *handle || s->state);) s = s->next;
        return s;
    }
    for (i = 0; i < MLI_CUDA_BUCKETS; i++)
        for (s = mli_cuda_streams.bucket[i]; s; s = s->next)
            if (s->context ? s->context->handle == context : s->inside) return s;
    return NULL;
}
MLI_CUDA_PRIVATE void mli_cuda_streams_end(const cudaStream_t *handle, const void *context) {
    mli_cuda_stream *s;
    int open;
    if (!mli_cuda_driver_get()) return;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    while ((s = mli_cuda_stream_of(handle, context)) != NULL) {
        if (!handle && (!s->context || s->state == MLI_CUDA_CLOSED)) {
            mli_cuda_streams_yield(); /* another thread looks for the stream's context, or ends the
                                         stream */
            continue;
        }
        open = !s->state;
        s->state = MLI_CUDA_CLOSED;
        mli_cuda_stream_use(s);
        if (!handle) mli_cuda_stream_unlist(s);
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
        mli_cuda_stream_end(s, open, !handle);
        mli_cuda_stream_leave(s);
        mli_cuda_lock_take(&mli_cuda_streams_lock);
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}

/* -- fences -- */

MLI_CUDA_PRIVATE mli_cuda_fence *mli_cuda_fence_on(mli_cuda_stream *s, int placed) {
    mli_cuda_fence *fence;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    fence = (mli_cuda_fence *)mli_cuda_cell_take(MLI_CUDA_CELL_FENCE, sizeof *fence);
    if (fence) {
        fence->stream = s;
        s->users++;
        if (!placed)
            s->unplaced++;
        else
            fence->position = s->state ? s->given : ++s->given;
    }
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    return fence;
}
MLI_CUDA_PRIVATE void mli_cuda_fence_free(void *user) {
    mli_cuda_fence *fence = (mli_cuda_fence *)user;
    mli_cuda_stream *s = fence->stream;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s->unplaced -= !fence->position;
    mli_cuda_cell_give(MLI_CUDA_CELL_FENCE, fence);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    mli_cuda_stream_leave(s);
}

MLI_CUDA_PRIVATE void mli_cuda_stream_answer(mli_cuda_stream *s, int answered) {
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    s->answered = (unsigned char)answered;
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
}

/* What is known of a fence. RECORD means that an event must be recorded first, and ASK that the
   driver must be asked. */
enum { MLI_CUDA_FAILED = -1, MLI_CUDA_NOT_YET, MLI_CUDA_DONE, MLI_CUDA_RECORD, MLI_CUDA_ASK };

/* Returns what is known of a fence. If `passed_on` is 0, returns NOT_YET where it would otherwise
   return RECORD or ASK. Requires: the caller holds mli_cuda_streams_lock. */
static int mli_cuda_fence_look(const mli_cuda_fence *fence, int passed_on) {
    const mli_cuda_stream *s = fence->stream;
    const uint64_t at = fence->position;
    if (at <= s->done) return MLI_CUDA_DONE;
    if (at <= s->failed) return MLI_CUDA_FAILED;
    if (at <= s->recorded)
        return passed_on && s->state != MLI_CUDA_CLOSED ? MLI_CUDA_ASK : MLI_CUDA_NOT_YET;
    if (at <= s->refused) return MLI_CUDA_FAILED;
    return passed_on && !s->state ? MLI_CUDA_RECORD : MLI_CUDA_NOT_YET;
}

/* The ledger first calls this function for a fence when the block of the fence is freed. If the
   fence has no position yet, the fence gets one in this call. If the first call records an
   event, the call does not query the event, because an event is rarely done at once. */
MLI_CUDA_PRIVATE int mli_cuda_fence_done(void *user) {
    mli_cuda_fence *fence = (mli_cuda_fence *)user;
    mli_cuda_stream *s = fence->stream;
    const int waits = mli_cuda_waits;
    int first, known;
    if (!mli_cuda_driver_get()) return -1;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    first = !fence->asked && !waits;
    known = first && fence->position && s->answered;
    fence->asked = 1;
    if (!fence->position) {
        s->unplaced--;
        fence->position = s->state ? s->given : ++s->given;
    }
    known = mli_cuda_fence_look(fence, !known);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    if (known == MLI_CUDA_RECORD) {
        known = mli_cuda_stream_record(s, 0);
        if (!known) mli_cuda_stream_answer(s, 1);
        if (known == 1) known = first ? MLI_CUDA_NOT_YET : MLI_CUDA_ASK;
    }
    if (known == MLI_CUDA_ASK) {
        mli_cuda_stream_ask(s, waits ? fence->position : 0, 0);
        mli_cuda_lock_take(&mli_cuda_streams_lock);
        known = mli_cuda_fence_look(fence, 0);
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
    }
    return known;
}

/* --------------------------------------------------------------------- src/cuda/collection.h -- */

/* Has the collection callback for cuda devices, which gives back unused memory of CUDA's pools and
   graphs. Also has the ranges and marks of NVIDIA's profilers. Owns no state. Locks: none. */

/* These functions set a mark, begin a range and end a range in NVIDIA's profilers. They do nothing
   without MEMLORD_CUDA_NVTX. */
MLI_CUDA_PRIVATE void mli_cuda_nvtx_mark(const char *what, uint64_t bytes);
MLI_CUDA_PRIVATE void mli_cuda_nvtx_push(const char *what);
MLI_CUDA_PRIVATE void mli_cuda_nvtx_end(void);

/* Is the ledger's collection callback for cuda devices: trims the pools and graphs of the event's
   device. `user` is the ledger's mli_cuda_attachment. */

MLI_CUDA_PRIVATE memlord_gc_result mli_cuda_collect(void *user, memlord *lord,
                                                    const memlord_gc_event *event);

/* --------------------------------------------------------------------- src/cuda/collection.c -- */

#if defined(MEMLORD_CUDA_NVTX)
static void mli_cuda_nvtx_begin(const char *what, memlord_device device) {
    char text[96], name[32];
    (void)memlord_device_name(device, name, sizeof name);
    (void)snprintf(text, sizeof text, "%s %s", what, name);
    (void)nvtxRangePushA(text);
}
MLI_CUDA_PRIVATE void mli_cuda_nvtx_mark(const char *what, uint64_t bytes) {
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
MLI_CUDA_PRIVATE void mli_cuda_nvtx_push(const char *what) { (void)nvtxRangePushA(what); }
MLI_CUDA_PRIVATE void mli_cuda_nvtx_end(void) { (void)nvtxRangePop(); }
#else
static void mli_cuda_nvtx_begin(const char *what, memlord_device device) {
    (void)what, (void)device;
}
MLI_CUDA_PRIVATE void mli_cuda_nvtx_mark(const char *what, uint64_t bytes) {
    (void)what, (void)bytes;
}
MLI_CUDA_PRIVATE void mli_cuda_nvtx_push(const char *what) { (void)what; }
MLI_CUDA_PRIVATE void mli_cuda_nvtx_end(void) {}
#endif

/* Trims the pools and graphs of a device: lets them give back unused memory. A trim leaves
   keep_bytes in the pools. A trim for a band (a threshold of the host) leaves more, if the pools
   may soon need more: the bytes used now, the freed bytes that the device may still use, and the
   bytes freed since the last collection. This sum is limited to the used_high of the pools. The
   reclaimed bytes include those that the pools give back by themselves during a wait for pending
   frees. Requires: this thread has entered the device. */
static void mli_cuda_trim(const mli_cuda_driver *d, mli_cuda_attachment *probe, memlord *lord,
                          const memlord_gc_event *event, memlord_gc_result *result) {
    const memlord_device device = event->device;
    memlord_cuda_pool before, after;
    uint64_t lately = memlord_freed(lord, device) + memlord_pending(lord, device), had, has;
    uint64_t keep = mli_cuda_load(&probe->keep_bytes);
    int waits = mli_cuda_waits;
    if (!mli_cuda_pools_ask(d, device.index, NULL, &before)) return;
    lately += before.used;
    if (lately > before.used_high) lately = before.used_high;
    if (event->reason == MEMLORD_REASON_BAND && keep < lately) keep = lately;
    if (mli_cuda_load(&probe->flags) & MEMLORD_CUDA_FLAG_SYNC) {
        mli_cuda_waits = 1;
        (void)memlord_retire(lord, device);
        mli_cuda_waits = waits;
    }
    result->ran = mli_cuda_pools_ask(d, device.index, &keep, &after);
    had = before.reserved + before.graph_reserved;
    has = after.reserved + after.graph_reserved;
    if (result->ran && had > has) result->reclaimed = had - has;
}

MLI_CUDA_PRIVATE memlord_gc_result mli_cuda_collect(void *user, memlord *lord,
                                                    const memlord_gc_event *event) {
    mli_cuda_attachment *probe = (mli_cuda_attachment *)user;
    const mli_cuda_driver *d = mli_cuda_driver_get();
    memlord_gc_result result = {0, 0, 0};
    int i = event->device.index, mode;
    if (!d || i < 0 || i >= d->known || !d->pools[i]) return result;
    mli_cuda_nvtx_begin("memlord collection", event->device);
    if (mli_cuda_enter_device(d, i, &mode)) {
        mli_cuda_trim(d, probe, lord, event, &result);
        mli_cuda_pool_report(d, probe, lord, i);
        mli_cuda_leave_device(d, i, &mode);
    }
    mli_cuda_nvtx_mark("memlord reclaimed", result.reclaimed);
    mli_cuda_nvtx_end();
    return result;
}

/* ------------------------------------------------------------------------- src/cuda/scopes.h -- */

/* Owns the measurements. A measurement is a pair of events that gives the time that a scope takes
   on the device. An event is recorded on a stream (a queue of work on a device), and is done when
   the work before it is done. A measurement lives until its time is read. Locks:
   mli_cuda_times_lock. No thread holds it while it calls the driver or the ledger. */

typedef struct mli_cuda_time {
    struct mli_cuda_time *next;   /* the next measurement in the list of those that have ended */
    memlord *lord;
    uint64_t scope;               /* what memlord_scope_current returned when the scope began */
    mli_cuda_stream *stream;      /* the stream; its record lives at least as long as the
                                     measurement */
    mli_cuda_event *start, *stop; /* NULL if the event is not recorded */
} mli_cuda_time;

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_times_lock)

/* Begins a measurement: records its first event on a stream. Returns NULL if that cannot be done
   now, for example because a capture records the stream's work. */
MLI_CUDA_PRIVATE mli_cuda_time *mli_cuda_time_begin(memlord *lord, uint64_t scope,
                                                    cudaStream_t handle);
/* Ends a measurement: records its second event. mli_cuda_times_read reads the time later. If the
   event cannot be recorded, the scope is not timed. */
MLI_CUDA_PRIVATE void mli_cuda_time_end(mli_cuda_time *time);

/* Reads the times of a ledger's measurements whose events are done: those on the streams with this
   handle, or on all streams if `handle` is NULL. The events of a stream are done in their order. So
   after an event that is not done, the function does not query a later event of the stream. The
   function tells streams apart only by their numbers modulo 64. So an event that is not done may
   also make the measurements of another stream wait for the next call. If `last` is 1, the function
   reads no times, and frees the measurements. */
MLI_CUDA_PRIVATE void mli_cuda_times_read(memlord *lord, const cudaStream_t *handle, int last);

/* ------------------------------------------------------------------------- src/cuda/scopes.c -- */

enum { MLI_CUDA_TIMES = 4096 }; /* the limit on measurements that are not yet read */

MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_times_lock = MLI_CUDA_LOCK;
static struct {
    mli_cuda_u64 n;       /* how many measurements have begun and are not yet read; accesses are
                             relaxed, because a thread always sees its own changes */
    mli_cuda_time *first; /* the measurements that have ended, in the order of their ends */
} mli_cuda_times;

static void mli_cuda_time_free(mli_cuda_time *time) {
    mli_cuda_stream *s = time->stream;
    mli_cuda_context *context;
    mli_cuda_lock_take(&mli_cuda_streams_lock);
    context = s->context; /* once the lock is dropped, another thread may set s->context */
    mli_cuda_event_keep(context, 1, time->start);
    mli_cuda_event_keep(context, 1, time->stop);
    mli_cuda_cell_give(MLI_CUDA_CELL_TIME, time);
    mli_cuda_lock_drop(&mli_cuda_streams_lock);
    if (context) mli_cuda_events_trim(context, MEMLORD_CUDA_MAX_EVENTS);
    mli_cuda_stream_leave(s);
    mli_cuda_add(&mli_cuda_times.n, UINT64_MAX);
}

MLI_CUDA_PRIVATE mli_cuda_time *mli_cuda_time_begin(memlord *lord, uint64_t scope,
                                                    cudaStream_t handle) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_time *time = NULL;
    mli_cuda_stream *s;
    int here;
    if (!d || !d->event_elapsed) return NULL;
    s = mli_cuda_stream_find(handle, 0, &here);
    if (!s) return NULL;
    if (mli_cuda_add(&mli_cuda_times.n, 1) < MLI_CUDA_TIMES) {
        mli_cuda_lock_take(&mli_cuda_streams_lock);
        time = (mli_cuda_time *)mli_cuda_cell_take(MLI_CUDA_CELL_TIME, sizeof *time);
        mli_cuda_lock_drop(&mli_cuda_streams_lock);
    }
    if (!time) {
        mli_cuda_add(&mli_cuda_times.n, UINT64_MAX);
        mli_cuda_stream_leave(s);
        return NULL;
    }
    time->lord = lord;
    time->scope = scope;
    time->stream = s;
    time->start = mli_cuda_stream_time(s, here);
    if (time->start) return time;
    mli_cuda_time_free(time);
    return NULL;
}

/* Puts measurements at the end of the list, or at its front if `back` is 1. If the ledger of a
   measurement is no longer attached, frees the measurement instead, because memlord_cuda_detach may
   have emptied the list already. (memlord_cuda_detach marks the ledger as not attached before it
   empties the list, so no measurement of the ledger stays in the list.) */
static void mli_cuda_times_put(mli_cuda_time *times, int back) {
    mli_cuda_time **at, *time, *over = NULL;
    mli_cuda_lock_take(&mli_cuda_times_lock);
    at = &mli_cuda_times.first;
    while (*at && !back) at = &(*at)->next;
    while ((time = times) != NULL) {
        times = time->next;
        if (mli_cuda_attachment_of(time->lord)) {
            time->next = *at;
            *at = time;
            at = &time->next;
        } else {
            time->next = over;
            over = time;
        }
    }
    mli_cuda_lock_drop(&mli_cuda_times_lock);
    while ((time = over) != NULL) {
        over = time->next;
        mli_cuda_time_free(time);
    }
}

MLI_CUDA_PRIVATE void mli_cuda_time_end(mli_cuda_time *time) {
    mli_cuda_stream *again;
    int here;
    again = mli_cuda_stream_find(time->stream->handle, 0, &here);
    if (again == time->stream) time->stop = mli_cuda_stream_time(again, here);
    if (again) mli_cuda_stream_leave(again);
    if (time->stop)
        mli_cuda_times_put(time, 0);
    else
        mli_cuda_time_free(time);
}

/* Adds the time of a measurement to its scope. Returns 0 if its events are not done yet. Returns 1
   if the time is added, or can never be read. */
static int mli_cuda_time_read(const mli_cuda_driver *d, const mli_cuda_time *time) {
    void *context = time->stream->context->handle;
    float ms = 0;
    int mode, r = mli_cuda_relax(d, &mode);
    if (r == 0) {
        r = mli_cuda_event_call(d, d->event_query, context, time->stop->handle);
        (void)d->capture_mode(&mode);
    }
    if (r == 0) r = mli_cuda_enter_context(d, context, &mode);
    if (r == 0) {
        r = d->event_elapsed(&ms, time->start->handle, time->stop->handle);
        mli_cuda_leave_context(d, &mode);
    }
    if (mli_cuda_is_not_yet(r)) return 0;
    if (r == 0 && ms > 0)
        (void)memlord_scope_device_time(time->lord, time->scope, (uint64_t)((double)ms * 1e6));
    return 1;
}

/* Takes measurements of a ledger off the list and returns them in their order. If `handle` is NULL,
   takes all of them, else those on the streams with this handle. */
static mli_cuda_time *mli_cuda_times_take(const memlord *lord, const cudaStream_t *handle) {
    mli_cuda_time **at, *time, *taken = NULL, **end = &taken;
    mli_cuda_lock_take(&mli_cuda_times_lock);
    for (at = &mli_cuda_times.first; (time = *at) != NULL;) {
        if (time->lord != lord || (handle && time->stream->handle != *handle)) {
            at = &time->next;
            continue;
        }
        *at = time->next;
        *end = time;
        end = &time->next;
        time->next = NULL;
    }
    mli_cuda_lock_drop(&mli_cuda_times_lock);
    return taken;
}

MLI_CUDA_PRIVATE void mli_cuda_times_read(memlord *lord, const cudaStream_t *handle, int last) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_time *time, *times, *kept = NULL, **end = &kept;
    uint64_t waits = 0, mark;
    if (!d || (!mli_cuda_load(&mli_cuda_times.n) && !last)) return;
    times = mli_cuda_times_take(lord, handle);
    while ((time = times) != NULL) {
        times = time->next;
        mark = UINT64_C(1) << time->stream->number % 64;
        if (!(waits & mark) && (last || mli_cuda_time_read(d, time))) {
            mli_cuda_time_free(time);
            continue;
        }
        waits |= mark;
        *end = time;
        end = &time->next;
        time->next = NULL;
    }
    if (kept) mli_cuda_times_put(kept, 1);
}

/* -------------------------------------------------------------------------- src/cuda/forks.h -- */

/* Owns the handlers of forks. In a child the layer (memlord_cuda.h) has no driver and no
   attached ledger, and the locks that a fork takes are free. May use all modules of the layer.
   Invariants: no thread takes a lock of the layer while it holds a lock of the ledger, or the
   reverse. No thread holds a lock over a call of the driver, except mli_cuda_loaded_lock while the
   driver loads. mli_cuda_holders_lock is held while NVML lists processes, and a fork waits until
   NVML has done so. Locks: a fork takes all locks of the layer except mli_cuda_loaded_lock and
   mli_cuda_nvml_lock. */

/* The handlers that run before a fork are called in the reverse order of their registration. The
   layer registers its handlers after the driver has loaded, so they take the layer's locks before
   the driver's handlers run. A fork does not wait for a call of the driver.
   mli_cuda_loaded_lock and mli_cuda_nvml_lock are held while the driver and NVML load. Loading may
   fork, so neither a fork nor a child takes these two locks. */

/* -------------------------------------------------------------------------- src/cuda/forks.c -- */

#if defined(_WIN32)
MLI_CUDA_PRIVATE void mli_cuda_fork_first(void) {}
MLI_CUDA_PRIVATE void mli_cuda_fork_locks(void) {}
#else
static void mli_cuda_locks_each(void (*change)(mli_cuda_lock *)) {
    change(&mli_cuda_process_lock);
    change(&mli_cuda_holders_lock);
    change(&mli_cuda_pools_lock);
    change(&mli_cuda_times_lock);
    change(&mli_cuda_streams_lock);
}
static void mli_cuda_fork_before(void) {
    mli_cuda_locks_each(mli_cuda_lock_take);
}
static void mli_cuda_fork_parent(void) {
    mli_cuda_locks_each(mli_cuda_lock_drop);
}
/* Empties the records of attached ledgers (seats) in the child. The callbacks of a ledger still
   point to its seat, but do nothing without a driver. */
static void mli_cuda_fork_child(void) {
    memset(&mli_cuda_process, 0, sizeof mli_cuda_process);
    mli_cuda_fork_parent();
}
/* Makes the child find no driver. Takes no lock, because mli_cuda_loaded_lock stays held in the
   child if the parent was loading the driver. */
static void mli_cuda_fork_absent(void) {
    static const char forked[] = "forked from the process that loaded the driver";
    if (mli_cuda_load(&mli_cuda_loaded.state) != MLI_CUDA_ABSENT)
        memcpy(mli_cuda_loaded.why, forked, sizeof forked);
    mli_cuda_store(&mli_cuda_loaded.state, MLI_CUDA_ABSENT);
}
MLI_CUDA_PRIVATE void mli_cuda_fork_first(void) {
    (void)pthread_atfork(NULL, NULL, mli_cuda_fork_absent);
}
MLI_CUDA_PRIVATE void mli_cuda_fork_locks(void) {
    (void)pthread_atfork(mli_cuda_fork_before, mli_cuda_fork_parent, mli_cuda_fork_child);
}
#endif

/* -------------------------------------------------------------------------- src/cuda/frees.h -- */

/* Has the two halves of a wrapped free, before and after the real free. The first half takes the
   block off the ledger's map, because another thread may get the address while the real free runs.
   The second half ends the block, so that its bytes are no longer live, or puts it back if the real
   free has failed. Owns no state. Locks: none. */

typedef struct mli_cuda_ending {
    memlord_realloc_token token; /* the token of memlord_free_begin, if `begun` is 1 */
    int begun;
    memlord_device device; /* the block's device, if `bytes` is not 0 */
    uint64_t bytes;        /* how many bytes the free takes off the device's reserved bytes */
} mli_cuda_ending;

/* Takes a block off the map before its real free. `beside` is 1 if the memory may be outside of
   CUDA's pools. */
MLI_CUDA_PRIVATE void mli_cuda_free_begin(memlord *lord, int type, const void *ptr, int beside,
                                          mli_cuda_ending *end, const memlord_site *site);

/* Ends a free whose real free has returned `answer`, and returns `answer`. Lowers the device's
   reserved bytes before it ends the block, so that the block's bytes never count as cached
   (reserved but not allocated). */
MLI_CUDA_PRIVATE cudaError_t mli_cuda_free_end(memlord *lord, mli_cuda_ending *end,
                                               cudaError_t answer, const memlord_site *site);

/* -------------------------------------------------------------------------- src/cuda/frees.c -- */

MLI_CUDA_PRIVATE void mli_cuda_free_begin(memlord *lord, int type, const void *ptr, int beside,
                                          mli_cuda_ending *end, const memlord_site *site) {
    memlord_device device = memlord_device_make(type, 0);
    memlord_block_info block;
    memset(end, 0, sizeof *end);
    if (!lord || !ptr) return;
    if (beside && mli_cuda_attachment_of(lord) &&
        memlord_block_find(lord, device, MEMLORD_KEY(ptr), &block) == MEMLORD_OK)
        end->device = block.device, end->bytes = block.bytes;
    end->begun =
        memlord_free_begin(lord, device, MEMLORD_KEY(ptr), &end->token, site) == MEMLORD_OK;
}

MLI_CUDA_PRIVATE cudaError_t mli_cuda_free_end(memlord *lord, mli_cuda_ending *end,
                                               cudaError_t answer, const memlord_site *site) {
    if (answer == cudaSuccess) mli_cuda_pool_beside(lord, end->device, -(int64_t)end->bytes);
    if (end->begun) (void)memlord_free_end(lord, &end->token, answer != cudaSuccess, site);
    return answer;
}

/* ----------------------------------------------------------------------- src/cuda/requests.h -- */

/* Has what a wrapped allocation does: the real call, the choice of its device, its record in the
   ledger, and the retries. Owns no state. Locks: mli_cuda_process_lock, to read a policy. */

/* The kinds of allocations. */
enum {
    MLI_CUDA_PLAIN,
    MLI_CUDA_PITCH,
    MLI_CUDA_3D,
    MLI_CUDA_ASYNC,   /* stream-ordered, from a pool */
    MLI_CUDA_HOST,    /* page-locked memory */
    MLI_CUDA_PHYSICAL /* cuMemCreate */
};

/* A call of an allocation function, with its arguments. The members for arguments have the names of
   the parameters in MLI_CUDA_ALLOCS and MLI_CUDA_VIRTUAL. */
typedef struct mli_cuda_request {
    int kind;                                              /* MLI_CUDA_PLAIN, MLI_CUDA_PITCH and so
                                                              on */
    cudaError_t (*call)(const struct mli_cuda_request *q); /* makes the real call */
    void **ptr;
    struct cudaPitchedPtr *pitched;
    unsigned long long *handle, mem_flags; /* the arguments for physical memory */
    const void *prop;
    memlord_device location; /* where physical memory is */
    size_t bytes, *pitch, width, height;
    struct cudaExtent extent;
    unsigned flags;
    cudaMemPool_t pool; /* NULL means the current pool of the device */
    cudaStream_t stream;
    int clean;          /* 1: cudaGetLastError had no error before the call */
    cudaError_t answer; /* what the last call returned */
} mli_cuda_request;

/* Returns the current device, by asking the runtime. (Before CUDA 12 cudaSetDevice makes no context
   current, so the driver may still have the previous device.) */
MLI_CUDA_PRIVATE int mli_cuda_device_current(void);

/* Makes an allocation and records it, with retries under a policy. If `policy` is NULL, uses the
   default policy. */

MLI_CUDA_PRIVATE cudaError_t mli_cuda_alloc_retry(memlord *lord, mli_cuda_request *q,
                                                  const memlord_retry *policy,
                                                  const memlord_site *site);

/* Makes an allocation and records it, with retries if the ledger is attached with
   MEMLORD_CUDA_FLAG_RETRY. If `lord` is NULL, only makes the real call. */
MLI_CUDA_PRIVATE cudaError_t mli_cuda_alloc(memlord *lord, mli_cuda_request *q,
                                            const memlord_site *site);

/* Returns a request whose arguments are not set yet. */

MLI_CUDA_PRIVATE mli_cuda_request mli_cuda_request_for(int kind,
        cudaError_t (*call)(const mli_cuda_request *));

/* Finds a block of any cuda device, or of page-locked memory. Returns 0 if the ledger has no such
   block. */
MLI_CUDA_PRIVATE int mli_cuda_block_find(memlord *lord, uint64_t key, memlord_block_info *block);

/* ----------------------------------------------------------------------- src/cuda/requests.c -- */

/* Returns the pointer or handle that a call made. */
static void *mli_cuda_request_result(const mli_cuda_request *q) {
    if (q->pitched) return q->pitched->ptr;
    if (q->handle) return (void *)(uintptr_t)*q->handle;
    return q->ptr ? *q->ptr : NULL;
}

/* Returns the product, or 2^48 if the product is larger, because the ledger takes no more. */
static uint64_t mli_cuda_product(uint64_t a, uint64_t b) {
    const uint64_t most = (uint64_t)1 << 48;
    return b && a > most / b ? most : a * b;
}

/* Returns the bytes that a request asks for, without the padding of rows. */
static uint64_t mli_cuda_asked(const mli_cuda_request *q) {
    const struct cudaExtent *e = &q->extent;
    if (q->kind == MLI_CUDA_PITCH) return mli_cuda_product(q->width, q->height);
    if (q->kind == MLI_CUDA_3D)
        return mli_cuda_product(mli_cuda_product(e->width, e->height), e->depth);
    return mli_cuda_product(q->bytes, 1);
}

/* Returns the bytes of an allocation that was made. Its rows are as long as the pitch, which the
   call has set. */
static uint64_t mli_cuda_size(const mli_cuda_request *q) {
    if (q->kind == MLI_CUDA_PITCH) return (uint64_t)*q->pitch * q->height;
    if (q->kind == MLI_CUDA_3D)
        return (uint64_t)q->pitched->pitch * q->extent.height * q->extent.depth;
    return mli_cuda_asked(q);
}

MLI_CUDA_PRIVATE int mli_cuda_device_current(void) {
    int clean = cudaPeekAtLastError() == cudaSuccess, device = 0;
    if (cudaGetDevice(&device) == cudaSuccess) return device;
    if (clean) (void)cudaGetLastError();
    return 0;
}

/* Returns the device of a stream. The device of a default stream is the current device. */
static int mli_cuda_device_stream(const mli_cuda_driver *d, cudaStream_t stream) {
    void *context = NULL;
    int handle, r;
    if (mli_cuda_is_default(stream) || d->stream_context(stream, &context) ||
        d->context_push(context))
        return mli_cuda_device_current();
    r = d->context_device(&handle);
    (void)d->context_pop(&context);
    return r ? mli_cuda_device_current() : mli_cuda_ordinal(d, handle);
}

/* Returns the device on which the ledger counts the block of a request. `made` is the pointer that
   the call made, or NULL before the call. The pool of a stream-ordered allocation may be on another
   device than the stream, so the function asks the driver for the device of the pointer. A pool of
   CPU memory is on no device. The ledger counts its blocks on the stream's device, because
   cudaFreeAsync does not say which pool a block comes from. */
static memlord_device mli_cuda_where(const mli_cuda_request *q, const void *made) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    int ordinal = -1;
    if (q->kind == MLI_CUDA_PHYSICAL) return q->location;
    if (q->kind == MLI_CUDA_HOST) return memlord_device_make(MEMLORD_DEVICE_PINNED, 0);
    if (d && d->devices == 1) return memlord_device_cuda(0);
    if (!d || q->kind != MLI_CUDA_ASYNC) return memlord_device_cuda(mli_cuda_device_current());
    if (made && d->pointer_attribute(&ordinal, MLI_CUDA_POINTER_DEVICE, MEMLORD_KEY(made)))
        ordinal = -1;
    return memlord_device_cuda(ordinal >= 0 ? ordinal : mli_cuda_device_stream(d, q->stream));
}

/* Sets the stream that the ledger records with blocks. A default stream is recorded as 0. Returns
   the stream that was set before. */
static uint64_t mli_cuda_stream_say(memlord *lord, const mli_cuda_request *q) {
    return memlord_stream_set(lord, mli_cuda_is_default(q->stream) ? 0 : MEMLORD_KEY(q->stream));
}

/* Updates the ledger's reserved bytes after an allocation. */
static void mli_cuda_recorded(memlord *lord, const mli_cuda_request *q, memlord_device device) {
    if (q->kind == MLI_CUDA_ASYNC)
        mli_cuda_pool_check(lord, 0);
    else
        mli_cuda_pool_beside(lord, device, (int64_t)mli_cuda_size(q));
}

/* Makes the real call once, and records what it made. */
static cudaError_t mli_cuda_alloc_plain(memlord *lord, mli_cuda_request *q,
                                        const memlord_site *site) {
    cudaError_t r = q->call(q);
    void *made = r == cudaSuccess ? mli_cuda_request_result(q) : NULL;
    memlord_device device;
    uint64_t before = 0;
    if (!made) return r;
    device = mli_cuda_where(q, made);
    if (q->kind == MLI_CUDA_ASYNC) before = mli_cuda_stream_say(lord, q);
    (void)memlord_alloc(lord, device, MEMLORD_KEY(made), mli_cuda_size(q), site);
    if (q->kind == MLI_CUDA_ASYNC) (void)memlord_stream_set(lord, before);
    mli_cuda_recorded(lord, q, device);
    return r;
}

/* Makes the real call once, records what it made, and counts a call that found no memory. */
static cudaError_t mli_cuda_alloc_once(memlord *lord, mli_cuda_request *q,
                                       const memlord_site *site) {
    cudaError_t r = mli_cuda_alloc_plain(lord, q, site);
    if (r == cudaErrorMemoryAllocation)
        (void)memlord_alloc_failed(lord, mli_cuda_where(q, NULL), mli_cuda_asked(q), site);
    return r;
}

/* Makes the real call once, as a memlord_try_fn. If the runtime had no last error before, clears
   the error of a call that found no memory. So the callbacks that give memory back do not see
   the error, nor does the host after a later success. (The error is not sticky, so it can be
   cleared.) */
static int mli_cuda_request_attempt(void *user, uint64_t bytes, uint64_t *storage) {
    mli_cuda_request *q = (mli_cuda_request *)user;
    (void)bytes;
    q->answer = q->call(q);
    if (q->answer == cudaSuccess) *storage = MEMLORD_KEY(mli_cuda_request_result(q));
    if (q->answer == cudaErrorMemoryAllocation && q->clean) (void)cudaGetLastError();
    return q->answer == cudaSuccess ? 0 : q->answer == cudaErrorMemoryAllocation ? 1 : -1;
}

/* Sets the pointer of a request to NULL, because a limit has refused the request. Makes no real
   call, so the runtime's last error does not change. A real call would set the last error, but it
   might trim pools, wait, or return an earlier error. */
static void mli_cuda_request_refuse(const mli_cuda_request *q) {
    if (q->pitched) q->pitched->ptr = NULL;
    if (q->ptr) *q->ptr = NULL;
}

/* Corrects the record of an allocation after the retries, because only now the pitch and the device
   of a pool are known. */
static void mli_cuda_request_finish(memlord *lord, const mli_cuda_request *q, memlord_device device,
                                    uint64_t asked, uint64_t storage, const memlord_site *site) {
    memlord_device where = mli_cuda_where(q, mli_cuda_request_result(q));
    uint64_t bytes = mli_cuda_size(q);
    if (where.index != device.index) {
        (void)memlord_free(lord, device, storage, site);
        (void)memlord_alloc(lord, where, storage, bytes, site);
    } else if (bytes != asked) {
        (void)memlord_realloc(lord, device, storage, storage, bytes, site);
    }
    mli_cuda_recorded(lord, q, where);
}

MLI_CUDA_PRIVATE cudaError_t mli_cuda_alloc_retry(memlord *lord, mli_cuda_request *q,
                                                  const memlord_retry *policy,
                                                  const memlord_site *site) {
    memlord_device device = mli_cuda_where(q, NULL);
    uint64_t storage = 0, asked = mli_cuda_asked(q), before = 0;
    memlord_alloc_opts opts;
    memlord_result r;
    /* no retry helps a request for 0 bytes, or for more than the address space */
    if (!asked || asked >> 48) return mli_cuda_alloc_once(lord, q, site);
    memset(&opts, 0, sizeof opts);
    opts.site = site;
    q->clean = cudaPeekAtLastError() == cudaSuccess;
    q->answer = cudaErrorMemoryAllocation;
    if (q->kind == MLI_CUDA_ASYNC) before = mli_cuda_stream_say(lord, q);
    r = memlord_alloc_retry(lord, device, asked, mli_cuda_request_attempt, q, policy, &storage,
                            &opts);
    if (r == MEMLORD_OK) mli_cuda_request_finish(lord, q, device, asked, storage, site);
    if (q->kind == MLI_CUDA_ASYNC) (void)memlord_stream_set(lord, before);
    if (r == MEMLORD_E_LIMIT) mli_cuda_request_refuse(q);
    if (r == MEMLORD_OK || r == MEMLORD_E_LIMIT) return q->answer;
    if (r == MEMLORD_E_OOM && q->answer != cudaErrorMemoryAllocation) return q->answer;
    /* After E_OOM one more real call gives the result and the last error that the host expects. The
       ledger has counted the failure already. Any other error comes from the ledger itself. The
       real call is then made once, without retries. */
    return r == MEMLORD_E_OOM ? mli_cuda_alloc_plain(lord, q, site)
                              : mli_cuda_alloc_once(lord, q, site);
}

MLI_CUDA_PRIVATE cudaError_t mli_cuda_alloc(memlord *lord, mli_cuda_request *q,
                                            const memlord_site *site) {
    mli_cuda_attachment *probe = mli_cuda_attachment_of(lord);
    memlord_retry policy;
    int has_retry;
    if (!lord) return q->call(q);
    if (!probe || !(mli_cuda_load(&probe->flags) & MEMLORD_CUDA_FLAG_RETRY))
        return mli_cuda_alloc_once(lord, q, site);
    mli_cuda_lock_take(&mli_cuda_process_lock);
    has_retry = probe->has_retry;
    policy = probe->retry;
    mli_cuda_lock_drop(&mli_cuda_process_lock);
    return mli_cuda_alloc_retry(lord, q, has_retry ? &policy : NULL, site);
}

MLI_CUDA_PRIVATE mli_cuda_request mli_cuda_request_for(int kind,
        cudaError_t (*call)(const mli_cuda_request *)) {
    mli_cuda_request q;
    memset(&q, 0, sizeof q);
    q.kind = kind;
    q.call = call;
    return q;
}

MLI_CUDA_PRIVATE int mli_cuda_block_find(memlord *lord, uint64_t key, memlord_block_info *block) {
    const memlord_device pinned = memlord_device_make(MEMLORD_DEVICE_PINNED, 0);
    if (!lord) return 0;
    return memlord_block_find(lord, memlord_device_cuda(0), key, block) == MEMLORD_OK ||
           memlord_block_find(lord, pinned, key, block) == MEMLORD_OK;
}

/* ------------------------------------------------------------------------- src/cuda/public.h -- */

/* Has the public functions of the layer (memlord_cuda.h) that wrap no function of CUDA: those of
   attaching, pools, frees that wait for a stream, and scopes. A seat is the record of an attached
   ledger. A fence makes a freed block wait until a stream has done the work that was queued before
   the free. Owns no state. May use all modules of the layer. Locks: none. */

/* ------------------------------------------------------------------------- src/cuda/public.c -- */

#ifdef __cplusplus
extern "C" {
#endif

/* -- attach -- */

/* If `on` is 1, makes integrated GPUs share the cpu's memory in the ledger. These GPUs then have
   the capacity of the cpu, which a container may limit. If the ledger refuses, because
   reservations are open, a GPU stays a device of its own. If `on` is 0, undoes the sharing. */
static void mli_cuda_share(mli_cuda_attachment *probe, const mli_cuda_driver *d, int on) {
    int i;
    for (i = 0; i < d->known; i++) {
        memlord_device device = memlord_device_cuda(i), with = on ? memlord_device_cpu() : device;
        if (on ? d->integrated[i] : probe->shared[i])
            probe->shared[i] = memlord_device_share(probe->lord, device, with) == MEMLORD_OK && on;
        if (on) continue;
        mli_cuda_store(&probe->pooled[i], 0);
        mli_cuda_store(&probe->before[i], 0);
        mli_cuda_store(&probe->context[i], 0);
        mli_cuda_store(&probe->identified[i], 0);
    }
}

/* Takes the seat's callbacks off its ledger. */
static void mli_cuda_unhook(mli_cuda_attachment *probe, const mli_cuda_driver *d) {
    uint64_t flags = mli_cuda_load(&probe->flags);
    (void)memlord_gc_callback_remove(probe->lord, memlord_device_cuda(MEMLORD_ANY),
                                     mli_cuda_collect, probe);
    if (!(flags & MEMLORD_CUDA_FLAG_NO_CAPACITY))
        (void)memlord_capacity_source_set(probe->lord, MEMLORD_DEVICE_CUDA, NULL, NULL);
    mli_cuda_share(probe, d, 0);
}

/* Registers, with the seat's ledger, the callbacks that the seat's flags ask for. */
static memlord_result mli_cuda_hook(mli_cuda_attachment *probe, const mli_cuda_driver *d) {
    uint64_t flags = mli_cuda_load(&probe->flags), total, used;
    memlord_result r = MEMLORD_OK;
    int i;
    for (i = 0; i < d->known && !(flags & MEMLORD_CUDA_FLAG_NO_NVML); i++)
        if (!mli_cuda_active(d, i) && mli_cuda_nvml_query(i, &total, &used))
            mli_cuda_store(&probe->before[i], used);
    if (!(flags & MEMLORD_CUDA_FLAG_NO_CAPACITY)) {
        mli_cuda_share(probe, d, 1);
        r = memlord_capacity_source_set(probe->lord, MEMLORD_DEVICE_CUDA, mli_cuda_capacity, probe);
    }
    if (r == MEMLORD_OK && !(flags & MEMLORD_CUDA_FLAG_NO_TRIM))
        r = memlord_gc_callback_add(probe->lord, memlord_device_cuda(MEMLORD_ANY),
                                    MEMLORD_GC_QUIET, mli_cuda_collect, probe);
    return r;
}

/* Detaches the ledger of a seat that this thread has claimed. */
static void mli_cuda_attachment_end(mli_cuda_attachment *probe, const mli_cuda_driver *d) {
    int last;
    mli_cuda_unhook(probe, d);
    last = mli_cuda_attachment_fill(probe, MLI_CUDA_TAKEN, d, NULL);
    mli_cuda_times_read(probe->lord, NULL, 1);
    if (last) memlord_cuda_events_release();
}

/* Returns 1 if memlord_alloc_retry accepts a policy. Tests the bits of the multiplier: numbers from
   1 to the largest are between those of 1 and of infinity. */
static int mli_cuda_policy_valid(const memlord_retry *policy) {
    uint64_t bits;
    memcpy(&bits, &policy->multiplier, sizeof bits);
    return policy->max_ms >= policy->initial_ms && bits >= (uint64_t)0x3ff << 52 &&
           bits < (uint64_t)0x7ff << 52;
}

MEMLORD_API memlord_result memlord_cuda_attach(memlord *lord, const memlord_cuda_desc *desc) {
    const mli_cuda_driver *d;
    mli_cuda_attachment *probe;
    memlord_cuda_desc zeros;
    memlord_result r;
    int seen = MLI_CUDA_EMPTY;
    memset(&zeros, 0, sizeof zeros);
    if (!desc) desc = &zeros;
    if (!lord) return MEMLORD_OK;
    if (desc->retry && !mli_cuda_policy_valid(desc->retry)) return MEMLORD_E_INVALID;
    d = mli_cuda_driver_get();
    if (!d) return MEMLORD_E_UNSUPPORTED;
    probe = mli_cuda_attachment_claim(lord, &seen);
    if (!probe) return MEMLORD_E_STATE;
    if (seen == MLI_CUDA_TAKEN) mli_cuda_unhook(probe, d);
    (void)mli_cuda_attachment_fill(probe, seen, d, desc);
    r = mli_cuda_hook(probe, d);
    if (r) mli_cuda_attachment_end(probe, d);
    mli_cuda_attachment_set_state(probe, r ? MLI_CUDA_EMPTY : MLI_CUDA_TAKEN);
    return r;
}

MEMLORD_API memlord_result memlord_cuda_detach(memlord *lord) {
    const mli_cuda_driver *d = mli_cuda_driver_get();
    mli_cuda_attachment *probe;
    int seen = MLI_CUDA_EMPTY;
    if (!lord) return MEMLORD_OK;
    if (!d) return MEMLORD_E_UNKNOWN;
    probe = mli_cuda_attachment_claim(lord, &seen);
    if (!probe) return mli_cuda_attachment_of(lord) ? MEMLORD_E_STATE : MEMLORD_E_UNKNOWN;
    if (seen == MLI_CUDA_TAKEN) mli_cuda_attachment_end(probe, d);
    mli_cuda_attachment_set_state(probe, MLI_CUDA_EMPTY);
    return seen == MLI_CUDA_TAKEN ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MEMLORD_API int memlord_cuda_attached(memlord *lord) {
    return mli_cuda_attachment_of(lord) != NULL;
}

MEMLORD_API const char *memlord_cuda_why(void) {
    (void)mli_cuda_driver_get();
    return mli_cuda_loaded.why;
}

/* -- pools -- */

MEMLORD_API memlord_result memlord_cuda_pool_get(memlord *lord, int device,
                                                 memlord_cuda_pool *out) {
    const mli_cuda_driver *d;
    int mode, read;
    if (out) memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!out) return MEMLORD_E_INVALID;
    d = mli_cuda_driver_get();
    if (!d) return MEMLORD_E_UNSUPPORTED;
    if (device < 0 || device >= d->known) return MEMLORD_E_DEVICE;
    if (!d->pools[device]) return MEMLORD_E_UNSUPPORTED;
    if (!mli_cuda_active(d, device)) return MEMLORD_E_STATE;
    if (!mli_cuda_enter_device(d, device, &mode)) return MEMLORD_E_UNKNOWN;
    read = mli_cuda_pools_ask(d, device, NULL, out);
    mli_cuda_leave_device(d, device, &mode);
    if (!read) memset(out, 0, sizeof *out);
    return read ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MEMLORD_API memlord_result memlord_cuda_pool_refresh(memlord *lord, int device) {
    memlord_cuda_pool pool;
    memlord_result r = memlord_cuda_pool_get(lord, device, &pool);
    if (r) return r;
    return memlord_pool_set(lord, memlord_device_cuda(device),
                            mli_cuda_pool_reserved(lord, device, &pool), UINT64_MAX);
}

MEMLORD_API cudaError_t memlord_cuda_pool_create(memlord *lord, cudaMemPool_t *pool,
                                                 const struct cudaMemPoolProps *props,
                                                 const memlord_site *site) {
    cudaError_t r = MLI_CUDA_REAL(cudaMemPoolCreate)(pool, props);
    (void)site;
    if (r == cudaSuccess && props && lord)
        mli_cuda_pool_add(*pool, props->location.type == cudaMemLocationTypeDevice
                                     ? props->location.id : -1);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_pool_destroy(memlord *lord, cudaMemPool_t pool,
                                                  const memlord_site *site) {
    int device = 0, seen = lord && mli_cuda_pool_remove(pool, &device);
    cudaError_t r = MLI_CUDA_REAL(cudaMemPoolDestroy)(pool);
    (void)site;
    if (r != cudaSuccess && seen) mli_cuda_pool_add(pool, device);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_device_set_pool(memlord *lord, int device, cudaMemPool_t pool,
                                                     const memlord_site *site) {
    cudaError_t r = MLI_CUDA_REAL(cudaDeviceSetMemPool)(device, pool);
    (void)site;
    if (r == cudaSuccess && lord) mli_cuda_pool_add(pool, device);
    return r;
}

/* -- stream-ordered frees -- */

/* The use of a block on a stream. From mli_cuda_use_begin to mli_cuda_use_end the stream's
   record has one more user, so the record stays. */
typedef struct mli_cuda_use {
    mli_cuda_stream *stream; /* NULL if there was no memory */
    memlord_device device;   /* the device of the block */
    memlord_fence fence;
} mli_cuda_use;

/* Makes a fence for a block. A `placed` fence waits for the work that the stream has now, and an
   event is recorded for it. Any other fence waits for the work that the stream has when the block
   is freed. Returns 0 if there is no memory. */
static int mli_cuda_use_begin(memlord *lord, const void *ptr, cudaStream_t stream, int placed,
                              mli_cuda_use *use) {
    memlord_block_info block;
    int here;
    memset(use, 0, sizeof *use);
    use->device = memlord_device_cuda(0);
    if (mli_cuda_block_find(lord, MEMLORD_KEY(ptr), &block)) use->device = block.device;
    use->stream =
        mli_cuda_stream_find(mli_cuda_stream_handle(stream), use->device.index, &here);
    if (!use->stream) return 0;
    /* a per-thread stream needs its event now, because the thread that later asks whether the fence
       is done may be another one, and that thread cannot name this stream */
    placed |= use->stream->handle == cudaStreamPerThread;
    use->fence.user = mli_cuda_fence_on(use->stream, placed);
    use->fence.done = mli_cuda_fence_done;
    use->fence.drop = mli_cuda_fence_free;
    use->fence.queue = use->stream->number;
    if (!use->fence.user) return 0;
    if (placed) (void)mli_cuda_stream_record(use->stream, here);
    return 1;
}
/* Ends what mli_cuda_use_begin began, and returns `r`, the ledger's result. If `r` is an error, the
   ledger has not taken the fence, so this function frees it. */
static memlord_result mli_cuda_use_end(mli_cuda_use *use, memlord_result r) {
    if (r && use->fence.user) mli_cuda_fence_free(use->fence.user);
    if (use->stream) mli_cuda_stream_leave(use->stream);
    return r;
}

MEMLORD_API memlord_result memlord_cuda_record_use(memlord *lord, const void *ptr,
                                                   cudaStream_t stream) {
    mli_cuda_use use;
    memlord_result r = MEMLORD_E_NOMEM;
    if (!lord || !ptr) return MEMLORD_OK;
    if (mli_cuda_use_begin(lord, ptr, stream, 0, &use))
        r = memlord_block_use(lord, use.device, MEMLORD_KEY(ptr), use.fence);
    return mli_cuda_use_end(&use, r);
}

/* Gives the block its fence before the real free, because after the real free another thread may
   get the address. If there is no memory for a fence, the block does not wait for the stream. */
MEMLORD_API cudaError_t memlord_cuda_free_async_after(memlord *lord, void *ptr,
                                                      cudaStream_t stream,
                                                      const memlord_site *site) {
    mli_cuda_use use;
    memlord_result r = MEMLORD_E_NOMEM;
    cudaError_t answer;
    if (!lord || !ptr) return memlord_cuda_free_async(lord, ptr, stream, site);
    if (mli_cuda_use_begin(lord, ptr, stream, 1, &use)) {
        r = memlord_block_use(lord, use.device, MEMLORD_KEY(ptr), use.fence);
        mli_cuda_stream_answer(use.stream, 1);
    }
    answer = memlord_cuda_free_async(lord, ptr, stream, site);
    if (use.stream) mli_cuda_stream_answer(use.stream, 0);
    (void)mli_cuda_use_end(&use, r);
    return answer;
}

MEMLORD_API memlord_result memlord_cuda_record_free(memlord *lord, const void *ptr,
                                                    cudaStream_t stream,
                                                    const memlord_site *site) {
    mli_cuda_use use;
    memlord_result r = MEMLORD_E_NOMEM;
    if (!lord || !ptr) return MEMLORD_OK;
    if (mli_cuda_use_begin(lord, ptr, stream, 1, &use)) {
        mli_cuda_stream_answer(use.stream, 1);
        r = memlord_free_deferred(lord, use.device, MEMLORD_KEY(ptr), use.fence, site);
        mli_cuda_stream_answer(use.stream, 0);
    }
    (void)mli_cuda_use_end(&use, r);
    return r == MEMLORD_E_NOMEM ? memlord_free(lord, use.device, MEMLORD_KEY(ptr), site) : r;
}

MEMLORD_API void memlord_cuda_events_release(void) {
    mli_cuda_streams_forget();
    mli_cuda_events_end();
}

/* -- scopes -- */

MEMLORD_API memlord_result memlord_cuda_scope_begin(memlord *lord, memlord_cuda_scope *scope,
                                                    const char *name, cudaStream_t stream) {
    mli_cuda_attachment *probe;
    memlord_result r;
    if (scope) memset(scope, 0, sizeof *scope);
    if (!lord) return MEMLORD_OK;
    if (!scope) return MEMLORD_E_INVALID;
    r = memlord_scope_begin(lord, name);
    if (r) return r;
    mli_cuda_nvtx_push(name);
    scope->begun = 1;
    scope->stream = mli_cuda_stream_handle(stream);
    mli_cuda_times_read(lord, &scope->stream, 0);
    probe = mli_cuda_attachment_of(lord);
    if (probe && mli_cuda_load(&probe->flags) & MEMLORD_CUDA_FLAG_TIME_SCOPES)
        scope->start = mli_cuda_time_begin(lord, memlord_scope_current(lord), scope->stream);
    return MEMLORD_OK;
}

MEMLORD_API memlord_result memlord_cuda_scope_end(memlord *lord, memlord_cuda_scope *scope) {
    if (!lord) return MEMLORD_OK;
    if (!scope) return MEMLORD_E_INVALID;
    if (!scope->begun) return MEMLORD_E_STATE;
    scope->begun = 0;
    mli_cuda_nvtx_end();
    if (scope->start) mli_cuda_time_end((mli_cuda_time *)scope->start);
    mli_cuda_times_read(lord, &scope->stream, 0);
    return memlord_scope_end(lord);
}

MEMLORD_API memlord_result memlord_cuda_checkpoint(memlord *lord, const char *name) {
    memlord_result r = memlord_checkpoint(lord, name);
    if (r == MEMLORD_OK && lord)
        mli_cuda_nvtx_mark(name, memlord_allocated(lord, memlord_device_all()));
    return r;
}

#ifdef __cplusplus
} /* extern "C" */
#endif

/* ------------------------------------------------------------------------ src/cuda/virtual.h -- */

/* Records physical memory and its mappings in the ledger. cuMemCreate makes physical memory, and
   cuMemMap maps the memory to addresses. The key of a block of physical memory is the driver's
   handle. The block has a reference for each handle and for each mapping, and a part for each
   mapped range. In the description of a part, the shape lists the addresses where the range is
   mapped. The driver says which handle an address belongs to. Owns no state. Locks: none. */

/* The name that a block of physical memory has in its description. */
MLI_CUDA_TABLE(const char mli_cuda_physical[])

typedef struct mli_cuda_mapping {
    unsigned long long handle;
    memlord_device device;  /* the device of the physical memory */
    uint64_t address;
    uint64_t offset, bytes; /* the mapped range of the physical memory; 0 bytes if the mapping is
                               not in the ledger */
    memlord_meta meta;      /* the description of the mapping's part, with up to 8 addresses as the
                               shape */
} mli_cuda_mapping;

/* Records a mapping in the ledger. Does nothing if the ledger does not have the handle. */
MLI_CUDA_PRIVATE void mli_cuda_mapping_add(memlord *lord, mli_cuda_mapping *m,
                                           const memlord_site *site);

/* Finds the mapping that begins at an address. Retains its handle until mli_cuda_mapping_end, so
   that no other memory gets the handle before the ledger is updated. Returns 0 if nothing is mapped
   at the address. A mapping that is not in the ledger has 0 bytes, and must not be ended. */
MLI_CUDA_PRIVATE int mli_cuda_mapping_begin(memlord *lord, const mli_cuda_driver *d,
                                            uint64_t address, mli_cuda_mapping *m);

/* Removes a mapping from the ledger if `gone` is 1, and releases the handle that
   mli_cuda_mapping_begin has retained. */
MLI_CUDA_PRIVATE void mli_cuda_mapping_end(memlord *lord, const mli_cuda_driver *d,
                                           mli_cuda_mapping *m, int gone, const memlord_site *site);

/* ------------------------------------------------------------------------ src/cuda/virtual.c -- */

MLI_CUDA_PRIVATE const char mli_cuda_physical[] = "cuMemCreate";
static const char mli_cuda_part[] = "mapped";

/* Is a memlord_part_fn that looks for the part of a mapping. If m->bytes is 0, that is the part
   that lists the mapping's address. Otherwise it is the part that is exactly the mapping's range.
   Copies the part into the mapping, and returns 1 so that the search ends. */
static int mli_cuda_mapping_match(void *user, const memlord_part_info *part) {
    mli_cuda_mapping *m = (mli_cuda_mapping *)user;
    int k, found = part->offset == m->offset && part->bytes == m->bytes;
    if (!part->meta.name || strcmp(part->meta.name, mli_cuda_part)) return 0;
    for (k = 0; k < (int)part->meta.rank && !m->bytes; k++)
        found |= (uint64_t)part->meta.shape[k] == m->address;
    if (!found) return 0;
    m->offset = part->offset;
    m->bytes = part->bytes;
    m->meta = part->meta;
    return 1;
}

MLI_CUDA_PRIVATE void mli_cuda_mapping_add(memlord *lord, mli_cuda_mapping *m,
                                           const memlord_site *site) {
    memlord_block_info block;
    memlord_result r;
    if (!mli_cuda_block_find(lord, m->handle, &block)) return;
    memset(&m->meta, 0, sizeof m->meta);
    m->meta.name = mli_cuda_part;
    m->meta.shape[0] = (int64_t)m->address;
    m->meta.rank = 1;
    r = memlord_part_add(lord, block.device, m->handle, m->offset, m->bytes, &m->meta);
    if (r == MEMLORD_E_STATE) { /* the range is mapped already, so it gets one more address */
        m->meta.rank = 8;
        (void)memlord_parts_each(lord, block.device, m->handle, mli_cuda_mapping_match, m);
        if (m->meta.rank >= 8) return;
        m->meta.shape[m->meta.rank++] = (int64_t)m->address;
        (void)memlord_part_remove(lord, block.device, m->handle, m->offset);
        r = memlord_part_add(lord, block.device, m->handle, m->offset, m->bytes, &m->meta);
    }
    if (r == MEMLORD_OK) (void)memlord_retain(lord, block.device, m->handle, site);
}

MLI_CUDA_PRIVATE int mli_cuda_mapping_begin(memlord *lord, const mli_cuda_driver *d,
                                            uint64_t address, mli_cuda_mapping *m) {
    memlord_block_info block;
    m->address = address;
    m->offset = m->bytes = 0;
    if (!lord || d->mem_retain_handle(&m->handle, (void *)(uintptr_t)address)) return 0;
    if (mli_cuda_block_find(lord, m->handle, &block)) {
        m->device = block.device;
        (void)memlord_parts_each(lord, m->device, m->handle, mli_cuda_mapping_match, m);
    }
    if (!m->bytes) (void)d->mem_release(m->handle);
    return 1;
}

MLI_CUDA_PRIVATE void mli_cuda_mapping_end(memlord *lord, const mli_cuda_driver *d,
                                           mli_cuda_mapping *m, int gone,
                                           const memlord_site *site) {
    memlord_block_info block;
    int k;
    if (gone && mli_cuda_block_find(lord, m->handle, &block)) {
        m->bytes = 0; /* makes mli_cuda_mapping_match search by address again, because the
                         part may have changed when another mapping ended */
        (void)memlord_parts_each(lord, m->device, m->handle, mli_cuda_mapping_match, m);
        (void)memlord_part_remove(lord, m->device, m->handle, m->offset);
        if (--m->meta.rank) { /* the range is mapped at another address, too */
            for (k = 0; k < (int)m->meta.rank && (uint64_t)m->meta.shape[k] != m->address;) k++;
            m->meta.shape[k] = m->meta.shape[m->meta.rank];
            (void)memlord_part_add(lord, m->device, m->handle, m->offset, m->bytes, &m->meta);
        }
        if (block.refs == 1)
            mli_cuda_pool_beside(lord, block.device, -(int64_t)block.bytes);
        (void)memlord_release(lord, m->device, m->handle, site);
    }
    (void)d->mem_release(m->handle);
}

/* ------------------------------------------------------------------------- src/cuda/resets.h -- */

/* Has what memlord_cuda_device_reset does before the real call. Owns no state. Locks: none. */

/* Frees, in the ledger, the blocks whose memory a reset of the device frees. Waits for the work
   that pending frees on the device's streams wait for, as the reset itself would. Requires: the
   reset has not begun, so that the streams and events still exist. */
MLI_CUDA_PRIVATE void mli_cuda_reset_begin(memlord *lord, const mli_cuda_driver *d, int device,
                                           const memlord_site *site);

/* ------------------------------------------------------------------------- src/cuda/resets.c -- */

typedef struct mli_cuda_reset {
    memlord *lord;
    int device;
    const memlord_site *site;
} mli_cuda_reset;

/* Is a memlord_block_fn that frees a block in the ledger if a reset of the device frees its memory.
   A reset does not free blocks of pools, or physical memory. A reset frees page-locked memory if
   the driver says that the memory belongs to the device. */
static int mli_cuda_reset_block(void *user, const memlord_block_info *block) {
    const mli_cuda_reset *reset = (const mli_cuda_reset *)user;
    const mli_cuda_driver *d = mli_cuda_driver_get();
    const int ours = block->device.type == MEMLORD_DEVICE_CUDA;
    cudaMemPool_t pool = NULL;
    int device = reset->device;
    if (!d || block->pending || (block->meta.name && !strcmp(block->meta.name, mli_cuda_physical)))
        return 0;
    if (d->pointer_attribute(&pool, MLI_CUDA_POINTER_POOL, block->storage)) pool = NULL;
    if (!ours && d->pointer_attribute(&device, MLI_CUDA_POINTER_DEVICE, block->storage))
        device = -1;
    if (pool || device != reset->device) return 0;
    mli_cuda_pool_beside(reset->lord, block->device, -(int64_t)block->bytes);
    (void)memlord_free(reset->lord, block->device, block->storage, reset->site);
    return 0;
}

MLI_CUDA_PRIVATE void mli_cuda_reset_begin(memlord *lord, const mli_cuda_driver *d, int device,
                                           const memlord_site *site) {
    mli_cuda_reset reset;
    void *context = NULL;
    int mode;
    if (!mli_cuda_enter_device(d, device, &mode)) return;
    reset.lord = lord, reset.device = device, reset.site = site;
    (void)d->context_current(&context);
    (void)memlord_blocks_each(lord, memlord_device_cuda(device), 0, mli_cuda_reset_block, &reset);
    (void)memlord_blocks_each(lord, memlord_device_make(MEMLORD_DEVICE_PINNED, MEMLORD_ANY), 0,
                              mli_cuda_reset_block, &reset);
    mli_cuda_streams_end(NULL, context);
    (void)memlord_retire(lord, memlord_device_all());
    mli_cuda_times_read(lord, NULL, 0);
    mli_cuda_leave_device(d, device, &mode);
}

/* --------------------------------------------------------------------------- src/cuda/wrap.h -- */

/* Has the __wrap_ functions, to which the linker's --wrap redirects calls. The site of such a call
   is its return address. Owns no state. Locks: none. */

/* --------------------------------------------------------------------------- src/cuda/wrap.c -- */

#ifdef __cplusplus
extern "C" {
#endif

#if defined(MEMLORD_CUDA_WRAP)
#define MLI_CUDA_HERE                                                                         \
    memlord_site_at(MEMLORD_CUDA_SHIM_LORD, __builtin_return_address(0))
#define MLI_CUDA_X(real, ours, params, args)                                                  \
    cudaError_t MLI_CUDA_WRAP(real)(MLI_CUDA_ITEMS params) {                                  \
        return memlord_cuda_##ours(MEMLORD_CUDA_SHIM_LORD, MLI_CUDA_ITEMS args,               \
                                   MLI_CUDA_HERE);                                            \
    }
#define MLI_CUDA_X0(real, ours)                                                               \
    cudaError_t MLI_CUDA_WRAP(real)(void) {                                                   \
        return memlord_cuda_##ours(MEMLORD_CUDA_SHIM_LORD, MLI_CUDA_HERE);                    \
    }
MLI_CUDA_WRAPPED(MLI_CUDA_X, MLI_CUDA_X0)
#undef MLI_CUDA_X
#undef MLI_CUDA_X0
#define MLI_CUDA_X(real, ours, params, args)                                                  \
    mli_cuda_result MLI_CUDA_WRAP(real)(MLI_CUDA_ITEMS params);                               \
    mli_cuda_result MLI_CUDA_WRAP(real)(MLI_CUDA_ITEMS params) {                              \
        return memlord_cuda_##ours(MEMLORD_CUDA_SHIM_LORD, MLI_CUDA_ITEMS args,               \
                                   MLI_CUDA_HERE);                                            \
    }
MLI_CUDA_VIRTUAL(MLI_CUDA_X)
#undef MLI_CUDA_X
#undef MLI_CUDA_HERE
#endif

/* Counts a function that is not redirected. *name gets the name of the first such function. */
static void mli_cuda_wrap_note(int redirected, const char *real, int *missing, const char **name) {
    if (!redirected && !(*missing)++) *name = real;
}

/* The two addresses are in volatile pointers, because a compiler assumes that two names are never
   one function. */
MEMLORD_API int memlord_cuda_wrap_check(const char **first) {
    int missing = 0;
    const char *name = NULL;
#if defined(MEMLORD_CUDA_WRAP)
#define MLI_CUDA_X0(real, ours)                                                               \
    {                                                                                         \
        __typeof__(real) *volatile original = real, *volatile wrapped = MLI_CUDA_WRAP(real);  \
        mli_cuda_wrap_note(original == wrapped, #real, &missing, &name);                      \
    }
#else
#define MLI_CUDA_X0(real, ours) mli_cuda_wrap_note(0, #real, &missing, &name);
#endif
#define MLI_CUDA_X(real, ours, params, args) MLI_CUDA_X0(real, ours)
    MLI_CUDA_WRAPPED(MLI_CUDA_X, MLI_CUDA_X0)
#undef MLI_CUDA_X
#undef MLI_CUDA_X0
    if (first) *first = name;
    return missing;
}

#ifdef __cplusplus
} /* extern "C" */
#endif

/* ------------------------------------------------------------------------ src/cuda/wrapped.h -- */

/* Has the public functions that each wrap a function of CUDA: allocations, frees, streams, resets,
   virtual memory. Owns no state. May use all modules of cuda/. Locks: none. */

/* ------------------------------------------------------------------------ src/cuda/wrapped.c -- */

#ifdef __cplusplus
extern "C" {
#endif

/* -- wrapped functions: allocations -- */

#define MLI_CUDA_EACH2(f, a, b) f(a), f(b)
#define MLI_CUDA_EACH3(f, a, b, c) f(a), f(b), f(c)
#define MLI_CUDA_EACH4(f, a, b, c, d) f(a), f(b), f(c), f(d)
/* MSVC takes __VA_ARGS__ for one argument unless another macro, MLI_CUDA_ITEMS, expands it */
#define MLI_CUDA_EACH(n, f, ...) MLI_CUDA_ITEMS(MLI_CUDA_EACH##n(f, __VA_ARGS__))
#define MLI_CUDA_SET(name) q.name = name
#define MLI_CUDA_GET(name) q->name
#define MLI_CUDA_ALLOC(real, ours, params, args, n, kind)                                     \
    static cudaError_t mli_cuda_call_##ours(const mli_cuda_request *q) {                      \
        return MLI_CUDA_REAL(real)(MLI_CUDA_EACH(n, MLI_CUDA_GET, MLI_CUDA_ITEMS args));      \
    }                                                                                         \
    MEMLORD_API cudaError_t memlord_cuda_##ours(memlord *lord, MLI_CUDA_ITEMS params,         \
                                                const memlord_site *site) {                   \
        mli_cuda_request q = mli_cuda_request_for(MLI_CUDA_##kind, mli_cuda_call_##ours);     \
        MLI_CUDA_EACH(n, MLI_CUDA_SET, MLI_CUDA_ITEMS args);                                  \
        return mli_cuda_alloc(lord, &q, site);                                                \
    }
MLI_CUDA_ALLOCS(MLI_CUDA_ALLOC)
#undef MLI_CUDA_ALLOC
#undef MLI_CUDA_EACH
#undef MLI_CUDA_EACH2
#undef MLI_CUDA_EACH3
#undef MLI_CUDA_EACH4
#undef MLI_CUDA_SET
#undef MLI_CUDA_GET

MEMLORD_API cudaError_t memlord_cuda_malloc_retry(memlord *lord, void **ptr, size_t bytes,
                                                  const memlord_retry *policy,
                                                  const memlord_site *site) {
    mli_cuda_request q = mli_cuda_request_for(MLI_CUDA_PLAIN, mli_cuda_call_malloc);
    q.ptr = ptr;
    q.bytes = bytes;
    if (!lord) return q.call(&q);
    return mli_cuda_alloc_retry(lord, &q, policy, site);
}

MEMLORD_API cudaError_t memlord_cuda_host_register(memlord *lord, void *ptr, size_t bytes,
                                                   unsigned int flags, const memlord_site *site) {
    cudaError_t r = MLI_CUDA_REAL(cudaHostRegister)(ptr, bytes, flags);
    if (r == cudaSuccess && ptr)
        (void)memlord_alloc(lord, memlord_device_make(MEMLORD_DEVICE_PINNED, 0), MEMLORD_KEY(ptr),
                            bytes, site);
    return r;
}

/* -- wrapped functions: frees -- */

#define MLI_CUDA_FREE(real, ours, params, args, on)                                           \
    MEMLORD_API cudaError_t memlord_cuda_##ours(memlord *lord, MLI_CUDA_ITEMS params,         \
                                                const memlord_site *site) {                   \
        mli_cuda_ending end;                                                                  \
        mli_cuda_free_begin(lord, MEMLORD_DEVICE_##on, MLI_CUDA_ITEMS args, 1, &end, site);   \
        return mli_cuda_free_end(lord, &end, MLI_CUDA_REAL(real) args, site);                 \
    }
MLI_CUDA_FREES(MLI_CUDA_FREE)
#undef MLI_CUDA_FREE

MEMLORD_API cudaError_t memlord_cuda_free_async(memlord *lord, void *ptr, cudaStream_t stream,
                                                const memlord_site *site) {
    mli_cuda_ending end;
    cudaError_t r;
    mli_cuda_free_begin(lord, MEMLORD_DEVICE_CUDA, ptr, 0, &end, site);
    r = mli_cuda_free_end(lord, &end, MLI_CUDA_REAL(cudaFreeAsync)(ptr, stream), site);
    mli_cuda_pool_check(lord, 0);
    return r;
}

/* -- wrapped functions: streams -- */

/* Is called after a wait of the host. Ends the frees whose streams have done their work, and reads
   the times of scopes that are done. `stream` is the stream that the host has waited for, or NULL
   if the wait was for an event or for the whole device. Returns `answer`. */
static cudaError_t mli_cuda_synchronized(memlord *lord, const cudaStream_t *stream,
                                         cudaError_t answer) {
    (void)memlord_retire(lord, memlord_device_make(MEMLORD_DEVICE_CUDA, MEMLORD_ANY));
    (void)memlord_retire(lord, memlord_device_make(MEMLORD_DEVICE_PINNED, MEMLORD_ANY));
    if (lord) mli_cuda_times_read(lord, stream, 0);
    mli_cuda_pool_check(lord, 1);
    return answer;
}

MEMLORD_API cudaError_t memlord_cuda_stream_synchronize(memlord *lord, cudaStream_t stream,
                                                        const memlord_site *site) {
    cudaStream_t own = mli_cuda_stream_handle(stream);
    (void)site;
    if (lord) mli_cuda_streams_record(&own);
    return mli_cuda_synchronized(lord, &own, MLI_CUDA_REAL(cudaStreamSynchronize)(stream));
}

MEMLORD_API cudaError_t memlord_cuda_event_synchronize(memlord *lord, cudaEvent_t event,
                                                       const memlord_site *site) {
    (void)site;
    return mli_cuda_synchronized(lord, NULL, MLI_CUDA_REAL(cudaEventSynchronize)(event));
}

MEMLORD_API cudaError_t memlord_cuda_device_synchronize(memlord *lord, const memlord_site *site) {
    (void)site;
    if (lord) mli_cuda_streams_record(NULL);
    return mli_cuda_synchronized(lord, NULL, MLI_CUDA_REAL(cudaDeviceSynchronize)());
}

MEMLORD_API cudaError_t memlord_cuda_device_reset(memlord *lord, const memlord_site *site) {
    const mli_cuda_driver *d = lord ? mli_cuda_driver_get() : NULL;
    const int device = d ? mli_cuda_device_current() : 0;
    mli_cuda_u64 *inside = d && device < d->known ? &mli_cuda_inside[device] : NULL;
    cudaError_t r;
    if (d) {
        mli_cuda_reset_begin(lord, d, device, site);
        memlord_cuda_events_release();
    }
    /* The addition is relaxed, as in mli_cuda_enter_device. The acquire load pairs with the release
       in mli_cuda_exit_device. */
    if (inside) (void)mli_cuda_add(inside, MLI_CUDA_RESETTING);
    while (inside && mli_cuda_load_acquire(inside) % MLI_CUDA_RESETTING) mli_cuda_yield();
    r = MLI_CUDA_REAL(cudaDeviceReset)();
    if (inside) (void)mli_cuda_add(inside, ~MLI_CUDA_RESETTING + 1);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_stream_end_capture(memlord *lord, cudaStream_t stream,
                                                        cudaGraph_t *graph,
                                                        const memlord_site *site) {
    cudaError_t r = MLI_CUDA_REAL(cudaStreamEndCapture)(stream, graph);
    (void)site;
    stream = mli_cuda_stream_handle(stream);
    if (lord) mli_cuda_streams_record(&stream);
    return r;
}

MEMLORD_API cudaError_t memlord_cuda_stream_destroy(memlord *lord, cudaStream_t stream,
                                                    const memlord_site *site) {
    (void)site;
    if (lord && !mli_cuda_is_default(stream)) mli_cuda_streams_end(&stream, NULL);
    return MLI_CUDA_REAL(cudaStreamDestroy)(stream);
}

/* -- virtual memory -- */

#define MLI_CUDA_MEM(ours, params)                                                            \
    MEMLORD_API mli_cuda_result memlord_cuda_##ours(memlord *lord, MLI_CUDA_ITEMS params,     \
                                                    const memlord_site *site)
#define MLI_CUDA_MEM_DRIVER(d)                                                                \
    const mli_cuda_driver *d = mli_cuda_driver_get();                                         \
    if (!d || !d->mem_create) return (mli_cuda_result)MLI_CUDA_NOT_INITIALIZED

/* An error has the same number as a CUresult and as a cudaError_t, so a cast converts it. */
static cudaError_t mli_cuda_call_mem_create(const mli_cuda_request *q) {
    return (cudaError_t)mli_cuda_loaded.table.mem_create(
        q->handle, q->bytes, (const mli_cuda_prop *)q->prop, q->mem_flags);
}

MLI_CUDA_MEM(mem_create, (unsigned long long *handle, size_t bytes, const mli_cuda_prop *prop,
                          unsigned long long flags)) {
    mli_cuda_request q = mli_cuda_request_for(MLI_CUDA_PHYSICAL, mli_cuda_call_mem_create);
    int of[4] = {0, 0, 0, 0}; /* the property's type, its handle types, and the type and number of
                                 its location */
    memlord_meta meta;
    cudaError_t r;
    MLI_CUDA_MEM_DRIVER(d);
    if (prop) memcpy(of, prop, sizeof of);
    q.handle = handle, q.bytes = bytes, q.prop = prop, q.mem_flags = flags;
    q.location = of[2] == 1 ? memlord_device_cuda(mli_cuda_ordinal(d, of[3]))
                            : memlord_device_make(MEMLORD_DEVICE_PINNED, 0);
    r = mli_cuda_alloc(lord, &q, site);
    memset(&meta, 0, sizeof meta);
    meta.name = mli_cuda_physical;
    if (r == cudaSuccess) (void)memlord_block_describe(lord, q.location, *handle, &meta);
    return (mli_cuda_result)r;
}

MLI_CUDA_MEM(mem_release, (unsigned long long handle)) {
    const void *key = (const void *)(uintptr_t)handle;
    mli_cuda_ending end;
    memlord_block_info block;
    int known, r;
    MLI_CUDA_MEM_DRIVER(d);
    known = mli_cuda_block_find(lord, handle, &block);
    if (known && block.refs == 1) {
        mli_cuda_free_begin(lord, block.device.type, key, 1, &end, site);
        return (mli_cuda_result)mli_cuda_free_end(lord, &end, (cudaError_t)d->mem_release(handle),
                                                  site);
    }
    if (known) (void)memlord_release(lord, block.device, handle, site);
    r = d->mem_release(handle);
    if (known && r) (void)memlord_retain(lord, block.device, handle, site);
    return (mli_cuda_result)r;
}

MLI_CUDA_MEM(mem_map, (unsigned long long ptr, size_t bytes, size_t offset,
                       unsigned long long handle, unsigned long long flags)) {
    mli_cuda_mapping m;
    int r;
    MLI_CUDA_MEM_DRIVER(d);
    r = d->mem_map(ptr, bytes, offset, handle, flags);
    m.handle = handle, m.address = ptr, m.offset = offset, m.bytes = bytes;
    if (r == 0) mli_cuda_mapping_add(lord, &m, site);
    return (mli_cuda_result)r;
}

/* Takes the mappings in the range off the ledger after the real call, if the call succeeds. Only
   the first ROOM mappings can wait for the result. The others leave the ledger before the call,
   even if the call then fails. */
MLI_CUDA_MEM(mem_unmap, (unsigned long long ptr, size_t bytes)) {
    enum { ROOM = 64, GRAIN = 2 << 20 }; /* the bytes of a mapping are a multiple of GRAIN */
    mli_cuda_mapping held[ROOM], m;
    uint64_t at = ptr;
    int n = 0, r;
    MLI_CUDA_MEM_DRIVER(d);
    for (; at - ptr < bytes && mli_cuda_mapping_begin(lord, d, at, &m);
         at += m.bytes ? m.bytes : (uint64_t)GRAIN) {
        if (!m.bytes) continue;
        if (n < ROOM)
            held[n++] = m;
        else
            mli_cuda_mapping_end(lord, d, &m, 1, site);
    }
    r = d->mem_unmap(ptr, bytes);
    while (n--) mli_cuda_mapping_end(lord, d, &held[n], r == 0, site);
    return (mli_cuda_result)r;
}

MLI_CUDA_MEM(mem_retain_handle, (unsigned long long *handle, void *ptr)) {
    memlord_block_info block;
    int r;
    MLI_CUDA_MEM_DRIVER(d);
    r = d->mem_retain_handle(handle, ptr);
    if (r == 0 && mli_cuda_block_find(lord, *handle, &block))
        (void)memlord_retain(lord, block.device, *handle, site);
    return (mli_cuda_result)r;
}
#undef MLI_CUDA_MEM
#undef MLI_CUDA_MEM_DRIVER

#ifdef __cplusplus
} /* extern "C" */
#endif

#undef MLI_CUDA_FUNCTIONS
#undef MLI_CUDA_AS_FUNCTION
#undef MLI_CUDA_WHY
#undef MLI_CUDA_NVML_FUNCTIONS
#undef MLI_CUDA_NVML
#undef MLI_CUDA_LOCK
#undef MLI_CUDA_RESETTING
#undef MLI_CUDA_REAL
#undef MLI_CUDA_WRAP
#undef MLI_CUDA_PASTE
#endif /* MEMLORD_CUDA_IMPLEMENTATION */

/* ------------------------------------------------------------------------- >>shim --
   The shim is the last part, so that nothing above is redirected. It is outside of the include
   guard, because another header may have included memlord_cuda.h before without MEMLORD_CUDA_SHIM.
   The macros are variadic, because the preprocessor takes the comma of sizeof(std::pair<int, int>)
   for one between arguments. They call functions, so that the compiler checks the types. In C++
   there are overloads as in cuda_runtime.h, for pointers of any type and for other numbers of
   arguments. The shim is off while nvcc compiles for the device, because device code may call the
   device's own cudaMalloc. */
#if defined(MEMLORD_CUDA_SHIM) && !defined(MEMLORD_DISABLE) && !defined(__CUDA_ARCH__) &&     \
    !defined(MLI_CUDA_SHIMMED)
#define MLI_CUDA_SHIMMED
#ifndef MEMLORD_CUDA_SHIM_LORD
#define MEMLORD_CUDA_SHIM_LORD memlord_global()
#endif

#ifdef __cplusplus
extern "C++" {
#define MLI_CUDA_FORM(name, params, call)                                                     \
    template <class T>                                                                        \
    inline cudaError_t memlord_cuda_##name(memlord *lord, T **ptr, MLI_CUDA_ITEMS params,       \
                                           const memlord_site *site) {                        \
        void **made = static_cast<void **>(static_cast<void *>(ptr)); /* T may be const */    \
        (void)made;                                                                           \
        return call;                                                                          \
    }
MLI_CUDA_FORM(malloc, (size_t bytes), memlord_cuda_malloc(lord, made, bytes, site))
MLI_CUDA_FORM(malloc_pitch, (size_t *pitch, size_t width, size_t height),
              memlord_cuda_malloc_pitch(lord, made, pitch, width, height, site))
MLI_CUDA_FORM(malloc_managed, (size_t bytes, unsigned int flags),
              memlord_cuda_malloc_managed(lord, made, bytes, flags, site))
MLI_CUDA_FORM(malloc_managed, (size_t bytes),
              memlord_cuda_malloc_managed(lord, made, bytes, cudaMemAttachGlobal, site))
MLI_CUDA_FORM(malloc_async, (size_t bytes, cudaStream_t stream),
              memlord_cuda_malloc_async(lord, made, bytes, stream, site))
MLI_CUDA_FORM(malloc_async, (size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
              memlord_cuda_malloc_from_pool_async(lord, made, bytes, pool, stream, site))
MLI_CUDA_FORM(malloc_from_pool_async,
              (size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
              memlord_cuda_malloc_from_pool_async(lord, made, bytes, pool, stream, site))
MLI_CUDA_FORM(malloc_host, (size_t bytes), memlord_cuda_malloc_host(lord, made, bytes, site))
MLI_CUDA_FORM(malloc_host, (size_t bytes, unsigned int flags),
              memlord_cuda_host_alloc(lord, made, bytes, flags, site))
MLI_CUDA_FORM(host_alloc, (size_t bytes, unsigned int flags),
              memlord_cuda_host_alloc(lord, made, bytes, flags, site))
#undef MLI_CUDA_FORM
}
#endif

#define MLI_CUDA_SHIM(name, ...)                                                              \
    memlord_cuda_##name(MEMLORD_CUDA_SHIM_LORD, __VA_ARGS__, MEMLORD_SITE())
#undef cudaMallocAsync /* with the per-thread default stream these are macros */
#undef cudaMallocFromPoolAsync
#undef cudaFreeAsync
#undef cudaStreamEndCapture
#undef cudaStreamSynchronize
#define cudaMalloc(...) MLI_CUDA_SHIM(malloc, __VA_ARGS__)
#define cudaMallocPitch(...) MLI_CUDA_SHIM(malloc_pitch, __VA_ARGS__)
#define cudaMalloc3D(...) MLI_CUDA_SHIM(malloc_3d, __VA_ARGS__)
#define cudaMallocManaged(...) MLI_CUDA_SHIM(malloc_managed, __VA_ARGS__)
#define cudaMallocAsync(...) MLI_CUDA_SHIM(malloc_async, __VA_ARGS__)
#define cudaMallocFromPoolAsync(...) MLI_CUDA_SHIM(malloc_from_pool_async, __VA_ARGS__)
#define cudaFree(...) MLI_CUDA_SHIM(free, __VA_ARGS__)
#define cudaFreeAsync(...) MLI_CUDA_SHIM(free_async, __VA_ARGS__)
#define cudaMallocHost(...) MLI_CUDA_SHIM(malloc_host, __VA_ARGS__)
#define cudaHostAlloc(...) MLI_CUDA_SHIM(host_alloc, __VA_ARGS__)
#define cudaFreeHost(...) MLI_CUDA_SHIM(free_host, __VA_ARGS__)
#define cudaHostRegister(...) MLI_CUDA_SHIM(host_register, __VA_ARGS__)
#define cudaHostUnregister(...) MLI_CUDA_SHIM(host_unregister, __VA_ARGS__)
#define cudaStreamEndCapture(...) MLI_CUDA_SHIM(stream_end_capture, __VA_ARGS__)
#define cudaStreamDestroy(...) MLI_CUDA_SHIM(stream_destroy, __VA_ARGS__)
#define cudaStreamSynchronize(...) MLI_CUDA_SHIM(stream_synchronize, __VA_ARGS__)
#define cudaEventSynchronize(...) MLI_CUDA_SHIM(event_synchronize, __VA_ARGS__)
#define cudaDeviceSynchronize()                                                               \
    memlord_cuda_device_synchronize(MEMLORD_CUDA_SHIM_LORD, MEMLORD_SITE())
#if defined(CUDA_VERSION)
#define cuMemCreate(...) MLI_CUDA_SHIM(mem_create, __VA_ARGS__)
#define cuMemRelease(...) MLI_CUDA_SHIM(mem_release, __VA_ARGS__)
#define cuMemMap(...) MLI_CUDA_SHIM(mem_map, __VA_ARGS__)
#define cuMemUnmap(...) MLI_CUDA_SHIM(mem_unmap, __VA_ARGS__)
#define cuMemRetainAllocationHandle(...) MLI_CUDA_SHIM(mem_retain_handle, __VA_ARGS__)
#endif
#define cudaDeviceReset() memlord_cuda_device_reset(MEMLORD_CUDA_SHIM_LORD, MEMLORD_SITE())
#define cudaMemPoolCreate(...) MLI_CUDA_SHIM(pool_create, __VA_ARGS__)
#define cudaMemPoolDestroy(...) MLI_CUDA_SHIM(pool_destroy, __VA_ARGS__)
#define cudaDeviceSetMemPool(...) MLI_CUDA_SHIM(device_set_pool, __VA_ARGS__)
#endif

/* MIT license: its text is at the end of memlord.h. */
