/*
    preload.c - records every block of the heap, and the call that allocated it, in a program that
                you cannot change. For Linux, and other systems with LD_PRELOAD, glibc or musl.

        LD_PRELOAD=build/libmemlord_preload.so sort big.txt > sorted.txt

    Build with

        gcc -std=c99 -O2 -fPIC -shared -fvisibility=hidden -fexceptions -static-libgcc \
            -pthread -I. src/tools/preload.c -o build/libmemlord_preload.so -Wl,-z,now -ldl

    At exit, after the program's last destructor, a TEXT report goes to the stderr that the program
    was started with, even if the program has closed it. These variables of the environment are read
    once, at the start. Numbers are decimal, without a unit. If a variable begins with MEMLORD_ and
    is none of these, if a number cannot be read, or if a report cannot be written, a line on stderr
    says so at the start. A number that cannot be read counts as not set.

        MEMLORD_REPORT=path    write the report to this path, in the format of its suffix (.html,
                               .json, .heaptrack ...), or as TEXT for any other suffix; "-" is
                               stderr. A relative path is taken from where the program starts.
                               In the path, %p is the process id, %n is the number of this report
                               of the process, from 1, %t is the seconds since 1970, and %% is a
                               percent sign. A report with the suffix .folded has the live bytes.
                               The one at the end of the program has the bytes that were live at the
                               peak instead, if less than a quarter of them is left. The suffixes
                               .live.folded, .peak.folded and .allocated.folded choose the bytes
        MEMLORD_SYMBOLS=n      1 names files and lines with symbolize, a program beside this
                               library (src/tools/symbolize.c), and 0 does not; if not set,
                               symbolize runs if the process took a second of the processor, and
                               the program or one of its libraries has a symbol table. Stacks then
                               have all functions that are inlined at a return address. A site is
                               shown as the innermost of them that is not of a standard library.
                               symbolize names the places of the 200 largest sites and stacks, by
                               live, by peak and by allocated bytes. Other places keep the names of
                               dynamic symbols. symbolize can also name the functions of a JSON
                               report later, and on another machine; then it names all places. The
                               time in the last report is that of the program's end, before
                               symbolize runs
        MEMLORD_FOLD=1         symbolize leaves the arguments of templates out of names
        MEMLORD_STACK_BYTES=n  take the stack of one allocation in every n bytes in the mean,
                               524288 if not set; 1 takes the stack of every allocation. Each run
                               takes another sample
        MEMLORD_STACK_DEPTH=n  take at most n frames of each stack, 64 if not set; 0 takes no
                               stacks
        MEMLORD_SKIP=a,b       leave out the functions a and b, which only wrap malloc. The site
                               is then the place that called them, and stacks begin there. The
                               names are those that nm prints, and the functions are looked for in
                               the modules that are loaded at the start
        MEMLORD_EXACT=1        make peaks exact with several threads, too. The threads then share
                               the counters. Without it a peak may be too low, by at most the
                               `peak_error` that the report has beside it
        MEMLORD_ARGUMENTS=1    reports as TEXT, JSON, HTML and TRACE have the program's arguments,
                               cut to 1 KiB; they may have secrets in them
        MEMLORD_EVENTS=n       keep the last n allocations and frees, so that the report has
                               lifetimes and a curve
        MEMLORD_SNAPSHOTS=ms   note what is live at most every so many milliseconds, 10 if not set,
                               so that a report has it over time; 0 notes nothing. The calls that
                               allocate and free do so, without a thread. A report has up to 255
                               notes, spread over the whole run, and its own
        MEMLORD_SIGNAL=n       write the report on signal n (10 is SIGUSR1), and let the program
                               go on
        MEMLORD_EVERY=n        write the report again every n seconds, at the first allocation or
                               free after that time; a path such as heap.%p.%n.json keeps all
                               reports, for memlord-diff
        MEMLORD_REPORT_ON=TERM,INT,HUP
                               write a report before the program dies of one of these signals; TERM
                               if not set, none if empty

    The next report replaces a file in one step. A signal of MEMLORD_REPORT_ON counts only while the
    program leaves the signal at its default action. The program and its children still see that
    action, and the program still dies of the signal. The report is written in the handler, or at
    the end of the call of malloc that the signal interrupted. If that call takes longer than 2
    seconds, or the report longer than 30, the program dies without a report, and says so.

    These calls are counted: malloc, calloc, realloc, reallocarray, posix_memalign, aligned_alloc,
    memalign, valloc, pvalloc and free, and with them strdup, fopen and all others that use these;
    operator new and delete, also those of libjemalloc, libtcmalloc and libmimalloc; mallocx,
    rallocx, xallocx, dallocx and sdallocx of libjemalloc, if the module that calls them is loaded
    at the start. A block has the size that was asked for. A site is the place of the call. For an
    operator new it is the place that called the operator. An allocation that returns NULL counts as
    one that found no memory, and the report has the size and the site of the last one. Sites are
    exact, and stacks are samples unless MEMLORD_STACK_BYTES is 1. Stacks are taken by
    libunwind.so.8 where it is installed, and else by the unwinder of libgcc. That takes 20 times as
    long, and ends at code without unwind tables, such as that which node and Java make at run time.
    libunwind goes on there if that code has frame pointers, for Java with
    -XX:+PreserveFramePointer. A stack that does not reach its root begins with a frame that says
    why, such as "[cut: no unwind table]". Stacks and skipped functions never change the totals.

    heaptrack shows the same stacks, but for these differences. It counts a realloc as an allocation
    of all bytes. Here a realloc moves the block to the stack of its call, and counts no alloc; only
    the growth counts as allocated. While dlopen loads a library, heaptrack does not know the
    library yet. It names no function of the library in the stacks of its constructors. Each return
    address in them has no name in later stacks either. It does not mark a stack that is cut. Its
    flame graph has the functions that are inlined at one address in the opposite order. Its stacks
    end at main, and show the newer names of Rust as they are in the file, not demangled. A report
    as JSON has at most 2048 stacks, and says how many more there are.

    A child that executes a program has a report of its own. A child that is only forked inherits
    the live blocks and may free them, so they stay live in its report. Its totals, peaks and curve
    begin at the fork, but its times count from the start of the first parent. Put a %p into the
    path if a program has children. Otherwise the report of the last process to exit replaces the
    others. A program that reads the stderr of its children, as cmake does, finds their reports in
    it, so it needs a MEMLORD_REPORT.

    A program may have ledgers of its own by memlord.h, beside that of this library. The tags and
    scopes that it begins and ends hold for the blocks of malloc, too. If it saves a report to the
    path of MEMLORD_REPORT, this library writes its own to "interposer-" and that name, and a line
    on stderr says so.

    This library does not see a program that has a malloc of its own in its executable, a program
    built with AddressSanitizer, or calls of an allocator by names of its own (mi_malloc,
    tc_malloc). If these can be detected, the labels in the report say so. It sees neither what a Go
    program allocates nor its end. A line on stderr, or a report at MEMLORD_REPORT, says so when the
    program starts. It does not see static programs, set-uid programs (for which the loader ignores
    LD_PRELOAD), libraries opened with RTLD_DEEPBIND (so blocks that they free for others look live)
    or mmap. A program that uses another C library than the one this library was built for does not
    start, and its loader names this library. If dlopen brings C++ to a program in C, and the C
    library is musl or a glibc before 2.35, malloc and free stand for operators new and delete.

    There is no report after abort, after a signal that is not in MEMLORD_REPORT_ON, or after one
    whose action the program set by a system call of its own. There is none of a process that exits
    by a system call of its own. Go programs do both. There is none of the first process of a
    container if the process is sent a signal of MEMLORD_REPORT_ON, and none of a process that vfork
    or a bare clone made, until it executes a program. There is none if a signal handler that
    interrupted malloc ends the program.

    A program may enter a sandbox by prctl or syscall. If its seccomp filter kills the process for a
    call that a report needs, there is no report, and a line on stderr says so when the filter is
    set. From then on this library makes no call for which the filter kills. A filter that was set
    before the program was executed, or by code of the program that enters the system itself, has to
    allow what this library calls. If a filter refuses calls with an error, the report goes where
    it still can, or a line on stderr says that there is none.

    A program that closes stderr to let go of a pipe goes on holding the pipe until it exits, unless
    MEMLORD_REPORT is a path. If stderr was closed before the start, nothing is written. If stderr
    is full and nobody reads it, the program ends after ten seconds, and the report is cut off.
*/
#define _GNU_SOURCE /* RTLD_NEXT, dladdr, F_DUPFD_CLOEXEC */

