#include "calls/record.h"
#include "books/events.h"
#include "books/fences.h"

/* -- storages -- */

/* -- the general path: any alloc and any free; the fast path falls back to it -- */

MLI_PRIVATE memlord_result mli_alloc_off_ticket(memlord *lord, memlord_ticket ticket,
                                                memlord_device device, uint64_t storage,
                                                uint64_t bytes, const memlord_site *site, int how) {
    mli_call call;
    memlord_block block;
    uint64_t rows;
    uint32_t stack;
    int did;
    memlord_result r = mli_call_begin(lord, device, storage, bytes, &call);
    if (!call.t) return mli_drop_count(lord, r, device, storage, bytes);
    mli_stack_take(lord, call.t, call.dev, bytes, site);
    stack = mli_self.taken_row;
    call.draw.named = ticket;
    mli_call_draw(lord, &call, bytes);
    rows = mli_alloc_word2(lord, call.t, call.dev, site);
    r = mli_block_open(lord, call.t, call.dev, storage, bytes, rows, how, &did);
    mli_stack_forget(lord);
    (void)mli_drop_count(lord, r, device, storage, bytes);
    if (did == MLI_DID_OPEN)
        mli_event_record_begin(lord, call.t, MEMLORD_EVENT_ALLOC, call.dev, storage, bytes, rows,
                               stack);
    block.device = device;
    block.storage = storage;
    block.bytes = bytes;
    return mli_call_finish(lord, &call, r, did == MLI_DID_OPEN, "[alloc] ", &block, site);
}

MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_general(memlord *lord, memlord_device device,
                                                         uint64_t storage, int how,
                                                         const memlord_site *site,
                                                         mli_entry *gone) {
    mli_thread *t;
    mli_entry e;
    mli_fence_record *chain = NULL;
    const int logs = !gone && mli_debug_on(lord);
    memlord_result r;
    if (!gone) gone = &e;
    gone->key = gone->word1 = 0; /* mli_block_close may not be called */
    if (!storage) return MEMLORD_OK;
    r = mli_key_begin(lord, device, storage, &t);
    if (!t) return r;
    r = mli_block_close(lord, t, device, storage, how, gone, &chain);
    if (gone->key) {
        const mli_row_delta rows = mli_delta_close(MLI_DEV(gone->word1), gone->word2, 0);
        mli_cells_make(lord, t, &rows, 1); /* so that the thread's next such free is fast */
        mli_count_site_free(lord, t, MLI_DEV(gone->word1), site, MLI_BYTES(gone->word1));
        mli_event_record_end(lord, t, chain ? MEMLORD_EVENT_PEND : MEMLORD_EVENT_FREE, storage,
                             gone->word1, gone->word2, site);
    }
    mli_thread_put(lord, t);
    if (logs)
        mli_log_call(lord, gone->key != 0, chain ? "[free deferred] " : "[free] ", device, storage,
                     MLI_BYTES(gone->word1), site);
    if (chain) mli_fences_ask_new(lord, chain);
    if (gone->key) mli_call_end(lord, t, MLI_DEV(gone->word1), 1);
    return r;
}

/* The general path as the public functions take it: counts and logs a refusal. */
static memlord_result mli_alloc_refusing(memlord *lord, memlord_device device, uint64_t storage,
                                         uint64_t bytes, const memlord_site *site) {
    memlord_result r = mli_alloc_off_ticket(lord, 0, device, storage, bytes, site, MLI_PUT_ALLOC);
    return r ? mli_refuse(lord, MLI_REFUSER_alloc, r, device, mli_block_fault(storage, bytes)) : r;
}
MLI_PRIVATE MLI_NOINLINE memlord_result mli_alloc_slow(memlord *lord, memlord_device device,
                                                       uint64_t storage, uint64_t bytes,
                                                       const memlord_site *site) {
    MLI_NOTE_ENTERED();
    return mli_alloc_refusing(lord, device, storage, bytes, site);
}
MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_slow(memlord *lord, memlord_device device,
                                                      uint64_t storage, int how,
                                                      const memlord_site *site) {
    memlord_result r = mli_free_general(lord, device, storage, how, site, NULL);
    return r ? mli_refuse(lord, how == MLI_END_FREE ? MLI_REFUSER_free : MLI_REFUSER_release, r,
                          device, mli_block_fault(storage, 0))
             : r;
}

/* -- the fast path: one block in a shard that the thread owns or that is shared --
   A call does no more than the code below if every bit of `special` is a row bit whose row is
   cached, the probe finds its slot, no count is negative and `alert` has nothing for its device. */

