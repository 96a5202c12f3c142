/* The verbs of the command. Owns the table of them. Locks: none. */
#ifndef MLR_COMMAND_VERBS_H
#define MLR_COMMAND_VERBS_H
#include "command/say.h"

typedef struct mlr_verb {
    const char *name, *what; /* "run"; what it does, in one line */
    /* argv[0] is the verb. Returns a status. */
    int (*main)(int argc, char **argv);
    const char *help; /* what --help prints, on one screen */
} mlr_verb;

/* Returns a verb, or NULL. */
MLR_PRIVATE const mlr_verb *mlr_verb_of(const char *name);

/* Prints the help of a verb on standard output, and returns MLR_DONE. */
MLR_PRIVATE int mlr_verb_help(const char *name);

MLR_PRIVATE int mlr_run_main(int argc, char **argv);
MLR_PRIVATE int mlr_report_main(int argc, char **argv);
MLR_PRIVATE int mlr_diff_main(int argc, char **argv);
MLR_PRIVATE int mlr_clean_main(int argc, char **argv);

#endif
