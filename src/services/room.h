/* Owns the capacity sources and the counts of the host's pools, and computes whether a request has
   room: samples, limits, headroom, plans, pressure, why a request is refused. May use books/limits
   and services/bands. Invariants: one thread at a time calls a source for a phys, and holds no
   lock; an impossible sample counts as unknown. Locks: callbacks for sources and their callers,
   then phys for a sample. */
#ifndef MLI_SERVICES_ROOM_H
#define MLI_SERVICES_ROOM_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/text.h"

/* Returns the directory that has proc and sys of the machine; "": the root. */
MLI_PRIVATE MLI_COLD const char *mli_proc_root(const memlord *lord);

#define MLI_POLL_MS_MIN 10 /* ms: the shortest interval */
/* Return and set the interval at which pollers sample. */
MLI_PRIVATE MLI_COLD uint32_t mli_poll_ms(const memlord *lord);
MLI_PRIVATE MLI_COLD uint64_t mli_poll_ns(const memlord *lord);
MLI_PRIVATE MLI_COLD void mli_poll_ms_set(memlord *lord, uint32_t ms);

typedef struct mli_capacity_reader {
    memlord_capacity_fn fn;
    void *user;
} mli_capacity_reader;
MLI_PRIVATE MLI_COLD mli_capacity_reader mli_capacity_reader_of(memlord *lord, int type);
/* Samples a phys through its source, then checks the bands of its devices. E_STATE: another thread
   is sampling it. E_UNSUPPORTED: it has no source. E_UNKNOWN: the source gave no usable sample. */
MLI_PRIVATE MLI_COLD memlord_result mli_phys_sample(memlord *lord, mli_phys *phys);

/* Samples a physical device that has no running poller and whose sample is older than the interval.
   Requires: a safe point. */
MLI_PRIVATE MLI_COLD void mli_phys_sample_refresh(memlord *lord, mli_phys *phys);

/* Samples the phys of every known device for a report, as a reader of the capacity does. */
MLI_PRIVATE MLI_COLD void mli_capacities_refresh(memlord *lord, int own);

/* Reads the name of another process; "" if the system does not tell. Drivers number processes as
   the first pid namespace does: inside another namespace the numbers would name other processes. */
MLI_PRIVATE MLI_COLD void mli_process_name(const memlord *lord, uint64_t pid, char *name,
                                           size_t cap);

/* Writes "; others: pid 4711 (python3) holds 31.2 GiB, pid 12 holds 1 GiB" with `head` before the
   first. Writes nothing if no other process is known. */
MLI_PRIVATE MLI_COLD void mli_put_others(const memlord *lord, mli_out *o, const char *head,
                                         const memlord_capacity *sample, size_t most);

/* Logs the explanation of a refusal after `head`. Without a logger it walks nothing. */
MLI_PRIVATE MLI_COLD void mli_log_explain(memlord *lord, int level, const char *head,
                                          memlord_device d, uint64_t wanted, uint64_t covered);

/* Returns 1 at most once a second of the ledger's clock. *last is 0 at first, then 1 ns more than
   the time at which it last returned 1. */
MLI_PRIVATE MLI_COLD int mli_log_due(memlord *lord, mli_u64 *last);
/* Counts and logs a request that is over the limit of its account, and returns 1. 0: it is not.
   Requires: no lock is held. */
MLI_PRIVATE MLI_COLD int mli_account_log_refusal(memlord *lord, memlord_account account,
                                                uint64_t wanted);

MLI_PRIVATE MLI_COLD void mli_room_life(mli_life *life);

#endif
