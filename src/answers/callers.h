/* Finds who calls a place: in each of its stacks the innermost function that is in no standard
   library, no wrapper, and not the place's own. Owns no state. Locks: none. */
#ifndef MLR_ANSWERS_CALLERS_H
#define MLR_ANSWERS_CALLERS_H
#include "answers/build.h"

#define MLR_CALLERS 32 /* the most that are told apart; the last entry has the rest */

typedef struct mlr_caller {
    uint32_t frame; /* 0: the callers beyond MLR_CALLERS */
    uint64_t live, at_peak, allocs, alloc_bytes, temporaries;
    uint64_t key; /* what they are ordered by, as the options say */
} mlr_caller;
typedef struct mlr_callers {
    uint32_t count;
    uint64_t sum; /* of the keys */
    mlr_caller at[MLR_CALLERS + 1];
} mlr_callers;

/* Finds the callers of a place (from 1), the first the largest. `by` says what is compared; if all
   are 0, what was allocated is. Those of a place in no standard library are known only by names. */
MLR_PRIVATE void mlr_callers_find(const mlr_build *b, uint32_t place, mlr_by by, mlr_callers *out);

/* Adds ", mostly from load loader.c:10" if more than half of a place is called from there. */
MLR_PRIVATE void mlr_callers_say(mlr_words *w, uint32_t place, mlr_by by);
/* Returns "load loader.c:10 90 %, store.c:3 10 %", or "". */
MLR_PRIVATE const char *mlr_callers_text(mlr_build *b, uint32_t place, mlr_by by);

/* Adds the table of callers, of the places with the numbers `place`. */
MLR_PRIVATE void mlr_callers_table(mlr_build *b, const uint32_t *place, uint32_t n);

#endif
