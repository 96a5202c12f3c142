/* Names the places of a profile: functions, files, lines and inlined chains from the files of the
   modules, and code made at run time from its perf map. Owns no state. Invariant: a name in the
   profile stays if no file gives a better one. Locks: none. */
#ifndef MLR_COMMAND_NAMES_H
#define MLR_COMMAND_NAMES_H
#include "command/elf.h"

typedef struct mlr_names {
    mlr_elf_options where;
    int fold;  /* 1: names are without the arguments of templates */
    int quiet; /* 1: does not say what could not be named */
} mlr_names;

/* Names the frames of a profile. Says in one line what could not be named because its file is not
   there or of another build, and what helps. */
MLR_PRIVATE void mlr_names_fill(mlr_profile *profile, const mlr_names *names);

#endif
