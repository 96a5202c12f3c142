#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "command/show.h"
#include "command/verbs.h"
#if defined(__linux__)
#include "command/last.h"
#endif
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    TAG = 256,
    SITE,
    MODULE,
    DEVICE,
    AT,
    PEAK,
    ALLOCS,
    TEMPORARY,
    TREE,
    TOP,
    SYMFS,
    DEBUG_DIR,
    FOLD,
    NO_NAMES,
    AS_JSON,
    AS_MARKDOWN
};

static const struct option options[] = {{"output", required_argument, NULL, 'o'},
                                        {"all", no_argument, NULL, 'a'},
                                        {"tag", required_argument, NULL, TAG},
                                        {"site", required_argument, NULL, SITE},
                                        {"module", required_argument, NULL, MODULE},
                                        {"device", required_argument, NULL, DEVICE},
                                        {"at", required_argument, NULL, AT},
                                        {"peak", no_argument, NULL, PEAK},
                                        {"allocs", no_argument, NULL, ALLOCS},
                                        {"temporary", no_argument, NULL, TEMPORARY},
                                        {"tree", no_argument, NULL, TREE},
                                        {"top", required_argument, NULL, TOP},
                                        {"symfs", required_argument, NULL, SYMFS},
                                        {"debug-dir", required_argument, NULL, DEBUG_DIR},
                                        {"fold", no_argument, NULL, FOLD},
                                        {"no-names", no_argument, NULL, NO_NAMES},
                                        {"json", no_argument, NULL, AS_JSON},
                                        {"markdown", no_argument, NULL, AS_MARKDOWN},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};

/* Reads "90", "1.5s", "200ms" or "1h30m". Returns 0 if the text is something else. */
static int read_time(const char *text, uint64_t *ns) {
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ms", 1e6},   {"us", 1e3}, {"ns", 1},    {"s", 1e9},
                 {"min", 6e10}, {"m", 6e10}, {"h", 3.6e12}};
    double sum = 0;
    if (!*text) return 0;
    while (*text) {
        char *end;
        const double n = strtod(text, &end);
        size_t i = 0;
        if (end == text || !(n >= 0)) return 0;
        while (i < 7 && strncmp(end, units[i].name, strlen(units[i].name))) i++;
        if (i == 7 && *end) return 0;
        sum += n * (i < 7 ? units[i].ns : 1e9);
        text = i < 7 ? end + strlen(units[i].name) : end;
    }
    if (!(sum < 1.8e19)) return 0;
    *ns = (uint64_t)sum;
    return 1;
}

/* Takes an option that says which files have names. */
static int take_names(mlr_show *show, int option) {
    if (option == NO_NAMES) return show->no_names = 1;
#if defined(__linux__)
    if (option == FOLD) return show->names.fold = 1;
    if (option == SYMFS) show->names.where.symfs = optarg;
    if (option == DEBUG_DIR) show->names.where.debug_dir = optarg;
    return 1;
#else
    mlr_tell("names of ELF files need Linux");
    return 0;
#endif
}

/* Takes an option. Returns 0 if its argument is wrong. */
static int take(mlr_show *show, int option) {
    mlr_options *o = &show->options;
    char *end;
    switch (option) {
    case 'o': mlr_paths_add(&show->files, mlr_joined("%s", optarg)); return 1;
    case 'a': return show->whole = 1;
    case AS_JSON: show->form = MLR_FORM_JSON; return 1;
    case AS_MARKDOWN: show->form = MLR_FORM_MARKDOWN; return 1;
    case TAG: o->tag = optarg; return 1;
    case SITE: o->site = optarg; return 1;
    case MODULE: o->module = optarg; return 1;
    case DEVICE: o->device = optarg; return 1;
    case AT: return o->has_at = read_time(optarg, &o->at_ns);
    case PEAK: o->by = MLR_BY_PEAK; return 1;
    case ALLOCS: o->by = MLR_BY_ALLOCS; return 1;
    case TEMPORARY: o->by = MLR_BY_TEMPORARY; return 1;
    case TREE: return o->tree = 1;
    case TOP:
        o->top = (uint32_t)strtoul(optarg, &end, 10);
        return *optarg >= '1' && *optarg <= '9' && !*end;
    default: return take_names(show, option);
    }
}

/* Shows the profiles of a directory: of a run, or of anything else. */
static int show_directory(const char *directory, const mlr_show *show) {
    mlr_paths profiles;
    mlr_run_of run = {&profiles, 0, NULL};
    const int error = mlr_paths_of(directory, &profiles);
    int status;
#if defined(__linux__)
    mlr_kept kept;
    if (mlr_last_read(directory, &kept)) {
        run.pid = kept.pid;
        run.before = kept.ending;
    }
#endif
    if (error) mlr_stop(MLR_COULD_NOT, "%s: %s", mlr_clean(directory), strerror(error));
    if (!profiles.count && run.before)
        mlr_stop(MLR_COULD_NOT, "%s; nothing was recorded of it", mlr_clean(run.before));
    if (!profiles.count)
        mlr_stop(MLR_COULD_NOT, "%s: no profile in it; memlord run writes one",
                 mlr_clean(directory));
    status = mlr_show_all(&run, show);
    mlr_paths_free(&profiles);
    return status;
}

static int show_last_run(const mlr_show *show) {
#if defined(__linux__)
    mlr_kept kept;
    return mlr_last_find(&kept) ? show_directory(kept.directory, show) : MLR_COULD_NOT;
#else
    (void)show;
    mlr_tell("name a profile: memlord report profile.json");
    return MLR_COULD_NOT;
#endif
}

/* Shows one file. Says what to do instead if WHAT is the id or the name of a process. */
static int show_file(const char *what, const mlr_show *show) {
    mlr_paths one = {NULL, 0};
    const mlr_run_of run = {&one, 0, NULL};
    struct stat is;
    int status;
    if (strcmp(what, "-") && stat(what, &is) && errno == ENOENT && !strchr(what, '/') &&
        !strchr(what, '.'))
        mlr_stop(MLR_COULD_NOT,
                 "%s: no such file; a process that runs shows nothing yet: start it "
                 "by memlord run --every 1 -o FILE",
                 mlr_clean(what));
    mlr_paths_add(&one, mlr_joined("%s", what));
    status = mlr_show_all(&run, show);
    mlr_paths_free(&one);
    return status;
}

int mlr_report_main(int argc, char **argv) {
    mlr_show show;
    struct stat is;
    const char *what;
    int c;
    memset(&show, 0, sizeof show);
    while ((c = getopt_long(argc, argv, "o:ah", options, NULL)) != -1) {
        if (c == 'h') return mlr_verb_help("report");
        if (c == '?') return mlr_say_usage("report");
        if (take(&show, c)) continue;
        mlr_tell("%s: not a value that this option takes", optarg ? mlr_clean(optarg) : "");
        return mlr_say_usage("report");
    }
    what = argv[optind];
    if (what && argv[optind + 1]) {
        mlr_tell("%s: one profile at a time; memlord diff compares two",
                 mlr_clean(argv[optind + 1]));
        return mlr_say_usage("report");
    }
    if (mlr_show_check(&show)) return MLR_COULD_NOT;
    if (!what) return show_last_run(&show);
    if (strcmp(what, "-") && !stat(what, &is) && S_ISDIR(is.st_mode))
        return show_directory(what, &show);
    return show_file(what, &show);
}
