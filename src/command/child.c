#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* execvpe, sigabbrev_np */
#endif
#include "command/child.h"
#include "command/library.h"
#include "profile/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct {
    sigset_t before; /* the mask that the command was started with */
    sigset_t taken;  /* SIGCHLD, and what the program gets if it is sent to the command */
    int ignored;     /* 1: the command was started with SIGCHLD ignored */
    pid_t witness;
    int seen; /* the descriptor where the witness tells what it was sent */
    struct timespec began;
    uint64_t kills;
} own = {.seen = -1};

/* -- the memory cgroup -- */

/* Returns the count of out-of-memory kills in a file of the cgroup, or -1 if there is none. */
static int64_t count_in(const char *path) {
    FILE *file = fopen(path, "r");
    char line[256];
    long long n, found = -1;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "oom_kill %lld", &n) == 1) found = n;
    if (file) (void)fclose(file);
    return found;
}

/* Returns the out-of-memory kills in the memory cgroup of this process, and so of its children. */
static uint64_t count_kills(void) {
    FILE *file = fopen("/proc/self/cgroup", "r");
    char line[4096];
    int64_t found = -1;
    while (file && found < 0 && fgets(line, sizeof line, file)) {
        char *name = strchr(line, ':'), *at = name ? strchr(name + 1, ':') : NULL, *path;
        line[strcspn(line, "\n")] = 0;
        if (!at) continue;
        *at++ = 0;
        if (!name[1]) /* version 2; in a container its root is the container's own */
            path = mlr_joined("/sys/fs/cgroup%s/memory.events", at);
        else if (strstr(name, "memory"))
            path = mlr_joined("/sys/fs/cgroup/memory%s/memory.oom_control", at);
        else
            continue;
        found = count_in(path);
        free(path);
    }
    if (file) (void)fclose(file);
    if (found < 0) found = count_in("/sys/fs/cgroup/memory.events");
    return found > 0 ? (uint64_t)found : 0;
}

/* -- signals -- */

static void take_signals(void) {
    struct sigaction plain, old;
    static const int numbers[] = {SIGCHLD, SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                                  SIGUSR1, SIGUSR2, SIGTSTP, SIGPWR};
    (void)sigemptyset(&own.taken);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        (void)sigaddset(&own.taken, numbers[i]);
    for (int n = SIGRTMIN; n <= SIGRTMAX; n++) (void)sigaddset(&own.taken, n);
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    (void)sigprocmask(SIG_BLOCK, &own.taken, &own.before);
    (void)sigaction(SIGCHLD, &plain, &old); /* where it is ignored nobody can wait */
    own.ignored = old.sa_handler == SIG_IGN;
}

/* Closes the descriptors that the program has, too, from `least` on: a reader sees that the program
   has closed its end. Those of the command itself are closed on exec. */
static void let_go(int least) {
    DIR *list = opendir("/proc/self/fd");
    const struct dirent *entry;
    while (list && (entry = readdir(list)) != NULL) {
        const int fd = atoi(entry->d_name), flags = fcntl(fd, F_GETFD);
        if (fd >= least && flags >= 0 && !(flags & FD_CLOEXEC)) (void)close(fd);
    }
    if (list) (void)closedir(list);
}

/* Puts nothing in place of a descriptor, so that no file gets its number. */
static void empty(int fd) {
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing >= 0) (void)dup3(nothing, fd, O_CLOEXEC);
    if (nothing >= 0) (void)close(nothing);
}

/* Tells the command, byte by byte, which signals came. They are those of the whole group, because
   nobody knows this process. */
static void witness(int fd, pid_t command) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    let_go(0);
    while (getppid() == command) {
        const int number = sigwaitinfo(&own.taken, NULL);
        const unsigned char byte = (unsigned char)number;
        if (number > 0 && number != SIGCHLD && write(fd, &byte, 1) != 1) break;
    }
    _exit(0);
}

static void start_witness(void) {
    const pid_t command = getpid();
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return;
    own.witness = fork();
    if (!own.witness) witness(ends[1], command);
    (void)close(ends[1]);
    own.seen = ends[0];
    (void)fcntl(own.seen, F_SETFL, O_NONBLOCK);
}

