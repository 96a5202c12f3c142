#include "embed/redirect.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/unwind.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/log.h"
#include "books/threads.h"
#include "books/anomalies.h"
#include "books/blocks.h"

#if !MLI_WINDOWS
static memlord_device mli_device_mapped(void) {
    return memlord_device_make(MEMLORD_DEVICE_MAPPED, 0);
}

/* Returns 1 if the pages from `at` to `at` + `size` are exactly those of one block. Sets *device to
   the device of the block that begins there, or to the cpu if no block does. */
static int mli_is_mapping(memlord *lord, uint64_t at, size_t size, memlord_device *device) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    memlord_block_info b;
    *device = mli_device_mapped();
    if (memlord_block_find(lord, *device, at, &b) != MEMLORD_OK) {
        *device = memlord_device_cpu();
        if (memlord_block_find(lord, *device, at, &b) != MEMLORD_OK) return 0;
    }
    return b.bytes / page + (b.bytes % page != 0) == size / page + (size % page != 0);
}
#endif

/* -- the functions that hooks put in place of the host's --
   The key of a block is its address. A function calls only the host's functions of its own slot. */

/* Returns 1 if a free or realloc of a block is to be recorded. If some functions of the table do
   not record, the ledger may rightly lack the block, so this function looks the block up. */
static int mli_hooked_has(const mli_hooked *h, memlord *lord, const void *ptr) {
    memlord_block_info info;
    return ptr && ((mli_u32_load(&h->which) & MLI_HOOK_COMPLETE) ||
                   !memlord_block_find(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), &info));
}
static MLI_NOINLINE void *mli_hooked_alloc(const mli_hooked *h, void *ptr, uint64_t bytes,
                                           uint32_t which, void *caller) {
    memlord *lord = memlord_find(mli_u64_load(&h->generation));
    if (ptr && lord && (mli_u32_load(&h->which) & which))
        (void)memlord_alloc(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), bytes,
                            memlord_site_at(lord, caller));
    return ptr;
}
static MLI_NOINLINE void mli_hooked_free(const mli_hooked *h, void *ptr, void *caller) {
    memlord *lord = memlord_find(mli_u64_load(&h->generation));
    if (lord && mli_hooked_has(h, lord, ptr))
        (void)memlord_free(lord, memlord_device_cpu(), MEMLORD_KEY(ptr),
                           memlord_site_at(lord, caller));
    h->host.free_fn(ptr);
}
/* With size 0 the host's realloc may free the block, and return NULL or a new block. */
static MLI_NOINLINE void *mli_hooked_realloc(const mli_hooked *h, void *ptr, size_t size,
                                             void *caller) {
    memlord *lord = memlord_find(mli_u64_load(&h->generation));
    const memlord_device d = memlord_device_cpu();
    const memlord_site *site = memlord_site_at(lord, caller);
    const int had = lord && mli_hooked_has(h, lord, ptr);
    const int moves = had && size && (mli_u32_load(&h->which) & MEMLORD_HOOK_REALLOC);
    memlord_result r = MEMLORD_E_UNKNOWN;
    memlord_realloc_token token;
    void *p;
    if (moves)
        (void)memlord_realloc_begin(lord, d, MEMLORD_KEY(ptr), &token);
    else if (had)
        r = memlord_free_begin(lord, d, MEMLORD_KEY(ptr), &token, site);
    p = h->host.realloc_fn(ptr, size);
    if (moves) {
        (void)memlord_realloc_end(lord, &token, MEMLORD_KEY(p), size, site);
        return p;
    }
    if (r == MEMLORD_OK) (void)memlord_free_end(lord, &token, !p && size, site);
    return mli_hooked_alloc(h, p, size, MEMLORD_HOOK_REALLOC, caller);
}
static MLI_NOINLINE void *mli_hooked_malloc(const mli_hooked *h, size_t size, void *caller) {
    return mli_hooked_alloc(h, h->host.malloc_fn(size), size, MEMLORD_HOOK_MALLOC, caller);
}
static MLI_NOINLINE void *mli_hooked_calloc(const mli_hooked *h, size_t count, size_t size,
                                            void *caller) {
    return mli_hooked_alloc(h, h->host.calloc_fn(count, size), (uint64_t)count * size,
                            MEMLORD_HOOK_CALLOC, caller);
}
static MLI_NOINLINE void *mli_hooked_aligned(const mli_hooked *h, size_t alignment, size_t size,
                                             void *caller) {
    return mli_hooked_alloc(h, h->host.aligned_fn(alignment, size), size, MEMLORD_HOOK_ALIGNED,
                            caller);
}

