/* Frees the ledger's records of threads that have ended, so that other threads can take them. A
   fibre is work of the host that moves between threads; its context has its open tags and scopes.
   Owns no state. May use books/, services/scopes and services/contexts. Invariant: when another
   thread takes a record, the scopes of the record have ended. Lock: registry. mli_threads_sweep
   takes it; the callers of the other functions hold it. */
#ifndef MLI_SERVICES_THREAD_END_H
#define MLI_SERVICES_THREAD_END_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "books/threads.h"

/* Releases the record of a thread that ends or has ended. Leaves the contexts of fibres that the
   thread is in, ends the thread's scopes, the innermost first, and clears the owner of the record.
   From then on another thread may take the record. Requires: the caller holds the registry lock.
   The function first adds 0 to the owner, so that its reads come after the caller's check that the
   thread has ended. The store of the owner pairs with mli_thread_spare. */
MLI_PRIVATE MLI_COLD void mli_thread_release(mli_thread *t);

#if !MLI_WINDOWS /* Windows has no fork */
/* In a forked child: releases the record of a thread that does not exist there, and forgets the
   thread's scopes. See mli_spans_forget. */
MLI_PRIVATE MLI_COLD void mli_thread_gone(mli_thread *t);
#endif

/* Releases the records of threads that ended but whose exit hook did not run. Such a thread made
   its first call so late that the hook no longer ran. A call that took the last free record runs
   the sweep when the call ends, if there are at least twice as many records as threads that the
   last sweep found living. So the number of records is at most 16, or at most twice the number of
   living threads if that is more. The cost is bounded, too, because a sweep checks each record
   once, and at least half of the records were made or claimed since the last sweep. */
MLI_PRIVATE MLI_COLD void mli_threads_sweep(memlord *lord);

#endif
