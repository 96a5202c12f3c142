/* The host's own pools, and collections. A pool is called fragmented if at least a sixteenth of it
   is cached and its largest piece is at most half of that. Owns no state. Locks: none. */
#ifndef MLR_ANSWERS_POOLS_H
#define MLR_ANSWERS_POOLS_H
#include "answers/build.h"

MLR_PRIVATE void mlr_pools_answer(mlr_build *b);

#endif