/* Defines the functions of slot n, which take the place of those in a hooked table. */
#define MLI_HOOK_FUNCTIONS(n)                                                                      \
    static void *mli_hook_malloc_##n(size_t size) {                                                \
        return mli_hooked_malloc(&mli_process.hooked[n], size, MLI_RETURN_ADDRESS());              \
    }                                                                                              \
    static void *mli_hook_calloc_##n(size_t count, size_t size) {                                  \
        return mli_hooked_calloc(&mli_process.hooked[n], count, size, MLI_RETURN_ADDRESS());       \
    }                                                                                              \
    static void *mli_hook_aligned_##n(size_t alignment, size_t size) {                             \
        return mli_hooked_aligned(&mli_process.hooked[n], alignment, size, MLI_RETURN_ADDRESS());  \
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
#define MLI_HOOK_TABLE(n)                                                                          \
    {mli_hook_malloc_##n, mli_hook_calloc_##n, mli_hook_realloc_##n, mli_hook_aligned_##n,         \
     mli_hook_free_##n}
static const memlord_hooks mli_hook_tables[MLI_HOOKED] = {MLI_HOOK_TABLE(0), MLI_HOOK_TABLE(1),
                                                          MLI_HOOK_TABLE(2), MLI_HOOK_TABLE(3)};
#undef MLI_HOOK_TABLE
#undef MLI_HOOK_FUNCTIONS

/* Returns the functions that a table has while it is hooked. */
static memlord_hooks mli_hooks_over(const mli_hooked *h, uint32_t which) {
    const memlord_hooks *own = &mli_hook_tables[h - mli_process.hooked];
    memlord_hooks hooks = h->host;
    if (which & MEMLORD_HOOK_MALLOC) hooks.malloc_fn = own->malloc_fn;
    if (hooks.calloc_fn && (which & MEMLORD_HOOK_CALLOC)) hooks.calloc_fn = own->calloc_fn;
    if (hooks.realloc_fn) hooks.realloc_fn = own->realloc_fn;
    if (hooks.aligned_fn && (which & MEMLORD_HOOK_ALIGNED)) hooks.aligned_fn = own->aligned_fn;
    hooks.free_fn = own->free_fn;
    return hooks;
}
static int mli_hooks_equal(const memlord_hooks *a, const memlord_hooks *b) {
    return a->malloc_fn == b->malloc_fn && a->calloc_fn == b->calloc_fn &&
           a->realloc_fn == b->realloc_fn && a->aligned_fn == b->aligned_fn &&
           a->free_fn == b->free_fn;
}
/* Returns 1 if a table has a function of MemLord's. */
static int mli_hooks_own(const memlord_hooks *table) {
    const memlord_hooks *own = mli_hook_tables;
    for (; own < mli_hook_tables + MLI_HOOKED; own++)
        if (table->malloc_fn == own->malloc_fn || table->calloc_fn == own->calloc_fn ||
            table->realloc_fn == own->realloc_fn || table->aligned_fn == own->aligned_fn ||
            table->free_fn == own->free_fn)
            return 1;
    return 0;
}

/* Returns the slot of a hooked table, or NULL if the table is not hooked. */
static mli_hooked *mli_hooked_of(const memlord_hooks *table) {
    MLI_REQUIRE(mli_lock_held(&mli_process.registry_lock));
    mli_hooked *h = mli_process.hooked;
    while (h < mli_process.hooked + MLI_HOOKED && h->table != table) h++;
    return h < mli_process.hooked + MLI_HOOKED ? h : NULL;
}
/* Returns a slot for a host's functions. It is one that has had exactly these functions before and
   has no table now, else the first slot that was never used. Returns NULL if there is none. */
static mli_hooked *mli_hooked_place(const memlord_hooks *host) {
    MLI_REQUIRE(mli_lock_held(&mli_process.registry_lock));
    mli_hooked *h = mli_process.hooked;
    while (h < mli_process.hooked + MLI_HOOKED && h->host.free_fn &&
           (h->table || !mli_hooks_equal(&h->host, host)))
        h++;
    return h < mli_process.hooked + MLI_HOOKED ? h : NULL;
}
/* Puts the host's functions back into the table of a slot, unless the host has done so. */
static memlord_result mli_unhook(mli_hooked *h) {
    MLI_REQUIRE(mli_lock_held(&mli_process.registry_lock));
    memlord_hooks hooks = mli_hooks_over(h, mli_u32_load(&h->which));
    if (!mli_hooks_equal(h->table, &hooks) && !mli_hooks_equal(h->table, &h->host))
        return MEMLORD_E_STATE;
    *h->table = h->host;
    h->table = NULL;
    mli_u64_store(&h->generation, 0);
    return MEMLORD_OK;
}

/* Returns 1 if `which` has malloc and every other function of the table that allocates. */
static MLI_COLD int mli_hooks_complete(const memlord_hooks *table, uint32_t which) {
    return (which & MEMLORD_HOOK_MALLOC) && (!table->calloc_fn || (which & MEMLORD_HOOK_CALLOC)) &&
           (!table->realloc_fn || (which & MEMLORD_HOOK_REALLOC)) &&
           (!table->aligned_fn || (which & MEMLORD_HOOK_ALIGNED));
}

/* -- public -- */

MLI_API memlord_result memlord_hooks_install(memlord *lord, memlord_hooks *table, uint32_t which) {
    static const char owned[] = "[hooks] refused: the table has functions of MemLord, or was "
                                "changed while it was hooked: put the host's own back first";
    static const char full[] = "[hooks] refused: 4 tables can be hooked, and each different set of "
                               "functions takes one of these places for good";
    mli_hooked *h;
    int own;
    if (!table || !table->malloc_fn || !table->free_fn || (which & ~(uint32_t)MEMLORD_HOOK_ALL))
        return MEMLORD_E_INVALID;
    if (mli_hooks_complete(table, which)) which |= MLI_HOOK_COMPLETE;
    mli_lock_take(&mli_process.registry_lock);
    h = mli_hooked_of(table);
    own = h ? mli_unhook(h) != MEMLORD_OK : mli_hooks_own(table);
    h = own ? NULL : mli_hooked_place(table);
    if (h) {
        h->table = table;
        if (!h->host.free_fn) h->host = *table;
        mli_u32_store(&h->which, which);
        mli_u64_store(&h->generation, memlord_generation(lord));
        *table = mli_hooks_over(h, which);
    }
    mli_lock_drop(&mli_process.registry_lock);
    if (h) return MEMLORD_OK;
    if (lord) mli_log(lord, MEMLORD_LOG_ERROR, own ? owned : full);
    return MEMLORD_E_STATE;
}
MLI_API memlord_result memlord_hooks_uninstall(memlord_hooks *table) {
    memlord_result r = MEMLORD_E_STATE;
    mli_hooked *h;
    if (!table) return r;
    mli_lock_take(&mli_process.registry_lock);
    h = mli_hooked_of(table);
    if (h) r = mli_unhook(h);
    mli_lock_drop(&mli_process.registry_lock);
    return r;
}

MLI_API void *memlord_shim_malloc(memlord *lord, size_t size, const memlord_site *site) {
    void *p = malloc(size);
    if (p) (void)memlord_alloc(lord, memlord_device_cpu(), MEMLORD_KEY(p), size, site);
    return p;
}
MLI_API void *memlord_shim_calloc(memlord *lord, size_t n, size_t size, const memlord_site *site) {
    void *p = calloc(n, size); /* is NULL if the product overflows */
    if (p) (void)memlord_alloc(lord, memlord_device_cpu(), MEMLORD_KEY(p), n * size, site);
    return p;
}
MLI_API void memlord_shim_free(memlord *lord, void *ptr, const memlord_site *site) {
    (void)memlord_free(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), site);
    free(ptr);
}
MLI_API void *memlord_shim_realloc(memlord *lord, void *ptr, size_t size,
                                   const memlord_site *site) {
    memlord_realloc_token token;
    void *p;
    if (ptr && !size) {
        memlord_shim_free(lord, ptr, site);
        return NULL;
    }
    (void)memlord_realloc_begin(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), &token);
    p = realloc(ptr, size);
    (void)memlord_realloc_end(lord, &token, MEMLORD_KEY(p), size, site);
    return p;
}