/* The interposer (this library) has a private copy of MemLord, whose names cannot clash with those
   of a MemLord in the program. The thread-local variables of the copy are initial-exec, because
   libc allocates dynamic ones with malloc, which this library replaces. */
#include <sched.h>     /* sched_yield */
#include <sys/mman.h>  /* madvise, mmap, mprotect */
#include <time.h>      /* nanosleep, clock_gettime */
#include <unistd.h>    /* getpid, write, close */

/* The process that the ledger `lord` belongs to. A child that was made by vfork, or by a
   direct call of clone, sees the ledger of its parent. */
static pid_t self;

/* 1: a filter of the program kills it for one of these calls (see preload/sandbox.h). MemLord and
   this library then do without all of them. */
static int sandboxed;
#define madvise(at, size, advice) (sandboxed ? -1 : madvise(at, size, advice))
#define nanosleep(time, left) (sandboxed ? -1 : nanosleep(time, left))
#define sched_yield() (sandboxed ? -1 : sched_yield())
static pid_t own_id(void) {
    const pid_t id = sandboxed ? self : getpid();
    return id < 0 ? self : id; /* a filter refuses the call */
}
#define getpid() own_id()

#define MEMLORD_STATIC
#define MEMLORD_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#undef getpid
#define getpid() (sandboxed ? self : getpid())

