/* Takes a block from freed to credited: it asks the block's fences and ends the block after the
   last one. Owns no state. May use books/. Invariants: a pending block stays in the map until its
   last fence is done; only the asker of a fence calls its functions. Locks: the map's, then fences;
   none while a fence runs host code. */
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

/* A block is pending while its side record has a serial. A fence that is done ends its block, and
   the end of the block runs mli_call_end like any call. The slow function of mli_call_end asks the
   fences that are due (mli_fences_poll_due), which may end blocks in turn. Two things bound this
   circle: a block ended by a fence passes asks = 0 to mli_call_end, so no queue is asked; and a
   thread inside a fence asks no further ones (mli_fence_is_running). */

/* Ends a call that counted on a device: does what `alert` asks for there. `asks`: it may ask
   fences. Ignores MLI_ALERT_EVENTS: the call has recorded its events. A thread without the system's
   barrier always takes the slow function, for the barrier in it. */
static MLI_HOT void mli_call_end(memlord *lord, mli_thread *t, uint32_t dev, int asks) {
    MLI_REQUIRE(mli_none_held());
    if (MLI_UNLIKELY(mli_dev_alerts(lord, mli_alert_on(lord, ~(uint32_t)MLI_ALERT_EVENTS), dev) |
                     (mli_u32_load(&t->special) & MLI_SPECIAL_NO_BARRIER)))
        lord->end_slow(lord, t, dev, asks);
}

enum { /* why a fence is attached */
    MLI_ATTACH_USE,  /* memlord_block_use: the block stays live */
    MLI_ATTACH_FREE, /* memlord_free_deferred */
    MLI_ATTACH_MOVE  /* the source of a move */
};

/* Records a fence on a live block. It takes the place of an earlier fence of the same queue. Unless
   `why` is a use, also makes the block pending: *gone is its entry, *chain its fences, to be asked
   next. With f NULL the block waits only for the uses recorded before. After an error the caller
   keeps f. */
MLI_PRIVATE memlord_result mli_fence_attach(memlord *lord, mli_thread *t, memlord_device d,
                                            uint64_t key, mli_fence_record *f, int why,
                                            mli_entry *gone, mli_fence_record **chain);

/* Asks, for the first time, the fences of a block that was just freed, in the order they were
   attached. Under MEMLORD_FLAG_DEFER no host code may run: there each fence counts as not done, and
   a later poll asks it. */
MLI_PRIVATE MLI_COLD void mli_fences_ask_new(memlord *lord, mli_fence_record *chain);

/* Retires the pending blocks of a selector that are done, and returns the bytes credited: asks the
   first fence of every queue, and the next ones while they are done. Within the ledger's own
   allocator call it does nothing. */
MLI_PRIVATE MLI_COLD uint64_t mli_fences_retire(memlord *lord, memlord_device sel);

/* Drops the fences to be dropped at the end of a call on a device type. `asks`: first asks fences
   of one queue of that type. */
MLI_PRIVATE MLI_COLD void mli_fences_poll_due(memlord *lord, uint32_t type, int asks);

/* Moves a block whose source is held back by its own fences and by f (NULL: by no other). Inserts
   the destination first, as a copy without fences and parts; then makes the source pending. */
MLI_PRIVATE memlord_result mli_move_fenced(memlord *lord, mli_thread *t, memlord_device from,
                                           uint64_t from_key, uint32_t dev, uint64_t key,
                                           uint64_t bytes, mli_fence_record *f,
                                           const memlord_site *site, mli_fence_record **chain);

#endif