#if !MLI_WINDOWS
MLI_API void *memlord_shim_mmap(memlord *lord, void *at, size_t size, int prot, int flags,
                                int fd, int64_t offset, const memlord_site *site) {
    memlord_device d = flags & MAP_ANONYMOUS ? memlord_device_cpu() : mli_device_mapped();
    void *p;
    if ((off_t)offset != offset) { /* a truncated offset would map another part of the file */
        errno = EOVERFLOW;
        return MAP_FAILED;
    }
    p = mmap(at, size, prot, flags, fd, (off_t)offset);
    if (p != MAP_FAILED) (void)memlord_alloc(lord, d, MEMLORD_KEY(p), size, site);
    return p;
}
MLI_API int memlord_shim_munmap(memlord *lord, void *at, size_t size, const memlord_site *site) {
    uint64_t key = MEMLORD_KEY(at);
    memlord_realloc_token token;
    mli_call own, *call;
    memlord_device d;
    memlord_result known = MEMLORD_E_UNKNOWN;
    int r, error;
    if (!lord || mli_self.in_host_alloc) return munmap(at, size);
    if (mli_is_mapping(lord, key, size, &d))
        known = memlord_free_begin(lord, d, key, &token, site);
    r = munmap(at, size);
    error = errno;
    if (known == MEMLORD_OK) {
        (void)memlord_free_end(lord, &token, r, site);
    } else if (known == MEMLORD_E_UNKNOWN && !r) {
        call = mli_call_get(lord, &own, site, NULL, NULL);
        (void)mli_unknown_free(lord, call, d, key);
        mli_thread_put(lord, call->t);
        if (mli_debug_on(lord)) mli_log_call(lord, call, 0, "[free] ", d, key, size);
        mli_anomalies_tell(lord);
    }
    errno = error;
    return r;
}
#endif
