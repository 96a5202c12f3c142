/* Owns what a forked child finds: no driver, nothing attached, no lock held. Handlers before a
   fork run in the order opposite to that they were registered in: these are registered after the
   driver is loaded, and so take the layer's locks before the driver's own handlers and mostly
   before the ledger's. Calls do so, too: a lock may be held while the driver is asked, and
   no lock of the ledger while one of these is taken, nor the other way. A fork waits for no record:
   the child gives back what other threads had taken. Not taken are the locks of
   loading: they are held while the driver or NVML loads, which may fork itself, and a child takes
   neither. */
#ifndef MLI_CUDA_FORKS_H
#define MLI_CUDA_FORKS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"



#endif
