/* Frees the ledger's records of threads that have ended, for other threads. Owns no state.
   Invariant: when another thread takes a record, the scopes of the record have ended. Lock:
   registry. mli_threads_sweep takes it; the callers of the other functions hold it. */
#ifndef MLI_SERVICES_THREAD_END_H
#define MLI_SERVICES_THREAD_END_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "books/threads.h"

/* Releases the record of a thread that ends or has ended: leaves the fibres' contexts that it is
   in, ends its scopes, the innermost first, and clears the owner, so that another thread may take
   it. First adds 0 to the owner, so that the reads come after the check that the thread has ended.
   The store of the owner pairs with mli_thread_spare. Requires: the registry lock is held. */
MLI_PRIVATE MLI_COLD void mli_thread_release(mli_thread *t);

#if !MLI_WINDOWS /* Windows has no fork */
/* In a forked child: releases the record of a thread that is not there: see mli_spans_forget. */
MLI_PRIVATE MLI_COLD void mli_thread_gone(mli_thread *t);
#endif

/* Releases the records of threads that ended, but made their first call so late that the exit hook
   no longer ran. A call that took the last free record runs the sweep when it ends, if there are at
   least twice as many records as threads that the last sweep found living. So there are at most 16
   records, or twice as many as living threads; and at least half of those that a sweep checks were
   made or claimed since the last one. */
MLI_PRIVATE MLI_COLD void mli_threads_sweep(memlord *lord);

#endif
