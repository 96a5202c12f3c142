/* ---------------------------------------------------------------------- >>api --
   The host is the program that calls MemLord. A ledger records the host's storages. A storage is
   one real allocation, and a block is the record of a live one. A device is where storages live. A
   selector is one device, all devices of a type, or all devices. >>concepts has all such words. */

typedef struct memlord memlord; /* a ledger: one independent account book */

/* -- results -- */

/* Each line has the name and the text of a result. */
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

/* Returns the text of a result: a few words of English, for logs. The text is never NULL. */
MEMLORD_API const char *memlord_result_text(memlord_result result)
    MLI_OFF(result == MEMLORD_OK ? "ok" : result == MEMLORD_E_OOM ? "no memory" : "refused")

/* -- devices -- */

/* Each line has the name and the text of a device type, and 1 if its memory is the physical memory
   of the host's machine. */
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
    X(OTHER, "other", 0) /* a pool, or another kind of memory */

enum {
#define MLI_X(name, text, host) MEMLORD_DEVICE_##name,
    MLI_DEVICE_TYPES(MLI_X)
#undef MLI_X
    MEMLORD_DEVICE_TYPE_COUNT
};

#define MEMLORD_ANY (-1) /* as an index: every device of the type; as a type: every type */

typedef struct memlord_device {
    int16_t type;  /* MEMLORD_DEVICE_CPU, ... */
    int16_t index; /* 0 or more; in a selector also MEMLORD_ANY */
} memlord_device;

/* Makes a device or a selector. For a number that does not fit an int16_t it makes a device that
   every call refuses. */
MLI_API_INLINE memlord_device memlord_device_make(int type, int index) {
    memlord_device d;
    d.type = MLI_CAST(int16_t, type < INT16_MIN || type > INT16_MAX ? INT16_MAX : type);
    d.index = MLI_CAST(int16_t, index < INT16_MIN || index > INT16_MAX ? INT16_MIN : index);
    return d;
}
/* Makes the device of the host's memory. */
MLI_API_INLINE memlord_device memlord_device_cpu(void) {
    return memlord_device_make(MEMLORD_DEVICE_CPU, 0);
}
/* Makes the device of the GPU that has this index in the CUDA runtime. */
MLI_API_INLINE memlord_device memlord_device_cuda(int index) {
    return memlord_device_make(MEMLORD_DEVICE_CUDA, index);
}
/* Makes the selector of every device. */
MLI_API_INLINE memlord_device memlord_device_all(void) {
    return memlord_device_make(MEMLORD_ANY, MEMLORD_ANY);
}

/* Reads the name of a device or of a selector, in upper or lower case: "cuda:1", "CUDA1", "cuda"
   (any index), "cpu" (cpu:0; likewise "pinned" and "mapped"), "all". It also reads names that
   engines use: "mps" (metal), "xpu" (sycl), "ROCm0" (hip:0), "CUDA_Host" (pinned), "CPU_Mapped"
   (mapped).
   Errors: E_INVALID if the text is no such name; *out is unchanged. */
MEMLORD_API memlord_result memlord_device_parse(const char *text, memlord_device *out)
    MLI_OFF_SET(if (out) *out = memlord_device_all(), MEMLORD_OK)

/* Writes the name of a device ("cuda:1", "cpu") or of a selector ("cuda", "all"). Like snprintf it
   returns the length without the terminating 0, and writes at most `cap` bytes, the 0 included. */
MEMLORD_API size_t memlord_device_name(memlord_device device, char *buf, size_t cap)
    MLI_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* Sets the host's own name for a device. TEXT, JSON and HTML reports show it beside MemLord's name.
   NULL removes it. Each different name is kept until memlord_destroy.
   Errors: E_DEVICE if `device` is not one device; E_NOMEM. */
MEMLORD_API memlord_result memlord_device_label_set(memlord *lord, memlord_device device,
                                                    const char *text) MLI_OFF(MEMLORD_OK)

/* Says that the bytes of a device are in the memory of another one, `physical`. For example, the
   bytes of an integrated GPU are in the cpu's memory, and the bytes of a pool are in the memory of
   the pool's real device. Both devices then have one capacity, one limit and one headroom (the
   bytes that still fit). If `physical` is `device`, the call ends the sharing.
   Errors: E_DEVICE if `device` or `physical` is not one device; E_NOMEM; E_STATE if `physical` is
           itself in the memory of another device, as PINNED is in that of the cpu, if other devices
           are in the memory of `device`, or if tickets are open on its physical device. */
