/* What was live when: the curve, checkpoints, and who held what at a moment that is asked for. Owns
   no state. Locks: none. */
#ifndef MLR_ANSWERS_MOMENTS_H
#define MLR_ANSWERS_MOMENTS_H
#include "answers/build.h"

#define MLR_CURVE 512 /* the most points of the curve */

MLR_PRIVATE void mlr_moments_answer(mlr_build *b);

#endif
