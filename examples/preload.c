/*
    preload.c - the books of a program you cannot change: every block of its heap, and who
                asked for it. Linux and other systems with LD_PRELOAD, glibc or musl.

        LD_PRELOAD=build/libmemlord_preload.so sort big.txt > sorted.txt

    Build with

        gcc -std=c99 -O2 -fPIC -shared -fvisibility=hidden -fexceptions -static-libgcc \
            -pthread -I. examples/preload.c -o build/libmemlord_preload.so -Wl,-z,now -ldl

    At exit, after the program's last destructor, a TEXT report goes to the stderr the program
    was started with, be it closed by then. Environment, read once at the start:

        MEMLORD_REPORT=path    write there instead, as what its suffix says (.html, .json,
                               .heaptrack ...); %p is the process id, %% a percent sign; a
                               relative path is taken from where the program starts; "-" is
                               stderr
        MEMLORD_SYMBOLS=0      do not ask addr2line for files and lines
        MEMLORD_STACK_BYTES=n  take the stack of an allocation each n bytes in the mean, 524288;
                               1 takes every one
        MEMLORD_STACK_DEPTH=n  at most so many frames of each, 32; 0 takes no stacks
        MEMLORD_SKIP=a,b       leave the functions a and b out, which only wrap malloc: the site
                               is the place that called them, and stacks begin there; the names
                               are those that nm prints, of the modules that are there at the start
        MEMLORD_EVENTS=n       keep the last n allocations and frees: lifetimes, and a curve
        MEMLORD_SNAPSHOTS=ms   keep what is live so often, from a thread of its own
        MEMLORD_SIGNAL=n       on that signal (10 is SIGUSR1) write memory_profile_DATE_TIME.json
                               where the program is, at its next allocation

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

    Not seen: a program that brings its own malloc inside its executable, one built with
    AddressSanitizer, calls of an allocator by names of its own (mi_malloc, tc_malloc): where these
    can be told, the labels in the report say so. Nor static programs, set-uid programs (the loader
    ignores LD_PRELOAD), libraries opened with RTLD_DEEPBIND (what they free for others looks
    live), mmap. A program on another C library than the one this was built for does not start. No
    report: after abort or a signal, of what vfork or a bare clone makes until it executes, of what
    ends by the system call itself (Go), and when a signal handler that interrupted malloc ends the
    program. A program that closes stderr to let go of a pipe goes on holding it until it exits,
    unless MEMLORD_REPORT is a path. If stderr was closed before the start, there is nowhere to
    write and nothing is written; where it is full and nobody reads, the program ends after ten
    seconds with the report cut off.
*/
#define _GNU_SOURCE /* RTLD_NEXT, pipe2, F_DUPFD_CLOEXEC */

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
#include <spawn.h>     /* posix_spawnp: addr2line */
#include <stdio.h>     /* snprintf */
#include <stdlib.h>    /* what is interposed, getenv, strtol */
#include <sys/auxv.h>  /* AT_SECURE */
#include <sys/mman.h>  /* mmap, mprotect */
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
static int finished; /* 1: the report is being written, 2: it is */

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
    if (!__atomic_load_n(&unwinders.closed, __ATOMIC_SEQ_CST)) { /* pairs with before_fork */
        int (*fast)(void **, int) = __atomic_load_n(&fast_unwind, __ATOMIC_ACQUIRE);
        int got = fast ? fast(frames, (int)cap) : (int)unwind_by_libgcc(frames, cap);
        n = got > 0 ? (size_t)got : 0;
    }
    (void)__atomic_sub_fetch(&unwinders.inside, 1, __ATOMIC_RELEASE);
    unwinding = 0;
    errno = error;
    return n;
}

static void before_fork(void) {
    static const struct timespec a_little = {0, 100000};
    int i;
    (void)__atomic_add_fetch(&unwinders.closed, 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < 10000 && __atomic_load_n(&unwinders.inside, __ATOMIC_SEQ_CST) > unwinding; i++)
        (void)nanosleep(&a_little, NULL); /* a thread that was killed inside is not waited for */
}

static void after_fork(void) {
    (void)__atomic_sub_fetch(&unwinders.closed, 1, __ATOMIC_SEQ_CST);
}

