/* Compares the ledger with itself: memlord_verify. Owns no state. Uses books/map, books/counters,
   books/names, books/sites, books/fences, books/parts, books/blocks and books/limits. Invariants:
   the map is stopped during the walk, as for a fork, so that the ledger's own threads change
   nothing meanwhile; the first check that fails ends the walk, and its line is logged when nothing
   is held. Locks: cold, all shards and fences for all of it; phys, one at a time. */
#ifndef MLI_SERVICES_VERIFY_H
#define MLI_SERVICES_VERIFY_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "base/text.h"

/* What the map holds of one row. */
typedef struct mli_verify_sum {
    uint64_t bytes, blocks, pending;
} mli_verify_sum;

typedef struct mli_verify {
    memlord *lord;
    mli_verify_sum *sums[MLI_BOOKS]; /* by row number */
    uint32_t rows[MLI_BOOKS];        /* rows and 1 more */
    mli_shard *shard;                /* the one walked now */
    uint32_t displaced;              /* entries of it outside their home */
    mli_verify_sum detached;         /* off the map and still counted: see mli_thread */
    mli_verify_sum missing;          /* what all devices count and the map does not hold */
    mli_verify_sum taken;            /* blocks with a stack, and their weight */
    mli_out text;
    char line[512];
} mli_verify;
/* Writes the line of a failed check. Returns 1. */
MLI_PRIVATE MLI_COLD MLI_PRINTF_LIKE(2) int mli_verify_fail(mli_verify *v, const char *form, ...);

#endif
