/* Owns the thread records, the masks of hooks and alerts, and the ledger's own threads (helpers).
   May use base/memory and os/. Invariants: a record in use belongs to one thread; a free one keeps
   its counts and its shards for the next thread. Locks: registry; orphan, for the orphan record. */
#ifndef MLI_BOOKS_THREADS_H
#define MLI_BOOKS_THREADS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"

/* A call on the general path gets the record of its thread from mli_thread_get, and gives it back
   with mli_thread_put. embed/exit handles the end of a thread and a fork. One thread at a time
   starts or stops a helper: its state says so. No helper waits for another to end. */

#define MLI_NOBODY UINT64_MAX /* the owner of a record after its thread has gone */
#define MLI_THREAD_ID_FIRST 3    /* smaller states of a shard name no thread */
#define MLI_TICKETS_MAX 8        /* tickets that the allocs of a thread come off */
#define MLI_TAG_DEPTH_MAX 64

enum { /* mli_thread.special: the further work of the thread's calls. calls/fast serves the bits of
          MLI_SPECIAL_SERVED; any other bit sends a call to the general path. */
    MLI_SPECIAL_TAG = 1,         /* it has a tag */
    MLI_SPECIAL_ORPHAN = 2,      /* it is the orphan record: its cells are locked */
    MLI_SPECIAL_SITES = 4,       /* the ledger counts sites */
    MLI_SPECIAL_TRACE = 8,       /* the ledger logs every call */
    MLI_SPECIAL_NO_BARRIER = 16, /* the system has no barrier, so the thread enters by an exchange;
                                    never cleared */
    MLI_SPECIAL_TICKET = 32,     /* it has tickets to draw its allocs from */
    MLI_SPECIAL_SCOPE = 64,      /* it is or was in a scope or on a stream; an alloc outside of both
                                    clears the bit */
    MLI_SPECIAL_ACCOUNT = 128,   /* its blocks are charged to an account */
    MLI_SPECIAL_STACKS = 256,    /* its allocs may be sampled: see mli_stack_passes */
    MLI_SPECIAL_REDRAW = 512,    /* the rate of samples changed: its next alloc draws again */
    MLI_SPECIAL_PUBLISH = 1024,  /* a row of the thread is shared by more threads now: its next call
                                    publishes the cells that hold back too much */
    MLI_SPECIAL_CONTEXT = MLI_SPECIAL_TAG | MLI_SPECIAL_TICKET | MLI_SPECIAL_SCOPE |
                          MLI_SPECIAL_ACCOUNT, /* what its context asks for */
    MLI_SPECIAL_SERVED =
        MLI_SPECIAL_TAG | MLI_SPECIAL_SITES | MLI_SPECIAL_SCOPE | MLI_SPECIAL_STACKS
};

/* One entry of a thread's cache: the result of a look-up by a pointer. See books/sites. */
typedef struct mli_cache_entry {
    const void *key; /* NULL: vacant */
    void *value;     /* a cell, a kept name or a thread scope */
    uint64_t bits;   /* for a row: its bits in word2 */
    uint32_t salt;   /* the kind of entry, and the rest of the key */
} mli_cache_entry;
#define MLI_CACHE_MIN 32   /* homes of the first cache, which lies in the thread record */
#define MLI_CACHE_PATH 8   /* how many entries a look-up reads before it evicts one */

/* A context: the state, besides their arguments, that the calls of a thread depend on. A thread has
   one of its own, and memlord_context_swap exchanges contexts between threads and the host's
   fibres. This struct has the members that keep their place while contexts are exchanged. A ticket
   belongs to the context that reserved or adopted it, and names that context by its address. */
typedef struct mli_context {
    struct mli_span *spans; /* its first span, which it uses again; NULL: none yet */
    mli_ptr thread;         /* mli_thread *: the thread in it; NULL: none */
    struct mli_thread *home; /* the thread whose own context it is; NULL: it is a fibre's */
    uint32_t id;            /* differs for each context: see memlord_guard */
    memlord_ticket tickets[MLI_TICKETS_MAX];
    const char *tags[MLI_TAG_DEPTH_MAX]; /* the tags around the innermost */
} mli_context;

/* The part of a context that calls read. A thread record has the part of its present context by
   value. */