#include <dlfcn.h>     /* dlsym, which finds the real functions */
#include <elf.h>       /* the symbols of a module's file */
#include <errno.h>     /* EINTR, ENOMEM */
#include <fcntl.h>     /* F_DUPFD_CLOEXEC */
#include <limits.h>    /* PATH_MAX */
#include <link.h>      /* dl_iterate_phdr: the modules */
#include <poll.h>      /* poll, which waits with a time limit */
#include <pthread.h>   /* pthread_atfork */
#include <setjmp.h>    /* siglongjmp, the way out of an unwinder that crashes */
#include <signal.h>    /* SIGPIPE and others, which are blocked during a report */
#include <spawn.h>     /* posix_spawn, which starts symbolize */
#include <stdio.h>     /* snprintf */
#include <stdlib.h>    /* malloc and others that are replaced here, getenv, strtol */
#include <sys/auxv.h>   /* AT_SECURE */
#include <sys/resource.h> /* setpriority */
#include <sys/socket.h> /* socketpair, which connects this library to symbolize */
#include <sys/stat.h>  /* fstat, which tells which file a descriptor is */
#include <sys/syscall.h> /* exit_group */
#include <sys/wait.h>  /* waitpid */
#include <ucontext.h> /* the registers from which libunwind begins to walk the stack */
#include <unwind.h>    /* _Unwind_Backtrace, of libgcc */

#define EXPORT __attribute__((visibility("default")))
#define CALLER() __builtin_extract_return_addr(__builtin_return_address(0))

/* ------------------------------------------------------------------ the real functions -- */

/* The memory that malloc returns before the real malloc of the C library is known. dlsym may
   allocate while it looks for the real malloc. This memory is never freed. */
#define BOOT_BYTES 65536
#define BOOT_ALIGN 16
static unsigned char boot[BOOT_BYTES] __attribute__((aligned(BOOT_ALIGN)));
static size_t boot_used;

static void *boot_alloc(size_t size) {
    size_t room = (size + BOOT_ALIGN - 1) & ~(size_t)(BOOT_ALIGN - 1);
    size_t at;
    if (room < size || room > BOOT_BYTES) return NULL;
    at = __atomic_fetch_add(&boot_used, room, __ATOMIC_RELAXED);
    return at <= BOOT_BYTES - room ? boot + at : NULL;
}

