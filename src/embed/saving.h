/* Owns the output of reports to the host's function or to a file: at once, on request, or at the
   end of the process. Invariants: a report file is complete when it gets its name, and a failed
   report leaves no file; a request is safe in a signal handler. Locks: the registry lock, to choose
   the ledger to save at exit; none while the host's function writes. */
#ifndef MLI_EMBED_SAVING_H
#define MLI_EMBED_SAVING_H
#include "api/api.h"
#include "os/compiler.h"
#include "os/knobs.h"
#include "base/ledger.h"

MLI_TABLE(const mli_life mli_saving_life)

#endif
