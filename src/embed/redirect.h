/* Owns the tables of hosts that are hooked, and has the functions behind the macros of api/shim.
   May use the recording calls and the allocator of the host. Invariant: a function keeps the result
   and the errno of the one that it replaces, whether or not the ledger could record the call.
   Locks: registry, while a table is hooked or unhooked. */
#ifndef MLI_EMBED_REDIRECT_H
#define MLI_EMBED_REDIRECT_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/unwind.h"
#include "base/ledger.h"

/* A block's key is its address. munmap ends a block only if its pages are that whole block. A
   function in a table calls those of one host only. */

MLI_PRIVATE void *mli_hooked_alloc(const mli_hooked *h, void *ptr, uint64_t bytes, uint32_t which,
                                   void *caller);
MLI_PRIVATE void mli_hooked_free(const mli_hooked *h, void *ptr, void *caller);
/* Size 0 may free, and return NULL or a new block. */
MLI_PRIVATE void *mli_hooked_realloc(const mli_hooked *h, void *ptr, size_t size, void *caller);

/* Defines the functions of a place. */
#define MLI_HOOK_FUNCTIONS(n)                                                                      \
    static void *mli_hook_malloc_##n(size_t size) {                                                \
        const mli_hooked *h = &mli_process.hooked[n];                                              \
        return mli_hooked_alloc(h, h->host.malloc_fn(size), size, MEMLORD_HOOK_MALLOC,             \
                                MLI_RETURN_ADDRESS());                                             \
    }                                                                                              \
    static void *mli_hook_calloc_##n(size_t count, size_t size) {                                  \
        const mli_hooked *h = &mli_process.hooked[n];                                              \
        return mli_hooked_alloc(h, h->host.calloc_fn(count, size), (uint64_t)count * size,         \
                                MEMLORD_HOOK_CALLOC, MLI_RETURN_ADDRESS());                        \
    }                                                                                              \
    static void *mli_hook_aligned_##n(size_t alignment, size_t size) {                             \
        const mli_hooked *h = &mli_process.hooked[n];                                              \
        return mli_hooked_alloc(h, h->host.aligned_fn(alignment, size), size,                      \
                                MEMLORD_HOOK_ALIGNED, MLI_RETURN_ADDRESS());                       \
    }                                                                                              \
    static void *mli_hook_realloc_##n(void *ptr, size_t size) {                                    \
        return mli_hooked_realloc(&mli_process.hooked[n], ptr, size, MLI_RETURN_ADDRESS());        \
    }                                                                                              \
    static void mli_hook_free_##n(void *ptr) {                                                     \
        mli_hooked_free(&mli_process.hooked[n], ptr, MLI_RETURN_ADDRESS());                        \
    }
MLI_HOOK_FUNCTIONS(0)
MLI_HOOK_FUNCTIONS(1)
MLI_HOOK_FUNCTIONS(2)
MLI_HOOK_FUNCTIONS(3)

#endif