static void end_witness(void) {
    if (own.witness > 0) {
        (void)kill(own.witness, SIGKILL);
        while (waitpid(own.witness, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    if (own.seen >= 0) (void)close(own.seen);
    own.witness = 0;
    own.seen = -1;
}

/* Returns 1 if a signal came to the whole group. Then the program has it, too. */
static int came_to_group(int number) {
    struct pollfd p = {own.seen, POLLIN, 0};
    unsigned char byte;
    while (own.seen >= 0) {
        const ssize_t n = read(own.seen, &byte, 1);
        if (n == 1 && byte == number) return 1;
        if (n == 0 || (n < 0 && (errno != EAGAIN || poll(&p, 1, 20) <= 0))) return 0;
    }
    return 0;
}

/* Returns the state of a process, a letter, and its parent; or 0 if there is no such process. */
static char state_of(pid_t pid, pid_t *parent) {
    char path[40], text[1024], *end, state;
    FILE *file;
    size_t n;
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    *parent = 0;
    file = fopen(path, "r");
    if (!file) return 0;
    n = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[n] = 0;
    end = strrchr(text, ')'); /* the name before it may have any character */
    return end && sscanf(end + 1, " %c %d", &state, parent) == 2 ? state : 0;
}

static int is_descendant(pid_t pid, pid_t of) {
    for (int depth = 0; pid > 1 && depth < 64; depth++) {
        if (pid == of) return 1;
        (void)state_of(pid, &pid);
    }
    return 0;
}

/* Hands on a signal that was sent to the command alone: to the program; or, if the program sent it
   to its parent, to the command's own parent. */
static void hand_on(const mlr_child *child, const siginfo_t *signal) {
    if (signal->si_code > 0 || came_to_group(signal->si_signo)) return;
    if (!is_descendant(signal->si_pid, child->pid))
        (void)kill(child->pid, signal->si_signo);
    else if (getppid() > 1)
        (void)kill(getppid(), signal->si_signo);
}

static void take_default(int number) {
    struct sigaction plain;
    sigset_t one;
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    (void)sigaction(number, &plain, NULL);
    (void)sigemptyset(&one);
    (void)sigaddset(&one, number);
    (void)sigprocmask(SIG_UNBLOCK, &one, NULL);
}

/* Stops as the program has stopped, and lets it go on when this process does. */
static void stop_alike(const mlr_child *child, int number) {
    sigset_t one;
    pid_t parent;
    take_default(number);
    (void)raise(number);
    (void)sigemptyset(&one);
    (void)sigaddset(&one, number);
    if (number == SIGTSTP) (void)sigprocmask(SIG_BLOCK, &one, NULL);
    if (state_of(child->pid, &parent) == 'T') (void)kill(child->pid, SIGCONT);
}

/* -- the program -- */

int mlr_child_start(mlr_child *child, const char *path, char **argv, char **environment,
                    int keep_stdout) {
    int ends[2], error = 0;
    memset(child, 0, sizeof *child);
    own.kills = count_kills();
    take_signals();
    start_witness(); /* before the pipe, of which it must not have an end */
    if (pipe2(ends, O_CLOEXEC)) {
        child->error = errno;
        end_witness();
        (void)sigprocmask(SIG_SETMASK, &own.before, NULL);
        return -1;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &own.began);
    child->pid = fork();
    if (!child->pid) {
        if (own.ignored) (void)signal(SIGCHLD, SIG_IGN);
        (void)sigprocmask(SIG_SETMASK, &own.before, NULL);
        if (path) (void)execve(path, argv, environment);
        if (!path || (errno == ENOEXEC && !mlr_program_is_binary(path))) /* a script */
            (void)execvpe(argv[0], argv, environment);
        error = errno;
        if (write(ends[1], &error, sizeof error) < 0) _exit(127);
        _exit(126);
    }
    if (child->pid < 0) child->error = errno;
    (void)close(ends[1]);
    if (child->pid > 0 && read(ends[0], &error, sizeof error) == (ssize_t)sizeof error) {
        child->error = error;
        (void)waitpid(child->pid, NULL, 0);
    }
    (void)close(ends[0]);
    if (!child->error) {
        empty(STDIN_FILENO);
        if (!keep_stdout) empty(STDOUT_FILENO);
        let_go(STDERR_FILENO + 1);
        return 0;
    }
    end_witness();
    (void)sigprocmask(SIG_SETMASK, &own.before, NULL);
    return -1;
}

/* Returns 1 if the program has ended. */
static int look(mlr_child *child) {
    int status;
    while (waitpid(child->pid, &status, WNOHANG | WUNTRACED) == child->pid) {
        if (!WIFSTOPPED(status)) {
            child->status = status;
            return 1;
        }
        stop_alike(child, WSTOPSIG(status));
    }
    return 0;
}

static uint64_t ns_since(const struct timespec *then) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)((int64_t)(now.tv_sec - then->tv_sec) * 1000000000 + now.tv_nsec -
                      then->tv_nsec);
}

void mlr_child_wait(mlr_child *child, void (*tick)(void *user), void *user) {
    const long least = 10000000, most = 250000000; /* ns */
    while (!look(child)) {
        const uint64_t part = ns_since(&own.began) / 16;
        const struct timespec wait = {0, part < (uint64_t)least  ? least
                                         : part > (uint64_t)most ? most
                                                                 : (long)part};
        siginfo_t signal;
        const int number = sigtimedwait(&own.taken, &signal, &wait);
        if (number > 0 && number != SIGCHLD)
            hand_on(child, &signal);
        else if (number < 0 && errno == EAGAIN)
            tick(user);
    }
    child->ns = ns_since(&own.began);
    child->killed = count_kills() - own.kills;
    end_witness();
}

pid_t mlr_child_fork(void) {
    const pid_t pid = fork();
    if (!pid) {
        (void)sigprocmask(SIG_SETMASK, &own.before, NULL);
        if (own.seen >= 0) (void)close(own.seen);
    }
    return pid;
}

void mlr_child_end_alike(const mlr_child *child, int status) {
    const struct rlimit none = {0, 0};
    (void)fflush(NULL);
    if (WIFEXITED(child->status))
        _exit(WEXITSTATUS(child->status) ? WEXITSTATUS(child->status) : status);
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_DUMPABLE, 0); /* a program that takes cores heeds no limit */
    take_default(WTERMSIG(child->status));
    (void)raise(WTERMSIG(child->status));
    _exit(128 + WTERMSIG(child->status)); /* the first process of a container does not die of it */
}

