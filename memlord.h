/*
    memlord.h - memory accounting for programs with more than one kind of memory
                v0.3.6, C99 and C++11, SPDX-License-Identifier: MIT

    MemLord keeps the books beside your own allocator: how many bytes live on each
    device (cpu, pinned, mapped, cuda:0, ...), who put them there, what the peak was
    and what is still alive. It never allocates your memory and never aborts.

    Do this in *one* C or C++ file:

        #define MEMLORD_IMPLEMENTATION
        #include "memlord.h"

    and include memlord.h without the define wherever you call it. The file with the
    implementation also needs stb_ds.h (Debian: libstb-dev) and a threading library
    (-pthread).

    Contents: search for the tag to jump there
        >>example        a complete program
        >>concepts       what the words and the numbers mean
        >>knobs          what can be configured, and where
        >>threading      what may run at the same time
        >>errors         what happens when something goes wrong
        >>costs          what a call costs; what is not counted
        >>api            types and functions, in the order you meet them
        >>implementation then >>platform, >>atomics, >>ledger, >>memory, >>threads, >>map,
                         >>counters, >>names, >>devices, >>sites, >>events, >>fences, >>blocks,
                         >>parts, >>text, >>log, >>capacity, >>limits, >>bands, >>deferred,
                         >>pollers, >>scopes, >>snapshots, >>reports, >>page, >>formats,
                         >>calls, >>retry, >>lifecycle, >>public; last >>shim

    ---------------------------------------------------------------- >>example ---

        #define MEMLORD_IMPLEMENTATION
        #include "memlord.h"
        #include <stdio.h>
        #include <stdlib.h>

        static int to_stdout(void *user, const void *data, size_t size) {
            (void)user;
            return fwrite(data, 1, size, stdout) != size;
        }

        int main(void) {
            memlord *lord = memlord_global();
            memlord_device cpu = memlord_device_cpu();
            memlord_sites_enable(lord, 1);

            MEMLORD_TAG(lord, "kv_cache") {
                void *cache = malloc(1 << 20);
                MEMLORD_ALLOC(lord, cpu, cache, 1 << 20);    // after the malloc
                MEMLORD_FREE(lord, cpu, cache);              // before the free
                free(cache);
            }
            return memlord_write(lord, MEMLORD_FORMAT_TEXT, to_stdout, NULL);
        }

    --------------------------------------------------------------- >>concepts ---

    Ledger    `memlord *lord`, one independent account book. Every function takes it
              first. A NULL ledger is MemLord switched off: every call is one branch,
              calls that record answer MEMLORD_OK, readers answer 0, and what asks for
              room says that it is not known (headroom INT64_MAX, would_fit -1).
    Device    where bytes live: a type and an index, {MEMLORD_DEVICE_CUDA, 1}. As a
              selector (parameters named `sel`), index MEMLORD_ANY means every index
              of the type and memlord_device_all() means every device.
    Storage   the base address, or handle, of one real allocation: any 64-bit number
              but 0 and UINT64_MAX. Known by (device type, storage), so a free needs
              the type but not the index, and equal handles of two types never
              collide. Where handles repeat across the devices of one type (Vulkan
              offsets), use the address of your own buffer object.
    View      one more reference to a live storage. Bytes count once, however many.
    Arena     bytes that have no identity of their own: only a balance per device.
    Site      a place in your source, planted by a macro. Off until
              memlord_sites_enable.
    Tag       what bytes are for ("weights", "kv_cache"): set per thread, kept by the
              block until it ends, whoever frees it.
    Place     a physical device: cpu, pinned and mapped are one, and an integrated GPU
              that memlord_device_share puts there. Capacity and limit are a place's.
    Limit     what memlord_reserve and memlord_alloc_retry may take a place to. Allocs
              that were made are recorded whatever the limit.
    Band      a range of used % with the threshold at which a collection is due there.
    Collection  a run of the host's own callbacks for a device, to give memory back.
    Fence     tells when a device is done with a block. A block freed before that is
              pending: still live, until its fences are done.
    Account   who is charged (a request, a user) for bytes counted elsewhere.
    Part      a named piece of a live storage (a tensor in a weights buffer): parts
              subdivide, they never add.
    Scope     a stretch of a thread's work with a name ("decode"): what it allocated less
              what it freed, its peak, its time. Scopes nest and can be handed to other
              threads; blocks remember the one they were allocated in.
    Snapshot  what every device held at one moment; a checkpoint is one with a name.
    Event     one change (alloc, free, move, collection ...), in a ring, if asked for.
    Mark      a number that grows with memlord_mark. Blocks remember the mark they
              were born under, so "what is still alive since then" is one call.

    All sizes are bytes in uint64_t. Differences are int64_t and may be negative.
    Bytes of a device, and how they relate:

        allocated        live storages + the arena balance, now
        pending          the part of allocated that is freed and waits for its device
        peak             highest `allocated` since create, reset or peak_reset; low by
                         at most peak_error, never high; peak_error is 0 with
                         MEMLORD_FLAG_EXACT and with one thread
        freed            credited since the last collection or reset
        total_allocated  everything recorded in this epoch, growth included; lifetime totals
                         count modulo 2^64, live values never wrap
        total_freed      everything ever credited in this epoch, shrinkage included
        reserved         what the host's own pool holds of the device; cached is the
                         part of it that is not allocated
        limit            of the device's place; held, in reports, is what reservations
                         keep of it

    Order: record an allocation after the real one, and a free before the real one.
    Between the two another thread may already own the address; recorded that way it
    cannot be confused. A realloc that may move goes through memlord_realloc_begin
    before and memlord_realloc_end after the real call, for the same reason.

    ------------------------------------------------------------------ >>knobs ---

    Define before including; "all files" means in every file that includes memlord.h
    alike, "one file" means only where MEMLORD_IMPLEMENTATION is.

        MEMLORD_DISABLE        every call becomes an inline no-op that still type
                               checks; no code is left                    (all files)
        MEMLORD_STATIC         all functions static: the library private to one file
                                                                          (all files)
        MEMLORD_PREFIX         p: every symbol becomes p_memlord_...: two libraries in
                               a process may each carry a MemLord         (all files)
        MEMLORD_API            linkage of public functions, default extern (all files)
        MEMLORD_SHIM           redirect malloc, calloc, realloc, free, mmap and munmap
                               of this C file to MEMLORD_SHIM_LORD (default
                               memlord_global()); include memlord.h last. What others
                               allocate (strdup, getline) and this file frees is
                               counted in unknown_frees, and so is a munmap of
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
        MEMLORD_CHECK_LOCKS    to debug MemLord: every lock that a thread takes is
                               checked against the lock order, with MEMLORD_ASSERT
                                                                           (one file)
        MEMLORD_ASSERT         MEMLORD_ASSERT(expression): what that does when the
                               expression is 0, for example abort; default nothing
                                                                           (one file)

    Environment, read once by memlord_create, ignored by set-uid programs and with
    MEMLORD_FLAG_NO_ENV; an empty one is as none, and what is not understood is logged
    and changes nothing:

        MEMLORD_DEBUG=1        log every event to stderr in colour, or to your logger;
                               anything but 0 does
        MEMLORD_POLL_INTERVAL_MS=200
                               how often pollers sample, at least 10; goes before
                               poll_ms and memlord_poller_start
        MEMLORD_RETRY=max=5,initial_ms=50,multiplier=1.5,max_ms=2000
                               the policy memlord_alloc_retry has by default; in any
                               order, without blanks; what is left out is as here, and
                               initial_ms may not be over max_ms

    -------------------------------------------------------------- >>threading ---

    Every function may be called from any thread at any time, except
        memlord_destroy        no other call on that ledger may be in flight or follow
    Callbacks (write, block, logger, capacity, collection, fence, try) run with no lock
    held and may call any function of the ledger but memlord_destroy. Write, block and
    try run on the calling thread. Collections run on the thread whose call crossed the
    threshold, and fences on those that allocate, free or retire, and on pollers: inside
    the host's own call, under whatever locks it holds there. A host with an allocator
    lock creates the ledger with MEMLORD_FLAG_DEFER: then they run in memlord_gc_poll,
    memlord_retire, memlord_alloc_retry and on pollers alone, and pollers are started
    there too. A collection left by longjmp counts as running on its device for good. A
    fence left by longjmp holds up its queue until destroy, and the thread polls this
    ledger's fences no more. Nothing else is harmed.
    Threads of MemLord's own: one poller a place, from the first call that touches a
    device with a capacity source, a collection callback and a strategy; none otherwise,
    and none with MEMLORD_FLAG_NO_THREADS. They take no signals. With MEMLORD_FLAG_DEFER
    the host's poller starts with the callback, and starts the others when it sees that
    their devices were touched. One more takes snapshots, from memlord_snapshots_start on.
    The allocator of a ledger is called with no storage locked; it may be your own malloc
    even if that calls MemLord (such a call made by the ledger itself passes through
    uncounted).
    A ledger survives fork: the child's copy goes on with the state of the moment; its
    pollers start again when it is used. Fork waits for the calls under way, so it must not
    be called from a signal handler, which may have interrupted one: POSIX no longer lists
    fork as async-signal-safe. What runs no fork handlers may be: _Fork, vfork, posix_spawn,
    with an exec next.
    A shared library that carries MemLord has to stay loaded, memlord_destroy or not: threads
    that were in it run code of it when they exit. Link it with -Wl,-z,nodelete.
    Functions are not async-signal-safe, but for memlord_request_save.
    A call waits only for other calls that are under way. It spins, then yields, then sleeps
    for 50 us to 1 ms at a time. So a real-time thread (SCHED_FIFO) lets the thread run that
    it waits for, even if both share a processor and that one has a lower priority. There is
    no priority inheritance: such a wait can take several milliseconds.
    On Linux one thread takes a storage of another with membarrier(2). A sandbox may refuse
    it, from the start or later: then every call takes two atomic operations more. After a
    late refusal each such take also sleeps for 1 ms, until all threads that have used the ledger
    have made another call or have ended. Enter the sandbox before the first ledger is
    created, and no call sleeps.

    ----------------------------------------------------------------- >>errors ---

    Every memlord_result function answers MEMLORD_OK (0), or an error and then has
    changed nothing but the anomaly and drop counters. Results may be ignored. MemLord
    never prints (unless MEMLORD_DEBUG asks for it), asserts, aborts or exits.

    Mistakes of the host are anomalies: counted per device and shown in every report but
    FOLDED and CSV, whose readers know no comments.
        unknown_frees          a free, release or realloc of a storage not live; in the
                               sum of all devices, if there is no room for the one it names
        implicit_frees         an alloc over a live storage: the old one was closed
        freed_while_shared     a free of a storage that still had views
        underflows             arena_sub of more than the balance: now 0
        fence_failures         fences that failed: taken for done
    What did not fit is counted too, and never silently lost:
        dropped_allocs/_bytes  the map could not grow: raise the allocator's limit; or one
                               device too many (E_DEVICE): raise MEMLORD_MAX_DEVICES
        dropped_sites          more sites or tags than fit, or more bytes of names than
                               MEMLORD_MAX_STRINGS: blocks are recorded without
        dropped_events         written over in the ring, or no room there
    and, of the ledger as a whole, scopes, invocations and snapshots that are no longer
    there: reports say how many. The first alloc that is dropped, and the first tag, are
    logged as warnings.

    ------------------------------------------------------------------ >>costs ---

    alloc, free, retain, release, track, realloc: some ten nanoseconds to a cache miss
    (README has the measured table), no system call, no lock shared by threads that
    work on their own blocks, nothing proportional to devices, threads or blocks
    except when a table grows (one of 1024 shards at a time), and while a report reads
    the counters, which stops them all for some tens of microseconds. Memory: about 40
    to 60 bytes a live block, up to 500 of the first one or two thousand, and 100 KiB
    or so to begin with; 5 KiB a thread, and 150 to 250 bytes a site it allocates at, when
    sites are counted; 270 KiB or so more while a report is written. Reports show it all
    as MemLord's own.
    Readers (allocated, stats, peak) cost a few nanoseconds a thread. Functions that
    walk every block say so under Cost. Bands that are far from their thresholds cost a
    branch or two a call; near one (within 64 KiB a thread, see counter_batch) every call
    adds all threads up. A collection costs what its callbacks do. A scope costs some tens
    of nanoseconds; events, one branch a call when off, and a stamp and 32 bytes when on.

    Not counted: memory nobody tells MemLord about (other libraries, the driver, the
    C library's own overhead, stacks, code), the rounding of your allocator, bytes the
    operating system has not yet backed with pages. MemLord's own memory is not in the
    totals; reports show it beside them.
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
#define MEMLORD_VERSION_MINOR 3
#define MEMLORD_VERSION_PATCH 6
#define MEMLORD_VERSION "0.3.6"

#if defined(__GNUC__)
#define MEMLORD_I_INLINE static inline __attribute__((unused))
#else
#define MEMLORD_I_INLINE static inline
#endif

/* Here and in macros, which the host's files expand: theirs may have -Wold-style-cast on. */
#ifdef __cplusplus
#define MEMLORD_I_CAST(type, value) static_cast<type>(value)
#else
#define MEMLORD_I_CAST(type, value) ((type)(value))
#endif

/* The body a function has when MemLord is compiled out, which is also what it answers
   on a NULL ledger: written beside each declaration, so that there is one list. */
#if defined(MEMLORD_DISABLE)
#undef MEMLORD_API
#define MEMLORD_API static inline
#define MEMLORD_I_OFF(value) { return value; }
#define MEMLORD_I_OFF_SET(set, value) { set; return value; }
#define MEMLORD_I_OFF_VOID {}
#define MEMLORD_I_NO_SITE static const memlord_site none = {"", "", 0}
#else
#define MEMLORD_I_OFF(value) ;
#define MEMLORD_I_OFF_SET(set, value) ;
#define MEMLORD_I_OFF_VOID ;
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

/* With a prefix p every symbol becomes p_memlord_...; the source goes on saying memlord_... */
#if defined(MEMLORD_PREFIX)
#define MEMLORD_I_PREFIX2(prefix, name) prefix##_##name
#define MEMLORD_I_PREFIX1(prefix, name) MEMLORD_I_PREFIX2(prefix, name)
#define MEMLORD_I_PREFIXED(name) MEMLORD_I_PREFIX1(MEMLORD_PREFIX, name)
#define memlord_result_text MEMLORD_I_PREFIXED(memlord_result_text)
#define memlord_create MEMLORD_I_PREFIXED(memlord_create)
#define memlord_destroy MEMLORD_I_PREFIXED(memlord_destroy)
#define memlord_global MEMLORD_I_PREFIXED(memlord_global)
#define memlord_os_allocator MEMLORD_I_PREFIXED(memlord_os_allocator)
#define memlord_device_parse MEMLORD_I_PREFIXED(memlord_device_parse)
#define memlord_device_name MEMLORD_I_PREFIXED(memlord_device_name)
#define memlord_device_label MEMLORD_I_PREFIXED(memlord_device_label)
#define memlord_devices MEMLORD_I_PREFIXED(memlord_devices)
#define memlord_alloc MEMLORD_I_PREFIXED(memlord_alloc)
#define memlord_free MEMLORD_I_PREFIXED(memlord_free)
#define memlord_realloc MEMLORD_I_PREFIXED(memlord_realloc)
#define memlord_realloc_begin MEMLORD_I_PREFIXED(memlord_realloc_begin)
#define memlord_realloc_end MEMLORD_I_PREFIXED(memlord_realloc_end)
#define memlord_free_begin MEMLORD_I_PREFIXED(memlord_free_begin)
#define memlord_free_end MEMLORD_I_PREFIXED(memlord_free_end)
#define memlord_alloc_n MEMLORD_I_PREFIXED(memlord_alloc_n)
#define memlord_free_n MEMLORD_I_PREFIXED(memlord_free_n)
#define memlord_move MEMLORD_I_PREFIXED(memlord_move)
#define memlord_track MEMLORD_I_PREFIXED(memlord_track)
#define memlord_retain MEMLORD_I_PREFIXED(memlord_retain)
#define memlord_release MEMLORD_I_PREFIXED(memlord_release)
#define memlord_track_n MEMLORD_I_PREFIXED(memlord_track_n)
#define memlord_release_n MEMLORD_I_PREFIXED(memlord_release_n)
#define memlord_arena_add MEMLORD_I_PREFIXED(memlord_arena_add)
#define memlord_arena_sub MEMLORD_I_PREFIXED(memlord_arena_sub)
#define memlord_sites_enable MEMLORD_I_PREFIXED(memlord_sites_enable)
#define memlord_site_at MEMLORD_I_PREFIXED(memlord_site_at)
#define memlord_site_address MEMLORD_I_PREFIXED(memlord_site_address)
#define memlord_site_rename MEMLORD_I_PREFIXED(memlord_site_rename)
#define memlord_sites_top MEMLORD_I_PREFIXED(memlord_sites_top)
#define memlord_site_top_alloc MEMLORD_I_PREFIXED(memlord_site_top_alloc)
#define memlord_site_top_free MEMLORD_I_PREFIXED(memlord_site_top_free)
#define memlord_allocated MEMLORD_I_PREFIXED(memlord_allocated)
#define memlord_freed MEMLORD_I_PREFIXED(memlord_freed)
#define memlord_pending MEMLORD_I_PREFIXED(memlord_pending)
#define memlord_peak MEMLORD_I_PREFIXED(memlord_peak)
#define memlord_stats_get MEMLORD_I_PREFIXED(memlord_stats_get)
#define memlord_reset MEMLORD_I_PREFIXED(memlord_reset)
#define memlord_peak_reset MEMLORD_I_PREFIXED(memlord_peak_reset)
#define memlord_format_bytes MEMLORD_I_PREFIXED(memlord_format_bytes)
#define memlord_parse_bytes MEMLORD_I_PREFIXED(memlord_parse_bytes)
#define memlord_summary MEMLORD_I_PREFIXED(memlord_summary)
#define memlord_blocks_each MEMLORD_I_PREFIXED(memlord_blocks_each)
#define memlord_blocks_top MEMLORD_I_PREFIXED(memlord_blocks_top)
#define memlord_block_find MEMLORD_I_PREFIXED(memlord_block_find)
#define memlord_block_containing MEMLORD_I_PREFIXED(memlord_block_containing)
#define memlord_block_describe MEMLORD_I_PREFIXED(memlord_block_describe)
#define memlord_block_retag MEMLORD_I_PREFIXED(memlord_block_retag)
#define memlord_mark MEMLORD_I_PREFIXED(memlord_mark)
#define memlord_leaks MEMLORD_I_PREFIXED(memlord_leaks)
#define memlord_tag_begin MEMLORD_I_PREFIXED(memlord_tag_begin)
#define memlord_tag_end MEMLORD_I_PREFIXED(memlord_tag_end)
#define memlord_tag_get MEMLORD_I_PREFIXED(memlord_tag_get)
#define memlord_expect MEMLORD_I_PREFIXED(memlord_expect)
#define memlord_free_deferred MEMLORD_I_PREFIXED(memlord_free_deferred)
#define memlord_block_use MEMLORD_I_PREFIXED(memlord_block_use)
#define memlord_retire MEMLORD_I_PREFIXED(memlord_retire)
#define memlord_capacity_source MEMLORD_I_PREFIXED(memlord_capacity_source)
#define memlord_capacity_get MEMLORD_I_PREFIXED(memlord_capacity_get)
#define memlord_capacity_sample MEMLORD_I_PREFIXED(memlord_capacity_sample)
#define memlord_device_share MEMLORD_I_PREFIXED(memlord_device_share)
#define memlord_poller_start MEMLORD_I_PREFIXED(memlord_poller_start)
#define memlord_poller_stop MEMLORD_I_PREFIXED(memlord_poller_stop)
#define memlord_limit_set MEMLORD_I_PREFIXED(memlord_limit_set)
#define memlord_limit_fraction MEMLORD_I_PREFIXED(memlord_limit_fraction)
#define memlord_headroom MEMLORD_I_PREFIXED(memlord_headroom)
#define memlord_would_fit MEMLORD_I_PREFIXED(memlord_would_fit)
#define memlord_plan_fit MEMLORD_I_PREFIXED(memlord_plan_fit)
#define memlord_reserve MEMLORD_I_PREFIXED(memlord_reserve)
#define memlord_reserve_commit MEMLORD_I_PREFIXED(memlord_reserve_commit)
#define memlord_reserve_cancel MEMLORD_I_PREFIXED(memlord_reserve_cancel)
#define memlord_account_open MEMLORD_I_PREFIXED(memlord_account_open)
#define memlord_account_charge MEMLORD_I_PREFIXED(memlord_account_charge)
#define memlord_account_get MEMLORD_I_PREFIXED(memlord_account_get)
#define memlord_account_close MEMLORD_I_PREFIXED(memlord_account_close)
#define memlord_explain MEMLORD_I_PREFIXED(memlord_explain)
#define memlord_strategy_set MEMLORD_I_PREFIXED(memlord_strategy_set)
#define memlord_strategy_check MEMLORD_I_PREFIXED(memlord_strategy_check)
#define memlord_strategy_default MEMLORD_I_PREFIXED(memlord_strategy_default)
#define memlord_gc_callback MEMLORD_I_PREFIXED(memlord_gc_callback)
#define memlord_gc_callback_quiet MEMLORD_I_PREFIXED(memlord_gc_callback_quiet)
#define memlord_gc_callback_remove MEMLORD_I_PREFIXED(memlord_gc_callback_remove)
#define memlord_gc_run MEMLORD_I_PREFIXED(memlord_gc_run)
#define memlord_gc_poll MEMLORD_I_PREFIXED(memlord_gc_poll)
#define memlord_retry_backoff MEMLORD_I_PREFIXED(memlord_retry_backoff)
#define memlord_retry_check MEMLORD_I_PREFIXED(memlord_retry_check)
#define memlord_alloc_retry MEMLORD_I_PREFIXED(memlord_alloc_retry)
#define memlord_reserved_set MEMLORD_I_PREFIXED(memlord_reserved_set)
#define memlord_reserved_add MEMLORD_I_PREFIXED(memlord_reserved_add)
#define memlord_cache_hit MEMLORD_I_PREFIXED(memlord_cache_hit)
#define memlord_cache_miss MEMLORD_I_PREFIXED(memlord_cache_miss)
#define memlord_cached_ratio MEMLORD_I_PREFIXED(memlord_cached_ratio)
#define memlord_fragmentation MEMLORD_I_PREFIXED(memlord_fragmentation)
#define memlord_pressure_level MEMLORD_I_PREFIXED(memlord_pressure_level)
#define memlord_scope_begin MEMLORD_I_PREFIXED(memlord_scope_begin)
#define memlord_scope_enter MEMLORD_I_PREFIXED(memlord_scope_enter)
#define memlord_scope_end MEMLORD_I_PREFIXED(memlord_scope_end)
#define memlord_scope_shapes MEMLORD_I_PREFIXED(memlord_scope_shapes)
#define memlord_scope_export MEMLORD_I_PREFIXED(memlord_scope_export)
#define memlord_scope_adopt MEMLORD_I_PREFIXED(memlord_scope_adopt)
#define memlord_scope_return MEMLORD_I_PREFIXED(memlord_scope_return)
#define memlord_scope_get MEMLORD_I_PREFIXED(memlord_scope_get)
#define memlord_scope_current MEMLORD_I_PREFIXED(memlord_scope_current)
#define memlord_scope_device_time MEMLORD_I_PREFIXED(memlord_scope_device_time)
#define memlord_checkpoint MEMLORD_I_PREFIXED(memlord_checkpoint)
#define memlord_snapshots_start MEMLORD_I_PREFIXED(memlord_snapshots_start)
#define memlord_snapshots_stop MEMLORD_I_PREFIXED(memlord_snapshots_stop)
#define memlord_events_start MEMLORD_I_PREFIXED(memlord_events_start)
#define memlord_events_stop MEMLORD_I_PREFIXED(memlord_events_stop)
#define memlord_events_each MEMLORD_I_PREFIXED(memlord_events_each)
#define memlord_part_add MEMLORD_I_PREFIXED(memlord_part_add)
#define memlord_part_remove MEMLORD_I_PREFIXED(memlord_part_remove)
#define memlord_parts_each MEMLORD_I_PREFIXED(memlord_parts_each)
#define memlord_save_at_exit MEMLORD_I_PREFIXED(memlord_save_at_exit)
#define memlord_request_save MEMLORD_I_PREFIXED(memlord_request_save)
#define memlord_format_for MEMLORD_I_PREFIXED(memlord_format_for)
#define memlord_write MEMLORD_I_PREFIXED(memlord_write)
#define memlord_save MEMLORD_I_PREFIXED(memlord_save)
#define memlord_shim_malloc MEMLORD_I_PREFIXED(memlord_shim_malloc)
#define memlord_shim_calloc MEMLORD_I_PREFIXED(memlord_shim_calloc)
#define memlord_shim_realloc MEMLORD_I_PREFIXED(memlord_shim_realloc)
#define memlord_shim_free MEMLORD_I_PREFIXED(memlord_shim_free)
#define memlord_shim_mmap MEMLORD_I_PREFIXED(memlord_shim_mmap)
#define memlord_shim_munmap MEMLORD_I_PREFIXED(memlord_shim_munmap)
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

/* -- results -- */

/* name, text */
#define MEMLORD_I_RESULTS(X)                                                                  \
    X(OK, "ok")                                                                               \
    X(E_INVALID, "an argument is out of range")                                               \
    X(E_NOMEM, "no room: give the ledger's allocator more, or raise MEMLORD_MAX_STRINGS")     \
    X(E_UNKNOWN, "nothing of that name or storage is live")                                   \
    X(E_LIMIT, "over the limit set for the device")                                           \
    X(E_DEVICE, "not a device, or more devices than MEMLORD_MAX_DEVICES")                     \
    X(E_OOM, "the device is out of memory")                                                   \
    X(E_STATE, "not possible now: begin and end do not match, or too deep")                   \
    X(E_IO, "could not write there")                                                          \
    X(E_UNSUPPORTED, "not in this build or on this platform")

typedef enum memlord_result {
#define MEMLORD_I_X(name, text) MEMLORD_##name,
    MEMLORD_I_RESULTS(MEMLORD_I_X)
#undef MEMLORD_I_X
    MEMLORD_RESULT_COUNT
} memlord_result;

/* Names a result in a few words of English, for logs. Never NULL. */
MEMLORD_API const char *memlord_result_text(memlord_result result)
    MEMLORD_I_OFF(result == MEMLORD_OK ? "ok" : result == MEMLORD_E_OOM ? "no memory" : "refused")

/* -- devices -- */

/* name, text, host: shares the host's physical memory */
#define MEMLORD_I_DEVICE_TYPES(X)                                                             \
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
#define MEMLORD_I_X(name, text, host) MEMLORD_DEVICE_##name,
    MEMLORD_I_DEVICE_TYPES(MEMLORD_I_X)
#undef MEMLORD_I_X
    MEMLORD_DEVICE_TYPE_COUNT
};

#define MEMLORD_ANY (-1) /* as an index: every device of the type; as a type: every type */

typedef struct memlord_device {
    int16_t type;  /* MEMLORD_DEVICE_CPU, ... */
    int16_t index; /* 0.. , or MEMLORD_ANY in a selector */
} memlord_device;

MEMLORD_I_INLINE memlord_device memlord_device_make(int type, int index) {
    memlord_device d;
    /* what does not fit stays refused by every call */
    d.type = MEMLORD_I_CAST(int16_t, type < INT16_MIN || type > INT16_MAX ? INT16_MAX : type);
    d.index = MEMLORD_I_CAST(int16_t, index < INT16_MIN || index > INT16_MAX ? INT16_MIN : index);
    return d;
}
MEMLORD_I_INLINE memlord_device memlord_device_cpu(void) {
    return memlord_device_make(MEMLORD_DEVICE_CPU, 0);
}
MEMLORD_I_INLINE memlord_device memlord_device_cuda(int index) {
    return memlord_device_make(MEMLORD_DEVICE_CUDA, index);
}
/* The selector of every device. */
MEMLORD_I_INLINE memlord_device memlord_device_all(void) {
    return memlord_device_make(MEMLORD_ANY, MEMLORD_ANY);
}

/* -- types -- */

typedef struct memlord memlord; /* a ledger */

/* Where a ledger's own memory comes from. Set both functions or neither (then pages of the
   operating system, as memlord_os_allocator gives). `free` gets the size `alloc` was asked
   for. Called with no storage locked, from any thread. `alloc` answers NULL when there is
   none. */
typedef struct memlord_allocator {
    void *(*alloc)(void *user, size_t size);
    void (*free)(void *user, void *ptr, size_t size);
    void *user;
} memlord_allocator;

enum {
    MEMLORD_LOG_ERROR = 1, /* something was lost or refused */
    MEMLORD_LOG_WARNING,   /* the host did something odd */
    MEMLORD_LOG_INFO,      /* summaries, resets */
    MEMLORD_LOG_TRACE      /* a line for every call that allocates, frees, resizes or moves, also
                              of n blocks, and for every retired block; with MEMLORD_DEBUG=1 */
};

/* Where messages go. NULL is silence, or coloured stderr with MEMLORD_DEBUG=1. `text` is
   one line without its newline and lives for the call only. */
typedef struct memlord_logger {
    void (*fn)(void *user, int level, const char *text);
    void *user;
} memlord_logger;

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
    MEMLORD_FLAG_DEFER = 8,       /* collections and fences run in gc_poll, retire, alloc_retry
                                     and pollers alone: for hosts with an allocator lock */
    MEMLORD_FLAG_NO_THREADS = 16, /* no pollers */
    MEMLORD_FLAG_BACKTRACE = 32,  /* no effect yet */
    MEMLORD_FLAG_NO_ENV = 64      /* ignore the environment */
};

/* Everything at zero is the default. */
typedef struct memlord_desc {
    memlord_allocator allocator; /* the operating system's pages */
    memlord_logger logger;       /* silent */
    memlord_clock clock;         /* monotonic */
    uint32_t flags;              /* MEMLORD_FLAG_... */
    uint32_t poll_ms;            /* how often pollers sample, 200; 10 if less */
    uint32_t snapshot_ms;        /* memlord_snapshots_start from the start, so often; 0: not */
    size_t event_capacity;       /* memlord_events_start from the start, so many; 0: not */
    uint64_t counter_batch;      /* bytes a thread may hold back from the peak, 65536 */
    const char *output_dir;      /* where dated reports go: memlord_save_at_exit */
    const char *proc_root;       /* put before /proc and cgroup paths; for tests */
    const char *labels;          /* "host=a1,model=x": shown in JSON and HTML reports */
} memlord_desc;

/* A place in the host's source. Planted static by MEMLORD_SITE, so its address is its
   identity. The strings are copied when first seen and not read again. */
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

/* What a block is: every string is copied; all fields may be zero. */
typedef struct memlord_meta {
    const char *name;  /* "blk.0.attn_q.weight" */
    const char *dtype; /* "f16" */
    int64_t shape[8];
    uint32_t rank;     /* entries of shape in use, 0..8 */
    uint32_t flags;    /* the host's own bits, shown as a number */
    const char *tag;   /* retags the block, if set; "" is not */
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

typedef struct memlord_tag_stat {
    const char *tag;
    uint64_t allocated; /* bytes live now */
    uint64_t peak;      /* as memlord_peak, of this tag */
    uint64_t blocks;    /* live now */
    uint64_t expected;  /* memlord_expect; 0: nothing was promised */
    int64_t variance;   /* allocated - expected; 0 when nothing was promised */
} memlord_tag_stat;

/* A site on one device. `alloc_bytes` and `allocs` were allocated here, `free_bytes` and
   `frees` were freed here (by whomever allocated); `live_bytes` is what was allocated
   here and is not freed yet, wherever that will be. A realloc at another site than the
   block's is an alloc there of all its bytes, which are that site's from then on. */
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

/* Every statistic of a device: name, kind, name in PROMETHEUS, text. Kinds:
     LIVE   a level, now              PEAK  a high-water mark
     COUNT  grows; 0 at a reset       ODD   an anomaly or a drop: grows, 0 at a reset
   A wide selector adds them up. To add one: a line here, and who counts it. */
#define MEMLORD_I_STATS(X)                                                                    \
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
    X(implicit_frees, ODD, "implicit_frees_total", "allocs over a live storage")              \
    X(unknown_frees, ODD, "unknown_frees_total", "frees of a storage not live")               \
    X(freed_while_shared, ODD, "freed_while_shared_total", "frees of a storage with views")   \
    X(underflows, ODD, "underflows_total", "arena_sub below the balance")                     \
    X(fence_failures, ODD, "fence_failures_total", "fences that failed")                      \
    X(dropped_allocs, ODD, "dropped_allocs_total",                                            \
      "allocs there was no room for, in the map or among devices")                            \
    X(dropped_bytes, ODD, "dropped_bytes_total", "their bytes")                               \
    X(dropped_sites, ODD, "dropped_sites_total", "site or tag records without room")          \
    X(dropped_events, ODD, "dropped_events_total", "events the ring had no room for")

#define MEMLORD_STATS_VERSION 1
typedef struct memlord_stats {
    uint32_t size;    /* written by the library: sizeof(memlord_stats) */
    uint32_t version; /* written by the library: MEMLORD_STATS_VERSION */
#define MEMLORD_I_X(name, kind, family, text) uint64_t name;
    MEMLORD_I_STATS(MEMLORD_I_X)
#undef MEMLORD_I_X
} memlord_stats;

/* What realloc_begin hands to realloc_end. Its fields are the library's. */
typedef struct memlord_realloc_token {
    memlord_device device;
    uint32_t state;
    uint64_t storage;
    uint64_t word[3];
} memlord_realloc_token;

/* When a device has done what was asked of it: an event, a timeline's value. Both functions
   are called with no lock of ours held and may call the ledger. */
typedef struct memlord_fence {
    int (*done)(void *user);  /* 1 done, 0 not yet, < 0 failed; may not block */
    void *user;
    uint64_t queue;           /* fences of one queue (a stream) complete in order */
    void (*drop)(void *user); /* may be NULL */
} memlord_fence;

typedef int (*memlord_block_fn)(void *user, const memlord_block_info *info); /* != 0 stops */
typedef int (*memlord_write_fn)(void *user, const void *data, size_t size);  /* 0: written */

/* name, suffix of its files, what it is */
#define MEMLORD_I_FORMATS(X)                                                                  \
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
#define MEMLORD_I_X(name, suffix, text) MEMLORD_FORMAT_##name,
    MEMLORD_I_FORMATS(MEMLORD_I_X)
#undef MEMLORD_I_X
    MEMLORD_FORMAT_COUNT
} memlord_format;

/* The format a file's suffix names ("x.html", "y.trace.json"); TEXT if it names none. */
MEMLORD_API memlord_format memlord_format_for(const char *path)
    MEMLORD_I_OFF(MEMLORD_FORMAT_TEXT)

/* -- lifecycle -- */

/* Opens a ledger. `desc` NULL is the default configuration; copied, strings too.
   Errors: E_INVALID one of alloc and free without the other, `out` NULL, snapshot_ms of 1 to 9, or
   event_capacity over 2^26; E_NOMEM. *out is NULL then.
   Owns:   *out is yours until memlord_destroy; never destroying it is legal. */
MEMLORD_API memlord_result memlord_create(const memlord_desc *desc, memlord **out)
    MEMLORD_I_OFF_SET(if (out) *out = NULL, MEMLORD_OK)

/* Closes a ledger and returns its memory; logs what is still live by device and, where tags or
   sites are known, the ten largest groups of it by device, tag and site. NULL is fine.
   Threads: no call on it may be in flight or follow, on any thread. */
MEMLORD_API void memlord_destroy(memlord *lord) MEMLORD_I_OFF_VOID

/* Answers the process's own ledger, made on first use with memory straight from the
   operating system, so it works inside malloc and before main. Never destroyed.
   Errors: NULL, which is MemLord switched off, if not even that could be had. */
MEMLORD_API memlord *memlord_global(void) MEMLORD_I_OFF(NULL)

/* Fills an allocator that takes pages from the operating system and calls no malloc: for
   hosts that hook malloc itself. */
MEMLORD_API void memlord_os_allocator(memlord_allocator *out)
    MEMLORD_I_OFF_SET(if (out) memset(out, 0, sizeof *out), )

/* -- devices -- */

/* Reads "cuda:1", "CUDA1", "cuda" (any index), "cpu" (cpu:0; so with "pinned" and "mapped"), "all".
   Errors: E_INVALID, and *out is untouched. */
MEMLORD_API memlord_result memlord_device_parse(const char *text, memlord_device *out)
    MEMLORD_I_OFF_SET(if (out) *out = memlord_device_all(), MEMLORD_OK)

/* Writes a device's name, "cuda:1", "cpu", or a selector's, "cuda", "all". Follows
   snprintf: answers the length without the 0, writes at most `cap` bytes with it. */
MEMLORD_API size_t memlord_device_name(memlord_device device, char *buf, size_t cap)
    MEMLORD_I_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* Sets the host's own name for a device, shown beside ours in TEXT, JSON and HTML reports. NULL
   removes it.
   Errors: E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_device_label(memlord *lord, memlord_device device,
                                                const char *text) MEMLORD_I_OFF(MEMLORD_OK)

/* Lists every device seen, up to `cap`, and answers how many there are. `out` may be NULL
   when cap is 0. */
MEMLORD_API size_t memlord_devices(memlord *lord, memlord_device *out, size_t cap)
    MEMLORD_I_OFF(0)

/* -- track: storages --
   `bytes` is at most 2^48. `site` may be NULL. Common errors: E_INVALID a storage of 0 or
   UINT64_MAX, or too many bytes; E_DEVICE; E_NOMEM the map could not grow (counted as
   dropped_allocs, and as many frees of unknown storages are then taken for theirs). */

/* Records a storage that was just created. A live one of the same key is stale: it is
   closed as freed and counted in implicit_frees. */
MEMLORD_API memlord_result memlord_alloc(memlord *lord, memlord_device device,
                                         uint64_t storage, uint64_t bytes,
                                         const memlord_site *site) MEMLORD_I_OFF(MEMLORD_OK)

/* Records the end of a storage, whatever its references, about to be returned. Storage 0
   is a no-op. The device's index is ignored.
   Errors: E_UNKNOWN not live: totals unchanged, counted in unknown_frees. */
MEMLORD_API memlord_result memlord_free(memlord *lord, memlord_device device,
                                        uint64_t storage, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Records a realloc whose old address cannot have been reused meanwhile (else use begin
   and end). The block keeps its tag, description, references, recorded uses and mark.
   old_storage 0 is an alloc; an unknown old one counts in unknown_frees and the new one is
   opened. */
MEMLORD_API memlord_result memlord_realloc(memlord *lord, memlord_device device,
                                           uint64_t old_storage, uint64_t new_storage,
                                           uint64_t bytes, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Takes old_storage off the map, its bytes still counted, before the real realloc: once
   that returns, another thread may own the old address.
   Errors: E_UNKNOWN not live, counted; the token is good all the same, and end then opens
   the new storage. */
MEMLORD_API memlord_result memlord_realloc_begin(memlord *lord, memlord_device device,
                                                 uint64_t old_storage,
                                                 memlord_realloc_token *token)
    MEMLORD_I_OFF_SET(if (token) memset(token, 0, sizeof *token), MEMLORD_OK)

/* Records what the real realloc did. new_storage 0 says it failed: the old entry comes
   back as it was. Every begin needs one end, of the token itself: a copy is not known from it.
   Errors: E_STATE the token was used already, or is another ledger's; E_NOMEM the block is
   counted as dropped. */
MEMLORD_API memlord_result memlord_realloc_end(memlord *lord, memlord_realloc_token *token,
                                               uint64_t new_storage, uint64_t bytes,
                                               const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Begin and end a free whose real call may fail: begin takes the storage off the map, its bytes
   still counted, before that call; end credits it, or, if the call `failed`, brings it back as it
   was. A storage with recorded uses is freed by begin, pending until they are done, and comes back
   without them, its views and its description. Storage 0 is a no-op. Every begin that answered
   MEMLORD_OK needs one end. Errors: begin: E_UNKNOWN not live, counted; E_STATE it pends already,
   nothing to do; end: E_STATE the token was used already; E_NOMEM as realloc_end. */
MEMLORD_API memlord_result memlord_free_begin(memlord *lord, memlord_device device,
                                              uint64_t storage, memlord_realloc_token *token,
                                              const memlord_site *site)
    MEMLORD_I_OFF_SET(if (token) memset(token, 0, sizeof *token), MEMLORD_OK)
MEMLORD_API memlord_result memlord_free_end(memlord *lord, memlord_realloc_token *token,
                                            int failed, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Record n at once: all arguments are checked and room is reserved first, so an error has
   recorded nothing; then they are applied one by one.
   Until then a block that is new has 0 bytes, which other threads may see.
   Errors: also E_INVALID `blocks` NULL with n > 0, or sizes whose sum overflows. free_n
   and release_n apply every block and answer E_UNKNOWN if some were not live. */
MEMLORD_API memlord_result memlord_alloc_n(memlord *lord, const memlord_block *blocks,
                                           size_t n, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_free_n(memlord *lord, const memlord_block *blocks,
                                          size_t n, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Moves a block: the source ends, then the destination begins with `bytes`. Tag, description,
   references and mark go along. Counted in moves of the destination. With a fence (may be
   NULL), or recorded uses, the source is pending until they are done, as by
   memlord_free_deferred.
   Errors: E_UNKNOWN the source is not live, counted; E_INVALID a fence without `done`. */
MEMLORD_API memlord_result memlord_move(memlord *lord, memlord_device from,
                                        uint64_t from_storage, memlord_device to,
                                        uint64_t to_storage, uint64_t bytes,
                                        const memlord_fence *fence, const memlord_site *site)
    MEMLORD_I_OFF_SET(if (fence && fence->drop) fence->drop(fence->user), MEMLORD_OK)

/* -- track: views -- */

/* Says "I hold this storage": opens it with one reference, or adds one to a live one and
   counts no bytes (`bytes` is then ignored). Tied weights and views dedup themselves. */
MEMLORD_API memlord_result memlord_track(memlord *lord, memlord_device device,
                                         uint64_t storage, uint64_t bytes,
                                         const memlord_site *site) MEMLORD_I_OFF(MEMLORD_OK)

/* Adds a reference to a live storage. Errors: E_UNKNOWN not live. */
MEMLORD_API memlord_result memlord_retain(memlord *lord, memlord_device device,
                                          uint64_t storage, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Drops a reference; the last one ends the storage. Storage 0 is a no-op.
   Errors: E_UNKNOWN not live, counted in unknown_frees. */
MEMLORD_API memlord_result memlord_release(memlord *lord, memlord_device device,
                                           uint64_t storage, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

/* As alloc_n and free_n. */
MEMLORD_API memlord_result memlord_track_n(memlord *lord, const memlord_block *blocks,
                                           size_t n, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_release_n(memlord *lord, const memlord_block *blocks,
                                             size_t n, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

/* -- track: bytes without identity -- */

/* Adds to the arena balance of a device. Errors: E_INVALID over 2^48, or the balance would
   overflow. Cost: one shared counter per device. */
MEMLORD_API memlord_result memlord_arena_add(memlord *lord, memlord_device device,
                                             uint64_t bytes, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Takes from it. More than there is takes it to 0 and counts in underflows, MEMLORD_OK:
   storages are never touched. Errors: E_INVALID over 2^48 in one call. */
MEMLORD_API memlord_result memlord_arena_sub(memlord *lord, memlord_device device,
                                             uint64_t bytes, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

/* -- deferred frees: memory the device still uses --
   A block whose free has to wait is pending: still in `allocated`, dead to free, release,
   retain and use. Fences are polled in retire, gc_poll and before an OOM retry; those of one
   device and queue in the order of the frees, so that a slow queue holds up none but itself. A
   block that was used earlier than one before it in its queue, and freed later, is credited
   when both are done. A poll and a deferred free look at every queue of the device type. An
   alloc or a free of a device type polls what is pending on that type: one queue a call, up to
   four fences of it. After a "not yet" such calls leave that queue alone, twice as long each
   time, up to 256 calls or 10 ms (one call in eight reads the clock). The poller of a device
   polls, too. Calls on other device types cost what they cost with nothing pending. A failed
   fence counts as done, and in fence_failures. A host that orders its streams itself (one
   waits for the other's event before it goes on) frees plainly: there is nothing to wait for
   then. */

/* Frees a storage once a fence is done. `done` is called once at once, on this thread (a
   fence may record its event there; not with MEMLORD_FLAG_DEFER), and `drop`, if set, exactly
   once when MemLord will call `done` no more. An alloc of a pending storage ends it first.
   Errors: E_INVALID no `done`; E_UNKNOWN not live, counted; E_NOMEM. After an error the fence
   was not taken: neither function will be called. */
MEMLORD_API memlord_result memlord_free_deferred(memlord *lord, memlord_device device,
                                                 uint64_t storage, memlord_fence fence,
                                                 const memlord_site *site)
    MEMLORD_I_OFF_SET(if (fence.drop) fence.drop(fence.user), MEMLORD_OK)

/* Records that a live storage is used by work the fence stands for (record_stream). A plain
   free or release of it, later, is deferred by itself until all its uses are done. A later
   use on the same queue takes the place of an earlier one.
   Errors: as free_deferred, but one that is not live is no free, and not counted. */
MEMLORD_API memlord_result memlord_block_use(memlord *lord, memlord_device device,
                                             uint64_t storage, memlord_fence fence)
    MEMLORD_I_OFF_SET(if (fence.drop) fence.drop(fence.user), MEMLORD_OK)

/* Credits every deferred free whose fences are done; answers the bytes. Cost: a few ns with
   nothing pending; else one `done` for each queue, each that is done, and each that was not asked
   at its free (MEMLORD_FLAG_DEFER). */
MEMLORD_API uint64_t memlord_retire(memlord *lord, memlord_device sel) MEMLORD_I_OFF(0)

/* -- sites -- */

/* Switches the counting per site on or off. On from now: no history is invented; off keeps
   what was counted. */
MEMLORD_API memlord_result memlord_sites_enable(memlord *lord, int on)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Turns a return address into a site, for allocators and interposers whose callers plant
   none. Its strings are looked up when it is first shown (a report, sites_top, a block):
   file is the module, function the nearest symbol, line 0. On Windows function is empty.
   Never NULL; lives until destroy. Cost: a few ns once the address is known. */
MEMLORD_API const memlord_site *memlord_site_at(memlord *lord, void *return_address)
    MEMLORD_I_OFF_SET(MEMLORD_I_NO_SITE, &none)

/* Answers the return address a site was made from; NULL for a planted one. */
MEMLORD_API void *memlord_site_address(memlord *lord, const memlord_site *site)
    MEMLORD_I_OFF(NULL)

/* Gives a site better strings for the reports to come, say from debug information. What
   earlier calls handed out stays valid. NULL and 0 keep what was there.
   Errors: E_UNKNOWN not seen by this ledger; E_NOMEM. */
MEMLORD_API memlord_result memlord_site_rename(memlord *lord, const memlord_site *site,
                                               const char *file, const char *function,
                                               int line) MEMLORD_I_OFF(MEMLORD_OK)

/* Lists the largest sites by `order`, up to `cap`, and answers how many were written. A
   site used on two devices is two rows. Sites whose number is 0 are left out.
   Cost: walks the sites. */
MEMLORD_API size_t memlord_sites_top(memlord *lord, memlord_device sel,
                                     memlord_site_order order, memlord_site_stat *out,
                                     size_t cap) MEMLORD_I_OFF(0)

/* The site with the most alloc_bytes, or free_bytes. 1: found. */
MEMLORD_API int memlord_site_top_alloc(memlord *lord, memlord_device sel,
                                       memlord_site_stat *out) MEMLORD_I_OFF(0)
MEMLORD_API int memlord_site_top_free(memlord *lord, memlord_device sel,
                                      memlord_site_stat *out) MEMLORD_I_OFF(0)

/* -- read -- */

/* Bytes, exact whenever no call is in flight. Cost: a few ns a thread and device. */
MEMLORD_API uint64_t memlord_allocated(memlord *lord, memlord_device sel) MEMLORD_I_OFF(0)
MEMLORD_API uint64_t memlord_freed(memlord *lord, memlord_device sel) MEMLORD_I_OFF(0)
MEMLORD_API uint64_t memlord_pending(memlord *lord, memlord_device sel) MEMLORD_I_OFF(0)
/* For a wide selector the sum of the devices' peaks: an upper bound of the joint one. */
MEMLORD_API uint64_t memlord_peak(memlord *lord, memlord_device sel) MEMLORD_I_OFF(0)

/* Fills every statistic. A selector that matches no device fills zeros.
   Errors: E_INVALID `out` NULL; E_DEVICE not a selector. */
MEMLORD_API memlord_result memlord_stats_get(memlord *lord, memlord_device sel,
                                             memlord_stats *out)
    MEMLORD_I_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Starts an epoch: freed, totals, counts, anomalies and those of sites to 0, peaks to what
   is live. Live storages stay live. */
MEMLORD_API void memlord_reset(memlord *lord) MEMLORD_I_OFF_VOID
/* Sets the peak to what is live. */
MEMLORD_API void memlord_peak_reset(memlord *lord, memlord_device sel) MEMLORD_I_OFF_VOID

/* Writes bytes for people: "0 B", "1 KiB", "1.5 KiB", rounded to two decimals at most, without
   zeros at the end. The same in every locale. 32 bytes always suffice. Answers buf. */
MEMLORD_API char *memlord_format_bytes(uint64_t bytes, char *buf, size_t cap)
    MEMLORD_I_OFF_SET(if (buf && cap) buf[0] = 0, buf)
/* Reads "512", "1.5 GiB" (powers of 1024), "2GB" (powers of 1000); any case; B alone and
   the unit's B may be left out ("2G" = 2GB). Errors: E_INVALID, and *out is untouched. */
MEMLORD_API memlord_result memlord_parse_bytes(const char *text, uint64_t *out)
    MEMLORD_I_OFF_SET(if (out) *out = 0, MEMLORD_OK)

/* Writes one line for a server's log: every device with live and peak bytes. Follows
   snprintf; allocates nothing. */
MEMLORD_API size_t memlord_summary(memlord *lord, char *buf, size_t cap)
    MEMLORD_I_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* -- blocks and leaks -- */

/* Calls fn for every live block of at least min_bytes, copied a shard at a time: blocks
   that come or go meanwhile may or may not be seen. fn may call the ledger; non-zero stops
   (and the answer is MEMLORD_OK). Errors: E_NOMEM for the copy. Cost: walks the map. */
MEMLORD_API memlord_result memlord_blocks_each(memlord *lord, memlord_device sel,
                                               uint64_t min_bytes, memlord_block_fn fn,
                                               void *user) MEMLORD_I_OFF(MEMLORD_OK)

/* Lists the k largest live blocks, largest first; answers how many were written. Allocates
   nothing. Cost: walks the map. */
MEMLORD_API size_t memlord_blocks_top(memlord *lord, memlord_device sel,
                                      memlord_block_info *out, size_t k) MEMLORD_I_OFF(0)

/* Finds a live storage. Errors: E_UNKNOWN. Cost: as a free. */
MEMLORD_API memlord_result memlord_block_find(memlord *lord, memlord_device device,
                                              uint64_t storage, memlord_block_info *out)
    MEMLORD_I_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Finds the live storage that contains an address. Errors: E_UNKNOWN. Cost: walks the map. */
MEMLORD_API memlord_result memlord_block_containing(memlord *lord, memlord_device device,
                                                    uint64_t address,
                                                    memlord_block_info *out)
    MEMLORD_I_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Says what a live block is; replaces what was said before.
   Errors: E_INVALID rank over 8 or meta NULL; E_UNKNOWN; E_NOMEM. */
MEMLORD_API memlord_result memlord_block_describe(memlord *lord, memlord_device device,
                                                  uint64_t storage, const memlord_meta *meta)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Moves a live block, with its bytes, to another tag; NULL or "" is none.
   Errors: E_UNKNOWN; E_NOMEM. */
MEMLORD_API memlord_result memlord_block_retag(memlord *lord, memlord_device device,
                                               uint64_t storage, const char *tag)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Begins a new birth epoch and answers it: blocks allocated from now on carry it. At most
   2^26 - 1 marks; then the last one stays. */
MEMLORD_API uint64_t memlord_mark(memlord *lord) MEMLORD_I_OFF(0)

/* Calls fn (may be NULL) for every live block born under `since_mark` or later, answers how
   many it met until fn answered non-zero. 0 means all. Cost: walks the map. */
MEMLORD_API size_t memlord_leaks(memlord *lord, uint64_t since_mark, memlord_block_fn fn,
                                 void *user) MEMLORD_I_OFF(0)

/* -- parts: what is inside a storage -- */

/* Names a piece of a live storage: a tensor in a weights buffer, a slot of a KV cache. Parts
   subdivide, they never add: no total changes. They go when removed, or with their storage.
   Reports show them with it, but PROMETHEUS, which has no storages, and HEAPTRACK, where each
   would be an allocation more.
   Errors: E_INVALID bytes 0, not inside the storage, or rank over 8; E_STATE it overlaps another
   part; E_UNKNOWN no such storage; E_NOMEM. Cost: a search, and 8 bytes moved for each part
   behind it: under a us by ascending offset, 10 to 20 us at random among 100,000. */
MEMLORD_API memlord_result memlord_part_add(memlord *lord, memlord_device device,
                                            uint64_t storage, uint64_t offset, uint64_t bytes,
                                            const memlord_meta *meta) MEMLORD_I_OFF(MEMLORD_OK)
/* Removes the part that begins there. Errors: E_UNKNOWN. Cost: as of an addition there. */
MEMLORD_API memlord_result memlord_part_remove(memlord *lord, memlord_device device,
                                               uint64_t storage, uint64_t offset)
    MEMLORD_I_OFF(MEMLORD_OK)

typedef struct memlord_part_info {
    uint64_t offset, bytes;
    memlord_meta meta; /* strings live until destroy */
} memlord_part_info;
typedef int (*memlord_part_fn)(void *user, const memlord_part_info *part); /* != 0 stops */
/* Calls fn for the parts of a storage, by offset, and answers how many it was called for.
   Copied some at a time: fn may call the ledger. */
MEMLORD_API size_t memlord_parts_each(memlord *lord, memlord_device device, uint64_t storage,
                                      memlord_part_fn fn, void *user) MEMLORD_I_OFF(0)

/* -- tags, plan against actual -- */

/* Tags what this thread allocates until the matching end. They nest; the innermost wins. A tag
   takes a record on each device it is used on, and there are 65,535: past them blocks are
   recorded without their tag, counted in dropped_sites.
   Errors: E_INVALID NULL or ""; E_STATE deeper than 64, or an end without a begin;
   E_NOMEM, also past MEMLORD_MAX_STRINGS, counted in dropped_sites. Cost: tens of ns. */
MEMLORD_API memlord_result memlord_tag_begin(memlord *lord, const char *tag)
    MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_tag_end(memlord *lord) MEMLORD_I_OFF(MEMLORD_OK)

/* Reads a tag on the devices of a selector. NULL reads what carries none (whose peak is not kept:
   0). Errors: E_UNKNOWN nothing was ever allocated or promised under it on any device, *out zero;
   E_INVALID `out` NULL; E_DEVICE not a selector. */
MEMLORD_API memlord_result memlord_tag_get(memlord *lord, memlord_device sel,
                                           const char *tag, memlord_tag_stat *out)
    MEMLORD_I_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Promises how many bytes a tag will hold on a device, for reports to compare.
   Errors: E_INVALID; E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_expect(memlord *lord, memlord_device device,
                                          const char *tag, uint64_t bytes)
    MEMLORD_I_OFF(MEMLORD_OK)

/* -- capacity --
   How large a device is and how full, asked of a source per device type: the cpu's is built
   in (the machine, or the container's memory limit with the page cache left out), others are
   the host's. On Linux, from 3.14 on, it reads /proc/meminfo and the limits of this process's
   cgroup and those above it, below /sys/fs/cgroup (v2) or /sys/fs/cgroup/memory (v1); cgroups
   mounted elsewhere read as the machine. Capacity, limit and headroom belong to *physical*
   devices: cpu, pinned and mapped are one. A sample that failed, or makes no sense (a total of
   0, used over total), is unknown, never 0. */

typedef struct memlord_capacity {
    uint64_t total, used; /* bytes, of everybody */
    uint64_t process;     /* this process's own share of used; 0: the source cannot tell */
    uint64_t age_ns;      /* how old the sample is; a source leaves it alone */
    int known;            /* 0: the other fields mean nothing; a source leaves it alone */
} memlord_capacity;

/* Fills total, used and process. 0: known. Runs on the poller or on who asks for a sample,
   one at a time for a device; may block. */
typedef int (*memlord_capacity_fn)(void *user, memlord_device device, memlord_capacity *out);

/* Sets the source of a device type; NULL goes back to what is built in. What the old source
   said is forgotten, and waits for a call of it in progress on another thread.
   Errors: E_DEVICE. */
MEMLORD_API memlord_result memlord_capacity_source(memlord *lord, int type,
                                                   memlord_capacity_fn fn, void *user)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Reads the latest sample; asks nobody. Never sampled is known = 0, MEMLORD_OK.
   Errors: E_INVALID `out` NULL; E_DEVICE. Cost: a lock of one device and the clock. */
MEMLORD_API memlord_result memlord_capacity_get(memlord *lord, memlord_device device,
                                                memlord_capacity *out)
    MEMLORD_I_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Asks the source now. Errors: E_UNSUPPORTED the type has none; E_UNKNOWN it failed, or made
   no sense; E_STATE one is being taken; E_DEVICE; E_NOMEM. Cost: the source's. */
MEMLORD_API memlord_result memlord_capacity_sample(memlord *lord, memlord_device device)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Says that a device's bytes are in another's memory (an integrated GPU in the cpu's): both
   then have one capacity, limit and headroom. Itself undoes it.
   Errors: E_DEVICE; E_STATE `physical` is shared itself, others share `device`, or something
   is reserved where it is; E_NOMEM. */
MEMLORD_API memlord_result memlord_device_share(memlord *lord, memlord_device device,
                                                memlord_device physical)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Samples every device that has a source each `interval_ms` (0: 200, at least 10), on a
   thread for each. Happens by itself, from the first call that touches a device whose type
   has a source, a collection callback and a strategy. Stop joins them, and none starts by
   itself until the next start. MEMLORD_POLL_INTERVAL_MS overrides the interval.
   Errors: E_INVALID an interval of 1 to 9; E_UNSUPPORTED no threads in this build or with
   MEMLORD_FLAG_NO_THREADS; E_NOMEM the system gives no thread now: a later start tries again;
   stop: E_STATE on a thread of MemLord's own.
   Until a poller runs memlord_gc_poll samples what has grown old. */
MEMLORD_API memlord_result memlord_poller_start(memlord *lord, uint32_t interval_ms)
    MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_poller_stop(memlord *lord) MEMLORD_I_OFF(MEMLORD_OK)

/* -- limits, reservations: admission --
   A limit refuses reserve and alloc_retry, never memlord_alloc, which records what is true.
   Live and reserved bytes together never pass it through those two. */

/* Sets the limit of a physical device; 0 is none. Below what is live it refuses until enough
   is freed. Errors: E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_limit_set(memlord *lord, memlord_device device,
                                             uint64_t bytes) MEMLORD_I_OFF(MEMLORD_OK)

/* Sets it to a fraction of the capacity, and follows that; samples it if it is not known.
   Errors: E_INVALID not 0 < fraction <= 1; E_UNKNOWN the capacity is not known. */
MEMLORD_API memlord_result memlord_limit_fraction(memlord *lord, memlord_device device,
                                                  double fraction) MEMLORD_I_OFF(MEMLORD_OK)

/* Bytes left under the limit and in the latest sample, whichever is less, reservations taken
   off; negative: that much too many. INT64_MAX: neither is known. */
MEMLORD_API int64_t memlord_headroom(memlord *lord, memlord_device device)
    MEMLORD_I_OFF(INT64_MAX)

/* 1: so many bytes would fit; 0: they would not; -1: neither limit nor capacity is known. */
MEMLORD_API int memlord_would_fit(memlord *lord, memlord_device device, uint64_t bytes)
    MEMLORD_I_OFF(-1)

/* The same for a whole plan, each block on its device (`storage` is ignored). *short_by, if
   not NULL, is how many bytes the worst device lacks; negative: all have that much to spare
   or more; 0 with the answer -1, which a plan with something that is no device has as well. */
MEMLORD_API int memlord_plan_fit(memlord *lord, const memlord_block *blocks, size_t n,
                                 int64_t *short_by)
    MEMLORD_I_OFF_SET(if (short_by) *short_by = 0, -1)

typedef uint64_t memlord_ticket;  /* a reservation; 0 is none */
typedef uint64_t memlord_account; /* 0 is none */

/* Holds bytes of a device's limit, and of its headroom, for an allocation to come: reserve,
   allocate, memlord_alloc, commit. What this thread records on the device meanwhile comes off
   the reservation, so that nothing counts twice; commit and cancel give back the rest.
   Without a limit everything is granted. One thread may hold 8 such tickets open at a time;
   more count twice until their commit.
   Errors: E_LIMIT (logged with memlord_explain), also over 2^62 in all; E_INVALID over 2^48 or
   `out` NULL; E_DEVICE; E_NOMEM; E_STATE out of the ledger's own allocator; commit and cancel:
   E_UNKNOWN not an open ticket. */
MEMLORD_API memlord_result memlord_reserve(memlord *lord, memlord_device device,
                                           uint64_t bytes, memlord_ticket *out)
    MEMLORD_I_OFF_SET(if (out) *out = 0, MEMLORD_OK)
MEMLORD_API memlord_result memlord_reserve_commit(memlord *lord, memlord_ticket ticket)
    MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_reserve_cancel(memlord *lord, memlord_ticket ticket)
    MEMLORD_I_OFF(MEMLORD_OK)

/* -- accounts: who is charged (a request, a user) for bytes that are counted elsewhere -- */

typedef struct memlord_account_stat {
    char name[48]; /* cut to fit */
    memlord_device device;
    uint64_t bytes, peak;
    uint64_t limit; /* 0: none */
    uint64_t refused; /* charges over the limit */
} memlord_account_stat;

/* Opens an account; adds nothing to the device. Ids of closed accounts are used again, under
   another number. `name` may be NULL. Errors: E_INVALID; E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_account_open(memlord *lord, memlord_device device,
                                                const char *name, uint64_t limit,
                                                memlord_account *out)
    MEMLORD_I_OFF_SET(if (out) *out = 0, MEMLORD_OK)

/* Adds to it, or takes from it, from any thread. Errors: E_LIMIT over its limit (or 2^48);
   E_INVALID below 0; E_UNKNOWN closed. Nothing has changed then. Cost: one atomic. */
MEMLORD_API memlord_result memlord_account_charge(memlord *lord, memlord_account account,
                                                  int64_t bytes) MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_account_get(memlord *lord, memlord_account account,
                                               memlord_account_stat *out)
    MEMLORD_I_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
/* Closes it, whatever it holds. */
MEMLORD_API memlord_result memlord_account_close(memlord *lord, memlord_account account)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Writes who holds a device and how many bytes short a request of `wanted` is, in one line:
   limit, capacity, reservations, the largest tags and sites. Follows snprintf; allocates
   nothing. Logged by itself on every refused reservation and final out-of-memory.
   Cost: walks tags and sites. */
MEMLORD_API size_t memlord_explain(memlord *lord, memlord_device device, uint64_t wanted,
                                   char *buf, size_t cap)
    MEMLORD_I_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* -- bands: when a collection pays --
   A strategy is a list of bands over the used % of the device. The first with lo <= used% <
   hi decides: a collection is due when its metric reaches its threshold, the larger (or, with
   COMBINE_MIN, the smaller) of `bytes` and `percent` of the capacity (of the limit where one
   is set and smaller). 0 leaves a part out. While the capacity is unknown only a band that
   covers 0 to 100 counts, and percent only where a limit stands in for it. */

typedef enum memlord_metric {
    MEMLORD_METRIC_ALLOCATED, /* live bytes of the device */
    MEMLORD_METRIC_FREED,     /* bytes freed there since the last collection */
    MEMLORD_METRIC_MAX        /* the larger of the two */
} memlord_metric;
typedef enum memlord_combine { MEMLORD_COMBINE_MAX, MEMLORD_COMBINE_MIN } memlord_combine;

typedef struct memlord_band {
    double lo, hi; /* used %, half open; 101 is above everything */
    memlord_metric metric;
    uint64_t bytes;
    double percent;
    memlord_combine combine;
} memlord_band;

/* Replaces the strategy, for all devices; n = 0 switches bands off. Copied. Overlaps, gaps and
   an uncovered 100 % are logged as warnings.
   Errors: E_INVALID a band is bad (logged, naming it); E_NOMEM. The old one stays. */
MEMLORD_API memlord_result memlord_strategy_set(memlord *lord, const memlord_band *bands,
                                                size_t n) MEMLORD_I_OFF(MEMLORD_OK)
/* Looks for bands with lo >= hi, NaN, negative numbers, no threshold or an unknown metric.
   Errors: E_INVALID, and *bad, if not NULL, is the index of the first. */
MEMLORD_API memlord_result memlord_strategy_check(const memlord_band *bands, size_t n,
                                                  size_t *bad)
    MEMLORD_I_OFF_SET(if (bad) *bad = 0, MEMLORD_OK)
/* What is in force, for the types with a callback that is not a quiet one, unless
   MEMLORD_FLAG_NO_STRATEGY or memlord_strategy_set says otherwise:
   {0,50: max, 50 %}, {50,75: max, 33 %}, {75,101: freed, 10 %}. */
MEMLORD_API const memlord_band *memlord_strategy_default(size_t *n)
    MEMLORD_I_OFF_SET(if (n) *n = 0, NULL)

/* -- collection -- */

/* name, text */
#define MEMLORD_I_REASONS(X)                                                                  \
    X(BAND, "band")                                                                           \
    X(OOM, "out of memory")                                                                   \
    X(LIMIT, "limit")                                                                         \
    X(NEIGHBOUR, "neighbour")                                                                 \
    X(FRAGMENTATION, "fragmentation")                                                         \
    X(HOST, "host")
enum {
#define MEMLORD_I_X(name, text) MEMLORD_REASON_##name,
    MEMLORD_I_REASONS(MEMLORD_I_X)
#undef MEMLORD_I_X
    MEMLORD_REASON_COUNT
};

typedef struct memlord_gc_event {
    memlord_device device;
    int reason;              /* MEMLORD_REASON_... */
    double used_percent;     /* NaN: unknown */
    size_t band;             /* which one; SIZE_MAX: none has fired, as in memlord_gc_run */
    memlord_metric metric;
    uint64_t value, threshold; /* of the metric; without a band live bytes, and 0 */
    uint64_t needed;         /* bytes somebody waits for; 0: no particular number, as of a band */
    uint64_t device_runs, total_runs; /* this one included, failed ones too */
} memlord_gc_event;

typedef struct memlord_gc_result {
    int ran;            /* 0: could not; nothing is reset, counted in gc_failed */
    int family;         /* freed starts over for every device of the type */
    uint64_t reclaimed; /* bytes given back, as far as known */
} memlord_gc_result;

/* Gives memory back: drops a cache, trims a pool. Runs on the thread whose call crossed the
   threshold, inside that call, under whatever locks the host holds there, but none of ours (see
   MEMLORD_FLAG_DEFER). May call anything but memlord_destroy. The block being freed by that
   call is not yet returned. At most one run at a time for a device; others do not wait. */
typedef memlord_gc_result (*memlord_gc_fn)(void *user, memlord *lord,
                                           const memlord_gc_event *event);

/* Adds a callback for a device type; they run in the order they came and their results add
   up. Remove takes off the first that is the same and waits for runs of it on other threads;
   a callback may remove itself. Errors: E_INVALID fn NULL; E_DEVICE; E_NOMEM; E_UNKNOWN. */
MEMLORD_API memlord_result memlord_gc_callback(memlord *lord, int type, memlord_gc_fn fn,
                                               void *user) MEMLORD_I_OFF(MEMLORD_OK)
/* Adds one that the default strategy does not run, nor comes into force by: bands ask it only once
   memlord_strategy_set has set some. All other reasons ask it as any. For a layer that the host
   adds for something else. */
MEMLORD_API memlord_result memlord_gc_callback_quiet(memlord *lord, int type, memlord_gc_fn fn,
                                                     void *user) MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_gc_callback_remove(memlord *lord, int type,
                                                      memlord_gc_fn fn, void *user)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Collects now, whatever the bands say. *reclaimed, if not NULL, is what it gave back.
   Errors: E_INVALID the reason; E_DEVICE; E_UNKNOWN no callback; E_STATE one is running, or
   none of them could. */
MEMLORD_API memlord_result memlord_gc_run(memlord *lord, memlord_device device, int reason,
                                          uint64_t *reclaimed)
    MEMLORD_I_OFF_SET(if (reclaimed) *reclaimed = 0, MEMLORD_OK)

/* Retires deferred frees and runs what is due: the safe point under MEMLORD_FLAG_DEFER. Without
   pollers it first samples what is older than their interval. Errors: E_DEVICE. */
MEMLORD_API memlord_result memlord_gc_poll(memlord *lord, memlord_device sel)
    MEMLORD_I_OFF(MEMLORD_OK)

/* -- out of memory -- */

typedef struct memlord_retry {
    uint32_t max_retries;         /* after the first attempt */
    uint32_t initial_ms, max_ms;  /* the first pause; the longest, not less than the first */
    double multiplier;            /* at least 1: a policy of zeros is refused */
    void (*sleep_ms)(void *user, uint32_t ms); /* NULL: waits, and wakes when enough is freed */
    void *user;
} memlord_retry;

/* The pause after attempt 0, 1, ...: initial x multiplier^attempt in whole ms, at most max_ms.
   NULL is the default policy: 5, 50 ms, x 1.5, 2000 ms. */
MEMLORD_API uint32_t memlord_retry_backoff(const memlord_retry *policy, uint32_t attempt)
    MEMLORD_I_OFF(0)
/* Errors: E_INVALID max_ms < initial_ms, or a multiplier that is not finite or below 1. */
MEMLORD_API memlord_result memlord_retry_check(const memlord_retry *policy)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Makes the real allocation. 0: done, *storage set; > 0: no memory, try again; < 0: give up. */
typedef int (*memlord_try_fn)(void *user, uint64_t bytes, uint64_t *storage);

/* Allocates, through out of memory: attempt, retire, collect (REASON_OOM, `needed` set), back
   off, again. Records the storage itself; fn must not. Over the limit it retires and collects
   once (REASON_LIMIT) and calls fn only if that made room. A NULL policy is MEMLORD_RETRY's or
   the default. The last failure is logged with memlord_explain.
   Errors: E_INVALID fn or storage NULL, over 2^48, or a policy memlord_retry_check refuses;
   E_DEVICE; E_LIMIT; E_OOM, also where fn gave up; E_NOMEM the ledger has no room for the request's
   reservation. *storage is 0 then. */
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

/* -- pools the host runs itself -- */

/* Says how much a pool holds of a device, and the largest free piece of it (UINT64_MAX: not
   known). Errors: E_DEVICE; E_NOMEM; E_INVALID over 2^62, reserved_add also below 0. */
MEMLORD_API memlord_result memlord_reserved_set(memlord *lord, memlord_device device,
                                                uint64_t reserved, uint64_t largest_free)
    MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_reserved_add(memlord *lord, memlord_device device,
                                                int64_t delta) MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_cache_hit(memlord *lord, memlord_device device)
    MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_cache_miss(memlord *lord, memlord_device device)
    MEMLORD_I_OFF(MEMLORD_OK)

/* (reserved - allocated) / reserved, at least 0; 0 when nothing is reserved. */
MEMLORD_API double memlord_cached_ratio(const memlord_stats *stats) MEMLORD_I_OFF(0)
/* 1 - largest_free / (reserved - allocated), 0 to 1; 0 when nothing is free; NaN when the
   largest free piece is not known. */
MEMLORD_API double memlord_fragmentation(const memlord_stats *stats) MEMLORD_I_OFF(0)

enum {
    MEMLORD_PRESSURE_UNKNOWN,  /* neither capacity nor limit is known */
    MEMLORD_PRESSURE_NORMAL,
    MEMLORD_PRESSURE_WARNING,  /* from 80 % of the capacity or the limit */
    MEMLORD_PRESSURE_CRITICAL, /* from 95 % */
    MEMLORD_PRESSURE_EMERGENCY /* the last memlord_alloc_retry found no memory */
};
MEMLORD_API int memlord_pressure_level(memlord *lord, memlord_device device)
    MEMLORD_I_OFF(MEMLORD_PRESSURE_UNKNOWN)

/* -- scopes: what a phase of the program cost --
   A scope is a stretch of a thread's work with a name: a step, a layer, a request. Scopes nest,
   and are told apart by their path, "decode/attention". A scope's delta is what its thread
   allocated meanwhile less what it freed, inner scopes included; it may be negative. Blocks
   remember the scope they were allocated in. */

/* A scope's name and place; MEMLORD_SCOPE plants one. Its address is its identity, its strings
   are copied when first seen. */
typedef struct memlord_scope_site {
    const char *name;
    memlord_site site;
} memlord_scope_site;

/* Begins a scope on this thread; they nest up to 64 deep. Names are cut to 200 bytes.
   Errors: E_INVALID NULL or ""; E_STATE too deep; E_NOMEM also over MEMLORD_MAX_SCOPES paths,
   counted. Cost: tens of ns, and one or two a device and thread. */
MEMLORD_API memlord_result memlord_scope_begin(memlord *lord, const char *name)
    MEMLORD_I_OFF(MEMLORD_OK)
/* The same for a place that lasts: nothing is compared. Errors: also E_INVALID `place` NULL. */
MEMLORD_API memlord_result memlord_scope_enter(memlord *lord, const memlord_scope_site *place)
    MEMLORD_I_OFF(MEMLORD_OK)
/* Ends the innermost scope of this thread. A thread that exits ends all of its own.
   Errors: E_STATE none was begun, or it was adopted (see memlord_scope_return). */
MEMLORD_API memlord_result memlord_scope_end(memlord *lord) MEMLORD_I_OFF(MEMLORD_OK)

/* Notes what the innermost scope works on, "q[1,32,128] k[1,8,128]", shown with this
   invocation. NULL forgets it. Kept until destroy, each text once, and with the names of
   checkpoints in half of MEMLORD_MAX_STRINGS. Errors: E_STATE no scope; E_NOMEM. */
MEMLORD_API memlord_result memlord_scope_shapes(memlord *lord, const char *shapes)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Lets other threads work in this thread's innermost scope: each adopts the token, and returns
   it when it is done. Between the two the thread is in the scope: its blocks remember it, and
   scopes it begins are inside it. That is an invocation of its own: its delta, peak and time
   count in the path's totals, not in the invocation that was exported, nor in the scopes around
   that. A token is good until the scope ends on the thread that exported it; any number of
   threads may have it, by copies if they like. Threads that have adopted it by then stay in.
   Errors: E_STATE no scope, or too deep; adopt: also on the scope's own thread, or twice; return:
   the innermost scope is not this one; E_UNKNOWN the scope is over, or another ledger's;
   E_INVALID; E_NOMEM. */
typedef struct memlord_scope_token {
    uint64_t word[2]; /* the library's */
} memlord_scope_token;
MEMLORD_API memlord_result memlord_scope_export(memlord *lord, memlord_scope_token *out)
    MEMLORD_I_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
MEMLORD_API memlord_result memlord_scope_adopt(memlord *lord, const memlord_scope_token *token)
    MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_scope_return(memlord *lord, const memlord_scope_token *token)
    MEMLORD_I_OFF(MEMLORD_OK)

/* What all invocations of a path did that are over. Strings live until destroy. */
typedef struct memlord_scope_stat {
    const char *name, *path;
    const memlord_site *site; /* NULL: begun by name */
    uint64_t id, parent;      /* 0: none */
    uint64_t count, running;  /* invocations: over; not yet */
    struct {
        int64_t total, min, max;
    } bytes, blocks;          /* deltas */
    uint64_t peak;            /* highest in any invocation, above where that began; with more
                                 than one device the sum of theirs: an upper bound */
    struct {
        uint64_t total, min, max;
    } ns;                     /* of the host's time */
    uint64_t device_ns;       /* memlord_scope_device_time */
} memlord_scope_stat;

/* Reads a scope by its path. Errors: E_UNKNOWN never begun, *out zero; E_INVALID. */
MEMLORD_API memlord_result memlord_scope_get(memlord *lord, const char *path,
                                             memlord_scope_stat *out)
    MEMLORD_I_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
/* The id of this thread's innermost scope; 0: none. */
MEMLORD_API uint64_t memlord_scope_current(memlord *lord) MEMLORD_I_OFF(0)
/* Adds time a device took for a scope, known when its events are. Errors: E_UNKNOWN no such
   id. */
MEMLORD_API memlord_result memlord_scope_device_time(memlord *lord, uint64_t scope, uint64_t ns)
    MEMLORD_I_OFF(MEMLORD_OK)

/* -- snapshots: how memory moved -- */

/* Keeps what every device holds at this moment, under a name. Up to 255 snapshots are kept, spread
   over the whole run: beyond that the one whose neighbours are closest in time goes, and is
   counted, but for the first, the last, and those in which a device, or all together, held most;
   a checkpoint only when there is nothing else.
   Errors: E_INVALID NULL or ""; E_NOMEM, counted. Cost: a tenth of a us a device and thread. */
MEMLORD_API memlord_result memlord_checkpoint(memlord *lord, const char *name)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Takes one now, one every interval_ms (0: 5000, at least 10) on a thread of its own, with the
   largest blocks, and a last one at the stop. Until then a report that shows snapshots (TEXT, JSON,
   HTML, TRACE) ends with one of its own, which is not kept. Without threads memlord_gc_poll takes
   those that are due. The ledger's clock decides: while one of the host's stands still none is
   taken, and of one that runs ahead the thread learns within a second.
   Errors: E_INVALID an interval of 1 to 9; E_NOMEM the first; the others will come; stop: E_STATE
   on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_snapshots_start(memlord *lord, uint32_t interval_ms)
    MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_snapshots_stop(memlord *lord) MEMLORD_I_OFF(MEMLORD_OK)

/* -- events: every change, in a ring -- */

/* name, text */
#define MEMLORD_I_EVENTS(X)                                                                   \
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
#define MEMLORD_I_X(name, text) MEMLORD_EVENT_##name,
    MEMLORD_I_EVENTS(MEMLORD_I_X)
#undef MEMLORD_I_X
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
    MEMLORD_I_OFF(MEMLORD_OK)
/* Stops writing; the ring can still be read. */
MEMLORD_API void memlord_events_stop(memlord *lord) MEMLORD_I_OFF_VOID
/* Calls fn for the events in the ring, in the order of their time; those that are overwritten
   meanwhile are left out. Errors: E_INVALID `fn` NULL; E_NOMEM. */
MEMLORD_API memlord_result memlord_events_each(memlord *lord, memlord_event_fn fn, void *user)
    MEMLORD_I_OFF(MEMLORD_OK)

/* -- reports -- */

/* Writes a report through fn, in pieces of up to a few KiB, streaming.
   Errors: E_IO fn answered non-zero; E_UNSUPPORTED no such format; E_INVALID fn NULL; E_NOMEM.
   The statistics of devices and tags are captured once, and no other call waits. Other lists are
   read as they are written: they may have what was recorded since. Cost: walks blocks and sites. */
MEMLORD_API memlord_result memlord_write(memlord *lord, memlord_format format,
                                         memlord_write_fn fn, void *user)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Writes a report to a file: the whole file or none (a temporary beside it, synced and
   renamed). %p in the path is the process id, %% a percent sign. An existing regular file is
   replaced; a symbolic link, FIFO, device or directory is refused.
   Errors: E_INVALID the path; E_IO; E_UNSUPPORTED; E_NOMEM. */
MEMLORD_API memlord_result memlord_save(memlord *lord, memlord_format format,
                                        const char *path) MEMLORD_I_OFF(MEMLORD_OK)

/* Saves a report when the ledger is destroyed or the process exits, whichever is first, as
   memory_profile_YYYYMMDD_HHMMSS and the format's suffix (UTC), in `directory` (NULL: the
   ledger's output_dir, else the current one). Never over a file that is there: the process id
   and a number are put behind the time then. The last call counts. A forked child that exits
   writes one of its own.
   Errors: E_INVALID the path is too long; E_UNSUPPORTED; E_NOMEM. */
MEMLORD_API memlord_result memlord_save_at_exit(memlord *lord, memlord_format format,
                                                const char *directory) MEMLORD_I_OFF(MEMLORD_OK)

/* Asks for such a report now; a handler of SIGUSR1 may call it, it is async-signal-safe. As JSON
   unless memlord_save_at_exit says otherwise; once, however often it was asked for. Served by
   whichever comes first:
   - the next call that begins, ends, moves or resizes a block or an arena, describes, retags, adds
     or removes a part, marks, resets, charges, reserves, sets a plan or what is reserved, begins or
     ends a scope, takes a checkpoint, polls or retires; not one that retains, or releases a view.
     With MEMLORD_FLAG_DEFER memlord_gc_poll, memlord_retire and memlord_alloc_retry alone;
   - a poller, within its interval, or the thread that takes snapshots, within a second;
   - memlord_destroy, or the exit of the process if memlord_save_at_exit was called for a ledger. */
MEMLORD_API void memlord_request_save(memlord *lord) MEMLORD_I_OFF_VOID

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
/* Records the pages as one block. MAP_FIXED over the start of a live block closes that, an
   implicit free; over a later part of it, those pages count twice. An offset that does not fit
   the off_t of the file with the implementation fails with EOVERFLOW: define _FILE_OFFSET_BITS
   there, too. */
MEMLORD_API void *memlord_shim_mmap(memlord *lord, void *at, size_t size, int prot, int flags,
                                    int fd, int64_t offset, const memlord_site *site);
/* Ends the block that is just these pages. Other ranges (a part of a block, several blocks) end
   nothing and count in unknown_frees. Not counted if the real call fails. */
MEMLORD_API int memlord_shim_munmap(memlord *lord, void *at, size_t size,
                                    const memlord_site *site);
#endif
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif

/* -- macros: plant a site, pass a pointer -- */

/* The key of a storage that is an address. */
#ifdef __cplusplus
#define MEMLORD_KEY(ptr) (uint64_t{uintptr_t(ptr)})
#else
#define MEMLORD_KEY(ptr) ((uint64_t)(uintptr_t)(ptr))
#endif

/* The address of a static record of this place. Without statement expressions or lambdas
   (C on other compilers) it is NULL, and the macros below, being statements there, plant
   the record themselves. With MEMLORD_DISABLE it is NULL, too. */
#if defined(MEMLORD_DISABLE)
#define MEMLORD_SITE() MEMLORD_I_CAST(const memlord_site *, NULL)
#elif defined(__GNUC__)
#define MEMLORD_SITE()                                                                        \
    (__extension__({                                                                          \
        static const memlord_site memlord_i_here = {__FILE__, __func__, __LINE__};            \
        &memlord_i_here;                                                                      \
    }))
#elif defined(__cplusplus)
#define MEMLORD_SITE()                                                                        \
    ([](const char *function) -> const memlord_site * {                                       \
        static const memlord_site here = {__FILE__, function, __LINE__};                      \
        return &here;                                                                         \
    }(__func__))
#else
#define MEMLORD_SITE() ((const memlord_site *)NULL)
#define MEMLORD_I_PLANT(call)                                                                 \
    do {                                                                                      \
        static const memlord_site memlord_i_here = {__FILE__, __func__, __LINE__};            \
        (void)call;                                                                           \
    } while (0)
#endif
#if defined(MEMLORD_I_PLANT)
#define MEMLORD_I_CALL(name, ...) MEMLORD_I_PLANT(name(__VA_ARGS__, &memlord_i_here))
#else
#define MEMLORD_I_CALL(name, ...) name(__VA_ARGS__, MEMLORD_SITE())
#endif

/* The track calls with the storage as a pointer and the site of the call. Expressions of type
   memlord_result under GNU C and C++, else statements. */
#define MEMLORD_ALLOC(lord, dev, ptr, bytes)                                                  \
    MEMLORD_I_CALL(memlord_alloc, lord, dev, MEMLORD_KEY(ptr), bytes)
#define MEMLORD_FREE(lord, dev, ptr) MEMLORD_I_CALL(memlord_free, lord, dev, MEMLORD_KEY(ptr))
#define MEMLORD_REALLOC(lord, dev, old_ptr, new_ptr, bytes)                                   \
    MEMLORD_I_CALL(memlord_realloc, lord, dev, MEMLORD_KEY(old_ptr), MEMLORD_KEY(new_ptr),    \
                   bytes)
#define MEMLORD_TRACK(lord, dev, ptr, bytes)                                                  \
    MEMLORD_I_CALL(memlord_track, lord, dev, MEMLORD_KEY(ptr), bytes)
#define MEMLORD_RETAIN(lord, dev, ptr)                                                        \
    MEMLORD_I_CALL(memlord_retain, lord, dev, MEMLORD_KEY(ptr))
#define MEMLORD_RELEASE(lord, dev, ptr)                                                       \
    MEMLORD_I_CALL(memlord_release, lord, dev, MEMLORD_KEY(ptr))

/* MEMLORD_TAG(lord, "kv_cache") { ... } tags what the block allocates. Under GNU C and C++ it
   ends with the block however it is left; elsewhere break, return and goto skip the end. */
typedef struct memlord_i_guard {
    memlord *lord;
    int open; /* the begin went well and wants its end */
    int once;
} memlord_i_guard;

MEMLORD_I_INLINE memlord_i_guard memlord_i_guard_of(memlord *lord, memlord_result begun) {
    memlord_i_guard guard;
    guard.lord = lord;
    guard.open = begun == MEMLORD_OK;
    guard.once = 1;
    return guard;
}

MEMLORD_I_INLINE memlord_i_guard memlord_i_tag_enter(memlord *lord, const char *tag) {
    return memlord_i_guard_of(lord, memlord_tag_begin(lord, tag));
}

MEMLORD_I_INLINE void memlord_i_tag_leave(memlord_i_guard *guard) {
    if (guard->open) (void)memlord_tag_end(guard->lord);
    guard->open = 0;
}

#define MEMLORD_I_JOIN2(a, b) a##b
#define MEMLORD_I_JOIN(a, b) MEMLORD_I_JOIN2(a, b)
#if defined(__GNUC__)
#define MEMLORD_I_ON_LEAVE(fn) __attribute__((cleanup(fn)))
#else
#define MEMLORD_I_ON_LEAVE(fn)
#endif
#define MEMLORD_I_TAG(guard, lord, tag)                                                       \
    for (memlord_i_guard guard MEMLORD_I_ON_LEAVE(memlord_i_tag_leave) =                      \
             memlord_i_tag_enter(lord, tag);                                                  \
         guard.once; guard.once = 0, memlord_i_tag_leave(&guard))
#define MEMLORD_TAG(lord, tag) MEMLORD_I_TAG(MEMLORD_I_JOIN(memlord_i_tag_, __LINE__), lord, tag)

/* MEMLORD_SCOPE(lord, "forward") { ... } is a scope, planted static under GNU C; the name is a
   string literal. It ends with the block as MEMLORD_TAG does. */
MEMLORD_I_INLINE memlord_i_guard memlord_i_scope_enter(memlord *lord,
                                                       const memlord_scope_site *place) {
    return memlord_i_guard_of(lord, memlord_scope_enter(lord, place));
}
MEMLORD_I_INLINE memlord_i_guard memlord_i_scope_named(memlord *lord, const char *name) {
    return memlord_i_guard_of(lord, memlord_scope_begin(lord, name));
}
MEMLORD_I_INLINE void memlord_i_scope_leave(memlord_i_guard *guard) {
    if (guard->open) (void)memlord_scope_end(guard->lord);
    guard->open = 0;
}
#if defined(__GNUC__) && !defined(MEMLORD_DISABLE)
#define MEMLORD_I_SCOPE_PLANT(lord, text)                                                     \
    memlord_i_scope_enter(lord, (__extension__({                                              \
                              static const memlord_scope_site memlord_i_here = {              \
                                  text, {__FILE__, __func__, __LINE__}};                      \
                              &memlord_i_here;                                                \
                          })))
#else
#define MEMLORD_I_SCOPE_PLANT(lord, text) memlord_i_scope_named(lord, text)
#endif
#define MEMLORD_I_SCOPE(guard, lord, text)                                                    \
    for (memlord_i_guard guard MEMLORD_I_ON_LEAVE(memlord_i_scope_leave) =                    \
             MEMLORD_I_SCOPE_PLANT(lord, text);                                               \
         guard.once; guard.once = 0, memlord_i_scope_leave(&guard))
#define MEMLORD_SCOPE(lord, text)                                                             \
    MEMLORD_I_SCOPE(MEMLORD_I_JOIN(memlord_i_scope_, __LINE__), lord, text)

#if defined(MEMLORD_DISABLE) && defined(__GNUC__)
#pragma GCC diagnostic pop
#elif defined(MEMLORD_DISABLE) && defined(_MSC_VER)
#pragma warning(pop)
#endif

#endif /* MEMLORD_H */

/* ------------------------- stop here if you only want the API ---------------------------- */

/* --------------------------------------------------------------- >>implementation -- */
#if defined(MEMLORD_IMPLEMENTATION) && !defined(MEMLORD_DISABLE) && !defined(MEMLORD_I_EMITTED)
#define MEMLORD_I_EMITTED

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
   Owns what differs between systems: compilers, pages, the clock, threads, fork, files.
   Every family below has the same names and ends in #error. Preconditions hold for all:
   out pointers are not NULL, sizes are not 0, 0 is success. Locks: none. */

#define MEMLORD_I_WINDOWS 0
#define MEMLORD_I_APPLE 0
#define MEMLORD_I_LINUX 0
#define MEMLORD_I_POSIX 0
#if defined(_WIN32)
#undef MEMLORD_I_WINDOWS
#define MEMLORD_I_WINDOWS 1
#else
#undef MEMLORD_I_POSIX
#define MEMLORD_I_POSIX 1
#if defined(__APPLE__)
#undef MEMLORD_I_APPLE
#define MEMLORD_I_APPLE 1
#elif defined(__linux__)
#undef MEMLORD_I_LINUX
#define MEMLORD_I_LINUX 1
#endif
#endif

#if defined(__GNUC__)
#define MEMLORD_I_LIKELY(x) __builtin_expect(!!(x), 1)
#define MEMLORD_I_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define MEMLORD_I_COLD __attribute__((noinline, cold))
#define MEMLORD_I_NOINLINE __attribute__((noinline))
#define MEMLORD_I_HOT inline __attribute__((always_inline))
#define MEMLORD_I_PREFETCH(p) __builtin_prefetch((p), 1)
#elif defined(_MSC_VER)
#define MEMLORD_I_LIKELY(x) (x)
#define MEMLORD_I_UNLIKELY(x) (x)
#define MEMLORD_I_COLD __declspec(noinline)
#define MEMLORD_I_NOINLINE __declspec(noinline)
#define MEMLORD_I_HOT __forceinline
#define MEMLORD_I_PREFETCH(p) ((void)(p))
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

#if defined(MEMLORD_NO_THREADS)
#define MEMLORD_I_THREADLESS 1
#else
#define MEMLORD_I_THREADLESS 0
#endif

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#include <cpuid.h> /* whether the time stamp counter is steady */
#elif defined(_MSC_VER)
#include <intrin.h> /* the same; atomics */
#endif
#if (defined(__x86_64__) && defined(__SSE2__)) || (defined(_M_X64) && !defined(_M_ARM64EC))
#include <emmintrin.h> /* the map's look-ups */
#define MEMLORD_I_SSE2 1
#else
#define MEMLORD_I_SSE2 0
#endif
#if MEMLORD_I_WINDOWS
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <stdlib.h>  /* malloc, for the shim */
#include <windows.h> /* pages, fibre-local storage, files */
#include <psapi.h>   /* the working set */
#elif MEMLORD_I_POSIX
#include <errno.h>    /* EINTR, EEXIST */
#include <fcntl.h>    /* open */
#include <pthread.h>  /* thread exit, fork handlers, signal mask */
#include <sched.h>    /* sched_yield */
#include <signal.h>   /* SIGXFSZ */
#include <stdio.h>    /* rename */
#include <stdlib.h>   /* getenv; malloc, for the shim */
#include <sys/mman.h> /* mmap */
#include <sys/stat.h> /* lstat */
#include <time.h>     /* clock_gettime */
#include <unistd.h>   /* write, fsync */
#if !defined(MAP_ANONYMOUS) || !defined(CLOCK_MONOTONIC)
#error "a strict C mode hides mmap: include memlord.h first, or compile with -D_DEFAULT_SOURCE"
#endif
#if MEMLORD_I_LINUX
#include <sys/auxv.h>    /* getauxval */
#include <sys/syscall.h> /* gettid, membarrier, tgkill */
#elif MEMLORD_I_APPLE
#include <dlfcn.h>      /* dladdr */
#include <mach/mach.h>  /* host_statistics64, task_info */
#include <sys/sysctl.h> /* hw.memsize */
#endif
#endif

typedef struct memlord_i_symbol {
    const char *module;
    const char *name; /* NULL: not known */
#if MEMLORD_I_WINDOWS
    char path[3 * MAX_PATH + 1]; /* UTF-8 */
#endif
} memlord_i_symbol;

typedef struct memlord_i_job { /* outlives its thread */
    void (*run)(void *);
    void *user;
} memlord_i_job;

/* -- ticks: a stamp of time for a third of what a clock costs --
   The processor's own counter, where it goes on at one rate whatever the processor does. */

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
static uint64_t memlord_i_ticks(void) { return __builtin_ia32_rdtsc(); }
static int memlord_i_ticks_steady(void) { /* "invariant TSC" in the manuals of Intel and AMD */
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d >> 8 & 1);
}
#elif defined(_MSC_VER) && (defined(_M_X64) || defined(_M_IX86))
static uint64_t memlord_i_ticks(void) { return __rdtsc(); }
static int memlord_i_ticks_steady(void) {
    int r[4];
    __cpuid(r, (int)0x80000000u);
    if ((unsigned)r[0] < 0x80000007u) return 0;
    __cpuid(r, (int)0x80000007u);
    return r[3] >> 8 & 1;
}
#elif defined(__GNUC__) && defined(__aarch64__)
static uint64_t memlord_i_ticks(void) {
    uint64_t v;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
    return v;
}
static int memlord_i_ticks_steady(void) { return 1; }
#else
static uint64_t memlord_i_ticks(void) { return 0; }
static int memlord_i_ticks_steady(void) { return 0; }
#endif

#if MEMLORD_I_WINDOWS

static void *memlord_i_pages_map(size_t size) {
    return VirtualAlloc(NULL, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}
static void memlord_i_pages_unmap(void *ptr, size_t size) {
    MEMORY_BASIC_INFORMATION info; /* `ptr` may be inside what was trimmed */
    (void)size;
    if (VirtualQuery(ptr, &info, sizeof info))
        (void)VirtualFree(info.AllocationBase, 0, MEM_RELEASE);
}
static void memlord_i_pages_huge(void *ptr, size_t size) {
    (void)ptr;
    (void)size;
}
/* Reservations are freed whole here: the pages around `keep` are only given back. */
static MEMLORD_I_COLD void memlord_i_pages_trim(void *ptr, size_t size, void *keep, size_t kept) {
    size_t before = (size_t)((char *)keep - (char *)ptr);
    if (before) (void)VirtualFree(ptr, before, MEM_DECOMMIT);
    if (size - before - kept)
        (void)VirtualFree((char *)keep + kept, size - before - kept, MEM_DECOMMIT);
}
static uint64_t memlord_i_now(void) {
    LARGE_INTEGER count, rate;
    (void)QueryPerformanceCounter(&count);
    (void)QueryPerformanceFrequency(&rate);
    return (uint64_t)(count.QuadPart / rate.QuadPart) * 1000000000u +
           (uint64_t)(count.QuadPart % rate.QuadPart) * 1000000000u / (uint64_t)rate.QuadPart;
}
static uint64_t memlord_i_wall_now(void) { /* ns since 1970 */
    FILETIME now;
    GetSystemTimeAsFileTime(&now); /* 100 ns since 1601 */
    return ((((uint64_t)now.dwHighDateTime << 32) | now.dwLowDateTime) -
            UINT64_C(116444736000000000)) * 100;
}
static void memlord_i_yield(void) { (void)SwitchToThread(); }
static void memlord_i_nap(uint32_t ns) {
    (void)ns;
    Sleep(1); /* the shortest there is */
}
static uint64_t memlord_i_pid(void) { return GetCurrentProcessId(); }
/* A number of the calling thread: not 0, and no other living thread of the process has it. */
static uint64_t memlord_i_thread_number(void) { return GetCurrentThreadId(); }
/* 1: no thread has that number any more; 0: one has, or it cannot be told. */
static MEMLORD_I_COLD int memlord_i_thread_gone(uint64_t number) {
    HANDLE thread = OpenThread(SYNCHRONIZE, FALSE, (DWORD)number);
    int gone;
    if (!thread) return GetLastError() == ERROR_INVALID_PARAMETER;
    gone = WaitForSingleObject(thread, 0) == WAIT_OBJECT_0;
    (void)CloseHandle(thread);
    return gone;
}
static int memlord_i_env(const char *name, char *buf, size_t cap) {
    DWORD n = GetEnvironmentVariableA(name, buf, (DWORD)cap);
    return n < cap ? n > 0 : -1;
}
static void memlord_i_stderr(const char *text, size_t size) {
    DWORD done;
    HANDLE out = GetStdHandle(STD_ERROR_HANDLE);
    if (out && out != INVALID_HANDLE_VALUE) (void)WriteFile(out, text, (DWORD)size, &done, NULL);
}
/* 1: memlord_i_barrier_all may be used. */
static uint32_t memlord_i_barrier_register(void) { return 1; }
/* 1: every running thread of the process has passed a full barrier; 0: refused. */
static int memlord_i_barrier_all(void) {
    FlushProcessWriteBuffers();
    return 1;
}

typedef HANDLE memlord_i_file;
static int memlord_i_wide_path(const char *path, wchar_t *out, int cap) {
    return MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out, cap) > 0 ? 0 : -1;
}
static int memlord_i_file_refused(const char *path) { /* exists and is no plain file */
    wchar_t wide[1024];
    DWORD a;
    if (memlord_i_wide_path(path, wide, 1024)) return 1;
    a = GetFileAttributesW(wide);
    return a != INVALID_FILE_ATTRIBUTES &&
           (a & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT | FILE_ATTRIBUTE_DEVICE));
}
static int memlord_i_file_create(const char *path, memlord_i_file *out) { /* 1: exists */
    wchar_t wide[1024];
    if (memlord_i_wide_path(path, wide, 1024)) return -1;
    *out = CreateFileW(wide, GENERIC_WRITE, 0, NULL, CREATE_NEW, FILE_ATTRIBUTE_NORMAL, NULL);
    if (*out != INVALID_HANDLE_VALUE) return 0;
    return GetLastError() == ERROR_FILE_EXISTS ? 1 : -1;
}
static int memlord_i_file_write(memlord_i_file file, const char *data, size_t size) {
    DWORD done = 0;
    for (; size; data += done, size -= done) {
        DWORD piece = size > 1u << 20 ? 1u << 20 : (DWORD)size;
        if (!WriteFile(file, data, piece, &done, NULL) || !done) return -1;
    }
    return 0;
}
static int memlord_i_file_close(memlord_i_file file, int sync) {
    int bad = sync && !FlushFileBuffers(file);
    return !CloseHandle(file) || bad ? -1 : 0;
}
static int memlord_i_file_rename(const char *from, const char *to) {
    wchar_t a[1024], b[1024];
    if (memlord_i_wide_path(from, a, 1024) || memlord_i_wide_path(to, b, 1024)) return -1;
    return MoveFileExW(a, b, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH) ? 0 : -1;
}
static int memlord_i_file_rename_new(const char *from, const char *to) { /* 1: there is one */
    wchar_t a[1024], b[1024];
    if (memlord_i_wide_path(from, a, 1024) || memlord_i_wide_path(to, b, 1024)) return -1;
    if (MoveFileExW(a, b, MOVEFILE_WRITE_THROUGH)) return 0;
    return GetLastError() == ERROR_ALREADY_EXISTS || GetLastError() == ERROR_FILE_EXISTS ? 1 : -1;
}
static void memlord_i_file_remove(const char *path) {
    wchar_t wide[1024];
    if (!memlord_i_wide_path(path, wide, 1024)) (void)DeleteFileW(wide);
}
typedef int memlord_i_signals;
static memlord_i_signals memlord_i_signals_hold(void) { return 0; }
static void memlord_i_signals_release(memlord_i_signals *held) { (void)held; }

/* -- something to wait on, and threads of our own -- */

typedef struct memlord_i_event { HANDLE handle; } memlord_i_event;
static int memlord_i_event_open(memlord_i_event *event) {
    event->handle = CreateEventA(NULL, FALSE, FALSE, NULL);
    return event->handle ? 0 : -1;
}
static void memlord_i_event_close(memlord_i_event *event) { (void)CloseHandle(event->handle); }
static void memlord_i_event_set(memlord_i_event *event) { (void)SetEvent(event->handle); }
static void memlord_i_event_wait(memlord_i_event *event, uint32_t ms) {
    (void)WaitForSingleObject(event->handle, ms);
}
typedef HANDLE memlord_i_worker;
static DWORD WINAPI memlord_i_worker_main(void *job) {
    ((memlord_i_job *)job)->run(((memlord_i_job *)job)->user);
    return 0;
}
static int memlord_i_worker_start(memlord_i_worker *out, memlord_i_job *job) {
    *out = CreateThread(NULL, 0, memlord_i_worker_main, job, 0, NULL);
    return *out ? 0 : -1;
}
static void memlord_i_worker_join(memlord_i_worker worker) {
    (void)WaitForSingleObject(worker, INFINITE);
    (void)CloseHandle(worker);
}

#elif MEMLORD_I_POSIX

/* errno is the host's: free(), beside which we are called, keeps it. */
static void *memlord_i_pages_map(size_t size) {
    int saved = errno;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = saved;
    return p == MAP_FAILED ? NULL : p;
}
static void memlord_i_pages_unmap(void *ptr, size_t size) { (void)munmap(ptr, size); }
/* Asks for huge pages: the map misses the TLB on every call otherwise. A wish: no result. */
static void memlord_i_pages_huge(void *ptr, size_t size) {
#if defined(MADV_HUGEPAGE)
    int saved = errno;
    (void)madvise(ptr, size, MADV_HUGEPAGE);
    (void)madvise(ptr, size, 25); /* MADV_COLLAPSE, since Linux 6.1: what is there already */
    errno = saved;
#else
    (void)ptr;
    (void)size;
#endif
}
/* Gives back what lies around `keep`. */
static void memlord_i_pages_trim(void *ptr, size_t size, void *keep, size_t kept) {
    size_t before = (size_t)((char *)keep - (char *)ptr);
    if (before) (void)munmap(ptr, before);
    if (size - before - kept) (void)munmap((char *)keep + kept, size - before - kept);
}
static uint64_t memlord_i_time(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t)) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint64_t memlord_i_now(void) { return memlord_i_time(CLOCK_MONOTONIC); }
static uint64_t memlord_i_wall_now(void) { return memlord_i_time(CLOCK_REALTIME); } /* since 1970 */
static void memlord_i_yield(void) { (void)sched_yield(); }
static uint64_t memlord_i_pid(void) { return (uint64_t)getpid(); }
/* A number of the calling thread: not 0, and no other living thread of the process has it. On
   Linux the kernel's; where a sandbox refuses that, an address as elsewhere. */
static uint64_t memlord_i_thread_number(void) {
#if MEMLORD_I_LINUX
    int saved = errno;
    long number = syscall(__NR_gettid);
    errno = saved;
    if (number > 0) return (uint64_t)number;
#elif MEMLORD_I_APPLE
    uint64_t number;
    if (!pthread_threadid_np(NULL, &number) && number) return number;
#endif
    return (uint64_t)(uintptr_t)pthread_self();
}
/* 1: no thread has that number any more; 0: one has, or it cannot be told. */
static MEMLORD_I_COLD int memlord_i_thread_gone(uint64_t number) {
#if MEMLORD_I_LINUX
    int saved = errno, gone;
    if (number >> 31) return 0; /* not the kernel's */
    gone = syscall(__NR_tgkill, (long)getpid(), (long)number, 0L) == -1 && errno == ESRCH;
    errno = saved;
    return gone;
#else
    (void)number;
    return 0;
#endif
}
/* 1: the variable is set and fits; -1: it does not fit; 0: not set, or the process is set-uid */
static int memlord_i_env(const char *name, char *buf, size_t cap) {
    const char *value;
    size_t n;
#if MEMLORD_I_LINUX
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
/* A thread of the host that is cancelled ends where it next waits, reads or writes: not in here,
   with work half done that others wait for. */
static MEMLORD_I_COLD int memlord_i_cancel_hold(void) {
    int before = 0;
#if defined(PTHREAD_CANCEL_DISABLE) /* not everywhere: Android */
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
#endif
    return before;
}
static void memlord_i_cancel_release(int before) {
#if defined(PTHREAD_CANCEL_DISABLE)
    (void)pthread_setcancelstate(before, NULL);
#else
    (void)before;
#endif
}
/* Sleeps so long; less after a signal, or where sleeping is refused. */
static MEMLORD_I_COLD void memlord_i_nap(uint32_t ns) {
    int saved = errno, cancel = memlord_i_cancel_hold();
    struct timespec span;
    span.tv_sec = 0;
    span.tv_nsec = (long)ns;
    (void)nanosleep(&span, NULL);
    memlord_i_cancel_release(cancel);
    errno = saved;
}
typedef int memlord_i_file;
static int memlord_i_file_write(memlord_i_file file, const char *data, size_t size) {
    while (size) {
        ssize_t n = write(file, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return -1;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}
static void memlord_i_stderr(const char *text, size_t size) {
    int saved = errno, cancel = memlord_i_cancel_hold();
    (void)memlord_i_file_write(2, text, size);
    memlord_i_cancel_release(cancel);
    errno = saved;
}
#if MEMLORD_I_LINUX && defined(__NR_membarrier)
/* Numbers of linux/membarrier.h, which older headers lack: private expedited and its
   registration, since Linux 4.14. A sandbox that the process enters later may refuse the one
   after the other was granted, and so may a kernel that is short of memory. */
static MEMLORD_I_COLD int memlord_i_membarrier(int command) {
    int saved = errno, done = syscall(__NR_membarrier, command, 0, 0) == 0;
    errno = saved;
    return done;
}
static uint32_t memlord_i_barrier_register(void) { return memlord_i_membarrier(16) != 0; }
static int memlord_i_barrier_all(void) { return memlord_i_membarrier(8); }
#else
static uint32_t memlord_i_barrier_register(void) { return 0; }
static int memlord_i_barrier_all(void) { return 0; }
#endif

/* The kind of a file, links not followed. 32-bit programs have a struct stat without room for a
   size or number of more than 32 bits (EOVERFLOW); the kernel's statx has it, in one layout for
   all: its stx_mode is the 15th half word. */
static int memlord_i_file_mode(const char *path, mode_t *mode) {
    struct stat st;
    int r = lstat(path, &st);
#if MEMLORD_I_LINUX && defined(__NR_statx)
    uint16_t wide[128];
    if (r && errno == EOVERFLOW) {
        r = (int)syscall(__NR_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, 1 /* STATX_TYPE */, wide);
        st.st_mode = (mode_t)wide[14];
    }
#endif
    if (!r) *mode = st.st_mode;
    return r;
}
static int memlord_i_file_refused(const char *path) { /* exists and is no plain file */
    mode_t mode;
    return memlord_i_file_mode(path, &mode) ? errno != ENOENT : !S_ISREG(mode);
}
/* The same file under a number that is no standard stream, whose own the host may have closed;
   -1: none left. */
static int memlord_i_fd_high(int fd) {
    int higher;
    if (fd >= 3) return fd;
    higher = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    (void)close(fd);
    return higher;
}
static int memlord_i_file_create(const char *path, memlord_i_file *out) { /* 1: exists */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return errno == EEXIST ? 1 : -1;
    *out = memlord_i_fd_high(fd);
    if (*out >= 0) return 0;
    (void)unlink(path);
    return -1;
}
static int memlord_i_file_close(memlord_i_file file, int sync) {
    int bad = sync && fsync(file);
    return close(file) || bad ? -1 : 0;
}
static int memlord_i_file_rename(const char *from, const char *to) { return rename(from, to); }
/* 1: there is one of that name already */
static int memlord_i_file_rename_new(const char *from, const char *to) {
    mode_t there;
    if (!link(from, to)) return unlink(from) ? -1 : 0;
    if (errno == EEXIST) return 1;
    if (!memlord_i_file_mode(to, &there)) return 1; /* a system without links: nearly as good */
    return rename(from, to);
}
static void memlord_i_file_remove(const char *path) { (void)unlink(path); }

/* A write past the file size limit raises SIGXFSZ, which kills by default: held back, and
   taken if we caused it. Nor is a file left half written by who is cancelled. */
typedef struct memlord_i_signals {
    sigset_t before;
    int pending; /* one was waiting already: not ours to take */
    int cancel;
} memlord_i_signals;
static memlord_i_signals memlord_i_signals_hold(void) {
    memlord_i_signals held;
    sigset_t set;
    held.cancel = memlord_i_cancel_hold();
    (void)sigpending(&set);
    held.pending = sigismember(&set, SIGXFSZ) == 1;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGXFSZ);
    (void)pthread_sigmask(SIG_BLOCK, &set, &held.before);
    return held;
}
static void memlord_i_signals_release(memlord_i_signals *held) {
    sigset_t set;
    int number;
    (void)sigpending(&set);
    if (!held->pending && sigismember(&set, SIGXFSZ) == 1) {
        (void)sigemptyset(&set);
        (void)sigaddset(&set, SIGXFSZ);
        (void)sigwait(&set, &number);
    }
    (void)pthread_sigmask(SIG_SETMASK, &held->before, NULL);
    memlord_i_cancel_release(held->cancel);
}

/* -- something to wait on, and threads of our own -- */

typedef struct memlord_i_event {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int set;
} memlord_i_event;
static MEMLORD_I_COLD int memlord_i_event_open(memlord_i_event *event) {
    pthread_condattr_t attr;
    int bad;
    if (pthread_condattr_init(&attr)) return -1;
#if MEMLORD_I_APPLE
    bad = 0; /* it waits for a span instead */
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
static void memlord_i_event_close(memlord_i_event *event) {
    (void)pthread_cond_destroy(&event->cond);
    (void)pthread_mutex_destroy(&event->mutex);
}
static MEMLORD_I_COLD void memlord_i_event_set(memlord_i_event *event) {
    (void)pthread_mutex_lock(&event->mutex);
    event->set = 1;
    (void)pthread_cond_signal(&event->cond);
    (void)pthread_mutex_unlock(&event->mutex);
}
/* Waits until the event is set, which it then no longer is, or so many ms have gone by. */
static MEMLORD_I_COLD void memlord_i_event_wait(memlord_i_event *event, uint32_t ms) {
    struct timespec until;
    uint64_t ns = (uint64_t)ms * 1000000u;
    int late = 0, cancel = memlord_i_cancel_hold();
#if !MEMLORD_I_APPLE
    ns += memlord_i_now();
#endif
    until.tv_sec = (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    (void)pthread_mutex_lock(&event->mutex);
    while (!event->set && !late) {
#if MEMLORD_I_APPLE
        late = pthread_cond_timedwait_relative_np(&event->cond, &event->mutex, &until);
#else
        late = pthread_cond_timedwait(&event->cond, &event->mutex, &until);
#endif
    }
    event->set = 0;
    (void)pthread_mutex_unlock(&event->mutex);
    memlord_i_cancel_release(cancel);
}

typedef pthread_t memlord_i_worker;
static void *memlord_i_worker_main(void *job) {
    (void)memlord_i_cancel_hold(); /* a host's callback on it knows its pthread_self */
    ((memlord_i_job *)job)->run(((memlord_i_job *)job)->user);
    return NULL;
}
/* The host's signals are not for our threads. */
static int memlord_i_worker_start(memlord_i_worker *out, memlord_i_job *job) {
    sigset_t every, before;
    int bad;
    (void)sigfillset(&every);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before);
    bad = pthread_create(out, NULL, memlord_i_worker_main, job);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return bad ? -1 : 0;
}
static void memlord_i_worker_join(memlord_i_worker worker) {
    int cancel = memlord_i_cancel_hold();
    (void)pthread_join(worker, NULL);
    memlord_i_cancel_release(cancel);
}

#else
#error "memlord.h knows Windows and POSIX: add a family above for this platform"
#endif

#if MEMLORD_I_LINUX
/* dladdr without its header: that declares it only for _GNU_SOURCE, which a host compiling as
   C99 does not set. Weak: before glibc 2.34 it is in libdl, which may not be linked. */
typedef struct memlord_i_dl_info {
    const char *file;
    void *base;
    const char *name;
    void *address;
} memlord_i_dl_info;
#ifdef __cplusplus
extern "C"
#endif
    int memlord_i_dladdr(const void *address, memlord_i_dl_info *out)
        __asm__("dladdr") __attribute__((weak));
static int memlord_i_symbol_at(const void *address, memlord_i_symbol *out) {
    memlord_i_dl_info info;
    if (!memlord_i_dladdr || !memlord_i_dladdr(address, &info) || !info.file) return -1;
    out->module = info.file;
    out->name = info.name;
    return 0;
}
#elif MEMLORD_I_APPLE
static int memlord_i_symbol_at(const void *address, memlord_i_symbol *out) {
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname) return -1;
    out->module = info.dli_fname;
    out->name = info.dli_sname;
    return 0;
}
#elif MEMLORD_I_WINDOWS
/* Names of functions are in files of their own, which dbghelp reads: the module alone. */
static int memlord_i_symbol_at(const void *address, memlord_i_symbol *out) {
    wchar_t wide[MAX_PATH];
    HMODULE module;
    DWORD n;
    if (!GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                                GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                            (const wchar_t *)address, &module))
        return -1;
    n = GetModuleFileNameW(module, wide, MAX_PATH);
    if (!n || n >= MAX_PATH) return -1; /* none, or longer */
    n = (DWORD)WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, out->path, sizeof out->path - 1, NULL,
                                   NULL);
    out->path[n] = 0;
    out->module = out->path;
    out->name = NULL;
    return n ? 0 : -1;
}
#else
static int memlord_i_symbol_at(const void *address, memlord_i_symbol *out) {
    (void)address;
    (void)out;
    return -1;
}
#endif

/* What the machine has for this process: the capacity source of the cpu device. One family:
   memlord_i_cpu_sample, 0 = known. One caller at a time; no malloc, no stdio, little stack;
   errno is kept. Zero is a valid state; only `root` is set from outside. What is in doubt is
   not known: a number that is wrong is worse than none. */

#if MEMLORD_I_LINUX

typedef struct memlord_i_cpu {
    const char *root; /* before every path, for tests; NULL: none */
    int v1;           /* the version of the cgroups */
    char path[1024];  /* of the file being read */
    char text[8192];  /* its text: too large for the 16 KiB stacks some hosts use */
} memlord_i_cpu;

/* Sets cpu->path from its byte `end` on: the new length; 0: too long. */
static size_t memlord_i_cpu_path(memlord_i_cpu *cpu, size_t end, const char *more) {
    size_t n = strlen(more);
    if (n >= sizeof cpu->path - end) return 0;
    memcpy(cpu->path + end, more, n + 1);
    return end + n;
}
static size_t memlord_i_cpu_root(memlord_i_cpu *cpu, const char *path) {
    const char *root = cpu->root ? cpu->root : "";
    size_t n = memlord_i_cpu_path(cpu, 0, root);
    return n || !*root ? memlord_i_cpu_path(cpu, n, path) : 0;
}

/* Reads the file `name` of the directory in the first `end` bytes of cpu->path, as a string,
   into cpu->text: 0; 1: there is no such file, the text is ""; -1: not known. */
static MEMLORD_I_COLD int memlord_i_cpu_read(memlord_i_cpu *cpu, size_t end, const char *name) {
    size_t n = 0;
    ssize_t got = 1;
    int fd;
    cpu->text[0] = 0;
    if (!end || !memlord_i_cpu_path(cpu, end, name)) return -1;
    fd = open(cpu->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? 1 : -1;
    while (got && n < sizeof cpu->text) {
        got = read(fd, cpu->text + n, sizeof cpu->text - n);
        if (got < 0 && errno != EINTR) break;
        if (got > 0) n += (size_t)got;
    }
    (void)close(fd);
    if (got) return -1; /* it failed, or has no end in sight */
    cpu->text[n] = 0;
    return 0;
}

/* The number `*at` begins with and moves behind: 0; -1: none, or none of 64 bits. */
static int memlord_i_cpu_number(const char **at, uint64_t *out) {
    const char *p = *at;
    uint64_t n = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (n > (UINT64_MAX - digit) / 10) return -1;
        n = n * 10 + digit;
    }
    if (p == *at) return -1;
    *at = p;
    *out = n;
    return 0;
}

/* The number in the line of cpu->text that begins with `name`: 0; 1: no such line; -1: garbage.
   `kilo`: the line must say kB. */
static int memlord_i_cpu_field(const memlord_i_cpu *cpu, const char *name, int kilo,
                               uint64_t *out) {
    size_t n = strlen(name);
    const char *p = cpu->text;
    while (strncmp(p, name, n) || (p[n] != ' ' && p[n] != '\t')) {
        p = strchr(p, '\n');
        if (!p) return 1;
        p++;
    }
    for (p += n; *p == ' ' || *p == '\t'; p++) {}
    if (memlord_i_cpu_number(&p, out)) return -1;
    if (kilo) {
        if (strncmp(p, " kB", 3) || *out > UINT64_MAX >> 10) return -1;
        p += 3;
        *out <<= 10;
    }
    return *p == '\n' || !*p ? 0 : -1;
}

/* The number a file consists of; UINT64_MAX: "max", or there is no such file. 0; -1: not known. */
static int memlord_i_cpu_value(memlord_i_cpu *cpu, size_t end, const char *name, uint64_t *out) {
    const char *p = cpu->text;
    int r = memlord_i_cpu_read(cpu, end, name);
    *out = UINT64_MAX;
    if (r) return r < 0 ? -1 : 0;
    if (!strncmp(p, "max", 3))
        p += 3;
    else if (memlord_i_cpu_number(&p, out))
        return -1;
    return *p == '\n' || !*p ? 0 : -1;
}

/* The path of our memory cgroup in /proc/self/cgroup, whose lines are number:controllers:path,
   cut out in place; NULL: none. The memory controller is of one version at a time: v2 has it,
   in the line without controllers, if no other line does. */
static char *memlord_i_cpu_cgroup(char *text, int *v1) {
    char *found = NULL, *line, *next;
    *v1 = 0;
    for (line = text; line && *line && !*v1; line = next) {
        char *names, *path, *word;
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        names = strchr(line, ':');
        path = names ? strchr(names + 1, ':') : NULL;
        if (!path || path[1] != '/') continue;
        *path++ = 0;
        word = strstr(names, "memory");
        *v1 = word && (word[-1] == ':' || word[-1] == ',') && (!word[6] || word[6] == ',');
        if (*v1 || !names[1]) found = path;
    }
    return found;
}

/* Lowers the total to the limit of the cgroup in the first `end` bytes of cpu->path, and what is
   left to what that leaves: 0; -1: not known. No file is no limit, as in the root, or where the
   controller is off. Page cache counts as left, active or not: the kernel drops it before it
   refuses memory, and MemAvailable has it so too. (Kubernetes takes off only the inactive
   part.) shmem and what is locked are on other lists and stay in. */
static int memlord_i_cpu_level(memlord_i_cpu *cpu, size_t end, uint64_t machine, uint64_t *total,
                               uint64_t *left) {
    static const char *const names[2][4] = {
        {"/memory.max", "/memory.current", "inactive_file", "active_file"},
        {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file",
         "total_active_file"}};
    const char *const *name = names[cpu->v1];
    uint64_t limit, more = UINT64_MAX, used, cache;
    int i, said;
    if (memlord_i_cpu_value(cpu, end, name[0], &limit)) return -1;
    if (!cpu->v1) { /* beyond memory.high the kernel slows processes down */
        if (memlord_i_cpu_value(cpu, end, "/memory.high", &more)) return -1;
    } else if (memlord_i_cpu_read(cpu, end, "/memory.stat") < 0 || /* says what binds from above */
               memlord_i_cpu_field(cpu, "hierarchical_memory_limit", 0, &more) < 0) {
        return -1;
    }
    if (more < limit) limit = more;
    if (!limit) return -1;
    if (limit > machine) return 0;
    if (memlord_i_cpu_value(cpu, end, name[1], &used) || used == UINT64_MAX) return -1;
    if (memlord_i_cpu_read(cpu, end, "/memory.stat") < 0) return -1;
    for (i = 2; i < 4; i++) { /* not said: then it counts as used */
        said = memlord_i_cpu_field(cpu, name[i], 0, &cache);
        if (said < 0) return -1;
        if (said == 0) used = used > cache ? used - cache : 0;
    }
    if (used > limit) used = limit;
    if (limit < *total) *total = limit;
    if (limit - used < *left) *left = limit - used;
    return 0;
}

/* The tightest limit is the total; what is left is what the fullest cgroup leaves, of ours and
   those above it. 0; -1: not known. */
static int memlord_i_cpu_query(memlord_i_cpu *cpu, uint64_t *total, uint64_t *left) {
    size_t top, end = memlord_i_cpu_root(cpu, "/proc");
    uint64_t machine;
    const char *p;
    if (memlord_i_cpu_read(cpu, end, "/meminfo") ||
        memlord_i_cpu_field(cpu, "MemTotal:", 1, &machine) || !machine ||
        memlord_i_cpu_field(cpu, "MemAvailable:", 1, left) || *left > machine ||
        memlord_i_cpu_read(cpu, end, "/self/cgroup") < 0)
        return -1;
    *total = machine;
    p = memlord_i_cpu_cgroup(cpu->text, &cpu->v1);
    if (!p) return 0; /* a kernel without cgroups */
    top = memlord_i_cpu_root(cpu, cpu->v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup");
    end = top ? memlord_i_cpu_path(cpu, top, p[1] ? p : "") : 0;
    if (!end) return -1;
    while (!memlord_i_cpu_level(cpu, end, machine, total, left)) {
        if (end == top) return 0;
        while (end > top && cpu->path[--end] != '/') {}
    }
    return -1;
}

static uint64_t memlord_i_cpu_resident(memlord_i_cpu *cpu) { /* 0: not known */
    const char *p = cpu->text;
    uint64_t size, pages, page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (memlord_i_cpu_read(cpu, memlord_i_cpu_root(cpu, "/proc"), "/self/statm")) return 0;
    if (memlord_i_cpu_number(&p, &size) || *p++ != ' ') return 0;
    if (memlord_i_cpu_number(&p, &pages) || *p != ' ' || pages > UINT64_MAX / page) return 0;
    return pages * page;
}

static MEMLORD_I_COLD int memlord_i_cpu_sample(memlord_i_cpu *cpu, uint64_t *total, uint64_t *used,
                                               uint64_t *process) {
    int saved = errno, cancel = memlord_i_cancel_hold();
    uint64_t all, left;
    int r = memlord_i_cpu_query(cpu, &all, &left);
    if (!r) {
        *total = all;
        *used = all - left;
        *process = memlord_i_cpu_resident(cpu);
    }
    memlord_i_cancel_release(cancel);
    errno = saved;
    return r;
}

#else

typedef struct memlord_i_cpu {
    const char *root; /* has no effect here */
} memlord_i_cpu;

#if MEMLORD_I_WINDOWS
/* K32GetProcessMemoryInfo by name: which header declares it under which name, and in which
   library, differs with the SDK and its settings. */
typedef BOOL(WINAPI *memlord_i_cpu_info_fn)(HANDLE, PROCESS_MEMORY_COUNTERS *, DWORD);
static int memlord_i_cpu_process(PROCESS_MEMORY_COUNTERS *out) {
    HMODULE module = GetModuleHandleA("kernel32.dll");
    FARPROC address = module ? GetProcAddress(module, "K32GetProcessMemoryInfo") : NULL;
    memlord_i_cpu_info_fn fn;
    if (!address) return -1;
    memcpy(&fn, &address, sizeof fn);
    return fn(GetCurrentProcess(), out, sizeof *out) ? 0 : -1;
}
/* 1: a job's limit binds us. It is on committed bytes; of the job's other processes we cannot
   know. */
static int memlord_i_cpu_job(uint64_t *limit) {
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION job;
    if (!QueryInformationJobObject(NULL, JobObjectExtendedLimitInformation, &job, sizeof job,
                                   NULL) ||
        !(job.BasicLimitInformation.LimitFlags & JOB_OBJECT_LIMIT_JOB_MEMORY))
        return 0;
    *limit = job.JobMemoryLimit;
    return *limit != 0;
}
static int memlord_i_cpu_sample(memlord_i_cpu *cpu, uint64_t *total, uint64_t *used,
                                uint64_t *process) {
    MEMORYSTATUSEX machine;
    PROCESS_MEMORY_COUNTERS self;
    uint64_t all, left, limit = 0, less;
    int known = !memlord_i_cpu_process(&self);
    (void)cpu;
    machine.dwLength = sizeof machine;
    if (!GlobalMemoryStatusEx(&machine) || !machine.ullTotalPhys) return -1;
    all = machine.ullTotalPhys;
    left = machine.ullAvailPhys < all ? machine.ullAvailPhys : all;
    if (memlord_i_cpu_job(&limit) && limit < all) {
        if (!known) return -1;
        less = limit > self.PagefileUsage ? limit - self.PagefileUsage : 0;
        if (less < left) left = less;
        all = limit;
    }
    *total = all;
    *used = all - left;
    *process = known ? self.WorkingSetSize : 0;
    return 0;
}
#elif MEMLORD_I_APPLE
/* Used is what cannot be dropped: anonymous, wired and compressed pages, as Activity Monitor
   counts it; free and file-backed pages are left. */
static int memlord_i_cpu_sample(memlord_i_cpu *cpu, uint64_t *total, uint64_t *used,
                                uint64_t *process) {
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
#else /* no portable call tells what is free: a capacity source of the host's can */
static int memlord_i_cpu_sample(memlord_i_cpu *cpu, uint64_t *total, uint64_t *used,
                                uint64_t *process) {
    (void)cpu;
    (void)total;
    (void)used;
    (void)process;
    return -1;
}
#endif
#endif

/* ---------------------------------------------------------------------- >>atomics --
   Owns the words threads share. A word is a struct, so that a bare access does not compile; the
   memory order of a load or a store is in the function's name, and none there is relaxed: read
   by others without any promise beyond the value itself. What reads and writes in one (exchange,
   add, or, cas) is sequentially consistent. Layout and code are the same in C and C++. Where a
   uint64_t is aligned to 4 bytes (i386), one across two cache lines would be read in halves: its
   word asks for 8. */

#if defined(__GNUC__)
#define MEMLORD_I_ALIGNED8 __attribute__((aligned(8)))
#else
#define MEMLORD_I_ALIGNED8
#endif
typedef struct memlord_i_u8 { uint8_t v; } memlord_i_u8;
typedef struct memlord_i_u32 { uint32_t v; } memlord_i_u32;
typedef struct MEMLORD_I_ALIGNED8 memlord_i_u64 { uint64_t v; } memlord_i_u64;
typedef struct memlord_i_ptr { void *v; } memlord_i_ptr;

#if defined(__GNUC__)
#define MEMLORD_I_ATOMIC(kind, type)                                                          \
    static MEMLORD_I_HOT type memlord_i_##kind##_load(const memlord_i_##kind *w) {            \
        return __atomic_load_n(&w->v, __ATOMIC_RELAXED);                                      \
    }                                                                                         \
    static MEMLORD_I_HOT type memlord_i_##kind##_load_acquire(const memlord_i_##kind *w) {    \
        return __atomic_load_n(&w->v, __ATOMIC_ACQUIRE);                                      \
    }                                                                                         \
    static MEMLORD_I_HOT void memlord_i_##kind##_store(memlord_i_##kind *w, type v) {         \
        __atomic_store_n(&w->v, v, __ATOMIC_RELAXED);                                         \
    }                                                                                         \
    static MEMLORD_I_HOT void memlord_i_##kind##_store_release(memlord_i_##kind *w, type v) { \
        __atomic_store_n(&w->v, v, __ATOMIC_RELEASE);                                         \
    }
MEMLORD_I_ATOMIC(u32, uint32_t)
MEMLORD_I_ATOMIC(ptr, void *)
static MEMLORD_I_HOT uint8_t memlord_i_u8_load_acquire(const memlord_i_u8 *w) {
    return __atomic_load_n(&w->v, __ATOMIC_ACQUIRE);
}
static MEMLORD_I_HOT void memlord_i_u8_store_release(memlord_i_u8 *w, uint8_t v) {
    __atomic_store_n(&w->v, v, __ATOMIC_RELEASE);
}
static MEMLORD_I_HOT uint32_t memlord_i_u32_load_seqcst(const memlord_i_u32 *w) {
    return __atomic_load_n(&w->v, __ATOMIC_SEQ_CST);
}
static MEMLORD_I_HOT void *memlord_i_ptr_load_seqcst(const memlord_i_ptr *w) {
    return __atomic_load_n(&w->v, __ATOMIC_SEQ_CST);
}
static MEMLORD_I_HOT void *memlord_i_ptr_exchange(memlord_i_ptr *w, void *v) {
    return __atomic_exchange_n(&w->v, v, __ATOMIC_SEQ_CST);
}
static MEMLORD_I_HOT uint32_t memlord_i_u32_exchange(memlord_i_u32 *w, uint32_t v) {
    return __atomic_exchange_n(&w->v, v, __ATOMIC_SEQ_CST);
}
static MEMLORD_I_HOT uint32_t memlord_i_u32_add(memlord_i_u32 *w, uint32_t v) {
    return __atomic_fetch_add(&w->v, v, __ATOMIC_SEQ_CST);
}
static MEMLORD_I_HOT int memlord_i_u32_cas(memlord_i_u32 *w, uint32_t *expected, uint32_t v) {
    return __atomic_compare_exchange_n(&w->v, expected, v, 0, __ATOMIC_SEQ_CST,
                                       __ATOMIC_RELAXED);
}
#if defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_8)
MEMLORD_I_ATOMIC(u64, uint64_t)
static MEMLORD_I_HOT uint64_t memlord_i_u64_or(memlord_i_u64 *w, uint64_t v) {
    return __atomic_fetch_or(&w->v, v, __ATOMIC_SEQ_CST);
}
static MEMLORD_I_HOT uint64_t memlord_i_u64_add(memlord_i_u64 *w, uint64_t v) {
    return __atomic_fetch_add(&w->v, v, __ATOMIC_SEQ_CST);
}
static MEMLORD_I_HOT int memlord_i_u64_cas(memlord_i_u64 *w, uint64_t *expected, uint64_t v) {
    return __atomic_compare_exchange_n(&w->v, expected, v, 0, __ATOMIC_SEQ_CST,
                                       __ATOMIC_RELAXED);
}
#else
/* A processor without 64-bit atomics (32-bit PowerPC and MIPS, i486): a lock guards a word. Not
   a lock of libatomic: one that another thread holds at a fork stays held in the child. The
   lock's exchange pairs with the release store that drops it. */
#define MEMLORD_I_U64_LOCKS 16
static memlord_i_u32 memlord_i_u64_locks[MEMLORD_I_U64_LOCKS]; /* of a word: by its address */
static memlord_i_u32 *memlord_i_u64_lock(const memlord_i_u64 *w) {
    memlord_i_u32 *lock = &memlord_i_u64_locks[(uintptr_t)w / 8 % MEMLORD_I_U64_LOCKS];
    while (memlord_i_u32_exchange(lock, 1)) memlord_i_yield();
    return lock;
}
static uint64_t memlord_i_u64_load(const memlord_i_u64 *w) {
    memlord_i_u32 *lock = memlord_i_u64_lock(w);
    uint64_t v = w->v;
    memlord_i_u32_store_release(lock, 0);
    return v;
}
static uint64_t memlord_i_u64_load_acquire(const memlord_i_u64 *w) {
    return memlord_i_u64_load(w);
}
static void memlord_i_u64_store(memlord_i_u64 *w, uint64_t v) {
    memlord_i_u32 *lock = memlord_i_u64_lock(w);
    w->v = v;
    memlord_i_u32_store_release(lock, 0);
}
static void memlord_i_u64_store_release(memlord_i_u64 *w, uint64_t v) {
    memlord_i_u64_store(w, v);
}
static uint64_t memlord_i_u64_or(memlord_i_u64 *w, uint64_t v) {
    memlord_i_u32 *lock = memlord_i_u64_lock(w);
    uint64_t before = w->v;
    w->v = before | v;
    memlord_i_u32_store_release(lock, 0);
    return before;
}
static uint64_t memlord_i_u64_add(memlord_i_u64 *w, uint64_t v) {
    memlord_i_u32 *lock = memlord_i_u64_lock(w);
    uint64_t before = w->v;
    w->v = before + v;
    memlord_i_u32_store_release(lock, 0);
    return before;
}
static int memlord_i_u64_cas(memlord_i_u64 *w, uint64_t *expected, uint64_t v) {
    memlord_i_u32 *lock = memlord_i_u64_lock(w);
    uint64_t seen = w->v;
    int same = seen == *expected;
    if (same) w->v = v;
    memlord_i_u32_store_release(lock, 0);
    *expected = seen;
    return same;
}
#endif
static MEMLORD_I_HOT void memlord_i_compiler_barrier(void) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
static MEMLORD_I_HOT void memlord_i_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
#elif defined(_MSC_VER)
/* MSVC: volatile accesses of aligned words are single accesses; on ARM64 they need the barrier
   that __dmb gives, on x86 the processor orders loads and stores itself. */
#if defined(_M_ARM64)
#define MEMLORD_I_FENCE() __dmb(_ARM64_BARRIER_ISH)
#else
#define MEMLORD_I_FENCE() _ReadWriteBarrier()
#endif
#define MEMLORD_I_ATOMIC(kind, type)                                                          \
    static MEMLORD_I_HOT type memlord_i_##kind##_load(const memlord_i_##kind *w) {            \
        return *(type const volatile *)&w->v;                                                 \
    }                                                                                         \
    static MEMLORD_I_HOT type memlord_i_##kind##_load_acquire(const memlord_i_##kind *w) {    \
        type v = *(type const volatile *)&w->v;                                               \
        MEMLORD_I_FENCE();                                                                    \
        return v;                                                                             \
    }                                                                                         \
    static MEMLORD_I_HOT void memlord_i_##kind##_store(memlord_i_##kind *w, type v) {         \
        *(type volatile *)&w->v = v;                                                          \
    }                                                                                         \
    static MEMLORD_I_HOT void memlord_i_##kind##_store_release(memlord_i_##kind *w, type v) { \
        MEMLORD_I_FENCE();                                                                    \
        *(type volatile *)&w->v = v;                                                          \
    }
MEMLORD_I_ATOMIC(u32, uint32_t)
MEMLORD_I_ATOMIC(u64, uint64_t)
MEMLORD_I_ATOMIC(ptr, void *)
static MEMLORD_I_HOT uint8_t memlord_i_u8_load_acquire(const memlord_i_u8 *w) {
    uint8_t v = *(uint8_t const volatile *)&w->v;
    MEMLORD_I_FENCE();
    return v;
}
static MEMLORD_I_HOT void memlord_i_u8_store_release(memlord_i_u8 *w, uint8_t v) {
    MEMLORD_I_FENCE();
    *(uint8_t volatile *)&w->v = v;
}
/* Behind an exchange, which is a full barrier here. */
static MEMLORD_I_HOT uint32_t memlord_i_u32_load_seqcst(const memlord_i_u32 *w) {
    return memlord_i_u32_load_acquire(w);
}
static MEMLORD_I_HOT void *memlord_i_ptr_load_seqcst(const memlord_i_ptr *w) {
    return memlord_i_ptr_load_acquire(w);
}
static MEMLORD_I_HOT void *memlord_i_ptr_exchange(memlord_i_ptr *w, void *v) {
    return InterlockedExchangePointer(&w->v, v);
}
static MEMLORD_I_HOT uint32_t memlord_i_u32_exchange(memlord_i_u32 *w, uint32_t v) {
    return (uint32_t)InterlockedExchange((long volatile *)&w->v, (long)v);
}
static MEMLORD_I_HOT uint64_t memlord_i_u64_or(memlord_i_u64 *w, uint64_t v) {
    return (uint64_t)InterlockedOr64((__int64 volatile *)&w->v, (__int64)v);
}
static MEMLORD_I_HOT uint64_t memlord_i_u64_add(memlord_i_u64 *w, uint64_t v) {
    return (uint64_t)InterlockedExchangeAdd64((__int64 volatile *)&w->v, (__int64)v);
}
static MEMLORD_I_HOT uint32_t memlord_i_u32_add(memlord_i_u32 *w, uint32_t v) {
    return (uint32_t)InterlockedExchangeAdd((long volatile *)&w->v, (long)v);
}
static MEMLORD_I_HOT int memlord_i_u32_cas(memlord_i_u32 *w, uint32_t *expected, uint32_t v) {
    uint32_t seen = (uint32_t)InterlockedCompareExchange((long volatile *)&w->v, (long)v,
                                                         (long)*expected);
    int same = seen == *expected;
    *expected = seen;
    return same;
}
static MEMLORD_I_HOT int memlord_i_u64_cas(memlord_i_u64 *w, uint64_t *expected, uint64_t v) {
    uint64_t seen = (uint64_t)InterlockedCompareExchange64((__int64 volatile *)&w->v, (__int64)v,
                                                           (__int64)*expected);
    int same = seen == *expected;
    *expected = seen;
    return same;
}
static MEMLORD_I_HOT void memlord_i_compiler_barrier(void) { _ReadWriteBarrier(); }
static MEMLORD_I_HOT void memlord_i_pause(void) { YieldProcessor(); }
#endif

/* A word only its owner writes, read by him: an operand like any other, which an atomic load
   is not to compilers. */
static MEMLORD_I_HOT uint64_t memlord_i_u64_own(const memlord_i_u64 *w) { return w->v; }
static MEMLORD_I_HOT void *memlord_i_ptr_own(const memlord_i_ptr *w) { return w->v; }

/* Adds to a word only its owner writes, or the holder of its lock, and readers may look at. */
static MEMLORD_I_HOT void memlord_i_u64_own_add(memlord_i_u64 *w, uint64_t v) {
    memlord_i_u64_store(w, memlord_i_u64_load(w) + v);
}
static MEMLORD_I_HOT void memlord_i_u32_own_add(memlord_i_u32 *w, uint32_t v) {
    memlord_i_u32_store(w, memlord_i_u32_load(w) + v);
}
/* Raises a shared signed word to at least v. */
static void memlord_i_u64_raise(memlord_i_u64 *w, int64_t v) {
    uint64_t seen = memlord_i_u64_load(w);
    while (v > (int64_t)seen && !memlord_i_u64_cas(w, &seen, (uint64_t)v)) {}
}

/* The lock order, innermost first: a thread that takes a lock holds only later ones of this list,
   in every call, in fork and past the exit hook. No function of the host but its clock is called
   with any of them held. */
enum {
    MEMLORD_I_RANK_PAGES,     /* one for the process: the extents of the os allocator */
    MEMLORD_I_RANK_ROW,       /* one a row: the published balance */
    MEMLORD_I_RANK_COUNT,     /* the cells of the orphan record */
    MEMLORD_I_RANK_MEMORY,    /* the ledger's free pieces */
    MEMLORD_I_RANK_SNAPSHOTS, /* the list of them, and the holders of a device at its peak */
    MEMLORD_I_RANK_SCOPES,    /* what is remembered of invocations */
    MEMLORD_I_RANK_PLACE,     /* one a physical device: its sample, limit, reservations, bands */
    MEMLORD_I_RANK_CALLBACKS, /* collection callbacks and their runners; capacity sources */
    MEMLORD_I_RANK_FENCES,    /* fences, their queues, what is to be dropped */
    MEMLORD_I_RANK_INSIDE,    /* no lock: a thread is inside a shard, and others wait for it; the
                                 bits of buckets are taken there, and not checked */
    MEMLORD_I_RANK_SHARD,     /* one a shard: its state and its table; all are taken by number */
    MEMLORD_I_RANK_COLD,      /* one for the process: stb_ds, names, devices, sites, tags, the
                                 index */
    MEMLORD_I_RANK_ORPHAN,    /* the thread record of those that have none */
    MEMLORD_I_RANK_REGISTRY,  /* ledgers, thread records' owners; fork takes all of them */
    MEMLORD_I_RANKS
};

/* A lock for short work. Lock's exchange pairs with unlock's release store. */
typedef struct memlord_i_lock {
    memlord_i_u32 held;
#if defined(MEMLORD_CHECK_LOCKS)
    uint32_t rank;
#endif
} memlord_i_lock;

#if defined(MEMLORD_CHECK_LOCKS)
static MEMLORD_THREAD_LOCAL struct {
    uint32_t held[MEMLORD_I_RANKS]; /* how many of each this thread holds */
    const memlord_i_lock *shard;    /* the last one */
} memlord_i_ranks;
/* How many locks of the first `ranks` ranks the thread holds. */
static uint32_t memlord_i_rank_held(uint32_t ranks) {
    uint32_t i, n = 0;
    for (i = 0; i < ranks; i++) n += memlord_i_ranks.held[i];
    return n;
}
/* Before a lock is waited for. Two of one rank are shards, by number; places, under the cold lock;
   or of several ledgers, in fork. */
static void memlord_i_rank_take(uint32_t rank, const memlord_i_lock *lock) {
    int two = memlord_i_ranks.held[MEMLORD_I_RANK_REGISTRY] ||
              (rank == MEMLORD_I_RANK_SHARD && lock > memlord_i_ranks.shard) ||
              (rank == MEMLORD_I_RANK_PLACE && memlord_i_ranks.held[MEMLORD_I_RANK_COLD]);
    MEMLORD_ASSERT(!memlord_i_rank_held(rank) && (two || !memlord_i_ranks.held[rank]));
    memlord_i_ranks.held[rank]++;
    if (rank == MEMLORD_I_RANK_SHARD) memlord_i_ranks.shard = lock;
}
static void memlord_i_rank_drop(uint32_t rank) {
    MEMLORD_ASSERT(memlord_i_ranks.held[rank]);
    memlord_i_ranks.held[rank]--;
}
/* The thread is inside a shard, perhaps already, or inside none. */
static void memlord_i_rank_inside(uint32_t inside) {
    MEMLORD_ASSERT(!inside || !memlord_i_rank_held(MEMLORD_I_RANK_INSIDE));
    memlord_i_ranks.held[MEMLORD_I_RANK_INSIDE] = inside;
}
/* Before a function of the host is called. */
static void memlord_i_rank_none(void) { MEMLORD_ASSERT(!memlord_i_rank_held(MEMLORD_I_RANKS)); }
#else
#define memlord_i_rank_take(rank, lock) ((void)0)
#define memlord_i_rank_drop(rank) ((void)0)
#define memlord_i_rank_inside(inside) ((void)0)
#define memlord_i_rank_none() ((void)0)
#endif

/* Gives a new lock its rank. A lock that is 0 has the innermost. */
static inline void memlord_i_lock_rank(memlord_i_lock *lock, uint32_t rank) {
#if defined(MEMLORD_CHECK_LOCKS)
    lock->rank = rank;
#else
    (void)lock;
    (void)rank;
#endif
}

#define MEMLORD_I_SPIN_LOOKS 200 /* a turn */
#define MEMLORD_I_SPIN_TURNS 16  /* before the first sleep */
/* One look later; *n counts them. Spins, then gives up its turn, then sleeps for 50 us to 1 ms: a
   real-time thread that gives up its turn lets no thread of a lower priority run, and such a
   thread may hold what this one waits for. */
static MEMLORD_I_COLD void memlord_i_spin(unsigned *n) {
    unsigned turn = ++*n / MEMLORD_I_SPIN_LOOKS;
    memlord_i_pause();
    if (*n % MEMLORD_I_SPIN_LOOKS) return;
    if (turn <= MEMLORD_I_SPIN_TURNS)
        memlord_i_yield();
    else
        memlord_i_nap(turn < MEMLORD_I_SPIN_TURNS + 20 ? (turn - MEMLORD_I_SPIN_TURNS) * 50000u
                                                       : 1000000u);
}
static MEMLORD_I_NOINLINE void memlord_i_lock_take(memlord_i_lock *lock) {
    unsigned n = 0;
    memlord_i_rank_take(lock->rank, lock);
    while (memlord_i_u32_exchange(&lock->held, 1))
        while (memlord_i_u32_load(&lock->held)) memlord_i_spin(&n);
}
static int memlord_i_lock_try(memlord_i_lock *lock) { /* 1: taken */
    if (memlord_i_u32_load(&lock->held) || memlord_i_u32_exchange(&lock->held, 1))
        return 0;
    memlord_i_rank_take(lock->rank, lock);
    return 1;
}
static void memlord_i_lock_drop(memlord_i_lock *lock) {
    memlord_i_rank_drop(lock->rank);
    memlord_i_u32_store_release(&lock->held, 0);
}

/* ----------------------------------------------------------------------- >>ledger --
   Owns the layout of everything below. Invariants: a row (a device, a site on a device, a tag
   on a device) is never removed, so its number and address last as long as the ledger; a
   thread record is recycled, never freed, so its counts never need merging.

   Locks: see MEMLORD_I_RANK_..., which are their order. */

#define MEMLORD_I_SHARD_BITS 10 /* 1024 shards */
#define MEMLORD_I_NOBODY UINT64_MAX /* the owner of a record whose thread is gone */
#define MEMLORD_I_ID_FIRST 3    /* of threads; the states of shards before that are no thread's */
#define MEMLORD_I_TICKETS 8     /* of a thread, open at a time */
#define MEMLORD_I_TAG_DEPTH 64
#define MEMLORD_I_BYTES_MAX ((uint64_t)1 << 48)
#define MEMLORD_I_TYPES ((int)MEMLORD_DEVICE_TYPE_COUNT)
#define MEMLORD_I_PLAIN_BITS 32 /* blocks with more take the general path */
#define MEMLORD_I_DIRECT 2048 /* 16 types x 128 indexes: devices found without a search */

enum {
#define MEMLORD_I_X(name, kind, family, text) MEMLORD_I_STAT_##name,
    MEMLORD_I_STATS(MEMLORD_I_X)
#undef MEMLORD_I_X
    MEMLORD_I_STAT_COUNT
};

/* What one thread did to one row. Written by that thread alone (or under the orphan lock), read
   by all. What it has not yet published, level - base, is always in 0..batch, so the published
   balance is never above the truth and the peak never too high. */
typedef struct memlord_i_cell {
    memlord_i_u64 level, out;    /* bytes: allocated less freed here, may be negative; freed */
    memlord_i_u64 allocs, frees; /* of a site row: frees here, whoever allocated */
    memlord_i_u64 base;          /* the part of the level that is published */
    memlord_i_u64 high;          /* the highest level since the last publication */
    memlord_i_u64 here;          /* of a site row: bytes freed here; of a device's: see trip */
    memlord_i_u64 seen;          /* the row's `turn` at the last publication */
} memlord_i_cell;

/* In a device's row nothing is freed "here": the word is the `out` from which on this thread
   looks at the bands again. 0 makes it look at its next free. */
static inline memlord_i_u64 *memlord_i_cell_trip(memlord_i_cell *cell) { return &cell->here; }

typedef struct memlord_i_row {
    memlord_i_lock lock;        /* guards base; published and turn of batched rows */
    uint32_t slot;              /* of the device */
    void *subject;              /* memlord_i_device, memlord_i_site or a tag's kept name */
    memlord_i_u64 published;    /* signed; <= the live bytes at every moment */
    memlord_i_u64 peak;         /* signed */
    memlord_i_u64 turn;         /* publications so far */
    memlord_i_u64 expected;     /* tags: memlord_expect */
    struct {                    /* what a reset, or a collection (freed), starts from */
        uint64_t in, out, freed, allocs, frees, here;
    } base;
} memlord_i_row;

/* A row summed over its threads, since the last reset. */
typedef struct memlord_i_sum {
    uint64_t in, out; /* since create, modulo 2^64 */
    uint64_t total_in, total_out, freed, allocs, frees, here, live, blocks, peak, peak_error;
} memlord_i_sum;

enum { MEMLORD_I_DEVICE, MEMLORD_I_SITE, MEMLORD_I_TAG, MEMLORD_I_BOOKS };

/* Rows and cells come in chunks of 16 behind an array that grows by being replaced; the older
   arrays stay readable until the ledger ends. */
#define MEMLORD_I_CHUNK_BITS 4
#define MEMLORD_I_CHUNK (1u << MEMLORD_I_CHUNK_BITS)
typedef struct memlord_i_chunks {
    struct memlord_i_chunks *older;
    uint64_t cap; /* of the array that follows, each of it cell[16] or row[16] */
} memlord_i_chunks;
static inline memlord_i_ptr *memlord_i_chunks_at(const memlord_i_chunks *chunks, uint64_t i) {
    return (memlord_i_ptr *)(uintptr_t)(chunks + 1) + i;
}
typedef memlord_i_ptr memlord_i_book; /* memlord_i_chunks * */

enum { /* memlord_i_thread.special */
    MEMLORD_I_SPECIAL_TAG = 1,
    MEMLORD_I_SPECIAL_ORPHAN = 2, /* the record of those that have none: its cells are locked */
    MEMLORD_I_SPECIAL_SITES = 4,  /* the ledger counts sites */
    MEMLORD_I_SPECIAL_TRACE = 8,  /* the ledger logs every call */
    MEMLORD_I_SPECIAL_FENCE = 16, /* no memlord_i_barrier_all: entering takes an exchange. Is
                                     never cleared */
    MEMLORD_I_SPECIAL_TICKET = 32, /* reservations to take allocations off */
    MEMLORD_I_SPECIAL_SCOPE = 64, /* it was in a scope; taken back by the next call that is not */
    MEMLORD_I_SPECIAL_ROWS = MEMLORD_I_SPECIAL_TAG | MEMLORD_I_SPECIAL_SITES |
                             MEMLORD_I_SPECIAL_SCOPE
};

/* An event in the ring.
     what   bytes:49 | kind:4 | device slot:8
     where  site row:20 | tag row:16 | scope:28 */
typedef struct memlord_i_note {
    memlord_i_u64 stamp, storage, what, where;
} memlord_i_note;
typedef struct memlord_i_read { /* one that was read */
    uint64_t stamp, storage, what, where;
    uint32_t thread;
} memlord_i_read;
#define MEMLORD_I_NOTE_KIND(what) ((uint32_t)((what) >> 49) & 15u)
#define MEMLORD_I_NOTE_SLOT(what) ((uint32_t)((what) >> 53) & 255u)

/* -- scopes -- */

#define MEMLORD_I_SCOPE_DEPTH 64

/* What one thread did in one invocation of a scope. */
typedef struct memlord_i_effort {
    uint64_t start, stamps; /* when, how long */
    uint64_t bytes, blocks; /* signed: deltas */
    uint64_t before, after; /* live bytes of all devices */
    uint64_t peak;          /* above the start */
    const char *shapes;     /* kept */
} memlord_i_effort;
typedef struct memlord_i_invocation { /* the same, where others read it */
    memlord_i_u64 start, stamps, bytes, blocks, before, after, peak;
    memlord_i_ptr shapes;
} memlord_i_invocation;

/* The last invocations; what follows is 8 to 64 of them. */
typedef struct memlord_i_history {
    uint64_t cap;
    memlord_i_invocation at[1];
} memlord_i_history;
#define MEMLORD_I_HISTORY_SIZE(cap)                                                           \
    (sizeof(memlord_i_history) + (size_t)((cap) - 1) * sizeof(memlord_i_invocation))

typedef struct memlord_i_extreme {
    memlord_i_u64 total, min, max; /* signed */
} memlord_i_extreme;

/* What one thread did in one scope, in this epoch. */
typedef struct memlord_i_stint {
    struct memlord_i_stint *next;
    struct memlord_i_scope *scope;
    uint32_t thread;
    memlord_i_history *history; /* replaced under the scopes lock */
    memlord_i_u64 epoch, count, running, peak;
    memlord_i_u64 token; /* the second word of those that may be adopted; 0: none */
    memlord_i_extreme bytes, blocks, stamps;
    memlord_i_u64 devices[MEMLORD_MAX_DEVICES + 1]; /* signed: deltas in all */
} memlord_i_stint;

typedef struct memlord_i_scope {
    uint32_t id;
    struct memlord_i_scope *parent;
    const char *name, *path;               /* kept */
    struct memlord_i_site *site;           /* NULL: begun by name */
    memlord_i_ptr stints;                  /* memlord_i_stint *; push only */
    memlord_i_u64 device_ns;
    memlord_i_u64 birth;                   /* the last: mark:26 | number:26 */
} memlord_i_scope;

/* A frame's view of a device: the thread's level when it began; the highest since. */
typedef struct memlord_i_level {
    uint64_t from, high;
} memlord_i_level;
#define MEMLORD_I_LEVELS_SIZE ((MEMLORD_MAX_DEVICES + 1) * sizeof(memlord_i_level))

/* A scope a thread is in. */
typedef struct memlord_i_frame {
    memlord_i_scope *scope;
    memlord_i_stint *stint;
    uint64_t adopted;    /* the token's second word; 0: begun here */
    int exported;        /* stint->token is of this frame */
    uint32_t devices;    /* of `at` that are set */
    uint64_t start, before, blocks;
    const char *shapes;
    memlord_i_level *at; /* by slot */
} memlord_i_frame;

typedef struct memlord_i_nest { /* a thread's scopes */
    uint32_t depth;
    memlord_i_frame frame[MEMLORD_I_SCOPE_DEPTH];
} memlord_i_nest;

/* Events of one thread, in a row. */
typedef struct memlord_i_burst {
    memlord_i_u64 turn;   /* another each time it is given out; 0: not yet, or just now */
    memlord_i_u32 taken;  /* a thread writes it */
    memlord_i_u32 count, thread;
    uint32_t most;        /* events it has room for */
    uint32_t slot;        /* of all events in it; MEMLORD_I_SLOTS_DIFFER: look at each */
    memlord_i_note at[1]; /* as many as ring->most */
} memlord_i_burst;
#define MEMLORD_I_SLOTS_DIFFER 256u
typedef struct memlord_i_ring {
    size_t size, stride, capacity;
    uint64_t bursts;
    uint32_t most;      /* events a burst */
    memlord_i_u64 turn; /* bursts asked for so far; they follow */
} memlord_i_ring;

/* What a thread looked up by a pointer: see >>sites. */
typedef struct memlord_i_memo {
    const void *key;  /* NULL: vacant */
    void *value;      /* a cell, a kept name or a stint */
    uint64_t bits;    /* of a row: its bits of word2 */
    uint32_t salt;    /* kind, and what else belongs to the key */
} memlord_i_memo;
#define MEMLORD_I_MEMO_MIN 32   /* in the thread record, and ... */
#define MEMLORD_I_MEMO_MAX 8192 /* ... in memory of its own */
#define MEMLORD_I_MEMO_PATH 8   /* probes before one is evicted */

/* A thread, in one ledger. */
typedef struct memlord_i_thread {
    memlord_i_ptr inside;  /* the shard being worked on: see >>map */
    uint32_t id;           /* 3, 4, 5 ...: the state of the shards it owns */
    memlord_i_u32 special; /* what keeps a call off the plain path */
    memlord_i_u32 fenced;  /* it has seen MEMLORD_I_SPECIAL_FENCE, and enters by an exchange */
    const char *tag;       /* the innermost, a kept name; NULL: none */
    memlord_i_memo *memo;     /* the cache: open addressing; the last entry stays vacant */
    uint32_t memo_mask;       /* of the homes */
    uint32_t memo_count;      /* at most 3/8 of those */
    uint32_t tag_depth;
    memlord_i_ptr devices[MEMLORD_MAX_DEVICES + 1]; /* cells of devices, by slot; 0: none */
    memlord_i_book books[MEMLORD_I_BOOKS];          /* cells of sites and tags */
    struct {
        memlord_i_ptr *at;
        size_t cap;
    } chunks[MEMLORD_I_BOOKS]; /* the same, for the thread itself: no acquire, no header */
    memlord_i_ptr next;    /* all records of the ledger; push only */
    memlord_i_u64 owner;   /* its thread's number; 0: free, or the orphans' */
    memlord_i_burst *burst; /* where its events go; NULL: nowhere yet */
    uint32_t scope;        /* the innermost; 0: none */
    memlord_i_nest *nest;  /* its scopes; NULL: it had none */
    uint64_t born_of, born_in; /* lord->born, and what it is in this scope; 0: look it up */
    struct memlord *lord;
    uint32_t also;           /* slot of another device the call took bytes from */
    memlord_ticket retrying; /* what its next alloc comes off, and nothing else */
    uint32_t open_tickets; /* of `tickets`, some of them closed by another thread since */
    memlord_ticket tickets[MEMLORD_I_TICKETS];
    const char *tags[MEMLORD_I_TAG_DEPTH]; /* what to go back to */
    memlord_i_memo memo_first[MEMLORD_I_MEMO_MIN + MEMLORD_I_MEMO_PATH];
} memlord_i_thread;

/* A block of the map: 24 bytes.
     word1   bytes:49 | device slot:8 | references:7 (127: in the side record)
     word2   side:1 | site row:20 | tag row:16 | born:27, or a side record's address | 1
     born    the mark, or in a scope 1:1 | birth:26 */
typedef struct memlord_i_entry {
    uint64_t key, word1, word2;
} memlord_i_entry;

/* What went from one device to another. */
typedef struct memlord_i_route {
    struct memlord_i_route *next;
    uint32_t from, to;
    memlord_i_u64 moves, bytes;
} memlord_i_route;

/* The mark and the scope of blocks that were allocated in one. */
typedef struct memlord_i_birth {
    uint64_t mark;
    uint32_t scope;
} memlord_i_birth;

/* A named piece of a block. */
typedef struct memlord_i_part {
    uint64_t offset, bytes;
    memlord_meta meta; /* kept */
} memlord_i_part;
typedef struct memlord_i_parts {
    uint64_t bytes;
    uint32_t count, room;
    memlord_i_part *at[1]; /* as many as there is room for, by offset */
} memlord_i_parts;
#define MEMLORD_I_PARTS_SIZE(room)                                                            \
    (sizeof(memlord_i_parts) + (size_t)((room) - 1) * sizeof(memlord_i_part *))

/* What few blocks have: a description, more references than fit, fences to wait for. */
typedef struct memlord_i_side {
    uint64_t word2; /* the entry's own */
    uint64_t refs;  /* when the entry says 127 */
    struct memlord_i_fence *fences; /* recorded uses; of a pending block those not yet done */
    uint64_t serial; /* not 0: freed, and pending; no two are the same */
    uint64_t epoch;  /* when that was */
    memlord_i_parts *parts; /* NULL: none */
    memlord_meta meta;
} memlord_i_side;

/* A fence taken from the host. `sibling` and `serial` belong to the holder of the block's side
   record; the rest is under the fences lock. */
typedef struct memlord_i_fence {
    memlord_fence fence;
    struct memlord_i_fence *sibling; /* of the same block, the oldest first */
    struct memlord_i_fence *next, *previous; /* in its queue, in `aside`; next: in `drops` */
    struct memlord_i_queue *queue;   /* NULL: it is in none */
    void *asker;          /* the thread that is in its functions, or about to be; else NULL */
    uint64_t key, serial; /* of the pending block; serial 0: it is on no pending block */
    uint32_t slot;
    uint32_t widowed;     /* its block is gone: the asker frees it */
    uint32_t answered;    /* `drop` was called, or is about to be */
    int told;             /* the answer it gave before its turn; 0: none */
} memlord_i_fence;

/* The pending fences of a device and `queue`, in order of the free. */
typedef struct memlord_i_queue {
    struct memlord_i_queue *next, *previous; /* of its type; the first's previous is the last */
    memlord_i_fence *first, *last;
    memlord_i_fence *unasked; /* it and all behind it were never asked; NULL: all were */
    uint64_t id;              /* memlord_fence.queue */
    uint64_t round;           /* the poll that asked its first; 0: none yet */
    uint64_t late;            /* the time from which on any call asks again */
    uint32_t slot, rest, due; /* the calls it is left alone; the call that asks again */
} memlord_i_queue;

/* The queues of a device type; under the fences lock, but for what is atomic. */
typedef struct memlord_i_pends {
    memlord_i_queue *first; /* the one to ask next */
    memlord_i_u32 calls;    /* on the type while it had queues; threads may lose some */
    memlord_i_u32 due;      /* the call that looks for a queue to ask */
    memlord_i_u64 late;     /* the time from which on any call does */
} memlord_i_pends;

typedef struct memlord_i_shard {
    memlord_i_u32 state;     /* NEW, SHARED, MOVING, or whose it is: see >>map */
    memlord_i_u32 displaced; /* entries outside their home */
    char *table;
    uint32_t size;           /* buckets */
    memlord_i_lock lock;     /* changes of state, and moves */
    uint32_t held_state;     /* what it was before it was stopped */
} memlord_i_shard;

/* Addresses to rows and records, read without a lock. Entries are added under the cold lock and
   never removed; a full table is replaced, and stays readable. */
typedef struct MEMLORD_I_ALIGNED8 memlord_i_index {
    uint64_t mask, count; /* mask + 1 pairs follow */
    struct memlord_i_index *older;
} memlord_i_index;
typedef struct memlord_i_pair {
    memlord_i_u64 key, value; /* value is written before key */
} memlord_i_pair;

typedef struct memlord_i_site {
    memlord_i_ptr shown;  /* const memlord_site *: replaced whole by a rename */
    void *address;        /* a return address; NULL for planted ones */
    memlord_i_u32 resolved; /* its symbol was looked up */
    memlord_site first;     /* what it is shown as until it is renamed */
} memlord_i_site;

/* A thread of our own. */
typedef struct memlord_i_helper {
    memlord_i_u32 state;
    memlord_i_u32 stop; /* 1: it ends, and is joined */
    memlord_i_event wake;
    memlord_i_worker worker;
    memlord_i_job job;
} memlord_i_helper;

enum { /* memlord_i_helper.state */
    MEMLORD_I_HELPER_NONE,
    MEMLORD_I_HELPER_BUSY,  /* another thread starts, wakes or joins it */
    MEMLORD_I_HELPER_RUNS,
    MEMLORD_I_HELPER_FAILED /* no thread could be had: the caller samples */
};

/* One per physical device: cpu, pinned and mapped are at one place. */
typedef struct memlord_i_place {
    memlord_i_lock lock;    /* all below but `sampling`, and the bands of its devices */
    memlord_i_u32 sampling; /* somebody asks the source */
    void *sampler;          /* who */
    memlord_device device;  /* whose source is asked */
    memlord_capacity sample;
    uint64_t sampled;       /* when */
    uint64_t limit;         /* 0: none */
    double fraction;        /* what it follows; 0: it was set in bytes */
    uint64_t held;          /* reserved, and not yet recorded */
    uint64_t arriving;      /* of held: being recorded at this moment */
    uint32_t spare_ticket;  /* a closed one; the list goes on in its `next` */
    int failing;            /* the last alloc_retry found nothing */
    memlord_i_helper poller;
    struct memlord *lord;
} memlord_i_place;

enum { /* memlord.polling */
    MEMLORD_I_POLLING_WANTED, /* where bands have something to decide */
    MEMLORD_I_POLLING_ALL,    /* memlord_poller_start */
    MEMLORD_I_POLLING_OFF     /* memlord_poller_stop */
};

/* The last request that found no memory. */
typedef struct memlord_i_oom {
    uint64_t bytes, live, used; /* used UINT64_MAX: not known */
    const memlord_site *site;
    uint64_t at; /* 0: there was none */
} memlord_i_oom;

/* -- snapshots -- */

typedef struct memlord_i_held { /* by a device, at one moment */
    uint64_t live, pending, reserved, peak, blocks;
} memlord_i_held;
#define MEMLORD_I_SNAPSHOTS 256 /* kept: one less, which a report may add */
/* What follows is `devices` of memlord_i_held, by slot, and `tops` of memlord_block_info. */
typedef struct memlord_i_snapshot {
    struct memlord_i_snapshot *next; /* of those that are out */
    size_t size, tops;
    uint64_t at;      /* ns since create */
    const char *name; /* kept; NULL: periodic */
    uint64_t live, blocks;
    uint32_t devices;
} memlord_i_snapshot;

/* Who reads the list: part of a report, and there as long as the ledger if that is left by longjmp.
   Under the snapshots lock. */
typedef struct memlord_i_reader {
    struct memlord_i_reader *next;
    const void *thread;
} memlord_i_reader;

typedef struct memlord_i_recorder { /* takes them */
    memlord_i_u32 wanted, interval; /* ms */
    memlord_i_u64 due;              /* by the ledger's clock */
    memlord_i_helper helper;
} memlord_i_recorder;

/* How what serves wishes for reports reaches them: a program that has none need not link any. */
typedef struct memlord_i_saver {
    void (*serve)(struct memlord *lord);
    void (*end)(struct memlord *lord);
} memlord_i_saver;

#define MEMLORD_I_HOLDERS 16
typedef struct memlord_i_holders {
    uint64_t at, bytes; /* ns since create; live then */
    size_t tags, sites;
    memlord_tag_stat tag[MEMLORD_I_HOLDERS];
    memlord_site_stat site[MEMLORD_I_HOLDERS];
} memlord_i_holders;

/* What the bands know of a device; under its place's lock, but for what is atomic. */
typedef struct memlord_i_watch {
    memlord_i_u64 soon_up, soon_low; /* signed: published bytes at which to look again */
    memlord_i_u32 nearby;  /* every call looks */
    memlord_i_u32 wanted;  /* the next call looks: something has come to its mark */
    memlord_i_u32 seen;  /* its poller was thought of */
    memlord_i_u64 holders_at; /* peak from which on who holds it is noted anew */
    memlord_i_u64 looks;
    uint64_t quantum;    /* bytes a thread frees before it looks again; 0: it need not */
    int spent;           /* a collection ran: not before the metric has moved */
    uint64_t live, freed; /* when it ended */
    memlord_i_u32 running; /* a collection; taken by exchange */
    void *runner;        /* who, and what: under the callbacks lock */
    struct memlord_i_callback *callback;
} memlord_i_watch;

typedef struct memlord_i_device {
    memlord_device device;
    memlord_i_ptr label;                       /* const char * */
    memlord_i_u64 arena;                       /* balance */
    memlord_i_u64 count[MEMLORD_I_STAT_COUNT]; /* what no cell counts */
    memlord_i_ptr place;                       /* memlord_i_place *: where its bytes are */
    memlord_i_watch watch;
    memlord_i_oom oom;                         /* under its place's lock */
    memlord_i_holders *holders;                /* at its peak; under the snapshots lock */
    memlord_i_place own;
} memlord_i_device;

typedef struct memlord_i_strategy { /* replaced whole */
    size_t n;
    const memlord_band *bands; /* right behind, but for the default one */
} memlord_i_strategy;

typedef struct memlord_i_callback {
    struct memlord_i_callback *next;
    uint64_t serial;
    memlord_gc_fn fn;
    void *user;
    int type;
    int quiet;  /* not for the default strategy */
    int orphan; /* it removed itself: freed by the run it is in */
} memlord_i_callback;

typedef struct memlord_i_source {
    memlord_capacity_fn fn;
    void *user;
} memlord_i_source;

typedef struct memlord_i_reservation { /* a ticket; under its place's lock */
    memlord_i_place *place; /* for good */
    uint64_t left;
    uint32_t turn;   /* odd: open; half of a ticket's number */
    uint32_t next;
} memlord_i_reservation;

/* A charge is one compare-and-swap of `word`: turn:15 | bytes:49. */
typedef struct memlord_i_balance {
    memlord_i_u64 word, peak, refused, limit;
    memlord_i_u32 turn;  /* odd: open; the rest is under the cold lock */
    uint32_t next;
    memlord_device device;
    char name[48];
} memlord_i_balance;

/* Who waits for frees. On the stack of the waiter; under the callbacks lock. */
typedef struct memlord_i_waiter {
    struct memlord_i_waiter *next;
    memlord_i_place *place;
    uint64_t needed, out; /* bytes; what was freed there when it began */
    memlord_i_event event;
} memlord_i_waiter;

enum { /* memlord.alert: what the end of a call has to do */
    MEMLORD_I_ALERT_REVIEW = 1, /* more threads than the margins allow for, or some to sweep */
    MEMLORD_I_ALERT_DROPS = 2,  /* fences are to be dropped */
    MEMLORD_I_ALERT_WAITER = 4, /* somebody waits for a free */
    MEMLORD_I_ALERT_POLLER = 8, /* a device came, and all are to be polled */
    MEMLORD_I_ALERT_EVENTS = 16, /* they are kept; nothing to look after */
    MEMLORD_I_ALERT_SAVE = 32,  /* a report is asked for */
    MEMLORD_I_ALERT_PENDS = 64, /* shifted by a device type: fences of it are queued */
    MEMLORD_I_ALERT_LOOK = 64 << MEMLORD_DEVICE_TYPE_COUNT /* times the devices nearby or wanted */
};
#define MEMLORD_I_ALERT_PENDS_ALL (MEMLORD_I_ALERT_LOOK - MEMLORD_I_ALERT_PENDS)

/* A cold table: an stb_ds map by strings and the memory it lies in, see >>names. An item begins with
   its key, a char *. Items move when the table grows; nothing is removed. */
typedef struct memlord_i_dict_block {
    struct memlord_i_dict_block *next;
    size_t size;
} memlord_i_dict_block;
typedef struct memlord_i_dict {
    size_t item; /* bytes of one */
    void *items; /* of stb_ds; NULL: empty */
    memlord_i_dict_block *blocks;
    size_t left; /* unused bytes at the end of the first block */
} memlord_i_dict;

typedef struct memlord_i_string { /* an item of memlord.names */
    char *key;
    memlord_i_scope *scope; /* with this path; NULL: none */
} memlord_i_string;

typedef struct memlord_i_spare { /* a block held before it is needed: see >>names */
    void *block;
    size_t size;
} memlord_i_spare;

/* Memory of the ledger's own, in grains of 128 bytes: see >>memory. */
#define MEMLORD_I_GRAIN_BITS 7
#define MEMLORD_I_PIECE_MAX 15 /* at most REGION_MIN */
#define MEMLORD_I_REGION_MIN 15
#define MEMLORD_I_REGION_MAX 18
#define MEMLORD_I_CLASSES (MEMLORD_I_REGION_MAX - MEMLORD_I_GRAIN_BITS + 1)
typedef struct memlord_i_region { /* one block of the allocator: this, runs, data */
    struct memlord_i_region *next;
    size_t size;      /* of the block */
    uint32_t grains;  /* of data */
    uint16_t *run;    /* of the first and the last grain of a free piece: its grains; else 0 */
    char *data;       /* aligned to a grain */
} memlord_i_region;
typedef struct memlord_i_piece { /* free */
    struct memlord_i_piece *next, **back;
    memlord_i_region *region;
    uint32_t at, grains;
} memlord_i_piece;

enum { /* memlord.hooks: what the plain path must not do alone */
    MEMLORD_I_HOOK_SITES = 1,
    MEMLORD_I_HOOK_TRACE = 2
};

struct memlord {
    memlord_i_shard shards[1u << MEMLORD_I_SHARD_BITS]; /* first: found without an offset */

    /* read on every call, written rarely */
    uint64_t generation;
    memlord_i_u32 hooks;
    memlord_i_u32 alert;    /* MEMLORD_I_ALERT_... */
    memlord_i_u32 watching; /* bit a device type: bands and a callback */
    memlord_i_u64 born;  /* the current mark, shifted into place */
    uint64_t batch;      /* bytes a cell may hold back; 0 publishes every call */
    memlord_i_u8 slot_of[MEMLORD_I_DIRECT + 1]; /* 0: not seen; the last stays 0 */
    uint16_t slot_type[256]; /* written before a slot is published */
    uint32_t slot_alerts[256]; /* so, too: those that concern the calls on it */
    memlord_i_ptr device[MEMLORD_MAX_DEVICES + 1]; /* memlord_i_device *, from slot 1 */
    memlord_i_book rows[MEMLORD_I_BOOKS];
    memlord_i_u32 row_count[MEMLORD_I_BOOKS]; /* from 1: row 0 means none */
    memlord_i_ptr index;
    memlord_i_ptr threads;
    memlord_i_thread *orphan;
    memlord_i_lock orphan_lock, count_lock;
    memlord_i_u32 next_id;
    uint32_t sweep_at;      /* records from which on dead owners are looked for */
    memlord_i_u64 dropped[MEMLORD_DEVICE_TYPE_COUNT]; /* allocs whose frees are still to come */
    memlord_i_u64 lost_allocs, lost_bytes; /* dropped, on devices there was no memory for */
    memlord_i_u64 lost_unknown;           /* unknown_frees on such devices */
    memlord_i_u64 lost_events, lost_tags; /* of no device */
    memlord_i_u32 said_alloc, said_tag; /* the first of those dropped was logged */
    memlord_i_ptr ring;         /* memlord_i_ring * */
    uint32_t ticking;           /* stamps are the processor's */
    memlord_i_ptr routes;       /* memlord_i_route *; push only, under the cold lock */
    memlord_i_u64 pair_ps;      /* what an alloc and a free cost; 0: not yet measured */
    memlord_i_book births;      /* from 1 */
    uint32_t birth_count;       /* under the cold lock */
    memlord_i_book scopes;      /* of memlord_i_ptr, from 1 */
    memlord_i_u32 scope_count;
    memlord_i_lock scopes_lock;
    memlord_i_u32 parted;       /* some block had parts */
    memlord_i_u64 lost_scopes;
    memlord_i_lock snapshots_lock;
    struct memlord_i_snapshot *snapshots[MEMLORD_I_SNAPSHOTS], *snapshots_out;
    memlord_i_holders *spare_holders; /* under the snapshots lock, too */
    uint32_t snapshot_count;
    memlord_i_reader *snapshot_readers;
    memlord_i_u64 lost_snapshots;
    memlord_i_recorder recorder;
    memlord_i_ptr saver;        /* const memlord_i_saver *: set with the first wish */
    memlord_i_u32 exit_format;  /* and 1 more; 0: nothing is saved then */
    memlord_i_ptr exit_directory; /* const char *, kept; NULL: output_dir */
    const char *output_dir, *labels; /* kept */

    /* fences and bands */
    memlord_i_lock fences_lock;
    memlord_i_queue *spare_queues; /* with those in use one a fence: a free needs no memory */
    memlord_i_fence *drops; /* their blocks are gone */
    memlord_i_fence *aside; /* recorded uses of blocks that tokens have: the first of each */
    memlord_i_pends pends[MEMLORD_DEVICE_TYPE_COUNT];
    memlord_i_u64 fences, serial, epoch; /* how many; the last number; resets */
    memlord_i_lock callbacks_lock;
    memlord_i_callback *callbacks;
    memlord_i_source source[MEMLORD_DEVICE_TYPE_COUNT];
    memlord_i_waiter *waiters;
    memlord_i_ptr strategy; /* memlord_i_strategy *; NULL: none */
    memlord_i_u32 crew;     /* threads the margins allow for */
    memlord_i_book reservations, balances;
    memlord_i_u32 reservation_count, balance_count; /* from 1 */
    uint32_t spare_balance; /* under the cold lock */
    memlord_i_place host;   /* cpu, pinned and mapped */
    memlord_i_cpu cpu;
    memlord_retry retry;    /* the default policy */
    uint32_t flags;
    memlord_i_u32 poll_ms;
    uint32_t poll_fixed;    /* by the environment */
    memlord_i_u32 polling;  /* MEMLORD_I_POLLING_... */

    /* cold */
    struct memlord *next, **back; /* live ledgers, under the registry lock */
    memlord_allocator allocator;
    memlord_logger logger;
    memlord_clock clock;
    int log_level;
    uint64_t started, started_stamp, started_wall;
    memlord_i_u64 own_bytes;
    memlord_i_lock memory_lock;
    memlord_i_piece *pieces[MEMLORD_I_CLASSES]; /* by the log of their grains */
    memlord_i_region *regions;
    uint64_t region_bytes;
    memlord_i_dict names;      /* of memlord_i_string: every string once */
    uint64_t name_bytes;
    memlord_i_spare ready;     /* what a cold call wanted, allocated before it tries again */
    size_t wanted;
};

/* The only state of the process, right from the start at zero. */
static struct {
    memlord_i_lock lock; /* the registry lock */
    memlord_i_lock cold;
    memlord_i_lock pages_lock; /* innermost: the extents of the os allocator */
    struct memlord_i_extent *extents;
    memlord *ledgers;
    memlord_i_dict *growing; /* the table stb_ds works on; under the cold lock */
    memlord_i_ptr global; /* memlord * */
    memlord_i_u64 generation;
    memlord_i_u32 ready; /* hooks below are in place */
    memlord_i_u32 at_exit; /* so is the one for memlord_save_at_exit */
    memlord *saving;     /* what that works on: its destroy waits; under the registry lock */
    memlord_i_u32 barrier; /* memlord_i_barrier_all works; once it is refused, 0 for good */
    uint64_t pid;        /* differs from the caller's in a child that ran no fork handler */
    int exit_key_ready;
#if MEMLORD_I_WINDOWS
    DWORD exit_key;
#else
    pthread_key_t exit_key;
#endif
} memlord_i_process;

/* What a line of MEMLORD_DEBUG says beside its own. */
typedef struct memlord_i_told {
    uint64_t blocks, bytes;  /* of a call of n: opened or closed */
    uint64_t implicit, over; /* closed because another was opened there: how many, bytes */
    uint64_t unknown;        /* not closed, as nobody knows them */
    memlord_device from_device;
    uint64_t from;           /* what it was before; 0: nothing */
} memlord_i_told;

/* A thread's record in a ledger. Generations are unique, so an entry of a ledger that was destroyed
   never matches again. */
typedef struct memlord_i_used {
    uint64_t generation;
    memlord_i_thread *thread;
} memlord_i_used;
#define MEMLORD_I_USED 8

/* The current thread. Only the thread itself reads and writes it, and no pointer into it is ever
   followed: it may be freed before the thread's last call, which then finds a new one at zero.
   generation 0 matches no ledger. */
static MEMLORD_THREAD_LOCAL struct {
    uint64_t generation;     /* of the ledger `thread` is for: the last one used */
    memlord_i_thread *thread;
    memlord_i_used used[MEMLORD_I_USED]; /* ledgers used lately, by their generation */
    uint64_t number;         /* memlord_i_thread_number; 0: not asked yet */
    uint32_t hooked;         /* its exit hook is set */
    memlord *orphaned;       /* the ledger in which it holds the orphan lock; NULL: none */
    uint32_t busy;           /* inside the host's allocator on our behalf */
    uint64_t retiring;       /* generation of the ledger in whose fences it is; 0: none */
    uint32_t leaving;        /* its exit hook has run */
    uint32_t helps;          /* it is a memlord_i_helper */
    memlord_i_told odd;     /* what the line of a call under way is to say: see >>log */
} memlord_i_self;

typedef char memlord_i_check_cell[sizeof(memlord_i_cell) == 64 ? 1 : -1];
typedef char memlord_i_check_row[offsetof(memlord_i_row, published) % 8 ? -1 : 1];
typedef char memlord_i_check_entry[sizeof(memlord_i_entry) == 24 ? 1 : -1];

#define MEMLORD_I_BYTES(word1) ((word1) & (((uint64_t)1 << 49) - 1))
#define MEMLORD_I_SLOT(word1) ((uint32_t)((word1) >> 49) & 255u)
#define MEMLORD_I_REFS(word1) ((uint32_t)((word1) >> 57))
#define MEMLORD_I_REFS_ONE ((uint64_t)1 << 57)
#define MEMLORD_I_REFS_MANY 127u
#define MEMLORD_I_SITE_ROW(word2) ((uint32_t)((word2) >> 1) & 0xfffffu)
#define MEMLORD_I_TAG_ROW(word2) ((uint32_t)((word2) >> 21) & 0xffffu)
#define MEMLORD_I_BORN(word2) ((word2) >> 37)
#define MEMLORD_I_BORN_BITS 27
#define MEMLORD_I_MARK_MAX (((uint64_t)1 << (MEMLORD_I_BORN_BITS - 1)) - 1)
#define MEMLORD_I_BORN_SCOPED (MEMLORD_I_MARK_MAX + 1) /* with the number of a birth */
#define MEMLORD_I_BIRTHS_MAX (1u << 20)
#define MEMLORD_I_ROWS_MASK (((uint64_t)1 << 37) - 1)
#define MEMLORD_I_SITE_ROWS_MAX 0xfffffu
#define MEMLORD_I_SITE_BITS ((uint64_t)MEMLORD_I_SITE_ROWS_MAX << 1)
#define MEMLORD_I_TAG_BITS_OF_ROWS ((uint64_t)MEMLORD_I_TAG_ROWS_MAX << 21)
#define MEMLORD_I_TAG_ROWS_MAX 0xffffu

static MEMLORD_I_HOT memlord_i_device *memlord_i_device_at(memlord *lord, uint32_t slot) {
    return (memlord_i_device *)memlord_i_ptr_load(&lord->device[slot]);
}
/* All threads' records, one after the other. The acquire pairs with memlord_i_thread_start. */
static MEMLORD_I_HOT memlord_i_thread *memlord_i_thread_first(const memlord *lord) {
    return (memlord_i_thread *)memlord_i_ptr_load_acquire(&lord->threads);
}
static MEMLORD_I_HOT memlord_i_thread *memlord_i_thread_after(const memlord_i_thread *t) {
    return (memlord_i_thread *)memlord_i_ptr_load(&t->next);
}

/* ----------------------------------------------------------------------- >>memory --
   Owns the ledger's own memory: regions from its allocator, 32 KiB at first and then an eighth
   of what is held, cut into whole grains of 128 bytes; what is larger than 32 KiB comes from the
   allocator directly, and goes back to it. A free piece joins its neighbours, whatever their
   sizes: all shards of a ledger grow from one size to the next at about the same time, and the
   tables they leave must make room for those that come. Pieces are zeroed, and aligned to 128.
   Invariants: the allocator is called with no lock of the ledger held and with the thread
   marked busy, so a call it makes into this ledger passes through. Lock: memory. */

/* Before and after a call of the host's allocator. A thread without a record drops the orphan lock
   meanwhile: the allocator may wait for a lock of the host, held by a thread that calls MemLord. No
   call keeps anything in the orphan record over an allocation. */
static MEMLORD_I_COLD uint64_t memlord_i_busy_begin(void) {
    uint64_t generation = memlord_i_self.generation;
    memlord_i_self.generation = 0;
    if (!memlord_i_self.busy++ && memlord_i_self.orphaned)
        memlord_i_lock_drop(&memlord_i_self.orphaned->orphan_lock);
    memlord_i_rank_none();
    return generation;
}
static MEMLORD_I_COLD void memlord_i_busy_end(uint64_t generation) {
    if (!--memlord_i_self.busy && memlord_i_self.orphaned)
        memlord_i_lock_take(&memlord_i_self.orphaned->orphan_lock);
    memlord_i_self.generation = generation;
}

/* The host's functions for raw memory; counts what the ledger holds. */
static MEMLORD_I_COLD void *memlord_i_raw_alloc(memlord *lord, size_t size) {
    uint64_t generation = memlord_i_busy_begin();
    void *p = lord->allocator.alloc(lord->allocator.user, size);
    memlord_i_busy_end(generation);
    if (p) (void)memlord_i_u64_add(&lord->own_bytes, size);
    return p;
}
static MEMLORD_I_COLD void memlord_i_raw_free(memlord *lord, void *ptr, size_t size) {
    uint64_t generation = memlord_i_busy_begin();
    lord->allocator.free(lord->allocator.user, ptr, size);
    memlord_i_busy_end(generation);
    (void)memlord_i_u64_add(&lord->own_bytes, (uint64_t)0 - size);
}

/* -- the operating system's allocator --
   Whole pages. Blocks of 8 KiB to 1 MiB, as the map's tables are, share extents of 4 MiB: in
   memory of its own each would lie on small pages, and every call of a large ledger would miss
   the TLB. An extent asks for huge pages once more than a quarter of it is in use. */

#define MEMLORD_I_PAGE 4096u
#define MEMLORD_I_EXTENT ((size_t)4 << 20)
#define MEMLORD_I_EXTENT_PAGES (MEMLORD_I_EXTENT / MEMLORD_I_PAGE)
typedef struct memlord_i_extent { /* in its own first page */
    struct memlord_i_extent *next;
    uint32_t used, huge;
    unsigned char taken[MEMLORD_I_EXTENT_PAGES]; /* 1: the page is in use */
} memlord_i_extent;

static int memlord_i_os_shared(size_t size) { return size >= (8u << 10) && size <= (1u << 20); }

/* Memory aligned to its extent, by mapping twice as much and giving back the rest. */
static memlord_i_extent *memlord_i_extent_map(void) {
    char *p = (char *)memlord_i_pages_map(2 * MEMLORD_I_EXTENT), *at;
    size_t before;
    if (!p) return NULL;
    before = (size_t)((0 - (uintptr_t)p) & (MEMLORD_I_EXTENT - 1));
    at = p + before;
    memlord_i_pages_trim(p, 2 * MEMLORD_I_EXTENT, at, MEMLORD_I_EXTENT);
    return (memlord_i_extent *)(void *)at;
}

/* Under the pages lock: a run of pages of one extent, or NULL. */
static void *memlord_i_extent_take(memlord_i_extent *e, uint32_t pages) {
    uint32_t i, run = 0;
    if (e->used + pages > MEMLORD_I_EXTENT_PAGES) return NULL;
    for (i = 0; i < MEMLORD_I_EXTENT_PAGES && run < pages; i++) run = e->taken[i] ? 0 : run + 1;
    if (run < pages) return NULL;
    memset(e->taken + i - pages, 1, pages);
    e->used += pages;
    if (!e->huge && e->used > MEMLORD_I_EXTENT_PAGES / 4) {
        e->huge = 1;
        memlord_i_pages_huge(e, MEMLORD_I_EXTENT);
    }
    return (char *)e + (size_t)(i - pages) * MEMLORD_I_PAGE;
}

static void *memlord_i_os_run(uint32_t pages) {
    memlord_i_extent *e, *fresh = NULL;
    void *p = NULL;
    for (;;) {
        memlord_i_lock_take(&memlord_i_process.pages_lock);
        if (fresh) {
            fresh->taken[0] = 1;
            fresh->taken[1] = 1; /* this record is longer than a page */
            fresh->used = 2;
            fresh->next = memlord_i_process.extents;
            memlord_i_process.extents = fresh;
        }
        for (e = memlord_i_process.extents; e && !p; e = e->next)
            p = memlord_i_extent_take(e, pages);
        memlord_i_lock_drop(&memlord_i_process.pages_lock);
        if (p || fresh) return p;
        fresh = memlord_i_extent_map();
        if (!fresh) return NULL;
    }
}

static MEMLORD_I_COLD void *memlord_i_os_alloc(void *user, size_t size) {
    void *p;
    (void)user;
    if (memlord_i_os_shared(size))
        return memlord_i_os_run((uint32_t)((size + MEMLORD_I_PAGE - 1) / MEMLORD_I_PAGE));
    p = memlord_i_pages_map(size);
    if (p && size >= (size_t)1 << 21) memlord_i_pages_huge(p, size);
    return p;
}
static MEMLORD_I_COLD void memlord_i_os_free(void *user, void *ptr, size_t size) {
    memlord_i_extent *e = (memlord_i_extent *)((uintptr_t)ptr & ~(uintptr_t)(MEMLORD_I_EXTENT - 1));
    memlord_i_extent **at;
    uint32_t pages = (uint32_t)((size + MEMLORD_I_PAGE - 1) / MEMLORD_I_PAGE);
    (void)user;
    if (!memlord_i_os_shared(size)) {
        memlord_i_pages_unmap(ptr, size);
        return;
    }
    memlord_i_lock_take(&memlord_i_process.pages_lock);
    memset(e->taken + (size_t)((char *)ptr - (char *)e) / MEMLORD_I_PAGE, 0, pages);
    e->used -= pages;
    for (at = &memlord_i_process.extents; e->used == 2 && *at != e;) at = &(*at)->next;
    if (e->used == 2) *at = e->next;
    else e = NULL;
    memlord_i_lock_drop(&memlord_i_process.pages_lock);
    if (e) memlord_i_pages_unmap(e, MEMLORD_I_EXTENT);
}

static uint32_t memlord_i_grains(size_t size) {
    return (uint32_t)((size + ((size_t)1 << MEMLORD_I_GRAIN_BITS) - 1) >> MEMLORD_I_GRAIN_BITS);
}
static uint32_t memlord_i_class(uint32_t grains) {
    uint32_t log = 0;
    while (grains >>= 1) log++;
    return log;
}

static memlord_i_piece *memlord_i_piece_at(memlord_i_region *r, uint32_t at) {
    return (memlord_i_piece *)(void *)(r->data + ((size_t)at << MEMLORD_I_GRAIN_BITS));
}

static void memlord_i_piece_push(memlord *lord, memlord_i_region *r, uint32_t at,
                                 uint32_t grains) {
    memlord_i_piece **head = &lord->pieces[memlord_i_class(grains)];
    memlord_i_piece *piece = memlord_i_piece_at(r, at);
    r->run[at] = r->run[at + grains - 1] = (uint16_t)grains;
    piece->region = r;
    piece->at = at;
    piece->grains = grains;
    piece->next = *head;
    piece->back = head;
    if (*head) (*head)->back = &piece->next;
    *head = piece;
}
static void memlord_i_piece_take(memlord_i_piece *piece) {
    piece->region->run[piece->at] = 0;
    piece->region->run[piece->at + piece->grains - 1] = 0;
    *piece->back = piece->next;
    if (piece->next) piece->next->back = piece->back;
}
/* Regions are found by walking: each is an eighth of all before it, so there are few. */
static memlord_i_region *memlord_i_region_of(memlord *lord, const void *at) {
    memlord_i_region *r = lord->regions;
    while (r && ((const char *)at < r->data ||
                 (const char *)at >= r->data + ((size_t)r->grains << MEMLORD_I_GRAIN_BITS)))
        r = r->next;
    return r;
}

static void *memlord_i_align(void *at) {
    return (void *)(((uintptr_t)at + 127) & ~(uintptr_t)127);
}

static MEMLORD_I_COLD int memlord_i_region_add(memlord *lord) {
    uint64_t eighth;
    uint32_t log = MEMLORD_I_REGION_MIN;
    size_t runs, size;
    memlord_i_region *r;
    memlord_i_lock_take(&lord->memory_lock);
    eighth = lord->region_bytes / 8;
    memlord_i_lock_drop(&lord->memory_lock);
    while (log < MEMLORD_I_REGION_MAX && ((uint64_t)2 << log) <= eighth) log++;
    runs = sizeof *r->run << (log - MEMLORD_I_GRAIN_BITS);
    size = sizeof *r + runs + 128 + ((size_t)1 << log);
    r = (memlord_i_region *)memlord_i_raw_alloc(lord, size);
    if (!r) return -1;
    r->size = size;
    r->grains = (uint32_t)1 << (log - MEMLORD_I_GRAIN_BITS);
    r->run = (uint16_t *)(r + 1);
    memset(r->run, 0, runs);
    r->data = (char *)memlord_i_align((char *)r->run + runs);
    memlord_i_lock_take(&lord->memory_lock);
    r->next = lord->regions;
    lord->regions = r;
    lord->region_bytes += (uint64_t)1 << log;
    memlord_i_piece_push(lord, r, 0, r->grains);
    memlord_i_lock_drop(&lord->memory_lock);
    return 0;
}

/* Under the memory lock: the smallest piece of those looked at that will do, cut to size; or
   NULL. */
static void *memlord_i_piece_cut(memlord *lord, uint32_t grains) {
    uint32_t have;
    memlord_i_piece *best = NULL, *piece;
    for (have = memlord_i_class(grains); have < MEMLORD_I_CLASSES && !best; have++) {
        unsigned looked = 0;
        for (piece = lord->pieces[have]; piece && (!best || looked < 16); piece = piece->next) {
            looked++;
            if (piece->grains >= grains && (!best || piece->grains < best->grains)) best = piece;
        }
    }
    if (!best) return NULL;
    memlord_i_piece_take(best);
    if (best->grains > grains)
        memlord_i_piece_push(lord, best->region, best->at + grains, best->grains - grains);
    return best;
}

/* A piece, zeroed; NULL if no region has one. */
static void *memlord_i_piece_new(memlord *lord, size_t size) {
    uint32_t grains = memlord_i_grains(size);
    void *p;
    memlord_i_lock_take(&lord->memory_lock);
    p = memlord_i_piece_cut(lord, grains);
    memlord_i_lock_drop(&lord->memory_lock);
    return p ? memset(p, 0, (size_t)grains << MEMLORD_I_GRAIN_BITS) : NULL;
}

#define MEMLORD_I_LARGE_EXTRA 256 /* alignment, and where the block really starts */

/* Zeroed memory of at least `size` bytes, or NULL. Never called with a lock held. */
static MEMLORD_I_NOINLINE void *memlord_i_alloc(memlord *lord, size_t size) {
    void *p;
    if (size > (size_t)1 << MEMLORD_I_PIECE_MAX) {
        void **at;
        if (lord->allocator.alloc == memlord_i_os_alloc) { /* aligned, but may not be fresh */
            p = memlord_i_raw_alloc(lord, size);
            return p ? memset(p, 0, size) : NULL;
        }
        if (size > SIZE_MAX - MEMLORD_I_LARGE_EXTRA) return NULL;
        p = memlord_i_raw_alloc(lord, size + MEMLORD_I_LARGE_EXTRA);
        if (!p) return NULL;
        at = (void **)memlord_i_align((void **)p + 1);
        at[-1] = p; /* for the free */
        return memset(at, 0, size);
    }
    do p = memlord_i_piece_new(lord, size);
    while (!p && !memlord_i_region_add(lord));
    return p;
}

/* Takes a region whose one piece is free off the ledger; under the memory lock. The last one
   stays. */
static memlord_i_region *memlord_i_region_idle(memlord *lord, memlord_i_region *r) {
    memlord_i_region **at = &lord->regions;
    if (r->run[0] != r->grains || !lord->regions->next) return NULL;
    memlord_i_piece_take(memlord_i_piece_at(r, 0));
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    lord->region_bytes -= (uint64_t)r->grains << MEMLORD_I_GRAIN_BITS;
    return r;
}

/* Gives a piece back; returns a region that is left without any, for the allocator. */
static MEMLORD_I_COLD memlord_i_region *memlord_i_piece_free(memlord *lord, void *ptr,
                                                             size_t size) {
    uint32_t grains = memlord_i_grains(size), at;
    memlord_i_region *r;
    memlord_i_lock_take(&lord->memory_lock);
    r = memlord_i_region_of(lord, ptr);
    at = (uint32_t)((size_t)((char *)ptr - r->data) >> MEMLORD_I_GRAIN_BITS);
    if (at + grains < r->grains && r->run[at + grains]) {
        memlord_i_piece *after = memlord_i_piece_at(r, at + grains);
        memlord_i_piece_take(after);
        grains += after->grains;
    }
    if (at && r->run[at - 1]) {
        memlord_i_piece *before = memlord_i_piece_at(r, at - r->run[at - 1]);
        memlord_i_piece_take(before);
        at -= before->grains;
        grains += before->grains;
    }
    memlord_i_piece_push(lord, r, at, grains);
    r = memlord_i_region_idle(lord, r);
    memlord_i_lock_drop(&lord->memory_lock);
    return r;
}

static MEMLORD_I_NOINLINE void memlord_i_free(memlord *lord, void *ptr, size_t size) {
    if (!ptr) return;
    if (size <= (size_t)1 << MEMLORD_I_PIECE_MAX) {
        memlord_i_region *idle = memlord_i_piece_free(lord, ptr, size);
        if (idle) memlord_i_raw_free(lord, idle, idle->size);
    } else if (lord->allocator.alloc == memlord_i_os_alloc) {
        memlord_i_raw_free(lord, ptr, size);
    } else {
        memlord_i_raw_free(lord, ((void **)ptr)[-1], size + MEMLORD_I_LARGE_EXTRA);
    }
}

static MEMLORD_I_COLD void memlord_i_regions_end(memlord *lord) {
    while (lord->regions) {
        memlord_i_region *r = lord->regions;
        lord->regions = r->next;
        memlord_i_raw_free(lord, r, r->size);
    }
}

/* ---------------------------------------------------------------------- >>threads --
   Owns thread records and what the process does around them: finding one's own on a call,
   exit, fork. Invariants: a record with an owner belongs to that thread; a free one keeps its
   counts and its shards for the next thread that comes. Destroying a ledger or ending a thread
   touches records under the registry lock, and no thread-local storage of another thread. Locks:
   registry, then as fork takes them. */

/* Sets or clears a reason for a thread to leave the plain path. Its own thread, others that lack a
   barrier and memlord_sites_enable may do so at once. */
static void memlord_i_special(memlord_i_thread *t, uint32_t bit, int on) {
    uint32_t seen = memlord_i_u32_load(&t->special);
    while (!memlord_i_u32_cas(&t->special, &seen, on ? seen | bit : seen & ~bit)) {}
}

/* Without a barrier a thread enters by an exchange from its first call on. The orphans always do:
   they share a record, so one of them cannot speak for all. Requires: the caller owns the record,
   or nobody does. The exchange and the load are seq_cst: see memlord_i_barrier_threads. */
static MEMLORD_I_COLD void memlord_i_thread_fence(memlord_i_thread *t) {
    (void)memlord_i_u32_exchange(&t->fenced, 0);
    if (t != t->lord->orphan && memlord_i_u32_load_seqcst(&memlord_i_process.barrier)) return;
    memlord_i_special(t, MEMLORD_I_SPECIAL_FENCE, 1);
    memlord_i_u32_store_release(&t->fenced, 1);
}

/* The record of the thread with a number, which is not 0; NULL: it has none. Requires: a call on
   the ledger is in progress, or the registry lock is held. The load is relaxed and pairs with
   nothing: a thread looks for the number that it stored itself, and others clear it only after its
   end. */
static memlord_i_thread *memlord_i_thread_of(const memlord *lord, uint64_t number) {
    memlord_i_thread *t = memlord_i_thread_first(lord);
    while (t && memlord_i_u64_load(&t->owner) != number) t = memlord_i_thread_after(t);
    return t;
}
/* That of the calling thread. */
static memlord_i_thread *memlord_i_thread_mine(const memlord *lord) {
    return memlord_i_self.number ? memlord_i_thread_of(lord, memlord_i_self.number) : NULL;
}

static void memlord_i_burst_leave(memlord_i_thread *t);
static void memlord_i_nest_close(memlord_i_thread *t);
#if MEMLORD_I_POSIX
static void memlord_i_nest_forget(memlord_i_thread *t);
#endif

/* Forgets what the thread was in the middle of. */
static void memlord_i_thread_clear(memlord_i_thread *t) {
    memlord_i_burst_leave(t);
    t->tag = NULL;
    t->tag_depth = 0;
    t->open_tickets = 0;
    t->retrying = 0;
    memlord_i_special(
        t, MEMLORD_I_SPECIAL_TAG | MEMLORD_I_SPECIAL_TICKET | MEMLORD_I_SPECIAL_SCOPE, 0);
}

/* Frees a record of a thread that ends or is gone: its scopes end, and another thread may take it
   over at once. Under the registry lock. The addition keeps the reads that follow behind the look
   whether the thread is gone; the store pairs with memlord_i_thread_free. */
static MEMLORD_I_COLD void memlord_i_thread_release(memlord_i_thread *t) {
    (void)memlord_i_u64_add(&t->owner, 0);
    memlord_i_nest_close(t);
    memlord_i_thread_clear(t);
    memlord_i_u32_store(&t->fenced, 1); /* it is not inside: no stealer waits for it */
    memlord_i_u64_store_release(&t->owner, 0);
}
/* Frees the records of a thread, at most one a ledger. */
static MEMLORD_I_COLD void memlord_i_threads_release(uint64_t number) {
    memlord *lord;
    memlord_i_thread *t;
    memlord_i_lock_take(&memlord_i_process.lock);
    for (lord = memlord_i_process.ledgers; lord; lord = lord->next) {
        t = memlord_i_thread_of(lord, number);
        if (t) memlord_i_thread_release(t);
    }
    memlord_i_lock_drop(&memlord_i_process.lock);
}

/* The exit hook. It gets the thread's number, as thread-local storage may be gone by then: MinGW
   emulates it and frees it earlier. Where it is still there, later calls of the thread get no
   record. */
static MEMLORD_I_COLD void memlord_i_thread_exit(const void *number) {
    memlord_i_threads_release((uint64_t)(uintptr_t)number);
    memlord_i_self.generation = 0;
    memlord_i_self.leaving = 1;
}

#if MEMLORD_I_WINDOWS
static void WINAPI memlord_i_on_exit(void *number) {
    if (number) memlord_i_thread_exit(number);
}
static int memlord_i_exit_key_make(void) {
    memlord_i_process.exit_key = FlsAlloc(memlord_i_on_exit);
    return memlord_i_process.exit_key == FLS_OUT_OF_INDEXES ? -1 : 0;
}
static int memlord_i_exit_key_set(uint64_t number) {
    return FlsSetValue(memlord_i_process.exit_key, (void *)(uintptr_t)number) ? 0 : -1;
}
#else
static MEMLORD_I_COLD void memlord_i_on_exit(void *number) { memlord_i_thread_exit(number); }
static int memlord_i_exit_key_make(void) {
    return pthread_key_create(&memlord_i_process.exit_key, memlord_i_on_exit);
}
static int memlord_i_exit_key_set(uint64_t number) {
    return pthread_setspecific(memlord_i_process.exit_key, (void *)(uintptr_t)number);
}
#endif

#if MEMLORD_I_POSIX
static void memlord_i_map_freeze(memlord *lord);
static void memlord_i_map_thaw(memlord *lord);
static void memlord_i_readers_gone(memlord *lord);
static MEMLORD_I_COLD void memlord_i_others_gone(memlord *lord);

/* Takes or drops one lock of every ledger, the one at an offset. */
static void memlord_i_ledgers_lock(size_t at, int take) {
    memlord *lord;
    for (lord = memlord_i_process.ledgers; lord; lord = lord->next) {
        memlord_i_lock *lock = (memlord_i_lock *)(void *)((char *)lord + at);
        if (take)
            memlord_i_lock_take(lock);
        else
            memlord_i_lock_drop(lock);
    }
}
/* Takes or drops the locks of all places. */
static void memlord_i_places_lock(int take) {
    memlord *lord;
    uint32_t i;
    for (lord = memlord_i_process.ledgers; lord; lord = lord->next)
        for (i = 0; i < memlord_i_u32_load(&lord->row_count[0]); i++) {
            memlord_i_place *place = i ? &memlord_i_device_at(lord, i)->own : &lord->host;
            if (take)
                memlord_i_lock_take(&place->lock);
            else
                memlord_i_lock_drop(&place->lock);
        }
}
/* Takes or drops the locks that come after the map's. */
static void memlord_i_fork_locks(int take) {
    memlord_i_ledgers_lock(offsetof(memlord, fences_lock), take);
    memlord_i_ledgers_lock(offsetof(memlord, callbacks_lock), take);
    memlord_i_places_lock(take);
    memlord_i_ledgers_lock(offsetof(memlord, scopes_lock), take);
    memlord_i_ledgers_lock(offsetof(memlord, snapshots_lock), take);
    memlord_i_ledgers_lock(offsetof(memlord, memory_lock), take);
}

/* Takes or drops the locks of 64-bit words, where they have locks. */
static void memlord_i_words_lock(int take) {
#ifdef MEMLORD_I_U64_LOCKS
    int i;
    for (i = 0; i < MEMLORD_I_U64_LOCKS; i++)
        if (take)
            while (memlord_i_u32_exchange(&memlord_i_u64_locks[i], 1)) memlord_i_yield();
        else
            memlord_i_u32_store_release(&memlord_i_u64_locks[i], 0);
#else
    (void)take;
#endif
}

/* Fork stops every ledger between two calls: no lock is held and no table half changed in the
   child, whose other threads are gone. It takes one lock of all ledgers before the next, in the
   lock order. */
static MEMLORD_I_COLD void memlord_i_fork_before(void) {
    memlord *lord;
    memlord_i_lock_take(&memlord_i_process.lock);
    memlord_i_ledgers_lock(offsetof(memlord, orphan_lock), 1);
    memlord_i_lock_take(&memlord_i_process.cold);
    for (lord = memlord_i_process.ledgers; lord; lord = lord->next) memlord_i_map_freeze(lord);
    memlord_i_fork_locks(1);
    memlord_i_lock_take(&memlord_i_process.pages_lock);
    memlord_i_words_lock(1); /* last: all of the above reads and writes words */
}
static MEMLORD_I_COLD void memlord_i_fork_parent(void) {
    memlord *lord;
    memlord_i_words_lock(0);
    memlord_i_lock_drop(&memlord_i_process.pages_lock);
    memlord_i_fork_locks(0);
    for (lord = memlord_i_process.ledgers; lord; lord = lord->next) memlord_i_map_thaw(lord);
    memlord_i_lock_drop(&memlord_i_process.cold);
    memlord_i_ledgers_lock(offsetof(memlord, orphan_lock), 0);
    memlord_i_lock_drop(&memlord_i_process.lock);
}
static MEMLORD_I_COLD void memlord_i_fork_child(void) {
    memlord *lord;
    memlord_i_thread *t;
    memlord_i_words_lock(0);
    uint64_t number = memlord_i_self.number ? memlord_i_thread_number() : 0; /* another now */
    memlord_i_self.helps = 0;
    memlord_i_process.pid = memlord_i_pid();
    memlord_i_process.saving = NULL;
    if (memlord_i_u32_load(&memlord_i_process.barrier))
        memlord_i_u32_store(&memlord_i_process.barrier, memlord_i_barrier_register());
    for (lord = memlord_i_process.ledgers; lord; lord = lord->next) {
        memlord_i_thread *mine = memlord_i_thread_mine(lord);
        memlord_i_readers_gone(lord);
        memlord_i_others_gone(lord);
        for (t = memlord_i_thread_first(lord); t; t = memlord_i_thread_after(t)) {
            memlord_i_thread_fence(t);
            if (t == mine || t == lord->orphan) continue;
            memlord_i_ptr_store(&t->inside, NULL); /* it saw the map stopped, and was to leave */
            memlord_i_nest_forget(t);
            memlord_i_thread_clear(t);
            memlord_i_u32_store(&t->fenced, 1);
            memlord_i_u64_store(&t->owner, 0);
        }
        if (mine) memlord_i_u64_store(&mine->owner, number);
    }
    memlord_i_self.number = number;
    if (memlord_i_self.hooked) memlord_i_self.hooked = memlord_i_exit_key_set(number) == 0;
    memlord_i_fork_parent();
}
static int memlord_i_fork_register(void) {
    return pthread_atfork(memlord_i_fork_before, memlord_i_fork_parent, memlord_i_fork_child);
}
#else
static int memlord_i_fork_register(void) { return 0; }
#endif

/* Puts the process's hooks in place, once; under the registry lock. Without an exit hook every
   thread shares the orphan record: slower, as exact. */
static void memlord_i_process_start(void) {
    if (memlord_i_u32_load(&memlord_i_process.ready)) return;
    memlord_i_process.pid = memlord_i_pid();
    memlord_i_u32_store(&memlord_i_process.barrier, memlord_i_barrier_register());
    memlord_i_process.exit_key_ready = memlord_i_exit_key_make() == 0;
    (void)memlord_i_fork_register();
    memlord_i_u32_store(&memlord_i_process.ready, 1);
}

/* Sets or clears a reason to look around at the end of calls. Seq_cst: see
   memlord_i_call_end_far. */
static void memlord_i_alert(memlord *lord, uint32_t bit, int on) {
    uint32_t seen = memlord_i_u32_load(&lord->alert);
    if ((seen & bit) == (on ? bit : 0)) return;
    while (!memlord_i_u32_cas(&lord->alert, &seen, on ? seen | bit : seen & ~bit)) {}
}

/* How many threads have a record, the orphans' included. */
static uint32_t memlord_i_threads(memlord *lord) {
    return memlord_i_u32_load(&lord->next_id) - MEMLORD_I_ID_FIRST;
}

/* Makes zeroed memory a record and shows it to readers; under the registry lock. */
static void memlord_i_thread_start(memlord *lord, memlord_i_thread *t, uint64_t owner) {
    t->id = memlord_i_u32_add(&lord->next_id, 1);
    if (memlord_i_u32_load(&lord->hooks) & MEMLORD_I_HOOK_SITES)
        memlord_i_special(t, MEMLORD_I_SPECIAL_SITES, 1);
    if (memlord_i_u32_load(&lord->hooks) & MEMLORD_I_HOOK_TRACE)
        memlord_i_special(t, MEMLORD_I_SPECIAL_TRACE, 1);
    t->lord = lord;
    t->memo = t->memo_first;
    t->memo_mask = MEMLORD_I_MEMO_MIN - 1;
    if (memlord_i_threads(lord) > memlord_i_u32_load(&lord->crew)) /* before it counts anything */
        memlord_i_alert(lord, MEMLORD_I_ALERT_REVIEW, 1);
    memlord_i_u64_store(&t->owner, owner);
    memlord_i_ptr_store(&t->next, memlord_i_ptr_load(&lord->threads));
    /* pairs with walks' load_acquire; seq_cst: see memlord_i_barrier_threads and _shard_wait */
    (void)memlord_i_ptr_exchange(&lord->threads, t);
    memlord_i_thread_fence(t);
}

/* A record without an owner, or NULL. The acquire pairs with the release of
   memlord_i_thread_release: its counts and shards come along. */
static memlord_i_thread *memlord_i_thread_free(memlord *lord) {
    memlord_i_thread *t = memlord_i_thread_first(lord);
    while (t && (t == lord->orphan || memlord_i_u64_load_acquire(&t->owner)))
        t = memlord_i_thread_after(t);
    return t;
}

/* Gives a record without an owner to the calling thread. */
static void memlord_i_thread_take(memlord_i_thread *t, uint64_t owner) {
    memlord_i_u64_store(&t->owner, owner);
    memlord_i_thread_fence(t);
}
/* Gives the calling thread a record: a spare one, else a new one; NULL without memory. */
static MEMLORD_I_COLD memlord_i_thread *memlord_i_thread_claim(memlord *lord) {
    memlord_i_thread *t, *fresh = NULL;
    for (;;) {
        memlord_i_lock_take(&memlord_i_process.lock);
        t = fresh ? fresh : memlord_i_thread_free(lord);
        if (fresh)
            memlord_i_thread_start(lord, fresh, memlord_i_self.number);
        else if (t)
            memlord_i_thread_take(t, memlord_i_self.number);
        if (t && memlord_i_threads(lord) >= lord->sweep_at && !memlord_i_thread_free(lord))
            memlord_i_alert(lord, MEMLORD_I_ALERT_REVIEW, 1);
        memlord_i_lock_drop(&memlord_i_process.lock);
        if (t) return t;
        fresh = (memlord_i_thread *)memlord_i_alloc(lord, sizeof *fresh);
        if (!fresh) return NULL;
    }
}

/* Takes the records with a number off their owner: it is a dead thread, or the calling one before
   its thread-local storage was freed. The next sweep frees them. */
static MEMLORD_I_COLD void memlord_i_threads_disown(uint64_t number) {
    memlord *lord;
    memlord_i_lock_take(&memlord_i_process.lock);
    for (lord = memlord_i_process.ledgers; lord; lord = lord->next) {
        memlord_i_thread *t = memlord_i_thread_of(lord, number);
        if (!t) continue;
        memlord_i_u64_store(&t->owner, MEMLORD_I_NOBODY);
        lord->sweep_at = 0;
        memlord_i_alert(lord, MEMLORD_I_ALERT_REVIEW, 1);
    }
    memlord_i_lock_drop(&memlord_i_process.lock);
}

/* Asks for the calling thread's number and sets its exit hook, once. 0: it gets no record. It is
   past the hook, or none can be set, or it is of another process: a child of vfork shares this
   memory and this thread-local storage, and for its kernel all threads here are gone. */
static MEMLORD_I_COLD int memlord_i_thread_ready(void) {
    if (memlord_i_self.leaving || !memlord_i_process.exit_key_ready ||
        memlord_i_pid() != memlord_i_process.pid)
        return 0;
    if (!memlord_i_self.number) {
        uint64_t number = memlord_i_thread_number();
        memlord_i_threads_disown(number);
        memlord_i_self.number = number;
    }
    if (!memlord_i_self.hooked) {
        memlord_i_self.busy = 1; /* setspecific may call malloc */
        memlord_i_self.hooked = memlord_i_exit_key_set(memlord_i_self.number) == 0;
        memlord_i_self.busy = 0;
    }
    return memlord_i_self.hooked != 0;
}

/* What the thread-local does not answer: another ledger than the last, a thread's first call,
   a call out of our own allocator call (NULL: pass through), a thread past its exit hook or
   without memory for a record (the orphan's, locked). */
static MEMLORD_I_COLD memlord_i_thread *memlord_i_thread_find(memlord *lord) {
    memlord_i_used *used = &memlord_i_self.used[lord->generation % MEMLORD_I_USED];
    memlord_i_thread *t = NULL;
    if (memlord_i_self.busy) return NULL;
    if (!memlord_i_self.leaving)
        t = used->generation == lord->generation ? used->thread : memlord_i_thread_mine(lord);
    if (!t && memlord_i_thread_ready()) t = memlord_i_thread_claim(lord);
    if (t) {
        memlord_i_self.generation = used->generation = lord->generation;
        memlord_i_self.thread = used->thread = t;
        return t;
    }
    memlord_i_lock_take(&lord->orphan_lock);
    memlord_i_self.orphaned = lord;
    return lord->orphan;
}

/* The calling thread's record. Every call needs memlord_i_thread_put at its end. */
static MEMLORD_I_NOINLINE memlord_i_thread *memlord_i_thread_get(memlord *lord) {
    if (MEMLORD_I_LIKELY(memlord_i_self.generation == lord->generation))
        return memlord_i_self.thread;
    return memlord_i_thread_find(lord);
}
/* Ends a call that memlord_i_thread_get began. */
static MEMLORD_I_HOT void memlord_i_thread_put(memlord *lord, memlord_i_thread *t) {
    if (MEMLORD_I_LIKELY(t != lord->orphan)) return;
    memlord_i_self.orphaned = NULL;
    memlord_i_lock_drop(&lord->orphan_lock);
}

/* -------------------------------------------------------------------------- >>map --
   Owns the storages: (type, storage) to a 24-byte entry. May use memory; knows nothing of
   what is counted. Invariants and the reasons for the shape (bench/README.md has the figures):

   - 1024 shards, chosen by the 2 MiB region of the address and not by its hash: what one
     thread allocates stays in shards, and so in cache lines, of its own.
   - A shard belongs to the first thread that uses it. On its every call a thread stores which
     shard it is `inside` and then loads the shard's state; if that names the thread, it works
     with plain loads and stores. Whoever wants the shard otherwise stores MOVING and makes all
     threads pass a barrier (memlord_i_barrier_threads), so that either he sees `inside` or the
     owner sees MOVING; then he waits until nobody is inside. No atomic read-modify-write on the
     plain path: that halves its cost. Where the system has no such barrier, or refuses it later,
     the store is an exchange. Seen by a second thread the shard becomes SHARED for good, and
     buckets are locked one by one, by a bit in their header.
   - A table is buckets of two cache lines that lie side by side: a header with five
     one-byte tags, and five entries. The tags are matched all at once, without a loop to
     mispredict; one call touches one place of the table, known from the key alone, so that
     the misses of neighbouring calls overlap.
   - An entry whose home bucket is full goes to a later one, and every bucket it passed
     counts it in one of four counts, by bits of the hash. A look-up stops at a bucket whose count
     is 0. So erasing leaves no tombstones, and an empty slot is never a wrong answer.
   - A table grows when 10/64 to 22/64 of its buckets have sent an entry away, in a small ledger
     1/64, by a fifth to a third: not all shards at once, so that what one gives back the next
     can use. The memory is taken before the shard is stopped. Only this shard's users wait.

   Locks: shard, then bucket; the home is waited for, later buckets are only tried, and all let
   go when one is taken, so a ring of waiters cannot close. */

#define MEMLORD_I_SHARDS (1u << MEMLORD_I_SHARD_BITS)
#define MEMLORD_I_REGION_BITS 21
#define MEMLORD_I_SLOTS 5
#define MEMLORD_I_PATH 16 /* buckets an entry may be away from home */
#define MEMLORD_I_BUCKET 128
#define MEMLORD_I_SPARE_BYTES (192u << 10) /* of a ledger's own memory: 3,000 blocks at 64 bytes */

/* A state of 3 and more is the id of the owner. */
enum {
    MEMLORD_I_SHARD_NEW,
    MEMLORD_I_SHARD_SHARED,
    MEMLORD_I_SHARD_MOVING,
    MEMLORD_I_SHARD_OWNED = MEMLORD_I_ID_FIRST
};

/* header: bytes 0..4 tags, 0 empty; bits 40..55 the counts; bit 63 the lock */
typedef struct memlord_i_bucket {
    memlord_i_u64 header;
    memlord_i_entry at[MEMLORD_I_SLOTS];
} memlord_i_bucket;
typedef char memlord_i_check_bucket[sizeof(memlord_i_bucket) == MEMLORD_I_BUCKET ? 1 : -1];

#define MEMLORD_I_ONES 0x0101010101u
#define MEMLORD_I_BUCKET_LOCK ((uint64_t)1 << 63)

/* Blocks of one size lie at equal distances, and a product keeps them so: at one distance in ten
   many keys share few buckets. The shift undoes that. The constant is of MurmurHash3's end. The
   upper half of the hash is good, and what lies just below it. The type is not hashed: equal
   handles of two types are rare, and sit side by side. */
static MEMLORD_I_HOT uint64_t memlord_i_hash(uint64_t key) {
    return (key ^ key >> 5) * 0xc4ceb9fe1a85ec53u;
}
#define MEMLORD_I_HASH_TAG(h) ((uint64_t)((uint32_t)(h) >> 24 | 1))
/* Where in a header it is counted how many entries with such a hash the bucket has sent away. */
#define MEMLORD_I_HASH_SENT(h) (40 + ((unsigned)(h) >> 18 & 12))
#define MEMLORD_I_SENT_MAX 15
static MEMLORD_I_HOT unsigned memlord_i_sent(uint64_t header, unsigned sent) {
    return (unsigned)(header >> sent) & MEMLORD_I_SENT_MAX;
}
typedef char memlord_i_check_sent[MEMLORD_I_SLOTS + MEMLORD_I_SENT_MAX >= MEMLORD_I_TYPES ? 1 : -1];

/* Small keys are handles, spread finer; they never take the plain path, which therefore need
   not look. 4 MiB on 64 bits: a program that is not position independent begins there, and its
   heap soon after. */
#if UINTPTR_MAX > 0xffffffffu
#define MEMLORD_I_HANDLE_BITS 22
#else
#define MEMLORD_I_HANDLE_BITS 20
#endif
static MEMLORD_I_HOT memlord_i_shard *memlord_i_shard_of(memlord *lord, uint64_t key, int plain) {
    uint64_t region = key >> MEMLORD_I_REGION_BITS;
    if (!plain && !(key >> MEMLORD_I_HANDLE_BITS)) region = key >> 10;
    return &lord->shards[(region * 0x9e3779b97f4a7c15u) >> (64 - MEMLORD_I_SHARD_BITS)];
}
static MEMLORD_I_HOT memlord_i_bucket *memlord_i_home(const memlord_i_shard *s, uint64_t hash) {
    return (memlord_i_bucket *)(void *)(s->table +
                                        (((hash >> 32) * s->size) >> 32) * MEMLORD_I_BUCKET);
}

/* The lowest bit that is set; one is. */
static MEMLORD_I_HOT unsigned memlord_i_lowest(uint64_t bits) {
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(bits);
#else
    unsigned i = 0;
    while (!(bits >> i & 1)) i++;
    return i;
#endif
}

/* Which slots hold this tag, and where that of the lowest begins. With vectors it is as many
   instructions, but half the registers; how many there are bounds how far a processor looks
   ahead. */
#if MEMLORD_I_SSE2
static MEMLORD_I_HOT uint64_t memlord_i_match(uint64_t header, uint64_t tag) {
    __m128i tags = _mm_cvtsi32_si128((int)tag);
    tags = _mm_shufflelo_epi16(_mm_unpacklo_epi8(tags, tags), 0);
    tags = _mm_cmpeq_epi8(tags, _mm_cvtsi64_si128((long long)header));
    return (unsigned)_mm_movemask_epi8(tags) & ((1u << MEMLORD_I_SLOTS) - 1);
}
static MEMLORD_I_HOT unsigned memlord_i_match_bit(uint64_t match) {
    return memlord_i_lowest(match) * 8;
}
#else
static MEMLORD_I_HOT uint64_t memlord_i_match(uint64_t header, uint64_t tag) {
    const uint64_t low = MEMLORD_I_ONES * 127;
    uint64_t x = header ^ (tag * MEMLORD_I_ONES);
    return ~(((x & low) + low) | x | low) & (MEMLORD_I_ONES << 7);
}
static MEMLORD_I_HOT unsigned memlord_i_match_bit(uint64_t match) {
    return memlord_i_lowest(match) - 7;
}
#endif

/* Which slots are vacant: the lowest bit of their tags. Those of entries are odd. */
static MEMLORD_I_HOT uint64_t memlord_i_vacant(uint64_t header) {
    return ~header & MEMLORD_I_ONES;
}
/* The entry of the slot whose tag begins at a bit: the eighth part of an entry further each. */
static MEMLORD_I_HOT memlord_i_entry *memlord_i_entry_of(memlord_i_bucket *b, unsigned bit) {
    return (memlord_i_entry *)(void *)((char *)b->at + sizeof *b->at / 8 * (size_t)bit);
}

/* The bucket after another; after the last, before `end`, comes the first. */
static MEMLORD_I_HOT memlord_i_bucket *memlord_i_bucket_after(const memlord_i_shard *s,
                                                              memlord_i_bucket *b,
                                                              const memlord_i_bucket *end) {
    return b + 1 == end ? (memlord_i_bucket *)(void *)s->table : b + 1;
}
static MEMLORD_I_HOT memlord_i_bucket *memlord_i_buckets_end(const memlord_i_shard *s) {
    return (memlord_i_bucket *)(void *)s->table + s->size;
}

/* -- entering a shard -- */

/* As memlord_i_enter, with a full barrier of the thread's own. `fenced` says that the record is
   entered in this way from here on: the bit in `special` stays, and a later load never answers an
   older value. The release pairs with the acquire in memlord_i_barrier_threads: all that the thread
   did inside before it saw the bit is done. */
static MEMLORD_I_NOINLINE uint32_t memlord_i_enter_fenced(memlord_i_thread *t,
                                                          memlord_i_shard *s) {
    memlord_i_u32_store_release(&t->fenced, 1);
    (void)memlord_i_ptr_exchange(&t->inside, s);
    return memlord_i_u32_load_seqcst(&s->state);
}
/* Announces the thread and answers the shard's state. The release keeps the thread's earlier
   work before the store for whoever stops the shard; the acquire pairs with the release of the
   state by him. Store before load: by memlord_i_barrier_threads, or by the exchange and a load
   that are seq_cst in memlord_i_enter_fenced and in memlord_i_shard_stop and _wait; an acquire
   alone may go before the store of an exchange (ARM's ldapr). `plain`: the call has just read
   `special` without the bit. */
static MEMLORD_I_HOT uint32_t memlord_i_enter(memlord_i_thread *t, memlord_i_shard *s, int plain) {
    memlord_i_rank_inside(1);
    if (!plain && (memlord_i_u32_load(&t->special) & MEMLORD_I_SPECIAL_FENCE))
        return memlord_i_enter_fenced(t, s);
    memlord_i_ptr_store_release(&t->inside, s);
    memlord_i_compiler_barrier();
    return memlord_i_u32_load_acquire(&s->state);
}
/* Pairs with the load of memlord_i_shard_wait. */
static MEMLORD_I_HOT void memlord_i_leave(memlord_i_thread *t) {
    memlord_i_rank_inside(0);
    memlord_i_ptr_store_release(&t->inside, NULL);
}

#define MEMLORD_I_DRAIN_NS 1000000u
/* Waits until every store that a processor has executed by now is visible to all. A processor
   empties its buffer of stores by itself within microseconds, and before it runs another thread. */
static MEMLORD_I_COLD void memlord_i_stores_drain(void) {
    const uint64_t begin = memlord_i_now();
    unsigned tries = 0; /* a sandbox may refuse to sleep, and the clock may stand still */
    do {
        memlord_i_nap(MEMLORD_I_DRAIN_NS);
    } while (memlord_i_now() - begin < MEMLORD_I_DRAIN_NS && ++tries < 1000);
}
/* For every thread T of the ledger: either T sees what the caller stored before this, or the caller
   sees afterwards what T stored before it looked. Used for a shard's state and `inside`, for the
   alert or a mark and the counts.

   The system's barrier does it. Without one T passes a barrier of its own: the exchange as it
   enters a shard (memlord_i_enter_fenced), and the addition as it ends a call
   (memlord_i_call_end_far), which pairs with the addition here.

   The system may refuse its barrier after threads have run without barriers of their own. A thread
   may then have read `special` without the bit, and it may be preempted for any time before it
   stores. So until T is seen to enter by an exchange, each caller waits for stores to drain. If T
   looked before the caller stored, what T stored earlier is visible after the wait; if it looks
   later, it sees the caller's store. The wait has a bound: a thread that sleeps delays no call for
   longer.

   Several callers may find the refusal at once, while others still had their barrier: each is
   ordered by its own means. A thread that registers meanwhile, or takes over a record out of use,
   is seen here or reads `barrier` as 0: the exchanges and loads of `barrier`, `threads` and
   `fenced` are seq_cst. */
static MEMLORD_I_COLD void memlord_i_barrier_threads(memlord *lord) {
    memlord_i_thread *t;
    int drain = 0;
    if (memlord_i_u32_load_seqcst(&memlord_i_process.barrier)) {
        if (memlord_i_barrier_all()) return;
        (void)memlord_i_u32_exchange(&memlord_i_process.barrier, 0);
    }
    (void)memlord_i_u32_add(&lord->alert, 0);
    t = (memlord_i_thread *)memlord_i_ptr_load_seqcst(&lord->threads);
    for (; t; t = memlord_i_thread_after(t)) {
        if (memlord_i_u32_load_seqcst(&t->fenced)) continue;
        memlord_i_special(t, MEMLORD_I_SPECIAL_FENCE, 1);
        drain = 1;
    }
    if (drain) memlord_i_stores_drain();
}

/* Waits until no thread is inside s (NULL: any shard). State is MOVING and everybody has passed
   a barrier since. The load of the list is seq_cst and pairs with the exchange in
   memlord_i_thread_start: a thread that is not on it yet sees MOVING. */
static void memlord_i_shard_wait(memlord *lord, const memlord_i_shard *s) {
    memlord_i_thread *t = (memlord_i_thread *)memlord_i_ptr_load_seqcst(&lord->threads);
    for (; t; t = memlord_i_thread_after(t)) {
        unsigned n = 0;
        for (;;) {
            const void *inside = memlord_i_ptr_load_seqcst(&t->inside);
            if (!inside || (s && inside != s)) break;
            memlord_i_spin(&n);
        }
    }
}

/* Under the shard's lock: stops everybody, whatever the state was; not inside oneself. */
static void memlord_i_shard_stop(memlord *lord, memlord_i_shard *s) {
    (void)memlord_i_u32_exchange(&s->state, MEMLORD_I_SHARD_MOVING);
    memlord_i_barrier_threads(lord);
    memlord_i_shard_wait(lord, s);
}

/* Stops a shard for a look at all of it; 0: it is empty and was not stopped. */
static int memlord_i_shard_hold(memlord *lord, memlord_i_shard *s) {
    memlord_i_lock_take(&s->lock);
    s->held_state = memlord_i_u32_load(&s->state);
    if (s->held_state == MEMLORD_I_SHARD_NEW) {
        memlord_i_lock_drop(&s->lock);
        return 0;
    }
    memlord_i_shard_stop(lord, s);
    return 1;
}
static void memlord_i_shard_resume(memlord_i_shard *s) {
    memlord_i_u32_store_release(&s->state, s->held_state);
    memlord_i_lock_drop(&s->lock);
}

/* All shards at once, with one barrier: for a fork. */
static void memlord_i_map_freeze(memlord *lord) {
    uint32_t i;
    for (i = 0; i < MEMLORD_I_SHARDS; i++) {
        memlord_i_shard *s = &lord->shards[i];
        memlord_i_lock_take(&s->lock);
        s->held_state = memlord_i_u32_load(&s->state);
        (void)memlord_i_u32_exchange(&s->state, MEMLORD_I_SHARD_MOVING);
    }
    memlord_i_barrier_threads(lord);
    memlord_i_shard_wait(lord, NULL);
}
static void memlord_i_map_thaw(memlord *lord) {
    uint32_t i;
    for (i = 0; i < MEMLORD_I_SHARDS; i++) memlord_i_shard_resume(&lord->shards[i]);
}

/* -- tables -- */

/* 1, 2, ... 5, 6, 8, 10, 12, 16 ...: in three steps to twice as many. */
static uint32_t memlord_i_buckets_next(uint32_t n) {
    uint32_t step = 1;
    while (step * 8 <= n) step *= 2;
    return n + (n == step * 6 ? 2 * step : step);
}

/* What a table is, apart from the shard that has it. */
typedef struct memlord_i_table {
    char *at;
    uint32_t size, displaced, count;
} memlord_i_table;

/* Inserts an entry into a table no other thread sees; -1: its path is full. */
static int memlord_i_table_put(memlord_i_table *table, const memlord_i_entry *entry) {
    uint64_t hash = memlord_i_hash(entry->key);
    uint64_t home = ((hash >> 32) * table->size) >> 32, at = home;
    uint32_t passed;
    for (passed = 0; passed < MEMLORD_I_PATH && passed < table->size; passed++) {
        memlord_i_bucket *b = (memlord_i_bucket *)(void *)table->at + at;
        uint64_t header = memlord_i_u64_load(&b->header), vacant = memlord_i_vacant(header);
        if (vacant) {
            unsigned i = memlord_i_lowest(vacant) / 8;
            b->at[i] = *entry;
            memlord_i_u64_store(&b->header, header | MEMLORD_I_HASH_TAG(hash) << (8 * i));
            table->displaced += at != home;
            table->count++;
            return 0;
        }
        if (memlord_i_sent(header, MEMLORD_I_HASH_SENT(hash)) == MEMLORD_I_SENT_MAX) return -1;
        memlord_i_u64_store(&b->header, header + ((uint64_t)1 << MEMLORD_I_HASH_SENT(hash)));
        if (++at == table->size) at = 0;
    }
    return -1;
}

/* Calls fn for every entry of a shard that is stopped, or the caller's own. */
typedef int (*memlord_i_entry_fn)(const memlord_i_entry *entry, void *user);
static int memlord_i_shard_each(const memlord_i_shard *s, memlord_i_entry_fn fn, void *user) {
    uint32_t i, j;
    int stop = 0;
    for (i = 0; i < s->size && !stop; i++) {
        const memlord_i_bucket *b = (const memlord_i_bucket *)(const void *)s->table + i;
        for (j = 0; j < MEMLORD_I_SLOTS && !stop; j++)
            if ((memlord_i_u64_load(&b->header) >> (8 * j)) & 255) stop = fn(&b->at[j], user);
    }
    return stop;
}
static int memlord_i_table_take_in(const memlord_i_entry *entry, void *user) {
    return memlord_i_table_put((memlord_i_table *)user, entry);
}

/* Swaps a shard's table for a larger one, under the shard's lock. 0: `next` is now the old table;
   1: the entries have no room in it; -1: nor in any, as the old one is almost empty. */
static MEMLORD_I_COLD int memlord_i_shard_swap(memlord *lord, memlord_i_thread *t,
                                               memlord_i_shard *s, memlord_i_table *next) {
    uint32_t state = memlord_i_u32_load(&s->state);
    memlord_i_table old;
    int failed;
    if (state != MEMLORD_I_SHARD_NEW && state != t->id) memlord_i_shard_stop(lord, s);
    memset(&old, 0, sizeof old);
    old.at = s->table;
    old.size = s->size;
    failed = memlord_i_shard_each(s, memlord_i_table_take_in, next) != 0;
    if (!failed && next->count < old.size / 32) failed = -1; /* keys that were made to collide */
    if (!failed) {
        s->table = next->at;
        s->size = next->size;
        memlord_i_u32_store(&s->displaced, next->displaced);
        *next = old;
        if (state == MEMLORD_I_SHARD_NEW)
            state = t == lord->orphan ? (uint32_t)MEMLORD_I_SHARD_SHARED : t->id;
    }
    memlord_i_u32_store_release(&s->state, state);
    return failed;
}

/* Gives a shard a larger table, or its first. `size` is that of the table the caller found too
   small: if another thread has replaced that, there is nothing to do. Requires: not inside.
   -1: no memory. */
static MEMLORD_I_COLD int memlord_i_shard_grow(memlord *lord, memlord_i_thread *t,
                                               memlord_i_shard *s, uint32_t size) {
    memlord_i_table next;
    uint32_t larger = size;
    unsigned i;
    for (i = 0; i < 18; i++) { /* more: keys were made to collide */
        int failed = 0, same;
        memset(&next, 0, sizeof next);
        next.size = larger = memlord_i_buckets_next(larger);
        next.at = (char *)memlord_i_alloc(lord, (size_t)next.size * MEMLORD_I_BUCKET);
        if (!next.at) return -1;
        memlord_i_lock_take(&s->lock);
        same = s->size == size;
        if (same) failed = memlord_i_shard_swap(lord, t, s, &next);
        memlord_i_lock_drop(&s->lock);
        memlord_i_free(lord, next.at, (size_t)next.size * MEMLORD_I_BUCKET);
        if (failed <= 0) return failed;
    }
    return -1;
}

/* 1: the shard should have a larger table. The caller's own, or shared. A small ledger has room to
   spare: hardly an entry of it is outside its home. */
static int memlord_i_shard_crowded(memlord *lord, const memlord_i_shard *s) {
    uint32_t n = memlord_i_u32_load(&s->displaced);
    uint32_t stagger = (uint32_t)((uintptr_t)s / sizeof *s) & 3, most = 10 + 4 * stagger;
    if (memlord_i_u64_load(&lord->own_bytes) < MEMLORD_I_SPARE_BYTES) most = 1;
    return (uint64_t)n * 64 >= (uint64_t)s->size * most + (s->size < 16 ? 192 : 0);
}

/* Makes another thread's shard shared, for good. Requires: not inside. */
static MEMLORD_I_COLD void memlord_i_shard_share(memlord *lord, memlord_i_thread *t,
                                                 memlord_i_shard *s) {
    uint32_t state;
    memlord_i_lock_take(&s->lock);
    state = memlord_i_u32_load(&s->state);
    if (state >= MEMLORD_I_SHARD_OWNED && state != t->id) {
        memlord_i_shard_stop(lord, s);
        memlord_i_u32_store_release(&s->state, MEMLORD_I_SHARD_SHARED);
    }
    memlord_i_lock_drop(&s->lock);
}

/* -- buckets of a shared shard; the take's acquire pairs with the store of the header -- */

/* 1: ours. The bit alone is looked at, which makes it one locked instruction on x86. */
static MEMLORD_I_HOT int memlord_i_bucket_try(memlord_i_bucket *b) {
    return !(memlord_i_u64_or(&b->header, MEMLORD_I_BUCKET_LOCK) & MEMLORD_I_BUCKET_LOCK);
}
static MEMLORD_I_COLD void memlord_i_bucket_wait(const memlord_i_bucket *b) {
    unsigned n = 0;
    while (memlord_i_u64_load(&b->header) & MEMLORD_I_BUCKET_LOCK) memlord_i_spin(&n);
}
/* Answers the header without the bit. */
static MEMLORD_I_HOT uint64_t memlord_i_bucket_lock(memlord_i_bucket *b) {
    while (MEMLORD_I_UNLIKELY(!memlord_i_bucket_try(b))) memlord_i_bucket_wait(b);
    return memlord_i_u64_load(&b->header) & ~MEMLORD_I_BUCKET_LOCK;
}

/* -- the short way: a shard the thread owns and is inside. A probe changes nothing; the home bucket
      is looked at in line, the rest of a key's window out of line -- */

typedef struct memlord_i_probe {
    memlord_i_bucket *bucket;
    memlord_i_entry *entry;
    uint64_t header; /* the bucket's next one */
    int far;         /* it is not the home bucket */
} memlord_i_probe;

/* An entry away from its home has come (by 1) or gone (by -1): the buckets it passed count it. */
static MEMLORD_I_NOINLINE void memlord_i_probe_displace(memlord_i_shard *s, uint64_t key,
                                                        const memlord_i_bucket *to, int by) {
    const uint64_t hash = memlord_i_hash(key);
    const memlord_i_bucket *end = memlord_i_buckets_end(s);
    memlord_i_bucket *b = memlord_i_home(s, hash);
    for (; b != to; b = memlord_i_bucket_after(s, b, end))
        memlord_i_u64_own_add(&b->header, (uint64_t)(int64_t)by << MEMLORD_I_HASH_SENT(hash));
    memlord_i_u32_own_add(&s->displaced, (uint32_t)by);
}

/* 1: the window has a vacant slot, and the key is not in the table. */
static MEMLORD_I_NOINLINE int memlord_i_probe_vacant_far(const memlord_i_shard *s, uint64_t key,
                                                         memlord_i_probe *probe) {
    const uint64_t hash = memlord_i_hash(key), tag = MEMLORD_I_HASH_TAG(hash);
    const memlord_i_bucket *end = memlord_i_buckets_end(s);
    memlord_i_bucket *home = memlord_i_home(s, hash), *b = home, *room = NULL;
    unsigned k, sent, bit;
    for (k = 0; k < MEMLORD_I_PATH; k++) {
        const uint64_t header = memlord_i_u64_load(&b->header);
        uint64_t match = memlord_i_match(header, tag);
        for (; match; match &= match - 1)
            if (memlord_i_entry_of(b, memlord_i_match_bit(match))->key == key) return 0;
        if (!room && memlord_i_vacant(header)) room = b;
        sent = memlord_i_sent(header, MEMLORD_I_HASH_SENT(hash));
        if (room ? !sent : sent == MEMLORD_I_SENT_MAX) break;
        b = memlord_i_bucket_after(s, b, end);
        if (b == home) break;
    }
    if (!room) return 0;
    probe->header = memlord_i_u64_load(&room->header);
    bit = memlord_i_lowest(memlord_i_vacant(probe->header));
    probe->bucket = room;
    probe->entry = memlord_i_entry_of(room, bit);
    probe->header |= tag << bit;
    probe->far = room != home;
    return 1;
}
static MEMLORD_I_HOT int memlord_i_probe_vacant(const memlord_i_shard *s, uint64_t key,
                                                memlord_i_probe *probe) {
    uint64_t hash = memlord_i_hash(key), tag = MEMLORD_I_HASH_TAG(hash), header, vacant;
    unsigned bit;
    probe->bucket = memlord_i_home(s, hash);
    probe->far = 0;
    MEMLORD_I_PREFETCH((char *)probe->bucket + 64);
    header = memlord_i_u64_load(&probe->bucket->header);
    vacant = memlord_i_vacant(header);
    if (MEMLORD_I_UNLIKELY(memlord_i_sent(header, MEMLORD_I_HASH_SENT(hash)) |
                           memlord_i_match(header, tag)) ||
        MEMLORD_I_UNLIKELY(!vacant))
        return memlord_i_probe_vacant_far(s, key, probe);
    bit = memlord_i_lowest(vacant);
    probe->entry = memlord_i_entry_of(probe->bucket, bit);
    probe->header = header | tag << bit;
    return 1;
}
static MEMLORD_I_HOT void memlord_i_probe_insert(memlord_i_shard *s, const memlord_i_probe *probe,
                                                 uint64_t key, uint64_t word1, uint64_t word2) {
    probe->entry->key = key;
    probe->entry->word1 = word1;
    probe->entry->word2 = word2;
    memlord_i_u64_store(&probe->bucket->header, probe->header);
    if (MEMLORD_I_UNLIKELY(probe->far)) memlord_i_probe_displace(s, key, probe->bucket, 1);
}

/* 1: the key is in the window, as the first with its tag in a bucket. */
static MEMLORD_I_NOINLINE int memlord_i_probe_find_far(const memlord_i_shard *s, uint64_t key,
                                                       memlord_i_probe *probe) {
    const uint64_t hash = memlord_i_hash(key), tag = MEMLORD_I_HASH_TAG(hash);
    const memlord_i_bucket *end = memlord_i_buckets_end(s);
    memlord_i_bucket *home = probe->bucket, *b = home;
    do {
        const uint64_t header = memlord_i_u64_load(&b->header);
        const uint64_t match = memlord_i_match(header, tag);
        if (match) {
            probe->entry = memlord_i_entry_of(b, memlord_i_match_bit(match));
            probe->header = header ^ tag << memlord_i_match_bit(match);
        }
        if (match && probe->entry->key == key) {
            probe->bucket = b;
            probe->far = b != home;
            return 1;
        }
        if (!memlord_i_sent(header, MEMLORD_I_HASH_SENT(hash))) return 0;
        b = memlord_i_bucket_after(s, b, end);
    } while (b != home);
    return 0;
}
static MEMLORD_I_HOT int memlord_i_probe_find(const memlord_i_shard *s, uint64_t key,
                                              memlord_i_probe *probe) {
    uint64_t hash = memlord_i_hash(key), tag = MEMLORD_I_HASH_TAG(hash), header, match;
    unsigned bit;
    probe->bucket = memlord_i_home(s, hash);
    probe->far = 0;
    MEMLORD_I_PREFETCH((char *)probe->bucket + 64);
    header = memlord_i_u64_load(&probe->bucket->header);
    match = memlord_i_match(header, tag);
    if (MEMLORD_I_UNLIKELY(!match)) return memlord_i_probe_find_far(s, key, probe);
    bit = memlord_i_match_bit(match);
    probe->entry = memlord_i_entry_of(probe->bucket, bit);
    probe->header = header ^ tag << bit;
    if (MEMLORD_I_LIKELY(probe->entry->key == key)) return 1;
    return memlord_i_probe_find_far(s, key, probe);
}
static MEMLORD_I_HOT void memlord_i_probe_erase(memlord_i_shard *s, const memlord_i_probe *probe) {
    memlord_i_u64_store(&probe->bucket->header, probe->header);
    if (MEMLORD_I_UNLIKELY(probe->far))
        memlord_i_probe_displace(s, probe->entry->key, probe->bucket, -1);
}

/* -- the general path: a key's whole window, locked -- */

typedef struct memlord_i_spot {
    memlord_i_shard *shard;
    uint64_t hash, key;
    memlord_i_entry *entry; /* NULL: the key is not live */
    unsigned count;         /* buckets of the window, locked when shared */
    unsigned bucket, slot;  /* where the entry is, or may go */
    int shared, inside, room;
    memlord_i_bucket *window[MEMLORD_I_PATH];
} memlord_i_spot;

static MEMLORD_I_NOINLINE void memlord_i_spot_unlock(memlord_i_spot *spot) {
    while (spot->count) {
        memlord_i_bucket *b = spot->window[--spot->count];
        memlord_i_u64_store_release(&b->header,
                                    memlord_i_u64_load(&b->header) & ~MEMLORD_I_BUCKET_LOCK);
    }
}
static void memlord_i_spot_leave(memlord_i_thread *t, memlord_i_spot *spot) {
    if (spot->shared) memlord_i_spot_unlock(spot);
    if (spot->inside) memlord_i_leave(t);
    spot->inside = 0;
}

/* Looks through the window of a table, which grows bucket by bucket. 0: done; -1: a later
   bucket was held by somebody, start again. */
static int memlord_i_spot_scan(const memlord *lord, memlord_i_spot *spot, uint32_t type) {
    memlord_i_shard *s = spot->shard;
    uint64_t at = (uint64_t)((char *)spot->window[0] - s->table) / MEMLORD_I_BUCKET, header, match;
    unsigned k;
    for (k = 0;; k++) {
        memlord_i_bucket *b = spot->window[k];
        header = memlord_i_u64_load(&b->header);
        match = memlord_i_match(header, MEMLORD_I_HASH_TAG(spot->hash));
        for (; match; match &= match - 1) {
            memlord_i_entry *e = &b->at[memlord_i_match_bit(match) / 8];
            if (e->key != spot->key || lord->slot_type[MEMLORD_I_SLOT(e->word1)] != type) continue;
            spot->bucket = k;
            spot->slot = memlord_i_match_bit(match) / 8;
            spot->entry = e;
            return 0;
        }
        if (!spot->room && memlord_i_vacant(header)) {
            spot->room = 1;
            spot->bucket = k;
            spot->slot = memlord_i_lowest(memlord_i_vacant(header)) / 8;
        }
        if (spot->room && !memlord_i_sent(header, MEMLORD_I_HASH_SENT(spot->hash))) return 0;
        if (k + 1 == MEMLORD_I_PATH || k + 1 == s->size) return 0;
        if (++at == s->size) at = 0;
        b = (memlord_i_bucket *)(void *)s->table + at;
        if (spot->shared && !memlord_i_bucket_try(b)) return -1;
        spot->window[spot->count++] = b;
    }
}

/* 1: every bucket before the room can count one more entry passing by. */
static int memlord_i_spot_passable(const memlord_i_spot *spot) {
    unsigned k;
    for (k = 0; k < spot->bucket; k++)
        if (memlord_i_sent(memlord_i_u64_load(&spot->window[k]->header),
                           MEMLORD_I_HASH_SENT(spot->hash)) == MEMLORD_I_SENT_MAX)
            return 0;
    return spot->room;
}

/* One look, inside. As memlord_i_spot_scan. */
static int memlord_i_spot_look(const memlord *lord, memlord_i_spot *spot, uint32_t type) {
    spot->entry = NULL;
    spot->bucket = 0;
    spot->room = 0;
    spot->window[0] = memlord_i_home(spot->shard, spot->hash);
    spot->count = 1;
    if (spot->shared) (void)memlord_i_bucket_lock(spot->window[0]);
    return memlord_i_spot_scan(lord, spot, type);
}

/* Finds a key and holds its place; with `want_room`, a missing one can then be inserted there. On
   0 the thread is inside, unless the shard never had a table. -1: no memory. */
static MEMLORD_I_NOINLINE int memlord_i_spot_find(memlord *lord, memlord_i_thread *t,
                                                  uint32_t type, uint64_t key, int want_room,
                                                  memlord_i_spot *spot) {
    memlord_i_shard *s = memlord_i_shard_of(lord, key, 0);
    unsigned n = 0;
    spot->shard = s;
    spot->key = key;
    spot->hash = memlord_i_hash(key);
    for (;;) {
        uint32_t state = memlord_i_enter(t, s, 0), size = 0;
        int again = 0;
        spot->entry = NULL;
        spot->count = spot->bucket = 0;
        spot->inside = 1;
        spot->shared = state == MEMLORD_I_SHARD_SHARED;
        if (spot->shared || state == t->id) {
            again = memlord_i_spot_look(lord, spot, type);
            if (!again && (spot->entry || !want_room || memlord_i_spot_passable(spot))) return 0;
            size = s->size;
        }
        memlord_i_spot_leave(t, spot);
        if (again)
            memlord_i_spin(&n);
        else if (!spot->shared && state != t->id && state != MEMLORD_I_SHARD_NEW)
            memlord_i_shard_share(lord, t, s);
        else if (!want_room)
            return 0;
        else if (memlord_i_shard_grow(lord, t, s, size))
            return -1;
    }
}

/* An entry away from its home has come (by 1) or gone (by -1): the buckets it passed count it. */
static void memlord_i_spot_displace(memlord_i_spot *spot, int by) {
    memlord_i_u32 *displaced = &spot->shard->displaced;
    unsigned k;
    for (k = 0; k < spot->bucket; k++)
        memlord_i_u64_own_add(&spot->window[k]->header,
                              (uint64_t)(int64_t)by << MEMLORD_I_HASH_SENT(spot->hash));
    if (!spot->bucket) return;
    if (spot->shared)
        (void)memlord_i_u32_add(displaced, (uint32_t)by);
    else
        memlord_i_u32_own_add(displaced, (uint32_t)by);
}

static void memlord_i_spot_put(memlord_i_spot *spot, uint64_t word1, uint64_t word2) {
    memlord_i_bucket *b = spot->window[spot->bucket];
    memlord_i_entry *e = &b->at[spot->slot];
    memlord_i_spot_displace(spot, 1);
    e->key = spot->key;
    e->word1 = word1;
    e->word2 = word2;
    memlord_i_u64_store(&b->header, memlord_i_u64_load(&b->header) |
                                        MEMLORD_I_HASH_TAG(spot->hash) << (8 * spot->slot));
    spot->entry = e;
}
static void memlord_i_spot_erase(memlord_i_spot *spot) {
    memlord_i_bucket *b = spot->window[spot->bucket];
    spot->entry = NULL;
    memlord_i_spot_displace(spot, -1);
    memlord_i_u64_store(&b->header, memlord_i_u64_load(&b->header) &
                                        ~((uint64_t)255 << (8 * spot->slot)));
}

/* --------------------------------------------------------------------- >>counters --
   Owns cells and rows: what happened, per thread, on each device, site and tag. A thread adds
   to its own cells with plain stores and publishes to the row when its net change leaves
   0..batch, and is then put back to the middle: so what is published is at most the truth, and
   at least the truth less a batch a thread. Peaks are taken from it. Invariants: a call counts
   before it leaves the map (fork finds no half-counted call); sums of levels are exact modulo
   2^64. Locks: count, row. */

typedef void *(*memlord_i_grab_fn)(memlord *, size_t); /* memlord_i_alloc or _cold_alloc */

/* The array behind a book with room for `chunk`, or NULL. The caller is the only writer. */
static MEMLORD_I_COLD memlord_i_chunks *memlord_i_book_room(memlord *lord, memlord_i_book *book,
                                                            uint32_t chunk,
                                                            memlord_i_grab_fn grab) {
    memlord_i_chunks *have = (memlord_i_chunks *)memlord_i_ptr_load(book), *more;
    uint64_t cap = have ? have->cap * 2 : 6, i;
    if (have && chunk < have->cap) return have;
    while (cap <= chunk) cap *= 2;
    more = (memlord_i_chunks *)grab(lord, sizeof *more + (size_t)cap * sizeof(memlord_i_ptr));
    if (!more) return NULL;
    more->cap = cap;
    more->older = have;
    for (i = 0; have && i < have->cap; i++)
        memlord_i_ptr_store(memlord_i_chunks_at(more, i),
                            memlord_i_ptr_load(memlord_i_chunks_at(have, i)));
    memlord_i_ptr_store_release(book, more); /* pairs with memlord_i_book_at's load_acquire */
    return more;
}

static MEMLORD_I_HOT void *memlord_i_book_at(const memlord_i_book *book, uint32_t number,
                                             size_t size) {
    memlord_i_chunks *chunks = (memlord_i_chunks *)memlord_i_ptr_load_acquire(book);
    char *chunk;
    if (!chunks || number >> MEMLORD_I_CHUNK_BITS >= chunks->cap) return NULL;
    chunk = (char *)memlord_i_ptr_load_acquire(
        memlord_i_chunks_at(chunks, number >> MEMLORD_I_CHUNK_BITS));
    return chunk ? chunk + (number & (MEMLORD_I_CHUNK - 1)) * size : NULL;
}

/* Makes the chunk of a number; the release pairs with the acquire above. */
static MEMLORD_I_COLD void *memlord_i_book_make(memlord *lord, memlord_i_book *book,
                                                uint32_t number, size_t size,
                                                memlord_i_grab_fn grab) {
    uint32_t i = number >> MEMLORD_I_CHUNK_BITS;
    memlord_i_chunks *chunks = memlord_i_book_room(lord, book, i, grab);
    void *chunk;
    if (!chunks) return NULL;
    if (!memlord_i_ptr_load(memlord_i_chunks_at(chunks, i))) {
        chunk = grab(lord, MEMLORD_I_CHUNK * size);
        if (!chunk) return NULL;
        memlord_i_ptr_store_release(memlord_i_chunks_at(chunks, i), chunk);
    }
    return memlord_i_book_at(book, number, size);
}

static MEMLORD_I_COLD void memlord_i_book_end(memlord *lord, memlord_i_book *book, size_t size) {
    memlord_i_chunks *chunks = (memlord_i_chunks *)memlord_i_ptr_load(book), *older;
    uint64_t i;
    for (i = 0; chunks && i < chunks->cap; i++)
        memlord_i_free(lord, memlord_i_ptr_load(memlord_i_chunks_at(chunks, i)),
                       MEMLORD_I_CHUNK * size);
    for (; chunks; chunks = older) {
        older = chunks->older;
        memlord_i_free(lord, chunks, sizeof *chunks + (size_t)chunks->cap * sizeof(memlord_i_ptr));
    }
}

static MEMLORD_I_NOINLINE memlord_i_row *memlord_i_row_at(memlord *lord, int book,
                                                          uint32_t number) {
    return (memlord_i_row *)memlord_i_book_at(&lord->rows[book], number, sizeof(memlord_i_row));
}

static MEMLORD_I_HOT memlord_i_cell *memlord_i_cell_at(const memlord_i_thread *t, int book,
                                                       uint32_t number) {
    if (book == MEMLORD_I_DEVICE)
        return (memlord_i_cell *)memlord_i_ptr_load_acquire(&t->devices[(size_t)number]);
    return (memlord_i_cell *)memlord_i_book_at(&t->books[book], number, sizeof(memlord_i_cell));
}

/* One's own, of a site or a tag. */
static MEMLORD_I_HOT memlord_i_cell *memlord_i_cell_near(const memlord_i_thread *t, int book,
                                                         uint32_t number) {
    uint32_t i = number >> MEMLORD_I_CHUNK_BITS;
    char *chunk;
    if (MEMLORD_I_UNLIKELY(i >= t->chunks[book].cap)) return NULL;
    chunk = (char *)memlord_i_ptr_own(&t->chunks[book].at[i]);
    if (MEMLORD_I_UNLIKELY(!chunk)) return NULL;
    return (memlord_i_cell *)(void *)chunk + (number & (MEMLORD_I_CHUNK - 1));
}
/* One's own, of a device. */
static MEMLORD_I_HOT memlord_i_cell *memlord_i_cell_own(const memlord_i_thread *t, uint32_t slot) {
    return (memlord_i_cell *)memlord_i_ptr_own(&t->devices[slot]);
}

/* Enters for counting alone, so that fork waits for it. */
static void memlord_i_enter_counting(memlord *lord, memlord_i_thread *t) {
    memlord_i_shard *s = &lord->shards[0];
    while (memlord_i_enter(t, s, 0) == MEMLORD_I_SHARD_MOVING) {
        memlord_i_leave(t);
        memlord_i_lock_take(&s->lock);
        memlord_i_lock_drop(&s->lock);
    }
}

/* A device's cell begins at the upper end of what it may hold back: its first bytes show. A fork
   finds the row and the thread's cell as they were, or both changed. */
static void memlord_i_cell_begin(memlord *lord, memlord_i_thread *t, uint32_t slot,
                                 memlord_i_cell *cell) {
    memlord_i_row *row = memlord_i_row_at(lord, MEMLORD_I_DEVICE, slot);
    memlord_i_enter_counting(lord, t);
    if (lord->batch) { /* else published is added to without the lock */
        memlord_i_lock_take(&row->lock);
        memlord_i_u64_own_add(&row->published, (uint64_t)0 - lord->batch);
        memlord_i_u64_store(&cell->base, (uint64_t)0 - lord->batch);
        memlord_i_lock_drop(&row->lock);
    }
    memlord_i_ptr_store_release(&t->devices[slot], cell); /* pairs with memlord_i_cell_at */
    memlord_i_leave(t);
}

/* A chunk of cells of sites or tags knows of all publications so far, as if it had been there: or
   their highs would not count before their first. */
static MEMLORD_I_COLD void memlord_i_cells_begin(memlord *lord, const memlord_i_thread *t, int book,
                                                 uint32_t number) {
    uint32_t n = memlord_i_u32_load_acquire(&lord->row_count[book]);
    uint32_t i = number & ~(MEMLORD_I_CHUNK - 1), end = i + MEMLORD_I_CHUNK;
    for (i += !i; i < end && i < n; i++) {
        memlord_i_row *row = memlord_i_row_at(lord, book, i);
        memlord_i_lock_take(&row->lock);
        memlord_i_u64_store(&memlord_i_cell_at(t, book, i)->seen, memlord_i_u64_load(&row->turn));
        memlord_i_lock_drop(&row->lock);
    }
}

static void memlord_i_cells_known(memlord_i_thread *t, int book) {
    memlord_i_chunks *chunks = (memlord_i_chunks *)memlord_i_ptr_load(&t->books[book]);
    t->chunks[book].at = memlord_i_chunks_at(chunks, 0);
    t->chunks[book].cap = (size_t)chunks->cap;
}
/* A thread's cell, made if need be; NULL without memory. Not inside the map. */
static MEMLORD_I_COLD memlord_i_cell *memlord_i_cell_make(memlord *lord, memlord_i_thread *t,
                                                          int book, uint32_t number,
                                                          memlord_i_grab_fn grab) {
    memlord_i_cell *cell = memlord_i_cell_at(t, book, number);
    if (cell) return cell;
    if (book != MEMLORD_I_DEVICE) {
        cell = (memlord_i_cell *)memlord_i_book_make(lord, &t->books[book], number, sizeof *cell,
                                                     grab);
        if (cell && t != lord->orphan) memlord_i_cells_begin(lord, t, book, number);
        if (cell) memlord_i_cells_known(t, book);
        return cell;
    }
    cell = (memlord_i_cell *)grab(lord, sizeof *cell);
    if (cell && t != lord->orphan)
        memlord_i_cell_begin(lord, t, number, cell);
    else
        memlord_i_ptr_store_release(&t->devices[number], cell); /* pairs with memlord_i_cell_at */
    return cell;
}

/* Has the calls on a device look at its bands, from the end of this one on. May be inside. */
static MEMLORD_I_COLD void memlord_i_want(memlord *lord, uint32_t slot) {
    if (!memlord_i_u32_exchange(&memlord_i_device_at(lord, slot)->watch.wanted, 1))
        (void)memlord_i_u32_add(&lord->alert, MEMLORD_I_ALERT_LOOK);
}
/* 1: the published bytes have come to where the bands are to be looked at. */
static int memlord_i_mark_passed(const memlord_i_watch *w, const memlord_i_row *row) {
    int64_t published = (int64_t)memlord_i_u64_load(&row->published);
    return published >= (int64_t)memlord_i_u64_load(&w->soon_up) ||
           published < (int64_t)memlord_i_u64_load(&w->soon_low);
}
/* After a publication. */
static void memlord_i_mark_check(memlord *lord, uint32_t slot, const memlord_i_row *row) {
    const memlord_i_watch *w = &memlord_i_device_at(lord, slot)->watch;
    if (memlord_i_u64_load(&row->peak) >= memlord_i_u64_load(&w->holders_at) ||
        memlord_i_mark_passed(w, row))
        memlord_i_want(lord, slot);
}

/* -- the innermost scope of a thread wants to know how high its level was -- */

/* The highest level of the frame on a device so far. Frames do not know of a device that the
   thread came to later: it began at 0. */
static MEMLORD_I_NOINLINE memlord_i_level *memlord_i_frame_level(memlord_i_frame *f,
                                                                 uint32_t slot) {
    while (f->devices < slot) {
        f->devices++;
        f->at[f->devices].from = f->at[f->devices].high = 0;
    }
    return &f->at[slot];
}
/* Levels count modulo 2^64. */
static int64_t memlord_i_level_rise(uint64_t from, uint64_t to) { return (int64_t)(to - from); }
static void memlord_i_frame_raise(memlord_i_frame *f, uint32_t slot, uint64_t level) {
    memlord_i_level *at = memlord_i_frame_level(f, slot);
    if (memlord_i_level_rise(at->high, level) > 0) at->high = level;
}
/* Others' cells rose by so much for this frame: as if it had begun with that much less. */
static void memlord_i_frame_shift(memlord_i_frame *f, uint32_t slot, uint64_t rise,
                                  uint64_t level) {
    memlord_i_level *at = memlord_i_frame_level(f, slot);
    at->from -= rise;
    at->high -= rise;
    memlord_i_frame_raise(f, slot, level);
}
/* A cell's high is about to begin anew. */
static void memlord_i_high_tell(memlord *lord, uint32_t slot, const memlord_i_cell *cell) {
    const memlord_i_thread *t = memlord_i_self.thread;
    if (memlord_i_self.generation != lord->generation || !t->scope) return;
    if (memlord_i_cell_own(t, slot) != cell) return; /* the orphans' */
    memlord_i_frame_raise(&t->nest->frame[t->nest->depth - 1], slot,
                          memlord_i_u64_load(&cell->high));
}

/* How far a level may rise before it is published again: a 32nd of the peak, so that who holds a
   device is looked for as often while it is small, and half a batch at most. */
static uint64_t memlord_i_room_up(memlord *lord, int book, const memlord_i_row *row) {
    int64_t peak = (int64_t)memlord_i_u64_load(&row->peak);
    uint64_t most = lord->batch / 2, part = peak > 0 ? (uint64_t)peak >> 5 : 0;
    return book == MEMLORD_I_DEVICE && part < most ? part : most;
}

/* If no other thread has published since the cell did, its high counts. Under the row's lock. */
static void memlord_i_high_raise(memlord_i_row *row, const memlord_i_cell *cell) {
    if (memlord_i_u64_load(&cell->seen) == memlord_i_u64_load(&row->turn))
        memlord_i_u64_raise(&row->peak, (int64_t)(memlord_i_u64_load(&row->published) +
                                                  memlord_i_u64_load(&cell->high) -
                                                  memlord_i_u64_load(&cell->base)));
}

/* Takes a cell's level to its row, when it has left base..base + batch. Locks the row: about
   once in half a batch of growth or shrinkage; with batch 0 two shared adds on every call. */
static MEMLORD_I_COLD void memlord_i_cell_publish(memlord *lord, int book, uint32_t number,
                                                  memlord_i_cell *cell) {
    memlord_i_row *row = memlord_i_row_at(lord, book, number);
    uint64_t level = memlord_i_u64_load(&cell->level);
    uint64_t base = memlord_i_u64_load(&cell->base), hold = 0, published;
    if (!lord->batch) {
        published = memlord_i_u64_add(&row->published, level - base) + (level - base);
        memlord_i_u64_raise(&row->peak, (int64_t)published);
    } else {
        memlord_i_lock_take(&row->lock);
        published = memlord_i_u64_load(&row->published);
        memlord_i_high_raise(row, cell);
        memlord_i_u64_raise(&row->peak, (int64_t)(published + level - base));
        hold = lord->batch - memlord_i_room_up(lord, book, row);
        memlord_i_u64_store(&row->published, published + level - base - hold);
        memlord_i_u64_own_add(&row->turn, 1);
        memlord_i_u64_store(&cell->seen, memlord_i_u64_load(&row->turn));
        memlord_i_lock_drop(&row->lock);
    }
    if (book == MEMLORD_I_DEVICE) memlord_i_high_tell(lord, number, cell);
    memlord_i_u64_store(&cell->base, level - hold);
    memlord_i_u64_store(&cell->high, level);
    if (book == MEMLORD_I_DEVICE) memlord_i_mark_check(lord, number, row);
}

static void memlord_i_cell_in(memlord *lord, int book, uint32_t number, memlord_i_cell *cell,
                              uint64_t bytes) {
    uint64_t level = memlord_i_u64_own(&cell->level) + bytes;
    memlord_i_u64_store(&cell->level, level);
    if (MEMLORD_I_UNLIKELY((int64_t)(level - memlord_i_u64_own(&cell->high)) > 0)) {
        memlord_i_u64_store(&cell->high, level);
        if (MEMLORD_I_UNLIKELY((int64_t)(level - memlord_i_u64_own(&cell->base)) >
                               (int64_t)lord->batch))
            memlord_i_cell_publish(lord, book, number, cell);
    }
}

/* Negative: the thread's frees on this device have come to where it looks at the bands. */
static MEMLORD_I_HOT int64_t memlord_i_cell_tripped(memlord_i_cell *cell) {
    return (int64_t)(memlord_i_u64_load(memlord_i_cell_trip(cell)) -
                     memlord_i_u64_own(&cell->out));
}
/* out first: a reader, who takes them the other way round, never finds less in than out. */
static void memlord_i_cell_out(memlord *lord, int book, uint32_t number, memlord_i_cell *cell,
                               uint64_t bytes) {
    uint64_t level = memlord_i_u64_own(&cell->level) - bytes;
    memlord_i_u64_own_add(&cell->out, bytes);
    memlord_i_u64_store_release(&cell->level, level);
    if (MEMLORD_I_UNLIKELY((int64_t)(level - memlord_i_u64_own(&cell->base)) < 0))
        memlord_i_cell_publish(lord, book, number, cell);
    if (book == MEMLORD_I_DEVICE && MEMLORD_I_UNLIKELY(memlord_i_cell_tripped(cell) < 0))
        memlord_i_want(lord, number);
}

/* -- the short way: the cell changes, and the result is negative when memlord_i_cell_settle is to
      look at it -- */

static MEMLORD_I_HOT int64_t memlord_i_cell_opened(memlord_i_cell *cell, uint64_t bytes) {
    uint64_t level = memlord_i_u64_own(&cell->level) + bytes;
    memlord_i_u64_own_add(&cell->allocs, 1);
    memlord_i_u64_store(&cell->level, level);
    return (int64_t)(memlord_i_u64_own(&cell->high) - level);
}
/* out first: see memlord_i_cell_out. */
static MEMLORD_I_HOT int64_t memlord_i_cell_closed(memlord_i_cell *cell, uint64_t bytes) {
    uint64_t level = memlord_i_u64_own(&cell->level) - bytes;
    memlord_i_u64_own_add(&cell->out, bytes);
    memlord_i_u64_store_release(&cell->level, level);
    return (int64_t)(level - memlord_i_u64_own(&cell->base));
}
/* Does what memlord_i_cell_in and _out do after they have changed a cell. Inside. */
static MEMLORD_I_COLD void memlord_i_cell_settle(memlord *lord, int book, uint32_t number,
                                                 memlord_i_cell *cell) {
    if (!number || !cell) return;
    memlord_i_cell_in(lord, book, number, cell, 0);
    memlord_i_cell_out(lord, book, number, cell, 0);
}

/* -- what a call did, to all the rows it concerns -- */

/* What a call adds to the rows of a block: its device's, its site's and its tag's. A free counts
   on the rows the block has, but at the site that freed it: see here. */
typedef struct memlord_i_delta {
    uint32_t slot;            /* the device; 0: its row is left alone */
    uint64_t word2;           /* has the rows of the site and the tag */
    uint64_t in, out;         /* bytes */
    uint64_t allocs, frees;   /* 0 or 1 */
    uint64_t here, here_frees; /* bytes and frees at the site, wherever they were allocated */
    int undo;                 /* in and allocs never happened */
} memlord_i_delta;

static void memlord_i_cell_change(memlord *lord, int book, uint32_t number, memlord_i_cell *cell,
                                  const memlord_i_delta *d) {
    const uint64_t frees = book == MEMLORD_I_SITE ? d->here_frees : d->frees;
    if (d->undo) {
        memlord_i_u64_own_add(&cell->allocs, (uint64_t)0 - d->allocs);
        memlord_i_u64_own_add(&cell->level, (uint64_t)0 - d->in);
        memlord_i_cell_publish(lord, book, number, cell);
        return;
    }
    if (d->allocs) memlord_i_u64_own_add(&cell->allocs, d->allocs);
    if (frees) memlord_i_u64_own_add(&cell->frees, frees);
    if (d->here) memlord_i_u64_own_add(&cell->here, d->here);
    if (d->in && d->out) { /* passed through: no level moved */
        memlord_i_u64_own_add(&cell->out, d->out);
        memlord_i_u64_own_add(&cell->level, d->in - d->out);
        return;
    }
    if (d->in) memlord_i_cell_in(lord, book, number, cell, d->in);
    if (d->out) memlord_i_cell_out(lord, book, number, cell, d->out);
}

/* Tells the thread's scopes of a change that its own cells do not show. */
static MEMLORD_I_COLD void memlord_i_frames_tell(memlord_i_thread *t, const memlord_i_delta *d) {
    const memlord_i_cell *cell = memlord_i_cell_own(t, d->slot);
    uint64_t sign = d->undo ? UINT64_MAX : 1;
    memlord_i_frame *f = t->nest->frame;
    for (; f < t->nest->frame + t->nest->depth; f++) {
        memlord_i_frame_shift(f, d->slot, (d->in - d->out) * sign,
                              cell ? memlord_i_u64_own(&cell->level) : 0);
        f->blocks -= (d->allocs - d->frees) * sign;
    }
}

/* Counts on the thread's own cell, or, when there is none, on the orphan's, which every row has
   from its start. Inside the map: takes no lock but the innermost two. */
static void memlord_i_count_row(memlord *lord, memlord_i_thread *t, int book, uint32_t number,
                                const memlord_i_delta *d) {
    memlord_i_cell *cell = memlord_i_cell_at(t, book, number);
    if (MEMLORD_I_LIKELY(cell && t != lord->orphan)) {
        memlord_i_cell_change(lord, book, number, cell, d);
        return;
    }
    memlord_i_lock_take(&lord->count_lock);
    memlord_i_cell_change(lord, book, number, memlord_i_cell_at(lord->orphan, book, number), d);
    memlord_i_lock_drop(&lord->count_lock);
    if (MEMLORD_I_UNLIKELY(t->scope) && book == MEMLORD_I_DEVICE) memlord_i_frames_tell(t, d);
}
/* Counts n deltas, each on up to three rows. Inside. */
static MEMLORD_I_NOINLINE void memlord_i_count(memlord *lord, memlord_i_thread *t,
                                               const memlord_i_delta *d, unsigned n) {
    for (; n--; d++) {
        uint32_t site = MEMLORD_I_SITE_ROW(d->word2), tag = MEMLORD_I_TAG_ROW(d->word2);
        if (d->slot) memlord_i_count_row(lord, t, MEMLORD_I_DEVICE, d->slot, d);
        if (site) memlord_i_count_row(lord, t, MEMLORD_I_SITE, site, d);
        if (tag) memlord_i_count_row(lord, t, MEMLORD_I_TAG, tag, d);
    }
}

/* -- reading -- */

/* a - b, both modulo 2^64. A little less than nothing is 0: a reader met calls in flight, which
   are never of 2^56 bytes in all. */
static uint64_t memlord_i_since(uint64_t a, uint64_t b) {
    return b - a < (uint64_t)1 << 56 ? 0 : a - b;
}

static uint64_t memlord_i_add(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }

/* Sums a row over all threads, under its lock: no cell can publish meanwhile, so published + one
   cell's net is never above the truth, and what a reset starts from stands still. `peaks` says
   whether the peak is wanted. */
static MEMLORD_I_COLD void memlord_i_row_sum(memlord *lord, int book, uint32_t number, int peaks,
                                             memlord_i_sum *sum) {
    memlord_i_row *row = memlord_i_row_at(lord, book, number);
    memlord_i_thread *t;
    uint64_t allocs = 0, frees = 0, cells = 0;
    int blind = 0; /* a high that another thread has called off */
    int64_t peak, published;
    memset(sum, 0, sizeof *sum);
    memlord_i_lock_take(&row->lock);
    published = (int64_t)memlord_i_u64_load(&row->published);
    peak = (int64_t)memlord_i_u64_load(&row->peak);
    for (t = memlord_i_thread_first(lord); t; t = memlord_i_thread_after(t)) {
        const memlord_i_cell *cell = memlord_i_cell_at(t, book, number);
        uint64_t in, out, level;
        if (!cell) continue;
        level = memlord_i_u64_load_acquire(&cell->level); /* pairs with memlord_i_cell_out */
        out = memlord_i_u64_load(&cell->out);
        in = level + out;
        sum->in += in;
        sum->out += out;
        allocs += memlord_i_u64_load(&cell->allocs);
        frees += memlord_i_u64_load(&cell->frees);
        sum->here += memlord_i_u64_load(&cell->here);
        cells += (in | out | memlord_i_u64_load(&cell->base)) != 0;
        if (!peaks) continue;
        if (memlord_i_u64_load(&cell->seen) == memlord_i_u64_load(&row->turn))
            level = memlord_i_u64_load(&cell->high);
        else
            blind |= (in | out) != 0; /* else its first bytes will show */
        level -= memlord_i_u64_load(&cell->base);
        if (published + (int64_t)level > peak) peak = published + (int64_t)level;
    }
    sum->live = memlord_i_since(sum->in, sum->out);
    sum->total_in = memlord_i_since(sum->in, row->base.in);
    sum->total_out = memlord_i_since(sum->out, row->base.out);
    sum->freed = memlord_i_since(sum->out, row->base.freed);
    sum->blocks = (int64_t)(allocs - frees) > 0 ? allocs - frees : 0;
    sum->allocs = allocs - row->base.allocs;
    sum->frees = frees - row->base.frees;
    sum->here -= row->base.here;
    memlord_i_lock_drop(&row->lock);
    sum->peak = peak > (int64_t)sum->live ? (uint64_t)peak : sum->live;
    sum->peak_error = cells > 1 || blind ? cells * lord->batch : 0;
}

/* Live bytes alone: what memlord_allocated costs. Below 0 if a call in flight was half seen. */
static uint64_t memlord_i_row_live(memlord *lord, int book, uint32_t number) {
    memlord_i_thread *t = memlord_i_thread_first(lord);
    uint64_t live = 0;
    for (; t; t = memlord_i_thread_after(t)) {
        const memlord_i_cell *cell = memlord_i_cell_at(t, book, number);
        if (cell) live += memlord_i_u64_load(&cell->level);
    }
    return (int64_t)live > 0 ? live : 0;
}

/* Live and freed bytes of a device. */
static MEMLORD_I_COLD void memlord_i_row_level(memlord *lord, uint32_t slot, uint64_t *live,
                                               uint64_t *freed) {
    memlord_i_thread *t = memlord_i_thread_first(lord);
    memlord_i_row *row = memlord_i_row_at(lord, MEMLORD_I_DEVICE, slot);
    uint64_t sum = 0, out = 0, base;
    memlord_i_lock_take(&row->lock);
    base = row->base.freed;
    memlord_i_lock_drop(&row->lock);
    for (; t; t = memlord_i_thread_after(t)) {
        const memlord_i_cell *cell = memlord_i_cell_at(t, MEMLORD_I_DEVICE, slot);
        if (!cell) continue;
        sum += memlord_i_u64_load(&cell->level);
        out += memlord_i_u64_load(&cell->out);
    }
    *live = (int64_t)sum > 0 ? sum : 0;
    *freed = memlord_i_since(out, base);
}

/* Sets a row's peak to what is live. The caller's own cell stays exact; other threads' highs
   no longer count. */
static MEMLORD_I_COLD void memlord_i_row_peak_reset(memlord *lord, memlord_i_thread *t, int book,
                                                    uint32_t number) {
    memlord_i_row *row = memlord_i_row_at(lord, book, number);
    memlord_i_cell *cell = memlord_i_cell_at(t, book, number);
    if (cell && book == MEMLORD_I_DEVICE) memlord_i_high_tell(lord, number, cell);
    memlord_i_lock_take(&row->lock);
    memlord_i_u64_store(&row->peak, memlord_i_row_live(lord, book, number));
    memlord_i_u64_own_add(&row->turn, 1);
    if (cell) {
        memlord_i_u64_store(&cell->high, memlord_i_u64_load(&cell->level));
        memlord_i_u64_store(&cell->seen, memlord_i_u64_load(&row->turn));
    }
    memlord_i_lock_drop(&row->lock);
}

/* Starts an epoch for a row; under the cold lock: one at a time. */
static MEMLORD_I_COLD void memlord_i_row_reset(memlord *lord, memlord_i_thread *t, int book,
                                               uint32_t number) {
    memlord_i_row *row = memlord_i_row_at(lord, book, number);
    memlord_i_sum sum;
    memlord_i_row_sum(lord, book, number, 0, &sum);
    memlord_i_lock_take(&row->lock);
    row->base.in = sum.in;
    row->base.out = row->base.freed = sum.out;
    row->base.allocs += sum.allocs;
    row->base.frees += sum.frees;
    row->base.here += sum.here;
    memlord_i_lock_drop(&row->lock);
    memlord_i_row_peak_reset(lord, t, book, number);
}

/* Keeps bytes that are credited now, but were freed in an epoch that is over, out of `freed`. */
static void memlord_i_row_freed_before(memlord *lord, uint32_t slot, uint64_t bytes) {
    memlord_i_row *row = memlord_i_row_at(lord, MEMLORD_I_DEVICE, slot);
    memlord_i_lock_take(&row->lock);
    row->base.freed += bytes;
    memlord_i_lock_drop(&row->lock);
}
/* Starts `freed` over, as a collection does; what else the base was raised by meanwhile stays. */
static MEMLORD_I_COLD void memlord_i_row_freed_reset(memlord *lord, uint32_t slot) {
    memlord_i_sum sum;
    memlord_i_row_sum(lord, MEMLORD_I_DEVICE, slot, 0, &sum);
    memlord_i_row_freed_before(lord, slot, sum.freed);
}

/* ------------------------------------------------------------------------ >>names --
   Owns cold tables, every string the ledger keeps (once each, until it ends), and the index from
   addresses to rows. stb_ds neither checks its allocations nor passes a context: a table gets the
   memory that its next put can take at worst before that put, and returns it when it ends. What
   stb_ds outgrows stays until then: less than what it grew to. Functions named _locked run under
   the cold lock and answer MEMLORD_I_AGAIN when memory is wanted: memlord_i_cold_leave drops the
   lock, gets it, and has the caller try again. Lock: cold. */

#define MEMLORD_I_AGAIN MEMLORD_RESULT_COUNT

/* stb_ds has no linkage here at all: a host may have its own. */
#ifdef __cplusplus
extern "C" {
#endif
#if defined(__clang__) /* its string blocks end in char storage[8], and are longer */
#define MEMLORD_I_PRIVATE static __attribute__((unused, no_sanitize("bounds")))
#elif defined(__GNUC__)
#define MEMLORD_I_PRIVATE static __attribute__((unused))
#else
#define MEMLORD_I_PRIVATE static
#endif
MEMLORD_I_PRIVATE void stbds_rand_seed(size_t seed);
MEMLORD_I_PRIVATE size_t stbds_hash_bytes(void *p, size_t len, size_t seed);
MEMLORD_I_PRIVATE size_t stbds_hash_string(char *str, size_t seed);
MEMLORD_I_PRIVATE void *stbds_arrgrowf(void *a, size_t elemsize, size_t addlen, size_t min_cap);
MEMLORD_I_PRIVATE void stbds_arrfreef(void *a);
MEMLORD_I_PRIVATE void stbds_hmfree_func(void *p, size_t elemsize);
MEMLORD_I_PRIVATE void *stbds_hmget_key(void *a, size_t elemsize, void *key, size_t keysize,
                                        int mode);
MEMLORD_I_PRIVATE void *stbds_hmget_key_ts(void *a, size_t elemsize, void *key, size_t keysize,
                                           ptrdiff_t *temp, int mode);
MEMLORD_I_PRIVATE void *stbds_hmput_default(void *a, size_t elemsize);
MEMLORD_I_PRIVATE void *stbds_hmput_key(void *a, size_t elemsize, void *key, size_t keysize,
                                        int mode);
MEMLORD_I_PRIVATE void *stbds_hmdel_key(void *a, size_t elemsize, void *key, size_t keysize,
                                        size_t keyoffset, int mode);
MEMLORD_I_PRIVATE void *stbds_shmode_func(size_t elemsize, int mode);
struct stbds_string_arena; /* its own typedef of this would be a second one, which is not C99 */
MEMLORD_I_PRIVATE char *stbds_stralloc(struct stbds_string_arena *a, char *str);
MEMLORD_I_PRIVATE void stbds_strreset(struct stbds_string_arena *a);
#ifdef __cplusplus
}
#endif

static void *memlord_i_stb_realloc(void *ptr, size_t size);

#define STB_DS_IMPLEMENTATION
#define STBDS_NO_SHORT_NAMES
#undef STBDS_REALLOC
#undef STBDS_FREE
#define STBDS_REALLOC(context, ptr, size) memlord_i_stb_realloc(ptr, size)
#define STBDS_FREE(context, ptr) ((void)(ptr)) /* freed with the table */
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
#if defined(MEMLORD_STB_DS_H)
#include MEMLORD_STB_DS_H
#elif defined(__has_include)
#if __has_include(<stb/stb_ds.h>)
#include <stb/stb_ds.h>
#else
#if !__has_include("stb_ds.h")
#error "no stb_ds.h: install libstb-dev, or copy it beside memlord.h, or define MEMLORD_STB_DS_H"
#endif
#include "stb_ds.h"
#endif
#else
#include "stb_ds.h"
#endif
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#undef STB_DS_IMPLEMENTATION

/* -- memory under the cold lock -- */

/* What memlord_i_alloc gives, if that takes no call of the allocator; else NULL, and the wish
   is noted for memlord_i_cold_leave. */
static MEMLORD_I_COLD void *memlord_i_cold_alloc(memlord *lord, size_t size) {
    void *p = NULL;
    if (lord->ready.block && lord->ready.size == size) {
        p = lord->ready.block;
        lord->ready.block = NULL;
        return p;
    }
    if (size <= (size_t)1 << MEMLORD_I_PIECE_MAX) p = memlord_i_piece_new(lord, size);
    if (!p) lord->wanted = size;
    return p;
}

static MEMLORD_I_COLD void memlord_i_cold_enter(void) {
    memlord_i_lock_take(&memlord_i_process.cold);
}

/* Ends a cold call: 1, *result was MEMLORD_I_AGAIN and there is memory to try again. */
static MEMLORD_I_COLD int memlord_i_cold_leave(memlord *lord, memlord_result *result) {
    memlord_i_spare fresh, old;
    fresh.size = lord->wanted;
    memlord_i_lock_drop(&memlord_i_process.cold);
    if (*result != MEMLORD_I_AGAIN) return 0;
    fresh.block = memlord_i_alloc(lord, fresh.size);
    if (!fresh.block) {
        *result = MEMLORD_E_NOMEM;
        return 0;
    }
    memlord_i_lock_take(&memlord_i_process.cold);
    old = lord->ready;
    lord->ready = fresh;
    memlord_i_lock_drop(&memlord_i_process.cold);
    memlord_i_free(lord, old.block, old.size);
    return 1;
}

/* -- cold tables -- */

#define MEMLORD_I_DICT_HEAD 16 /* before a block, and before what stb_ds takes of it: the size */

/* What stb_ds takes of a block for so many bytes. */
static size_t memlord_i_dict_takes(size_t size) {
    return (size + MEMLORD_I_DICT_HEAD + 15) & ~(size_t)15;
}

/* Never fails: memlord_i_dict_room_locked foresees all that a put takes. */
static MEMLORD_I_COLD void *memlord_i_stb_realloc(void *ptr, size_t size) {
    memlord_i_dict *dict = memlord_i_process.growing;
    char *fresh = (char *)dict->blocks + dict->blocks->size - dict->left + MEMLORD_I_DICT_HEAD;
    dict->left -= memlord_i_dict_takes(size);
    *(size_t *)(void *)(fresh - MEMLORD_I_DICT_HEAD) = size;
    if (ptr) memcpy(fresh, ptr, *(size_t *)(void *)((char *)ptr - MEMLORD_I_DICT_HEAD));
    return fresh;
}

static const stbds_array_header *memlord_i_dict_array(const memlord_i_dict *dict) {
    return stbds_header((void *)((char *)dict->items - dict->item));
}

/* 0: there is memory to put a key of this length. It may take an array, a hash index and a string
   block, by the formulas of stbds_arrgrowf, stbds_make_hash_index and stbds_stralloc. */
static MEMLORD_I_COLD int memlord_i_dict_room_locked(memlord *lord, memlord_i_dict *dict,
                                                     size_t length) {
    const stbds_array_header *array = dict->items ? memlord_i_dict_array(dict) : NULL;
    const stbds_hash_index *index = array ? (const stbds_hash_index *)array->hash_table : NULL;
    size_t need = 0, string = STBDS_STRING_ARENA_BLOCKSIZE_MIN;
    memlord_i_dict_block *block;
    if (!array || array->length >= array->capacity)
        need += memlord_i_dict_takes((array ? array->capacity * 2 : 4) * dict->item +
                                     sizeof *array);
    if (!index || index->used_count >= index->used_count_threshold)
        need += memlord_i_dict_takes((index ? index->slot_count * 2 / STBDS_BUCKET_LENGTH : 1) *
                                         sizeof(stbds_hash_bucket) +
                                     sizeof *index + STBDS_CACHE_LINE_SIZE);
    if (index) string <<= index->string.block >> 1;
    if (!index || length >= index->string.remaining)
        need += memlord_i_dict_takes((string > length ? string : length + 1) +
                                     sizeof(stbds_string_block));
    if (need <= dict->left) return 0;
    need += MEMLORD_I_DICT_HEAD;
    block = (memlord_i_dict_block *)memlord_i_cold_alloc(lord, need);
    if (!block) return -1;
    block->next = dict->blocks;
    block->size = need;
    dict->blocks = block;
    dict->left = need - MEMLORD_I_DICT_HEAD;
    return 0;
}

/* A new item, zero but for its copy of the key; NULL: memory is wanted. Requires: the key is not
   there, as stb_ds may grow the index before it looks. */
static MEMLORD_I_COLD void *memlord_i_dict_put_locked(memlord *lord, memlord_i_dict *dict,
                                                      const char *key) {
    if (memlord_i_dict_room_locked(lord, dict, strlen(key))) return NULL;
    memlord_i_process.growing = dict;
    if (!dict->items) dict->items = stbds_shmode_func(dict->item, STBDS_SH_ARENA);
    dict->items = stbds_hmput_key(dict->items, dict->item, (void *)(uintptr_t)key, sizeof key,
                                  STBDS_HM_STRING);
    return (char *)dict->items + dict->item * (size_t)memlord_i_dict_array(dict)->temp;
}

/* The item of a key; NULL: there is none. */
static MEMLORD_I_COLD void *memlord_i_dict_find_locked(const memlord_i_dict *dict,
                                                       const char *key) {
    ptrdiff_t at;
    if (!dict->items) return NULL;
    (void)stbds_hmget_key_ts(dict->items, dict->item, (void *)(uintptr_t)key, sizeof key, &at,
                             STBDS_HM_STRING);
    return at < 0 ? NULL : (char *)dict->items + dict->item * (size_t)at;
}

static MEMLORD_I_COLD void memlord_i_dict_end(memlord *lord, memlord_i_dict *dict) {
    memlord_i_dict_block *block = dict->blocks, *next;
    for (; block; block = next) {
        next = block->next;
        memlord_i_free(lord, block, block->size);
    }
}

/* -- kept strings -- */

/* NULL: not kept. Points to it until the next is put. */
static MEMLORD_I_COLD memlord_i_string *memlord_i_string_locked(memlord *lord, const char *text) {
    return (memlord_i_string *)memlord_i_dict_find_locked(&lord->names, text);
}

/* Our copy of a string: the same pointer for the same text. NULL stays NULL. */
static MEMLORD_I_COLD memlord_result memlord_i_name_locked(memlord *lord, const char *text,
                                                           const char **kept) {
    const memlord_i_string *string;
    size_t length;
    *kept = NULL;
    if (!text) return MEMLORD_OK;
    string = memlord_i_string_locked(lord, text);
    if (!string) {
        length = strlen(text);
        if (length > MEMLORD_MAX_STRINGS || lord->name_bytes + length > MEMLORD_MAX_STRINGS)
            return MEMLORD_E_NOMEM;
        string = (memlord_i_string *)memlord_i_dict_put_locked(lord, &lord->names, text);
        if (!string) return MEMLORD_I_AGAIN;
        lord->name_bytes += length + 1;
    }
    *kept = string->key;
    return MEMLORD_OK;
}

static MEMLORD_I_COLD memlord_result memlord_i_name(memlord *lord, const char *text,
                                                    const char **kept) {
    memlord_result r;
    if (memlord_i_self.busy) return MEMLORD_E_STATE;
    do {
        memlord_i_cold_enter();
        r = memlord_i_name_locked(lord, text, kept);
    } while (memlord_i_cold_leave(lord, &r));
    return r;
}

/* The same for what may be another each time: leaves half of the room to tags and sites. */
static MEMLORD_I_COLD memlord_result memlord_i_name_spare(memlord *lord, const char *text,
                                                          const char **kept) {
    uint64_t used;
    *kept = NULL;
    if (memlord_i_self.busy) return MEMLORD_E_STATE;
    memlord_i_lock_take(&memlord_i_process.cold);
    used = lord->name_bytes;
    memlord_i_lock_drop(&memlord_i_process.cold);
    if (text && used + strlen(text) > MEMLORD_MAX_STRINGS / 2) return MEMLORD_E_NOMEM;
    return memlord_i_name(lord, text, kept);
}

static MEMLORD_I_COLD void memlord_i_names_end(memlord *lord) {
    memlord_i_dict_end(lord, &lord->names);
    memlord_i_free(lord, lord->ready.block, lord->ready.size);
}

/* -- the index -- */

#define MEMLORD_I_SUBJECT 255u /* instead of a slot: the address's own record */

static MEMLORD_I_HOT uint64_t memlord_i_index_key(const void *address, uint32_t slot) {
    return (uint64_t)(uintptr_t)address ^ ((uint64_t)slot << 56);
}
static uint64_t memlord_i_index_start(uint64_t key) { return (key * 0x9e3779b97f4a7c15u) >> 24; }
/* What was put under a key, or 0. The acquires pair with the releases of the two below. */
static MEMLORD_I_NOINLINE uint64_t memlord_i_index_get(memlord *lord, uint64_t key) {
    memlord_i_index *index = (memlord_i_index *)memlord_i_ptr_load_acquire(&lord->index);
    uint64_t at = memlord_i_index_start(key), seen;
    if (!index) return 0;
    for (;; at++) {
        const memlord_i_pair *pair = (memlord_i_pair *)(index + 1) + (at & index->mask);
        seen = memlord_i_u64_load_acquire(&pair->key);
        if (seen == key) return memlord_i_u64_load(&pair->value);
        if (!seen) return 0;
    }
}

static void memlord_i_index_put(memlord_i_index *index, uint64_t key, uint64_t value) {
    uint64_t at = memlord_i_index_start(key) & index->mask;
    memlord_i_pair *pairs = (memlord_i_pair *)(index + 1);
    while (memlord_i_u64_load(&pairs[at].key)) at = (at + 1) & index->mask;
    memlord_i_u64_store(&pairs[at].value, value);
    memlord_i_u64_store_release(&pairs[at].key, key);
    index->count++;
}

/* Room for `more` entries at a load of at most one half. */
static MEMLORD_I_COLD memlord_result memlord_i_index_room_locked(memlord *lord, uint64_t more) {
    memlord_i_index *old = (memlord_i_index *)memlord_i_ptr_load(&lord->index), *index;
    uint64_t cap = old ? old->mask + 1 : 64, i;
    if (old && (old->count + more) * 2 <= cap) return MEMLORD_OK;
    if (old) cap *= 2;
    index = (memlord_i_index *)memlord_i_cold_alloc(lord, sizeof *index +
                                                              (size_t)cap * sizeof(memlord_i_pair));
    if (!index) return MEMLORD_I_AGAIN;
    index->mask = cap - 1;
    index->older = old;
    for (i = 0; old && i <= old->mask; i++) {
        const memlord_i_pair *pair = (memlord_i_pair *)(old + 1) + i;
        uint64_t key = memlord_i_u64_load(&pair->key);
        if (key) memlord_i_index_put(index, key, memlord_i_u64_load(&pair->value));
    }
    memlord_i_ptr_store_release(&lord->index, index);
    return MEMLORD_OK;
}
static void memlord_i_index_add_locked(memlord *lord, uint64_t key, uint64_t value) {
    memlord_i_index_put((memlord_i_index *)memlord_i_ptr_load(&lord->index), key, value);
}

static MEMLORD_I_COLD void memlord_i_index_end(memlord *lord) {
    memlord_i_index *index = (memlord_i_index *)memlord_i_ptr_load(&lord->index), *older;
    for (; index; index = older) {
        older = index->older;
        memlord_i_free(lord, index,
                       sizeof *index + (size_t)(index->mask + 1) * sizeof(memlord_i_pair));
    }
}

/* -- rows: what can be counted -- */

#if MEMLORD_I_POSIX
/* In a forked child: who held a row's lock while the map was stopped was reading, and is gone. */
static void memlord_i_readers_gone(memlord *lord) {
    int book;
    uint32_t i;
    for (book = 0; book < MEMLORD_I_BOOKS; book++)
        for (i = 1; i < memlord_i_u32_load(&lord->row_count[book]); i++)
            memlord_i_u32_store(&memlord_i_row_at(lord, book, i)->lock.held, 0);
    memlord_i_u32_store(&lord->count_lock.held, 0);
}
#endif

/* Adds a row under an index key. Row 0 means none and is never given out. */
static MEMLORD_I_COLD memlord_result memlord_i_row_add_locked(memlord *lord, int book,
                                                              uint32_t slot, void *subject,
                                                              uint64_t key, uint32_t *number) {
    uint32_t n = memlord_i_u32_load(&lord->row_count[book]);
    memlord_i_row *row;
    memlord_result r = memlord_i_index_room_locked(lord, 1);
    if (r) return r;
    row = (memlord_i_row *)memlord_i_book_make(lord, &lord->rows[book], n, sizeof *row,
                                               memlord_i_cold_alloc);
    if (!row || !memlord_i_cell_make(lord, lord->orphan, book, n, memlord_i_cold_alloc))
        return MEMLORD_I_AGAIN;
    memlord_i_lock_rank(&row->lock, MEMLORD_I_RANK_ROW);
    row->slot = slot;
    row->subject = subject;
    memlord_i_u32_store_release(&lord->row_count[book], n + 1); /* pairs with the walks' acquire */
    memlord_i_index_add_locked(lord, key, n);
    *number = n;
    return MEMLORD_OK;
}

/* ---------------------------------------------------------------------- >>devices --
   Owns the slots: small numbers from 1 for the devices seen, in the order they were seen. A slot is
   published last, when everything about it can be read. Lock: cold. */

static const char *const memlord_i_type_names[] = {
#define MEMLORD_I_X(name, text, host) text,
    MEMLORD_I_DEVICE_TYPES(MEMLORD_I_X)
#undef MEMLORD_I_X
};

static const unsigned char memlord_i_type_host[] = {
#define MEMLORD_I_X(name, text, host) host,
    MEMLORD_I_DEVICE_TYPES(MEMLORD_I_X)
#undef MEMLORD_I_X
};

static MEMLORD_I_HOT int memlord_i_device_valid(memlord_device d) {
    return (unsigned)d.type < (unsigned)MEMLORD_I_TYPES && d.index >= 0;
}
static MEMLORD_I_HOT int memlord_i_selector_valid(memlord_device d) {
    return d.type == MEMLORD_ANY ? d.index == MEMLORD_ANY
                                 : (unsigned)d.type < (unsigned)MEMLORD_I_TYPES &&
                                       d.index >= MEMLORD_ANY;
}
static MEMLORD_I_HOT int memlord_i_selects(memlord_device sel, memlord_device d) {
    return sel.type == MEMLORD_ANY ||
           (sel.type == d.type && (sel.index == MEMLORD_ANY || sel.index == d.index));
}

static MEMLORD_I_NOINLINE uint64_t memlord_i_device_key(memlord_device d) {
    return ((uint64_t)MEMLORD_I_SUBJECT << 56) | ((uint64_t)(uint16_t)d.type << 16) |
           (uint16_t)d.index | ((uint64_t)1 << 32);
}

/* As one word: compilers take the two halves apart the long way round. */
static MEMLORD_I_HOT uint32_t memlord_i_device_word(memlord_device d) {
    uint32_t word;
    memcpy(&word, &d, sizeof word);
    return word;
}
/* Where slot_of has a device: type and index in 4 and 7 bits, or the last place, which is empty. */
static MEMLORD_I_HOT uint32_t memlord_i_device_direct(memlord_device d) {
    uint32_t word = memlord_i_device_word(d);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = word << 16 | word >> 16;
#endif
    if (MEMLORD_I_UNLIKELY(word & 0xff80fff0u)) return MEMLORD_I_DIRECT;
    return (word >> 12 | word) & (MEMLORD_I_DIRECT - 1);
}

static MEMLORD_I_COLD memlord_result memlord_i_device_locked(memlord *lord, memlord_device d,
                                                             uint32_t *slot) {
    uint64_t key = memlord_i_device_key(d), have = memlord_i_index_get(lord, key);
    uint32_t n = memlord_i_u32_load(&lord->row_count[MEMLORD_I_DEVICE]);
    memlord_i_device *device;
    memlord_result r;
    if (have) {
        *slot = (uint32_t)have;
        return MEMLORD_OK;
    }
    if (n > MEMLORD_MAX_DEVICES) return MEMLORD_E_DEVICE;
    device = memlord_i_device_at(lord, n);
    if (!device) {
        device = (memlord_i_device *)memlord_i_cold_alloc(lord, sizeof *device);
        if (!device) return MEMLORD_I_AGAIN;
        memlord_i_ptr_store(&lord->device[n], device);
    }
    device->device = d;
    memlord_i_lock_rank(&device->own.lock, MEMLORD_I_RANK_PLACE);
    device->own.lord = lord;
    device->own.device = d;
    memlord_i_ptr_store_release(&device->place,
                                memlord_i_type_host[d.type] ? &lord->host : &device->own);
    lord->slot_type[n] = (uint16_t)d.type;
    lord->slot_alerts[n] = ~(uint32_t)MEMLORD_I_ALERT_PENDS_ALL |
                           (uint32_t)MEMLORD_I_ALERT_PENDS << d.type;
    r = memlord_i_row_add_locked(lord, MEMLORD_I_DEVICE, n, device, key, slot);
    if (r == MEMLORD_OK && memlord_i_u32_load(&lord->polling) == MEMLORD_I_POLLING_ALL)
        memlord_i_alert(lord, MEMLORD_I_ALERT_POLLER, 1);
    if (r == MEMLORD_OK && (memlord_i_u32_load(&lord->watching) >> d.type & 1))
        memlord_i_want(lord, n);
    if (r == MEMLORD_OK && memlord_i_device_direct(d) < MEMLORD_I_DIRECT)
        memlord_i_u8_store_release(&lord->slot_of[memlord_i_device_direct(d)], (uint8_t)n);
    return r;
}

static MEMLORD_I_COLD memlord_result memlord_i_device_find(memlord *lord, memlord_device d,
                                                           uint32_t *slot) {
    memlord_result r;
    uint64_t have;
    if (!memlord_i_device_valid(d)) return MEMLORD_E_DEVICE;
    if (memlord_i_self.busy) return MEMLORD_E_STATE;
    have = memlord_i_index_get(lord, memlord_i_device_key(d));
    if (have) {
        *slot = (uint32_t)have;
        return MEMLORD_OK;
    }
    do {
        memlord_i_cold_enter();
        r = memlord_i_device_locked(lord, d, slot);
    } while (memlord_i_cold_leave(lord, &r));
    return r;
}

/* The slot of a device, made on its first use. The acquire pairs with the release above. */
static MEMLORD_I_NOINLINE memlord_result memlord_i_slot(memlord *lord, memlord_device d,
                                                        uint32_t *slot) {
    *slot = memlord_i_u8_load_acquire(&lord->slot_of[memlord_i_device_direct(d)]);
    if (MEMLORD_I_LIKELY(*slot != 0)) return MEMLORD_OK;
    return memlord_i_device_find(lord, d, slot);
}

static uint32_t memlord_i_rows(memlord *lord, int book) {
    return memlord_i_u32_load_acquire(&lord->row_count[book]);
}
static void memlord_i_stat_add(memlord *lord, uint32_t slot, int stat, uint64_t by) {
    (void)memlord_i_u64_add(&memlord_i_device_at(lord, slot)->count[stat], by);
}

/* The device an unknown storage is counted on: the one named; without an index the first of
   its type. */
static memlord_result memlord_i_slot_named(memlord *lord, memlord_device d, uint32_t *slot) {
    uint32_t i, n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    if (d.index < 0) {
        for (i = 1; i < n; i++) {
            if (lord->slot_type[i] != d.type) continue;
            *slot = i;
            return MEMLORD_OK;
        }
        d.index = 0;
    }
    return memlord_i_slot(lord, d, slot);
}

/* ------------------------------------------------------------------------ >>sites --
   Owns what is known of places and tags, and which rows a call counts on. A site's record is
   made when it is first seen, its strings copied; its rows one a device. Lock: cold. */

static MEMLORD_I_COLD memlord_result memlord_i_shown_locked(memlord *lord, const char *file,
                                                            const char *function, int line,
                                                            memlord_site *out) {
    memlord_result r = memlord_i_name_locked(lord, file ? file : "", &out->file);
    if (r == MEMLORD_OK) r = memlord_i_name_locked(lord, function ? function : "", &out->function);
    out->line = line;
    return r;
}

/* The record of a place: found under the host's pointer or the address it was made from, and
   under every form it is shown in. */
static MEMLORD_I_COLD memlord_result memlord_i_site_locked(memlord *lord,
                                                           const memlord_site *origin,
                                                           void *address, memlord_i_site **out) {
    const void *identity = address ? (const void *)address : (const void *)origin;
    uint64_t key = memlord_i_index_key(identity, MEMLORD_I_SUBJECT);
    memlord_site first = {"", "", 0};
    memlord_i_site *site;
    memlord_result r;
    *out = (memlord_i_site *)(uintptr_t)memlord_i_index_get(lord, key);
    if (*out) return MEMLORD_OK;
    r = memlord_i_index_room_locked(lord, 2);
    if (r) return r;
    if (origin) first = *origin;
    r = memlord_i_shown_locked(lord, first.file, first.function, first.line, &first);
    if (r) return r;
    site = (memlord_i_site *)memlord_i_cold_alloc(lord, sizeof *site);
    if (!site) return MEMLORD_I_AGAIN;
    site->address = address;
    site->first = first;
    memlord_i_ptr_store(&site->shown, &site->first);
    memlord_i_index_add_locked(lord, key, (uint64_t)(uintptr_t)site);
    memlord_i_index_add_locked(lord, memlord_i_index_key(&site->first, MEMLORD_I_SUBJECT),
                               (uint64_t)(uintptr_t)site);
    *out = site;
    return MEMLORD_OK;
}

/* Our copy of a site, for what outlives a call; NULL without memory. */
static MEMLORD_I_COLD const memlord_site *memlord_i_site_kept(memlord *lord,
                                                              const memlord_site *origin) {
    memlord_i_site *site = NULL;
    memlord_result r;
    if (!origin) return NULL;
    do {
        memlord_i_cold_enter();
        r = memlord_i_site_locked(lord, origin, NULL, &site);
    } while (memlord_i_cold_leave(lord, &r));
    return r == MEMLORD_OK ? (const memlord_site *)memlord_i_ptr_load_acquire(&site->shown) : NULL;
}

static MEMLORD_I_NOINLINE memlord_i_site *memlord_i_site_of(memlord *lord, const void *identity) {
    return (memlord_i_site *)(uintptr_t)memlord_i_index_get(
        lord, memlord_i_index_key(identity, MEMLORD_I_SUBJECT));
}

static MEMLORD_I_COLD memlord_result memlord_i_site_show_locked(memlord *lord, memlord_i_site *site,
                                                                const char *file,
                                                                const char *function, int line) {
    memlord_site fresh, *shown;
    memlord_result r = memlord_i_index_room_locked(lord, 1);
    if (r) return r;
    r = memlord_i_shown_locked(lord, file, function, line, &fresh);
    if (r) return r;
    shown = (memlord_site *)memlord_i_cold_alloc(lord, sizeof *shown);
    if (!shown) return MEMLORD_I_AGAIN;
    *shown = fresh;
    memlord_i_index_add_locked(lord, memlord_i_index_key(shown, MEMLORD_I_SUBJECT),
                               (uint64_t)(uintptr_t)site);
    memlord_i_ptr_store_release(&site->shown, shown); /* pairs with memlord_i_site_shown */
    return MEMLORD_OK;
}
static MEMLORD_I_COLD memlord_result memlord_i_site_show(memlord *lord, memlord_i_site *site,
                                                         const char *file, const char *function,
                                                         int line) {
    memlord_result r;
    do {
        memlord_i_cold_enter();
        r = memlord_i_site_show_locked(lord, site, file, function, line);
    } while (memlord_i_cold_leave(lord, &r));
    return r;
}

/* A site as reports show it. A return address gets its module and symbol when it is first
   shown: dladdr walks a module's symbols, too slow for a call, and takes the loader's lock,
   so no lock of ours is held. */
static const memlord_site *memlord_i_site_shown(memlord *lord, memlord_i_site *site) {
    const memlord_site *shown = (const memlord_site *)memlord_i_ptr_load_acquire(&site->shown);
    memlord_i_symbol symbol;
    if (!site->address || shown->file[0]) return shown;
    if (memlord_i_u32_exchange(&site->resolved, 1)) return shown;
    if (memlord_i_symbol_at((const char *)site->address - 1, &symbol)) return shown;
    (void)memlord_i_site_show(lord, site, symbol.module, symbol.name, 0);
    return (const memlord_site *)memlord_i_ptr_load_acquire(&site->shown);
}

/* A site is known by several addresses, and has one row a device: under its record. */
static MEMLORD_I_COLD memlord_result memlord_i_row_locked(memlord *lord, int book,
                                                          const void *identity, uint32_t slot,
                                                          uint32_t *number) {
    uint32_t most = book == MEMLORD_I_SITE ? MEMLORD_I_SITE_ROWS_MAX : MEMLORD_I_TAG_ROWS_MAX;
    void *subject = (void *)(uintptr_t)identity;
    memlord_i_site *site;
    memlord_result r;
    if (book == MEMLORD_I_SITE) {
        r = memlord_i_site_locked(lord, (const memlord_site *)identity, NULL, &site);
        if (r) return r;
        subject = site;
    }
    *number = (uint32_t)memlord_i_index_get(lord, memlord_i_index_key(subject, slot));
    if (!*number) {
        if (memlord_i_rows(lord, book) > most) return MEMLORD_E_NOMEM;
        r = memlord_i_row_add_locked(lord, book, slot, subject, memlord_i_index_key(subject, slot),
                                     number);
        if (r) return r;
    }
    if (subject == identity || memlord_i_index_get(lord, memlord_i_index_key(identity, slot)))
        return MEMLORD_OK;
    r = memlord_i_index_room_locked(lord, 1);
    if (r) return r;
    memlord_i_index_add_locked(lord, memlord_i_index_key(identity, slot), *number);
    return MEMLORD_OK;
}

static MEMLORD_I_COLD memlord_result memlord_i_row_make(memlord *lord, int book,
                                                        const void *identity, uint32_t slot,
                                                        uint32_t *number) {
    memlord_result r;
    do {
        memlord_i_cold_enter();
        r = memlord_i_row_locked(lord, book, identity, slot, number);
    } while (memlord_i_cold_leave(lord, &r));
    return r;
}

/* The row of a site or a tag on a device, made on first use; 0, and counted, when there is no
   room for it. */
static MEMLORD_I_COLD uint32_t memlord_i_row_new(memlord *lord, int book, const void *identity,
                                                 uint32_t slot) {
    uint32_t number;
    if (memlord_i_row_make(lord, book, identity, slot, &number) == MEMLORD_OK) return number;
    memlord_i_stat_add(lord, slot, MEMLORD_I_STAT_dropped_sites, 1);
    return 0;
}
static uint32_t memlord_i_row_of(memlord *lord, int book, const void *identity, uint32_t slot) {
    uint64_t have = memlord_i_index_get(lord, memlord_i_index_key(identity, slot));
    return MEMLORD_I_LIKELY(have) ? (uint32_t)have : memlord_i_row_new(lord, book, identity, slot);
}

/* -- a thread's cache: what the index, the names and the scopes found for a pointer -- */

enum { /* memlord_i_memo.salt >> 28; the rest of it beside */
    MEMLORD_I_MEMO_SITE = MEMLORD_I_SITE, /* a row and its cell; the device */
    MEMLORD_I_MEMO_TAG = MEMLORD_I_TAG,   /* likewise */
    MEMLORD_I_MEMO_NAME,                  /* the kept copy of a host's tag */
    MEMLORD_I_MEMO_SCOPE,                 /* a stint; the parent scope */
    MEMLORD_I_MEMO_PLANTED                /* the same, by a static record */
};
static MEMLORD_I_HOT uint32_t memlord_i_memo_salt(int kind, uint32_t rest) {
    return (uint32_t)kind << 28 | rest;
}
static MEMLORD_I_HOT memlord_i_memo *memlord_i_memo_home(const memlord_i_thread *t,
                                                         const void *key, uint32_t salt) {
    uintptr_t hash = ((uintptr_t)key + salt) * 0x61c88647u; /* 2^32 / the golden ratio, negated */
    return &t->memo[hash >> 20 & t->memo_mask];
}
/* NULL: not cached. */
static MEMLORD_I_HOT const memlord_i_memo *memlord_i_memo_find(const memlord_i_thread *t,
                                                               const void *key, uint32_t salt) {
    const memlord_i_memo *memo = memlord_i_memo_home(t, key, salt);
    for (; memo->key; memo++)
        if (MEMLORD_I_LIKELY(memo->key == key && memo->salt == salt)) return memo;
    return NULL;
}
static void memlord_i_memo_end(memlord *lord, memlord_i_thread *t) {
    if (t->memo && t->memo != t->memo_first)
        memlord_i_free(lord, t->memo,
                       (t->memo_mask + 1 + MEMLORD_I_MEMO_PATH) * sizeof *t->memo);
}
/* Inserts an entry, or replaces that of its key; a full path evicts its first. */
static void memlord_i_memo_put(memlord_i_thread *t, const memlord_i_memo *entry) {
    memlord_i_memo *memo = memlord_i_memo_home(t, entry->key, entry->salt);
    uint32_t k = 0;
    while (k < MEMLORD_I_MEMO_PATH && memo[k].key &&
           (memo[k].key != entry->key || memo[k].salt != entry->salt))
        k++;
    if (k == MEMLORD_I_MEMO_PATH) k = 0;
    t->memo_count += !memo[k].key;
    memo[k] = *entry;
}
/* Makes room for one entry more: twice the table, or, at its bound or without memory, an empty
   one. */
static MEMLORD_I_COLD void memlord_i_memo_grow(memlord *lord, memlord_i_thread *t) {
    memlord_i_memo *old = t->memo, *more = NULL;
    const size_t n = t->memo_mask + 1 + MEMLORD_I_MEMO_PATH;
    size_t i;
    if (t->memo_mask + 1 < MEMLORD_I_MEMO_MAX)
        more = (memlord_i_memo *)memlord_i_alloc(
            lord, (n + t->memo_mask + 1) * sizeof *more);
    t->memo_count = 0;
    if (!more) {
        memset(old, 0, n * sizeof *old);
        return;
    }
    t->memo = more;
    t->memo_mask = 2 * t->memo_mask + 1;
    for (i = 0; i < n; i++)
        if (old[i].key) memlord_i_memo_put(t, &old[i]);
    if (old != t->memo_first) memlord_i_free(lord, old, n * sizeof *old);
}
/* Caches a look-up. The orphans' record caches nothing: its cells are locked. Not inside. */
static MEMLORD_I_COLD void memlord_i_memo_set(memlord *lord, memlord_i_thread *t, const void *key,
                                              uint32_t salt, void *value, uint64_t bits) {
    memlord_i_memo entry;
    if (t == lord->orphan) return;
    if (t->memo_count >= (t->memo_mask + 1) * 3 / 8) memlord_i_memo_grow(lord, t);
    entry.key = key;
    entry.salt = salt;
    entry.value = value;
    entry.bits = bits;
    memlord_i_memo_put(t, &entry);
}

/* The bits of word2 for the row of a site or a tag on a device. Makes the row, and the thread's
   cell for it. Not inside. */
static MEMLORD_I_NOINLINE uint64_t memlord_i_memo_row(memlord *lord, memlord_i_thread *t, int book,
                                                      const void *identity, uint32_t slot) {
    const uint32_t salt = memlord_i_memo_salt(book, slot);
    const memlord_i_memo *memo = memlord_i_memo_find(t, identity, salt);
    memlord_i_cell *cell;
    uint64_t bits;
    uint32_t row;
    if (MEMLORD_I_LIKELY(memo != NULL)) return memo->bits;
    row = memlord_i_row_of(lord, book, identity, slot);
    if (!row) return 0;
    bits = (uint64_t)row << (book == MEMLORD_I_SITE ? 1 : 21);
    cell = t == lord->orphan ? NULL : memlord_i_cell_make(lord, t, book, row, memlord_i_alloc);
    if (cell) memlord_i_memo_set(lord, t, identity, salt, cell, bits);
    return bits;
}

/* -- births: the mark and the scope of a block -- */

static memlord_i_birth *memlord_i_birth_at(memlord *lord, uint32_t number) {
    return (memlord_i_birth *)memlord_i_book_at(&lord->births, number, sizeof(memlord_i_birth));
}

static MEMLORD_I_COLD memlord_result memlord_i_birth_locked(memlord *lord, uint64_t mark,
                                                            uint32_t scope, uint32_t *number) {
    memlord_i_birth *birth;
    if (lord->birth_count == MEMLORD_I_BIRTHS_MAX) return MEMLORD_E_NOMEM;
    birth = (memlord_i_birth *)memlord_i_book_make(lord, &lord->births, lord->birth_count + 1,
                                                   sizeof *birth, memlord_i_cold_alloc);
    if (!birth) return MEMLORD_I_AGAIN;
    birth->mark = mark;
    birth->scope = scope;
    *number = ++lord->birth_count;
    return MEMLORD_OK;
}

/* The born bits of word2 in a scope, remembered by the thread and the scope. Without room for a
   birth the scope is not known of the block, and counted. Not inside. */
static MEMLORD_I_COLD uint64_t memlord_i_born_new(memlord *lord, memlord_i_thread *t,
                                                  uint64_t born) {
    memlord_i_scope *scope = t->nest->frame[t->nest->depth - 1].scope;
    uint64_t mark = MEMLORD_I_BORN(born), last = memlord_i_u64_load_acquire(&scope->birth);
    uint32_t number = (uint32_t)(last & MEMLORD_I_MARK_MAX);
    memlord_result r = MEMLORD_OK;
    if (!number || last >> (MEMLORD_I_BORN_BITS - 1) != mark) {
        do {
            memlord_i_cold_enter();
            r = memlord_i_birth_locked(lord, mark, scope->id, &number);
        } while (memlord_i_cold_leave(lord, &r));
        if (r)
            (void)memlord_i_u64_add(&lord->lost_scopes, 1);
        else /* pairs with the load above */
            memlord_i_u64_store_release(&scope->birth,
                                        mark << (MEMLORD_I_BORN_BITS - 1) | number);
    }
    t->born_of = born;
    t->born_in = r ? born : (MEMLORD_I_BORN_SCOPED | number) << 37;
    return t->born_in;
}
static MEMLORD_I_HOT uint64_t memlord_i_born_of(memlord *lord, memlord_i_thread *t) {
    uint64_t born = memlord_i_u64_load(&lord->born);
    if (MEMLORD_I_LIKELY(!t->scope)) return born;
    return t->born_in && t->born_of == born ? t->born_in : memlord_i_born_new(lord, t, born);
}

static uint64_t memlord_i_mark_of(memlord *lord, uint64_t word2) {
    uint64_t born = MEMLORD_I_BORN(word2);
    if (!(born & MEMLORD_I_BORN_SCOPED)) return born;
    return memlord_i_birth_at(lord, (uint32_t)(born & MEMLORD_I_MARK_MAX))->mark;
}
static memlord_i_scope *memlord_i_scope_at(memlord *lord, uint32_t id) {
    memlord_i_ptr *at = (memlord_i_ptr *)memlord_i_book_at(&lord->scopes, id, sizeof *at);
    return (memlord_i_scope *)memlord_i_ptr_load(at);
}
/* The id of the scope a block was born in; 0: none, or not known. */
static uint32_t memlord_i_scope_of(memlord *lord, uint64_t word2) {
    uint64_t born = MEMLORD_I_BORN(word2);
    if (!(born & MEMLORD_I_BORN_SCOPED)) return 0;
    return memlord_i_birth_at(lord, (uint32_t)(born & MEMLORD_I_MARK_MAX))->scope;
}

/* The word2 of an allocation by this thread, here; makes the thread's cells for its rows. Not
   inside. */
static uint64_t memlord_i_rows_for(memlord *lord, memlord_i_thread *t, uint32_t slot,
                                   const memlord_site *site) {
    uint64_t rows = 0;
    if (!t->scope && (memlord_i_u32_load(&t->special) & MEMLORD_I_SPECIAL_SCOPE))
        memlord_i_special(t, MEMLORD_I_SPECIAL_SCOPE, 0); /* the last has ended */
    if (site && (memlord_i_u32_load(&lord->hooks) & MEMLORD_I_HOOK_SITES))
        rows = memlord_i_memo_row(lord, t, MEMLORD_I_SITE, site, slot);
    if (t->tag) rows |= memlord_i_memo_row(lord, t, MEMLORD_I_TAG, t->tag, slot);
    return memlord_i_born_of(lord, t) | rows;
}

/* ----------------------------------------------------------------------- >>events --
   Owns stamps of time and the ring of events. The ring is cut into bursts: a thread takes the
   next one that nobody writes and fills it alone, so that threads share a word once a burst. A
   reader copies an event and then looks whether its burst was given out again meanwhile.
   Invariant: a ledger has one ring, from the first start until it ends. Locks: none, to write or
   to read. */

static uint64_t memlord_i_clock(memlord *lord) {
    return lord->clock.fn ? lord->clock.fn(lord->clock.user) : memlord_i_now();
}

/* A stamp: the processor's counter if it can be had, else the clock. */
static MEMLORD_I_HOT uint64_t memlord_i_stamp(memlord *lord) {
    return MEMLORD_I_LIKELY(lord->ticking) ? memlord_i_ticks() : memlord_i_clock(lord);
}

/* What makes nanoseconds of stamps; it becomes better the longer the ledger is there. */
typedef struct memlord_i_scale {
    uint64_t from; /* the stamp at create */
    double rate;
} memlord_i_scale;
static MEMLORD_I_COLD memlord_i_scale memlord_i_scale_now(memlord *lord) {
    memlord_i_scale scale;
    uint64_t ticks;
    scale.from = lord->started_stamp;
    scale.rate = 1;
    if (!lord->ticking) return scale;
    ticks = memlord_i_ticks() - scale.from;
    if (ticks) scale.rate = (double)(memlord_i_clock(lord) - lord->started) / (double)ticks;
    return scale;
}
static MEMLORD_I_COLD uint64_t memlord_i_span_ns(const memlord_i_scale *scale, uint64_t stamps) {
    return (uint64_t)((double)stamps * scale->rate + 0.5);
}
static uint64_t memlord_i_since_ns(const memlord_i_scale *scale, uint64_t stamp) {
    return stamp > scale->from ? memlord_i_span_ns(scale, stamp - scale->from) : 0;
}

/* -- writing -- */

static memlord_i_burst *memlord_i_burst_at(const memlord_i_ring *ring, uint64_t i) {
    return (memlord_i_burst *)(void *)((char *)(uintptr_t)(ring + 1) +
                                       (i % ring->bursts) * ring->stride);
}

static MEMLORD_I_COLD void memlord_i_events_lost(memlord *lord, uint32_t slot, uint64_t n) {
    if (slot)
        memlord_i_stat_add(lord, slot, MEMLORD_I_STAT_dropped_events, n);
    else
        (void)memlord_i_u64_add(&lord->lost_events, n);
}
/* What a burst still held is lost, and counted where it happened. */
static void memlord_i_burst_lose(memlord *lord, const memlord_i_burst *b) {
    uint32_t i, n = memlord_i_u32_load(&b->count);
    if (!n) return;
    if (b->slot != MEMLORD_I_SLOTS_DIFFER) {
        memlord_i_events_lost(lord, b->slot, n);
        return;
    }
    for (i = 0; i < n; i++)
        memlord_i_events_lost(lord, MEMLORD_I_NOTE_SLOT(memlord_i_u64_load(&b->at[i].what)), 1);
}

/* Lets go of a burst that was taken. Release: pairs with the exchange of memlord_i_burst_next. */
static void memlord_i_burst_drop(memlord_i_burst *b) { memlord_i_u32_store_release(&b->taken, 0); }
static void memlord_i_burst_leave(memlord_i_thread *t) {
    memlord_i_burst *b = t->burst;
    t->burst = NULL;
    if (b) memlord_i_burst_drop(b);
}

/* The next burst for a thread, whose first event is on `slot`; NULL: all are being written. */
static MEMLORD_I_NOINLINE memlord_i_burst *memlord_i_burst_next(memlord *lord, memlord_i_thread *t,
                                                                uint32_t slot) {
    memlord_i_ring *ring = (memlord_i_ring *)memlord_i_ptr_load_acquire(&lord->ring);
    uint64_t tries;
    memlord_i_burst_leave(t);
    for (tries = 0; ring && tries < ring->bursts; tries++) {
        uint64_t turn = memlord_i_u64_add(&ring->turn, 1);
        memlord_i_burst *b = memlord_i_burst_at(ring, turn);
        if (memlord_i_u32_load(&b->taken) || memlord_i_u32_exchange(&b->taken, 1))
            continue;
        if (memlord_i_u64_load(&b->turn) > turn) { /* we slept since: it is not the oldest now */
            memlord_i_burst_drop(b);
            continue;
        }
        memlord_i_u64_store(&b->turn, 0); /* before the count, which is a release as events are */
        memlord_i_burst_lose(lord, b);
        memlord_i_u32_store_release(&b->count, 0);
        memlord_i_u32_store_release(&b->thread, t->id - MEMLORD_I_ID_FIRST + 1);
        b->slot = slot;
        memlord_i_u64_store_release(&b->turn, turn + 1); /* pairs with memlord_i_stream_first */
        return t->burst = b;
    }
    memlord_i_events_lost(lord, slot, 1);
    return NULL;
}

/* Writes an event. Every word is a release store: a reader who sees one of them sees the turn
   that came before it. `rows` are the bits of word2. */
static MEMLORD_I_NOINLINE void memlord_i_note_put(memlord *lord, memlord_i_thread *t, int kind,
                                                  uint32_t slot, uint64_t storage, uint64_t bytes,
                                                  uint64_t rows) {
    memlord_i_burst *b = t->burst;
    memlord_i_note *note;
    uint32_t n;
    if (MEMLORD_I_UNLIKELY(!b || memlord_i_u32_load(&b->count) >= b->most)) {
        b = memlord_i_burst_next(lord, t, slot);
        if (!b) return;
    }
    if (MEMLORD_I_UNLIKELY(b->slot != slot)) b->slot = MEMLORD_I_SLOTS_DIFFER;
    n = memlord_i_u32_load(&b->count);
    note = &b->at[n];
    memlord_i_u64_store_release(&note->stamp, memlord_i_stamp(lord));
    memlord_i_u64_store_release(&note->storage, storage);
    memlord_i_u64_store_release(&note->what, bytes | (uint64_t)(unsigned)kind << 49 |
                                                 (uint64_t)slot << 53);
    memlord_i_u64_store_release(&note->where, (rows & MEMLORD_I_ROWS_MASK) >> 1 |
                                                  (uint64_t)t->scope << 36);
    memlord_i_u32_store_release(&b->count, n + 1); /* pairs with memlord_i_stream_first */
}
static MEMLORD_I_HOT void memlord_i_note_add(memlord *lord, memlord_i_thread *t, int kind,
                                             uint32_t slot, uint64_t storage, uint64_t bytes,
                                             uint64_t rows) {
    if (MEMLORD_I_UNLIKELY(memlord_i_u32_load(&lord->alert) & MEMLORD_I_ALERT_EVENTS))
        memlord_i_note_put(lord, t, kind, slot, storage, bytes, rows);
}
/* The end of a block, whose word2 without a side record is `plain`, at a site. */
static MEMLORD_I_NOINLINE void memlord_i_note_end(memlord *lord, memlord_i_thread *t, int kind,
                                                  uint64_t storage, uint64_t word1,
                                                  uint64_t plain, const memlord_site *site) {
    uint32_t slot = MEMLORD_I_SLOT(word1);
    uint64_t rows = plain & MEMLORD_I_TAG_BITS_OF_ROWS;
    if (!(memlord_i_u32_load(&lord->alert) & MEMLORD_I_ALERT_EVENTS)) return;
    if (site && (memlord_i_u32_load(&lord->hooks) & MEMLORD_I_HOOK_SITES))
        rows |= memlord_i_memo_row(lord, t, MEMLORD_I_SITE, site, slot);
    memlord_i_note_put(lord, t, kind, slot, storage, MEMLORD_I_BYTES(word1), rows);
}
#if MEMLORD_I_POSIX
/* In a forked child: no burst but this thread's is being written. */
static MEMLORD_I_COLD void memlord_i_bursts_gone(memlord *lord) {
    const memlord_i_ring *ring = (memlord_i_ring *)memlord_i_ptr_load(&lord->ring);
    const memlord_i_thread *t = memlord_i_thread_mine(lord);
    uint64_t i;
    for (i = 0; ring && i < ring->bursts; i++) {
        memlord_i_burst *b = memlord_i_burst_at(ring, i);
        if (!t || t->burst != b) memlord_i_u32_store(&b->taken, 0);
    }
}
#endif

/* What no block did. Nothing is held. */
static MEMLORD_I_COLD void memlord_i_note_other(memlord *lord, int kind, uint32_t slot,
                                                uint64_t storage, uint64_t bytes) {
    memlord_i_thread *t;
    if (!(memlord_i_u32_load(&lord->alert) & MEMLORD_I_ALERT_EVENTS)) return;
    t = memlord_i_thread_get(lord);
    if (!t) return;
    if (bytes > MEMLORD_I_BYTES_MAX) bytes = MEMLORD_I_BYTES_MAX;
    memlord_i_note_add(lord, t, kind, slot, storage, bytes, 0);
    memlord_i_thread_put(lord, t);
}

/* -- starting and ending -- */

#define MEMLORD_I_EVENTS_MAX ((size_t)1 << 26)

static memlord_i_ring *memlord_i_ring_new(memlord *lord, size_t capacity) {
    uint32_t most = capacity / 16 < 64 ? (uint32_t)(capacity / 16) : 64;
    size_t stride, size, i;
    memlord_i_ring *ring;
    if (!most) most = 1;
    stride = sizeof(memlord_i_burst) + (most - 1) * sizeof(memlord_i_note);
    size = sizeof *ring + capacity / most * stride;
    ring = (memlord_i_ring *)memlord_i_alloc(lord, size);
    if (!ring) return NULL;
    ring->size = size;
    ring->capacity = capacity;
    ring->bursts = capacity / most;
    ring->most = most;
    ring->stride = stride;
    for (i = 0; i < ring->bursts; i++)
        memlord_i_burst_at(ring, i)->most = most;
    return ring;
}

static MEMLORD_I_COLD memlord_result memlord_i_events_begin(memlord *lord, size_t capacity) {
    memlord_i_ring *ring = (memlord_i_ring *)memlord_i_ptr_load_acquire(&lord->ring), *fresh = NULL;
    if (memlord_i_self.busy) return MEMLORD_E_STATE;
    if (!ring) {
        fresh = memlord_i_ring_new(lord, capacity);
        if (!fresh) return MEMLORD_E_NOMEM;
        memlord_i_lock_take(&memlord_i_process.lock);
        ring = (memlord_i_ring *)memlord_i_ptr_load(&lord->ring);
        if (!ring) { /* else another thread was faster */
            ring = fresh;
            fresh = NULL;
            memlord_i_ptr_store_release(&lord->ring, ring);
        }
        memlord_i_lock_drop(&memlord_i_process.lock);
    }
    if (fresh) memlord_i_free(lord, fresh, fresh->size);
    if (ring->capacity != capacity) return MEMLORD_E_STATE;
    memlord_i_alert(lord, MEMLORD_I_ALERT_EVENTS, 1);
    return MEMLORD_OK;
}

static void memlord_i_ring_end(memlord *lord) {
    memlord_i_ring *ring = (memlord_i_ring *)memlord_i_ptr_load(&lord->ring);
    if (ring) memlord_i_free(lord, ring, ring->size);
}

/* -- reading: the bursts are merged by time, with a heap of the next event of each -- */

typedef struct memlord_i_stream {
    memlord_i_burst *burst;
    uint64_t turn, stamp;
    uint32_t at, count;
} memlord_i_stream;
typedef struct memlord_i_reading {
    memlord *lord;
    memlord_i_stream *heap;
    size_t n, size;
    memlord_i_scale scale;
} memlord_i_reading;

static int memlord_i_stream_before(const memlord_i_stream *a, const memlord_i_stream *b) {
    return a->stamp != b->stamp ? a->stamp < b->stamp : a->turn < b->turn;
}

static void memlord_i_heap_sink(memlord_i_reading *r, size_t i) {
    for (;;) {
        size_t child = 2 * i + 1;
        memlord_i_stream swap = r->heap[i];
        if (child + 1 < r->n && memlord_i_stream_before(&r->heap[child + 1], &r->heap[child]))
            child++;
        if (child >= r->n || !memlord_i_stream_before(&r->heap[child], &swap)) return;
        r->heap[i] = r->heap[child];
        r->heap[child] = swap;
        i = child;
    }
}

/* 1: the burst has something to read. The acquires pair with the releases of
   memlord_i_note_put. */
static int memlord_i_stream_first(memlord_i_stream *s, memlord_i_burst *b) {
    s->burst = b;
    s->at = 0;
    s->turn = memlord_i_u64_load_acquire(&b->turn);
    s->count = memlord_i_u32_load_acquire(&b->count);
    s->stamp = memlord_i_u64_load_acquire(&b->at[0].stamp);
    return s->turn && s->count && memlord_i_u64_load(&b->turn) == s->turn;
}

/* Begins to read what is in the ring now; 0: no memory. */
static MEMLORD_I_COLD int memlord_i_reading_begin(memlord *lord, memlord_i_reading *r) {
    const memlord_i_ring *ring = (memlord_i_ring *)memlord_i_ptr_load_acquire(&lord->ring);
    uint64_t i;
    memset(r, 0, sizeof *r);
    r->lord = lord;
    r->scale = memlord_i_scale_now(lord);
    if (!ring) return 1;
    r->size = (size_t)ring->bursts * sizeof *r->heap;
    r->heap = (memlord_i_stream *)memlord_i_alloc(lord, r->size);
    if (!r->heap) return 0;
    for (i = 0; i < ring->bursts; i++)
        r->n += (size_t)memlord_i_stream_first(&r->heap[r->n], memlord_i_burst_at(ring, i));
    for (i = r->n / 2; i-- > 0;) memlord_i_heap_sink(r, (size_t)i);
    return 1;
}
static void memlord_i_reading_end(memlord_i_reading *r) {
    memlord_i_free(r->lord, r->heap, r->size);
}

/* The next event as it was written; 0: there is none. */
static MEMLORD_I_COLD int memlord_i_reading_next(memlord_i_reading *r, memlord_i_read *out) {
    while (r->n) {
        memlord_i_stream *s = &r->heap[0];
        memlord_i_burst *b = s->burst;
        const memlord_i_note *note = &b->at[s->at];
        int whole;
        out->stamp = memlord_i_u64_load_acquire(&note->stamp);
        out->storage = memlord_i_u64_load_acquire(&note->storage);
        out->what = memlord_i_u64_load_acquire(&note->what);
        out->where = memlord_i_u64_load_acquire(&note->where);
        out->thread = memlord_i_u32_load_acquire(&b->thread);
        if (++s->at < s->count) s->stamp = memlord_i_u64_load_acquire(&b->at[s->at].stamp);
        whole = memlord_i_u64_load(&b->turn) == s->turn;
        if (!whole || s->at == s->count) *s = r->heap[--r->n];
        memlord_i_heap_sink(r, 0);
        if (whole) return 1;
    }
    return 0;
}

/* The same for the host. Nothing is held. */
static MEMLORD_I_COLD void memlord_i_read_event(memlord_i_reading *r, const memlord_i_read *in,
                                                memlord_event *out) {
    uint32_t slot = MEMLORD_I_NOTE_SLOT(in->what);
    uint32_t site = (uint32_t)in->where & MEMLORD_I_SITE_ROWS_MAX;
    uint32_t tag = (uint32_t)(in->where >> 20) & MEMLORD_I_TAG_ROWS_MAX;
    memset(out, 0, sizeof *out);
    out->time_ns = memlord_i_since_ns(&r->scale, in->stamp);
    out->thread = in->thread;
    out->kind = (int)MEMLORD_I_NOTE_KIND(in->what);
    out->device = slot ? memlord_i_device_at(r->lord, slot)->device : memlord_device_all();
    out->storage = in->storage;
    out->bytes = MEMLORD_I_BYTES(in->what);
    out->scope = in->where >> 36;
    if (site)
        out->site = memlord_i_site_shown(
            r->lord, (memlord_i_site *)memlord_i_row_at(r->lord, MEMLORD_I_SITE, site)->subject);
    if (tag) out->tag = (const char *)memlord_i_row_at(r->lord, MEMLORD_I_TAG, tag)->subject;
    if (out->kind == MEMLORD_EVENT_CHECKPOINT) { /* its name went where a storage does */
        out->tag = (const char *)(uintptr_t)in->storage;
        out->storage = 0;
    }
}

/* ---------------------------------------------------------------------- >>fences --
   Owns the fences the host gave us: those recorded on live blocks, those pending blocks wait for,
   in a queue each device and `queue`, and those to be dropped because their block is gone.
   Invariants: done and drop of a fence are called by one thread at a time, its asker, with
   nothing held. If the block of a fence goes while it has an asker, the asker frees it (widowed),
   else the holder of the block does. Every pending fence is in a queue until it is settled.
   Lock: fences. */

/* Every fence brings the memory of a queue, and takes that of one along when it goes. */
static memlord_i_fence *memlord_i_fence_new(memlord *lord, const memlord_fence *fence) {
    memlord_i_fence *f = (memlord_i_fence *)memlord_i_alloc(lord, sizeof *f);
    memlord_i_queue *q = (memlord_i_queue *)memlord_i_alloc(lord, sizeof *q);
    if (!f || !q) {
        memlord_i_free(lord, f, sizeof *f);
        memlord_i_free(lord, q, sizeof *q);
        return NULL;
    }
    f->fence = *fence;
    (void)memlord_i_u64_add(&lord->fences, 1);
    memlord_i_lock_take(&lord->fences_lock);
    q->next = lord->spare_queues;
    lord->spare_queues = q;
    memlord_i_lock_drop(&lord->fences_lock);
    return f;
}
static void memlord_i_fence_free(memlord *lord, memlord_i_fence *f) {
    memlord_i_queue *q;
    memlord_i_lock_take(&lord->fences_lock);
    q = lord->spare_queues;
    lord->spare_queues = q->next;
    memlord_i_lock_drop(&lord->fences_lock);
    memlord_i_free(lord, q, sizeof *q);
    memlord_i_free(lord, f, sizeof *f);
    (void)memlord_i_u64_add(&lord->fences, (uint64_t)-1);
}

/* Has a fence dropped at the end of a call. Under the fences lock. */
static void memlord_i_drops_put(memlord *lord, memlord_i_fence *f) {
    f->next = lord->drops;
    lord->drops = f;
    memlord_i_alert(lord, MEMLORD_I_ALERT_DROPS, 1);
}

/* Takes a fence and is done with it: where nothing waits. NULL: without a ledger. */
static MEMLORD_I_COLD memlord_result memlord_i_fence_pass(memlord *lord,
                                                          const memlord_fence *fence) {
    memlord_i_fence *f;
    if (!lord || !(lord->flags & MEMLORD_FLAG_DEFER)) {
        if (fence->drop) fence->drop(fence->user);
        return MEMLORD_OK;
    }
    f = memlord_i_fence_new(lord, fence);
    if (!f) return MEMLORD_E_NOMEM;
    memlord_i_lock_take(&lord->fences_lock);
    memlord_i_drops_put(lord, f);
    memlord_i_lock_drop(&lord->fences_lock);
    return MEMLORD_OK;
}

#define MEMLORD_I_REST_LEAST 2 /* calls that leave a queue alone after a "not yet" */
#define MEMLORD_I_REST_MOST 256
#define MEMLORD_I_REST_NS 10000000u
#define MEMLORD_I_REST_LOOK 8 /* one of so many calls reads the clock */

/* -- queues; all under the fences lock -- */

static memlord_i_queue *memlord_i_queue_find(const memlord_i_pends *p, uint32_t slot, uint64_t id) {
    memlord_i_queue *q = p->first;
    while (q && (q->slot != slot || q->id != id)) q = q->next;
    return q;
}
static void memlord_i_queue_link(memlord_i_pends *p, memlord_i_queue *q) {
    q->next = NULL;
    q->previous = p->first ? p->first->previous : q;
    if (p->first) {
        p->first->previous->next = q;
        p->first->previous = q;
    } else {
        p->first = q;
    }
}
static void memlord_i_queue_unlink(memlord_i_pends *p, memlord_i_queue *q) {
    (q->next ? q->next : p->first)->previous = q->previous;
    if (p->first == q)
        p->first = q->next;
    else
        q->previous->next = q->next;
}

/* Takes the memory of a spare queue. */
static memlord_i_queue *memlord_i_queue_add(memlord *lord, const memlord_i_fence *f) {
    uint32_t type = lord->slot_type[f->slot];
    memlord_i_queue *q = lord->spare_queues;
    lord->spare_queues = q->next;
    memset(q, 0, sizeof *q);
    q->id = f->fence.queue;
    q->slot = f->slot;
    q->due = memlord_i_u32_load(&lord->pends[type].calls);
    memlord_i_queue_link(&lord->pends[type], q);
    memlord_i_alert(lord, (uint32_t)MEMLORD_I_ALERT_PENDS << type, 1);
    return q;
}

/* Has the calls of its type ask a queue again after `rest` of them. */
static void memlord_i_queue_rest(memlord *lord, memlord_i_queue *q, uint32_t rest, uint64_t now) {
    memlord_i_pends *p = &lord->pends[lord->slot_type[q->slot]];
    q->rest = rest < MEMLORD_I_REST_MOST ? rest : MEMLORD_I_REST_MOST;
    q->due = memlord_i_u32_load(&p->calls) + q->rest;
    q->late = rest ? now + MEMLORD_I_REST_NS : 0;
    if ((int32_t)(q->due - memlord_i_u32_load(&p->due)) < 0) memlord_i_u32_store(&p->due, q->due);
    if (q->late < memlord_i_u64_load(&p->late)) memlord_i_u64_store(&p->late, q->late);
}

static void memlord_i_queue_push(memlord *lord, memlord_i_fence *f) {
    memlord_i_pends *p = &lord->pends[lord->slot_type[f->slot]];
    memlord_i_queue *q = memlord_i_queue_find(p, f->slot, f->fence.queue);
    if (!q) q = memlord_i_queue_add(lord, f);
    f->queue = q;
    f->next = NULL;
    f->previous = q->last;
    if (q->last)
        q->last->next = f;
    else
        q->first = f;
    q->last = f;
    if (!q->unasked && (lord->flags & MEMLORD_FLAG_DEFER)) q->unasked = f;
}

static void memlord_i_queue_remove(memlord *lord, memlord_i_fence *f) {
    memlord_i_queue *q = f->queue;
    memlord_i_pends *p = &lord->pends[lord->slot_type[q->slot]];
    f->queue = NULL;
    if (q->unasked == f) q->unasked = f->next;
    if (f->next)
        f->next->previous = f->previous;
    else
        q->last = f->previous;
    if (f->previous) {
        f->previous->next = f->next;
        return;
    }
    q->first = f->next;
    if (q->first) { /* which nobody has asked in its turn */
        q->round = 0;
        memlord_i_queue_rest(lord, q, 0, 0);
        return;
    }
    memlord_i_queue_unlink(p, q);
    q->next = lord->spare_queues;
    lord->spare_queues = q;
    if (!p->first)
        memlord_i_alert(lord, (uint32_t)MEMLORD_I_ALERT_PENDS << lord->slot_type[q->slot], 0);
}

/* Detaches the fences of a block that has ended, or replaced them; the end of the call drops
   them. May be inside. */
static MEMLORD_I_NOINLINE void memlord_i_fences_widow(memlord *lord, memlord_i_fence *f) {
    memlord_i_fence *sibling;
    if (!f) return;
    memlord_i_lock_take(&lord->fences_lock);
    for (; f; f = sibling) {
        sibling = f->sibling;
        if (f->asker) {
            f->widowed = 1;
            continue;
        }
        if (f->queue) memlord_i_queue_remove(lord, f);
        memlord_i_drops_put(lord, f);
    }
    memlord_i_lock_drop(&lord->fences_lock);
}

/* Keeps the recorded uses of a block that is off the map until its token is used, or the ledger
   ends; under the first of them. */
static void memlord_i_fences_aside(memlord *lord, memlord_i_fence *f) {
    if (!f) return;
    memlord_i_lock_take(&lord->fences_lock);
    f->previous = NULL;
    f->next = lord->aside;
    if (f->next) f->next->previous = f;
    lord->aside = f;
    memlord_i_lock_drop(&lord->fences_lock);
}
static void memlord_i_fences_back(memlord *lord, memlord_i_fence *f) {
    if (!f) return;
    memlord_i_lock_take(&lord->fences_lock);
    if (f->next) f->next->previous = f->previous;
    if (f->previous)
        f->previous->next = f->next;
    else
        lord->aside = f->next;
    memlord_i_lock_drop(&lord->fences_lock);
}

/* -- the host's functions: out of them this thread asks and drops no further ones -- */

/* 1: this thread is inside a fence of the ledger. */
static int memlord_i_fence_inside(const memlord *lord) {
    return memlord_i_self.retiring == lord->generation;
}
static MEMLORD_I_NOINLINE int memlord_i_fence_ask(memlord *lord, memlord_i_fence *f) {
    uint64_t outer = memlord_i_self.retiring;
    int answer = f->answered ? 1 : f->told;
    if (answer) return answer;
    memlord_i_rank_none();
    memlord_i_self.retiring = lord->generation;
    answer = f->fence.done(f->fence.user);
    memlord_i_self.retiring = outer;
    return answer;
}
static MEMLORD_I_NOINLINE void memlord_i_fence_drop(memlord *lord, memlord_i_fence *f) {
    uint64_t outer = memlord_i_self.retiring;
    if (f->answered) return;
    f->answered = 1;
    memlord_i_rank_none();
    memlord_i_self.retiring = lord->generation;
    if (f->fence.drop) f->fence.drop(f->fence.user);
    memlord_i_self.retiring = outer;
}

/* Drops what is to be dropped. Nothing may be held. */
static MEMLORD_I_COLD void memlord_i_fences_drain(memlord *lord) {
    if (memlord_i_fence_inside(lord)) return; /* the outer call goes on */
    for (;;) {
        memlord_i_fence *f;
        memlord_i_lock_take(&lord->fences_lock);
        f = lord->drops;
        if (f) lord->drops = f->next;
        if (!f) memlord_i_alert(lord, MEMLORD_I_ALERT_DROPS, 0);
        memlord_i_lock_drop(&lord->fences_lock);
        if (!f) break;
        memlord_i_fence_drop(lord, f);
        memlord_i_fence_free(lord, f);
    }
}

/* ----------------------------------------------------------------------- >>blocks --
   Owns what happens to a storage: opened, referenced, closed, resized, moved, described,
   looked at. Composes the map, the counters and the sites; a call finds its rows first, changes
   the map, counts, and only then leaves the shard. Locks: those of the map. */

static MEMLORD_I_HOT int memlord_i_key_valid(uint64_t key) { return key + 1 > 1; }

static memlord_i_side *memlord_i_side_of(uint64_t word2) {
    return word2 & 1 ? (memlord_i_side *)(uintptr_t)(word2 & ~(uint64_t)1) : NULL;
}
static uint64_t memlord_i_word2_of(uint64_t word2) {
    return word2 & 1 ? memlord_i_side_of(word2)->word2 : word2;
}
static uint64_t memlord_i_refs_of(uint64_t word1, uint64_t word2) {
    uint64_t refs = MEMLORD_I_REFS(word1);
    return refs == MEMLORD_I_REFS_MANY ? memlord_i_side_of(word2)->refs : refs;
}
static memlord_i_fence *memlord_i_fences_of(uint64_t word2) {
    return word2 & 1 ? memlord_i_side_of(word2)->fences : NULL;
}
/* 1: freed, and waits for its fences. */
static int memlord_i_is_pending(uint64_t word2) {
    return (word2 & 1) && memlord_i_side_of(word2)->serial;
}
static void memlord_i_parts_free(memlord *lord, memlord_i_parts *parts);
static MEMLORD_I_NOINLINE void memlord_i_side_free(memlord *lord, uint64_t word2) {
    if (!(word2 & 1)) return;
    if (memlord_i_side_of(word2)->parts)
        memlord_i_parts_free(lord, memlord_i_side_of(word2)->parts);
    memlord_i_fences_widow(lord, memlord_i_side_of(word2)->fences);
    memlord_i_free(lord, memlord_i_side_of(word2), sizeof(memlord_i_side));
}
static uint64_t memlord_i_word1(uint64_t bytes, uint32_t slot) {
    return bytes | (uint64_t)(slot + 256u) << 49; /* one reference */
}

/* The delta of a block that opens, and of one that closes. */
static memlord_i_delta memlord_i_delta_open(uint32_t slot, uint64_t word2, uint64_t bytes) {
    memlord_i_delta d;
    memset(&d, 0, sizeof d);
    d.slot = slot;
    d.word2 = word2;
    d.in = bytes;
    d.allocs = 1;
    return d;
}
static memlord_i_delta memlord_i_delta_close(uint32_t slot, uint64_t word2, uint64_t bytes) {
    memlord_i_delta d;
    memset(&d, 0, sizeof d);
    d.slot = slot;
    d.word2 = word2;
    d.out = bytes;
    d.frees = 1;
    return d;
}

static void memlord_i_count_close(memlord *lord, memlord_i_thread *t, uint64_t word1,
                                  uint64_t word2) {
    const uint32_t slot = MEMLORD_I_SLOT(word1);
    const memlord_i_delta d =
        memlord_i_delta_close(slot, memlord_i_word2_of(word2), MEMLORD_I_BYTES(word1));
    t->also = slot;
    if (memlord_i_is_pending(word2)) {
        memlord_i_stat_add(lord, slot, MEMLORD_I_STAT_pending, (uint64_t)0 - d.out);
        if (memlord_i_side_of(word2)->epoch != memlord_i_u64_load(&lord->epoch))
            memlord_i_row_freed_before(lord, slot, d.out);
    }
    memlord_i_count(lord, t, &d, 1);
}

/* Makes the cells that n deltas count on, while that is still possible. Not inside. */
static void memlord_i_cells_make(memlord *lord, memlord_i_thread *t, const memlord_i_delta *d,
                                 unsigned n) {
    if (t == lord->orphan) return;
    for (; n--; d++) {
        uint32_t site = MEMLORD_I_SITE_ROW(d->word2), tag = MEMLORD_I_TAG_ROW(d->word2);
        if (d->slot)
            (void)memlord_i_cell_make(lord, t, MEMLORD_I_DEVICE, d->slot, memlord_i_alloc);
        if (site) (void)memlord_i_cell_make(lord, t, MEMLORD_I_SITE, site, memlord_i_alloc);
        if (tag) (void)memlord_i_cell_make(lord, t, MEMLORD_I_TAG, tag, memlord_i_alloc);
    }
}

/* Counts a free at the site that made it, wherever the block was allocated. Not inside. */
static void memlord_i_count_here(memlord *lord, memlord_i_thread *t, uint32_t slot,
                                 const memlord_site *site, uint64_t bytes) {
    memlord_i_delta d;
    if (!site || !(memlord_i_u32_load(&lord->hooks) & MEMLORD_I_HOOK_SITES)) return;
    memset(&d, 0, sizeof d);
    d.word2 = memlord_i_memo_row(lord, t, MEMLORD_I_SITE, site, slot);
    d.here = bytes;
    d.here_frees = 1;
    memlord_i_count(lord, t, &d, 1);
}

/* 1: so much more and sums could leave int64. Only sizes no machine has are looked at: smaller
   ones would need 2^30 live blocks to get there. */
static MEMLORD_I_HOT int memlord_i_beyond(memlord *lord, uint32_t slot, uint64_t bytes) {
    if (MEMLORD_I_LIKELY(bytes <= (uint64_t)1 << 32 || !slot)) return 0;
    return (int64_t)(memlord_i_u64_load(
                         &memlord_i_row_at(lord, MEMLORD_I_DEVICE, slot)->published) +
                     bytes) > (int64_t)1 << 62;
}

/* 1: MEMLORD_DEBUG wants a line of a call that did something, or met with something odd. */
static MEMLORD_I_HOT int memlord_i_tells(memlord *lord) {
    return MEMLORD_I_UNLIKELY(memlord_i_u32_load(&lord->hooks) & MEMLORD_I_HOOK_TRACE) ? 1 : 0;
}
static MEMLORD_I_HOT void memlord_i_tell_from(memlord_device d, uint64_t storage) {
    memlord_i_self.odd.from_device = d;
    memlord_i_self.odd.from = storage;
}

static void memlord_i_log(memlord *lord, int level, const char *text);

/* Warns once. Not by a thread without a record, which may hold the lock of those. */
static MEMLORD_I_COLD void memlord_i_drop_say(memlord *lord, memlord_i_u32 *said,
                                              const char *text) {
    if (memlord_i_self.generation == lord->generation && !memlord_i_u32_exchange(said, 1))
        memlord_i_log(lord, MEMLORD_LOG_WARNING, text);
}
static MEMLORD_I_COLD void memlord_i_drop_say_alloc(memlord *lord) {
    memlord_i_drop_say(lord, &lord->said_alloc,
                       "[drop] no room to record an alloc: give the ledger's allocator more, or "
                       "raise MEMLORD_MAX_DEVICES; dropped_allocs has how many");
}

static void memlord_i_drop_count(memlord *lord, uint32_t slot, uint64_t bytes) {
    memlord_i_stat_add(lord, slot, MEMLORD_I_STAT_dropped_allocs, 1);
    memlord_i_stat_add(lord, slot, MEMLORD_I_STAT_dropped_bytes, bytes);
    (void)memlord_i_u64_add(&lord->dropped[lord->slot_type[slot]], 1);
    memlord_i_drop_say_alloc(lord);
}
/* The same when the device itself could not be made known: no memory, or one too many. */
static memlord_result memlord_i_drop_lost(memlord *lord, memlord_result r, memlord_device d,
                                          uint64_t bytes) {
    if (r != MEMLORD_E_NOMEM && (r != MEMLORD_E_DEVICE || !memlord_i_device_valid(d))) return r;
    (void)memlord_i_u64_add(&lord->lost_allocs, 1);
    (void)memlord_i_u64_add(&lord->lost_bytes, bytes);
    (void)memlord_i_u64_add(&lord->dropped[d.type], 1);
    memlord_i_drop_say_alloc(lord);
    return r;
}
/* 1: a storage nobody knows may be one of those dropped, and is now taken for it. */
static int memlord_i_drop_settle(memlord *lord, int type) {
    uint64_t left = memlord_i_u64_load(&lord->dropped[type]);
    while (left)
        if (memlord_i_u64_cas(&lord->dropped[type], &left, left - 1)) return 1;
    return 0;
}
/* Counts an end of a storage nobody knows; on the ledger as a whole if the device it names cannot
   be made known. */
static MEMLORD_I_COLD memlord_result memlord_i_unknown(memlord *lord, memlord_device d) {
    uint32_t slot;
    if (memlord_i_drop_settle(lord, d.type)) return MEMLORD_OK;
    if (memlord_i_slot_named(lord, d, &slot) == MEMLORD_OK)
        memlord_i_stat_add(lord, slot, MEMLORD_I_STAT_unknown_frees, 1);
    else
        (void)memlord_i_u64_add(&lord->lost_unknown, 1);
    if (memlord_i_tells(lord)) memlord_i_self.odd.unknown++;
    return MEMLORD_E_UNKNOWN;
}

/* Finds a key, and holds its place whatever comes of it; NULL: it is dead, or pending. */
static MEMLORD_I_HOT memlord_i_entry *memlord_i_spot_live(memlord *lord, memlord_i_thread *t,
                                                          uint32_t type, uint64_t key,
                                                          memlord_i_spot *spot) {
    (void)memlord_i_spot_find(lord, t, type, key, 0, spot);
    return spot->entry && !memlord_i_is_pending(spot->entry->word2) ? spot->entry : NULL;
}

/* The same for its side record; NULL: it is dead, or has none. */
static MEMLORD_I_COLD memlord_i_side *memlord_i_spot_record(memlord *lord, memlord_i_thread *t,
                                                            uint32_t type, uint64_t key,
                                                            memlord_i_spot *spot) {
    (void)memlord_i_spot_find(lord, t, type, key, 0, spot);
    return spot->entry ? memlord_i_side_of(spot->entry->word2) : NULL;
}

/* There is no memory for a call: E_NOMEM, unless its storage is dead, which takes none to say.
   `ends`: that is counted. */
static MEMLORD_I_COLD memlord_result memlord_i_short_of(memlord *lord, memlord_i_thread *t,
                                                        memlord_device d, uint64_t key, int ends) {
    memlord_i_spot spot;
    int live = memlord_i_spot_live(lord, t, (uint32_t)d.type, key, &spot) != NULL;
    memlord_i_spot_leave(t, &spot);
    if (live) return MEMLORD_E_NOMEM;
    if (ends) (void)memlord_i_unknown(lord, d);
    return MEMLORD_E_UNKNOWN;
}

/* -- references -- */

/* 1: done; 0: the count no longer fits the entry, and there is no side record yet. */
static int memlord_i_ref_up(memlord_i_entry *e) {
    uint32_t refs = MEMLORD_I_REFS(e->word1);
    if (refs == MEMLORD_I_REFS_MANY) {
        memlord_i_side_of(e->word2)->refs++;
        return 1;
    }
    if (refs + 1 == MEMLORD_I_REFS_MANY) {
        if (!(e->word2 & 1)) return 0;
        memlord_i_side_of(e->word2)->refs = MEMLORD_I_REFS_MANY;
    }
    e->word1 += MEMLORD_I_REFS_ONE;
    return 1;
}
static void memlord_i_ref_down(memlord_i_entry *e) {
    if (MEMLORD_I_REFS(e->word1) == MEMLORD_I_REFS_MANY &&
        --memlord_i_side_of(e->word2)->refs >= MEMLORD_I_REFS_MANY)
        return;
    e->word1 -= MEMLORD_I_REFS_ONE;
}

/* Finds a live key, as memlord_i_spot_find, and gives it a side record if it has none. The
   record is taken first, as nothing can be once inside: *unused is to be freed after leaving.
   Any error has left the shard. */
static memlord_result memlord_i_spot_side(memlord *lord, memlord_i_thread *t, uint32_t type,
                                          uint64_t key, memlord_i_spot *spot,
                                          memlord_i_side **unused) {
    memlord_i_side *side = (memlord_i_side *)memlord_i_alloc(lord, sizeof *side);
    *unused = NULL;
    (void)memlord_i_spot_find(lord, t, type, key, 0, spot);
    if (!spot->entry) {
        memlord_i_spot_leave(t, spot);
        memlord_i_free(lord, side, sizeof *side);
        return MEMLORD_E_UNKNOWN;
    }
    if (spot->entry->word2 & 1) {
        *unused = side;
        return MEMLORD_OK;
    }
    if (!side) {
        memlord_i_spot_leave(t, spot);
        return MEMLORD_E_NOMEM;
    }
    side->word2 = spot->entry->word2;
    spot->entry->word2 = (uint64_t)(uintptr_t)side | 1;
    return MEMLORD_OK;
}

static MEMLORD_I_COLD memlord_result memlord_i_retain(memlord *lord, memlord_i_thread *t,
                                                      uint32_t type, uint64_t key) {
    memlord_i_spot spot;
    memlord_i_side *unused;
    memlord_result r;
    int up = memlord_i_spot_live(lord, t, type, key, &spot) ? memlord_i_ref_up(spot.entry) : -1;
    memlord_i_spot_leave(t, &spot);
    if (up) return up < 0 ? MEMLORD_E_UNKNOWN : MEMLORD_OK;
    r = memlord_i_spot_side(lord, t, type, key, &spot, &unused);
    if (r) return r;
    (void)memlord_i_ref_up(spot.entry);
    memlord_i_spot_leave(t, &spot);
    memlord_i_free(lord, unused, sizeof *unused);
    return MEMLORD_OK;
}

/* -- open -- */

/* Puts a new entry where a spot has room for it, counts and leaves. */
static void memlord_i_spot_open(memlord *lord, memlord_i_thread *t, memlord_i_spot *spot,
                                uint64_t word1, uint64_t word2, const memlord_i_delta *d,
                                unsigned n) {
    uint32_t size = spot->shard->size;
    int crowded;
    memlord_i_spot_put(spot, word1, word2);
    crowded = spot->bucket && memlord_i_shard_crowded(lord, spot->shard);
    memlord_i_spot_unlock(spot);
    memlord_i_count(lord, t, d, n);
    memlord_i_spot_leave(t, spot);
    if (crowded) /* without memory it stays as it is: slower, as exact */
        (void)memlord_i_shard_grow(lord, t, spot->shard, size);
}

/* Puts a new entry in the place of one that is stale, or pending and over now; counts both and
   leaves. */
static MEMLORD_I_COLD void memlord_i_spot_replace(memlord *lord, memlord_i_thread *t,
                                                  memlord_i_spot *spot, uint64_t word1,
                                                  uint64_t word2, const memlord_i_delta *d,
                                                  unsigned n) {
    memlord_i_entry stale = *spot->entry;
    spot->entry->word1 = word1;
    spot->entry->word2 = word2;
    memlord_i_spot_unlock(spot);
    memlord_i_count_close(lord, t, stale.word1, stale.word2);
    memlord_i_count(lord, t, d, n);
    memlord_i_spot_leave(t, spot);
    memlord_i_note_end(lord, t, MEMLORD_EVENT_FREE, stale.key, stale.word1,
                       memlord_i_word2_of(stale.word2), NULL);
    if (!memlord_i_is_pending(stale.word2)) {
        memlord_i_stat_add(lord, MEMLORD_I_SLOT(stale.word1), MEMLORD_I_STAT_implicit_frees, 1);
        if (memlord_i_tells(lord)) {
            memlord_i_self.odd.implicit++;
            memlord_i_self.odd.over += MEMLORD_I_BYTES(stale.word1);
        }
    }
    memlord_i_side_free(lord, stale.word2);
}

/* Puts an entry under a key and counts `c`. A live one there is stale and closed. *fresh says
   whether the key was free. */
static MEMLORD_I_COLD memlord_result memlord_i_insert(memlord *lord, memlord_i_thread *t,
                                                      uint32_t slot, uint64_t key, uint64_t word1,
                                                      uint64_t word2, const memlord_i_delta *d,
                                                      unsigned n, int *fresh) {
    memlord_i_spot spot;
    *fresh = 0;
    memlord_i_cells_make(lord, t, d, n);
    if (memlord_i_spot_find(lord, t, lord->slot_type[slot], key, 1, &spot)) return MEMLORD_E_NOMEM;
    if (!spot.entry) {
        *fresh = 1;
        memlord_i_spot_open(lord, t, &spot, word1, word2, d, n);
        return MEMLORD_OK;
    }
    memlord_i_spot_replace(lord, t, &spot, word1, word2, d, n);
    return MEMLORD_OK;
}

static MEMLORD_I_COLD memlord_result memlord_i_open(memlord *lord, memlord_i_thread *t,
                                                    uint32_t slot, uint64_t key, uint64_t bytes,
                                                    uint64_t rows, int *fresh) {
    const memlord_i_delta d = memlord_i_delta_open(slot, rows, bytes);
    if (memlord_i_beyond(lord, slot, bytes)) return MEMLORD_E_INVALID;
    return memlord_i_insert(lord, t, slot, key, memlord_i_word1(bytes, slot), rows, &d, 1, fresh);
}

/* Opens a dead key, or adds a reference to a live one. */
static memlord_result memlord_i_track(memlord *lord, memlord_i_thread *t, uint32_t slot,
                                      uint64_t key, uint64_t bytes, uint64_t rows, int *fresh) {
    const memlord_i_delta d = memlord_i_delta_open(slot, rows, bytes);
    memlord_i_spot spot;
    uint32_t type = lord->slot_type[slot];
    *fresh = 0;
    memlord_i_cells_make(lord, t, &d, 1);
    for (;;) {
        memlord_result r;
        int up;
        if (memlord_i_spot_find(lord, t, type, key, 1, &spot)) return MEMLORD_E_NOMEM;
        if (!spot.entry) break;
        if (memlord_i_is_pending(spot.entry->word2)) break;
        up = memlord_i_ref_up(spot.entry);
        memlord_i_spot_leave(t, &spot);
        if (up) return MEMLORD_OK;
        r = memlord_i_retain(lord, t, type, key); /* with the side record it takes */
        if (r != MEMLORD_E_UNKNOWN) return r;
    }
    if (memlord_i_beyond(lord, slot, bytes)) {
        memlord_i_spot_leave(t, &spot);
        return MEMLORD_E_INVALID;
    }
    *fresh = 1;
    if (spot.entry)
        memlord_i_spot_replace(lord, t, &spot, memlord_i_word1(bytes, slot), rows, &d, 1);
    else
        memlord_i_spot_open(lord, t, &spot, memlord_i_word1(bytes, slot), rows, &d, 1);
    return MEMLORD_OK;
}

/* Takes back an open of so many bytes by this thread, unless another has ended it. */
static MEMLORD_I_COLD void memlord_i_unopen(memlord *lord, memlord_i_thread *t, uint32_t slot,
                                            uint64_t key, uint64_t bytes) {
    memlord_i_spot spot;
    memlord_i_entry e;
    memlord_i_delta d;
    (void)memlord_i_spot_find(lord, t, lord->slot_type[slot], key, 0, &spot);
    if (!spot.entry || MEMLORD_I_BYTES(spot.entry->word1) != bytes) {
        memlord_i_spot_leave(t, &spot);
        return;
    }
    e = *spot.entry;
    memlord_i_spot_erase(&spot);
    memlord_i_spot_unlock(&spot);
    d = memlord_i_delta_open(slot, memlord_i_word2_of(e.word2), MEMLORD_I_BYTES(e.word1));
    d.undo = 1;
    memlord_i_count(lord, t, &d, 1);
    memlord_i_spot_leave(t, &spot);
    memlord_i_side_free(lord, e.word2);
}

/* -- close -- */

/* Ends the block of a spot: off the map, counted, its side record freed. Leaves. */
static void memlord_i_spot_end(memlord *lord, memlord_i_thread *t, memlord_i_spot *spot) {
    memlord_i_entry gone = *spot->entry;
    memlord_i_spot_erase(spot);
    memlord_i_spot_unlock(spot);
    memlord_i_count_close(lord, t, gone.word1, gone.word2);
    memlord_i_spot_leave(t, spot);
    memlord_i_side_free(lord, gone.word2);
}

enum { MEMLORD_I_FREE, MEMLORD_I_RELEASE };

/* Makes a live block pending: queues its fences, with this thread as the asker of all. Returns the
   first of them; the others are its siblings. Inside. */
static memlord_i_fence *memlord_i_pend(memlord *lord, memlord_i_entry *e) {
    memlord_i_side *side = memlord_i_side_of(e->word2);
    memlord_i_fence *f;
    side->serial = memlord_i_u64_add(&lord->serial, 1) + 1;
    side->epoch = memlord_i_u64_load(&lord->epoch);
    memlord_i_stat_add(lord, MEMLORD_I_SLOT(e->word1), MEMLORD_I_STAT_pending,
                       MEMLORD_I_BYTES(e->word1));
    memlord_i_lock_take(&lord->fences_lock);
    for (f = side->fences; f; f = f->sibling) {
        f->key = e->key;
        f->serial = side->serial;
        f->slot = MEMLORD_I_SLOT(e->word1);
        f->asker = &memlord_i_self;
        memlord_i_queue_push(lord, f);
    }
    memlord_i_lock_drop(&lord->fences_lock);
    return side->fences;
}

/* The general free and release; *gone is what ended, its word2 the plain one, and its key 0 if
   nothing did. A block with recorded uses is pending then, and *chain what to ask. */
static MEMLORD_I_COLD memlord_result memlord_i_close(memlord *lord, memlord_i_thread *t,
                                                     memlord_device d, uint64_t key, int how,
                                                     memlord_i_entry *gone,
                                                     memlord_i_fence **chain) {
    memlord_i_spot spot;
    uint64_t refs, word2;
    gone->key = 0;
    *chain = NULL;
    if (!memlord_i_spot_live(lord, t, (uint32_t)d.type, key, &spot)) {
        memlord_i_spot_leave(t, &spot);
        return memlord_i_unknown(lord, d);
    }
    refs = memlord_i_refs_of(spot.entry->word1, spot.entry->word2);
    if (how == MEMLORD_I_RELEASE && refs > 1) {
        memlord_i_ref_down(spot.entry);
        memlord_i_spot_leave(t, &spot);
        return MEMLORD_OK;
    }
    *gone = *spot.entry;
    word2 = gone->word2;
    gone->word2 = memlord_i_word2_of(word2);
    if (memlord_i_fences_of(word2)) {
        *chain = memlord_i_pend(lord, spot.entry);
        memlord_i_spot_leave(t, &spot);
    } else {
        memlord_i_spot_end(lord, t, &spot);
    }
    if (refs > 1)
        memlord_i_stat_add(lord, MEMLORD_I_SLOT(gone->word1), MEMLORD_I_STAT_freed_while_shared, 1);
    return MEMLORD_OK;
}

/* -- realloc and move: an entry taken off the map, its bytes still counted, put elsewhere -- */

static memlord_result memlord_i_detach(memlord *lord, memlord_i_thread *t, uint32_t type,
                                       uint64_t key, memlord_i_entry *out) {
    memlord_i_spot spot;
    int found = memlord_i_spot_live(lord, t, type, key, &spot) != NULL;
    if (found) {
        *out = *spot.entry;
        memlord_i_spot_erase(&spot);
    }
    memlord_i_spot_leave(t, &spot);
    return found ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

/* What a live block is, for another to be the same: its words, and in `side` what is in its side
   record but for the fences. */
static memlord_result memlord_i_copy_of(memlord *lord, memlord_i_thread *t, uint32_t type,
                                        uint64_t key, memlord_i_entry *out,
                                        memlord_i_side *side) {
    memlord_i_spot spot;
    int found;
    found = memlord_i_spot_live(lord, t, type, key, &spot) != NULL;
    if (found) {
        *out = *spot.entry;
        side->word2 = memlord_i_word2_of(out->word2);
        side->refs = memlord_i_refs_of(out->word1, out->word2);
        if (out->word2 & 1) side->meta = memlord_i_side_of(out->word2)->meta;
    }
    memlord_i_spot_leave(t, &spot);
    return found ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

/* The word2 a block goes on with when a call at `site` takes it over on `slot`: the tag stays,
   the site changes if there is one. `word2` is without a side record. */
static MEMLORD_I_COLD uint64_t memlord_i_rows_moved(memlord *lord, memlord_i_thread *t,
                                                    uint64_t word2, uint32_t slot,
                                                    const memlord_site *site, int same_device) {
    uint32_t site_row = MEMLORD_I_SITE_ROW(word2), tag_row = MEMLORD_I_TAG_ROW(word2);
    if (site && (memlord_i_u32_load(&lord->hooks) & MEMLORD_I_HOOK_SITES))
        site_row = MEMLORD_I_SITE_ROW(memlord_i_memo_row(lord, t, MEMLORD_I_SITE, site, slot));
    else if (site_row && !same_device)
        site_row = memlord_i_row_of(
            lord, MEMLORD_I_SITE,
            memlord_i_ptr_load(&((memlord_i_site *)memlord_i_row_at(lord, MEMLORD_I_SITE, site_row)
                                     ->subject)
                                    ->shown),
            slot);
    if (tag_row && !same_device)
        tag_row = memlord_i_row_of(lord, MEMLORD_I_TAG,
                                   memlord_i_row_at(lord, MEMLORD_I_TAG, tag_row)->subject, slot);
    return (word2 & ~MEMLORD_I_ROWS_MASK) | (uint64_t)site_row << 1 | (uint64_t)tag_row << 21;
}

/* Takes a detached entry out of the books: it has no place any more. */
static void memlord_i_abandon(memlord *lord, memlord_i_thread *t, const memlord_i_entry *e) {
    const memlord_i_delta d = memlord_i_delta_close(
        MEMLORD_I_SLOT(e->word1), memlord_i_word2_of(e->word2), MEMLORD_I_BYTES(e->word1));
    memlord_i_cells_make(lord, t, &d, 1);
    memlord_i_enter_counting(lord, t);
    memlord_i_count(lord, t, &d, 1);
    memlord_i_leave(t);
    memlord_i_side_free(lord, e->word2);
}

/* The rows of a detached entry, in its side record if it has one. */
static void memlord_i_entry_rows(memlord_i_entry *e, uint64_t plain) {
    if (e->word2 & 1)
        memlord_i_side_of(e->word2)->word2 = plain;
    else
        e->word2 = plain;
}

/* Puts a detached entry under a key, changed as `to` says, and counts. Without room for it the
   entry leaves the books as it was, and counts as dropped. */
static memlord_result memlord_i_attach(memlord *lord, memlord_i_thread *t, memlord_i_entry *e,
                                       uint64_t key, uint32_t slot, uint64_t bytes, uint64_t rows,
                                       const memlord_i_delta *d, unsigned n) {
    uint64_t plain = memlord_i_word2_of(e->word2);
    uint64_t word1 = bytes | (uint64_t)slot << 49 |
                     (uint64_t)MEMLORD_I_REFS(e->word1) * MEMLORD_I_REFS_ONE;
    memlord_result r;
    int fresh;
    memlord_i_entry_rows(e, rows);
    r = memlord_i_insert(lord, t, slot, key, word1, e->word2, d, n, &fresh);
    if (r == MEMLORD_OK) return r;
    memlord_i_entry_rows(e, plain);
    memlord_i_abandon(lord, t, e);
    memlord_i_drop_count(lord, slot, bytes);
    return r;
}

static void memlord_i_parts_trim(memlord *lord, memlord_i_parts *parts, uint64_t bytes);

/* A realloc: same device, another key and size. *plain_rows is what its word2 is then, without a
   side record: that may be gone as soon as the block is on the map. */
static memlord_result memlord_i_resize(memlord *lord, memlord_i_thread *t, memlord_i_entry *e,
                                       uint64_t key, uint64_t bytes, const memlord_site *site,
                                       uint64_t *plain_rows) {
    uint32_t slot = MEMLORD_I_SLOT(e->word1);
    uint64_t had = MEMLORD_I_BYTES(e->word1), plain = memlord_i_word2_of(e->word2);
    uint64_t rows = *plain_rows = memlord_i_rows_moved(lord, t, plain, slot, site, 1);
    uint64_t up = bytes > had ? bytes - had : 0, down = had > bytes ? had - bytes : 0;
    memlord_i_delta d[3];
    unsigned n = 1;
    if (down && (e->word2 & 1))
        memlord_i_parts_trim(lord, memlord_i_side_of(e->word2)->parts, bytes);
    memset(d, 0, sizeof d);
    d[0].slot = slot;
    d[0].word2 = rows;
    d[0].in = up;
    d[0].out = down;
    if (MEMLORD_I_SITE_ROW(rows) != MEMLORD_I_SITE_ROW(plain)) {
        /* the old site's bytes are gone, the new one's have come */
        d[0].word2 = rows & ~MEMLORD_I_SITE_BITS;
        d[1].word2 = plain & MEMLORD_I_SITE_BITS;
        d[1].out = had;
        d[2].word2 = rows & MEMLORD_I_SITE_BITS;
        d[2].in = bytes;
        d[2].allocs = 1;
        n = 3;
    }
    return memlord_i_attach(lord, t, e, key, slot, bytes, rows, d, n);
}

/* Counts a move, and on its route unless there is no memory for one. */
static MEMLORD_I_COLD void memlord_i_move_count(memlord *lord, uint32_t from, uint32_t to,
                                                uint64_t bytes) {
    memlord_i_route *route, *fresh = NULL;
    memlord_i_stat_add(lord, to, MEMLORD_I_STAT_moves, 1);
    memlord_i_stat_add(lord, to, MEMLORD_I_STAT_moved_bytes, bytes);
    for (;;) {
        route = (memlord_i_route *)memlord_i_ptr_load_acquire(&lord->routes);
        while (route && (route->from != from || route->to != to)) route = route->next;
        if (route || fresh) break;
        fresh = (memlord_i_route *)memlord_i_alloc(lord, sizeof *fresh);
        if (!fresh) return;
        memlord_i_lock_take(&memlord_i_process.cold); /* and look again */
    }
    if (!route) {
        route = fresh;
        route->from = from;
        route->to = to;
        route->next = (memlord_i_route *)memlord_i_ptr_load(&lord->routes);
        memlord_i_ptr_store_release(&lord->routes, route); /* pairs with the walks' loads */
    }
    if (fresh) memlord_i_lock_drop(&memlord_i_process.cold);
    if (fresh && fresh != route) memlord_i_free(lord, fresh, sizeof *fresh);
    (void)memlord_i_u64_add(&route->moves, 1);
    (void)memlord_i_u64_add(&route->bytes, bytes);
}

/* Makes room for a key, so that putting it there next will hardly fail. */
static memlord_result memlord_i_room(memlord *lord, memlord_i_thread *t, uint32_t slot,
                                     uint64_t key) {
    memlord_i_spot spot;
    if (memlord_i_spot_find(lord, t, lord->slot_type[slot], key, 1, &spot)) return MEMLORD_E_NOMEM;
    memlord_i_spot_leave(t, &spot);
    return MEMLORD_OK;
}

static MEMLORD_I_COLD memlord_result memlord_i_move(memlord *lord, memlord_i_thread *t,
                                                    memlord_device from, uint64_t from_key,
                                                    uint32_t slot, uint64_t key, uint64_t bytes,
                                                    const memlord_site *site) {
    memlord_i_delta d[2];
    memlord_i_entry e;
    uint32_t from_slot;
    uint64_t plain, rows;
    memlord_result r = memlord_i_room(lord, t, slot, key);
    if (r) return memlord_i_short_of(lord, t, from, from_key, 1);
    if (memlord_i_detach(lord, t, (uint32_t)from.type, from_key, &e))
        return memlord_i_unknown(lord, from);
    from_slot = t->also = MEMLORD_I_SLOT(e.word1);
    plain = memlord_i_word2_of(e.word2);
    rows = memlord_i_rows_moved(lord, t, plain, slot, site, from_slot == slot);
    d[0] = memlord_i_delta_close(from_slot, plain, MEMLORD_I_BYTES(e.word1));
    d[1] = memlord_i_delta_open(slot, rows, bytes);
    memlord_i_note_end(lord, t, MEMLORD_EVENT_FREE, from_key, e.word1, plain, site);
    if (e.word2 & 1) memlord_i_parts_trim(lord, memlord_i_side_of(e.word2)->parts, bytes);
    r = memlord_i_attach(lord, t, &e, key, slot, bytes, rows, d, 2);
    if (r) return r;
    memlord_i_note_add(lord, t, MEMLORD_EVENT_MOVE, slot, key, bytes, rows);
    memlord_i_move_count(lord, from_slot, slot, bytes);
    return MEMLORD_OK;
}

/* -- looking -- */

/* Copies a block out; inside, or with its shard held. The site is its record, as it stands. */
static MEMLORD_I_COLD void memlord_i_info(memlord *lord, const memlord_i_entry *e,
                                          memlord_block_info *out) {
    uint64_t plain = memlord_i_word2_of(e->word2);
    uint32_t site = MEMLORD_I_SITE_ROW(plain), tag = MEMLORD_I_TAG_ROW(plain);
    memset(out, 0, sizeof *out);
    out->device = memlord_i_device_at(lord, MEMLORD_I_SLOT(e->word1))->device;
    out->storage = e->key;
    out->bytes = MEMLORD_I_BYTES(e->word1);
    out->refs = memlord_i_refs_of(e->word1, e->word2);
    out->born = memlord_i_mark_of(lord, plain);
    if (memlord_i_scope_of(lord, plain))
        out->scope = memlord_i_scope_at(lord, memlord_i_scope_of(lord, plain))->path;
    if (tag) out->tag = (const char *)memlord_i_row_at(lord, MEMLORD_I_TAG, tag)->subject;
    if (site)
        out->site = (const memlord_site *)memlord_i_ptr_load_acquire(
            &((memlord_i_site *)memlord_i_row_at(lord, MEMLORD_I_SITE, site)->subject)->shown);
    if (e->word2 & 1) out->meta = memlord_i_side_of(e->word2)->meta;
    out->pending = memlord_i_is_pending(e->word2);
}
/* Once nothing is held: gives a return address its names. */
static void memlord_i_info_finish(memlord *lord, memlord_block_info *info) {
    memlord_i_site *site = info->site ? memlord_i_site_of(lord, info->site) : NULL;
    if (site) info->site = memlord_i_site_shown(lord, site);
}

/* What a walk is for. */
typedef struct memlord_i_query {
    memlord_device sel;
    uint64_t min_bytes, min_born;
    uint64_t address; /* of a containing storage; `containing` says whether */
    int containing;
    size_t part, parts; /* so many times a shard is walked, each time for others; 0: once */
} memlord_i_query;
static memlord_i_query memlord_i_query_of(memlord_device sel) {
    memlord_i_query q;
    memset(&q, 0, sizeof q);
    q.sel = sel;
    return q;
}

static int memlord_i_wanted(memlord *lord, const memlord_i_query *q, const memlord_i_entry *e) {
    uint64_t bytes = MEMLORD_I_BYTES(e->word1);
    memlord_device d = memlord_i_device_at(lord, MEMLORD_I_SLOT(e->word1))->device;
    if (!memlord_i_selects(q->sel, d) || bytes < q->min_bytes) return 0;
    if (q->parts && (memlord_i_hash(e->key) >> 32) % q->parts != q->part) return 0;
    if (q->containing) return q->address >= e->key && q->address - e->key < bytes;
    return memlord_i_mark_of(lord, memlord_i_word2_of(e->word2)) >= q->min_born;
}

/* Calls fn for what a held shard has of a query; non-zero stops and is answered. */
typedef int (*memlord_i_visit_fn)(memlord *lord, const memlord_i_entry *e, void *user);
typedef struct memlord_i_visitor {
    memlord *lord;
    const memlord_i_query *query;
    memlord_i_visit_fn fn;
    void *user;
} memlord_i_visitor;
static MEMLORD_I_COLD int memlord_i_visit_entry(const memlord_i_entry *e, void *user) {
    const memlord_i_visitor *v = (const memlord_i_visitor *)user;
    return memlord_i_wanted(v->lord, v->query, e) ? v->fn(v->lord, e, v->user) : 0;
}
static MEMLORD_I_COLD int memlord_i_shard_visit(memlord *lord, const memlord_i_shard *s,
                                                const memlord_i_query *q, memlord_i_visit_fn fn,
                                                void *user) {
    memlord_i_visitor v;
    v.lord = lord;
    v.query = q;
    v.fn = fn;
    v.user = user;
    return memlord_i_shard_each(s, memlord_i_visit_entry, &v);
}

static MEMLORD_I_COLD void memlord_i_visit(memlord *lord, const memlord_i_query *q,
                                           memlord_i_visit_fn fn, void *user) {
    uint32_t i;
    int stop = 0;
    for (i = 0; i < MEMLORD_I_SHARDS && !stop; i++) {
        memlord_i_shard *s = &lord->shards[i];
        if (!memlord_i_shard_hold(lord, s)) continue;
        stop = memlord_i_shard_visit(lord, s, q, fn, user);
        memlord_i_shard_resume(s);
    }
}

static int memlord_i_visit_count(memlord *lord, const memlord_i_entry *e, void *user) {
    (void)lord;
    (void)e;
    ++*(size_t *)user;
    return 0;
}

/* Copies of blocks: items of `size` bytes, each filled from an entry of a held shard. */
typedef void (*memlord_i_fill_fn)(void *user, const memlord_i_entry *e, void *item);
typedef int (*memlord_i_item_fn)(void *user, void *item); /* non-zero stops */
typedef struct memlord_i_copies {
    char *at;
    size_t size, count, cap; /* `count` may be over `cap`: so many there are */
    memlord_i_fill_fn fill;
    void *user;
} memlord_i_copies;
static MEMLORD_I_COLD int memlord_i_visit_copy(memlord *lord, const memlord_i_entry *e,
                                               void *user) {
    memlord_i_copies *c = (memlord_i_copies *)user;
    (void)lord;
    if (c->count < c->cap) c->fill(c->user, e, c->at + c->count * c->size);
    c->count++;
    return 0;
}

/* 1: a shard has more for a query than should be copied at once, as small blocks lie close: from
   now on it asks for a part of them. By the hash of its key a block stays in one part, however the
   table moves from walk to walk. */
#define MEMLORD_I_COPY 4096u
static int memlord_i_query_split(memlord_i_query *q, size_t count) {
    if (q->parts || count <= MEMLORD_I_COPY) return 0;
    q->parts = (count + MEMLORD_I_COPY - 1) / MEMLORD_I_COPY;
    return 1;
}

/* Copies what a shard has of a query, or of its part, with room made for it while it is not
   held. */
static MEMLORD_I_COLD memlord_result memlord_i_shard_copy(memlord *lord, memlord_i_shard *s,
                                                          memlord_i_query *q,
                                                          memlord_i_copies *c) {
    for (;;) {
        size_t cap;
        c->count = 0;
        if (!memlord_i_shard_hold(lord, s)) return MEMLORD_OK;
        (void)memlord_i_shard_visit(lord, s, q, memlord_i_visit_copy, c);
        memlord_i_shard_resume(s);
        if (memlord_i_query_split(q, c->count)) continue;
        if (c->count <= c->cap) return MEMLORD_OK;
        memlord_i_free(lord, c->at, c->cap * c->size);
        for (cap = c->cap ? c->cap : 64; cap < c->count;) cap *= 2;
        c->cap = 0;
        c->at = (char *)memlord_i_alloc(lord, cap * c->size);
        if (!c->at) return MEMLORD_E_NOMEM;
        c->cap = cap;
    }
}

/* Calls fn for copies of the blocks of a query, a shard at a time, while none is held. */
static MEMLORD_I_COLD memlord_result memlord_i_copies_each(memlord *lord, const memlord_i_query *q,
                                                           size_t size, memlord_i_fill_fn fill,
                                                           memlord_i_item_fn fn, void *user) {
    memlord_i_copies c = {NULL, size, 0, 0, fill, user};
    memlord_result r = MEMLORD_OK;
    uint32_t i;
    size_t k;
    int stop = 0;
    for (i = 0; i < MEMLORD_I_SHARDS && !stop && r == MEMLORD_OK; i++) {
        memlord_i_query some = *q;
        do {
            r = memlord_i_shard_copy(lord, &lord->shards[i], &some, &c);
            for (k = 0; k < c.count && !stop && r == MEMLORD_OK; k++)
                stop = fn(user, c.at + k * size);
        } while (++some.part < some.parts && !stop && r == MEMLORD_OK);
    }
    memlord_i_free(lord, c.at, c.cap * size);
    return r;
}

typedef struct memlord_i_block_call { /* a host's function, and how often it was called */
    memlord *lord;
    memlord_block_fn fn;
    void *user;
    size_t count;
} memlord_i_block_call;
static MEMLORD_I_COLD void memlord_i_block_fill(void *user, const memlord_i_entry *e, void *item) {
    memlord_i_info(((memlord_i_block_call *)user)->lord, e, (memlord_block_info *)item);
}
static MEMLORD_I_COLD int memlord_i_block_call_on(void *user, void *item) {
    memlord_i_block_call *call = (memlord_i_block_call *)user;
    memlord_i_info_finish(call->lord, (memlord_block_info *)item);
    call->count++;
    return call->fn(call->user, (memlord_block_info *)item);
}
static MEMLORD_I_COLD memlord_result memlord_i_each(memlord *lord, const memlord_i_query *q,
                                                    memlord_block_fn fn, void *user, size_t *seen) {
    memlord_i_block_call call = {lord, fn, user, 0};
    memlord_result r = memlord_i_copies_each(lord, q, sizeof(memlord_block_info),
                                             memlord_i_block_fill, memlord_i_block_call_on, &call);
    if (seen) *seen = call.count;
    return r;
}

/* -- the k largest: a heap with its smallest at the root; ties by address, for a stable list -- */

typedef struct memlord_i_largest {
    memlord_block_info *at;
    size_t count, cap;
} memlord_i_largest;
static int memlord_i_info_less(const memlord_block_info *a, const memlord_block_info *b) {
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->storage > b->storage;
}
static MEMLORD_I_COLD void memlord_i_heap_down(memlord_block_info *heap, size_t n, size_t i) {
    memlord_block_info moving = heap[i];
    size_t child;
    while ((child = 2 * i + 1) < n) {
        if (child + 1 < n && memlord_i_info_less(&heap[child + 1], &heap[child])) child++;
        if (!memlord_i_info_less(&heap[child], &moving)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}
static MEMLORD_I_COLD void memlord_i_heap_up(memlord_block_info *heap, size_t i) {
    memlord_block_info moving = heap[i];
    while (i && memlord_i_info_less(&moving, &heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = moving;
}
static MEMLORD_I_COLD int memlord_i_visit_top(memlord *lord, const memlord_i_entry *e, void *user) {
    memlord_i_largest *top = (memlord_i_largest *)user;
    memlord_block_info info;
    if (top->count == top->cap && MEMLORD_I_BYTES(e->word1) < top->at[0].bytes) return 0;
    memlord_i_info(lord, e, &info);
    if (top->count < top->cap) {
        top->at[top->count] = info;
        memlord_i_heap_up(top->at, top->count++);
    } else if (memlord_i_info_less(&top->at[0], &info)) {
        top->at[0] = info;
        memlord_i_heap_down(top->at, top->count, 0);
    }
    return 0;
}
/* Takes the heap apart: the largest first. */
static MEMLORD_I_COLD size_t memlord_i_top_sort(memlord *lord, memlord_i_largest *top) {
    memlord_block_info *out = top->at;
    size_t n;
    for (n = top->count; n > 1;) { /* the smallest goes to the end, again and again */
        memlord_block_info least = out[0];
        out[0] = out[--n];
        out[n] = least;
        memlord_i_heap_down(out, n, 0);
    }
    for (n = 0; n < top->count; n++) memlord_i_info_finish(lord, &out[n]);
    return top->count;
}
static MEMLORD_I_COLD size_t memlord_i_top(memlord *lord, const memlord_i_query *q,
                                           memlord_block_info *out, size_t k) {
    memlord_i_largest top = {NULL, 0, 0};
    top.at = out;
    top.cap = k;
    if (k) memlord_i_visit(lord, q, memlord_i_visit_top, &top);
    return memlord_i_top_sort(lord, &top);
}

/* -- describing -- */

static MEMLORD_I_COLD memlord_result memlord_i_meta_copy(memlord *lord, const memlord_meta *meta,
                                                         memlord_meta *out) {
    memlord_result r;
    *out = *meta;
    r = memlord_i_name(lord, meta->name, &out->name);
    if (r == MEMLORD_OK) r = memlord_i_name(lord, meta->dtype, &out->dtype);
    if (r) return r;
    return memlord_i_name(lord, meta->tag && *meta->tag ? meta->tag : NULL, &out->tag);
}

/* Moves a live block to a kept tag, NULL none. The row is made for the device the block is on,
   which a look finds; should it have moved meanwhile, once more. */
static MEMLORD_I_COLD memlord_result memlord_i_retag(memlord *lord, memlord_i_thread *t,
                                                     uint32_t type, uint64_t key, const char *tag) {
    memlord_i_spot spot;
    memlord_i_delta d[2];
    uint32_t slot = UINT32_MAX, row = 0, had;
    for (;;) {
        uint64_t plain, bytes;
        (void)memlord_i_spot_find(lord, t, type, key, 0, &spot);
        if (!spot.entry) {
            memlord_i_spot_leave(t, &spot);
            return MEMLORD_E_UNKNOWN;
        }
        if (!tag || MEMLORD_I_SLOT(spot.entry->word1) == slot) {
            plain = memlord_i_word2_of(spot.entry->word2);
            bytes = MEMLORD_I_BYTES(spot.entry->word1);
            had = MEMLORD_I_TAG_ROW(plain);
            memlord_i_entry_rows(spot.entry, (plain & ~((uint64_t)0xffff << 21)) |
                                                 (uint64_t)row << 21);
            memlord_i_spot_unlock(&spot);
            d[0] = memlord_i_delta_close(0, (uint64_t)had << 21, bytes);
            d[1] = memlord_i_delta_open(0, (uint64_t)row << 21, bytes);
            if (had != row) memlord_i_count(lord, t, d, 2);
            memlord_i_spot_leave(t, &spot);
            return MEMLORD_OK;
        }
        slot = MEMLORD_I_SLOT(spot.entry->word1);
        memlord_i_spot_leave(t, &spot);
        if (memlord_i_row_make(lord, MEMLORD_I_TAG, tag, slot, &row)) return MEMLORD_E_NOMEM;
        /* what one thread does counts in one place, or the tag's peak is low */
        if (t != lord->orphan)
            (void)memlord_i_cell_make(lord, t, MEMLORD_I_TAG, row, memlord_i_alloc);
    }
}

/* ------------------------------------------------------------------------ >>parts --
   Owns what is inside storages: of a block that has parts, an array of pointers to them by
   offset, hung on its side record and changed inside the block's shard. Invariants: parts lie
   in their storage and do not overlap; no total knows of them. Memory is taken before the shard
   is entered. Locks: those of the map. */

/* Where an offset is, or would be: the index of the first part of that offset or after. */
static uint32_t memlord_i_parts_find(const memlord_i_parts *parts, uint64_t offset) {
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

/* Puts a part in its place. MEMLORD_I_AGAIN: the array is full, and *spare no larger; it is
   handed back in *spare when that took its place. Inside. */
static memlord_result memlord_i_part_insert(memlord_i_parts **of, memlord_i_part *part,
                                            memlord_i_parts **spare) {
    memlord_i_parts *parts = *of;
    uint32_t i = memlord_i_parts_find(parts, part->offset), n = parts ? parts->count : 0;
    if (i && parts->at[i - 1]->offset + parts->at[i - 1]->bytes > part->offset)
        return MEMLORD_E_STATE;
    if (i < n && part->offset + part->bytes > parts->at[i]->offset) return MEMLORD_E_STATE;
    if (!parts || n == parts->room) {
        parts = *spare;
        if (!parts || parts->room <= n) return MEMLORD_I_AGAIN;
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

static void memlord_i_parts_drop(memlord *lord, memlord_i_parts *parts) {
    if (parts) memlord_i_free(lord, parts, MEMLORD_I_PARTS_SIZE(parts->room));
}

/* One try, inside: *room is how many parts the array should have room for. */
static memlord_result memlord_i_part_try(memlord *lord, memlord_i_thread *t, uint32_t type,
                                         uint64_t key, memlord_i_part *part,
                                         memlord_i_parts **spare, uint32_t *room) {
    memlord_i_spot spot;
    memlord_i_side *unused, *side;
    memlord_result r = memlord_i_spot_side(lord, t, type, key, &spot, &unused);
    if (r) return r;
    side = memlord_i_side_of(spot.entry->word2);
    *room = side->parts ? side->parts->room * 2 : 8;
    if (side->serial)
        r = MEMLORD_E_UNKNOWN;
    else if (part->offset + part->bytes > MEMLORD_I_BYTES(spot.entry->word1))
        r = MEMLORD_E_INVALID;
    else
        r = memlord_i_part_insert(&side->parts, part, spare);
    memlord_i_spot_leave(t, &spot);
    memlord_i_free(lord, unused, sizeof *unused);
    return r;
}

static MEMLORD_I_COLD memlord_result memlord_i_part_add(memlord *lord, memlord_i_thread *t,
                                                        uint32_t type, uint64_t key,
                                                        const memlord_i_part *part) {
    memlord_i_part *copy = (memlord_i_part *)memlord_i_alloc(lord, sizeof *part);
    memlord_i_parts *spare = NULL;
    uint32_t room = 0;
    memlord_result r = MEMLORD_E_NOMEM;
    if (!copy) return r;
    *copy = *part;
    while ((r = memlord_i_part_try(lord, t, type, key, copy, &spare, &room)) == MEMLORD_I_AGAIN) {
        memlord_i_parts_drop(lord, spare);
        spare = (memlord_i_parts *)memlord_i_alloc(lord, MEMLORD_I_PARTS_SIZE(room));
        if (!spare) break;
        spare->room = room;
    }
    memlord_i_parts_drop(lord, spare);
    memlord_i_u32_store(&lord->parted, 1); /* relaxed: destroy reads it, with all calls over */
    if (r) memlord_i_free(lord, copy, sizeof *copy);
    return r == MEMLORD_I_AGAIN ? MEMLORD_E_NOMEM : r;
}

static MEMLORD_I_COLD memlord_result memlord_i_part_remove(memlord *lord, memlord_i_thread *t,
                                                           uint32_t type, uint64_t key,
                                                           uint64_t offset) {
    memlord_i_spot spot;
    memlord_i_side *side = memlord_i_spot_record(lord, t, type, key, &spot);
    memlord_i_parts *parts = side && !side->serial ? side->parts : NULL, *empty = NULL;
    memlord_i_part *part = NULL;
    uint32_t i = memlord_i_parts_find(parts, offset);
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
    memlord_i_spot_leave(t, &spot);
    memlord_i_parts_drop(lord, empty);
    memlord_i_free(lord, part, sizeof *part);
    return part ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

/* A block off the map has shrunk: what is no longer inside goes. */
static MEMLORD_I_COLD void memlord_i_parts_trim(memlord *lord, memlord_i_parts *parts,
                                                uint64_t bytes) {
    while (parts && parts->count) {
        memlord_i_part *last = parts->at[parts->count - 1];
        if (last->offset + last->bytes <= bytes) return;
        parts->bytes -= last->bytes;
        parts->count--;
        memlord_i_free(lord, last, sizeof *last);
    }
}

/* Frees all parts of a block that is nobody else's any more. */
static MEMLORD_I_COLD void memlord_i_parts_free(memlord *lord, memlord_i_parts *parts) {
    memlord_i_parts_trim(lord, parts, 0);
    memlord_i_parts_drop(lord, parts);
}

/* The ledger ends: arrays that are larger than a piece do not end with its regions. */
static int memlord_i_parts_visit(const memlord_i_entry *e, void *lord) {
    if (e->word2 & 1) memlord_i_parts_drop((memlord *)lord, memlord_i_side_of(e->word2)->parts);
    return 0;
}
static void memlord_i_parts_end(memlord *lord) {
    uint32_t i;
    if (!memlord_i_u32_load(&lord->parted)) return; /* no walk for nothing */
    for (i = 0; i < MEMLORD_I_SHARDS; i++)
        (void)memlord_i_shard_each(&lord->shards[i], memlord_i_parts_visit, lord);
}

/* Hands the parts of a block that is pending now to the one it was moved to, as far as they are
   inside. */
static MEMLORD_I_COLD void memlord_i_parts_move(memlord *lord, memlord_i_thread *t,
                                                uint32_t from_type, uint64_t from_key,
                                                uint32_t type, uint64_t key, uint64_t bytes) {
    memlord_i_parts *parts = NULL;
    memlord_i_spot spot;
    memlord_i_side *side = memlord_i_spot_record(lord, t, from_type, from_key, &spot);
    if (side) {
        parts = side->parts;
        side->parts = NULL;
    }
    memlord_i_spot_leave(t, &spot);
    if (!parts) return;
    memlord_i_parts_trim(lord, parts, bytes);
    side = memlord_i_spot_record(lord, t, type, key, &spot);
    if (side && !side->parts) {
        side->parts = parts;
        parts = NULL;
    }
    memlord_i_spot_leave(t, &spot);
    memlord_i_parts_free(lord, parts); /* somebody else has that key already */
}

/* Copies up to `cap` parts from an offset on; answers how many. *count and *bytes are of all. */
static MEMLORD_I_COLD size_t memlord_i_parts_copy(memlord *lord, uint32_t type, uint64_t key,
                                                  uint64_t offset, memlord_part_info *out,
                                                  size_t cap, uint64_t *count, uint64_t *bytes) {
    memlord_i_thread *t = memlord_i_thread_get(lord);
    const memlord_i_parts *parts;
    const memlord_i_side *side;
    memlord_i_spot spot;
    uint32_t i;
    size_t n = 0;
    *count = *bytes = 0;
    if (!t) return 0;
    side = memlord_i_spot_record(lord, t, type, key, &spot);
    parts = side ? side->parts : NULL;
    if (parts) {
        *count = parts->count;
        *bytes = parts->bytes;
        for (i = memlord_i_parts_find(parts, offset); i < parts->count && n < cap; i++, n++) {
            out[n].offset = parts->at[i]->offset;
            out[n].bytes = parts->at[i]->bytes;
            out[n].meta = parts->at[i]->meta;
        }
    }
    memlord_i_spot_leave(t, &spot);
    memlord_i_thread_put(lord, t);
    return n;
}

/* ------------------------------------------------------------------------- >>text --
   Owns how numbers and strings are written: no stdio, no locale, no allocation. A memlord_i_out
   fills a buffer and hands it on when it is full, or, without a function, follows snprintf. */

#include <stdarg.h> /* forms */

typedef struct memlord_i_out {
    memlord_write_fn fn;
    void *user;
    char *buf;
    size_t cap, used;
    size_t total; /* characters so far, cut ones too */
    int failed;
} memlord_i_out;

static MEMLORD_I_COLD void memlord_i_flush(memlord_i_out *o) {
    if (o->used && !o->failed && o->fn(o->user, o->buf, o->used)) o->failed = 1;
    o->used = 0;
}
static void memlord_i_put(memlord_i_out *o, const char *text, size_t n) {
    o->total += n;
    while (n) {
        size_t room = o->cap - o->used, piece = n < room ? n : room;
        if (!piece && !o->fn) return;
        if (!piece) {
            memlord_i_flush(o);
            continue;
        }
        memcpy(o->buf + o->used, text, piece);
        o->used += piece;
        text += piece;
        n -= piece;
    }
}
static void memlord_i_puts(memlord_i_out *o, const char *text) {
    memlord_i_put(o, text, strlen(text));
}

/* An out that follows snprintf, and its end: answers the length, closes with a 0. */
static void memlord_i_out_buffer(memlord_i_out *o, char *buf, size_t cap) {
    memset(o, 0, sizeof *o);
    o->buf = buf;
    o->cap = buf && cap ? cap - 1 : 0;
}
static MEMLORD_I_COLD size_t memlord_i_out_end(memlord_i_out *o, size_t cap) {
    if (o->buf && cap) o->buf[o->used] = 0;
    return o->total;
}

#define MEMLORD_I_DIGITS 24
static const char *memlord_i_u64_text(uint64_t v, char digits[MEMLORD_I_DIGITS]) {
    char *at = digits + MEMLORD_I_DIGITS - 1;
    *at = 0;
    do {
        *--at = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    return at;
}
static void memlord_i_put_u64(memlord_i_out *o, uint64_t v) {
    char digits[MEMLORD_I_DIGITS];
    memlord_i_puts(o, memlord_i_u64_text(v, digits));
}
static void memlord_i_put_i64(memlord_i_out *o, int64_t v) {
    if (v < 0) memlord_i_puts(o, "-");
    memlord_i_put_u64(o, v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v);
}
static MEMLORD_I_COLD void memlord_i_put_hex(memlord_i_out *o, uint64_t v, unsigned digits) {
    while (digits--) memlord_i_put(o, &"0123456789abcdef"[(v >> (4 * digits)) & 15], 1);
}
/* All of a storage, in as few widths as columns look well in. */
static MEMLORD_I_COLD void memlord_i_put_address(memlord_i_out *o, uint64_t v) {
    memlord_i_puts(o, "0x");
    memlord_i_put_hex(o, v, v >> 48 ? 16 : v >> 32 ? 12 : 8);
}
static void memlord_i_put_two(memlord_i_out *o, uint64_t v) {
    if (v < 10) memlord_i_puts(o, "0");
    memlord_i_put_u64(o, v);
}

/* v / 10^digits, in full. */
static MEMLORD_I_COLD void memlord_i_put_fixed(memlord_i_out *o, uint64_t v, unsigned digits) {
    uint64_t unit = 1;
    unsigned i;
    for (i = 0; i < digits; i++) unit *= 10;
    memlord_i_put_u64(o, v / unit);
    memlord_i_puts(o, ".");
    for (v %= unit; unit > 1; v %= unit) {
        unit /= 10;
        memlord_i_put_u64(o, v / unit);
    }
}
static MEMLORD_I_COLD void memlord_i_put_tenths(memlord_i_out *o, uint64_t tenths) {
    memlord_i_put_u64(o, tenths / 10);
    if (tenths % 10) memlord_i_puts(o, ".");
    if (tenths % 10) memlord_i_put_u64(o, tenths % 10);
}

/* Bytes in the largest IEC unit that leaves at least 1, two rounded decimals, no trailing
   zeros. */
static MEMLORD_I_COLD void memlord_i_put_bytes(memlord_i_out *o, uint64_t bytes) {
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    unsigned unit = 0;
    uint64_t whole = bytes, part = 0;
    while (unit < 6 && bytes >> (10 * (unit + 1))) unit++;
    if (unit) {
        uint64_t low = bytes & (((uint64_t)1 << (10 * unit)) - 1);
        whole = bytes >> (10 * unit);
        low = 10 * unit > 40 ? low >> (10 * unit - 40) : low << (40 - 10 * unit); /* 40 bits */
        part = (low * 100 + ((uint64_t)1 << 39)) >> 40;
        if (part == 100) whole++, part = 0;
        if (whole == 1024 && unit < 6) whole = 1, unit++;
    }
    memlord_i_put_u64(o, whole);
    if (part) {
        memlord_i_puts(o, ".");
        if (part % 10)
            memlord_i_put_two(o, part);
        else
            memlord_i_put_u64(o, part / 10);
    }
    memlord_i_puts(o, units[unit]);
}

/* Nanoseconds since 1970 as 2026-11-21T08:05:00.250Z, or for the name of a file as
   20261121_080500; days to date after Howard Hinnant's chrono-compatible algorithms
   (civil_from_days). */
static MEMLORD_I_COLD void memlord_i_put_time(memlord_i_out *o, uint64_t ns, int name) {
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
        memlord_i_put_two(o, parts[i]);
        if (between[i] != ' ') memlord_i_put(o, &between[i], 1);
    }
    if (name) return;
    memlord_i_put_u64(o, ms / 100);
    memlord_i_put_two(o, ms % 100);
    memlord_i_puts(o, "Z");
}

/* "63.2 %", "50 %", "unknown" for NaN. */
static MEMLORD_I_COLD void memlord_i_put_percent(memlord_i_out *o, double percent) {
    if (!(percent >= 0)) {
        memlord_i_puts(o, "unknown");
        return;
    }
    memlord_i_put_tenths(o, percent < 1e15 ? (uint64_t)(percent * 10 + 0.5) : 0);
    memlord_i_puts(o, " %");
}
static MEMLORD_I_COLD void memlord_i_put_device(memlord_i_out *o, memlord_device d) {
    if (d.type == MEMLORD_ANY) {
        memlord_i_puts(o, "all");
        return;
    }
    if ((unsigned)d.type >= (unsigned)MEMLORD_I_TYPES) {
        memlord_i_puts(o, "?");
        return;
    }
    memlord_i_puts(o, memlord_i_type_names[d.type]);
    if (d.index < 0 || (d.index == 0 && d.type <= MEMLORD_DEVICE_MAPPED)) return;
    memlord_i_puts(o, ":");
    memlord_i_put_u64(o, (uint64_t)d.index);
}

/* Length of the well-formed UTF-8 sequence at s, 0 if there is none (RFC 3629); U+FFFD counts as
   none, for it has a meaning of ours. */
static size_t memlord_i_utf8(const unsigned char *s, uint32_t *code) {
    size_t i, n = s[0] < 0x80   ? 1
                  : s[0] < 0xc2 ? 0
                  : s[0] < 0xe0 ? 2
                  : s[0] < 0xf0 ? 3
                  : s[0] < 0xf5 ? 4
                                : 0;
    if (n < 2) {
        *code = s[0];
        return n;
    }
    *code = s[0] & (0x7fu >> n);
    for (i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | (s[i] & 0x3fu);
    }
    if (n == 3 && (*code < 0x800 || (*code >= 0xd800 && *code < 0xe000) || *code == 0xfffd))
        return 0;
    if (n == 4 && (*code < 0x10000 || *code > 0x10ffff)) return 0;
    return n;
}

/* A byte that may not be written as it is: U+FFFD and two hexadecimal digits, in every format, so
   that no two names become one. */
static MEMLORD_I_COLD void memlord_i_put_bad(memlord_i_out *o, unsigned char byte) {
    memlord_i_puts(o, "\xef\xbf\xbd");
    memlord_i_put_hex(o, byte, 2);
}

/* A JSON string, or null. What could end a script or a line of JavaScript is escaped too, so
   that the text may be put into a page. */
static MEMLORD_I_COLD void memlord_i_put_json(memlord_i_out *o, const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    if (!text) {
        memlord_i_puts(o, "null");
        return;
    }
    memlord_i_puts(o, "\"");
    while (*s) {
        uint32_t code;
        size_t n = memlord_i_utf8(s, &code);
        if (!n) {
            memlord_i_put_bad(o, *s++);
            continue;
        }
        if (code < 0x20 || code == '"' || code == '\\' || code == '<' || code == '>' ||
            code == '&' || code == 0x7f || code == 0x2028 || code == 0x2029) {
            memlord_i_puts(o, "\\u");
            memlord_i_put_hex(o, code, 4);
        } else {
            memlord_i_put(o, (const char *)s, n);
        }
        s += n;
    }
    memlord_i_puts(o, "\"");
}

/* A string in a line of text: controls are told as what is not UTF-8 is, so that it cannot break
   the table or drive a terminal. One more character, if not 0, is replaced. */
static MEMLORD_I_COLD void memlord_i_put_word(memlord_i_out *o, const char *text, char other,
                                              const char *instead) {
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        uint32_t code;
        size_t n = memlord_i_utf8(s, &code);
        if (!n || code < 0x20 || (code >= 0x7f && code < 0xa0)) {
            memlord_i_put_bad(o, *s);
            n = 1;
        } else if (code == (unsigned char)other) {
            memlord_i_puts(o, instead);
        } else {
            memlord_i_put(o, (const char *)s, n);
        }
        s += n;
    }
}
static MEMLORD_I_COLD void memlord_i_put_plain(memlord_i_out *o, const char *text) {
    memlord_i_put_word(o, text, 0, "");
}

/* "read_tensors loader.c:12"; as memlord_i_put_word. */
static MEMLORD_I_COLD void memlord_i_put_place(memlord_i_out *o, const memlord_site *site,
                                               char other, const char *instead) {
    if (!site || (!site->function[0] && !site->file[0])) {
        memlord_i_puts(o, "(unknown)");
        return;
    }
    memlord_i_put_word(o, site->function, other, instead);
    if (site->function[0] && site->file[0]) memlord_i_puts(o, " ");
    memlord_i_put_word(o, site->file, other, instead);
    if (site->line <= 0) return;
    memlord_i_puts(o, ":");
    memlord_i_put_u64(o, (uint64_t)site->line);
}
static void memlord_i_put_site(memlord_i_out *o, const memlord_site *site) {
    memlord_i_put_place(o, site, 0, "");
}
static uint64_t memlord_i_site_line(const memlord_site *site) {
    return site && site->line > 0 ? (uint64_t)site->line : 0;
}
static MEMLORD_I_COLD void memlord_i_json_site(memlord_i_out *o, const memlord_site *site) {
    memlord_i_puts(o, site ? "{\"file\":" : "null");
    if (!site) return;
    memlord_i_put_json(o, site->file);
    memlord_i_puts(o, ",\"function\":");
    memlord_i_put_json(o, site->function);
    memlord_i_puts(o, ",\"line\":");
    memlord_i_put_u64(o, memlord_i_site_line(site));
    memlord_i_puts(o, "}");
}

/* -- forms: lines with places for values, as printf has them, and checked by compilers likewise --
       %s   text          %ju  a number            %jX  nanoseconds, for people
       %g   a share       %jo  bytes, for people   %jd  a difference of bytes, with its sign
       %jx  a storage     %i   a device: memlord_i_coded
       %p   a site
   A width sets all right but text; - before it sets left, + writes a sign of a difference of 0. In
   JSON a ' is a ", and a comma in front is left out where nothing comes before it; there %jd is any
   number, and null what is not known: a NULL, a %ju of UINT64_MAX, a %g of NaN. */

#if MEMLORD_I_LINUX
#define MEMLORD_I_FORM(at) __attribute__((format(printf, at, at + 1)))
#else
#define MEMLORD_I_FORM(at) /* uintmax_t may be another type than uint64_t */
#endif

static int memlord_i_coded(memlord_device d) { return d.type * 65536 + (uint16_t)d.index; }

static void memlord_i_pad(memlord_i_out *o, size_t used, size_t width) {
    for (; used < width; used++) memlord_i_put(o, " ", 1);
}
/* A name in a column, where UTF-8 of two bytes is one wide, and longer ones, mostly, two. */
static MEMLORD_I_COLD void memlord_i_put_left(memlord_i_out *o, const char *name, size_t width) {
    size_t start = o->total;
    const unsigned char *s = (const unsigned char *)name;
    memlord_i_put_plain(o, name);
    for (; *s; s++) start += (size_t)(*s >= 0xc0) + (*s >= 0xf0);
    memlord_i_pad(o, o->total - start, width);
}
static MEMLORD_I_COLD void memlord_i_put_difference(memlord_i_out *o, int64_t v, int sign) {
    if (v || sign) memlord_i_puts(o, v < 0 ? "-" : "+");
    memlord_i_put_bytes(o, v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v);
}
static MEMLORD_I_COLD void memlord_i_put_ns(memlord_i_out *o, uint64_t ns) {
    static const char *const units[] = {" ns", " us", " ms", " s"};
    size_t unit = 0;
    uint64_t tenths = ns * 10;
    for (; tenths >= 10000 && unit < 3; unit++) tenths = tenths / 1000 + (tenths % 1000 >= 500);
    memlord_i_put_tenths(o, tenths);
    memlord_i_puts(o, units[unit]);
}
static MEMLORD_I_COLD void memlord_i_put_share(memlord_i_out *o, int json, double share) {
    if (!json)
        memlord_i_put_percent(o, share);
    else if (share >= 0)
        memlord_i_put_fixed(o, (uint64_t)(share * 1000 + 0.5), 3);
    else
        memlord_i_puts(o, "null");
}
static MEMLORD_I_COLD void memlord_i_put_number(memlord_i_out *o, int json, char kind, uint64_t v) {
    switch (kind) {
    case 'o': memlord_i_put_bytes(o, v); break;
    case 'x': memlord_i_put_address(o, v); break;
    case 'X': memlord_i_put_ns(o, v); break;
    default:
        if (json && v == UINT64_MAX)
            memlord_i_puts(o, "null");
        else
            memlord_i_put_u64(o, v);
    }
}

/* The value behind a %; answers what comes after it. */
static MEMLORD_I_COLD const char *memlord_i_put_value(memlord_i_out *o, int json, const char *form,
                                                      va_list *args) {
    char buf[32]; /* of what is set */
    memlord_i_out b, *to = o;
    size_t width = 0;
    int left = *form == '-', sign = *form == '+', coded;
    int64_t difference;
    const char *text;
    const memlord_site *site;
    form += left + sign;
    for (; *form >= '0' && *form <= '9'; form++) width = width * 10 + (size_t)(*form - '0');
    form += *form == 'j';
    if (width) memlord_i_out_buffer(to = &b, buf, sizeof buf);
    switch (*form) {
    case 's':
        text = va_arg(*args, const char *);
        if (json)
            memlord_i_put_json(o, text);
        else
            memlord_i_put_left(o, text, width);
        return form + 1;
    case 'p':
        site = (const memlord_site *)va_arg(*args, const void *);
        if (json)
            memlord_i_json_site(o, site);
        else
            memlord_i_put_site(o, site);
        return form + 1;
    case 'i':
        coded = va_arg(*args, int);
        memlord_i_put_device(to, memlord_device_make(coded >> 16, (int16_t)coded));
        break;
    case 'd':
        difference = va_arg(*args, int64_t);
        if (json)
            memlord_i_put_i64(to, difference);
        else
            memlord_i_put_difference(to, difference, sign);
        break;
    case 'g': memlord_i_put_share(to, json, va_arg(*args, double)); break;
    default: memlord_i_put_number(to, json, *form, va_arg(*args, uint64_t));
    }
    if (!width) return form + 1;
    if (!left) memlord_i_pad(o, b.used, width);
    memlord_i_put(o, buf, b.used);
    if (left) memlord_i_pad(o, b.used, width);
    return form + 1;
}
static MEMLORD_I_COLD void memlord_i_put_form(memlord_i_out *o, int json, const char *form,
                                              va_list *args) {
    while (*form) {
        char c = *form++;
        if (c == '%') {
            form = memlord_i_put_value(o, json, form, args);
            continue;
        }
        o->total++;
        if (o->used == o->cap && o->fn) memlord_i_flush(o);
        if (o->used < o->cap) o->buf[o->used++] = json && c == '\'' ? '"' : c;
    }
}
static MEMLORD_I_COLD MEMLORD_I_FORM(2) void memlord_i_putf(memlord_i_out *o, const char *form,
                                                            ...) {
    va_list args;
    va_start(args, form);
    memlord_i_put_form(o, 0, form, &args);
    va_end(args);
}
/* What was written last is in the buffer still: that is handed on when there is more to write. */
static MEMLORD_I_COLD MEMLORD_I_FORM(2) void memlord_i_jsonf(memlord_i_out *o, const char *form,
                                                             ...) {
    va_list args;
    va_start(args, form);
    if (*form == ',' && strchr("[{", o->buf[o->used - 1])) form++;
    memlord_i_put_form(o, 1, form, &args);
    va_end(args);
}

/* -------------------------------------------------------------------------- >>log --
   Owns messages to the host. The level is known before anything is formatted; nothing is held
   when the logger runs. */

#define MEMLORD_I_RED "\033[31m"
#define MEMLORD_I_GREEN "\033[32m"
#define MEMLORD_I_YELLOW "\033[33m"
#define MEMLORD_I_CYAN "\033[36m"
#define MEMLORD_I_MAGENTA "\033[35m"
#define MEMLORD_I_PLAIN "\033[0m"

/* The built-in logger: one write a line; the colour is by what the line begins with. */
static MEMLORD_I_COLD void memlord_i_log_stderr(void *user, int level, const char *text) {
    static const char *const colours[][2] = {{"[alloc", MEMLORD_I_RED},
                                             {"[free", MEMLORD_I_GREEN},
                                             {"[gc", MEMLORD_I_YELLOW},
                                             {"[reset", MEMLORD_I_MAGENTA},
                                             {"", MEMLORD_I_CYAN}};
    char line[640];
    memlord_i_out o;
    size_t n, i = 0;
    (void)user;
    (void)level;
    while (strncmp(text, colours[i][0], strlen(colours[i][0]))) i++;
    memlord_i_out_buffer(&o, line, sizeof line - 8);
    memlord_i_puts(&o, colours[i][1]);
    memlord_i_puts(&o, text);
    n = o.used;
    memcpy(line + n, MEMLORD_I_PLAIN "\n", sizeof MEMLORD_I_PLAIN);
    memlord_i_stderr(line, n + sizeof MEMLORD_I_PLAIN);
}

static MEMLORD_I_COLD void memlord_i_log(memlord *lord, int level, const char *text) {
    if (level > lord->log_level || !lord->logger.fn) return;
    memlord_i_rank_none();
    lord->logger.fn(lord->logger.user, level, text);
}

/* Closes a line that a buffer has, and says it. */
static MEMLORD_I_COLD void memlord_i_log_end(memlord *lord, int level, memlord_i_out *o) {
    (void)memlord_i_out_end(o, 1);
    memlord_i_log(lord, level, o->buf);
}

static MEMLORD_I_COLD MEMLORD_I_FORM(3) void memlord_i_logf(memlord *lord, int level,
                                                            const char *form, ...) {
    char line[256];
    memlord_i_out o;
    va_list args;
    memlord_i_out_buffer(&o, line, sizeof line);
    va_start(args, form);
    memlord_i_put_form(&o, 0, form, &args);
    va_end(args);
    memlord_i_log_end(lord, level, &o);
}

/* -- the lines of MEMLORD_DEBUG: one a call that records, once nothing of the call is held. What
   is found under way is kept in memlord_i_self.odd until then. -- */

static MEMLORD_I_COLD void memlord_i_put_storage(memlord_i_out *o, const char *before,
                                                 memlord_device d, uint64_t storage) {
    memlord_i_putf(o, "%s%i %jx", before, memlord_i_coded(d), storage);
}

/* ", from cpu 0x55..., unknown frees 1 main file.c:12", and logs the line. */
static MEMLORD_I_COLD void memlord_i_tell_end(memlord *lord, memlord_i_out *o,
                                              const memlord_site *site) {
    memlord_i_told odd = memlord_i_self.odd;
    memset(&memlord_i_self.odd, 0, sizeof odd);
    if (odd.from) memlord_i_put_storage(o, ", from ", odd.from_device, odd.from);
    if (odd.implicit) memlord_i_putf(o, ", implicit free of %jo", odd.over);
    if (odd.unknown) memlord_i_putf(o, ", unknown frees %ju", odd.unknown);
    if (site) {
        memlord_i_puts(o, " ");
        memlord_i_put_site(o, site);
    }
    memlord_i_log_end(lord, MEMLORD_LOG_TRACE, o);
}

/* "[alloc] cpu 0x55... 1.5 KiB main file.c:12", unless a call neither did anything nor met with
   something odd. */
static MEMLORD_I_COLD void memlord_i_tell(memlord *lord, int did, const char *verb,
                                          memlord_device d, uint64_t storage, uint64_t bytes,
                                          const memlord_site *site) {
    char line[512];
    memlord_i_out o;
    if (!did && !memlord_i_self.odd.implicit && !memlord_i_self.odd.unknown) return;
    memlord_i_out_buffer(&o, line, sizeof line);
    memlord_i_put_storage(&o, verb, d, storage);
    memlord_i_putf(&o, " %jo", did ? bytes : 0);
    memlord_i_tell_end(lord, &o, site);
}

static MEMLORD_I_COLD void memlord_i_put_held(memlord_i_out *o, uint64_t bytes, uint64_t blocks) {
    memlord_i_putf(o, blocks == 1 ? "%jo in %ju block" : "%jo in %ju blocks", bytes, blocks);
}

/* "[alloc] cuda 12 KiB in 3 blocks main file.c:12"; the device is what those of the n have in
   common. */
static MEMLORD_I_COLD void memlord_i_tell_n(memlord *lord, const char *verb,
                                            const memlord_block *blocks, size_t n,
                                            const memlord_i_told *told, const memlord_site *site) {
    char line[512];
    memlord_i_out o;
    memlord_device d = blocks[0].device;
    while (n--) {
        if (blocks[n].device.type != d.type) d.type = MEMLORD_ANY;
        if (blocks[n].device.index != d.index) d.index = MEMLORD_ANY;
    }
    memlord_i_out_buffer(&o, line, sizeof line);
    memlord_i_putf(&o, "%s%i ", verb, memlord_i_coded(d));
    memlord_i_put_held(&o, told->bytes, told->blocks);
    memlord_i_self.odd.unknown += told->unknown;
    memlord_i_tell_end(lord, &o, site);
}

/* -------------------------------------------------------------------- >>capacity --
   Owns places (physical devices): what their sources said last. Invariants: a source is asked by
   one thread at a time for a place, with nothing held; what it said wrongly is unknown. Locks:
   callbacks for the sources and who asks them, place for what they said. */

/* -- places -- */

/* The places are the host's, as number 0, and each device's own, most of which are in use. */
static MEMLORD_I_COLD memlord_i_place *memlord_i_place_own(memlord *lord, uint32_t i) {
    return i ? &memlord_i_device_at(lord, i)->own : &lord->host;
}
static memlord_i_place *memlord_i_place_at(memlord *lord, uint32_t slot) {
    return (memlord_i_place *)memlord_i_ptr_load_acquire(&memlord_i_device_at(lord, slot)->place);
}
/* Locks the place a device is at; memlord_device_share may move it meanwhile. */
static memlord_i_place *memlord_i_place_take(memlord *lord, uint32_t slot) {
    for (;;) {
        memlord_i_place *place = memlord_i_place_at(lord, slot);
        memlord_i_lock_take(&place->lock);
        if (MEMLORD_I_LIKELY(place == memlord_i_place_at(lord, slot))) return place;
        memlord_i_lock_drop(&place->lock);
    }
}

/* The slot of a device if it was seen; 0: not yet. */
static MEMLORD_I_COLD uint32_t memlord_i_slot_known(memlord *lord, memlord_device d) {
    uint32_t slot = memlord_i_u8_load_acquire(&lord->slot_of[memlord_i_device_direct(d)]);
    if (slot) return slot;
    return memlord_i_device_valid(d) ? (uint32_t)memlord_i_index_get(lord, memlord_i_device_key(d))
                                     : 0;
}
/* Where a device's bytes are; E_UNKNOWN, and NULL, for one not seen, unless `make`. */
static MEMLORD_I_COLD memlord_result memlord_i_place_of(memlord *lord, memlord_device d, int make,
                                                        memlord_i_place **out) {
    uint32_t slot = memlord_i_slot_known(lord, d);
    memlord_result r = MEMLORD_OK;
    *out = NULL;
    if (!memlord_i_device_valid(d)) return MEMLORD_E_DEVICE;
    if (memlord_i_type_host[d.type]) {
        *out = &lord->host;
        return MEMLORD_OK;
    }
    if (!slot && !make) return MEMLORD_E_UNKNOWN;
    if (!slot) r = memlord_i_slot(lord, d, &slot);
    if (r == MEMLORD_OK) *out = memlord_i_place_at(lord, slot);
    return r;
}

/* The first device after a slot that is at a place (NULL: any), from 0 on; 0: there is none. */
static MEMLORD_I_NOINLINE uint32_t memlord_i_place_next(memlord *lord, const memlord_i_place *place,
                                                        uint32_t slot) {
    uint32_t n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    while (++slot < n)
        if (!place || memlord_i_place_at(lord, slot) == place) return slot;
    return 0;
}

/* Live bytes of all devices at a place. */
static uint64_t memlord_i_place_live(memlord *lord, const memlord_i_place *place) {
    uint32_t i = 0;
    uint64_t live = 0;
    while ((i = memlord_i_place_next(lord, place, i)) != 0)
        live = memlord_i_add(live, memlord_i_row_live(lord, MEMLORD_I_DEVICE, i));
    return live;
}

static uint64_t memlord_i_place_limit(memlord_i_place *place) {
    uint64_t limit;
    memlord_i_lock_take(&place->lock);
    limit = place->limit;
    memlord_i_lock_drop(&place->lock);
    return limit;
}
/* Puts a device at another place, under the locks of both, and so under the cold lock: fork takes
   those of all places in an order of its own. E_STATE: something is reserved at the old one, and
   may be meant for it. */
static MEMLORD_I_COLD memlord_result memlord_i_place_move(memlord *lord, uint32_t slot,
                                                          memlord_i_place *to) {
    for (;;) {
        memlord_i_place *from = memlord_i_place_at(lord, slot);
        int same, held;
        if (from == to) return MEMLORD_OK;
        memlord_i_lock_take(&memlord_i_process.cold);
        memlord_i_lock_take(&from->lock);
        memlord_i_lock_take(&to->lock);
        same = from == memlord_i_place_at(lord, slot);
        held = from->held != 0;
        if (same && !held) /* pairs with memlord_i_place_at */
            memlord_i_ptr_store_release(&memlord_i_device_at(lord, slot)->place, to);
        memlord_i_lock_drop(&from->lock);
        memlord_i_lock_drop(&to->lock);
        memlord_i_lock_drop(&memlord_i_process.cold);
        if (same) return held ? MEMLORD_E_STATE : MEMLORD_OK;
    }
}
static memlord_i_oom memlord_i_oom_of(memlord *lord, uint32_t slot) {
    memlord_i_place *place = memlord_i_place_take(lord, slot);
    memlord_i_oom oom = memlord_i_device_at(lord, slot)->oom;
    memlord_i_lock_drop(&place->lock);
    return oom;
}

/* -- sources -- */

static MEMLORD_I_COLD int memlord_i_cpu_source(void *user, memlord_device d,
                                               memlord_capacity *out) {
    memlord *lord = (memlord *)user;
    (void)d;
    return memlord_i_cpu_sample(&lord->cpu, &out->total, &out->used, &out->process);
}

static MEMLORD_I_COLD memlord_i_source memlord_i_source_of(memlord *lord, int type) {
    memlord_i_source source;
    memlord_i_lock_take(&lord->callbacks_lock);
    source = lord->source[type];
    memlord_i_lock_drop(&lord->callbacks_lock);
    return source;
}

/* Has the limit follow the capacity, if it is to and that is known. */
static void memlord_i_fraction_apply(memlord_i_place *place) {
    if (!(place->fraction > 0) || !place->sample.known) return;
    place->limit = (uint64_t)(place->fraction * (double)place->sample.total);
    if (!place->limit) place->limit = 1;
}

/* Keeps a sample, or that there is none. */
static MEMLORD_I_COLD void memlord_i_sample_keep(memlord_i_place *place, const memlord_capacity *c,
                                                 uint64_t now) {
    memlord_i_lock_take(&place->lock);
    place->sample = *c;
    place->sampled = now;
    memlord_i_fraction_apply(place);
    memlord_i_lock_drop(&place->lock);
}

static void memlord_i_place_review(memlord *lord, const memlord_i_place *place);

static MEMLORD_I_COLD memlord_result memlord_i_sample(memlord *lord, memlord_i_place *place) {
    memlord_i_source source, *current;
    memlord_capacity c;
    uint64_t now;
    memlord_result r = MEMLORD_OK;
    memset(&c, 0, sizeof c);
    if (memlord_i_u32_exchange(&place->sampling, 1)) return MEMLORD_E_STATE;
    memlord_i_lock_take(&lord->callbacks_lock);
    source = lord->source[place->device.type];
    place->sampler = &memlord_i_self;
    memlord_i_lock_drop(&lord->callbacks_lock);
    memlord_i_rank_none();
    if (!source.fn)
        r = MEMLORD_E_UNSUPPORTED;
    else if (source.fn(source.user, place->device, &c) || !c.total || c.used > c.total)
        r = MEMLORD_E_UNKNOWN;
    now = memlord_i_clock(lord);
    memlord_i_lock_take(&lord->callbacks_lock);
    current = &lord->source[place->device.type];
    if (r == MEMLORD_OK && (current->fn != source.fn || current->user != source.user))
        r = MEMLORD_E_UNKNOWN; /* it was replaced meanwhile: nobody wants its word now */
    if (r) memset(&c, 0, sizeof c);
    c.known = r == MEMLORD_OK;
    if (r != MEMLORD_E_UNSUPPORTED) memlord_i_sample_keep(place, &c, now);
    place->sampler = NULL;
    memlord_i_lock_drop(&lord->callbacks_lock);
    memlord_i_u32_store_release(&place->sampling, 0); /* pairs with the exchange above */
    memlord_i_place_review(lord, place);
    return r;
}

/* The place number i, of 0 .. the devices; NULL: that device is at another one. */
static memlord_i_place *memlord_i_place_number(memlord *lord, uint32_t i) {
    memlord_i_place *place = memlord_i_place_own(lord, i);
    return i && memlord_i_place_at(lord, i) != place ? NULL : place;
}

/* Replaces a source and waits until no other thread is in the old one. */
static void memlord_i_source_set(memlord *lord, int type, memlord_i_source source) {
    uint32_t i;
    unsigned spins = 0;
    memlord_capacity none;
    memset(&none, 0, sizeof none);
    memlord_i_lock_take(&lord->callbacks_lock);
    lord->source[type] = source;
    memlord_i_lock_drop(&lord->callbacks_lock);
    for (i = 0; i < memlord_i_rows(lord, MEMLORD_I_DEVICE); i++) {
        memlord_i_place *place = memlord_i_place_own(lord, i);
        if (place->device.type != type) continue; /* one that is not used now may be again */
        memlord_i_lock_take(&lord->callbacks_lock);
        while (place->sampler && place->sampler != (void *)&memlord_i_self) {
            memlord_i_lock_drop(&lord->callbacks_lock);
            memlord_i_spin(&spins);
            memlord_i_lock_take(&lord->callbacks_lock);
        }
        memlord_i_lock_drop(&lord->callbacks_lock);
        memlord_i_sample_keep(place, &none, 0);
        memlord_i_place_review(lord, place);
    }
}

/* ---------------------------------------------------------------------- >>limits --
   Owns admission: limits, reservations (tickets), accounts. Invariant: live + held bytes of a
   place are compared with its limit, and held raised, in one turn of its lock, so what was
   admitted never passes the limit. An allocation that comes off a ticket is `arriving` while it
   may be counted both as live and as held: who would be refused meanwhile looks again.
   Lock: place; cold for new records. */

/* Bytes left at a locked place; 0: neither limit nor capacity is known. */
static int memlord_i_place_left(memlord *lord, const memlord_i_place *place, int64_t *left) {
    const uint64_t most = (uint64_t)1 << 62;
    int64_t held = (int64_t)(place->held < most ? place->held : most);
    *left = INT64_MAX;
    if (place->limit) {
        uint64_t live = memlord_i_place_live(lord, place);
        *left = (int64_t)(place->limit < most ? place->limit : most) -
                (int64_t)(live < most ? live : most) - held;
    }
    if (place->sample.known) {
        uint64_t unused = place->sample.total - place->sample.used;
        int64_t fits = (int64_t)(unused < most ? unused : most) - held;
        if (fits < *left) *left = fits;
    }
    return place->limit || place->sample.known;
}

/* Live bytes of a place as they were at no moment higher (`high`) or lower than this while they
   were added up: what came is read after what went, or before. A cell's level is written after
   its out. */
static uint64_t memlord_i_place_bound(memlord *lord, const memlord_i_place *place, int high) {
    uint32_t i = 0;
    uint64_t sum = 0;
    int pass;
    for (pass = 0; pass < 2; pass++)
        while ((i = memlord_i_place_next(lord, place, i)) != 0) {
            memlord_i_thread *t = memlord_i_thread_first(lord);
            for (; t; t = memlord_i_thread_after(t)) {
                const memlord_i_cell *cell = memlord_i_cell_at(t, MEMLORD_I_DEVICE, i);
                uint64_t level, out;
                if (!cell) continue;
                out = high ? 0 : memlord_i_u64_load_acquire(&cell->out);
                level = memlord_i_u64_load_acquire(&cell->level);
                if (high) out = memlord_i_u64_load_acquire(&cell->out);
                sum += pass == high ? level + out : (uint64_t)0 - out;
            }
        }
    return (int64_t)sum > 0 ? sum : 0;
}

static int memlord_i_over(uint64_t live, uint64_t want, uint64_t limit) {
    return want > limit || live > limit - want;
}

#define MEMLORD_I_HOLD_LOOKS 1000
/* 1: `bytes` are now held. 0: they are too many. -1: not sure, look again. Without `again` the
   answer is 0 then. */
static int memlord_i_place_hold(memlord *lord, memlord_i_place *place, uint64_t bytes, int again) {
    uint64_t want = place->held + bytes;
    if (want > (uint64_t)1 << 62) return 0;
    if (place->limit &&
        memlord_i_over(memlord_i_place_bound(lord, place, 1), want, place->limit)) {
        want -= place->arriving;
        return again && !memlord_i_over(memlord_i_place_bound(lord, place, 0), want, place->limit)
                   ? -1
                   : 0;
    }
    place->held += bytes;
    return 1;
}

/* -- tickets: number:32 | turn of the record:32 -- */

static memlord_i_reservation *memlord_i_reservation_at(memlord *lord, uint32_t number) {
    return (memlord_i_reservation *)memlord_i_book_at(&lord->reservations, number,
                                                      sizeof(memlord_i_reservation));
}
/* The record of an open ticket; NULL: there is none. Look at `turn` again under its lock. */
static memlord_i_reservation *memlord_i_ticket_at(memlord *lord, memlord_ticket ticket) {
    uint32_t number = (uint32_t)(ticket >> 32);
    if (!number || number >= memlord_i_u32_load_acquire(&lord->reservation_count)) return NULL;
    return memlord_i_reservation_at(lord, number);
}

/* Makes a record and leaves it with its place. */
static MEMLORD_I_COLD memlord_result memlord_i_reservation_new(memlord *lord,
                                                               memlord_i_place *place) {
    memlord_result r;
    do {
        uint32_t n;
        memlord_i_reservation *v;
        memlord_i_cold_enter();
        n = memlord_i_u32_load(&lord->reservation_count);
        v = (memlord_i_reservation *)memlord_i_book_make(lord, &lord->reservations, n, sizeof *v,
                                                         memlord_i_cold_alloc);
        r = v ? MEMLORD_OK : MEMLORD_I_AGAIN;
        if (v) {
            v->place = place;
            memlord_i_u32_store_release(&lord->reservation_count, n + 1); /* before it is taken */
            memlord_i_lock_take(&place->lock);
            v->next = place->spare_ticket;
            place->spare_ticket = n;
            memlord_i_lock_drop(&place->lock);
        }
    } while (memlord_i_cold_leave(lord, &r));
    return r;
}

/* Holds bytes at the place of a device. E_LIMIT: they are too many. */
static MEMLORD_I_COLD memlord_result memlord_i_reserve(memlord *lord, memlord_i_place *place,
                                                       uint64_t bytes, memlord_ticket *out) {
    memlord_i_reservation *v;
    uint32_t number, looks = 0;
    unsigned spins = 0;
    for (;;) {
        int held = -1;
        memlord_i_lock_take(&place->lock);
        number = place->spare_ticket;
        if (number) held = memlord_i_place_hold(lord, place, bytes, looks++ < MEMLORD_I_HOLD_LOOKS);
        if (held > 0) break;
        memlord_i_lock_drop(&place->lock);
        if (!held) return MEMLORD_E_LIMIT;
        if (number)
            memlord_i_spin(&spins);
        else if (memlord_i_reservation_new(lord, place))
            return MEMLORD_E_NOMEM;
    }
    v = memlord_i_reservation_at(lord, number);
    place->spare_ticket = v->next;
    v->left = bytes;
    v->turn++;
    *out = (uint64_t)number << 32 | v->turn;
    memlord_i_lock_drop(&place->lock);
    return MEMLORD_OK;
}

static void memlord_i_ticket_forget(memlord_i_thread *t, uint32_t i) {
    t->tickets[i] = t->tickets[--t->open_tickets];
}
static int memlord_i_ticket_open(memlord *lord, memlord_ticket ticket) {
    memlord_i_reservation *v = memlord_i_ticket_at(lord, ticket);
    int open;
    memlord_i_lock_take(&v->place->lock);
    open = v->turn == (uint32_t)ticket;
    memlord_i_lock_drop(&v->place->lock);
    return open;
}

/* Has this thread's allocations come off a ticket from now on. */
static void memlord_i_ticket_note(memlord *lord, memlord_i_thread *t, memlord_ticket ticket) {
    const uint32_t most = MEMLORD_I_TICKETS;
    uint32_t i = 0;
    if (t == lord->orphan) return;
    while (t->open_tickets == most && i < most)
        if (memlord_i_ticket_open(lord, t->tickets[i]))
            i++;
        else
            memlord_i_ticket_forget(t, i);
    if (t->open_tickets == most) return;
    t->tickets[t->open_tickets++] = ticket;
    if (!(memlord_i_u32_load(&t->special) & MEMLORD_I_SPECIAL_TICKET))
        memlord_i_special(t, MEMLORD_I_SPECIAL_TICKET, 1); /* until an alloc finds none open */
}

/* Gives back what is left of a ticket. */
static memlord_result memlord_i_unreserve(memlord *lord, memlord_i_thread *t,
                                          memlord_ticket ticket) {
    memlord_i_reservation *v = memlord_i_ticket_at(lord, ticket);
    uint32_t i;
    int open;
    if (!v) return MEMLORD_E_UNKNOWN;
    memlord_i_lock_take(&v->place->lock);
    open = (ticket & 1) && v->turn == (uint32_t)ticket;
    if (open) {
        v->place->held -= v->left;
        v->turn++;
        v->next = v->place->spare_ticket;
        v->place->spare_ticket = (uint32_t)(ticket >> 32);
    }
    memlord_i_lock_drop(&v->place->lock);
    for (i = 0; i < t->open_tickets; i++)
        if (t->tickets[i] == ticket) memlord_i_ticket_forget(t, i);
    return open ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

/* How much of an allocation comes off this thread's tickets, and which. All are of one place. */
typedef struct memlord_i_cover_part {
    memlord_i_reservation *from;
    uint64_t bytes;
    uint32_t turn;
} memlord_i_cover_part;

typedef struct memlord_i_cover {
    uint32_t parts; /* 0: nothing, and the rest is not set */
    memlord_i_cover_part part[MEMLORD_I_TICKETS];
} memlord_i_cover;

/* Takes from one ticket what it has left of these bytes, and from them what it took; 0: it is
   closed. */
static int memlord_i_cover_from(memlord *lord, memlord_ticket ticket, const memlord_i_place *place,
                                uint64_t *bytes, memlord_i_cover *cover) {
    memlord_i_reservation *v = memlord_i_ticket_at(lord, ticket);
    int open;
    memlord_i_lock_take(&v->place->lock);
    open = v->turn == (uint32_t)ticket;
    if (open && v->place == place && v->left) {
        memlord_i_cover_part *part = &cover->part[cover->parts++];
        part->from = v;
        part->turn = v->turn;
        part->bytes = v->left < *bytes ? v->left : *bytes;
        v->left -= part->bytes;
        v->place->arriving += part->bytes;
        *bytes -= part->bytes;
    }
    memlord_i_lock_drop(&v->place->lock);
    return open;
}

/* Before an allocation is recorded: says that so much of it may be counted twice for a while.
   As many tickets cover it as it takes, or what one has left of an allocation smaller than
   foreseen would keep another's bytes held when they are live; that of memlord_alloc_retry its
   own alone. */
static MEMLORD_I_COLD void memlord_i_cover_begin(memlord *lord, memlord_i_thread *t, uint32_t slot,
                                                 uint64_t bytes, memlord_i_cover *cover) {
    const memlord_i_place *place = memlord_i_place_at(lord, slot);
    uint32_t i = 0;
    if (t->retrying) {
        (void)memlord_i_cover_from(lord, t->retrying, place, &bytes, cover);
        t->retrying = 0;
        if (!t->open_tickets) memlord_i_special(t, MEMLORD_I_SPECIAL_TICKET, 0);
        return;
    }
    while (i < t->open_tickets && bytes) {
        if (memlord_i_cover_from(lord, t->tickets[i], place, &bytes, cover))
            i++;
        else
            memlord_i_ticket_forget(t, i); /* closed on another thread */
    }
    if (!t->open_tickets) memlord_i_special(t, MEMLORD_I_SPECIAL_TICKET, 0);
}
/* After it: the bytes are live now and no longer held; or, not recorded, held as before. */
static MEMLORD_I_COLD void memlord_i_cover_end(const memlord_i_cover *cover, int recorded) {
    memlord_i_place *place = cover->part[0].from->place;
    uint32_t i;
    memlord_i_lock_take(&place->lock);
    for (i = 0; i < cover->parts; i++) {
        const memlord_i_cover_part *part = &cover->part[i];
        place->arriving -= part->bytes;
        if (recorded || part->from->turn != part->turn)
            place->held -= part->bytes;
        else
            part->from->left += part->bytes;
    }
    memlord_i_lock_drop(&place->lock);
}

/* -- accounts: number:32 | turn of the record:32 -- */

#define MEMLORD_I_BALANCE_TURN(turn) (((uint64_t)(turn) & 0x7fff) << 49)

static memlord_i_balance *memlord_i_balance_at(memlord *lord, uint32_t number) {
    return (memlord_i_balance *)memlord_i_book_at(&lord->balances, number,
                                                  sizeof(memlord_i_balance));
}
/* 1: a word read from a record is that of this account, which is open. */
static int memlord_i_balance_is(uint64_t word, memlord_account account) {
    return (account & 1) && word - MEMLORD_I_BYTES(word) == MEMLORD_I_BALANCE_TURN(account);
}
static memlord_i_balance *memlord_i_account_at(memlord *lord, memlord_account account) {
    uint32_t number = (uint32_t)(account >> 32);
    memlord_i_balance *b;
    if (!number || number >= memlord_i_u32_load_acquire(&lord->balance_count)) return NULL;
    b = memlord_i_balance_at(lord, number);
    return b && memlord_i_u32_load_acquire(&b->turn) == (uint32_t)account ? b : NULL;
}

static MEMLORD_I_COLD memlord_result memlord_i_account_open_locked(memlord *lord,
                                                                   memlord_device device,
                                                                   const char *name, uint64_t limit,
                                                                   memlord_account *out) {
    uint32_t number = lord->spare_balance;
    memlord_i_balance *b;
    size_t n = name ? strlen(name) : 0;
    if (!number) {
        number = memlord_i_u32_load(&lord->balance_count);
        if (!memlord_i_book_make(lord, &lord->balances, number, sizeof *b, memlord_i_cold_alloc))
            return MEMLORD_I_AGAIN;
        memlord_i_u32_store_release(&lord->balance_count, number + 1);
    }
    b = memlord_i_balance_at(lord, number);
    if (number == lord->spare_balance) lord->spare_balance = b->next;
    if (n >= sizeof b->name) n = sizeof b->name - 1;
    memset(b->name, 0, sizeof b->name);
    if (n) memcpy(b->name, name, n);
    b->device = device;
    memlord_i_u64_store(&b->limit, limit);
    memlord_i_u64_store(&b->peak, 0);
    memlord_i_u64_store(&b->refused, 0);
    *out = (uint64_t)number << 32 | (memlord_i_u32_load(&b->turn) + 1);
    memlord_i_u64_store(&b->word, MEMLORD_I_BALANCE_TURN(*out));
    memlord_i_u32_store_release(&b->turn, (uint32_t)*out); /* pairs with memlord_i_account_at */
    return MEMLORD_OK;
}

static memlord_result memlord_i_account_charge(memlord *lord, memlord_account account,
                                               int64_t bytes) {
    memlord_i_balance *b = memlord_i_account_at(lord, account);
    uint64_t by = bytes < 0 ? (uint64_t)0 - (uint64_t)bytes : (uint64_t)bytes, word, now, limit;
    if (!b) return MEMLORD_E_UNKNOWN;
    limit = memlord_i_u64_load(&b->limit);
    if (!limit || limit > MEMLORD_I_BYTES_MAX) limit = MEMLORD_I_BYTES_MAX;
    word = memlord_i_u64_load(&b->word);
    do {
        now = MEMLORD_I_BYTES(word);
        if (!memlord_i_balance_is(word, account)) return MEMLORD_E_UNKNOWN;
        if (bytes < 0 && by > now) return MEMLORD_E_INVALID;
        if (bytes > 0 && (now > limit || by > limit - now)) {
            (void)memlord_i_u64_add(&b->refused, 1);
            return MEMLORD_E_LIMIT;
        }
        now = bytes < 0 ? now - by : now + by;
    } while (!memlord_i_u64_cas(&b->word, &word, word - MEMLORD_I_BYTES(word) + now));
    if (memlord_i_balance_is(memlord_i_u64_load(&b->word), account)) /* not of the next one */
        memlord_i_u64_raise(&b->peak, (int64_t)now);
    return MEMLORD_OK;
}

/* Copies one out, under the cold lock: 1, it is open. */
static MEMLORD_I_COLD int memlord_i_account_read_locked(const memlord_i_balance *b,
                                                        memlord_account_stat *out) {
    memset(out, 0, sizeof *out);
    if (!(memlord_i_u32_load(&b->turn) & 1)) return 0;
    memcpy(out->name, b->name, sizeof out->name);
    out->device = b->device;
    out->bytes = MEMLORD_I_BYTES(memlord_i_u64_load(&b->word));
    out->peak = memlord_i_u64_load(&b->peak);
    out->limit = memlord_i_u64_load(&b->limit);
    out->refused = memlord_i_u64_load(&b->refused);
    return 1;
}

/* ----------------------------------------------------------------------- >>bands --
   Owns the strategy, what each device is near to, the callbacks and their runs. How a threshold
   is never passed unseen, though threads hold back what they count: what is published is at most
   a batch a thread behind the truth, so while it is a margin (a batch for each thread of the
   crew) below the threshold nobody can cross it without publishing first; who publishes looks.
   Closer than that the device is nearby: an alert makes every call look at its end, and add all
   threads up. Bytes freed are no level and are never published; there a thread looks after each
   64th of the way (its trip). Locks: place for what a device knows, callbacks; none while one
   runs. */

/* -- the strategy -- */

#define MEMLORD_I_DEFAULT_BANDS 3
static const memlord_band memlord_i_default_bands[MEMLORD_I_DEFAULT_BANDS] = {
    {0, 50, MEMLORD_METRIC_MAX, 0, 50, MEMLORD_COMBINE_MAX},
    {50, 75, MEMLORD_METRIC_MAX, 0, 33, MEMLORD_COMBINE_MAX},
    {75, 101, MEMLORD_METRIC_FREED, 0, 10, MEMLORD_COMBINE_MAX},
};
static const memlord_i_strategy memlord_i_default_strategy = {MEMLORD_I_DEFAULT_BANDS,
                                                              memlord_i_default_bands};

/* What is wrong with a band, as said after its number; NULL: nothing. */
static MEMLORD_I_COLD const char *memlord_i_band_fault(const memlord_band *b) {
    if (!(b->lo >= 0 && b->lo < b->hi)) return ": lo and hi must be 0 <= lo < hi";
    if (!(b->hi <= 1e9)) return ": hi must be a percentage; 101 is above everything";
    if (!(b->percent >= 0 && b->percent <= 1e9)) return ": percent must be 0 or more";
    if ((unsigned)b->metric > MEMLORD_METRIC_MAX) return ": unknown metric";
    if ((unsigned)b->combine > MEMLORD_COMBINE_MIN) return ": unknown combine";
    if (!b->bytes && !(b->percent > 0)) return ": no threshold: set bytes or percent";
    return NULL;
}

/* The end of what bands cover from `at` on, without a gap. */
static MEMLORD_I_COLD double memlord_i_bands_cover(const memlord_band *bands, size_t n, double at) {
    size_t i = 0;
    while (i < n) {
        if (bands[i].lo <= at && at < bands[i].hi) {
            at = bands[i].hi;
            i = 0;
        } else {
            i++;
        }
    }
    return at;
}
/* Warns of what is legal and hardly meant. */
static MEMLORD_I_COLD void memlord_i_bands_warn(memlord *lord, const memlord_band *bands,
                                                size_t n) {
    size_t i, k;
    double at = memlord_i_bands_cover(bands, n, 0);
    for (i = 1; i < n; i++)
        for (k = 0; k < i; k++)
            if (bands[i].lo < bands[k].hi && bands[k].lo < bands[i].hi) {
                memlord_i_logf(lord, MEMLORD_LOG_WARNING,
                               "[strategy] band %ju overlaps an earlier one, which wins there",
                               (uint64_t)i);
                break;
            }
    for (; at <= 100; at = memlord_i_bands_cover(bands, n, at)) {
        double next = 1e9;
        for (i = 0; i < n; i++)
            if (bands[i].lo > at && bands[i].lo < next) next = bands[i].lo;
        if (next > 100) {
            memlord_i_logf(lord, MEMLORD_LOG_WARNING,
                           "[strategy] no band covers from %g up: a full device wants hi over 100",
                           (double)(uint64_t)at);
            return;
        }
        memlord_i_logf(lord, MEMLORD_LOG_WARNING, "[strategy] a gap: no band covers %g to %g", at,
                       next);
        at = next;
    }
}

/* Puts a strategy in force, waits until nobody looks at the old one, and frees that. */
static MEMLORD_I_COLD void memlord_i_strategy_swap(memlord *lord, memlord_i_strategy *fresh) {
    memlord_i_strategy *old;
    uint32_t i;
    memlord_i_lock_take(&memlord_i_process.cold);
    old = (memlord_i_strategy *)memlord_i_ptr_load(&lord->strategy);
    memlord_i_ptr_store_release(&lord->strategy, fresh); /* pairs with memlord_i_judge */
    memlord_i_lock_drop(&memlord_i_process.cold);
    for (i = 0; i < memlord_i_rows(lord, MEMLORD_I_DEVICE); i++) {
        memlord_i_place *place = i ? memlord_i_place_take(lord, i) : &lord->host;
        if (i)
            memlord_i_device_at(lord, i)->watch.spent = 0;
        else
            memlord_i_lock_take(&place->lock);
        memlord_i_lock_drop(&place->lock);
    }
    if (old && old != &memlord_i_default_strategy)
        memlord_i_free(lord, old, sizeof *old + old->n * sizeof(memlord_band));
}

/* -- looking: what is due for a device; under its place's lock -- */

typedef struct memlord_i_verdict {
    int banded; /* a band is in force; else the rest means nothing */
    int due;
    int nearby;
    size_t band;
    memlord_metric metric;
    double used; /* %, NaN: unknown */
    uint64_t value, threshold, live, freed;
} memlord_i_verdict;

static double memlord_i_nan(void) {
    const uint64_t bits = (uint64_t)0x7ff8 << 48;
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}
static MEMLORD_I_COLD double memlord_i_used_percent(const memlord_capacity *c) {
    if (!c->known) return memlord_i_nan();
    return (double)c->used * 100.0 / (double)c->total;
}

/* A band's threshold at a place; 0: it has none now. */
static uint64_t memlord_i_band_threshold(const memlord_i_place *place, const memlord_band *b) {
    uint64_t cap = place->sample.known ? place->sample.total : 0, part = 0;
    double share;
    if (place->limit && (!cap || place->limit < cap)) cap = place->limit;
    if (b->percent > 0 && cap) {
        share = (double)cap * b->percent / 100.0; /* exact for whole percents */
        part = share < 1 ? 1 : share >= 9e18 ? (uint64_t)9e18 : (uint64_t)share;
    }
    if (!part || !b->bytes) return part ? part : b->bytes;
    if (b->combine == MEMLORD_COMBINE_MIN) return part < b->bytes ? part : b->bytes;
    return part > b->bytes ? part : b->bytes;
}

/* The band in force: the first over the used %; while that is unknown the first over all. */
static const memlord_band *memlord_i_band_now(const memlord_i_strategy *s,
                                              const memlord_i_place *place, double used) {
    const memlord_band *b = s->bands;
    size_t i;
    for (i = 0; i < s->n; i++, b++)
        if (place->sample.known ? b->lo <= used && used < b->hi : b->lo <= 0 && b->hi >= 100)
            return memlord_i_band_threshold(place, b) ? b : NULL;
    return NULL;
}

static uint64_t memlord_i_metric(memlord_metric metric, uint64_t live, uint64_t freed) {
    if (metric == MEMLORD_METRIC_ALLOCATED) return live;
    if (metric == MEMLORD_METRIC_FREED) return freed;
    return live > freed ? live : freed;
}
static int64_t memlord_i_signed(uint64_t v) { return v > INT64_MAX ? INT64_MAX : (int64_t)v; }

/* Notes at which published bytes to look again, and whether that is now; `again`: the metric from
   which on a device that was spent is due again. */
static void memlord_i_watch_set(memlord *lord, uint32_t slot, memlord_i_watch *w, uint64_t again,
                                memlord_i_verdict *v) {
    uint64_t t = v->threshold, crew = memlord_i_u32_load(&lord->crew);
    uint64_t margin = crew * lord->batch, unseen = crew * w->quantum; /* allocs, frees at most */
    uint64_t twice = memlord_i_u32_load(&w->nearby) ? 2 : 1; /* no flutter */
    uint64_t up = t, low = 0;
    int64_t published = (int64_t)memlord_i_u64_load(
        &memlord_i_row_at(lord, MEMLORD_I_DEVICE, slot)->published);
    if (w->spent) {
        up = again > t ? again : t;
        low = v->metric == MEMLORD_METRIC_FREED ? 0 : t - t / 8;
    }
    v->nearby = v->due || (w->spent && published < memlord_i_signed(low));
    if (v->metric != MEMLORD_METRIC_FREED && v->live + twice * margin >= up) v->nearby = 1;
    if (v->metric != MEMLORD_METRIC_ALLOCATED && v->freed + twice * unseen >= up) v->nearby = 1;
    memlord_i_u64_store(&w->soon_up, v->metric == MEMLORD_METRIC_FREED
                                         ? (uint64_t)INT64_MAX
                                         : (uint64_t)(memlord_i_signed(up) -
                                                      memlord_i_signed(margin)));
    memlord_i_u64_store(&w->soon_low, w->spent ? low : (uint64_t)INT64_MIN);
}

/* Makes every thread look at its next free on a device. */
static void memlord_i_trips_clear(memlord *lord, uint32_t slot) {
    memlord_i_thread *t = memlord_i_thread_first(lord);
    for (; t; t = memlord_i_thread_after(t)) {
        memlord_i_cell *cell = memlord_i_cell_at(t, MEMLORD_I_DEVICE, slot);
        if (cell) memlord_i_u64_store(memlord_i_cell_trip(cell), 0);
    }
}

/* How often frees are looked at: 64 times on the way to the threshold, if all threads free
   alike, but not after less than a batch. Threads that were to look later than that look now. */
static void memlord_i_quantum_set(memlord *lord, uint32_t slot, memlord_i_watch *w,
                                  const memlord_i_verdict *v) {
    uint64_t had = w->quantum, share = v->threshold / 64 / memlord_i_u32_load(&lord->crew);
    w->quantum = share > lord->batch ? share : lord->batch ? lord->batch : 1;
    if (v->metric == MEMLORD_METRIC_ALLOCATED) w->quantum = 0; /* or without a band */
    if (w->quantum && (!had || w->quantum < had)) memlord_i_trips_clear(lord, slot);
}

/* Adds the device up and judges. */
static void memlord_i_judge(memlord *lord, const memlord_i_place *place, uint32_t slot,
                            memlord_i_verdict *v) {
    memlord_i_device *device = memlord_i_device_at(lord, slot);
    memlord_i_watch *w = &device->watch;
    const memlord_i_strategy *s =
        (const memlord_i_strategy *)memlord_i_ptr_load_acquire(&lord->strategy);
    const memlord_band *b = NULL;
    uint64_t eighth, again;
    memset(v, 0, sizeof *v);
    v->used = memlord_i_used_percent(&place->sample);
    if (s && (memlord_i_u32_load(&lord->watching) >> device->device.type & 1))
        b = memlord_i_band_now(s, place, v->used);
    if (b) {
        v->banded = 1;
        v->band = (size_t)(b - s->bands);
        v->metric = b->metric;
        v->threshold = memlord_i_band_threshold(place, b);
    }
    memlord_i_quantum_set(lord, slot, w, v);
    if (!b) {
        memlord_i_u64_store(&w->soon_up, (uint64_t)INT64_MAX);
        memlord_i_u64_store(&w->soon_low, (uint64_t)INT64_MIN);
        return;
    }
    memlord_i_row_level(lord, slot, &v->live, &v->freed);
    v->value = memlord_i_metric(v->metric, v->live, v->freed);
    eighth = v->threshold / 8;
    again = memlord_i_add(memlord_i_metric(v->metric, w->live, w->freed), eighth ? eighth : 1);
    if (v->value < v->threshold - eighth || v->value >= again) w->spent = 0;
    v->due = !w->spent && v->value >= v->threshold;
    memlord_i_watch_set(lord, slot, w, again, v);
}

static void memlord_i_trip_set(memlord_i_cell *cell, uint64_t quantum) {
    uint64_t never = (uint64_t)INT64_MAX; /* what is left until then is looked at as signed */
    if (cell)
        memlord_i_u64_store(memlord_i_cell_trip(cell),
                            quantum ? memlord_i_u64_load(&cell->out) + quantum : never);
}

/* Judges a device and lets its nearness be known. When it comes near, once more after the
   barrier: a call that counted before it is added up, one after it sees the alert. The counter
   of looks makes the later of two looks see what the earlier counted. */
static MEMLORD_I_COLD void memlord_i_assess(memlord *lord, uint32_t slot, memlord_i_thread *t,
                                            memlord_i_verdict *v) {
    memlord_i_watch *w = &memlord_i_device_at(lord, slot)->watch;
    int again;
    do {
        memlord_i_place *place = memlord_i_place_take(lord, slot);
        memlord_i_cell *cell = t ? memlord_i_cell_at(t, MEMLORD_I_DEVICE, slot) : NULL;
        memlord_i_judge(lord, place, slot, v);
        again = v->nearby && !memlord_i_u32_load(&w->nearby);
        if (v->nearby != (int)memlord_i_u32_load(&w->nearby)) {
            memlord_i_u32_store(&w->nearby, (uint32_t)v->nearby);
            (void)memlord_i_u32_add(&lord->alert,
                                    (v->nearby ? 1u : (uint32_t)-1) * MEMLORD_I_ALERT_LOOK);
        }
        memlord_i_trip_set(cell, w->quantum);
        memlord_i_trip_set(memlord_i_cell_at(lord->orphan, MEMLORD_I_DEVICE, slot), w->quantum);
        memlord_i_lock_drop(&place->lock);
        if (again) memlord_i_barrier_threads(lord);
    } while (again);
}

/* -- collecting -- */

static MEMLORD_I_COLD int memlord_i_gc_registered(memlord *lord, int type) {
    memlord_i_callback *c;
    memlord_i_lock_take(&lord->callbacks_lock);
    for (c = lord->callbacks; c && c->type != type;) c = c->next;
    memlord_i_lock_drop(&lord->callbacks_lock);
    return c != NULL;
}

/* 1: the strategy there is runs this callback. */
static MEMLORD_I_COLD int memlord_i_callback_banded(memlord *lord, const memlord_i_callback *c) {
    return !c->quiet || memlord_i_ptr_load(&lord->strategy) != &memlord_i_default_strategy;
}

/* Notes which types have both bands and a callback. */
static MEMLORD_I_COLD void memlord_i_watching_set(memlord *lord) {
    memlord_i_callback *c;
    uint32_t types = 0, i;
    memlord_i_lock_take(&lord->callbacks_lock);
    for (c = lord->callbacks; c && memlord_i_ptr_load(&lord->strategy); c = c->next)
        if (memlord_i_callback_banded(lord, c)) types |= 1u << c->type;
    memlord_i_u32_store(&lord->watching, types);
    memlord_i_lock_drop(&lord->callbacks_lock);
    for (i = 1; i < memlord_i_rows(lord, MEMLORD_I_DEVICE); i++)
        if (types >> lord->slot_type[i] & 1) memlord_i_want(lord, i); /* and its poller */
}

/* 1: a device is in this callback, on a thread other than `but`. Under the callbacks lock. */
static MEMLORD_I_COLD int memlord_i_callback_runs(memlord *lord, const memlord_i_callback *c,
                                                  const void *but) {
    uint32_t i, n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    for (i = 1; i < n; i++) {
        const memlord_i_watch *w = &memlord_i_device_at(lord, i)->watch;
        if (w->callback == c && w->runner != but) return 1;
    }
    return 0;
}

/* The callback after number `serial` for a type, marked as being run on a device; NULL: none. */
static MEMLORD_I_COLD memlord_i_callback *memlord_i_callback_next(memlord *lord, memlord_i_watch *w,
                                                                  int type, uint64_t serial,
                                                                  memlord_i_callback *copy) {
    memlord_i_callback *c, *ended;
    memlord_i_lock_take(&lord->callbacks_lock);
    ended = w->callback;
    for (c = lord->callbacks; c && (c->type != type || c->serial <= serial);) c = c->next;
    w->callback = c;
    if (c)
        *copy = *c;
    else
        w->runner = NULL;
    if (ended && (!ended->orphan || memlord_i_callback_runs(lord, ended, NULL))) ended = NULL;
    memlord_i_lock_drop(&lord->callbacks_lock);
    memlord_i_free(lord, ended, sizeof *ended);
    return c;
}

static MEMLORD_I_COLD void memlord_i_log_gc(memlord *lord, const memlord_gc_event *e,
                                            const memlord_gc_result *result) {
    static const char *const reasons[] = {
#define MEMLORD_I_X(name, text) text,
        MEMLORD_I_REASONS(MEMLORD_I_X)
#undef MEMLORD_I_X
    };
    static const char *const metrics[] = {"allocated", "freed", "max"};
    char line[320];
    memlord_i_out o;
    if (lord->log_level < MEMLORD_LOG_INFO || !lord->logger.fn) return;
    memlord_i_out_buffer(&o, line, sizeof line);
    memlord_i_putf(&o, "[gc] %i run %ju (%ju in all): %s", memlord_i_coded(e->device),
                   e->device_runs, e->total_runs, reasons[e->reason]);
    if (e->band != SIZE_MAX)
        memlord_i_putf(&o, " %ju, %s %jo >= %jo", (uint64_t)e->band, metrics[e->metric], e->value,
                       e->threshold);
    if (e->needed) memlord_i_putf(&o, ", needed %jo", e->needed);
    memlord_i_putf(&o, result->ran ? ", used %g, reclaimed %jo" : ", used %g, could not run",
                   e->used_percent, result->reclaimed);
    memlord_i_log_end(lord, MEMLORD_LOG_INFO, &o);
}

static uint64_t memlord_i_gc_count(memlord *lord, uint32_t slot) {
    const memlord_i_u64 *count = memlord_i_device_at(lord, slot)->count;
    return memlord_i_u64_load(&count[MEMLORD_I_STAT_gc_runs]) +
           memlord_i_u64_load(&count[MEMLORD_I_STAT_gc_failed]);
}
static MEMLORD_I_COLD void memlord_i_gc_number(memlord *lord, uint32_t slot, memlord_gc_event *e) {
    uint32_t i, n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    e->device_runs = memlord_i_gc_count(lord, slot) + 1;
    for (e->total_runs = 1, i = 1; i < n; i++) e->total_runs += memlord_i_gc_count(lord, i);
}

/* What a run leaves behind: freed starts over and, with `rest`, the bands wait until the metric
   has moved. */
static MEMLORD_I_COLD void memlord_i_gc_ended(memlord *lord, uint32_t slot, int rest,
                                              const memlord_gc_result *result) {
    memlord_i_device *device = memlord_i_device_at(lord, slot);
    memlord_i_watch *w = &device->watch;
    memlord_i_u64 *sum = &device->count[MEMLORD_I_STAT_gc_reclaimed];
    memlord_i_place *place;
    uint32_t i, n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    memlord_i_stat_add(lord, slot,
                       result->ran ? MEMLORD_I_STAT_gc_runs : MEMLORD_I_STAT_gc_failed, 1);
    if (result->ran) /* the host's word: the sum may be too much. One run at a time changes it */
        memlord_i_u64_store(sum, memlord_i_add(memlord_i_u64_load(sum), result->reclaimed));
    for (i = 1; i < n && result->ran; i++)
        if (i == slot || (result->family && lord->slot_type[i] == device->device.type))
            memlord_i_row_freed_reset(lord, i);
    place = memlord_i_place_take(lord, slot);
    if (rest) {
        memlord_i_row_level(lord, slot, &w->live, &w->freed);
        w->spent = 1;
    }
    memlord_i_lock_drop(&place->lock);
}

/* Runs the callbacks of a device whose `running` this thread has taken. */
static MEMLORD_I_COLD void memlord_i_gc_call(memlord *lord, uint32_t slot, memlord_gc_event *e,
                                             int rest, memlord_gc_result *all) {
    memlord_i_device *device = memlord_i_device_at(lord, slot);
    memlord_i_callback c;
    c.serial = 0;
    memset(all, 0, sizeof *all);
    e->device = device->device;
    memlord_i_gc_number(lord, slot, e);
    memlord_i_lock_take(&lord->callbacks_lock);
    device->watch.runner = &memlord_i_self;
    memlord_i_lock_drop(&lord->callbacks_lock);
    memlord_i_rank_none();
    while (memlord_i_callback_next(lord, &device->watch, e->device.type, c.serial, &c)) {
        memlord_gc_result one;
        if (e->reason == MEMLORD_REASON_BAND && !memlord_i_callback_banded(lord, &c)) continue;
        one = c.fn(c.user, lord, e);
        if (!one.ran) continue;
        all->ran = 1;
        all->family |= one.family;
        all->reclaimed = memlord_i_add(all->reclaimed, one.reclaimed);
    }
    memlord_i_gc_ended(lord, slot, rest, all);
    memlord_i_log_gc(lord, e, all);
    if (all->ran) memlord_i_note_other(lord, MEMLORD_EVENT_GC, slot, 0, all->reclaimed);
    memlord_i_u32_store_release(&device->watch.running, 0); /* pairs with the exchanges */
}

/* Looks at a device, and collects if that is due and nobody does. `safe`: host code may run. */
static MEMLORD_I_COLD void memlord_i_look(memlord *lord, uint32_t slot, memlord_i_thread *t,
                                          int safe) {
    memlord_i_watch *w = &memlord_i_device_at(lord, slot)->watch;
    memlord_i_verdict v;
    memlord_gc_event e;
    memlord_gc_result result;
    (void)memlord_i_u64_add(&w->looks, 1);
    if (t && t != lord->orphan) /* one that only frees has none yet */
        (void)memlord_i_cell_make(lord, t, MEMLORD_I_DEVICE, slot, memlord_i_alloc);
    memlord_i_assess(lord, slot, t, &v);
    if (!v.due || !safe || memlord_i_self.busy) return;
    if (memlord_i_u32_exchange(&w->running, 1)) return;
    memlord_i_assess(lord, slot, t, &v); /* a run may have ended between the two */
    if (!v.due) {
        memlord_i_u32_store_release(&w->running, 0);
        return;
    }
    memset(&e, 0, sizeof e);
    e.reason = MEMLORD_REASON_BAND;
    e.used_percent = v.used;
    e.band = v.band;
    e.metric = v.metric;
    e.value = v.value;
    e.threshold = v.threshold;
    memlord_i_gc_call(lord, slot, &e, 1, &result);
    memlord_i_assess(lord, slot, t, &v);
}

/* A collection that no band asked for. */
static MEMLORD_I_COLD memlord_result memlord_i_collect(memlord *lord, uint32_t slot, int reason,
                                                       uint64_t needed, uint64_t *reclaimed) {
    memlord_i_device *device = memlord_i_device_at(lord, slot);
    memlord_gc_event e;
    memlord_gc_result result;
    memlord_i_verdict v;
    *reclaimed = 0;
    if (!memlord_i_gc_registered(lord, device->device.type)) return MEMLORD_E_UNKNOWN;
    if (memlord_i_u32_exchange(&device->watch.running, 1)) return MEMLORD_E_STATE;
    memset(&e, 0, sizeof e);
    e.reason = reason;
    e.band = SIZE_MAX;
    e.needed = needed;
    e.value = memlord_i_row_live(lord, MEMLORD_I_DEVICE, slot);
    memlord_i_assess(lord, slot, NULL, &v);
    e.used_percent = v.used;
    memlord_i_gc_call(lord, slot, &e, v.banded && v.value >= v.threshold, &result);
    memlord_i_assess(lord, slot, NULL, &v);
    *reclaimed = result.reclaimed;
    return result.ran ? MEMLORD_OK : MEMLORD_E_STATE;
}

/* Looks at every device of a place, or (NULL) at all: thresholds or margins have changed. */
static MEMLORD_I_COLD void memlord_i_place_review(memlord *lord, const memlord_i_place *place) {
    uint32_t i = 0;
    memlord_i_verdict v;
    int again;
    for (again = 0; again < 2; again++) {
        while ((i = memlord_i_place_next(lord, place, i)) != 0) memlord_i_assess(lord, i, NULL, &v);
        if (!memlord_i_u32_load(&lord->watching)) return;
        /* what was counted beside the old marks is seen the second time */
        if (!again) memlord_i_barrier_threads(lord);
    }
}

/* There are more threads than the margins allow for: widens them. */
static void memlord_i_crew_grow(memlord *lord) {
    uint32_t crew;
    memlord_i_alert(lord, MEMLORD_I_ALERT_REVIEW, 0); /* who comes from here on sets it anew */
    do memlord_i_u32_store(&lord->crew, crew = memlord_i_threads(lord) + 4);
    while (memlord_i_threads(lord) > crew);
    memlord_i_place_review(lord, NULL);
}

/* -- the end of a call -- */

static memlord_result memlord_i_duty(memlord *lord, memlord_i_thread *t, uint32_t slot,
                                     int asks); /* always OK: for tail calls */
static void memlord_i_duty_also(memlord *lord, memlord_i_thread *t, uint32_t slot);

/* Compares what is counted on a device with its marks as they are now. Near the threshold every
   call looks anyway. */
static void memlord_i_marks_again(memlord *lord, const memlord_i_thread *t, uint32_t slot) {
    const memlord_i_watch *w = &memlord_i_device_at(lord, slot)->watch;
    memlord_i_cell *cell = memlord_i_cell_at(t, MEMLORD_I_DEVICE, slot);
    if (!cell || memlord_i_u32_load(&w->nearby)) return;
    if (memlord_i_mark_passed(w, memlord_i_row_at(lord, MEMLORD_I_DEVICE, slot)) ||
        memlord_i_cell_tripped(cell) < 0)
        memlord_i_want(lord, slot);
}
/* Something is to be looked after. A thread without the system's barrier passes a full one of its
   own, the addition, which pairs with that in memlord_i_barrier_threads: the later of the two sees
   what the other thread stored before its own. Then the thread reads again the alert, and the marks
   of the devices it counted on. */
static MEMLORD_I_NOINLINE void memlord_i_call_end_far(memlord *lord, memlord_i_thread *t,
                                                      uint32_t slot, int asks) {
    (void)memlord_i_u32_add(&lord->alert, 0);
    if (memlord_i_u32_load(&t->special) & MEMLORD_I_SPECIAL_FENCE) {
        memlord_i_marks_again(lord, t, slot);
        if (t != lord->orphan && t->also) memlord_i_marks_again(lord, t, t->also);
    }
    if (!(memlord_i_u32_load(&lord->alert) & lord->slot_alerts[slot] &
          ~(uint32_t)MEMLORD_I_ALERT_EVENTS))
        return;
    (void)memlord_i_duty(lord, t, slot, asks);
    if (t != lord->orphan && t->also) memlord_i_duty_also(lord, t, slot);
}

/* What every call that counted on a device ends with, nothing held. `asks`: it may ask fences. */
static MEMLORD_I_HOT void memlord_i_call_end(memlord *lord, memlord_i_thread *t, uint32_t slot,
                                             int asks) {
    if (MEMLORD_I_UNLIKELY((memlord_i_u32_load(&lord->alert) & lord->slot_alerts[slot] &
                            ~(uint32_t)MEMLORD_I_ALERT_EVENTS) |
                           (memlord_i_u32_load(&t->special) & MEMLORD_I_SPECIAL_FENCE)))
        memlord_i_call_end_far(lord, t, slot, asks);
}

/* -------------------------------------------------------------------- >>deferred --
   Owns the way of a block from freed to credited. Composes fences and blocks: a block is pending
   while its side record has a serial, and stays in the map until its last fence is done.
   Locks: those of the map, then fences; none while a fence runs. */

#define MEMLORD_I_POLLS 4 /* fences a call asks at most */

enum { MEMLORD_I_ATTACH_USE, MEMLORD_I_ATTACH_FREE, MEMLORD_I_ATTACH_MOVE };

/* Records a fence on a live block, in place of an earlier one of its queue; unless that is all,
   frees the block, and *chain is what to ask. After an error the fence is still the caller's.
   NULL: none but the uses it has. */
static memlord_result memlord_i_fence_attach(memlord *lord, memlord_i_thread *t, memlord_device d,
                                             uint64_t key, memlord_i_fence *f, int why,
                                             memlord_i_entry *gone, memlord_i_fence **chain) {
    memlord_i_spot spot;
    memlord_i_side *unused, *side;
    memlord_i_fence **at, *old = NULL;
    uint64_t refs;
    memlord_result r = memlord_i_spot_side(lord, t, (uint32_t)d.type, key, &spot, &unused);
    gone->key = 0;
    *chain = NULL;
    if (r == MEMLORD_OK && memlord_i_is_pending(spot.entry->word2)) {
        memlord_i_spot_leave(t, &spot);
        memlord_i_free(lord, unused, sizeof *unused);
        r = MEMLORD_E_UNKNOWN;
    }
    if (r == MEMLORD_E_UNKNOWN && why) (void)memlord_i_unknown(lord, d);
    if (r) return r;
    side = memlord_i_side_of(spot.entry->word2);
    refs = memlord_i_refs_of(spot.entry->word1, spot.entry->word2);
    for (at = &side->fences; f && *at;) {
        if ((*at)->fence.queue == f->fence.queue) {
            old = *at;
            *at = old->sibling;
            old->sibling = NULL;
        } else {
            at = &(*at)->sibling;
        }
    }
    if (f) *at = f;
    if (why) {
        *gone = *spot.entry;
        gone->word2 = side->word2;
        gone->key = key;
        *chain = memlord_i_pend(lord, spot.entry);
    }
    memlord_i_spot_leave(t, &spot);
    memlord_i_free(lord, unused, sizeof *unused);
    memlord_i_fences_widow(lord, old);
    if (why == MEMLORD_I_ATTACH_FREE && refs > 1) /* views move along */
        memlord_i_stat_add(lord, MEMLORD_I_SLOT(gone->word1), MEMLORD_I_STAT_freed_while_shared, 1);
    return MEMLORD_OK;
}

/* Takes a fence off its pending block, if it is there, and ends that with its last. Returns 1 if
   it did, and in *credited the bytes. */
static int memlord_i_fence_credit(memlord *lord, memlord_i_thread *t, memlord_i_fence *f,
                                  uint64_t *credited) {
    memlord_i_spot spot;
    memlord_i_side *side = memlord_i_spot_record(lord, t, lord->slot_type[f->slot], f->key, &spot);
    memlord_i_fence **at;
    uint64_t word1, plain;
    if (!side || !f->serial || side->serial != f->serial) {
        memlord_i_spot_leave(t, &spot);
        return 0;
    }
    for (at = &side->fences; *at != f;) at = &(*at)->sibling;
    *at = f->sibling;
    f->serial = 0;
    if (side->fences) {
        memlord_i_spot_leave(t, &spot);
        return 0;
    }
    word1 = spot.entry->word1;
    plain = side->word2;
    memlord_i_spot_end(lord, t, &spot);
    memlord_i_note_end(lord, t, MEMLORD_EVENT_FREE, f->key, word1, plain, NULL);
    *credited = MEMLORD_I_BYTES(word1);
    return 1;
}

/* Ends a fence this thread has asked: done (> 0) or failed. Returns the bytes credited. */
static uint64_t memlord_i_fence_settle(memlord *lord, memlord_i_fence *f, int answer) {
    memlord_i_thread *t;
    uint64_t credited = 0, key = f->key;
    uint32_t slot = f->slot;
    int mine, last;
    if (answer < 0) memlord_i_stat_add(lord, slot, MEMLORD_I_STAT_fence_failures, 1);
    memlord_i_fence_drop(lord, f);
    t = memlord_i_thread_get(lord);
    last = memlord_i_fence_credit(lord, t, f, &credited);
    memlord_i_thread_put(lord, t);
    memlord_i_lock_take(&lord->fences_lock);
    memlord_i_queue_remove(lord, f);
    mine = f->widowed || !f->serial;
    f->asker = NULL; /* a block that still has it frees it */
    memlord_i_lock_drop(&lord->fences_lock);
    if (mine) memlord_i_fence_free(lord, f);
    if (!last) return 0;
    if (memlord_i_tells(lord))
        memlord_i_tell(lord, 1, "[free retired] ", memlord_i_device_at(lord, slot)->device, key,
                       credited, NULL);
    memlord_i_call_end(lord, t, slot, 0);
    return credited;
}

/* Takes the answer of a fence that this thread has asked. `turn`: one that is done waits for those
   before it. */
static MEMLORD_I_COLD uint64_t memlord_i_fence_answered(memlord *lord, memlord_i_fence *f,
                                                        int answer, int turn) {
    uint64_t now = answer ? 0 : memlord_i_clock(lord);
    int settles;
    memlord_i_lock_take(&lord->fences_lock);
    settles = f->widowed || (answer && !(turn && f->previous));
    if (!settles) {
        f->asker = NULL;
        f->told = answer;
        if (!f->previous)
            memlord_i_queue_rest(lord, f->queue,
                                 f->queue->rest ? f->queue->rest * 2 : MEMLORD_I_REST_LEAST, now);
    }
    memlord_i_lock_drop(&lord->fences_lock);
    return settles ? memlord_i_fence_settle(lord, f, answer) : 0;
}

/* Asks the fences of a block just freed for the first time, in the order they came. */
static MEMLORD_I_COLD void memlord_i_fences_begin(memlord *lord, memlord_i_fence *chain) {
    memlord_i_fence *next;
    for (; chain; chain = next) {
        int answer = 0;
        next = chain->sibling;
        if (!(lord->flags & MEMLORD_FLAG_DEFER)) answer = memlord_i_fence_ask(lord, chain);
        (void)memlord_i_fence_answered(lord, chain, answer, 0);
    }
}

/* Makes this thread the asker of a fence, and its queue the last of its type to be asked again.
   Under the fences lock. */
static memlord_i_fence *memlord_i_fence_claim(memlord_i_pends *p, memlord_i_fence *f) {
    memlord_i_queue *q = f->queue;
    f->asker = &memlord_i_self;
    if (q->unasked == f) q->unasked = f->next;
    memlord_i_queue_unlink(p, q);
    memlord_i_queue_link(p, q);
    return f;
}

/* Claims the next fence a poll has to ask: one that was never asked, as it may record its event
   then, or the first of a queue that was not asked since `round`. Under the fences lock. */
static memlord_i_fence *memlord_i_poll_next(memlord *lord, memlord_i_pends *p, memlord_device sel,
                                            uint64_t round) {
    memlord_i_queue *q;
    for (q = p->first; q; q = q->next) {
        memlord_i_fence *f = q->unasked;
        if (!f || f->asker) f = q->round < round ? q->first : NULL;
        if (!f || f->asker) continue;
        if (!memlord_i_selects(sel, memlord_i_device_at(lord, q->slot)->device)) continue;
        if (f == q->first) q->round = round;
        return memlord_i_fence_claim(p, f);
    }
    return NULL;
}

/* Asks the first of every queue, and its next ones while they are done. */
static MEMLORD_I_COLD uint64_t memlord_i_fences_poll(memlord *lord, memlord_device sel) {
    uint64_t round, credited = 0;
    uint32_t type;
    int drops;
    memlord_i_fence *f;
    if (memlord_i_fence_inside(lord)) return 0; /* the outer call goes on */
    round = memlord_i_u64_add(&lord->serial, 1) + 1;
    memlord_i_lock_take(&lord->fences_lock);
    for (type = 0; type < MEMLORD_DEVICE_TYPE_COUNT; type++)
        while ((f = memlord_i_poll_next(lord, &lord->pends[type], sel, round)) != NULL) {
            memlord_i_lock_drop(&lord->fences_lock);
            credited += memlord_i_fence_answered(lord, f, memlord_i_fence_ask(lord, f), 1);
            memlord_i_lock_take(&lord->fences_lock);
        }
    drops = lord->drops != NULL;
    memlord_i_lock_drop(&lord->fences_lock);
    if (drops) memlord_i_fences_drain(lord);
    return credited;
}

/* The next queue of a type that is due; NULL: none is, and it notes when one will be. Under the
   fences lock. */
static memlord_i_queue *memlord_i_queue_due(memlord_i_pends *p, uint32_t call, uint64_t now) {
    uint32_t due = call + MEMLORD_I_REST_MOST;
    uint64_t late = now + MEMLORD_I_REST_NS;
    memlord_i_queue *q;
    for (q = p->first; q; q = q->next) {
        if (q->first->asker) continue;
        if ((int32_t)(call - q->due) >= 0 || now >= q->late) {
            memlord_i_u32_store(&p->due, call + 1); /* another may be due, too */
            return q;
        }
        if ((int32_t)(q->due - due) < 0) due = q->due;
        if (q->late < late) late = q->late;
    }
    memlord_i_u32_store(&p->due, due);
    memlord_i_u64_store(&p->late, late);
    return NULL;
}

/* Asks the fences of a device type on behalf of an alloc or a free: a few of one queue that is
   due. Waits for no thread that asks others. */
static MEMLORD_I_COLD void memlord_i_queue_turn(memlord *lord, uint32_t type) {
    memlord_i_pends *p = &lord->pends[type];
    uint32_t most = MEMLORD_I_POLLS, call = memlord_i_u32_load(&p->calls) + 1;
    memlord_i_queue *q;
    uint64_t now;
    memlord_i_u32_store(&p->calls, call);
    if ((int32_t)(call - memlord_i_u32_load(&p->due)) < 0 &&
        (call % MEMLORD_I_REST_LOOK || memlord_i_clock(lord) < memlord_i_u64_load(&p->late)))
        return;
    if (memlord_i_fence_inside(lord)) return; /* the outer call goes on */
    now = memlord_i_clock(lord);
    if (!memlord_i_lock_try(&lord->fences_lock)) return;
    q = memlord_i_queue_due(p, call, now);
    while (q && !q->first->asker && most--) {
        uint32_t slot = q->slot;
        uint64_t id = q->id;
        memlord_i_fence *f = memlord_i_fence_claim(p, q->first);
        int answer;
        memlord_i_lock_drop(&lord->fences_lock);
        answer = memlord_i_fence_ask(lord, f);
        (void)memlord_i_fence_answered(lord, f, answer, 1);
        memlord_i_lock_take(&lord->fences_lock);
        q = answer ? memlord_i_queue_find(p, slot, id) : NULL;
    }
    memlord_i_lock_drop(&lord->fences_lock);
}

/* Takes the fences that others were asking out of their hands: they are gone, or have left them by
   longjmp. `self`: this thread's own stay. Under the fences lock. */
static MEMLORD_I_COLD void memlord_i_askers_gone(memlord *lord, const void *self) {
    memlord_i_queue *q, *next_queue;
    memlord_i_fence *f, *next;
    uint32_t type;
    for (type = 0; type < MEMLORD_DEVICE_TYPE_COUNT; type++)
        for (q = lord->pends[type].first; q; q = next_queue) {
            next_queue = q->next;
            for (f = q->first; f; f = next) {
                next = f->next;
                if (!f->asker || f->asker == self) continue;
                f->asker = NULL;
                if (!f->widowed && f->serial) continue;
                memlord_i_queue_remove(lord, f);
                memlord_i_drops_put(lord, f);
            }
        }
}

/* What the end of a call on a device type looks after; `asks`: one queue, too. */
static MEMLORD_I_COLD void memlord_i_fences_tend(memlord *lord, uint32_t type, int asks) {
    if (asks && (memlord_i_u32_load(&lord->alert) & (uint32_t)MEMLORD_I_ALERT_PENDS << type))
        memlord_i_queue_turn(lord, type);
    if (memlord_i_u32_load(&lord->alert) & MEMLORD_I_ALERT_DROPS) memlord_i_fences_drain(lord);
}

/* Everything that is done. Not out of our own allocator call. */
static uint64_t memlord_i_retire(memlord *lord, memlord_device sel) {
    const uint32_t any = MEMLORD_I_ALERT_DROPS | MEMLORD_I_ALERT_PENDS_ALL;
    if (!(memlord_i_u32_load(&lord->alert) & any) || memlord_i_self.busy) return 0;
    return memlord_i_fences_poll(lord, sel);
}

/* 1: a live block with uses recorded. */
static int memlord_i_is_used(memlord *lord, uint32_t type, uint64_t key) {
    memlord_i_thread *t;
    memlord_i_spot spot;
    const memlord_i_side *side;
    int used;
    if (!memlord_i_u64_load(&lord->fences)) return 0;
    t = memlord_i_thread_get(lord);
    side = memlord_i_spot_record(lord, t, type, key, &spot);
    used = side && !side->serial && side->fences;
    memlord_i_spot_leave(t, &spot);
    memlord_i_thread_put(lord, t);
    return used;
}

/* A move whose source its fences, and `f` if there is one, may hold back. */
static memlord_result memlord_i_move_fenced(memlord *lord, memlord_i_thread *t,
                                            memlord_device from, uint64_t from_key, uint32_t slot,
                                            uint64_t key, uint64_t bytes, memlord_i_fence *f,
                                            const memlord_site *site, memlord_i_fence **chain) {
    memlord_i_delta d;
    memlord_i_entry e;
    memlord_i_side *side = (memlord_i_side *)memlord_i_alloc(lord, sizeof *side), *unused;
    memlord_i_spot spot;
    uint64_t rows;
    int fresh;
    memlord_result r = memlord_i_spot_side(lord, t, (uint32_t)from.type, from_key, &spot, &unused);
    e.word1 = 0; /* copied, though not every compiler sees that */
    if (r == MEMLORD_OK) { /* all that wants memory comes first */
        memlord_i_spot_leave(t, &spot);
        memlord_i_free(lord, unused, sizeof *unused);
        r = side ? memlord_i_room(lord, t, slot, key) : MEMLORD_E_NOMEM;
    }
    if (r == MEMLORD_OK)
        r = memlord_i_copy_of(lord, t, (uint32_t)from.type, from_key, &e, side);
    if (r) {
        memlord_i_free(lord, side, sizeof *side);
        return r == MEMLORD_E_UNKNOWN ? memlord_i_unknown(lord, from) : r;
    }
    rows = memlord_i_rows_moved(lord, t, side->word2, slot, site, MEMLORD_I_SLOT(e.word1) == slot);
    side->word2 = rows;
    d = memlord_i_delta_open(slot, rows, bytes);
    r = memlord_i_insert(lord, t, slot, key,
                         bytes | (uint64_t)slot << 49 |
                             (uint64_t)MEMLORD_I_REFS(e.word1) * MEMLORD_I_REFS_ONE,
                         (uint64_t)(uintptr_t)side | 1, &d, 1, &fresh);
    if (r) {
        memlord_i_free(lord, side, sizeof *side);
        return r;
    }
    r = memlord_i_fence_attach(lord, t, from, from_key, f, MEMLORD_I_ATTACH_MOVE, &e, chain);
    if (r) { /* it went meanwhile */
        memlord_i_unopen(lord, t, slot, key, bytes);
        return r;
    }
    memlord_i_parts_move(lord, t, (uint32_t)from.type, from_key, lord->slot_type[slot], key,
                         bytes);
    memlord_i_note_end(lord, t, MEMLORD_EVENT_PEND, from_key, e.word1, e.word2, site);
    memlord_i_note_add(lord, t, MEMLORD_EVENT_MOVE, slot, key, bytes, rows);
    memlord_i_move_count(lord, MEMLORD_I_SLOT(e.word1), slot, bytes);
    return MEMLORD_OK;
}

/* --------------------------------------------------------------------- >>pollers --
   Owns the threads that sample, one a place, and what the end of a call and a safe point do.
   Invariants: one thread at a time starts or stops a helper (its state), and no helper stops one of
   its ledger; no poller is started before there is something to decide. Locks: none while host
   code runs. */

#define MEMLORD_I_POLL_LEAST 10 /* ms */

static void memlord_i_place_serve(memlord *lord, const memlord_i_place *place);
static void memlord_i_place_retire(memlord *lord, const memlord_i_place *place);
static void memlord_i_recorder_begin(memlord *lord);
static void memlord_i_recorder_poll(memlord *lord);
static void memlord_i_holders_look(memlord *lord, uint32_t slot);
static void memlord_i_pollers_think(memlord *lord);
static memlord_result memlord_i_pollers_begin(memlord *lord);

/* 1: a report was asked for, perhaps by a signal, and the caller is the first to come along: it
   is his to write. */
static MEMLORD_I_COLD int memlord_i_save_asked(memlord *lord) {
    uint32_t seen = memlord_i_u32_load(&lord->alert);
    do {
        if (!(seen & MEMLORD_I_ALERT_SAVE)) return 0;
    } while (!memlord_i_u32_cas(&lord->alert, &seen, seen & ~(uint32_t)MEMLORD_I_ALERT_SAVE));
    return 1;
}
static MEMLORD_I_COLD void memlord_i_save_serve(memlord *lord) {
    const memlord_i_saver *saver;
    if (memlord_i_self.busy || !memlord_i_save_asked(lord)) return;
    saver = (const memlord_i_saver *)memlord_i_ptr_load_acquire(&lord->saver);
    saver->serve(lord);
}

/* What calls end with that record something and count no bytes; answers `r`. Nothing is held. */
static MEMLORD_I_NOINLINE memlord_result memlord_i_record_end(memlord *lord, memlord_result r) {
    if (MEMLORD_I_UNLIKELY(memlord_i_u32_load(&lord->alert) & MEMLORD_I_ALERT_SAVE) &&
        !(lord->flags & MEMLORD_FLAG_DEFER))
        memlord_i_save_serve(lord);
    return r;
}

/* -- helpers -- */

/* Starts one that is not there, unless the wish for it is `none` by now: 0. 1: no thread could be
   had, and its state is `failed`; -1: so it was before. */
static MEMLORD_I_COLD int memlord_i_helper_begin(memlord_i_helper *h, memlord_i_u32 *wish,
                                                 uint32_t none, uint32_t failed,
                                                 void (*run)(void *), void *user) {
    uint32_t seen = MEMLORD_I_HELPER_NONE;
    int bad = 1;
    if (!memlord_i_u32_cas(&h->state, &seen, MEMLORD_I_HELPER_BUSY))
        return seen == MEMLORD_I_HELPER_FAILED ? -1 : 0;
    /* seq_cst, as the exchanges of who takes the wish back: one of the two sees the other */
    if (memlord_i_u32_add(wish, 0) == none) {
        memlord_i_u32_store_release(&h->state, MEMLORD_I_HELPER_NONE);
        return 0;
    }
    h->job.run = run;
    h->job.user = user;
    memlord_i_u32_store(&h->stop, 0);
    memlord_i_self.busy++; /* a thread's stack may come from a hooked malloc */
    if (!MEMLORD_I_THREADLESS && memlord_i_event_open(&h->wake) == 0) {
        bad = memlord_i_worker_start(&h->worker, &h->job);
        if (bad) memlord_i_event_close(&h->wake);
    }
    memlord_i_self.busy--;
    if (!bad) failed = MEMLORD_I_HELPER_RUNS;
    memlord_i_u32_store_release(&h->state, failed);
    return bad != 0;
}

/* Stops one, and joins it. Requires: the caller is not that one. */
static MEMLORD_I_COLD void memlord_i_helper_end(memlord_i_helper *h) {
    unsigned spins = 0;
    uint32_t seen = MEMLORD_I_HELPER_RUNS;
    while (!memlord_i_u32_cas(&h->state, &seen, MEMLORD_I_HELPER_BUSY)) {
        if (seen == MEMLORD_I_HELPER_FAILED) memlord_i_u32_store(&h->state, MEMLORD_I_HELPER_NONE);
        if (seen == MEMLORD_I_HELPER_NONE || seen == MEMLORD_I_HELPER_FAILED) return;
        memlord_i_spin(&spins);
        seen = MEMLORD_I_HELPER_RUNS;
    }
    memlord_i_u32_store_release(&h->stop, 1); /* pairs with the acquires of helper_wait */
    memlord_i_event_set(&h->wake);
    memlord_i_worker_join(h->worker);
    memlord_i_event_close(&h->wake);
    memlord_i_u32_store_release(&h->state, MEMLORD_I_HELPER_NONE);
}

/* Waits until it is time again, or there is something to do; 0: the helper ends. It is a span from
   now on: after a SIGSTOP there is nothing to catch up with. */
static MEMLORD_I_COLD int memlord_i_helper_wait(memlord_i_helper *h, uint32_t ms) {
    if (!memlord_i_u32_load_acquire(&h->stop)) memlord_i_event_wait(&h->wake, ms);
    return !memlord_i_u32_load_acquire(&h->stop);
}

/* -- pollers -- */

static MEMLORD_I_COLD void memlord_i_poller_run(void *user) {
    memlord_i_place *place = (memlord_i_place *)user;
    memlord *lord = place->lord;
    memlord_i_self.helps = 1;
    do {
        (void)memlord_i_sample(lord, place);
        if (lord->flags & MEMLORD_FLAG_DEFER) {
            if (memlord_i_u32_load(&lord->alert) & MEMLORD_I_ALERT_POLLER)
                (void)memlord_i_pollers_begin(lord);
            memlord_i_pollers_think(lord);
            memlord_i_place_serve(lord, place);
        } else {
            memlord_i_place_retire(lord, place);
        }
        memlord_i_save_serve(lord);
    } while (memlord_i_helper_wait(&place->poller, memlord_i_u32_load(&lord->poll_ms)));
}

static MEMLORD_I_COLD memlord_result memlord_i_poller_begin(memlord_i_place *place) {
    int bad = memlord_i_helper_begin(&place->poller, &place->lord->polling, MEMLORD_I_POLLING_OFF,
                                     MEMLORD_I_HELPER_FAILED, memlord_i_poller_run, place);
    if (bad > 0)
        memlord_i_logf(place->lord, MEMLORD_LOG_WARNING,
                       "[poller] no thread for %i: memlord_gc_poll samples instead",
                       memlord_i_coded(place->device));
    return bad ? MEMLORD_E_NOMEM : MEMLORD_OK;
}

static int memlord_i_polls(memlord *lord) {
    return !MEMLORD_I_THREADLESS && !(lord->flags & MEMLORD_FLAG_NO_THREADS);
}

static MEMLORD_I_COLD void memlord_i_pollers_end(memlord *lord) {
    uint32_t i;
    (void)memlord_i_u32_exchange(&lord->polling, MEMLORD_I_POLLING_OFF);
    for (i = 0; i < memlord_i_rows(lord, MEMLORD_I_DEVICE); i++)
        memlord_i_helper_end(&memlord_i_place_own(lord, i)->poller);
}

/* Starts a device's poller if there is something for it to do. */
static MEMLORD_I_COLD void memlord_i_poller_think(memlord *lord, uint32_t slot) {
    memlord_i_place *place = memlord_i_place_at(lord, slot);
    memlord_i_watch *w = &memlord_i_device_at(lord, slot)->watch;
    if (memlord_i_u32_load(&lord->polling) == MEMLORD_I_POLLING_OFF) return;
    if (!memlord_i_source_of(lord, place->device.type).fn) return;
    memlord_i_u32_store(&w->seen, 1);
    if (memlord_i_polls(lord)) (void)memlord_i_poller_begin(place);
}

/* Under MEMLORD_FLAG_DEFER track calls start no thread: it may take a stack from the very allocator
   they are called from. Safe points and pollers do, for what was touched meanwhile; as long as
   that is nothing yet, the host's poller alone. */
static MEMLORD_I_COLD void memlord_i_pollers_think(memlord *lord) {
    uint32_t i, n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    uint32_t watching = memlord_i_u32_load(&lord->watching), type, wanted = 0;
    if (!(lord->flags & MEMLORD_FLAG_DEFER) || !watching || !memlord_i_polls(lord)) return;
    if (memlord_i_u32_load(&lord->polling) == MEMLORD_I_POLLING_OFF) return;
    for (i = 1; i < n; i++) {
        if (!(watching >> lord->slot_type[i] & 1)) continue;
        wanted = 1;
        if (!memlord_i_u32_load(&memlord_i_device_at(lord, i)->watch.seen))
            memlord_i_poller_think(lord, i);
    }
    for (type = 0; type < MEMLORD_DEVICE_TYPE_COUNT && !wanted; type++)
        if ((watching >> type & 1) && memlord_i_source_of(lord, (int)type).fn) {
            (void)memlord_i_poller_begin(&lord->host);
            wanted = 1;
        }
}

/* After a change of strategy or callbacks. */
static void memlord_i_rules_changed(memlord *lord) {
    memlord_i_watching_set(lord);
    memlord_i_place_review(lord, NULL);
    memlord_i_pollers_think(lord);
}

/* Starts the pollers of all devices there are, whose types have a source. */
static MEMLORD_I_COLD memlord_result memlord_i_pollers_begin(memlord *lord) {
    uint32_t i;
    memlord_result r = MEMLORD_OK;
    memlord_i_alert(lord, MEMLORD_I_ALERT_POLLER, 0);
    if (memlord_i_u32_load(&lord->recorder.wanted)) memlord_i_recorder_begin(lord);
    if (memlord_i_u32_load(&lord->polling) != MEMLORD_I_POLLING_ALL) return r;
    for (i = 1; i < memlord_i_rows(lord, MEMLORD_I_DEVICE); i++) {
        memlord_i_place *place = memlord_i_place_at(lord, i);
        if (memlord_i_source_of(lord, place->device.type).fn &&
            memlord_i_poller_begin(place) != MEMLORD_OK)
            r = MEMLORD_E_NOMEM;
    }
    if (i == 1 && (lord->flags & MEMLORD_FLAG_DEFER)) /* it waits for the first to come */
        r = memlord_i_poller_begin(&lord->host);
    return r;
}

/* Samples a place without a poller whose sample has grown old; at a safe point. */
static MEMLORD_I_COLD void memlord_i_sample_old(memlord *lord, memlord_i_place *place) {
    uint64_t now, at;
    uint32_t state = memlord_i_u32_load_acquire(&place->poller.state);
    if (state == MEMLORD_I_HELPER_RUNS || state == MEMLORD_I_HELPER_BUSY) return;
    if (!memlord_i_source_of(lord, place->device.type).fn) return;
    now = memlord_i_clock(lord);
    memlord_i_lock_take(&place->lock);
    at = place->sampled;
    memlord_i_lock_drop(&place->lock);
    if (!at || now - at >= (uint64_t)memlord_i_u32_load(&lord->poll_ms) * 1000000u)
        (void)memlord_i_sample(lord, place);
}

/* Bytes ever freed at a place, modulo 2^64. */
static uint64_t memlord_i_place_out(memlord *lord, const memlord_i_place *place) {
    uint32_t i = 0;
    memlord_i_thread *t;
    uint64_t out = 0;
    while ((i = memlord_i_place_next(lord, place, i)) != 0) {
        for (t = memlord_i_thread_first(lord); t; t = memlord_i_thread_after(t)) {
            const memlord_i_cell *cell = memlord_i_cell_at(t, MEMLORD_I_DEVICE, i);
            if (cell) out += memlord_i_u64_load(&cell->out);
        }
    }
    return out;
}

/* -- what the end of a call looks after -- */

/* Wakes those for whom enough was freed. */
static void memlord_i_waiters_wake(memlord *lord) {
    memlord_i_waiter *w;
    memlord_i_lock_take(&lord->callbacks_lock);
    for (w = lord->waiters; w; w = w->next)
        if (memlord_i_place_out(lord, w->place) - w->out >= w->needed)
            memlord_i_event_set(&w->event);
    memlord_i_lock_drop(&lord->callbacks_lock);
}

#define MEMLORD_I_SWEEP_MIN 16u

/* Frees the records of threads that ended without the exit hook: their first call came in the last
   round of destructors, or after it. It runs at the end of a call that took the last free
   record while there are twice as many as living owners at the last sweep. That bounds the records
   by twice the living threads (or 16), and the cost: a sweep asks for each record once, and since
   the last one at least half of them were made or found. */
static MEMLORD_I_COLD void memlord_i_threads_sweep(memlord *lord) {
    memlord_i_thread *t = memlord_i_thread_first(lord);
    uint32_t living = 0;
    memlord_i_lock_take(&memlord_i_process.lock);
    if (memlord_i_threads(lord) < lord->sweep_at) t = NULL;
    if (t) lord->sweep_at = MEMLORD_I_SWEEP_MIN;
    for (; t; t = memlord_i_thread_after(t)) {
        uint64_t owner = memlord_i_u64_load(&t->owner);
        if (owner == MEMLORD_I_NOBODY || (owner && memlord_i_thread_gone(owner)))
            memlord_i_thread_release(t);
        else
            living += owner != 0;
        if (2 * living > lord->sweep_at) lord->sweep_at = 2 * living;
    }
    memlord_i_lock_drop(&memlord_i_process.lock);
}

static MEMLORD_I_COLD memlord_result memlord_i_duty(memlord *lord, memlord_i_thread *t,
                                                    uint32_t slot, int asks) {
    memlord_i_watch *w = &memlord_i_device_at(lord, slot)->watch;
    uint32_t alert = memlord_i_u32_load(&lord->alert);
    int safe = !(lord->flags & MEMLORD_FLAG_DEFER);
    if (memlord_i_self.busy) return MEMLORD_OK;
    if (alert & MEMLORD_I_ALERT_REVIEW) {
        memlord_i_crew_grow(lord);
        memlord_i_threads_sweep(lord);
    }
    if ((alert & MEMLORD_I_ALERT_POLLER) && safe) (void)memlord_i_pollers_begin(lord);
    if (safe) memlord_i_fences_tend(lord, lord->slot_type[slot], asks);
    if (alert & MEMLORD_I_ALERT_WAITER) memlord_i_waiters_wake(lord);
    if ((alert & MEMLORD_I_ALERT_SAVE) && safe) memlord_i_save_serve(lord);
    if (memlord_i_u32_load(&w->wanted) && memlord_i_u32_exchange(&w->wanted, 0)) {
        (void)memlord_i_u32_add(&lord->alert, 0u - (uint32_t)MEMLORD_I_ALERT_LOOK);
        if (safe && (memlord_i_u32_load(&lord->watching) >> lord->slot_type[slot] & 1) &&
            !memlord_i_u32_load(&w->seen))
            memlord_i_poller_think(lord, slot);
        memlord_i_holders_look(lord, slot);
        memlord_i_look(lord, slot, t, safe);
    } else if (memlord_i_u32_load(&w->nearby)) {
        memlord_i_look(lord, slot, t, safe);
    }
    return MEMLORD_OK;
}

/* The same for another device the call has taken bytes from. */
static void memlord_i_duty_also(memlord *lord, memlord_i_thread *t, uint32_t slot) {
    uint32_t also = t->also;
    t->also = 0;
    if (also && also != slot) (void)memlord_i_duty(lord, t, also, 0);
}

#if MEMLORD_I_POSIX
/* In a forked child: whoever asked a source or a fence, collected, polled or waited is gone. */
static void memlord_i_others_gone(memlord *lord) {
    uint32_t i, n = memlord_i_u32_load(&lord->row_count[MEMLORD_I_DEVICE]), looks = 0;
    memlord_i_reader **reader;
    for (i = 0; i < n; i++) {
        memlord_i_watch *w = i ? &memlord_i_device_at(lord, i)->watch : NULL;
        memlord_i_place *place = memlord_i_place_own(lord, i);
        memlord_i_u32_store(&place->sampling, 0);
        memlord_i_u32_store(&place->poller.state, MEMLORD_I_HELPER_NONE);
        place->sampler = NULL;
        place->held -= place->arriving; /* recorded, or never to be */
        place->arriving = 0;
        if (!w) continue;
        looks += memlord_i_u32_load(&w->nearby) + memlord_i_u32_load(&w->wanted);
        memlord_i_u32_store(&w->seen, 0);
        if (w->runner == (void *)&memlord_i_self) continue;
        w->callback = NULL;
        memlord_i_u32_store(&w->running, 0);
    }
    /* counted anew: who set or cleared `wanted` may not have got as far as the alert */
    memlord_i_u32_store(&lord->alert,
                        memlord_i_u32_load(&lord->alert) % MEMLORD_I_ALERT_LOOK +
                            looks * MEMLORD_I_ALERT_LOOK);
    memlord_i_askers_gone(lord, &memlord_i_self);
    lord->waiters = NULL;
    memlord_i_bursts_gone(lord);
    for (reader = &lord->snapshot_readers; *reader;) /* this thread goes on with its reports */
        if ((*reader)->thread == (void *)&memlord_i_self)
            reader = &(*reader)->next;
        else
            *reader = (*reader)->next;
    memlord_i_u32_store(&lord->recorder.helper.state, MEMLORD_I_HELPER_NONE);
    if (memlord_i_u32_load(&lord->polling) == MEMLORD_I_POLLING_ALL ||
        memlord_i_u32_load(&lord->recorder.wanted))
        memlord_i_alert(lord, MEMLORD_I_ALERT_POLLER, 1);
}
#endif

/* -- safe points -- */

/* Retires and collects what is due of the devices of a selector; samples places that have no
   poller. Host code runs. */
static MEMLORD_I_COLD void memlord_i_serve(memlord *lord, memlord_device sel) {
    uint32_t i, n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    if (memlord_i_u32_load(&lord->alert) & MEMLORD_I_ALERT_POLLER)
        (void)memlord_i_pollers_begin(lord);
    memlord_i_pollers_think(lord);
    memlord_i_recorder_poll(lord);
    memlord_i_save_serve(lord);
    (void)memlord_i_retire(lord, sel);
    for (i = 1; i < n; i++) {
        if (!memlord_i_selects(sel, memlord_i_device_at(lord, i)->device)) continue;
        memlord_i_sample_old(lord, memlord_i_place_at(lord, i));
        if (!(memlord_i_u32_load(&lord->watching) >> lord->slot_type[i] & 1)) continue;
        memlord_i_look(lord, i, NULL, 1);
    }
}
static void memlord_i_place_retire(memlord *lord, const memlord_i_place *place) {
    uint32_t i = 0;
    while ((i = memlord_i_place_next(lord, place, i)) != 0)
        (void)memlord_i_retire(lord, memlord_i_device_at(lord, i)->device);
}
static void memlord_i_place_serve(memlord *lord, const memlord_i_place *place) {
    uint32_t i = 0;
    while ((i = memlord_i_place_next(lord, place, i)) != 0)
        memlord_i_serve(lord, memlord_i_device_at(lord, i)->device);
}

/* ----------------------------------------------------------------------- >>scopes --
   Owns scopes: the paths, and what each thread did in each (a stint). A thread writes its own
   frames and stints alone; readers add stints up. A thread that adopts a scope has a frame and a
   stint of its own in it. Invariants: a scope or a stint is never removed; what is inside a
   frame is told from the thread's own cells, so a call that counts knows nothing of scopes.
   Locks: cold to make a scope, scopes for rings that grow and for their readers. */

#define MEMLORD_I_SCOPE_NAME 200 /* bytes of a name that are kept */
#define MEMLORD_I_HISTORY_MIN 8
#define MEMLORD_I_HISTORY_MAX 64

/* One more than there are. */
static uint32_t memlord_i_scopes(memlord *lord) {
    return memlord_i_u32_load_acquire(&lord->scope_count);
}

/* -- making a scope -- */

/* Cuts a name where a character begins. */
static size_t memlord_i_scope_cut(const char *name) {
    size_t n = 0;
    while (n < MEMLORD_I_SCOPE_NAME && name[n]) n++;
    if (!name[n]) return n;
    while (n && ((unsigned char)name[n] & 0xc0) == 0x80) n--;
    return n;
}

/* The path of a name under a parent; `path` has room for it. */
static MEMLORD_I_COLD void memlord_i_scope_path(const memlord_i_scope *parent, const char *name,
                                                char *path) {
    size_t n = parent ? strlen(parent->path) : 0;
    if (parent) {
        memcpy(path, parent->path, n);
        path[n++] = '/';
    }
    memcpy(path + n, name, strlen(name) + 1);
}

/* The scope with a path; NULL: there is none. */
static MEMLORD_I_COLD memlord_i_scope *memlord_i_scope_of_path_locked(memlord *lord,
                                                                      const char *path) {
    const memlord_i_string *string = memlord_i_string_locked(lord, path);
    return string ? string->scope : NULL;
}

static MEMLORD_I_COLD memlord_result memlord_i_scope_new_locked(memlord *lord,
                                                                memlord_i_scope *parent,
                                                                const char *name, const char *path,
                                                                const memlord_site *origin,
                                                                memlord_i_scope **out) {
    uint32_t id = memlord_i_u32_load(&lord->scope_count);
    memlord_i_scope *scope;
    memlord_i_site *site = NULL;
    memlord_i_ptr *at;
    memlord_result r;
    if (id > MEMLORD_MAX_SCOPES) return MEMLORD_E_NOMEM;
    r = memlord_i_name_locked(lord, name, &name);
    if (r == MEMLORD_OK) r = memlord_i_name_locked(lord, path, &path);
    if (r == MEMLORD_OK && origin) r = memlord_i_site_locked(lord, origin, NULL, &site);
    if (r) return r;
    at = (memlord_i_ptr *)memlord_i_book_make(lord, &lord->scopes, id, sizeof *at,
                                              memlord_i_cold_alloc);
    scope = at ? (memlord_i_scope *)memlord_i_cold_alloc(lord, sizeof *scope) : NULL;
    if (!scope) return MEMLORD_I_AGAIN;
    scope->id = id;
    scope->parent = parent;
    scope->name = name;
    scope->path = path;
    scope->site = site;
    memlord_i_string_locked(lord, path)->scope = scope;
    memlord_i_ptr_store(at, scope);
    memlord_i_u32_store_release(&lord->scope_count, id + 1);
    *out = scope;
    return MEMLORD_OK;
}

/* Finds or makes the scope of a name under a parent. It is its path: "a/b" is b in a. */
static MEMLORD_I_COLD memlord_result memlord_i_scope_make(memlord *lord, memlord_i_scope *parent,
                                                          const char *name,
                                                          const memlord_site *origin,
                                                          memlord_i_scope **out) {
    size_t n = memlord_i_scope_cut(name);
    size_t size = n + 1 + (parent ? strlen(parent->path) + n + 2 : n + 1);
    char *text = (char *)memlord_i_alloc(lord, size), *path;
    memlord_result r;
    if (!text) return MEMLORD_E_NOMEM;
    path = text + n + 1;
    memcpy(text, name, n);
    memlord_i_scope_path(parent, text, path);
    do {
        memlord_i_cold_enter();
        *out = memlord_i_scope_of_path_locked(lord, path);
        r = *out ? MEMLORD_OK : memlord_i_scope_new_locked(lord, parent, text, path, origin, out);
    } while (memlord_i_cold_leave(lord, &r));
    memlord_i_free(lord, text, size);
    if (r == MEMLORD_E_NOMEM) (void)memlord_i_u64_add(&lord->lost_scopes, 1);
    return r;
}

/* -- stints -- */

/* Of one's own stint. */
static MEMLORD_I_HOT void memlord_i_extreme_add(memlord_i_extreme *e, int64_t v) {
    memlord_i_u64_own_add(&e->total, (uint64_t)v);
    if (v < (int64_t)memlord_i_u64_own(&e->min)) memlord_i_u64_store(&e->min, (uint64_t)v);
    if (v > (int64_t)memlord_i_u64_own(&e->max)) memlord_i_u64_store(&e->max, (uint64_t)v);
}
static void memlord_i_extreme_restart(memlord_i_extreme *e) {
    memlord_i_u64_store(&e->total, 0);
    memlord_i_u64_store(&e->min, INT64_MAX);
    memlord_i_u64_store(&e->max, (uint64_t)INT64_MIN);
}

/* An epoch is over: the stint begins anew. Its own thread alone. */
static MEMLORD_I_COLD void memlord_i_stint_restart(memlord *lord, memlord_i_stint *s) {
    uint32_t i;
    memlord_i_u64_store(&s->count, 0);
    memlord_i_u64_store(&s->peak, 0);
    memlord_i_extreme_restart(&s->bytes);
    memlord_i_extreme_restart(&s->blocks);
    memlord_i_extreme_restart(&s->stamps);
    for (i = 0; i <= MEMLORD_MAX_DEVICES; i++) memlord_i_u64_store(&s->devices[i], 0);
    memlord_i_u64_store_release(&s->epoch, memlord_i_u64_load(&lord->epoch));
}

/* A thread's stint in a scope, made on its first; NULL without memory. */
static MEMLORD_I_COLD memlord_i_stint *memlord_i_stint_of(memlord *lord, memlord_i_scope *scope,
                                                          const memlord_i_thread *t) {
    memlord_i_stint *s = (memlord_i_stint *)memlord_i_ptr_load_acquire(&scope->stints);
    for (; s; s = s->next)
        if (s->thread == t->id) return s; /* only this thread could add it */
    s = (memlord_i_stint *)memlord_i_alloc(lord, sizeof *s);
    if (!s) return NULL;
    s->history = (memlord_i_history *)memlord_i_alloc(
        lord, MEMLORD_I_HISTORY_SIZE(MEMLORD_I_HISTORY_MIN));
    if (!s->history) {
        memlord_i_free(lord, s, sizeof *s);
        return NULL;
    }
    s->history->cap = MEMLORD_I_HISTORY_MIN;
    s->scope = scope;
    s->thread = t->id;
    memlord_i_stint_restart(lord, s);
    memlord_i_lock_take(&lord->scopes_lock);
    s->next = (memlord_i_stint *)memlord_i_ptr_load(&scope->stints);
    memlord_i_ptr_store_release(&scope->stints, s); /* pairs with the walks' load_acquire */
    memlord_i_lock_drop(&lord->scopes_lock);
    return s;
}

/* Doubles a ring that is full, if there is memory. */
static MEMLORD_I_COLD void memlord_i_stint_grow(memlord *lord, memlord_i_stint *s) {
    memlord_i_history *old = s->history, *more;
    uint64_t i, n = memlord_i_u64_load(&s->count);
    if (old->cap == MEMLORD_I_HISTORY_MAX) return;
    more = (memlord_i_history *)memlord_i_alloc(lord,
                                                      MEMLORD_I_HISTORY_SIZE(2 * old->cap));
    if (!more) return;
    more->cap = 2 * old->cap;
    for (i = n > old->cap ? n - old->cap : 0; i < n; i++)
        more->at[i % more->cap] = old->at[i % old->cap];
    memlord_i_lock_take(&lord->scopes_lock); /* nobody reads */
    s->history = more;
    memlord_i_lock_drop(&lord->scopes_lock);
    memlord_i_free(lord, old, MEMLORD_I_HISTORY_SIZE(old->cap));
}

/* Before a stint is added to. */
static void memlord_i_stint_ready(memlord *lord, memlord_i_stint *s) {
    if (MEMLORD_I_UNLIKELY(memlord_i_u64_own(&s->epoch) != memlord_i_u64_load(&lord->epoch)))
        memlord_i_stint_restart(lord, s);
}

/* Adds an invocation that is over to the calling thread's stint. */
static void memlord_i_stint_add(memlord *lord, memlord_i_stint *s, const memlord_i_effort *v,
                                int grow) {
    uint64_t n = memlord_i_u64_own(&s->count);
    memlord_i_invocation *i;
    if (MEMLORD_I_UNLIKELY(grow && n == s->history->cap)) memlord_i_stint_grow(lord, s);
    i = &s->history->at[n & (s->history->cap - 1)];
    memlord_i_u64_store_release(&i->start, v->start);
    memlord_i_u64_store_release(&i->stamps, v->stamps);
    memlord_i_u64_store_release(&i->bytes, v->bytes);
    memlord_i_u64_store_release(&i->blocks, v->blocks);
    memlord_i_u64_store_release(&i->before, v->before);
    memlord_i_u64_store_release(&i->after, v->after);
    memlord_i_u64_store_release(&i->peak, v->peak);
    memlord_i_ptr_store_release(&i->shapes, (void *)(uintptr_t)v->shapes);
    memlord_i_extreme_add(&s->bytes, (int64_t)v->bytes);
    memlord_i_extreme_add(&s->blocks, (int64_t)v->blocks);
    memlord_i_extreme_add(&s->stamps, (int64_t)v->stamps);
    if (v->peak > memlord_i_u64_own(&s->peak)) memlord_i_u64_store(&s->peak, v->peak);
    memlord_i_u64_store_release(&s->count, n + 1); /* pairs with memlord_i_scope_sum */
}

/* -- frames -- */

/* Has room for one frame more. */
static memlord_result memlord_i_nest_room(memlord *lord, memlord_i_thread *t) {
    if (MEMLORD_I_UNLIKELY(!t->nest)) {
        if (t == lord->orphan) return MEMLORD_E_NOMEM;
        t->nest = (memlord_i_nest *)memlord_i_alloc(lord, sizeof *t->nest);
        if (!t->nest) return MEMLORD_E_NOMEM;
    }
    return t->nest->depth < MEMLORD_I_SCOPE_DEPTH ? MEMLORD_OK : MEMLORD_E_STATE;
}
static void memlord_i_nest_end(memlord *lord, memlord_i_thread *t) {
    uint32_t i;
    if (!t->nest) return;
    for (i = 0; i < MEMLORD_I_SCOPE_DEPTH; i++)
        memlord_i_free(lord, t->nest->frame[i].at, MEMLORD_I_LEVELS_SIZE);
    memlord_i_free(lord, t->nest, sizeof *t->nest);
}

/* Of a scope under the thread's innermost one, by its name or by a static record. */
static MEMLORD_I_HOT uint32_t memlord_i_scope_salt(const memlord_i_thread *t, int planted) {
    return memlord_i_memo_salt(planted ? MEMLORD_I_MEMO_PLANTED : MEMLORD_I_MEMO_SCOPE, t->scope);
}
/* Finds or makes a scope under the thread's innermost one, and the thread's stint in it. */
static MEMLORD_I_COLD memlord_result memlord_i_scope_look_up(memlord *lord, memlord_i_thread *t,
                                                             const char *name, const void *given,
                                                             const memlord_site *origin,
                                                             memlord_i_stint **out) {
    memlord_i_scope *parent = t->scope ? memlord_i_scope_at(lord, t->scope) : NULL, *scope;
    memlord_result r = memlord_i_scope_make(lord, parent, name, origin, &scope);
    if (r) return r;
    *out = memlord_i_stint_of(lord, scope, t);
    if (!*out) return MEMLORD_E_NOMEM;
    /* a path met by another split of it has that name: it would not match */
    if (origin || !strncmp(scope->name, name, MEMLORD_I_SCOPE_NAME))
        memlord_i_memo_set(lord, t, given, memlord_i_scope_salt(t, origin != NULL), *out, 0);
    return MEMLORD_OK;
}

/* All bytes live now: as memlord_i_row_live, but for what few ledgers ever see. */
static MEMLORD_I_HOT uint64_t memlord_i_live_all(memlord *lord) {
    const memlord_i_thread *t = memlord_i_thread_first(lord);
    uint32_t i, n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    uint64_t sum = 0;
    for (; t; t = memlord_i_thread_after(t))
        for (i = 1; i < n; i++) {
            const memlord_i_cell *cell = memlord_i_cell_at(t, MEMLORD_I_DEVICE, i);
            if (cell) sum += memlord_i_u64_load(&cell->level);
        }
    return (int64_t)sum > 0 ? sum : 0; /* below 0 if a call in flight was half seen */
}

/* Has a cell's high begin at its level: what it was, the row's peak is to know. */
static MEMLORD_I_NOINLINE void memlord_i_cell_high_restart(memlord *lord, uint32_t slot,
                                                        memlord_i_cell *cell) {
    memlord_i_row *row = memlord_i_row_at(lord, MEMLORD_I_DEVICE, slot);
    memlord_i_lock_take(&row->lock);
    memlord_i_high_raise(row, cell);
    memlord_i_lock_drop(&row->lock);
    memlord_i_u64_store(&cell->high, memlord_i_u64_load(&cell->level));
}

/* Pushes a frame: the thread is in the stint's scope. `adopted`: by this token; 0: by none. */
static MEMLORD_I_HOT memlord_result memlord_i_frame_open(memlord *lord, memlord_i_thread *t,
                                                         memlord_i_stint *stint,
                                                         uint64_t adopted) {
    memlord_i_nest *nest = t->nest;
    memlord_i_frame *f = &nest->frame[nest->depth], *around = nest->depth ? f - 1 : NULL;
    uint32_t i, n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    if (MEMLORD_I_UNLIKELY(!f->at)) {
        f->at = (memlord_i_level *)memlord_i_alloc(lord, MEMLORD_I_LEVELS_SIZE);
        if (!f->at) return MEMLORD_E_NOMEM;
    }
    f->scope = stint->scope;
    f->stint = stint;
    f->adopted = adopted;
    f->exported = 0;
    f->shapes = NULL;
    f->blocks = 0;
    for (i = 1; i < n; i++) {
        memlord_i_cell *cell = memlord_i_cell_own(t, i);
        f->at[i].from = f->at[i].high = 0;
        if (!cell) continue;
        if (around) memlord_i_frame_raise(around, i, memlord_i_u64_own(&cell->high));
        if (memlord_i_u64_own(&cell->high) != memlord_i_u64_own(&cell->level))
            memlord_i_cell_high_restart(lord, i, cell);
        f->at[i].from = f->at[i].high = memlord_i_u64_own(&cell->level);
        f->blocks += memlord_i_u64_own(&cell->allocs) - memlord_i_u64_own(&cell->frees);
    }
    f->devices = n - 1;
    f->before = memlord_i_live_all(lord);
    f->start = memlord_i_stamp(lord);
    nest->depth++;
    t->scope = f->scope->id;
    t->born_in = 0;
    if (!(memlord_i_u32_load(&t->special) & MEMLORD_I_SPECIAL_SCOPE))
        memlord_i_special(t, MEMLORD_I_SPECIAL_SCOPE, 1);
    memlord_i_u64_own_add(&stint->running, 1);
    memlord_i_note_add(lord, t, MEMLORD_EVENT_SCOPE_BEGIN, 0, 0, 0, 0);
    return MEMLORD_OK;
}

/* What a frame comes to; what it did on each device is added to its stint. */
static void memlord_i_frame_sum(memlord *lord, memlord_i_thread *t, memlord_i_frame *f,
                                memlord_i_effort *v) {
    uint32_t i, n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    uint64_t blocks = 0, bytes = 0, peak = 0;
    v->stamps = memlord_i_stamp(lord) - f->start;
    for (i = 1; i < n; i++) {
        const memlord_i_cell *cell = memlord_i_cell_own(t, i);
        const memlord_i_level *at = memlord_i_frame_level(f, i);
        uint64_t delta;
        if (cell) memlord_i_frame_raise(f, i, memlord_i_u64_own(&cell->high));
        delta = (uint64_t)memlord_i_level_rise(at->from,
                                               cell ? memlord_i_u64_own(&cell->level) : 0);
        bytes += delta;
        if (delta) memlord_i_u64_own_add(&f->stint->devices[i], delta);
        peak += (uint64_t)memlord_i_level_rise(at->from, at->high);
        if (cell) blocks += memlord_i_u64_own(&cell->allocs) - memlord_i_u64_own(&cell->frees);
        if (f != t->nest->frame) memlord_i_frame_raise(f - 1, i, at->high);
    }
    v->bytes = bytes;
    v->peak = peak;
    v->blocks = blocks - f->blocks;
    v->start = f->start;
    v->before = f->before;
    v->after = memlord_i_live_all(lord);
    v->shapes = f->shapes;
}

static void memlord_i_frame_pop(memlord_i_thread *t) {
    t->nest->depth--;
    t->scope = t->nest->depth ? t->nest->frame[t->nest->depth - 1].scope->id : 0;
    t->born_in = 0;
}

/* Ends the innermost frame. `grow`: memory may be asked for. */
static void memlord_i_frame_close(memlord *lord, memlord_i_thread *t, int grow) {
    memlord_i_frame *f = &t->nest->frame[t->nest->depth - 1];
    memlord_i_effort v;
    memlord_i_note_add(lord, t, MEMLORD_EVENT_SCOPE_END, 0, 0, 0, 0);
    memlord_i_stint_ready(lord, f->stint);
    memlord_i_frame_sum(lord, t, f, &v);
    memlord_i_stint_add(lord, f->stint, &v, grow);
    if (MEMLORD_I_UNLIKELY(f->exported)) memlord_i_u64_store(&f->stint->token, 0);
    memlord_i_u64_own_add(&f->stint->running, (uint64_t)0 - 1);
    memlord_i_frame_pop(t);
}

/* A thread ends: so do its scopes, the innermost first. Its record is nobody else's yet. */
static MEMLORD_I_COLD void memlord_i_nest_close(memlord_i_thread *t) {
    while (t->nest && t->nest->depth) memlord_i_frame_close(t->lord, t, 0);
}
#if MEMLORD_I_POSIX
/* In a forked child, where fork holds the locks: the scopes of a thread that is not there never
   ended. It may have been about to begin or end one: whether that is counted is not known. */
static MEMLORD_I_COLD void memlord_i_nest_forget(memlord_i_thread *t) {
    for (; t->nest && t->nest->depth; memlord_i_frame_pop(t)) {
        memlord_i_frame *f = &t->nest->frame[t->nest->depth - 1];
        memlord_i_u64_store(&f->stint->running, 0);
        memlord_i_u64_store(&f->stint->token, 0);
    }
}
#endif

/* -- beginning and ending -- */

/* Begins a scope: `given` is how the caller says it, `name` NULL if that never changes. */
static memlord_result memlord_i_scope_open(memlord *lord, memlord_i_thread *t, const void *given,
                                           const char *name, const memlord_scope_site *place) {
    const memlord_i_memo *memo;
    memlord_i_stint *stint;
    memlord_result r = memlord_i_nest_room(lord, t);
    if (r) return r;
    memo = memlord_i_memo_find(t, given, memlord_i_scope_salt(t, place != NULL));
    stint = memo ? (memlord_i_stint *)memo->value : NULL;
    if (MEMLORD_I_UNLIKELY(!stint ||
                           (name && strncmp(stint->scope->name, name, MEMLORD_I_SCOPE_NAME)))) {
        r = memlord_i_scope_look_up(lord, t, place ? place->name : name, given,
                                    place ? &place->site : NULL, &stint);
        if (r) return r;
    }
    return memlord_i_frame_open(lord, t, stint, 0);
}

static memlord_result memlord_i_scope_close(memlord *lord, memlord_i_thread *t) {
    if (!t->nest || !t->nest->depth || t->nest->frame[t->nest->depth - 1].adopted)
        return MEMLORD_E_STATE;
    memlord_i_frame_close(lord, t, 1);
    return MEMLORD_OK;
}

/* -- handing a scope to other threads -- */

/* A token is its ledger and scope, and which export of it. It is good as long as that is in a
   stint: from the first export of a frame until this ends. */
static uint64_t memlord_i_scope_word(const memlord *lord, const memlord_i_scope *scope) {
    return lord->generation << 32 | scope->id;
}
static MEMLORD_I_COLD void memlord_i_scope_export(memlord *lord, memlord_i_thread *t,
                                                  memlord_scope_token *out) {
    memlord_i_frame *f = &t->nest->frame[t->nest->depth - 1];
    if (!memlord_i_u64_own(&f->stint->token)) {
        f->exported = 1;
        memlord_i_u64_store(&f->stint->token, memlord_i_u64_add(&lord->serial, 1) + 1);
    }
    out->word[0] = memlord_i_scope_word(lord, f->scope);
    out->word[1] = memlord_i_u64_own(&f->stint->token);
}

static MEMLORD_I_COLD memlord_result memlord_i_scope_adopt(memlord *lord, memlord_i_thread *t,
                                                           const memlord_scope_token *token) {
    uint32_t id = (uint32_t)token->word[0], i;
    memlord_i_scope *scope =
        id && id < memlord_i_scopes(lord) ? memlord_i_scope_at(lord, id) : NULL;
    memlord_i_stint *s;
    memlord_result r = memlord_i_nest_room(lord, t);
    if (r) return r;
    if (!token->word[1] || !scope || token->word[0] != memlord_i_scope_word(lord, scope))
        return MEMLORD_E_UNKNOWN;
    for (i = 0; i < t->nest->depth; i++)
        if (t->nest->frame[i].adopted == token->word[1]) return MEMLORD_E_STATE;
    s = (memlord_i_stint *)memlord_i_ptr_load_acquire(&scope->stints);
    while (s && memlord_i_u64_load(&s->token) != token->word[1]) s = s->next;
    if (!s) return MEMLORD_E_UNKNOWN;
    if (s->thread == t->id) return MEMLORD_E_STATE;
    s = memlord_i_stint_of(lord, scope, t);
    return s ? memlord_i_frame_open(lord, t, s, token->word[1]) : MEMLORD_E_NOMEM;
}

static MEMLORD_I_COLD memlord_result memlord_i_scope_return(memlord *lord, memlord_i_thread *t,
                                                            const memlord_scope_token *token) {
    memlord_i_frame *f = t->nest && t->nest->depth ? &t->nest->frame[t->nest->depth - 1] : NULL;
    if (!f || !f->adopted || f->adopted != token->word[1] ||
        token->word[0] != memlord_i_scope_word(lord, f->scope))
        return MEMLORD_E_STATE;
    memlord_i_frame_close(lord, t, 1);
    return MEMLORD_OK;
}

/* -- reading -- */

static void memlord_i_extreme_merge(const memlord_i_extreme *e, int first, int64_t *total,
                                    int64_t *min, int64_t *max) {
    int64_t low = (int64_t)memlord_i_u64_load(&e->min), high = (int64_t)memlord_i_u64_load(&e->max);
    *total += (int64_t)memlord_i_u64_load(&e->total);
    if (first || low < *min) *min = low;
    if (first || high > *max) *max = high;
}

/* Adds up the stints of a scope; what each did on a device into `devices`, if it is not NULL. */
static MEMLORD_I_COLD void memlord_i_scope_sum(memlord *lord, const memlord_i_scope *scope,
                                               const memlord_i_scale *scale,
                                               memlord_scope_stat *out, uint64_t *devices) {
    const memlord_i_stint *s =
        (const memlord_i_stint *)memlord_i_ptr_load_acquire(&scope->stints);
    int64_t total = 0, min = 0, max = 0;
    uint32_t i;
    memset(out, 0, sizeof *out);
    out->name = scope->name;
    out->path = scope->path;
    out->id = scope->id;
    out->parent = scope->parent ? scope->parent->id : 0;
    out->device_ns = memlord_i_u64_load(&scope->device_ns);
    if (scope->site) out->site = memlord_i_site_shown(lord, scope->site);
    for (; s; s = s->next) {
        uint64_t n = memlord_i_u64_load_acquire(&s->count); /* pairs with memlord_i_stint_add */
        int first = !out->count;
        out->running += memlord_i_u64_load(&s->running);
        if (memlord_i_u64_load_acquire(&s->epoch) != memlord_i_u64_load(&lord->epoch)) continue;
        if (!n) continue;
        out->count += n;
        memlord_i_extreme_merge(&s->bytes, first, &out->bytes.total, &out->bytes.min,
                                &out->bytes.max);
        memlord_i_extreme_merge(&s->blocks, first, &out->blocks.total, &out->blocks.min,
                                &out->blocks.max);
        memlord_i_extreme_merge(&s->stamps, first, &total, &min, &max);
        if (memlord_i_u64_load(&s->peak) > out->peak) out->peak = memlord_i_u64_load(&s->peak);
        for (i = 1; devices && i <= MEMLORD_MAX_DEVICES; i++)
            devices[i] += memlord_i_u64_load(&s->devices[i]);
    }
    out->ns.total = memlord_i_span_ns(scale, (uint64_t)total);
    out->ns.min = memlord_i_span_ns(scale, (uint64_t)min);
    out->ns.max = memlord_i_span_ns(scale, (uint64_t)max);
}

/* Copies what a stint remembers of its invocations, oldest first; answers how many. */
static MEMLORD_I_COLD size_t memlord_i_stint_read(memlord *lord, const memlord_i_stint *s,
                                                  memlord_i_effort out[MEMLORD_I_HISTORY_MAX]) {
    uint64_t i, n, from, after;
    size_t kept = 0, gone;
    memlord_i_lock_take(&lord->scopes_lock);
    n = memlord_i_u64_load_acquire(&s->count);
    from = n > s->history->cap ? n - s->history->cap : 0;
    if (memlord_i_u64_load(&s->epoch) != memlord_i_u64_load(&lord->epoch)) n = from;
    for (i = from; i < n; i++) {
        const memlord_i_invocation *v = &s->history->at[i % s->history->cap];
        memlord_i_effort *o = &out[kept++];
        o->start = memlord_i_u64_load_acquire(&v->start);
        o->stamps = memlord_i_u64_load_acquire(&v->stamps);
        o->bytes = memlord_i_u64_load_acquire(&v->bytes);
        o->blocks = memlord_i_u64_load_acquire(&v->blocks);
        o->before = memlord_i_u64_load_acquire(&v->before);
        o->after = memlord_i_u64_load_acquire(&v->after);
        o->peak = memlord_i_u64_load_acquire(&v->peak);
        o->shapes = (const char *)memlord_i_ptr_load_acquire(&v->shapes);
    }
    /* what was written over meanwhile, one of them perhaps by half */
    after = memlord_i_u64_load(&s->count);
    gone = after >= s->history->cap ? (size_t)(after - s->history->cap + 1) : 0;
    gone = after != n && gone > from ? gone - (size_t)from : 0;
    if (after < n || gone > kept) gone = kept;
    memlord_i_lock_drop(&lord->scopes_lock);
    memmove(out, out + gone, (kept - gone) * sizeof *out);
    return kept - gone;
}

/* Invocations that no ring remembers any more. */
static MEMLORD_I_COLD uint64_t memlord_i_invocations_gone(memlord *lord) {
    uint64_t gone = 0;
    uint32_t i;
    for (i = 1; i < memlord_i_scopes(lord); i++) {
        const memlord_i_stint *s = (const memlord_i_stint *)memlord_i_ptr_load_acquire(
            &memlord_i_scope_at(lord, i)->stints);
        for (; s; s = s->next) {
            uint64_t n = memlord_i_u64_load(&s->count);
            memlord_i_lock_take(&lord->scopes_lock);
            if (memlord_i_u64_load(&s->epoch) == memlord_i_u64_load(&lord->epoch))
                gone += n > s->history->cap ? n - s->history->cap : 0;
            memlord_i_lock_drop(&lord->scopes_lock);
        }
    }
    return gone;
}

static void memlord_i_scopes_end(memlord *lord) {
    uint32_t i;
    for (i = 1; i < memlord_i_scopes(lord); i++) {
        memlord_i_scope *scope = memlord_i_scope_at(lord, i);
        memlord_i_stint *s = (memlord_i_stint *)memlord_i_ptr_load(&scope->stints), *next;
        for (; s; s = next) {
            next = s->next;
            memlord_i_free(lord, s->history, MEMLORD_I_HISTORY_SIZE(s->history->cap));
            memlord_i_free(lord, s, sizeof *s);
        }
        memlord_i_free(lord, scope, sizeof *scope);
    }
    memlord_i_book_end(lord, &lord->scopes, sizeof(memlord_i_ptr));
}

/* ------------------------------------------------------------------ >>snapshots --
   Owns snapshots, the thread that takes them, and who held a device at its peak. A snapshot never
   changes once it is in the list, which is in order of time; one that is taken out while a report
   reads waits for the last reader. Locks: snapshots, for the list and the holders; none while
   blocks are looked at. */

#define MEMLORD_I_SNAPSHOT_TOP 10
#define MEMLORD_I_SNAPSHOT_LEAST 10  /* ms */
#define MEMLORD_I_RECORDER_MOST 1000 /* until the thread looks at the clock and for saves again */

static memlord_i_held *memlord_i_snapshot_held(const memlord_i_snapshot *s) {
    return (memlord_i_held *)(uintptr_t)(s + 1);
}
static memlord_block_info *memlord_i_snapshot_top(const memlord_i_snapshot *s) {
    return (memlord_block_info *)(void *)(memlord_i_snapshot_held(s) + s->devices);
}
static void memlord_i_snapshots_free(memlord *lord, memlord_i_snapshot *s) {
    memlord_i_snapshot *next;
    for (; s; s = next) {
        next = s->next;
        memlord_i_free(lord, s, s->size);
    }
}

/* What every device holds; with room for the largest blocks they are looked for, too. */
static MEMLORD_I_COLD memlord_i_snapshot *memlord_i_snapshot_new(memlord *lord, const char *kept,
                                                                 size_t tops) {
    uint32_t i, n = memlord_i_rows(lord, MEMLORD_I_DEVICE) - 1;
    size_t size = sizeof(memlord_i_snapshot) + n * sizeof(memlord_i_held) +
                  tops * sizeof(memlord_block_info);
    memlord_i_snapshot *s = (memlord_i_snapshot *)memlord_i_alloc(lord, size);
    if (!s) return NULL;
    s->size = size;
    s->name = kept;
    s->devices = n;
    s->at = memlord_i_clock(lord) - lord->started;
    for (i = 0; i < n; i++) {
        memlord_i_held *held = &memlord_i_snapshot_held(s)[i];
        const memlord_i_u64 *count = memlord_i_device_at(lord, i + 1)->count;
        memlord_i_sum sum;
        memlord_i_row_sum(lord, MEMLORD_I_DEVICE, i + 1, 1, &sum);
        held->live = sum.live;
        held->blocks = sum.blocks;
        held->peak = sum.peak;
        held->pending = memlord_i_u64_load(&count[MEMLORD_I_STAT_pending]);
        held->reserved = memlord_i_u64_load(&count[MEMLORD_I_STAT_reserved]);
        s->live += sum.live;
        s->blocks += sum.blocks;
    }
    if (tops)
        s->tops = memlord_blocks_top(lord, memlord_device_all(), memlord_i_snapshot_top(s), tops);
    return s;
}

/* What a device held, by slot; 0: all of them. */
static uint64_t memlord_i_snapshot_level(const memlord_i_snapshot *s, uint32_t slot) {
    if (!slot) return s->live;
    return slot <= s->devices ? memlord_i_snapshot_held(s)[slot - 1].live : 0;
}
/* 1: some device, or all together, held more than in any other that is kept. */
static MEMLORD_I_COLD int memlord_i_snapshot_highest(const memlord *lord,
                                                     const memlord_i_snapshot *s) {
    uint32_t slot, i;
    for (slot = 0; slot <= s->devices; slot++) {
        uint64_t level = memlord_i_snapshot_level(s, slot);
        for (i = lord->snapshot_count; i; i--) {
            const memlord_i_snapshot *other = lord->snapshots[i - 1];
            if (other != s && memlord_i_snapshot_level(other, slot) >= level) break;
        }
        if (!i) return 1;
    }
    return 0;
}

/* Takes out the one that leaves the smallest gap, the oldest of several: so the others stay
   spread over the whole run, however long it becomes. Never the first, the last, or the one a
   device was highest in; one with a name only if there are no others. */
static MEMLORD_I_COLD memlord_i_snapshot *memlord_i_snapshots_thin(memlord *lord) {
    memlord_i_snapshot **list = lord->snapshots, *out;
    uint64_t least = UINT64_MAX;
    uint32_t i, at = 0;
    int named;
    for (named = 0; named < 2 && !at; named++)
        for (i = 1; i + 1 < lord->snapshot_count; i++) {
            uint64_t gap = list[i + 1]->at - list[i - 1]->at;
            if ((list[i]->name != NULL) != named || gap >= least ||
                memlord_i_snapshot_highest(lord, list[i]))
                continue;
            least = gap;
            at = i;
        }
    out = list[at];
    memmove(list + at, list + at + 1, (--lord->snapshot_count - at) * sizeof *list);
    (void)memlord_i_u64_add(&lord->lost_snapshots, 1);
    return out;
}

static MEMLORD_I_COLD memlord_result memlord_i_snapshot_take(memlord *lord, const char *kept,
                                                             size_t tops) {
    memlord_i_snapshot *s = memlord_i_snapshot_new(lord, kept, tops), *out = NULL, **at;
    if (!s) {
        (void)memlord_i_u64_add(&lord->lost_snapshots, 1);
        return MEMLORD_E_NOMEM;
    }
    memlord_i_lock_take(&lord->snapshots_lock);
    at = &lord->snapshots[lord->snapshot_count++];
    /* by time: the clock, which may be the host's, was read before the lock was taken */
    for (; at > lord->snapshots && at[-1]->at > s->at; at--) *at = at[-1];
    *at = s;
    if (lord->snapshot_count == MEMLORD_I_SNAPSHOTS) out = memlord_i_snapshots_thin(lord);
    if (out && lord->snapshot_readers) {
        out->next = lord->snapshots_out;
        lord->snapshots_out = out;
        out = NULL;
    }
    memlord_i_lock_drop(&lord->snapshots_lock);
    memlord_i_snapshots_free(lord, out);
    return MEMLORD_OK;
}

/* Copies the list for a report; what is in it stays until the end. */
static uint32_t memlord_i_snapshots_begin(memlord *lord, memlord_i_reader *reader,
                                          const memlord_i_snapshot *list[MEMLORD_I_SNAPSHOTS]) {
    uint32_t i, n;
    reader->thread = &memlord_i_self;
    memlord_i_lock_take(&lord->snapshots_lock);
    n = lord->snapshot_count;
    for (i = 0; i < n; i++) list[i] = lord->snapshots[i];
    reader->next = lord->snapshot_readers;
    lord->snapshot_readers = reader;
    memlord_i_lock_drop(&lord->snapshots_lock);
    return n;
}
static void memlord_i_snapshots_end(memlord *lord, const memlord_i_reader *reader) {
    memlord_i_snapshot *out = NULL;
    memlord_i_reader **at = &lord->snapshot_readers;
    memlord_i_lock_take(&lord->snapshots_lock);
    while (*at != reader) at = &(*at)->next;
    *at = reader->next;
    if (!lord->snapshot_readers) {
        out = lord->snapshots_out;
        lord->snapshots_out = NULL;
    }
    memlord_i_lock_drop(&lord->snapshots_lock);
    memlord_i_snapshots_free(lord, out);
}

/* -- taking them every now and then -- */

/* Takes one if its time has come by the ledger's clock, which may be the host's; answers for how
   many ms to wait then. */
static MEMLORD_I_COLD uint32_t memlord_i_recorder_look(memlord *lord) {
    memlord_i_recorder *r = &lord->recorder;
    uint64_t now = memlord_i_clock(lord), due = memlord_i_u64_load(&r->due), left;
    uint64_t next = now + (uint64_t)memlord_i_u32_load(&r->interval) * 1000000u;
    /* from now on: after a stop there is nothing to catch up with */
    if (now >= due && memlord_i_u64_cas(&r->due, &due, next)) {
        (void)memlord_i_snapshot_take(lord, NULL, MEMLORD_I_SNAPSHOT_TOP);
        due = next;
    }
    left = due > now ? (due - now) / 1000000u + 1 : 1;
    return left < MEMLORD_I_RECORDER_MOST ? (uint32_t)left : MEMLORD_I_RECORDER_MOST;
}
/* The same where no thread does. */
static MEMLORD_I_COLD void memlord_i_recorder_poll(memlord *lord) {
    memlord_i_recorder *r = &lord->recorder;
    if (memlord_i_u32_load(&r->wanted) &&
        memlord_i_u32_load_acquire(&r->helper.state) != MEMLORD_I_HELPER_RUNS)
        (void)memlord_i_recorder_look(lord);
}

static MEMLORD_I_COLD void memlord_i_recorder_run(void *user) {
    memlord *lord = (memlord *)user;
    memlord_i_recorder *r = &lord->recorder;
    uint32_t ms;
    memlord_i_self.helps = 1;
    do {
        ms = memlord_i_recorder_look(lord);
        memlord_i_save_serve(lord);
    } while (memlord_i_helper_wait(&r->helper, ms));
}

/* Has the thread wait anew, by another interval. */
static MEMLORD_I_COLD void memlord_i_recorder_wake(memlord *lord) {
    memlord_i_helper *h = &lord->recorder.helper;
    uint32_t seen = MEMLORD_I_HELPER_RUNS;
    if (!memlord_i_u32_cas(&h->state, &seen, MEMLORD_I_HELPER_BUSY)) return;
    memlord_i_event_set(&h->wake); /* nobody closes it meanwhile */
    memlord_i_u32_store_release(&h->state, MEMLORD_I_HELPER_RUNS);
}

/* Starts the thread; without one, safe points do its work. */
static MEMLORD_I_COLD void memlord_i_recorder_begin(memlord *lord) {
    memlord_i_recorder *r = &lord->recorder;
    if (memlord_i_polls(lord) &&
        memlord_i_helper_begin(&r->helper, &r->wanted, 0, MEMLORD_I_HELPER_NONE,
                               memlord_i_recorder_run, lord))
        memlord_i_log(lord, MEMLORD_LOG_WARNING,
                      "[snapshots] no thread for them: memlord_gc_poll takes them instead");
}

/* Stops the thread, and takes a last snapshot if there were to be some. */
static MEMLORD_I_COLD void memlord_i_recorder_end(memlord *lord) {
    uint32_t was = memlord_i_u32_exchange(&lord->recorder.wanted, 0);
    memlord_i_helper_end(&lord->recorder.helper);
    if (was) (void)memlord_i_snapshot_take(lord, NULL, MEMLORD_I_SNAPSHOT_TOP);
}

/* -- who held a device at its peak --
   Taken at the end of a call that has raised the peak by a sixteenth since it was last. */

static size_t memlord_i_tags_top(memlord *lord, memlord_device d, memlord_tag_stat *out,
                                 size_t cap);
static int memlord_i_tag_sum(memlord *lord, memlord_device sel, const char *tag,
                             memlord_tag_stat *out);
static size_t memlord_i_sites_top(memlord *lord, memlord_device sel, memlord_site_order order,
                                  memlord_site_stat *out, size_t cap, int names);

/* One to fill, and back: the one a device had serves the next that is taken, so that growing costs
   the ledger's memory no hole. */
static memlord_i_holders *memlord_i_holders_new(memlord *lord) {
    memlord_i_holders *h;
    memlord_i_lock_take(&lord->snapshots_lock);
    h = lord->spare_holders;
    lord->spare_holders = NULL;
    memlord_i_lock_drop(&lord->snapshots_lock);
    return h ? h : (memlord_i_holders *)memlord_i_alloc(lord, sizeof *h);
}
static MEMLORD_I_COLD void memlord_i_holders_spare(memlord *lord, memlord_i_holders *h) {
    memlord_i_holders *had;
    if (!h) return;
    memlord_i_lock_take(&lord->snapshots_lock);
    had = lord->spare_holders;
    if (!had) lord->spare_holders = h;
    memlord_i_lock_drop(&lord->snapshots_lock);
    if (had) memlord_i_free(lord, h, sizeof *h);
}

static MEMLORD_I_COLD void memlord_i_holders_take(memlord *lord, uint32_t slot, uint64_t live) {
    memlord_i_device *device = memlord_i_device_at(lord, slot);
    memlord_i_holders *h = memlord_i_holders_new(lord), *old;
    memlord_tag_stat rest;
    if (!h) return; /* the next time */
    h->at = memlord_i_clock(lord) - lord->started;
    h->bytes = live;
    h->tags = memlord_i_tags_top(lord, device->device, h->tag, MEMLORD_I_HOLDERS - 1);
    if (memlord_i_tag_sum(lord, device->device, NULL, &rest) && rest.allocated)
        h->tag[h->tags++] = rest;
    h->sites = memlord_i_sites_top(lord, device->device, MEMLORD_SITE_ORDER_LIVE_BYTES, h->site,
                                   MEMLORD_I_HOLDERS, 0);
    memlord_i_lock_take(&lord->snapshots_lock);
    old = device->holders;
    if (old && old->bytes > live) {
        old = h; /* another thread saw more */
    } else {
        device->holders = h;
        memlord_i_u64_store(&device->watch.holders_at, live + live / 16 + 1);
    }
    memlord_i_lock_drop(&lord->snapshots_lock);
    memlord_i_holders_spare(lord, old);
}
static void memlord_i_holders_look(memlord *lord, uint32_t slot) {
    uint64_t live = memlord_i_row_live(lord, MEMLORD_I_DEVICE, slot);
    if (live && live >= memlord_i_u64_load(&memlord_i_device_at(lord, slot)->watch.holders_at))
        memlord_i_holders_take(lord, slot, live);
}
/* The peak is what is live now. Not inside. */
static MEMLORD_I_COLD void memlord_i_holders_restart(memlord *lord, uint32_t slot) {
    memlord_i_device *device = memlord_i_device_at(lord, slot);
    memlord_i_holders *old;
    if (memlord_i_self.busy) return;
    memlord_i_lock_take(&lord->snapshots_lock);
    old = device->holders;
    device->holders = NULL;
    memlord_i_u64_store(&device->watch.holders_at, 0);
    memlord_i_lock_drop(&lord->snapshots_lock);
    memlord_i_holders_spare(lord, old);
    memlord_i_holders_look(lord, slot);
}
/* Copies who held it; 0: not known. */
static int memlord_i_holders_get(memlord *lord, uint32_t slot, memlord_i_holders *out) {
    const memlord_i_holders *h;
    memlord_i_lock_take(&lord->snapshots_lock);
    h = memlord_i_device_at(lord, slot)->holders;
    if (h) *out = *h;
    memlord_i_lock_drop(&lord->snapshots_lock);
    return h != NULL;
}

static MEMLORD_I_COLD void memlord_i_snapshots_close(memlord *lord) {
    uint32_t i;
    for (i = 0; i < lord->snapshot_count; i++)
        memlord_i_free(lord, lord->snapshots[i], lord->snapshots[i]->size);
    memlord_i_snapshots_free(lord, lord->snapshots_out);
    for (i = 1; i < memlord_i_rows(lord, MEMLORD_I_DEVICE); i++)
        memlord_i_free(lord, memlord_i_device_at(lord, i)->holders, sizeof(memlord_i_holders));
    memlord_i_free(lord, lord->spare_holders, sizeof(memlord_i_holders));
}

/* ---------------------------------------------------------------------- >>reports --
   Owns the statistics of devices, sites and tags, TEXT and JSON, and the files reports are saved
   to. A report captures the statistics of every device and tag once and writes from that; lists of
   sites and blocks are read as they are written, each with its own sum. No call waits for a report.
   Locks: those of reading, none while the host's function writes. */

/* The columns of a device: its statistics by their MEMLORD_I_STAT_ numbers, and behind them, of
   the ledger as a whole, what there was no room for or is no longer kept. */
enum { MEMLORD_I_KIND_LIVE, MEMLORD_I_KIND_PEAK, MEMLORD_I_KIND_COUNT, MEMLORD_I_KIND_ODD };
#define MEMLORD_I_LOSSES(X)                                                                   \
    X(scopes, "scopes there was no room for")                                                 \
    X(scope_invocations, "invocations of scopes no longer kept")                              \
    X(snapshots, "snapshots no longer kept")
enum {
#define MEMLORD_I_X(name, text) MEMLORD_I_LOST_##name,
    MEMLORD_I_LOSSES(MEMLORD_I_X)
#undef MEMLORD_I_X
    MEMLORD_I_LOST
};
enum { MEMLORD_I_COLUMNS = (int)MEMLORD_I_STAT_COUNT + (int)MEMLORD_I_LOST };
static const struct {
    const char *name;
    uint16_t at, kind; /* at: in memlord_stats */
} memlord_i_columns[MEMLORD_I_COLUMNS] = {
#define MEMLORD_I_X(name, kind, family, text)                                                 \
    {#name, offsetof(memlord_stats, name), MEMLORD_I_KIND_##kind},
    MEMLORD_I_STATS(MEMLORD_I_X)
#undef MEMLORD_I_X
#define MEMLORD_I_X(name, text) {"dropped_" #name, 0, MEMLORD_I_KIND_ODD},
    MEMLORD_I_LOSSES(MEMLORD_I_X)
#undef MEMLORD_I_X
};
static uint64_t *memlord_i_stat_of(memlord_stats *stats, size_t i) {
    return (uint64_t *)(void *)((char *)stats + memlord_i_columns[i].at);
}
static MEMLORD_I_COLD uint64_t memlord_i_lost(memlord *lord, size_t i) {
    if (i == MEMLORD_I_LOST_scope_invocations) return memlord_i_invocations_gone(lord);
    return memlord_i_u64_load(i == MEMLORD_I_LOST_scopes ? &lord->lost_scopes
                                                         : &lord->lost_snapshots);
}

static MEMLORD_I_COLD void memlord_i_stats(memlord *lord, uint32_t slot, memlord_stats *out) {
    const memlord_i_device *device = memlord_i_device_at(lord, slot);
    size_t i;
    memlord_i_sum sum;
    memlord_i_row_sum(lord, MEMLORD_I_DEVICE, slot, 1, &sum);
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    out->version = MEMLORD_STATS_VERSION;
    for (i = 0; i < MEMLORD_I_STAT_COUNT; i++)
        *memlord_i_stat_of(out, i) = memlord_i_u64_load(&device->count[i]);
    out->allocated = sum.live;
    out->freed = sum.freed;
    out->peak = sum.peak;
    out->peak_error = sum.peak_error;
    out->live_blocks = sum.blocks;
    out->allocs = sum.allocs;
    out->frees = sum.frees;
    out->total_allocated = sum.total_in;
    out->total_freed = sum.total_out;
    out->largest_free--; /* kept one higher */
    if (out->reserved > out->allocated) out->cached = out->reserved - out->allocated;
    out->limit = memlord_i_place_limit(memlord_i_place_at(lord, slot));
}

/* The limits of the places of the devices of a selector, each once. */
static MEMLORD_I_COLD uint64_t memlord_i_limits(memlord *lord, memlord_device sel) {
    uint32_t i, k, n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    uint64_t sum = 0;
    for (i = 1; i < n; i++) {
        memlord_i_place *place = memlord_i_place_at(lord, i);
        if (!memlord_i_selects(sel, memlord_i_device_at(lord, i)->device)) continue;
        for (k = 1; k < i; k++)
            if (memlord_i_place_at(lord, k) == place &&
                memlord_i_selects(sel, memlord_i_device_at(lord, k)->device))
                break;
        if (k == i) sum = memlord_i_add(sum, memlord_i_place_limit(place));
    }
    return sum;
}

static MEMLORD_I_COLD void memlord_i_stats_add(memlord_stats *sum, memlord_stats *s) {
    uint64_t a = sum->largest_free, b = s->largest_free;
    size_t i;
    for (i = 0; i < MEMLORD_I_STAT_COUNT; i++)
        *memlord_i_stat_of(sum, i) =
            memlord_i_add(*memlord_i_stat_of(sum, i), *memlord_i_stat_of(s, i));
    sum->largest_free = a == UINT64_MAX || (b != UINT64_MAX && b > a) ? b : a;
}

static MEMLORD_I_COLD void memlord_i_site_stat(memlord *lord, uint32_t number,
                                               memlord_site_stat *out) {
    memlord_i_row *row = memlord_i_row_at(lord, MEMLORD_I_SITE, number);
    memlord_i_sum sum;
    memlord_i_row_sum(lord, MEMLORD_I_SITE, number, 1, &sum);
    out->site = (const memlord_site *)memlord_i_ptr_load_acquire(
        &((memlord_i_site *)row->subject)->shown);
    out->device = memlord_i_device_at(lord, row->slot)->device;
    out->alloc_bytes = sum.total_in;
    out->free_bytes = sum.here;
    out->allocs = sum.allocs;
    out->frees = sum.frees;
    out->live_bytes = sum.live;
    out->peak_bytes = sum.peak;
}

/* Puts an item into a list of at most `cap`, the largest first by the number at `key`; most of
   those that come do not make it past the last place. Answers how many there are then. */
static MEMLORD_I_COLD size_t memlord_i_rank(void *list, size_t n, size_t cap, const void *item,
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

static MEMLORD_I_COLD size_t memlord_i_sites_top(memlord *lord, memlord_device sel,
                                                 memlord_site_order order, memlord_site_stat *out,
                                                 size_t cap, int names) {
    static const unsigned char keys[] = {
        offsetof(memlord_site_stat, alloc_bytes), offsetof(memlord_site_stat, free_bytes),
        offsetof(memlord_site_stat, allocs),      offsetof(memlord_site_stat, frees),
        offsetof(memlord_site_stat, live_bytes),  offsetof(memlord_site_stat, peak_bytes)};
    uint32_t i, rows = memlord_i_rows(lord, MEMLORD_I_SITE);
    size_t n = 0, at, key;
    if ((unsigned)order >= sizeof keys) return 0;
    key = keys[order];
    for (i = 1; i < rows; i++) {
        memlord_site_stat s;
        uint64_t number;
        uint32_t slot = memlord_i_row_at(lord, MEMLORD_I_SITE, i)->slot;
        if (!memlord_i_selects(sel, memlord_i_device_at(lord, slot)->device)) continue;
        memlord_i_site_stat(lord, i, &s);
        memcpy(&number, (char *)&s + key, sizeof number);
        if (number) n = memlord_i_rank(out, n, cap, &s, sizeof s, key);
    }
    for (at = 0; at < n && names; at++) {
        memlord_i_site *site = memlord_i_site_of(lord, out[at].site);
        if (site) out[at].site = memlord_i_site_shown(lord, site);
    }
    return n;
}

static MEMLORD_I_COLD void memlord_i_tag_stat(memlord *lord, uint32_t number,
                                              memlord_tag_stat *out) {
    memlord_i_row *row = memlord_i_row_at(lord, MEMLORD_I_TAG, number);
    memlord_i_sum sum;
    memlord_i_row_sum(lord, MEMLORD_I_TAG, number, 1, &sum);
    out->tag = (const char *)row->subject;
    out->allocated = sum.live;
    out->peak = sum.peak;
    out->blocks = sum.blocks;
    out->expected = memlord_i_u64_load(&row->expected);
    out->variance = out->expected ? (int64_t)(out->allocated - out->expected) : 0;
}

/* Adds up a tag's rows; NULL: what the devices hold beyond all tags. 1: there is such a tag. */
static MEMLORD_I_COLD int memlord_i_tag_sum(memlord *lord, memlord_device sel, const char *tag,
                                            memlord_tag_stat *out) {
    uint32_t i, rows = memlord_i_rows(lord, MEMLORD_I_TAG);
    int found = !tag;
    memset(out, 0, sizeof *out);
    out->tag = tag;
    for (i = 1; !tag && i < memlord_i_rows(lord, MEMLORD_I_DEVICE); i++) {
        memlord_i_sum sum;
        if (!memlord_i_selects(sel, memlord_i_device_at(lord, i)->device)) continue;
        memlord_i_row_sum(lord, MEMLORD_I_DEVICE, i, 0, &sum);
        out->allocated += sum.live;
        out->blocks += sum.blocks;
    }
    for (i = 1; i < rows; i++) {
        memlord_i_row *row = memlord_i_row_at(lord, MEMLORD_I_TAG, i);
        memlord_tag_stat s;
        if (tag && strcmp((const char *)row->subject, tag)) continue;
        found = 1;
        if (!memlord_i_selects(sel, memlord_i_device_at(lord, row->slot)->device)) continue;
        memlord_i_tag_stat(lord, i, &s);
        if (!tag) {
            out->allocated -= s.allocated < out->allocated ? s.allocated : out->allocated;
            out->blocks -= s.blocks < out->blocks ? s.blocks : out->blocks;
            continue;
        }
        out->tag = s.tag;
        out->allocated += s.allocated;
        out->peak += s.peak;
        out->blocks += s.blocks;
        out->expected += s.expected;
    }
    if (out->expected) out->variance = (int64_t)(out->allocated - out->expected);
    return found;
}

/* What was dropped without a device to count it on belongs to the whole alone. */
static MEMLORD_I_COLD void memlord_i_stats_lost(memlord *lord, memlord_stats *out) {
    out->dropped_allocs =
        memlord_i_add(out->dropped_allocs, memlord_i_u64_load(&lord->lost_allocs));
    out->dropped_bytes = memlord_i_add(out->dropped_bytes, memlord_i_u64_load(&lord->lost_bytes));
    out->unknown_frees = memlord_i_add(out->unknown_frees, memlord_i_u64_load(&lord->lost_unknown));
    out->dropped_sites = memlord_i_add(out->dropped_sites, memlord_i_u64_load(&lord->lost_tags));
    out->dropped_events =
        memlord_i_add(out->dropped_events, memlord_i_u64_load(&lord->lost_events));
}

/* A site of a list as it is shown now. */
static const memlord_site *memlord_i_site_named(memlord *lord, const memlord_site *site) {
    memlord_i_site *record = site ? memlord_i_site_of(lord, site) : NULL;
    return record ? memlord_i_site_shown(lord, record) : site;
}

/* -- who holds a device -- */

#define MEMLORD_I_EXPLAIN_TOP 4

/* The largest tags of a device; answers how many. */
static MEMLORD_I_COLD size_t memlord_i_tags_top(memlord *lord, memlord_device d,
                                                memlord_tag_stat *out, size_t cap) {
    uint32_t i, rows = memlord_i_rows(lord, MEMLORD_I_TAG);
    size_t n = 0;
    for (i = 1; i < rows; i++) {
        memlord_tag_stat s;
        uint32_t slot = memlord_i_row_at(lord, MEMLORD_I_TAG, i)->slot;
        if (!memlord_i_selects(d, memlord_i_device_at(lord, slot)->device)) continue;
        memlord_i_tag_stat(lord, i, &s);
        if (s.allocated)
            n = memlord_i_rank(out, n, cap, &s, sizeof s, offsetof(memlord_tag_stat, allocated));
    }
    return n;
}

/* "512 MiB wanted, 100 MiB short: limit 2 GiB, live 1.9 GiB, ..." of a place. */
static MEMLORD_I_COLD void memlord_i_explain_place(memlord *lord, memlord_i_out *o,
                                                   memlord_i_place *place, uint64_t wanted) {
    memlord_capacity sample;
    uint64_t limit, held;
    int64_t left;
    int known;
    memlord_i_lock_take(&place->lock);
    known = memlord_i_place_left(lord, place, &left);
    sample = place->sample;
    limit = place->limit;
    held = place->held;
    memlord_i_lock_drop(&place->lock);
    memlord_i_putf(o, " %jo wanted, ", wanted);
    if (!known)
        memlord_i_puts(o, "limit and capacity unknown");
    else if (left < 0 || (uint64_t)left < wanted)
        memlord_i_putf(o, "%jo short", wanted - (uint64_t)left);
    else
        memlord_i_putf(o, "%jo to spare", (uint64_t)left - wanted);
    if (limit) memlord_i_putf(o, ": limit %jo", limit);
    memlord_i_putf(o, limit ? ", live %jo" : ": live %jo", memlord_i_place_live(lord, place));
    if (held) memlord_i_putf(o, ", held for reservations %jo", held);
    if (sample.known)
        memlord_i_putf(o, ", capacity %jo with %g used", sample.total,
                       memlord_i_used_percent(&sample));
}

static MEMLORD_I_COLD size_t memlord_i_explain(memlord *lord, memlord_device d, uint64_t wanted,
                                               char *buf, size_t cap) {
    memlord_tag_stat tags[MEMLORD_I_EXPLAIN_TOP];
    memlord_site_stat sites[MEMLORD_I_EXPLAIN_TOP];
    memlord_i_place *place;
    memlord_i_out o;
    size_t i, n;
    memlord_i_out_buffer(&o, buf, cap);
    memlord_i_putf(&o, "%i:", memlord_i_coded(d));
    if (memlord_i_place_of(lord, d, 0, &place) == MEMLORD_OK)
        memlord_i_explain_place(lord, &o, place, wanted);
    else
        memlord_i_puts(&o, " never seen");
    n = memlord_i_tags_top(lord, d, tags, MEMLORD_I_EXPLAIN_TOP);
    for (i = 0; i < n; i++)
        memlord_i_putf(&o, i ? ", %s %jo" : "; by tag: %s %jo", tags[i].tag, tags[i].allocated);
    n = memlord_i_sites_top(lord, d, MEMLORD_SITE_ORDER_LIVE_BYTES, sites, MEMLORD_I_EXPLAIN_TOP,
                            0);
    for (i = 0; i < n; i++)
        memlord_i_putf(&o, i ? ", %p %jo" : "; by site: %p %jo", (const void *)sites[i].site,
                       sites[i].live_bytes);
    return memlord_i_out_end(&o, cap);
}

static MEMLORD_I_COLD void memlord_i_log_explain(memlord *lord, const char *head, memlord_device d,
                                                 uint64_t wanted) {
    char line[640];
    size_t n = strlen(head);
    if (lord->log_level < MEMLORD_LOG_ERROR || !lord->logger.fn) return;
    memcpy(line, head, n);
    (void)memlord_i_explain(lord, d, wanted, line + n, sizeof line - n);
    memlord_i_log(lord, MEMLORD_LOG_ERROR, line);
}

/* -- what MemLord itself costs -- */

/* Measures an alloc and a free once, in a ledger of its own, for some 20 us. */
static MEMLORD_I_COLD void memlord_i_cost_measure(memlord *lord) {
    enum { PAIRS = 1000 };
    const uint64_t storage = (uint64_t)1 << 40;
    memlord_device cpu = memlord_device_cpu();
    memlord_desc desc;
    memlord *probe = NULL;
    uint64_t began, i;
    if (memlord_i_u64_load(&lord->pair_ps)) return;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV | MEMLORD_FLAG_NO_STRATEGY | MEMLORD_FLAG_NO_THREADS;
    if (memlord_create(&desc, &probe) != MEMLORD_OK) return;
    (void)memlord_alloc(probe, cpu, storage, 1 << 20, NULL); /* the first ones make tables */
    began = memlord_i_now();
    for (i = 1; i <= PAIRS; i++) {
        (void)memlord_alloc(probe, cpu, storage + i * 64, 64, NULL);
        (void)memlord_free(probe, cpu, storage + i * 64, NULL);
    }
    memlord_i_u64_store(&lord->pair_ps, (memlord_i_now() - began) * 1000 / PAIRS + 1);
    memlord_destroy(probe);
}

/* -- what a report is written from -- */

#define MEMLORD_I_TOP_SITES 50
#define MEMLORD_I_TOP_BLOCKS 100
#define MEMLORD_I_TOP_TAGS 64
#define MEMLORD_I_TOP_ACCOUNTS 20
#define MEMLORD_I_SIZES 50 /* 0 bytes; from 1, 2, 4 ... 2^48 up to twice that */
#define MEMLORD_I_LEAKS 4096      /* groups of them */
#define MEMLORD_I_LEAKS_TRIED 16
#define MEMLORD_I_LEAKS_SHOWN 100
#define MEMLORD_I_PARTS_SHOWN 1024
typedef struct memlord_i_tally {
    uint64_t bytes, blocks;
} memlord_i_tally;
typedef struct memlord_i_leak {
    uint64_t key; /* the rows of word2, and more */
    uint64_t bytes, blocks;
    uint32_t slot, scope;
} memlord_i_leak;
typedef struct memlord_i_leaks {
    memlord_i_tally sum;
    size_t lines; /* how many of `at` are shown */
    memlord_i_leak at[MEMLORD_I_LEAKS];
} memlord_i_leaks;
typedef struct memlord_i_place_line {
    const memlord_i_place *place;
    memlord_device device;
    memlord_capacity sample;
    uint64_t limit, held;
    uint64_t self, rest, others; /* of what is used */
    uint64_t tagged;             /* of self */
    double full;                 /* percent; -1: not known */
} memlord_i_place_line;
typedef struct memlord_i_tag_line {
    memlord_tag_stat stat;
    uint32_t slot;
    memlord_i_place_line *place; /* NULL: not shown */
} memlord_i_tag_line;
typedef struct memlord_i_report {
    memlord *lord;
    memlord_i_out *o, out;
    char buf[2048];
    uint32_t devices;
    size_t sites, blocks, tags, tag_lines, places, accounts, account_lines;
    int by_peak; /* the order of sites */
    memlord_result result; /* what went wrong beside the writing */
    int whole; /* the lists too: blocks, sites, leaks, lifetimes */
    uint64_t uptime;
    uint32_t device_order[MEMLORD_MAX_DEVICES]; /* the fullest first */
    memlord_i_tag_line *tag;                        /* by row; NULL: no memory, and `tags` is 0 */
    memlord_i_tag_line *top_tag[MEMLORD_I_TOP_TAGS]; /* off their plan first, then the fullest */
    memlord_stats total, stat[MEMLORD_MAX_DEVICES];
    memlord_i_place_line place[MEMLORD_MAX_DEVICES + 1];
    memlord_account_stat account[MEMLORD_I_TOP_ACCOUNTS];
    memlord_site_stat site[MEMLORD_I_TOP_SITES];
    memlord_block_info block[MEMLORD_I_TOP_BLOCKS];
    memlord_i_largest top; /* of `block`, while it is filled */
    memlord_i_scale scale;
    uint32_t scopes, site_rows, snapshots;
    memlord_i_reader reader; /* of `snapshot` */
    const memlord_i_snapshot *snapshot[MEMLORD_I_SNAPSHOTS];
    memlord_i_snapshot *present; /* the last of them, if it is this report's own; else NULL */
    memlord_i_tally *scoped;    /* live, by scope; NULL: no memory */
    memlord_i_leaks leaks;      /* born since `mark` */
    uint64_t mark;
    int parted;                 /* some block has parts */
    int lifetimes;              /* known */
    uint64_t lifetime[MEMLORD_MAX_DEVICES][4];
    memlord_i_holders holders;  /* of the device being written */
    memlord_i_effort effort[MEMLORD_I_HISTORY_MAX];
    uint64_t deltas[MEMLORD_MAX_DEVICES + 1];
    memlord_part_info part[16];
    uint64_t sizes[MEMLORD_MAX_DEVICES][MEMLORD_I_SIZES]; /* how many live blocks */
} memlord_i_report;

/* -- what the walk over all blocks is for, beside the largest -- */

/* What is still alive is grouped by who made it. Where there is no room for a group, one with fewer
   bytes than this block makes way: large ones are found however many there are, but one of many
   small blocks may be told too low then. The sum is of all. */
static MEMLORD_I_COLD void memlord_i_leak_add(memlord *lord, memlord_i_leaks *leaks,
                                              uint64_t plain, uint32_t slot, uint64_t bytes) {
    uint32_t scope = memlord_i_scope_of(lord, plain);
    uint64_t key = (plain & MEMLORD_I_ROWS_MASK) | (uint64_t)slot << 40 | (uint64_t)scope << 48;
    uint64_t at = (key * 0x9e3779b97f4a7c15u) >> 32;
    memlord_i_leak *leak = NULL, *tried;
    size_t i;
    leaks->sum.bytes += bytes;
    leaks->sum.blocks++;
    for (i = 0; i < MEMLORD_I_LEAKS_TRIED; i++) {
        int mine;
        tried = &leaks->at[(at + i) % MEMLORD_I_LEAKS];
        mine = !tried->blocks || tried->key == key;
        if (!leak || mine || tried->bytes < leak->bytes) leak = tried;
        if (mine) break;
    }
    if (leak->blocks && leak->key != key) {
        if (leak->bytes >= bytes) return;
        leak->bytes = leak->blocks = 0;
    }
    leak->key = key;
    leak->slot = slot;
    leak->scope = scope;
    leak->blocks++;
    leak->bytes += bytes;
}
/* The largest come first, as many as are asked for. */
static MEMLORD_I_COLD void memlord_i_leaks_sort(memlord_i_leaks *leaks, size_t most) {
    size_t i;
    leaks->lines = 0;
    for (i = 0; i < MEMLORD_I_LEAKS; i++) {
        memlord_i_leak leak = leaks->at[i];
        if (leak.blocks)
            leaks->lines = memlord_i_rank(leaks->at, leaks->lines, most, &leak, sizeof leak,
                                          offsetof(memlord_i_leak, bytes));
    }
}
static const memlord_site *memlord_i_row_site(memlord *lord, uint32_t row) {
    if (!row) return NULL;
    return memlord_i_site_shown(
        lord, (memlord_i_site *)memlord_i_row_at(lord, MEMLORD_I_SITE, row)->subject);
}
static const memlord_site *memlord_i_leak_site(memlord *lord, const memlord_i_leak *leak) {
    return memlord_i_row_site(lord, MEMLORD_I_SITE_ROW(leak->key));
}
static const char *memlord_i_leak_tag(memlord *lord, const memlord_i_leak *leak) {
    uint32_t row = MEMLORD_I_TAG_ROW(leak->key & MEMLORD_I_ROWS_MASK);
    return row ? (const char *)memlord_i_row_at(lord, MEMLORD_I_TAG, row)->subject : NULL;
}
/* "cuda:0 [weights] in load  read_tensors loader.c:12" */
static MEMLORD_I_COLD void memlord_i_put_leak(memlord_i_out *o, memlord *lord,
                                              const memlord_i_leak *leak) {
    const char *tag = memlord_i_leak_tag(lord, leak);
    memlord_i_put_device(o, memlord_i_device_at(lord, leak->slot)->device);
    if (tag) memlord_i_putf(o, " [%s]", tag);
    if (leak->scope) memlord_i_putf(o, " in %s", memlord_i_scope_at(lord, leak->scope)->path);
    memlord_i_putf(o, "  %p", (const void *)memlord_i_leak_site(lord, leak));
}

/* One walk: the largest blocks, how many there are of each size, who made those of late, and what
   each scope still holds. */
static int memlord_i_visit_report(memlord *lord, const memlord_i_entry *e, void *user) {
    memlord_i_report *r = (memlord_i_report *)user;
    uint64_t bytes = MEMLORD_I_BYTES(e->word1), plain = memlord_i_word2_of(e->word2);
    uint32_t slot = MEMLORD_I_SLOT(e->word1), scope = memlord_i_scope_of(lord, plain), size = 0;
    for (; bytes >> size; size++) {}
    if (slot <= r->devices) r->sizes[slot - 1][size]++; /* one may have come meanwhile */
    if (memlord_i_mark_of(lord, plain) >= r->mark)
        memlord_i_leak_add(lord, &r->leaks, plain, slot, bytes);
    if (scope && scope <= r->scopes && r->scoped) {
        r->scoped[scope].bytes += bytes;
        r->scoped[scope].blocks++;
    }
    if ((e->word2 & 1) && memlord_i_side_of(e->word2)->parts) r->parted = 1;
    return memlord_i_visit_top(lord, e, &r->top);
}

/* -- lifetimes: of blocks whose beginning and end are in the ring -- */

typedef struct memlord_i_span { /* open addressing; stamp 0: ended */
    uint64_t key, stamp;
} memlord_i_span;

static void memlord_i_lifetime_add(memlord_i_report *r, uint32_t slot, uint64_t ns) {
    uint32_t class_of = ns < 100000000u ? 0 : ns < 1000000000u ? 1 : ns < 10000000000u ? 2 : 3;
    if (slot && slot <= r->devices) r->lifetime[slot - 1][class_of]++;
}

static void memlord_i_lifetime_event(memlord_i_report *r, memlord_i_span *spans, uint64_t mask,
                                     const memlord_i_read *e) {
    uint32_t kind = MEMLORD_I_NOTE_KIND(e->what), slot = MEMLORD_I_NOTE_SLOT(e->what);
    int begins = kind == MEMLORD_EVENT_ALLOC || kind == MEMLORD_EVENT_MOVE;
    uint64_t key = e->storage, at;
    if (!slot || !(begins || kind == MEMLORD_EVENT_FREE)) return;
    key ^= (uint64_t)(r->lord->slot_type[slot] + 1u) << 57;
    for (at = (key * 0x9e3779b97f4a7c15u) >> 20 & mask; spans[at].key; at = (at + 1) & mask)
        if (spans[at].key == key) break;
    if (begins) {
        spans[at].key = key;
        spans[at].stamp = e->stamp ? e->stamp : 1;
    } else if (spans[at].key && spans[at].stamp) {
        memlord_i_lifetime_add(r, slot,
                               memlord_i_span_ns(&r->scale, e->stamp - spans[at].stamp));
        spans[at].stamp = 0;
    }
}

/* Without memory they are not known. */
static MEMLORD_I_COLD void memlord_i_report_lifetimes(memlord_i_report *r) {
    const memlord_i_ring *ring = (memlord_i_ring *)memlord_i_ptr_load_acquire(&r->lord->ring);
    uint64_t size = 64;
    memlord_i_reading reading;
    memlord_i_read e;
    memlord_i_span *spans;
    if (!ring) return;
    while (size < ring->capacity + ring->capacity / 4) size *= 2; /* half of them begin at most */
    spans = (memlord_i_span *)memlord_i_alloc(r->lord, (size_t)size * sizeof *spans);
    if (!spans) return;
    if (memlord_i_reading_begin(r->lord, &reading)) {
        r->lifetimes = 1;
        while (memlord_i_reading_next(&reading, &e))
            memlord_i_lifetime_event(r, spans, size - 1, &e);
        memlord_i_reading_end(&reading);
    }
    memlord_i_free(r->lord, spans, (size_t)size * sizeof *spans);
}

/* The checkpoint with the most live bytes; NULL: none has a name. */
static const char *memlord_i_report_peak_name(const memlord_i_report *r) {
    const memlord_i_snapshot *best = NULL;
    uint32_t i;
    for (i = 0; i < r->snapshots; i++)
        if (r->snapshot[i]->name && (!best || r->snapshot[i]->live > best->live))
            best = r->snapshot[i];
    return best ? best->name : NULL;
}

/* 1: tag a comes before b. */
static int memlord_i_tag_before(const memlord_tag_stat *a, const memlord_tag_stat *b) {
    if ((a->variance != 0) != (b->variance != 0)) return a->variance != 0;
    return a->allocated != b->allocated ? a->allocated > b->allocated : a->peak > b->peak;
}

/* 1: its bytes are in the place it belongs to. Files mapped are page cache, and not. */
static int memlord_i_slot_fills(const memlord *lord, uint32_t slot) {
    return lord->slot_type[slot] != MEMLORD_DEVICE_MAPPED;
}

/* How what is used of a place is shared out: what the ledger knows, the rest of this process,
   the others. The fullest first, those last of which that is not known. */
static void memlord_i_report_places(memlord_i_report *r) {
    uint32_t i, k;
    for (i = 0; i <= r->devices; i++) {
        memlord_i_place *place = memlord_i_place_number(r->lord, i);
        memlord_i_place_line line;
        uint64_t now = memlord_i_clock(r->lord), mine;
        size_t at;
        if (!place) continue;
        memset(&line, 0, sizeof line);
        memlord_i_lock_take(&place->lock);
        line.place = place;
        line.device = place->device;
        line.sample = place->sample;
        line.sample.age_ns = now > place->sampled ? now - place->sampled : 0;
        line.limit = place->limit;
        line.held = place->held;
        memlord_i_lock_drop(&place->lock);
        if (!line.sample.known && !line.limit) continue;
        for (k = 1; k <= r->devices; k++)
            if (memlord_i_place_at(r->lord, k) == place && memlord_i_slot_fills(r->lord, k))
                line.self = memlord_i_add(line.self, r->stat[k - 1].allocated);
        mine = line.sample.process > line.self ? line.sample.process : line.self;
        line.rest = mine - line.self;
        line.others = line.sample.used > mine ? line.sample.used - mine : 0;
        line.full = line.sample.known ? memlord_i_used_percent(&line.sample) : -1;
        for (at = r->places++; at && r->place[at - 1].full < line.full; at--)
            r->place[at] = r->place[at - 1];
        r->place[at] = line;
    }
}
/* The place of a device among those shown; NULL: neither its capacity nor a limit is known. */
static memlord_i_place_line *memlord_i_report_place(memlord_i_report *r, uint32_t slot) {
    const memlord_i_place *place = memlord_i_place_at(r->lord, slot);
    size_t i;
    for (i = 0; i < r->places; i++)
        if (r->place[i].place == place) return &r->place[i];
    return NULL;
}

static void memlord_i_report_order(memlord_i_report *r) {
    uint32_t i, at;
    for (i = 0; i < r->devices; i++) {
        for (at = i; at && r->stat[r->device_order[at - 1]].peak < r->stat[i].peak; at--)
            r->device_order[at] = r->device_order[at - 1];
        r->device_order[at] = i;
    }
}

/* Reads every tag's row once, for all lists that have it. */
static void memlord_i_report_tags(memlord_i_report *r) {
    uint32_t i;
    size_t k;
    for (i = 1; i <= r->tags; i++) {
        memlord_i_tag_line *line = &r->tag[i];
        line->slot = memlord_i_row_at(r->lord, MEMLORD_I_TAG, i)->slot;
        line->place = memlord_i_report_place(r, line->slot);
        memlord_i_tag_stat(r->lord, i, &line->stat);
        if (line->place && memlord_i_slot_fills(r->lord, line->slot))
            line->place->tagged += line->stat.allocated;
        k = r->tag_lines;
        if (k < MEMLORD_I_TOP_TAGS)
            r->tag_lines++;
        else if (!memlord_i_tag_before(&line->stat, &r->top_tag[--k]->stat))
            continue;
        for (; k && memlord_i_tag_before(&line->stat, &r->top_tag[k - 1]->stat); k--)
            r->top_tag[k] = r->top_tag[k - 1];
        r->top_tag[k] = line;
    }
}

/* The accounts open now, the largest first, as long as there is room for them. */
static void memlord_i_report_accounts(memlord_i_report *r) {
    memlord *lord = r->lord;
    uint32_t i;
    memlord_i_lock_take(&memlord_i_process.cold);
    for (i = 1; i < memlord_i_u32_load(&lord->balance_count); i++) {
        memlord_account_stat s;
        if (!memlord_i_account_read_locked(memlord_i_balance_at(lord, i), &s)) continue;
        r->accounts++;
        r->account_lines = memlord_i_rank(r->account, r->account_lines, MEMLORD_I_TOP_ACCOUNTS, &s,
                                          sizeof s, offsetof(memlord_account_stat, bytes));
    }
    memlord_i_lock_drop(&memlord_i_process.cold);
}

static void memlord_i_report_capture(memlord *lord, memlord_i_report *r) {
    memlord_i_query all = memlord_i_query_of(memlord_device_all());
    uint32_t i;
    r->lord = lord;
    r->uptime = memlord_i_clock(lord) - lord->started;
    r->scale = memlord_i_scale_now(lord);
    r->scopes = memlord_i_scopes(lord) - 1;
    r->scoped = (memlord_i_tally *)memlord_i_alloc(lord, (r->scopes + 1) * sizeof *r->scoped);
    r->site_rows = memlord_i_rows(lord, MEMLORD_I_SITE) - 1;
    r->mark = MEMLORD_I_BORN(memlord_i_u64_load(&lord->born));
    r->tags = memlord_i_rows(lord, MEMLORD_I_TAG) - 1;
    r->tag = (memlord_i_tag_line *)memlord_i_alloc(lord, (r->tags + 1) * sizeof *r->tag);
    if (!r->tag) {
        r->tags = 0;
        r->result = MEMLORD_E_NOMEM;
    }
    r->devices = memlord_i_rows(lord, MEMLORD_I_DEVICE) - 1;
    for (i = 0; i < r->devices; i++) {
        memlord_i_stats(lord, i + 1, &r->stat[i]);
        if (i)
            memlord_i_stats_add(&r->total, &r->stat[i]);
        else
            r->total = r->stat[i];
    }
    r->total.limit = memlord_i_limits(lord, all.sel);
    memlord_i_report_places(r);
    memlord_i_report_accounts(r);
    memlord_i_stats_lost(lord, &r->total);
    memlord_i_report_order(r);
    memlord_i_report_tags(r);
    if (!r->whole) return;
    /* When little is left alive, who held it is the question. */
    r->by_peak = r->total.allocated < r->total.peak / 4;
    r->sites = memlord_i_sites_top(
        lord, all.sel, r->by_peak ? MEMLORD_SITE_ORDER_PEAK_BYTES : MEMLORD_SITE_ORDER_LIVE_BYTES,
        r->site, MEMLORD_I_TOP_SITES, 1);
    memlord_i_report_lifetimes(r);
    r->top.at = r->block;
    r->top.cap = MEMLORD_I_TOP_BLOCKS;
    memlord_i_visit(lord, &all, memlord_i_visit_report, r);
    r->blocks = memlord_i_top_sort(lord, &r->top);
    memlord_i_leaks_sort(&r->leaks, MEMLORD_I_LEAKS_SHOWN);
}

/* -- TEXT: a first screen of at most 25 lines, then what did not fit it -- */

static int memlord_i_report_device(const memlord_i_report *r, uint32_t slot) {
    return memlord_i_coded(memlord_i_device_at(r->lord, slot)->device);
}

static void memlord_i_text_device(memlord_i_report *r, memlord_device d, const char *label,
                                  const memlord_stats *s) {
    memlord_i_putf(r->o, "%-16i%12jo%12jo%11ju%12ju%12ju%14jo", memlord_i_coded(d), s->allocated,
                   s->peak, s->live_blocks, s->allocs, s->frees, s->total_allocated);
    if (label) memlord_i_putf(r->o, "  %s", label);
    memlord_i_puts(r->o, "\n");
}

static void memlord_i_text_more(memlord_i_report *r, size_t left, const char *what) {
    memlord_i_putf(r->o, "... and %ju", (uint64_t)left);
    memlord_i_puts(r->o, what);
}

/* How many of `have` rows fit `most` lines, when a line says that there are more. */
static size_t memlord_i_text_fit(size_t have, size_t most) {
    return have <= most ? have : most - 1;
}

static void memlord_i_text_devices(memlord_i_report *r, size_t most) {
    size_t i, shown = memlord_i_text_fit(r->devices, most);
    memlord_i_puts(r->o, "\ndevice                  live        peak     blocks      allocs"
                         "       frees  allocated in all\n");
    for (i = 0; i < shown; i++) {
        uint32_t n = r->device_order[i];
        memlord_i_device *device = memlord_i_device_at(r->lord, n + 1);
        const char *label = (const char *)memlord_i_ptr_load_acquire(&device->label);
        memlord_i_text_device(r, device->device, label, &r->stat[n]);
    }
    if (shown < r->devices) memlord_i_text_more(r, r->devices - shown, " more devices\n");
    if (r->devices > 1) memlord_i_text_device(r, memlord_device_all(), NULL, &r->total);
}

static void memlord_i_text_tag(memlord_i_report *r, const memlord_i_tag_line *line) {
    const memlord_tag_stat *s = &line->stat;
    memlord_i_putf(r->o, "%-16s%12jo%12jo%11ju", s->tag, s->allocated, s->peak, s->blocks);
    if (s->expected)
        memlord_i_putf(r->o, "%12jo%+12jd", s->expected, s->variance);
    else
        memlord_i_pad(r->o, 0, 24);
    memlord_i_putf(r->o, "  %i\n", memlord_i_report_device(r, line->slot));
}

static void memlord_i_text_tags(memlord_i_report *r, size_t most) {
    size_t i, shown = memlord_i_text_fit(r->tags, most);
    if (!r->tags) return;
    if (shown > r->tag_lines) shown = r->tag_lines;
    memlord_i_puts(r->o, "\ntag                     live        peak     blocks    expected"
                         "    variance  device\n");
    for (i = 0; i < shown; i++) memlord_i_text_tag(r, r->top_tag[i]);
    if (shown < r->tags) memlord_i_text_more(r, r->tags - shown, " more tags\n");
}

static void memlord_i_text_sites(memlord_i_report *r, size_t most) {
    size_t i, shown = r->sites < most ? r->sites : most;
    uint64_t sum = 0;
    if (!shown) return;
    for (i = 0; i < shown; i++) sum += r->site[i].live_bytes;
    memlord_i_putf(r->o,
                   "\n        live        peak      allocs   allocated  hotspots by %s: %ju of %ju "
                   "sites, %jo live\n",
                   r->by_peak ? "peak" : "live", (uint64_t)shown,
                   (uint64_t)memlord_i_rows(r->lord, MEMLORD_I_SITE) - 1, sum);
    for (i = 0; i < shown; i++) {
        const memlord_site_stat *s = &r->site[i];
        memlord_i_putf(r->o, "%12jo%12jo%12ju%12jo  %p", s->live_bytes, s->peak_bytes, s->allocs,
                       s->alloc_bytes, (const void *)s->site);
        if (r->devices > 1) memlord_i_putf(r->o, " on %i", memlord_i_coded(s->device));
        memlord_i_puts(r->o, "\n");
    }
}

static void memlord_i_text_limit(memlord_i_out *o, uint64_t limit) {
    if (limit)
        memlord_i_putf(o, "%12jo", limit);
    else
        memlord_i_puts(o, "           -");
}

static void memlord_i_text_places(memlord_i_report *r, size_t most) {
    size_t i, shown = memlord_i_text_fit(r->places, most);
    if (!r->places) return;
    memlord_i_puts(r->o, "\ncapacity               total        used        free        self"
                         "   this process      others       limit\n");
    for (i = 0; i < shown; i++) {
        const memlord_i_place_line *line = &r->place[i];
        const memlord_capacity *s = &line->sample;
        memlord_i_putf(r->o, "%-16i", memlord_i_coded(line->device));
        if (s->known) {
            memlord_i_putf(r->o, "%12jo%12jo%12jo%12jo", s->total, s->used, s->total - s->used,
                           line->self);
            if (s->process)
                memlord_i_putf(r->o, "%15jo", line->rest);
            else
                memlord_i_puts(r->o, "              -");
            memlord_i_putf(r->o, "%12jo", line->others);
        } else {
            memlord_i_putf(r->o, "     unknown%24s%12jo%27s", "", line->self, "");
        }
        memlord_i_text_limit(r->o, line->limit);
        memlord_i_puts(r->o, "\n");
    }
    if (shown < r->places) memlord_i_text_more(r, r->places - shown, " more\n");
}

/* One line for a device with bytes that are freed, and counted until it is done with them. */
static void memlord_i_text_pending(memlord_i_report *r, uint32_t i) {
    if (r->stat[i].pending)
        memlord_i_putf(r->o,
                       "pending, %i: %jo of what is live are freed, and wait for the device\n",
                       memlord_i_report_device(r, i + 1), r->stat[i].pending);
}

/* One line for a device that collected, or ran out. */
static void memlord_i_text_trouble(memlord_i_report *r, uint32_t i) {
    const memlord_stats *s = &r->stat[i];
    int device = memlord_i_report_device(r, i + 1);
    memlord_i_oom oom;
    if (s->gc_runs | s->gc_failed)
        memlord_i_putf(r->o, "collections, %i: %ju ran, %ju could not, reclaimed %jo\n", device,
                       s->gc_runs, s->gc_failed, s->gc_reclaimed);
    if (!s->oom_attempts) return;
    oom = memlord_i_oom_of(r->lord, i + 1);
    memlord_i_putf(r->o,
                   "out of memory, %i: %ju attempts found none, %ju requests saved, %ju failed",
                   device, s->oom_attempts, s->recoveries, s->oom_failures);
    if (oom.at) {
        memlord_i_putf(r->o, "; the last of %jo with live %jo", oom.bytes, oom.live);
        if (oom.used != UINT64_MAX) memlord_i_putf(r->o, ", used %jo", oom.used);
        if (oom.site) memlord_i_putf(r->o, " at %p", (const void *)oom.site);
    }
    memlord_i_puts(r->o, "\n");
}

/* One line for a device whose host runs a pool of its own. */
static void memlord_i_text_pool(memlord_i_report *r, uint32_t i) {
    const memlord_stats *s = &r->stat[i];
    uint64_t asked = s->cache_hits + s->cache_misses;
    if (!s->reserved_peak) return;
    memlord_i_putf(r->o, "pool, %i: reserved %jo (peak %jo), cached %jo or %g, fragmentation %g",
                   memlord_i_report_device(r, i + 1), s->reserved, s->reserved_peak, s->cached,
                   memlord_cached_ratio(s) * 100, memlord_fragmentation(s) * 100);
    if (asked) memlord_i_putf(r->o, ", hits %g", (double)s->cache_hits * 100 / (double)asked);
    memlord_i_puts(r->o, "\n");
}

/* "sizes, cpu: 12 from 64 B, 3 from 1 MiB": each up to twice that. */
static void memlord_i_text_sizes(memlord_i_report *r, uint32_t i) {
    uint32_t size, n = 0;
    for (size = 0; size < MEMLORD_I_SIZES; size++) {
        if (!r->sizes[i][size]) continue;
        if (n++)
            memlord_i_puts(r->o, ", ");
        else
            memlord_i_putf(r->o, "sizes of live blocks, %i: ", memlord_i_report_device(r, i + 1));
        memlord_i_putf(r->o, "%ju from %jo", r->sizes[i][size],
                       size ? (uint64_t)1 << (size - 1) : 0);
    }
    if (n) memlord_i_puts(r->o, "\n");
}

static void memlord_i_text_accounts(memlord_i_report *r) {
    size_t i;
    if (!r->accounts) return;
    memlord_i_putf(r->o,
                   "\n       bytes        peak       limit     refused  accounts: %ju of %ju\n",
                   (uint64_t)r->account_lines, (uint64_t)r->accounts);
    for (i = 0; i < r->account_lines; i++) {
        const memlord_account_stat *s = &r->account[i];
        memlord_i_putf(r->o, "%12jo%12jo", s->bytes, s->peak);
        memlord_i_text_limit(r->o, s->limit);
        memlord_i_putf(r->o, "%12ju  %s on %i\n", s->refused, s->name, memlord_i_coded(s->device));
    }
}

/* "[4096,128]"; nothing of rank 0. */
static void memlord_i_put_shape(memlord_i_out *o, const memlord_meta *meta, const char *between) {
    uint32_t i;
    for (i = 0; i < meta->rank; i++) {
        memlord_i_puts(o, i ? between : "[");
        memlord_i_put_i64(o, meta->shape[i]);
    }
    if (meta->rank) memlord_i_puts(o, "]");
}
static void memlord_i_text_meta(memlord_i_out *o, const memlord_meta *meta) {
    if (meta->name) memlord_i_putf(o, " %s", meta->name);
    if (meta->dtype || meta->rank) memlord_i_puts(o, " ");
    if (meta->dtype) memlord_i_put_plain(o, meta->dtype);
    memlord_i_put_shape(o, meta, "x");
}

/* The first parts of a block, under it. */
static void memlord_i_text_parts(memlord_i_report *r, const memlord_block_info *b) {
    uint64_t count, bytes;
    size_t i, n = memlord_i_parts_copy(r->lord, (uint32_t)b->device.type, b->storage, 0, r->part, 8,
                                       &count, &bytes);
    for (i = 0; i < n; i++) {
        const memlord_part_info *part = &r->part[i];
        memlord_i_putf(r->o, "%22jo at %ju", part->bytes, part->offset);
        if (part->meta.tag) memlord_i_putf(r->o, " [%s]", part->meta.tag);
        memlord_i_text_meta(r->o, &part->meta);
        memlord_i_puts(r->o, "\n");
    }
    if (count > n)
        memlord_i_putf(r->o, "          ... and %ju more parts, %jo in all\n", count - n, bytes);
}

static void memlord_i_text_blocks(memlord_i_report *r, size_t most, int parts) {
    size_t i, shown = r->blocks < most ? r->blocks : most;
    uint64_t sum = 0;
    if (!shown) return;
    for (i = 0; i < shown; i++) sum += r->block[i].bytes;
    memlord_i_putf(r->o, "\n       bytes    refs  largest blocks: %ju of %ju, %jo\n",
                   (uint64_t)shown, r->total.live_blocks, sum);
    for (i = 0; i < shown; i++) {
        const memlord_block_info *b = &r->block[i];
        memlord_i_putf(r->o, "%12jo%8ju  %i %jx", b->bytes, b->refs, memlord_i_coded(b->device),
                       b->storage);
        if (b->tag) memlord_i_putf(r->o, " [%s]", b->tag);
        memlord_i_text_meta(r->o, &b->meta);
        if (b->scope) memlord_i_putf(r->o, " in %s", b->scope);
        if (b->site) memlord_i_putf(r->o, "  %p", (const void *)b->site);
        memlord_i_puts(r->o, b->pending ? " (pending)\n" : "\n");
        if (parts) memlord_i_text_parts(r, b);
    }
}

/* -- TEXT, second part: scopes, snapshots, the peak, leaks -- */

static void memlord_i_text_scopes(memlord_i_report *r) {
    uint32_t id, shown = r->scopes < MEMLORD_I_TOP_SITES ? r->scopes : MEMLORD_I_TOP_SITES;
    if (!shown) return;
    memlord_i_puts(r->o, "\n   count  delta in all   delta avg  peak inside  still held"
                         "   time in all    time avg  scope\n");
    for (id = 1; id <= shown; id++) {
        memlord_scope_stat s;
        memlord_i_scope_sum(r->lord, memlord_i_scope_at(r->lord, id), &r->scale, &s, NULL);
        memlord_i_putf(r->o, "%8ju%14jd%12jd%13jo", s.count, s.bytes.total,
                       s.count ? s.bytes.total / (int64_t)s.count : 0, s.peak);
        if (r->scoped)
            memlord_i_putf(r->o, "%12jo", r->scoped[id].bytes);
        else
            memlord_i_puts(r->o, "     unknown");
        memlord_i_putf(r->o, "%14jX%12jX  %s", s.ns.total, s.count ? s.ns.total / s.count : 0,
                       s.path);
        if (s.device_ns) memlord_i_putf(r->o, ", on its device %jX", s.device_ns);
        memlord_i_puts(r->o, s.running ? " (running)\n" : "\n");
    }
    if (shown < r->scopes) memlord_i_text_more(r, r->scopes - shown, " more scopes\n");
}

/* One line for each checkpoint, as long as they are few; one for all snapshots. */
static void memlord_i_text_snapshots(memlord_i_report *r) {
    uint32_t i, named = 0;
    const char *peak = memlord_i_report_peak_name(r);
    if (!r->snapshots) return;
    for (i = 0; i < r->snapshots; i++) named += r->snapshot[i]->name != NULL;
    memlord_i_putf(r->o, "\nsnapshots: %ju, checkpoints %ju", (uint64_t)r->snapshots,
                   (uint64_t)named);
    if (peak) memlord_i_putf(r->o, ", most at %s", peak);
    memlord_i_puts(r->o, "\n");
    for (i = 0; i < r->snapshots && named <= 20; i++) {
        const memlord_i_snapshot *s = r->snapshot[i];
        if (s->name)
            memlord_i_putf(r->o, "%12jX%12jo%11ju blocks  %s\n", s->at, s->live, s->blocks,
                           s->name);
    }
}

/* "at the peak of cpu, 12 MiB: by tag: weights 8 MiB, ...; by site: ..." */
static void memlord_i_text_holders(memlord_i_report *r, uint32_t slot) {
    memlord_i_holders *h = &r->holders;
    size_t i;
    if (!memlord_i_holders_get(r->lord, slot, h)) return;
    if (h->tags == 1 && !h->tag[0].tag) h->tags = 0; /* nothing is tagged */
    if (!(h->tags | h->sites)) return;
    memlord_i_putf(r->o, "at the peak of %i, with %jo", memlord_i_report_device(r, slot), h->bytes);
    for (i = 0; i < h->tags && i < 6; i++)
        memlord_i_putf(r->o, i ? ", %s %jo" : ": by tag: %s %jo",
                       h->tag[i].tag ? h->tag[i].tag : "(untagged)", h->tag[i].allocated);
    for (i = 0; i < h->sites && i < 4; i++) {
        memlord_i_puts(r->o, i ? ", " : h->tags ? "; by site: " : ": by site: ");
        memlord_i_putf(r->o, "%p %jo",
                       (const void *)memlord_i_site_named(r->lord, h->site[i].site),
                       h->site[i].live_bytes);
    }
    memlord_i_puts(r->o, "\n");
}

static void memlord_i_text_lifetimes(memlord_i_report *r, uint32_t i) {
    const uint64_t *n = r->lifetime[i];
    if (r->lifetimes)
        memlord_i_putf(
            r->o, "lifetimes, %i: %ju under 0.1 s, %ju under 1 s, %ju under 10 s, %ju longer\n",
            memlord_i_report_device(r, i + 1), n[0], n[1], n[2], n[3]);
}

/* Only after a mark: before one, everything is born since. */
static void memlord_i_text_leaks(memlord_i_report *r) {
    size_t i;
    if (!r->mark || !r->leaks.sum.blocks) return;
    memlord_i_putf(r->o,
                   "\n       bytes     blocks  live and born since mark %ju: %ju blocks, %jo\n",
                   r->mark, r->leaks.sum.blocks, r->leaks.sum.bytes);
    for (i = 0; i < r->leaks.lines && i < 20; i++) {
        const memlord_i_leak *leak = &r->leaks.at[i];
        memlord_i_putf(r->o, "%12jo%11ju  ", leak->bytes, leak->blocks);
        memlord_i_put_leak(r->o, r->lord, leak);
        memlord_i_puts(r->o, "\n");
    }
}

/* The largest tag of a place after `last` (NULL: of all); NULL: there is none. */
static memlord_i_tag_line *const *memlord_i_text_tag_after(const memlord_i_report *r,
                                                           const memlord_i_place_line *place,
                                                           memlord_i_tag_line *const *last) {
    memlord_i_tag_line *const *best = NULL, *const *tag;
    for (tag = r->top_tag; tag < r->top_tag + r->tag_lines; tag++) {
        uint64_t bytes = (*tag)->stat.allocated, after = last ? (*last)->stat.allocated : bytes;
        if (!bytes || (*tag)->place != place || !memlord_i_slot_fills(r->lord, (*tag)->slot))
            continue;
        if (last && (bytes > after || (bytes == after && tag <= last))) continue;
        if (!best || bytes > (*best)->stat.allocated) best = tag;
    }
    return best;
}
/* " (weights 40 GiB, ..., untagged 1 GiB)": what a place holds of ours. */
static void memlord_i_text_self(memlord_i_report *r, const memlord_i_place_line *line) {
    memlord_i_tag_line *const *tag = NULL;
    uint64_t left = line->tagged;
    unsigned shown = 0;
    if (!line->tagged) return;
    while (shown < 6 && (tag = memlord_i_text_tag_after(r, line, tag)) != NULL) {
        const memlord_tag_stat *s = &(*tag)->stat;
        memlord_i_putf(r->o, shown++ ? ", %s %jo" : " (%s %jo", s->tag, s->allocated);
        left -= s->allocated;
    }
    if (left) memlord_i_putf(r->o, shown ? ", other tags %jo" : " (other tags %jo", left);
    if (line->self > line->tagged)
        memlord_i_putf(r->o, ", untagged %jo", line->self - line->tagged);
    memlord_i_puts(r->o, ")");
}

/* "cuda:0: total 80 GiB = free 20 GiB + self 50 GiB (weights 40 GiB, ...) + unaccounted 10 GiB" */
static void memlord_i_text_balance(memlord_i_report *r, const memlord_i_place_line *line) {
    uint64_t used = line->sample.used;
    if (!line->sample.known) return;
    memlord_i_putf(r->o, "%i: total %jo = free %jo + self %jo", memlord_i_coded(line->device),
                   line->sample.total, line->sample.total - used, line->self);
    memlord_i_text_self(r, line);
    if (used < line->self)
        memlord_i_putf(r->o, " - unaccounted %jo (less is in use than was recorded)\n",
                       line->self - used);
    else
        memlord_i_putf(r->o, " + unaccounted %jo\n", used - line->self);
}

/* What is not a device's and is not there: without room, or no longer kept. */
static void memlord_i_text_lost(memlord_i_report *r) {
    const uint64_t scopes = memlord_i_lost(r->lord, MEMLORD_I_LOST_scopes);
    const uint64_t invocations = memlord_i_lost(r->lord, MEMLORD_I_LOST_scope_invocations);
    const uint64_t snapshots = memlord_i_lost(r->lord, MEMLORD_I_LOST_snapshots);
    if (scopes) memlord_i_putf(r->o, "no room for %ju scopes\n", scopes);
    if (invocations | snapshots)
        memlord_i_putf(r->o, "no longer kept: %ju invocations of scopes, %ju snapshots\n",
                       invocations, snapshots);
}

/* The next anomaly or drop there is of a device, slot 0 of all: its name and number, *i from 0 on.
   Before `end`: with MEMLORD_I_COLUMNS, those of the ledger too. NULL: no more. */
static MEMLORD_I_COLD const char *memlord_i_odd_next(memlord_i_report *r, uint32_t slot, size_t end,
                                                     size_t *i, uint64_t *v) {
    memlord_stats *s = slot ? &r->stat[slot - 1] : &r->total;
    while (*i < end) {
        size_t at = (*i)++;
        if (memlord_i_columns[at].kind != MEMLORD_I_KIND_ODD) continue;
        if (at >= MEMLORD_I_STAT_COUNT && slot) break;
        *v = at < MEMLORD_I_STAT_COUNT ? *memlord_i_stat_of(s, at)
                                       : memlord_i_lost(r->lord, at - MEMLORD_I_STAT_COUNT);
        if (*v) return memlord_i_columns[at].name;
    }
    return NULL;
}
static memlord_device memlord_i_odd_device(const memlord_i_report *r, uint32_t slot) {
    return slot ? memlord_i_device_at(r->lord, slot)->device : memlord_device_all();
}

/* One line, whatever the number of anomalies; each device's own are in the second part. */
static MEMLORD_I_COLD void memlord_i_text_odd(memlord_i_report *r, memlord_i_out *o,
                                              const char *head, uint32_t slot, size_t end) {
    const char *name;
    size_t i = 0;
    uint64_t v, n = 0;
    while ((name = memlord_i_odd_next(r, slot, end, &i, &v)) != NULL) {
        if (!n) {
            memlord_i_puts(o, head);
            memlord_i_put_device(o, memlord_i_odd_device(r, slot));
        }
        memlord_i_putf(o, n++ ? ", %s %ju" : " %s %ju", name, v);
    }
    if (n) memlord_i_puts(o, "\n");
}

/* How many lines each list of the first screen gets: places, devices, tags, sites, blocks. Each
   has its share of 25 lines; what one does not need goes to the next that does. */
#define MEMLORD_I_LISTS 5
static void memlord_i_text_plan(const memlord_i_report *r, size_t most[MEMLORD_I_LISTS]) {
    const size_t have[MEMLORD_I_LISTS] = {r->places, r->devices, r->tags, r->sites, r->blocks};
    const size_t full[MEMLORD_I_LISTS] = {2, 3, 2, 2, 2}, bare[MEMLORD_I_LISTS] = {0, 4, 4, 3, 2};
    const size_t *share = r->places ? full : bare;
    size_t spare = 0, i, more;
    for (i = 0; i < MEMLORD_I_LISTS; i++) {
        most[i] = share[i];
        if (have[i] < share[i]) spare += share[i] - have[i] + (have[i] ? 0 : 2);
    }
    if (r->devices == 1) spare++; /* no line for all */
    for (i = 0; i < MEMLORD_I_LISTS; i++) {
        more = have[i] > most[i] ? have[i] - most[i] : 0;
        if (more > spare) more = spare;
        most[i] += more;
        spare -= more;
    }
}

static MEMLORD_I_COLD void memlord_i_text(memlord_i_report *r) {
    size_t most[MEMLORD_I_LISTS], k;
    uint64_t more;
    uint32_t i;
    memlord_i_putf(r->o, "MemLord " MEMLORD_VERSION "  pid %ju  up ", memlord_i_pid());
    memlord_i_put_fixed(r->o, r->uptime / 100000000u, 1);
    memlord_i_putf(r->o, " s  its own memory %jo, %jX a pair",
                   memlord_i_u64_load(&r->lord->own_bytes),
                   memlord_i_u64_load(&r->lord->pair_ps) / 1000);
    if (r->total.peak_error)
        memlord_i_putf(r->o, "  peaks low by at most %jo", r->total.peak_error);
    memlord_i_puts(r->o, "\n");
    if (!r->devices) {
        memlord_i_puts(r->o, "nothing recorded\n");
        return;
    }
    memlord_i_text_plan(r, most);
    memlord_i_text_devices(r, most[1]);
    memlord_i_text_places(r, most[0]);
    memlord_i_text_tags(r, most[2]);
    memlord_i_text_sites(r, most[3]);
    memlord_i_text_blocks(r, most[4], 0);
    memlord_i_text_odd(r, r->o, "\nanomalies and drops, ", 0, MEMLORD_I_STAT_COUNT);
    more = r->total.gc_runs | r->total.gc_failed | r->total.oom_attempts | r->total.reserved_peak |
           r->total.pending | r->accounts | r->scopes | r->snapshots | (uint64_t)r->parted |
           (r->mark && r->leaks.sum.blocks) | r->places;
    if (r->devices <= most[1] && r->places <= most[0] && r->tags <= most[2] &&
        r->sites <= most[3] && r->blocks <= most[4] && !more)
        return;
    memlord_i_puts(r->o, "\n---- in full ----\n");
    if (r->devices > most[1]) memlord_i_text_devices(r, r->devices);
    if (r->places > most[0]) memlord_i_text_places(r, r->places);
    memlord_i_puts(r->o, "\n");
    for (k = 0; k < r->places; k++) memlord_i_text_balance(r, &r->place[k]);
    for (i = 0; i < r->devices; i++) memlord_i_text_holders(r, i + 1);
    for (i = 0; i < r->devices; i++) memlord_i_text_pending(r, i);
    for (i = 0; i < r->devices; i++) memlord_i_text_trouble(r, i);
    for (i = 0; i < r->devices; i++) memlord_i_text_pool(r, i);
    for (i = 0; i < r->devices; i++) memlord_i_text_sizes(r, i);
    for (i = 0; i < r->devices; i++) memlord_i_text_lifetimes(r, i);
    memlord_i_text_lost(r);
    memlord_i_text_snapshots(r);
    memlord_i_text_scopes(r);
    memlord_i_text_leaks(r);
    memlord_i_text_accounts(r);
    if (r->tags > most[2]) memlord_i_text_tags(r, MEMLORD_I_TOP_TAGS + 1);
    if (r->sites > most[3]) memlord_i_text_sites(r, MEMLORD_I_TOP_SITES);
    if (r->blocks > most[4] || r->parted) memlord_i_text_blocks(r, 20, 1);
    for (i = 1; i <= r->devices && r->devices > 1; i++)
        memlord_i_text_odd(r, r->o, i > 1 ? "anomalies and drops, " : "\nanomalies and drops, ", i,
                           MEMLORD_I_STAT_COUNT);
}

/* -- JSON, schema memlord/1 -- */

static void memlord_i_json_u64(memlord_i_out *o, const char *name, uint64_t v) {
    memlord_i_jsonf(o, ",%s:%ju", name, v);
}
static MEMLORD_I_COLD void memlord_i_json_stats(memlord_i_out *o, memlord_stats *s) {
    size_t i;
    memlord_i_puts(o, "{");
    for (i = 0; i < MEMLORD_I_STAT_COUNT; i++)
        memlord_i_json_u64(o, memlord_i_columns[i].name, *memlord_i_stat_of(s, i));
    memlord_i_puts(o, "}");
}
static void memlord_i_json_flag(memlord_i_out *o, const char *name, int on) {
    memlord_i_jsonf(o, on ? ",%s:true" : ",%s:false", name);
}
/* When something was, as a clock on the wall showed it. */
static MEMLORD_I_COLD void memlord_i_json_time(memlord_i_out *o, const char *name, uint64_t wall) {
    memlord_i_jsonf(o, ",%s:'", name);
    memlord_i_put_time(o, wall, 0);
    memlord_i_puts(o, "\"");
}

static void memlord_i_json_metadata(memlord_i_report *r) {
    memlord *lord = r->lord;
    uint64_t ps = memlord_i_u64_load(&lord->pair_ps);
    size_t i;
    memlord_i_jsonf(r->o, "{'schema':'memlord/1','version':'" MEMLORD_VERSION "','metadata':{");
    memlord_i_json_time(r->o, "generated_at", memlord_i_wall_now());
    memlord_i_jsonf(
        r->o,
        ",'pid':%ju,'labels':%s,'uptime_ns':%ju,'own_bytes':%ju,'pair_ns':%ju,'mark':%ju,"
        "'num_snapshots':%ju",
        memlord_i_pid(), lord->labels, r->uptime, memlord_i_u64_load(&lord->own_bytes),
        ps ? ps / 1000 : UINT64_MAX, r->mark, (uint64_t)r->snapshots);
    memlord_i_json_flag(r->o, "operation_tracking_enabled", r->scopes != 0);
    memlord_i_json_flag(r->o, "sites_enabled",
                        (memlord_i_u32_load(&lord->hooks) & MEMLORD_I_HOOK_SITES) != 0);
    memlord_i_json_flag(r->o, "events_enabled",
                        (memlord_i_u32_load(&lord->alert) & MEMLORD_I_ALERT_EVENTS) != 0);
    memlord_i_jsonf(r->o, ",'dropped':{");
    for (i = 0; i < MEMLORD_I_LOST; i++)
        memlord_i_json_u64(r->o,
                           memlord_i_columns[MEMLORD_I_STAT_COUNT + i].name + sizeof "dropped",
                           memlord_i_lost(lord, i));
    memlord_i_jsonf(r->o, ",'events':%ju}}", r->total.dropped_events);
}

static void memlord_i_json_lifetimes(memlord_i_report *r, uint32_t i) {
    const uint64_t *n = r->lifetime[i];
    if (r->lifetimes)
        memlord_i_jsonf(r->o, "{'under_100ms':%ju,'under_1s':%ju,'under_10s':%ju,'longer':%ju}",
                        n[0], n[1], n[2], n[3]);
    else
        memlord_i_puts(r->o, "null");
}

static void memlord_i_json_oom(memlord_i_report *r, uint32_t slot) {
    memlord_i_oom oom = memlord_i_oom_of(r->lord, slot);
    if (oom.at)
        memlord_i_jsonf(r->o, "{'bytes':%ju,'live':%ju,'used':%ju,'site':%p}", oom.bytes, oom.live,
                        oom.used, (const void *)oom.site);
    else
        memlord_i_puts(r->o, "null");
}

static void memlord_i_json_devices(memlord_i_report *r) {
    uint32_t i, size;
    memlord_i_jsonf(r->o, ",\n'total':");
    memlord_i_json_stats(r->o, &r->total);
    memlord_i_jsonf(r->o, ",\n'devices':[");
    for (i = 0; i < r->devices; i++) {
        memlord_i_device *device = memlord_i_device_at(r->lord, i + 1);
        memlord_i_jsonf(r->o, ",\n{'device':'%i','label':%s,'arena':%ju,'stats':",
                        memlord_i_coded(device->device),
                        (const char *)memlord_i_ptr_load_acquire(&device->label),
                        memlord_i_u64_load(&device->arena));
        memlord_i_json_stats(r->o, &r->stat[i]);
        memlord_i_jsonf(r->o, ",'cached_ratio':%g,'fragmentation':%g,'sizes':[",
                        memlord_cached_ratio(&r->stat[i]), memlord_fragmentation(&r->stat[i]));
        for (size = 0; size < MEMLORD_I_SIZES; size++)
            if (r->sizes[i][size])
                memlord_i_jsonf(r->o, ",{'from':%ju,'blocks':%ju}",
                                size ? (uint64_t)1 << (size - 1) : 0, r->sizes[i][size]);
        memlord_i_jsonf(r->o, "],'lifetimes':");
        memlord_i_json_lifetimes(r, i);
        memlord_i_jsonf(r->o, ",'last_oom':");
        memlord_i_json_oom(r, i + 1);
        memlord_i_puts(r->o, "}");
    }
    memlord_i_puts(r->o, "]");
}

static void memlord_i_json_place(memlord_i_report *r, const memlord_i_place_line *line) {
    const memlord_capacity *s = &line->sample;
    const uint64_t none = UINT64_MAX;
    uint32_t slot;
    memlord_i_jsonf(r->o,
                    ",\n{'device':'%i','total':%ju,'used':%ju,'free':%ju,'self':%ju,"
                    "'untagged':%ju,'unaccounted':",
                    memlord_i_coded(line->device), s->known ? s->total : none,
                    s->known ? s->used : none, s->known ? s->total - s->used : none, line->self,
                    line->self > line->tagged ? line->self - line->tagged : 0);
    if (s->known)
        memlord_i_jsonf(r->o, "%jd", (int64_t)(s->used - line->self));
    else
        memlord_i_puts(r->o, "null");
    memlord_i_jsonf(r->o, ",'devices':[");
    for (slot = 1; slot <= r->devices; slot++) /* whose bytes are in it */
        if (memlord_i_report_place(r, slot) == line && memlord_i_slot_fills(r->lord, slot))
            memlord_i_jsonf(r->o, ",'%i'", memlord_i_report_device(r, slot));
    memlord_i_jsonf(r->o, "],'process':%ju,'others':%ju,'age_ns':%ju,'limit':%ju,'held':%ju}",
                    s->known && s->process ? s->process : none, s->known ? line->others : none,
                    s->known ? s->age_ns : none, line->limit ? line->limit : none, line->held);
}

static void memlord_i_json_places(memlord_i_report *r) {
    size_t i;
    memlord_i_jsonf(r->o, ",\n'capacity':[");
    for (i = 0; i < r->places; i++) memlord_i_json_place(r, &r->place[i]);
    memlord_i_puts(r->o, "]");
}

static void memlord_i_json_accounts(memlord_i_report *r) {
    size_t i;
    memlord_i_jsonf(r->o, ",\n'accounts':{'open':%ju,'largest':[", (uint64_t)r->accounts);
    for (i = 0; i < r->account_lines; i++) {
        const memlord_account_stat *s = &r->account[i];
        memlord_i_jsonf(r->o,
                        ",\n{'name':%s,'device':'%i','bytes':%ju,'peak':%ju,'limit':%ju,"
                        "'refused':%ju}",
                        s->name, memlord_i_coded(s->device), s->bytes, s->peak,
                        s->limit ? s->limit : UINT64_MAX, s->refused);
    }
    memlord_i_puts(r->o, "]}");
}

static void memlord_i_json_tags(memlord_i_report *r) {
    uint32_t i;
    memlord_i_jsonf(r->o, ",\n'tags':[");
    for (i = 1; i <= r->tags; i++) {
        const memlord_tag_stat *s = &r->tag[i].stat;
        memlord_i_jsonf(r->o,
                        ",\n{'tag':%s,'device':'%i','allocated':%ju,'peak':%ju,'blocks':%ju,"
                        "'expected':%ju,'variance':%jd}",
                        s->tag, memlord_i_report_device(r, r->tag[i].slot), s->allocated, s->peak,
                        s->blocks, s->expected, s->variance);
    }
    memlord_i_puts(r->o, "]");
}

static void memlord_i_json_sites(memlord_i_report *r) {
    uint32_t i, rows = memlord_i_rows(r->lord, MEMLORD_I_SITE);
    memlord_i_jsonf(r->o, ",\n'sites':[");
    for (i = 1; i < rows; i++) {
        memlord_site_stat s;
        memlord_i_site_stat(r->lord, i, &s);
        if (!(s.alloc_bytes | s.free_bytes | s.allocs | s.frees | s.live_bytes)) continue;
        memlord_i_jsonf(r->o,
                        ",\n{'site':%p,'device':'%i','alloc_bytes':%ju,'free_bytes':%ju,"
                        "'allocs':%ju,'frees':%ju,'live_bytes':%ju,'peak_bytes':%ju}",
                        (const void *)s.site, memlord_i_coded(s.device), s.alloc_bytes,
                        s.free_bytes, s.allocs, s.frees, s.live_bytes, s.peak_bytes);
    }
    memlord_i_puts(r->o, "]");
}

/* -- JSON: scopes -- */

/* "name_mb":1.00,"name_bytes":1048576: MiB for people and older readers, bytes for the truth. */
static MEMLORD_I_COLD void memlord_i_json_mb(memlord_i_out *o, const char *name, int64_t bytes) {
    uint64_t size = bytes < 0 ? (uint64_t)0 - (uint64_t)bytes : (uint64_t)bytes;
    memlord_i_jsonf(o, ",'");
    memlord_i_puts(o, name);
    memlord_i_jsonf(o, bytes < 0 ? "_mb':-" : "_mb':");
    memlord_i_put_fixed(o, (size >> 20) * 100 + (((size & 0xfffffu) * 100 + 0x80000u) >> 20), 2);
    memlord_i_jsonf(o, ",'");
    memlord_i_puts(o, name);
    memlord_i_jsonf(o, "_bytes':%jd", bytes);
}
static void memlord_i_json_four(memlord_i_out *o, const char *name, int64_t total, int64_t avg,
                                int64_t min, int64_t max) {
    memlord_i_jsonf(o, ",%s:{'total':%jd,'avg':%jd,'min':%jd,'max':%jd}", name, total, avg, min,
                    max);
}

/* Calls fn for each invocation of a scope that is remembered; by stint, oldest first. */
typedef void (*memlord_i_effort_fn)(memlord_i_report *r, const memlord_i_effort *v,
                                    uint32_t thread);
static void memlord_i_report_efforts(memlord_i_report *r, const memlord_i_scope *scope,
                                     memlord_i_effort_fn fn) {
    const memlord_i_stint *s = (const memlord_i_stint *)memlord_i_ptr_load_acquire(&scope->stints);
    for (; s; s = s->next) {
        size_t i, n = memlord_i_stint_read(r->lord, s, r->effort);
        for (i = 0; i < n; i++) fn(r, &r->effort[i], s->thread / 2 - 1);
    }
}

/* [start_ns,duration_ns,thread,delta_bytes,delta_blocks,pre_bytes,post_bytes,peak_bytes,shapes] */
static MEMLORD_I_COLD void memlord_i_json_invocation(memlord_i_report *r, const memlord_i_effort *v,
                                                     uint32_t thread) {
    memlord_i_jsonf(r->o, ",\n[%jd,%jd,%ju,%jd,%jd,%jd,%jd,%jd,%s]",
                    (int64_t)memlord_i_since_ns(&r->scale, v->start),
                    (int64_t)memlord_i_span_ns(&r->scale, v->stamps), (uint64_t)thread,
                    (int64_t)v->bytes, (int64_t)v->blocks, (int64_t)v->before, (int64_t)v->after,
                    (int64_t)v->peak, v->shapes);
}
static MEMLORD_I_COLD void memlord_i_json_operation(memlord_i_report *r, const memlord_i_effort *v,
                                                    uint32_t thread) {
    (void)thread;
    memlord_i_jsonf(r->o, ",\n{");
    memlord_i_json_mb(r->o, "memory_delta", (int64_t)v->bytes);
    memlord_i_jsonf(r->o, ",'tensor_delta':%jd", (int64_t)v->blocks);
    memlord_i_json_mb(r->o, "pre_total", (int64_t)v->before);
    memlord_i_json_mb(r->o, "post_total", (int64_t)v->after);
    memlord_i_json_time(r->o, "timestamp",
                        r->lord->started_wall + memlord_i_since_ns(&r->scale, v->start));
    memlord_i_puts(r->o, "}");
}

static void memlord_i_json_scope(memlord_i_report *r, uint32_t id) {
    const memlord_i_scope *scope = memlord_i_scope_at(r->lord, id);
    memlord_scope_stat s;
    uint32_t slot;
    int64_t n;
    memset(r->deltas, 0, sizeof r->deltas);
    memlord_i_scope_sum(r->lord, scope, &r->scale, &s, r->deltas);
    n = s.count ? (int64_t)s.count : 1;
    memlord_i_jsonf(r->o, ",\n{'id':%ju,'parent':%ju,'name':%s,'path':%s,'site':%p,'count':%ju",
                    (uint64_t)id, s.parent, s.name, s.path, (const void *)s.site, s.count);
    memlord_i_json_four(r->o, "delta_bytes", s.bytes.total, s.bytes.total / n, s.bytes.min,
                        s.bytes.max);
    memlord_i_json_four(r->o, "delta_blocks", s.blocks.total, s.blocks.total / n, s.blocks.min,
                        s.blocks.max);
    memlord_i_json_u64(r->o, "peak_bytes", s.peak);
    memlord_i_json_four(r->o, "time_ns", (int64_t)s.ns.total, (int64_t)s.ns.total / n,
                        (int64_t)s.ns.min, (int64_t)s.ns.max);
    memlord_i_jsonf(r->o,
                    ",'device_time_ns':%ju,'live_bytes':%ju,'live_blocks':%ju,'running':%ju,"
                    "'devices':{",
                    s.device_ns, r->scoped ? r->scoped[id].bytes : UINT64_MAX,
                    r->scoped ? r->scoped[id].blocks : UINT64_MAX, s.running);
    for (slot = 1; slot <= r->devices; slot++)
        if (r->deltas[slot])
            memlord_i_jsonf(r->o, ",'%i':%jd", memlord_i_report_device(r, slot),
                            (int64_t)r->deltas[slot]);
    memlord_i_jsonf(r->o, "},'invocations':[");
    memlord_i_report_efforts(r, scope, memlord_i_json_invocation);
    memlord_i_puts(r->o, "]}");
}

/* The scopes; then the same once more by the keys that readers of older profiles know. */
static void memlord_i_json_scopes(memlord_i_report *r) {
    uint32_t id;
    memlord_i_jsonf(r->o, ",\n'scopes':[");
    for (id = 1; id <= r->scopes; id++) memlord_i_json_scope(r, id);
    memlord_i_jsonf(r->o, "],\n'operation_allocations':{");
    for (id = 1; id <= r->scopes; id++) {
        const memlord_i_scope *scope = memlord_i_scope_at(r->lord, id);
        memlord_i_jsonf(r->o, ",\n%s:[", scope->path);
        memlord_i_report_efforts(r, scope, memlord_i_json_operation);
        memlord_i_puts(r->o, "]");
    }
    memlord_i_jsonf(r->o, "},\n'operation_summary':{");
    for (id = 1; id <= r->scopes; id++) {
        memlord_scope_stat s;
        memlord_i_scope_sum(r->lord, memlord_i_scope_at(r->lord, id), &r->scale, &s, NULL);
        memlord_i_jsonf(r->o, ",\n%s:{'invocation_count':%ju", s.path, s.count);
        memlord_i_json_mb(r->o, "total_memory_delta", s.bytes.total);
        memlord_i_json_mb(r->o, "avg_memory_delta", s.count ? s.bytes.total / (int64_t)s.count : 0);
        memlord_i_json_mb(r->o, "max_memory_delta", s.bytes.max);
        memlord_i_puts(r->o, "}");
    }
    memlord_i_puts(r->o, "}");
}

/* -- JSON: snapshots -- */

static MEMLORD_I_COLD void memlord_i_json_shape(memlord_i_out *o, const memlord_meta *meta) {
    memlord_i_jsonf(o, ",'shape':");
    memlord_i_put_shape(o, meta, ",");
    if (!meta->rank) memlord_i_puts(o, "[]");
}

static void memlord_i_json_tensors(memlord_i_report *r, const memlord_i_snapshot *s,
                                   memlord_device d) {
    size_t i;
    for (i = 0; i < s->tops; i++) {
        const memlord_block_info *b = &memlord_i_snapshot_top(s)[i];
        if (b->device.type != d.type || b->device.index != d.index) continue;
        memlord_i_jsonf(r->o, ",{");
        memlord_i_json_mb(r->o, "size", (int64_t)b->bytes);
        memlord_i_json_shape(r->o, &b->meta);
        memlord_i_jsonf(r->o,
                        ",'dtype':%s,'device':'%i','name':%s,'tag':%s,'operation':%s,"
                        "'requires_grad':null}",
                        b->meta.dtype, memlord_i_coded(d), b->meta.name, b->tag, b->scope);
    }
}

static void memlord_i_json_snapshot(memlord_i_report *r, const memlord_i_snapshot *s) {
    uint32_t i;
    memlord_i_jsonf(r->o, ",\n{");
    memlord_i_json_time(r->o, "timestamp", r->lord->started_wall + s->at);
    memlord_i_jsonf(r->o, ",'time_ns':%ju,'checkpoint_name':%s", s->at, s->name);
    memlord_i_json_mb(r->o, "total", (int64_t)s->live);
    memlord_i_jsonf(r->o, ",'tensor_count':%ju,'device_breakdown':{", s->blocks);
    for (i = 0; i < s->devices; i++) {
        const memlord_i_held *held = &memlord_i_snapshot_held(s)[i];
        memlord_device d = memlord_i_device_at(r->lord, i + 1)->device;
        memlord_i_jsonf(r->o, ",\n'%i':{", memlord_i_coded(d));
        memlord_i_json_mb(r->o, "total", (int64_t)held->live);
        memlord_i_jsonf(r->o,
                        ",'pending_bytes':%ju,'reserved_bytes':%ju,'peak_bytes':%ju,'count':%ju,"
                        "'tensors':[",
                        held->pending, held->reserved, held->peak, held->blocks);
        memlord_i_json_tensors(r, s, d);
        memlord_i_puts(r->o, "]}");
    }
    memlord_i_puts(r->o, "}}");
}

static void memlord_i_json_snapshots(memlord_i_report *r) {
    uint32_t i;
    memlord_i_jsonf(r->o, ",\n'snapshots':[");
    for (i = 0; i < r->snapshots; i++) memlord_i_json_snapshot(r, r->snapshot[i]);
    memlord_i_puts(r->o, "]");
}

/* What the report says in a line: the peak of all snapshots, and the end. */
static void memlord_i_json_summary(memlord_i_report *r) {
    uint32_t i;
    memlord_i_jsonf(r->o, ",\n'summary':{'num_snapshots':%ju,'checkpoints':[",
                    (uint64_t)r->snapshots);
    for (i = 0; i < r->snapshots; i++)
        if (r->snapshot[i]->name) memlord_i_jsonf(r->o, ",%s", r->snapshot[i]->name);
    memlord_i_puts(r->o, "]");
    memlord_i_json_mb(r->o, "peak_memory", (int64_t)r->total.peak);
    memlord_i_jsonf(r->o, ",'peak_memory_checkpoint':%s", memlord_i_report_peak_name(r));
    memlord_i_json_mb(r->o, "final_memory", (int64_t)r->total.allocated);
    memlord_i_puts(r->o, "}");
}

/* -- JSON: who held the peak, what leaked, what moved -- */

static void memlord_i_json_holders(memlord_i_report *r) {
    uint32_t i;
    size_t k;
    memlord_i_holders *h = &r->holders;
    memlord_i_jsonf(r->o, ",\n'peak_holders':[");
    for (i = 1; i <= r->devices; i++) {
        if (!memlord_i_holders_get(r->lord, i, h)) continue;
        memlord_i_jsonf(r->o, ",\n{'device':'%i','bytes':%ju,'time_ns':%ju,'tags':[",
                        memlord_i_report_device(r, i), h->bytes, h->at);
        for (k = 0; k < h->tags; k++)
            memlord_i_jsonf(r->o, ",{'tag':%s,'bytes':%ju}", h->tag[k].tag, h->tag[k].allocated);
        memlord_i_jsonf(r->o, "],'sites':[");
        for (k = 0; k < h->sites; k++)
            memlord_i_jsonf(r->o, ",{'site':%p,'bytes':%ju}",
                            (const void *)memlord_i_site_named(r->lord, h->site[k].site),
                            h->site[k].live_bytes);
        memlord_i_puts(r->o, "]}");
    }
    memlord_i_puts(r->o, "]");
}

static void memlord_i_json_leaks(memlord_i_report *r) {
    size_t i;
    memlord_i_jsonf(r->o, ",\n'leaks':{'since_mark':%ju,'count':%ju,'bytes':%ju,'by_site':[",
                    r->mark, r->leaks.sum.blocks, r->leaks.sum.bytes);
    for (i = 0; i < r->leaks.lines; i++) {
        const memlord_i_leak *leak = &r->leaks.at[i];
        memlord_i_jsonf(r->o,
                        ",\n{'site':%p,'tag':%s,'scope':%s,'device':'%i','count':%ju,'bytes':%ju}",
                        (const void *)memlord_i_leak_site(r->lord, leak),
                        memlord_i_leak_tag(r->lord, leak),
                        leak->scope ? memlord_i_scope_at(r->lord, leak->scope)->path : NULL,
                        memlord_i_report_device(r, leak->slot), leak->blocks, leak->bytes);
    }
    memlord_i_puts(r->o, "]}");
}

static void memlord_i_json_moves(memlord_i_report *r) {
    const memlord_i_route *route =
        (const memlord_i_route *)memlord_i_ptr_load_acquire(&r->lord->routes);
    memlord_i_jsonf(r->o, ",\n'moves':[");
    for (; route; route = route->next)
        if (memlord_i_u64_load(&route->moves))
            memlord_i_jsonf(r->o, ",{'from':'%i','to':'%i','count':%ju,'bytes':%ju}",
                            memlord_i_report_device(r, route->from),
                            memlord_i_report_device(r, route->to),
                            memlord_i_u64_load(&route->moves), memlord_i_u64_load(&route->bytes));
    memlord_i_puts(r->o, "]");
}

static void memlord_i_json_threads(memlord_i_report *r) {
    const memlord_i_thread *t =
        (const memlord_i_thread *)memlord_i_ptr_load_acquire(&r->lord->threads);
    memlord_i_jsonf(r->o, ",\n'threads':[");
    for (; t; t = (const memlord_i_thread *)memlord_i_ptr_load(&t->next)) {
        uint64_t allocs = 0, frees = 0, in = 0, out = 0;
        uint32_t i;
        for (i = 1; i <= r->devices; i++) {
            const memlord_i_cell *cell = memlord_i_cell_at(t, MEMLORD_I_DEVICE, i);
            if (!cell) continue;
            allocs += memlord_i_u64_load(&cell->allocs);
            frees += memlord_i_u64_load(&cell->frees);
            out += memlord_i_u64_load(&cell->out);
            in += memlord_i_u64_load(&cell->level) + memlord_i_u64_load(&cell->out);
        }
        if (allocs | frees | in | out)
            memlord_i_jsonf(r->o,
                            ",{'id':%ju,'allocs':%ju,'frees':%ju,'bytes_allocated':%ju,"
                            "'bytes_freed':%ju}",
                            (uint64_t)t->id - MEMLORD_I_ID_FIRST + 1, allocs, frees, in, out);
    }
    memlord_i_puts(r->o, "]");
}

/* -- JSON: events; sites and tags as numbers of strings, by the numbers of their rows -- */

static void memlord_i_json_strings(memlord_i_report *r) {
    uint32_t i;
    memlord_i_jsonf(r->o, ",\n'strings':[''");
    for (i = 1; i <= r->site_rows; i++) {
        char text[512];
        memlord_i_out o;
        memlord_i_out_buffer(&o, text, sizeof text);
        memlord_i_put_site(&o, memlord_i_row_site(r->lord, i));
        (void)memlord_i_out_end(&o, sizeof text);
        memlord_i_jsonf(r->o, ",\n%s", text);
    }
    for (i = 1; i <= r->tags; i++)
        memlord_i_jsonf(r->o, ",\n%s",
                        (const char *)memlord_i_row_at(r->lord, MEMLORD_I_TAG, i)->subject);
    memlord_i_puts(r->o, "]");
}

static void memlord_i_json_event(memlord_i_report *r, const memlord_i_read *e) {
    uint64_t site = e->where & MEMLORD_I_SITE_ROWS_MAX;
    uint64_t tag = e->where >> 20 & MEMLORD_I_TAG_ROWS_MAX;
    uint32_t kind = MEMLORD_I_NOTE_KIND(e->what);
    int named = kind == MEMLORD_EVENT_CHECKPOINT;
    memlord_i_jsonf(r->o, ",\n[%ju,%ju,%ju,%jd,", memlord_i_since_ns(&r->scale, e->stamp),
                    (uint64_t)kind, (uint64_t)e->thread, (int64_t)MEMLORD_I_NOTE_SLOT(e->what) - 1);
    if (e->storage && !named)
        memlord_i_jsonf(r->o, "'%jx',", e->storage);
    else
        memlord_i_puts(r->o, "0,");
    memlord_i_jsonf(r->o, "%ju,%ju,", MEMLORD_I_BYTES(e->what), site <= r->site_rows ? site : 0);
    if (named)
        memlord_i_put_json(r->o, (const char *)(uintptr_t)e->storage);
    else
        memlord_i_put_u64(r->o, tag && tag <= r->tags ? r->site_rows + tag : 0);
    memlord_i_jsonf(r->o, ",%ju]", e->where >> 36);
}

static void memlord_i_json_events(memlord_i_report *r) {
    static const char kinds[] = ""
#define MEMLORD_I_X(name, text) ",\"" text "\""
        MEMLORD_I_EVENTS(MEMLORD_I_X)
#undef MEMLORD_I_X
        ;
    const memlord_i_ring *ring = (memlord_i_ring *)memlord_i_ptr_load_acquire(&r->lord->ring);
    memlord_i_reading reading;
    memlord_i_read e;
    uint64_t n = 0;
    memlord_i_jsonf(r->o, ",\n'events':{'capacity':%ju,'lost':%ju,'kinds':[",
                    ring ? (uint64_t)ring->capacity : 0, r->total.dropped_events);
    memlord_i_puts(r->o, kinds + 1);
    memlord_i_jsonf(r->o, "],'list':[");
    if (ring && memlord_i_reading_begin(r->lord, &reading)) {
        reading.scale = r->scale;
        for (; !r->o->failed && memlord_i_reading_next(&reading, &e); n++)
            memlord_i_json_event(r, &e);
        memlord_i_reading_end(&reading);
    }
    memlord_i_jsonf(r->o, "],'recorded':%ju}", n);
}

/* -- JSON: blocks, and all of it -- */

static MEMLORD_I_COLD void memlord_i_json_parts(memlord_i_report *r, uint32_t type,
                                                uint64_t storage) {
    uint64_t count, bytes, offset = 0;
    size_t i, n, seen = 0;
    memlord_i_jsonf(r->o, ",'parts':");
    n = memlord_i_parts_copy(r->lord, type, storage, 0, r->part, 16, &count, &bytes);
    if (!n) {
        memlord_i_puts(r->o, "null");
        return;
    }
    memlord_i_jsonf(r->o, "{'count':%ju,'bytes':%ju,'listed':[", count, bytes);
    while (n && seen < MEMLORD_I_PARTS_SHOWN) {
        for (i = 0; i < n; i++, seen++) {
            const memlord_part_info *part = &r->part[i];
            memlord_i_jsonf(r->o, ",\n{'offset':%ju,'bytes':%ju,'name':%s,'dtype':%s", part->offset,
                            part->bytes, part->meta.name, part->meta.dtype);
            memlord_i_json_shape(r->o, &part->meta);
            memlord_i_jsonf(r->o, ",'tag':%s}", part->meta.tag);
            offset = part->offset + 1;
        }
        n = n < 16 ? 0
                   : memlord_i_parts_copy(r->lord, type, storage, offset, r->part, 16, &count,
                                          &bytes);
    }
    memlord_i_puts(r->o, "]}");
}

static void memlord_i_json_block(memlord_i_report *r, const memlord_block_info *b) {
    memlord_i_jsonf(r->o, /* storages as text: readers of JSON round beyond 2^53 */
                    ",\n{'device':'%i','storage':'%jx','bytes':%ju,'refs':%ju,'born':%ju,'tag':%s,"
                    "'scope':%s,'site':%p,'name':%s,'dtype':%s",
                    memlord_i_coded(b->device), b->storage, b->bytes, b->refs, b->born, b->tag,
                    b->scope, (const void *)b->site, b->meta.name, b->meta.dtype);
    memlord_i_json_shape(r->o, &b->meta);
    memlord_i_jsonf(r->o, ",'flags':%ju,'pending':%ju", (uint64_t)b->meta.flags,
                    (uint64_t)(b->pending != 0));
    memlord_i_json_parts(r, (uint32_t)b->device.type, b->storage);
    memlord_i_puts(r->o, "}");
}

static MEMLORD_I_COLD void memlord_i_json(memlord_i_report *r) {
    size_t i;
    uint64_t sum = 0;
    memlord_i_json_metadata(r);
    memlord_i_json_devices(r);
    memlord_i_json_places(r);
    memlord_i_json_accounts(r);
    memlord_i_json_tags(r);
    memlord_i_json_sites(r);
    memlord_i_json_summary(r);
    memlord_i_json_holders(r);
    memlord_i_json_leaks(r);
    memlord_i_json_moves(r);
    memlord_i_json_threads(r);
    memlord_i_json_snapshots(r);
    memlord_i_json_scopes(r);
    memlord_i_json_strings(r);
    memlord_i_json_events(r);
    for (i = 0; i < r->blocks; i++) sum += r->block[i].bytes;
    memlord_i_jsonf(r->o, ",\n'largest_blocks':{'count':%ju,'of':%ju,'bytes':%ju,'blocks':[",
                    (uint64_t)r->blocks, r->total.live_blocks, sum);
    for (i = 0; i < r->blocks; i++) memlord_i_json_block(r, &r->block[i]);
    memlord_i_puts(r->o, "]}}\n");
}

static int memlord_i_format_whole(memlord_format format);
static void memlord_i_format_write(memlord_i_report *r, memlord_format format);

/* While snapshots are taken, a report that shows them (none after TRACE does) ends with the
   present; that one is the report's own, so that however many are written take no place. */
static MEMLORD_I_COLD void memlord_i_report_snapshots(memlord *lord, memlord_i_report *r,
                                                      memlord_format format) {
    r->snapshots = memlord_i_snapshots_begin(lord, &r->reader, r->snapshot);
    if (format > MEMLORD_FORMAT_TRACE || !memlord_i_u32_load(&lord->recorder.wanted)) return;
    r->present = memlord_i_snapshot_new(lord, NULL, MEMLORD_I_SNAPSHOT_TOP);
    if (r->present)
        r->snapshot[r->snapshots++] = r->present;
    else
        (void)memlord_i_u64_add(&lord->lost_snapshots, 1);
}

static MEMLORD_I_COLD memlord_result memlord_i_report_write(memlord *lord, memlord_format format,
                                             memlord_write_fn fn, void *user) {
    memlord_i_report *r = (memlord_i_report *)memlord_i_alloc(lord, sizeof *r);
    memlord_result result;
    if (!r) return MEMLORD_E_NOMEM;
    memlord_i_cost_measure(lord);
    memlord_i_report_snapshots(lord, r, format);
    r->out.fn = fn;
    r->out.user = user;
    r->out.buf = r->buf;
    r->out.cap = sizeof r->buf;
    r->o = &r->out;
    r->whole = memlord_i_format_whole(format);
    memlord_i_report_capture(lord, r);
    memlord_i_format_write(r, format);
    memlord_i_flush(r->o);
    result = r->out.failed ? MEMLORD_E_IO : r->result;
    memlord_i_snapshots_end(lord, &r->reader);
    memlord_i_snapshots_free(lord, r->present);
    memlord_i_free(lord, r->scoped, (r->scopes + 1) * sizeof *r->scoped);
    memlord_i_free(lord, r->tag, (r->tags + 1) * sizeof *r->tag);
    memlord_i_free(lord, r, sizeof *r);
    return result;
}

/* -- files -- */

static const char *const memlord_i_format_suffixes[] = {
#define MEMLORD_I_X(name, suffix, text) suffix,
    MEMLORD_I_FORMATS(MEMLORD_I_X)
#undef MEMLORD_I_X
};

#define MEMLORD_I_PATH_MAX 4000

/* Writes `path` with %p and %% replaced; 0 when it fits. */
static int memlord_i_path(const char *path, char *out, size_t cap) {
    memlord_i_out o;
    memlord_i_out_buffer(&o, out, cap);
    for (; *path; path++) {
        if (path[0] == '%' && path[1] == 'p') {
            memlord_i_put_u64(&o, memlord_i_pid());
            path++;
        } else {
            memlord_i_put(&o, path, 1);
            if (path[0] == '%' && path[1] == '%') path++;
        }
    }
    return memlord_i_out_end(&o, cap) < cap ? 0 : -1;
}

static MEMLORD_I_COLD int memlord_i_write_file(void *user, const void *data, size_t size) {
    return memlord_i_file_write(*(memlord_i_file *)user, (const char *)data, size);
}

/* A new file in the target's directory: .memlord-pid-n.tmp */
static int memlord_i_file_beside(const char *target, char *name, size_t cap, memlord_i_file *file) {
    size_t n, directory = strlen(target);
    while (directory && !strchr(MEMLORD_I_WINDOWS ? "/\\" : "/", target[directory - 1]))
        directory--;
    for (n = 0; n < 1000; n++) {
        memlord_i_out o;
        int r;
        memlord_i_out_buffer(&o, name, cap);
        memlord_i_put(&o, target, directory);
        memlord_i_putf(&o, ".memlord-%ju-%ju.tmp", memlord_i_pid(), (uint64_t)n);
        (void)memlord_i_out_end(&o, cap);
        r = memlord_i_file_create(name, file);
        if (r <= 0) return r;
    }
    return -1;
}

typedef struct memlord_i_paths { /* not on the stack: that may be 16 KiB */
    char target[MEMLORD_I_PATH_MAX], beside[MEMLORD_I_PATH_MAX + 64];
} memlord_i_paths;

/* Writes a report beside the target; nothing is left of one that fails. */
static MEMLORD_I_COLD memlord_result memlord_i_file_fill(memlord *lord, memlord_format format,
                                                         memlord_i_paths *p) {
    memlord_i_file file;
    memlord_i_signals held;
    memlord_result r;
    if (memlord_i_file_beside(p->target, p->beside, sizeof p->beside, &file)) return MEMLORD_E_IO;
    held = memlord_i_signals_hold();
    r = memlord_i_report_write(lord, format, memlord_i_write_file, &file);
    if (memlord_i_file_close(file, r == MEMLORD_OK) && r == MEMLORD_OK) r = MEMLORD_E_IO;
    memlord_i_signals_release(&held);
    if (r != MEMLORD_OK) memlord_i_file_remove(p->beside);
    return r;
}

static memlord_result memlord_i_file_save(memlord *lord, memlord_format format,
                                          memlord_i_paths *p) {
    memlord_result r;
    if (memlord_i_file_refused(p->target)) return MEMLORD_E_IO;
    r = memlord_i_file_fill(lord, format, p);
    if (r == MEMLORD_OK && memlord_i_file_rename(p->beside, p->target)) {
        memlord_i_file_remove(p->beside);
        r = MEMLORD_E_IO;
    }
    return r;
}

static memlord_result memlord_i_report_save(memlord *lord, memlord_format format,
                                            const char *path) {
    memlord_i_paths *p = (memlord_i_paths *)memlord_i_alloc(lord, sizeof *p);
    memlord_result r;
    if (!p) return MEMLORD_E_NOMEM;
    r = memlord_i_path(path, p->target, sizeof p->target) ? MEMLORD_E_INVALID
                                                          : memlord_i_file_save(lord, format, p);
    memlord_i_free(lord, p, sizeof *p);
    return r;
}

/* -- saving at the end, or when asked: under a name of its own -- */

/* directory/memory_profile_20261121_080500.json, or the n-th that is not that; 0: it fits. */
static int memlord_i_dated_path(const char *directory, uint64_t wall, memlord_format format,
                                unsigned n, memlord_i_paths *p) {
    memlord_i_out o;
    memlord_i_out_buffer(&o, p->target, sizeof p->target);
    memlord_i_puts(&o, directory);
    memlord_i_puts(&o, "/memory_profile_");
    memlord_i_put_time(&o, wall, 1);
    if (n) memlord_i_putf(&o, "_%ju", memlord_i_pid());
    if (n > 1) memlord_i_putf(&o, "_%ju", (uint64_t)n);
    memlord_i_puts(&o, ".");
    memlord_i_puts(&o, memlord_i_format_suffixes[format]);
    return memlord_i_out_end(&o, sizeof p->target) < sizeof p->target ? 0 : -1;
}

static memlord_result memlord_i_dated_save(memlord *lord, memlord_format format,
                                           const char *directory, memlord_i_paths *p) {
    uint64_t wall = memlord_i_wall_now();
    unsigned n;
    int there = 1;
    memlord_result r;
    if (memlord_i_dated_path(directory, wall, format, 0, p)) return MEMLORD_E_INVALID;
    r = memlord_i_file_fill(lord, format, p);
    if (r) return r;
    for (n = 0; there > 0 && n < 1000; n++)
        there = memlord_i_dated_path(directory, wall, format, n, p)
                    ? -1
                    : memlord_i_file_rename_new(p->beside, p->target);
    if (there) memlord_i_file_remove(p->beside);
    return there ? MEMLORD_E_IO : MEMLORD_OK;
}

/* Saves where and how memlord_save_at_exit says, and tells the log. `format` is 1 more, 0 the
   default. */
static MEMLORD_I_COLD void memlord_i_save_dated(memlord *lord, uint32_t format) {
    const char *directory = (const char *)memlord_i_ptr_load_acquire(&lord->exit_directory);
    memlord_i_paths *p = (memlord_i_paths *)memlord_i_alloc(lord, sizeof *p);
    char line[320];
    memlord_i_out o;
    memlord_result r = MEMLORD_E_NOMEM;
    if (!directory) directory = lord->output_dir ? lord->output_dir : ".";
    if (p)
        r = memlord_i_dated_save(lord, format ? (memlord_format)(format - 1) : MEMLORD_FORMAT_JSON,
                                 directory, p);
    memlord_i_out_buffer(&o, line, sizeof line);
    if (r)
        memlord_i_putf(&o, "[save] no report in %s: %s", directory, memlord_result_text(r));
    else
        memlord_i_putf(&o, "[save] %s", p->target);
    (void)memlord_i_out_end(&o, sizeof line);
    memlord_i_log(lord, r ? MEMLORD_LOG_ERROR : MEMLORD_LOG_INFO, line);
    memlord_i_free(lord, p, sizeof *p);
}

static MEMLORD_I_COLD void memlord_i_save_now(memlord *lord) {
    memlord_i_save_dated(lord, memlord_i_u32_load(&lord->exit_format));
}
/* The end of a ledger, or of the process: saves once, also what was asked for and not served. */
static MEMLORD_I_COLD void memlord_i_save_end(memlord *lord) {
    uint32_t format = memlord_i_u32_exchange(&lord->exit_format, 0);
    int asked = memlord_i_save_asked(lord);
    if (format || asked) memlord_i_save_dated(lord, format);
}

static const memlord_i_saver memlord_i_dated_saver = {memlord_i_save_now, memlord_i_save_end};
static void memlord_i_saver_set(memlord *lord) { /* release: pairs with memlord_i_save_serve */
    memlord_i_ptr_store_release(&lord->saver, (void *)(uintptr_t)&memlord_i_dated_saver);
}

static MEMLORD_I_COLD void memlord_i_at_exit(void) {
    memlord *lord;
    do {
        memlord_i_lock_take(&memlord_i_process.lock);
        for (lord = memlord_i_process.ledgers; lord; lord = lord->next)
            if (memlord_i_u32_load(&lord->exit_format) ||
                (memlord_i_u32_load(&lord->alert) & MEMLORD_I_ALERT_SAVE))
                break;
        memlord_i_process.saving = lord; /* other threads go on, and may destroy it */
        memlord_i_lock_drop(&memlord_i_process.lock);
        if (lord) memlord_i_save_end(lord);
    } while (lord);
}
static MEMLORD_I_COLD memlord_result memlord_i_at_exit_once(void) {
    int bad = 0;
    memlord_i_self.busy++; /* it may ask malloc */
    if (!memlord_i_u32_exchange(&memlord_i_process.at_exit, 1))
        bad = atexit(memlord_i_at_exit);
    memlord_i_self.busy--;
    if (bad) memlord_i_u32_store(&memlord_i_process.at_exit, 0);
    return bad ? MEMLORD_E_NOMEM : MEMLORD_OK;
}

/* ------------------------------------------------------------------------ >>page --
   The HTML report around its data, generated from examples/report by assemble.py: change
   it there. Minified by esbuild 0.17.0. */
#if !defined(MEMLORD_NO_REPORTS)

static const char memlord_i_page_head[][3120] = {
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Con"
    "tent-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-ETy1B+9Ipqwl5ytH7FVVWg"
    "IB2HqT/lDf7lO8wbpB9cE='; script-src 'sha256-vLiatMzfmNd/b4fGoo9lfg5TX2tBJ4Z6Vk0mGXgCIQM='; ba"
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
    "m{background:var(--warnfill);color:var(--ink);border-left:3px solid var(--warn",
    ");padding:.6rem .9rem;margin:1rem 0 0;overflow-wrap:anywhere}.alarm ul{margin:.2rem 0 0;paddi"
    "ng-left:1.1rem}.alarm b{color:var(--warn)}#empty{margin:12vh auto 0;max-width:34rem;padding:3"
    "rem 1.5rem;text-align:center;border:2px dashed var(--rule);border-radius:8px;color:var(--soft"
    ")}body.over main{outline:3px dashed var(--accent);outline-offset:-6px}footer{margin-top:2.5re"
    "m;color:var(--soft);font-size:.9em}.figures{display:flex;flex-wrap:wrap;gap:.8rem 3rem;margin"
    ":0}.figures div{min-width:0;max-width:26rem}.figures dd{margin:0;font-size:1.7rem;line-height"
    ":1.25;letter-spacing:-.02em}.figures dd small{display:block;font-size:.8rem;letter-spacing:0;"
    "color:var(--soft);overflow-wrap:anywhere}.facts{display:flex;flex-wrap:wrap;gap:.1rem 1.6rem;"
    "margin:1rem 0 0}.facts div{display:flex;gap:.4rem;min-width:0}.facts dd{margin:0;overflow-wra"
    "p:anywhere}.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(24rem,100%),"
    "1fr));gap:1rem}.card{background:var(--panel);border-radius:6px;padding:.9rem 1rem;min-width:0"
    "}.card header{display:flex;align-items:baseline;gap:.6rem}.card header b{font-size:1.15rem;wh"
    "ite-space:nowrap}.stack{display:flex;height:1.25rem;margin:.5rem 0;background:var(--paper);bo"
    "rder-radius:3px;overflow:hidden;box-shadow:inset 0 0 0 1px var(--rule)}.stack i{min-width:1px"
    ";box-shadow:inset -1px 0 var(--panel)}.hue{background:light-dark(oklch(.83 .085 var(--hue)),o"
    "klch(.48 .095 var(--hue)))}.hatch{background:repeating-linear-gradient(135deg,var(--other) 0 "
    "3px,transparent 3px 6px)}.legend{list-style:none;margin:0;padding:0}.legend li{display:flex;g"
    "ap:.45rem;align-items:baseline}.legend i{flex:none;width:.7rem;height:.7rem;border-radius:2px"
    "}.grey{background:var(--other)}.legend i.free{box-shadow:inset 0 0 0 1px var(--other);backgro"
    "und:var(--paper)}.card header .soft,.legend span:not(:last-child){flex:1;min-width:0;overflow"
    ":hidden;text-overflow:ellipsis;white-space:nowrap}.card .sum{margin:.1rem 0 .4rem;color:var(-"
    "-soft);font-size:.93em}.card .facts{margin-top:.7rem;padding-top:.6rem;border-top:1px solid v"
    "ar(--rule);gap:.1rem 1.2rem;font-size:.93em}.card .bad{color:var(--warn);margin:.6rem 0 0;ove"
    "rflow-wrap:anywhere}.charts{display:flex;flex-wrap:wrap;gap:.4rem 1.4rem}.bars{flex:3 1 10rem"
    ";margin:.8rem 0 0;min-width:0}.bars+.bars{flex:1 1 7rem}.bars figcaption,.bars .axis{color:va"
    "r(--soft);font-size:.85em}.bars .plot{display:flex;align-items:flex-end;gap:1px;height:3.2rem"
    ";border-bottom:1px solid var(--other)}.bars .plot i{flex:1;background:var(--accent);min-width"
    ":1px}.bars .axis{display:flex;justify-content:space-between}.tools{display:flex;flex-wrap:wra"
    "p;align-items:center;gap:.5rem;margin:0 0 .6rem}.tools output{margin-left:auto}.tools .group{"
    "display:inline-flex}.tools .group button{border-radius:0;margin-left:-1px}.tools .group butto"
    "n:first-child{border-radius:4px 0 0 4px;margin-left:0}.tools .group button:last-child{border-"
    "radius:0 4px 4px 0}canvas{display:block;width:100%;touch-action:pan-y;cursor:crosshair}#lanes"
    "{max-height:70vh;overflow:hidden auto;border-block:1px solid var(--rule)}#lanes canvas{positi"
    "on:sticky;top:0}.keys{display:flex;flex-wrap:wrap;",
    "gap:.2rem 1.2rem;font-size:.9em;margin:.4rem 0 0;padding:0;list-style:none}.keys i{font-style"
    ":normal;color:var(--accent);margin-right:.3rem}.keys i.w{color:var(--warn)}.keys i.g{color:va"
    "r(--good)}#tip{position:fixed;z-index:4;top:0;left:0;max-width:min(26rem,calc(100vw - 1rem));"
    "pointer-events:none;background:var(--paper);color:var(--ink);border:1px solid var(--soft);bor"
    "der-radius:4px;padding:.4rem .6rem;font-size:.92em;box-shadow:0 2px 10px #0003}#tip b{display"
    ":block;overflow-wrap:anywhere}#tip dl{display:grid;grid-template-columns:auto 1fr;gap:0 .8rem"
    ";margin:0}#tip dt,#tip dd{overflow-wrap:anywhere}#tip dd{margin:0;text-align:right}#live{posi"
    "tion:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}.map{position:relativ"
    "e;height:22rem}.map div{position:absolute;overflow:hidden;padding:.25rem .4rem;border:1px sol"
    "id var(--paper);font-size:.9em;line-height:1.3;cursor:default}.map div b{display:block;font-w"
    "eight:600;overflow-wrap:anywhere}.map span{display:inline-block;margin-right:.6em;white-space"
    ":nowrap}.rest{background:var(--panel);color:var(--ink)}.map div:focus-visible{outline-offset:"
    "-3px;outline-color:var(--ink)}.box{overflow:auto;max-height:30rem;border:1px solid var(--rule"
    ");border-radius:4px;position:relative}table{border-collapse:collapse;width:100%}th,td{padding"
    ":.22rem .7rem;text-align:left;white-space:nowrap}th{position:sticky;top:0;z-index:1;backgroun"
    "d:var(--panel);padding:0;font-weight:600}th button{width:100%;border:0;border-radius:0;backgr"
    "ound:none;text-align:inherit;font-weight:inherit;padding:.25rem .7rem;white-space:nowrap}th b"
    "utton:after{content:\"\\2195\";margin-left:.35rem;opacity:.25}th[aria-sort=ascending] button:"
    "after{content:\"\\2191\";opacity:1}th[aria-sort=descending] button:after{content:\"\\2193\";o"
    "pacity:1}tbody tr{border-top:1px solid var(--grid)}tbody tr:hover{background:var(--panel)}.n{"
    "text-align:right}.t{max-width:32rem;overflow:hidden;text-overflow:ellipsis;unicode-bidi:isola"
    "te}.minus{color:var(--good)}.over{color:var(--warn)}.share{background:linear-gradient(var(--b"
    "ar),var(--bar)) no-repeat right / var(--share) 100% content-box}.more{padding:.35rem .7rem}td"
    ".inner{padding:.4rem 0 .8rem 2.2rem;white-space:normal}.toggle{min-height:0;padding:0 .4rem}d"
    "etails{margin-top:.8rem}summary{cursor:pointer}@media (max-width: 600px){#top{gap:.5rem;flex-"
    "wrap:wrap;padding:.4rem .8rem}#top h1{flex:1}#nav{order:9;flex-basis:100%}html{scroll-padding"
    "-top:5.6rem}main{padding:0 .8rem 3rem}.figures{display:grid;grid-template-columns:1fr 1fr;gap"
    ":.8rem 1rem}.figures dd{font-size:1.35rem}.t{max-width:15rem}.map{height:26rem}.tools output{"
    "margin-left:0;flex-basis:100%}}@media print{#top nav,#top button,.tools,#tip,.more{display:no"
    "ne}#top{position:static}#peak~section{content-visibility:visible}.box,#lanes{max-height:none;"
    "overflow:visible}.card,tr,canvas{break-inside:avoid}th{position:static}th button:after{conten"
    "t:none}body{font-size:10px}*{print-color-adjust:exact}}</style>\n</head>\n<body>\n<header id="
    "\"top\">\n<h1><a href=\"#top\">MemLord</a></h1>\n<nav id=\"nav\" aria-label=\"Sections\"></na"
    "v>\n<button id=\"theme\" type=\"button\" aria-label=\"Switch between light and",
    " dark\">&#9680;</button>\n<button id=\"open\" type=\"button\" title=\"Or drop a profile.json "
    "anywhere on this page\">Open&#8230;</button>\n<input id=\"file\" type=\"file\" accept=\".json"
    ",application/json\" hidden>\n</header>\n<main>\n<p id=\"message\" role=\"alert\" hidden></p>"
    "\n<div id=\"empty\">\n<noscript><p>This page draws its report with JavaScript, which is turne"
    "d off here.</p></noscript>\n<p id=\"hint\">Reading the profile&#8230;</p>\n</div>\n<div id=\""
    "report\" hidden>\n<section id=\"overview\" class=\"plain\"><div class=\"body\"></div></sectio"
    "n>\n<section id=\"devices\" data-nav=\"Devices\">\n<h2>Devices</h2>\n<p class=\"note\">Total "
    "= free + self, by tag + unaccounted: what others hold, less what this\nprogram holds without "
    "the device having noticed.</p>\n<div class=\"body\"></div>\n</section>\n<section id=\"memory"
    "\" data-nav=\"Memory\">\n<h2>Memory over time</h2>\n<p class=\"note\">Live bytes, each device"
    " on its own scale. The time axis is the timeline&#8217;s:\nwheel or pinch zooms, drag pans, a"
    "rrow keys move the cursor, 0 shows all.</p>\n<div class=\"body\"></div>\n</section>\n<section"
    " id=\"timeline\" data-nav=\"Timeline\">\n<h2>Timeline of scopes</h2>\n<p class=\"note\">Neste"
    "d scopes hang below their parent. Arrow keys pan, + and &#8722; zoom, 0 shows\nall; Enter and"
    " Shift+Enter walk from scope to scope, Esc lets go.</p>\n<div class=\"body\"></div>\n</sectio"
    "n>\n<section id=\"peak\" data-nav=\"Peak\">\n<h2>Who held the peak</h2>\n<p class=\"note\">Ta"
    "ken when live bytes had risen to within a sixteenth of the highest.</p>\n<div class=\"body\">"
    "</div>\n</section>\n<section id=\"scopes\" data-nav=\"Scopes\">\n<h2>Scopes</h2>\n<p class=\""
    "note\">A scope&#8217;s delta is what it left behind; its peak, how far above its start it\nwe"
    "nt. Sorting keeps children under their parents.</p>\n<div class=\"body\"></div>\n</section>\n"
    "<section id=\"tags\" data-nav=\"Tags\">\n<h2>Tags</h2>\n<p class=\"note\">What the bytes are "
    "for, beside what was planned.</p>\n<div class=\"body\"></div>\n</section>\n<section id=\"site"
    "s\" data-nav=\"Sites\">\n<h2>Sites</h2>\n<p class=\"note\">Where the source allocates. Live i"
    "s what was allocated there and is not freed\nyet, wherever that will be.</p>\n<div class=\"bo"
    "dy\"></div>\n</section>\n<section id=\"blocks\" data-nav=\"Blocks\">\n<h2>Largest blocks</h2>"
    "\n<p class=\"note\">Parts subdivide a block and never add to it.</p>\n<div class=\"body\"></d"
    "iv>\n</section>\n<section id=\"leaks\" data-nav=\"Leaks\">\n<h2>Still there</h2>\n<p class=\""
    "note\">Blocks allocated since the last mark and not freed.</p>\n<div class=\"body\"></div>\n<"
    "/section>\n<section id=\"accounts\" data-nav=\"Accounts\"><h2>Accounts</h2><div class=\"body"
    "\"></div></section>\n<section id=\"moves\" data-nav=\"Moves\"><h2>Moves between devices</h2><"
    "div class=\"body\"></div></section>\n<section id=\"snapshots\" data-nav=\"Snapshots\">\n<h2>C"
    "heckpoints and snapshots</h2><div class=\"body\"></div>\n</section>\n<section id=\"threads\" "
    "data-nav=\"Threads\"><h2>Threads</h2><div class=\"body\"></div></section>\n<footer>Bytes are "
    "IEC: 1 KiB is 1024 B. Titles carry exact figures. Nothing on this page was\nfetched, and noth"
    "ing leaves it.</footer>\n</div>\n</main>\n<div id=\"tip\" hidden></div>\n<div id=\"live\" ari"
    "a-live=\"polite\"></div>\n<script type=\"application/json\" id=\"profile\">"};

static const char memlord_i_page_tail[][3858] = {
    "</script>\n<script>\"use strict\";(()=>{const ee=e=>Array.isArray(e)?e:[],_=e=>e&&typeof e=="
    "\"object\"&&!Array.isArray(e)?e:{},E=e=>ee(e).map(_),m=e=>typeof e==\"number\"&&Math.abs(e)<="
    "2e19?e:null,g=e=>m(e)||0,C=(e,t,s)=>e<t?t:e>s?s:e,ne=(e,t)=>e.reduce((s,n)=>s+g(t(n)),0),le=("
    "e,t)=>e.reduce((s,n)=>Math.max(s,g(t(n))),0);function w(e,t){return typeof e==\"number\"?Stri"
    "ng(e):typeof e!=\"string\"?\"\":(t=t||240,e.length>t&&(e=e.slice(0,t).replace(/[\\ud800-\\udb"
    "ff]$/,\"\")+\"\\u2026\"),e.replace(/[\\x00-\\x1f]/g,s=>String.fromCharCode(9216+s.charCodeAt("
    "0))).replace(/[\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff\\ufff9-"
    "\\ufffb]/g,\"\\uFFFD\"))}function ce(e,t){if(typeof e==\"string\")return w(e);const s=_(e),n="
    "g(s.line)?\":\"+s.line:\"\",o=w(s.file),r=t&&o.length>40?o.slice(-40).search(/[\\\\/]/):-1;re"
    "turn[w(s.function),(r<0?o:\"\\u2026\"+o.slice(r-40))+n].filter(Boolean).join(\"  \")}const Ge"
    "=6e11,ht=[\"B\",\"KiB\",\"MiB\",\"GiB\",\"TiB\",\"PiB\",\"EiB\"];function M(e){if(e===null)re"
    "turn\"\\u2013\";if(e<0)return\"\\u2212\"+M(-e);let t=0;for(;t<6&&e>=Math.pow(1024,t+1);)t++;l"
    "et s=Math.round(e/Math.pow(1024,t)*100);return s===102400&&t<6&&(s=100,t++),s/100+\" \"+ht[t]"
    "}const De=e=>String(e).replace(/\\B(?=(\\d{3})+(?!\\d))/g,\",\"),O=e=>e===null?\"\\u2013\":e<"
    "0?\"\\u2212\"+De(-e):De(e),z=e=>e===null?\"\":O(e)+\" bytes\",F=(e,t)=>O(e)+\" \"+t+(e===1?\""
    "\":\"s\"),Xe=e=>e>0?\"+\":\"\",Je=e=>e===null?\"\\u2013\":Xe(e)+M(e),ve=e=>e===null?\"\\u2013"
    "\":Math.round(e*1e3)/10+\" %\";function R(e){if(e===null)return\"\\u2013\";if(e<0)return\"\\u"
    "2212\"+R(-e);const t=(n,o)=>(n<100?Number(n.toPrecision(3)):Math.round(n))+o;if(e<1e3)return "
    "t(e,\" ns\");if(e<999500)return t(e/1e3,\" \\xB5s\");if(e<9995e5)return t(e/1e6,\" ms\");if(e"
    "<12e10)return t(e/1e9,\" s\");const s=Math.round(e/1e9);return s<7200?Math.floor(s/60)+\" min"
    " \"+s%60+\" s\":O(Math.floor(s/3600))+\" h \"+Math.floor(s%3600/60)+\" min\"}function fe(e,t)"
    "{if(u.to>=Ge){const r=e/1e9,a=Math.floor(r/60+1e-9),i=Math.max(r-a*60,0);return[a>=60&&Math.f"
    "loor(a/60)+\" h\",a%60&&a%60+\" min\",t<6e10&&i.toFixed(C(Math.ceil(9-Math.log10(t)-1e-9),0,9"
    "))+\" s\"].filter(Boolean).join(\" \")||\"0\"}const[s,n]=u.to<1e3?[1,\" ns\"]:u.to<1e6?[1e3,"
    "\" \\xB5s\"]:u.to<1e9?[1e6,\" ms\"]:[1e9,\" s\"],o=C(Math.ceil(-Math.log10(t/s)-1e-9),0,9);re"
    "turn(e/s).toFixed(o)+n}function H(e,t,s,n){for(;s<n;){const o=s+n>>1;e[o]>t?n=o:s=o+1}return "
    "s}const T=e=>document.getElementById(e),Y=(e,t)=>Object.entries(t).forEach(([s,n])=>e.addEven"
    "tListener(s,n));function d(e,...t){const[s,n]=e.split(\".\"),o=document.createElement(s),r=t["
    "0];n&&(o.className=n);const a=r&&r.constructor===Object?t.shift():{};for(const[i,l]of Object."
    "entries(a))typeof l==\"function\"?Y(o,{[i]:l}):l!=null&&o.setAttribute(i,l);return o.append(."
    "..t.filter(i=>i||i===0||i===\"\")),o}function N(e,...t){e.textContent=\"\",e.append(...t.filt"
    "er(Boolean))}const V=(e,t,s)=>d(\"button\",Object.assign({type:\"button\",click:t},s),e),Q=(e"
    ",t)=>d(\"span\",{title:z(e)},(t||M)(e)),Ve=e=>d(\"dl.facts\",...e.filter(Boolean).map(([t,s,n"
    "])=>d(\"div\",{title:n},d(\"dt\",t),d(\"dd\",s)))),te=24,ye=new Map;function Ye(e){if(ye.has("
    "e))return ye.get(e);const t=new Set(ye.values());let s=0;for(let n=0;n<e.length;n++)s=Math.im"
    "ul(s^e.charCodeAt(n),16777619)>>>0;s=((s^s>>>15)>>>0)%te;for(let n=0;n<te&&t.has(s);n++)s=(s+"
    "7)%te;return ye.set(e,s),s}const mt=e=>`oklch(${x.dark?\"0.48 0.095\":\"0.83 0.085\"} ${e*360"
    "/te})`;function pt(e,t){return e.classList.add(\"hue\"),e.style.setProperty(\"--hue\",Ye(t)*3"
    "60/te),e}function $e(e,t){return t.kind?(e.classList.add(t.kind),e):pt(e,t.name)}const x={};f"
    "unction Ze(){const e=document.documentElement.classList,t=T(\"live\");x.dark=e.contains(\"dar"
    "k\")&&!e.contains(\"print\")||!e.contains(\"light\")&&!e.contains(\"print\")&&matchMedia(\"(p"
    "refers-color-scheme: dark)\").matches;for(const s of[\"paper\",\"panel\",\"ink\",\"soft\",\"r"
    "ule\",\"grid\",\"accent\",\"fill\",\"warn\",\"good\",\"other\"])t.style.color=`var(--${s})`,x"
    "[s]=getComputedStyle(t).color;x.shades=Array.from({length:te},(s,n)=>mt(",
    "n))}const be=[\"alloc\",\"free\",\"pend\",\"move\",\"arena_add\",\"arena_sub\",\"gc\",\"oom\""
    ",\"scope_begin\",\"scope_end\",\"checkpoint\"],[yt,gt,,bt,vt,kt,wt,Fe,Re,Mt,xt]=be.keys();fun"
    "ction _t(e,t){const s=_(e);let n=ee(s.list).filter(Array.isArray);const r=(ee(s.kinds).length"
    "?s.kinds:be).map(l=>be.indexOf(l));for(let l=1;l<n.length;l++)if(!(n[l][0]>=n[l-1][0])){n=n.s"
    "lice().sort((c,f)=>g(c[0])-g(f[0]));break}const a=n.length,i={n:a,lost:g(s.lost),time:new Flo"
    "at64Array(a),kind:new Int8Array(a),thread:new Int32Array(a),device:new Int32Array(a),bytes:ne"
    "w Float64Array(a),scope:new Float64Array(a),label:l=>w(typeof n[l][7]==\"string\"?n[l][7]:ee("
    "t)[n[l][7]])};for(let l=0;l<a;l++){const c=n[l],f=r[c[1]];i.time[l]=g(c[0]),i.kind[l]=f===voi"
    "d 0?be.indexOf(c[1]):f,i.thread[l]=c[2],i.device[l]=m(c[3])===null?-1:c[3],i.bytes[l]=g(c[5])"
    ",i.scope[l]=g(c[8])}return i}function ke(e,t){const s=e.kind[t];return s===yt||s===bt||s===vt"
    "?e.bytes[t]:s===gt||s===kt?-e.bytes[t]:0}function At(e){return E(e).filter(s=>m(s.time_ns)!=="
    "null).map(s=>({time:s.time_ns,stamp:w(s.timestamp),name:w(s.checkpoint_name),bytes:m(s.total_"
    "bytes),blocks:m(s.tensor_count),devices:new Map(Object.entries(_(s.device_breakdown)).map(([n"
    ",o])=>[n,_(o)]))})).sort((s,n)=>s.time-n.time)}function Tt(e,t,s){const n=e.events,o=n.n?n.ti"
    "me[0]:1/0,r=e.snapshots.filter(v=>v.time<o),a=r.length||!n.lost?1:0,i=r.length+a,l=e.snapshot"
    "s.length||n.n?i+(n.n?1:0)+s+1:0,c=new Float64Array(l),f=new Float64Array(l);r.forEach((v,k)=>"
    "{c[k+1]=v.time,f[k+1]=g(_(v.devices.get(t.key)).total_bytes)});let h=l-1,y=g(t.stats.allocate"
    "d);c[h]=e.end,f[h]=y;for(let v=n.n;v-- >0;){const k=n.device[v]===t.index?ke(n,v):0;k&&(h--,c"
    "[h]=n.time[v],f[h]=y,y=Math.max(y-k,0))}return n.n&&(c[i]=o,f[i]=y),{t:c,v:f,fine:n.n?i:l}}fu"
    "nction Qe(e,t){const s=H(e.t,t,0,e.t.length)-1;return s<0?null:s>=e.fine||s+1>=e.t.length?e.v"
    "[s]:e.v[s]+(e.v[s+1]-e.v[s])*(t-e.t[s])/(e.t[s+1]-e.t[s]||1)}function St(e,t){const s=e.curve"
    ",n=Math.max(g(e.stats.peak),0);let o=0;for(let i=1;i<s.t.length;i++)s.v[i]>s.v[o]&&(o=i);cons"
    "t r=s.t.length?s.v[o]:-1,a=m(_(t).time_ns);return r<n*.999&&a!==null?{time:a,bytes:n,drawn:!1"
    "}:s.t.length?{time:s.t[o],bytes:Math.max(n,r),drawn:r>=n*.999}:null}function $t(e){const t=E("
    "e).map(n=>({id:m(n.id),parent:g(n.parent),name:w(n.name)||w(n.path)||\"scope\",path:w(n.path)"
    "||w(n.name),site:n.site,count:m(n.count),delta:_(n.delta_bytes),peak:m(n.peak_bytes),time:_(n"
    ".time_ns),device:m(n.device_time_ns),live:m(n.live_bytes),running:m(n.running),calls:ee(n.inv"
    "ocations).filter(Array.isArray),depth:0,kids:[]})),s=new Map(t.map(n=>[n.id,n]));for(const n "
    "of t){let o=s.get(n.parent),r=0;for(let a=o;a&&r<1e3;a=s.get(a.parent))r=a===n?1e3:r+1;n.up=r"
    "<1e3&&o!==n?o:void 0,n.depth=n.up?r:0,n.up&&n.up.kids.push(n)}return{list:t,byId:s}}function "
    "Ot(e,t){const s=E(t.capacity),n=new Map(s.map(i=>[i.device,i])),o=i=>Array.isArray(i.devices)"
    "?i.devices:[i.device],r=new Map(E(t.peak_holders).map(i=>[i.device,i])),a=new Map;for(let i=0"
    ";i<e.events.n;i++)ke(e.events,i)&&a.set(e.events.device[i],(a.get(e.events.device[i])||0)+1);"
    "return E(t.devices).map((i,l)=>{const c={index:l,key:i.device,name:w(i.device)||\"device \"+l"
    ",label:w(i.label),stats:_(i.stats),source:i,capacity:_(n.get(i.device)),holder:r.get(i.device"
    ")};return c.mates=n.has(i.device)?o(c.capacity):[i.device],c.place=s.find(f=>f.device!==i.dev"
    "ice&&o(f).includes(i.device)),c.tags=E(t.tags).filter(f=>c.mates.includes(f.device)),c.curve="
    "Tt(e,c,a.get(l)||0),c.peak=St(c,c.holder),c})}const Ce=e=>e.devices.slice().sort((t,s)=>g(s.s"
    "tats.peak)-g(t.stats.peak));function Bt(e){const t=e.events,s=e.snapshots.filter(r=>r.name).m"
    "ap(r=>({time:r.time,name:r.name})),n=new Set(s.map(r=>r.name)),o=[];for(let r=0;r<t.n;r++)t.k"
    "ind[r]===wt||t.kind[r]===Fe?o.push({time:t.time[r],oom:t.kind[r]===Fe,device:t.device[r],byte"
    "s:t.bytes[r]}):t.kind[r]===xt&&!n.has(t.label(r))&&s.push({time:t.time[r",
    "],name:t.label(r)});e.marks=o,e.checkpoints=s.sort((r,a)=>r.time-a.time)}function Et(e){const"
    " t={raw:e,meta:_(e.metadata),total:_(e.total)};t.events=_t(e.events,e.strings),t.snapshots=At"
    "(e.snapshots),t.scopes=$t(e.scopes);const s=le(t.scopes.list,n=>le(n.calls,o=>g(o[0])+g(o[1])"
    "));return t.end=Math.max(g(t.meta.uptime_ns),t.events.n?t.events.time[t.events.n-1]:0,le(t.sn"
    "apshots,n=>n.time),s,1),t.devices=Ot(t,e),Bt(t),t.slices=It(t),t}const Lt=128;function Ct(e){"
    "const t=new Map,s=(n,o)=>t.has(n)?t.get(n).list.push(o):t.set(n,{list:[o]});for(const n of e."
    "scopes.list)for(const o of n.calls){if(m(o[0])===null||!(g(o[1])>=0))continue;const r={call:o"
    ",end:o[0]+g(o[1]),used:!1};s(n.id,r),s(n.id+\" \"+g(o[2]),r)}for(const n of t.values())n.list"
    ".sort((o,r)=>o.end-r.end),n.ends=n.list.map(o=>o.end);return t}function Ne(e,t,s,n){let o=nul"
    "l;if(!e)return null;const r=i=>Math.abs(i.end-n),a=H(e.ends,t-1,0,e.list.length);for(const i "
    "of e.list.slice(a,a+64))!i.used&&i.call[0]<=s&&(!o||r(i)<r(o))&&(o=i);return o}function jt(e,"
    "t,s,n,o){let a=Ne(e.get(t+\" \"+s),n===null?o:n,o,o);return!a&&(a=Ne(e.get(t),o-2e3,o,o),!a||"
    "a.end>o+2e3)?null:(a.used=!0,a.call)}function Pt(e,t){const s=new Map,n=new Map;for(let o=0;o"
    "<e.n;o++){const r=e.thread[o],a=e.scope[o],i=e.kind[o];if(ke(e,o)&&n.set(r,(n.get(r)||0)+ke(e"
    ",o)),i!==Re&&i!==Mt)continue;s.has(a)||s.set(a,new Map);const l=s.get(a);if(l.has(r)||l.set(r"
    ",[]),i===Re){l.get(r).push({time:e.time[o],sum:n.get(r)||0});continue}const c=l.get(r).pop();"
    "t(a,r,c?c.time:null,e.time[o],c?(n.get(r)||0)-c.sum:NaN)}for(const[o,r]of s)for(const[a,i]of "
    "r)for(const l of i)t(o,a,l.time,null,(n.get(a)||0)-l.sum)}function It(e){const t=[],s=Ct(e),n"
    "=e.events,o=(r,a,i,l,c,f)=>{e.scopes.byId.has(r)||e.scopes.byId.set(r,{id:r,name:\"scope \"+r"
    ",path:\"scope \"+r,depth:0}),t.push({scope:e.scopes.byId.get(r),thread:a,start:i,end:Math.max"
    "(l,i),delta:c,call:f})};Pt(n,(r,a,i,l,c)=>{const f=l===null?null:jt(s,r,a,i,l),h=i===null&&!f"
    ";i===null&&(i=f?f[0]:n.time[0]),o(r,a,i,l===null?e.end:l,f&&m(f[3])!==null?f[3]:c,f),Object.a"
    "ssign(t[t.length-1],{cut:h,running:l===null})}),e.paired=t.length;for(const r of e.scopes.lis"
    "t)for(const{call:a,end:i,used:l}of s.has(r.id)?s.get(r.id).list:[])l||o(r.id,g(a[2]),a[0],i,m"
    "(a[3]),a);return Dt(t)}function Dt(e){e.sort((o,r)=>o.thread-r.thread||o.start-r.start||r.end"
    "-o.end||o.scope.depth-r.scope.depth);const t=[];let s=0,n=null;for(const o of e){(!n||n.threa"
    "d!==o.thread)&&(s+=n?n.ends.length:0,n={thread:o.thread,first:s,ends:[]},t.push(n));const r=n"
    ".ends;let a=r.length;for(;a>0&&!(r[a-1]>=o.end&&r[a-1]>o.start);)a--;for(;a<r.length&&r[a]>o."
    "start;)a++;a=Math.min(a,Lt-1),r[a]=Math.max(o.end,r[a]||0),o.row=n.first+a}return Ft(e,t,s+(n"
    "?n.ends.length:0))}function Ft(e,t,s){const n=e.length,o=new Int32Array(s+1);for(const f of e"
    ")o[f.row+1]++;for(let f=0;f<s;f++)o[f+1]+=o[f];const r=o.slice(),a=new Array(n),i=new Float64"
    "Array(n),l=new Float64Array(n),c=new Uint8Array(n);for(const f of e){const h=r[f.row]++;a[h]="
    "f,i[h]=f.start,l[h]=f.end,c[h]=Ye(f.scope.name)}return{n,rows:s,from:o,all:a,start:i,end:l,hu"
    "eOf:c,threads:t,order:null}}const Oe='11px system-ui, \"Liberation Sans\", sans-serif';functi"
    "on de(e,t,s,n,o,r,a){e.strokeStyle=t,e.setLineDash(a||[]),e.beginPath(),e.moveTo(s,n),e.lineT"
    "o(o,r),e.stroke(),e.setLineDash([])}function J(e,t,s,n,o,r){e.fillStyle=t,e.textAlign=r||\"le"
    "ft\",e.fillText(s,n,o)}const u={from:0,to:1,end:1,charts:[],due:!1};function Z(){u.due||(u.du"
    "e=!0,requestAnimationFrame(et))}function et(){u.due=!1;for(const e of u.charts)e.draw()}funct"
    "ion q(e,t){const s=C(t-e,Math.min(Math.max(100,u.end*1e-9),u.end),u.end);u.from=C(e,0,u.end-s"
    "),u.to=u.from+s,Z();const n=u.to-u.from>u.end*.999999;T(\"range\").textContent=n?\"all \"+R(u"
    ".end):R(s)+\" from \"+fe(u.from,s/100)}const we=(e,t)=>q(e-(e-u.from)*t,e+(u.to-e)*t),je=()=>"
    "(u.from+u.to)/2,Me=e=>q(u.from+e*(u.to-u.from),u.to+e*(u.to-u.",
    "from));function tt(e,t){const s=e.canvas,n=s.parentElement.clientWidth,o=window.devicePixelRa"
    "tio||1;(e.width!==n||e.height!==t||e.ratio!==o)&&(s.width=Math.round(n*o),s.height=Math.round"
    "(t*o),s.style.height=t+\"px\",Object.assign(e,{width:n,height:t,ratio:o})),e.left=n<600?58:92"
    ";const r=s.getContext(\"2d\");return r.setTransform(o,0,0,o,0,0),r.clearRect(0,0,n,t),r.font="
    "Oe,r.textBaseline=\"middle\",r.lineWidth=1,s.dataset.from=u.from,s.dataset.to=u.to,r}const j="
    "(e,t)=>e.left+(t-u.from)/(u.to-u.from)*(e.width-e.left-1),se=(e,t)=>u.from+(t-e.left)/Math.ma"
    "x(e.width-e.left-1,1)*(u.to-u.from);function ue(e,t){let s=t/6.1,n=0;for(const o of e){if(s-="
    "o>=\"\\u1100\"?1.9:1,s<0)return n?e.slice(0,n)+\"\\u2026\":\"\";s>=1&&(n+=o.length)}return e}"
    "function nt(e,t,s,n){const o=u.to-u.from,r=(t.width-t.left)/100,a=o/Math.max(r,1),i=Math.pow("
    "10,Math.floor(Math.log10(a))),l=a/6e10,c=u.to<Ge||l<.5?[1,2,5,10].find(f=>f*i>=a)*i:([1,2,5,1"
    "0,20,30,60,120,180,360,720].find(f=>f>=l)||Math.ceil(l/1440)*1440)*6e10;for(let f=Math.ceil(u"
    ".from/c);f*c<=u.to;f++){const h=Math.round(j(t,f*c))+.5;de(e,x.grid,h,s,h,n),h<t.width-40&&J("
    "e,x.soft,fe(f*c,c),h+4,s+9)}}function Rt(e,t){if(t.key===\"+\"||t.key===\"=\")we(e.focus(),1/"
    "1.5);else if(t.key===\"-\"||t.key===\"_\")we(e.focus(),1.5);else if(t.key===\"0\"||t.key===\""
    "Home\")q(0,u.end);else return!1;return!0}function st(e,t){const s=e.canvas,n=new Map,o=a=>{co"
    "nst i=s.getBoundingClientRect();return{x:a.clientX-i.left,y:a.clientY-i.top,moved:0,type:a.po"
    "interType}},r=a=>{const i=n.get(a.pointerId);n.delete(a.pointerId),i&&i.moved<=3&&a.type===\""
    "pointerup\"&&t.tap&&t.tap(i.x,i.y)};Y(s,{pointerdown:a=>{a.button||(s.setPointerCapture(a.poi"
    "nterId),n.set(a.pointerId,o(a)),a.pointerType!==\"mouse\"&&t.hover(o(a).x,o(a).y))},pointermo"
    "ve:a=>{const i=o(a),l=n.get(a.pointerId);if(!l)return t.hover(i.x,i.y);i.moved=l.moved+Math.a"
    "bs(i.x-l.x)+Math.abs(i.y-l.y),n.set(a.pointerId,i),n.size===2?Nt(e,n,a.pointerId,l):l.type!=="
    "\"mouse\"&&!t.drags?t.hover(i.x,i.y):i.moved>3&&(t.leave(),Me((l.x-i.x)/(e.width-e.left)),t.s"
    "croll&&t.scroll(l.y-i.y))},pointerup:r,pointercancel:r,blur:t.leave,pointerleave:a=>a.pointer"
    "Type===\"mouse\"&&!n.size&&t.leave(),wheel:a=>Wt(e,a,t,o(a)),keydown:a=>a.ctrlKey||a.metaKey|"
    "|a.altKey||(t.key(a)||Rt(e,a))&&a.preventDefault()})}function Nt(e,t,s,n){const[o,r]=t.values"
    "(),a=t.get(s),i=a===o?r:o,l=Math.abs(n.x-i.x),c=Math.abs(a.x-i.x);if(l<8||c<8)return;const f="
    "se(e,(n.x+i.x)/2),h=(u.to-u.from)*l/c/(e.width-e.left),y=f-((a.x+i.x)/2-e.left)*h;q(y,y+h*(e."
    "width-e.left))}function Wt(e,t,s,{x:n,y:o}){const r=t.deltaMode===1?16:t.deltaMode===2?400:1,"
    "a=t.deltaX*r,i=t.deltaY*r;if(t.shiftKey&&s.scroll)s.scroll(a||i);else if(Math.abs(a)>Math.abs"
    "(i))Me(a/(e.width-e.left));else{if(i>0&&u.to-u.from>=u.end)return;we(se(e,Math.max(n,e.left))"
    ",Math.exp(C(i,-240,240)/400))}t.preventDefault(),s.hover(n,o)}function Pe(e,t,s,n,o){const r="
    "T(\"tip\"),a=e.canvas.getBoundingClientRect();N(r,d(\"b\",n),d(\"dl\",...[].concat(...o.map(("
    "[h,y,v])=>[d(\"dt\",h),d(\"dd\",{title:v},y)])))),r.hidden=!1;const i=r.offsetWidth,l=r.offse"
    "tHeight;let c=a.left+t+14,f=a.top+s+14;c+i>innerWidth-8&&(c=a.left+t-i-14),f+l>innerHeight-8&"
    "&(f=a.top+s-l-14),r.style.transform=`translate(${Math.max(c,8)}px, ${Math.max(f,8)}px)`}const"
    " re=()=>T(\"tip\").hidden=!0,ot=e=>T(\"live\").textContent=e,D=92,X=40,p={shown:8,cursor:null"
    ",draw:Kt};function Kt(){const e=p.profile,t=p.lanes.slice(0,p.shown),s=tt(p,X+t.length*D+2);i"
    "f(nt(s,p,0,p.height),t.forEach((o,r)=>Ht(s,o,X+r*D)),Jt(s,e.checkpoints),s.clearRect(0,0,p.le"
    "ft,p.height),t.forEach((o,r)=>Xt(s,o,X+r*D)),p.cursor===null)return;const n=j(p,p.cursor);de("
    "s,x.ink,n,14,n,p.height),s.fillStyle=x.ink,t.forEach((o,r)=>{const a=Qe(o.curve,p.cursor);a!="
    "=null&&(s.beginPath(),s.arc(n,oe(o,X+r*D,a),3,0,7),s.fill())})}function zt(e){const t=Math.ma"
    "x(e.curve.v.reduce((n,o)=>Math.max(n,o),1),g(e.stats.peak)),s=g(e.stats.limit);return s>0&&s",
    "<t*2?Math.max(s,t):t}const oe=(e,t,s)=>t+D-1-s/e.scale*(D-24);function Ht(e,t,s){const n=s+D-"
    "1,o=p.width;e.save(),e.beginPath(),e.rect(p.left,s,o-p.left,D),e.clip(),e.strokeStyle=x.accen"
    "t,e.fillStyle=x.fill,e.lineWidth=1.5,qt(e,t,s),e.stroke(),e.lineTo(o,n),e.lineTo(Math.max(j(p"
    ",t.curve.t[0]),p.left),n),e.fill(),e.lineWidth=1;const r=g(t.stats.limit);r>0&&r<=t.scale&&de"
    "(e,x.warn,p.left,oe(t,s,r),o,oe(t,s,r),[4,4]),Ut(e,t,s),t.peak&&Gt(e,t,s),e.restore(),de(e,x."
    "rule,0,n+.5,o,n+.5)}function qt(e,t,s){const{t:n,v:o,fine:r}=t.curve,a=n.length;let i=Math.ma"
    "x(H(n,u.from,0,a)-1,0),l=-1,c=0,f=0,h=0;const y=()=>l>=0&&[c,f,h].forEach(v=>e.lineTo(l+.5,v)"
    ");e.beginPath();for(let v=!1;i<a;i++){const k=C(j(p,n[i]),-1e5,1e5),B=oe(t,s,o[i]);if(v?i>r&&"
    "Math.floor(k)===l?(c=Math.min(c,B),f=Math.max(f,B)):(y(),i>r&&e.lineTo(k,h),e.lineTo(k,B),l=i"
    ">=r?Math.floor(k):-1,c=f=B):(e.moveTo(k,B),v=!0),h=B,n[i]>u.to)break}y()}function Ut(e,t,s){l"
    "et n=[-9,-9];for(const o of p.profile.marks){if(o.device!==t.index||o.time<u.from||o.time>u.t"
    "o)continue;const r=j(p,o.time),a=Number(o.oom);r-n[a]<2||(n[a]=r,e.fillStyle=o.oom?x.warn:x.g"
    "ood,e.fillRect(r-.5,s+20,1,D-21),e.beginPath(),e.moveTo(r-4,s+D-(o.oom?2:9)),e.lineTo(r+4,s+D"
    "-(o.oom?2:9)),e.lineTo(r,s+D-(o.oom?9:2)),e.fill())}}function Gt(e,t,s){const n=j(p,t.peak.ti"
    "me),o=oe(t,s,t.peak.bytes),r=\"peak \"+M(t.peak.bytes);if(n<p.left-5||n>p.width+5)return;e.st"
    "rokeStyle=e.fillStyle=x.accent,e.beginPath(),e.arc(n,o,3.5,0,7),t.peak.drawn?e.fill():e.strok"
    "e(),e.textAlign=\"left\",e.lineWidth=3,e.strokeStyle=x.paper,e.fillStyle=x.ink;const a=[r,C(n"
    "-4,p.left+2,p.width-e.measureText(r).width-3),o-11];e.strokeText(...a),e.fillText(...a),e.lin"
    "eWidth=1}function Xt(e,t,s){const n=Math.pow(2,Math.ceil(Math.log2(t.scale/4)));e.font=\"600 "
    "\"+Oe,J(e,x.ink,ue(t.name,p.left-6),0,s+10),e.font=Oe;for(let o=n;o<=t.scale;o+=n){const r=oe"
    "(t,s,o);if(r<s+(t.label?30:18))break;J(e,x.soft,M(o),p.left-6,r,\"right\"),e.fillRect(p.left-"
    "4,r,4,1)}t.label&&p.left>60&&J(e,x.soft,ue(t.label,p.left-6),0,s+24)}function Jt(e,t){let s=-"
    "1,n=-9;t.forEach(o=>{const r=Math.round(j(p,o.time))+.5;if(r<p.left||r>p.width||r-n<2)return;"
    "n=r,de(e,x.soft,r,X-4,r,p.height,[2,3]);const a=ue(o.name,160),i=e.measureText(a).width,l=Mat"
    "h.min(r,p.width-i-2);l<s+8||(s=l+i,J(e,x.ink,a,l,X-11))})}function rt(e,t,s,n){const o=p,r=o."
    "profile,a=(u.to-u.from)/o.width*4;o.cursor=C(e,u.from,u.to);const i=o.lanes.slice(0,Math.min("
    "o.shown,16)).map(f=>{const h=Qe(f.curve,o.cursor);return[f.name,h===null?\"\\u2013\":M(Math.r"
    "ound(h))]}),l=f=>f.filter(h=>Math.abs(h.time-o.cursor)<=a).slice(0,3);for(const f of l(r.chec"
    "kpoints))i.push([\"checkpoint\",f.name]);for(const f of l(r.marks))i.push([f.oom?\"out of mem"
    "ory, wanted\":\"collected\",M(f.bytes)]);const c=fe(o.cursor,(u.to-u.from)/1e3);Pe(o,t===null"
    "?j(o,o.cursor):t,s,c,i),n&&ot(c+\": \"+i.map(f=>f.join(\" \")).join(\", \")),Z()}function Vt("
    "e){const t={ArrowLeft:-1,ArrowRight:1}[e.key];if(e.key===\"Escape\")return Be(),!0;if(!t)retu"
    "rn!1;const s=u.to-u.from,n=s/(e.shiftKey?10:100),o=C(p.focus()+t*n,0,u.end);return(o<u.from||"
    "o>u.to)&&q(u.from+t*s/4,u.to+t*s/4),rt(o,null,X,!0),!0}function Be(){p.cursor=null,re(),Z()}f"
    "unction Yt(e,t){const s=Ce(e).filter(l=>l.curve.t.length);if(!s.length)return!1;for(const l o"
    "f s)l.scale=zt(l);const n=d(\"canvas\",{tabindex:0,role:\"application\",\"aria-label\":\"Live"
    " bytes per device over time. Left and right move the cursor and read the values.\"});Object.a"
    "ssign(p,{canvas:n,profile:e,lanes:s,shown:8,cursor:null,width:0,focus:()=>p.cursor===null?je("
    "):p.cursor}),u.charts.push(p),st(p,{hover:(l,c)=>l>=p.left?rt(se(p,l),l,c):Be(),leave:Be,key:"
    "Vt});const o=V(`More of ${O(s.length)} devices`,()=>{p.shown=Math.min(p.shown+16,120,s.length"
    "),o.hidden=p.shown>=Math.min(120,s.length),Z()});o.hidden=s.length<=p.shown;const r=(l,c,f)=>"
    "d(\"li\",d(\"i\",{class:f},l),c),a=e.marks.some(l=>l.oom),i=e.marks.some(l=>!l.oo",
    "m);return N(t,d(\"div\",n),d(\"ul.keys\",r(\"\\u25CF\",\"peak\"),s.some(l=>l.peak&&!l.peak.dr"
    "awn)&&r(\"\\u25CB\",\"peak that no snapshot saw\"),e.checkpoints.length?r(\"\\u250A\",\"check"
    "point\"):null,i?r(\"\\u25BC\",\"collection\",\"g\"):null,a?r(\"\\u25B2\",\"out of memory\",\""
    "w\"):null,d(\"li\",e.events.n?`${F(e.events.n,\"event\")} since ${R(e.events.time[0])}`+(e.ev"
    "ents.lost?`, ${O(e.events.lost)} older ones overwritten`:\"\"):F(e.snapshots.length,\"snapsho"
    "t\"))),d(\"p.tools\",o)),!0}const K=18,U=22,he=8,A={selected:-1,draw:Qt};function Zt(e){const"
    " t=new Float64Array(e.rows+1);let s=0,n=U;for(let o=0;o<e.rows;o++){for(;s<e.threads.length&&"
    "e.threads[s].first===o;)s++,n+=he;t[o]=n,n+=K}return t[e.rows]=n+he,t}function Qt(){const e=A"
    ",t=e.slices,s=T(\"lanes\"),n=tt(e,Math.max(Math.min(e.tops[t.rows],innerHeight*.7),60)),o=s.s"
    "crollTop;let r=H(e.tops,o+U-K,0,t.rows);const a=r;for(n.textAlign=\"left\";r<t.rows&&e.tops[r"
    "]-o<e.height;r++)tn(n,t,r,e.tops[r]-o);e.selected>=0&&nn(n,t.all[e.selected],o),n.clearRect(0"
    ",0,e.width,U),n.clearRect(0,0,e.left,e.height),nt(n,e,0,U),en(n,t,a,r,o)}function en(e,t,s,n,"
    "o){t.threads.forEach((r,a)=>{const i=a+1<t.threads.length?t.threads[a+1].first:t.rows;if(i<=s"
    "||r.first>=n)return;const l=A.tops[r.first]-o,c=A.tops[i-1]-o;e.fillStyle=x.rule,l>U&&e.fillR"
    "ect(0,Math.round(l-he/2),A.width,1);const f=(A.left>60?\"thread \":\"thr \")+r.thread;J(e,x.s"
    "oft,ue(f,A.left-4),0,C(U+9,l+9,c+9))})}function tn(e,t,s,n){const o=A,r=t.from[s+1];let a=H(t"
    ".end,u.from-.5,t.from[s],r),i=null;const l=()=>{i&&(e.fillStyle=x.shades[i.hue],e.fillRect(i."
    "x,n,i.w,K-2)),i=null};for(;a<r&&t.start[a]<u.to;){const c=Math.max(j(o,t.start[a]),o.left),f="
    "Math.min(j(o,t.end[a]),o.width);if(f-c>=1){l(),e.fillStyle=x.shades[t.hueOf[a]],e.fillRect(c,"
    "n,Math.max(f-c-.5,1),K-2),f-c>26&&J(e,x.ink,ue(t.all[a].scope.name,f-c-8),c+4,n+K/2),a++;cont"
    "inue}const h=Math.floor(c);i&&i.hue===t.hueOf[a]&&i.x+i.w===h?i.w++:(l(),i={x:h,w:1,hue:t.hue"
    "Of[a]}),a=H(t.end,se(o,h+1),a+1,r)}l()}function nn(e,t,s){const n=A,o=Math.max(j(n,t.start),n"
    ".left-3),r=Math.min(j(n,t.end),n.width+3);e.strokeStyle=x.ink,e.lineWidth=2,e.strokeRect(o-.5"
    ",n.tops[t.row]-s-1,Math.max(r-o,2),K),e.lineWidth=1}function at(e,t){const s=A,n=s.slices,o=t"
    "+T(\"lanes\").scrollTop,r=H(s.tops,o,0,n.rows)-1;if(t<U||e<s.left||r<0||o>s.tops[r]+K)return-"
    "1;const a=H(n.end,se(s,e-1),n.from[r],n.from[r+1]);return a<n.from[r+1]&&n.start[a]<=se(s,e+1"
    ")?a:-1}function Ee(e){const t=e.call||[],s=Math.max(e.end-e.start,1e3)/1e3,n=m(e.delta),o=m(t"
    "[7]);return[[\"duration\",(e.cut?\"at least \":\"\")+R(e.end-e.start)+(e.running?\", running"
    "\":\"\")],n!==null&&[\"delta\",Je(n),z(n)],m(t[4])!==null&&[\"blocks\",Xe(t[4])+O(t[4])],o!=="
    "null&&[\"peak inside\",M(o)],m(t[5])!==null&&[\"before, after\",M(t[5])+\", \"+M(m(t[6]))],["
    "\"start\",(e.cut?\"before \":\"\")+fe(e.start,s)],[\"end\",fe(e.end,s)],[\"thread\",String(e."
    "thread)],t[8]&&[\"shapes\",w(t[8])]].filter(Boolean)}function _e(e,t){const s=A,n=s.slices.al"
    "l[e];if(s.selected=e,Z(),e<0)return re();if(t){const o=u.to-u.from,r=n.end-n.start;(n.end<u.f"
    "rom||n.start>u.to||r<o/400)&&q(n.start-Math.min(o,r*50)/4,n.start+Math.min(o,Math.max(r*50,1e"
    "3))*3/4);const a=T(\"lanes\"),i=s.tops[n.row];a.scrollTop=C(a.scrollTop,i+K-s.height+he,i-U-h"
    "e),ot(n.scope.path+\", \"+Ee(n).map(l=>l[0]+\" \"+l[1]).join(\", \"))}Pe(s,C(j(s,n.start),s.l"
    "eft,s.width),s.tops[n.row]-T(\"lanes\").scrollTop+K,n.scope.path,Ee(n))}function sn(e){const "
    "t=A.slices;t.order||(t.order=Uint32Array.from(t.all.keys()).sort((n,o)=>t.start[n]-t.start[o]"
    "||t.all[n].row-t.all[o].row),t.order.forEach((n,o)=>t.all[n].rank=o));const s=A.selected>=0?t"
    ".all[A.selected].rank+e:t.order.findIndex(n=>t.start[n]>=u.from);_e(t.order[C(s,0,t.n-1)],!0)"
    "}function We(e){const t=A.slices,s=t.all[A.selected],n=s?s.row+e:-1;if(!s||n<0||n>=t.rows)ret"
    "urn;const o=Math.min(H(t.end,s.start,t.from[n],t.from[n+1]),t.from[n+1]-1);o>=t.from[n]&&_e(o"
    ",!0)}function on(e){const t=e.shiftKey?.8:.15;if",
    "(e.key===\"ArrowLeft\")Me(-t);else if(e.key===\"ArrowRight\")Me(t);else if(e.key===\"Enter\")"
    "sn(e.shiftKey?-1:1);else if(e.key===\"Escape\")_e(-1);else if(e.key===\"ArrowUp\"&&A.selected"
    ">=0)We(-1);else if(e.key===\"ArrowDown\"&&A.selected>=0)We(1);else return!1;return!0}function"
    " rn(e,t){const s=at(e,t),n=A.slices.all[s];A.canvas.style.cursor=n?\"pointer\":\"\",n?Pe(A,e,"
    "t,n.scope.path,Ee(n)):re()}function an(e,t){const s=e.slices;if(!s.n)return!1;const n=d(\"can"
    "vas\",{tabindex:0,role:\"application\",\"aria-label\":\"Timeline of scopes, \"+F(s.n,\"invoca"
    "tion\")+\". Enter walks from scope to scope.\",dblclick:()=>{const i=s.all[A.selected];i&&q(i"
    ".start-(i.end-i.start)*.1,i.end+(i.end-i.start)*.1)}});Object.assign(A,{canvas:n,slices:s,top"
    "s:Zt(s),selected:-1,width:0,focus:()=>A.selected>=0?s.start[A.selected]:je()}),u.charts.push("
    "A);const o=d(\"div\",n),r=d(\"div\",{id:\"lanes\",scroll:Z},o);o.style.height=A.tops[s.rows]+"
    "\"px\",st(A,{drags:!0,hover:rn,leave:re,key:on,tap:(i,l)=>_e(at(i,l)),scroll:i=>r.scrollTop+="
    "i});const a=e.paired<s.n?\"Each scope keeps its last invocations; the event ring keeps all th"
    "at fit.\":\"\";return N(t,r,d(\"p.keys\",`${F(s.n,\"invocation\")} on ${F(s.threads.length,\""
    "thread\")}. ${a}`)),!0}const ln={text:[e=>e,e=>e.length>28?e:null],bytes:[M,z],signed:[Je,z],"
    "count:[O],time:[R,e=>e===null?null:O(e)+\" ns\"],share:[ve]},ge=200,cn=new Intl.Collator(\"en"
    "\",{numeric:!0}),Ke=(e,t)=>typeof e==\"string\"?cn.compare(e,t):e-t;function fn(e,t,s,n){cons"
    "t o=new Map(e.map(c=>[c,t(c)])),r=c=>c===null||c===\"\",a=(c,f)=>{const h=o.get(c),y=o.get(f)"
    ";return r(h)||r(y)?r(h)-r(y):s?Ke(y,h):Ke(h,y)};if(!n)return e.slice().sort(a);const i=[],l=e"
    ".filter(c=>!c.up).sort(a).reverse();for(let c;c=l.pop();)i.push(c),l.push(...c.kids.filter(f="
    ">o.has(f)).sort(a).reverse());return i}function dn(e,t,s){const n=e.get(t),[o,r]=ln[e.kind],a"
    "=e.brief?e.brief(t):o(n),i=e.full?e.full(t):r&&n!==null?r(n):null,l=d(\"td\",{class:e.kind==="
    "\"text\"?\"t\":\"n\",title:i},a);return e.mono&&l.classList.add(\"mono\"),e.indent&&t.depth&&"
    "(l.style.paddingLeft=.7+Math.min(t.depth,12)*1.1+\"rem\"),e.tone&&n&&l.classList.add(n<0?\"mi"
    "nus\":\"over\"),e.share&&n>0&&(l.classList.add(\"share\"),l.style.setProperty(\"--share\",n/s"
    ".get(e)*100+\"%\")),l}function Ie(e,t,s){e=e.map(([b,P,ae,pe])=>Object.assign({title:b,kind:P"
    ",get:ae},pe)).filter(b=>b.keep||t.some(P=>b.get(P)!==null&&b.get(P)!==\"\"));const n={rows:t,"
    "limit:ge,sort:null,down:!1,filter:\"\"},o=new Map(e.filter(b=>b.share).map(b=>[b,le(t,b.get)|"
    "|1])),r=d(\"tbody\"),a=d(\"output\"),i=e.map(b=>d(\"th\",{scope:\"col\"},V(b.title,()=>v(b),{"
    "class:b.kind===\"text\"?null:\"n\"}))),l=V(\"Show more\",()=>{n.limit+=ge*5,y()}),c=new Map,f"
    "=e.filter(b=>b.kind===\"text\"),h=b=>(c.has(b)||c.set(b,f.map(P=>(P.full||P.get)(b)).join(`\n"
    "`).toLowerCase()),c.get(b).includes(n.filter));function y(){const b=n.filter?n.rows.filter(h)"
    ":n.rows,P=b.slice(0,n.limit).map(ae=>un(e,ae,o,s));N(r,...[].concat(...P)),a.textContent=b.le"
    "ngth<t.length||t.length>ge?`${O(Math.min(b.length,n.limit))} of ${O(b.length)}`:\"\",l.parent"
    "Element.hidden=b.length<=n.limit}function v(b,P){n.down=P===void 0?n.sort===b?!n.down:b.kind!"
    "==\"text\":P,n.sort=b,n.rows=fn(t,b.get,n.down,s.tree),e.forEach((ae,pe)=>ae===b?i[pe].setAtt"
    "ribute(\"aria-sort\",n.down?\"descending\":\"ascending\"):i[pe].removeAttribute(\"aria-sort\""
    ")),y()}const k=d(\"input\",{type:\"search\",placeholder:\"Filter\",\"aria-label\":\"Filter \""
    "+s.name,input:()=>{n.filter=k.value.toLowerCase(),n.limit=ge,y()}}),B=d(\"div.box\",{tabindex"
    ":0,role:\"region\",\"aria-label\":s.name},d(\"table\",d(\"thead\",d(\"tr\",...i)),r),d(\"div."
    "more\",l)),me=e.find(b=>b.title===s.sort)||e[0];return v(me,s.up?!1:me.kind!==\"text\"),d(\"d"
    "iv\",t.length>8?d(\"div.tools\",k,a):null,B)}function un(e,t,s,n){const o=d(\"tr\",...e.map(i"
    "=>dn(i,t,s)));if(!n.inner||!n.inner(t,!0))return[o];let r=null;const a=V(\"\\u25B8\",()=>{r?("
    "r.remove(),r=null):o.after(r=d(\"tr\",d(\"td.inner\",{colspan:e.length},n.inner(t)))),a.setAt"
    "tribut",
    "e(\"aria-expanded\",String(!!r)),a.textContent=r?\"\\u25BE\":\"\\u25B8\"},{class:\"toggle\","
    "\"aria-expanded\":\"false\",\"aria-label\":\"Parts\"});return o.firstChild.prepend(a,\" \"),["
    "o]}const S=(e,t,s)=>[e,\"text\",n=>w(n[t]),s],Le=e=>(t,s,n)=>[t,e,o=>m(o[s]),n],[$,L]=[Le(\"b"
    "ytes\"),Le(\"count\")],I={share:!0},it={mono:!0},Ae=[\"Site\",\"text\",e=>ce(e.site),{mono:!0"
    ",brief:e=>ce(e.site,!0)}];function W(e,t,s,n){return e.length?(N(t,Ie(s,e,n)),!0):!1}const G="
    "(e,t,s,n,o)=>[e,t,r=>m(r[s][n]),o],hn={scopes:(e,t)=>W(e.scopes.list,t,[[\"Scope\",\"text\",s"
    "=>s.depth?s.name:s.path,{indent:!0,full:s=>s.path}],L(\"Count\",\"count\"),G(\"Delta\",\"sign"
    "ed\",\"delta\",\"total\"),G(\"avg\",\"signed\",\"delta\",\"avg\"),G(\"min\",\"signed\",\"delt"
    "a\",\"min\"),G(\"max\",\"signed\",\"delta\",\"max\"),$(\"Peak inside\",\"peak\",I),G(\"Time\""
    ",\"time\",\"time\",\"total\",I),G(\"avg time\",\"time\",\"time\",\"avg\"),G(\"max time\",\"ti"
    "me\",\"time\",\"max\"),[\"Device time\",\"time\",s=>s.device||null],$(\"Still held\",\"live\""
    "),[\"Running\",\"count\",s=>s.running||null],Ae],{name:\"scopes\",sort:\"Time\",tree:!0}),tag"
    "s:(e,t)=>W(E(e.raw.tags),t,[S(\"Tag\",\"tag\"),S(\"Device\",\"device\"),$(\"Live\",\"allocate"
    "d\",I),$(\"Peak\",\"peak\"),L(\"Blocks\",\"blocks\"),[\"Planned\",\"bytes\",s=>m(s.expected)|"
    "|null],[\"Variance\",\"signed\",s=>m(s.expected)?m(s.variance):null,{tone:!0}]],{name:\"tags"
    "\",sort:\"Live\"}),sites:(e,t)=>W(E(e.raw.sites),t,[[\"Function\",\"text\",s=>w(_(s.site).fun"
    "ction)||\"(not known)\"],[\"Place\",\"text\",s=>ze(s),{mono:!0,brief:s=>ze(s,!0)}],S(\"Device"
    "\",\"device\"),$(\"Live\",\"live_bytes\",I),$(\"Peak\",\"peak_bytes\"),L(\"Allocs\",\"allocs"
    "\"),$(\"Allocated\",\"alloc_bytes\"),L(\"Frees\",\"frees\"),$(\"Freed\",\"free_bytes\")],{nam"
    "e:\"sites\",sort:\"Live\"}),blocks:(e,t)=>W(E(_(e.raw.largest_blocks).blocks),t,[[\"Name\",\""
    "text\",s=>w(s.name)||w(s.storage),{keep:!0}],S(\"Tag\",\"tag\"),$(\"Bytes\",\"bytes\",I),S(\""
    "Device\",\"device\"),S(\"Type\",\"dtype\"),[\"Shape\",\"text\",lt],L(\"Refs\",\"refs\"),[\"Pa"
    "rts\",\"count\",s=>m(_(s.parts).count)],S(\"Scope\",\"scope\"),Ae,S(\"Storage\",\"storage\",i"
    "t),[\"Flags\",\"count\",s=>m(s.flags)||null],[\"Born\",\"count\",s=>m(s.born)||null],[\"State"
    "\",\"text\",s=>s.pending===!0||g(s.pending)?\"waits for its device\":\"\"]],{name:\"largest b"
    "locks\",sort:\"Bytes\",inner:mn}),leaks:(e,t)=>W(E(_(e.raw.leaks).by_site),t,[Ae,S(\"Tag\",\""
    "tag\"),S(\"Scope\",\"scope\"),S(\"Device\",\"device\"),$(\"Bytes\",\"bytes\",I),L(\"Blocks\","
    "\"count\")],{name:\"blocks that are still there\",sort:\"Bytes\"}),accounts:(e,t)=>W(E(_(e.ra"
    "w.accounts).largest),t,[S(\"Account\",\"name\"),S(\"Device\",\"device\"),$(\"Held\",\"bytes\""
    ",I),$(\"Peak\",\"peak\"),$(\"Limit\",\"limit\"),L(\"Refused\",\"refused\")],{name:\"accounts"
    "\",sort:\"Held\"}),moves:(e,t)=>W(E(e.raw.moves),t,[S(\"From\",\"from\"),S(\"To\",\"to\"),L("
    "\"Count\",\"count\"),$(\"Bytes\",\"bytes\",I)],{name:\"moves\",sort:\"Bytes\"}),snapshots:(e,"
    "t)=>W(e.snapshots,t,[Le(\"time\")(\"At\",\"time\"),S(\"Checkpoint\",\"name\"),$(\"Live\",\"by"
    "tes\",I),L(\"Blocks\",\"blocks\"),...Ce(e).slice(0,12).map(s=>[s.name,\"bytes\",n=>m(_(n.devi"
    "ces.get(s.key)).total_bytes)]),S(\"Time\",\"stamp\")],{name:\"snapshots\",sort:\"At\",up:!0})"
    ",threads:(e,t)=>W(E(e.raw.threads),t,[L(\"Thread\",\"id\"),L(\"Allocs\",\"allocs\"),L(\"Frees"
    "\",\"frees\"),$(\"Allocated\",\"bytes_allocated\",I),$(\"Freed\",\"bytes_freed\")],{name:\"th"
    "reads\",sort:\"Allocated\"})},ze=(e,t)=>ce(Object.assign({},e.site,{function:\"\"}),t),lt=e=>"
    "ee(e.shape).slice(0,16).map(t=>w(t)).join(\" \\xD7 \");function mn(e,t){const s=_(e.parts),n="
    "E(s.listed);if(t||!n.length)return n.length;const o=g(s.count)-n.length;return d(\"div\",Ie(["
    "S(\"Name\",\"name\"),L(\"Offset\",\"offset\"),$(\"Bytes\",\"bytes\",I),S(\"Type\",\"dtype\"),"
    "[\"Shape\",\"text\",lt],S(\"Tag\",\"tag\")],n,{name:\"parts of \"+(w(e.name)||w(e.storage)),s"
    "ort:\"Offset\",up:!0}),o>0?d(\"p.soft\",O(o)+\" more are not listed\"):null)}function pn(e,t,"
    "s){const n=[],o=ne(e,c=>c.bytes),r=o?t*s/o:0;let a=0,i=0,l=0;for(;l<e.length&&t>0&&s>0;){cons"
    "t c=Math.min(t,s);let f=0,h=l,y=1/0;for(;h<e.length;h++){const k=f+e[h].bytes*r,B=e[l].bytes*"
    "r,me=e[h].bytes*r,b=Math.max(c*c*B/(k*k),k*k/(c*c*me));if(b>y)break;y=b,f=k}const v=f/c;",
    "for(let k=0;l<h;l++){const B=e[l].bytes*r/v;n.push(t<s?[a+k,i,B,v]:[a,i+k,v,B]),k+=B}t<s?(i+="
    "v,s-=v):(a+=v,t-=v)}return n}function Te(e,t){const s=E(_(e.holder)[t]).map(o=>({bytes:Math.m"
    "ax(g(o.bytes),0),name:t===\"tags\"?w(o.tag)||\"untagged\":ce(o.site)||\"site not known\"})).f"
    "ilter(o=>o.bytes>0).sort((o,r)=>r.bytes-o.bytes),n=g(e.holder.bytes)-ne(s,o=>o.bytes);return "
    "n>0&&s.push({name:s.length?\"other \"+t:\"not known\",bytes:n,kind:\"rest\"}),s}function yn(e"
    ",t,s,n){const o=pn(e,s,n),r=d(\"div.map\",{role:\"list\",keydown:a=>{const i={ArrowRight:1,Ar"
    "rowDown:1,ArrowLeft:-1,ArrowUp:-1}[a.key],l=[...r.children],c=l[l.indexOf(a.target)+i];!i||!c"
    "||(a.preventDefault(),a.target.tabIndex=-1,c.tabIndex=0,c.focus())}});return o.forEach(([a,i,"
    "l,c],f)=>{const h=e[f],y=[M(h.bytes),ve(h.bytes/t)],v=d(\"div\",{role:\"listitem\",tabindex:f"
    "?-1:0,title:`${h.name}\n${z(h.bytes)}`,\"aria-label\":h.name+\" \"+y.join(\", \")},l>44&&c>20"
    "&&d(\"b\",h.name),...y.map(k=>l>60&&c>60&&d(\"span\",k)));Object.assign(v.style,{left:a/s*100"
    "+\"%\",top:i/n*100+\"%\",width:l/s*100+\"%\",height:c/n*100+\"%\"}),r.append($e(v,h))}),r}fun"
    "ction gn(e,t){const s=e.devices.filter(f=>f.holder&&(Te(f,\"tags\").length||Te(f,\"sites\").l"
    "ength)).sort((f,h)=>g(h.holder.bytes)-g(f.holder.bytes));if(!s.length)return!1;let n=s[0],o="
    "\"tags\";const r=d(\"div\"),a=d(\"output\"),i=d(\"select\",{\"aria-label\":\"Device\",change:"
    "()=>{n=s[i.selectedIndex],c()}},...s.map(f=>d(\"option\",f.name))),l=[\"tags\",\"sites\"].map"
    "(f=>V(\"by \"+f.slice(0,-1),()=>{o=f,c()}));function c(){const f=Te(n,o),h=t.clientWidth||1e3"
    ";l.forEach((k,B)=>k.setAttribute(\"aria-pressed\",String(o===[\"tags\",\"sites\"][B])));const"
    " y=m(n.holder.time_ns);a.textContent=M(m(n.holder.bytes))+(y===null?\"\":\" at \"+R(y))+(m(n."
    "stats.peak)!==null?\", peak \"+M(m(n.stats.peak)):\"\");const v=ne(f,k=>k.bytes);N(r,yn(f,v,h"
    ",h<600?416:352),d(\"details\",d(\"summary\",\"As a table\"),Ie([[\"Name\",\"text\",k=>k.name,"
    "it],[\"Bytes\",\"bytes\",k=>k.bytes,I],[\"Share\",\"share\",k=>k.bytes/v]],f,{name:\"holders "
    "of the peak\",sort:\"Bytes\"})))}return N(t,d(\"div.tools\",s.length>1?i:d(\"b\",n.name),d(\""
    "span.group\",...l),a),r),c(),!0}function bn(e){const t=e.capacity,s=m(t.total),n=m(t.used),o="
    "m(t.self)===null?g(e.stats.allocated):t.self,r=new Map;for(const y of e.tags)r.set(w(y.tag),("
    "r.get(w(y.tag))||0)+Math.max(g(y.allocated),0));const a=[...r].map(([y,v])=>({name:y,bytes:v}"
    ")).filter(y=>y.bytes).sort((y,v)=>v.bytes-y.bytes),i=a.slice(0,7),l=ne(a.slice(7),y=>y.bytes)"
    ",c=m(t.untagged)===null?o-ne(a,y=>y.bytes):t.untagged;if(l>0&&i.push({name:`${a.length-7} oth"
    "er tags`,bytes:l,kind:\"grey\"}),c>0&&i.push({name:\"untagged\",bytes:c,kind:\"grey\"}),s===n"
    "ull||n===null)return{shown:i,self:o,total:null};const f=n-o,h=Math.max(s-n,0);return i.push({"
    "name:\"unaccounted\",bytes:f,kind:\"hatch\"}),i.push({name:\"free\",bytes:h,kind:\"free\"}),{"
    "shown:i,self:o,total:s,free:h,unaccounted:f}}function vn(e){const t=ne(e.shown,n=>Math.max(n."
    "bytes,0)),s=d(\"div.stack\",{role:\"img\",\"aria-label\":e.shown.map(n=>n.name+\" \"+M(n.byte"
    "s)).join(\", \")});for(const n of e.shown){if(n.bytes<=0||n.kind===\"free\"||!t)continue;cons"
    "t o=$e(d(\"i\",{title:`${n.name}: ${z(n.bytes)}`}),n);o.style.width=n.bytes/t*100+\"%\",s.app"
    "end(o)}return d(\"div\",s,d(\"ul.legend\",...e.shown.map(n=>d(\"li\",$e(d(\"i\"),n),d(\"span"
    "\",{title:n.name},n.name),Q(n.bytes)))))}function kn(e,t){if(t.total===null)return e.place?`I"
    "ts bytes are in the memory of ${w(e.place.device)}, and in self there.`:e.key===\"mapped\"?\""
    "Mapped files are page cache, which is in no device\\u2019s self.\":\"The capacity of this dev"
    "ice is not known.\";const s=e.capacity,n=[],o=e.mates.filter(a=>a!==e.key).map(w);o.length&&n"
    ".push(\"self is also of \"+o.join(\", \"));const r=`${M(t.total)} = ${M(t.free)} free + ${M(t"
    ".self)} self `+(t.unaccounted<0?\"\\u2212 \"+M(-t.unaccounted):\"+ \"+M(t.unaccounted))+\" un"
    "accounted\";return m(s.process)!==null&&n.push(\"the rest of this process \"+M(Math.max(s.pro"
    "cess-t.self,0))),m(s.othe",
    "rs)!==null&&n.push(\"others \"+M(s.others)),m(e.stats.cached)&&n.push(\"the host\\u2019s pool"
    " holds \"+M(e.stats.cached)+\" unused\"),m(s.age_ns)>1e9&&n.push(\"sampled \"+R(s.age_ns)+\" "
    "ago\"),(r+(n.length?\": \"+n.join(\", \"):\"\")+\".\").replace(/(\\d) (?=[KMGTPE]?i?B)/g,\"$1"
    "\\xA0\")}function wn(e){const t=e.stats,s=e.capacity,n=g(t.cache_hits)+g(t.cache_misses),o=(a"
    ",i)=>m(i)&&[a,M(i),z(i)],r=(a,i)=>m(i)&&[a,O(i)];return Ve([[\"peak\",M(m(t.peak))+(g(t.peak_"
    "error)?\", low by at most \"+M(t.peak_error):\"\"),z(m(t.peak))],o(\"pending\",t.pending),o("
    "\"reserved\",t.reserved),o(\"limit\",t.limit),m(t.limit)!==s.limit&&o(\"limit\",s.limit),o(\""
    "held for requests\",s.held),o(\"in arenas\",e.source.arena),r(\"blocks\",t.live_blocks),r(\"a"
    "llocs\",t.allocs),r(\"frees\",t.frees),r(\"arrived by move\",t.moves),r(\"collections\",t.gc_"
    "runs),o(\"reclaimed\",t.gc_reclaimed),m(e.source.fragmentation)!==null&&[\"fragmentation\",ve"
    "(e.source.fragmentation)],n&&[\"pool hits\",ve(t.cache_hits/n)],r(\"requests saved by a retry"
    "\",t.recoveries)])}function ct(e,t){const s=le(t,r=>r[1]);if(!s)return null;const n=d(\"div.p"
    "lot\",...t.map(([r,a,i])=>{const l=d(\"i\",{title:`${i||r}: ${O(a)} blocks`});return l.style."
    "height=a>0?Math.max(a/s*100,3)+\"%\":0,l})),o=t.length>4?[0,t.length>>1,t.length-1]:[...t.key"
    "s()];return d(\"figure.bars\",{role:\"img\",\"aria-label\":e+\": \"+t.filter(r=>r[1]).map(r=>"
    "`${r[0]} ${r[1]}`).join(\", \")},d(\"figcaption\",e),n,d(\"div.axis\",...o.map(r=>d(\"span\","
    "t[r][0]))))}function Mn(e){const t=new Map(E(e.source.sizes).filter(o=>g(o.blocks)>0&&g(o.fro"
    "m)>=0).map(o=>[g(o.from)<1?-1:Math.floor(Math.log2(o.from)),o.blocks])),s=[...t.keys()].sort("
    "(o,r)=>o-r),n=[];for(let o=s[0];o<=s[s.length-1];o++){const r=M(o<0?0:Math.pow(2,o));n.push(["
    "r,t.get(o)||0,o<0?\"empty\":`${r} to ${M(Math.pow(2,o+1))}`])}return ct(\"live blocks by size"
    "\",n)}function xn(e){const t=_(e.source.lifetimes),s=(n,o,r)=>[n,g(t[o]),r];return ct(\"lifet"
    "ime when freed\",[s(\"<0.1\",\"under_100ms\",\"less than 100 ms\"),s(\"<1\",\"under_1s\",\"0."
    "1 to 1 s\"),s(\"<10\",\"under_10s\",\"1 to 10 s\"),s(\"10 s+\",\"longer\",\"10 s and longer\""
    ")])}function _n(e){const t=bn(e),s=_(e.source.last_oom);return d(\"article.card\",d(\"header"
    "\",d(\"h3\",e.name),d(\"span.soft\",{title:e.label},e.label),d(\"b\",Q(m(e.stats.allocated)))"
    "),vn(t),d(\"p.sum\",kn(e,t)),wn(e),d(\"div.charts\",Mn(e),xn(e)),e.source.last_oom?d(\"p.bad"
    "\",`Last found no memory: wanted ${M(m(s.bytes))} with ${M(m(s.live))} live${s.site?\", at \""
    "+ce(s.site):\"\"}.`):null)}function An(e,t){if(!e.devices.length)return!1;const s=Ce(e),n=d("
    "\"div.cards\");let o=0;const r=V(`More of ${O(s.length)} devices`,()=>{n.append(...s.slice(o,"
    "o+12).map(_n)),o+=12,r.parentElement.hidden=o>=s.length});return N(t,n,d(\"p.tools\",r)),r.cl"
    "ick(),!0}const He={implicit_frees:[\"alloc\",\"over a live storage\"],unknown_frees:[\"free\""
    ",\"of a storage that was not live\"],freed_while_shared:[\"free\",\"of a storage with views\""
    "],underflows:[\"arena_sub\",\"below the balance\"],fence_failures:[\"fence\",\"that failed\"]"
    ",oom_failures:[\"request\",\"that found no memory in the end\"],gc_failed:[\"collection\",\"t"
    "hat did not run\"],dropped_allocs:[\"alloc\",\"the map had no room for: totals are too low\"]"
    ",dropped_bytes:[\"byte\",\"of those\"],dropped_sites:[\"record\",\"of sites or tags without r"
    "oom\"]},Tn=[\"scope_invocations\",\"snapshots\"];function Sn(e){const t=[],s=_(e.meta.dropped"
    ");for(const n of Object.keys(He)){const o=e.devices.filter(i=>g(i.stats[n])),r=e.devices.leng"
    "th<2,a=o.slice(0,4).map(i=>i.name+(o.length>1?\" \"+O(i.stats[n]):\"\"));o.length>4&&a.push(`"
    "${o.length-4} more`),g(e.total[n])&&t.push([e.total[n],He[n],o.length&&!r?\": \"+a.join(\", "
    "\"):\"\"])}return g(s.scopes)&&t.push([s.scopes,[\"scope\",\"without room\"],\"\"]),t.length?"
    "d(\"div.alarm\",{id:\"alarm\"},d(\"b\",\"Worth a look\"),d(\"ul\",...t.map(([n,[o,r],a])=>d("
    "\"li\",`${F(n,o)} ${r}${a}`)))):null}function $n(e,t){const s=e.total,n=e.meta,o=_(e.raw.leak"
    "s),r=w(_(e.raw.summary).peak_memory_checkpoint),a=(f,h,y)=>d(\"div\",d(\"d",
    "t\",f),d(\"dd\",h,y&&d(\"small\",y))),i=e.events,l=_(n.dropped),c=Tn.filter(f=>g(l[f])).map(f"
    "=>O(l[f])+\" \"+f.replace(\"_\",\" \"));return N(t,d(\"dl.figures\",a(\"Live\",Q(m(s.allocate"
    "d)),F(m(s.live_blocks),\"block\")),a(\"Peak\",Q(m(s.peak)),r?\"largest checkpoint: \"+r:\"all"
    " devices\"),a(\"Allocated in all\",Q(m(s.total_allocated)),F(m(s.allocs),\"alloc\")+\", \"+F("
    "m(s.frees),\"free\")),m(o.bytes)!==null&&a(g(o.since_mark)?\"Not freed since the mark\":\"Not"
    " freed\",Q(o.bytes),F(m(o.count),\"block\"))),Ve([w(n.labels)&&[\"labels\",w(n.labels)],n.gen"
    "erated_at&&[\"written\",w(n.generated_at)],m(n.uptime_ns)&&[\"after\",R(n.uptime_ns)],m(n.pid"
    ")&&[\"pid\",String(n.pid)],e.raw.version&&[\"MemLord\",w(e.raw.version)],m(n.own_bytes)!==nul"
    "l&&[\"its own memory\",M(n.own_bytes),z(n.own_bytes)],m(n.pair_ns)&&[\"an alloc and its free "
    "cost\",R(n.pair_ns)],n.sites_enabled===!1&&[\"sites\",\"off\"],n.operation_tracking_enabled=="
    "=!1&&[\"scopes\",\"none used\"],(n.events_enabled===!1||!i.n)&&[\"event ring\",\"off\"],c.len"
    "gth&&[\"no longer kept\",c.join(\", \")],i.n&&[\"events\",O(i.n)+(i.lost?`, ${O(i.lost)} olde"
    "r ones overwritten`:\"\")]]),e.devices.length?null:d(\"p.soft\",\"Nothing recorded.\"),Sn(e))"
    ",!0}const ft=Object.assign({overview:$n,devices:An,memory:Yt,timeline:an,peak:gn},hn);functio"
    "n qe(e,t){const s=T(e),n=s.querySelector(\".body\");try{s.hidden=!ft[e](t,n)}catch(o){N(n,d("
    "\"p.soft\",\"This section could not be drawn: \"+w(o.message))),s.hidden=!1}return s.hidden?n"
    "ull:s}function On(){const e=s=>()=>we(je(),s),t=(s,n,o)=>V(s,o,{\"aria-label\":n});return d("
    "\"div.tools\",d(\"span.group\",t(\"\\u2212\",\"Zoom out\",e(2)),t(\"+\",\"Zoom in\",e(.5)),t("
    "\"All\",\"Show all\",()=>q(0,u.end))),d(\"output\",{id:\"range\"}))}function Bn(e){const t=Et"
    "(e),s=Object.keys(ft),n=T(\"nav\"),o=r=>r&&r.dataset.nav&&n.append(d(\"a\",{href:\"#\"+r.id},"
    "r.dataset.nav));re(),u.charts=[],u.end=t.end,u.profile=t,T(\"empty\").hidden=!0,T(\"report\")"
    ".hidden=!1,n.textContent=\"\";for(const r of s)T(r).hidden=!0;s.splice(0,5).map(r=>qe(r,t)).f"
    "orEach(o),T(u.charts.includes(p)?\"memory\":\"timeline\").querySelector(\".body\").prepend(On"
    "()),q(0,t.end),document.title=[\"MemLord\",w(t.meta.labels,60),m(t.meta.pid)&&\"pid \"+t.meta"
    ".pid].filter(Boolean).join(\" \\xB7 \"),setTimeout(function r(){u.profile===t&&(o(qe(s.shift("
    "),t)),s.length?setTimeout(r):performance.mark(\"complete\"))})}const ie=e=>{T(\"message\").te"
    "xtContent=e,T(\"message\").hidden=!e};function dt(e,t){const s=T(\"report\").hidden?\"\":\" T"
    "he report below is still the one before.\";let n;try{n=JSON.parse(e)}catch(r){return ie(`${t}"
    " is not JSON: ${w(r.message)}.${s}`)}const o=w(_(n).schema);if(o!==\"memlord/1\")return ie(`$"
    "{t} is not a profile of MemLord that this page can read: its schema is ${o?\"\\u201C\"+o+\"\\"
    "u201D\":\"missing\"}, not \\u201Cmemlord/1\\u201D.${s}`);if(!Array.isArray(n.devices))return "
    "ie(`${t} says that it is a profile, but has no devices.${s}`);ie(\"\"),Bn(n)}function ut(e){i"
    "f(!e)return;const t=new FileReader;t.onload=()=>dt(t.result,w(e.name)),t.onerror=()=>ie(w(e.n"
    "ame)+\" could not be read.\"),t.readAsText(e)}function xe(e){e(document.documentElement.class"
    "List),Ze(),u.charts.length&&et()}const Se=e=>t=>{t.preventDefault(),document.body.classList.t"
    "oggle(\"over\",e)};Ze();Y(window,{dragover:Se(!0),dragleave:Se(!1),drop:e=>{Se(!1)(e),ut(e.da"
    "taTransfer.files[0])},resize:Z,scroll:re,beforeprint:()=>xe(e=>e.add(\"print\")),afterprint:("
    ")=>xe(e=>e.remove(\"print\"))});Y(T(\"open\"),{click:()=>T(\"file\").click()});Y(T(\"file\"),"
    "{change:e=>{ut(e.target.files[0]),e.target.value=\"\"}});Y(T(\"theme\"),{click:()=>xe(e=>{con"
    "st t=x.dark;e.toggle(\"dark\",!t),e.toggle(\"light\",t)})});Y(matchMedia(\"(prefers-color-sch"
    "eme: dark)\"),{change:()=>xe(()=>0)});const Ue=T(\"profile\").textContent.trim();T(\"profile"
    "\").remove();T(\"hint\").textContent=\"Drop a profile.json here, or open one. It is read on t"
    "his machine and goes nowhere.\";Ue&&dt(Ue,\"The profile in this page\");performance.mark(\"in"
    "teractive\");})();</script>\n</body>\n</html>\n"};

#endif /* >>page */

/* ---------------------------------------------------------------------- >>formats --
   Owns what other tools read: one writer a format, each from a captured report. Writers keep no
   table but what the ids of a format need, numbered as the ledger numbers its rows; rows that
   come while one writes have no number, and their blocks are written as of an unknown site.
   Locks: those of reading, none while the host's function writes. */
#if !defined(MEMLORD_NO_REPORTS)

/* A block as it stood when its shard was read. Row 0: none, or one without a number. */
typedef struct memlord_i_alive {
    uint64_t storage, bytes;
    uint32_t slot, site, tag, scope;
    int pending, parted; /* parted: it has parts */
} memlord_i_alive;

/* Live blocks of one site, tag, scope and device. */
typedef struct memlord_i_group {
    memlord_i_alive of;
    uint64_t blocks, bytes;
} memlord_i_group;
#define MEMLORD_I_GROUPS 256

/* What a writer works with, beside the report. */
typedef struct memlord_i_export {
    memlord_i_report *r;
    memlord *lord;
    memlord_i_out *o;
    uint32_t devices, sites, tags, scopes; /* rows that have a number: 1 to these */
    void (*put_block)(struct memlord_i_export *x, const memlord_i_alive *block);
    void (*put_group)(struct memlord_i_export *x, const memlord_i_group *group);
    void (*put_part)(struct memlord_i_export *x, const memlord_part_info *part);
    const memlord_i_alive *whole; /* whose parts these are */
    uint64_t beside, parts;       /* its bytes no part has had so far; parts in all */
    memlord_i_group group[MEMLORD_I_GROUPS];
    uint64_t sum[MEMLORD_MAX_DEVICES + 1], more[MEMLORD_MAX_DEVICES + 1]; /* by slot */
    uint64_t written;                        /* pieces of a format that numbers them */
    void *table;                             /* of the format at hand */
    struct memlord_i_fate *fate;             /* TRACE, MEMORY_VIZ: what the ring says of storages */
    uint64_t fates, fates_used;              /* places, a power of two, and those taken */
    uint64_t first;                          /* ns: the first event's */
    int scoped;                              /* the ring has events of scopes */
    uint64_t due[MEMLORD_MAX_DEVICES + 1];   /* TRACE, by slot: ns of the next sample */
    uint64_t shown[MEMLORD_MAX_DEVICES + 1]; /* the level of the last */
    unsigned char *depth;                    /* by thread, of scopes */
    uint32_t threads;
    uint32_t only;             /* MEMORY_VIZ: the slot whose events are written */
    uint64_t traces;           /* HEAPTRACK: so far */
    uint64_t last, last_bytes; /* HEAPTRACK: the allocation that is freed next; 0: none */
    uint64_t words;            /* MEMORY_VIZ: bit a word that was written once */
    int32_t number[MEMLORD_MAX_DEVICES + 1]; /* MEMORY_VIZ: a slot's device */
} memlord_i_export;

static memlord_device memlord_i_export_device(const memlord_i_export *x, uint32_t slot) {
    return memlord_i_device_at(x->lord, slot)->device;
}
static const char *memlord_i_export_tag(const memlord_i_export *x, uint32_t row) {
    return (const char *)memlord_i_row_at(x->lord, MEMLORD_I_TAG, row)->subject;
}

/* -- walking the live blocks -- */

static MEMLORD_I_COLD void memlord_i_alive_fill(void *user, const memlord_i_entry *e, void *item) {
    const memlord_i_export *x = (const memlord_i_export *)user;
    memlord_i_alive *b = (memlord_i_alive *)item;
    uint64_t plain = memlord_i_word2_of(e->word2);
    b->storage = e->key;
    b->bytes = MEMLORD_I_BYTES(e->word1);
    b->slot = MEMLORD_I_SLOT(e->word1);
    b->site = MEMLORD_I_SITE_ROW(plain) <= x->sites ? MEMLORD_I_SITE_ROW(plain) : 0;
    b->tag = MEMLORD_I_TAG_ROW(plain) <= x->tags ? MEMLORD_I_TAG_ROW(plain) : 0;
    b->scope = memlord_i_scope_of(x->lord, plain);
    if (b->scope > x->scopes) b->scope = 0;
    b->pending = memlord_i_is_pending(e->word2);
    b->parted = (e->word2 & 1) && memlord_i_side_of(e->word2)->parts;
}
static MEMLORD_I_COLD int memlord_i_alive_put(void *user, void *item) {
    memlord_i_export *x = (memlord_i_export *)user;
    const memlord_i_alive *b = (const memlord_i_alive *)item;
    if (b->slot <= x->devices) x->put_block(x, b); /* else it came meanwhile */
    return x->o->failed;
}
static MEMLORD_I_COLD void memlord_i_alive_each(memlord_i_export *x,
                                                void (*put)(memlord_i_export *x,
                                                            const memlord_i_alive *b)) {
    memlord_i_query all = memlord_i_query_of(memlord_device_all());
    x->put_block = put;
    if (memlord_i_copies_each(x->lord, &all, sizeof(memlord_i_alive), memlord_i_alive_fill,
                              memlord_i_alive_put, x))
        x->r->result = MEMLORD_E_NOMEM;
}

/* Hands out the parts of a block; answers how many of its bytes are in none. What does not fit into
   them is of another block, that has come there since. */
static MEMLORD_I_COLD int memlord_i_export_part(void *user, const memlord_part_info *part) {
    memlord_i_export *x = (memlord_i_export *)user;
    if (part->bytes > x->beside) return 1;
    x->beside -= part->bytes;
    x->put_part(x, part);
    x->parts++;
    return x->o->failed;
}
static MEMLORD_I_COLD uint64_t memlord_i_export_parts(memlord_i_export *x,
                                                      const memlord_i_alive *b) {
    x->whole = b;
    x->beside = b->bytes;
    if (b->parted && x->put_part)
        (void)memlord_parts_each(x->lord, memlord_i_export_device(x, b->slot), b->storage,
                                 memlord_i_export_part, x);
    return x->beside;
}

/* The group of a block, empty if it is new. There is room for so many; one that has to make way is
   written, and may come again: readers of the formats that have groups add equal ones up. */
static MEMLORD_I_COLD memlord_i_group *memlord_i_group_at(memlord_i_export *x,
                                                          const memlord_i_alive *b) {
    uint64_t key = (uint64_t)b->site << 24 ^ (uint64_t)b->tag << 8 ^ b->slot;
    uint64_t at = ((key ^ (uint64_t)b->scope << 44) * 0x9e3779b97f4a7c15u) >> 56;
    memlord_i_group *g;
    unsigned tries;
    for (tries = 0; tries < 8; tries++) {
        g = &x->group[(at + tries) % MEMLORD_I_GROUPS];
        if (!g->blocks) break;
        if (g->of.site == b->site && g->of.tag == b->tag && g->of.scope == b->scope &&
            g->of.slot == b->slot)
            return g;
    }
    if (tries == 8) g = &x->group[at];
    if (g->blocks && x->put_group) x->put_group(x, g);
    g->of = *b;
    g->blocks = g->bytes = 0;
    return g;
}
static MEMLORD_I_COLD void memlord_i_group_add(memlord_i_export *x, const memlord_i_alive *b) {
    memlord_i_group *g = memlord_i_group_at(x, b);
    g->blocks++;
    g->bytes += memlord_i_export_parts(x, b);
}
static MEMLORD_I_COLD void memlord_i_groups_each(memlord_i_export *x,
                                                 void (*put)(memlord_i_export *,
                                                             const memlord_i_group *)) {
    uint32_t i;
    x->put_group = put;
    memset(x->group, 0, sizeof x->group);
    memlord_i_alive_each(x, memlord_i_group_add);
    for (i = 0; i < MEMLORD_I_GROUPS; i++)
        if (x->group[i].blocks) put(x, &x->group[i]);
}

/* -- what the ring of events says, up to the moment of the report -- */

/* A storage in the ring: its last event. Open addressing by device type and address; what 0: none.
   Above `what` are bits of who walks. */
typedef struct memlord_i_fate {
    uint64_t storage, what, where;
} memlord_i_fate;
/* At most; events of further storages are left out. */
#define MEMLORD_I_FATES     ((uint64_t)1 << 20)
#define MEMLORD_I_FATE_OPEN ((uint64_t)1 << 63)
#define MEMLORD_I_FATE_DONE ((uint64_t)1 << 62)

static memlord_i_fate *memlord_i_fate_at(const memlord_i_export *x, uint32_t slot,
                                         uint64_t storage) {
    uint16_t type = x->lord->slot_type[slot];
    uint64_t at = (storage ^ (uint64_t)(type + 1u) << 57) * 0x9e3779b97f4a7c15u >> 20;
    for (; x->fates; at++) {
        memlord_i_fate *f = &x->fate[at & (x->fates - 1)];
        uint32_t of = MEMLORD_I_NOTE_SLOT(f->what);
        if (!f->what || (f->storage == storage && x->lord->slot_type[of] == type)) return f;
    }
    return NULL;
}
/* The same of one that is there. */
static memlord_i_fate *memlord_i_fate_find(const memlord_i_export *x, uint32_t slot,
                                           uint64_t storage) {
    memlord_i_fate *f = memlord_i_fate_at(x, slot, storage);
    return f && f->what ? f : NULL;
}
static int memlord_i_fate_lives(const memlord_i_fate *f) {
    return MEMLORD_I_NOTE_KIND(f->what) != MEMLORD_EVENT_FREE;
}

/* Calls fn for the ring's events of devices and rows that have a number, the oldest first. */
typedef void (*memlord_i_event_each)(memlord_i_export *x, const memlord_i_read *e, uint64_t ns);
static MEMLORD_I_COLD void memlord_i_ring_each(memlord_i_export *x, memlord_i_event_each fn) {
    memlord_i_reading reading;
    memlord_i_read e;
    if (!memlord_i_reading_begin(x->lord, &reading)) {
        x->r->result = MEMLORD_E_NOMEM;
        return;
    }
    while (!x->o->failed && memlord_i_reading_next(&reading, &e)) {
        uint64_t ns = memlord_i_since_ns(&x->r->scale, e.stamp);
        if (ns > x->r->uptime || MEMLORD_I_NOTE_SLOT(e.what) > x->devices) continue;
        if ((e.where & MEMLORD_I_SITE_ROWS_MAX) > x->sites)
            e.where &= ~(uint64_t)MEMLORD_I_SITE_ROWS_MAX;
        if ((e.where >> 20 & MEMLORD_I_TAG_ROWS_MAX) > x->tags)
            e.where &= ~((uint64_t)MEMLORD_I_TAG_ROWS_MAX << 20);
        if (e.where >> 36 > x->scopes) e.where &= ((uint64_t)1 << 36) - 1;
        fn(x, &e, ns);
    }
    memlord_i_reading_end(&reading);
}

/* What an event adds to the live bytes of its device. */
static int64_t memlord_i_event_delta(const memlord_i_read *e) {
    int64_t bytes = (int64_t)MEMLORD_I_BYTES(e->what);
    switch (MEMLORD_I_NOTE_KIND(e->what)) {
    case MEMLORD_EVENT_ALLOC:
    case MEMLORD_EVENT_MOVE:
    case MEMLORD_EVENT_ARENA_ADD: return bytes;
    case MEMLORD_EVENT_FREE:
    case MEMLORD_EVENT_ARENA_SUB: return -bytes;
    default: return 0;
    }
}
static int memlord_i_event_of_block(const memlord_i_read *e) {
    uint32_t kind = MEMLORD_I_NOTE_KIND(e->what);
    return kind == MEMLORD_EVENT_ALLOC || kind == MEMLORD_EVENT_FREE ||
           kind == MEMLORD_EVENT_PEND || kind == MEMLORD_EVENT_MOVE;
}

static MEMLORD_I_COLD void memlord_i_fate_event(memlord_i_export *x, const memlord_i_read *e,
                                                uint64_t ns) {
    uint32_t slot = MEMLORD_I_NOTE_SLOT(e->what);
    memlord_i_fate *f;
    if (ns < x->first) x->first = ns;
    x->scoped |= MEMLORD_I_NOTE_KIND(e->what) == MEMLORD_EVENT_SCOPE_BEGIN;
    if (!slot) return;
    x->sum[slot] += (uint64_t)memlord_i_event_delta(e);
    x->more[slot]++;
    if (!memlord_i_event_of_block(e)) return;
    f = memlord_i_fate_at(x, slot, e->storage);
    if (!f || (!f->what && x->fates_used >= x->fates - x->fates / 8)) return;
    x->fates_used += !f->what;
    if (!f->what || MEMLORD_I_NOTE_KIND(e->what) != MEMLORD_EVENT_PEND) f->where = e->where;
    f->storage = e->storage;
    f->what = e->what;
}

/* Reads the ring once: what becomes of each storage, and what each device gains (x->sum) in how
   many events (x->more). */
static MEMLORD_I_COLD void memlord_i_fates_begin(memlord_i_export *x) {
    const memlord_i_ring *ring = (memlord_i_ring *)memlord_i_ptr_load_acquire(&x->lord->ring);
    if (!ring) return;
    for (x->fates = 64; x->fates < ring->capacity + ring->capacity / 4;) x->fates *= 2;
    if (x->fates > MEMLORD_I_FATES) x->fates = MEMLORD_I_FATES;
    x->fate = (memlord_i_fate *)memlord_i_alloc(x->lord, (size_t)x->fates * sizeof *x->fate);
    if (x->fate) {
        memlord_i_ring_each(x, memlord_i_fate_event);
    } else {
        x->fates = 0;
        x->r->result = MEMLORD_E_NOMEM;
    }
}

/* -- strings and numbers -- */

/* Text as UTF-8. Characters of `escaped`, if there are any, and a newline get a backslash. */
static MEMLORD_I_COLD void memlord_i_put_utf8(memlord_i_out *o, const char *text,
                                              const char *escaped) {
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        uint32_t code;
        size_t n = memlord_i_utf8(s, &code);
        if (n == 1 && *escaped && (code == '\n' || strchr(escaped, (int)code))) {
            memlord_i_puts(o, "\\");
            memlord_i_put(o, code == '\n' ? "n" : (const char *)s, 1);
        } else if (n) {
            memlord_i_put(o, (const char *)s, n);
        } else {
            memlord_i_put_bad(o, *s);
        }
        s += n ? n : 1;
    }
}
static size_t memlord_i_utf8_size(const char *text) {
    memlord_i_out count;
    memlord_i_out_buffer(&count, NULL, 0);
    memlord_i_put_utf8(&count, text, "");
    return count.total;
}

static void memlord_i_put_hex_short(memlord_i_out *o, uint64_t v) {
    unsigned digits = 1;
    while (digits < 16 && v >> (4 * digits)) digits++;
    memlord_i_put_hex(o, v, digits);
}

/* Little-endian. */
static void memlord_i_put_le(memlord_i_out *o, uint64_t v, unsigned n) {
    for (; n--; v >>= 8) {
        char byte = (char)(unsigned char)(v & 255);
        memlord_i_put(o, &byte, 1);
    }
}

/* -- TRACE, the Trace Event Format, JSON object form (Google's "Trace Event Format" document; read
      by ui.perfetto.dev and chrome://tracing).
   Times are microseconds since the ledger was created. A counter "DEVICE live" has an argument a
   tag, in bytes, which add up to the device's live bytes (what a change of tag moved counts
   under the new one from the beginning); it has a sample for each 64th of the peak that the level
   moves, and 2048 more. "DEVICE snapshots" are those of the ledger. Scopes are slices of their
   threads: B and E from the ring, or, where it has none, X for the invocations that are
   remembered. A block whose beginning is in the ring is an async slice; one that lives on ends
   with the file, and there has its parts, as JSON has them. Names are cut to 200 bytes. All but X
   come in the order of their time. Anomalies and drops are in "otherData". -- */

#define MEMLORD_I_TRACE_TAGS    32
#define MEMLORD_I_TRACE_SAMPLES 2048

/* By tag row, and behind them by slot for what has no tag. */
typedef struct memlord_i_series {
    int64_t level;
    uint32_t next; /* row of the same device; 0: none */
} memlord_i_series;

/* Up to where the name goes. */
static MEMLORD_I_COLD void memlord_i_trace_open(memlord_i_export *x, const char *phase, uint64_t ns,
                                                uint32_t thread) {
    memlord_i_jsonf(x->o, ",\n{'ph':%s,'pid':%ju,'tid':%ju,'ts':", phase, memlord_i_pid(),
                    (uint64_t)thread);
    memlord_i_put_fixed(x->o, ns, 3);
    memlord_i_jsonf(x->o, ",'name':");
}
static void memlord_i_trace_close(memlord_i_export *x) { memlord_i_puts(x->o, "}}"); }
/* A name, cut where a character begins: it comes with every event. NULL is null. */
static MEMLORD_I_COLD void memlord_i_trace_text(memlord_i_export *x, const char *text) {
    char buf[MEMLORD_I_SCOPE_NAME + 1];
    size_t n = text ? memlord_i_scope_cut(text) : 0;
    if (n) memcpy(buf, text, n);
    buf[n] = 0;
    memlord_i_put_json(x->o, text ? buf : NULL);
}
static MEMLORD_I_COLD void memlord_i_trace_pair(memlord_i_export *x, const char *key,
                                                const char *text) {
    memlord_i_jsonf(x->o, ",%s:", key);
    memlord_i_trace_text(x, text);
}

static MEMLORD_I_COLD void memlord_i_trace_device(memlord_i_export *x, uint32_t slot,
                                                  const char *what) {
    memlord_i_jsonf(x->o, "'%i", memlord_i_report_device(x->r, slot));
    memlord_i_puts(x->o, what);
    memlord_i_jsonf(x->o, "','args':{");
}

static MEMLORD_I_COLD void memlord_i_trace_names(memlord_i_export *x) {
    const memlord_i_thread *t =
        (const memlord_i_thread *)memlord_i_ptr_load_acquire(&x->lord->threads);
    memlord_i_trace_open(x, "M", 0, 0);
    memlord_i_jsonf(x->o, "'process_name','args':{'name':'memlord " MEMLORD_VERSION "'");
    memlord_i_trace_close(x);
    for (; t; t = (const memlord_i_thread *)memlord_i_ptr_load(&t->next)) {
        memlord_i_trace_open(x, "M", 0, t->id - MEMLORD_I_ID_FIRST + 1);
        memlord_i_jsonf(x->o, "'thread_name','args':{'name':'thread %ju'", (uint64_t)t->id - MEMLORD_I_ID_FIRST + 1);
        memlord_i_trace_close(x);
    }
}

static MEMLORD_I_COLD void memlord_i_trace_snapshot(memlord_i_export *x,
                                                    const memlord_i_snapshot *s) {
    uint32_t slot;
    for (slot = 1; slot <= s->devices && slot <= x->devices; slot++) {
        const memlord_i_held *held = &memlord_i_snapshot_held(s)[slot - 1];
        memlord_i_trace_open(x, "C", s->at, 0);
        memlord_i_trace_device(x, slot, " snapshots");
        memlord_i_jsonf(x->o, "'live':%ju,'pending':%ju,'reserved':%ju", held->live, held->pending,
                        held->reserved);
        memlord_i_trace_close(x);
    }
    if (!s->name) return;
    memlord_i_trace_open(x, "i", s->at, 0);
    memlord_i_trace_text(x, s->name);
    memlord_i_jsonf(x->o, ",'s':'g','cat':'checkpoint','args':{'live':%ju", s->live);
    memlord_i_trace_close(x);
}

/* The invocations of a scope that one thread remembers. */
static MEMLORD_I_COLD void memlord_i_trace_stint(memlord_i_export *x, const memlord_i_scope *scope,
                                                 const memlord_i_stint *s) {
    size_t i, n = memlord_i_stint_read(x->lord, s, x->r->effort);
    for (i = 0; i < n; i++) {
        const memlord_i_effort *v = &x->r->effort[i];
        memlord_i_trace_open(x, "X", memlord_i_since_ns(&x->r->scale, v->start), s->thread / 2 - 1);
        memlord_i_trace_text(x, scope->name);
        memlord_i_jsonf(x->o, ",'dur':");
        memlord_i_put_fixed(x->o, memlord_i_span_ns(&x->r->scale, v->stamps), 3);
        memlord_i_jsonf(x->o, ",'cat':'scope','args':{");
        memlord_i_trace_pair(x, "path", scope->path);
        memlord_i_jsonf(x->o, ",'delta_bytes':%jd,'delta_blocks':%jd,'peak_bytes':%ju",
                        (int64_t)v->bytes, (int64_t)v->blocks, v->peak);
        memlord_i_trace_pair(x, "shapes", v->shapes);
        memlord_i_trace_close(x);
    }
}

/* -- of the ring -- */

static MEMLORD_I_COLD void memlord_i_trace_counter(memlord_i_export *x, uint32_t slot,
                                                   uint64_t ns) {
    const memlord_i_series *series = (const memlord_i_series *)x->table;
    uint32_t row = series[x->tags + slot].next, n = 0;
    int64_t others = 0, level = series[x->tags + slot].level;
    memlord_i_trace_open(x, "C", ns, 0);
    memlord_i_trace_device(x, slot, " live");
    memlord_i_jsonf(x->o, "'(untagged)':%jd", level > 0 ? level : 0);
    for (; row; row = series[row].next) {
        level = series[row].level > 0 ? series[row].level : 0;
        if (n++ >= MEMLORD_I_TRACE_TAGS) {
            others += level;
            continue;
        }
        memlord_i_puts(x->o, ",");
        memlord_i_trace_text(x, memlord_i_export_tag(x, row));
        memlord_i_jsonf(x->o, ":%jd", level);
    }
    if (n > MEMLORD_I_TRACE_TAGS) memlord_i_jsonf(x->o, ",'(other tags)':%jd", others);
    memlord_i_trace_close(x);
    x->due[slot] = ns + (x->r->uptime - x->first) / MEMLORD_I_TRACE_SAMPLES;
    x->shown[slot] = x->sum[slot];
}

static MEMLORD_I_COLD void memlord_i_trace_level(memlord_i_export *x, const memlord_i_read *e,
                                                 uint64_t ns) {
    memlord_i_series *series = (memlord_i_series *)x->table;
    uint32_t slot = MEMLORD_I_NOTE_SLOT(e->what);
    uint32_t tag = (uint32_t)(e->where >> 20) & MEMLORD_I_TAG_ROWS_MAX;
    int64_t delta = memlord_i_event_delta(e), moved;
    if (!delta) return;
    series[tag ? tag : x->tags + slot].level += delta;
    x->sum[slot] += (uint64_t)delta;
    moved = (int64_t)(x->sum[slot] - x->shown[slot]);
    if (ns >= x->due[slot] ||
        (uint64_t)(moved < 0 ? -moved : moved) > x->r->stat[slot - 1].peak / 64)
        memlord_i_trace_counter(x, slot, ns);
}

/* A block's slice begins (b), ends (e) or has something happen to it (n): up to the arguments that
   only some have. */
static MEMLORD_I_COLD void memlord_i_trace_life_open(memlord_i_export *x, const char *phase,
                                                     const memlord_i_fate *f, uint32_t thread,
                                                     uint64_t ns) {
    uint64_t where = f->where;
    uint32_t slot = MEMLORD_I_NOTE_SLOT(f->what);
    uint32_t tag = (uint32_t)(where >> 20) & MEMLORD_I_TAG_ROWS_MAX;
    const memlord_site *site =
        memlord_i_row_site(x->lord, (uint32_t)where & MEMLORD_I_SITE_ROWS_MAX);
    const char *tagged = tag ? memlord_i_export_tag(x, tag) : NULL;
    uint64_t scope = where >> 36;
    memlord_i_trace_open(x, phase, ns, thread);
    memlord_i_trace_text(x, tagged                      ? tagged
                             : site && site->function[0] ? site->function
                                                         : "block");
    memlord_i_jsonf(x->o, ",'cat':'block','id':'");
    memlord_i_puts(x->o, memlord_i_type_names[x->lord->slot_type[slot]]);
    memlord_i_puts(x->o, " 0x");
    memlord_i_put_hex_short(x->o, f->storage);
    memlord_i_jsonf(x->o, "','args':{");
    if (*phase == 'b') {
        memlord_i_jsonf(x->o, "'device':'%i','bytes':%ju", memlord_i_report_device(x->r, slot),
                        MEMLORD_I_BYTES(f->what));
        memlord_i_trace_pair(x, "tag", tagged);
        memlord_i_trace_pair(x, "scope",
                             scope ? memlord_i_scope_at(x->lord, (uint32_t)scope)->path : NULL);
        memlord_i_trace_pair(x, "file", site ? site->file : NULL);
        memlord_i_json_u64(x->o, "line", memlord_i_site_line(site));
        memlord_i_trace_pair(x, "function", site ? site->function : NULL);
    }
}
static MEMLORD_I_COLD void memlord_i_trace_life(memlord_i_export *x, const char *phase,
                                                const memlord_i_fate *f, uint32_t thread,
                                                uint64_t ns) {
    memlord_i_trace_life_open(x, phase, f, thread, ns);
    memlord_i_trace_close(x);
}
static MEMLORD_I_COLD void memlord_i_trace_block(memlord_i_export *x, const memlord_i_read *e,
                                                 uint64_t ns) {
    uint32_t kind = MEMLORD_I_NOTE_KIND(e->what);
    memlord_i_fate *f = memlord_i_fate_find(x, MEMLORD_I_NOTE_SLOT(e->what), e->storage);
    if (!f) return;
    if ((f->what & MEMLORD_I_FATE_OPEN) && kind == MEMLORD_EVENT_PEND) {
        memlord_i_trace_life(x, "n", f, e->thread, ns);
        return;
    }
    if (f->what & MEMLORD_I_FATE_OPEN) memlord_i_trace_life(x, "e", f, e->thread, ns);
    f->what &= ~MEMLORD_I_FATE_OPEN;
    if (kind != MEMLORD_EVENT_ALLOC && kind != MEMLORD_EVENT_MOVE) return;
    f->what = e->what | MEMLORD_I_FATE_OPEN;
    f->where = e->where;
    memlord_i_trace_life(x, "b", f, e->thread, ns);
}

/* Threads by their number: how deep in scopes. */
static MEMLORD_I_COLD void memlord_i_trace_scope(memlord_i_export *x, const memlord_i_read *e,
                                                 uint64_t ns) {
    uint64_t scope = e->where >> 36;
    int begins = MEMLORD_I_NOTE_KIND(e->what) == MEMLORD_EVENT_SCOPE_BEGIN;
    if (e->thread >= x->threads || (!begins && !x->depth[e->thread]) || (begins && !scope)) return;
    memlord_i_trace_open(x, begins ? "B" : "E", ns, e->thread);
    memlord_i_trace_text(x, scope ? memlord_i_scope_at(x->lord, (uint32_t)scope)->name : "");
    memlord_i_jsonf(x->o, ",'cat':'scope','args':{");
    if (begins) memlord_i_trace_pair(x, "path", memlord_i_scope_at(x->lord, (uint32_t)scope)->path);
    memlord_i_trace_close(x);
    x->depth[e->thread] = (unsigned char)(x->depth[e->thread] + (begins ? 1 : -1));
}

static MEMLORD_I_COLD void memlord_i_trace_event(memlord_i_export *x, const memlord_i_read *e,
                                                 uint64_t ns) {
    uint32_t kind = MEMLORD_I_NOTE_KIND(e->what), slot = MEMLORD_I_NOTE_SLOT(e->what);
    if (kind == MEMLORD_EVENT_SCOPE_BEGIN || kind == MEMLORD_EVENT_SCOPE_END)
        memlord_i_trace_scope(x, e, ns);
    if (!slot) return;
    memlord_i_trace_level(x, e, ns);
    if (memlord_i_event_of_block(e)) memlord_i_trace_block(x, e, ns);
    if (kind != MEMLORD_EVENT_GC && kind != MEMLORD_EVENT_OOM) return;
    memlord_i_trace_open(x, "i", ns, e->thread);
    memlord_i_trace_device(x, slot, kind == MEMLORD_EVENT_GC ? " gc" : " out of memory");
    memlord_i_jsonf(x->o, "'bytes':%ju},'s':'p','cat':'memory'}", MEMLORD_I_BYTES(e->what));
}

/* What the levels were when the ring begins, from what they are and what it adds. */
static MEMLORD_I_COLD void memlord_i_trace_untag(memlord_i_export *x, const memlord_i_read *e,
                                                 uint64_t ns) {
    uint32_t tag = (uint32_t)(e->where >> 20) & MEMLORD_I_TAG_ROWS_MAX;
    (void)ns;
    if (tag) ((memlord_i_series *)x->table)[tag].level -= memlord_i_event_delta(e);
}
static MEMLORD_I_COLD void memlord_i_trace_levels(memlord_i_export *x) {
    memlord_i_series *series = (memlord_i_series *)x->table;
    const memlord_i_tag_line *tag = x->r->tag;
    uint32_t i;
    for (i = 1; i <= x->devices; i++) {
        x->sum[i] = x->shown[i] = x->r->stat[i - 1].allocated - x->sum[i];
        series[x->tags + i].level = (int64_t)x->sum[i];
    }
    for (i = x->tags; i >= 1; i--) {
        series[i].level = (int64_t)tag[i].stat.allocated;
        series[i].next = series[x->tags + tag[i].slot].next;
        series[x->tags + tag[i].slot].next = i;
    }
    memlord_i_ring_each(x, memlord_i_trace_untag);
    for (i = 1; i <= x->tags; i++) series[x->tags + tag[i].slot].level -= series[i].level;
}

/* What is still open ends with the file. */
static MEMLORD_I_COLD void memlord_i_trace_end(memlord_i_export *x) {
    uint64_t i, now = x->r->uptime;
    for (i = 0; i < x->threads; i++)
        for (; x->depth[i]; x->depth[i]--) {
            memlord_i_trace_open(x, "E", now, (uint32_t)i);
            memlord_i_jsonf(x->o, "'','cat':'scope','args':{");
            memlord_i_trace_close(x);
        }
    for (i = 0; i < x->fates; i++) {
        const memlord_i_fate *f = &x->fate[i];
        if (!(f->what & MEMLORD_I_FATE_OPEN)) continue;
        memlord_i_trace_life_open(x, "e", f, 0, now);
        memlord_i_json_parts(x->r, x->lord->slot_type[MEMLORD_I_NOTE_SLOT(f->what)], f->storage);
        memlord_i_trace_close(x);
    }
    for (i = 1; i <= x->devices; i++) memlord_i_trace_counter(x, (uint32_t)i, now);
}

static MEMLORD_I_COLD void memlord_i_trace_scopes(memlord_i_export *x) {
    uint32_t id;
    for (id = 1; id <= x->scopes && !x->o->failed; id++) {
        const memlord_i_scope *scope = memlord_i_scope_at(x->lord, id);
        const memlord_i_stint *s =
            (const memlord_i_stint *)memlord_i_ptr_load_acquire(&scope->stints);
        for (; s; s = s->next) memlord_i_trace_stint(x, scope, s);
    }
}

/* Anomalies and drops, of all and by device; none that is 0. */
static MEMLORD_I_COLD void memlord_i_trace_odd(memlord_i_export *x) {
    uint32_t slot;
    memlord_i_jsonf(x->o, "\n],'otherData':{'anomalies_and_drops':{");
    for (slot = 0; slot <= x->devices; slot++) {
        const char *name;
        size_t i = 0;
        uint64_t v;
        memlord_i_jsonf(x->o, ",'%i':{", memlord_i_coded(memlord_i_odd_device(x->r, slot)));
        while ((name = memlord_i_odd_next(x->r, slot, MEMLORD_I_COLUMNS, &i, &v)) != NULL)
            memlord_i_json_u64(x->o, name, v);
        memlord_i_puts(x->o, "}");
    }
    memlord_i_puts(x->o, "}}}\n");
}

static MEMLORD_I_COLD void memlord_i_trace_json(memlord_i_export *x) {
    size_t size = ((size_t)x->tags + x->devices + 1) * sizeof(memlord_i_series);
    uint32_t i;
    x->threads = memlord_i_threads(x->lord) + 2;
    x->table = memlord_i_alloc(x->lord, size);
    x->depth = (unsigned char *)memlord_i_alloc(x->lord, x->threads + 1);
    memlord_i_jsonf(x->o, "{'displayTimeUnit':'ms','traceEvents':[");
    memlord_i_trace_names(x);
    for (i = 0; i < x->r->snapshots; i++) memlord_i_trace_snapshot(x, x->r->snapshot[i]);
    if (x->table && x->depth) {
        x->first = x->r->uptime;
        memlord_i_fates_begin(x);
        if (!x->scoped) memlord_i_trace_scopes(x);
        memlord_i_trace_levels(x);
        for (i = 1; i <= x->devices && x->fates; i++) memlord_i_trace_counter(x, i, x->first);
        memlord_i_ring_each(x, memlord_i_trace_event);
        memlord_i_trace_end(x);
    } else {
        x->r->result = MEMLORD_E_NOMEM;
    }
    memlord_i_trace_odd(x);
    memlord_i_free(x->lord, x->depth, x->threads + 1);
    memlord_i_free(x->lord, x->table, size);
}

/* -- PROMETHEUS, text exposition format 0.0.4
      (https://prometheus.io/docs/instrumenting/exposition_formats/).
   Units are bytes and seconds. Every sample is of one device or place, never of a sum, so that
   sum() in a query is right; an empty tag is what no tag holds. Counters start over at
   memlord_reset, as counters may. Sites, blocks and their parts are left out: they would be a
   series each. -- */

static const char *const memlord_i_families[MEMLORD_I_COLUMNS][2] = { /* name, help */
#define MEMLORD_I_X(name, kind, family, text) {family, text},
    MEMLORD_I_STATS(MEMLORD_I_X)
#undef MEMLORD_I_X
#define MEMLORD_I_X(name, text) {"dropped_" #name "_total", text},
    MEMLORD_I_LOSSES(MEMLORD_I_X)
#undef MEMLORD_I_X
};

/* What only grows is a counter, and only that ends so. */
static MEMLORD_I_COLD void memlord_i_prom_head(memlord_i_out *o, const char *name,
                                               const char *help) {
    size_t n = strlen(name);
    int counter = n > 6 && !strcmp(name + n - 6, "_total");
    memlord_i_putf(o, "# HELP memlord_%s %s\n# TYPE memlord_%s %s\n", name, help, name,
                   counter ? "counter" : "gauge");
}
/* A number `as` it is: 'u', 'd' where it may be below 0, or 's', nanoseconds that are told in
   seconds. Without a label where `d` is all devices, and where `key` is NULL. */
static MEMLORD_I_COLD void memlord_i_prom_sample(memlord_i_out *o, const char *name,
                                                 memlord_device d, const char *key,
                                                 const char *label, char as, uint64_t v) {
    int device = d.type != MEMLORD_ANY;
    memlord_i_putf(o, "memlord_%s", name);
    if (device) memlord_i_putf(o, "{device=\"%i\"", memlord_i_coded(d));
    if (key) {
        memlord_i_putf(o, device ? ",%s=\"" : "{%s=\"", key);
        memlord_i_put_utf8(o, label, "\\\"");
        memlord_i_puts(o, "\"");
    }
    memlord_i_puts(o, device || key ? "} " : " ");
    if (as == 's')
        memlord_i_put_fixed(o, v, 9);
    else if (as == 'd')
        memlord_i_put_i64(o, (int64_t)v);
    else
        memlord_i_put_u64(o, v);
    memlord_i_puts(o, "\n");
}
/* The one sample of a family that is of the ledger. */
static MEMLORD_I_COLD void memlord_i_prom_whole(memlord_i_out *o, const char *name,
                                                const char *help, char as, uint64_t v) {
    memlord_i_prom_head(o, name, help);
    memlord_i_prom_sample(o, name, memlord_device_all(), NULL, NULL, as, v);
}

/* A family is a contiguous group. UINT64_MAX is not known, and has no sample. */
static MEMLORD_I_COLD void memlord_i_prom_devices(memlord_i_export *x) {
    size_t stat;
    uint32_t i;
    for (stat = 0; stat < MEMLORD_I_STAT_COUNT; stat++) {
        const char *name = memlord_i_families[stat][0];
        uint64_t rest = *memlord_i_stat_of(&x->r->total, stat);
        int lost = stat == MEMLORD_I_STAT_dropped_allocs || stat == MEMLORD_I_STAT_dropped_bytes ||
                   stat == MEMLORD_I_STAT_dropped_events;
        if (!*name || !x->devices) continue;
        memlord_i_prom_head(x->o, name, memlord_i_families[stat][1]);
        for (i = 1; i <= x->devices; i++) {
            uint64_t v = *memlord_i_stat_of(&x->r->stat[i - 1], stat);
            if (v != UINT64_MAX)
                memlord_i_prom_sample(x->o, name, memlord_i_export_device(x, i), NULL, NULL, 'u',
                                      v);
            rest -= v;
        }
        if (lost && rest) /* of no device */
            memlord_i_prom_sample(x->o, name, memlord_device_all(), NULL, NULL, 'u', rest);
    }
}

static const char *const memlord_i_prom_of_place[][2] = {
    {"capacity_bytes", "bytes of a physical device"},
    {"capacity_used_bytes", "bytes of it in use, whoever uses them"},
    {"self_bytes", "bytes of it the ledger knows; files mapped are not in it"},
    {"process_rest_bytes", "bytes of it this process uses and the ledger does not know"},
    {"others_bytes", "bytes of it others use"},
    {"unaccounted_bytes", "capacity_used_bytes - self_bytes; may be below 0"},
    {"limit_bytes", "bytes allowed of it; no sample: no limit"},
    {"held_bytes", "bytes of the limit that reservations keep"},
    {"capacity_age_seconds", "age of these samples"}};
enum { MEMLORD_I_OF_SELF = 2, MEMLORD_I_OF_LIMIT = 6, MEMLORD_I_OF_HELD, MEMLORD_I_OF_PLACE = 9 };

static MEMLORD_I_COLD void memlord_i_prom_places(memlord_i_report *r) {
    size_t what, i;
    for (what = 0; what < MEMLORD_I_OF_PLACE; what++) {
        const char *name = memlord_i_prom_of_place[what][0];
        int first = 1;
        for (i = 0; i < r->places; i++) {
            const memlord_i_place_line *line = &r->place[i];
            const memlord_capacity *s = &line->sample;
            const uint64_t v[] = {s->total,    s->used,      line->self,
                                  line->rest,  line->others, s->used - line->self,
                                  line->limit, line->held,   s->age_ns};
            if (what == MEMLORD_I_OF_LIMIT
                    ? !line->limit
                    : !s->known && what != MEMLORD_I_OF_SELF && what != MEMLORD_I_OF_HELD)
                continue;
            if (first) memlord_i_prom_head(r->o, name, memlord_i_prom_of_place[what][1]);
            first = 0;
            memlord_i_prom_sample(r->o, name, line->device, NULL, NULL, "uuuuuduus"[what], v[what]);
        }
    }
}

static const char *const memlord_i_prom_of_tag[][2] = {
    {"tag_bytes", "bytes live by what they are for; an empty tag: those without one"},
    {"tag_peak_bytes", "highest tag_bytes"},
    {"tag_blocks", "storages live by what they are for"},
    {"tag_expected_bytes", "bytes planned for a tag"},
    {"tag_variance_bytes", "tag_bytes - tag_expected_bytes; may be below 0"}};
enum { MEMLORD_I_OF_EXPECTED = 3, MEMLORD_I_OF_TAG = 5 };

static MEMLORD_I_COLD void memlord_i_prom_tag(memlord_i_export *x, const memlord_i_tag_line *line,
                                              size_t what) {
    const memlord_tag_stat *s = &line->stat;
    const uint64_t v[] = {s->allocated, s->peak, s->blocks, s->expected, (uint64_t)s->variance};
    if (!what) x->sum[line->slot] += s->allocated;
    if (s->expected || what < MEMLORD_I_OF_EXPECTED)
        memlord_i_prom_sample(x->o, memlord_i_prom_of_tag[what][0],
                              memlord_i_export_device(x, line->slot), "tag", s->tag, "uuuud"[what],
                              v[what]);
}
static MEMLORD_I_COLD void memlord_i_prom_tags(memlord_i_export *x) {
    size_t what;
    uint32_t i;
    for (what = 0; what < MEMLORD_I_OF_TAG && x->devices; what++) {
        const char *name = memlord_i_prom_of_tag[what][0];
        memlord_i_prom_head(x->o, name, memlord_i_prom_of_tag[what][1]);
        for (i = 1; i <= x->tags && !x->o->failed; i++) memlord_i_prom_tag(x, &x->r->tag[i], what);
        for (i = 1; i <= x->devices && !what; i++) {
            uint64_t live = x->r->stat[i - 1].allocated;
            memlord_i_prom_sample(x->o, name, memlord_i_export_device(x, i), "tag", "", 'u',
                                  live > x->sum[i] ? live - x->sum[i] : 0);
        }
    }
}

static const char *const memlord_i_prom_of_scope[][2] = {
    {"scope_invocations_total", "invocations of a scope that are over"},
    {"scope_running", "invocations of a scope that are not"},
    {"scope_seconds_total", "time of the host in a scope"},
    {"scope_delta_bytes", "bytes a scope allocated less those it freed; may be below 0"},
    {"scope_peak_bytes", "highest in one invocation, above where that began"}};

static MEMLORD_I_COLD void memlord_i_prom_scopes(memlord_i_export *x) {
    size_t what;
    uint32_t id;
    for (what = 0; what < 5 && x->scopes; what++) {
        const char *name = memlord_i_prom_of_scope[what][0];
        memlord_i_prom_head(x->o, name, memlord_i_prom_of_scope[what][1]);
        for (id = 1; id <= x->scopes && !x->o->failed; id++) {
            memlord_scope_stat s;
            uint64_t v[5];
            memlord_i_scope_sum(x->lord, memlord_i_scope_at(x->lord, id), &x->r->scale, &s, NULL);
            v[0] = s.count;
            v[1] = s.running;
            v[2] = s.ns.total;
            v[3] = (uint64_t)s.bytes.total;
            v[4] = s.peak;
            memlord_i_prom_sample(x->o, name, memlord_device_all(), "scope", s.path, "uusdu"[what],
                                  v[what]);
        }
    }
}

/* Who held a device when it was fullest, by tag; what none of those had, under an empty one. */
static MEMLORD_I_COLD void memlord_i_prom_holders(memlord_i_export *x) {
    static const char name[] = "peak_holder_bytes";
    memlord_i_holders *h = &x->r->holders;
    uint32_t i, families = 0;
    size_t k;
    for (i = 1; i <= x->devices; i++) {
        memlord_device d = memlord_i_export_device(x, i);
        uint64_t rest;
        if (!memlord_i_holders_get(x->lord, i, h)) continue;
        if (!families++)
            memlord_i_prom_head(x->o, name, "bytes live by tag when the peak was last looked at");
        for (k = 0, rest = h->bytes; k < h->tags; k++) {
            if (!h->tag[k].tag) continue;
            memlord_i_prom_sample(x->o, name, d, "tag", h->tag[k].tag, 'u', h->tag[k].allocated);
            rest -= h->tag[k].allocated < rest ? h->tag[k].allocated : rest;
        }
        memlord_i_prom_sample(x->o, name, d, "tag", "", 'u', rest);
    }
}

static MEMLORD_I_COLD void memlord_i_prometheus(memlord_i_export *x) {
    memlord_i_out *o = x->o;
    size_t i;
    memlord_i_prom_devices(x);
    memlord_i_prom_places(x->r);
    memlord_i_prom_tags(x);
    memlord_i_prom_holders(x);
    memlord_i_prom_scopes(x);
    for (i = MEMLORD_I_STAT_COUNT; i < MEMLORD_I_COLUMNS; i++)
        memlord_i_prom_whole(o, memlord_i_families[i][0], memlord_i_families[i][1], 'u',
                             memlord_i_lost(x->lord, i - MEMLORD_I_STAT_COUNT));
    memlord_i_prom_whole(o, "accounts_open", "accounts open now", 'u', x->r->accounts);
    memlord_i_prom_whole(o, "own_bytes", "bytes the ledger itself takes", 'u',
                         memlord_i_u64_load(&x->lord->own_bytes));
    memlord_i_prom_whole(o, "uptime_seconds", "age of the ledger", 's', x->r->uptime);
    memlord_i_prom_head(o, "build_info", "1, with the version of memlord.h");
    memlord_i_prom_sample(o, "build_info", memlord_device_all(), "version", MEMLORD_VERSION, 'u',
                          1);
}

/* -- CSV, RFC 4180: one table, the live blocks.
   A line a block, ended by CR LF, below a line of names. Text is as in TEXT: controls are escaped
   as what is not UTF-8 is, so that a block stays one line. What a spreadsheet would take for
   a formula (= + - @ in front; names come from model files) has an apostrophe before it, as has
   what begins with one: who reads it takes one off. `shape` reads as JSON. Below a block come its
   parts, a line each, with its device, storage and site, and what else they have of their own:
   those have a `part_bytes` (and where they begin), and 0 in `bytes` and `refs`, so that `bytes`
   add up to what is live. Anomalies and drops are not in it: readers know no comments. -- */

static MEMLORD_I_COLD void memlord_i_csv_text(memlord_i_out *o, const char *text) {
    memlord_i_puts(o, ",");
    if (!text || !*text) return;
    memlord_i_puts(o, "\"");
    if (strchr("=+-@'", *text)) memlord_i_puts(o, "'");
    memlord_i_put_word(o, text, '"', "\"\"");
    memlord_i_puts(o, "\"");
}

/* A line of the table: a block, or a part as a block of no bytes. */
static MEMLORD_I_COLD void memlord_i_csv_line(memlord_i_out *o, const memlord_block_info *b,
                                              const memlord_part_info *part) {
    memlord_i_putf(o, "%i,0x", memlord_i_coded(b->device));
    memlord_i_put_hex_short(o, b->storage);
    memlord_i_putf(o, ",%ju,%ju,%ju,%ju", b->bytes, b->refs, b->born, (uint64_t)(b->pending != 0));
    memlord_i_csv_text(o, b->tag);
    memlord_i_csv_text(o, b->scope);
    memlord_i_csv_text(o, b->meta.name);
    memlord_i_csv_text(o, b->meta.dtype);
    memlord_i_puts(o, b->meta.rank ? ",\"" : ",");
    memlord_i_put_shape(o, &b->meta, ",");
    memlord_i_putf(o, b->meta.rank ? "\",%ju" : ",%ju", (uint64_t)b->meta.flags);
    memlord_i_csv_text(o, b->site ? b->site->file : NULL);
    memlord_i_putf(o, ",%ju", memlord_i_site_line(b->site));
    memlord_i_csv_text(o, b->site ? b->site->function : NULL);
    if (part)
        memlord_i_putf(o, ",%ju,%ju\r\n", part->offset, part->bytes);
    else
        memlord_i_puts(o, ",,\r\n");
}
static MEMLORD_I_COLD int memlord_i_csv_part(void *user, const memlord_part_info *part) {
    memlord_i_export *x = (memlord_i_export *)user;
    memlord_block_info b = *(const memlord_block_info *)x->table;
    b.bytes = b.refs = 0;
    b.meta = part->meta;
    b.tag = part->meta.tag;
    memlord_i_csv_line(x->o, &b, part);
    return x->o->failed;
}
static MEMLORD_I_COLD int memlord_i_csv_block(void *user, const memlord_block_info *b) {
    memlord_i_export *x = (memlord_i_export *)user;
    memlord_i_csv_line(x->o, b, NULL);
    x->table = (void *)(uintptr_t)b;
    (void)memlord_parts_each(x->lord, b->device, b->storage, memlord_i_csv_part, x);
    return x->o->failed;
}

static MEMLORD_I_COLD void memlord_i_csv(memlord_i_export *x) {
    memlord_i_query all = memlord_i_query_of(memlord_device_all());
    memlord_i_puts(x->o, "device,storage,bytes,refs,born,pending,tag,scope,name,dtype,shape,"
                         "flags,file,line,function,part_offset,part_bytes\r\n");
    if (memlord_i_each(x->lord, &all, memlord_i_csv_block, x, NULL))
        x->r->result = MEMLORD_E_NOMEM;
}

/* -- FOLDED, Brendan Gregg's collapsed stacks (https://github.com/brendangregg/FlameGraph,
      stackcollapse): "device;tag;scope;inner scope;site bytes", a line each.
   The bytes live now; those of a part have the part's name as one frame more. A frame that is not
   known is left out; in the others a semicolon becomes a colon. Equal stacks may come on several
   lines, which readers add up. Anomalies and drops are not in it: readers know no comments. -- */

/* From the outermost on; a path is at most as deep as scopes nest. */
static MEMLORD_I_COLD void memlord_i_folded_scopes(memlord_i_export *x, uint32_t id) {
    const memlord_i_scope *path[MEMLORD_I_SCOPE_DEPTH], *scope;
    uint32_t n = 0;
    for (scope = memlord_i_scope_at(x->lord, id); scope && n < MEMLORD_I_SCOPE_DEPTH;
         scope = scope->parent)
        path[n++] = scope;
    while (n--) {
        memlord_i_put_word(x->o, path[n]->name, ';', ":");
        memlord_i_puts(x->o, ";");
    }
}
static MEMLORD_I_COLD void memlord_i_folded_line(memlord_i_export *x, const memlord_i_alive *of,
                                                 const memlord_meta *part, uint64_t bytes) {
    memlord_i_out *o = x->o;
    if (!bytes) return;
    memlord_i_putf(o, "%i;", memlord_i_report_device(x->r, of->slot));
    if (of->tag) {
        memlord_i_put_word(o, memlord_i_export_tag(x, of->tag), ';', ":");
        memlord_i_puts(o, ";");
    }
    if (of->scope) memlord_i_folded_scopes(x, of->scope);
    memlord_i_put_place(o, memlord_i_row_site(x->lord, of->site), ';', ":");
    if (part) {
        memlord_i_puts(o, ";");
        memlord_i_put_word(o, part->name ? part->name : "(part)", ';', ":");
    }
    memlord_i_putf(o, " %ju\n", bytes);
}
static void memlord_i_folded_group(memlord_i_export *x, const memlord_i_group *g) {
    memlord_i_folded_line(x, &g->of, NULL, g->bytes);
}
static void memlord_i_folded_part(memlord_i_export *x, const memlord_part_info *part) {
    memlord_i_folded_line(x, x->whole, &part->meta, part->bytes);
}

static MEMLORD_I_COLD void memlord_i_folded(memlord_i_export *x) {
    uint32_t slot;
    x->put_part = memlord_i_folded_part;
    memlord_i_groups_each(x, memlord_i_folded_group);
    for (slot = 1; slot <= x->devices; slot++) {
        uint64_t arena = memlord_i_u64_load(&memlord_i_device_at(x->lord, slot)->arena);
        if (arena)
            memlord_i_putf(x->o, "%i;(arena) %ju\n", memlord_i_report_device(x->r, slot), arena);
    }
}

/* -- PPROF, an uncompressed profile.proto (https://github.com/google/pprof/blob/main/proto/
      profile.proto).
   Samples are a site's allocations (alloc_objects and alloc_space, since the last reset) and its
   live blocks (inuse_...), with labels for the device and, where blocks have one, the tag; the
   scopes a block was allocated in are the callers of its site, which calls the block's parts:
   their bytes are theirs alone, and no object. What has no site is "(unknown)", an arena's balance
   "(arena)". Functions and locations are numbered as site rows are, scopes behind them, then parts
   as they come up; strings in the order of memlord_i_pprof_strings, those of parts behind.
   Comments have anomalies and drops, of all and by device: go tool pprof -comments. -- */

static const char *const memlord_i_pprof_words[] = {
    "",      "alloc_objects", "count", "alloc_space", "bytes",  "inuse_objects", "inuse_space",
    "space", "device",        "tag",   "(unknown)",   "(arena)"};
enum {
    MEMLORD_I_WORD_DEVICE = 8,
    MEMLORD_I_WORD_TAG,
    MEMLORD_I_WORD_UNKNOWN,
    MEMLORD_I_WORD_ARENA,
    MEMLORD_I_WORDS
};

/* Fields of a protocol buffer (https://protobuf.dev/programming-guides/encoding/). */
static MEMLORD_I_COLD void memlord_i_pb_varint(memlord_i_out *o, uint64_t v) {
    for (; v >= 128; v >>= 7) memlord_i_put_le(o, (v & 127) | 128, 1);
    memlord_i_put_le(o, v, 1);
}
static void memlord_i_pb_u64(memlord_i_out *o, unsigned field, uint64_t v) {
    memlord_i_pb_varint(o, field << 3);
    memlord_i_pb_varint(o, v);
}
static void memlord_i_pb_size(memlord_i_out *o, unsigned field, uint64_t size) {
    memlord_i_pb_varint(o, field << 3 | 2);
    memlord_i_pb_varint(o, size);
}
/* What was put into a buffer, as a field. */
static void memlord_i_pb_message(memlord_i_out *o, unsigned field, const memlord_i_out *message) {
    memlord_i_pb_size(o, field, message->used);
    memlord_i_put(o, message->buf, message->used);
}
static MEMLORD_I_COLD void memlord_i_pb_string(memlord_i_out *o, const char *text) {
    memlord_i_pb_size(o, 6, memlord_i_utf8_size(text));
    memlord_i_put_utf8(o, text, "");
}
static MEMLORD_I_COLD void memlord_i_pb_pair(memlord_i_out *o, unsigned field, uint64_t first,
                                             uint64_t second) {
    char buf[32];
    memlord_i_out m;
    memlord_i_out_buffer(&m, buf, sizeof buf);
    memlord_i_pb_u64(&m, 1, first);
    memlord_i_pb_u64(&m, 2, second);
    memlord_i_pb_message(o, field, &m);
}

/* A sample: how many allocations, or live blocks, and their bytes. Locations 1 and 2 behind the
   sites are
   "(unknown)" and "(arena)", then come scopes. `part` is a part's location, 0 none. */
static MEMLORD_I_COLD void memlord_i_pprof_sample(memlord_i_export *x, uint64_t part,
                                                  uint32_t location, const memlord_i_alive *of,
                                                  unsigned live, uint64_t count, uint64_t bytes) {
    char buf[512], values[48], places[(MEMLORD_I_SCOPE_DEPTH + 2) * 5 + 10];
    const memlord_i_scope *scope = of->scope ? memlord_i_scope_at(x->lord, of->scope) : NULL;
    memlord_i_out m, v, p;
    unsigned i;
    memlord_i_out_buffer(&m, buf, sizeof buf);
    memlord_i_out_buffer(&v, values, sizeof values);
    memlord_i_out_buffer(&p, places, sizeof places);
    for (i = 0; i < 4; i++) {
        uint64_t n = i / 2 != live ? 0 : i % 2 ? bytes : count;
        memlord_i_pb_varint(&v, n > INT64_MAX ? INT64_MAX : n);
    }
    if (part) memlord_i_pb_varint(&p, part);
    memlord_i_pb_varint(&p, location);
    for (; scope; scope = scope->parent) memlord_i_pb_varint(&p, x->sites + 2 + scope->id);
    memlord_i_pb_message(&m, 1, &p);
    memlord_i_pb_message(&m, 2, &v);
    memlord_i_pb_pair(&m, 3, MEMLORD_I_WORD_DEVICE, MEMLORD_I_WORDS + of->slot - 1);
    if (of->tag)
        memlord_i_pb_pair(&m, 3, MEMLORD_I_WORD_TAG, MEMLORD_I_WORDS + x->devices + of->tag - 1);
    memlord_i_pb_message(x->o, 2, &m);
}
static MEMLORD_I_COLD void memlord_i_pprof_group(memlord_i_export *x, const memlord_i_group *g) {
    memlord_i_pprof_sample(x, 0, g->of.site ? g->of.site : x->sites + 1, &g->of, 1, g->blocks,
                           g->bytes);
}

/* What was allocated: by sites, and on each device beyond them. */
static MEMLORD_I_COLD void memlord_i_pprof_allocated(memlord_i_export *x) {
    memlord_i_alive of;
    uint32_t i;
    memset(&of, 0, sizeof of);
    for (i = 1; i <= x->sites && !x->o->failed; i++) {
        memlord_site_stat s;
        of.slot = memlord_i_row_at(x->lord, MEMLORD_I_SITE, i)->slot;
        memlord_i_site_stat(x->lord, i, &s);
        x->sum[of.slot] += s.allocs;
        x->more[of.slot] += s.alloc_bytes;
        if (s.allocs | s.alloc_bytes)
            memlord_i_pprof_sample(x, 0, i, &of, 0, s.allocs, s.alloc_bytes);
    }
    for (i = 1; i <= x->devices; i++) {
        const memlord_stats *s = &x->r->stat[i - 1];
        uint64_t arena = memlord_i_u64_load(&memlord_i_device_at(x->lord, i)->arena);
        uint64_t allocs = s->allocs > x->sum[i] ? s->allocs - x->sum[i] : 0;
        uint64_t bytes = s->total_allocated > x->more[i] ? s->total_allocated - x->more[i] : 0;
        of.slot = i;
        if (allocs | bytes) memlord_i_pprof_sample(x, 0, x->sites + 1, &of, 0, allocs, bytes);
        if (arena) memlord_i_pprof_sample(x, 0, x->sites + 2, &of, 1, 0, arena);
    }
}

/* Location and function `id`, named by strings. */
static MEMLORD_I_COLD void memlord_i_pprof_function(memlord_i_out *o, uint64_t id, uint64_t name,
                                                    uint64_t file, uint64_t line) {
    char buf[64], inner[32];
    memlord_i_out m, l;
    memlord_i_out_buffer(&m, buf, sizeof buf);
    memlord_i_out_buffer(&l, inner, sizeof inner);
    memlord_i_pb_u64(&l, 1, id);
    memlord_i_pb_u64(&l, 2, line);
    memlord_i_pb_u64(&m, 1, id);
    memlord_i_pb_message(&m, 4, &l);
    memlord_i_pb_message(o, 4, &m);
    memlord_i_out_buffer(&m, buf, sizeof buf);
    memlord_i_pb_u64(&m, 1, id);
    memlord_i_pb_u64(&m, 2, name);
    memlord_i_pb_u64(&m, 4, file);
    memlord_i_pb_message(o, 5, &m);
}
static MEMLORD_I_COLD void memlord_i_pprof_strings(memlord_i_export *x) {
    uint32_t i;
    for (i = 0; i < MEMLORD_I_WORDS; i++) memlord_i_pb_string(x->o, memlord_i_pprof_words[i]);
    for (i = 1; i <= x->devices; i++) {
        char name[32];
        (void)memlord_device_name(memlord_i_export_device(x, i), name, sizeof name);
        memlord_i_pb_string(x->o, name);
    }
    for (i = 1; i <= x->tags; i++) memlord_i_pb_string(x->o, memlord_i_export_tag(x, i));
    for (i = 1; i <= x->sites && !x->o->failed; i++) {
        const memlord_site *site = memlord_i_row_site(x->lord, i);
        memlord_i_pb_string(x->o, site->function[0] ? site->function
                                  : site->file[0]   ? site->file
                                                    : "(unknown)");
        memlord_i_pb_string(x->o, site->file);
    }
    for (i = 1; i <= x->scopes && !x->o->failed; i++)
        memlord_i_pb_string(x->o, memlord_i_scope_at(x->lord, i)->name);
}

static MEMLORD_I_COLD void memlord_i_pprof_part(memlord_i_export *x,
                                                const memlord_part_info *part) {
    uint64_t id = (uint64_t)x->sites + x->scopes + 3 + x->parts;
    uint32_t site = x->whole->site;
    memlord_i_pb_string(x->o, part->meta.name ? part->meta.name : "(part)");
    memlord_i_pprof_function(x->o, id, x->written + x->parts, 0, 0);
    memlord_i_pprof_sample(x, id, site ? site : x->sites + 1, x->whole, 1, 0, part->bytes);
}

static MEMLORD_I_COLD void memlord_i_pprof_odd(memlord_i_export *x) {
    uint32_t slot;
    for (slot = 0; slot <= x->devices; slot++) {
        char buf[1024]; /* a line of them has 20 digits and a name each */
        memlord_i_out line;
        memlord_i_out_buffer(&line, buf, sizeof buf);
        memlord_i_text_odd(x->r, &line, "anomalies and drops, ", slot, MEMLORD_I_COLUMNS);
        if (!line.used) continue;
        buf[line.used - 1] = 0;
        memlord_i_pb_string(x->o, buf);
        memlord_i_pb_u64(x->o, 13, x->written++);
    }
}

static MEMLORD_I_COLD void memlord_i_pprof(memlord_i_export *x) {
    uint64_t at = MEMLORD_I_WORDS + (uint64_t)x->devices + x->tags;
    uint32_t i;
    for (i = 1; i <= 5; i += 2) memlord_i_pb_pair(x->o, 1, i, i == 1 || i == 5 ? 2 : 4);
    memlord_i_pb_pair(x->o, 1, 6, 4);
    memlord_i_pprof_strings(x);
    for (i = 1; i <= x->sites && !x->o->failed; i++) {
        memlord_i_pprof_function(x->o, i, at, at + 1,
                                 memlord_i_site_line(memlord_i_row_site(x->lord, i)));
        at += 2;
    }
    memlord_i_pprof_function(x->o, x->sites + 1, MEMLORD_I_WORD_UNKNOWN, 0, 0);
    memlord_i_pprof_function(x->o, x->sites + 2, MEMLORD_I_WORD_ARENA, 0, 0);
    for (i = 1; i <= x->scopes; i++) memlord_i_pprof_function(x->o, x->sites + 2 + i, at++, 0, 0);
    x->written = at;
    memlord_i_pprof_odd(x);
    x->put_part = memlord_i_pprof_part;
    memlord_i_pprof_allocated(x);
    memlord_i_groups_each(x, memlord_i_pprof_group);
    memlord_i_pb_u64(x->o, 9, memlord_i_wall_now());
    memlord_i_pb_pair(x->o, 11, 7, 4);
    memlord_i_pb_u64(x->o, 12, 1);
    memlord_i_pb_u64(x->o, 14, 6);
}

/* -- HEAPTRACK, its text format version 2 (https://github.com/KDE/heaptrack, as heaptrack_print
      1.4 reads it).
   The heap of a program with one allocation after the other, made from sums: what a site
   allocated and is gone, in pieces of its average size (never two in a row, which would read as
   a temporary); then every live block; then what each device lacks to its peak, as one block
   that is freed again. So calls, what is consumed at the peak, and what leaks (is live) are the
   ledger's own; times are not. At most MEMLORD_I_GONE pieces, fewer for each site in the same
   measure. Modules are devices; the scopes a live block was allocated in are its callers. Parts
   are not in it, as each would be an allocation more. Anomalies and drops are comments. -- */

#define MEMLORD_I_GONE 1048576u

/* "c a b ..." in hexadecimal. */
static MEMLORD_I_COLD void memlord_i_heap_line(memlord_i_out *o, const char *mode,
                                               const uint64_t *v, unsigned n) {
    memlord_i_puts(o, mode);
    while (n--) {
        memlord_i_puts(o, " ");
        memlord_i_put_hex_short(o, *v++);
    }
    memlord_i_puts(o, "\n");
}
static void memlord_i_heap_line1(memlord_i_out *o, const char *mode, uint64_t v) {
    memlord_i_heap_line(o, mode, &v, 1);
}
static void memlord_i_heap_line2(memlord_i_out *o, const char *mode, uint64_t a, uint64_t b) {
    uint64_t v[2];
    v[0] = a;
    v[1] = b;
    memlord_i_heap_line(o, mode, v, 2);
}
static void memlord_i_heap_string(memlord_i_out *o, const char *text) {
    memlord_i_putf(o, "s %s\n", text);
}

/* Traces: site rows; of each device what has no site, its arena, what is gone; scopes. What comes
   behind is a site in a scope, numbered as it comes up. */
enum { MEMLORD_I_HEAP_UNKNOWN, MEMLORD_I_HEAP_ARENA, MEMLORD_I_HEAP_GONE, MEMLORD_I_HEAP_KINDS };
static uint64_t memlord_i_heap_trace(const memlord_i_export *x, uint32_t slot, uint32_t kind) {
    return (uint64_t)x->sites + (uint64_t)(slot - 1) * MEMLORD_I_HEAP_KINDS + kind + 1;
}

static uint64_t memlord_i_heap_scope(const memlord_i_export *x, uint32_t id) {
    return (uint64_t)x->sites + (uint64_t)x->devices * MEMLORD_I_HEAP_KINDS + id;
}

/* The next trace: a place of its own below a parent, 0 none. */
static MEMLORD_I_COLD void memlord_i_heap_place(memlord_i_export *x, uint64_t parent, uint32_t slot,
                                                uint64_t function, uint64_t file, uint64_t line) {
    uint64_t v[5];
    v[0] = 0x1000 + 16 * ++x->traces;
    v[1] = slot;
    v[2] = function;
    v[3] = file;
    v[4] = line;
    memlord_i_heap_line(x->o, "i", v, 5);
    memlord_i_heap_line2(x->o, "t", x->traces, parent);
}
static MEMLORD_I_COLD void memlord_i_heap_places(memlord_i_export *x) {
    static const char *const kinds[] = {"(unknown)", "(arena)", "(no longer live)"};
    uint64_t at = x->devices + MEMLORD_I_HEAP_KINDS + 1;
    uint32_t i, kind;
    for (i = 1; i <= x->devices; i++) {
        char name[32];
        (void)memlord_device_name(memlord_i_export_device(x, i), name, sizeof name);
        memlord_i_heap_string(x->o, name);
    }
    for (kind = 0; kind < MEMLORD_I_HEAP_KINDS; kind++) memlord_i_heap_string(x->o, kinds[kind]);
    for (i = 1; i <= x->sites && !x->o->failed; i++) {
        const memlord_site *site = memlord_i_row_site(x->lord, i);
        memlord_i_heap_string(x->o, site->function[0] ? site->function : "(unknown)");
        memlord_i_heap_string(x->o, site->file);
        memlord_i_heap_place(x, 0, memlord_i_row_at(x->lord, MEMLORD_I_SITE, i)->slot, at, at + 1,
                             memlord_i_site_line(site));
        at += 2;
    }
    for (i = 1; i <= x->devices; i++)
        for (kind = 0; kind < MEMLORD_I_HEAP_KINDS; kind++)
            memlord_i_heap_place(x, 0, i, x->devices + kind + 1, 0, 0);
    for (i = 1; i <= x->scopes; i++) {
        const memlord_i_scope *scope = memlord_i_scope_at(x->lord, i);
        memlord_i_heap_string(x->o, scope->name);
        memlord_i_heap_place(x, scope->parent ? memlord_i_heap_scope(x, scope->parent->id) : 0, 0,
                             at++, 0, 0);
    }
}

/* Describes an allocation; answers its number. */
static uint64_t memlord_i_heap_info(memlord_i_export *x, uint64_t bytes, uint64_t trace) {
    memlord_i_heap_line2(x->o, "a", bytes, trace);
    return x->written++;
}

static void memlord_i_heap_alloc(memlord_i_export *x, uint64_t bytes, uint64_t trace) {
    memlord_i_heap_line1(x->o, "+", memlord_i_heap_info(x, bytes, trace));
}

/* What a trace allocated less what is live of it. */
typedef struct memlord_i_gone {
    uint64_t allocs, bytes;
} memlord_i_gone;

/* n allocations of one size that are freed again. Each outlives the beginning of the next, of
   whatever trace, unless the two are more than the peak. */
static MEMLORD_I_COLD void memlord_i_heap_gone(memlord_i_export *x, uint64_t trace,
                                               const memlord_i_gone *gone, double measure) {
    uint64_t n = (uint64_t)((double)gone->allocs * measure), info[2], i;
    uint64_t peak = x->r->total.peak, bytes = gone->allocs ? gone->bytes / gone->allocs : 0;
    if (!n && gone->allocs) n = 1;
    if (bytes > peak) bytes = peak; /* it was set back since */
    info[0] = info[1] = memlord_i_heap_info(x, bytes, trace);
    if (n > 1) info[1] = memlord_i_heap_info(x, bytes, trace);
    for (i = 0; i < n && !x->o->failed; i++) {
        uint64_t last = x->last;
        if (last && x->last_bytes > peak - bytes) memlord_i_heap_line1(x->o, "-", last);
        memlord_i_heap_line1(x->o, "+", info[i % 2]);
        if (last && x->last_bytes <= peak - bytes) memlord_i_heap_line1(x->o, "-", last);
        x->last = info[i % 2];
        x->last_bytes = bytes;
    }
}

static uint64_t memlord_i_heap_trace_of(const memlord_i_export *x, const memlord_i_alive *b) {
    return b->site ? b->site : memlord_i_heap_trace(x, b->slot, MEMLORD_I_HEAP_UNKNOWN);
}
static MEMLORD_I_COLD void memlord_i_heap_count(memlord_i_export *x, const memlord_i_alive *b) {
    memlord_i_gone *gone = (memlord_i_gone *)x->table;
    uint64_t trace = memlord_i_heap_trace_of(x, b);
    gone[trace].allocs++;
    gone[trace].bytes += b->bytes;
}
static MEMLORD_I_COLD void memlord_i_heap_block(memlord_i_export *x, const memlord_i_alive *b) {
    uint64_t trace = memlord_i_heap_trace_of(x, b);
    x->sum[b->slot] += b->bytes;
    if (b->scope) { /* groups remember the last trace of their kind */
        memlord_i_group *g = memlord_i_group_at(x, b);
        if (!g->blocks) {
            memlord_i_heap_line2(x->o, "t", trace, memlord_i_heap_scope(x, b->scope));
            g->blocks = 1;
            g->bytes = ++x->traces;
        }
        trace = g->bytes;
    }
    memlord_i_heap_alloc(x, b->bytes, trace);
}

/* What is gone of each trace: what was allocated (x->sum and x->more: by the sites of a device)
   less what is live. Answers how many allocations. */
static MEMLORD_I_COLD uint64_t memlord_i_heap_sums(memlord_i_export *x, memlord_i_gone *gone) {
    uint64_t total = 0;
    uint32_t i;
    for (i = 1; i <= x->sites + x->devices; i++) {
        uint32_t slot =
            i <= x->sites ? memlord_i_row_at(x->lord, MEMLORD_I_SITE, i)->slot : i - x->sites;
        uint64_t allocs = x->r->stat[slot - 1].allocs, bytes = x->r->stat[slot - 1].total_allocated;
        memlord_i_gone *g = &gone[memlord_i_heap_trace(x, slot, MEMLORD_I_HEAP_UNKNOWN)];
        if (i <= x->sites) {
            memlord_site_stat s;
            memlord_i_site_stat(x->lord, i, &s);
            allocs = s.allocs;
            bytes = s.alloc_bytes;
            x->sum[slot] += allocs;
            x->more[slot] += bytes;
            g = &gone[i];
        } else {
            g->allocs += x->sum[slot];
            g->bytes += x->more[slot];
            x->sum[slot] = x->more[slot] = 0;
        }
        g->allocs = allocs > g->allocs ? allocs - g->allocs : 0;
        g->bytes = bytes > g->bytes ? bytes - g->bytes : 0;
        total = memlord_i_add(total, g->allocs);
    }
    return total;
}

/* What is live of arenas, and the way up to the peak and down again. */
static MEMLORD_I_COLD void memlord_i_heap_peaks(memlord_i_export *x) {
    uint64_t at;
    uint32_t i;
    for (i = 1; i <= x->devices; i++) {
        uint64_t arena = memlord_i_u64_load(&memlord_i_device_at(x->lord, i)->arena);
        x->sum[i] += arena;
        if (arena) memlord_i_heap_alloc(x, arena, memlord_i_heap_trace(x, i, MEMLORD_I_HEAP_ARENA));
    }
    at = x->written;
    for (i = 1; i <= x->devices; i++) {
        uint64_t peak = x->r->stat[i - 1].peak, trace;
        trace = memlord_i_heap_trace(x, i, MEMLORD_I_HEAP_GONE);
        if (peak > x->sum[i]) memlord_i_heap_alloc(x, peak - x->sum[i], trace);
    }
    memlord_i_heap_line1(x->o, "c", x->r->uptime / 1000000u);
    for (; at < x->written; at++) memlord_i_heap_line1(x->o, "-", at);
}

static MEMLORD_I_COLD void memlord_i_heaptrack(memlord_i_export *x) {
    size_t size =
        ((size_t)x->sites + x->devices * MEMLORD_I_HEAP_KINDS + 1) * sizeof(memlord_i_gone);
    memlord_i_gone *gone = (memlord_i_gone *)memlord_i_alloc(x->lord, size);
    uint64_t total, trace;
    uint32_t slot;
    if (!gone) {
        x->r->result = MEMLORD_E_NOMEM;
        return;
    }
    x->table = gone;
    memlord_i_heap_line2(x->o, "v", 0x10400, 2);
    memlord_i_puts(x->o, "X memlord " MEMLORD_VERSION "\n");
    for (slot = 0; slot <= x->devices; slot++)
        memlord_i_text_odd(x->r, x->o, "# anomalies and drops, ", slot, MEMLORD_I_COLUMNS);
    memlord_i_heap_places(x);
    memlord_i_heap_line1(x->o, "c", 0);
    if (x->devices) (void)memlord_i_heap_info(x, 0, 1); /* 0 reads as "no allocation before" */
    memlord_i_alive_each(x, memlord_i_heap_count);
    total = memlord_i_heap_sums(x, gone);
    for (trace = 1; trace * sizeof *gone < size; trace++)
        memlord_i_heap_gone(x, trace, &gone[trace],
                            total > MEMLORD_I_GONE ? MEMLORD_I_GONE / (double)total : 1);
    if (x->last) memlord_i_heap_line1(x->o, "-", x->last);
    memlord_i_alive_each(x, memlord_i_heap_block);
    memlord_i_free(x->lord, gone, size);
    memlord_i_heap_peaks(x);
}

/* -- MEMORY_VIZ, what torch.cuda.memory._snapshot() gives, pickled by protocol 2
      (https://pytorch.org/docs/stable/torch_cuda_memory.html; docs.python.org pickletools).
   Every block is a segment of its own, so that its bytes lie in one at every step; a device's
   arena is one too, at an address no block has. Blocks of no bytes are left out. A block's site
   is its frame, with its scopes as callers, its tag its category; its parts are listed under
   "parts", which viewers skip. CUDA devices keep their index; the others come after them, as
   "memlord" lists, which has anomalies and drops, too. Traces are of the ring; where it knows a
   storage, what it says last is what the segments say, so that viewers can walk back from them.
   Memo: the words, then tags, sites and scopes by number. -- */

#define MEMLORD_I_VIZ_WORDS(X)                                                                     \
    X(device_traces)                                                                               \
    X(segments) X(allocator_settings) X(memlord) X(device) X(address) X(total_size)                \
        X(allocated_size) X(active_size) X(requested_size) X(stream) X(segment_type) X(large)      \
            X(small) X(segment_pool_id) X(is_expandable) X(frames) X(blocks) X(size) X(state)      \
                X(active_allocated) X(active_pending_free) X(action) X(addr) X(time_us)            \
                    X(category) X(alloc) X(free_requested) X(free_completed) X(segment_alloc)      \
                        X(segment_free) X(snapshot) X(oom) X(device_free) X(name) X(filename)      \
                            X(line) X(unknown) X(version) X(devices) X(tags) X(sites) X(scopes)    \
                                X(parts) X(offset)
enum {
#define MEMLORD_I_X(word) MEMLORD_I_VIZ_##word,
    MEMLORD_I_VIZ_WORDS(MEMLORD_I_X)
#undef MEMLORD_I_X
        MEMLORD_I_VIZ_COUNT
};
static const char *const memlord_i_viz_words[] = {
#define MEMLORD_I_X(word) #word,
    MEMLORD_I_VIZ_WORDS(MEMLORD_I_X)
#undef MEMLORD_I_X
};

#define MEMLORD_I_VIZ_BATCH 1000 /* the viewer takes a batch of a list as arguments */

static MEMLORD_I_COLD void memlord_i_viz_u64(memlord_i_out *o, uint64_t v) {
    unsigned n = v >> 63 ? 9 : 8;
    if (v < 256) {
        memlord_i_puts(o, "K");
        memlord_i_put_le(o, v, 1);
    } else if (v <= INT32_MAX) {
        memlord_i_puts(o, "J");
        memlord_i_put_le(o, v, 4);
    } else {
        memlord_i_puts(o, "\x8a");
        memlord_i_put_le(o, n, 1);
        memlord_i_put_le(o, v, 8);
        if (n == 9) memlord_i_put_le(o, 0, 1);
    }
}
static MEMLORD_I_COLD void memlord_i_viz_text(memlord_i_out *o, const char *text) {
    memlord_i_puts(o, "X");
    memlord_i_put_le(o, memlord_i_utf8_size(text), 4);
    memlord_i_put_utf8(o, text, "");
}
static void memlord_i_viz_put(memlord_i_out *o, uint32_t memo) {
    memlord_i_puts(o, "r");
    memlord_i_put_le(o, memo, 4);
}
static void memlord_i_viz_get(memlord_i_out *o, uint32_t memo) {
    memlord_i_puts(o, "j");
    memlord_i_put_le(o, memo, 4);
}
/* A word: in full once, then by its number. */
static MEMLORD_I_COLD void memlord_i_viz_word(memlord_i_export *x, int word) {
    if (x->words >> word & 1) {
        memlord_i_puts(x->o, "h");
    } else {
        x->words |= (uint64_t)1 << word;
        memlord_i_viz_text(x->o, memlord_i_viz_words[word]);
        memlord_i_puts(x->o, "q");
    }
    memlord_i_put_le(x->o, (unsigned)word, 1);
}
static void memlord_i_viz_pair(memlord_i_export *x, int key, uint64_t v) {
    memlord_i_viz_word(x, key);
    memlord_i_viz_u64(x->o, v);
}
static void memlord_i_viz_words2(memlord_i_export *x, int key, int value) {
    memlord_i_viz_word(x, key);
    memlord_i_viz_word(x, value);
}

/* Lists are written in batches: before an item, and at the end. */
static void memlord_i_viz_item(memlord_i_out *o, uint64_t i) {
    memlord_i_puts(o, i % MEMLORD_I_VIZ_BATCH ? "" : i ? "e(" : "(");
}
static void memlord_i_viz_list_end(memlord_i_out *o, uint64_t n) {
    memlord_i_puts(o, n ? "e" : "");
}

static uint32_t memlord_i_viz_memo_tag(uint32_t row) { return MEMLORD_I_VIZ_COUNT + row; }
static uint32_t memlord_i_viz_memo_site(const memlord_i_export *x, uint32_t row) {
    return MEMLORD_I_VIZ_COUNT + x->tags + row;
}
static uint32_t memlord_i_viz_memo_scope(const memlord_i_export *x, uint32_t id) {
    return MEMLORD_I_VIZ_COUNT + x->tags + x->sites + id;
}
static MEMLORD_I_COLD void memlord_i_viz_frames(memlord_i_export *x, uint32_t site,
                                                uint32_t scope) {
    const memlord_i_scope *of = scope ? memlord_i_scope_at(x->lord, scope) : NULL;
    memlord_i_viz_word(x, MEMLORD_I_VIZ_frames);
    memlord_i_puts(x->o, site || of ? "](" : "]");
    if (site) memlord_i_viz_get(x->o, memlord_i_viz_memo_site(x, site));
    for (; of; of = of->parent) memlord_i_viz_get(x->o, memlord_i_viz_memo_scope(x, of->id));
    if (site || scope) memlord_i_puts(x->o, "e");
}

/* The next item of a list: a frame. */
static MEMLORD_I_COLD void memlord_i_viz_frame(memlord_i_export *x, uint32_t i, const char *name,
                                               const char *file, int line) {
    memlord_i_viz_item(x->o, i - 1);
    memlord_i_puts(x->o, "}(");
    memlord_i_viz_word(x, MEMLORD_I_VIZ_name);
    memlord_i_viz_text(x->o, name);
    memlord_i_viz_word(x, MEMLORD_I_VIZ_filename);
    memlord_i_viz_text(x->o, file);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_line, line > 0 ? (uint64_t)line : 0);
    memlord_i_puts(x->o, "u");
}

/* A pair of a dictionary: another one, by device, of what is not 0. */
static MEMLORD_I_COLD void memlord_i_viz_odd(memlord_i_export *x) {
    uint32_t slot;
    memlord_i_viz_text(x->o, "anomalies_and_drops");
    memlord_i_puts(x->o, "}");
    for (slot = 0; slot <= x->devices; slot++) {
        char device[32];
        const char *name;
        size_t i = 0;
        uint64_t v;
        (void)memlord_device_name(memlord_i_odd_device(x->r, slot), device, sizeof device);
        memlord_i_viz_text(x->o, device);
        memlord_i_puts(x->o, "}");
        while ((name = memlord_i_odd_next(x->r, slot, MEMLORD_I_COLUMNS, &i, &v)) != NULL) {
            memlord_i_viz_text(x->o, name);
            memlord_i_viz_u64(x->o, v);
            memlord_i_puts(x->o, "s");
        }
        memlord_i_puts(x->o, "s");
    }
}

/* "memlord": what the rest refers to. */
static MEMLORD_I_COLD void memlord_i_viz_names(memlord_i_export *x) {
    memlord_i_out *o = x->o;
    uint32_t i;
    memlord_i_viz_word(x, MEMLORD_I_VIZ_memlord);
    memlord_i_puts(o, "}(");
    memlord_i_viz_word(x, MEMLORD_I_VIZ_version);
    memlord_i_viz_text(o, MEMLORD_VERSION);
    memlord_i_viz_word(x, MEMLORD_I_VIZ_devices);
    memlord_i_puts(o, "}");
    for (i = 1; i <= x->devices; i++) {
        char name[32];
        (void)memlord_device_name(memlord_i_export_device(x, i), name, sizeof name);
        memlord_i_viz_text(o, name);
        memlord_i_viz_u64(o, (uint64_t)x->number[i]);
        memlord_i_puts(o, "s");
    }
    memlord_i_viz_word(x, MEMLORD_I_VIZ_tags);
    memlord_i_puts(o, "]");
    for (i = 1; i <= x->tags; i++) {
        memlord_i_viz_item(o, i - 1);
        memlord_i_viz_text(o, memlord_i_export_tag(x, i));
        memlord_i_viz_put(o, memlord_i_viz_memo_tag(i));
    }
    memlord_i_viz_list_end(o, x->tags);
    memlord_i_viz_word(x, MEMLORD_I_VIZ_sites);
    memlord_i_puts(o, "]");
    for (i = 1; i <= x->sites && !o->failed; i++) {
        const memlord_site *site = memlord_i_row_site(x->lord, i);
        memlord_i_viz_frame(x, i, site->function, site->file, site->line);
        memlord_i_viz_put(o, memlord_i_viz_memo_site(x, i));
    }
    memlord_i_viz_list_end(o, x->sites);
    memlord_i_viz_word(x, MEMLORD_I_VIZ_scopes);
    memlord_i_puts(o, "]");
    for (i = 1; i <= x->scopes && !o->failed; i++) {
        const memlord_i_scope *scope = memlord_i_scope_at(x->lord, i);
        memlord_i_viz_frame(x, i, scope->name, "scope", 0);
        memlord_i_viz_put(o, memlord_i_viz_memo_scope(x, i));
    }
    memlord_i_viz_list_end(o, x->scopes);
    memlord_i_viz_odd(x);
    memlord_i_puts(o, "u");
}

/* The next item of a block's list. */
static MEMLORD_I_COLD void memlord_i_viz_part(memlord_i_export *x, const memlord_part_info *part) {
    memlord_i_viz_item(x->o, x->parts);
    memlord_i_puts(x->o, "}(");
    memlord_i_viz_word(x, MEMLORD_I_VIZ_name);
    memlord_i_viz_text(x->o, part->meta.name ? part->meta.name : "");
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_offset, part->offset);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_size, part->bytes);
    memlord_i_puts(x->o, "u");
}

/* A segment with its block. */
static MEMLORD_I_COLD void memlord_i_viz_segment(memlord_i_export *x, const memlord_i_alive *b) {
    memlord_i_out *o = x->o;
    if (!b->bytes) return;
    memlord_i_viz_item(o, x->written++);
    memlord_i_puts(o, "}(");
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_device, (uint64_t)x->number[b->slot]);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_address, b->storage);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_total_size, b->bytes);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_allocated_size, b->pending ? 0 : b->bytes);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_active_size, b->bytes);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_requested_size, b->bytes);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_stream, 0);
    memlord_i_viz_words2(x, MEMLORD_I_VIZ_segment_type,
                         b->bytes >> 20 ? MEMLORD_I_VIZ_large : MEMLORD_I_VIZ_small);
    memlord_i_viz_word(x, MEMLORD_I_VIZ_segment_pool_id);
    memlord_i_puts(o, "K");
    memlord_i_put_le(o, 0, 1);
    memlord_i_puts(o, "K");
    memlord_i_put_le(o, 0, 1);
    memlord_i_puts(o, "\x86");
    memlord_i_viz_word(x, MEMLORD_I_VIZ_is_expandable);
    memlord_i_puts(o, "\x89");
    memlord_i_viz_frames(x, b->site, b->scope);
    memlord_i_viz_word(x, MEMLORD_I_VIZ_blocks);
    memlord_i_puts(o, "]}(");
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_address, b->storage);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_size, b->bytes);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_requested_size, b->bytes);
    memlord_i_viz_words2(x, MEMLORD_I_VIZ_state,
                         b->pending ? MEMLORD_I_VIZ_active_pending_free
                                    : MEMLORD_I_VIZ_active_allocated);
    memlord_i_viz_frames(x, b->site, b->scope);
    if (b->parted) {
        memlord_i_viz_word(x, MEMLORD_I_VIZ_parts);
        memlord_i_puts(o, "]");
        x->parts = 0;
        (void)memlord_i_export_parts(x, b);
        memlord_i_viz_list_end(o, x->parts);
    }
    memlord_i_puts(o, "uau");
}

/* What the ring knows of a storage goes before what the map says a moment later. */
static MEMLORD_I_COLD void memlord_i_viz_alive(memlord_i_export *x, const memlord_i_alive *b) {
    memlord_i_fate *f = memlord_i_fate_find(x, b->slot, b->storage);
    memlord_i_alive known = *b;
    if (f) {
        if (f->what & MEMLORD_I_FATE_DONE || !memlord_i_fate_lives(f)) return;
        f->what |= MEMLORD_I_FATE_DONE;
        known.bytes = MEMLORD_I_BYTES(f->what);
        known.slot = MEMLORD_I_NOTE_SLOT(f->what);
        known.pending = MEMLORD_I_NOTE_KIND(f->what) == MEMLORD_EVENT_PEND;
    }
    memlord_i_viz_segment(x, &known);
}
/* What the map had no more, and arenas. */
static MEMLORD_I_COLD void memlord_i_viz_others(memlord_i_export *x) {
    memlord_i_alive b;
    uint64_t i;
    memset(&b, 0, sizeof b);
    for (i = 0; i < x->fates; i++) {
        const memlord_i_fate *f = &x->fate[i];
        if (!f->what || f->what & MEMLORD_I_FATE_DONE || !memlord_i_fate_lives(f)) continue;
        b.storage = f->storage;
        b.bytes = MEMLORD_I_BYTES(f->what);
        b.slot = MEMLORD_I_NOTE_SLOT(f->what);
        b.site = (uint32_t)f->where & MEMLORD_I_SITE_ROWS_MAX;
        b.scope = (uint32_t)(f->where >> 36);
        b.pending = MEMLORD_I_NOTE_KIND(f->what) == MEMLORD_EVENT_PEND;
        memlord_i_viz_segment(x, &b);
    }
    memset(&b, 0, sizeof b);
    for (b.slot = 1; b.slot <= x->devices; b.slot++) {
        b.storage = ((uint64_t)1 << 62) + ((uint64_t)b.slot << 50);
        b.bytes = memlord_i_u64_load(&memlord_i_device_at(x->lord, b.slot)->arena);
        memlord_i_viz_segment(x, &b);
    }
}

static MEMLORD_I_COLD void memlord_i_viz_event(memlord_i_export *x, int action, uint64_t addr,
                                               uint64_t size, uint64_t time_us, uint64_t where) {
    uint32_t tag = (uint32_t)(where >> 20) & MEMLORD_I_TAG_ROWS_MAX;
    memlord_i_viz_item(x->o, x->written++);
    memlord_i_puts(x->o, "}(");
    memlord_i_viz_words2(x, MEMLORD_I_VIZ_action, action);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_addr, addr);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_size, size);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_stream, 0);
    memlord_i_viz_pair(x, MEMLORD_I_VIZ_time_us, time_us);
    if (action == MEMLORD_I_VIZ_oom) memlord_i_viz_pair(x, MEMLORD_I_VIZ_device_free, addr);
    memlord_i_viz_frames(x, (uint32_t)where & MEMLORD_I_SITE_ROWS_MAX, (uint32_t)(where >> 36));
    if (tag) {
        memlord_i_viz_word(x, MEMLORD_I_VIZ_category);
        memlord_i_viz_get(x->o, memlord_i_viz_memo_tag(tag));
    } else if (action == MEMLORD_I_VIZ_snapshot) {
        memlord_i_viz_words2(x, MEMLORD_I_VIZ_category, MEMLORD_I_VIZ_unknown);
    }
    memlord_i_puts(x->o, "u");
}

/* Bytes free where a device is; 0: not known. */
static uint64_t memlord_i_viz_free(const memlord_i_export *x, uint32_t slot) {
    const memlord_i_place_line *line = memlord_i_report_place(x->r, slot);
    const memlord_capacity *s = line ? &line->sample : NULL;
    return s && s->known && s->total > s->used ? s->total - s->used : 0;
}

static MEMLORD_I_COLD void memlord_i_viz_ring(memlord_i_export *x, const memlord_i_read *e,
                                              uint64_t ns) {
    uint64_t bytes = MEMLORD_I_BYTES(e->what), us = (x->lord->started_wall + ns) / 1000;
    uint32_t kind = MEMLORD_I_NOTE_KIND(e->what);
    memlord_i_fate *f;
    if (MEMLORD_I_NOTE_SLOT(e->what) != x->only) return;
    if (kind == MEMLORD_EVENT_OOM)
        memlord_i_viz_event(x, MEMLORD_I_VIZ_oom, memlord_i_viz_free(x, x->only), bytes, us,
                            e->where);
    f = memlord_i_event_of_block(e) ? memlord_i_fate_find(x, x->only, e->storage) : NULL;
    if (!f || !bytes) return;
    if (kind == MEMLORD_EVENT_PEND ||
        (kind == MEMLORD_EVENT_FREE && !(f->what & MEMLORD_I_FATE_OPEN)))
        memlord_i_viz_event(x, MEMLORD_I_VIZ_free_requested, e->storage, bytes, us, e->where);
    if (kind == MEMLORD_EVENT_PEND) {
        f->what |= MEMLORD_I_FATE_OPEN; /* asked to be freed */
        return;
    }
    f->what &= ~MEMLORD_I_FATE_OPEN;
    if (kind == MEMLORD_EVENT_FREE) {
        memlord_i_viz_event(x, MEMLORD_I_VIZ_free_completed, e->storage, bytes, us, e->where);
        memlord_i_viz_event(x, MEMLORD_I_VIZ_segment_free, e->storage, bytes, us, e->where);
    } else {
        memlord_i_viz_event(x, MEMLORD_I_VIZ_segment_alloc, e->storage, bytes, us, e->where);
        memlord_i_viz_event(x, MEMLORD_I_VIZ_alloc, e->storage, bytes, us, e->where);
    }
}

/* A device's events. The last one's category is what viewers call blocks that have none. */
static MEMLORD_I_COLD void memlord_i_viz_trace(memlord_i_export *x, uint32_t slot) {
    x->written = 0;
    x->only = slot;
    if (x->more[slot]) memlord_i_ring_each(x, memlord_i_viz_ring);
    memlord_i_viz_event(x, MEMLORD_I_VIZ_snapshot, 0, 0,
                        (x->lord->started_wall + x->r->uptime) / 1000, 0);
    memlord_i_viz_list_end(x->o, x->written);
}

/* Gives devices their numbers; answers how many lists of events that makes. */
static MEMLORD_I_COLD int32_t memlord_i_viz_number(memlord_i_export *x) {
    int32_t n = 0;
    uint32_t slot;
    int cuda;
    for (cuda = 1; cuda >= 0; cuda--)
        for (slot = 1; slot <= x->devices; slot++) {
            memlord_device d = memlord_i_export_device(x, slot);
            if ((d.type == MEMLORD_DEVICE_CUDA) != cuda) continue;
            x->number[slot] = cuda ? d.index : n++;
            if (cuda && d.index >= n) n = d.index + 1;
        }
    return n;
}

static MEMLORD_I_COLD void memlord_i_memory_viz(memlord_i_export *x) {
    int32_t n, lists = memlord_i_viz_number(x);
    uint32_t slot;
    memlord_i_puts(x->o, "\x80\x02}(");
    memlord_i_viz_names(x);
    memlord_i_viz_word(x, MEMLORD_I_VIZ_segments);
    memlord_i_puts(x->o, "]");
    x->put_part = memlord_i_viz_part;
    memlord_i_fates_begin(x);
    memlord_i_alive_each(x, memlord_i_viz_alive);
    memlord_i_viz_others(x);
    memlord_i_viz_list_end(x->o, x->written);
    memlord_i_viz_word(x, MEMLORD_I_VIZ_device_traces);
    memlord_i_puts(x->o, "]");
    for (n = 0; n < lists; n++) {
        memlord_i_puts(x->o, "]");
        for (slot = 1; slot <= x->devices; slot++)
            if (x->number[slot] == n) memlord_i_viz_trace(x, slot);
        memlord_i_puts(x->o, "a");
    }
    memlord_i_viz_word(x, MEMLORD_I_VIZ_allocator_settings);
    memlord_i_puts(x->o, "}u.");
}

static MEMLORD_I_COLD void memlord_i_export_with(memlord_i_report *r,
                                                 void (*writer)(memlord_i_export *x)) {
    memlord *lord = r->lord;
    memlord_i_export *x = (memlord_i_export *)memlord_i_alloc(lord, sizeof *x);
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
    writer(x);
    memlord_i_free(lord, x->fate, (size_t)x->fates * sizeof *x->fate);
    memlord_i_free(lord, x, sizeof *x);
}

/* -- HTML: the page, with the JSON report in it, where no string can end its element -- */

static MEMLORD_I_COLD void memlord_i_html(memlord_i_report *r) {
    size_t i;
    for (i = 0; i < sizeof memlord_i_page_head / sizeof *memlord_i_page_head; i++)
        memlord_i_puts(r->o, memlord_i_page_head[i]);
    memlord_i_json(r);
    for (i = 0; i < sizeof memlord_i_page_tail / sizeof *memlord_i_page_tail; i++)
        memlord_i_puts(r->o, memlord_i_page_tail[i]);
}

#endif /* !MEMLORD_NO_REPORTS */

/* -- what writes each format -- */

struct memlord_i_export;

/* In the order of MEMLORD_I_FORMATS: from the report alone, or from it and an export. */
static const struct {
    void (*report)(memlord_i_report *r);
    void (*other)(struct memlord_i_export *x);
} memlord_i_writers[MEMLORD_FORMAT_COUNT] = {
    {memlord_i_text, NULL},
    {memlord_i_json, NULL},
#if !defined(MEMLORD_NO_REPORTS)
    {memlord_i_html, NULL},
    {NULL, memlord_i_trace_json},
    {NULL, memlord_i_prometheus},
    {NULL, memlord_i_pprof},
    {NULL, memlord_i_heaptrack},
    {NULL, memlord_i_folded},
    {NULL, memlord_i_memory_viz},
    {NULL, memlord_i_csv},
#endif
};

static int memlord_i_format_known(memlord_format format) {
    if ((unsigned)format >= MEMLORD_FORMAT_COUNT) return 0;
    return memlord_i_writers[format].report || memlord_i_writers[format].other;
}

/* The others walk on their own, if at all: who scrapes metrics does it often. */
static int memlord_i_format_whole(memlord_format format) {
    return memlord_i_writers[format].report != NULL;
}

static void memlord_i_format_write(memlord_i_report *r, memlord_format format) {
    if (memlord_i_writers[format].report) memlord_i_writers[format].report(r);
#if !defined(MEMLORD_NO_REPORTS)
    if (memlord_i_writers[format].other) memlord_i_export_with(r, memlord_i_writers[format].other);
#endif
}

/* ----------------------------------------------------------------------- >>calls --
   Owns nothing: the way of a call that records something, from its arguments to its end. Composes
   the map, the counters, the fences and the bands; the ledger is there. Invariants: a call looks at
   everything before it changes anything; it has counted before it leaves the map; what may run the
   host's code (memlord_i_call_end) comes last, nothing held. Locks: none of its own. */

/* -- storages -- */

/* What every call that records a block checks first. Out of our own allocator call no device may
   be made, as that allocates: such a call passes through, and asks for a thread next. */
static MEMLORD_I_HOT memlord_result memlord_i_admit(memlord *lord, memlord_device device,
                                                    uint64_t storage, uint64_t bytes,
                                                    uint32_t *slot) {
    *slot = 0;
    if (MEMLORD_I_UNLIKELY(memlord_i_self.busy)) return MEMLORD_OK;
    if (MEMLORD_I_UNLIKELY(!memlord_i_key_valid(storage) || bytes > MEMLORD_I_BYTES_MAX))
        return MEMLORD_E_INVALID;
    return memlord_i_slot(lord, device, slot);
}
static MEMLORD_I_HOT int memlord_i_type_valid(memlord_device device) {
    return (unsigned)device.type < (unsigned)MEMLORD_I_TYPES && device.index >= MEMLORD_ANY;
}

/* A call that is not plain: whose it is, the device it opens on, the reservations it comes off. */
typedef struct memlord_i_call {
    memlord_i_thread *t;
    uint32_t slot;
    memlord_i_cover cover;
} memlord_i_call;

/* 0: it passes through, being made inside our own allocator call. */
static MEMLORD_I_HOT int memlord_i_call_open(memlord *lord, memlord_i_call *call) {
    call->t = memlord_i_thread_get(lord);
    call->cover.parts = 0;
    return call->t != NULL;
}
/* So much is about to be recorded. */
static MEMLORD_I_HOT void memlord_i_call_cover(memlord *lord, memlord_i_call *call,
                                               uint64_t bytes) {
    if (memlord_i_u32_load(&call->t->special) & MEMLORD_I_SPECIAL_TICKET)
        memlord_i_cover_begin(lord, call->t, call->slot, bytes, &call->cover);
}
/* It was recorded, or not; from here on nothing is held. */
static MEMLORD_I_HOT memlord_result memlord_i_call_close(memlord *lord, memlord_i_call *call,
                                                         memlord_result r, int did,
                                                         const char *verb,
                                                         const memlord_block *block,
                                                         const memlord_site *site) {
    memlord_i_thread_put(lord, call->t);
    if (call->cover.parts) memlord_i_cover_end(&call->cover, did);
    if (memlord_i_tells(lord))
        memlord_i_tell(lord, did, verb, block->device, block->storage, block->bytes, site);
    memlord_i_call_end(lord, call->t, call->slot, 1);
    return r;
}

/* -- the general way: every alloc and every free; the short way hands over what it does not do -- */

static MEMLORD_I_NOINLINE memlord_result memlord_i_alloc_general(memlord *lord,
                                                                 memlord_device device,
                                                                 uint64_t storage, uint64_t bytes,
                                                                 const memlord_site *site) {
    memlord_i_call call;
    memlord_block block;
    uint64_t rows;
    int fresh;
    memlord_result r = memlord_i_admit(lord, device, storage, bytes, &call.slot);
    if (r) return memlord_i_drop_lost(lord, r, device, bytes);
    if (!memlord_i_call_open(lord, &call)) return MEMLORD_OK;
    memlord_i_call_cover(lord, &call, bytes);
    rows = memlord_i_rows_for(lord, call.t, call.slot, site);
    r = memlord_i_open(lord, call.t, call.slot, storage, bytes, rows, &fresh);
    if (r == MEMLORD_E_NOMEM) memlord_i_drop_count(lord, call.slot, bytes);
    if (r == MEMLORD_OK)
        memlord_i_note_add(lord, call.t, MEMLORD_EVENT_ALLOC, call.slot, storage, bytes, rows);
    block.device = device;
    block.storage = storage;
    block.bytes = bytes;
    return memlord_i_call_close(lord, &call, r, r == MEMLORD_OK, "[alloc] ", &block, site);
}

/* After a block ended, nothing held: asks the fences that hold it back, if there are any. */
static MEMLORD_I_HOT void memlord_i_end_after(memlord *lord, memlord_i_thread *t,
                                              const memlord_i_entry *gone,
                                              memlord_i_fence *chain) {
    if (MEMLORD_I_UNLIKELY(chain != NULL)) memlord_i_fences_begin(lord, chain);
    memlord_i_call_end(lord, t, MEMLORD_I_SLOT(gone->word1), 1);
}

/* Says that a block has ended, or that there was none, or adds it to what will be said. */
static MEMLORD_I_COLD void memlord_i_end_tell(memlord *lord, memlord_device device,
                                              const memlord_i_entry *gone, const char *verb,
                                              uint64_t storage, const memlord_site *site,
                                              memlord_i_told *told) {
    if (!told) {
        memlord_i_tell(lord, gone->key != 0, verb, device, storage, MEMLORD_I_BYTES(gone->word1),
                       site);
        return;
    }
    if (gone->key) {
        told->blocks++;
        told->bytes += MEMLORD_I_BYTES(gone->word1);
    }
    told->unknown += memlord_i_self.odd.unknown;
    memlord_i_self.odd.unknown = 0; /* what runs before the line is written says its own */
}

/* Every free and release, said in a line of its own or, with `told`, in one for many. */
static MEMLORD_I_NOINLINE memlord_result memlord_i_end_general(memlord *lord,
                                                               memlord_device device,
                                                               uint64_t storage, int how,
                                                               const memlord_site *site,
                                                               memlord_i_told *told) {
    memlord_i_thread *t;
    memlord_i_entry gone;
    memlord_i_fence *chain = NULL;
    memlord_result r;
    if (!storage) return MEMLORD_OK;
    if (!memlord_i_key_valid(storage)) return MEMLORD_E_INVALID;
    if (!memlord_i_type_valid(device)) return MEMLORD_E_DEVICE;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    r = memlord_i_close(lord, t, device, storage, how, &gone, &chain);
    if (gone.key && r == MEMLORD_OK) {
        memlord_i_count_here(lord, t, MEMLORD_I_SLOT(gone.word1), site,
                             MEMLORD_I_BYTES(gone.word1));
        memlord_i_note_end(lord, t, chain ? MEMLORD_EVENT_PEND : MEMLORD_EVENT_FREE, storage,
                           gone.word1, gone.word2, site);
    }
    memlord_i_thread_put(lord, t);
    if (memlord_i_tells(lord))
        memlord_i_end_tell(lord, device, &gone, chain ? "[free deferred] " : "[free] ", storage,
                           site, told);
    if (gone.key) memlord_i_end_after(lord, t, &gone, chain);
    return r;
}

/* -- the short way: one block, in the home bucket of a shard that the thread owns.

      Two masks keep all else off it. A thread's `special` has a bit for each thing a call may
      have to do besides: only the row bits (sites, a tag, a scope) are served here, from the
      thread's cache. The ledger's `alert` has a bit for each thing the end of a call may have to
      do: events, fences, bands, waiters, a report. A call that finds 0 in both and hits the cache
      and the home bucket does no more than what is written here; every other one goes to the
      general way before it has changed anything, or to memlord_i_opened and _closed after. -- */

/* What a block counts on, in a thread. */
typedef struct memlord_i_block_rows {
    uint64_t word2;
    memlord_i_cell *device, *site, *tag; /* NULL: of no site, of no tag */
    uint32_t slot;
} memlord_i_block_rows;

/* Adds the cached rows of a thread that has some of MEMLORD_I_SPECIAL_ROWS. 0: one is not cached,
   or the thread has another special bit. */
static MEMLORD_I_HOT int memlord_i_rows_cached(const memlord_i_thread *t, uint32_t special,
                                               uint32_t slot, const memlord_site *site,
                                               memlord_i_block_rows *rows) {
    const memlord_i_memo *memo;
    if (MEMLORD_I_UNLIKELY(special & ~(uint32_t)MEMLORD_I_SPECIAL_ROWS)) return 0;
    if (special & MEMLORD_I_SPECIAL_SCOPE) {
        if (MEMLORD_I_UNLIKELY(!t->born_in || t->born_of != rows->word2)) return 0;
        rows->word2 = t->born_in;
    }
    if (special & MEMLORD_I_SPECIAL_TAG) {
        memo = memlord_i_memo_find(t, t->tag, memlord_i_memo_salt(MEMLORD_I_MEMO_TAG, slot));
        if (MEMLORD_I_UNLIKELY(!memo)) return 0;
        rows->tag = (memlord_i_cell *)memo->value;
        rows->word2 |= memo->bits;
    }
    if (site && (special & MEMLORD_I_SPECIAL_SITES)) {
        memo = memlord_i_memo_find(t, site, memlord_i_memo_salt(MEMLORD_I_MEMO_SITE, slot));
        if (MEMLORD_I_UNLIKELY(!memo)) return 0;
        rows->site = (memlord_i_cell *)memo->value;
        rows->word2 |= memo->bits;
    }
    return 1;
}

/* Publishes the cells of a block that hold back too much. Inside. */
static MEMLORD_I_COLD void memlord_i_rows_settle(memlord *lord, const memlord_i_thread *t,
                                                 uint32_t slot, uint64_t word2) {
    const uint32_t site = MEMLORD_I_SITE_ROW(word2), tag = MEMLORD_I_TAG_ROW(word2);
    memlord_i_cell_settle(lord, MEMLORD_I_DEVICE, slot, memlord_i_cell_own(t, slot));
    memlord_i_cell_settle(lord, MEMLORD_I_SITE, site, memlord_i_cell_near(t, MEMLORD_I_SITE, site));
    memlord_i_cell_settle(lord, MEMLORD_I_TAG, tag, memlord_i_cell_near(t, MEMLORD_I_TAG, tag));
}

/* Ends an alloc that has counted its block and has more to do. */
static MEMLORD_I_NOINLINE memlord_result memlord_i_opened(memlord *lord, uint32_t slot,
                                                          uint64_t storage, uint64_t bytes,
                                                          uint64_t word2) {
    memlord_i_thread *t = memlord_i_self.thread;
    memlord_i_shard *s = memlord_i_shard_of(lord, storage, 1);
    const int crowded = memlord_i_shard_crowded(lord, s);
    const uint32_t size = s->size;
    memlord_i_rows_settle(lord, t, slot, word2);
    memlord_i_leave(t);
    if (crowded) (void)memlord_i_shard_grow(lord, t, s, size); /* without memory it stays as it is */
    memlord_i_note_add(lord, t, MEMLORD_EVENT_ALLOC, slot, storage, bytes, word2);
    memlord_i_call_end(lord, t, slot, 1);
    return MEMLORD_OK;
}
/* The same of a free, which has not yet counted at its site. */
static MEMLORD_I_NOINLINE memlord_result memlord_i_closed(memlord *lord, uint32_t slot,
                                                          uint64_t storage,
                                                          const memlord_site *site,
                                                          uint64_t bytes, uint64_t word2) {
    memlord_i_thread *t = memlord_i_self.thread;
    memlord_i_rows_settle(lord, t, slot, word2);
    memlord_i_leave(t);
    memlord_i_count_here(lord, t, slot, site, bytes);
    memlord_i_note_end(lord, t, MEMLORD_EVENT_FREE, storage, memlord_i_word1(bytes, slot), word2,
                       site);
    memlord_i_call_end(lord, t, slot, 1);
    return MEMLORD_OK;
}

/* 1: neither a handle nor a refused key; nor one of the last, which wrap around. */
static MEMLORD_I_HOT int memlord_i_key_plain(uint64_t key) {
    return (key + ((uint64_t)1 << MEMLORD_I_HANDLE_BITS)) >> MEMLORD_I_HANDLE_BITS > 1;
}

/* 1: the end of a call on a device has something to do. */
static MEMLORD_I_HOT int memlord_i_alerted(const memlord *lord, uint32_t slot) {
    const uint32_t alert = memlord_i_u32_load(&lord->alert);
    return alert && (alert & lord->slot_alerts[slot]);
}

static MEMLORD_I_HOT memlord_result memlord_i_alloc_short(memlord *lord, memlord_device device,
                                                          uint64_t storage, uint64_t bytes,
                                                          const memlord_site *site) {
    memlord_i_thread *t = memlord_i_self.thread;
    memlord_i_block_rows rows = {0, NULL, NULL, NULL, 0};
    memlord_i_probe probe;
    memlord_i_shard *s;
    uint32_t slot, special;
    int64_t past;
    if (MEMLORD_I_UNLIKELY(memlord_i_self.generation != lord->generation ||
                           !memlord_i_key_plain(storage) || bytes >> MEMLORD_I_PLAIN_BITS))
        return memlord_i_alloc_general(lord, device, storage, bytes, site);
    slot = memlord_i_u8_load_acquire(&lord->slot_of[memlord_i_device_direct(device)]);
    special = memlord_i_u32_load(&t->special);
    rows.word2 = memlord_i_u64_load(&lord->born);
    rows.device = memlord_i_cell_own(t, slot);
    if (MEMLORD_I_UNLIKELY(!rows.device ||
                           (special && !memlord_i_rows_cached(t, special, slot, site, &rows))))
        return memlord_i_alloc_general(lord, device, storage, bytes, site);
    s = memlord_i_shard_of(lord, storage, 1);
    if (MEMLORD_I_UNLIKELY(memlord_i_enter(t, s, 1) != t->id ||
                           !memlord_i_probe_vacant(s, storage, &probe))) {
        memlord_i_leave(t);
        return memlord_i_alloc_general(lord, device, storage, bytes, site);
    }
    memlord_i_probe_insert(s, &probe, storage, memlord_i_word1(bytes, slot), rows.word2);
    past = memlord_i_cell_opened(rows.device, bytes);
    if (MEMLORD_I_UNLIKELY(probe.far) && memlord_i_shard_crowded(lord, s)) past = -1;
    if (rows.site) past |= memlord_i_cell_opened(rows.site, bytes);
    if (rows.tag) past |= memlord_i_cell_opened(rows.tag, bytes);
    if (MEMLORD_I_UNLIKELY(past < 0 || memlord_i_alerted(lord, slot)))
        return memlord_i_opened(lord, slot, storage, bytes, rows.word2);
    memlord_i_leave(t);
    return MEMLORD_OK;
}

/* 1: the thread has the cells of a block with one reference and no side record, of the type. The
   device named is most often the block's: it is compared, so that the processor counts before the
   block has come from memory (100,000 blocks: a fifth of a call). */
static MEMLORD_I_HOT int memlord_i_rows_of(const memlord *lord, const memlord_i_thread *t,
                                           memlord_device device, const memlord_i_entry *e,
                                           memlord_i_block_rows *rows) {
    uint32_t slot = memlord_i_u8_load_acquire(&lord->slot_of[memlord_i_device_direct(device)]), row;
    if (MEMLORD_I_UNLIKELY(e->word1 >> 49 != slot + 256u)) /* 256: one reference */
        slot = (uint32_t)(e->word1 >> 49) - 256u;
    if (MEMLORD_I_UNLIKELY(slot > 255 || (e->word2 & 1)) ||
        MEMLORD_I_UNLIKELY(lord->slot_type[slot] != (uint16_t)device.type))
        return 0;
    rows->word2 = e->word2;
    rows->slot = slot;
    rows->device = memlord_i_cell_own(t, slot);
    if (MEMLORD_I_UNLIKELY(!rows->device)) return 0;
    row = MEMLORD_I_SITE_ROW(e->word2);
    if (row && !(rows->site = memlord_i_cell_near(t, MEMLORD_I_SITE, row))) return 0;
    row = MEMLORD_I_TAG_ROW(e->word2);
    return !row || (rows->tag = memlord_i_cell_near(t, MEMLORD_I_TAG, row)) != NULL;
}

/* A handle is looked for where an address would be, is not found, and goes the general way. */
static MEMLORD_I_HOT memlord_result memlord_i_end_short(memlord *lord, memlord_device device,
                                                        uint64_t storage, int how,
                                                        const memlord_site *site) {
    memlord_i_thread *t = memlord_i_self.thread;
    memlord_i_block_rows rows = {0, NULL, NULL, NULL, 0};
    memlord_i_probe probe;
    const memlord_i_memo *here;
    memlord_i_shard *s;
    uint64_t bytes;
    uint32_t slot, special;
    int64_t past;
    if (MEMLORD_I_UNLIKELY(memlord_i_self.generation != lord->generation || !storage))
        return memlord_i_end_general(lord, device, storage, how, site, NULL);
    special = memlord_i_u32_load(&t->special);
    if (MEMLORD_I_UNLIKELY(special & ~(uint32_t)MEMLORD_I_SPECIAL_ROWS))
        return memlord_i_end_general(lord, device, storage, how, site, NULL);
    s = memlord_i_shard_of(lord, storage, 1);
    if (MEMLORD_I_UNLIKELY(memlord_i_enter(t, s, 1) != t->id ||
                           !memlord_i_probe_find(s, storage, &probe) ||
                           !memlord_i_rows_of(lord, t, device, probe.entry, &rows))) {
        memlord_i_leave(t);
        return memlord_i_end_general(lord, device, storage, how, site, NULL);
    }
    slot = rows.slot;
    bytes = MEMLORD_I_BYTES(probe.entry->word1);
    memlord_i_probe_erase(s, &probe);
    past = memlord_i_cell_closed(rows.device, bytes);
    memlord_i_u64_own_add(&rows.device->frees, 1);
    past |= memlord_i_cell_tripped(rows.device);
    if (rows.site) past |= memlord_i_cell_closed(rows.site, bytes);
    if (rows.tag) {
        past |= memlord_i_cell_closed(rows.tag, bytes);
        memlord_i_u64_own_add(&rows.tag->frees, 1);
    }
    if (MEMLORD_I_UNLIKELY(past < 0 || memlord_i_alerted(lord, slot)))
        return memlord_i_closed(lord, slot, storage, site, bytes, rows.word2);
    if (site && (special & MEMLORD_I_SPECIAL_SITES)) {
        here = memlord_i_memo_find(t, site, memlord_i_memo_salt(MEMLORD_I_MEMO_SITE, slot));
        if (MEMLORD_I_UNLIKELY(!here))
            return memlord_i_closed(lord, slot, storage, site, bytes, rows.word2);
        memlord_i_u64_own_add(&((memlord_i_cell *)here->value)->frees, 1);
        memlord_i_u64_own_add(&((memlord_i_cell *)here->value)->here, bytes);
    }
    memlord_i_leave(t);
    return MEMLORD_OK;
}

static MEMLORD_I_COLD memlord_result memlord_i_call_retain(memlord *lord, memlord_device device,
                                                           uint64_t storage) {
    memlord_i_thread *t;
    memlord_result r;
    if (!memlord_i_key_valid(storage)) return MEMLORD_E_INVALID;
    if (!memlord_i_type_valid(device)) return MEMLORD_E_DEVICE;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    r = memlord_i_retain(lord, t, (uint32_t)device.type, storage);
    memlord_i_thread_put(lord, t);
    return r;
}

static MEMLORD_I_COLD memlord_result memlord_i_call_track(memlord *lord,
                                                          const memlord_block *block,
                                                          const memlord_site *site) {
    const uint64_t storage = block->storage, bytes = block->bytes;
    memlord_i_call call;
    uint64_t rows;
    int fresh;
    memlord_result r = memlord_i_admit(lord, block->device, storage, bytes, &call.slot);
    if (r) return memlord_i_drop_lost(lord, r, block->device, bytes);
    if (!memlord_i_call_open(lord, &call)) return MEMLORD_OK;
    memlord_i_call_cover(lord, &call, bytes);
    rows = memlord_i_rows_for(lord, call.t, call.slot, site);
    r = memlord_i_track(lord, call.t, call.slot, storage, bytes, rows, &fresh);
    if (r == MEMLORD_E_NOMEM) memlord_i_drop_count(lord, call.slot, bytes);
    fresh = fresh && r == MEMLORD_OK;
    if (fresh)
        memlord_i_note_add(lord, call.t, MEMLORD_EVENT_ALLOC, call.slot, storage, bytes, rows);
    return memlord_i_call_close(lord, &call, r, fresh, "[alloc] ", block, site);
}

/* -- realloc -- */

enum { /* memlord_realloc_token.state */
    MEMLORD_I_TOKEN_USED,
    MEMLORD_I_TOKEN_NEW,    /* there was no old storage */
    MEMLORD_I_TOKEN_LIVE,
    MEMLORD_I_TOKEN_PASSED, /* begun inside our own allocator call */
    MEMLORD_I_TOKEN_FREED   /* by free_begin, as it had uses */
};

static MEMLORD_I_COLD memlord_result memlord_i_realloc_begin(memlord *lord, memlord_device device,
                                              uint64_t old_storage,
                                              memlord_realloc_token *token) {
    memlord_i_thread *t;
    memlord_i_entry e;
    memlord_result r;
    if (!token) return MEMLORD_E_INVALID;
    memset(token, 0, sizeof *token);
    if (old_storage == UINT64_MAX) return MEMLORD_E_INVALID;
    if (!memlord_i_type_valid(device)) return MEMLORD_E_DEVICE;
    token->device = device;
    token->storage = old_storage;
    token->state = MEMLORD_I_TOKEN_NEW;
    token->word[2] = lord->generation;
    if (!old_storage) return MEMLORD_OK;
    t = memlord_i_thread_get(lord);
    if (!t) {
        token->state = MEMLORD_I_TOKEN_PASSED;
        return MEMLORD_OK;
    }
    r = memlord_i_detach(lord, t, (uint32_t)device.type, old_storage, &e);
    if (r == MEMLORD_OK) {
        token->state = MEMLORD_I_TOKEN_LIVE;
        token->word[0] = e.word1;
        token->word[1] = e.word2;
        memlord_i_fences_aside(lord, memlord_i_fences_of(e.word2));
        memlord_i_note_end(lord, t, MEMLORD_EVENT_FREE, old_storage, e.word1,
                           memlord_i_word2_of(e.word2), NULL);
    } else {
        r = memlord_i_unknown(lord, device);
    }
    memlord_i_thread_put(lord, t);
    return r;
}

/* The new storage, or the old one again, is recorded on the old one's device. */
static MEMLORD_I_COLD memlord_result memlord_i_realloc_close(memlord *lord,
                                                             memlord_realloc_token *token,
                                                             memlord_block *block,
                                                             const memlord_site *site) {
    memlord_i_call call;
    memlord_i_entry e;
    uint64_t rows = 0, had = MEMLORD_I_BYTES(token->word[0]);
    memlord_result r;
    if (!memlord_i_call_open(lord, &call)) return MEMLORD_OK;
    e.key = token->storage;
    e.word1 = token->word[0];
    e.word2 = token->word[1];
    call.slot = MEMLORD_I_SLOT(e.word1);
    if (block->storage && memlord_i_beyond(lord, call.slot, block->bytes)) {
        token->state = MEMLORD_I_TOKEN_LIVE;
        r = MEMLORD_E_INVALID;
    } else if (block->storage) {
        memlord_i_fences_back(lord, memlord_i_fences_of(e.word2));
        if (block->bytes > had) memlord_i_call_cover(lord, &call, block->bytes - had);
        r = memlord_i_resize(lord, call.t, &e, block->storage, block->bytes, site, &rows);
    } else { /* the real call failed: as it was */
        memlord_i_fences_back(lord, memlord_i_fences_of(e.word2));
        block->bytes = had;
        block->storage = e.key;
        rows = memlord_i_word2_of(e.word2);
        r = memlord_i_attach(lord, call.t, &e, e.key, call.slot, had, rows, NULL, 0);
    }
    if (r == MEMLORD_OK)
        memlord_i_note_add(lord, call.t, MEMLORD_EVENT_ALLOC, call.slot, block->storage,
                           block->bytes, rows);
    if (memlord_i_tells(lord)) memlord_i_tell_from(token->device, token->storage);
    return memlord_i_call_close(lord, &call, r, r == MEMLORD_OK, "[alloc realloc] ", block, site);
}

static MEMLORD_I_COLD memlord_result memlord_i_realloc_end(memlord *lord,
                                                           memlord_realloc_token *token,
                                                           uint64_t new_storage, uint64_t bytes,
                                                           const memlord_site *site) {
    memlord_block block;
    uint32_t state;
    if (!token || new_storage == UINT64_MAX) return MEMLORD_E_INVALID;
    if (new_storage && bytes > MEMLORD_I_BYTES_MAX) return MEMLORD_E_INVALID;
    state = token->state;
    if (state == MEMLORD_I_TOKEN_USED || state > MEMLORD_I_TOKEN_PASSED ||
        token->word[2] != lord->generation)
        return MEMLORD_E_STATE;
    token->state = MEMLORD_I_TOKEN_USED;
    if (state == MEMLORD_I_TOKEN_NEW) {
        if (token->device.index < 0) token->device.index = 0;
        return new_storage ? memlord_i_alloc_general(lord, token->device, new_storage, bytes, site)
                           : MEMLORD_OK;
    }
    if (state == MEMLORD_I_TOKEN_PASSED) return MEMLORD_OK;
    block.device = token->device;
    block.storage = new_storage;
    block.bytes = bytes;
    return memlord_i_realloc_close(lord, token, &block, site);
}

/* -- frees that may fail -- */

/* What free_begin finds: 1 a pending block, 2 one with uses (its words without the side record in
   *e), 0 any other, or none. */
static MEMLORD_I_COLD int memlord_i_free_kind(memlord *lord, memlord_i_thread *t, uint32_t type,
                                              uint64_t key, memlord_i_entry *e) {
    memlord_i_spot spot;
    int kind = 0;
    if (!memlord_i_u64_load(&lord->fences)) return 0;
    (void)memlord_i_spot_find(lord, t, type, key, 0, &spot);
    if (spot.entry && (spot.entry->word2 & 1)) {
        e->word1 = spot.entry->word1;
        e->word2 = memlord_i_word2_of(spot.entry->word2);
        kind = memlord_i_is_pending(spot.entry->word2)             ? 1
               : memlord_i_side_of(spot.entry->word2)->fences ? 2
                                                                   : 0;
    }
    memlord_i_spot_leave(t, &spot);
    return kind;
}

static MEMLORD_I_COLD memlord_result memlord_i_free_begin(memlord *lord, memlord_device device,
                                                          uint64_t storage,
                                                          memlord_realloc_token *token,
                                                          const memlord_site *site) {
    memlord_i_thread *t;
    memlord_i_entry e;
    int kind, gone;
    memlord_result r;
    if (!token) return MEMLORD_E_INVALID;
    t = memlord_i_key_valid(storage) && memlord_i_type_valid(device) ? memlord_i_thread_get(lord)
                                                                     : NULL;
    if (!t) return memlord_i_realloc_begin(lord, device, storage, token);
    memset(token, 0, sizeof *token);
    e.word1 = 0;
    kind = memlord_i_free_kind(lord, t, (uint32_t)device.type, storage, &e);
    r = kind ? MEMLORD_E_STATE : memlord_i_detach(lord, t, (uint32_t)device.type, storage, &e);
    gone = r == MEMLORD_OK;
    if (gone) {
        memlord_i_fences_aside(lord, memlord_i_fences_of(e.word2));
        memlord_i_note_end(lord, t, MEMLORD_EVENT_FREE, storage, e.word1,
                           memlord_i_word2_of(e.word2), site);
    } else if (!kind) {
        r = memlord_i_unknown(lord, device);
    }
    memlord_i_thread_put(lord, t);
    if (memlord_i_tells(lord))
        memlord_i_tell(lord, gone, "[free] ", device, storage, MEMLORD_I_BYTES(e.word1), site);
    if (kind == 2) {
        r = memlord_i_end_general(lord, device, storage, MEMLORD_I_FREE, site, NULL);
        gone = r == MEMLORD_OK;
    }
    token->word[2] = lord->generation;
    if (!gone) { /* of what was dropped there is nothing to end */
        token->state = MEMLORD_I_TOKEN_NEW;
        return r;
    }
    token->device = device;
    token->storage = storage;
    token->state = kind ? MEMLORD_I_TOKEN_FREED : MEMLORD_I_TOKEN_LIVE;
    token->word[0] = e.word1;
    token->word[1] = e.word2;
    return MEMLORD_OK;
}

/* The real call failed for a block with uses, which begin has freed: it is opened again. */
static MEMLORD_I_COLD memlord_result memlord_i_free_reopen(memlord *lord, memlord_i_thread *t,
                                                           memlord_i_entry *e) {
    uint32_t slot = MEMLORD_I_SLOT(e->word1);
    uint64_t bytes = MEMLORD_I_BYTES(e->word1), rows = e->word2;
    const memlord_i_delta d = memlord_i_delta_open(slot, rows, bytes);
    memlord_result r;
    e->word1 = memlord_i_word1(bytes, slot);
    r = memlord_i_attach(lord, t, e, e->key, slot, bytes, rows, &d, 1);
    if (r == MEMLORD_OK)
        memlord_i_note_add(lord, t, MEMLORD_EVENT_ALLOC, slot, e->key, bytes, rows);
    return r;
}

static MEMLORD_I_COLD memlord_result memlord_i_free_end(memlord *lord,
                                                        memlord_realloc_token *token, int failed,
                                                        const memlord_site *site) {
    memlord_i_thread *t;
    memlord_i_entry e;
    uint32_t state, slot;
    uint64_t refs;
    memlord_result r = MEMLORD_OK;
    if (!token) return MEMLORD_E_INVALID;
    state = token->state;
    if (state != MEMLORD_I_TOKEN_FREED && (failed || state != MEMLORD_I_TOKEN_LIVE))
        return memlord_i_realloc_end(lord, token, 0, 0, NULL);
    if (token->word[2] != lord->generation) return MEMLORD_E_STATE;
    token->state = MEMLORD_I_TOKEN_USED;
    t = memlord_i_thread_get(lord);
    if (!t || (state == MEMLORD_I_TOKEN_FREED && !failed)) {
        if (t) memlord_i_thread_put(lord, t);
        return MEMLORD_OK;
    }
    e.key = token->storage;
    e.word1 = token->word[0];
    e.word2 = token->word[1];
    slot = MEMLORD_I_SLOT(e.word1);
    if (state == MEMLORD_I_TOKEN_FREED) {
        r = memlord_i_free_reopen(lord, t, &e);
    } else {
        refs = memlord_i_refs_of(e.word1, e.word2);
        memlord_i_fences_back(lord, memlord_i_fences_of(e.word2));
        memlord_i_abandon(lord, t, &e);
        memlord_i_count_here(lord, t, slot, site, MEMLORD_I_BYTES(e.word1));
        if (refs > 1) memlord_i_stat_add(lord, slot, MEMLORD_I_STAT_freed_while_shared, 1);
    }
    memlord_i_thread_put(lord, t);
    if (memlord_i_tells(lord)) /* else begin has said it */
        memlord_i_tell(lord, failed && r == MEMLORD_OK, "[alloc] ", token->device, e.key,
                       MEMLORD_I_BYTES(e.word1), NULL);
    memlord_i_call_end(lord, t, slot, 1);
    return r;
}

static MEMLORD_I_COLD memlord_result memlord_i_realloc(memlord *lord, memlord_device device,
                                                       uint64_t old_storage, uint64_t new_storage,
                                                       uint64_t bytes, const memlord_site *site) {
    memlord_realloc_token token;
    memlord_i_thread *t;
    uint32_t slot;
    memlord_result r;
    if (old_storage == UINT64_MAX) return MEMLORD_E_INVALID;
    r = memlord_i_admit(lord, device, new_storage, bytes, &slot);
    if (r) return r;
    if (!old_storage) return memlord_i_alloc_general(lord, device, new_storage, bytes, site);
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    r = memlord_i_beyond(lord, slot, bytes) ? MEMLORD_E_INVALID
                                            : memlord_i_room(lord, t, slot, new_storage);
    memlord_i_thread_put(lord, t);
    if (r) return r;
    (void)memlord_i_realloc_begin(lord, device, old_storage, &token); /* the end speaks of both */
    return memlord_i_realloc_end(lord, &token, new_storage, bytes, site);
}

/* -- n at once -- */

static MEMLORD_I_COLD memlord_result memlord_i_admit_n(memlord *lord, const memlord_block *blocks,
                                                       size_t n, int opens) {
    uint64_t sum = 0;
    uint32_t slot;
    size_t i;
    memlord_result r;
    if (n && !blocks) return MEMLORD_E_INVALID;
    for (i = 0; i < n; i++) { /* before a device is made known: what is refused makes none */
        const memlord_block *b = &blocks[i];
        if (b->storage == UINT64_MAX || (opens && (!b->storage || b->bytes > MEMLORD_I_BYTES_MAX)))
            return MEMLORD_E_INVALID;
        if (!(opens ? memlord_i_device_valid(b->device) : memlord_i_type_valid(b->device)))
            return MEMLORD_E_DEVICE;
        sum += b->bytes;
        if (opens && sum > (uint64_t)1 << 62) return MEMLORD_E_INVALID;
    }
    for (i = 0, sum = 0; i < n && opens; i++) {
        r = memlord_i_admit(lord, blocks[i].device, blocks[i].storage, blocks[i].bytes, &slot);
        if (r) return r;
        sum += blocks[i].bytes;
        if (memlord_i_beyond(lord, slot, sum)) return MEMLORD_E_INVALID;
    }
    return MEMLORD_OK;
}

/* What one of n holds before any of them is recorded. */
enum {
    MEMLORD_I_HOLD_NOTHING, /* its key is on the map and is replaced: that needs no memory */
    MEMLORD_I_HOLD_PLACE,   /* a block of 0 bytes under its key */
    MEMLORD_I_HOLD_VIEW     /* its reference: all that a track of a live key records */
};
typedef struct memlord_i_hold {
    uint64_t rows;
    int what;
} memlord_i_hold;

/* Takes for one of n all that recording it needs memory for. */
static MEMLORD_I_COLD memlord_result memlord_i_hold_one(memlord *lord, memlord_i_thread *t,
                                                        const memlord_block *b, int track,
                                                        const memlord_site *site,
                                                        memlord_i_hold *hold) {
    memlord_i_spot spot;
    uint32_t slot, type;
    int found, fresh;
    memlord_result r = memlord_i_slot(lord, b->device, &slot);
    if (r) return r;
    type = lord->slot_type[slot];
    hold->rows = memlord_i_rows_for(lord, t, slot, site);
    hold->what = MEMLORD_I_HOLD_PLACE;
    do {
        (void)memlord_i_spot_find(lord, t, type, b->storage, 0, &spot);
        found = spot.entry ? 1 + memlord_i_is_pending(spot.entry->word2) : 0;
        memlord_i_spot_leave(t, &spot);
        if (!found) return memlord_i_open(lord, t, slot, b->storage, 0, hold->rows, &fresh);
        hold->what = track && found == 1 ? MEMLORD_I_HOLD_VIEW : MEMLORD_I_HOLD_NOTHING;
        if (hold->what == MEMLORD_I_HOLD_VIEW) r = memlord_i_retain(lord, t, type, b->storage);
    } while (r == MEMLORD_E_UNKNOWN); /* it ended between the two */
    return r;
}

/* Takes back what was held, the last first. Outside of the map and the orphans' lock: a reference
   may be the last one by now, and its end runs the host's fences. */
static MEMLORD_I_COLD void memlord_i_unhold_n(memlord *lord, const memlord_block *blocks,
                                              const memlord_i_hold *hold, size_t n) {
    while (n--) {
        const memlord_block *b = &blocks[n];
        if (hold[n].what == MEMLORD_I_HOLD_VIEW)
            (void)memlord_i_end_general(lord, b->device, b->storage, MEMLORD_I_RELEASE, NULL, NULL);
        if (hold[n].what == MEMLORD_I_HOLD_PLACE) {
            memlord_i_thread *t = memlord_i_thread_get(lord);
            memlord_i_unopen(lord, t, memlord_i_slot_known(lord, b->device), b->storage, 0);
            memlord_i_thread_put(lord, t);
        }
    }
}

/* Gives a place its bytes; 0: another thread has ended or replaced it meanwhile. */
static MEMLORD_I_COLD int memlord_i_fill(memlord *lord, memlord_i_thread *t, uint32_t slot,
                                         uint64_t key, uint64_t bytes) {
    memlord_i_delta d;
    memlord_i_spot spot;
    memlord_i_entry *e = memlord_i_spot_live(lord, t, lord->slot_type[slot], key, &spot);
    int held = e && MEMLORD_I_SLOT(e->word1) == slot && !MEMLORD_I_BYTES(e->word1);
    if (held) {
        d = memlord_i_delta_open(slot, memlord_i_word2_of(e->word2), bytes);
        d.allocs = 0; /* the place has counted it */
        e->word1 |= bytes;
        memlord_i_spot_unlock(&spot);
        memlord_i_count(lord, t, &d, 1);
    }
    memlord_i_spot_leave(t, &spot);
    return held;
}

/* Records one of n. Without memory it fails only if another thread has ended the block it replaces
   since it was looked at, and then counts as dropped. */
static MEMLORD_I_COLD void memlord_i_open_one(memlord *lord, memlord_i_thread *t,
                                              const memlord_block *b, int track,
                                              const memlord_i_hold *hold, memlord_i_told *told) {
    memlord_i_call call;
    int did = 0;
    memlord_result r = MEMLORD_OK;
    if (hold->what == MEMLORD_I_HOLD_VIEW) return;
    call.t = t;
    call.slot = memlord_i_slot_known(lord, b->device);
    call.cover.parts = 0;
    memlord_i_call_cover(lord, &call, b->bytes);
    if (hold->what == MEMLORD_I_HOLD_PLACE) {
        did = memlord_i_fill(lord, t, call.slot, b->storage, b->bytes);
    } else if (track) {
        r = memlord_i_track(lord, t, call.slot, b->storage, b->bytes, hold->rows, &did);
    } else {
        r = memlord_i_open(lord, t, call.slot, b->storage, b->bytes, hold->rows, &did);
        did = r == MEMLORD_OK;
    }
    if (r) memlord_i_drop_count(lord, call.slot, b->bytes);
    if (did) {
        memlord_i_note_add(lord, t, MEMLORD_EVENT_ALLOC, call.slot, b->storage, b->bytes,
                           hold->rows);
        told->blocks++;
        told->bytes += b->bytes;
    }
    if (call.cover.parts) memlord_i_cover_end(&call.cover, did);
}

/* Counts all n as dropped. A free of a key that is live all the same is not one of theirs. */
static MEMLORD_I_COLD void memlord_i_drop_n(memlord *lord, const memlord_block *blocks, size_t n,
                                            int track, memlord_result r) {
    memlord_block_info live;
    uint32_t slot;
    size_t i;
    for (i = 0; i < n && r == MEMLORD_E_DEVICE; i++) /* not a device, or one too many? */
        if (!memlord_i_device_valid(blocks[i].device)) return;
    for (i = 0; i < n && (r == MEMLORD_E_NOMEM || r == MEMLORD_E_DEVICE); i++) {
        if (memlord_i_slot(lord, blocks[i].device, &slot) == MEMLORD_OK)
            memlord_i_drop_count(lord, slot, blocks[i].bytes);
        else
            (void)memlord_i_drop_lost(lord, r, blocks[i].device, blocks[i].bytes);
        if (!track && memlord_block_find(lord, blocks[i].device, blocks[i].storage, &live) == 0 &&
            !live.pending)
            (void)memlord_i_drop_settle(lord, blocks[i].device.type);
    }
}

/* All or nothing: memory is taken first, then one block after the other is recorded. */
static MEMLORD_I_COLD memlord_result memlord_i_open_n(memlord *lord, const memlord_block *blocks,
                                                      size_t n, int track,
                                                      const memlord_site *site) {
    memlord_i_thread *t;
    memlord_i_told told;
    memlord_result r = memlord_i_admit_n(lord, blocks, n, 1);
    memlord_i_hold *hold;
    size_t i, k;
    memset(&told, 0, sizeof told);
    if (r || !n) {
        memlord_i_drop_n(lord, blocks, n, track, r);
        return r;
    }
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    hold = (memlord_i_hold *)memlord_i_alloc(lord, n * sizeof *hold);
    r = hold ? MEMLORD_OK : MEMLORD_E_NOMEM;
    for (i = 0; i < n && r == MEMLORD_OK; i++)
        r = memlord_i_hold_one(lord, t, &blocks[i], track, site, &hold[i]);
    for (k = 0; k < n && r == MEMLORD_OK; k++)
        memlord_i_open_one(lord, t, &blocks[k], track, &hold[k], &told);
    memlord_i_thread_put(lord, t);
    if (r) {
        if (i) memlord_i_unhold_n(lord, blocks, hold, i - 1);
        memlord_i_drop_n(lord, blocks, n, track, r);
    }
    memlord_i_free(lord, hold, n * sizeof *hold);
    if (memlord_i_tells(lord) && r == MEMLORD_OK)
        memlord_i_tell_n(lord, "[alloc] ", blocks, n, &told, site);
    for (i = 0; i < n; i++) {
        uint32_t slot = memlord_i_slot_known(lord, blocks[i].device);
        if (slot) memlord_i_call_end(lord, t, slot, 1);
    }
    return r;
}

static MEMLORD_I_COLD memlord_result memlord_i_end_n(memlord *lord, const memlord_block *blocks,
                                                     size_t n, int how, const memlord_site *site) {
    memlord_i_told told;
    memlord_result r = memlord_i_admit_n(lord, blocks, n, 0), one;
    int tells = r == MEMLORD_OK && n && memlord_i_tells(lord);
    size_t i;
    memset(&told, 0, sizeof told);
    for (i = 0; i < n && r != MEMLORD_E_INVALID && r != MEMLORD_E_DEVICE; i++) {
        const memlord_block *b = &blocks[i];
        one = tells ? memlord_i_end_general(lord, b->device, b->storage, how, site, &told)
              : how == MEMLORD_I_FREE ? memlord_free(lord, b->device, b->storage, site)
                                      : memlord_release(lord, b->device, b->storage, site);
        if (one) r = one;
    }
    if (tells) memlord_i_tell_n(lord, "[free] ", blocks, n, &told, site);
    return r;
}

/* -- moves -- */

/* 1: no such block, and only its move would make its destination known. */
static int memlord_i_moves_nothing(memlord *lord, memlord_device from, uint64_t storage,
                                   memlord_device to) {
    memlord_block_info block;
    return memlord_i_device_valid(to) && !memlord_i_slot_known(lord, to) &&
           !memlord_i_self.busy &&
           memlord_block_find(lord, from, storage, &block) == MEMLORD_E_UNKNOWN;
}

static MEMLORD_I_COLD memlord_result memlord_i_call_move(memlord *lord, memlord_device from,
                                                         uint64_t from_storage,
                                                         const memlord_block *to,
                                                         const memlord_fence *fence,
                                                         const memlord_site *site) {
    const int away = from.type != to->device.type || from_storage != to->storage;
    memlord_i_call call;
    memlord_i_fence *f, *chain = NULL;
    int waits = fence && away, used = 0;
    memlord_result r;
    if (fence && !fence->done) return MEMLORD_E_INVALID;
    if (!memlord_i_key_valid(from_storage)) return MEMLORD_E_INVALID;
    if (!memlord_i_type_valid(from)) return MEMLORD_E_DEVICE;
    if (memlord_i_moves_nothing(lord, from, from_storage, to->device)) {
        r = memlord_i_unknown(lord, from);
        return r == MEMLORD_OK && fence ? memlord_i_fence_pass(lord, fence) : r;
    }
    r = memlord_i_admit(lord, to->device, to->storage, to->bytes, &call.slot);
    if (r) return r;
    if (memlord_i_beyond(lord, call.slot, to->bytes)) return MEMLORD_E_INVALID;
    if (away && !memlord_i_self.busy)
        used = memlord_i_is_used(lord, (uint32_t)from.type, from_storage);
    if (!memlord_i_call_open(lord, &call))
        return fence ? memlord_i_fence_pass(NULL, fence) : MEMLORD_OK;
    f = waits ? memlord_i_fence_new(lord, fence) : NULL;
    memlord_i_call_cover(lord, &call, to->bytes);
    if (waits && !f)
        r = memlord_i_short_of(lord, call.t, from, from_storage, 1);
    else if (waits || used)
        r = memlord_i_move_fenced(lord, call.t, from, from_storage, call.slot, to->storage,
                                  to->bytes, f, site, &chain);
    else
        r = memlord_i_move(lord, call.t, from, from_storage, call.slot, to->storage, to->bytes,
                           site);
    if (r && f) memlord_i_fence_free(lord, f);
    if (!r && !chain) memlord_i_fences_widow(lord, f); /* of what was dropped there is no block */
    if (memlord_i_tells(lord)) memlord_i_tell_from(from, from_storage);
    (void)memlord_i_call_close(lord, &call, r, r == MEMLORD_OK, "[alloc move] ", to, site);
    memlord_i_fences_begin(lord, chain);
    /* onto itself: the source is as an alloc of a pending storage leaves it, over */
    if (r == MEMLORD_OK && fence && !waits) (void)memlord_i_fence_pass(lord, fence);
    return r;
}

/* -- bytes without identity -- */

/* Changes the balance and counts that, at a site as passed through: arena bytes come and go
   unnamed. In the map, so that no fork or report finds one without the other. Answers the bytes. */
static MEMLORD_I_COLD uint64_t memlord_i_arena_change(memlord *lord, memlord_i_thread *t,
                                                      uint32_t slot, uint64_t in, uint64_t out,
                                                      const memlord_site *site) {
    memlord_i_u64 *arena = &memlord_i_device_at(lord, slot)->arena;
    uint64_t had = memlord_i_u64_load(arena), add, take;
    memlord_i_delta d[2];
    memset(d, 0, sizeof d);
    d[0].slot = slot;
    if (site && (memlord_i_u32_load(&lord->hooks) & MEMLORD_I_HOOK_SITES))
        d[1].word2 = memlord_i_memo_row(lord, t, MEMLORD_I_SITE, site, slot);
    memlord_i_cells_make(lord, t, d, 2);
    memlord_i_enter_counting(lord, t);
    do {
        add = had + in > (uint64_t)1 << 62 ? 0 : in;
        take = had < out ? had : out;
    } while (!memlord_i_u64_cas(arena, &had, had + add - take));
    d[0].in = d[1].in = d[1].out = add;
    d[0].out = d[1].here = take;
    d[1].allocs = add != 0;
    d[1].here_frees = take != 0;
    memlord_i_count(lord, t, d, 2);
    memlord_i_leave(t);
    return add + take;
}

static MEMLORD_I_COLD memlord_result memlord_i_arena_add(memlord *lord, memlord_device device,
                                                         uint64_t bytes,
                                                         const memlord_site *site) {
    memlord_i_call call;
    memlord_block block;
    memlord_result r = memlord_i_admit(lord, device, 1, bytes, &call.slot);
    if (r) return r;
    if (!memlord_i_call_open(lord, &call)) return MEMLORD_OK;
    if (memlord_i_beyond(lord, call.slot, bytes)) r = MEMLORD_E_INVALID;
    if (r == MEMLORD_OK) memlord_i_call_cover(lord, &call, bytes);
    if (r == MEMLORD_OK && memlord_i_arena_change(lord, call.t, call.slot, bytes, 0, site) != bytes)
        r = MEMLORD_E_INVALID;
    if (r == MEMLORD_OK)
        memlord_i_note_add(lord, call.t, MEMLORD_EVENT_ARENA_ADD, call.slot, 0, bytes, 0);
    block.device = device;
    block.storage = 0;
    block.bytes = bytes;
    return memlord_i_call_close(lord, &call, r, r == MEMLORD_OK, "[alloc arena] ", &block, site);
}

static MEMLORD_I_COLD memlord_result memlord_i_arena_sub(memlord *lord, memlord_device device,
                                                         uint64_t bytes,
                                                         const memlord_site *site) {
    memlord_i_thread *t;
    uint64_t take;
    uint32_t slot;
    memlord_result r = memlord_i_admit(lord, device, 1, bytes, &slot);
    if (r) return r;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    take = memlord_i_arena_change(lord, t, slot, 0, bytes, site);
    if (take < bytes) memlord_i_stat_add(lord, slot, MEMLORD_I_STAT_underflows, 1);
    if (take) memlord_i_note_add(lord, t, MEMLORD_EVENT_ARENA_SUB, slot, 0, take, 0);
    memlord_i_thread_put(lord, t);
    if (memlord_i_tells(lord))
        memlord_i_tell(lord, 1, "[free arena] ", device, 0, take, site);
    memlord_i_call_end(lord, t, slot, 1);
    return MEMLORD_OK;
}

/* -- deferred frees -- */

/* What free_deferred and block_use share. */
static MEMLORD_I_COLD memlord_result memlord_i_fenced(memlord *lord, memlord_device device,
                                                      uint64_t storage, const memlord_fence *fence,
                                                      int end, const memlord_site *site) {
    memlord_i_thread *t;
    memlord_i_fence *f, *chain;
    memlord_i_entry gone;
    memlord_result r;
    if (!fence->done) return MEMLORD_E_INVALID;
    if (!storage && end) return memlord_i_fence_pass(lord, fence);
    if (!memlord_i_key_valid(storage)) return MEMLORD_E_INVALID;
    if (!memlord_i_type_valid(device)) return MEMLORD_E_DEVICE;
    if (memlord_i_self.busy) return memlord_i_fence_pass(NULL, fence);
    t = memlord_i_thread_get(lord);
    f = memlord_i_fence_new(lord, fence);
    gone.word1 = 0;
    r = f ? memlord_i_fence_attach(lord, t, device, storage, f,
                                   end ? MEMLORD_I_ATTACH_FREE : MEMLORD_I_ATTACH_USE, &gone,
                                   &chain)
          : memlord_i_short_of(lord, t, device, storage, end);
    if (r == MEMLORD_OK && end) {
        memlord_i_count_here(lord, t, MEMLORD_I_SLOT(gone.word1), site,
                             MEMLORD_I_BYTES(gone.word1));
        memlord_i_note_end(lord, t, MEMLORD_EVENT_PEND, storage, gone.word1, gone.word2, site);
    }
    memlord_i_thread_put(lord, t);
    if (memlord_i_tells(lord))
        memlord_i_tell(lord, r == MEMLORD_OK && end, "[free deferred] ", device, storage,
                       MEMLORD_I_BYTES(gone.word1), site);
    if (r) {
        if (f) memlord_i_fence_free(lord, f);
        return r;
    }
    memlord_i_fences_begin(lord, chain);
    if (!(lord->flags & MEMLORD_FLAG_DEFER))
        memlord_i_fences_tend(lord, (uint32_t)device.type, end);
    return MEMLORD_OK;
}

/* ----------------------------------------------------------------------- >>retry --
   Owns the way of a request through out-of-memory: attempts, what is tried between them, the
   pause. Composes limits, deferred and bands. Locks: callbacks for the list of waiters. */

static const memlord_retry memlord_i_default_retry = {5, 50, 2000, 1.5, NULL, NULL};

/* -- MEMLORD_RETRY="max=5,initial_ms=50,multiplier=1.5,max_ms=2000" -- */

/* Reads digits, and with `places` a point and more of them, up to a comma or the end. */
static MEMLORD_I_COLD const char *memlord_i_read_number(const char *text, int places, double *out) {
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

/* All of it or, with anything that is not understood, nothing. */
static MEMLORD_I_COLD memlord_result memlord_i_retry_parse(const char *text, memlord_retry *out) {
    static const char *const names[] = {"max=", "initial_ms=", "max_ms=", "multiplier="};
    memlord_retry read = *out;
    while (*text) {
        double value;
        size_t i = 0;
        while (i < 4 && strncmp(text, names[i], strlen(names[i]))) i++;
        if (i == 4) return MEMLORD_E_INVALID;
        text = memlord_i_read_number(text + strlen(names[i]), i == 3, &value);
        if (!text) return MEMLORD_E_INVALID;
        if (i == 0) read.max_retries = (uint32_t)value;
        if (i == 1) read.initial_ms = (uint32_t)value;
        if (i == 2) read.max_ms = (uint32_t)value;
        if (i == 3) read.multiplier = value;
        if (*text == ',' && !*++text) return MEMLORD_E_INVALID;
    }
    *out = read;
    return MEMLORD_OK;
}

/* -- waiting -- */

/* Sleeps at most so long; not if `needed` bytes were freed there since `out` was read, and no
   longer than until another thread has. */
static MEMLORD_I_COLD void memlord_i_wait_freed(memlord *lord, memlord_i_place *place,
                                                uint64_t needed, uint64_t out, uint32_t ms) {
    memlord_i_waiter w, **at;
    w.place = place;
    w.needed = needed ? needed : 1;
    w.out = out;
    memlord_i_self.busy++;
    if (memlord_i_event_open(&w.event)) {
        memlord_i_self.busy--;
        return;
    }
    memlord_i_self.busy--;
    memlord_i_lock_take(&lord->callbacks_lock);
    w.next = lord->waiters;
    lord->waiters = &w;
    memlord_i_alert(lord, MEMLORD_I_ALERT_WAITER, 1);
    memlord_i_lock_drop(&lord->callbacks_lock);
    memlord_i_barrier_threads(lord); /* who has freed without seeing the alert is added up here */
    if (memlord_i_place_out(lord, place) - w.out < w.needed) memlord_i_event_wait(&w.event, ms);
    memlord_i_lock_take(&lord->callbacks_lock);
    for (at = &lord->waiters; *at != &w;) at = &(*at)->next;
    *at = w.next;
    if (!lord->waiters) memlord_i_alert(lord, MEMLORD_I_ALERT_WAITER, 0);
    memlord_i_lock_drop(&lord->callbacks_lock);
    memlord_i_event_close(&w.event);
}

/* -- a request -- */

typedef struct memlord_i_request {
    memlord *lord;
    memlord_i_place *place;
    uint32_t slot;
    uint64_t bytes;
    const memlord_site *site;
    const memlord_retry *policy;
    memlord_ticket ticket;
    uint64_t out; /* what had been freed there before the attempt */
} memlord_i_request;

/* Holds the bytes under the limit, if need be after what can be done at once. */
static MEMLORD_I_COLD memlord_result memlord_i_request_hold(memlord_i_request *q) {
    memlord *lord = q->lord;
    memlord_device d = memlord_i_device_at(lord, q->slot)->device;
    memlord_result r = MEMLORD_E_LIMIT;
    uint64_t reclaimed;
    int round;
    for (round = 0; round < 3 && r == MEMLORD_E_LIMIT; round++) {
        if (round == 1 && !memlord_i_retire(lord, d)) continue;
        if (round == 2 && memlord_i_collect(lord, q->slot, MEMLORD_REASON_LIMIT, q->bytes,
                                            &reclaimed))
            break;
        r = memlord_i_reserve(lord, q->place, q->bytes, &q->ticket);
    }
    return r;
}

/* Records what was allocated, off the request's own ticket. What the map has no room for is
   counted as dropped; the memory is there all the same. */
static MEMLORD_I_COLD void memlord_i_request_record(memlord_i_request *q, uint64_t storage) {
    memlord_i_thread *t = memlord_i_thread_get(q->lord);
    if (t && t != q->lord->orphan) {
        t->retrying = q->ticket;
        memlord_i_special(t, MEMLORD_I_SPECIAL_TICKET, 1);
    }
    if (t) memlord_i_thread_put(q->lord, t);
    (void)memlord_i_alloc_general(q->lord, memlord_i_device_at(q->lord, q->slot)->device, storage,
                                  q->bytes, q->site);
}

/* Keeps what the last failure was, for reports, and says it. */
static MEMLORD_I_COLD void memlord_i_request_failed(memlord_i_request *q, int oom) {
    memlord *lord = q->lord;
    memlord_i_device *device = memlord_i_device_at(lord, q->slot);
    uint64_t now = memlord_i_clock(lord), live = memlord_i_place_live(lord, q->place);
    const memlord_site *site = memlord_i_site_kept(lord, q->site);
    memlord_i_sample_old(lord, q->place);
    if (oom) {
        memlord_i_stat_add(lord, q->slot, MEMLORD_I_STAT_oom_failures, 1);
        memlord_i_place *place = memlord_i_place_take(lord, q->slot);
        place->failing = 1;
        device->oom.bytes = q->bytes;
        device->oom.live = live;
        device->oom.used = place->sample.known ? place->sample.used : UINT64_MAX;
        device->oom.site = site;
        device->oom.at = now ? now : 1;
        memlord_i_lock_drop(&place->lock);
    }
    memlord_i_log_explain(lord, oom ? "[oom] " : "[limit] ", device->device, q->bytes);
}

/* Between two attempts. */
static MEMLORD_I_COLD void memlord_i_request_relieve(memlord_i_request *q, uint32_t attempt) {
    memlord *lord = q->lord;
    uint64_t reclaimed;
    uint32_t ms = memlord_retry_backoff(q->policy, attempt);
    memlord_i_sample_old(lord, q->place);
    (void)memlord_i_retire(lord, memlord_i_device_at(lord, q->slot)->device);
    (void)memlord_i_collect(lord, q->slot, MEMLORD_REASON_OOM, q->bytes, &reclaimed);
    if (q->policy->sleep_ms)
        q->policy->sleep_ms(q->policy->user, ms);
    else if (ms)
        memlord_i_wait_freed(lord, q->place, q->bytes, q->out, ms);
}

/* The attempts, under a ticket. A storage no ledger could keep is no allocation. */
static MEMLORD_I_COLD memlord_result memlord_i_request_try(memlord_i_request *q, memlord_try_fn fn,
                                                           void *user, uint64_t *storage) {
    uint32_t attempt;
    int answer = 1;
    for (attempt = 0;; attempt++) {
        *storage = 0;
        if (attempt) memlord_i_stat_add(q->lord, q->slot, MEMLORD_I_STAT_retries, 1);
        q->out = memlord_i_place_out(q->lord, q->place);
        answer = fn(user, q->bytes, storage);
        if (!answer && memlord_i_key_valid(*storage)) break;
        memlord_i_stat_add(q->lord, q->slot, MEMLORD_I_STAT_oom_attempts, 1);
        memlord_i_note_other(q->lord, MEMLORD_EVENT_OOM, q->slot, 0, q->bytes);
        if (answer < 0 || attempt == q->policy->max_retries) {
            *storage = 0;
            return MEMLORD_E_OOM;
        }
        memlord_i_request_relieve(q, attempt);
    }
    if (attempt) memlord_i_stat_add(q->lord, q->slot, MEMLORD_I_STAT_recoveries, 1);
    memlord_i_lock_take(&q->place->lock);
    q->place->failing = 0;
    memlord_i_lock_drop(&q->place->lock);
    return MEMLORD_OK;
}

/* ------------------------------------------------------------------- >>lifecycle --
   Owns the making and the end of a ledger, and what is said of what it still holds. Invariant: an
   end first stops who works for the ledger, then drops the fences, then takes it off the registry;
   from there on it is nobody else's. Locks: registry. */

/* MEMLORD_RETRY; what is not understood, or does not fit, is said and left alone. */
static MEMLORD_I_COLD void memlord_i_configure_retry(memlord *lord) {
    char value[128];
    memlord_retry policy = lord->retry;
    int set = memlord_i_env("MEMLORD_RETRY", value, sizeof value);
    if (!set) return;
    if (set < 0 || memlord_i_retry_parse(value, &policy))
        memlord_i_log(lord, MEMLORD_LOG_WARNING,
                      "[retry] MEMLORD_RETRY is not like max=5,initial_ms=50,multiplier=1.5,"
                      "max_ms=2000: ignored");
    else if (policy.initial_ms > policy.max_ms)
        memlord_i_logf(lord, MEMLORD_LOG_WARNING,
                       "[retry] MEMLORD_RETRY: initial_ms (%ju) is over max_ms (%ju): ignored",
                       (uint64_t)policy.initial_ms, (uint64_t)policy.max_ms);
    else if (memlord_retry_check(&policy))
        memlord_i_log(lord, MEMLORD_LOG_WARNING,
                      "[retry] MEMLORD_RETRY: the multiplier is below 1: ignored");
    else
        lord->retry = policy;
}
/* The same of MEMLORD_POLL_INTERVAL_MS. */
static MEMLORD_I_COLD void memlord_i_configure_interval(memlord *lord) {
    char value[128];
    double ms;
    int set = memlord_i_env("MEMLORD_POLL_INTERVAL_MS", value, sizeof value);
    if (!set) return;
    if (set > 0 && memlord_i_read_number(value, 0, &ms) && !strchr(value, ',') &&
        ms >= MEMLORD_I_POLL_LEAST) {
        memlord_i_u32_store(&lord->poll_ms, (uint32_t)ms);
        lord->poll_fixed = 1;
    } else {
        memlord_i_log(lord, MEMLORD_LOG_WARNING,
                      "[poller] MEMLORD_POLL_INTERVAL_MS is not a number of at least 10: ignored");
    }
}

static MEMLORD_I_COLD void memlord_i_configure(memlord *lord, const memlord_desc *desc) {
    char value[16];
    int debug = 0, book;
    lord->logger = desc->logger;
    lord->clock = desc->clock;
    lord->batch = desc->flags & MEMLORD_FLAG_EXACT ? 0
                  : desc->counter_batch           ? desc->counter_batch
                                                  : 65536;
    if (lord->batch > MEMLORD_I_BYTES_MAX) lord->batch = MEMLORD_I_BYTES_MAX;
    if (!(desc->flags & MEMLORD_FLAG_NO_ENV) &&
        memlord_i_env("MEMLORD_DEBUG", value, sizeof value) > 0)
        debug = strcmp(value, "0") != 0;
    lord->log_level = debug ? MEMLORD_LOG_TRACE : MEMLORD_LOG_INFO;
    if (debug && !lord->logger.fn) lord->logger.fn = memlord_i_log_stderr;
    if (desc->flags & MEMLORD_FLAG_SITES) lord->hooks.v |= MEMLORD_I_HOOK_SITES;
    if (debug) lord->hooks.v |= MEMLORD_I_HOOK_TRACE;
    lord->ticking = !lord->clock.fn && memlord_i_ticks_steady();
    lord->started = memlord_i_clock(lord);
    lord->started_stamp = memlord_i_stamp(lord);
    lord->started_wall = memlord_i_wall_now();
    for (book = 0; book < MEMLORD_I_BOOKS; book++) lord->row_count[book].v = 1;
    lord->reservation_count.v = lord->balance_count.v = lord->scope_count.v = 1;
    lord->crew.v = 4;
    lord->flags = desc->flags;
    lord->host.lord = lord;
    lord->host.device = memlord_device_cpu();
    lord->source[MEMLORD_DEVICE_CPU].fn = memlord_i_cpu_source;
    lord->source[MEMLORD_DEVICE_CPU].user = lord;
    if (!(desc->flags & MEMLORD_FLAG_NO_STRATEGY))
        lord->strategy.v = (void *)(uintptr_t)&memlord_i_default_strategy;
    lord->retry = memlord_i_default_retry;
    lord->poll_ms.v = desc->poll_ms ? desc->poll_ms : 200;
    if (lord->poll_ms.v < MEMLORD_I_POLL_LEAST) lord->poll_ms.v = MEMLORD_I_POLL_LEAST;
    if (!(desc->flags & MEMLORD_FLAG_NO_ENV)) {
        memlord_i_configure_retry(lord);
        memlord_i_configure_interval(lord);
    }
    lord->next_id.v = MEMLORD_I_ID_FIRST;
    lord->sweep_at = MEMLORD_I_SWEEP_MIN;
}

/* Gives the locks of the process and of a new ledger their ranks. */
static void memlord_i_locks_rank(memlord *lord) {
    uint32_t i;
    memlord_i_lock_rank(&memlord_i_process.lock, MEMLORD_I_RANK_REGISTRY);
    memlord_i_lock_rank(&memlord_i_process.cold, MEMLORD_I_RANK_COLD);
    memlord_i_lock_rank(&memlord_i_process.pages_lock, MEMLORD_I_RANK_PAGES);
    memlord_i_lock_rank(&lord->orphan_lock, MEMLORD_I_RANK_ORPHAN);
    memlord_i_lock_rank(&lord->fences_lock, MEMLORD_I_RANK_FENCES);
    memlord_i_lock_rank(&lord->callbacks_lock, MEMLORD_I_RANK_CALLBACKS);
    memlord_i_lock_rank(&lord->host.lock, MEMLORD_I_RANK_PLACE);
    memlord_i_lock_rank(&lord->scopes_lock, MEMLORD_I_RANK_SCOPES);
    memlord_i_lock_rank(&lord->snapshots_lock, MEMLORD_I_RANK_SNAPSHOTS);
    memlord_i_lock_rank(&lord->memory_lock, MEMLORD_I_RANK_MEMORY);
    memlord_i_lock_rank(&lord->count_lock, MEMLORD_I_RANK_COUNT);
    for (i = 0; i < MEMLORD_I_SHARDS; i++)
        memlord_i_lock_rank(&lord->shards[i].lock, MEMLORD_I_RANK_SHARD);
}

/* Everything of a ledger but the registry; NULL without memory. */
static MEMLORD_I_COLD memlord *memlord_i_make(const memlord_desc *desc,
                                              const memlord_allocator *allocator) {
    memlord *lord;
    memlord_i_self.busy++;
    lord = (memlord *)allocator->alloc(allocator->user, sizeof *lord);
    memlord_i_self.busy--;
    if (!lord) return NULL;
    memset(lord, 0, sizeof *lord);
    memlord_i_locks_rank(lord);
    lord->allocator = *allocator;
    lord->own_bytes.v = sizeof *lord;
    lord->names.item = sizeof(memlord_i_string);
    memlord_i_configure(lord, desc);
    lord->orphan = (memlord_i_thread *)memlord_i_alloc(lord, sizeof *lord->orphan);
    if (lord->orphan) return lord;
    memlord_i_regions_end(lord);
    allocator->free(allocator->user, lord, sizeof *lord);
    return NULL;
}

/* Makes the ledger known: to fork, to threads that end, to memlord_destroy. */
static MEMLORD_I_COLD void memlord_i_register(memlord *lord) {
    memlord_i_lock_take(&memlord_i_process.lock);
    memlord_i_process_start();
    lord->generation = memlord_i_u64_add(&memlord_i_process.generation, 1) + 1;
    memlord_i_thread_start(lord, lord->orphan, 0);
    memlord_i_special(lord->orphan, MEMLORD_I_SPECIAL_ORPHAN, 1);
    lord->next = memlord_i_process.ledgers;
    lord->back = &memlord_i_process.ledgers;
    if (lord->next) lord->next->back = &lord->next;
    memlord_i_process.ledgers = lord;
    memlord_i_lock_drop(&memlord_i_process.lock);
}

/* What a description asks for beyond the ledger itself. */
static MEMLORD_I_COLD memlord_result memlord_i_furnish(memlord *lord, const memlord_desc *desc) {
    memlord_result r = memlord_i_name(lord, desc->proc_root, &lord->cpu.root);
    if (r == MEMLORD_OK) r = memlord_i_name(lord, desc->output_dir, &lord->output_dir);
    if (r == MEMLORD_OK) r = memlord_i_name(lord, desc->labels, &lord->labels);
    if (r == MEMLORD_OK && desc->event_capacity)
        r = memlord_events_start(lord, desc->event_capacity);
    if (r == MEMLORD_OK && desc->snapshot_ms) r = memlord_snapshots_start(lord, desc->snapshot_ms);
    return r;
}

static MEMLORD_I_COLD int memlord_i_visit_leak(memlord *lord, const memlord_i_entry *e,
                                               void *user) {
    memlord_i_leak_add(lord, (memlord_i_leaks *)user,
                       memlord_i_word2_of(e->word2) & MEMLORD_I_ROWS_MASK, MEMLORD_I_SLOT(e->word1),
                       MEMLORD_I_BYTES(e->word1));
    return 0;
}
/* "[destroy]   1.5 KiB in 2 blocks: cuda:0 [weights]  main file.c:12"; without a place, of what
   the other lines do not tell. */
static MEMLORD_I_COLD void memlord_i_log_leak(memlord *lord, uint64_t bytes, uint64_t blocks,
                                              const memlord_i_leak *leak) {
    char line[512];
    memlord_i_out o;
    memlord_i_out_buffer(&o, line, sizeof line);
    memlord_i_puts(&o, leak ? "[destroy]   " : "[destroy]   and ");
    memlord_i_put_held(&o, bytes, blocks);
    memlord_i_puts(&o, leak ? ": " : " more");
    if (leak) memlord_i_put_leak(&o, lord, leak);
    (void)memlord_i_out_end(&o, sizeof line);
    memlord_i_log(lord, MEMLORD_LOG_INFO, line);
}
/* Where the blocks that are left come from, if that is known of any. */
static MEMLORD_I_COLD void memlord_i_log_leaks_by(memlord *lord) {
    memlord_i_query all = memlord_i_query_of(memlord_device_all());
    memlord_i_leaks *leaks;
    size_t i;
    if (memlord_i_rows(lord, MEMLORD_I_SITE) + memlord_i_rows(lord, MEMLORD_I_TAG) == 2) return;
    leaks = (memlord_i_leaks *)memlord_i_alloc(lord, sizeof *leaks);
    if (!leaks) return;
    memlord_i_visit(lord, &all, memlord_i_visit_leak, leaks);
    memlord_i_leaks_sort(leaks, 10);
    for (i = 0; i < leaks->lines; i++) {
        const memlord_i_leak *leak = &leaks->at[i];
        leaks->sum.bytes -= leak->bytes;
        leaks->sum.blocks -= leak->blocks;
        memlord_i_log_leak(lord, leak->bytes, leak->blocks, leak);
    }
    if (leaks->sum.blocks) memlord_i_log_leak(lord, leaks->sum.bytes, leaks->sum.blocks, NULL);
    memlord_i_free(lord, leaks, sizeof *leaks);
}

static MEMLORD_I_COLD void memlord_i_log_leaks(memlord *lord) {
    char line[128];
    memlord_i_out o;
    uint32_t i, n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    uint64_t blocks = 0;
    if (lord->log_level < MEMLORD_LOG_INFO || !lord->logger.fn) return;
    for (i = 1; i < n; i++) {
        memlord_stats s;
        memlord_i_stats(lord, i, &s);
        if (!s.live_blocks && !s.allocated) continue;
        blocks += s.live_blocks;
        memlord_i_out_buffer(&o, line, sizeof line);
        memlord_i_putf(&o, "[destroy] %i still holds ",
                       memlord_i_coded(memlord_i_device_at(lord, i)->device));
        memlord_i_put_held(&o, s.allocated, s.live_blocks);
        if (s.pending) memlord_i_putf(&o, ", pending %jo", s.pending);
        (void)memlord_i_out_end(&o, sizeof line);
        memlord_i_log(lord, MEMLORD_LOG_INFO, line);
    }
    if (blocks) memlord_i_log_leaks_by(lord);
}

/* Drops the fences of all blocks, those of open tokens included: nothing asks them any more. */
static int memlord_i_visit_fences(memlord *lord, const memlord_i_entry *e, void *user) {
    memlord_i_fence *f = memlord_i_fences_of(e->word2);
    (void)user;
    memlord_i_fences_widow(lord, f);
    if (f) memlord_i_side_of(e->word2)->fences = NULL;
    return 0;
}
static MEMLORD_I_COLD void memlord_i_fences_end(memlord *lord) {
    memlord_i_query all;
    memlord_i_fence *f;
    int round = 0;
    memset(&all, 0, sizeof all);
    all.sel = memlord_device_all();
    if (memlord_i_fence_inside(lord)) memlord_i_self.retiring = 0; /* it left one by longjmp */
    while (memlord_i_u64_load(&lord->fences) && round++ < 1000) { /* drops may defer frees */
        memlord_i_lock_take(&lord->fences_lock);
        memlord_i_askers_gone(lord, NULL);
        memlord_i_lock_drop(&lord->fences_lock);
        memlord_i_visit(lord, &all, memlord_i_visit_fences, NULL);
        while ((f = lord->aside) != NULL) {
            memlord_i_fences_back(lord, f);
            memlord_i_fences_widow(lord, f);
        }
        memlord_i_fences_drain(lord);
    }
}

/* Takes a ledger off the registry, once nobody saves it at the program's end. */
static MEMLORD_I_COLD void memlord_i_unregister(memlord *lord) {
    unsigned spins = 0;
    memlord_i_lock_take(&memlord_i_process.lock);
    while (memlord_i_process.saving == lord) {
        memlord_i_lock_drop(&memlord_i_process.lock);
        memlord_i_spin(&spins);
        memlord_i_lock_take(&memlord_i_process.lock);
    }
    *lord->back = lord->next;
    if (lord->next) lord->next->back = lord->back;
    memlord_i_lock_drop(&memlord_i_process.lock);
    if (memlord_i_self.generation == lord->generation) memlord_i_self.generation = 0;
}

/* Gives all memory back, the ledger's own last. */
static MEMLORD_I_COLD void memlord_i_unmake(memlord *lord) {
    memlord_allocator allocator = lord->allocator;
    memlord_i_thread *t = (memlord_i_thread *)memlord_i_ptr_load(&lord->threads);
    uint32_t i;
    memlord_i_parts_end(lord);
    for (i = 0; i < MEMLORD_I_SHARDS; i++)
        memlord_i_free(lord, lord->shards[i].table,
                       (size_t)lord->shards[i].size * MEMLORD_I_BUCKET);
    for (; t; t = (memlord_i_thread *)memlord_i_ptr_load(&t->next)) {
        memlord_i_book_end(lord, &t->books[MEMLORD_I_SITE], sizeof(memlord_i_cell));
        memlord_i_book_end(lord, &t->books[MEMLORD_I_TAG], sizeof(memlord_i_cell));
        memlord_i_memo_end(lord, t);
        memlord_i_nest_end(lord, t);
    }
    memlord_i_scopes_end(lord);
    memlord_i_book_end(lord, &lord->births, sizeof(memlord_i_birth));
    for (i = 0; i < MEMLORD_I_BOOKS; i++)
        memlord_i_book_end(lord, &lord->rows[i], sizeof(memlord_i_row));
    memlord_i_book_end(lord, &lord->reservations, sizeof(memlord_i_reservation));
    memlord_i_book_end(lord, &lord->balances, sizeof(memlord_i_balance));
    memlord_i_ring_end(lord);
    memlord_i_snapshots_close(lord);
    memlord_i_index_end(lord);
    memlord_i_names_end(lord);
    memlord_i_regions_end(lord); /* what is left is in there */
    memlord_i_self.busy++;
    allocator.free(allocator.user, lord, sizeof *lord);
    memlord_i_self.busy--;
}

static MEMLORD_I_COLD void memlord_i_end_ledger(memlord *lord) {
    const memlord_i_saver *saver;
    memlord_i_pollers_end(lord);
    memlord_i_recorder_end(lord);
    saver = (const memlord_i_saver *)memlord_i_ptr_load_acquire(&lord->saver);
    if (saver) saver->end(lord);
    memlord_i_log_leaks(lord);
    memlord_i_fences_end(lord);
    memlord_i_strategy_swap(lord, NULL);
    memlord_i_unregister(lord);
    memlord_i_unmake(lord);
}

static MEMLORD_I_COLD memlord_result memlord_i_new_ledger(const memlord_desc *desc,
                                                          memlord **out) {
    memlord_allocator allocator = desc->allocator;
    memlord_result r;
    if (!allocator.alloc != !allocator.free) return MEMLORD_E_INVALID;
    if (!allocator.alloc) memlord_os_allocator(&allocator);
    *out = memlord_i_make(desc, &allocator);
    if (!*out) return MEMLORD_E_NOMEM;
    memlord_i_register(*out);
    r = memlord_i_furnish(*out, desc);
    if (r == MEMLORD_OK) return r;
    memlord_i_end_ledger(*out);
    *out = NULL;
    return r;
}

/* ----------------------------------------------------------------------- >>public --
   The functions of the API: check, dispatch. A NULL ledger is answered first. */

#define MEMLORD_I_API MEMLORD_API MEMLORD_I_COLD /* none of those a program calls all the time */

MEMLORD_I_API memlord_format memlord_format_for(const char *path) {
    size_t n = path ? strlen(path) : 0, best = 0;
    int i, found = MEMLORD_FORMAT_TEXT;
    for (i = 0; i < MEMLORD_FORMAT_COUNT; i++) { /* the longest: .trace.json is no .json */
        const char *suffix = memlord_i_format_suffixes[i];
        size_t length = strlen(suffix);
        if (length <= best || n <= length || path[n - length - 1] != '.') continue;
        if (strcmp(path + n - length, suffix)) continue;
        best = length;
        found = i;
    }
    return (memlord_format)found;
}

MEMLORD_I_API const char *memlord_result_text(memlord_result result) {
    static const char *const texts[] = {
#define MEMLORD_I_X(name, text) text,
        MEMLORD_I_RESULTS(MEMLORD_I_X)
#undef MEMLORD_I_X
    };
    return (unsigned)result < MEMLORD_RESULT_COUNT ? texts[result] : "not a result";
}

/* -- lifecycle -- */

MEMLORD_I_API void memlord_os_allocator(memlord_allocator *out) {
    if (!out) return;
    out->alloc = memlord_i_os_alloc;
    out->free = memlord_i_os_free;
    out->user = NULL;
}

MEMLORD_I_API memlord_result memlord_create(const memlord_desc *desc, memlord **out) {
    memlord_desc plain;
    if (!out) return MEMLORD_E_INVALID;
    *out = NULL;
    memset(&plain, 0, sizeof plain);
    return memlord_i_new_ledger(desc ? desc : &plain, out);
}

MEMLORD_I_API void memlord_destroy(memlord *lord) {
    if (!lord || lord == memlord_i_ptr_load(&memlord_i_process.global)) return;
    memlord_i_end_ledger(lord);
}

MEMLORD_API memlord *memlord_global(void) {
    memlord_i_ptr *global = &memlord_i_process.global;
    memlord *lord = (memlord *)memlord_i_ptr_load_acquire(global), *made = NULL;
    if (MEMLORD_I_LIKELY(lord)) return lord;
    if (memlord_create(NULL, &made) != MEMLORD_OK) return NULL;
    memlord_i_lock_take(&memlord_i_process.lock);
    lord = (memlord *)memlord_i_ptr_load(global);
    if (!lord) memlord_i_ptr_store_release(global, lord = made); /* pairs with the load above */
    memlord_i_lock_drop(&memlord_i_process.lock);
    if (lord != made) memlord_destroy(made);
    return lord;
}

/* -- devices -- */

static int memlord_i_lower(int c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }
/* The rest of text after a word, any case; NULL if it does not begin with it. */
static const char *memlord_i_after(const char *text, const char *word) {
    while (*word && memlord_i_lower(*text) == *word) text++, word++;
    return *word ? NULL : text;
}

MEMLORD_I_API memlord_result memlord_device_parse(const char *text, memlord_device *out) {
    int type;
    if (!text || !out) return MEMLORD_E_INVALID;
    if (memlord_i_after(text, "all") && !memlord_i_after(text, "all")[0]) {
        *out = memlord_device_all();
        return MEMLORD_OK;
    }
    for (type = 0; type < MEMLORD_I_TYPES; type++) {
        const char *rest = memlord_i_after(text, memlord_i_type_names[type]);
        int index = 0;
        if (!rest) continue;
        if (!*rest) {
            *out = memlord_device_make(type, type <= MEMLORD_DEVICE_MAPPED ? 0 : MEMLORD_ANY);
            return MEMLORD_OK;
        }
        if (*rest == ':') rest++;
        if (!*rest) return MEMLORD_E_INVALID;
        for (; *rest >= '0' && *rest <= '9' && index <= INT16_MAX; rest++)
            index = index * 10 + (*rest - '0');
        if (*rest || index > INT16_MAX) return MEMLORD_E_INVALID;
        *out = memlord_device_make(type, index);
        return MEMLORD_OK;
    }
    return MEMLORD_E_INVALID;
}

MEMLORD_I_API size_t memlord_device_name(memlord_device device, char *buf, size_t cap) {
    memlord_i_out o;
    memlord_i_out_buffer(&o, buf, cap);
    memlord_i_put_device(&o, device);
    return memlord_i_out_end(&o, cap);
}

MEMLORD_I_API memlord_result memlord_device_label(memlord *lord, memlord_device device,
                                                  const char *text) {
    uint32_t slot;
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!text || !*text) { /* to take one away makes no device known */
        slot = memlord_i_slot_known(lord, device);
        if (!slot) return memlord_i_device_valid(device) ? MEMLORD_OK : MEMLORD_E_DEVICE;
        text = NULL;
    }
    r = memlord_i_slot(lord, device, &slot);
    if (r) return r;
    r = memlord_i_name(lord, text, &kept);
    if (r) return r;
    memlord_i_ptr_store_release(&memlord_i_device_at(lord, slot)->label, (void *)(uintptr_t)kept);
    return MEMLORD_OK;
}

MEMLORD_I_API size_t memlord_devices(memlord *lord, memlord_device *out, size_t cap) {
    uint32_t i, n;
    if (!lord) return 0;
    n = memlord_i_rows(lord, MEMLORD_I_DEVICE) - 1;
    for (i = 0; i < n && i < cap && out; i++) out[i] = memlord_i_device_at(lord, i + 1)->device;
    return n;
}

/* -- track -- */

MEMLORD_API memlord_result memlord_alloc(memlord *lord, memlord_device device, uint64_t storage,
                                         uint64_t bytes, const memlord_site *site) {
    return lord ? memlord_i_alloc_short(lord, device, storage, bytes, site) : MEMLORD_OK;
}
MEMLORD_API memlord_result memlord_free(memlord *lord, memlord_device device, uint64_t storage,
                                        const memlord_site *site) {
    return lord ? memlord_i_end_short(lord, device, storage, MEMLORD_I_FREE, site) : MEMLORD_OK;
}
MEMLORD_API memlord_result memlord_release(memlord *lord, memlord_device device, uint64_t storage,
                                           const memlord_site *site) {
    return lord ? memlord_i_end_short(lord, device, storage, MEMLORD_I_RELEASE, site)
                : MEMLORD_OK;
}

MEMLORD_API memlord_result memlord_track(memlord *lord, memlord_device device, uint64_t storage,
                                         uint64_t bytes, const memlord_site *site) {
    memlord_block block;
    if (!lord) return MEMLORD_OK;
    block.device = device;
    block.storage = storage;
    block.bytes = bytes;
    return memlord_i_call_track(lord, &block, site);
}
MEMLORD_API memlord_result memlord_retain(memlord *lord, memlord_device device, uint64_t storage,
                                          const memlord_site *site) {
    (void)site;
    return lord ? memlord_i_call_retain(lord, device, storage) : MEMLORD_OK;
}

MEMLORD_I_API memlord_result memlord_alloc_n(memlord *lord, const memlord_block *blocks, size_t n,
                                             const memlord_site *site) {
    return lord ? memlord_i_open_n(lord, blocks, n, 0, site) : MEMLORD_OK;
}
MEMLORD_I_API memlord_result memlord_track_n(memlord *lord, const memlord_block *blocks, size_t n,
                                             const memlord_site *site) {
    return lord ? memlord_i_open_n(lord, blocks, n, 1, site) : MEMLORD_OK;
}
MEMLORD_I_API memlord_result memlord_free_n(memlord *lord, const memlord_block *blocks, size_t n,
                                            const memlord_site *site) {
    return lord ? memlord_i_end_n(lord, blocks, n, MEMLORD_I_FREE, site) : MEMLORD_OK;
}
MEMLORD_I_API memlord_result memlord_release_n(memlord *lord, const memlord_block *blocks, size_t n,
                                               const memlord_site *site) {
    return lord ? memlord_i_end_n(lord, blocks, n, MEMLORD_I_RELEASE, site) : MEMLORD_OK;
}

MEMLORD_I_API memlord_result memlord_realloc(memlord *lord, memlord_device device,
                                             uint64_t old_storage, uint64_t new_storage,
                                             uint64_t bytes, const memlord_site *site) {
    return lord ? memlord_i_realloc(lord, device, old_storage, new_storage, bytes, site)
                : MEMLORD_OK;
}

/* A token of a call on no ledger: to end it does nothing. */
static memlord_result memlord_i_token_none(memlord_realloc_token *token) {
    if (token) memset(token, 0, sizeof *token);
    return MEMLORD_OK;
}
MEMLORD_I_API memlord_result memlord_realloc_begin(memlord *lord, memlord_device device,
                                                   uint64_t old_storage,
                                                   memlord_realloc_token *token) {
    memlord_result r;
    if (!lord) return memlord_i_token_none(token);
    r = memlord_i_realloc_begin(lord, device, old_storage, token);
    if (token && memlord_i_tells(lord))
        memlord_i_tell(lord, token->state == MEMLORD_I_TOKEN_LIVE, "[free realloc] ", device,
                       old_storage, MEMLORD_I_BYTES(token->word[0]), NULL);
    return r;
}
MEMLORD_I_API memlord_result memlord_realloc_end(memlord *lord, memlord_realloc_token *token,
                                                 uint64_t new_storage, uint64_t bytes,
                                                 const memlord_site *site) {
    return lord ? memlord_i_realloc_end(lord, token, new_storage, bytes, site) : MEMLORD_OK;
}

MEMLORD_I_API memlord_result memlord_free_begin(memlord *lord, memlord_device device,
                                                uint64_t storage, memlord_realloc_token *token,
                                                const memlord_site *site) {
    return lord ? memlord_i_free_begin(lord, device, storage, token, site)
                : memlord_i_token_none(token);
}
MEMLORD_I_API memlord_result memlord_free_end(memlord *lord, memlord_realloc_token *token,
                                              int failed, const memlord_site *site) {
    return lord ? memlord_i_free_end(lord, token, failed, site) : MEMLORD_OK;
}

MEMLORD_I_API memlord_result memlord_move(memlord *lord, memlord_device from, uint64_t from_storage,
                                          memlord_device to, uint64_t to_storage, uint64_t bytes,
                                          const memlord_fence *fence, const memlord_site *site) {
    memlord_block block;
    if (!lord) return fence ? memlord_i_fence_pass(NULL, fence) : MEMLORD_OK;
    block.device = to;
    block.storage = to_storage;
    block.bytes = bytes;
    return memlord_i_call_move(lord, from, from_storage, &block, fence, site);
}

MEMLORD_I_API memlord_result memlord_arena_add(memlord *lord, memlord_device device, uint64_t bytes,
                                               const memlord_site *site) {
    return lord ? memlord_i_arena_add(lord, device, bytes, site) : MEMLORD_OK;
}
MEMLORD_I_API memlord_result memlord_arena_sub(memlord *lord, memlord_device device, uint64_t bytes,
                                               const memlord_site *site) {
    return lord ? memlord_i_arena_sub(lord, device, bytes, site) : MEMLORD_OK;
}

MEMLORD_I_API memlord_result memlord_free_deferred(memlord *lord, memlord_device device,
                                                   uint64_t storage, memlord_fence fence,
                                                   const memlord_site *site) {
    return lord ? memlord_i_fenced(lord, device, storage, &fence, 1, site)
                : memlord_i_fence_pass(NULL, &fence);
}

MEMLORD_I_API memlord_result memlord_block_use(memlord *lord, memlord_device device,
                                               uint64_t storage, memlord_fence fence) {
    return lord ? memlord_i_fenced(lord, device, storage, &fence, 0, NULL)
                : memlord_i_fence_pass(NULL, &fence);
}

MEMLORD_API uint64_t memlord_retire(memlord *lord, memlord_device sel) {
    if (!lord || !memlord_i_selector_valid(sel)) return 0;
    if (MEMLORD_I_UNLIKELY(memlord_i_u32_load(&lord->alert) & MEMLORD_I_ALERT_SAVE))
        memlord_i_save_serve(lord);
    return memlord_i_retire(lord, sel);
}

/* -- sites -- */

MEMLORD_I_API memlord_result memlord_sites_enable(memlord *lord, int on) {
    memlord_i_thread *t;
    uint32_t hooks;
    if (!lord) return MEMLORD_OK;
    memlord_i_lock_take(&memlord_i_process.lock); /* no thread comes meanwhile */
    hooks = memlord_i_u32_load(&lord->hooks) & ~(uint32_t)MEMLORD_I_HOOK_SITES;
    if (on) hooks |= MEMLORD_I_HOOK_SITES;
    memlord_i_u32_store(&lord->hooks, hooks);
    t = (memlord_i_thread *)memlord_i_ptr_load_acquire(&lord->threads);
    for (; t; t = (memlord_i_thread *)memlord_i_ptr_load(&t->next))
        memlord_i_special(t, MEMLORD_I_SPECIAL_SITES, on);
    memlord_i_lock_drop(&memlord_i_process.lock);
    return MEMLORD_OK;
}

static const memlord_site memlord_i_no_site = {"", "", 0};

static MEMLORD_I_COLD const memlord_site *memlord_i_site_new(memlord *lord, void *address) {
    memlord_i_site *site = NULL;
    memlord_result r;
    if (memlord_i_self.busy) return &memlord_i_no_site;
    do {
        memlord_i_cold_enter();
        r = memlord_i_site_locked(lord, NULL, address, &site);
    } while (memlord_i_cold_leave(lord, &r));
    if (r != MEMLORD_OK) return &memlord_i_no_site;
    return (const memlord_site *)memlord_i_ptr_load_acquire(&site->shown);
}

MEMLORD_API const memlord_site *memlord_site_at(memlord *lord, void *return_address) {
    memlord_i_site *site;
    if (!lord || !return_address) return &memlord_i_no_site;
    site = memlord_i_site_of(lord, return_address);
    if (MEMLORD_I_UNLIKELY(!site)) return memlord_i_site_new(lord, return_address);
    return (const memlord_site *)memlord_i_ptr_load_acquire(&site->shown);
}

MEMLORD_I_API void *memlord_site_address(memlord *lord, const memlord_site *site) {
    memlord_i_site *record = lord && site ? memlord_i_site_of(lord, site) : NULL;
    return record ? record->address : NULL;
}

MEMLORD_I_API memlord_result memlord_site_rename(memlord *lord, const memlord_site *site,
                                                 const char *file, const char *function, int line) {
    memlord_i_site *record;
    const memlord_site *shown;
    if (!lord) return MEMLORD_OK;
    if (!site) return MEMLORD_E_INVALID;
    record = memlord_i_site_of(lord, site);
    if (!record) return MEMLORD_E_UNKNOWN;
    shown = memlord_i_site_shown(lord, record);
    return memlord_i_site_show(lord, record, file ? file : shown->file,
                               function ? function : shown->function, line ? line : shown->line);
}

MEMLORD_I_API size_t memlord_sites_top(memlord *lord, memlord_device sel, memlord_site_order order,
                                       memlord_site_stat *out, size_t cap) {
    if (!lord || !out || !memlord_i_selector_valid(sel)) return 0;
    return memlord_i_sites_top(lord, sel, order, out, cap, 1);
}
MEMLORD_I_API int memlord_site_top_alloc(memlord *lord, memlord_device sel,
                                         memlord_site_stat *out) {
    return memlord_sites_top(lord, sel, MEMLORD_SITE_ORDER_ALLOC_BYTES, out, 1) == 1;
}
MEMLORD_I_API int memlord_site_top_free(memlord *lord, memlord_device sel, memlord_site_stat *out) {
    return memlord_sites_top(lord, sel, MEMLORD_SITE_ORDER_FREE_BYTES, out, 1) == 1;
}

/* -- read -- */

MEMLORD_API uint64_t memlord_allocated(memlord *lord, memlord_device sel) {
    uint64_t sum = 0;
    uint32_t i, n;
    if (!lord || !memlord_i_selector_valid(sel)) return 0;
    n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    for (i = 1; i < n; i++)
        if (memlord_i_selects(sel, memlord_i_device_at(lord, i)->device))
            sum = memlord_i_add(sum, memlord_i_row_live(lord, MEMLORD_I_DEVICE, i));
    return sum;
}

MEMLORD_I_API memlord_result memlord_stats_get(memlord *lord, memlord_device sel,
                                               memlord_stats *out) {
    memlord_i_place *place;
    uint32_t i, n, found = 0;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    out->version = MEMLORD_STATS_VERSION;
    if (!lord) return MEMLORD_OK;
    if (!memlord_i_selector_valid(sel)) return MEMLORD_E_DEVICE;
    n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    for (i = 1; i < n; i++) {
        memlord_stats s;
        if (!memlord_i_selects(sel, memlord_i_device_at(lord, i)->device)) continue;
        memlord_i_stats(lord, i, &s);
        if (found++)
            memlord_i_stats_add(out, &s);
        else
            *out = s;
    }
    if (found > 1) out->limit = memlord_i_limits(lord, sel);
    if (!found && memlord_i_place_of(lord, sel, 0, &place) == MEMLORD_OK)
        out->limit = memlord_i_place_limit(place); /* the host's has one before its devices */
    if (sel.type == MEMLORD_ANY) memlord_i_stats_lost(lord, out);
    return MEMLORD_OK;
}

static memlord_stats memlord_i_stats_of(memlord *lord, memlord_device sel) {
    memlord_stats s;
    (void)memlord_stats_get(lord, sel, &s);
    return s;
}
MEMLORD_I_API uint64_t memlord_freed(memlord *lord, memlord_device sel) {
    return memlord_i_stats_of(lord, sel).freed;
}
MEMLORD_I_API uint64_t memlord_pending(memlord *lord, memlord_device sel) {
    return memlord_i_stats_of(lord, sel).pending;
}
MEMLORD_I_API uint64_t memlord_peak(memlord *lord, memlord_device sel) {
    return memlord_i_stats_of(lord, sel).peak;
}

/* What no cell counts: levels stay, their peaks are what they are now, the rest starts over. */
static MEMLORD_I_COLD void memlord_i_device_reset(memlord *lord, uint32_t slot) {
    memlord_i_device *device = memlord_i_device_at(lord, slot);
    memlord_i_place *place = memlord_i_place_take(lord, slot);
    int stat;
    for (stat = 0; stat < MEMLORD_I_STAT_COUNT; stat++)
        if (memlord_i_columns[stat].kind != MEMLORD_I_KIND_LIVE)
            memlord_i_u64_store(&device->count[stat], 0);
    memlord_i_u64_store(&device->count[MEMLORD_I_STAT_reserved_peak],
                        memlord_i_u64_load(&device->count[MEMLORD_I_STAT_reserved]));
    device->watch.spent = 0;
    memset(&device->oom, 0, sizeof device->oom);
    memlord_i_lock_drop(&place->lock);
}

MEMLORD_I_API void memlord_reset(memlord *lord) {
    memlord_i_thread *t;
    memlord_i_route *route;
    uint32_t i, n;
    int book;
    if (!lord) return;
    (void)memlord_i_record_end(lord, MEMLORD_OK); /* what was asked for is of the old epoch */
    t = memlord_i_thread_get(lord);
    if (!t) return;
    memlord_i_lock_take(&memlord_i_process.cold);
    for (book = 0; book < MEMLORD_I_BOOKS; book++) {
        n = memlord_i_rows(lord, book);
        for (i = 1; i < n; i++) memlord_i_row_reset(lord, t, book, i);
    }
    (void)memlord_i_u64_add(&lord->epoch, 1);
    n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    for (i = 1; i < n; i++) memlord_i_device_reset(lord, i);
    memlord_i_u64_store(&lord->lost_allocs, 0);
    memlord_i_u64_store(&lord->lost_bytes, 0);
    memlord_i_u64_store(&lord->lost_unknown, 0);
    memlord_i_u64_store(&lord->lost_events, 0);
    memlord_i_u64_store(&lord->lost_tags, 0);
    memlord_i_u64_store(&lord->lost_scopes, 0);
    memlord_i_u64_store(&lord->lost_snapshots, 0);
    route = (memlord_i_route *)memlord_i_ptr_load(&lord->routes);
    for (; route; route = route->next) {
        memlord_i_u64_store(&route->moves, 0);
        memlord_i_u64_store(&route->bytes, 0);
    }
    for (i = 1; i < memlord_i_scopes(lord); i++)
        memlord_i_u64_store(&memlord_i_scope_at(lord, i)->device_ns, 0);
    memlord_i_lock_drop(&memlord_i_process.cold);
    memlord_i_thread_put(lord, t);
    for (i = 1; i < n; i++) memlord_i_holders_restart(lord, i);
    memlord_i_place_review(lord, NULL);
    memlord_i_log(lord, MEMLORD_LOG_INFO, "[reset] a new epoch: totals 0, peaks at what is live");
}

MEMLORD_I_API void memlord_peak_reset(memlord *lord, memlord_device sel) {
    memlord_i_thread *t;
    uint32_t i, n;
    if (!lord || !memlord_i_selector_valid(sel)) return;
    t = memlord_i_thread_get(lord);
    if (!t) return;
    n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    for (i = 1; i < n; i++)
        if (memlord_i_selects(sel, memlord_i_device_at(lord, i)->device)) {
            memlord_i_row_peak_reset(lord, t, MEMLORD_I_DEVICE, i);
            memlord_i_holders_restart(lord, i);
        }
    memlord_i_thread_put(lord, t);
}

MEMLORD_I_API char *memlord_format_bytes(uint64_t bytes, char *buf, size_t cap) {
    memlord_i_out o;
    memlord_i_out_buffer(&o, buf, cap);
    memlord_i_put_bytes(&o, bytes);
    (void)memlord_i_out_end(&o, cap);
    return buf;
}

/* The factor of a unit, "" to "EiB" in any case; 0: not one. */
static MEMLORD_I_COLD uint64_t memlord_i_unit(const char *text) {
    static const char letters[] = "kmgtpe";
    uint64_t factor = 1, step = 1000;
    int n = 0, i;
    int c = memlord_i_lower(*text);
    if (c && c != 'b') {
        while (letters[n] && letters[n] != c) n++;
        if (!letters[n++]) return 0;
        if (memlord_i_lower(*++text) == 'i') {
            step = 1024;
            text++;
        }
    }
    if (memlord_i_lower(*text) == 'b') text++;
    while (*text == ' ') text++;
    for (i = 0; i < n; i++) factor *= step;
    return *text ? 0 : factor;
}

MEMLORD_I_API memlord_result memlord_parse_bytes(const char *text, uint64_t *out) {
    uint64_t whole = 0, part = 0, scale = 1, unit, rest;
    int digits = 0;
    if (!text || !out) return MEMLORD_E_INVALID;
    while (*text == ' ') text++;
    for (; *text >= '0' && *text <= '9'; text++, digits++) {
        unsigned digit = (unsigned)(*text - '0');
        if (whole > (UINT64_MAX - digit) / 10) return MEMLORD_E_INVALID;
        whole = whole * 10 + digit;
    }
    if (*text == '.') { /* nine places: the next would be less than a byte of most units */
        for (text++; *text >= '0' && *text <= '9'; text++, digits++) {
            if (scale == 1000000000u) continue;
            part = part * 10 + (unsigned)(*text - '0');
            scale *= 10;
        }
    }
    while (*text == ' ') text++;
    unit = memlord_i_unit(text);
    if (!digits || !unit || (unit == 1 && scale > 1)) return MEMLORD_E_INVALID;
    if (whole > UINT64_MAX / unit) return MEMLORD_E_INVALID;
    rest = unit / scale * part + unit % scale * part / scale;
    if (whole * unit > UINT64_MAX - rest) return MEMLORD_E_INVALID;
    *out = whole * unit + rest;
    return MEMLORD_OK;
}

MEMLORD_I_API size_t memlord_summary(memlord *lord, char *buf, size_t cap) {
    memlord_i_out o;
    uint32_t i, n;
    memlord_i_out_buffer(&o, buf, cap);
    if (!lord) {
        (void)memlord_i_out_end(&o, cap);
        return 0;
    }
    memlord_i_puts(&o, "memlord");
    n = memlord_i_rows(lord, MEMLORD_I_DEVICE);
    for (i = 1; i < n; i++) {
        memlord_stats s;
        memlord_i_stats(lord, i, &s);
        memlord_i_putf(&o, i > 1 ? ", %i %jo in %ju (peak %jo)" : " %i %jo in %ju (peak %jo)",
                       memlord_i_coded(memlord_i_device_at(lord, i)->device), s.allocated,
                       s.live_blocks, s.peak);
    }
    return memlord_i_out_end(&o, cap);
}

/* -- blocks and leaks -- */

MEMLORD_I_API memlord_result memlord_blocks_each(memlord *lord, memlord_device sel,
                                                 uint64_t min_bytes, memlord_block_fn fn,
                                                 void *user) {
    memlord_i_query q = memlord_i_query_of(sel);
    if (!lord) return MEMLORD_OK;
    if (!fn) return MEMLORD_E_INVALID;
    if (!memlord_i_selector_valid(sel)) return MEMLORD_E_DEVICE;
    q.min_bytes = min_bytes;
    return memlord_i_each(lord, &q, fn, user, NULL);
}

MEMLORD_I_API size_t memlord_blocks_top(memlord *lord, memlord_device sel, memlord_block_info *out,
                                        size_t k) {
    memlord_i_query q = memlord_i_query_of(sel);
    if (!lord || !out || !memlord_i_selector_valid(sel)) return 0;
    return memlord_i_top(lord, &q, out, k);
}

MEMLORD_I_API memlord_result memlord_block_find(memlord *lord, memlord_device device,
                                                uint64_t storage, memlord_block_info *out) {
    memlord_i_thread *t;
    memlord_i_spot spot;
    int found;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!memlord_i_type_valid(device)) return MEMLORD_E_DEVICE;
    if (!memlord_i_key_valid(storage)) return MEMLORD_E_UNKNOWN;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_E_UNKNOWN;
    (void)memlord_i_spot_find(lord, t, (uint32_t)device.type, storage, 0, &spot);
    found = spot.entry != NULL;
    if (found) memlord_i_info(lord, spot.entry, out);
    memlord_i_spot_leave(t, &spot);
    memlord_i_thread_put(lord, t);
    if (!found) return MEMLORD_E_UNKNOWN;
    memlord_i_info_finish(lord, out);
    return MEMLORD_OK;
}

MEMLORD_I_API memlord_result memlord_block_containing(memlord *lord, memlord_device device,
                                                      uint64_t address, memlord_block_info *out) {
    memlord_i_query q = memlord_i_query_of(device);
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!memlord_i_type_valid(device)) return MEMLORD_E_DEVICE;
    q.address = address;
    q.containing = 1;
    return memlord_i_top(lord, &q, out, 1) ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MEMLORD_I_API memlord_result memlord_block_describe(memlord *lord, memlord_device device,
                                                    uint64_t storage, const memlord_meta *meta) {
    memlord_i_thread *t;
    memlord_i_spot spot;
    memlord_i_side *unused;
    memlord_meta kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!meta || meta->rank > 8 || !memlord_i_key_valid(storage)) return MEMLORD_E_INVALID;
    if (!memlord_i_type_valid(device)) return MEMLORD_E_DEVICE;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    r = memlord_i_meta_copy(lord, meta, &kept);
    if (r == MEMLORD_OK && kept.tag)
        r = memlord_i_retag(lord, t, (uint32_t)device.type, storage, kept.tag);
    if (r == MEMLORD_OK)
        r = memlord_i_spot_side(lord, t, (uint32_t)device.type, storage, &spot, &unused);
    if (r == MEMLORD_OK) {
        memlord_i_side_of(spot.entry->word2)->meta = kept;
        memlord_i_spot_leave(t, &spot);
        memlord_i_free(lord, unused, sizeof *unused);
    }
    memlord_i_thread_put(lord, t);
    return memlord_i_record_end(lord, r);
}

MEMLORD_I_API memlord_result memlord_block_retag(memlord *lord, memlord_device device,
                                                 uint64_t storage, const char *tag) {
    memlord_i_thread *t;
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!memlord_i_key_valid(storage)) return MEMLORD_E_INVALID;
    if (!memlord_i_type_valid(device)) return MEMLORD_E_DEVICE;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    r = memlord_i_name(lord, tag && *tag ? tag : NULL, &kept);
    if (r == MEMLORD_OK) r = memlord_i_retag(lord, t, (uint32_t)device.type, storage, kept);
    memlord_i_thread_put(lord, t);
    return memlord_i_record_end(lord, r);
}

MEMLORD_I_API uint64_t memlord_mark(memlord *lord) {
    uint64_t born;
    if (!lord) return 0;
    (void)memlord_i_record_end(lord, MEMLORD_OK); /* as in memlord_reset */
    born = memlord_i_u64_load(&lord->born);
    while (MEMLORD_I_BORN(born) < MEMLORD_I_MARK_MAX)
        if (memlord_i_u64_cas(&lord->born, &born, born + ((uint64_t)1 << 37)))
            return MEMLORD_I_BORN(born) + 1;
    return MEMLORD_I_MARK_MAX;
}

MEMLORD_I_API size_t memlord_leaks(memlord *lord, uint64_t since_mark, memlord_block_fn fn,
                                   void *user) {
    memlord_i_query q = memlord_i_query_of(memlord_device_all());
    size_t seen = 0;
    if (!lord) return 0;
    q.min_born = since_mark;
    if (fn)
        (void)memlord_i_each(lord, &q, fn, user, &seen);
    else
        memlord_i_visit(lord, &q, memlord_i_visit_count, &seen);
    return seen;
}

/* -- parts -- */

MEMLORD_I_API memlord_result memlord_part_add(memlord *lord, memlord_device device,
                                              uint64_t storage, uint64_t offset, uint64_t bytes,
                                              const memlord_meta *meta) {
    memlord_i_thread *t;
    memlord_i_part part;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    memset(&part, 0, sizeof part);
    if (!bytes || bytes > MEMLORD_I_BYTES_MAX || offset > MEMLORD_I_BYTES_MAX ||
        (meta && meta->rank > 8) || !memlord_i_key_valid(storage))
        return MEMLORD_E_INVALID;
    if (!memlord_i_type_valid(device)) return MEMLORD_E_DEVICE;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    part.offset = offset;
    part.bytes = bytes;
    r = meta ? memlord_i_meta_copy(lord, meta, &part.meta) : MEMLORD_OK;
    if (r == MEMLORD_OK)
        r = memlord_i_part_add(lord, t, (uint32_t)device.type, storage, &part);
    memlord_i_thread_put(lord, t);
    return memlord_i_record_end(lord, r);
}

MEMLORD_I_API memlord_result memlord_part_remove(memlord *lord, memlord_device device,
                                                 uint64_t storage, uint64_t offset) {
    memlord_i_thread *t;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!memlord_i_key_valid(storage)) return MEMLORD_E_INVALID;
    if (!memlord_i_type_valid(device)) return MEMLORD_E_DEVICE;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    r = memlord_i_part_remove(lord, t, (uint32_t)device.type, storage, offset);
    memlord_i_thread_put(lord, t);
    return memlord_i_record_end(lord, r);
}

MEMLORD_I_API size_t memlord_parts_each(memlord *lord, memlord_device device, uint64_t storage,
                                        memlord_part_fn fn, void *user) {
    memlord_part_info some[8];
    uint64_t count, bytes, offset = 0;
    size_t i, n, seen = 0;
    if (!lord || !fn || !memlord_i_key_valid(storage) || !memlord_i_type_valid(device)) return 0;
    do {
        n = memlord_i_parts_copy(lord, (uint32_t)device.type, storage, offset, some, 8, &count,
                                 &bytes);
        for (i = 0; i < n; i++) {
            seen++;
            if (fn(user, &some[i])) return seen;
            offset = some[i].offset + 1;
        }
    } while (n == 8);
    return seen;
}

/* -- tags -- */

static MEMLORD_I_COLD void memlord_i_drop_tag(memlord *lord) {
    (void)memlord_i_u64_add(&lord->lost_tags, 1);
    memlord_i_drop_say(lord, &lord->said_tag,
                       "[drop] no room for a tag: raise MEMLORD_MAX_STRINGS, or give the ledger's "
                       "allocator more; dropped_sites has how many");
}

/* The ledger's copy of a tag, for the thread to remember under the host's pointer. */
static MEMLORD_I_COLD memlord_result memlord_i_tag_kept(memlord *lord, memlord_i_thread *t,
                                                        const char *tag, const char **kept) {
    const uint32_t salt = memlord_i_memo_salt(MEMLORD_I_MEMO_NAME, 0);
    memlord_result r = memlord_i_name(lord, tag, kept);
    if (r == MEMLORD_OK) memlord_i_memo_set(lord, t, tag, salt, (void *)(uintptr_t)*kept, 0);
    return r;
}

MEMLORD_API memlord_result memlord_tag_begin(memlord *lord, const char *tag) {
    memlord_i_thread *t;
    const char *kept = NULL;
    const memlord_i_memo *memo;
    const uint32_t salt = memlord_i_memo_salt(MEMLORD_I_MEMO_NAME, 0);
    memlord_result r = MEMLORD_OK;
    if (!lord) return MEMLORD_OK;
    if (!tag || !*tag) return MEMLORD_E_INVALID;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    memo = memlord_i_memo_find(t, tag, salt);
    if (memo && !strcmp((const char *)memo->value, tag)) kept = (const char *)memo->value;
    if (t == lord->orphan || t->tag_depth == MEMLORD_I_TAG_DEPTH)
        /* the record of those that have none has no stack either */
        r = t == lord->orphan ? MEMLORD_E_NOMEM : MEMLORD_E_STATE;
    else if (!kept)
        r = memlord_i_tag_kept(lord, t, tag, &kept);
    if (r == MEMLORD_OK) {
        t->tags[t->tag_depth++] = t->tag;
        t->tag = kept;
        memlord_i_special(t, MEMLORD_I_SPECIAL_TAG, 1);
    }
    memlord_i_thread_put(lord, t);
    if (r == MEMLORD_E_NOMEM) memlord_i_drop_tag(lord);
    return r;
}

MEMLORD_API memlord_result memlord_tag_end(memlord *lord) {
    memlord_i_thread *t;
    memlord_result r = MEMLORD_E_STATE;
    if (!lord) return MEMLORD_OK;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    if (t->tag_depth) {
        t->tag = t->tags[--t->tag_depth];
        if (!t->tag) memlord_i_special(t, MEMLORD_I_SPECIAL_TAG, 0);
        r = MEMLORD_OK;
    }
    memlord_i_thread_put(lord, t);
    return r;
}

MEMLORD_I_API memlord_result memlord_tag_get(memlord *lord, memlord_device sel, const char *tag,
                                             memlord_tag_stat *out) {
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!memlord_i_selector_valid(sel)) return MEMLORD_E_DEVICE;
    if (memlord_i_tag_sum(lord, sel, tag, out)) return MEMLORD_OK;
    memset(out, 0, sizeof *out);
    return MEMLORD_E_UNKNOWN;
}

MEMLORD_I_API memlord_result memlord_expect(memlord *lord, memlord_device device, const char *tag,
                                            uint64_t bytes) {
    uint32_t slot, number;
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!tag || !*tag || bytes > MEMLORD_I_BYTES_MAX) return MEMLORD_E_INVALID;
    r = memlord_i_slot(lord, device, &slot);
    if (r) return r;
    r = memlord_i_name(lord, tag, &kept);
    if (r) return r;
    r = memlord_i_row_make(lord, MEMLORD_I_TAG, kept, slot, &number);
    if (r) return r;
    memlord_i_u64_store(&memlord_i_row_at(lord, MEMLORD_I_TAG, number)->expected, bytes);
    return memlord_i_record_end(lord, MEMLORD_OK);
}

/* -- capacity -- */

MEMLORD_I_API memlord_result memlord_capacity_source(memlord *lord, int type,
                                                     memlord_capacity_fn fn, void *user) {
    memlord_i_source source;
    if (!lord) return MEMLORD_OK;
    if ((unsigned)type >= (unsigned)MEMLORD_I_TYPES) return MEMLORD_E_DEVICE;
    source.fn = fn;
    source.user = user;
    if (!fn && type == MEMLORD_DEVICE_CPU) {
        source.fn = memlord_i_cpu_source;
        source.user = lord;
    }
    memlord_i_source_set(lord, type, source);
    memlord_i_pollers_think(lord);
    return MEMLORD_OK;
}

MEMLORD_API memlord_result memlord_capacity_get(memlord *lord, memlord_device device,
                                                memlord_capacity *out) {
    memlord_i_place *place;
    uint64_t now, at;
    memlord_result r;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    r = memlord_i_place_of(lord, device, 0, &place);
    if (r) return r == MEMLORD_E_UNKNOWN ? MEMLORD_OK : r;
    now = memlord_i_clock(lord);
    memlord_i_lock_take(&place->lock);
    *out = place->sample;
    at = place->sampled;
    memlord_i_lock_drop(&place->lock);
    if (out->known) out->age_ns = now > at ? now - at : 0;
    return MEMLORD_OK;
}

/* The place of a device, made known only if somebody can say how full it is; else E_UNKNOWN. */
static memlord_result memlord_i_place_asked(memlord *lord, memlord_device d,
                                            memlord_i_place **place) {
    int make = memlord_i_device_valid(d) && memlord_i_source_of(lord, d.type).fn;
    return memlord_i_place_of(lord, d, make, place);
}

MEMLORD_I_API memlord_result memlord_capacity_sample(memlord *lord, memlord_device device) {
    memlord_i_place *place;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (memlord_i_self.busy) return MEMLORD_E_STATE;
    r = memlord_i_place_asked(lord, device, &place);
    if (r == MEMLORD_E_UNKNOWN) return MEMLORD_E_UNSUPPORTED;
    return r ? r : memlord_i_sample(lord, place);
}

MEMLORD_I_API memlord_result memlord_device_share(memlord *lord, memlord_device device,
                                                  memlord_device physical) {
    memlord_i_place *to;
    memlord_i_device *d;
    uint32_t slot, other, i;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!memlord_i_device_valid(physical)) return MEMLORD_E_DEVICE;
    r = memlord_i_slot(lord, device, &slot);
    if (r) return r;
    to = &lord->host;
    d = memlord_i_device_at(lord, slot);
    if (!memlord_i_type_host[physical.type]) {
        r = memlord_i_slot(lord, physical, &other);
        if (r) return r;
        to = &memlord_i_device_at(lord, other)->own;
        if (other != slot && memlord_i_place_at(lord, other) != to) return MEMLORD_E_STATE;
    }
    if (memlord_i_type_host[device.type]) return to == &lord->host ? MEMLORD_OK : MEMLORD_E_STATE;
    for (i = 1; i < memlord_i_rows(lord, MEMLORD_I_DEVICE); i++)
        if (i != slot && to != &d->own && memlord_i_place_at(lord, i) == &d->own)
            return MEMLORD_E_STATE;
    r = memlord_i_place_move(lord, slot, to);
    if (r) return r;
    memlord_i_place_review(lord, NULL);
    return MEMLORD_OK;
}

MEMLORD_I_API memlord_result memlord_poller_start(memlord *lord, uint32_t interval_ms) {
    uint32_t i;
    if (!lord) return MEMLORD_OK;
    if (interval_ms && interval_ms < MEMLORD_I_POLL_LEAST) return MEMLORD_E_INVALID;
    if (!lord->poll_fixed) memlord_i_u32_store(&lord->poll_ms, interval_ms ? interval_ms : 200);
    if (!memlord_i_polls(lord)) return MEMLORD_E_UNSUPPORTED;
    memlord_i_u32_store(&lord->polling, MEMLORD_I_POLLING_ALL);
    for (i = 0; i < memlord_i_rows(lord, MEMLORD_I_DEVICE); i++) { /* none before: tried again */
        uint32_t failed = MEMLORD_I_HELPER_FAILED;
        (void)memlord_i_u32_cas(&memlord_i_place_own(lord, i)->poller.state, &failed,
                                MEMLORD_I_HELPER_NONE);
    }
    return memlord_i_pollers_begin(lord);
}
MEMLORD_I_API memlord_result memlord_poller_stop(memlord *lord) {
    if (!lord) return MEMLORD_OK;
    if (memlord_i_self.helps) return MEMLORD_E_STATE;
    memlord_i_pollers_end(lord);
    return MEMLORD_OK;
}

/* -- limits -- */

static MEMLORD_I_COLD memlord_result memlord_i_limit_set(memlord *lord, memlord_i_place *place,
                                                         uint64_t bytes, double fraction) {
    memlord_i_lock_take(&place->lock);
    place->fraction = fraction;
    place->limit = bytes;
    memlord_i_fraction_apply(place);
    memlord_i_lock_drop(&place->lock);
    memlord_i_place_review(lord, place);
    return MEMLORD_OK;
}

MEMLORD_I_API memlord_result memlord_limit_set(memlord *lord, memlord_device device,
                                               uint64_t bytes) {
    memlord_i_place *place;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = memlord_i_place_of(lord, device, 1, &place);
    return r ? r : memlord_i_limit_set(lord, place, bytes, 0);
}

MEMLORD_I_API memlord_result memlord_limit_fraction(memlord *lord, memlord_device device,
                                                    double fraction) {
    memlord_i_place *place;
    memlord_capacity c;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!(fraction > 0 && fraction <= 1)) return MEMLORD_E_INVALID;
    r = memlord_i_place_asked(lord, device, &place);
    if (r) return r;
    (void)memlord_capacity_get(lord, device, &c);
    if (!c.known && memlord_i_sample(lord, place)) return MEMLORD_E_UNKNOWN;
    return memlord_i_limit_set(lord, place, 0, fraction);
}

/* Bytes left where a device is; 0: not known. */
static MEMLORD_I_COLD int memlord_i_left(memlord *lord, memlord_device device, int64_t *left) {
    memlord_i_place *place;
    int known;
    *left = INT64_MAX;
    if (memlord_i_place_of(lord, device, 0, &place)) return 0;
    memlord_i_lock_take(&place->lock);
    known = memlord_i_place_left(lord, place, left);
    memlord_i_lock_drop(&place->lock);
    return known;
}

MEMLORD_API int64_t memlord_headroom(memlord *lord, memlord_device device) {
    int64_t left = INT64_MAX;
    if (lord) (void)memlord_i_left(lord, device, &left);
    return left;
}

MEMLORD_API int memlord_would_fit(memlord *lord, memlord_device device, uint64_t bytes) {
    int64_t left;
    if (!lord || !memlord_i_left(lord, device, &left)) return -1;
    return left >= 0 && bytes <= (uint64_t)left;
}

/* Adds up a plan's blocks on the place of the first; those before have been. 0: they have. */
static MEMLORD_I_COLD int memlord_i_plan_sum(memlord *lord, const memlord_block *blocks, size_t n,
                                             size_t first, uint64_t *sum) {
    memlord_i_place *place, *other;
    size_t i;
    (void)memlord_i_place_of(lord, blocks[first].device, 0, &place);
    for (*sum = 0, i = 0; i < n; i++) {
        (void)memlord_i_place_of(lord, blocks[i].device, 0, &other);
        if (other != place || (!place && (blocks[i].device.type != blocks[first].device.type ||
                                          blocks[i].device.index != blocks[first].device.index)))
            continue;
        if (i < first) return 0;
        *sum = memlord_i_add(*sum, blocks[i].bytes);
    }
    return 1;
}

MEMLORD_I_API int memlord_plan_fit(memlord *lord, const memlord_block *blocks, size_t n,
                                   int64_t *short_by) {
    int64_t worst = INT64_MIN;
    int known = 1;
    size_t i;
    if (short_by) *short_by = 0;
    if (!lord || (n && !blocks)) return -1;
    for (i = 0; i < n; i++) {
        uint64_t sum;
        int64_t left;
        if (!memlord_i_plan_sum(lord, blocks, n, i, &sum)) continue;
        if (!memlord_i_left(lord, blocks[i].device, &left)) {
            known = 0;
            continue;
        }
        if (sum > (uint64_t)1 << 62) sum = (uint64_t)1 << 62;
        if (left < -((int64_t)1 << 62)) left = -((int64_t)1 << 62);
        if ((int64_t)sum - left > worst) worst = (int64_t)sum - left;
    }
    if (worst <= 0 && !known) return -1;
    if (short_by && worst != INT64_MIN) *short_by = worst;
    return worst <= 0;
}

MEMLORD_API memlord_result memlord_reserve(memlord *lord, memlord_device device, uint64_t bytes,
                                           memlord_ticket *out) {
    memlord_i_thread *t;
    memlord_i_place *place;
    memlord_result r;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    *out = 0;
    if (!lord) return MEMLORD_OK;
    if (bytes > MEMLORD_I_BYTES_MAX) return MEMLORD_E_INVALID;
    r = memlord_i_place_of(lord, device, 1, &place);
    if (r) return r;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_E_STATE;
    r = memlord_i_reserve(lord, place, bytes, out);
    if (r == MEMLORD_OK) memlord_i_ticket_note(lord, t, *out);
    memlord_i_thread_put(lord, t);
    if (r == MEMLORD_E_LIMIT) memlord_i_log_explain(lord, "[limit] ", device, bytes);
    return memlord_i_record_end(lord, r);
}

static memlord_result memlord_i_reserve_end(memlord *lord, memlord_ticket ticket) {
    memlord_i_thread *t;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_E_STATE;
    r = memlord_i_unreserve(lord, t, ticket);
    memlord_i_thread_put(lord, t);
    return r;
}
MEMLORD_API memlord_result memlord_reserve_commit(memlord *lord, memlord_ticket ticket) {
    return memlord_i_reserve_end(lord, ticket);
}
MEMLORD_I_API memlord_result memlord_reserve_cancel(memlord *lord, memlord_ticket ticket) {
    return memlord_i_reserve_end(lord, ticket);
}

MEMLORD_I_API memlord_result memlord_account_open(memlord *lord, memlord_device device,
                                                  const char *name, uint64_t limit,
                                                  memlord_account *out) {
    memlord_result r;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    *out = 0;
    if (!lord) return MEMLORD_OK;
    if (!memlord_i_device_valid(device)) return MEMLORD_E_DEVICE;
    if (memlord_i_self.busy) return MEMLORD_E_STATE;
    do {
        memlord_i_cold_enter();
        r = memlord_i_account_open_locked(lord, device, name, limit, out);
    } while (memlord_i_cold_leave(lord, &r));
    return r;
}

MEMLORD_I_API memlord_result memlord_account_charge(memlord *lord, memlord_account account,
                                                    int64_t bytes) {
    if (!lord) return MEMLORD_OK;
    return memlord_i_record_end(lord, memlord_i_account_charge(lord, account, bytes));
}

MEMLORD_I_API memlord_result memlord_account_get(memlord *lord, memlord_account account,
                                                 memlord_account_stat *out) {
    memlord_i_balance *b;
    int open;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    memlord_i_lock_take(&memlord_i_process.cold);
    b = memlord_i_account_at(lord, account);
    open = b && memlord_i_account_read_locked(b, out);
    memlord_i_lock_drop(&memlord_i_process.cold);
    return open ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MEMLORD_I_API memlord_result memlord_account_close(memlord *lord, memlord_account account) {
    memlord_i_balance *b;
    if (!lord) return MEMLORD_OK;
    memlord_i_lock_take(&memlord_i_process.cold);
    b = (account & 1) ? memlord_i_account_at(lord, account) : NULL;
    if (b) {
        uint32_t turn = memlord_i_u32_load(&b->turn) + 1;
        memlord_i_u64_store(&b->word, MEMLORD_I_BALANCE_TURN(turn));
        memlord_i_u32_store(&b->turn, turn);
        b->next = lord->spare_balance;
        lord->spare_balance = (uint32_t)(account >> 32);
    }
    memlord_i_lock_drop(&memlord_i_process.cold);
    return b ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MEMLORD_I_API size_t memlord_explain(memlord *lord, memlord_device device, uint64_t wanted,
                                     char *buf, size_t cap) {
    if (lord) return memlord_i_explain(lord, device, wanted, buf, cap);
    if (buf && cap) buf[0] = 0;
    return 0;
}

/* -- bands -- */

MEMLORD_I_API memlord_result memlord_strategy_check(const memlord_band *bands, size_t n,
                                                    size_t *bad) {
    size_t i = 0;
    if (n && !bands) return MEMLORD_E_INVALID;
    while (i < n && !memlord_i_band_fault(&bands[i])) i++;
    if (i < n && bad) *bad = i;
    return i < n ? MEMLORD_E_INVALID : MEMLORD_OK;
}

MEMLORD_I_API const memlord_band *memlord_strategy_default(size_t *n) {
    if (n) *n = MEMLORD_I_DEFAULT_BANDS;
    return memlord_i_default_bands;
}

static MEMLORD_I_COLD memlord_i_strategy *memlord_i_strategy_new(memlord *lord,
                                                                 const memlord_band *bands,
                                                                 size_t n) {
    memlord_i_strategy *s = NULL;
    if (n < SIZE_MAX / 2 / sizeof *bands)
        s = (memlord_i_strategy *)memlord_i_alloc(lord, sizeof *s + n * sizeof *bands);
    if (!s) return NULL;
    s->n = n;
    s->bands = (const memlord_band *)memcpy(s + 1, bands, n * sizeof *bands);
    return s;
}

MEMLORD_I_API memlord_result memlord_strategy_set(memlord *lord, const memlord_band *bands,
                                                  size_t n) {
    memlord_i_strategy *fresh = NULL;
    size_t bad = 0;
    if (!lord) return MEMLORD_OK;
    if (memlord_strategy_check(bands, n, &bad)) {
        if (bands)
            memlord_i_logf(lord, MEMLORD_LOG_ERROR, "[strategy] refused, band %ju%s",
                           (uint64_t)bad, memlord_i_band_fault(&bands[bad]));
        return MEMLORD_E_INVALID;
    }
    if (n) {
        fresh = memlord_i_strategy_new(lord, bands, n);
        if (!fresh) return MEMLORD_E_NOMEM;
        memlord_i_bands_warn(lord, bands, n);
    }
    memlord_i_strategy_swap(lord, fresh);
    memlord_i_rules_changed(lord);
    return MEMLORD_OK;
}

/* -- collection -- */

static MEMLORD_I_COLD memlord_result memlord_i_callback_add(memlord *lord, int type,
                                                            memlord_gc_fn fn, void *user,
                                                            int quiet) {
    memlord_i_callback *c, **at;
    if (!lord) return MEMLORD_OK;
    if (!fn) return MEMLORD_E_INVALID;
    if ((unsigned)type >= (unsigned)MEMLORD_I_TYPES) return MEMLORD_E_DEVICE;
    c = (memlord_i_callback *)memlord_i_alloc(lord, sizeof *c);
    if (!c) return MEMLORD_E_NOMEM;
    c->fn = fn;
    c->user = user;
    c->type = type;
    c->quiet = quiet;
    memlord_i_lock_take(&lord->callbacks_lock);
    c->serial = memlord_i_u64_add(&lord->serial, 1) + 1;
    for (at = &lord->callbacks; *at;) at = &(*at)->next;
    *at = c;
    memlord_i_lock_drop(&lord->callbacks_lock);
    memlord_i_rules_changed(lord);
    return MEMLORD_OK;
}

MEMLORD_I_API memlord_result memlord_gc_callback(memlord *lord, int type, memlord_gc_fn fn,
                                                 void *user) {
    return memlord_i_callback_add(lord, type, fn, user, 0);
}

MEMLORD_I_API memlord_result memlord_gc_callback_quiet(memlord *lord, int type, memlord_gc_fn fn,
                                                       void *user) {
    return memlord_i_callback_add(lord, type, fn, user, 1);
}

MEMLORD_I_API memlord_result memlord_gc_callback_remove(memlord *lord, int type, memlord_gc_fn fn,
                                                        void *user) {
    memlord_i_callback *c, **at;
    unsigned spins = 0;
    int found;
    if (!lord) return MEMLORD_OK;
    if (!fn) return MEMLORD_E_INVALID;
    if ((unsigned)type >= (unsigned)MEMLORD_I_TYPES) return MEMLORD_E_DEVICE;
    memlord_i_lock_take(&lord->callbacks_lock);
    for (at = &lord->callbacks; *at; at = &(*at)->next)
        if ((*at)->type == type && (*at)->fn == fn && (*at)->user == user) break;
    c = *at;
    found = c != NULL;
    if (c) {
        *at = c->next;
        while (memlord_i_callback_runs(lord, c, &memlord_i_self)) {
            memlord_i_lock_drop(&lord->callbacks_lock);
            memlord_i_spin(&spins);
            memlord_i_lock_take(&lord->callbacks_lock);
        }
        if (memlord_i_callback_runs(lord, c, NULL)) { /* by us: freed when it returns */
            c->orphan = 1;
            c = NULL;
        }
    }
    memlord_i_lock_drop(&lord->callbacks_lock);
    if (!found) return MEMLORD_E_UNKNOWN;
    memlord_i_free(lord, c, sizeof *c);
    memlord_i_rules_changed(lord);
    return MEMLORD_OK;
}

MEMLORD_I_API memlord_result memlord_gc_run(memlord *lord, memlord_device device, int reason,
                                            uint64_t *reclaimed) {
    uint64_t ignored;
    uint32_t slot;
    memlord_result r;
    if (reclaimed) *reclaimed = 0;
    if (!lord) return MEMLORD_OK;
    if ((unsigned)reason >= MEMLORD_REASON_COUNT) return MEMLORD_E_INVALID;
    if (memlord_i_self.busy) return MEMLORD_E_STATE;
    if (memlord_i_device_valid(device) && !memlord_i_gc_registered(lord, device.type))
        return MEMLORD_E_UNKNOWN; /* and makes no device known */
    r = memlord_i_slot(lord, device, &slot);
    return r ? r : memlord_i_collect(lord, slot, reason, 0, reclaimed ? reclaimed : &ignored);
}

MEMLORD_I_API memlord_result memlord_gc_poll(memlord *lord, memlord_device sel) {
    if (!lord) return MEMLORD_OK;
    if (!memlord_i_selector_valid(sel)) return MEMLORD_E_DEVICE;
    if (!memlord_i_self.busy) memlord_i_serve(lord, sel);
    return MEMLORD_OK;
}

/* -- out of memory -- */

MEMLORD_I_API memlord_result memlord_retry_check(const memlord_retry *policy) {
    if (!policy) return MEMLORD_OK;
    return policy->max_ms >= policy->initial_ms && policy->multiplier >= 1 &&
                   policy->multiplier <= 1.7976931348623157e308 /* not infinite */
               ? MEMLORD_OK
               : MEMLORD_E_INVALID;
}

MEMLORD_I_API uint32_t memlord_retry_backoff(const memlord_retry *policy, uint32_t attempt) {
    double ms, power;
    if (!policy) policy = &memlord_i_default_retry;
    if (memlord_retry_check(policy) || !policy->initial_ms)
        return policy->initial_ms ? policy->max_ms : 0;
    ms = policy->initial_ms;
    for (power = policy->multiplier; attempt && ms < policy->max_ms; attempt >>= 1) {
        if (attempt & 1) ms *= power;
        power *= power; /* at worst infinite, and so is ms */
    }
    return ms < policy->max_ms ? (uint32_t)ms : policy->max_ms;
}

MEMLORD_I_API memlord_result memlord_alloc_retry(memlord *lord, memlord_device device,
                                                 uint64_t bytes, memlord_try_fn fn, void *user,
                                                 const memlord_retry *policy, uint64_t *storage,
                                                 const memlord_site *site) {
    memlord_i_request q;
    memlord_result r;
    if (storage) *storage = 0;
    if (!storage || !fn) return MEMLORD_E_INVALID;
    if (!lord || memlord_i_self.busy) {
        if (fn(user, bytes, storage) == 0) return MEMLORD_OK;
        *storage = 0;
        return MEMLORD_E_OOM;
    }
    if (bytes > MEMLORD_I_BYTES_MAX || memlord_retry_check(policy)) return MEMLORD_E_INVALID;
    memset(&q, 0, sizeof q);
    r = memlord_i_slot(lord, device, &q.slot);
    if (r) return r;
    q.lord = lord;
    q.place = memlord_i_place_at(lord, q.slot);
    q.bytes = bytes;
    q.site = site;
    q.policy = policy ? policy : &lord->retry;
    r = memlord_i_request_hold(&q);
    if (r == MEMLORD_OK) {
        r = memlord_i_request_try(&q, fn, user, storage);
        if (r == MEMLORD_OK) memlord_i_request_record(&q, *storage);
        (void)memlord_i_reserve_end(lord, q.ticket);
    }
    if (r == MEMLORD_E_OOM || r == MEMLORD_E_LIMIT)
        memlord_i_request_failed(&q, r == MEMLORD_E_OOM);
    return r;
}

/* -- pools -- */

/* Adds to what a pool holds, or (`set`) sets it, and keeps its peak. */
static MEMLORD_I_COLD memlord_result memlord_i_reserved(memlord *lord, memlord_device device,
                                                        uint64_t set, int64_t delta,
                                                        uint32_t *slot) {
    const uint64_t most = (uint64_t)1 << 62;
    memlord_i_u64 *count, had;
    uint64_t now;
    memlord_result r;
    if (memlord_i_device_valid(device) &&
        ((set != UINT64_MAX && set > most) || (delta < 0 && !memlord_i_slot_known(lord, device))))
        return MEMLORD_E_INVALID;
    r = memlord_i_slot(lord, device, slot);
    if (r) return r;
    count = memlord_i_device_at(lord, *slot)->count;
    had.v = memlord_i_u64_load(&count[MEMLORD_I_STAT_reserved]);
    do {
        now = set != UINT64_MAX ? set : had.v + (uint64_t)delta;
        if (set == UINT64_MAX && (delta < 0 ? had.v < (uint64_t)0 - (uint64_t)delta : now > most))
            return MEMLORD_E_INVALID;
    } while (!memlord_i_u64_cas(&count[MEMLORD_I_STAT_reserved], &had.v, now));
    memlord_i_u64_raise(&count[MEMLORD_I_STAT_reserved_peak], (int64_t)now);
    return MEMLORD_OK;
}

MEMLORD_I_API memlord_result memlord_reserved_set(memlord *lord, memlord_device device,
                                                  uint64_t reserved, uint64_t largest_free) {
    uint32_t slot;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (reserved == UINT64_MAX) return MEMLORD_E_INVALID;
    r = memlord_i_reserved(lord, device, reserved, 0, &slot);
    if (r) return r;
    /* kept one higher: 0, as at first, is not known */
    memlord_i_u64_store(&memlord_i_device_at(lord, slot)->count[MEMLORD_I_STAT_largest_free],
                        largest_free + 1);
    return memlord_i_record_end(lord, MEMLORD_OK);
}
MEMLORD_I_API memlord_result memlord_reserved_add(memlord *lord, memlord_device device,
                                                  int64_t delta) {
    uint32_t slot;
    return lord ? memlord_i_reserved(lord, device, UINT64_MAX, delta, &slot) : MEMLORD_OK;
}

static MEMLORD_I_COLD memlord_result memlord_i_cache_count(memlord *lord, memlord_device device,
                                                           int stat) {
    uint32_t slot;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = memlord_i_slot(lord, device, &slot);
    if (r == MEMLORD_OK) memlord_i_stat_add(lord, slot, stat, 1);
    return r;
}
MEMLORD_API memlord_result memlord_cache_hit(memlord *lord, memlord_device device) {
    return memlord_i_cache_count(lord, device, MEMLORD_I_STAT_cache_hits);
}
MEMLORD_API memlord_result memlord_cache_miss(memlord *lord, memlord_device device) {
    return memlord_i_cache_count(lord, device, MEMLORD_I_STAT_cache_misses);
}

static double memlord_i_unused(const memlord_stats *s) {
    return s->reserved > s->allocated ? (double)(s->reserved - s->allocated) : 0;
}
MEMLORD_I_API double memlord_cached_ratio(const memlord_stats *stats) {
    return stats && stats->reserved ? memlord_i_unused(stats) / (double)stats->reserved : 0;
}
MEMLORD_I_API double memlord_fragmentation(const memlord_stats *stats) {
    double unused, f;
    if (!stats || stats->largest_free == UINT64_MAX) return memlord_i_nan();
    unused = memlord_i_unused(stats);
    f = unused > 0 ? 1 - (double)stats->largest_free / unused : 0;
    return f > 0 ? f : 0;
}

/* Whole multiples on both sides: a quotient has other digits where registers are wider than a
   double (x87), and would miss the threshold it is equal to. */
static int memlord_i_pressure(double used, double total) {
    return used * 20 >= total * 19 ? MEMLORD_PRESSURE_CRITICAL
           : used * 5 >= total * 4 ? MEMLORD_PRESSURE_WARNING
                                   : MEMLORD_PRESSURE_NORMAL;
}

MEMLORD_I_API int memlord_pressure_level(memlord *lord, memlord_device device) {
    memlord_i_place *place;
    int level = MEMLORD_PRESSURE_UNKNOWN, limited;
    if (!lord || memlord_i_place_of(lord, device, 0, &place)) return MEMLORD_PRESSURE_UNKNOWN;
    memlord_i_lock_take(&place->lock);
    if (place->sample.known)
        level = memlord_i_pressure((double)place->sample.used, (double)place->sample.total);
    if (place->limit) {
        limited = memlord_i_pressure(
            (double)memlord_i_place_live(lord, place) + (double)place->held, (double)place->limit);
        if (limited > level) level = limited;
    }
    if (place->failing) level = MEMLORD_PRESSURE_EMERGENCY;
    memlord_i_lock_drop(&place->lock);
    return level;
}

/* -- scopes -- */

static memlord_result memlord_i_scope_enter_as(memlord *lord, const void *given, const char *name,
                                               const memlord_scope_site *place) {
    memlord_i_thread *t = memlord_i_thread_get(lord);
    memlord_result r;
    if (!t) return MEMLORD_OK;
    r = memlord_i_scope_open(lord, t, given, name, place);
    memlord_i_thread_put(lord, t);
    return memlord_i_record_end(lord, r);
}
MEMLORD_API memlord_result memlord_scope_begin(memlord *lord, const char *name) {
    if (!lord) return MEMLORD_OK;
    if (!name || !*name) return MEMLORD_E_INVALID;
    return memlord_i_scope_enter_as(lord, name, name, NULL);
}
MEMLORD_API memlord_result memlord_scope_enter(memlord *lord, const memlord_scope_site *place) {
    if (!lord) return MEMLORD_OK;
    if (!place || !place->name || !*place->name) return MEMLORD_E_INVALID;
    return memlord_i_scope_enter_as(lord, place, NULL, place);
}
MEMLORD_API memlord_result memlord_scope_end(memlord *lord) {
    memlord_i_thread *t;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    r = memlord_i_scope_close(lord, t);
    memlord_i_thread_put(lord, t);
    return memlord_i_record_end(lord, r);
}

MEMLORD_I_API memlord_result memlord_scope_shapes(memlord *lord, const char *shapes) {
    memlord_i_thread *t;
    const char *kept = NULL;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    r = t->scope ? memlord_i_name_spare(lord, shapes, &kept) : MEMLORD_E_STATE;
    if (r == MEMLORD_OK) t->nest->frame[t->nest->depth - 1].shapes = kept;
    memlord_i_thread_put(lord, t);
    return r;
}

MEMLORD_I_API memlord_result memlord_scope_export(memlord *lord, memlord_scope_token *out) {
    memlord_i_thread *t;
    memlord_result r;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    r = t->scope ? MEMLORD_OK : MEMLORD_E_STATE;
    if (r == MEMLORD_OK) memlord_i_scope_export(lord, t, out);
    memlord_i_thread_put(lord, t);
    return r;
}
static memlord_result memlord_i_scope_hand(memlord *lord, const memlord_scope_token *token,
                                           memlord_result (*fn)(memlord *, memlord_i_thread *,
                                                                const memlord_scope_token *)) {
    memlord_i_thread *t;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!token) return MEMLORD_E_INVALID;
    t = memlord_i_thread_get(lord);
    if (!t) return MEMLORD_OK;
    r = fn(lord, t, token);
    memlord_i_thread_put(lord, t);
    return memlord_i_record_end(lord, r);
}
MEMLORD_I_API memlord_result memlord_scope_adopt(memlord *lord, const memlord_scope_token *token) {
    return memlord_i_scope_hand(lord, token, memlord_i_scope_adopt);
}
MEMLORD_I_API memlord_result memlord_scope_return(memlord *lord, const memlord_scope_token *token) {
    return memlord_i_scope_hand(lord, token, memlord_i_scope_return);
}

MEMLORD_I_API memlord_result memlord_scope_get(memlord *lord, const char *path,
                                               memlord_scope_stat *out) {
    const memlord_i_scope *scope;
    memlord_i_scale scale;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!path) return MEMLORD_E_INVALID;
    memlord_i_lock_take(&memlord_i_process.cold);
    scope = memlord_i_scope_of_path_locked(lord, path);
    memlord_i_lock_drop(&memlord_i_process.cold);
    if (!scope) return MEMLORD_E_UNKNOWN;
    scale = memlord_i_scale_now(lord);
    memlord_i_scope_sum(lord, scope, &scale, out, NULL);
    return MEMLORD_OK;
}
MEMLORD_I_API uint64_t memlord_scope_current(memlord *lord) {
    memlord_i_thread *t = lord ? memlord_i_thread_get(lord) : NULL;
    uint64_t id = t ? t->scope : 0;
    if (t) memlord_i_thread_put(lord, t);
    return id;
}
MEMLORD_I_API memlord_result memlord_scope_device_time(memlord *lord, uint64_t scope, uint64_t ns) {
    if (!lord) return MEMLORD_OK;
    if (!scope || scope >= memlord_i_scopes(lord)) return MEMLORD_E_UNKNOWN;
    (void)memlord_i_u64_add(&memlord_i_scope_at(lord, (uint32_t)scope)->device_ns, ns);
    return MEMLORD_OK;
}

/* -- snapshots -- */

MEMLORD_I_API memlord_result memlord_checkpoint(memlord *lord, const char *name) {
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!name || !*name) return MEMLORD_E_INVALID;
    if (memlord_i_self.busy) return MEMLORD_OK;
    r = memlord_i_name_spare(lord, name, &kept);
    if (r == MEMLORD_E_NOMEM) (void)memlord_i_u64_add(&lord->lost_snapshots, 1);
    if (r == MEMLORD_OK) r = memlord_i_snapshot_take(lord, kept, 0);
    if (r == MEMLORD_OK)
        memlord_i_note_other(lord, MEMLORD_EVENT_CHECKPOINT, 0, (uint64_t)(uintptr_t)kept, 0);
    return memlord_i_record_end(lord, r);
}

MEMLORD_I_API memlord_result memlord_snapshots_start(memlord *lord, uint32_t interval_ms) {
    memlord_i_recorder *r;
    if (!lord) return MEMLORD_OK;
    if (interval_ms && interval_ms < MEMLORD_I_SNAPSHOT_LEAST) return MEMLORD_E_INVALID;
    if (memlord_i_self.busy) return MEMLORD_E_STATE;
    r = &lord->recorder;
    memlord_i_u32_store(&r->interval, interval_ms ? interval_ms : 5000);
    memlord_i_u64_store(&r->due, memlord_i_clock(lord) +
                                     (uint64_t)memlord_i_u32_load(&r->interval) * 1000000u);
    if (memlord_i_u32_exchange(&r->wanted, 1)) memlord_i_recorder_wake(lord);
    memlord_i_recorder_begin(lord);
    return memlord_i_snapshot_take(lord, NULL, MEMLORD_I_SNAPSHOT_TOP);
}
MEMLORD_I_API memlord_result memlord_snapshots_stop(memlord *lord) {
    if (!lord) return MEMLORD_OK;
    if (memlord_i_self.helps) return MEMLORD_E_STATE;
    memlord_i_recorder_end(lord);
    return MEMLORD_OK;
}

/* -- events -- */

MEMLORD_I_API memlord_result memlord_events_start(memlord *lord, size_t capacity) {
    if (!lord) return MEMLORD_OK;
    if (capacity > MEMLORD_I_EVENTS_MAX) return MEMLORD_E_INVALID;
    return memlord_i_events_begin(lord, capacity ? capacity : 65536);
}
MEMLORD_I_API void memlord_events_stop(memlord *lord) {
    if (lord) memlord_i_alert(lord, MEMLORD_I_ALERT_EVENTS, 0);
}
MEMLORD_I_API memlord_result memlord_events_each(memlord *lord, memlord_event_fn fn, void *user) {
    memlord_i_reading reading;
    memlord_i_read read;
    memlord_event event;
    int stop = 0;
    if (!lord) return MEMLORD_OK;
    if (!fn) return MEMLORD_E_INVALID;
    if (!memlord_i_reading_begin(lord, &reading)) return MEMLORD_E_NOMEM;
    while (!stop && memlord_i_reading_next(&reading, &read)) {
        memlord_i_read_event(&reading, &read, &event);
        stop = fn(user, &event);
    }
    memlord_i_reading_end(&reading);
    return MEMLORD_OK;
}

/* -- reports -- */

MEMLORD_I_API memlord_result memlord_write(memlord *lord, memlord_format format,
                                           memlord_write_fn fn, void *user) {
    if (!lord) return MEMLORD_OK;
    if (!fn) return MEMLORD_E_INVALID;
    if (!memlord_i_format_known(format)) return MEMLORD_E_UNSUPPORTED;
    return memlord_i_report_write(lord, format, fn, user);
}

MEMLORD_I_API memlord_result memlord_save(memlord *lord, memlord_format format, const char *path) {
    if (!lord) return MEMLORD_OK;
    if (!path || !*path) return MEMLORD_E_INVALID;
    if (!memlord_i_format_known(format)) return MEMLORD_E_UNSUPPORTED;
    return memlord_i_report_save(lord, format, path);
}

MEMLORD_I_API memlord_result memlord_save_at_exit(memlord *lord, memlord_format format,
                                                  const char *directory) {
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!memlord_i_format_known(format)) return MEMLORD_E_UNSUPPORTED;
    if (directory && strlen(directory) > MEMLORD_I_PATH_MAX - 100) return MEMLORD_E_INVALID;
    r = memlord_i_name(lord, directory && *directory ? directory : NULL, &kept);
    if (r == MEMLORD_OK) r = memlord_i_at_exit_once();
    if (r) return r;
    memlord_i_saver_set(lord);
    memlord_i_ptr_store_release(&lord->exit_directory, (void *)(uintptr_t)kept);
    (void)memlord_i_u32_exchange(&lord->exit_format, (uint32_t)format + 1);
    return MEMLORD_OK;
}
MEMLORD_I_API void memlord_request_save(memlord *lord) {
    if (!lord) return;
    memlord_i_saver_set(lord);
    memlord_i_alert(lord, MEMLORD_I_ALERT_SAVE, 1); /* nothing here waits: signal-safe */
}

/* -- shim -- */

MEMLORD_I_API void *memlord_shim_malloc(memlord *lord, size_t size, const memlord_site *site) {
    void *p = malloc(size);
    if (p) (void)memlord_alloc(lord, memlord_device_cpu(), MEMLORD_KEY(p), size, site);
    return p;
}
MEMLORD_I_API void *memlord_shim_calloc(memlord *lord, size_t n, size_t size,
                                        const memlord_site *site) {
    void *p = calloc(n, size); /* answers NULL where the product overflows */
    if (p) (void)memlord_alloc(lord, memlord_device_cpu(), MEMLORD_KEY(p), n * size, site);
    return p;
}
MEMLORD_I_API void memlord_shim_free(memlord *lord, void *ptr, const memlord_site *site) {
    (void)memlord_free(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), site);
    free(ptr);
}
MEMLORD_I_API void *memlord_shim_realloc(memlord *lord, void *ptr, size_t size,
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

#if MEMLORD_I_POSIX
static memlord_device memlord_i_device_mapped(void) {
    return memlord_device_make(MEMLORD_DEVICE_MAPPED, 0);
}

/* 1: the pages are one whole block, on *device. */
static int memlord_i_is_mapping(memlord *lord, uint64_t at, size_t size, memlord_device *device) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    memlord_block_info b;
    *device = memlord_i_device_mapped();
    if (memlord_block_find(lord, *device, at, &b) != MEMLORD_OK) {
        *device = memlord_device_cpu();
        if (memlord_block_find(lord, *device, at, &b) != MEMLORD_OK) return 0;
    }
    return b.bytes / page + (b.bytes % page != 0) == size / page + (size % page != 0);
}

MEMLORD_I_API void *memlord_shim_mmap(memlord *lord, void *at, size_t size, int prot, int flags,
                                      int fd, int64_t offset, const memlord_site *site) {
    memlord_device d = flags & MAP_ANONYMOUS ? memlord_device_cpu() : memlord_i_device_mapped();
    void *p;
    if ((off_t)offset != offset) { /* cut off, it would map another part of the file */
        errno = EOVERFLOW;
        return MAP_FAILED;
    }
    p = mmap(at, size, prot, flags, fd, (off_t)offset);
    if (p != MAP_FAILED) (void)memlord_alloc(lord, d, MEMLORD_KEY(p), size, site);
    return p;
}
MEMLORD_I_API int memlord_shim_munmap(memlord *lord, void *at, size_t size,
                                      const memlord_site *site) {
    uint64_t key = MEMLORD_KEY(at);
    memlord_realloc_token token;
    memlord_device d;
    memlord_result known = MEMLORD_E_UNKNOWN;
    int r, error;
    if (!lord || memlord_i_self.busy) return munmap(at, size);
    if (memlord_i_is_mapping(lord, key, size, &d))
        known = memlord_free_begin(lord, d, key, &token, site);
    r = munmap(at, size);
    error = errno;
    if (known == MEMLORD_OK) {
        (void)memlord_free_end(lord, &token, r, site);
    } else if (known == MEMLORD_E_UNKNOWN && !r) {
        (void)memlord_i_unknown(lord, d);
        if (memlord_i_tells(lord)) memlord_i_tell(lord, 0, "[free] ", d, key, size, site);
    }
    errno = error;
    return r;
}
#endif

#undef MEMLORD_I_X
#endif /* MEMLORD_IMPLEMENTATION */

/* ------------------------------------------------------------------------- >>shim --
   Last, so that nothing above is redirected; outside the guard, as another header may have
   included memlord.h plainly before. The headers that declare the functions come first. */
#if defined(MEMLORD_SHIM) && !defined(MEMLORD_DISABLE) && !defined(MEMLORD_I_SHIMMED)
#define MEMLORD_I_SHIMMED
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
