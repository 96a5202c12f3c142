/*
    preload.c - the books of a program you cannot change: every block of its heap, and who
                asked for it. Linux and other systems with LD_PRELOAD, glibc or musl.

        LD_PRELOAD=build/libmemlord_preload.so sort big.txt > sorted.txt

    Build with

        gcc -std=c99 -O2 -fPIC -shared -fvisibility=hidden -fexceptions -pthread -I. \
            examples/preload.c -o build/libmemlord_preload.so -Wl,-z,now -ldl

    At exit, after the program's last destructor, a TEXT report goes to the stderr the program
    was started with, be it closed by then. Environment, read once at the start:

        MEMLORD_REPORT=path    write there instead, as what its suffix says (.html, .json,
                               .heaptrack ...); %p is the process id, %% a percent sign; a
                               relative path is taken from where the program starts; "-" is
                               stderr
        MEMLORD_SYMBOLS=0      do not ask addr2line for files and lines
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
    valloc, pvalloc and free, and with them strdup, fopen, operator new and whatever else is
    made of these. A block is as large as was asked for. A site is the place of the call: for
    operator new of libstdc++ that is the place which called operator new.

    Children that are executed are programs of their own, with a report of their own. A child
    that is only forked inherits the living blocks, and it may free them, so they stay in its
    books as live; its totals and peaks begin at the fork. Give children a %p, or the last one
    to exit is the one that is read.

    A program that keeps books of its own with memlord.h has them beside these. The tags and
    scopes that it begins and ends cover what malloc gives here, too.

    Not seen: a program that brings its own malloc inside its executable, static programs,
    set-uid programs (the loader ignores LD_PRELOAD), libraries opened with RTLD_DEEPBIND (what
    they free for others looks live), mmap. No report: after abort or a signal that is not in
    MEMLORD_REPORT_ON, or whose action the program set by a system call of its own (as Go does);
    of the first process of a container that is sent one; of what vfork or a bare clone makes
    until it executes; and when a signal handler that interrupted malloc ends the program. A
    program that closes stderr to let go of a pipe goes on holding it until it exits, unless
    MEMLORD_REPORT is a path. If stderr was closed before the start, there is nowhere to write and
    nothing is written; where it is full and nobody reads, the program ends after ten seconds with
    the report cut off.
*/
#define _GNU_SOURCE /* RTLD_NEXT, pipe2, F_DUPFD_CLOEXEC */

/* the library private to this file: nothing of it may meet a MemLord of the host; and its
   thread-locals in the static block, for the dynamic kind is made by malloc */
#define MEMLORD_STATIC
#define MEMLORD_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

#include <dlfcn.h>     /* dlsym: the real functions */
#include <errno.h>     /* EINTR, ENOMEM */
#include <fcntl.h>     /* F_DUPFD_CLOEXEC */
#include <limits.h>    /* PATH_MAX */
#include <poll.h>      /* waits with a time limit */
#include <pthread.h>   /* pthread_atfork */
#include <signal.h>    /* SIGPIPE and others, while reporting */
#include <spawn.h>     /* posix_spawnp: addr2line */
#include <stdio.h>     /* snprintf */
#include <stdlib.h>    /* what is interposed, getenv, strtol */
#include <sys/stat.h>  /* fstat: whose descriptor it is */
#include <sys/syscall.h> /* exit_group */
#include <sys/wait.h>  /* waitpid */
#include <time.h>      /* clock_gettime */
#include <unistd.h>    /* write, close */

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

/* Who called operator new, while that is on its way to malloc. */
static __thread void *origin __attribute__((tls_model("initial-exec")));

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

static void forked(void) {
    inside = 1;
    __atomic_store_n(&finished, 0, __ATOMIC_RELAXED);
    memlord_reset(lord);
    inside = 0;
}

