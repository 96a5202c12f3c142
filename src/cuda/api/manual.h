/*
    memlord_cuda.h - MemLord for programs that hold their memory on NVIDIA GPUs
                     v0.5.0, C99 and C++11, CUDA 11.2 to 13, SPDX-License-Identifier: MIT
                     Made from src/. Edit there.

    Capacity and collection for cuda devices, the runtime's allocation functions with the books
    kept, and frees in the order of a stream. No byte of the program behaves otherwise.

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
        >>concepts       where the layer asks, and where bytes are counted
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

    Runtime   a wrapper makes the real call exactly once (but for a retry that was asked for) and
              returns its result. Of the runtime the layer itself asks the current device alone.
    Driver    everything else it asks of libcuda, which the runtime has loaded: the driver has no
              last error to change, and to push and pop a context changes no current device.
    Active    a device whose primary context exists. The layer enters no other, as a context costs
              hundreds of MB. The capacity of a device that is not active comes from NVML alone.
    Device    cuda:i is the runtime's device i. Memory counts where the runtime took it from:
              the current one, or the stream's. Managed memory does too, wherever its pages are, as
              cudaFree does not say which it is.
    Context   its size is taken once, when a sample first finds it: what NVML says is held,
              or what is used more than at attach, less what is on the books.
    Pinned    cudaMallocHost, cudaHostAlloc and cudaHostRegister count on the device pinned.
              Registered memory was there before: record its malloc too, and it counts on the cpu
              and on pinned.
    Pool      a memory pool of a device: the current one (cudaDeviceGetMemPool), the default one,
              and each that a wrapped call made or set, up to 64 of a process at a time; and the
              memory of its graphs. Destroy a pool that was made or set so by
              memlord_cuda_pool_destroy: to ask a pool that is gone is undefined. Blocks in it then
              count as outside of pools until freed. A pool that others made is not asked; what is
              allocated from it counts as outside of pools.
    Reserved  what pools and graphs hold, and what is live outside: live on the books and not
              pending, less what pools and graphs say is used. So `cached`, `reserved` less what is
              allocated, is what they hold unused. Bytes of a pool that unwrapped calls
              use count as cached as far as they exceed what is live outside.
    Collection of a cuda device trims its pools and graphs, and gave back the reserved bytes before
              less those after. The host's callbacks run beside it, in the order of their adding.
              Bands ask the layer for one only after the host has set a strategy
              (memlord_strategy_set; the default one by memlord_strategy_default): attaching alone
              trims nothing until memory or a limit runs out, a neighbour asks or the host does.
              Callbacks of the host's own are asked without that. A collection for a band leaves the
              pools what was used of them at most since the last one.
    Capture   the layer ends none. It records no event on a stream that is captured, and asks and
              trims with the thread's capture mode relaxed. An event that a capture held back is
              recorded at the capture's wrapped end, before the next wrapped wait, or in a poll.
    Streams   an event that is still to be recorded needs its stream: memlord_cuda_stream_destroy
              records it first. A stream destroyed otherwise must have none, as to ask it is
              undefined; drivers mostly refuse, and the fence has failed. Since CUDA 12 a stream or
              context that comes to be at the same address is known for another one: what was to be
              recorded on the first has failed, and its events are forgotten. An event for the
              per-thread stream of another thread is recorded on the legacy one, which waits for all
              blocking streams: that happens only if a poll finds one that a capture held back.

    ------------------------------------------------------------------ >>knobs ---

    Define before including; "all files" and "one file" as in memlord.h. Its MEMLORD_STATIC,
    MEMLORD_PREFIX and MEMLORD_API hold here too. With MEMLORD_DISABLE a wrapper is the function of
    the runtime, and the rest no-ops.

        MEMLORD_CUDA_SHIM          redirect the wrapped functions' plain names in this file;
                                   include memlord_cuda.h last                (that file)
        MEMLORD_CUDA_SHIM_LORD     the ledger of the shim and of __wrap_ functions, default
                                   memlord_global()                (that file, one file)
        MEMLORD_CUDA_WRAP          emit a __wrap_ function for each of them   (one file)
        MEMLORD_CUDA_NVTX          ranges and marks for NVIDIA's profilers, with
                                   <nvtx3/nvToolsExt.h>                       (one file)
        MEMLORD_CUDA_DRIVER        the driver's library, "libcuda.so.1"       (one file)
        MEMLORD_CUDA_MAX_LEDGERS   attached at a time, default 16             (one file)
        MEMLORD_CUDA_MAX_DEVICES   known of, default 64; further ones are counted but have no
                                   capacity                                   (one file)
        MEMLORD_CUDA_MAX_EVENTS    kept for reuse per context, default 256    (one file)

    With CUDA_API_PER_THREAD_DEFAULT_STREAM (nvcc --default-stream per-thread) compile the one file
    with the same define as those that call it.

    -------------------------------------------------------------- >>threading ---

    Any thread may call any function at any time. No lock of the layer is held while the driver is
    called, but for the one under which the first call of a process loads it. These may wait in it:

        record_free, free_async_after, record_use of a per-thread stream, a free of a used block, a
        poll, stream_end_capture, *_synchronize
                                 while they record an event on a stream whose launch queue is full
        stream_destroy           likewise, and until no other thread records on that stream
        device_reset             until the device has done its work, and for samples and
                                 collections inside it
        pool_destroy             until no other thread asks or trims pools
        a collection             for its trim; with MEMLORD_CUDA_FLAG_SYNC for frees that pend
        attach, detach           for the driver and NVML to load; for samples and collections

    Detach before memlord_destroy, and before a cudaDeviceReset that is not wrapped, which takes the
    events away.
    CUDA may not be called once a process ends. From an exit handler that the first attach registers,
    after those of the driver and so run before them, there is no driver any more, as in a forked
    child: pollers that are inside a device are waited for, and no other enters one.
    Attach after fork: CUDA does not survive one. A child forked later has no driver: nothing is
    attached there, every function returns as without one, and what was pending is credited when it
    is polled (counted in fence_failures); the ledger itself goes on.
    A host function of a stream (cudaLaunchHostFunc) may call nothing of CUDA's, and nothing here:
    the functions of memlord.h alone, which ask the driver only if they poll or collect. What it
    refuses then is asked again; a ledger with MEMLORD_FLAG_DEFER does not ask there.

    ----------------------------------------------------------------- >>errors ---

    A wrapper returns what the runtime returned, with a driver or without. The ledger records what
    became true: an allocation after it succeeded, a free only if it succeeded (memlord_free_begin
    and _end: the block is off the map while the runtime works on it, as another thread may get the
    address, and comes back if that failed, without the uses recorded of it). A pointer never seen
    is counted in unknown_frees.
    Other functions return a memlord_result. What the driver refuses after attach is an unknown
    capacity, a collection that did not run, or a fence that failed (its block is credited and
    counted in fence_failures). A fence that may not be asked now, in a host function of a stream or
    a capture, is asked again.
    The runtime's last error is what it would be without MemLord. After a retry that succeeded it is
    as clean as before; after one that failed it is that of the last attempt. When a limit of the
    ledger refused, no attempt was made: the result is cudaErrorMemoryAllocation, the pointer NULL,
    and the last error as before.

    ------------------------------------------------------------------ >>costs ---

    An allocation costs what memlord_alloc costs, a free two or three times memlord_free, as it can
    be taken back. Calls of the driver beside the real one:

        malloc, free, free_async           0
        malloc_async                       0; with several devices 1
        record_use                         1; 3 for a per-thread stream, where it records an event
        record_free, free_async_after      3
        a free of a used block             2 for each stream, 3 for a per-thread one; with
                                           MEMLORD_FLAG_DEFER its first poll
        a poll of a stream                 3; when a part of what waits is done, up to 8
        stream_end_capture                 2, whatever the capture held back
        stream_destroy                     2, whatever was used there; 0 where nothing was
        the first of these on a stream     2 more; and 4 more to make an event, while none is kept
        what a later call than that of a default stream records: 1 more, 3 in another context
        a sample                           18 for a device with one pool, 4 for each further pool

    So a poll costs no more if more waits: a stream has at most 32 events, and one stands for all
    frees up to it. Of more, each is credited together with some that came soon after it.
    Allocations and frees on cuda devices poll only while frees pend there: one stream a call, and
    one that is not done after up to 256 such calls or 10 ms again. Those on other devices make no
    driver call. A sample takes, with NVML, up to some hundred microseconds: pollers take it, no call
    waits for it. One in 16 lists the device's processes, which takes locks of the driver; where NVML
    does not know this one (in a container) it stops after 8.
    Memory: 24 bytes a pending free, kept for the next, and 700 a stream; 64 streams on which nothing
    waits stay known, as it takes more calls to find one anew; MEMLORD_CUDA_MAX_EVENTS events. A timed
    scope is two events.
    memlord_cuda_attach initialises the driver (cuInit) and NVML, which may take tens of
    milliseconds; without a driver it returns in a fraction of one.

    Not counted: contexts, modules and local memory; what libraries allocate through their own
    copy of the runtime; arrays; cuMemAlloc. unaccounted in a report is all of these.
    Memory of graphs: a wrapped allocation on a captured stream is counted from then on and once,
    though the graph takes it each time it runs and not before; freed in the capture it is over,
    freed after a run that free ends it. Nodes added by hand (cudaGraphAddMemAllocNode) are not
    counted. What graphs hold and use, in truth, is in memlord_cuda_pool and in `reserved`.

    --------------------------------------------------------------- >>wrapping ---

    By name   call memlord_cuda_malloc(lord, &p, n, MEMLORD_SITE()) where you would have called
              cudaMalloc(&p, n). Complete, exact, and each file and line is known.
    By macro  #define MEMLORD_CUDA_SHIM, include this header last: in that file, which may be the
              one file, the plain names are the wrappers; those of the driver if cuda.h is included
              before. Sites are the lines. Function pointers, and calls in other files,
              are not redirected; (cudaFree)(p) is the real one (and cudaFreeAsync_ptsz the real
              cudaFreeAsync with the per-thread default stream). The arguments are those of the
              runtime: in C++ the pointer may be of any type, as with its templates, in C it is a
              void **, and an initialiser with commas in it may stand where the runtime takes it.
              Device code (nvcc -rdc=true) keeps the device's own cudaMalloc and cudaFree.
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
              _ptsz where the runtime's do). Sites are return addresses. It reaches objects and
              static libraries of this link, against either runtime. It does not reach calls
              inside shared libraries, calls within the file that defines the function, nor any
              when the defining object is itself part of a link-time optimisation: that fails
              silently. Two checks: a name left out does not link (undefined __real_...), and
              memlord_cuda_wrap_check tells which names the linker did not redirect.
*/
