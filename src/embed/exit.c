#include "embed/exit.h"
#include "os/system.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/tags.h"
#include "services/scopes.h"
#include "services/contexts.h"
#include "services/joint.h"
#include "services/thread_end.h"
#include "embed/lives.h"

/* The exit hook: frees the records of a thread that ends, at most one in each ledger. Its argument
   is the thread's number, because the thread-local storage may be gone when the hook runs. (MinGW
   emulates such storage, and frees it earlier.) If the storage is still there, the hook sets
   mli_self.exited, so that later calls of the thread get no record. Signals are blocked while the
   hook runs. An interposer (a preloaded MemLord) has a signal handler that writes a report if no
   call of MemLord is in progress. The handler cannot tell that this hook runs. */
static MLI_COLD void MLI_EXIT_CALL mli_on_exit(void *number) {
    memlord *lord;
    mli_thread *t;
#if !MLI_WINDOWS
    sigset_t every, before;
    (void)sigfillset(&every);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before);
#endif
    if (MLI_WINDOWS && !number) return; /* the thread did not set the hook */
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
/* Takes or drops the lock of each ledger's orphan record. */
static MLI_COLD void mli_orphans_lock(int take) {
    memlord *lord;
    MLI_LEDGERS_EACH(lord)
        mli_orphan_lock_set(lord, take);
}
/* Takes or drops the locks that a fork takes after the cold lock. */
static MLI_COLD void mli_fork_locks(int take) {
    mli_lives_lock(take);
    mli_lock_set(&mli_process.pages_lock, take);
}

/* Takes the locks of all ledgers before a fork, so that each is between two calls: at the fork no
   thread that the child lacks may hold a lock or be in the middle of a change. */
static MLI_COLD void mli_fork_before(void) {
    mli_lock_take(&mli_process.registry_lock);
    mli_orphans_lock(1);
    mli_lock_take(&mli_process.cold_lock);
    mli_fork_locks(1);
    mli_words_lock(1); /* comes last, because all of the above uses the words that it locks */
}
/* Lets the ledgers go on after a fork, in the parent, and last in the child. */
static MLI_COLD void mli_fork_parent(void) {
    mli_words_lock(0);
    mli_fork_locks(0);
    mli_lock_drop(&mli_process.cold_lock);
    mli_orphans_lock(0);
    mli_lock_drop(&mli_process.registry_lock);
}

/* Makes the ledgers usable in a forked child. This thread keeps its records, under its new number.
   All other records but the orphan record become free for new threads, and keep their counts. */
static MLI_COLD void mli_fork_child(void) {
    memlord *lord;
    mli_thread *t;
    mli_words_lock(0); /* comes first, because the code below uses the words that it unlocks */
    uint64_t number = mli_self.number ? mli_thread_number() : 0; /* the fork has changed it */
    mli_self.is_helper = 0;
    mli_u64_store(&mli_process.pid, mli_pid());
    mli_u32_store_release(&mli_process.started, MLI_START_DONE); /* this handler is installed last,
                                                                    so the start is complete */
    mli_process.saving = NULL;
    mli_u32_store(&mli_process.exit_key_users, 0);
    if (mli_u32_load(&mli_process.has_barrier))
        mli_u32_store(&mli_process.has_barrier, mli_barrier_register());
    MLI_LEDGERS_EACH(lord) {
        mli_thread *mine = mli_thread_own(lord);
        mli_lives_forked(lord);
        for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) {
            mli_thread_entry_choose(t);
            if (t != mine && !mli_is_orphan(lord, t)) mli_thread_gone(t);
            mli_running_count(&t->now);
        }
        mli_contexts_recount(lord);
        mli_joint_sweep(lord);
        if (mine) mli_u64_store(&mine->owner, number);
    }
    mli_self.number = number;
    if (mli_self.hooked) mli_thread_hook(number);
    mli_fork_parent();
}
#endif

MLI_PRIVATE MLI_COLD void mli_hooks_install(void) {
    mli_interposer_find();
    mli_u32_store(&mli_process.has_barrier, mli_barrier_register());
    if (!mli_exit_key_make(&mli_process.exit_key, mli_on_exit))
        mli_u32_store_release(&mli_process.exit_key_ready, 1); /* pairs with mli_thread_ready */
#if !MLI_WINDOWS
    (void)pthread_atfork(mli_fork_before, mli_fork_parent, mli_fork_child);
#endif
}

#if !MLI_WINDOWS
/* Deletes the exit key when the library that has MemLord is closed. Otherwise a thread that ends
   later would run a hook that is no longer loaded. glibc itself removes the fork handlers of a
   closed library. This destructor runs after the other destructors of the library, because 101 is
   the lowest priority that a host may use, and the lowest runs last. The destructor also runs at
   the end of the process, when other threads may still run. From then on, a thread that has no hook
   yet shares the orphan record. The exchange and the add are seq_cst. The accesses of
   mli_thread_hook to the same two words are seq_cst, too. So of this thread and a thread in
   mli_thread_hook, at least one sees what the other has written. */
__attribute__((destructor(101))) static void mli_process_end(void) {
    if (mli_u32_exchange(&mli_process.exit_key_ready, 0) &&
        !mli_u32_add(&mli_process.exit_key_users, 0))
        mli_exit_key_delete(mli_process.exit_key);
}
#endif
