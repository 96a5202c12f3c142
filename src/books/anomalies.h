/* Owns the mistakes of the host that are kept with their place, and which refusals were logged. May
   use books/sites, books/devices, books/counters and base/log. Invariants: the list has one entry a
   kind and site, is bounded, and only a reset takes an entry off; a mistake costs nothing until it
   is made. Locks: anomalies, for the list; none is held while a site is copied or the logger
   runs. */
#ifndef MLI_BOOKS_ANOMALIES_H
#define MLI_BOOKS_ANOMALIES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"

#define MLI_ANOMALIES 64

/* The name of a kind, MEMLORD_ANOMALY_..., as reports write it: "unknown_free". */
MLI_PRIVATE MLI_COLD const char *mli_anomaly_name(int kind);

/* Notes the site of a call on the general path, when the call begins. A call from within the
   ledger's own allocator notes none: the call around it still needs its own. */
static MLI_HOT void mli_site_given(const memlord_site *site) {
    if (MLI_LIKELY(!mli_self.in_host_alloc)) mli_self.site = site;
}

/* Keeps a mistake at the site of the call in progress. The first one of a site may take memory.
   `word2` has the rows of the block in question, as it would be without a side record; 0: no block
   is in question. Returns 1 if it is the first of its kind there. Requires: no lock is held but the
   orphan lock. */
MLI_PRIVATE MLI_COLD int mli_anomaly_note(memlord *lord, int kind, memlord_device device,
                                          uint64_t storage, uint64_t bytes, uint64_t word2);
/* Keeps and logs the end of a tag or a scope while none is open. `caller`: the return address of
   that call; NULL: not known. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD void mli_end_misplaced(memlord *lord, const void *caller);

/* Logs the mistakes that are not logged yet. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD void mli_anomalies_log(memlord *lord);
/* Ends a call that may have noted a mistake. Within the ledger's own logger it logs nothing, and
   the thread's next such call logs the mistake. */
static MLI_HOT void mli_anomalies_tell(memlord *lord) {
    if (MLI_UNLIKELY(mli_self.untold == lord->generation)) mli_anomalies_log(lord);
}

/* Copies the mistake of a number, from 0, with its sites as reports show them. Returns 0 if there
   is none. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD int mli_anomaly_read(memlord *lord, uint32_t number, memlord_anomaly *out);
/* Returns how many mistakes were at sites that found no room in the list. */
MLI_PRIVATE MLI_COLD uint64_t mli_anomalies_left_out(memlord *lord);

/* Returns what is wrong with the storage or the size of a block; NULL: neither is. */
MLI_PRIVATE MLI_COLD const char *mli_block_fault(uint64_t storage, uint64_t bytes);
/* Ends a public call that returns r: logs its mistakes. A call refused with MEMLORD_E_INVALID or
   MEMLORD_E_DEVICE is counted, and kept as a mistake at `site`. It is logged if it is the first one
   there, or the first of its function with that result; never from within the logger. A call from
   within the ledger's allocator is neither counted nor logged. `fault`: what is wrong with an
   argument; NULL: that is not known. Returns r. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD memlord_result mli_refuse(memlord *lord, int refuser, memlord_result r,
                                               memlord_device d, const char *fault,
                                               const memlord_site *site);

MLI_PRIVATE MLI_COLD void mli_anomalies_life(mli_life *life);

#endif
