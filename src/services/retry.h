/* Runs a request of memlord_alloc_retry until it has memory or fails, and owns the default policy:
   how often and how long a request retries. Invariant: while a request tries, a ticket of its own
   has reserved its bytes, or tickets of its thread cover them. Locks: callbacks for the waiting
   threads, phys for the last failure, one at a time; none while host code runs. */
#ifndef MLI_SERVICES_RETRY_H
#define MLI_SERVICES_RETRY_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"

MLI_TABLE(const memlord_retry mli_default_retry)

MLI_TABLE(const mli_life mli_retry_life)

#endif
