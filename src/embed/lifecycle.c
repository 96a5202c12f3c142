#include "embed/lifecycle.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/system.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/log.h"
#include "base/memory.h"
#include "books/threads.h"
#include "books/fences.h"
#include "books/stacks.h"
#include "books/events.h"
#include "services/room.h"
#include "services/snapshots.h"
#include "embed/exit.h"
#include "embed/leaks.h"
#include "embed/lives.h"

/* Reads a variable of the environment. The text is "" if the variable is not set or is too long, or
   if the ledger ignores the environment. */
static MLI_COLD void mli_ledger_env(const memlord_desc *desc, const char *name, char *text,
                                    size_t cap) {
    if ((desc->flags & MEMLORD_FLAG_NO_ENV) || mli_env_read(name, text, cap) <= 0) *text = 0;
}
/* Sets the members of a new ledger that belong to no module. */
static MLI_COLD void mli_ledger_configure(memlord *lord, const memlord_desc *desc) {
    char text[128];
    lord->flags = desc->flags;
    lord->clock = desc->clock;
    lord->stamps_are_ticks = !lord->clock.fn && mli_ticks_steady();
    lord->started = mli_ledger_now(lord);
    lord->started_stamp = mli_stamp_now(lord);
    lord->started_wall = mli_wall_now();
    mli_ledger_env(desc, "MEMLORD_DEBUG", text, sizeof text);
    if (*text && strcmp(text, "0")) lord->debug = strcmp(text, "2") ? 1 : 2;
    mli_ledger_env(desc, "MEMLORD_ARGUMENTS", text, sizeof text);
    lord->arguments = !strcmp(text, "1");
}

/* Allocates and configures a ledger that is not yet registered, or returns NULL. */
static MLI_COLD memlord *mli_ledger_alloc(const memlord_desc *desc,
                                          const memlord_allocator *allocator) {
    memlord *lord = mli_ledger_new(allocator, mli_lives_size());
    if (!lord) return NULL;
    mli_lock_rank(&mli_process.registry_lock, MLI_RANK_REGISTRY);
    mli_lock_rank(&mli_process.cold_lock, MLI_RANK_COLD);
    mli_lock_rank(&mli_process.pages_lock, MLI_RANK_PAGES);
    mli_ledger_configure(lord, desc);
    mli_lives_init(lord, desc);
    if (mli_orphan_new(lord)) return lord;
    mli_ledger_delete(lord);
    return NULL;
}

/* Registers a ledger, so that fork, the exit hook and memlord_destroy find it. Gives it a
   generation, a number that no other ledger of the process has. */
static MLI_COLD void mli_ledger_register(memlord *lord) {
    mli_lock_take(&mli_process.registry_lock);
    lord->generation = mli_u64_add(&mli_process.generation, 1) + 1;
    mli_orphan_start(lord);
    lord->next = mli_process.ledgers;
    lord->back = &mli_process.ledgers;
    if (lord->next) lord->next->back = &lord->next;
    mli_process.ledgers = lord;
    mli_lock_drop(&mli_process.registry_lock);
}

/* Takes a ledger off the registry, once no other thread saves it at the program's end. */
static MLI_COLD void mli_ledger_unregister(memlord *lord) {
    unsigned spins = 0;
    mli_lock_take(&mli_process.registry_lock);
    while (mli_process.saving == lord) {
        mli_lock_drop(&mli_process.registry_lock);
        mli_spin_wait(&spins);
        mli_lock_take(&mli_process.registry_lock);
    }
    *lord->back = lord->next;
    if (lord->next) lord->next->back = lord->back;
    lord->back = NULL;
    (void)mli_u64_add(&mli_process.ended, 1);
    mli_lock_drop(&mli_process.registry_lock);
    if (mli_self.generation == lord->generation) mli_self.generation = 0;
}

/* Claims the process for its first ledger. The thread for which this returns 1 then calls
   mli_process_start; others wait in mli_process_started. No lock is held meanwhile: functions of
   the system (pthread_atfork, the search for a symbol) may call a malloc that calls MemLord, finds
   the process claimed, and returns without recording. */
