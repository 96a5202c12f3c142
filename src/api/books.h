/* ---------------------------------------------------------------------- >>api -- */

typedef struct memlord memlord; /* a ledger */

/* -- results -- */

/* name, text */
#define MLI_RESULTS(X)                                                                        \
    X(OK, "ok")                                                                               \
    X(E_INVALID, "an argument is not valid")                                                  \
    X(E_NOMEM, "no room: give the ledger's allocator more, or raise MEMLORD_MAX_STRINGS")     \
    X(E_UNKNOWN, "not found, or not known")                                                   \
    X(E_LIMIT, "over a limit")                                                                \
    X(E_DEVICE, "not one device, or more devices than MEMLORD_MAX_DEVICES")                   \
    X(E_OOM, "the device is out of memory")                                                   \
    X(E_STATE, "not possible in this state")                                                  \
    X(E_IO, "could not read or write there")                                                  \
    X(E_UNSUPPORTED, "not in this build or on this platform")

typedef enum memlord_result {
#define MLI_X(name, text) MEMLORD_##name,
    MLI_RESULTS(MLI_X)
#undef MLI_X
    MEMLORD_RESULT_COUNT
} memlord_result;

/* Names a result in a few words of English, for logs. Never NULL. */
MEMLORD_API const char *memlord_result_text(memlord_result result)
    MLI_OFF(result == MEMLORD_OK ? "ok" : result == MEMLORD_E_OOM ? "no memory" : "refused")

/* -- devices -- */

/* name, text, host: shares the host's physical memory */
#define MLI_DEVICE_TYPES(X)                                                                   \
    X(CPU, "cpu", 1) /* memory of the host */                                                 \
    X(PINNED, "pinned", 1) /* page-locked host memory */                                      \
    X(MAPPED, "mapped", 1) /* file-backed mmap: page cache */                                 \
    X(CUDA, "cuda", 0) /* an NVIDIA GPU */                                                    \
    X(HIP, "hip", 0) /* an AMD GPU */                                                         \
    X(SYCL, "sycl", 0) /* an Intel GPU */                                                     \
    X(METAL, "metal", 0) /* an Apple GPU */                                                   \
    X(VULKAN, "vulkan", 0) /* any GPU, by Vulkan */                                           \
    X(NPU, "npu", 0) /* a processor for neural networks */                                    \
    X(OTHER, "other", 0) /* a pool, or what is none of these */

enum {
#define MLI_X(name, text, host) MEMLORD_DEVICE_##name,
    MLI_DEVICE_TYPES(MLI_X)
#undef MLI_X
    MEMLORD_DEVICE_TYPE_COUNT
};

#define MEMLORD_ANY (-1) /* as an index: every device of the type; as a type: every type */

typedef struct memlord_device {
    int16_t type;  /* MEMLORD_DEVICE_CPU, ... */
    int16_t index; /* 0.. , or MEMLORD_ANY in a selector */
} memlord_device;

/* Makes a device or a selector. If a number does not fit an int16_t, every call refuses the
   result. */
MLI_INLINE memlord_device memlord_device_make(int type, int index) {
    memlord_device d;
    d.type = MLI_CAST(int16_t, type < INT16_MIN || type > INT16_MAX ? INT16_MAX : type);
    d.index = MLI_CAST(int16_t, index < INT16_MIN || index > INT16_MAX ? INT16_MIN : index);
    return d;
}
/* Makes the device of the host's memory. */
MLI_INLINE memlord_device memlord_device_cpu(void) {
    return memlord_device_make(MEMLORD_DEVICE_CPU, 0);
}
/* Makes the device of the GPU with this index of the CUDA runtime. */
MLI_INLINE memlord_device memlord_device_cuda(int index) {
    return memlord_device_make(MEMLORD_DEVICE_CUDA, index);
}
/* Makes the selector of every device. */
MLI_INLINE memlord_device memlord_device_all(void) {
    return memlord_device_make(MEMLORD_ANY, MEMLORD_ANY);
}

/* Reads "cuda:1", "CUDA1", "cuda" (any index), "cpu" (cpu:0; so with "pinned" and "mapped"),
   "all", and names that engines use: "mps" (metal), "xpu" (sycl), "ROCm0" (hip:0), "CUDA_Host"
   (pinned), "CPU_Mapped" (mapped). Any case.
   Errors: E_INVALID, and *out is unchanged. */
MEMLORD_API memlord_result memlord_device_parse(const char *text, memlord_device *out)
    MLI_OFF_SET(if (out) *out = memlord_device_all(), MEMLORD_OK)

/* Writes a device's name, "cuda:1", "cpu", or a selector's, "cuda", "all". Follows
   snprintf: returns the length without the 0, and writes at most `cap` bytes with it. */
MEMLORD_API size_t memlord_device_name(memlord_device device, char *buf, size_t cap)
    MLI_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* Sets the host's own name for a device, shown beside ours in TEXT, JSON and HTML reports. NULL
   removes it.
   Errors: E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_device_label_set(memlord *lord, memlord_device device,
                                                    const char *text) MLI_OFF(MEMLORD_OK)

/* Sets the memory that a device's bytes are in: an integrated GPU's in the cpu's, a pool's in
   its real device's. Both then have one capacity, limit and headroom. `physical` equal to
   `device` undoes it.
   Errors: E_DEVICE; E_STATE `physical` is shared itself, others share `device`, or tickets are
   open where it is; E_NOMEM. */
MEMLORD_API memlord_result memlord_device_share(memlord *lord, memlord_device device,
                                                memlord_device physical)
    MLI_OFF(MEMLORD_OK)

/* Lists every device seen, up to `cap`, and returns how many there are. `out` may be NULL
   when cap is 0. */
MEMLORD_API size_t memlord_devices(memlord *lord, memlord_device *out, size_t cap)
    MLI_OFF(0)

/* -- lifecycle -- */

