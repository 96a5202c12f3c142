#include "books/threads.h"
#include "os/system.h"
#include "os/modules.h"
#include "base/memory.h"

#define MLI_SWEEP_MIN 16u /* with fewer records a sweep is not worthwhile */

MLI_PRIVATE void mli_slot_move(const memlord *lord, uint32_t number, uint64_t key) {
    MLI_REQUIRE(key || !number || mli_is_inside());
    mli_thread *t = mli_self.generation == lord->generation ? mli_self.thread : NULL;
    if (!number) return;
    if (!t || t->id != number / MLI_SLOTS)
        for (t = mli_thread_first(lord); t && t->id != number / MLI_SLOTS;) t = mli_thread_next(t);
    if (t) mli_u64_store_release(&t->slots[number % MLI_SLOTS].key, key);
}

MLI_PRIVATE void mli_special_set(mli_thread *t, uint32_t bit, int on) {
    (void)mli_u32_bits(&t->special, bit, on);
}

MLI_PRIVATE MLI_COLD void mli_thread_entry_choose(mli_thread *t) {
    MLI_REQUIRE(mli_lock_held(&mli_process.registry_lock));
    (void)mli_u32_exchange(&t->by_exchange, 0);
    if (!mli_is_orphan(t->lord, t) && mli_u32_load_seqcst(&mli_process.has_barrier)) return;
    mli_special_set(t, MLI_SPECIAL_NO_BARRIER, 1);
    mli_u32_store_release(&t->by_exchange, 1);
}

MLI_PRIVATE mli_thread *mli_thread_of(const memlord *lord, uint64_t number) {
    MLI_REQUIRE(number);
    mli_thread *t = mli_thread_first(lord);
    while (t && mli_u64_load(&t->owner) != number) t = mli_thread_next(t);
    return t;
}
MLI_PRIVATE mli_thread *mli_thread_own(const memlord *lord) {
    return mli_self.number ? mli_thread_of(lord, mli_self.number) : NULL;
}

MLI_PRIVATE int mli_alert_set(memlord *lord, uint32_t bit, int on) {
    return mli_u32_bits(&lord->threads.alert, bit, on);
}

MLI_PRIVATE MLI_COLD void mli_dev_alerts_set(memlord *lord, uint32_t dev, int type) {
    lord->threads.dev_alerts[dev] = ~(uint32_t)MLI_ALERT_PENDS_ALL | (uint32_t)MLI_ALERT_PENDS
                                                                         << type;
}
MLI_PRIVATE void mli_alert_bands_add(memlord *lord, uint32_t by) {
    (void)mli_u32_add(&lord->threads.alert, by * MLI_ALERT_BANDS);
}
MLI_PRIVATE MLI_COLD void mli_alert_bands_set(memlord *lord, uint32_t n) {
    mli_u32_store(&lord->threads.alert,
                  mli_alert_on(lord, MLI_ALERT_BANDS - 1) + n * MLI_ALERT_BANDS);
}
MLI_PRIVATE void mli_alert_barrier(memlord *lord) { (void)mli_u32_add(&lord->threads.alert, 0); }

MLI_PRIVATE MLI_COLD void mli_hook_set(memlord *lord, uint32_t bit, int on) {
    mli_thread *t;
    mli_lock_take(&mli_process.registry_lock);
    (void)mli_u32_bits(&lord->threads.hooks, bit, on);
    for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) mli_special_set(t, bit, on);
    mli_lock_drop(&mli_process.registry_lock);
}

MLI_PRIVATE MLI_COLD void mli_special_set_all(memlord *lord, uint32_t bit, int on) {
    mli_thread *t;
    mli_lock_take(&mli_process.registry_lock);
    for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) mli_special_set(t, bit, on);
    mli_lock_drop(&mli_process.registry_lock);
}

MLI_PRIVATE uint32_t mli_record_number(uint32_t id) { return id - MLI_THREAD_ID_FIRST + 1; }

MLI_PRIVATE uint32_t mli_thread_count(memlord *lord) {
    return mli_u32_load(&lord->threads.next_id) - MLI_THREAD_ID_FIRST;
}

MLI_PRIVATE void mli_threads_allow(memlord *lord, uint32_t threads) {
    mli_u32_store(&lord->threads.allowance, threads);
}
MLI_PRIVATE uint32_t mli_threads_allowed(const memlord *lord) {
    return mli_u32_load(&lord->threads.allowance);
}

MLI_PRIVATE MLI_COLD int mli_threads_sweep_due(memlord *lord) {
    return mli_thread_count(lord) >= lord->threads.sweep_at;
}
MLI_PRIVATE MLI_COLD void mli_threads_swept(memlord *lord, uint32_t living) {
    const uint32_t at = 2 * living;
    lord->threads.sweep_at = at > MLI_SWEEP_MIN ? at : MLI_SWEEP_MIN;
}

