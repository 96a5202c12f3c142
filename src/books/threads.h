/* Owns the thread records, the masks of hooks and alerts, and the helpers. A hook is a bit that
   gives every call further work; an alert gives the end of a call some work. Invariants: a record
   in use belongs to one thread; a free record keeps its counts and its shards for the next thread.
   Locks: the registry lock; the orphan lock, for the orphan record. */
#ifndef MLI_BOOKS_THREADS_H
#define MLI_BOOKS_THREADS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/unwind.h"
#include "base/atomics.h"
#include "base/ledger.h"

/* A call that the fast path (calls/fast) does not serve takes the general path. It gets the record
   of its thread from mli_thread_get, and gives it back with mli_thread_put. embed/exit handles the
   end of a thread and a fork. A helper is a thread of the ledger's own. While a thread starts or
   stops a helper, the helper's `state` is MLI_HELPER_BUSY, so that no other thread starts or stops
   it meanwhile. No helper waits for the end of another helper. */

#define MLI_NOBODY UINT64_MAX /* the owner of a record after its thread has gone */
#define MLI_THREAD_ID_FIRST 3    /* a shard's state below this is not the id of a thread */
#define MLI_TICKETS_MAX 8        /* the most tickets that a context has at a time */
#define MLI_TAG_DEPTH_MAX 64
#define MLI_SIDES_MAX 16
#define MLI_DEV_ALL UINT32_MAX   /* every device: see mli_thread.other_dev */

enum { /* mli_thread.special: the further work of the thread's calls. The fast path does the work of
          the bits in MLI_SPECIAL_SERVED; any other sends a call to the general path. */
    MLI_SPECIAL_TAG = 1,         /* the thread is in a tag */
    MLI_SPECIAL_ORPHAN = 2,      /* the record is the orphan record, whose cells are locked */
    MLI_SPECIAL_SITES = 4,       /* the ledger counts sites */
    MLI_SPECIAL_TRACE = 8,       /* the ledger logs every call */
    MLI_SPECIAL_NO_BARRIER = 16, /* the thread enters shards by an exchange: the system refuses
                                    mli_barrier_all, or this is the orphan record; never cleared */
    MLI_SPECIAL_TICKET = 32,     /* the thread has tickets: its allocs may use the bytes of these */
    MLI_SPECIAL_SCOPE = 64,      /* the thread is or was in a scope or on a stream; an alloc outside
                                    of both clears the bit */
    MLI_SPECIAL_ACCOUNT = 128,   /* the thread's blocks are charged to an account */
    MLI_SPECIAL_STACKS = 256,    /* the thread's allocs may be sampled: see mli_stack_passes */
    MLI_SPECIAL_REDRAW = 512,    /* the rate changed: the next alloc draws a new distance */
    MLI_SPECIAL_PUBLISH = 1024,  /* another thread has begun to count on a row, or has reset a
                                    peak. So the thread's next call publishes the cells that have
                                    too many unpublished bytes: it adds these bytes to the rows */
    MLI_SPECIAL_CONTEXT = MLI_SPECIAL_TAG | MLI_SPECIAL_TICKET | MLI_SPECIAL_SCOPE |
                          MLI_SPECIAL_ACCOUNT, /* the bits that depend on the thread's context */
    MLI_SPECIAL_SERVED = MLI_SPECIAL_TAG | MLI_SPECIAL_SITES | MLI_SPECIAL_SCOPE |
                         MLI_SPECIAL_STACKS | MLI_SPECIAL_ACCOUNT
};

/* One entry of a thread's cache: the result of a look-up by a pointer. See books/tags. */
typedef struct mli_cache_entry {
    const void *key; /* NULL if the entry is vacant */
    void *value;     /* a cell, the ledger's copy of a tag, a site or a mli_thread_scope */
    uint64_t bits;   /* for a cell: the bits of a map entry's word2 that name its row */
    uint32_t salt;   /* the kind of entry, and the rest of the key */
} mli_cache_entry;
#define MLI_CACHE_MIN 32   /* the number of homes in the first cache, which lies in the thread
                              record; a home is an entry at which a look-up may begin */
#define MLI_CACHE_PATH 8   /* how many entries mli_cache_set reads before it evicts one */

