/*
    memlord.h - memory accounting for programs with more than one kind of memory
                v0.4.0, C99 and C++11, SPDX-License-Identifier: MIT

    MemLord keeps the books beside your own allocator: how many bytes live on each
    device (cpu, pinned, mapped, cuda:0, ...), which code put them there, the peak and
    its holders, and what is still alive. It never allocates your memory and never
    aborts your program.

    Do this in *one* C or C++ file:

        #define MEMLORD_IMPLEMENTATION
        #include "memlord.h"

    Include memlord.h without the define in every other file that calls it. The file with
    the implementation also needs stb_ds.h (public domain; Debian: libstb-dev). Link with
    -pthread. `make vendor DIR=...` copies both headers, or makes one file of them.

    Contents: search for a tag to jump there
        >>index          the twelve calls you need, then every group in one line
        >>example        a complete program
        >>concepts       what the words and the numbers mean
        >>platforms      where MemLord was tested
        >>knobs          what can be configured, and where
        >>threading      what may run at the same time
        >>errors         what happens when something goes wrong
        >>costs          what a call costs; what is not counted
        >>api            types and functions, group by group
        >>implementation then >>platform, >>atomics, >>ledger, >>text, >>log, >>memory,
                         >>threads, >>map, >>counters, >>names, >>devices, >>sites, >>events,
                         >>fences, >>accounts, >>sides, >>parts, >>blocks, >>capacity, >>limits,
                         >>bands, >>scopes, >>stats, >>room, >>snapshots, >>reset, >>verify,
                         >>deferred, >>pollers, >>record, >>retry, >>reports, >>page,
                         >>formats, >>exit, >>lifecycle, >>saving, >>redirect; last >>shim

    ------------------------------------------------------------------ >>index ---

    The twelve calls that most programs need:

        memlord_global             the process's own ledger, made on first use
        memlord_logger_set         where warnings go: memlord_log_stderr, or yours
        MEMLORD_ALLOC              records an allocation, after the real one
        MEMLORD_FREE               records a free, before the real one
        memlord_realloc_begin/_end around a realloc that may move
        MEMLORD_TRACK, _RELEASE    one more owner of a storage; one less
        MEMLORD_TAGGED             names what the rest of the block allocates
        MEMLORD_SCOPED             the same for a phase: its bytes, peak and time
        memlord_allocated          live bytes of a device, or of all
        memlord_gc_callback_add    your function that gives memory back
        memlord_alloc_retry        takes an allocation through out of memory
        memlord_save               a report: "-" is standard output, "x.html" a page

    All groups, in the order of the API:

        results      memlord_result, memlord_result_text
        devices      memlord_device_make, _cpu, _cuda, _all, _parse, _name, _label_set, _share;
                     memlord_devices
        lifecycle    memlord_create, _destroy, _global, _global_setup, _logger_set, _verify
        storages     memlord_alloc, _free, _realloc, _realloc_begin, _realloc_end, _alloc_n,
                     _free_n, _free_begin, _free_end, _move, _copy
        views        memlord_track, _retain, _release, _track_n, _release_n
        arenas       memlord_arena_add, _arena_sub
        fences       memlord_free_deferred, _block_use, _retire
        sites        memlord_sites_enable, _site_at, _sites_top, ...; MEMLORD_SITE
        statistics   memlord_allocated, _freed, _pending, _peak, _stats_get, _summary, _reset;
                     memlord_hit_rate, _recovery_rate, _success_rate, _mean_bytes
        blocks       memlord_blocks_each, _blocks_top, _block_find, _mark, _leaks
        parts        memlord_part_add, _part_remove, _parts_each
        tags         memlord_tag_begin, _end, _current, _default_set, _get; memlord_expect
        capacity     memlord_capacity_source_set, _get, _sample; memlord_poller_start, _stop
        limits       memlord_limit_set, _headroom, _would_fit, _plan_fit, _explain
        reservations memlord_reserve, _reserve_commit, _cancel, _adopt; memlord_alloc_reserved
        accounts     memlord_account_open, _charge, _use, _get, _close
        bands        memlord_strategy_set, _unset, _check, _default
        collection   memlord_gc_callback_add, _remove; memlord_gc_run, _gc_poll
        out of memory memlord_alloc_retry, _retry_check, _retry_backoff, _alloc_failed
        pools        memlord_pool_set, _add, _served; memlord_cached_ratio, ...
        scopes       memlord_scope_begin, _end, _shapes_set, _export, _adopt, _return, _get
        snapshots    memlord_checkpoint; memlord_snapshots_start, _stop
        events       memlord_events_start, _stop, _each
        reports      memlord_write, _save, _save_at_exit, _request_save, _format_for
        guards       memlord_guard_tag, _scope, _end: MEMLORD_TAGGED and its kin call them
        shim         memlord_shim_malloc, ...: MEMLORD_SHIM calls them for you

    ---------------------------------------------------------------- >>example ---

        #define MEMLORD_IMPLEMENTATION
        #include "memlord.h"
        #include <stdlib.h>

        int main(void) {
            const memlord_logger logger = {memlord_log_stderr, NULL};
            memlord_device cpu = memlord_device_cpu();
            memlord *lord = memlord_global();
            memlord_logger_set(lord, &logger);
            memlord_sites_enable(lord, 1);

            void *cache = malloc(1 << 20);
            MEMLORD_TAG(lord, "kv_cache") {
                MEMLORD_ALLOC(lord, cpu, cache, 1 << 20);    // after the malloc
            }
            memlord_save(lord, MEMLORD_FORMAT_TEXT, "-");    // to standard output
            MEMLORD_FREE(lord, cpu, cache);                  // before the free
            free(cache);
        }

    --------------------------------------------------------------- >>concepts ---

    Ledger    `memlord *lord`, one independent account book. Every function that works on
              one takes it first. A NULL ledger is MemLord switched off: every call is
              one branch, calls that record return MEMLORD_OK, readers return 0,
              memlord_headroom returns INT64_MAX, memlord_would_fit and _plan_fit -1.
              memlord_alloc_retry still calls the host's function, once, and a fence that
              is passed is dropped at once. The same holds with MEMLORD_DISABLE.
    Device    where bytes live: a type and an index, {MEMLORD_DEVICE_CUDA, 1}. In a
              selector (parameters named `sel`) the index MEMLORD_ANY means every index
              of the type, and memlord_device_all() means every device.
    Storage   the base address, or handle, of one real allocation: any 64-bit number
              but 0 and UINT64_MAX. The key is (device type, storage): a free needs the
              type but not the index, and equal handles of two types never collide.
              Where handles repeat across the devices of one type (Vulkan offsets), use
              the address of your own buffer object.
    View      one more reference to a live storage. Bytes count once, however many.
    Arena     bytes without an identity of their own: one balance per device.
    Site      a place in your source, planted by a macro: file, function and line. Off
              until memlord_sites_enable.
    Tag       the purpose of bytes ("weights", "kv_cache"). A thread has a current tag.
              A block keeps its tag until it ends or is retagged, whichever thread frees
              it.
    Physical device  memory that several devices share: cpu, pinned and mapped are one,
              and memlord_device_share adds an integrated GPU. Capacity, limit and
              headroom are of a physical device.
    Limit     the most that memlord_reserve and memlord_alloc_retry let a physical device
              hold. An alloc that has happened is recorded whatever the limit.
    Ticket    bytes of the limit that memlord_reserve keeps for allocs to come.
    Account   bytes charged to a request or a user. They are counted elsewhere, too.
    Pool      device memory that your own allocator has reserved, and serves requests
              from. A pool is a device of its own: type OTHER, or its real type with an
              index of its own, and memlord_device_share with the device it lives in.
              Record what the pool hands out, and set what it holds: memlord_pool_set.
              Record its segments nowhere, neither on its own device nor on the one it
              shares: what it hands out would count twice.
    Band      a range of used % with a threshold at which a collection is due.
    Collection  a run of the host's callbacks for a device, to give memory back.
    Fence     tells when a device is done with a block. A block freed before that is
              pending: still live until its fences are done.
    Part      a named piece of a live storage (a tensor in a weights buffer). Parts
              subdivide; they never add.
    Scope     a stretch of a thread's work with a name ("decode"): the bytes it allocated
              less those it freed, its peak, its time. Scopes nest, and other threads can
              adopt one. A block remembers the scope it was allocated in.
    Snapshot  the totals of every device at one moment. A checkpoint is one with a name.
    Event     one change (alloc, free, move, collection ...), in a ring, if asked for.
    Mark      a number that memlord_mark raises. A block remembers the mark it was born
              under: memlord_leaks lists the live blocks of a mark and later ones.

    All sizes are bytes in uint64_t. Differences are int64_t and may be negative. Percent
    is of the capacity, or of the limit where one is set and smaller. Of one device:

        allocated        live storages + the arena balance, now
        pending          the part of allocated that is freed and waits for its device
        peak             highest `allocated` since create, reset or peak_reset; low by at
                         most peak_error, never high. peak_error is 0 if
                         MEMLORD_FLAG_EXACT is set, or if only one thread records; else at
                         most counter_batch for each thread that records
        freed            credited since the last collection or reset. It is what the host
                         freed: the allocator, or the driver, may still hold the memory
        gc_reclaimed     what collections gave back, as their callbacks say
        total_allocated  everything recorded in this epoch, growth included; lifetime
                         totals count modulo 2^64, live values never wrap
        total_freed      everything credited in this epoch, shrinkage included
        reserved         what the host's pool holds of the device; `cached` is the part
                         of it that is not allocated. memlord_pool_set says it
        limit, held      of its physical device: the limit, and what tickets keep of it

    Order: record an allocation after the real one, and a free before the real one: once a
    block is really free, another thread may get its address and record it. A realloc that
    may move goes through memlord_realloc_begin before and memlord_realloc_end after the
    real call, for the same reason.

    -------------------------------------------------------------- >>platforms ---

        tested by `make test`     Linux x86-64, glibc, gcc 12 and clang 14, C99 to C2x and
                                  C++11 to C++20, 64 and 32 bits
        tested by `make test-all` Linux i386, i486 and aarch64 (emulated)
        tested by hand, 0.3.5     Linux armhf, riscv64, s390x, ppc64el, sparc64 (emulated),
                                  musl; Windows x86-64 (MinGW gcc 12, under wine)
        compiles, never run       Windows on ARM, 32-bit MinGW
        written, never compiled   MSVC, macOS, FreeBSD

    A function's name behind a return address (memlord_site_at) comes from the dynamic
    symbol table: link the program with -rdynamic to see functions of its own.

    ------------------------------------------------------------------ >>knobs ---

    Define before including. "All files" means alike in every file that includes
    memlord.h; "one file" means only where MEMLORD_IMPLEMENTATION is.

        MEMLORD_DISABLE        every call becomes an inline no-op that still type
                               checks; no code is left                    (all files)
        MEMLORD_STATIC         all functions are static: a file that defines it and
                               MEMLORD_IMPLEMENTATION has a library of its own
                                                                          (that file)
        MEMLORD_PREFIX         p: every symbol becomes p_memlord_...: two libraries in
                               a process may each carry a MemLord         (all files)
        MEMLORD_API            linkage of public functions, default extern (all files)
        MEMLORD_SHIM           redirects malloc, calloc, realloc, free, mmap and munmap
                               of this C file to MEMLORD_SHIM_LORD (default
                               memlord_global()). Include memlord.h last. A block that
                               other code allocates (strdup, getline) and this file
                               frees counts in unknown_frees, and so does a munmap of
                               anything but one whole mapping             (that file)
        MEMLORD_STB_DS_H       where stb_ds.h is, if neither <stb/stb_ds.h> nor
                               "stb_ds.h"                                  (one file)
        MEMLORD_MAX_DEVICES    devices a ledger can know, default 128, at most 250
                                                                           (one file)
        MEMLORD_MAX_SCOPES     paths of scopes a ledger can know, default 4096 (one file)
        MEMLORD_MAX_STRINGS    bytes of names kept per ledger, default 64 MiB
                                                                           (one file)
        MEMLORD_THREAD_LOCAL   how a thread-local is spelled; an interposer wants
                               __thread with the initial-exec model        (one file)
        MEMLORD_NO_THREADS     no pollers: memlord_gc_poll samples what has grown old
                                                                           (one file)
        MEMLORD_NO_REPORTS     no format but TEXT and JSON                 (one file)
        MEMLORD_CHECK_LOCKS    to debug MemLord: checks every lock that a thread takes
                               against the lock order, with MEMLORD_ASSERT (one file)
        MEMLORD_ASSERT         MEMLORD_ASSERT(expression): runs if the expression is 0,
                               for example abort; default nothing         (one file)

    Environment. memlord_create reads it once. Set-uid programs and ledgers with
    MEMLORD_FLAG_NO_ENV ignore it. An empty variable counts as unset. A value that cannot
    be read is logged and changes nothing:

        MEMLORD_DEBUG=1        logs every change of a storage and every collection, to
                               stderr in colour or to your logger; anything but 0 does.
                               memlord_log_stderr then is in colour. 2 also runs
                               memlord_verify at destroy
        MEMLORD_POLL_INTERVAL_MS=200
                               how often pollers sample, at least 10; overrides poll_ms
                               and memlord_poller_start
        MEMLORD_RETRY=max=5,initial_ms=50,multiplier=1.5,max_ms=2000
                               the default policy of memlord_alloc_retry: in any order,
                               without blanks; what is left out is as shown here, and
                               initial_ms may not exceed max_ms

    -------------------------------------------------------------- >>threading ---

    Every function may be called from any thread at any time, except
        memlord_destroy        no other call on that ledger may be in flight or follow
        memlord_verify         reports what calls in flight are changing as wrong
    Callbacks (write, block, logger, capacity, collection, fence, try) run with no lock
    held and may call any function of the ledger but memlord_destroy. Write, block and
    try run on the calling thread. Collections run on the thread whose call crossed the
    threshold. Fences run on threads that allocate, free or retire, and on pollers. Both
    run inside the host's own call, under whatever locks it holds there. A host with an
    allocator lock creates the ledger with MEMLORD_FLAG_DEFER: then collections run only in
    memlord_gc_poll, memlord_gc_run, memlord_alloc_retry and on pollers, and fences there and
    in memlord_retire. With MEMLORD_FLAG_NO_THREADS, too, there are no pollers, and all of
    them run where the host asks for them.
    No callback may throw: an exception that leaves one has the effect of longjmp. A
    collection left by longjmp counts as running on its device for good. A fence left by
    longjmp holds up its queue until destroy, and the thread polls this ledger's fences no
    more. A logger left by longjmp counts as running until its ledger is destroyed:
    memlord_logger_set on another thread waits for it, and on the same thread it returns
    E_STATE for other ledgers. A memlord_try_fn left by longjmp keeps its bytes reserved, and
    on that thread memlord_alloc_failed counts nothing more. Nothing else is harmed.
    Threads of MemLord's own: one poller for each physical device, from the first call that
    touches a device with a capacity source, a collection callback and a strategy. None
    otherwise, and none with MEMLORD_FLAG_NO_THREADS. They take no signals. With
    MEMLORD_FLAG_DEFER the poller of the cpu starts when a callback is added. It starts the
    others when it sees that their devices were touched. One more takes snapshots, after
    memlord_snapshots_start.
    A ledger's allocator is called with no storage locked. It may be your own malloc even if
    that calls MemLord: a call that the ledger's own allocation makes passes through
    uncounted.
    A ledger survives fork: the child's copy goes on with the state of that moment, and its
    pollers start again when it is used. Do not call fork in a signal handler: it waits for
    calls in progress, and the code that the signal interrupted may be one. POSIX no longer
    lists fork as async-signal-safe. _Fork, vfork and posix_spawn run no fork handlers, and
    may be called there with an exec next.
    A shared library that carries MemLord has to stay loaded, memlord_destroy or not: threads
    that were in it run code of it when they exit. Link it with -Wl,-z,nodelete.
    Functions are not async-signal-safe, except memlord_request_save.
    A call waits only for other calls in progress. It spins, then yields, then sleeps for
    50 us to 1 ms at a time. Because it sleeps, a real-time thread (SCHED_FIFO) does not
    block the thread it waits for, even if that has a lower priority on the same processor.
    There is no priority inheritance: such a wait can take several milliseconds.
    On Linux the first call of a thread on storages that another thread has used alone goes
    through membarrier(2). A sandbox may refuse it, from the start or later: then every call
    takes two atomic operations more. After a late refusal each such first call also sleeps
    for 1 ms, until all threads that have used the ledger have made another call or have
    ended. Enter the sandbox before the first ledger is created, and no call sleeps.

    ----------------------------------------------------------------- >>errors ---

    Every memlord_result function returns MEMLORD_OK (0), or an error and then has changed
    nothing but the counters of anomalies, drops and refusals. Results may be ignored.
    MemLord never prints (unless MEMLORD_DEBUG or memlord_log_stderr is set), asserts, aborts
    or exits.

    Mistakes of the host are anomalies: counted per device and shown in every report but
    FOLDED and CSV, which have no comments.
        unknown_frees          a free, release or realloc of a storage that is not live; if
                               the ledger knows no more devices, only the sum of all has it
        implicit_frees         an alloc over a live storage: the old one was closed
        freed_while_shared     a free of a storage that still had views
        underflows             arena_sub of more than the balance: now 0
        fence_failures         fences that failed: counted as done
        refused                calls that record, tag or set a pool and returned E_INVALID
                               or E_DEVICE: a selector where a device is needed, a storage
                               of 0. If the device is not known, only the sum of all has
                               it. Each function logs each such result once
    What did not fit is counted, too, and never silently lost:
        dropped_allocs/_bytes  the map could not grow: raise the allocator's limit; or one
                               device too many (E_DEVICE): raise MEMLORD_MAX_DEVICES
        dropped_sites          more sites or tags than fit, or more bytes of names than
                               MEMLORD_MAX_STRINGS: blocks are recorded without them; or
                               a guard that ended on another thread than it began
        dropped_events         overwritten in the ring, or no room there
    The ledger also counts the scopes, invocations and snapshots that it dropped, and reports
    say how many. The first dropped alloc and the first dropped tag are logged.

    ------------------------------------------------------------------ >>costs ---

    alloc, free, retain, release, track, realloc: from about 10 ns up to the cost of a cache
    miss (bench/README.md has the measured tables). No system call, no lock shared by threads
    that work on their own blocks, and nothing proportional to devices, threads or blocks,
    except when a table grows (one of 1024 shards at a time) or a thread first meets storages
    of another.
    Memory: about 40 to 60 bytes a live block, up to 500 of the first one or two thousand,
    and 100 KiB or so to begin with; 5 KiB a thread, and 5 KiB more for each path of scopes
    it was in; 500 to 800 bytes a site when sites are counted; 270 KiB or so more while a
    report is written. Reports show it all as MemLord's own.
    Readers (allocated, stats, peak) cost a few nanoseconds a thread. Functions that
    walk every block say so under Cost. Bands far from their thresholds cost a branch or two
    a call; within counter_batch bytes per thread of a threshold each call adds up the counts
    of all threads. A collection costs what its callbacks do. A scope costs some tens of
    nanoseconds. Events cost one branch a call when off, and a time stamp and 32 bytes when
    on.

    Not counted: memory that no call records (other libraries, the driver, the C library's
    own overhead, stacks, code), the rounding of your allocator, and whether the operating
    system has backed the bytes with pages. MemLord's own memory is not in the totals;
    reports show it beside them.
*/
#ifndef MEMLORD_H
#define MEMLORD_H

/* The implementation needs what strict C modes hide; works when memlord.h is included first. */
#if defined(MEMLORD_IMPLEMENTATION) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1
#endif

#include <stddef.h> /* size_t, NULL */
#include <stdint.h> /* uint64_t, int16_t */
#include <string.h> /* memset of out parameters */

/* major: a program must be changed; minor: something was added; patch: neither */
#define MEMLORD_VERSION_MAJOR 0
#define MEMLORD_VERSION_MINOR 4
#define MEMLORD_VERSION_PATCH 0
#define MEMLORD_VERSION "0.4.0"

#if defined(__GNUC__)
#define MLI_INLINE static inline __attribute__((unused))
#else
#define MLI_INLINE static inline
#endif

#define MLI_JOIN2(a, b) a##b
#define MLI_JOIN(a, b) MLI_JOIN2(a, b)

/* Here and in macros, which the host's files expand: theirs may have -Wold-style-cast on. */
#ifdef __cplusplus
#define MLI_CAST(type, value) static_cast<type>(value)
#else
#define MLI_CAST(type, value) ((type)(value))
#endif

/* The body a function has when MemLord is compiled out, which is also what it answers
   on a NULL ledger: written beside each declaration, so that there is one list. */
#if defined(MEMLORD_DISABLE)
#undef MEMLORD_API
#define MEMLORD_API static inline
#define MLI_OFF(value) { return value; }
#define MLI_OFF_SET(set, value) { set; return value; }
#define MLI_OFF_VOID {}
#define MLI_NO_SITE static const memlord_site none = {"", "", 0}
#else
#define MLI_OFF(value) ;
#define MLI_OFF_SET(set, value) ;
#define MLI_OFF_VOID ;
#if defined(MEMLORD_STATIC)
#undef MEMLORD_API
#if defined(__GNUC__)
#define MEMLORD_API static __attribute__((unused))
#else
#define MEMLORD_API static
#endif
#elif !defined(MEMLORD_API)
#define MEMLORD_API extern
#endif
#endif

/* With a prefix p every symbol becomes p_memlord_...; the source goes on saying memlord_... The
   list of names stands below the API, under >>prefix: this header includes itself to read it. */
#if defined(MEMLORD_PREFIX)
#define MLI_READ_PREFIX
#include "memlord.h"
#undef MLI_READ_PREFIX
#endif

#if defined(MEMLORD_DISABLE) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#elif defined(MEMLORD_DISABLE) && defined(_MSC_VER)
#pragma warning(push)
#pragma warning(disable : 4100)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------- >>api -- */

typedef struct memlord memlord; /* a ledger */

/* -- results -- */

/* name, text */
#define MLI_RESULTS(X)                                                                        \
    X(OK, "ok")                                                                               \
    X(E_INVALID, "an argument is not valid")                                                  \
    X(E_NOMEM, "no room: give the ledger's allocator more, or raise MEMLORD_MAX_STRINGS")     \
    X(E_UNKNOWN, "not found, or not known")                                                   \
    X(E_LIMIT, "over a limit")                                                                \
    X(E_DEVICE, "not one device, or more devices than MEMLORD_MAX_DEVICES")                   \
    X(E_OOM, "the device is out of memory")                                                   \
    X(E_STATE, "not possible in this state")                                                  \
    X(E_IO, "could not read or write there")                                                  \
    X(E_UNSUPPORTED, "not in this build or on this platform")

typedef enum memlord_result {
#define MLI_X(name, text) MEMLORD_##name,
    MLI_RESULTS(MLI_X)
#undef MLI_X
    MEMLORD_RESULT_COUNT
} memlord_result;

/* Names a result in a few words of English, for logs. Never NULL. */
MEMLORD_API const char *memlord_result_text(memlord_result result)
    MLI_OFF(result == MEMLORD_OK ? "ok" : result == MEMLORD_E_OOM ? "no memory" : "refused")

/* -- devices -- */

/* MEMLORD_DEVICE_CPU, _PINNED, _MAPPED, _CUDA, _HIP, _SYCL, _METAL, _VULKAN, _NPU, _OTHER.
   name, text, host: shares the host's physical memory */
#define MLI_DEVICE_TYPES(X)                                                                   \
    X(CPU, "cpu", 1)                                                                          \
    X(PINNED, "pinned", 1) /* page-locked host memory */                                      \
    X(MAPPED, "mapped", 1) /* file-backed mmap: page cache */                                 \
    X(CUDA, "cuda", 0)                                                                        \
    X(HIP, "hip", 0)                                                                          \
    X(SYCL, "sycl", 0)                                                                        \
    X(METAL, "metal", 0)                                                                      \
    X(VULKAN, "vulkan", 0)                                                                    \
    X(NPU, "npu", 0)                                                                          \
    X(OTHER, "other", 0)

enum {
#define MLI_X(name, text, host) MEMLORD_DEVICE_##name,
    MLI_DEVICE_TYPES(MLI_X)
#undef MLI_X
    MEMLORD_DEVICE_TYPE_COUNT
};

#define MEMLORD_ANY (-1) /* as an index: every device of the type; as a type: every type */

typedef struct memlord_device {
    int16_t type;  /* MEMLORD_DEVICE_CPU, ... */
    int16_t index; /* 0.. , or MEMLORD_ANY in a selector */
} memlord_device;

/* Makes a device or a selector. If a number does not fit an int16_t, every call refuses the
   result. */
MLI_INLINE memlord_device memlord_device_make(int type, int index) {
    memlord_device d;
    d.type = MLI_CAST(int16_t, type < INT16_MIN || type > INT16_MAX ? INT16_MAX : type);
    d.index = MLI_CAST(int16_t, index < INT16_MIN || index > INT16_MAX ? INT16_MIN : index);
    return d;
}
MLI_INLINE memlord_device memlord_device_cpu(void) {
    return memlord_device_make(MEMLORD_DEVICE_CPU, 0);
}
MLI_INLINE memlord_device memlord_device_cuda(int index) {
    return memlord_device_make(MEMLORD_DEVICE_CUDA, index);
}
/* Makes the selector of every device. */
MLI_INLINE memlord_device memlord_device_all(void) {
    return memlord_device_make(MEMLORD_ANY, MEMLORD_ANY);
}

/* Reads "cuda:1", "CUDA1", "cuda" (any index), "cpu" (cpu:0; so with "pinned" and "mapped"),
   "all", and names that engines use: "mps" (metal), "xpu" (sycl), "ROCm0" (hip:0), "CUDA_Host"
   (pinned), "CPU_Mapped" (mapped). Any case.
   Errors: E_INVALID, and *out is unchanged. */
MEMLORD_API memlord_result memlord_device_parse(const char *text, memlord_device *out)
    MLI_OFF_SET(if (out) *out = memlord_device_all(), MEMLORD_OK)

/* Writes a device's name, "cuda:1", "cpu", or a selector's, "cuda", "all". Follows
   snprintf: returns the length without the 0, and writes at most `cap` bytes with it. */
MEMLORD_API size_t memlord_device_name(memlord_device device, char *buf, size_t cap)
    MLI_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* Sets the host's own name for a device, shown beside ours in TEXT, JSON and HTML reports. NULL
   removes it.
   Errors: E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_device_label_set(memlord *lord, memlord_device device,
                                                    const char *text) MLI_OFF(MEMLORD_OK)

/* Sets the memory that a device's bytes are in: an integrated GPU's in the cpu's, a pool's in
   its real device's. Both then have one capacity, limit and headroom. `physical` equal to
   `device` undoes it.
   Errors: E_DEVICE; E_STATE `physical` is shared itself, others share `device`, or tickets are
   open where it is; E_NOMEM. */
MEMLORD_API memlord_result memlord_device_share(memlord *lord, memlord_device device,
                                                memlord_device physical)
    MLI_OFF(MEMLORD_OK)

/* Lists every device seen, up to `cap`, and returns how many there are. `out` may be NULL
   when cap is 0. */
MEMLORD_API size_t memlord_devices(memlord *lord, memlord_device *out, size_t cap)
    MLI_OFF(0)

/* -- lifecycle -- */

/* The source of a ledger's own memory. Set both functions, or neither: then it takes pages of
   the operating system, as memlord_os_allocator does. `free` gets the size that `alloc` was
   asked for. `alloc` returns NULL when there is none. Both are called with no storage locked,
   from any thread. */
typedef struct memlord_allocator {
    void *(*alloc)(void *user, size_t size);
    void (*free)(void *user, void *ptr, size_t size);
    void *user;
} memlord_allocator;

enum {
    MEMLORD_LOG_ERROR = 1, /* something was lost or refused */
    MEMLORD_LOG_WARNING,   /* the host did something odd, or a limit refused a request */
    MEMLORD_LOG_INFO,      /* summaries, resets */
    MEMLORD_LOG_TRACE      /* a line for every call that allocates, frees, resizes or moves, also
                              of n blocks, and for every retired block; with MEMLORD_DEBUG=1 */
};

/* The receiver of messages. `text` is one line without its newline and lives for the call only.
   A NULL fn is silence. With MEMLORD_DEBUG=1 NULL and memlord_log_stderr both are coloured lines on
   stderr, of every level. */
typedef struct memlord_logger {
    void (*fn)(void *user, int level, const char *text);
    void *user;
} memlord_logger;

/* Writes errors and warnings to stderr, a line each: a stock logger.fn. `user` is ignored. */
MEMLORD_API void memlord_log_stderr(void *user, int level, const char *text) MLI_OFF_VOID

/* Nanoseconds that never go back. NULL is the platform's monotonic clock. May be called with locks
   of ours held: it may not call MemLord. */
typedef struct memlord_clock {
    uint64_t (*fn)(void *user);
    void *user;
} memlord_clock;

enum {
    MEMLORD_FLAG_NO_STRATEGY = 1, /* no bands until memlord_strategy_set */
    MEMLORD_FLAG_SITES = 2,       /* memlord_sites_enable from the start */
    MEMLORD_FLAG_EXACT = 4,       /* publish every call: exact peaks, shared lines */
    MEMLORD_FLAG_DEFER = 8,       /* collections and fences run in gc_poll, gc_run, retire,
                                     alloc_retry and pollers alone: see >>threading */
    MEMLORD_FLAG_NO_THREADS = 16, /* no pollers */
    MEMLORD_FLAG_NO_ENV = 64      /* ignore the environment */
};

/* The configuration of a ledger. Zero is the default of every field. */
typedef struct memlord_desc {
    memlord_allocator allocator; /* the operating system's pages */
    memlord_logger logger;       /* silent */
    memlord_clock clock;         /* monotonic */
    uint32_t flags;              /* MEMLORD_FLAG_... */
    uint32_t poll_ms;            /* how often pollers sample, 200; 10 if less */
    uint32_t snapshot_ms;        /* memlord_snapshots_start at create, so often; 0: no */
    size_t event_capacity;       /* memlord_events_start at create, so many; 0: no */
    uint64_t counter_batch;      /* bytes a thread may hold back from the peak, 65536 */
    const char *output_dir;      /* where dated reports go: memlord_save_at_exit */
    const char *proc_root;       /* put before /proc and cgroup paths; for tests */
    const char *labels;          /* "host=a1,model=x": shown in JSON and HTML reports */
} memlord_desc;

/* Opens a ledger. `desc` NULL is the default configuration. It is copied, strings too.
   Errors: E_INVALID one of alloc and free without the other, `out` NULL, snapshot_ms of 1 to 9, or
           event_capacity over 2^26; E_NOMEM. *out is NULL then.
   Owns:   *out is yours until memlord_destroy. Never destroying it is legal. */
MEMLORD_API memlord_result memlord_create(const memlord_desc *desc, memlord **out)
    MLI_OFF_SET(if (out) *out = NULL, MEMLORD_OK)

/* Closes a ledger and returns its memory. Logs the live bytes and blocks of each device and, where
   tags or sites are known, the ten largest groups by device, tag and site. NULL does nothing.
   Threads: no call on it may be in flight or follow, on any thread. */
MEMLORD_API void memlord_destroy(memlord *lord) MLI_OFF_VOID

/* Returns the process's own ledger, made on first use with memory from the operating system:
   it works inside malloc and before main. Never destroyed.
   Errors: NULL, which is MemLord switched off, if there is no memory for it. */
MEMLORD_API memlord *memlord_global(void) MLI_OFF(NULL)

/* Makes the global ledger now, with a configuration. Call it before anything uses
   memlord_global: at the start of main, or in a static constructor.
   Errors: E_STATE there is one already; logged to it or, if it is silent, to desc->logger;
           E_INVALID as memlord_create, and an allocator of the host's; E_NOMEM. */
MEMLORD_API memlord_result memlord_global_setup(const memlord_desc *desc) MLI_OFF(MEMLORD_OK)

/* Sets the receiver of messages, at any time. NULL is silence or, with MEMLORD_DEBUG=1, what it was
   to memlord_create. Returns when no other thread is in the old one. A logger may call it.
   Errors: E_STATE the ledger's logger calls it while another thread sets one, or the logger of
           another ledger calls it: the two could wait for each other. */
MEMLORD_API memlord_result memlord_logger_set(memlord *lord, const memlord_logger *logger)
    MLI_OFF(MEMLORD_OK)

/* Checks the ledger against itself: the map against the counters of devices, sites and tags,
   accounts, arenas, tickets, pending blocks and parts. For tests and for bug reports.
   Threads: no other call may be in flight: its change would be taken for a fault.
   Errors: E_STATE something does not agree; the first such thing goes to the logger. E_NOMEM.
   Cost:   walks everything; calls of other threads wait meanwhile. */
MEMLORD_API memlord_result memlord_verify(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Fills an allocator that takes pages from the operating system and calls no malloc. */
MEMLORD_API void memlord_os_allocator(memlord_allocator *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), )

/* -- storages --
   `device` is one device, never a selector. `storage` is its address or handle. `bytes` is at
   most 2^48. `site` may be NULL. Common errors: E_INVALID a storage of 0 or UINT64_MAX, or too
   many bytes; E_DEVICE a selector, or no device, both counted in `refused`; E_NOMEM the map could
   not grow, counted in dropped_allocs: as many later frees of unknown storages are taken for
   the frees of those, and not counted as unknown. Cost: tens of ns; see >>costs. */

/* A place in the source: MEMLORD_SITE plants one. Two records with one file, function and line
   in one module are one site. The strings are copied when first seen and not read again. */
typedef struct memlord_site {
    const char *file;
    const char *function;
    int line; /* 0: not known */
} memlord_site;

typedef struct memlord_block {
    memlord_device device;
    uint64_t storage;
    uint64_t bytes; /* ignored by free_n and release_n */
} memlord_block;

/* Records a storage that was just created. A live one of the same key is stale: it is
   closed as freed, and counted in implicit_frees. */
MEMLORD_API memlord_result memlord_alloc(memlord *lord, memlord_device device,
                                         uint64_t storage, uint64_t bytes,
                                         const memlord_site *site) MLI_OFF(MEMLORD_OK)

/* Records the end of a storage, whatever its references, before it is returned. Storage 0
   does nothing. The device's index is ignored.
   Errors: E_UNKNOWN not live: totals unchanged, counted in unknown_frees. */
MEMLORD_API memlord_result memlord_free(memlord *lord, memlord_device device,
                                        uint64_t storage, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Records a realloc whose old address cannot have been reused meanwhile; else use begin and
   end. The block keeps its tag, description, references, recorded uses and mark.
   old_storage 0 is an alloc. An unknown old one counts in unknown_frees, and the new one is
   opened. Counted in `reallocs`. */
MEMLORD_API memlord_result memlord_realloc(memlord *lord, memlord_device device,
                                           uint64_t old_storage, uint64_t new_storage,
                                           uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* What realloc_begin and free_begin hand to their ends. Its fields are the library's. */
typedef struct memlord_realloc_token {
    memlord_device device;
    uint32_t state;
    uint64_t storage;
    uint64_t word[3];
} memlord_realloc_token;

/* Takes old_storage off the map, its bytes still counted, before the real realloc: once that
   returns, another thread may own the old address. Every begin needs one end.
   Errors: E_UNKNOWN not live, counted; the token is good all the same, and end then opens the
           new storage. */
MEMLORD_API memlord_result memlord_realloc_begin(memlord *lord, memlord_device device,
                                                 uint64_t old_storage,
                                                 memlord_realloc_token *token)
    MLI_OFF_SET(if (token) memset(token, 0, sizeof *token), MEMLORD_OK)

/* Records what the real realloc did. new_storage 0 says that it failed: the old entry comes
   back as it was. Requires: the token itself, not a copy of it.
   Errors: E_STATE the token was used already, or is another ledger's; E_NOMEM the block is
           counted as dropped. */
MEMLORD_API memlord_result memlord_realloc_end(memlord *lord, memlord_realloc_token *token,
                                               uint64_t new_storage, uint64_t bytes,
                                               const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Begins a free whose real call may fail: takes the storage off the map, its bytes still counted.
   A storage with recorded uses is pending from here on. Storage 0 does nothing. Every begin that
   returned MEMLORD_OK needs one end.
   Errors: E_UNKNOWN not live, counted; E_STATE it is pending already. */
MEMLORD_API memlord_result memlord_free_begin(memlord *lord, memlord_device device,
                                              uint64_t storage, memlord_realloc_token *token,
                                              const memlord_site *site)
    MLI_OFF_SET(if (token) memset(token, 0, sizeof *token), MEMLORD_OK)
/* Ends it: credits the storage or, if the real call `failed`, brings it back. A storage with
   recorded uses comes back without its uses, its views and its description.
   Errors: E_STATE the token was used already; E_NOMEM as realloc_end. */
MEMLORD_API memlord_result memlord_free_end(memlord *lord, memlord_realloc_token *token,
                                            int failed, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Records n at once. All arguments are checked and room is reserved first, so an error has
   recorded nothing; then the blocks are applied one by one. Meanwhile other threads may see a new
   block with 0 bytes.
   Errors: also E_INVALID `blocks` NULL with n > 0, or sizes whose sum overflows. free_n
           applies every block and returns E_UNKNOWN if some were not live. */
MEMLORD_API memlord_result memlord_alloc_n(memlord *lord, const memlord_block *blocks,
                                           size_t n, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_free_n(memlord *lord, const memlord_block *blocks,
                                          size_t n, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Tells when a device has done what was asked of it: an event, a timeline's value. Both functions
   are called with no lock of ours held and may call the ledger. */
typedef struct memlord_fence {
    int (*done)(void *user);  /* 1 done, 0 not yet, < 0 failed; may not block */
    void *user;
    uint64_t queue;           /* fences of one queue (a stream) complete in order */
    void (*drop)(void *user); /* may be NULL */
} memlord_fence;

/* Moves a block: the source ends, then the destination begins with `bytes`. Tag, description,
   references and mark go along. Counted in `moves` of the destination, and per pair of devices
   in reports. With a fence (may be NULL), or recorded uses, the source is pending until they
   are done, as after memlord_free_deferred.
   Errors: E_UNKNOWN the source is not live, counted; E_INVALID a fence without `done`. */
MEMLORD_API memlord_result memlord_move(memlord *lord, memlord_device from,
                                        uint64_t from_storage, memlord_device to,
                                        uint64_t to_storage, uint64_t bytes,
                                        const memlord_fence *fence, const memlord_site *site)
    MLI_OFF_SET(if (fence && fence->drop) fence->drop(fence->user), MEMLORD_OK)

/* Records that bytes were copied between devices and the source stays: `copies` of the
   destination, and per pair of devices in reports. No live byte changes: record the copy's own
   storage with memlord_alloc.
   Errors: E_DEVICE; E_INVALID over 2^48; E_NOMEM. Cost: a few atomics; a lock at a pair's first. */
MEMLORD_API memlord_result memlord_copy(memlord *lord, memlord_device from, memlord_device to,
                                        uint64_t bytes) MLI_OFF(MEMLORD_OK)

/* -- views: several owners of one storage -- */

/* Says "I hold this storage": records it with one reference, or adds a reference to a live one and
   counts no bytes (`bytes` is then ignored). So tied weights and views count once. */
MEMLORD_API memlord_result memlord_track(memlord *lord, memlord_device device,
                                         uint64_t storage, uint64_t bytes,
                                         const memlord_site *site) MLI_OFF(MEMLORD_OK)

/* Adds a reference to a live storage. Errors: E_UNKNOWN not live. */
MEMLORD_API memlord_result memlord_retain(memlord *lord, memlord_device device,
                                          uint64_t storage, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Drops a reference; the last one ends the storage. Storage 0 does nothing.
   Errors: E_UNKNOWN not live, counted in unknown_frees. */
MEMLORD_API memlord_result memlord_release(memlord *lord, memlord_device device,
                                           uint64_t storage, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Track and release n at once, as alloc_n and free_n do. */
MEMLORD_API memlord_result memlord_track_n(memlord *lord, const memlord_block *blocks,
                                           size_t n, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_release_n(memlord *lord, const memlord_block *blocks,
                                             size_t n, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* -- arenas: bytes without an identity -- */

/* Adds to the arena balance of a device.
   Errors: E_INVALID over 2^48, or the balance would overflow. Cost: one shared counter. */
MEMLORD_API memlord_result memlord_arena_add(memlord *lord, memlord_device device,
                                             uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Takes from it. More than the balance takes it to 0 and counts in underflows, MEMLORD_OK:
   storages are never touched. Errors: E_INVALID over 2^48 in one call. */
MEMLORD_API memlord_result memlord_arena_sub(memlord *lord, memlord_device device,
                                             uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* -- fences: memory the device still uses --
   A block whose free has to wait is pending: still in `allocated`, dead to free, release,
   retain and use. Fences are polled in retire, gc_poll and before an out-of-memory retry. Those
   of one device and queue are polled in the order of the frees, so a slow queue holds up only
   itself. A block waits for those of its queue that were freed before it. A poll and a deferred
   free look at every queue of the device type. An alloc or a free of a device type polls what is
   pending on that type: one queue a call, up to four fences of it. After `done` returned 0 such
   calls skip that queue. Each further 0 doubles the wait, up to 256 calls or 10 ms (one call in
   eight reads the clock). The poller of a device polls, too. Calls on other device types cost what
   they cost with nothing pending. A failed fence counts as done, and in fence_failures. A host that
   orders its streams itself (one waits for the other's event before it goes on) frees plainly:
   nothing is left to wait for. */

/* Frees a storage once a fence is done. Calls `done` at once, on this thread (a fence may record
   its event there; not with MEMLORD_FLAG_DEFER). Calls `drop`, if set, exactly once when MemLord
   will not call `done` again. An alloc of a pending storage ends it first.
   Errors: E_INVALID no `done`; E_UNKNOWN not live, counted; E_NOMEM. After an error neither
           function will be called. */
MEMLORD_API memlord_result memlord_free_deferred(memlord *lord, memlord_device device,
                                                 uint64_t storage, memlord_fence fence,
                                                 const memlord_site *site)
    MLI_OFF_SET(if (fence.drop) fence.drop(fence.user), MEMLORD_OK)

/* Records that a live storage is used by work the fence stands for (record_stream). A later plain
   free or release of it is deferred by itself until all its uses are done. A later use on the same
   queue replaces an earlier one.
   Errors: as free_deferred, but a storage that is not live is not counted. */
MEMLORD_API memlord_result memlord_block_use(memlord *lord, memlord_device device,
                                             uint64_t storage, memlord_fence fence)
    MLI_OFF_SET(if (fence.drop) fence.drop(fence.user), MEMLORD_OK)

/* Credits every deferred free whose fences are done, and returns their bytes. Cost: a few ns with
   nothing pending; else one `done` for each queue, each that is done, and each that was not called
   at its free (MEMLORD_FLAG_DEFER). */
MEMLORD_API uint64_t memlord_retire(memlord *lord, memlord_device sel) MLI_OFF(0)

/* -- sites: which code allocates -- */

/* Switches the counting per site on or off. Counts from now on; off keeps what was counted. */
MEMLORD_API memlord_result memlord_sites_enable(memlord *lord, int on)
    MLI_OFF(MEMLORD_OK)

/* Turns a return address into a site, for allocators and interposers: MEMLORD_SITE_OF_CALLER
   passes its own. The strings are looked up when it is first shown (a report, sites_top, a
   block; not a line of the log): file is the module, function the nearest dynamic symbol (link
   with -rdynamic), line 0. Without a symbol, and on Windows, function is "". Never NULL; lives
   until destroy.
   Cost: a few ns once the address is known. */
MEMLORD_API const memlord_site *memlord_site_at(memlord *lord, void *return_address)
    MLI_OFF_SET(MLI_NO_SITE, &none)

/* Returns the return address a site was made from; NULL for a planted one. */
MEMLORD_API void *memlord_site_address(memlord *lord, const memlord_site *site)
    MLI_OFF(NULL)

/* Gives a site better strings for later reports, say from debug information. Structs handed out
   before stay valid. NULL and 0 keep the old ones.
   Errors: E_UNKNOWN not seen by this ledger; E_NOMEM. */
MEMLORD_API memlord_result memlord_site_rename(memlord *lord, const memlord_site *site,
                                               const char *file, const char *function,
                                               int line) MLI_OFF(MEMLORD_OK)

/* A site on one device. `alloc_bytes` and `allocs` were allocated here, `free_bytes` and
   `frees` were freed here, wherever they were allocated; `live_bytes` was allocated here and is
   not freed yet. If a realloc has another site than the block, the new site counts an alloc of all
   its bytes, and has them from then on. */
typedef struct memlord_site_stat {
    const memlord_site *site;
    memlord_device device;
    uint64_t alloc_bytes, free_bytes;
    uint64_t allocs, frees;
    uint64_t live_bytes, peak_bytes;
} memlord_site_stat;

typedef enum memlord_site_order {
    MEMLORD_SITE_ORDER_ALLOC_BYTES,
    MEMLORD_SITE_ORDER_FREE_BYTES,
    MEMLORD_SITE_ORDER_ALLOCS,
    MEMLORD_SITE_ORDER_FREES,
    MEMLORD_SITE_ORDER_LIVE_BYTES,
    MEMLORD_SITE_ORDER_PEAK_BYTES
} memlord_site_order;

/* Lists the largest sites by `order`, up to `cap`, and returns how many were written. A
   site used on two devices is two rows. Sites whose number is 0 are left out.
   Cost: walks the sites. */
MEMLORD_API size_t memlord_sites_top(memlord *lord, memlord_device sel,
                                     memlord_site_order order, memlord_site_stat *out,
                                     size_t cap) MLI_OFF(0)

/* Finds the site with the most alloc_bytes, or free_bytes. 1: found. */
MEMLORD_API int memlord_site_top_alloc(memlord *lord, memlord_device sel,
                                       memlord_site_stat *out) MLI_OFF(0)
MEMLORD_API int memlord_site_top_free(memlord *lord, memlord_device sel,
                                      memlord_site_stat *out) MLI_OFF(0)

/* -- statistics -- */

/* Every statistic of a device: name, kind, name in PROMETHEUS, text. Kinds:
     LIVE   a level, now              PEAK  a high-water mark
     COUNT  grows; 0 at a reset       ANOMALY  an anomaly or a drop: grows, 0 at a reset
   A wide selector adds them up. To add one: a line here, and the code that counts it. */
#define MLI_STATS(X)                                                                          \
    X(allocated, LIVE, "live_bytes", "bytes live, pending included")                          \
    X(pending, LIVE, "pending_bytes", "bytes live that wait for their device")                \
    X(freed, COUNT, "freed_since_gc_bytes",                                                   \
      "bytes credited since the last collection or reset")                                    \
    X(peak, PEAK, "peak_bytes", "highest allocated; never high, low by at most peak_error")   \
    X(peak_error, PEAK, "peak_error_bytes", "bytes the peak may be low by")                   \
    X(live_blocks, LIVE, "live_blocks", "storages live")                                      \
    X(allocs, COUNT, "allocs_total", "storages opened")                                       \
    X(frees, COUNT, "frees_total", "storages closed")                                         \
    X(total_allocated, COUNT, "allocated_bytes_total", "bytes ever added, growth included")   \
    X(total_freed, COUNT, "freed_bytes_total", "bytes ever credited, shrinkage included")     \
    X(moves, COUNT, "moves_total", "storages that arrived by memlord_move")                   \
    X(moved_bytes, COUNT, "moved_bytes_total", "bytes that arrived by memlord_move")          \
    X(reserved, LIVE, "reserved_bytes", "bytes the host's pool holds")                        \
    X(reserved_peak, PEAK, "reserved_peak_bytes", "highest reserved")                         \
    X(cached, LIVE, "cached_bytes", "reserved and not allocated")                             \
    X(largest_free, LIVE, "largest_free_bytes", "largest free piece of the host's pool")      \
    X(cache_hits, COUNT, "cache_hits_total", "requests the host's pool served")               \
    X(cache_misses, COUNT, "cache_misses_total", "requests it passed on")                     \
    X(limit, LIVE, "", "bytes allowed; 0: no limit")                                          \
    X(gc_runs, COUNT, "gc_runs_total", "collections that ran")                                \
    X(gc_failed, COUNT, "gc_failures_total", "collections that did not")                      \
    X(gc_reclaimed, COUNT, "gc_reclaimed_bytes_total", "bytes they gave back")                \
    X(oom_attempts, COUNT, "oom_attempts_total", "attempts that found no memory")             \
    X(oom_failures, COUNT, "oom_failures_total", "requests that found none in the end")       \
    X(retries, COUNT, "retries_total", "attempts after the first")                            \
    X(recoveries, COUNT, "recoveries_total", "requests saved by a retry")                     \
    X(implicit_frees, ANOMALY, "implicit_frees_total", "allocs over a live storage")          \
    X(unknown_frees, ANOMALY, "unknown_frees_total", "frees of a storage not live")           \
    X(freed_while_shared, ANOMALY, "freed_while_shared_total", "frees of a storage with views") \
    X(underflows, ANOMALY, "underflows_total", "arena_sub below the balance")                 \
    X(fence_failures, ANOMALY, "fence_failures_total", "fences that failed")                  \
    X(dropped_allocs, ANOMALY, "dropped_allocs_total",                                        \
      "allocs there was no room for, in the map or among devices")                            \
    X(dropped_bytes, ANOMALY, "dropped_bytes_total", "their bytes")                           \
    X(dropped_sites, ANOMALY, "dropped_sites_total", "site or tag records without room")      \
    X(dropped_events, ANOMALY, "dropped_events_total", "events the ring had no room for")     \
    X(held, LIVE, "", "bytes that tickets keep of its physical device; once in a sum")        \
    X(reallocs, COUNT, "reallocs_total", "storages resized")                                  \
    X(copies, COUNT, "copies_total", "memlord_copy to this device")                           \
    X(copied_bytes, COUNT, "copied_bytes_total", "bytes they copied")                         \
    X(refused, ANOMALY, "refused_total", "calls that returned E_INVALID or E_DEVICE")

#define MEMLORD_STATS_VERSION 2
typedef struct memlord_stats {
    uint32_t size;    /* written by the library: sizeof(memlord_stats) */
    uint32_t version; /* written by the library: MEMLORD_STATS_VERSION */
#define MLI_X(name, kind, family, text) uint64_t name;
    MLI_STATS(MLI_X)
#undef MLI_X
} memlord_stats;

/* Return bytes, exact whenever no call is in flight. Cost: a few ns a thread and device. */
MEMLORD_API uint64_t memlord_allocated(memlord *lord, memlord_device sel) MLI_OFF(0)
MEMLORD_API uint64_t memlord_freed(memlord *lord, memlord_device sel) MLI_OFF(0)
MEMLORD_API uint64_t memlord_pending(memlord *lord, memlord_device sel) MLI_OFF(0)
/* For a wide selector the sum of the devices' peaks: an upper bound of the joint one. */
MEMLORD_API uint64_t memlord_peak(memlord *lord, memlord_device sel) MLI_OFF(0)

/* Fills every statistic. A selector that matches no device fills zeros.
   Errors: E_INVALID `out` NULL; E_DEVICE not a selector. */
MEMLORD_API memlord_result memlord_stats_get(memlord *lord, memlord_device sel,
                                             memlord_stats *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Rates of statistics, 0 to 1; NaN when nothing was counted. Reports show them. name, text */
#define MLI_RATES(X)                                                                          \
    X(hit_rate, "requests that the pool served, of all")                                      \
    X(recovery_rate, "requests saved by a retry, of those that found no memory at first")     \
    X(success_rate, "allocations that found memory, of all")

/* cache_hits / (cache_hits + cache_misses) */
MEMLORD_API double memlord_hit_rate(const memlord_stats *stats) MLI_OFF(0)
/* recoveries / (recoveries + oom_failures) */
MEMLORD_API double memlord_recovery_rate(const memlord_stats *stats) MLI_OFF(0)
/* allocs / (allocs + oom_failures) */
MEMLORD_API double memlord_success_rate(const memlord_stats *stats) MLI_OFF(0)
/* Bytes of an alloc in the mean: total_allocated / allocs, so growth and arenas count. NaN without
   an alloc. */
MEMLORD_API double memlord_mean_bytes(const memlord_stats *stats) MLI_OFF(0)

/* Starts an epoch: sets freed, totals, counts and anomalies to 0, those of sites and scopes, too,
   and each peak to the live bytes. Live storages stay live. */
MEMLORD_API void memlord_reset(memlord *lord) MLI_OFF_VOID
/* Sets the peak to what is live. */
MEMLORD_API void memlord_peak_reset(memlord *lord, memlord_device sel) MLI_OFF_VOID

/* Writes bytes for people: "0 B", "1 KiB", "1.5 KiB", rounded to two decimals at most, without
   zeros at the end. The same in every locale. 32 bytes always suffice. Returns buf. */
MEMLORD_API char *memlord_format_bytes(uint64_t bytes, char *buf, size_t cap)
    MLI_OFF_SET(if (buf && cap) buf[0] = 0, buf)
/* Reads "512", "1.5 GiB" (powers of 1024), "2GB" (powers of 1000), in any case. B alone and
   the unit's B may be left out ("2G" = 2GB). Errors: E_INVALID, and *out is unchanged. */
MEMLORD_API memlord_result memlord_parse_bytes(const char *text, uint64_t *out)
    MLI_OFF_SET(if (out) *out = 0, MEMLORD_OK)

/* Writes one line for a server's log: every device with live and peak bytes. Follows
   snprintf; allocates nothing. */
MEMLORD_API size_t memlord_summary(memlord *lord, char *buf, size_t cap)
    MLI_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* -- blocks and leaks -- */

/* A description of a block or a part. Every string is copied; all fields may be zero. */
typedef struct memlord_meta {
    const char *name;  /* "blk.0.attn_q.weight" */
    const char *dtype; /* "f16" */
    int64_t shape[8];
    uint32_t rank;     /* entries of shape in use, 0..8 */
    uint32_t flags;    /* the host's own bits, shown as a number */
    const char *tag;   /* retags the block, if set; "" does not */
} memlord_meta;

/* A live block. Strings live until the ledger is destroyed. */
typedef struct memlord_block_info {
    memlord_device device;
    uint64_t storage;
    uint64_t bytes;
    uint64_t refs;             /* 1 + views */
    const char *tag;           /* NULL: untagged */
    const char *scope;         /* path of the one it was allocated in; NULL: none */
    const memlord_site *site;  /* NULL: not known */
    uint64_t born;             /* the mark it was born under */
    memlord_meta meta;         /* zero if never described */
    int pending;               /* freed, and waits for its device */
} memlord_block_info;

typedef int (*memlord_block_fn)(void *user, const memlord_block_info *info); /* != 0 stops */

/* Calls fn for every live block of at least min_bytes, copied a shard at a time: blocks
   that come or go meanwhile may or may not be seen. fn may call the ledger; non-zero stops,
   with MEMLORD_OK. Errors: E_NOMEM for the copy. Cost: walks the map. */
MEMLORD_API memlord_result memlord_blocks_each(memlord *lord, memlord_device sel,
                                               uint64_t min_bytes, memlord_block_fn fn,
                                               void *user) MLI_OFF(MEMLORD_OK)

/* Lists the k largest live blocks, largest first, and returns how many were written. Allocates
   nothing. Cost: walks the map. */
MEMLORD_API size_t memlord_blocks_top(memlord *lord, memlord_device sel,
                                      memlord_block_info *out, size_t k) MLI_OFF(0)

/* Finds a live storage. Errors: E_UNKNOWN. Cost: as a free. */
MEMLORD_API memlord_result memlord_block_find(memlord *lord, memlord_device device,
                                              uint64_t storage, memlord_block_info *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Finds the live storage that contains an address. Errors: E_UNKNOWN. Cost: walks the map. */
MEMLORD_API memlord_result memlord_block_containing(memlord *lord, memlord_device device,
                                                    uint64_t address,
                                                    memlord_block_info *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Describes a live block; replaces an earlier description.
   Errors: E_INVALID rank over 8 or meta NULL; E_UNKNOWN; E_NOMEM. */
MEMLORD_API memlord_result memlord_block_describe(memlord *lord, memlord_device device,
                                                  uint64_t storage, const memlord_meta *meta)
    MLI_OFF(MEMLORD_OK)

/* Moves a live block, with its bytes, to another tag; NULL or "" is none.
   Errors: E_UNKNOWN; E_NOMEM. */
MEMLORD_API memlord_result memlord_block_retag(memlord *lord, memlord_device device,
                                               uint64_t storage, const char *tag)
    MLI_OFF(MEMLORD_OK)

/* Begins a new mark and returns it: blocks allocated from now on carry it. At most 2^26 - 1
   marks; then the last one stays. */
MEMLORD_API uint64_t memlord_mark(memlord *lord) MLI_OFF(0)

/* Calls fn (may be NULL) for every live block born under `since_mark` or later, and returns how
   many it met until fn returned non-zero. since_mark 0 is all of them. Cost: walks the map. */
MEMLORD_API size_t memlord_leaks(memlord *lord, uint64_t since_mark, memlord_block_fn fn,
                                 void *user) MLI_OFF(0)

/* -- parts: what is inside a storage -- */

typedef struct memlord_part_info {
    uint64_t offset, bytes;
    memlord_meta meta; /* strings live until destroy */
} memlord_part_info;
typedef int (*memlord_part_fn)(void *user, const memlord_part_info *part); /* != 0 stops */

/* Names a piece of a live storage: a tensor in a weights buffer, a slot of a KV cache. Parts
   subdivide, they never add: no total changes. They end when removed, or with their storage.
   Reports show them with it, except PROMETHEUS, which has no storages, and HEAPTRACK, where each
   would be one allocation more.
   Errors: E_INVALID bytes 0, not inside the storage, or rank over 8; E_STATE it overlaps another
           part; E_UNKNOWN no such storage; E_NOMEM.
   Cost:   a search, and 8 bytes moved for each part behind it: under a us by ascending offset,
           10 to 20 us at random among 100,000. */
MEMLORD_API memlord_result memlord_part_add(memlord *lord, memlord_device device,
                                            uint64_t storage, uint64_t offset, uint64_t bytes,
                                            const memlord_meta *meta) MLI_OFF(MEMLORD_OK)
/* Removes the part that begins there. Errors: E_UNKNOWN. Cost: as of an addition there. */
MEMLORD_API memlord_result memlord_part_remove(memlord *lord, memlord_device device,
                                               uint64_t storage, uint64_t offset)
    MLI_OFF(MEMLORD_OK)

/* Calls fn for the parts of a storage, by offset, and returns how many it was called for.
   Copied some at a time: fn may call the ledger. */
MEMLORD_API size_t memlord_parts_each(memlord *lord, memlord_device device, uint64_t storage,
                                      memlord_part_fn fn, void *user) MLI_OFF(0)

/* -- tags, plan against actual -- */

/* Tags what this thread allocates until the matching end: MEMLORD_TAG and MEMLORD_TAGGED do both.
   Tags nest; the innermost wins. The text is copied. Each pair of tag and device needs a
   record, of which a ledger has 65,535: past them blocks are recorded without their tag, counted
   in dropped_sites.
   Errors: E_INVALID NULL or ""; E_STATE deeper than 64, or an end without a begin;
           E_NOMEM, also past MEMLORD_MAX_STRINGS, counted in dropped_sites. Cost: tens of ns. */
MEMLORD_API memlord_result memlord_tag_begin(memlord *lord, const char *tag)
    MLI_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_tag_end(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Returns the tag that an alloc of this thread gets now; NULL: none. Lives until destroy. */
MEMLORD_API const char *memlord_tag_current(memlord *lord) MLI_OFF(NULL)

/* Sets the tag that this thread's allocs get while no tag is begun; NULL takes it off.
   Errors: E_INVALID ""; E_NOMEM as tag_begin. */
MEMLORD_API memlord_result memlord_tag_default_set(memlord *lord, const char *tag)
    MLI_OFF(MEMLORD_OK)

typedef struct memlord_tag_stat {
    const char *tag;
    uint64_t allocated; /* bytes live now */
    uint64_t peak;      /* as memlord_peak, of this tag */
    uint64_t blocks;    /* live now */
    uint64_t expected;  /* memlord_expect; 0: nothing was planned */
    int64_t variance;   /* allocated - expected; 0 when nothing was planned */
} memlord_tag_stat;

/* Reads a tag on the devices of a selector. NULL reads the untagged bytes, whose peak is not kept
   (0). Errors: E_UNKNOWN nothing was ever allocated or planned under it on any device, *out zero;
   E_INVALID `out` NULL; E_DEVICE not a selector. */
MEMLORD_API memlord_result memlord_tag_get(memlord *lord, memlord_device sel,
                                           const char *tag, memlord_tag_stat *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Sets how many bytes a tag is planned to hold on a device, for reports to compare.
   Errors: E_INVALID; E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_expect(memlord *lord, memlord_device device,
                                          const char *tag, uint64_t bytes)
    MLI_OFF(MEMLORD_OK)

/* -- capacity --
   The size of a device and its used bytes, from a source per device type. The cpu's is built
   in: the machine, or the container's memory limit with the page cache left out. Others are
   the host's. On Linux, from 3.14 on, it reads /proc/meminfo and the limits of this process's
   cgroup and those above it, below /sys/fs/cgroup (v2) or /sys/fs/cgroup/memory (v1); cgroups
   mounted elsewhere read as the machine. A sample that failed, or makes no sense (a total of
   0, used over total), is unknown, never 0. */

typedef struct memlord_capacity {
    uint64_t total, used; /* bytes, of everybody */
    uint64_t process;     /* this process's own share of used; 0: the source cannot tell */
    uint64_t age_ns;      /* how old the sample is; a source leaves it alone */
    int known;            /* 0: the other fields mean nothing; a source leaves it alone */
} memlord_capacity;

/* Fills total, used and process, and returns 0; non-zero: the capacity is not known. Runs on the
   poller or on a thread that asks for a sample, one at a time for a device; may block. */
typedef int (*memlord_capacity_fn)(void *user, memlord_device device, memlord_capacity *out);

/* Sets the source of a device type; NULL goes back to the built-in one. Forgets the old source's
   samples, and waits for a call of it in progress on another thread.
   Errors: E_DEVICE. */
MEMLORD_API memlord_result memlord_capacity_source_set(memlord *lord, int type,
                                                       memlord_capacity_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* Reads the latest sample; queries no source. Never sampled is known = 0, MEMLORD_OK.
   Errors: E_INVALID `out` NULL; E_DEVICE. Cost: a lock of one device and the clock. */
MEMLORD_API memlord_result memlord_capacity_get(memlord *lord, memlord_device device,
                                                memlord_capacity *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Queries the source now. Errors: E_UNSUPPORTED the type has none; E_UNKNOWN it failed, or made
   no sense; E_STATE one is being taken; E_DEVICE; E_NOMEM. Cost: the source's. */
MEMLORD_API memlord_result memlord_capacity_sample(memlord *lord, memlord_device device)
    MLI_OFF(MEMLORD_OK)

/* Samples every device that has a source each `interval_ms` (0: 200, at least 10), on a thread
   for each. Starts by itself when a device is used that has all three: a capacity source, a
   callback that serves MEMLORD_REASON_BAND, and a strategy. MEMLORD_POLL_INTERVAL_MS overrides the
   interval. Stop joins the threads; then none starts by itself until the next start. Without a
   poller memlord_gc_poll samples what has grown old.
   Errors: E_INVALID an interval of 1 to 9; E_UNSUPPORTED no threads in this build or with
           MEMLORD_FLAG_NO_THREADS; E_NOMEM the system gives no thread now: a later start tries
           again; stop: E_STATE on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_poller_start(memlord *lord, uint32_t interval_ms)
    MLI_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_poller_stop(memlord *lord) MLI_OFF(MEMLORD_OK)

/* -- limits --
   A limit refuses memlord_reserve and memlord_alloc_retry, never memlord_alloc, which records an
   alloc that has happened. These two keep live bytes plus tickets at or below the limit. Bytes
   that a pool has reserved and not allocated do not count. */

/* Sets the limit of a physical device; 0 is none. It may be below the live bytes: then requests
   are refused until enough is freed. Errors: E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_limit_set(memlord *lord, memlord_device device,
                                             uint64_t bytes) MLI_OFF(MEMLORD_OK)

/* Sets the limit to a fraction of the capacity, and changes it with the capacity. Takes a sample if
   none is known.
   Errors: E_INVALID not 0 < fraction <= 1; E_UNKNOWN the capacity is not known. */
MEMLORD_API memlord_result memlord_limit_set_fraction(memlord *lord, memlord_device device,
                                                      double fraction) MLI_OFF(MEMLORD_OK)

/* Returns the smaller of limit - live bytes and capacity - used bytes, minus what open tickets
   keep. Negative: so many bytes too many. INT64_MAX: neither limit nor capacity is known. */
MEMLORD_API int64_t memlord_headroom(memlord *lord, memlord_device device)
    MLI_OFF(INT64_MAX)

/* 1: so many bytes fit; 0: they do not; -1: neither limit nor capacity is known. */
MEMLORD_API int memlord_would_fit(memlord *lord, memlord_device device, uint64_t bytes)
    MLI_OFF(-1)

/* The same for a whole plan, each block on its device (`storage` is ignored). *short_by, if
   not NULL, is how many bytes the worst device lacks; negative: every device has that many to
   spare or more; 0 where -1 is returned, as for a plan with something that is no device. */
MEMLORD_API int memlord_plan_fit(memlord *lord, const memlord_block *blocks, size_t n,
                                 int64_t *short_by)
    MLI_OFF_SET(if (short_by) *short_by = 0, -1)

/* Writes in one line how many bytes short a request of `wanted` is, and the holders of the
   device: limit, capacity, tickets, the largest tags and sites. Follows snprintf; allocates
   nothing. Logged by itself when an allocation fails for good and, as a warning at most once a
   second, when a reservation is refused; without a logger nothing is walked.
   Cost: walks tags and sites. */
MEMLORD_API size_t memlord_explain(memlord *lord, memlord_device device, uint64_t wanted,
                                   char *buf, size_t cap)
    MLI_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* -- reservations: admission -- */

typedef uint64_t memlord_ticket; /* 0 is none */

/* Reserves bytes of a device's limit and headroom for allocs to come: reserve, allocate,
   memlord_alloc, commit. A ticket belongs to the thread that reserved or adopted it: what that
   thread records on the device comes off the ticket, so that nothing counts twice. On other
   threads name the ticket: memlord_alloc_reserved. Commit and cancel return the rest, on any
   thread: both do the same, and cancel is the name for a request that failed. Without a limit
   everything is granted. It runs no collection: on E_LIMIT call memlord_gc_run with
   MEMLORD_REASON_LIMIT and try again, use memlord_alloc_retry, or wait until the host has freed
   something. A free does not refill a ticket. The allocs of a thread come off its 8 latest tickets;
   those before them count in full, unless named. A thread may hold any number for others that name
   them.
   Errors: E_LIMIT (a warning with memlord_explain, at most once a second), also over 2^62 in all:
           *out is 0; E_INVALID over 2^48 or `out` NULL; E_DEVICE; E_NOMEM; E_STATE called by the
           ledger's own allocator. Commit, cancel and adopt: E_UNKNOWN not an open ticket of this
           ledger. */
MEMLORD_API memlord_result memlord_reserve(memlord *lord, memlord_device device,
                                           uint64_t bytes, memlord_ticket *out)
    MLI_OFF_SET(if (out) *out = 0, MEMLORD_OK)
MEMLORD_API memlord_result memlord_reserve_commit(memlord *lord, memlord_ticket ticket)
    MLI_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_reserve_cancel(memlord *lord, memlord_ticket ticket)
    MLI_OFF(MEMLORD_OK)

/* Moves a ticket to this thread: an acceptor reserves, a worker adopts. One's own is OK. */
MEMLORD_API memlord_result memlord_reserve_adopt(memlord *lord, memlord_ticket ticket)
    MLI_OFF(MEMLORD_OK)

/* Records an alloc that comes off a ticket, on any thread: one scheduler, any number of requests.
   Bytes beyond the ticket's count in full.
   Errors: as memlord_alloc; E_UNKNOWN not an open ticket; E_DEVICE also another physical device
           than the ticket's. The alloc is not recorded then. */
MEMLORD_API memlord_result memlord_alloc_reserved(memlord *lord, memlord_ticket ticket,
                                                  memlord_device device, uint64_t storage,
                                                  uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* -- accounts: bytes charged to a request or a user -- */

typedef uint64_t memlord_account; /* 0 is none */

typedef struct memlord_account_stat {
    char name[48]; /* cut to fit */
    memlord_device device;
    uint64_t bytes, peak;
    uint64_t limit;   /* 0: none */
    uint64_t refused; /* charges over the limit, blocks included */
} memlord_account_stat;

/* Opens an account. It adds nothing to the device. Reports list the open ones. The id of a closed
   account is never that of a later one. `name` may be NULL. Errors: E_INVALID; E_DEVICE;
   E_NOMEM. */
MEMLORD_API memlord_result memlord_account_open(memlord *lord, memlord_device device,
                                                const char *name, uint64_t limit,
                                                memlord_account *out)
    MLI_OFF_SET(if (out) *out = 0, MEMLORD_OK)

/* Adds to it, or takes from it, from any thread. Errors: E_LIMIT over its limit (or 2^48);
   E_INVALID below 0; E_UNKNOWN closed. Nothing has changed then. Cost: one atomic. */
MEMLORD_API memlord_result memlord_account_charge(memlord *lord, memlord_account account,
                                                  int64_t bytes) MLI_OFF(MEMLORD_OK)

/* Charges what this thread allocates on the account's device from now on, also by
   memlord_alloc_reserved, and credits it when the block ends, on whichever thread. Do not charge
   the same bytes by memlord_account_charge. Such allocs are recorded whatever the account's limit;
   those over it count in `refused`. A thread uses one account at a time, until the next call; 0
   ends it, and so does the end of the thread. A resized block is charged its new bytes. A move to
   another device ends the charge; what arrives there is charged as an alloc. Arenas are not.
   Cost: these blocks take the general path, and 250 bytes more.
   Errors: E_UNKNOWN closed; E_NOMEM. The account used before stays. */
MEMLORD_API memlord_result memlord_account_use(memlord *lord, memlord_account account)
    MLI_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_account_get(memlord *lord, memlord_account account,
                                               memlord_account_stat *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
/* Closes it, whatever it holds. Blocks charged to it live on, charged to none. */
MEMLORD_API memlord_result memlord_account_close(memlord *lord, memlord_account account)
    MLI_OFF(MEMLORD_OK)

/* -- bands: when a collection pays --
   A strategy is a list of bands over the used % of a device. The first band with lo <= used% <
   hi decides: a collection is due when its metric is at or above its threshold, the larger (or,
   with COMBINE_MIN, the smaller) of `bytes` and `percent`. Percent is of the capacity, or of the
   limit where one is set and smaller; for CACHED of what the pool has reserved. Of the two, one
   that is 0 is not used.
   used % is of the capacity, or of the limit where only that is known. While neither is known
   only a band that covers 0 to 100 counts, and percent not at all.
   A band fires again after its metric has been below 7/8 of the threshold. It also fires again
   when its metric has grown by 1/8 of the threshold since the last run, a failed run included. A
   new strategy and memlord_reset let it fire at once; a change of band alone does not. So a band
   is no upper bound: a run that could not give enough back is not tried again at once.
   The most specific strategy decides for a device: its own, its type's, that of all. It is in
   force once a callback that serves MEMLORD_REASON_BAND matches the device. */

typedef enum memlord_metric {
    MEMLORD_METRIC_ALLOCATED, /* live bytes of the device */
    MEMLORD_METRIC_FREED,     /* bytes freed there since the last collection */
    MEMLORD_METRIC_MAX,       /* the larger of the two */
    MEMLORD_METRIC_RESERVED,  /* what the pool holds: memlord_pool_set */
    MEMLORD_METRIC_CACHED     /* what the pool holds and has not allocated: rises on frees */
} memlord_metric;
typedef enum memlord_combine { MEMLORD_COMBINE_MAX, MEMLORD_COMBINE_MIN } memlord_combine;

typedef struct memlord_band {
    double lo, hi; /* used %, half open; 101 is above everything */
    memlord_metric metric;
    uint64_t bytes;
    double percent;
    memlord_combine combine;
} memlord_band;

/* Sets the strategy of a device, of a type, or of all; n = 0 switches bands off there. Copied. A
   selector that matches no device yet is kept for when it does. Overlaps, gaps and an uncovered
   100 % are logged as warnings.
   Errors: E_INVALID a band is bad (logged, naming it); E_DEVICE; E_NOMEM. The old one stays. */
MEMLORD_API memlord_result memlord_strategy_set(memlord *lord, memlord_device sel,
                                                const memlord_band *bands, size_t n)
    MLI_OFF(MEMLORD_OK)
/* Takes off the strategy of exactly this selector: a less specific one decides again. That of
   all goes back to the default one.
   Errors: E_DEVICE; E_UNKNOWN none was set. */
MEMLORD_API memlord_result memlord_strategy_unset(memlord *lord, memlord_device sel)
    MLI_OFF(MEMLORD_OK)
/* Looks for bands with lo >= hi, NaN, negative numbers, no threshold or an unknown metric.
   Errors: E_INVALID, and *bad, if not NULL, is the index of the first. */
MEMLORD_API memlord_result memlord_strategy_check(const memlord_band *bands, size_t n,
                                                  size_t *bad)
    MLI_OFF_SET(if (bad) *bad = 0, MEMLORD_OK)
/* Returns the strategy of all devices while the host sets none and MEMLORD_FLAG_NO_STRATEGY is
   not given: {0,50: max, 50 %}, {50,75: max, 33 %}, {75,101: freed, 10 %}. */
MEMLORD_API const memlord_band *memlord_strategy_default(size_t *n)
    MLI_OFF_SET(if (n) *n = 0, NULL)

/* -- collection -- */

/* MEMLORD_REASON_BAND, _OOM, _LIMIT, _NEIGHBOUR, _FRAGMENTATION, _HOST. name, text */
#define MLI_REASONS(X)                                                                        \
    X(BAND, "band")                                                                           \
    X(OOM, "out of memory")                                                                   \
    X(LIMIT, "limit")                                                                         \
    X(NEIGHBOUR, "neighbour")                                                                 \
    X(FRAGMENTATION, "fragmentation")                                                         \
    X(HOST, "host")
enum {
#define MLI_X(name, text) MEMLORD_REASON_##name,
    MLI_REASONS(MLI_X)
#undef MLI_X
    MEMLORD_REASON_COUNT
};

typedef struct memlord_gc_event {
    memlord_device device;
    int reason;              /* MEMLORD_REASON_... */
    double used_percent;     /* NaN: unknown */
    size_t band;             /* its index in the strategy; SIZE_MAX: none has fired */
    memlord_metric metric;
    uint64_t value, threshold; /* of the metric; without a band live bytes, and 0 */
    uint64_t needed;         /* bytes wanted; 0, as of a band or memlord_gc_run: no number */
    uint64_t device_runs, total_runs; /* this one included, failed ones too */
} memlord_gc_event;

typedef struct memlord_gc_result {
    int ran;            /* 0: could not; nothing is reset, counted in gc_failed */
    int family;         /* 1: freed starts over for every device of the type, as this run gave
                           memory of all of them back; 0: for this device alone */
    uint64_t reclaimed; /* bytes given back, as far as known */
} memlord_gc_result;

/* Gives memory back: drops a cache, trims a pool. Runs on the thread whose call crossed the
   threshold, inside that call, under whatever locks the host holds there, but none of ours (see
   MEMLORD_FLAG_DEFER). May call anything but memlord_destroy. If that call is a free, your
   allocator has not taken the block back yet. At most one run at a time for a device; others do
   not wait. One callback may run for two devices at once. */
typedef memlord_gc_result (*memlord_gc_fn)(void *user, memlord *lord,
                                           const memlord_gc_event *event);

enum {
    MEMLORD_GC_QUIET = 1 << 30 /* in `reasons`: bands call it only if the program has set a
                                  strategy. For a library that adds a callback on its behalf */
};

/* Adds a callback for a device, a type, or all. `reasons` is a sum of 1 << MEMLORD_REASON_...;
   0 is all. Callbacks that match a device add up: the device's own run first, then its type's,
   then those of all, each in the order they came; their results are added.
   Errors: E_INVALID fn NULL, or an unknown reason; E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_gc_callback_add(memlord *lord, memlord_device sel,
                                                   uint32_t reasons, memlord_gc_fn fn,
                                                   void *user) MLI_OFF(MEMLORD_OK)
/* Removes the first callback that is the same, and waits for runs of it on other threads. A
   callback may remove itself. Errors: E_INVALID; E_DEVICE; E_UNKNOWN. */
MEMLORD_API memlord_result memlord_gc_callback_remove(memlord *lord, memlord_device sel,
                                                      memlord_gc_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* Collects now, whatever the bands say. *reclaimed, if not NULL, is what it gave back.
   Errors: E_INVALID the reason; E_DEVICE; E_UNKNOWN no callback; E_STATE one is running, or
           none of them could. */
MEMLORD_API memlord_result memlord_gc_run(memlord *lord, memlord_device device, int reason,
                                          uint64_t *reclaimed)
    MLI_OFF_SET(if (reclaimed) *reclaimed = 0, MEMLORD_OK)

/* Retires deferred frees and runs due collections: the safe point under MEMLORD_FLAG_DEFER.
   Without pollers it first samples what is older than their interval. Errors: E_DEVICE. */
MEMLORD_API memlord_result memlord_gc_poll(memlord *lord, memlord_device sel)
    MLI_OFF(MEMLORD_OK)

/* -- out of memory -- */

typedef struct memlord_retry {
    uint32_t max_retries;         /* after the first attempt */
    uint32_t initial_ms, max_ms;  /* the first pause; the longest, not less than the first */
    double multiplier;            /* at least 1: a policy of zeros is refused */
    void (*sleep_ms)(void *user, uint32_t ms); /* NULL: waits, and wakes when enough is freed */
    void *user;
} memlord_retry;

/* Returns the pause after attempt 0, 1, ...: initial x multiplier^attempt in whole ms, at most
   max_ms. NULL is the default policy: 5, 50 ms, x 1.5, 2000 ms. */
MEMLORD_API uint32_t memlord_retry_backoff(const memlord_retry *policy, uint32_t attempt)
    MLI_OFF(0)
/* Errors: E_INVALID max_ms < initial_ms, or a multiplier that is not finite or below 1. */
MEMLORD_API memlord_result memlord_retry_check(const memlord_retry *policy)
    MLI_OFF(MEMLORD_OK)

/* Makes the real allocation. 0: done, *storage set; > 0: no memory, try again; < 0: give up. */
typedef int (*memlord_try_fn)(void *user, uint64_t bytes, uint64_t *storage);

/* Allocates, through out of memory: attempt, retire, collect (REASON_OOM, `needed` set), back
   off, again. Records the storage itself, with this thread's tag and scope; fn must not. If the
   request would pass the limit, it retires and collects once (REASON_LIMIT); if it still does not
   fit, it returns E_LIMIT without a call of fn. A NULL policy is MEMLORD_RETRY's or the default.
   The last failure is logged with memlord_explain, after a new sample.
   Errors: E_INVALID fn or storage NULL, over 2^48, or a policy memlord_retry_check refuses;
           E_DEVICE; E_LIMIT; E_OOM, also where fn gave up; E_NOMEM the ledger has no room for the
           request's reservation. *storage is 0 then. */
MEMLORD_API memlord_result memlord_alloc_retry(memlord *lord, memlord_device device,
                                               uint64_t bytes, memlord_try_fn fn, void *user,
                                               const memlord_retry *policy,
                                               uint64_t *storage, const memlord_site *site)
#if defined(MEMLORD_DISABLE)
{
    uint64_t made = 0;
    int failed;
    if (storage) *storage = 0;
    if (!storage || !fn) return MEMLORD_E_INVALID;
    failed = fn(user, bytes, &made);
    if (!failed) *storage = made;
    return failed ? MEMLORD_E_OOM : MEMLORD_OK;
}
#else
;
#endif

/* Counts an allocation that found no memory and is not tried again: one attempt, one failure.
   Logs memlord_explain, at most once a second. Inside a memlord_try_fn it does nothing:
   memlord_alloc_retry counts there.
   Errors: E_INVALID over 2^48; E_DEVICE. */
MEMLORD_API memlord_result memlord_alloc_failed(memlord *lord, memlord_device device,
                                                uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* -- pools: memory that the host's own allocator holds -- */

/* Sets how much a pool holds of a device, and its largest free piece (UINT64_MAX: not known).
   memlord_pool_add adds to what it holds, and leaves the largest free piece as it was set. Both
   look at the bands of the device, so a collection may run inside them; but none inside the
   device's capacity source, where a later call runs it.
   Errors: E_DEVICE; E_NOMEM; E_INVALID over 2^62, pool_add also below 0. */
MEMLORD_API memlord_result memlord_pool_set(memlord *lord, memlord_device device,
                                            uint64_t reserved, uint64_t largest_free)
    MLI_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_pool_add(memlord *lord, memlord_device device,
                                            int64_t delta) MLI_OFF(MEMLORD_OK)

/* Counts requests that the pool served from what it held, and those it passed on.
   Errors: E_DEVICE. Cost: two atomics. */
MEMLORD_API memlord_result memlord_pool_served(memlord *lord, memlord_device device,
                                               uint64_t hits, uint64_t misses)
    MLI_OFF(MEMLORD_OK)

/* (reserved - allocated) / reserved, at least 0; 0 when nothing is reserved. */
MEMLORD_API double memlord_cached_ratio(const memlord_stats *stats) MLI_OFF(0)
/* 1 - largest_free / (reserved - allocated), 0 to 1; 0 when nothing is free; NaN when the
   largest free piece is not known. */
MEMLORD_API double memlord_fragmentation(const memlord_stats *stats) MLI_OFF(0)

enum {
    MEMLORD_PRESSURE_UNKNOWN,  /* neither capacity nor limit is known */
    MEMLORD_PRESSURE_NORMAL,
    MEMLORD_PRESSURE_WARNING,  /* from 80 % of the capacity or the limit */
    MEMLORD_PRESSURE_CRITICAL, /* from 95 % */
    MEMLORD_PRESSURE_EMERGENCY /* the last memlord_alloc_retry found no memory, or
                                  memlord_alloc_failed was called since */
};
MEMLORD_API int memlord_pressure_level(memlord *lord, memlord_device device)
    MLI_OFF(MEMLORD_PRESSURE_UNKNOWN)

/* -- scopes: the cost of a phase of the program --
   A scope is a stretch of a thread's work with a name: a step, a layer, a request. Scopes nest,
   and are told apart by their path, "decode/attention". A scope's delta is what its thread
   allocated meanwhile less what it freed, inner scopes included; it may be negative. Blocks
   remember the scope they were allocated in. */

/* A scope's name and place; MEMLORD_SCOPED plants one. Its address is its identity; its strings
   are copied when first seen. */
typedef struct memlord_scope_site {
    const char *name;
    memlord_site site;
} memlord_scope_site;

/* Begins a scope on this thread; they nest up to 64 deep. Names are cut to 200 bytes.
   Errors: E_INVALID NULL or ""; E_STATE too deep; E_NOMEM also over MEMLORD_MAX_SCOPES paths,
           counted. Cost: tens of ns, and one or two a device and thread. */
MEMLORD_API memlord_result memlord_scope_begin(memlord *lord, const char *name)
    MLI_OFF(MEMLORD_OK)
/* The same by a static record, which is found by its address, without comparing names.
   Errors: also E_INVALID `place` NULL. */
MEMLORD_API memlord_result memlord_scope_enter(memlord *lord, const memlord_scope_site *place)
    MLI_OFF(MEMLORD_OK)
/* Ends the innermost scope of this thread. A thread that exits ends all of its own.
   Errors: E_STATE none was begun, or it was adopted (see memlord_scope_return). */
MEMLORD_API memlord_result memlord_scope_end(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Sets the text that is shown with this invocation of the innermost scope: the shapes it works on,
   "q[1,32,128] k[1,8,128]". NULL removes it. Kept until destroy, each text once, and with the
   names of checkpoints in half of MEMLORD_MAX_STRINGS. Errors: E_STATE no scope; E_NOMEM. */
MEMLORD_API memlord_result memlord_scope_shapes_set(memlord *lord, const char *shapes)
    MLI_OFF(MEMLORD_OK)

/* Lets other threads work in this thread's innermost scope: each adopts the token, and returns
   it when it is done. Between the two the thread is in the scope: its blocks remember it, and
   scopes it begins are inside it. Each adoption is one more invocation of the path: 50 steps with
   one worker give a count of 100, and ns.total is the sum over threads. The invocation that was
   exported does not include it, nor do the scopes around that. A token may be copied to any
   number of threads, and adopted until the exporting thread ends the scope. A thread that has
   adopted it stays in the scope until it returns it, even after that.
   Errors: E_STATE no scope, or too deep; adopt: also on the scope's own thread, or twice; return:
           the innermost scope is not this one; E_UNKNOWN the scope is over, or another ledger's;
           E_INVALID; E_NOMEM. */
typedef struct memlord_scope_token {
    uint64_t word[2]; /* the library's */
} memlord_scope_token;
MEMLORD_API memlord_result memlord_scope_export(memlord *lord, memlord_scope_token *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
MEMLORD_API memlord_result memlord_scope_adopt(memlord *lord, const memlord_scope_token *token)
    MLI_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_scope_return(memlord *lord, const memlord_scope_token *token)
    MLI_OFF(MEMLORD_OK)

/* The totals of all finished invocations of a path. Strings live until destroy. */
typedef struct memlord_scope_stat {
    const char *name, *path;
    const memlord_site *site; /* NULL: begun by name */
    uint64_t id, parent;      /* 0: none */
    uint64_t count, running;  /* invocations: over; not yet */
    struct {
        int64_t total, min, max;
    } bytes, blocks;          /* deltas */
    uint64_t peak;            /* the most that one invocation rose above its start; each device by
                                 itself, then added: an upper bound if there are several */
    struct {
        uint64_t total, min, max;
    } ns;                     /* of the host's time */
    uint64_t device_ns;       /* memlord_scope_device_time */
} memlord_scope_stat;

/* Reads a scope by its path. Errors: E_UNKNOWN never begun, *out zero; E_INVALID. */
MEMLORD_API memlord_result memlord_scope_get(memlord *lord, const char *path,
                                             memlord_scope_stat *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
/* Returns the id of this thread's innermost scope; 0: none. */
MEMLORD_API uint64_t memlord_scope_current(memlord *lord) MLI_OFF(0)
/* Adds the time a device took for a scope, when its events know it. Errors: E_UNKNOWN no such
   id. */
MEMLORD_API memlord_result memlord_scope_device_time(memlord *lord, uint64_t scope, uint64_t ns)
    MLI_OFF(MEMLORD_OK)

/* -- snapshots: how memory moved -- */

/* Keeps the totals of every device at this moment, under a name, with the ten largest blocks. Up
   to 255 snapshots are kept, spread over the whole run. Beyond that the one whose neighbours are
   closest in time goes, and is counted, but for the first, the last, and those in which a device,
   or all together, held most; a checkpoint goes only when there is nothing else.
   Errors: E_INVALID NULL or ""; E_NOMEM, counted.
   Cost:   a tenth of a us a device and thread, and a walk of the map: about 10 ns a block. */
MEMLORD_API memlord_result memlord_checkpoint(memlord *lord, const char *name)
    MLI_OFF(MEMLORD_OK)

/* Takes a snapshot now, one every interval_ms (0: 5000, at least 10) on a thread of its own, and a
   last one at the stop. Until then a report that shows snapshots (TEXT, JSON, HTML, TRACE) ends
   with one of its own, which is not kept. Without threads memlord_gc_poll takes those that are due.
   The ledger's clock decides: while a clock of the host's stands still none is taken; when it runs
   ahead, or the interval changes, the thread learns that within a second.
   Errors: E_INVALID an interval of 1 to 9; E_NOMEM the first; the others will come; stop: E_STATE
           on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_snapshots_start(memlord *lord, uint32_t interval_ms)
    MLI_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_snapshots_stop(memlord *lord) MLI_OFF(MEMLORD_OK)

/* -- events: every change, in a ring -- */

/* name, text */
#define MLI_EVENTS(X)                                                                         \
    X(ALLOC, "alloc")             /* a block begins */                                        \
    X(FREE, "free")               /* a block is credited */                                   \
    X(PEND, "pend")               /* a block is freed, and waits for its device */            \
    X(MOVE, "move")               /* a block begins that was moved there */                   \
    X(ARENA_ADD, "arena_add")                                                                 \
    X(ARENA_SUB, "arena_sub")                                                                 \
    X(GC, "gc")                   /* a collection ran; bytes: reclaimed */                    \
    X(OOM, "oom")                 /* an attempt found no memory; bytes: wanted */             \
    X(SCOPE_BEGIN, "scope_begin")                                                             \
    X(SCOPE_END, "scope_end")                                                                 \
    X(CHECKPOINT, "checkpoint")   /* tag: its name */
enum {
#define MLI_X(name, text) MEMLORD_EVENT_##name,
    MLI_EVENTS(MLI_X)
#undef MLI_X
    MEMLORD_EVENT_COUNT
};

typedef struct memlord_event {
    uint64_t time_ns;         /* since the ledger was created */
    uint32_t thread;          /* a number of the ledger's own */
    int kind;                 /* MEMLORD_EVENT_... */
    memlord_device device;    /* {MEMLORD_ANY, MEMLORD_ANY}: of none */
    uint64_t storage, bytes;
    const memlord_site *site; /* of the call, where sites are counted; NULL: not known */
    const char *tag;          /* of the block; NULL: none */
    uint64_t scope;           /* the thread's innermost; 0: none */
} memlord_event;
typedef int (*memlord_event_fn)(void *user, const memlord_event *event); /* != 0 stops */

/* Writes what happens into a ring of at most `capacity` events (0: 65536; 32 bytes each), over
   the oldest; those are counted in dropped_events. A ledger has one ring: a later start goes on
   in it.
   Errors: E_INVALID over 2^26; E_STATE the ledger has a ring of another capacity; E_NOMEM.
   Cost:   one branch a call when off. */
MEMLORD_API memlord_result memlord_events_start(memlord *lord, size_t capacity)
    MLI_OFF(MEMLORD_OK)
/* Stops writing; the ring can still be read. */
MEMLORD_API void memlord_events_stop(memlord *lord) MLI_OFF_VOID
/* Calls fn for the events in the ring, in the order of their time; those that are overwritten
   meanwhile are left out. Errors: E_INVALID `fn` NULL; E_NOMEM. */
MEMLORD_API memlord_result memlord_events_each(memlord *lord, memlord_event_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* -- reports -- */

/* MEMLORD_FORMAT_TEXT, _JSON, ... name, suffix of its files, what it is */
#define MLI_FORMATS(X)                                                                        \
    X(TEXT, "txt", "a table for people; the first 25 lines tell most of it")                  \
    X(JSON, "json", "for programs: everything; schema memlord/1")                             \
    X(HTML, "html", "a page for people, of one file, that needs no network")                  \
    X(TRACE, "trace.json", "a timeline, for ui.perfetto.dev and chrome://tracing")            \
    X(PROMETHEUS, "prom", "metrics, for a server to scrape or a textfile collector")          \
    X(PPROF, "pb", "live and allocated bytes by site, for go tool pprof")                     \
    X(HEAPTRACK, "heaptrack", "calls, peak and what is live by site, for heaptrack_print")    \
    X(FOLDED, "folded", "live bytes by device, tag and site, for flamegraph.pl, speedscope")  \
    X(MEMORY_VIZ, "pickle", "a snapshot as PyTorch's, for pytorch.org/memory_viz")            \
    X(CSV, "csv", "every live block, and its parts, for a spreadsheet or a script")

typedef enum memlord_format {
#define MLI_X(name, suffix, text) MEMLORD_FORMAT_##name,
    MLI_FORMATS(MLI_X)
#undef MLI_X
    MEMLORD_FORMAT_COUNT
} memlord_format;

/* Returns the format a file's suffix names ("x.html", "y.trace.json"); TEXT if it names none. */
MEMLORD_API memlord_format memlord_format_for(const char *path)
    MLI_OFF(MEMLORD_FORMAT_TEXT)

typedef int (*memlord_write_fn)(void *user, const void *data, size_t size); /* 0: written */

/* Writes a report through fn, in pieces of up to a few KiB.
   Errors: E_IO fn returned non-zero; E_UNSUPPORTED no such format; E_INVALID fn NULL; E_NOMEM.
   The statistics of devices and tags are captured once, and no other call waits. Other lists are
   read as they are written: they may have what was recorded since. Cost: walks blocks and sites. */
MEMLORD_API memlord_result memlord_write(memlord *lord, memlord_format format,
                                         memlord_write_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* Writes a report to a file: the whole file or none (a temporary beside it, synced and
   renamed). %p in the path is the process id, %% a percent sign. An existing regular file is
   replaced; a symbolic link, FIFO, device or directory is refused. The path "-" is descriptor 1,
   written with write(2): what stdio still buffers comes later, and SIGPIPE is held back.
   Errors: E_INVALID the path; E_IO, also descriptor 1 closed, or not all written; E_UNSUPPORTED,
           also a binary format to a terminal, logged; E_NOMEM. */
MEMLORD_API memlord_result memlord_save(memlord *lord, memlord_format format,
                                        const char *path) MLI_OFF(MEMLORD_OK)

/* Saves a report when the ledger is destroyed or the process exits, whichever is first, as
   memory_profile_YYYYMMDD_HHMMSS and the format's suffix (UTC), in `directory` (NULL: the
   ledger's output_dir, else the current one). Replaces no file: the process id and a number
   follow the time where one is there. The last call counts. A forked child that exits writes one
   of its own.
   Errors: E_INVALID the path is too long; E_UNSUPPORTED; E_NOMEM. */
MEMLORD_API memlord_result memlord_save_at_exit(memlord *lord, memlord_format format,
                                                const char *directory) MLI_OFF(MEMLORD_OK)

/* Asks for such a report now. Async-signal-safe: a handler of SIGUSR1 may call it. It is JSON
   unless memlord_save_at_exit says otherwise; one report, however many calls asked. Served by
   whichever comes first:
   - the next call that begins, ends, moves or resizes a block or an arena, describes, retags, adds
     or removes a part, marks, resets, charges, reserves, sets a plan or a pool, begins or ends a
     scope, takes a checkpoint, polls or retires; not one that retains, or releases a view. With
     MEMLORD_FLAG_DEFER only memlord_gc_poll, memlord_retire and memlord_alloc_retry;
   - a poller, within its interval, or the thread that takes snapshots, within a second;
   - memlord_destroy, or the exit of the process if memlord_save_at_exit was called for a ledger. */
MEMLORD_API void memlord_request_save(memlord *lord) MLI_OFF_VOID

/* -- guards: what MEMLORD_TAGGED, MEMLORD_SCOPED and their loop forms stand on -- */

/* A tag or a scope that has begun, and what its end restores. */
typedef struct memlord_guard {
    memlord *lord;   /* NULL: there is nothing to end */
    uint32_t thread; /* the ledger's number of the thread that began it */
    uint32_t depth;  /* how many tags, or scopes, that thread was in before */
    int scope;       /* 1: a scope; 0: a tag */
} memlord_guard;

/* Begins a tag, or a scope: by its static record `place` or, if that is NULL, by its name. The
   guard has nothing to end where memlord_tag_begin, memlord_scope_enter or memlord_scope_begin
   would return an error. */
MEMLORD_API memlord_guard memlord_guard_tag(memlord *lord, const char *tag)
    MLI_OFF_SET(memlord_guard none; memset(&none, 0, sizeof none), none)
MEMLORD_API memlord_guard memlord_guard_scope(memlord *lord, const char *name,
                                              const memlord_scope_site *place)
    MLI_OFF_SET(memlord_guard none; memset(&none, 0, sizeof none), none)
/* Ends it: this thread is as deep in tags, or in scopes, as before. So it also ends those that were
   begun since and not ended, and adopted scopes that were not returned: after a longjmp the next
   guard around puts things right. A second end does nothing. On another thread than the one that
   began it, it does nothing but count in dropped_sites of the sum of all devices; the first one is
   logged. */
MEMLORD_API void memlord_guard_end(memlord_guard *guard) MLI_OFF_VOID

/* -- shim: what MEMLORD_SHIM puts in place of the C library's functions --
   Each does the real call, on the cpu device (mapped for a file's mmap), and keeps errno. */

#if !defined(MEMLORD_DISABLE)
MEMLORD_API void *memlord_shim_malloc(memlord *lord, size_t size, const memlord_site *site);
MEMLORD_API void *memlord_shim_calloc(memlord *lord, size_t n, size_t size,
                                      const memlord_site *site);
/* Size 0 frees and answers NULL, as glibc does. */
MEMLORD_API void *memlord_shim_realloc(memlord *lord, void *ptr, size_t size,
                                       const memlord_site *site);
MEMLORD_API void memlord_shim_free(memlord *lord, void *ptr, const memlord_site *site);
#if !defined(_WIN32)
/* Records the pages as one block. MAP_FIXED over the start of a live block closes that block, an
   implicit free; over a later part of it, those pages count twice. An offset that does not fit
   the off_t of the file with the implementation fails with EOVERFLOW: define _FILE_OFFSET_BITS
   there, too. */
MEMLORD_API void *memlord_shim_mmap(memlord *lord, void *at, size_t size, int prot, int flags,
                                    int fd, int64_t offset, const memlord_site *site);
/* Ends the block with exactly this address and size. Other ranges (a part of a block, several
   blocks) end nothing and count in unknown_frees. Not counted if the real call fails. */
MEMLORD_API int memlord_shim_munmap(memlord *lord, void *at, size_t size,
                                    const memlord_site *site);
#endif
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif

/* -- macros: plant a site, pass a pointer -- */

/* The key of a storage: its address, or its handle as an integer, which may be wider than an
   address (in C of compilers without GNU extensions it is cut to one). */
#if defined(__cplusplus)
template <typename T> static inline uint64_t mli_key(T *address) {
    return reinterpret_cast<uintptr_t>(address);
}
template <typename T> static constexpr uint64_t mli_key(T handle) {
    return sizeof handle > sizeof(uintptr_t) ? uint64_t(handle) : uint64_t{uintptr_t(handle)};
}
#define MEMLORD_KEY(ptr) mli_key(ptr)
#elif defined(__GNUC__)
#define MEMLORD_KEY(ptr)                                                                      \
    ((uint64_t)__builtin_choose_expr(sizeof(1 ? (ptr) : (ptr)) > sizeof(uintptr_t), (ptr),    \
                                     (uintptr_t)(ptr)))
#else
#define MEMLORD_KEY(ptr) ((uint64_t)(uintptr_t)(ptr))
#endif

/* The address of a static record of this line. C compilers without statement expressions have no
   such expression: there it is NULL, and the macros below are statements that define the record
   themselves. With MEMLORD_DISABLE it is NULL, too. */
#if defined(MEMLORD_DISABLE)
#define MEMLORD_SITE() MLI_CAST(const memlord_site *, NULL)
#elif defined(__GNUC__)
#define MEMLORD_SITE()                                                                        \
    (__extension__({                                                                          \
        static const memlord_site mli_here = {__FILE__, __func__, __LINE__};                  \
        &mli_here;                                                                            \
    }))
#elif defined(__cplusplus)
#define MEMLORD_SITE()                                                                        \
    ([](const char *function) -> const memlord_site * {                                       \
        static const memlord_site here = {__FILE__, function, __LINE__};                      \
        return &here;                                                                         \
    }(__func__))
#else
#define MEMLORD_SITE() ((const memlord_site *)NULL)
#define MLI_PLANT(call)                                                                       \
    do {                                                                                      \
        static const memlord_site mli_here = {__FILE__, __func__, __LINE__};                  \
        (void)call;                                                                           \
    } while (0)
#endif

/* The place that called the function you are in: memlord_site_at of its return address. It has no
   line; a wrapper that is a macro and passes MEMLORD_SITE() keeps file and line. With a ledger as
   argument the site is of that ledger; without one it is of memlord_global(). A function that the
   compiler inlines has no call of its own: mark it noinline. For gcc and clang only. */
#if defined(__GNUC__)
#if defined(MEMLORD_DISABLE)
#define MLI_CALLER() NULL
#else
#define MLI_CALLER() __builtin_extract_return_addr(__builtin_return_address(0))
#endif
#if defined(__cplusplus)
MLI_INLINE memlord *mli_lord_or_global() { return memlord_global(); }
MLI_INLINE memlord *mli_lord_or_global(memlord *lord) { return lord; }
#define MEMLORD_SITE_OF_CALLER(...)                                                           \
    memlord_site_at(mli_lord_or_global(__VA_ARGS__), MLI_CALLER())
#else
#define MEMLORD_SITE_OF_CALLER(...)                                                           \
    memlord_site_at(sizeof(#__VA_ARGS__) > 1 ? ((memlord *const[2]){NULL, __VA_ARGS__})[1]    \
                                             : memlord_global(),                              \
                    MLI_CALLER())
#endif
#endif

#if defined(MLI_PLANT)
#define MLI_CALL(name, ...) MLI_PLANT(name(__VA_ARGS__, &mli_here))
#else
#define MLI_CALL(name, ...) name(__VA_ARGS__, MEMLORD_SITE())
#endif

/* The track calls with the storage as a pointer and the site of the call. Expressions of type
   memlord_result under GNU C and C++, else statements. */
#define MEMLORD_ALLOC(lord, dev, ptr, bytes)                                                  \
    MLI_CALL(memlord_alloc, lord, dev, MEMLORD_KEY(ptr), bytes)
#define MEMLORD_FREE(lord, dev, ptr) MLI_CALL(memlord_free, lord, dev, MEMLORD_KEY(ptr))
#define MEMLORD_REALLOC(lord, dev, old_ptr, new_ptr, bytes)                                   \
    MLI_CALL(memlord_realloc, lord, dev, MEMLORD_KEY(old_ptr), MEMLORD_KEY(new_ptr),          \
             bytes)
#define MEMLORD_TRACK(lord, dev, ptr, bytes)                                                  \
    MLI_CALL(memlord_track, lord, dev, MEMLORD_KEY(ptr), bytes)
#define MEMLORD_RETAIN(lord, dev, ptr)                                                        \
    MLI_CALL(memlord_retain, lord, dev, MEMLORD_KEY(ptr))
#define MEMLORD_RELEASE(lord, dev, ptr)                                                       \
    MLI_CALL(memlord_release, lord, dev, MEMLORD_KEY(ptr))

/* From here to the end of the block of code:

       MEMLORD_TAGGED(lord, "kv_cache");    tags what this thread allocates
       MEMLORD_SCOPED(lord, "decode");      is a scope

   They end with the block however it is left: by break, continue, return, goto or an exception.
   longjmp skips the end: the end of the next guard around restores its own depth. The name of a
   scope is a string literal, as its record is static; that of a tag may be a variable.
   Both are declarations. After `if (x)` or a case label give them a block of their own,
   `case 1: { MEMLORD_TAGGED(lord, "a"); ... }`. Compilers refuse them after a bare `if`, and refuse
   a jump past one to a later label of its block. After the last label of a switch some compilers
   accept them: they end with the switch.
   For C++, gcc and clang. C of other compilers cannot end them, and has the loop forms alone:

       MEMLORD_TAG(lord, "kv_cache") { ... }
       MEMLORD_SCOPE(lord, "decode") { ... }

   These are loops of one round: break and continue inside leave only the block, never a loop of
   yours around it. In C of other compilers than gcc and clang, break, return and goto skip the
   end. */
#if defined(__COUNTER__)
#define MLI_UNIQUE(prefix) MLI_JOIN(prefix, __COUNTER__)
#else
#define MLI_UNIQUE(prefix) MLI_JOIN(prefix, __LINE__)
#endif

MLI_INLINE void mli_leave(memlord_guard *guard) {
    if (guard->lord) memlord_guard_end(guard);
}

#if defined(__cplusplus)
namespace {
struct mli_leaver : memlord_guard {
    explicit mli_leaver(const memlord_guard &begun) : memlord_guard(begun) {}
    ~mli_leaver() { mli_leave(this); }
    mli_leaver(const mli_leaver &) = delete;
    mli_leaver &operator=(const mli_leaver &) = delete;
};
} // namespace
#define MLI_GUARD(name, begun) mli_leaver name(begun)
#define MLI_ROUND_END(name)
#elif defined(__GNUC__)
#define MLI_GUARD(name, begun) memlord_guard name __attribute__((cleanup(mli_leave))) = begun
#define MLI_ROUND_END(name)
#else
#define MLI_GUARD(name, begun) memlord_guard name = begun
#define MLI_ROUND_END(name) , mli_leave(&name)
#endif

/* In C, gcc lets a case label or a goto jump past a variable with a cleanup, which then reads what
   is no guard. It refuses a jump past a type of variable size. C++ and clang refuse the first. */
#if defined(__cplusplus) || defined(__clang__)
#define MLI_NO_JUMP(name)
#elif defined(__GNUC__)
#define MLI_NO_JUMP(name)                                                                     \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wvla\"")                \
    __attribute__((unused)) char(*name##_jump)[1 + !name.lord] = NULL;                        \
    _Pragma("GCC diagnostic pop")
#endif

#if defined(MEMLORD_DISABLE)
#define MLI_SCOPE_PLACE(text) NULL
#elif defined(__GNUC__)
#define MLI_SCOPE_PLACE(text)                                                                 \
    (__extension__({                                                                          \
        static const memlord_scope_site mli_here = {"" text, {__FILE__, __func__, __LINE__}}; \
        &mli_here;                                                                            \
    }))
#elif defined(__cplusplus)
#define MLI_SCOPE_PLACE(text)                                                                 \
    ([](const char *function) -> const memlord_scope_site * {                                 \
        static const memlord_scope_site here = {"" text, {__FILE__, function, __LINE__}};     \
        return &here;                                                                         \
    }(__func__))
#else
#define MLI_SCOPE_PLACE(text) NULL
#endif
#define MLI_SCOPE_GUARD(lord, text) memlord_guard_scope(lord, "" text, MLI_SCOPE_PLACE(text))

/* The last statement names the guard, so that C++ refuses it after a bare `if`, too. */
#if defined(MLI_NO_JUMP)
#define MLI_TO_END(name, begun)                                                               \
    MLI_GUARD(name, begun);                                                                   \
    MLI_NO_JUMP(name) MLI_CAST(void, name)
#define MLI_TO_END_OF(name, begun) MLI_TO_END(name, begun)
#define MEMLORD_TAGGED(lord, tag)                                                             \
    MLI_TO_END_OF(MLI_UNIQUE(mli_tagged_), memlord_guard_tag(lord, tag))
#define MEMLORD_SCOPED(lord, text)                                                            \
    MLI_TO_END_OF(MLI_UNIQUE(mli_scoped_), MLI_SCOPE_GUARD(lord, text))
#endif

#define MLI_ROUND(name, begun)                                                                \
    for (MLI_GUARD(name, begun), *name##_round = &name; name##_round;                         \
         name##_round = NULL MLI_ROUND_END(name))
#define MLI_ROUND_OF(name, begun) MLI_ROUND(name, begun)
#define MEMLORD_TAG(lord, tag) MLI_ROUND_OF(MLI_UNIQUE(mli_tag_), memlord_guard_tag(lord, tag))
#define MEMLORD_SCOPE(lord, text) MLI_ROUND_OF(MLI_UNIQUE(mli_scope_), MLI_SCOPE_GUARD(lord, text))

#if defined(MEMLORD_DISABLE) && defined(__GNUC__)
#pragma GCC diagnostic pop
#elif defined(MEMLORD_DISABLE) && defined(_MSC_VER)
#pragma warning(pop)
#endif

#endif /* MEMLORD_H */

/* ------------------------- stop here if you only want the API ---------------------------- */

#if defined(MLI_READ_PREFIX)

/* ---------------------------------------------------------------------- >>prefix --
   The names of all public functions. A new function needs a line here. */

#define MLI_PREFIXED(name) MLI_JOIN(MEMLORD_PREFIX, MLI_JOIN(_, name))
#define memlord_result_text MLI_PREFIXED(memlord_result_text)
#define memlord_create MLI_PREFIXED(memlord_create)
#define memlord_destroy MLI_PREFIXED(memlord_destroy)
#define memlord_global MLI_PREFIXED(memlord_global)
#define memlord_global_setup MLI_PREFIXED(memlord_global_setup)
#define memlord_logger_set MLI_PREFIXED(memlord_logger_set)
#define memlord_log_stderr MLI_PREFIXED(memlord_log_stderr)
#define memlord_verify MLI_PREFIXED(memlord_verify)
#define memlord_os_allocator MLI_PREFIXED(memlord_os_allocator)
#define memlord_device_parse MLI_PREFIXED(memlord_device_parse)
#define memlord_device_name MLI_PREFIXED(memlord_device_name)
#define memlord_device_label_set MLI_PREFIXED(memlord_device_label_set)
#define memlord_devices MLI_PREFIXED(memlord_devices)
#define memlord_alloc MLI_PREFIXED(memlord_alloc)
#define memlord_free MLI_PREFIXED(memlord_free)
#define memlord_realloc MLI_PREFIXED(memlord_realloc)
#define memlord_realloc_begin MLI_PREFIXED(memlord_realloc_begin)
#define memlord_realloc_end MLI_PREFIXED(memlord_realloc_end)
#define memlord_free_begin MLI_PREFIXED(memlord_free_begin)
#define memlord_free_end MLI_PREFIXED(memlord_free_end)
#define memlord_alloc_n MLI_PREFIXED(memlord_alloc_n)
#define memlord_free_n MLI_PREFIXED(memlord_free_n)
#define memlord_move MLI_PREFIXED(memlord_move)
#define memlord_copy MLI_PREFIXED(memlord_copy)
#define memlord_track MLI_PREFIXED(memlord_track)
#define memlord_retain MLI_PREFIXED(memlord_retain)
#define memlord_release MLI_PREFIXED(memlord_release)
#define memlord_track_n MLI_PREFIXED(memlord_track_n)
#define memlord_release_n MLI_PREFIXED(memlord_release_n)
#define memlord_arena_add MLI_PREFIXED(memlord_arena_add)
#define memlord_arena_sub MLI_PREFIXED(memlord_arena_sub)
#define memlord_sites_enable MLI_PREFIXED(memlord_sites_enable)
#define memlord_site_at MLI_PREFIXED(memlord_site_at)
#define memlord_site_address MLI_PREFIXED(memlord_site_address)
#define memlord_site_rename MLI_PREFIXED(memlord_site_rename)
#define memlord_sites_top MLI_PREFIXED(memlord_sites_top)
#define memlord_site_top_alloc MLI_PREFIXED(memlord_site_top_alloc)
#define memlord_site_top_free MLI_PREFIXED(memlord_site_top_free)
#define memlord_allocated MLI_PREFIXED(memlord_allocated)
#define memlord_freed MLI_PREFIXED(memlord_freed)
#define memlord_pending MLI_PREFIXED(memlord_pending)
#define memlord_peak MLI_PREFIXED(memlord_peak)
#define memlord_stats_get MLI_PREFIXED(memlord_stats_get)
#define memlord_hit_rate MLI_PREFIXED(memlord_hit_rate)
#define memlord_recovery_rate MLI_PREFIXED(memlord_recovery_rate)
#define memlord_success_rate MLI_PREFIXED(memlord_success_rate)
#define memlord_mean_bytes MLI_PREFIXED(memlord_mean_bytes)
#define memlord_reset MLI_PREFIXED(memlord_reset)
#define memlord_peak_reset MLI_PREFIXED(memlord_peak_reset)
#define memlord_format_bytes MLI_PREFIXED(memlord_format_bytes)
#define memlord_parse_bytes MLI_PREFIXED(memlord_parse_bytes)
#define memlord_summary MLI_PREFIXED(memlord_summary)
#define memlord_blocks_each MLI_PREFIXED(memlord_blocks_each)
#define memlord_blocks_top MLI_PREFIXED(memlord_blocks_top)
#define memlord_block_find MLI_PREFIXED(memlord_block_find)
#define memlord_block_containing MLI_PREFIXED(memlord_block_containing)
#define memlord_block_describe MLI_PREFIXED(memlord_block_describe)
#define memlord_block_retag MLI_PREFIXED(memlord_block_retag)
#define memlord_mark MLI_PREFIXED(memlord_mark)
#define memlord_leaks MLI_PREFIXED(memlord_leaks)
#define memlord_tag_begin MLI_PREFIXED(memlord_tag_begin)
#define memlord_tag_end MLI_PREFIXED(memlord_tag_end)
#define memlord_tag_current MLI_PREFIXED(memlord_tag_current)
#define memlord_tag_default_set MLI_PREFIXED(memlord_tag_default_set)
#define memlord_tag_get MLI_PREFIXED(memlord_tag_get)
#define memlord_expect MLI_PREFIXED(memlord_expect)
#define memlord_free_deferred MLI_PREFIXED(memlord_free_deferred)
#define memlord_block_use MLI_PREFIXED(memlord_block_use)
#define memlord_retire MLI_PREFIXED(memlord_retire)
#define memlord_capacity_source_set MLI_PREFIXED(memlord_capacity_source_set)
#define memlord_capacity_get MLI_PREFIXED(memlord_capacity_get)
#define memlord_capacity_sample MLI_PREFIXED(memlord_capacity_sample)
#define memlord_device_share MLI_PREFIXED(memlord_device_share)
#define memlord_poller_start MLI_PREFIXED(memlord_poller_start)
#define memlord_poller_stop MLI_PREFIXED(memlord_poller_stop)
#define memlord_limit_set MLI_PREFIXED(memlord_limit_set)
#define memlord_limit_set_fraction MLI_PREFIXED(memlord_limit_set_fraction)
#define memlord_headroom MLI_PREFIXED(memlord_headroom)
#define memlord_would_fit MLI_PREFIXED(memlord_would_fit)
#define memlord_plan_fit MLI_PREFIXED(memlord_plan_fit)
#define memlord_reserve MLI_PREFIXED(memlord_reserve)
#define memlord_reserve_commit MLI_PREFIXED(memlord_reserve_commit)
#define memlord_reserve_cancel MLI_PREFIXED(memlord_reserve_cancel)
#define memlord_reserve_adopt MLI_PREFIXED(memlord_reserve_adopt)
#define memlord_alloc_reserved MLI_PREFIXED(memlord_alloc_reserved)
#define memlord_account_open MLI_PREFIXED(memlord_account_open)
#define memlord_account_charge MLI_PREFIXED(memlord_account_charge)
#define memlord_account_use MLI_PREFIXED(memlord_account_use)
#define memlord_account_get MLI_PREFIXED(memlord_account_get)
#define memlord_account_close MLI_PREFIXED(memlord_account_close)
#define memlord_explain MLI_PREFIXED(memlord_explain)
#define memlord_strategy_set MLI_PREFIXED(memlord_strategy_set)
#define memlord_strategy_unset MLI_PREFIXED(memlord_strategy_unset)
#define memlord_strategy_check MLI_PREFIXED(memlord_strategy_check)
#define memlord_strategy_default MLI_PREFIXED(memlord_strategy_default)
#define memlord_gc_callback_add MLI_PREFIXED(memlord_gc_callback_add)
#define memlord_gc_callback_remove MLI_PREFIXED(memlord_gc_callback_remove)
#define memlord_gc_run MLI_PREFIXED(memlord_gc_run)
#define memlord_gc_poll MLI_PREFIXED(memlord_gc_poll)
#define memlord_retry_backoff MLI_PREFIXED(memlord_retry_backoff)
#define memlord_retry_check MLI_PREFIXED(memlord_retry_check)
#define memlord_alloc_retry MLI_PREFIXED(memlord_alloc_retry)
#define memlord_alloc_failed MLI_PREFIXED(memlord_alloc_failed)
#define memlord_pool_set MLI_PREFIXED(memlord_pool_set)
#define memlord_pool_add MLI_PREFIXED(memlord_pool_add)
#define memlord_pool_served MLI_PREFIXED(memlord_pool_served)
#define memlord_cached_ratio MLI_PREFIXED(memlord_cached_ratio)
#define memlord_fragmentation MLI_PREFIXED(memlord_fragmentation)
#define memlord_pressure_level MLI_PREFIXED(memlord_pressure_level)
#define memlord_scope_begin MLI_PREFIXED(memlord_scope_begin)
#define memlord_scope_enter MLI_PREFIXED(memlord_scope_enter)
#define memlord_scope_end MLI_PREFIXED(memlord_scope_end)
#define memlord_scope_shapes_set MLI_PREFIXED(memlord_scope_shapes_set)
#define memlord_scope_export MLI_PREFIXED(memlord_scope_export)
#define memlord_scope_adopt MLI_PREFIXED(memlord_scope_adopt)
#define memlord_scope_return MLI_PREFIXED(memlord_scope_return)
#define memlord_scope_get MLI_PREFIXED(memlord_scope_get)
#define memlord_scope_current MLI_PREFIXED(memlord_scope_current)
#define memlord_scope_device_time MLI_PREFIXED(memlord_scope_device_time)
#define memlord_guard_tag MLI_PREFIXED(memlord_guard_tag)
#define memlord_guard_scope MLI_PREFIXED(memlord_guard_scope)
#define memlord_guard_end MLI_PREFIXED(memlord_guard_end)
#define memlord_checkpoint MLI_PREFIXED(memlord_checkpoint)
#define memlord_snapshots_start MLI_PREFIXED(memlord_snapshots_start)
#define memlord_snapshots_stop MLI_PREFIXED(memlord_snapshots_stop)
#define memlord_events_start MLI_PREFIXED(memlord_events_start)
#define memlord_events_stop MLI_PREFIXED(memlord_events_stop)
#define memlord_events_each MLI_PREFIXED(memlord_events_each)
#define memlord_part_add MLI_PREFIXED(memlord_part_add)
#define memlord_part_remove MLI_PREFIXED(memlord_part_remove)
#define memlord_parts_each MLI_PREFIXED(memlord_parts_each)
#define memlord_save_at_exit MLI_PREFIXED(memlord_save_at_exit)
#define memlord_request_save MLI_PREFIXED(memlord_request_save)
#define memlord_format_for MLI_PREFIXED(memlord_format_for)
#define memlord_write MLI_PREFIXED(memlord_write)
#define memlord_save MLI_PREFIXED(memlord_save)
#define memlord_shim_malloc MLI_PREFIXED(memlord_shim_malloc)
#define memlord_shim_calloc MLI_PREFIXED(memlord_shim_calloc)
#define memlord_shim_realloc MLI_PREFIXED(memlord_shim_realloc)
#define memlord_shim_free MLI_PREFIXED(memlord_shim_free)
#define memlord_shim_mmap MLI_PREFIXED(memlord_shim_mmap)
#define memlord_shim_munmap MLI_PREFIXED(memlord_shim_munmap)

#endif /* MLI_READ_PREFIX */


/* --------------------------------------------------------------- >>implementation -- */
#if defined(MEMLORD_IMPLEMENTATION) && !defined(MEMLORD_DISABLE) && !defined(MLI_EMITTED) && \
    !defined(MLI_READ_PREFIX)
#define MLI_EMITTED

/* Words of the implementation. Each has one meaning.
     fast, general     path: for the usual case, for everything; >>record has both step by step
     key               the address or handle of a storage in the map
     shard             one of 1024 parts of the map; it is owned by a thread, or shared
     owned shard       one that its owner uses without locks; another thread makes it shared
     enter, leave      A thread enters a shard before it uses the table, and leaves it after.
     inside            between the two: no host code, no allocation, and only the innermost locks
     stop              to make all threads leave a shard; pause: to stop it and keep its lock
     probe             to look for a key; a probe also keeps the slot it found
     home              the bucket where a key belongs
     overflow          the count of entries that found a bucket full and went to a later one
     slot              room for one entry in a table
     entry             a block in the map: key, word1 (bytes, dev, references), word2 (rows, birth)
     side record       what an entry has no room for: description, fences, more references
     row               the totals of a device, of a site on a device, or of a tag on a device
     book              all rows of one of these three kinds
     cell              what one thread adds to one row; only that thread counts in it
     level, high, base of a cell: the bytes its thread allocated less those it freed, the highest
                       of that since published, the published part
     publish           to bring a row up to a cell's level; a cell may hold back up to a batch
     delta             what one call adds to the rows of a block
     cache             what a thread looked up by a pointer: rows, kept tags, scopes
     dev               the number of a device in this ledger, from 1; 0 is none
     phys              a physical device: one capacity and one limit for the devices at it
     special           a thread's mask: what its calls have to do besides; hooks: the ledger's bits
                       of it, which every thread gets
     alert             a ledger's mask, with a count in its upper bits: what the end of a call has
                       to look after
     print             one byte of a key's hash, in the header of its bucket; no tag of the host's
     frame             a scope that a thread is in; holders: tags and sites at a device's peak
     reserved          bytes that a ticket keeps for later allocs
     in flight         reserved bytes that a call is recording at this moment
     draw              the part of an alloc that comes off the tickets of its thread
     pending           freed by the host, but counted until its fences are done
     detach            to separate fences from a block that has ended
     generation        a number that changes when a record is used again: old handles miss
     epoch             the time from one reset to the next
     mark              the number that memlord_mark raises; birth: mark and scope of a block
     band check        to compare a device with its thresholds; near: every call checks
     rearm             after a collection a band waits until its metric has moved
     ring, sub-buffer  the event buffer, and the part of it that one thread writes
     scope run         one invocation of a scope; thread scope: one thread's totals of a scope
     orphan record     the thread record of calls that can have none of their own; locked
     cold call         a call under the process-wide cold lock; it allocates after it */

/* Knobs of this file; impossible values end here. */
#ifndef MEMLORD_ASSERT
#define MEMLORD_ASSERT(expression) ((void)(expression))
#endif
#ifndef MEMLORD_MAX_DEVICES
#define MEMLORD_MAX_DEVICES 128
#endif
#ifndef MEMLORD_MAX_SCOPES
#define MEMLORD_MAX_SCOPES 4096
#endif
#ifndef MEMLORD_MAX_STRINGS
#define MEMLORD_MAX_STRINGS (64u << 20)
#endif
#if MEMLORD_MAX_DEVICES < 1 || MEMLORD_MAX_DEVICES > 250
#error "MEMLORD_MAX_DEVICES is 1 to 250: a block has 8 bits for its device"
#endif
#if defined(INCLUDE_STB_DS_H)
#error "stb_ds.h came before memlord.h: put MEMLORD_IMPLEMENTATION in a file of its own"
#endif

/* --------------------------------------------------------------------- >>platform --
   Owns all code that differs between compilers and systems: pages, clocks, threads, files and
   the memory of the machine. Uses no other section. Each family defines the same functions for
   Windows and for POSIX. Requires, for all functions: out pointers are not NULL and
   sizes are not 0. Returns 0 for success unless a comment says otherwise. Locks: none. */

#if defined(_WIN32)
#define MLI_WINDOWS 1
#else
#define MLI_WINDOWS 0 /* else the system is POSIX */
#endif

#if defined(__GNUC__)
#define MLI_LIKELY(x) __builtin_expect(!!(x), 1)
#define MLI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define MLI_COLD __attribute__((noinline, cold))
#define MLI_NOINLINE __attribute__((noinline))
#define MLI_HOT inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define MLI_LIKELY(x) (x)
#define MLI_UNLIKELY(x) (x)
#define MLI_COLD __declspec(noinline)
#define MLI_NOINLINE __declspec(noinline)
#define MLI_HOT __forceinline
#else
#error "memlord.h knows gcc, clang and MSVC: add the macros above for this compiler"
#endif

#ifndef MEMLORD_THREAD_LOCAL
#if defined(__GNUC__)
#define MEMLORD_THREAD_LOCAL __thread
#else
#define MEMLORD_THREAD_LOCAL __declspec(thread)
#endif
#endif

/* Begins to load the cache line of an address that is about to be written. */
static MLI_HOT void mli_prefetch(const void *p) {
#if defined(__GNUC__)
    __builtin_prefetch(p, 1);
#else
    (void)p;
#endif
}

#if defined(MEMLORD_NO_THREADS)
#define MLI_THREADLESS 1
#else
#define MLI_THREADLESS 0
#endif

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#include <cpuid.h> /* for the invariant TSC bit */
#elif defined(_MSC_VER)
#include <intrin.h> /* atomics */
#endif
#if (defined(__x86_64__) && defined(__SSE2__)) || (defined(_M_X64) && !defined(_M_ARM64EC))
#include <emmintrin.h> /* for probes of the map */
#define MLI_SSE2 1
#else
#define MLI_SSE2 0
#endif
#if MLI_WINDOWS
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <stdlib.h>  /* malloc, for the shim */
#include <windows.h> /* pages, fibre-local storage, files */
#include <psapi.h>   /* the working set */
#else
#include <errno.h>    /* EINTR, EEXIST */
#include <fcntl.h>    /* open */
#include <pthread.h>  /* thread exit, fork handlers, signal mask */
#include <sched.h>    /* sched_yield */
#include <signal.h>   /* SIGXFSZ, SIGPIPE */
#include <stdio.h>    /* rename */
#include <stdlib.h>   /* getenv; malloc, for the shim */
#include <sys/mman.h> /* mmap */
#include <sys/stat.h> /* lstat */
#include <time.h>     /* clock_gettime */
#include <unistd.h>   /* write, fsync */
#if !defined(MAP_ANONYMOUS) || !defined(CLOCK_MONOTONIC)
#error "a strict C mode hides mmap: include memlord.h first, or compile with -D_DEFAULT_SOURCE"
#endif
#if defined(__linux__)
#include <sys/auxv.h>    /* getauxval */
#include <sys/syscall.h> /* gettid, membarrier, tgkill */
#elif defined(__APPLE__)
#include <dlfcn.h>      /* dladdr */
#include <mach/mach.h>  /* host_statistics64, task_info */
#include <sys/sysctl.h> /* hw.memsize */
#endif
#endif

typedef struct mli_symbol {
    const char *module;
    const char *name; /* NULL: unknown */
#if MLI_WINDOWS
    char path[3 * MAX_PATH + 1]; /* UTF-8 */
#endif
} mli_symbol;

typedef struct mli_job { /* must outlive the thread that runs it */
    void (*run)(void *);
    void *user;
} mli_job;

/* -- ticks: a time stamp at a third of the cost of a clock --
   Reads the counter of the processor. It serves as a stamp only where it counts at a constant
   rate in every power state. mli_ticks_steady returns 1 there; else stamps are clock times. */

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
static uint64_t mli_ticks(void) { return __builtin_ia32_rdtsc(); }
static int mli_ticks_steady(void) { /* "invariant TSC" in the manuals of Intel and AMD */
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d >> 8 & 1);
}
#elif defined(__GNUC__) && defined(__aarch64__)
static uint64_t mli_ticks(void) {
    uint64_t v;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
    return v;
}
static int mli_ticks_steady(void) { return 1; }
#else
static uint64_t mli_ticks(void) { return 0; }
static int mli_ticks_steady(void) { return 0; }
#endif

#if MLI_WINDOWS

static void *mli_pages_map(size_t size) {
    return VirtualAlloc(NULL, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}
static void mli_pages_unmap(void *ptr, size_t size) {
    (void)size;
    (void)VirtualFree(ptr, 0, MEM_RELEASE);
}
static uint64_t mli_now(void) {
    LARGE_INTEGER count, rate;
    (void)QueryPerformanceCounter(&count);
    (void)QueryPerformanceFrequency(&rate);
    return (uint64_t)(count.QuadPart / rate.QuadPart) * 1000000000u +
           (uint64_t)(count.QuadPart % rate.QuadPart) * 1000000000u / (uint64_t)rate.QuadPart;
}
static uint64_t mli_wall_now(void) { /* ns since 1970-01-01 UTC */
    FILETIME now;
    GetSystemTimeAsFileTime(&now); /* in units of 100 ns since 1601 */
    return ((((uint64_t)now.dwHighDateTime << 32) | now.dwLowDateTime) -
            UINT64_C(116444736000000000)) * 100;
}
static void mli_yield(void) { (void)SwitchToThread(); }
static void mli_nap(uint32_t ns) {
    (void)ns;
    Sleep(1); /* 1 ms is the shortest sleep */
}
static uint64_t mli_pid(void) { return GetCurrentProcessId(); }
/* Returns the number of the calling thread. It is not 0 and unique among living threads. */
static uint64_t mli_thread_number(void) { return GetCurrentThreadId(); }
static int mli_env_read(const char *name, char *buf, size_t cap) {
    DWORD n = GetEnvironmentVariableA(name, buf, (DWORD)cap);
    return n < cap ? n > 0 : -1;
}
static void mli_stderr_write(const char *text, size_t size) {
    DWORD done;
    HANDLE out = GetStdHandle(STD_ERROR_HANDLE);
    if (out && out != INVALID_HANDLE_VALUE) (void)WriteFile(out, text, (DWORD)size, &done, NULL);
}
/* Returns 1 if mli_barrier_all works. */
static uint32_t mli_barrier_register(void) { return 1; }
/* Makes every running thread of the process pass a full barrier. Returns 1, or 0: refused. */
static int mli_barrier_all(void) {
    FlushProcessWriteBuffers();
    return 1;
}

typedef HANDLE mli_file;
static int mli_wide_path(const char *path, wchar_t *out, int cap) {
    return MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out, cap) > 0 ? 0 : -1;
}
static int mli_file_is_special(const char *path) { /* 1: exists and is no regular file */
    wchar_t wide[1024];
    DWORD a;
    if (mli_wide_path(path, wide, 1024)) return 1;
    a = GetFileAttributesW(wide);
    return a != INVALID_FILE_ATTRIBUTES &&
           (a & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT | FILE_ATTRIBUTE_DEVICE));
}
static int mli_file_create(const char *path, mli_file *out) { /* 1: the file exists */
    wchar_t wide[1024];
    if (mli_wide_path(path, wide, 1024)) return -1;
    *out = CreateFileW(wide, GENERIC_WRITE, 0, NULL, CREATE_NEW, FILE_ATTRIBUTE_NORMAL, NULL);
    if (*out != INVALID_HANDLE_VALUE) return 0;
    return GetLastError() == ERROR_FILE_EXISTS ? 1 : -1;
}
static int mli_file_write(mli_file file, const char *data, size_t size) {
    DWORD done = 0;
    for (; size; data += done, size -= done) {
        DWORD piece = size > 1u << 20 ? 1u << 20 : (DWORD)size;
        if (!WriteFile(file, data, piece, &done, NULL) || !done) return -1;
    }
    return 0;
}
static mli_file mli_file_stdout(void) { return GetStdHandle(STD_OUTPUT_HANDLE); }
static int mli_file_is_terminal(mli_file file) {
    DWORD mode;
    return GetConsoleMode(file, &mode) != 0;
}
static int mli_file_close(mli_file file, int sync) {
    int bad = sync && !FlushFileBuffers(file);
    return !CloseHandle(file) || bad ? -1 : 0;
}
static int mli_file_rename(const char *from, const char *to, int replace) { /* 1: `to` exists */
    const DWORD flags = replace ? MOVEFILE_REPLACE_EXISTING : 0;
    wchar_t a[1024], b[1024];
    if (mli_wide_path(from, a, 1024) || mli_wide_path(to, b, 1024)) return -1;
    if (MoveFileExW(a, b, flags | MOVEFILE_WRITE_THROUGH)) return 0;
    return GetLastError() == ERROR_ALREADY_EXISTS || GetLastError() == ERROR_FILE_EXISTS ? 1 : -1;
}
static void mli_file_remove(const char *path) {
    wchar_t wide[1024];
    if (!mli_wide_path(path, wide, 1024)) (void)DeleteFileW(wide);
}
typedef int mli_signals;
static mli_signals mli_signals_block(void) { return 0; }
static void mli_signals_restore(mli_signals *held) { (void)held; }
/* A key whose value the system passes to `hook` when the thread ends. */
typedef DWORD mli_exit_key;
#define MLI_EXIT_CALL WINAPI /* the calling convention of the hook */
static int mli_exit_key_make(mli_exit_key *key, void(WINAPI *hook)(void *)) {
    *key = FlsAlloc(hook);
    return *key == FLS_OUT_OF_INDEXES ? -1 : 0;
}
static int mli_exit_key_set(mli_exit_key key, void *value) {
    return FlsSetValue(key, value) ? 0 : -1;
}

/* -- an event to wait for, and threads of the ledger -- */

typedef struct mli_os_event { HANDLE handle; } mli_os_event;
static int mli_os_event_open(mli_os_event *event) {
    event->handle = CreateEventA(NULL, FALSE, FALSE, NULL);
    return event->handle ? 0 : -1;
}
static void mli_os_event_close(mli_os_event *event) { (void)CloseHandle(event->handle); }
static void mli_os_event_set(mli_os_event *event) { (void)SetEvent(event->handle); }
static void mli_os_event_wait(mli_os_event *event, uint32_t ms) {
    (void)WaitForSingleObject(event->handle, ms);
}
typedef HANDLE mli_os_thread;
static DWORD WINAPI mli_os_thread_main(void *job) {
    ((mli_job *)job)->run(((mli_job *)job)->user);
    return 0;
}
static int mli_os_thread_start(mli_os_thread *out, mli_job *job) {
    *out = CreateThread(NULL, 0, mli_os_thread_main, job, 0, NULL);
    return *out ? 0 : -1;
}
static void mli_os_thread_join(mli_os_thread worker) {
    (void)WaitForSingleObject(worker, INFINITE);
    (void)CloseHandle(worker);
}

#else

/* Functions below that can run beside the host's malloc and free keep errno: free() does not
   change it either, and the host relies on that. */
static void *mli_pages_map(size_t size) {
    int saved = errno;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = saved;
    return p == MAP_FAILED ? NULL : p;
}
static void mli_pages_unmap(void *ptr, size_t size) { (void)munmap(ptr, size); }
static uint64_t mli_posix_time(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t)) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint64_t mli_now(void) { return mli_posix_time(CLOCK_MONOTONIC); }
static uint64_t mli_wall_now(void) { return mli_posix_time(CLOCK_REALTIME); } /* from 1970 */
static void mli_yield(void) { (void)sched_yield(); }
static uint64_t mli_pid(void) { return (uint64_t)getpid(); }
/* Returns the number of the calling thread. It is not 0 and unique among living threads. Linux
   uses the kernel's number. If a sandbox refuses it, and on other systems, it is pthread_self, an
   address. */
static uint64_t mli_thread_number(void) {
#if defined(__linux__)
    int saved = errno;
    long number = syscall(__NR_gettid);
    errno = saved;
    if (number > 0) return (uint64_t)number;
#endif
    return (uint64_t)(uintptr_t)pthread_self();
}
/* Reads an environment variable. Returns 1 if it is set and fits, -1 if it does not fit, 0 if it
   is unset or empty or the process is set-uid (its environment is not trusted). */
static int mli_env_read(const char *name, char *buf, size_t cap) {
    const char *value;
    size_t n;
#if defined(__linux__)
    if (getauxval(AT_SECURE)) return 0;
#else
    if (issetugid()) return 0;
#endif
    value = getenv(name);
    if (!value || !*value) return 0;
    n = strlen(value);
    if (n >= cap) return -1;
    memcpy(buf, value, n + 1);
    return 1;
}
/* Disables cancellation of the calling thread and returns the old state. pthread_cancel ends a
   thread at its next wait, read or write. Inside MemLord that would leave work half done, and
   other threads wait for that work. */
static MLI_COLD int mli_cancel_disable(void) {
    int before = 0;
#if defined(PTHREAD_CANCEL_DISABLE) /* Android has none */
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
#endif
    return before;
}
static void mli_cancel_restore(int before) {
#if defined(PTHREAD_CANCEL_DISABLE)
    (void)pthread_setcancelstate(before, NULL);
#else
    (void)before;
#endif
}
/* Sleeps for `ns`. Returns earlier after a signal, or if a sandbox refuses to sleep.
   Requires: ns < 10^9. */
static MLI_COLD void mli_nap(uint32_t ns) {
    int saved = errno, cancel = mli_cancel_disable();
    struct timespec span;
    span.tv_sec = 0;
    span.tv_nsec = (long)ns;
    (void)nanosleep(&span, NULL);
    mli_cancel_restore(cancel);
    errno = saved;
}
typedef int mli_file;
static int mli_file_write(mli_file file, const char *data, size_t size) {
    while (size) {
        ssize_t n = write(file, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return -1;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}
static mli_file mli_file_stdout(void) { return 1; }
static int mli_file_is_terminal(mli_file file) { return isatty(file); }
static void mli_stderr_write(const char *text, size_t size) {
    int saved = errno, cancel = mli_cancel_disable();
    (void)mli_file_write(2, text, size);
    mli_cancel_restore(cancel);
    errno = saved;
}
#if defined(__linux__) && defined(__NR_membarrier)
/* Calls membarrier; returns 1 if it succeeds. Commands are given by their numbers because older
   headers lack linux/membarrier.h: 8 is PRIVATE_EXPEDITED and 16 its registration, both since
   Linux 4.14. Command 8 may fail after 16 succeeded: in a sandbox that the process entered
   later, or if the kernel is short of memory. */
static MLI_COLD int mli_membarrier(int command) {
    int saved = errno, done = syscall(__NR_membarrier, command, 0, 0) == 0;
    errno = saved;
    return done;
}
static uint32_t mli_barrier_register(void) { return mli_membarrier(16) != 0; }
static int mli_barrier_all(void) { return mli_membarrier(8); }
#else
static uint32_t mli_barrier_register(void) { return 0; }
static int mli_barrier_all(void) { return 0; }
#endif

static int mli_file_is_special(const char *path) { /* 1: exists and is no regular file */
    struct stat st;
    if (!lstat(path, &st)) return !S_ISREG(st.st_mode);
    return errno != ENOENT && errno != EOVERFLOW; /* EOVERFLOW: a size or inode over 32 bits */
}
/* Moves a file to a descriptor above the standard streams. The host may have closed those, and
   its output must not go to this file. Returns -1 if no descriptor is left. */
static int mli_fd_above_std(int fd) {
    int higher;
    if (fd >= 3) return fd;
    higher = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    (void)close(fd);
    return higher;
}
static int mli_file_create(const char *path, mli_file *out) { /* 1: the file exists */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return errno == EEXIST ? 1 : -1;
    *out = mli_fd_above_std(fd);
    if (*out >= 0) return 0;
    (void)unlink(path);
    return -1;
}
static int mli_file_close(mli_file file, int sync) {
    int bad = sync && fsync(file);
    return close(file) || bad ? -1 : 0;
}
/* Renames a file; without `replace` returns 1 if `to` exists. */
static int mli_file_rename(const char *from, const char *to, int replace) {
    if (replace) return rename(from, to);
    if (!link(from, to)) return unlink(from) ? -1 : 0;
    if (errno == EEXIST || !access(to, F_OK)) return 1;
    return rename(from, to); /* the file system has no hard links: a small race remains */
}
static void mli_file_remove(const char *path) { (void)unlink(path); }

/* Protects the writing of a file. A write past the file size limit raises SIGXFSZ, and one to a
   pipe without a reader SIGPIPE; both kill the process by default. They are blocked meanwhile, and
   consumed if the write caused them. Cancellation is disabled, too: a cancelled thread would leave
   the file half written. */
typedef struct mli_signals {
    sigset_t before, pending; /* a signal that the host had pending is not consumed */
    int cancel;
} mli_signals;
static const int mli_write_signals[] = {SIGXFSZ, SIGPIPE};
static mli_signals mli_signals_block(void) {
    mli_signals held;
    sigset_t set;
    size_t i;
    held.cancel = mli_cancel_disable();
    (void)sigpending(&held.pending);
    (void)sigemptyset(&set);
    for (i = 0; i < 2; i++) (void)sigaddset(&set, mli_write_signals[i]);
    (void)pthread_sigmask(SIG_BLOCK, &set, &held.before);
    return held;
}
static void mli_signals_restore(mli_signals *held) {
    sigset_t set;
    size_t i;
    int number;
    for (i = 0; i < 2; i++) {
        (void)sigpending(&set);
        if (sigismember(&held->pending, mli_write_signals[i]) == 1 ||
            sigismember(&set, mli_write_signals[i]) != 1)
            continue;
        (void)sigemptyset(&set);
        (void)sigaddset(&set, mli_write_signals[i]);
        (void)sigwait(&set, &number);
    }
    (void)pthread_sigmask(SIG_SETMASK, &held->before, NULL);
    mli_cancel_restore(held->cancel);
}
typedef pthread_key_t mli_exit_key;
#define MLI_EXIT_CALL
static int mli_exit_key_make(mli_exit_key *key, void (*hook)(void *)) {
    return pthread_key_create(key, hook);
}
static int mli_exit_key_set(mli_exit_key key, void *value) {
    return pthread_setspecific(key, value);
}

/* -- an event to wait for, and threads of the ledger -- */

typedef struct mli_os_event {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int set;
} mli_os_event;
static MLI_COLD int mli_os_event_open(mli_os_event *event) {
    pthread_condattr_t attr;
    int bad;
    if (pthread_condattr_init(&attr)) return -1;
#if defined(__APPLE__)
    bad = 0; /* Apple waits for a relative time and needs no clock */
#else
    bad = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
#endif
    event->set = 0;
    bad = bad || pthread_mutex_init(&event->mutex, NULL);
    if (!bad && pthread_cond_init(&event->cond, &attr)) {
        (void)pthread_mutex_destroy(&event->mutex);
        bad = 1;
    }
    (void)pthread_condattr_destroy(&attr);
    return bad ? -1 : 0;
}
static void mli_os_event_close(mli_os_event *event) {
    (void)pthread_cond_destroy(&event->cond);
    (void)pthread_mutex_destroy(&event->mutex);
}
static MLI_COLD void mli_os_event_set(mli_os_event *event) {
    (void)pthread_mutex_lock(&event->mutex);
    event->set = 1;
    (void)pthread_cond_signal(&event->cond);
    (void)pthread_mutex_unlock(&event->mutex);
}
/* Waits until the event is set or `ms` have passed, and resets the event. */
static MLI_COLD void mli_os_event_wait(mli_os_event *event, uint32_t ms) {
    struct timespec until;
    uint64_t ns = (uint64_t)ms * 1000000u;
    int late = 0, cancel = mli_cancel_disable();
#if !defined(__APPLE__)
    ns += mli_now();
#endif
    until.tv_sec = (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    (void)pthread_mutex_lock(&event->mutex);
    while (!event->set && !late) {
#if defined(__APPLE__)
        late = pthread_cond_timedwait_relative_np(&event->cond, &event->mutex, &until);
#else
        late = pthread_cond_timedwait(&event->cond, &event->mutex, &until);
#endif
    }
    event->set = 0;
    (void)pthread_mutex_unlock(&event->mutex);
    mli_cancel_restore(cancel);
}

typedef pthread_t mli_os_thread;
static void *mli_os_thread_main(void *job) {
    (void)mli_cancel_disable(); /* callbacks of the host run here and could cancel it */
    ((mli_job *)job)->run(((mli_job *)job)->user);
    return NULL;
}
/* Starts a thread with all signals blocked: signal handlers of the host must not run on it. */
static int mli_os_thread_start(mli_os_thread *out, mli_job *job) {
    sigset_t every, before;
    int bad;
    (void)sigfillset(&every);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before);
    bad = pthread_create(out, NULL, mli_os_thread_main, job);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return bad ? -1 : 0;
}
static void mli_os_thread_join(mli_os_thread worker) {
    int cancel = mli_cancel_disable();
    (void)pthread_join(worker, NULL);
    mli_cancel_restore(cancel);
}

#endif

/* Returns 1 if no thread of the process has this number; 0 if one has, or if it is unknown. Only
   Linux is asked. Elsewhere the number of a thread that ended without its exit hook counts as in
   use until another thread gets it. */
static MLI_COLD int mli_thread_has_ended(uint64_t number) {
#if defined(__linux__)
    int saved = errno, gone;
    if (number >> 31) return 0; /* a pthread_self, not a number of the kernel */
    gone = syscall(__NR_tgkill, (long)getpid(), (long)number, 0L) == -1 && errno == ESRCH;
    errno = saved;
    return gone;
#else
    (void)number;
    return 0;
#endif
}

#if defined(__linux__)
/* Declares dladdr without dlfcn.h. The header declares it only under _GNU_SOURCE, which a host
   that compiles as C99 does not define. The symbol is weak: before glibc 2.34 it is in libdl,
   which the program may not link. */
typedef struct mli_dl_info {
    const char *file;
    void *base;
    const char *name;
    void *address;
} mli_dl_info;
#ifdef __cplusplus
extern "C"
#endif
    int mli_dladdr(const void *address, mli_dl_info *out)
        __asm__("dladdr") __attribute__((weak));
static int mli_symbol_at(const void *address, mli_symbol *out) {
    mli_dl_info info;
    if (!mli_dladdr || !mli_dladdr(address, &info) || !info.file) return -1;
    out->module = info.file;
    out->name = info.name;
    return 0;
}

/* Declares _dl_find_object of glibc 2.35 and later, which takes no lock. */
typedef struct mli_dl_found {
    unsigned long long flags;
    void *start;
    void *rest[16]; /* more than the system writes */
} mli_dl_found;
#ifdef __cplusplus
extern "C"
#endif
    int mli_dl_find_object(void *address, mli_dl_found *out)
        __asm__("_dl_find_object") __attribute__((weak));

/* Returns the start of the module that an address is in; NULL: in none, or it is not known.
   Recording calls ask this under locks of the host, so it must not wait for dlopen, which runs
   constructors of the host: dladdr of glibc does, that of musl does not. */
static MLI_COLD const void *mli_module_of(const void *address) {
    mli_dl_found found;
    if (mli_dl_find_object)
        return mli_dl_find_object((void *)(uintptr_t)address, &found) ? NULL : found.start;
#if !defined(__GLIBC__)
    {
        mli_dl_info info;
        if (mli_dladdr && mli_dladdr(address, &info)) return info.base;
    }
#endif
    return NULL;
}
#elif defined(__APPLE__)
static int mli_symbol_at(const void *address, mli_symbol *out) {
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname) return -1;
    out->module = info.dli_fname;
    out->name = info.dli_sname;
    return 0;
}
static MLI_COLD const void *mli_module_of(const void *address) {
    Dl_info info;
    return dladdr(address, &info) ? info.dli_fbase : NULL;
}
#elif MLI_WINDOWS
/* Finds the module only. Windows keeps function names in separate files that need dbghelp. */
static int mli_symbol_at(const void *address, mli_symbol *out) {
    wchar_t wide[MAX_PATH];
    HMODULE module;
    DWORD n;
    if (!GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                                GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                            (const wchar_t *)address, &module))
        return -1;
    n = GetModuleFileNameW(module, wide, MAX_PATH);
    if (!n || n >= MAX_PATH) return -1; /* no path, or a longer one */
    n = (DWORD)WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, out->path, sizeof out->path - 1, NULL,
                                   NULL);
    out->path[n] = 0;
    out->module = out->path;
    out->name = NULL;
    return n ? 0 : -1;
}
static MLI_COLD const void *mli_module_of(const void *address) {
    MEMORY_BASIC_INFORMATION info;
    if (!VirtualQuery(address, &info, sizeof info)) return NULL;
    return info.Type == MEM_IMAGE ? info.AllocationBase : NULL;
}
#else
static int mli_symbol_at(const void *address, mli_symbol *out) {
    (void)address;
    (void)out;
    return -1;
}
static MLI_COLD const void *mli_module_of(const void *address) {
    (void)address;
    return NULL;
}
#endif

/* -- the memory that the machine has for this process --
   mli_cpu_sample is the capacity source of the cpu device. It returns 0 if the numbers are known.
   Requires: one caller at a time. It uses no malloc, no stdio and little stack, and keeps errno.
   An mli_cpu of zeros is valid; only `root` is set from outside. A doubtful number counts as
   unknown, because a wrong number is worse than none. */

#if defined(__linux__)

typedef struct mli_cpu {
    const char *root; /* a prefix of every path, for tests; NULL: none */
    int v1;           /* 1: cgroup version 1; 0: version 2 */
    char path[1024];  /* of the file being read */
    char text[8192];  /* its text; too large for the 16 KiB stacks that some hosts use */
} mli_cpu;

/* Writes `more` to cpu->path at byte `end`. Returns the new length. Once a path is too long, it is
   sizeof cpu->path, whatever else is added. */
static size_t mli_cpu_path(mli_cpu *cpu, size_t end, const char *more) {
    size_t n = strlen(more);
    if (n >= sizeof cpu->path - end) return sizeof cpu->path;
    memcpy(cpu->path + end, more, n + 1);
    return end + n;
}

/* Reads the file `name` into cpu->text as a string. Its directory is the first `end` bytes of
   cpu->path. Returns 0; -1: unknown. A missing file reads as "max": a missing limit is none. */
static MLI_COLD int mli_cpu_read(mli_cpu *cpu, size_t end, const char *name) {
    size_t n = 0;
    ssize_t got = 1;
    int fd;
    if (mli_cpu_path(cpu, end, name) == sizeof cpu->path) return -1;
    fd = open(cpu->path, O_RDONLY | O_CLOEXEC);
    memcpy(cpu->text, "max", sizeof "max");
    if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
    while (got && n < sizeof cpu->text) {
        got = read(fd, cpu->text + n, sizeof cpu->text - n);
        if (got < 0 && errno != EINTR) break;
        if (got > 0) n += (size_t)got;
    }
    (void)close(fd);
    if (got) return -1; /* the read failed, or the file is too long */
    cpu->text[n] = 0;
    return 0;
}

/* Parses a number, and after it `unit` ("" or " kB") and the end of the line. Returns 0; -1:
   malformed, or over 64 bits. */
static int mli_cpu_number(const char *at, const char *unit, uint64_t *out) {
    char *end;
    if (*at < '0' || *at > '9') return -1; /* strtoull takes blanks and signs, too */
    errno = 0;
    *out = strtoull(at, &end, 10);
    if (errno || strncmp(end, unit, strlen(unit))) return -1;
    end += strlen(unit);
    if (*unit) {
        if (*out > UINT64_MAX >> 10) return -1;
        *out <<= 10;
    }
    return *end == '\n' || !*end ? 0 : -1;
}

/* Parses the number in the line of cpu->text that begins with `name`; leaves *out if there is no
   such line. Returns 0; -1: malformed. */
static int mli_cpu_field(const mli_cpu *cpu, const char *name, const char *unit, uint64_t *out) {
    size_t n = strlen(name);
    const char *p = cpu->text;
    while (strncmp(p, name, n) || (p[n] != ' ' && p[n] != '\t')) {
        p = strchr(p, '\n');
        if (!p) return 0;
        p++;
    }
    return mli_cpu_number(p + n + strspn(p + n, " \t"), unit, out);
}

/* Reads a file that holds one number, or "max": UINT64_MAX. Returns 0; -1: unknown. */
static int mli_cpu_value(mli_cpu *cpu, size_t end, const char *name, uint64_t *out) {
    const char *p = cpu->text;
    if (mli_cpu_read(cpu, end, name)) return -1;
    *out = UINT64_MAX;
    if (strncmp(p, "max", 3)) return mli_cpu_number(p, "", out);
    return p[3] == '\n' || !p[3] ? 0 : -1;
}

/* Returns the path of the memory cgroup of this process, or NULL. `text` is /proc/self/cgroup,
   with lines number:controllers:path; the path is cut out in place. The memory controller belongs
   to one version at a time. If no line names it, it is in version 2: the line without
   controllers. */
static char *mli_cpu_parse_cgroup(char *text, int *v1) {
    char *found = NULL, *line, *next;
    *v1 = 0;
    for (line = text; line && !*v1; line = next) {
        char *names = strchr(line, ':'), *path, *word;
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        path = strstr(line, ":/");
        if (!path) continue;
        *names = *path = ','; /* so that a comma is on both sides of each controller */
        word = strstr(names, ",memory,");
        *v1 = word && word < path;
        if (*v1 || path == names + 1) found = path + 1;
    }
    return found;
}

/* Reads the bytes in use in the cgroup in a directory. Page cache, active or inactive, does not
   count: the kernel drops it before it refuses memory, and MemAvailable counts it as available,
   too. (Kubernetes subtracts only the inactive part.) shmem and locked pages are on other lists
   and count as used, as does cache that the file does not list. */
static int mli_cpu_usage(mli_cpu *cpu, size_t end, uint64_t *used) {
    static const char *const caches[2][2] = {{"inactive_file", "active_file"},
                                             {"total_inactive_file", "total_active_file"}};
    int i;
    if (mli_cpu_value(cpu, end, cpu->v1 ? "/memory.usage_in_bytes" : "/memory.current", used) ||
        *used == UINT64_MAX || mli_cpu_read(cpu, end, "/memory.stat"))
        return -1;
    for (i = 0; i < 2; i++) {
        uint64_t cache = 0;
        if (mli_cpu_field(cpu, caches[cpu->v1][i], "", &cache)) return -1;
        *used -= cache < *used ? cache : *used;
    }
    return 0;
}

/* Applies the limit of the cgroup in a directory: lowers *total to the limit, and *left to the
   bytes that the limit leaves. A cgroup without a limit has nothing to apply: the root, or one
   where the controller is off. Above memory.high the kernel slows the processes down. Version 1 has
   no such file. Returns 0; -1: unknown. */
static int mli_cpu_level(mli_cpu *cpu, size_t end, uint64_t machine, uint64_t *total,
                         uint64_t *left) {
    uint64_t limit, high, used;
    if (mli_cpu_value(cpu, end, cpu->v1 ? "/memory.limit_in_bytes" : "/memory.max", &limit) ||
        mli_cpu_value(cpu, end, "/memory.high", &high))
        return -1;
    if (high < limit) limit = high;
    if (!limit) return -1;
    if (limit > machine) return 0;
    if (mli_cpu_usage(cpu, end, &used)) return -1;
    if (used > limit) used = limit;
    if (limit < *total) *total = limit;
    if (limit - used < *left) *left = limit - used;
    return 0;
}

/* Returns the memory of the process in *total and *left, from the machine, the cgroup of the
   process and all cgroups above it. *total is the lowest limit; *left is the least that any of
   them leaves. `root` is the length of the root in cpu->path. Returns 0; -1: unknown. */
static int mli_cpu_query(mli_cpu *cpu, size_t root, uint64_t *total, uint64_t *left) {
    uint64_t machine = 0;
    size_t top, end;
    const char *p;
    *left = UINT64_MAX;
    if (mli_cpu_read(cpu, root, "/proc/meminfo") ||
        mli_cpu_field(cpu, "MemTotal:", " kB", &machine) || !machine ||
        mli_cpu_field(cpu, "MemAvailable:", " kB", left) || *left > machine ||
        mli_cpu_read(cpu, root, "/proc/self/cgroup"))
        return -1;
    *total = machine;
    p = mli_cpu_parse_cgroup(cpu->text, &cpu->v1);
    if (!p) return 0; /* the kernel has no cgroups */
    top = mli_cpu_path(cpu, root, cpu->v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup");
    end = mli_cpu_path(cpu, top, p[1] ? p : "");
    while (!mli_cpu_level(cpu, end, machine, total, left)) {
        if (end == top) return 0;
        while (end > top && cpu->path[--end] != '/') {}
    }
    return -1;
}

static MLI_COLD int mli_cpu_sample(mli_cpu *cpu, uint64_t *total, uint64_t *used,
                                   uint64_t *process) {
    int saved = errno, cancel = mli_cancel_disable();
    size_t root = mli_cpu_path(cpu, 0, cpu->root ? cpu->root : "");
    uint64_t all, left;
    int r = mli_cpu_query(cpu, root, &all, &left);
    if (!r) {
        *total = all;
        *used = all - left;
        *process = 0;
        if (mli_cpu_read(cpu, root, "/proc/self/status") ||
            mli_cpu_field(cpu, "VmRSS:", " kB", process))
            *process = 0; /* unknown */
    }
    mli_cancel_restore(cancel);
    errno = saved;
    return r;
}

#else

typedef struct mli_cpu {
    const char *root; /* has no effect on this system */
} mli_cpu;

#if MLI_WINDOWS
/* Declared here, as its name in the header depends on the SDK and its settings. */
#ifdef __cplusplus
extern "C"
#endif
    BOOL WINAPI K32GetProcessMemoryInfo(HANDLE, PROCESS_MEMORY_COUNTERS *, DWORD);
static int mli_cpu_sample(mli_cpu *cpu, uint64_t *total, uint64_t *used, uint64_t *process) {
    MEMORYSTATUSEX machine;
    PROCESS_MEMORY_COUNTERS self;
    (void)cpu;
    machine.dwLength = sizeof machine;
    if (!GlobalMemoryStatusEx(&machine) || machine.ullAvailPhys > machine.ullTotalPhys) return -1;
    *total = machine.ullTotalPhys;
    *used = machine.ullTotalPhys - machine.ullAvailPhys;
    *process = 0;
    if (K32GetProcessMemoryInfo(GetCurrentProcess(), &self, sizeof self))
        *process = self.WorkingSetSize;
    return 0;
}
#elif defined(__APPLE__)
/* Counts pages that cannot be dropped as used: anonymous, wired and compressed pages, as Activity
   Monitor does. Free and file-backed pages count as left. */
static int mli_cpu_sample(mli_cpu *cpu, uint64_t *total, uint64_t *used, uint64_t *process) {
    mach_port_t host = mach_host_self();
    vm_statistics64_data_t vm;
    mach_task_basic_info_data_t self;
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    uint64_t machine = 0, pages;
    size_t size = sizeof machine;
    kern_return_t r = host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&vm, &n);
    (void)cpu;
    (void)mach_port_deallocate(mach_task_self(), host);
    if (r != KERN_SUCCESS) return -1;
    if (sysctlbyname("hw.memsize", &machine, &size, NULL, 0) || !machine) return -1;
    pages = (uint64_t)vm.internal_page_count + vm.wire_count + vm.compressor_page_count;
    pages = pages > vm.purgeable_count ? pages - vm.purgeable_count : 0;
    *total = machine;
    *used = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    if (*used > machine) *used = machine;
    n = MACH_TASK_BASIC_INFO_COUNT;
    r = task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&self, &n);
    *process = r == KERN_SUCCESS ? self.resident_size : 0;
    return 0;
}
#else /* no portable call returns free memory; the host can set a capacity source */
static int mli_cpu_sample(mli_cpu *cpu, uint64_t *total, uint64_t *used, uint64_t *process) {
    (void)cpu;
    (void)total;
    (void)used;
    (void)process;
    return -1;
}
#endif
#endif

/* ---------------------------------------------------------------------- >>atomics --
   Owns the words that threads share, the locks and the lock order. Uses >>platform.
   A word is a struct, so that a plain access does not compile. The name of a load or store ends
   in its memory order. No suffix means relaxed: other threads read the value and conclude nothing
   else from it. Read-modify-writes (exchange, add, or, bits, cas) are sequentially consistent.
   Layout and code are the same in C and C++. i386 aligns a uint64_t to 4 bytes; one across two
   cache lines would be read in halves, so mli_u64 is aligned to 8. Locks: see MLI_RANK_... */

#if defined(__GNUC__)
#define MLI_ALIGNED8 __attribute__((aligned(8)))
#else
#define MLI_ALIGNED8
#endif
typedef struct mli_u32 { uint32_t v; } mli_u32;
typedef struct MLI_ALIGNED8 mli_u64 { uint64_t v; } mli_u64;
typedef struct mli_ptr { void *v; } mli_ptr;

#if defined(__GNUC__) /* the bodies of the loads and stores */
#define MLI_LOAD(type, order) { return __atomic_load_n(&w->v, __ATOMIC_##order); }
#define MLI_STORE(type, order) { __atomic_store_n(&w->v, v, __ATOMIC_##order); }
#else
/* MSVC: a volatile access of an aligned word is one access. Acquire and release need __dmb on
   ARM64. On x86 the processor keeps that order, so a barrier for the compiler is enough. Seq_cst
   loads follow an exchange in program order. It is a full barrier here, so they need no more. */
#if defined(_M_ARM64)
#define MLI_FENCE __dmb(_ARM64_BARRIER_ISH)
#else
#define MLI_FENCE _ReadWriteBarrier()
#endif
#define MLI_LOAD(type, order) { type v = *(type const volatile *)&w->v; MLI_FENCE; return v; }
#define MLI_STORE(type, order) { MLI_FENCE; *(type volatile *)&w->v = v; }
#endif
#define MLI_ATOMIC(kind, type)                                                                   \
    static MLI_HOT type mli_##kind##_load(const mli_##kind *w) MLI_LOAD(type, RELAXED)           \
    static MLI_HOT type mli_##kind##_load_acquire(const mli_##kind *w) MLI_LOAD(type, ACQUIRE)   \
    static MLI_HOT void mli_##kind##_store(mli_##kind *w, type v) MLI_STORE(type, RELAXED)       \
    static MLI_HOT void mli_##kind##_store_release(mli_##kind *w, type v) MLI_STORE(type, RELEASE)
MLI_ATOMIC(u32, uint32_t)
MLI_ATOMIC(ptr, void *)
static MLI_HOT uint32_t mli_u32_load_seqcst(const mli_u32 *w) MLI_LOAD(uint32_t, SEQ_CST)
static MLI_HOT void *mli_ptr_load_seqcst(const mli_ptr *w) MLI_LOAD(void *, SEQ_CST)
#if defined(_MSC_VER) || defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_8)
MLI_ATOMIC(u64, uint64_t)
#else
#define MLI_U64_LOCKS 16 /* locks guard the words: see mli_u64_lock */
#endif

#if defined(__GNUC__)
static MLI_HOT void *mli_ptr_exchange(mli_ptr *w, void *v) {
    return __atomic_exchange_n(&w->v, v, __ATOMIC_SEQ_CST);
}
static MLI_HOT uint32_t mli_u32_exchange(mli_u32 *w, uint32_t v) {
    return __atomic_exchange_n(&w->v, v, __ATOMIC_SEQ_CST);
}
static MLI_HOT uint32_t mli_u32_add(mli_u32 *w, uint32_t v) {
    return __atomic_fetch_add(&w->v, v, __ATOMIC_SEQ_CST);
}
static MLI_HOT int mli_u32_cas(mli_u32 *w, uint32_t *expected, uint32_t v) {
    return __atomic_compare_exchange_n(&w->v, expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}
#if !defined(MLI_U64_LOCKS)
static MLI_HOT uint64_t mli_u64_or(mli_u64 *w, uint64_t v) {
    return __atomic_fetch_or(&w->v, v, __ATOMIC_SEQ_CST);
}
static MLI_HOT uint64_t mli_u64_add(mli_u64 *w, uint64_t v) {
    return __atomic_fetch_add(&w->v, v, __ATOMIC_SEQ_CST);
}
static MLI_HOT int mli_u64_cas(mli_u64 *w, uint64_t *expected, uint64_t v) {
    return __atomic_compare_exchange_n(&w->v, expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}
#else
/* For processors without 64-bit atomics (32-bit PowerPC and MIPS, i486): a lock guards each word.
   libatomic's locks are no replacement: one that another thread holds at a fork stays locked in
   the child. The lock's exchange pairs with the release store that drops it. */
static mli_u32 mli_u64_locks[MLI_U64_LOCKS]; /* chosen by the address of the word */
static mli_u32 *mli_u64_lock(const mli_u64 *w) {
    mli_u32 *lock = &mli_u64_locks[(uintptr_t)w / 8 % MLI_U64_LOCKS];
    while (mli_u32_exchange(lock, 1)) mli_yield();
    return lock;
}
/* Clears all bits but `keep`, then adds v. Returns the value before. */
static uint64_t mli_u64_change(mli_u64 *w, uint64_t keep, uint64_t v) {
    mli_u32 *lock = mli_u64_lock(w);
    uint64_t before = w->v;
    w->v = (before & keep) + v;
    mli_u32_store_release(lock, 0);
    return before;
}
static uint64_t mli_u64_add(mli_u64 *w, uint64_t v) { return mli_u64_change(w, UINT64_MAX, v); }
static uint64_t mli_u64_or(mli_u64 *w, uint64_t v) { return mli_u64_change(w, ~v, v); }
static void mli_u64_store(mli_u64 *w, uint64_t v) { (void)mli_u64_change(w, 0, v); }
static void mli_u64_store_release(mli_u64 *w, uint64_t v) { mli_u64_store(w, v); }
static uint64_t mli_u64_load(const mli_u64 *w) { return mli_u64_add((mli_u64 *)(uintptr_t)w, 0); }
static uint64_t mli_u64_load_acquire(const mli_u64 *w) { return mli_u64_load(w); }
static int mli_u64_cas(mli_u64 *w, uint64_t *expected, uint64_t v) {
    mli_u32 *lock = mli_u64_lock(w);
    uint64_t seen = w->v;
    int same = seen == *expected;
    if (same) w->v = v;
    mli_u32_store_release(lock, 0);
    *expected = seen;
    return same;
}
#endif
static MLI_HOT void mli_compiler_barrier(void) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
static MLI_HOT void mli_cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
#else
static MLI_HOT void *mli_ptr_exchange(mli_ptr *w, void *v) {
    return InterlockedExchangePointer(&w->v, v);
}
static MLI_HOT uint32_t mli_u32_exchange(mli_u32 *w, uint32_t v) {
    return (uint32_t)InterlockedExchange((long volatile *)&w->v, (long)v);
}
static MLI_HOT uint64_t mli_u64_or(mli_u64 *w, uint64_t v) {
    return (uint64_t)InterlockedOr64((__int64 volatile *)&w->v, (__int64)v);
}
static MLI_HOT uint64_t mli_u64_add(mli_u64 *w, uint64_t v) {
    return (uint64_t)InterlockedExchangeAdd64((__int64 volatile *)&w->v, (__int64)v);
}
static MLI_HOT uint32_t mli_u32_add(mli_u32 *w, uint32_t v) {
    return (uint32_t)InterlockedExchangeAdd((long volatile *)&w->v, (long)v);
}
static MLI_HOT int mli_u32_cas(mli_u32 *w, uint32_t *expected, uint32_t v) {
    const uint32_t wanted = *expected;
    *expected = (uint32_t)InterlockedCompareExchange((long volatile *)&w->v, (long)v, (long)wanted);
    return *expected == wanted;
}
static MLI_HOT int mli_u64_cas(mli_u64 *w, uint64_t *expected, uint64_t v) {
    const uint64_t wanted = *expected;
    *expected = (uint64_t)InterlockedCompareExchange64((__int64 volatile *)&w->v, (__int64)v,
                                                       (__int64)wanted);
    return *expected == wanted;
}
static MLI_HOT void mli_compiler_barrier(void) { _ReadWriteBarrier(); }
static MLI_HOT void mli_cpu_pause(void) { YieldProcessor(); }
#endif

/* Loads a word that only the calling thread writes. The access is plain: compilers fold it into
   an operand, which they do not do with an atomic load. */
static MLI_HOT uint64_t mli_u64_load_own(const mli_u64 *w) { return w->v; }
static MLI_HOT void *mli_ptr_load_own(const mli_ptr *w) { return w->v; }

/* Adds to a word with a load and a store. Requires: the caller is the only writer, as its owner
   or by holding its lock. Other threads may read the word. */
static MLI_HOT void mli_u64_add_own(mli_u64 *w, uint64_t v) {
    mli_u64_store(w, mli_u64_load(w) + v);
}
static MLI_HOT void mli_u32_add_own(mli_u32 *w, uint32_t v) {
    mli_u32_store(w, mli_u32_load(w) + v);
}
/* Copies n words of an object to words that other threads read, each by a release: a reader that
   sees one of them also sees what the caller stored before. Pairs with mli_words_load. */
static MLI_HOT void mli_words_store(mli_u64 *to, const void *from, size_t n) {
    uint64_t word;
    size_t i;
    for (i = 0; i < n; i++) {
        memcpy(&word, (const char *)from + i * sizeof word, sizeof word);
        mli_u64_store_release(&to[i], word);
    }
}
/* Copies n words to an object, each by an acquire. */
static MLI_HOT void mli_words_load(void *to, const mli_u64 *from, size_t n) {
    uint64_t word;
    size_t i;
    for (i = 0; i < n; i++) {
        word = mli_u64_load_acquire(&from[i]);
        memcpy((char *)to + i * sizeof word, &word, sizeof word);
    }
}
/* Sets or clears bits of a word. Returns 1 if that changes the word. */
static int mli_u32_bits(mli_u32 *w, uint32_t bits, int on) {
    uint32_t seen = mli_u32_load(w);
    do {
        if ((seen & bits) == (on ? bits : 0)) return 0;
    } while (!mli_u32_cas(w, &seen, on ? seen | bits : seen & ~bits));
    return 1;
}
/* Raises a shared word to at least v; both are compared as signed. */
static void mli_u64_max(mli_u64 *w, int64_t v) {
    uint64_t seen = mli_u64_load(w);
    while (v > (int64_t)seen && !mli_u64_cas(w, &seen, (uint64_t)v)) {}
}

/* The lock order, innermost first. A thread that takes a lock holds only locks later in this list.
   This holds in every call, in fork and past the exit hook. No function of the host runs while
   one of them is held, except its clock. */
enum {
    MLI_RANK_PAGES,     /* one for the process: the extents of the os allocator */
    MLI_RANK_ROW,       /* one a row: its published balance */
    MLI_RANK_COUNT,     /* the cells of the orphan record */
    MLI_RANK_MEMORY,    /* regions and free pieces of the ledger */
    MLI_RANK_LOG,       /* the logger, and the threads in it */
    MLI_RANK_SNAPSHOTS, /* the list of snapshots; the holders of a device at its peak */
    MLI_RANK_PHYS,     /* one a physical device: its sample, limit, reservations, bands */
    MLI_RANK_CALLBACKS, /* collection callbacks and their runners; capacity sources */
    MLI_RANK_FENCES,    /* fences, their queues, fences to drop */
    MLI_RANK_INSIDE,    /* no lock: the thread is inside a shard, and others wait for it; locks
                           of buckets are taken there and have no check */
    MLI_RANK_SHARD,     /* one a shard: its state and its table; several are taken by address */
    MLI_RANK_COLD,      /* one for the process: stb_ds, names, devices, sites, tags, the
                           index */
    MLI_RANK_ORPHAN,    /* the orphan record */
    MLI_RANK_REGISTRY,  /* ledgers, owners of thread records; a fork locks all ledgers under it */
    MLI_RANKS
};

/* A spin lock for short work. The exchange that takes it pairs with the release store that
   drops it. */
typedef struct mli_lock {
    mli_u32 locked;
#if defined(MEMLORD_CHECK_LOCKS)
    uint32_t rank;
#endif
} mli_lock;

#if defined(MEMLORD_CHECK_LOCKS)
static MEMLORD_THREAD_LOCAL struct {
    uint32_t held[MLI_RANKS]; /* locks of each rank that this thread holds */
    const mli_lock *shard;    /* the shard lock taken last */
} mli_ranks;
/* Returns the number of locks of the first `ranks` ranks that the thread holds. */
static uint32_t mli_rank_held(uint32_t ranks) {
    uint32_t i, n = 0;
    for (i = 0; i < ranks; i++) n += mli_ranks.held[i];
    return n;
}
/* Checks the lock order before the thread waits for a lock. A thread may hold two locks of one
   rank in three cases: shards, taken by rising address; physical devices, under the cold lock;
   and locks of several ledgers in a fork, under the registry lock. */
static void mli_rank_take(const mli_lock *lock) {
    uint32_t rank = lock->rank;
    int two = mli_ranks.held[MLI_RANK_REGISTRY] ||
              (rank == MLI_RANK_SHARD && lock > mli_ranks.shard) ||
              (rank == MLI_RANK_PHYS && mli_ranks.held[MLI_RANK_COLD]);
    MEMLORD_ASSERT(!mli_rank_held(rank) && (two || !mli_ranks.held[rank]));
    mli_ranks.held[rank]++;
    if (rank == MLI_RANK_SHARD) mli_ranks.shard = lock;
}
static void mli_rank_drop(const mli_lock *lock) {
    MEMLORD_ASSERT(mli_ranks.held[lock->rank]);
    mli_ranks.held[lock->rank]--;
}
/* Notes that the thread is inside a shard (1), perhaps already, or inside none (0). */
static void mli_rank_inside(uint32_t inside) {
    MEMLORD_ASSERT(!inside || !mli_rank_held(MLI_RANK_INSIDE));
    mli_ranks.held[MLI_RANK_INSIDE] = inside;
}
/* Checks that the thread holds no lock before it calls a function of the host. */
static void mli_rank_none(void) { MEMLORD_ASSERT(!mli_rank_held(MLI_RANKS)); }
/* Sets the rank of a new lock. A lock of zeros has the innermost rank. */
static void mli_lock_rank(mli_lock *lock, uint32_t rank) { lock->rank = rank; }
#else
static MLI_HOT void mli_rank_take(const mli_lock *lock) { (void)lock; }
static MLI_HOT void mli_rank_drop(const mli_lock *lock) { (void)lock; }
static MLI_HOT void mli_rank_inside(uint32_t inside) { (void)inside; }
static MLI_HOT void mli_rank_none(void) {}
static MLI_HOT void mli_lock_rank(mli_lock *lock, uint32_t rank) { (void)lock, (void)rank; }
#endif

#define MLI_SPIN_LOOKS 200 /* spins before each yield or sleep */
#define MLI_SPIN_TURNS 16  /* yields before the first sleep */
/* Waits once in a spin loop; *n counts the calls. It spins, later yields, and then sleeps for 50 us
   to 1 ms. Yielding is not enough: a real-time thread that yields lets no thread of lower priority
   run, and such a thread may hold the lock. */
static MLI_COLD void mli_spin_wait(unsigned *n) {
    unsigned turn = ++*n / MLI_SPIN_LOOKS;
    mli_cpu_pause();
    if (*n % MLI_SPIN_LOOKS) return;
    if (turn <= MLI_SPIN_TURNS)
        mli_yield();
    else
        mli_nap(turn < MLI_SPIN_TURNS + 20 ? (turn - MLI_SPIN_TURNS) * 50000u : 1000000u);
}
/* Takes a lock. Requires: the thread holds only locks of later ranks. */
static MLI_NOINLINE void mli_lock_take(mli_lock *lock) {
    unsigned n = 0;
    mli_rank_take(lock);
    while (mli_u32_exchange(&lock->locked, 1))
        while (mli_u32_load(&lock->locked)) mli_spin_wait(&n);
}
static int mli_lock_try(mli_lock *lock) { /* 1: taken */
    if (mli_u32_load(&lock->locked) || mli_u32_exchange(&lock->locked, 1))
        return 0;
    mli_rank_take(lock);
    return 1;
}
static void mli_lock_drop(mli_lock *lock) {
    mli_rank_drop(lock);
    mli_u32_store_release(&lock->locked, 0);
}

/* ----------------------------------------------------------------------- >>ledger --
   Owns the layout of a ledger, of the process state and of the thread-local state. The sections
   below own the members named after them. Invariants: a row is never removed, so its number
   and address are valid as long as the ledger. A thread record is reused, never freed, so its
   counts are never merged into another.

   Locks: MLI_RANK_... lists them in their order. */

#define MLI_SHARD_BITS 10 /* 1024 shards */
#define MLI_TYPE_COUNT ((int)MEMLORD_DEVICE_TYPE_COUNT)
#define MLI_DIRECT_DEVICES 2048 /* 16 types x 128 indexes: devices found without a probe */

enum { MLI_BOOK_DEVICE, MLI_BOOK_SITE, MLI_BOOK_TAG, MLI_BOOKS };

enum {
#define MLI_X(name, kind, family, text) MLI_STAT_##name,
    MLI_STATS(MLI_X)
#undef MLI_X
    MLI_STAT_COUNT
};

/* The public functions that count and log their refusals: see mli_refuse. */
#define MLI_REFUSERS(X)                                                                       \
    X(alloc) X(free) X(realloc) X(realloc_begin) X(realloc_end) X(free_begin) X(free_end)     \
    X(alloc_n) X(free_n) X(move) X(copy) X(track) X(retain) X(release) X(track_n)             \
    X(release_n) X(alloc_reserved) X(alloc_failed) X(arena_add) X(arena_sub) X(free_deferred) \
    X(block_use) X(tag_begin) X(tag_default_set) X(block_retag) X(expect) X(pool_set)         \
    X(pool_add) X(pool_served)
enum {
#define MLI_X(name) MLI_REFUSER_##name,
    MLI_REFUSERS(MLI_X)
#undef MLI_X
    MLI_REFUSER_COUNT
};

typedef mli_ptr mli_book; /* mli_chunk_array * */

/* The fence queues of a device type. Under the fences lock, except for the atomic words. */
typedef struct mli_pending_queues {
    struct mli_queue *first;
    mli_u32 calls;    /* calls on the type while it had queues; some may be lost */
    mli_u32 due;      /* from this call number on a call looks for a queue to ask */
    mli_u64 late;     /* from this time on any call looks for one */
} mli_pending_queues;

typedef struct mli_shard {
    mli_u32 state;     /* NEW, SHARED, STOPPED, or the id of its owner: see >>map */
    mli_u32 displaced; /* entries outside their home bucket */
    char *table;
    uint32_t size;          /* buckets */
    mli_lock lock;          /* held to change the state or to replace the table */
    uint32_t stopped_state; /* the state before it was stopped; resume restores it */
} mli_shard;

/* A thread that the ledger starts. */
typedef struct mli_helper {
    mli_u32 state; /* MLI_HELPER_... */
    mli_u32 stop;  /* 1: it ends, and is joined */
    mli_os_event wake;
    mli_os_thread worker;
    mli_job job;
} mli_helper;

/* A physical device. The devices cpu, pinned and mapped share one. */
typedef struct mli_phys {
    mli_lock lock;         /* all below but sampling, sampler, poller; bands of its devices */
    mli_u32 sampling;      /* 1: a thread asks the source */
    void *sampler;         /* &mli_self of that thread; under the callbacks lock */
    memlord_device device; /* the source is asked about this device */
    memlord_capacity sample;
    uint64_t sampled;     /* the time of `sample` */
    uint64_t limit;       /* 0: none */
    double fraction;      /* of the total that is the limit; 0: the limit was set in bytes */
    uint64_t reserved;    /* bytes that open tickets have left */
    uint64_t in_flight;   /* bytes that calls with tickets are recording at this moment */
    struct mli_handle *closed_tickets;
    int failing;          /* 1: the last alloc_retry failed, or alloc_failed came since */
    mli_helper poller;
    struct memlord *lord;
} mli_phys;

#define MLI_SNAPSHOTS 256 /* the ledger keeps one less; a report may add its own */

typedef struct mli_recorder { /* takes snapshots at an interval */
    mli_u32 interval; /* ms; 0: it was not started, or was stopped */
    mli_u64 due;      /* the next snapshot, by the ledger's clock */
    mli_helper helper;
} mli_recorder;

typedef struct mli_capacity_reader {
    memlord_capacity_fn fn;
    void *user;
} mli_capacity_reader;

typedef struct mli_dict {
    size_t item; /* bytes of an item */
    void *items; /* a map of stb_ds; NULL: empty */
    struct mli_dict_block *blocks;
    size_t left; /* unused bytes at the end of the first block */
} mli_dict;

/* The memory that a cold call lacked; it tries again with it: see >>names. */
typedef struct mli_spare_block {
    void *block;
    size_t size, wanted; /* of the block; of the allocation that failed last */
} mli_spare_block;

/* The ledger's own memory, in grains of 128 bytes: see >>memory. */
#define MLI_GRAIN_BITS 7
#define MLI_REGION_BITS 15
#define MLI_SIZE_CLASSES (MLI_REGION_BITS - MLI_GRAIN_BITS + 1)

struct memlord {
    /* The shards are first: a call finds one without adding an offset. */
    struct {
        mli_shard shards[1u << MLI_SHARD_BITS];
        mli_u32 buckets; /* in all tables */
    } map;
    struct {
        struct memlord *next, **back; /* live ledgers, under the registry lock */
        uint64_t started, started_stamp, started_wall;
        int verifies; /* 1: MEMLORD_DEBUG=2: destroy runs memlord_verify */
    } lifecycle;
    /* Every call reads these members; few write them. */
    struct {
        uint64_t generation; /* unique in the process */
        mli_u32 hooks;     /* MLI_HOOK_... */
        mli_u32 alert;     /* MLI_ALERT_... */
        uint32_t flags;    /* MEMLORD_FLAG_... */
        mli_u32 next_id;   /* of the next thread record */
        uint32_t sweep_at; /* from this many records on a sweep looks for dead owners */
        mli_ptr all;       /* mli_thread *: the first record of the list */
        struct mli_thread *orphan;
        mli_lock orphan_lock;
    } threads;
    struct {
        mli_u64 birth_mark;   /* the current mark, shifted into place */
        mli_book births;      /* numbered from 1 */
        uint32_t birth_count; /* under the cold lock */
        mli_u32 warned_tag;   /* 1: the first dropped tag was logged */
        mli_u32 warned_guard; /* 1: the first guard that ended on another thread was logged */
    } sites;
    struct {
        uint64_t batch;               /* bytes a cell may hold back; 0 publishes every call */
        mli_book rows[MLI_BOOKS];
        mli_u32 row_count[MLI_BOOKS]; /* rows and 1 more: row 0 means none */
        mli_u64 lost[MLI_STAT_COUNT]; /* statistics that no device counts */
        mli_lock count_lock;          /* the cells of the orphan record */
    } counters;
    struct {
        mli_u32 dev_of[MLI_DIRECT_DEVICES + 1]; /* 0: not seen; the last one stays 0 */
        uint16_t dev_type[256];                /* by dev; written before the dev is published */
        uint32_t dev_alerts[256];             /* likewise: alerts that concern calls on the dev */
        mli_ptr at[MEMLORD_MAX_DEVICES + 1];   /* mli_device_record *, from dev 1 */
    } devices;
    struct {
        mli_ptr index;
        mli_dict strings;            /* of mli_stb_string: every string once */
        uint64_t bytes;
    } names;
    struct {
        memlord_allocator allocator;
        mli_u64 own_bytes;
        mli_lock lock;
        struct mli_piece *pieces[MLI_SIZE_CLASSES]; /* free; by log2 of their grains */
        struct mli_region *regions;
    } memory;
    struct {
        mli_u32 level;      /* messages up to this level have a receiver; 0: none have */
        mli_lock lock;      /* all below but setting */
        memlord_logger logger;
        uint32_t turn;      /* 0 or 1: changes with the logger */
        uint32_t inside[2]; /* calls of a logger in progress, by the turn they began in */
        mli_u32 setting;    /* 1: a thread is in memlord_logger_set */
        mli_u32 refused[MLI_REFUSER_COUNT][2]; /* 1: logged, as E_INVALID or as E_DEVICE */
    } log;
    struct {
        memlord_clock clock;
        mli_ptr ring;              /* mli_ring * */
        uint32_t stamps_are_ticks; /* 1: stamps are mli_ticks; 0: times of the clock */
    } events;
    struct {
        mli_u64 dropped[MEMLORD_DEVICE_TYPE_COUNT]; /* dropped allocs without a free yet */
        mli_u32 warned_alloc;                       /* 1: the first dropped alloc was logged */
        mli_ptr routes; /* mli_route *; push only, under the cold lock */
    } blocks;
    struct {
        mli_phys host_phys; /* cpu, pinned and mapped */
    } capacity;
    struct {
        mli_book reservations, accounts;
        mli_u32 reservation_count, account_count; /* and 1 more; under the cold lock */
        struct mli_handle *closed_accounts;       /* under the cold lock */
        mli_u64 refusal_logged; /* when a refused reservation was last logged; 0: never */
    } limits;
    struct {
        mli_book all; /* of mli_ptr, numbered from 1 */
        mli_u32 count;
        mli_u64 lost;
    } scopes;
    struct {
        mli_lock lock;
        struct mli_snapshot *at[MLI_SNAPSHOTS], *out; /* by time; evicted under a reader */
        uint32_t count;
        struct mli_snapshot_reader *readers;
        mli_u64 lost;
        mli_recorder recorder;
    } snapshots;
    struct {
        mli_lock lock;
        mli_ptr all;                      /* mli_fence_record *: every record; push only */
        struct mli_fence_record *unused;  /* records that hold no fence */
        struct mli_fence_record *to_drop; /* detached: their blocks have ended */
        struct mli_queue *spare_queues;   /* every record brings one: a free allocates none */
        mli_pending_queues pends[MEMLORD_DEVICE_TYPE_COUNT];
        mli_u64 serial, epoch;            /* the last number used; resets */
    } fences;
    struct {
        mli_lock callbacks_lock;
        struct mli_gc_entry *gc_entries;  /* as strategies: under the callbacks lock */
        struct mli_strategy *strategies;
        mli_u32 watched_types;    /* a bit a device type: a strategy can be in force there */
        mli_u32 thread_allowance; /* the margins of bands allow for this many threads */
    } bands;
    struct {
        mli_capacity_reader capacity_readers[MEMLORD_DEVICE_TYPE_COUNT];
        mli_cpu cpu;
    } room;
    struct {
        struct mli_waiter *waiters;
        mli_u32 poll_ms;
        uint32_t poll_ms_by_env; /* 1: the environment has set poll_ms */
        mli_u32 polling;         /* MLI_POLLING_... */
    } pollers;
    struct {
        memlord_retry policy; /* the default policy */
        mli_u64 explained;    /* when memlord_alloc_failed was last logged; 0: never */
    } retry;
    struct {
        mli_ptr saver;                   /* const mli_saver *; set by the first request */
        mli_u64 alloc_free_ps;           /* picoseconds of an alloc and a free; 0: unmeasured */
        mli_u32 exit_format;             /* the format plus 1; 0: no report at exit */
        mli_ptr exit_directory;          /* const char *, interned; NULL: output_dir */
        const char *output_dir, *labels; /* interned */
    } saving;
};

/* The only state of the process. All zeros is its valid initial state. */
static struct {
    mli_lock registry_lock; /* ledgers and owners of thread records */
    mli_lock cold_lock;     /* names, devices, sites, tags and stb_ds of all ledgers */
    mli_lock pages_lock;    /* innermost: the extents of the os allocator */
    struct mli_extent *extents;
    memlord *ledgers;
    mli_dict *growing; /* the table that stb_ds changes now; under the cold lock */
    mli_ptr global;    /* memlord * */
    mli_u64 generation;
    mli_u32 hooks_installed; /* 1: the exit key and the fork handlers are installed */
    mli_u32 at_exit;         /* 1: the exit handler of memlord_save_at_exit is installed */
    memlord *saving;         /* that handler saves it: destroy waits; under the registry lock */
    mli_u32 has_barrier;     /* 1: mli_barrier_all works; 0 for good once it is refused */
    uint64_t pid;            /* differs from getpid in a child that ran no fork handler */
    int exit_key_ready;      /* 1: exit_key is valid */
    mli_exit_key exit_key;
} mli_process;

/* Extra facts for the debug line (MEMLORD_DEBUG) of the call in progress. */
typedef struct mli_debug_note {
    uint64_t blocks, bytes; /* that a call with n storages opened or closed */
    uint64_t implicit, implicit_bytes; /* blocks that ended because a new block opened at their
                                          address, and their bytes */
    uint64_t unknown;   /* frees of storages that the map does not have */
    memlord_device from_device;
    uint64_t from; /* the storage before a move; 0: none */
} mli_debug_note;

/* The calls of a ledger's logger that the thread is in, by turn: see >>log. */
typedef struct mli_log_calls {
    uint64_t generation; /* of the ledger */
    uint32_t inside[2];
} mli_log_calls;

/* The record of the thread in one ledger. Generations are unique, so the generation of a destroyed
   ledger never matches again. */
typedef struct mli_used {
    uint64_t generation;
    struct mli_thread *thread;
} mli_used;
#define MLI_USED 8

/* The state of the current thread. Only the thread itself reads and writes it. Other threads may
   compare its address and never follow it: the system may free it before the last call of the
   thread, and that call then finds a new one of zeros. Generation 0 matches no ledger. */
static MEMLORD_THREAD_LOCAL struct {
    uint64_t generation; /* of the ledger that `thread` belongs to: the one used last */
    struct mli_thread *thread;
    mli_used used[MLI_USED]; /* recently used ledgers, by generation modulo MLI_USED */
    uint64_t number;         /* mli_thread_number; 0: unknown yet */
    uint32_t hooked;         /* 1: its exit hook is set */
    memlord *orphaned;       /* it holds the orphan lock of this ledger; NULL: none */
    uint32_t in_host_alloc;  /* depth of allocator calls that MemLord makes on this thread */
    uint64_t fence_lord;     /* it runs fence functions of the ledger of this generation; 0: none */
    uint64_t try_lord;       /* likewise: a memlord_try_fn of memlord_alloc_retry */
    uint32_t exited;         /* 1: its exit hook has run */
    uint32_t is_helper;      /* 1: it is the thread of a mli_helper */
    mli_debug_note note;     /* for the debug line of the call in progress: see >>log */
    mli_spare_block spare;   /* of the cold call in progress */
    mli_log_calls log_calls; /* zero: it is in no logger */
} mli_self;

#define MLI_API MEMLORD_API MLI_COLD /* for public functions off the hot path */

/* ------------------------------------------------------------------------- >>text --
   Owns the writing of numbers and strings. Uses no stdio, no locale and no allocation; uses no
   other section. Locks: none. An mli_out fills a buffer. With a function it passes the full
   buffer to it; without one it cuts the text and counts the rest, like snprintf. */

#include <stdarg.h> /* mli_putf, mli_jsonf */

static const char *const mli_type_names[] = {
#define MLI_X(name, text, host) text,
    MLI_DEVICE_TYPES(MLI_X)
#undef MLI_X
};

typedef struct mli_out {
    memlord_write_fn fn; /* takes a full buffer; NULL: text past the buffer is cut */
    void *user;
    char *buf;
    size_t cap, used;
    size_t total; /* bytes put so far, with those that were cut */
    int failed;   /* 1: `fn` has failed and is not called again */
} mli_out;

static MLI_COLD void mli_flush(mli_out *o) {
    if (o->used && !o->failed && o->fn(o->user, o->buf, o->used)) o->failed = 1;
    o->used = 0;
}
static void mli_put(mli_out *o, const char *text, size_t n) {
    o->total += n;
    while (n) {
        size_t room = o->cap - o->used, piece = n < room ? n : room;
        if (!piece && !o->fn) return;
        if (!piece) {
            mli_flush(o);
            continue;
        }
        memcpy(o->buf + o->used, text, piece);
        o->used += piece;
        text += piece;
        n -= piece;
    }
}
static void mli_put_str(mli_out *o, const char *text) {
    mli_put(o, text, strlen(text));
}

/* Starts an mli_out without a function. mli_out_end terminates the text with a 0 and returns its
   full length, also if it was cut. */
static void mli_out_buffer(mli_out *o, char *buf, size_t cap) {
    memset(o, 0, sizeof *o);
    o->buf = buf;
    o->cap = buf && cap ? cap - 1 : 0;
}
static MLI_COLD size_t mli_out_end(mli_out *o, size_t cap) {
    if (o->buf && cap) o->buf[o->used] = 0;
    return o->total;
}

/* Reads decimal digits, perhaps none. Returns the rest of the text; NULL: UINT64_MAX exceeded. */
static const char *mli_read_u64(const char *text, uint64_t *value) {
    for (*value = 0; *text >= '0' && *text <= '9'; text++) {
        unsigned digit = (unsigned)(*text - '0');
        if (*value > (UINT64_MAX - digit) / 10) return NULL;
        *value = *value * 10 + digit;
    }
    return text;
}

/* Writes the lowest n digits of v, in base 10 or 16. */
static MLI_COLD void mli_put_digits(mli_out *o, uint64_t v, unsigned base, unsigned n) {
    char digits[20];
    unsigned i;
    for (i = n; i--; v /= base) digits[i] = "0123456789abcdef"[v % base];
    mli_put(o, digits, n);
}
static void mli_put_u64(mli_out *o, uint64_t v) {
    uint64_t rest = v;
    unsigned n = 1;
    while (rest /= 10) n++;
    mli_put_digits(o, v, 10, n);
}
static void mli_put_i64(mli_out *o, int64_t v) {
    if (v < 0) mli_put_str(o, "-");
    mli_put_u64(o, v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v);
}
/* Writes a storage in full, with 8, 12 or 16 digits: few widths keep columns straight. */
static MLI_COLD void mli_put_address(mli_out *o, uint64_t v) {
    mli_put_str(o, "0x");
    mli_put_digits(o, v, 16, v >> 48 ? 16 : v >> 32 ? 12 : 8);
}

/* Writes v / 10^digits with all decimals. */
static MLI_COLD void mli_put_fixed(mli_out *o, uint64_t v, unsigned digits) {
    uint64_t unit = 1;
    unsigned i;
    for (i = 0; i < digits; i++) unit *= 10;
    mli_put_u64(o, v / unit);
    mli_put_str(o, ".");
    mli_put_digits(o, v, 10, digits);
}
/* Writes tenths / 10, without a decimal that is 0. */
static MLI_COLD void mli_put_tenths(mli_out *o, uint64_t tenths) {
    if (tenths % 10)
        mli_put_fixed(o, tenths, 1);
    else
        mli_put_u64(o, tenths / 10);
}

/* Writes bytes in the largest IEC unit that gives at least 1, rounded to two decimals, without
   trailing zeros. */
static MLI_COLD void mli_put_bytes(mli_out *o, uint64_t bytes) {
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    unsigned unit = 0;
    double scaled = (double)bytes;
    uint64_t hundredths;
    for (; unit < 6 && scaled >= 1023.995; unit++) scaled /= 1024; /* that rounds to 1024 */
    hundredths = (uint64_t)(scaled * 100 + 0.5);
    if (hundredths % 10)
        mli_put_fixed(o, hundredths, 2);
    else
        mli_put_tenths(o, hundredths / 10);
    mli_put_str(o, units[unit]);
}

/* Writes nanoseconds since 1970 as 2026-11-21T08:05:00.250Z, or, with `name`, as
   20261121_080500 for the name of a file. Days become a date by civil_from_days of Howard
   Hinnant's chrono-compatible algorithms. */
static MLI_COLD void mli_put_time(mli_out *o, uint64_t ns, int name) {
    uint64_t seconds = ns / 1000000000u, ms = ns / 1000000u % 1000;
    uint64_t z = seconds / 86400 + 719468, rest = seconds % 86400;
    uint64_t era = z / 146097, doe = z % 146097;
    uint64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    uint64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    uint64_t month = mp < 10 ? mp + 3 : mp - 9;
    const uint64_t parts[] = {yoe + era * 400 + (month <= 2), month, doy - (153 * mp + 2) / 5 + 1,
                              rest / 3600, rest / 60 % 60, rest % 60};
    const char *between = name ? "  _   " : "--T::.";
    unsigned i;
    for (i = 0; i < 6; i++) {
        mli_put_digits(o, parts[i], 10, i ? 2 : 4);
        if (between[i] != ' ') mli_put(o, &between[i], 1);
    }
    if (name) return;
    mli_put_digits(o, ms, 10, 3);
    mli_put_str(o, "Z");
}

static MLI_COLD void mli_put_device(mli_out *o, memlord_device d) {
    if ((unsigned)d.type >= (unsigned)MLI_TYPE_COUNT) {
        mli_put_str(o, d.type == MEMLORD_ANY ? "all" : "?");
        return;
    }
    mli_put_str(o, mli_type_names[d.type]);
    if (d.index < 0 || (d.index == 0 && d.type <= MEMLORD_DEVICE_MAPPED)) return;
    mli_put_str(o, ":");
    mli_put_u64(o, (uint64_t)d.index);
}

/* Decodes the UTF-8 sequence at s. Returns its length; 0: it is not well-formed (RFC 3629).
   Surrogates are not well-formed. Nor is U+FFFD here: mli_put_invalid_byte gives it a meaning. */
static size_t mli_utf8_decode(const unsigned char *s, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length */
    size_t i, n = 0;
    while (s[0] << n & 0x80) n++;
    *code = s[0] & (0x7fu >> n);
    if (!n) return 1;
    if (n == 1 || n > 4) return 0;
    for (i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | (s[i] & 0x3fu);
    }
    if (*code < least[n] || *code > 0x10ffff || *code >> 11 == 0x1b || *code == 0xfffd) return 0;
    return n;
}

/* Writes a byte that a format cannot hold, as U+FFFD and two hexadecimal digits. Every format does
   the same, and two different names never become equal. */
static MLI_COLD void mli_put_invalid_byte(mli_out *o, unsigned char byte) {
    mli_put_str(o, "\xef\xbf\xbd");
    mli_put_digits(o, byte, 16, 2);
}

/* Writes a JSON string, or null. It also escapes characters that could end a script element or a
   line of JavaScript, so that an HTML page can contain the text. */
static MLI_COLD void mli_put_json(mli_out *o, const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    if (!text) {
        mli_put_str(o, "null");
        return;
    }
    mli_put_str(o, "\"");
    while (*s) {
        uint32_t code;
        size_t n = mli_utf8_decode(s, &code);
        if (!n) {
            mli_put_invalid_byte(o, *s);
            n = 1;
        } else if (code < 0x20 || (code < 0x80 && strchr("\"\\<>&\x7f", (int)code)) ||
                   code == 0x2028 || code == 0x2029) {
            mli_put_str(o, "\\u");
            mli_put_digits(o, code, 16, 4);
        } else {
            mli_put(o, (const char *)s, n);
        }
        s += n;
    }
    mli_put_str(o, "\"");
}

/* Writes a string into a line of text. Control characters are written like invalid bytes, so that
   a name cannot break the table or control a terminal. Replaces the character `other`, if it is
   not 0, by `instead`. */
static MLI_COLD void mli_put_escaped(mli_out *o, const char *text, char other,
                                     const char *instead) {
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        uint32_t code;
        size_t n = mli_utf8_decode(s, &code);
        if (!n || code < 0x20 || (code >= 0x7f && code < 0xa0)) {
            mli_put_invalid_byte(o, *s);
            n = 1;
        } else if (code == (unsigned char)other) {
            mli_put_str(o, instead);
        } else {
            mli_put(o, (const char *)s, n);
        }
        s += n;
    }
}

/* Writes a site as "read_tensors loader.c:12", with the escapes of mli_put_escaped. */
static MLI_COLD void mli_put_site_escaped(mli_out *o, const memlord_site *site,
                                          char other, const char *instead) {
    if (!site || (!site->function[0] && !site->file[0])) {
        mli_put_str(o, "(unknown)");
        return;
    }
    mli_put_escaped(o, site->function, other, instead);
    if (site->function[0] && site->file[0]) mli_put_str(o, " ");
    mli_put_escaped(o, site->file, other, instead);
    if (site->line <= 0) return;
    mli_put_str(o, ":");
    mli_put_u64(o, (uint64_t)site->line);
}
static uint64_t mli_site_line(const memlord_site *site) {
    return site && site->line > 0 ? (uint64_t)site->line : 0;
}
static MLI_COLD void mli_put_site(mli_out *o, int json, const memlord_site *site) {
    if (!json) {
        mli_put_site_escaped(o, site, 0, "");
        return;
    }
    mli_put_str(o, site ? "{\"file\":" : "null");
    if (!site) return;
    mli_put_json(o, site->file);
    mli_put_str(o, ",\"function\":");
    mli_put_json(o, site->function);
    mli_put_str(o, ",\"line\":");
    mli_put_u64(o, mli_site_line(site));
    mli_put_str(o, "}");
}

/* -- format strings: like those of printf, and compilers check them like those --
       %s   text          %ju  a number            %jX  nanoseconds, for people
       %g   a percentage  %jo  bytes, for people   %jd  a difference of bytes, with its sign
       %jx  a storage     %i   a device: mli_device_code
       %p   a site
   A width aligns values to the right and text to the left; a site has none. A - aligns all to the
   left; a + writes the sign of a difference of 0. With a width an unknown number becomes a -:
   UINT64_MAX, or INT64_MIN for %jd.
   In JSON a ' stands for a ", and a leading comma is dropped after a [ or {. There %jd is any
   number. Unknown values become null: a NULL, a %ju of UINT64_MAX, a %jd of INT64_MIN, a %g of
   NaN. */

#if defined(__linux__)
#define MLI_PRINTF_LIKE(at) __attribute__((format(printf, at, at + 1)))
#else
#define MLI_PRINTF_LIKE(at) /* no check: uintmax_t may be another type than uint64_t */
#endif

static int mli_device_code(memlord_device d) { return d.type * 65536 + (uint16_t)d.index; }

static void mli_pad(mli_out *o, size_t used, size_t width) {
    for (; used < width; used++) mli_put(o, " ", 1);
}
/* Writes a string for JSON, or pads it to a column. A UTF-8 sequence of two bytes counts as one
   column, a longer one as two, which is true for most. */
static MLI_COLD void mli_put_string(mli_out *o, int json, const char *text, size_t width) {
    size_t start = o->total;
    const unsigned char *s = (const unsigned char *)text;
    if (json) {
        mli_put_json(o, text);
        return;
    }
    mli_put_escaped(o, text, 0, "");
    for (; *s; s++) start += (size_t)(*s >= 0xc0) + (*s >= 0xf0);
    mli_pad(o, o->total - start, width);
}
static MLI_COLD void mli_put_difference(mli_out *o, int json, int64_t v, int sign) {
    if (v == INT64_MIN) {
        mli_put_str(o, json ? "null" : "-");
        return;
    }
    if (json) {
        mli_put_i64(o, v);
        return;
    }
    if (v || sign) mli_put_str(o, v < 0 ? "-" : "+");
    mli_put_bytes(o, v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v);
}
static MLI_COLD void mli_put_ns(mli_out *o, uint64_t ns) {
    static const char *const units[] = {" ns", " us", " ms", " s"};
    size_t unit = 0;
    uint64_t tenths = ns * 10;
    for (; tenths >= 10000 && unit < 3; unit++) tenths = tenths / 1000 + (tenths % 1000 >= 500);
    mli_put_tenths(o, tenths);
    mli_put_str(o, units[unit]);
}
/* Writes a percentage: "63.2 %", "50 %", or "unknown" for NaN. */
static MLI_COLD void mli_put_percent(mli_out *o, int json, double percent) {
    if (!(percent >= 0)) {
        mli_put_str(o, json ? "null" : "unknown");
    } else if (json) {
        mli_put_fixed(o, (uint64_t)(percent * 1000 + 0.5), 3);
    } else {
        mli_put_tenths(o, percent < 1e15 ? (uint64_t)(percent * 10 + 0.5) : 0);
        mli_put_str(o, " %");
    }
}
static MLI_COLD void mli_put_number(mli_out *o, int json, int column, char kind, uint64_t v) {
    if (v == UINT64_MAX && (column || (json && kind == 'u'))) {
        mli_put_str(o, json ? "null" : "-");
        return;
    }
    switch (kind) {
    case 'o': mli_put_bytes(o, v); break;
    case 'x': mli_put_address(o, v); break;
    case 'X': mli_put_ns(o, v); break;
    default: mli_put_u64(o, v);
    }
}

/* Writes the value of a conversion; `form` points behind its %. Returns the rest of the string. */
static MLI_COLD const char *mli_put_value(mli_out *o, int json, const char *form, va_list *args) {
    char buf[32]; /* the value, if it is aligned to the right */
    mli_out b, *to = o;
    size_t start = o->total;
    uint64_t width = 0;
    int left = *form == '-', sign = *form == '+', code;
    form = mli_read_u64(form + left + sign, &width);
    form += *form == 'j';
    if (width && !left && *form != 's') mli_out_buffer(to = &b, buf, sizeof buf);
    switch (*form) {
    case 's': mli_put_string(o, json, va_arg(*args, const char *), (size_t)width); break;
    case 'p': mli_put_site(o, json, (const memlord_site *)va_arg(*args, const void *)); break;
    case 'i':
        code = va_arg(*args, int);
        mli_put_device(to, memlord_device_make(code >> 16, (int16_t)code));
        break;
    case 'd': mli_put_difference(to, json, va_arg(*args, int64_t), sign); break;
    case 'g': mli_put_percent(to, json, va_arg(*args, double)); break;
    default: mli_put_number(to, json, width != 0, *form, va_arg(*args, uint64_t));
    }
    if (to == &b) {
        mli_pad(o, b.used, (size_t)width);
        mli_put(o, buf, b.used);
    } else {
        mli_pad(o, o->total - start, (size_t)width);
    }
    return form + 1;
}
static MLI_COLD void mli_put_format(mli_out *o, int json, const char *form, va_list *args) {
    while (*form) {
        size_t n = strcspn(form, json ? "%'" : "%");
        mli_put(o, form, n);
        form += n;
        if (*form == '%') {
            form = mli_put_value(o, json, form + 1, args);
        } else if (*form) {
            mli_put_str(o, "\"");
            form++;
        }
    }
}
static MLI_COLD MLI_PRINTF_LIKE(2) void mli_putf(mli_out *o, const char *form, ...) {
    va_list args;
    va_start(args, form);
    mli_put_format(o, 0, form, &args);
    va_end(args);
}
/* Writes JSON and drops a leading comma after a [ or {. Requires: something was written before.
   Its last byte is still in the buffer: a full buffer is flushed only when more text comes. */
static MLI_COLD MLI_PRINTF_LIKE(2) void mli_jsonf(mli_out *o, const char *form, ...) {
    va_list args;
    va_start(args, form);
    if (*form == ',' && strchr("[{", o->buf[o->used - 1])) form++;
    mli_put_format(o, 1, form, &args);
    va_end(args);
}

static int mli_ascii_lower(int c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }

/* Returns the factor of a unit, from "" to "EiB", upper or lower case; 0: not a unit. */
static MLI_COLD uint64_t mli_unit_factor(const char *text) {
    static const char letters[] = "bkmgtpe";
    uint64_t factor = 1, step = 1000;
    const char *power = *text ? strchr(letters, mli_ascii_lower(*text)) : letters;
    if (!power) return 0;
    if (power > letters && mli_ascii_lower(*++text) == 'i') {
        step = 1024;
        text++;
    }
    if (mli_ascii_lower(*text) == 'b') text++;
    while (*text == ' ') text++;
    for (; power > letters; power--) factor *= step;
    return *text ? 0 : factor;
}

/* -- public -- */

MLI_API const char *memlord_result_text(memlord_result result) {
    static const char *const texts[] = {
#define MLI_X(name, text) text,
        MLI_RESULTS(MLI_X)
#undef MLI_X
    };
    return (unsigned)result < MEMLORD_RESULT_COUNT ? texts[result] : "not a result";
}

MLI_API char *memlord_format_bytes(uint64_t bytes, char *buf, size_t cap) {
    mli_out o;
    mli_out_buffer(&o, buf, cap);
    mli_put_bytes(&o, bytes);
    (void)mli_out_end(&o, cap);
    return buf;
}

/* Reads the decimals of a number as *part / *scale, and returns the rest of the text. It skips what
   follows nine decimals: in most units the tenth is less than a byte. */
static MLI_COLD const char *mli_read_decimals(const char *text, uint64_t *part, uint64_t *scale) {
    for (*part = 0, *scale = 1; *text >= '0' && *text <= '9'; text++) {
        if (*scale == 1000000000u) continue;
        *part = *part * 10 + (unsigned)(*text - '0');
        *scale *= 10;
    }
    return text;
}

MLI_API memlord_result memlord_parse_bytes(const char *text, uint64_t *out) {
    uint64_t whole, part = 0, scale = 1, unit, rest;
    const char *digit;
    if (!text || !out) return MEMLORD_E_INVALID;
    while (*text == ' ') text++;
    digit = text + (*text == '.');
    if (*digit < '0' || *digit > '9') return MEMLORD_E_INVALID;
    text = mli_read_u64(text, &whole);
    if (!text) return MEMLORD_E_INVALID;
    if (*text == '.') text = mli_read_decimals(text + 1, &part, &scale);
    while (*text == ' ') text++;
    unit = mli_unit_factor(text);
    if (!unit || (unit == 1 && scale > 1)) return MEMLORD_E_INVALID;
    if (whole > UINT64_MAX / unit) return MEMLORD_E_INVALID;
    rest = unit / scale * part + unit % scale * part / scale;
    if (whole * unit > UINT64_MAX - rest) return MEMLORD_E_INVALID;
    *out = whole * unit + rest;
    return MEMLORD_OK;
}

/* -------------------------------------------------------------------------- >>log --
   Owns the messages to the host. Uses >>platform and >>text. Invariants: a debug line is formatted
   only if its level is on, and no lock is held while the logger runs. Lock: log, for the logger and
   the count of the calls in it, by which a change of the logger waits for them. */

/* The logger of MEMLORD_DEBUG. It writes a line with one write; the start of the line chooses its
   colour. */
static MLI_COLD void mli_log_coloured(void *user, int level, const char *text) {
    static const char *const colours[][2] = {{"[alloc_n", "\033[36m"}, /* cyan: a summary */
                                             {"[free_n", "\033[36m"},
                                             {"[alloc", "\033[31m"}, /* red */
                                             {"[free", "\033[32m"},  /* green */
                                             {"[gc", "\033[33m"},    /* yellow */
                                             {"[reset", "\033[35m"}, /* magenta */
                                             {"", "\033[36m"}};      /* cyan */
    char line[640];
    mli_out o;
    size_t i = 0;
    (void)user;
    (void)level;
    while (strncmp(text, colours[i][0], strlen(colours[i][0]))) i++;
    mli_out_buffer(&o, line, sizeof line - 8); /* a cut line keeps its end */
    mli_put_str(&o, colours[i][1]);
    mli_put_str(&o, text);
    o.cap = sizeof line;
    mli_put_str(&o, "\033[0m\n");
    mli_stderr_write(line, o.used);
}

/* 1: messages of this level have a receiver. */
static MLI_COLD int mli_log_hears(const memlord *lord, int level) {
    return level <= (int)mli_u32_load(&lord->log.level);
}

/* Passes a line to the logger. Requires: the caller holds no lock. */
static MLI_COLD void mli_log(memlord *lord, int level, const char *text) {
    const mli_log_calls before = mli_self.log_calls; /* of the logger that makes this call */
    memlord_logger logger;
    uint32_t turn;
    if (!mli_log_hears(lord, level)) return;
    mli_rank_none();
    if (before.generation != lord->threads.generation) {
        memset(&mli_self.log_calls, 0, sizeof before);
        mli_self.log_calls.generation = lord->threads.generation;
    }
    mli_lock_take(&lord->log.lock);
    logger = lord->log.logger;
    turn = lord->log.turn;
    lord->log.inside[turn]++;
    mli_lock_drop(&lord->log.lock);
    mli_self.log_calls.inside[turn]++;
    if (logger.fn) logger.fn(logger.user, level, text);
    mli_self.log_calls = before;
    mli_lock_take(&lord->log.lock);
    lord->log.inside[turn]--;
    mli_lock_drop(&lord->log.lock);
}

/* Terminates the line in a buffer and logs it. */
static MLI_COLD void mli_log_end(memlord *lord, int level, mli_out *o) {
    (void)mli_out_end(o, 1);
    mli_log(lord, level, o->buf);
}

static MLI_COLD MLI_PRINTF_LIKE(3) void mli_logf(memlord *lord, int level, const char *form, ...) {
    char line[256];
    mli_out o;
    va_list args;
    mli_out_buffer(&o, line, sizeof line);
    va_start(args, form);
    mli_put_format(&o, 0, form, &args);
    va_end(args);
    mli_log_end(lord, level, &o);
}

/* Logs a warning once; `said` is 1 from then on. A thread without a record does not warn: it may
   hold the orphan lock, and no lock may be held here. */
static MLI_COLD void mli_drop_warn(memlord *lord, mli_u32 *said, const char *text) {
    if (mli_self.generation == lord->threads.generation && !mli_u32_exchange(said, 1))
        mli_log(lord, MEMLORD_LOG_WARNING, text);
}

/* -- the lines of MEMLORD_DEBUG: one for each recording call --
   A call logs its line after it has left the shard and dropped its locks. Facts that it finds
   before are kept in mli_self.note until then. */

/* Adds ", from cpu 0x55..., unknown frees 1 main file.c:12" and logs the line. Clears the note. */
static MLI_COLD void mli_log_call_end(memlord *lord, mli_out *o, const memlord_site *site) {
    mli_debug_note odd = mli_self.note;
    memset(&mli_self.note, 0, sizeof odd);
    if (odd.from) mli_putf(o, ", from %i %jx", mli_device_code(odd.from_device), odd.from);
    if (odd.implicit) mli_putf(o, ", implicit free of %jo", odd.implicit_bytes);
    if (odd.unknown) mli_putf(o, ", unknown frees %ju", odd.unknown);
    if (site) mli_putf(o, " %p", (const void *)site);
    mli_log_end(lord, MEMLORD_LOG_TRACE, o);
}

/* Logs "[alloc] cpu 0x55... 1.5 KiB main file.c:12". Logs nothing for a call that recorded nothing
   (`did` is 0) and has no implicit or unknown free in its note. */
static MLI_COLD void mli_log_call(memlord *lord, int did, const char *verb, memlord_device d,
                                  uint64_t storage, uint64_t bytes, const memlord_site *site) {
    char line[512];
    mli_out o;
    if (!did && !mli_self.note.implicit && !mli_self.note.unknown) return;
    mli_out_buffer(&o, line, sizeof line);
    mli_putf(&o, "%s%i %jx %jo", verb, mli_device_code(d), storage, did ? bytes : 0);
    mli_log_call_end(lord, &o, site);
}

static MLI_COLD void mli_put_amount(mli_out *o, uint64_t bytes, uint64_t blocks) {
    mli_putf(o, blocks == 1 ? "%jo in %ju block" : "%jo in %ju blocks", bytes, blocks);
}

/* Logs "[alloc_n] cuda 12 KiB in 3 blocks main file.c:12". The device shows the type and index that
   all n blocks have in common. Requires: n > 0. */
static MLI_COLD void mli_log_call_n(memlord *lord, const char *verb,
                                    const memlord_block *blocks, size_t n,
                                    const mli_debug_note *note, const memlord_site *site) {
    char line[512];
    mli_out o;
    memlord_device d = blocks[0].device;
    while (n--) {
        if (blocks[n].device.type != d.type) d.type = MEMLORD_ANY;
        if (blocks[n].device.index != d.index) d.index = MEMLORD_ANY;
    }
    mli_out_buffer(&o, line, sizeof line);
    mli_putf(&o, "%s%i ", verb, mli_device_code(d));
    mli_put_amount(&o, note->bytes, note->blocks);
    mli_self.note.unknown += note->unknown;
    mli_log_call_end(lord, &o, site);
}

/* -- public -- */

MLI_API void memlord_log_stderr(void *user, int level, const char *text) {
    char line[1024];
    mli_out o;
    (void)user;
    if (level > MEMLORD_LOG_WARNING || !text) return;
    mli_out_buffer(&o, line, sizeof line - 1); /* a cut line keeps its end */
    mli_put_str(&o, "memlord: ");
    mli_put_str(&o, text);
    o.cap = sizeof line;
    mli_put_str(&o, "\n");
    mli_stderr_write(line, o.used);
}

/* ----------------------------------------------------------------------- >>memory --
   Owns the ledger's own memory. Uses >>platform and >>atomics.
   The allocator gives regions of 32 KiB: old tables leave holes, and a small region is soon free
   as a whole. A region is cut into pieces of whole grains of 128 bytes. Blocks above 16 KiB come
   from the allocator directly and go back to it. A free piece merges with free neighbours of any
   size: all shards of a ledger grow from one size to the next at about the same time, and the
   old tables must make room for the new ones. Pieces are zeroed and aligned to 128 bytes.
   Invariant: while the allocator runs, the thread holds no lock and is marked busy, so that
   calls of the allocator into a ledger pass through. Locks: memory; pages, inside the os
   allocator. */

#define MLI_PIECE_MAX_BITS 14 /* at most MLI_REGION_BITS: a region can hold one */
#define MLI_REGION_GRAINS (1u << (MLI_REGION_BITS - MLI_GRAIN_BITS))

typedef struct mli_region { /* one block of the allocator: this header, then data */
    struct mli_region *next;
    char *data; /* aligned to a grain */
    uint16_t run[MLI_REGION_GRAINS]; /* at the first and last grain of a free piece: its grains;
                                        else 0 */
} mli_region;
#define MLI_REGION_BYTES (sizeof(mli_region) + 128 + ((size_t)1 << MLI_REGION_BITS))
typedef struct mli_piece { /* a free piece; the record lies in it */
    struct mli_piece *next, **back;
    mli_region *region;
    uint32_t first_grain, grains;
} mli_piece;

/* Surround each call of the host's allocator, and of functions of the system that may call a
   malloc which the host has hooked. They mark the thread busy: its generation is 0
   meanwhile, so a call into a ledger takes the slow path and passes through there. A thread
   without a record drops the orphan lock: the allocator may wait for a lock of the host, and the
   thread that holds that lock may call MemLord, too. No call keeps state in the orphan record
   over an allocation. */
static MLI_COLD uint64_t mli_busy_begin(void) {
    uint64_t generation = mli_self.generation;
    mli_self.generation = 0;
    if (!mli_self.in_host_alloc++ && mli_self.orphaned)
        mli_lock_drop(&mli_self.orphaned->threads.orphan_lock);
    mli_rank_none();
    return generation;
}
static MLI_COLD void mli_busy_end(uint64_t generation) {
    if (!--mli_self.in_host_alloc && mli_self.orphaned)
        mli_lock_take(&mli_self.orphaned->threads.orphan_lock);
    mli_self.generation = generation;
}

/* Call the host's allocator and count the bytes that the ledger holds. Require: no lock held. */
static MLI_COLD void *mli_host_alloc(memlord *lord, size_t size) {
    uint64_t generation = mli_busy_begin();
    void *p = lord->memory.allocator.alloc(lord->memory.allocator.user, size);
    mli_busy_end(generation);
    if (p) (void)mli_u64_add(&lord->memory.own_bytes, size);
    return p;
}
static MLI_COLD void mli_host_free(memlord *lord, void *ptr, size_t size) {
    uint64_t generation = mli_busy_begin();
    lord->memory.allocator.free(lord->memory.allocator.user, ptr, size);
    mli_busy_end(generation);
    (void)mli_u64_add(&lord->memory.own_bytes, (uint64_t)0 - size);
}

/* -- the operating system's allocator --
   It gives whole pages. On Linux, blocks of 8 KiB to 1 MiB, the size of the map's tables, share
   extents of 4 MiB. In a mapping of its own each table would lie on small pages, and every call of
   a large ledger would miss the TLB. An extent requests huge pages once more than a quarter is in
   use. */

#if defined(MADV_HUGEPAGE)
#define MLI_PAGE 4096u
#define MLI_EXTENT ((size_t)4 << 20)
#define MLI_EXTENT_PAGES (MLI_EXTENT / MLI_PAGE)
typedef struct mli_extent { /* lies in the first page of its extent */
    struct mli_extent *next;
    uint32_t used, huge;                   /* pages in use; 1: huge pages were requested */
    unsigned char taken[MLI_EXTENT_PAGES]; /* 1: the page is in use */
} mli_extent;

static int mli_os_from_extent(size_t size) { return size >= (8u << 10) && size <= (1u << 20); }

/* The request may be ignored, so there is no result. */
static void mli_huge_pages_request(void *ptr, size_t size) {
    int saved = errno;
    (void)madvise(ptr, size, MADV_HUGEPAGE);
    (void)madvise(ptr, size, 25); /* MADV_COLLAPSE, since Linux 6.1: for pages present now */
    errno = saved;
}

/* Maps an extent, aligned to its size: maps twice as much and unmaps the rest. */
static mli_extent *mli_extent_map(void) {
    char *p = (char *)mli_pages_map(2 * MLI_EXTENT);
    size_t before = (size_t)((0 - (uintptr_t)p) & (MLI_EXTENT - 1));
    mli_extent *e = (mli_extent *)(void *)(p + before);
    if (!p) return NULL;
    if (before) mli_pages_unmap(p, before);
    mli_pages_unmap(p + before + MLI_EXTENT, MLI_EXTENT - before);
    e->taken[0] = 1;
    e->used = 1;
    return e;
}

/* Returns a run of free pages of an extent, or NULL. Requires: the pages lock, if the extent is on
   the list. */
static void *mli_extent_alloc(mli_extent *e, uint32_t pages) {
    uint32_t i, run = 0;
    if (e->used + pages > MLI_EXTENT_PAGES) return NULL;
    for (i = 0; i < MLI_EXTENT_PAGES && run < pages; i++) run = e->taken[i] ? 0 : run + 1;
    if (run < pages) return NULL;
    memset(e->taken + i - pages, 1, pages);
    e->used += pages;
    if (!e->huge && e->used > MLI_EXTENT_PAGES / 4) {
        e->huge = 1;
        mli_huge_pages_request(e, MLI_EXTENT);
    }
    return (char *)e + (size_t)(i - pages) * MLI_PAGE;
}

static MLI_COLD void *mli_os_alloc(void *user, size_t size) {
    uint32_t pages = (uint32_t)((size + MLI_PAGE - 1) / MLI_PAGE);
    mli_extent *e;
    void *p = NULL;
    (void)user;
    if (!mli_os_from_extent(size)) {
        p = mli_pages_map(size);
        if (p && size >= (size_t)1 << 21) mli_huge_pages_request(p, size);
        return p;
    }
    mli_lock_take(&mli_process.pages_lock);
    for (e = mli_process.extents; e && !p; e = e->next) p = mli_extent_alloc(e, pages);
    mli_lock_drop(&mli_process.pages_lock);
    if (p) return p;
    e = mli_extent_map();
    if (!e) return NULL;
    p = mli_extent_alloc(e, pages);
    mli_lock_take(&mli_process.pages_lock);
    e->next = mli_process.extents;
    mli_process.extents = e;
    mli_lock_drop(&mli_process.pages_lock);
    return p;
}
static MLI_COLD void mli_os_free(void *user, void *ptr, size_t size) {
    mli_extent *e = (mli_extent *)((uintptr_t)ptr & ~(uintptr_t)(MLI_EXTENT - 1));
    mli_extent **at = &mli_process.extents;
    uint32_t pages = (uint32_t)((size + MLI_PAGE - 1) / MLI_PAGE);
    (void)user;
    if (!mli_os_from_extent(size)) {
        mli_pages_unmap(ptr, size);
        return;
    }
    mli_lock_take(&mli_process.pages_lock);
    memset(e->taken + (size_t)((char *)ptr - (char *)e) / MLI_PAGE, 0, pages);
    e->used -= pages;
    if (e->used == 1) {
        while (*at != e) at = &(*at)->next;
        *at = e->next;
    } else {
        e = NULL;
    }
    mli_lock_drop(&mli_process.pages_lock);
    if (e) mli_pages_unmap(e, MLI_EXTENT);
}
#else
static MLI_COLD void *mli_os_alloc(void *user, size_t size) {
    (void)user;
    return mli_pages_map(size);
}
static MLI_COLD void mli_os_free(void *user, void *ptr, size_t size) {
    (void)user;
    mli_pages_unmap(ptr, size);
}
#endif

static uint32_t mli_grain_count(size_t size) {
    return (uint32_t)((size + ((size_t)1 << MLI_GRAIN_BITS) - 1) >> MLI_GRAIN_BITS);
}
static uint32_t mli_size_class(uint32_t grains) {
    uint32_t log = 0;
    while (grains >>= 1) log++;
    return log;
}

static mli_piece *mli_piece_at(mli_region *r, uint32_t at) {
    return (mli_piece *)(void *)(r->data + ((size_t)at << MLI_GRAIN_BITS));
}

static void mli_piece_push(memlord *lord, mli_region *r, uint32_t at, uint32_t grains) {
    mli_piece **head = &lord->memory.pieces[mli_size_class(grains)];
    mli_piece *piece = mli_piece_at(r, at);
    r->run[at] = r->run[at + grains - 1] = (uint16_t)grains;
    piece->region = r;
    piece->first_grain = at;
    piece->grains = grains;
    piece->next = *head;
    piece->back = head;
    if (*head) (*head)->back = &piece->next;
    *head = piece;
}
static void mli_piece_unlink(mli_piece *piece) {
    piece->region->run[piece->first_grain] = 0;
    piece->region->run[piece->first_grain + piece->grains - 1] = 0;
    *piece->back = piece->next;
    if (piece->next) piece->next->back = piece->back;
}
/* Returns the link to the region of a piece. It walks the list: a table that grows pays for it. */
static mli_region **mli_region_link(memlord *lord, const void *at) {
    mli_region **link = &lord->memory.regions;
    while (((uintptr_t)at - (uintptr_t)(*link)->data) >> MLI_REGION_BITS) link = &(*link)->next;
    return link;
}

/* Rounds an address up to a grain: 128 bytes. */
static void *mli_align_to_grain(void *at) {
    return (void *)(((uintptr_t)at + 127) & ~(uintptr_t)127);
}

/* Gets one more region from the allocator. Returns 0; -1: no memory. Requires: no lock held. */
static MLI_COLD int mli_region_add(memlord *lord) {
    mli_region *r = (mli_region *)mli_host_alloc(lord, MLI_REGION_BYTES);
    if (!r) return -1;
    memset(r->run, 0, sizeof r->run);
    r->data = (char *)mli_align_to_grain(r + 1);
    mli_lock_take(&lord->memory.lock);
    r->next = lord->memory.regions;
    lord->memory.regions = r;
    mli_piece_push(lord, r, 0, MLI_REGION_GRAINS);
    mli_lock_drop(&lord->memory.lock);
    return 0;
}

/* Returns the smallest free piece that is large enough, of up to 16 in the first class that has
   one; NULL: there is none. Requires: the memory lock. */
static mli_piece *mli_piece_find(memlord *lord, uint32_t grains) {
    mli_piece *best = NULL, *piece;
    uint32_t have;
    for (have = mli_size_class(grains); have < MLI_SIZE_CLASSES && !best; have++) {
        unsigned looked = 0;
        for (piece = lord->memory.pieces[have]; piece && (!best || looked < 16);
             piece = piece->next, looked++)
            if (piece->grains >= grains && (!best || piece->grains < best->grains)) best = piece;
    }
    return best;
}

/* Returns a zeroed piece; NULL if no region has a free one that is large enough. Never calls the
   allocator. */
static void *mli_piece_new(memlord *lord, size_t size) {
    uint32_t grains = mli_grain_count(size);
    mli_piece *fit;
    mli_lock_take(&lord->memory.lock);
    fit = mli_piece_find(lord, grains);
    if (fit) {
        mli_piece_unlink(fit);
        if (fit->grains > grains)
            mli_piece_push(lord, fit->region, fit->first_grain + grains, fit->grains - grains);
    }
    mli_lock_drop(&lord->memory.lock);
    return fit ? memset(fit, 0, (size_t)grains << MLI_GRAIN_BITS) : NULL;
}

/* Returns the bytes that a large block takes besides its own, for its alignment and the pointer to
   its real start. The os allocator aligns to pages, so its blocks need neither. */
static size_t mli_large_overhead(const memlord *lord) {
    return lord->memory.allocator.alloc == mli_os_alloc ? 0 : 256;
}

/* Returns zeroed memory of at least `size` bytes, or NULL. Requires: no lock held but the orphan
   lock, which mli_busy_begin drops. */
static MLI_NOINLINE void *mli_own_alloc(memlord *lord, size_t size) {
    size_t overhead = mli_large_overhead(lord);
    void *p, **at;
    if (size <= (size_t)1 << MLI_PIECE_MAX_BITS) {
        do p = mli_piece_new(lord, size);
        while (!p && !mli_region_add(lord));
        return p;
    }
    if (size > SIZE_MAX - overhead) return NULL;
    p = mli_host_alloc(lord, size + overhead);
    if (!p) return NULL;
    if (overhead) {
        at = (void **)mli_align_to_grain((void **)p + 1);
        at[-1] = p; /* mli_own_free reads it */
        p = at;
    }
    return memset(p, 0, size);
}

/* Frees a piece. Returns its region if nothing in it is in use any more: the caller gives it back
   to the allocator, without the lock. Else returns NULL. The last region of a ledger stays. */
static MLI_COLD mli_region *mli_piece_free(memlord *lord, void *ptr, size_t size) {
    uint32_t grains = mli_grain_count(size), at;
    mli_region **link, *r;
    mli_lock_take(&lord->memory.lock);
    link = mli_region_link(lord, ptr);
    r = *link;
    at = (uint32_t)((size_t)((char *)ptr - r->data) >> MLI_GRAIN_BITS);
    if (at + grains < MLI_REGION_GRAINS && r->run[at + grains]) {
        mli_piece *after = mli_piece_at(r, at + grains);
        mli_piece_unlink(after);
        grains += after->grains;
    }
    if (at && r->run[at - 1]) {
        mli_piece *before = mli_piece_at(r, at - r->run[at - 1]);
        mli_piece_unlink(before);
        at -= before->grains;
        grains += before->grains;
    }
    if (grains == MLI_REGION_GRAINS && lord->memory.regions->next) {
        *link = r->next;
    } else {
        mli_piece_push(lord, r, at, grains);
        r = NULL;
    }
    mli_lock_drop(&lord->memory.lock);
    return r;
}

/* Frees memory of mli_own_alloc. Requires: `size` is the size it was allocated with. */
static MLI_NOINLINE void mli_own_free(memlord *lord, void *ptr, size_t size) {
    size_t overhead = mli_large_overhead(lord);
    if (!ptr) return;
    if (size <= (size_t)1 << MLI_PIECE_MAX_BITS) {
        mli_region *idle = mli_piece_free(lord, ptr, size);
        if (idle) mli_host_free(lord, idle, MLI_REGION_BYTES);
    } else {
        mli_host_free(lord, overhead ? ((void **)ptr)[-1] : ptr, size + overhead);
    }
}

static MLI_COLD void mli_regions_free(memlord *lord) {
    while (lord->memory.regions) {
        mli_region *r = lord->memory.regions;
        lord->memory.regions = r->next;
        mli_host_free(lord, r, MLI_REGION_BYTES);
    }
}

/* -- public -- */

MLI_API void memlord_os_allocator(memlord_allocator *out) {
    if (!out) return;
    out->alloc = mli_os_alloc;
    out->free = mli_os_free;
    out->user = NULL;
}

/* --------------------------------------------------------------------- >>threads --
   Owns the thread records, the alert mask that a call reads at its end, and the ledger's own
   threads (helpers). A call on the general path begins with mli_thread_get, which finds the record
   of its thread, and gives it back with mli_thread_put. Uses >>memory and >>platform. Invariants:
   a record in use belongs to one thread. A free record keeps its counts and its shards for the
   next thread. One thread at a time starts or stops a helper: its state says so. No helper waits
   for another to end. >>exit handles the end of a thread and a fork. Locks: registry; orphan, for
   the orphan record. */

#define MLI_NOBODY UINT64_MAX /* the owner of a record after its thread has gone */
#define MLI_THREAD_ID_FIRST 3    /* smaller states of a shard name no thread */
#define MLI_TICKETS_MAX 8        /* tickets that the allocs of a thread come off */
#define MLI_TAG_DEPTH_MAX 64

enum { /* mli_thread.special: what the thread's calls have to do besides. The fast path serves the
          bits of MLI_SPECIAL_ROWS; any other bit sends a call to the general path. */
    MLI_SPECIAL_TAG = 1,         /* it has a tag */
    MLI_SPECIAL_ORPHAN = 2,      /* it is the orphan record: its cells are locked */
    MLI_SPECIAL_SITES = 4,       /* the ledger counts sites */
    MLI_SPECIAL_TRACE = 8,       /* the ledger logs every call */
    MLI_SPECIAL_NO_BARRIER = 16, /* no mli_barrier_all: it enters by an exchange. It is
                                    never cleared */
    MLI_SPECIAL_TICKET = 32,     /* it has tickets to draw its allocs from */
    MLI_SPECIAL_ACCOUNT = 128,   /* its blocks are charged to an account */
    MLI_SPECIAL_SCOPE = 64,      /* it is in a scope, or was: an alloc outside clears it */
    MLI_SPECIAL_ROWS = MLI_SPECIAL_TAG | MLI_SPECIAL_SITES | /* the fast path serves these */
                       MLI_SPECIAL_SCOPE
};

/* One entry of a thread's cache: the result of a look-up by a pointer. See >>sites. */
typedef struct mli_cache_entry {
    const void *key; /* NULL: vacant */
    void *value;     /* a cell, a kept name or a thread scope */
    uint64_t bits;   /* for a row: its bits in word2 */
    uint32_t salt;   /* the kind of entry, and the rest of the key */
} mli_cache_entry;
#define MLI_CACHE_MIN 32   /* homes of the first cache, which lies in the thread record */
#define MLI_CACHE_PATH 8   /* entries probed before one is evicted */

/* The record of a thread in one ledger. */
typedef struct mli_thread {
    mli_ptr inside;         /* the shard it is inside; NULL: none. See >>map */
    uint32_t id;            /* 3, 4, 5 ...: the state of the shards it owns */
    mli_u32 special;        /* MLI_SPECIAL_...: what a call has to do besides */
    mli_u32 fenced;         /* 1: it has seen MLI_SPECIAL_NO_BARRIER, and enters by an exchange */
    const char *tag;        /* the innermost tag, a kept name; NULL: none */
    mli_cache_entry *cache; /* the cache: open addressing; the last entry stays vacant */
    uint32_t cache_mask;    /* homes of the cache less 1 */
    uint32_t cache_count;   /* entries in use: at most 3/8 of the homes */
    uint32_t tag_depth;
    mli_ptr devices[MEMLORD_MAX_DEVICES + 1]; /* mli_cell *: of devices, by dev; NULL: none */
    mli_book books[MLI_BOOKS];                /* cells of sites and tags */
    struct {
        mli_ptr *at;
        size_t cap;
    } own_chunks[MLI_BOOKS];         /* the same for the thread itself: no acquire, no header */
    mli_ptr next;                    /* all records of the ledger; push only */
    mli_u64 owner;                   /* its thread's number; 0: free, or the orphan record */
    struct mli_subbuf *subbuf;       /* the sub-buffer it writes events to; NULL: none yet */
    struct mli_frame *frame;         /* of the innermost scope; NULL: it is in none */
    struct mli_frame *frames;        /* its first frame, which it uses again; NULL: none yet */
    uint64_t birth_mark, birth_bits; /* sites.birth_mark, and the birth bits of this scope for it;
                                        birth_bits 0: not looked up */
    struct memlord *lord;
    mli_u64 detached, detached_bytes; /* blocks that its reallocs took off the map, less those put
                                         back; their bytes; modulo 2^64. See mli_detached_count */
    uint32_t other_dev;      /* a device that this call or an earlier one took bytes from, until
                                mli_call_end has looked at it; 0: none */
    memlord_account account;       /* that its blocks are charged to; 0: none */
    memlord_device account_device; /* of that account */
    uint32_t open_tickets;   /* in `tickets`; other threads may have closed or adopted some */
    memlord_ticket tickets[MLI_TICKETS_MAX];
    const char *tags[MLI_TAG_DEPTH_MAX]; /* the tags around the innermost */
    mli_cache_entry cache_inline[MLI_CACHE_MIN + MLI_CACHE_PATH];
} mli_thread;

enum { /* mli_helper.state */
    MLI_HELPER_NONE,  /* it has no thread */
    MLI_HELPER_BUSY,  /* another thread starts, wakes or joins it */
    MLI_HELPER_RUNS,  /* its thread runs */
    MLI_HELPER_FAILED /* no thread could be started: memlord_gc_poll samples instead */
};

/* The function that writes a requested report; `end` 1: at the end of the ledger. It is reached by
   a pointer, so that a program without reports need not link them. */
typedef struct mli_saver {
    void (*save)(struct memlord *lord, int end);
} mli_saver;

enum {                        /* memlord.threads.alert: work for the end of a call */
    MLI_ALERT_THREADS = 1, /* more threads than the margins allow for, or records to sweep */
    MLI_ALERT_DROPS = 2,   /* there are fences to drop */
    MLI_ALERT_WAITER = 4,  /* a thread waits for a free */
    MLI_ALERT_POLLER = 8,  /* a device is new, and all devices are to have pollers */
    MLI_ALERT_EVENTS = 16, /* the ledger records events; the end of a call need not do more */
    MLI_ALERT_SAVE = 32,   /* a report was requested */
    MLI_ALERT_PENDS = 64,  /* shifted by a device type: fences of that type are queued */
    MLI_ALERT_BANDS = 64 << MEMLORD_DEVICE_TYPE_COUNT /* a count, not a bit: one for each
                                                         near_threshold and check_requested */
};

enum { /* memlord.threads.hooks: the bits that every thread has in `special` */
    MLI_HOOK_SITES = MLI_SPECIAL_SITES,
    MLI_HOOK_TRACE = MLI_SPECIAL_TRACE
};

/* mli_thread_first and mli_thread_next walk all thread records of a ledger. The acquire pairs with
   the exchange in mli_thread_start. */
static MLI_HOT mli_thread *mli_thread_first(const memlord *lord) {
    return (mli_thread *)mli_ptr_load_acquire(&lord->threads.all);
}
static MLI_HOT mli_thread *mli_thread_next(const mli_thread *t) {
    return (mli_thread *)mli_ptr_load(&t->next);
}

/* Sets or clears a bit of a thread's `special` mask. Its own thread, threads that lack a barrier
   and memlord_sites_enable may do so at the same time. */
static void mli_special_set(mli_thread *t, uint32_t bit, int on) {
    (void)mli_u32_bits(&t->special, bit, on);
}

/* Makes a thread enter by an exchange from its first call on, if the system has no barrier. Calls
   on the orphan record always do: several threads share it, so what one has seen holds for no
   other. Requires: the caller owns the record, or no thread does. The exchange and the load are
   seq_cst: see mli_barrier_threads. */
static MLI_COLD void mli_thread_fence(mli_thread *t) {
    (void)mli_u32_exchange(&t->fenced, 0);
    if (t != t->lord->threads.orphan && mli_u32_load_seqcst(&mli_process.has_barrier)) return;
    mli_special_set(t, MLI_SPECIAL_NO_BARRIER, 1);
    mli_u32_store_release(&t->fenced, 1);
}

/* Returns the record of the thread with a number; NULL: it has none. Requires: the number is not 0;
   a call on the ledger is in progress, or the caller holds the registry lock. The load is relaxed
   and pairs with nothing: a thread looks for the number that it stored itself, and others clear it
   only after its end. */
static mli_thread *mli_thread_of(const memlord *lord, uint64_t number) {
    mli_thread *t = mli_thread_first(lord);
    while (t && mli_u64_load(&t->owner) != number) t = mli_thread_next(t);
    return t;
}
/* Returns the record of the calling thread; NULL: it has none. */
static mli_thread *mli_thread_own(const memlord *lord) {
    return mli_self.number ? mli_thread_of(lord, mli_self.number) : NULL;
}

/* Sets or clears a bit of the alert mask, which the end of every call reads. Returns 1 if that
   changes the mask. Seq_cst: see mli_call_end_slow. */
static int mli_alert_set(memlord *lord, uint32_t bit, int on) {
    return mli_u32_bits(&lord->threads.alert, bit, on);
}

/* Returns how many thread records the ledger has, the orphan record included. */
static uint32_t mli_thread_count(memlord *lord) {
    return mli_u32_load(&lord->threads.next_id) - MLI_THREAD_ID_FIRST;
}

/* Makes zeroed memory a thread record and adds it to the list. Requires: the caller holds the
   registry lock. */
static void mli_thread_start(memlord *lord, mli_thread *t, uint64_t owner) {
    t->id = mli_u32_add(&lord->threads.next_id, 1);
    mli_u32_store(&t->special, mli_u32_load(&lord->threads.hooks));
    t->lord = lord;
    t->cache = t->cache_inline;
    t->cache_mask = MLI_CACHE_MIN - 1;
    if (mli_thread_count(lord) >
        mli_u32_load(&lord->bands.thread_allowance)) /* before the thread counts anything */
        mli_alert_set(lord, MLI_ALERT_THREADS, 1);
    mli_u64_store(&t->owner, owner);
    mli_ptr_store(&t->next, mli_ptr_load(&lord->threads.all));
    /* pairs with the acquire in mli_thread_first; seq_cst: see mli_barrier_threads and
       mli_shard_wait */
    (void)mli_ptr_exchange(&lord->threads.all, t);
    mli_thread_fence(t);
}

/* Returns a record without an owner; NULL: there is none. The acquire pairs with the release of
   mli_thread_release: the counts and shards of the record are visible then. */
static mli_thread *mli_thread_spare(memlord *lord) {
    mli_thread *t = mli_thread_first(lord);
    while (t && (t == lord->threads.orphan || mli_u64_load_acquire(&t->owner)))
        t = mli_thread_next(t);
    return t;
}

/* Gives the calling thread a record: a free one, else a new one. NULL: no memory. It raises the
   alert when so many records are in use that dead owners should be swept. */
static MLI_COLD mli_thread *mli_thread_claim(memlord *lord) {
    mli_thread *t, *fresh = NULL;
    for (;;) {
        mli_lock_take(&mli_process.registry_lock);
        t = fresh ? fresh : mli_thread_spare(lord);
        if (fresh) {
            mli_thread_start(lord, fresh, mli_self.number);
        } else if (t) {
            mli_u64_store(&t->owner, mli_self.number);
            mli_thread_fence(t);
        }
        if (t && mli_thread_count(lord) >= lord->threads.sweep_at && !mli_thread_spare(lord))
            mli_alert_set(lord, MLI_ALERT_THREADS, 1);
        mli_lock_drop(&mli_process.registry_lock);
        if (t) return t;
        fresh = (mli_thread *)mli_own_alloc(lord, sizeof *fresh);
        if (!fresh) return NULL;
    }
}

/* Disowns the records of a thread number in all ledgers. Their owner is a thread that has ended, or
   the calling thread before its thread-local storage was freed. The next sweep frees them. */
static MLI_COLD void mli_threads_disown(uint64_t number) {
    memlord *lord;
    mli_lock_take(&mli_process.registry_lock);
    for (lord = mli_process.ledgers; lord; lord = lord->lifecycle.next) {
        mli_thread *t = mli_thread_of(lord, number);
        if (!t) continue;
        mli_u64_store(&t->owner, MLI_NOBODY);
        lord->threads.sweep_at = 0;
        mli_alert_set(lord, MLI_ALERT_THREADS, 1);
    }
    mli_lock_drop(&mli_process.registry_lock);
}

/* Sets the exit hook of the calling thread, with its number as the argument. */
static void mli_thread_hook(uint64_t number) {
    void *value = (void *)(uintptr_t)number;
    mli_self.hooked = mli_exit_key_set(mli_process.exit_key, value) == 0;
}
/* Gets the calling thread's number and sets its exit hook, once. 0: the thread gets no record. Then
   its exit hook has run, or no hook can be set, or it belongs to another process: a child of vfork
   shares this memory and this thread-local storage, and its kernel reports all threads here as
   ended. */
static MLI_COLD int mli_thread_ready(void) {
    if (mli_self.exited || !mli_process.exit_key_ready || mli_pid() != mli_process.pid) return 0;
    if (!mli_self.number) {
        uint64_t number = mli_thread_number();
        mli_threads_disown(number);
        mli_self.number = number;
    }
    if (!mli_self.hooked) {
        mli_self.in_host_alloc = 1; /* pthread_setspecific may call malloc */
        mli_thread_hook(mli_self.number);
        mli_self.in_host_alloc = 0;
    }
    return mli_self.hooked != 0;
}

/* Returns the calling thread's record when the thread-local one is of another ledger, or this is
   the thread's first call. Returns NULL inside the ledger's own call of the host's allocator: the
   call must pass through. Returns the orphan record, locked, past the thread's exit hook or without
   memory for a record. */
static MLI_COLD mli_thread *mli_thread_get_slow(memlord *lord) {
    mli_used *used = &mli_self.used[lord->threads.generation % MLI_USED];
    mli_thread *t = NULL;
    if (mli_self.in_host_alloc) return NULL;
    if (!mli_self.exited)
        t = used->generation == lord->threads.generation ? used->thread : mli_thread_own(lord);
    if (!t && mli_thread_ready()) t = mli_thread_claim(lord);
    if (t) {
        mli_self.generation = used->generation = lord->threads.generation;
        mli_self.thread = used->thread = t;
        return t;
    }
    mli_lock_take(&lord->threads.orphan_lock);
    mli_self.orphaned = lord;
    return lord->threads.orphan;
}

/* Returns the calling thread's record; NULL: the call must pass through. Every call that got one
   ends with mli_thread_put. */
static MLI_NOINLINE mli_thread *mli_thread_get(memlord *lord) {
    if (MLI_LIKELY(mli_self.generation == lord->threads.generation))
        return mli_self.thread;
    return mli_thread_get_slow(lord);
}
/* Ends a call that mli_thread_get began. */
static MLI_HOT void mli_thread_put(memlord *lord, mli_thread *t) {
    if (MLI_LIKELY(t != lord->threads.orphan)) return;
    mli_self.orphaned = NULL;
    mli_lock_drop(&lord->threads.orphan_lock);
}

/* Writes a requested report, unless another thread does or the caller is inside the host's
   allocator. The request, which may come from a signal, is a bit; the thread that clears it serves
   it. The acquire pairs with the release that set the saver. */
static MLI_COLD void mli_save_serve(memlord *lord) {
    const mli_saver *saver;
    if (mli_self.in_host_alloc || !mli_alert_set(lord, MLI_ALERT_SAVE, 0)) return;
    saver = (const mli_saver *)mli_ptr_load_acquire(&lord->saving.saver);
    saver->save(lord, 0);
}

/* Ends a call that records something but counts no bytes, and returns `r`. Requires: the caller
   holds no lock and is not inside. */
static MLI_NOINLINE memlord_result mli_call_end_uncounted(memlord *lord, memlord_result r) {
    if (MLI_UNLIKELY(mli_u32_load(&lord->threads.alert) & MLI_ALERT_SAVE) &&
        !(lord->threads.flags & MEMLORD_FLAG_DEFER))
        mli_save_serve(lord);
    return r;
}

/* -- helpers -- */

/* Starts a helper that has no thread, unless *wish says `none` by now: it is not wanted any more.
   0: it runs, another thread starts or stops it, or it is not wanted. 1: no thread could be
   started, and its state is now `failed`. -1: its state was MLI_HELPER_FAILED before. */
static MLI_COLD int mli_helper_start(mli_helper *h, mli_u32 *wish, uint32_t none, uint32_t failed,
                                     void (*run)(void *), void *user) {
    uint32_t seen = MLI_HELPER_NONE;
    uint64_t generation;
    int bad = 1;
    if (!mli_u32_cas(&h->state, &seen, MLI_HELPER_BUSY))
        return seen == MLI_HELPER_FAILED ? -1 : 0;
    /* seq_cst, as the exchange that withdraws the wish: one of the two threads sees the other */
    if (mli_u32_add(wish, 0) == none) {
        mli_u32_store_release(&h->state, MLI_HELPER_NONE);
        return 0;
    }
    h->job.run = run;
    h->job.user = user;
    mli_u32_store(&h->stop, 0);
    generation = mli_busy_begin(); /* a thread's stack may come from a hooked malloc */
    if (!MLI_THREADLESS && mli_os_event_open(&h->wake) == 0) {
        bad = mli_os_thread_start(&h->worker, &h->job);
        if (bad) mli_os_event_close(&h->wake);
    }
    mli_busy_end(generation);
    if (!bad) failed = MLI_HELPER_RUNS;
    mli_u32_store_release(&h->state, failed);
    return bad != 0;
}

/* Stops a helper and joins its thread. Requires: the caller is not that thread. */
static MLI_COLD void mli_helper_stop(mli_helper *h) {
    unsigned spins = 0;
    uint32_t seen = MLI_HELPER_RUNS;
    while (!mli_u32_cas(&h->state, &seen, MLI_HELPER_BUSY)) {
        if (seen == MLI_HELPER_FAILED) mli_u32_store(&h->state, MLI_HELPER_NONE);
        if (seen == MLI_HELPER_NONE || seen == MLI_HELPER_FAILED) return;
        mli_spin_wait(&spins);
        seen = MLI_HELPER_RUNS;
    }
    mli_u32_store_release(&h->stop, 1); /* pairs with the acquires of mli_helper_wait */
    mli_os_event_set(&h->wake);
    mli_os_thread_join(h->worker);
    mli_os_event_close(&h->wake);
    mli_u32_store_release(&h->state, MLI_HELPER_NONE);
}

/* Waits for `ms`, or until the helper is woken. 1: go on; 0: the helper must end. The time counts
   from now: after a SIGSTOP the helper does not catch up on missed rounds. */
static MLI_COLD int mli_helper_wait(mli_helper *h, uint32_t ms) {
    if (!mli_u32_load_acquire(&h->stop)) mli_os_event_wait(&h->wake, ms);
    return !mli_u32_load_acquire(&h->stop);
}

/* Returns 1 if the ledger may start threads of its own. */
static int mli_polling_enabled(memlord *lord) {
    return !MLI_THREADLESS && !(lord->threads.flags & MEMLORD_FLAG_NO_THREADS);
}

/* -------------------------------------------------------------------------- >>map --
   Owns the map from (device type, storage) to a 24-byte entry. Uses >>memory and >>threads. It
   counts nothing itself: the caller counts while it is still inside the shard.

   One alloc on the fast path (mli_alloc_fast):
     mli_shard_of           chooses the shard by the address
     mli_home_enter         enters the shard: the thread must own it, or it must be shared
     mli_home_room          sees that the key is new, and finds a vacant slot of its home bucket:
                            the call writes the entry there, then the header with its print
     mli_cell_count_alloc   counts the bytes: see >>counters
     mli_shard_leave        leaves the shard
   One free (mli_free_fast) takes the same steps with mli_home_find and mli_cell_count_free. If the
   home bucket does not decide, mli_probe_scan probes the buckets after it. If another thread owns
   the shard, or that fails, too, the call leaves before it has changed anything. It then takes the
   general path: mli_probe_find does all of it, and waits, grows the table or makes the shard
   shared where it must.

   Invariants and the reasons for the shape (bench/README.md has the figures):

   - 1024 shards. The 2 MiB region of the address chooses the shard, not a hash of the whole
     address: the blocks of one thread stay in shards, and so in cache lines, of its own.
   - The first thread that uses a shard owns it. On every call a thread stores in `inside` which
     shard it enters, then loads the shard's state. If the state is the thread's id, the thread
     works with plain loads and stores. A thread that must stop the shard stores STOPPED and makes
     all threads pass a barrier (mli_barrier_threads): then either it sees `inside`, or the owner
     sees STOPPED. It waits until no thread is inside. So the fast path in an owned shard has no
     atomic read-modify-write, which halves its cost. Where the system has no such barrier, or
     refuses it later, the store to `inside` is an exchange. The first call of a second thread
     makes the shard SHARED for good. Buckets of a shared shard are locked one by one, by a bit in
     their header.
   - A table is an array of buckets. A bucket is two adjacent cache lines: a header with five
     prints, and five entries. All prints are compared at once, without a loop whose branch could
     be mispredicted. A call touches one bucket, and its address follows from the key alone:
     so the cache misses of successive calls overlap.
   - An entry that finds its home bucket full goes to a later bucket. Every bucket it passes
     increments one of its four overflow counts; bits of the hash choose which. A probe stops at a
     bucket whose overflow count for the hash is 0. So erasing leaves no tombstone, and a vacant
     slot does not end a probe.
   - A table grows by a fifth to a third when the entries outside their home are 14/64 to 38/64 of
     its buckets (2/64 in a small ledger). The share differs from shard to shard, so that they do
     not all grow at once and one shard can use the memory that another returned. The new table is
     allocated before the shard is stopped. Only threads that use this shard wait.

   Locks: shard, then bucket. A thread waits for the lock of the home bucket. It only tries the
   locks of later buckets, and drops all of them when one is taken, so waiters form no cycle. */

#define MLI_BYTES_MAX ((uint64_t)1 << 48)

/* A block in the map: 24 bytes. Fields start at the lowest bit.
     word1   bytes:49 | dev:8 | references:7 (127: the side record has the count)
     word2   0:1 | site row:20 | tag row:16 | birth:27; or the address of a side record | 1
     birth   the mark:26, then 0; for a block born in a scope the number of a birth:26, then 1 */
typedef struct mli_entry {
    uint64_t key, word1, word2;
} mli_entry;

typedef char mli_check_entry[sizeof(mli_entry) == 24 ? 1 : -1];

#define MLI_BYTES(word1) ((word1) & (((uint64_t)1 << 49) - 1))
#define MLI_DEV(word1) ((uint32_t)((word1) >> 49) & 255u)
#define MLI_REFS(word1) ((uint32_t)((word1) >> 57))
#define MLI_REFS_ONE ((uint64_t)1 << 57)
#define MLI_REFS_MANY 127u
#define MLI_SITE_ROW(word2) ((uint32_t)((word2) >> 1) & 0xfffffu)
#define MLI_TAG_ROW(word2) ((uint32_t)((word2) >> 21) & 0xffffu)
#define MLI_BIRTH(word2) ((word2) >> 37)
#define MLI_BIRTH_BITS 27
#define MLI_MARK_MAX (((uint64_t)1 << (MLI_BIRTH_BITS - 1)) - 1)
#define MLI_BIRTH_SCOPED (MLI_MARK_MAX + 1) /* the other bits are the number of a birth */
#define MLI_BIRTHS_MAX (1u << 20)
#define MLI_ROWS_MASK (((uint64_t)1 << 37) - 1)
#define MLI_SITE_ROWS_MAX 0xfffffu
#define MLI_TAG_ROWS_MAX 0xffffu
#define MLI_TAG_BITS_OF_ROWS ((uint64_t)MLI_TAG_ROWS_MAX << 21)

#define MLI_SHARDS (1u << MLI_SHARD_BITS)
#define MLI_ADDRESS_REGION_BITS 21
#define MLI_BUCKET_SLOTS 5
#define MLI_PROBE_MAX 16 /* buckets of a window: home and the 15 after it */
#define MLI_BUCKET_BYTES 128
#define MLI_SPARE_BUCKETS 640 /* below it a ledger is small: 1,500 blocks or so */

/* States of a shard: no table yet, shared, stopped. From 3 on it is the id of the owner. */
enum {
    MLI_SHARD_NEW,
    MLI_SHARD_SHARED,
    MLI_SHARD_STOPPED,
    MLI_SHARD_OWNED = MLI_THREAD_ID_FIRST
};

/* header: bytes 0..4 the prints of the slots, 0 is vacant; bits 40..55 four overflow counts of 4
   bits; bit 63 the lock */
typedef struct mli_bucket {
    mli_u64 header;
    mli_entry slots[MLI_BUCKET_SLOTS];
} mli_bucket;
typedef char mli_check_bucket[sizeof(mli_bucket) == MLI_BUCKET_BYTES ? 1 : -1];

#define MLI_PRINT_LOW_BITS 0x0101010101u
#define MLI_BUCKET_LOCK ((uint64_t)1 << 63)

/* Returns the hash of a key. Blocks of one size lie at equal distances, and a product preserves
   that: at one distance in ten many keys would share few buckets. The shift breaks the pattern.
   The constant comes from the finalizer of MurmurHash3. The upper 32 bits are well mixed, and so
   are the bits just below them: the home uses the former, the print and the overflow count the
   latter. The type is not hashed: equal handles of two types are rare, and share a home. */
static MLI_HOT uint64_t mli_hash(uint64_t key) {
    return (key ^ key >> 5) * 0xc4ceb9fe1a85ec53u;
}
#define MLI_HASH_PRINT(h) ((uint64_t)((uint32_t)(h) >> 24 | 1))
/* The bit where the overflow count for a hash begins in a header: 40, 44, 48 or 52. */
#define MLI_HASH_OVERFLOW(h) (40 + ((unsigned)(h) >> 18 & 12))
#define MLI_OVERFLOW_MAX 15
static MLI_HOT unsigned mli_overflow_count(uint64_t header, unsigned overflow) {
    return (unsigned)(header >> overflow) & MLI_OVERFLOW_MAX;
}
/* One handle may be a key of every type: the home and one overflow count must admit them all. */
typedef char mli_check_overflow[MLI_BUCKET_SLOTS + MLI_OVERFLOW_MAX >= MLI_TYPE_COUNT ? 1 : -1];

/* Keys below 1 << MLI_HANDLE_BITS are handles. They are spread over shards by 1 KiB instead of
   2 MiB. The fast path (plain = 1) skips that test: it inserts no handle, and it probes for one
   where an address would be, misses, and takes the general path. The bound is 4 MiB on 64 bits: a
   program that is not position independent begins there, and its heap soon after. */
#if UINTPTR_MAX > 0xffffffffu
#define MLI_HANDLE_BITS 22
#else
#define MLI_HANDLE_BITS 20
#endif
static MLI_HOT mli_shard *mli_shard_of(memlord *lord, uint64_t key, int plain) {
    uint64_t region = key >> MLI_ADDRESS_REGION_BITS;
    if (!plain && !(key >> MLI_HANDLE_BITS)) region = key >> 10;
    return &lord->map.shards[(region * 0x9e3779b97f4a7c15u) >> (64 - MLI_SHARD_BITS)];
}
/* Returns the home bucket of a hash. Requires: the caller is inside and the shard has a table. */
static MLI_HOT mli_bucket *mli_home_bucket(const mli_shard *s, uint64_t hash) {
    return (mli_bucket *)(void *)(s->table + (((hash >> 32) * s->size) >> 32) * MLI_BUCKET_BYTES);
}

/* Returns the index of the lowest set bit. Requires: one is set. */
static MLI_HOT unsigned mli_lowest_bit(uint64_t bits) {
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(bits);
#else
    unsigned i = 0;
    while (!(bits >> i & 1)) i++;
    return i;
#endif
}

#if MLI_SSE2
/* mli_print_match returns a mask of the slots that hold a print. mli_print_match_bit returns the
   bit where the print of the lowest such slot begins in the header. Vectors take as many
   instructions as the other version but half the registers, and the free registers bound how far
   ahead a processor executes. */
static MLI_HOT uint64_t mli_print_match(uint64_t header, uint64_t print) {
    __m128i prints = _mm_cvtsi32_si128((int)print);
    prints = _mm_shufflelo_epi16(_mm_unpacklo_epi8(prints, prints), 0);
    prints = _mm_cmpeq_epi8(prints, _mm_cvtsi64_si128((long long)header));
    return (unsigned)_mm_movemask_epi8(prints) & ((1u << MLI_BUCKET_SLOTS) - 1);
}
static MLI_HOT unsigned mli_print_match_bit(uint64_t match) {
    return mli_lowest_bit(match) * 8;
}
#else
static MLI_HOT uint64_t mli_print_match(uint64_t header, uint64_t print) {
    const uint64_t low = MLI_PRINT_LOW_BITS * 127;
    uint64_t x = header ^ (print * MLI_PRINT_LOW_BITS);
    return ~(((x & low) + low) | x | low) & (MLI_PRINT_LOW_BITS << 7);
}
static MLI_HOT unsigned mli_print_match_bit(uint64_t match) {
    return mli_lowest_bit(match) - 7;
}
#endif

/* Returns the vacant slots, as the lowest bits of their prints. The print of an entry is odd. */
static MLI_HOT uint64_t mli_vacant_slots(uint64_t header) {
    return ~header & MLI_PRINT_LOW_BITS;
}
/* Returns the entry of the slot whose print begins at a bit. A print has 8 bits, so each bit stands
   for an eighth of an entry. */
static MLI_HOT mli_entry *mli_slot_entry(mli_bucket *b, unsigned bit) {
    return (mli_entry *)(void *)((char *)b->slots + sizeof *b->slots / 8 * (size_t)bit);
}

/* Returns the bucket after b. After the last, which lies before `end`, comes the first. */
static MLI_HOT mli_bucket *mli_bucket_next(const mli_shard *s, mli_bucket *b,
                                           const mli_bucket *end) {
    return b + 1 == end ? (mli_bucket *)(void *)s->table : b + 1;
}
static MLI_HOT mli_bucket *mli_buckets_end(const mli_shard *s) {
    return (mli_bucket *)(void *)s->table + s->size;
}

/* -- entering a shard -- */

/* Enters as mli_shard_enter does, with a full barrier of its own: the exchange. `fenced` = 1 says
   that this record enters by an exchange from here on: the bit in `special` is never cleared, and
   a later load never returns an older value. The release pairs with the load in
   mli_barrier_threads: it makes visible all that the thread did inside before it saw the bit. */
static MLI_NOINLINE uint32_t mli_enter_fenced(mli_thread *t, mli_shard *s) {
    mli_u32_store_release(&t->fenced, 1);
    (void)mli_ptr_exchange(&t->inside, s);
    return mli_u32_load_seqcst(&s->state);
}
/* Enters a shard: stores it in `inside`, then returns the shard's state. The caller may use the
   table if the state is its thread id, or if it is SHARED and the caller locks the buckets.
   Otherwise the caller leaves at once.

   Memory order: the release keeps the thread's earlier work before the store, for a thread that
   stops the shard. The acquire pairs with the release of the state by that thread. The store must
   come before the load. mli_barrier_threads ensures that, or else the exchange and the seq_cst
   loads in mli_enter_fenced, mli_shard_stop and mli_shard_wait: a load that is only an acquire may
   come before the store of an exchange (ARM's ldapr). `plain` = 1: the caller has just read
   `special` without MLI_SPECIAL_NO_BARRIER. */
static MLI_HOT uint32_t mli_shard_enter(mli_thread *t, mli_shard *s, int plain) {
    mli_rank_inside(1);
    if (!plain && (mli_u32_load(&t->special) & MLI_SPECIAL_NO_BARRIER))
        return mli_enter_fenced(t, s);
    mli_ptr_store_release(&t->inside, s);
    mli_compiler_barrier();
    return mli_u32_load_acquire(&s->state);
}
/* Leaves the shard. The release pairs with the load of mli_shard_wait: the thread that stopped the
   shard sees all that this thread did inside. */
static MLI_HOT void mli_shard_leave(mli_thread *t) {
    mli_rank_inside(0);
    mli_ptr_store_release(&t->inside, NULL);
}

#define MLI_DRAIN_NS 1000000u
/* Waits until every store that a processor has executed by now is visible to all threads. A
   processor drains its store buffer by itself within microseconds, and before it runs another
   thread. */
static MLI_COLD void mli_stores_drain(void) {
    const uint64_t begin = mli_now();
    unsigned tries = 0; /* a sandbox may refuse to sleep, and the clock may stand still */
    do {
        mli_nap(MLI_DRAIN_NS);
    } while (mli_now() - begin < MLI_DRAIN_NS && ++tries < 1000);
}
/* Orders the caller against every thread T of the ledger: either T sees what the caller stored
   before this call, or the caller sees after it what T stored before T's load. It is used for a
   shard's state and `inside`, and for the alert or a threshold and the counts.

   The system's barrier provides this. Without it T passes a barrier of its own: the exchange when
   it enters a shard (mli_enter_fenced), and the addition when it ends a call (mli_call_end_slow),
   which pairs with the addition here.

   The system may refuse its barrier after threads have run without barriers of their own. A thread
   may then have read `special` without the bit, and it may be preempted for any time before it
   stores. So until T is seen to enter by an exchange, each caller waits for stores to drain. If T
   loaded before the caller stored, T's earlier stores are visible after the wait. If T loads
   later, it sees the caller's store. The wait has a bound: a thread that sleeps delays no call for
   longer.

   Several callers may find the refusal at once, while others still had the barrier: each is
   ordered by its own means. A thread that registers meanwhile, or takes over a free record, is
   seen here or reads `has_barrier` as 0: the exchanges and loads of `has_barrier`, `threads.all`
   and `fenced` are seq_cst. */
static MLI_COLD void mli_barrier_threads(memlord *lord) {
    mli_thread *t;
    int drain = 0;
    if (mli_u32_load_seqcst(&mli_process.has_barrier)) {
        if (mli_barrier_all()) return;
        (void)mli_u32_exchange(&mli_process.has_barrier, 0);
    }
    (void)mli_u32_add(&lord->threads.alert, 0);
    t = (mli_thread *)mli_ptr_load_seqcst(&lord->threads.all);
    for (; t; t = mli_thread_next(t)) {
        if (mli_u32_load_seqcst(&t->fenced)) continue;
        mli_special_set(t, MLI_SPECIAL_NO_BARRIER, 1);
        drain = 1;
    }
    if (drain) mli_stores_drain();
}

/* Waits until no thread is inside s (NULL: inside any shard). Requires: the state is STOPPED, and
   all threads have passed a barrier since. The load of the list is seq_cst and pairs with the
   exchange in mli_thread_start: a thread that is not on the list yet sees STOPPED. */
static void mli_shard_wait(memlord *lord, const mli_shard *s) {
    mli_thread *t = (mli_thread *)mli_ptr_load_seqcst(&lord->threads.all);
    for (; t; t = mli_thread_next(t)) {
        unsigned n = 0;
        for (;;) {
            const void *inside = mli_ptr_load_seqcst(&t->inside);
            if (!inside || (s && inside != s)) break;
            mli_spin_wait(&n);
        }
    }
}

/* Stops a shard in any state: keeps threads out, and waits until all inside have left. Requires:
   the caller holds the shard's lock and is not inside. */
static void mli_shard_stop(memlord *lord, mli_shard *s) {
    (void)mli_u32_exchange(&s->state, MLI_SHARD_STOPPED);
    mli_barrier_threads(lord);
    mli_shard_wait(lord, s);
}

/* Stops a shard so that the caller can read all of it, and keeps its lock. 0: the shard has no
   table and was not stopped. */
static int mli_shard_pause(memlord *lord, mli_shard *s) {
    mli_lock_take(&s->lock);
    s->stopped_state = mli_u32_load(&s->state);
    if (s->stopped_state == MLI_SHARD_NEW) {
        mli_lock_drop(&s->lock);
        return 0;
    }
    mli_shard_stop(lord, s);
    return 1;
}
/* Ends a pause: restores the state and drops the lock. The release pairs with the acquire in
   mli_shard_enter. */
static void mli_shard_resume(mli_shard *s) {
    mli_u32_store_release(&s->state, s->stopped_state);
    mli_lock_drop(&s->lock);
}

/* Stops all shards with one barrier, for a fork. Takes all shard locks; mli_map_thaw drops them. */
static void mli_map_freeze(memlord *lord) {
    uint32_t i;
    for (i = 0; i < MLI_SHARDS; i++) {
        mli_shard *s = &lord->map.shards[i];
        mli_lock_take(&s->lock);
        s->stopped_state = mli_u32_load(&s->state);
        (void)mli_u32_exchange(&s->state, MLI_SHARD_STOPPED);
    }
    mli_barrier_threads(lord);
    mli_shard_wait(lord, NULL);
}
static void mli_map_thaw(memlord *lord) {
    uint32_t i;
    for (i = 0; i < MLI_SHARDS; i++) mli_shard_resume(&lord->map.shards[i]);
}

/* -- tables -- */

/* Returns the next size of a table: 1, 2, ... 5, 6, 8, 10, 12, 16 ... From 8 on it doubles in
   three steps. */
static uint32_t mli_buckets_next(uint32_t n) {
    uint32_t step = 1;
    while (step * 8 <= n) step *= 2;
    return n + (n == step * 6 ? 2 * step : step);
}

/* A table outside a shard: one that is being filled, or one that was replaced. */
typedef struct mli_table {
    char *data;
    uint32_t size, displaced, count;
} mli_table;

/* Inserts an entry into a table that no other thread sees. -1: no bucket of its window has room, or
   an overflow count on the way is full. */
static int mli_table_insert(mli_table *table, const mli_entry *entry) {
    uint64_t hash = mli_hash(entry->key);
    uint64_t home = ((hash >> 32) * table->size) >> 32, at = home;
    uint32_t passed;
    for (passed = 0; passed < MLI_PROBE_MAX && passed < table->size; passed++) {
        mli_bucket *b = (mli_bucket *)(void *)table->data + at;
        uint64_t header = mli_u64_load(&b->header), vacant = mli_vacant_slots(header);
        if (vacant) {
            unsigned i = mli_lowest_bit(vacant) / 8;
            b->slots[i] = *entry;
            mli_u64_store(&b->header, header | MLI_HASH_PRINT(hash) << (8 * i));
            table->displaced += at != home;
            table->count++;
            return 0;
        }
        if (mli_overflow_count(header, MLI_HASH_OVERFLOW(hash)) == MLI_OVERFLOW_MAX) return -1;
        mli_u64_store(&b->header, header + ((uint64_t)1 << MLI_HASH_OVERFLOW(hash)));
        if (++at == table->size) at = 0;
    }
    return -1;
}

/* Calls fn for every entry of a shard until fn returns nonzero, and returns that. Requires: the
   shard is stopped, or the caller owns it. */
typedef int (*mli_entry_fn)(const mli_entry *entry, void *user);
static int mli_shard_each(const mli_shard *s, mli_entry_fn fn, void *user) {
    uint32_t i, j;
    int stop = 0;
    for (i = 0; i < s->size && !stop; i++) {
        const mli_bucket *b = (const mli_bucket *)(const void *)s->table + i;
        for (j = 0; j < MLI_BUCKET_SLOTS && !stop; j++)
            if ((mli_u64_load(&b->header) >> (8 * j)) & 255) stop = fn(&b->slots[j], user);
    }
    return stop;
}
static int mli_table_insert_visited(const mli_entry *entry, void *user) {
    return mli_table_insert((mli_table *)user, entry);
}

/* Replaces a shard's table by a larger one. 0: done, and `next` is now the old table. 1: the
   entries do not fit in `next`. -1: they will fit in no table, since the old one is almost empty
   and yet too small: the keys were made to collide. The first table also gives the shard its owner,
   or makes it shared if the record is the orphan's. Requires: the caller holds the shard's lock. */
static MLI_COLD int mli_shard_swap_table(memlord *lord, mli_thread *t,
                                         mli_shard *s, mli_table *next) {
    uint32_t state = mli_u32_load(&s->state);
    mli_table old;
    int failed;
    if (state != MLI_SHARD_NEW && state != t->id) mli_shard_stop(lord, s);
    memset(&old, 0, sizeof old);
    old.data = s->table;
    old.size = s->size;
    failed = mli_shard_each(s, mli_table_insert_visited, next) != 0;
    if (!failed && next->count < old.size / 32) failed = -1; /* keys made to collide */
    if (!failed) {
        s->table = next->data;
        s->size = next->size;
        mli_u32_store(&s->displaced, next->displaced);
        *next = old;
        if (state == MLI_SHARD_NEW)
            state = t == lord->threads.orphan ? (uint32_t)MLI_SHARD_SHARED : t->id;
    }
    mli_u32_store_release(&s->state, state);
    return failed;
}

/* Gives a shard a larger table, or its first. `size` is the size of the table that the caller found
   too small: if another thread has replaced that table, nothing is left to do and 0 is returned.
   -1: no memory, or no table has room. Requires: the caller is not inside. */
static MLI_COLD int mli_shard_grow(memlord *lord, mli_thread *t, mli_shard *s, uint32_t size) {
    mli_table next;
    uint32_t larger = size;
    unsigned i;
    for (i = 0; i < 18; i++) { /* more steps would mean keys made to collide */
        int failed = 0, same;
        memset(&next, 0, sizeof next);
        next.size = larger = mli_buckets_next(larger);
        next.data = (char *)mli_own_alloc(lord, (size_t)next.size * MLI_BUCKET_BYTES);
        if (!next.data) return -1;
        mli_lock_take(&s->lock);
        same = s->size == size;
        if (same) failed = mli_shard_swap_table(lord, t, s, &next);
        mli_lock_drop(&s->lock);
        if (same && !failed) (void)mli_u32_add(&lord->map.buckets, larger - next.size);
        mli_own_free(lord, next.data, (size_t)next.size * MLI_BUCKET_BYTES);
        if (failed <= 0) return failed;
    }
    return -1;
}

/* Returns 1 if the shard should have a larger table: too many entries are outside their home. The
   bound depends on the shard's number (14, 22, 30 or 38 of 64), so that shards grow at different
   times: equal blocks would make them all grow at once. It is 2 of 64 in a small ledger, which can
   spare the memory: there almost every entry is in its home. Requires: the caller owns the shard,
   or the shard is shared. */
static int mli_shard_crowded(memlord *lord, const mli_shard *s) {
    uint32_t most = 14 + 8 * (uint32_t)((s - lord->map.shards) & 3);
    if (mli_u32_load(&lord->map.buckets) < MLI_SPARE_BUCKETS) most = 2;
    return (uint64_t)mli_u32_load(&s->displaced) * 64 >= (uint64_t)s->size * most;
}

/* Makes a shard of another thread shared for good: stops it first. Requires: the caller is not
   inside. */
static MLI_COLD void mli_shard_make_shared(memlord *lord, mli_thread *t, mli_shard *s) {
    uint32_t state;
    mli_lock_take(&s->lock);
    state = mli_u32_load(&s->state);
    if (state >= MLI_SHARD_OWNED && state != t->id) {
        mli_shard_stop(lord, s);
        mli_u32_store_release(&s->state, MLI_SHARD_SHARED);
    }
    mli_lock_drop(&s->lock);
}

/* -- buckets of a shared shard; the acquire of taking the lock pairs with the release of the header
      that drops it -- */

/* Tries to take a bucket's lock; 1: taken. Only the lock bit of the old header is used, so that x86
   does it in one locked instruction. */
static MLI_HOT int mli_bucket_try(mli_bucket *b) {
    return !(mli_u64_or(&b->header, MLI_BUCKET_LOCK) & MLI_BUCKET_LOCK);
}
static MLI_COLD void mli_bucket_wait(const mli_bucket *b) {
    unsigned n = 0;
    while (mli_u64_load(&b->header) & MLI_BUCKET_LOCK) mli_spin_wait(&n);
}

/* -- probing. Requires, for all of it: the caller is inside the shard. Probing changes no entry: it
      keeps the slot and the header to store; mli_probe_insert or mli_probe_erase then stores it.
      In a shared shard it locks each bucket it probes. The fast path uses the home bucket in
      line, in registers (mli_home); mli_probe_scan probes the whole window for all others -- */

typedef struct mli_probe {
    mli_shard *shard;
    uint64_t key, hash;
    mli_bucket *home;
    mli_entry *entry;    /* of the key; NULL: the key is not live */
    mli_entry *room;     /* the first vacant slot for it; NULL: none was found, or none sought */
    unsigned bucket;     /* the bucket of `entry`, or else of `room`: 0 is the home */
    uint64_t header;     /* to store in it: its header without the entry, or with the new one */
    unsigned held;       /* buckets probed, from the home on; locked if the shard is shared */
    int shared, inside;
} mli_probe;

/* Starts a probe at the home bucket of a key. In a shared shard the caller locks that bucket before
   it looks into it. */
static void mli_probe_begin(mli_probe *probe, mli_shard *s, uint64_t key, int shared) {
    probe->shard = s;
    probe->key = key;
    probe->hash = mli_hash(key);
    probe->home = mli_home_bucket(s, probe->hash);
    probe->bucket = 0;
    probe->held = 1;
    probe->shared = shared;
    probe->inside = 1;
}

/* Looks for the key of a probe in a bucket. 1: found and noted. */
static MLI_HOT int mli_probe_match(const memlord *lord, mli_probe *probe, mli_bucket *b,
                                   uint64_t header, uint32_t type) {
    const uint64_t print = MLI_HASH_PRINT(probe->hash);
    uint64_t match = mli_print_match(header, print);
    for (; match; match &= match - 1) {
        const unsigned bit = mli_print_match_bit(match);
        mli_entry *e = mli_slot_entry(b, bit);
        if (e->key != probe->key || lord->devices.dev_type[MLI_DEV(e->word1)] != type) continue;
        probe->entry = e;
        probe->bucket = probe->held - 1;
        probe->header = header ^ print << bit;
        return 1;
    }
    return 0;
}
/* Probes the window of a key of a type, bucket by bucket from the home, which the probe has begun
   with. It stops at the key, or where no entry of this hash lies further away and, with
   `want_room`, a vacant slot was found. A slot behind a bucket whose overflow count is full is of
   no use. 0: done. -1: another thread holds a later bucket, and the caller must leave. */
static MLI_NOINLINE int mli_probe_scan(const memlord *lord, mli_probe *probe, uint32_t type,
                                       int want_room) {
    const mli_shard *s = probe->shard;
    const mli_bucket *end = mli_buckets_end(s);
    mli_bucket *b = probe->home;
    probe->entry = probe->room = NULL;
    for (;;) {
        const uint64_t header = mli_u64_load(&b->header) & ~MLI_BUCKET_LOCK;
        const unsigned overflow = mli_overflow_count(header, MLI_HASH_OVERFLOW(probe->hash));
        if (mli_probe_match(lord, probe, b, header, type)) return 0;
        if (want_room && mli_vacant_slots(header)) {
            const unsigned bit = mli_lowest_bit(mli_vacant_slots(header));
            probe->room = mli_slot_entry(b, bit);
            probe->bucket = probe->held - 1;
            probe->header = header | MLI_HASH_PRINT(probe->hash) << bit;
            want_room = 0;
        }
        if (!overflow && !want_room) return 0;
        want_room &= overflow != MLI_OVERFLOW_MAX;
        if (probe->held == MLI_PROBE_MAX || probe->held == s->size) return 0;
        b = mli_bucket_next(s, b, end);
        if (probe->shared && !mli_bucket_try(b)) return -1;
        probe->held++;
    }
}

/* Stores the header of a probe that found its slot, or with by = 0 none; adds `by` to the overflow
   counts of the buckets before it, and to `displaced`; and unlocks all buckets of a shared shard.
   The release pairs with the acquire of mli_bucket_try. */
static MLI_NOINLINE void mli_probe_settle(mli_probe *probe, int by) {
    const mli_bucket *end = mli_buckets_end(probe->shard);
    const uint64_t passed = (uint64_t)(int64_t)by << MLI_HASH_OVERFLOW(probe->hash);
    mli_bucket *b = probe->home;
    unsigned k;
    for (k = 0; k < probe->held; k++) {
        uint64_t header = mli_u64_load(&b->header) & ~MLI_BUCKET_LOCK;
        if (k < probe->bucket) header += passed;
        if (k == probe->bucket && by) header = probe->header;
        mli_u64_store_release(&b->header, header);
        b = mli_bucket_next(probe->shard, b, end);
    }
    probe->held = 0;
    if (!probe->bucket || !by) return;
    if (probe->shared)
        (void)mli_u32_add(&probe->shard->displaced, (uint32_t)by);
    else
        mli_u32_add_own(&probe->shard->displaced, (uint32_t)by);
}
/* Inserts the key of a probe in its room, and unlocks. */
static void mli_probe_insert(mli_probe *probe, uint64_t word1, uint64_t word2) {
    probe->room->key = probe->key;
    probe->room->word1 = word1;
    probe->room->word2 = word2;
    mli_probe_settle(probe, 1);
}
/* Erases the entry of a probe, and unlocks: another thread may overwrite the entry's words from
   then on. Requires: probe->entry is not NULL. */
static void mli_probe_erase(mli_probe *probe) { mli_probe_settle(probe, -1); }

/* Drops the bucket locks of a probe. */
static void mli_probe_unlock(mli_probe *probe) {
    if (probe->shared) mli_probe_settle(probe, 0);
}
/* Ends a probe: unlocks its buckets and leaves the shard. May be called again. */
static MLI_NOINLINE void mli_probe_leave(mli_thread *t, mli_probe *probe) {
    mli_probe_unlock(probe);
    if (probe->inside) mli_shard_leave(t);
    probe->inside = 0;
}

/* -- the fast path -- */

/* The home bucket of a key. The fast path keeps it in registers. */
typedef struct mli_home {
    mli_bucket *bucket;
    uint64_t header, hash; /* the header is without the lock bit */
} mli_home;

/* Finds the home bucket of a key. The prefetch is of the bucket's second cache line. */
static MLI_HOT mli_bucket *mli_home_begin(const mli_shard *s, uint64_t key, mli_home *home) {
    home->hash = mli_hash(key);
    home->bucket = mli_home_bucket(s, home->hash);
    mli_prefetch((char *)home->bucket + 64);
    return home->bucket;
}
/* Enters a shard for the fast path, and begins at the home bucket of a key, which it locks in a
   shared shard. 0: another thread owns the shard or holds the bucket, or there is no table, or with
   `bare` the shard is shared; this thread has left. */
static MLI_HOT int mli_home_enter(mli_thread *t, mli_shard *s, uint64_t key, int bare,
                                  mli_home *home) {
    const uint32_t state = mli_shard_enter(t, s, 1);
    if (MLI_LIKELY(state == t->id)) {
        home->header = mli_u64_load(&mli_home_begin(s, key, home)->header);
        return 1;
    }
    if (!bare && state == MLI_SHARD_SHARED && mli_bucket_try(mli_home_begin(s, key, home))) {
        home->header = mli_u64_load(&home->bucket->header) & ~MLI_BUCKET_LOCK;
        return 1;
    }
    mli_shard_leave(t);
    return 0;
}
/* Begins a probe where the fast path has entered: in a shared shard the home is locked. */
static void mli_home_probe(memlord *lord, uint64_t key, mli_probe *probe) {
    mli_probe_begin(probe, mli_shard_of(lord, key, 1), key, 0);
    probe->shared = (mli_u64_load(&probe->home->header) & MLI_BUCKET_LOCK) != 0;
}
/* Unlocks a home bucket that the fast path has not changed, and leaves the shard. */
static MLI_HOT void mli_home_leave(mli_thread *t, mli_bucket *home) {
    mli_u64_store_release(&home->header, mli_u64_load(&home->header) & ~MLI_BUCKET_LOCK);
    mli_shard_leave(t);
}
/* Finds a slot for a new key in the home bucket. *with is the header with the key's print: storing
   it inserts the entry and unlocks. NULL: a print matches, an entry overflowed, or no slot is
   vacant: the key may be live, here or further away. */
static MLI_HOT mli_entry *mli_home_room(mli_home home, uint64_t *with) {
    const uint64_t print = MLI_HASH_PRINT(home.hash), vacant = mli_vacant_slots(home.header);
    unsigned bit;
    if (MLI_UNLIKELY(mli_overflow_count(home.header, MLI_HASH_OVERFLOW(home.hash)) |
                     mli_print_match(home.header, print)) ||
        MLI_UNLIKELY(!vacant))
        return NULL;
    bit = mli_lowest_bit(vacant);
    *with = home.header | print << bit;
    return mli_slot_entry(home.bucket, bit);
}
/* Finds a key in the home bucket: the first entry whose print matches. *without is the header
   without that entry: storing it erases the entry and unlocks. NULL: the key is not the first, or
   not here. The type is not compared. */
static MLI_HOT mli_entry *mli_home_find(mli_home home, uint64_t key, uint64_t *without) {
    const uint64_t print = MLI_HASH_PRINT(home.hash);
    const uint64_t match = mli_print_match(home.header, print);
    mli_entry *e;
    unsigned bit;
    if (MLI_UNLIKELY(!match)) return NULL;
    bit = mli_print_match_bit(match);
    e = mli_slot_entry(home.bucket, bit);
    *without = home.header ^ print << bit;
    return MLI_LIKELY(e->key == key) ? e : NULL;
}

/* -- the general path -- */

/* Finds a key and keeps its slot until mli_probe_leave. probe->entry is NULL if the key is not
   live; with `want_room` mli_probe_insert can then insert it. A shard of another thread is made
   shared first, and a table without room grows. 0: done, and the thread is inside, unless the shard
   has no table. -1: no memory, and the thread is not inside. Requires: the caller is not inside. */
static MLI_NOINLINE int mli_probe_find(memlord *lord, mli_thread *t, uint32_t type, uint64_t key,
                                       int want_room, mli_probe *probe) {
    mli_shard *s = mli_shard_of(lord, key, 0);
    unsigned n = 0;
    memset(probe, 0, sizeof *probe);
    probe->shard = s;
    for (;;) {
        const uint32_t state = mli_shard_enter(t, s, 0);
        uint32_t size = 0;
        int again = 0;
        probe->inside = 1;
        probe->shared = state == MLI_SHARD_SHARED;
        if (probe->shared || state == t->id) {
            size = s->size;
            mli_probe_begin(probe, s, key, probe->shared);
            while (probe->shared && !mli_bucket_try(probe->home)) mli_bucket_wait(probe->home);
            again = mli_probe_scan(lord, probe, type, want_room);
            if (!again && (probe->entry || probe->room || !want_room)) return 0;
        }
        mli_probe_leave(t, probe);
        if (again)
            mli_spin_wait(&n);
        else if (!probe->shared && state != t->id && state != MLI_SHARD_NEW)
            mli_shard_make_shared(lord, t, s); /* in state STOPPED: waits for its lock */
        else if (!want_room)
            return 0;
        else if (mli_shard_grow(lord, t, s, size))
            return -1;
    }
}

/* -------------------------------------------------------------------- >>counters --
   Owns rows and cells: the counts of each device, site and tag, and each thread's part of them.
   Owns the record of a device, and the peaks in the frames of scopes. Uses >>memory, >>threads, and
   >>map only to enter shard 0.

   One alloc adds its bytes to `level` and 1 to `allocs` in the thread's cells for the device, the
   site and the tag. One free subtracts its bytes from `level` and adds them to `out`, on the same
   rows; it adds 1 to `frees` for the device, the tag and the site that called free. The fast path
   does that in mli_cell_count_alloc and mli_cell_count_free with plain stores; when a result is
   negative it calls mli_cell_publish_due. The general path describes the call by a mli_row_delta:
   mli_count finds the rows, mli_count_row the cell of each, and mli_cell_apply changes the cell.
   Both paths publish a cell when level - base leaves 0..batch: mli_cell_publish brings the row up
   to the level less a reserve, raises the row's peak, and may request a band check. A thread that
   frees another's block counts in its own cell, so a level may be negative. A peak that is read
   also takes in the highs that are not yet published (mli_row_sum).

   Invariants: a row's published bytes are at most the live bytes, and at least the live bytes less
   a batch for each thread: a cell holds back up to a batch, right after a publication at least half
   of one. Peaks are computed from published bytes, so none is too high. A call counts before it
   leaves the map, so fork finds no half-counted call; only a free at its own site is counted
   afterwards. Sums of levels are exact modulo 2^64.
   Locks: count, then row. */

/* What one thread adds to one row. Only that thread counts in it (in the orphan's any thread does,
   under the count lock); all threads read it. The part that is not yet published, level - base, is
   in 0..batch whenever the thread is not inside: so the row's published bytes never exceed the live
   bytes, and its peak is never too high. */
typedef struct mli_cell {
    mli_u64 level, out;    /* bytes: allocated less freed by this thread, signed; freed */
    mli_u64 allocs, frees; /* in a site's cell: frees at this site, from any site's blocks */
    mli_u64 base;          /* the part of the level that is published */
    mli_u64 high;          /* the highest level since the last publication */
    mli_u64 freed_here;    /* site: bytes freed at it; device: see mli_cell_next_check */
    mli_u64 publish_seen;  /* the row's publish_count at the last publication */
} mli_cell;

/* Returns the word of a device's cell that holds its next band check: the thread requests one when
   its `out` exceeds this value. 0 requests one at the next free. A device has no "freed at this
   site", so its cell has freed_here to spare. */
static inline mli_u64 *mli_cell_next_check(mli_cell *cell) { return &cell->freed_here; }

typedef struct mli_row {
    mli_lock lock;         /* guards base; with a batch also published and publish_count */
    uint32_t dev;          /* the device */
    void *subject;         /* mli_device_record, mli_site_record or a tag's kept name */
    mli_u64 published;     /* bytes, signed; at most the live bytes while no thread is inside */
    mli_u64 peak;          /* signed */
    mli_u64 publish_count; /* publications and peak resets so far */
    mli_u64 expected;      /* tags: the bytes of memlord_expect; 0: none */
    struct {               /* sums at the last reset; freed: at the last reset or collection */
        uint64_t in, out, freed, allocs, frees, freed_here;
    } base;
} mli_row;

/* The sums of a row over all threads. All but in, out, live and blocks are since the last reset. */
typedef struct mli_row_totals {
    uint64_t in, out; /* bytes since create, modulo 2^64 */
    uint64_t total_in, total_out, freed, allocs, frees, freed_here, live, blocks, peak, peak_error;
} mli_row_totals;

/* A book stores rows or cells in chunks of 16, which never move. The array of pointers to its
   chunks is replaced when it grows; older arrays stay readable until the ledger ends. */
#define MLI_CHUNK_BITS 4
#define MLI_CHUNK_ROWS (1u << MLI_CHUNK_BITS)
typedef struct mli_chunk_array {
    struct mli_chunk_array *older;
    uint64_t cap; /* pointers in the array that follows; each points to cell[16] or row[16] */
} mli_chunk_array;
static inline mli_ptr *mli_chunk_array_at(const mli_chunk_array *chunks, uint64_t i) {
    return (mli_ptr *)(uintptr_t)(chunks + 1) + i;
}

#define MLI_SCOPE_DEPTH_MAX 64

/* A frame's view of a device: the thread's level when the frame began, and the highest since. */
typedef struct mli_frame_peak {
    uint64_t from, high;
} mli_frame_peak;

/* A frame: one scope that a thread is in. */
typedef struct mli_frame {
    struct mli_frame *around; /* the frame of the scope around; NULL: none */
    struct mli_frame *inner;  /* the frame for a scope inside; NULL: not made yet */
    uint32_t depth;           /* 1 for the outermost frame */
    struct mli_scope_record *scope;
    struct mli_thread_scope *stats;
    uint64_t adopted; /* the second word of the adopted token; 0: the scope began here */
    int exported;     /* 1: stats->token is of this frame */
    uint32_t devices; /* how many of `peaks` are set, from 1 */
    uint64_t start, before, blocks; /* at its begin: stamp, live bytes of the ledger, blocks */
    const char *shapes;
    mli_frame_peak peaks[MEMLORD_MAX_DEVICES + 1]; /* by dev */
} mli_frame;

/* The last request that found no memory. */
typedef struct mli_oom {
    uint64_t bytes, live, used; /* used UINT64_MAX: not known */
    const memlord_site *site;
    uint64_t time; /* 0: there was none */
} mli_oom;

/* The bytes of a device that metrics are made of. */
typedef struct mli_levels {
    uint64_t live, freed, reserved;
} mli_levels;

/* The state of a device's bands. The lock of its phys guards what is not atomic, except gc_thread
   and gc_serial. */
typedef struct mli_watch {
    mli_ptr strategy; /* mli_strategy *: in force; NULL: none. Changes under callbacks and phys */
    mli_u64 check_above, check_below; /* signed: published bytes that request a band check */
    mli_u32 near_threshold;           /* 1: every call on the device checks its bands */
    mli_u32 check_requested;          /* 1: the end of the next call checks the bands */
    mli_u64 next_holders_peak;        /* the peak from which on its holders are noted again */
    mli_u64 checks;                   /* band checks so far; the addition orders them */
    uint64_t free_interval;     /* bytes a thread frees until it requests a check; 0: never */
    int waiting_rearm;          /* 1: a collection ran, and the metric has not moved since */
    mli_levels gc_end;          /* when the last collection ended */
    mli_u32 gc_running;         /* 1: a collection is running; taken by exchange */
    void *gc_thread;            /* the thread that runs it; under the callbacks lock */
    uint64_t gc_serial;         /* of the callback it runs; 0: none; under the callbacks lock */
} mli_watch;

typedef struct mli_device_record {
    memlord_device device;
    mli_ptr label;                 /* const char * */
    mli_u64 arena;                 /* arena bytes on the device now */
    mli_u64 count[MLI_STAT_COUNT]; /* statistics that no cell counts */
    mli_ptr phys;                  /* mli_phys *: the physical device that has its bytes */
    mli_watch watch;
    mli_oom oom;                 /* under the lock of its phys */
    struct mli_holders *holders; /* at its peak; under the snapshots lock */
    mli_phys own_phys;
} mli_device_record;

typedef char mli_check_cell[sizeof(mli_cell) == 64 ? 1 : -1];
typedef char mli_check_row[offsetof(mli_row, published) % 8 ? -1 : 1];

/* Returns the record of a dev; NULL: it was not made yet. */
static MLI_HOT mli_device_record *mli_device_record_at(memlord *lord, uint32_t dev) {
    return (mli_device_record *)mli_ptr_load(&lord->devices.at[dev]);
}

typedef void *(*mli_alloc_fn)(memlord *, size_t); /* mli_own_alloc or mli_cold_alloc */

/* Returns the array of a book, grown until it has room for `chunk`; NULL: no memory. Requires: the
   caller is the only writer of the book. */
static MLI_COLD mli_chunk_array *mli_book_reserve(memlord *lord, mli_book *book, uint32_t chunk,
                                                  mli_alloc_fn grab) {
    mli_chunk_array *have = (mli_chunk_array *)mli_ptr_load(book), *more;
    uint64_t cap = have ? have->cap * 2 : 6, i;
    if (have && chunk < have->cap) return have;
    while (cap <= chunk) cap *= 2;
    more = (mli_chunk_array *)grab(lord, sizeof *more + (size_t)cap * sizeof(mli_ptr));
    if (!more) return NULL;
    more->cap = cap;
    more->older = have;
    for (i = 0; have && i < have->cap; i++)
        mli_ptr_store(mli_chunk_array_at(more, i), mli_ptr_load(mli_chunk_array_at(have, i)));
    mli_ptr_store_release(book, more); /* pairs with mli_book_at's load_acquire */
    return more;
}

/* Returns the address of a number's row or cell in a book; NULL: it was not made yet. */
static MLI_HOT void *mli_book_at(const mli_book *book, uint32_t number, size_t size) {
    mli_chunk_array *chunks = (mli_chunk_array *)mli_ptr_load_acquire(book);
    char *chunk;
    if (!chunks || number >> MLI_CHUNK_BITS >= chunks->cap) return NULL;
    chunk = (char *)mli_ptr_load_acquire(mli_chunk_array_at(chunks, number >> MLI_CHUNK_BITS));
    return chunk ? chunk + (number & (MLI_CHUNK_ROWS - 1)) * size : NULL;
}

/* Makes the chunk of a number, and returns as mli_book_at; NULL: no memory. The release pairs with
   the acquire in mli_book_at. */
static MLI_COLD void *mli_book_add(memlord *lord, mli_book *book, uint32_t number, size_t size,
                                   mli_alloc_fn grab) {
    uint32_t i = number >> MLI_CHUNK_BITS;
    mli_chunk_array *chunks = mli_book_reserve(lord, book, i, grab);
    void *chunk;
    if (!chunks) return NULL;
    if (!mli_ptr_load(mli_chunk_array_at(chunks, i))) {
        chunk = grab(lord, MLI_CHUNK_ROWS * size);
        if (!chunk) return NULL;
        mli_ptr_store_release(mli_chunk_array_at(chunks, i), chunk);
    }
    return mli_book_at(book, number, size);
}

/* Frees the chunks and all arrays of a book. Requires: no thread uses it any more. */
static MLI_COLD void mli_book_free(memlord *lord, mli_book *book, size_t size) {
    mli_chunk_array *chunks = (mli_chunk_array *)mli_ptr_load(book), *older;
    uint64_t i;
    for (i = 0; chunks && i < chunks->cap; i++)
        mli_own_free(lord, mli_ptr_load(mli_chunk_array_at(chunks, i)), MLI_CHUNK_ROWS * size);
    for (; chunks; chunks = older) {
        older = chunks->older;
        mli_own_free(lord, chunks, sizeof *chunks + (size_t)chunks->cap * sizeof(mli_ptr));
    }
}

/* Returns a row by its number. */
static MLI_NOINLINE mli_row *mli_row_at(memlord *lord, int book, uint32_t number) {
    return (mli_row *)mli_book_at(&lord->counters.rows[book], number, sizeof(mli_row));
}

/* Returns a thread's cell for a row; NULL: it has none. Any thread may call it. */
static MLI_HOT mli_cell *mli_cell_at(const mli_thread *t, int book, uint32_t number) {
    if (book == MLI_BOOK_DEVICE)
        return (mli_cell *)mli_ptr_load_acquire(&t->devices[(size_t)number]);
    return (mli_cell *)mli_book_at(&t->books[book], number, sizeof(mli_cell));
}

/* Returns the calling thread's cell for a site or a tag; NULL: it has none. The thread made the
   cell itself, so it needs no acquire. */
static MLI_HOT mli_cell *mli_cell_own_row(const mli_thread *t, int book, uint32_t number) {
    uint32_t i = number >> MLI_CHUNK_BITS;
    char *chunk;
    if (MLI_UNLIKELY(i >= t->own_chunks[book].cap)) return NULL;
    chunk = (char *)mli_ptr_load_own(&t->own_chunks[book].at[i]);
    if (MLI_UNLIKELY(!chunk)) return NULL;
    return (mli_cell *)(void *)chunk + (number & (MLI_CHUNK_ROWS - 1));
}
/* Returns the calling thread's cell for a device; NULL: it has none. */
static MLI_HOT mli_cell *mli_cell_own_device(const mli_thread *t, uint32_t dev) {
    return (mli_cell *)mli_ptr_load_own(&t->devices[dev]);
}

/* Enters shard 0 only to count, so that fork waits for the caller; it does not use the table. While
   the shard is stopped it waits for the shard's lock. */
static void mli_shard_enter_to_count(memlord *lord, mli_thread *t) {
    mli_shard *s = &lord->map.shards[0];
    while (mli_shard_enter(t, s, 0) == MLI_SHARD_STOPPED) {
        mli_shard_leave(t);
        mli_lock_take(&s->lock);
        mli_lock_drop(&s->lock);
    }
}

/* Starts a thread's cell for a device. It starts with a whole batch held back (base = -batch), so
   that its first alloc publishes: a device near a threshold gets its first band check then. The
   caller is inside meanwhile: fork finds the row and the thread's cell both unchanged, or both
   changed. */
static void mli_cell_begin(memlord *lord, mli_thread *t, uint32_t dev, mli_cell *cell) {
    mli_row *row = mli_row_at(lord, MLI_BOOK_DEVICE, dev);
    mli_shard_enter_to_count(lord, t);
    if (lord->counters.batch) { /* without a batch threads add to published without the lock */
        mli_lock_take(&row->lock);
        mli_u64_add_own(&row->published, (uint64_t)0 - lord->counters.batch);
        mli_u64_store(&cell->base, (uint64_t)0 - lord->counters.batch);
        mli_lock_drop(&row->lock);
    }
    mli_ptr_store_release(&t->devices[dev], cell); /* pairs with mli_cell_at */
    mli_shard_leave(t);
}

/* Starts a chunk of a thread's cells for sites or tags: sets publish_seen of each to its row's
   publish_count. Otherwise their highs would not count before their first publication. */
static MLI_COLD void mli_cells_begin(memlord *lord, const mli_thread *t, int book,
                                     uint32_t number) {
    uint32_t n = mli_u32_load_acquire(&lord->counters.row_count[book]);
    uint32_t i = number & ~(MLI_CHUNK_ROWS - 1), end = i + MLI_CHUNK_ROWS;
    for (i += !i; i < end && i < n; i++) {
        mli_row *row = mli_row_at(lord, book, i);
        mli_lock_take(&row->lock);
        mli_u64_store(&mli_cell_at(t, book, i)->publish_seen, mli_u64_load(&row->publish_count));
        mli_lock_drop(&row->lock);
    }
}

/* Returns a thread's cell for a row, and makes it if there is none; NULL: no memory. Requires: the
   caller is not inside. */
static MLI_COLD mli_cell *mli_cell_make(memlord *lord, mli_thread *t, int book, uint32_t number,
                                        mli_alloc_fn grab) {
    const int orphan = t == lord->threads.orphan;
    mli_cell *cell = mli_cell_at(t, book, number);
    mli_chunk_array *chunks;
    if (cell) return cell;
    if (book == MLI_BOOK_DEVICE)
        cell = (mli_cell *)grab(lord, sizeof *cell);
    else
        cell = (mli_cell *)mli_book_add(lord, &t->books[book], number, sizeof *cell, grab);
    if (!cell) return NULL;
    if (book == MLI_BOOK_DEVICE) {
        if (orphan)
            mli_ptr_store_release(&t->devices[number], cell); /* pairs with mli_cell_at */
        else
            mli_cell_begin(lord, t, number, cell);
        return cell;
    }
    if (!orphan) mli_cells_begin(lord, t, book, number);
    chunks = (mli_chunk_array *)mli_ptr_load(&t->books[book]); /* the book may have grown */
    t->own_chunks[book].at = mli_chunk_array_at(chunks, 0);
    t->own_chunks[book].cap = (size_t)chunks->cap;
    return cell;
}

/* Requests a band check of a device at the end of this call, or of the next one on the device. Safe
   inside a shard. */
static MLI_COLD void mli_check_request(memlord *lord, uint32_t dev) {
    if (!mli_u32_exchange(&mli_device_record_at(lord, dev)->watch.check_requested, 1))
        (void)mli_u32_add(&lord->threads.alert, MLI_ALERT_BANDS);
}
/* Returns 1 if a row's published bytes have reached a bound that requests a band check. */
static int mli_mark_passed(const mli_watch *w, const mli_row *row) {
    int64_t published = (int64_t)mli_u64_load(&row->published);
    return published >= (int64_t)mli_u64_load(&w->check_above) ||
           published < (int64_t)mli_u64_load(&w->check_below);
}
/* Requests a band check after a publication, if a bound was reached or the peak is high enough that
   the device's holders are to be noted. */
static void mli_check_thresholds(memlord *lord, uint32_t dev, const mli_row *row) {
    const mli_watch *w = &mli_device_record_at(lord, dev)->watch;
    if (mli_u64_load(&row->peak) >= mli_u64_load(&w->next_holders_peak) || mli_mark_passed(w, row))
        mli_check_request(lord, dev);
}

/* -- frames: the innermost frame of a thread records how high the thread's level was -- */

/* Returns a frame's peak on a device. A device that was first seen after the frame began starts at
   level 0. */
static MLI_NOINLINE mli_frame_peak *mli_frame_peak_at(mli_frame *f, uint32_t dev) {
    while (f->devices < dev) {
        f->devices++;
        f->peaks[f->devices].from = f->peaks[f->devices].high = 0;
    }
    return &f->peaks[dev];
}
/* Raises a frame's highest level on a device to `level`: levels count modulo 2^64. */
static void mli_frame_raise(mli_frame *f, uint32_t dev, uint64_t level) {
    mli_frame_peak *at = mli_frame_peak_at(f, dev);
    if ((int64_t)(level - at->high) > 0) at->high = level;
}
/* Raises the caller's innermost frame to a cell's high, before that high is reset. Does nothing if
   the thread is in no scope. */
static void mli_frame_note_high(memlord *lord, uint32_t dev, const mli_cell *cell) {
    const mli_thread *t = mli_self.thread;
    if (mli_self.generation != lord->threads.generation || !t->frame) return;
    if (mli_cell_own_device(t, dev) != cell) return; /* the orphan's */
    mli_frame_raise(t->frame, dev, mli_u64_load(&cell->high));
}

/* Returns how far a level may rise before it is published again: half a batch. For a device it is
   at most a 32nd of the peak: the holders of a device are noted when a publication finds its peak
   risen by a 16th, and a small device must publish often enough for that. */
static uint64_t mli_publish_margin(memlord *lord, int book, const mli_row *row) {
    int64_t peak = (int64_t)mli_u64_load(&row->peak);
    uint64_t most = lord->counters.batch / 2, part = peak > 0 ? (uint64_t)peak >> 5 : 0;
    return book == MLI_BOOK_DEVICE && part < most ? part : most;
}

/* Raises a row's peak by a cell's high, if no other thread has published since the cell did.
   Otherwise `published` may have been lower when the cell had its high. Requires: the caller holds
   the row's lock. */
static void mli_row_raise_peak(mli_row *row, const mli_cell *cell) {
    if (mli_u64_load(&cell->publish_seen) == mli_u64_load(&row->publish_count))
        mli_u64_max(&row->peak, (int64_t)(mli_u64_load(&row->published) +
                                          mli_u64_load(&cell->high) - mli_u64_load(&cell->base)));
}

/* Publishes a cell: brings its row up to the level less `hold`, which may also lower it, and raises
   the row's peak. Called when level - base has left 0..batch. Afterwards `hold` bytes are held
   back, so that the level can rise by the margin, or fall by `hold`, before the next publication.
   Locks the row about once in half a batch of growth or shrinkage. With batch 0 every call
   publishes, by a shared add and no lock. */
static MLI_COLD void mli_cell_publish(memlord *lord, int book, uint32_t number, mli_cell *cell) {
    mli_row *row = mli_row_at(lord, book, number);
    uint64_t level = mli_u64_load(&cell->level);
    uint64_t base = mli_u64_load(&cell->base), hold, published;
    if (book == MLI_BOOK_DEVICE) mli_frame_note_high(lord, number, cell);
    if (!lord->counters.batch) {
        published = mli_u64_add(&row->published, level - base) + (level - base);
        mli_u64_max(&row->peak, (int64_t)published);
        mli_u64_store(&cell->base, level);
        mli_u64_store(&cell->high, level);
    } else {
        mli_lock_take(&row->lock);
        published = mli_u64_load(&row->published);
        mli_row_raise_peak(row, cell);
        mli_u64_max(&row->peak, (int64_t)(published + level - base));
        hold = lord->counters.batch - mli_publish_margin(lord, book, row);
        mli_u64_store(&row->published, published + level - base - hold);
        mli_u64_add_own(&row->publish_count, 1);
        mli_u64_store(&cell->publish_seen, mli_u64_load(&row->publish_count));
        mli_u64_store(&cell->base, level - hold);
        mli_u64_store(&cell->high, level);
        mli_lock_drop(&row->lock);
    }
    if (book == MLI_BOOK_DEVICE) mli_check_thresholds(lord, number, row);
}

/* Returns a negative value if the bytes this thread freed on the device have passed the next band
   check of the cell. */
static MLI_HOT int64_t mli_cell_tripped(mli_cell *cell) {
    return (int64_t)(mli_u64_load(mli_cell_next_check(cell)) - mli_u64_load(&cell->out));
}
/* Does what a change of a cell calls for: raises its high, publishes it if it now holds back more
   than a batch or less than 0, and requests a band check if one is due. Requires: the caller is
   inside. */
static MLI_COLD void mli_cell_publish_due(memlord *lord, int book, uint32_t number,
                                          mli_cell *cell) {
    uint64_t level;
    int64_t held;
    if (!number || !cell) return;
    level = mli_u64_load_own(&cell->level);
    held = (int64_t)(level - mli_u64_load_own(&cell->base));
    if ((int64_t)(level - mli_u64_load_own(&cell->high)) > 0) mli_u64_store(&cell->high, level);
    if (held < 0 || held > (int64_t)lord->counters.batch)
        mli_cell_publish(lord, book, number, cell);
    if (book == MLI_BOOK_DEVICE && MLI_UNLIKELY(mli_cell_tripped(cell) < 0))
        mli_check_request(lord, number);
}

/* -- the fast path: the cell changes by plain loads and stores. A negative result says that the
      caller must call mli_cell_publish_due before it leaves the shard -- */

/* Counts an alloc. Negative: the level rose above the cell's high. That is never more than a batch
   above base, so a level up to it needs no publication. */
static MLI_HOT int64_t mli_cell_count_alloc(mli_cell *cell, uint64_t bytes) {
    uint64_t level = mli_u64_load_own(&cell->level) + bytes;
    mli_u64_add_own(&cell->allocs, 1);
    mli_u64_store(&cell->level, level);
    return (int64_t)(mli_u64_load_own(&cell->high) - level);
}
/* Counts the bytes of a free; the caller adds to `frees`. Negative: the level fell below base.
   `out` is stored before `level`: a reader loads them in the other order, so it never finds more
   freed than allocated. */
static MLI_HOT int64_t mli_cell_count_free(mli_cell *cell, uint64_t bytes) {
    uint64_t level = mli_u64_load_own(&cell->level) - bytes;
    mli_u64_add_own(&cell->out, bytes);
    mli_u64_store_release(&cell->level, level);
    return (int64_t)(level - mli_u64_load_own(&cell->base));
}
/* -- the general path: deltas, applied to all rows of a block -- */

/* What a call adds to the rows of a block: those of its device, its site and its tag. A free counts
   on the rows that the block has. At the site that called free, it counts freed_here and
   frees_here. */
typedef struct mli_row_delta {
    uint32_t dev;                    /* the device; 0: no device's row changes */
    uint64_t word2;                  /* the rows of the site and the tag */
    uint64_t in, out;                /* bytes */
    uint64_t allocs, frees;          /* 0 or 1 */
    uint64_t freed_here, frees_here; /* bytes and frees at the site, of any site's blocks */
    int undo;                        /* 1: take back an `in` and `allocs` counted before */
    uint64_t attaches; /* the bytes and 1 more of a detached block that the call puts back on the
                          map, or ends; 0: none */
} mli_row_delta;

/* Applies a delta to a cell. Bytes that it counts both in and out never raise the level. The order
   of `out` and `level` is that of mli_cell_count_free. */
static void mli_cell_apply(memlord *lord, int book, uint32_t number, mli_cell *cell,
                           const mli_row_delta *d) {
    const uint64_t sign = d->undo ? UINT64_MAX : 1;
    mli_u64_add_own(&cell->allocs, d->allocs * sign);
    mli_u64_add_own(&cell->frees, book == MLI_BOOK_SITE ? d->frees_here : d->frees);
    mli_u64_add_own(&cell->out, d->out);
    if (d->freed_here) mli_u64_add_own(&cell->freed_here, d->freed_here);
    mli_u64_store_release(&cell->level, mli_u64_load_own(&cell->level) + d->in * sign - d->out);
    if (d->undo)
        mli_cell_publish(lord, book, number, cell);
    else
        mli_cell_publish_due(lord, book, number, cell);
}

/* Adds a delta to all frames of a thread, when the orphan's cell counted it instead of its own: a
   rise lowers the level at which each frame began. */
static MLI_COLD void mli_frames_adjust(mli_thread *t, const mli_row_delta *d) {
    const mli_cell *cell = mli_cell_own_device(t, d->dev);
    uint64_t sign = d->undo ? UINT64_MAX : 1, rise = (d->in - d->out) * sign;
    mli_frame *f = t->frame;
    for (; f; f = f->around) {
        mli_frame_peak *at = mli_frame_peak_at(f, d->dev);
        at->from -= rise;
        at->high -= rise;
        mli_frame_raise(f, d->dev, cell ? mli_u64_load_own(&cell->level) : 0);
        f->blocks -= (d->allocs - d->frees) * sign;
    }
}

/* Counts a delta on one row: in the thread's own cell or, if it has none, in the orphan's, which
   every row has from its start. Requires: the caller is inside. It takes only the locks count and
   row, which may be taken there. */
static void mli_count_row(memlord *lord, mli_thread *t, int book, uint32_t number,
                          const mli_row_delta *d) {
    mli_cell *cell = mli_cell_at(t, book, number);
    if (MLI_LIKELY(cell && t != lord->threads.orphan)) {
        mli_cell_apply(lord, book, number, cell, d);
        return;
    }
    mli_lock_take(&lord->counters.count_lock);
    mli_cell_apply(lord, book, number, mli_cell_at(lord->threads.orphan, book, number), d);
    mli_lock_drop(&lord->counters.count_lock);
    if (book == MLI_BOOK_DEVICE) mli_frames_adjust(t, d);
}
/* Counts a block that is detached (by = 1), or put back or ended (by = -1): taken off the map while
   its bytes stay counted. Requires: the caller is inside, so that a fork finds both or neither. */
static void mli_detached_count(mli_thread *t, int by, uint64_t bytes) {
    mli_u64_add_own(&t->detached, (uint64_t)(int64_t)by);
    mli_u64_add_own(&t->detached_bytes, by < 0 ? (uint64_t)0 - bytes : bytes);
}
/* Counts n deltas, each on up to three rows. Requires: the caller is inside, so that fork finds a
   block and its counts both or neither. Only mli_count_site_free counts outside: its rows may need
   memory, and fork may come between the block and that count. */
static MLI_NOINLINE void mli_count(memlord *lord, mli_thread *t,
                                   const mli_row_delta *d, unsigned n) {
    for (; n--; d++) {
        uint32_t site = MLI_SITE_ROW(d->word2), tag = MLI_TAG_ROW(d->word2);
        if (d->attaches) mli_detached_count(t, -1, d->attaches - 1);
        if (d->dev) mli_count_row(lord, t, MLI_BOOK_DEVICE, d->dev, d);
        if (site) mli_count_row(lord, t, MLI_BOOK_SITE, site, d);
        if (tag) mli_count_row(lord, t, MLI_BOOK_TAG, tag, d);
    }
}

/* -- reading -- */

/* Returns a - b, both modulo 2^64. A small negative difference is 0: it comes from calls that were
   half seen, and those never sum up to 2^56 bytes. */
static uint64_t mli_since(uint64_t a, uint64_t b) {
    return b - a < (uint64_t)1 << 56 ? 0 : a - b;
}

/* Returns a + b, at most UINT64_MAX. */
static uint64_t mli_add_saturated(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }

/* Sums a row over all threads, under its lock: no cell can publish meanwhile, so published plus
   one cell's level - base never exceeds the live bytes, and row->base does not change. The peak is
   computed only with `peaks`. Without a batch cells publish without the lock, and the row's peak is
   exact by itself. */
static MLI_COLD void mli_row_sum(memlord *lord, int book, uint32_t number, int peaks,
                                 mli_row_totals *sum) {
    mli_row *row = mli_row_at(lord, book, number);
    mli_thread *t;
    uint64_t allocs = 0, frees = 0, cells = 0;
    int blind = 0; /* 1: a cell's high does not count: another thread has published since */
    int64_t peak, published;
    memset(sum, 0, sizeof *sum);
    mli_lock_take(&row->lock);
    published = (int64_t)mli_u64_load(&row->published);
    peak = (int64_t)mli_u64_load(&row->peak);
    for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) {
        const mli_cell *cell = mli_cell_at(t, book, number);
        uint64_t in, out, level;
        if (!cell) continue;
        level = mli_u64_load_acquire(&cell->level); /* pairs with mli_cell_count_free */
        out = mli_u64_load(&cell->out);
        in = level + out;
        sum->in += in;
        sum->out += out;
        allocs += mli_u64_load(&cell->allocs);
        frees += mli_u64_load(&cell->frees);
        sum->freed_here += mli_u64_load(&cell->freed_here);
        cells += (in | out | mli_u64_load(&cell->base)) != 0;
        if (!peaks || !lord->counters.batch) continue;
        if (mli_u64_load(&cell->publish_seen) == mli_u64_load(&row->publish_count))
            level = mli_u64_load(&cell->high);
        else
            blind |= (in | out) != 0; /* an untouched cell publishes with its first bytes */
        level -= mli_u64_load(&cell->base);
        if (published + (int64_t)level > peak) peak = published + (int64_t)level;
    }
    sum->live = mli_since(sum->in, sum->out);
    sum->total_in = mli_since(sum->in, row->base.in);
    sum->total_out = mli_since(sum->out, row->base.out);
    sum->freed = mli_since(sum->out, row->base.freed);
    sum->blocks = (int64_t)(allocs - frees) > 0 ? allocs - frees : 0;
    sum->allocs = allocs - row->base.allocs;
    sum->frees = frees - row->base.frees;
    sum->freed_here -= row->base.freed_here;
    mli_lock_drop(&row->lock);
    sum->peak = peak > (int64_t)sum->live ? (uint64_t)peak : sum->live;
    sum->peak_error = cells > 1 || blind ? cells * lord->counters.batch : 0;
}

/* Returns the live bytes of a row, without a lock: this is the cost of memlord_allocated. It adds
   the level of every thread's cell, published or not. A sum below 0 is returned as 0: this thread
   has seen a free of another, but not yet the alloc that came before it. */
static uint64_t mli_row_live(memlord *lord, int book, uint32_t number) {
    mli_thread *t = mli_thread_first(lord);
    uint64_t live = 0;
    for (; t; t = mli_thread_next(t)) {
        const mli_cell *cell = mli_cell_at(t, book, number);
        if (cell) live += mli_u64_load(&cell->level);
    }
    return (int64_t)live > 0 ? live : 0;
}

/* Returns the live bytes of a device, those freed since the last reset or collection, and those
   that its pool holds. */
static MLI_COLD mli_levels mli_row_levels(memlord *lord, uint32_t dev) {
    mli_row_totals sum;
    mli_levels out;
    mli_row_sum(lord, MLI_BOOK_DEVICE, dev, 0, &sum);
    out.live = sum.live;
    out.freed = sum.freed;
    out.reserved = mli_u64_load(&mli_device_record_at(lord, dev)->count[MLI_STAT_reserved]);
    return out;
}

/* Sets a row's peak to its live bytes. The publication count rises, so that the highs of other
   threads no longer count. The caller's own cell stays exact; the orphan's is not its own. */
static MLI_COLD void mli_row_peak_reset(memlord *lord, mli_thread *t, int book, uint32_t number) {
    mli_row *row = mli_row_at(lord, book, number);
    mli_cell *cell = t == lord->threads.orphan ? NULL : mli_cell_at(t, book, number);
    if (cell && book == MLI_BOOK_DEVICE) mli_frame_note_high(lord, number, cell);
    mli_lock_take(&row->lock);
    mli_u64_store(&row->peak, mli_row_live(lord, book, number));
    mli_u64_add_own(&row->publish_count, 1);
    if (cell) {
        mli_u64_store(&cell->high, mli_u64_load(&cell->level));
        mli_u64_store(&cell->publish_seen, mli_u64_load(&row->publish_count));
    }
    mli_lock_drop(&row->lock);
}

/* Starts an epoch for a row: its sums so far become the base, and the peak is reset. Requires: the
   caller holds the cold lock, so that resets run one at a time. */
static MLI_COLD void mli_row_reset(memlord *lord, mli_thread *t, int book, uint32_t number) {
    mli_row *row = mli_row_at(lord, book, number);
    mli_row_totals sum;
    mli_row_sum(lord, book, number, 0, &sum);
    mli_lock_take(&row->lock);
    row->base.in = sum.in;
    row->base.out = row->base.freed = sum.out;
    row->base.allocs += sum.allocs;
    row->base.frees += sum.frees;
    row->base.freed_here += sum.freed_here;
    mli_lock_drop(&row->lock);
    mli_row_peak_reset(lord, t, book, number);
}

/* Excludes bytes from `freed` that are credited now but were freed in an earlier epoch. */
static void mli_row_freed_exclude(memlord *lord, uint32_t dev, uint64_t bytes) {
    mli_row *row = mli_row_at(lord, MLI_BOOK_DEVICE, dev);
    mli_lock_take(&row->lock);
    row->base.freed += bytes;
    mli_lock_drop(&row->lock);
}
/* Restarts `freed` at 0, as a collection does. It adds to the base, so that what another thread has
   added to the base meanwhile stays. */
static MLI_COLD void mli_row_freed_reset(memlord *lord, uint32_t dev) {
    mli_row_totals sum;
    mli_row_sum(lord, MLI_BOOK_DEVICE, dev, 0, &sum);
    mli_row_freed_exclude(lord, dev, sum.freed);
}

/* ------------------------------------------------------------------------ >>names --
   Owns cold tables (stb_ds maps), the kept strings (each once, until the ledger ends), and the
   index from addresses to rows and records. Uses >>memory and >>counters. Invariants: stb_ds
   neither checks its allocations nor passes a context, so a table gets all memory that a put can
   need before that put, and frees it when the table ends. Arrays that stb_ds has outgrown stay
   until then: they take less than the present ones. A function named _locked runs under the cold
   lock and allocates nothing from the host there. When it needs memory it returns MLI_AGAIN (or
   NULL), and mli_cold_leave drops the lock, allocates, and lets the caller try again. Lock:
   cold. */

/* The index: hash tables from addresses to rows and records. They are read without a lock. Entries
   are added under the cold lock and never removed or moved: the newest table takes them until it is
   half full, then a new one of four times its size, up to MLI_INDEX_MAX. So growth copies nothing,
   and no call waits long for it. */
#define MLI_INDEX_MIN 64
#define MLI_INDEX_MAX ((uint64_t)1 << 18) /* pairs: 4 MiB */
typedef struct MLI_ALIGNED8 mli_index {
    uint64_t mask, count; /* mask + 1 pairs follow; count of them are in use */
    struct mli_index *older;
} mli_index;
typedef struct mli_index_pair {
    mli_u64 key, value; /* key 0: vacant; value is written before key */
} mli_index_pair;

/* A block of the memory of a cold table (mli_dict), which is an stb_ds map with strings as keys. An
   item begins with its key, a char *. Items move when the table grows; none is removed. */
typedef struct mli_dict_block {
    struct mli_dict_block *next;
    size_t size;
} mli_dict_block;

typedef struct mli_stb_string { /* an item of memlord.names.strings */
    char *key;
    struct mli_scope_record *scope; /* the scope with this path; NULL: none */
} mli_stb_string;

#define MLI_AGAIN MEMLORD_RESULT_COUNT /* internal: allocate, then try again */

/* -- memory under the cold lock -- */

/* Allocates under the cold lock: from the ledger's free pieces, or the block that mli_cold_leave
   has allocated for this size. NULL: neither has it, and the size is noted for mli_cold_leave. It
   never calls the host's allocator. */
static MLI_COLD void *mli_cold_alloc(memlord *lord, size_t size) {
    mli_spare_block *spare = &mli_self.spare;
    void *p = spare->size == size ? spare->block : NULL;
    if (p)
        spare->block = NULL;
    else if (size <= (size_t)1 << MLI_PIECE_MAX_BITS)
        p = mli_piece_new(lord, size);
    if (!p) spare->wanted = size;
    return p;
}

/* Begins a cold call: takes the cold lock. */
static MLI_COLD void mli_cold_enter(void) {
    mli_lock_take(&mli_process.cold_lock);
}

/* Ends a cold call: drops the lock. 1: *result was MLI_AGAIN, the wanted memory was allocated, and
   the caller must try again. 0: *result is final; it is MEMLORD_E_NOMEM if the allocator failed. */
static MLI_COLD int mli_cold_leave(memlord *lord, memlord_result *result) {
    mli_spare_block *spare = &mli_self.spare;
    mli_lock_drop(&mli_process.cold_lock);
    mli_own_free(lord, spare->block, spare->size); /* another thread may have made it needless */
    spare->block = NULL;
    if (*result != MLI_AGAIN) return 0;
    spare->size = spare->wanted;
    spare->block = mli_own_alloc(lord, spare->size);
    if (!spare->block) *result = MEMLORD_E_NOMEM;
    return spare->block != NULL;
}

/* -- cold tables -- */

#define MLI_DICT_HEAD 16 /* bytes before each part that stb_ds takes of a block: the part's size */

/* Returns how many bytes of a block an allocation by stb_ds takes, with its head and alignment. */
static size_t mli_dict_takes(size_t size) {
    return (size + MLI_DICT_HEAD + 15) & ~(size_t)15;
}

/* Allocates for stb_ds from the first block of the table it works on. It cannot fail:
   mli_dict_room_locked has reserved all that the put takes. */
static MLI_COLD void *mli_stb_realloc(void *ptr, size_t size) {
    mli_dict *dict = mli_process.growing;
    char *fresh = (char *)dict->blocks + dict->blocks->size - dict->left + MLI_DICT_HEAD;
    dict->left -= mli_dict_takes(size);
    *(size_t *)(void *)(fresh - MLI_DICT_HEAD) = size;
    if (ptr) memcpy(fresh, ptr, *(size_t *)(void *)((char *)ptr - MLI_DICT_HEAD));
    return fresh;
}

/* The functions of stb_ds are static here: the host may link its own copy. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif
#ifdef __cplusplus
extern "C" {
#endif
#if defined(__clang__) /* stb_ds string blocks are longer than their char storage[8] says */
#define MLI_STB_PRIVATE static __attribute__((no_sanitize("bounds")))
#else
#define MLI_STB_PRIVATE static
#endif
MLI_STB_PRIVATE void stbds_rand_seed(size_t seed);
MLI_STB_PRIVATE size_t stbds_hash_bytes(void *p, size_t len, size_t seed);
MLI_STB_PRIVATE size_t stbds_hash_string(char *str, size_t seed);
MLI_STB_PRIVATE void *stbds_arrgrowf(void *a, size_t elemsize, size_t addlen, size_t min_cap);
MLI_STB_PRIVATE void stbds_arrfreef(void *a);
MLI_STB_PRIVATE void stbds_hmfree_func(void *p, size_t elemsize);
MLI_STB_PRIVATE void *stbds_hmget_key(void *a, size_t elemsize, void *key, size_t keysize,
                                      int mode);
MLI_STB_PRIVATE void *stbds_hmget_key_ts(void *a, size_t elemsize, void *key, size_t keysize,
                                         ptrdiff_t *temp, int mode);
MLI_STB_PRIVATE void *stbds_hmput_default(void *a, size_t elemsize);
MLI_STB_PRIVATE void *stbds_hmput_key(void *a, size_t elemsize, void *key, size_t keysize,
                                      int mode);
MLI_STB_PRIVATE void *stbds_hmdel_key(void *a, size_t elemsize, void *key, size_t keysize,
                                      size_t keyoffset, int mode);
MLI_STB_PRIVATE void *stbds_shmode_func(size_t elemsize, int mode);
struct stbds_string_arena; /* no typedef: stb_ds makes it, and C99 forbids a second */
MLI_STB_PRIVATE char *stbds_stralloc(struct stbds_string_arena *a, char *str);
MLI_STB_PRIVATE void stbds_strreset(struct stbds_string_arena *a);
#ifdef __cplusplus
}
#endif

#define STB_DS_IMPLEMENTATION
#define STBDS_NO_SHORT_NAMES
#undef STBDS_REALLOC
#undef STBDS_FREE
#define STBDS_REALLOC(context, ptr, size) mli_stb_realloc(ptr, size)
#define STBDS_FREE(context, ptr) ((void)(ptr)) /* all memory is freed with the table */
#if !defined(MEMLORD_STB_DS_H) && defined(__has_include)
#if __has_include(<stb/stb_ds.h>)
#define MEMLORD_STB_DS_H <stb/stb_ds.h>
#elif !__has_include("stb_ds.h")
#error "no stb_ds.h: install libstb-dev, or copy it beside memlord.h, or define MEMLORD_STB_DS_H"
#endif
#endif
#if !defined(MEMLORD_STB_DS_H)
#define MEMLORD_STB_DS_H "stb_ds.h"
#endif
#include MEMLORD_STB_DS_H
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#undef STB_DS_IMPLEMENTATION

/* Returns the stb_ds header of a table's items. Requires: the table has items. */
static const stbds_array_header *mli_dict_array(const mli_dict *dict) {
    return stbds_header((void *)((char *)dict->items - dict->item));
}

/* Returns what stb_ds takes for an array of `capacity` items, and for a hash index: the formulas of
   stbds_arrgrowf and stbds_make_hash_index. */
static size_t mli_dict_array_takes(const mli_dict *dict, size_t capacity) {
    return mli_dict_takes(capacity * dict->item + sizeof(stbds_array_header));
}
static size_t mli_dict_index_takes(size_t slots) {
    return mli_dict_takes(slots / STBDS_BUCKET_LENGTH * sizeof(stbds_hash_bucket) +
                          sizeof(stbds_hash_index) + STBDS_CACHE_LINE_SIZE);
}

/* Adds a block to a table that has fewer bytes left. 0: done. -1: memory is wanted. */
static MLI_COLD int mli_dict_reserve_locked(memlord *lord, mli_dict *dict, size_t need) {
    mli_dict_block *block;
    if (need <= dict->left) return 0;
    need += MLI_DICT_HEAD;
    block = (mli_dict_block *)mli_cold_alloc(lord, need);
    if (!block) return -1;
    block->next = dict->blocks;
    block->size = need;
    dict->blocks = block;
    dict->left = need - MLI_DICT_HEAD;
    return 0;
}

/* Reserves the memory to put a key of this length: it may need a larger array, a larger index, and
   a string block, by the formula of stbds_stralloc. 0: done. -1: memory is wanted. */
static MLI_COLD int mli_dict_room_locked(memlord *lord, mli_dict *dict, size_t length) {
    const stbds_array_header *array = mli_dict_array(dict);
    const stbds_hash_index *index = (const stbds_hash_index *)array->hash_table;
    size_t string = (size_t)STBDS_STRING_ARENA_BLOCKSIZE_MIN << (index->string.block >> 1);
    size_t need = 0;
    if (string <= length) string = length + 1;
    if (array->length >= array->capacity) need += mli_dict_array_takes(dict, array->capacity * 2);
    if (index->used_count >= index->used_count_threshold)
        need += mli_dict_index_takes(index->slot_count * 2);
    if (length >= index->string.remaining)
        need += mli_dict_takes(string + sizeof(stbds_string_block));
    return mli_dict_reserve_locked(lord, dict, need);
}

/* Puts a key in a table, and returns its item: zero except for the copy of the key. NULL: memory is
   wanted, try again. Requires: the key is not in the table, since stb_ds may grow the index before
   it searches. */
static MLI_COLD void *mli_dict_put_locked(memlord *lord, mli_dict *dict, const char *key) {
    mli_process.growing = dict;
    if (!dict->items) {
        if (mli_dict_reserve_locked(lord, dict,
                                    mli_dict_array_takes(dict, 4) +
                                        mli_dict_index_takes(STBDS_BUCKET_LENGTH)))
            return NULL;
        dict->items = stbds_shmode_func(dict->item, STBDS_SH_ARENA);
    }
    if (mli_dict_room_locked(lord, dict, strlen(key))) return NULL;
    dict->items = stbds_hmput_key(dict->items, dict->item, (void *)(uintptr_t)key, sizeof key,
                                  STBDS_HM_STRING);
    return (char *)dict->items + dict->item * (size_t)mli_dict_array(dict)->temp;
}

/* Returns the item of a key; NULL: there is none. It is valid until the next put. */
static MLI_COLD void *mli_dict_find_locked(const mli_dict *dict, const char *key) {
    ptrdiff_t at;
    if (!dict->items) return NULL;
    (void)stbds_hmget_key_ts(dict->items, dict->item, (void *)(uintptr_t)key, sizeof key, &at,
                             STBDS_HM_STRING);
    return at < 0 ? NULL : (char *)dict->items + dict->item * (size_t)at;
}

/* Frees the memory of a table. */
static MLI_COLD void mli_dict_end(memlord *lord, mli_dict *dict) {
    mli_dict_block *block = dict->blocks, *next;
    for (; block; block = next) {
        next = block->next;
        mli_own_free(lord, block, block->size);
    }
}

/* -- kept strings -- */

/* Returns the item of a kept string; NULL: it is not kept. It is valid until the next put. */
static MLI_COLD mli_stb_string *mli_string_locked(memlord *lord, const char *text) {
    return (mli_stb_string *)mli_dict_find_locked(&lord->names.strings, text);
}

/* Gets the ledger's copy of a string, and makes it on first use: the same text always gives the
   same pointer. NULL gives NULL. MEMLORD_E_NOMEM: the strings would exceed MEMLORD_MAX_STRINGS. */
static MLI_COLD memlord_result mli_name_locked(memlord *lord, const char *text, const char **kept) {
    const mli_stb_string *string;
    size_t length;
    *kept = NULL;
    if (!text) return MEMLORD_OK;
    string = mli_string_locked(lord, text);
    if (!string) {
        length = strlen(text);
        if (length > MEMLORD_MAX_STRINGS || lord->names.bytes + length > MEMLORD_MAX_STRINGS)
            return MEMLORD_E_NOMEM;
        string = (mli_stb_string *)mli_dict_put_locked(lord, &lord->names.strings, text);
        if (!string) return MLI_AGAIN;
        lord->names.bytes += length + 1;
    }
    *kept = string->key;
    return MEMLORD_OK;
}

/* Gets the ledger's copy of a string, as mli_name_locked, and allocates if it must. */
static MLI_COLD memlord_result mli_name(memlord *lord, const char *text, const char **kept) {
    memlord_result r;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    do {
        mli_cold_enter();
        r = mli_name_locked(lord, text, kept);
    } while (mli_cold_leave(lord, &r));
    return r;
}

/* Gets the ledger's copy of a string that may differ in every call. Such strings may use only half
   of MEMLORD_MAX_STRINGS: the rest is left for tags and sites. */
static MLI_COLD memlord_result mli_name_limited(memlord *lord, const char *text,
                                                const char **kept) {
    uint64_t used;
    mli_lock_take(&mli_process.cold_lock);
    used = lord->names.bytes;
    mli_lock_drop(&mli_process.cold_lock);
    if (text && used + strlen(text) > MEMLORD_MAX_STRINGS / 2) return MEMLORD_E_NOMEM;
    return mli_name(lord, text, kept);
}

/* -- the index -- */

#define MLI_INDEX_SUBJECT 255u /* in place of a dev: the key of the address's own record */
#define MLI_INDEX_CONTENT 254u /* over a hash: the key of the site with that content */

/* Returns the index key of an address on a device: the dev is in the top 8 bits. */
static MLI_HOT uint64_t mli_index_key(const void *address, uint32_t dev) {
    return (uint64_t)(uintptr_t)address ^ ((uint64_t)dev << 56);
}
static mli_index_pair *mli_index_pair_at(const mli_index *index, uint64_t at) {
    return (mli_index_pair *)(uintptr_t)(index + 1) + (at & index->mask);
}
static uint64_t mli_index_home(uint64_t key) { return (key * 0x9e3779b97f4a7c15u) >> 24; }
/* Returns the value of a key; 0: there is none. Needs no lock. The acquires pair with the releases
   in mli_index_add_locked and mli_index_reserve_locked. */
static MLI_NOINLINE uint64_t mli_index_get(memlord *lord, uint64_t key) {
    const mli_index *index = (mli_index *)mli_ptr_load_acquire(&lord->names.index);
    uint64_t at, seen;
    for (; index; index = index->older)
        for (at = mli_index_home(key);; at++) {
            const mli_index_pair *pair = mli_index_pair_at(index, at);
            seen = mli_u64_load_acquire(&pair->key);
            if (seen == key) return mli_u64_load(&pair->value);
            if (!seen) break;
        }
    return 0;
}

/* Reserves room in the index for `more` entries. MLI_AGAIN: memory is wanted. */
static MLI_COLD memlord_result mli_index_reserve_locked(memlord *lord, uint64_t more) {
    mli_index *newest = (mli_index *)mli_ptr_load(&lord->names.index), *index;
    uint64_t cap = newest ? (newest->mask + 1) * 4 : MLI_INDEX_MIN;
    if (newest && (newest->count + more) * 2 <= newest->mask + 1) return MEMLORD_OK;
    if (cap > MLI_INDEX_MAX) cap = MLI_INDEX_MAX;
    index = (mli_index *)mli_cold_alloc(lord, sizeof *index + (size_t)cap * sizeof(mli_index_pair));
    if (!index) return MLI_AGAIN;
    index->mask = cap - 1;
    index->older = newest;
    mli_ptr_store_release(&lord->names.index, index);
    return MEMLORD_OK;
}
/* Adds a key. Requires: mli_index_reserve_locked has reserved its room, and the key is not in the
   index. The release makes the value visible with the key. */
static void mli_index_add_locked(memlord *lord, uint64_t key, uint64_t value) {
    mli_index *index = (mli_index *)mli_ptr_load(&lord->names.index);
    uint64_t at = mli_index_home(key);
    while (mli_u64_load(&mli_index_pair_at(index, at)->key)) at++;
    mli_u64_store(&mli_index_pair_at(index, at)->value, value);
    mli_u64_store_release(&mli_index_pair_at(index, at)->key, key);
    index->count++;
}

static MLI_COLD void mli_index_free(memlord *lord) {
    mli_index *index = (mli_index *)mli_ptr_load(&lord->names.index), *older;
    for (; index; index = older) {
        older = index->older;
        mli_own_free(lord, index,
                     sizeof *index + (size_t)(index->mask + 1) * sizeof(mli_index_pair));
    }
}

/* -- rows -- */

/* Adds a row with an index key, and the orphan's cell for it. Numbers start at 1: row 0 means none.
   The row is published last, by the release of the row count. */
static MLI_COLD memlord_result mli_row_add_locked(memlord *lord, int book, uint32_t dev,
                                                  void *subject, uint64_t key, uint32_t *number) {
    uint32_t n = mli_u32_load(&lord->counters.row_count[book]);
    mli_row *row;
    memlord_result r = mli_index_reserve_locked(lord, 1);
    if (r) return r;
    row = (mli_row *)mli_book_add(lord, &lord->counters.rows[book], n, sizeof *row, mli_cold_alloc);
    if (!row || !mli_cell_make(lord, lord->threads.orphan, book, n, mli_cold_alloc))
        return MLI_AGAIN;
    mli_lock_rank(&row->lock, MLI_RANK_ROW);
    row->dev = dev;
    row->subject = subject;
    mli_u32_store_release(&lord->counters.row_count[book],
                          n + 1); /* pairs with the acquire in mli_row_count */
    mli_index_add_locked(lord, key, n);
    *number = n;
    return MEMLORD_OK;
}

/* ---------------------------------------------------------------------- >>devices --
   Owns the devs: small numbers from 1 for the devices seen, in the order they were first seen. Uses
   >>names and >>counters. Invariants: a dev is never removed or reused. It is published last (by
   the row count, the index and dev_of), when all of its data can be read. Lock: cold. */

enum {                   /* memlord.pollers.polling */
    MLI_POLLING_AUTO, /* pollers run for the devices whose bands can request a collection */
    MLI_POLLING_ALL,  /* for all devices: memlord_poller_start */
    MLI_POLLING_OFF   /* for none: memlord_poller_stop */
};

#define MLI_ALERT_PENDS_ALL (MLI_ALERT_BANDS - MLI_ALERT_PENDS)

/* 1 for the device types whose bytes are in host memory: they share one phys. */
static const unsigned char mli_type_host[] = {
#define MLI_X(name, text, host) host,
    MLI_DEVICE_TYPES(MLI_X)
#undef MLI_X
};

/* mli_device_valid returns 1 for one device; mli_type_valid also for a type without an index;
   mli_selector_valid also for all devices. mli_selects returns 1 if a selector includes a
   device. */
static MLI_HOT int mli_device_valid(memlord_device d) {
    return (unsigned)d.type < (unsigned)MLI_TYPE_COUNT && d.index >= 0;
}
static MLI_HOT int mli_type_valid(memlord_device d) {
    return (unsigned)d.type < (unsigned)MLI_TYPE_COUNT && d.index >= MEMLORD_ANY;
}
static MLI_HOT int mli_selector_valid(memlord_device d) {
    return mli_type_valid(d) || (d.type == MEMLORD_ANY && d.index == MEMLORD_ANY);
}
static MLI_HOT int mli_selects(memlord_device sel, memlord_device d) {
    return sel.type == MEMLORD_ANY ||
           (sel.type == d.type && (sel.index == MEMLORD_ANY || sel.index == d.index));
}

/* Returns a device as one word. Compilers extract its two halves by more instructions. */
static MLI_HOT uint32_t mli_device_word(memlord_device d) {
    uint32_t word;
    memcpy(&word, &d, sizeof word);
    return word;
}
/* Returns the index key of a device: no address has bit 55. */
static uint64_t mli_device_key(memlord_device d) {
    return (uint64_t)MLI_INDEX_SUBJECT << 56 | (uint64_t)1 << 55 | mli_device_word(d);
}
/* Returns the index of a device in dev_of: 4 bits of type and 7 bits of index. Any other device
   gets the last element, which is always 0. */
static MLI_HOT uint32_t mli_device_direct_index(memlord_device d) {
    uint32_t word = mli_device_word(d);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = word << 16 | word >> 16;
#endif
    if (MLI_UNLIKELY(word & 0xff80fff0u)) return MLI_DIRECT_DEVICES;
    return (word >> 12 | word) & (MLI_DIRECT_DEVICES - 1);
}

/* Returns the dev of a device; 0: it was not seen yet. The acquire pairs with the release in
   mli_device_add_locked. */
static MLI_NOINLINE uint32_t mli_dev_known(memlord *lord, memlord_device d) {
    uint32_t dev = mli_u32_load_acquire(&lord->devices.dev_of[mli_device_direct_index(d)]);
    if (MLI_LIKELY(dev != 0)) return dev;
    return mli_device_valid(d) ? (uint32_t)mli_index_get(lord, mli_device_key(d)) : 0;
}

/* Gets the dev of a device, and makes its record and row on first use. MEMLORD_E_DEVICE: there are
   already MEMLORD_MAX_DEVICES. A record left by a try that ended in MLI_AGAIN is used again. */
static MLI_COLD memlord_result mli_device_add_locked(memlord *lord, memlord_device d,
                                                     uint32_t *dev) {
    uint32_t n = mli_u32_load(&lord->counters.row_count[MLI_BOOK_DEVICE]);
    mli_device_record *device;
    memlord_result r;
    *dev = mli_dev_known(lord, d);
    if (*dev) return MEMLORD_OK;
    if (n > MEMLORD_MAX_DEVICES) return MEMLORD_E_DEVICE;
    device = mli_device_record_at(lord, n);
    if (!device) {
        device = (mli_device_record *)mli_cold_alloc(lord, sizeof *device);
        if (!device) return MLI_AGAIN;
        mli_ptr_store(&lord->devices.at[n], device);
    }
    device->device = d;
    mli_lock_rank(&device->own_phys.lock, MLI_RANK_PHYS);
    device->own_phys.lord = lord;
    device->own_phys.device = d;
    mli_ptr_store_release(&device->phys,
                          mli_type_host[d.type] ? &lord->capacity.host_phys : &device->own_phys);
    lord->devices.dev_type[n] = (uint16_t)d.type;
    lord->devices.dev_alerts[n] = ~(uint32_t)MLI_ALERT_PENDS_ALL | (uint32_t)MLI_ALERT_PENDS
                                                                        << d.type;
    r = mli_row_add_locked(lord, MLI_BOOK_DEVICE, n, device, mli_device_key(d), dev);
    if (r == MEMLORD_OK && mli_u32_load(&lord->pollers.polling) == MLI_POLLING_ALL)
        mli_alert_set(lord, MLI_ALERT_POLLER, 1);
    if (r == MEMLORD_OK && (mli_u32_load(&lord->bands.watched_types) >> d.type & 1))
        mli_check_request(lord, n);
    if (r == MEMLORD_OK && mli_device_direct_index(d) < MLI_DIRECT_DEVICES)
        mli_u32_store_release(&lord->devices.dev_of[mli_device_direct_index(d)], n);
    return r;
}

/* Gets the dev of a device, and makes it on first use. MEMLORD_E_STATE: the device is new, and the
   caller is inside the ledger's own call of the host's allocator. */
static MLI_NOINLINE memlord_result mli_dev(memlord *lord, memlord_device d, uint32_t *dev) {
    memlord_result r;
    *dev = mli_dev_known(lord, d);
    if (MLI_LIKELY(*dev != 0)) return MEMLORD_OK;
    if (!mli_device_valid(d)) return MEMLORD_E_DEVICE;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    do {
        mli_cold_enter();
        r = mli_device_add_locked(lord, d, dev);
    } while (mli_cold_leave(lord, &r));
    return r;
}

/* Returns one more than the last row number of a book. The acquire pairs with the release in
   mli_row_add_locked: rows below it can be read. */
static uint32_t mli_row_count(memlord *lord, int book) {
    return mli_u32_load_acquire(&lord->counters.row_count[book]);
}
/* Adds to a statistic that no cell counts: to that of a device or, if dev is 0, to that of the
   ledger as a whole. */
static void mli_stat_add(memlord *lord, uint32_t dev, int stat, uint64_t by) {
    mli_u64 *count = dev ? mli_device_record_at(lord, dev)->count : lord->counters.lost;
    (void)mli_u64_add(&count[stat], by);
}

/* Returns what is wrong with the storage or the size of a block; NULL: neither is. */
static MLI_COLD const char *mli_block_fault(uint64_t storage, uint64_t bytes) {
    if (!storage) return "a storage cannot be 0";
    if (storage == UINT64_MAX) return "a storage cannot be UINT64_MAX";
    return bytes > MLI_BYTES_MAX ? "a size over 2^48" : NULL;
}
/* Counts a call that is refused, MEMLORD_E_INVALID or MEMLORD_E_DEVICE, and logs the first of its
   function with that result; `fault`: what is wrong with an argument, NULL if that is not known.
   Returns r, also any other. Requires: the caller holds no lock. */
static MLI_COLD memlord_result mli_refuse(memlord *lord, int refuser, memlord_result r,
                                          memlord_device d, const char *fault) {
    static const char *const names[] = {
#define MLI_X(name) "memlord_" #name,
        MLI_REFUSERS(MLI_X)
#undef MLI_X
    };
    if (!lord || (r != MEMLORD_E_INVALID && r != MEMLORD_E_DEVICE)) return r;
    mli_stat_add(lord, mli_dev_known(lord, d), MLI_STAT_refused, 1);
    if (mli_u32_exchange(&lord->log.refused[refuser][r == MEMLORD_E_DEVICE], 1)) return r;
    if (r == MEMLORD_E_DEVICE && mli_selector_valid(d))
        mli_logf(lord, MEMLORD_LOG_WARNING, "%s: %i is %s", names[refuser], mli_device_code(d),
                 !mli_device_valid(d) ? "a selector: a device is needed"
                 : refuser == MLI_REFUSER_alloc_reserved
                     ? "not on the physical device of the ticket"
                     : "one device too many: raise MEMLORD_MAX_DEVICES");
    else
        mli_logf(lord, MEMLORD_LOG_WARNING, "%s: %s", names[refuser],
                 r == MEMLORD_E_DEVICE ? "that is no device"
                 : fault               ? fault
                                       : memlord_result_text(r));
    return r;
}

/* Gets the dev on which the free of an unknown storage is counted: the device that was named. A
   device without an index gets the first dev of its type, or index 0 if there is none. */
static memlord_result mli_dev_named(memlord *lord, memlord_device d, uint32_t *dev) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 1; d.index < 0 && i < n; i++)
        if (lord->devices.dev_type[i] == d.type) d = mli_device_record_at(lord, i)->device;
    if (d.index < 0) d.index = 0;
    return mli_dev(lord, d, dev);
}

/* What engines call a device type. */
static const struct {
    const char *name;
    int type;
} mli_type_aliases[] = {{"cuda_host", MEMLORD_DEVICE_PINNED}, /* before cuda, of which it is more */
                        {"cpu_mapped", MEMLORD_DEVICE_MAPPED},
                        {"mps", MEMLORD_DEVICE_METAL},
                        {"xpu", MEMLORD_DEVICE_SYCL},
                        {"rocm", MEMLORD_DEVICE_HIP}};
enum { MLI_TYPE_ALIASES = sizeof mli_type_aliases / sizeof mli_type_aliases[0] };

/* Returns the rest of a text after a word in lower case; NULL: the text does not begin with the
   word. The case of the text does not matter. */
static const char *mli_skip_word(const char *text, const char *word) {
    while (*word && mli_ascii_lower(*text) == *word) text++, word++;
    return *word ? NULL : text;
}
/* Returns the rest of a text after the name of a device type; NULL: it begins with none. */
static const char *mli_skip_type(const char *text, int *type) {
    const char *rest;
    int i;
    for (i = 0; i < MLI_TYPE_ALIASES + MLI_TYPE_COUNT; i++) {
        const int plain = i - MLI_TYPE_ALIASES;
        *type = plain < 0 ? mli_type_aliases[i].type : plain;
        rest = mli_skip_word(text, plain < 0 ? mli_type_aliases[i].name : mli_type_names[plain]);
        if (rest) return rest;
    }
    return NULL;
}

/* -- public -- */

MLI_API memlord_result memlord_device_parse(const char *text, memlord_device *out) {
    const char *rest;
    uint64_t index;
    int type;
    if (!text || !out) return MEMLORD_E_INVALID;
    rest = mli_skip_word(text, "all");
    if (rest && !*rest) {
        *out = memlord_device_all();
        return MEMLORD_OK;
    }
    rest = mli_skip_type(text, &type);
    if (!rest) return MEMLORD_E_INVALID;
    if (!*rest) {
        *out = memlord_device_make(type, type <= MEMLORD_DEVICE_MAPPED ? 0 : MEMLORD_ANY);
        return MEMLORD_OK;
    }
    if (*rest == ':') rest++;
    if (!*rest) return MEMLORD_E_INVALID;
    rest = mli_read_u64(rest, &index);
    if (!rest || *rest || index > INT16_MAX) return MEMLORD_E_INVALID;
    *out = memlord_device_make(type, (int)index);
    return MEMLORD_OK;
}

MLI_API size_t memlord_device_name(memlord_device device, char *buf, size_t cap) {
    mli_out o;
    mli_out_buffer(&o, buf, cap);
    mli_put_device(&o, device);
    return mli_out_end(&o, cap);
}

MLI_API memlord_result memlord_device_label_set(memlord *lord, memlord_device device,
                                                const char *text) {
    uint32_t dev;
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!text || !*text) { /* removing a label does not add the device */
        dev = mli_dev_known(lord, device);
        if (!dev) return mli_device_valid(device) ? MEMLORD_OK : MEMLORD_E_DEVICE;
        text = NULL;
    }
    r = mli_dev(lord, device, &dev);
    if (r) return r;
    r = mli_name(lord, text, &kept);
    if (r) return r;
    mli_ptr_store_release(&mli_device_record_at(lord, dev)->label, (void *)(uintptr_t)kept);
    return MEMLORD_OK;
}

MLI_API size_t memlord_devices(memlord *lord, memlord_device *out, size_t cap) {
    uint32_t i, n;
    if (!lord) return 0;
    n = mli_row_count(lord, MLI_BOOK_DEVICE) - 1;
    for (i = 0; i < n && i < cap && out; i++) out[i] = mli_device_record_at(lord, i + 1)->device;
    return n;
}

/* ----------------------------------------------------------------------- >>sites --
   Owns the records of sites, the tags of threads, marks and births (the mark and scope of a
   block), and chooses the rows that a call counts on. Uses the names, the index, the counters and
   the devices. A site's record is made, and its strings are copied, when the site is first seen;
   it gets one row on each device where it is used. Each thread caches the rows it used last. A
   struct of the host that is new is compared by its content and module: it may be a known site.
   Invariants: a site's record is never freed before the ledger ends; nothing here allocates or
   takes a lock inside a shard. Lock: cold; memlord_sites_enable takes registry alone. */

typedef struct mli_scope_record {
    uint32_t id;
    struct mli_scope_record *parent;
    const char *name, *path;      /* kept */
    struct mli_site_record *site; /* NULL: the scope was begun by name */
    mli_ptr threads;              /* mli_thread_scope *; push only */
    mli_u64 device_ns;
    mli_u64 birth; /* the last birth in this scope: mark:26 | number:26; 0: none yet */
} mli_scope_record;

#define MLI_CACHE_MAX 8192 /* homes at most, in memory of the cache's own */

/* The mark and the scope that blocks allocated in a scope have in common. */
typedef struct mli_birth {
    uint64_t mark;
    uint32_t scope;
} mli_birth;

/* What a site is made from. A return address is a site of its own. A struct of the host is the
   site of its file, function and line in the module that has it: a line of a header that several
   files include is one site, but in each library another. */
typedef struct mli_site_origin {
    const memlord_site *planted; /* NULL: the origin is a return address */
    const void *address;         /* the return address */
    const void *module;          /* of `planted`, by mli_module_of; NULL: not known */
} mli_site_origin;

typedef struct mli_site_record {
    memlord_site original; /* displayed until the site is renamed or resolved */
    mli_ptr display;       /* const memlord_site *; a rename replaces the whole struct */
    void *address;         /* a return address; NULL: the site is a memlord_site of the host */
    const void *module;    /* of a memlord_site of the host: see mli_site_origin */
    mli_u32 resolved;      /* 1: the symbol of `address` was looked up */
} mli_site_record;

static const memlord_site mli_no_site = {"", "", 0};

/* Copies a site, its strings kept. MLI_AGAIN: memory is wanted. */
static MLI_COLD memlord_result mli_site_copy_locked(memlord *lord, const memlord_site *from,
                                                    memlord_site *out) {
    memlord_result r = mli_name_locked(lord, from->file ? from->file : "", &out->file);
    if (r == MEMLORD_OK)
        r = mli_name_locked(lord, from->function ? from->function : "", &out->function);
    out->line = from->line;
    return r;
}

static MLI_NOINLINE mli_site_record *mli_site_record_of(memlord *lord, const void *identity) {
    return (mli_site_record *)(uintptr_t)mli_index_get(
        lord, mli_index_key(identity, MLI_INDEX_SUBJECT));
}

/* Finds the site of a struct with kept strings in a module. NULL: there is none, and *key is free
   for it in the index. */
static MLI_COLD mli_site_record *mli_site_same(memlord *lord, const memlord_site *kept,
                                               const void *module, uint64_t *key) {
    uint64_t hash = (uint64_t)(uintptr_t)kept->file * 0x9e3779b97f4a7c15u;
    hash = ((hash ^ hash >> 32) + (uint64_t)(uintptr_t)kept->function) * 0x9e3779b97f4a7c15u;
    hash = ((hash ^ hash >> 32) + (uint64_t)(uintptr_t)module) * 0x9e3779b97f4a7c15u;
    hash = ((hash ^ hash >> 32) + (uint32_t)kept->line) * 0x9e3779b97f4a7c15u;
    for (;; hash += 256) {
        mli_site_record *site;
        *key = hash >> 8 ^ (uint64_t)MLI_INDEX_CONTENT << 56;
        site = (mli_site_record *)(uintptr_t)mli_index_get(lord, *key);
        if (!site || (site->original.file == kept->file &&
                      site->original.function == kept->function &&
                      site->original.line == kept->line && site->module == module))
            return site;
    }
}

/* Finds or makes the record of a site. The index has it under each pointer of the host, or the
   return address, under its content, and under every struct that it was ever displayed as. */
static MLI_COLD memlord_result mli_site_find_locked(memlord *lord, const mli_site_origin *from,
                                                    mli_site_record **out) {
    const void *identity = from->planted ? (const void *)from->planted : from->address;
    const uint64_t key = mli_index_key(identity, MLI_INDEX_SUBJECT);
    uint64_t content = 0;
    memlord_site kept;
    mli_site_record *site = NULL;
    memlord_result r;
    *out = mli_site_record_of(lord, identity);
    if (*out) return MEMLORD_OK;
    r = mli_index_reserve_locked(lord, 3);
    if (r == MEMLORD_OK)
        r = mli_site_copy_locked(lord, from->planted ? from->planted : &mli_no_site, &kept);
    if (r) return r;
    if (from->planted) site = mli_site_same(lord, &kept, from->module, &content);
    if (!site) {
        site = (mli_site_record *)mli_cold_alloc(lord, sizeof *site);
        if (!site) return MLI_AGAIN;
        site->address = (void *)(uintptr_t)from->address;
        site->module = from->module;
        site->original = kept;
        mli_ptr_store(&site->display, &site->original);
        if (content) mli_index_add_locked(lord, content, (uint64_t)(uintptr_t)site);
        mli_index_add_locked(lord, mli_index_key(&site->original, MLI_INDEX_SUBJECT),
                             (uint64_t)(uintptr_t)site);
    }
    mli_index_add_locked(lord, key, (uint64_t)(uintptr_t)site);
    *out = site;
    return MEMLORD_OK;
}

/* Returns the origin of a struct of the host. Requires: no lock of the ledger is held. */
static MLI_COLD mli_site_origin mli_site_origin_of(memlord *lord, const memlord_site *planted) {
    mli_site_origin from = {planted, NULL, NULL};
    if (planted && !mli_site_record_of(lord, planted)) from.module = mli_module_of(planted);
    return from;
}

/* Returns the ledger's copy of a site, for data that outlives the call; NULL without memory. */
static MLI_COLD const memlord_site *mli_site_kept(memlord *lord, const memlord_site *planted,
                                                  const void *address) {
    mli_site_origin from = mli_site_origin_of(lord, planted);
    mli_site_record *site;
    memlord_result r;
    if (mli_self.in_host_alloc) return NULL;
    from.address = address;
    do {
        mli_cold_enter();
        r = mli_site_find_locked(lord, &from, &site);
    } while (mli_cold_leave(lord, &r));
    return r == MEMLORD_OK ? (const memlord_site *)mli_ptr_load_acquire(&site->display) : NULL;
}

/* Displays a site as `from`, whose copy the index then has, too: the host may pass any struct that
   it was given. MLI_AGAIN: memory is wanted. */
static MLI_COLD memlord_result mli_site_display_locked(memlord *lord, mli_site_record *site,
                                                       const memlord_site *from) {
    memlord_site fresh, *shown;
    memlord_result r = mli_index_reserve_locked(lord, 1);
    if (r == MEMLORD_OK) r = mli_site_copy_locked(lord, from, &fresh);
    if (r) return r;
    shown = (memlord_site *)mli_cold_alloc(lord, sizeof *shown);
    if (!shown) return MLI_AGAIN;
    *shown = fresh;
    mli_index_add_locked(lord, mli_index_key(shown, MLI_INDEX_SUBJECT), (uint64_t)(uintptr_t)site);
    mli_ptr_store_release(&site->display, shown); /* pairs with mli_site_display */
    return MEMLORD_OK;
}
static MLI_COLD memlord_result mli_site_set_display(memlord *lord, mli_site_record *site,
                                                    const memlord_site *from) {
    memlord_result r;
    do {
        mli_cold_enter();
        r = mli_site_display_locked(lord, site, from);
    } while (mli_cold_leave(lord, &r));
    return r;
}

/* Returns a site as reports display it. A return address gets its module and symbol when it is
   first displayed: dladdr walks a module's symbols, which is too slow for a recording call.
   Requires: no lock of the ledger is held, as dladdr takes the loader's lock. */
static const memlord_site *mli_site_display(memlord *lord, mli_site_record *site) {
    const memlord_site *shown = (const memlord_site *)mli_ptr_load_acquire(&site->display);
    memlord_site named = {"", "", 0};
    mli_symbol symbol;
    if (!site->address || shown->file[0]) return shown;
    if (mli_u32_exchange(&site->resolved, 1)) return shown;
    if (mli_symbol_at((const char *)site->address - 1, &symbol)) return shown;
    named.file = symbol.module;
    named.function = symbol.name;
    (void)mli_site_set_display(lord, site, &named);
    return (const memlord_site *)mli_ptr_load_acquire(&site->display);
}

/* Returns the record to show a listed site by now. Requires: as mli_site_display. */
static const memlord_site *mli_site_display_of(memlord *lord, const memlord_site *site) {
    mli_site_record *record = site ? mli_site_record_of(lord, site) : NULL;
    return record ? mli_site_display(lord, record) : site;
}
/* The same without an allocation: what is looked up goes to *symbol and *named, and is not kept. */
static const memlord_site *mli_site_named(memlord *lord, const memlord_site *site,
                                          mli_symbol *symbol, memlord_site *named) {
    const mli_site_record *record = site ? mli_site_record_of(lord, site) : NULL;
    if (!record || !record->address || site->file[0] ||
        mli_symbol_at((const char *)record->address - 1, symbol))
        return site;
    named->file = symbol->module;
    named->function = symbol->name ? symbol->name : "";
    named->line = 0;
    return named;
}

/* Finds or adds the row of a site or a tag on a device. `from`: of a site; NULL: the row is of a
   tag. The host knows a site by several addresses, but it has one row on a device: the index has
   that under the site's record. */
static MLI_COLD memlord_result mli_row_find_locked(memlord *lord, const mli_site_origin *from,
                                                   const char *tag, uint32_t dev,
                                                   uint32_t *number) {
    const int book = from ? MLI_BOOK_SITE : MLI_BOOK_TAG;
    uint32_t most = from ? MLI_SITE_ROWS_MAX : MLI_TAG_ROWS_MAX;
    void *subject = (void *)(uintptr_t)tag;
    mli_site_record *site;
    memlord_result r;
    if (from) {
        r = mli_site_find_locked(lord, from, &site);
        if (r) return r;
        subject = site;
    }
    *number = (uint32_t)mli_index_get(lord, mli_index_key(subject, dev));
    if (*number) return MEMLORD_OK;
    if (mli_row_count(lord, book) > most) return MEMLORD_E_NOMEM;
    return mli_row_add_locked(lord, book, dev, subject, mli_index_key(subject, dev), number);
}

static MLI_COLD memlord_result mli_row_find(memlord *lord, int book, const void *identity,
                                            uint32_t dev, uint32_t *number) {
    mli_site_origin from = {NULL, NULL, NULL};
    memlord_result r;
    if (book == MLI_BOOK_SITE) from = mli_site_origin_of(lord, (const memlord_site *)identity);
    do {
        mli_cold_enter();
        r = mli_row_find_locked(lord, from.planted ? &from : NULL, (const char *)identity, dev,
                                number);
    } while (mli_cold_leave(lord, &r));
    return r;
}

/* Returns the row of a site or a tag on a device, and adds it on first use. Returns 0 without room
   for it, and counts that in dropped_sites. */
static MLI_COLD uint32_t mli_row_of(memlord *lord, int book, const void *identity, uint32_t dev) {
    const void *subject = book == MLI_BOOK_SITE ? mli_site_record_of(lord, identity) : identity;
    uint32_t row = subject ? (uint32_t)mli_index_get(lord, mli_index_key(subject, dev)) : 0;
    if (row || mli_row_find(lord, book, identity, dev, &row) == MEMLORD_OK) return row;
    mli_stat_add(lord, dev, MLI_STAT_dropped_sites, 1);
    return 0;
}

/* -- a thread's cache: rows, names and scopes that it looked up by a pointer -- */

enum {                              /* mli_cache_entry.salt >> 28: value; rest of the salt */
    MLI_CACHE_SITE = MLI_BOOK_SITE, /* the cell of a row; the device */
    MLI_CACHE_TAG = MLI_BOOK_TAG,   /* the cell of a row; the device */
    MLI_CACHE_NAME,                 /* the kept copy of a host's tag; 0 */
    MLI_CACHE_SCOPE,                /* a thread scope, by its name; the parent scope */
    MLI_CACHE_SCOPE_SITE            /* a thread scope, by a static record; the parent scope */
};
static MLI_HOT uint32_t mli_cache_salt(int kind, uint32_t rest) {
    return (uint32_t)kind << 28 | rest;
}
static MLI_HOT mli_cache_entry *mli_cache_home(const mli_thread *t,
                                               const void *key, uint32_t salt) {
    uintptr_t hash = ((uintptr_t)key + salt) * 0x61c88647u; /* 2^32 / the golden ratio, negated */
    return &t->cache[hash >> 20 & t->cache_mask];
}
/* Returns the entry of a key; NULL: it is not cached. The last entry of the cache is always vacant
   and ends the probe. */
static MLI_HOT const mli_cache_entry *mli_cache_find(const mli_thread *t,
                                                     const void *key, uint32_t salt) {
    const mli_cache_entry *memo = mli_cache_home(t, key, salt);
    for (; memo->key; memo++)
        if (MLI_LIKELY(memo->key == key && memo->salt == salt)) return memo;
    return NULL;
}
static void mli_cache_free(memlord *lord, mli_thread *t) {
    if (t->cache && t->cache != t->cache_inline)
        mli_own_free(lord, t->cache, (t->cache_mask + 1 + MLI_CACHE_PATH) * sizeof *t->cache);
}
/* Makes room for one more entry: empties the cache, twice as large if it can be. What was cached is
   looked up again. */
static MLI_COLD void mli_cache_grow(memlord *lord, mli_thread *t) {
    const size_t homes = t->cache_mask + 1;
    mli_cache_entry *more = NULL;
    if (homes < MLI_CACHE_MAX)
        more = (mli_cache_entry *)mli_own_alloc(lord, (2 * homes + MLI_CACHE_PATH) * sizeof *more);
    t->cache_count = 0;
    if (!more) {
        memset(t->cache, 0, (homes + MLI_CACHE_PATH) * sizeof *t->cache);
        return;
    }
    mli_cache_free(lord, t);
    t->cache = more;
    t->cache_mask = (uint32_t)(2 * homes - 1);
}
/* Caches a look-up, in place of the entry of its key. If all probes find other keys, it evicts the
   first. Requires: not inside, as the cache may grow. The orphan record caches nothing: its cells
   are used under a lock. */
static MLI_COLD void mli_cache_set(memlord *lord, mli_thread *t, const void *key,
                                   uint32_t salt, void *value, uint64_t bits) {
    mli_cache_entry *memo;
    uint32_t k = 0;
    if (t == lord->threads.orphan) return;
    if (t->cache_count >= (t->cache_mask + 1) * 3 / 8) mli_cache_grow(lord, t);
    memo = mli_cache_home(t, key, salt);
    while (k < MLI_CACHE_PATH && memo[k].key && (memo[k].key != key || memo[k].salt != salt)) k++;
    if (k < MLI_CACHE_PATH) memo += k;
    t->cache_count += !memo->key;
    memo->key = key;
    memo->salt = salt;
    memo->value = value;
    memo->bits = bits;
}

/* Returns the bits of word2 for the row of a site or a tag on a device; 0: no room for the row.
   Makes the row, and the thread's cell for it. Requires: not inside. */
static MLI_NOINLINE uint64_t mli_cached_row(memlord *lord, mli_thread *t, int book,
                                            const void *identity, uint32_t dev) {
    const uint32_t salt = mli_cache_salt(book, dev);
    const mli_cache_entry *memo = mli_cache_find(t, identity, salt);
    mli_cell *cell;
    uint64_t bits;
    uint32_t row;
    if (MLI_LIKELY(memo != NULL)) return memo->bits;
    row = mli_row_of(lord, book, identity, dev);
    if (!row) return 0;
    bits = (uint64_t)row << (book == MLI_BOOK_SITE ? 1 : 21);
    cell = mli_cell_make(lord, t, book, row, mli_own_alloc);
    if (cell) mli_cache_set(lord, t, identity, salt, cell, bits);
    return bits;
}

/* -- births: the mark and the scope of a block -- */

/* Adds a birth. Requires: the cold lock. MLI_AGAIN: memory is wanted. */
static MLI_COLD memlord_result mli_birth_add_locked(memlord *lord, uint64_t mark,
                                                    uint32_t scope, uint32_t *number) {
    mli_birth *birth;
    if (lord->sites.birth_count == MLI_BIRTHS_MAX) return MEMLORD_E_NOMEM;
    birth = (mli_birth *)mli_book_add(lord, &lord->sites.births, lord->sites.birth_count + 1,
                                      sizeof *birth, mli_cold_alloc);
    if (!birth) return MLI_AGAIN;
    birth->mark = mark;
    birth->scope = scope;
    *number = ++lord->sites.birth_count;
    return MEMLORD_OK;
}

/* Returns the birth bits of word2 for the thread's scope, and caches them in the thread and the
   scope. Without room for a birth the block is recorded without its scope, and scopes.lost counts
   it. Requires: not inside. */
static MLI_COLD uint64_t mli_birth_bits_new(memlord *lord, mli_thread *t, uint64_t born) {
    mli_scope_record *scope = t->frame->scope;
    uint64_t mark = MLI_BIRTH(born), last = mli_u64_load_acquire(&scope->birth);
    uint32_t number = (uint32_t)(last & MLI_MARK_MAX);
    memlord_result r = MEMLORD_OK;
    if (!number || last >> (MLI_BIRTH_BITS - 1) != mark) {
        do {
            mli_cold_enter();
            r = mli_birth_add_locked(lord, mark, scope->id, &number);
        } while (mli_cold_leave(lord, &r));
        if (r)
            (void)mli_u64_add(&lord->scopes.lost, 1);
        else /* pairs with the load_acquire above */
            mli_u64_store_release(&scope->birth, mark << (MLI_BIRTH_BITS - 1) | number);
    }
    t->birth_mark = born;
    t->birth_bits = r ? born : (MLI_BIRTH_SCOPED | number) << 37;
    return t->birth_bits;
}
static MLI_HOT uint64_t mli_birth_bits(memlord *lord, mli_thread *t) {
    uint64_t born = mli_u64_load(&lord->sites.birth_mark);
    if (MLI_LIKELY(!t->frame)) return born;
    return t->birth_bits && t->birth_mark == born ? t->birth_bits
                                                  : mli_birth_bits_new(lord, t, born);
}

/* Returns the birth of a block. Its scope is 0 if it has none, or that was lost. */
static mli_birth mli_birth_of(memlord *lord, uint64_t word2) {
    mli_birth birth = {0, 0};
    birth.mark = MLI_BIRTH(word2);
    if (birth.mark & MLI_BIRTH_SCOPED)
        birth = *(const mli_birth *)mli_book_at(
            &lord->sites.births, (uint32_t)(birth.mark & MLI_MARK_MAX), sizeof birth);
    return birth;
}
static uint64_t mli_mark_of(memlord *lord, uint64_t word2) {
    return mli_birth_of(lord, word2).mark;
}
static uint32_t mli_scope_of(memlord *lord, uint64_t word2) {
    return mli_birth_of(lord, word2).scope;
}

/* Returns the id of the innermost scope of a thread; 0: it is in none. */
static uint32_t mli_scope_id(const mli_thread *t) { return t->frame ? t->frame->scope->id : 0; }
static uint32_t mli_scope_depth(const mli_thread *t) { return t->frame ? t->frame->depth : 0; }
static mli_scope_record *mli_scope_record_at(memlord *lord, uint32_t id) {
    mli_ptr *at = (mli_ptr *)mli_book_at(&lord->scopes.all, id, sizeof *at);
    return (mli_scope_record *)mli_ptr_load(at);
}

/* Returns word2 for an allocation by this thread at a site, under its tag and scope. Makes the
   thread's cells for its rows. Requires: not inside. */
static uint64_t mli_alloc_word2(memlord *lord, mli_thread *t, uint32_t dev,
                                const memlord_site *site) {
    uint64_t rows = 0;
    if (!t->frame && (mli_u32_load(&t->special) & MLI_SPECIAL_SCOPE))
        mli_special_set(t, MLI_SPECIAL_SCOPE, 0); /* its last scope has ended */
    if (site && (mli_u32_load(&lord->threads.hooks) & MLI_HOOK_SITES))
        rows = mli_cached_row(lord, t, MLI_BOOK_SITE, site, dev);
    if (t->tag) rows |= mli_cached_row(lord, t, MLI_BOOK_TAG, t->tag, dev);
    return mli_birth_bits(lord, t) | rows;
}

/* Counts a tag that found no room, and warns of the first. */
static MLI_COLD void mli_tag_drop(memlord *lord) {
    mli_stat_add(lord, 0, MLI_STAT_dropped_sites, 1);
    mli_drop_warn(lord, &lord->sites.warned_tag,
                  "[drop] no room for a tag: raise MEMLORD_MAX_STRINGS, or give the ledger's "
                  "allocator more; dropped_sites has how many");
}

/* Counts a guard that ended on another thread than it began, and warns of the first. */
static MLI_COLD void mli_guard_lost(memlord *lord) {
    mli_stat_add(lord, 0, MLI_STAT_dropped_sites, 1);
    mli_drop_warn(lord, &lord->sites.warned_guard,
                  "[drop] a tag or a scope ended on another thread than it began: there it stays "
                  "open");
}

/* Gets the ledger's copy of a tag. The thread's cache has it under the host's pointer; the text
   there may change, so a hit compares it. */
static memlord_result mli_tag_kept(memlord *lord, mli_thread *t, const char *tag,
                                   const char **kept) {
    const uint32_t salt = mli_cache_salt(MLI_CACHE_NAME, 0);
    const mli_cache_entry *memo = mli_cache_find(t, tag, salt);
    memlord_result r;
    *kept = memo ? (const char *)memo->value : NULL;
    if (*kept && !strcmp(*kept, tag)) return MEMLORD_OK;
    r = mli_name(lord, tag, kept);
    if (r == MEMLORD_OK) mli_cache_set(lord, t, tag, salt, (void *)(uintptr_t)*kept, 0);
    return r;
}

/* Sets the tag that the thread's allocs get. */
static void mli_tag_set(mli_thread *t, const char *kept) {
    if (!kept != !t->tag) mli_special_set(t, MLI_SPECIAL_TAG, kept != NULL);
    t->tag = kept;
}

/* Ends the innermost tags of a thread, down to a depth. Requires: it is deeper. */
static void mli_tags_cut(mli_thread *t, uint32_t depth) {
    t->tag_depth = depth;
    mli_tag_set(t, t->tags[depth]);
}

/* Notes what the end of a guard restores. */
static void mli_guard_note(memlord_guard *guard, memlord *lord, const mli_thread *t, int scope) {
    guard->lord = lord;
    guard->thread = t->id;
    guard->scope = scope;
    guard->depth = scope ? mli_scope_depth(t) : t->tag_depth;
}

/* Begins a tag; `guard` NULL: without one. The stack of tags has the default tag at its bottom. */
static memlord_result mli_tag_begin(memlord *lord, const char *tag, memlord_guard *guard) {
    mli_thread *t;
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!tag || !*tag)
        return mli_refuse(lord, MLI_REFUSER_tag_begin, MEMLORD_E_INVALID, memlord_device_all(),
                          "a tag has a name");
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    if (t == lord->threads.orphan) /* several threads share it, so it has no tag stack */
        r = MEMLORD_E_NOMEM;
    else if (t->tag_depth == MLI_TAG_DEPTH_MAX)
        r = MEMLORD_E_STATE;
    else
        r = mli_tag_kept(lord, t, tag, &kept);
    if (r == MEMLORD_OK) {
        if (guard) mli_guard_note(guard, lord, t, 0);
        t->tags[t->tag_depth++] = t->tag;
        mli_tag_set(t, kept);
    }
    mli_thread_put(lord, t);
    if (r == MEMLORD_E_NOMEM) mli_tag_drop(lord);
    return r;
}

/* -- public -- */

MLI_API memlord_result memlord_sites_enable(memlord *lord, int on) {
    mli_thread *t;
    uint32_t hooks;
    if (!lord) return MEMLORD_OK;
    mli_lock_take(&mli_process.registry_lock); /* no thread registers meanwhile */
    hooks = mli_u32_load(&lord->threads.hooks) & ~(uint32_t)MLI_HOOK_SITES;
    if (on) hooks |= MLI_HOOK_SITES;
    mli_u32_store(&lord->threads.hooks, hooks);
    for (t = mli_thread_first(lord); t; t = mli_thread_next(t))
        mli_special_set(t, MLI_SPECIAL_SITES, on);
    mli_lock_drop(&mli_process.registry_lock);
    return MEMLORD_OK;
}

MEMLORD_API const memlord_site *memlord_site_at(memlord *lord, void *return_address) {
    const mli_site_record *site;
    const memlord_site *shown;
    if (!lord || !return_address) return &mli_no_site;
    site = mli_site_record_of(lord, return_address);
    if (MLI_LIKELY(site != NULL))
        return (const memlord_site *)mli_ptr_load_acquire(&site->display);
    shown = mli_site_kept(lord, NULL, return_address);
    return shown ? shown : &mli_no_site;
}

MLI_API void *memlord_site_address(memlord *lord, const memlord_site *site) {
    mli_site_record *record = lord && site ? mli_site_record_of(lord, site) : NULL;
    return record ? record->address : NULL;
}

MLI_API memlord_result memlord_site_rename(memlord *lord, const memlord_site *site,
                                           const char *file, const char *function, int line) {
    mli_site_record *record;
    memlord_site shown;
    if (!lord) return MEMLORD_OK;
    if (!site) return MEMLORD_E_INVALID;
    record = mli_site_record_of(lord, site);
    if (!record) return MEMLORD_E_UNKNOWN;
    shown = *mli_site_display(lord, record);
    if (file) shown.file = file;
    if (function) shown.function = function;
    if (line) shown.line = line;
    return mli_site_set_display(lord, record, &shown);
}

MLI_API uint64_t memlord_mark(memlord *lord) {
    uint64_t born;
    if (!lord) return 0;
    (void)mli_call_end_uncounted(lord, MEMLORD_OK); /* a requested report is of the old mark */
    born = mli_u64_load(&lord->sites.birth_mark);
    while (MLI_BIRTH(born) < MLI_MARK_MAX)
        if (mli_u64_cas(&lord->sites.birth_mark, &born, born + ((uint64_t)1 << 37)))
            return MLI_BIRTH(born) + 1;
    return MLI_MARK_MAX;
}

MEMLORD_API memlord_result memlord_tag_begin(memlord *lord, const char *tag) {
    return mli_tag_begin(lord, tag, NULL);
}
MEMLORD_API memlord_guard memlord_guard_tag(memlord *lord, const char *tag) {
    memlord_guard guard = {NULL, 0, 0, 0};
    (void)mli_tag_begin(lord, tag, &guard);
    return guard;
}

MEMLORD_API memlord_result memlord_tag_end(memlord *lord) {
    mli_thread *t;
    memlord_result r = MEMLORD_E_STATE;
    if (!lord) return MEMLORD_OK;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    if (t->tag_depth) {
        mli_tags_cut(t, t->tag_depth - 1);
        r = MEMLORD_OK;
    }
    mli_thread_put(lord, t);
    return r;
}

MLI_API const char *memlord_tag_current(memlord *lord) {
    mli_thread *t = lord ? mli_thread_get(lord) : NULL;
    const char *tag = t ? t->tag : NULL;
    if (t) mli_thread_put(lord, t);
    return tag;
}

MLI_API memlord_result memlord_tag_default_set(memlord *lord, const char *tag) {
    mli_thread *t;
    const char *kept = NULL;
    memlord_result r = MEMLORD_OK;
    if (!lord) return MEMLORD_OK;
    if (tag && !*tag)
        return mli_refuse(lord, MLI_REFUSER_tag_default_set, MEMLORD_E_INVALID,
                          memlord_device_all(), "a tag has a name");
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    if (t == lord->threads.orphan)
        r = MEMLORD_E_NOMEM; /* as in mli_tag_begin */
    else if (tag)
        r = mli_tag_kept(lord, t, tag, &kept);
    if (r == MEMLORD_OK && t->tag_depth)
        t->tags[0] = kept;
    else if (r == MEMLORD_OK)
        mli_tag_set(t, kept);
    mli_thread_put(lord, t);
    if (r == MEMLORD_E_NOMEM) mli_tag_drop(lord);
    return r;
}

MLI_API memlord_result memlord_expect(memlord *lord, memlord_device device, const char *tag,
                                      uint64_t bytes) {
    uint32_t dev, number;
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = !tag || !*tag || bytes > MLI_BYTES_MAX ? MEMLORD_E_INVALID : mli_dev(lord, device, &dev);
    if (r)
        return mli_refuse(lord, MLI_REFUSER_expect, r, device,
                          tag && *tag ? mli_block_fault(1, bytes) : "a tag has a name");
    r = mli_name(lord, tag, &kept);
    if (r) return r;
    r = mli_row_find(lord, MLI_BOOK_TAG, kept, dev, &number);
    if (r) return r;
    mli_u64_store(&mli_row_at(lord, MLI_BOOK_TAG, number)->expected, bytes);
    return mli_call_end_uncounted(lord, MEMLORD_OK);
}

/* ----------------------------------------------------------------------- >>events --
   Owns stamps of time and the ring of events. Uses threads, sites and counters. The ring is cut
   into sub-buffers: a thread takes the next one without a writer and fills it alone, so that
   threads share a word only once a sub-buffer. A reader copies an event and then checks that its
   sub-buffer was not given out again meanwhile.
   Invariant: a ledger has one ring, from the first start until it ends. Locks: none to write or to
   read; registry to install the ring. */

/* An event in the ring.
     what   bytes:49 | kind:4 | dev:8
     where  site row:20 | tag row:16 | scope:28 */
typedef struct mli_ring_event {
    mli_u64 stamp, storage, what, where;
} mli_ring_event;
typedef struct mli_event_copy { /* an event as it was read from the ring */
    uint64_t stamp, storage, what, where;
    uint32_t thread;
} mli_event_copy;
static uint32_t mli_event_kind(uint64_t what) { return (uint32_t)(what >> 49) & 15; }
static uint32_t mli_event_dev(uint64_t what) { return (uint32_t)(what >> 53) & 255; }

/* A sub-buffer: consecutive events of one thread. */
typedef struct mli_subbuf {
    mli_u64 generation; /* differs each time it is given out; 0: never was, or is being given out */
    mli_u32 has_writer; /* 1: a thread writes it */
    mli_u32 count, thread;
    mli_ring_event at[1]; /* mli_ring.subbuf_events of them */
} mli_subbuf;
typedef struct mli_ring {
    size_t size, stride, capacity;
    uint64_t subbufs;
    uint32_t subbuf_events; /* events in a sub-buffer */
    mli_u64 next_subbuf;    /* sub-buffers given out or skipped so far; they lie behind the ring */
} mli_ring;

/* Returns the time in ns by the ledger's clock. */
static uint64_t mli_ledger_now(memlord *lord) {
    return lord->events.clock.fn ? lord->events.clock.fn(lord->events.clock.user) : mli_now();
}

/* Returns a stamp: the processor's counter if that is usable, else the ledger's clock. */
static MLI_HOT uint64_t mli_stamp_now(memlord *lord) {
    return MLI_LIKELY(lord->events.stamps_are_ticks) ? mli_ticks() : mli_ledger_now(lord);
}

/* Converts stamps to nanoseconds. The rate is the mean since create, so it becomes more precise as
   the ledger grows older. */
typedef struct mli_stamp_scale {
    uint64_t from; /* the stamp at create */
    double rate;   /* ns a stamp */
} mli_stamp_scale;
static MLI_COLD mli_stamp_scale mli_stamp_scale_now(memlord *lord) {
    mli_stamp_scale scale;
    uint64_t ticks;
    scale.from = lord->lifecycle.started_stamp;
    scale.rate = 1;
    if (!lord->events.stamps_are_ticks) return scale;
    ticks = mli_ticks() - scale.from;
    if (ticks)
        scale.rate = (double)(mli_ledger_now(lord) - lord->lifecycle.started) / (double)ticks;
    return scale;
}
/* Converts a difference of stamps to ns. */
static MLI_COLD uint64_t mli_span_ns(const mli_stamp_scale *scale, uint64_t stamps) {
    return (uint64_t)((double)stamps * scale->rate + 0.5);
}
/* Returns the ns from create to a stamp; 0 for a stamp before it. */
static uint64_t mli_since_ns(const mli_stamp_scale *scale, uint64_t stamp) {
    return stamp > scale->from ? mli_span_ns(scale, stamp - scale->from) : 0;
}

/* -- writing -- */

/* Returns a sub-buffer by its number, which counts on past the end of the ring. */
static mli_subbuf *mli_subbuf_at(const mli_ring *ring, uint64_t i) {
    return (mli_subbuf *)(void *)((char *)(uintptr_t)(ring + 1) +
                                  (i % ring->subbufs) * ring->stride);
}

/* Counts the events that a sub-buffer still holds as lost, a run of one device at a time. */
static void mli_subbuf_count_lost(memlord *lord, const mli_subbuf *b) {
    uint32_t i, run = 0, last = 0, n = mli_u32_load(&b->count);
    for (i = 0; i < n; i++, run++) {
        uint32_t dev = mli_event_dev(mli_u64_load(&b->at[i].what));
        if (run && dev != last) {
            mli_stat_add(lord, last, MLI_STAT_dropped_events, run);
            run = 0;
        }
        last = dev;
    }
    if (run) mli_stat_add(lord, last, MLI_STAT_dropped_events, run);
}

/* Leaves a thread's sub-buffer without a writer. The release pairs with the exchange in
   mli_subbuf_next: the next writer sees all that this one wrote. */
static void mli_subbuf_leave(mli_thread *t) {
    mli_subbuf *b = t->subbuf;
    t->subbuf = NULL;
    if (b) mli_u32_store_release(&b->has_writer, 0);
}

/* Takes the next sub-buffer without a writer for a thread, for a first event on `dev`. Returns NULL
   if all have a writer, and counts the event as lost. */
static MLI_NOINLINE mli_subbuf *mli_subbuf_next(memlord *lord, mli_thread *t, uint32_t dev) {
    mli_ring *ring = (mli_ring *)mli_ptr_load_acquire(&lord->events.ring);
    uint64_t tries;
    mli_subbuf_leave(t);
    for (tries = 0; ring && tries < ring->subbufs; tries++) {
        uint64_t number = mli_u64_add(&ring->next_subbuf, 1);
        mli_subbuf *b = mli_subbuf_at(ring, number);
        if (mli_u32_load(&b->has_writer) || mli_u32_exchange(&b->has_writer, 1))
            continue;
        mli_u64_store(&b->generation, 0); /* before `count`, a release store as events are */
        mli_subbuf_count_lost(lord, b);
        mli_u32_store_release(&b->count, 0);
        mli_u32_store_release(&b->thread, t->id - MLI_THREAD_ID_FIRST + 1);
        mli_u64_store_release(&b->generation, number + 1); /* see mli_subbuf_reader_begin */
        return t->subbuf = b;
    }
    mli_stat_add(lord, dev, MLI_STAT_dropped_events, 1);
    return NULL;
}

/* Writes an event. Every word is a release store: a reader that sees one of them also sees the
   generation that was stored before it. `rows` are bits of word2. An event without a free
   sub-buffer is lost, and counted. */
static MLI_NOINLINE void mli_event_write(memlord *lord, mli_thread *t, int kind, uint32_t dev,
                                         uint64_t storage, uint64_t bytes, uint64_t rows) {
    const mli_ring *ring = (mli_ring *)mli_ptr_load_acquire(&lord->events.ring);
    mli_subbuf *b = t->subbuf;
    mli_ring_event *note;
    uint32_t n;
    if (MLI_UNLIKELY(!b || mli_u32_load(&b->count) >= ring->subbuf_events)) {
        b = mli_subbuf_next(lord, t, dev);
        if (!b) return;
    }
    n = mli_u32_load(&b->count);
    note = &b->at[n];
    mli_u64_store_release(&note->stamp, mli_stamp_now(lord));
    mli_u64_store_release(&note->storage, storage);
    mli_u64_store_release(&note->what, bytes | (uint64_t)(unsigned)kind << 49 |
                                                 (uint64_t)dev << 53);
    mli_u64_store_release(&note->where,
                          (rows & MLI_ROWS_MASK) >> 1 | (uint64_t)mli_scope_id(t) << 36);
    mli_u32_store_release(&b->count, n + 1); /* pairs with mli_subbuf_reader_begin */
}
static MLI_HOT void mli_event_record(memlord *lord, mli_thread *t, int kind, uint32_t dev,
                                     uint64_t storage, uint64_t bytes, uint64_t rows) {
    if (MLI_UNLIKELY(mli_u32_load(&lord->threads.alert) & MLI_ALERT_EVENTS))
        mli_event_write(lord, t, kind, dev, storage, bytes, rows);
}
/* Records the end of a block at a site. `plain` is the block's word2 without a side record: its
   tag is recorded, and the row of `site` in place of its own. */
static MLI_NOINLINE void mli_event_record_end(memlord *lord, mli_thread *t, int kind,
                                              uint64_t storage, uint64_t word1,
                                              uint64_t plain, const memlord_site *site) {
    uint32_t dev = MLI_DEV(word1);
    uint64_t rows = plain & MLI_TAG_BITS_OF_ROWS;
    if (!(mli_u32_load(&lord->threads.alert) & MLI_ALERT_EVENTS)) return;
    if (site && (mli_u32_load(&lord->threads.hooks) & MLI_HOOK_SITES))
        rows |= mli_cached_row(lord, t, MLI_BOOK_SITE, site, dev);
    mli_event_write(lord, t, kind, dev, storage, MLI_BYTES(word1), rows);
}
#if !MLI_WINDOWS
/* Ends the writers of all sub-buffers but this thread's. Requires: a forked child, where the other
   threads are gone. */
static MLI_COLD void mli_subbufs_after_fork(memlord *lord) {
    const mli_ring *ring = (mli_ring *)mli_ptr_load(&lord->events.ring);
    const mli_thread *t = mli_thread_own(lord);
    uint64_t i;
    for (i = 0; ring && i < ring->subbufs; i++) {
        mli_subbuf *b = mli_subbuf_at(ring, i);
        if (!t || t->subbuf != b) mli_u32_store(&b->has_writer, 0);
    }
}
#endif

/* Records an event that belongs to no block. Requires: no lock is held, and the caller is not
   inside. */
static MLI_COLD void mli_event_record_other(memlord *lord, int kind, uint32_t dev,
                                            uint64_t storage, uint64_t bytes) {
    mli_thread *t;
    if (!(mli_u32_load(&lord->threads.alert) & MLI_ALERT_EVENTS)) return;
    t = mli_thread_get(lord);
    if (!t) return;
    if (bytes > MLI_BYTES_MAX) bytes = MLI_BYTES_MAX;
    mli_event_record(lord, t, kind, dev, storage, bytes, 0);
    mli_thread_put(lord, t);
}

/* -- starting and ending -- */

#define MLI_EVENTS_MAX ((size_t)1 << 26) /* events in a ring at most */
#define MLI_EVENTS_DEFAULT 65536

/* Allocates a ring of `capacity` events, cut into at least 16 sub-buffers of up to 64; NULL without
   memory. Fewer than 16 events are one a sub-buffer. */
static mli_ring *mli_ring_new(memlord *lord, size_t capacity) {
    uint32_t most = capacity / 16 < 64 ? (uint32_t)(capacity / 16) : 64;
    size_t stride, size;
    mli_ring *ring;
    if (!most) most = 1;
    stride = sizeof(mli_subbuf) + (most - 1) * sizeof(mli_ring_event);
    size = sizeof *ring + capacity / most * stride;
    ring = (mli_ring *)mli_own_alloc(lord, size);
    if (!ring) return NULL;
    ring->size = size;
    ring->capacity = capacity;
    ring->subbufs = capacity / most;
    ring->subbuf_events = most;
    ring->stride = stride;
    return ring;
}

static void mli_ring_end(memlord *lord) {
    mli_ring *ring = (mli_ring *)mli_ptr_load(&lord->events.ring);
    if (ring) mli_own_free(lord, ring, ring->size);
}

/* -- reading: merges the sub-buffers by time, with a heap of the next event of each -- */

/* Reads one sub-buffer: `stamp` is that of its next event, `at`. */
typedef struct mli_subbuf_reader {
    mli_subbuf *subbuf;
    uint64_t generation, stamp;
    uint32_t at, count;
} mli_subbuf_reader;
/* Reads the ring: a heap of its sub-buffers, with the earliest event at the root. */
typedef struct mli_ring_reader {
    memlord *lord;
    mli_subbuf_reader *heap;
    size_t n, size; /* readers in the heap; bytes allocated for it */
    mli_stamp_scale scale;
} mli_ring_reader;

/* 1: a's next event comes before b's. Equal stamps go by the order of the sub-buffers. */
static int mli_subbuf_reader_before(const mli_subbuf_reader *a, const mli_subbuf_reader *b) {
    return a->stamp != b->stamp ? a->stamp < b->stamp : a->generation < b->generation;
}

/* Moves the reader at i down the heap, to where it is before its children. */
static void mli_ring_reader_sift(mli_ring_reader *r, size_t i) {
    for (;;) {
        size_t child = 2 * i + 1;
        mli_subbuf_reader swap = r->heap[i];
        if (child + 1 < r->n && mli_subbuf_reader_before(&r->heap[child + 1], &r->heap[child]))
            child++;
        if (child >= r->n || !mli_subbuf_reader_before(&r->heap[child], &swap)) return;
        r->heap[i] = r->heap[child];
        r->heap[child] = swap;
        i = child;
    }
}

/* Begins to read a sub-buffer. 1: it has events. The acquires pair with the release stores of
   mli_subbuf_next and mli_event_write; the generation is loaded again after them, so that words of
   a later writer are never taken for this one's. */
static int mli_subbuf_reader_begin(mli_subbuf_reader *s, mli_subbuf *b) {
    s->subbuf = b;
    s->at = 0;
    s->generation = mli_u64_load_acquire(&b->generation);
    s->count = mli_u32_load_acquire(&b->count);
    s->stamp = mli_u64_load_acquire(&b->at[0].stamp);
    return s->generation && s->count && mli_u64_load(&b->generation) == s->generation;
}

/* Begins to read the events that are in the ring now; 0: no memory. */
static MLI_COLD int mli_ring_reader_begin(memlord *lord, mli_ring_reader *r) {
    const mli_ring *ring = (mli_ring *)mli_ptr_load_acquire(&lord->events.ring);
    uint64_t i;
    memset(r, 0, sizeof *r);
    r->lord = lord;
    r->scale = mli_stamp_scale_now(lord);
    if (!ring) return 1;
    r->size = (size_t)ring->subbufs * sizeof *r->heap;
    r->heap = (mli_subbuf_reader *)mli_own_alloc(lord, r->size);
    if (!r->heap) return 0;
    for (i = 0; i < ring->subbufs; i++)
        r->n += (size_t)mli_subbuf_reader_begin(&r->heap[r->n], mli_subbuf_at(ring, i));
    for (i = r->n / 2; i-- > 0;) mli_ring_reader_sift(r, (size_t)i);
    return 1;
}
static void mli_ring_reader_end(mli_ring_reader *r) {
    mli_own_free(r->lord, r->heap, r->size);
}

/* Copies out the next event; 0: there is none. A sub-buffer that was given out again meanwhile
   is left. */
static MLI_COLD int mli_ring_reader_next(mli_ring_reader *r, mli_event_copy *out) {
    while (r->n) {
        mli_subbuf_reader *s = &r->heap[0];
        mli_subbuf *b = s->subbuf;
        const mli_ring_event *note = &b->at[s->at];
        int whole;
        out->stamp = mli_u64_load_acquire(&note->stamp);
        out->storage = mli_u64_load_acquire(&note->storage);
        out->what = mli_u64_load_acquire(&note->what);
        out->where = mli_u64_load_acquire(&note->where);
        out->thread = mli_u32_load_acquire(&b->thread);
        if (++s->at < s->count) s->stamp = mli_u64_load_acquire(&b->at[s->at].stamp);
        whole = mli_u64_load(&b->generation) == s->generation;
        if (!whole || s->at == s->count) *s = r->heap[--r->n];
        mli_ring_reader_sift(r, 0);
        if (whole) return 1;
    }
    return 0;
}

/* Converts an event for the host. Requires: no lock is held, as a site may get its names here. */
static MLI_COLD void mli_event_to_public(mli_ring_reader *r, const mli_event_copy *in,
                                         memlord_event *out) {
    uint32_t dev = mli_event_dev(in->what);
    uint32_t site = (uint32_t)in->where & MLI_SITE_ROWS_MAX;
    uint32_t tag = (uint32_t)(in->where >> 20) & MLI_TAG_ROWS_MAX;
    memset(out, 0, sizeof *out);
    out->time_ns = mli_since_ns(&r->scale, in->stamp);
    out->thread = in->thread;
    out->kind = (int)mli_event_kind(in->what);
    out->device = dev ? mli_device_record_at(r->lord, dev)->device : memlord_device_all();
    out->storage = in->storage;
    out->bytes = MLI_BYTES(in->what);
    out->scope = in->where >> 36;
    if (site)
        out->site = mli_site_display(
            r->lord, (mli_site_record *)mli_row_at(r->lord, MLI_BOOK_SITE, site)->subject);
    if (tag) out->tag = (const char *)mli_row_at(r->lord, MLI_BOOK_TAG, tag)->subject;
    if (out->kind == MEMLORD_EVENT_CHECKPOINT) { /* its name is in `storage` */
        out->tag = (const char *)(uintptr_t)in->storage;
        out->storage = 0;
    }
}

/* -- public -- */

MLI_API memlord_result memlord_events_start(memlord *lord, size_t capacity) {
    mli_ring *ring, *fresh;
    if (!lord) return MEMLORD_OK;
    if (capacity > MLI_EVENTS_MAX) return MEMLORD_E_INVALID;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    if (!capacity) capacity = MLI_EVENTS_DEFAULT;
    if (!mli_ptr_load(&lord->events.ring)) {
        fresh = mli_ring_new(lord, capacity);
        if (!fresh) return MEMLORD_E_NOMEM;
        mli_lock_take(&mli_process.registry_lock);
        if (!mli_ptr_load(&lord->events.ring)) { /* else another thread installed one meanwhile */
            mli_ptr_store_release(&lord->events.ring, fresh);
            fresh = NULL;
        }
        mli_lock_drop(&mli_process.registry_lock);
        if (fresh) mli_own_free(lord, fresh, fresh->size);
    }
    ring = (mli_ring *)mli_ptr_load_acquire(&lord->events.ring);
    if (ring->capacity != capacity) return MEMLORD_E_STATE;
    mli_alert_set(lord, MLI_ALERT_EVENTS, 1);
    return MEMLORD_OK;
}
MLI_API void memlord_events_stop(memlord *lord) {
    if (lord) mli_alert_set(lord, MLI_ALERT_EVENTS, 0);
}
MLI_API memlord_result memlord_events_each(memlord *lord, memlord_event_fn fn, void *user) {
    mli_ring_reader reading;
    mli_event_copy read;
    memlord_event event;
    int stop = 0;
    if (!lord) return MEMLORD_OK;
    if (!fn) return MEMLORD_E_INVALID;
    if (!mli_ring_reader_begin(lord, &reading)) return MEMLORD_E_NOMEM;
    while (!stop && mli_ring_reader_next(&reading, &read)) {
        mli_event_to_public(&reading, &read, &event);
        stop = fn(user, &event);
    }
    mli_ring_reader_end(&reading);
    return MEMLORD_OK;
}

/* ---------------------------------------------------------------------- >>fences --
   Owns the fences that the host passed in: those recorded on live blocks; those that pending blocks
   wait for, in one queue for each device and `queue`; those to be dropped because their block has
   ended. Uses memory, devices and the alert of threads.
   Invariants: `done` and `drop` of a fence are called by one thread at a time, its asker, with no
   lock held. If a block ends while its fence has an asker, the fence is detached and the asker
   frees it; else the holder of the block has it dropped. Every pending fence is in a queue until
   it is settled. Lock: fences. It may be taken inside a shard, and no shard is entered under it. */

/* The pending fences of one device and `queue`, in the order of the frees. */
typedef struct mli_queue {
    struct mli_queue *next; /* of its device type, or the next spare one */
    struct mli_fence_record *first, *last;
    struct mli_fence_record *unasked; /* it and all after it were never asked; NULL: all were */
    uint64_t id;              /* memlord_fence.queue */
    uint64_t round;           /* the last poll that asked its first fence; 0: none yet */
    uint64_t late;            /* from this time (ns) on, any call asks again */
    uint32_t dev, rest, due;  /* its device; calls it is left alone; the call that asks again */
} mli_queue;

/* A fence taken from the host. `sibling` and `serial` belong to the thread that holds the block's
   side record; the rest is under the fences lock. Records are used again, never freed, so that a
   fork and the end of the ledger find every fence in one list. */
typedef struct mli_fence_record {
    memlord_fence fence;
    struct mli_fence_record *older;           /* the record made before it */
    struct mli_fence_record *sibling;         /* the next fence of the block; one for each queue */
    struct mli_fence_record *next, *previous; /* in its queue; next: in `to_drop` and `unused` */
    mli_queue *queue;                         /* NULL: it is in none */
    void *asker;          /* mli_self of the thread that runs its functions or soon will; or NULL */
    uint64_t key, serial; /* of the pending block; serial 0: it is on no pending block */
    uint32_t dev;
    uint32_t detached;    /* 1: its block has ended, and the asker drops it */
    uint32_t owes_drop;   /* 1: the ledger accepted it, and has not called `drop` */
    int early_answer;     /* the last answer of `done` while earlier fences were pending; 0: none */
    mli_queue spare;      /* memory for a queue, this fence's or another's: see spare_queues */
} mli_fence_record;

/* Returns a record for a fence, which the ledger has not accepted yet; NULL without memory. */
static mli_fence_record *mli_fence_new(memlord *lord, const memlord_fence *fence) {
    mli_fence_record *f;
    mli_lock_take(&lord->fences.lock);
    f = lord->fences.unused;
    if (f) lord->fences.unused = f->next;
    mli_lock_drop(&lord->fences.lock);
    if (!f) {
        f = (mli_fence_record *)mli_own_alloc(lord, sizeof *f);
        if (!f) return NULL;
        mli_lock_take(&lord->fences.lock);
        f->older = (mli_fence_record *)mli_ptr_load(&lord->fences.all);
        mli_ptr_store(&lord->fences.all, f);
        f->spare.next = lord->fences.spare_queues;
        lord->fences.spare_queues = &f->spare;
        mli_lock_drop(&lord->fences.lock);
    }
    f->fence = *fence;
    return f;
}
/* Gives a record back, cleared for its next fence. */
static void mli_fence_free(memlord *lord, mli_fence_record *f) {
    mli_lock_take(&lord->fences.lock);
    f->sibling = NULL;
    f->serial = 0;
    f->detached = f->owes_drop = 0;
    f->early_answer = 0;
    f->next = lord->fences.unused;
    lord->fences.unused = f;
    mli_lock_drop(&lord->fences.lock);
}

/* Queues a fence to be dropped at the end of a call. Requires: the fences lock. */
static void mli_drops_put(memlord *lord, mli_fence_record *f) {
    f->next = lord->fences.to_drop;
    lord->fences.to_drop = f;
    mli_alert_set(lord, MLI_ALERT_DROPS, 1);
}

#define MLI_REST_LEAST 2      /* calls that leave a queue alone after its first "not done" */
#define MLI_REST_MOST 256     /* and at most, as each further one doubles them */
#define MLI_REST_NS 10000000u /* after this time any call asks again */
#define MLI_REST_LOOK 8       /* one call in 8 reads the clock for that */

/* -- queues. Requires, in all of them: the fences lock -- */

static mli_pending_queues *mli_pends_of(memlord *lord, uint32_t dev) {
    return &lord->fences.pends[lord->devices.dev_type[dev]];
}

/* Returns the queue of a device and `queue`; NULL: there is none. */
static mli_queue *mli_queue_find(const mli_pending_queues *p, uint32_t dev, uint64_t id) {
    mli_queue *q = p->first;
    while (q && (q->dev != dev || q->id != id)) q = q->next;
    return q;
}

/* Adds the queue of a fence, in the memory of a spare one. */
static mli_queue *mli_queue_add(memlord *lord, const mli_fence_record *f) {
    mli_pending_queues *p = mli_pends_of(lord, f->dev);
    mli_queue *q = lord->fences.spare_queues;
    lord->fences.spare_queues = q->next;
    memset(q, 0, sizeof *q);
    q->id = f->fence.queue;
    q->dev = f->dev;
    q->due = mli_u32_load(&p->calls);
    q->next = p->first;
    p->first = q;
    mli_alert_set(lord, (uint32_t)MLI_ALERT_PENDS << lord->devices.dev_type[q->dev], 1);
    return q;
}

/* Schedules the next poll of a queue: after `rest` calls on its device type, or by time. 0: at the
   next call. */
static void mli_queue_back_off(memlord *lord, mli_queue *q, uint32_t rest, uint64_t now) {
    mli_pending_queues *p = mli_pends_of(lord, q->dev);
    q->rest = rest < MLI_REST_MOST ? rest : MLI_REST_MOST;
    q->due = mli_u32_load(&p->calls) + q->rest;
    q->late = rest ? now + MLI_REST_NS : 0;
    if ((int32_t)(q->due - mli_u32_load(&p->due)) < 0) mli_u32_store(&p->due, q->due);
    if (q->late < mli_u64_load(&p->late)) mli_u64_store(&p->late, q->late);
}

/* Appends a fence to its queue. Under MEMLORD_FLAG_DEFER a free asks no fence, so it is unasked. */
static void mli_queue_insert(memlord *lord, mli_fence_record *f) {
    mli_queue *q = mli_queue_find(mli_pends_of(lord, f->dev), f->dev, f->fence.queue);
    if (!q) q = mli_queue_add(lord, f);
    f->queue = q;
    f->next = NULL;
    f->previous = q->last;
    if (q->last)
        q->last->next = f;
    else
        q->first = f;
    q->last = f;
    if (!q->unasked && (lord->threads.flags & MEMLORD_FLAG_DEFER)) q->unasked = f;
}

/* Removes a fence from its queue. A queue that is empty then becomes a spare one. */
static void mli_queue_remove(memlord *lord, mli_fence_record *f) {
    mli_queue *q = f->queue, **at = &mli_pends_of(lord, f->dev)->first;
    mli_fence_record **before = f->previous ? &f->previous->next : &q->first;
    mli_fence_record **after = f->next ? &f->next->previous : &q->last;
    f->queue = NULL;
    if (q->unasked == f) q->unasked = f->next;
    *before = f->next;
    *after = f->previous;
    if (f->previous) return;
    if (q->first) { /* this one was not yet asked as the first */
        q->round = 0;
        mli_queue_back_off(lord, q, 0, 0);
        return;
    }
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    q->next = lord->fences.spare_queues;
    lord->fences.spare_queues = q;
    if (!mli_pends_of(lord, f->dev)->first)
        mli_alert_set(lord, (uint32_t)MLI_ALERT_PENDS << lord->devices.dev_type[f->dev], 0);
}

/* Detaches fences from a block that has ended or has replaced them; the end of a call drops them.
   A fence that has an asker is left to it. Safe inside a shard. */
static MLI_NOINLINE void mli_fences_detach(memlord *lord, mli_fence_record *f) {
    mli_fence_record *sibling;
    if (!f) return;
    mli_lock_take(&lord->fences.lock);
    for (; f; f = sibling) {
        sibling = f->sibling;
        if (f->asker) {
            f->detached = 1;
            continue;
        }
        if (f->queue) mli_queue_remove(lord, f);
        mli_drops_put(lord, f);
    }
    mli_lock_drop(&lord->fences.lock);
}

/* -- the host's functions: while one runs, its thread asks and drops no further fences -- */

/* 1: this thread is running a function of one of the ledger's fences. */
static int mli_fence_is_running(const memlord *lord) {
    return mli_self.fence_lord == lord->threads.generation;
}
/* Returns whether a fence is done: 0 not yet, > 0 done, < 0 failed. `done` is not called again
   once it has returned one of the latter two. Requires: the caller is its asker and
   holds no lock. */
static MLI_NOINLINE int mli_fence_ask(memlord *lord, mli_fence_record *f) {
    uint64_t outer = mli_self.fence_lord;
    int answer = f->owes_drop ? f->early_answer : 1;
    if (answer) return answer;
    mli_rank_none();
    mli_self.fence_lord = lord->threads.generation;
    answer = f->fence.done(f->fence.user);
    mli_self.fence_lord = outer;
    return answer;
}
/* Calls `drop`. Requires: no lock is held. `lord` NULL: no ledger has taken the fence. */
static MLI_NOINLINE void mli_fence_drop_host(const memlord *lord, const memlord_fence *fence) {
    uint64_t outer = mli_self.fence_lord;
    if (!fence->drop) return;
    mli_rank_none();
    if (lord) mli_self.fence_lord = lord->threads.generation;
    fence->drop(fence->user);
    mli_self.fence_lord = outer;
}
/* Drops a fence that the ledger has accepted, once. Returns 1 if it did so now. Requires: as
   mli_fence_ask, or the caller alone has the fence. */
static int mli_fence_drop(memlord *lord, mli_fence_record *f) {
    if (!f->owes_drop) return 0;
    f->owes_drop = 0;
    mli_fence_drop_host(lord, &f->fence);
    return 1;
}

/* Accepts a fence that no block waits for, or none (NULL). It is dropped here, or under
   MEMLORD_FLAG_DEFER at the end of a call. `lord` NULL: the call has no ledger, and the fence is
   dropped here. */
static MLI_COLD memlord_result mli_fence_discard(memlord *lord, const memlord_fence *fence) {
    mli_fence_record *f;
    if (!fence) return MEMLORD_OK;
    if (!lord || !(lord->threads.flags & MEMLORD_FLAG_DEFER)) {
        mli_fence_drop_host(lord, fence);
        return MEMLORD_OK;
    }
    f = mli_fence_new(lord, fence);
    if (!f) return MEMLORD_E_NOMEM;
    mli_lock_take(&lord->fences.lock);
    f->owes_drop = 1;
    mli_drops_put(lord, f);
    mli_lock_drop(&lord->fences.lock);
    return MEMLORD_OK;
}

/* Drops and frees the fences that are to be dropped. Requires: no lock is held, and the caller is
   not inside. */
static MLI_COLD void mli_fences_drain(memlord *lord) {
    if (mli_fence_is_running(lord)) return; /* the outer call drops them */
    for (;;) {
        mli_fence_record *f;
        mli_lock_take(&lord->fences.lock);
        f = lord->fences.to_drop;
        if (f) lord->fences.to_drop = f->next;
        if (!f) mli_alert_set(lord, MLI_ALERT_DROPS, 0);
        mli_lock_drop(&lord->fences.lock);
        if (!f) break;
        (void)mli_fence_drop(lord, f);
        mli_fence_free(lord, f);
    }
}

/* -------------------------------------------------------------------- >>accounts --
   Owns the accounts and the charges of blocks; and the handles of accounts and tickets. Uses
   >>names, >>devices and >>threads. >>sides notes in a block's side record the account and the
   bytes it was charged. Invariants: a charge or a credit is one compare-and-swap; that of a closed
   account does nothing, as its generation differs. Locks: cold, for names and new records. */

/* Tickets and accounts are numbers of records: number:32 | generation:32. A record begins with its
   handle. A closed one is in a list, and is opened again under the next generation. The first
   generation differs between ledgers: a ticket of another ledger is unknown. */
typedef struct mli_handle {
    mli_u32 generation; /* odd: open */
    uint32_t number;
    struct mli_handle *next; /* in the list of closed records */
} mli_handle;

/* An account's record. A charge is one compare-and-swap of `word`: the low 15 bits of the
   generation, and 49 bits of bytes. */
typedef struct mli_account_record {
    mli_handle handle; /* as name and device: under the cold lock */
    mli_u64 word, peak, refused, limit;
    memlord_device device;
    char name[48];
} mli_account_record;

/* Returns the record of an open ticket or account; NULL: it is closed, or never was. The acquire
   pairs with the release in mli_handle_open. Records that were never added are zero. */
static void *mli_handle_find(const mli_book *book, size_t size, uint64_t id) {
    mli_handle *h = (mli_handle *)mli_book_at(book, (uint32_t)(id >> 32), size);
    return h && (id & 1) && mli_u32_load_acquire(&h->generation) == (uint32_t)id ? h : NULL;
}

/* Adds a closed record to a book, and to a list under its lock. */
static MLI_COLD memlord_result mli_handle_new(memlord *lord, mli_book *book, mli_u32 *count,
                                              size_t size, mli_handle **list, mli_lock *lock) {
    mli_handle *h;
    memlord_result r;
    do {
        uint32_t n;
        mli_cold_enter();
        n = mli_u32_load(count);
        h = (mli_handle *)mli_book_add(lord, book, n, size, mli_cold_alloc);
        if (h) {
            h->number = n;
            mli_u32_store(&h->generation, (uint32_t)lord->threads.generation * 0x9e3779b2u);
            mli_u32_store(count, n + 1);
        }
        r = h ? MEMLORD_OK : MLI_AGAIN;
    } while (mli_cold_leave(lord, &r));
    if (r) return r;
    mli_lock_take(lock);
    h->next = *list;
    *list = h;
    mli_lock_drop(lock);
    return MEMLORD_OK;
}

/* Opens the first record of a list, and returns its ticket or account. Requires: the caller holds
   the lock of the list and has filled the record. */
static uint64_t mli_handle_open(mli_handle **list) {
    mli_handle *h = *list;
    uint32_t generation = mli_u32_load(&h->generation) + 1;
    *list = h->next;
    mli_u32_store_release(&h->generation, generation); /* pairs with mli_handle_find */
    return (uint64_t)h->number << 32 | generation;
}

/* Closes a record, and puts it in a list. Requires: the lock of the list. */
static void mli_handle_close(mli_handle **list, mli_handle *h) {
    mli_u32_store(&h->generation, mli_u32_load(&h->generation) + 1);
    h->next = *list;
    *list = h;
}

/* -- accounts -- */

static mli_account_record *mli_account_find(memlord *lord, memlord_account account) {
    return (mli_account_record *)mli_handle_find(&lord->limits.accounts,
                                                 sizeof(mli_account_record), account);
}
/* Returns 1 if a word read from a record belongs to this account. */
static int mli_account_word_is(uint64_t word, memlord_account account) {
    return word >> 49 == (account & 0x7fff);
}

/* Adds bytes to an account, or takes them off. `any`: whatever its limit, up to 2^48. */
static memlord_result mli_account_charge(memlord *lord, memlord_account account, int64_t bytes,
                                         int any) {
    mli_account_record *b = mli_account_find(lord, account);
    uint64_t by = bytes < 0 ? (uint64_t)0 - (uint64_t)bytes : (uint64_t)bytes, word, now, limit;
    if (!b) return MEMLORD_E_UNKNOWN;
    limit = any ? 0 : mli_u64_load(&b->limit);
    if (!limit || limit > MLI_BYTES_MAX) limit = MLI_BYTES_MAX;
    word = mli_u64_load(&b->word);
    do {
        now = MLI_BYTES(word);
        if (!mli_account_word_is(word, account)) return MEMLORD_E_UNKNOWN;
        if (bytes < 0 && by > now) return MEMLORD_E_INVALID;
        if (bytes > 0 && (now > limit || by > limit - now)) {
            if (!any) (void)mli_u64_add(&b->refused, 1);
            return MEMLORD_E_LIMIT;
        }
        now += (uint64_t)bytes; /* modulo 2^64 */
    } while (!mli_u64_cas(&b->word, &word, word - MLI_BYTES(word) + now));
    if (mli_account_word_is(mli_u64_load(&b->word), account)) /* the record was not reused */
        mli_u64_max(&b->peak, (int64_t)now);
    return MEMLORD_OK;
}

/* -- the charges of blocks -- */

/* Returns the account that a thread charges its blocks on a device to; 0: none. A thread stops
   using a closed account here. */
static memlord_account mli_account_used(memlord *lord, mli_thread *t, uint32_t dev) {
    if (!(mli_u32_load(&t->special) & MLI_SPECIAL_ACCOUNT)) return 0;
    if (!mli_account_find(lord, t->account)) {
        mli_special_set(t, MLI_SPECIAL_ACCOUNT, 0);
        return 0;
    }
    return mli_selects(t->account_device, mli_device_record_at(lord, dev)->device) ? t->account : 0;
}

/* Charges the bytes of a block, which is there whatever the limit allows. 0: it did not: the
   account is closed or has 2^48. */
static int mli_account_charge_block(memlord *lord, memlord_account account, uint64_t bytes) {
    memlord_result r = mli_account_charge(lord, account, (int64_t)bytes, 0);
    if (r == MEMLORD_E_LIMIT) r = mli_account_charge(lord, account, (int64_t)bytes, 1);
    return r == MEMLORD_OK;
}

/* Takes the bytes of a block off the account it was charged to, unless that is closed. The host may
   have taken some off by memlord_account_charge: then at most what is left. */
static void mli_account_credit_block(memlord *lord, memlord_account account, uint64_t bytes) {
    mli_account_record *b = mli_account_find(lord, account);
    uint64_t word, had;
    if (!b) return;
    word = mli_u64_load(&b->word);
    do {
        had = MLI_BYTES(word);
        if (!mli_account_word_is(word, account)) return;
    } while (!mli_u64_cas(&b->word, &word, word - (bytes < had ? bytes : had)));
}

/* -- reading -- */

/* Copies the statistics of an account. Returns 0 if it is closed. Requires: the cold lock. */
static MLI_COLD int mli_account_read_locked(const mli_account_record *b,
                                            memlord_account_stat *out) {
    memset(out, 0, sizeof *out);
    if (!b || !(mli_u32_load(&b->handle.generation) & 1)) return 0;
    memcpy(out->name, b->name, strlen(b->name));
    out->device = b->device;
    out->bytes = MLI_BYTES(mli_u64_load(&b->word));
    out->peak = mli_u64_load(&b->peak);
    out->limit = mli_u64_load(&b->limit);
    out->refused = mli_u64_load(&b->refused);
    return 1;
}

/* -- public -- */

MLI_API memlord_result memlord_account_open(memlord *lord, memlord_device device, const char *name,
                                            uint64_t limit, memlord_account *out) {
    mli_account_record *b;
    mli_out text;
    memlord_result r;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    *out = 0;
    if (!lord) return MEMLORD_OK;
    if (!mli_device_valid(device)) return MEMLORD_E_DEVICE;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    for (;;) {
        mli_lock_take(&mli_process.cold_lock);
        b = (mli_account_record *)(void *)lord->limits.closed_accounts;
        if (b) break;
        mli_lock_drop(&mli_process.cold_lock);
        r = mli_handle_new(lord, &lord->limits.accounts, &lord->limits.account_count, sizeof *b,
                           &lord->limits.closed_accounts, &mli_process.cold_lock);
        if (r) return r;
    }
    mli_out_buffer(&text, b->name, sizeof b->name);
    mli_put_str(&text, name ? name : "");
    (void)mli_out_end(&text, sizeof b->name);
    b->device = device;
    mli_u64_store(&b->limit, limit);
    mli_u64_store(&b->peak, 0);
    mli_u64_store(&b->refused, 0);
    mli_u64_store(&b->word, (uint64_t)(mli_u32_load(&b->handle.generation) + 1) << 49);
    *out = mli_handle_open(&lord->limits.closed_accounts);
    mli_lock_drop(&mli_process.cold_lock);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_account_charge(memlord *lord, memlord_account account,
                                              int64_t bytes) {
    if (!lord) return MEMLORD_OK;
    return mli_call_end_uncounted(lord, mli_account_charge(lord, account, bytes, 0));
}

MLI_API memlord_result memlord_account_get(memlord *lord, memlord_account account,
                                           memlord_account_stat *out) {
    int open;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    mli_lock_take(&mli_process.cold_lock);
    open = mli_account_read_locked(mli_account_find(lord, account), out);
    mli_lock_drop(&mli_process.cold_lock);
    return open ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MLI_API memlord_result memlord_account_use(memlord *lord, memlord_account account) {
    mli_thread *t;
    memlord_account_stat stat;
    memlord_result r = MEMLORD_OK;
    if (!lord) return MEMLORD_OK;
    memset(&stat, 0, sizeof stat);
    if (account) r = memlord_account_get(lord, account, &stat);
    if (r) return r;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    if (t == lord->threads.orphan) { /* several threads share it, so it uses no account */
        r = account ? MEMLORD_E_NOMEM : MEMLORD_OK;
    } else {
        t->account = account;
        t->account_device = stat.device;
        mli_special_set(t, MLI_SPECIAL_ACCOUNT, account != 0);
    }
    mli_thread_put(lord, t);
    return r;
}

MLI_API memlord_result memlord_account_close(memlord *lord, memlord_account account) {
    mli_account_record *b;
    if (!lord) return MEMLORD_OK;
    mli_lock_take(&mli_process.cold_lock);
    b = mli_account_find(lord, account);
    if (b) {
        mli_u64_store(&b->word, (account + 1) << 49); /* charges in progress miss */
        mli_handle_close(&lord->limits.closed_accounts, &b->handle);
    }
    mli_lock_drop(&mli_process.cold_lock);
    return b ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

/* ----------------------------------------------------------------------- >>sides --
   Owns the side record of a block: the data that few blocks have (parts, fences, a description,
   an account, many references). The entry's word2 points to it. Uses the map, memory and accounts.
   Invariant: a side record belongs to the thread that holds its entry, inside an owned shard or
   with the buckets of the probe locked. Locks: those of the map; it has none of its own. */

/* The side record of a block: a description, more references than fit, fences to wait for. */
typedef struct mli_side_record {
    uint64_t word2;                  /* the rows and the birth, as in an entry without one */
    uint64_t refs;                   /* references, if the entry has MLI_REFS_MANY (127) */
    struct mli_fence_record *fences; /* recorded uses; of a pending block those not yet done */
    uint64_t serial;                 /* not 0: the block is pending; each pending one has its own */
    uint64_t epoch;                  /* in which it was freed */
    memlord_account account;         /* that it is charged to; 0: none */
    uint64_t charged;                /* bytes */
    struct mli_parts *parts;         /* NULL: none */
    memlord_meta meta;
} mli_side_record;

/* Returns the side record that a word2 points to; NULL: none. */
static mli_side_record *mli_side_record_of(uint64_t word2) {
    return word2 & 1 ? (mli_side_record *)(uintptr_t)(word2 & ~(uint64_t)1) : NULL;
}
/* Returns the plain word2 of an entry, from its side record if there is one: rows and birth. */
static uint64_t mli_word2_rows(uint64_t word2) {
    return word2 & 1 ? mli_side_record_of(word2)->word2 : word2;
}
/* Returns the references of a block, wherever they are counted. */
static uint64_t mli_refs_of(uint64_t word1, uint64_t word2) {
    uint64_t refs = MLI_REFS(word1);
    return refs == MLI_REFS_MANY ? mli_side_record_of(word2)->refs : refs;
}

/* Charges a block of `bytes` to an account, or to none if it is 0, in place of what it was charged
   before. Requires: the caller holds the entry, or no other thread knows the record. */
static void mli_side_charge(memlord *lord, mli_side_record *side, memlord_account account,
                            uint64_t bytes) {
    if (side->account != account) {
        mli_account_credit_block(lord, side->account, side->charged);
        side->account = account;
        side->charged = 0;
    }
    if (bytes < side->charged)
        mli_account_credit_block(lord, account, side->charged - bytes);
    else if (!mli_account_charge_block(lord, account, bytes - side->charged))
        return;
    side->charged = bytes;
}

/* 1: the block was freed and waits for its fences. */
static int mli_is_pending(uint64_t word2) {
    return (word2 & 1) && mli_side_record_of(word2)->serial;
}

/* Finds a key and returns its entry; NULL: it is dead or pending. In either case the caller leaves
   the probe. */
static MLI_HOT mli_entry *mli_probe_live(memlord *lord, mli_thread *t, uint32_t type, uint64_t key,
                                         mli_probe *probe) {
    (void)mli_probe_find(lord, t, type, key, 0, probe);
    return probe->entry && !mli_is_pending(probe->entry->word2) ? probe->entry : NULL;
}

/* Finds a key and returns its side record; NULL: it is dead or has none. The block may be pending.
   In either case the caller leaves the probe. */
static MLI_COLD mli_side_record *mli_probe_side_record(memlord *lord, mli_thread *t, uint32_t type,
                                                       uint64_t key, mli_probe *probe) {
    (void)mli_probe_find(lord, t, type, key, 0, probe);
    return probe->entry ? mli_side_record_of(probe->entry->word2) : NULL;
}

/* Finds a live key and makes its side record if it has none; with `for_ref` only if one more
   reference needs it. E_UNKNOWN, E_NOMEM: the shard is left already. The record is allocated
   between two probes, as nothing may be allocated inside. */
static MLI_COLD memlord_result mli_probe_add_side_record(memlord *lord, mli_thread *t,
                                                         uint32_t type, uint64_t key, int for_ref,
                                                         mli_probe *probe) {
    mli_side_record *spare = NULL;
    mli_entry *e;
    while ((e = mli_probe_live(lord, t, type, key, probe)) != NULL) {
        int needed = !(e->word2 & 1) && (!for_ref || MLI_REFS(e->word1) + 1 == MLI_REFS_MANY);
        if (needed && spare) {
            spare->word2 = e->word2;
            e->word2 = (uint64_t)(uintptr_t)spare | 1;
        }
        if (needed == (spare != NULL)) return MEMLORD_OK;
        mli_probe_leave(t, probe);
        mli_own_free(lord, spare, sizeof *spare); /* another thread has made the record */
        spare = needed ? (mli_side_record *)mli_own_alloc(lord, sizeof *spare) : NULL;
        if (needed && !spare) return MEMLORD_E_NOMEM;
    }
    mli_probe_leave(t, probe);
    mli_own_free(lord, spare, sizeof *spare);
    return MEMLORD_E_UNKNOWN;
}

/* ------------------------------------------------------------------------ >>parts --
   Owns the parts of blocks: for a block with parts, an array of pointers to them in order of
   offset. The side record points to it, and it changes only inside the block's shard. Uses the
   side records, the map and memory. Invariants: parts lie in their storage and do not overlap; no
   total counts them; memory is allocated before the shard is entered. Locks: those of the map. */

typedef struct mli_parts {
    uint64_t bytes;           /* of all parts */
    uint32_t count, room;     /* parts; parts that the array has room for */
    memlord_part_info *at[1]; /* `room` pointers; the first `count` in order of offset */
} mli_parts;
static size_t mli_parts_size(uint32_t room) {
    return sizeof(mli_parts) + (size_t)(room - 1) * sizeof(memlord_part_info *);
}

/* Returns the index of the first part at an offset or after it; `count` if there is none. */
static uint32_t mli_parts_find(const mli_parts *parts, uint64_t offset) {
    uint32_t low = 0, high = parts ? parts->count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (parts->at[middle]->offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Inserts a part in order of offset. MLI_AGAIN: the array is full, and *spare is no larger. When
   *spare replaces the array, it returns the old one in *spare. Requires: the caller is inside. */
static memlord_result mli_part_insert(mli_parts **of, memlord_part_info *part, mli_parts **spare) {
    mli_parts *parts = *of;
    uint32_t i = mli_parts_find(parts, part->offset), n = parts ? parts->count : 0;
    if (i && parts->at[i - 1]->offset + parts->at[i - 1]->bytes > part->offset)
        return MEMLORD_E_STATE;
    if (i < n && part->offset + part->bytes > parts->at[i]->offset) return MEMLORD_E_STATE;
    if (!parts || n == parts->room) {
        parts = *spare;
        if (!parts || parts->room <= n) return MLI_AGAIN;
        if (*of) memcpy(parts->at, (*of)->at, n * sizeof *parts->at);
        parts->bytes = *of ? (*of)->bytes : 0;
        *spare = *of;
        *of = parts;
    }
    memmove(parts->at + i + 1, parts->at + i, (n - i) * sizeof *parts->at);
    parts->at[i] = part;
    parts->count = n + 1;
    parts->bytes += part->bytes;
    return MEMLORD_OK;
}

/* Frees an array of parts, but not the parts. */
static void mli_parts_drop(memlord *lord, mli_parts *parts) {
    if (parts) mli_own_free(lord, parts, mli_parts_size(parts->room));
}

/* Tries once to insert a part. On MLI_AGAIN *room is the room that *spare must have for the next
   try. Enters the shard and leaves it. */
static memlord_result mli_part_insert_try(memlord *lord, mli_thread *t, uint32_t type, uint64_t key,
                                          memlord_part_info *part, mli_parts **spare,
                                          uint32_t *room) {
    mli_probe probe;
    mli_side_record *side;
    memlord_result r = mli_probe_add_side_record(lord, t, type, key, 0, &probe);
    if (r) return r;
    side = mli_side_record_of(probe.entry->word2);
    *room = side->parts ? side->parts->room * 2 : 8;
    if (part->offset + part->bytes > MLI_BYTES(probe.entry->word1))
        r = MEMLORD_E_INVALID;
    else
        r = mli_part_insert(&side->parts, part, spare);
    mli_probe_leave(t, &probe);
    return r;
}

/* Adds a copy of a part to a live block. Requires: not inside, as it allocates between tries. */
static MLI_COLD memlord_result mli_block_part_add(memlord *lord, mli_thread *t, uint32_t type,
                                                  uint64_t key, const memlord_part_info *part) {
    memlord_part_info *copy = (memlord_part_info *)mli_own_alloc(lord, sizeof *part);
    mli_parts *spare = NULL;
    uint32_t room = 0;
    memlord_result r;
    if (!copy) return MEMLORD_E_NOMEM;
    *copy = *part;
    while ((r = mli_part_insert_try(lord, t, type, key, copy, &spare, &room)) == MLI_AGAIN) {
        mli_parts_drop(lord, spare);
        spare = (mli_parts *)mli_own_alloc(lord, mli_parts_size(room));
        if (!spare) break;
        spare->room = room;
    }
    mli_parts_drop(lord, spare);
    if (r) mli_own_free(lord, copy, sizeof *copy);
    return r == MLI_AGAIN ? MEMLORD_E_NOMEM : r;
}

/* Removes the part at an offset; an array that is empty then is freed. */
static MLI_COLD memlord_result mli_block_part_remove(memlord *lord, mli_thread *t, uint32_t type,
                                                     uint64_t key, uint64_t offset) {
    mli_probe probe;
    mli_side_record *side = mli_probe_side_record(lord, t, type, key, &probe);
    mli_parts *parts = side && !side->serial ? side->parts : NULL, *empty = NULL;
    memlord_part_info *part = NULL;
    uint32_t i = mli_parts_find(parts, offset);
    if (parts && i < parts->count && parts->at[i]->offset == offset) {
        part = parts->at[i];
        parts->bytes -= part->bytes;
        parts->count--;
        memmove(parts->at + i, parts->at + i + 1, (parts->count - i) * sizeof *parts->at);
        if (!parts->count) {
            empty = parts;
            side->parts = NULL;
        }
    }
    mli_probe_leave(t, &probe);
    mli_parts_drop(lord, empty);
    mli_own_free(lord, part, sizeof *part);
    return part ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

/* Frees the parts that do not lie in the first `bytes` of their block, which has shrunk. Requires:
   no other thread can reach the array, as the block is off the map or the array off the block. */
static MLI_COLD void mli_parts_trim(memlord *lord, mli_parts *parts, uint64_t bytes) {
    while (parts && parts->count) {
        memlord_part_info *last = parts->at[parts->count - 1];
        if (last->offset + last->bytes <= bytes) return;
        parts->bytes -= last->bytes;
        parts->count--;
        mli_own_free(lord, last, sizeof *last);
    }
}

/* Frees all parts of a block. Requires: as mli_parts_trim. */
static MLI_COLD void mli_parts_free(memlord *lord, mli_parts *parts) {
    mli_parts_trim(lord, parts, 0);
    mli_parts_drop(lord, parts);
}

/* Frees the array of parts of one block as the ledger ends: an array larger than a piece does not
   lie in the ledger's regions, and is not freed with them. */
static int mli_parts_visit(const mli_entry *e, void *lord) {
    if (e->word2 & 1) mli_parts_drop((memlord *)lord, mli_side_record_of(e->word2)->parts);
    return 0;
}
static void mli_parts_end(memlord *lord) {
    uint32_t i;
    for (i = 0; i < MLI_SHARDS; i++)
        (void)mli_shard_each(&lord->map.shards[i], mli_parts_visit, lord);
}

/* Moves the parts of a block that is now pending to the block it was moved to, of `bytes`. Frees
   the parts that do not lie in those. */
static MLI_COLD void mli_parts_move(memlord *lord, mli_thread *t,
                                    uint32_t from_type, uint64_t from_key,
                                    uint32_t type, uint64_t key, uint64_t bytes) {
    mli_parts *parts = NULL;
    mli_probe probe;
    mli_side_record *side = mli_probe_side_record(lord, t, from_type, from_key, &probe);
    if (side) {
        parts = side->parts;
        side->parts = NULL;
    }
    mli_probe_leave(t, &probe);
    if (!parts) return;
    mli_parts_trim(lord, parts, bytes);
    side = mli_probe_side_record(lord, t, type, key, &probe);
    if (side && !side->parts) {
        side->parts = parts;
        parts = NULL;
    }
    mli_probe_leave(t, &probe);
    mli_parts_free(lord, parts); /* not NULL: the key's block has ended, or has parts already */
}

/* Copies up to `cap` parts from an offset on, and returns how many. *count and *bytes are those of
   all parts of the block. */
static MLI_COLD size_t mli_parts_copy(memlord *lord, uint32_t type, uint64_t key,
                                      uint64_t offset, memlord_part_info *out,
                                      size_t cap, uint64_t *count, uint64_t *bytes) {
    mli_thread *t = mli_thread_get(lord);
    const mli_parts *parts;
    const mli_side_record *side;
    mli_probe probe;
    uint32_t i;
    size_t n = 0;
    *count = *bytes = 0;
    if (!t) return 0;
    side = mli_probe_side_record(lord, t, type, key, &probe);
    parts = side ? side->parts : NULL;
    if (parts) {
        *count = parts->count;
        *bytes = parts->bytes;
        for (i = mli_parts_find(parts, offset); i < parts->count && n < cap; i++)
            out[n++] = *parts->at[i];
    }
    mli_probe_leave(t, &probe);
    mli_thread_put(lord, t);
    return n;
}

/* ----------------------------------------------------------------------- >>blocks --
   Owns the operations on a block: to open, reference, close, resize, move, describe and list it;
   and the routes of moves and copies, and the counts of dropped allocs. Uses the map, the
   counters, the sites, the side records, the parts, the fences and the events.
   Invariant: a call that opens a block makes its rows and cells first, as nothing may be allocated
   inside; then it changes the map, counts, and only then leaves the shard. So fork finds no block
   that is half counted. A free makes no cells first: the orphan's cell counts for a row where the
   thread has none. Locks: those of the map; fences inside a shard; cold for a new route. */

/* The moves and the copies from one device to another. */
typedef struct mli_route {
    struct mli_route *next;
    uint32_t from, to;
    mli_u64 moves, moved_bytes, copies, copied_bytes;
} mli_route;

#define MLI_SITE_BITS ((uint64_t)MLI_SITE_ROWS_MAX << 1)

/* 1: a storage may have this key. 0 and UINT64_MAX are none. */
static MLI_HOT int mli_key_valid(uint64_t key) { return key + 1 > 1; }

/* Returns the first fence of a block; NULL: it has none. */
static mli_fence_record *mli_fences_of(uint64_t word2) {
    return word2 & 1 ? mli_side_record_of(word2)->fences : NULL;
}

/* Frees the side record of a word2, if it has one, and its parts; detaches its fences; credits the
   account that the block was charged to. */
static MLI_NOINLINE void mli_side_record_free(memlord *lord, uint64_t word2) {
    if (!(word2 & 1)) return;
    if (mli_side_record_of(word2)->parts)
        mli_parts_free(lord, mli_side_record_of(word2)->parts);
    mli_fences_detach(lord, mli_side_record_of(word2)->fences);
    mli_account_credit_block(lord, mli_side_record_of(word2)->account,
                             mli_side_record_of(word2)->charged);
    mli_own_free(lord, mli_side_record_of(word2), sizeof(mli_side_record));
}
static uint64_t mli_word1_of(uint64_t bytes, uint32_t dev, uint32_t refs) {
    return bytes | (uint64_t)(dev | refs << 8) << 49;
}

/* Return the delta of a block that opens, and of one that closes. */
static mli_row_delta mli_delta_open(uint32_t dev, uint64_t word2, uint64_t bytes) {
    const mli_row_delta d = {dev, word2, bytes, 0, /* allocs */ 1, 0, 0, 0, 0, 0};
    return d;
}
static mli_row_delta mli_delta_close(uint32_t dev, uint64_t word2, uint64_t bytes) {
    const mli_row_delta d = {dev, word2, 0, bytes, 0, /* frees */ 1, 0, 0, 0, 0};
    return d;
}

/* Counts the end of a block. If it was pending, its bytes leave `pending`; if it was freed before
   the last reset, they do not count as freed since then. Requires: the caller is inside. */
static void mli_count_close(memlord *lord, mli_thread *t, uint64_t word1, uint64_t word2) {
    const uint32_t dev = MLI_DEV(word1);
    const mli_row_delta d = mli_delta_close(dev, mli_word2_rows(word2), MLI_BYTES(word1));
    t->other_dev = dev;
    if (mli_is_pending(word2)) {
        mli_stat_add(lord, dev, MLI_STAT_pending, (uint64_t)0 - d.out);
        if (mli_side_record_of(word2)->epoch != mli_u64_load(&lord->fences.epoch))
            mli_row_freed_exclude(lord, dev, d.out);
    }
    mli_count(lord, t, &d, 1);
}

/* Makes the cells that n deltas count on. Requires: not inside, where nothing may be allocated. */
static void mli_cells_make(memlord *lord, mli_thread *t, const mli_row_delta *d, unsigned n) {
    if (t == lord->threads.orphan) return;
    for (; n--; d++) {
        uint32_t site = MLI_SITE_ROW(d->word2), tag = MLI_TAG_ROW(d->word2);
        if (d->dev)
            (void)mli_cell_make(lord, t, MLI_BOOK_DEVICE, d->dev, mli_own_alloc);
        if (site) (void)mli_cell_make(lord, t, MLI_BOOK_SITE, site, mli_own_alloc);
        if (tag) (void)mli_cell_make(lord, t, MLI_BOOK_TAG, tag, mli_own_alloc);
    }
}

/* Counts a free at the site that made it, wherever the block was allocated. Requires: not
   inside. */
static void mli_count_site_free(memlord *lord, mli_thread *t, uint32_t dev,
                                const memlord_site *site, uint64_t bytes) {
    mli_row_delta d;
    if (!site || !(mli_u32_load(&lord->threads.hooks) & MLI_HOOK_SITES)) return;
    memset(&d, 0, sizeof d);
    d.word2 = mli_cached_row(lord, t, MLI_BOOK_SITE, site, dev);
    d.freed_here = bytes;
    d.frees_here = 1;
    mli_count(lord, t, &d, 1);
}

/* 1: with `bytes` more the device's total could leave int64. Only blocks of more than 2^32 bytes
   are checked: smaller ones would need 2^30 live blocks to get there. */
static MLI_HOT int mli_would_overflow(memlord *lord, uint32_t dev, uint64_t bytes) {
    if (MLI_LIKELY(bytes <= (uint64_t)1 << 32 || !dev)) return 0;
    return (int64_t)(mli_u64_load(&mli_row_at(lord, MLI_BOOK_DEVICE, dev)->published) + bytes) >
           (int64_t)1 << 62;
}

/* 1: MEMLORD_DEBUG wants a line from each call that changed something or found an anomaly. */
static MLI_HOT int mli_debug_on(memlord *lord) {
    return MLI_UNLIKELY(mli_u32_load(&lord->threads.hooks) & MLI_HOOK_TRACE) ? 1 : 0;
}
/* Notes for the debug line of this call where the block was before. */
static MLI_COLD void mli_debug_note_from(memlord *lord, memlord_device d, uint64_t storage) {
    if (!mli_debug_on(lord)) return;
    mli_self.note.from_device = d;
    mli_self.note.from = storage;
}

/* Counts an alloc that found no memory to be recorded in, on the ledger as a whole if its device
   could not be added: no memory, or too many devices. Its free is then expected, and no unknown
   one: see mli_drop_match. Returns r; other errors are not counted. */
static MLI_COLD memlord_result mli_drop_count(memlord *lord, memlord_result r, memlord_device d,
                                              uint64_t bytes) {
    uint32_t dev;
    if (r != MEMLORD_E_NOMEM && (r != MEMLORD_E_DEVICE || !mli_device_valid(d))) return r;
    dev = mli_dev_known(lord, d);
    mli_stat_add(lord, dev, MLI_STAT_dropped_allocs, 1);
    mli_stat_add(lord, dev, MLI_STAT_dropped_bytes, bytes);
    (void)mli_u64_add(&lord->blocks.dropped[d.type], 1);
    if (r == MEMLORD_E_NOMEM) /* the other one is logged as a refusal */
        mli_drop_warn(lord, &lord->blocks.warned_alloc,
                      "[drop] no room to record an alloc: give the ledger's allocator more; "
                      "dropped_allocs has how many");
    return r;
}
/* 1: an unknown storage is taken for one of the dropped allocs of its type, which is then expected
   no more. */
static int mli_drop_match(memlord *lord, int type) {
    uint64_t left = mli_u64_load(&lord->blocks.dropped[type]);
    while (left)
        if (mli_u64_cas(&lord->blocks.dropped[type], &left, left - 1)) return 1;
    return 0;
}
/* Counts the end of an unknown storage, on the ledger as a whole if its device cannot be added.
   Returns E_UNKNOWN; or OK, uncounted, if it matches a dropped alloc. */
static MLI_COLD memlord_result mli_unknown_free(memlord *lord, memlord_device d) {
    uint32_t dev;
    if (mli_drop_match(lord, d.type)) return MEMLORD_OK;
    if (mli_dev_named(lord, d, &dev)) dev = 0;
    mli_stat_add(lord, dev, MLI_STAT_unknown_frees, 1);
    if (mli_debug_on(lord)) mli_self.note.unknown++;
    return MEMLORD_E_UNKNOWN;
}

/* What a key is to a call that ends its block. */
enum { MLI_KEY_DEAD, MLI_KEY_PENDING, MLI_KEY_LIVE, MLI_KEY_USED }; /* USED: live, with fences */

/* Returns MLI_KEY_...; a key that is not dead has its entry in *e, with its word2 without a side
   record. */
static MLI_COLD int mli_key_state(memlord *lord, mli_thread *t, memlord_device d, uint64_t key,
                                  mli_entry *e) {
    mli_probe probe;
    int state = MLI_KEY_DEAD;
    (void)mli_probe_find(lord, t, (uint32_t)d.type, key, 0, &probe);
    if (probe.entry) {
        *e = *probe.entry;
        state = mli_is_pending(e->word2) ? MLI_KEY_PENDING
                : mli_fences_of(e->word2) ? MLI_KEY_USED
                                          : MLI_KEY_LIVE;
        e->word2 = mli_word2_rows(e->word2);
    }
    mli_probe_leave(t, &probe);
    return state;
}

/* Returns the error of a call that found no memory: E_NOMEM if its storage is live, else
   E_UNKNOWN, which needs none. `ends`: the call ends the storage, so an unknown one is counted. */
static MLI_COLD memlord_result mli_short_of(memlord *lord, mli_thread *t,
                                            memlord_device d, uint64_t key, int ends) {
    mli_entry e;
    if (mli_key_state(lord, t, d, key, &e) >= MLI_KEY_LIVE) return MEMLORD_E_NOMEM;
    if (ends) (void)mli_unknown_free(lord, d);
    return MEMLORD_E_UNKNOWN;
}

/* Begins a call on a block that is on the map: checks the device and the storage, and gets the
   thread record. *t NULL: the caller returns the result; it is OK on no ledger, and from within the
   ledger's own allocator call. */
static memlord_result mli_key_begin(memlord *lord, memlord_device d, uint64_t key,
                                    mli_thread **t) {
    *t = NULL;
    if (!lord) return MEMLORD_OK;
    if (!mli_key_valid(key)) return MEMLORD_E_INVALID;
    if (!mli_type_valid(d)) return MEMLORD_E_DEVICE;
    *t = mli_thread_get(lord);
    return MEMLORD_OK;
}

/* -- references -- */

/* Removes a reference. Requires: the block has more than one. */
static void mli_ref_down(mli_entry *e) {
    if (MLI_REFS(e->word1) == MLI_REFS_MANY &&
        --mli_side_record_of(e->word2)->refs >= MLI_REFS_MANY)
        return;
    e->word1 -= MLI_REFS_ONE;
}

/* Adds a reference. 0: the count needs a side record first. */
static int mli_ref_up(mli_entry *e) {
    const uint64_t refs = mli_refs_of(e->word1, e->word2) + 1;
    if (refs >= MLI_REFS_MANY && !(e->word2 & 1)) return 0;
    if (refs <= MLI_REFS_MANY) e->word1 += MLI_REFS_ONE;
    if (refs >= MLI_REFS_MANY) mli_side_record_of(e->word2)->refs = refs;
    return 1;
}

/* Adds a reference to a live block, and the side record that the count may need. */
static MLI_COLD memlord_result mli_block_retain(memlord *lord, mli_thread *t,
                                                uint32_t type, uint64_t key) {
    mli_probe probe;
    memlord_result r = mli_probe_add_side_record(lord, t, type, key, 1, &probe);
    if (r) return r;
    (void)mli_ref_up(probe.entry);
    mli_probe_leave(t, &probe);
    return MEMLORD_OK;
}

/* Adds a reference to the probe's live block, and leaves the shard. */
static memlord_result mli_probe_retain(memlord *lord, mli_thread *t, uint32_t type,
                                       mli_probe *probe) {
    const int up = mli_ref_up(probe->entry);
    mli_probe_leave(t, probe);
    return up ? MEMLORD_OK : mli_block_retain(lord, t, type, probe->key);
}

/* -- open -- */

enum { /* how mli_entry_put treats the block that has the key already */
    MLI_PUT_ALLOC = 0, /* it ends: it is stale, or pending and the host has the storage again */
    MLI_PUT_TRACK = 1, /* a live one gets a reference, a pending one ends */
    MLI_PUT_HOLD = 2   /* a bit beside either: what would end stays, and nothing is put */
};
enum { MLI_DID_NOTHING, MLI_DID_OPEN, MLI_DID_VIEW }; /* VIEW: added a reference */

/* Puts an entry in the probe's slot, counts n deltas, and leaves the shard. A block that has the
   slot already ends; if it was live, its free was never recorded. */
static MLI_COLD void mli_probe_put(memlord *lord, mli_thread *t, mli_probe *probe,
                                   const mli_entry *e, const mli_row_delta *d, unsigned n) {
    const uint32_t size = probe->shard->size;
    const int replaces = probe->entry != NULL;
    mli_entry stale = *e;
    int crowded = 0;
    if (replaces) {
        stale = *probe->entry;
        *probe->entry = *e;
    } else {
        mli_probe_insert(probe, e->word1, e->word2);
        crowded = probe->bucket && mli_shard_crowded(lord, probe->shard);
    }
    mli_probe_unlock(probe);
    if (replaces) mli_count_close(lord, t, stale.word1, stale.word2);
    mli_count(lord, t, d, n);
    mli_probe_leave(t, probe);
    if (crowded) /* without memory the table stays: slower, but exact */
        (void)mli_shard_grow(lord, t, probe->shard, size);
    if (!replaces) return;
    mli_event_record_end(lord, t, MEMLORD_EVENT_FREE, stale.key, stale.word1,
                         mli_word2_rows(stale.word2), NULL);
    if (!mli_is_pending(stale.word2)) {
        mli_stat_add(lord, MLI_DEV(stale.word1), MLI_STAT_implicit_frees, 1);
        if (mli_debug_on(lord)) {
            mli_self.note.implicit++;
            mli_self.note.implicit_bytes += MLI_BYTES(stale.word1);
        }
    }
    mli_side_record_free(lord, stale.word2);
}

/* Puts an entry on the map under its key and counts n deltas. *did: MLI_DID_... Requires: not
   inside. */
static MLI_COLD memlord_result mli_entry_put(memlord *lord, mli_thread *t, const mli_entry *e,
                                             const mli_row_delta *d, unsigned n, int how,
                                             int *did) {
    const uint32_t type = lord->devices.dev_type[MLI_DEV(e->word1)];
    mli_probe probe;
    memlord_result r;
    *did = MLI_DID_NOTHING;
    mli_cells_make(lord, t, d, n);
    for (;;) {
        if (mli_probe_find(lord, t, type, e->key, 1, &probe)) return MEMLORD_E_NOMEM;
        if (!probe.entry) break;
        if (!(how & MLI_PUT_TRACK) || mli_is_pending(probe.entry->word2)) {
            if (!(how & MLI_PUT_HOLD)) break;
            mli_probe_leave(t, &probe);
            return MEMLORD_OK;
        }
        r = mli_probe_retain(lord, t, type, &probe);
        if (r == MEMLORD_OK) *did = MLI_DID_VIEW;
        if (r != MEMLORD_E_UNKNOWN) return r; /* else another thread ended it between the two */
    }
    *did = MLI_DID_OPEN;
    mli_probe_put(lord, t, &probe, e, d, n);
    return MEMLORD_OK;
}

/* Charges the entry of a new block to the account that its thread uses. 0: there is no memory for
   the side record. */
static MLI_COLD int mli_entry_charge(memlord *lord, mli_thread *t, mli_entry *e) {
    const memlord_account account = mli_account_used(lord, t, MLI_DEV(e->word1));
    mli_side_record *side;
    if (!account) return 1;
    side = (mli_side_record *)mli_own_alloc(lord, sizeof *side);
    if (!side) return 0;
    side->word2 = e->word2;
    mli_side_charge(lord, side, account, MLI_BYTES(e->word1));
    e->word2 = (uint64_t)(uintptr_t)side | 1;
    return 1;
}

/* Opens a block of one reference. */
static MLI_COLD memlord_result mli_block_open(memlord *lord, mli_thread *t, uint32_t dev,
                                              uint64_t key, uint64_t bytes, uint64_t rows, int how,
                                              int *did) {
    const mli_row_delta d = mli_delta_open(dev, rows, bytes);
    mli_entry e = {key, mli_word1_of(bytes, dev, 1), rows};
    memlord_result r;
    *did = MLI_DID_NOTHING;
    if (mli_would_overflow(lord, dev, bytes)) return MEMLORD_E_INVALID;
    if (!mli_entry_charge(lord, t, &e)) return MEMLORD_E_NOMEM;
    r = mli_entry_put(lord, t, &e, &d, 1, how, did);
    if (*did != MLI_DID_OPEN) mli_side_record_free(lord, e.word2);
    return r;
}

/* -- close -- */

/* Ends the probe's block: erases the entry, counts, leaves the shard and frees the side record.
   `undo`: its open is taken back. */
static void mli_probe_end_block(memlord *lord, mli_thread *t, mli_probe *probe, int undo) {
    const mli_entry gone = *probe->entry;
    mli_row_delta d =
        mli_delta_open(MLI_DEV(gone.word1), mli_word2_rows(gone.word2), MLI_BYTES(gone.word1));
    d.undo = 1;
    mli_probe_erase(probe);
    if (undo)
        mli_count(lord, t, &d, 1);
    else
        mli_count_close(lord, t, gone.word1, gone.word2);
    mli_probe_leave(t, probe);
    mli_side_record_free(lord, gone.word2);
}

/* Undoes an open of `bytes` by this thread, unless another thread has ended the block or replaced
   it by one of another size. */
static MLI_COLD void mli_block_unopen(memlord *lord, mli_thread *t, uint32_t dev,
                                      uint64_t key, uint64_t bytes) {
    mli_probe probe;
    (void)mli_probe_find(lord, t, lord->devices.dev_type[dev], key, 0, &probe);
    if (probe.entry && MLI_BYTES(probe.entry->word1) == bytes)
        mli_probe_end_block(lord, t, &probe, 1);
    else
        mli_probe_leave(t, &probe);
}

enum { MLI_END_FREE, MLI_END_RELEASE };

/* Makes a live block pending: queues its fences, with this thread as the asker of all. Returns the
   first of them; the others are its siblings. Requires: the caller is inside, and the block has a
   side record. */
static mli_fence_record *mli_block_pend(memlord *lord, mli_entry *e) {
    mli_side_record *side = mli_side_record_of(e->word2);
    mli_fence_record *f;
    side->serial = mli_u64_add(&lord->fences.serial, 1) + 1;
    side->epoch = mli_u64_load(&lord->fences.epoch);
    mli_stat_add(lord, MLI_DEV(e->word1), MLI_STAT_pending, MLI_BYTES(e->word1));
    mli_lock_take(&lord->fences.lock);
    for (f = side->fences; f; f = f->sibling) {
        f->key = e->key;
        f->serial = side->serial;
        f->dev = MLI_DEV(e->word1);
        f->asker = &mli_self;
        mli_queue_insert(lord, f);
    }
    mli_lock_drop(&lord->fences.lock);
    return side->fences;
}

/* Frees or releases a block, on the general path. *gone is the entry that ended, with the word2 it
   would have without a side record; its key is 0 if none did. A block with recorded uses becomes
   pending, and the caller asks *chain, its fences, once it has left. */
static MLI_COLD memlord_result mli_block_close(memlord *lord, mli_thread *t, memlord_device d,
                                               uint64_t key, int how, mli_entry *gone,
                                               mli_fence_record **chain) {
    mli_probe probe;
    uint64_t refs, word2;
    gone->key = 0;
    *chain = NULL;
    if (!mli_probe_live(lord, t, (uint32_t)d.type, key, &probe)) {
        mli_probe_leave(t, &probe);
        return mli_unknown_free(lord, d);
    }
    refs = mli_refs_of(probe.entry->word1, probe.entry->word2);
    if (how == MLI_END_RELEASE && refs > 1) {
        mli_ref_down(probe.entry);
        mli_probe_leave(t, &probe);
        return MEMLORD_OK;
    }
    *gone = *probe.entry;
    word2 = gone->word2;
    gone->word2 = mli_word2_rows(word2);
    if (mli_fences_of(word2)) {
        *chain = mli_block_pend(lord, probe.entry);
        mli_probe_leave(t, &probe);
    } else {
        mli_probe_end_block(lord, t, &probe, 0);
    }
    if (refs > 1)
        mli_stat_add(lord, MLI_DEV(gone->word1), MLI_STAT_freed_while_shared, 1);
    return MEMLORD_OK;
}

/* -- realloc and move: an entry is detached from the map, still counted, and attached again -- */

/* Erases the entry of a live block without counting, and copies it to *out. */
static memlord_result mli_entry_detach(memlord *lord, mli_thread *t, uint32_t type,
                                       uint64_t key, mli_entry *out) {
    mli_probe probe;
    int found = mli_probe_live(lord, t, type, key, &probe) != NULL;
    if (found) {
        *out = *probe.entry;
        mli_probe_erase(&probe);
        mli_detached_count(t, 1, MLI_BYTES(out->word1));
    }
    mli_probe_leave(t, &probe);
    return found ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

/* Returns the word2 of a block that a call at `site` resizes or moves to `dev`: the tag stays; the
   site becomes `site`, if sites are counted and there is one. Both words are without a side record.
   On another device the rows are those of that device. Requires: not inside. */
static MLI_COLD uint64_t mli_word2_moved(memlord *lord, mli_thread *t, uint64_t word2, uint32_t dev,
                                         const memlord_site *site, int same_device) {
    uint32_t site_row = MLI_SITE_ROW(word2), tag_row = MLI_TAG_ROW(word2);
    if (site && (mli_u32_load(&lord->threads.hooks) & MLI_HOOK_SITES))
        site_row = MLI_SITE_ROW(mli_cached_row(lord, t, MLI_BOOK_SITE, site, dev));
    else if (site_row && !same_device)
        site_row = mli_row_of(
            lord, MLI_BOOK_SITE,
            mli_ptr_load(
                &((mli_site_record *)mli_row_at(lord, MLI_BOOK_SITE, site_row)->subject)->display),
            dev);
    if (tag_row && !same_device)
        tag_row = mli_row_of(lord, MLI_BOOK_TAG,
                             mli_row_at(lord, MLI_BOOK_TAG, tag_row)->subject, dev);
    return (word2 & ~MLI_ROWS_MASK) | (uint64_t)site_row << 1 | (uint64_t)tag_row << 21;
}

/* Counts a detached entry as closed and frees its side record: it is not attached again. */
static void mli_entry_abandon(memlord *lord, mli_thread *t, const mli_entry *e) {
    mli_row_delta d = mli_delta_close(
        MLI_DEV(e->word1), mli_word2_rows(e->word2), MLI_BYTES(e->word1));
    d.attaches = MLI_BYTES(e->word1) + 1;
    mli_cells_make(lord, t, &d, 1);
    mli_shard_enter_to_count(lord, t);
    mli_count(lord, t, &d, 1);
    mli_shard_leave(t);
    mli_side_record_free(lord, e->word2);
}

/* Sets the rows and the birth of an entry, in its side record if it has one. Requires: the entry is
   detached, or the caller holds it. */
static void mli_entry_set_rows(mli_entry *e, uint64_t plain) {
    if (e->word2 & 1)
        mli_side_record_of(e->word2)->word2 = plain;
    else
        e->word2 = plain;
}

/* Attaches a detached block under a key, with a device and a size, and counts the change: `moves`
   as the end of one block and the open of another, else the difference. *rows is the word2 that it
   then has without a side record: another thread may free that once the block is on the map.
   Without room the block is closed as it was before, and counts as a dropped alloc. */
static memlord_result mli_entry_attach(memlord *lord, mli_thread *t, mli_entry *e, uint64_t key,
                                       uint32_t dev, uint64_t bytes, const memlord_site *site,
                                       int moves, uint64_t *rows) {
    const uint32_t from = MLI_DEV(e->word1);
    const uint64_t had = MLI_BYTES(e->word1), plain = mli_word2_rows(e->word2);
    const uint64_t now = *rows = mli_word2_moved(lord, t, plain, dev, site, from == dev);
    mli_row_delta d[3];
    mli_entry put;
    unsigned n = 1;
    int did;
    memlord_result r;
    memset(d, 0, sizeof d);
    d[0].dev = dev;
    d[0].word2 = now;
    d[0].in = bytes > had ? bytes - had : 0;
    d[0].out = had > bytes ? had - bytes : 0;
    if (moves) {
        d[0] = mli_delta_close(from, plain, had);
        d[1] = mli_delta_open(dev, now, bytes);
        n = 2;
    } else if (MLI_SITE_ROW(now) != MLI_SITE_ROW(plain)) {
        /* the old site loses all its bytes, and the new one gets all */
        d[0].word2 = now & ~MLI_SITE_BITS;
        d[1].word2 = plain & MLI_SITE_BITS;
        d[1].out = had;
        d[2].word2 = now & MLI_SITE_BITS;
        d[2].in = bytes;
        d[2].allocs = 1;
        n = 3;
    }
    d[0].attaches = had + 1;
    if (e->word2 & 1) {
        mli_side_record *side = mli_side_record_of(e->word2);
        mli_parts_trim(lord, side->parts, bytes);
        mli_side_charge(lord, side,
                        from == dev ? side->account : mli_account_used(lord, t, dev), bytes);
    }
    mli_entry_set_rows(e, now);
    put.key = key;
    put.word1 = mli_word1_of(bytes, dev, MLI_REFS(e->word1));
    put.word2 = e->word2;
    r = mli_entry_put(lord, t, &put, d, n, MLI_PUT_ALLOC, &did);
    if (r == MEMLORD_OK) return r;
    mli_entry_set_rows(e, plain);
    mli_entry_abandon(lord, t, e);
    return mli_drop_count(lord, r, mli_device_record_at(lord, dev)->device, bytes);
}

/* Returns the route between two devices, and makes it on first use; NULL: no memory. Requires: not
   inside. */
static MLI_COLD mli_route *mli_route_of(memlord *lord, uint32_t from, uint32_t to) {
    mli_route *route, *fresh = NULL;
    for (;;) {
        route = (mli_route *)mli_ptr_load_acquire(&lord->blocks.routes);
        while (route && (route->from != from || route->to != to)) route = route->next;
        if (route || fresh) break;
        fresh = (mli_route *)mli_own_alloc(lord, sizeof *fresh);
        if (!fresh) return NULL;
        mli_lock_take(&mli_process.cold_lock); /* and search again under it */
    }
    if (!route) {
        route = fresh;
        route->from = from;
        route->to = to;
        route->next = (mli_route *)mli_ptr_load(&lord->blocks.routes);
        mli_ptr_store_release(&lord->blocks.routes, route); /* pairs with the walks' loads */
    }
    if (fresh) mli_lock_drop(&mli_process.cold_lock);
    if (fresh && fresh != route) mli_own_free(lord, fresh, sizeof *fresh);
    return route;
}
/* Counts a move on the device it went to and on its route; without memory for a new route, on the
   device alone. Requires: not inside. */
static MLI_COLD void mli_move_count(memlord *lord, uint32_t from, uint32_t to, uint64_t bytes) {
    mli_route *route = mli_route_of(lord, from, to);
    mli_stat_add(lord, to, MLI_STAT_moves, 1);
    mli_stat_add(lord, to, MLI_STAT_moved_bytes, bytes);
    if (!route) return;
    (void)mli_u64_add(&route->moves, 1);
    (void)mli_u64_add(&route->moved_bytes, bytes);
}

/* Makes room for a key: an insert that follows fails only if another thread takes the room. */
static memlord_result mli_map_reserve(memlord *lord, mli_thread *t, uint32_t dev, uint64_t key) {
    mli_probe probe;
    if (mli_probe_find(lord, t, lord->devices.dev_type[dev], key, 1, &probe))
        return MEMLORD_E_NOMEM;
    mli_probe_leave(t, &probe);
    return MEMLORD_OK;
}

/* Moves a block to a device, a key and a size, and counts that. Its side record goes along; one
   that will be charged gets one first. */
static MLI_COLD memlord_result mli_block_move(memlord *lord, mli_thread *t, memlord_device from,
                                              uint64_t from_key, uint32_t dev, uint64_t key,
                                              uint64_t bytes, const memlord_site *site) {
    mli_entry e;
    uint64_t rows;
    mli_probe probe;
    memlord_result r = mli_map_reserve(lord, t, dev, key);
    if (r == MEMLORD_OK && mli_account_used(lord, t, dev)) {
        r = mli_probe_add_side_record(lord, t, (uint32_t)from.type, from_key, 0, &probe);
        if (r == MEMLORD_OK) mli_probe_leave(t, &probe);
    }
    if (r) return mli_short_of(lord, t, from, from_key, 1);
    if (mli_entry_detach(lord, t, (uint32_t)from.type, from_key, &e))
        return mli_unknown_free(lord, from);
    t->other_dev = MLI_DEV(e.word1);
    mli_event_record_end(lord, t, MEMLORD_EVENT_FREE, from_key, e.word1, mli_word2_rows(e.word2),
                         site);
    r = mli_entry_attach(lord, t, &e, key, dev, bytes, site, 1, &rows);
    if (r) return r;
    mli_event_record(lord, t, MEMLORD_EVENT_MOVE, dev, key, bytes, rows);
    mli_move_count(lord, MLI_DEV(e.word1), dev, bytes);
    return MEMLORD_OK;
}

/* -- finding and listing -- */

/* Copies a block for the host. Requires: the caller is inside, or has paused the shard. The site is
   copied in its present form: a return address may have no names yet. */
static MLI_COLD void mli_block_copy_out(memlord *lord, const mli_entry *e,
                                        memlord_block_info *out) {
    uint64_t plain = mli_word2_rows(e->word2);
    uint32_t site = MLI_SITE_ROW(plain), tag = MLI_TAG_ROW(plain);
    memset(out, 0, sizeof *out);
    out->device = mli_device_record_at(lord, MLI_DEV(e->word1))->device;
    out->storage = e->key;
    out->bytes = MLI_BYTES(e->word1);
    out->refs = mli_refs_of(e->word1, e->word2);
    out->born = mli_mark_of(lord, plain);
    if (mli_scope_of(lord, plain))
        out->scope = mli_scope_record_at(lord, mli_scope_of(lord, plain))->path;
    if (tag) out->tag = (const char *)mli_row_at(lord, MLI_BOOK_TAG, tag)->subject;
    if (site)
        out->site = (const memlord_site *)mli_ptr_load_acquire(
            &((mli_site_record *)mli_row_at(lord, MLI_BOOK_SITE, site)->subject)->display);
    if (e->word2 & 1) out->meta = mli_side_record_of(e->word2)->meta;
    out->pending = mli_is_pending(e->word2);
}
/* Called for each block of a paused shard that matches a query. Non-zero stops the walk. */
typedef int (*mli_visit_fn)(memlord *lord, const mli_entry *e, void *user);

/* Selects the blocks that a walk over the map visits. */
typedef struct mli_walk_query {
    memlord_device sel;
    uint64_t min_bytes, min_born;
    uint64_t address;   /* with `containing`: only the storages that it lies in */
    int containing;     /* 1: `address` is used, and min_born is not */
    size_t part, parts; /* a shard is walked `parts` times, once for each part; 0: once for all */
    memlord *lord;      /* this and the next two: set by mli_shard_visit */
    mli_visit_fn fn;
    void *user;
} mli_walk_query;
static mli_walk_query mli_walk_query_of(memlord_device sel) {
    mli_walk_query q;
    memset(&q, 0, sizeof q);
    q.sel = sel;
    return q;
}

static MLI_COLD int mli_visit_entry(const mli_entry *e, void *query) {
    const mli_walk_query *q = (const mli_walk_query *)query;
    uint64_t bytes = MLI_BYTES(e->word1);
    if (bytes < q->min_bytes ||
        !mli_selects(q->sel, mli_device_record_at(q->lord, MLI_DEV(e->word1))->device))
        return 0;
    if (q->containing ? q->address < e->key || q->address - e->key >= bytes
                      : mli_mark_of(q->lord, mli_word2_rows(e->word2)) < q->min_born)
        return 0;
    if (q->parts && (mli_hash(e->key) >> 32) % q->parts != q->part) return 0;
    return q->fn(q->lord, e, q->user);
}

/* Pauses a shard and calls fn for each of its blocks that matches a query, until fn returns
   non-zero, which it returns. fn may not allocate, nor call the host. */
static MLI_COLD int mli_shard_visit(memlord *lord, mli_shard *s, mli_walk_query *q,
                                    mli_visit_fn fn, void *user) {
    int stop;
    if (!mli_shard_pause(lord, s)) return 0;
    q->lord = lord;
    q->fn = fn;
    q->user = user;
    stop = mli_shard_each(s, mli_visit_entry, q);
    mli_shard_resume(s);
    return stop;
}

/* Calls fn for each block of the map that matches a query, as mli_shard_visit, one shard after the
   other. */
static MLI_COLD void mli_map_visit(memlord *lord, mli_walk_query *q, mli_visit_fn fn, void *user) {
    uint32_t i;
    for (i = 0; i < MLI_SHARDS; i++)
        if (mli_shard_visit(lord, &lord->map.shards[i], q, fn, user)) return;
}

static int mli_visit_count(memlord *lord, const mli_entry *e, void *user) {
    (void)lord;
    (void)e;
    ++*(size_t *)user;
    return 0;
}

/* Copies of blocks: items of `size` bytes, each filled from an entry while its shard is paused. */
typedef void (*mli_fill_fn)(void *user, const mli_entry *e, void *item);
typedef int (*mli_item_fn)(void *user, void *item); /* non-zero stops */
typedef struct mli_copies {
    char *at;
    size_t size, count, cap; /* `count` blocks matched; only the first `cap` are copied */
    mli_fill_fn fill;
    void *user;
} mli_copies;
static MLI_COLD int mli_visit_copy(memlord *lord, const mli_entry *e, void *user) {
    mli_copies *c = (mli_copies *)user;
    (void)lord;
    if (c->count < c->cap) c->fill(c->user, e, c->at + c->count * c->size);
    c->count++;
    return 0;
}

/* 1: a shard has more matches than may be copied at once, as small blocks lie close together: the
   query is split into parts from here on. The hash of its key puts a block into one part, so that
   it is listed once, however the table changes between the walks. */
#define MLI_BLOCK_LIST_MIN 4096u
static int mli_walk_query_split(mli_walk_query *q, size_t count) {
    if (q->parts || count <= MLI_BLOCK_LIST_MIN) return 0;
    q->parts = (count + MLI_BLOCK_LIST_MIN - 1) / MLI_BLOCK_LIST_MIN;
    return 1;
}

/* Copies the blocks of a shard that match a query, or its current part. Allocates room for them
   while the shard is not paused, and then tries again. */
static MLI_COLD memlord_result mli_shard_copy(memlord *lord, mli_shard *s, mli_walk_query *q,
                                              mli_copies *c) {
    for (;;) {
        size_t cap;
        c->count = 0;
        (void)mli_shard_visit(lord, s, q, mli_visit_copy, c);
        if (mli_walk_query_split(q, c->count)) continue;
        if (c->count <= c->cap) return MEMLORD_OK;
        mli_own_free(lord, c->at, c->cap * c->size);
        for (cap = c->cap ? c->cap : 64; cap < c->count;) cap *= 2;
        c->cap = 0;
        c->at = (char *)mli_own_alloc(lord, cap * c->size);
        if (!c->at) return MEMLORD_E_NOMEM;
        c->cap = cap;
    }
}

/* Calls fn for copies of the blocks that match a query, shard by shard, while none is paused: fn
   may call the host. */
static MLI_COLD memlord_result mli_copies_each(memlord *lord, mli_walk_query *q, size_t size,
                                               mli_fill_fn fill, mli_item_fn fn, void *user) {
    mli_copies c = {NULL, size, 0, 0, fill, user};
    memlord_result r = MEMLORD_OK;
    uint32_t i;
    size_t k;
    int stop = 0;
    for (i = 0; i < MLI_SHARDS && !stop && r == MEMLORD_OK; i++) {
        mli_walk_query some = *q;
        do {
            r = mli_shard_copy(lord, &lord->map.shards[i], &some, &c);
            for (k = 0; k < c.count && !stop && r == MEMLORD_OK; k++)
                stop = fn(user, c.at + k * size);
        } while (++some.part < some.parts && !stop && r == MEMLORD_OK);
    }
    mli_own_free(lord, c.at, c.cap * size);
    return r;
}

typedef struct mli_block_call { /* a function of the host, and how often it was called */
    memlord *lord;
    memlord_block_fn fn;
    void *user;
    size_t count;
} mli_block_call;
static MLI_COLD void mli_block_fill(void *user, const mli_entry *e, void *item) {
    mli_block_copy_out(((mli_block_call *)user)->lord, e, (memlord_block_info *)item);
}
static MLI_COLD int mli_block_call_on(void *user, void *item) {
    mli_block_call *call = (mli_block_call *)user;
    memlord_block_info *info = (memlord_block_info *)item;
    info->site = mli_site_display_of(call->lord, info->site);
    call->count++;
    return call->fn(call->user, info);
}
static MLI_COLD memlord_result mli_map_each(memlord *lord, mli_walk_query *q,
                                            memlord_block_fn fn, void *user, size_t *seen) {
    mli_block_call call = {lord, fn, user, 0};
    memlord_result r = mli_copies_each(lord, q, sizeof(memlord_block_info),
                                       mli_block_fill, mli_block_call_on, &call);
    if (seen) *seen = call.count;
    return r;
}

/* -- the k largest: a heap with its smallest at the root; ties by address, for a stable list -- */

/* The heap: `count` of the k = `cap` blocks; it is in order from the k-th on. */
typedef struct mli_largest {
    memlord_block_info *at;
    size_t count, cap;
} mli_largest;
static int mli_block_smaller(const memlord_block_info *a, const memlord_block_info *b) {
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->storage > b->storage;
}
static MLI_COLD void mli_block_heap_down(memlord_block_info *heap, size_t n, size_t i) {
    memlord_block_info moving = heap[i];
    size_t child;
    while ((child = 2 * i + 1) < n) {
        if (child + 1 < n && mli_block_smaller(&heap[child + 1], &heap[child])) child++;
        if (!mli_block_smaller(&heap[child], &moving)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}
static MLI_COLD void mli_block_heap_make(mli_largest *top) {
    size_t i;
    for (i = top->count / 2; i--;) mli_block_heap_down(top->at, top->count, i);
}
/* Keeps a block if it is one of the k largest so far. */
static MLI_COLD int mli_visit_top(memlord *lord, const mli_entry *e, void *user) {
    mli_largest *top = (mli_largest *)user;
    memlord_block_info info;
    if (top->count < top->cap) {
        mli_block_copy_out(lord, e, &top->at[top->count++]);
        if (top->count == top->cap) mli_block_heap_make(top);
        return 0;
    }
    if (MLI_BYTES(e->word1) < top->at[0].bytes) return 0;
    mli_block_copy_out(lord, e, &info);
    if (mli_block_smaller(&top->at[0], &info)) {
        top->at[0] = info;
        mli_block_heap_down(top->at, top->count, 0);
    }
    return 0;
}
/* Sorts the heap in place, the largest first, and resolves the sites. Returns the count. */
static MLI_COLD size_t mli_block_heap_sort(memlord *lord, mli_largest *top) {
    memlord_block_info *out = top->at;
    size_t n;
    if (top->count < top->cap) mli_block_heap_make(top);
    for (n = top->count; n > 1;) { /* moves the smallest to the end */
        memlord_block_info least = out[0];
        out[0] = out[--n];
        out[n] = least;
        mli_block_heap_down(out, n, 0);
    }
    for (n = 0; n < top->count; n++) out[n].site = mli_site_display_of(lord, out[n].site);
    return top->count;
}
static MLI_COLD size_t mli_map_top(memlord *lord, mli_walk_query *q,
                                   memlord_block_info *out, size_t k) {
    mli_largest top = {NULL, 0, 0};
    top.at = out;
    top.cap = k;
    if (k) mli_map_visit(lord, q, mli_visit_top, &top);
    return mli_block_heap_sort(lord, &top);
}

/* -- describing -- */

/* Copies a description; *out has the ledger's copies of its strings. */
static MLI_COLD memlord_result mli_meta_copy(memlord *lord, const memlord_meta *meta,
                                             memlord_meta *out) {
    memlord_result r;
    *out = *meta;
    r = mli_name(lord, meta->name, &out->name);
    if (r == MEMLORD_OK) r = mli_name(lord, meta->dtype, &out->dtype);
    if (r) return r;
    return mli_name(lord, meta->tag && *meta->tag ? meta->tag : NULL, &out->tag);
}

/* Gives a live block another tag, a kept one; NULL: none. The tag's row depends on the block's
   device and cannot be added inside, so it looks for the device first, and again if the block has
   moved to another one meanwhile. Requires: not inside. */
static MLI_COLD memlord_result mli_block_retag(memlord *lord, mli_thread *t, memlord_device device,
                                               uint64_t key, const char *tag) {
    mli_probe probe;
    mli_row_delta d[2];
    mli_entry seen, *e;
    uint32_t row = 0;
    int same;
    do {
        if (mli_key_state(lord, t, device, key, &seen) < MLI_KEY_LIVE) return MEMLORD_E_UNKNOWN;
        if (tag && mli_row_find(lord, MLI_BOOK_TAG, tag, MLI_DEV(seen.word1), &row))
            return MEMLORD_E_NOMEM;
        /* the peak would be too low if this thread's bytes were on two cells, its own and the
           orphan's */
        d[1] = mli_delta_open(0, (uint64_t)row << 21, 0);
        mli_cells_make(lord, t, &d[1], 1);
        e = mli_probe_live(lord, t, (uint32_t)device.type, key, &probe);
        same = e && MLI_DEV(e->word1) == MLI_DEV(seen.word1);
        if (same) {
            const uint64_t plain = mli_word2_rows(e->word2), tag_bits = (uint64_t)0xffff << 21;
            d[0] = mli_delta_close(0, plain & tag_bits, MLI_BYTES(e->word1));
            d[1].in = MLI_BYTES(e->word1);
            mli_entry_set_rows(e, (plain & ~tag_bits) | d[1].word2);
            mli_probe_unlock(&probe);
            if (d[0].word2 != d[1].word2) mli_count(lord, t, d, 2);
        }
        mli_probe_leave(t, &probe);
    } while (!same);
    return MEMLORD_OK;
}

/* -- public -- */

MLI_API memlord_result memlord_blocks_each(memlord *lord, memlord_device sel, uint64_t min_bytes,
                                           memlord_block_fn fn, void *user) {
    mli_walk_query q = mli_walk_query_of(sel);
    if (!lord) return MEMLORD_OK;
    if (!fn) return MEMLORD_E_INVALID;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    q.min_bytes = min_bytes;
    return mli_map_each(lord, &q, fn, user, NULL);
}

MLI_API size_t memlord_blocks_top(memlord *lord, memlord_device sel, memlord_block_info *out,
                                  size_t k) {
    mli_walk_query q = mli_walk_query_of(sel);
    if (!lord || !out || !mli_selector_valid(sel)) return 0;
    return mli_map_top(lord, &q, out, k);
}

MLI_API memlord_result memlord_block_find(memlord *lord, memlord_device device,
                                          uint64_t storage, memlord_block_info *out) {
    mli_thread *t;
    mli_probe probe;
    int found;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!mli_type_valid(device)) return MEMLORD_E_DEVICE;
    if (!mli_key_valid(storage)) return MEMLORD_E_UNKNOWN;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_E_UNKNOWN;
    (void)mli_probe_find(lord, t, (uint32_t)device.type, storage, 0, &probe);
    found = probe.entry != NULL;
    if (found) mli_block_copy_out(lord, probe.entry, out);
    mli_probe_leave(t, &probe);
    mli_thread_put(lord, t);
    if (!found) return MEMLORD_E_UNKNOWN;
    out->site = mli_site_display_of(lord, out->site);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_block_containing(memlord *lord, memlord_device device,
                                                uint64_t address, memlord_block_info *out) {
    mli_walk_query q = mli_walk_query_of(device);
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!mli_type_valid(device)) return MEMLORD_E_DEVICE;
    q.address = address;
    q.containing = 1;
    return mli_map_top(lord, &q, out, 1) ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MLI_API memlord_result memlord_block_describe(memlord *lord, memlord_device device,
                                              uint64_t storage, const memlord_meta *meta) {
    mli_thread *t;
    mli_probe probe;
    memlord_meta kept;
    memlord_result r = mli_key_begin(lord, device, storage, &t);
    if (!t) return r;
    r = meta && meta->rank <= 8 ? mli_meta_copy(lord, meta, &kept) : MEMLORD_E_INVALID;
    if (r == MEMLORD_OK && kept.tag)
        r = mli_block_retag(lord, t, device, storage, kept.tag);
    if (r == MEMLORD_OK)
        r = mli_probe_add_side_record(lord, t, (uint32_t)device.type, storage, 0, &probe);
    if (r == MEMLORD_OK) {
        mli_side_record_of(probe.entry->word2)->meta = kept;
        mli_probe_leave(t, &probe);
    }
    mli_thread_put(lord, t);
    return mli_call_end_uncounted(lord, r);
}

MLI_API memlord_result memlord_block_retag(memlord *lord, memlord_device device,
                                           uint64_t storage, const char *tag) {
    mli_thread *t;
    const char *kept;
    memlord_result r = mli_key_begin(lord, device, storage, &t);
    if (!t)
        return mli_refuse(lord, MLI_REFUSER_block_retag, r, device, mli_block_fault(storage, 0));
    r = mli_name(lord, tag && *tag ? tag : NULL, &kept);
    if (r == MEMLORD_OK) r = mli_block_retag(lord, t, device, storage, kept);
    mli_thread_put(lord, t);
    return mli_call_end_uncounted(lord, r);
}

MLI_API size_t memlord_leaks(memlord *lord, uint64_t since_mark, memlord_block_fn fn, void *user) {
    mli_walk_query q = mli_walk_query_of(memlord_device_all());
    size_t seen = 0;
    if (!lord) return 0;
    q.min_born = since_mark;
    if (fn)
        (void)mli_map_each(lord, &q, fn, user, &seen);
    else
        mli_map_visit(lord, &q, mli_visit_count, &seen);
    return seen;
}

MLI_API memlord_result memlord_part_add(memlord *lord, memlord_device device, uint64_t storage,
                                        uint64_t offset, uint64_t bytes, const memlord_meta *meta) {
    mli_thread *t;
    memlord_part_info part;
    memlord_result r = mli_key_begin(lord, device, storage, &t);
    if (!t) return r;
    memset(&part, 0, sizeof part);
    part.offset = offset;
    part.bytes = bytes;
    if (!bytes || bytes > MLI_BYTES_MAX || offset > MLI_BYTES_MAX || (meta && meta->rank > 8))
        r = MEMLORD_E_INVALID;
    else if (meta)
        r = mli_meta_copy(lord, meta, &part.meta);
    if (r == MEMLORD_OK)
        r = mli_block_part_add(lord, t, (uint32_t)device.type, storage, &part);
    mli_thread_put(lord, t);
    return mli_call_end_uncounted(lord, r);
}

MLI_API memlord_result memlord_part_remove(memlord *lord, memlord_device device,
                                           uint64_t storage, uint64_t offset) {
    mli_thread *t;
    memlord_result r = mli_key_begin(lord, device, storage, &t);
    if (!t) return r;
    r = mli_block_part_remove(lord, t, (uint32_t)device.type, storage, offset);
    mli_thread_put(lord, t);
    return mli_call_end_uncounted(lord, r);
}

MLI_API size_t memlord_parts_each(memlord *lord, memlord_device device, uint64_t storage,
                                  memlord_part_fn fn, void *user) {
    memlord_part_info some[8];
    uint64_t count, bytes, offset = 0;
    size_t i, n, seen = 0;
    if (!lord || !fn || !mli_key_valid(storage) || !mli_type_valid(device)) return 0;
    do {
        n = mli_parts_copy(lord, (uint32_t)device.type, storage, offset, some, 8, &count, &bytes);
        for (i = 0; i < n; i++) {
            seen++;
            if (fn(user, &some[i])) return seen;
            offset = some[i].offset + 1;
        }
    } while (n == 8);
    return seen;
}

/* -------------------------------------------------------------------- >>capacity --
   Owns the physical devices (phys): which devices share one, and the bytes live on it. >>room
   owns the sources that sample a phys. Uses >>devices and >>counters. Invariant: a device changes
   its phys only under the locks of both. Lock: phys (MLI_RANK_PHYS); two only under cold. */

/* -- physical devices -- */

/* Returns the storage of phys i: 0 is the host's, i is device i's own. A device that shares
   another phys leaves its own unused. */
static MLI_COLD mli_phys *mli_phys_storage(memlord *lord, uint32_t i) {
    return i ? &mli_device_record_at(lord, i)->own_phys : &lord->capacity.host_phys;
}
/* Returns the phys of a device. The acquire pairs with the release in mli_phys_assign. */
static mli_phys *mli_phys_at(memlord *lord, uint32_t dev) {
    return (mli_phys *)mli_ptr_load_acquire(&mli_device_record_at(lord, dev)->phys);
}
/* Locks the phys of a device and returns it. memlord_device_share may assign another one while
   this waits, so it compares again under the lock. */
static mli_phys *mli_phys_lock(memlord *lord, uint32_t dev) {
    for (;;) {
        mli_phys *phys = mli_phys_at(lord, dev);
        mli_lock_take(&phys->lock);
        if (MLI_LIKELY(phys == mli_phys_at(lord, dev))) return phys;
        mli_lock_drop(&phys->lock);
    }
}

/* Finds the phys of a device. A device not yet seen is added if `make`; else E_UNKNOWN and
   *out is NULL. */
static MLI_COLD memlord_result mli_phys_find(memlord *lord, memlord_device d, int make,
                                             mli_phys **out) {
    uint32_t dev = mli_dev_known(lord, d);
    memlord_result r;
    *out = NULL;
    if (!mli_device_valid(d)) return MEMLORD_E_DEVICE;
    if (mli_type_host[d.type]) {
        *out = &lord->capacity.host_phys;
        return MEMLORD_OK;
    }
    r = make ? mli_dev(lord, d, &dev) : dev ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
    if (r == MEMLORD_OK) *out = mli_phys_at(lord, dev);
    return r;
}

/* Returns the first device after `dev` that is at a phys (NULL: at any); 0: there is none. A walk
   starts with 0. */
static MLI_NOINLINE uint32_t mli_phys_next_dev(memlord *lord, const mli_phys *phys, uint32_t dev) {
    uint32_t n = mli_row_count(lord, MLI_BOOK_DEVICE);
    while (++dev < n)
        if (!phys || mli_phys_at(lord, dev) == phys) return dev;
    return 0;
}

/* Returns the live bytes of all devices at a phys. */
static uint64_t mli_phys_live(memlord *lord, const mli_phys *phys) {
    uint32_t i = 0;
    uint64_t live = 0;
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0)
        live = mli_add_saturated(live, mli_row_live(lord, MLI_BOOK_DEVICE, i));
    return live;
}

/* Adds the limit of a phys, and what tickets keep of it. */
static void mli_phys_stats_add(mli_phys *phys, memlord_stats *sum) {
    mli_lock_take(&phys->lock);
    sum->limit = mli_add_saturated(sum->limit, phys->limit);
    sum->held = mli_add_saturated(sum->held, phys->reserved);
    mli_lock_drop(&phys->lock);
}
/* Assigns a device to another phys, under the locks of both. They have no order between them, so
   the cold lock makes this the only thread that holds two; fork, which takes the locks of all
   phys, takes it first. E_STATE: the old phys has reserved bytes, perhaps for this device, or other
   devices are at the device's own phys. */
static MLI_COLD memlord_result mli_phys_assign(memlord *lord, uint32_t dev, mli_phys *to) {
    mli_device_record *d = mli_device_record_at(lord, dev);
    mli_phys *from;
    uint32_t guest = 0;
    int busy;
    mli_lock_take(&mli_process.cold_lock);
    do guest = mli_phys_next_dev(lord, &d->own_phys, guest);
    while (guest == dev);
    busy = guest && to != &d->own_phys;
    from = mli_phys_at(lord, dev);
    if (from != to && !busy) {
        mli_lock_take(&from->lock);
        mli_lock_take(&to->lock);
        busy = from->reserved != 0;
        if (!busy) mli_ptr_store_release(&d->phys, to); /* pairs with mli_phys_at */
        mli_lock_drop(&from->lock);
        mli_lock_drop(&to->lock);
    }
    mli_lock_drop(&mli_process.cold_lock);
    return busy ? MEMLORD_E_STATE : MEMLORD_OK;
}
/* Copies a device's last failed request, under the lock of its phys. */
static mli_oom mli_oom_of(memlord *lord, uint32_t dev) {
    mli_phys *phys = mli_phys_lock(lord, dev);
    mli_oom oom = mli_device_record_at(lord, dev)->oom;
    mli_lock_drop(&phys->lock);
    oom.site = mli_site_display_of(lord, oom.site);
    return oom;
}

/* Returns phys i, 0 to the number of devices; NULL: device i is at another phys. */
static mli_phys *mli_phys_in_use(memlord *lord, uint32_t i) {
    mli_phys *phys = mli_phys_storage(lord, i);
    return i && mli_phys_at(lord, i) != phys ? NULL : phys;
}

static double mli_nan(void) {
    const uint64_t bits = (uint64_t)0x7ff8 << 48;
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}
/* Returns the used part of a capacity in percent; NaN: the capacity is unknown. */
static MLI_COLD double mli_used_percent(const memlord_capacity *c) {
    if (!c->known) return mli_nan();
    return (double)c->used * 100.0 / (double)c->total;
}

/* ---------------------------------------------------------------------- >>limits --
   Owns admission: limits and reservations (tickets). Uses >>capacity, >>counters and >>accounts.
   Invariants: live + reserved bytes of a phys are compared with its limit, and reserved is raised,
   under one hold of its lock, so the bytes admitted never exceed the limit. `reserved` is the sum
   of what the open tickets have left. An alloc comes off them after it was recorded: meanwhile its
   bytes count twice and are in flight, and a request that they would refuse tries again.
   Locks: cold, for new records; phys, for the rest. */

typedef struct mli_reservation { /* a ticket; under the lock of its phys */
    mli_handle handle;
    mli_phys *phys;     /* of its list; never changes */
    mli_ptr owner;      /* mli_thread *: the record of the thread that reserved or adopted it */
    uint64_t remaining; /* bytes no alloc has drawn yet */
} mli_reservation;

/* -- limits -- */

/* Returns a number of bytes, at most 2^62: differences of two cannot overflow. */
static int64_t mli_bytes_signed(uint64_t bytes) {
    const uint64_t most = (uint64_t)1 << 62;
    return (int64_t)(bytes < most ? bytes : most);
}

/* Computes the bytes left at a phys. Returns 0 if neither limit nor capacity is known. Requires:
   the caller holds the phys lock. */
static int mli_phys_available(memlord *lord, const mli_phys *phys, int64_t *left) {
    int64_t reserved = mli_bytes_signed(phys->reserved), unused;
    *left = INT64_MAX;
    if (phys->limit)
        *left = mli_bytes_signed(phys->limit) - mli_bytes_signed(mli_phys_live(lord, phys)) -
                reserved;
    if (phys->sample.known) {
        unused = mli_bytes_signed(phys->sample.total - phys->sample.used) - reserved;
        if (unused < *left) *left = unused;
    }
    return phys->limit || phys->sample.known;
}

/* Sums the allocated or the freed bytes of all cells at a phys. A call writes a cell's out before
   its level: loaded after the level it gives an upper bound (`high`), loaded before it a lower
   one. */
static uint64_t mli_phys_sum(memlord *lord, const mli_phys *phys, int allocated, int high) {
    uint32_t i = 0;
    uint64_t sum = 0;
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0) {
        const mli_thread *t = mli_thread_first(lord);
        for (; t; t = mli_thread_next(t)) {
            const mli_cell *cell = mli_cell_at(t, MLI_BOOK_DEVICE, i);
            uint64_t level = 0, out;
            if (!cell) continue;
            if (allocated && high) level = mli_u64_load_acquire(&cell->level);
            out = mli_u64_load_acquire(&cell->out);
            if (allocated && !high) level = mli_u64_load_acquire(&cell->level);
            sum += level + out;
        }
    }
    return sum;
}
/* Returns a bound on the live bytes of a phys: at no moment of the sum were they above it (`high`)
   or below it (not `high`). The upper bound reads allocated bytes after freed ones, the lower
   bound before them. */
static uint64_t mli_phys_live_bound(memlord *lord, const mli_phys *phys, int high) {
    uint64_t first = mli_phys_sum(lord, phys, !high, high);
    uint64_t last = mli_phys_sum(lord, phys, high, high);
    int64_t live = (int64_t)(high ? last - first : first - last);
    return live > 0 ? (uint64_t)live : 0;
}

#define MLI_RESERVE_RETRIES (60 * MLI_SPIN_LOOKS) /* some 50 ms, most of them asleep */
/* Reserves bytes at a phys. Returns 1: reserved; 0: too many; -1: not sure, as bytes in flight or
   a concurrent change may explain the excess: try again. Without `again` it returns 0 instead.
   Requires: the caller holds the phys lock. */
static int mli_phys_try_reserve(memlord *lord, mli_phys *phys, uint64_t bytes, int again) {
    uint64_t want = phys->reserved + bytes;
    if (want > (uint64_t)1 << 62) return 0; /* no sum below overflows: live is below 2^63 */
    if (!phys->limit || mli_phys_live_bound(lord, phys, 1) + want <= phys->limit) {
        phys->reserved += bytes;
        return 1;
    }
    want -= want < phys->in_flight ? want : phys->in_flight;
    return again && mli_phys_live_bound(lord, phys, 0) + want <= phys->limit ? -1 : 0;
}

/* -- tickets -- */

static mli_reservation *mli_ticket_find(memlord *lord, memlord_ticket ticket) {
    return (mli_reservation *)mli_handle_find(&lord->limits.reservations, sizeof(mli_reservation),
                                              ticket);
}

/* Opens a ticket for bytes at a phys, on a thread record. E_LIMIT: the bytes do not fit. */
static MLI_COLD memlord_result mli_reservation_open(memlord *lord, mli_phys *phys, mli_thread *t,
                                                    uint64_t bytes, memlord_ticket *out) {
    mli_reservation *v;
    uint32_t tries = 0;
    unsigned spins = 0;
    for (;;) {
        int fits = -1;
        mli_lock_take(&phys->lock);
        v = (mli_reservation *)(void *)phys->closed_tickets;
        if (v) fits = mli_phys_try_reserve(lord, phys, bytes, tries++ < MLI_RESERVE_RETRIES);
        if (fits > 0) break;
        mli_lock_drop(&phys->lock);
        if (!fits) return MEMLORD_E_LIMIT;
        if (v)
            mli_spin_wait(&spins);
        else if (mli_handle_new(lord, &lord->limits.reservations, &lord->limits.reservation_count,
                                sizeof *v, &phys->closed_tickets, &phys->lock))
            return MEMLORD_E_NOMEM;
    }
    if (!v->phys) v->phys = phys; /* written once: a stale ticket's call may read it now */
    mli_ptr_store(&v->owner, t);
    v->remaining = bytes;
    *out = mli_handle_open(&phys->closed_tickets);
    mli_lock_drop(&phys->lock);
    return MEMLORD_OK;
}

/* Finds an open ticket that belongs to a thread record; NULL: it was closed, or adopted. */
static mli_reservation *mli_ticket_own(memlord *lord, const mli_thread *t, memlord_ticket ticket) {
    mli_reservation *v = mli_ticket_find(lord, ticket);
    return v && mli_ptr_load(&v->owner) == (const void *)t ? v : NULL;
}

/* Detaches the tickets that a thread lost: any thread may close or adopt them. */
static void mli_tickets_prune(memlord *lord, mli_thread *t) {
    uint32_t i, kept = 0;
    for (i = 0; i < t->open_tickets; i++)
        if (mli_ticket_own(lord, t, t->tickets[i])) t->tickets[kept++] = t->tickets[i];
    t->open_tickets = kept;
}

/* Attaches a ticket to this thread: its later allocs draw on it. The earliest of more than
   MLI_TICKETS_MAX is detached. The orphan record takes none: its calls come from many threads. */
static void mli_ticket_attach(memlord *lord, mli_thread *t, memlord_ticket ticket) {
    uint32_t i;
    if (t == lord->threads.orphan) return;
    mli_tickets_prune(lord, t);
    for (i = 0; i < t->open_tickets; i++)
        if (t->tickets[i] == ticket) return;
    if (i == MLI_TICKETS_MAX) memmove(t->tickets, t->tickets + 1, --i * sizeof *t->tickets);
    t->tickets[i] = ticket;
    t->open_tickets = i + 1;
    mli_special_set(t, MLI_SPECIAL_TICKET, 1); /* until an alloc finds none open */
}

/* The bytes of an alloc that are in flight, as they may come off tickets. */
typedef struct mli_ticket_draw {
    mli_phys *phys; /* NULL: none are */
    uint64_t bytes;
    memlord_ticket named; /* the only ticket they come off; 0: those of the thread */
} mli_ticket_draw;
static const mli_ticket_draw mli_draw_none = {NULL, 0, 0};

/* Sets the bytes of an alloc in flight before it is recorded, if it has a ticket to come off. */
static MLI_COLD void mli_ticket_draw_begin(memlord *lord, mli_thread *t, uint32_t dev,
                                           uint64_t bytes, mli_ticket_draw *draw) {
    if (!draw->named) {
        mli_tickets_prune(lord, t);
        if (!t->open_tickets) {
            mli_special_set(t, MLI_SPECIAL_TICKET, 0);
            return;
        }
    }
    draw->phys = mli_phys_lock(lord, dev);
    draw->bytes = bytes < draw->phys->reserved ? bytes : draw->phys->reserved;
    draw->phys->in_flight += draw->bytes;
    mli_lock_drop(&draw->phys->lock);
}

/* Takes the bytes of a recorded alloc off the ticket that it names, or off the thread's tickets at
   its phys. It draws on several of these if one is not enough: if an alloc was smaller than its
   ticket, the next alloc draws on the rest of it first, and bytes of its own ticket would stay
   reserved although they are live. */
static MLI_COLD void mli_ticket_draw_end(memlord *lord, mli_thread *t, const mli_ticket_draw *draw,
                                         int recorded) {
    uint32_t i, n = draw->named ? 1 : t->open_tickets;
    uint64_t left = recorded ? draw->bytes : 0;
    mli_lock_take(&draw->phys->lock);
    draw->phys->in_flight -= draw->bytes;
    for (i = 0; i < n && left; i++) {
        mli_reservation *v = draw->named ? mli_ticket_find(lord, draw->named)
                                         : mli_ticket_own(lord, t, t->tickets[i]);
        uint64_t part;
        if (!v || v->phys != draw->phys) continue;
        part = v->remaining < left ? v->remaining : left;
        v->remaining -= part;
        draw->phys->reserved -= part;
        left -= part;
    }
    mli_lock_drop(&draw->phys->lock);
}

/* -- public -- */

MLI_API memlord_result memlord_reserve_commit(memlord *lord, memlord_ticket ticket) {
    mli_reservation *v;
    int open;
    if (!lord) return MEMLORD_OK;
    v = mli_ticket_find(lord, ticket);
    if (!v) return MEMLORD_E_UNKNOWN;
    mli_lock_take(&v->phys->lock);
    open = mli_ticket_find(lord, ticket) != NULL; /* another thread may have closed it */
    if (open) {
        v->phys->reserved -= v->remaining;
        mli_handle_close(&v->phys->closed_tickets, &v->handle);
    }
    mli_lock_drop(&v->phys->lock);
    return open ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}
/* Both release what no alloc has drawn. The names say why the host does so. */
MLI_API memlord_result memlord_reserve_cancel(memlord *lord, memlord_ticket ticket) {
    return memlord_reserve_commit(lord, ticket);
}

MLI_API memlord_result memlord_reserve_adopt(memlord *lord, memlord_ticket ticket) {
    mli_thread *t;
    mli_reservation *v;
    int open;
    if (!lord) return MEMLORD_OK;
    v = mli_ticket_find(lord, ticket);
    if (!v) return MEMLORD_E_UNKNOWN;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_E_STATE;
    mli_lock_take(&v->phys->lock);
    open = mli_ticket_find(lord, ticket) != NULL; /* another thread may have closed it */
    if (open) mli_ptr_store(&v->owner, t);
    mli_lock_drop(&v->phys->lock);
    if (open) mli_ticket_attach(lord, t, ticket);
    mli_thread_put(lord, t);
    return open ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

/* ----------------------------------------------------------------------- >>bands --
   Owns the strategies, the band state of each device, the collection callbacks and their runs.
   Uses >>capacity and >>counters; >>pollers decides when a call runs a band check.
   Invariant: no threshold is crossed without a band check, though threads hold back counts.
   Published bytes are at most a batch a thread below the truth. So while they are a margin (a
   batch for each thread of thread_allowance) below the threshold, no thread can cross it without
   publishing first, and a publication requests a check. Closer than that the device is near: an
   alert makes every call check at its end, with a sum over all threads. Freed bytes are no level
   and are never published: each thread checks after each 64th of the way (its free interval).
   Cached bytes rise as live bytes fall. Published bytes are never above these, so a publication
   below a mark (check_below) comes in time without a margin. A thread's cell starts a batch lower,
   and checks at its first free.
   Locks: callbacks for strategies, callbacks and their runs, then phys for the band state; none
   while a callback runs. */

typedef struct mli_strategy { /* replaced as a whole, never changed */
    struct mli_strategy *next;
    memlord_device sel;
    size_t n;                  /* 0: no bands there */
    const memlord_band *bands; /* right behind it; the default's lie elsewhere */
} mli_strategy;

typedef struct mli_gc_entry {
    struct mli_gc_entry *next;
    uint64_t serial; /* ascending along the list: first those of one device, last those of all */
    memlord_gc_fn fn;
    void *user;
    memlord_device sel;
    uint32_t reasons; /* 1 << MEMLORD_REASON_..., MEMLORD_GC_QUIET */
} mli_gc_entry;

/* -- the strategy -- */

#define MLI_DEFAULT_BANDS 3
static const memlord_band mli_default_bands[MLI_DEFAULT_BANDS] = {
    {0, 50, MEMLORD_METRIC_MAX, 0, 50, MEMLORD_COMBINE_MAX},
    {50, 75, MEMLORD_METRIC_MAX, 0, 33, MEMLORD_COMBINE_MAX},
    {75, 101, MEMLORD_METRIC_FREED, 0, 10, MEMLORD_COMBINE_MAX},
};
static const mli_strategy mli_default_strategy = {
    NULL, {MEMLORD_ANY, MEMLORD_ANY}, MLI_DEFAULT_BANDS, mli_default_bands};

/* Returns the error of a band, as text that follows its number; NULL: the band is valid. */
static MLI_COLD const char *mli_band_error(const memlord_band *b) {
    if (!(b->lo >= 0 && b->lo < b->hi)) return ": lo and hi must be 0 <= lo < hi";
    if (!(b->hi <= 1e9)) return ": hi must be a percentage; 101 is above everything";
    if (!(b->percent >= 0 && b->percent <= 1e9)) return ": percent must be 0 or more";
    if ((unsigned)b->metric > MEMLORD_METRIC_CACHED) return ": unknown metric";
    if ((unsigned)b->combine > MEMLORD_COMBINE_MIN) return ": unknown combine";
    if (!b->bytes && !(b->percent > 0)) return ": no threshold: set bytes or percent";
    return NULL;
}

/* Returns the index of the first band that covers a used percent or, while that is unknown (NaN),
   of the first that covers 0 to 100; n: none does. */
static size_t mli_band_at(const memlord_band *bands, size_t n, double used) {
    size_t i;
    for (i = 0; i < n; i++) {
        const memlord_band *b = &bands[i];
        if (used >= 0 ? b->lo <= used && used < b->hi : b->lo <= 0 && b->hi >= 100) break;
    }
    return i;
}

/* Returns 1 if a band overlaps an earlier one. */
static MLI_COLD int mli_band_overlaps(const memlord_band *bands, size_t i) {
    size_t k = 0;
    while (k < i && (bands[i].lo >= bands[k].hi || bands[k].lo >= bands[i].hi)) k++;
    return k < i;
}
/* Returns the lowest start of a band above a used percent; 1e9: there is none. */
static MLI_COLD double mli_band_start_above(const memlord_band *bands, size_t n, double used) {
    double start = 1e9;
    size_t i;
    for (i = 0; i < n; i++)
        if (bands[i].lo > used && bands[i].lo < start) start = bands[i].lo;
    return start;
}
/* Warns of bands that are legal but probably not meant: overlaps and gaps. */
static MLI_COLD void mli_bands_warn(memlord *lord, const memlord_band *bands, size_t n) {
    size_t i;
    double at = 0, next;
    for (i = 1; i < n; i++)
        if (mli_band_overlaps(bands, i))
            mli_logf(lord, MEMLORD_LOG_WARNING,
                     "[strategy] band %ju overlaps an earlier one, which wins there", (uint64_t)i);
    for (;; at = next) {
        while ((i = mli_band_at(bands, n, at)) < n) at = bands[i].hi;
        if (at > 100) return;
        next = mli_band_start_above(bands, n, at);
        if (next > 100) break;
        mli_logf(lord, MEMLORD_LOG_WARNING, "[strategy] a gap: no band covers %g to %g", at, next);
    }
    mli_logf(lord, MEMLORD_LOG_WARNING,
             "[strategy] no band covers from %g up: a full device wants hi over 100",
             (double)(uint64_t)at);
}

/* -- which strategy is in force; under the callbacks lock -- */

/* Returns the link to the strategy of exactly a selector; a link to NULL: it has none. */
static MLI_COLD mli_strategy **mli_strategy_link(memlord *lord, memlord_device sel) {
    mli_strategy **at = &lord->bands.strategies;
    while (*at && mli_device_word((*at)->sel) != mli_device_word(sel)) at = &(*at)->next;
    return at;
}
/* Returns the strategy that decides for a device: its own, its type's, that of all or, as the host
   has set none of these, the default one; NULL: none. */
static MLI_COLD const mli_strategy *mli_strategy_for(memlord *lord, memlord_device d) {
    const mli_strategy *s = *mli_strategy_link(lord, d);
    d.index = MEMLORD_ANY;
    if (!s) s = *mli_strategy_link(lord, d);
    if (!s) s = *mli_strategy_link(lord, memlord_device_all());
    return s || (lord->threads.flags & MEMLORD_FLAG_NO_STRATEGY) ? s : &mli_default_strategy;
}

/* Returns the first callback after number `after` that serves a reason on a device; NULL: there is
   none. The bands of the default strategy run no quiet one. */
static MLI_COLD mli_gc_entry *mli_gc_next(memlord *lord, memlord_device d, int reason,
                                          uint64_t after) {
    mli_gc_entry *c = lord->bands.gc_entries;
    uint32_t skips = 0;
    if (reason == MEMLORD_REASON_BAND && mli_strategy_for(lord, d) == &mli_default_strategy)
        skips = MEMLORD_GC_QUIET;
    while (c && (c->serial <= after || !mli_selects(c->sel, d) || !(c->reasons >> reason & 1) ||
                 (c->reasons & skips)))
        c = c->next;
    return c;
}
/* Returns 1 if a callback serves a reason on a device. Takes the callbacks lock. */
static MLI_COLD int mli_gc_registered(memlord *lord, memlord_device d, int reason) {
    int found;
    mli_lock_take(&lord->bands.callbacks_lock);
    found = mli_gc_next(lord, d, reason, 0) != NULL;
    mli_lock_drop(&lord->bands.callbacks_lock);
    return found;
}

/* Returns the strategy in force for a device, or for the devices of a type that have none of their
   own: the one that decides, if it has bands and a callback serves them; NULL: none. */
static MLI_COLD const mli_strategy *mli_strategy_in_force(memlord *lord, memlord_device d) {
    const mli_strategy *s = mli_strategy_for(lord, d);
    return s && s->n && mli_gc_next(lord, d, MEMLORD_REASON_BAND, 0) ? s : NULL;
}

/* Sets the device types that can have a strategy in force: each type, and each device named. */
static MLI_COLD void mli_watched_types_set(memlord *lord) {
    const mli_strategy *s;
    const mli_gc_entry *c;
    uint32_t types = 0;
    int type;
    mli_lock_take(&lord->bands.callbacks_lock);
    for (type = 0; type < MLI_TYPE_COUNT; type++)
        if (mli_strategy_in_force(lord, memlord_device_make(type, MEMLORD_ANY)))
            types |= 1u << type;
    for (s = lord->bands.strategies; s; s = s->next)
        if (s->sel.index >= 0 && mli_strategy_in_force(lord, s->sel)) types |= 1u << s->sel.type;
    for (c = lord->bands.gc_entries; c; c = c->next)
        if (c->sel.index >= 0 && mli_strategy_in_force(lord, c->sel)) types |= 1u << c->sel.type;
    mli_u32_store(&lord->bands.watched_types, types);
    mli_lock_drop(&lord->bands.callbacks_lock);
}

/* Stores in a device the strategy in force for it, and returns 1 if there is one. A change lets the
   bands fire at once. Takes the callbacks lock, unless there is none for the device's type. */
static MLI_COLD int mli_dev_watch(memlord *lord, uint32_t dev) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    const mli_strategy *s;
    if (!(mli_u32_load(&lord->bands.watched_types) >> device->device.type & 1) &&
        !mli_ptr_load(&device->watch.strategy))
        return 0;
    mli_lock_take(&lord->bands.callbacks_lock);
    s = mli_strategy_in_force(lord, device->device);
    if (s != mli_ptr_load(&device->watch.strategy)) {
        mli_phys *phys = mli_phys_lock(lord, dev);
        mli_ptr_store(&device->watch.strategy, (void *)(uintptr_t)s);
        device->watch.waiting_rearm = 0;
        mli_lock_drop(&phys->lock);
    }
    mli_lock_drop(&lord->bands.callbacks_lock);
    return s != NULL;
}

static MLI_COLD void mli_strategy_free(memlord *lord, mli_strategy *s) {
    if (s) mli_own_free(lord, s, sizeof *s + s->n * sizeof(memlord_band));
}

/* Returns 1 if a device has a strategy in force. */
static int mli_dev_is_watched(memlord *lord, uint32_t dev) {
    return mli_ptr_load(&mli_device_record_at(lord, dev)->watch.strategy) != NULL;
}

/* -- the band check: is a collection due on a device; under the lock of its phys -- */

typedef struct mli_band_state {
    memlord_gc_event event; /* band SIZE_MAX: none is in force, and only used_percent is set */
    int due;                /* 1: the value has reached the threshold: collect */
    int near_threshold;     /* 1: every call must check */
    mli_levels level;
    uint64_t rise, fall; /* a check is due from `rise` live bytes on, and below `fall` */
    uint64_t freed;      /* and from so many freed ones on; UINT64_MAX, 0, UINT64_MAX: never */
} mli_band_state;

/* Returns a band's threshold at a phys; 0: none now, as percent needs a limit or capacity and, of
   cached bytes, reserved ones. */
static uint64_t mli_band_threshold(const mli_phys *phys, const memlord_band *b,
                                   uint64_t reserved) {
    uint64_t cap = phys->sample.known ? phys->sample.total : 0, part;
    double share;
    if (phys->limit && (!cap || phys->limit < cap)) cap = phys->limit;
    if (b->metric == MEMLORD_METRIC_CACHED) cap = reserved;
    share = (double)cap * b->percent / 100.0; /* exact for whole percents */
    if (!(share > 0)) return b->bytes;
    part = share < 1 ? 1 : share >= 9e18 ? (uint64_t)9e18 : (uint64_t)share;
    if (!b->bytes) return part;
    return (part < b->bytes) == (b->combine == MEMLORD_COMBINE_MIN) ? part : b->bytes;
}

static uint64_t mli_metric_value(memlord_metric metric, const mli_levels *level) {
    switch (metric) {
    case MEMLORD_METRIC_ALLOCATED: return level->live;
    case MEMLORD_METRIC_FREED: return level->freed;
    case MEMLORD_METRIC_RESERVED: return level->reserved;
    case MEMLORD_METRIC_CACHED:
        return level->reserved > level->live ? level->reserved - level->live : 0;
    default: return level->live > level->freed ? level->live : level->freed;
    }
}
static int64_t mli_clamp_to_int64(uint64_t v) { return v > INT64_MAX ? INT64_MAX : (int64_t)v; }

/* Sets the levels at which the band in force is due. `again`: the metric at which a device that
   waits to rearm is due again; such a device also checks where its metric has fallen enough. */
static void mli_band_marks(const mli_watch *w, uint64_t again, mli_band_state *v) {
    const memlord_metric metric = v->event.metric;
    uint64_t up = v->event.threshold, down = up - up / 8, reserved = v->level.reserved;
    if (w->waiting_rearm && again > up) up = again;
    if (metric == MEMLORD_METRIC_CACHED) {
        if (reserved >= up) v->fall = reserved - up + 1;
        if (w->waiting_rearm && reserved >= down) v->rise = reserved - down + 1;
    }
    if (metric == MEMLORD_METRIC_ALLOCATED || metric == MEMLORD_METRIC_MAX) {
        v->rise = up;
        if (w->waiting_rearm) v->fall = down;
    }
    if (metric == MEMLORD_METRIC_FREED || metric == MEMLORD_METRIC_MAX) v->freed = up;
}

/* Where used % is of the limit no sample changes it, but the live bytes: moves the marks of a
   device to where they enter another band. `total`: the live bytes of the phys. */
static void mli_band_edges(const mli_phys *phys, const mli_strategy *s, uint64_t total,
                           mli_band_state *v) {
    uint64_t others = total > v->level.live ? total - v->level.live : 0;
    size_t i;
    for (i = 0; i < 2 * s->n; i++) {
        double edge = i & 1 ? s->bands[i / 2].hi : s->bands[i / 2].lo;
        double bytes = edge * (double)phys->limit / 100.0;
        uint64_t at = bytes < 9e18 ? (uint64_t)bytes : (uint64_t)9e18;
        if ((double)at * 100.0 / (double)phys->limit < edge) at++;
        at = at > others ? at - others : 0;
        if (edge > v->event.used_percent && at < v->rise) v->rise = at;
        if (edge <= v->event.used_percent && at > v->fall) v->fall = at;
    }
}

/* Sets the published bytes that request the next band check, and decides whether the device is
   near. */
static void mli_watch_set_margins(memlord *lord, uint32_t dev, mli_watch *w, mli_band_state *v) {
    uint64_t threads = mli_u32_load(&lord->bands.thread_allowance);
    uint64_t margin = threads * lord->counters.batch,
             unseen = threads * w->free_interval;              /* the most unseen: live; freed */
    uint64_t twice = mli_u32_load(&w->near_threshold) ? 2 : 1; /* hysteresis: near stays near */
    int64_t published = (int64_t)mli_u64_load(&mli_row_at(lord, MLI_BOOK_DEVICE, dev)->published);
    int64_t above = mli_clamp_to_int64(v->rise), below = mli_clamp_to_int64(v->fall);
    if (v->rise != UINT64_MAX) above -= mli_clamp_to_int64(margin);
    if (!v->fall) below = INT64_MIN;
    v->near_threshold = v->due || published < below ||
                        mli_add_saturated(v->level.live, twice * margin) >= v->rise ||
                        mli_add_saturated(v->level.freed, twice * unseen) >= v->freed;
    mli_u64_store(&w->check_above, (uint64_t)above);
    mli_u64_store(&w->check_below, (uint64_t)below);
}

/* Sets how many bytes a thread frees between two checks: 64 checks on the way to the threshold
   if all threads free alike, but at least a batch. If the interval shrinks, every thread checks at
   its next free: its own next check was set by the longer interval. */
static void mli_free_interval_set(memlord *lord, uint32_t dev, mli_watch *w,
                                  const mli_band_state *v) {
    uint64_t had = w->free_interval,
             share = v->event.threshold / 64 / mli_u32_load(&lord->bands.thread_allowance);
    mli_thread *t;
    if (share < lord->counters.batch) share = lord->counters.batch;
    if (!share) share = 1;
    if (v->event.metric != MEMLORD_METRIC_FREED && v->event.metric != MEMLORD_METRIC_MAX)
        share = 0; /* without a band, too */
    w->free_interval = share;
    if (!share || (had && share >= had)) return;
    for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) {
        mli_cell *cell = mli_cell_at(t, MLI_BOOK_DEVICE, dev);
        if (cell) mli_u64_store(mli_cell_next_check(cell), 0);
    }
}

/* Compares a device with a band that has a threshold now, and sets the marks for the next check. */
static void mli_band_compare(mli_watch *w, mli_band_state *v) {
    memlord_gc_event *e = &v->event;
    uint64_t eighth = e->threshold / 8, again;
    e->value = mli_metric_value(e->metric, &v->level);
    again = mli_add_saturated(mli_metric_value(e->metric, &w->gc_end), eighth ? eighth : 1);
    if (e->value < e->threshold - eighth || e->value >= again) w->waiting_rearm = 0;
    v->due = !w->waiting_rearm && e->value >= e->threshold;
    mli_band_marks(w, again, v);
}

/* Sums a device over all threads, compares it with the band in force and sets the margins.
   Requires: the phys lock. */
static void mli_band_evaluate(memlord *lord, const mli_phys *phys, uint32_t dev,
                              mli_band_state *v) {
    mli_watch *w = &mli_device_record_at(lord, dev)->watch;
    const mli_strategy *s = (const mli_strategy *)mli_ptr_load(&w->strategy);
    const int limited = phys->limit && !phys->sample.known; /* used % is of the limit */
    memlord_gc_event *e = &v->event;
    uint64_t total = limited ? mli_phys_live(lord, phys) : 0;
    size_t i = 0;
    memset(v, 0, sizeof *v);
    v->rise = v->freed = UINT64_MAX;
    e->used_percent = limited ? (double)total * 100.0 / (double)phys->limit
                              : mli_used_percent(&phys->sample);
    if (s) v->level = mli_row_levels(lord, dev);
    if (s) i = mli_band_at(s->bands, s->n, e->used_percent);
    if (s && i < s->n) e->threshold = mli_band_threshold(phys, &s->bands[i], v->level.reserved);
    e->band = e->threshold ? i : SIZE_MAX;
    if (e->threshold) e->metric = s->bands[i].metric;
    mli_free_interval_set(lord, dev, w, v);
    if (e->threshold) mli_band_compare(w, v);
    if (s && limited) mli_band_edges(phys, s, total, v);
    mli_watch_set_margins(lord, dev, w, v);
}

/* Sets the freed bytes at which a cell's thread checks next; interval 0: never. */
static void mli_next_check_set(mli_cell *cell, uint64_t interval) {
    uint64_t never = (uint64_t)INT64_MAX; /* mli_cell_tripped compares signed differences */
    if (cell)
        mli_u64_store(mli_cell_next_check(cell),
                      interval ? mli_u64_load(&cell->out) + interval : never);
}

/* Returns 1 if bytes were published past the marks of a device while these were set. A later
   publication sees them: it takes the row's lock after this or, without a batch, adds after it. */
static int mli_marks_missed(memlord *lord, uint32_t dev) {
    mli_row *row = mli_row_at(lord, MLI_BOOK_DEVICE, dev);
    int missed;
    mli_lock_take(&row->lock);
    (void)mli_u64_add(&row->published, 0);
    missed = mli_mark_passed(&mli_device_record_at(lord, dev)->watch, row);
    mli_lock_drop(&row->lock);
    return missed;
}

/* Evaluates the bands of a device and publishes whether it is near. When the device becomes near,
   it is evaluated once more after a barrier: a call that counted before the barrier is in that
   sum, a call after it sees the alert. It is also evaluated once more if a publication has passed
   the marks that this has just set. The addition to `checks` in mli_band_check orders two
   checks: the later one sees the counts of the earlier one's call. */
static MLI_COLD void mli_band_update(memlord *lord, uint32_t dev, mli_thread *t,
                                     mli_band_state *v) {
    mli_watch *w = &mli_device_record_at(lord, dev)->watch;
    int again = 0, pass = 0;
    do {
        mli_phys *phys = mli_phys_lock(lord, dev);
        mli_cell *cell = t ? mli_cell_at(t, MLI_BOOK_DEVICE, dev) : NULL;
        mli_band_evaluate(lord, phys, dev, v);
        again = v->near_threshold && !mli_u32_load(&w->near_threshold);
        if (v->near_threshold != (int)mli_u32_load(&w->near_threshold)) {
            mli_u32_store(&w->near_threshold, (uint32_t)v->near_threshold);
            (void)mli_u32_add(&lord->threads.alert,
                              (v->near_threshold ? 1u : (uint32_t)-1) * MLI_ALERT_BANDS);
        }
        mli_next_check_set(cell, w->free_interval);
        mli_next_check_set(mli_cell_at(lord->threads.orphan, MLI_BOOK_DEVICE, dev),
                           w->free_interval);
        mli_lock_drop(&phys->lock);
        if (again)
            mli_barrier_threads(lord);
        else if (!pass && !v->near_threshold)
            again = mli_marks_missed(lord, dev);
        pass++;
    } while (again);
}

/* -- collecting -- */

/* Returns 1 if another thread runs the callback of a number, for any device. Requires: the
   callbacks lock. */
static MLI_COLD int mli_gc_runs_elsewhere(memlord *lord, uint64_t serial) {
    uint32_t i = 0;
    while ((i = mli_phys_next_dev(lord, NULL, i)) != 0) {
        const mli_watch *w = &mli_device_record_at(lord, i)->watch;
        if (w->gc_serial == serial && w->gc_thread != (void *)&mli_self) return 1;
    }
    return 0;
}

/* Copies the next callback that serves an event, and marks it as the one that this thread runs for
   the device. 0: none is left. */
static MLI_COLD int mli_gc_advance(memlord *lord, mli_watch *w, const memlord_gc_event *e,
                                   mli_gc_entry *out) {
    const mli_gc_entry *c;
    mli_lock_take(&lord->bands.callbacks_lock);
    c = mli_gc_next(lord, e->device, e->reason, w->gc_serial);
    if (c) *out = *c;
    w->gc_serial = c ? c->serial : 0;
    w->gc_thread = c ? &mli_self : NULL;
    mli_lock_drop(&lord->bands.callbacks_lock);
    return c != NULL;
}

static MLI_COLD void mli_log_gc(memlord *lord, const memlord_gc_event *e,
                                const memlord_gc_result *result) {
    static const char *const reasons[] = {
#define MLI_X(name, text) text,
        MLI_REASONS(MLI_X)
#undef MLI_X
    };
    static const char *const metrics[] = {"allocated", "freed", "max", "reserved",
                                          "cached"};
    char line[320];
    mli_out o;
    if (!mli_log_hears(lord, MEMLORD_LOG_INFO)) return;
    mli_out_buffer(&o, line, sizeof line);
    mli_putf(&o, "[gc] %i run %ju (%ju in all): %s", mli_device_code(e->device),
             e->device_runs, e->total_runs, reasons[e->reason]);
    if (e->band != SIZE_MAX)
        mli_putf(&o, " %ju, %s %jo >= %jo", (uint64_t)e->band, metrics[e->metric], e->value,
                 e->threshold);
    if (e->needed) mli_putf(&o, ", needed %jo", e->needed);
    mli_putf(&o, result->ran ? ", used %g, reclaimed %jo" : ", used %g, could not run",
             e->used_percent, result->reclaimed);
    mli_log_end(lord, MEMLORD_LOG_INFO, &o);
}

/* Numbers a run that is about to begin, on its device and in the ledger. Failed runs count. */
static MLI_COLD void mli_gc_number(memlord *lord, uint32_t dev, memlord_gc_event *e) {
    uint32_t i = 0;
    e->total_runs = 1;
    while ((i = mli_phys_next_dev(lord, NULL, i)) != 0) {
        const mli_u64 *count = mli_device_record_at(lord, i)->count;
        uint64_t runs = mli_u64_load(&count[MLI_STAT_gc_runs]) +
                        mli_u64_load(&count[MLI_STAT_gc_failed]);
        e->total_runs += runs;
        if (i == dev) e->device_runs = runs + 1;
    }
}

/* Records the end of a run: freed starts again from 0 and, with `rest`, the bands wait until the
   metric has moved. A callback that could not run resets nothing and counts as failed. */
static MLI_COLD void mli_gc_finish(memlord *lord, uint32_t dev, int rest,
                                   const memlord_gc_result *result) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    mli_watch *w = &device->watch;
    mli_u64 *sum = &device->count[MLI_STAT_gc_reclaimed];
    mli_phys *phys;
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    mli_stat_add(lord, dev, result->ran ? MLI_STAT_gc_runs : MLI_STAT_gc_failed, 1);
    if (result->ran) /* saturated: the host reports any number. gc_running: one writer at a time */
        mli_u64_store(sum, mli_add_saturated(mli_u64_load(sum), result->reclaimed));
    for (i = 1; i < n && result->ran; i++)
        if (i == dev || (result->family && lord->devices.dev_type[i] == device->device.type))
            mli_row_freed_reset(lord, i);
    phys = mli_phys_lock(lord, dev);
    if (rest) {
        w->gc_end = mli_row_levels(lord, dev);
        w->waiting_rearm = 1;
    }
    mli_lock_drop(&phys->lock);
}

/* Runs the callbacks of a device, then clears `gc_running` and updates the bands. Requires: this
   thread has set `gc_running`, and holds no lock. */
static MLI_COLD void mli_gc_run_callbacks(memlord *lord, uint32_t dev, mli_thread *t,
                                          mli_band_state *v, int rest, memlord_gc_result *all) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    memlord_gc_event *e = &v->event;
    mli_gc_entry c;
    memset(all, 0, sizeof *all);
    e->device = device->device;
    mli_gc_number(lord, dev, e);
    mli_rank_none();
    while (mli_gc_advance(lord, &device->watch, e, &c)) {
        memlord_gc_result one = c.fn(c.user, lord, e);
        if (!one.ran) continue;
        all->ran = 1;
        all->family |= one.family;
        all->reclaimed = mli_add_saturated(all->reclaimed, one.reclaimed);
    }
    mli_gc_finish(lord, dev, rest, all);
    mli_log_gc(lord, e, all);
    if (all->ran) mli_event_record_other(lord, MEMLORD_EVENT_GC, dev, 0, all->reclaimed);
    mli_u32_store_release(&device->watch.gc_running, 0); /* pairs with the exchanges */
    mli_band_update(lord, dev, t, v);
}

/* Runs a band check on a device, and collects if that is due and no thread collects there yet.
   `safe`: host code may run. */
static MLI_COLD void mli_band_check(memlord *lord, uint32_t dev, mli_thread *t, int safe) {
    mli_watch *w = &mli_device_record_at(lord, dev)->watch;
    mli_band_state v;
    memlord_gc_result result;
    (void)mli_u64_add(&w->checks, 1);
    if (t && t != lord->threads.orphan) /* a thread that has only freed has no cell yet */
        (void)mli_cell_make(lord, t, MLI_BOOK_DEVICE, dev, mli_own_alloc);
    mli_band_update(lord, dev, t, &v);
    if (!v.due || !safe || mli_self.in_host_alloc) return;
    if (mli_u32_exchange(&w->gc_running, 1)) return;
    mli_band_update(lord, dev, t, &v); /* a run may have ended between the two */
    v.event.reason = MEMLORD_REASON_BAND;
    if (v.due)
        mli_gc_run_callbacks(lord, dev, t, &v, 1, &result);
    else
        mli_u32_store_release(&w->gc_running, 0);
}

/* Collects on a device for a reason other than a band. E_UNKNOWN: no callback serves it;
   E_STATE: a collection runs already, or no callback could run. */
static MLI_COLD memlord_result mli_collect(memlord *lord, uint32_t dev, int reason,
                                           uint64_t needed, uint64_t *reclaimed) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    memlord_gc_result result;
    mli_band_state v;
    int rest;
    *reclaimed = 0;
    if (!mli_gc_registered(lord, device->device, reason)) return MEMLORD_E_UNKNOWN;
    if (mli_u32_exchange(&device->watch.gc_running, 1)) return MEMLORD_E_STATE;
    mli_band_update(lord, dev, NULL, &v);
    rest = v.event.threshold && v.event.value >= v.event.threshold;
    v.event.reason = reason;
    v.event.band = SIZE_MAX;
    v.event.metric = MEMLORD_METRIC_ALLOCATED;
    v.event.value = mli_row_live(lord, MLI_BOOK_DEVICE, dev);
    v.event.threshold = 0;
    v.event.needed = needed;
    mli_gc_run_callbacks(lord, dev, NULL, &v, rest, &result);
    *reclaimed = result.reclaimed;
    return result.ran ? MEMLORD_OK : MEMLORD_E_STATE;
}

/* Updates the bands of every device at a phys, or (NULL) of all devices, after a change of
   strategies, thresholds or margins. */
static MLI_COLD void mli_phys_recheck(memlord *lord, const mli_phys *phys) {
    uint32_t i = 0;
    mli_band_state v;
    int again;
    for (again = 0; again < 2; again++) {
        while ((i = mli_phys_next_dev(lord, phys, i)) != 0) {
            (void)mli_dev_watch(lord, i);
            mli_band_update(lord, i, NULL, &v);
        }
        if (!mli_u32_load(&lord->bands.watched_types)) return;
        /* a call may have compared with the old marks: the second pass has its bytes in the sum */
        if (!again) mli_barrier_threads(lord);
    }
}

/* Widens the margins, which allow for fewer threads than there are. */
static void mli_thread_allowance_grow(memlord *lord) {
    uint32_t threads;
    mli_alert_set(lord, MLI_ALERT_THREADS, 0); /* first: a thread that starts now sets it again */
    do mli_u32_store(&lord->bands.thread_allowance, threads = mli_thread_count(lord) + 4);
    while (mli_thread_count(lord) > threads);
    mli_phys_recheck(lord, NULL);
}

/* -- the end of a call -- */

/* Compares a device with its current marks again, and requests a check if one is passed. Near
   the threshold every call checks anyway. */
static void mli_marks_again(memlord *lord, const mli_thread *t, uint32_t dev) {
    const mli_watch *w = &mli_device_record_at(lord, dev)->watch;
    mli_cell *cell = mli_cell_at(t, MLI_BOOK_DEVICE, dev);
    if (!cell || mli_u32_load(&w->near_threshold)) return;
    if (mli_mark_passed(w, mli_row_at(lord, MLI_BOOK_DEVICE, dev)) || mli_cell_tripped(cell) < 0)
        mli_check_request(lord, dev);
}

/* Returns the pressure level of used bytes of a total. It compares whole multiples of both: where
   registers are wider than a double (x87) a quotient has other digits, and a value that is equal
   to the threshold would miss it. */
static int mli_pressure(double used, double total) {
    return used * 20 >= total * 19 ? MEMLORD_PRESSURE_CRITICAL
           : used * 5 >= total * 4 ? MEMLORD_PRESSURE_WARNING
                                   : MEMLORD_PRESSURE_NORMAL;
}

/* -- public -- */

MLI_API memlord_result memlord_strategy_check(const memlord_band *bands, size_t n, size_t *bad) {
    size_t i = 0;
    if (n && !bands) return MEMLORD_E_INVALID;
    while (i < n && !mli_band_error(&bands[i])) i++;
    if (i < n && bad) *bad = i;
    return i < n ? MEMLORD_E_INVALID : MEMLORD_OK;
}

MLI_API const memlord_band *memlord_strategy_default(size_t *n) {
    if (n) *n = MLI_DEFAULT_BANDS;
    return mli_default_bands;
}

MLI_API int memlord_pressure_level(memlord *lord, memlord_device device) {
    mli_phys *phys;
    int level = MEMLORD_PRESSURE_UNKNOWN, limited;
    if (!lord || mli_phys_find(lord, device, 0, &phys)) return MEMLORD_PRESSURE_UNKNOWN;
    mli_lock_take(&phys->lock);
    if (phys->sample.known)
        level = mli_pressure((double)phys->sample.used, (double)phys->sample.total);
    if (phys->limit) {
        limited = mli_pressure(
            (double)mli_phys_live(lord, phys) + (double)phys->reserved, (double)phys->limit);
        if (limited > level) level = limited;
    }
    if (phys->failing) level = MEMLORD_PRESSURE_EMERGENCY;
    mli_lock_drop(&phys->lock);
    return level;
}

/* ----------------------------------------------------------------------- >>scopes --
   Owns scopes: the paths, and each thread's totals in each (a thread scope). Uses >>counters,
   >>sites, >>names and >>events. A thread alone writes its frames and thread scopes; readers sum
   the thread scopes. A thread that adopts a scope has a frame and a thread scope of its own in it.
   Invariants: a scope or a thread scope is never removed; a frame's totals come from the thread's
   own cells, so a call that counts does nothing for scopes. Lock: cold, to make a scope or a thread
   scope. */

/* One invocation of a scope on one thread. */
typedef struct mli_scope_run {
    uint64_t start, stamps; /* the stamp of its start; its duration in stamps */
    uint64_t bytes, blocks; /* signed: deltas */
    uint64_t before, after; /* live bytes of all devices at its start and end */
    uint64_t peak;          /* bytes above the start */
    uint64_t shapes;        /* the address of a kept string; 0: none */
} mli_scope_run;
#define MLI_RUN_WORDS (sizeof(mli_scope_run) / sizeof(uint64_t))
#define MLI_RUNS_KEPT 64 /* the last invocations that a thread scope keeps */

typedef struct mli_min_max {
    mli_u64 total, min, max; /* signed */
} mli_min_max;

/* One thread's totals in one scope, in this epoch. */
typedef struct mli_thread_scope {
    struct mli_thread_scope *next;
    struct mli_scope_record *scope;
    uint32_t thread;
    mli_u64 epoch, count, running, peak;
    mli_u64 token; /* the second word of the token to adopt it by; 0: none */
    mli_min_max bytes, blocks, stamps;
    mli_u64 devices[MEMLORD_MAX_DEVICES + 1]; /* signed: the sums of the deltas, by dev */
    /* A ring of the last invocations. The one being written is not among the last `count`. */
    mli_u64 runs[MLI_RUNS_KEPT + 1][MLI_RUN_WORDS];
} mli_thread_scope;

/* Returns the first thread scope of a scope; `next` leads to the others. */
static mli_thread_scope *mli_thread_scope_first(const mli_scope_record *scope) {
    return (mli_thread_scope *)mli_ptr_load_acquire(&scope->threads);
}

/* Resets the state of a thread that lasts over several calls: tags, tickets, account, events. */
static void mli_thread_reset(mli_thread *t) {
    mli_subbuf_leave(t);
    t->tag = NULL;
    t->tag_depth = 0;
    t->open_tickets = 0;
    t->account = 0;
    mli_special_set(t, MLI_SPECIAL_TAG | MLI_SPECIAL_TICKET | MLI_SPECIAL_SCOPE, 0);
    mli_special_set(t, MLI_SPECIAL_ACCOUNT, 0);
}

static void mli_min_max_reset(mli_min_max *e) {
    mli_u64_store(&e->total, 0);
    mli_u64_store(&e->min, INT64_MAX);
    mli_u64_store(&e->max, (uint64_t)INT64_MIN);
}

/* Adds a value to a total, minimum and maximum of the caller's own thread scope. */
static MLI_HOT void mli_min_max_add(mli_min_max *e, uint64_t v) {
    mli_u64_add_own(&e->total, v);
    if ((int64_t)v < (int64_t)mli_u64_load_own(&e->min)) mli_u64_store(&e->min, v);
    if ((int64_t)v > (int64_t)mli_u64_load_own(&e->max)) mli_u64_store(&e->max, v);
}

/* Resets a thread scope for the current epoch. The release of `epoch` pairs with mli_scope_sum.
   Requires: the caller is its own thread. */
static MLI_COLD void mli_thread_scope_reset(memlord *lord, mli_thread_scope *s) {
    uint32_t i;
    mli_u64_store(&s->count, 0);
    mli_u64_store(&s->peak, 0);
    mli_min_max_reset(&s->bytes);
    mli_min_max_reset(&s->blocks);
    mli_min_max_reset(&s->stamps);
    for (i = 0; i <= MEMLORD_MAX_DEVICES; i++) mli_u64_store(&s->devices[i], 0);
    mli_u64_store_release(&s->epoch, mli_u64_load(&lord->fences.epoch));
}

/* Adds an invocation that has ended to the caller's own thread scope. */
static void mli_thread_scope_add(mli_thread_scope *s, const mli_scope_run *v) {
    uint64_t n = mli_u64_load_own(&s->count);
    mli_words_store(s->runs[n % (MLI_RUNS_KEPT + 1)], v, MLI_RUN_WORDS);
    mli_min_max_add(&s->bytes, v->bytes);
    mli_min_max_add(&s->blocks, v->blocks);
    mli_min_max_add(&s->stamps, v->stamps);
    if (v->peak > mli_u64_load_own(&s->peak)) mli_u64_store(&s->peak, v->peak);
    mli_u64_store_release(&s->count, n + 1); /* pairs with the loads of its readers */
}

/* Returns the live bytes of all devices. */
static uint64_t mli_live_total(memlord *lord) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    uint64_t sum = 0;
    for (i = 1; i < n; i++) sum += mli_row_live(lord, MLI_BOOK_DEVICE, i);
    return sum;
}

/* Computes the totals of a frame, and adds its delta on each device to its thread scope. Its peaks
   raise those of the frame around it. */
static void mli_frame_totals(memlord *lord, mli_thread *t, mli_frame *f, mli_scope_run *v) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    memset(v, 0, sizeof *v);
    v->start = f->start;
    v->stamps = mli_stamp_now(lord) - f->start;
    v->before = f->before;
    v->after = mli_live_total(lord);
    v->shapes = (uint64_t)(uintptr_t)f->shapes;
    v->blocks = 0 - f->blocks;
    for (i = 1; i < n; i++) {
        const mli_cell *cell = mli_cell_own_device(t, i);
        const mli_frame_peak *at = mli_frame_peak_at(f, i);
        uint64_t delta;
        if (cell) mli_frame_raise(f, i, mli_u64_load_own(&cell->high));
        delta = (cell ? mli_u64_load_own(&cell->level) : 0) - at->from;
        if (delta) mli_u64_add_own(&f->stats->devices[i], delta);
        v->bytes += delta;
        v->peak += at->high - at->from;
        if (cell) v->blocks += mli_u64_load_own(&cell->allocs) - mli_u64_load_own(&cell->frees);
        if (f->around) mli_frame_raise(f->around, i, at->high);
    }
}

static void mli_frame_pop(mli_thread *t) {
    t->frame = t->frame->around;
    t->birth_bits = 0;
}

/* Ends the innermost frame and adds it to its thread scope, which may be of an earlier epoch. */
static void mli_frame_close(memlord *lord, mli_thread *t) {
    mli_thread_scope *s = t->frame->stats;
    mli_scope_run v;
    mli_event_record(lord, t, MEMLORD_EVENT_SCOPE_END, 0, 0, 0, 0);
    if (MLI_UNLIKELY(mli_u64_load_own(&s->epoch) != mli_u64_load(&lord->fences.epoch)))
        mli_thread_scope_reset(lord, s);
    mli_frame_totals(lord, t, t->frame, &v);
    mli_thread_scope_add(s, &v);
    if (MLI_UNLIKELY(t->frame->exported)) mli_u64_store(&s->token, 0);
    mli_u64_add_own(&s->running, (uint64_t)0 - 1);
    mli_frame_pop(t);
}

/* Releases the record of a thread that ends or has ended: ends its scopes, the innermost first, and
   gives up ownership, after which another thread may take the record at once. Requires: the
   registry lock. The addition orders the reads that follow after the caller's check that the thread
   has ended; the store pairs with mli_thread_spare. */
static MLI_COLD void mli_thread_release(mli_thread *t) {
    (void)mli_u64_add(&t->owner, 0);
    while (t->frame) mli_frame_close(t->lord, t);
    mli_thread_reset(t);
    mli_u32_store(&t->fenced, 1); /* it is not inside: no thread that stops a shard waits for it */
    mli_u64_store_release(&t->owner, 0);
}

#define MLI_SCOPE_NAME 200 /* bytes of a name that are kept */

/* Returns the number of scopes plus 1: scopes are numbered from 1. */
static uint32_t mli_scope_count(memlord *lord) {
    return mli_u32_load_acquire(&lord->scopes.count);
}

/* -- making a scope -- */

/* Returns the length of a name, cut to MLI_SCOPE_NAME bytes where a UTF-8 character begins. */
static size_t mli_utf8_cut(const char *name) {
    size_t n = 0;
    while (n < MLI_SCOPE_NAME && name[n]) n++;
    if (!name[n]) return n;
    while (n && ((unsigned char)name[n] & 0xc0) == 0x80) n--;
    return n;
}

/* Returns the scope with a path; NULL: there is none. */
static MLI_COLD mli_scope_record *mli_scope_of_path_locked(memlord *lord, const char *path) {
    const mli_stb_string *string = mli_string_locked(lord, path);
    return string ? string->scope : NULL;
}

/* Makes a scope, its path and its name kept. MLI_AGAIN: it needs memory first. The release of
   `count` pairs with mli_scope_count. */
static MLI_COLD memlord_result mli_scope_new_locked(memlord *lord, mli_scope_record *parent,
                                                    const char *name, const char *path,
                                                    const mli_site_origin *from,
                                                    mli_scope_record **out) {
    uint32_t id = mli_u32_load(&lord->scopes.count);
    mli_scope_record *scope;
    mli_site_record *site = NULL;
    mli_ptr *at;
    memlord_result r;
    if (id > MEMLORD_MAX_SCOPES) return MEMLORD_E_NOMEM;
    r = mli_name_locked(lord, name, &name);
    if (r == MEMLORD_OK) r = mli_name_locked(lord, path, &path);
    if (r == MEMLORD_OK && from->planted) r = mli_site_find_locked(lord, from, &site);
    if (r) return r;
    at = (mli_ptr *)mli_book_add(lord, &lord->scopes.all, id, sizeof *at, mli_cold_alloc);
    scope = at ? (mli_scope_record *)mli_cold_alloc(lord, sizeof *scope) : NULL;
    if (!scope) return MLI_AGAIN;
    scope->id = id;
    scope->parent = parent;
    scope->name = name;
    scope->path = path;
    scope->site = site;
    mli_string_locked(lord, path)->scope = scope;
    mli_ptr_store(at, scope);
    mli_u32_store_release(&lord->scopes.count, id + 1);
    *out = scope;
    return MEMLORD_OK;
}

/* Finds or makes the scope of a name under a parent. The path identifies a scope: "a/b" and b in
   a are one scope. */
static MLI_COLD memlord_result mli_scope_make(memlord *lord, mli_scope_record *parent,
                                              const char *name, const memlord_site *origin,
                                              mli_scope_record **out) {
    const mli_site_origin from = mli_site_origin_of(lord, origin);
    size_t n = mli_utf8_cut(name), at = parent ? strlen(parent->path) + 1 : 0;
    char *path = (char *)mli_own_alloc(lord, at + n + 1);
    memlord_result r;
    if (!path) return MEMLORD_E_NOMEM;
    if (parent) {
        memcpy(path, parent->path, at - 1);
        path[at - 1] = '/';
    }
    memcpy(path + at, name, n);
    do {
        mli_cold_enter();
        *out = mli_scope_of_path_locked(lord, path);
        r = *out ? MEMLORD_OK : mli_scope_new_locked(lord, parent, path + at, path, &from, out);
    } while (mli_cold_leave(lord, &r));
    mli_own_free(lord, path, at + n + 1);
    if (r == MEMLORD_E_NOMEM) (void)mli_u64_add(&lord->scopes.lost, 1);
    return r;
}

/* Returns the thread scope of a thread in a scope, made on first use; NULL without memory. */
static MLI_COLD mli_thread_scope *mli_thread_scope_get(memlord *lord, mli_scope_record *scope,
                                                       const mli_thread *t) {
    mli_thread_scope *s = mli_thread_scope_first(scope);
    for (; s; s = s->next)
        if (s->thread == t->id) return s; /* only this thread could add it */
    s = (mli_thread_scope *)mli_own_alloc(lord, sizeof *s);
    if (!s) return NULL;
    s->scope = scope;
    s->thread = t->id;
    mli_thread_scope_reset(lord, s);
    mli_lock_take(&mli_process.cold_lock);
    s->next = (mli_thread_scope *)mli_ptr_load(&scope->threads);
    mli_ptr_store_release(&scope->threads, s); /* pairs with mli_thread_scope_first */
    mli_lock_drop(&mli_process.cold_lock);
    return s;
}

/* -- frames -- */

/* Gets the next frame of a thread's scope stack, made on first use. E_STATE: the stack is full. The
   orphan record has no stack: its calls come from many threads. */
static memlord_result mli_frame_reserve(memlord *lord, mli_thread *t, mli_frame **out) {
    mli_frame **next = t->frame ? &t->frame->inner : &t->frames;
    uint32_t depth = mli_scope_depth(t);
    if (t == lord->threads.orphan) return MEMLORD_E_NOMEM;
    if (depth == MLI_SCOPE_DEPTH_MAX) return MEMLORD_E_STATE;
    if (!*next) {
        *next = (mli_frame *)mli_own_alloc(lord, sizeof **next);
        if (!*next) return MEMLORD_E_NOMEM;
        (*next)->around = t->frame;
        (*next)->depth = depth + 1;
    }
    *out = *next;
    return MEMLORD_OK;
}
static void mli_frames_free(memlord *lord, mli_thread *t) {
    mli_frame *f = t->frames, *inner;
    for (; f; f = inner) {
        inner = f->inner;
        mli_own_free(lord, f, sizeof *f);
    }
}

/* Restarts a cell's high at its level, after the row's peak has taken account of the old high. */
static MLI_NOINLINE void mli_cell_high_restart(memlord *lord, uint32_t dev, mli_cell *cell) {
    mli_row *row = mli_row_at(lord, MLI_BOOK_DEVICE, dev);
    mli_lock_take(&row->lock);
    mli_row_raise_peak(row, cell);
    mli_lock_drop(&row->lock);
    mli_u64_store(&cell->high, mli_u64_load(&cell->level));
}

/* Pushes a frame: the thread enters the scope of a thread scope. `adopted`: the second word of the
   token it was adopted by; 0: by none. Restarts each cell's high, so that it measures this frame's
   peak; the frame around takes the old high. */
static void mli_frame_open(memlord *lord, mli_thread *t, mli_frame *f, mli_thread_scope *stats,
                           uint64_t adopted) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    f->scope = stats->scope;
    f->stats = stats;
    f->adopted = adopted;
    f->exported = 0;
    f->shapes = NULL;
    f->blocks = 0;
    for (i = 1; i < n; i++) {
        mli_cell *cell = mli_cell_own_device(t, i);
        f->peaks[i].from = f->peaks[i].high = 0;
        if (!cell) continue;
        if (f->around) mli_frame_raise(f->around, i, mli_u64_load_own(&cell->high));
        if (mli_u64_load_own(&cell->high) != mli_u64_load_own(&cell->level))
            mli_cell_high_restart(lord, i, cell);
        f->peaks[i].from = f->peaks[i].high = mli_u64_load_own(&cell->level);
        f->blocks += mli_u64_load_own(&cell->allocs) - mli_u64_load_own(&cell->frees);
    }
    f->devices = n - 1;
    f->before = mli_live_total(lord);
    f->start = mli_stamp_now(lord);
    if (!(mli_u32_load(&t->special) & MLI_SPECIAL_SCOPE)) mli_special_set(t, MLI_SPECIAL_SCOPE, 1);
    t->frame = f;
    t->birth_bits = 0;
    mli_u64_add_own(&stats->running, 1);
    mli_event_record(lord, t, MEMLORD_EVENT_SCOPE_BEGIN, 0, 0, 0, 0);
}

/* Finds or makes a scope under the thread's innermost one, and the thread's thread scope in it;
   the thread's cache keeps that for the next look-up by `given` with `salt`. */
static MLI_COLD memlord_result mli_scope_lookup(memlord *lord, mli_thread *t, const char *name,
                                                const void *given, uint32_t salt,
                                                const memlord_site *origin,
                                                mli_thread_scope **out) {
    mli_scope_record *scope, *parent = t->frame ? t->frame->scope : NULL;
    memlord_result r = mli_scope_make(lord, parent, name, origin, &scope);
    if (r) return r;
    *out = mli_thread_scope_get(lord, scope, t);
    if (!*out) return MEMLORD_E_NOMEM;
    /* a scope made by another split of its path has another name: a cached one would never match */
    if (origin || !strncmp(scope->name, name, MLI_SCOPE_NAME))
        mli_cache_set(lord, t, given, salt, *out, 0);
    return MEMLORD_OK;
}

/* Begins a scope; `guard` NULL: without one. The thread's cache has it under the host's static
   record `planted` or, if that is NULL, under `name`. The text there may change, so a hit compares
   it. */
static memlord_result mli_scope_begin(memlord *lord, const char *name,
                                      const memlord_scope_site *planted, memlord_guard *guard) {
    const void *given = planted ? (const void *)planted : (const void *)name;
    mli_thread *t = mli_thread_get(lord);
    const mli_cache_entry *memo;
    mli_thread_scope *stats;
    mli_frame *frame;
    uint32_t salt;
    memlord_result r;
    if (!t) return MEMLORD_OK;
    salt = mli_cache_salt(planted ? MLI_CACHE_SCOPE_SITE : MLI_CACHE_SCOPE, mli_scope_id(t));
    memo = mli_cache_find(t, given, salt);
    stats = memo ? (mli_thread_scope *)memo->value : NULL;
    if (stats && !planted && strncmp(stats->scope->name, name, MLI_SCOPE_NAME)) stats = NULL;
    r = mli_frame_reserve(lord, t, &frame);
    if (r == MEMLORD_OK && MLI_UNLIKELY(!stats))
        r = mli_scope_lookup(lord, t, name, given, salt, planted ? &planted->site : NULL, &stats);
    if (r == MEMLORD_OK && guard) mli_guard_note(guard, lord, t, 1);
    if (r == MEMLORD_OK) mli_frame_open(lord, t, frame, stats, 0);
    mli_thread_put(lord, t);
    return mli_call_end_uncounted(lord, r);
}

/* -- handing a scope to other threads -- */

/* Returns the first word of a token: the ledger's generation and the scope. The second word is the
   number of an export. A token is valid while its number is in a thread scope: from the first
   export of a frame until the frame ends. */
static uint64_t mli_scope_word(const memlord *lord, const mli_scope_record *scope) {
    return lord->threads.generation << 32 | scope->id;
}

/* Enters the scope of a token. E_UNKNOWN: the token's frame has ended, or it is of another ledger.
   E_STATE: the thread is in it by this token already, or exported it itself. */
static MLI_COLD memlord_result mli_scope_adopt(memlord *lord, mli_thread *t,
                                               const memlord_scope_token *token) {
    uint32_t id = (uint32_t)token->word[0];
    mli_scope_record *scope =
        id && id < mli_scope_count(lord) ? mli_scope_record_at(lord, id) : NULL;
    mli_thread_scope *s;
    mli_frame *frame, *f;
    memlord_result r = mli_frame_reserve(lord, t, &frame);
    if (r) return r;
    if (!token->word[1] || !scope || token->word[0] != mli_scope_word(lord, scope))
        return MEMLORD_E_UNKNOWN;
    for (f = t->frame; f; f = f->around)
        if (f->adopted == token->word[1]) return MEMLORD_E_STATE;
    s = mli_thread_scope_first(scope);
    while (s && mli_u64_load(&s->token) != token->word[1]) s = s->next;
    if (!s) return MEMLORD_E_UNKNOWN;
    if (s->thread == t->id) return MEMLORD_E_STATE;
    s = mli_thread_scope_get(lord, scope, t);
    if (!s) return MEMLORD_E_NOMEM;
    mli_frame_open(lord, t, frame, s, token->word[1]);
    return MEMLORD_OK;
}

/* Ends the innermost scope. E_STATE: it was not adopted by this token. */
static MLI_COLD memlord_result mli_scope_return(memlord *lord, mli_thread *t,
                                                const memlord_scope_token *token) {
    const mli_frame *f = t->frame;
    if (!f || !f->adopted || f->adopted != token->word[1] ||
        token->word[0] != mli_scope_word(lord, f->scope))
        return MEMLORD_E_STATE;
    mli_frame_close(lord, t);
    return MEMLORD_OK;
}

/* Adopts or returns a token on the caller's thread record. */
static MLI_COLD memlord_result mli_scope_token_apply(memlord *lord, int adopt,
                                                     const memlord_scope_token *token) {
    mli_thread *t;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!token) return MEMLORD_E_INVALID;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    r = adopt ? mli_scope_adopt(lord, t, token) : mli_scope_return(lord, t, token);
    mli_thread_put(lord, t);
    return mli_call_end_uncounted(lord, r);
}

/* -- reading -- */

/* Merges one thread scope into a total, minimum and maximum; `first`: none was merged before. */
static void mli_min_max_merge(const mli_min_max *e, int first, int64_t *total,
                              int64_t *min, int64_t *max) {
    int64_t low = (int64_t)mli_u64_load(&e->min), high = (int64_t)mli_u64_load(&e->max);
    *total += (int64_t)mli_u64_load(&e->total);
    if (first || low < *min) *min = low;
    if (first || high > *max) *max = high;
}

/* Returns how many invocations a thread scope has had in this epoch. The acquires pair with
   mli_thread_scope_add and mli_thread_scope_reset. */
static uint64_t mli_thread_scope_count(memlord *lord, const mli_thread_scope *s) {
    uint64_t n = mli_u64_load_acquire(&s->count);
    return mli_u64_load_acquire(&s->epoch) == mli_u64_load(&lord->fences.epoch) ? n : 0;
}

/* Sums the thread scopes of a scope, and their deltas on each device into `devices` unless that is
   NULL. A thread scope of an earlier epoch counts as running only. */
static MLI_COLD void mli_scope_sum(memlord *lord, const mli_scope_record *scope,
                                   const mli_stamp_scale *scale,
                                   memlord_scope_stat *out, uint64_t *devices) {
    const mli_thread_scope *s = mli_thread_scope_first(scope);
    int64_t total = 0, min = 0, max = 0;
    uint32_t i;
    memset(out, 0, sizeof *out);
    out->name = scope->name;
    out->path = scope->path;
    out->id = scope->id;
    out->parent = scope->parent ? scope->parent->id : 0;
    out->device_ns = mli_u64_load(&scope->device_ns);
    if (scope->site) out->site = mli_site_display(lord, scope->site);
    for (; s; s = s->next) {
        uint64_t n = mli_thread_scope_count(lord, s);
        int first = !out->count;
        out->running += mli_u64_load(&s->running);
        if (!n) continue;
        out->count += n;
        mli_min_max_merge(&s->bytes, first, &out->bytes.total, &out->bytes.min, &out->bytes.max);
        mli_min_max_merge(&s->blocks, first, &out->blocks.total, &out->blocks.min,
                          &out->blocks.max);
        mli_min_max_merge(&s->stamps, first, &total, &min, &max);
        if (mli_u64_load(&s->peak) > out->peak) out->peak = mli_u64_load(&s->peak);
        for (i = 1; devices && i <= MEMLORD_MAX_DEVICES; i++)
            devices[i] += mli_u64_load(&s->devices[i]);
    }
    out->ns.total = mli_span_ns(scale, (uint64_t)total);
    out->ns.min = mli_span_ns(scale, (uint64_t)min);
    out->ns.max = mli_span_ns(scale, (uint64_t)max);
}

/* Copies the invocations in a thread scope's ring, the oldest first, and returns their number. Its
   thread may overwrite some meanwhile: these are dropped again. */
static MLI_COLD size_t mli_thread_scope_read(memlord *lord, const mli_thread_scope *s,
                                             mli_scope_run out[MLI_RUNS_KEPT]) {
    uint64_t n = mli_thread_scope_count(lord, s), i, after;
    uint64_t from = n > MLI_RUNS_KEPT ? n - MLI_RUNS_KEPT : 0, good;
    for (i = from; i < n; i++)
        mli_words_load(&out[i - from], s->runs[i % (MLI_RUNS_KEPT + 1)], MLI_RUN_WORDS);
    after = mli_u64_load(&s->count); /* after the copies, which are acquires */
    if (after < n) return 0;         /* it has begun a new epoch */
    good = after > from + MLI_RUNS_KEPT ? after - MLI_RUNS_KEPT : from;
    if (good >= n) return 0;
    memmove(out, out + (good - from), (size_t)(n - good) * sizeof *out);
    return (size_t)(n - good);
}

/* Returns the number of invocations that the rings have overwritten. */
static MLI_COLD uint64_t mli_invocations_lost(memlord *lord) {
    uint64_t gone = 0;
    uint32_t i;
    for (i = 1; i < mli_scope_count(lord); i++) {
        const mli_thread_scope *s = mli_thread_scope_first(mli_scope_record_at(lord, i));
        for (; s; s = s->next) {
            uint64_t n = mli_thread_scope_count(lord, s);
            gone += n > MLI_RUNS_KEPT ? n - MLI_RUNS_KEPT : 0;
        }
    }
    return gone;
}

static void mli_scopes_free(memlord *lord) {
    uint32_t i;
    for (i = 1; i < mli_scope_count(lord); i++) {
        mli_scope_record *scope = mli_scope_record_at(lord, i);
        mli_thread_scope *s = mli_thread_scope_first(scope), *next;
        for (; s; s = next) {
            next = s->next;
            mli_own_free(lord, s, sizeof *s);
        }
        mli_own_free(lord, scope, sizeof *scope);
    }
    mli_book_free(lord, &lord->scopes.all, sizeof(mli_ptr));
}

/* -- public -- */

MEMLORD_API memlord_result memlord_scope_begin(memlord *lord, const char *name) {
    if (!lord) return MEMLORD_OK;
    if (!name || !*name) return MEMLORD_E_INVALID;
    return mli_scope_begin(lord, name, NULL, NULL);
}
MEMLORD_API memlord_result memlord_scope_enter(memlord *lord, const memlord_scope_site *planted) {
    if (!lord) return MEMLORD_OK;
    if (!planted || !planted->name || !*planted->name) return MEMLORD_E_INVALID;
    return mli_scope_begin(lord, planted->name, planted, NULL);
}
MEMLORD_API memlord_guard memlord_guard_scope(memlord *lord, const char *name,
                                              const memlord_scope_site *planted) {
    memlord_guard guard = {NULL, 0, 0, 0};
    if (planted) name = planted->name;
    if (lord && name && *name) (void)mli_scope_begin(lord, name, planted, &guard);
    return guard;
}
MEMLORD_API memlord_result memlord_scope_end(memlord *lord) {
    mli_thread *t;
    memlord_result r = MEMLORD_OK;
    if (!lord) return MEMLORD_OK;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    if (t->frame && !t->frame->adopted) /* an adopted one ends by memlord_scope_return */
        mli_frame_close(lord, t);
    else
        r = MEMLORD_E_STATE;
    mli_thread_put(lord, t);
    return mli_call_end_uncounted(lord, r);
}

MEMLORD_API void memlord_guard_end(memlord_guard *guard) {
    memlord *lord = guard ? guard->lord : NULL;
    mli_thread *t = lord ? mli_thread_get(lord) : NULL;
    int elsewhere;
    if (!t) return;
    guard->lord = NULL;
    elsewhere = t->id != guard->thread;
    if (!elsewhere && guard->scope)
        while (mli_scope_depth(t) > guard->depth) mli_frame_close(lord, t);
    else if (!elsewhere && t->tag_depth > guard->depth)
        mli_tags_cut(t, guard->depth);
    mli_thread_put(lord, t);
    if (elsewhere)
        mli_guard_lost(lord);
    else if (guard->scope)
        (void)mli_call_end_uncounted(lord, MEMLORD_OK);
}

MLI_API memlord_result memlord_scope_shapes_set(memlord *lord, const char *shapes) {
    mli_thread *t;
    memlord_result r = MEMLORD_E_STATE;
    const char *kept;
    if (!lord) return MEMLORD_OK;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    if (t->frame) r = mli_name_limited(lord, shapes, &kept);
    if (r == MEMLORD_OK) t->frame->shapes = kept;
    mli_thread_put(lord, t);
    return r;
}

MLI_API memlord_result memlord_scope_export(memlord *lord, memlord_scope_token *out) {
    mli_thread *t;
    mli_frame *f;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    f = t->frame;
    if (f) {
        if (!mli_u64_load_own(&f->stats->token)) {
            f->exported = 1;
            mli_u64_store(&f->stats->token, mli_u64_add(&lord->fences.serial, 1) + 1);
        }
        out->word[0] = mli_scope_word(lord, f->scope);
        out->word[1] = mli_u64_load_own(&f->stats->token);
    }
    mli_thread_put(lord, t);
    return f ? MEMLORD_OK : MEMLORD_E_STATE;
}
MLI_API memlord_result memlord_scope_adopt(memlord *lord, const memlord_scope_token *token) {
    return mli_scope_token_apply(lord, 1, token);
}
MLI_API memlord_result memlord_scope_return(memlord *lord, const memlord_scope_token *token) {
    return mli_scope_token_apply(lord, 0, token);
}

MLI_API memlord_result memlord_scope_get(memlord *lord, const char *path, memlord_scope_stat *out) {
    const mli_scope_record *scope;
    mli_stamp_scale scale;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!path) return MEMLORD_E_INVALID;
    mli_lock_take(&mli_process.cold_lock);
    scope = mli_scope_of_path_locked(lord, path);
    mli_lock_drop(&mli_process.cold_lock);
    if (!scope) return MEMLORD_E_UNKNOWN;
    scale = mli_stamp_scale_now(lord);
    mli_scope_sum(lord, scope, &scale, out, NULL);
    return MEMLORD_OK;
}
MLI_API uint64_t memlord_scope_current(memlord *lord) {
    mli_thread *t = lord ? mli_thread_get(lord) : NULL;
    uint64_t id = t ? mli_scope_id(t) : 0;
    if (t) mli_thread_put(lord, t);
    return id;
}
MLI_API memlord_result memlord_scope_device_time(memlord *lord, uint64_t scope, uint64_t ns) {
    if (!lord) return MEMLORD_OK;
    if (!scope || scope >= mli_scope_count(lord)) return MEMLORD_E_UNKNOWN;
    (void)mli_u64_add(&mli_scope_record_at(lord, (uint32_t)scope)->device_ns, ns);
    return MEMLORD_OK;
}

/* ----------------------------------------------------------------------- >>stats --
   Owns no state: it computes the statistics of devices, sites and tags, and lists of them, from
   the rows of all threads on each request. Uses >>counters, >>sites, >>capacity and >>scopes.
   Invariant: each row is summed once under its lock; two rows may be of different moments, so a
   report sums every device once and writes from that.
   Locks: cold for lookups, phys, scopes and row, one at a time. */

/* The columns of a device: its statistics by their MLI_STAT_ numbers. Behind them stand the losses
   of the ledger as a whole: records without room, and records that are no longer kept. */
enum { MLI_KIND_LIVE, MLI_KIND_PEAK, MLI_KIND_COUNT, MLI_KIND_ANOMALY };
#define MLI_LOSSES(X)                                                                         \
    X(scopes, "scopes there was no room for")                                                 \
    X(scope_invocations, "invocations of scopes no longer kept")                              \
    X(snapshots, "snapshots no longer kept")
enum {
#define MLI_X(name, text) MLI_LOST_##name,
    MLI_LOSSES(MLI_X)
#undef MLI_X
    MLI_LOSS_COUNT
};
enum { MLI_COLUMNS = (int)MLI_STAT_COUNT + (int)MLI_LOSS_COUNT };
static const struct {
    const char *name;
    uint16_t at, kind; /* at: the offset in memlord_stats, 0 for a loss; MLI_KIND_... */
} mli_columns[MLI_COLUMNS] = {
#define MLI_X(name, kind, family, text)                                                       \
    {#name, offsetof(memlord_stats, name), MLI_KIND_##kind},
    MLI_STATS(MLI_X)
#undef MLI_X
#define MLI_X(name, text) {"dropped_" #name, 0, MLI_KIND_ANOMALY},
    MLI_LOSSES(MLI_X)
#undef MLI_X
};
/* Returns the statistic of column i, which is less than MLI_STAT_COUNT. */
static uint64_t *mli_stat_of(memlord_stats *stats, size_t i) {
    return (uint64_t *)(void *)((char *)stats + mli_columns[i].at);
}
static MLI_COLD uint64_t mli_loss_value(memlord *lord, size_t i) {
    if (i == MLI_LOST_scope_invocations) return mli_invocations_lost(lord);
    return mli_u64_load(i == MLI_LOST_scopes ? &lord->scopes.lost : &lord->snapshots.lost);
}

/* The rates of a device's statistics. */
static const struct {
    const char *name, *text;
    double (*of)(const memlord_stats *stats);
} mli_rates[] = {
#define MLI_X(name, text) {#name, text, memlord_##name},
    MLI_RATES(MLI_X)
#undef MLI_X
};
enum { MLI_RATE_COUNT = sizeof mli_rates / sizeof *mli_rates };
/* Returns a rate in billionths; UINT64_MAX: nothing was counted. */
static MLI_COLD uint64_t mli_rate_read(const memlord_stats *stats, size_t i) {
    double rate = mli_rates[i].of(stats);
    return rate >= 0 ? (uint64_t)(rate * 1e9 + 0.5) : UINT64_MAX;
}
/* Returns memlord_mean_bytes in whole bytes; UINT64_MAX without an alloc. */
static MLI_COLD uint64_t mli_mean_read(const memlord_stats *stats) {
    return stats->allocs ? stats->total_allocated / stats->allocs : UINT64_MAX;
}

/* Computes the statistics of one device. */
static MLI_COLD void mli_stats_fill(memlord *lord, uint32_t dev, memlord_stats *out) {
    const mli_device_record *device = mli_device_record_at(lord, dev);
    size_t i;
    mli_row_totals sum;
    mli_row_sum(lord, MLI_BOOK_DEVICE, dev, 1, &sum);
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    out->version = MEMLORD_STATS_VERSION;
    for (i = 0; i < MLI_STAT_COUNT; i++)
        *mli_stat_of(out, i) = mli_u64_load(&device->count[i]);
    out->allocated = sum.live;
    out->freed = sum.freed;
    out->peak = sum.peak;
    out->peak_error = sum.peak_error;
    out->live_blocks = sum.blocks;
    out->allocs = sum.allocs;
    out->frees = sum.frees;
    out->total_allocated = sum.total_in;
    out->total_freed = sum.total_out;
    out->largest_free--; /* stored one higher: 0, unknown, becomes UINT64_MAX */
    if (out->reserved > out->allocated) out->cached = out->reserved - out->allocated;
    mli_phys_stats_add(mli_phys_at(lord, dev), out);
}

/* Returns 1 if a selector has the device of a row. */
static int mli_row_selected(memlord *lord, memlord_device sel, int book, uint32_t number) {
    uint32_t dev = mli_row_at(lord, book, number)->dev;
    return mli_selects(sel, mli_device_record_at(lord, dev)->device);
}

/* Sums what counts by phys, of those that a selector's devices are at, each phys once. */
static MLI_COLD void mli_stats_sum_phys(memlord *lord, memlord_device sel, memlord_stats *sum) {
    uint32_t i, k, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    sum->limit = sum->held = 0;
    for (i = 0; i < n; i++) {
        mli_phys *phys = mli_phys_storage(lord, i);
        for (k = 1; k < n; k++)
            if (mli_phys_at(lord, k) == phys && mli_row_selected(lord, sel, MLI_BOOK_DEVICE, k))
                break;
        if (k < n) mli_phys_stats_add(phys, sum);
    }
}

/* Adds the statistics of a device to a sum. largest_free is the largest known one: free pieces of
   two pools are not one piece. */
static MLI_COLD void mli_stats_sum(memlord_stats *sum, memlord_stats *s) {
    uint64_t a = sum->largest_free, b = s->largest_free;
    size_t i;
    for (i = 0; i < MLI_STAT_COUNT; i++)
        *mli_stat_of(sum, i) = mli_add_saturated(*mli_stat_of(sum, i), *mli_stat_of(s, i));
    sum->largest_free = a == UINT64_MAX || (b != UINT64_MAX && b > a) ? b : a;
}

static MLI_COLD void mli_site_stat_fill(memlord *lord, uint32_t number, memlord_site_stat *out) {
    mli_row *row = mli_row_at(lord, MLI_BOOK_SITE, number);
    mli_row_totals sum;
    mli_row_sum(lord, MLI_BOOK_SITE, number, 1, &sum);
    out->site = (const memlord_site *)mli_ptr_load_acquire(
        &((mli_site_record *)row->subject)->display);
    out->device = mli_device_record_at(lord, row->dev)->device;
    out->alloc_bytes = sum.total_in;
    out->free_bytes = sum.freed_here;
    out->allocs = sum.allocs;
    out->frees = sum.frees;
    out->live_bytes = sum.live;
    out->peak_bytes = sum.peak;
}

/* Inserts an item into a list of at most `cap`, ordered from the largest by the number at offset
   `key`, and returns the new length. The search begins at the end: most items stay below the last
   one and are not inserted. */
static MLI_COLD size_t mli_top_insert(void *list, size_t n, size_t cap, const void *item,
                                      size_t size, size_t key) {
    char *at = (char *)list + n * size, *first = (char *)list;
    uint64_t number, other;
    memcpy(&number, (const char *)item + key, sizeof number);
    while (at > first) {
        memcpy(&other, at - size + key, sizeof other);
        if (other >= number) break;
        if (at < first + cap * size) memcpy(at, at - size, size);
        at -= size;
    }
    if (at < first + cap * size) memcpy(at, item, size);
    return n < cap ? n + 1 : n;
}

/* Lists the largest sites of a selector and returns their number; a site with a 0 is left out.
   `names`: the listed sites get their display records, with symbols resolved. */
static MLI_COLD size_t mli_sites_top(memlord *lord, memlord_device sel, memlord_site_order order,
                                     memlord_site_stat *out, size_t cap, int names) {
    static const unsigned char keys[] = {
        offsetof(memlord_site_stat, alloc_bytes), offsetof(memlord_site_stat, free_bytes),
        offsetof(memlord_site_stat, allocs),      offsetof(memlord_site_stat, frees),
        offsetof(memlord_site_stat, live_bytes),  offsetof(memlord_site_stat, peak_bytes)};
    uint32_t i, rows = mli_row_count(lord, MLI_BOOK_SITE);
    size_t n = 0, at, key;
    if ((unsigned)order >= sizeof keys) return 0;
    key = keys[order];
    for (i = 1; i < rows; i++) {
        memlord_site_stat s;
        uint64_t number;
        if (!mli_row_selected(lord, sel, MLI_BOOK_SITE, i)) continue;
        mli_site_stat_fill(lord, i, &s);
        memcpy(&number, (char *)&s + key, sizeof number);
        if (number) n = mli_top_insert(out, n, cap, &s, sizeof s, key);
    }
    for (at = 0; at < n && at < cap && names; at++)
        out[at].site = mli_site_display_of(lord, out[at].site);
    return n;
}

static MLI_COLD void mli_tag_stat_fill(memlord *lord, uint32_t number, memlord_tag_stat *out) {
    mli_row *row = mli_row_at(lord, MLI_BOOK_TAG, number);
    mli_row_totals sum;
    mli_row_sum(lord, MLI_BOOK_TAG, number, 1, &sum);
    out->tag = (const char *)row->subject;
    out->allocated = sum.live;
    out->peak = sum.peak;
    out->blocks = sum.blocks;
    out->expected = mli_u64_load(&row->expected);
    out->variance = out->expected ? (int64_t)(out->allocated - out->expected) : 0;
}

/* Takes bytes off a sum, which becomes 0 if it has less. */
static void mli_take_off(uint64_t *sum, uint64_t bytes) { *sum -= bytes < *sum ? bytes : *sum; }

/* Returns the live bytes and blocks of the devices less those of their tags. */
static MLI_COLD memlord_tag_stat mli_untagged(memlord *lord, memlord_device sel,
                                              const memlord_tag_stat *tagged) {
    uint32_t i;
    memlord_tag_stat rest;
    memset(&rest, 0, sizeof rest);
    for (i = 1; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++) {
        mli_row_totals sum;
        if (!mli_row_selected(lord, sel, MLI_BOOK_DEVICE, i)) continue;
        mli_row_sum(lord, MLI_BOOK_DEVICE, i, 0, &sum);
        rest.allocated += sum.live;
        rest.blocks += sum.blocks;
    }
    mli_take_off(&rest.allocated, tagged->allocated);
    mli_take_off(&rest.blocks, tagged->blocks);
    return rest;
}
/* Adds the drops that no device counts, for the statistics of all devices alone: there was no
   device to count them on. */
static MLI_COLD void mli_stats_add_losses(memlord *lord, memlord_stats *out) {
    size_t i;
    for (i = 0; i < MLI_STAT_COUNT; i++)
        *mli_stat_of(out, i) =
            mli_add_saturated(*mli_stat_of(out, i), mli_u64_load(&lord->counters.lost[i]));
}

/* Lists the tags of a selector with the most live bytes and returns their number. */
static MLI_COLD size_t mli_tags_top(memlord *lord, memlord_device d,
                                    memlord_tag_stat *out, size_t cap) {
    uint32_t i, rows = mli_row_count(lord, MLI_BOOK_TAG);
    size_t n = 0;
    for (i = 1; i < rows; i++) {
        memlord_tag_stat s;
        if (!mli_row_selected(lord, d, MLI_BOOK_TAG, i)) continue;
        mli_tag_stat_fill(lord, i, &s);
        if (s.allocated)
            n = mli_top_insert(out, n, cap, &s, sizeof s, offsetof(memlord_tag_stat, allocated));
    }
    return n;
}

/* Writes "; by tag: weights 40 GiB, (untagged) 1 GiB; by site: read_tensors loader.c:12 40 GiB". */
static MLI_COLD void mli_put_largest(mli_out *o, const memlord_tag_stat *tag, size_t tags,
                                     const memlord_site_stat *site, size_t sites) {
    size_t i;
    for (i = 0; i < tags; i++)
        mli_putf(o, i ? ", %s %jo" : "; by tag: %s %jo", tag[i].tag ? tag[i].tag : "(untagged)",
                 tag[i].allocated);
    for (i = 0; i < sites; i++)
        mli_putf(o, i ? ", %p %jo" : "; by site: %p %jo", (const void *)site[i].site,
                 site[i].live_bytes);
}

#define MLI_POOL_MAX ((uint64_t)1 << 62) /* bytes: the most that a host's pool can hold */

/* Ends a call that has changed what a pool holds: checks the bands of its device. Within the
   device's capacity source nothing runs: a later call collects. */
static MLI_COLD memlord_result mli_pool_changed(memlord *lord, uint32_t dev) {
    int safe = !(lord->threads.flags & MEMLORD_FLAG_DEFER);
    if (!mli_self.in_host_alloc && mli_dev_watch(lord, dev)) {
        mli_lock_take(&lord->bands.callbacks_lock);
        if (mli_phys_at(lord, dev)->sampler == (void *)&mli_self) safe = 0;
        mli_lock_drop(&lord->bands.callbacks_lock);
        mli_band_check(lord, dev, NULL, safe);
    }
    return mli_call_end_uncounted(lord, MEMLORD_OK);
}

/* Returns the bytes that the host's pool holds and no block uses. */
static double mli_unused_share(const memlord_stats *s) {
    return s->reserved > s->allocated ? (double)(s->reserved - s->allocated) : 0;
}
/* Returns part / (part + rest); NaN if both are 0. */
static MLI_COLD double mli_share(uint64_t part, uint64_t rest) {
    return part | rest ? (double)part / ((double)part + (double)rest) : mli_nan();
}

/* -- public -- */

MLI_API size_t memlord_sites_top(memlord *lord, memlord_device sel, memlord_site_order order,
                                 memlord_site_stat *out, size_t cap) {
    if (!lord || !out || !mli_selector_valid(sel)) return 0;
    return mli_sites_top(lord, sel, order, out, cap, 1);
}
MLI_API int memlord_site_top_alloc(memlord *lord, memlord_device sel, memlord_site_stat *out) {
    return memlord_sites_top(lord, sel, MEMLORD_SITE_ORDER_ALLOC_BYTES, out, 1) == 1;
}
MLI_API int memlord_site_top_free(memlord *lord, memlord_device sel, memlord_site_stat *out) {
    return memlord_sites_top(lord, sel, MEMLORD_SITE_ORDER_FREE_BYTES, out, 1) == 1;
}

MEMLORD_API uint64_t memlord_allocated(memlord *lord, memlord_device sel) {
    uint64_t sum = 0;
    uint32_t i, n;
    if (!lord || !mli_selector_valid(sel)) return 0;
    n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 1; i < n; i++)
        if (mli_row_selected(lord, sel, MLI_BOOK_DEVICE, i))
            sum = mli_add_saturated(sum, mli_row_live(lord, MLI_BOOK_DEVICE, i));
    return sum;
}

MLI_API memlord_result memlord_stats_get(memlord *lord, memlord_device sel, memlord_stats *out) {
    mli_phys *phys;
    uint32_t i, n, found = 0;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    out->version = MEMLORD_STATS_VERSION;
    if (!lord) return MEMLORD_OK;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 1; i < n; i++) {
        memlord_stats s;
        if (!mli_row_selected(lord, sel, MLI_BOOK_DEVICE, i)) continue;
        mli_stats_fill(lord, i, &s);
        if (!found++) out->largest_free = UINT64_MAX;
        mli_stats_sum(out, &s);
    }
    mli_stats_sum_phys(lord, sel, out);
    if (!found && mli_phys_find(lord, sel, 0, &phys) == MEMLORD_OK)
        mli_phys_stats_add(phys, out); /* the host's phys may have a limit before a device */
    if (sel.type == MEMLORD_ANY) mli_stats_add_losses(lord, out);
    return MEMLORD_OK;
}

static memlord_stats mli_stats_of(memlord *lord, memlord_device sel) {
    memlord_stats s;
    (void)memlord_stats_get(lord, sel, &s);
    return s;
}
MLI_API uint64_t memlord_freed(memlord *lord, memlord_device sel) {
    return mli_stats_of(lord, sel).freed;
}
MLI_API uint64_t memlord_pending(memlord *lord, memlord_device sel) {
    return mli_stats_of(lord, sel).pending;
}
MLI_API uint64_t memlord_peak(memlord *lord, memlord_device sel) {
    return mli_stats_of(lord, sel).peak;
}

MLI_API size_t memlord_summary(memlord *lord, char *buf, size_t cap) {
    mli_out o;
    uint32_t i, n;
    mli_out_buffer(&o, buf, cap);
    if (!lord) {
        (void)mli_out_end(&o, cap);
        return 0;
    }
    mli_put_str(&o, "memlord");
    n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 1; i < n; i++) {
        memlord_stats s;
        mli_stats_fill(lord, i, &s);
        mli_putf(&o, i > 1 ? ", %i %jo in %ju (peak %jo)" : " %i %jo in %ju (peak %jo)",
                 mli_device_code(mli_device_record_at(lord, i)->device), s.allocated,
                 s.live_blocks, s.peak);
    }
    return mli_out_end(&o, cap);
}

MLI_API memlord_result memlord_tag_get(memlord *lord, memlord_device sel, const char *tag,
                                       memlord_tag_stat *out) {
    uint32_t i;
    int found = !tag;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    for (i = 1; i < mli_row_count(lord, MLI_BOOK_TAG); i++) {
        const char *name = (const char *)mli_row_at(lord, MLI_BOOK_TAG, i)->subject;
        memlord_tag_stat s;
        if (tag && strcmp(name, tag)) continue;
        found = 1;
        out->tag = name;
        if (!mli_row_selected(lord, sel, MLI_BOOK_TAG, i)) continue;
        mli_tag_stat_fill(lord, i, &s);
        out->allocated += s.allocated;
        out->peak += s.peak;
        out->blocks += s.blocks;
        out->expected += s.expected;
    }
    if (out->expected) out->variance = (int64_t)(out->allocated - out->expected);
    if (!tag) *out = mli_untagged(lord, sel, out);
    return found ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MLI_API memlord_result memlord_pool_set(memlord *lord, memlord_device device,
                                        uint64_t reserved, uint64_t largest_free) {
    uint32_t dev;
    mli_u64 *count;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = mli_device_valid(device) && reserved > MLI_POOL_MAX ? MEMLORD_E_INVALID
                                                            : mli_dev(lord, device, &dev);
    if (r)
        return mli_refuse(lord, MLI_REFUSER_pool_set, r, device, "a pool of more than 2^62 bytes");
    count = mli_device_record_at(lord, dev)->count;
    mli_u64_store(&count[MLI_STAT_reserved], reserved);
    mli_u64_max(&count[MLI_STAT_reserved_peak], (int64_t)reserved);
    /* stored one higher: 0, the initial value, means unknown */
    mli_u64_store(&count[MLI_STAT_largest_free], largest_free + 1);
    return mli_pool_changed(lord, dev);
}
static MLI_COLD memlord_result mli_pool_add(memlord *lord, memlord_device device, int64_t delta) {
    mli_u64 *count, had;
    uint64_t now;
    uint32_t dev;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (delta < 0 && mli_device_valid(device) && !mli_dev_known(lord, device))
        return MEMLORD_E_INVALID;
    r = mli_dev(lord, device, &dev);
    if (r) return r;
    count = mli_device_record_at(lord, dev)->count;
    had.v = mli_u64_load(&count[MLI_STAT_reserved]);
    do {
        now = had.v + (uint64_t)delta;
        if (now > MLI_POOL_MAX) return MEMLORD_E_INVALID; /* also one below 0 */
    } while (!mli_u64_cas(&count[MLI_STAT_reserved], &had.v, now));
    mli_u64_max(&count[MLI_STAT_reserved_peak], (int64_t)now);
    return mli_pool_changed(lord, dev);
}
MLI_API memlord_result memlord_pool_add(memlord *lord, memlord_device device, int64_t delta) {
    return mli_refuse(lord, MLI_REFUSER_pool_add, mli_pool_add(lord, device, delta), device,
                      "a pool of less than 0 bytes, or of more than 2^62");
}
MEMLORD_API memlord_result memlord_pool_served(memlord *lord, memlord_device device,
                                               uint64_t hits, uint64_t misses) {
    uint32_t dev;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = mli_dev(lord, device, &dev);
    if (r) return mli_refuse(lord, MLI_REFUSER_pool_served, r, device, NULL);
    mli_stat_add(lord, dev, MLI_STAT_cache_hits, hits);
    mli_stat_add(lord, dev, MLI_STAT_cache_misses, misses);
    return MEMLORD_OK;
}
MLI_API double memlord_cached_ratio(const memlord_stats *stats) {
    return stats && stats->reserved ? mli_unused_share(stats) / (double)stats->reserved : 0;
}
MLI_API double memlord_fragmentation(const memlord_stats *stats) {
    double unused, f;
    if (!stats || stats->largest_free == UINT64_MAX) return mli_nan();
    unused = mli_unused_share(stats);
    f = unused > 0 ? 1 - (double)stats->largest_free / unused : 0;
    return f > 0 ? f : 0;
}
MLI_API double memlord_hit_rate(const memlord_stats *stats) {
    return stats ? mli_share(stats->cache_hits, stats->cache_misses) : mli_nan();
}
MLI_API double memlord_recovery_rate(const memlord_stats *stats) {
    return stats ? mli_share(stats->recoveries, stats->oom_failures) : mli_nan();
}
MLI_API double memlord_success_rate(const memlord_stats *stats) {
    return stats ? mli_share(stats->allocs, stats->oom_failures) : mli_nan();
}
MLI_API double memlord_mean_bytes(const memlord_stats *stats) {
    if (!stats || !stats->allocs) return mli_nan();
    return (double)stats->total_allocated / (double)stats->allocs;
}

/* ------------------------------------------------------------------------ >>room --
   Owns the capacity sources and computes whether a request has room: samples, limits, headroom,
   plans, and the explanation of a refusal. Uses >>capacity, >>limits, >>bands and >>stats.
   Invariants: one thread at a time calls a source for a phys, and holds no lock; an impossible
   sample counts as unknown.
   Locks: callbacks for the sources and the threads that call them, then phys for a sample. */

/* -- sources -- */

/* Samples the host's memory: the built-in source of the cpu. */
static MLI_COLD int mli_cpu_capacity(void *user, memlord_device d, memlord_capacity *out) {
    memlord *lord = (memlord *)user;
    (void)d;
    return mli_cpu_sample(&lord->room.cpu, &out->total, &out->used, &out->process);
}

static MLI_COLD mli_capacity_reader mli_capacity_reader_of(memlord *lord, int type) {
    mli_capacity_reader source;
    mli_lock_take(&lord->bands.callbacks_lock);
    source = lord->room.capacity_readers[type];
    mli_lock_drop(&lord->bands.callbacks_lock);
    return source;
}

/* Sets the limit to its fraction of the capacity, if it has one and the capacity is known.
   Requires: the phys lock. */
static void mli_phys_fraction_apply(mli_phys *phys) {
    if (!(phys->fraction > 0) || !phys->sample.known) return;
    phys->limit = (uint64_t)(phys->fraction * (double)phys->sample.total);
    if (!phys->limit) phys->limit = 1;
}

/* Stores a sample of a phys, or that none is known. */
static MLI_COLD void mli_phys_sample_store(mli_phys *phys, const memlord_capacity *c,
                                           uint64_t now) {
    mli_lock_take(&phys->lock);
    phys->sample = *c;
    phys->sampled = now;
    mli_phys_fraction_apply(phys);
    mli_lock_drop(&phys->lock);
}

/* Samples a phys through its source, then checks the bands of its devices. E_STATE: another thread
   is sampling it; E_UNSUPPORTED: it has no source; E_UNKNOWN: the sample is of no use. */
static MLI_COLD memlord_result mli_phys_sample(memlord *lord, mli_phys *phys) {
    mli_capacity_reader source;
    memlord_capacity c;
    uint64_t now;
    memlord_result r = MEMLORD_OK;
    memset(&c, 0, sizeof c);
    if (mli_u32_exchange(&phys->sampling, 1)) return MEMLORD_E_STATE;
    mli_lock_take(&lord->bands.callbacks_lock);
    source = lord->room.capacity_readers[phys->device.type];
    phys->sampler = &mli_self;
    mli_lock_drop(&lord->bands.callbacks_lock);
    mli_rank_none();
    if (!source.fn)
        r = MEMLORD_E_UNSUPPORTED;
    else if (source.fn(source.user, phys->device, &c) || !c.total || c.used > c.total)
        r = MEMLORD_E_UNKNOWN;
    now = mli_ledger_now(lord);
    mli_lock_take(&lord->bands.callbacks_lock);
    if (r == MEMLORD_OK && !phys->sampler) r = MEMLORD_E_UNKNOWN; /* it has replaced itself */
    if (r) memset(&c, 0, sizeof c);
    c.known = r == MEMLORD_OK;
    if (r != MEMLORD_E_UNSUPPORTED) mli_phys_sample_store(phys, &c, now);
    phys->sampler = NULL;
    mli_lock_drop(&lord->bands.callbacks_lock);
    mli_u32_store_release(&phys->sampling, 0); /* pairs with the exchange above */
    mli_phys_recheck(lord, phys);
    return r;
}

/* Replaces a source, waits until no other thread is in the old one, and forgets its samples. */
static void mli_capacity_reader_set(memlord *lord, int type, mli_capacity_reader source) {
    uint32_t i;
    unsigned spins = 0;
    memlord_capacity none;
    memset(&none, 0, sizeof none);
    mli_lock_take(&lord->bands.callbacks_lock);
    lord->room.capacity_readers[type] = source;
    mli_lock_drop(&lord->bands.callbacks_lock);
    for (i = 0; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++) {
        mli_phys *phys = mli_phys_storage(lord, i);
        if (phys->device.type != type) continue; /* also an unused phys: it may be used again */
        mli_lock_take(&lord->bands.callbacks_lock);
        while (phys->sampler && phys->sampler != (void *)&mli_self) {
            mli_lock_drop(&lord->bands.callbacks_lock);
            mli_spin_wait(&spins);
            mli_lock_take(&lord->bands.callbacks_lock);
        }
        phys->sampler = NULL; /* voids the sample that this thread may be taking */
        mli_lock_drop(&lord->bands.callbacks_lock);
        mli_phys_sample_store(phys, &none, 0);
        mli_phys_recheck(lord, phys);
    }
}

/* -- the explanation of a refusal -- */

#define MLI_EXPLAIN_TOP 4

/* Writes "512 MiB wanted, 100 MiB short: limit 2 GiB, live 1.9 GiB, ..." for a phys. */
static MLI_COLD void mli_explain_phys(memlord *lord, mli_out *o, mli_phys *phys, uint64_t wanted) {
    memlord_capacity sample;
    uint64_t limit, reserved;
    int64_t left;
    int known;
    mli_lock_take(&phys->lock);
    known = mli_phys_available(lord, phys, &left);
    sample = phys->sample;
    limit = phys->limit;
    reserved = phys->reserved;
    mli_lock_drop(&phys->lock);
    mli_putf(o, " %jo wanted, ", wanted);
    if (!known)
        mli_put_str(o, "limit and capacity unknown");
    else if (left < 0 || (uint64_t)left < wanted)
        mli_putf(o, "%jo short", wanted - (uint64_t)left);
    else
        mli_putf(o, "%jo to spare", (uint64_t)left - wanted);
    if (limit) mli_putf(o, ": limit %jo", limit);
    mli_putf(o, limit ? ", live %jo" : ": live %jo", mli_phys_live(lord, phys));
    if (reserved) mli_putf(o, ", held %jo", reserved);
    if (sample.known)
        mli_putf(o, ", capacity %jo with %g used", sample.total, mli_used_percent(&sample));
}

/* Writes why a device has or lacks room for `wanted` bytes, with its largest tags and sites. */
static MLI_COLD size_t mli_explain_device(memlord *lord, memlord_device d, uint64_t wanted,
                                          char *buf, size_t cap) {
    memlord_tag_stat tags[MLI_EXPLAIN_TOP];
    memlord_site_stat sites[MLI_EXPLAIN_TOP];
    mli_symbol symbols[MLI_EXPLAIN_TOP];
    memlord_site named[MLI_EXPLAIN_TOP];
    size_t i, n;
    mli_phys *phys;
    mli_out o;
    mli_out_buffer(&o, buf, cap);
    mli_putf(&o, "%i:", mli_device_code(d));
    if (mli_phys_find(lord, d, 0, &phys) == MEMLORD_OK)
        mli_explain_phys(lord, &o, phys, wanted);
    else
        mli_put_str(&o, " never seen");
    n = mli_sites_top(lord, d, MEMLORD_SITE_ORDER_LIVE_BYTES, sites, MLI_EXPLAIN_TOP, 0);
    for (i = 0; i < n; i++)
        sites[i].site = mli_site_named(lord, sites[i].site, &symbols[i], &named[i]);
    mli_put_largest(&o, tags, mli_tags_top(lord, d, tags, MLI_EXPLAIN_TOP), sites, n);
    return mli_out_end(&o, cap);
}

/* Logs the explanation of a refusal after `head`. Without a logger it walks nothing. */
static MLI_COLD void mli_log_explain(memlord *lord, int level, const char *head, memlord_device d,
                                     uint64_t wanted) {
    char line[640];
    size_t n = strlen(head);
    if (!mli_log_hears(lord, level)) return;
    memcpy(line, head, n);
    (void)mli_explain_device(lord, d, wanted, line + n, sizeof line - n);
    mli_log(lord, level, line);
}

/* Returns 1 at most once a second of the ledger's clock: *last is the time when it did so last, 0
   at first. */
static MLI_COLD int mli_log_due(memlord *lord, mli_u64 *last) {
    const uint64_t now = mli_ledger_now(lord);
    uint64_t seen = mli_u64_load(last);
    if (seen && now - seen < 1000000000u) return 0;
    return mli_u64_cas(last, &seen, now ? now : 1);
}
/* Logs a refused reservation, at most once a second. A server that is full refuses thousands a
   second, and each line walks the tags and the sites. */
static MLI_COLD void mli_log_refusal(memlord *lord, memlord_device d, uint64_t wanted) {
    if (mli_log_hears(lord, MEMLORD_LOG_WARNING) && mli_log_due(lord, &lord->limits.refusal_logged))
        mli_log_explain(lord, MEMLORD_LOG_WARNING, "[limit] ", d, wanted);
}

/* Finds the phys of a device. A device not yet seen is added only if its type has a capacity
   source; else E_UNKNOWN. */
static memlord_result mli_phys_with_capacity(memlord *lord, memlord_device d, mli_phys **phys) {
    int make = mli_device_valid(d) && mli_capacity_reader_of(lord, d.type).fn;
    return mli_phys_find(lord, d, make, phys);
}

/* Sets the limit of a phys in bytes, or as a fraction of its capacity if `fraction` is not 0. */
static MLI_COLD memlord_result mli_limit_set(memlord *lord, mli_phys *phys,
                                             uint64_t bytes, double fraction) {
    mli_lock_take(&phys->lock);
    phys->fraction = fraction;
    phys->limit = bytes;
    mli_phys_fraction_apply(phys);
    mli_lock_drop(&phys->lock);
    mli_phys_recheck(lord, phys);
    return MEMLORD_OK;
}

/* Computes the bytes left at the phys of a device. Returns 0 if they are unknown. */
static MLI_COLD int mli_dev_available(memlord *lord, memlord_device device, int64_t *left) {
    mli_phys *phys;
    int known;
    *left = INT64_MAX;
    if (mli_phys_find(lord, device, 0, &phys)) return 0;
    mli_lock_take(&phys->lock);
    known = mli_phys_available(lord, phys, left);
    mli_lock_drop(&phys->lock);
    return known;
}

/* Computes how many bytes a plan lacks at the phys of block `first`; INT64_MIN: an earlier block is
   there, which had them all. Returns 0 if they are unknown. */
static MLI_COLD int mli_plan_lack(memlord *lord, const memlord_block *blocks, size_t n,
                                  size_t first, int64_t *lack) {
    const int64_t least = -((int64_t)1 << 62); /* no difference overflows */
    mli_phys *phys, *other;
    uint64_t sum = 0;
    int64_t left;
    size_t i;
    *lack = INT64_MIN;
    if (!mli_dev_available(lord, blocks[first].device, &left)) return 0;
    (void)mli_phys_find(lord, blocks[first].device, 0, &phys);
    for (i = 0; i < n; i++) {
        (void)mli_phys_find(lord, blocks[i].device, 0, &other);
        if (other != phys) continue;
        if (i < first) return 1;
        sum = mli_add_saturated(sum, blocks[i].bytes);
    }
    *lack = mli_bytes_signed(sum) - (left > least ? left : least);
    return 1;
}

/* -- public -- */

MEMLORD_API memlord_result memlord_capacity_get(memlord *lord, memlord_device device,
                                                memlord_capacity *out) {
    mli_phys *phys;
    uint64_t now, at;
    memlord_result r;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    r = mli_phys_find(lord, device, 0, &phys);
    if (r) return r == MEMLORD_E_UNKNOWN ? MEMLORD_OK : r;
    now = mli_ledger_now(lord);
    mli_lock_take(&phys->lock);
    *out = phys->sample;
    at = phys->sampled;
    mli_lock_drop(&phys->lock);
    if (out->known) out->age_ns = now > at ? now - at : 0;
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_capacity_sample(memlord *lord, memlord_device device) {
    mli_phys *phys;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    r = mli_phys_with_capacity(lord, device, &phys);
    if (r == MEMLORD_E_UNKNOWN) return MEMLORD_E_UNSUPPORTED;
    return r ? r : mli_phys_sample(lord, phys);
}

MLI_API memlord_result memlord_device_share(memlord *lord, memlord_device device,
                                            memlord_device physical) {
    mli_phys *to;
    uint32_t dev, other;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!mli_device_valid(physical)) return MEMLORD_E_DEVICE;
    r = mli_dev(lord, device, &dev);
    if (r) return r;
    to = &lord->capacity.host_phys;
    if (!mli_type_host[physical.type]) {
        r = mli_dev(lord, physical, &other);
        if (r) return r;
        to = &mli_device_record_at(lord, other)->own_phys;
        if (other != dev && mli_phys_at(lord, other) != to) return MEMLORD_E_STATE;
    }
    if (mli_type_host[device.type])
        return to == &lord->capacity.host_phys ? MEMLORD_OK : MEMLORD_E_STATE;
    r = mli_phys_assign(lord, dev, to);
    if (r == MEMLORD_OK) mli_phys_recheck(lord, NULL);
    return r;
}

MLI_API memlord_result memlord_limit_set(memlord *lord, memlord_device device, uint64_t bytes) {
    mli_phys *phys;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = mli_phys_find(lord, device, 1, &phys);
    return r ? r : mli_limit_set(lord, phys, bytes, 0);
}

MLI_API memlord_result memlord_limit_set_fraction(memlord *lord, memlord_device device,
                                                  double fraction) {
    mli_phys *phys;
    memlord_capacity c;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!(fraction > 0 && fraction <= 1)) return MEMLORD_E_INVALID;
    r = mli_phys_with_capacity(lord, device, &phys);
    if (r) return r;
    (void)memlord_capacity_get(lord, device, &c);
    if (!c.known && mli_phys_sample(lord, phys)) return MEMLORD_E_UNKNOWN;
    return mli_limit_set(lord, phys, 0, fraction);
}

MEMLORD_API int64_t memlord_headroom(memlord *lord, memlord_device device) {
    int64_t left = INT64_MAX;
    if (lord) (void)mli_dev_available(lord, device, &left);
    return left;
}

MEMLORD_API int memlord_would_fit(memlord *lord, memlord_device device, uint64_t bytes) {
    int64_t left;
    if (!lord || !mli_dev_available(lord, device, &left)) return -1;
    return left >= 0 && bytes <= (uint64_t)left;
}

MLI_API int memlord_plan_fit(memlord *lord, const memlord_block *blocks, size_t n,
                             int64_t *short_by) {
    int64_t worst = INT64_MIN, lack;
    int known = 1;
    size_t i;
    if (short_by) *short_by = 0;
    if (!lord || (n && !blocks)) return -1;
    for (i = 0; i < n; i++) {
        known &= mli_plan_lack(lord, blocks, n, i, &lack);
        if (lack > worst) worst = lack;
    }
    if (worst <= 0 && !known) return -1;
    if (short_by && worst != INT64_MIN) *short_by = worst;
    return worst <= 0;
}

MEMLORD_API memlord_result memlord_reserve(memlord *lord, memlord_device device, uint64_t bytes,
                                           memlord_ticket *out) {
    mli_thread *t;
    mli_phys *phys;
    memlord_result r;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    *out = 0;
    if (!lord) return MEMLORD_OK;
    if (bytes > MLI_BYTES_MAX) return MEMLORD_E_INVALID;
    r = mli_phys_find(lord, device, 1, &phys);
    if (r) return r;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_E_STATE;
    r = mli_reservation_open(lord, phys, t, bytes, out);
    if (r == MEMLORD_OK) mli_ticket_attach(lord, t, *out);
    mli_thread_put(lord, t);
    if (r == MEMLORD_E_LIMIT) mli_log_refusal(lord, device, bytes);
    return mli_call_end_uncounted(lord, r);
}

MLI_API size_t memlord_explain(memlord *lord, memlord_device device, uint64_t wanted,
                               char *buf, size_t cap) {
    if (lord) return mli_explain_device(lord, device, wanted, buf, cap);
    if (buf && cap) buf[0] = 0;
    return 0;
}

/* ------------------------------------------------------------------ >>snapshots --
   Owns the snapshots, the thread that takes them (the recorder), and the holders of each device:
   the tags and sites that had its bytes at its peak. Uses >>counters, >>stats, >>sites, >>names and
   >>events. Invariants: a snapshot never changes once it is in the list; the list is in order of
   time; a snapshot evicted while a report reads the list is freed after the last reader. Locks:
   snapshots, for the list and the holders; not held while blocks, tags or sites are visited. */

typedef struct mli_device_usage { /* of a device, at one moment */
    uint64_t live, pending, reserved, peak, blocks; /* bytes; blocks: their number */
} mli_device_usage;

/* A snapshot, followed in memory by an array of `devices` mli_device_usage, by device number, and
   one of `top_blocks` memlord_block_info. */
typedef struct mli_snapshot {
    struct mli_snapshot *next; /* in the list of evicted snapshots that readers may still read */
    size_t size, top_blocks;   /* bytes of the allocation; blocks in the second array */
    uint64_t time;             /* ns since create */
    const char *name;          /* kept; NULL: periodic */
    uint64_t live, blocks;     /* over all devices */
    uint32_t devices;
} mli_snapshot;

/* A reader of the list: part of a report. If the report is left by longjmp, the reader stays as
   long as the ledger. Requires: the snapshots lock. */
typedef struct mli_snapshot_reader {
    struct mli_snapshot_reader *next;
    const void *thread; /* the address of its mli_self */
} mli_snapshot_reader;

#define MLI_HOLDERS 16 /* the most tags, and the most sites, that are kept of a device */
typedef struct mli_holders {
    uint64_t time, bytes; /* ns since create; bytes live then */
    size_t tags, sites;   /* how many of the arrays are filled */
    memlord_tag_stat tag[MLI_HOLDERS];
    memlord_site_stat site[MLI_HOLDERS];
} mli_holders;

#define MLI_SNAPSHOT_TOP 10      /* the largest blocks that are kept in a snapshot */
#define MLI_SNAPSHOT_MS_MIN 10   /* ms: the shortest interval */
#define MLI_SNAPSHOT_MS_DEFAULT 5000
#define MLI_RECORDER_MS_MAX 1000 /* ms: the recorder checks the clock and saves at least so often */

static mli_device_usage *mli_snapshot_devices(const mli_snapshot *s) {
    return (mli_device_usage *)(uintptr_t)(s + 1);
}
static memlord_block_info *mli_snapshot_top(const mli_snapshot *s) {
    return (memlord_block_info *)(void *)(mli_snapshot_devices(s) + s->devices);
}
static void mli_snapshots_free(memlord *lord, mli_snapshot *s) {
    mli_snapshot *next;
    for (; s; s = next) {
        next = s->next;
        mli_own_free(lord, s, s->size);
    }
}

/* Makes a snapshot of the usage of every device, with the largest blocks; NULL without memory. */
static MLI_COLD mli_snapshot *mli_snapshot_new(memlord *lord, const char *kept) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE) - 1;
    size_t size = sizeof(mli_snapshot) + n * sizeof(mli_device_usage) +
                  MLI_SNAPSHOT_TOP * sizeof(memlord_block_info);
    mli_snapshot *s = (mli_snapshot *)mli_own_alloc(lord, size);
    if (!s) return NULL;
    s->size = size;
    s->name = kept;
    s->devices = n;
    s->time = mli_ledger_now(lord) - lord->lifecycle.started;
    for (i = 0; i < n; i++) {
        mli_device_usage *usage = &mli_snapshot_devices(s)[i];
        const mli_u64 *count = mli_device_record_at(lord, i + 1)->count;
        mli_row_totals sum;
        mli_row_sum(lord, MLI_BOOK_DEVICE, i + 1, 1, &sum);
        usage->live = sum.live;
        usage->blocks = sum.blocks;
        usage->peak = sum.peak;
        usage->pending = mli_u64_load(&count[MLI_STAT_pending]);
        usage->reserved = mli_u64_load(&count[MLI_STAT_reserved]);
        s->live += sum.live;
        s->blocks += sum.blocks;
    }
    s->top_blocks =
        memlord_blocks_top(lord, memlord_device_all(), mli_snapshot_top(s), MLI_SNAPSHOT_TOP);
    return s;
}

/* Returns the live bytes of a device in a snapshot; dev 0: of all devices. */
static uint64_t mli_snapshot_level(const mli_snapshot *s, uint32_t dev) {
    if (!dev) return s->live;
    return dev <= s->devices ? mli_snapshot_devices(s)[dev - 1].live : 0;
}
/* 1: some device, or all together, held more than in any other kept snapshot. */
static MLI_COLD int mli_snapshot_is_peak(const memlord *lord, const mli_snapshot *s) {
    uint32_t dev, i;
    for (dev = 0; dev <= s->devices; dev++) {
        uint64_t level = mli_snapshot_level(s, dev);
        for (i = lord->snapshots.count; i; i--) {
            const mli_snapshot *other = lord->snapshots.at[i - 1];
            if (other != s && mli_snapshot_level(other, dev) >= level) break;
        }
        if (!i) return 1;
    }
    return 0;
}

/* Evicts the snapshot that leaves the smallest gap, the oldest of several: so the others stay
   spread over the whole run, however long it becomes. Never evicts the first, the last, or one in
   which some device held its most; of MLI_SNAPSHOTS at most MEMLORD_MAX_DEVICES + 3 are such.
   Evicts a named one only if no other can go. Requires: the list is full; the snapshots lock. */
static MLI_COLD mli_snapshot *mli_snapshots_evict(memlord *lord) {
    mli_snapshot **list = lord->snapshots.at, *out;
    uint64_t least = UINT64_MAX;
    uint32_t i, at = 0;
    int named;
    for (named = 0; named < 2 && !at; named++)
        for (i = 1; i + 1 < lord->snapshots.count; i++) {
            uint64_t gap = list[i + 1]->time - list[i - 1]->time;
            if ((list[i]->name != NULL) != named || gap >= least ||
                mli_snapshot_is_peak(lord, list[i]))
                continue;
            least = gap;
            at = i;
        }
    out = list[at];
    memmove(list + at, list + at + 1, (--lord->snapshots.count - at) * sizeof *list);
    (void)mli_u64_add(&lord->snapshots.lost, 1);
    return out;
}

/* Takes a snapshot and adds it to the list; counts it as lost without memory. */
static MLI_COLD memlord_result mli_snapshot_take(memlord *lord, const char *kept) {
    mli_snapshot *s = mli_snapshot_new(lord, kept), *out = NULL, **at;
    if (!s) {
        (void)mli_u64_add(&lord->snapshots.lost, 1);
        return MEMLORD_E_NOMEM;
    }
    mli_lock_take(&lord->snapshots.lock);
    at = &lord->snapshots.at[lord->snapshots.count++];
    /* by time: the clock, which may be the host's, was read before the lock was taken */
    for (; at > lord->snapshots.at && at[-1]->time > s->time; at--) *at = at[-1];
    *at = s;
    if (lord->snapshots.count == MLI_SNAPSHOTS) out = mli_snapshots_evict(lord);
    if (out && lord->snapshots.readers) {
        out->next = lord->snapshots.out;
        lord->snapshots.out = out;
        out = NULL;
    }
    mli_lock_drop(&lord->snapshots.lock);
    mli_snapshots_free(lord, out);
    return MEMLORD_OK;
}

/* Copies the list for a report and returns its length. Its snapshots stay until mli_snapshots_unpin
   of the same reader. */
static uint32_t mli_snapshots_pin(memlord *lord, mli_snapshot_reader *reader,
                                  const mli_snapshot *list[MLI_SNAPSHOTS]) {
    uint32_t i, n;
    reader->thread = &mli_self;
    mli_lock_take(&lord->snapshots.lock);
    n = lord->snapshots.count;
    for (i = 0; i < n; i++) list[i] = lord->snapshots.at[i];
    reader->next = lord->snapshots.readers;
    lord->snapshots.readers = reader;
    mli_lock_drop(&lord->snapshots.lock);
    return n;
}
static void mli_snapshots_unpin(memlord *lord, const mli_snapshot_reader *reader) {
    mli_snapshot *out = NULL;
    mli_snapshot_reader **at = &lord->snapshots.readers;
    mli_lock_take(&lord->snapshots.lock);
    while (*at != reader) at = &(*at)->next;
    *at = reader->next;
    if (!lord->snapshots.readers) {
        out = lord->snapshots.out;
        lord->snapshots.out = NULL;
    }
    mli_lock_drop(&lord->snapshots.lock);
    mli_snapshots_free(lord, out);
}

/* -- the recorder: periodic snapshots -- */

/* Takes a snapshot if it is due by the ledger's clock, which may be the host's. Returns the ms to
   wait until the next check. */
static MLI_COLD uint32_t mli_recorder_check(memlord *lord) {
    mli_recorder *r = &lord->snapshots.recorder;
    uint64_t now = mli_ledger_now(lord), due = mli_u64_load(&r->due), left;
    uint64_t next = now + (uint64_t)mli_u32_load(&r->interval) * 1000000u;
    /* the next one is due an interval from now: a process that was stopped catches up with none */
    if (now >= due && mli_u64_cas(&r->due, &due, next)) {
        (void)mli_snapshot_take(lord, NULL);
        due = next;
    }
    left = due > now ? (due - now) / 1000000u + 1 : 1;
    return left < MLI_RECORDER_MS_MAX ? (uint32_t)left : MLI_RECORDER_MS_MAX;
}
/* Takes a due snapshot at a safe point, if the recorder was started and its thread does not
   run. */
static MLI_COLD void mli_recorder_poll(memlord *lord) {
    mli_recorder *r = &lord->snapshots.recorder;
    if (mli_u32_load(&r->interval) && mli_u32_load_acquire(&r->helper.state) != MLI_HELPER_RUNS)
        (void)mli_recorder_check(lord);
}

/* Runs the recorder's thread. */
static MLI_COLD void mli_recorder_run(void *user) {
    memlord *lord = (memlord *)user;
    mli_recorder *r = &lord->snapshots.recorder;
    uint32_t ms;
    mli_self.is_helper = 1;
    do {
        ms = mli_recorder_check(lord);
        mli_save_serve(lord);
    } while (mli_helper_wait(&r->helper, ms));
}

/* Starts the thread. If none can be had, safe points take the snapshots. */
static MLI_COLD void mli_recorder_start(memlord *lord) {
    mli_recorder *r = &lord->snapshots.recorder;
    if (mli_polling_enabled(lord) &&
        mli_helper_start(&r->helper, &r->interval, 0, MLI_HELPER_NONE, mli_recorder_run, lord))
        mli_log(lord, MEMLORD_LOG_WARNING,
                "[snapshots] no thread for them: memlord_gc_poll takes them instead");
}

/* Stops the thread. Takes a last snapshot if the recorder was started. */
static MLI_COLD void mli_recorder_stop(memlord *lord) {
    uint32_t seen = mli_u32_exchange(&lord->snapshots.recorder.interval, 0);
    mli_helper_stop(&lord->snapshots.recorder.helper);
    if (seen) (void)mli_snapshot_take(lord, NULL);
}

/* -- the holders of a device at its peak --
   Taken at the end of a call, when the device holds a sixteenth more than at the last time. */

/* Takes the holders of a device that has `live` bytes. The last tag sums up all blocks without a
   tag. Of two threads the one that saw more bytes wins. */
static MLI_COLD void mli_holders_take(memlord *lord, uint32_t dev, uint64_t live) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    mli_holders *h = (mli_holders *)mli_own_alloc(lord, sizeof *h), *old;
    memlord_tag_stat rest;
    if (!h) return; /* the next check tries again */
    h->time = mli_ledger_now(lord) - lord->lifecycle.started;
    h->bytes = live;
    h->tags = mli_tags_top(lord, device->device, h->tag, MLI_HOLDERS - 1);
    if (memlord_tag_get(lord, device->device, NULL, &rest) == MEMLORD_OK && rest.allocated)
        h->tag[h->tags++] = rest;
    h->sites = mli_sites_top(lord, device->device, MEMLORD_SITE_ORDER_LIVE_BYTES, h->site,
                             MLI_HOLDERS, 0);
    mli_lock_take(&lord->snapshots.lock);
    old = device->holders;
    if (old && old->bytes > live) {
        old = h; /* another thread saw more bytes */
    } else {
        device->holders = h;
        mli_u64_store(&device->watch.next_holders_peak, live + live / 16 + 1);
    }
    mli_lock_drop(&lord->snapshots.lock);
    mli_own_free(lord, old, sizeof *old);
}
/* Takes the holders of a device if its live bytes have passed the mark of the last ones. */
static void mli_holders_check(memlord *lord, uint32_t dev) {
    uint64_t live = mli_row_live(lord, MLI_BOOK_DEVICE, dev);
    if (live && live >= mli_u64_load(&mli_device_record_at(lord, dev)->watch.next_holders_peak))
        mli_holders_take(lord, dev, live);
}
/* Forgets the holders of a device and takes new ones: its peak is now its live bytes. Requires:
   not inside. */
static MLI_COLD void mli_holders_restart(memlord *lord, uint32_t dev) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    mli_holders *old;
    if (mli_self.in_host_alloc) return;
    mli_lock_take(&lord->snapshots.lock);
    old = device->holders;
    device->holders = NULL;
    mli_u64_store(&device->watch.next_holders_peak, 0);
    mli_lock_drop(&lord->snapshots.lock);
    mli_own_free(lord, old, sizeof *old);
    mli_holders_check(lord, dev);
}
/* Copies the holders of a device, the sites as they are shown by now; 0: it has none. */
static int mli_holders_get(memlord *lord, uint32_t dev, mli_holders *out) {
    const mli_holders *h;
    size_t i;
    mli_lock_take(&lord->snapshots.lock);
    h = mli_device_record_at(lord, dev)->holders;
    if (h) *out = *h;
    mli_lock_drop(&lord->snapshots.lock);
    for (i = 0; h && i < out->sites; i++)
        out->site[i].site = mli_site_display_of(lord, out->site[i].site);
    return h != NULL;
}

/* Frees all snapshots and holders. Requires: the recorder is stopped. */
static MLI_COLD void mli_snapshots_destroy(memlord *lord) {
    uint32_t i;
    for (i = 0; i < lord->snapshots.count; i++)
        mli_own_free(lord, lord->snapshots.at[i], lord->snapshots.at[i]->size);
    mli_snapshots_free(lord, lord->snapshots.out);
    for (i = 1; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++)
        mli_own_free(lord, mli_device_record_at(lord, i)->holders, sizeof(mli_holders));
}

/* -- public -- */

MLI_API memlord_result memlord_checkpoint(memlord *lord, const char *name) {
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!name || !*name) return MEMLORD_E_INVALID;
    if (mli_self.in_host_alloc) return MEMLORD_OK;
    r = mli_name_limited(lord, name, &kept);
    if (r == MEMLORD_E_NOMEM) (void)mli_u64_add(&lord->snapshots.lost, 1);
    if (r == MEMLORD_OK) r = mli_snapshot_take(lord, kept);
    if (r == MEMLORD_OK)
        mli_event_record_other(lord, MEMLORD_EVENT_CHECKPOINT, 0, (uint64_t)(uintptr_t)kept, 0);
    return mli_call_end_uncounted(lord, r);
}

MLI_API memlord_result memlord_snapshots_start(memlord *lord, uint32_t interval_ms) {
    mli_recorder *r;
    if (!lord) return MEMLORD_OK;
    if (interval_ms && interval_ms < MLI_SNAPSHOT_MS_MIN) return MEMLORD_E_INVALID;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    r = &lord->snapshots.recorder;
    if (!interval_ms) interval_ms = MLI_SNAPSHOT_MS_DEFAULT;
    mli_u64_store(&r->due, mli_ledger_now(lord) + (uint64_t)interval_ms * 1000000u);
    (void)mli_u32_exchange(&r->interval, interval_ms);
    mli_recorder_start(lord);
    return mli_snapshot_take(lord, NULL);
}
MLI_API memlord_result memlord_snapshots_stop(memlord *lord) {
    if (!lord) return MEMLORD_OK;
    if (mli_self.is_helper) return MEMLORD_E_STATE;
    mli_recorder_stop(lord);
    return MEMLORD_OK;
}

/* ----------------------------------------------------------------------- >>reset --
   Runs memlord_reset and memlord_peak_reset. Owns no state. Uses the counters, the events, the
   scopes, the snapshots, the limits and the bands. Invariant: a reset never changes the live bytes,
   only totals and peaks. Locks: cold while rows and totals start over, then those of each section
   in their order. */

/* Resets the totals of a device that no cell counts. Levels stay, a peak becomes its level, all
   other totals become 0. Forgets the last failure, and that a band waits to be rearmed. */
static MLI_COLD void mli_device_reset(memlord *lord, uint32_t dev) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    mli_phys *phys = mli_phys_lock(lord, dev);
    int stat;
    for (stat = 0; stat < MLI_STAT_COUNT; stat++)
        if (mli_columns[stat].kind != MLI_KIND_LIVE)
            mli_u64_store(&device->count[stat], 0);
    mli_u64_store(&device->count[MLI_STAT_reserved_peak],
                  mli_u64_load(&device->count[MLI_STAT_reserved]));
    device->watch.waiting_rearm = 0;
    memset(&device->oom, 0, sizeof device->oom);
    mli_lock_drop(&phys->lock);
}

/* -- public -- */

MLI_API void memlord_reset(memlord *lord) {
    mli_thread *t;
    mli_route *route;
    uint32_t i, n;
    int book;
    if (!lord) return;
    (void)mli_call_end_uncounted(lord, MEMLORD_OK); /* a requested report is of the old epoch */
    t = mli_thread_get(lord);
    if (!t) return;
    mli_lock_take(&mli_process.cold_lock);
    for (book = 0; book < MLI_BOOKS; book++) {
        n = mli_row_count(lord, book);
        for (i = 1; i < n; i++) mli_row_reset(lord, t, book, i);
    }
    (void)mli_u64_add(&lord->fences.epoch, 1);
    n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 1; i < n; i++) mli_device_reset(lord, i);
    for (i = 0; i < MLI_STAT_COUNT; i++) mli_u64_store(&lord->counters.lost[i], 0);
    mli_u64_store(&lord->scopes.lost, 0);
    mli_u64_store(&lord->snapshots.lost, 0);
    route = (mli_route *)mli_ptr_load(&lord->blocks.routes);
    for (; route; route = route->next) {
        mli_u64_store(&route->moves, 0);
        mli_u64_store(&route->moved_bytes, 0);
        mli_u64_store(&route->copies, 0);
        mli_u64_store(&route->copied_bytes, 0);
    }
    for (i = 1; i < mli_scope_count(lord); i++)
        mli_u64_store(&mli_scope_record_at(lord, i)->device_ns, 0);
    mli_lock_drop(&mli_process.cold_lock);
    mli_thread_put(lord, t);
    for (i = 1; i < n; i++) mli_holders_restart(lord, i);
    mli_phys_recheck(lord, NULL);
    mli_log(lord, MEMLORD_LOG_INFO, "[reset] a new epoch: totals 0, peaks at what is live");
}

MLI_API void memlord_peak_reset(memlord *lord, memlord_device sel) {
    mli_thread *t;
    uint32_t i, n;
    if (!lord || !mli_selector_valid(sel)) return;
    t = mli_thread_get(lord);
    if (!t) return;
    n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 1; i < n; i++)
        if (mli_selects(sel, mli_device_record_at(lord, i)->device)) {
            mli_row_peak_reset(lord, t, MLI_BOOK_DEVICE, i);
            mli_holders_restart(lord, i);
        }
    mli_thread_put(lord, t);
}

/* ---------------------------------------------------------------------- >>verify --
   Compares the ledger with itself: memlord_verify. Owns no state. Uses >>map, >>counters, >>names,
   >>sites, >>fences, >>parts, >>blocks and >>limits. Invariants: the map is stopped during the
   walk, as for a fork, so that the ledger's own threads change nothing meanwhile; the first check
   that fails ends the walk, and its line is logged when nothing is held.
   Locks: cold, all shards and fences for all of it; phys, one at a time. */

/* What the map holds of one row. */
typedef struct mli_verify_sum {
    uint64_t bytes, blocks, pending;
} mli_verify_sum;

typedef struct mli_verify {
    memlord *lord;
    mli_verify_sum *sums[MLI_BOOKS]; /* by row number */
    uint32_t rows[MLI_BOOKS];        /* rows and 1 more */
    mli_shard *shard;                /* the one walked now */
    uint32_t displaced;              /* entries of it outside their home */
    mli_verify_sum detached;         /* off the map and still counted: see mli_thread */
    mli_verify_sum missing;          /* what all devices count and the map does not hold */
    mli_out text;
    char line[512];
} mli_verify;

static MLI_COLD void mli_verify_line(mli_verify *v) {
    mli_out_buffer(&v->text, v->line, sizeof v->line);
    mli_put_str(&v->text, "[verify] ");
}
/* Writes the line of a failed check. Returns 1. */
static MLI_COLD MLI_PRINTF_LIKE(2) int mli_verify_fail(mli_verify *v, const char *form, ...) {
    va_list args;
    mli_verify_line(v);
    va_start(args, form);
    mli_put_format(&v->text, 0, form, &args);
    va_end(args);
    return 1;
}
/* Writes the line of a block that fails a check: "[verify] cuda:0 0x7f00: it has ...". */
static MLI_COLD int mli_verify_block(mli_verify *v, const mli_entry *e, const char *what) {
    const memlord_device d = mli_device_record_at(v->lord, MLI_DEV(e->word1))->device;
    return mli_verify_fail(v, "%i %jx: %s", mli_device_code(d), e->key, what);
}
/* Begins the line of a row that fails a check: "[verify] cuda:0, tag weights: ". Returns 1. */
static MLI_COLD int mli_verify_row_line(mli_verify *v, int book, uint32_t number) {
    const mli_row *row = mli_row_at(v->lord, book, number);
    mli_verify_line(v);
    mli_putf(&v->text, "%i", mli_device_code(mli_device_record_at(v->lord, row->dev)->device));
    if (book == MLI_BOOK_TAG) mli_putf(&v->text, ", tag %s", (const char *)row->subject);
    if (book == MLI_BOOK_SITE)
        mli_putf(&v->text, ", site %p",
                 mli_ptr_load_acquire(&((mli_site_record *)row->subject)->display));
    mli_put_str(&v->text, ": ");
    return 1;
}

/* -- index and names -- */

/* Returns 1 if a row has its subject, and the index leads from that to the row. */
static MLI_COLD int mli_verify_subject(memlord *lord, int book, uint32_t number,
                                       const mli_row *row) {
    const mli_device_record *device = mli_device_record_at(lord, row->dev);
    const mli_site_record *site;
    const mli_stb_string *name;
    if (!row->subject) return 0;
    if (book == MLI_BOOK_DEVICE)
        return row->dev == number && row->subject == device &&
               mli_dev_known(lord, device->device) == number &&
               mli_index_get(lord, mli_device_key(device->device)) == number;
    if (mli_index_get(lord, mli_index_key(row->subject, row->dev)) != number) return 0;
    if (book == MLI_BOOK_TAG) {
        name = mli_string_locked(lord, (const char *)row->subject);
        return name && name->key == row->subject;
    }
    site = (const mli_site_record *)row->subject;
    return mli_site_record_of(lord, &site->original) == site && mli_ptr_load(&site->display);
}
static MLI_COLD int mli_verify_names(mli_verify *v, int book) {
    static const char *const books[MLI_BOOKS] = {"devices", "sites", "tags"};
    uint32_t i;
    for (i = 1; i < v->rows[book]; i++) {
        const mli_row *row = mli_row_at(v->lord, book, i);
        if (!row || !row->dev || row->dev >= v->rows[MLI_BOOK_DEVICE] ||
            !mli_verify_subject(v->lord, book, i, row))
            return mli_verify_fail(v, "row %ju of the %s: the index does not lead to it",
                                   (uint64_t)i, books[book]);
    }
    return 0;
}

/* -- one block -- */

/* Probes a shard for a key, as a call inside it does. *probe gets the entry and its home. */
static MLI_COLD void mli_verify_find(mli_verify *v, mli_shard *s, uint64_t key, uint32_t dev,
                                     mli_probe *probe) {
    memset(probe, 0, sizeof *probe);
    if (!s->table) return;
    mli_probe_begin(probe, s, key, 0);
    (void)mli_probe_scan(v->lord, probe, v->lord->devices.dev_type[dev], 0);
}
/* Checks that an entry is found by a probe of its key. */
static MLI_COLD int mli_verify_place(mli_verify *v, const mli_entry *e) {
    mli_probe probe;
    const mli_bucket *bucket;
    if (mli_shard_of(v->lord, e->key, 0) != v->shard)
        return mli_verify_block(v, e, "it lies in the wrong shard of the map");
    mli_verify_find(v, v->shard, e->key, MLI_DEV(e->word1), &probe);
    if (probe.entry != e) return mli_verify_block(v, e, "a probe does not find it in the map");
    bucket = (const mli_bucket *)(const void *)v->shard->table +
             (size_t)((const char *)e - v->shard->table) / MLI_BUCKET_BYTES;
    v->displaced += bucket != probe.home;
    return 0;
}

/* Checks the fences of a pending block. */
static MLI_COLD int mli_verify_pending(mli_verify *v, const mli_entry *e) {
    const mli_side_record *side = mli_side_record_of(e->word2);
    const mli_fence_record *f = side->fences;
    if (!f) return mli_verify_block(v, e, "it is pending and waits for no fence");
    for (; f; f = f->sibling)
        if (f->key != e->key || f->serial != side->serial || f->dev != MLI_DEV(e->word1) ||
            f->detached || !f->queue)
            return mli_verify_block(v, e, "it is pending, and a fence of it waits for another");
    return 0;
}

/* Checks that the parts of a block lie in it, one behind the other, and that their sum is right. */
static MLI_COLD int mli_verify_parts(mli_verify *v, const mli_entry *e, const mli_parts *parts) {
    uint64_t end = 0, sum = 0, bytes = MLI_BYTES(e->word1);
    uint32_t i;
    for (i = 0; i < parts->count; i++) {
        const memlord_part_info *part = parts->at[i];
        if (part->offset < end) return mli_verify_block(v, e, "two of its parts overlap");
        if (part->offset > bytes || part->bytes > bytes - part->offset)
            return mli_verify_block(v, e, "a part ends behind its storage");
        end = part->offset + part->bytes;
        sum += part->bytes;
    }
    return sum == parts->bytes ? 0 : mli_verify_block(v, e, "its parts have another sum");
}

/* Checks the references of a block, and its side record if it has one. */
static MLI_COLD int mli_verify_side(mli_verify *v, const mli_entry *e) {
    const mli_side_record *side = mli_side_record_of(e->word2);
    const uint64_t refs = MLI_REFS(e->word1);
    if (!refs || (refs == MLI_REFS_MANY && (!side || side->refs < MLI_REFS_MANY)))
        return mli_verify_block(v, e, "its count of references is wrong");
    if (!side) return 0;
    if (side->serial && mli_verify_pending(v, e)) return 1;
    return side->parts ? mli_verify_parts(v, e, side->parts) : 0;
}

static void mli_verify_add(mli_verify_sum *sum, const mli_entry *e) {
    sum->bytes += MLI_BYTES(e->word1);
    sum->blocks++;
    if (mli_is_pending(e->word2)) sum->pending += MLI_BYTES(e->word1);
}

/* Checks the rows and the birth of a block, and adds it to the sums of its rows. */
static MLI_COLD int mli_verify_rows(mli_verify *v, const mli_entry *e) {
    const uint64_t plain = mli_word2_rows(e->word2), birth = MLI_BIRTH(plain);
    const uint32_t dev = MLI_DEV(e->word1);
    uint32_t number[MLI_BOOKS];
    int book;
    number[MLI_BOOK_DEVICE] = dev;
    number[MLI_BOOK_SITE] = MLI_SITE_ROW(plain);
    number[MLI_BOOK_TAG] = MLI_TAG_ROW(plain);
    if ((birth & MLI_BIRTH_SCOPED) && ((birth & MLI_MARK_MAX) == 0 ||
                                       (birth & MLI_MARK_MAX) > v->lord->sites.birth_count))
        return mli_verify_block(v, e, "its scope is unknown");
    for (book = 0; book < MLI_BOOKS; book++) {
        if (!number[book]) continue;
        if (number[book] >= v->rows[book] ||
            mli_row_at(v->lord, book, number[book])->dev != dev)
            return mli_verify_block(v, e, "its site or its tag is of another device");
        mli_verify_add(&v->sums[book][number[book]], e);
    }
    return 0;
}

static MLI_COLD int mli_verify_entry(const mli_entry *e, void *user) {
    mli_verify *v = (mli_verify *)user;
    const uint32_t dev = MLI_DEV(e->word1);
    if (!dev || dev >= v->rows[MLI_BOOK_DEVICE])
        return mli_verify_fail(v, "%jx: its device is unknown", e->key);
    return mli_verify_place(v, e) || mli_verify_side(v, e) || mli_verify_rows(v, e);
}

/* -- the map -- */

/* Returns the overflow counts of a bucket, as they stand in a header, computed from the entries of
   the window behind it. */
static MLI_COLD uint64_t mli_verify_passed(const mli_shard *s, uint64_t at) {
    const mli_bucket *table = (const mli_bucket *)(const void *)s->table;
    const uint64_t size = s->size;
    uint64_t sum = 0, i;
    unsigned j;
    for (i = at + 1; i < at + MLI_PROBE_MAX && i < at + size; i++) {
        const mli_bucket *b = table + i % size;
        for (j = 0; j < MLI_BUCKET_SLOTS; j++) {
            const uint64_t hash = mli_hash(b->slots[j].key);
            const uint64_t home = (uint64_t)(mli_home_bucket(s, hash) - table);
            if (!(mli_u64_load(&b->header) >> (8 * j) & 255)) continue;
            if ((at + size - home) % size < (i + size - home) % size)
                sum += (uint64_t)1 << MLI_HASH_OVERFLOW(hash);
        }
    }
    return sum;
}

static MLI_COLD int mli_verify_shard(mli_verify *v, uint32_t number) {
    mli_shard *s = &v->lord->map.shards[number];
    uint32_t i;
    v->shard = s;
    v->displaced = 0;
    if (mli_shard_each(s, mli_verify_entry, v)) return 1;
    if (v->displaced != mli_u32_load(&s->displaced))
        return mli_verify_fail(v, "shard %ju of the map: %ju entries are displaced; it counts %ju",
                               (uint64_t)number, (uint64_t)v->displaced,
                               (uint64_t)mli_u32_load(&s->displaced));
    for (i = 0; i < s->size; i++) {
        const mli_bucket *b = (const mli_bucket *)(const void *)s->table + i;
        if ((mli_u64_load(&b->header) & (uint64_t)0xffff << 40) != mli_verify_passed(s, i))
            return mli_verify_fail(v, "shard %ju of the map: the overflow counts of bucket %ju are "
                                      "wrong", (uint64_t)number, (uint64_t)i);
    }
    return 0;
}
static MLI_COLD int mli_verify_map(mli_verify *v) {
    uint32_t i;
    uint64_t buckets = 0;
    for (i = 0; i < MLI_SHARDS; i++) {
        if (mli_verify_shard(v, i)) return 1;
        buckets += v->lord->map.shards[i].size;
    }
    if (buckets == mli_u32_load(&v->lord->map.buckets)) return 0;
    return mli_verify_fail(v, "the map has %ju buckets; it counts %ju", buckets,
                           (uint64_t)mli_u32_load(&v->lord->map.buckets));
}

/* -- rows -- */

/* Sums what the threads count on a row; *base is the part that they have published. */
static MLI_COLD mli_verify_sum mli_verify_counted(memlord *lord, int book, uint32_t number,
                                                  uint64_t *base) {
    mli_verify_sum sum = {0, 0, 0};
    const mli_thread *t = mli_thread_first(lord);
    for (*base = 0; t; t = mli_thread_next(t)) {
        const mli_cell *cell = mli_cell_at(t, book, number);
        if (!cell) continue;
        sum.bytes += mli_u64_load(&cell->level);
        sum.blocks += mli_u64_load(&cell->allocs) - mli_u64_load(&cell->frees);
        *base += mli_u64_load(&cell->base);
    }
    return sum;
}

/* Writes "the map holds 3 blocks, 96 B; its counters say 2, 64 B". A site counts no live blocks. */
static MLI_COLD int mli_verify_row_fail(mli_verify *v, int book, uint32_t number, uint64_t arena,
                                        const mli_verify_sum *counted) {
    const mli_verify_sum *map = &v->sums[book][number];
    const int blocks = book != MLI_BOOK_SITE;
    mli_verify_row_line(v, book, number);
    mli_put_str(&v->text, "the map holds ");
    if (blocks) mli_putf(&v->text, map->blocks == 1 ? "%ju block, " : "%ju blocks, ", map->blocks);
    mli_putf(&v->text, "%ju B", map->bytes);
    if (arena) mli_putf(&v->text, ", its arena %ju B", arena);
    mli_put_str(&v->text, "; its counters say ");
    if (blocks) mli_putf(&v->text, "%ju, ", counted->blocks);
    mli_putf(&v->text, "%ju B", counted->bytes);
    return 1;
}

/* Checks the counts of a row against the map. They may exceed it by blocks that are detached: it is
   not known on which rows those count, so only the devices' sum of them is exact. */
static MLI_COLD int mli_verify_row(mli_verify *v, int book, uint32_t number) {
    const mli_verify_sum *map = &v->sums[book][number];
    const mli_row *row = mli_row_at(v->lord, book, number);
    mli_device_record *device = mli_device_record_at(v->lord, row->dev);
    const int whole = book == MLI_BOOK_DEVICE;
    const uint64_t arena = whole ? mli_u64_load(&device->arena) : 0;
    uint64_t base, bytes, blocks;
    const mli_verify_sum counted = mli_verify_counted(v->lord, book, number, &base);
    bytes = counted.bytes - map->bytes - arena;
    blocks = book == MLI_BOOK_SITE ? 0 : counted.blocks - map->blocks;
    if (bytes > v->detached.bytes || blocks > v->detached.blocks)
        return mli_verify_row_fail(v, book, number, arena, &counted);
    if (base != mli_u64_load(&row->published)) {
        mli_verify_row_line(v, book, number);
        mli_put_str(&v->text, "its threads have published other bytes than it shows");
        return 1;
    }
    if (!whole) return 0;
    v->missing.bytes += bytes;
    v->missing.blocks += blocks;
    if (map->pending == mli_u64_load(&device->count[MLI_STAT_pending])) return 0;
    return mli_verify_fail(v, "%i: the map has %ju B pending; its counter says %ju B",
                           mli_device_code(device->device), map->pending,
                           mli_u64_load(&device->count[MLI_STAT_pending]));
}
static MLI_COLD int mli_verify_books(mli_verify *v) {
    const mli_thread *t = mli_thread_first(v->lord);
    uint32_t i;
    int book;
    for (; t; t = mli_thread_next(t)) {
        v->detached.blocks += mli_u64_load(&t->detached);
        v->detached.bytes += mli_u64_load(&t->detached_bytes);
    }
    for (book = 0; book < MLI_BOOKS; book++)
        for (i = 1; i < v->rows[book]; i++)
            if (mli_verify_row(v, book, i)) return 1;
    if (v->missing.blocks == v->detached.blocks && v->missing.bytes == v->detached.bytes) return 0;
    return mli_verify_fail(v, "open reallocs have %ju blocks, %ju B; the map lacks %ju, %ju B",
                           v->detached.blocks, v->detached.bytes, v->missing.blocks,
                           v->missing.bytes);
}

/* -- fences, tickets, accounts -- */

/* Checks that the pending block of a queued fence has that fence. The block may have ended: a fork
   finds fences that another thread was about to detach, and they stay in the child. */
static MLI_COLD int mli_verify_fence(mli_verify *v, const mli_fence_record *f) {
    const mli_fence_record *of;
    const mli_side_record *side;
    mli_probe probe;
    mli_verify_find(v, mli_shard_of(v->lord, f->key, 0), f->key, f->dev, &probe);
    side = probe.entry ? mli_side_record_of(probe.entry->word2) : NULL;
    if (!side || side->serial != f->serial) return 0;
    for (of = side->fences; of; of = of->sibling)
        if (of == f) return 0;
    return mli_verify_block(v, probe.entry, "it is pending, and lacks a fence that holds it back");
}
static MLI_COLD int mli_verify_fences(mli_verify *v) {
    const mli_fence_record *f = (mli_fence_record *)mli_ptr_load(&v->lord->fences.all);
    for (; f; f = f->older)
        if (f->serial && f->queue && !f->detached && mli_verify_fence(v, f)) return 1;
    return 0;
}

static MLI_COLD uint64_t mli_verify_list(const mli_handle *h) {
    uint64_t n = 0;
    for (; h; h = h->next) n++;
    return n;
}
static MLI_COLD int mli_verify_handles(mli_verify *v, const char *what, uint64_t records,
                                       uint64_t open, uint64_t closed) {
    if (open + closed == records) return 0;
    return mli_verify_fail(v, "%ju records of %s: %ju are open and %ju are closed", records, what,
                           open, closed);
}

/* Checks the tickets of a phys against its reserved bytes, and adds up the open and the closed. */
static MLI_COLD int mli_verify_phys(mli_verify *v, mli_phys *phys, uint64_t *open,
                                    uint64_t *closed) {
    mli_book *book = &v->lord->limits.reservations;
    uint32_t i, n = mli_u32_load(&v->lord->limits.reservation_count);
    uint64_t sum = 0, reserved;
    mli_lock_take(&phys->lock);
    for (i = 1; i < n; i++) {
        const mli_reservation *r = (const mli_reservation *)mli_book_at(book, i, sizeof *r);
        if (r->phys != phys || !(mli_u32_load(&r->handle.generation) & 1)) continue;
        sum += r->remaining;
        ++*open;
    }
    *closed += mli_verify_list(phys->closed_tickets);
    reserved = phys->reserved;
    mli_lock_drop(&phys->lock);
    if (sum == reserved) return 0;
    return mli_verify_fail(v, "%i: its tickets have %ju B left; %ju B are reserved",
                           mli_device_code(phys->device), sum, reserved);
}
static MLI_COLD int mli_verify_tickets(mli_verify *v) {
    uint64_t open = 0, closed = 0;
    uint32_t i;
    for (i = 0; i < v->rows[MLI_BOOK_DEVICE]; i++)
        if (mli_verify_phys(v, mli_phys_storage(v->lord, i), &open, &closed)) return 1;
    return mli_verify_handles(v, "tickets", mli_u32_load(&v->lord->limits.reservation_count) - 1,
                              open, closed);
}

static MLI_COLD int mli_verify_accounts(mli_verify *v) {
    mli_book *book = &v->lord->limits.accounts;
    const uint32_t n = mli_u32_load(&v->lord->limits.account_count);
    uint64_t open = 0;
    uint32_t i;
    for (i = 1; i < n; i++) {
        const mli_account_record *a = (const mli_account_record *)mli_book_at(book, i, sizeof *a);
        const uint32_t generation = mli_u32_load(&a->handle.generation);
        const uint64_t word = mli_u64_load(&a->word);
        if (!(generation & 1)) continue;
        open++;
        if (!mli_account_word_is(word, generation))
            return mli_verify_fail(v, "account %s: its balance is of another one", a->name);
        if (MLI_BYTES(word) > mli_u64_load(&a->peak))
            return mli_verify_fail(v, "account %s: it has %ju B, above its peak of %ju B", a->name,
                                   MLI_BYTES(word), mli_u64_load(&a->peak));
    }
    return mli_verify_handles(v, "accounts", n - 1, open,
                              mli_verify_list(v->lord->limits.closed_accounts));
}

/* Runs all checks until one fails. Requires: the map is stopped, and the locks are held. Names come
   first: the other checks use them, and the rows need what the walk of the map has summed. */
static MLI_COLD int mli_verify_all(mli_verify *v) {
    int book;
    for (book = 0; book < MLI_BOOKS; book++)
        if (mli_verify_names(v, book)) return 1;
    return mli_verify_map(v) || mli_verify_books(v) || mli_verify_fences(v) ||
           mli_verify_tickets(v) || mli_verify_accounts(v);
}

/* -- public -- */

MLI_API memlord_result memlord_verify(memlord *lord) {
    mli_verify v;
    size_t bytes = 0;
    int book, failed;
    if (!lord) return MEMLORD_OK;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    memset(&v, 0, sizeof v);
    v.lord = lord;
    for (book = 0; book < MLI_BOOKS; book++) {
        v.rows[book] = mli_row_count(lord, book);
        bytes += v.rows[book] * sizeof *v.sums[book];
    }
    v.sums[0] = (mli_verify_sum *)mli_own_alloc(lord, bytes);
    if (!v.sums[0]) return MEMLORD_E_NOMEM;
    for (book = 1; book < MLI_BOOKS; book++) v.sums[book] = v.sums[book - 1] + v.rows[book - 1];
    mli_lock_take(&mli_process.cold_lock);
    mli_map_freeze(lord);
    mli_lock_take(&lord->fences.lock);
    failed = mli_verify_all(&v);
    mli_lock_drop(&lord->fences.lock);
    mli_map_thaw(lord);
    mli_lock_drop(&mli_process.cold_lock);
    mli_own_free(lord, v.sums[0], bytes);
    if (failed) mli_log_end(lord, MEMLORD_LOG_ERROR, &v.text);
    return failed ? MEMLORD_E_STATE : MEMLORD_OK;
}

/* -------------------------------------------------------------------- >>deferred --
   Takes a block from freed to credited: it asks the block's fences and ends the block after the
   last one. Uses >>fences, >>blocks and the map. Invariants: a block is pending while its side
   record has a serial; it stays in the map until its last fence is done; only the asker of a fence
   calls its functions. Locks: the map's, then fences; none while a fence runs host code.

   The one circle of the implementation is that of >>deferred and >>pollers. A fence that is done
   ends a block here, and that ends with mli_call_end like any call. mli_call_end_slow, in
   >>pollers, asks the fences that are due (mli_fences_poll_due), which may end blocks here. Two
   things bound it: a block ended by a fence passes asks = 0 to mli_call_end, so it asks no
   queue; and a thread inside a fence asks no further ones (mli_fence_is_running). */

/* Declared here for the circle; no other call goes from a section to a later one by name. */
static MLI_NOINLINE void mli_call_end_slow(memlord *lord, mli_thread *t, uint32_t dev, int asks);

/* Ends a call that counted on a device: does what `alert` asks for there. Requires: nothing is
   held. `asks`: it may ask fences. Ignores MLI_ALERT_EVENTS: the call has recorded its events. A
   thread without the system's barrier always takes the slow function, for the barrier in it. */
static MLI_HOT void mli_call_end(memlord *lord, mli_thread *t, uint32_t dev, int asks) {
    if (MLI_UNLIKELY((mli_u32_load(&lord->threads.alert) & lord->devices.dev_alerts[dev] &
                      ~(uint32_t)MLI_ALERT_EVENTS) |
                     (mli_u32_load(&t->special) & MLI_SPECIAL_NO_BARRIER)))
        mli_call_end_slow(lord, t, dev, asks);
}

enum { /* why a fence is attached */
    MLI_ATTACH_USE,  /* memlord_block_use: the block stays live */
    MLI_ATTACH_FREE, /* memlord_free_deferred */
    MLI_ATTACH_MOVE  /* the source of a move */
};

/* Records a fence on a live block. It takes the place of an earlier fence of the same queue. Unless
   `why` is a use, also makes the block pending: *gone is its entry, *chain its fences, to be asked
   next. f NULL: the block has only the uses recorded before. After an error the caller keeps f. */
static memlord_result mli_fence_attach(memlord *lord, mli_thread *t, memlord_device d,
                                       uint64_t key, mli_fence_record *f, int why,
                                       mli_entry *gone, mli_fence_record **chain) {
    mli_probe probe;
    mli_side_record *side;
    mli_fence_record **at, *old = NULL;
    uint64_t refs;
    memlord_result r = mli_probe_add_side_record(lord, t, (uint32_t)d.type, key, 0, &probe);
    gone->key = 0;
    *chain = NULL;
    if (r == MEMLORD_E_UNKNOWN && why) (void)mli_unknown_free(lord, d);
    if (r) return r;
    side = mli_side_record_of(probe.entry->word2);
    refs = mli_refs_of(probe.entry->word1, probe.entry->word2);
    if (f) {
        at = &side->fences;
        while (*at && (*at)->fence.queue != f->fence.queue) at = &(*at)->sibling;
        old = *at;
        f->sibling = old ? old->sibling : NULL;
        if (old) old->sibling = NULL;
        *at = f;
        f->owes_drop = 1;
    }
    if (why) {
        *gone = *probe.entry;
        gone->word2 = side->word2;
        gone->key = key;
        *chain = mli_block_pend(lord, probe.entry);
    }
    mli_probe_leave(t, &probe);
    mli_fences_detach(lord, old);
    if (why == MLI_ATTACH_FREE && refs > 1) /* a move takes the references along */
        mli_stat_add(lord, MLI_DEV(gone->word1), MLI_STAT_freed_while_shared, 1);
    return MEMLORD_OK;
}

/* Takes a fence off its pending block, if it still has one, and ends the block with its last fence.
   Returns 1 if it ended the block; *credited is then its bytes. */
static int mli_fence_credit(memlord *lord, mli_thread *t, mli_fence_record *f, uint64_t *credited) {
    mli_probe probe;
    mli_side_record *side =
        mli_probe_side_record(lord, t, lord->devices.dev_type[f->dev], f->key, &probe);
    mli_fence_record **at;
    uint64_t word1, plain;
    int pends = side && f->serial && side->serial == f->serial;
    if (pends) {
        for (at = &side->fences; *at != f;) at = &(*at)->sibling;
        *at = f->sibling;
        f->serial = 0;
    }
    if (!pends || side->fences) {
        mli_probe_leave(t, &probe);
        return 0;
    }
    word1 = probe.entry->word1;
    plain = side->word2;
    mli_probe_end_block(lord, t, &probe, 0);
    mli_event_record_end(lord, t, MEMLORD_EVENT_FREE, f->key, word1, plain, NULL);
    *credited = MLI_BYTES(word1);
    return 1;
}

/* Ends a fence that this thread has asked: done (answer > 0) or failed (answer < 0). Drops it, and
   ends its block if it was the last. Returns the bytes credited. */
static uint64_t mli_fence_finish(memlord *lord, mli_fence_record *f, int answer) {
    mli_thread *t;
    uint64_t credited = 0, key = f->key;
    uint32_t dev = f->dev;
    int mine, last;
    if (answer < 0) mli_stat_add(lord, dev, MLI_STAT_fence_failures, 1);
    (void)mli_fence_drop(lord, f);
    t = mli_thread_get(lord);
    last = mli_fence_credit(lord, t, f, &credited);
    mli_thread_put(lord, t);
    mli_lock_take(&lord->fences.lock);
    mli_queue_remove(lord, f);
    mine = f->detached || !f->serial;
    f->asker = NULL; /* a block that still has the fence frees it */
    mli_lock_drop(&lord->fences.lock);
    if (mine) mli_fence_free(lord, f);
    if (!last) return 0;
    if (mli_debug_on(lord))
        mli_log_call(lord, 1, "[free retired] ", mli_device_record_at(lord, dev)->device, key,
                     credited, NULL);
    mli_call_end(lord, t, dev, 0);
    return credited;
}

/* Handles the answer of a fence that this thread has asked, and returns the bytes credited. A fence
   that is done before the first of its queue keeps its answer and waits for its turn. */
static MLI_COLD uint64_t mli_fence_take_answer(memlord *lord, mli_fence_record *f, int answer) {
    uint64_t now = answer ? 0 : mli_ledger_now(lord);
    int settles;
    mli_lock_take(&lord->fences.lock);
    settles = f->detached || (answer && !f->previous);
    if (!settles) {
        f->asker = NULL;
        f->early_answer = answer;
        if (!f->previous)
            mli_queue_back_off(lord, f->queue,
                               f->queue->rest ? f->queue->rest * 2 : MLI_REST_LEAST, now);
    }
    mli_lock_drop(&lord->fences.lock);
    return settles ? mli_fence_finish(lord, f, answer) : 0;
}

/* Asks the fences of a block just freed for the first time, in the order they were attached. Under
   MEMLORD_FLAG_DEFER takes "not yet" for an answer, as no host code may run: a poll asks them. */
static MLI_COLD void mli_fences_ask_new(memlord *lord, mli_fence_record *chain) {
    mli_fence_record *next;
    for (; chain; chain = next) {
        int answer = 0;
        next = chain->sibling;
        if (!(lord->threads.flags & MEMLORD_FLAG_DEFER)) answer = mli_fence_ask(lord, chain);
        (void)mli_fence_take_answer(lord, chain, answer);
    }
}

/* Makes this thread the asker of a fence. Requires: the fences lock. */
static mli_fence_record *mli_fence_claim(mli_fence_record *f) {
    f->asker = &mli_self;
    if (f->queue->unasked == f) f->queue->unasked = f->next;
    return f;
}

/* Claims the next fence that a poll has to ask: a fence never asked before, as it may record its
   event when first asked, or the first of a queue that this poll (`round`) has not asked. NULL:
   there is none left. Requires: the fences lock. */
static mli_fence_record *mli_poll_next(memlord *lord, mli_pending_queues *p, memlord_device sel,
                                       uint64_t round) {
    mli_queue *q;
    for (q = p->first; q; q = q->next) {
        mli_fence_record *f = q->unasked;
        if (!f || f->asker) f = q->round < round ? q->first : NULL;
        if (!f || f->asker) continue;
        if (!mli_selects(sel, mli_device_record_at(lord, q->dev)->device)) continue;
        if (f == q->first) q->round = round;
        return mli_fence_claim(f);
    }
    return NULL;
}

/* Retires the pending blocks of a selector that are done, and returns the bytes credited: asks the
   first fence of every queue, and the next ones while they are done. Within the ledger's own
   allocator call it does nothing. */
static MLI_COLD uint64_t mli_fences_retire(memlord *lord, memlord_device sel) {
    const uint32_t any = MLI_ALERT_DROPS | MLI_ALERT_PENDS_ALL;
    uint64_t round, credited = 0;
    uint32_t type;
    mli_fence_record *f;
    if (!(mli_u32_load(&lord->threads.alert) & any) || mli_self.in_host_alloc) return 0;
    if (mli_fence_is_running(lord)) return 0; /* the outer call asks them */
    round = mli_u64_add(&lord->fences.serial, 1) + 1;
    mli_lock_take(&lord->fences.lock);
    for (type = 0; type < MEMLORD_DEVICE_TYPE_COUNT; type++)
        while ((f = mli_poll_next(lord, &lord->fences.pends[type], sel, round)) != NULL) {
            mli_lock_drop(&lord->fences.lock);
            credited += mli_fence_take_answer(lord, f, mli_fence_ask(lord, f));
            mli_lock_take(&lord->fences.lock);
        }
    mli_lock_drop(&lord->fences.lock);
    mli_fences_drain(lord);
    return credited;
}

/* Returns the queue of a type that is due for the longest time. NULL: none is due, and p->due and
   p->late are set to when the next one will be. Requires: the fences lock. */
static mli_queue *mli_queue_due(mli_pending_queues *p, uint32_t call, uint64_t now) {
    uint32_t due = call + MLI_REST_MOST;
    uint64_t late = now + MLI_REST_NS;
    mli_queue *q, *found = NULL;
    for (q = p->first; q; q = q->next) {
        if (q->first->asker) continue;
        if ((int32_t)(q->due - due) < 0) due = q->due;
        if (q->late < late) late = q->late;
        if (((int32_t)(call - q->due) >= 0 || now >= q->late) &&
            (!found || (int32_t)(q->due - found->due) < 0))
            found = q;
    }
    mli_u32_store(&p->due, found ? call + 1 : due); /* another queue may be due as well */
    mli_u64_store(&p->late, late);
    return found;
}

#define MLI_FENCES_PER_ALLOC 4 /* the most fences that one call asks */

/* Asks fences of a device type at the end of an alloc or a free: a few of one queue that is due.
   Most calls only count themselves: the queue is looked for when p->due or, once in MLI_REST_LOOK
   calls, p->late has come. Only tries the lock, so that no call waits for another that asks. */
static MLI_COLD void mli_queue_turn(memlord *lord, uint32_t type) {
    mli_pending_queues *p = &lord->fences.pends[type];
    uint32_t most = MLI_FENCES_PER_ALLOC, call = mli_u32_load(&p->calls) + 1;
    mli_queue *q;
    uint64_t now;
    mli_u32_store(&p->calls, call);
    if ((int32_t)(call - mli_u32_load(&p->due)) < 0 &&
        (call % MLI_REST_LOOK || mli_ledger_now(lord) < mli_u64_load(&p->late)))
        return;
    if (mli_fence_is_running(lord)) return; /* the outer call asks them */
    now = mli_ledger_now(lord);
    if (!mli_lock_try(&lord->fences.lock)) return;
    q = mli_queue_due(p, call, now);
    while (q && !q->first->asker && most--) {
        uint32_t dev = q->dev;
        uint64_t id = q->id;
        mli_fence_record *f = mli_fence_claim(q->first);
        int answer;
        mli_lock_drop(&lord->fences.lock);
        answer = mli_fence_ask(lord, f);
        (void)mli_fence_take_answer(lord, f, answer);
        mli_lock_take(&lord->fences.lock);
        q = answer ? mli_queue_find(p, dev, id) : NULL;
    }
    mli_lock_drop(&lord->fences.lock);
}

/* Drops the fences to be dropped at the end of a call on a device type. `asks`: first asks fences
   of one queue of that type. */
static MLI_COLD void mli_fences_poll_due(memlord *lord, uint32_t type, int asks) {
    if (asks && (mli_u32_load(&lord->threads.alert) & (uint32_t)MLI_ALERT_PENDS << type))
        mli_queue_turn(lord, type);
    if (mli_u32_load(&lord->threads.alert) & MLI_ALERT_DROPS) mli_fences_drain(lord);
}

/* Moves a block whose fences, and f unless it is NULL, may hold its source back. Inserts the
   destination first, as a copy without fences and parts; then makes the source pending. */
static memlord_result mli_move_fenced(memlord *lord, mli_thread *t,
                                      memlord_device from, uint64_t from_key, uint32_t dev,
                                      uint64_t key, uint64_t bytes, mli_fence_record *f,
                                      const memlord_site *site, mli_fence_record **chain) {
    mli_row_delta d;
    mli_entry e, copy;
    mli_side_record *side = (mli_side_record *)mli_own_alloc(lord, sizeof *side);
    mli_probe probe;
    memlord_account account = 0;
    uint64_t rows;
    int did;
    memlord_result r;
    if (!side) return mli_short_of(lord, t, from, from_key, 1);
    /* takes all memory before anything changes: that of the source's side record, too */
    r = mli_probe_add_side_record(lord, t, (uint32_t)from.type, from_key, 0, &probe);
    if (r == MEMLORD_OK) {
        e = *probe.entry;
        side->word2 = mli_word2_rows(e.word2);
        side->refs = mli_refs_of(e.word1, e.word2);
        side->meta = mli_side_record_of(e.word2)->meta;
        account = mli_side_record_of(e.word2)->account;
        mli_probe_leave(t, &probe);
        r = mli_map_reserve(lord, t, dev, key);
    }
    if (r) {
        mli_own_free(lord, side, sizeof *side);
        return r == MEMLORD_E_UNKNOWN ? mli_unknown_free(lord, from) : r;
    }
    rows = mli_word2_moved(lord, t, side->word2, dev, site, MLI_DEV(e.word1) == dev);
    side->word2 = rows;
    mli_side_charge(lord, side,
                    MLI_DEV(e.word1) == dev ? account : mli_account_used(lord, t, dev), bytes);
    d = mli_delta_open(dev, rows, bytes);
    copy.key = key;
    copy.word1 = mli_word1_of(bytes, dev, MLI_REFS(e.word1));
    copy.word2 = (uint64_t)(uintptr_t)side | 1;
    r = mli_entry_put(lord, t, &copy, &d, 1, MLI_PUT_ALLOC, &did);
    if (r) {
        mli_side_record_free(lord, copy.word2);
        return r;
    }
    r = mli_fence_attach(lord, t, from, from_key, f, MLI_ATTACH_MOVE, &e, chain);
    if (r) { /* another thread ended the source meanwhile */
        mli_block_unopen(lord, t, dev, key, bytes);
        return r;
    }
    mli_parts_move(lord, t, (uint32_t)from.type, from_key, lord->devices.dev_type[dev], key, bytes);
    mli_event_record_end(lord, t, MEMLORD_EVENT_PEND, from_key, e.word1, e.word2, site);
    mli_event_record(lord, t, MEMLORD_EVENT_MOVE, dev, key, bytes, rows);
    mli_move_count(lord, MLI_DEV(e.word1), dev, bytes);
    return MEMLORD_OK;
}

/* --------------------------------------------------------------------- >>pollers --
   Does what the end of a call and a safe point have to do, and owns the pollers: the threads that
   sample, one a physical device, and the waiters for frees. Has the functions of the API that
   start pollers or collect. Uses >>bands, >>room, >>snapshots and >>deferred. Invariant: no poller
   starts before there is something to decide. Locks: callbacks, for waiters and callbacks;
   registry, for the sweep; none while host code runs. >>deferred tells of the circle of the two. */

/* A thread that waits for frees, in lord->pollers.waiters. It lies on the stack of that thread.
   The list is under the callbacks lock. */
typedef struct mli_waiter {
    struct mli_waiter *next;
    mli_phys *phys;
    uint64_t needed, freed_before; /* bytes it waits for; bytes freed there before it waited */
    mli_os_event event;
} mli_waiter;

#define MLI_POLL_MS_MIN 10 /* ms: the shortest interval */

/* -- pollers -- */

/* Declared here, as a poller may start other pollers. */
static MLI_COLD void mli_poller_run(void *user);

/* Starts the poller of a physical device, unless it runs or polling is off. */
static MLI_COLD memlord_result mli_phys_poller_start(mli_phys *phys) {
    int bad = mli_helper_start(&phys->poller, &phys->lord->pollers.polling, MLI_POLLING_OFF,
                               MLI_HELPER_FAILED, mli_poller_run, phys);
    if (bad > 0)
        mli_logf(phys->lord, MEMLORD_LOG_WARNING,
                 "[poller] no thread for %i: memlord_gc_poll samples instead",
                 mli_device_code(phys->device));
    return bad ? MEMLORD_E_NOMEM : MEMLORD_OK;
}

/* Stops all pollers and joins them. Requires: the caller is no helper. */
static MLI_COLD void mli_pollers_stop(memlord *lord) {
    uint32_t i;
    (void)mli_u32_exchange(&lord->pollers.polling, MLI_POLLING_OFF);
    for (i = 0; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++)
        mli_helper_stop(&mli_phys_storage(lord, i)->poller);
}

/* Starts the poller of a device's phys, if it has none yet and has a source to sample. */
static MLI_COLD memlord_result mli_dev_poller_start(memlord *lord, uint32_t dev) {
    mli_phys *phys = mli_phys_at(lord, dev);
    if (mli_u32_load(&phys->poller.state) != MLI_HELPER_NONE || !mli_polling_enabled(lord) ||
        mli_u32_load(&lord->pollers.polling) == MLI_POLLING_OFF ||
        !mli_capacity_reader_of(lord, phys->device.type).fn)
        return MEMLORD_OK;
    return mli_phys_poller_start(phys);
}

/* Starts the recorder if the alert requests it, and the pollers of all known devices that want one:
   those with a strategy in force or, after memlord_poller_start, all. Under MEMLORD_FLAG_DEFER it
   starts the host's alone while no such device is known, and that one starts the others: a new
   thread may take its stack from the very allocator that calls come from, so they start none. */
static MLI_COLD memlord_result mli_pollers_start(memlord *lord) {
    uint32_t i = 0, type, known = 0, wanted = mli_u32_load(&lord->bands.watched_types);
    memlord_result r = MEMLORD_OK;
    const int all = mli_u32_load(&lord->pollers.polling) == MLI_POLLING_ALL;
    if (all) wanted = UINT32_MAX;
    if (mli_u32_load(&lord->threads.alert) & MLI_ALERT_POLLER) {
        mli_alert_set(lord, MLI_ALERT_POLLER, 0);
        if (mli_u32_load(&lord->snapshots.recorder.interval)) mli_recorder_start(lord);
    }
    while ((i = mli_phys_next_dev(lord, NULL, i)) != 0) {
        if (!all && !mli_dev_watch(lord, i)) continue;
        known = 1;
        if (mli_dev_poller_start(lord, i)) r = MEMLORD_E_NOMEM;
    }
    if (known || !(lord->threads.flags & MEMLORD_FLAG_DEFER) || !mli_polling_enabled(lord))
        return r;
    for (type = 0; type < MEMLORD_DEVICE_TYPE_COUNT; type++)
        if ((wanted >> type & 1) && mli_capacity_reader_of(lord, (int)type).fn)
            return mli_phys_poller_start(&lord->capacity.host_phys);
    return r;
}
/* Starts at a safe point the pollers that calls have requested or could not start. */
static MLI_COLD void mli_pollers_start_missing(memlord *lord) {
    if ((lord->threads.flags & MEMLORD_FLAG_DEFER) ||
        (mli_u32_load(&lord->threads.alert) & MLI_ALERT_POLLER))
        (void)mli_pollers_start(lord);
}

/* Brings strategies in force, thresholds, alerts and pollers up to date after a change of the
   strategies or callbacks. After it no device uses a strategy that is no longer in the list. */
static void mli_bands_changed(memlord *lord) {
    uint32_t i = 0;
    mli_watched_types_set(lord);
    mli_phys_recheck(lord, NULL);
    while ((i = mli_phys_next_dev(lord, NULL, i)) != 0)
        if (mli_dev_is_watched(lord, i)) mli_check_request(lord, i); /* it starts the poller, too */
    mli_pollers_start_missing(lord);
}

/* Samples a physical device that has no running poller and whose sample is older than the interval.
   Requires: a safe point. */
static MLI_COLD void mli_phys_sample_refresh(memlord *lord, mli_phys *phys) {
    uint64_t now, at;
    uint32_t state = mli_u32_load_acquire(&phys->poller.state);
    if (state == MLI_HELPER_RUNS || state == MLI_HELPER_BUSY) return;
    if (!mli_capacity_reader_of(lord, phys->device.type).fn) return;
    now = mli_ledger_now(lord);
    mli_lock_take(&phys->lock);
    at = phys->sampled;
    mli_lock_drop(&phys->lock);
    if (!at || now - at >= (uint64_t)mli_u32_load(&lord->pollers.poll_ms) * 1000000u)
        (void)mli_phys_sample(lord, phys);
}

/* Returns the bytes ever freed at a physical device, modulo 2^64. */
static uint64_t mli_phys_freed(memlord *lord, const mli_phys *phys) {
    uint32_t i = 0;
    mli_thread *t;
    uint64_t out = 0;
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0) {
        for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) {
            const mli_cell *cell = mli_cell_at(t, MLI_BOOK_DEVICE, i);
            if (cell) out += mli_u64_load(&cell->out);
        }
    }
    return out;
}

/* -- the work at the end of a call -- */

/* Wakes each waiter for which enough bytes have been freed. */
static void mli_waiters_wake(memlord *lord) {
    mli_waiter *w;
    mli_lock_take(&lord->bands.callbacks_lock);
    for (w = lord->pollers.waiters; w; w = w->next)
        if (mli_phys_freed(lord, w->phys) - w->freed_before >= w->needed)
            mli_os_event_set(&w->event);
    mli_lock_drop(&lord->bands.callbacks_lock);
}

#define MLI_SWEEP_MIN 16u /* records; the least that makes a sweep worth it */

/* Frees the records of threads that ended without the exit hook: their first call came in the last
   round of destructors, or after it. Runs at the end of a call that took the last free record
   while there are at least twice as many records as living owners at the last sweep. That bounds
   the records by twice the living threads (or 16). It also bounds the cost: a sweep checks each
   record once, and at least half of them were made or claimed since the last sweep. */
static MLI_COLD void mli_threads_sweep(memlord *lord) {
    mli_thread *t = mli_thread_first(lord);
    uint32_t living = 0;
    mli_lock_take(&mli_process.registry_lock);
    if (mli_thread_count(lord) < lord->threads.sweep_at) t = NULL;
    if (t) lord->threads.sweep_at = MLI_SWEEP_MIN;
    for (; t; t = mli_thread_next(t)) {
        uint64_t owner = mli_u64_load(&t->owner);
        if (owner == MLI_NOBODY || (owner && mli_thread_has_ended(owner)))
            mli_thread_release(t);
        else
            living += owner != 0;
        if (2 * living > lord->threads.sweep_at) lord->threads.sweep_at = 2 * living;
    }
    mli_lock_drop(&mli_process.registry_lock);
}

/* Does what `alert` asks for on a device. Unless the ledger has MEMLORD_FLAG_DEFER, host code may
   run and threads may start. Takes back a requested check before it checks, so that a request that
   comes meanwhile is served by a later call. */
static MLI_COLD void mli_alerts_handle(memlord *lord, mli_thread *t, uint32_t dev, int asks) {
    mli_watch *w = &mli_device_record_at(lord, dev)->watch;
    uint32_t alert = mli_u32_load(&lord->threads.alert);
    int safe = !(lord->threads.flags & MEMLORD_FLAG_DEFER), requested;
    if (mli_self.in_host_alloc) return;
    if (alert & MLI_ALERT_THREADS) {
        mli_thread_allowance_grow(lord);
        mli_threads_sweep(lord);
    }
    if ((alert & MLI_ALERT_POLLER) && safe) (void)mli_pollers_start(lord);
    if (safe) mli_fences_poll_due(lord, lord->devices.dev_type[dev], asks);
    if (alert & MLI_ALERT_WAITER) mli_waiters_wake(lord);
    if ((alert & MLI_ALERT_SAVE) && safe) mli_save_serve(lord);
    requested = mli_u32_load(&w->check_requested) && mli_u32_exchange(&w->check_requested, 0);
    if (requested) {
        (void)mli_u32_add(&lord->threads.alert, 0u - (uint32_t)MLI_ALERT_BANDS);
        if (mli_dev_watch(lord, dev) && safe) (void)mli_dev_poller_start(lord, dev);
        mli_holders_check(lord, dev);
    }
    if (requested || mli_u32_load(&w->near_threshold)) mli_band_check(lord, dev, t, safe);
}

/* Ends a call that found an alert: for its device, and for the other one that the call has taken
   bytes from, if there is one. A thread without the system's barrier passes a full barrier of
   its own here: the addition, which pairs with the one in mli_barrier_threads. The later of
   the two sees what the other thread stored before its addition. After it the thread compares its
   counts with the marks of its devices again, and reads the alert again. */
static MLI_NOINLINE void mli_call_end_slow(memlord *lord, mli_thread *t, uint32_t dev, int asks) {
    uint32_t other = t == lord->threads.orphan ? 0 : t->other_dev;
    (void)mli_u32_add(&lord->threads.alert, 0);
    if (mli_u32_load(&t->special) & MLI_SPECIAL_NO_BARRIER) {
        mli_marks_again(lord, t, dev);
        if (other) mli_marks_again(lord, t, other);
    }
    if (!(mli_u32_load(&lord->threads.alert) & lord->devices.dev_alerts[dev] &
          ~(uint32_t)MLI_ALERT_EVENTS))
        return;
    mli_alerts_handle(lord, t, dev, asks);
    if (!other) return;
    t->other_dev = 0;
    if (other != dev) mli_alerts_handle(lord, t, other, 0);
}

/* -- safe points -- */

/* Retires and collects what is due on the devices of a selector. Samples physical devices that have
   no poller, takes a due snapshot and writes a requested report. Host code runs. */
static MLI_COLD void mli_serve(memlord *lord, memlord_device sel) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    mli_pollers_start_missing(lord);
    mli_recorder_poll(lord);
    mli_save_serve(lord);
    (void)mli_fences_retire(lord, sel);
    for (i = 1; i < n; i++) {
        if (!mli_selects(sel, mli_device_record_at(lord, i)->device)) continue;
        mli_phys_sample_refresh(lord, mli_phys_at(lord, i));
        if (mli_dev_watch(lord, i)) mli_band_check(lord, i, NULL, 1);
    }
}

/* Runs a poller. Under MEMLORD_FLAG_DEFER it does the work of a safe point, as calls do not; else
   calls check the bands, and the poller only samples and retires. */
static MLI_COLD void mli_poller_run(void *user) {
    mli_phys *phys = (mli_phys *)user;
    memlord *lord = phys->lord;
    uint32_t i = 0;
    mli_self.is_helper = 1;
    do {
        (void)mli_phys_sample(lord, phys);
        mli_pollers_start_missing(lord);
        while ((i = mli_phys_next_dev(lord, phys, i)) != 0) {
            memlord_device device = mli_device_record_at(lord, i)->device;
            if (lord->threads.flags & MEMLORD_FLAG_DEFER)
                mli_serve(lord, device);
            else
                (void)mli_fences_retire(lord, device);
        }
        mli_save_serve(lord);
    } while (mli_helper_wait(&phys->poller, mli_u32_load(&lord->pollers.poll_ms)));
}

/* -- public -- */

MLI_API memlord_result memlord_capacity_source_set(memlord *lord, int type,
                                                   memlord_capacity_fn fn, void *user) {
    mli_capacity_reader source = {fn, user};
    if (!lord) return MEMLORD_OK;
    if ((unsigned)type >= (unsigned)MLI_TYPE_COUNT) return MEMLORD_E_DEVICE;
    if (!fn && type == MEMLORD_DEVICE_CPU) {
        source.fn = mli_cpu_capacity;
        source.user = lord;
    }
    mli_capacity_reader_set(lord, type, source);
    mli_pollers_start_missing(lord);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_poller_start(memlord *lord, uint32_t interval_ms) {
    uint32_t i;
    if (!lord) return MEMLORD_OK;
    if (interval_ms && interval_ms < MLI_POLL_MS_MIN) return MEMLORD_E_INVALID;
    if (!lord->pollers.poll_ms_by_env)
        mli_u32_store(&lord->pollers.poll_ms, interval_ms ? interval_ms : 200);
    if (!mli_polling_enabled(lord)) return MEMLORD_E_UNSUPPORTED;
    mli_u32_store(&lord->pollers.polling, MLI_POLLING_ALL);
    for (i = 0; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++) { /* tries failed ones again */
        uint32_t failed = MLI_HELPER_FAILED;
        (void)mli_u32_cas(&mli_phys_storage(lord, i)->poller.state, &failed, MLI_HELPER_NONE);
    }
    return mli_pollers_start(lord);
}
MLI_API memlord_result memlord_poller_stop(memlord *lord) {
    if (!lord) return MEMLORD_OK;
    if (mli_self.is_helper) return MEMLORD_E_STATE;
    mli_pollers_stop(lord);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_strategy_set(memlord *lord, memlord_device sel,
                                            const memlord_band *bands, size_t n) {
    mli_strategy *fresh = NULL, *old, **at;
    size_t bad = 0;
    if (!lord) return MEMLORD_OK;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    if (memlord_strategy_check(bands, n, &bad)) {
        if (bands)
            mli_logf(lord, MEMLORD_LOG_ERROR, "[strategy] refused, band %ju%s",
                     (uint64_t)bad, mli_band_error(&bands[bad]));
        return MEMLORD_E_INVALID;
    }
    if (n < SIZE_MAX / 2 / sizeof *bands)
        fresh = (mli_strategy *)mli_own_alloc(lord, sizeof *fresh + n * sizeof *bands);
    if (!fresh) return MEMLORD_E_NOMEM;
    fresh->sel = sel;
    fresh->n = n;
    fresh->bands = (const memlord_band *)(void *)(fresh + 1);
    if (n) memcpy(fresh + 1, bands, n * sizeof *bands);
    if (n) mli_bands_warn(lord, bands, n);
    mli_lock_take(&lord->bands.callbacks_lock);
    at = mli_strategy_link(lord, sel);
    old = *at;
    fresh->next = old ? old->next : NULL;
    *at = fresh;
    mli_lock_drop(&lord->bands.callbacks_lock);
    mli_bands_changed(lord);
    mli_strategy_free(lord, old);
    return MEMLORD_OK;
}
MLI_API memlord_result memlord_strategy_unset(memlord *lord, memlord_device sel) {
    mli_strategy *old, **at;
    if (!lord) return MEMLORD_OK;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    mli_lock_take(&lord->bands.callbacks_lock);
    at = mli_strategy_link(lord, sel);
    old = *at;
    if (old) *at = old->next;
    mli_lock_drop(&lord->bands.callbacks_lock);
    if (!old) return MEMLORD_E_UNKNOWN;
    mli_bands_changed(lord);
    mli_strategy_free(lord, old);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_gc_callback_add(memlord *lord, memlord_device sel,
                                               uint32_t reasons, memlord_gc_fn fn, void *user) {
    const uint32_t every = (1u << MEMLORD_REASON_COUNT) - 1;
    mli_gc_entry *c, **at;
    if (!lord) return MEMLORD_OK;
    if (!fn || (reasons & ~(every | MEMLORD_GC_QUIET))) return MEMLORD_E_INVALID;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    c = (mli_gc_entry *)mli_own_alloc(lord, sizeof *c);
    if (!c) return MEMLORD_E_NOMEM;
    c->fn = fn;
    c->user = user;
    c->sel = sel;
    c->reasons = reasons & every ? reasons : reasons | every;
    c->serial = (uint64_t)((sel.index < 0) + (sel.type < 0)) << 62;
    mli_lock_take(&lord->bands.callbacks_lock);
    c->serial += mli_u64_add(&lord->fences.serial, 1) + 1;
    for (at = &lord->bands.gc_entries; *at && (*at)->serial < c->serial;) at = &(*at)->next;
    c->next = *at;
    *at = c;
    mli_lock_drop(&lord->bands.callbacks_lock);
    mli_bands_changed(lord);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_gc_callback_remove(memlord *lord, memlord_device sel,
                                                  memlord_gc_fn fn, void *user) {
    mli_gc_entry *c, **at;
    unsigned spins = 0;
    if (!lord) return MEMLORD_OK;
    if (!fn) return MEMLORD_E_INVALID;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    mli_lock_take(&lord->bands.callbacks_lock);
    for (at = &lord->bands.gc_entries; *at; at = &(*at)->next)
        if (mli_device_word((*at)->sel) == mli_device_word(sel) && (*at)->fn == fn &&
            (*at)->user == user)
            break;
    c = *at;
    if (c) *at = c->next; /* a run on this thread goes on with a copy */
    while (c && mli_gc_runs_elsewhere(lord, c->serial)) {
        mli_lock_drop(&lord->bands.callbacks_lock);
        mli_spin_wait(&spins);
        mli_lock_take(&lord->bands.callbacks_lock);
    }
    mli_lock_drop(&lord->bands.callbacks_lock);
    if (!c) return MEMLORD_E_UNKNOWN;
    mli_own_free(lord, c, sizeof *c);
    mli_bands_changed(lord);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_gc_run(memlord *lord, memlord_device device, int reason,
                                      uint64_t *reclaimed) {
    uint64_t ignored;
    uint32_t dev;
    memlord_result r;
    if (reclaimed) *reclaimed = 0;
    if (!lord) return MEMLORD_OK;
    if ((unsigned)reason >= MEMLORD_REASON_COUNT) return MEMLORD_E_INVALID;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    if (mli_device_valid(device) && !mli_gc_registered(lord, device, reason))
        return MEMLORD_E_UNKNOWN; /* before mli_dev, which would make the device known */
    r = mli_dev(lord, device, &dev);
    return r ? r : mli_collect(lord, dev, reason, 0, reclaimed ? reclaimed : &ignored);
}

MLI_API memlord_result memlord_gc_poll(memlord *lord, memlord_device sel) {
    if (!lord) return MEMLORD_OK;
    if (!mli_selector_valid(sel)) return MEMLORD_E_DEVICE;
    if (!mli_self.in_host_alloc) mli_serve(lord, sel);
    return MEMLORD_OK;
}

/* ---------------------------------------------------------------------- >>record --
   Runs the calls that record something, from their arguments to their end. Owns no state. Uses the
   map, the counters, the sites, the events, the fences, the limits and the bands. A public
   function does nothing on a NULL ledger; the others require one. Invariants: a call checks
   everything before it changes anything; it counts before it leaves the shard, except that the
   general path and mli_free_finish count a free at its own site afterwards; mli_call_end, which may
   run host code, comes last, with nothing held.
   Locks: none of its own.

   An alloc or a free takes one of two paths; the blocks and the totals are the same after both.

   Fast path (mli_alloc_fast, mli_free_fast): one block in a shard that this thread owns, or that is
   shared.
     1. Check that this thread used this ledger last, so that its record is at hand, that the key is
        an address, and that a new block is below 4 GiB. Read `special`, the thread's mask. The bits
        of MLI_SPECIAL_ROWS add to the block what the thread has cached: the rows of a site and a
        tag, the birth bits of a scope. Any other bit sends the call to the general path.
     2. Enter the shard of the key, and look in its home bucket: an alloc for a vacant slot, a free
        for the key. If that does not decide, continue in mli_alloc_window or mli_free_window, which
        probe further. Entering fails for a shard that another thread owns, which the general path
        makes shared, and for a new one, of which the general path makes this thread the owner.
     3. Insert or erase the entry. Add the bytes to up to three cells of this thread, of the device,
        the site and the tag. In an owned shard this needs no lock and no locked instruction: only
        the owner writes to it, and only this thread counts in its cells. A second thread that
        needs the shard sets its state to STOPPED, waits until the owner is outside, and then sets
        it to SHARED for good. In a shared shard entering locks the home bucket, and the store of
        its header unlocks it.
     4. If a level is a new high of its cell or below its base (it may be due to be published; a
        thread that only grows comes here with every alloc), or if `alert` has a bit for the device,
        continue in mli_alloc_finish or mli_free_finish. `alert` is the ledger's mask of what the
        end of a call has to do: events, fences (of the device's type), bands (of any device),
        waiters, threads, pollers, a report.
     5. Leave the shard.
   A call that fails in step 1 or 2 has changed nothing: it starts again on the general path. The
   code of these steps is compiled twice. `bare` calls have special = 0 and a shard that this thread
   owns; those that do not start again in mli_alloc_full or mli_free_full, which serve all the rest.

   General path (mli_alloc_general, mli_free_general): every block, every shard, every thread.
     1. Check the arguments. An alloc makes its device known.
     2. Get a thread record (mli_thread_get): the thread's own, or the orphan record, locked. A call
        from within the ledger's own allocator call gets none: it returns and records nothing.
     3. An alloc draws its bytes off the ticket it names, or off the thread's, and looks up or makes
        the rows and cells of its site and tag.
     4. Insert the entry or erase it, and count, with the functions of >>blocks:
          mli_block_open > mli_entry_put > mli_probe_find > mli_probe_put > mli_count
          mli_block_close > mli_probe_live > mli_probe_end_block > mli_count_close > mli_count
        A release of a block with more references only takes one off. A block with fences becomes
        pending.
     5. Record the event, put the thread record back, write the line of MEMLORD_DEBUG.
     6. mli_call_end does what `alert` asks for. */

#define MLI_FAST_SIZE_BITS 32 /* a block of 2^32 bytes or more takes the general path */

/* -- storages -- */

/* A call on the general path. */
typedef struct mli_call {
    mli_thread *t;        /* the record it counts on */
    uint32_t dev;         /* the device of the block it records */
    mli_ticket_draw draw; /* its bytes that may come off tickets */
} mli_call;

/* Begins a call that records a block: checks its arguments, makes its device known, and gets the
   thread record. call->t NULL: the caller returns the result; OK from within the ledger's own
   allocator call, which passes through. */
static MLI_HOT memlord_result mli_call_begin(memlord *lord, memlord_device device, uint64_t storage,
                                             uint64_t bytes, mli_call *call) {
    memlord_result r;
    call->t = NULL;
    call->draw = mli_draw_none;
    if (MLI_UNLIKELY(mli_self.in_host_alloc)) return MEMLORD_OK;
    if (MLI_UNLIKELY(!mli_key_valid(storage) || bytes > MLI_BYTES_MAX))
        return MEMLORD_E_INVALID;
    r = mli_dev(lord, device, &call->dev);
    if (r == MEMLORD_OK) call->t = mli_thread_get(lord);
    return r;
}
/* Sets the bytes that the call is about to record in flight, if it or its thread has tickets. */
static MLI_HOT void mli_call_draw(memlord *lord, mli_call *call, uint64_t bytes) {
    if (call->draw.named || (mli_u32_load(&call->t->special) & MLI_SPECIAL_TICKET))
        mli_ticket_draw_begin(lord, call->t, call->dev, bytes, &call->draw);
}
/* Ends a call and returns r. `did`: the block was recorded. Puts the thread record back first, so
   that nothing is held while the logger and the end of the call run host code. */
static MLI_HOT memlord_result mli_call_finish(memlord *lord, mli_call *call, memlord_result r,
                                              int did, const char *verb, const memlord_block *block,
                                              const memlord_site *site) {
    mli_thread_put(lord, call->t);
    if (call->draw.phys) mli_ticket_draw_end(lord, call->t, &call->draw, did);
    if (mli_debug_on(lord))
        mli_log_call(lord, did, verb, block->device, block->storage, block->bytes, site);
    if (call->dev) mli_call_end(lord, call->t, call->dev, 1);
    return r;
}

/* -- the general path: any alloc and any free; the fast path falls back to it -- */

/* Records a block in any shard, for any thread; `how` is MLI_PUT_ALLOC or MLI_PUT_TRACK. Its bytes
   come off a ticket, or with 0 off those of its thread. Without memory it counts as dropped. */
static memlord_result mli_alloc_off_ticket(memlord *lord, memlord_ticket ticket,
                                           memlord_device device, uint64_t storage, uint64_t bytes,
                                           const memlord_site *site, int how) {
    mli_call call;
    memlord_block block;
    uint64_t rows;
    int did;
    memlord_result r = mli_call_begin(lord, device, storage, bytes, &call);
    if (!call.t) return mli_drop_count(lord, r, device, bytes);
    call.draw.named = ticket;
    mli_call_draw(lord, &call, bytes);
    rows = mli_alloc_word2(lord, call.t, call.dev, site);
    r = mli_block_open(lord, call.t, call.dev, storage, bytes, rows, how, &did);
    (void)mli_drop_count(lord, r, device, bytes);
    if (did == MLI_DID_OPEN)
        mli_event_record(lord, call.t, MEMLORD_EVENT_ALLOC, call.dev, storage, bytes, rows);
    block.device = device;
    block.storage = storage;
    block.bytes = bytes;
    return mli_call_finish(lord, &call, r, did == MLI_DID_OPEN, "[alloc] ", &block, site);
}
static MLI_NOINLINE memlord_result mli_alloc_general(memlord *lord, memlord_device device,
                                                     uint64_t storage, uint64_t bytes,
                                                     const memlord_site *site, int how) {
    return mli_alloc_off_ticket(lord, 0, device, storage, bytes, site, how);
}

/* Frees or releases a block in any shard, for any thread; `how` is MLI_END_FREE or
   MLI_END_RELEASE. Storage 0 does nothing. *gone is the entry that ended, with key 0 if none did.
   With `gone` NULL this function writes the line of MEMLORD_DEBUG, else its caller does. */
static MLI_NOINLINE memlord_result mli_free_general(memlord *lord, memlord_device device,
                                                    uint64_t storage, int how,
                                                    const memlord_site *site, mli_entry *gone) {
    mli_thread *t;
    mli_entry e;
    mli_fence_record *chain = NULL;
    const int logs = !gone && mli_debug_on(lord);
    memlord_result r;
    if (!gone) gone = &e;
    gone->key = gone->word1 = 0; /* mli_block_close may not be called */
    if (!storage) return MEMLORD_OK;
    r = mli_key_begin(lord, device, storage, &t);
    if (!t) return r;
    r = mli_block_close(lord, t, device, storage, how, gone, &chain);
    if (gone->key) {
        const mli_row_delta rows = mli_delta_close(MLI_DEV(gone->word1), gone->word2, 0);
        mli_cells_make(lord, t, &rows, 1); /* so that the thread's next such free is fast */
        mli_count_site_free(lord, t, MLI_DEV(gone->word1), site, MLI_BYTES(gone->word1));
        mli_event_record_end(lord, t, chain ? MEMLORD_EVENT_PEND : MEMLORD_EVENT_FREE, storage,
                             gone->word1, gone->word2, site);
    }
    mli_thread_put(lord, t);
    if (logs)
        mli_log_call(lord, gone->key != 0, chain ? "[free deferred] " : "[free] ", device, storage,
                     MLI_BYTES(gone->word1), site);
    if (chain) mli_fences_ask_new(lord, chain);
    if (gone->key) mli_call_end(lord, t, MLI_DEV(gone->word1), 1);
    return r;
}

/* The general path as the public functions take it: counts and logs a refusal. */
static MLI_NOINLINE memlord_result mli_alloc_slow(memlord *lord, memlord_device device,
                                                  uint64_t storage, uint64_t bytes,
                                                  const memlord_site *site) {
    memlord_result r = mli_alloc_general(lord, device, storage, bytes, site, MLI_PUT_ALLOC);
    return r ? mli_refuse(lord, MLI_REFUSER_alloc, r, device, mli_block_fault(storage, bytes)) : r;
}
static MLI_NOINLINE memlord_result mli_free_slow(memlord *lord, memlord_device device,
                                                 uint64_t storage, int how,
                                                 const memlord_site *site) {
    memlord_result r = mli_free_general(lord, device, storage, how, site, NULL);
    return r ? mli_refuse(lord, how == MLI_END_FREE ? MLI_REFUSER_free : MLI_REFUSER_release, r,
                          device, mli_block_fault(storage, 0))
             : r;
}

/* -- the fast path: one block in a shard that the thread owns or that is shared --
   A call does no more than the code below if every bit of `special` is a row bit whose row is
   cached, the probe finds its slot, no count is negative and `alert` has nothing for its device. */

/* The rows of a block, and the cells of this thread for them. */
typedef struct mli_block_rows {
    uint64_t word2;
    mli_cell *device, *site, *tag; /* site, tag: NULL for none */
    uint32_t dev;                  /* the number of the device */
} mli_block_rows;

/* Finds the rows and the birth of a new block that the bits in `special` ask for, and the cells of
   this thread, from its cache. 0: the thread lacks one. */
static MLI_HOT int mli_rows_cached(const memlord *lord, const mli_thread *t, uint32_t special,
                                   memlord_device device, const memlord_site *site,
                                   mli_block_rows *rows) {
    const uint32_t dev =
        mli_u32_load_acquire(&lord->devices.dev_of[mli_device_direct_index(device)]);
    const mli_cache_entry *memo;
    rows->dev = dev;
    rows->word2 = mli_u64_load(&lord->sites.birth_mark);
    rows->device = mli_cell_own_device(t, dev);
    if (MLI_UNLIKELY(!rows->device)) return 0;
    if (special & MLI_SPECIAL_SCOPE) {
        if (MLI_UNLIKELY(!t->birth_bits || t->birth_mark != rows->word2)) return 0;
        rows->word2 = t->birth_bits;
    }
    if (special & MLI_SPECIAL_TAG) {
        memo = mli_cache_find(t, t->tag, mli_cache_salt(MLI_CACHE_TAG, dev));
        if (MLI_UNLIKELY(!memo)) return 0;
        rows->tag = (mli_cell *)memo->value;
        rows->word2 |= memo->bits;
    }
    if (site && (special & MLI_SPECIAL_SITES)) {
        memo = mli_cache_find(t, site, mli_cache_salt(MLI_CACHE_SITE, dev));
        if (MLI_UNLIKELY(!memo)) return 0;
        rows->site = (mli_cell *)memo->value;
        rows->word2 |= memo->bits;
    }
    return 1;
}

/* Publishes the cells of a block that hold back too much. Requires: inside. */
static MLI_COLD void mli_rows_publish_due(memlord *lord, const mli_thread *t,
                                          uint32_t dev, uint64_t word2) {
    const uint32_t site = MLI_SITE_ROW(word2), tag = MLI_TAG_ROW(word2);
    mli_cell_publish_due(lord, MLI_BOOK_DEVICE, dev, mli_cell_own_device(t, dev));
    mli_cell_publish_due(lord, MLI_BOOK_SITE, site, mli_cell_own_row(t, MLI_BOOK_SITE, site));
    mli_cell_publish_due(lord, MLI_BOOK_TAG, tag, mli_cell_own_row(t, MLI_BOOK_TAG, tag));
}

/* Ends an alloc of the fast path that has inserted and counted its block and has more to do: a
   cell to publish, a table to grow, an event, an alert. Requires: inside. Leaves. */
static MLI_NOINLINE memlord_result mli_alloc_finish(memlord *lord, uint32_t dev, uint64_t storage,
                                                    uint64_t bytes, uint64_t word2) {
    mli_thread *t = mli_self.thread;
    mli_shard *s = mli_shard_of(lord, storage, 1);
    const int crowded = mli_shard_crowded(lord, s);
    const uint32_t size = s->size;
    mli_rows_publish_due(lord, t, dev, word2);
    mli_shard_leave(t);
    if (crowded) (void)mli_shard_grow(lord, t, s, size); /* no memory: the table keeps its size */
    mli_event_record(lord, t, MEMLORD_EVENT_ALLOC, dev, storage, bytes, word2);
    mli_call_end(lord, t, dev, 1);
    return MEMLORD_OK;
}
/* Ends a free of the fast path that has erased and counted its block and has more to do: a cell to
   publish, the count at the site of the free, an event, an alert. Requires: inside. Leaves. */
static MLI_NOINLINE memlord_result mli_free_finish(memlord *lord, uint32_t dev, uint64_t storage,
                                                   const memlord_site *site, uint64_t bytes,
                                                   uint64_t word2) {
    mli_thread *t = mli_self.thread;
    mli_rows_publish_due(lord, t, dev, word2);
    mli_shard_leave(t);
    mli_count_site_free(lord, t, dev, site, bytes);
    mli_event_record_end(lord, t, MEMLORD_EVENT_FREE, storage, mli_word1_of(bytes, dev, 1), word2,
                         site);
    mli_call_end(lord, t, dev, 1);
    return MEMLORD_OK;
}

/* 1: the key is an address: no handle, not 0 or another refused key, and none of the topmost keys,
   where the addition wraps around. */
static MLI_HOT int mli_key_is_address(uint64_t key) {
    return (key + ((uint64_t)1 << MLI_HANDLE_BITS)) >> MLI_HANDLE_BITS > 1;
}

/* 1: `alert` has something for the end of a call on this device, an event included. */
static MLI_HOT int mli_alerted(const memlord *lord, uint32_t dev) {
    const uint32_t alert = mli_u32_load(&lord->threads.alert);
    return alert && (alert & lord->devices.dev_alerts[dev]);
}

/* Counts an inserted block in the thread's cells, and leaves. `past` collects the signs of the
   counts: negative if a level is a new high of its cell, or if the shard should grow. */
static MLI_HOT memlord_result mli_alloc_count(memlord *lord, mli_thread *t, uint64_t storage,
                                              uint64_t bytes, const mli_block_rows *rows,
                                              int64_t past) {
    past |= mli_cell_count_alloc(rows->device, bytes);
    if (rows->site) past |= mli_cell_count_alloc(rows->site, bytes);
    if (rows->tag) past |= mli_cell_count_alloc(rows->tag, bytes);
    if (MLI_UNLIKELY(past < 0 || mli_alerted(lord, rows->dev)))
        return mli_alloc_finish(lord, rows->dev, storage, bytes, rows->word2);
    mli_shard_leave(t);
    return MEMLORD_OK;
}
/* Goes on with an alloc of the fast path whose home bucket does not decide: probes the buckets
   after it, or falls back to the general path before it changes anything. Requires: inside; a
   shared shard's home is locked. Leaves. */
static MLI_NOINLINE memlord_result mli_alloc_window(memlord *lord, memlord_device device,
                                                    uint64_t storage, uint64_t bytes,
                                                    const memlord_site *site) {
    mli_thread *t = mli_self.thread;
    mli_block_rows rows = {0, NULL, NULL, NULL, 0};
    mli_probe probe;
    mli_home_probe(lord, storage, &probe);
    if (mli_probe_scan(lord, &probe, (uint32_t)device.type, 1) || probe.entry || !probe.room ||
        !mli_rows_cached(lord, t, mli_u32_load(&t->special), device, site, &rows)) {
        mli_probe_leave(t, &probe);
        return mli_alloc_slow(lord, device, storage, bytes, site);
    }
    mli_probe_insert(&probe, mli_word1_of(bytes, rows.dev, 1), rows.word2);
    return mli_alloc_count(lord, t, storage, bytes, &rows,
                           mli_shard_crowded(lord, probe.shard) ? -1 : 0);
}

static MLI_NOINLINE memlord_result mli_alloc_full(memlord *lord, memlord_device device,
                                                  uint64_t storage, uint64_t bytes,
                                                  const memlord_site *site);
/* Records a block on the fast path, or falls back before it changes anything: to the general path,
   or with `bare` = 1 to mli_alloc_full, the same with 0. `bare` serves only calls with no special
   bit, in a shard of this thread: the compiler leaves out the rest, and saves few registers. */
static MLI_HOT memlord_result mli_alloc_fast(memlord *lord, memlord_device device, uint64_t storage,
                                             uint64_t bytes, const memlord_site *site, int bare) {
    mli_thread *t = mli_self.thread;
    mli_block_rows rows = {0, NULL, NULL, NULL, 0};
    mli_home home;
    mli_entry *e;
    uint64_t with;
    uint32_t special;
    if (bare && MLI_UNLIKELY(mli_self.generation != lord->threads.generation ||
                             !mli_key_is_address(storage) || bytes >> MLI_FAST_SIZE_BITS))
        return mli_alloc_slow(lord, device, storage, bytes, site);
    special = mli_u32_load(&t->special);
    if (bare && MLI_UNLIKELY(special)) return mli_alloc_full(lord, device, storage, bytes, site);
    if (MLI_UNLIKELY((special & ~(uint32_t)MLI_SPECIAL_ROWS) ||
                     !mli_home_enter(t, mli_shard_of(lord, storage, 1), storage, bare, &home)))
        return bare ? mli_alloc_full(lord, device, storage, bytes, site)
                    : mli_alloc_slow(lord, device, storage, bytes, site);
    e = mli_home_room(home, &with);
    if (MLI_UNLIKELY(!e)) return mli_alloc_window(lord, device, storage, bytes, site);
    if (MLI_UNLIKELY(!mli_rows_cached(lord, t, special, device, site, &rows))) {
        mli_home_leave(t, home.bucket);
        return mli_alloc_slow(lord, device, storage, bytes, site);
    }
    e->key = storage;
    e->word1 = mli_word1_of(bytes, rows.dev, 1);
    e->word2 = rows.word2;
    mli_u64_store_release(&home.bucket->header, with); /* inserts it, and unlocks */
    return mli_alloc_count(lord, t, storage, bytes, &rows, 0);
}
static MLI_NOINLINE memlord_result mli_alloc_full(memlord *lord, memlord_device device,
                                                  uint64_t storage, uint64_t bytes,
                                                  const memlord_site *site) {
    return mli_alloc_fast(lord, device, storage, bytes, site, 0);
}

/* Finds the cells of a block for this thread. 0: the block has more references or a side record,
   its device is of another type, or the thread lacks a cell. It begins with the device that the
   caller names, which is most often the block's, and then compares the two: so the processor
   predicts that branch and counts before the entry has come from memory (with 100,000 blocks that
   saves a fifth of a call). The return in the branch keeps compilers from a conditional move, which
   would wait for the entry. */
static MLI_HOT int mli_entry_cells(const memlord *lord, const mli_thread *t, memlord_device device,
                                   const mli_entry *e, int bare, mli_block_rows *rows) {
    uint32_t dev = mli_u32_load_acquire(&lord->devices.dev_of[mli_device_direct_index(device)]);
    uint32_t row;
    if (MLI_UNLIKELY(e->word1 >> 49 != dev + 256u)) { /* 256: one reference */
        dev = (uint32_t)(e->word1 >> 49) - 256u;
        if (dev > 255 || lord->devices.dev_type[dev] != (uint16_t)device.type) return 0;
    }
    if (MLI_UNLIKELY(e->word2 & (bare ? MLI_ROWS_MASK : 1))) return 0;
    rows->word2 = e->word2;
    rows->dev = dev;
    rows->device = mli_cell_own_device(t, dev);
    if (MLI_UNLIKELY(!rows->device)) return 0;
    if (bare) return 1;
    row = MLI_SITE_ROW(e->word2);
    if (row && !(rows->site = mli_cell_own_row(t, MLI_BOOK_SITE, row))) return 0;
    row = MLI_TAG_ROW(e->word2);
    return !row || (rows->tag = mli_cell_own_row(t, MLI_BOOK_TAG, row)) != NULL;
}

/* Counts an erased block in the thread's cells, and leaves. `past`: negative if a level fell below
   its cell's base, or if the freed bytes call for a band check. */
static MLI_HOT memlord_result mli_free_count(memlord *lord, mli_thread *t, uint64_t storage,
                                             uint64_t bytes, const mli_block_rows *rows,
                                             const memlord_site *site, uint32_t special) {
    int64_t past = mli_cell_count_free(rows->device, bytes);
    const mli_cache_entry *here = NULL;
    mli_u64_add_own(&rows->device->frees, 1);
    past |= mli_cell_tripped(rows->device);
    if (rows->site) past |= mli_cell_count_free(rows->site, bytes);
    if (rows->tag) {
        past |= mli_cell_count_free(rows->tag, bytes);
        mli_u64_add_own(&rows->tag->frees, 1);
    }
    if (site && (special & MLI_SPECIAL_SITES)) {
        here = mli_cache_find(t, site, mli_cache_salt(MLI_CACHE_SITE, rows->dev));
        if (MLI_UNLIKELY(!here)) past = -1;
    }
    if (MLI_UNLIKELY(past < 0 || mli_alerted(lord, rows->dev)))
        return mli_free_finish(lord, rows->dev, storage, site, bytes, rows->word2);
    if (here) {
        mli_u64_add_own(&((mli_cell *)here->value)->frees, 1);
        mli_u64_add_own(&((mli_cell *)here->value)->freed_here, bytes);
    }
    mli_shard_leave(t);
    return MEMLORD_OK;
}
/* Goes on with a free of the fast path whose home bucket does not decide, as mli_alloc_window does.
   Requires: inside; a shared shard's home is locked. Leaves. */
static MLI_NOINLINE memlord_result mli_free_window(memlord *lord, memlord_device device,
                                                   uint64_t storage, int how,
                                                   const memlord_site *site) {
    mli_thread *t = mli_self.thread;
    mli_block_rows rows = {0, NULL, NULL, NULL, 0};
    uint64_t bytes;
    mli_probe probe;
    mli_home_probe(lord, storage, &probe);
    if (mli_probe_scan(lord, &probe, (uint32_t)device.type, 0) || !probe.entry ||
        !mli_entry_cells(lord, t, device, probe.entry, 0, &rows)) {
        mli_probe_leave(t, &probe);
        return mli_free_slow(lord, device, storage, how, site);
    }
    bytes = MLI_BYTES(probe.entry->word1);
    mli_probe_erase(&probe);
    return mli_free_count(lord, t, storage, bytes, &rows, site, mli_u32_load(&t->special));
}

static MLI_NOINLINE memlord_result mli_free_full(memlord *lord, memlord_device device,
                                                 uint64_t storage, int how,
                                                 const memlord_site *site);
/* Frees or releases a block on the fast path, or falls back as mli_alloc_fast does. Both are the
   same for a block with one reference, the only kind served here; `bare` = 1 serves none with rows.
   A handle needs no test: the probe treats it as an address, does not find it and falls back. */
static MLI_HOT memlord_result mli_free_fast(memlord *lord, memlord_device device, uint64_t storage,
                                            int how, const memlord_site *site, int bare) {
    mli_thread *t = mli_self.thread;
    mli_block_rows rows = {0, NULL, NULL, NULL, 0};
    mli_home home;
    const mli_entry *e;
    uint64_t bytes, without;
    uint32_t special;
    if (bare && MLI_UNLIKELY(mli_self.generation != lord->threads.generation || !storage))
        return mli_free_slow(lord, device, storage, how, site);
    special = mli_u32_load(&t->special);
    if (bare && MLI_UNLIKELY(special)) return mli_free_full(lord, device, storage, how, site);
    if (MLI_UNLIKELY((special & ~(uint32_t)MLI_SPECIAL_ROWS) ||
                     !mli_home_enter(t, mli_shard_of(lord, storage, 1), storage, bare, &home)))
        return bare ? mli_free_full(lord, device, storage, how, site)
                    : mli_free_slow(lord, device, storage, how, site);
    e = mli_home_find(home, storage, &without);
    if (MLI_UNLIKELY(!e)) return mli_free_window(lord, device, storage, how, site);
    if (MLI_UNLIKELY(!mli_entry_cells(lord, t, device, e, bare, &rows))) {
        mli_home_leave(t, home.bucket);
        return bare ? mli_free_full(lord, device, storage, how, site)
                    : mli_free_slow(lord, device, storage, how, site);
    }
    bytes = MLI_BYTES(e->word1);
    mli_u64_store_release(&home.bucket->header, without); /* erases it, and unlocks */
    return mli_free_count(lord, t, storage, bytes, &rows, site, special);
}
static MLI_NOINLINE memlord_result mli_free_full(memlord *lord, memlord_device device,
                                                 uint64_t storage, int how,
                                                 const memlord_site *site) {
    return mli_free_fast(lord, device, storage, how, site, 0);
}

/* -- realloc: begin takes the block off the map, its bytes still counted; end puts it back -- */

enum { /* memlord_realloc_token.state */
    MLI_TOKEN_USED,   /* also a token of zeros: to end it is an error */
    MLI_TOKEN_NEW,    /* there was no old storage, or no live one */
    MLI_TOKEN_LIVE,   /* the token holds the entry of the block */
    MLI_TOKEN_PASSED, /* begun within the ledger's own allocator call */
    MLI_TOKEN_FREED   /* free_begin freed the block, as it had recorded uses */
};

/* Begins a realloc or a free: detaches the block and keeps its entry in the token. word[0] is
   word1, word[1] is word2, word[2] the generation of the ledger. `verb`: of the line of
   MEMLORD_DEBUG; NULL: the end logs both storages. */
static MLI_COLD memlord_result mli_token_begin(memlord *lord, memlord_device device,
                                               uint64_t storage, memlord_realloc_token *token,
                                               const char *verb, const memlord_site *site) {
    mli_thread *t;
    mli_entry e;
    memlord_result r;
    if (!token) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(token, 0, sizeof *token);
    r = mli_key_begin(lord, device, storage ? storage : 1, &t);
    if (!lord || r) return r;
    token->device = device;
    token->storage = storage;
    token->state = t ? MLI_TOKEN_NEW : MLI_TOKEN_PASSED;
    token->word[2] = lord->threads.generation;
    if (!t) return MEMLORD_OK;
    if (storage && mli_entry_detach(lord, t, (uint32_t)device.type, storage, &e) == MEMLORD_OK) {
        token->state = MLI_TOKEN_LIVE;
        token->word[0] = e.word1;
        token->word[1] = e.word2;
        mli_event_record_end(lord, t, MEMLORD_EVENT_FREE, storage, e.word1,
                             mli_word2_rows(e.word2), site);
    } else if (storage) {
        r = mli_unknown_free(lord, device);
    }
    mli_thread_put(lord, t);
    if (verb && mli_debug_on(lord))
        mli_log_call(lord, token->state == MLI_TOKEN_LIVE, verb, device, storage,
                     MLI_BYTES(token->word[0]), site);
    return r;
}

/* Records the new storage on the device of the old one. Storage 0 means that the real call failed:
   records the old storage again, unchanged. */
static MLI_COLD memlord_result mli_realloc_record(memlord *lord, memlord_realloc_token *token,
                                                  uint64_t storage, uint64_t bytes,
                                                  const memlord_site *site) {
    mli_call call;
    mli_entry e;
    memlord_block block;
    uint64_t rows = 0, had = MLI_BYTES(token->word[0]);
    memlord_result r;
    call.t = mli_thread_get(lord);
    if (!call.t) return MEMLORD_OK;
    call.draw = mli_draw_none;
    e.key = token->storage;
    e.word1 = token->word[0];
    e.word2 = token->word[1];
    call.dev = MLI_DEV(e.word1);
    block.device = token->device;
    block.storage = storage ? storage : e.key;
    block.bytes = storage ? bytes : had;
    if (storage && mli_would_overflow(lord, call.dev, bytes)) {
        token->state = MLI_TOKEN_LIVE;
        r = MEMLORD_E_INVALID;
    } else {
        if (block.bytes > had) mli_call_draw(lord, &call, block.bytes - had);
        r = mli_entry_attach(lord, call.t, &e, block.storage, call.dev, block.bytes,
                             storage ? site : NULL, 0, &rows);
    }
    if (r == MEMLORD_OK) {
        mli_event_record(lord, call.t, MEMLORD_EVENT_ALLOC, call.dev, block.storage,
                         block.bytes, rows);
        if (storage) mli_stat_add(lord, call.dev, MLI_STAT_reallocs, 1);
    }
    mli_debug_note_from(lord, token->device, token->storage);
    return mli_call_finish(lord, &call, r, r == MEMLORD_OK, "[alloc realloc] ", &block, site);
}

/* -- n blocks in one call -- */

/* Checks the arguments of one block, or of n; `opens`: the call records it. */
static memlord_result mli_block_check(const memlord_block *b, int opens) {
    if (b->storage == UINT64_MAX || (opens && (!b->storage || b->bytes > MLI_BYTES_MAX)))
        return MEMLORD_E_INVALID;
    return (opens ? mli_device_valid(b->device) : mli_type_valid(b->device)) ? MEMLORD_OK
                                                                             : MEMLORD_E_DEVICE;
}
static MLI_COLD memlord_result mli_block_check_n(const memlord_block *blocks, size_t n,
                                                 int opens) {
    memlord_result r = n && !blocks ? MEMLORD_E_INVALID : MEMLORD_OK;
    for (; n-- && r == MEMLORD_OK; blocks++) r = mli_block_check(blocks, opens);
    return r;
}

/* Counts and logs the refusal of n blocks, for the first that is at fault. */
static MLI_COLD memlord_result mli_refuse_n(memlord *lord, int refuser, memlord_result r,
                                            const memlord_block *blocks, size_t n, int opens) {
    size_t i = 0;
    if (r != MEMLORD_E_INVALID && r != MEMLORD_E_DEVICE) return r;
    if (!blocks)
        return mli_refuse(lord, refuser, r, memlord_device_all(), "n blocks, and none are given");
    while (i < n && !mli_block_check(&blocks[i], opens) &&
           (r == MEMLORD_E_INVALID || mli_dev_known(lord, blocks[i].device)))
        i++;
    if (i == n) return mli_refuse(lord, refuser, r, blocks->device, "sizes whose sum overflows");
    return mli_refuse(lord, refuser, r, blocks[i].device,
                      mli_block_fault(blocks[i].storage, opens ? blocks[i].bytes : 0));
}

/* The memory held for one of n blocks before any of them is recorded: a placeholder of 0 bytes
   under its key (MLI_DID_OPEN); its reference (MLI_DID_VIEW), as a track of a live key records no
   more; or none, as the block that has its key is replaced. */
typedef struct mli_hold {
    uint64_t rows; /* its word2 */
    int did;
} mli_hold;

/* Takes all the memory that recording n blocks needs, and makes their devices known. *held: the
   blocks that hold some. */
static MLI_COLD memlord_result mli_hold_n(memlord *lord, mli_thread *t,
                                          const memlord_block *blocks, size_t n, int how,
                                          const memlord_site *site, mli_hold *hold, size_t *held) {
    uint64_t sum = 0;
    uint32_t dev;
    size_t i;
    *held = 0;
    for (i = 0; i < n; i++) {
        memlord_result r = mli_dev(lord, blocks[i].device, &dev);
        if (r) return r;
        sum += blocks[i].bytes;
        if (mli_would_overflow(lord, dev, sum)) return MEMLORD_E_INVALID;
    }
    for (; *held < n; ++*held, hold++, blocks++) {
        memlord_result r;
        (void)mli_dev(lord, blocks->device, &dev);
        hold->rows = mli_alloc_word2(lord, t, dev, site);
        r = mli_block_open(lord, t, dev, blocks->storage, 0, hold->rows, how | MLI_PUT_HOLD,
                           &hold->did);
        if (r) return r;
    }
    return MEMLORD_OK;
}

/* Gives back what n blocks hold, the last first. Requires: not inside, orphan lock not held. A
   reference may be the last one by now, and then its end runs the host's fences. */
static MLI_COLD void mli_unhold_n(memlord *lord, const memlord_block *blocks,
                                  const mli_hold *hold, size_t n) {
    while (n--) {
        const memlord_block *b = &blocks[n];
        if (hold[n].did == MLI_DID_VIEW)
            (void)mli_free_general(lord, b->device, b->storage, MLI_END_RELEASE, NULL, NULL);
        if (hold[n].did == MLI_DID_OPEN) {
            mli_thread *t = mli_thread_get(lord);
            mli_block_unopen(lord, t, mli_dev_known(lord, b->device), b->storage, 0);
            mli_thread_put(lord, t);
        }
    }
}

/* Gives a placeholder its bytes. 0: another thread has ended or replaced it meanwhile. */
static MLI_COLD int mli_fill(memlord *lord, mli_thread *t, uint32_t dev,
                             uint64_t key, uint64_t bytes) {
    mli_row_delta d;
    mli_probe probe;
    mli_entry *e = mli_probe_live(lord, t, lord->devices.dev_type[dev], key, &probe);
    int held = e && MLI_DEV(e->word1) == dev && !MLI_BYTES(e->word1);
    if (held) {
        d = mli_delta_open(dev, mli_word2_rows(e->word2), bytes);
        d.allocs = 0; /* the placeholder counted it */
        e->word1 |= bytes;
        if (e->word2 & 1)
            mli_side_charge(lord, mli_side_record_of(e->word2),
                            mli_side_record_of(e->word2)->account, bytes);
        mli_probe_unlock(&probe);
        mli_count(lord, t, &d, 1);
    }
    mli_probe_leave(t, &probe);
    return held;
}

/* Records one of n blocks. It needs memory only for a block that replaces another: if it is charged
   to an account, or if another thread has ended that one since mli_hold_n. Without that memory it
   counts as dropped. */
static MLI_COLD void mli_open_one(memlord *lord, mli_thread *t, const memlord_block *b, int how,
                                  const mli_hold *hold, mli_debug_note *note) {
    mli_call call;
    int did;
    memlord_result r = MEMLORD_OK;
    if (hold->did == MLI_DID_VIEW) return;
    call.t = t;
    call.dev = mli_dev_known(lord, b->device);
    call.draw = mli_draw_none;
    mli_call_draw(lord, &call, b->bytes);
    if (hold->did == MLI_DID_OPEN)
        did = mli_fill(lord, t, call.dev, b->storage, b->bytes) ? MLI_DID_OPEN : MLI_DID_NOTHING;
    else
        r = mli_block_open(lord, t, call.dev, b->storage, b->bytes, hold->rows, how, &did);
    (void)mli_drop_count(lord, r, b->device, b->bytes);
    if (did == MLI_DID_OPEN) {
        mli_event_record(lord, t, MEMLORD_EVENT_ALLOC, call.dev, b->storage, b->bytes, hold->rows);
        note->blocks++;
        note->bytes += b->bytes;
    }
    if (call.draw.phys) mli_ticket_draw_end(lord, t, &call.draw, did == MLI_DID_OPEN);
}

/* Counts all n blocks as dropped. If a key is live all the same, its free will find that block: one
   expected free of a dropped alloc is then taken off again. */
static MLI_COLD void mli_drop_n(memlord *lord, const memlord_block *blocks, size_t n, int how,
                                memlord_result r) {
    memlord_block_info live;
    uint32_t dev;
    for (; n--; blocks++) {
        (void)mli_dev(lord, blocks->device, &dev);
        (void)mli_drop_count(lord, r, blocks->device, blocks->bytes);
        if (how == MLI_PUT_ALLOC &&
            memlord_block_find(lord, blocks->device, blocks->storage, &live) == MEMLORD_OK &&
            !live.pending)
            (void)mli_drop_match(lord, blocks->device.type);
    }
}

/* Records n blocks or none: takes all memory first, then records one block after the other. */
static MLI_COLD memlord_result mli_open_n(memlord *lord, const memlord_block *blocks, size_t n,
                                          int how, const memlord_site *site) {
    mli_thread *t = NULL;
    mli_debug_note note;
    mli_hold *hold;
    size_t i, held = 0;
    memlord_result r = lord ? mli_block_check_n(blocks, n, 1) : MEMLORD_OK;
    if (lord && n && r == MEMLORD_OK) t = mli_thread_get(lord);
    if (!t) return r;
    memset(&note, 0, sizeof note);
    hold = (mli_hold *)mli_own_alloc(lord, n * sizeof *hold);
    r = hold ? mli_hold_n(lord, t, blocks, n, how, site, hold, &held) : MEMLORD_E_NOMEM;
    for (i = 0; i < n && r == MEMLORD_OK; i++)
        mli_open_one(lord, t, &blocks[i], how, &hold[i], &note);
    mli_thread_put(lord, t);
    if (r) mli_unhold_n(lord, blocks, hold, held);
    if (r && r != MEMLORD_E_INVALID) mli_drop_n(lord, blocks, n, how, r);
    mli_own_free(lord, hold, n * sizeof *hold);
    if (mli_debug_on(lord) && r == MEMLORD_OK)
        mli_log_call_n(lord, "[alloc_n] ", blocks, n, &note, site);
    for (i = 0; i < n; i++) {
        uint32_t dev = mli_dev_known(lord, blocks[i].device);
        if (dev) mli_call_end(lord, t, dev, 1);
    }
    return r;
}

/* -- moves -- */

/* Records a move of a live block. With a fence, or recorded uses, the source becomes pending until
   they are done: *chain are the fences to ask. A block that moves onto itself is replaced. */
static MLI_COLD memlord_result mli_move_record(memlord *lord, mli_call *call, memlord_device from,
                                               uint64_t from_storage, const memlord_block *to,
                                               const memlord_fence *fence, int used,
                                               const memlord_site *site,
                                               mli_fence_record **chain) {
    const int away = from.type != to->device.type || from_storage != to->storage;
    mli_fence_record *f;
    memlord_result r = mli_dev(lord, to->device, &call->dev);
    if (r) return r;
    if (mli_would_overflow(lord, call->dev, to->bytes)) return MEMLORD_E_INVALID;
    f = fence && away ? mli_fence_new(lord, fence) : NULL;
    if (fence && away && !f) return mli_short_of(lord, call->t, from, from_storage, 1);
    mli_call_draw(lord, call, to->bytes);
    if (f || (used && away))
        r = mli_move_fenced(lord, call->t, from, from_storage, call->dev, to->storage, to->bytes,
                            f, site, chain);
    else
        r = mli_block_move(lord, call->t, from, from_storage, call->dev, to->storage, to->bytes,
                           site);
    if (f && (r || !*chain)) mli_fence_free(lord, f);
    return r;
}

/* -- bytes without identity -- */

/* Changes the arena balance of a device and counts the change. Returns the bytes changed. The site
   counts them as both in and out: an arena byte does not remember the site it came from, so no
   later call can take it off there. Does both inside a shard, so that no fork or report sees one
   without the other. */
static MLI_COLD uint64_t mli_arena_change(memlord *lord, mli_thread *t, uint32_t dev, uint64_t in,
                                          uint64_t out, const memlord_site *site) {
    mli_u64 *arena = &mli_device_record_at(lord, dev)->arena;
    uint64_t had = mli_u64_load(arena), add, take;
    mli_row_delta d[2];
    memset(d, 0, sizeof d);
    d[0].dev = dev;
    if (site && (mli_u32_load(&lord->threads.hooks) & MLI_HOOK_SITES))
        d[1].word2 = mli_cached_row(lord, t, MLI_BOOK_SITE, site, dev);
    mli_cells_make(lord, t, d, 2);
    mli_shard_enter_to_count(lord, t);
    do {
        add = had + in > (uint64_t)1 << 62 ? 0 : in;
        take = had < out ? had : out;
    } while (!mli_u64_cas(arena, &had, had + add - take));
    d[0].in = d[1].in = d[1].out = add;
    d[0].out = d[1].freed_here = take;
    d[1].allocs = add != 0;
    d[1].frees_here = take != 0;
    mli_count(lord, t, d, 2);
    mli_shard_leave(t);
    return add + take;
}

/* Adds bytes without identity to a device, or takes them off: then at most those it has, and more
   count as an underflow. The device and the bytes are checked as for an alloc; 1 stands for a valid
   storage. */
static MLI_COLD memlord_result mli_arena_call(memlord *lord, memlord_device device, uint64_t bytes,
                                              int adds, const memlord_site *site) {
    const int refuser = adds ? MLI_REFUSER_arena_add : MLI_REFUSER_arena_sub;
    mli_call call;
    memlord_block block = {device, 0, 0};
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = mli_call_begin(lord, device, 1, bytes, &call);
    if (!call.t) return mli_refuse(lord, refuser, r, device, mli_block_fault(1, bytes));
    if (!adds) {
        block.bytes = mli_arena_change(lord, call.t, call.dev, 0, bytes, site);
        if (block.bytes < bytes) mli_stat_add(lord, call.dev, MLI_STAT_underflows, 1);
    } else if (!mli_would_overflow(lord, call.dev, bytes)) {
        mli_call_draw(lord, &call, bytes);
        block.bytes = mli_arena_change(lord, call.t, call.dev, bytes, 0, site);
    }
    if (adds && block.bytes < bytes) r = MEMLORD_E_INVALID;
    if (block.bytes)
        mli_event_record(lord, call.t, adds ? MEMLORD_EVENT_ARENA_ADD : MEMLORD_EVENT_ARENA_SUB,
                         call.dev, 0, block.bytes, 0);
    r = mli_call_finish(lord, &call, r, r == MEMLORD_OK,
                        adds ? "[alloc arena] " : "[free arena] ", &block, site);
    return mli_refuse(lord, refuser, r, device, "a balance that overflows");
}

/* -- deferred frees -- */

/* Attaches a fence to a block; `how`: MLI_ATTACH_FREE or MLI_ATTACH_USE. */
static MLI_COLD memlord_result mli_call_fenced(memlord *lord, memlord_device device,
                                               uint64_t storage, const memlord_fence *fence,
                                               int how, const memlord_site *site) {
    mli_thread *t;
    mli_fence_record *f, *chain;
    mli_entry gone;
    memlord_result r = MEMLORD_E_INVALID;
    if (lord && fence->done && !storage && how == MLI_ATTACH_FREE)
        return mli_fence_discard(lord, fence);
    if (!lord || fence->done) r = mli_key_begin(lord, device, storage, &t);
    if (r)
        return mli_refuse(lord, how == MLI_ATTACH_FREE ? MLI_REFUSER_free_deferred
                                                       : MLI_REFUSER_block_use,
                          r, device,
                          fence->done ? mli_block_fault(storage, 0) : "a fence without `done`");
    if (!t) return mli_fence_discard(NULL, fence);
    f = mli_fence_new(lord, fence);
    gone.key = gone.word1 = 0;
    r = f ? mli_fence_attach(lord, t, device, storage, f, how, &gone, &chain)
          : mli_short_of(lord, t, device, storage, how == MLI_ATTACH_FREE);
    if (gone.key) {
        mli_count_site_free(lord, t, MLI_DEV(gone.word1), site, MLI_BYTES(gone.word1));
        mli_event_record_end(lord, t, MEMLORD_EVENT_PEND, storage, gone.word1, gone.word2, site);
    }
    mli_thread_put(lord, t);
    if (mli_debug_on(lord))
        mli_log_call(lord, gone.key != 0, "[free deferred] ", device, storage,
                     MLI_BYTES(gone.word1), site);
    if (r) {
        if (f) mli_fence_free(lord, f);
        return r;
    }
    mli_fences_ask_new(lord, chain);
    if (!(lord->threads.flags & MEMLORD_FLAG_DEFER))
        mli_fences_poll_due(lord, (uint32_t)device.type, how == MLI_ATTACH_FREE);
    return MEMLORD_OK;
}

/* -- public -- */

MEMLORD_API memlord_result memlord_free(memlord *lord, memlord_device device, uint64_t storage,
                                        const memlord_site *site) {
    return lord ? mli_free_fast(lord, device, storage, MLI_END_FREE, site, 1) : MEMLORD_OK;
}
MEMLORD_API memlord_result memlord_release(memlord *lord, memlord_device device, uint64_t storage,
                                           const memlord_site *site) {
    return lord ? mli_free_fast(lord, device, storage, MLI_END_RELEASE, site, 1) : MEMLORD_OK;
}

/* Frees or releases n blocks. A bad argument ends none. Any other error stops no further block; the
   last one is returned. With MEMLORD_DEBUG logs one line for all. */
static MLI_COLD memlord_result mli_end_n(memlord *lord, const memlord_block *blocks,
                                         size_t n, int how, const memlord_site *site) {
    mli_debug_note note;
    memlord_result r = lord ? mli_block_check_n(blocks, n, 0) : MEMLORD_OK, one;
    const int tells = lord && n && mli_debug_on(lord);
    size_t i;
    if (!lord || r) return r;
    memset(&note, 0, sizeof note);
    for (i = 0; i < n; i++) {
        const memlord_block *b = &blocks[i];
        mli_entry gone;
        gone.key = 0;
        if (tells)
            one = mli_free_general(lord, b->device, b->storage, how, site, &gone);
        else if (how == MLI_END_FREE)
            one = memlord_free(lord, b->device, b->storage, site);
        else
            one = memlord_release(lord, b->device, b->storage, site);
        if (one) r = one;
        if (gone.key) {
            note.blocks++;
            note.bytes += MLI_BYTES(gone.word1);
        } else if (one == MEMLORD_E_UNKNOWN) {
            note.unknown++;
            mli_self.note.unknown = 0; /* the line of another call must not count it */
        }
    }
    if (tells) mli_log_call_n(lord, "[free_n] ", blocks, n, &note, site);
    return r;
}

MEMLORD_API memlord_result memlord_alloc(memlord *lord, memlord_device device, uint64_t storage,
                                         uint64_t bytes, const memlord_site *site) {
    return lord ? mli_alloc_fast(lord, device, storage, bytes, site, 1) : MEMLORD_OK;
}

/* The ticket may close after the checks: then the bytes count in full. */
MLI_API memlord_result memlord_alloc_reserved(memlord *lord, memlord_ticket ticket,
                                              memlord_device device, uint64_t storage,
                                              uint64_t bytes, const memlord_site *site) {
    const mli_reservation *v;
    memlord_result r = MEMLORD_E_DEVICE;
    mli_phys *phys;
    if (!lord) return MEMLORD_OK;
    v = mli_ticket_find(lord, ticket);
    if (!v) return MEMLORD_E_UNKNOWN;
    if (!mli_phys_find(lord, device, 0, &phys) && phys == v->phys)
        r = mli_alloc_off_ticket(lord, ticket, device, storage, bytes, site, MLI_PUT_ALLOC);
    return mli_refuse(lord, MLI_REFUSER_alloc_reserved, r, device, mli_block_fault(storage, bytes));
}

MEMLORD_API memlord_result memlord_track(memlord *lord, memlord_device device, uint64_t storage,
                                         uint64_t bytes, const memlord_site *site) {
    memlord_result r = MEMLORD_OK;
    if (lord) r = mli_alloc_general(lord, device, storage, bytes, site, MLI_PUT_TRACK);
    return r ? mli_refuse(lord, MLI_REFUSER_track, r, device, mli_block_fault(storage, bytes)) : r;
}
MEMLORD_API memlord_result memlord_retain(memlord *lord, memlord_device device, uint64_t storage,
                                          const memlord_site *site) {
    mli_thread *t;
    memlord_result r = mli_key_begin(lord, device, storage, &t);
    (void)site;
    if (!t) return mli_refuse(lord, MLI_REFUSER_retain, r, device, mli_block_fault(storage, 0));
    r = mli_block_retain(lord, t, (uint32_t)device.type, storage);
    mli_thread_put(lord, t);
    return r;
}

MLI_API memlord_result memlord_alloc_n(memlord *lord, const memlord_block *blocks, size_t n,
                                       const memlord_site *site) {
    memlord_result r = mli_open_n(lord, blocks, n, MLI_PUT_ALLOC, site);
    return mli_refuse_n(lord, MLI_REFUSER_alloc_n, r, blocks, n, 1);
}
MLI_API memlord_result memlord_track_n(memlord *lord, const memlord_block *blocks, size_t n,
                                       const memlord_site *site) {
    memlord_result r = mli_open_n(lord, blocks, n, MLI_PUT_TRACK, site);
    return mli_refuse_n(lord, MLI_REFUSER_track_n, r, blocks, n, 1);
}
MLI_API memlord_result memlord_free_n(memlord *lord, const memlord_block *blocks, size_t n,
                                      const memlord_site *site) {
    memlord_result r = mli_end_n(lord, blocks, n, MLI_END_FREE, site);
    return mli_refuse_n(lord, MLI_REFUSER_free_n, r, blocks, n, 0);
}
MLI_API memlord_result memlord_release_n(memlord *lord, const memlord_block *blocks, size_t n,
                                         const memlord_site *site) {
    memlord_result r = mli_end_n(lord, blocks, n, MLI_END_RELEASE, site);
    return mli_refuse_n(lord, MLI_REFUSER_release_n, r, blocks, n, 0);
}

/* Ends a realloc. */
static MLI_COLD memlord_result mli_token_end(memlord *lord, memlord_realloc_token *token,
                                             uint64_t new_storage, uint64_t bytes,
                                             const memlord_site *site) {
    uint32_t state;
    if (!lord) return MEMLORD_OK;
    if (!token || new_storage == UINT64_MAX) return MEMLORD_E_INVALID;
    if (new_storage && bytes > MLI_BYTES_MAX) return MEMLORD_E_INVALID;
    state = token->state;
    if (state == MLI_TOKEN_USED || state > MLI_TOKEN_FREED ||
        token->word[2] != lord->threads.generation)
        return MEMLORD_E_STATE;
    token->state = MLI_TOKEN_USED;
    if (state == MLI_TOKEN_LIVE) return mli_realloc_record(lord, token, new_storage, bytes, site);
    if (state != MLI_TOKEN_NEW || !new_storage) return MEMLORD_OK;
    if (token->device.index < 0) token->device.index = 0;
    return mli_alloc_general(lord, token->device, new_storage, bytes, site, MLI_PUT_ALLOC);
}

/* Records a realloc after the fact. Takes the memory for the new entry first, so that the old one
   is not lost for want of it. */
static MLI_COLD memlord_result mli_realloc_whole(memlord *lord, memlord_device device,
                                                 uint64_t old_storage, uint64_t new_storage,
                                                 uint64_t bytes, const memlord_site *site) {
    memlord_realloc_token token;
    mli_call call;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (old_storage == UINT64_MAX) return MEMLORD_E_INVALID;
    if (!old_storage)
        return mli_alloc_general(lord, device, new_storage, bytes, site, MLI_PUT_ALLOC);
    r = mli_call_begin(lord, device, new_storage, bytes, &call);
    if (!call.t) return r;
    if (mli_would_overflow(lord, call.dev, bytes))
        r = MEMLORD_E_INVALID;
    else
        r = mli_map_reserve(lord, call.t, call.dev, new_storage);
    mli_thread_put(lord, call.t);
    if (r) return r;
    (void)mli_token_begin(lord, device, old_storage, &token, NULL, NULL);
    return mli_token_end(lord, &token, new_storage, bytes, site);
}
MLI_API memlord_result memlord_realloc(memlord *lord, memlord_device device,
                                       uint64_t old_storage, uint64_t new_storage,
                                       uint64_t bytes, const memlord_site *site) {
    memlord_result r = mli_realloc_whole(lord, device, old_storage, new_storage, bytes, site);
    return mli_refuse(lord, MLI_REFUSER_realloc, r, device,
                      mli_block_fault(old_storage == UINT64_MAX ? old_storage : new_storage,
                                      bytes));
}
MLI_API memlord_result memlord_realloc_begin(memlord *lord, memlord_device device,
                                             uint64_t old_storage, memlord_realloc_token *token) {
    memlord_result r = mli_token_begin(lord, device, old_storage, token, "[free realloc] ", NULL);
    return mli_refuse(lord, MLI_REFUSER_realloc_begin, r, device,
                      token ? mli_block_fault(old_storage ? old_storage : 1, 0) : "no token");
}
MLI_API memlord_result memlord_realloc_end(memlord *lord, memlord_realloc_token *token,
                                           uint64_t new_storage, uint64_t bytes,
                                           const memlord_site *site) {
    memlord_result r = mli_token_end(lord, token, new_storage, bytes, site);
    return mli_refuse(lord, MLI_REFUSER_realloc_end, r,
                      token ? token->device : memlord_device_all(),
                      token ? mli_block_fault(new_storage ? new_storage : 1, bytes) : "no token");
}

/* Detaches a block, as memlord_realloc_begin does. A block with recorded uses is freed at once, so
   that its fences hold it back from here on. */
static MLI_COLD memlord_result mli_free_begin(memlord *lord, memlord_device device,
                                              uint64_t storage, memlord_realloc_token *token,
                                              const memlord_site *site) {
    mli_thread *t;
    mli_entry e;
    int state = MLI_KEY_DEAD;
    memlord_result r = mli_key_begin(lord, device, storage, &t);
    if (t) {
        state = mli_key_state(lord, t, device, storage, &e);
        mli_thread_put(lord, t);
    }
    if (!token || (state != MLI_KEY_PENDING && state != MLI_KEY_USED))
        return mli_token_begin(lord, device, storage, token, "[free] ", site);
    (void)mli_token_begin(lord, device, 0, token, NULL, NULL); /* a token with nothing to end */
    if (state == MLI_KEY_PENDING) return MEMLORD_E_STATE;
    r = mli_free_general(lord, device, storage, MLI_END_FREE, site, NULL);
    if (r) return r;
    token->storage = storage;
    token->state = MLI_TOKEN_FREED;
    token->word[0] = e.word1;
    token->word[1] = e.word2;
    return MEMLORD_OK;
}
MLI_API memlord_result memlord_free_begin(memlord *lord, memlord_device device, uint64_t storage,
                                          memlord_realloc_token *token, const memlord_site *site) {
    memlord_result r = mli_free_begin(lord, device, storage, token, site);
    return mli_refuse(lord, MLI_REFUSER_free_begin, r, device,
                      token ? mli_block_fault(storage ? storage : 1, 0) : "no token");
}

/* Takes the bytes of a detached block off the counts. With `failed` records the block again: the
   detached one as it was. A storage with uses, which begin has freed, is opened again. */
MLI_API memlord_result memlord_free_end(memlord *lord, memlord_realloc_token *token,
                                        int failed, const memlord_site *site) {
    mli_thread *t;
    mli_entry e;
    uint64_t refs;
    uint32_t dev;
    int did = MLI_DID_NOTHING;
    memlord_result r = MEMLORD_OK;
    if (lord && !token)
        return mli_refuse(lord, MLI_REFUSER_free_end, MEMLORD_E_INVALID, memlord_device_all(),
                          "no token");
    if (!lord || token->state != (failed ? MLI_TOKEN_FREED : MLI_TOKEN_LIVE))
        return mli_token_end(lord, token, 0, 0, NULL);
    if (token->word[2] != lord->threads.generation) return MEMLORD_E_STATE;
    token->state = MLI_TOKEN_USED;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    e.key = token->storage;
    e.word1 = token->word[0];
    e.word2 = token->word[1];
    dev = MLI_DEV(e.word1);
    if (failed) {
        r = mli_block_open(lord, t, dev, e.key, MLI_BYTES(e.word1), e.word2, MLI_PUT_ALLOC, &did);
        (void)mli_drop_count(lord, r, mli_device_record_at(lord, dev)->device,
                             MLI_BYTES(e.word1));
    } else {
        refs = mli_refs_of(e.word1, e.word2);
        mli_entry_abandon(lord, t, &e);
        mli_count_site_free(lord, t, dev, site, MLI_BYTES(e.word1));
        if (refs > 1) mli_stat_add(lord, dev, MLI_STAT_freed_while_shared, 1);
    }
    if (did)
        mli_event_record(lord, t, MEMLORD_EVENT_ALLOC, dev, e.key, MLI_BYTES(e.word1), e.word2);
    mli_thread_put(lord, t);
    if (mli_debug_on(lord)) /* free_begin logged the free */
        mli_log_call(lord, did, "[alloc] ", token->device, e.key, MLI_BYTES(e.word1), NULL);
    mli_call_end(lord, t, dev, 1);
    return r;
}

/* Moves a block to another device or storage. A source that is not live makes no device known. A
   fence is discarded if no source waits for it: there is none, or the block moves onto itself and
   so is replaced, as by an alloc of a pending storage. */
static MLI_COLD memlord_result mli_move(memlord *lord, memlord_device from, uint64_t from_storage,
                                        memlord_device to, uint64_t to_storage, uint64_t bytes,
                                        const memlord_fence *fence, const memlord_site *site) {
    const memlord_block block = {to, to_storage, bytes};
    mli_call call;
    mli_entry e;
    mli_fence_record *chain = NULL;
    int state;
    memlord_result r;
    if (!lord) return mli_fence_discard(NULL, fence);
    r = fence && !fence->done ? MEMLORD_E_INVALID : mli_block_check(&block, 1);
    if (r == MEMLORD_OK) r = mli_key_begin(lord, from, from_storage, &call.t);
    if (r) return r;
    if (!call.t) return mli_fence_discard(NULL, fence);
    call.draw = mli_draw_none;
    call.dev = 0;
    state = mli_key_state(lord, call.t, from, from_storage, &e);
    if (state < MLI_KEY_LIVE)
        r = mli_unknown_free(lord, from);
    else
        r = mli_move_record(lord, &call, from, from_storage, &block, fence, state == MLI_KEY_USED,
                            site, &chain);
    mli_debug_note_from(lord, from, from_storage);
    (void)mli_call_finish(lord, &call, r, call.dev && !r, "[alloc move] ", &block, site);
    mli_fences_ask_new(lord, chain);
    return r || chain ? r : mli_fence_discard(lord, fence); /* no block waits for it */
}
/* Counts a copy on its route and its destination. */
static MLI_COLD memlord_result mli_copy(memlord *lord, memlord_device from, memlord_device to,
                                        uint64_t bytes) {
    uint32_t from_dev, to_dev;
    mli_route *route;
    memlord_result r;
    if (!lord || mli_self.in_host_alloc) return MEMLORD_OK;
    if (bytes > MLI_BYTES_MAX) return MEMLORD_E_INVALID;
    if (!mli_device_valid(from) || !mli_device_valid(to)) return MEMLORD_E_DEVICE;
    r = mli_dev(lord, from, &from_dev);
    if (r == MEMLORD_OK) r = mli_dev(lord, to, &to_dev);
    if (r) return r;
    route = mli_route_of(lord, from_dev, to_dev);
    if (!route) return MEMLORD_E_NOMEM;
    (void)mli_u64_add(&route->copies, 1);
    (void)mli_u64_add(&route->copied_bytes, bytes);
    mli_stat_add(lord, to_dev, MLI_STAT_copies, 1);
    mli_stat_add(lord, to_dev, MLI_STAT_copied_bytes, bytes);
    return mli_call_end_uncounted(lord, MEMLORD_OK);
}
MLI_API memlord_result memlord_move(memlord *lord, memlord_device from, uint64_t from_storage,
                                    memlord_device to, uint64_t to_storage, uint64_t bytes,
                                    const memlord_fence *fence, const memlord_site *site) {
    const int source = !mli_key_valid(from_storage) || !mli_type_valid(from); /* is at fault */
    memlord_result r = mli_move(lord, from, from_storage, to, to_storage, bytes, fence, site);
    return mli_refuse(lord, MLI_REFUSER_move, r, source ? from : to,
                      fence && !fence->done ? "a fence without `done`"
                      : source              ? mli_block_fault(from_storage, 0)
                                            : mli_block_fault(to_storage, bytes));
}

MLI_API memlord_result memlord_copy(memlord *lord, memlord_device from, memlord_device to,
                                    uint64_t bytes) {
    return mli_refuse(lord, MLI_REFUSER_copy, mli_copy(lord, from, to, bytes),
                      mli_device_valid(from) ? to : from, mli_block_fault(1, bytes));
}

MLI_API memlord_result memlord_arena_add(memlord *lord, memlord_device device, uint64_t bytes,
                                         const memlord_site *site) {
    return mli_arena_call(lord, device, bytes, 1, site);
}
MLI_API memlord_result memlord_arena_sub(memlord *lord, memlord_device device, uint64_t bytes,
                                         const memlord_site *site) {
    return mli_arena_call(lord, device, bytes, 0, site);
}

MLI_API memlord_result memlord_free_deferred(memlord *lord, memlord_device device, uint64_t storage,
                                             memlord_fence fence, const memlord_site *site) {
    return mli_call_fenced(lord, device, storage, &fence, MLI_ATTACH_FREE, site);
}

MLI_API memlord_result memlord_block_use(memlord *lord, memlord_device device,
                                         uint64_t storage, memlord_fence fence) {
    return mli_call_fenced(lord, device, storage, &fence, MLI_ATTACH_USE, NULL);
}

MEMLORD_API uint64_t memlord_retire(memlord *lord, memlord_device sel) {
    if (!lord || !mli_selector_valid(sel)) return 0;
    if (MLI_UNLIKELY(mli_u32_load(&lord->threads.alert) & MLI_ALERT_SAVE))
        mli_save_serve(lord);
    return mli_fences_retire(lord, sel);
}

/* ----------------------------------------------------------------------- >>retry --
   Runs a request of memlord_alloc_retry through out-of-memory: its attempts, the retiring and
   collecting between them, the pause. Owns the default policy. Uses >>limits, >>deferred, >>bands,
   >>pollers and >>record. Invariant: the bytes of a request are reserved while it tries. Locks:
   callbacks for the list of waiters, the physical device's for its last failure, one at a time;
   none while host code runs. */

static const memlord_retry mli_default_retry = {5, 50, 2000, 1.5, NULL, NULL};

/* -- MEMLORD_RETRY="max=5,initial_ms=50,multiplier=1.5,max_ms=2000" -- */

/* Reads a number up to a comma or the end; with `places` it may have a fraction. Returns the rest
   of the text; NULL if there is no number, or one above UINT32_MAX. */
static MLI_COLD const char *mli_read_number(const char *text, int places, double *out) {
    double value = 0, scale = 1;
    int digits = 0;
    for (; *text >= '0' && *text <= '9' && digits < 10; text++, digits++)
        value = value * 10 + (*text - '0');
    if (places && *text == '.')
        for (text++; *text >= '0' && *text <= '9' && digits < 15; text++, digits++)
            value += (*text - '0') * (scale /= 10);
    *out = value;
    return digits && value <= UINT32_MAX && (!*text || *text == ',') ? text : NULL;
}

/* Parses a policy. After an error *out is unchanged. */
static MLI_COLD memlord_result mli_retry_parse(const char *text, memlord_retry *out) {
    static const char *const names[] = {"max=", "initial_ms=", "max_ms=", "multiplier="};
    memlord_retry read = *out;
    uint32_t *const fields[] = {&read.max_retries, &read.initial_ms, &read.max_ms};
    while (*text) {
        double value;
        size_t i = 0;
        while (i < 4 && strncmp(text, names[i], strlen(names[i]))) i++;
        if (i < 4) text = mli_read_number(text + strlen(names[i]), i == 3, &value);
        if (i == 4 || !text) return MEMLORD_E_INVALID;
        if (i == 3)
            read.multiplier = value;
        else
            *fields[i] = (uint32_t)value;
        if (*text == ',' && !*++text) return MEMLORD_E_INVALID;
    }
    *out = read;
    return MEMLORD_OK;
}

/* -- waiting -- */

/* Sleeps up to `ms`, or until `needed` bytes have been freed at a physical device since `out` was
   read from mli_phys_freed. Does not sleep if they have been freed already, or if the system has
   no event left to wait for: the attempts then follow at once. */
static MLI_COLD void mli_wait_freed(memlord *lord, mli_phys *phys,
                                    uint64_t needed, uint64_t out, uint32_t ms) {
    mli_waiter w, **at;
    uint64_t generation;
    int failed;
    w.phys = phys;
    w.needed = needed ? needed : 1;
    w.freed_before = out;
    generation = mli_busy_begin();
    failed = mli_os_event_open(&w.event);
    mli_busy_end(generation);
    if (failed) return;
    mli_lock_take(&lord->bands.callbacks_lock);
    w.next = lord->pollers.waiters;
    lord->pollers.waiters = &w;
    mli_alert_set(lord, MLI_ALERT_WAITER, 1);
    mli_lock_drop(&lord->bands.callbacks_lock);
    mli_barrier_threads(lord); /* a free that missed the alert is counted in the sum below */
    if (mli_phys_freed(lord, phys) - w.freed_before < w.needed) mli_os_event_wait(&w.event, ms);
    mli_lock_take(&lord->bands.callbacks_lock);
    for (at = &lord->pollers.waiters; *at != &w;) at = &(*at)->next;
    *at = w.next;
    if (!lord->pollers.waiters) mli_alert_set(lord, MLI_ALERT_WAITER, 0);
    mli_lock_drop(&lord->bands.callbacks_lock);
    mli_os_event_close(&w.event);
}

/* -- a request -- */

typedef struct mli_request {
    memlord *lord;
    mli_phys *phys;
    uint32_t dev;
    uint64_t bytes;
    const memlord_site *site;
    const memlord_retry *policy;
    memlord_ticket ticket;
    uint64_t freed_before; /* bytes freed at phys before the attempt */
} mli_request;

/* Reserves the bytes under the limit. If they do not fit, retires pending blocks and tries again,
   then collects and tries again. */
static MLI_COLD memlord_result mli_request_reserve(mli_request *q) {
    memlord *lord = q->lord;
    memlord_device d = mli_device_record_at(lord, q->dev)->device;
    memlord_result r = MEMLORD_E_LIMIT;
    uint64_t reclaimed;
    int round;
    for (round = 0; round < 3 && r == MEMLORD_E_LIMIT; round++) {
        if (round == 1 && !mli_fences_retire(lord, d)) continue;
        if (round == 2 && mli_collect(lord, q->dev, MEMLORD_REASON_LIMIT, q->bytes, &reclaimed))
            break;
        r = mli_reservation_open(lord, q->phys, NULL, q->bytes, &q->ticket);
    }
    return r;
}

/* Records the new block; its bytes come off the request's own ticket alone. Without memory for the
   entry it counts as dropped: the caller has the storage all the same. */
static MLI_COLD void mli_request_record(mli_request *q, uint64_t storage) {
    (void)mli_alloc_off_ticket(q->lord, q->ticket, mli_device_record_at(q->lord, q->dev)->device,
                               storage, q->bytes, q->site, MLI_PUT_ALLOC);
}

/* Counts a request that found no memory in the end, and keeps it as the last of its device, for
   reports. */
static MLI_COLD void mli_oom_note(memlord *lord, uint32_t dev, uint64_t bytes,
                                  const memlord_site *origin) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    const memlord_site *site = origin ? mli_site_kept(lord, origin, NULL) : NULL;
    uint64_t now = mli_ledger_now(lord), live = mli_phys_live(lord, mli_phys_at(lord, dev));
    mli_phys *phys = mli_phys_lock(lord, dev);
    phys->failing = 1;
    device->oom.bytes = bytes;
    device->oom.live = live;
    device->oom.used = phys->sample.known ? phys->sample.used : UINT64_MAX;
    device->oom.site = site;
    device->oom.time = now ? now : 1;
    mli_lock_drop(&phys->lock);
    mli_stat_add(lord, dev, MLI_STAT_oom_failures, 1);
}

/* Logs a failed request; `oom`: the attempts failed, and are counted; else the limit refused it. */
static MLI_COLD void mli_request_failed(mli_request *q, int oom) {
    memlord *lord = q->lord;
    if (oom) {
        (void)mli_phys_sample(lord, q->phys); /* the attempts may have collected */
        mli_oom_note(lord, q->dev, q->bytes, q->site);
    } else {
        mli_phys_sample_refresh(lord, q->phys);
    }
    mli_log_explain(lord, MEMLORD_LOG_ERROR, oom ? "[oom] " : "[limit] ",
                    mli_device_record_at(lord, q->dev)->device, q->bytes);
}

/* Counts an attempt that found no memory. */
static MLI_COLD void mli_attempt_failed(memlord *lord, uint32_t dev, uint64_t bytes) {
    mli_stat_add(lord, dev, MLI_STAT_oom_attempts, 1);
    mli_event_record_other(lord, MEMLORD_EVENT_OOM, dev, 0, bytes);
}

MLI_API memlord_result memlord_retry_check(const memlord_retry *policy) {
    if (!policy) return MEMLORD_OK;
    return policy->max_ms >= policy->initial_ms && policy->multiplier >= 1 &&
                   policy->multiplier <= 1.7976931348623157e308 /* not infinite */
               ? MEMLORD_OK
               : MEMLORD_E_INVALID;
}

MLI_API uint32_t memlord_retry_backoff(const memlord_retry *policy, uint32_t attempt) {
    double ms, power;
    if (!policy) policy = &mli_default_retry;
    if (memlord_retry_check(policy) || !policy->initial_ms)
        return policy->initial_ms ? policy->max_ms : 0;
    ms = policy->initial_ms;
    for (power = policy->multiplier; attempt && ms < policy->max_ms; attempt >>= 1) {
        if (attempt & 1) ms *= power;
        power *= power; /* at worst infinite: then so is ms, and max_ms is returned */
    }
    return ms < policy->max_ms ? (uint32_t)ms : policy->max_ms;
}

/* Frees memory between two attempts, then pauses: samples the device, retires pending blocks,
   collects, and sleeps by the policy's function or until enough was freed. */
static MLI_COLD void mli_request_reclaim(mli_request *q, uint32_t attempt) {
    memlord *lord = q->lord;
    uint64_t reclaimed;
    uint32_t ms = memlord_retry_backoff(q->policy, attempt);
    (void)mli_phys_sample(lord, q->phys);
    (void)mli_fences_retire(lord, mli_device_record_at(lord, q->dev)->device);
    (void)mli_collect(lord, q->dev, MEMLORD_REASON_OOM, q->bytes, &reclaimed);
    if (q->policy->sleep_ms)
        q->policy->sleep_ms(q->policy->user, ms);
    else if (ms)
        mli_wait_freed(lord, q->phys, q->bytes, q->freed_before, ms);
}

/* Runs the attempts, and records the block of the one that succeeds. Requires: the bytes are
   reserved. An attempt that returns storage 0 or UINT64_MAX has failed, as no ledger can record
   those. */
static MLI_COLD memlord_result mli_request_try(mli_request *q, memlord_try_fn fn,
                                               void *user, uint64_t *storage) {
    const uint64_t outer = mli_self.try_lord;
    uint32_t attempt;
    int answer = 1;
    for (attempt = 0;; attempt++) {
        *storage = 0;
        if (attempt) mli_stat_add(q->lord, q->dev, MLI_STAT_retries, 1);
        q->freed_before = mli_phys_freed(q->lord, q->phys);
        mli_self.try_lord = q->lord->threads.generation;
        answer = fn(user, q->bytes, storage);
        mli_self.try_lord = outer;
        if (!answer && mli_key_valid(*storage)) break;
        mli_attempt_failed(q->lord, q->dev, q->bytes);
        if (answer < 0 || attempt == q->policy->max_retries) {
            *storage = 0;
            return MEMLORD_E_OOM;
        }
        mli_request_reclaim(q, attempt);
    }
    if (attempt) mli_stat_add(q->lord, q->dev, MLI_STAT_recoveries, 1);
    mli_lock_take(&q->phys->lock);
    q->phys->failing = 0;
    mli_lock_drop(&q->phys->lock);
    mli_request_record(q, *storage);
    return MEMLORD_OK;
}

/* -- public -- */

MLI_API memlord_result memlord_alloc_retry(memlord *lord, memlord_device device,
                                           uint64_t bytes, memlord_try_fn fn, void *user,
                                           const memlord_retry *policy, uint64_t *storage,
                                           const memlord_site *site) {
    mli_request q;
    memlord_result r;
    if (storage) *storage = 0;
    if (!storage || !fn) return MEMLORD_E_INVALID;
    if (!lord || mli_self.in_host_alloc) {
        if (fn(user, bytes, storage) == 0) return MEMLORD_OK;
        *storage = 0;
        return MEMLORD_E_OOM;
    }
    if (bytes > MLI_BYTES_MAX || memlord_retry_check(policy)) return MEMLORD_E_INVALID;
    memset(&q, 0, sizeof q);
    r = mli_dev(lord, device, &q.dev);
    if (r) return r;
    q.lord = lord;
    q.phys = mli_phys_at(lord, q.dev);
    q.bytes = bytes;
    q.site = site;
    q.policy = policy ? policy : &lord->retry.policy;
    r = mli_request_reserve(&q);
    if (r == MEMLORD_OK) r = mli_request_try(&q, fn, user, storage);
    if (q.ticket) (void)memlord_reserve_commit(lord, q.ticket);
    if (r == MEMLORD_E_OOM || r == MEMLORD_E_LIMIT)
        mli_request_failed(&q, r == MEMLORD_E_OOM);
    return r;
}

MLI_API memlord_result memlord_alloc_failed(memlord *lord, memlord_device device, uint64_t bytes,
                                            const memlord_site *site) {
    uint32_t dev;
    memlord_result r;
    if (!lord || mli_self.in_host_alloc || mli_self.try_lord == lord->threads.generation)
        return MEMLORD_OK;
    r = bytes > MLI_BYTES_MAX ? MEMLORD_E_INVALID : mli_dev(lord, device, &dev);
    if (r)
        return mli_refuse(lord, MLI_REFUSER_alloc_failed, r, device, mli_block_fault(1, bytes));
    mli_attempt_failed(lord, dev, bytes);
    mli_phys_sample_refresh(lord, mli_phys_at(lord, dev));
    mli_oom_note(lord, dev, bytes, site);
    if (mli_log_hears(lord, MEMLORD_LOG_ERROR) && mli_log_due(lord, &lord->retry.explained))
        mli_log_explain(lord, MEMLORD_LOG_ERROR, "[oom] ", device, bytes);
    return mli_call_end_uncounted(lord, MEMLORD_OK);
}

/* --------------------------------------------------------------------- >>reports --
   Owns mli_report, the capture that a report is written from, and the formats TEXT and JSON. Uses
   the reading functions of the sections above; changes nothing in the ledger. A report captures
   devices, tags, accounts and the largest sites and blocks once, and writes from that. Whole
   lists (sites, scopes, events) are read as they are written, so each list gives its own sum.
   Locks: those of reading; none while the host's function writes. */

/* -- the capture -- */

#define MLI_TOP_SITES 50
#define MLI_TOP_BLOCKS 100
#define MLI_TOP_TAGS 64
#define MLI_TOP_ACCOUNTS 20
#define MLI_SIZES 50 /* class 0: 0 bytes; class k: from 2^(k-1) bytes to twice that; last 2^48 */
#define MLI_LEAKS 4096      /* groups of leaked blocks */
#define MLI_LEAKS_TRIED 16  /* groups that one insert probes */
#define MLI_LEAKS_SHOWN 100
#define MLI_PARTS_SHOWN 1024
typedef struct mli_leak_group {
    uint64_t key;       /* the rows of word2, the device from bit 40, the scope from bit 48 */
    mli_entry of;       /* one of them, without its side record */
    uint64_t bytes, blocks;
} mli_leak_group;
typedef struct mli_leak_table {
    uint64_t bytes, blocks; /* of all blocks, also of those in no group */
    size_t count; /* after mli_leaks_sort: groups to show, at the start of `at` */
    mli_leak_group at[MLI_LEAKS];
} mli_leak_table;
/* The lines of lists that more than one format writes. A value of UINT64_MAX, or INT64_MIN for a
   difference, is not known: TEXT has a -, JSON null, PROMETHEUS no sample. */
typedef struct mli_line { /* at the start of each of them */
    memlord_device device;
    const char *name; /* NULL: the device is enough */
} mli_line;
typedef struct mli_phys_line {
    mli_line of;
    const mli_phys *phys;
    uint64_t total, used, free, age, limit, held;
    uint64_t process, self, rest, others; /* used bytes: this process's, of them the ledger's and
                                             the others, and those of other processes */
    uint64_t untagged;                    /* the part of self that has no tag */
    int64_t unaccounted;                  /* used - self */
    uint64_t fullness;                    /* used / total; 0: not known */
} mli_phys_line;
typedef struct mli_tag_line {
    mli_line of;
    memlord_tag_stat stat;
    uint32_t dev;
    mli_phys_line *phys; /* NULL: the report has no line of its physical device */
} mli_tag_line;
typedef struct mli_scope_line {
    mli_line of; /* of all devices */
    memlord_scope_stat stat;
    uint64_t live_bytes, live_blocks;
} mli_scope_line;
typedef struct mli_report {
    memlord *lord;
    mli_out *o, out;
    char buf[2048];
    uint32_t devices;
    size_t sites, blocks, tags, tag_lines, phys_count, accounts, account_lines;
    int by_peak;           /* 1: sites in the order of their peak; 0: of their live bytes */
    memlord_result result; /* an error other than a failed write: no memory for a part of it */
    int whole;             /* 1: captures the lists too: blocks, sites, leaks, lifetimes */
    uint64_t uptime;
    uint64_t top_device[MEMLORD_MAX_DEVICES][2]; /* peak and dev, the highest peak first */
    mli_tag_line *tag; /* by row, and behind them by dev, for the blocks without a tag */
    mli_tag_line top_tag[MLI_TOP_TAGS];
    memlord_stats total, stat[MEMLORD_MAX_DEVICES];
    mli_phys_line phys[MEMLORD_MAX_DEVICES + 1];
    memlord_account_stat account[MLI_TOP_ACCOUNTS];
    memlord_site_stat site[MLI_TOP_SITES];
    memlord_block_info block[MLI_TOP_BLOCKS];
    mli_largest top; /* the heap in `block`, while the walk fills it */
    mli_stamp_scale scale;
    uint32_t scopes, site_rows, snapshots;
    mli_snapshot_reader reader; /* keeps what `snapshot` points to */
    const mli_snapshot *snapshot[MLI_SNAPSHOTS];
    mli_snapshot *present; /* the last snapshot, if this report took it; else NULL */
    mli_scope_line *scope; /* by id */
    mli_leak_table leaks;  /* live blocks born since `mark` */
    uint64_t mark;
    int has_parts; /* 1: at least one block has parts */
    int lifetimes; /* 1: `lifetime` is known */
    uint64_t lifetime[MEMLORD_MAX_DEVICES][4];
    mli_holders holders; /* scratch: of the device being written */
    mli_scope_run run[MLI_RUNS_KEPT];
    uint64_t deltas[MEMLORD_MAX_DEVICES + 1];
    memlord_part_info part[16];
    uint64_t sizes[MEMLORD_MAX_DEVICES][MLI_SIZES]; /* live blocks, by device and size class */
} mli_report;

/* -- the walk over all blocks: leaks, sizes, scopes, the largest -- */

/* Adds a live block to the group of its site, tag, scope and device. Probes MLI_LEAKS_TRIED groups;
   if all are of other keys, evicts the smallest of them, but only if it has fewer bytes than this
   block. So large groups are found in any number, but a group of many small blocks may then be
   under-reported. The sums of the table count every block. */
static MLI_COLD void mli_leak_add(memlord *lord, mli_leak_table *leaks,
                                  uint64_t plain, uint32_t dev, uint64_t bytes) {
    uint64_t scope = mli_scope_of(lord, plain);
    uint64_t key = (plain & MLI_ROWS_MASK) | (uint64_t)dev << 40 | scope << 48;
    uint64_t at = (key * 0x9e3779b97f4a7c15u) >> 32;
    mli_leak_group *leak = NULL, *tried;
    size_t i;
    leaks->bytes += bytes;
    leaks->blocks++;
    for (i = 0; i < MLI_LEAKS_TRIED; i++) {
        int mine;
        tried = &leaks->at[(at + i) % MLI_LEAKS];
        mine = !tried->blocks || tried->key == key;
        if (!leak || mine || tried->bytes < leak->bytes) leak = tried;
        if (mine) break;
    }
    if (leak->blocks && leak->key != key) {
        if (leak->bytes >= bytes) return;
        leak->bytes = leak->blocks = 0;
    }
    leak->key = key;
    leak->of.word1 = (uint64_t)dev << 49;
    leak->of.word2 = plain;
    leak->blocks++;
    leak->bytes += bytes;
}
/* Moves the `most` largest groups to the start of the table, the largest first. */
static MLI_COLD void mli_leaks_sort(mli_leak_table *leaks, size_t most) {
    size_t i;
    leaks->count = 0;
    for (i = 0; i < MLI_LEAKS; i++) {
        mli_leak_group leak = leaks->at[i];
        if (leak.blocks)
            leaks->count = mli_top_insert(leaks->at, leaks->count, most, &leak, sizeof leak,
                                          offsetof(mli_leak_group, bytes));
    }
}
static const memlord_site *mli_row_site(memlord *lord, uint32_t row) {
    if (!row) return NULL;
    return mli_site_display(lord, (mli_site_record *)mli_row_at(lord, MLI_BOOK_SITE, row)->subject);
}
static memlord_block_info mli_leak_info(memlord *lord, const mli_leak_group *leak) {
    memlord_block_info info;
    mli_block_copy_out(lord, &leak->of, &info);
    info.site = mli_site_display_of(lord, info.site);
    return info;
}
/* Writes a group as "cuda:0 [weights] in load  read_tensors loader.c:12". */
static MLI_COLD void mli_put_leak(mli_out *o, memlord *lord, const mli_leak_group *leak) {
    const memlord_block_info of = mli_leak_info(lord, leak);
    mli_put_device(o, of.device);
    if (of.tag) mli_putf(o, " [%s]", of.tag);
    if (of.scope) mli_putf(o, " in %s", of.scope);
    mli_putf(o, "  %p", (const void *)of.site);
}

/* Visits a block for all lists of a report, so that one walk fills them: the largest blocks, the
   counts by size, the groups of leaks, and the live bytes of each scope. */
static int mli_visit_report(memlord *lord, const mli_entry *e, void *user) {
    mli_report *r = (mli_report *)user;
    uint64_t bytes = MLI_BYTES(e->word1), plain = mli_word2_rows(e->word2);
    uint32_t dev = MLI_DEV(e->word1), scope = mli_scope_of(lord, plain), size = 0;
    for (; bytes >> size; size++) {}
    if (dev <= r->devices) r->sizes[dev - 1][size]++; /* else added since the capture */
    if (mli_mark_of(lord, plain) >= r->mark)
        mli_leak_add(lord, &r->leaks, plain, dev, bytes);
    if (scope && scope <= r->scopes) {
        r->scope[scope].live_bytes += bytes;
        r->scope[scope].live_blocks++;
    }
    if ((e->word2 & 1) && mli_side_record_of(e->word2)->parts) r->has_parts = 1;
    return mli_visit_top(lord, e, &r->top);
}

/* -- lifetimes: of blocks that begin and end in the event ring -- */

typedef struct mli_lifetime_span { /* open addressing; key 0: free; stamp 0: the block ended */
    uint64_t key, stamp;
} mli_lifetime_span;

static void mli_lifetime_event(mli_report *r, mli_lifetime_span *spans, uint64_t mask,
                               const mli_event_copy *e) {
    uint32_t kind = mli_event_kind(e->what), dev = mli_event_dev(e->what);
    int begins = kind == MEMLORD_EVENT_ALLOC || kind == MEMLORD_EVENT_MOVE;
    uint64_t key = e->storage, at;
    if (!dev || !(begins || kind == MEMLORD_EVENT_FREE)) return;
    key ^= (uint64_t)(r->lord->devices.dev_type[dev] + 1u) << 57;
    for (at = (key * 0x9e3779b97f4a7c15u) >> 20 & mask; spans[at].key; at = (at + 1) & mask)
        if (spans[at].key == key) break;
    if (begins) {
        spans[at].key = key;
        spans[at].stamp = e->stamp ? e->stamp : 1;
    } else if (spans[at].key && spans[at].stamp && dev <= r->devices) {
        uint64_t ms = mli_span_ns(&r->scale, e->stamp - spans[at].stamp) / 1000000u;
        r->lifetime[dev - 1][(ms >= 100) + (ms >= 1000) + (ms >= 10000)]++;
        spans[at].stamp = 0;
    }
}

/* Counts lifetimes by class, from the ring. Leaves them unknown if the ring is off or there is no
   memory. */
static MLI_COLD void mli_report_lifetimes(mli_report *r) {
    const mli_ring *ring = (mli_ring *)mli_ptr_load_acquire(&r->lord->events.ring);
    uint64_t size = 64;
    mli_ring_reader reading;
    mli_event_copy e;
    mli_lifetime_span *spans;
    if (!ring) return;
    while (size < ring->capacity + ring->capacity / 4) size *= 2; /* at most 80% full */
    spans = (mli_lifetime_span *)mli_own_alloc(r->lord, (size_t)size * sizeof *spans);
    if (!spans) return;
    if (mli_ring_reader_begin(r->lord, &reading)) {
        r->lifetimes = 1;
        while (mli_ring_reader_next(&reading, &e))
            mli_lifetime_event(r, spans, size - 1, &e);
        mli_ring_reader_end(&reading);
    }
    mli_own_free(r->lord, spans, (size_t)size * sizeof *spans);
}

/* Returns the name of the checkpoint with the most live bytes; NULL: no snapshot has a name. */
static const char *mli_report_peak_name(const mli_report *r) {
    const mli_snapshot *best = NULL;
    uint32_t i;
    for (i = 0; i < r->snapshots; i++)
        if (r->snapshot[i]->name && (!best || r->snapshot[i]->live > best->live))
            best = r->snapshot[i];
    return best ? best->name : NULL;
}

/* Returns 1 if the bytes of a device count against its physical device. Those of mapped files do
   not: they are page cache. */
static int mli_dev_uses_capacity(const memlord *lord, uint32_t dev) {
    return lord->devices.dev_type[dev] != MEMLORD_DEVICE_MAPPED;
}

/* Captures a physical device. Splits its used bytes into the ledger's, the rest of this process,
   and the others'. */
static void mli_phys_line_fill(mli_report *r, mli_phys *phys, mli_phys_line *line) {
    uint64_t now = mli_ledger_now(r->lord), mine, sampled;
    memlord_capacity sample;
    uint32_t i;
    memset(line, 0xff, sizeof *line);
    mli_lock_take(&phys->lock);
    sample = phys->sample;
    sampled = phys->sampled;
    line->of.device = phys->device;
    line->of.name = NULL;
    line->held = phys->reserved;
    if (phys->limit) line->limit = phys->limit;
    mli_lock_drop(&phys->lock);
    line->phys = phys;
    line->unaccounted = INT64_MIN;
    line->self = line->fullness = 0;
    for (i = 1; i <= r->devices; i++)
        if (mli_phys_at(r->lord, i) == phys && mli_dev_uses_capacity(r->lord, i))
            line->self = mli_add_saturated(line->self, r->stat[i - 1].allocated);
    line->untagged = line->self;
    if (!sample.known) return;
    mine = sample.process > line->self ? sample.process : line->self;
    line->total = sample.total;
    line->used = sample.used;
    line->free = sample.total - sample.used;
    line->age = now > sampled ? now - sampled : 0;
    if (sample.process) {
        line->process = sample.process;
        line->rest = mine - line->self;
    }
    line->others = sample.used > mine ? sample.used - mine : 0;
    line->unaccounted = (int64_t)(sample.used - line->self);
    line->fullness = (uint64_t)(mli_used_percent(&sample) * 1e6) + 1;
}
/* Captures each physical device with a known capacity or a limit, the fullest first; those of an
   unknown capacity come last. */
static void mli_report_phys_all(mli_report *r) {
    uint32_t i;
    for (i = 0; i <= r->devices; i++) {
        mli_phys *phys = mli_phys_in_use(r->lord, i);
        mli_phys_line line;
        if (!phys) continue;
        mli_phys_line_fill(r, phys, &line);
        if (line.total != UINT64_MAX || line.limit != UINT64_MAX)
            r->phys_count = mli_top_insert(r->phys, r->phys_count, MEMLORD_MAX_DEVICES + 1, &line,
                                           sizeof line, offsetof(mli_phys_line, fullness));
    }
}
/* Returns the line of a device's physical device; NULL: neither its capacity nor a limit is
   known. */
static mli_phys_line *mli_report_phys(mli_report *r, uint32_t dev) {
    const mli_phys *phys = mli_phys_at(r->lord, dev);
    size_t i;
    for (i = 0; i < r->phys_count; i++)
        if (r->phys[i].phys == phys) return &r->phys[i];
    return NULL;
}

/* Captures every tag's row once, for all lists of tags, and the largest MLI_TOP_TAGS in order.
   Requires: mli_report_phys_all has run. */
static void mli_report_tags(mli_report *r) {
    uint32_t i;
    for (i = 1; i <= r->devices && r->tag; i++) {
        mli_tag_line *rest = &r->tag[r->tags + i];
        memset(rest, 0xff, sizeof *rest);
        rest->stat.allocated = r->stat[i - 1].allocated;
        rest->stat.variance = INT64_MIN;
        rest->of.device = mli_device_record_at(r->lord, i)->device;
        rest->of.name = "";
    }
    for (i = 1; i <= r->tags; i++) {
        mli_tag_line *line = &r->tag[i];
        line->dev = mli_row_at(r->lord, MLI_BOOK_TAG, i)->dev;
        line->of.device = mli_device_record_at(r->lord, line->dev)->device;
        line->phys = mli_report_phys(r, line->dev);
        mli_tag_stat_fill(r->lord, i, &line->stat);
        line->of.name = line->stat.tag;
        if (!line->stat.expected) {
            line->stat.expected = UINT64_MAX;
            line->stat.variance = INT64_MIN;
        }
        mli_take_off(&r->tag[r->tags + line->dev].stat.allocated, line->stat.allocated);
        if (line->phys && mli_dev_uses_capacity(r->lord, line->dev))
            mli_take_off(&line->phys->untagged, line->stat.allocated);
        r->tag_lines = mli_top_insert(r->top_tag, r->tag_lines, MLI_TOP_TAGS, line, sizeof *line,
                                      offsetof(mli_tag_line, stat.allocated));
    }
}

/* Captures every scope once, without its live bytes. */
static void mli_report_scopes(mli_report *r) {
    uint32_t id;
    for (id = 1; id <= r->scopes; id++) {
        mli_scope_line *line = &r->scope[id];
        mli_scope_sum(r->lord, mli_scope_record_at(r->lord, id), &r->scale, &line->stat, NULL);
        line->of.device = memlord_device_all();
        line->of.name = line->stat.path;
    }
}
static int64_t mli_average(int64_t total, uint64_t count) {
    return count ? total / (int64_t)count : 0;
}

/* Captures the largest MLI_TOP_ACCOUNTS open accounts, the largest first, and counts all. */
static void mli_report_accounts(mli_report *r) {
    memlord *lord = r->lord;
    uint32_t i;
    mli_lock_take(&mli_process.cold_lock);
    for (i = 1; i < mli_u32_load(&lord->limits.account_count); i++) {
        const mli_account_record *b =
            (const mli_account_record *)mli_book_at(&lord->limits.accounts, i, sizeof *b);
        memlord_account_stat s;
        if (!mli_account_read_locked(b, &s)) continue;
        r->accounts++;
        if (!s.limit) s.limit = UINT64_MAX;
        r->account_lines = mli_top_insert(r->account, r->account_lines, MLI_TOP_ACCOUNTS, &s,
                                          sizeof s, offsetof(memlord_account_stat, bytes));
    }
    mli_lock_drop(&mli_process.cold_lock);
}

/* Captures a report. Requires: r is zeroed but for `whole`, the output and the pinned snapshots. A
   row added later has no number in this report. */
static void mli_report_capture(memlord *lord, mli_report *r) {
    mli_walk_query all = mli_walk_query_of(memlord_device_all());
    uint32_t i;
    r->lord = lord;
    r->uptime = mli_ledger_now(lord) - lord->lifecycle.started;
    r->scale = mli_stamp_scale_now(lord);
    r->scopes = mli_scope_count(lord) - 1;
    r->scope = (mli_scope_line *)mli_own_alloc(lord, (r->scopes + 1) * sizeof *r->scope);
    r->site_rows = mli_row_count(lord, MLI_BOOK_SITE) - 1;
    r->mark = MLI_BIRTH(mli_u64_load(&lord->sites.birth_mark));
    r->tags = mli_row_count(lord, MLI_BOOK_TAG) - 1;
    r->devices = mli_row_count(lord, MLI_BOOK_DEVICE) - 1;
    r->tag = (mli_tag_line *)mli_own_alloc(lord, (r->tags + r->devices + 1) * sizeof *r->tag);
    if (!r->tag || !r->scope) r->result = MEMLORD_E_NOMEM;
    if (!r->tag) r->tags = 0;
    if (!r->scope) r->scopes = 0;
    for (i = 0; i < r->devices; i++) {
        uint64_t line[2];
        mli_stats_fill(lord, i + 1, &r->stat[i]);
        if (!i) r->total.largest_free = UINT64_MAX;
        mli_stats_sum(&r->total, &r->stat[i]);
        line[0] = r->stat[i].peak;
        line[1] = i + 1;
        (void)mli_top_insert(r->top_device, i, MEMLORD_MAX_DEVICES, line, sizeof line, 0);
    }
    mli_stats_sum_phys(lord, all.sel, &r->total);
    mli_report_phys_all(r);
    mli_report_accounts(r);
    mli_stats_add_losses(lord, &r->total);
    mli_report_tags(r);
    mli_report_scopes(r);
    if (!r->whole) return;
    /* With less than a quarter of the peak alive, sites say more by their peak. */
    r->by_peak = r->total.allocated < r->total.peak / 4;
    r->sites = mli_sites_top(
        lord, all.sel, r->by_peak ? MEMLORD_SITE_ORDER_PEAK_BYTES : MEMLORD_SITE_ORDER_LIVE_BYTES,
        r->site, MLI_TOP_SITES, 1);
    mli_report_lifetimes(r);
    r->top.at = r->block;
    r->top.cap = MLI_TOP_BLOCKS;
    mli_map_visit(lord, &all, mli_visit_report, r);
    r->blocks = mli_block_heap_sort(lord, &r->top);
    mli_leaks_sort(&r->leaks, MLI_LEAKS_SHOWN);
}

/* -- TEXT: a first screen of about 25 lines, then the lists in full -- */

/* The lines of each list on the first screen. */
enum {
    MLI_FIRST_DEVICES = 4,
    MLI_FIRST_PHYS = 2,
    MLI_FIRST_TAGS = 3,
    MLI_FIRST_SITES = 3,
    MLI_FIRST_BLOCKS = 2
};

static int mli_report_device(const mli_report *r, uint32_t dev) {
    return mli_device_code(mli_device_record_at(r->lord, dev)->device);
}

static void mli_text_device(mli_report *r, memlord_device d, const memlord_stats *s) {
    mli_putf(r->o, "%-16i%12jo%12jo%11ju%12ju%12ju%14jo", mli_device_code(d), s->allocated,
             s->peak, s->live_blocks, s->allocs, s->frees, s->total_allocated);
}

/* Writes how many of `have` lines are not shown. */
static void mli_text_more(mli_report *r, size_t have, size_t shown, const char *what) {
    if (shown < have) mli_putf(r->o, "... and %ju more %s\n", (uint64_t)(have - shown), what);
}

/* Writes a line for each type with several devices. */
static void mli_text_types(mli_report *r) {
    uint32_t i;
    int type;
    for (type = 0; type < MLI_TYPE_COUNT; type++) {
        memlord_stats sum;
        uint32_t devices = 0;
        memset(&sum, 0, sizeof sum);
        for (i = 0; i < r->devices; i++) {
            if (r->lord->devices.dev_type[i + 1] != type) continue;
            mli_stats_sum(&sum, &r->stat[i]);
            devices++;
        }
        if (devices < 2) continue;
        mli_text_device(r, memlord_device_make(type, MEMLORD_ANY), &sum);
        mli_put_str(r->o, "\n");
    }
}

static void mli_text_devices(mli_report *r, size_t most) {
    size_t i, shown = r->devices < most ? r->devices : most;
    mli_put_str(r->o, "\ndevice                  live        peak     blocks      allocs"
                      "       frees  allocated in all\n");
    for (i = 0; i < shown; i++) {
        uint32_t dev = (uint32_t)r->top_device[i][1];
        mli_device_record *device = mli_device_record_at(r->lord, dev);
        const char *label = (const char *)mli_ptr_load_acquire(&device->label);
        mli_text_device(r, device->device, &r->stat[dev - 1]);
        if (label) mli_putf(r->o, "  %s", label);
        mli_put_str(r->o, "\n");
    }
    mli_text_more(r, r->devices, shown, "devices");
    if (r->devices == 1) return;
    mli_text_types(r);
    mli_text_device(r, memlord_device_all(), &r->total);
    mli_put_str(r->o, "\n");
}

static void mli_text_tags(mli_report *r, size_t most) {
    size_t i, shown = r->tags < most ? r->tags : most;
    if (!r->tags) return;
    mli_put_str(r->o, "\ntag                     live        peak     blocks    expected"
                      "    variance  device\n");
    for (i = 0; i < shown; i++) {
        const memlord_tag_stat *s = &r->top_tag[i].stat;
        mli_putf(r->o, "%-16s%12jo%12jo%11ju%12jo%+12jd  %i\n", s->tag, s->allocated, s->peak,
                 s->blocks, s->expected, s->variance, mli_device_code(r->top_tag[i].of.device));
    }
    mli_text_more(r, r->tags, shown, "tags");
}

static void mli_text_sites(mli_report *r, size_t most) {
    size_t i, shown = r->sites < most ? r->sites : most;
    uint64_t sum = 0;
    if (!shown) return;
    for (i = 0; i < shown; i++) sum += r->site[i].live_bytes;
    mli_putf(r->o,
             "\n        live        peak      allocs   allocated  hotspots by %s: %ju of %ju "
             "sites, %jo live\n",
             r->by_peak ? "peak" : "live", (uint64_t)shown,
             (uint64_t)mli_row_count(r->lord, MLI_BOOK_SITE) - 1, sum);
    for (i = 0; i < shown; i++) {
        const memlord_site_stat *s = &r->site[i];
        mli_putf(r->o, "%12jo%12jo%12ju%12jo  %p", s->live_bytes, s->peak_bytes, s->allocs,
                 s->alloc_bytes, (const void *)s->site);
        if (r->devices > 1) mli_putf(r->o, " on %i", mli_device_code(s->device));
        mli_put_str(r->o, "\n");
    }
}

static void mli_text_phys_all(mli_report *r, size_t most) {
    size_t i, shown = r->phys_count < most ? r->phys_count : most;
    if (!r->phys_count) return;
    mli_put_str(r->o, "\ncapacity               total        used        free        self"
                      "   this process      others       limit        held\n");
    for (i = 0; i < shown; i++) {
        const mli_phys_line *line = &r->phys[i];
        mli_putf(r->o, "%-16i%12jo%12jo%12jo%12jo%15jo%12jo%12jo%12jo\n",
                 mli_device_code(line->of.device), line->total, line->used, line->free, line->self,
                 line->rest, line->others, line->limit, line->held);
    }
    mli_text_more(r, r->phys_count, shown, "physical devices");
}

/* Writes a line for a device with pending bytes, which the host has freed but which still count;
   one for a device that collected; one for a device that ran out of memory. */
static void mli_text_trouble(mli_report *r, uint32_t i) {
    const memlord_stats *s = &r->stat[i];
    int device = mli_report_device(r, i + 1);
    mli_oom oom;
    if (s->pending)
        mli_putf(r->o, "pending, %i: %jo of what is live are freed, and wait for the device\n",
                 device, s->pending);
    if (s->gc_runs | s->gc_failed)
        mli_putf(r->o, "collections, %i: %ju ran, %ju could not, reclaimed %jo\n", device,
                 s->gc_runs, s->gc_failed, s->gc_reclaimed);
    if (!s->oom_attempts) return;
    oom = mli_oom_of(r->lord, i + 1);
    mli_putf(r->o, "out of memory, %i: %ju attempts found none, %ju requests saved, %ju failed",
             device, s->oom_attempts, s->recoveries, s->oom_failures);
    if (oom.time) {
        mli_putf(r->o, "; the last of %jo with live %jo", oom.bytes, oom.live);
        if (oom.used != UINT64_MAX) mli_putf(r->o, ", used %jo", oom.used);
        if (oom.site) mli_putf(r->o, " at %p", (const void *)oom.site);
    }
    mli_put_str(r->o, "\n");
}

/* Writes a line for a device on which the host reported a pool of its own. */
static void mli_text_pool(mli_report *r, uint32_t i) {
    const memlord_stats *s = &r->stat[i];
    if (!s->reserved_peak) return;
    mli_putf(r->o, "pool, %i: reserved %jo (peak %jo), cached %jo or %g, fragmentation %g\n",
             mli_report_device(r, i + 1), s->reserved, s->reserved_peak, s->cached,
             memlord_cached_ratio(s) * 100, memlord_fragmentation(s) * 100);
}

/* Writes "rates, cuda:0: hit_rate 50 %, success_rate 100 %, 2 MiB an alloc", with what was counted
   of it; nothing if that is nothing. */
static void mli_text_rates(mli_report *r, uint32_t i) {
    const memlord_stats *s = &r->stat[i];
    uint64_t mean = mli_mean_read(s);
    size_t k, shown = 0;
    for (k = 0; k < MLI_RATE_COUNT; k++) {
        double rate = mli_rates[k].of(s);
        if (!(rate >= 0)) continue;
        if (!shown++) mli_putf(r->o, "rates, %i:", mli_report_device(r, i + 1));
        mli_putf(r->o, shown > 1 ? ", %s %g" : " %s %g", mli_rates[k].name, rate * 100);
    }
    if (mean != UINT64_MAX) mli_putf(r->o, ", %jo an alloc", mean); /* so success_rate is known */
    if (shown) mli_put_str(r->o, "\n");
}

/* Writes "sizes of live blocks, cpu: 12 from 64 B, 3 from 1 MiB", where a class ends at twice its
   start, and a line for the lifetimes of blocks. */
static void mli_text_ages(mli_report *r, uint32_t i) {
    const uint64_t *n = r->lifetime[i];
    uint32_t size, shown = 0;
    int device = mli_report_device(r, i + 1);
    for (size = 0; size < MLI_SIZES; size++) {
        if (!r->sizes[i][size]) continue;
        if (!shown++) mli_putf(r->o, "sizes of live blocks, %i", device);
        mli_putf(r->o, shown > 1 ? ", %ju from %jo" : ": %ju from %jo", r->sizes[i][size],
                 size ? (uint64_t)1 << (size - 1) : 0);
    }
    if (shown) mli_put_str(r->o, "\n");
    if (r->lifetimes)
        mli_putf(
            r->o, "lifetimes, %i: %ju under 0.1 s, %ju under 1 s, %ju under 10 s, %ju longer\n",
            device, n[0], n[1], n[2], n[3]);
}

static void mli_text_accounts(mli_report *r) {
    size_t i;
    if (!r->accounts) return;
    mli_putf(r->o, "\n       bytes        peak       limit     refused  accounts: %ju of %ju\n",
             (uint64_t)r->account_lines, (uint64_t)r->accounts);
    for (i = 0; i < r->account_lines; i++) {
        const memlord_account_stat *s = &r->account[i];
        mli_putf(r->o, "%12jo%12jo%12jo%12ju  %s on %i\n", s->bytes, s->peak, s->limit,
                 s->refused, s->name, mli_device_code(s->device));
    }
}

/* Writes a shape as "[4096,128]"; nothing for rank 0. */
static void mli_put_shape(mli_out *o, const memlord_meta *meta, const char *between) {
    uint32_t i;
    for (i = 0; i < meta->rank; i++) {
        mli_put_str(o, i ? between : "[");
        mli_put_i64(o, meta->shape[i]);
    }
    if (meta->rank) mli_put_str(o, "]");
}
static void mli_text_meta(mli_out *o, const memlord_meta *meta) {
    if (meta->name) mli_putf(o, " %s", meta->name);
    if (meta->dtype || meta->rank) mli_put_str(o, " ");
    if (meta->dtype) mli_put_escaped(o, meta->dtype, 0, "");
    mli_put_shape(o, meta, "x");
}

/* Writes the first parts of a block, below its line. */
static void mli_text_parts(mli_report *r, const memlord_block_info *b) {
    uint64_t count, bytes;
    size_t i, n = mli_parts_copy(r->lord, (uint32_t)b->device.type, b->storage, 0, r->part, 8,
                                 &count, &bytes);
    for (i = 0; i < n; i++) {
        const memlord_part_info *part = &r->part[i];
        mli_putf(r->o, "%22jo at %ju", part->bytes, part->offset);
        if (part->meta.tag) mli_putf(r->o, " [%s]", part->meta.tag);
        mli_text_meta(r->o, &part->meta);
        mli_put_str(r->o, "\n");
    }
    if (count > n)
        mli_putf(r->o, "          ... and %ju more parts, %jo in all\n", count - n, bytes);
}

static void mli_text_blocks(mli_report *r, size_t most, int parts) {
    size_t i, shown = r->blocks < most ? r->blocks : most;
    uint64_t sum = 0;
    if (!shown) return;
    for (i = 0; i < shown; i++) sum += r->block[i].bytes;
    mli_putf(r->o, "\n       bytes    refs  largest blocks: %ju of %ju, %jo\n",
             (uint64_t)shown, r->total.live_blocks, sum);
    for (i = 0; i < shown; i++) {
        const memlord_block_info *b = &r->block[i];
        mli_putf(r->o, "%12jo%8ju  %i %jx", b->bytes, b->refs, mli_device_code(b->device),
                 b->storage);
        if (b->tag) mli_putf(r->o, " [%s]", b->tag);
        mli_text_meta(r->o, &b->meta);
        if (b->scope) mli_putf(r->o, " in %s", b->scope);
        if (b->site) mli_putf(r->o, "  %p", (const void *)b->site);
        mli_put_str(r->o, b->pending ? " (pending)\n" : "\n");
        if (parts) mli_text_parts(r, b);
    }
}

/* -- TEXT, second part: scopes, snapshots, the peak, leaks -- */

static void mli_text_scopes(mli_report *r) {
    uint32_t id, shown = r->scopes < MLI_TOP_SITES ? r->scopes : MLI_TOP_SITES;
    if (!shown) return;
    mli_put_str(r->o, "\n   count  delta in all   delta avg  peak inside        live"
                      "   time in all    time avg  scope\n");
    for (id = 1; id <= shown; id++) {
        const mli_scope_line *line = &r->scope[id];
        const memlord_scope_stat *s = &line->stat;
        mli_putf(r->o, "%8ju%14jd%12jd%13jo%12jo%14jX%12jX  %s", s->count, s->bytes.total,
                 mli_average(s->bytes.total, s->count), s->peak, line->live_bytes, s->ns.total,
                 (uint64_t)mli_average((int64_t)s->ns.total, s->count), s->path);
        if (s->device_ns) mli_putf(r->o, ", on its device %jX", s->device_ns);
        mli_put_str(r->o, s->running ? " (running)\n" : "\n");
    }
    mli_text_more(r, r->scopes, shown, "scopes");
}

/* Writes one line for all snapshots, then one for each checkpoint if there are at most 20. */
static void mli_text_snapshots(mli_report *r) {
    uint32_t i, named = 0;
    const char *peak = mli_report_peak_name(r);
    if (!r->snapshots) return;
    for (i = 0; i < r->snapshots; i++) named += r->snapshot[i]->name != NULL;
    mli_putf(r->o, "\nsnapshots: %ju, checkpoints %ju", (uint64_t)r->snapshots, (uint64_t)named);
    if (peak) mli_putf(r->o, ", most at %s", peak);
    mli_put_str(r->o, "\n");
    for (i = 0; i < r->snapshots && named <= 20; i++) {
        const mli_snapshot *s = r->snapshot[i];
        if (s->name)
            mli_putf(r->o, "%12jX%12jo%11ju blocks  %s\n", s->time, s->live, s->blocks, s->name);
    }
}

/* Writes "at the peak of cpu, with 12 MiB; by tag: weights 8 MiB, ...; by site: ...". The holders
   may be those of a little below the peak: then "noted at 12 MiB of 12.5 MiB". */
static void mli_text_holders(mli_report *r, uint32_t dev) {
    mli_holders *h = &r->holders;
    const uint64_t peak = r->stat[dev - 1].peak;
    if (!mli_holders_get(r->lord, dev, h)) return;
    if (h->tags == 1 && !h->tag[0].tag) h->tags = 0; /* nothing is tagged */
    if (!(h->tags | h->sites)) return;
    mli_putf(r->o, h->bytes < peak ? "at the peak of %i, noted at %jo of %jo"
                                   : "at the peak of %i, with %jo",
             mli_report_device(r, dev), h->bytes, peak);
    mli_put_largest(r->o, h->tag, h->tags < 6 ? h->tags : 6, h->site, h->sites < 4 ? h->sites : 4);
    mli_put_str(r->o, "\n");
}

/* Lists the leaks since the last mark. Without a mark it writes nothing: every live block would be
   in the list. */
static void mli_text_leaks(mli_report *r) {
    size_t i;
    if (!r->mark || !r->leaks.blocks) return;
    mli_putf(r->o, "\n       bytes     blocks  leaks since mark %ju: ", r->mark);
    mli_put_amount(r->o, r->leaks.bytes, r->leaks.blocks);
    mli_put_str(r->o, "\n");
    for (i = 0; i < r->leaks.count && i < 20; i++) {
        const mli_leak_group *leak = &r->leaks.at[i];
        mli_putf(r->o, "%12jo%11ju  ", leak->bytes, leak->blocks);
        mli_put_leak(r->o, r->lord, leak);
        mli_put_str(r->o, "\n");
    }
}

/* 1: a move or a copy went that way since the last reset. */
static int mli_route_used(const mli_route *route) {
    return (mli_u64_load(&route->moves) | mli_u64_load(&route->copies)) != 0;
}
/* Lists the moves and the copies of each pair of devices, the newest pair first. */
static void mli_text_routes(mli_report *r) {
    const mli_route *route = (const mli_route *)mli_ptr_load_acquire(&r->lord->blocks.routes);
    int lines = 0;
    for (; route; route = route->next) {
        if (!mli_route_used(route)) continue;
        if (!lines++)
            mli_put_str(r->o, "\n       moves       bytes      copies       bytes  from, to\n");
        mli_putf(r->o, "%12ju%12jo%12ju%12jo  %i, %i\n", mli_u64_load(&route->moves),
                 mli_u64_load(&route->moved_bytes), mli_u64_load(&route->copies),
                 mli_u64_load(&route->copied_bytes), mli_report_device(r, route->from),
                 mli_report_device(r, route->to));
    }
}

/* Writes the ledger's bytes on a physical device as " (weights 40 GiB, ..., untagged 1 GiB)". */
static void mli_text_phys_self(mli_report *r, const mli_phys_line *line) {
    uint64_t left = line->self - line->untagged;
    size_t i, shown = 0;
    if (!left) return;
    for (i = 0; i < r->tag_lines && shown < 6; i++) {
        const mli_tag_line *tag = &r->top_tag[i];
        if (tag->phys != line || !mli_dev_uses_capacity(r->lord, tag->dev)) continue;
        if (!tag->stat.allocated) break;
        mli_putf(r->o, shown++ ? ", %s %jo" : " (%s %jo", tag->stat.tag, tag->stat.allocated);
        mli_take_off(&left, tag->stat.allocated);
    }
    if (left) mli_putf(r->o, shown ? ", other tags %jo" : " (other tags %jo", left);
    if (line->untagged) mli_putf(r->o, ", untagged %jo", line->untagged);
    mli_put_str(r->o, ")");
}

/* Writes the balance of a physical device as
   "cuda:0: total 80 GiB = free 20 GiB + self 50 GiB (weights 40 GiB, ...) + unaccounted 10 GiB". */
static void mli_text_phys_sum(mli_report *r, const mli_phys_line *line) {
    if (line->total == UINT64_MAX) return;
    mli_putf(r->o, "%i: total %jo = free %jo + self %jo", mli_device_code(line->of.device),
             line->total, line->free, line->self);
    mli_text_phys_self(r, line);
    if (line->unaccounted < 0)
        mli_putf(r->o, " - unaccounted %jo (less is in use than was recorded)\n",
                 line->self - line->used);
    else
        mli_putf(r->o, " + unaccounted %jo\n", (uint64_t)line->unaccounted);
}

/* Returns the name of the next anomaly or drop of a device that is not 0, and its count in *v.
   NULL: there is no other. dev 0: of all devices, with the losses of the ledger. *i is the next
   column to read: 0 at first. */
static MLI_COLD const char *mli_anomaly_next(mli_report *r, uint32_t dev, size_t *i, uint64_t *v) {
    memlord_stats *s = dev ? &r->stat[dev - 1] : &r->total;
    size_t end = dev ? (size_t)MLI_STAT_COUNT : (size_t)MLI_COLUMNS;
    while (*i < end) {
        size_t at = (*i)++;
        if (mli_columns[at].kind != MLI_KIND_ANOMALY) continue;
        *v = at < MLI_STAT_COUNT ? *mli_stat_of(s, at)
                                 : mli_loss_value(r->lord, at - MLI_STAT_COUNT);
        if (*v) return mli_columns[at].name;
    }
    return NULL;
}
static memlord_device mli_anomaly_device(const mli_report *r, uint32_t dev) {
    return dev ? mli_device_record_at(r->lord, dev)->device : memlord_device_all();
}

/* Writes all anomalies and drops of a device (dev 0: of all) in one line that begins with `head`.
   Writes nothing if there are none. */
static MLI_COLD void mli_text_anomalies(mli_report *r, mli_out *o,
                                        const char *head, uint32_t dev) {
    const char *name;
    size_t i = 0;
    uint64_t v, n = 0;
    while ((name = mli_anomaly_next(r, dev, &i, &v)) != NULL) {
        if (!n) {
            mli_put_str(o, head);
            mli_put_device(o, mli_anomaly_device(r, dev));
        }
        mli_putf(o, n++ ? ", %s %ju" : " %s %ju", name, v);
    }
    if (n) mli_put_str(o, "\n");
}

static MLI_COLD void mli_text_full(mli_report *r) {
    uint32_t i;
    size_t k;
    mli_put_str(r->o, "\n---- in full ----\n");
    if (r->devices > MLI_FIRST_DEVICES) mli_text_devices(r, r->devices);
    if (r->phys_count > MLI_FIRST_PHYS) mli_text_phys_all(r, r->phys_count);
    mli_put_str(r->o, "\n");
    for (k = 0; k < r->phys_count; k++) mli_text_phys_sum(r, &r->phys[k]);
    for (i = 0; i < r->devices; i++) {
        mli_text_holders(r, i + 1);
        mli_text_trouble(r, i);
        mli_text_pool(r, i);
        mli_text_rates(r, i);
        mli_text_ages(r, i);
        if (r->devices > 1) mli_text_anomalies(r, r->o, "anomalies and drops, ", i + 1);
    }
    mli_text_snapshots(r);
    mli_text_scopes(r);
    mli_text_leaks(r);
    mli_text_routes(r);
    mli_text_accounts(r);
    if (r->tags > MLI_FIRST_TAGS) mli_text_tags(r, MLI_TOP_TAGS);
    if (r->sites > MLI_FIRST_SITES) mli_text_sites(r, MLI_TOP_SITES);
    if (r->blocks > MLI_FIRST_BLOCKS || r->has_parts) mli_text_blocks(r, 20, 1);
}

static MLI_COLD void mli_text(mli_report *r) {
    mli_putf(r->o, "MemLord " MEMLORD_VERSION "  pid %ju  up ", mli_pid());
    mli_put_fixed(r->o, r->uptime / 100000000u, 1);
    mli_putf(r->o, " s  its own memory %jo, %jX a pair", mli_u64_load(&r->lord->memory.own_bytes),
             mli_u64_load(&r->lord->saving.alloc_free_ps) / 1000);
    if (r->total.peak_error)
        mli_putf(r->o, "  peaks low by at most %jo", r->total.peak_error);
    mli_put_str(r->o, "\n");
    if (!r->devices) {
        mli_put_str(r->o, "nothing recorded\n");
        return;
    }
    mli_text_devices(r, MLI_FIRST_DEVICES);
    mli_text_phys_all(r, MLI_FIRST_PHYS);
    mli_text_tags(r, MLI_FIRST_TAGS);
    mli_text_sites(r, MLI_FIRST_SITES);
    mli_text_blocks(r, MLI_FIRST_BLOCKS, 0);
    mli_text_anomalies(r, r->o, "\nanomalies and drops, ", 0);
    mli_text_full(r);
}

/* -- JSON, schema memlord/1 -- */

static void mli_json_u64(mli_out *o, const char *name, uint64_t v) {
    mli_jsonf(o, ",%s:%ju", name, v);
}
/* Writes a rate, given in billionths. */
static MLI_COLD void mli_json_rate(mli_out *o, const char *name, uint64_t rate) {
    mli_jsonf(o, rate == UINT64_MAX ? ",%s:null" : ",%s:", name);
    if (rate != UINT64_MAX) mli_put_fixed(o, rate, 9);
}
static MLI_COLD void mli_json_stats(mli_out *o, memlord_stats *s) {
    size_t i;
    mli_put_str(o, "{");
    for (i = 0; i < MLI_STAT_COUNT; i++)
        mli_json_u64(o, mli_columns[i].name, *mli_stat_of(s, i));
    for (i = 0; i < MLI_RATE_COUNT; i++) mli_json_rate(o, mli_rates[i].name, mli_rate_read(s, i));
    mli_json_u64(o, "mean_bytes", mli_mean_read(s));
    mli_put_str(o, "}");
}
static void mli_json_flag(mli_out *o, const char *name, int on) {
    mli_jsonf(o, on ? ",%s:true" : ",%s:false", name);
}
/* Writes a moment as date and time. `wall`: ns of the wall clock. */
static MLI_COLD void mli_json_time(mli_out *o, const char *name, uint64_t wall) {
    mli_jsonf(o, ",%s:'", name);
    mli_put_time(o, wall, 0);
    mli_put_str(o, "\"");
}

static void mli_json_metadata(mli_report *r) {
    memlord *lord = r->lord;
    uint64_t ps = mli_u64_load(&lord->saving.alloc_free_ps);
    size_t i;
    mli_jsonf(r->o, "{'schema':'memlord/1','version':'" MEMLORD_VERSION "','metadata':{");
    mli_json_time(r->o, "generated_at", mli_wall_now());
    mli_jsonf(r->o,
              ",'pid':%ju,'labels':%s,'uptime_ns':%ju,'own_bytes':%ju,'pair_ns':%ju,'mark':%ju,"
              "'num_snapshots':%ju",
              mli_pid(), lord->saving.labels, r->uptime, mli_u64_load(&lord->memory.own_bytes),
              ps ? ps / 1000 : UINT64_MAX, r->mark, (uint64_t)r->snapshots);
    mli_json_flag(r->o, "operation_tracking_enabled", r->scopes != 0);
    mli_json_flag(r->o, "sites_enabled",
                  (mli_u32_load(&lord->threads.hooks) & MLI_HOOK_SITES) != 0);
    mli_json_flag(r->o, "events_enabled",
                  (mli_u32_load(&lord->threads.alert) & MLI_ALERT_EVENTS) != 0);
    mli_jsonf(r->o, ",'dropped':{");
    for (i = 0; i < MLI_LOSS_COUNT; i++)
        mli_json_u64(r->o, mli_columns[MLI_STAT_COUNT + i].name + sizeof "dropped",
                     mli_loss_value(lord, i));
    mli_jsonf(r->o, ",'events':%ju}}", r->total.dropped_events);
}

static void mli_json_lifetimes(mli_report *r, uint32_t i) {
    const uint64_t *n = r->lifetime[i];
    if (r->lifetimes)
        mli_jsonf(r->o, "{'under_100ms':%ju,'under_1s':%ju,'under_10s':%ju,'longer':%ju}",
                  n[0], n[1], n[2], n[3]);
    else
        mli_put_str(r->o, "null");
}

static void mli_json_oom(mli_report *r, uint32_t dev) {
    mli_oom oom = mli_oom_of(r->lord, dev);
    if (oom.time)
        mli_jsonf(r->o, "{'bytes':%ju,'live':%ju,'used':%ju,'site':%p}", oom.bytes, oom.live,
                  oom.used, (const void *)oom.site);
    else
        mli_put_str(r->o, "null");
}

static void mli_json_devices(mli_report *r) {
    uint32_t i, size;
    mli_jsonf(r->o, ",\n'total':");
    mli_json_stats(r->o, &r->total);
    mli_jsonf(r->o, ",\n'devices':[");
    for (i = 0; i < r->devices; i++) {
        mli_device_record *device = mli_device_record_at(r->lord, i + 1);
        mli_jsonf(r->o, ",\n{'device':'%i','label':%s,'arena':%ju,'stats':",
                  mli_device_code(device->device),
                  (const char *)mli_ptr_load_acquire(&device->label), mli_u64_load(&device->arena));
        mli_json_stats(r->o, &r->stat[i]);
        mli_jsonf(r->o, ",'cached_ratio':%g,'fragmentation':%g,'sizes':[",
                  memlord_cached_ratio(&r->stat[i]), memlord_fragmentation(&r->stat[i]));
        for (size = 0; size < MLI_SIZES; size++)
            if (r->sizes[i][size])
                mli_jsonf(r->o, ",{'from':%ju,'blocks':%ju}",
                          size ? (uint64_t)1 << (size - 1) : 0, r->sizes[i][size]);
        mli_jsonf(r->o, "],'lifetimes':");
        mli_json_lifetimes(r, i);
        mli_jsonf(r->o, ",'last_oom':");
        mli_json_oom(r, i + 1);
        mli_put_str(r->o, "}");
    }
    mli_put_str(r->o, "]");
}

static void mli_json_phys_all(mli_report *r) {
    uint32_t dev;
    size_t i;
    mli_jsonf(r->o, ",\n'capacity':[");
    for (i = 0; i < r->phys_count; i++) {
        const mli_phys_line *line = &r->phys[i];
        mli_jsonf(r->o,
                  ",\n{'device':'%i','total':%ju,'used':%ju,'free':%ju,'self':%ju,'untagged':%ju,"
                  "'unaccounted':%jd,'process':%ju,'others':%ju,'age_ns':%ju,'limit':%ju,"
                  "'held':%ju,'devices':[",
                  mli_device_code(line->of.device), line->total, line->used, line->free,
                  line->self, line->untagged, line->unaccounted, line->process, line->others,
                  line->age, line->limit, line->held);
        for (dev = 1; dev <= r->devices; dev++) /* devices that count on it */
            if (mli_report_phys(r, dev) == line && mli_dev_uses_capacity(r->lord, dev))
                mli_jsonf(r->o, ",'%i'", mli_report_device(r, dev));
        mli_put_str(r->o, "]}");
    }
    mli_put_str(r->o, "]");
}

static void mli_json_accounts(mli_report *r) {
    size_t i;
    mli_jsonf(r->o, ",\n'accounts':{'open':%ju,'largest':[", (uint64_t)r->accounts);
    for (i = 0; i < r->account_lines; i++) {
        const memlord_account_stat *s = &r->account[i];
        mli_jsonf(r->o,
                  ",\n{'name':%s,'device':'%i','bytes':%ju,'peak':%ju,'limit':%ju,'refused':%ju}",
                  s->name, mli_device_code(s->device), s->bytes, s->peak, s->limit, s->refused);
    }
    mli_put_str(r->o, "]}");
}

static void mli_json_tags(mli_report *r) {
    uint32_t i;
    mli_jsonf(r->o, ",\n'tags':[");
    for (i = 1; i <= r->tags; i++) {
        const memlord_tag_stat *s = &r->tag[i].stat;
        mli_jsonf(r->o,
                  ",\n{'tag':%s,'device':'%i','allocated':%ju,'peak':%ju,'blocks':%ju,"
                  "'expected':%ju,'variance':%jd}",
                  s->tag, mli_device_code(r->tag[i].of.device), s->allocated, s->peak, s->blocks,
                  s->expected, s->variance);
    }
    mli_put_str(r->o, "]");
}

static void mli_json_sites(mli_report *r) {
    uint32_t i, rows = mli_row_count(r->lord, MLI_BOOK_SITE);
    mli_jsonf(r->o, ",\n'sites':[");
    for (i = 1; i < rows; i++) {
        memlord_site_stat s;
        mli_site_stat_fill(r->lord, i, &s);
        if (!(s.alloc_bytes | s.free_bytes | s.allocs | s.frees | s.live_bytes)) continue;
        mli_jsonf(r->o,
                  ",\n{'site':%p,'device':'%i','alloc_bytes':%ju,'free_bytes':%ju,"
                  "'allocs':%ju,'frees':%ju,'live_bytes':%ju,'peak_bytes':%ju}",
                  (const void *)s.site, mli_device_code(s.device), s.alloc_bytes,
                  s.free_bytes, s.allocs, s.frees, s.live_bytes, s.peak_bytes);
    }
    mli_put_str(r->o, "]");
}

/* -- JSON: scopes -- */

/* Writes "name_mb":1.00,"name_bytes":1048576. MiB is for people and older readers; bytes are
   exact. */
static MLI_COLD void mli_json_mb(mli_out *o, const char *name, int64_t bytes) {
    uint64_t size = bytes < 0 ? (uint64_t)0 - (uint64_t)bytes : (uint64_t)bytes;
    mli_jsonf(o, ",'");
    mli_put_str(o, name);
    mli_jsonf(o, bytes < 0 ? "_mb':-" : "_mb':");
    mli_put_fixed(o, (size >> 20) * 100 + (((size & 0xfffffu) * 100 + 0x80000u) >> 20), 2);
    mli_jsonf(o, ",'");
    mli_put_str(o, name);
    mli_jsonf(o, "_bytes':%jd", bytes);
}
static void mli_json_four(mli_out *o, const char *name, uint64_t count, int64_t total,
                          int64_t min, int64_t max) {
    mli_jsonf(o, ",%s:{'total':%jd,'avg':%jd,'min':%jd,'max':%jd}", name, total,
              mli_average(total, count), min, max);
}

/* Calls fn for each remembered invocation of a scope: one thread scope after the other, the oldest
   invocation first. */
typedef void (*mli_scope_run_fn)(mli_report *r, const mli_scope_run *v, uint32_t thread);
static void mli_report_scope_runs(mli_report *r, const mli_scope_record *scope,
                                  mli_scope_run_fn fn) {
    const mli_thread_scope *s = (const mli_thread_scope *)mli_ptr_load_acquire(&scope->threads);
    for (; s; s = s->next) {
        size_t i, n = mli_thread_scope_read(r->lord, s, r->run);
        for (i = 0; i < n; i++) fn(r, &r->run[i], s->thread / 2 - 1);
    }
}

/* Writes an invocation as [start_ns,duration_ns,thread,delta_bytes,delta_blocks,pre_bytes,
   post_bytes,peak_bytes,shapes]. */
static MLI_COLD void mli_json_invocation(mli_report *r, const mli_scope_run *v, uint32_t thread) {
    mli_jsonf(
        r->o, ",\n[%jd,%jd,%ju,%jd,%jd,%jd,%jd,%jd,%s]", (int64_t)mli_since_ns(&r->scale, v->start),
        (int64_t)mli_span_ns(&r->scale, v->stamps), (uint64_t)thread, (int64_t)v->bytes,
        (int64_t)v->blocks, (int64_t)v->before, (int64_t)v->after, (int64_t)v->peak,
        (const char *)(uintptr_t)v->shapes);
}
static MLI_COLD void mli_json_operation(mli_report *r, const mli_scope_run *v, uint32_t thread) {
    (void)thread;
    mli_jsonf(r->o, ",\n{");
    mli_json_mb(r->o, "memory_delta", (int64_t)v->bytes);
    mli_jsonf(r->o, ",'tensor_delta':%jd", (int64_t)v->blocks);
    mli_json_mb(r->o, "pre_total", (int64_t)v->before);
    mli_json_mb(r->o, "post_total", (int64_t)v->after);
    mli_json_time(r->o, "timestamp",
                  r->lord->lifecycle.started_wall + mli_since_ns(&r->scale, v->start));
    mli_put_str(r->o, "}");
}

static void mli_json_scope(mli_report *r, uint32_t id) {
    const mli_scope_record *scope = mli_scope_record_at(r->lord, id);
    const mli_scope_line *line = &r->scope[id];
    memlord_scope_stat s;
    uint32_t dev;
    memset(r->deltas, 0, sizeof r->deltas);
    mli_scope_sum(r->lord, scope, &r->scale, &s, r->deltas);
    mli_jsonf(r->o, ",\n{'id':%ju,'parent':%ju,'name':%s,'path':%s,'site':%p,'count':%ju",
              (uint64_t)id, s.parent, s.name, s.path, (const void *)s.site, s.count);
    mli_json_four(r->o, "delta_bytes", s.count, s.bytes.total, s.bytes.min, s.bytes.max);
    mli_json_four(r->o, "delta_blocks", s.count, s.blocks.total, s.blocks.min, s.blocks.max);
    mli_json_u64(r->o, "peak_bytes", s.peak);
    mli_json_four(r->o, "time_ns", s.count, (int64_t)s.ns.total, (int64_t)s.ns.min,
                  (int64_t)s.ns.max);
    mli_jsonf(r->o,
              ",'device_time_ns':%ju,'live_bytes':%ju,'live_blocks':%ju,'running':%ju,"
              "'devices':{",
              s.device_ns, line->live_bytes, line->live_blocks, s.running);
    for (dev = 1; dev <= r->devices; dev++)
        if (r->deltas[dev])
            mli_jsonf(r->o, ",'%i':%jd", mli_report_device(r, dev), (int64_t)r->deltas[dev]);
    mli_jsonf(r->o, "},'invocations':[");
    mli_report_scope_runs(r, scope, mli_json_invocation);
    mli_put_str(r->o, "]}");
}

/* Writes the scopes, then writes them again under the keys that readers of older profiles know. */
static void mli_json_scopes(mli_report *r) {
    uint32_t id;
    mli_jsonf(r->o, ",\n'scopes':[");
    for (id = 1; id <= r->scopes; id++) mli_json_scope(r, id);
    mli_jsonf(r->o, "],\n'operation_allocations':{");
    for (id = 1; id <= r->scopes; id++) {
        const mli_scope_record *scope = mli_scope_record_at(r->lord, id);
        mli_jsonf(r->o, ",\n%s:[", scope->path);
        mli_report_scope_runs(r, scope, mli_json_operation);
        mli_put_str(r->o, "]");
    }
    mli_jsonf(r->o, "},\n'operation_summary':{");
    for (id = 1; id <= r->scopes; id++) {
        const memlord_scope_stat s = r->scope[id].stat;
        mli_jsonf(r->o, ",\n%s:{'invocation_count':%ju", s.path, s.count);
        mli_json_mb(r->o, "total_memory_delta", s.bytes.total);
        mli_json_mb(r->o, "avg_memory_delta", mli_average(s.bytes.total, s.count));
        mli_json_mb(r->o, "max_memory_delta", s.bytes.max);
        mli_put_str(r->o, "}");
    }
    mli_put_str(r->o, "}");
}

/* -- JSON: snapshots -- */

static MLI_COLD void mli_json_shape(mli_out *o, const memlord_meta *meta) {
    mli_jsonf(o, ",'shape':");
    mli_put_shape(o, meta, ",");
    if (!meta->rank) mli_put_str(o, "[]");
}

static void mli_json_tensors(mli_report *r, const mli_snapshot *s, memlord_device d) {
    size_t i;
    for (i = 0; i < s->top_blocks; i++) {
        const memlord_block_info *b = &mli_snapshot_top(s)[i];
        if (b->device.type != d.type || b->device.index != d.index) continue;
        mli_jsonf(r->o, ",{");
        mli_json_mb(r->o, "size", (int64_t)b->bytes);
        mli_json_shape(r->o, &b->meta);
        mli_jsonf(r->o,
                  ",'dtype':%s,'device':'%i','name':%s,'tag':%s,'operation':%s,"
                  "'requires_grad':null}",
                  b->meta.dtype, mli_device_code(d), b->meta.name, b->tag, b->scope);
    }
}

static void mli_json_snapshot(mli_report *r, const mli_snapshot *s) {
    uint32_t i;
    mli_jsonf(r->o, ",\n{");
    mli_json_time(r->o, "timestamp", r->lord->lifecycle.started_wall + s->time);
    mli_jsonf(r->o, ",'time_ns':%ju,'checkpoint_name':%s", s->time, s->name);
    mli_json_mb(r->o, "total", (int64_t)s->live);
    mli_jsonf(r->o, ",'tensor_count':%ju,'device_breakdown':{", s->blocks);
    for (i = 0; i < s->devices; i++) {
        const mli_device_usage *held = &mli_snapshot_devices(s)[i];
        memlord_device d = mli_device_record_at(r->lord, i + 1)->device;
        mli_jsonf(r->o, ",\n'%i':{", mli_device_code(d));
        mli_json_mb(r->o, "total", (int64_t)held->live);
        mli_jsonf(r->o,
                  ",'pending_bytes':%ju,'reserved_bytes':%ju,'peak_bytes':%ju,'count':%ju,"
                  "'tensors':[",
                  held->pending, held->reserved, held->peak, held->blocks);
        mli_json_tensors(r, s, d);
        mli_put_str(r->o, "]}");
    }
    mli_put_str(r->o, "}}");
}

static void mli_json_snapshots(mli_report *r) {
    uint32_t i;
    mli_jsonf(r->o, ",\n'snapshots':[");
    for (i = 0; i < r->snapshots; i++) mli_json_snapshot(r, r->snapshot[i]);
    mli_put_str(r->o, "]");
}

/* Writes the summary: the checkpoints, the peak, the checkpoint with the most live bytes, and the
   live bytes at the end. */
static void mli_json_summary(mli_report *r) {
    uint32_t i;
    mli_jsonf(r->o, ",\n'summary':{'num_snapshots':%ju,'checkpoints':[", (uint64_t)r->snapshots);
    for (i = 0; i < r->snapshots; i++)
        if (r->snapshot[i]->name) mli_jsonf(r->o, ",%s", r->snapshot[i]->name);
    mli_put_str(r->o, "]");
    mli_json_mb(r->o, "peak_memory", (int64_t)r->total.peak);
    mli_jsonf(r->o, ",'peak_memory_checkpoint':%s", mli_report_peak_name(r));
    mli_json_mb(r->o, "final_memory", (int64_t)r->total.allocated);
    mli_put_str(r->o, "}");
}

/* -- JSON: peak holders, leaks, moves, threads -- */

static void mli_json_holders(mli_report *r) {
    uint32_t i;
    size_t k;
    mli_holders *h = &r->holders;
    mli_jsonf(r->o, ",\n'peak_holders':[");
    for (i = 1; i <= r->devices; i++) {
        if (!mli_holders_get(r->lord, i, h)) continue;
        mli_jsonf(r->o, ",\n{'device':'%i','bytes':%ju,'time_ns':%ju,'tags':[",
                  mli_report_device(r, i), h->bytes, h->time);
        for (k = 0; k < h->tags; k++)
            mli_jsonf(r->o, ",{'tag':%s,'bytes':%ju}", h->tag[k].tag, h->tag[k].allocated);
        mli_jsonf(r->o, "],'sites':[");
        for (k = 0; k < h->sites; k++)
            mli_jsonf(r->o, ",{'site':%p,'bytes':%ju}", (const void *)h->site[k].site,
                      h->site[k].live_bytes);
        mli_put_str(r->o, "]}");
    }
    mli_put_str(r->o, "]");
}

static void mli_json_leaks(mli_report *r) {
    size_t i;
    mli_jsonf(r->o, ",\n'leaks':{'since_mark':%ju,'count':%ju,'bytes':%ju,'by_site':[",
              r->mark, r->leaks.blocks, r->leaks.bytes);
    for (i = 0; i < r->leaks.count; i++) {
        const mli_leak_group *leak = &r->leaks.at[i];
        const memlord_block_info of = mli_leak_info(r->lord, leak);
        mli_jsonf(r->o, ",\n{'site':%p,'tag':%s,'scope':%s,'device':'%i','count':%ju,'bytes':%ju}",
                  (const void *)of.site, of.tag, of.scope, mli_device_code(of.device),
                  leak->blocks, leak->bytes);
    }
    mli_put_str(r->o, "]}");
}

static void mli_json_moves(mli_report *r) {
    const mli_route *route = (const mli_route *)mli_ptr_load_acquire(&r->lord->blocks.routes);
    mli_jsonf(r->o, ",\n'moves':[");
    for (; route; route = route->next)
        if (mli_route_used(route))
            mli_jsonf(r->o,
                      ",{'from':'%i','to':'%i','count':%ju,'bytes':%ju,'copies':%ju,"
                      "'copied_bytes':%ju}",
                      mli_report_device(r, route->from), mli_report_device(r, route->to),
                      mli_u64_load(&route->moves), mli_u64_load(&route->moved_bytes),
                      mli_u64_load(&route->copies), mli_u64_load(&route->copied_bytes));
    mli_put_str(r->o, "]");
}

static void mli_json_threads(mli_report *r) {
    const mli_thread *t = (const mli_thread *)mli_ptr_load_acquire(&r->lord->threads.all);
    mli_jsonf(r->o, ",\n'threads':[");
    for (; t; t = (const mli_thread *)mli_ptr_load(&t->next)) {
        uint64_t allocs = 0, frees = 0, in = 0, out = 0;
        uint32_t i;
        for (i = 1; i <= r->devices; i++) {
            const mli_cell *cell = mli_cell_at(t, MLI_BOOK_DEVICE, i);
            if (!cell) continue;
            allocs += mli_u64_load(&cell->allocs);
            frees += mli_u64_load(&cell->frees);
            out += mli_u64_load(&cell->out);
            in += mli_u64_load(&cell->level) + mli_u64_load(&cell->out);
        }
        if (allocs | frees | in | out)
            mli_jsonf(r->o,
                      ",{'id':%ju,'allocs':%ju,'frees':%ju,'bytes_allocated':%ju,"
                      "'bytes_freed':%ju}",
                      (uint64_t)t->id - MLI_THREAD_ID_FIRST + 1, allocs, frees, in, out);
    }
    mli_put_str(r->o, "]");
}

/* -- JSON: events. Sites and tags are indices into "strings": 0 is "", site rows come first, tag
      rows behind them -- */

static void mli_json_strings(mli_report *r) {
    uint32_t i;
    mli_jsonf(r->o, ",\n'strings':[''");
    for (i = 1; i <= r->site_rows; i++) {
        char text[512];
        mli_out o;
        mli_out_buffer(&o, text, sizeof text);
        mli_put_site(&o, 0, mli_row_site(r->lord, i));
        (void)mli_out_end(&o, sizeof text);
        mli_jsonf(r->o, ",\n%s", text);
    }
    for (i = 1; i <= r->tags; i++)
        mli_jsonf(r->o, ",\n%s", (const char *)mli_row_at(r->lord, MLI_BOOK_TAG, i)->subject);
    mli_put_str(r->o, "]");
}

static void mli_json_event(mli_report *r, const mli_event_copy *e) {
    uint64_t site = e->where & MLI_SITE_ROWS_MAX;
    uint64_t tag = e->where >> 20 & MLI_TAG_ROWS_MAX;
    uint32_t kind = mli_event_kind(e->what);
    int named = kind == MEMLORD_EVENT_CHECKPOINT;
    mli_jsonf(r->o, ",\n[%ju,%ju,%ju,%jd,", mli_since_ns(&r->scale, e->stamp),
              (uint64_t)kind, (uint64_t)e->thread, (int64_t)mli_event_dev(e->what) - 1);
    if (e->storage && !named)
        mli_jsonf(r->o, "'%jx',", e->storage);
    else
        mli_put_str(r->o, "0,");
    mli_jsonf(r->o, "%ju,%ju,", MLI_BYTES(e->what), site <= r->site_rows ? site : 0);
    if (named)
        mli_put_json(r->o, (const char *)(uintptr_t)e->storage);
    else
        mli_put_u64(r->o, tag && tag <= r->tags ? r->site_rows + tag : 0);
    mli_jsonf(r->o, ",%ju]", e->where >> 36);
}

static void mli_json_events(mli_report *r) {
    static const char kinds[] = ""
#define MLI_X(name, text) ",\"" text "\""
        MLI_EVENTS(MLI_X)
#undef MLI_X
        ;
    const mli_ring *ring = (mli_ring *)mli_ptr_load_acquire(&r->lord->events.ring);
    mli_ring_reader reading;
    mli_event_copy e;
    uint64_t n = 0;
    mli_jsonf(r->o, ",\n'events':{'capacity':%ju,'lost':%ju,'kinds':[",
              ring ? (uint64_t)ring->capacity : 0, r->total.dropped_events);
    mli_put_str(r->o, kinds + 1);
    mli_jsonf(r->o, "],'list':[");
    if (ring && mli_ring_reader_begin(r->lord, &reading)) {
        reading.scale = r->scale;
        for (; !r->o->failed && mli_ring_reader_next(&reading, &e); n++)
            mli_json_event(r, &e);
        mli_ring_reader_end(&reading);
    }
    mli_jsonf(r->o, "],'recorded':%ju}", n);
}

/* -- JSON: blocks, and the whole report -- */

static MLI_COLD void mli_json_parts(mli_report *r, uint32_t type, uint64_t storage) {
    uint64_t count, bytes, offset = 0;
    size_t i, n, seen = 0;
    mli_jsonf(r->o, ",'parts':");
    n = mli_parts_copy(r->lord, type, storage, 0, r->part, 16, &count, &bytes);
    if (!n) {
        mli_put_str(r->o, "null");
        return;
    }
    mli_jsonf(r->o, "{'count':%ju,'bytes':%ju,'listed':[", count, bytes);
    while (n && seen < MLI_PARTS_SHOWN) {
        for (i = 0; i < n; i++, seen++) {
            const memlord_part_info *part = &r->part[i];
            mli_jsonf(r->o, ",\n{'offset':%ju,'bytes':%ju,'name':%s,'dtype':%s", part->offset,
                      part->bytes, part->meta.name, part->meta.dtype);
            mli_json_shape(r->o, &part->meta);
            mli_jsonf(r->o, ",'tag':%s}", part->meta.tag);
            offset = part->offset + 1;
        }
        n = mli_parts_copy(r->lord, type, storage, offset, r->part, 16, &count, &bytes);
    }
    mli_put_str(r->o, "]}");
}

static void mli_json_block(mli_report *r, const memlord_block_info *b) {
    mli_jsonf(r->o, /* storages as text: JSON readers round integers beyond 2^53 */
              ",\n{'device':'%i','storage':'%jx','bytes':%ju,'refs':%ju,'born':%ju,'tag':%s,"
              "'scope':%s,'site':%p,'name':%s,'dtype':%s",
              mli_device_code(b->device), b->storage, b->bytes, b->refs, b->born, b->tag,
              b->scope, (const void *)b->site, b->meta.name, b->meta.dtype);
    mli_json_shape(r->o, &b->meta);
    mli_jsonf(r->o, ",'flags':%ju,'pending':%ju", (uint64_t)b->meta.flags,
              (uint64_t)(b->pending != 0));
    mli_json_parts(r, (uint32_t)b->device.type, b->storage);
    mli_put_str(r->o, "}");
}

static MLI_COLD void mli_json(mli_report *r) {
    size_t i;
    uint64_t sum = 0;
    mli_json_metadata(r);
    mli_json_devices(r);
    mli_json_phys_all(r);
    mli_json_accounts(r);
    mli_json_tags(r);
    mli_json_sites(r);
    mli_json_summary(r);
    mli_json_holders(r);
    mli_json_leaks(r);
    mli_json_moves(r);
    mli_json_threads(r);
    mli_json_snapshots(r);
    mli_json_scopes(r);
    mli_json_strings(r);
    mli_json_events(r);
    for (i = 0; i < r->blocks; i++) sum += r->block[i].bytes;
    mli_jsonf(r->o, ",\n'largest_blocks':{'count':%ju,'of':%ju,'bytes':%ju,'blocks':[",
              (uint64_t)r->blocks, r->total.live_blocks, sum);
    for (i = 0; i < r->blocks; i++) mli_json_block(r, &r->block[i]);
    mli_put_str(r->o, "]}}\n");
}

/* ------------------------------------------------------------------------ >>page --
   The HTML report around its data, generated from examples/report by assemble.py: change
   it there. Minified by esbuild 0.17.0. */
#if !defined(MEMLORD_NO_REPORTS)

static const char mli_page_head[][3126] = {
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Con"
    "tent-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-ETy1B+9Ipqwl5ytH7FVVWg"
    "IB2HqT/lDf7lO8wbpB9cE='; script-src 'sha256-jnRYiRduECTzeyBPtjTqFVYOze91v3QnUZZFcBgsaKw='; ba"
    "se-uri 'none'; form-action 'none'\">\n<meta name=\"viewport\" content=\"width=device-width, i"
    "nitial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<title>MemLord report</t"
    "itle>\n<style>:root{color-scheme:light dark;--paper: light-dark(#fcfcfa,#15171b);--panel: lig"
    "ht-dark(#f4f4f0,#1d2026);--ink: light-dark(#1b1d21,#e4e6ea);--soft: light-dark(#5a5f69,#a0a6b"
    "1);--rule: light-dark(#dcdcd5,#343841);--grid: light-dark(#e9e9e3,#262a31);--accent: light-da"
    "rk(#1f5fa8,#7db2ee);--fill: light-dark(#1f5fa826,#7db2ee2e);--bar: light-dark(#1f5fa81c,#7db2"
    "ee26);--warn: light-dark(#a3341c,#ff9d84);--warnfill: light-dark(#fbeae5,#38211d);--good: lig"
    "ht-dark(#2c7a4b,#7fd09c);--other: light-dark(#b9bcc2,#565c67);--mono: ui-monospace, \"SF Mono"
    "\", Menlo, Consolas, \"DejaVu Sans Mono\", monospace}:root.light,:root.print{color-scheme:lig"
    "ht}:root.dark{color-scheme:dark}*{box-sizing:border-box}html{scroll-padding-top:3.4rem;-webki"
    "t-text-size-adjust:100%}@media (prefers-reduced-motion: no-preference){html{scroll-behavior:s"
    "mooth}}body{margin:0;background:var(--paper);color:var(--ink);overflow-wrap:break-word;font:1"
    "4px/1.5 system-ui,-apple-system,Segoe UI,Roboto,Liberation Sans,sans-serif;font-variant-numer"
    "ic:tabular-nums}[hidden]{display:none!important}a{color:inherit}:focus-visible{outline:2px so"
    "lid var(--accent);outline-offset:1px}button,select,input{font:inherit;color:inherit;backgroun"
    "d:var(--paper);border:1px solid var(--rule);border-radius:4px;padding:.2rem .6rem;min-height:"
    "2rem;max-width:100%}button{cursor:pointer}button:hover,select:hover{border-color:var(--soft)}"
    "button[aria-pressed=true]{background:var(--ink);color:var(--paper);border-color:var(--ink)}#t"
    "op{position:sticky;top:0;z-index:3;display:flex;align-items:center;gap:.6rem;padding:.4rem ma"
    "x(1rem,calc(50vw - 41rem));background:var(--paper);border-bottom:1px solid var(--rule)}h1{fon"
    "t-size:1.05rem;margin:0 .4rem 0 0;letter-spacing:-.01em}h1 a{text-decoration:none}#nav{flex:1"
    ";display:flex;gap:1rem;overflow-x:auto;scrollbar-width:none;min-width:0}#nav a{color:var(--so"
    "ft);text-decoration:none;padding:.3rem 0;white-space:nowrap}#nav a:hover,#nav a.here{color:va"
    "r(--ink)}#nav a.here{box-shadow:0 2px var(--accent)}main{max-width:84rem;margin:0 auto;paddin"
    "g:0 1rem 4rem}section{padding:1.6rem 0 0}section+section{margin-top:1.6rem;border-top:1px sol"
    "id var(--rule)}#peak~section{content-visibility:auto;contain-intrinsic-size:auto 30rem}sectio"
    "n.plain+section{border-top:0;margin-top:0}h2{font-size:1.2rem;line-height:1.3;letter-spacing:"
    "-.01em;margin:0 0 .2rem}h3{font-size:1rem;margin:0;overflow-wrap:anywhere}.note{color:var(--s"
    "oft);margin:0 0 .9rem;max-width:46rem}.soft,.figures dt,.facts dt,#tip dt,summary,.more,.keys"
    ",.tools output{color:var(--soft)}.mono{font-family:var(--mono);font-size:.92em}#message,.alar"
    "m{background:var(--warnfill);color:var(--ink);border-left:3px solid var(--warn);padd",
    "ing:.6rem .9rem;margin:1rem 0 0;overflow-wrap:anywhere}.alarm ul{margin:.2rem 0 0;padding-lef"
    "t:1.1rem}.alarm b{color:var(--warn)}#empty{margin:12vh auto 0;max-width:34rem;padding:3rem 1."
    "5rem;text-align:center;border:2px dashed var(--rule);border-radius:8px;color:var(--soft)}body"
    ".over main{outline:3px dashed var(--accent);outline-offset:-6px}footer{margin-top:2.5rem;colo"
    "r:var(--soft);font-size:.9em}.figures{display:flex;flex-wrap:wrap;gap:.8rem 3rem;margin:0}.fi"
    "gures div{min-width:0;max-width:26rem}.figures dd{margin:0;font-size:1.7rem;line-height:1.25;"
    "letter-spacing:-.02em}.figures dd small{display:block;font-size:.8rem;letter-spacing:0;color:"
    "var(--soft);overflow-wrap:anywhere}.facts{display:flex;flex-wrap:wrap;gap:.1rem 1.6rem;margin"
    ":1rem 0 0}.facts div{display:flex;gap:.4rem;min-width:0}.facts dd{margin:0;overflow-wrap:anyw"
    "here}.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(24rem,100%),1fr));"
    "gap:1rem}.card{background:var(--panel);border-radius:6px;padding:.9rem 1rem;min-width:0}.card"
    " header{display:flex;align-items:baseline;gap:.6rem}.card header b{font-size:1.15rem;white-sp"
    "ace:nowrap}.stack{display:flex;height:1.25rem;margin:.5rem 0;background:var(--paper);border-r"
    "adius:3px;overflow:hidden;box-shadow:inset 0 0 0 1px var(--rule)}.stack i{min-width:1px;box-s"
    "hadow:inset -1px 0 var(--panel)}.hue{background:light-dark(oklch(.83 .085 var(--hue)),oklch(."
    "48 .095 var(--hue)))}.hatch{background:repeating-linear-gradient(135deg,var(--other) 0 3px,tr"
    "ansparent 3px 6px)}.legend{list-style:none;margin:0;padding:0}.legend li{display:flex;gap:.45"
    "rem;align-items:baseline}.legend i{flex:none;width:.7rem;height:.7rem;border-radius:2px}.grey"
    "{background:var(--other)}.legend i.free{box-shadow:inset 0 0 0 1px var(--other);background:va"
    "r(--paper)}.card header .soft,.legend span:not(:last-child){flex:1;min-width:0;overflow:hidde"
    "n;text-overflow:ellipsis;white-space:nowrap}.card .sum{margin:.1rem 0 .4rem;color:var(--soft)"
    ";font-size:.93em}.card .facts{margin-top:.7rem;padding-top:.6rem;border-top:1px solid var(--r"
    "ule);gap:.1rem 1.2rem;font-size:.93em}.card .bad{color:var(--warn);margin:.6rem 0 0;overflow-"
    "wrap:anywhere}.charts{display:flex;flex-wrap:wrap;gap:.4rem 1.4rem}.bars{flex:3 1 10rem;margi"
    "n:.8rem 0 0;min-width:0}.bars+.bars{flex:1 1 7rem}.bars figcaption,.bars .axis{color:var(--so"
    "ft);font-size:.85em}.bars .plot{display:flex;align-items:flex-end;gap:1px;height:3.2rem;borde"
    "r-bottom:1px solid var(--other)}.bars .plot i{flex:1;background:var(--accent);min-width:1px}."
    "bars .axis{display:flex;justify-content:space-between}.tools{display:flex;flex-wrap:wrap;alig"
    "n-items:center;gap:.5rem;margin:0 0 .6rem}.tools output{margin-left:auto}.tools .group{displa"
    "y:inline-flex}.tools .group button{border-radius:0;margin-left:-1px}.tools .group button:firs"
    "t-child{border-radius:4px 0 0 4px;margin-left:0}.tools .group button:last-child{border-radius"
    ":0 4px 4px 0}canvas{display:block;width:100%;touch-action:pan-y;cursor:crosshair}#lanes{max-h"
    "eight:70vh;overflow:hidden auto;border-block:1px solid var(--rule)}#lanes canvas{position:sti"
    "cky;top:0}.keys{display:flex;flex-wrap:wrap;gap:.2rem 1.",
    "2rem;font-size:.9em;margin:.4rem 0 0;padding:0;list-style:none}.keys i{font-style:normal;colo"
    "r:var(--accent);margin-right:.3rem}.keys i.w{color:var(--warn)}.keys i.g{color:var(--good)}#t"
    "ip{position:fixed;z-index:4;top:0;left:0;max-width:min(26rem,calc(100vw - 1rem));pointer-even"
    "ts:none;background:var(--paper);color:var(--ink);border:1px solid var(--soft);border-radius:4"
    "px;padding:.4rem .6rem;font-size:.92em;box-shadow:0 2px 10px #0003}#tip b{display:block;overf"
    "low-wrap:anywhere}#tip dl{display:grid;grid-template-columns:auto 1fr;gap:0 .8rem;margin:0}#t"
    "ip dt,#tip dd{overflow-wrap:anywhere}#tip dd{margin:0;text-align:right}#live{position:absolut"
    "e;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}.map{position:relative;height:22r"
    "em}.map div{position:absolute;overflow:hidden;padding:.25rem .4rem;border:1px solid var(--pap"
    "er);font-size:.9em;line-height:1.3;cursor:default}.map div b{display:block;font-weight:600;ov"
    "erflow-wrap:anywhere}.map span{display:inline-block;margin-right:.6em;white-space:nowrap}.res"
    "t{background:var(--panel);color:var(--ink)}.map div:focus-visible{outline-offset:-3px;outline"
    "-color:var(--ink)}.box{overflow:auto;max-height:30rem;border:1px solid var(--rule);border-rad"
    "ius:4px;position:relative}table{border-collapse:collapse;width:100%}th,td{padding:.22rem .7re"
    "m;text-align:left;white-space:nowrap}th{position:sticky;top:0;z-index:1;background:var(--pane"
    "l);padding:0;font-weight:600}th button{width:100%;border:0;border-radius:0;background:none;te"
    "xt-align:inherit;font-weight:inherit;padding:.25rem .7rem;white-space:nowrap}th button:after{"
    "content:\"\\2195\";margin-left:.35rem;opacity:.25}th[aria-sort=ascending] button:after{conten"
    "t:\"\\2191\";opacity:1}th[aria-sort=descending] button:after{content:\"\\2193\";opacity:1}tbo"
    "dy tr{border-top:1px solid var(--grid)}tbody tr:hover{background:var(--panel)}.n{text-align:r"
    "ight}.t{max-width:32rem;overflow:hidden;text-overflow:ellipsis;unicode-bidi:isolate}.minus{co"
    "lor:var(--good)}.over{color:var(--warn)}.share{background:linear-gradient(var(--bar),var(--ba"
    "r)) no-repeat right / var(--share) 100% content-box}.more{padding:.35rem .7rem}td.inner{paddi"
    "ng:.4rem 0 .8rem 2.2rem;white-space:normal}.toggle{min-height:0;padding:0 .4rem}details{margi"
    "n-top:.8rem}summary{cursor:pointer}@media (max-width: 600px){#top{gap:.5rem;flex-wrap:wrap;pa"
    "dding:.4rem .8rem}#top h1{flex:1}#nav{order:9;flex-basis:100%}html{scroll-padding-top:5.6rem}"
    "main{padding:0 .8rem 3rem}.figures{display:grid;grid-template-columns:1fr 1fr;gap:.8rem 1rem}"
    ".figures dd{font-size:1.35rem}.t{max-width:15rem}.map{height:26rem}.tools output{margin-left:"
    "0;flex-basis:100%}}@media print{#top nav,#top button,.tools,#tip,.more{display:none}#top{posi"
    "tion:static}#peak~section{content-visibility:visible}.box,#lanes{max-height:none;overflow:vis"
    "ible}.card,tr,canvas{break-inside:avoid}th{position:static}th button:after{content:none}body{"
    "font-size:10px}*{print-color-adjust:exact}}</style>\n</head>\n<body>\n<header id=\"top\">\n<h"
    "1><a href=\"#top\">MemLord</a></h1>\n<nav id=\"nav\" aria-label=\"Sections\"></nav>\n<button "
    "id=\"theme\" type=\"button\" aria-label=\"Switch between light and dark\">&#9680;</bu",
    "tton>\n<button id=\"open\" type=\"button\" title=\"Or drop a profile.json anywhere on this pa"
    "ge\">Open&#8230;</button>\n<input id=\"file\" type=\"file\" accept=\".json,application/json\""
    " hidden>\n</header>\n<main>\n<p id=\"message\" role=\"alert\" hidden></p>\n<div id=\"empty\">"
    "\n<noscript><p>This page draws its report with JavaScript, which is turned off here.</p></nos"
    "cript>\n<p id=\"hint\">Reading the profile&#8230;</p>\n</div>\n<div id=\"report\" hidden>\n<s"
    "ection id=\"overview\" class=\"plain\"><div class=\"body\"></div></section>\n<section id=\"de"
    "vices\" data-nav=\"Devices\">\n<h2>Devices</h2>\n<p class=\"note\">Total = free + self, by ta"
    "g + unaccounted: what others hold, less what this\nprogram holds without the device having no"
    "ticed.</p>\n<div class=\"body\"></div>\n</section>\n<section id=\"memory\" data-nav=\"Memory"
    "\">\n<h2>Memory over time</h2>\n<p class=\"note\">Live bytes, each device on its own scale. T"
    "he time axis is the timeline&#8217;s:\nwheel or pinch zooms, drag pans, arrow keys move the c"
    "ursor, 0 shows all.</p>\n<div class=\"body\"></div>\n</section>\n<section id=\"timeline\" dat"
    "a-nav=\"Timeline\">\n<h2>Timeline of scopes</h2>\n<p class=\"note\">Nested scopes hang below "
    "their parent. Arrow keys pan, + and &#8722; zoom, 0 shows\nall; Enter and Shift+Enter walk fr"
    "om scope to scope, Esc lets go.</p>\n<div class=\"body\"></div>\n</section>\n<section id=\"pe"
    "ak\" data-nav=\"Peak\">\n<h2>Who held the peak</h2>\n<p class=\"note\">Taken when live bytes "
    "had risen to within a sixteenth of the highest.</p>\n<div class=\"body\"></div>\n</section>\n"
    "<section id=\"scopes\" data-nav=\"Scopes\">\n<h2>Scopes</h2>\n<p class=\"note\">A scope&#8217"
    ";s delta is what it left behind; its peak, how far above its start it\nwent. Sorting keeps ch"
    "ildren under their parents.</p>\n<div class=\"body\"></div>\n</section>\n<section id=\"tags\""
    " data-nav=\"Tags\">\n<h2>Tags</h2>\n<p class=\"note\">What the bytes are for, beside what was"
    " planned.</p>\n<div class=\"body\"></div>\n</section>\n<section id=\"sites\" data-nav=\"Sites"
    "\">\n<h2>Sites</h2>\n<p class=\"note\">Where the source allocates. Live is what was allocated"
    " there and is not freed\nyet, wherever that will be.</p>\n<div class=\"body\"></div>\n</secti"
    "on>\n<section id=\"blocks\" data-nav=\"Blocks\">\n<h2>Largest blocks</h2>\n<p class=\"note\">"
    "Parts subdivide a block and never add to it.</p>\n<div class=\"body\"></div>\n</section>\n<se"
    "ction id=\"leaks\" data-nav=\"Leaks\">\n<h2>Leaks</h2>\n<p class=\"note\">Live blocks born si"
    "nce the last mark; without a mark, all live blocks.</p>\n<div class=\"body\"></div>\n</sectio"
    "n>\n<section id=\"accounts\" data-nav=\"Accounts\"><h2>Accounts</h2><div class=\"body\"></div"
    "></section>\n<section id=\"moves\" data-nav=\"Moves\"><h2>Moves and copies between devices</h"
    "2><div class=\"body\"></div></section>\n<section id=\"snapshots\" data-nav=\"Snapshots\">\n<h"
    "2>Checkpoints and snapshots</h2><div class=\"body\"></div>\n</section>\n<section id=\"threads"
    "\" data-nav=\"Threads\"><h2>Threads</h2><div class=\"body\"></div></section>\n<footer>Bytes a"
    "re IEC: 1 KiB is 1024 B. Titles carry exact figures. Nothing on this page was\nfetched, and n"
    "othing leaves it.</footer>\n</div>\n</main>\n<div id=\"tip\" hidden></div>\n<div id=\"live\" "
    "aria-live=\"polite\"></div>\n<script type=\"application/json\" id=\"profile\">"};

static const char mli_page_tail[][3873] = {
    "</script>\n<script>\"use strict\";(()=>{const ee=e=>Array.isArray(e)?e:[],_=e=>e&&typeof e=="
    "\"object\"&&!Array.isArray(e)?e:{},E=e=>ee(e).map(_),m=e=>typeof e==\"number\"&&Math.abs(e)<="
    "2e19?e:null,g=e=>m(e)||0,j=(e,t,s)=>e<t?t:e>s?s:e,ne=(e,t)=>e.reduce((s,n)=>s+g(t(n)),0),le=("
    "e,t)=>e.reduce((s,n)=>Math.max(s,g(t(n))),0);function w(e,t){return typeof e==\"number\"?Stri"
    "ng(e):typeof e!=\"string\"?\"\":(t=t||240,e.length>t&&(e=e.slice(0,t).replace(/[\\ud800-\\udb"
    "ff]$/,\"\")+\"\\u2026\"),e.replace(/[\\x00-\\x1f]/g,s=>String.fromCharCode(9216+s.charCodeAt("
    "0))).replace(/[\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff\\ufff9-"
    "\\ufffb]/g,\"\\uFFFD\"))}function ce(e,t){if(typeof e==\"string\")return w(e);const s=_(e),n="
    "g(s.line)?\":\"+s.line:\"\",o=w(s.file),r=t&&o.length>40?o.slice(-40).search(/[\\\\/]/):-1;re"
    "turn[w(s.function),(r<0?o:\"\\u2026\"+o.slice(r-40))+n].filter(Boolean).join(\"  \")}const Ge"
    "=6e11,ut=[\"B\",\"KiB\",\"MiB\",\"GiB\",\"TiB\",\"PiB\",\"EiB\"];function M(e){if(e===null)re"
    "turn\"\\u2013\";if(e<0)return\"\\u2212\"+M(-e);let t=0;for(;t<6&&e>=Math.pow(1024,t+1);)t++;l"
    "et s=Math.round(e/Math.pow(1024,t)*100);return s===102400&&t<6&&(s=100,t++),s/100+\" \"+ut[t]"
    "}const De=e=>String(e).replace(/\\B(?=(\\d{3})+(?!\\d))/g,\",\"),O=e=>e===null?\"\\u2013\":e<"
    "0?\"\\u2212\"+De(-e):De(e),z=e=>e===null?\"\":O(e)+\" bytes\",F=(e,t)=>O(e)+\" \"+t+(e===1?\""
    "\":\"s\"),Xe=e=>e>0?\"+\":\"\",Je=e=>e===null?\"\\u2013\":Xe(e)+M(e),ve=e=>e===null?\"\\u2013"
    "\":Math.round(e*1e3)/10+\" %\";function R(e){if(e===null)return\"\\u2013\";if(e<0)return\"\\u"
    "2212\"+R(-e);const t=(n,o)=>(n<100?Number(n.toPrecision(3)):Math.round(n))+o;if(e<1e3)return "
    "t(e,\" ns\");if(e<999500)return t(e/1e3,\" \\xB5s\");if(e<9995e5)return t(e/1e6,\" ms\");if(e"
    "<12e10)return t(e/1e9,\" s\");const s=Math.round(e/1e9);return s<7200?Math.floor(s/60)+\" min"
    " \"+s%60+\" s\":O(Math.floor(s/3600))+\" h \"+Math.floor(s%3600/60)+\" min\"}function fe(e,t)"
    "{if(u.to>=Ge){const r=e/1e9,i=Math.floor(r/60+1e-9),a=Math.max(r-i*60,0);return[i>=60&&Math.f"
    "loor(i/60)+\" h\",i%60&&i%60+\" min\",t<6e10&&a.toFixed(j(Math.ceil(9-Math.log10(t)-1e-9),0,9"
    "))+\" s\"].filter(Boolean).join(\" \")||\"0\"}const[s,n]=u.to<1e3?[1,\" ns\"]:u.to<1e6?[1e3,"
    "\" \\xB5s\"]:u.to<1e9?[1e6,\" ms\"]:[1e9,\" s\"],o=j(Math.ceil(-Math.log10(t/s)-1e-9),0,9);re"
    "turn(e/s).toFixed(o)+n}function H(e,t,s,n){for(;s<n;){const o=s+n>>1;e[o]>t?n=o:s=o+1}return "
    "s}const T=e=>document.getElementById(e),Y=(e,t)=>Object.entries(t).forEach(([s,n])=>e.addEven"
    "tListener(s,n));function d(e,...t){const[s,n]=e.split(\".\"),o=document.createElement(s),r=t["
    "0];n&&(o.className=n);const i=r&&r.constructor===Object?t.shift():{};for(const[a,l]of Object."
    "entries(i))typeof l==\"function\"?Y(o,{[a]:l}):l!=null&&o.setAttribute(a,l);return o.append(."
    "..t.filter(a=>a||a===0||a===\"\")),o}function N(e,...t){e.textContent=\"\",e.append(...t.filt"
    "er(Boolean))}const V=(e,t,s)=>d(\"button\",Object.assign({type:\"button\",click:t},s),e),Q=(e"
    ",t)=>d(\"span\",{title:z(e)},(t||M)(e)),Ve=e=>d(\"dl.facts\",...e.filter(Boolean).map(([t,s,n"
    "])=>d(\"div\",{title:n},d(\"dt\",t),d(\"dd\",s)))),te=24,ye=new Map;function Ye(e){if(ye.has("
    "e))return ye.get(e);const t=new Set(ye.values());let s=0;for(let n=0;n<e.length;n++)s=Math.im"
    "ul(s^e.charCodeAt(n),16777619)>>>0;s=((s^s>>>15)>>>0)%te;for(let n=0;n<te&&t.has(s);n++)s=(s+"
    "7)%te;return ye.set(e,s),s}const ht=e=>`oklch(${x.dark?\"0.48 0.095\":\"0.83 0.085\"} ${e*360"
    "/te})`;function mt(e,t){return e.classList.add(\"hue\"),e.style.setProperty(\"--hue\",Ye(t)*3"
    "60/te),e}function $e(e,t){return t.kind?(e.classList.add(t.kind),e):mt(e,t.name)}const x={};f"
    "unction Ze(){const e=document.documentElement.classList,t=T(\"live\");x.dark=e.contains(\"dar"
    "k\")&&!e.contains(\"print\")||!e.contains(\"light\")&&!e.contains(\"print\")&&matchMedia(\"(p"
    "refers-color-scheme: dark)\").matches;for(const s of[\"paper\",\"panel\",\"ink\",\"soft\",\"r"
    "ule\",\"grid\",\"accent\",\"fill\",\"warn\",\"good\",\"other\"])t.style.color=`var(--${s})`,x"
    "[s]=getComputedStyle(t).color;x.shades=Array.from({length:te},(s,n)=>ht(n))}const be=[\"",
    "alloc\",\"free\",\"pend\",\"move\",\"arena_add\",\"arena_sub\",\"gc\",\"oom\",\"scope_begin\""
    ",\"scope_end\",\"checkpoint\"],[pt,yt,,gt,bt,vt,kt,Fe,Re,wt,Mt]=be.keys();function xt(e,t){co"
    "nst s=_(e);let n=ee(s.list).filter(Array.isArray);const r=(ee(s.kinds).length?s.kinds:be).map"
    "(l=>be.indexOf(l));for(let l=1;l<n.length;l++)if(!(n[l][0]>=n[l-1][0])){n=n.slice().sort((c,f"
    ")=>g(c[0])-g(f[0]));break}const i=n.length,a={n:i,lost:g(s.lost),time:new Float64Array(i),kin"
    "d:new Int8Array(i),thread:new Int32Array(i),device:new Int32Array(i),bytes:new Float64Array(i"
    "),scope:new Float64Array(i),label:l=>w(typeof n[l][7]==\"string\"?n[l][7]:ee(t)[n[l][7]])};fo"
    "r(let l=0;l<i;l++){const c=n[l],f=r[c[1]];a.time[l]=g(c[0]),a.kind[l]=f===void 0?be.indexOf(c"
    "[1]):f,a.thread[l]=c[2],a.device[l]=m(c[3])===null?-1:c[3],a.bytes[l]=g(c[5]),a.scope[l]=g(c["
    "8])}return a}function ke(e,t){const s=e.kind[t];return s===pt||s===gt||s===bt?e.bytes[t]:s==="
    "yt||s===vt?-e.bytes[t]:0}function _t(e){return E(e).filter(s=>m(s.time_ns)!==null).map(s=>({t"
    "ime:s.time_ns,stamp:w(s.timestamp),name:w(s.checkpoint_name),bytes:m(s.total_bytes),blocks:m("
    "s.tensor_count),devices:new Map(Object.entries(_(s.device_breakdown)).map(([n,o])=>[n,_(o)]))"
    "})).sort((s,n)=>s.time-n.time)}function At(e,t,s){const n=e.events,o=n.n?n.time[0]:1/0,r=e.sn"
    "apshots.filter(v=>v.time<o),i=r.length||!n.lost?1:0,a=r.length+i,l=e.snapshots.length||n.n?a+"
    "(n.n?1:0)+s+1:0,c=new Float64Array(l),f=new Float64Array(l);r.forEach((v,k)=>{c[k+1]=v.time,f"
    "[k+1]=g(_(v.devices.get(t.key)).total_bytes)});let h=l-1,y=g(t.stats.allocated);c[h]=e.end,f["
    "h]=y;for(let v=n.n;v-- >0;){const k=n.device[v]===t.index?ke(n,v):0;k&&(h--,c[h]=n.time[v],f["
    "h]=y,y=Math.max(y-k,0))}return n.n&&(c[a]=o,f[a]=y),{t:c,v:f,fine:n.n?a:l}}function Qe(e,t){c"
    "onst s=H(e.t,t,0,e.t.length)-1;return s<0?null:s>=e.fine||s+1>=e.t.length?e.v[s]:e.v[s]+(e.v["
    "s+1]-e.v[s])*(t-e.t[s])/(e.t[s+1]-e.t[s]||1)}function Tt(e,t){const s=e.curve,n=Math.max(g(e."
    "stats.peak),0);let o=0;for(let a=1;a<s.t.length;a++)s.v[a]>s.v[o]&&(o=a);const r=s.t.length?s"
    ".v[o]:-1,i=m(_(t).time_ns);return r<n*.999&&i!==null?{time:i,bytes:n,drawn:!1}:s.t.length?{ti"
    "me:s.t[o],bytes:Math.max(n,r),drawn:r>=n*.999}:null}function St(e){const t=E(e).map(n=>({id:m"
    "(n.id),parent:g(n.parent),name:w(n.name)||w(n.path)||\"scope\",path:w(n.path)||w(n.name),site"
    ":n.site,count:m(n.count),delta:_(n.delta_bytes),peak:m(n.peak_bytes),time:_(n.time_ns),device"
    ":m(n.device_time_ns),live:m(n.live_bytes),running:m(n.running),calls:ee(n.invocations).filter"
    "(Array.isArray),depth:0,kids:[]})),s=new Map(t.map(n=>[n.id,n]));for(const n of t){let o=s.ge"
    "t(n.parent),r=0;for(let i=o;i&&r<1e3;i=s.get(i.parent))r=i===n?1e3:r+1;n.up=r<1e3&&o!==n?o:vo"
    "id 0,n.depth=n.up?r:0,n.up&&n.up.kids.push(n)}return{list:t,byId:s}}function $t(e,t){const s="
    "E(t.capacity),n=new Map(s.map(a=>[a.device,a])),o=a=>Array.isArray(a.devices)?a.devices:[a.de"
    "vice],r=new Map(E(t.peak_holders).map(a=>[a.device,a])),i=new Map;for(let a=0;a<e.events.n;a+"
    "+)ke(e.events,a)&&i.set(e.events.device[a],(i.get(e.events.device[a])||0)+1);return E(t.devic"
    "es).map((a,l)=>{const c={index:l,key:a.device,name:w(a.device)||\"device \"+l,label:w(a.label"
    "),stats:_(a.stats),source:a,capacity:_(n.get(a.device)),holder:r.get(a.device)};return c.mate"
    "s=n.has(a.device)?o(c.capacity):[a.device],c.place=s.find(f=>f.device!==a.device&&o(f).includ"
    "es(a.device)),c.tags=E(t.tags).filter(f=>c.mates.includes(f.device)),c.curve=At(e,c,i.get(l)|"
    "|0),c.peak=Tt(c,c.holder),c})}const Ce=e=>e.devices.slice().sort((t,s)=>g(s.stats.peak)-g(t.s"
    "tats.peak));function Ot(e){const t=e.events,s=e.snapshots.filter(r=>r.name).map(r=>({time:r.t"
    "ime,name:r.name})),n=new Set(s.map(r=>r.name)),o=[];for(let r=0;r<t.n;r++)t.kind[r]===kt||t.k"
    "ind[r]===Fe?o.push({time:t.time[r],oom:t.kind[r]===Fe,device:t.device[r],bytes:t.bytes[r]}):t"
    ".kind[r]===Mt&&!n.has(t.label(r))&&s.push({time:t.time[r],name:t.label(r)});e.marks=o,",
    "e.checkpoints=s.sort((r,i)=>r.time-i.time)}function Bt(e){const t={raw:e,meta:_(e.metadata),t"
    "otal:_(e.total)};t.events=xt(e.events,e.strings),t.snapshots=_t(e.snapshots),t.scopes=St(e.sc"
    "opes);const s=le(t.scopes.list,n=>le(n.calls,o=>g(o[0])+g(o[1])));return t.end=Math.max(g(t.m"
    "eta.uptime_ns),t.events.n?t.events.time[t.events.n-1]:0,le(t.snapshots,n=>n.time),s,1),t.devi"
    "ces=$t(t,e),Ot(t),t.slices=Pt(t),t}const Et=128;function Lt(e){const t=new Map,s=(n,o)=>t.has"
    "(n)?t.get(n).list.push(o):t.set(n,{list:[o]});for(const n of e.scopes.list)for(const o of n.c"
    "alls){if(m(o[0])===null||!(g(o[1])>=0))continue;const r={call:o,end:o[0]+g(o[1]),used:!1};s(n"
    ".id,r),s(n.id+\" \"+g(o[2]),r)}for(const n of t.values())n.list.sort((o,r)=>o.end-r.end),n.en"
    "ds=n.list.map(o=>o.end);return t}function Ne(e,t,s,n){let o=null;if(!e)return null;const r=a="
    ">Math.abs(a.end-n),i=H(e.ends,t-1,0,e.list.length);for(const a of e.list.slice(i,i+64))!a.use"
    "d&&a.call[0]<=s&&(!o||r(a)<r(o))&&(o=a);return o}function Ct(e,t,s,n,o){let i=Ne(e.get(t+\" "
    "\"+s),n===null?o:n,o,o);return!i&&(i=Ne(e.get(t),o-2e3,o,o),!i||i.end>o+2e3)?null:(i.used=!0,"
    "i.call)}function jt(e,t){const s=new Map,n=new Map;for(let o=0;o<e.n;o++){const r=e.thread[o]"
    ",i=e.scope[o],a=e.kind[o];if(ke(e,o)&&n.set(r,(n.get(r)||0)+ke(e,o)),a!==Re&&a!==wt)continue;"
    "s.has(i)||s.set(i,new Map);const l=s.get(i);if(l.has(r)||l.set(r,[]),a===Re){l.get(r).push({t"
    "ime:e.time[o],sum:n.get(r)||0});continue}const c=l.get(r).pop();t(i,r,c?c.time:null,e.time[o]"
    ",c?(n.get(r)||0)-c.sum:NaN)}for(const[o,r]of s)for(const[i,a]of r)for(const l of a)t(o,i,l.ti"
    "me,null,(n.get(i)||0)-l.sum)}function Pt(e){const t=[],s=Lt(e),n=e.events,o=(r,i,a,l,c,f)=>{e"
    ".scopes.byId.has(r)||e.scopes.byId.set(r,{id:r,name:\"scope \"+r,path:\"scope \"+r,depth:0}),"
    "t.push({scope:e.scopes.byId.get(r),thread:i,start:a,end:Math.max(l,a),delta:c,call:f})};jt(n,"
    "(r,i,a,l,c)=>{const f=l===null?null:Ct(s,r,i,a,l),h=a===null&&!f;a===null&&(a=f?f[0]:n.time[0"
    "]),o(r,i,a,l===null?e.end:l,f&&m(f[3])!==null?f[3]:c,f),Object.assign(t[t.length-1],{cut:h,ru"
    "nning:l===null})}),e.paired=t.length;for(const r of e.scopes.list)for(const{call:i,end:a,used"
    ":l}of s.has(r.id)?s.get(r.id).list:[])l||o(r.id,g(i[2]),i[0],a,m(i[3]),i);return It(t)}functi"
    "on It(e){e.sort((o,r)=>o.thread-r.thread||o.start-r.start||r.end-o.end||o.scope.depth-r.scope"
    ".depth);const t=[];let s=0,n=null;for(const o of e){(!n||n.thread!==o.thread)&&(s+=n?n.ends.l"
    "ength:0,n={thread:o.thread,first:s,ends:[]},t.push(n));const r=n.ends;let i=r.length;for(;i>0"
    "&&!(r[i-1]>=o.end&&r[i-1]>o.start);)i--;for(;i<r.length&&r[i]>o.start;)i++;i=Math.min(i,Et-1)"
    ",r[i]=Math.max(o.end,r[i]||0),o.row=n.first+i}return Dt(e,t,s+(n?n.ends.length:0))}function D"
    "t(e,t,s){const n=e.length,o=new Int32Array(s+1);for(const f of e)o[f.row+1]++;for(let f=0;f<s"
    ";f++)o[f+1]+=o[f];const r=o.slice(),i=new Array(n),a=new Float64Array(n),l=new Float64Array(n"
    "),c=new Uint8Array(n);for(const f of e){const h=r[f.row]++;i[h]=f,a[h]=f.start,l[h]=f.end,c[h"
    "]=Ye(f.scope.name)}return{n,rows:s,from:o,all:i,start:a,end:l,hueOf:c,threads:t,order:null}}c"
    "onst Oe='11px system-ui, \"Liberation Sans\", sans-serif';function de(e,t,s,n,o,r,i){e.stroke"
    "Style=t,e.setLineDash(i||[]),e.beginPath(),e.moveTo(s,n),e.lineTo(o,r),e.stroke(),e.setLineDa"
    "sh([])}function J(e,t,s,n,o,r){e.fillStyle=t,e.textAlign=r||\"left\",e.fillText(s,n,o)}const "
    "u={from:0,to:1,end:1,charts:[],due:!1};function Z(){u.due||(u.due=!0,requestAnimationFrame(et"
    "))}function et(){u.due=!1;for(const e of u.charts)e.draw()}function q(e,t){const s=j(t-e,Math"
    ".min(Math.max(100,u.end*1e-9),u.end),u.end);u.from=j(e,0,u.end-s),u.to=u.from+s,Z();const n=u"
    ".to-u.from>u.end*.999999;T(\"range\").textContent=n?\"all \"+R(u.end):R(s)+\" from \"+fe(u.fr"
    "om,s/100)}const we=(e,t)=>q(e-(e-u.from)*t,e+(u.to-e)*t),je=()=>(u.from+u.to)/2,Me=e=>q(u.fro"
    "m+e*(u.to-u.from),u.to+e*(u.to-u.from));function tt(e,t){const s=e.canvas,n=s.",
    "parentElement.clientWidth,o=window.devicePixelRatio||1;(e.width!==n||e.height!==t||e.ratio!=="
    "o)&&(s.width=Math.round(n*o),s.height=Math.round(t*o),s.style.height=t+\"px\",Object.assign(e"
    ",{width:n,height:t,ratio:o})),e.left=n<600?58:92;const r=s.getContext(\"2d\");return r.setTra"
    "nsform(o,0,0,o,0,0),r.clearRect(0,0,n,t),r.font=Oe,r.textBaseline=\"middle\",r.lineWidth=1,s."
    "dataset.from=u.from,s.dataset.to=u.to,r}const P=(e,t)=>e.left+(t-u.from)/(u.to-u.from)*(e.wid"
    "th-e.left-1),se=(e,t)=>u.from+(t-e.left)/Math.max(e.width-e.left-1,1)*(u.to-u.from);function "
    "ue(e,t){let s=t/6.1,n=0;for(const o of e){if(s-=o>=\"\\u1100\"?1.9:1,s<0)return n?e.slice(0,n"
    ")+\"\\u2026\":\"\";s>=1&&(n+=o.length)}return e}function nt(e,t,s,n){const o=u.to-u.from,r=(t"
    ".width-t.left)/100,i=o/Math.max(r,1),a=Math.pow(10,Math.floor(Math.log10(i))),l=i/6e10,c=u.to"
    "<Ge||l<.5?[1,2,5,10].find(f=>f*a>=i)*a:([1,2,5,10,20,30,60,120,180,360,720].find(f=>f>=l)||Ma"
    "th.ceil(l/1440)*1440)*6e10;for(let f=Math.ceil(u.from/c);f*c<=u.to;f++){const h=Math.round(P("
    "t,f*c))+.5;de(e,x.grid,h,s,h,n),h<t.width-40&&J(e,x.soft,fe(f*c,c),h+4,s+9)}}function Ft(e,t)"
    "{if(t.key===\"+\"||t.key===\"=\")we(e.focus(),1/1.5);else if(t.key===\"-\"||t.key===\"_\")we("
    "e.focus(),1.5);else if(t.key===\"0\"||t.key===\"Home\")q(0,u.end);else return!1;return!0}func"
    "tion st(e,t){const s=e.canvas,n=new Map,o=i=>{const a=s.getBoundingClientRect();return{x:i.cl"
    "ientX-a.left,y:i.clientY-a.top,moved:0,type:i.pointerType}},r=i=>{const a=n.get(i.pointerId);"
    "n.delete(i.pointerId),a&&a.moved<=3&&i.type===\"pointerup\"&&t.tap&&t.tap(a.x,a.y)};Y(s,{poin"
    "terdown:i=>{i.button||(s.setPointerCapture(i.pointerId),n.set(i.pointerId,o(i)),i.pointerType"
    "!==\"mouse\"&&t.hover(o(i).x,o(i).y))},pointermove:i=>{const a=o(i),l=n.get(i.pointerId);if(!"
    "l)return t.hover(a.x,a.y);a.moved=l.moved+Math.abs(a.x-l.x)+Math.abs(a.y-l.y),n.set(i.pointer"
    "Id,a),n.size===2?Rt(e,n,i.pointerId,l):l.type!==\"mouse\"&&!t.drags?t.hover(a.x,a.y):a.moved>"
    "3&&(t.leave(),Me((l.x-a.x)/(e.width-e.left)),t.scroll&&t.scroll(l.y-a.y))},pointerup:r,pointe"
    "rcancel:r,blur:t.leave,pointerleave:i=>i.pointerType===\"mouse\"&&!n.size&&t.leave(),wheel:i="
    ">Nt(e,i,t,o(i)),keydown:i=>i.ctrlKey||i.metaKey||i.altKey||(t.key(i)||Ft(e,i))&&i.preventDefa"
    "ult()})}function Rt(e,t,s,n){const[o,r]=t.values(),i=t.get(s),a=i===o?r:o,l=Math.abs(n.x-a.x)"
    ",c=Math.abs(i.x-a.x);if(l<8||c<8)return;const f=se(e,(n.x+a.x)/2),h=(u.to-u.from)*l/c/(e.widt"
    "h-e.left),y=f-((i.x+a.x)/2-e.left)*h;q(y,y+h*(e.width-e.left))}function Nt(e,t,s,{x:n,y:o}){c"
    "onst r=t.deltaMode===1?16:t.deltaMode===2?400:1,i=t.deltaX*r,a=t.deltaY*r;if(t.shiftKey&&s.sc"
    "roll)s.scroll(i||a);else if(Math.abs(i)>Math.abs(a))Me(i/(e.width-e.left));else{if(a>0&&u.to-"
    "u.from>=u.end)return;we(se(e,Math.max(n,e.left)),Math.exp(j(a,-240,240)/400))}t.preventDefaul"
    "t(),s.hover(n,o)}function Pe(e,t,s,n,o){const r=T(\"tip\"),i=e.canvas.getBoundingClientRect()"
    ";N(r,d(\"b\",n),d(\"dl\",...[].concat(...o.map(([h,y,v])=>[d(\"dt\",h),d(\"dd\",{title:v},y)]"
    ")))),r.hidden=!1;const a=r.offsetWidth,l=r.offsetHeight;let c=i.left+t+14,f=i.top+s+14;c+a>in"
    "nerWidth-8&&(c=i.left+t-a-14),f+l>innerHeight-8&&(f=i.top+s-l-14),r.style.transform=`translat"
    "e(${Math.max(c,8)}px, ${Math.max(f,8)}px)`}const re=()=>T(\"tip\").hidden=!0,ot=e=>T(\"live\""
    ").textContent=e,D=92,X=40,p={shown:8,cursor:null,draw:Wt};function Wt(){const e=p.profile,t=p"
    ".lanes.slice(0,p.shown),s=tt(p,X+t.length*D+2);if(nt(s,p,0,p.height),t.forEach((o,r)=>zt(s,o,"
    "X+r*D)),Xt(s,e.checkpoints),s.clearRect(0,0,p.left,p.height),t.forEach((o,r)=>Gt(s,o,X+r*D)),"
    "p.cursor===null)return;const n=P(p,p.cursor);de(s,x.ink,n,14,n,p.height),s.fillStyle=x.ink,t."
    "forEach((o,r)=>{const i=Qe(o.curve,p.cursor);i!==null&&(s.beginPath(),s.arc(n,oe(o,X+r*D,i),3"
    ",0,7),s.fill())})}function Kt(e){const t=Math.max(e.curve.v.reduce((n,o)=>Math.max(n,o),1),g("
    "e.stats.peak)),s=g(e.stats.limit);return s>0&&s<t*2?Math.max(s,t):t}const oe=(e,t,s)=>t+D-1-s"
    "/e.scale*(D-24",
    ");function zt(e,t,s){const n=s+D-1,o=p.width;e.save(),e.beginPath(),e.rect(p.left,s,o-p.left,"
    "D),e.clip(),e.strokeStyle=x.accent,e.fillStyle=x.fill,e.lineWidth=1.5,Ht(e,t,s),e.stroke(),e."
    "lineTo(o,n),e.lineTo(Math.max(P(p,t.curve.t[0]),p.left),n),e.fill(),e.lineWidth=1;const r=g(t"
    ".stats.limit);r>0&&r<=t.scale&&de(e,x.warn,p.left,oe(t,s,r),o,oe(t,s,r),[4,4]),qt(e,t,s),t.pe"
    "ak&&Ut(e,t,s),e.restore(),de(e,x.rule,0,n+.5,o,n+.5)}function Ht(e,t,s){const{t:n,v:o,fine:r}"
    "=t.curve,i=n.length;let a=Math.max(H(n,u.from,0,i)-1,0),l=-1,c=0,f=0,h=0;const y=()=>l>=0&&[c"
    ",f,h].forEach(v=>e.lineTo(l+.5,v));e.beginPath();for(let v=!1;a<i;a++){const k=j(P(p,n[a]),-1"
    "e5,1e5),B=oe(t,s,o[a]);if(v?a>r&&Math.floor(k)===l?(c=Math.min(c,B),f=Math.max(f,B)):(y(),a>r"
    "&&e.lineTo(k,h),e.lineTo(k,B),l=a>=r?Math.floor(k):-1,c=f=B):(e.moveTo(k,B),v=!0),h=B,n[a]>u."
    "to)break}y()}function qt(e,t,s){let n=[-9,-9];for(const o of p.profile.marks){if(o.device!==t"
    ".index||o.time<u.from||o.time>u.to)continue;const r=P(p,o.time),i=Number(o.oom);r-n[i]<2||(n["
    "i]=r,e.fillStyle=o.oom?x.warn:x.good,e.fillRect(r-.5,s+20,1,D-21),e.beginPath(),e.moveTo(r-4,"
    "s+D-(o.oom?2:9)),e.lineTo(r+4,s+D-(o.oom?2:9)),e.lineTo(r,s+D-(o.oom?9:2)),e.fill())}}functio"
    "n Ut(e,t,s){const n=P(p,t.peak.time),o=oe(t,s,t.peak.bytes),r=\"peak \"+M(t.peak.bytes);if(n<"
    "p.left-5||n>p.width+5)return;e.strokeStyle=e.fillStyle=x.accent,e.beginPath(),e.arc(n,o,3.5,0"
    ",7),t.peak.drawn?e.fill():e.stroke(),e.textAlign=\"left\",e.lineWidth=3,e.strokeStyle=x.paper"
    ",e.fillStyle=x.ink;const i=[r,j(n-4,p.left+2,p.width-e.measureText(r).width-3),o-11];e.stroke"
    "Text(...i),e.fillText(...i),e.lineWidth=1}function Gt(e,t,s){const n=Math.pow(2,Math.ceil(Mat"
    "h.log2(t.scale/4)));e.font=\"600 \"+Oe,J(e,x.ink,ue(t.name,p.left-6),0,s+10),e.font=Oe;for(le"
    "t o=n;o<=t.scale;o+=n){const r=oe(t,s,o);if(r<s+(t.label?30:18))break;J(e,x.soft,M(o),p.left-"
    "6,r,\"right\"),e.fillRect(p.left-4,r,4,1)}t.label&&p.left>60&&J(e,x.soft,ue(t.label,p.left-6)"
    ",0,s+24)}function Xt(e,t){let s=-1,n=-9;t.forEach(o=>{const r=Math.round(P(p,o.time))+.5;if(r"
    "<p.left||r>p.width||r-n<2)return;n=r,de(e,x.soft,r,X-4,r,p.height,[2,3]);const i=ue(o.name,16"
    "0),a=e.measureText(i).width,l=Math.min(r,p.width-a-2);l<s+8||(s=l+a,J(e,x.ink,i,l,X-11))})}fu"
    "nction rt(e,t,s,n){const o=p,r=o.profile,i=(u.to-u.from)/o.width*4;o.cursor=j(e,u.from,u.to);"
    "const a=o.lanes.slice(0,Math.min(o.shown,16)).map(f=>{const h=Qe(f.curve,o.cursor);return[f.n"
    "ame,h===null?\"\\u2013\":M(Math.round(h))]}),l=f=>f.filter(h=>Math.abs(h.time-o.cursor)<=i).s"
    "lice(0,3);for(const f of l(r.checkpoints))a.push([\"checkpoint\",f.name]);for(const f of l(r."
    "marks))a.push([f.oom?\"out of memory, wanted\":\"collected\",M(f.bytes)]);const c=fe(o.cursor"
    ",(u.to-u.from)/1e3);Pe(o,t===null?P(o,o.cursor):t,s,c,a),n&&ot(c+\": \"+a.map(f=>f.join(\" \""
    ")).join(\", \")),Z()}function Jt(e){const t={ArrowLeft:-1,ArrowRight:1}[e.key];if(e.key===\"E"
    "scape\")return Be(),!0;if(!t)return!1;const s=u.to-u.from,n=s/(e.shiftKey?10:100),o=j(p.focus"
    "()+t*n,0,u.end);return(o<u.from||o>u.to)&&q(u.from+t*s/4,u.to+t*s/4),rt(o,null,X,!0),!0}funct"
    "ion Be(){p.cursor=null,re(),Z()}function Vt(e,t){const s=Ce(e).filter(l=>l.curve.t.length);if"
    "(!s.length)return!1;for(const l of s)l.scale=Kt(l);const n=d(\"canvas\",{tabindex:0,role:\"ap"
    "plication\",\"aria-label\":\"Live bytes per device over time. Left and right move the cursor "
    "and read the values.\"});Object.assign(p,{canvas:n,profile:e,lanes:s,shown:8,cursor:null,widt"
    "h:0,focus:()=>p.cursor===null?je():p.cursor}),u.charts.push(p),st(p,{hover:(l,c)=>l>=p.left?r"
    "t(se(p,l),l,c):Be(),leave:Be,key:Jt});const o=V(`More of ${O(s.length)} devices`,()=>{p.shown"
    "=Math.min(p.shown+16,120,s.length),o.hidden=p.shown>=Math.min(120,s.length),Z()});o.hidden=s."
    "length<=p.shown;const r=(l,c,f)=>d(\"li\",d(\"i\",{class:f},l),c),i=e.marks.some(l=>l.oom),a="
    "e.marks.some(l=>!l.oom);return N(t,d(\"div\",n),d(\"ul.keys\",r(\"\\u25CF\",\"peak\"),s.some("
    "l=>l.peak&&!",
    "l.peak.drawn)&&r(\"\\u25CB\",\"peak that no snapshot saw\"),e.checkpoints.length?r(\"\\u250A"
    "\",\"checkpoint\"):null,a?r(\"\\u25BC\",\"collection\",\"g\"):null,i?r(\"\\u25B2\",\"out of m"
    "emory\",\"w\"):null,d(\"li\",e.events.n?`${F(e.events.n,\"event\")} since ${R(e.events.time[0"
    "])}`+(e.events.lost?`, ${O(e.events.lost)} older ones overwritten`:\"\"):F(e.snapshots.length"
    ",\"snapshot\"))),d(\"p.tools\",o)),!0}const K=18,U=22,he=8,A={selected:-1,draw:Zt};function Y"
    "t(e){const t=new Float64Array(e.rows+1);let s=0,n=U;for(let o=0;o<e.rows;o++){for(;s<e.thread"
    "s.length&&e.threads[s].first===o;)s++,n+=he;t[o]=n,n+=K}return t[e.rows]=n+he,t}function Zt()"
    "{const e=A,t=e.slices,s=T(\"lanes\"),n=tt(e,Math.max(Math.min(e.tops[t.rows],innerHeight*.7),"
    "60)),o=s.scrollTop;let r=H(e.tops,o+U-K,0,t.rows);const i=r;for(n.textAlign=\"left\";r<t.rows"
    "&&e.tops[r]-o<e.height;r++)en(n,t,r,e.tops[r]-o);e.selected>=0&&tn(n,t.all[e.selected],o),n.c"
    "learRect(0,0,e.width,U),n.clearRect(0,0,e.left,e.height),nt(n,e,0,U),Qt(n,t,i,r,o)}function Q"
    "t(e,t,s,n,o){t.threads.forEach((r,i)=>{const a=i+1<t.threads.length?t.threads[i+1].first:t.ro"
    "ws;if(a<=s||r.first>=n)return;const l=A.tops[r.first]-o,c=A.tops[a-1]-o;e.fillStyle=x.rule,l>"
    "U&&e.fillRect(0,Math.round(l-he/2),A.width,1);const f=(A.left>60?\"thread \":\"thr \")+r.thre"
    "ad;J(e,x.soft,ue(f,A.left-4),0,j(U+9,l+9,c+9))})}function en(e,t,s,n){const o=A,r=t.from[s+1]"
    ";let i=H(t.end,u.from-.5,t.from[s],r),a=null;const l=()=>{a&&(e.fillStyle=x.shades[a.hue],e.f"
    "illRect(a.x,n,a.w,K-2)),a=null};for(;i<r&&t.start[i]<u.to;){const c=Math.max(P(o,t.start[i]),"
    "o.left),f=Math.min(P(o,t.end[i]),o.width);if(f-c>=1){l(),e.fillStyle=x.shades[t.hueOf[i]],e.f"
    "illRect(c,n,Math.max(f-c-.5,1),K-2),f-c>26&&J(e,x.ink,ue(t.all[i].scope.name,f-c-8),c+4,n+K/2"
    "),i++;continue}const h=Math.floor(c);a&&a.hue===t.hueOf[i]&&a.x+a.w===h?a.w++:(l(),a={x:h,w:1"
    ",hue:t.hueOf[i]}),i=H(t.end,se(o,h+1),i+1,r)}l()}function tn(e,t,s){const n=A,o=Math.max(P(n,"
    "t.start),n.left-3),r=Math.min(P(n,t.end),n.width+3);e.strokeStyle=x.ink,e.lineWidth=2,e.strok"
    "eRect(o-.5,n.tops[t.row]-s-1,Math.max(r-o,2),K),e.lineWidth=1}function it(e,t){const s=A,n=s."
    "slices,o=t+T(\"lanes\").scrollTop,r=H(s.tops,o,0,n.rows)-1;if(t<U||e<s.left||r<0||o>s.tops[r]"
    "+K)return-1;const i=H(n.end,se(s,e-1),n.from[r],n.from[r+1]);return i<n.from[r+1]&&n.start[i]"
    "<=se(s,e+1)?i:-1}function Ee(e){const t=e.call||[],s=Math.max(e.end-e.start,1e3)/1e3,n=m(e.de"
    "lta),o=m(t[7]);return[[\"duration\",(e.cut?\"at least \":\"\")+R(e.end-e.start)+(e.running?\""
    ", running\":\"\")],n!==null&&[\"delta\",Je(n),z(n)],m(t[4])!==null&&[\"blocks\",Xe(t[4])+O(t["
    "4])],o!==null&&[\"peak inside\",M(o)],m(t[5])!==null&&[\"before, after\",M(t[5])+\", \"+M(m(t"
    "[6]))],[\"start\",(e.cut?\"before \":\"\")+fe(e.start,s)],[\"end\",fe(e.end,s)],[\"thread\",S"
    "tring(e.thread)],t[8]&&[\"shapes\",w(t[8])]].filter(Boolean)}function _e(e,t){const s=A,n=s.s"
    "lices.all[e];if(s.selected=e,Z(),e<0)return re();if(t){const o=u.to-u.from,r=n.end-n.start;(n"
    ".end<u.from||n.start>u.to||r<o/400)&&q(n.start-Math.min(o,r*50)/4,n.start+Math.min(o,Math.max"
    "(r*50,1e3))*3/4);const i=T(\"lanes\"),a=s.tops[n.row];i.scrollTop=j(i.scrollTop,a+K-s.height+"
    "he,a-U-he),ot(n.scope.path+\", \"+Ee(n).map(l=>l[0]+\" \"+l[1]).join(\", \"))}Pe(s,j(P(s,n.st"
    "art),s.left,s.width),s.tops[n.row]-T(\"lanes\").scrollTop+K,n.scope.path,Ee(n))}function nn(e"
    "){const t=A.slices;t.order||(t.order=Uint32Array.from(t.all.keys()).sort((n,o)=>t.start[n]-t."
    "start[o]||t.all[n].row-t.all[o].row),t.order.forEach((n,o)=>t.all[n].rank=o));const s=A.selec"
    "ted>=0?t.all[A.selected].rank+e:t.order.findIndex(n=>t.start[n]>=u.from);_e(t.order[j(s,0,t.n"
    "-1)],!0)}function We(e){const t=A.slices,s=t.all[A.selected],n=s?s.row+e:-1;if(!s||n<0||n>=t."
    "rows)return;const o=Math.min(H(t.end,s.start,t.from[n],t.from[n+1]),t.from[n+1]-1);o>=t.from["
    "n]&&_e(o,!0)}function sn(e){const t=e.shiftKey?.8:.15;if(e.key===\"ArrowLeft\")Me(-t);else if"
    "(e.key===\"ArrowRight\")Me(t);else if(e.key===\"Enter\")nn(",
    "e.shiftKey?-1:1);else if(e.key===\"Escape\")_e(-1);else if(e.key===\"ArrowUp\"&&A.selected>=0"
    ")We(-1);else if(e.key===\"ArrowDown\"&&A.selected>=0)We(1);else return!1;return!0}function on"
    "(e,t){const s=it(e,t),n=A.slices.all[s];A.canvas.style.cursor=n?\"pointer\":\"\",n?Pe(A,e,t,n"
    ".scope.path,Ee(n)):re()}function rn(e,t){const s=e.slices;if(!s.n)return!1;const n=d(\"canvas"
    "\",{tabindex:0,role:\"application\",\"aria-label\":\"Timeline of scopes, \"+F(s.n,\"invocatio"
    "n\")+\". Enter walks from scope to scope.\",dblclick:()=>{const a=s.all[A.selected];a&&q(a.st"
    "art-(a.end-a.start)*.1,a.end+(a.end-a.start)*.1)}});Object.assign(A,{canvas:n,slices:s,tops:Y"
    "t(s),selected:-1,width:0,focus:()=>A.selected>=0?s.start[A.selected]:je()}),u.charts.push(A);"
    "const o=d(\"div\",n),r=d(\"div\",{id:\"lanes\",scroll:Z},o);o.style.height=A.tops[s.rows]+\"p"
    "x\",st(A,{drags:!0,hover:on,leave:re,key:sn,tap:(a,l)=>_e(it(a,l)),scroll:a=>r.scrollTop+=a})"
    ";const i=e.paired<s.n?\"Each scope keeps its last invocations; the event ring keeps all that "
    "fit.\":\"\";return N(t,r,d(\"p.keys\",`${F(s.n,\"invocation\")} on ${F(s.threads.length,\"thr"
    "ead\")}. ${i}`)),!0}const an={text:[e=>e,e=>e.length>28?e:null],bytes:[M,z],signed:[Je,z],cou"
    "nt:[O],time:[R,e=>e===null?null:O(e)+\" ns\"],share:[ve]},ge=200,ln=new Intl.Collator(\"en\","
    "{numeric:!0}),Ke=(e,t)=>typeof e==\"string\"?ln.compare(e,t):e-t;function cn(e,t,s,n){const o"
    "=new Map(e.map(c=>[c,t(c)])),r=c=>c===null||c===\"\",i=(c,f)=>{const h=o.get(c),y=o.get(f);re"
    "turn r(h)||r(y)?r(h)-r(y):s?Ke(y,h):Ke(h,y)};if(!n)return e.slice().sort(i);const a=[],l=e.fi"
    "lter(c=>!c.up).sort(i).reverse();for(let c;c=l.pop();)a.push(c),l.push(...c.kids.filter(f=>o."
    "has(f)).sort(i).reverse());return a}function fn(e,t,s){const n=e.get(t),[o,r]=an[e.kind],i=e."
    "brief?e.brief(t):o(n),a=e.full?e.full(t):r&&n!==null?r(n):null,l=d(\"td\",{class:e.kind===\"t"
    "ext\"?\"t\":\"n\",title:a},i);return e.mono&&l.classList.add(\"mono\"),e.indent&&t.depth&&(l."
    "style.paddingLeft=.7+Math.min(t.depth,12)*1.1+\"rem\"),e.tone&&n&&l.classList.add(n<0?\"minus"
    "\":\"over\"),e.share&&n>0&&(l.classList.add(\"share\"),l.style.setProperty(\"--share\",n/s.ge"
    "t(e)*100+\"%\")),l}function Ie(e,t,s){e=e.map(([b,I,ie,pe])=>Object.assign({title:b,kind:I,ge"
    "t:ie},pe)).filter(b=>b.keep||t.some(I=>b.get(I)!==null&&b.get(I)!==\"\"));const n={rows:t,lim"
    "it:ge,sort:null,down:!1,filter:\"\"},o=new Map(e.filter(b=>b.share).map(b=>[b,le(t,b.get)||1]"
    ")),r=d(\"tbody\"),i=d(\"output\"),a=e.map(b=>d(\"th\",{scope:\"col\"},V(b.title,()=>v(b),{cla"
    "ss:b.kind===\"text\"?null:\"n\"}))),l=V(\"Show more\",()=>{n.limit+=ge*5,y()}),c=new Map,f=e."
    "filter(b=>b.kind===\"text\"),h=b=>(c.has(b)||c.set(b,f.map(I=>(I.full||I.get)(b)).join(`\n`)."
    "toLowerCase()),c.get(b).includes(n.filter));function y(){const b=n.filter?n.rows.filter(h):n."
    "rows,I=b.slice(0,n.limit).map(ie=>dn(e,ie,o,s));N(r,...[].concat(...I)),i.textContent=b.lengt"
    "h<t.length||t.length>ge?`${O(Math.min(b.length,n.limit))} of ${O(b.length)}`:\"\",l.parentEle"
    "ment.hidden=b.length<=n.limit}function v(b,I){n.down=I===void 0?n.sort===b?!n.down:b.kind!=="
    "\"text\":I,n.sort=b,n.rows=cn(t,b.get,n.down,s.tree),e.forEach((ie,pe)=>ie===b?a[pe].setAttri"
    "bute(\"aria-sort\",n.down?\"descending\":\"ascending\"):a[pe].removeAttribute(\"aria-sort\"))"
    ",y()}const k=d(\"input\",{type:\"search\",placeholder:\"Filter\",\"aria-label\":\"Filter \"+s"
    ".name,input:()=>{n.filter=k.value.toLowerCase(),n.limit=ge,y()}}),B=d(\"div.box\",{tabindex:0"
    ",role:\"region\",\"aria-label\":s.name},d(\"table\",d(\"thead\",d(\"tr\",...a)),r),d(\"div.mo"
    "re\",l)),me=e.find(b=>b.title===s.sort)||e[0];return v(me,s.up?!1:me.kind!==\"text\"),d(\"div"
    "\",t.length>8?d(\"div.tools\",k,i):null,B)}function dn(e,t,s,n){const o=d(\"tr\",...e.map(a=>"
    "fn(a,t,s)));if(!n.inner||!n.inner(t,!0))return[o];let r=null;const i=V(\"\\u25B8\",()=>{r?(r."
    "remove(),r=null):o.after(r=d(\"tr\",d(\"td.inner\",{colspan:e.length},n.inner(t)))),i.setAttr"
    "ibute(\"aria-expanded\",String(!!r)),i.textContent=r?\"\\u25BE\":\"\\u25B8\"},{class:\"toggle"
    "\",\"aria-expanded\":\"false\"",
    ",\"aria-label\":\"Parts\"});return o.firstChild.prepend(i,\" \"),[o]}const S=(e,t,s)=>[e,\"te"
    "xt\",n=>w(n[t]),s],Le=e=>(t,s,n)=>[t,e,o=>m(o[s]),n],[$,L]=[Le(\"bytes\"),Le(\"count\")],C={s"
    "hare:!0},un={mono:!0},Ae=[\"Site\",\"text\",e=>ce(e.site),{mono:!0,brief:e=>ce(e.site,!0)}];f"
    "unction W(e,t,s,n){return e.length?(N(t,Ie(s,e,n)),!0):!1}const G=(e,t,s,n,o)=>[e,t,r=>m(r[s]"
    "[n]),o],hn={scopes:(e,t)=>W(e.scopes.list,t,[[\"Scope\",\"text\",s=>s.depth?s.name:s.path,{in"
    "dent:!0,full:s=>s.path}],L(\"Count\",\"count\"),G(\"Delta\",\"signed\",\"delta\",\"total\"),G"
    "(\"avg\",\"signed\",\"delta\",\"avg\"),G(\"min\",\"signed\",\"delta\",\"min\"),G(\"max\",\"si"
    "gned\",\"delta\",\"max\"),$(\"Peak inside\",\"peak\",C),G(\"Time\",\"time\",\"time\",\"total"
    "\",C),G(\"avg time\",\"time\",\"time\",\"avg\"),G(\"max time\",\"time\",\"time\",\"max\"),[\""
    "Device time\",\"time\",s=>s.device||null],$(\"Live\",\"live\"),[\"Running\",\"count\",s=>s.ru"
    "nning||null],Ae],{name:\"scopes\",sort:\"Time\",tree:!0}),tags:(e,t)=>W(E(e.raw.tags),t,[S(\""
    "Tag\",\"tag\"),S(\"Device\",\"device\"),$(\"Live\",\"allocated\",C),$(\"Peak\",\"peak\"),L(\""
    "Blocks\",\"blocks\"),[\"Planned\",\"bytes\",s=>m(s.expected)||null],[\"Variance\",\"signed\","
    "s=>m(s.expected)?m(s.variance):null,{tone:!0}]],{name:\"tags\",sort:\"Live\"}),sites:(e,t)=>W"
    "(E(e.raw.sites),t,[[\"Function\",\"text\",s=>w(_(s.site).function)||\"(not known)\"],[\"Place"
    "\",\"text\",s=>ze(s),{mono:!0,brief:s=>ze(s,!0)}],S(\"Device\",\"device\"),$(\"Live\",\"live_"
    "bytes\",C),$(\"Peak\",\"peak_bytes\"),L(\"Allocs\",\"allocs\"),$(\"Allocated\",\"alloc_bytes"
    "\"),L(\"Frees\",\"frees\"),$(\"Freed\",\"free_bytes\")],{name:\"sites\",sort:\"Live\"}),block"
    "s:(e,t)=>W(E(_(e.raw.largest_blocks).blocks),t,[[\"Name\",\"text\",s=>w(s.name)||w(s.storage)"
    ",{keep:!0}],S(\"Tag\",\"tag\"),$(\"Bytes\",\"bytes\",C),S(\"Device\",\"device\"),S(\"Type\","
    "\"dtype\"),[\"Shape\",\"text\",at],L(\"Refs\",\"refs\"),[\"Parts\",\"count\",s=>m(_(s.parts)."
    "count)],S(\"Scope\",\"scope\"),Ae,S(\"Storage\",\"storage\",un),[\"Flags\",\"count\",s=>m(s.f"
    "lags)||null],[\"Born\",\"count\",s=>m(s.born)||null],[\"State\",\"text\",s=>s.pending===!0||g"
    "(s.pending)?\"waits for its device\":\"\"]],{name:\"largest blocks\",sort:\"Bytes\",inner:mn}"
    "),leaks:(e,t)=>W(E(_(e.raw.leaks).by_site),t,[Ae,S(\"Tag\",\"tag\"),S(\"Scope\",\"scope\"),S("
    "\"Device\",\"device\"),$(\"Bytes\",\"bytes\",C),L(\"Blocks\",\"count\")],{name:\"leaks\",sort"
    ":\"Bytes\"}),accounts:(e,t)=>W(E(_(e.raw.accounts).largest),t,[S(\"Account\",\"name\"),S(\"De"
    "vice\",\"device\"),$(\"Held\",\"bytes\",C),$(\"Peak\",\"peak\"),$(\"Limit\",\"limit\"),L(\"Re"
    "fused\",\"refused\")],{name:\"accounts\",sort:\"Held\"}),moves:(e,t)=>W(E(e.raw.moves),t,[S("
    "\"From\",\"from\"),S(\"To\",\"to\"),L(\"Moves\",\"count\"),$(\"Bytes\",\"bytes\",C),L(\"Copie"
    "s\",\"copies\"),$(\"Bytes copied\",\"copied_bytes\",C)],{name:\"moves and copies\",sort:\"Byt"
    "es\"}),snapshots:(e,t)=>W(e.snapshots,t,[Le(\"time\")(\"At\",\"time\"),S(\"Checkpoint\",\"nam"
    "e\"),$(\"Live\",\"bytes\",C),L(\"Blocks\",\"blocks\"),...Ce(e).slice(0,12).map(s=>[s.name,\"b"
    "ytes\",n=>m(_(n.devices.get(s.key)).total_bytes)]),S(\"Time\",\"stamp\")],{name:\"snapshots\""
    ",sort:\"At\",up:!0}),threads:(e,t)=>W(E(e.raw.threads),t,[L(\"Thread\",\"id\"),L(\"Allocs\","
    "\"allocs\"),L(\"Frees\",\"frees\"),$(\"Allocated\",\"bytes_allocated\",C),$(\"Freed\",\"bytes"
    "_freed\")],{name:\"threads\",sort:\"Allocated\"})},ze=(e,t)=>ce(Object.assign({},e.site,{func"
    "tion:\"\"}),t),at=e=>ee(e.shape).slice(0,16).map(t=>w(t)).join(\" \\xD7 \");function mn(e,t){"
    "const s=_(e.parts),n=E(s.listed);if(t||!n.length)return n.length;const o=g(s.count)-n.length;"
    "return d(\"div\",Ie([S(\"Name\",\"name\"),L(\"Offset\",\"offset\"),$(\"Bytes\",\"bytes\",C),S"
    "(\"Type\",\"dtype\"),[\"Shape\",\"text\",at],S(\"Tag\",\"tag\")],n,{name:\"parts of \"+(w(e.n"
    "ame)||w(e.storage)),sort:\"Offset\",up:!0}),o>0?d(\"p.soft\",O(o)+\" more are not listed\"):n"
    "ull)}function pn(e,t,s){const n=[],o=ne(e,c=>c.bytes),r=o?t*s/o:0;let i=0,a=0,l=0;for(;l<e.le"
    "ngth&&t>0&&s>0;){const c=Math.min(t,s);let f=0,h=l,y=1/0;for(;h<e.length;h++){const k=f+e[h]."
    "bytes*r,B=e[l].bytes*r,me=e[h].bytes*r,b=Math.max(c*c*B/(k*k),k*k/(c*c*me));if(b>y)break;y=b,"
    "f=k}const v=f/c;for(let k=0;l<h;l++){const B=e[l].bytes*r/v;n.push(t<s?[i+k,a,B,v]:[i,a+k,v,B"
    "]),k",
    "+=B}t<s?(a+=v,s-=v):(i+=v,t-=v)}return n}function Te(e,t){const s=E(_(e.holder)[t]).map(o=>({"
    "bytes:Math.max(g(o.bytes),0),name:t===\"tags\"?w(o.tag)||\"untagged\":ce(o.site)||\"site not "
    "known\"})).filter(o=>o.bytes>0).sort((o,r)=>r.bytes-o.bytes),n=g(e.holder.bytes)-ne(s,o=>o.by"
    "tes);return n>0&&s.push({name:s.length?\"other \"+t:\"not known\",bytes:n,kind:\"rest\"}),s}f"
    "unction yn(e,t,s,n){const o=pn(e,s,n),r=d(\"div.map\",{role:\"list\",keydown:i=>{const a={Arr"
    "owRight:1,ArrowDown:1,ArrowLeft:-1,ArrowUp:-1}[i.key],l=[...r.children],c=l[l.indexOf(i.targe"
    "t)+a];!a||!c||(i.preventDefault(),i.target.tabIndex=-1,c.tabIndex=0,c.focus())}});return o.fo"
    "rEach(([i,a,l,c],f)=>{const h=e[f],y=[M(h.bytes),ve(h.bytes/t)],v=d(\"div\",{role:\"listitem"
    "\",tabindex:f?-1:0,title:`${h.name}\n${z(h.bytes)}`,\"aria-label\":h.name+\" \"+y.join(\", \""
    ")},l>44&&c>20&&d(\"b\",h.name),...y.map(k=>l>60&&c>60&&d(\"span\",k)));Object.assign(v.style,"
    "{left:i/s*100+\"%\",top:a/n*100+\"%\",width:l/s*100+\"%\",height:c/n*100+\"%\"}),r.append($e("
    "v,h))}),r}function gn(e,t){const s=e.devices.filter(f=>f.holder&&(Te(f,\"tags\").length||Te(f"
    ",\"sites\").length)).sort((f,h)=>g(h.holder.bytes)-g(f.holder.bytes));if(!s.length)return!1;l"
    "et n=s[0],o=\"tags\";const r=d(\"div\"),i=d(\"output\"),a=d(\"select\",{\"aria-label\":\"Devi"
    "ce\",change:()=>{n=s[a.selectedIndex],c()}},...s.map(f=>d(\"option\",f.name))),l=[\"tags\",\""
    "sites\"].map(f=>V(\"by \"+f.slice(0,-1),()=>{o=f,c()}));function c(){const f=Te(n,o),h=t.clie"
    "ntWidth||1e3;l.forEach((k,B)=>k.setAttribute(\"aria-pressed\",String(o===[\"tags\",\"sites\"]"
    "[B])));const y=m(n.holder.time_ns);i.textContent=M(m(n.holder.bytes))+(y===null?\"\":\" at \""
    "+R(y))+(m(n.stats.peak)!==null?\", peak \"+M(m(n.stats.peak)):\"\");const v=ne(f,k=>k.bytes);"
    "N(r,yn(f,v,h,h<600?416:352),d(\"details\",d(\"summary\",\"As a table\"),Ie([[\"Name\",\"text"
    "\",k=>k.name,{mono:!0,keep:!0}],[\"Bytes\",\"bytes\",k=>k.bytes,C],[\"Share\",\"share\",k=>k."
    "bytes/v]],f,{name:\"holders of the peak\",sort:\"Bytes\"})))}return N(t,d(\"div.tools\",s.len"
    "gth>1?a:d(\"b\",n.name),d(\"span.group\",...l),i),r),c(),!0}function bn(e){const t=e.capacity"
    ",s=m(t.total),n=m(t.used),o=m(t.self)===null?g(e.stats.allocated):t.self,r=new Map;for(const "
    "y of e.tags)r.set(w(y.tag),(r.get(w(y.tag))||0)+Math.max(g(y.allocated),0));const i=[...r].ma"
    "p(([y,v])=>({name:y,bytes:v})).filter(y=>y.bytes).sort((y,v)=>v.bytes-y.bytes),a=i.slice(0,7)"
    ",l=ne(i.slice(7),y=>y.bytes),c=m(t.untagged)===null?o-ne(i,y=>y.bytes):t.untagged;if(l>0&&a.p"
    "ush({name:`${i.length-7} other tags`,bytes:l,kind:\"grey\"}),c>0&&a.push({name:\"untagged\",b"
    "ytes:c,kind:\"grey\"}),s===null||n===null)return{shown:a,self:o,total:null};const f=n-o,h=Mat"
    "h.max(s-n,0);return a.push({name:\"unaccounted\",bytes:f,kind:\"hatch\"}),a.push({name:\"free"
    "\",bytes:h,kind:\"free\"}),{shown:a,self:o,total:s,free:h,unaccounted:f}}function vn(e){const"
    " t=ne(e.shown,n=>Math.max(n.bytes,0)),s=d(\"div.stack\",{role:\"img\",\"aria-label\":e.shown."
    "map(n=>n.name+\" \"+M(n.bytes)).join(\", \")});for(const n of e.shown){if(n.bytes<=0||n.kind="
    "==\"free\"||!t)continue;const o=$e(d(\"i\",{title:`${n.name}: ${z(n.bytes)}`}),n);o.style.wid"
    "th=n.bytes/t*100+\"%\",s.append(o)}return d(\"div\",s,d(\"ul.legend\",...e.shown.map(n=>d(\"l"
    "i\",$e(d(\"i\"),n),d(\"span\",{title:n.name},n.name),Q(n.bytes)))))}function kn(e,t){if(t.tot"
    "al===null)return e.place?`Its bytes are in the memory of ${w(e.place.device)}, and in self th"
    "ere.`:e.key===\"mapped\"?\"Mapped files are page cache, which is in no device\\u2019s self.\""
    ":\"The capacity of this device is not known.\";const s=e.capacity,n=[],o=e.mates.filter(i=>i!"
    "==e.key).map(w);o.length&&n.push(\"self is also of \"+o.join(\", \"));const r=`${M(t.total)} "
    "= ${M(t.free)} free + ${M(t.self)} self `+(t.unaccounted<0?\"\\u2212 \"+M(-t.unaccounted):\"+"
    " \"+M(t.unaccounted))+\" unaccounted\";return m(s.process)!==null&&n.push(\"the rest of this "
    "process \"+M(Math.max(s.process-t.self,0))),m(s.others)!==null&&n.push(\"others \"+M(s.others"
    ")),m(e.stats.cached)&&n.push(\"the host\\u20",
    "19s pool holds \"+M(e.stats.cached)+\" unused\"),m(s.age_ns)>1e9&&n.push(\"sampled \"+R(s.age"
    "_ns)+\" ago\"),(r+(n.length?\": \"+n.join(\", \"):\"\")+\".\").replace(/(\\d) (?=[KMGTPE]?i?B"
    ")/g,\"$1\\xA0\")}function wn(e){const t=e.stats,s=e.capacity,n=g(t.cache_hits)+g(t.cache_miss"
    "es),o=(i,a)=>m(a)&&[i,M(a),z(a)],r=(i,a)=>m(a)&&[i,O(a)];return Ve([[\"peak\",M(m(t.peak))+(g"
    "(t.peak_error)?\", low by at most \"+M(t.peak_error):\"\"),z(m(t.peak))],o(\"pending\",t.pend"
    "ing),o(\"reserved\",t.reserved),o(\"limit\",t.limit),m(t.limit)!==s.limit&&o(\"limit\",s.limi"
    "t),o(\"held for requests\",s.held),o(\"in arenas\",e.source.arena),r(\"blocks\",t.live_blocks"
    "),r(\"allocs\",t.allocs),r(\"frees\",t.frees),r(\"resized\",t.reallocs),r(\"arrived by move\""
    ",t.moves),r(\"arrived by copy\",t.copies),r(\"collections\",t.gc_runs),o(\"reclaimed\",t.gc_r"
    "eclaimed),m(e.source.fragmentation)!==null&&[\"fragmentation\",ve(e.source.fragmentation)],n&"
    "&[\"pool hits\",ve(t.cache_hits/n)],r(\"requests saved by a retry\",t.recoveries)])}function "
    "lt(e,t){const s=le(t,r=>r[1]);if(!s)return null;const n=d(\"div.plot\",...t.map(([r,i,a])=>{c"
    "onst l=d(\"i\",{title:`${a||r}: ${O(i)} blocks`});return l.style.height=i>0?Math.max(i/s*100,"
    "3)+\"%\":0,l})),o=t.length>4?[0,t.length>>1,t.length-1]:[...t.keys()];return d(\"figure.bars"
    "\",{role:\"img\",\"aria-label\":e+\": \"+t.filter(r=>r[1]).map(r=>`${r[0]} ${r[1]}`).join(\","
    " \")},d(\"figcaption\",e),n,d(\"div.axis\",...o.map(r=>d(\"span\",t[r][0]))))}function Mn(e){"
    "const t=new Map(E(e.source.sizes).filter(o=>g(o.blocks)>0&&g(o.from)>=0).map(o=>[g(o.from)<1?"
    "-1:Math.floor(Math.log2(o.from)),o.blocks])),s=[...t.keys()].sort((o,r)=>o-r),n=[];for(let o="
    "s[0];o<=s[s.length-1];o++){const r=M(o<0?0:Math.pow(2,o));n.push([r,t.get(o)||0,o<0?\"empty\""
    ":`${r} to ${M(Math.pow(2,o+1))}`])}return lt(\"live blocks by size\",n)}function xn(e){const "
    "t=_(e.source.lifetimes),s=(n,o,r)=>[n,g(t[o]),r];return lt(\"lifetime when freed\",[s(\"<0.1"
    "\",\"under_100ms\",\"less than 100 ms\"),s(\"<1\",\"under_1s\",\"0.1 to 1 s\"),s(\"<10\",\"un"
    "der_10s\",\"1 to 10 s\"),s(\"10 s+\",\"longer\",\"10 s and longer\")])}function _n(e){const t"
    "=bn(e),s=_(e.source.last_oom);return d(\"article.card\",d(\"header\",d(\"h3\",e.name),d(\"spa"
    "n.soft\",{title:e.label},e.label),d(\"b\",Q(m(e.stats.allocated)))),vn(t),d(\"p.sum\",kn(e,t)"
    "),wn(e),d(\"div.charts\",Mn(e),xn(e)),e.source.last_oom?d(\"p.bad\",`Last found no memory: wa"
    "nted ${M(m(s.bytes))} with ${M(m(s.live))} live${s.site?\", at \"+ce(s.site):\"\"}.`):null)}f"
    "unction An(e,t){if(!e.devices.length)return!1;const s=Ce(e),n=d(\"div.cards\");let o=0;const "
    "r=V(`More of ${O(s.length)} devices`,()=>{n.append(...s.slice(o,o+12).map(_n)),o+=12,r.parent"
    "Element.hidden=o>=s.length});return N(t,n,d(\"p.tools\",r)),r.click(),!0}const He={implicit_f"
    "rees:[\"alloc\",\"over a live storage\"],unknown_frees:[\"free\",\"of a storage that was not "
    "live\"],freed_while_shared:[\"free\",\"of a storage with views\"],underflows:[\"arena_sub\","
    "\"below the balance\"],fence_failures:[\"fence\",\"that failed\"],oom_failures:[\"request\","
    "\"that found no memory in the end\"],gc_failed:[\"collection\",\"that did not run\"],dropped_"
    "allocs:[\"alloc\",\"the map had no room for: totals are too low\"],dropped_bytes:[\"byte\",\""
    "of those\"],dropped_sites:[\"record\",\"of sites or tags without room\"],refused:[\"call\",\""
    "with an argument that is not valid, or without one device\"]},Tn=[\"scope_invocations\",\"sna"
    "pshots\"];function Sn(e){const t=[],s=_(e.meta.dropped);for(const n of Object.keys(He)){const"
    " o=e.devices.filter(a=>g(a.stats[n])),r=e.devices.length<2,i=o.slice(0,4).map(a=>a.name+(o.le"
    "ngth>1?\" \"+O(a.stats[n]):\"\"));o.length>4&&i.push(`${o.length-4} more`),g(e.total[n])&&t.p"
    "ush([e.total[n],He[n],o.length&&!r?\": \"+i.join(\", \"):\"\"])}return g(s.scopes)&&t.push([s"
    ".scopes,[\"scope\",\"without room\"],\"\"]),t.length?d(\"div.alarm\",{id:\"alarm\"},d(\"b\","
    "\"Worth a look\"),d(\"ul\",...t.map(([n,[o,r],i])=>d(\"li\",`${F(n,o)} ${r}${i}`)))):null}fun"
    "ction $n(e,t){const s=e.total,n=e.meta,o=_(e.raw.leaks),r=w(_(e.raw.summary).peak_memory_",
    "checkpoint),i=(f,h,y)=>d(\"div\",d(\"dt\",f),d(\"dd\",h,y&&d(\"small\",y))),a=e.events,l=_(n."
    "dropped),c=Tn.filter(f=>g(l[f])).map(f=>O(l[f])+\" \"+f.replace(\"_\",\" \"));return N(t,d(\""
    "dl.figures\",i(\"Live\",Q(m(s.allocated)),F(m(s.live_blocks),\"block\")),i(\"Peak\",Q(m(s.pea"
    "k)),r?\"largest checkpoint: \"+r:\"all devices\"),i(\"Allocated in all\",Q(m(s.total_allocate"
    "d)),F(m(s.allocs),\"alloc\")+\", \"+F(m(s.frees),\"free\")),m(o.bytes)!==null&&g(o.since_mark"
    ")>0&&i(\"Leaks since the mark\",Q(o.bytes),F(m(o.count),\"block\"))),Ve([w(n.labels)&&[\"labe"
    "ls\",w(n.labels)],n.generated_at&&[\"written\",w(n.generated_at)],m(n.uptime_ns)&&[\"after\","
    "R(n.uptime_ns)],m(n.pid)&&[\"pid\",String(n.pid)],e.raw.version&&[\"MemLord\",w(e.raw.version"
    ")],m(n.own_bytes)!==null&&[\"its own memory\",M(n.own_bytes),z(n.own_bytes)],m(n.pair_ns)&&["
    "\"an alloc and its free cost\",R(n.pair_ns)],n.sites_enabled===!1&&[\"sites\",\"off\"],n.oper"
    "ation_tracking_enabled===!1&&[\"scopes\",\"none used\"],(n.events_enabled===!1||!a.n)&&[\"eve"
    "nt ring\",\"off\"],c.length&&[\"no longer kept\",c.join(\", \")],a.n&&[\"events\",O(a.n)+(a.l"
    "ost?`, ${O(a.lost)} older ones overwritten`:\"\")]]),e.devices.length?null:d(\"p.soft\",\"Not"
    "hing recorded.\"),Sn(e)),!0}const ct=Object.assign({overview:$n,devices:An,memory:Vt,timeline"
    ":rn,peak:gn},hn);function qe(e,t){const s=T(e),n=s.querySelector(\".body\");try{s.hidden=!ct["
    "e](t,n)}catch(o){N(n,d(\"p.soft\",\"This section could not be drawn: \"+w(o.message))),s.hidd"
    "en=!1}return s.hidden?null:s}function On(){const e=s=>()=>we(je(),s),t=(s,n,o)=>V(s,o,{\"aria"
    "-label\":n});return d(\"div.tools\",d(\"span.group\",t(\"\\u2212\",\"Zoom out\",e(2)),t(\"+\""
    ",\"Zoom in\",e(.5)),t(\"All\",\"Show all\",()=>q(0,u.end))),d(\"output\",{id:\"range\"}))}fun"
    "ction Bn(e){const t=Bt(e),s=Object.keys(ct),n=T(\"nav\"),o=r=>r&&r.dataset.nav&&n.append(d(\""
    "a\",{href:\"#\"+r.id},r.dataset.nav));re(),u.charts=[],u.end=t.end,u.profile=t,T(\"empty\").h"
    "idden=!0,T(\"report\").hidden=!1,n.textContent=\"\";for(const r of s)T(r).hidden=!0;s.splice("
    "0,5).map(r=>qe(r,t)).forEach(o),T(u.charts.includes(p)?\"memory\":\"timeline\").querySelector"
    "(\".body\").prepend(On()),q(0,t.end),document.title=[\"MemLord\",w(t.meta.labels,60),m(t.meta"
    ".pid)&&\"pid \"+t.meta.pid].filter(Boolean).join(\" \\xB7 \"),setTimeout(function r(){u.profi"
    "le===t&&(o(qe(s.shift(),t)),s.length?setTimeout(r):performance.mark(\"complete\"))})}const ae"
    "=e=>{T(\"message\").textContent=e,T(\"message\").hidden=!e};function ft(e,t){const s=T(\"repo"
    "rt\").hidden?\"\":\" The report below is still the one before.\";let n;try{n=JSON.parse(e)}ca"
    "tch(r){return ae(`${t} is not JSON: ${w(r.message)}.${s}`)}const o=w(_(n).schema);if(o!==\"me"
    "mlord/1\")return ae(`${t} is not a profile of MemLord that this page can read: its schema is "
    "${o?\"\\u201C\"+o+\"\\u201D\":\"missing\"}, not \\u201Cmemlord/1\\u201D.${s}`);if(!Array.isAr"
    "ray(n.devices))return ae(`${t} says that it is a profile, but has no devices.${s}`);ae(\"\"),"
    "Bn(n)}function dt(e){if(!e)return;const t=new FileReader;t.onload=()=>ft(t.result,w(e.name)),"
    "t.onerror=()=>ae(w(e.name)+\" could not be read.\"),t.readAsText(e)}function xe(e){e(document"
    ".documentElement.classList),Ze(),u.charts.length&&et()}const Se=e=>t=>{t.preventDefault(),doc"
    "ument.body.classList.toggle(\"over\",e)};Ze();Y(window,{dragover:Se(!0),dragleave:Se(!1),drop"
    ":e=>{Se(!1)(e),dt(e.dataTransfer.files[0])},resize:Z,scroll:re,beforeprint:()=>xe(e=>e.add(\""
    "print\")),afterprint:()=>xe(e=>e.remove(\"print\"))});Y(T(\"open\"),{click:()=>T(\"file\").cl"
    "ick()});Y(T(\"file\"),{change:e=>{dt(e.target.files[0]),e.target.value=\"\"}});Y(T(\"theme\")"
    ",{click:()=>xe(e=>{const t=x.dark;e.toggle(\"dark\",!t),e.toggle(\"light\",t)})});Y(matchMedi"
    "a(\"(prefers-color-scheme: dark)\"),{change:()=>xe(()=>0)});const Ue=T(\"profile\").textConte"
    "nt.trim();T(\"profile\").remove();T(\"hint\").textContent=\"Drop a profile.json here, or open"
    " one. It is read on this machine and goes nowhere.\";Ue&&ft(Ue,\"The profile in this page\");"
    "performance.mark(\"interactive\");})();</script>\n</body>\n</html>\n"};

#endif /* >>page */

/* ---------------------------------------------------------------------- >>formats --
   Owns the formats of other tools: one writer a format, each from a captured report. Uses >>reports
   and the reading functions. Invariants: a writer keeps no table beyond the ids of its format,
   which are numbered as the rows of the ledger; a row added while it writes has no number, and
   blocks of such a row are written without that site, tag or scope. Locks: those of reading; none
   while the host's function writes. */

#if !defined(MEMLORD_NO_REPORTS)

/* A block at the moment that its shard was read, or as of an event of the ring. The balance of an
   arena is a block too, at an address that no other has. */
typedef struct mli_live_block {
    uint64_t storage, bytes;
    uint32_t frame;           /* the innermost frame of its stack */
    uint32_t tag, scope;      /* 0: none, or one without a number */
    unsigned char dev, state; /* MLI_BLOCK_... */
} mli_live_block;
enum {
    MLI_BLOCK_PENDING = 1,
    MLI_BLOCK_PARTS = 2,
    MLI_BLOCK_ARENA = 4,
    MLI_BLOCK_FREED = 8, /* in the table of last events, as are the next two */
    MLI_BLOCK_OPEN = 16, /* TRACE: its slice is not ended. MEMORY_VIZ: its free is requested */
    MLI_BLOCK_DONE = 32  /* MEMORY_VIZ: its segment is written */
};

/* Live blocks of one stack, tag and device. */
typedef struct mli_group {
    mli_live_block of; /* dev 0: a free group */
    uint64_t blocks, bytes;
} mli_group;
#define MLI_GROUPS 256
#define MLI_VIZ_WORDS 128

/* An event of the ring, with the block that it is of. */
typedef struct mli_export_event {
    mli_live_block of;
    uint64_t ns;
    uint32_t kind, thread;
} mli_export_event;

/* The state of a writer, beside the report. */
typedef struct mli_export {
    mli_report *r;
    memlord *lord;
    mli_out *o;
    uint32_t devices, sites, tags, scopes; /* the last rows that have a number; from 1 */
    void (*put_block)(struct mli_export *x, const mli_live_block *block);
    void (*put_group)(struct mli_export *x, const mli_group *group);
    void (*put_part)(struct mli_export *x, const memlord_part_info *part);
    const mli_live_block *whole; /* the block of the parts being written */
    uint64_t beside, parts;      /* its bytes that no part has yet; parts written so far */
    mli_group group[MLI_GROUPS];
    /* By dev: the bytes and the number of events that the ring adds; TRACE: then sum is the level.
       PPROF, HEAPTRACK: allocs of sites and their bytes; live bytes. PROMETHEUS: see
       mli_prom_known. */
    uint64_t sum[MEMLORD_MAX_DEVICES + 1], events[MEMLORD_MAX_DEVICES + 1];
    uint64_t written;            /* items so far, in a format that numbers them */
    void *table;                 /* scratch of the writer at hand */
    mli_live_block *last_events; /* TRACE, MEMORY_VIZ: the last event of each storage */
    uint64_t last_events_size, last_events_used; /* slots, a power of two; slots in use */
    uint64_t first;                              /* ns of the first event */
    int scoped;                                  /* 1: the ring has events of scopes */
    int64_t *level; /* TRACE: live bytes by tag row; behind them by dev: those without a tag */
    uint64_t due[MEMLORD_MAX_DEVICES + 1];   /* TRACE, by dev: ns of the next sample */
    uint64_t shown[MEMLORD_MAX_DEVICES + 1]; /* TRACE, by dev: the level of the last sample */
    unsigned char *depth;                    /* TRACE, by thread number: open scopes */
    uint32_t threads;          /* TRACE: entries of `depth` */
    uint32_t only;             /* MEMORY_VIZ: the dev of the events being written */
    uint64_t traces;           /* HEAPTRACK: traces so far */
    uint64_t last, last_bytes; /* HEAPTRACK: the allocation that is freed next; 0: none */
    struct {
        const char *text;
        size_t size;
    } word[MLI_VIZ_WORDS]; /* MEMORY_VIZ: the words in the memo, by number; size 0: a free one */
    int32_t number[MEMLORD_MAX_DEVICES + 1]; /* MEMORY_VIZ, by dev: the device's number there */
} mli_export;

static memlord_device mli_export_device(const mli_export *x, uint32_t dev) {
    return mli_device_record_at(x->lord, dev)->device;
}
/* Returns the tag of a row; NULL for row 0. */
static const char *mli_export_tag(const mli_export *x, uint32_t row) {
    return row ? (const char *)mli_row_at(x->lord, MLI_BOOK_TAG, row)->subject : NULL;
}

/* -- stacks. Frames are numbered from 1: the site rows; then for each device one for blocks without
      a site, one for its arena, one for its bytes no longer live; then the scopes -- */

enum { MLI_FRAME_UNKNOWN, MLI_FRAME_ARENA, MLI_FRAME_GONE, MLI_FRAME_KINDS };

static uint32_t mli_frame_of_kind(const mli_export *x, uint32_t dev, uint32_t kind) {
    return x->sites + (dev - 1) * MLI_FRAME_KINDS + kind + 1;
}
/* Returns the frame of a scope. With id 0: the last frame before those of scopes. */
static uint32_t mli_frame_of_scope(const mli_export *x, uint32_t id) {
    return x->sites + x->devices * MLI_FRAME_KINDS + id;
}
static uint32_t mli_frame_count(const mli_export *x) { return mli_frame_of_scope(x, x->scopes); }

/* Returns the site of a frame; NULL if it is none. */
static const memlord_site *mli_frame_site(const mli_export *x, uint32_t frame) {
    return frame <= x->sites ? mli_row_site(x->lord, frame) : NULL;
}

typedef struct mli_frame_name {
    const char *name, *file; /* not empty; "": none */
    uint64_t line;
    uint32_t dev, caller; /* 0: of no device; 0: without a caller of its own */
} mli_frame_name;

static MLI_COLD mli_frame_name mli_frame_name_of(const mli_export *x, uint32_t frame) {
    static const char *const kinds[] = {"(unknown)", "(arena)", "(no longer live)"};
    mli_frame_name f = {kinds[0], "", 0, 0, 0};
    uint32_t fixed = frame - x->sites - 1;
    if (frame <= x->sites) {
        const memlord_site *site = mli_row_site(x->lord, frame);
        f.file = site->file;
        f.line = mli_site_line(site);
        f.dev = mli_row_at(x->lord, MLI_BOOK_SITE, frame)->dev;
        if (site->function[0] || site->file[0])
            f.name = site->function[0] ? site->function : site->file;
    } else if (fixed < x->devices * MLI_FRAME_KINDS) {
        f.name = kinds[fixed % MLI_FRAME_KINDS];
        f.dev = fixed / MLI_FRAME_KINDS + 1;
    } else {
        const mli_scope_record *scope =
            mli_scope_record_at(x->lord, frame - mli_frame_of_scope(x, 0));
        f.name = scope->name;
        if (scope->parent) f.caller = mli_frame_of_scope(x, scope->parent->id);
    }
    return f;
}

/* The frames of a block, the innermost first: its site, then its scopes. */
typedef struct mli_stack {
    uint32_t n, frame[MLI_SCOPE_DEPTH_MAX + 1];
} mli_stack;

static MLI_COLD mli_stack mli_stack_of(const mli_export *x, const mli_live_block *b) {
    const mli_scope_record *scope = b->scope ? mli_scope_record_at(x->lord, b->scope) : NULL;
    mli_stack s;
    s.n = 1;
    s.frame[0] = b->frame;
    for (; scope && s.n <= MLI_SCOPE_DEPTH_MAX; scope = scope->parent)
        s.frame[s.n++] = mli_frame_of_scope(x, scope->id);
    return s;
}

/* -- walking the live blocks -- */

/* Returns a block; `where` has its rows and its scope as an event has them. Leaves out what has no
   number. */
static MLI_COLD mli_live_block mli_live_block_make(const mli_export *x, uint32_t dev,
                                                   uint64_t storage, uint64_t bytes,
                                                   uint64_t where) {
    uint32_t site = (uint32_t)where & MLI_SITE_ROWS_MAX;
    mli_live_block b;
    b.storage = storage;
    b.bytes = bytes;
    b.frame = site && site <= x->sites ? site : mli_frame_of_kind(x, dev, MLI_FRAME_UNKNOWN);
    b.tag = (uint32_t)(where >> 20) & MLI_TAG_ROWS_MAX;
    if (b.tag > x->tags) b.tag = 0;
    b.scope = (uint32_t)(where >> 36);
    if (b.scope > x->scopes) b.scope = 0;
    b.dev = (unsigned char)dev;
    b.state = 0;
    return b;
}

static MLI_COLD void mli_alive_fill(void *user, const mli_entry *e, void *item) {
    const mli_export *x = (const mli_export *)user;
    mli_live_block *b = (mli_live_block *)item;
    uint64_t plain = mli_word2_rows(e->word2);
    uint64_t scope = mli_scope_of(x->lord, plain);
    *b = mli_live_block_make(x, MLI_DEV(e->word1), e->key, MLI_BYTES(e->word1),
                             (plain & MLI_ROWS_MASK) >> 1 | scope << 36);
    if (mli_is_pending(e->word2)) b->state |= MLI_BLOCK_PENDING;
    if ((e->word2 & 1) && mli_side_record_of(e->word2)->parts) b->state |= MLI_BLOCK_PARTS;
}
static MLI_COLD int mli_alive_put(void *user, void *item) {
    mli_export *x = (mli_export *)user;
    const mli_live_block *b = (const mli_live_block *)item;
    if (b->dev <= x->devices) x->put_block(x, b); /* else added since the capture */
    return x->o->failed;
}
/* Calls put for every live block, then for the arena of each device that has a balance. */
static MLI_COLD void mli_live_blocks_each(mli_export *x,
                                          void (*put)(mli_export *x, const mli_live_block *b)) {
    mli_walk_query all = mli_walk_query_of(memlord_device_all());
    uint32_t dev;
    x->put_block = put;
    if (mli_copies_each(x->lord, &all, sizeof(mli_live_block), mli_alive_fill, mli_alive_put, x))
        x->r->result = MEMLORD_E_NOMEM;
    for (dev = 1; dev <= x->devices; dev++) {
        uint64_t arena = mli_u64_load(&mli_device_record_at(x->lord, dev)->arena);
        mli_live_block b = mli_live_block_make(
            x, dev, ((uint64_t)1 << 62) + ((uint64_t)dev << 50), arena, 0);
        b.frame = mli_frame_of_kind(x, dev, MLI_FRAME_ARENA);
        b.state = MLI_BLOCK_ARENA;
        if (arena) put(x, &b);
    }
}

/* Writes the parts of a block; returns how many of its bytes are in none. Stops at a part with more
   bytes than are left: another block has begun at that storage since, and the part is of it. */
static MLI_COLD int mli_export_part(void *user, const memlord_part_info *part) {
    mli_export *x = (mli_export *)user;
    if (part->bytes > x->beside) return 1;
    x->beside -= part->bytes;
    x->put_part(x, part);
    x->parts++;
    return x->o->failed;
}
static MLI_COLD uint64_t mli_export_parts(mli_export *x, const mli_live_block *b) {
    x->whole = b;
    x->beside = b->bytes;
    if (b->state & MLI_BLOCK_PARTS)
        (void)memlord_parts_each(x->lord, mli_export_device(x, b->dev), b->storage,
                                 mli_export_part, x);
    return x->beside;
}

/* Returns the group of a block, empty if it is new. Probes 8 slots; if all are of other groups,
   writes the group at its home and evicts it. An evicted group may be written again later: readers
   of the formats with groups add equal ones up. */
static MLI_COLD mli_group *mli_group_at(mli_export *x, const mli_live_block *b) {
    uint64_t key = (uint64_t)b->frame << 24 ^ (uint64_t)b->tag << 8 ^ b->dev;
    uint64_t at = ((key ^ (uint64_t)b->scope << 44) * 0x9e3779b97f4a7c15u) >> 56;
    mli_group *g;
    unsigned tries;
    for (tries = 0; tries < 8; tries++) {
        g = &x->group[(at + tries) % MLI_GROUPS];
        if (!g->of.dev) break;
        if (g->of.frame == b->frame && g->of.tag == b->tag && g->of.scope == b->scope &&
            g->of.dev == b->dev)
            return g;
    }
    if (tries == 8) g = &x->group[at];
    if (g->of.dev && x->put_group) x->put_group(x, g);
    g->of = *b;
    g->blocks = g->bytes = 0;
    return g;
}
static MLI_COLD void mli_group_add(mli_export *x, const mli_live_block *b) {
    mli_group *g = mli_group_at(x, b);
    g->blocks += !(b->state & MLI_BLOCK_ARENA);
    g->bytes += mli_export_parts(x, b);
}
static MLI_COLD void mli_groups_each(mli_export *x, void (*put)(mli_export *, const mli_group *)) {
    uint32_t i;
    x->put_group = put;
    mli_live_blocks_each(x, mli_group_add);
    for (i = 0; i < MLI_GROUPS; i++)
        if (x->group[i].of.dev) put(x, &x->group[i]);
}

/* Calls put for the allocations of each site since the last reset, then for those of each device
   that are of no site. */
typedef void (*mli_allocs_fn)(mli_export *x, const mli_live_block *of, uint64_t allocs,
                              uint64_t bytes);
static MLI_COLD void mli_allocs_each(mli_export *x, mli_allocs_fn put) {
    uint32_t i, dev;
    for (i = 1; i <= x->sites && !x->o->failed; i++) {
        mli_live_block of = mli_live_block_make(
            x, mli_row_at(x->lord, MLI_BOOK_SITE, i)->dev, 0, 0, i);
        memlord_site_stat s;
        mli_site_stat_fill(x->lord, i, &s);
        x->sum[of.dev] += s.allocs;
        x->events[of.dev] += s.alloc_bytes;
        put(x, &of, s.allocs, s.alloc_bytes);
    }
    for (dev = 1; dev <= x->devices; dev++) {
        const memlord_stats *s = &x->r->stat[dev - 1];
        mli_live_block of = mli_live_block_make(x, dev, 0, 0, 0);
        put(x, &of, s->allocs > x->sum[dev] ? s->allocs - x->sum[dev] : 0,
            s->total_allocated > x->events[dev] ? s->total_allocated - x->events[dev] : 0);
    }
}

/* -- the event ring, up to the moment of the report -- */

/* The most slots of the table of last events. Events of further storages are left out. */
#define MLI_LAST_EVENTS ((uint64_t)1 << 20)

/* Returns the last event of a block's storage, or the free slot where it belongs (dev 0). NULL:
   there is no table. Open addressing by device type and address. */
static mli_live_block *mli_last_event_at(const mli_export *x, const mli_live_block *of) {
    const uint16_t *type_of = x->lord->devices.dev_type;
    uint32_t type = type_of[of->dev];
    uint64_t at = (of->storage ^ (uint64_t)(type + 1) << 57) * 0x9e3779b97f4a7c15u >> 20;
    for (; x->last_events_size; at++) {
        mli_live_block *f = &x->last_events[at & (x->last_events_size - 1)];
        if (!f->dev || (f->storage == of->storage && type_of[f->dev] == type)) return f;
    }
    return NULL;
}
/* Calls fn for the ring's events up to the moment of the report, the oldest first. Leaves out
   devices without a number. */
typedef void (*mli_ring_event_fn)(mli_export *x, const mli_export_event *e);
static MLI_COLD void mli_ring_each(mli_export *x, mli_ring_event_fn fn) {
    mli_ring_reader reading;
    mli_event_copy e;
    if (!mli_ring_reader_begin(x->lord, &reading)) {
        x->r->result = MEMLORD_E_NOMEM;
        return;
    }
    while (!x->o->failed && mli_ring_reader_next(&reading, &e)) {
        mli_export_event out;
        out.of = mli_live_block_make(x, mli_event_dev(e.what), e.storage, MLI_BYTES(e.what),
                                     e.where);
        out.ns = mli_since_ns(&x->r->scale, e.stamp);
        out.kind = mli_event_kind(e.what);
        out.thread = e.thread;
        if (out.kind == MEMLORD_EVENT_PEND) out.of.state = MLI_BLOCK_PENDING;
        if (out.kind == MEMLORD_EVENT_FREE) out.of.state = MLI_BLOCK_FREED;
        if (out.ns <= x->r->uptime && out.of.dev <= x->devices) fn(x, &out);
    }
    mli_ring_reader_end(&reading);
}

/* Returns what an event adds to the live bytes of its device. */
static int64_t mli_event_delta(const mli_export_event *e) {
    int adds = e->kind == MEMLORD_EVENT_ALLOC || e->kind == MEMLORD_EVENT_MOVE ||
               e->kind == MEMLORD_EVENT_ARENA_ADD;
    int takes = e->kind == MEMLORD_EVENT_FREE || e->kind == MEMLORD_EVENT_ARENA_SUB;
    return (adds - takes) * (int64_t)e->of.bytes;
}
static int mli_event_is_of_block(const mli_export_event *e) {
    return e->kind == MEMLORD_EVENT_ALLOC || e->kind == MEMLORD_EVENT_FREE ||
           e->kind == MEMLORD_EVENT_PEND || e->kind == MEMLORD_EVENT_MOVE;
}

static MLI_COLD void mli_last_event_update(mli_export *x, const mli_export_event *e) {
    mli_live_block *f;
    if (e->ns < x->first) x->first = e->ns;
    x->scoped |= e->kind == MEMLORD_EVENT_SCOPE_BEGIN;
    if (!e->of.dev) return;
    x->sum[e->of.dev] += (uint64_t)mli_event_delta(e);
    x->events[e->of.dev]++;
    if (x->level && e->of.tag) x->level[e->of.tag] -= mli_event_delta(e);
    f = mli_event_is_of_block(e) ? mli_last_event_at(x, &e->of) : NULL;
    if (!f || (!f->dev && x->last_events_used >= x->last_events_size - x->last_events_size / 8))
        return;
    x->last_events_used += !f->dev;
    *f = e->of;
}

/* Reads the ring once: the last event of each storage; for each device the bytes it gains (x->sum)
   and its number of events (x->events); takes the bytes that each tag gains off x->level. */
static MLI_COLD void mli_last_events_build(mli_export *x) {
    const mli_ring *ring = (mli_ring *)mli_ptr_load_acquire(&x->lord->events.ring);
    uint64_t size = 64;
    if (!ring) return;
    while (size < ring->capacity + ring->capacity / 4 && size < MLI_LAST_EVENTS) size *= 2;
    x->last_events = (mli_live_block *)mli_own_alloc(x->lord,
                                                     (size_t)size * sizeof *x->last_events);
    if (x->last_events) {
        x->last_events_size = size;
        mli_ring_each(x, mli_last_event_update);
    } else {
        x->r->result = MEMLORD_E_NOMEM;
    }
}

/* -- strings and numbers -- */

/* Writes text as UTF-8. Puts a backslash before each character of `escaped`, and writes a newline
   as \n; with "" it escapes nothing. */
static MLI_COLD void mli_put_utf8(mli_out *o, const char *text, const char *escaped) {
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        uint32_t code;
        size_t n = mli_utf8_decode(s, &code);
        if (n == 1 && *escaped && (code == '\n' || strchr(escaped, (int)code))) {
            mli_put_str(o, "\\");
            mli_put(o, code == '\n' ? "n" : (const char *)s, 1);
        } else if (n) {
            mli_put(o, (const char *)s, n);
        } else {
            mli_put_invalid_byte(o, *s);
        }
        s += n ? n : 1;
    }
}
static size_t mli_utf8_size(const char *text) {
    mli_out count;
    mli_out_buffer(&count, NULL, 0);
    mli_put_utf8(&count, text, "");
    return count.total;
}

static void mli_put_hex_short(mli_out *o, uint64_t v) {
    unsigned digits = 1;
    while (digits < 16 && v >> (4 * digits)) digits++;
    mli_put_digits(o, v, 16, digits);
}

/* Writes the low n bytes of v, little-endian. */
static void mli_put_le(mli_out *o, uint64_t v, unsigned n) {
    for (; n--; v >>= 8) {
        char byte = (char)(unsigned char)(v & 255);
        mli_put(o, &byte, 1);
    }
}

/* -- TRACE, the Trace Event Format, JSON object form (Google's "Trace Event Format" document; read
      by ui.perfetto.dev and chrome://tracing).
   Times are microseconds since the ledger was created. A counter "DEVICE live" has one argument a
   tag, in bytes; they add up to the device's live bytes. Bytes that a change of tag moved count
   under the new tag from the beginning. The counter has a sample whenever its level has moved by
   a 64th of the peak, and at most 2048 more, at even steps of time. "DEVICE snapshots" shows the
   snapshots of the ledger. Scopes are slices of their threads: B and E from the ring or, if the
   ring has no scopes, X for the remembered invocations. A block that begins in the ring is an
   async slice. A block that is still live ends with the file; its end event has its parts, as JSON
   has them. Names are cut to 200 bytes. Snapshots come first, X next, the events of the ring last;
   snapshots and ring are each in the order of their time. Anomalies and drops are in
   "otherData". -- */

#define MLI_TRACE_TAGS    32
#define MLI_TRACE_SAMPLES 2048

/* Writes the beginning of an event, up to its name. */
static MLI_COLD void mli_trace_open(mli_export *x, const char *phase, uint64_t ns,
                                    uint32_t thread) {
    mli_jsonf(x->o, ",\n{'ph':%s,'pid':%ju,'tid':%ju,'ts':", phase, mli_pid(), (uint64_t)thread);
    mli_put_fixed(x->o, ns, 3);
    mli_jsonf(x->o, ",'name':");
}
static void mli_trace_close(mli_export *x) { mli_put_str(x->o, "}}"); }
/* Writes a name; NULL as null. Cuts it where a character begins: every event repeats the name. */
static MLI_COLD void mli_trace_text(mli_export *x, const char *text) {
    char buf[MLI_SCOPE_NAME + 1];
    size_t n = text ? mli_utf8_cut(text) : 0;
    if (n) memcpy(buf, text, n);
    buf[n] = 0;
    mli_put_json(x->o, text ? buf : NULL);
}
static MLI_COLD void mli_trace_pair(mli_export *x, const char *key, const char *text) {
    mli_jsonf(x->o, ",%s:", key);
    mli_trace_text(x, text);
}
/* Writes the beginning of an event named after a device, up to its arguments. */
static MLI_COLD void mli_trace_device(mli_export *x, const char *phase, uint64_t ns,
                                      uint32_t thread, uint32_t dev, const char *what) {
    mli_trace_open(x, phase, ns, thread);
    mli_jsonf(x->o, "'%i", mli_report_device(x->r, dev));
    mli_put_str(x->o, what);
    mli_jsonf(x->o, "','args':{");
}

static MLI_COLD void mli_trace_names(mli_export *x) {
    const mli_thread *t = (const mli_thread *)mli_ptr_load_acquire(&x->lord->threads.all);
    mli_trace_open(x, "M", 0, 0);
    mli_jsonf(x->o, "'process_name','args':{'name':'memlord " MEMLORD_VERSION "'}}");
    for (; t; t = (const mli_thread *)mli_ptr_load(&t->next)) {
        uint32_t number = t->id - MLI_THREAD_ID_FIRST + 1;
        mli_trace_open(x, "M", 0, number);
        mli_jsonf(x->o, "'thread_name','args':{'name':'thread %ju'}}", (uint64_t)number);
    }
}

static MLI_COLD void mli_trace_snapshot(mli_export *x, const mli_snapshot *s) {
    uint32_t dev;
    for (dev = 1; dev <= s->devices && dev <= x->devices; dev++) {
        const mli_device_usage *held = &mli_snapshot_devices(s)[dev - 1];
        mli_trace_device(x, "C", s->time, 0, dev, " snapshots");
        mli_jsonf(x->o, "'live':%ju,'pending':%ju,'reserved':%ju}}", held->live, held->pending,
                  held->reserved);
    }
    if (!s->name) return;
    mli_trace_open(x, "i", s->time, 0);
    mli_trace_text(x, s->name);
    mli_jsonf(x->o, ",'s':'g','cat':'checkpoint','args':{'live':%ju}}", s->live);
}

/* Writes the invocations of a scope that one thread remembers. */
static MLI_COLD void mli_trace_thread_scope(mli_export *x, const mli_scope_record *scope,
                                            const mli_thread_scope *s) {
    size_t i, n = mli_thread_scope_read(x->lord, s, x->r->run);
    for (i = 0; i < n; i++) {
        const mli_scope_run *v = &x->r->run[i];
        mli_trace_open(x, "X", mli_since_ns(&x->r->scale, v->start), s->thread / 2 - 1);
        mli_trace_text(x, scope->name);
        mli_jsonf(x->o, ",'dur':");
        mli_put_fixed(x->o, mli_span_ns(&x->r->scale, v->stamps), 3);
        mli_jsonf(x->o, ",'cat':'scope','args':{");
        mli_trace_pair(x, "path", scope->path);
        mli_jsonf(x->o, ",'delta_bytes':%jd,'delta_blocks':%jd,'peak_bytes':%ju",
                  (int64_t)v->bytes, (int64_t)v->blocks, v->peak);
        mli_trace_pair(x, "shapes", (const char *)(uintptr_t)v->shapes);
        mli_trace_close(x);
    }
}
static MLI_COLD void mli_trace_scopes(mli_export *x) {
    uint32_t id;
    for (id = 1; id <= x->scopes && !x->o->failed; id++) {
        const mli_scope_record *scope = mli_scope_record_at(x->lord, id);
        const mli_thread_scope *s = (const mli_thread_scope *)mli_ptr_load_acquire(&scope->threads);
        for (; s; s = s->next) mli_trace_thread_scope(x, scope, s);
    }
}

/* -- TRACE: the events of the ring -- */

static int64_t mli_not_negative(int64_t v) { return v > 0 ? v : 0; }

static MLI_COLD void mli_trace_counter(mli_export *x, uint32_t dev, uint64_t ns) {
    uint32_t row, n = 0;
    int64_t others = 0;
    mli_trace_device(x, "C", ns, 0, dev, " live");
    mli_jsonf(x->o, "'(untagged)':%jd", mli_not_negative(x->level[x->tags + dev]));
    for (row = 1; row <= x->tags; row++) {
        int64_t level = mli_not_negative(x->level[row]);
        if (x->r->tag[row].dev != dev) continue;
        if (n++ < MLI_TRACE_TAGS) {
            mli_put_str(x->o, ",");
            mli_trace_text(x, mli_export_tag(x, row));
            mli_jsonf(x->o, ":%jd", level);
        } else {
            others += level;
        }
    }
    if (n > MLI_TRACE_TAGS) mli_jsonf(x->o, ",'(other tags)':%jd", others);
    mli_trace_close(x);
    x->due[dev] = ns + (x->r->uptime - x->first) / MLI_TRACE_SAMPLES;
    x->shown[dev] = x->sum[dev];
}

static MLI_COLD void mli_trace_level(mli_export *x, const mli_export_event *e) {
    uint32_t dev = e->of.dev;
    int64_t delta = mli_event_delta(e), moved;
    if (!delta) return;
    x->level[e->of.tag ? e->of.tag : x->tags + dev] += delta;
    x->sum[dev] += (uint64_t)delta;
    moved = (int64_t)(x->sum[dev] - x->shown[dev]);
    if (e->ns >= x->due[dev] ||
        (uint64_t)(moved < 0 ? -moved : moved) > x->r->stat[dev - 1].peak / 64)
        mli_trace_counter(x, dev, e->ns);
}

/* Writes an event of a block's slice, up to the arguments that only some have. Phase b begins the
   slice, e ends it, n is an instant in it. */
static MLI_COLD void mli_trace_life(mli_export *x, const char *phase, const mli_live_block *b,
                                    uint32_t thread, uint64_t ns) {
    const memlord_site *site = mli_frame_site(x, b->frame);
    const char *tag = mli_export_tag(x, b->tag);
    mli_trace_open(x, phase, ns, thread);
    mli_trace_text(x, tag ? tag : site && site->function[0] ? site->function : "block");
    mli_jsonf(x->o, ",'cat':'block','id':'");
    mli_put_str(x->o, mli_type_names[x->lord->devices.dev_type[b->dev]]);
    mli_put_str(x->o, " 0x");
    mli_put_hex_short(x->o, b->storage);
    mli_jsonf(x->o, "','args':{");
    if (*phase != 'b') return;
    mli_jsonf(x->o, "'device':'%i','bytes':%ju", mli_report_device(x->r, b->dev), b->bytes);
    mli_trace_pair(x, "tag", tag);
    mli_trace_pair(x, "scope", b->scope ? mli_scope_record_at(x->lord, b->scope)->path : NULL);
    mli_trace_pair(x, "file", site ? site->file : NULL);
    mli_json_u64(x->o, "line", mli_site_line(site));
    mli_trace_pair(x, "function", site ? site->function : NULL);
}
static MLI_COLD void mli_trace_block(mli_export *x, const mli_export_event *e) {
    mli_live_block *f = mli_last_event_at(x, &e->of);
    int pends = e->kind == MEMLORD_EVENT_PEND;
    if (!f || !f->dev) return;
    if (f->state & MLI_BLOCK_OPEN) {
        mli_trace_life(x, pends ? "n" : "e", f, e->thread, e->ns);
        mli_trace_close(x);
    }
    if (pends) return;
    *f = e->of;
    if (e->kind == MEMLORD_EVENT_FREE) return;
    f->state |= MLI_BLOCK_OPEN;
    mli_trace_life(x, "b", f, e->thread, e->ns);
    mli_trace_close(x);
}

/* Writes the begin or the end of a scope. x->depth counts the open scopes of each thread, so that
   an end without its begin in the ring is left out. */
static MLI_COLD void mli_trace_scope(mli_export *x, const mli_export_event *e) {
    const mli_scope_record *scope = e->of.scope ? mli_scope_record_at(x->lord, e->of.scope) : NULL;
    int begins = e->kind == MEMLORD_EVENT_SCOPE_BEGIN;
    if (e->thread >= x->threads || (begins ? !scope : !x->depth[e->thread])) return;
    mli_trace_open(x, begins ? "B" : "E", e->ns, e->thread);
    mli_trace_text(x, scope ? scope->name : "");
    mli_jsonf(x->o, ",'cat':'scope','args':{");
    if (begins) mli_trace_pair(x, "path", scope->path);
    mli_trace_close(x);
    x->depth[e->thread] = (unsigned char)(x->depth[e->thread] + (begins ? 1 : -1));
}

static MLI_COLD void mli_trace_event(mli_export *x, const mli_export_event *e) {
    int gc = e->kind == MEMLORD_EVENT_GC;
    if (e->kind == MEMLORD_EVENT_SCOPE_BEGIN || e->kind == MEMLORD_EVENT_SCOPE_END)
        mli_trace_scope(x, e);
    if (!e->of.dev) return;
    mli_trace_level(x, e);
    if (mli_event_is_of_block(e)) mli_trace_block(x, e);
    if (!gc && e->kind != MEMLORD_EVENT_OOM) return;
    mli_trace_device(x, "i", e->ns, e->thread, e->of.dev, gc ? " gc" : " out of memory");
    mli_jsonf(x->o, "'bytes':%ju},'s':'p','cat':'memory'}", e->of.bytes);
}

/* Sets the levels at the start of the ring: those of the report less all that the ring adds. */
static MLI_COLD void mli_trace_levels(mli_export *x) {
    uint32_t i;
    for (i = 1; i <= x->devices; i++) {
        x->sum[i] = x->shown[i] = x->r->stat[i - 1].allocated - x->sum[i];
        x->level[x->tags + i] = (int64_t)x->sum[i];
    }
    for (i = 1; i <= x->tags; i++) {
        x->level[i] += (int64_t)x->r->tag[i].stat.allocated;
        x->level[x->tags + x->r->tag[i].dev] -= x->level[i];
    }
}

/* Ends all open scopes and blocks at the time of the report; writes a last sample a device. */
static MLI_COLD void mli_trace_end(mli_export *x) {
    uint64_t i, now = x->r->uptime;
    for (i = 0; i < x->threads; i++)
        for (; x->depth[i]; x->depth[i]--) {
            mli_trace_open(x, "E", now, (uint32_t)i);
            mli_jsonf(x->o, "'','cat':'scope','args':{}}");
        }
    for (i = 0; i < x->last_events_size; i++) {
        const mli_live_block *f = &x->last_events[i];
        if (!(f->state & MLI_BLOCK_OPEN)) continue;
        mli_trace_life(x, "e", f, 0, now);
        mli_json_parts(x->r, x->lord->devices.dev_type[f->dev], f->storage);
        mli_trace_close(x);
    }
    for (i = 1; i <= x->devices; i++) mli_trace_counter(x, (uint32_t)i, now);
}

/* Writes the anomalies and drops that are not 0, of all devices and of each. */
static MLI_COLD void mli_trace_anomalies(mli_export *x) {
    uint32_t dev;
    mli_jsonf(x->o, "\n],'otherData':{'anomalies_and_drops':{");
    for (dev = 0; dev <= x->devices; dev++) {
        const char *name;
        size_t i = 0;
        uint64_t v;
        mli_jsonf(x->o, ",'%i':{", mli_device_code(mli_anomaly_device(x->r, dev)));
        while ((name = mli_anomaly_next(x->r, dev, &i, &v)) != NULL)
            mli_json_u64(x->o, name, v);
        mli_put_str(x->o, "}");
    }
    mli_put_str(x->o, "}}}\n");
}

static MLI_COLD void mli_trace_json(mli_export *x) {
    size_t size = ((size_t)x->tags + x->devices + 1) * sizeof *x->level;
    uint32_t i;
    x->threads = mli_thread_count(x->lord) + 2;
    x->level = (int64_t *)mli_own_alloc(x->lord, size);
    x->depth = (unsigned char *)mli_own_alloc(x->lord, x->threads + 1);
    mli_jsonf(x->o, "{'displayTimeUnit':'ms','traceEvents':[");
    mli_trace_names(x);
    for (i = 0; i < x->r->snapshots; i++) mli_trace_snapshot(x, x->r->snapshot[i]);
    if (x->level && x->depth) {
        x->first = x->r->uptime;
        mli_last_events_build(x);
        if (!x->scoped) mli_trace_scopes(x);
        mli_trace_levels(x);
        for (i = 1; i <= x->devices && x->last_events_size; i++) mli_trace_counter(x, i, x->first);
        mli_ring_each(x, mli_trace_event);
        mli_trace_end(x);
    } else {
        x->r->result = MEMLORD_E_NOMEM;
    }
    mli_trace_anomalies(x);
    mli_own_free(x->lord, x->depth, x->threads + 1);
    mli_own_free(x->lord, x->level, size);
}

/* -- PROMETHEUS, text exposition format 0.0.4
      (https://prometheus.io/docs/instrumenting/exposition_formats/).
   Units are bytes and seconds. Every sample is of one device or physical device, never of a sum, so
   that sum() in a query is right. An empty tag counts the bytes without a tag. Counters start over
   at memlord_reset, as counters may. Sites, blocks and their parts are left out: each would be a
   series of its own. -- */

static const char *const mli_families[MLI_COLUMNS][2] = { /* name, help */
#define MLI_X(name, kind, family, text) {family, text},
    MLI_STATS(MLI_X)
#undef MLI_X
#define MLI_X(name, text) {"dropped_" #name "_total", text},
    MLI_LOSSES(MLI_X)
#undef MLI_X
};

/* Writes the HELP and TYPE lines of a family. A family is a counter if its name ends in _total:
   all that only grow are named so, and no others. */
static MLI_COLD void mli_prom_head(mli_out *o, const char *name, const char *help) {
    size_t n = strlen(name);
    int counter = n > 6 && !strcmp(name + n - 6, "_total");
    mli_putf(o, "# HELP memlord_%s %s\n# TYPE memlord_%s %s\n", name, help, name,
             counter ? "counter" : "gauge");
}
/* Writes a sample. `kind` is 'd' for a number that may be below 0, 'X' for billionths: nanoseconds,
   written as seconds, or a rate. There is no device label if `d` is all devices, and no label
   `key` if `key` is NULL. */
static MLI_COLD void mli_prom_sample(mli_out *o, const char *name, memlord_device d,
                                     const char *key, const char *label, char kind, uint64_t v) {
    int device = d.type != MEMLORD_ANY;
    mli_putf(o, "memlord_%s", name);
    if (device) mli_putf(o, "{device=\"%i\"", mli_device_code(d));
    if (key) {
        mli_putf(o, device ? ",%s=\"" : "{%s=\"", key);
        mli_put_utf8(o, label, "\\\"");
        mli_put_str(o, "\"");
    }
    mli_put_str(o, device || key ? "} " : " ");
    if (kind == 'X')
        mli_put_fixed(o, v, 9);
    else if (kind == 'd')
        mli_put_i64(o, (int64_t)v);
    else
        mli_put_u64(o, v);
    mli_put_str(o, "\n");
}
/* Writes a family with one sample, of the whole ledger. */
static MLI_COLD void mli_prom_whole(mli_out *o, const char *name,
                                    const char *help, char kind, uint64_t v) {
    mli_prom_head(o, name, help);
    mli_prom_sample(o, name, memlord_device_all(), NULL, NULL, kind, v);
}

/* Writes one family a statistic, with a sample a device: the format wants a family in one
   contiguous group. UINT64_MAX means unknown, and gets no sample. */
static MLI_COLD void mli_prom_devices(mli_export *x) {
    size_t stat;
    uint32_t i;
    for (stat = 0; stat < MLI_STAT_COUNT; stat++) {
        const char *name = mli_families[stat][0];
        uint64_t rest = *mli_stat_of(&x->r->total, stat);
        int lost = stat == MLI_STAT_dropped_allocs || stat == MLI_STAT_dropped_bytes ||
                   stat == MLI_STAT_dropped_events;
        if (!*name || !x->devices) continue;
        mli_prom_head(x->o, name, mli_families[stat][1]);
        for (i = 1; i <= x->devices; i++) {
            uint64_t v = *mli_stat_of(&x->r->stat[i - 1], stat);
            if (v != UINT64_MAX)
                mli_prom_sample(x->o, name, mli_export_device(x, i), NULL, NULL, 'u', v);
            rest -= v;
        }
        if (lost && rest) /* losses of no device */
            mli_prom_sample(x->o, name, memlord_device_all(), NULL, NULL, 'u', rest);
    }
}

/* Writes a family of the values in x->sum, with a sample for each device whose value is known, and
   nothing if none is. */
static MLI_COLD void mli_prom_known(mli_export *x, const char *name, const char *help, char kind) {
    uint32_t i, samples = 0;
    for (i = 1; i <= x->devices; i++) {
        uint64_t v = x->sum[i];
        if (v == UINT64_MAX) continue;
        if (!samples++) mli_prom_head(x->o, name, help);
        mli_prom_sample(x->o, name, mli_export_device(x, i), NULL, NULL, kind, v);
    }
}
static MLI_COLD void mli_prom_rates(mli_export *x) {
    size_t k;
    uint32_t i;
    for (k = 0; k < MLI_RATE_COUNT; k++) {
        for (i = 1; i <= x->devices; i++) x->sum[i] = mli_rate_read(&x->r->stat[i - 1], k);
        mli_prom_known(x, mli_rates[k].name, mli_rates[k].text, 'X');
    }
    for (i = 1; i <= x->devices; i++) x->sum[i] = mli_mean_read(&x->r->stat[i - 1]);
    mli_prom_known(x, "mean_bytes", "bytes of an alloc in the mean", 'u');
}

/* A family with one sample a line of a list. */
typedef struct mli_family {
    const char *name;
    char kind;   /* u: a number; d: it may be below 0; X: nanoseconds, written as seconds */
    uint16_t at; /* its offset in the line */
    const char *help;
} mli_family;
static const mli_family mli_prom_phys[] = {
    {"capacity_bytes", 'u', offsetof(mli_phys_line, total), "bytes of a physical device"},
    {"capacity_used_bytes", 'u', offsetof(mli_phys_line, used),
     "bytes of it in use, whoever uses them"},
    {"self_bytes", 'u', offsetof(mli_phys_line, self),
     "bytes of it the ledger knows; files mapped are not in it"},
    {"process_rest_bytes", 'u', offsetof(mli_phys_line, rest),
     "bytes of it this process uses and the ledger does not know"},
    {"others_bytes", 'u', offsetof(mli_phys_line, others), "bytes of it others use"},
    {"unaccounted_bytes", 'd', offsetof(mli_phys_line, unaccounted),
     "capacity_used_bytes - self_bytes; may be below 0"},
    {"limit_bytes", 'u', offsetof(mli_phys_line, limit),
     "bytes allowed of it; no sample: no limit"},
    {"held_bytes", 'u', offsetof(mli_phys_line, held), "bytes of it that tickets keep"},
    {"capacity_age_seconds", 'X', offsetof(mli_phys_line, age), "age of these samples"},
    {NULL, 0, 0, NULL}};
static const mli_family mli_prom_tags[] = {
    {"tag_bytes", 'u', offsetof(mli_tag_line, stat.allocated),
     "bytes live by what they are for; an empty tag: those without one"},
    {"tag_peak_bytes", 'u', offsetof(mli_tag_line, stat.peak), "highest tag_bytes"},
    {"tag_blocks", 'u', offsetof(mli_tag_line, stat.blocks), "storages live by what they are for"},
    {"tag_expected_bytes", 'u', offsetof(mli_tag_line, stat.expected), "bytes planned for a tag"},
    {"tag_variance_bytes", 'd', offsetof(mli_tag_line, stat.variance),
     "tag_bytes - tag_expected_bytes; may be below 0"},
    {NULL, 0, 0, NULL}};
static const mli_family mli_prom_scopes[] = {
    {"scope_invocations_total", 'u', offsetof(mli_scope_line, stat.count),
     "invocations of a scope that are over"},
    {"scope_running", 'u', offsetof(mli_scope_line, stat.running),
     "invocations of a scope that are not"},
    {"scope_seconds_total", 'X', offsetof(mli_scope_line, stat.ns.total),
     "time of the host in a scope"},
    {"scope_delta_bytes", 'd', offsetof(mli_scope_line, stat.bytes.total),
     "bytes a scope allocated less those it freed; may be below 0"},
    {"scope_peak_bytes", 'u', offsetof(mli_scope_line, stat.peak),
     "highest in one invocation, above where that began"},
    {NULL, 0, 0, NULL}};

/* Writes a family of a list of n lines, each of `size` bytes. `key`: the label of their names. */
static MLI_COLD void mli_prom_family(mli_out *o, const mli_family *f, const char *key,
                                     const void *lines, size_t size, size_t n) {
    size_t samples = 0;
    const char *line = (const char *)lines;
    for (; n-- && !o->failed; line += size) {
        const mli_line *of = (const mli_line *)(const void *)line;
        uint64_t v;
        memcpy(&v, line + f->at, sizeof v);
        if (v == (f->kind == 'd' ? (uint64_t)INT64_MIN : UINT64_MAX)) continue;
        if (!samples++) mli_prom_head(o, f->name, f->help);
        mli_prom_sample(o, f->name, of->device, of->name ? key : NULL, of->name, f->kind, v);
    }
}
static MLI_COLD void mli_prom_list(mli_out *o, const mli_family *f, const char *key,
                                   const void *lines, size_t size, size_t n) {
    for (; f->name && lines; f++) mli_prom_family(o, f, key, lines, size, n);
}

/* Writes the bytes by tag of each device at its peak; bytes of no listed tag go under an empty
   tag. */
static MLI_COLD void mli_prom_holders(mli_export *x) {
    static const char name[] = "peak_holder_bytes";
    mli_holders *h = &x->r->holders;
    uint32_t i, families = 0;
    size_t k;
    for (i = 1; i <= x->devices; i++) {
        memlord_device d = mli_export_device(x, i);
        uint64_t rest;
        if (!mli_holders_get(x->lord, i, h)) continue;
        if (!families++)
            mli_prom_head(x->o, name, "bytes live by tag when the peak was last looked at");
        for (k = 0, rest = h->bytes; k < h->tags; k++) {
            if (!h->tag[k].tag) continue;
            mli_prom_sample(x->o, name, d, "tag", h->tag[k].tag, 'u', h->tag[k].allocated);
            mli_take_off(&rest, h->tag[k].allocated);
        }
        mli_prom_sample(x->o, name, d, "tag", "", 'u', rest);
    }
}

/* Writes a family of the pairs of devices between which bytes moved or were copied. `at`: the
   offset of its count in a route. */
static MLI_COLD void mli_prom_routes(mli_export *x, const char *name, const char *help, size_t at) {
    const mli_route *route = (const mli_route *)mli_ptr_load_acquire(&x->lord->blocks.routes);
    int samples = 0;
    for (; route; route = route->next) {
        if (!mli_route_used(route)) continue;
        if (!samples++) mli_prom_head(x->o, name, help);
        mli_putf(x->o, "memlord_%s{from=\"%i\",to=\"%i\"} %ju\n", name,
                 mli_report_device(x->r, route->from), mli_report_device(x->r, route->to),
                 mli_u64_load((const mli_u64 *)(const void *)((const char *)route + at)));
    }
}

/* Writes the last request of each device that found no memory. The site is a label. */
static MLI_COLD void mli_prom_ooms(mli_export *x) {
    static const mli_family families[] = {
        {"last_oom_bytes", 'u', offsetof(mli_oom, bytes),
         "bytes the last request that found no memory wanted"},
        {"last_oom_live_bytes", 'u', offsetof(mli_oom, live), "bytes live then"},
        {"last_oom_used_bytes", 'u', offsetof(mli_oom, used),
         "bytes of its physical device in use then"},
        {NULL, 0, 0, NULL}};
    const mli_family *f;
    for (f = families; f->name; f++) {
        uint32_t i, samples = 0;
        for (i = 1; i <= x->devices; i++) {
            const mli_oom oom = mli_oom_of(x->lord, i);
            char site[512];
            mli_out o;
            uint64_t v;
            memcpy(&v, (const char *)&oom + f->at, sizeof v);
            if (!oom.time || v == UINT64_MAX) continue;
            mli_out_buffer(&o, site, sizeof site);
            if (oom.site) mli_put_site(&o, 0, oom.site);
            (void)mli_out_end(&o, sizeof site);
            if (!samples++) mli_prom_head(x->o, f->name, f->help);
            mli_prom_sample(x->o, f->name, mli_export_device(x, i), oom.site ? "site" : NULL, site,
                            'u', v);
        }
    }
}

static MLI_COLD void mli_prometheus(mli_export *x) {
    const mli_report *r = x->r;
    mli_out *o = x->o;
    size_t i;
    mli_prom_devices(x);
    mli_prom_rates(x);
    mli_prom_ooms(x);
    mli_prom_list(o, mli_prom_phys, NULL, r->phys, sizeof *r->phys, r->phys_count);
    mli_prom_list(o, mli_prom_tags, "tag", r->tag + (r->tag != NULL), sizeof *r->tag,
                  r->tags + r->devices);
    mli_prom_holders(x);
    mli_prom_routes(x, "pair_moves_total", "storages moved between two devices",
                    offsetof(mli_route, moves));
    mli_prom_routes(x, "pair_moved_bytes_total", "bytes moved between two devices",
                    offsetof(mli_route, moved_bytes));
    mli_prom_routes(x, "pair_copies_total", "copies between two devices",
                    offsetof(mli_route, copies));
    mli_prom_routes(x, "pair_copied_bytes_total", "bytes copied between two devices",
                    offsetof(mli_route, copied_bytes));
    mli_prom_list(o, mli_prom_scopes, "scope", r->scope + (r->scope != NULL), sizeof *r->scope,
                  r->scopes);
    for (i = MLI_STAT_COUNT; i < MLI_COLUMNS; i++)
        mli_prom_whole(o, mli_families[i][0], mli_families[i][1], 'u',
                       mli_loss_value(x->lord, i - MLI_STAT_COUNT));
    mli_prom_whole(o, "accounts_open", "accounts open now", 'u', x->r->accounts);
    mli_prom_whole(o, "own_bytes", "bytes the ledger itself takes", 'u',
                   mli_u64_load(&x->lord->memory.own_bytes));
    mli_prom_whole(o, "uptime_seconds", "age of the ledger", 'X', x->r->uptime);
    mli_prom_head(o, "build_info", "1, with the version of memlord.h");
    mli_prom_sample(o, "build_info", memlord_device_all(), "version", MEMLORD_VERSION, 'u', 1);
}

/* -- CSV, RFC 4180: one table, the live blocks.
   One line a block, ended by CR LF, below a line of names. Text is as in TEXT: control characters
   are escaped like bytes that are not UTF-8, so that a block stays one line. Text that a
   spreadsheet would take for a formula (= + - @ in front; names come from model files) gets an
   apostrophe before it. So does text that begins with an apostrophe: a reader always removes one.
   `shape` reads as JSON. The parts of a block follow it, one line each. A part repeats the block's
   device, storage and site, and has its own tag and description. It has a `part_offset` and a
   `part_bytes`, and 0 in `bytes` and `refs`, so that `bytes` add up to the live bytes. Anomalies
   and drops are not in it: readers know no comments. -- */

static MLI_COLD void mli_csv_text(mli_out *o, const char *text) {
    mli_put_str(o, ",");
    if (!text || !*text) return;
    mli_put_str(o, "\"");
    if (strchr("=+-@'", *text)) mli_put_str(o, "'");
    mli_put_escaped(o, text, '"', "\"\"");
    mli_put_str(o, "\"");
}

/* Writes a line of the table, up to the columns of parts. */
static MLI_COLD void mli_csv_line(mli_out *o, const memlord_block_info *b) {
    mli_putf(o, "%i,0x", mli_device_code(b->device));
    mli_put_hex_short(o, b->storage);
    mli_putf(o, ",%ju,%ju,%ju,%ju", b->bytes, b->refs, b->born, (uint64_t)(b->pending != 0));
    mli_csv_text(o, b->tag);
    mli_csv_text(o, b->scope);
    mli_csv_text(o, b->meta.name);
    mli_csv_text(o, b->meta.dtype);
    mli_put_str(o, b->meta.rank ? ",\"" : ",");
    mli_put_shape(o, &b->meta, ",");
    mli_putf(o, b->meta.rank ? "\",%ju" : ",%ju", (uint64_t)b->meta.flags);
    mli_csv_text(o, b->site ? b->site->file : NULL);
    mli_putf(o, ",%ju", mli_site_line(b->site));
    mli_csv_text(o, b->site ? b->site->function : NULL);
}
/* Writes a part as a block of no bytes. */
static MLI_COLD int mli_csv_part(void *user, const memlord_part_info *part) {
    mli_export *x = (mli_export *)user;
    memlord_block_info b = *(const memlord_block_info *)x->table;
    b.bytes = b.refs = 0;
    b.meta = part->meta;
    b.tag = part->meta.tag;
    mli_csv_line(x->o, &b);
    mli_putf(x->o, ",%ju,%ju\r\n", part->offset, part->bytes);
    return x->o->failed;
}
static MLI_COLD int mli_csv_block(void *user, const memlord_block_info *b) {
    mli_export *x = (mli_export *)user;
    mli_csv_line(x->o, b);
    mli_put_str(x->o, ",,\r\n");
    x->table = (void *)(uintptr_t)b;
    (void)memlord_parts_each(x->lord, b->device, b->storage, mli_csv_part, x);
    return x->o->failed;
}

static MLI_COLD void mli_csv(mli_export *x) {
    mli_walk_query all = mli_walk_query_of(memlord_device_all());
    mli_put_str(x->o, "device,storage,bytes,refs,born,pending,tag,scope,name,dtype,shape,"
                      "flags,file,line,function,part_offset,part_bytes\r\n");
    if (mli_map_each(x->lord, &all, mli_csv_block, x, NULL))
        x->r->result = MEMLORD_E_NOMEM;
}

/* -- FOLDED, Brendan Gregg's collapsed stacks (https://github.com/brendangregg/FlameGraph,
      stackcollapse): "device;tag;scope;inner scope;site bytes", a line each.
   Counts live bytes. The bytes of a part have the part's name as one more frame. An unknown tag or
   scope has no frame; in the other frames a semicolon becomes a colon. Equal stacks may come on
   several lines, which readers add up. Anomalies and drops are not in it: readers know no
   comments. -- */

static MLI_COLD void mli_folded_text(mli_out *o, const char *text) {
    mli_put_str(o, ";");
    mli_put_escaped(o, text, ';', ":");
}
/* Writes the stack of a block, the outermost frame first. `part`: NULL, or its innermost frame. */
static MLI_COLD void mli_folded_line(mli_export *x, const mli_live_block *of,
                                     const char *part, uint64_t bytes) {
    mli_stack stack = mli_stack_of(x, of);
    mli_out *o = x->o;
    if (!bytes) return;
    mli_putf(o, "%i", mli_report_device(x->r, of->dev));
    if (of->tag) mli_folded_text(o, mli_export_tag(x, of->tag));
    while (stack.n--) {
        const memlord_site *site = mli_frame_site(x, stack.frame[stack.n]);
        if (site) {
            mli_put_str(o, ";");
            mli_put_site_escaped(o, site, ';', ":");
        } else {
            mli_folded_text(o, mli_frame_name_of(x, stack.frame[stack.n]).name);
        }
    }
    if (part) mli_folded_text(o, part);
    mli_putf(o, " %ju\n", bytes);
}
static void mli_folded_group(mli_export *x, const mli_group *g) {
    mli_folded_line(x, &g->of, NULL, g->bytes);
}
static void mli_folded_part(mli_export *x, const memlord_part_info *part) {
    mli_folded_line(x, x->whole, part->meta.name ? part->meta.name : "(part)", part->bytes);
}

static MLI_COLD void mli_folded(mli_export *x) {
    x->put_part = mli_folded_part;
    mli_groups_each(x, mli_folded_group);
}

/* -- PPROF, an uncompressed profile.proto (https://github.com/google/pprof/blob/main/proto/
      profile.proto).
   Samples are a site's allocations (alloc_objects and alloc_space, since the last reset) and its
   live blocks (inuse_...). Labels give the device and, if the blocks have one, the tag. The scopes
   that a block was allocated in are the callers of its site; the site calls the block's parts. The
   bytes of a part count only there, and a part is no object. Without a site a block is
   "(unknown)"; the balance of an arena is "(arena)". Functions and locations are numbered as
   frames, then come parts in the order they are written. Strings are mli_pprof_words, the devices,
   the tags, the names of frames, the comments, the names of parts. Comments have the anomalies and
   drops, of all and by device: go tool pprof -comments. -- */

static const char *const mli_pprof_words[] = {
    "",      "alloc_objects", "count", "alloc_space", "bytes",  "inuse_objects", "inuse_space",
    "space", "device",        "tag"};
enum { MLI_WORD_DEVICE = 8, MLI_WORD_TAG, MLI_WORDS };

/* These write fields of a protocol buffer (https://protobuf.dev/programming-guides/encoding/). */
static MLI_COLD void mli_pb_varint(mli_out *o, uint64_t v) {
    for (; v >= 128; v >>= 7) mli_put_le(o, (v & 127) | 128, 1);
    mli_put_le(o, v, 1);
}
static void mli_pb_u64(mli_out *o, unsigned field, uint64_t v) {
    mli_pb_varint(o, field << 3);
    mli_pb_varint(o, v);
}
static void mli_pb_size(mli_out *o, unsigned field, uint64_t size) {
    mli_pb_varint(o, field << 3 | 2);
    mli_pb_varint(o, size);
}
/* Writes the contents of a buffer as a field. */
static void mli_pb_message(mli_out *o, unsigned field, const mli_out *message) {
    mli_pb_size(o, field, message->used);
    mli_put(o, message->buf, message->used);
}
/* Writes the next string of the table; returns its number. */
static MLI_COLD uint64_t mli_pb_string(mli_export *x, const char *text) {
    mli_pb_size(x->o, 6, mli_utf8_size(text));
    mli_put_utf8(x->o, text, "");
    return x->written++;
}
/* Writes a message of n numbers as a field. They are its fields 1 to n; those that are 0 are left
   out. */
static MLI_COLD void mli_pb_numbers(mli_out *o, unsigned field, const uint64_t *v, unsigned n) {
    char buf[64];
    mli_out m;
    unsigned i;
    mli_out_buffer(&m, buf, sizeof buf);
    for (i = 0; i < n; i++)
        if (v[i]) mli_pb_u64(&m, i + 1, v[i]);
    mli_pb_message(o, field, &m);
}
static void mli_pb_pair(mli_out *o, unsigned field, uint64_t first, uint64_t second) {
    const uint64_t v[] = {first, second};
    mli_pb_numbers(o, field, v, 2);
}

/* Writes a sample: a number of allocations (live 0) or of live blocks (live 1), and their bytes.
   `part` is a part's location; 0: none. */
static MLI_COLD void mli_pprof_sample(mli_export *x, const mli_live_block *of, uint64_t part,
                                      unsigned live, uint64_t count, uint64_t bytes) {
    char buf[512], values[48], places[(MLI_SCOPE_DEPTH_MAX + 2) * 5 + 10];
    mli_stack stack = mli_stack_of(x, of);
    mli_out m, v, p;
    uint32_t i;
    mli_out_buffer(&m, buf, sizeof buf);
    mli_out_buffer(&v, values, sizeof values);
    mli_out_buffer(&p, places, sizeof places);
    for (i = 0; i < 4; i++) {
        uint64_t n = i / 2 != live ? 0 : i % 2 ? bytes : count;
        mli_pb_varint(&v, n > INT64_MAX ? INT64_MAX : n);
    }
    if (part) mli_pb_varint(&p, part);
    for (i = 0; i < stack.n; i++) mli_pb_varint(&p, stack.frame[i]);
    mli_pb_message(&m, 1, &p);
    mli_pb_message(&m, 2, &v);
    mli_pb_pair(&m, 3, MLI_WORD_DEVICE, MLI_WORDS + of->dev - 1u);
    if (of->tag)
        mli_pb_pair(&m, 3, MLI_WORD_TAG, MLI_WORDS + x->devices + of->tag - 1u);
    mli_pb_message(x->o, 2, &m);
}
static void mli_pprof_group(mli_export *x, const mli_group *g) {
    mli_pprof_sample(x, &g->of, 0, 1, g->blocks, g->bytes);
}
static void mli_pprof_allocs(mli_export *x, const mli_live_block *of, uint64_t allocs,
                             uint64_t bytes) {
    if (allocs | bytes) mli_pprof_sample(x, of, 0, 0, allocs, bytes);
}

/* Writes location `id` and function `id`. `name` and `file` are numbers of strings. */
static MLI_COLD void mli_pprof_function(mli_out *o, uint64_t id, uint64_t name,
                                        uint64_t file, uint64_t line) {
    const uint64_t function[] = {id, name, 0, file};
    char buf[64];
    mli_out m;
    mli_out_buffer(&m, buf, sizeof buf);
    mli_pb_u64(&m, 1, id);
    mli_pb_pair(&m, 4, id, line);
    mli_pb_message(o, 4, &m);
    mli_pb_numbers(o, 5, function, 4);
}
static MLI_COLD void mli_pprof_names(mli_export *x) {
    uint32_t i;
    for (i = 0; i < MLI_WORDS; i++) (void)mli_pb_string(x, mli_pprof_words[i]);
    for (i = 1; i <= x->devices; i++) {
        char name[32];
        (void)memlord_device_name(mli_export_device(x, i), name, sizeof name);
        (void)mli_pb_string(x, name);
    }
    for (i = 1; i <= x->tags; i++) (void)mli_pb_string(x, mli_export_tag(x, i));
    for (i = 1; i <= mli_frame_count(x) && !x->o->failed; i++) {
        mli_frame_name f = mli_frame_name_of(x, i);
        uint64_t name = mli_pb_string(x, f.name);
        mli_pprof_function(x->o, i, name, f.file[0] ? mli_pb_string(x, f.file) : 0, f.line);
    }
}

static MLI_COLD void mli_pprof_part(mli_export *x, const memlord_part_info *part) {
    uint64_t id = mli_frame_count(x) + 1 + x->parts;
    uint64_t name = mli_pb_string(x, part->meta.name ? part->meta.name : "(part)");
    mli_pprof_function(x->o, id, name, 0, 0);
    mli_pprof_sample(x, x->whole, id, 1, 0, part->bytes);
}

static MLI_COLD void mli_pprof_anomalies(mli_export *x) {
    uint32_t dev;
    for (dev = 0; dev <= x->devices; dev++) {
        char buf[1024]; /* a line has, for each anomaly, a name and up to 20 digits */
        mli_out line;
        mli_out_buffer(&line, buf, sizeof buf);
        mli_text_anomalies(x->r, &line, "anomalies and drops, ", dev);
        if (!line.used) continue;
        buf[line.used - 1] = 0;
        mli_pb_u64(x->o, 13, mli_pb_string(x, buf));
    }
}

static MLI_COLD void mli_pprof(mli_export *x) {
    uint32_t i;
    for (i = 1; i <= 5; i += 2) mli_pb_pair(x->o, 1, i, i == 3 ? 4 : 2);
    mli_pb_pair(x->o, 1, 6, 4);
    mli_pprof_names(x);
    mli_pprof_anomalies(x);
    x->put_part = mli_pprof_part;
    mli_allocs_each(x, mli_pprof_allocs);
    mli_groups_each(x, mli_pprof_group);
    mli_pb_u64(x->o, 9, mli_wall_now());
    mli_pb_pair(x->o, 11, 7, 4);
    mli_pb_u64(x->o, 12, 1);
    mli_pb_u64(x->o, 14, 6);
}

/* -- HEAPTRACK, its text format version 2 (https://github.com/KDE/heaptrack, as heaptrack_print
      1.4 reads it).
   The format wants every allocation in order. The ledger has sums, so the writer makes a sequence
   from them. First come the freed bytes of each site, as allocations of its average size; each is
   freed only after the next one, as two in a row would read as a temporary. Then comes every live
   block; then, for each device, the bytes between its live bytes and its peak, as one block that is
   freed again. So the calls, the bytes at the peak and the leaks (live blocks) are the ledger's
   own; times are not. If there are more than MLI_HEAP_FREED_SIZE freed allocations, the number of
   each site shrinks by the same factor, to 1 at least. Modules are devices; the scopes that a live
   block was allocated in are its callers. Parts are left out, as each would be another allocation.
   Anomalies and drops are comments. -- */

#define MLI_HEAP_FREED_SIZE 1048576u

/* Writes a line "mode a b ...", the n numbers in hexadecimal. */
static MLI_COLD void mli_heap_line(mli_out *o, const char *mode, const uint64_t *v, unsigned n) {
    mli_put_str(o, mode);
    while (n--) {
        mli_put_str(o, " ");
        mli_put_hex_short(o, *v++);
    }
    mli_put_str(o, "\n");
}
static void mli_heap_line1(mli_out *o, const char *mode, uint64_t v) {
    mli_heap_line(o, mode, &v, 1);
}
static void mli_heap_line2(mli_out *o, const char *mode, uint64_t a, uint64_t b) {
    const uint64_t v[] = {a, b};
    mli_heap_line(o, mode, v, 2);
}

/* Writes the names of devices and frames. A frame is also the trace of its number, with an
   instruction pointer of its own. A site in a scope gets the next trace when it is first
   written. */
static MLI_COLD void mli_heap_traces(mli_export *x) {
    uint64_t strings = x->devices;
    uint32_t i;
    for (i = 1; i <= x->devices; i++) mli_putf(x->o, "s %i\n", mli_report_device(x->r, i));
    for (i = 1; i <= mli_frame_count(x) && !x->o->failed; i++) {
        const mli_frame_name f = mli_frame_name_of(x, i);
        const uint64_t name = ++strings, file = f.file[0] ? ++strings : 0;
        const uint64_t place[] = {0x1000 + 16 * (uint64_t)i, f.dev, name, file, f.line};
        mli_putf(x->o, "s %s\n", f.name);
        if (file) mli_putf(x->o, "s %s\n", f.file);
        mli_heap_line(x->o, "i", place, 5);
        mli_heap_line2(x->o, "t", i, f.caller);
    }
    x->traces = mli_frame_count(x);
}

/* Writes the description of an allocation; returns its number. */
static uint64_t mli_heap_info(mli_export *x, uint64_t bytes, uint64_t trace) {
    mli_heap_line2(x->o, "a", bytes, trace);
    return x->written++;
}
static void mli_heap_alloc(mli_export *x, uint64_t bytes, uint64_t trace) {
    mli_heap_line1(x->o, "+", mli_heap_info(x, bytes, trace));
}

/* The allocations of a frame less its live blocks. While mli_heap_count runs: its live blocks. */
typedef struct mli_heap_freed {
    uint64_t allocs, bytes;
} mli_heap_freed;

static MLI_COLD void mli_heap_count(mli_export *x, const mli_live_block *b) {
    mli_heap_freed *freed = (mli_heap_freed *)x->table + b->frame;
    if (b->state & MLI_BLOCK_ARENA) return;
    freed->allocs++;
    freed->bytes += b->bytes;
}
/* Turns the live blocks of a frame into its freed ones; adds them up in x->beside. */
static MLI_COLD void mli_heap_allocs(mli_export *x, const mli_live_block *of, uint64_t allocs,
                                     uint64_t bytes) {
    mli_heap_freed *freed = (mli_heap_freed *)x->table + of->frame;
    freed->allocs = allocs > freed->allocs ? allocs - freed->allocs : 0;
    freed->bytes = bytes > freed->bytes ? bytes - freed->bytes : 0;
    x->beside = mli_add_saturated(x->beside, freed->allocs);
}

/* Writes the freed allocations of a frame, all of its average size; `scale` is the factor of their
   number. Each is freed after the next begins, of this frame or another, unless the two together
   exceed the peak. */
static MLI_COLD void mli_heap_freed_put(mli_export *x, uint32_t frame, double scale) {
    const mli_heap_freed *freed = (const mli_heap_freed *)x->table + frame;
    uint64_t n = (uint64_t)((double)freed->allocs * scale), info[2], i, bytes;
    uint64_t peak = x->r->total.peak;
    if (!freed->allocs) return;
    if (!n) n = 1;
    bytes = freed->bytes / freed->allocs;
    if (bytes > peak) bytes = peak; /* the peak was reset since */
    info[0] = info[1] = mli_heap_info(x, bytes, frame);
    if (n > 1) info[1] = mli_heap_info(x, bytes, frame);
    for (i = 0; i < n && !x->o->failed; i++) {
        uint64_t last = x->last;
        int first = last && x->last_bytes > peak - bytes;
        if (first) mli_heap_line1(x->o, "-", last);
        mli_heap_line1(x->o, "+", info[i % 2]);
        if (last && !first) mli_heap_line1(x->o, "-", last);
        x->last = info[i % 2];
        x->last_bytes = bytes;
    }
}

static MLI_COLD void mli_heap_block(mli_export *x, const mli_live_block *b) {
    uint64_t trace = b->frame;
    x->sum[b->dev] += b->bytes;
    if (b->scope) { /* a group keeps its trace in `bytes` */
        mli_group *g = mli_group_at(x, b);
        if (!g->bytes) {
            mli_heap_line2(x->o, "t", trace, mli_frame_of_scope(x, b->scope));
            g->bytes = ++x->traces;
        }
        trace = g->bytes;
    }
    mli_heap_alloc(x, b->bytes, trace);
}

/* Writes one block a device up to its peak, and frees these again. */
static MLI_COLD void mli_heap_peaks(mli_export *x) {
    uint64_t at = x->written;
    uint32_t i;
    for (i = 1; i <= x->devices; i++) {
        uint64_t peak = x->r->stat[i - 1].peak;
        if (peak > x->sum[i])
            mli_heap_alloc(x, peak - x->sum[i], mli_frame_of_kind(x, i, MLI_FRAME_GONE));
    }
    mli_heap_line1(x->o, "c", x->r->uptime / 1000000u);
    for (; at < x->written; at++) mli_heap_line1(x->o, "-", at);
}

static MLI_COLD void mli_heaptrack(mli_export *x) {
    size_t size = ((size_t)mli_frame_of_scope(x, 0) + 1) * sizeof(mli_heap_freed);
    double scale;
    uint32_t i;
    x->table = mli_own_alloc(x->lord, size);
    if (!x->table) {
        x->r->result = MEMLORD_E_NOMEM;
        return;
    }
    mli_heap_line2(x->o, "v", 0x10400, 2);
    mli_put_str(x->o, "X memlord " MEMLORD_VERSION "\n");
    for (i = 0; i <= x->devices; i++)
        mli_text_anomalies(x->r, x->o, "# anomalies and drops, ", i);
    mli_heap_traces(x);
    mli_heap_line1(x->o, "c", 0);
    if (x->devices) (void)mli_heap_info(x, 0, 1); /* uses up number 0: as x->last, 0 is none */
    mli_live_blocks_each(x, mli_heap_count);
    mli_allocs_each(x, mli_heap_allocs);
    scale = x->beside > MLI_HEAP_FREED_SIZE ? MLI_HEAP_FREED_SIZE / (double)x->beside : 1;
    for (i = 1; i <= mli_frame_of_scope(x, 0); i++) mli_heap_freed_put(x, i, scale);
    if (x->last) mli_heap_line1(x->o, "-", x->last);
    memset(x->sum, 0, sizeof x->sum);
    mli_live_blocks_each(x, mli_heap_block);
    mli_own_free(x->lord, x->table, size);
    mli_heap_peaks(x);
}

/* -- MEMORY_VIZ, the result of torch.cuda.memory._snapshot(), pickled by protocol 2
      (https://pytorch.org/docs/stable/torch_cuda_memory.html; docs.python.org pickletools).
   Every block is a segment of its own, so that its bytes lie in a segment at every step. A device's
   arena is a segment too, at an address that no block has. Blocks of no bytes are left out. A
   block's site is its frame, its scopes are the callers, its tag is the category. Its parts are
   under "parts", which viewers skip. CUDA devices keep their index; the others follow, as the key
   "memlord" lists them; that key has the anomalies and drops too. Traces come from the ring. If
   the ring has events of a storage, its segment is as of the last one, so that viewers can walk
   back from it. Words, tags and frames are in full where they come first; after that they are
   numbers of the memo: words, then tag rows, then frames. -- */

#define MLI_VIZ_BATCH 1000 /* items; the viewer passes a batch as arguments of one call */

static MLI_COLD void mli_viz_u64(mli_out *o, uint64_t v) {
    unsigned n = v >> 63 ? 9 : 8;
    if (v < 256) {
        mli_put_str(o, "K");
        mli_put_le(o, v, 1);
    } else if (v <= INT32_MAX) {
        mli_put_str(o, "J");
        mli_put_le(o, v, 4);
    } else {
        mli_put_str(o, "\x8a");
        mli_put_le(o, n, 1);
        mli_put_le(o, v, 8);
        if (n == 9) mli_put_le(o, 0, 1);
    }
}
static MLI_COLD void mli_viz_text(mli_out *o, const char *text) {
    mli_put_str(o, "X");
    mli_put_le(o, mli_utf8_size(text), 4);
    mli_put_utf8(o, text, "");
}
/* Writes a word of n characters: in full the first time, then by its number in the memo. */
static MLI_COLD void mli_viz_word(mli_export *x, const char *word, size_t n) {
    size_t i = ((unsigned char)word[n / 2] * 5u + (unsigned char)word[n - 1] + n) % MLI_VIZ_WORDS;
    while (x->word[i].size && (x->word[i].size != n || memcmp(x->word[i].text, word, n)))
        i = (i + 1) % MLI_VIZ_WORDS;
    if (x->word[i].size) {
        mli_put_str(x->o, "h");
    } else {
        x->word[i].text = word;
        x->word[i].size = n;
        mli_put_str(x->o, "X");
        mli_put_le(x->o, n, 4);
        mli_put(x->o, word, n);
        mli_put_str(x->o, "q");
    }
    mli_put_le(x->o, i, 1);
}

/* Writes what one character of a form stands for: { and } begin and end a dictionary of at least
   one pair, : is a new one, = sets a pair in it, [ is a new list, + appends to it, ) makes a pair
   of the last two items, ! is False, 0 the number 0; a space is nothing. */
static MLI_COLD void mli_viz_code(mli_out *o, char code) {
    static const char names[] = "{}:=[+)!";
    static const char *const codes[] = {"}(", "u", "}", "s", "]", "a", "\x86", "\x89"};
    const char *name = strchr(names, code);
    if (name) mli_put_str(o, codes[name - names]);
    if (code == '0') mli_viz_u64(o, 0);
}
/* Writes what a form says: a word as itself, %ju a number, %s a text, the rest as mli_viz_code.
   Requires: words are literals, less than MLI_VIZ_WORDS in all. */
static MLI_COLD MLI_PRINTF_LIKE(2) void mli_viz(mli_export *x, const char *form, ...) {
    va_list args;
    size_t n;
    va_start(args, form);
    for (; *form; form += n) {
        for (n = 0; form[n] == '_' || (form[n] >= 'a' && form[n] <= 'z');) n++;
        if (n) {
            mli_viz_word(x, form, n);
        } else if (*form != '%') {
            mli_viz_code(x->o, *form);
            n = 1;
        } else if (form[1] == 's') {
            mli_viz_text(x->o, va_arg(args, const char *));
            n = 2;
        } else {
            mli_viz_u64(x->o, va_arg(args, uint64_t));
            n = 3;
        }
    }
    va_end(args);
}

/* Begins item i of a list, from 0; every MLI_VIZ_BATCH items it ends a batch and begins the next.
   mli_viz_list_end ends the last one. */
static void mli_viz_item(mli_out *o, uint64_t i) {
    mli_put_str(o, i % MLI_VIZ_BATCH ? "" : i ? "e(" : "(");
}
static void mli_viz_list_end(mli_out *o, uint64_t n) {
    mli_put_str(o, n ? "e" : "");
}

/* Returns 1 and writes the memo's item of a number, if it has one. Else returns 0: the caller then
   writes the item and passes its number to mli_viz_put. */
static MLI_COLD int mli_viz_get(mli_export *x, uint32_t number) {
    if (!((const char *)x->table)[number]) return 0;
    mli_put_str(x->o, "j");
    mli_put_le(x->o, MLI_VIZ_WORDS + number, 4);
    return 1;
}
static MLI_COLD void mli_viz_put(mli_export *x, uint32_t number) {
    ((char *)x->table)[number] = 1;
    mli_put_str(x->o, "r");
    mli_put_le(x->o, MLI_VIZ_WORDS + number, 4);
}

/* Writes the stack of a block. Without a site it begins with a scope. */
static MLI_COLD void mli_viz_frames(mli_export *x, const mli_live_block *b) {
    mli_stack stack = mli_stack_of(x, b);
    uint32_t i = mli_frame_site(x, b->frame) ? 0 : 1, n;
    mli_viz(x, "frames [");
    for (n = 0; i < stack.n; i++, n++) {
        uint32_t frame = stack.frame[i];
        mli_frame_name f;
        mli_viz_item(x->o, n);
        if (mli_viz_get(x, x->tags + frame)) continue;
        f = mli_frame_name_of(x, frame);
        mli_viz(x, "{name %s filename %s line %ju}", f.name,
                frame <= x->sites ? f.file : "scope", f.line);
        mli_viz_put(x, x->tags + frame);
    }
    mli_viz_list_end(x->o, n);
}

/* Writes "memlord": the devices with their numbers, and the anomalies and drops that are not 0. */
static MLI_COLD void mli_viz_memlord(mli_export *x) {
    uint32_t dev;
    mli_viz(x, "memlord {version %s devices :", MEMLORD_VERSION);
    for (dev = 1; dev <= x->devices; dev++) {
        char name[32];
        (void)memlord_device_name(mli_export_device(x, dev), name, sizeof name);
        mli_viz(x, "%s %ju =", name, (uint64_t)x->number[dev]);
    }
    mli_viz(x, "anomalies_and_drops :");
    for (dev = 0; dev <= x->devices; dev++) {
        char device[32];
        const char *name;
        size_t i = 0;
        uint64_t v;
        (void)memlord_device_name(mli_anomaly_device(x->r, dev), device, sizeof device);
        mli_viz(x, "%s :", device);
        while ((name = mli_anomaly_next(x->r, dev, &i, &v)) != NULL)
            mli_viz(x, "%s %ju =", name, v);
        mli_viz(x, "=");
    }
    mli_viz(x, "}");
}

/* Writes a part as the next item of its block's list. */
static MLI_COLD void mli_viz_part(mli_export *x, const memlord_part_info *part) {
    mli_viz_item(x->o, x->parts);
    mli_viz(x, "{name %s offset %ju size %ju}", part->meta.name ? part->meta.name : "",
            part->offset, part->bytes);
}

/* Writes a segment with its block. */
static MLI_COLD void mli_viz_segment(mli_export *x, const mli_live_block *b) {
    int pending = b->state & MLI_BLOCK_PENDING;
    if (!b->bytes) return;
    mli_viz_item(x->o, x->written++);
    mli_viz(x, "{device %ju address %ju total_size %ju allocated_size %ju active_size %ju",
            (uint64_t)x->number[b->dev], b->storage, b->bytes, pending ? 0 : b->bytes, b->bytes);
    mli_viz(x, "requested_size %ju stream 0 segment_pool_id 0 0) is_expandable !", b->bytes);
    mli_viz(x, b->bytes >> 20 ? "segment_type large" : "segment_type small");
    mli_viz_frames(x, b);
    mli_viz(x, "blocks [{address %ju size %ju requested_size %ju", b->storage, b->bytes, b->bytes);
    mli_viz(x, pending ? "state active_pending_free" : "state active_allocated");
    mli_viz_frames(x, b);
    if (b->state & MLI_BLOCK_PARTS) {
        mli_viz(x, "parts [");
        x->parts = 0;
        (void)mli_export_parts(x, b);
        mli_viz_list_end(x->o, x->parts);
    }
    mli_viz(x, "}+}");
}

/* Writes a live block. The ring's last event of a storage overrides the map's entry, which was read
   a moment later. */
static MLI_COLD void mli_viz_live_block(mli_export *x, const mli_live_block *b) {
    mli_live_block *f = mli_last_event_at(x, b), known = *b;
    if (f && f->dev) {
        if (f->state & (MLI_BLOCK_DONE | MLI_BLOCK_FREED)) return;
        known.bytes = f->bytes;
        known.dev = f->dev;
        known.state = (unsigned char)((b->state & MLI_BLOCK_PARTS) | f->state);
        f->state |= MLI_BLOCK_DONE;
    }
    mli_viz_segment(x, &known);
}
/* Writes the blocks that are live in the ring but no longer in the map. */
static MLI_COLD void mli_viz_ring_only(mli_export *x) {
    uint64_t i;
    for (i = 0; i < x->last_events_size; i++) {
        const mli_live_block *f = &x->last_events[i];
        if (f->dev && !(f->state & (MLI_BLOCK_DONE | MLI_BLOCK_FREED))) mli_viz_segment(x, f);
    }
}

/* Writes an event of a block, or without one: `addr` is then the number that it has there. */
static MLI_COLD void mli_viz_event(mli_export *x, const char *action, const mli_live_block *b,
                                   uint64_t ns) {
    int snapshot = !strcmp(action, "snapshot");
    mli_viz_item(x->o, x->written++);
    mli_viz(x, "{addr %ju size %ju stream 0 time_us %ju action", b->storage, b->bytes,
            (x->lord->lifecycle.started_wall + ns) / 1000);
    mli_viz_word(x, action, strlen(action));
    if (!strcmp(action, "oom")) mli_viz(x, "device_free %ju", b->storage);
    mli_viz_frames(x, b);
    if (snapshot) mli_viz(x, "category unknown");
    if (b->tag) {
        mli_viz(x, "category");
        if (!mli_viz_get(x, b->tag)) {
            mli_viz_text(x->o, mli_export_tag(x, b->tag));
            mli_viz_put(x, b->tag);
        }
    }
    mli_viz(x, "}");
}

/* Returns the free bytes of a device's physical device; 0: not known. */
static uint64_t mli_viz_free(const mli_export *x, uint32_t dev) {
    const mli_phys_line *line = mli_report_phys(x->r, dev);
    return line && line->free != UINT64_MAX ? line->free : 0;
}

static MLI_COLD void mli_viz_ring(mli_export *x, const mli_export_event *e) {
    int pends = e->kind == MEMLORD_EVENT_PEND, frees = e->kind == MEMLORD_EVENT_FREE;
    mli_live_block *f, of = e->of;
    if (of.dev != x->only) return;
    if (e->kind == MEMLORD_EVENT_OOM) {
        of.storage = mli_viz_free(x, x->only);
        mli_viz_event(x, "oom", &of, e->ns);
    }
    f = mli_event_is_of_block(e) ? mli_last_event_at(x, &of) : NULL;
    if (!f || !f->dev || !of.bytes) return;
    if (pends || (frees && !(f->state & MLI_BLOCK_OPEN)))
        mli_viz_event(x, "free_requested", &of, e->ns);
    f->state |= MLI_BLOCK_OPEN;
    if (pends) return;
    f->state ^= MLI_BLOCK_OPEN;
    mli_viz_event(x, frees ? "free_completed" : "segment_alloc", &of, e->ns);
    mli_viz_event(x, frees ? "segment_free" : "alloc", &of, e->ns);
}

/* Writes a device's events. Viewers give the category of the last one to blocks without any. */
static MLI_COLD void mli_viz_trace(mli_export *x, uint32_t dev) {
    mli_live_block none = mli_live_block_make(x, dev, 0, 0, 0);
    x->written = 0;
    x->only = dev;
    if (x->events[dev]) mli_ring_each(x, mli_viz_ring);
    mli_viz_event(x, "snapshot", &none, x->r->uptime);
    mli_viz_list_end(x->o, x->written);
}

/* Numbers the devices; returns how many lists of events the numbers need. */
static MLI_COLD int32_t mli_viz_number(mli_export *x) {
    int32_t n = 0;
    uint32_t dev;
    for (dev = 1; dev <= x->devices; dev++) {
        memlord_device d = mli_export_device(x, dev);
        x->number[dev] = d.type == MEMLORD_DEVICE_CUDA ? d.index : -1;
        if (x->number[dev] >= n) n = x->number[dev] + 1;
    }
    for (dev = 1; dev <= x->devices; dev++)
        if (x->number[dev] < 0) x->number[dev] = n++;
    return n;
}

static MLI_COLD void mli_memory_viz(mli_export *x) {
    size_t size = (size_t)x->tags + mli_frame_count(x) + 1;
    int32_t n, lists = mli_viz_number(x);
    uint32_t dev;
    x->table = mli_own_alloc(x->lord, size);
    if (!x->table) {
        x->r->result = MEMLORD_E_NOMEM;
        return;
    }
    mli_put_str(x->o, "\x80\x02");
    mli_viz(x, "{");
    mli_viz_memlord(x);
    mli_viz(x, "segments [");
    x->put_part = mli_viz_part;
    mli_last_events_build(x);
    mli_live_blocks_each(x, mli_viz_live_block);
    mli_viz_ring_only(x);
    mli_viz_list_end(x->o, x->written);
    mli_viz(x, "device_traces [");
    for (n = 0; n < lists; n++) {
        mli_viz(x, "[");
        for (dev = 1; dev <= x->devices; dev++)
            if (x->number[dev] == n) mli_viz_trace(x, dev);
        mli_viz(x, "+");
    }
    mli_viz(x, "allocator_settings : }");
    mli_put_str(x->o, ".");
    mli_own_free(x->lord, x->table, size);
}

/* -- HTML: the page with the JSON report in it. JSON escapes < and >, so that no string of it can
      end its element -- */

static MLI_COLD void mli_html(mli_report *r) {
    size_t i;
    for (i = 0; i < sizeof mli_page_head / sizeof *mli_page_head; i++)
        mli_put_str(r->o, mli_page_head[i]);
    mli_json(r);
    for (i = 0; i < sizeof mli_page_tail / sizeof *mli_page_tail; i++)
        mli_put_str(r->o, mli_page_tail[i]);
}

/* -- the writer of each format -- */

/* From TRACE on, in the order of MLI_FORMATS. */
static void (*const mli_export_writers[])(mli_export *x) = {
    mli_trace_json, mli_prometheus, mli_pprof, mli_heaptrack, mli_folded, mli_memory_viz, mli_csv};

/* Runs a writer with an export of its own. A writer may leave its last events: they are freed
   here. */
static MLI_COLD void mli_export_write(mli_report *r, memlord_format format) {
    memlord *lord = r->lord;
    mli_export *x = (mli_export *)mli_own_alloc(lord, sizeof *x);
    if (!x) {
        r->result = MEMLORD_E_NOMEM;
        return;
    }
    x->r = r;
    x->lord = lord;
    x->o = r->o;
    x->devices = r->devices;
    x->sites = r->site_rows;
    x->tags = (uint32_t)r->tags;
    x->scopes = r->scopes;
    mli_export_writers[format - MEMLORD_FORMAT_TRACE](x);
    mli_own_free(lord, x->last_events, (size_t)x->last_events_size * sizeof *x->last_events);
    mli_own_free(lord, x, sizeof *x);
}

enum { MLI_WRITERS = MEMLORD_FORMAT_COUNT };
#else
enum { MLI_WRITERS = MEMLORD_FORMAT_JSON + 1 };
#endif /* !MEMLORD_NO_REPORTS */

static int mli_format_known(memlord_format format) { return (unsigned)format < MLI_WRITERS; }

static MLI_COLD void mli_format_write(mli_report *r, memlord_format format) {
    switch (format) {
    case MEMLORD_FORMAT_TEXT: mli_text(r); break;
    case MEMLORD_FORMAT_JSON: mli_json(r); break;
#if !defined(MEMLORD_NO_REPORTS)
    case MEMLORD_FORMAT_HTML: mli_html(r); break;
    default: mli_export_write(r, format);
#else
    default: break;
#endif
    }
}

/* ------------------------------------------------------------------------ >>exit --
   Owns the hooks of the process: for the end of a thread, and for fork. Uses the locks and the
   thread state of every section above, so it comes late in the file. Invariant: fork finds every
   ledger between two calls. Locks: registry, then all others in their order. */

/* Runs as the exit hook: frees the records of a thread, at most one in each ledger. It gets the
   thread's number, as thread-local storage may be gone by then: MinGW emulates it and frees it
   earlier. Where that storage is still there, `exited` keeps later calls of the thread from getting
   a record. */
static MLI_COLD void MLI_EXIT_CALL mli_on_exit(void *number) {
    memlord *lord;
    mli_thread *t;
    if (!number) return; /* Windows: the thread did not set the hook */
    mli_lock_take(&mli_process.registry_lock);
    for (lord = mli_process.ledgers; lord; lord = lord->lifecycle.next) {
        t = mli_thread_of(lord, (uint64_t)(uintptr_t)number);
        if (t) mli_thread_release(t);
    }
    mli_lock_drop(&mli_process.registry_lock);
    mli_self.generation = 0;
    mli_self.exited = 1;
}

#if !MLI_WINDOWS
static void mli_lock_set(mli_lock *lock, int take) {
    if (take)
        mli_lock_take(lock);
    else
        mli_lock_drop(lock);
}
/* Takes or drops the lock at an offset in every ledger. */
static void mli_ledgers_lock(size_t at, int take) {
    memlord *lord;
    for (lord = mli_process.ledgers; lord; lord = lord->lifecycle.next)
        mli_lock_set((mli_lock *)(void *)((char *)lord + at), take);
}
/* Takes or drops the locks of all physical devices. */
static void mli_phys_lock_all(int take) {
    memlord *lord;
    uint32_t i;
    for (lord = mli_process.ledgers; lord; lord = lord->lifecycle.next)
        for (i = 0; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++)
            mli_lock_set(&mli_phys_storage(lord, i)->lock, take);
}
/* Takes or drops the locks that protect 64-bit words, where the target has no 64-bit atomics. */
static void mli_words_lock(int take) {
#ifdef MLI_U64_LOCKS
    int i;
    for (i = 0; i < MLI_U64_LOCKS; i++)
        if (take)
            while (mli_u32_exchange(&mli_u64_locks[i], 1)) mli_yield();
        else
            mli_u32_store_release(&mli_u64_locks[i], 0);
#else
    (void)take;
#endif
}
/* Takes or drops the locks inside the cold lock, each of all ledgers before the next, in the lock
   order. Requires: the cold lock, so that no device and its lock is new meanwhile. */
static void mli_fork_locks(int take) {
    memlord *lord;
    for (lord = mli_process.ledgers; lord; lord = lord->lifecycle.next) {
        if (take)
            mli_map_freeze(lord);
        else
            mli_map_thaw(lord);
    }
    mli_ledgers_lock(offsetof(memlord, fences.lock), take);
    mli_ledgers_lock(offsetof(memlord, bands.callbacks_lock), take);
    mli_phys_lock_all(take);
    mli_ledgers_lock(offsetof(memlord, snapshots.lock), take);
    mli_ledgers_lock(offsetof(memlord, log.lock), take);
    mli_ledgers_lock(offsetof(memlord, memory.lock), take);
    mli_lock_set(&mli_process.pages_lock, take);
}

/* Stops every ledger between two calls before a fork. The child has only the forking thread: no
   other thread may then hold a lock there, or have changed half a table. */
static MLI_COLD void mli_fork_before(void) {
    mli_lock_take(&mli_process.registry_lock);
    mli_ledgers_lock(offsetof(memlord, threads.orphan_lock), 1);
    mli_lock_take(&mli_process.cold_lock);
    mli_fork_locks(1);
    mli_words_lock(1); /* last: all of the above reads and writes words */
}
/* Lets the ledgers go on after a fork, in the parent and, at the end of its hook, in the child. */
static MLI_COLD void mli_fork_parent(void) {
    mli_words_lock(0);
    mli_fork_locks(0);
    mli_lock_drop(&mli_process.cold_lock);
    mli_ledgers_lock(offsetof(memlord, threads.orphan_lock), 0);
    mli_lock_drop(&mli_process.registry_lock);
}

/* Clears the row locks in a forked child. A thread that held one while the map was stopped only
   read the row, and is gone. */
static void mli_row_locks_after_fork(memlord *lord) {
    int book;
    uint32_t i;
    for (book = 0; book < MLI_BOOKS; book++)
        for (i = 1; i < mli_u32_load(&lord->counters.row_count[book]); i++)
            mli_u32_store(&mli_row_at(lord, book, i)->lock.locked, 0);
    mli_u32_store(&lord->counters.count_lock.locked, 0);
}

/* Clears in a forked child the askers that are gone with their threads. Fences of blocks that have
   ended are put on the list to be dropped. Requires: the fences lock. */
static MLI_COLD void mli_askers_gone(memlord *lord) {
    mli_fence_record *f = (mli_fence_record *)mli_ptr_load(&lord->fences.all);
    for (; f; f = f->older) {
        if (!f->asker || f->asker == (void *)&mli_self) continue;
        f->asker = NULL;
        if (!f->detached && f->serial) continue;
        mli_queue_remove(lord, f);
        mli_drops_put(lord, f);
    }
}

/* Clears in a forked child the marks of threads that sampled, asked a fence, collected, polled or
   waited: they are gone. */
static void mli_ledger_after_fork(memlord *lord) {
    uint32_t i, n = mli_u32_load(&lord->counters.row_count[MLI_BOOK_DEVICE]), tries = 0;
    mli_snapshot_reader **reader;
    for (i = 0; i < n; i++) {
        mli_watch *w = i ? &mli_device_record_at(lord, i)->watch : NULL;
        mli_phys *phys = mli_phys_storage(lord, i);
        mli_u32_store(&phys->sampling, 0);
        mli_u32_store(&phys->poller.state, MLI_HELPER_NONE);
        phys->sampler = NULL;
        phys->in_flight = 0;
        if (!w) continue;
        tries += mli_u32_load(&w->near_threshold) + mli_u32_load(&w->check_requested);
        if (w->gc_thread == (void *)&mli_self) continue;
        w->gc_serial = 0;
        mli_u32_store(&w->gc_running, 0);
    }
    /* counts the band alerts again: a thread that set or cleared a flag may have been stopped
       before it changed the alert */
    mli_u32_store(&lord->threads.alert,
                  mli_u32_load(&lord->threads.alert) % MLI_ALERT_BANDS + tries * MLI_ALERT_BANDS);
    mli_askers_gone(lord);
    for (i = 0; i < 2; i++)
        lord->log.inside[i] = mli_self.log_calls.generation == lord->threads.generation
                                  ? mli_self.log_calls.inside[i]
                                  : 0;
    mli_u32_store(&lord->log.setting, 0);
    lord->pollers.waiters = NULL;
    mli_subbufs_after_fork(lord);
    for (reader = &lord->snapshots.readers; *reader;) /* this thread's own reports go on */
        if ((*reader)->thread == (void *)&mli_self)
            reader = &(*reader)->next;
        else
            *reader = (*reader)->next;
    mli_u32_store(&lord->snapshots.recorder.helper.state, MLI_HELPER_NONE);
    if (mli_u32_load(&lord->pollers.polling) == MLI_POLLING_ALL ||
        mli_u32_load(&lord->snapshots.recorder.interval))
        mli_alert_set(lord, MLI_ALERT_POLLER, 1);
}

/* Forgets in a forked child the open scopes of a thread that is gone: they never end. That thread
   may have been about to begin or end one; whether that is counted is not known. Requires: fork
   holds the locks. */
static MLI_COLD void mli_scope_stack_forget(mli_thread *t) {
    for (; t->frame; mli_frame_pop(t)) {
        mli_u64_store(&t->frame->stats->running, 0);
        mli_u64_store(&t->frame->stats->token, 0);
    }
}

/* Makes the ledgers usable in a forked child. This thread keeps its records, under its new number.
   All other records become free, with their counts and shards, but the orphan record. */
static MLI_COLD void mli_fork_child(void) {
    memlord *lord;
    mli_thread *t;
    mli_words_lock(0); /* first: the rest reads and writes words */
    uint64_t number = mli_self.number ? mli_thread_number() : 0; /* a new one */
    mli_self.is_helper = 0;
    mli_process.pid = mli_pid();
    mli_process.saving = NULL;
    if (mli_u32_load(&mli_process.has_barrier))
        mli_u32_store(&mli_process.has_barrier, mli_barrier_register());
    for (lord = mli_process.ledgers; lord; lord = lord->lifecycle.next) {
        mli_thread *mine = mli_thread_own(lord);
        mli_row_locks_after_fork(lord);
        mli_ledger_after_fork(lord);
        for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) {
            mli_thread_fence(t);
            if (t == mine || t == lord->threads.orphan) continue;
            mli_ptr_store(&t->inside, NULL); /* it saw the map stopped and was about to leave */
            mli_scope_stack_forget(t);
            mli_thread_reset(t);
            mli_u32_store(&t->fenced, 1);
            mli_u64_store(&t->owner, 0);
        }
        if (mine) mli_u64_store(&mine->owner, number);
    }
    mli_self.number = number;
    if (mli_self.hooked) mli_thread_hook(number);
    mli_fork_parent();
}
#endif

/* Installs the hooks of the process, once. Requires: the registry lock. Without an exit hook every
   thread shares the orphan record, which is slower but just as exact. */
static void mli_process_start(void) {
    if (mli_u32_load(&mli_process.hooks_installed)) return;
    mli_process.pid = mli_pid();
    mli_u32_store(&mli_process.has_barrier, mli_barrier_register());
    mli_process.exit_key_ready = mli_exit_key_make(&mli_process.exit_key, mli_on_exit) == 0;
#if !MLI_WINDOWS
    (void)pthread_atfork(mli_fork_before, mli_fork_parent, mli_fork_child);
#endif
    mli_u32_store(&mli_process.hooks_installed, 1);
}

/* ------------------------------------------------------------------- >>lifecycle --
   Makes and destroys ledgers, and logs the live blocks of a destroyed ledger. Uses every
   section above. Invariant: the end of a ledger first stops its helpers, then drops its fences,
   then takes it off the registry; from there on no other thread has it. Locks: registry, with
   nothing else held. */

/* Sets the logger. With MEMLORD_DEBUG the lines of both loggers on stderr are coloured, and of
   every level. Requires: the log lock, or a ledger that no other thread knows yet. */
static MLI_COLD void mli_logger_use(memlord *lord, const memlord_logger *logger) {
    const uint32_t debug = mli_u32_load(&lord->threads.hooks) & MLI_HOOK_TRACE;
    lord->log.logger = *logger;
    if (debug && (!logger->fn || logger->fn == memlord_log_stderr))
        lord->log.logger.fn = mli_log_coloured;
    mli_u32_store(&lord->log.level, !lord->log.logger.fn ? 0
                                    : debug              ? MEMLORD_LOG_TRACE
                                                         : MEMLORD_LOG_INFO);
}

/* Applies MEMLORD_DEBUG, MEMLORD_RETRY and MEMLORD_POLL_INTERVAL_MS; the last overrides the
   description and memlord_poller_start, too. Logs and ignores a value that is too long, malformed
   or out of range. */
static MLI_COLD void mli_configure_env(memlord *lord) {
    memlord_retry policy = lord->retry.policy;
    char value[128];
    double ms;
    int set;
    if (mli_env_read("MEMLORD_DEBUG", value, sizeof value) > 0 && strcmp(value, "0")) {
        lord->threads.hooks.v |= MLI_HOOK_TRACE;
        mli_logger_use(lord, &lord->log.logger);
        lord->lifecycle.verifies = !strcmp(value, "2");
    }
    set = mli_env_read("MEMLORD_RETRY", value, sizeof value);
    if (set > 0 && !mli_retry_parse(value, &policy) && !memlord_retry_check(&policy))
        lord->retry.policy = policy;
    else if (set)
        mli_log(lord, MEMLORD_LOG_WARNING,
                "[retry] MEMLORD_RETRY is ignored: it is like max=5,initial_ms=50,multiplier=1.5,"
                "max_ms=2000, with initial_ms at most max_ms and multiplier at least 1");
    set = mli_env_read("MEMLORD_POLL_INTERVAL_MS", value, sizeof value);
    if (set > 0 && mli_read_number(value, 0, &ms) && !strchr(value, ',') && ms >= MLI_POLL_MS_MIN) {
        mli_u32_store(&lord->pollers.poll_ms, (uint32_t)ms);
        lord->pollers.poll_ms_by_env = 1;
    } else if (set) {
        mli_log(lord, MEMLORD_LOG_WARNING,
                "[poller] MEMLORD_POLL_INTERVAL_MS is not a number of at least 10: ignored");
    }
}

/* Sets the fields of a new ledger from its description, the environment and the defaults. Plain
   stores do (`.v`): no other thread knows the ledger yet. */
static MLI_COLD void mli_ledger_configure(memlord *lord, const memlord_desc *desc) {
    const uint64_t batch = desc->counter_batch ? desc->counter_batch : 65536;
    const uint32_t ms = desc->poll_ms ? desc->poll_ms : 200;
    int book;
    mli_logger_use(lord, &desc->logger);
    if (!(desc->flags & MEMLORD_FLAG_EXACT))
        lord->counters.batch = batch < MLI_BYTES_MAX ? batch : MLI_BYTES_MAX;
    lord->events.clock = desc->clock;
    lord->events.stamps_are_ticks = !lord->events.clock.fn && mli_ticks_steady();
    lord->lifecycle.started = mli_ledger_now(lord);
    lord->lifecycle.started_stamp = mli_stamp_now(lord);
    lord->lifecycle.started_wall = mli_wall_now();
    for (book = 0; book < MLI_BOOKS; book++) lord->counters.row_count[book].v = 1;
    lord->limits.reservation_count.v = lord->limits.account_count.v = lord->scopes.count.v = 1;
    lord->bands.thread_allowance.v = 4;
    lord->capacity.host_phys.lord = lord;
    lord->capacity.host_phys.device = memlord_device_cpu();
    lord->room.capacity_readers[MEMLORD_DEVICE_CPU].fn = mli_cpu_capacity;
    lord->room.capacity_readers[MEMLORD_DEVICE_CPU].user = lord;
    lord->retry.policy = mli_default_retry;
    lord->pollers.poll_ms.v = ms < MLI_POLL_MS_MIN ? MLI_POLL_MS_MIN : ms;
    if (desc->flags & MEMLORD_FLAG_SITES) lord->threads.hooks.v |= MLI_HOOK_SITES;
    if (!(desc->flags & MEMLORD_FLAG_NO_ENV)) mli_configure_env(lord);
    lord->threads.flags = desc->flags;
    lord->threads.next_id.v = MLI_THREAD_ID_FIRST;
    lord->threads.sweep_at = MLI_SWEEP_MIN;
}

/* Gives the locks of the process and of a new ledger their ranks, which are the lock order. */
static void mli_locks_rank(memlord *lord) {
    uint32_t i;
    mli_lock_rank(&mli_process.registry_lock, MLI_RANK_REGISTRY);
    mli_lock_rank(&mli_process.cold_lock, MLI_RANK_COLD);
    mli_lock_rank(&mli_process.pages_lock, MLI_RANK_PAGES);
    mli_lock_rank(&lord->threads.orphan_lock, MLI_RANK_ORPHAN);
    mli_lock_rank(&lord->fences.lock, MLI_RANK_FENCES);
    mli_lock_rank(&lord->bands.callbacks_lock, MLI_RANK_CALLBACKS);
    mli_lock_rank(&lord->capacity.host_phys.lock, MLI_RANK_PHYS);
    mli_lock_rank(&lord->snapshots.lock, MLI_RANK_SNAPSHOTS);
    mli_lock_rank(&lord->log.lock, MLI_RANK_LOG);
    mli_lock_rank(&lord->memory.lock, MLI_RANK_MEMORY);
    mli_lock_rank(&lord->counters.count_lock, MLI_RANK_COUNT);
    for (i = 0; i < MLI_SHARDS; i++)
        mli_lock_rank(&lord->map.shards[i].lock, MLI_RANK_SHARD);
}

/* Allocates and configures a ledger that is not yet registered; NULL without memory. */
static MLI_COLD memlord *mli_ledger_alloc(const memlord_desc *desc,
                                          const memlord_allocator *allocator) {
    const uint64_t generation = mli_busy_begin();
    memlord *lord = (memlord *)allocator->alloc(allocator->user, sizeof *lord);
    mli_busy_end(generation);
    if (!lord) return NULL;
    memset(lord, 0, sizeof *lord);
    mli_locks_rank(lord);
    lord->memory.allocator = *allocator;
    lord->memory.own_bytes.v = sizeof *lord;
    lord->names.strings.item = sizeof(mli_stb_string);
    mli_ledger_configure(lord, desc);
    lord->threads.orphan = (mli_thread *)mli_own_alloc(lord, sizeof *lord->threads.orphan);
    if (lord->threads.orphan) return lord;
    mli_regions_free(lord);
    allocator->free(allocator->user, lord, sizeof *lord);
    return NULL;
}

/* Registers a ledger, so that fork, the exit hook and memlord_destroy find it. Gives it a
   generation of its own. */
static MLI_COLD void mli_ledger_register(memlord *lord) {
    mli_lock_take(&mli_process.registry_lock);
    mli_process_start();
    lord->threads.generation = mli_u64_add(&mli_process.generation, 1) + 1;
    mli_thread_start(lord, lord->threads.orphan, 0);
    mli_special_set(lord->threads.orphan, MLI_SPECIAL_ORPHAN, 1);
    lord->lifecycle.next = mli_process.ledgers;
    lord->lifecycle.back = &mli_process.ledgers;
    if (lord->lifecycle.next) lord->lifecycle.next->lifecycle.back = &lord->lifecycle.next;
    mli_process.ledgers = lord;
    mli_lock_drop(&mli_process.registry_lock);
}

/* Applies the parts of a description that need a registered ledger: names, events, snapshots. */
static MLI_COLD memlord_result mli_ledger_apply_desc(memlord *lord, const memlord_desc *desc) {
    memlord_result r = mli_name(lord, desc->proc_root, &lord->room.cpu.root);
    if (r == MEMLORD_OK) r = mli_name(lord, desc->output_dir, &lord->saving.output_dir);
    if (r == MEMLORD_OK) r = mli_name(lord, desc->labels, &lord->saving.labels);
    if (r == MEMLORD_OK && desc->event_capacity)
        r = memlord_events_start(lord, desc->event_capacity);
    if (r == MEMLORD_OK && desc->snapshot_ms) r = memlord_snapshots_start(lord, desc->snapshot_ms);
    return r;
}

/* Adds a block to a leak table (`user`), by its rows and device. */
static MLI_COLD int mli_visit_leak(memlord *lord, const mli_entry *e, void *user) {
    mli_leak_add(lord, (mli_leak_table *)user, mli_word2_rows(e->word2) & MLI_ROWS_MASK,
                 MLI_DEV(e->word1), MLI_BYTES(e->word1));
    return 0;
}
/* Logs a line such as "[destroy]   1.5 KiB in 2 blocks: cuda:0 [weights]  main file.c:12". `leak`
   NULL: the line sums up the blocks that the lines before it leave out. */
static MLI_COLD void mli_log_leak(memlord *lord, uint64_t bytes, uint64_t blocks,
                                  const mli_leak_group *leak) {
    char line[512];
    mli_out o;
    mli_out_buffer(&o, line, sizeof line);
    mli_put_str(&o, leak ? "[destroy]   " : "[destroy]   and ");
    mli_put_amount(&o, bytes, blocks);
    mli_put_str(&o, leak ? ": " : " more");
    if (leak) mli_put_leak(&o, lord, leak);
    (void)mli_out_end(&o, sizeof line);
    mli_log(lord, MEMLORD_LOG_INFO, line);
}
/* Logs the ten groups with the most bytes, by the site and tag their blocks come from. Does nothing
   if the ledger has neither sites nor tags: both row counts start at 1. */
static MLI_COLD void mli_log_leaks_by(memlord *lord) {
    mli_walk_query all = mli_walk_query_of(memlord_device_all());
    mli_leak_table *leaks;
    size_t i;
    if (mli_row_count(lord, MLI_BOOK_SITE) + mli_row_count(lord, MLI_BOOK_TAG) == 2) return;
    leaks = (mli_leak_table *)mli_own_alloc(lord, sizeof *leaks);
    if (!leaks) return;
    mli_map_visit(lord, &all, mli_visit_leak, leaks);
    mli_leaks_sort(leaks, 10);
    for (i = 0; i < leaks->count; i++) {
        const mli_leak_group *leak = &leaks->at[i];
        leaks->bytes -= leak->bytes;
        leaks->blocks -= leak->blocks;
        mli_log_leak(lord, leak->bytes, leak->blocks, leak);
    }
    if (leaks->blocks) mli_log_leak(lord, leaks->bytes, leaks->blocks, NULL);
    mli_own_free(lord, leaks, sizeof *leaks);
}

/* Logs the live bytes and blocks of each device. */
static MLI_COLD void mli_log_leaks(memlord *lord) {
    char line[128];
    mli_out o;
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    uint64_t blocks = 0;
    if (!mli_log_hears(lord, MEMLORD_LOG_INFO)) return;
    for (i = 1; i < n; i++) {
        memlord_stats s;
        mli_stats_fill(lord, i, &s);
        if (!s.live_blocks && !s.allocated) continue;
        blocks += s.live_blocks;
        mli_out_buffer(&o, line, sizeof line);
        mli_putf(&o, "[destroy] %i: live ",
                 mli_device_code(mli_device_record_at(lord, i)->device));
        mli_put_amount(&o, s.allocated, s.live_blocks);
        if (s.pending) mli_putf(&o, ", pending %jo", s.pending);
        (void)mli_out_end(&o, sizeof line);
        mli_log(lord, MEMLORD_LOG_INFO, line);
    }
    if (blocks) mli_log_leaks_by(lord);
}

/* Drops every fence that was accepted and not yet dropped. A drop is host code and may defer
   further frees: repeats until a round drops none, at most 1000 times. */
static MLI_COLD void mli_fences_end(memlord *lord) {
    mli_fence_record *f;
    int round, dropped = 1;
    if (mli_fence_is_running(lord)) mli_self.fence_lord = 0; /* this thread left one by longjmp */
    for (round = 0; round < 1000 && dropped; round++) {
        dropped = 0;
        f = (mli_fence_record *)mli_ptr_load(&lord->fences.all);
        for (; f; f = f->older) dropped |= mli_fence_drop(lord, f);
    }
}

/* Takes a ledger off the registry. Waits first while another thread saves it at the end of the
   program. */
static MLI_COLD void mli_ledger_unregister(memlord *lord) {
    unsigned spins = 0;
    mli_lock_take(&mli_process.registry_lock);
    while (mli_process.saving == lord) {
        mli_lock_drop(&mli_process.registry_lock);
        mli_spin_wait(&spins);
        mli_lock_take(&mli_process.registry_lock);
    }
    *lord->lifecycle.back = lord->lifecycle.next;
    if (lord->lifecycle.next) lord->lifecycle.next->lifecycle.back = lord->lifecycle.back;
    mli_lock_drop(&mli_process.registry_lock);
    if (mli_self.generation == lord->threads.generation) mli_self.generation = 0;
    if (mli_self.log_calls.generation == lord->threads.generation) /* left one by longjmp */
        memset(&mli_self.log_calls, 0, sizeof mli_self.log_calls);
}

/* Frees all memory of a ledger, the ledger itself last. Requires: not registered any more. */
static MLI_COLD void mli_ledger_free(memlord *lord) {
    memlord_allocator allocator = lord->memory.allocator;
    mli_thread *t = (mli_thread *)mli_ptr_load(&lord->threads.all);
    uint64_t generation;
    mli_strategy *s, *next;
    uint32_t i;
    mli_parts_end(lord);
    for (i = 0; i < MLI_SHARDS; i++)
        mli_own_free(lord, lord->map.shards[i].table,
                     (size_t)lord->map.shards[i].size * MLI_BUCKET_BYTES);
    for (; t; t = (mli_thread *)mli_ptr_load(&t->next)) {
        mli_book_free(lord, &t->books[MLI_BOOK_SITE], sizeof(mli_cell));
        mli_book_free(lord, &t->books[MLI_BOOK_TAG], sizeof(mli_cell));
        mli_cache_free(lord, t);
        mli_frames_free(lord, t);
    }
    mli_scopes_free(lord);
    mli_book_free(lord, &lord->sites.births, sizeof(mli_birth));
    for (i = 0; i < MLI_BOOKS; i++)
        mli_book_free(lord, &lord->counters.rows[i], sizeof(mli_row));
    mli_book_free(lord, &lord->limits.reservations, sizeof(mli_reservation));
    mli_book_free(lord, &lord->limits.accounts, sizeof(mli_account_record));
    mli_ring_end(lord);
    mli_snapshots_destroy(lord);
    for (s = lord->bands.strategies; s; s = next) {
        next = s->next;
        mli_strategy_free(lord, s);
    }
    mli_index_free(lord);
    mli_dict_end(lord, &lord->names.strings);
    mli_regions_free(lord); /* has all memory not freed above */
    generation = mli_busy_begin();
    allocator.free(allocator.user, lord, sizeof *lord);
    mli_busy_end(generation);
}

/* -- public -- */

MLI_API memlord_result memlord_create(const memlord_desc *desc, memlord **out) {
    memlord_desc plain;
    memlord_allocator allocator;
    memlord_result r;
    if (!out) return MEMLORD_E_INVALID;
    *out = NULL;
    memset(&plain, 0, sizeof plain);
    if (!desc) desc = &plain;
    allocator = desc->allocator;
    if (!allocator.alloc != !allocator.free) return MEMLORD_E_INVALID;
    if (!allocator.alloc) memlord_os_allocator(&allocator);
    *out = mli_ledger_alloc(desc, &allocator);
    if (!*out) return MEMLORD_E_NOMEM;
    mli_ledger_register(*out);
    r = mli_ledger_apply_desc(*out, desc);
    if (r == MEMLORD_OK) return r;
    memlord_destroy(*out);
    *out = NULL;
    return r;
}

/* The order matters: stops the helpers, writes the last report, verifies, logs leaks, drops fences,
   and then takes the ledger off the registry. */
MLI_API void memlord_destroy(memlord *lord) {
    const mli_saver *saver;
    if (!lord || lord == mli_ptr_load(&mli_process.global)) return;
    mli_pollers_stop(lord);
    mli_recorder_stop(lord);
    saver = (const mli_saver *)mli_ptr_load_acquire(&lord->saving.saver);
    if (saver) saver->save(lord, 1);
    if (lord->lifecycle.verifies) (void)memlord_verify(lord);
    mli_log_leaks(lord);
    mli_fences_end(lord);
    mli_ledger_unregister(lord);
    mli_ledger_free(lord);
}

/* Makes the global ledger unless there is one: *made is 1, or 0. Returns it; NULL: r says why. One
   is made in full before it is claimed, as its own calls may come back here from within malloc. */
static MLI_COLD memlord *mli_global_make(const memlord_desc *desc, int *made, memlord_result *r) {
    mli_ptr *global = &mli_process.global;
    memlord *fresh, *lord;
    *made = 0;
    *r = memlord_create(desc, &fresh);
    if (*r) return NULL;
    mli_lock_take(&mli_process.registry_lock);
    lord = (memlord *)mli_ptr_load(global);
    *made = !lord;
    if (!lord) mli_ptr_store_release(global, lord = fresh); /* pairs with the acquire loads */
    mli_lock_drop(&mli_process.registry_lock);
    if (!*made) memlord_destroy(fresh);
    return lord;
}

MEMLORD_API memlord *memlord_global(void) {
    memlord *lord = (memlord *)mli_ptr_load_acquire(&mli_process.global);
    memlord_result r;
    int made;
    return MLI_LIKELY(lord) ? lord : mli_global_make(NULL, &made, &r);
}

/* The snapshots start when the ledger is claimed: a new thread may call memlord_global, and a
   ledger that is not claimed starts none. */
MLI_API memlord_result memlord_global_setup(const memlord_desc *desc) {
    static const char late[] = "[setup] memlord_global_setup came too late: the global ledger is in "
                               "use, and stays as it is";
    memlord *lord = (memlord *)mli_ptr_load_acquire(&mli_process.global);
    memlord_desc own;
    memlord_result r = MEMLORD_OK;
    int made = 0;
    memset(&own, 0, sizeof own);
    if (desc) own = *desc;
    if (own.allocator.alloc || own.allocator.free) return MEMLORD_E_INVALID;
    if (own.snapshot_ms && own.snapshot_ms < MLI_SNAPSHOT_MS_MIN) return MEMLORD_E_INVALID;
    own.snapshot_ms = 0;
    if (!lord) lord = mli_global_make(&own, &made, &r);
    if (!lord) return r;
    if (!made) {
        if (mli_log_hears(lord, MEMLORD_LOG_ERROR))
            mli_log(lord, MEMLORD_LOG_ERROR, late);
        else if (own.logger.fn) /* the ledger in use is silent: or nothing would tell the host */
            own.logger.fn(own.logger.user, MEMLORD_LOG_ERROR, late);
        return MEMLORD_E_STATE;
    }
    if (desc && desc->snapshot_ms) (void)memlord_snapshots_start(lord, desc->snapshot_ms);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_logger_set(memlord *lord, const memlord_logger *logger) {
    const memlord_logger none = {NULL, NULL};
    const mli_log_calls *mine = &mli_self.log_calls;
    const int calls = (mine->inside[0] | mine->inside[1]) != 0;
    uint32_t turn, own;
    unsigned spins = 0;
    if (!lord) return MEMLORD_OK;
    if (calls && mine->generation != lord->threads.generation) return MEMLORD_E_STATE;
    while (mli_u32_exchange(&lord->log.setting, 1)) { /* that thread may wait for this one */
        if (calls) return MEMLORD_E_STATE;
        mli_spin_wait(&spins);
    }
    mli_lock_take(&lord->log.lock);
    mli_logger_use(lord, logger ? logger : &none);
    turn = lord->log.turn;
    lord->log.turn = !turn;
    own = calls ? mine->inside[turn] : 0;
    while (lord->log.inside[turn] != own) { /* new calls count in the other turn */
        mli_lock_drop(&lord->log.lock);
        mli_spin_wait(&spins);
        mli_lock_take(&lord->log.lock);
    }
    mli_lock_drop(&lord->log.lock);
    mli_u32_store_release(&lord->log.setting, 0); /* pairs with the exchange */
    return MEMLORD_OK;
}

/* ---------------------------------------------------------------------- >>saving --
   Owns the output of reports: to the host's function, to a file, at the end of the process, on
   request. It also measures the cost of a call. Uses >>reports, >>formats and the snapshots.
   Invariants: a report file is complete when it gets its name; a failed one leaves no file behind;
   a request (memlord_request_save) is safe in a signal handler and is served by a later call.
   Locks: registry, to choose the ledger to save at exit; none while the host's function writes. */

/* -- the cost of a call -- */

/* Measures the time of an alloc and a free, once a ledger, on a temporary ledger. Takes about
   20 us. */
static MLI_COLD void mli_cost_measure(memlord *lord) {
    enum { PAIRS = 1000 };
    const uint64_t storage = (uint64_t)1 << 40;
    memlord_device cpu = memlord_device_cpu();
    memlord_desc desc;
    memlord *probe = NULL;
    uint64_t began, i;
    if (mli_u64_load(&lord->saving.alloc_free_ps)) return;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV | MEMLORD_FLAG_NO_STRATEGY | MEMLORD_FLAG_NO_THREADS;
    if (memlord_create(&desc, &probe) != MEMLORD_OK) return;
    (void)memlord_alloc(probe, cpu, storage, 1 << 20, NULL); /* makes the tables first */
    began = mli_now();
    for (i = 1; i <= PAIRS; i++) {
        (void)memlord_alloc(probe, cpu, storage + i * 64, 64, NULL);
        (void)memlord_free(probe, cpu, storage + i * 64, NULL);
    }
    mli_u64_store(&lord->saving.alloc_free_ps, (mli_now() - began) * 1000 / PAIRS + 1);
    memlord_destroy(probe);
}

/* Pins the ledger's snapshots for a report. While the recorder runs, takes one more for a report
   that shows snapshots (no format after TRACE does). That one belongs to the report and not to the
   list, so that frequent reports evict no snapshot. */
static MLI_COLD void mli_report_snapshots(memlord *lord, mli_report *r, memlord_format format) {
    r->snapshots = mli_snapshots_pin(lord, &r->reader, r->snapshot);
    if (format > MEMLORD_FORMAT_TRACE || !mli_u32_load(&lord->snapshots.recorder.interval)) return;
    r->present = mli_snapshot_new(lord, NULL);
    if (r->present)
        r->snapshot[r->snapshots++] = r->present;
    else
        (void)mli_u64_add(&lord->snapshots.lost, 1);
}

/* Returns MEMLORD_E_IO if fn failed, else the result of the capture. */
MLI_API memlord_result memlord_write(memlord *lord, memlord_format format,
                                     memlord_write_fn fn, void *user) {
    mli_report *r;
    memlord_result result;
    if (!lord) return MEMLORD_OK;
    if (!fn) return MEMLORD_E_INVALID;
    if (!mli_format_known(format)) return MEMLORD_E_UNSUPPORTED;
    r = (mli_report *)mli_own_alloc(lord, sizeof *r);
    if (!r) return MEMLORD_E_NOMEM;
    mli_cost_measure(lord);
    mli_report_snapshots(lord, r, format);
    r->out.fn = fn;
    r->out.user = user;
    r->out.buf = r->buf;
    r->out.cap = sizeof r->buf;
    r->o = &r->out;
    r->whole = format <= MEMLORD_FORMAT_HTML; /* a frequent scrape of metrics costs no walk */
    mli_report_capture(lord, r);
    mli_format_write(r, format);
    mli_flush(r->o);
    result = r->out.failed ? MEMLORD_E_IO : r->result;
    mli_snapshots_unpin(lord, &r->reader);
    mli_snapshots_free(lord, r->present);
    mli_own_free(lord, r->scope, (r->scopes + 1) * sizeof *r->scope);
    mli_own_free(lord, r->tag, (r->tags + r->devices + 1) * sizeof *r->tag);
    mli_own_free(lord, r, sizeof *r);
    return result;
}

/* -- files -- */

static const char *const mli_format_suffixes[] = {
#define MLI_X(name, suffix, text) suffix,
    MLI_FORMATS(MLI_X)
#undef MLI_X
};

#define MLI_SAVE_PATH_MAX 4000

typedef struct mli_save_paths { /* allocated: a stack may have only 16 KiB */
    char target[MLI_SAVE_PATH_MAX], beside[MLI_SAVE_PATH_MAX + 64];
} mli_save_paths;

/* Sets p->target to `path` with the process id for %p and % for %%. Returns 0 if it fits, else
   -1. */
static int mli_save_path_expand(const char *path, mli_save_paths *p) {
    mli_out o;
    mli_out_buffer(&o, p->target, sizeof p->target);
    for (; *path; path++) {
        int escape = *path == '%' && (path[1] == 'p' || path[1] == '%');
        path += escape;
        if (escape && *path == 'p')
            mli_put_u64(&o, mli_pid());
        else
            mli_put(&o, path, 1);
    }
    return mli_out_end(&o, sizeof p->target) < sizeof p->target ? 0 : -1;
}

static MLI_COLD int mli_write_file(void *user, const void *data, size_t size) {
    return mli_file_write(*(mli_file *)user, (const char *)data, size);
}

/* Creates p->beside, a new file .memlord-pid-n.tmp in the target's directory, so that a rename can
   replace the target. Returns 0, or not 0 if it cannot. */
static int mli_file_temp_create(mli_save_paths *p, mli_file *file) {
    size_t n, directory = strlen(p->target);
    int r = 1;
    while (directory && !strchr(MLI_WINDOWS ? "/\\" : "/", p->target[directory - 1]))
        directory--;
    for (n = 0; r > 0 && n < 1000; n++) {
        mli_out o;
        mli_out_buffer(&o, p->beside, sizeof p->beside);
        mli_put(&o, p->target, directory);
        mli_putf(&o, ".memlord-%ju-%ju.tmp", mli_pid(), (uint64_t)n);
        (void)mli_out_end(&o, sizeof p->beside);
        r = mli_file_create(p->beside, file);
    }
    return r;
}

/* Writes a report to p->beside, a new file in the directory of p->target. Removes the file if that
   fails. */
static MLI_COLD memlord_result mli_file_write_report(memlord *lord, memlord_format format,
                                                     mli_save_paths *p) {
    mli_file file;
    mli_signals held;
    memlord_result r;
    if (mli_file_temp_create(p, &file)) return MEMLORD_E_IO;
    held = mli_signals_block();
    r = memlord_write(lord, format, mli_write_file, &file);
    if (mli_file_close(file, r == MEMLORD_OK) && r == MEMLORD_OK) r = MEMLORD_E_IO;
    mli_signals_restore(&held);
    if (r != MEMLORD_OK) mli_file_remove(p->beside);
    return r;
}
/* Ends the saving of a file. `failed`: the file could not be renamed to p->target. */
static memlord_result mli_file_renamed(const mli_save_paths *p, int failed) {
    if (!failed) return MEMLORD_OK;
    mli_file_remove(p->beside);
    return MEMLORD_E_IO;
}

/* Writes a report to standard output. It takes the descriptor and no stdio, which may be locked. */
static MLI_COLD memlord_result mli_save_stdout(memlord *lord, memlord_format format) {
    mli_file file = mli_file_stdout();
    mli_signals held;
    memlord_result r;
    if ((format == MEMLORD_FORMAT_PPROF || format == MEMLORD_FORMAT_MEMORY_VIZ) &&
        mli_file_is_terminal(file)) {
        mli_logf(lord, MEMLORD_LOG_ERROR,
                 "[save] .%s is binary: redirect standard output from the terminal, or name a file",
                 mli_format_suffixes[format]);
        return MEMLORD_E_UNSUPPORTED;
    }
    held = mli_signals_block();
    r = memlord_write(lord, format, mli_write_file, &file);
    mli_signals_restore(&held);
    return r;
}

MLI_API memlord_result memlord_save(memlord *lord, memlord_format format, const char *path) {
    mli_save_paths *p;
    memlord_result r = MEMLORD_E_INVALID;
    if (!lord) return MEMLORD_OK;
    if (!path || !*path) return MEMLORD_E_INVALID;
    if (!mli_format_known(format)) return MEMLORD_E_UNSUPPORTED;
    if (!strcmp(path, "-")) return mli_save_stdout(lord, format);
    p = (mli_save_paths *)mli_own_alloc(lord, sizeof *p);
    if (!p) return MEMLORD_E_NOMEM;
    if (!mli_save_path_expand(path, p))
        r = mli_file_is_special(p->target) ? MEMLORD_E_IO : mli_file_write_report(lord, format, p);
    if (r == MEMLORD_OK) r = mli_file_renamed(p, mli_file_rename(p->beside, p->target, 1));
    mli_own_free(lord, p, sizeof *p);
    return r;
}

/* -- saving at exit and on request, under a dated name -- */

/* Sets p->target to directory/memory_profile_20261121_080500.json. For n > 0 adds the process id,
   for n > 1 also n, for a name that is still free. Returns 0 if it fits, else -1. */
static int mli_dated_path(const char *directory, uint64_t wall, memlord_format format,
                          unsigned n, mli_save_paths *p) {
    mli_out o;
    mli_out_buffer(&o, p->target, sizeof p->target);
    mli_put_str(&o, directory);
    mli_put_str(&o, "/memory_profile_");
    mli_put_time(&o, wall, 1);
    if (n) mli_putf(&o, "_%ju", mli_pid());
    if (n > 1) mli_putf(&o, "_%ju", (uint64_t)n);
    mli_put_str(&o, ".");
    mli_put_str(&o, mli_format_suffixes[format]);
    return mli_out_end(&o, sizeof p->target) < sizeof p->target ? 0 : -1;
}

static memlord_result mli_dated_save(memlord *lord, memlord_format format,
                                     const char *directory, mli_save_paths *p) {
    uint64_t wall = mli_wall_now();
    unsigned n;
    int there = 1;
    memlord_result r;
    if (mli_dated_path(directory, wall, format, 0, p)) return MEMLORD_E_INVALID;
    r = mli_file_write_report(lord, format, p);
    for (n = 0; r == MEMLORD_OK && there > 0 && n < 1000; n++)
        there = mli_dated_path(directory, wall, format, n, p)
                    ? -1
                    : mli_file_rename(p->beside, p->target, 0);
    return r == MEMLORD_OK ? mli_file_renamed(p, there) : r;
}

/* Saves to the directory of memlord_save_at_exit (default: output_dir, then "."), and logs the
   result. At the end of a ledger or of the process it saves only if that was wanted, once: the
   exchange of exit_format lets only one caller save. It then serves a request, too, that no call
   has served yet. exit_format: a memlord_format + 1; 0: JSON. */
static MLI_COLD void mli_save_dated(memlord *lord, int end) {
    uint32_t format = end ? mli_u32_exchange(&lord->saving.exit_format, 0)
                          : mli_u32_load(&lord->saving.exit_format);
    const char *directory = (const char *)mli_ptr_load_acquire(&lord->saving.exit_directory);
    int asked = end && mli_alert_set(lord, MLI_ALERT_SAVE, 0);
    mli_save_paths *p;
    char line[320];
    mli_out o;
    memlord_result r = MEMLORD_E_NOMEM;
    if (end && !format && !asked) return;
    if (!directory) directory = lord->saving.output_dir ? lord->saving.output_dir : ".";
    p = (mli_save_paths *)mli_own_alloc(lord, sizeof *p);
    if (p)
        r = mli_dated_save(lord, format ? (memlord_format)(format - 1) : MEMLORD_FORMAT_JSON,
                           directory, p);
    mli_out_buffer(&o, line, sizeof line);
    if (r)
        mli_putf(&o, "[save] no report in %s: %s", directory, memlord_result_text(r));
    else
        mli_putf(&o, "[save] %s", p->target);
    (void)mli_out_end(&o, sizeof line);
    mli_log(lord, r ? MEMLORD_LOG_ERROR : MEMLORD_LOG_INFO, line);
    mli_own_free(lord, p, sizeof *p);
}

static const mli_saver mli_dated_saver = {mli_save_dated};
/* Makes saving possible. Release: pairs with the acquire in mli_save_serve and memlord_destroy. */
static void mli_saver_set(memlord *lord) {
    mli_ptr_store_release(&lord->saving.saver, (void *)(uintptr_t)&mli_dated_saver);
}

/* Saves every ledger that wants a report at exit. It chooses one under the registry lock, saves it
   without, and starts over: the list may have changed. */
static MLI_COLD void mli_at_exit(void) {
    memlord *lord;
    do {
        mli_lock_take(&mli_process.registry_lock);
        for (lord = mli_process.ledgers; lord; lord = lord->lifecycle.next)
            if (mli_u32_load(&lord->saving.exit_format) ||
                (mli_u32_load(&lord->threads.alert) & MLI_ALERT_SAVE))
                break;
        mli_process.saving = lord; /* a destroy on another thread waits for this */
        mli_lock_drop(&mli_process.registry_lock);
        if (lord) mli_save_dated(lord, 1);
    } while (lord);
}
static MLI_COLD memlord_result mli_at_exit_once(void) {
    int bad = 0;
    const uint64_t generation = mli_busy_begin(); /* atexit may call a malloc that records */
    if (!mli_u32_exchange(&mli_process.at_exit, 1))
        bad = atexit(mli_at_exit);
    mli_busy_end(generation);
    if (bad) mli_u32_store(&mli_process.at_exit, 0);
    return bad ? MEMLORD_E_NOMEM : MEMLORD_OK;
}

/* -- public -- */

MLI_API memlord_format memlord_format_for(const char *path) {
    size_t n = path ? strlen(path) : 0, best = 0;
    int i, found = MEMLORD_FORMAT_TEXT;
    for (i = 0; i < MEMLORD_FORMAT_COUNT; i++) { /* the longest match: .trace.json is not .json */
        const char *suffix = mli_format_suffixes[i];
        size_t length = strlen(suffix);
        if (length <= best || n <= length || path[n - length - 1] != '.') continue;
        if (strcmp(path + n - length, suffix)) continue;
        best = length;
        found = i;
    }
    return (memlord_format)found;
}

MLI_API memlord_result memlord_save_at_exit(memlord *lord, memlord_format format,
                                            const char *directory) {
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!mli_format_known(format)) return MEMLORD_E_UNSUPPORTED;
    if (directory && strlen(directory) > MLI_SAVE_PATH_MAX - 100) return MEMLORD_E_INVALID;
    r = mli_name(lord, directory && *directory ? directory : NULL, &kept);
    if (r == MEMLORD_OK) r = mli_at_exit_once();
    if (r) return r;
    mli_saver_set(lord);
    mli_ptr_store_release(&lord->saving.exit_directory, (void *)(uintptr_t)kept);
    (void)mli_u32_exchange(&lord->saving.exit_format, (uint32_t)format + 1);
    return MEMLORD_OK;
}
MLI_API void memlord_request_save(memlord *lord) {
    if (!lord) return;
    mli_saver_set(lord);
    mli_alert_set(lord, MLI_ALERT_SAVE, 1); /* no lock: safe in a signal handler */
}

/* -------------------------------------------------------------------- >>redirect --
   Owns nothing: the functions behind the macros of >>shim. Uses only the recording calls and the
   host's allocator. A block's key is its address. munmap ends a block only if its pages are that
   whole block. Invariant: each keeps the result and the errno of the function that it replaces,
   whether or not the ledger could record the call. Locks: none of its own. */

#if !MLI_WINDOWS
static memlord_device mli_device_mapped(void) {
    return memlord_device_make(MEMLORD_DEVICE_MAPPED, 0);
}

/* Returns 1 if the pages are one whole block. *device is the device of the block that begins there,
   or the cpu if there is none. */
static int mli_is_mapping(memlord *lord, uint64_t at, size_t size, memlord_device *device) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    memlord_block_info b;
    *device = mli_device_mapped();
    if (memlord_block_find(lord, *device, at, &b) != MEMLORD_OK) {
        *device = memlord_device_cpu();
        if (memlord_block_find(lord, *device, at, &b) != MEMLORD_OK) return 0;
    }
    return b.bytes / page + (b.bytes % page != 0) == size / page + (size % page != 0);
}
#endif

/* -- public -- */

MLI_API void *memlord_shim_malloc(memlord *lord, size_t size, const memlord_site *site) {
    void *p = malloc(size);
    if (p) (void)memlord_alloc(lord, memlord_device_cpu(), MEMLORD_KEY(p), size, site);
    return p;
}
MLI_API void *memlord_shim_calloc(memlord *lord, size_t n, size_t size, const memlord_site *site) {
    void *p = calloc(n, size); /* returns NULL if the product overflows */
    if (p) (void)memlord_alloc(lord, memlord_device_cpu(), MEMLORD_KEY(p), n * size, site);
    return p;
}
MLI_API void memlord_shim_free(memlord *lord, void *ptr, const memlord_site *site) {
    (void)memlord_free(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), site);
    free(ptr);
}
MLI_API void *memlord_shim_realloc(memlord *lord, void *ptr, size_t size,
                                   const memlord_site *site) {
    memlord_realloc_token token;
    void *p;
    if (ptr && !size) {
        memlord_shim_free(lord, ptr, site);
        return NULL;
    }
    (void)memlord_realloc_begin(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), &token);
    p = realloc(ptr, size);
    (void)memlord_realloc_end(lord, &token, MEMLORD_KEY(p), size, site);
    return p;
}

#if !MLI_WINDOWS
MLI_API void *memlord_shim_mmap(memlord *lord, void *at, size_t size, int prot, int flags,
                                int fd, int64_t offset, const memlord_site *site) {
    memlord_device d = flags & MAP_ANONYMOUS ? memlord_device_cpu() : mli_device_mapped();
    void *p;
    if ((off_t)offset != offset) { /* truncated, it would map another part of the file */
        errno = EOVERFLOW;
        return MAP_FAILED;
    }
    p = mmap(at, size, prot, flags, fd, (off_t)offset);
    if (p != MAP_FAILED) (void)memlord_alloc(lord, d, MEMLORD_KEY(p), size, site);
    return p;
}
MLI_API int memlord_shim_munmap(memlord *lord, void *at, size_t size, const memlord_site *site) {
    uint64_t key = MEMLORD_KEY(at);
    memlord_realloc_token token;
    memlord_device d;
    memlord_result known = MEMLORD_E_UNKNOWN;
    int r, error;
    if (!lord || mli_self.in_host_alloc) return munmap(at, size);
    if (mli_is_mapping(lord, key, size, &d))
        known = memlord_free_begin(lord, d, key, &token, site);
    r = munmap(at, size);
    error = errno;
    if (known == MEMLORD_OK) {
        (void)memlord_free_end(lord, &token, r, site);
    } else if (known == MEMLORD_E_UNKNOWN && !r) {
        (void)mli_unknown_free(lord, d);
        if (mli_debug_on(lord)) mli_log_call(lord, 0, "[free] ", d, key, size, site);
    }
    errno = error;
    return r;
}
#endif

#undef MLI_X
#endif /* MEMLORD_IMPLEMENTATION */

/* ------------------------------------------------------------------------- >>shim --
   Owns the macros that redirect malloc and its kin to >>redirect. Comes last, so that it redirects
   nothing above. Stands outside the include guard: another header may have included memlord.h
   without MEMLORD_SHIM before. Includes the headers that declare these functions first, as the
   macros would change their declarations. */
#if defined(MEMLORD_SHIM) && !defined(MEMLORD_DISABLE) && !defined(MLI_SHIMMED) && \
    !defined(MLI_READ_PREFIX)
#define MLI_SHIMMED
#include <stdlib.h>
#if !defined(_WIN32)
#include <sys/mman.h>
#endif
#if !defined(MEMLORD_SHIM_LORD)
#define MEMLORD_SHIM_LORD memlord_global()
#endif
#undef malloc
#undef calloc
#undef realloc
#undef free
#define malloc(size) memlord_shim_malloc(MEMLORD_SHIM_LORD, size, MEMLORD_SITE())
#define calloc(n, size) memlord_shim_calloc(MEMLORD_SHIM_LORD, n, size, MEMLORD_SITE())
#define realloc(ptr, size) memlord_shim_realloc(MEMLORD_SHIM_LORD, ptr, size, MEMLORD_SITE())
#define free(ptr) memlord_shim_free(MEMLORD_SHIM_LORD, ptr, MEMLORD_SITE())
#if !defined(_WIN32)
#undef mmap
#undef munmap
#define mmap(at, size, prot, flags, fd, offset)                                               \
    memlord_shim_mmap(MEMLORD_SHIM_LORD, at, size, prot, flags, fd, offset, MEMLORD_SITE())
#define munmap(at, size) memlord_shim_munmap(MEMLORD_SHIM_LORD, at, size, MEMLORD_SITE())
#endif
#endif

/*
Copyright (c) 2026 The MemLord authors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or
substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