/* Publishes the cells of a block that hold back too much. */
static MLI_COLD void mli_rows_publish_due(memlord *lord, const mli_thread *t,
                                          uint32_t dev, uint64_t word2) {
    MLI_REQUIRE(mli_is_inside());
    const uint32_t site = MLI_SITE_ROW(word2), tag = MLI_TAG_ROW(word2);
    mli_cell_publish_due(lord, MLI_BOOK_DEVICE, dev, mli_cell_own_device(t, dev));
    mli_cell_publish_due(lord, MLI_BOOK_SITE, site, mli_cell_own_row(t, MLI_BOOK_SITE, site));
    mli_cell_publish_due(lord, MLI_BOOK_TAG, tag, mli_cell_own_row(t, MLI_BOOK_TAG, tag));
}

MLI_PRIVATE MLI_NOINLINE memlord_result mli_alloc_finish(memlord *lord, uint32_t dev,
                                                         uint64_t storage, uint64_t bytes,
                                                         uint64_t word2) {
    MLI_REQUIRE(mli_is_inside());
    mli_thread *t = mli_self.thread;
    mli_shard *s = mli_shard_of(lord, storage, 1);
    const int crowded = mli_shard_crowded(lord, s);
    const uint32_t size = s->size;
    mli_rows_publish_due(lord, t, dev, word2);
    mli_shard_leave(t);
    if (crowded) (void)mli_shard_grow(lord, t, s, size); /* no memory: the table keeps its size */
    mli_event_record(lord, t, MEMLORD_EVENT_ALLOC, dev, storage, bytes, word2);
    mli_call_end(lord, t, dev, 1);
    return MEMLORD_OK;
}
MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_finish(memlord *lord, uint32_t dev,
                                                        uint64_t storage, const memlord_site *site,
                                                        uint64_t bytes, uint64_t word2) {
    MLI_REQUIRE(mli_is_inside());
    mli_thread *t = mli_self.thread;
    mli_rows_publish_due(lord, t, dev, word2);
    mli_shard_leave(t);
    mli_count_site_free(lord, t, dev, site, bytes);
    mli_event_record_end(lord, t, MEMLORD_EVENT_FREE, storage, mli_word1_of(bytes, dev, 1), word2,
                         site);
    mli_call_end(lord, t, dev, 1);
    return MEMLORD_OK;
}
MLI_PRIVATE MLI_OWN_FRAME MLI_NOINLINE memlord_result mli_alloc_window(memlord *lord,
                                                                       memlord_device device,
                                                                       uint64_t storage,
                                                                       uint64_t bytes,
                                                                       const memlord_site *site) {
    MLI_REQUIRE(mli_is_inside());
    mli_thread *t = mli_self.thread;
    mli_block_rows rows = {0, NULL, NULL, NULL, 0};
    mli_probe probe;
    mli_home_probe(lord, storage, &probe);
    if (mli_probe_scan(lord, &probe, (uint32_t)device.type, 1) || probe.entry || !probe.room ||
        !mli_rows_cached(lord, t, mli_u32_load(&t->special), device, bytes, site, &rows)) {
        mli_probe_leave(t, &probe);
        return mli_alloc_slow(lord, device, storage, bytes, site);
    }
    mli_probe_insert(&probe, mli_word1_of(bytes, rows.dev, 1), rows.word2);
    return mli_alloc_count(lord, t, storage, bytes, &rows,
                           mli_shard_crowded(lord, probe.shard) ? -1 : 0);
}
/* Notes where memlord_alloc was called, before it calls another function that may take a stack.
   From -O2 on these are jumps, which leave no frame; at -O1 a stack that is not unwound then has no
   frame at all. In optimized code the note would save registers on the way to sites and tags. */
MLI_PRIVATE MLI_OWN_FRAME MLI_NOINLINE memlord_result mli_alloc_full(memlord *lord,
                                                                     memlord_device device,
                                                                     uint64_t storage,
                                                                     uint64_t bytes,
                                                                     const memlord_site *site) {
    return mli_alloc_fast(lord, device, storage, bytes, site, 0);
}
MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_window(memlord *lord, memlord_device device,
                                                        uint64_t storage, int how,
                                                        const memlord_site *site) {
    MLI_REQUIRE(mli_is_inside());
    mli_thread *t = mli_self.thread;
    mli_block_rows rows = {0, NULL, NULL, NULL, 0};
    uint64_t bytes;
    mli_probe probe;
    mli_home_probe(lord, storage, &probe);
    if (mli_probe_scan(lord, &probe, (uint32_t)device.type, 0) || !probe.entry ||
        !mli_entry_cells(lord, t, device, probe.entry, 0, &rows)) {
        mli_probe_leave(t, &probe);
        return mli_free_slow(lord, device, storage, how, site);
    }
    bytes = MLI_BYTES(probe.entry->word1);
    mli_probe_erase(&probe);
    return mli_free_count(lord, t, storage, bytes, &rows, site, mli_u32_load(&t->special));
}
MLI_PRIVATE MLI_NOINLINE memlord_result mli_free_full(memlord *lord, memlord_device device,
                                                      uint64_t storage, int how,
                                                      const memlord_site *site) {
    return mli_free_fast(lord, device, storage, how, site, 0);
}