static MLI_COLD int mli_process_claim(void) {
    MLI_REQUIRE(mli_none_held());
    uint32_t seen = MLI_START_NONE;
    if (mli_u32_load(&mli_process.started)) return 0;
    mli_u64_store(&mli_process.pid, mli_pid()); /* before the state is BUSY: see mli_thread_ready */
    return mli_u32_cas(&mli_process.started, &seen, MLI_START_BUSY);
}
/* Prepares the process for its first ledger, after mli_process_claim has returned 1. */
static MLI_COLD void mli_process_start(void) {
    const uint64_t generation = mli_busy_begin();
    mli_hooks_install();
    mli_busy_end(generation);
    mli_u32_store_release(&mli_process.started, MLI_START_DONE); /* pairs with
                                                                    mli_process_started */
}

/* Tells the logger of a description why it is refused, as there is no ledger that could. */
static MLI_COLD memlord_result mli_desc_refuse(const memlord_desc *desc, const char *why) {
    if (desc->logger.fn) desc->logger.fn(desc->logger.user, MEMLORD_LOG_ERROR, why);
    return MEMLORD_E_INVALID;
}
enum {
    MLI_FLAGS = MEMLORD_FLAG_NO_STRATEGY | MEMLORD_FLAG_SITES | MEMLORD_FLAG_EXACT |
                MEMLORD_FLAG_DEFER | MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_NO_ENV |
                MEMLORD_FLAG_NO_SNAPSHOT_THREAD
};
static MLI_COLD memlord_result mli_desc_check(const memlord_desc *desc) {
    const char *why = mli_stacks_check(desc);
    if (!why) why = mli_events_check(desc);
    if (!why) why = mli_snapshots_check(desc);
    if (!desc->allocator.alloc != !desc->allocator.free)
        why = "[create] allocator: one of alloc and free is missing";
    if (desc->flags & ~(uint32_t)MLI_FLAGS) why = "[create] flags: there is no such flag";
    if (desc->poll_ms && desc->poll_ms < MLI_POLL_MS_MIN) why = "[create] poll_ms is below 10";
    return why ? mli_desc_refuse(desc, why) : MEMLORD_OK;
}

/* Starts the services that a description asks for. */
static MLI_COLD memlord_result mli_desc_start(memlord *lord, const memlord_desc *desc) {
    memlord_result r = MEMLORD_OK;
    if (desc->stack_depth) mli_stacks_begin(lord, desc->stack_depth, desc->stack_bytes);
    if (desc->event_capacity) r = memlord_events_start(lord, desc->event_capacity);
    if (r == MEMLORD_OK && desc->snapshot_ms) r = memlord_snapshots_start(lord, desc->snapshot_ms);
    return r;
}
typedef memlord_result (*mli_starter)(memlord *lord, const memlord_desc *desc);

/* Makes a ledger. The caller has checked the description and later calls mli_process_start. `start`
   is mli_desc_start, or NULL in memlord_global, which has no description. So a program whose
   only ledger comes from memlord_global need not link the services that mli_desc_start starts. */
static MLI_COLD memlord_result mli_ledger_make(const memlord_desc *desc, mli_starter start,
                                               memlord **out) {
    memlord_desc zeros;
    memlord_allocator allocator;
    memlord_result r;
    memset(&zeros, 0, sizeof zeros);
    if (!desc) desc = &zeros;
    allocator = desc->allocator;
    if (!allocator.alloc) memlord_os_allocator(&allocator);
    if (MLI_WINDOWS) mli_stay_loaded(); /* else the hooks would outlive a closed library */
    *out = mli_ledger_alloc(desc, &allocator);
    if (!*out) return MEMLORD_E_NOMEM;
    mli_ledger_register(*out);
    r = mli_lives_open(*out, desc);
    if (r == MEMLORD_OK && start) r = start(*out, desc);
    if (r == MEMLORD_OK) return r;
    memlord_destroy(*out);
    *out = NULL;
    return r;
}

/* -- public -- */

MLI_API memlord_result memlord_create(const memlord_desc *desc, memlord **out) {
    memlord_result r;
    if (!out) return MEMLORD_E_INVALID;
    *out = NULL;
    r = desc ? mli_desc_check(desc) : MEMLORD_OK;
    if (r == MEMLORD_OK) r = mli_ledger_make(desc, mli_desc_start, out);
    if (r == MEMLORD_OK && mli_process_claim()) mli_process_start();
    return r;
}

MLI_API uint64_t memlord_generation(memlord *lord) { return lord ? lord->generation : 0; }

/* Each thread remembers the ledger that it found last, until any ledger has ended. The acquire load
   pairs with the seq_cst add in mli_ledger_unregister. */
