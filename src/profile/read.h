/* Reads a profile from JSON: the schemas memlord/1, memlord/2 and memlord/3. Owns no state. Locks:
   none. */
#ifndef MLR_PROFILE_READ_H
#define MLR_PROFILE_READ_H
#include "profile/profile.h"

typedef enum mlr_result {
    MLR_OK,
    MLR_E_NOMEM,
    MLR_E_INVALID,    /* not JSON, cut off, or a number that no profile can have */
    MLR_E_UNSUPPORTED /* JSON, but no profile, or of a schema that is newer */
} mlr_result;

/* Makes a profile of a text. `path` is its name in messages. On an error *out is NULL, and
   `message`, which has room for `room` bytes, has a sentence that names the cure.
   Cost: about four times the size of the text in memory. */
MLR_PRIVATE mlr_result mlr_profile_read(const char *path, const char *text, size_t size,
                                        mlr_profile **out, char *message, size_t room);
MLR_PRIVATE void mlr_profile_free(mlr_profile *profile);

/* Returns memory of the profile, zeroed, that lives as long as the profile; NULL: there is none. */
MLR_PRIVATE void *mlr_profile_alloc(mlr_profile *profile, size_t count, size_t size);
/* Returns a copy of a text in memory of the profile. */
MLR_PRIVATE const char *mlr_profile_text(mlr_profile *profile, const char *text, size_t size);

/* Returns the function that answers show for a frame, or one whose names are "" for frame 0. */
MLR_PRIVATE const mlr_function *mlr_frame_shown(const mlr_profile *profile, uint32_t frame);

#endif