static void forked(void) {
    inside = 1;
    self = getpid();
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
    desc.stack_depth = stack_depth();
    desc.stack_bytes = number_of("MEMLORD_STACK_BYTES");
    desc.unwinder.fn = take_stack;
    if (memlord_create(&desc, &lord) == MEMLORD_OK)
        (void)pthread_atfork(before_fork, after_fork, forked);
}

/* A function pointer cannot be cast from void * in C99; it can be copied. */
static void find(const char *name, void *function) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found) memcpy(function, &found, sizeof found);
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
    inside = 0;
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
    inside = 0;
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
    inside = 0;
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
    }
    __atomic_store_n(known, found, __ATOMIC_RELAXED); /* whoever reads it only calls it */
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
        if (outermost) inside = 0;                                                            \
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
    inside = 0;
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
    inside = 0;
    return room;
}

static void counted_dallocx(void *ptr, int flags) {
    const int outermost = !inside;
    inside = 1;
    if (outermost) close_block(ptr);
    jemalloc.dallocx(ptr, flags);
    if (outermost) inside = 0;
}

static void counted_sdallocx(void *ptr, size_t size, int flags) {
    const int outermost = !inside;
    inside = 1;
    if (outermost) close_block(ptr);
    jemalloc.sdallocx(ptr, size, flags);
    if (outermost) inside = 0;
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
    (void)dlerror(); /* the program's is its own */
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
    size_t i;
    if (dladdr(dlsym(RTLD_DEFAULT, "malloc"), &found) && dladdr(notes, &ours) &&
        found.dli_fbase != ours.dli_fbase)
        add_note("not seen: malloc of ", found.dli_fname);
    if (dlsym(RTLD_DEFAULT, "__asan_init")) add_note("not seen: malloc of ", "AddressSanitizer");
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        if (dlsym(RTLD_DEFAULT, names[i]))
            add_note("not seen: calls by name of functions like ", names[i]);
    (void)dlerror(); /* the program's is its own */
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

#define PATIENCE_MS 10000 /* for addr2line in all, and for whoever reads our stderr */

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

/* ----------------------------------------------------------------------------- symbols -- */

#define TOP_SITES 200 /* of each order */
#define MAX_PLACES (3 * TOP_SITES)

typedef struct place {
    const memlord_site *site;
    memlord_place at;
    int done;
} place;

static place places[MAX_PLACES];
static size_t place_count;

/* A module without a path has no file: the vdso, code that was made at run time. */
static void add_place(const memlord_site *site) {
    place *next = &places[place_count];
    size_t i;
    if (memlord_site_place(lord, site, &next->at) || next->at.module[0] != '/') return;
    for (i = 0; i < place_count; i++) {
        if (places[i].site == site) return;
    }
    next->site = site;
    place_count++;
}

static void collect_places(void) {
    static const memlord_site_order orders[] = {MEMLORD_SITE_ORDER_LIVE_BYTES,
                                                MEMLORD_SITE_ORDER_PEAK_BYTES,
                                                MEMLORD_SITE_ORDER_ALLOC_BYTES};
    static memlord_site_stat top[TOP_SITES];
    size_t i, k, n;
    for (i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        n = memlord_sites_top(lord, memlord_device_all(), orders[i], top, TOP_SITES);
        for (k = 0; k < n; k++) add_place(top[k].site);
    }
}

#define HEX_SIZE (2 + 2 * sizeof(uint64_t) + 1)

typedef struct query {
    place *asked[MAX_PLACES];
    size_t count;
    char hex[MAX_PLACES][HEX_SIZE];
    char *argv[MAX_PLACES + 4];
    char answer[1 << 19]; /* names of templates are long; what does not fit stays as it was */
    size_t answered;
} query;

static query ask;

/* Everything that lies in one module is asked for at once. */
static void fill_query(const char *module) {
    static char program[] = "addr2line", options[] = "-aiCfe", path[PATH_MAX];
    size_t i;
    (void)snprintf(path, sizeof path, "%s", module);
    ask.count = 0;
    ask.answered = 0;
    ask.argv[0] = program;
    ask.argv[1] = options;
    ask.argv[2] = path;
    for (i = 0; i < place_count; i++) {
        if (places[i].done || strcmp(places[i].at.module, module)) continue;
        places[i].done = 1;
        (void)snprintf(ask.hex[ask.count], HEX_SIZE, "0x%llx",
                       (unsigned long long)places[i].at.offset);
        ask.argv[3 + ask.count] = ask.hex[ask.count];
        ask.asked[ask.count++] = &places[i];
    }
    ask.argv[3 + ask.count] = NULL;
}

/* Above the standard ones: another thread may still print to a descriptor that is closed. */
static int pipe_above(int ends[2]) {
    int i;
    if (pipe2(ends, O_CLOEXEC)) return -1;
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
static int spawn_query(int output, pid_t *pid) {
    static char locale[] = "LC_ALL=C";
    char *environment[] = {locale, NULL};
    posix_spawn_file_actions_t actions;
    int failed;
    if (posix_spawn_file_actions_init(&actions)) return -1;
    failed = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO) ||
             posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY,
                                              0) ||
             posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY,
                                              0) ||
             posix_spawnp(pid, ask.argv[0], &actions, NULL, ask.argv, environment);
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed ? -1 : 0;
}

