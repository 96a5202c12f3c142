#include "cuda/system.h"

#if defined(_WIN32)
MLI_CUDA_PRIVATE void mli_cuda_lock_take(mli_cuda_lock *l) { AcquireSRWLockExclusive(l); }
MLI_CUDA_PRIVATE void mli_cuda_lock_drop(mli_cuda_lock *l) { ReleaseSRWLockExclusive(l); }
MLI_CUDA_PRIVATE void *mli_cuda_library_open(const char *name) {
    return (void *)LoadLibraryExA(name, NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
}
MLI_CUDA_PRIVATE void mli_cuda_library_close(void *library) { FreeLibrary((HMODULE)library); }
static void *mli_cuda_library_find(void *library, const char *name) {
    FARPROC found = GetProcAddress((HMODULE)library, name);
    void *copy;
    memcpy(&copy, &found, sizeof copy);
    return copy;
}
MLI_CUDA_PRIVATE void mli_cuda_yield(void) { (void)SwitchToThread(); }
MLI_CUDA_PRIVATE uint64_t mli_cuda_process_id(void) { return GetCurrentProcessId(); }
#else
MLI_CUDA_PRIVATE void mli_cuda_lock_take(mli_cuda_lock *l) { (void)pthread_mutex_lock(l); }
MLI_CUDA_PRIVATE void mli_cuda_lock_drop(mli_cuda_lock *l) { (void)pthread_mutex_unlock(l); }
MLI_CUDA_PRIVATE void *mli_cuda_library_open(const char *name) {
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}
MLI_CUDA_PRIVATE void mli_cuda_library_close(void *library) { (void)dlclose(library); }
static void *mli_cuda_library_find(void *library, const char *name) {
    return dlsym(library, name);
}
MLI_CUDA_PRIVATE void mli_cuda_yield(void) { (void)sched_yield(); }
MLI_CUDA_PRIVATE uint64_t mli_cuda_process_id(void) { return (uint64_t)getpid(); }
#endif
MLI_CUDA_PRIVATE const char *mli_cuda_library_fill(void *library, const mli_cuda_symbol *symbols,
                                                   size_t n, void *table) {
    const char *missing = NULL;
    size_t i;
    for (i = 0; i < n; i++) {
        void *found = mli_cuda_library_find(library, symbols[i].name);
        /* ISO C does not convert a pointer to an object to a pointer to a function */
        memcpy((char *)table + symbols[i].at, &found, sizeof found);
        if (symbols[i].needed && !found) missing = symbols[i].name;
    }
    return missing;
}

#if defined(__GNUC__)
MLI_CUDA_PRIVATE uint64_t mli_cuda_load(mli_cuda_u64 *a) {
    return __atomic_load_n(&a->v, __ATOMIC_RELAXED);
}
MLI_CUDA_PRIVATE uint64_t mli_cuda_load_acquire(mli_cuda_u64 *a) {
    return __atomic_load_n(&a->v, __ATOMIC_ACQUIRE);
}
MLI_CUDA_PRIVATE void mli_cuda_store(mli_cuda_u64 *a, uint64_t v) {
    __atomic_store_n(&a->v, v, __ATOMIC_RELAXED);
}
MLI_CUDA_PRIVATE void mli_cuda_store_release(mli_cuda_u64 *a, uint64_t v) {
    __atomic_store_n(&a->v, v, __ATOMIC_RELEASE);
}
MLI_CUDA_PRIVATE uint64_t mli_cuda_add(mli_cuda_u64 *a, uint64_t v) {
    return __atomic_fetch_add(&a->v, v, __ATOMIC_RELAXED);
}
MLI_CUDA_PRIVATE uint64_t mli_cuda_add_release(mli_cuda_u64 *a, uint64_t v) {
    return __atomic_fetch_add(&a->v, v, __ATOMIC_RELEASE);
}
#elif defined(_MSC_VER) && defined(_WIN64)
#include <intrin.h>
MLI_CUDA_PRIVATE uint64_t mli_cuda_load(mli_cuda_u64 *a) { return *(volatile uint64_t *)&a->v; }
MLI_CUDA_PRIVATE uint64_t mli_cuda_load_acquire(mli_cuda_u64 *a) {
    return (uint64_t)_InterlockedOr64((volatile __int64 *)&a->v, 0);
}
MLI_CUDA_PRIVATE void mli_cuda_store(mli_cuda_u64 *a, uint64_t v) {
    *(volatile uint64_t *)&a->v = v;
}
MLI_CUDA_PRIVATE void mli_cuda_store_release(mli_cuda_u64 *a, uint64_t v) {
    (void)_InterlockedExchange64((volatile __int64 *)&a->v, (__int64)v);
}
MLI_CUDA_PRIVATE uint64_t mli_cuda_add(mli_cuda_u64 *a, uint64_t v) {
    return (uint64_t)_InterlockedExchangeAdd64((volatile __int64 *)&a->v, (__int64)v);
}
MLI_CUDA_PRIVATE uint64_t mli_cuda_add_release(mli_cuda_u64 *a, uint64_t v) {
    return mli_cuda_add(a, v); /* the addition is a full barrier */
}
#else
#error "memlord_cuda.h needs 64-bit atomics: GNU C, clang, or MSVC for x64 or arm64"
#endif

/* Under --wrap the linker redirects the plain names in this file, too. So the wrappers call the
   runtime by its __real_ names, and are defined under the __wrap_ names. */
#if defined(MEMLORD_CUDA_WRAP)
#ifdef __cplusplus
extern "C" {
#endif
#define MLI_CUDA_X0(real, ours) __typeof__(real) MLI_CUDA_REAL(real), MLI_CUDA_WRAP(real);
#define MLI_CUDA_X(real, ours, params, args) MLI_CUDA_X0(real, ours)
MLI_CUDA_WRAPPED(MLI_CUDA_X, MLI_CUDA_X0)
#undef MLI_CUDA_X
#undef MLI_CUDA_X0
#ifdef __cplusplus
}
#endif
#endif
