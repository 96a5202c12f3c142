/* Divides what each device held at its peak among stacks and sites. A site is a place of code that
   allocates. Stacks are samples if only some allocs are picked to have one. Owns no state. May use
   reports/export. Locks: those of the reading functions; none while `put` runs. */
#ifndef MLI_REPORTS_PEAKS_H
#define MLI_REPORTS_PEAKS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/export.h"

/* The record of a device's peak has the bytes of the peak, of the arena, and of the largest sites
   (MLI_HOLDERS at most). These numbers are exact. A stack gets the bytes that it held. If stacks
   are samples, a stack gets a share in proportion to the bytes that it held: the stacks of a listed
   site share the bytes of the site, and all other stacks share the bytes of all other sites. Bytes
   of a listed site that no stack gets stay with the site. Other bytes that no stack gets are
   "(unknown)" or, if the list is full and may lack a site, "(others)". The bytes of the arena are
   "(arena)". So the blocks that `put` gets add up to the bytes of the peak. Their tags and scopes
   are not known. */

#if !defined(MEMLORD_NO_PROFILES)

/* Calls put for each device and each stack or site. Gives `put` a block with the bytes that the
   stack or site held on the device when the device was at its peak. */
MLI_PRIVATE MLI_COLD void mli_peak_blocks_each(mli_export *x, mli_block_fn put, void *writer);
#endif

#endif
