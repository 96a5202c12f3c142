/* Owns the layout of a ledger, of the process state and of the thread-local state. A module owns
   the member of struct memlord that is named after it. Invariants: a row is never removed, so its
   number and address are valid as long as the ledger; a thread record is reused, never freed.
   Locks: base/atomics lists all locks in their order (MLI_RANK_...). The words that all comments
   use:
   A dev is a ledger's own number of a device, from 1. A phys is a physical device, memory that
   several devices may share; a source tells how many bytes it has, and how many are in use: to call
   the source is to sample the phys. A selector names one device, all devices of a type, or all. The
   arena of a device is its bytes that are in no recorded block.
   The map has an entry for each block: its key (the device type and the storage, which is an
   address or a handle), word1 (the bytes, the device, the references) and word2 (the site, the tag
   and the birth). A birth is the mark (memlord_mark), scope and stream that the block began with.
   The map has parts, the shards; a shard has a table of buckets, a bucket has slots for entries,
   and the header of a bucket tells which are in use. A thread is inside a shard while it uses the
   table; no other thread uses a shard that is paused. The home of a key is where a search for it
   begins. A probe finds an entry, which no other thread changes until the probe ends. A side record
   has those facts of a block that do not fit in its entry; the entry's word2 then points to it, and
   it keeps what word2 had before. A part is a range of the bytes of a block, with a description. A
   pending block was freed, and waits for its fences. A detached block is off the map while its
   realloc is open, and still counts.
   A row has the counters of a device, or of a site, a tag or a stack on a device; a book has all
   rows of one kind. A cell has one thread's part of a row. Its level is the bytes that the thread
   allocated less those it freed. To publish a cell is to add the change of its level to the row; a
   cell may hold back a part of the change, the batch at most. A delta is a change of counters. Each
   memlord_reset begins an epoch. A holder is what has bytes of a device: a tag, a site or the
   arena.
   A thread has a record in each ledger that it uses. The orphan record serves all threads for which
   there is no record. A sweep frees the records whose thread has ended. A helper is a thread that
   the ledger starts: a poller samples a phys, a recorder takes snapshots or exports reports. A
   fibre is work of the host that moves between threads. A context has the open tags and scopes, the
   account, the stream and the tickets of a thread or a fibre. A safe point is a moment at which
   host code may run, such as during memlord_gc_poll.
   A site is a place in the host's code: a memlord_site, or the return address of a call. A module
   of the process is an executable or a library; a place in it is an offset in its file. A kept
   string is the ledger's only copy of a text, and lives as long as the ledger. A picked block is
   one whose alloc was sampled, to take its stack; stacks are samples if not all allocs are picked.
   A stack is the path from a node to the root of a tree, node 0; each node has a return address,
   and its parent is the node of the caller. A scope is a named part of the host's run, and an
   invocation one run of it; a span is a scope that a context is in. The interposer is a preloaded
   MemLord, with a ledger of its own.
   A ticket is the id of a reservation: bytes of a phys, and perhaps of an account, that are held
   for later allocs. An alloc draws on a ticket; its bytes are in flight until it is recorded. An
   account counts the bytes that are charged to a user or a request of the host. A fence tells by
   its function `done` whether a device has finished with a block: to ask it is to call `done`; to
   drop it is to call its `drop`, after which the ledger does not use it. A strategy is a list of
   bands; a band is a range of the percentage in use of a device, with a threshold of a metric. A
   band check compares the two; a collection runs the host's callbacks, which free memory. The
   pressure page is a file that the ledgers of several processes, the neighbours, map.
   A stamp is a time, by the processor's counter or the ledger's clock. The ring has the latest
   events. A snapshot has the live bytes at one moment; a checkpoint is a snapshot with a name. A
   dropped alloc is one that the ledger had no room to record. The cold lock is
   mli_process.cold_lock. */
#ifndef MLI_BASE_LEDGER_H
#define MLI_BASE_LEDGER_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/system.h"
#include "os/machine.h"
#include "os/unwind.h"
#include "base/atomics.h"

