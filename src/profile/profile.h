/* Owns mlr_profile: the facts of one run in memory, as a report of the ledger has them. Every
   answer and every format reads them here, and nothing else. Invariants: a number of a row counts
   from 1, and 0 means none; every number is within its list; a text is never NULL unless its
   comment says so, is valid UTF-8, and is that of the program, with its control characters. Locks:
   none; one thread uses a profile at a time. */
#ifndef MLR_PROFILE_PROFILE_H
#define MLR_PROFILE_PROFILE_H
#include <stddef.h>
#include <stdint.h>

#ifndef MLR_PRIVATE
#define MLR_PRIVATE /* what several modules share; vendored in one file, it becomes static */
#endif

#define MLR_UNKNOWN UINT64_MAX /* a number that the profile does not have */
#define MLR_SIZES   50 /* size classes: 0 has blocks of 0 bytes, k those of 2^(k-1) to 2^k - 1 */

typedef struct mlr_module {      /* a file of code */
    const char *path, *build_id; /* build_id: hexadecimal digits, "" if not known */
} mlr_module;

typedef struct mlr_function { /* a function at a frame; one frame has several if some are inlined */
    const char *name, *file;  /* "" if not known */
    uint32_t line;            /* 0 if not known */
    int library;              /* 1: the function is a wrapper or is in a standard library, so that
                                 answers name its caller */
} mlr_function;

/* A place of code. The names come from the program (MEMLORD_SITE), or from the module's file. */
typedef struct mlr_frame {
    uint32_t module;           /* 0: not known */
    uint64_t offset;           /* in the module's file */
    uint32_t functions, shown; /* how many functions; which of them, from 0, answers show. The
                                  first is the innermost. At least 1 function */
    mlr_function *function;
} mlr_frame;

typedef struct mlr_sizes { /* how many live blocks there are, by size class */
    uint64_t blocks[MLR_SIZES];
} mlr_sizes;

/* The statistics of a device: all members of memlord_stats, in the order of the table that both
   use. tests compare it with memlord.h. */
#define MLR_STATS(X)                                                                               \
    X(allocated)                                                                                   \
    X(pending) X(freed) X(peak) X(peak_error) X(live_blocks) X(allocs) X(frees) X(total_allocated) \
        X(total_freed) X(moves) X(moved_bytes) X(reserved) X(reserved_peak) X(cached)              \
            X(largest_free) X(cache_hits) X(cache_misses) X(limit) X(gc_runs) X(gc_failed)         \
                X(gc_reclaimed) X(oom_attempts) X(oom_failures) X(retries) X(recoveries)           \
                    X(implicit_frees) X(unknown_frees) X(freed_while_shared) X(underflows)         \
                        X(fence_failures) X(dropped_allocs) X(dropped_bytes) X(dropped_sites)      \
                            X(dropped_events) X(held) X(reallocs) X(copies) X(copied_bytes)        \
                                X(refused) X(neighbours)
typedef struct mlr_stats {
#define MLR_X(name) uint64_t name;
    MLR_STATS(MLR_X)
#undef MLR_X
} mlr_stats;

typedef struct mlr_held { /* how much a tag or a site held at a moment */
    uint32_t row;         /* of the tag or the site; 0: what has none */
    uint64_t bytes;
} mlr_held;

typedef struct mlr_oom { /* the last attempt that found no memory; time_ns 0: there was none */
    uint64_t time_ns, bytes, live, used;
    uint32_t frame; /* 0: not known */
} mlr_oom;

typedef struct mlr_device {
    const char *name, *label; /* "cuda:0"; the host's own word for it, or "" */
    mlr_stats stats;
    uint64_t arena, arena_untagged; /* the part of live bytes that is in arenas */
    mlr_sizes sizes;
    int has_lifetimes;
    uint64_t lifetime[4]; /* blocks that lived below 0.1 s, to 1 s, to 10 s, longer */
    mlr_oom oom;
    /* who held how much at the peak, the largest first; peak_bytes 0: not noted */
    uint64_t peak_bytes, peak_time_ns, peak_arena;
    mlr_held *peak_tag, *peak_site;
    uint32_t peak_tags, peak_sites;
    uint32_t capacity; /* the row of its capacity; 0: not known */
} mlr_device;

typedef struct mlr_process { /* another process that uses a physical device */
    uint64_t pid, bytes;
    const char *name;
} mlr_process;

