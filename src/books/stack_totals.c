#include "books/stack_totals.h"
#include "base/atomics.h"
#include "base/numbers.h"
#include "books/counters.h"
#include "books/picks.h"
#include "books/stacks.h"

MLI_PRIVATE MLI_COLD mli_stack_totals mli_stack_totals_of(const memlord *lord, uint32_t number) {
    const mli_stack_row *row = mli_stack_row_at(lord, number);
    mli_stack_totals sum;
    uint64_t bits;
    double variance;
    sum.samples = mli_u64_load_acquire(&row->samples); /* pairs with the adds of mli_stack_debit */
    sum.picked_bytes = mli_u64_load_acquire(&row->picked_bytes);
    sum.allocs = (double)mli_u64_load(&row->allocs) / MLI_STACK_UNITS;
    sum.alloc_bytes = mli_u64_load(&row->alloc_bytes);
    sum.temporaries = mli_u64_load(&row->temporaries);
    sum.live = mli_u64_load(&row->live);
    sum.peak = mli_u64_load(&row->peak);
    if (sum.peak < sum.live) sum.peak = sum.live;
    sum.held = mli_u64_load(&row->held);
    bits = mli_u64_load(&row->blocks) ? mli_u64_load(&row->variance) : 0;
    memcpy(&variance, &bits, sizeof variance); /* rounding may make `variance` negative */
    sum.error = mli_square_root(variance);
    return sum;
}
MLI_PRIVATE MLI_COLD uint64_t mli_stack_stat_fill(memlord *lord, uint32_t number,
                                                  memlord_stack_stat *out) {
    const mli_stack_totals sum = mli_stack_totals_of(lord, number);
    memset(out, 0, sizeof *out);
    out->device = mli_device_record_at(lord, mli_stack_row_at(lord, number)->dev)->device;
    out->alloc_bytes = sum.alloc_bytes;
    out->allocs = (uint64_t)(sum.allocs + 0.5);
    out->live_bytes = sum.live;
    out->peak_bytes = sum.peak;
    out->samples = sum.samples;
    out->temporaries = sum.temporaries;
    out->error_bytes = sum.error;
    return sum.held;
}
MLI_PRIVATE MLI_COLD void mli_stacks_hold(memlord *lord, uint32_t dev) {
    uint32_t i = mli_u32_load_acquire(&mli_device_record_at(lord, dev)->stack);
    while (i) {
        mli_stack_row *row = mli_stack_row_at(lord, i);
        mli_u64_store(&row->held, mli_u64_load(&row->live));
        i = row->older;
    }
}