#define MLI_SHARD_BITS 10 /* 1024 shards */
#define MLI_BYTES_MAX ((uint64_t)1 << 48) /* the most bytes of a block */
#define MLI_TYPE_COUNT ((int)MEMLORD_DEVICE_TYPE_COUNT)
#define MLI_DIRECT_DEVICES 2048 /* how many devices dev_of has elements for: 16 types x 128 */

/* The kinds of rows. A book has all rows of one kind. */
enum { MLI_BOOK_DEVICE, MLI_BOOK_SITE, MLI_BOOK_TAG, MLI_BOOKS };

enum {
#define MLI_X(name, kind, family, text) MLI_STAT_##name,
    MLI_STATS(MLI_X)
#undef MLI_X
    MLI_STAT_COUNT
};

/* Kinds of records that found no room, or are no longer kept, counted for the ledger as a whole. */
#define MLI_LOSSES(X)                                                                         \
    X(scopes, "scopes there was no room for")                                                 \
    X(scope_invocations, "invocations of scopes no longer kept")                              \
    X(snapshots, "snapshots no longer kept")                                                  \
    X(exports, "exports that failed")
enum {
#define MLI_X(name, text) MLI_LOST_##name,
    MLI_LOSSES(MLI_X)
#undef MLI_X
    MLI_LOSS_COUNT
};

/* The public functions that count and log their refusals by mli_refuse. */
#define MLI_REFUSERS(X)                                                                       \
    X(alloc) X(free) X(realloc) X(realloc_begin) X(realloc_end) X(free_begin) X(free_end)     \
    X(alloc_n) X(free_n) X(move) X(copy) X(track) X(retain) X(release) X(track_n)             \
    X(release_n) X(alloc_with) X(alloc_retry) X(alloc_failed) X(arena_add) X(arena_sub)       \
    X(free_deferred) X(free_done) X(block_use) X(tag_begin) X(tag_default_set) X(block_retag) \
    X(expect) X(pool_set) X(pool_add) X(pool_served)
enum {
#define MLI_X(name) MLI_REFUSER_##name,
    MLI_REFUSERS(MLI_X)
#undef MLI_X
    MLI_REFUSER_COUNT
};

typedef mli_ptr mli_vector; /* a growable array, an mli_chunk_array: see base/vectors */

/* One of the parts of the map of live blocks: see books/map. */
typedef struct mli_shard {
    mli_u32 state;     /* NEW (no table yet), SHARED, STOPPED (no thread may enter the shard), or
                          the id of the thread that owns the shard */
    mli_u32 displaced; /* how many entries are not in their home bucket */
    mli_ptr table;     /* char *: the address and the code of its size: see mli_table_at */
    uint32_t size;          /* number of buckets in the table; calls read it here, and other
                               processes compute it from the code */
    mli_lock lock;          /* held to change the state or to replace the table */
    uint32_t stopped_state; /* the state before, which mli_shard_resume restores */
    mli_u32 refuse; /* how many more keys without room get no larger table */
} mli_shard;

/* A thread that the ledger starts. */
typedef struct mli_helper {
    mli_u32 state; /* one of MLI_HELPER_... */
    mli_u32 stop;  /* 1: the helper's thread must end */
    mli_os_event wake;
    mli_os_thread worker;
    mli_job job;
} mli_helper;

/* A physical device. The devices cpu, pinned and mapped share one, because all three use the memory
   of the machine. The capacity source is the function that tells how much memory the physical
   device has. The pressure page is memory that the ledgers of several processes share. */
