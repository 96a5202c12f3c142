/* Reads what memlord/1 and memlord/2 have in another form than memlord/3: places by their names,
   stacks as lists of frames, who held how much in other lists. Owns no state. Locks: none. */
#ifndef MLR_PROFILE_OLDER_H
#define MLR_PROFILE_OLDER_H
#include "profile/fields.h"

/* In this order; between them the reader reads what all schemas have alike. */
MLR_PRIVATE void mlr_older_places(mlr_reader *r); /* modules, frames, sites, stacks */
MLR_PRIVATE void mlr_older_scopes(mlr_reader *r); /* where scopes are; what names find later */
MLR_PRIVATE void mlr_older_block(mlr_reader *r, const mlr_json *item, mlr_block *block);
MLR_PRIVATE void mlr_older_event(mlr_reader *r, const mlr_json *site, const mlr_json *tag,
                                 mlr_event *event);
MLR_PRIVATE void mlr_older_rest(mlr_reader *r); /* peaks, holders at snapshots, groups */

#endif
