/* The runs that are kept: each a directory below the user's state directory, with what run recorded
   of each process, and a file that says how the run went. Invariants: a run that is recorded has a
   lock, and is not removed; the last 8 runs stay, or as many of them as have 256 MiB. Locks:
   flock on the file of a run. */
#ifndef MLR_COMMAND_LAST_H
#define MLR_COMMAND_LAST_H
#include "command/say.h"

/* What a run says of itself. Texts are NULL if they are not known. */
typedef struct mlr_kept {
    char *directory, *program, *ending;
    uint64_t pid;
} mlr_kept;

/* Makes the directory of a new run, of which *kept says if it will be kept: else it lies among
   temporary files. Returns NULL once it has said why there is none. */
MLR_PRIVATE char *mlr_last_begin(int *kept);
/* Notes what a run says of itself. Returns 0, or the number of an error. */
MLR_PRIVATE int mlr_last_note(const mlr_kept *run);
/* Ends a run: removes its directory if it is not kept, and else older ones that are too many. */
MLR_PRIVATE void mlr_last_end(const char *directory, int kept);

/* Finds the last run that has ended. Returns 0, and says why, if there is none. */
MLR_PRIVATE int mlr_last_find(mlr_kept *out);
/* Reads what a directory of a run says of itself. Returns 0 if it is none. */
MLR_PRIVATE int mlr_last_read(const char *directory, mlr_kept *out);

#endif
