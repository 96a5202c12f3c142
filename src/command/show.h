/* Shows profiles: the first screen of the largest, and files in any format. Owns no state. Locks:
   none. */
#ifndef MLR_COMMAND_SHOW_H
#define MLR_COMMAND_SHOW_H
#include "answers/answers.h"
#include "command/load.h"
#if defined(__linux__)
#include "command/names.h"
#endif

typedef enum mlr_form { MLR_FORM_TEXT, MLR_FORM_JSON, MLR_FORM_MARKDOWN } mlr_form;

typedef struct mlr_show {
#if defined(__linux__)
    mlr_names names;
#endif
    int no_names;
    mlr_options options;
    mlr_paths files; /* what -o names */
    int to_stderr;   /* 1: the screen goes to stderr; 0: to standard output */
    int quiet;       /* 1: there is no screen */
    int whole;       /* 1: all tables in place of the first screen */
    mlr_form form;   /* of what is shown */
    uint64_t number; /* of this report of the run, for %n */
    /* What is found leads to status 1. */
    int fail_on_leak, has_max_peak;
    uint64_t max_peak;
    const char *budget;
} mlr_show;

/* The processes of a run, as far as they have profiles. */
typedef struct mlr_run_of {
    const mlr_paths *profiles;
    uint64_t pid;       /* of the program's own process; 0: the largest */
    const char *before; /* a line that comes first, or NULL */
} mlr_run_of;

/* Returns a status. */
MLR_PRIVATE int mlr_show_all(const mlr_run_of *run, const mlr_show *show);

/* Says why no file can be written where -o says, or in which format. Returns a status. */
MLR_PRIVATE int mlr_show_check(const mlr_show *show);

#endif