/* The source of a ledger's own memory. Set both functions, or neither: then it takes pages of
   the operating system, as memlord_os_allocator does. `free` gets the size that `alloc` was
   asked for. `alloc` returns NULL when there is none. Both are called with no storage locked,
   from any thread. */
typedef struct memlord_allocator {
    void *(*alloc)(void *user, size_t size);
    void (*free)(void *user, void *ptr, size_t size);
    void *user;
} memlord_allocator;

enum {
    MEMLORD_LOG_ERROR = 1, /* something was lost or refused */
    MEMLORD_LOG_WARNING,   /* a mistake of the host, a block that is live at destroy, or a
                              request that a limit refused */
    MEMLORD_LOG_INFO,      /* summaries, resets */
    MEMLORD_LOG_TRACE      /* a line for every call that allocates, frees, resizes or moves, also
                              of n blocks, and for every retired block; with MEMLORD_DEBUG=1 */
};

/* The receiver of messages. `text` is one line without its newline and lives for the call only.
   A NULL fn is silence. With MEMLORD_DEBUG=1 NULL and memlord_log_stderr both are coloured lines on
   stderr, of every level. */
typedef struct memlord_logger {
    void (*fn)(void *user, int level, const char *text);
    void *user;
} memlord_logger;

/* Writes errors and warnings to stderr, a line each: a stock logger.fn. `user` is ignored. */
MEMLORD_API void memlord_log_stderr(void *user, int level, const char *text) MLI_OFF_VOID

/* Nanoseconds that never go back. NULL is the platform's monotonic clock. May be called with locks
   of ours held: it may not call MemLord. */
typedef struct memlord_clock {
    uint64_t (*fn)(void *user);
    void *user;
} memlord_clock;

/* Writes the return addresses of the calling thread, the innermost first, at most `cap`, and
   returns how many. NULL is the platform's: _Unwind_Backtrace, or RtlCaptureStackBackTrace; another
   one is memlord_unwind_frame_pointers. It runs inside the host's own call with no lock of ours
   held. It may allocate: a block that it allocates gets no stack of its own. Frames from the first
   NULL on are left out. A stack that cannot be unwound is the one return address that is known, and
   reports count it. gcc writes the tables that the platform's unwinder reads for C by default on
   x86, AArch64, POWER and z; on RISC-V compile the host with -funwind-tables. On 32-bit ARM the
   platform's finds no stack: every stack is one return address. */
typedef struct memlord_unwinder {
    size_t (*fn)(void *user, void **frames, size_t cap);
    void *user;
} memlord_unwinder;

enum {
    MEMLORD_FLAG_NO_STRATEGY = 1, /* no bands until memlord_strategy_set */
    MEMLORD_FLAG_SITES = 2,       /* memlord_sites_enable from the start */
    MEMLORD_FLAG_EXACT = 4,       /* publish every call: exact peaks, shared lines */
    MEMLORD_FLAG_DEFER = 8,       /* collections and fences run in gc_poll, gc_run, retire,
                                     alloc_retry and pollers alone: see >>threading */
    MEMLORD_FLAG_NO_THREADS = 16, /* no pollers */
    MEMLORD_FLAG_NO_ENV = 64      /* ignore the environment */
};

/* The configuration of a ledger. Zero is the default of every field. */
typedef struct memlord_desc {
    memlord_allocator allocator; /* the operating system's pages */
    memlord_logger logger;       /* silent */
    memlord_clock clock;         /* monotonic */
    uint32_t flags;              /* MEMLORD_FLAG_... */
    uint32_t poll_ms;            /* how often pollers sample, 200; 10 if less */
    uint32_t snapshot_ms;        /* memlord_snapshots_start at create, so often; 0: no */
    size_t event_capacity;       /* memlord_events_start at create, so many; 0: no */
    uint64_t counter_batch;      /* bytes a thread may hold back from the peak, 65536 */
    const char *output_dir;      /* where dated reports go: memlord_save_at_exit */
    const char *proc_root;       /* put before /proc and cgroup paths; for tests */
    const char *labels;          /* memlord_labels_set at create */
    uint32_t stack_depth;        /* frames of the stacks of allocs, at most 128; 0: no stacks */
    uint64_t stack_bytes;        /* in the mean from stack to stack, 512 KiB; 1: every alloc */
    memlord_unwinder unwinder;   /* the platform's */
    uint64_t stack_seed;         /* the seed of the samples: with the same one the same allocs
                                    of the same threads are picked. 0: a new one from the
                                    system for each ledger */
} memlord_desc;

/* Opens a ledger. `desc` NULL is the default configuration. It is copied, strings too.
   Errors: E_INVALID one of alloc and free without the other, `out` NULL, snapshot_ms of 1 to 9,
           event_capacity over 2^26, or stack_depth over 128: the logger of `desc` hears which;
           E_NOMEM. *out is NULL then.
   Owns:   *out is yours until memlord_destroy. Never destroying it is legal. */
MEMLORD_API memlord_result memlord_create(const memlord_desc *desc, memlord **out)
    MLI_OFF_SET(if (out) *out = NULL, MEMLORD_OK)

/* Closes a ledger and returns its memory. Logs the live bytes and blocks of each device and, where
   tags or sites are known, the ten largest groups by device, tag and site. NULL does nothing.
   Threads: no call on it may be in flight or follow, on any thread. */
MEMLORD_API void memlord_destroy(memlord *lord) MLI_OFF_VOID

/* Returns the process's own ledger, made on first use with memory from the operating system:
   it works inside malloc and before main. Never destroyed: a library that made it stays loaded,
   see >>threading.
   Errors: NULL, which is MemLord switched off, if there is no memory for it. */
MEMLORD_API memlord *memlord_global(void) MLI_OFF(NULL)

/* Makes the global ledger now, with a configuration. Call it before anything uses
   memlord_global: at the start of main, or in a static constructor.
   Errors: E_STATE there is one already; logged to it or, if it is silent, to desc->logger;
           E_INVALID as memlord_create, and an allocator of the host's; E_NOMEM. */
