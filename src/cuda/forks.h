/* Owns what a forked child finds: no driver, nothing attached, no lock held. May use all modules of
   the layer. Invariant: no lock of the ledger is held while one of the layer is taken, nor the
   other way; one of the layer may be held while the driver is asked. Locks: all of the layer, but
   those of loading. */
#ifndef MLI_CUDA_FORKS_H
#define MLI_CUDA_FORKS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"

/* Handlers before a fork run in the opposite order of their registration. These are registered
   after the driver is loaded, and so take the layer's locks before the driver's own handlers run,
   and mostly before the ledger's. A fork waits for no call of the driver. The locks of loading are held while the driver or NVML loads, which may fork
   itself: neither the fork nor a child takes them. */

#endif