typedef struct mli_phys {
    mli_lock lock;         /* guards all below but `sampler`, `sampler_reader` and `poller`, and the
                              bands of the devices at this phys */
    void *sampler;         /* &mli_self of the sampling thread, or NULL; under the callbacks lock */
    uint64_t sampler_reader; /* the number of the source that the sampler's thread asks: see
                                capacity_reader_numbers; guarded by the callbacks lock */
    memlord_device device; /* the device whose capacity the source is asked for */
    memlord_capacity sample;
    uint64_t sampled;      /* the time of the latest sample */
    uint64_t limit;        /* the limit in bytes; 0: none */
    double fraction;       /* the limit as a part of the capacity; 0: it was set in bytes */
    uint64_t ticket_bytes; /* bytes of open tickets that no alloc has taken yet */
    uint64_t in_flight;    /* bytes that calls with tickets are recording at this moment */
    uint64_t drawn;        /* the part of in_flight that is off its tickets already */
    struct mli_handle *closed_tickets;
    int failing;           /* 1: the latest request failed: memlord_alloc_retry or _failed */
    mli_u64 id;            /* a hash of the text of memlord_device_id_set; 0: none */
    uint64_t neighbours;   /* bytes that the neighbours held here when the page was last read */
    int neighbour_failing; /* 1: a neighbour finds no memory on this device */
    uint32_t neighbours_resting; /* how many other ledgers on the pressure page rest (run no
                                    collection callbacks for a while) on this device */
    uint64_t stalled;      /* the time, by mli_now, when the system last reported that tasks wait
                              for memory of the machine; 0: never */
    mli_helper poller;
    struct memlord *lord;
} mli_phys;

/* Units of own memory, as powers of two: a grain has 128 bytes, a region 32 KiB (base/memory). */
#define MLI_GRAIN_BITS 7
#define MLI_REGION_BITS 15
#define MLI_SIZE_CLASSES (MLI_REGION_BITS - MLI_GRAIN_BITS + 1)

/* The states of the modules. Only the module x touches its struct mli_x_state; other modules call
   functions of x. If a call reads the state on its fast path, the state lies in the ledger itself,
   and the type of the state is here. Otherwise that type is in the body of the module, and the
   ledger has a pointer to the state, so that the compiler lets no other module read it. A new
   module with state has a line in MLI_STATES, its struct mli_x_state in x.c, and a table
   mli_x_life in x.h and x.c, which embed/lives reads: see mli_life. */
