/* Has the arithmetic that a host without libm lacks: a logarithm, a square root, and the number of
   blocks that a sampled block stands for. It also has a hash of numbers. It owns no state, and may
   use os/. Locks: none.
   A host may trap floating-point errors, or be compiled with -ffast-math. So no code raises INVALID,
   DIVBYZERO, OVERFLOW or UNDERFLOW, and none makes a NaN: -1 stands for a number that is not
   known. */
#ifndef MLI_BASE_NUMBERS_H
#define MLI_BASE_NUMBERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

/* Returns v without its decimals, but at least 0 and at most 9e18. */
MLI_PRIVATE MLI_COLD uint64_t mli_whole(double v);
/* Reads a number that the host has given. Returns -1 if it is below 0, above 0 but below 2^-64,
   infinite or a NaN. */
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