typedef struct mli_current {
    const char *tag;                 /* the innermost tag, a kept name; NULL: none */
    struct mli_span *span;           /* the span of the innermost scope; NULL: there is none */
    uint64_t stream;                 /* of its allocs; 0: none */
    uint64_t birth_mark, birth_bits; /* tags.birth_mark, and the birth bits of this scope and
                                        stream for it; birth_bits 0: not looked up */
    memlord_account account;         /* the account that its blocks are charged to; 0: none */
    memlord_device account_device;   /* of that account */
    uint32_t tag_depth;
    uint32_t open_tickets; /* the number of `tickets`; other threads may have closed or adopted some
                              of them */
    mli_context *context;
} mli_current;

/* The record of a thread in one ledger. */
typedef struct mli_thread {
    mli_ptr inside;         /* the shard it is inside; NULL: none. See books/map */
    uint32_t id;            /* 3, 4, 5 ...: the state of the shards it owns */
    mli_u32 special;        /* MLI_SPECIAL_...: the further work of a call */
    mli_u32 by_exchange;    /* 1: it has seen MLI_SPECIAL_NO_BARRIER, and enters by an exchange */
    mli_current now;        /* the context it is in */
    mli_cache_entry *cache; /* the cache: open addressing; the last entry stays vacant */
    uint32_t cache_mask;    /* homes of the cache less 1 */
    uint32_t cache_count;   /* entries in use: at most 3/8 of the homes */
    mli_ptr devices[MEMLORD_MAX_DEVICES + 1]; /* mli_cell *: of devices, by dev; NULL: none */
    mli_vector cells[MLI_BOOKS];              /* of sites and tags */
    struct {
        mli_ptr *at;
        size_t cap;
    } own_chunks[MLI_BOOKS];         /* the chunks for the thread itself, which reads them without
                                        an acquire and a header */
    mli_ptr next;                    /* all records of the ledger; push only */
    mli_u64 owner;                   /* its thread's number; 0: free, or the orphan record */
    struct mli_subbuf *subbuf;       /* the sub-buffer it writes events to; NULL: none yet */
    struct memlord *lord;
    mli_u64 detached, detached_bytes; /* how many blocks its reallocs took off the map, less those
                                         put back, and their bytes; modulo 2^64. See
                                         mli_detached_count */
    uint32_t other_dev;      /* a device that this call or an earlier one took bytes from, until
                                mli_call_end has looked at it; 0: none */
    int64_t stack_left;      /* bytes until its next sample; at most 0: the alloc is picked */
    uint64_t stack_random;   /* 0: it has not drawn yet */
    uint64_t stack_mean;     /* the mean with which stack_left was drawn; 0: none was drawn */
    uint64_t taken_key;      /* the key of the last block that it had picked */
    uint32_t taken_row, taken_type; /* taken_row 0: it has ended, or there was none */
    mli_context own;         /* its own context */
    mli_cache_entry cache_inline[MLI_CACHE_MIN + MLI_CACHE_PATH];
} mli_thread;

enum { /* mli_helper.state */
    MLI_HELPER_NONE,  /* it has no thread */
    MLI_HELPER_BUSY,  /* another thread starts, wakes or joins it */
    MLI_HELPER_RUNS,  /* its thread runs */
    MLI_HELPER_FAILED /* no thread could be started: memlord_gc_poll samples instead */
};

/* The function that writes a requested report, or what a recorder saves; `end` 1: at the end of the
   ledger, or at the recorder's stop. It is reached by a pointer, so that a program without reports
   need not link them. */
typedef struct mli_saver {
    void (*save)(struct memlord *lord, int end);
} mli_saver;

enum {                        /* memlord.threads.alert: work for the end of a call */
    MLI_ALERT_THREADS = 1, /* more threads than the margins allow for, or records to sweep */
    MLI_ALERT_DROPS = 2,   /* there are fences to drop */
    MLI_ALERT_WAITER = 4,  /* a thread waits for a free */
    MLI_ALERT_POLLER = 8,  /* a device is new, and all devices are to have pollers */
    MLI_ALERT_EVENTS = 16, /* the ledger records events; the end of a call has no work for this
                              bit */
    MLI_ALERT_SAVE = 32,   /* a report was requested */
    MLI_ALERT_PENDS = 64,  /* shifted by a device type: fences of that type are queued */
    MLI_ALERT_BANDS = 64 << MEMLORD_DEVICE_TYPE_COUNT /* a count, not a bit: one for each
                                                         near_threshold and check_requested */
};
#define MLI_ALERT_PENDS_ALL (MLI_ALERT_BANDS - MLI_ALERT_PENDS)

