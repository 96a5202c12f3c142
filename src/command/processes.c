#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* memmem */
#endif
#include "command/processes.h"
#include "command/library.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEEN_MOST = 4096, TOLD_MOST = 3 };

/* -- one process -- */

/* Returns 1 if the environment that a process was started with has a variable, 0 if not, -1 if
   nobody may know. */
static int has_variable(pid_t pid, const char *variable) {
    char path[40], *text = NULL;
    const size_t length = strlen(variable) + 1;
    size_t size = 0, room = 1 << 16, got;
    int found = -1;
    FILE *file;
    (void)snprintf(path, sizeof path, "/proc/%ld/environ", (long)pid);
    file = fopen(path, "re");
    if (!file) return -1;
    do {
        text = (char *)mlr_need(realloc(text, room + 1));
        got = fread(text + size, 1, room - size, file);
        size += got;
        room *= 2;
    } while (got && size < (size_t)4 << 20);
    if (!ferror(file)) found = size && memmem(text, size, variable, length) != NULL;
    (void)fclose(file);
    free(text);
    return found;
}

static char *program_of(pid_t pid) {
    char link[40], path[PATH_MAX];
    ssize_t n;
    (void)snprintf(link, sizeof link, "/proc/%ld/exe", (long)pid);
    n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return NULL;
    path[n] = 0;
    return mlr_joined("%s", path);
}

/* Notes a process. Its program may be another one than at the last look. */
static void note(mlr_processes *all, pid_t pid) {
    char *program = program_of(pid);
    mlr_seen *s = NULL;
    for (size_t i = 0; i < all->count && !s; i++)
        if (all->at[i].pid == pid) s = &all->at[i];
    if (!program) return;
    if (s && !strcmp(s->program, program)) {
        free(program);
        return;
    }
    if (!s) {
        if (all->count == SEEN_MOST) {
            free(program);
            return;
        }
        if (all->count == all->room) {
            all->room = all->room ? 2 * all->room : 64;
            all->at = (mlr_seen *)mlr_need(realloc(all->at, all->room * sizeof *all->at));
        }
        s = &all->at[all->count++];
        memset(s, 0, sizeof *s);
        s->pid = pid;
    }
    free(s->program);
    s->program = program;
    s->cleaned = has_variable(pid, all->mark) == 0;
}

/* -- all -- */

static void look_below(mlr_processes *all, pid_t pid, int depth) {
    char path[PATH_MAX];
    DIR *threads;
    const struct dirent *entry;
    (void)snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    threads = depth < 64 ? opendir(path) : NULL;
    while (threads && (entry = readdir(threads)) != NULL) {
        FILE *file;
        long child;
        if (entry->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "/proc/%ld/task/%.20s/children", (long)pid,
                       entry->d_name);
        file = fopen(path, "re");
        while (file && fscanf(file, "%ld", &child) == 1) {
            note(all, (pid_t)child);
            look_below(all, (pid_t)child, depth + 1);
        }
        if (file) (void)fclose(file);
    }
    if (threads) (void)closedir(threads);
}

void mlr_processes_look(mlr_processes *all, pid_t below) {
    note(all, below);
    look_below(all, below, 0);
}

static int has_profile(const mlr_paths *profiles, pid_t pid) {
    char name[32];
    (void)snprintf(name, sizeof name, "/%ld.json", (long)pid);
    for (size_t i = 0; i < profiles->count; i++) {
        const char *slash = strrchr(profiles->at[i], '/');
        if (slash && !strcmp(slash, name)) return 1;
    }
    return 0;
}

/* Says which processes of the run live on. */
static void tell_living(const mlr_processes *all, const char *directory) {
    DIR *list = opendir("/proc");
    const struct dirent *entry;
    size_t count = 0;
    while (list && (entry = readdir(list)) != NULL) {
        const pid_t pid = (pid_t)atol(entry->d_name);
        char *program;
        if (pid <= 1 || pid == getpid() || has_variable(pid, all->mark) != 1) continue;
        program = program_of(pid);
        if (++count <= TOLD_MOST)
            mlr_tell("%s (pid %ld) lives on; when it has ended: memlord report %s/%ld.json",
                     program ? mlr_clean(program) : "a process", (long)pid, mlr_clean(directory),
                     (long)pid);
        free(program);
    }
    if (list) (void)closedir(list);
    if (count > TOLD_MOST) mlr_tell("and %zu more processes live on", count - TOLD_MOST);
}

/* Returns why a process that has ended has no profile. */
static char *reason_of(const mlr_seen *s, const char *library) {
    char *why = mlr_program_doubt(s->program, library);
    if (why) return why;
    if (s->cleaned)
        return mlr_joined("its environment was cleaned of LD_PRELOAD; let its parent keep it");
    return mlr_joined(
        "it was killed, or ended itself by a system call; --every 1 keeps what it had "
        "a second before");
}

void mlr_processes_tell(mlr_processes *all, pid_t program, const mlr_paths *profiles,
                        const char *directory, const char *library) {
    size_t count = 0;
    for (size_t i = 0; i < all->count; i++) {
        const mlr_seen *s = &all->at[i];
        char *why;
        if (s->pid == program || has_profile(profiles, s->pid) || !kill(s->pid, 0)) continue;
        if (++count > TOLD_MOST) continue;
        why = reason_of(s, library);
        mlr_tell("%s (pid %ld) has no profile: %s", mlr_clean(s->program), (long)s->pid, why);
        free(why);
    }
    if (count > TOLD_MOST) mlr_tell("and %zu more processes have no profile", count - TOLD_MOST);
    if (directory) tell_living(all, directory);
}