typedef struct mlr_capacity { /* the memory of a physical device; each number MLR_UNKNOWN or bytes
                               */
    const char *device;
    uint64_t total, used, free, self, untagged, context, neighbours, process, others, age_ns, limit,
        held;
    int64_t unaccounted;   /* INT64_MIN: not known */
    uint64_t not_resident; /* the part of `used` that is planned and not resident; MLR_UNKNOWN */
    mlr_process *process_list;
    uint32_t processes;
} mlr_capacity;

typedef struct mlr_account {
    const char *name, *device;
    uint64_t bytes, peak, limit, refused;
} mlr_account;

typedef struct mlr_stream { /* the live blocks of a stream of a device */
    uint32_t device;
    uint64_t stream, bytes, blocks;
} mlr_stream;

typedef struct mlr_tag { /* a tag on a device */
    const char *name;
    uint32_t device;
    uint64_t live, peak, peak_error, blocks, expected;
    int64_t variance;
} mlr_tag;

typedef struct mlr_site { /* a place that allocates, on a device */
    uint32_t frame, device;
    uint64_t live, peak, peak_error, allocs, alloc_bytes, frees, free_bytes;
    mlr_sizes *sizes; /* NULL: not known */
} mlr_site;

typedef struct mlr_node {   /* a frame of a stack, and its caller: a tree, whose roots have caller 0
                             */
    uint32_t caller, frame; /* caller is below the number of the node */
} mlr_node;

/* A stack of allocs. Where stacks are samples the reader has scaled the numbers, so that the stacks
   of a site add up to the site (see profile/scale.h). */
typedef struct mlr_stack {
    uint32_t node, device, site;
    uint64_t live, live_blocks, peak, at_peak, allocs, alloc_bytes, temporaries;
    uint64_t samples, error; /* 0 if every alloc has its stack */
} mlr_stack;

/* The live blocks that have the same device, tag, scope, site and stack. */
typedef struct mlr_group {
    uint32_t device, tag, scope, site, stack;
    int arena;                            /* 1: bytes of an arena, which have no blocks */
    uint64_t blocks, bytes, pending;      /* pending: bytes */
    uint64_t oldest_ns, youngest_ns;      /* births since the start; MLR_UNKNOWN */
    uint64_t marked_blocks, marked_bytes; /* of these those allocated since the last mark */
} mlr_group;

typedef struct mlr_part {
    uint64_t offset, bytes;
    const char *name, *dtype, *shape, *tag; /* shape: "[4096,128]" */
} mlr_part;

typedef struct mlr_block { /* one live block; the profile may have only the largest */
    uint32_t device, tag, scope, site, stack;
    int pending, requires_grad;
    uint64_t storage, bytes, refs, stream, flags;
    uint64_t born_ns; /* MLR_UNKNOWN */
    const char *name, *dtype, *shape;
    mlr_part *part;
    uint32_t parts;
    uint64_t all_parts, part_bytes; /* of the block, listed or not */
} mlr_block;

typedef struct mlr_level { /* what a device had at a snapshot */
    uint64_t live, pending, reserved, peak, blocks;
} mlr_level;
typedef struct mlr_snapshot {
    uint64_t time_ns;
    const char *name; /* of a checkpoint; "" for others */
    uint64_t live, blocks;
    mlr_level *level; /* by number of the device less 1; `levels` of them */
    uint32_t levels, tags, sites;
    mlr_held *tag, *site; /* those that held most, and those that changed most */
} mlr_snapshot;

typedef struct mlr_run { /* an invocation of a scope */
    uint64_t start_ns, ns;
    uint32_t thread;
    int64_t bytes, blocks, before, after, peak;
    const char *shapes; /* "" if there are none */
} mlr_run;
typedef struct mlr_scope {
    const char *name, *path;
    uint32_t parent, frame; /* frame 0: no place is known */
    uint64_t count, running, live, live_blocks, peak, device_ns;
    int64_t bytes, bytes_min, bytes_max, blocks, blocks_min, blocks_max; /* change per invocation */
    uint64_t ns, ns_min, ns_max;
    int64_t *device_bytes; /* by number of the device less 1; NULL: none changed */
    mlr_run *run;
    uint32_t runs;
} mlr_scope;