MEMLORD_API memlord_result memlord_device_share(memlord *lord, memlord_device device,
                                                memlord_device physical)
    MLI_OFF(MEMLORD_OK)

/* Lists the devices that the ledger knows, up to `cap`, and returns how many it knows. `out` may be
   NULL when cap is 0. */
MEMLORD_API size_t memlord_devices(memlord *lord, memlord_device *out, size_t cap)
    MLI_OFF(0)

/* -- lifecycle -- */

/* The source of a ledger's own memory. Set both functions or neither. Without them a ledger takes
   pages from the operating system, and does not call malloc. `alloc` returns NULL when there is no
   memory. `free` gets the size that `alloc` was asked for. MemLord calls both on any thread, while
   it holds no lock. */
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
    MEMLORD_LOG_TRACE      /* with MEMLORD_DEBUG=1 only: a line for every call that allocates,
                              frees, resizes or moves, and for every retired block */
};

/* The receiver of messages. `text` is one line without its newline, and is valid only during the
   call. A NULL fn means that no message is written. With MEMLORD_DEBUG=1 the messages of every
   level go to stderr, in colour, if fn is NULL or memlord_log_stderr. */
typedef struct memlord_logger {
    void (*fn)(void *user, int level, const char *text);
    void *user;
} memlord_logger;

/* Writes errors and warnings to stderr, one line each. Use it as memlord_logger.fn. It ignores
   `user`. */
MEMLORD_API void memlord_log_stderr(void *user, int level, const char *text) MLI_OFF_VOID

/* The clock of a ledger. fn returns nanoseconds that never go back. A NULL fn means the platform's
   monotonic clock. Requires: fn does not call MemLord, because MemLord may hold locks. */
typedef struct memlord_clock {
    uint64_t (*fn)(void *user);
    void *user;
} memlord_clock;

/* An unwinder writes this as its last frame when the stack has further frames that it cannot find,
   as in code without unwind tables. Reports show such a stack as cut. */
#define MEMLORD_FRAME_LOST ((void *)1)

/* The unwinder of a ledger. fn writes the return addresses of the calling thread, the innermost
   first, at most `cap`, and returns how many it wrote. MemLord ignores the first NULL and what
   follows it. fn runs inside the host's own call, with no lock of MemLord held. It may allocate;
   such a block gets no stack. A NULL fn means the platform's unwinder, _Unwind_Backtrace or
   RtlCaptureStackBackTrace. memlord_unwind_frame_pointers is faster.
   A stack that cannot be unwound has one frame, the return address that is known. Reports count
   such stacks. If a stack does not reach its root, reports show a frame in place of the root, which
   says why: "[cut: deeper]" (deeper than stack_depth), "[cut: no unwind table]" or "[cut: not
   unwound]".
   The platform's unwinder reads tables, which gcc writes for C by default on x86, AArch64, POWER
   and z. On RISC-V compile the host with -funwind-tables. On 32-bit ARM there are no such tables,
   and every stack is one address. */
typedef struct memlord_unwinder {
    size_t (*fn)(void *user, void **frames, size_t cap);
    void *user;
} memlord_unwinder;

enum {
    MEMLORD_FLAG_NO_STRATEGY = 1, /* no strategy is in force until memlord_strategy_set */
    MEMLORD_FLAG_SITES = 2,       /* counting per site is on from the start */
    MEMLORD_FLAG_EXACT = 4,       /* peaks are exact; for that, threads share the counters that they
                                     write */
    MEMLORD_FLAG_DEFER = 8,       /* collections and polls of fences happen only in memlord_gc_poll,
                                     _gc_run, _retire, _alloc_retry and on pollers: see
                                     >>threading */
    MEMLORD_FLAG_NO_THREADS = 16, /* the ledger starts no threads */
    MEMLORD_FLAG_NO_ENV = 64,     /* the ledger ignores the environment */
    MEMLORD_FLAG_NO_SNAPSHOT_THREAD = 128 /* the host's calls take snapshots, and no thread of the
                                             ledger does: see memlord_snapshots_start */
};

