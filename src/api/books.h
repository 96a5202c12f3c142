/* The first groups of functions below record storages. A storage is one real allocation. It is live
   from its alloc to its end, and a block is the record of a live storage. A view is a further
   reference to a storage. A freed storage is pending while its device still uses it. A site is a
   place in the source, a tag names the purpose of bytes, and a mistake is a call that the host
   should not have made. A selector (`sel`) is one device, all devices of a type, or all devices.
   >>concepts has all such words. */

/* -- storages --
   `device` is one device, never a selector. `storage` is the address or handle of the memory.
   `bytes` is at most 2^48. `site` may be NULL. These calls have errors in common: E_INVALID for a
   storage of 0 or UINT64_MAX, or for too many bytes; E_DEVICE for a selector, or for what is no
   device; E_NOMEM if the map cannot grow. E_INVALID and E_DEVICE count in `refused`, E_NOMEM counts
   in dropped_allocs. After E_NOMEM the storage is dropped: it is not recorded. Its free returns
   MEMLORD_OK, and does not count in unknown_frees. The ledger remembers 64 dropped storages. For
   each further one it accepts the free of one unknown storage on a device of the same type.
   Cost:   tens of ns; see >>costs. */

#define MEMLORD_NONE UINT64_MAX /* as an account: no account; as a stream: the default stream */

/* A place in the source. MEMLORD_SITE plants a record of it. Records are static, and are never
   changed, because a ledger knows a site by the address of its record; memlord_site_of takes a
   place by value. Two records with the same file, function and line in one module are one site. If
   dlopen loads a plug-in where another plug-in was, a record of the new plug-in may be at the
   address of an old record. The ledger then takes the new place for the old place. To prevent that,
   link plug-ins that plant sites with -Wl,-z,nodelete. */
typedef struct memlord_site {
    const char *file;
    const char *function;
    int line; /* 0: not known */
} memlord_site;

/* A storage, for calls that take several storages. */
typedef struct memlord_block {
    memlord_device device;
    uint64_t storage;
    uint64_t bytes; /* ignored by free_n and release_n */
} memlord_block;

/* Records a storage that was just created. The key of a storage is its device type and `storage`.
   If a storage with the same key is live, its free was not recorded. The old storage ends now, and
   counts in implicit_frees. */
MEMLORD_API memlord_result memlord_alloc(memlord *lord, memlord_device device,
                                         uint64_t storage, uint64_t bytes,
                                         const memlord_site *site) MLI_OFF(MEMLORD_OK)

/* Records the end of a storage, however many references it has. Call it before the real free.
   Storage 0 does nothing. The device's index is ignored.
   Errors: E_UNKNOWN if the storage is not live. Totals are unchanged, and unknown_frees counts the
           call. */
