/* Owns what a reset of a device ends. Locks: none. */
#ifndef MLI_CUDA_RESETS_H
#define MLI_CUDA_RESETS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/driver.h"

/* Ends a device on the books while its streams and events can yet be asked: frees that are pending
   are waited for, as by the reset itself. */
MLI_CUDA_PRIVATE void mli_cuda_reset_begin(memlord *lord, const mli_cuda_driver *d, int device,
                                           const memlord_site *site);

#endif
