#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "command/last.h"
#include "command/verbs.h"
#include "profile/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RUNS_KEPT = 8 };
#define BYTES_KEPT ((uint64_t)256 << 20)
#define RUN_FILE   "run" /* in the directory of a run: lines "name=text" */

/* -- where runs are -- */

/* Makes a directory, and those above it, for this user alone. Returns 0, or -1 and errno. */
static int make_directories(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(path, 0700); /* the last mkdir tells whether this has failed */
        *slash = '/';
    }
    return mkdir(path, 0700) && errno != EEXIST ? -1 : 0;
}

/* Returns the directory of the runs, or NULL if the user has no home. */
static char *runs_directory(void) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && state[0] == '/') return mlr_joined("%s/memlord/runs", state);
    return home && home[0] == '/' ? mlr_joined("%s/.local/state/memlord/runs", home) : NULL;
}

/* Takes the lock of a run. Returns a descriptor, or -1 if somebody has it. */
static int lock_run(const char *directory, int flags) {
    char *path = mlr_joined("%s/" RUN_FILE, directory);
    const int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    free(path);
    if (fd < 0 || !flock(fd, LOCK_EX | LOCK_NB)) return fd;
    (void)close(fd);
    return -1;
}

static int run_lock = -1; /* of the run that this process records */

static char *make_kept(void) {
    char *runs = runs_directory(), *path = NULL, when[32];
    const time_t now = time(NULL);
    struct tm t;
    if (!runs) {
        errno = ENOENT;
        return NULL;
    }
    (void)strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &t));
    if (!make_directories(runs)) {
        path = mlr_joined("%s/%s-%ld", runs, when, (long)getpid());
        if (mkdir(path, 0700)) free(path), path = NULL;
    }
    free(runs);
    return path;
}

static char *make_temporary(void) {
    const char *tmp = getenv("TMPDIR");
    char *path = mlr_joined("%s/memlord-XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp");
    if (mkdtemp(path)) return path;
    mlr_tell("no room to record in: %s: %s; set TMPDIR to a directory you may write to", path,
             strerror(errno));
    free(path);
    return NULL;
}

char *mlr_last_begin(int *kept) {
    char *path = make_kept();
    *kept = path != NULL;
    if (!path) path = make_temporary();
    if (path) run_lock = lock_run(path, O_WRONLY | O_CREAT | O_EXCL);
    return path;
}

/* -- what a run says of itself -- */

static void put_line(FILE *file, const char *name, const char *text) {
    if (text) fprintf(file, "%s=%s\n", name, mlr_clean(text));
}

int mlr_last_note(const mlr_kept *run) {
    char *path = mlr_joined("%s/" RUN_FILE, run->directory);
    FILE *file = fopen(path, "we"); /* the same file, because it has the lock */
    free(path);
    if (!file) return errno;
    put_line(file, "program", run->program);
    fprintf(file, "pid=%llu\n", (unsigned long long)run->pid);
    put_line(file, "ending", run->ending);
    return fclose(file) ? errno : 0;
}

int mlr_last_read(const char *directory, mlr_kept *out) {
    char *path = mlr_joined("%s/" RUN_FILE, directory), *line = NULL, *text;
    FILE *file = fopen(path, "re");
    size_t room = 0;
    free(path);
    memset(out, 0, sizeof *out);
    if (!file) return 0;
    out->directory = mlr_joined("%s", directory);
    while (getline(&line, &room, file) > 0) {
        line[strcspn(line, "\n")] = 0;
        text = strchr(line, '=');
        if (!text) continue;
        *text++ = 0;
        if (!strcmp(line, "program") && !out->program) out->program = mlr_joined("%s", text);
        if (!strcmp(line, "ending") && !out->ending) out->ending = mlr_joined("%s", text);
        if (!strcmp(line, "pid")) out->pid = strtoull(text, NULL, 10);
    }
    free(line);
    (void)fclose(file);
    return 1;
}

/* -- all runs -- */

