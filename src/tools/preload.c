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
                               stderr
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

/* the library private to this file: nothing of it may meet a MemLord of the host; and its
   thread-locals in the static block, for the dynamic kind is made by malloc */
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

/* Each starts as a function that finds the real ones: so a hook need not ask whether they
   are known. */
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

/* Non-zero while this thread is in here: what is allocated then is not the program's. */
static __thread int inside __attribute__((tls_model("initial-exec")));

/* The operator new that this thread is in: the place of its call, NULL for none, and the block
   that a malloc within it has counted last. */
static __thread struct {
    void *caller, *counted;
} origin __attribute__((tls_model("initial-exec")));

/* The process these books are of. A child of vfork, or of a bare clone, only borrows them. */
static pid_t self;
static int finished; /* 1: a report is being written, 2: the last one is */

/* Runs when a thread leaves MemLord: a signal or the clock asks for it. NULL: nothing does. */
static void (*at_call_end)(void);

/* Ends a call. A signal that came while `inside` was set has set at_call_end; one that comes from
   here on finds the thread outside. */
static inline void leave(void) {
    void (*serve)(void);
    inside = 0;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    serve = __atomic_load_n(&at_call_end, __ATOMIC_RELAXED);
    if (__builtin_expect(serve != NULL, 0)) serve();
}

/* A whole number from the environment; 0 if there is none, or something else. */
static unsigned long number_of(const char *name) {
    const char *text = getenv(name);
    char *end = NULL;
    unsigned long n = text ? strtoul(text, &end, 10) : 0;
    return text && end != text && !*end && *text != '-' ? n : 0;
}

/* -- stacks -- */

#define STACK_DEPTH 32
#define STACK_DEPTH_MAX 128 /* of MemLord */

/* The unwinder of libunwind, which remembers the layout of frames; NULL: it is not used. That of
   libgcc is part of this library: it needs no start, no lock of its own and no descriptor, but
   takes 20 times as long. */
static int (*fast_unwind)(void **frames, int cap);

typedef struct walk {
    void **frames;
    size_t count, cap;
    uintptr_t end; /* where the last frame ends */
} walk;

/* Ends where a stack that is not sound repeats itself. memlord.h refers to _Unwind_Backtrace
   weakly, which links nothing; _Unwind_GetCFA links both. */
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

/* An unwinder may hold locks, which a forked child would find taken for ever: while a thread
   forks none begins, and those under way end before. */
static struct {
    int inside; /* threads that unwind */
    int closed; /* threads that fork */
} unwinders;
static __thread int unwinding __attribute__((tls_model("initial-exec"))); /* 1: this thread does */

/* A memlord_unwinder. */
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
        (void)nanosleep(&a_little, NULL); /* a thread that was killed inside is not waited for */
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

/* A function pointer cannot be cast from void * in C99; it can be copied. */
static void find(const char *name, void *function) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found) memcpy(function, &found, sizeof found);
}

/* Leaves no error of ours to the program, which would free a text that is not in the books: the
   first call takes it, the second frees it. */
static void forget_errors(void) {
    while (dlerror()) {}
}

/* Answers 0 while the real functions are being looked for, by this thread or another. */
static int start(void) {
    static int state; /* 0, 1: under way, 2: done */
    int expected = 0;
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == 2) return 1;
    if (!__atomic_compare_exchange_n(&state, &expected, 1, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_ACQUIRE)) {
        return expected == 2;
    }
    find("free", &real.free); /* first: what the others give out must not be lost */
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

/* --------------------------------------------------------------------------- the hooks -- */

/* The functions that MEMLORD_SKIP names. */
#define MAX_SKIPS 64
static struct {
    uintptr_t from, to;
} skips[MAX_SKIPS];
static size_t skip_count;

static int is_skipped(const void *return_address) {
    const uintptr_t call = (uintptr_t)return_address - 1; /* a call may end its function */
    size_t i = 0;
    while (i < skip_count && (call < skips[i].from || call >= skips[i].to)) i++;
    return i < skip_count;
}

/* The place that called the functions left out; without one, the caller. */
static void *call_outside(void *caller) {
    void *frames[MAX_SKIPS];
    size_t n = take_stack(NULL, frames, MAX_SKIPS), i = 0;
    while (i < n && frames[i] != caller) i++;
    while (i < n && is_skipped(frames[i])) i++;
    return i < n ? frames[i] : caller;
}

/* The site of a caller. Most calls come from where the last one came from. */
static const memlord_site *site_of(void *caller) {
    static __thread __attribute__((tls_model("initial-exec"))) struct {
        void *caller;
        const memlord_site *site;
    } last;
    if (skip_count && is_skipped(caller)) caller = call_outside(caller);
    if (caller != last.caller) {
        last.site = memlord_site_at(lord, caller);
        last.caller = caller;
    }
    return last.site;
}

/* The guard is up around the real call too: an allocator may be made of itself (calloc of
   malloc), and a signal that interrupts it and exits must find out. */
static inline void *opened(void *ptr, size_t size, void *caller) {
    if (origin.caller) {
        caller = origin.caller;
        origin.counted = ptr;
    }
    if (ptr) {
        (void)memlord_alloc(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), size,
                            site_of(caller));
    }
    leave();
    return ptr;
}

EXPORT void *malloc(size_t size) {
    if (inside) return real.malloc(size);
    inside = 1;
    return opened(real.malloc(size), size, CALLER());
}

EXPORT void *calloc(size_t n, size_t size) {
    if (inside) return real.calloc(n, size);
    inside = 1;
    return opened(real.calloc(n, size), n * size, CALLER()); /* it refused an overflow */
}

/* A free names no site: the report is about who allocates, and a second look-up would be a
   fifth of the whole cost. */

/* The real free and realloc begin with the word before the block, which is seldom in the
   cache: its miss overlaps with that of the books. */
static inline void fetch_ahead(const void *ptr) {
    __builtin_prefetch((const void *)((uintptr_t)ptr - 2 * sizeof(size_t)), 1);
}

/* Takes a block off the books. Requires: inside. */
static inline void close_block(void *ptr) {
    (void)memlord_free(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), NULL);
}

EXPORT void free(void *ptr) {
    fetch_ahead(ptr);
    if (is_boot(ptr)) return;
    if (inside) {
        real.free(ptr);
        return;
    }
    inside = 1;
    close_block(ptr);
    real.free(ptr);
    leave();
}

/* More may be copied than was asked for at the time: the size is not kept. */
static void *copy_boot(const void *old, size_t size) {
    size_t most = (size_t)(boot + BOOT_BYTES - (const unsigned char *)old);
    void *fresh = real.malloc(size);
    return fresh ? memcpy(fresh, old, size < most ? size : most) : NULL;
}

/* realloc to 0 frees and answers NULL, or gives a new block, as the allocator likes: so NULL
   would not tell that the old block is still there. */
static void *realloc_to_zero(void *old, void *caller) {
    close_block(old);
    return opened(real.realloc(old, 0), 0, caller);
}

static void *realloc_moving(void *old, size_t size, void *caller) {
    memlord_realloc_token token;
    void *fresh;
    fetch_ahead(old);
    (void)memlord_realloc_begin(lord, memlord_device_cpu(), MEMLORD_KEY(old), &token);
    fresh = real.realloc(old, size);
    (void)memlord_realloc_end(lord, &token, MEMLORD_KEY(fresh), size,
                              site_of(caller));
    if (!fresh) errno = ENOMEM;
    leave();
    return fresh;
}

static inline void *realloc_from(void *old, size_t size, void *caller) {
    if (inside) return is_boot(old) ? copy_boot(old, size) : real.realloc(old, size);
    inside = 1;
    if (is_boot(old)) return opened(copy_boot(old, size), size, caller);
    if (!old) return opened(real.realloc(NULL, size), size, caller);
    return size ? realloc_moving(old, size, caller) : realloc_to_zero(old, caller);
}

EXPORT void *realloc(void *old, size_t size) {
    return realloc_from(old, size, CALLER());
}

/* not in every C library, and in none more than this */
EXPORT void *reallocarray(void *old, size_t n, size_t size) {
    if (size && n > SIZE_MAX / size) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc_from(old, n * size, CALLER());
}

