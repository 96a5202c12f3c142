/*
    preload.c - the books of a program you cannot change: every block of its heap, and the call
                that allocated it. Linux and other systems with LD_PRELOAD, glibc or musl.

        LD_PRELOAD=build/libmemlord_preload.so sort big.txt > sorted.txt

    Build with

        gcc -std=c99 -O2 -fPIC -shared -fvisibility=hidden -fexceptions -static-libgcc \
            -pthread -I. src/tools/preload.c -o build/libmemlord_preload.so -Wl,-z,now -ldl

    At exit, after the program's last destructor, a TEXT report goes to the stderr the program
    was started with, be it closed by then. Environment, read once at the start. Numbers are
    decimal, without a unit; one that cannot be read, or is negative, counts as unset:

        MEMLORD_REPORT=path    write there instead, as what its suffix says (.html, .json,
                               .heaptrack ...); %p is the process id, %% a percent sign; a
                               relative path is taken from where the program starts; "-" is
                               stderr. At the end .folded shows what was live at the peak if less
                               than a quarter of that is left, else live bytes; .live.folded,
                               .peak.folded and .allocated.folded make the choice
        MEMLORD_SYMBOLS=n      1: name files and lines with symbolize, a program beside this
                               library (src/tools/symbolize.c); 0: do not; unset: it is run where
                               the process took longer than a second. A return address has one
                               name: the innermost function inlined there that is not of a
                               standard library. A report as JSON can be named later, and
                               elsewhere: then it has the whole chain of inlined functions
        MEMLORD_STACK_BYTES=n  take the stack of an allocation each n bytes in the mean, 524288;
                               1 takes every one. Each run takes another sample
        MEMLORD_STACK_DEPTH=n  at most so many frames of each, 32; 0 takes no stacks
        MEMLORD_SKIP=a,b       leave the functions a and b out, which only wrap malloc: the site
                               is the place that called them, and stacks begin there; the names
                               are those that nm prints, of the modules that are there at the start
        MEMLORD_EXACT=1        make peaks exact with several threads, too: the threads then share
                               the counters. Without it a peak is low by at most the
                               `peak_error` that the report has beside it
        MEMLORD_EVENTS=n       keep the last n allocations and frees: lifetimes, and a curve
        MEMLORD_SNAPSHOTS=ms   keep what is live so often, from a thread of its own
        MEMLORD_SIGNAL=n       on that signal (10 is SIGUSR1) write the report, and go on
        MEMLORD_EVERY=n        write the report again every n seconds, at the next allocation or
                               free from then
        MEMLORD_REPORT_ON=TERM,INT,HUP
                               signals of which the program dies with a report; TERM if not set,
                               none if empty

    A file is replaced by the next report in one step. A signal of MEMLORD_REPORT_ON counts only
    while the program leaves it at its default. To the program and to its children the default is
    still there, and the program still dies of the signal. The report is written in the handler,
    or at the end of the call of malloc that the signal interrupted. If that call takes longer
    than 2 seconds, or the report longer than 30, the program dies without one, and says so.

    Counted: malloc, calloc, realloc, reallocarray, posix_memalign, aligned_alloc, memalign,
    valloc, pvalloc and free, and with them strdup, fopen and whatever else is made of these;
    operator new and delete, also those of libjemalloc, libtcmalloc and libmimalloc; mallocx,
    rallocx, xallocx, dallocx and sdallocx of libjemalloc, where the module that calls them is
    there at the start. A block is as large as was asked for. A site is the place of the call; of
    an operator new it is the place that called the operator. Sites are exact; stacks are samples
    unless MEMLORD_STACK_BYTES is 1. With MEMLORD_STACK_BYTES below 65536, or MEMLORD_SKIP, stacks
    are taken by libunwind.so.8 where it is installed: it is 20 times as fast, and takes 0.4 ms to
    start. Stacks and skipped functions never change the totals.

    Children that are executed are programs of their own, with a report of their own. A child
    that is only forked inherits the living blocks, and it may free them, so they stay in its
    books as live; its totals and peaks begin at the fork. Give children a %p, or the last one
    to exit is the one that is read.

    A program that keeps books of its own with memlord.h has them beside these. The tags and
    scopes that it begins and ends cover what malloc gives here, too.

    Not seen: a program that brings its own malloc inside its executable, one built with
    AddressSanitizer, calls of an allocator by names of its own (mi_malloc, tc_malloc): where these
    can be told, the labels in the report say so. Nor what a program of Go allocates, nor its end:
    one line on stderr, or a report at MEMLORD_REPORT, says so when it starts. Nor static programs,
    set-uid programs (the loader ignores LD_PRELOAD), libraries opened with RTLD_DEEPBIND (what they
    free for others looks live), mmap. A program on another C library than the one this was built
    for does not start, and its loader names this library. No report: after abort or a signal that
    is not in MEMLORD_REPORT_ON, or one that the program set by a system call of its own, of what
    ends by such a call (as Go does both); of the first process of a container that is sent one; of
    what vfork or a bare clone makes until it executes; and when a signal handler that interrupted
    malloc ends the program. A program that closes stderr to let go of a pipe goes on holding it
    until it exits, unless MEMLORD_REPORT is a path. If stderr was closed before the start, there is
    nowhere to write and nothing is written; where it is full and nobody reads, the program ends
    after ten seconds with the report cut off.
*/
#define _GNU_SOURCE /* RTLD_NEXT, dladdr, F_DUPFD_CLOEXEC */

