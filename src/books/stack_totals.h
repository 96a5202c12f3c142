/* Reads the totals of the stacks of allocs, and notes the live bytes at a peak. Owns no state:
   books/stacks has the rows. Locks: none. */
#ifndef MLI_BOOKS_STACK_TOTALS_H
#define MLI_BOOKS_STACK_TOTALS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"

/* The totals of a row at one moment. `error` is the standard deviation of the estimate `live`. */
typedef struct mli_stack_totals {
    uint64_t alloc_bytes, picked_bytes, samples, temporaries, live, peak, held, error;
    double allocs;
} mli_stack_totals;

/* Copies `live` to `held` in every row of a device, at a peak of the device. */
MLI_PRIVATE MLI_COLD void mli_stacks_hold(memlord *lord, uint32_t dev);
/* Returns the totals of a row. They may include only a part of an alloc in progress. */
MLI_PRIVATE MLI_COLD mli_stack_totals mli_stack_totals_of(const memlord *lord, uint32_t number);
/* Writes a row's totals to *out, without frames. Returns its bytes at the peak of its device. */
MLI_PRIVATE MLI_COLD uint64_t mli_stack_stat_fill(memlord *lord, uint32_t number,
                                                  memlord_stack_stat *out);

#endif