MEMLORD_API memlord_result memlord_global_setup(const memlord_desc *desc) MLI_OFF(MEMLORD_OK)

/* Sets the receiver of messages, at any time. NULL is silence or, with MEMLORD_DEBUG=1, what it was
   to memlord_create. Returns when no other thread is in the old one. A logger may call it.
   Errors: E_STATE the ledger's logger calls it while another thread sets one, or the logger of
           another ledger calls it: the two could wait for each other. */
MEMLORD_API memlord_result memlord_logger_set(memlord *lord, const memlord_logger *logger)
    MLI_OFF(MEMLORD_OK)

/* Checks the ledger against itself: the map against the counters of devices, sites and tags,
   accounts, arenas, tickets, pending blocks and parts. For tests and for bug reports.
   Threads: no other call may be in flight: its change would be taken for a fault.
   Errors: E_STATE something does not agree; the first such thing goes to the logger. E_NOMEM.
           E_UNSUPPORTED in a build with MEMLORD_NO_VERIFY.
   Cost:   walks everything; calls of other threads wait meanwhile. */
MEMLORD_API memlord_result memlord_verify(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Returns a number that no other ledger of the process has, before or after; NULL has 0. */
MEMLORD_API uint64_t memlord_generation(memlord *lord) MLI_OFF(0)

/* Returns the ledger of a generation; NULL: it is destroyed, or there never was one. What may
   outlive its ledger keeps the generation in place of the pointer.
   Threads: as with every call, no destroy of that ledger may be in flight. Cost: a few ns; a lock
   and a walk of the ledgers on a thread's first call since one was destroyed. */
MEMLORD_API memlord *memlord_find(uint64_t generation) MLI_OFF(NULL)

/* Fills an allocator that takes pages from the operating system and calls no malloc. */
MEMLORD_API void memlord_os_allocator(memlord_allocator *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), )

/* -- storages --
   `device` is one device, never a selector. `storage` is its address or handle. `bytes` is at
   most 2^48. `site` may be NULL. Common errors: E_INVALID a storage of 0 or UINT64_MAX, or too
   many bytes; E_DEVICE a selector, or no device, both counted in `refused`; E_NOMEM the map could
   not grow, counted in dropped_allocs. The free of a storage that was dropped so returns OK, and
   does not count as unknown. The ledger remembers 64 such storages. For each further one, it takes
   one free of any unknown storage of the same type for the free of that one. Cost: tens of ns; see
   >>costs. */

#define MEMLORD_NONE UINT64_MAX /* as an account: none; as a stream: the default one */

/* A place in the source: MEMLORD_SITE plants one. Two records with one file, function and line
   in one module are one site. The strings are copied when first seen and not read again. */
typedef struct memlord_site {
    const char *file;
    const char *function;
    int line; /* 0: not known */
} memlord_site;

typedef struct memlord_block {
    memlord_device device;
    uint64_t storage;
    uint64_t bytes; /* ignored by free_n and release_n */
} memlord_block;

/* Records a storage that was just created. A live one of the same key is stale: it is
   closed as freed, and counted in implicit_frees. */
MEMLORD_API memlord_result memlord_alloc(memlord *lord, memlord_device device,
                                         uint64_t storage, uint64_t bytes,
                                         const memlord_site *site) MLI_OFF(MEMLORD_OK)

/* Records the end of a storage, whatever its references, before it is returned. Storage 0
   does nothing. The device's index is ignored.
   Errors: E_UNKNOWN not live: totals unchanged, counted in unknown_frees. */
