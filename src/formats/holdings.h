/* Makes the rows that formats of stacks write: what each stack, or site without one, has live, has
   allocated, or held at the peak. Owns mlr_holdings, a list. Invariant: the rows of a device add up
   to the number of the books. Locks: none. */
#ifndef MLR_FORMATS_HOLDINGS_H
#define MLR_FORMATS_HOLDINGS_H
#include "profile/profile.h"
#include "formats/frames.h"

typedef struct mlr_holding {
    mlr_where where;
    uint32_t device, tag;
    uint64_t blocks, bytes;
    const char *part; /* the name of a part of a block, whose bytes the row has; NULL: none */
} mlr_holding;
typedef struct mlr_holdings {
    mlr_holding *at;
    size_t count, room;
    int failed; /* 1: there was no memory for a row */
} mlr_holdings;

/* Each of these fills an empty list. mlr_holdings_free frees it. */

/* What is live, by device, tag, scope and stack. Parts have rows of their own, if the blocks are
   listed, and no row has the bytes twice. */
MLR_PRIVATE void mlr_holdings_live(const mlr_profile *p, mlr_holdings *rows);
/* What is live without the blocks that the profile lists, and without those of `others`, which may
   be NULL. */
MLR_PRIVATE void mlr_holdings_unlisted(const mlr_profile *p, const mlr_holdings *others,
                                       mlr_holdings *rows);
/* What was allocated since the last reset. A realloc at another site counts there, too, so that
   these rows may have more than the device. */
MLR_PRIVATE void mlr_holdings_allocated(const mlr_profile *p, mlr_holdings *rows);
/* What was live at the peak of each device; where more is live than the ledger has noted then, who
   has it now. */
MLR_PRIVATE void mlr_holdings_peak(const mlr_profile *p, mlr_holdings *rows);

/* Adds a row that is not of 0 blocks and 0 bytes. */
MLR_PRIVATE void mlr_holding_add(mlr_holdings *rows, const mlr_holding *row);
MLR_PRIVATE mlr_holding mlr_holding_of_block(const mlr_block *block);

MLR_PRIVATE void mlr_holdings_free(mlr_holdings *rows);

/* Returns the peak of a device: of the books, and never below what is live. */
MLR_PRIVATE uint64_t mlr_device_peak(const mlr_device *device);

/* Takes up to `bytes` off a number, and returns how many it has taken. */
MLR_PRIVATE uint64_t mlr_take(uint64_t *number, uint64_t bytes);

#endif
