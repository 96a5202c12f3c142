/* Divides what each device held at its peak among stacks and sites. Owns no state. Locks: those of
   the reading functions; none while `put` runs. */
#ifndef MLI_REPORTS_PEAKS_H
#define MLI_REPORTS_PEAKS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/export.h"

/* The record of a device's peak has the exact bytes of the peak, of the arena, and of the largest
   sites (MLI_HOLDERS at most). A stack gets the bytes that it held or, if stacks are samples, a
   share in proportion to them: the stacks of a listed site share its bytes, and all other stacks
   those of all other sites. Bytes of a listed site that no stack gets stay with the site; others
   are "(unknown)" or, if the list is full and may lack a site, "(others)". The arena is "(arena)".
   So the blocks that `put` gets add up to the peak, without tags and scopes. */

#if !defined(MEMLORD_NO_PROFILES)

/* Calls `put` for each device and each stack or site, with what it held there at the peak. */
MLI_PRIVATE MLI_COLD void mli_peak_blocks_each(mli_export *x, mli_block_fn put, void *writer);
#endif

#endif
