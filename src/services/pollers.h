/* Does the work for the end of a call and for a safe point. Owns the pollers, the threads that
   sample a physical device each, and the waiters for frees. May use books/, calls/deferred and
   services/. Invariant: no poller starts before there is something to decide. Locks: callbacks, for
   waiters and callbacks; registry, for the sweep; none while host code runs. */
#ifndef MLI_SERVICES_POLLERS_H
#define MLI_SERVICES_POLLERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/system.h"
#include "base/ledger.h"
#include "books/threads.h"

/* A thread that waits for frees. It lies on the stack of that thread.
   The list is under the callbacks lock. */
typedef struct mli_waiter {
    struct mli_waiter *next;
    mli_phys *phys;
    uint64_t needed, freed_before; /* bytes it waits for; bytes freed there before it waited */
    mli_os_event event;
} mli_waiter;

/* Puts a waiter on the list, whose event a call sets once enough was freed; takes it off again. */
MLI_PRIVATE MLI_COLD void mli_waiter_begin(memlord *lord, mli_waiter *w);
MLI_PRIVATE MLI_COLD void mli_waiter_end(memlord *lord, mli_waiter *w);

/* Samples a physical device that has no running poller and whose sample is older than the interval.
   Requires: a safe point. */
MLI_PRIVATE MLI_COLD void mli_phys_sample_refresh(memlord *lord, mli_phys *phys);

/* Returns the bytes ever freed at a physical device, modulo 2^64. */
MLI_PRIVATE uint64_t mli_phys_freed(memlord *lord, const mli_phys *phys);


/* Ends a call that found an alert: for its device, and for the other one that the call has taken
   bytes from, if there is one. A thread without the system's barrier passes a full barrier of
   its own here: the addition, which pairs with the one in mli_barrier_threads. The later of
   the two sees what the other thread stored before its addition. After it the thread compares its
   counts with the marks of its devices again, and reads the alert again. */
MLI_PRIVATE MLI_NOINLINE void mli_call_end_slow(memlord *lord, mli_thread *t, uint32_t dev,
                                                int asks);

MLI_PRIVATE MLI_COLD void mli_pollers_life(mli_life *life);

#endif
