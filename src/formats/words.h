/* Writes what several formats have: numbers, the process, anomalies and drops. Owns mlr_buffer, an
   output in memory. Locks: none. */
#ifndef MLR_FORMATS_WORDS_H
#define MLR_FORMATS_WORDS_H
#include "profile/text.h"

MLR_PRIVATE void mlr_put_u64(mlr_out *o, uint64_t v);
MLR_PRIVATE void mlr_put_i64(mlr_out *o, int64_t v);
MLR_PRIVATE void mlr_put_hex(mlr_out *o, uint64_t v);
/* Writes v / 10^digits with all its digits. */
MLR_PRIVATE void mlr_put_fixed(mlr_out *o, uint64_t v, unsigned digits);
/* Writes the low n bytes of v, little-endian. */
MLR_PRIVATE void mlr_put_le(mlr_out *o, uint64_t v, unsigned n);

typedef struct mlr_buffer {
    char *at;
    size_t used, room;
} mlr_buffer;
/* A mlr_write_fn, whose user is a buffer. The owner sets `used` to 0, and frees `at`. */
MLR_PRIVATE int mlr_buffer_write(void *user, const void *data, size_t size);

/* Writes "PROGRAM, pid N on HOST, since TIME for N s". */
MLR_PRIVATE void mlr_put_process(mlr_out *o, const mlr_profile *p);

/* Returns the name of the next anomaly or drop that is not 0, and its number; NULL: there are no
   more. *i is 0 at first. Of a device, or with device 0 of all together. */
MLR_PRIVATE const char *mlr_anomaly_next(const mlr_profile *p, uint32_t device, size_t *i,
                                         uint64_t *v);
MLR_PRIVATE const char *mlr_anomaly_device(const mlr_profile *p, uint32_t device);
/* Writes "anomalies and drops, DEVICE NAME N, ..." if there are any. Returns 1 if so. */
MLR_PRIVATE int mlr_put_anomalies(mlr_out *o, const mlr_profile *p, uint32_t device);
/* Writes that stacks are samples. Returns 0 if they are not. */
MLR_PRIVATE int mlr_put_estimates(mlr_out *o, const mlr_profile *p);

#endif
