#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "command/child.h"
#include "command/last.h"
#include "command/library.h"
#include "command/output.h"
#include "command/processes.h"
#include "command/show.h"
#include "command/verbs.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The status of `run` if the program could not be run; the words of env(1). */
enum { FAILED_BEFORE = 125, CANNOT_EXECUTE, NOT_FOUND };

extern char **environ;

typedef struct run {
    mlr_show show;
    char *directory, *library, *path; /* of the run; of the library; of the program */
    int kept;
    mlr_child child;
    mlr_processes processes;
    unsigned every;        /* seconds between reports while the program runs; 0: none */
    pid_t reporter;        /* writes such a report now; 0: nobody does */
    struct timespec shown; /* when the profile was written that was last reported */
    char **environment;
    size_t count; /* of variables */
} run;

/* -- options -- */

/* Options that are variables of the library. */
static const struct {
    const char *option, *variable;
    int number; /* 1: takes a number; 2: takes bytes; 3: takes text; 0: nothing, and is set to 1 */
} passed[] = {{"stack-bytes", "MEMLORD_STACK_BYTES", 2},
              {"stack-depth", "MEMLORD_STACK_DEPTH", 1},
              {"skip", "MEMLORD_SKIP", 3},
              {"events", "MEMLORD_EVENTS", 1},
              {"exact", "MEMLORD_EXACT", 0},
              {"arguments", "MEMLORD_ARGUMENTS", 0},
              {"snapshots", "MEMLORD_SNAPSHOTS", 1},
              {"signal", "MEMLORD_SIGNAL", 1}};
enum { PASSED = sizeof passed / sizeof *passed };

enum { FOLD = 256, NO_NAMES, SYMFS, DEBUG_DIR, FAIL_ON_LEAK, MAX_PEAK, BUDGET, EVERY, FIRST };

static int read_number(const char *text, unsigned long most, unsigned long *out) {
    char *end;
    errno = 0;
    *out = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *out <= most;
}

static void set_variable(run *r, const char *name, const char *value) {
    const size_t length = strlen(name);
    size_t i = 0;
    while (i < r->count &&
           (strncmp(r->environment[i], name, length) || r->environment[i][length] != '='))
        i++;
    if (i == r->count) {
        r->environment =
            (char **)mlr_need(realloc(r->environment, (++r->count + 1) * sizeof(char *)));
        r->environment[r->count] = NULL;
    }
    r->environment[i] = mlr_joined("%s=%s", name, value);
}

static void copy_environment(run *r) {
    while (environ[r->count]) r->count++;
    r->environment = (char **)mlr_need(malloc((r->count + 1) * sizeof(char *)));
    memcpy(r->environment, environ, (r->count + 1) * sizeof(char *));
}

/* Takes an option that is a variable. Returns 0 if its argument is wrong. */
static int pass(run *r, int i, const char *argument) {
    char text[32] = "1";
    unsigned long n;
    uint64_t bytes;
    if (passed[i].number == 1 && !read_number(argument, UINT32_MAX, &n)) return 0;
    if (passed[i].number == 2) {
        if (!mlr_read_bytes(argument, &bytes)) return 0;
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
        argument = text;
    }
    set_variable(r, passed[i].variable, passed[i].number ? argument : text);
    return 1;
}

/* Takes an option. Returns 0 if its argument is wrong. */
static int take(run *r, int option) {
    unsigned long n;
    switch (option) {
    case 'o': mlr_paths_add(&r->show.files, mlr_joined("%s", optarg)); return 1;
    case 'q': return r->show.quiet = 1;
    case FOLD: return r->show.names.fold = 1;
    case NO_NAMES: return r->show.no_names = 1;
    case SYMFS: r->show.names.where.symfs = optarg; return 1;
    case DEBUG_DIR: r->show.names.where.debug_dir = optarg; return 1;
    case FAIL_ON_LEAK: return r->show.fail_on_leak = 1;
    case MAX_PEAK: return r->show.has_max_peak = mlr_read_bytes(optarg, &r->show.max_peak);
    case BUDGET: r->show.budget = optarg; return 1;
    case EVERY:
        if (!read_number(optarg, 1000000, &n) || !n) return 0;
        r->every = (unsigned)n;
        set_variable(r, "MEMLORD_EVERY", optarg);
        return 1;
    default: return pass(r, option - FIRST, optarg);
    }
}

