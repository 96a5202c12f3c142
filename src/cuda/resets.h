/* Has what memlord_cuda_device_reset does before the real call. Owns no state. Locks: none. */
#ifndef MLI_CUDA_RESETS_H
#define MLI_CUDA_RESETS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/driver.h"

/* Frees, in the ledger, the blocks whose memory a reset of the device frees. Waits for the work
   that pending frees on the device's streams wait for, as the reset itself would. Requires: the
   reset has not begun, so that the streams and events still exist. */
MLI_CUDA_PRIVATE void mli_cuda_reset_begin(memlord *lord, const mli_cuda_driver *d, int device,
                                           const memlord_site *site);

#endif