/* The interposer has a private copy of the library, whose names cannot clash with those of a
   MemLord in the host. The copy's thread-locals are initial-exec, because libc allocates dynamic
   ones with malloc, which this library replaces. */
#define MEMLORD_STATIC
#define MEMLORD_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

#include <dlfcn.h>     /* dlsym: the real functions */
#include <elf.h>       /* the symbols of a module's file */
#include <errno.h>     /* EINTR, ENOMEM */
#include <fcntl.h>     /* F_DUPFD_CLOEXEC */
#include <limits.h>    /* PATH_MAX */
#include <link.h>      /* dl_iterate_phdr: the modules */
#include <poll.h>      /* waits with a time limit */
#include <pthread.h>   /* pthread_atfork */
#include <signal.h>    /* SIGPIPE and others, while reporting */
#include <spawn.h>     /* posix_spawn: symbolize */
#include <stdio.h>     /* snprintf */
#include <stdlib.h>    /* what is interposed, getenv, strtol */
#include <sys/auxv.h>   /* AT_SECURE */
#include <sys/mman.h>   /* mmap, mprotect */
#include <sys/socket.h> /* socketpair: to and from symbolize */
#include <sys/stat.h>  /* fstat: whose descriptor it is */
#include <sys/syscall.h> /* exit_group */
#include <sys/wait.h>  /* waitpid */
#include <time.h>      /* clock_gettime */
#include <unistd.h>    /* write, close */
#include <unwind.h>    /* _Unwind_Backtrace, of libgcc */

#define EXPORT __attribute__((visibility("default")))
#define CALLER() __builtin_extract_return_addr(__builtin_return_address(0))

/* ------------------------------------------------------------------ the real functions -- */

/* What dlsym may ask for while it looks for the real functions: served from here, never
   returned. */
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

/* The real functions. Each pointer starts as a function that finds them all, so that a hook need
   not ask whether they are known. */
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

/* Not 0 while this thread is inside this library: what it allocates then is not the program's. */
static __thread int inside __attribute__((tls_model("initial-exec")));

/* The operator new that this thread is in: the place of its call (NULL: the thread is in none),
   and the last block that a malloc inside it has counted. */
static __thread struct {
    void *caller, *counted;
} origin __attribute__((tls_model("initial-exec")));

/* The process that these books belong to. A child of vfork, or of a bare clone, only borrows
   them. */
static pid_t self;
static int finished; /* 1: a report is being written; 2: the last one is written or being written */

/* What runs when a thread leaves MemLord, because a signal or the clock asks for it; NULL:
   nothing. */
static void (*at_call_end)(void);

/* Ends a call. A signal that came while `inside` was set has set at_call_end. A signal that comes
   later finds the thread outside. */
static inline void leave(void) {
    void (*serve)(void);
    inside = 0;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    serve = __atomic_load_n(&at_call_end, __ATOMIC_RELAXED);
    if (__builtin_expect(serve != NULL, 0)) serve();
}

/* Returns a whole number from the environment; 0 if the variable is not set, or is no such
   number. */
static unsigned long number_of(const char *name) {
    const char *text = getenv(name);
    char *end = NULL;
    unsigned long n = text ? strtoul(text, &end, 10) : 0;
    return text && end != text && !*end && *text != '-' ? n : 0;
}

/* -- stacks -- */

#define STACK_DEPTH 32
#define STACK_DEPTH_MAX 128 /* the most frames that MemLord keeps of a stack */

/* The unwinder of libunwind, which remembers the layout of frames; NULL: it is not used. The
   unwinder of libgcc is part of this library. It needs no start, no lock of its own and no
   descriptor, but takes 20 times as long. */
static int (*fast_unwind)(void **frames, int cap);

typedef struct walk {
    void **frames;
    size_t count, cap;
    uintptr_t end; /* where the last frame ends */
} walk;

/* Notes a frame. Stops if the stack is damaged and repeats itself. memlord.h refers to
   _Unwind_Backtrace weakly, which links nothing; the call of _Unwind_GetCFA links both. */
static _Unwind_Reason_Code walk_frame(struct _Unwind_Context *context, void *user) {
    walk *w = (walk *)user;
    void *address = (void *)(uintptr_t)_Unwind_GetIP(context);
    const uintptr_t end = (uintptr_t)_Unwind_GetCFA(context);
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
    return w.count;
}