struct mli_thread;
struct mli_map_state {
    mli_shard shards[1u << MLI_SHARD_BITS];
    mli_u32 buckets;       /* number of buckets of all tables together */
    mli_u64 mark;          /* the current mark, shifted to its place in a word2 */
    uint16_t type_of[256]; /* by dev; written before other threads can find the dev */
    mli_u32 dev_of[MLI_DIRECT_DEVICES + 1]; /* the dev of each device; 0: not seen yet; the last
                                               element stays 0 */
};
struct mli_threads_state {
    mli_u32 hooks;     /* bits MLI_HOOK_...: the extra work that calls on the ledger have to do */
    mli_u32 alert;     /* bits MLI_ALERT_...: the work for the end of a call */
    uint32_t dev_alerts[256]; /* the alerts that concern calls on each device, by dev; written
                                 before other threads can find the dev */
    mli_u32 next_id;   /* the id of the next thread record */
    mli_u32 allowance; /* how many threads there may be before the margins of bands (see
                          services/bands.h) must be widened for their unpublished bytes */
    uint32_t sweep_at; /* at so many records a sweep looks for ended threads */
    mli_ptr all;       /* mli_thread *: the first record of the list of all thread records */
    struct mli_thread *orphan; /* the record that threads without a record of their own share */
    mli_lock orphan_lock;      /* held by the thread that uses the orphan record */
    mli_ptr saver;     /* const mli_saver *; set by the first request for a report */
};
struct mli_stacks_state {
    mli_u32 depth;     /* the most frames that are kept of a stack; 0: no stacks are taken now */
    mli_u64 bytes;     /* mean bytes from one picked alloc to the next; 1: every alloc is picked */
    mli_u64 estimated; /* the last value of `bytes` that was above 1; 0: there was no such value */
    mli_u32 setting;   /* 1: a thread is in memlord_stacks_set */
    int begun;         /* 1: the seed is set, and the unwinder has run once; changes while `setting`
                          is 1, or while the ledger is made */
    uint64_t seed;     /* the seed of the samples of all threads */
    int repeatable;    /* 1: the host gave the seed */
    memlord_unwinder unwinder;
    mli_ptr calls;                    /* const mli_stack_calls *; NULL: no stacks were taken yet */
    mli_ptr tables;                   /* mli_stack_tables *; NULL: there is no stack yet */
    mli_vector frames, nodes, rows;   /* vectors whose records are numbered from 1 */
    mli_u32 frame_count, node_count, row_count; /* one more than the number of records in each
                                                   vector; the vectors grow under the cold lock */
    mli_u64 cut;                      /* how many stacks have at most one return address */
    mli_lock lock;                    /* held to set `tables`, and to set the frames of a row */
};
struct mli_tags_state {
    mli_vector births;    /* combinations of mark, scope and stream, numbered from 1 */
    uint32_t birth_count; /* number of combinations in `births`; guarded by the cold lock */
    mli_vector scopes;    /* a vector of mli_ptr to scopes, numbered from 1 */
    mli_u32 scope_count;  /* one more than the number of scopes */
    mli_u32 warned_tag;   /* 1: the first dropped tag was logged */
};
struct mli_counters_state {
    uint64_t batch;               /* bytes that a cell may hold back; 0: every call publishes */
    mli_vector rows[MLI_BOOKS];
    mli_u32 row_count[MLI_BOOKS]; /* one more than the number of rows, because row 0 means no row */
    mli_u64 lost[MLI_STAT_COUNT]; /* for each statistic: what could not be counted on any device */
    mli_u64 look_due;             /* from this time of mli_now on, a call that publishes a cell also
                                     checks whether a snapshot is due; 0: no call checks */
    mli_u64 looks;                /* how many times a cell was published while `batch` was 0 and
                                     look_due was set */
    mli_lock count_lock;          /* guards the counters of the orphan record */
    mli_u64 epoch;                /* how many resets there were */
    mli_u64 losses[MLI_LOSS_COUNT];
};
struct mli_devices_state {
    mli_ptr at[MEMLORD_MAX_DEVICES + 1];   /* mli_device_record * of each device, from dev 1 */
    mli_u32 watched_types; /* a bit for each device type on which a strategy can be in force */
    mli_u32 polling;       /* one of MLI_POLLING_...: which pollers run */
    mli_phys host_phys;    /* the physical device of cpu, pinned and mapped */
};
struct mli_memory_state {
    memlord_allocator allocator;
    size_t ledger;     /* bytes of the ledger and of the states that lie behind it */
    mli_u64 own_bytes; /* bytes that the ledger has from its allocator */
    mli_lock lock;
    struct mli_piece *pieces[MLI_SIZE_CLASSES]; /* the free ones, by log2 of their grains */
    struct mli_region *regions;
};
struct mli_events_state {
    mli_ptr ring; /* mli_ring *: the ring of events */
};
#define MLI_STATES(X)                                                                         \
    X(log) X(names) X(sites) X(anomalies) X(blocks) X(fences) X(accounts) X(limits) X(bands)  \
    X(room) X(scopes) X(joint) X(contexts) X(snapshots) X(neighbours) X(call_end) X(pollers)  \
    X(retry) X(saving)

struct memlord {
    struct mli_map_state map; /* first, so that a call finds a shard without an offset */

    /* These members are set when the ledger is made, and constant from then on. Any module may read
       them. */
    uint64_t generation; /* a number that no other ledger of the process has */
    uint32_t flags;      /* bits MEMLORD_FLAG_... */
    int arguments;       /* 1: reports contain the program's arguments: MEMLORD_ARGUMENTS=1 */
    int debug;           /* set by MEMLORD_DEBUG. 1: calls are logged; 2: calls are logged, and
                            memlord_destroy calls memlord_verify */
    memlord_clock clock;
    uint32_t stamps_are_ticks; /* 1: stamps are mli_ticks; 0: times of `clock` */
    uint64_t started, started_stamp, started_wall;
    /* Two functions of services/. The modules of calls/ and books/ call them by pointer, because
       they may not include the headers of services/. end_slow is mli_call_end_slow, which ends a
       call that found an alert. start_pollers is mli_pollers_start_missing, which starts the poller
       of a device, or with dev 0 all pollers that are missing. */
    void (*end_slow)(memlord *lord, struct mli_thread *t, uint32_t dev, int asks);
    void (*start_pollers)(memlord *lord, uint32_t dev);

    struct memlord *next, **back; /* the list of live ledgers; under the registry lock */