typedef struct kept {
    char **path; /* the oldest first: a name begins with the time */
    size_t count;
} kept;

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static kept list_runs(void) {
    kept all = {NULL, 0};
    char *runs = runs_directory();
    DIR *list = runs ? opendir(runs) : NULL;
    const struct dirent *entry;
    while (list && (entry = readdir(list)) != NULL) {
        if (entry->d_name[0] == '.') continue;
        all.path = (char **)mlr_need(realloc(all.path, (all.count + 1) * sizeof *all.path));
        all.path[all.count++] = mlr_joined("%s/%s", runs, entry->d_name);
    }
    if (list) (void)closedir(list);
    free(runs);
    if (all.count) qsort(all.path, all.count, sizeof *all.path, by_text);
    return all;
}

static void free_runs(kept *all) {
    for (size_t i = 0; i < all->count; i++) free(all->path[i]);
    free(all->path);
}

/* Calls a function for each file of a directory. */
static void each_file(const char *directory, void (*fn)(const char *path, void *user), void *user) {
    DIR *list = opendir(directory);
    const struct dirent *entry;
    char *path;
    while (list && (entry = readdir(list)) != NULL) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        path = mlr_joined("%s/%s", directory, entry->d_name);
        fn(path, user);
        free(path);
    }
    if (list) (void)closedir(list);
}

static void add_size(const char *path, void *bytes) {
    struct stat is;
    if (!lstat(path, &is)) *(uint64_t *)bytes += (uint64_t)is.st_size;
}

static void remove_file(const char *path, void *failed) {
    if (unlink(path)) *(int *)failed = errno;
}

/* Removes a run. Returns 0, or the number of an error. */
static int remove_run(const char *directory) {
    int failed = 0;
    each_file(directory, remove_file, &failed);
    return rmdir(directory) ? errno : failed;
}

/* Removes runs until at most `most` stay, with at most `bytes`. Does not remove one that is being
   recorded. Returns how many it removed. */
static size_t trim(size_t most, uint64_t bytes, uint64_t *freed) {
    kept all = list_runs();
    size_t stay = 0, removed = 0;
    uint64_t sum = 0;
    *freed = 0;
    for (size_t i = all.count; i-- > 0;) {
        const int fd = lock_run(all.path[i], O_RDONLY);
        uint64_t size = 0;
        each_file(all.path[i], add_size, &size);
        if (fd >= 0 && (stay >= most || (stay && sum + size > bytes))) {
            const int error = remove_run(all.path[i]);
            if (error) mlr_tell("%s: not removed: %s", mlr_clean(all.path[i]), strerror(error));
            if (!error) removed++, *freed += size;
        } else {
            stay++, sum += size;
        }
        if (fd >= 0) (void)close(fd);
    }
    free_runs(&all);
    return removed;
}

void mlr_last_end(const char *directory, int is_kept) {
    uint64_t freed;
    if (run_lock >= 0) (void)close(run_lock);
    run_lock = -1;
    if (is_kept)
        (void)trim(RUNS_KEPT, BYTES_KEPT, &freed);
    else
        (void)remove_run(directory);
}

int mlr_last_find(mlr_kept *out) {
    kept all = list_runs();
    size_t i = all.count;
    int found = 0, recorded = 0;
    while (i-- > 0 && !found) {
        const int fd = lock_run(all.path[i], O_RDONLY);
        recorded |= fd < 0;
        found = fd >= 0 && mlr_last_read(all.path[i], out);
        if (fd >= 0) (void)close(fd);
    }
    free_runs(&all);
    if (!found && recorded)
        mlr_tell("the only run has not ended yet; end its program, or wait for it");
    else if (!found)
        mlr_tell("no run is kept; record one first: memlord run PROGRAM");
    return found;
}

int mlr_clean_main(int argc, char **argv) {
    static const struct option options[] = {
        {"all", no_argument, NULL, 'a'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    char text[32];
    size_t count;
    uint64_t freed;
    int all = 0, c;
    while ((c = getopt_long(argc, argv, "ah", options, NULL)) != -1) {
        if (c == 'h') return mlr_verb_help("clean");
        if (c != 'a') return mlr_say_usage("clean");
        all = 1;
    }
    if (optind < argc) {
        mlr_tell("%s: not wanted", mlr_clean(argv[optind]));
        return mlr_say_usage("clean");
    }
    count = trim(all ? 0 : RUNS_KEPT, all ? 0 : BYTES_KEPT, &freed);
    printf("removed %zu %s, %s\n", count, count == 1 ? "run" : "runs", mlr_text_bytes(text, freed));
    return MLR_DONE;
}