/* A context. A thread has one of its own, and memlord_context_swap exchanges contexts between
   threads and the host's fibres. This struct has the members that stay where they are meanwhile. A
   ticket belongs to the context that reserved or adopted it, and names that context by its
   address. */
typedef struct mli_context {
    struct mli_span *spans; /* the span of its outermost scope; NULL until it is made; stays for the
                               next outermost scope */
    mli_ptr thread;         /* mli_thread *: the thread that is in the context, or NULL */
    struct mli_thread *home; /* the thread whose own context this is; NULL: a fibre's */
    uint32_t id;            /* no other context has this id: see memlord_guard */
    memlord_ticket tickets[MLI_TICKETS_MAX];
    const char *tags[MLI_TAG_DEPTH_MAX]; /* the tags around the innermost open tag */
} mli_context;

/* The part of a context that every recording call reads, in the record of its thread. */
typedef struct mli_current {
    const char *tag;                 /* the ledger's copy of the innermost tag, or NULL */
    struct mli_span *span;           /* the span (books/spans) of the innermost scope, or NULL */
    uint64_t stream;                 /* the stream of the context's allocs; 0 means none */
    uint64_t birth_bits;             /* for the word2 of a new block: the scope, this stream and the
                                        mark birth_mark; 0 until they are looked up */
    uint64_t birth_mark;             /* the mark of birth_bits, as mli_mark_bits returns it */
    memlord_account account;         /* the account that blocks are charged to; 0 means none */
    memlord_device account_device;   /* the device of `account` */
    uint32_t tag_depth;
    uint32_t open_tickets; /* how many of `tickets` are set; others may have closed some of them */
    mli_context *context;
} mli_current;

/* A block that a realloc of this thread has taken off the map, until the realloc ends. The process
   may be killed meanwhile, and a reader of its memory finds the block here. If the map has the same
   key, the slot does not count. The key is stored last, by a release. */
#define MLI_SLOTS 4
typedef struct mli_slot {
    mli_u64 key;          /* 0: the slot is vacant */
    uint64_t word1, word2; /* of the entry */
    double scale;         /* the block's sampled stack: see mli_pick */
    uint32_t row;
} mli_slot;

/* What the debug line (MEMLORD_DEBUG) of a call says besides the arguments of the call. */
typedef struct mli_debug_note {
    uint64_t blocks, bytes; /* blocks that a call with n storages began or ended, and their bytes */
    uint64_t implicit, implicit_bytes; /* blocks that ended for a new one there, and their bytes */
    uint64_t unknown;           /* frees of storages that the map does not have */
    memlord_device from_device; /* the device before a move */
    uint64_t from;              /* the storage before a move; 0: there was no move */
} mli_debug_note;

/* The bytes that an alloc may draw from tickets. They are in flight until the alloc is recorded.
   Those that come off tickets of the account that the block is charged to come off when it is
   charged, so that the account never counts them twice. */
typedef struct mli_ticket_draw {
    mli_phys *phys; /* the phys of the tickets; NULL if the alloc draws on none */
    uint64_t bytes;
    memlord_ticket named; /* the only ticket that it draws on; 0: all of the thread */
    uint64_t drawn;       /* the part of `bytes` that has come off tickets already */
} mli_ticket_draw;

/* A call on the general path (calls/record): what its steps tell each other. It is valid until it
   runs code of the host, such as a logger, a fence or mli_call_end, because that code may make the
   next call of this thread. What is needed later is copied first. Calls of the ledger's allocator
   have no mli_call, and mli_stack_unwind keeps this one from those of an unwinder. */
typedef struct mli_call {
    struct mli_thread *t;     /* the record in which the call counts */
    uint32_t dev;             /* the number of the block's device */
    const memlord_site *site; /* the site given to the call; NULL: none */
    void *caller;             /* the return address of the public function; NULL: not known */
    void *frame;              /* the frame of that function; NULL: not known */
    void *entered;            /* the return address of memlord_alloc, if it may lead to this call;
                                 NULL: not noted, see MLI_NOTE_ENTRY */
    mli_ticket_draw draw;     /* the part of the call's bytes that may come off tickets */
    struct {                  /* the stack of the block that the call begins: see mli_pick */
        double scale;
        struct mli_picks *part; /* the part of the table of picked blocks that has room for it */
        uint64_t had;         /* the bytes that the block had before the call */
        uint32_t row;         /* 0: the block is not picked */
        uint32_t again;       /* 1: the call resizes the block, so the stack counts no new alloc */
        uint32_t kept;        /* 1: the block keeps the stack that it had, and it is not the
                                 thread's last picked block, so that one stays: see taken_key */
    } pick;
    mli_debug_note note;
} mli_call;