static const char *signal_name(int number) {
    static const struct {
        int number;
        const char *name;
    } names[] = {{SIGABRT, "SIGABRT"}, {SIGALRM, "SIGALRM"}, {SIGBUS, "SIGBUS"},
                 {SIGFPE, "SIGFPE"},   {SIGHUP, "SIGHUP"},   {SIGILL, "SIGILL"},
                 {SIGINT, "SIGINT"},   {SIGKILL, "SIGKILL"}, {SIGPIPE, "SIGPIPE"},
                 {SIGQUIT, "SIGQUIT"}, {SIGSEGV, "SIGSEGV"}, {SIGSYS, "SIGSYS"},
                 {SIGTERM, "SIGTERM"}, {SIGTRAP, "SIGTRAP"}, {SIGUSR1, "SIGUSR1"},
                 {SIGUSR2, "SIGUSR2"}, {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == number) return names[i].name;
    return NULL;
}

char *mlr_child_ending(const mlr_child *child) {
    char took[32];
    int number;
    (void)mlr_text_duration(took, child->ns);
    if (WIFEXITED(child->status))
        return mlr_joined("ended with status %d after %s", WEXITSTATUS(child->status), took);
    number = WTERMSIG(child->status);
    return mlr_joined(
        "was killed by %s%.0d after %s%s%s", signal_name(number) ? signal_name(number) : "signal ",
        signal_name(number) ? 0 : number, took, WCOREDUMP(child->status) ? "; it left a core" : "",
        child->killed ? "; its memory cgroup counted an out-of-memory kill" : "");
}