enum { /* memlord.threads.hooks: the bits that every thread has in `special` */
    MLI_HOOK_SITES = MLI_SPECIAL_SITES,
    MLI_HOOK_STACKS = MLI_SPECIAL_STACKS,
    MLI_HOOK_TRACE = MLI_SPECIAL_TRACE
};

/* mli_thread_first and mli_thread_next walk all thread records of a ledger. The acquire pairs with
   the exchange in mli_thread_start. */
static MLI_HOT mli_thread *mli_thread_first(const memlord *lord) {
    return (mli_thread *)mli_ptr_load_acquire(&lord->threads.all);
}
static MLI_HOT mli_thread *mli_thread_next(const mli_thread *t) {
    return (mli_thread *)mli_ptr_load(&t->next);
}

/* 1: the record is the orphan record. Threads that can have none of their own share it, under a
   lock: those past their exit hook, and those without memory for one. */
static MLI_HOT int mli_is_orphan(const memlord *lord, const mli_thread *t) {
    return t == lord->threads.orphan;
}

/* Sets or clears a bit of a thread's `special` mask. Its own thread, threads that lack a barrier
   and memlord_sites_enable may do so at the same time. */
MLI_PRIVATE void mli_special_set(mli_thread *t, uint32_t bit, int on);

/* Makes a thread enter by an exchange from its first call on, if the system has no barrier. Calls
   on the orphan record always do: several threads share it, and one thread's knowledge of the bit
   does not hold for the others. Requires: the registry lock; no other thread uses the record, but
   for the orphan's. The exchange and the load are seq_cst: see mli_barrier_threads. */
MLI_PRIVATE MLI_COLD void mli_thread_entry_choose(mli_thread *t);

/* Returns the record of the thread with a number; NULL: it has none. Requires: the number is not 0;
   a call on the ledger is in progress, or the caller holds the registry lock. The load is relaxed
   and pairs with nothing: a thread looks for the number that it stored itself, and others clear it
   only after its end. */
MLI_PRIVATE mli_thread *mli_thread_of(const memlord *lord, uint64_t number);
/* Returns the record of the calling thread; NULL: it has none. */
MLI_PRIVATE mli_thread *mli_thread_own(const memlord *lord);

/* Sets or clears a bit of the alert mask, which the end of every call reads. Returns 1 if that
   changes the mask. Seq_cst: see mli_call_end_slow. */
MLI_PRIVATE int mli_alert_set(memlord *lord, uint32_t bit, int on);

/* Returns those of some bits that are set in the alert mask. */
static MLI_HOT uint32_t mli_alert_on(const memlord *lord, uint32_t bits) {
    return mli_u32_load(&lord->threads.alert) & bits;
}
/* Returns those of some alerts that concern calls on a device. */
static MLI_HOT uint32_t mli_dev_alerts(const memlord *lord, uint32_t alert, uint32_t dev) {
    return alert & lord->threads.dev_alerts[dev];
}
/* Sets which alerts concern calls on a device: those of fences on devices of its type, and all
   others. Requires: the dev is not published yet. */
MLI_PRIVATE MLI_COLD void mli_dev_alerts_set(memlord *lord, uint32_t dev, int type);
/* Adds to the number of flags near_threshold and check_requested that are set. */
MLI_PRIVATE void mli_alert_bands_add(memlord *lord, uint32_t by);
/* Sets the number of these flags. Requires: no other thread changes the mask. */
MLI_PRIVATE MLI_COLD void mli_alert_bands_set(memlord *lord, uint32_t n);
/* Orders what the thread has stored before it against what it reads after it: seq_cst. */
MLI_PRIVATE void mli_alert_barrier(memlord *lord);

/* Returns those of some MLI_HOOK_... bits that are set. */
static MLI_HOT uint32_t mli_hook_on(const memlord *lord, uint32_t bits) {
    return mli_u32_load(&lord->threads.hooks) & bits;
}
/* Sets or clears a MLI_HOOK_... bit of the ledger and of all its threads. Takes the registry lock,
   so that no thread registers meanwhile. */
MLI_PRIVATE MLI_COLD void mli_hook_set(memlord *lord, uint32_t bit, int on);
/* Sets or clears a MLI_SPECIAL_... bit of all its threads, but not of those that register later. */
MLI_PRIVATE MLI_COLD void mli_special_set_all(memlord *lord, uint32_t bit, int on);

