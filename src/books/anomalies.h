/* Owns the list of the host's mistakes (anomalies), each with its site. A site is a place in the
   host's code. Also remembers which refusals were logged. A refusal is a call that ends with
   MEMLORD_E_INVALID or MEMLORD_E_DEVICE. May use books/sites, books/devices, books/counters and
   base/log. Invariants: the list has at most one entry for a kind and a site, and only a reset
   removes entries. A call without a mistake spends no time on the list. Locks: the lock with the
   rank MLI_RANK_ANOMALIES guards the list. No lock is held while a site is copied or the logger
   runs. */
#ifndef MLI_BOOKS_ANOMALIES_H
#define MLI_BOOKS_ANOMALIES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"

#define MLI_ANOMALIES 64 /* the list has at most this many entries */

/* Returns the name of a kind (MEMLORD_ANOMALY_...), as reports write it: "unknown_free". */
MLI_PRIVATE MLI_COLD const char *mli_anomaly_name(int kind);

/* Counts a mistake of a call at `site`, which may be NULL. If the list has no entry for the kind
   and the site of the mistake, and is not full, adds an entry. Returns 1 if it added an entry.
   Allocates memory only for a new entry. `word2` (mli_word2_of) has the site and the tag of the
   block that the mistake concerns, or only the tag of arena bytes. It is 0 if there is no site and
   no tag. Requires: the caller holds no lock, except perhaps the orphan lock
   (mli_threads_state). */
MLI_PRIVATE MLI_COLD int mli_anomaly_note(memlord *lord, const memlord_site *site, int kind,
                                          memlord_device device, uint64_t storage, uint64_t bytes,
                                          uint64_t word2);
/* Records and logs the mistake of a call that ended a tag or a scope when none was open. `caller`
   is the return address of that call, or NULL if it is unknown. Requires: the caller holds no
   lock. */
MLI_PRIVATE MLI_COLD void mli_end_misplaced(memlord *lord, const void *caller);

/* Logs the mistakes that are not logged yet, as a call ends, except refusals, which mli_refuse
   logs. If the ledger's logger made the call, logs nothing: a later call logs these mistakes.
   Requires: the caller holds no lock. */
MLI_PRIVATE void mli_anomalies_tell(memlord *lord);

/* Copies mistake `number`, counted from 0, with its sites as reports show them. Returns 0 if there
   is no such mistake. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD int mli_anomaly_read(memlord *lord, uint32_t number, memlord_anomaly *out);
/* Returns how often a mistake found no room in the list. */
MLI_PRIVATE MLI_COLD uint64_t mli_anomalies_left_out(memlord *lord);

/* Returns what is wrong with the storage or the size of a block, or NULL if both are right. */
MLI_PRIVATE MLI_COLD const char *mli_block_fault(uint64_t storage, uint64_t bytes);
/* Ends a public call, and returns its result `r`. Logs the mistakes that the call noted. If r is
   MEMLORD_E_INVALID or MEMLORD_E_DEVICE, counts the refusal and adds it to the list as a mistake at
   `site`. Logs the refusal if it is a new entry of the list, or if the public function (`refuser`,
   MLI_REFUSER_...) has not refused a call with this result before. Logs no refusal of a call that
   the logger makes. If the ledger's own allocator makes the call, only returns r. `fault` says what
   is wrong with an argument, or is NULL if that is unknown. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD memlord_result mli_refuse(memlord *lord, int refuser, memlord_result r,
                                               memlord_device d, const char *fault,
                                               const memlord_site *site);

/* Forgets all anomalies. */
MLI_PRIVATE MLI_COLD void mli_anomalies_reset(memlord *lord);
MLI_PRIVATE MLI_COLD void mli_anomalies_life(mli_life *life);

#endif