EXPORT int posix_memalign(void **out, size_t align, size_t size) {
    int failed;
    if (inside) return real.posix_memalign(out, align, size);
    inside = 1;
    failed = real.posix_memalign(out, align, size);
    (void)opened(failed ? NULL : *out, size, CALLER());
    return failed;
}

EXPORT void *aligned_alloc(size_t align, size_t size) {
    if (inside) return real.aligned_alloc(align, size);
    inside = 1;
    return opened(real.aligned_alloc(align, size), size, CALLER());
}

EXPORT void *memalign(size_t align, size_t size) {
    if (inside) return real.memalign(align, size);
    inside = 1;
    return opened(real.memalign(align, size), size, CALLER());
}

static void *page_aligned(size_t page, size_t size, void *caller) {
    if (inside) return real.memalign(page, size);
    inside = 1;
    return opened(real.memalign(page, size), size, caller);
}

EXPORT void *valloc(size_t size) {
    return page_aligned((size_t)sysconf(_SC_PAGESIZE), size, CALLER());
}

EXPORT void *pvalloc(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t pages = (size + page - 1) & ~(page - 1);
    if (pages < size) {
        errno = ENOMEM;
        return NULL;
    }
    return page_aligned(page, pages, CALLER());
}

/* -------------------------------------------------------------- operator new and delete -- */

/* All of C++ would be one site, operator new, were the place of its call not noted. An operator
   does what it did: it comes from the C++ library or from the allocator, calls the new handler and
   throws through this frame. That of libstdc++ calls malloc, which counts the block; that of an
   allocator does not, and then the block is counted here.
   The mangled names have the letter of size_t. */
#if SIZE_MAX == ULONG_MAX
#define SIZE_LETTER "m"
#else
#define SIZE_LETTER "j"
#endif

#define NEWS(X)                                                                               \
    X(new_one, "_Znw" SIZE_LETTER, (size_t size), (size))                                     \
    X(new_array, "_Zna" SIZE_LETTER, (size_t size), (size))                                   \
    X(new_one_nothrow, "_Znw" SIZE_LETTER "RKSt9nothrow_t", (size_t size, const void *tag),   \
      (size, tag))                                                                            \
    X(new_array_nothrow, "_Zna" SIZE_LETTER "RKSt9nothrow_t", (size_t size, const void *tag), \
      (size, tag))                                                                            \
    X(new_one_aligned, "_Znw" SIZE_LETTER "St11align_val_t", (size_t size, size_t align),     \
      (size, align))                                                                          \
    X(new_array_aligned, "_Zna" SIZE_LETTER "St11align_val_t", (size_t size, size_t align),   \
      (size, align))                                                                          \
    X(new_one_aligned_nothrow, "_Znw" SIZE_LETTER "St11align_val_tRKSt9nothrow_t",            \
      (size_t size, size_t align, const void *tag), (size, align, tag))                       \
    X(new_array_aligned_nothrow, "_Zna" SIZE_LETTER "St11align_val_tRKSt9nothrow_t",          \
      (size_t size, size_t align, const void *tag), (size, align, tag))

