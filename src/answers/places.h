/* Finds the places that allocate, and what is asked for. A place is the function that answers name:
   that of a site, or the caller of a well-known wrapper. Owns the places and the sums of an
   mlr_build. Invariants: what the places of a device hold is what its sites hold; sums over the
   live blocks are of what is asked for alone. Locks: none. */
#ifndef MLR_ANSWERS_PLACES_H
#define MLR_ANSWERS_PLACES_H
#include "answers/build.h"

/* Fills in the places, which of them, of the tags and of the devices are asked for, and the sums.
   Requires: wrappers are marked. */
MLR_PRIVATE void mlr_places_find(mlr_build *b);

/* Returns the place, from 1, of a group's blocks; 0: they have no site. */
MLR_PRIVATE uint32_t mlr_place_of_group(const mlr_build *b, const mlr_group *group);
/* Returns 1 if the blocks of a group are asked for. */
MLR_PRIVATE int mlr_group_in(const mlr_build *b, const mlr_group *group);
/* Returns what a tag or a site held at the peak of its device; MLR_UNKNOWN if that was not noted.
 */
MLR_PRIVATE uint64_t mlr_tag_at_peak(const mlr_build *b, uint32_t tag);
MLR_PRIVATE uint64_t mlr_site_at_peak(const mlr_build *b, uint32_t site);
/* Returns 1 if a device is at its peak now, or its live bytes are above what was noted for it. */
MLR_PRIVATE int mlr_is_at_peak(const mlr_profile *p, uint32_t device);

/* What a place is ordered by, as the options say: `number` is from 1. */
MLR_PRIVATE uint64_t mlr_place_key(const mlr_build *b, uint32_t number);

/* Walks the functions of a stack that are no wrappers and in no standard library. */
typedef struct mlr_walk {
    const mlr_profile *profile;
    uint32_t node, function;
} mlr_walk;
/* Returns the frame of the next such function, the innermost first; 0: there are no more. */
MLR_PRIVATE uint32_t mlr_walk_next(mlr_walk *walk);

#endif
