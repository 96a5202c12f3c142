/* Owns the macros that hide the differences of compilers, and includes the headers of the system.
   Locks: none. */
#ifndef MLI_OS_COMPILER_H
#define MLI_OS_COMPILER_H
#include "api/api.h"

#if defined(_WIN32)
#define MLI_WINDOWS 1
#else
#define MLI_WINDOWS 0 /* the system is then POSIX */
#endif

#if defined(__GNUC__)
#define MLI_LIKELY(x) __builtin_expect(!!(x), 1)
#define MLI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define MLI_COLD __attribute__((cold)) /* the code is small; other cold code may inline it */
#define MLI_NOINLINE __attribute__((noinline)) /* keeps a large stack frame apart, too */
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
#include <cpuid.h> /* __get_cpuid, which tells if the time-stamp counter is steady */
#elif defined(_MSC_VER)
#include <intrin.h> /* intrinsics for atomics */
#endif
#if (defined(__x86_64__) && defined(__SSE2__)) || (defined(_M_X64) && !defined(_M_ARM64EC))
#include <emmintrin.h> /* vector compares, with which the map finds a slot */
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
#include <poll.h>     /* poll, for Linux's file of memory pressure */
#include <pthread.h>  /* thread exit, fork handlers, signal mask */
#include <sched.h>    /* sched_yield */
#include <signal.h>   /* SIGXFSZ, SIGPIPE */
#include <stdio.h>    /* rename */
#include <stdlib.h>   /* getenv; malloc, for the shim */
#include <sys/mman.h> /* mmap */
#include <sys/stat.h> /* lstat */
#include <sys/utsname.h> /* uname */
#include <time.h>     /* clock_gettime */
#include <unistd.h>   /* write */
#if !defined(MAP_ANONYMOUS) || !defined(CLOCK_MONOTONIC)
#error "a strict C mode hides mmap: include memlord.h first, or compile with -D_DEFAULT_SOURCE"
#endif
#if defined(__linux__)
#include <link.h>        /* ElfW, link_map */
#include <sys/auxv.h>    /* getauxval */
#include <sys/syscall.h> /* gettid, membarrier, tgkill */
#elif defined(__APPLE__)
#include <dlfcn.h>         /* dladdr */
#include <mach-o/dyld.h>   /* _NSGetExecutablePath */
#include <mach-o/loader.h> /* MH_EXECUTE */
#include <mach/mach.h>     /* host_statistics64, task_info */
#include <sys/sysctl.h>    /* hw.memsize */
#endif
#endif

#define MLI_PATH_MAX 1024
#define MLI_BUILD_ID_MAX 32 /* most bytes that are kept of a build id */

/* The module at an address, as the system has loaded it. A module is an executable or a library. */
typedef struct mli_image {
    const char *loaded; /* the name that the loader has for the module; "": it is the executable */
    const char *path;   /* the path that the system tells; NULL: the address is in no module */
    const void *start;  /* the lowest address of the module in memory */
    uint64_t bias;      /* what the loader added to the addresses in the file */
    /* The segment that has the address. `start` is the first address of the segment, and `end` the
       address behind the segment, both as in the file. `offset` is the place of the segment in the
       file. `end` is 0 if the segment is not known. */
    struct {
        uint64_t start, end, offset;
    } segment;
    const void *id; /* the build id, in the module's memory */
    size_t id_size; /* bytes of the build id; 0: the module has none */
    int stays;      /* 1: the module is never unloaded, or mli_loaded_at cannot tell */
} mli_image;

/* The identity of the module that is at an address now. It does not change if another build of
   the same library is loaded at the same address later. */
typedef struct mli_loaded {
    const void *start;
    const char *name; /* the name that the loader has for the module, as in mli_image */
    uint64_t bias;
} mli_loaded;

/* The function that a thread runs, and its argument. Requires: the job outlives the thread. */
typedef struct mli_job {
    void (*run)(void *);
    void *user;
} mli_job;

#endif