#define DELETES(X)                                                                            \
    X(delete_one, "_ZdlPv", (void *ptr), (ptr))                                               \
    X(delete_array, "_ZdaPv", (void *ptr), (ptr))                                             \
    X(delete_one_sized, "_ZdlPv" SIZE_LETTER, (void *ptr, size_t size), (ptr, size))          \
    X(delete_array_sized, "_ZdaPv" SIZE_LETTER, (void *ptr, size_t size), (ptr, size))        \
    X(delete_one_nothrow, "_ZdlPvRKSt9nothrow_t", (void *ptr, const void *tag), (ptr, tag))   \
    X(delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", (void *ptr, const void *tag), (ptr, tag)) \
    X(delete_one_aligned, "_ZdlPvSt11align_val_t", (void *ptr, size_t align), (ptr, align))   \
    X(delete_array_aligned, "_ZdaPvSt11align_val_t", (void *ptr, size_t align), (ptr, align)) \
    X(delete_one_sized_aligned, "_ZdlPv" SIZE_LETTER "St11align_val_t",                       \
      (void *ptr, size_t size, size_t align), (ptr, size, align))                             \
    X(delete_array_sized_aligned, "_ZdaPv" SIZE_LETTER "St11align_val_t",                     \
      (void *ptr, size_t size, size_t align), (ptr, size, align))                             \
    X(delete_one_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t",                      \
      (void *ptr, size_t align, const void *tag), (ptr, align, tag))                          \
    X(delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t",                    \
      (void *ptr, size_t align, const void *tag), (ptr, align, tag))

#define DECLARE(fn, name, params, args) static void *real_##fn;
NEWS(DECLARE)
DELETES(DECLARE)

/* An exception that passes through an operator new cleans up there, by the unwinder that threw it:
   not by the one linked into this library. Both names are those that the compiler calls. */
typedef int personality(int version, int actions, uint64_t kind, void *exception, void *context);
static personality *thrower_personality;
static void (*thrower_resume)(void *exception);

static void find_thrower(void *library) {
    void *found = dlsym(library, "_Unwind_Resume");
    memcpy(&thrower_resume, &found, sizeof found);
    found = dlsym(library, "__gcc_personality_v0");
    memcpy(&thrower_personality, &found, sizeof found);
}

static __attribute__((used)) personality clean_up_frame __asm__("__gcc_personality_v0");
static int clean_up_frame(int version, int actions, uint64_t kind, void *exception,
                          void *context) {
    enum { CONTINUE = 8 };
    return thrower_personality && thrower_resume
               ? thrower_personality(version, actions, kind, exception, context)
               : CONTINUE;
}

static __attribute__((used)) void resume_throwing(void *exception) __asm__("_Unwind_Resume");
static void resume_throwing(void *exception) { thrower_resume(exception); }

/* A C++ library that came with a module of its own, out of sight of RTLD_NEXT, is in sight of the
   caller's module; it stays open, for its address is kept. */
static void *find_operator(void **known, const char *name, void *caller) {
    const int was_inside = inside;
    void *found, *module;
    Dl_info at;
    inside = 1;
    found = dlsym(RTLD_NEXT, name);
    if (!found && caller && dladdr(caller, &at) && at.dli_fname) {
        module = dlopen(at.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        found = module ? dlsym(module, name) : NULL;
        if (found && !thrower_resume) find_thrower(module);
        forget_errors();
    }
    __atomic_store_n(known, found, __ATOMIC_RELAXED); /* its readers only call it */
    inside = was_inside;
    return found;
}

/* Finds those of a program that is linked with a C++ library: a call may hold any lock. */
static void find_operators(void) {
    if (!find_operator(&real_new_one, "_Znw" SIZE_LETTER, NULL)) return;
#define FIND(fn, name, params, args) (void)find_operator(&real_##fn, name, NULL);
    NEWS(FIND)
    DELETES(FIND)
#undef FIND
    find_thrower(RTLD_NEXT);
}

/* Sets the local `actual` to the real operator. */
#define GET_ACTUAL(fn, name)                                                                  \
    void *found = __atomic_load_n(&real_##fn, __ATOMIC_RELAXED);                              \
    if (!found) found = find_operator(&real_##fn, name, CALLER());                            \
    memcpy(&actual, &found, sizeof actual)

static void end_new(const int *outermost) {
    if (*outermost) origin.caller = origin.counted = NULL;
}

/* Counts the block of an operator new that no malloc has counted. */
static void count_new(void *ptr, size_t size) {
    if (ptr == origin.counted) return;
    inside = 1;
    (void)opened(ptr, size, origin.caller);
}

#define DEFINE_NEW(fn, name, params, args)                                                    \
    EXPORT void *fn params __asm__(name);                                                     \
    EXPORT void *fn params {                                                                  \
        const int outermost __attribute__((cleanup(end_new))) = !inside && !origin.caller;    \
        void *(*actual)params;                                                                \
        void *ptr;                                                                            \
        GET_ACTUAL(fn, name);                                                                 \
        if (outermost) origin.caller = CALLER();                                              \
        ptr = actual ? actual args : malloc(size);                                            \
        if (outermost) count_new(ptr, size);                                                  \
        return ptr;                                                                           \
    }
NEWS(DEFINE_NEW)

/* A block is taken off the books here, whatever the real operator calls. */
#define DEFINE_DELETE(fn, name, params, args)                                                 \
    EXPORT void fn params __asm__(name);                                                      \
    EXPORT void fn params {                                                                   \
        const int outermost = !inside;                                                        \
        void (*actual)params;                                                                 \
        GET_ACTUAL(fn, name);                                                                 \
        inside = 1;                                                                           \
        if (outermost) close_block(ptr);                                                      \
        if (actual) actual args;                                                              \
        else free(ptr);                                                                       \
        if (outermost) leave();                                                               \
    }
DELETES(DEFINE_DELETE)

/* ---------------------------------------------------------------- what reports must say -- */

static char notes[1024]; /* the labels of the reports */

/* Adds to what every report says in a line. Text that does not fit is cut. */
static void add_note(const char *what, const char *which) {
    size_t n = strlen(notes);
    (void)snprintf(notes + n, sizeof notes - n, "%s%s%s", n ? "; " : "", what, which);
    (void)memlord_labels_set(lord, notes);
}

/* --------------------------------------------------------- calls of a module to others -- */

typedef void any_function(void);

/* A module calls a function of another one through slots, which its relocations name. */
typedef struct rebinding {
    const char *name;
    any_function *to;
} rebinding;

typedef struct rebindings {
    const void *module; /* the start of the only module to change; NULL: all */
    const rebinding *at;
    size_t count;
} rebindings;

typedef struct relocations {
    const unsigned char *at;
    size_t bytes;
} relocations;

typedef struct linkage { /* of a module */
    const ElfW(Sym) *symbols;
    const char *strings;
    relocations all, calls;
    size_t stride;
} linkage;

#if UINTPTR_MAX > 0xffffffffu
#define SYMBOL_OF(info) ELF64_R_SYM(info)
#else
#define SYMBOL_OF(info) ELF32_R_SYM(info)
#endif

/* 1: the loader has made the page read-only. */
static int is_sealed(const struct dl_phdr_info *module, uintptr_t page, size_t size) {
    int i;
    for (i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &module->dlpi_phdr[i];
        const uintptr_t from = module->dlpi_addr + p->p_vaddr, to = from + p->p_memsz;
        if (p->p_type == PT_GNU_RELRO && page >= from / size * size && page < to / size * size)
            return 1;
    }
    return 0;
}

static void set_slot(const struct dl_phdr_info *module, uintptr_t slot, any_function *to) {
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = (void *)(slot / size * size);
    const int sealed = is_sealed(module, (uintptr_t)page, size);
    if (slot % sizeof to || (sealed && mprotect(page, size, PROT_READ | PROT_WRITE))) return;
    __atomic_store_n((any_function **)slot, to, __ATOMIC_RELEASE); /* another thread may call */
    if (sealed) (void)mprotect(page, size, PROT_READ);
}

static void rebind_table(const struct dl_phdr_info *module, const linkage *l,
                         const relocations *table, const rebindings *wanted) {
    size_t at, i;
    for (at = 0; at + l->stride <= table->bytes; at += l->stride) {
        const ElfW(Rel) *r = (const ElfW(Rel) *)(const void *)(table->at + at);
        const ElfW(Sym) *symbol = &l->symbols[SYMBOL_OF(r->r_info)];
        if (!SYMBOL_OF(r->r_info) || symbol->st_shndx != SHN_UNDEF) continue;
        for (i = 0; i < wanted->count; i++)
            if (!strcmp(l->strings + symbol->st_name, wanted->at[i].name))
                set_slot(module, module->dlpi_addr + r->r_offset, wanted->at[i].to);
    }
}

/* The addresses are the loaded ones, but for some modules offsets. */
static const void *loaded(const struct dl_phdr_info *module, const ElfW(Dyn) *d) {
    const uintptr_t address = (uintptr_t)d->d_un.d_ptr;
    return (const void *)(address < module->dlpi_addr ? module->dlpi_addr + address : address);
}

static void read_linkage(const struct dl_phdr_info *module, const ElfW(Dyn) *d, linkage *l) {
    memset(l, 0, sizeof *l);
    for (; d->d_tag != DT_NULL; d++) {
        const size_t value = (size_t)d->d_un.d_val;
        switch (d->d_tag) {
        case DT_SYMTAB: l->symbols = (const ElfW(Sym) *)loaded(module, d); break;
        case DT_STRTAB: l->strings = (const char *)loaded(module, d); break;
        case DT_JMPREL: l->calls.at = (const unsigned char *)loaded(module, d); break;
        case DT_PLTRELSZ: l->calls.bytes = value; break;
        case DT_RELA: l->stride = sizeof(ElfW(Rela)); /* fall through */
        case DT_REL: l->all.at = (const unsigned char *)loaded(module, d); break;
        case DT_RELASZ: /* fall through */
        case DT_RELSZ: l->all.bytes = value; break;
        case DT_PLTREL:
            l->stride = value == DT_RELA ? sizeof(ElfW(Rela)) : sizeof(ElfW(Rel));
            break;
        default: break;
        }
    }
    if (!l->stride) l->stride = sizeof(ElfW(Rel));
}

static int rebind_module(struct dl_phdr_info *module, size_t size, void *user) {
    const rebindings *wanted = (const rebindings *)user;
    linkage l;
    int i;
    (void)size;
    if (wanted->module && wanted->module != (const void *)module->dlpi_addr) return 0;
    for (i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &module->dlpi_phdr[i];
        if (p->p_type != PT_DYNAMIC) continue;
        read_linkage(module, (const ElfW(Dyn) *)(module->dlpi_addr + p->p_vaddr), &l);
        if (!l.symbols || !l.strings) continue;
        if (l.all.at) rebind_table(module, &l, &l.all, wanted);
        if (l.calls.at) rebind_table(module, &l, &l.calls, wanted);
    }
    return 0;
}

static void rebind(const void *module, const rebinding *at, size_t count) {
    rebindings wanted;
    wanted.module = module;
    wanted.at = at;
    wanted.count = count;
    (void)dl_iterate_phdr(rebind_module, &wanted);
}

/* ------------------------------------------------------------- jemalloc by its own names -- */

/* These are not exported: `if (mallocx)` must stay false in a program without jemalloc. The calls
   of the modules that are there at the start are rebound. */
static struct {
    void *(*mallocx)(size_t size, int flags);
    void *(*rallocx)(void *ptr, size_t size, int flags);
    size_t (*xallocx)(void *ptr, size_t size, size_t extra, int flags);
    void (*dallocx)(void *ptr, int flags);
    void (*sdallocx)(void *ptr, size_t size, int flags);
} jemalloc;

static void *counted_mallocx(size_t size, int flags) {
    if (inside) return jemalloc.mallocx(size, flags);
    inside = 1;
    return opened(jemalloc.mallocx(size, flags), size, CALLER());
}

static void *counted_rallocx(void *old, size_t size, int flags) {
    memlord_realloc_token token;
    void *fresh;
    if (inside) return jemalloc.rallocx(old, size, flags);
    inside = 1;
    (void)memlord_realloc_begin(lord, memlord_device_cpu(), MEMLORD_KEY(old), &token);
    fresh = jemalloc.rallocx(old, size, flags);
    (void)memlord_realloc_end(lord, &token, MEMLORD_KEY(fresh), size, site_of(CALLER()));
    leave();
    return fresh;
}

/* Resizes in place: the answer is the room that the block has now, which is less than `size` where
   that was refused. */
static size_t counted_xallocx(void *ptr, size_t size, size_t extra, int flags) {
    memlord_realloc_token token;
    size_t room;
    if (inside) return jemalloc.xallocx(ptr, size, extra, flags);
    inside = 1;
    (void)memlord_realloc_begin(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), &token);
    room = jemalloc.xallocx(ptr, size, extra, flags);
    (void)memlord_realloc_end(lord, &token, room < size ? 0 : MEMLORD_KEY(ptr),
                              room < size + extra ? room : size + extra, site_of(CALLER()));
    leave();
    return room;
}

static void counted_dallocx(void *ptr, int flags) {
    const int outermost = !inside;
    inside = 1;
    if (outermost) close_block(ptr);
    jemalloc.dallocx(ptr, flags);
    if (outermost) leave();
}

static void counted_sdallocx(void *ptr, size_t size, int flags) {
    const int outermost = !inside;
    inside = 1;
    if (outermost) close_block(ptr);
    jemalloc.sdallocx(ptr, size, flags);
    if (outermost) leave();
}

static void find_jemalloc(void) {
    static const rebinding calls[] = {{"mallocx", (any_function *)counted_mallocx},
                                      {"rallocx", (any_function *)counted_rallocx},
                                      {"xallocx", (any_function *)counted_xallocx},
                                      {"dallocx", (any_function *)counted_dallocx},
                                      {"sdallocx", (any_function *)counted_sdallocx}};
    if (!dlsym(RTLD_DEFAULT, "mallocx")) return;
    find("mallocx", &jemalloc.mallocx);
    find("rallocx", &jemalloc.rallocx);
    find("xallocx", &jemalloc.xallocx);
    find("dallocx", &jemalloc.dallocx);
    find("sdallocx", &jemalloc.sdallocx);
    if (jemalloc.mallocx && jemalloc.rallocx && jemalloc.xallocx && jemalloc.dallocx &&
        jemalloc.sdallocx)
        rebind(NULL, calls, sizeof calls / sizeof calls[0]);
}

/* ----------------------------------------------------------------------------- libunwind -- */

/* It asks whether an address can be read by writing a byte there into a pipe: two descriptors,
   which a program that closes all would use again for files of its own. So its pipe is none, and
   the system is asked by other means: a request for a signal mask reads the address, and is then
   refused, for its kind is unknown. */
static int no_pipe(int ends[2], int flags) {
    (void)flags;
    ends[0] = ends[1] = -1;
    return 0;
}
static ssize_t read_no_pipe(int fd, void *data, size_t size) {
    return fd < 0 ? 1 : read(fd, data, size);
}
static ssize_t write_no_pipe(int fd, const void *data, size_t size) {
    const uintptr_t word = (uintptr_t)data & ~(uintptr_t)7;
    if (fd >= 0) return write(fd, data, size);
    (void)syscall(SYS_rt_sigprocmask, ~0, word, NULL, 8);
    return errno == EFAULT ? -1 : 1;
}
static long syscall_no_pipe(long number, long a, long b, long c, long d, long e, long f) {
    return number == SYS_write ? write_no_pipe((int)a, (const void *)b, (size_t)c)
                               : syscall(number, a, b, c, d, e, f);
}

#define STACKS_MANY 65536 /* below so many bytes a stack the time of the unwinder counts */

/* 1: libgcc would be too slow, and the start of libunwind, 0.3 ms, is small beside the rest. */
static int stacks_are_many(void) {
    const unsigned long bytes = number_of("MEMLORD_STACK_BYTES");
    return (bytes && bytes < STACKS_MANY && stack_depth()) || getenv("MEMLORD_SKIP");
}

/* Its memory of a thread, for which the loader calls malloc: the free at the end of the thread, by
   then no call of an unwinder, would be that of a block that is unknown. */
#define TLS_ROOM 64
static __thread unsigned char unwinder_tls[TLS_ROOM]
    __attribute__((aligned(16), tls_model("initial-exec")));
static void *own_tls(const size_t *module_and_offset) {
    return unwinder_tls + module_and_offset[1];
}
static int has_small_tls(struct dl_phdr_info *module, size_t size, void *start) {
    int i, fits = 0;
    (void)size;
    for (i = 0; (const void *)module->dlpi_addr == start && i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &module->dlpi_phdr[i];
        if (p->p_type == PT_TLS) fits = !p->p_filesz && p->p_memsz <= TLS_ROOM && p->p_align <= 16;
    }
    return fits;
}

#if defined(__x86_64__)
#define LIBUNWIND(name) "_ULx86_64_" name
#else
#define LIBUNWIND(name) "unw_" name /* not there: so it is not used */
#endif

/* Makes it hold no lock while it asks the loader, for a thread that holds the loader's may
   allocate, and leave descriptors and malloc alone. 0: it cannot be made to. */
static int tame_libunwind(void *library, void *start) {
    static const rebinding calls[] = {{"pipe2", (any_function *)no_pipe},
                                      {"read", (any_function *)read_no_pipe},
                                      {"write", (any_function *)write_no_pipe},
                                      {"syscall", (any_function *)syscall_no_pipe},
                                      {"__tls_get_addr", (any_function *)own_tls}};
    enum { NO_CACHE = 0 }; /* but that of each thread, which needs no lock */
    void **space = (void **)dlsym(library, LIBUNWIND("local_addr_space"));
    void *found = dlsym(library, LIBUNWIND("set_caching_policy"));
    int (*set_policy)(void *space, int policy);
    memcpy(&set_policy, &found, sizeof set_policy);
    if (!dl_iterate_phdr(has_small_tls, start)) return 0;
    rebind(start, calls, sizeof calls / sizeof calls[0]); /* before any call: each may start it */
    return space && set_policy && !set_policy(*space, NO_CACHE);
}

/* Opens it before the program begins, as a call that must not wait for the loader could not. */
static void open_libunwind(void) {
    int (*found)(void **, int) = NULL;
    void *library, *frames[STACK_DEPTH], *symbol;
    Dl_info at;
    if (getauxval(AT_SECURE)) return;
    library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    symbol = library ? dlsym(library, "unw_backtrace") : NULL;
    if (symbol && dladdr(symbol, &at) && tame_libunwind(library, at.dli_fbase))
        memcpy(&found, &symbol, sizeof found);
    if (found && found(frames, STACK_DEPTH) > 2)
        __atomic_store_n(&fast_unwind, found, __ATOMIC_RELEASE); /* pairs with take_stack */
    else
        add_note("stacks take 20 times as long without ", "libunwind.so.8");
}

/* --------------------------------------------------------------- functions left out -- */

static const char *skip_names; /* MEMLORD_SKIP */
static uint64_t skips_found;   /* a bit for each of its names that a symbol has */

/* The name of a symbol; parts that the compiler split off have a dot and more. */
static int is_called(const char *symbol, const char *name, size_t length) {
    return length && !strncmp(symbol, name, length) &&
           (!symbol[length] || symbol[length] == '.');
}

static void skip_if_named(const char *symbol, uintptr_t from, size_t size) {
    const char *name = skip_names;
    unsigned number = 0;
    for (; name; number++) {
        const size_t length = strcspn(name, ",");
        if (is_called(symbol, name, length) && skip_count < MAX_SKIPS) {
            skips[skip_count].from = from;
            skips[skip_count++].to = from + size;
            skips_found |= (uint64_t)1 << number % 64;
        }
        name = name[length] ? name + length + 1 : NULL;
    }
}

/* A file in memory; its numbers are not trusted. */
typedef struct file_image {
    const unsigned char *at;
    size_t size;
} file_image;

static const void *part_of(const file_image *file, uint64_t offset, uint64_t size) {
    if (offset > file->size || size > file->size - offset || offset % sizeof(void *)) return NULL;
    return file->at + offset;
}

static void skip_symbols(const file_image *file, const ElfW(Shdr) *table,
                         const ElfW(Shdr) *text, uintptr_t base) {
    const ElfW(Sym) *symbol = (const ElfW(Sym) *)part_of(file, table->sh_offset, table->sh_size);
    size_t i, n = table->sh_size / sizeof *symbol;
    if (!symbol || text->sh_offset > file->size || !text->sh_size ||
        text->sh_size > file->size - text->sh_offset ||
        file->at[text->sh_offset + text->sh_size - 1])
        return;
    for (i = 0; i < n; i++, symbol++)
        if (ELF32_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF &&
            symbol->st_name < text->sh_size)
            skip_if_named((const char *)file->at + text->sh_offset + symbol->st_name,
                          base + symbol->st_value, symbol->st_size);
}

static void skip_in_file(const file_image *file, uintptr_t base) {
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)part_of(file, 0, sizeof *head);
    const ElfW(Shdr) *section;
    size_t i;
    if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) || head->e_shentsize != sizeof *section)
        return;
    section = (const ElfW(Shdr) *)part_of(file, head->e_shoff, sizeof *section * head->e_shnum);
    for (i = 0; section && i < head->e_shnum; i++)
        if ((section[i].sh_type == SHT_SYMTAB || section[i].sh_type == SHT_DYNSYM) &&
            section[i].sh_link < head->e_shnum)
            skip_symbols(file, &section[i], &section[section[i].sh_link], base);
}

