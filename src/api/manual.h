/*
    memlord.h - memory accounting for programs with more than one kind of memory
                v0.6.0-dev, C99 and C++11, SPDX-License-Identifier: MIT
                Made from src/. Edit there.

    MemLord keeps the books beside your own allocator: how many bytes live on each
    device (cpu, pinned, mapped, cuda:0, ...), which code put them there, the peak and
    its holders, and what is still alive. It never allocates your memory and never
    aborts your program.

    Do this in *one* C or C++ file:

        #define MEMLORD_IMPLEMENTATION
        #include "memlord.h"

    Include memlord.h without the define in every other file that calls it. The file with
    the implementation also needs stb_ds.h (public domain; Debian: libstb-dev). Link with
    -pthread. `make vendor DIR=...` copies memlord.h and stb_ds.h to a directory; with ONE=1 it
    joins the two to one file. `make install` installs memlord.h and memlord_cuda.h, with memlord.pc
    for pkg-config and memlord::memlord for CMake.

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
        >>support        functions that the macros and the C++ types call, and programs seldom do
        >>macros         MEMLORD_ALLOC, MEMLORD_TAGGED and the others
        >>cpp            for C++: guards, handles, an allocator, a memory resource
        >>prefix         the names of the public functions, for MEMLORD_PREFIX
        >>implementation the modules: each under a banner with its path in src/, where it is made
        >>shim           what MEMLORD_SHIM redirects

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
        memlord_save               a report as TEXT, HTML or another format; "-" is standard output

    All groups, in the order of the API:

        join: index
        C++           mlord::tag, ::scope, ::tagged, ::context, ::here, ::handle, ::allocator,
                      ::resource

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

    Ledger    `memlord *lord`, one independent account book. Every function that works on a ledger
              has it as its first argument. With a NULL ledger MemLord is switched off, and a call
              costs one branch. Functions that return a memlord_result then return MEMLORD_OK and
              fill structs with zeros, even memlord_block_find. Only memlord_site_place returns
              E_UNKNOWN. Of the other functions memlord_headroom returns INT64_MAX,
              memlord_would_fit and memlord_plan_fit return -1, and the rest return 0.
              memlord_alloc_retry still calls the host's function, once. A call with a fence calls
              the `drop` of the fence at once. All this holds with MEMLORD_DISABLE, too.
    Device    where bytes live: a type and an index, {MEMLORD_DEVICE_CUDA, 1}. In a
              selector (parameters named `sel`) the index MEMLORD_ANY means every index
              of the type, and memlord_device_all() means every device.
    Storage   the base address, or handle, of one real allocation: any 64-bit number
              but 0 and UINT64_MAX. The key is (device type, storage): a free needs the
              type but not the index, and equal handles of two types never collide.
              Where handles repeat across the devices of one type (Vulkan offsets), use
              the address of your own buffer object.
    View      one more reference to a live storage. Its bytes count once, however many views
              it has.
    Arena     bytes without an identity of their own: one balance per device, and one per
              tag. They have no site and no stack. Scopes count them. An arena with an
              identity is a block that is recorded once and resized:
                  memlord_alloc(lord, cpu, key, 1 << 20, site);            // it is made
                  memlord_realloc(lord, cpu, key, key, 4 << 20, site);     // it grows
                  memlord_free(lord, cpu, key, site);                      // it is gone
    Site      a place in your source, planted by a macro: file, function and line. Sites are
              off until memlord_sites_enable.
    Stack     the return addresses of an alloc, if memlord_desc.stack_depth asks for them.
              A ledger takes the stack of every alloc, or of a sample of the allocs. Totals
              from a sample are unbiased estimates with a standard error. Each run, process
              and ledger takes another sample, unless memlord_desc.stack_seed makes the
              sample repeatable. A block keeps its stack until it ends, also when it moves; only a
              realloc samples it again. Reports say what each stack held at the peak of its device.
              TEXT has the largest stacks. JSON (the 2048 largest), PPROF, FOLDED, HEAPTRACK and
              MEMORY_VIZ have whole stacks. TEXT and JSON show the estimates of a sample. PPROF,
              FOLDED and HEAPTRACK divide the exact numbers of each site over its stacks, in
              proportion to the samples, so that they add up to the ledger. A stack gets at most 4
              times what its samples stand for. The other blocks of the site, and all blocks of a
              site without a sample, have the site alone as their stack. MEMORY_VIZ shows the
              sampled blocks, and the events of their allocs, with their stacks. It shows all other
              blocks and events with their sites.
    Tag       the purpose of bytes ("weights", "kv_cache"). A context has a current tag. A block
              keeps its tag until it ends or is retagged, whichever thread frees it. Arena bytes
              come off the tag of the thread that takes them off the arena.
    Physical device  memory that several devices share. cpu, pinned and mapped are one
              physical device. memlord_device_share adds others to it, such as an integrated
              GPU. A physical device has one capacity, one limit and one headroom.
    Limit     the most that memlord_reserve and memlord_alloc_retry let a physical device
              hold. An alloc that has happened is recorded whatever the limit.
    Ticket    bytes of the limit that memlord_reserve keeps for later allocs. A ticket belongs
              to the context that reserved or adopted it. Allocs in that context come off the
              ticket, and so do allocs that name it: memlord_alloc_with.
    Account   bytes charged to a request or a user. A charge does not change the live bytes of
              the device. An account's limit is a quota for memlord_reserve and
              memlord_alloc_retry.
    Pool      device memory that your own allocator has reserved, and serves requests from. A pool
              is a device of its own. It has the type OTHER, or the type of the real device with an
              index of its own. memlord_device_share says which device the pool lives in.
              Record what the pool hands out, and set what it holds: memlord_pool_set.
              Do not record the segments of the pool, on whichever device: the bytes that the pool
              hands out would count twice.
    Band      a range of used % with a threshold at which a collection is due.
    Collection  a run of the host's callbacks for a device, to give memory back.
    Fence     tells when a device is done with a block. A block that is freed earlier is pending: it
              is live until its fences are done.
    Stream    a queue of a device's work. A block remembers the stream it was allocated on, if
              the host names it: memlord_stream_set. TEXT and JSON have the live bytes of each
              stream.
    Part      a named piece of a live storage (a tensor in a weights buffer). A part adds no
              bytes to any total.
    Scope     a stretch of a context's work with a name ("decode"). MemLord measures the bytes that
              the scope allocated less the bytes it freed, its peak, and its time. Scopes nest, and
              other threads can adopt a scope. A block remembers the scope it was allocated in.
    Context   what the calls of a thread use: the open tags and scopes, the default tag, the
              account, the stream and the tickets. Each thread has a context of its own. A fibre, a
              coroutine or a job can have one, too: memlord_context_swap. Where a comment says that
              a thread has a tag, a scope or the like, that belongs to the thread's present context.
    Mistake   a call that the host should not have made, such as a double free. Names in the
              API call it an anomaly. memlord_anomalies_each tells where each was made.
    Snapshot  the totals of every device at one moment. A checkpoint is a snapshot with a name.
    Event     one change (alloc, free, move, collection ...). memlord_events_start keeps them in
              a ring.
    Mark      a number that memlord_mark raises. A block remembers the mark at its alloc.
              memlord_leaks lists the live blocks of a mark and of later marks.

    All sizes are bytes in uint64_t. Differences are int64_t and may be negative. A percentage
    is of the capacity, or of the limit if that is set and smaller. The numbers of one device:

        allocated        live storages + the arena balance, now
        pending          the part of allocated that is freed and waits for its device
        peak             highest `allocated` since create, reset or peak_reset. It is never too
                         high, and too low by at most peak_error. Calls that overlap count as if one
                         came after the other, in any order. peak_error is 0 if MEMLORD_FLAG_EXACT
                         is set, or if only one thread records. (If a second thread resets the peak,
                         peak_error is 0 again from the next call of the recording thread on.) In
                         all other cases each thread counts on its own, and adds its count to the
                         peak from time to time; the bytes not added yet are held back. The threads
                         together begin with about 4 KiB, or a 64th of the peak if that is more. The
                         part of a busy thread, one that adds its count more often than once in 256
                         of its calls, doubles up to its part of 64 KiB, or of an eighth of the
                         peak. It halves again when the thread is less busy, and begins again after a
                         peak_reset, or when another thread comes. A thread that is idle then keeps
                         its part. No thread holds back more than counter_batch. All this holds for
                         the peaks of tags and sites, too, except that the first thread of a site
                         may hold back a counter_batch. JSON has the peak_error of each tag and
                         site. A reader of the peak, such as a report or a snapshot, raises the peak
                         to the live bytes of that moment if these are more. The peak of a scope is
                         exact on one device if no threads share the scope. On several devices the
                         peak of a scope is an upper bound: memlord_scope_export
        freed            bytes credited since the last collection or reset. The host has freed them,
                         but its allocator or the driver may still hold the memory
        gc_reclaimed     what collections gave back, as their callbacks say
        total_allocated  all bytes recorded in this epoch, growth included. Lifetime
                         totals count modulo 2^64; live values never wrap
        total_freed      all bytes credited in this epoch, shrinkage included
        reserved         what the host's pool holds of the device, set by memlord_pool_set. `cached`
                         is the part of `reserved` that is not allocated
        limit, held      the limit of the physical device, and the bytes of it that tickets keep

    In a report's table of capacity, which lists physical devices:

        used             what the capacity source says, plus what was recorded since the sample,
                         less what was freed since: see memlord_capacity_source_set. In TEXT it is
                         `total` less `free`
        self             live bytes of all devices that share the physical device, without mapped
                         files
        process          the further bytes that this process holds, as the source says: `context`,
                         the free memory of pools, and what was not recorded
        others           the rest of `used`. If the source does not know this process's share,
                         `others` is all that is not self or context
        neighbours       the bytes that other ledgers hold there, as they said on the pressure page
                         at the last poll (memlord_pressure_open)
        unaccounted      used - self - context - neighbours, where used is at most the total. The
                         free memory of your own pools is a part of it

    Order: record an allocation after the real one, and a free before the real one. Once a
    block is really free, another thread may get its address and record it. For the same
    reason, a realloc that may move goes through memlord_realloc_begin before the real call
    and through memlord_realloc_end after it.

    -------------------------------------------------------------- >>platforms ---

        tested by `make test`     Linux x86-64, glibc, gcc 12
        tested by `make gates`    gcc 12 and clang 14, C99 to C2x and C++11 to C++20, 64 and 32
                                  bits; musl: a malloc that records, wrap.c, the interposer; the
                                  reports of Linux i386, i486, aarch64 and s390x (emulated) and
                                  of Windows x86-64 (MinGW gcc 12, under wine)
        tested by `make test-all` Linux i386, i486, aarch64, armhf, riscv64, ppc64el and s390x
                                  (emulated), musl; Windows x86-64 (under wine, but for what
                                  needs Linux or POSIX)
        tested by hand, 0.3.5     Linux sparc64 (emulated); Windows x86-64, whole
        compiled by `make gates`, never run
                                  Windows on ARM, macOS x86-64 and aarch64 (zig 0.11)
        compiles, never run       32-bit MinGW
        written, never compiled   MSVC, FreeBSD

    A function's name behind a return address (memlord_site_at) comes from the dynamic
    symbol table: link the program with -rdynamic to see functions of its own. Before glibc 2.35 and
    outside Linux an address keeps its first name, even if another library is loaded at that address
    later. Build ids are known on Linux.

    ------------------------------------------------------------------ >>knobs ---

    Define these before the include. "All files" means alike in every file that includes
    memlord.h. "One file" means only in the file with MEMLORD_IMPLEMENTATION. "That file"
    means any file, whatever the others define.

        MEMLORD_DISABLE        every call becomes an inline no-op that still type
                               checks; no code is left                    (all files)
        MEMLORD_STATIC         all functions are static: a file that defines it and
                               MEMLORD_IMPLEMENTATION has a library of its own
                                                                          (that file)
        MEMLORD_PREFIX         with the prefix p every symbol becomes p_memlord_..., so that two
                               libraries in a process may each carry a MemLord  (all files)
        MEMLORD_API            linkage of public functions, default extern (all files)
        MEMLORD_SHIM           redirects malloc, calloc, realloc, free, mmap and munmap
                               of this C file to MEMLORD_SHIM_LORD (default
                               memlord_global()). Include memlord.h last. If this file frees a block
                               that other code allocated (strdup, getline), the free counts in
                               unknown_frees. So does a munmap of anything but one whole mapping
                               (that file)
        MEMLORD_PMR            declares mlord::resource, a std::pmr::memory_resource, in C++17
                               and later; <memory_resource> takes a compiler half a second
                                                                           (that file)
        MEMLORD_STB_DS_H       where stb_ds.h is, if none of <stb/stb_ds.h>,
                               "memlord/stb_ds.h" and "stb_ds.h"           (one file)
        MEMLORD_MAX_DEVICES    devices a ledger can know, default 128, at most 250
                                                                           (one file)
        MEMLORD_MAX_SCOPES     paths of scopes a ledger can know, default 4096 (one file)
        MEMLORD_MAX_SERIES     tags of each device, and scopes, that PROMETHEUS names,
                               default 100; the others are one series     (one file)
        MEMLORD_MAX_STRINGS    bytes of names kept per ledger, default 64 MiB
                                                                           (one file)
        MEMLORD_MAX_STACK_NODES
                               return addresses in the tree of stacks, 24 bytes each,
                               default 2^20                                (one file)
        MEMLORD_THREAD_LOCAL   how a thread-local is spelled; an interposer wants
                               __thread with the initial-exec model        (one file)
        MEMLORD_NO_THREADS     starts no threads: memlord_gc_poll samples the devices whose sample
                               is old, and takes the snapshots and exports that are due
                                                                           (one file)
        MEMLORD_NO_REPORTS     leaves out all formats but TEXT and JSON: for the others the
                               calls return E_UNSUPPORTED                  (one file)
        MEMLORD_NO_PAGE        likewise leaves out HTML: 41 KiB of code less (one file)
        MEMLORD_NO_PROFILES    likewise leaves out PPROF, HEAPTRACK and FOLDED (one file)
        MEMLORD_NO_NEIGHBOURS  leaves out the page of neighbours: memlord_pressure_open, _close,
                               _raise and memlord_device_id_set return E_UNSUPPORTED
                                                                           (one file)
        MEMLORD_NO_VERIFY      makes memlord_verify return E_UNSUPPORTED   (one file)
        MEMLORD_CHECK_LOCKS    to debug MemLord: checks with MEMLORD_ASSERT that each thread takes
                               its locks in the lock order, and that what MemLord's functions
                               require of their callers holds (one file)
        MEMLORD_ASSERT         MEMLORD_ASSERT(expression) does something, such as abort, if the
                               expression is 0; the default does nothing   (one file)

    Environment variables. memlord_create reads them once. Set-uid programs and ledgers with
    MEMLORD_FLAG_NO_ENV ignore them. An empty variable counts as unset. A value that cannot
    be read is logged and changes nothing:

        MEMLORD_DEBUG=1        logs every change of a storage and every collection, to
                               stderr in colour or to your logger. Any value but 0 does so.
                               memlord_log_stderr then writes in colour. 2 also runs
                               memlord_verify at destroy
        MEMLORD_ARGUMENTS=1    TEXT, JSON, HTML and TRACE have the program's arguments, cut to 1 KiB
                               (Linux). The arguments may have secrets in them
        MEMLORD_POLL_INTERVAL_MS=200
                               how often pollers sample, at least 10. It overrides poll_ms
                               and memlord_poller_start
        MEMLORD_RETRY=max=5,initial_ms=50,multiplier=1.5,max_ms=2000
                               the default policy of memlord_alloc_retry. The parts come in
                               any order, without blanks. A part that is left out has the
                               value shown here. initial_ms may not exceed max_ms

    -------------------------------------------------------------- >>threading ---

    Every function may be called from any thread at any time, except
        memlord_destroy        no other call on that ledger may be in flight or follow
        memlord_verify         no other call may be in flight: a change that is only half made
                               would look wrong
        memlord_context_swap   the host orders the calls on one context
    Callbacks (write, block, logger, capacity, collection, fence, try) run with no lock
    held and may call any function of the ledger but memlord_destroy. Write, block and
    try run on the calling thread. Collections run on the thread whose call crossed the
    threshold. Fences run on threads that allocate, free or retire, and on pollers. Collections
    and fences run inside the host's own call, under whatever locks it holds there. A host with
    an allocator lock creates the ledger with MEMLORD_FLAG_DEFER. Then collections run only in
    memlord_gc_poll, memlord_gc_run, memlord_alloc_retry and on pollers. Fences run in the same
    places and in memlord_retire. If MEMLORD_FLAG_NO_THREADS is set, too, there are no pollers, and
    collections and fences run only where the host asks for them.
    A callback returns, and so do the unwinder, the allocator and the clock of a ledger: none of
    them is left by longjmp or by an exception, or ends its thread.
    MemLord has threads of its own. A poller for each physical device starts with the first call
    that touches a device with a capacity source, a collection callback and a strategy. With
    MEMLORD_FLAG_NO_THREADS no poller starts. The threads of MemLord take no signals. With
    MEMLORD_FLAG_DEFER the poller of the cpu starts when a callback is added. That poller starts the
    others when it sees that their devices were touched. memlord_snapshots_start starts a thread
    that takes snapshots; with MEMLORD_FLAG_NO_SNAPSHOT_THREAD the host's calls take them.
    memlord_export_start starts a thread that writes a file. memlord_pressure_open starts the
    listener, a thread that answers the neighbours. The listener runs collection callbacks even with
    MEMLORD_FLAG_DEFER, as pollers do.
    MemLord calls a ledger's allocator while it holds no lock. The allocator may be your own
    malloc even if that calls MemLord: a call that the ledger's own allocation makes is not
    recorded. In the process's first memlord_create or memlord_global pthread_atfork may call
    malloc; a call from that malloc is not recorded either. Meanwhile another thread's first call
    waits, but no longer than 0.1 s, because that malloc may wait for a lock which the other thread
    holds.
    MemLord works before main, in a malloc that libc calls while libc is set up, and in a
    static program. Do not call it in the resolver of an IFUNC: there are no thread-locals
    yet.
    A ledger survives fork. The child's copy goes on with the state of that moment, and its
    pollers start again when it is used. It then gets a slot of its own on a pressure page. It
    does not export, as the file is its parent's. Do not call fork in a signal handler: fork waits
    for calls in progress, and the code that the signal interrupted may be in one. POSIX no
    longer lists fork as async-signal-safe. _Fork, vfork and posix_spawn run no fork handlers,
    and a signal handler may call them with an exec next. If a callback forks on a thread of
    MemLord's, it must call exec or _exit in the child, because the child would otherwise go on as
    that thread when the callback returns.
    A shared library that carries MemLord may be closed (dlclose) after its ledgers are
    destroyed, when no thread that used it is starting, in a call or ending, and no host has
    functions of memlord_hooks_install any more. With glibc the library stays loaded in spite of
    dlclose once it has made memlord_global or a thread of MemLord's. On Windows it stays loaded
    once it has made a ledger. A call that makes a global ledger, a thread or, on Windows, a ledger
    waits for a dlopen in progress. That wait lasts for ever if the library's constructor waits for
    a thread that makes such a call, or if the host makes such a call under a lock that its malloc
    takes. Link the library with -Wl,-z,nodelete if that may happen, or if the library is closed at
    any other time. With -z,nodelete the call waits for nothing. musl unloads no library. On other
    systems, link the library with that option if it uses memlord_global or a thread of MemLord's.
    Functions are not async-signal-safe, except memlord_request_save.
    Except for the wait for a dlopen, a call waits only for other calls in progress. It spins,
    then yields, then sleeps for 50 us to 1 ms at a time. Because it sleeps, a real-time thread
    (SCHED_FIFO) does not block the thread it waits for, even if that thread has a lower priority on
    the same processor. There is no priority inheritance: such a wait can take several milliseconds.
    On Linux, when a thread first uses storages that only another thread has used so far, its call
    runs membarrier(2). A sandbox may refuse membarrier, from the start or later: then every call
    takes two atomic operations more. After a late refusal such a first call also sleeps for 1 ms.
    This ends when all threads that have used the ledger have made another call or have ended. Enter
    the sandbox before the first ledger is created, and no call sleeps.
    ----------------------------------------------------------------- >>errors ---

    Every memlord_result function returns MEMLORD_OK (0), or an error. After an error it has changed
    nothing but the counters of anomalies, drops and refusals. The exceptions are memlord_free_n,
    memlord_release_n, memlord_realloc_begin and _end, and memlord_snapshots_start; their comments
    say what they change. memlord_alloc_retry, memlord_pressure_raise and memlord_gc_run may have
    run callbacks. Results may be ignored.
    MemLord never asserts, aborts or exits. It prints only if MEMLORD_DEBUG or memlord_log_stderr
    is set.

    Mistakes of the host are anomalies. They are counted per device and shown in every report but
    FOLDED and CSV, which have no comments. memlord_anomalies_each, TEXT, JSON and HTML say
    where each was made. The first of each kind at a site is logged as a warning.
        unknown_frees          a free, release or realloc of a storage that is not live. If the
                               ledger has no room for the device, the call counts only in the sum of
                               all devices
        implicit_frees         an alloc over a live storage: the old one was closed
        freed_while_shared     a free of a storage that still had views
        underflows             a memlord_arena_sub of more than the balance, which becomes 0; or a
                               tag that gave up arena bytes because its device has fewer
        fence_failures         fences that failed; they count as done
        refused                calls that record, tag or set a pool and returned E_INVALID or
                               E_DEVICE, for example because of a selector where a device is needed,
                               or of a storage of 0; and allocs with a ticket or an account that is
                               not open. If the device is not known, the call counts only in the sum
                               of all devices. For each function each such result is logged once,
                               and once at each of the sites that the ledger keeps
    The end of a tag or a scope that was not begun is a mistake, too, but no statistic counts it.
    The ledger keeps the places of the first 64 mistakes that differ in kind or site.
    What did not fit is counted, too, and never silently lost:
        dropped_allocs/_bytes  allocs for which the map could not grow: give the ledger's allocator
                               more; or allocs on one device too many (E_DEVICE): raise
                               MEMLORD_MAX_DEVICES
        dropped_sites          sites, tags or stacks that did not fit, also because of
                               MEMLORD_MAX_STRINGS: blocks are recorded without them; or guards that
                               ended in another context than they began in
        dropped_events         events that were overwritten in the ring, or had no room there
    The ledger also counts the scopes, invocations and snapshots that it dropped, and the exports
    that failed, and reports say how many. The first dropped tag and the first dropped scope are
    logged.

    ------------------------------------------------------------------ >>costs ---

    alloc, free, retain, release, track, realloc: a call takes from about 10 ns up to the cost of
    a cache miss (bench/results/ has a whole run of the bench). memlord_alloc_with takes a few ns
    more; arenas, and allocs with a ticket or of an account, some tens. They make no system
    call. Threads that work on their own blocks share no lock (except for arenas). The cost does
    not grow with devices, threads, blocks or queues of fences, except when a table grows (one
    of 1024 shards at a time) or when a thread first meets storages of another thread.
    Memory: a ledger takes 100 KiB or so to begin with, and about 40 to 60 bytes a live block, or
    up to 500 for each of the first one or two thousand. A thread takes 5 KiB, and 5 KiB more for
    each path of scopes it was in. A site takes 500 to 800 bytes when sites are counted. While a
    report is written the ledger takes 360 KiB or so. With stacks it takes 180 KiB and 40 bytes a
    stack more, and for FOLDED up to 5 MiB. With samples it takes 300 bytes more for each site, for
    each stack of a site, and for each combination of one of these with a tag and a scope. Reports
    show it all as MemLord's own.
    Readers (allocated, stats, peak) cost a few nanoseconds a thread. Functions that
    walk every block say so under Cost. Bands far from their thresholds cost a branch or two
    a call. When the bytes come as near to a threshold as a counter_batch for each thread, each call
    adds up the counts of all threads. A collection costs what its callbacks do. A scope costs some
    tens of nanoseconds. So does a swap of a context, for which the ledger keeps 700 bytes. A
    stack costs what its unwinder does (some us for the platform's) and a few hundred ns, under
    one lock. A sample every 512 KiB costs next to nothing. Stacks take 320 KiB, and 112 bytes
    each. Each return address takes 250 to 400 bytes, and 24 more for each further caller that
    it has. A block with a stack takes up to 64 bytes more. Events cost one branch a call when
    off, and a time stamp and 40 bytes when on.

    Not counted: memory that no call records (other libraries, the driver, the C library's
    own overhead, stacks, code), the rounding of your allocator, and whether the operating
    system has backed the bytes with pages. MemLord's own memory is not in the totals;
    reports show it beside them.
*/
