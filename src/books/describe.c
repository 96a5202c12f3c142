#include "books/describe.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/probes.h"
#include "books/counters.h"
#include "books/names.h"
#include "books/devices.h"
#include "books/sites.h"
#include "books/anomalies.h"
#include "books/parts.h"
#include "books/blocks.h"

/* Gives a live block the tag `tag`, which is the ledger's copy of a string. If `tag` is NULL, the
   block then has no tag. The row of the tag depends on the block's device, and cannot be added
   inside a shard. So the function first looks up the device, then adds the row, and then enters the
   shard. If the block has moved to another device meanwhile, starts again. */
static MLI_COLD memlord_result mli_block_retag(memlord *lord, mli_thread *t, memlord_device device,
                                               uint64_t key, const char *tag) {
    MLI_REQUIRE(!mli_is_inside());
    mli_probe probe;
    mli_row_delta d[2];
    mli_entry seen, *e;
    uint32_t row = 0;
    int same;
    do {
        if (mli_key_state(lord, t, device, key, &seen) < MLI_KEY_LIVE) return MEMLORD_E_UNKNOWN;
        if (tag && mli_row_find(lord, MLI_BOOK_TAG, tag, MLI_DEV(seen.word1), &row))
            return MEMLORD_E_NOMEM;
        /* Makes this thread's cell of the row now. Otherwise this thread's bytes could be split
           between its own cell and that of the orphan record, and the peak would be too low. */
        d[1] = mli_delta_open(0, mli_word2_of(0, row, 0), 0);
        mli_cells_make(lord, t, &d[1], 1);
        e = mli_probe_live(lord, t, (uint32_t)device.type, key, &probe);
        same = e && MLI_DEV(e->word1) == MLI_DEV(seen.word1);
        if (same) {
            const uint64_t rows = mli_word2_rows(e->word2);
            d[0] = mli_delta_close(0, rows & MLI_TAG_BITS, MLI_BYTES(e->word1));
            d[1].in = MLI_BYTES(e->word1);
            mli_entry_set_rows(e, (rows & ~MLI_TAG_BITS) | d[1].word2);
            mli_probe_unlock(&probe);
            if (d[0].word2 != d[1].word2) mli_count(lord, t, d, 2);
        }
        mli_probe_leave(t, &probe);
    } while (!same);
    return MEMLORD_OK;
}

/* -- public -- */

MLI_API memlord_result memlord_block_describe(memlord *lord, memlord_device device,
                                              uint64_t storage, const memlord_meta *meta) {
    mli_thread *t;
    mli_probe probe;
    memlord_meta kept;
    memlord_result r = mli_key_begin(lord, device, storage, &t);
    if (!t) return r;
    r = meta && meta->rank <= 8 ? mli_meta_copy(lord, meta, &kept) : MEMLORD_E_INVALID;
    if (r == MEMLORD_OK && kept.tag)
        r = mli_block_retag(lord, t, device, storage, kept.tag);
    if (r == MEMLORD_OK)
        r = mli_probe_add_side_record(lord, t, (uint32_t)device.type, storage, 0, &probe);
    if (r == MEMLORD_OK) {
        mli_side_record_of(probe.entry->word2)->meta = kept;
        mli_probe_leave(t, &probe);
    }
    mli_thread_put(lord, t);
    return mli_call_end_uncounted(lord, r);
}

MLI_API memlord_result memlord_block_retag(memlord *lord, memlord_device device,
                                           uint64_t storage, const char *tag) {
    mli_thread *t;
    const char *kept;
    memlord_result r = mli_key_begin(lord, device, storage, &t);
    if (!t)
        return mli_refuse(lord, MLI_REFUSER_block_retag, r, device, mli_block_fault(storage, 0),
                          NULL);
    r = mli_name(lord, tag && *tag ? tag : NULL, &kept);
    if (r == MEMLORD_OK) r = mli_block_retag(lord, t, device, storage, kept);
    mli_thread_put(lord, t);
    return mli_call_end_uncounted(lord, r);
}
