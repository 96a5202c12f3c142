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