/* A row of a tag or a site, and the thread's cell for it. */
typedef struct mli_latest_row {
    const void *key;       /* the tag or the site; NULL: none */
    struct mli_cell *cell;
    uint64_t bits;         /* the bits of word2 that name the row */
} mli_latest_row;

/* The record of a thread in one ledger. */
typedef struct mli_thread {
    mli_ptr inside;         /* mli_shard *: the shard that the thread is inside, or NULL */
    uint32_t id;            /* from 3 on; also the state of the shards that the thread owns */
    mli_u32 special;        /* MLI_SPECIAL_...: the further work of the thread's calls */
    mli_u32 by_exchange;    /* 1: it has seen MLI_SPECIAL_NO_BARRIER, and enters by an exchange */
    struct {                /* the device that the thread's last fast call named */
        uint32_t word;      /* the device: see mli_device_word */
        uint32_t dev;
        uint64_t upper;     /* word1 of a block of 0 bytes with one reference on the device */
        struct mli_cell *cell; /* the thread's cell for the device; NULL: there was no such call */
        mli_latest_row tag, site; /* of the last alloc on the device that had one */
        mli_latest_row here; /* the site of the last free on the device that had one */
    } latest;
    mli_current now;        /* the part of the present context that every recording call reads */
    mli_cache_entry *cache; /* a hash table with open addressing; its last entry stays vacant */
    uint32_t cache_mask;    /* the number of homes of the cache, less 1 */
    uint32_t cache_count;   /* how many entries are in use: at most 3/8 of the homes */
    mli_ptr devices[MEMLORD_MAX_DEVICES + 1]; /* mli_cell *, by dev, or NULL */
    mli_vector cells[MLI_BOOKS];              /* the cells of sites and tags */
    struct {
        mli_ptr *at;
        size_t cap;
    } own_chunks[MLI_BOOKS];         /* of `cells`; the thread itself needs no acquire */
    mli_ptr next;                    /* mli_thread *: the record that was made before this one */
    mli_u64 owner;                   /* the number of the thread that has the record; 0 if the
                                        record is free, or is the orphan record */
    struct mli_subbuf *subbuf;       /* the sub-buffer that the thread writes events to, or NULL */
    struct memlord *lord;
    mli_u64 detached;        /* how many blocks the thread detached (took off the map to resize or
                                move them), less those that it put back or ended; modulo 2^64 */
    mli_u64 detached_bytes;  /* the bytes of these blocks; modulo 2^64 */
    mli_slot slots[MLI_SLOTS]; /* of these blocks, those of the thread's open reallocs */
    struct mli_side_record *sides[MLI_SIDES_MAX]; /* side records of blocks that the thread has
                                freed, for its next blocks with an account */
    uint32_t side_count;     /* how many there are; the records are all zeros */
    uint32_t other_dev;      /* a device on which this call or an earlier one ended a block; 0 means
                                none; MLI_DEV_ALL means every device, because the thread published
                                cells of several devices. The next mli_call_end that finds an alert
                                handles this device, too, and sets other_dev to 0 */
    int64_t stack_left;      /* the bytes until the next sample; at 0 or less the alloc is picked */
    uint64_t stack_random;   /* the state of the thread's random numbers; 0 until the first draw */
    uint64_t stack_mean;     /* the mean with which stack_left was drawn; 0 until the first draw */
    uint64_t taken_key;      /* the key of the thread's last picked block (see books/stacks) */
    uint32_t taken_row;      /* the row of its stack; 0: the block has ended, or there is none */
    uint32_t taken_type;     /* the device type of this block */
    mli_call call;           /* the latest call on the general path; unused in the orphan record */
    mli_context own;         /* the thread's own context */
    mli_cache_entry cache_inline[MLI_CACHE_MIN + MLI_CACHE_PATH];
} mli_thread;

