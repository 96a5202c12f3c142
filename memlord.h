/*
    memlord.h - memory accounting for programs with more than one kind of memory
                v0.1.0, C99 and C++11, SPDX-License-Identifier: MIT

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
        >>implementation platform, atomics, memory, map, counters, sites, tags,
                         blocks, reports, public

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
              calls that record answer MEMLORD_OK, readers answer 0.
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
    Mark      a number that grows with memlord_mark. Blocks remember the mark they
              were born under, so "what is still alive since then" is one call.

    All sizes are bytes in uint64_t. Differences are int64_t and may be negative.
    Bytes of a device, and how they relate:

        allocated        live storages + the arena balance, now
        pending          the part of allocated that waits for its device (a later
                         version; 0 in this one)
        peak             highest `allocated` since create, reset or peak_reset; low by
                         at most peak_error, never high; peak_error is 0 with
                         MEMLORD_FLAG_EXACT and with one thread
        freed            credited since the last collection or reset
        total_allocated  everything ever recorded in this epoch, growth included
        total_freed      everything ever credited in this epoch, shrinkage included

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
                               of this file to MEMLORD_SHIM_LORD (default
                               memlord_global()); include memlord.h last  (that file)
        MEMLORD_STB_DS_H       where stb_ds.h is, if neither <stb/stb_ds.h> nor
                               "stb_ds.h"                                  (one file)
        MEMLORD_MAX_DEVICES    devices a ledger can know, default 128, at most 255
                                                                           (one file)
        MEMLORD_MAX_STRINGS    bytes of names kept per ledger, default 64 MiB
                                                                           (one file)
        MEMLORD_THREAD_LOCAL   how a thread-local is spelled; an interposer wants
                               __thread with the initial-exec model        (one file)

    Environment, read once by memlord_create, ignored by set-uid programs and with
    MEMLORD_FLAG_NO_ENV:

        MEMLORD_DEBUG=1        log every event to stderr in colour, or to your logger

    -------------------------------------------------------------- >>threading ---

    Every function may be called from any thread at any time, except
        memlord_destroy        no other call on that ledger may be in flight or follow
    Callbacks (write, block, logger) run on the calling thread with no lock held and
    may call any function of the ledger. The allocator of a ledger is called with no
    storage locked; it may be your own malloc even if that calls MemLord (such a call
    made by the ledger itself passes through uncounted).
    A ledger survives fork: the child's copy goes on with the state of the moment.
    Functions are not async-signal-safe.

    ----------------------------------------------------------------- >>errors ---

    Every memlord_result function answers MEMLORD_OK (0), or an error and then has
    changed nothing but the anomaly and drop counters. Results may be ignored. MemLord
    never prints (unless MEMLORD_DEBUG asks for it), asserts, aborts or exits.

    Mistakes of the host are anomalies: counted per device and shown in every report.
        unknown_frees          a free, release or realloc of a storage not live
        implicit_frees         an alloc over a live storage: the old one was closed
        freed_while_shared     a free of a storage that still had views
        underflows             arena_sub of more than the balance: now 0
    What did not fit is counted too, and never silently lost:
        dropped_allocs/_bytes  the map could not grow; raise the allocator's limit
        dropped_sites          more sites or tags than fit

    ------------------------------------------------------------------ >>costs ---

    alloc, free, retain, release, track, realloc: a few nanoseconds to a cache miss
    (README has the measured table), no system call, no lock shared by threads that
    work on their own blocks, nothing proportional to devices, threads or blocks
    except when a table grows (one of 1024 shards at a time). Memory: about 32 to 50
    bytes a live block.
    Readers (allocated, stats, peak) cost a few nanoseconds a thread. Functions that
    walk every block say so under Cost.

    Not counted: memory nobody tells MemLord about (other libraries, the driver, the
    C library's own overhead, stacks, code), the rounding of your allocator, bytes the
    operating system has not yet backed with pages. MemLord's own memory is not in the
    totals; reports show it beside them.
*/
#ifndef MEMLORD_H
#define MEMLORD_H

#include <stddef.h> /* size_t, NULL */
#include <stdint.h> /* uint64_t, int16_t */
#include <string.h> /* memset of out parameters */