MLI_API memlord *memlord_find(uint64_t generation) {
    const uint64_t ended = mli_u64_load_acquire(&mli_process.ended);
    memlord *lord;
    if (!generation) return NULL;
    if (MLI_LIKELY(mli_self.found_generation == generation && mli_self.found_ended == ended))
        return mli_self.found;
    if (mli_self.in_host_alloc) return NULL; /* the registry lock may be held */
    mli_lock_take(&mli_process.registry_lock);
    lord = mli_process.ledgers;
    while (lord && lord->generation != generation) lord = lord->next;
    mli_lock_drop(&mli_process.registry_lock);
    mli_self.found_generation = generation;
    mli_self.found_ended = ended;
    return mli_self.found = lord;
}

/* The order matters. memlord_destroy stops the helpers, writes the last report, verifies, logs
   leaks, drops fences, and then takes the ledger off the registry. */
MLI_API void memlord_destroy(memlord *lord) {
    if (!lord || lord == mli_ptr_load(&mli_process.global)) return;
    mli_lives_stop(lord);
    mli_saver_end(lord);
    if (lord->debug == 2) (void)memlord_verify(lord);
    mli_log_leaks(lord);
    mli_fences_end(lord);
    mli_ledger_unregister(lord);
    mli_lives_free(lord);
    mli_ledger_delete(lord);
}

/* Returns the global ledger. If there is none, makes it, and sets *made to 1. Returns NULL if that
   fails, and sets *r to the error. The ledger is complete before it becomes the global one, because
   the code that makes it may call a malloc, and that malloc may call this function. The process is
   claimed before the ledger becomes the global one, so that other threads wait. The process starts
   afterwards, so that calls from within mli_process_start find the ledger. */
static MLI_COLD memlord *mli_global_make(const memlord_desc *desc, mli_starter start, int *made,
                                         memlord_result *r) {
    mli_ptr *global = &mli_process.global;
    memlord *fresh, *lord;
    int starts;
    *made = 0;
    *r = mli_ledger_make(desc, start, &fresh);
    if (*r) return NULL;
    starts = mli_process_claim();
    mli_lock_take(&mli_process.registry_lock);
    lord = (memlord *)mli_ptr_load(global);
    *made = !lord;
    if (!lord) mli_ptr_store_release(global, lord = fresh); /* pairs with the acquire loads */
    mli_lock_drop(&mli_process.registry_lock);
    if (starts) mli_process_start();
    if (*made)
        mli_stay_loaded();
    else
        memlord_destroy(fresh);
    return lord;
}

MEMLORD_API memlord *memlord_global(void) {
    memlord *lord = (memlord *)mli_ptr_load_acquire(&mli_process.global);
    memlord_result r;
    int made;
    return MLI_LIKELY(lord) ? lord : mli_global_make(NULL, NULL, &made, &r);
}

/* The snapshots start once the ledger is the global one, because their thread may call
   memlord_global. If another ledger became the global one first, they do not start. */
MLI_API memlord_result memlord_global_setup(const memlord_desc *desc) {
    static const char late[] = "[setup] memlord_global_setup came too late: the global ledger is "
                               "in use, and keeps its configuration";
    memlord *lord = (memlord *)mli_ptr_load_acquire(&mli_process.global);
    memlord_desc own;
    memlord_result r = MEMLORD_OK;
    int made = 0;
    memset(&own, 0, sizeof own);
    if (desc) own = *desc;
    if (own.allocator.alloc || own.allocator.free)
        return mli_desc_refuse(&own, "[setup] allocator: the global ledger has one of its own");
    r = mli_desc_check(&own);
    if (r) return r;
    own.snapshot_ms = 0;
    if (!lord) lord = mli_global_make(&own, mli_desc_start, &made, &r);
    if (!lord) return r;
    if (!made) {
        if (mli_log_hears(lord, MEMLORD_LOG_ERROR))
            mli_log(lord, MEMLORD_LOG_ERROR, late);
        else if (own.logger.fn) /* the ledger in use has no logger */
            own.logger.fn(own.logger.user, MEMLORD_LOG_ERROR, late);
        return MEMLORD_E_STATE;
    }
    if (desc && desc->snapshot_ms) (void)memlord_snapshots_start(lord, desc->snapshot_ms);
    return MEMLORD_OK;
}