/* An unwinder may hold locks, which a forked child would find taken for ever. So no thread begins
   to unwind while another one forks, and a fork waits for those that unwind. */
static struct {
    int inside; /* threads that unwind */
    int closed; /* threads that fork */
} unwinders;
static __thread int unwinding __attribute__((tls_model("initial-exec"))); /* 1: this thread
                                                                             unwinds */

/* Takes the stack of this thread; a memlord_unwinder. */
static size_t take_stack(void *unused, void **frames, size_t cap) {
    const int error = errno;
    size_t n = 0;
    (void)unused;
    unwinding = 1;
    (void)__atomic_add_fetch(&unwinders.inside, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&unwinders.closed, __ATOMIC_SEQ_CST)) { /* pairs with close_unwinders */
        int (*fast)(void **, int) = __atomic_load_n(&fast_unwind, __ATOMIC_ACQUIRE);
        int got = fast ? fast(frames, (int)cap) : (int)unwind_by_libgcc(frames, cap);
        n = got > 0 ? (size_t)got : 0;
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
        (void)nanosleep(&a_little, NULL); /* not for ever: a thread may have been killed in an
                                             unwinder */
}

static void open_unwinders(void) {
    (void)__atomic_sub_fetch(&unwinders.closed, 1, __ATOMIC_SEQ_CST);
}

static void forked(void) {
    inside = 1;
    unwinders.inside = unwinding;
    unwinders.closed = 0;
    __atomic_store_n(&finished, 0, __ATOMIC_RELAXED);
    memlord_reset(lord);
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
    desc.flags = MEMLORD_FLAG_SITES;
    if (number_of("MEMLORD_EXACT")) desc.flags |= MEMLORD_FLAG_EXACT;
    desc.stack_depth = stack_depth();
    desc.stack_bytes = number_of("MEMLORD_STACK_BYTES");
    desc.unwinder.fn = take_stack;
    if (memlord_create(&desc, &lord) == MEMLORD_OK)
        (void)pthread_atfork(close_unwinders, open_unwinders, forked);
}

/* Finds the next function of a name. C99 casts no void * to a function pointer, so it is copied. */
static void find(const char *name, void *function) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found) memcpy(function, &found, sizeof found);
}

/* Takes the errors of our calls of dlsym: the program would free a text that is not in the books.
   The first dlerror takes an error, and the next one frees it. */
static void forget_errors(void) {
    while (dlerror()) {}
}

/* Finds the real functions. Returns 0 while this or another thread is looking for them. */
static int start(void) {
    static int state; /* 0, 1: under way, 2: done */
    int expected = 0;
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == 2) return 1;
    if (!__atomic_compare_exchange_n(&state, &expected, 1, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_ACQUIRE)) {
        return expected == 2;
    }
    find("free", &real.free); /* free comes first, so that no block that the others give is lost */
    find("malloc", &real.malloc);
    find("calloc", &real.calloc);
    find("realloc", &real.realloc);
    find("posix_memalign", &real.posix_memalign);
    find("aligned_alloc", &real.aligned_alloc);
    find("memalign", &real.memalign);
    find("_exit", &real.exit);
    __atomic_store_n(&state, 2, __ATOMIC_RELEASE);
    open_ledger();
    return 1;
}

static void *first_malloc(size_t size) {
    return start() && real.malloc != first_malloc ? real.malloc(size) : boot_alloc(size);
}

static void *first_calloc(size_t n, size_t size) {
    if (start() && real.calloc != first_calloc) return real.calloc(n, size);
    return size && n > SIZE_MAX / size ? NULL : boot_alloc(n * size); /* never used: zero */
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

/* The other parts, each after the parts that it uses. */
#include "preload/hooks.h"
#include "preload/operators.h"
#include "preload/imports.h"
#include "preload/frames.h"
#include "preload/descriptor.h"
#include "preload/symbols.h"
#include "preload/report.h"

/* ----------------------------------------------------------- tags of the program's own -- */

/* Tags and scopes that begin in a ledger of the program begin here, too. If one finds no room, it
   and those inside it are only counted, so that each end ends its own begin. */
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

/* atexit for no module: the function runs after the destructors of all modules. */
extern int __cxa_atexit(void (*fn)(void *), void *user, void *module);

__attribute__((constructor)) static void begin(void) {
    inside = 1;
    if (start() && lord) {
        self = getpid();
        find_operators();
        find_jemalloc();
        if (stacks_are_many()) open_libunwind();
        read_skips();
        name_unseen();
        read_environment();
        keep_stderr(!want.path[0]);
        find_symbolize();
        exported.lord = lord;
        begin_recording();
        begin_signals();
        name_go();
        (void)__cxa_atexit(finish, NULL, NULL);
        (void)at_quick_exit(finish_quickly);
        forget_errors();
    }
    leave();
}
