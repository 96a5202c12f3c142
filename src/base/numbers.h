/* Has the arithmetic that a host without libm lacks, and a hash of numbers. Owns no state.
   Invariant: no code raises INVALID, DIVBYZERO, OVERFLOW or UNDERFLOW or makes a NaN, because a
   host may trap errors or use -ffast-math; -1 stands for a number that is not known. Locks:
   none. */
#ifndef MLI_BASE_NUMBERS_H
#define MLI_BASE_NUMBERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

/* Returns v without its decimals, but at least 0 and at most 9e18. */
MLI_PRIVATE MLI_COLD uint64_t mli_whole(double v);
/* Reads a number of the host; -1 if it is below 0, above 0 but below 2^-64, infinite or a NaN. */
MLI_PRIVATE MLI_COLD MLI_NOINLINE double mli_argument(const double *from);
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