/* The configuration of a ledger. Every field may be 0; its comment says what 0 means. */
typedef struct memlord_desc {
    memlord_allocator allocator; /* source of the ledger's own memory; 0: the system's pages */
    memlord_logger logger;       /* receiver of messages; 0: there is none */
    memlord_clock clock;         /* source of the time; 0: the platform's monotonic clock */
    uint32_t flags;              /* sum of MEMLORD_FLAG_...; 0: none is set */
    uint32_t poll_ms;            /* ms between two samples of a poller, at least 10; 0: 200 */
    uint32_t snapshot_ms;        /* ms between two snapshots; 0: snapshots do not start */
    size_t event_capacity;       /* events that fit in the ring; 0: memlord_create makes no ring */
    uint64_t counter_batch;      /* number of bytes that a thread may count before it adds them to
                                    a peak, below 2^32; 0: 65536 */
    const char *output_dir;      /* directory of memlord_save_at_exit; NULL: the current one */
    const char *proc_root;       /* for tests: a prefix of /proc and cgroup paths; NULL: none */
    const char *labels;          /* labels, as for memlord_labels_set; NULL: none */
    uint32_t stack_depth;        /* frames kept of an alloc's stack, at most 128; 0: no stacks */
    uint64_t stack_bytes;        /* mean bytes from one sampled alloc to the next; 1: every alloc is
                                    sampled; 0: 512 KiB */
    memlord_unwinder unwinder;   /* reader of the call stack; 0: the platform's */
    uint64_t stack_seed;         /* seed of the sampling. The same seed picks the same allocs of
                                    the same threads; 0: a different seed for each ledger */
} memlord_desc;

/* Opens a ledger. `desc` is copied, with its strings. NULL means the default configuration.
   Errors: E_INVALID if `out` is NULL, desc->allocator has only one of alloc and free, flags has an
           unknown bit, poll_ms or snapshot_ms is 1 to 9, event_capacity is over 2^26, or
           stack_depth is over 128. The logger of `desc` gets a message that says which, unless
           `out` is NULL. E_NOMEM. After an error *out is NULL.
   Owns:   *out is yours until memlord_destroy. You need not destroy it. */
MEMLORD_API memlord_result memlord_create(const memlord_desc *desc, memlord **out)
    MLI_OFF_SET(if (out) *out = NULL, MEMLORD_OK)

/* Closes a ledger and returns its memory. It logs the live bytes and blocks of each device. Where
   tags or sites are known, it also logs the ten largest groups of live blocks that have a device,
   tag and site in common. It does nothing for NULL and for memlord_global().
   Threads: no call on the ledger may be in flight or follow, on any thread. */
MEMLORD_API void memlord_destroy(memlord *lord) MLI_OFF_VOID

/* Returns the process's own ledger. The first call makes the ledger, with memory from the operating
   system, so that it works inside malloc and before main. The ledger is never destroyed, and a
   library that made it stays loaded: see >>threading.
   Errors: NULL if there is no memory for it. With a NULL ledger MemLord is switched off. */
MEMLORD_API memlord *memlord_global(void) MLI_OFF(NULL)

/* Makes the global ledger now, with a configuration. Call it before anything uses memlord_global:
   at the start of main, or in a static constructor.
   Errors: E_STATE if there is a global ledger already. The logger of that ledger gets a message; if
           that ledger has no logger, desc->logger gets it. E_INVALID as for memlord_create, and if
           desc->allocator is set. E_NOMEM. */
MEMLORD_API memlord_result memlord_global_setup(const memlord_desc *desc) MLI_OFF(MEMLORD_OK)

/* Sets the receiver of messages, at any time. NULL means a memlord_logger of zeros. The call
   returns when no other thread is in the old logger any more. A logger may call this function.
   Errors: E_STATE if the ledger's logger calls it while another thread sets a logger, or if the
           logger of another ledger calls it: the two could wait for each other. */
MEMLORD_API memlord_result memlord_logger_set(memlord *lord, const memlord_logger *logger)
    MLI_OFF(MEMLORD_OK)

/* Checks that the ledger agrees with itself. It compares the map with the counters of devices,
   sites and tags. It also checks accounts, arenas, tickets, pending blocks and parts. It is for
   tests and for bug reports.
   Threads: no other call may be in flight, because a change that is only half made looks like a
           fault.
   Errors: E_STATE if something does not agree; the first such thing goes to the logger. E_NOMEM.
           E_UNSUPPORTED in a build with MEMLORD_NO_VERIFY.
   Cost:   walks everything, with the locks of the ledger held. */
MEMLORD_API memlord_result memlord_verify(memlord *lord) MLI_OFF(MEMLORD_OK)