/* Fills in a new thread record, whose memory is zeroed, and adds the record to the list. Requires:
   the caller holds the registry lock. */
static void mli_thread_start(memlord *lord, mli_thread *t, uint64_t owner) {
    MLI_REQUIRE(mli_lock_held(&mli_process.registry_lock));
    t->id = mli_u32_add(&lord->threads.next_id, 1);
    mli_u32_store(&t->special, mli_u32_load(&lord->threads.hooks));
    t->lord = lord;
    t->own.id = t->id;
    t->own.home = t;
    t->now.context = &t->own;
    mli_ptr_store(&t->own.thread, t);
    t->cache = t->cache_inline;
    t->cache_mask = MLI_CACHE_MIN - 1;
    if (mli_thread_count(lord) >
        mli_u32_load(&lord->threads.allowance)) /* before the thread counts any byte */
        mli_alert_set(lord, MLI_ALERT_THREADS, 1);
    mli_u64_store(&t->owner, owner);
    mli_ptr_store(&t->next, mli_ptr_load(&lord->threads.all));
    /* pairs with the acquire load in mli_thread_first; seq_cst: see mli_barrier_threads and
       mli_shard_wait */
    (void)mli_ptr_exchange(&lord->threads.all, t);
    mli_thread_entry_choose(t);
}

/* Returns a record without an owner, or NULL if there is none. The acquire load pairs with the
   release store in mli_thread_release, which makes the counts and shards of the record visible. */
static mli_thread *mli_thread_spare(memlord *lord) {
    mli_thread *t = mli_thread_first(lord);
    while (t && (mli_is_orphan(lord, t) || mli_u64_load_acquire(&t->owner)))
        t = mli_thread_next(t);
    return t;
}

/* Gives the calling thread a record: a free one, or else a new one. Returns NULL if there is no
   memory. Raises MLI_ALERT_THREADS if a sweep is due and no record is free. */
static MLI_COLD mli_thread *mli_thread_claim(memlord *lord) {
    mli_thread *t, *fresh = NULL;
    for (;;) {
        mli_lock_take(&mli_process.registry_lock);
        t = fresh ? fresh : mli_thread_spare(lord);
        if (fresh) {
            mli_thread_start(lord, fresh, mli_self.number);
        } else if (t) {
            t->taken_row = 0; /* the last picked block was that of the former owner */
            mli_u64_store(&t->owner, mli_self.number);
            mli_thread_entry_choose(t);
        }
        if (t && mli_threads_sweep_due(lord) && !mli_thread_spare(lord))
            mli_alert_set(lord, MLI_ALERT_THREADS, 1);
        mli_lock_drop(&mli_process.registry_lock);
        if (t) return t;
        fresh = (mli_thread *)mli_own_alloc(lord, sizeof *fresh);
        if (!fresh) return NULL;
    }
}

/* Finds the record of the thread `number` in each ledger, and sets its owner to MLI_NOBODY. That
   thread has ended, or it is the calling thread, whose thread-local storage is new and does not
   have the number yet. The next sweep frees the records. */
static MLI_COLD void mli_threads_disown(uint64_t number) {
    memlord *lord;
    mli_lock_take(&mli_process.registry_lock);
    MLI_LEDGERS_EACH(lord) {
        mli_thread *t = mli_thread_of(lord, number);
        if (!t) continue;
        mli_u64_store(&t->owner, MLI_NOBODY);
        lord->threads.sweep_at = 0;
        mli_alert_set(lord, MLI_ALERT_THREADS, 1);
    }
    mli_lock_drop(&mli_process.registry_lock);
}

MLI_PRIVATE void mli_thread_hook(uint64_t number) {
    void *value = (void *)(uintptr_t)number;
    (void)mli_u32_add(&mli_process.exit_key_users, 1);
    mli_self.hooked = mli_u32_load_seqcst(&mli_process.exit_key_ready) &&
                      mli_exit_key_set(mli_process.exit_key, value) == 0;
    (void)mli_u32_add(&mli_process.exit_key_users, (uint32_t)-1);
}
/* Returns 1 if MemLord has started in this process. Waits at most 0.1 s for a thread that is
   starting it now. That thread may be in a malloc of the host, and wait there for a lock that the
   calling thread holds. The acquire load pairs with the release stores of MLI_START_DONE. */
static MLI_COLD int mli_process_started(void) {
    const unsigned most = MLI_SPIN_LOOKS * (MLI_SPIN_TURNS + 110);
    unsigned n = 0;
    while (mli_u32_load_acquire(&mli_process.started) == MLI_START_BUSY && n < most)
        mli_spin_wait(&n);
    return mli_u32_load_acquire(&mli_process.started) == MLI_START_DONE;
}
/* Gets the number of the calling thread and sets its exit hook, once. Returns 0 if the thread may
   have no record: its exit hook has run, no hook can be set (yet), or the thread belongs to another
   process. A child of vfork is such a process: it shares the memory and the thread-local storage of
   its parent, and the kernel tells it that all threads of the parent have ended. */
