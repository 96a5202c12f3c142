/* Writes a profile in the format of a file's suffix. Owns no state. Locks: none. */
#ifndef MLR_COMMAND_WRITE_H
#define MLR_COMMAND_WRITE_H
#include "answers/answers.h"
#include "formats/formats.h"

/* What is written. */
typedef struct mlr_written {
    const mlr_profile *profile;
    const mlr_answers *answers; /* NULL if the format needs none */
    const char *text;           /* what the profile was read from; for JSON */
    size_t size;
} mlr_written;

/* Returns 1 if the command can write a format. */
MLR_PRIVATE int mlr_write_can(mlr_format format);
/* Returns the format of a path for this profile: FOLDED of a program that has ended has what was
   live at the peak, if less than a quarter of that is left. */
MLR_PRIVATE mlr_format mlr_write_format_of(const char *path, const mlr_profile *profile);
MLR_PRIVATE mlr_result mlr_write_to(mlr_format format, const mlr_written *what, mlr_out *out);

/* Says in one line what a file of this format lacks, because the profile does not have it. */
MLR_PRIVATE void mlr_write_tell(mlr_format format, const mlr_profile *profile, const char *path);

#endif
