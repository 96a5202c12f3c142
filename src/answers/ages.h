/* How old is what is live: tells what is replaced all the time, as a cache does, from what
   accumulates and from what stays from the start. Owns no state. Locks: none.

   Of a place: it accumulates if less than half of its allocs are freed, and its blocks were born
   over at least a quarter of the run and up to its last quarter. It is replaced if at least half
   are freed, and the oldest is younger than a quarter of the run. It is kept if its youngest is
   older than half of the run. */
#ifndef MLR_ANSWERS_AGES_H
#define MLR_ANSWERS_AGES_H
#include "answers/build.h"

typedef enum mlr_age_kind {
    MLR_AGE_UNKNOWN,
    MLR_AGE_ACCUMULATES,
    MLR_AGE_REPLACED,
    MLR_AGE_KEPT
} mlr_age_kind;
typedef struct mlr_ages { /* of the live blocks of a place; times since the start */
    uint64_t bytes, blocks, oldest, youngest;
    mlr_age_kind kind;
} mlr_ages;

MLR_PRIVATE mlr_ages mlr_ages_of(const mlr_build *b, uint32_t place);
/* Adds a line to a sentence that names a place, if ages are known. */
MLR_PRIVATE void mlr_ages_say(mlr_build *b, mlr_sentence *s, uint32_t place);
/* The table of ages. */
MLR_PRIVATE void mlr_ages_answer(mlr_build *b);

#endif
