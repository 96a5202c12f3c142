/* ---------------------------------------------------------------------- >>support --
   The API ends here. Below are functions that its macros and C++ types call, and a few for the
   authors of bindings. Programs seldom call them. */

/* -- ledgers that may have ended -- */

/* Returns a number that no other ledger of the process has, before or after; 0 of NULL. What may
   outlive its ledger keeps this number in place of the pointer. */
MEMLORD_API uint64_t memlord_generation(memlord *lord) MLI_OFF(0)

/* Returns the ledger of a generation; NULL: it is destroyed, or there never was one.
   Threads: as with every call, no destroy of that ledger may be in flight.
   Cost:   a few ns; on a thread's first call since a ledger was destroyed a lock, and a walk of the
           ledgers. */
MEMLORD_API memlord *memlord_find(uint64_t generation) MLI_OFF(NULL)

/* Fills in the allocator that a ledger has by default: it takes pages from the operating system and
   calls no malloc. */
MEMLORD_API void memlord_os_allocator(memlord_allocator *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), )

/* -- guards: what MEMLORD_TAGGED, MEMLORD_SCOPED and their loop forms stand on -- */

/* The name and the place of a scope: MEMLORD_SCOPED plants a static one. Its address is its
   identity; its strings are copied when first seen. */
typedef struct memlord_scope_site {
    const char *name;
    memlord_site site;
} memlord_scope_site;

/* Begins a scope by its static record: finds it by the address, without comparing names.
   Errors: as memlord_scope_begin; E_INVALID `place` NULL. */
MEMLORD_API memlord_result memlord_scope_enter(memlord *lord, const memlord_scope_site *place)
    MLI_OFF(MEMLORD_OK)

/* A tag or a scope that has begun, and what its end restores. */
typedef struct memlord_guard {
    memlord *lord;    /* NULL: there is nothing to end */
    uint32_t context; /* the ledger's number of the context that it began in */
    uint32_t depth;   /* how many tags, or scopes, were open there before */
    int scope;        /* 1: a scope; 0: a tag */
} memlord_guard;

/* Begins a tag. The guard has nothing to end where memlord_tag_begin would return an error. */
MEMLORD_API memlord_guard memlord_guard_tag(memlord *lord, const char *tag)
    MLI_OFF_SET(memlord_guard none; memset(&none, 0, sizeof none), none)
/* Begins a scope: by its static record `place` or, if that is NULL, by its name. The guard has
   nothing to end where memlord_scope_enter or memlord_scope_begin would return an error. */
MEMLORD_API memlord_guard memlord_guard_scope(memlord *lord, const char *name,
                                              const memlord_scope_site *place)
    MLI_OFF_SET(memlord_guard none; memset(&none, 0, sizeof none), none)
/* Ends a guard: this context is then as deep in tags, or in scopes, as before the guard began. So
   it also ends those that were begun since and not ended, and leaves adopted scopes that were not
   returned: after a longjmp the next guard around puts things right. A second end does nothing. In
   another context than the guard began in (that of another thread, or of another fibre) it does
   nothing but count in dropped_sites of the sum of all devices; the first such end is logged. */
MEMLORD_API void memlord_guard_end(memlord_guard *guard) MLI_OFF_VOID

/* -- a name of 0.4 -- */

/* Records an alloc on a ticket: the name of 0.4 for memlord_alloc_with. The next release leaves it
   out. */
MLI_INLINE memlord_result memlord_alloc_reserved(memlord *lord, memlord_ticket ticket,
                                                 memlord_device device, uint64_t storage,
                                                 uint64_t bytes, const memlord_site *site) {
    memlord_alloc_opts opts;
    memset(&opts, 0, sizeof opts);
    opts.site = site;
    opts.ticket = ticket;
    return memlord_alloc_with(lord, device, storage, bytes, &opts);
}

/* -- shim: what MEMLORD_SHIM puts in place of the C library's functions --
   Each does the real call, on the cpu device (mapped for a file's mmap), and keeps errno. */

#if !defined(MEMLORD_DISABLE)
/* Calls malloc, and records the block. */
MEMLORD_API void *memlord_shim_malloc(memlord *lord, size_t size, const memlord_site *site);
/* Calls calloc, and records the block. */
MEMLORD_API void *memlord_shim_calloc(memlord *lord, size_t n, size_t size,
                                      const memlord_site *site);
/* Calls realloc, and records what it did. Size 0 frees and returns NULL, as glibc does. */
MEMLORD_API void *memlord_shim_realloc(memlord *lord, void *ptr, size_t size,
                                       const memlord_site *site);
/* Records the free, and calls free. */
MEMLORD_API void memlord_shim_free(memlord *lord, void *ptr, const memlord_site *site);
#if !defined(_WIN32)
/* Calls mmap, and records the pages as one block. MAP_FIXED over the start of a live block ends
   that block, an implicit free; over a later part of it, those pages count twice. An offset that
   does not fit the off_t of the file with the implementation fails with EOVERFLOW: define
   _FILE_OFFSET_BITS there, too. */
MEMLORD_API void *memlord_shim_mmap(memlord *lord, void *at, size_t size, int prot, int flags,
                                    int fd, int64_t offset, const memlord_site *site);
/* Calls munmap, and ends the block with exactly this address and size. Other ranges (a part of a
   block, several blocks) end nothing and count in unknown_frees, unless the real call fails. */
MEMLORD_API int memlord_shim_munmap(memlord *lord, void *at, size_t size,
                                    const memlord_site *site);
#endif
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif
