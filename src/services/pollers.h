/* Owns the pollers. Invariant: a poller starts only if a band may need its samples, or if the host
   asks for pollers. Locks: none. */
#ifndef MLI_SERVICES_POLLERS_H
#define MLI_SERVICES_POLLERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"

MLI_TABLE(const mli_life mli_pollers_life)

#endif
