/* Blocks that are freed before the next alloc of their thread: how many, and where. A sentence says
   so if they are half of at least 10,000 allocs. Owns no state. Locks: none. */
#ifndef MLR_ANSWERS_TEMPORARIES_H
#define MLR_ANSWERS_TEMPORARIES_H
#include "answers/build.h"

MLR_PRIVATE void mlr_temporaries_answer(mlr_build *b);

#endif
