/* Owns the contexts of fibres: the open tags and scopes, the default tag, account, stream and tickets
   of work that moves between threads; and the end of a thread's record. May use books/ and
   services/scopes. Invariants: each context is in one place, which is a thread or a fibre's record;
   a thread's own context never gets into another thread. Lock: context (MLI_RANK_CONTEXT), one a
   record; cold, for new records. */
#ifndef MLI_SERVICES_CONTEXTS_H
#define MLI_SERVICES_CONTEXTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"

/* Releases the record of a thread that ends or has ended: puts the contexts of fibres that it is in
   back into their records, ends its own scopes, the innermost first, and gives up ownership, after
   which another thread may take the record at once. Requires: the registry lock. The addition orders
   the reads that follow after the caller's check that the thread has ended; the store pairs with
   mli_thread_spare. */
MLI_PRIVATE MLI_COLD void mli_thread_release(mli_thread *t);

#if !MLI_WINDOWS /* it has no fork */
/* Releases in a forked child the record of a thread that is gone. Its scopes never end: they are
   forgotten. It may have been about to begin or end one; whether that is counted is not known. The
   contexts of fibres that it was in stay as they are: the host may drop them. */
MLI_PRIVATE MLI_COLD void mli_thread_gone(mli_thread *t);
/* Counts in a forked child anew which scopes run. */
MLI_PRIVATE MLI_COLD void mli_contexts_recount(memlord *lord);
#endif

MLI_PRIVATE MLI_COLD void mli_contexts_life(mli_life *life);

#endif
