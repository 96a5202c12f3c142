/* Who holds what is live: by tag, by place, and by both together, with a sentence for each device
   on its largest holder. Owns no state. Locks: none.

   A tag and a place have each their share of the device. A share of a place within a tag is said
   only where the groups of live blocks have it. */
#ifndef MLR_ANSWERS_HOLDERS_H
#define MLR_ANSWERS_HOLDERS_H
#include "answers/build.h"

MLR_PRIVATE void mlr_holders_answer(mlr_build *b);

/* Returns the place (from 1) that holds most of a tag's live blocks, which is tag 0 for those
   without, and sets *bytes to what it holds of it; 0: not known. */
MLR_PRIVATE uint32_t mlr_tag_place(const mlr_build *b, uint32_t tag, uint32_t device,
                                   uint64_t *bytes);

#endif