enum { /* mli_helper.state */
    MLI_HELPER_NONE,  /* the helper does not run */
    MLI_HELPER_BUSY,  /* some thread starts or stops the helper */
    MLI_HELPER_RUNS,  /* the helper runs */
    MLI_HELPER_FAILED /* the helper could not start; memlord_gc_poll does its work instead */
};

/* The function that writes a requested report, or saves what a recorder (services/snapshots)
   records. `end` is 1 if the ledger ends or the recorder stops. Calls reach the function by a
   pointer, so that a program without reports need not link the function. */
typedef struct mli_saver {
    void (*save)(struct memlord *lord, int end);
} mli_saver;

enum {                        /* memlord.threads.alert: the work that the end of a call has to do */
    MLI_ALERT_THREADS = 1, /* there are more threads than the margins of bands (services/bands)
                              allow for, or records whose thread has ended */
    MLI_ALERT_DROPS = 2,   /* the `drop` of some fences is to be called: see books/fences */
    MLI_ALERT_WAITER = 4,  /* a thread in memlord_alloc_retry waits for a free */
    MLI_ALERT_POLLER = 8,  /* helpers are to be started, for a new device or in a forked child */
    MLI_ALERT_EVENTS = 16, /* the ledger records events; no work for the end of a call */
    MLI_ALERT_SAVE = 32,   /* a report was requested */
    MLI_ALERT_FORGET = 64, /* the ledger keeps keys of dropped allocs, and an alloc removes its own
                              key from them; the end of a call has no work for this bit */
    MLI_ALERT_PENDS = 128, /* shifted left by a device type: fences of that type are queued */
    MLI_ALERT_BANDS = 128 << MEMLORD_DEVICE_TYPE_COUNT /* this bit and those above it hold a
                                                         number: how many of the flags
                                                         near_threshold and check_requested
                                                         (mli_watch) are set */
};
#define MLI_ALERT_PENDS_ALL (MLI_ALERT_BANDS - MLI_ALERT_PENDS)

enum { /* memlord.threads.hooks: the bits that the ledger sets in `special` of every thread */
    MLI_HOOK_SITES = MLI_SPECIAL_SITES,
    MLI_HOOK_STACKS = MLI_SPECIAL_STACKS,
    MLI_HOOK_TRACE = MLI_SPECIAL_TRACE
};

/* Returns the record that was made last; mli_thread_next returns the one made before. The acquire
   load pairs with the exchange in mli_thread_start. */
static MLI_HOT mli_thread *mli_thread_first(const memlord *lord) {
    return (mli_thread *)mli_ptr_load_acquire(&lord->threads.all);
}
static MLI_HOT mli_thread *mli_thread_next(const mli_thread *t) {
    return (mli_thread *)mli_ptr_load(&t->next);
}

/* Returns 1 if the record is the orphan record, which threads past their exit hook, and those that
   found no memory for a record, share under a lock. */
static MLI_HOT int mli_is_orphan(const memlord *lord, const mli_thread *t) {
    return t == lord->threads.orphan;
}

/* Gives the block in a slot the key under which the caller puts it on the map next, or 0 if the
   realloc ends. `number` has the id of the slot's thread and the place among its slots; 0 is no
   slot. Any thread may end a realloc. Requires: to end it, the caller is inside a shard. */
MLI_PRIVATE void mli_slot_move(const memlord *lord, uint32_t number, uint64_t key);

/* Sets or clears a bit of a thread's `special` mask. Several threads may do so at the same time. */
MLI_PRIVATE void mli_special_set(mli_thread *t, uint32_t bit, int on);

/* Makes a thread enter shards by an exchange from its first call on, if the system has no barrier.
   Those that share the orphan record always do, because it cannot tell which of them have seen
   MLI_SPECIAL_NO_BARRIER. Exchanges `by_exchange` and then loads `has_barrier`, both seq_cst: see
   mli_barrier_threads. Requires: the caller holds the registry lock; no other thread uses the
   record, unless it is the orphan record. */
MLI_PRIVATE MLI_COLD void mli_thread_entry_choose(mli_thread *t);

/* Returns the record of the thread `number`, or NULL if that thread has no record. The load is
   relaxed and pairs with no store, because a thread looks for the number that it stored itself, and
   other threads clear that number only after the end of that thread. Requires: the number is not 0;
   a call on the ledger is in progress, or the caller holds the registry lock. */