static inline int is_boot(const void *ptr) {
    return (uintptr_t)ptr - (uintptr_t)boot < BOOT_BYTES;
}

static void *first_malloc(size_t size);
static void *first_calloc(size_t n, size_t size);
static void *first_realloc(void *ptr, size_t size);
static void first_free(void *ptr);
static int first_posix_memalign(void **out, size_t align, size_t size);
static void *first_aligned_alloc(size_t align, size_t size);
static void *first_memalign(size_t align, size_t size);
static void first_exit(int status) __attribute__((noreturn));

/* Pointers to the functions of the C library that this library replaces. At first each points to a
   function that finds all these functions, so a caller need not test whether they are known. */
static struct {
    void *(*malloc)(size_t size);
    void *(*calloc)(size_t n, size_t size);
    void *(*realloc)(void *ptr, size_t size);
    void (*free)(void *ptr);
    int (*posix_memalign)(void **out, size_t align, size_t size);
    void *(*aligned_alloc)(size_t align, size_t size);
    void *(*memalign)(size_t align, size_t size);
    void (*exit)(int status) __attribute__((noreturn));
} real = {first_malloc,         first_calloc,        first_realloc,  first_free,
          first_posix_memalign, first_aligned_alloc, first_memalign, first_exit};

static memlord *lord;

/* The memory of the loader, and how often it has called calloc. It does so for each module that it
   loads, before the module can be found. */
static struct {
    uintptr_t from;
    size_t bytes;
    unsigned long loads;
} loader;

/* Not 0 while this thread is inside this library. What the thread allocates then is not the
   program's. */
static __thread int inside __attribute__((tls_model("initial-exec")));

/* The value of `inside` while this thread calls functions that do not belong to this library. They
   may free blocks that the ledger has. */
#define LENT 2

/* The operator new that this thread is in. `caller` is the place of its call, or NULL if the thread
   is in none. `counted` is the last block that a malloc called by the operator has recorded.
   `deleted` is the last block that an operator delete has recorded. */
static __thread struct {
    void *caller, *counted, *deleted;
} origin __attribute__((tls_model("initial-exec")));

static int no_reports; /* 1: a filter of the program kills it for a call that a report needs */
static int finished; /* 1: a report is being written; 2: the last report has been written */
static int reports = 1; /* the number that the next report of this process has */
static uint32_t snapshots_ms; /* the interval of the snapshots, in ms; 0: none are taken */

/* The function that a thread calls when it leaves this library, or NULL. The function writes a
   report if one is due. The handler of a signal sets this pointer. With MEMLORD_EVERY it is always
   set, and the function looks at the clock. */
static void (*at_call_end)(void);

/* Ends a call of a replaced function. If a signal came while `inside` was set, the signal's handler
   has set at_call_end, and the report is written here. The handler of a later signal finds `inside`
   at 0, and writes the report itself. */
static inline void leave(void) {
    void (*serve)(void);
    inside = 0;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    serve = __atomic_load_n(&at_call_end, __ATOMIC_RELAXED);
    if (__builtin_expect(serve != NULL, 0)) serve();
}

#include "preload/settings.h"

/* -- stacks -- */

#define STACK_DEPTH 64
#define STACK_DEPTH_MAX 128 /* the most frames that MemLord keeps of a stack */

/* Takes a stack by libunwind. NULL if libunwind is not used; then libgcc takes the stacks.
   libunwind remembers the layout of frames, and gets through code without unwind tables if that
   code has frame pointers. libgcc's unwinder is linked into this library. It needs no
   initialization, no lock of its own and no descriptor, but takes 20 times as long. */
static size_t (*fast_unwind)(void **frames, size_t cap);

typedef struct walk {
    void **frames;
    size_t count, cap;
    uintptr_t end; /* the address where the last frame ends on the stack */
    int rooted;    /* 1: the walk has reached the root of the stack */
} walk;

/* Adds a frame to the walk. Stops if a damaged stack repeats the same frame. At the root the
   address is 0. (memlord.h has only a weak reference to _Unwind_Backtrace, for which the linker
   takes nothing from libgcc. The call of _Unwind_GetCFA makes the linker take both functions.) */
