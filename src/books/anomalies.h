/* Owns the list of the host's mistakes, each with its place, and notes which refusals were logged.
   May use books/sites, books/devices, books/counters and base/log. Invariants: the list has at most
   one entry for a kind and a site, and only a reset takes entries off. A host that makes no mistake
   pays nothing. Locks: anomalies guards the list; no lock is held while a site is copied or the
   logger runs. */
#ifndef MLI_BOOKS_ANOMALIES_H
#define MLI_BOOKS_ANOMALIES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"

#define MLI_ANOMALIES 64 /* the most entries of the list */

/* Returns the name of a kind (MEMLORD_ANOMALY_...), as reports write it: "unknown_free". */
MLI_PRIVATE MLI_COLD const char *mli_anomaly_name(int kind);

/* Notes the site of a call on the general path, when the call begins. A call that the ledger's own
   allocator makes notes no site, because the call around it still needs the site that it noted. */
static MLI_HOT void mli_site_given(const memlord_site *site) {
    if (MLI_LIKELY(!mli_self.in_host_alloc)) mli_self.site = site;
}

/* Keeps a mistake at the site of the call in progress. The first mistake at a site may take memory.
   `word2` has the rows of the block in question, as in an entry without a side record; 0: no block
   is in question. Returns 1 if the mistake is the first of its kind at the site. Requires: no lock
   is held but the orphan lock. */
MLI_PRIVATE MLI_COLD int mli_anomaly_note(memlord *lord, int kind, memlord_device device,
                                          uint64_t storage, uint64_t bytes, uint64_t word2);
/* Keeps and logs this mistake: a call ended a tag or a scope, and none was open. `caller` is the
   return address of that call; NULL: it is not known. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD void mli_end_misplaced(memlord *lord, const void *caller);

/* Logs the mistakes that are not logged yet. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD void mli_anomalies_log(memlord *lord);
/* Ends a call that may have noted a mistake: logs it. If the call was made by the ledger's logger,
   logs nothing: the next call that the thread ends here logs the mistake. */
static MLI_HOT void mli_anomalies_tell(memlord *lord) {
    if (MLI_UNLIKELY(mli_self.untold == lord->generation)) mli_anomalies_log(lord);
}

/* Copies the mistake with a number, from 0, with its sites as reports show them. Returns 0 if there
   is no mistake with that number. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD int mli_anomaly_read(memlord *lord, uint32_t number, memlord_anomaly *out);
/* Returns how many mistakes were at sites that found no room in the list. */
MLI_PRIVATE MLI_COLD uint64_t mli_anomalies_left_out(memlord *lord);

/* Returns what is wrong with the storage or the size of a block; NULL: both are right. */
MLI_PRIVATE MLI_COLD const char *mli_block_fault(uint64_t storage, uint64_t bytes);
/* Ends a public call that returns r: logs the mistakes of the call, and returns r. If r is
   MEMLORD_E_INVALID or MEMLORD_E_DEVICE, also counts the refusal and keeps it as a mistake at
   `site`. The refusal is logged if it is the first at the site, or the function's first with that
   result, and if the call was not made by the logger. A call that the ledger's allocator makes is
   neither counted nor logged. `fault` says what is wrong with an argument; NULL: that is not known.
   Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD memlord_result mli_refuse(memlord *lord, int refuser, memlord_result r,
                                               memlord_device d, const char *fault,
                                               const memlord_site *site);

MLI_PRIVATE MLI_COLD void mli_anomalies_life(mli_life *life);

#endif
