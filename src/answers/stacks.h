/* Stacks that hold most, and the tree of callers from the outermost function inwards. Owns no
   state. Locks: none. */
#ifndef MLR_ANSWERS_STACKS_H
#define MLR_ANSWERS_STACKS_H
#include "answers/build.h"

MLR_PRIVATE void mlr_stacks_answer(mlr_build *b);

#endif
