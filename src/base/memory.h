/* Owns the ledger's own memory: regions from its allocator, cut into pieces. The allocator is the
   host's, or else the os allocator, which this module has. Invariant: while the allocator runs, the
   thread holds no lock and is marked busy, so that a call that the allocator makes into a ledger
   does nothing there. Locks: MLI_RANK_MEMORY, for regions and pieces; MLI_RANK_PAGES, in the os
   allocator. */
#ifndef MLI_BASE_MEMORY_H
#define MLI_BASE_MEMORY_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"

#define MLI_PIECE_MAX_BITS 14 /* log2 of the largest piece, in bytes; at most MLI_REGION_BITS */

/* mli_busy_begin and mli_busy_end surround each call of the host's allocator, and of system
   functions that may call a malloc which the host has hooked. In between the thread is busy:
   mli_self.generation is 0, so a call into a ledger takes the general path, and does nothing there.
   A thread without a record of its own uses the orphan record under the orphan lock. It drops this
   lock while it is busy. Otherwise it could wait in the allocator for a lock of the host, while the
   thread that holds the host's lock waits for the orphan lock. So no call may rely on state
   in the orphan record across an allocation. */
MLI_PRIVATE MLI_COLD uint64_t mli_busy_begin(void);
MLI_PRIVATE MLI_COLD void mli_busy_end(uint64_t generation);

/* Returns a zeroed piece, or NULL if no region has one that is large enough. Calls no allocator. */
MLI_PRIVATE void *mli_piece_new(memlord *lord, size_t size);

/* Returns zeroed memory of at least `size` bytes, or NULL. Requires: the thread holds no lock but
   the orphan lock, which mli_busy_begin drops. */
MLI_PRIVATE MLI_NOINLINE void *mli_own_alloc(memlord *lord, size_t size);

/* Frees memory of mli_own_alloc. Requires: `size` is what mli_own_alloc was asked for. */
MLI_PRIVATE MLI_NOINLINE void mli_own_free(memlord *lord, void *ptr, size_t size);

/* Returns how many bytes the ledger has from the allocator. */
MLI_PRIVATE MLI_COLD uint64_t mli_own_bytes(const memlord *lord);

/* Allocates zeroed bytes for a ledger and the states behind it, or returns NULL. */
MLI_PRIVATE MLI_COLD memlord *mli_ledger_new(const memlord_allocator *allocator, size_t size);
/* Frees a ledger and all memory that it still has. */
MLI_PRIVATE MLI_COLD void mli_ledger_delete(memlord *lord);

MLI_TABLE(const mli_life mli_memory_life)

#endif
