/* Tables that tell the facts as they are: the run, devices, sizes, scopes, accounts, streams,
   transfers, threads, blocks, modules. Owns no state. Locks: none. */
#ifndef MLR_ANSWERS_LISTS_H
#define MLR_ANSWERS_LISTS_H
#include "answers/build.h"

MLR_PRIVATE void mlr_lists_answer(mlr_build *b);

#endif
