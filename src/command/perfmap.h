/* The names of code that a program made at run time, from its perf map, the file /tmp/perf-PID.map:
   a line "START SIZE NAME" for each function, with hexadecimal numbers. If the functions of two
   lines contain an address, the later line names it. Owns mlr_perfmap. Invariant: the file is not
   trusted, as anybody may write it: it is of this user, no older than the program, and at most
   64 MiB and 1,048,576 lines of it are read. Locks: none. */
#ifndef MLR_COMMAND_PERFMAP_H
#define MLR_COMMAND_PERFMAP_H
#include "command/say.h"

typedef struct mlr_perfmap {
    char *path, *text;
    struct mlr_perf_function *at; /* sorted by first address, then by line in the file */
    size_t count, room, bad;
} mlr_perfmap;

/* Reads the perf map of a process, below the directory `symfs` if that is not NULL. `began_ns` is
   when the process began, since 1970. Says so if the file is there and not used. */
MLR_PRIVATE void mlr_perfmap_read(mlr_perfmap *map, const char *symfs, uint64_t pid,
                                  uint64_t began_ns);
/* Returns the name of the function at an address, or NULL if the perf map has none. */
MLR_PRIVATE const char *mlr_perfmap_name(const mlr_perfmap *map, uint64_t address);
MLR_PRIVATE void mlr_perfmap_free(mlr_perfmap *map);

#endif