/* major: a program must be changed; minor: something was added; patch: neither */
#define MEMLORD_VERSION_MAJOR 0
#define MEMLORD_VERSION_MINOR 1
#define MEMLORD_VERSION_PATCH 0
#define MEMLORD_VERSION "0.1.0"

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

/*PREFIX-BLOCK*/

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
    X(E_NOMEM, "the ledger's allocator refused; give it more room")                           \
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
MEMLORD_API const char *memlord_result_text(memlord_result result) MEMLORD_I_OFF("ok")

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

static inline memlord_device memlord_device_make(int type, int index) {
    memlord_device d;
    d.type = (int16_t)(type < INT16_MIN || type > INT16_MAX ? INT16_MAX : type);
    d.index = (int16_t)(index < INT16_MIN || index > INT16_MAX ? INT16_MIN : index);
    return d; /* what does not fit stays refused by every call */
}
static inline memlord_device memlord_device_cpu(void) {
    return memlord_device_make(MEMLORD_DEVICE_CPU, 0);
}
static inline memlord_device memlord_device_cuda(int index) {
    return memlord_device_make(MEMLORD_DEVICE_CUDA, index);
}
/* The selector of every device. */
static inline memlord_device memlord_device_all(void) {
    return memlord_device_make(MEMLORD_ANY, MEMLORD_ANY);
}

/* -- types -- */

typedef struct memlord memlord; /* a ledger */

/* Where a ledger's own memory comes from. Set both functions or neither (then malloc
   and free). `free` gets the size `alloc` was asked for. Called with no storage locked,
   from any thread. `alloc` answers NULL when there is none. */
typedef struct memlord_allocator {
    void *(*alloc)(void *user, size_t size);
    void (*free)(void *user, void *ptr, size_t size);
    void *user;
} memlord_allocator;

enum {
    MEMLORD_LOG_ERROR = 1, /* something was lost or refused */
    MEMLORD_LOG_WARNING,   /* the host did something odd */
    MEMLORD_LOG_INFO,      /* summaries, resets */
    MEMLORD_LOG_TRACE      /* every alloc and free; only with MEMLORD_DEBUG=1 */
};

/* Where messages go. NULL is silence, or coloured stderr with MEMLORD_DEBUG=1. `text` is
   one line without its newline and lives for the call only. */
typedef struct memlord_logger {
    void (*fn)(void *user, int level, const char *text);
    void *user;
} memlord_logger;

/* Nanoseconds that never go back. NULL is the platform's monotonic clock. */
typedef struct memlord_clock {
    uint64_t (*fn)(void *user);
    void *user;
} memlord_clock;

enum {
    MEMLORD_FLAG_NO_STRATEGY = 1, /* no bands; no effect yet: this version has none */
    MEMLORD_FLAG_SITES = 2,       /* memlord_sites_enable from the start */
    MEMLORD_FLAG_EXACT = 4,       /* publish every call: exact peaks, shared lines */
    MEMLORD_FLAG_DEFER = 8,       /* no callback inside track calls: always so as yet */
    MEMLORD_FLAG_NO_THREADS = 16, /* start no thread: always so as yet */
    MEMLORD_FLAG_BACKTRACE = 32,  /* no effect yet */
    MEMLORD_FLAG_NO_ENV = 64      /* ignore the environment */
};

/* Everything at zero is the default. */
typedef struct memlord_desc {
    memlord_allocator allocator; /* malloc and free */
    memlord_logger logger;       /* silent */
    memlord_clock clock;         /* monotonic */
    uint32_t flags;              /* MEMLORD_FLAG_... */
    uint32_t poll_ms;            /* no effect yet */
    uint32_t snapshot_ms;        /* no effect yet */
    size_t event_capacity;       /* no effect yet */
    uint64_t counter_batch;      /* bytes a thread may hold back from the peak, 65536 */
    const char *output_dir;      /* no effect yet */
    const char *proc_root;       /* no effect yet */
    const char *labels;          /* no effect yet */
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
    const char *tag;   /* retags the block, if set */
} memlord_meta;

