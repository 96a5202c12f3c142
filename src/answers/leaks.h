/* What is still live: since the last mark, or at the end of a program. Owns no state. Locks: none.

   The sentence names what grows, or else the place whose live blocks are most bytes without those
   that look like a cache (answers/ages.h), so that a healthy cache does not hide a leak. MemLord
   does not know whether a block can still be reached; so it says "still live". */
#ifndef MLR_ANSWERS_LEAKS_H
#define MLR_ANSWERS_LEAKS_H
#include "answers/build.h"

/* Requires: growth is answered. */
MLR_PRIVATE void mlr_leaks_answer(mlr_build *b);

#endif