static _Unwind_Reason_Code walk_frame(struct _Unwind_Context *context, void *user) {
    walk *w = (walk *)user;
    void *address = (void *)(uintptr_t)_Unwind_GetIP(context);
    const uintptr_t end = (uintptr_t)_Unwind_GetCFA(context);
    w->rooted = !address;
    if (w->count == w->cap || !address) return _URC_END_OF_STACK;
    if (w->count && end == w->end && address == w->frames[w->count - 1]) return _URC_END_OF_STACK;
    w->end = end;
    w->frames[w->count++] = address;
    return _URC_NO_REASON;
}

static size_t unwind_by_libgcc(void **frames, size_t cap) {
    walk w;
    memset(&w, 0, sizeof w);
    w.frames = frames;
    w.cap = cap;
    (void)_Unwind_Backtrace(walk_frame, &w);
    if (w.count && w.count < cap && !w.rooted) frames[w.count++] = MEMLORD_FRAME_LOST;
    return w.count;
}

/* An unwinder may hold locks, which a forked child would find taken for ever. So no thread begins
   to unwind while another thread forks, and a fork waits for the threads that unwind. */
static struct {
    int inside; /* how many threads unwind */
    int closed; /* how many threads fork */
} unwinders;
static __thread int unwinding __attribute__((tls_model("initial-exec"))); /* 1: this thread
                                                                             unwinds */

/* Where this thread goes on if the unwinder crashes (see preload/guard.h), or NULL while this
   thread does not unwind. */
static __thread sigjmp_buf *escape __attribute__((tls_model("initial-exec")));
static unsigned lost_stacks; /* how often an unwinder crashed or hung */
#define LOST_STACKS 3        /* after this many failures no stacks are taken any more */

/* Counts a failure of the unwinder. From now on the unwinder of libgcc takes the stacks. */
static void lose_stack(void) {
    __atomic_store_n(&fast_unwind, NULL, __ATOMIC_RELAXED);
    (void)__atomic_add_fetch(&lost_stacks, 1, __ATOMIC_RELAXED);
}

/* Takes the stack of this thread. Returns the number of frames, or 0 if the unwinder fails. */
static __attribute__((noinline)) size_t unwind_or_lose(void **frames, size_t cap) {
    size_t (*fast)(void **, size_t) = __atomic_load_n(&fast_unwind, __ATOMIC_ACQUIRE);
    sigjmp_buf here;
    size_t n;
    if (sigsetjmp(here, 0)) {
        escape = NULL;
        lose_stack();
        return 0;
    }
    escape = &here;
    n = fast ? fast(frames, cap) : unwind_by_libgcc(frames, cap);
    escape = NULL;
    return n;
}

static int begin_limit(timer_t *limit);

/* Takes the stack of this thread. The ledger calls this function as its memlord_unwinder. */
static size_t take_stack(void *unused, void **frames, size_t cap) {
    const int error = errno;
    size_t n = 0;
    (void)unused;
    unwinding = 1;
    (void)__atomic_add_fetch(&unwinders.inside, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&unwinders.closed, __ATOMIC_SEQ_CST) && /* pairs with the addition in
                                                                    close_unwinders */
        __atomic_load_n(&lost_stacks, __ATOMIC_RELAXED) < LOST_STACKS) {
        timer_t limit;
        const int limited = begin_limit(&limit);
        n = unwind_or_lose(frames, cap);
        if (limited) (void)timer_delete(limit);
    }
    (void)__atomic_sub_fetch(&unwinders.inside, 1, __ATOMIC_RELEASE);
    unwinding = 0;
    errno = error;
    return n;
}

static void close_unwinders(void) {
    static const struct timespec a_little = {0, 100000};
    int i;
    (void)__atomic_add_fetch(&unwinders.closed, 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < 10000 && __atomic_load_n(&unwinders.inside, __ATOMIC_SEQ_CST) > unwinding; i++)
        (void)nanosleep(&a_little, NULL); /* at most 10000 times, because a thread that was killed
                                             inside an unwinder never leaves it */
}

