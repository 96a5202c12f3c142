#include "calls/record.h"
#include "os/unwind.h"
#include "books/counters.h"
#include "books/tags.h"
#include "books/accounts.h"
#include "books/stacks.h"
#include "books/events.h"
#include "books/fences.h"

/* One alloc and one free on the general path.
     1. Get a thread record (mli_call_get): the thread's own, or the orphan record, locked. A call
        that the ledger's own allocator makes gets no record, so it returns and records nothing. All
        later steps share an mli_call.
     2. Check the arguments. An alloc adds its device to the ledger if the device is new.
     3. An alloc takes its bytes off the ticket that it names, or off the thread's tickets. It looks
        up the rows and cells of its site and tag, or makes them.
     4. Insert the entry or erase it, and count, with the functions of books/blocks:
          mli_block_open > mli_entry_put > mli_probe_find > mli_probe_put > mli_count
          mli_block_close > mli_probe_live > mli_probe_end_block > mli_count_close > mli_count
        Both count before they leave the shard. If a block has more than one reference, a release
        only takes one off. A freed block with fences becomes pending.
     5. Count a free also at the site that freed the block. Record the event, put the thread record
        back, and write the line of MEMLORD_DEBUG.
     6. Call mli_call_end, which does what the ledger's mask `alert` asks for. */

MLI_PRIVATE MLI_COLD int mli_opts_settle(memlord *lord, memlord_device device,
                                         const memlord_alloc_opts *given, memlord_alloc_opts *out) {
    memlord_account account;
    memset(out, 0, sizeof *out);
    if (!given) return 1;
    *out = *given;
    account = given->account == MEMLORD_NONE ? 0 : given->account;
    if (given->tag && *given->tag) out->tag = mli_tag_of_host(lord, given->tag);
    if (given->ticket && !mli_ticket_is_at(lord, given->ticket, device)) out->ticket = 0;
    if (account && !mli_account_is_of(lord, account, device)) out->account = 0;
    return out->ticket == given->ticket && out->account == given->account;
}
MLI_PRIVATE MLI_COLD void mli_opts_refuse(memlord *lord, int refuser, memlord_device device,
                                          const memlord_site *site) {
    (void)mli_refuse(lord, refuser, MEMLORD_E_INVALID, device,
                     "its ticket or its account is not open there", site);
}

/* Records a block. If the ticket or the account has closed after mli_opts_settle, the bytes come
   off no ticket, or are charged to no account. */
MLI_PRIVATE memlord_result mli_alloc_general(memlord *lord, mli_call *call, memlord_device device,
                                             uint64_t storage, uint64_t bytes,
                                             const memlord_alloc_opts *opts, int how) {
    static const memlord_alloc_opts none = {NULL, NULL, 0, 0, 0};
    memlord_block block;
    mli_origin origin;
    uint64_t rows;
    uint32_t stack;
    int did;
    memlord_result r = mli_call_begin(lord, call, device, storage, bytes);
    if (r) return mli_drop_count(lord, call->site, r, device, storage, bytes);
    if (!opts) opts = &none;
    mli_stack_pick(lord, call, storage, bytes);
    stack = call->pick.row;
    call->draw.named = opts->ticket;
    mli_ticket_draw_begin(lord, call, bytes);
    origin = mli_origin_of(call->t, call->site);
    if (opts->tag) origin.tag = *opts->tag ? opts->tag : NULL;
    if (opts->stream) origin.stream = opts->stream == MEMLORD_NONE ? 0 : opts->stream;
    rows = mli_alloc_word2(lord, call->t, call->dev, &origin);
    r = mli_block_open(lord, call, storage, bytes, rows, opts->account, how, &did);
    mli_stack_forget(call);
    (void)mli_drop_count(lord, call->site, r, device, storage, bytes);
    if (did == MLI_DID_OPEN)
        mli_event_record_begin(lord, call->t, MEMLORD_EVENT_ALLOC, call->dev, storage, bytes, rows,
                               stack);
    block.device = device;
    block.storage = storage;
    block.bytes = bytes;
    return mli_call_finish(lord, call, r, did == MLI_DID_OPEN, "[alloc] ", &block);
}

MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_general(memlord *lord, memlord_device device,
                                                         uint64_t storage, int how,
                                                         const memlord_site *site,
                                                         mli_entry *gone) {
    mli_thread *t;
    mli_call own, *call;
    mli_entry e;
    mli_fence_record *chain = NULL;
    const int logs = !gone && mli_debug_on(lord);
    memlord_result r;
    if (!gone) gone = &e;
    gone->key = gone->word1 = 0; /* for a return before mli_block_close sets them */
    if (!storage) return MEMLORD_OK;
    r = mli_key_begin(lord, device, storage, &t);
    if (!t) return r;
    call = mli_call_of(lord, t, &own, site);
    r = mli_block_close(lord, call, device, storage, how, gone, &chain);
    if (gone->key) {
        const mli_row_delta rows = mli_delta_close(MLI_DEV(gone->word1), gone->word2, 0);
        mli_cells_make(lord, t, &rows, 1); /* so that the next such free is fast */
        mli_count_site_free(lord, t, MLI_DEV(gone->word1), site, MLI_BYTES(gone->word1));
        mli_event_record_end(lord, t, chain ? MEMLORD_EVENT_PEND : MEMLORD_EVENT_FREE, storage,
                             gone->word1, gone->word2, site);
    }
    mli_thread_put(lord, t);
    if (logs)
        mli_log_call(lord, call, gone->key != 0, chain ? "[free deferred] " : "[free] ", device,
                     storage, MLI_BYTES(gone->word1));
    mli_anomalies_tell(lord);
    if (chain) mli_fences_ask_new(lord, chain);
    if (gone->key) mli_call_end(lord, t, MLI_DEV(gone->word1), 1);
    return r;
}

MLI_PRIVATE MLI_NOINLINE memlord_result mli_alloc_slow(memlord *lord, memlord_device device,
                                                       uint64_t storage, uint64_t bytes,
                                                       const memlord_site *site) {
    void *entered = mli_self.generation == lord->generation ? mli_self.thread->call.entered : NULL;
    mli_call own, *call = mli_call_get(lord, &own, site, MLI_CALLED_FROM);
    memlord_result r;
    if (!call) return MEMLORD_OK;
    if (entered && mli_is_own(call->caller)) call->caller = entered; /* see MLI_NOTE_ENTRY */
    r = mli_alloc_general(lord, call, device, storage, bytes, NULL, MLI_PUT_ALLOC);
    return mli_refuse(lord, MLI_REFUSER_alloc, r, device, mli_block_fault(storage, bytes), site);
}
MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_slow(memlord *lord, memlord_device device,
                                                      uint64_t storage, int how,
                                                      const memlord_site *site) {
    memlord_result r = mli_free_general(lord, device, storage, how, site, NULL);
    return mli_refuse(lord, how == MLI_END_FREE ? MLI_REFUSER_free : MLI_REFUSER_release, r,
                      device, mli_block_fault(storage, 0), site);
}