static MLI_COLD int mli_thread_ready(void) {
    if (mli_self.exited || mli_pid() != mli_u64_load(&mli_process.pid) || !mli_process_started() ||
        !mli_u32_load_acquire(&mli_process.exit_key_ready))
        return 0;
    if (!mli_self.number) {
        uint64_t number = mli_thread_number();
        mli_threads_disown(number);
        mli_self.number = number;
    }
    if (!mli_self.hooked) {
        mli_self.in_host_alloc = 1; /* pthread_setspecific may call malloc */
        mli_thread_hook(mli_self.number);
        mli_self.in_host_alloc = 0;
    }
    return mli_self.hooked != 0;
}

/* Returns the calling thread's record in a ledger other than the one that the thread used last. If
   the thread may have no record, or there is no memory for a record, locks and returns the orphan
   record. Returns NULL if the ledger's own allocator makes the call. */
static MLI_COLD mli_thread *mli_thread_get_slow(memlord *lord) {
    mli_used *used = &mli_self.used[lord->generation % MLI_USED];
    mli_thread *t = NULL;
    if (mli_self.in_host_alloc) return NULL;
    if (!mli_self.exited)
        t = used->generation == lord->generation ? used->thread : mli_thread_own(lord);
    if (!t && mli_thread_ready()) t = mli_thread_claim(lord);
    if (t) {
        mli_self.generation = used->generation = lord->generation;
        mli_self.thread = used->thread = t;
        return t;
    }
    mli_lock_take(&lord->threads.orphan_lock);
    mli_self.orphaned = lord;
    return lord->threads.orphan;
}

MLI_PRIVATE MLI_NOINLINE void mli_thread_put(memlord *lord, const mli_thread *t) {
    if (MLI_LIKELY(!mli_is_orphan(lord, t))) return;
    mli_self.orphaned = NULL;
    mli_lock_drop(&lord->threads.orphan_lock);
}
MLI_PRIVATE MLI_NOINLINE mli_thread *mli_thread_get(memlord *lord) {
    if (MLI_LIKELY(mli_self.generation == lord->generation))
        return mli_self.thread;
    return mli_thread_get_slow(lord);
}

MLI_PRIVATE mli_call *mli_call_of(memlord *lord, mli_thread *t, mli_call *own,
                                  const memlord_site *site) {
    mli_call *call = MLI_UNLIKELY(mli_is_orphan(lord, t)) ? own : &t->call;
    call->t = t;
    call->site = site;
    call->dev = call->pick.row = 0;
    call->draw.phys = NULL;
    call->draw.named = 0;
    memset(&call->note, 0, sizeof call->note);
    return call;
}
MLI_PRIVATE MLI_NOINLINE mli_call *mli_call_get(memlord *lord, mli_call *own,
                                                const memlord_site *site, void *caller,
                                                void *frame) {
    mli_thread *t = lord ? mli_thread_get(lord) : NULL;
    mli_call *call = t ? mli_call_of(lord, t, own, site) : NULL;
    if (call) call->caller = caller, call->frame = frame;
    return call;
}

MLI_PRIVATE MLI_COLD void mli_saver_set(memlord *lord, const mli_saver *saver) {
    mli_ptr_store_release(&lord->threads.saver, (void *)(uintptr_t)saver);
}
MLI_PRIVATE MLI_COLD void mli_saver_end(memlord *lord) {
    const mli_saver *saver = (const mli_saver *)mli_ptr_load_acquire(&lord->threads.saver);
    if (saver) saver->save(lord, 1);
}
MLI_PRIVATE MLI_COLD void mli_save_serve(memlord *lord) {
    const mli_saver *saver;
    if (mli_self.in_host_alloc || !mli_alert_set(lord, MLI_ALERT_SAVE, 0)) return;
    saver = (const mli_saver *)mli_ptr_load_acquire(&lord->threads.saver);
    saver->save(lord, 0);
}

MLI_PRIVATE MLI_NOINLINE memlord_result mli_call_end_uncounted(memlord *lord, memlord_result r) {
    MLI_REQUIRE(mli_none_held());
    if (MLI_UNLIKELY(mli_alert_on(lord, MLI_ALERT_SAVE)) &&
        !(lord->flags & MEMLORD_FLAG_DEFER))
        mli_save_serve(lord);
    return r;
}

/* -- helpers -- */

