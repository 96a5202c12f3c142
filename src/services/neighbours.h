/* Owns this ledger's slot on the pressure page: what it publishes, asks and answers, and the
   listener. Uses services/pages, services/room and calls/deferred. Invariant: only the owner of a
   slot writes it. Lock: page. */
#ifndef MLI_SERVICES_NEIGHBOURS_H
#define MLI_SERVICES_NEIGHBOURS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "services/pages.h"

/* Does the listener's work at a safe point. */
MLI_PRIVATE MLI_COLD void mli_neighbours_serve(memlord *lord);

/* Returns the time left to a deadline in ms, rounded up; 0: it is over. */
MLI_PRIVATE uint32_t mli_ms_left(uint64_t deadline);

/* Starts the listener unless it runs: at the open, and in a forked child. */
MLI_PRIVATE MLI_COLD memlord_result mli_listener_start(memlord *lord);

/* Asks the neighbours of a physical device. E_STATE: no page is open; E_UNKNOWN: the device is not
   on it. Else *raise is linked until mli_raise_end. */
MLI_PRIVATE MLI_COLD memlord_result mli_raise_begin(memlord *lord, const mli_phys *phys,
                                                    uint64_t needed, mli_raise *raise);
MLI_PRIVATE MLI_COLD void mli_raise_end(memlord *lord, mli_raise *raise);

/* Returns 1 if the neighbours have released enough; -1: all have answered, and it is less, or the
   page is closed; 0: not yet. A process that ended has released all it held. */
MLI_PRIVATE MLI_COLD int mli_raise_check(memlord *lord, const mli_raise *raise);

MLI_PRIVATE MLI_COLD void mli_neighbours_life(mli_life *life);

#endif