static int skip_in_module(struct dl_phdr_info *module, size_t size, void *user) {
    const int first = (*(int *)user)++ == 0; /* the program: its name is empty */
    int fd = open(first ? "/proc/self/exe" : module->dlpi_name, O_RDONLY | O_CLOEXEC);
    struct stat s;
    file_image file;
    void *map;
    (void)size;
    if (fd < 0) return 0;
    file.size = fstat(fd, &s) || s.st_size <= 0 ? 0 : (size_t)s.st_size;
    map = file.size ? mmap(NULL, file.size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    (void)close(fd);
    if (map == MAP_FAILED) return 0;
    file.at = (const unsigned char *)map;
    skip_in_file(&file, module->dlpi_addr);
    (void)munmap(map, file.size);
    return 0;
}

/* Finds the functions in the symbols of the modules that are there at the start. */
static void read_skips(void) {
    const char *name = skip_names = getenv("MEMLORD_SKIP");
    int modules = 0;
    unsigned number = 0;
    if (!name) return;
    (void)dl_iterate_phdr(skip_in_module, &modules);
    for (; name; number++) {
        const size_t length = strcspn(name, ",");
        char text[128];
        (void)snprintf(text, sizeof text, "%.*s", (int)(length < 100 ? length : 100), name);
        if (length && !(skips_found >> number % 64 & 1))
            add_note("MEMLORD_SKIP names an unknown function: ", text);
        name = name[length] ? name + length + 1 : NULL;
    }
}

/* ------------------------------------------------------------------- what is not seen -- */

/* Says which calls do not come through this library. */
static void name_unseen(void) {
    static const char *const names[] = {"mi_malloc", "tc_malloc", "je_malloc", "_rjem_malloc"};
    Dl_info found, ours;
    void *symbol = NULL; /* undefined: the entry of a table that leads to ours, in a program at a
                            fixed address that takes malloc's */
    size_t i;
#if !defined(__GLIBC__) /* musl has no dladdr1 */
#define dladdr1(address, info, entry, flags) dladdr(address, info)
#endif
    if (dladdr1(dlsym(RTLD_DEFAULT, "malloc"), &found, &symbol, RTLD_DL_SYMENT) &&
        dladdr(notes, &ours) && found.dli_fbase != ours.dli_fbase &&
        !(symbol && ((const ElfW(Sym) *)symbol)->st_shndx == SHN_UNDEF))
        add_note("not seen: malloc of ", found.dli_fname);
    if (dlsym(RTLD_DEFAULT, "__asan_init")) add_note("not seen: malloc of ", "AddressSanitizer");
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        if (dlsym(RTLD_DEFAULT, names[i]))
            add_note("not seen: calls by name of functions like ", names[i]);
}

/* ------------------------------------------------------------------ whose descriptor ----- */

static struct {
    int known;      /* stderr was open at the start */
    dev_t device;   /* what it was */
    ino_t inode;
    int duplicate;  /* -1: none */
} start_stderr;

static int is_start_stderr(int fd) {
    struct stat now;
    return start_stderr.known && fd >= 0 && !fstat(fd, &now) &&
           now.st_dev == start_stderr.device && now.st_ino == start_stderr.inode;
}

/* Programs close stderr before they exit (coreutils do), and use its number again: so a
   duplicate is kept, out of the way of the low numbers, and both are looked at before use. */
static void keep_stderr(int duplicate) {
    static const int floors[] = {1000, 240, 60, 10, 3};
    struct stat now;
    size_t i;
    start_stderr.duplicate = -1;
    if (fstat(STDERR_FILENO, &now)) return;
    start_stderr.known = 1;
    start_stderr.device = now.st_dev;
    start_stderr.inode = now.st_ino;
    for (i = 0; duplicate && start_stderr.duplicate < 0 &&
                i < sizeof floors / sizeof floors[0]; i++) {
        start_stderr.duplicate = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, floors[i]);
    }
}

