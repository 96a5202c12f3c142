/* Defers frees: a freed block that has fences is pending, and ends after the last of them is done.
   Owns no state. Invariants: a pending block stays in the map until its last fence is done; only
   the thread that asks a fence calls its functions. Locks: those of the map, then fences; no lock
   is held while a fence runs host code. */
#ifndef MLI_CALLS_DEFERRED_H
#define MLI_CALLS_DEFERRED_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/fences.h"

/* A block is pending while its side record has a serial. When its last fence is done, it ends, and
   mli_call_end follows as for any call. The slow function behind that asks the fences that are due
   (mli_fences_poll_due), which may end further blocks. Two rules bound this recursion: the end of a
   block by a fence has 0 for `asks`, and a thread that runs a function of a fence asks no other
   (mli_fence_is_running). */

/* Ends a call that has changed the counts of a device: does the work that the mask `alert` has for
   it, except MLI_ALERT_EVENTS and MLI_ALERT_FORGET, which the call has served. May ask fences only
   if `asks` is 1. Without a barrier for all threads, always calls the slow function, which has one
   of its own. */
static MLI_HOT void mli_call_end(memlord *lord, mli_thread *t, uint32_t dev, int asks) {
    MLI_REQUIRE(mli_none_held());
    const uint32_t served = MLI_ALERT_EVENTS | MLI_ALERT_FORGET;
    if (MLI_UNLIKELY(mli_dev_alerts(lord, mli_alert_on(lord, ~served), dev) |
                     (mli_u32_load(&t->special) & MLI_SPECIAL_NO_BARRIER)))
        lord->end_slow(lord, t, dev, asks);
}

enum { /* why a fence is attached to a block */
    MLI_ATTACH_USE,  /* for memlord_block_use, and the block stays live */
    MLI_ATTACH_FREE, /* for memlord_free_deferred, which frees the block */
    MLI_ATTACH_MOVE  /* for a move, whose source is the block */
};

/* Attaches fence f to a live block, in the place of the block's earlier fence with the same queue,
   if there is one. If `why` is not MLI_ATTACH_USE, also makes the block pending. Then *gone gets
   the entry of the block, and *chain the fences that the caller asks next. If f is NULL, the block
   waits only for the fences that it has already. After an error f still belongs to the caller, and so
   it does after MEMLORD_OK for a storage that was dropped, with the key 0 in *gone. */
MLI_PRIVATE memlord_result mli_fence_attach(memlord *lord, mli_call *call, memlord_device d,
                                            uint64_t key, mli_fence_record *f, int why,
                                            mli_entry *gone, mli_fence_record **chain);

/* Asks the fences of a block that was just freed, in the order in which they were attached. No
   thread has asked them before. Under MEMLORD_FLAG_DEFER no host code may run here, so each fence
   counts as not done, and a later poll asks it. */
MLI_PRIVATE MLI_COLD void mli_fences_ask_new(memlord *lord, mli_fence_record *chain);

/* Ends the pending blocks whose fences are done, on the devices that `sel` selects, and returns the
   bytes of these blocks. Asks the first fence of every queue, and goes on in a queue as long as its
   fences are done. Does nothing in a call that the ledger's own allocator makes. */
MLI_PRIVATE MLI_COLD uint64_t mli_fences_retire(memlord *lord, memlord_device sel);

/* Calls the `drop` of each fence in the list to_drop, at the end of a call on a device type. If
   `asks` is 1, first asks fences of one queue of that type. */
MLI_PRIVATE MLI_COLD void mli_fences_poll_due(memlord *lord, uint32_t type, int asks);

/* Moves a block to the call's device. First inserts the destination, a copy without the fences and
   the parts; then the source becomes pending, until its own fences and f, if not NULL, are done. */
MLI_PRIVATE memlord_result mli_move_fenced(memlord *lord, mli_call *call, memlord_device from,
                                           uint64_t from_key, uint64_t key, uint64_t bytes,
                                           mli_fence_record *f, mli_fence_record **chain);

#endif
