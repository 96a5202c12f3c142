#include "embed/exit.h"
#include "os/system.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/stacks.h"
#include "books/events.h"
#include "books/fences.h"
#include "books/limits.h"
#include "services/scopes.h"
#include "services/snapshots.h"
#include "services/neighbours.h"

/* Frees the records of a thread, at most one in each ledger. This is the exit hook. Its argument is
   the thread's number, as thread-local storage may be gone by then: MinGW emulates it and frees it
   earlier. Where that storage is still there, `exited` keeps later calls of the thread from getting
   a record. Signals are blocked meanwhile: the handler of an interposer writes a report if the host
   is in no call, which is so here. */
static MLI_COLD void MLI_EXIT_CALL mli_on_exit(void *number) {
    memlord *lord;
    mli_thread *t;
#if !MLI_WINDOWS
    sigset_t every, before;
    (void)sigfillset(&every);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before);
#endif
    if (!number) return; /* Windows: the thread did not set the hook */
    mli_lock_take(&mli_process.registry_lock);
    MLI_LEDGERS_EACH(lord) {
        t = mli_thread_of(lord, (uint64_t)(uintptr_t)number);
        if (t) mli_thread_release(t);
    }
    mli_lock_drop(&mli_process.registry_lock);
    mli_self.generation = 0;
    mli_self.exited = 1;
#if !MLI_WINDOWS
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
#endif
}

#if !MLI_WINDOWS
static void mli_lock_set(mli_lock *lock, int take) {
    if (take)
        mli_lock_take(lock);
    else
        mli_lock_drop(lock);
}
/* Takes or drops the lock at an offset in every ledger. */
static void mli_ledgers_lock(size_t at, int take) {
    memlord *lord;
    MLI_LEDGERS_EACH(lord)
        mli_lock_set((mli_lock *)(void *)((char *)lord + at), take);
}
/* Takes or drops the locks of all physical devices. */
static void mli_phys_lock_all(int take) {
    memlord *lord;
    uint32_t i;
    MLI_LEDGERS_EACH(lord)
        for (i = 0; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++)
            mli_lock_set(&mli_phys_storage(lord, i)->lock, take);
}
/* Takes or drops the locks that protect 64-bit words, where the target has no 64-bit atomics. */
static void mli_words_lock(int take) {
#ifdef MLI_U64_LOCKS
    int i;
    for (i = 0; i < MLI_U64_LOCKS; i++)
        if (take)
            mli_u64_lock_take(&mli_u64_locks[i]);
        else
            mli_u32_store_release(&mli_u64_locks[i], 0);
#else
    (void)take;
#endif
}
/* Takes or drops the locks inside the cold lock, each of all ledgers before the next, in the lock
   order. Under the cold lock no device and its lock is new meanwhile. */
static void mli_fork_locks(int take) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    memlord *lord;
    MLI_LEDGERS_EACH(lord) {
        if (take)
            mli_map_freeze(lord);
        else
            mli_map_thaw(lord);
    }
    mli_ledgers_lock(offsetof(memlord, fences.lock), take);
    mli_ledgers_lock(offsetof(memlord, neighbours.lock), take);
    mli_ledgers_lock(offsetof(memlord, bands.callbacks_lock), take);
    mli_phys_lock_all(take);
    mli_ledgers_lock(offsetof(memlord, snapshots.lock), take);
    mli_ledgers_lock(offsetof(memlord, log.lock), take);
    mli_ledgers_lock(offsetof(memlord, stacks.lock), take);
    mli_ledgers_lock(offsetof(memlord, memory.lock), take);
    mli_lock_set(&mli_process.pages_lock, take);
}

/* Stops every ledger between two calls before a fork. The child has only the forking thread: no
   other thread may then hold a lock there, or have changed half a table. */
