/* Defines the watch of a device, which is the state of its bands, and decides when the holders of
   the device are noted. Owns no state: a watch is a part of the device's record. Locks: see
   mli_watch. */
#ifndef MLI_BOOKS_WATCHES_H
#define MLI_BOOKS_WATCHES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"

/* The bytes of a device from which the metrics of bands are computed: the live ones, those freed
   since the last reset or collection, and those that the device's pool holds. */
typedef struct mli_levels {
    uint64_t live, freed, reserved;
} mli_levels;

/* The state of a device's bands. The lock of the device's phys guards the members that are not
   atomic, except gc_thread and gc_serial, which the callbacks lock guards. */
typedef struct mli_watch {
    mli_ptr strategy; /* mli_strategy *; changes under the locks of callbacks and of the phys */
    mli_u64 check_above, check_below; /* a check is requested when the published bytes reach
                                         check_above or fall below check_below; both are signed */
    mli_u32 near_threshold;           /* 1: every call on the device checks its bands */
    mli_u32 check_requested;          /* 1: the end of the next call checks the bands */
    mli_u64 holders_bytes;            /* those when the holders were noted last; 0: never */
    mli_u64 checks; /* how many band checks have begun. No code reads the number; the atomic
                       addition orders two checks (see mli_band_update). */
    uint64_t free_interval;     /* a thread requests a band check each time it has freed this many
                                   bytes; 0: no thread requests a check because of its frees. Buys
                                   bands on freed bytes, which no row publishes */
    int waiting_rearm;          /* 1: a collection ran, and the metric has not moved since */
    uint64_t distance;          /* how far the metric must rise after a collection; 0: an eighth */
    mli_levels gc_end;          /* the levels when the last collection ended */
    mli_u32 gc_running;         /* 1: a collection is running; an exchange sets it */
    void *gc_thread;            /* the thread that runs the collection */
    uint64_t gc_serial;         /* the serial number of the callback that runs, or 0 */
} mli_watch;

/* Returns 1 if the published bytes of a device have reached a bound that requests a band check. */
MLI_PRIVATE int mli_mark_passed(const mli_watch *w, const mli_u64 *published);
/* Returns 1 if the holders of a device are to be noted again. `live` is the device's live bytes.
   The result is 1 if `live` exceeds the live bytes at the last note by more than a 16th. While
   `live` is below `peak`, more than a 128th is enough. So holders are noted seldom while memory
   grows, and once more close to the peak. */
MLI_PRIVATE int mli_holders_due(const mli_watch *w, uint64_t live, uint64_t peak);

#endif
