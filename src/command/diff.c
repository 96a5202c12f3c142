#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "command/verbs.h"
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Compares by the program memlord-diff, which is beside this one. */
int mlr_diff_main(int argc, char **argv) {
    static const char *const names[] = {"diff", "memlord-diff"};
    char here[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", here, sizeof here - 1);
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
        return mlr_verb_help("diff");
    here[n > 0 ? n : 0] = 0;
    if (strrchr(here, '/')) strrchr(here, '/')[1] = 0;
    for (int i = 0; i < 2; i++) (void)execv(mlr_joined("%s%s", here, names[i]), argv);
    mlr_tell("no memlord-diff in %s: %s; make build/diff", mlr_clean(here), strerror(errno));
    return MLR_COULD_NOT;
}
