#include "embed/leaks.h"
#include "base/text.h"
#include "base/log.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "books/counters.h"
#include "books/map.h"
#include "books/parts.h"
#include "books/listing.h"
#include "services/stats.h"
#include "reports/leaks.h"

/* Adds a block to the leak table `user`, by its device, tag and site. */
static MLI_COLD int mli_visit_leak(memlord *lord, const mli_entry *e, void *user) {
    mli_leak_add(lord, (mli_leak_table *)user, mli_word2_rows(e->word2) & MLI_ROWS_MASK,
                 MLI_DEV(e->word1), MLI_BYTES(e->word1));
    return 0;
}
/* Logs a line such as "[destroy] 1.5 KiB in 2 blocks: cuda:0 [weights] main file.c:12". If `leak`
   is NULL, logs the sum of the blocks that the earlier lines do not show. */
static MLI_COLD void mli_log_leak(memlord *lord, uint64_t bytes, uint64_t blocks,
                                  const mli_leak_group *leak) {
    char line[512];
    mli_out o;
    mli_out_buffer(&o, line, sizeof line);
    mli_put_str(&o, leak ? "[destroy]   " : "[destroy]   and ");
    mli_put_amount(&o, bytes, blocks);
    mli_put_str(&o, leak ? ": " : " more");
    if (leak) mli_put_leak(&o, lord, leak, 1);
    (void)mli_out_end(&o, sizeof line);
    mli_log(lord, MEMLORD_LOG_WARNING, line);
}
/* Groups the ledger's blocks by device, tag and site, and logs the ten largest groups, unless it
   has neither sites nor tags (mli_row_count returns 1). */
static MLI_COLD void mli_log_leaks_by(memlord *lord, uint64_t blocks) {
    mli_walk_query all = mli_walk_query_of(memlord_device_all());
    mli_leak_table leaks;
    size_t i;
    if (mli_row_count(lord, MLI_BOOK_SITE) + mli_row_count(lord, MLI_BOOK_TAG) == 2) return;
    memset(&leaks, 0, sizeof leaks);
    if (!mli_leaks_begin(lord, &leaks, blocks)) return;
    mli_map_visit(lord, &all, mli_visit_leak, &leaks);
    mli_leaks_sort(&leaks, 10);
    for (i = 0; i < leaks.count; i++) {
        const mli_leak_group *leak = &leaks.at[i];
        leaks.bytes -= leak->bytes;
        leaks.blocks -= leak->blocks;
        mli_log_leak(lord, leak->bytes, leak->blocks, leak);
    }
    if (leaks.blocks) mli_log_leak(lord, leaks.bytes, leaks.blocks, NULL);
    mli_leaks_free(lord, &leaks);
}

MLI_PRIVATE MLI_COLD void mli_log_leaks(memlord *lord) {
    char line[128];
    mli_out o;
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    uint64_t blocks = 0;
    if (!mli_log_hears(lord, MEMLORD_LOG_WARNING)) return;
    for (i = 1; i < n; i++) {
        memlord_stats s;
        mli_stats_fill(lord, i, &s);
        if (!s.live_blocks && !s.allocated) continue;
        blocks += s.live_blocks;
        mli_out_buffer(&o, line, sizeof line);
        mli_putf(&o, "[destroy] %i: live ",
                 mli_device_code(mli_device_record_at(lord, i)->device));
        mli_put_amount(&o, s.allocated, s.live_blocks);
        if (s.pending) mli_putf(&o, ", pending %jo", s.pending);
        (void)mli_out_end(&o, sizeof line);
        mli_log(lord, MEMLORD_LOG_WARNING, line);
    }
    if (blocks) mli_log_leaks_by(lord, blocks);
}