static const struct option options[] = {{"output", required_argument, NULL, 'o'},
                                        {"quiet", no_argument, NULL, 'q'},
                                        {"fold", no_argument, NULL, FOLD},
                                        {"no-names", no_argument, NULL, NO_NAMES},
                                        {"symfs", required_argument, NULL, SYMFS},
                                        {"debug-dir", required_argument, NULL, DEBUG_DIR},
                                        {"fail-on-leak", no_argument, NULL, FAIL_ON_LEAK},
                                        {"max-peak", required_argument, NULL, MAX_PEAK},
                                        {"budget", required_argument, NULL, BUDGET},
                                        {"every", required_argument, NULL, EVERY},
                                        {"help", no_argument, NULL, 'h'}};
enum { OPTIONS = sizeof options / sizeof *options };

/* Reads the options. Returns the index of the program in argv; or 0, and the status with which to
   end. */
static int read_options(run *r, int argc, char **argv, int *status) {
    struct option all[OPTIONS + PASSED + 1];
    int c;
    *status = FAILED_BEFORE;
    memcpy(all, options, sizeof options);
    memset(all + OPTIONS, 0, sizeof all - sizeof options);
    for (int i = 0; i < PASSED; i++)
        all[OPTIONS + i] =
            (struct option){passed[i].option, passed[i].number != 0, NULL, FIRST + i};
    while ((c = getopt_long(argc, argv, "+o:qh", all, NULL)) != -1) {
        if (c == '?') return mlr_say_usage("run"), 0; /* getopt has said what is wrong */
        if (c == 'h') return *status = mlr_verb_help("run"), 0;
        if (take(r, c)) continue;
        mlr_tell("%s: not a number that this option takes", mlr_clean(optarg));
        return mlr_say_usage("run"), 0;
    }
    if (optind < argc) return optind;
    mlr_tell("run: no program named");
    return mlr_say_usage("run"), 0;
}

/* -- the run -- */

/* Opens descriptors 0 to 2 that are closed, so that no file gets such a number. The program finds
   them closed. */
static void hold_standard(void) {
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)open("/dev/null", O_RDWR | O_CLOEXEC);
}

/* Sets the variables that load the library into the program and its children. */
static void set_environment(run *r) {
    const char *others = getenv("LD_PRELOAD");
    char *report = mlr_joined("%s/%%p.json", r->directory);
    char *preload =
        mlr_joined("%s%s%s", r->library, others && *others ? ":" : "", others ? others : "");
    if (getenv("MEMLORD_REPORT"))
        mlr_tell("MEMLORD_REPORT has no effect on memlord run; name the file by -o");
    set_variable(r, "LD_PRELOAD", preload);
    set_variable(r, "MEMLORD_REPORT", report);
    set_variable(r, "MEMLORD_SYMBOLS", "0");
    if (!getenv("MEMLORD_REPORT_ON")) set_variable(r, "MEMLORD_REPORT_ON", "TERM,INT,HUP");
    r->processes.mark = mlr_joined("MEMLORD_REPORT=%s", report);
    free(preload);
    free(report);
}

/* Returns 0, or the status with which to end. */
static int prepare(run *r, const char *program) {
    if (mlr_show_check(&r->show)) return FAILED_BEFORE;
    r->path = mlr_program_path(program);
    r->directory = mlr_last_begin(&r->kept);
    if (!r->directory) return FAILED_BEFORE;
    r->library = mlr_library_path(r->directory);
    if (r->library) {
        set_environment(r);
        return 0;
    }
    mlr_last_end(r->directory, 0);
    return FAILED_BEFORE;
}

/* Says why the program could not be executed, and returns the status. */
static int cannot_execute(const run *r, const char *program) {
    const char *name = mlr_clean(program);
    switch (r->child.error) {
    case ENOENT:
        if (r->path) {
            mlr_tell("%s: its interpreter or loader is not there; see its first line, or: file %s",
                     name, name);
            return NOT_FOUND;
        }
        mlr_tell(strchr(program, '/') ? "%s: no such file" : "%s: not found in PATH", name);
        return NOT_FOUND;
    case EACCES: mlr_tell("%s: may not be executed; try chmod +x", name); return CANNOT_EXECUTE;
    case ENOEXEC:
        mlr_tell("%s: cannot be loaded: neither a program of this machine nor a script", name);
        return CANNOT_EXECUTE;
    default: mlr_tell("%s: %s", name, strerror(r->child.error)); return CANNOT_EXECUTE;
    }
}

static int own_profile(const run *r, struct timespec *written) {
    char *path = mlr_joined("%s/%ld.json", r->directory, (long)r->child.pid);
    struct stat is;
    const int found = !stat(path, &is);
    free(path);
    if (found) *written = is.st_mtim;
    return found;
}

