#include "base/numbers.h"

/* Clamps before it converts, because a compiler may convert what a later test then drops. */
MLI_PRIVATE MLI_COLD uint64_t mli_whole(double v) {
    v = v > 0 ? v : 0;
    return (uint64_t)(int64_t)(v < 9e18 ? v : 9e18);
}

/* Looks at bits only: a comparison with a NaN raises INVALID, and -ffast-math leaves it out. */
MLI_PRIVATE MLI_COLD MLI_NOINLINE double mli_argument(const double *from) {
    uint64_t bits;
    double v = -1;
    memcpy(&bits, from, sizeof bits);
    if (!(bits << 1)) return 0;
    if (bits >> 52 >= 1023 - 64 && bits >> 52 < 2047) memcpy(&v, &bits, sizeof v);
    return v;
}

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
    if (v <= 0) return 0; /* the root of a v below 0 may pass 0, by which it would be divided */
    for (i = 0; i < 80; i++) root = (root + v / root) / 2; /* Newton's method */
    return mli_whole(root + 0.5);
}

/* A series gives q = 1 - exp(-y) for a small y. Each doubling of y turns q into q (2 - q). */
MLI_PRIVATE MLI_COLD double mli_sample_scale(double x) {
    double q, y = x;
    int doublings = 0;
    if (x > 40) return 1;
    for (; y > 1.0 / 16; y /= 2) doublings++;
    q = y * (1 - y / 2 * (1 - y / 3 * (1 - y / 4 * (1 - y / 5 * (1 - y / 6 * (1 - y / 7))))));
    while (doublings--) q *= 2 - q;
    return 1 / q;
}

/* The function is the finalizer of the random number generator splitmix64. */
MLI_PRIVATE MLI_COLD uint64_t mli_mixed(uint64_t n) {
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9u;
    n = (n ^ n >> 27) * 0x94d049bb133111ebu;
    return n ^ n >> 31;
}
