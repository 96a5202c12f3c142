/* Owns the capacity sources, computes whether a request has room, and says why one is refused.
   Keeps what the host says of its memory pools. Invariants: one thread at a time calls a source for
   a physical device, and holds no lock; an impossible sample counts as unknown. Locks: callbacks
   for sources and their callers, then phys for a sample. */
#ifndef MLI_SERVICES_ROOM_H
#define MLI_SERVICES_ROOM_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/text.h"

/* Returns the path of the directory with the machine's /proc and /sys, or "" if they are in /. */
MLI_PRIVATE MLI_COLD const char *mli_proc_root(const memlord *lord);

#define MLI_POLL_MS_MIN 10 /* the shortest interval of pollers, in ms */
/* Return and set the interval at which pollers sample, in ms or ns. */
MLI_PRIVATE MLI_COLD uint32_t mli_poll_ms(const memlord *lord);
MLI_PRIVATE MLI_COLD uint64_t mli_poll_ns(const memlord *lord);
MLI_PRIVATE MLI_COLD void mli_poll_ms_set(memlord *lord, uint32_t ms);

typedef struct mli_capacity_reader { /* a capacity source */
    memlord_capacity_fn fn;
    void *user;
} mli_capacity_reader;
/* Returns the capacity source of a device type. Its fn is NULL if there is none. */
MLI_PRIVATE MLI_COLD mli_capacity_reader mli_capacity_reader_of(memlord *lord, int type);
/* Samples a physical device through its source, then checks the bands there. Returns E_STATE if
   another thread does so, E_UNSUPPORTED without a source, and E_UNKNOWN without a usable sample. */
MLI_PRIVATE MLI_COLD memlord_result mli_phys_sample(memlord *lord, mli_phys *phys);

/* Samples a physical device without a running poller, if its last sample is older than the
   interval. Requires: host code may run. */
MLI_PRIVATE MLI_COLD void mli_phys_sample_refresh(memlord *lord, mli_phys *phys);

/* Samples each physical device whose sample is too old for a report, as memlord_headroom does. With
   `own` 1 runs no source of the host. */
MLI_PRIVATE MLI_COLD void mli_capacities_refresh(memlord *lord, int own);

/* Reads the name of another process, or "" if the system does not tell. Drivers number processes as
   the first pid namespace does, so the name is "" inside another one. */
MLI_PRIVATE MLI_COLD void mli_process_name(const memlord *lord, uint64_t pid, char *name,
                                           size_t cap);

/* Writes `head` and " pid 4711 (python3) holds 31.2 GiB, pid 12 holds 1 GiB" for at most `most`
   other processes of a sample, if it has any. */
MLI_PRIVATE MLI_COLD void mli_put_others(const memlord *lord, mli_out *o, const char *head,
                                         const memlord_capacity *sample, size_t most);

/* Logs `head` and what memlord_explain says of a request. Of the bytes that tickets hold on the
   device, `covered` are for the request itself. */
MLI_PRIVATE MLI_COLD void mli_log_explain(memlord *lord, int level, const char *head,
                                          memlord_device d, uint64_t wanted, uint64_t covered);

/* Returns 1 at most once a second by the ledger's clock, else 0. *last begins at 0. */
MLI_PRIVATE MLI_COLD int mli_log_due(memlord *lord, mli_u64 *last);
/* Counts a request that is over the limit of its account, logs such requests at most once a second,
   and returns 1. Returns 0 if it is within the limit. Requires: no lock is held. */
MLI_PRIVATE MLI_COLD int mli_account_log_refusal(memlord *lord, memlord_account account,
                                                uint64_t wanted);

MLI_TABLE(const mli_life mli_room_life)

#endif
