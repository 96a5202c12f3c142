/* Owns what differs between operating systems: shared libraries, a lock, the process id, atomics.
   Locks: none. */
#ifndef MLI_CUDA_SYSTEM_H
#define MLI_CUDA_SYSTEM_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"

#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
#ifndef MEMLORD_CUDA_DRIVER
#define MEMLORD_CUDA_DRIVER "nvcuda.dll"
#endif
#define MLI_CUDA_NVML "nvml.dll"
typedef SRWLOCK mli_cuda_lock;
#define MLI_CUDA_LOCK SRWLOCK_INIT
#else
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h> /* getpid */
#ifndef MEMLORD_CUDA_DRIVER
#define MEMLORD_CUDA_DRIVER "libcuda.so.1"
#endif
#define MLI_CUDA_NVML "libnvidia-ml.so.1"
typedef pthread_mutex_t mli_cuda_lock;
#define MLI_CUDA_LOCK PTHREAD_MUTEX_INITIALIZER
#endif
MLI_CUDA_PRIVATE void mli_cuda_lock_take(mli_cuda_lock *l);
MLI_CUDA_PRIVATE void mli_cuda_lock_drop(mli_cuda_lock *l);
MLI_CUDA_PRIVATE void *mli_cuda_library_open(const char *name);
MLI_CUDA_PRIVATE void mli_cuda_library_close(void *library);
MLI_CUDA_PRIVATE void mli_cuda_yield(void);
MLI_CUDA_PRIVATE uint64_t mli_cuda_process_id(void);

/* A function of a library, and its place in a table of function pointers. */
typedef struct mli_cuda_symbol {
    const char *name;
    uint16_t at;     /* the offset of the function's pointer in the table */
    uint16_t needed; /* 1: without this function the library is of no use */
} mli_cuda_symbol;
/* Fills a table with pointers to functions of a library. The pointer of a function that the library
   lacks is NULL. Returns the name of the last needed function that is missing, or NULL if none is
   missing. */
MLI_CUDA_PRIVATE const char *mli_cuda_library_fill(void *library, const mli_cuda_symbol *symbols,
                                                   size_t n, void *table);

typedef struct mli_cuda_u64 {
    uint64_t v;
} mli_cuda_u64;

/* Atomic operations. They are relaxed unless their name says acquire or release. An add returns the
   old value. */
MLI_CUDA_PRIVATE uint64_t mli_cuda_load(mli_cuda_u64 *a);
MLI_CUDA_PRIVATE uint64_t mli_cuda_load_acquire(mli_cuda_u64 *a);
MLI_CUDA_PRIVATE void mli_cuda_store(mli_cuda_u64 *a, uint64_t v);
MLI_CUDA_PRIVATE void mli_cuda_store_release(mli_cuda_u64 *a, uint64_t v);
MLI_CUDA_PRIVATE uint64_t mli_cuda_add(mli_cuda_u64 *a, uint64_t v);
MLI_CUDA_PRIVATE uint64_t mli_cuda_add_release(mli_cuda_u64 *a, uint64_t v);

/* MLI_CUDA_REAL(name) is the runtime's own function, even where the linker's --wrap redirects its
   name. With the per-thread default stream some names are macros. MLI_CUDA_PASTE is a macro of its
   own, so that these macros are expanded before it pastes. */
#if defined(MEMLORD_CUDA_WRAP)
#define MLI_CUDA_PASTE(prefix, name) prefix##name
#define MLI_CUDA_REAL(name) MLI_CUDA_PASTE(__real_, name)
#define MLI_CUDA_WRAP(name) MLI_CUDA_PASTE(__wrap_, name)
#else
#define MLI_CUDA_REAL(name) name
#endif

#endif
