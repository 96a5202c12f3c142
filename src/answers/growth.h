/* What grows over the snapshots: devices, tags and sites, each with the line by which it rises
   (answers/line.h), where that begins and where it ended. Owns no state. Locks: none.

   A rise counts from 1 MiB a minute on, or 1 % of the capacity, or a tenth of what is live on the
   device, and 64 KiB. What rises up to the end of a program that has not ended, and is a minute
   old, "grows by N a minute"; everything else "grew by N in T". */
#ifndef MLR_ANSWERS_GROWTH_H
#define MLR_ANSWERS_GROWTH_H
#include "answers/build.h"

/* Adds the table and the sentences of growth, and sets b->place_grows. */
MLR_PRIVATE void mlr_growth_answer(mlr_build *b);

#endif
