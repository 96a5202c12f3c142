/* Runs a program so that it cannot tell: its process group, signals, job control and descriptors
   are those that the command was started with. Owns the child process, and a second one, the
   witness, that shows which signals came to the whole group. Invariant: the signals that may end
   the command are blocked from the start of the program until the command has ended. Locks: none.
 */
#ifndef MLR_COMMAND_CHILD_H
#define MLR_COMMAND_CHILD_H
#include "command/say.h"
#include <sys/types.h>

typedef struct mlr_child {
    pid_t pid;
    int error;       /* why the program could not be executed; 0: it was */
    int status;      /* as waitpid has it */
    uint64_t ns;     /* how long it ran */
    uint64_t killed; /* by how much its memory cgroup's count of out-of-memory kills has grown */
} mlr_child;

/* Starts a program, whose file is `path`, or NULL if it is not known. The command then has no
   descriptor of the program's but stderr, and standard output if `keep_stdout` is 1. Returns 0; or
   -1 with child->error, if it could not be started. */
MLR_PRIVATE int mlr_child_start(mlr_child *child, const char *path, char **argv, char **environment,
                                int keep_stdout);

/* Waits for the end of the program. Calls `tick` each 10 ms at first, then less often, down to four
   times a second. */
MLR_PRIVATE void mlr_child_wait(mlr_child *child, void (*tick)(void *user), void *user);

/* Makes a process of the command's own, that has the signals with which the command was started.
   Returns as fork does. */
MLR_PRIVATE pid_t mlr_child_fork(void);

/* Ends the command as the program ended: with its status, or by its signal, without a core.
   `status`, if it is not 0, takes the place of a status of 0. */
MLR_NORETURN MLR_PRIVATE void mlr_child_end_alike(const mlr_child *child, int status);

/* Returns how the program ended, as "ended with status 3" or "was killed by SIGKILL; ...", in
   memory that the caller frees. */
MLR_PRIVATE char *mlr_child_ending(const mlr_child *child);

#endif
