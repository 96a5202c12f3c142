/* Owns the pollers, the threads that sample a physical device each. May use books/ and services/.
   Invariant: no poller starts before there is something to decide. Locks: none. */
#ifndef MLI_SERVICES_POLLERS_H
#define MLI_SERVICES_POLLERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"

MLI_PRIVATE MLI_COLD void mli_pollers_life(mli_life *life);

#endif
