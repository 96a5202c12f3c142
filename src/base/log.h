/* Owns the logger, the function of the host that receives MemLord's messages. Invariant: a debug
   line is formatted only if the logger receives messages of its level. Lock: MLI_RANK_LOG, for the
   logger and the number of its calls in progress; none is held while the logger runs. */
#ifndef MLI_BASE_LOG_H
#define MLI_BASE_LOG_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/text.h"
#include "base/ledger.h"

/* Returns 1 if the logger receives messages of this level. */
MLI_PRIVATE MLI_COLD int mli_log_hears(const memlord *lord, int level);
/* Returns 1 if the thread is in this ledger's logger. */
MLI_PRIVATE MLI_COLD int mli_log_runs(const memlord *lord);

/* Passes a line to the logger. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD void mli_log(memlord *lord, int level, const char *text);

/* Terminates the line in a buffer and logs it. */
MLI_PRIVATE MLI_COLD void mli_log_end(memlord *lord, int level, mli_out *o);

/* Formats a line as mli_putf does, cut to 255 bytes, and logs it. */
MLI_PRIVATE MLI_COLD MLI_PRINTF_LIKE(3) void mli_logf(memlord *lord, int level, const char *form,
                                     ...);

/* Logs a warning and sets *said to 1, unless it is 1. A thread without a record of its own does not
   warn, because it may hold the orphan lock, and mli_log requires that no lock is held. */
MLI_PRIVATE MLI_COLD void mli_drop_warn(memlord *lord, mli_u32 *said, const char *text);

/* Writes an amount as "1.5 KiB in 2 blocks". */
MLI_PRIVATE MLI_COLD void mli_put_amount(mli_out *o, uint64_t bytes, uint64_t blocks);

MLI_TABLE(const mli_life mli_log_life)

#endif