static MLI_COLD void mli_fork_before(void) {
    mli_lock_take(&mli_process.registry_lock);
    mli_ledgers_lock(offsetof(memlord, threads.orphan_lock), 1);
    mli_lock_take(&mli_process.cold_lock);
    mli_fork_locks(1);
    mli_words_lock(1); /* last: all of the above reads and writes words */
}
/* Lets the ledgers go on after a fork, in the parent and, at the end of its hook, in the child. */
static MLI_COLD void mli_fork_parent(void) {
    mli_words_lock(0);
    mli_fork_locks(0);
    mli_lock_drop(&mli_process.cold_lock);
    mli_ledgers_lock(offsetof(memlord, threads.orphan_lock), 0);
    mli_lock_drop(&mli_process.registry_lock);
}

/* Clears the row locks in a forked child. A thread that held one while the map was stopped only
   read the row, and is gone. */
static void mli_row_locks_after_fork(memlord *lord) {
    int book;
    uint32_t i;
    for (book = 0; book < MLI_BOOKS; book++)
        for (i = 1; i < mli_u32_load(&lord->counters.row_count[book]); i++)
            mli_u32_store(&mli_row_at(lord, book, i)->lock.locked, 0);
    mli_u32_store(&lord->counters.count_lock.locked, 0);
}

/* Clears in a forked child the askers that are gone with their threads. Fences of blocks that have
   ended are put on the list to be dropped. */
static MLI_COLD void mli_askers_gone(memlord *lord) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_FENCES));
    mli_fence_record *f = (mli_fence_record *)mli_ptr_load(&lord->fences.all);
    for (; f; f = f->older) {
        if (!f->asker || f->asker == (void *)&mli_self) continue;
        f->asker = NULL;
        if (!f->detached && f->serial) continue;
        mli_queue_remove(lord, f);
        mli_drops_put(lord, f);
    }
}

/* Clears in a forked child the marks of threads that sampled, asked a fence, collected, polled or
   waited: they are gone. */
static void mli_ledger_after_fork(memlord *lord) {
    const mli_neighbours *neighbours = mli_neighbours_of(lord);
    uint32_t i, n = mli_u32_load(&lord->counters.row_count[MLI_BOOK_DEVICE]), tries = 0;
    mli_snapshot_reader **reader;
    for (i = 0; i < n; i++) {
        mli_watch *w = i ? &mli_device_record_at(lord, i)->watch : NULL;
        mli_phys *phys = mli_phys_storage(lord, i);
        mli_u32_store(&phys->sampling, 0);
        mli_u32_store(&phys->poller.state, MLI_HELPER_NONE);
        phys->sampler = NULL;
        phys->in_flight = 0;
        if (!w) continue;
        tries += mli_u32_load(&w->near_threshold) + mli_u32_load(&w->check_requested);
        if (w->gc_thread == (void *)&mli_self) continue;
        w->gc_serial = 0;
        mli_u32_store(&w->gc_running, 0);
    }
    /* counts the band alerts again: a thread that set or cleared a flag may have been stopped
       before it changed the alert */
    mli_u32_store(&lord->threads.alert,
                  mli_u32_load(&lord->threads.alert) % MLI_ALERT_BANDS + tries * MLI_ALERT_BANDS);
    mli_askers_gone(lord);
    for (i = 0; i < 2; i++)
        lord->log.inside[i] = mli_self.log_calls.generation == lord->generation
                                  ? mli_self.log_calls.inside[i]
                                  : 0;
    mli_u32_store(&lord->log.setting, 0);
    lord->pollers.waiters = NULL;
    if (neighbours) neighbours->after_fork(lord);
    mli_subbufs_after_fork(lord);
    for (reader = &lord->snapshots.readers; *reader;) /* this thread's own reports go on */
        if ((*reader)->thread == (void *)&mli_self)
            reader = &(*reader)->next;
        else
            *reader = (*reader)->next;
    mli_u32_store(&lord->snapshots.recorders[MLI_RECORDER_SNAPSHOTS].helper.state, MLI_HELPER_NONE);
    mli_u32_store(&lord->snapshots.recorders[MLI_RECORDER_EXPORT].helper.state, MLI_HELPER_NONE);
    mli_u32_store(&lord->snapshots.recorders[MLI_RECORDER_EXPORT].interval, 0); /* the file is the parent's */
    if (mli_u32_load(&lord->devices.polling) == MLI_POLLING_ALL ||
        mli_u32_load(&lord->neighbours.open) || mli_u32_load(&lord->snapshots.recorders[MLI_RECORDER_SNAPSHOTS].interval))
        mli_alert_set(lord, MLI_ALERT_POLLER, 1);
}

