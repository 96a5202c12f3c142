/* The memory of physical devices: out of memory, over a limit, nearly full, and whose it is. The
   numbers are those of the capacity's source. What the host's own pools keep free is told apart
   from what is not recorded and from other processes. Owns no state. Locks: none. */
#ifndef MLR_ANSWERS_CAPACITY_H
#define MLR_ANSWERS_CAPACITY_H
#include "answers/build.h"

MLR_PRIVATE void mlr_capacity_answer(mlr_build *b);

#endif