    struct mli_threads_state threads;
    struct mli_tags_state tags;
    struct mli_counters_state counters;
    struct mli_devices_state devices;
    struct mli_stacks_state stacks;
    struct mli_events_state events;
    struct mli_memory_state memory;
#define MLI_X(module) struct mli_##module##_state *module;
    MLI_STATES(MLI_X)
#undef MLI_X
    mli_u64 program_ended; /* when the program ended, by the ledger's clock; 0: it runs. Only the
                              interposer sets this: it looks up the names of places afterwards, and
                              the age of the ledger does not include that */
};

/* What a module does in the life of a ledger. The module x has its mli_x_life, which embed/lives
   reads. A member that the module does not need is 0. */
typedef struct mli_life {
    size_t size; /* of the state, if it follows struct memlord in memory; else 0 */
    size_t at;   /* offset of the ledger's pointer to the state */
    /* Initialises the state. Requires: the state is zeroed, and no other thread knows the
       ledger. */
    void (*init)(memlord *lord, const memlord_desc *desc);
    /* Does the rest of the initialisation, for which the ledger must be in the list of live
       ledgers. It may allocate memory. If it returns an error, the ledger is not made. */
    memlord_result (*open)(memlord *lord, const memlord_desc *desc);
    void (*stop)(memlord *lord);
    /* Takes the module's locks before a fork, or drops them after it. The modules take their locks
       in the order of embed/lives. */
    void (*lock)(memlord *lord, int take);
    /* Mends the state in a forked child. Requires: all locks are held, and no other thread
       exists. */
    void (*forked)(memlord *lord);
    /* Frees the memory of the state. The modules that come later in embed/lives free their memory
       before this one does. Requires: no other thread uses the ledger. */
    void (*free)(memlord *lord);
} mli_life;
#define MLI_LIFE_STATE(module) sizeof(struct mli_##module##_state), offsetof(memlord, module)

MLI_PRIVATE uint64_t mli_ledger_now(memlord *lord);
/* Returns the age of the ledger in ns. If lord->program_ended is not 0, returns the age that the
   ledger had when the program ended. */
MLI_PRIVATE uint64_t mli_ledger_age(memlord *lord);
/* Returns a stamp: the processor's counter if that is usable, else the time of the clock. */
static MLI_HOT uint64_t mli_stamp_now(memlord *lord) {
    return MLI_LIKELY(lord->stamps_are_ticks) ? mli_ticks() : mli_ledger_now(lord);
}
MLI_PRIVATE void mli_lock_set(mli_lock *lock, int take);

/* A slot for a hooked table: a table of the host's in which MemLord has put functions of its own.
   Each slot has its own, because no argument tells from which table the host called. A thread that
   hooks a table holds the registry lock. */
typedef struct mli_hooked {
    memlord_hooks *table; /* the host's table that is hooked now; NULL: none */
    memlord_hooks host;   /* the host's functions, which the slot's functions call; set once,
                             because the host may still have copies of the slot's functions after it
                             unhooks the table; free_fn NULL: the slot was never used */
    mli_u64 generation;   /* of the ledger in which the slot's functions record; 0: none */
    mli_u32 which;        /* bits MEMLORD_HOOK_... of those that record, and MLI_HOOK_COMPLETE */
} mli_hooked;
#define MLI_HOOKED 4
#define MLI_HOOK_COMPLETE 16u /* in `which`: each function that allocates also records */

enum { /* values of mli_process.started */
    MLI_START_NONE, /* no ledger was made yet */
    MLI_START_BUSY, /* a thread is in mli_process_start, perhaps in a malloc that calls MemLord */
    MLI_START_DONE  /* the exit key, the fork handlers and the interposer are set up */
};

