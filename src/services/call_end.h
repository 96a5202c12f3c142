/* Does the work that is due at the end of a call and at a safe point. A safe point is a moment at
   which code of the host may run. The alert mask of the ledger has a bit for each kind of work that
   is due. A band check compares a device with the thresholds of its bands, and runs the host's
   callbacks if a threshold is reached. A fence is something of the host that a freed block waits
   for. A poller is a thread that samples a physical device. Owns the list of the threads that wait
   for frees. May use books/, calls/deferred and services/. It reaches services/pollers by a pointer
   of the ledger, because services/pollers includes this module. Locks: callbacks, for the list;
   none while host code runs. */
#ifndef MLI_SERVICES_CALL_END_H
#define MLI_SERVICES_CALL_END_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/system.h"
#include "base/ledger.h"
#include "books/threads.h"

/* A thread that waits for frees. The record lies on the stack of that thread. The callbacks lock
   guards the list of these records. */
typedef struct mli_waiter {
    struct mli_waiter *next;
    mli_phys *phys;
    uint64_t needed;       /* bytes that the thread waits for */
    uint64_t freed_before; /* bytes ever freed at the physical device before the thread waited */
    mli_os_event event;
} mli_waiter;

/* mli_waiter_begin puts a waiter on the list, and mli_waiter_end takes it off. In between, the end
   of a call sets the waiter's event once enough bytes were freed. */
MLI_PRIVATE MLI_COLD void mli_waiter_begin(memlord *lord, mli_waiter *w);
MLI_PRIVATE MLI_COLD void mli_waiter_end(memlord *lord, mli_waiter *w);

/* Returns the bytes ever freed at a physical device, modulo 2^64. */
MLI_PRIVATE uint64_t mli_phys_freed(memlord *lord, const mli_phys *phys);

/* Does the work of a safe point. It starts the pollers that are missing, answers the requests of
   neighbours (other ledgers), saves a snapshot and an export that are due, and writes a report that
   was requested. For the devices of a selector it ends the freed blocks whose fences are done,
   samples physical devices that have no poller, and runs band checks. It runs host code. */
MLI_PRIVATE MLI_COLD void mli_serve(memlord *lord, memlord_device sel);

MLI_TABLE(const mli_life mli_call_end_life)

#endif