/* Forgets in a forked child the open scopes of a thread that is gone: they never end. That thread
   may have been about to begin or end one; whether that is counted is not known. */
static MLI_COLD void mli_scope_stack_forget(mli_thread *t) {
    MLI_REQUIRE(mli_lock_held(&mli_process.registry_lock));
    for (; t->span; mli_span_pop(t)) {
        mli_u64_store(&t->span->stats->running, 0);
        mli_u64_store(&t->span->stats->token, 0);
    }
}

/* Makes a thread of a forked child draw when it next allocs: else it would repeat what its parent
   draws. A new draw has the distribution of what is left of an old one, so no estimate has a bias.
   */
static MLI_COLD void mli_stack_redraw(mli_thread *t) {
    t->stack_random = 0;
    t->stack_left = 0;
}

/* Makes the ledgers usable in a forked child. This thread keeps its records, under its new number.
   All other records become free, with their counts and shards, but the orphan record. */
static MLI_COLD void mli_fork_child(void) {
    memlord *lord;
    mli_thread *t;
    mli_words_lock(0); /* first: the rest reads and writes words */
    uint64_t number = mli_self.number ? mli_thread_number() : 0; /* changed by the fork */
    mli_self.is_helper = 0;
    mli_u64_store(&mli_process.pid, mli_pid());
    mli_u32_store_release(&mli_process.started, MLI_START_DONE); /* fork handlers come last */
    mli_process.saving = NULL;
    mli_u32_store(&mli_process.exit_key_users, 0);
    if (mli_u32_load(&mli_process.has_barrier))
        mli_u32_store(&mli_process.has_barrier, mli_barrier_register());
    MLI_LEDGERS_EACH(lord) {
        mli_thread *mine = mli_thread_own(lord);
        mli_row_locks_after_fork(lord);
        mli_ledger_after_fork(lord);
        mli_stacks_seed(lord);
        for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) {
            mli_thread_entry_choose(t);
            mli_stack_redraw(t);
            if (t == mine || mli_is_orphan(lord, t)) continue;
            mli_ptr_store(&t->inside, NULL); /* it saw the map stopped and was about to leave */
            mli_scope_stack_forget(t);
            mli_thread_reset(t);
            mli_u32_store(&t->by_exchange, 1);
            mli_u64_store(&t->owner, 0);
        }
        if (mine) mli_u64_store(&mine->owner, number);
    }
    mli_self.number = number;
    if (mli_self.hooked) mli_thread_hook(number);
    mli_fork_parent();
}
#endif

MLI_PRIVATE MLI_COLD void mli_hooks_install(void) {
    mli_u32_store(&mli_process.has_barrier, mli_barrier_register());
    if (!mli_exit_key_make(&mli_process.exit_key, mli_on_exit))
        mli_u32_store_release(&mli_process.exit_key_ready, 1); /* pairs with mli_thread_ready */
#if !MLI_WINDOWS
    (void)pthread_atfork(mli_fork_before, mli_fork_parent, mli_fork_child);
#endif
}

#if !MLI_WINDOWS
/* Deletes the exit key, so that no thread that ends runs a hook of a library that was closed. glibc
   removes the fork handlers itself. This runs after the library's other destructors, as 101 is the
   first priority that a host may use. It also runs at the end of the process: threads may go on
   there, and those without a hook share the orphan record from here on. The exchange and the add
   are seq_cst: of this thread and one that sets its hook, one sees the other. */
__attribute__((destructor(101))) static void mli_process_end(void) {
    if (mli_u32_exchange(&mli_process.exit_key_ready, 0) &&
        !mli_u32_add(&mli_process.exit_key_users, 0))
        mli_exit_key_delete(mli_process.exit_key);
}
#endif
