/* ---------------------------------------------------------------------- >>support --
   The API ends here. Below are functions that its macros and C++ types call, and a few for the
   authors of bindings. Programs seldom call them. */

/* -- ledgers that may have ended -- */

/* Returns the generation of a ledger: a number that no other ledger of the process ever has. It is
   0 for NULL. An object that may outlive its ledger keeps this number in place of the pointer. */
MEMLORD_API uint64_t memlord_generation(memlord *lord) MLI_OFF(0)

/* Returns the ledger that has this generation, or NULL if it is destroyed or there never was one.
   Threads: as with every call, no destroy of that ledger may be in flight.
   Cost:   a few ns. A call takes a lock and walks the ledgers if it asks for another generation
           than the thread's last call did, or if a ledger was destroyed since that call. */
MEMLORD_API memlord *memlord_find(uint64_t generation) MLI_OFF(NULL)

/* Fills in the allocator that a ledger has by default. This allocator takes pages from the
   operating system and does not call malloc. */
MEMLORD_API void memlord_os_allocator(memlord_allocator *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), )

/* -- guards: the functions behind MEMLORD_TAGGED, MEMLORD_SCOPED and their loop forms -- */

/* The name and the place of a scope. MEMLORD_SCOPED plants a record of them. Records are static,
   and are never changed, because the address of a record is the identity of its scope. */
typedef struct memlord_scope_site {
    const char *name;
    memlord_site site;
} memlord_scope_site;

/* Begins a scope by its static record. It finds the scope by the record's address, without
   comparing names.
   Errors: as memlord_scope_begin; E_INVALID also if `place` is NULL. */
MEMLORD_API memlord_result memlord_scope_enter(memlord *lord, const memlord_scope_site *place)
    MLI_OFF(MEMLORD_OK)

/* A tag or a scope that has begun, and what its end restores. */
typedef struct memlord_guard {
    memlord *lord;    /* ledger of the tag or scope; NULL: there is nothing to end */
    uint32_t context; /* the ledger's number of the context that the guard began in */
    uint32_t depth;   /* tags, or scopes, that were open in that context before */
    int scope;        /* 1: a scope; 0: a tag */
} memlord_guard;

/* Begins a tag. If memlord_tag_begin would return an error, the guard has nothing to end. */
MEMLORD_API memlord_guard memlord_guard_tag(memlord *lord, const char *tag)
    MLI_OFF_SET(memlord_guard none; memset(&none, 0, sizeof none), none)
/* Begins a scope by its static record `place` or, if that is NULL, by its name. If
   memlord_scope_enter or memlord_scope_begin would return an error, the guard has nothing to
   end. */
MEMLORD_API memlord_guard memlord_guard_scope(memlord *lord, const char *name,
                                              const memlord_scope_site *place)
    MLI_OFF_SET(memlord_guard none; memset(&none, 0, sizeof none), none)
/* Ends a guard. Afterwards as many tags, or scopes, are open in this context as before the guard
   began. So the call also ends the tags or scopes that were begun since and not ended, and leaves
   adopted scopes that were not returned. If longjmp has skipped the end of a guard, the end of the
   next outer guard ends the tag or scope of that guard, too. A second end does nothing. If the
   current context is not the one that the guard began in (the thread or the fibre is another), the
   call ends nothing. dropped_sites of memlord_device_all() counts such calls. The first of them is
   logged. */
MEMLORD_API void memlord_guard_end(memlord_guard *guard) MLI_OFF_VOID

/* -- a name of 0.4 -- */

/* Records an alloc on a ticket, under the name that memlord_alloc_with had in 0.4. The next release
   will not have this name. */
MLI_API_INLINE memlord_result memlord_alloc_reserved(memlord *lord, memlord_ticket ticket,
                                                     memlord_device device, uint64_t storage,
                                                     uint64_t bytes, const memlord_site *site) {
    memlord_alloc_opts opts;
    memset(&opts, 0, sizeof opts);
    opts.site = site;
    opts.ticket = ticket;
    return memlord_alloc_with(lord, device, storage, bytes, &opts);
}

/* -- shim: what MEMLORD_SHIM puts in place of the C library's functions --
   Each function makes the real call, records it on the cpu device (an mmap of a file: on the
   mapped device), and keeps errno. */

#if !defined(MEMLORD_DISABLE)
/* Calls malloc, and records the block. */
MEMLORD_API void *memlord_shim_malloc(memlord *lord, size_t size, const memlord_site *site);
/* Calls calloc, and records the block. */
MEMLORD_API void *memlord_shim_calloc(memlord *lord, size_t n, size_t size,
                                      const memlord_site *site);
/* Calls realloc, and records what it did. Size 0 frees and returns NULL, as in glibc. */
MEMLORD_API void *memlord_shim_realloc(memlord *lord, void *ptr, size_t size,
                                       const memlord_site *site);
/* Records the free, and calls free. */
MEMLORD_API void memlord_shim_free(memlord *lord, void *ptr, const memlord_site *site);
#if !defined(_WIN32)
/* Calls mmap, and records the pages as one block. MAP_FIXED over the start of a live block ends
   that block as an implicit free. MAP_FIXED over a later part of a block makes the pages of that
   part count twice. The call fails with EOVERFLOW if the offset does not fit the off_t of the
   source file with the implementation, so define _FILE_OFFSET_BITS in that source file, too. */
MEMLORD_API void *memlord_shim_mmap(memlord *lord, void *at, size_t size, int prot, int flags,
                                    int fd, int64_t offset, const memlord_site *site);
/* Calls munmap, and ends the block with exactly this address and size. If the real call succeeds on
   another range (a part of a block, several blocks), no block ends, and unknown_frees counts the
   call. */
MEMLORD_API int memlord_shim_munmap(memlord *lord, void *at, size_t size,
                                    const memlord_site *site);
#endif
#endif

#ifdef __cplusplus
} /* extern "C" */
extern "C++" { /* also where the host includes this header inside extern "C" */
#endif
