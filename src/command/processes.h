/* The processes of a run: those that were seen below the program while it ran, and those that still
   run. Owns mlr_processes. Locks: none. */
#ifndef MLR_COMMAND_PROCESSES_H
#define MLR_COMMAND_PROCESSES_H
#include "command/load.h"
#include <sys/types.h>

typedef struct mlr_seen {
    pid_t pid;
    char *program; /* the path of its file */
    int cleaned;   /* 1: its environment does not have the library */
} mlr_seen;
typedef struct mlr_processes {
    mlr_seen *at;
    size_t count, room;
    char *mark; /* the variable of the environment that a process of this run has */
} mlr_processes;

/* Looks at what runs below a process now. Costs some microseconds for each. */
MLR_PRIVATE void mlr_processes_look(mlr_processes *all, pid_t below);

/* Says which processes have no profile, and why; and which live on. `profiles` are those of the
   run, `directory` has them, or is NULL if it is
   not kept; `library` is the path of the library. */
MLR_PRIVATE void mlr_processes_tell(mlr_processes *all, pid_t program, const mlr_paths *profiles,
                                    const char *directory, const char *library);

#endif