static void open_unwinders(void) {
    (void)__atomic_sub_fetch(&unwinders.closed, 1, __ATOMIC_SEQ_CST);
}

/* Starts totals, peaks and snapshots anew in a forked child, which keeps only the live blocks of
   its parent. memlord_snapshots_start takes the first snapshot. */
static void forked(void) {
    inside = 1;
    unwinders.inside = unwinding;
    unwinders.closed = 0;
    reports = 1;
    __atomic_store_n(&finished, no_reports ? 2 : 0, __ATOMIC_RELAXED);
    mli_u64_store(&lord->program_ended, 0);
    memlord_reset(lord);
    mli_snapshots_clear(lord);
    if (snapshots_ms) (void)memlord_snapshots_start(lord, snapshots_ms);
    inside = 0;
}

static uint32_t stack_depth(void) {
    const char *text = getenv("MEMLORD_STACK_DEPTH");
    unsigned long n = number_of("MEMLORD_STACK_DEPTH");
    if (text && !strcmp(text, "0")) return 0;
    if (!n) return STACK_DEPTH;
    return (uint32_t)(n < STACK_DEPTH_MAX ? n : STACK_DEPTH_MAX);
}

static void open_ledger(void) {
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    memlord_os_allocator(&desc.allocator);
    desc.flags = MEMLORD_FLAG_SITES | MEMLORD_FLAG_NO_SNAPSHOT_THREAD;
    if (number_of("MEMLORD_EXACT")) desc.flags |= MEMLORD_FLAG_EXACT;
    desc.stack_depth = stack_depth();
    desc.stack_bytes = number_of("MEMLORD_STACK_BYTES");
    desc.unwinder.fn = take_stack;
    if (memlord_create(&desc, &lord) == MEMLORD_OK)
        (void)pthread_atfork(close_unwinders, open_unwinders, forked);
}

/* Finds a function of a library, and copies its address to *function. The address is copied because
   C99 has no cast from void * to a function pointer. Returns 0, and leaves *function as it is, if
   the library has no such function. */
static int find_in(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    if (found) memcpy(function, &found, sizeof found);
    return found != NULL;
}

/* Finds the function of this name in the libraries that are loaded after this one. */
static void find(const char *name, void *function) { (void)find_in(RTLD_NEXT, name, function); }

/* Frees the error texts of this library's calls of dlsym, which libc keeps until dlerror is called
   twice. Otherwise a later dlerror of the program would free a block that the ledger does not
   have. */
static void forget_errors(void) {
    while (dlerror()) {}
}

static void find_others(void);

/* Finds the real functions. Returns 0 while this or another thread is looking for them. */
static int start(void) {
    static int state; /* 0 at first, 1 under way, 2 done */
    int expected = 0;
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == 2) return 1;
    if (!__atomic_compare_exchange_n(&state, &expected, 1, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_ACQUIRE)) {
        return expected == 2;
    }
    find("free", &real.free); /* free comes first, so that every block that the other functions give
                                 can be freed */
    find("malloc", &real.malloc);
    find("calloc", &real.calloc);
    find("realloc", &real.realloc);
    find("posix_memalign", &real.posix_memalign);
    find("aligned_alloc", &real.aligned_alloc);
    find("memalign", &real.memalign);
    find("_exit", &real.exit);
    __atomic_store_n(&state, 2, __ATOMIC_RELEASE);
    open_ledger();
    find_others();
    return 1;
}

/* Returns 1 if the real functions are known. Looks for them if this is the first call. */
static int started(void) {
    const int before = inside;
    int done;
    if (!inside) inside = 1;
    done = start();
    inside = before;
    return done;
}

static void *first_malloc(size_t size) {
    return start() && real.malloc != first_malloc ? real.malloc(size) : boot_alloc(size);
}

static void *first_calloc(size_t n, size_t size) {
    if (start() && real.calloc != first_calloc) return real.calloc(n, size);
    return size && n > SIZE_MAX / size ? NULL : boot_alloc(n * size); /* this memory was never used,
                                                                         so it is zero */
}

