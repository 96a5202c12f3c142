/* A part of preload.c, a library that is loaded into a program to record its heap: the functions
   that replace malloc, free and others of the C library. Each calls the real function, that of the
   C library, and records the block in the ledger with its site, which is the place of the call.
   `inside` is 1 while a thread is in this library. */

/* --------------------------------------------------------------------------- the hooks -- */

/* The addresses of the functions that the variable MEMLORD_SKIP names. Such a function only wraps
   malloc, so the site of its block is the place that called it. */
#define MAX_SKIPS 64
static struct {
    uintptr_t from, to;
} skips[MAX_SKIPS];
static size_t skip_count;

static int is_skipped(const void *return_address) {
    const uintptr_t call = (uintptr_t)return_address - 1; /* an address in the call, because a
                                                             function that ends with the call does
                                                             not contain the return address */
    size_t i = 0;
    while (i < skip_count && (call < skips[i].from || call >= skips[i].to)) i++;
    return i < skip_count;
}

/* Returns the first return address of the stack, from `caller` outwards, that is in no function of
   MEMLORD_SKIP. Returns `caller` if there is none. */
static void *call_outside(void *caller) {
    void *frames[MAX_SKIPS];
    size_t n = take_stack(NULL, frames, MAX_SKIPS), i = 0;
    if (n && frames[n - 1] == MEMLORD_FRAME_LOST) n--;
    while (i < n && frames[i] != caller) i++;
    while (i < n && is_skipped(frames[i])) i++;
    return i < n ? frames[i] : caller;
}

/* Returns the site of a caller. Keeps the site, because the next call mostly has the same
   caller. */
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

/* Counts an allocation that found no memory, with its size and its site. A size over MLI_BYTES_MAX
   counts as MLI_BYTES_MAX. */
static __attribute__((noinline, cold)) void count_failed(size_t size, void *caller) {
    const int error = errno;
    if (!size || no_reports) return; /* a NULL for 0 bytes is no failure; no report would have it, and
                                    memlord_alloc_failed reads files */
    (void)memlord_alloc_failed(lord, memlord_device_cpu(),
                               size < MLI_BYTES_MAX ? size : MLI_BYTES_MAX, site_of(caller));
    errno = error;
}

/* Records a block that a real function returned, or that it found no memory, and ends the call. Requires: `inside` is set. The
   caller sets it before the call of the real function, because an allocator may call itself (calloc
   may call malloc), and the handler of a signal that interrupts the allocator may exit. */
static inline void *opened(void *ptr, size_t size, void *caller) {
    if (origin.caller) {
        caller = origin.caller;
        origin.counted = ptr;
    }
    if (ptr) {
        (void)memlord_alloc(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), size,
                            site_of(caller));
    } else {
        count_failed(size, caller);
    }
    leave();
    return ptr;
}

/* Refuses an allocation whose size is too large for a size_t. */
static void *too_large(void *caller) {
    errno = ENOMEM;
    if (inside) return NULL;
    inside = 1;
    return opened(NULL, SIZE_MAX, caller);
}

EXPORT void *malloc(size_t size) {
    if (inside) return real.malloc(size);
    inside = 1;
    return opened(real.malloc(size), size, CALLER());
}

EXPORT void *calloc(size_t n, size_t size) {
    void *ptr;
    if ((uintptr_t)CALLER() - loader.from < loader.bytes)
        (void)__atomic_add_fetch(&loader.loads, 1, __ATOMIC_RELAXED);
    if (inside) return real.calloc(n, size);
    inside = 1;
    ptr = real.calloc(n, size);
    return opened(ptr, ptr || !size || n <= SIZE_MAX / size ? n * size : SIZE_MAX, CALLER());
}

/* A free gets no site, because reports are about the code that allocates, and looking the site up
   would take a fifth of the whole time. */

/* Prefetches the word before a block. The real free and realloc read this word first, and it is
   seldom in the cache. Its cache miss then overlaps with the cache misses of the ledger. */
static inline void fetch_ahead(const void *ptr) {
    __builtin_prefetch((const void *)((uintptr_t)ptr - 2 * sizeof(size_t)), 1);
}

/* Records the free of a block. Requires: `inside` is set. */
static inline void close_block(void *ptr) {
    (void)memlord_free(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), NULL);
}

/* Records the free of a block inside this library, if the ledger has the block. */
static void close_inside(void *ptr) {
    memlord_block_info info;
    if (inside != LENT || ptr == origin.deleted) return;
    inside = 1;
    if (!memlord_block_find(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), &info))
        close_block(ptr);
    inside = LENT;
}

EXPORT void free(void *ptr) {
    fetch_ahead(ptr);
    if (is_boot(ptr)) return;
    if (inside) {
        close_inside(ptr);
        real.free(ptr);
        return;
    }
    inside = 1;
    close_block(ptr);
    real.free(ptr);
    leave();
}

/* Copies a block that was allocated in `boot`, before the real functions were found. The size of
   the old block is not known, so the copy may run past its end, but not past the end of `boot`. */
static void *copy_boot(const void *old, size_t size) {
    size_t most = (size_t)(boot + BOOT_BYTES - (const unsigned char *)old);
    void *fresh = real.malloc(size);
    return fresh ? memcpy(fresh, old, size < most ? size : most) : NULL;
}

/* Does a realloc to 0 bytes. The allocator frees the block and returns NULL, or returns a new
   block. So a result of NULL does not mean that the old block is still there. */
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
    if (!fresh) {
        errno = ENOMEM;
        count_failed(size, caller);
    }
    leave();
    return fresh;
}

static inline void *realloc_from(void *old, size_t size, void *caller) {
    if (inside) {
        if (is_boot(old)) return copy_boot(old, size);
        if (old) close_inside(old);
        return real.realloc(old, size);
    }
    inside = 1;
    if (is_boot(old)) return opened(copy_boot(old, size), size, caller);
    if (!old) return opened(real.realloc(NULL, size), size, caller);
    return size ? realloc_moving(old, size, caller) : realloc_to_zero(old, caller);
}

EXPORT void *realloc(void *old, size_t size) {
    return realloc_from(old, size, CALLER());
}

/* Calls no real reallocarray, because not every C library has one, and none does more than this. */
EXPORT void *reallocarray(void *old, size_t n, size_t size) {
    if (size && n > SIZE_MAX / size) return too_large(CALLER());
    return realloc_from(old, n * size, CALLER());
}

EXPORT int posix_memalign(void **out, size_t align, size_t size) {
    int failed;
    if (inside) return real.posix_memalign(out, align, size);
    inside = 1;
    failed = real.posix_memalign(out, align, size);
    (void)opened(failed ? NULL : *out, failed == EINVAL ? 0 : size, CALLER());
    return failed;
}

/* Does the same as `opened`. An alignment that is refused is no lack of memory. */
static inline void *opened_aligned(void *ptr, size_t size, void *caller) {
    return opened(ptr, ptr || errno != EINVAL ? size : 0, caller);
}

EXPORT void *aligned_alloc(size_t align, size_t size) {
    if (inside) return real.aligned_alloc(align, size);
    inside = 1;
    return opened_aligned(real.aligned_alloc(align, size), size, CALLER());
}

EXPORT void *memalign(size_t align, size_t size) {
    if (inside) return real.memalign(align, size);
    inside = 1;
    return opened_aligned(real.memalign(align, size), size, CALLER());
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
    if (pages < size) return too_large(CALLER());
    return page_aligned(page, pages, CALLER());
}