/* Answers the stderr of the start, or -1. */
static int find_stderr(void) {
    if (is_start_stderr(STDERR_FILENO)) return STDERR_FILENO;
    return is_start_stderr(start_stderr.duplicate) ? start_stderr.duplicate : -1;
}

#define PATIENCE_MS 10000 /* for symbolize in all, and for the reader of our stderr */

static int64_t now_ms(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int wait_for(int fd, short events, int64_t until) {
    struct pollfd p;
    int64_t left = until - now_ms();
    int ready;
    p.fd = fd;
    p.events = events;
    p.revents = 0;
    ready = left > 0 ? poll(&p, 1, (int)left) : 0;
    return ready > 0 || (ready < 0 && errno == EINTR);
}

/* A memlord_write_fn. Waits for who reads the stderr, but not for ever: a pipe that is ready takes
   so many bytes without blocking. */
static int to_fd(void *user, const void *data, size_t size) {
    int fd = *(const int *)user;
    const char *at = (const char *)data;
    int64_t until = now_ms() + PATIENCE_MS;
    while (size) {
        ssize_t n;
        if (!wait_for(fd, POLLOUT, until)) return 1;
        n = write(fd, at, size < PIPE_BUF ? size : PIPE_BUF);
        if (n > 0) {
            at += n;
            size -= (size_t)n;
            until = now_ms() + PATIENCE_MS;
        } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
            return 1;
        }
    }
    return 0;
}

/* Says a line where it can be written at once. */
static void say(const char *line) {
    int fd = find_stderr();
    if (fd >= 0 && wait_for(fd, POLLOUT, now_ms() + 1)) (void)!write(fd, line, strlen(line));
}

/* ----------------------------------------------------------------------------- symbols -- */

/* Names are dladdr's, and those of debug information where symbolize, a program beside this
   library, finds any. It takes the time of a process: so it runs for those that took longer. */

#define TOP_SITES 200 /* of each order */
#define MAX_PLACES 4096
#define LONG_RUN_MS 1000

static struct {
    struct {
        const memlord_site *site;
        memlord_place at;
    } place[MAX_PLACES];
    size_t count, asked; /* those asked for by an earlier report come first */
    char text[1 << 20]; /* what is asked, then what is answered; what has no room stays as it was */
    size_t length;
} ask;

static struct {
    char path[2][PATH_MAX + 32]; /* where it is built, and where it is installed */
    int64_t born;                /* of this program, ms since 1970 */
    int64_t began_ms;            /* of this process: a forked child is one of its own */
} symbolize;

static void begin_symbols(void) { symbolize.began_ms = now_ms(); }

static void find_symbolize(void) {
    static const char *const names[] = {"symbolize", "../bin/memlord-symbolize"};
    char here[PATH_MAX], *end;
    struct timespec t;
    Dl_info own;
    size_t i;
    begin_symbols();
    (void)pthread_atfork(NULL, NULL, begin_symbols);
    (void)clock_gettime(CLOCK_REALTIME, &t);
    symbolize.born = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    if (!dladdr(&symbolize, &own) || !own.dli_fname || !realpath(own.dli_fname, here)) return;
    end = strrchr(here, '/');
    if (end) *end = 0;
    for (i = 0; i < 2; i++)
        (void)snprintf(symbolize.path[i], sizeof symbolize.path[i], "%s/%s", here, names[i]);
}

/* Of the C++ library of the program; NULL: it has none. */
static char *(*demangle)(const char *name, char *out, size_t *room, int *status);

/* The function of a return address, if what was there is there now; else "". */
static const char *symbol_at(void *address, const memlord_place *was) {
    memlord_place now;
    Dl_info info;
    if (memlord_site_place(lord, memlord_site_at(lord, address), &now) ||
        now.module != was->module || now.offset != was->offset)
        return "";
    return dladdr((char *)address - 1, &info) && info.dli_sname ? info.dli_sname : "";
}

