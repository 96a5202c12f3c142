/* Reads profiles from files. Owns no state. Locks: none. */
#ifndef MLR_COMMAND_LOAD_H
#define MLR_COMMAND_LOAD_H
#include "command/say.h"

/* The text of a file. */
typedef struct mlr_text {
    char *at;
    size_t size;
} mlr_text;

/* Reads a profile from a file, or from standard input for "-". `text` gets what it was read from,
   for free(), if it is not NULL. Returns NULL once it has said why it could not. */
MLR_PRIVATE mlr_profile *mlr_load(const char *path, mlr_text *text);

/* A list of paths. */
typedef struct mlr_paths {
    char **at;
    size_t count;
} mlr_paths;
MLR_PRIVATE void mlr_paths_add(mlr_paths *paths, char *path);
MLR_PRIVATE void mlr_paths_free(mlr_paths *paths);
/* Lists the files of a directory whose names end in ".json". Returns 0, or the number of an
   error. */
MLR_PRIVATE int mlr_paths_of(const char *directory, mlr_paths *out);

#endif
