/* Owns the output of reports: to the host's function, to a file, at the end of the process, on
   request. Uses reports/ and the snapshots.
   Invariants: a report file is complete when it gets its name; a failed one leaves no file behind;
   a request (memlord_request_save) is safe in a signal handler and is served by a later call.
   Locks: registry, to choose the ledger to save at exit; none while the host's function writes. */
#ifndef MLI_EMBED_SAVING_H
#define MLI_EMBED_SAVING_H
#include "api/api.h"
#include "os/compiler.h"
#include "os/knobs.h"
#include "base/ledger.h"

MLI_PRIVATE MLI_COLD void mli_saving_life(mli_life *life);

#endif