/* Rust's names end in a hash. */
static void rename_mangled(const memlord_site *site, const char *function) {
    char *plain = strncmp(function, "_Z", 2) ? NULL : demangle(function, NULL, NULL, NULL);
    size_t length = plain ? strlen(plain) : 0;
    if (!plain) return;
    if (length > 19 && !strncmp(plain + length - 19, "::h", 3) &&
        strspn(plain + length - 16, "0123456789abcdef") == 16)
        plain[length - 19] = 0;
    (void)memlord_site_rename(lord, site, NULL, plain, 0);
    free(plain);
}

/* Answers 0: it is there already, or has no file: the vdso, code that was made at run time. */
static int add_place(const memlord_site *site, memlord_place *at) {
    char *to = ask.text + ask.length;
    size_t i, room = sizeof ask.text - ask.length;
    int n;
    if (ask.count == MAX_PLACES || memlord_site_place(lord, site, at) || at->module[0] != '/')
        return 0;
    for (i = 0; i < ask.count; i++) { /* the ledger has a text once */
        const memlord_place *other = &ask.place[i].at;
        if (other->offset == at->offset && other->module == at->module &&
            other->build_id == at->build_id)
            return 0;
    }
    n = snprintf(to, room, "%llx %s %s", (unsigned long long)at->offset, at->build_id, at->module);
    if (n < 0 || (size_t)n >= room) return 0;
    ask.length += (size_t)n + 1; /* with its NUL */
    ask.place[ask.count].site = site;
    ask.place[ask.count++].at = *at;
    return 1;
}

static void collect_sites(memlord_site_order order) {
    static memlord_site_stat top[TOP_SITES];
    size_t i, n = memlord_sites_top(lord, memlord_device_all(), order, top, TOP_SITES);
    memlord_place at;
    for (i = 0; i < n; i++) {
        if (add_place(top[i].site, &at) && demangle)
            rename_mangled(top[i].site, top[i].site->function);
    }
}

static void collect_stacks(memlord_site_order order) {
    static memlord_stack_stat top[TOP_SITES];
    size_t i, n = memlord_stacks_top(lord, memlord_device_all(), order, top, TOP_SITES);
    memlord_place at;
    uint32_t k;
    for (i = 0; i < n; i++) {
        for (k = 0; k < top[i].depth; k++) {
            const memlord_site *site = top[i].sites[k];
            if (add_place(site, &at) && demangle)
                rename_mangled(site, symbol_at(top[i].frames[k], &at));
        }
    }
}

static void collect_places(void) {
    static const memlord_site_order orders[] = {MEMLORD_SITE_ORDER_LIVE_BYTES,
                                                MEMLORD_SITE_ORDER_PEAK_BYTES,
                                                MEMLORD_SITE_ORDER_ALLOC_BYTES};
    size_t i;
    ask.count = ask.asked;
    ask.length = 0;
    for (i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        collect_sites(orders[i]);
        collect_stacks(orders[i]);
    }
}

/* Above the standard ones: another thread may still print to a descriptor that is closed. */
static int pair_above(int ends[2]) {
    int i;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) return -1;
    for (i = 0; i < 2; i++) {
        int low = ends[i];
        ends[i] = low > STDERR_FILENO ? low : fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        if (low <= STDERR_FILENO) (void)close(low);
    }
    if (ends[0] >= 0 && ends[1] >= 0) return 0;
    for (i = 0; i < 2; i++) {
        if (ends[i] >= 0) (void)close(ends[i]);
    }
    return -1;
}

/* Its environment is made here: no LD_PRELOAD, and no server of debug files to wait for. */
static int spawn_symbolize(int end, pid_t *pid) {
    static char locale[] = "LC_ALL=C", program[] = "symbolize", option[] = "--serve", born[32];
    char *environment[] = {locale, NULL}, *argv[] = {program, option, born, NULL};
    posix_spawn_file_actions_t actions;
    int failed;
    (void)snprintf(born, sizeof born, "%lld", (long long)symbolize.born);
    if (posix_spawn_file_actions_init(&actions)) return -1;
    failed = posix_spawn_file_actions_adddup2(&actions, end, STDIN_FILENO) ||
             posix_spawn_file_actions_adddup2(&actions, end, STDOUT_FILENO) ||
             posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY,
                                              0) ||
             (posix_spawn(pid, symbolize.path[0], &actions, NULL, argv, environment) &&
              posix_spawn(pid, symbolize.path[1], &actions, NULL, argv, environment));
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed ? -1 : 0;
}

static void read_answer(int end, int64_t until) {
    ask.length = 0;
    while (ask.length < sizeof ask.text && wait_for(end, POLLIN, until)) {
        ssize_t n = read(end, ask.text + ask.length, sizeof ask.text - ask.length);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return;
        if (n > 0) ask.length += (size_t)n;
    }
}

/* The number is only ours to kill while the child is not waited for: a thread of the program
   may collect every child there is. */
static void end_symbolize(pid_t pid, int64_t until) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (now_ms() >= until && !waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) &&
        info.si_pid == 0) {
        (void)kill(pid, SIGKILL);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
}

/* Cuts the next text off the answer; NULL when there is no whole one. */
static const char *next_text(size_t *at) {
    const char *text = ask.text + *at;
    const char *end = (const char *)memchr(text, 0, ask.length - *at);
    if (end) *at = (size_t)(end - ask.text) + 1;
    return end ? text : NULL;
}

/* An answer is a line, a file and a function, "0" and "" where they are not known. */
static void rename_places(void) {
    size_t at = 0, i;
    for (i = ask.asked; i < ask.count; i++) {
        const char *line = next_text(&at), *file = line ? next_text(&at) : NULL;
        const char *function = file ? next_text(&at) : NULL;
        if (!function) return;
        if (!*file) file = NULL;
        if (!*function) function = NULL;
        if (file || function)
            (void)memlord_site_rename(lord, ask.place[i].site, file, function, atoi(line));
    }
}

static void ask_symbolize(void) {
    int64_t until = now_ms() + PATIENCE_MS;
    int ends[2], spawned;
    pid_t pid;
    if (pair_above(ends)) return;
    spawned = !spawn_symbolize(ends[1], &pid);
    (void)close(ends[1]);
    if (spawned) {
        (void)to_fd(&ends[0], ask.text, ask.length);
        (void)shutdown(ends[0], SHUT_WR);
        read_answer(ends[0], until);
        end_symbolize(pid, until);
        rename_places();
    }
    (void)close(ends[0]);
}

/* The program's own handler of SIGCHLD, or its wish to have no children to wait for, must
   not see symbolize. */
static void name_places(int with_debug_information) {
    void *found = dlsym(RTLD_DEFAULT, "__cxa_demangle");
    struct sigaction plain, before;
    memcpy(&demangle, &found, sizeof demangle);
    if (!found && !with_debug_information) return;
    collect_places();
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    if (!with_debug_information || ask.count == ask.asked) return;
    if (sigaction(SIGCHLD, &plain, &before)) return;
    ask_symbolize();
    ask.asked = ask.count;
    (void)sigaction(SIGCHLD, &before, NULL);
}

/* -------------------------------------------------------------------------- the report -- */

static struct {
    char path[2 * PATH_MAX]; /* "": stderr */
    int symbols; /* from symbolize: 0 never, 1 always, 2 if the process took long */
    memlord_format format;
} want = {"", 2, MEMLORD_FORMAT_TEXT};

/* The directory of the start, where a % is not the start of %p. */
static size_t start_directory(char *out, size_t cap) {
    char here[PATH_MAX];
    size_t n = 0;
    const char *c;
    if (!getcwd(here, sizeof here)) return 0;
    for (c = here; *c && n + 3 < cap; c++) {
        out[n++] = *c;
        if (*c == '%') out[n++] = '%';
    }
    if (*c) return 0;
    out[n++] = '/';
    return n;
}