/* Returns the number of a thread record in reports, by its id; that of the orphan record is 1. */
MLI_PRIVATE uint32_t mli_record_number(uint32_t id);

/* Returns how many thread records the ledger has, the orphan record included. */
MLI_PRIVATE uint32_t mli_thread_count(memlord *lord);

/* Set and return the number of threads that the margins of bands allow for. A thread record above
   it raises an alert. */
MLI_PRIVATE void mli_threads_allow(memlord *lord, uint32_t threads);
MLI_PRIVATE uint32_t mli_threads_allowed(const memlord *lord);

/* Returns 1 if the number of records makes a sweep for dead owners worthwhile, or an owner is known
   to have died. Requires, as the next one: the registry lock. */
MLI_PRIVATE MLI_COLD int mli_threads_sweep_due(memlord *lord);
/* Ends a sweep that has found `living` owners: the next one is due at twice as many records. */
MLI_PRIVATE MLI_COLD void mli_threads_swept(memlord *lord, uint32_t living);

/* Sets the function that writes a requested report. */
MLI_PRIVATE MLI_COLD void mli_saver_set(memlord *lord, const mli_saver *saver);
/* Writes the last report of a ledger, if it was to save any. */
MLI_PRIVATE MLI_COLD void mli_saver_end(memlord *lord);

/* Sets the exit hook of the calling thread, with its number as the argument. Once the key is
   deleted, another library may get a key of the same number. The add and the load are seq_cst: see
   mli_process_end. */
MLI_PRIVATE void mli_thread_hook(uint64_t number);

/* Returns the calling thread's record; NULL: the call must pass through. Every call that got one
   ends with mli_thread_put. */
MLI_PRIVATE MLI_NOINLINE mli_thread *mli_thread_get(memlord *lord);
/* Ends a call that mli_thread_get began: gives back the orphan record. */
MLI_PRIVATE MLI_NOINLINE void mli_thread_put(memlord *lord, const mli_thread *t);

/* Writes a requested report, unless another thread does or the caller is inside the host's
   allocator. The request, which may come from a signal, is a bit; the thread that clears it serves
   it. The acquire pairs with the release that set the saver. */
MLI_PRIVATE MLI_COLD void mli_save_serve(memlord *lord);

/* Ends a call that records something but counts no bytes, and returns `r`. Requires: the caller
   holds no lock and is not inside. */
MLI_PRIVATE MLI_NOINLINE memlord_result mli_call_end_uncounted(memlord *lord, memlord_result r);

/* Keeps the library of this code loaded from now on: a thread is to run it, or a ledger was made
   that is never destroyed. Requires: no lock held. */
MLI_PRIVATE MLI_COLD void mli_stay_loaded(void);

/* Starts a helper that has no thread, unless *wish is `none` by now, because it is no longer
   wanted. 0: it runs, another thread starts or stops it, or it is not wanted. 1: no thread could be
   started, and its state is now `failed`. -1: its state was MLI_HELPER_FAILED before. */
MLI_PRIVATE MLI_COLD int mli_helper_start(mli_helper *h, mli_u32 *wish, uint32_t none,
                                          uint32_t failed, void (*run)(void *), void *user);

/* Stops a helper and joins its thread. Requires: the caller is not that thread. */
MLI_PRIVATE MLI_COLD void mli_helper_stop(mli_helper *h);

/* Waits for `ms`, or until the helper is woken. 1: go on; 0: the helper must end. The time counts
   from now: after a SIGSTOP the helper does not catch up on missed rounds. */
MLI_PRIVATE MLI_COLD int mli_helper_wait(mli_helper *h, uint32_t ms);

/* Returns 1 if the ledger may start threads of its own. */
MLI_PRIVATE int mli_polling_enabled(memlord *lord);

/* Makes the orphan record of a new ledger; 0: no memory. */
MLI_PRIVATE MLI_COLD int mli_orphan_new(memlord *lord);
/* Starts the orphan record. Requires: the registry lock. */
MLI_PRIVATE MLI_COLD void mli_orphan_start(memlord *lord);
#if !MLI_WINDOWS /* it has no fork */
/* Takes or drops the orphan lock for a fork. */
MLI_PRIVATE MLI_COLD void mli_orphan_lock_set(memlord *lord, int take);
#endif

MLI_PRIVATE MLI_COLD void mli_threads_life(mli_life *life);

#endif
