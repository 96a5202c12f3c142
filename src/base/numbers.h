/* Has what a host without libm lacks: a logarithm, a square root, and what a sample stands for. It
   also mixes the bits of random numbers. It owns no state, and may use os/. Locks: none. */
#ifndef MLI_BASE_NUMBERS_H
#define MLI_BASE_NUMBERS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

/* Returns the natural logarithm of n / 2^53, for n from 1 to 2^53, to 12 digits. */
MLI_PRIVATE MLI_COLD double mli_log_of(uint64_t n);
/* Returns the square root of v, rounded. The result is 0 for a v that is not above 0. */
MLI_PRIVATE MLI_COLD uint64_t mli_square_root(double v);
/* Returns 1 / (1 - exp(-x)), for x > 0. */
MLI_PRIVATE MLI_COLD double mli_sample_scale(double x);
/* Returns a number whose bits all depend on all of n. */
MLI_PRIVATE MLI_COLD uint64_t mli_mixed(uint64_t n);

#endif