static void read_environment(void) {
    const char *path = getenv("MEMLORD_REPORT");
    const char *symbols = getenv("MEMLORD_SYMBOLS");
    size_t length = path ? strlen(path) : 0;
    size_t at = 0;
    if (symbols && *symbols) want.symbols = strcmp(symbols, "0") != 0;
    if (!length || length >= PATH_MAX || !strcmp(path, "-")) return;
    if (path[0] != '/') at = start_directory(want.path, PATH_MAX);
    memcpy(want.path + at, path, length + 1);
    want.format = memlord_format_for(path);
}

static void begin_recording(void) {
    unsigned long events = number_of("MEMLORD_EVENTS");
    unsigned long snapshots = number_of("MEMLORD_SNAPSHOTS");
    if (events) (void)memlord_events_start(lord, events);
    if (snapshots && snapshots <= UINT32_MAX)
        (void)memlord_snapshots_start(lord, (uint32_t)snapshots);
}

static void write_report(void) {
    char line[512]; /* a longer path is cut */
    int fd = find_stderr();
    memlord_result result;
    if (!want.path[0]) {
        if (fd >= 0) (void)memlord_write(lord, MEMLORD_FORMAT_TEXT, to_fd, &fd);
        return;
    }
    result = memlord_save(lord, want.format, want.path);
    if (result == MEMLORD_OK || fd < 0) return;
    (void)snprintf(line, sizeof line, "memlord: no report at %.400s: %s\n", want.path,
                   memlord_result_text(result));
    (void)to_fd(&fd, line, strlen(line));
}

/* 1: the bytes are in memory, as those of a note that is only in the file are not. */
static int is_loaded(const struct dl_phdr_info *module, const ElfW(Phdr) *part) {
    int i;
    for (i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &module->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && part->p_vaddr >= p->p_vaddr && part->p_filesz <= p->p_filesz &&
            part->p_vaddr - p->p_vaddr <= p->p_filesz - part->p_filesz)
            return 1;
    }
    return 0;
}

/* 1: one of these notes is the build id that Go's linker writes. Their sizes are not trusted. */
static int is_note_of_go(const unsigned char *at, size_t left, size_t align) {
    static const char name[4] = "Go";
    ElfW(Nhdr) note;
    while (left >= sizeof note) {
        size_t text, next;
        memcpy(&note, at, sizeof note);
        if (note.n_namesz > left || note.n_descsz > left) return 0;
        text = (sizeof note + note.n_namesz + align - 1) & ~(align - 1);
        next = (text + note.n_descsz + align - 1) & ~(align - 1);
        if (text + note.n_descsz > left) return 0;
        if (note.n_type == 4 && note.n_namesz == sizeof name &&
            !memcmp(at + sizeof note, name, sizeof name))
            return 1;
        if (next >= left) return 0;
        at += next;
        left -= next;
    }
    return 0;
}

static int find_go(struct dl_phdr_info *program, size_t size, void *found) {
    int i;
    (void)size;
    for (i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &program->dlpi_phdr[i];
        if (p->p_type == PT_NOTE && is_loaded(program, p) &&
            is_note_of_go((const unsigned char *)(program->dlpi_addr + p->p_vaddr), p->p_filesz,
                          p->p_align == 8 ? 8 : 4))
            *(int *)found = 1;
    }
    return 1; /* the first module is the program: enough */
}

/* What a program of Go allocates, and its end, pass by every library: this is said at its start. */
static void name_go(void) {
    char path[PATH_MAX], line[sizeof notes + 16];
    int found = 0;
    ssize_t n;
    (void)dl_iterate_phdr(find_go, &found);
    if (!found) return;
    n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    add_note("not seen: memory and exit of the Go program ", path);
    (void)snprintf(line, sizeof line, "memlord: %s\n", notes);
    if (want.path[0])
        write_report();
    else
        say(line);
}

/* Of several threads that end the program at once, the others wait for the report. */
static int is_first_to_finish(void) {
    static const struct timespec a_little = {0, 1000000};
    int64_t until = now_ms() + 2 * PATIENCE_MS;
    int state;
    do {
        state = 0;
        if (__atomic_compare_exchange_n(&finished, &state, 1, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_ACQUIRE)) {
            return 1;
        }
        if (state == 2) return 0;
        (void)nanosleep(&a_little, NULL);
    } while (now_ms() < until);
    return 0;
}

/* A reader that is gone, a limit on files or a terminal in the foreground of another must not
   change how the program ends. */
static void report(void) {
    static const int harmful[] = {SIGPIPE, SIGXFSZ, SIGTTOU};
    static const struct timespec at_once;
    sigset_t blocked, before, pending;
    size_t i;
    (void)sigemptyset(&blocked);
    for (i = 0; i < 3; i++) (void)sigaddset(&blocked, harmful[i]);
    (void)pthread_sigmask(SIG_BLOCK, &blocked, &before);
    (void)sigpending(&pending);
    if (want.path[0] || find_stderr() >= 0)
        name_places(want.symbols == 1 ||
                    (want.symbols && now_ms() - symbolize.began_ms >= LONG_RUN_MS));
    write_report();
    for (i = 0; i < 3; i++) { /* those of ours are taken; one that waited before stays */
        if (sigismember(&pending, harmful[i])) (void)sigdelset(&blocked, harmful[i]);
    }
    while (sigtimedwait(&blocked, NULL, &at_once) > 0) {}
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Writes the last report. A thread that is to be cancelled ends the program all the same. */
static void report_last(void) {
    int cancel;
    if (inside) return;
    inside = 1; /* from here on: a signal must not wait for the report that it interrupts */
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (is_first_to_finish()) {
        report();
        __atomic_store_n(&finished, 2, __ATOMIC_RELEASE);
    }
    (void)pthread_setcancelstate(cancel, NULL);
}

/* Ends the program; of the signal that came meanwhile, if one did. */
static void finish(void *unused) {
    void (*serve)(void);
    (void)unused;
    report_last();
    serve = __atomic_load_n(&at_call_end, __ATOMIC_RELAXED);
    if (serve) serve();
}

static void finish_quickly(void) { finish(NULL); }

/* Ends a process without its destructors, as forked children like to: the report comes first. */
EXPORT void _exit(int status) {
    if (getpid() == self) finish(NULL);
    real.exit(status);
}
EXPORT void _Exit(int status) { _exit(status); }

/* ----------------------------------------------------------- tags of the program's own -- */

/* What begins in a ledger of the program begins here, too. Where one finds no room, it and those
   inside it are only counted, so that each end ends its own. */
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

/* --------------------------------------------------------------- signals and the clock -- */

/* A report is written in the handler, if the interrupted thread is outside MemLord and so outside
   malloc; else where that thread, or another, next leaves it. */

/* What asks for a report, and what it may take. */
static struct {
    int asked;      /* by MEMLORD_SIGNAL */
    int killer;     /* the signal that the program dies of; 0: none yet */
    int64_t until;  /* ms: then it dies, report or not; INT64_MAX: never */
    int64_t every;  /* ms: MEMLORD_EVERY; 0: never */
    int64_t next;   /* ms: when the next of those is due */
    int has_timer;
    timer_t timer;
} due = {0, 0, INT64_MAX, 0, 0, 0, 0};

#define CALL_MS 2000 /* a call of malloc takes no longer, unless a handler left it by longjmp */

/* Non-zero in fork, which holds the locks of the ledger and of malloc. */
static __thread int forking __attribute__((tls_model("initial-exec")));

/* The signals whose default is to end the program, and which are to leave a report. */
static struct {
    const char *name;
    int number, watched;
} killers[] = {{"TERM", SIGTERM, 0}, {"INT", SIGINT, 0}, {"HUP", SIGHUP, 0}};
#define KILLERS (sizeof killers / sizeof killers[0])

typedef void (*handler)(int number);

static int (*real_sigaction)(int number, const struct sigaction *action, struct sigaction *old);

static int change_action(int number, const struct sigaction *action, struct sigaction *old) {
    if (!real_sigaction) find("sigaction", &real_sigaction);
    if (real_sigaction) return real_sigaction(number, action, old);
    errno = ENOSYS;
    return -1;
}

static void set_handler(int number, handler with) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = with;
    (void)change_action(number, &action, NULL);
}