/* The only state outside the ledgers that all threads share. All zeros are valid. */
typedef struct mli_process_state {
    mli_lock registry_lock; /* guards the list of ledgers, hooked tables and owners of records */
    mli_lock cold_lock;     /* guards the names, devices, sites, tags and tables of all ledgers */
    mli_lock pages_lock;    /* guards the memory that the os allocator maps; the innermost lock */
    struct mli_extent *extents;
    memlord *ledgers;
    struct mli_dict *growing; /* the table that stb_ds changes now; guarded by the cold lock */
    struct mli_cold *cold;    /* memory for the holder of the cold lock: see mli_cold_alloc */
    mli_ptr global;           /* memlord *: the ledger of memlord_global; NULL: not made yet */
    mli_u64 generation;       /* the generation of the ledger that was made last */
    mli_u64 ended;            /* how many ledgers were destroyed */
    mli_u32 started;          /* one of MLI_START_... */
    mli_ptr interposer;      /* const memlord_interposer *; NULL: there is none */
    mli_u32 at_exit;         /* 1: the exit handler of memlord_save_at_exit is installed */
    memlord *saving;         /* the ledger that the exit handler saves now; memlord_destroy waits
                                until it is saved; NULL: none; guarded by the registry lock */
    mli_u32 has_barrier;     /* 1: mli_barrier_all works; 0 for good once the system refuses it */
    mli_u32 stays_loaded;    /* 1: mli_module_keep has run, or runs now */
    mli_hooked hooked[MLI_HOOKED];
    mli_u64 pid;             /* the process id; not getpid in a child that ran no fork handler */
    mli_u32 exit_key_ready;  /* 1: exit_key is valid; not read before `started` is DONE */
    mli_u32 exit_key_users;  /* how many threads are setting their exit hook */
    mli_exit_key exit_key;
} mli_process_state;
MLI_VARIABLE(mli_process_state mli_process)

/* Walks all live ledgers. Requires: the registry lock. */
#define MLI_LEDGERS_EACH(lord) for (lord = mli_process.ledgers; lord; lord = lord->next)

/* A call of a logger, on the stack of the thread that is in it. */
typedef struct mli_logger_call {
    const struct mli_logger_call *outer; /* the call within which the thread made this one */
    uint64_t generation; /* generation of the ledger with this logger */
    uint32_t turn;       /* 0 or 1; a new logger flips the turn: see mli_log_state */
} mli_logger_call;

/* The current thread's record in one ledger. No two ledgers have the same generation, so the
   generation of a destroyed ledger never matches again. */
typedef struct mli_used {
    uint64_t generation;
    struct mli_thread *thread;
} mli_used;
#define MLI_USED 8

/* The state of the current thread. A parameter of a call does not belong here, but in its mli_call
   (books/threads). Only the thread itself reads and writes this state. Other threads may
   compare the address of this state, but may not read through it, because the system may free the
   state before the last call of the thread. That call then finds a new state of zeros. Zeros fit no
   ledger, because no ledger has the generation 0. */
typedef struct mli_self_state {
    uint64_t generation; /* of the ledger of `thread`, which is the one used last */
    struct mli_thread *thread;
    mli_used used[MLI_USED]; /* recently used ledgers, by generation modulo MLI_USED */
    uint64_t number;         /* the number of the thread (mli_thread_number); 0: not known yet */
    uint64_t found_generation; /* the generation that memlord_find was last asked for; 0: none */
    uint64_t found_ended;      /* mli_process.ended at the time of the latest memlord_find */
    memlord *found;            /* result of the latest memlord_find */
    uint32_t hooked;         /* 1: the thread has an exit hook, which runs when it ends */
    memlord *orphaned;       /* the ledger whose orphan lock the thread holds; NULL: none */
    uint32_t in_host_alloc;  /* above 0: the thread is busy: see mli_busy_begin */
    uint64_t fence_lord;     /* of the ledger whose fence functions the thread runs; 0: none */
    uint64_t try_lord;       /* of the ledger whose memlord_try_fn the thread runs; 0: none */
    uint32_t exited;         /* 1: the exit hook of the thread has run */
    uint32_t unwinding;      /* 1: the thread is in an unwinder */
    void *unwound;           /* the frame at which an unwinder by frame pointers begins, while the
                                thread is in an unwinder; NULL: not known */
    uint32_t is_helper;      /* 1: MemLord has started the thread, as an mli_helper */
    uintptr_t stack_from, stack_to; /* of the stack; both 0: not looked up; 0 and 1: not known */
    const mli_logger_call *logger_call; /* the innermost that the thread is in; NULL: none */
} mli_self_state;
MLI_VARIABLE(MEMLORD_THREAD_LOCAL mli_self_state mli_self)

#define MLI_API MEMLORD_API MLI_COLD /* for public functions off the hot path */

#endif
