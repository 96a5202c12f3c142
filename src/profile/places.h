/* Reads modules and frames, the places of code, from JSON. Owns no state. Invariant: every frame
   has a function, and two frames with the same names, module and offset are one if a name led to
   them. Locks: none. */
#ifndef MLR_PROFILE_PLACES_H
#define MLR_PROFILE_PLACES_H
#include "profile/fields.h"

/* Adds the rows of lists of modules and frames; of memlord/3, the numbers are those of the lists.
 */
MLR_PRIVATE void mlr_places_modules(mlr_reader *r, const mlr_json *list);
MLR_PRIVATE void mlr_places_frames(mlr_reader *r, const mlr_json *list);

/* Returns the module of a path and a build id, which is added if it is new; 0 without a path. */
MLR_PRIVATE uint32_t mlr_places_module(mlr_reader *r, const mlr_json *path, const mlr_json *id);

/* Returns the frame of {"function","file","line"}, which is added if it is new. Returns 0 for NULL,
   and for what is no object. */
MLR_PRIVATE uint32_t mlr_places_frame(mlr_reader *r, const mlr_json *names);
/* Likewise with a module and an offset, and with "inlined" and "library" of `of`, if any. */
MLR_PRIVATE uint32_t mlr_places_frame_at(mlr_reader *r, const mlr_json *names, uint32_t module,
                                         uint64_t offset, const mlr_json *of);

#endif