typedef enum mlr_event_kind { /* as MEMLORD_EVENT_... */
                              MLR_EVENT_ALLOC,
                              MLR_EVENT_FREE,
                              MLR_EVENT_PEND,
                              MLR_EVENT_MOVE,
                              MLR_EVENT_ARENA_ADD,
                              MLR_EVENT_ARENA_SUB,
                              MLR_EVENT_GC,
                              MLR_EVENT_OOM,
                              MLR_EVENT_SCOPE_BEGIN,
                              MLR_EVENT_SCOPE_END,
                              MLR_EVENT_CHECKPOINT
} mlr_event_kind;
typedef struct mlr_event {
    uint64_t time_ns, storage, bytes, stream;
    uint32_t thread, device, site, tag, scope;
    mlr_event_kind kind;
    const char *name; /* of a checkpoint; NULL for other kinds */
    uint32_t stack;
} mlr_event;

typedef struct mlr_transfer { /* what was moved and copied between two devices */
    uint32_t from, to;
    uint64_t moves, moved_bytes, copies, copied_bytes;
} mlr_transfer;

typedef struct mlr_thread {
    uint64_t id, allocs, frees, alloc_bytes, free_bytes;
} mlr_thread;

typedef struct mlr_mistake {         /* the mistakes of one kind at one place */
    const char *kind, *device, *tag; /* as in JSON, such as "unknown_free"; tag: "" if none */
    uint64_t storage, count, bytes, first_ns, last_ns;
    uint32_t frame, born; /* 0: not known */
} mlr_mistake;

/* What an older file, or one of another origin, does not have. An answer that needs it says so. */
enum {
    MLR_LACKS_GROUPS = 1, /* before memlord/3: live blocks by tag and site together */
    MLR_LACKS_BIRTHS = 2, /* ages of blocks */
    MLR_LACKS_STACKS = 4, /* more than the 2,048 largest stacks */
    MLR_LACKS_BLOCKS = 8, /* more than the largest blocks */
    MLR_LACKS_SITE_SIZES = 16
};

#define MLR_LIST(type, name)                                                                       \
    type *name;                                                                                    \
    uint32_t name##_count
typedef struct mlr_profile {
    const char *path;    /* the file, or "-" */
    const char *version; /* of the library that wrote it */
    int schema;          /* 1, 2 or 3 */
    unsigned lacks;      /* a sum of MLR_LACKS_... */
    const char *program, *host, *arguments, *labels, *generated_at, *started_at; /* "" */
    uint64_t pid, started_unix_ns, uptime_ns, mark, own_bytes;
    uint64_t resident;                          /* bytes of the process in memory; MLR_UNKNOWN */
    uint64_t inherited_bytes, inherited_blocks; /* live at the fork that made the process */
    uint64_t lost_sites, lost_tags, lost_allocs, lost_events; /* dropped by the ledger */
    uint64_t sample_bytes; /* 0: every alloc has its stack, or none has; else the mean distance */
    uint32_t stack_depth;
    uint64_t stacks_cut;
    uint64_t events_capacity;
    uint64_t blocks_of, blocks_bytes; /* all live blocks and their bytes, listed or not */
    int ended;                        /* 1: the program has ended */
    int has_sites, has_events, has_scopes;
    mlr_stats total;
    MLR_LIST(mlr_device, device);
    MLR_LIST(mlr_capacity, capacity);
    MLR_LIST(mlr_account, account);
    MLR_LIST(mlr_stream, stream);
    MLR_LIST(mlr_tag, tag);
    MLR_LIST(mlr_module, module);
    MLR_LIST(mlr_frame, frame);
    MLR_LIST(mlr_site, site);
    MLR_LIST(mlr_node, node);
    MLR_LIST(mlr_stack, stack);
    MLR_LIST(mlr_scope, scope);
    MLR_LIST(mlr_group, group);
    MLR_LIST(mlr_block, block);
    MLR_LIST(mlr_snapshot, snapshot);
    MLR_LIST(mlr_event, event);
    MLR_LIST(mlr_transfer, transfer);
    MLR_LIST(mlr_thread, thread);
    MLR_LIST(mlr_mistake, mistake);
    struct mlr_arena *arena; /* all of the memory above */
    uint64_t lost_scopes, lost_runs, lost_snapshots, lost_exports; /* dropped by the ledger, too */
    uint64_t accounts_open;                                        /* listed or not */
} mlr_profile;

/* A list has its row `number` at list[number - 1]. */

#endif
