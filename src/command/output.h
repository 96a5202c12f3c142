/* Files that the command writes. Owns nothing. Invariants: a file that exists is replaced when the
   new one is whole, and stays as it is if it cannot be written; what is no regular file, such as a
   pipe or a terminal, is written to. Locks: none. */
#ifndef MLR_COMMAND_OUTPUT_H
#define MLR_COMMAND_OUTPUT_H
#include "profile/text.h"

/* Writes something by o. Returns a result other than 0 if it could not; `message` then has why. */
typedef int (*mlr_writer_fn)(mlr_out *o, const void *what, char *message, size_t room);

/* Writes a file, or standard output for "-". Returns MLR_DONE, or MLR_COULD_NOT once it has said
   why. */
MLR_PRIVATE int mlr_output(const char *path, mlr_writer_fn fn, const void *what);

/* Says why no file can be written at a path, and returns MLR_COULD_NOT; or returns MLR_DONE. */
MLR_PRIVATE int mlr_output_check(const char *path);

/* Returns a path with numbers in place of %p (a process), %n (a number from 1), %t (seconds since
   1970) and %%. The caller frees it. */
MLR_PRIVATE char *mlr_output_path(const char *path, uint64_t pid, uint64_t number,
                                  uint64_t seconds);
/* Returns 1 if a path has %p. */
MLR_PRIVATE int mlr_output_is_each(const char *path);

#endif