MEMLORD_API memlord_result memlord_free(memlord *lord, memlord_device device,
                                        uint64_t storage, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Records a realloc whose old address cannot have been reused meanwhile; else use begin and
   end. The block keeps its tag, description, references, recorded uses and mark.
   old_storage 0 is an alloc. An unknown old one counts in unknown_frees, and the new one is
   opened. Counted in `reallocs`. */
MEMLORD_API memlord_result memlord_realloc(memlord *lord, memlord_device device,
                                           uint64_t old_storage, uint64_t new_storage,
                                           uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* What realloc_begin and free_begin hand to their ends. Its fields are the library's. */
typedef struct memlord_realloc_token {
    memlord_device device;
    uint32_t state;
    uint64_t storage;
    uint64_t word[5];
} memlord_realloc_token;

/* Takes old_storage off the map, its bytes still counted, before the real realloc: once that
   returns, another thread may own the old address. Every begin needs one end.
   Errors: E_UNKNOWN not live, counted; the token is good all the same, and end then opens the
           new storage. */
MEMLORD_API memlord_result memlord_realloc_begin(memlord *lord, memlord_device device,
                                                 uint64_t old_storage,
                                                 memlord_realloc_token *token)
    MLI_OFF_SET(if (token) memset(token, 0, sizeof *token), MEMLORD_OK)

/* Records what the real realloc did. new_storage 0 says that it failed: the old entry comes
   back as it was. Requires: the token itself, not a copy of it.
   Errors: E_STATE the token was used already, or is another ledger's or free_begin's; E_NOMEM
           the block is counted as dropped. */
MEMLORD_API memlord_result memlord_realloc_end(memlord *lord, memlord_realloc_token *token,
                                               uint64_t new_storage, uint64_t bytes,
                                               const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Begins a free whose real call may fail: takes the storage off the map, its bytes still counted.
   A storage with recorded uses is pending from here on. Storage 0 does nothing. Every begin that
   returned MEMLORD_OK needs one end.
   Errors: E_UNKNOWN not live, counted; E_STATE it is pending already. */
MEMLORD_API memlord_result memlord_free_begin(memlord *lord, memlord_device device,
                                              uint64_t storage, memlord_realloc_token *token,
                                              const memlord_site *site)
    MLI_OFF_SET(if (token) memset(token, 0, sizeof *token), MEMLORD_OK)
/* Ends it: credits the storage or, if the real call `failed`, brings it back. A storage with
   recorded uses comes back without its uses, its views and its description.
   It takes a token of realloc_begin, too, if the realloc was a free.
   Errors: E_STATE the token was used already, or is another ledger's, or free_begin returned an
           error; E_NOMEM as realloc_end. */
MEMLORD_API memlord_result memlord_free_end(memlord *lord, memlord_realloc_token *token,
                                            int failed, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Records n at once. All arguments are checked and room is reserved first, so an error has
   recorded nothing; then the blocks are applied one by one. Meanwhile other threads may see a new
   block with 0 bytes.
   Errors: also E_INVALID `blocks` NULL with n > 0, or sizes whose sum overflows. free_n
           applies every block and returns E_UNKNOWN if some were not live. */
MEMLORD_API memlord_result memlord_alloc_n(memlord *lord, const memlord_block *blocks,
                                           size_t n, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)
/* Frees n storages in one call: see memlord_alloc_n. */
MEMLORD_API memlord_result memlord_free_n(memlord *lord, const memlord_block *blocks,
                                          size_t n, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Tells when a device has done what was asked of it: an event, a timeline's value. Both functions
   are called with no lock of ours held and may call the ledger. */
typedef struct memlord_fence {
    int (*done)(void *user);  /* 1 done, 0 not yet, < 0 failed; may not block */
    void *user;
    uint64_t queue;           /* fences of one queue (a stream) complete in order */
    void (*drop)(void *user); /* may be NULL */
} memlord_fence;

/* Moves a block: the source ends, then the destination begins with `bytes`. Tag, description,
   references and mark go along. Counted in `moves` of the destination, and per pair of devices
   in reports. With a fence (may be NULL), or recorded uses, the source is pending until they
   are done, as after memlord_free_deferred.
   Errors: E_UNKNOWN the source is not live, counted; E_INVALID a fence without `done`. */
MEMLORD_API memlord_result memlord_move(memlord *lord, memlord_device from,
                                        uint64_t from_storage, memlord_device to,
                                        uint64_t to_storage, uint64_t bytes,
                                        const memlord_fence *fence, const memlord_site *site)
    MLI_OFF_SET(if (fence && fence->drop) fence->drop(fence->user), MEMLORD_OK)

/* Records that bytes were copied between devices and the source stays: `copies` of the
   destination, and per pair of devices in reports. No live byte changes: record the copy's own
   storage with memlord_alloc.
   Errors: E_DEVICE; E_INVALID over 2^48; E_NOMEM. Cost: a few atomics; a lock at a pair's first. */
MEMLORD_API memlord_result memlord_copy(memlord *lord, memlord_device from, memlord_device to,
                                        uint64_t bytes) MLI_OFF(MEMLORD_OK)

/* -- views: several owners of one storage -- */

/* Says "I hold this storage": records it with one reference, or adds a reference to a live one and
   counts no bytes (`bytes` is then ignored). So tied weights and views count once. */
MEMLORD_API memlord_result memlord_track(memlord *lord, memlord_device device,
                                         uint64_t storage, uint64_t bytes,
                                         const memlord_site *site) MLI_OFF(MEMLORD_OK)

/* Adds a reference to a live storage. Errors: E_UNKNOWN not live. */
MEMLORD_API memlord_result memlord_retain(memlord *lord, memlord_device device,
                                          uint64_t storage, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Drops a reference; the last one ends the storage. Storage 0 does nothing.
   Errors: E_UNKNOWN not live, counted in unknown_frees. */
MEMLORD_API memlord_result memlord_release(memlord *lord, memlord_device device,
                                           uint64_t storage, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Tracks n storages in one call: see memlord_alloc_n. */
MEMLORD_API memlord_result memlord_track_n(memlord *lord, const memlord_block *blocks,
                                           size_t n, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)
/* Releases n storages in one call: see memlord_alloc_n. */
MEMLORD_API memlord_result memlord_release_n(memlord *lord, const memlord_block *blocks,
                                             size_t n, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* -- arenas: bytes without an identity -- */

/* Adds to the arena balance of a device, under the tag of this thread. Sites count the bytes that
   were added and taken; no site has live arena bytes. Record an arena that is one piece of memory
   as a block: once, and resize it with memlord_realloc(lord, device, key, key, bytes, site). Then
   it has a site, a stack and a peak of its own.
   Errors: E_INVALID over 2^48, or the balance would overflow.
   Cost:   a few shared counters; under a tag also a lock of the device. */
MEMLORD_API memlord_result memlord_arena_add(memlord *lord, memlord_device device,
                                             uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* Takes from the arena balance of a device. More than the balance takes it to 0 and counts in
   underflows, MEMLORD_OK: storages are never touched. The bytes come off the tag of this thread. If
   it has too few, the rest comes off the untagged arena bytes. If the tags then have more than the
   device, the largest tags give up the excess, and each of them counts as an underflow.
   Errors: E_INVALID over 2^48 in one call. */
MEMLORD_API memlord_result memlord_arena_sub(memlord *lord, memlord_device device,
                                             uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* -- fences: memory the device still uses --
   A block whose free has to wait is pending: still in `allocated`, dead to free, release,
   retain and use. Fences are polled in retire, gc_poll and before an out-of-memory retry. Those
   of one device and queue are polled in the order of the frees, so a slow queue holds up only
   itself. A block waits for those of its queue that were freed before it. A poll and a deferred
   free look at every queue of the device type. An alloc or a free of a device type polls what is
   pending on that type: one queue a call, up to four fences of it. After `done` returned 0 such
   calls skip that queue. Each further 0 doubles the wait, up to 256 calls or 10 ms (one call in
   eight reads the clock). The poller of a device polls, too. Calls on other device types cost what
   they cost with nothing pending. A failed fence counts as done, and in fence_failures. A host that
   orders its streams itself (one waits for the other's event before it goes on) frees plainly:
   nothing is left to wait for. */

/* Frees a storage once a fence is done. Calls `done` at once, on this thread (a fence may record
   its event there; not with MEMLORD_FLAG_DEFER). Calls `drop`, if set, exactly once when MemLord
   will not call `done` again. An alloc of a pending storage ends it first.
   Errors: E_INVALID no `done`; E_UNKNOWN not live, counted; E_NOMEM. After an error neither
           function will be called. */
MEMLORD_API memlord_result memlord_free_deferred(memlord *lord, memlord_device device,
                                                 uint64_t storage, memlord_fence fence,
                                                 const memlord_site *site)
    MLI_OFF_SET(if (fence.drop) fence.drop(fence.user), MEMLORD_OK)

/* Ends a pending storage now, whatever its fences say: for a host that is told when its device is
   done, rather than asking. Its fences are dropped; their `done` is not called any more.
   Errors: E_UNKNOWN not pending: nothing changes, and nothing is counted. Cost: as a free. */
MEMLORD_API memlord_result memlord_free_done(memlord *lord, memlord_device device,
                                             uint64_t storage) MLI_OFF(MEMLORD_OK)

/* Records that a live storage is used by work the fence stands for (record_stream). A later plain
   free or release of it is deferred by itself until all its uses are done. A later use on the same
   queue replaces an earlier one.
   Errors: as free_deferred, but a storage that is not live is not counted. */
MEMLORD_API memlord_result memlord_block_use(memlord *lord, memlord_device device,
                                             uint64_t storage, memlord_fence fence)
    MLI_OFF_SET(if (fence.drop) fence.drop(fence.user), MEMLORD_OK)

/* Credits every deferred free whose fences are done, and returns their bytes. Cost: a few ns with
   nothing pending; else one `done` for each queue, each that is done, and each that was not called
   at its free (MEMLORD_FLAG_DEFER). */
MEMLORD_API uint64_t memlord_retire(memlord *lord, memlord_device sel) MLI_OFF(0)

/* -- sites: which code allocates -- */

/* Switches the counting per site on or off. Counts from now on; off keeps what was counted. */
MEMLORD_API memlord_result memlord_sites_enable(memlord *lord, int on)
    MLI_OFF(MEMLORD_OK)

/* Turns a return address into a site, for allocators and interposers: MEMLORD_SITE_OF_CALLER
   passes its own. file is the module and the offset in it, as "libc.so.6+0x2a4f1", or the address
   in no module; line is 0. function is looked up when the site is first shown (a report,
   sites_top, a block; not a line of the log): the dynamic symbol that contains the address (link
   with -rdynamic). Without one, on Windows and on macOS it is "". After dlclose the site stays
   what it was, and its address in another module is another site. Never NULL; lives until destroy.
   Cost: a few ns once the address is known; some tens in a module that dlclose may unload. */
MEMLORD_API const memlord_site *memlord_site_at(memlord *lord, void *return_address)
    MLI_OFF_SET(MLI_NO_SITE, &none)

/* Returns the site of a place that is known by value: C++20's std::source_location, a line of a
   script. NULL strings are "". It is the site that MEMLORD_SITE plants there, if `file` is a
   literal of the same module. The strings are copied. Never NULL; lives until destroy.
   Cost: some tens of ns after this thread's first call with this pointer `file` and this line. */
MEMLORD_API const memlord_site *memlord_site_of(memlord *lord, const char *file,
                                                const char *function, int line)
    MLI_OFF_SET(MLI_NO_SITE, &none)

/* Returns the return address a site was made from; NULL for a planted one. */
MEMLORD_API void *memlord_site_address(memlord *lord, const memlord_site *site)
    MLI_OFF(NULL)

/* Where the code of a return address is. `offset` is that of the call in the file (of the byte
   before the return address), as addr2line takes it. */
typedef struct memlord_place {
    const char *module;   /* the path of the executable or library; "": in none (JIT code) */
    const char *build_id; /* in hexadecimal; "": it has none, or the system does not tell */
    uint64_t offset;      /* in no module: the address */
} memlord_place;

/* Gets the module, offset and build id of a site that memlord_site_at made, as they were when the
   address was first seen: the module may be unloaded by now. Strings live until destroy.
   Errors: E_INVALID no site or `out`; E_UNKNOWN a planted site, or not seen by this ledger. */
MEMLORD_API memlord_result memlord_site_place(memlord *lord, const memlord_site *site,
                                              memlord_place *out) MLI_OFF(MEMLORD_E_UNKNOWN)

/* Gives a site better strings for later reports, say from debug information. Structs handed out
   before stay valid. NULL and 0 keep the old ones.
   Errors: E_UNKNOWN not seen by this ledger; E_NOMEM. */
MEMLORD_API memlord_result memlord_site_rename(memlord *lord, const memlord_site *site,
                                               const char *file, const char *function,
                                               int line) MLI_OFF(MEMLORD_OK)

/* A site on one device. `alloc_bytes` and `allocs` were allocated here, `free_bytes` and
   `frees` were freed here, wherever they were allocated; `live_bytes` was allocated here and is
   not freed yet. A free without a site counts at no site. If a realloc has another site than the
   block, the new site counts an alloc of all its bytes, and has them from then on. */
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

/* Lists the largest sites by `order`, up to `cap`, and returns how many were written. A
   site used on two devices is two rows. Sites whose number is 0 are left out.
   Cost: walks the sites. */
MEMLORD_API size_t memlord_sites_top(memlord *lord, memlord_device sel,
                                     memlord_site_order order, memlord_site_stat *out,
                                     size_t cap) MLI_OFF(0)

/* Finds the site with the most alloc_bytes. 1: found. */
MEMLORD_API int memlord_site_top_alloc(memlord *lord, memlord_device sel,
                                       memlord_site_stat *out) MLI_OFF(0)
/* Finds the site with the most free_bytes. 1: found. */
MEMLORD_API int memlord_site_top_free(memlord *lord, memlord_device sel,
                                      memlord_site_stat *out) MLI_OFF(0)

/* A stack at one site on one device: the return addresses of the allocs, the innermost first.
   With memlord_desc.stack_bytes 1 every alloc is picked, and the numbers are exact. Else an alloc
   of n bytes is picked with the probability 1 - exp(-n / stack_bytes), and stands for its inverse:
   then all numbers but `samples` are estimates. They have no bias, except the peak, which is too
   high in the mean. Each run, process and ledger takes another sample, unless stack_seed of
   memlord_desc makes it repeatable. A forked child takes another sample than its parent. So errors
   average out over runs. `samples`: the allocs picked. A realloc moves a block to the stack of its
   call: there it counts no alloc, and its growth as allocated. After dlclose another module may
   have the address of a frame; its site stays, and memlord_site_place tells the module that had
   it.
   `error_bytes`: the standard error of live_bytes, computed from the picked blocks that live. The
   errors of several stacks add up by their squares. The true value is within two errors in 94 of
   100 cases where some 20 such blocks are expected, in 91 where 5 are, and in 62 where one is.
   0: live_bytes are exact, or no picked block lives that stands for others. In the second case up
   to 3 * stack_bytes of blocks that were not picked may live there, and more in one case of 20. A
   stack without a sample has no row.
   `temporaries`: picked blocks that their own thread freed before the next of its allocs was
   picked. Where every alloc is picked, the thread allocated nothing in between: its caller could
   keep one buffer. */
typedef struct memlord_stack_stat {
    void *const *frames;
    const memlord_site *const *sites; /* of the frames, by the modules that had them */
    uint32_t depth;
    memlord_device device;
    uint64_t alloc_bytes, allocs;
    uint64_t live_bytes, peak_bytes;
    uint64_t samples, error_bytes;
    uint64_t temporaries;
} memlord_stack_stat;

/* Lists the largest stacks by `order`, up to `cap`, and returns how many were written. A stack used
   on two devices, or with two sites, is two rows. Stacks whose number is 0 are left out. A stack
   frees nothing: the orders of frees list the stacks by what they allocated.
   Owns:   `frames` and `sites` live until the ledger ends. Cost: walks the stacks. */
MEMLORD_API size_t memlord_stacks_top(memlord *lord, memlord_device sel,
                                      memlord_site_order order, memlord_stack_stat *out,
                                      size_t cap) MLI_OFF(0)

/* Takes the stacks of allocs from now on. `depth` and `bytes` are what memlord_desc has as
   stack_depth and stack_bytes. It uses memlord_desc.unwinder. With depth 0 no more stacks are
   taken. A ledger that began without stacks can take them. A block keeps its stack, or stays
   without one. Figures of earlier samples stay estimates.
   Threads: any thread may call it, also while others allocate.
   Errors: E_INVALID depth over 128. */
MEMLORD_API memlord_result memlord_stacks_set(memlord *lord, uint32_t depth, uint64_t bytes)
    MLI_OFF(MEMLORD_OK)

/* Follows the frame pointers of the calling thread: a memlord_desc.unwinder that takes some ns a
   frame, for a host that is compiled with -fno-omit-frame-pointer. MemLord itself needs no frame
   pointers at -O2 and above. In other code without them frames are wrong, or the stack ends. Reads
   only the thread's own stack, and ends at the first frame outside it. Returns 0 on the stack of a
   fibre or a signal, and on systems other than Linux on x86-64 and aarch64. `user` is not used.
   Requires: no malloc is under way in the thread. The first call in a thread runs
             pthread_getattr_np, which allocates with a lock of the C library held: called from
             malloc inside the host's own call of that, it would wait for ever. */
MEMLORD_API size_t memlord_unwind_frame_pointers(void *user, void **frames, size_t cap) MLI_OFF(0)

/* -- statistics -- */

/* Every statistic of a device: name, kind, name in PROMETHEUS, text. Kinds:
     LIVE   a level, now              PEAK  a high-water mark
     COUNT  grows; 0 at a reset       ANOMALY  an anomaly or a drop: grows, 0 at a reset
   A wide selector adds them up. To add one: a line here, and the code that counts it. */
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

/* Returns the live bytes, pending included: exact whenever no call is in flight, as the next two.
   Cost: a few ns a thread and device. */
MEMLORD_API uint64_t memlord_allocated(memlord *lord, memlord_device sel) MLI_OFF(0)
/* Returns the bytes credited since the last collection or reset. */
MEMLORD_API uint64_t memlord_freed(memlord *lord, memlord_device sel) MLI_OFF(0)
/* Returns the live bytes that wait for their device. */
MEMLORD_API uint64_t memlord_pending(memlord *lord, memlord_device sel) MLI_OFF(0)
/* For a wide selector the sum of the devices' peaks: an upper bound of the joint one. */
MEMLORD_API uint64_t memlord_peak(memlord *lord, memlord_device sel) MLI_OFF(0)

/* Fills every statistic. A selector that matches no device fills zeros.
   Errors: E_INVALID `out` NULL; E_DEVICE not a selector. */
MEMLORD_API memlord_result memlord_stats_get(memlord *lord, memlord_device sel,
                                             memlord_stats *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Rates of statistics, 0 to 1; NaN when nothing was counted. Reports show them. name, text */
#define MLI_RATES(X)                                                                          \
    X(hit_rate, "requests that the pool served, of all")                                      \
    X(recovery_rate, "requests saved by a retry, of those that found no memory at first")     \
    X(success_rate, "allocations that found memory, of all")

/* Computes a rate by its name: "hit_rate", cache_hits / (cache_hits + cache_misses);
   "recovery_rate", recoveries / (recoveries + oom_failures); "success_rate", allocs / (allocs +
   oom_failures); or "mean_bytes", total_allocated / allocs, so growth and arenas count. NaN when
   nothing was counted, and for any other name. 0 with MEMLORD_DISABLE. */
MEMLORD_API double memlord_rate(const memlord_stats *stats, const char *name) MLI_OFF(0)

/* Starts an epoch: sets freed, totals, counts and anomalies to 0, those of sites and scopes, too,
   and each peak to the live bytes. Live storages stay live. */
MEMLORD_API void memlord_reset(memlord *lord) MLI_OFF_VOID
/* Sets the peak to what is live. */
MEMLORD_API void memlord_peak_reset(memlord *lord, memlord_device sel) MLI_OFF_VOID

/* Writes bytes for people: "0 B", "1 KiB", "1.5 KiB", rounded to two decimals at most, without
   zeros at the end. The same in every locale. 32 bytes always suffice. Returns buf. */
MEMLORD_API char *memlord_format_bytes(uint64_t bytes, char *buf, size_t cap)
    MLI_OFF_SET(if (buf && cap) buf[0] = 0, buf)
/* Reads "512", "1.5 GiB" (powers of 1024), "2GB" (powers of 1000), in any case. B alone and
   the unit's B may be left out ("2G" = 2GB). Errors: E_INVALID, and *out is unchanged. */
MEMLORD_API memlord_result memlord_parse_bytes(const char *text, uint64_t *out)
    MLI_OFF_SET(if (out) *out = 0, MEMLORD_OK)

/* Writes one line for a server's log: every device with live and peak bytes. Follows
   snprintf; allocates nothing. */
MEMLORD_API size_t memlord_summary(memlord *lord, char *buf, size_t cap)
    MLI_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* -- blocks and leaks -- */

/* A description of a block or a part. Every string is copied; all fields may be zero. */
typedef struct memlord_meta {
    const char *name;  /* "blk.0.attn_q.weight" */
    const char *dtype; /* "f16" */
    int64_t shape[8];
    uint32_t rank;     /* entries of shape in use, 0..8 */
    uint32_t flags;    /* the host's own bits, shown as a number */
    const char *tag;   /* retags the block, if set; "" does not */
} memlord_meta;

/* A live block. Strings live until the ledger is destroyed. */
typedef struct memlord_block_info {
    memlord_device device;
    uint64_t storage;
    uint64_t bytes;
    uint64_t refs;             /* 1 + views */
    const char *tag;           /* NULL: untagged */
    const char *scope;         /* path of the one it was allocated in; NULL: none */
    const memlord_site *site;  /* NULL: not known */
    uint64_t born;             /* the mark it was born under */
    memlord_meta meta;         /* zero if never described */
    int pending;               /* freed, and waits for its device */
    uint64_t stream;           /* memlord_stream_set; 0: none, or the default one */
} memlord_block_info;

typedef int (*memlord_block_fn)(void *user, const memlord_block_info *info); /* != 0 stops */

/* Calls fn for every live block of at least min_bytes, copied a shard at a time: blocks
   that come or go meanwhile may or may not be seen. fn may call the ledger; non-zero stops,
   with MEMLORD_OK. Errors: E_NOMEM for the copy. Cost: walks the map. */
MEMLORD_API memlord_result memlord_blocks_each(memlord *lord, memlord_device sel,
                                               uint64_t min_bytes, memlord_block_fn fn,
                                               void *user) MLI_OFF(MEMLORD_OK)

/* Lists the k largest live blocks, largest first, and returns how many were written. Allocates
   nothing. Cost: walks the map. */
MEMLORD_API size_t memlord_blocks_top(memlord *lord, memlord_device sel,
                                      memlord_block_info *out, size_t k) MLI_OFF(0)

/* Finds a live storage. Errors: E_UNKNOWN. Cost: as a free. */
MEMLORD_API memlord_result memlord_block_find(memlord *lord, memlord_device device,
                                              uint64_t storage, memlord_block_info *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Finds the live storage that contains an address. Errors: E_UNKNOWN. Cost: walks the map. */
MEMLORD_API memlord_result memlord_block_containing(memlord *lord, memlord_device device,
                                                    uint64_t address,
                                                    memlord_block_info *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Describes a live block; replaces an earlier description.
   Errors: E_INVALID rank over 8 or meta NULL; E_UNKNOWN; E_NOMEM. */
MEMLORD_API memlord_result memlord_block_describe(memlord *lord, memlord_device device,
                                                  uint64_t storage, const memlord_meta *meta)
    MLI_OFF(MEMLORD_OK)

/* Moves a live block, with its bytes, to another tag; NULL or "" is none.
   Errors: E_UNKNOWN; E_NOMEM. */
MEMLORD_API memlord_result memlord_block_retag(memlord *lord, memlord_device device,
                                               uint64_t storage, const char *tag)
    MLI_OFF(MEMLORD_OK)

/* Begins a new mark and returns it: blocks allocated from now on carry it. At most 2^26 - 1
   marks; then the last one stays. */
MEMLORD_API uint64_t memlord_mark(memlord *lord) MLI_OFF(0)

/* Calls fn (may be NULL) for every live block born under `since_mark` or later, and returns how
   many it met until fn returned non-zero. since_mark 0 is all of them. Cost: walks the map. */
MEMLORD_API size_t memlord_leaks(memlord *lord, uint64_t since_mark, memlord_block_fn fn,
                                 void *user) MLI_OFF(0)

/* -- mistakes of the host, with their place -- */

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

/* Mistakes of one kind at one site: the site given to the call, also while sites are off. */
typedef struct memlord_anomaly {
    int kind;              /* MEMLORD_ANOMALY_... */
    memlord_device device; /* of the first one; memlord_device_all(): the call named none */
    uint64_t storage;      /* of the first one; 0: no storage is concerned */
    uint64_t bytes;        /* of all of them whose blocks are known */
    uint64_t count;
    uint64_t first_ns, last_ns; /* since the ledger was made */
    memlord_site site;     /* file and function "": the call gave none */
    memlord_site born;     /* where the block was allocated; "": not known, or sites are off */
    const char *tag;       /* of that block, the first one's; NULL: none */
} memlord_anomaly;
typedef int (*memlord_anomaly_fn)(void *user, const memlord_anomaly *anomaly); /* != 0 stops */

/* Calls fn for each kind and site of mistakes since the last reset, the oldest first, until fn
   returns non-zero. Returns how many it has called fn for; with fn NULL, how many there are. The
   ledger keeps the first 64, and logs each of these once, as a warning. fn may call the ledger. */
MEMLORD_API size_t memlord_anomalies_each(memlord *lord, memlord_anomaly_fn fn, void *user)
    MLI_OFF(0)

/* -- parts: what is inside a storage -- */

typedef struct memlord_part_info {
    uint64_t offset, bytes;
    memlord_meta meta; /* strings live until destroy */
} memlord_part_info;
typedef int (*memlord_part_fn)(void *user, const memlord_part_info *part); /* != 0 stops */

/* Names a piece of a live storage: a tensor in a weights buffer, a slot of a KV cache. Parts
   subdivide, they never add: no total changes. They end when removed, or with their storage.
   Reports show them with it, except PROMETHEUS, which has no storages, and HEAPTRACK, where each
   would be one allocation more.
   Errors: E_INVALID bytes 0, not inside the storage, or rank over 8; E_STATE it overlaps another
           part; E_UNKNOWN no such storage; E_NOMEM.
   Cost:   a search, and 8 bytes moved for each part behind it: under a us by ascending offset,
           10 to 20 us at random among 100,000. */
MEMLORD_API memlord_result memlord_part_add(memlord *lord, memlord_device device,
                                            uint64_t storage, uint64_t offset, uint64_t bytes,
                                            const memlord_meta *meta) MLI_OFF(MEMLORD_OK)
/* Removes the part that begins at `offset`.
   Errors: E_UNKNOWN no such storage, or no part begins there.
   Cost:   the same as adding a part at that offset. */
MEMLORD_API memlord_result memlord_part_remove(memlord *lord, memlord_device device,
                                               uint64_t storage, uint64_t offset)
    MLI_OFF(MEMLORD_OK)

/* Calls fn for the parts of a storage, by offset, and returns how many it was called for.
   Copied some at a time: fn may call the ledger. */
MEMLORD_API size_t memlord_parts_each(memlord *lord, memlord_device device, uint64_t storage,
                                      memlord_part_fn fn, void *user) MLI_OFF(0)

/* -- tags, plan against actual -- */

/* Tags what this thread allocates until the matching end: MEMLORD_TAG and MEMLORD_TAGGED do both.
   Tags nest; the innermost wins. The text is copied. Each pair of tag and device needs a
   record, of which a ledger has 65,535: past them blocks are recorded without their tag, counted
   in dropped_sites.
   Errors: E_INVALID NULL or ""; E_STATE deeper than 64, or an end without a begin, an anomaly;
           E_NOMEM, also past MEMLORD_MAX_STRINGS, counted in dropped_sites. Cost: tens of ns. */
MEMLORD_API memlord_result memlord_tag_begin(memlord *lord, const char *tag)
    MLI_OFF(MEMLORD_OK)
/* Ends the innermost tag of this thread. Errors: E_STATE none is begun. */
MEMLORD_API memlord_result memlord_tag_end(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Returns the tag that an alloc of this thread gets now; NULL: none. Lives until destroy. */
MEMLORD_API const char *memlord_tag_current(memlord *lord) MLI_OFF(NULL)

/* Sets the tag that this thread's allocs get while no tag is begun; NULL takes it off.
   Errors: E_INVALID ""; E_NOMEM as tag_begin. */
MEMLORD_API memlord_result memlord_tag_default_set(memlord *lord, const char *tag)
    MLI_OFF(MEMLORD_OK)

/* Sets the stream of this thread's later allocs, for hosts that allocate in the order of a stream
   (CUDA, HIP, SYCL): any 64-bit number; 0 is none, or the default stream. Returns the stream that
   was set before, which the host sets again at the end. A block keeps its stream until it ends,
   also through realloc and move; blocks, their events and MEMORY_VIZ have it beside the tag. Past
   2^20 combinations of mark, scope and stream, blocks are recorded without scope and stream,
   counted with the dropped scopes of reports. A thread without a record of its own (no memory) has
   no stream: its call is counted in dropped_sites.
   Cost: tens of ns, and the next alloc takes the general path. */
MEMLORD_API uint64_t memlord_stream_set(memlord *lord, uint64_t stream) MLI_OFF(0)

typedef struct memlord_tag_stat {
    const char *tag;
    uint64_t allocated; /* bytes live now */
    uint64_t peak;      /* as memlord_peak, of this tag */
    uint64_t blocks;    /* live now */
    uint64_t expected;  /* memlord_expect; 0: nothing was planned */
    int64_t variance;   /* allocated - expected; 0 when nothing was planned */
} memlord_tag_stat;

/* Reads a tag on the devices of a selector, with its arena bytes. NULL reads the untagged bytes,
   whose peak is not kept (0). A device's tags and its untagged bytes add up to its live bytes.
   Errors: E_UNKNOWN nothing was ever allocated or planned under it on any device, *out zero;
           E_INVALID `out` NULL; E_DEVICE not a selector. */
MEMLORD_API memlord_result memlord_tag_get(memlord *lord, memlord_device sel,
                                           const char *tag, memlord_tag_stat *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Sets how many bytes a tag is planned to hold on a device, for reports to compare.
   Errors: E_INVALID; E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_expect(memlord *lord, memlord_device device,
                                          const char *tag, uint64_t bytes)
    MLI_OFF(MEMLORD_OK)
