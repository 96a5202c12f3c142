/* Owns the list of the host's mistakes (anomalies), each with its site, and which refusals were
   logged. Invariants: the list has at most one entry for a kind and a site, and only a reset
   removes entries; a call without a mistake spends no time on the list. Lock: MLI_RANK_ANOMALIES;
   none is held while a site is copied or the logger runs. */
#ifndef MLI_BOOKS_ANOMALIES_H
#define MLI_BOOKS_ANOMALIES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"

#define MLI_ANOMALIES 64 /* the list has at most this many entries */

/* Returns the name of a kind (MEMLORD_ANOMALY_...), as reports write it: "unknown_free". */
MLI_PRIVATE MLI_COLD const char *mli_anomaly_name(int kind);

/* Counts a mistake of a call at `site`, which may be NULL. Returns 1 if it added an entry to the
   list, for which alone it allocates memory. `word2` (mli_word2_of) has the site and the tag of the
   block that the mistake concerns, or only the tag of arena bytes, or is 0. Requires: the caller
   holds no lock, except perhaps the orphan lock. */
MLI_PRIVATE MLI_COLD int mli_anomaly_note(memlord *lord, const memlord_site *site, int kind,
                                          memlord_device device, uint64_t storage, uint64_t bytes,
                                          uint64_t word2);
/* Records and logs the end of a tag or a scope when none was open. `caller` is the return address
   of that call, or NULL if it is unknown. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD void mli_end_misplaced(memlord *lord, const void *caller);

/* Logs the mistakes that are not logged yet, as a call ends, except refusals (mli_refuse); a later
   call does, if the ledger's logger made this one. Requires: the caller holds no lock. */
MLI_PRIVATE void mli_anomalies_tell(memlord *lord);

/* Copies mistake `number`, from 0, with its sites as reports show them. Returns 0 if there is none.
   Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD int mli_anomaly_read(memlord *lord, uint32_t number, memlord_anomaly *out);
MLI_PRIVATE MLI_COLD uint64_t mli_anomalies_left_out(memlord *lord);

/* Returns what is wrong with the storage or the size of a block, or NULL if both are right. */
MLI_PRIVATE MLI_COLD const char *mli_block_fault(uint64_t storage, uint64_t bytes);
/* Ends a public call, and returns its result `r`. Logs the mistakes that the call noted. A refusal
   is an `r` of MEMLORD_E_INVALID or MEMLORD_E_DEVICE; it counts as a mistake at `site`. It is
   logged if it is a new entry of the list, or the first with this result from this public function
   (`refuser`, MLI_REFUSER_...), but not for a call that the logger makes. If the ledger's own
   allocator makes the call, only returns r. `fault` says what is wrong with an argument, or is
   NULL. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD memlord_result mli_refuse(memlord *lord, int refuser, memlord_result r,
                                               memlord_device d, const char *fault,
                                               const memlord_site *site);

MLI_PRIVATE MLI_COLD void mli_anomalies_reset(memlord *lord);
MLI_TABLE(const mli_life mli_anomalies_life)

#endif
