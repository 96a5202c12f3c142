/* Runs a request of memlord_alloc_retry through out-of-memory: its attempts, the retiring and
   collecting between them, the pause. Owns the default policy. Uses books/limits, calls/deferred,
   services/bands, services/pollers and calls/. Invariant: the bytes of a request are reserved while
   it tries, those that tickets of its thread cover in their place. Locks: callbacks for the list of
   waiters, the physical device's for its last failure, one at a time; none while host code runs. */
#ifndef MLI_SERVICES_RETRY_H
#define MLI_SERVICES_RETRY_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"

MLI_TABLE(const memlord_retry mli_default_retry)

/* Parses a policy. After an error *out is unchanged. */
MLI_PRIVATE MLI_COLD memlord_result mli_retry_parse(const char *text, memlord_retry *out);

MLI_PRIVATE MLI_COLD void mli_retry_life(mli_life *life);

#endif
