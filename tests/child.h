/* Children that fork made, and the threads of a process, for the suites that need them. */
#ifndef TEST_CHILD_H
#define TEST_CHILD_H

#include <dirent.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static inline size_t threads_now(void) {
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    size_t n = 0;
    if (!tasks) return 0;
    while ((task = readdir(tasks)) != NULL) n += task->d_name[0] != '.';
    closedir(tasks);
    return n;
}

static inline int child_status(pid_t pid) {
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
    return status;
}

/* Threads of a child that starts none: 1, but an emulator adds its own. */
static inline int threads_of_a_child(void) {
    pid_t pid = fork();
    if (pid == 0) _exit((int)threads_now());
    return WEXITSTATUS(child_status(pid));
}

#endif