static void *first_realloc(void *ptr, size_t size) {
    if (start() && real.realloc != first_realloc) return real.realloc(ptr, size);
    return ptr ? NULL : boot_alloc(size);
}

static void first_free(void *ptr) {
    if (start() && real.free != first_free) real.free(ptr);
}

static int first_posix_memalign(void **out, size_t align, size_t size) {
    if (!start() || real.posix_memalign == first_posix_memalign) return ENOMEM;
    return real.posix_memalign(out, align, size);
}

static void *first_aligned_alloc(size_t align, size_t size) {
    if (start() && real.aligned_alloc != first_aligned_alloc) {
        return real.aligned_alloc(align, size);
    }
    errno = ENOMEM;
    return NULL;
}

static void *first_memalign(size_t align, size_t size) {
    if (start() && real.memalign != first_memalign) return real.memalign(align, size);
    errno = ENOMEM;
    return NULL;
}

static void first_exit(int status) {
    if (start() && real.exit != first_exit) real.exit(status);
    for (;;) (void)syscall(SYS_exit_group, status);
}

/* The other parts of the interposer. Each comes after the parts that it uses. */
#include "preload/hooks.h"
#include "preload/imports.h"
#include "preload/scopes.h"
#include "preload/operators.h"
#include "preload/guard.h"
#include "preload/frames.h"
#include "preload/descriptor.h"
#include "preload/symbols.h"
#include "preload/paths.h"
#include "preload/report.h"

/* ----------------------------------------------------------- tags of the program's own -- */

/* Tags and scopes that begin in a ledger of the program also begin in the ledger of this library.
   If there is no room for a tag or scope, `lost` only counts it and those that begin inside it. So
   each end still ends the tag or scope that it belongs to. */
enum { TAGS, SCOPES };
static __thread unsigned lost[2] __attribute__((tls_model("initial-exec")));

static void begin_here(int kind, const char *name,
                       memlord_result (*how)(memlord *lord, const char *name)) {
    if (inside) return;
    inside = 1;
    if (lost[kind] || how(lord, name) != MEMLORD_OK) lost[kind]++;
    leave();
}

static void end_here(int kind, memlord_result (*how)(memlord *lord)) {
    if (inside) return;
    inside = 1;
    if (lost[kind])
        lost[kind]--;
    else
        (void)how(lord);
    leave();
}

static void begin_tag(const char *tag) { begin_here(TAGS, tag, memlord_tag_begin); }
static void end_tag(void) { end_here(TAGS, memlord_tag_end); }
static void begin_scope(const char *name) { begin_here(SCOPES, name, memlord_scope_begin); }
static void end_scope(void) { end_here(SCOPES, memlord_scope_end); }

EXPORT memlord_interposer exported __asm__("memlord_interposer");
EXPORT memlord_interposer exported = {
    sizeof exported, 1, NULL, begin_tag, end_tag, begin_scope, end_scope};

#include "preload/signals.h"
#include "preload/sandbox.h"

/* Finds the functions that hooks call later. After the start no hook calls the loader for that. */
static void find_others(void) {
    find("sigaction", &real_sigaction);
    find("rename", &real_rename);
    find("syscall", &real_syscall);
    find_signals();
    find_scopes();
}

/* With a NULL module, __cxa_atexit registers a function that runs after the destructors of all
   modules. */
extern int __cxa_atexit(void (*fn)(void *), void *user, void *module);

__attribute__((constructor)) static void begin(void) {
    const int error = errno; /* C promises that it is 0 when main begins */
    inside = LENT;
    if (start() && lord) {
        const char *other = other_malloc();
        self = getpid();
        find_operators();
        find_jemalloc();
        if (stack_depth() || getenv("MEMLORD_SKIP")) {
            begin_guard();
            if (!other) open_libunwind();
        }
        read_skips();
        name_unseen(other);
        know_stderr();
        read_environment();
        if (!want.path[0]) keep_stderr();
        begin_symbolize();
        exported.lord = lord;
        begin_recording();
        begin_signals();
        name_go();
        (void)__cxa_atexit(finish, NULL, NULL);
        (void)at_quick_exit(finish_quickly);
        forget_errors();
    }
    leave();
    errno = error;
}