/* Shows what there is, in a process of its own: no damaged file changes how this one ends. Does not
   return. */
static void show(const run *r, const mlr_show *what, const char *before) {
    mlr_paths profiles;
    mlr_run_of of = {&profiles, (uint64_t)r->child.pid, before};
    (void)mlr_paths_of(r->directory, &profiles);
    exit(mlr_show_all(&of, what));
}

/* Looks at the processes of the run, and writes the next report if one is due. */
static void tick(void *user) {
    run *r = (run *)user;
    struct timespec written;
    mlr_processes_look(&r->processes, r->child.pid);
    if (r->reporter && waitpid(r->reporter, NULL, WNOHANG) == r->reporter) r->reporter = 0;
    if (!r->every || r->reporter || !r->show.files.count || !own_profile(r, &written)) return;
    if (written.tv_sec == r->shown.tv_sec && written.tv_nsec == r->shown.tv_nsec) return;
    r->shown = written;
    r->show.number++;
    r->reporter = mlr_child_fork();
    if (!r->reporter) {
        mlr_show now = r->show;
        now.quiet = now.names.quiet = 1;
        now.fail_on_leak = now.has_max_peak = 0;
        now.budget = NULL;
        show(r, &now, NULL);
    }
}

/* Says why there is no profile of the program's own process. */
static void tell_missing(const run *r) {
    char *why = r->path ? mlr_program_doubt(r->path, r->library) : NULL;
    if (why)
        mlr_tell("nothing was recorded: %s", why);
    else if (WIFSIGNALED(r->child.status))
        mlr_tell(
            "nothing is left of it: a program that is killed writes no profile; --every 1 keeps "
            "what it had a second before");
    else
        mlr_tell(
            "nothing was recorded: it ended by a system call of its own, or has a malloc of its "
            "own, as Go has");
    free(why);
}

/* Shows what was recorded, in a process of its own. Returns its status. */
static int show_last(run *r, const char *ending) {
    struct timespec written;
    mlr_paths profiles;
    int status = 0;
    pid_t pid;
    (void)mlr_paths_of(r->directory, &profiles);
    if (!r->show.quiet) mlr_tell("%s", ending);
    if (!own_profile(r, &written)) tell_missing(r);
    if (!r->show.quiet)
        mlr_processes_tell(&r->processes, r->child.pid, &profiles, r->directory, r->library);
    if (!profiles.count)
        return r->show.fail_on_leak || r->show.has_max_peak || r->show.budget || r->show.files.count
                   ? MLR_COULD_NOT
                   : MLR_DONE;
    mlr_paths_free(&profiles);
    r->show.number++;
    pid = mlr_child_fork();
    if (!pid) show(r, &r->show, NULL);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid > 0 && WIFEXITED(status)) return WEXITSTATUS(status);
    mlr_tell("the report was not finished; see: memlord report %s", mlr_clean(r->directory));
    return MLR_COULD_NOT;
}

static void run_and_show(run *r, const char *program) {
    mlr_kept kept = {r->directory, NULL, NULL, (uint64_t)r->child.pid};
    char *how;
    int status;
    kept.program = r->path ? r->path : mlr_joined("%s", program);
    (void)mlr_last_note(&kept);
    mlr_processes_look(&r->processes, r->child.pid);
    mlr_child_wait(&r->child, tick, r);
    if (r->reporter > 0) (void)waitpid(r->reporter, NULL, 0);
    how = mlr_child_ending(&r->child);
    kept.ending = mlr_joined("%s (pid %ld) %s", mlr_clean(program), (long)r->child.pid, how);
    (void)mlr_last_note(&kept);
    status = show_last(r, kept.ending);
    mlr_last_end(r->directory, r->kept);
    mlr_child_end_alike(&r->child, status);
}

int mlr_run_main(int argc, char **argv) {
    run r;
    int first, status, keep = 0;
    memset(&r, 0, sizeof r);
    r.show.to_stderr = 1;
    copy_environment(&r);
    first = read_options(&r, argc, argv, &status);
    if (!first) return status;
    hold_standard();
    status = prepare(&r, argv[first]);
    if (status) return status;
    for (size_t i = 0; i < r.show.files.count; i++) keep |= !strcmp(r.show.files.at[i], "-");
    if (!mlr_child_start(&r.child, r.path, argv + first, r.environment, keep))
        run_and_show(&r, argv[first]);
    mlr_last_end(r.directory, 0);
    return cannot_execute(&r, argv[first]);
}
