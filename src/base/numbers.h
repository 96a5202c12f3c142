/* Has the arithmetic that a host without libm lacks: a logarithm, a square root, and the number of
   blocks that a sampled block stands for. It also has a hash of numbers. It owns no state, and may
   use os/. Locks: none. */
#ifndef MLI_BASE_NUMBERS_H
#define MLI_BASE_NUMBERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

/* Returns the natural logarithm of n / 2^53, for n from 1 to 2^53, to 12 digits. */
MLI_PRIVATE MLI_COLD double mli_log_of(uint64_t n);
/* Returns the square root of v, rounded. The result is 0 for a v that is not above 0. */
MLI_PRIVATE MLI_COLD uint64_t mli_square_root(double v);
/* Returns 1 / (1 - exp(-x)), the number of blocks that a block stands for if it is sampled with the
   probability 1 - exp(-x). Requires: x > 0. */
MLI_PRIVATE MLI_COLD double mli_sample_scale(double x);
/* Returns a hash of n: each bit of the result depends on all bits of n. */
MLI_PRIVATE MLI_COLD uint64_t mli_mixed(uint64_t n);

#endif