MLI_PRIVATE mli_thread *mli_thread_of(const memlord *lord, uint64_t number);
/* Returns the record of the calling thread, or NULL if it has none. */
MLI_PRIVATE mli_thread *mli_thread_own(const memlord *lord);

/* Sets or clears a bit of the alert mask, which the end of every call reads. Returns 1 if that
   changes the mask. The order is seq_cst: see mli_call_end_slow. */
MLI_PRIVATE int mli_alert_set(memlord *lord, uint32_t bit, int on);

/* Returns those of the bits `bits` that are set in the alert mask. */
static MLI_HOT uint32_t mli_alert_on(const memlord *lord, uint32_t bits) {
    return mli_u32_load(&lord->threads.alert) & bits;
}
/* Returns those bits of `alert` that concern calls on a device. */
static MLI_HOT uint32_t mli_dev_alerts(const memlord *lord, uint32_t alert, uint32_t dev) {
    return alert & lord->threads.dev_alerts[dev];
}
/* Returns 1 if the ledger's mask `alert` has a reason for which a call on this device does not end
   on the fast way. */
static MLI_HOT int mli_alerted(const memlord *lord, uint32_t dev) {
    uint32_t alert;
    mli_compiler_barrier(); /* the load stays behind the counts: see mli_barrier_threads */
    alert = mli_alert_on(lord, UINT32_MAX);
    return alert && mli_dev_alerts(lord, alert, dev);
}
/* Sets which alerts concern calls on a device of type `type`: all alerts except MLI_ALERT_PENDS of
   the other types. Requires: no other thread knows the dev yet. */
MLI_PRIVATE MLI_COLD void mli_dev_alerts_set(memlord *lord, uint32_t dev, int type);
/* Adds to the number of set flags near_threshold and check_requested (mli_watch). */
MLI_PRIVATE void mli_alert_bands_add(memlord *lord, uint32_t by);
/* Sets the number in the alert mask: how many flags near_threshold and check_requested (mli_watch)
   are set. Requires: no other thread changes the mask. */
MLI_PRIVATE MLI_COLD void mli_alert_bands_set(memlord *lord, uint32_t n);
/* Orders the thread's stores before this call against its later loads, by a seq_cst addition. */
MLI_PRIVATE void mli_alert_barrier(memlord *lord);

/* Returns those of the MLI_HOOK_... bits `bits` that are set. */
static MLI_HOT uint32_t mli_hook_on(const memlord *lord, uint32_t bits) {
    return mli_u32_load(&lord->threads.hooks) & bits;
}
/* Sets or clears a MLI_HOOK_... bit of the ledger and of all its threads. Takes the registry lock,
   so that no thread registers meanwhile. */
MLI_PRIVATE MLI_COLD void mli_hook_set(memlord *lord, uint32_t bit, int on);
/* Sets or clears a MLI_SPECIAL_... bit of all threads that have registered. */
MLI_PRIVATE MLI_COLD void mli_special_set_all(memlord *lord, uint32_t bit, int on);

/* Returns the number of the record `id` in reports; 1 for the orphan record. */
MLI_PRIVATE uint32_t mli_record_number(uint32_t id);

/* Returns how many thread records the ledger has, the orphan record included. */
MLI_PRIVATE uint32_t mli_thread_count(memlord *lord);

/* Sets the number of threads for whose unpublished bytes the thresholds of bands have a margin. A
   record beyond it raises an alert. */
MLI_PRIVATE void mli_threads_allow(memlord *lord, uint32_t threads);
MLI_PRIVATE uint32_t mli_threads_allowed(const memlord *lord);

/* Returns 1 if a sweep is due: there are many records, or a thread with a record is known to have
   ended. Requires: the caller holds the registry lock. */
MLI_PRIVATE MLI_COLD int mli_threads_sweep_due(memlord *lord);
/* Ends a sweep that has found `living` threads with records. The next sweep is due at twice as many
   records, or at MLI_SWEEP_MIN if that is more. Requires: the caller holds the registry lock. */
MLI_PRIVATE MLI_COLD void mli_threads_swept(memlord *lord, uint32_t living);

/* Sets the function that writes a requested report. */
MLI_PRIVATE MLI_COLD void mli_saver_set(memlord *lord, const mli_saver *saver);
/* Writes the last report of a ledger, if a report was requested, or is to be written at exit. */
MLI_PRIVATE MLI_COLD void mli_saver_end(memlord *lord);