static void open_ledger(void) {
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    memlord_os_allocator(&desc.allocator);
    desc.flags = MEMLORD_FLAG_SITES;
    if (memlord_create(&desc, &lord) == MEMLORD_OK) (void)pthread_atfork(NULL, NULL, forked);
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

/* The site of a caller. Most calls come from where the last one came from. */
static const memlord_site *site_of(void *caller) {
    static __thread __attribute__((tls_model("initial-exec"))) struct {
        void *caller;
        const memlord_site *site;
    } last;
    if (caller != last.caller) {
        last.site = memlord_site_at(lord, caller);
        last.caller = caller;
    }
    return last.site;
}

/* The guard is up around the real call too: an allocator may be made of itself (calloc of
   malloc), and a signal that interrupts it and exits must find out. */
static inline void *opened(void *ptr, size_t size, void *caller) {
    if (origin) {
        caller = origin;
        origin = NULL;
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

EXPORT void free(void *ptr) {
    fetch_ahead(ptr);
    if (is_boot(ptr)) return;
    if (inside) {
        real.free(ptr);
        return;
    }
    inside = 1;
    (void)memlord_free(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), NULL);
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
    (void)memlord_free(lord, memlord_device_cpu(), MEMLORD_KEY(old), NULL);
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

/* ------------------------------------------------------------------------- operator new -- */

/* All of C++ would be one site, operator new, were it not asked who called it. It does what it
   did: it comes from the C++ library, calls the new handler and throws through this frame.
   The mangled names end in the letter of size_t. */
#if SIZE_MAX == ULONG_MAX
#define NEW_NAME(kind, rest) "_Zn" kind "m" rest
#else
#define NEW_NAME(kind, rest) "_Zn" kind "j" rest
#endif

/* A C++ library that came with a module of its own, out of sight of RTLD_NEXT, is in sight of
   who calls; it stays open, for its address is kept. */
static void *find_new(const char *name, void *caller) {
    void *found = dlsym(RTLD_NEXT, name);
    Dl_info at;
    void *module;
    if (found || !dladdr(caller, &at) || !at.dli_fname) return found;
    module = dlopen(at.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return module ? dlsym(module, name) : NULL;
}

/* Defines one operator new: `params` as C has them, `args` to pass them on. */
#define DEFINE_NEW(fn, kind, rest, params, args)                                              \
    EXPORT void *fn params __asm__(NEW_NAME(kind, rest));                                     \
    EXPORT void *fn params {                                                                  \
        static void *(*known)params;                                                          \
        void *(*actual)params = __atomic_load_n(&known, __ATOMIC_RELAXED);                    \
        void *ptr;                                                                            \
        if (!actual) {                                                                        \
            void *found = find_new(NEW_NAME(kind, rest), CALLER());                           \
            memcpy(&actual, &found, sizeof actual);                                           \
            __atomic_store_n(&known, actual, __ATOMIC_RELAXED);                               \
        }                                                                                     \
        if (!inside && !origin) origin = CALLER();                                            \
        ptr = actual ? actual args : malloc(size);                                            \
        origin = NULL;                                                                        \
        return ptr;                                                                           \
    }

DEFINE_NEW(new_one, "w", "", (size_t size), (size))
DEFINE_NEW(new_array, "a", "", (size_t size), (size))
DEFINE_NEW(new_one_nothrow, "w", "RKSt9nothrow_t", (size_t size, const void *tag), (size, tag))
DEFINE_NEW(new_array_nothrow, "a", "RKSt9nothrow_t", (size_t size, const void *tag),
           (size, tag))
DEFINE_NEW(new_one_aligned, "w", "St11align_val_t", (size_t size, size_t align),
           (size, align))
DEFINE_NEW(new_array_aligned, "a", "St11align_val_t", (size_t size, size_t align),
           (size, align))

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
    place_count = 0;
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

/* A whole number from the environment; 0 if there is none, or something else. */
static unsigned long number_of(const char *name) {
    const char *text = getenv(name);
    char *end = NULL;
    unsigned long n = text ? strtoul(text, &end, 10) : 0;
    return text && end != text && !*end && *text != '-' ? n : 0;
}

static void begin_recording(void) {
    unsigned long events = number_of("MEMLORD_EVENTS");
    unsigned long snapshots = number_of("MEMLORD_SNAPSHOTS");
    if (events) (void)memlord_events_start(lord, events);
    if (snapshots && snapshots <= UINT32_MAX)
        (void)memlord_snapshots_start(lord, (uint32_t)snapshots);
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
    if (want.symbols && (want.path[0] || find_stderr() >= 0)) name_places();
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
    static const char line[] = "memlord: no report: a signal came in malloc, or time was up\n";
    int fd = find_stderr();
    if (fd >= 0 && wait_for(fd, POLLOUT, now_ms() + 1)) (void)!write(fd, line, sizeof line - 1);
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
        read_environment();
        keep_stderr(!want.path[0]);
        exported.lord = lord;
        begin_recording();
        begin_signals();
        (void)__cxa_atexit(finish, NULL, NULL);
        (void)at_quick_exit(finish_quickly);
    }
    leave();
}
