/* Owns the strategies, the collection callbacks and their runs, and the band state of each device.
   Invariant: no threshold is crossed without a band check, although a thread may hold back up to a
   batch of bytes. Locks: callbacks, for strategies, callbacks and runs; then the lock of the phys,
   for the band state; none while a callback runs. */
#ifndef MLI_SERVICES_BANDS_H
#define MLI_SERVICES_BANDS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "books/threads.h"

/* When a band check is due. A mark is a number of published bytes; a publication that passes it
   requests a check. The margin is the most bytes that threads have not yet published: a batch for
   each thread that the ledger allows for. The mark check_above lies a margin below the threshold,
   and is passed by the time that the live bytes reach it. Within a margin of the threshold the
   device is "near": every call checks at its end, with a sum over all threads. Freed bytes are not
   published: each thread checks each time it has freed as many bytes as the device's free interval.
   Cached bytes (reserved less live bytes) rise as live bytes fall; their mark check_below needs no
   margin, because published bytes are never above the live bytes. After a collection a band waits
   to rearm: it starts no other until its metric has risen by an eighth of the threshold, or has
   fallen an eighth below it. */

/* Take and drop the callbacks lock. */
MLI_PRIVATE void mli_callbacks_enter(memlord *lord);
MLI_PRIVATE void mli_callbacks_leave(memlord *lord);

/* Finds the strategy that is in force for a device, stores it in the device's record, and returns 1
   if there is one. If it has changed, the bands of the device no longer wait to rearm. Takes no
   lock if no device of its type can have one. */
MLI_PRIVATE MLI_COLD int mli_dev_watch(memlord *lord, uint32_t dev);

/* Checks a device's bands and, if `safe` (host code may run), runs a collection if one is due. */
MLI_PRIVATE MLI_COLD void mli_band_check(memlord *lord, uint32_t dev, mli_thread *t, int safe);
/* Does so on all devices that share the memory of `dev`: what is in use has changed for all. */
MLI_PRIVATE MLI_COLD void mli_phys_bands_check(memlord *lord, uint32_t dev, mli_thread *t,
                                               int safe);

/* Runs a collection on a device for a reason other than a band. Returns E_UNKNOWN if no callback
   serves the reason, and E_STATE if a collection runs already, or no callback could run. */
MLI_PRIVATE MLI_COLD memlord_result mli_collect(memlord *lord, uint32_t dev, int reason,
                                                uint64_t needed, uint64_t *reclaimed);

/* Checks the bands of the devices of a phys, or of all if it is NULL, but runs no collection, after
   strategies, thresholds or margins have changed. */
MLI_PRIVATE MLI_COLD void mli_phys_recheck(memlord *lord, const mli_phys *phys);

/* Widens the margins of all bands for all threads that exist, and a few more. */
MLI_PRIVATE void mli_thread_allowance_grow(memlord *lord);

/* Compares the counts of a device with its current marks again, and requests a check if one is
   passed, unless the device is near its threshold, because then every call checks. */
MLI_PRIVATE void mli_marks_again(memlord *lord, const mli_thread *t, uint32_t dev);

MLI_TABLE(const mli_life mli_bands_life)

#endif
