#include "services/thread_end.h"
#include "os/system.h"
#include "base/atomics.h"
#include "books/events.h"
#include "services/scopes.h"
#include "services/contexts.h"

/* Resets what lasts over several calls in a thread's record: its context and its events. */
static void mli_thread_reset(mli_thread *t) {
    mli_subbuf_leave(t);
    mli_current_clear(&t->now);
    mli_special_set(t, MLI_SPECIAL_CONTEXT, 0);
}

MLI_PRIVATE MLI_COLD void mli_thread_release(mli_thread *t) {
    MLI_REQUIRE(mli_lock_held(&mli_process.registry_lock));
    (void)mli_u64_add(&t->owner, 0);
    mli_context_home(t, 1);
    mli_spans_close(t);
    mli_thread_reset(t);
    /* The record is inside no shard (a part of the map of blocks), so a thread that stops a shard
       does not wait for the record. */
    mli_u32_store(&t->by_exchange, 1);
    mli_u64_store_release(&t->owner, 0);
}

#if !MLI_WINDOWS /* Windows has no fork */
MLI_PRIVATE MLI_COLD void mli_thread_gone(mli_thread *t) {
    MLI_REQUIRE(mli_lock_held(&mli_process.registry_lock));
    /* At the fork all shards (the parts of the map of blocks) were stopped: no thread could change
       them. A thread that had just entered a shard had changed nothing. So the record is marked as
       outside all shards. */
    mli_ptr_store(&t->inside, NULL);
    mli_context_home(t, 0);
    mli_spans_forget(&t->now);
    mli_thread_reset(t);
    mli_u32_store(&t->by_exchange, 1);
    mli_u64_store(&t->owner, 0);
}
#endif

MLI_PRIVATE MLI_COLD void mli_threads_sweep(memlord *lord) {
    mli_thread *t = mli_thread_first(lord);
    uint32_t living = 0;
    int due;
    mli_lock_take(&mli_process.registry_lock);
    due = mli_threads_sweep_due(lord);
    for (; due && t; t = mli_thread_next(t)) {
        uint64_t owner = mli_u64_load(&t->owner);
        if (owner == MLI_NOBODY || (owner && mli_thread_has_ended(owner)))
            mli_thread_release(t);
        else
            living += owner != 0;
    }
    if (due) mli_threads_swept(lord, living);
    mli_lock_drop(&mli_process.registry_lock);
}
