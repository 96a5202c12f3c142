#include "base/numbers.h"

/* Computes the logarithm from m, which is n times a power of two, by the series 2 (z + z^3/3 +
   z^5/5 ...) with z = (m - 1) / (m + 1). */
MLI_PRIVATE MLI_COLD double mli_log_of(uint64_t n) {
    double m = (double)n, e = -53, z, z2, sum = 0;
    int i;
    while (m >= 1.5) {
        m /= 2;
        e++;
    }
    z = (m - 1) / (m + 1);
    z2 = z * z;
    for (i = 17; i > 0; i -= 2) sum = sum * z2 + 1.0 / i;
    return 2 * z * sum + e * 0.693147180559945309;
}

MLI_PRIVATE MLI_COLD uint64_t mli_square_root(double v) {
    double root = v < 1 ? 1 : v;
    int i;
    for (i = 0; i < 80; i++) root = (root + v / root) / 2; /* Newton's method */
    return v > 0 ? (uint64_t)(root + 0.5) : 0;
}