/* Dies of a signal, for the parent to see. */
static void die_of(int number) {
    sigset_t only;
    set_handler(number, SIG_DFL);
    (void)sigemptyset(&only);
    (void)sigaddset(&only, number);
    (void)pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    (void)raise(number);
    real.exit(128 + number);
}

/* Has the signal sent again after so long, to end what hangs. */
static void limit_time(int number, int ms) {
    struct sigevent event;
    struct itimerspec in;
    __atomic_store_n(&due.until, now_ms() + ms, __ATOMIC_RELAXED);
    memset(&event, 0, sizeof event);
    memset(&in, 0, sizeof in);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = number;
    in.it_value.tv_sec = ms / 1000;
    in.it_value.tv_nsec = 1000000; /* later than `until` */
    if (!due.has_timer) due.has_timer = !timer_create(CLOCK_MONOTONIC, &event, &due.timer);
    if (due.has_timer) (void)timer_settime(due.timer, 0, &in, NULL);
}

/* Only the signal itself may interrupt the last report: it is sent again when time is up. */
static void end_by(int number) {
    sigset_t others;
    (void)sigfillset(&others);
    (void)sigdelset(&others, number);
    (void)pthread_sigmask(SIG_SETMASK, &others, NULL);
    limit_time(number, 3 * PATIENCE_MS);
    report_last();
    die_of(number);
}

/* Writes the report that a program wants that goes on. Answers 0 while another thread writes one:
   that one looks again. seq_cst: the flag is set before `finished` is read, here and there. */
static int report_meanwhile(void) {
    int idle = 0, cancel;
    if (!__atomic_compare_exchange_n(&finished, &idle, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        return 0;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (__atomic_exchange_n(&due.asked, 0, __ATOMIC_RELAXED)) report();
    (void)pthread_setcancelstate(cancel, NULL);
    __atomic_store_n(&finished, 0, __ATOMIC_SEQ_CST);
    return 1;
}

/* Answers 1 to one thread, when the next report of MEMLORD_EVERY is due. */
static int is_next_due(void) {
    struct timespec t;
    int64_t now, next = __atomic_load_n(&due.next, __ATOMIC_RELAXED);
    if (!due.every) return 0;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    now = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    return now >= next && __atomic_compare_exchange_n(&due.next, &next, now + due.every, 0,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Does what is asked for. Requires: the thread is outside MemLord, or ends the program. */
static void serve_due(void) {
    int before = errno, killer;
    if (forking) return;
    if (!due.every) __atomic_store_n(&at_call_end, NULL, __ATOMIC_RELAXED);
    if (is_next_due()) __atomic_store_n(&due.asked, 1, __ATOMIC_SEQ_CST);
    while (!inside && __atomic_load_n(&due.asked, __ATOMIC_SEQ_CST)) {
        int wrote;
        inside = 1;
        wrote = report_meanwhile();
        inside = 0;
        __atomic_signal_fence(__ATOMIC_SEQ_CST); /* what is asked for now finds it outside */
        if (!wrote) break;
    }
    killer = __atomic_load_n(&due.killer, __ATOMIC_RELAXED);
    if (killer) end_by(killer);
    errno = before;
}

static void serve_soon(void) {
    if (inside || forking)
        __atomic_store_n(&at_call_end, serve_due, __ATOMIC_RELAXED);
    else
        serve_due();
}

static void on_request(int number) {
    int before = errno;
    (void)number;
    if (getpid() == self) {
        __atomic_store_n(&due.asked, 1, __ATOMIC_SEQ_CST);
        serve_soon();
    }
    errno = before;
}

/* Time is up: the interrupted thread never left malloc, or the report was not done. */
static void give_up(int number) {
    say("memlord: no report: a signal came in malloc, or time was up\n");
    die_of(number);
}

/* The default action, after a report. The first signal is the one the program dies of. */
static void on_kill(int number) {
    int before = errno, none = 0;
    if (getpid() != self || __atomic_load_n(&finished, __ATOMIC_ACQUIRE) == 2) die_of(number);
    if (__atomic_compare_exchange_n(&due.killer, &none, number, 0, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        limit_time(number, finished ? 3 * PATIENCE_MS : CALL_MS);
    else if (now_ms() >= __atomic_load_n(&due.until, __ATOMIC_RELAXED))
        give_up(number);
    serve_soon();
    errno = before;
}

/* To the program, the default is still there. The first process of a container is watched for
   none: it does not die of a default. */
static handler shown(handler there) { return there == on_kill ? SIG_DFL : there; }

static handler given(int number, handler wanted) {
    size_t i;
    for (i = 0; i < KILLERS && wanted == SIG_DFL && self != 1; i++) {
        if (killers[i].watched && killers[i].number == number) return on_kill;
    }
    return wanted;
}

EXPORT int sigaction(int number, const struct sigaction *action, struct sigaction *old) {
    struct sigaction changed;
    int failed;
    if (action) {
        changed = *action;
        changed.sa_handler = given(number, action->sa_handler);
        if (changed.sa_handler == on_kill) changed.sa_flags &= ~SA_ONSTACK; /* a small one */
    }
    failed = change_action(number, action ? &changed : NULL, old);
    if (!failed && old) old->sa_handler = shown(old->sa_handler);
    return failed;
}

#define DEFINE_SIGNAL(fn, name)                                                               \
    EXPORT handler fn(int number, handler wanted) __asm__(name);                              \
    EXPORT handler fn(int number, handler wanted) {                                           \
        static handler (*known)(int number, handler wanted);                                  \
        if (!known) find(name, &known);                                                       \
        if (known) return shown(known(number, given(number, wanted)));                        \
        errno = ENOSYS;                                                                       \
        return SIG_ERR;                                                                       \
    }

DEFINE_SIGNAL(signal_usual, "signal")
DEFINE_SIGNAL(signal_of_bsd, "bsd_signal")
DEFINE_SIGNAL(signal_of_svid, "ssignal")
DEFINE_SIGNAL(signal_of_system_v, "sysv_signal")
DEFINE_SIGNAL(signal_of_strict_c, "__sysv_signal")
DEFINE_SIGNAL(signal_set, "sigset")

static void watch(void) {
    struct sigaction now;
    size_t i;
    for (i = 0; i < KILLERS; i++) {
        if (!killers[i].watched || change_action(killers[i].number, NULL, &now)) continue;
        if (self != 1 && now.sa_handler == SIG_DFL) set_handler(killers[i].number, on_kill);
        if (self == 1 && now.sa_handler == on_kill) set_handler(killers[i].number, SIG_DFL);
    }
}

static void hold_signals(void) { forking = 1; }

static void let_signals(void) {
    forking = 0;
    if (!inside) leave();
}

/* The child was sent none of the signals, and has none of the timers. Before `self` is its own, a
   signal ends it as if nothing were loaded. */
static void signals_forked(void) {
    due.asked = due.killer = due.has_timer = 0;
    due.until = INT64_MAX;
    if (!due.every) at_call_end = NULL;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&self, getpid(), __ATOMIC_RELAXED);
    watch();
    let_signals();
}

/* MEMLORD_REPORT_ON: names with commas between them. */
static void read_killers(const char *names) {
    while (*names) {
        size_t i, length = strcspn(names, ",");
        for (i = 0; i < KILLERS; i++) {
            if (strlen(killers[i].name) == length && !strncmp(killers[i].name, names, length))
                killers[i].watched = 1;
        }
        names += length;
        names += *names == ',';
    }
}

static void begin_signals(void) {
    const char *names = getenv("MEMLORD_REPORT_ON");
    unsigned long number = number_of("MEMLORD_SIGNAL"), seconds = number_of("MEMLORD_EVERY");
    struct sigaction action;
    (void)pthread_atfork(hold_signals, let_signals, signals_forked);
    read_killers(names ? names : "TERM");
    watch();
    if (seconds && seconds <= INT_MAX) {
        due.every = (int64_t)seconds * 1000;
        due.next = now_ms() + due.every;
        at_call_end = serve_due;
    }
    if (!number || number > 64) return;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_request;
    action.sa_flags = SA_RESTART;
    (void)change_action((int)number, &action, NULL);
}

/* As atexit, but for no module: then it runs when every module's destructors have. */
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
