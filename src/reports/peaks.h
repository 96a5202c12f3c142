/* Divides what each device held at its peak among stacks and sites. A site is a place of code that
   allocates. Stacks are samples if only some allocs are picked to have one. Owns no state. May use
   reports/export. Locks: those of the reading functions; none while `put` runs. */
#ifndef MLI_REPORTS_PEAKS_H
#define MLI_REPORTS_PEAKS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/export.h"

/* The record of a device's peak has the bytes of the peak, and those of its largest sites
   (MLI_HOLDERS at most). These numbers are exact. A stack gets the bytes that it held. If stacks
   are samples, it gets a share of the exact number: the stacks of each of these sites share the
   bytes of the site, and all other stacks share the bytes that these sites leave, in proportion to
   what each held. Bytes that no stack gets stay with the site. Bytes without a listed site are then
   "(unknown)" or, if the list is full and may lack a site, "(others)". The bytes of the arena are
   "(arena)". So the blocks add up to the bytes of the peak. Their tags and scopes are not known. */

#if !defined(MEMLORD_NO_PROFILES)

/* Calls put for the bytes that each stack and each site held at the peak of its device. */
MLI_PRIVATE MLI_COLD void mli_peak_blocks_each(mli_export *x, mli_block_fn put, void *writer);
#endif

#endif