/* A live block. Strings live until the ledger is destroyed. */
typedef struct memlord_block_info {
    memlord_device device;
    uint64_t storage;
    uint64_t bytes;
    uint64_t refs;             /* 1 + views */
    const char *tag;           /* NULL: untagged */
    const char *scope;         /* NULL: this version has no scopes */
    const memlord_site *site;  /* NULL: not known */
    uint64_t born;             /* the mark it was born under */
    memlord_meta meta;         /* zero if never described */
    int pending;               /* 0: this version defers no free */
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
   here and is not freed yet, wherever that will be. */
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

/* Every statistic of a device: name, kind, text. Kinds:
     LIVE   a level, now              PEAK  a high-water mark
     COUNT  grows; 0 at a reset       ODD   an anomaly or a drop: grows, 0 at a reset
   A wide selector adds them up. To add one: a line here, and who counts it. */
#define MEMLORD_I_STATS(X)                                                                    \
    X(allocated, LIVE, "bytes live, pending included")                                        \
    X(pending, LIVE, "bytes live that wait for their device")                                 \
    X(freed, COUNT, "bytes credited since the last collection or reset")                      \
    X(peak, PEAK, "highest allocated; never high, low by at most peak_error")                 \
    X(peak_error, PEAK, "bytes the peak may be low by")                                       \
    X(live_blocks, LIVE, "storages live")                                                     \
    X(allocs, COUNT, "storages opened")                                                       \
    X(frees, COUNT, "storages closed")                                                        \
    X(total_allocated, COUNT, "bytes ever added, growth included")                            \
    X(total_freed, COUNT, "bytes ever credited, shrinkage included")                          \
    X(moves, COUNT, "storages that arrived by memlord_move")                                  \
    X(moved_bytes, COUNT, "bytes that arrived by memlord_move")                               \
    X(reserved, LIVE, "bytes the host's pool holds")                                          \
    X(reserved_peak, PEAK, "highest reserved")                                                \
    X(cached, LIVE, "reserved and not allocated")                                             \
    X(largest_free, LIVE, "largest free piece of the host's pool")                            \
    X(cache_hits, COUNT, "requests the host's pool served")                                   \
    X(cache_misses, COUNT, "requests it passed on")                                           \
    X(limit, LIVE, "bytes allowed; 0: no limit")                                              \
    X(gc_runs, COUNT, "collections that ran")                                                 \
    X(gc_failed, COUNT, "collections that did not")                                           \
    X(gc_reclaimed, COUNT, "bytes they gave back")                                            \
    X(oom_attempts, COUNT, "attempts that found no memory")                                   \
    X(oom_failures, COUNT, "requests that found none in the end")                             \
    X(retries, COUNT, "attempts after the first")                                             \
    X(recoveries, COUNT, "requests saved by a retry")                                         \
    X(implicit_frees, ODD, "allocs over a live storage")                                      \
    X(unknown_frees, ODD, "frees of a storage not live")                                      \
    X(freed_while_shared, ODD, "frees of a storage with views")                               \
    X(underflows, ODD, "arena_sub below the balance")                                         \
    X(fence_failures, ODD, "fences that failed")                                              \
    X(dropped_allocs, ODD, "allocs the map had no room for")                                  \
    X(dropped_bytes, ODD, "their bytes")                                                      \
    X(dropped_sites, ODD, "site or tag records without room")                                 \
    X(dropped_events, ODD, "events the ring had no room for")

#define MEMLORD_STATS_VERSION 1
typedef struct memlord_stats {
    uint32_t size;    /* written by the library: sizeof(memlord_stats) */
    uint32_t version; /* written by the library: MEMLORD_STATS_VERSION */
#define MEMLORD_I_X(name, kind, text) uint64_t name;
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

/* For deferred frees, which come with a later version: pass NULL. */
typedef struct memlord_fence {
    int (*done)(void *user); /* 1 done, 0 not yet, < 0 failed */
    void *user;
    uint64_t queue;          /* fences of one queue complete in order */
    void (*drop)(void *user);
} memlord_fence;

typedef int (*memlord_block_fn)(void *user, const memlord_block_info *info); /* != 0 stops */
typedef int (*memlord_write_fn)(void *user, const void *data, size_t size);  /* 0: written */

/* name, what it is */
#define MEMLORD_I_FORMATS(X)                                                                  \
    X(TEXT, "a table for people; the first 25 lines tell most of it")                         \
    X(JSON, "everything, for programs; schema memlord/1")

typedef enum memlord_format {
#define MEMLORD_I_X(name, text) MEMLORD_FORMAT_##name,
    MEMLORD_I_FORMATS(MEMLORD_I_X)
#undef MEMLORD_I_X
    MEMLORD_FORMAT_COUNT
} memlord_format;

/* -- lifecycle -- */

/* Opens a ledger. `desc` NULL is the default configuration; copied, strings too.
   Errors: E_INVALID one of alloc and free without the other, or `out` NULL; E_NOMEM.
   Owns:   *out is yours until memlord_destroy; never destroying it is legal. */
MEMLORD_API memlord_result memlord_create(const memlord_desc *desc, memlord **out)
    MEMLORD_I_OFF_SET(if (out) *out = NULL, MEMLORD_OK)

/* Closes a ledger and returns its memory; logs what is still live. NULL is fine.
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

/* Reads "cuda:1", "CUDA1", "cuda" (any index), "cpu" (cpu:0), "all".
   Errors: E_INVALID, and *out is untouched. */
MEMLORD_API memlord_result memlord_device_parse(const char *text, memlord_device *out)
    MEMLORD_I_OFF_SET(if (out) *out = memlord_device_all(), MEMLORD_OK)

/* Writes a device's name, "cuda:1", "cpu", or a selector's, "cuda", "all". Follows
   snprintf: answers the length without the 0, writes at most `cap` bytes with it. */
MEMLORD_API size_t memlord_device_name(memlord_device device, char *buf, size_t cap)
    MEMLORD_I_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* Sets the host's own name for a device, shown in reports beside ours. NULL removes it.
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
   and end). The block keeps its tag, description, references and mark. old_storage 0 is
   an alloc; an unknown old one counts in unknown_frees and the new one is opened. */
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
   back as it was. Every begin needs one end.
   Errors: E_STATE the token was used already; E_NOMEM the block is counted as dropped. */
MEMLORD_API memlord_result memlord_realloc_end(memlord *lord, memlord_realloc_token *token,
                                               uint64_t new_storage, uint64_t bytes,
                                               const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Record n at once: all arguments are checked and room is reserved first, so an error has
   recorded nothing; then they are applied one by one.
   Errors: also E_INVALID `blocks` NULL with n > 0, or sizes whose sum overflows. free_n
   and release_n apply every block and answer E_UNKNOWN if some were not live. */
MEMLORD_API memlord_result memlord_alloc_n(memlord *lord, const memlord_block *blocks,
                                           size_t n, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_free_n(memlord *lord, const memlord_block *blocks,
                                          size_t n, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Moves a block: the source ends, the destination begins with `bytes`, one step for every
   reader of the map. Tag, description, references and mark go along. Counted in moves of
   the destination. A fence must be NULL in this version.
   Errors: E_UNKNOWN the source is not live, counted; E_UNSUPPORTED a fence. */
MEMLORD_API memlord_result memlord_move(memlord *lord, memlord_device from,
                                        uint64_t from_storage, memlord_device to,
                                        uint64_t to_storage, uint64_t bytes,
                                        const memlord_fence *fence, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

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
   storages are never touched. */
MEMLORD_API memlord_result memlord_arena_sub(memlord *lord, memlord_device device,
                                             uint64_t bytes, const memlord_site *site)
    MEMLORD_I_OFF(MEMLORD_OK)

/* -- sites -- */

/* Switches the counting per site on or off. On from now: no history is invented; off keeps
   what was counted. */
MEMLORD_API memlord_result memlord_sites_enable(memlord *lord, int on)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Turns a return address into a site, for allocators and interposers whose callers plant
   none: file is the module, function the nearest symbol, line 0. Never NULL; lives until
   destroy. Cost: a few ns once the address is known. */
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

/* Writes bytes for people: "0 B", "1 KiB", "1.5 KiB", two decimals at most, truncated
   zeros. Any locale. 32 bytes always suffice. Answers buf. */
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
   2^27 - 1 marks; then the last one stays. */
MEMLORD_API uint64_t memlord_mark(memlord *lord) MEMLORD_I_OFF(0)

/* Calls fn (may be NULL) for every live block born under `since_mark` or later, answers how
   many there were. 0 means all. Cost: walks the map. */
MEMLORD_API size_t memlord_leaks(memlord *lord, uint64_t since_mark, memlord_block_fn fn,
                                 void *user) MEMLORD_I_OFF(0)

/* -- tags, plan against actual -- */

/* Tags what this thread allocates until the matching end. They nest; the innermost wins.
   Errors: E_INVALID NULL or ""; E_STATE deeper than 64, or an end without a begin;
   E_NOMEM. Cost: tens of ns. */
MEMLORD_API memlord_result memlord_tag_begin(memlord *lord, const char *tag)
    MEMLORD_I_OFF(MEMLORD_OK)
MEMLORD_API memlord_result memlord_tag_end(memlord *lord) MEMLORD_I_OFF(MEMLORD_OK)

/* Reads a tag. NULL reads what carries none. Errors: E_UNKNOWN never seen, *out zero. */
MEMLORD_API memlord_result memlord_tag_get(memlord *lord, memlord_device sel,
                                           const char *tag, memlord_tag_stat *out)
    MEMLORD_I_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Promises how many bytes a tag will hold on a device, for reports to compare.
   Errors: E_INVALID; E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_expect(memlord *lord, memlord_device device,
                                          const char *tag, uint64_t bytes)
    MEMLORD_I_OFF(MEMLORD_OK)

/* -- reports -- */

/* Writes a report through fn, in pieces of up to a few KiB, streaming.
   Errors: E_IO fn answered non-zero; E_UNSUPPORTED no such format; E_INVALID fn NULL.
   Cost: walks blocks and sites. */
MEMLORD_API memlord_result memlord_write(memlord *lord, memlord_format format,
                                         memlord_write_fn fn, void *user)
    MEMLORD_I_OFF(MEMLORD_OK)

/* Writes a report to a file: the whole file or none (a temporary beside it, synced and
   renamed). %p in the path is the process id, %% a percent sign. An existing regular file is
   replaced; a symbolic link, FIFO, device or directory is refused.
   Errors: E_INVALID the path; E_IO; E_UNSUPPORTED. */
MEMLORD_API memlord_result memlord_save(memlord *lord, memlord_format format,
                                        const char *path) MEMLORD_I_OFF(MEMLORD_OK)

#ifdef __cplusplus
} /* extern "C" */
#endif

/* -- macros: plant a site, pass a pointer -- */

/* The key of a storage that is an address. */
#define MEMLORD_KEY(ptr) ((uint64_t)(uintptr_t)(ptr))

/* The address of a static record of this place. Without statement expressions or lambdas
   (C on other compilers) it is NULL, and the macros below, being statements there, plant
   the record themselves. */
#if defined(MEMLORD_DISABLE)
#define MEMLORD_SITE() ((const memlord_site *)NULL)
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
typedef struct memlord_i_tag_guard {
    memlord *lord;
    int open; /* the begin went well and wants its end */
    int once;
} memlord_i_tag_guard;

static inline memlord_i_tag_guard memlord_i_tag_enter(memlord *lord, const char *tag) {
    memlord_i_tag_guard guard;
    guard.lord = lord;
    guard.open = memlord_tag_begin(lord, tag) == MEMLORD_OK;
    guard.once = 1;
    return guard;
}

static inline void memlord_i_tag_leave(memlord_i_tag_guard *guard) {
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
    for (memlord_i_tag_guard guard MEMLORD_I_ON_LEAVE(memlord_i_tag_leave) =                  \
             memlord_i_tag_enter(lord, tag);                                                  \
         guard.once; guard.once = 0, memlord_i_tag_leave(&guard))
#define MEMLORD_TAG(lord, tag) MEMLORD_I_TAG(MEMLORD_I_JOIN(memlord_i_tag_, __LINE__), lord, tag)

#if defined(MEMLORD_DISABLE) && defined(__GNUC__)
#pragma GCC diagnostic pop
#elif defined(MEMLORD_DISABLE) && defined(_MSC_VER)
#pragma warning(pop)
#endif

#endif /* MEMLORD_H */

/* ------------------------- stop here if you only want the API ---------------------------- */