MEMLORD_API memlord_result memlord_free(memlord *lord, memlord_device device,
                                        uint64_t storage, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Records a realloc, after the real one. The block keeps its tag, description, references, recorded
   uses (memlord_block_use) and mark (memlord_mark). With old_storage 0 the call records an alloc.
   If the old storage is not live, unknown_frees counts the call, and the new storage begins.
   `reallocs` counts each realloc.
   Requires: no other thread can have got the old address since the real realloc. That holds if the
             block has grown in place, or if only one thread allocates. Otherwise use
             memlord_realloc_begin and memlord_realloc_end.
   Errors: E_NOMEM if there is no room for the new storage: the old one stays as it was, and nothing
           is dropped. But if another thread has taken the room that was found, the old storage
           ends, and the new one is dropped. */
MEMLORD_API memlord_result memlord_realloc(memlord *lord, memlord_device device,
                                           uint64_t old_storage, uint64_t new_storage,
                                           uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* What a begin passes to its end: memlord_realloc_begin to memlord_realloc_end, and
   memlord_free_begin to memlord_free_end. Only the library uses the fields. A token is not copied,
   and not moved: it has its own address. */
typedef struct memlord_realloc_token {
    memlord_device device;
    uint32_t state;
    uint64_t storage;
    uint64_t word[5];
} memlord_realloc_token;

/* Begins a realloc. It takes old_storage off the map (the table of live storages), and goes on
   counting its bytes. Call it before the real realloc, because another thread may own the old
   address once the real realloc returns. Until the end no function lists or finds the block. Every
   begin needs one end.
   Errors: E_UNKNOWN if old_storage is not live; unknown_frees counts the call. The token is valid
           all the same, and memlord_realloc_end then begins the new storage. */
MEMLORD_API memlord_result memlord_realloc_begin(memlord *lord, memlord_device device,
                                                 uint64_t old_storage,
                                                 memlord_realloc_token *token)
    MLI_OFF_SET(if (token) memset(token, 0, sizeof *token), MEMLORD_OK)

/* Ends a realloc: records what the real realloc did. A new_storage of 0 says that the real realloc
   failed; the old storage then comes back as it was.
   Errors: E_STATE if the token was used already, is a copy, or came from another ledger or from
           memlord_free_begin; E_NOMEM if there is no room for the new storage, which counts as
           dropped. */
MEMLORD_API memlord_result memlord_realloc_end(memlord *lord, memlord_realloc_token *token,
                                               uint64_t new_storage, uint64_t bytes,
                                               const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Begins a free whose real call may fail. It takes the storage off the map (the table of live
   storages), and goes on counting its bytes. If the storage has recorded uses (memlord_block_use),
   this call frees it, and it is pending until those uses are done. Storage 0 does nothing. Every
   begin that returned MEMLORD_OK needs one end.
   Errors: E_UNKNOWN if the storage is not live; unknown_frees counts the call. E_STATE if the
           storage is pending already. */
MEMLORD_API memlord_result memlord_free_begin(memlord *lord, memlord_device device,
                                              uint64_t storage, memlord_realloc_token *token,
                                              const memlord_site *site)
    MLI_OFF_SET(if (token) memset(token, 0, sizeof *token), MEMLORD_OK)
/* Ends a free. It takes the bytes of the storage off the counts. But if `failed` is not 0, the real
   call has failed, and the storage comes back. A storage with recorded uses comes back without its
   uses, its views and its description. The token may also come from memlord_realloc_begin, if the
   realloc turned out to be a free.
   Errors: E_STATE if the token was used already, is a copy or came from another ledger, or if
           memlord_free_begin returned an error; E_NOMEM if there is no room for the storage that
           comes back, which counts as dropped. */
MEMLORD_API memlord_result memlord_free_end(memlord *lord, memlord_realloc_token *token,
                                            int failed, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Records n allocs in one call. It first checks all arguments and reserves room, so that nothing is
   recorded after an error. Then it records the blocks one by one. Meanwhile other threads may see a
   new block with 0 bytes.
   Errors: E_INVALID also if `blocks` is NULL and n > 0, or if the sum of the sizes overflows. */
MEMLORD_API memlord_result memlord_alloc_n(memlord *lord, const memlord_block *blocks,
                                           size_t n, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)
/* Records n frees in one call, as memlord_alloc_n records n allocs.
   Errors: E_UNKNOWN if some storages were not live; the others are freed. */
MEMLORD_API memlord_result memlord_free_n(memlord *lord, const memlord_block *blocks,
                                          size_t n, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Tells when a device has finished a piece of work. A fence stands for an event of the device, or
   for a value of a timeline. MemLord calls both functions with no lock held, and they may call the
   ledger. */
typedef struct memlord_fence {
    int (*done)(void *user);  /* 1: done, 0: not yet, < 0: failed; may not block */
    void *user;
    uint64_t queue;           /* the number of a queue (a stream), whose fences complete in order */
    void (*drop)(void *user); /* called when `done` will not be called again; may be NULL */
} memlord_fence;

/* Records that a block has moved: the source ends, then the destination begins with `bytes`. The
   destination gets the tag, description, references and mark (memlord_mark) of the source. The
   statistic `moves` of the destination's device counts the move, and reports count moves per pair
   of devices. If `fence` is not NULL, or the source has recorded uses (memlord_block_use), the
   source is pending until the fence and the uses are done, as after memlord_free_deferred.
   Errors: E_UNKNOWN if the source is not live; unknown_frees counts the call. E_INVALID if the
           fence has no `done`. */
MEMLORD_API memlord_result memlord_move(memlord *lord, memlord_device from,
                                        uint64_t from_storage, memlord_device to,
                                        uint64_t to_storage, uint64_t bytes,
                                        const memlord_fence *fence, const memlord_site *site)
    MLI_OFF_SET(if (fence && fence->drop) fence->drop(fence->user), MEMLORD_OK)

/* Records that bytes were copied from one device to another. The statistic `copies` of the
   destination counts the copy, and reports count copies per pair of devices. No live bytes change:
   record the storage of the copy with memlord_alloc.
   Errors: E_DEVICE if `from` or `to` is not one device; E_INVALID for more than 2^48 bytes;
           E_NOMEM.
   Cost:   a few atomics; the first copy between two devices also takes a lock. */
MEMLORD_API memlord_result memlord_copy(memlord *lord, memlord_device from, memlord_device to,
                                        uint64_t bytes) MLI_OFF(MEMLORD_OK)

/* -- views: several owners of one storage -- */

/* Records that the caller holds a storage. A storage that is not live begins, with one reference. A
   live storage gets one more reference and no bytes; `bytes` is then ignored. So the bytes of a
   storage with several owners, such as tied weights, count once. */
MEMLORD_API memlord_result memlord_track(memlord *lord, memlord_device device,
                                         uint64_t storage, uint64_t bytes,
                                         const memlord_site *site) MLI_OFF(MEMLORD_OK)

/* Adds a reference to a live storage. Errors: E_UNKNOWN if the storage is not live. */
MEMLORD_API memlord_result memlord_retain(memlord *lord, memlord_device device,
                                          uint64_t storage, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Drops a reference. If it was the last reference, the storage ends. Storage 0 does nothing.
   Errors: E_UNKNOWN if the storage is not live; unknown_frees counts the call. */
MEMLORD_API memlord_result memlord_release(memlord *lord, memlord_device device,
                                           uint64_t storage, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Tracks n storages in one call, as memlord_alloc_n records n allocs. */
MEMLORD_API memlord_result memlord_track_n(memlord *lord, const memlord_block *blocks,
                                           size_t n, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)
/* Releases n storages in one call, as memlord_free_n records n frees. */
MEMLORD_API memlord_result memlord_release_n(memlord *lord, const memlord_block *blocks,
                                             size_t n, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* -- arenas: bytes that belong to no storage -- */

/* Adds bytes to the arena balance of a device, under the tag of this thread. The balance is the
   bytes that were added and not taken off yet. They belong to no storage. A site counts the bytes
   that it added and took, but has no live arena bytes. Record an arena that is one piece of memory
   as a block instead, and resize it with memlord_realloc(lord, device, key, key, bytes, site): then
   it has a site and a stack.
   Errors: E_INVALID for more than 2^48 bytes, or if the balance would overflow.
   Cost:   a few shared counters; under a tag also a lock of the device. */
MEMLORD_API memlord_result memlord_arena_add(memlord *lord, memlord_device device,
                                             uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Takes bytes from the arena balance of a device. If `bytes` is more than the balance, the balance
   becomes 0, the result is MEMLORD_OK, and the statistic `underflows` counts the call. The bytes
   come off the tag of this thread. If the tag has too few, the rest comes off the untagged arena
   bytes. If all tags together then have more arena bytes than the device, the largest tags give up
   the excess. `underflows` also counts each tag that gives up bytes. Storages are never touched.
   Errors: E_INVALID for more than 2^48 bytes in one call.
   Cost:   that of memlord_arena_add; if tags give up bytes, also some walks of the tags. */
MEMLORD_API memlord_result memlord_arena_sub(memlord *lord, memlord_device device,
                                             uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* -- fences: memory that the device still uses --
   A block whose free has to wait is pending. Its bytes are still in `allocated`, but a call that
   frees, releases, retains or uses a block does not find it. To poll a fence is to call its `done`.
   A failed fence counts as done, and in fence_failures.
   Fences are polled by memlord_retire, memlord_gc_poll, memlord_free_deferred and the pollers of
   devices, and by memlord_alloc_retry before each further attempt. Each of these looks at every
   queue of the device type. Besides, an alloc or a free polls up to four fences of one queue of its
   device type. After a `done` that returned 0, allocs and frees leave the queue alone for a while.
   The while doubles with each further 0, up to 256 calls or 10 ms (one call in eight reads the
   clock). Pending blocks make no call on another device type slower.
   The fences of one device and queue are polled in the order of the frees. So a block waits for the
   blocks of its queue that were freed before it, and a slow queue holds up only itself. A host
   whose streams wait for each other's events needs no fences: it calls memlord_free. */

/* Frees a storage once a fence is done. It calls `done` at once, on this thread, except with
   MEMLORD_FLAG_DEFER. In its first call `done` may record an event of the device. It calls `drop`,
   if set, exactly once, when MemLord will not call `done` again. An alloc with the key of a pending
   storage ends that storage first. If the alloc of the storage was dropped, `done` is not called.
   Errors: E_INVALID if the fence has no `done`; E_UNKNOWN if the storage is not live; unknown_frees
           counts the call. E_NOMEM. After an error MemLord calls neither `done` nor `drop`. */
MEMLORD_API memlord_result memlord_free_deferred(memlord *lord, memlord_device device,
                                                 uint64_t storage, memlord_fence fence,
                                                 const memlord_site *site)
    MLI_OFF_SET(if (fence.drop) fence.drop(fence.user), MEMLORD_OK)

/* Ends a pending storage now, whatever its fences say. It is for a host that learns from its device
   when the device is done with the storage. MemLord drops the fences of the storage, and does not
   call their `done` any more.
   Errors: E_UNKNOWN if the storage is not pending. Nothing changes, and nothing is counted.
   Cost:   the same as a free. */
MEMLORD_API memlord_result memlord_free_done(memlord *lord, memlord_device device,
                                             uint64_t storage) MLI_OFF(MEMLORD_OK)

/* Records that a live storage is used by the work that the fence stands for, as record_stream of
   PyTorch does. A later memlord_free or memlord_release of the storage then waits until all its
   uses are done. A later use on the same queue replaces an earlier use.
   Errors: as memlord_free_deferred, but unknown_frees does not count the call. */
MEMLORD_API memlord_result memlord_block_use(memlord *lord, memlord_device device,
                                             uint64_t storage, memlord_fence fence)
    MLI_OFF_SET(if (fence.drop) fence.drop(fence.user), MEMLORD_OK)

/* Ends every pending storage whose fences are done, and returns how many bytes these storages had.
   Cost:   a few ns with nothing pending; else a call of `done` for each queue, for each fence that
           is done, and for each fence that MemLord has not called yet (MEMLORD_FLAG_DEFER). */
MEMLORD_API uint64_t memlord_retire(memlord *lord, memlord_device sel) MLI_OFF(0)

/* -- sites: which code allocates -- */

/* Switches the counting per site on or off, from now on. What was counted stays. */
MEMLORD_API memlord_result memlord_sites_enable(memlord *lord, int on)
    MLI_OFF(MEMLORD_OK)

/* Turns a return address into a site, for allocators and interposers. MEMLORD_SITE_OF_CALLER passes
   the return address of the function that contains the macro. `file` is the module and the offset
   of the byte before the return address, such as "libc.so.6+0x2a4f1". If the address is in no
   module, `file` is the address of that byte. `line` is 0. `function` is the dynamic symbol that
   contains the address (link with -rdynamic). Without such a symbol, and on Windows and macOS,
   `function` is "".
   MemLord looks the symbol up when the site is first shown: in a report, by memlord_sites_top, or
   as the site of a block. It does not look the symbol up for a line of the log. After dlclose the
   site stays as it was. If another module is then loaded there, the address gets a new site. The
   result is never NULL, and lives until destroy.
   Cost:   a few ns once the address is known; some tens in a module that dlclose may unload. */
MEMLORD_API const memlord_site *memlord_site_at(memlord *lord, void *return_address)
    MLI_OFF_SET(MLI_NO_SITE, &none)

/* Returns the site of a place that is known by value, such as C++20's std::source_location or a
   line of a script. NULL strings are "". If `file` is a string literal, it lies in a module. The
   result is then the site that MEMLORD_SITE plants in that line of that module. The strings are
   copied. The result is never NULL, and lives until destroy.
   Cost:   some tens of ns; more in a thread's first call with this `line` and this `file`. */
MEMLORD_API const memlord_site *memlord_site_of(memlord *lord, const char *file,
                                                const char *function, int line)
    MLI_OFF_SET(MLI_NO_SITE, &none)

/* Returns the return address that a site was made from, or NULL for a planted site. */
MEMLORD_API void *memlord_site_address(memlord *lord, const memlord_site *site)
    MLI_OFF(NULL)

/* The place of the code at a return address. `offset` is the address of the byte before the
   return address, less the module's load bias: the form that addr2line takes. */
typedef struct memlord_place {
    const char *module;   /* path of the executable or library; "": none, as for JIT code */
    const char *build_id; /* build id of the module in hexadecimal; "": none, or the system does not
                             tell */
    uint64_t offset;      /* place of the call in the module; no module: return address - 1 */
} memlord_place;

/* Gets the module, offset and build id of a site that memlord_site_at made. The ledger found
   these values when it first saw the address. The module may be unloaded by now. The strings live
   until destroy.
   Errors: E_INVALID if there is no site or no `out`; E_UNKNOWN if the site was planted, or this
           ledger has not seen it. */
MEMLORD_API memlord_result memlord_site_place(memlord *lord, const memlord_site *site,
                                              memlord_place *out) MLI_OFF(MEMLORD_E_UNKNOWN)

/* Gives a site better strings for later reports, for example from debug information. Structs that
   were handed out before stay valid. NULL and 0 keep the old values. The site forgets the
   functions that memlord_site_functions_set gave it.
   Errors: E_UNKNOWN if this ledger has not seen the site; E_NOMEM. */
MEMLORD_API memlord_result memlord_site_rename(memlord *lord, const memlord_site *site,
                                               const char *file, const char *function,
                                               int line) MLI_OFF(MEMLORD_OK)

/* A function at a return address. Compilers inline functions into others, so that one address may
   be in several functions. */
typedef struct memlord_function {
    memlord_site at; /* function, file and line of the place in the code; NULL strings are "" */
    int library;     /* 1: it is a function of a standard library */
} memlord_function;

/* Names the functions at a return address, the innermost first: each is inlined in the next one.
   Where a report shows a stack, it shows all of them. Where a report shows only the site, it shows
   the first function that is not of a library. If all are of a library, it shows the last function.
   The strings are copied.
   Errors: E_INVALID if there are no functions, or more than 256; E_UNKNOWN if the site was planted,
           or this ledger has not seen it; E_NOMEM. */
MEMLORD_API memlord_result memlord_site_functions_set(memlord *lord, const memlord_site *site,
                                                      const memlord_function *functions,
                                                      size_t count) MLI_OFF(MEMLORD_OK)

/* The numbers of a site on one device. `alloc_bytes` and `allocs` are the bytes and the number of
   the blocks allocated at the site. `free_bytes` and `frees` are those of the blocks freed at the
   site, wherever they were allocated. `live_bytes` were allocated at the site and are not freed
   yet. A free without a site counts at no site. If a realloc has another site than the block, the
   new site counts all bytes of the block in `alloc_bytes`, and no alloc. From then on the new site
   has the live bytes. */
typedef struct memlord_site_stat {
    const memlord_site *site;
    memlord_device device;
    uint64_t alloc_bytes, free_bytes;
    uint64_t allocs, frees;
    uint64_t live_bytes, peak_bytes;
} memlord_site_stat;

typedef enum memlord_site_order {
    MEMLORD_SITE_ORDER_ALLOC_BYTES,
    MEMLORD_SITE_ORDER_FREE_BYTES,
    MEMLORD_SITE_ORDER_ALLOCS,
    MEMLORD_SITE_ORDER_FREES,
    MEMLORD_SITE_ORDER_LIVE_BYTES,
    MEMLORD_SITE_ORDER_PEAK_BYTES
} memlord_site_order;

/* Lists the largest sites, up to `cap`, and returns how many were written. `order` says by which
   number the sites are compared. Sites for which that number is 0 are left out. A site that is used
   on two devices is listed twice.
   Cost:   walks the sites. */
MEMLORD_API size_t memlord_sites_top(memlord *lord, memlord_device sel,
                                     memlord_site_order order, memlord_site_stat *out,
                                     size_t cap) MLI_OFF(0)

/* Finds the site with the most alloc_bytes. Returns 1 if there is one, else 0. */
MEMLORD_API int memlord_site_top_alloc(memlord *lord, memlord_device sel,
                                       memlord_site_stat *out) MLI_OFF(0)
/* Finds the site with the most free_bytes. Returns 1 if there is one, else 0. */
MEMLORD_API int memlord_site_top_free(memlord *lord, memlord_device sel,
                                      memlord_site_stat *out) MLI_OFF(0)

/* -- stacks: the callers of each alloc -- */

/* The numbers of a stack at one site on one device. `frames` are the return addresses of the
   allocs, the innermost first. With memlord_desc.stack_bytes 1 every alloc is sampled, and the
   numbers are exact.
   Otherwise an alloc of n bytes is sampled with the probability 1 - exp(-n / stack_bytes), and
   counts as one divided by that probability. Then all numbers but `samples` are estimates. The
   estimates have no bias, except the peak, which is too high on average. Each run, process and
   ledger takes another sample, unless stack_seed of memlord_desc makes the sample repeatable. So
   the errors average out over runs. A forked child takes another sample than its parent.
   A realloc moves a block to the stack of the realloc. That stack counts no alloc, and counts the
   growth of the block as allocated. After dlclose another module may be loaded at the address of a
   frame. The site of the frame stays, and memlord_site_place tells the module that was there
   before. If a stack does not reach its root, its outermost frame is NULL, and the site of that
   frame says why, for example "[cut: deeper]".
   `samples` is the number of sampled allocs.
   `error_bytes` is the standard error of live_bytes, computed from the sampled blocks that are
   live. The error of several stacks is the root of the sum of the squares of their errors. The true
   value is within two errors in 94 of 100 cases if some 20 sampled blocks are expected to be live,
   in 91 if 5 are, and in 62 if one is. An error of 0 means that live_bytes are exact, or that no
   live block of the stack was sampled with a probability below 1. In the second case blocks that
   were not sampled may be live: in 19 of 20 cases they have at most 3 * stack_bytes bytes. A stack
   without a sample is not listed.
   `temporaries` is the number of sampled blocks that the allocating thread freed before its next
   sampled alloc. If every alloc is sampled, the thread allocated nothing in between, so the caller
   could keep one buffer instead. */
typedef struct memlord_stack_stat {
    void *const *frames;
    const memlord_site *const *sites; /* the site of each frame, in the module that had its address
                                         when the stack was taken */
    uint32_t depth;
    memlord_device device;
    uint64_t alloc_bytes, allocs;
    uint64_t live_bytes, peak_bytes;
    uint64_t samples, error_bytes;
    uint64_t temporaries;
} memlord_stack_stat;

/* Lists the largest stacks, up to `cap`, and returns how many were written. `order` says by which
   number the stacks are compared. Stacks for which that number is 0 are left out. A stack frees
   nothing, so the orders by frees list the stacks by what they allocated. A stack that is used on
   two devices, or with two sites, is listed twice.
   Owns:   `frames` and `sites` live until the ledger ends.
   Cost:   walks the stacks. */
MEMLORD_API size_t memlord_stacks_top(memlord *lord, memlord_device sel,
                                      memlord_site_order order, memlord_stack_stat *out,
                                      size_t cap) MLI_OFF(0)

/* Sets how the stacks of allocs are taken from now on. `depth` and `bytes` have the meaning of
   stack_depth and stack_bytes in memlord_desc. The unwinder is memlord_desc.unwinder. With depth 0
   no more stacks are taken. A ledger that began without stacks can take them later. A live block
   keeps its stack, or stays without one. Figures that have earlier samples in them stay estimates.
   Threads: any thread may call it, also while others allocate.
   Errors: E_INVALID if depth is over 128; E_STATE if the ledger's own allocator makes the call. */
MEMLORD_API memlord_result memlord_stacks_set(memlord *lord, uint32_t depth, uint64_t bytes)
    MLI_OFF(MEMLORD_OK)

/* Follows the frame pointers of the calling thread. It serves as a memlord_desc.unwinder for a host
   that is compiled with -fno-omit-frame-pointer, and takes some ns a frame. MemLord itself needs no
   frame pointers at -O2 and above. In other code without frame pointers the frames are wrong, or
   end too early. This function reads only the thread's own stack, and ends at the first frame
   outside it. It returns 0 on the stack of a fibre or a signal, and on systems other than Linux on
   x86-64 and aarch64. `user` is not used.
   Requires: no malloc is under way in the thread. The first call in a thread runs
             pthread_getattr_np, which allocates with a lock of the C library held. If the host
             itself is in pthread_getattr_np, and the malloc inside takes a stack, the first call
             would wait for that lock for ever. */
MEMLORD_API size_t memlord_unwind_frame_pointers(void *user, void **frames, size_t cap) MLI_OFF(0)

/* -- statistics -- */

/* Each line has a statistic of a device: its name, its kind, its name in PROMETHEUS, and its text.
   The kinds are
     LIVE   a level, now              PEAK  a high-water mark
     COUNT  grows; 0 at a reset       ANOMALY  an anomaly or a drop: grows, 0 at a reset
   For a selector of several devices the statistics are added up. To add a statistic, add a line
   here and the code that counts it. */
#define MLI_STATS(X)                                                                          \
    X(allocated, LIVE, "live_bytes", "bytes live, pending included")                          \
    X(pending, LIVE, "pending_bytes", "bytes live that wait for their device")                \
    X(freed, COUNT, "freed_since_gc_bytes",                                                   \
      "bytes credited since the last collection or reset")                                    \
    X(peak, PEAK, "peak_bytes", "highest allocated; never high, low by at most peak_error")   \
    X(peak_error, PEAK, "peak_error_bytes", "bytes the peak may be low by")                   \
    X(live_blocks, LIVE, "live_blocks", "storages live")                                      \
    X(allocs, COUNT, "allocs_total", "storages opened")                                       \
    X(frees, COUNT, "frees_total", "storages closed")                                         \
    X(total_allocated, COUNT, "allocated_bytes_total", "bytes ever added, growth included")   \
    X(total_freed, COUNT, "freed_bytes_total", "bytes ever credited, shrinkage included")     \
    X(moves, COUNT, "moves_total", "storages that arrived by memlord_move")                   \
    X(moved_bytes, COUNT, "moved_bytes_total", "bytes that arrived by memlord_move")          \
    X(reserved, LIVE, "reserved_bytes", "bytes the host's pool holds")                        \
    X(reserved_peak, PEAK, "reserved_peak_bytes", "highest reserved")                         \
    X(cached, LIVE, "cached_bytes", "reserved and not allocated")                             \
    X(largest_free, LIVE, "largest_free_bytes", "largest free piece of the host's pool")      \
    X(cache_hits, COUNT, "cache_hits_total", "requests the host's pool served")               \
    X(cache_misses, COUNT, "cache_misses_total", "requests it passed on")                     \
    X(limit, LIVE, "", "bytes allowed; 0: no limit")                                          \
    X(gc_runs, COUNT, "gc_runs_total", "collections that ran")                                \
    X(gc_failed, COUNT, "gc_failures_total", "collections that did not")                      \
    X(gc_reclaimed, COUNT, "gc_reclaimed_bytes_total", "bytes they gave back")                \
    X(oom_attempts, COUNT, "oom_attempts_total", "attempts that found no memory")             \
    X(oom_failures, COUNT, "oom_failures_total", "requests that found none in the end")       \
    X(retries, COUNT, "retries_total", "attempts after the first")                            \
    X(recoveries, COUNT, "recoveries_total", "requests saved by a retry")                     \
    X(implicit_frees, ANOMALY, "implicit_frees_total", "allocs over a live storage")          \
    X(unknown_frees, ANOMALY, "unknown_frees_total", "frees of a storage not live")           \
    X(freed_while_shared, ANOMALY, "freed_while_shared_total", "frees of a storage with views") \
    X(underflows, ANOMALY, "underflows_total", "arena_sub below the balance")                 \
    X(fence_failures, ANOMALY, "fence_failures_total", "fences that failed")                  \
    X(dropped_allocs, ANOMALY, "dropped_allocs_total",                                        \
      "allocs there was no room for, in the map or among devices")                            \
    X(dropped_bytes, ANOMALY, "dropped_bytes_total", "their bytes")                           \
    X(dropped_sites, ANOMALY, "dropped_sites_total", "sites, tags or stacks without room")    \
    X(dropped_events, ANOMALY, "dropped_events_total", "events the ring had no room for")     \
    X(held, LIVE, "", "bytes that tickets keep of its physical device; once in a sum")        \
    X(reallocs, COUNT, "reallocs_total", "storages resized")                                  \
    X(copies, COUNT, "copies_total", "memlord_copy to this device")                           \
    X(copied_bytes, COUNT, "copied_bytes_total", "bytes they copied")                         \
    X(refused, ANOMALY, "refused_total", "calls with a bad argument, ticket or account")       \
    X(neighbours, LIVE, "",                                                                   \
      "bytes other ledgers of the page hold of its physical device; once in a sum")

#define MEMLORD_STATS_VERSION 2
typedef struct memlord_stats {
    uint32_t size;    /* written by the library: sizeof(memlord_stats) */
    uint32_t version; /* written by the library: MEMLORD_STATS_VERSION */
#define MLI_X(name, kind, family, text) uint64_t name;
    MLI_STATS(MLI_X)
#undef MLI_X
} memlord_stats;

/* Returns the live bytes, pending included. The result is exact whenever no call is in flight. The
   same holds for memlord_freed and memlord_pending.
   Cost:   a few ns a thread and device. */
MEMLORD_API uint64_t memlord_allocated(memlord *lord, memlord_device sel) MLI_OFF(0)
/* Returns the bytes that were freed since the last collection or reset, without those that are
   still pending. */
MEMLORD_API uint64_t memlord_freed(memlord *lord, memlord_device sel) MLI_OFF(0)
/* Returns the bytes of the pending storages, which are freed and wait for their device. These bytes
   are part of the live bytes. */
MEMLORD_API uint64_t memlord_pending(memlord *lord, memlord_device sel) MLI_OFF(0)
/* Returns the highest live bytes since create, reset or peak_reset. The result is never too high,
   and too low by at most peak_error. For a selector of several devices it is the sum of their
   peaks, and their joint peak may be lower. */
MEMLORD_API uint64_t memlord_peak(memlord *lord, memlord_device sel) MLI_OFF(0)

/* Fills every statistic. A selector that matches no device fills zeros.
   Errors: E_INVALID if `out` is NULL; E_DEVICE if `sel` is not a selector. */
MEMLORD_API memlord_result memlord_stats_get(memlord *lord, memlord_device sel,
                                             memlord_stats *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Each line has a rate that reports show: its name, its name in PROMETHEUS, and its text. A rate is
   0 to 1, or -1 when nothing was counted. */
#define MLI_RATES(X)                                                                          \
    X(hit_rate, "hit_ratio", "requests that the pool served, of all")                         \
    X(recovery_rate, "recovery_ratio",                                                        \
      "requests saved by a retry, of those that found no memory at first")                    \
    X(success_rate, "success_ratio", "allocations that found memory, of all")

/* Computes a rate by its name. "hit_rate" is cache_hits / (cache_hits + cache_misses).
   "recovery_rate" is recoveries / (recoveries + oom_failures). "success_rate" is allocs / (allocs +
   oom_failures). "mean_bytes" is total_allocated / allocs, where total_allocated includes growth
   and arena bytes. The result is -1 when nothing was counted, and for any other name. With
   MEMLORD_DISABLE it is 0. */
MEMLORD_API double memlord_rate(const memlord_stats *stats, const char *name) MLI_OFF(0)

/* Starts a new epoch. It sets the bytes freed, the totals, the counts and the anomalies to 0. It
   does so for sites and scopes, too. It sets each peak to the live bytes. Live storages stay live.
   No call of another thread waits for it. A call that comes at the same time may count in the new
   epoch, in the old one, or in parts in both.
   Cost: a walk of all devices, tags, sites and stacks: a few hundred ns each. The next call of each
         thread walks the devices, tags and sites, too: some tens of ns each. */
MEMLORD_API void memlord_reset(memlord *lord) MLI_OFF_VOID
/* Sets the peak of each device of a selector to its live bytes. No call of another thread waits for
   it. If other threads change the live bytes meanwhile, the peak may begin too low, and peak_error
   says by how much at most.
   Cost: a walk of the devices' tags, sites and stacks: a few hundred ns each at most. */
MEMLORD_API void memlord_peak_reset(memlord *lord, memlord_device sel) MLI_OFF_VOID

/* Writes a number of bytes as text for people: "0 B", "1 KiB", "1.5 KiB". The number is rounded to
   two decimals at most, without zeros at the end. The text is the same in every locale. A buffer of
   32 bytes always suffices. The function returns buf. */
MEMLORD_API char *memlord_format_bytes(uint64_t bytes, char *buf, size_t cap)
    MLI_OFF_SET(if (buf && cap) buf[0] = 0, buf)
/* Reads "512", "1.5 GiB" (powers of 1024), "2GB" (powers of 1000), in upper or lower case. The B
   may be left out: "512" is 512 bytes, and "2G" is 2GB.
   Errors: E_INVALID if the text is no such number; *out is unchanged. */
MEMLORD_API memlord_result memlord_parse_bytes(const char *text, uint64_t *out)
    MLI_OFF_SET(if (out) *out = 0, MEMLORD_OK)

/* Writes one line for a server's log: every device with its live bytes and blocks, its peak and,
   where blocks have tags, the tag with the most bytes. It returns a length as snprintf does, and
   allocates nothing. */
MEMLORD_API size_t memlord_summary(memlord *lord, char *buf, size_t cap)
    MLI_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* -- blocks: what lives, and what leaks -- */

/* A description of a block or a part. Every string is copied. All fields may be zero. */
typedef struct memlord_meta {
    const char *name;  /* "blk.0.attn_q.weight" */
    const char *dtype; /* "f16" */
    int64_t shape[8];
    uint32_t rank;     /* entries of shape in use, 0..8 */
    uint32_t flags;    /* the host's own bits, shown as a number */
    const char *tag;   /* the block's new tag; NULL and "" leave its tag as it is */
} memlord_meta;

/* A live block. The strings live until the ledger is destroyed. */
typedef struct memlord_block_info {
    memlord_device device;
    uint64_t storage;
    uint64_t bytes;
    uint64_t refs;             /* number of references to the block: 1 + its views */
    const char *tag;           /* tag of the block; NULL: untagged */
    const char *scope;         /* path of the scope that the block was allocated in; NULL: none */
    const memlord_site *site;  /* site of the block's alloc; NULL: not known */
    uint64_t born;             /* the mark (memlord_mark) when the block was allocated */
    memlord_meta meta;         /* description of the block; all zero if it never got one */
    int pending;               /* 1: the block is freed, and waits for its device */
    uint64_t stream;           /* stream of the block (memlord_stream_set); 0: none, or the default
                                  one */
} memlord_block_info;

typedef int (*memlord_block_fn)(void *user, const memlord_block_info *info); /* not 0 stops */

/* Calls fn for every live block of at least min_bytes, until fn returns non-zero. The ledger
   copies the blocks of one part of the map at a time, so fn may call the ledger. Blocks that come
   or go meanwhile may or may not be seen. The block of a realloc or a free that is only begun is
   not listed, although statistics count it.
   Errors: E_NOMEM if there is no memory for the copy.
   Cost:   walks the map. */
MEMLORD_API memlord_result memlord_blocks_each(memlord *lord, memlord_device sel,
                                               uint64_t min_bytes, memlord_block_fn fn,
                                               void *user) MLI_OFF(MEMLORD_OK)

/* Lists the k largest live blocks, the largest first, and returns how many were written. It
   allocates nothing.
   Cost:   walks the map. */
MEMLORD_API size_t memlord_blocks_top(memlord *lord, memlord_device sel,
                                      memlord_block_info *out, size_t k) MLI_OFF(0)

/* Finds a live storage.
   Errors: E_UNKNOWN if the storage is not live.
   Cost:   the same as a free. */
MEMLORD_API memlord_result memlord_block_find(memlord *lord, memlord_device device,
                                              uint64_t storage, memlord_block_info *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Finds the live storage that contains an address.
   Errors: E_UNKNOWN if no live storage does.
   Cost:   walks the map. */
MEMLORD_API memlord_result memlord_block_containing(memlord *lord, memlord_device device,
                                                    uint64_t address,
                                                    memlord_block_info *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Describes a live block. The description replaces an earlier one.
   Errors: E_INVALID if the rank is over 8 or meta is NULL; E_UNKNOWN if the block is not live;
           E_NOMEM. */
MEMLORD_API memlord_result memlord_block_describe(memlord *lord, memlord_device device,
                                                  uint64_t storage, const memlord_meta *meta)
    MLI_OFF(MEMLORD_OK)

/* Moves a live block, with its bytes, to another tag. NULL or "" takes its tag off.
   Errors: E_UNKNOWN if the block is not live; E_NOMEM. */
MEMLORD_API memlord_result memlord_block_retag(memlord *lord, memlord_device device,
                                               uint64_t storage, const char *tag)
    MLI_OFF(MEMLORD_OK)

/* Begins a new mark and returns it. A mark is a number that a block gets at its alloc. Blocks
   allocated from now on have the new mark. There are at most 2^26 - 1 marks; after those the last
   mark stays. */
MEMLORD_API uint64_t memlord_mark(memlord *lord) MLI_OFF(0)

/* Calls fn for every live block that was allocated under `since_mark` or a later mark, until fn
   returns non-zero. It returns how many such blocks it met. fn may be NULL. since_mark 0 means all
   live blocks.
   Cost:   walks the map. */
MEMLORD_API size_t memlord_leaks(memlord *lord, uint64_t since_mark, memlord_block_fn fn,
                                 void *user) MLI_OFF(0)

/* -- mistakes: what the host did wrong, and where -- */

#define MLI_ANOMALY_KINDS(X)                                                                  \
    X(UNKNOWN_FREE, "unknown_free", "a free of a storage that is not live")                   \
    X(IMPLICIT_FREE, "implicit_free", "an alloc over a live storage, which ended")            \
    X(FREED_WHILE_SHARED, "freed_while_shared", "a free of a storage that has views")         \
    X(UNDERFLOW, "underflow", "an arena_sub of more than the balance")                        \
    X(FENCE_FAILED, "fence_failed", "a fence that failed")                                    \
    X(REFUSED, "refused", "a call with a bad argument")                                       \
    X(MISPLACED_END, "misplaced_end",                                                         \
      "an end of a tag or scope with none to end in this context")                            \
    X(DROPPED, "dropped",                                                                     \
      "no room to record an alloc: give the ledger's allocator more, or raise "               \
      "MEMLORD_MAX_DEVICES")
enum {
#define MLI_X(name, key, text) MEMLORD_ANOMALY_##name,
    MLI_ANOMALY_KINDS(MLI_X)
#undef MLI_X
    MEMLORD_ANOMALY_COUNT
};

/* Mistakes of one kind at one site. The site is the one that was given to the call, even while
   sites are off. */
typedef struct memlord_anomaly {
    int kind;              /* MEMLORD_ANOMALY_... */
    memlord_device device; /* device of the first mistake; memlord_device_all(): the call named
                              none */
    uint64_t storage;      /* storage of the first mistake; 0: the mistake concerns no storage */
    uint64_t bytes;        /* sum of the bytes of the mistakes' blocks, as far as these are known */
    uint64_t count;
    uint64_t first_ns, last_ns; /* when the first and the last mistake were made, in ns since the
                                   ledger was made */
    memlord_site site;     /* where the mistake was made; file and function "": the call gave no
                              site */
    memlord_site born;     /* where the block of the first mistake was allocated; "": not known, or
                              sites are off */
    const char *tag;       /* tag of the block of the first mistake; NULL: it had none */
} memlord_anomaly;
typedef int (*memlord_anomaly_fn)(void *user, const memlord_anomaly *anomaly); /* not 0 stops */

/* Calls fn for the mistakes since the last reset, once for each kind and site, the oldest first,
   until fn returns non-zero. It returns how often it called fn or, with fn NULL, how often it would
   call it. The ledger keeps the first 64 pairs of kind and site, and logs each of them once, as a
   warning. fn may call the ledger. */
MEMLORD_API size_t memlord_anomalies_each(memlord *lord, memlord_anomaly_fn fn, void *user)
    MLI_OFF(0)

/* -- parts: what is inside a storage -- */

typedef struct memlord_part_info {
    uint64_t offset, bytes;
    memlord_meta meta; /* description of the part; its strings live until destroy */
} memlord_part_info;
typedef int (*memlord_part_fn)(void *user, const memlord_part_info *part); /* not 0 stops */

/* Names a piece of a live storage, such as a tensor in a weights buffer or a slot of a KV cache. No
   total changes. A part ends when it is removed, or with its storage. Reports show the parts of a
   storage, except PROMETHEUS, which has no storages, and HEAPTRACK, where each part would be one
   allocation more.
   Errors: E_INVALID if bytes is 0, the part is not inside the storage, or the rank is over 8;
           E_STATE if it overlaps another part; E_UNKNOWN if the storage is not live; E_NOMEM.
   Cost:   a search, and a move of 8 bytes for each part at a higher offset. That takes less than a
           us if parts are added by ascending offset, and 10 to 20 us among 100,000 parts in random
           order. */
MEMLORD_API memlord_result memlord_part_add(memlord *lord, memlord_device device,
                                            uint64_t storage, uint64_t offset, uint64_t bytes,
                                            const memlord_meta *meta) MLI_OFF(MEMLORD_OK)
/* Removes the part that begins at `offset`.
   Errors: E_UNKNOWN if the storage is not live, or if no part begins there.
   Cost:   the same as adding a part at that offset. */
MEMLORD_API memlord_result memlord_part_remove(memlord *lord, memlord_device device,
                                               uint64_t storage, uint64_t offset)
    MLI_OFF(MEMLORD_OK)

/* Calls fn for the parts of a storage, by offset, until fn returns non-zero. It returns how often
   it called fn. The parts are copied, some at a time, so fn may call the ledger. */
MEMLORD_API size_t memlord_parts_each(memlord *lord, memlord_device device, uint64_t storage,
                                      memlord_part_fn fn, void *user) MLI_OFF(0)

/* -- tags: planned and actual bytes of a purpose -- */

/* Begins a tag, which this thread's allocs get until the matching end. MEMLORD_TAG and
   MEMLORD_TAGGED call both the begin and the end. Tags nest, and allocs get the innermost. The text
   is copied. Each pair of tag and device needs a record, and a ledger has 65,535 of these. When
   they are used up, blocks are recorded without their tag, and dropped_sites counts them.
   Errors: E_INVALID if the tag is NULL or ""; E_STATE if 64 tags are begun; E_NOMEM, also for
           more strings than MEMLORD_MAX_STRINGS. dropped_sites counts each E_NOMEM.
   Cost:   tens of ns. */
MEMLORD_API memlord_result memlord_tag_begin(memlord *lord, const char *tag)
    MLI_OFF(MEMLORD_OK)
/* Ends the innermost tag of this thread.
   Errors: E_STATE if no tag is begun; memlord_anomalies_each lists the call. */
MEMLORD_API memlord_result memlord_tag_end(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Returns the tag that an alloc of this thread gets now, or NULL if it gets none. The text lives
   until destroy. */
MEMLORD_API const char *memlord_tag_current(memlord *lord) MLI_OFF(NULL)

/* Sets the tag that this thread's allocs get while no tag is begun. NULL takes it off.
   Errors: E_INVALID if the tag is ""; E_NOMEM as memlord_tag_begin. */
MEMLORD_API memlord_result memlord_tag_default_set(memlord *lord, const char *tag)
    MLI_OFF(MEMLORD_OK)

/* Sets the stream of this thread's later allocs, for hosts that allocate in the order of a stream
   (CUDA, HIP, SYCL). A stream is any 64-bit number; 0 means none, or the default stream. It returns
   the stream that was set before, so that the host can set that again later. A block keeps its
   stream until it ends, also through realloc and move. Beyond 2^20 combinations of mark, scope and
   stream, blocks are recorded without scope and stream, and dropped_scopes grows. If there is no
   memory for the thread's record, the thread has no stream, and dropped_sites counts the call.
   Cost:   tens of ns; the next alloc takes a slower path. */
MEMLORD_API uint64_t memlord_stream_set(memlord *lord, uint64_t stream) MLI_OFF(0)

typedef struct memlord_tag_stat {
    const char *tag;
    uint64_t allocated; /* live bytes, now */
    uint64_t peak;      /* the highest `allocated`, as exact as memlord_peak */
    uint64_t blocks;    /* live blocks, now */
    uint64_t expected;  /* bytes that memlord_expect planned; 0: nothing was planned */
    int64_t variance;   /* allocated - expected; 0 when nothing was planned */
} memlord_tag_stat;

/* Reads the numbers of a tag on the devices of a selector. They include its arena bytes. NULL reads
   the untagged bytes; their `peak` is 0, because the ledger does not keep it. A device's tags and
   its untagged bytes add up to its live bytes.
   Errors: E_UNKNOWN if nothing was ever allocated or planned under the tag on any device; *out is
           then zero. E_INVALID if `out` is NULL; E_DEVICE if `sel` is not a selector. */
MEMLORD_API memlord_result memlord_tag_get(memlord *lord, memlord_device sel,
                                           const char *tag, memlord_tag_stat *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Sets how many bytes a tag is planned to hold on a device. Reports compare them with the live
   bytes.
   Errors: E_INVALID if the tag is NULL or "", or bytes is over 2^48; E_DEVICE if `device` is not
           one device; E_NOMEM. */
MEMLORD_API memlord_result memlord_expect(memlord *lord, memlord_device device,
                                          const char *tag, uint64_t bytes)
    MLI_OFF(MEMLORD_OK)