MLI_PRIVATE MLI_COLD void mli_stay_loaded(void) {
    MLI_REQUIRE(mli_none_held());
    uint64_t generation;
    if (mli_u32_load(&mli_process.stays_loaded)) return;
    if (mli_u32_exchange(&mli_process.stays_loaded, 1)) return;
    generation = mli_busy_begin();
    if (!mli_module_keep()) mli_u32_store(&mli_process.stays_loaded, 0);
    mli_busy_end(generation);
}

MLI_PRIVATE MLI_COLD int mli_helper_start(mli_helper *h, mli_u32 *wish, uint32_t none,
                                          uint32_t failed, void (*run)(void *), void *user) {
    uint32_t seen = MLI_HELPER_NONE;
    uint64_t generation;
    int bad = 1;
    if (!MLI_THREADLESS) mli_stay_loaded(); /* first, because others may wait once it is BUSY */
    if (!mli_u32_cas(&h->state, &seen, MLI_HELPER_BUSY))
        return seen == MLI_HELPER_FAILED ? -1 : 0;
    /* This addition is seq_cst, and so is the exchange by which another thread sets *wish to
       `none`. So either this thread sees `none`, or the other thread sees MLI_HELPER_BUSY. */
    if (mli_u32_add(wish, 0) == none) {
        mli_u32_store_release(&h->state, MLI_HELPER_NONE);
        return 0;
    }
    h->job.run = run;
    h->job.user = user;
    mli_u32_store(&h->stop, 0);
    generation = mli_busy_begin(); /* a thread's stack may come from a hooked malloc */
    if (!MLI_THREADLESS && mli_os_event_open(&h->wake) == 0) {
        bad = mli_os_thread_start(&h->worker, &h->job);
        if (bad) mli_os_event_close(&h->wake);
    }
    mli_busy_end(generation);
    if (!bad) failed = MLI_HELPER_RUNS;
    mli_u32_store_release(&h->state, failed);
    return bad != 0;
}

MLI_PRIVATE MLI_COLD void mli_helper_stop(mli_helper *h) {
    unsigned spins = 0;
    uint32_t seen = MLI_HELPER_RUNS;
    while (!mli_u32_cas(&h->state, &seen, MLI_HELPER_BUSY)) {
        if (seen == MLI_HELPER_FAILED) mli_u32_store(&h->state, MLI_HELPER_NONE);
        if (seen == MLI_HELPER_NONE || seen == MLI_HELPER_FAILED) return;
        mli_spin_wait(&spins);
        seen = MLI_HELPER_RUNS;
    }
    mli_u32_store_release(&h->stop, 1); /* pairs with the acquire loads in mli_helper_wait */
    mli_os_event_set(&h->wake);
    mli_os_thread_join(h->worker);
    mli_os_event_close(&h->wake);
    mli_u32_store_release(&h->state, MLI_HELPER_NONE);
}

MLI_PRIVATE MLI_COLD int mli_helper_wait(mli_helper *h, uint32_t ms) {
    if (!mli_u32_load_acquire(&h->stop)) mli_os_event_wait(&h->wake, ms);
    return !mli_u32_load_acquire(&h->stop);
}

MLI_PRIVATE int mli_polling_enabled(memlord *lord) {
    return !MLI_THREADLESS && !(lord->flags & MEMLORD_FLAG_NO_THREADS);
}

/* -- life -- */

static MLI_COLD void mli_threads_init(memlord *lord, const memlord_desc *desc) {
    mli_lock_rank(&lord->threads.orphan_lock, MLI_RANK_ORPHAN);
    lord->threads.next_id.v = MLI_THREAD_ID_FIRST;
    lord->threads.sweep_at = MLI_SWEEP_MIN;
    lord->threads.allowance.v = 4;
    if (desc->flags & MEMLORD_FLAG_SITES) lord->threads.hooks.v |= MLI_HOOK_SITES;
    if (lord->debug) lord->threads.hooks.v |= MLI_HOOK_TRACE;
}
MLI_PRIVATE MLI_COLD int mli_orphan_new(memlord *lord) {
    lord->threads.orphan = (mli_thread *)mli_own_alloc(lord, sizeof *lord->threads.orphan);
    return lord->threads.orphan != NULL;
}
MLI_PRIVATE MLI_COLD void mli_orphan_start(memlord *lord) {
    mli_thread_start(lord, lord->threads.orphan, 0);
    mli_special_set(lord->threads.orphan, MLI_SPECIAL_ORPHAN, 1);
}
#if !MLI_WINDOWS /* Windows has no fork */
MLI_PRIVATE MLI_COLD void mli_orphan_lock_set(memlord *lord, int take) {
    mli_lock_set(&lord->threads.orphan_lock, take);
}
#endif
MLI_PRIVATE const mli_life mli_threads_life = {0, 0, mli_threads_init, NULL, NULL, NULL, NULL,
                                               NULL};