static void read_answer(int input, int64_t until) {
    while (ask.answered < sizeof ask.answer && wait_for(input, POLLIN, until)) {
        ssize_t n = read(input, ask.answer + ask.answered, sizeof ask.answer - ask.answered);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return;
        if (n > 0) ask.answered += (size_t)n;
    }
}

/* The number is only ours to kill while the child is not waited for: a thread of the program
   may collect every child there is. */
static void end_query(pid_t pid, int64_t until) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (now_ms() >= until && !waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) &&
        info.si_pid == 0) {
        (void)kill(pid, SIGKILL);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
}

/* Cuts the next line off the answer; NULL when there is no whole one. */
static char *next_line(size_t *at) {
    char *line = ask.answer + *at;
    char *end = (char *)memchr(line, '\n', ask.answered - *at);
    if (!end) return NULL;
    *end = 0;
    *at = (size_t)(end - ask.answer) + 1;
    return line;
}

/* "dir/file.c:12", "dir/file.c:12 (discriminator 3)"; "file.c:?" and "??:0" know no line, and then
   the function is only the nearest one below. */
static void rename_place(const memlord_site *site, const char *function, char *where) {
    char *colon = strrchr(where, ':');
    long line = colon ? strtol(colon + 1, NULL, 10) : 0;
    if (!colon || !strncmp(where, "??:", 3) || line <= 0 || line > INT_MAX) return;
    *colon = 0;
    (void)memlord_site_rename(lord, site, where, strcmp(function, "??") ? function : NULL,
                              (int)line);
}

/* An answer is the address, then two lines for each function, from the one inlined deepest to
   the one it is all inlined in. What a standard header does is put down to who uses it. */
static void rename_places(void) {
    size_t at = 0;
    char *line = next_line(&at);
    size_t i;
    for (i = 0; i < ask.count && line; i++) {
        char *function = next_line(&at);
        char *where = function ? next_line(&at) : NULL;
        line = where ? next_line(&at) : NULL;
        while (line && strncmp(line, "0x", 2)) {
            int standard = !strncmp(where, "/usr/include/", 13);
            char *outer = next_line(&at);
            if (standard && outer) {
                function = line;
                where = outer;
            }
            line = outer ? next_line(&at) : NULL;
        }
        if (where) rename_place(ask.asked[i]->site, function, where);
    }
}

/* Answers 0 when there is no addr2line, or no time. */
static int ask_module(const char *module, int64_t until) {
    int ends[2];
    int spawned;
    pid_t pid;
    fill_query(module);
    if (pipe_above(ends)) return 0;
    spawned = !spawn_query(ends[1], &pid);
    (void)close(ends[1]);
    if (spawned) {
        read_answer(ends[0], until);
        (void)close(ends[0]);
        end_query(pid, until);
        rename_places();
        return now_ms() < until;
    }
    (void)close(ends[0]);
    return 0;
}

