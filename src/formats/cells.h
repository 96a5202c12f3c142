/* Writes the cells of answers as text. Owns no state. Locks: none. */
#ifndef MLR_FORMATS_CELLS_H
#define MLR_FORMATS_CELLS_H
#include "answers/answers.h"

/* Writes a number of a type to a buffer of 48 bytes; "-": not known. Bytes have two decimals, so
   that they stand below each other. */
MLR_PRIVATE void mlr_cell_number(char *buffer, mlr_type type, uint64_t number);
/* Returns 1 if a column has nothing in any row. */
MLR_PRIVATE int mlr_column_is_empty(const mlr_table *t, uint32_t column);
/* Returns how many rows beyond `shown` there are, with those that are not in the table. */
MLR_PRIVATE uint64_t mlr_rows_left(const mlr_table *t, uint32_t shown);

#endif
