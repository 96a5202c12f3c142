/* Owns the table that divides the blocks of a site among its stacks. Uses reports/export. Locks:
   none.

   the shares of stacks. Sites are exact and stacks are samples. So a stack has the blocks that
      were taken, and a share of the others of its site: in proportion to the others that its
      samples stand for. Then the stacks add up to the site, and a block that was taken has its own
      bytes. Blocks of a site without a sample stay with the site: a stack of its one frame. Live
      blocks are divided by site, tag and scope. The allocs of a site are these and the freed ones,
      which are divided by site */
#ifndef MLI_REPORTS_SHARES_H
#define MLI_REPORTS_SHARES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/export.h"

#if !defined(MEMLORD_NO_REPORTS)

/* Makes the table of shares, where stacks are samples. Without memory the report fails. */
MLI_PRIVATE MLI_COLD void mli_portions_make(mli_export *x);

/* Calls put for every live block, or each share in them as one, then for the arena of each device
   that has a balance. */
MLI_PRIVATE MLI_COLD void mli_live_blocks_each(mli_export *x,
                                               void (*put)(mli_export *x, const mli_live_block *b));

MLI_PRIVATE const char *mli_part_name(const memlord_part_info *part);
MLI_PRIVATE MLI_COLD uint64_t mli_export_parts(mli_export *x, const mli_live_block *b);

/* Returns the group of a block, empty if it is new. Probes 8 slots; if all are of other groups,
   writes the group at its home and evicts it. An evicted group may be written again later: readers
   of the formats with groups add equal ones up. */
MLI_PRIVATE MLI_COLD mli_group *mli_group_at(mli_export *x, const mli_live_block *b);
MLI_PRIVATE MLI_COLD void mli_groups_each(mli_export *x,
                                          void (*put)(mli_export *, const mli_group *));

/* Calls put for the allocations of each site or, in a format with stacks, of each stack since the
   last reset; then for those of each device that are of none. Of samples they are shares. */
typedef void (*mli_allocs_fn)(mli_export *x, const mli_live_block *of, uint64_t allocs,
                              uint64_t bytes);
MLI_PRIVATE MLI_COLD void mli_allocs_each(mli_export *x, mli_allocs_fn put);

/* Returns the last event of a block's storage, or the free slot where it belongs (dev 0). NULL:
   there is no table. Open addressing by device type and address. */
MLI_PRIVATE mli_live_block *mli_last_event_at(const mli_export *x, const mli_live_block *of);
/* Calls fn for the ring's events up to the moment of the report, the oldest first. Leaves out
   devices without a number. */
typedef void (*mli_ring_event_fn)(mli_export *x, const mli_export_event *e);
MLI_PRIVATE MLI_COLD void mli_ring_each(mli_export *x, mli_ring_event_fn fn);

/* Returns what an event adds to the live bytes of its device. */
MLI_PRIVATE int64_t mli_event_delta(const mli_export_event *e);
MLI_PRIVATE int mli_event_is_of_block(const mli_export_event *e);

/* Reads the ring once: the last event of each storage; for each device the bytes it gains (x->sum)
   and its number of events (x->events); takes the bytes that each tag gains off x->level. */
MLI_PRIVATE MLI_COLD void mli_last_events_build(mli_export *x);
#endif

#endif
