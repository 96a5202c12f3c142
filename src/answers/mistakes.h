/* What the host did wrong, and what was not recorded: totals that are too low because of it, and
   detail that was lost. Owns no state. Locks: none. */
#ifndef MLR_ANSWERS_MISTAKES_H
#define MLR_ANSWERS_MISTAKES_H
#include "answers/build.h"

MLR_PRIVATE void mlr_mistakes_answer(mlr_build *b);

#endif