/* Sets the exit hook of the calling thread: stores `number`, the thread's number, under the exit
   key. This is the thread-local key whose destructor is the hook. The addition to exit_key_users
   and the load of exit_key_ready are seq_cst, because another library may get the same key once
   MemLord has deleted it: see mli_process_end. */
MLI_PRIVATE void mli_thread_hook(uint64_t number);

/* Returns the record of the calling thread, or NULL if the ledger's own allocator makes the call. A
   call that got a record ends with mli_thread_put. */
MLI_PRIVATE MLI_NOINLINE mli_thread *mli_thread_get(memlord *lord);
/* Ends a call that mli_thread_get began. If `t` is the orphan record, drops the orphan lock. */
MLI_PRIVATE MLI_NOINLINE void mli_thread_put(memlord *lord, const mli_thread *t);

/* Begins a call at `site` in a record of mli_thread_get, and returns it: that of the record or, for
   the orphan record, which others use whenever the ledger allocates, `own`. */
MLI_PRIVATE mli_call *mli_call_of(memlord *lord, mli_thread *t, mli_call *own,
                                  const memlord_site *site);
/* Begins a call in the record of the calling thread. Returns NULL if `lord` is NULL or the ledger's
   own allocator makes the call, which then records nothing. A public function that may sample a
   stack passes MLI_CALLED_FROM: its return address and its frame. */
#define MLI_CALLED_FROM MLI_RETURN_ADDRESS(), MLI_FRAME_ADDRESS()
MLI_PRIVATE MLI_NOINLINE mli_call *mli_call_get(memlord *lord, mli_call *own,
                                                const memlord_site *site, void *caller,
                                                void *frame);

/* Writes a requested report, unless another thread does so or the ledger's own allocator makes the
   call. A request is a bit (MLI_ALERT_SAVE), because it may come from a signal; the thread that
   clears it writes. The acquire load pairs with the release store that set the saver. */
MLI_PRIVATE MLI_COLD void mli_save_serve(memlord *lord);

/* Ends a call that records something but counts no bytes, and returns `r`. Requires: the caller
   holds no lock and is not inside a shard. */
MLI_PRIVATE MLI_NOINLINE memlord_result mli_call_end_uncounted(memlord *lord, memlord_result r);

/* Makes the library with this code stay loaded from now on, because a thread will run the code, or
   because a ledger was made that is never destroyed. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD void mli_stay_loaded(void);

/* Starts the thread of a helper. Does nothing if *wish is `none` by now, which means that the
   helper is no longer wanted. Returns 0 if the helper runs, if another thread starts or stops it,
   or if it is not wanted. If no thread could be started, sets the helper's state to `failed` and
   returns 1. Returns -1 if the state was MLI_HELPER_FAILED before. */
MLI_PRIVATE MLI_COLD int mli_helper_start(mli_helper *h, mli_u32 *wish, uint32_t none,
                                          uint32_t failed, void (*run)(void *), void *user);

/* Stops a helper and joins its thread. Requires: the caller is not that thread. */
MLI_PRIVATE MLI_COLD void mli_helper_stop(mli_helper *h);

/* Waits for `ms` milliseconds, or until the helper is woken. Returns 0 if it must end, else 1. The
   time counts from now, so that after a SIGSTOP the helper does not catch up. */
MLI_PRIVATE MLI_COLD int mli_helper_wait(mli_helper *h, uint32_t ms);

/* Returns 1 if the ledger may start threads of its own. */
MLI_PRIVATE int mli_polling_enabled(memlord *lord);

/* Makes the orphan record of a new ledger. Returns 0 if there is no memory. */
MLI_PRIVATE MLI_COLD int mli_orphan_new(memlord *lord);
/* Adds the orphan record to the list of records. Requires: the caller holds the registry lock. */
MLI_PRIVATE MLI_COLD void mli_orphan_start(memlord *lord);
#if !MLI_WINDOWS /* Windows has no fork */
/* Takes or drops the orphan lock for a fork. */
MLI_PRIVATE MLI_COLD void mli_orphan_lock_set(memlord *lord, int take);
#endif

MLI_TABLE(const mli_life mli_threads_life)

#endif
