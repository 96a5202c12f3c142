/* Does the work that is due at the end of a call and at a safe point; the ledger's alert mask has a
   bit for each kind. Reaches services/pollers by a pointer of the ledger, because that includes
   this module. Owns the list of the threads that wait for frees. Locks: callbacks, for the list;
   none while host code runs. */
#ifndef MLI_SERVICES_CALL_END_H
#define MLI_SERVICES_CALL_END_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/system.h"
#include "base/ledger.h"
#include "books/threads.h"

/* A thread that waits for frees, on its stack. The callbacks lock guards their list. */
typedef struct mli_waiter {
    struct mli_waiter *next;
    mli_phys *phys;
    uint64_t needed;       /* bytes that the thread waits for */
    uint64_t freed_before; /* bytes ever freed at the physical device before the thread waited */
    mli_os_event event;
} mli_waiter;

/* Puts a waiter on the list, and takes it off. In between, the end of a call sets the waiter's
   event once enough bytes were freed. */
MLI_PRIVATE MLI_COLD void mli_waiter_begin(memlord *lord, mli_waiter *w);
MLI_PRIVATE MLI_COLD void mli_waiter_end(memlord *lord, mli_waiter *w);

/* Returns the bytes ever freed at a physical device, modulo 2^64. */
MLI_PRIVATE uint64_t mli_phys_freed(memlord *lord, const mli_phys *phys);

/* Does the work of a safe point, which runs host code: starts missing pollers, answers neighbours,
   saves a snapshot and an export that are due, writes a requested report and, for a selector's
   devices, ends freed blocks whose fences are done, samples without a poller, and checks bands. */
MLI_PRIVATE MLI_COLD void mli_serve(memlord *lord, memlord_device sel);

MLI_TABLE(const mli_life mli_call_end_life)

#endif
