/* Runs the general path: any alloc and any free, in any shard of the map, for any thread. Owns no
   state. Invariants: a call checks everything before it changes anything; mli_call_end, which may
   run host code, comes last, with no lock held. Locks: none of its own. */
#ifndef MLI_CALLS_RECORD_H
#define MLI_CALLS_RECORD_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/devices.h"
#include "books/anomalies.h"
#include "books/parts.h"
#include "books/blocks.h"
#include "books/limits.h"
#include "calls/deferred.h"

/* Begins to record a block in a call. Checks the arguments, and adds the device to the ledger if it
   is new. After an error gives the thread record back. */
static MLI_HOT memlord_result mli_call_begin(memlord *lord, mli_call *call, memlord_device device,
                                             uint64_t storage, uint64_t bytes) {
    memlord_result r = MEMLORD_E_INVALID;
    if (MLI_LIKELY(mli_key_valid(storage) && bytes <= MLI_BYTES_MAX))
        r = mli_dev(lord, device, &call->dev);
    if (MLI_UNLIKELY(r)) mli_thread_put(lord, call->t);
    return r;
}
/* Ends a call and returns r. `did` is 1 if the block was recorded. Gives the thread record back
   first, because the logger and the end of the call run host code, and no lock may be held then. */
static MLI_HOT memlord_result mli_call_finish(memlord *lord, mli_call *call, memlord_result r,
                                              int did, const char *verb,
                                              const memlord_block *block) {
    mli_thread *t = call->t;
    const uint32_t dev = call->dev;
    mli_thread_put(lord, t);
    if (call->draw.phys) mli_ticket_draw_end(lord, call, did);
    if (mli_debug_on(lord))
        mli_log_call(lord, call, did, verb, block->device, block->storage, block->bytes);
    mli_anomalies_tell(lord);
    if (dev) mli_call_end(lord, t, dev, 1);
    return r;
}

/* Checks the options of an alloc on a device, and copies them to *out. Keeps a copy of the tag's
   name; if there is no memory for the copy, the alloc has no tag. If the ticket or the account is
   not open on that device, sets that one to 0 in *out and returns 0. */
MLI_PRIVATE MLI_COLD int mli_opts_settle(memlord *lord, memlord_device device,
                                         const memlord_alloc_opts *given, memlord_alloc_opts *out);
/* Counts and logs an alloc at `site` that named a ticket or an account that is not open. */
MLI_PRIVATE MLI_COLD void mli_opts_refuse(memlord *lord, int refuser, memlord_device device,
                                          const memlord_site *site);

/* Records a block in any shard, for any thread, and ends the call. `how` is MLI_PUT_ALLOC or
   MLI_PUT_TRACK. `opts` are the options besides the site, or NULL. If there is no memory for the
   block, the alloc counts as dropped. Requires: mli_opts_settle has written `opts`. */
MLI_PRIVATE memlord_result mli_alloc_general(memlord *lord, mli_call *call, memlord_device device,
                                             uint64_t storage, uint64_t bytes,
                                             const memlord_alloc_opts *opts, int how);

/* Frees or releases a block in any shard, for any thread. `how` is MLI_END_FREE or MLI_END_RELEASE.
   A storage of 0 frees nothing. *gone gets the entry that ended, or the key 0. If `gone` is NULL,
   writes the line of MEMLORD_DEBUG; otherwise the caller does. */
MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_general(memlord *lord, memlord_device device,
                                                         uint64_t storage, int how,
                                                         const memlord_site *site, mli_entry *gone);

/* Serves memlord_alloc on the general path, and counts and logs a refusal. */
MLI_PRIVATE MLI_NOINLINE memlord_result mli_alloc_slow(memlord *lord, memlord_device device,
                                                       uint64_t storage, uint64_t bytes,
                                                       const memlord_site *site);
/* Serves memlord_free and memlord_release on the general path, and counts and logs a refusal. */
MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_slow(memlord *lord, memlord_device device,
                                                      uint64_t storage, int how,
                                                      const memlord_site *site);

#endif