/* The program's own handler of SIGCHLD, or its wish to have no children to wait for, must
   not see addr2line. */
static void name_places(void) {
    struct sigaction plain, before;
    int64_t until = now_ms() + PATIENCE_MS;
    int going = 1;
    size_t i;
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    if (sigaction(SIGCHLD, &plain, &before)) return;
    collect_places();
    for (i = 0; i < place_count && going; i++) {
        if (!places[i].done) going = ask_module(places[i].at.module, until);
    }
    (void)sigaction(SIGCHLD, &before, NULL);
}

/* -------------------------------------------------------------------------- the report -- */

static struct {
    char path[2 * PATH_MAX]; /* "": stderr */
    int symbols;
    memlord_format format;
} want = {"", 1, MEMLORD_FORMAT_TEXT};

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
    want.symbols = !symbols || strcmp(symbols, "0") != 0;
    if (!length || length >= PATH_MAX || !strcmp(path, "-")) return;
    if (path[0] != '/') at = start_directory(want.path, PATH_MAX);
    memcpy(want.path + at, path, length + 1);
    want.format = memlord_format_for(path);
}

static void on_signal(int number) {
    (void)number;
    memlord_request_save(lord);
}

static void begin_recording(void) {
    unsigned long events = number_of("MEMLORD_EVENTS"), signal = number_of("MEMLORD_SIGNAL");
    unsigned long snapshots = number_of("MEMLORD_SNAPSHOTS");
    struct sigaction action;
    if (events) (void)memlord_events_start(lord, events);
    if (snapshots && snapshots <= UINT32_MAX)
        (void)memlord_snapshots_start(lord, (uint32_t)snapshots);
    if (!signal || signal > 64) return;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    (void)sigaction((int)signal, &action, NULL);
}

static void write_report(void) {
    char line[128];
    int fd = find_stderr();
    memlord_result result;
    if (!want.path[0]) {
        if (fd >= 0) (void)memlord_write(lord, MEMLORD_FORMAT_TEXT, to_fd, &fd);
        return;
    }
    result = memlord_save(lord, want.format, want.path);
    if (result == MEMLORD_OK || fd < 0) return;
    (void)snprintf(line, sizeof line, "memlord: no report at MEMLORD_REPORT: %s\n",
                   memlord_result_text(result));
    (void)to_fd(&fd, line, strlen(line));
}

/* Of several threads that end the program at once, the others wait for the report. */
static int is_first_to_finish(void) {
    static const struct timespec a_little = {0, 1000000};
    int64_t until = now_ms() + 2 * PATIENCE_MS;
    int expected = 0;
    if (inside) return 0;
    if (__atomic_compare_exchange_n(&finished, &expected, 1, 0, __ATOMIC_ACQUIRE,
                                    __ATOMIC_ACQUIRE)) {
        return 1;
    }
    while (__atomic_load_n(&finished, __ATOMIC_ACQUIRE) == 1 && now_ms() < until)
        (void)nanosleep(&a_little, NULL);
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
    if (want.symbols && (want.path[0] || find_stderr() >= 0)) name_places();
    write_report();
    for (i = 0; i < 3; i++) { /* those of ours are taken; one that waited before stays */
        if (sigismember(&pending, harmful[i])) (void)sigdelset(&blocked, harmful[i]);
    }
    while (sigtimedwait(&blocked, NULL, &at_once) > 0) {}
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* A thread that is to be cancelled ends the program all the same. */
static void finish(void *unused) {
    int cancel;
    (void)unused;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (is_first_to_finish()) {
        inside = 1;
        report();
        __atomic_store_n(&finished, 2, __ATOMIC_RELEASE);
    }
    (void)pthread_setcancelstate(cancel, NULL);
}

static void finish_quickly(void) { finish(NULL); }

/* Ends a process without its destructors, as forked children like to: the report comes first. */
EXPORT void _exit(int status) {
    if (getpid() == self) finish(NULL);
    real.exit(status);
}
EXPORT void _Exit(int status) { _exit(status); }

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
        begin_recording();
        (void)__cxa_atexit(finish, NULL, NULL);
        (void)at_quick_exit(finish_quickly);
    }
    inside = 0;
}
