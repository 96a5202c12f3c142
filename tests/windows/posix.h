/* What the suites use of POSIX and MinGW does not have. A test is skipped where it calls what Windows
   cannot do: fork, mmap, socketpair. tests/parts.mk names the suites that need more of POSIX. */
#ifndef MEMLORD_TESTS_WINDOWS_POSIX_H
#define MEMLORD_TESTS_WINDOWS_POSIX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <direct.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

/* -- what is not there -- */

static inline pid_t fork(void) { skip(); }
static inline void *mmap(void *at, size_t size, int protection, int flags, int fd, int64_t offset) {
    (void)at, (void)size, (void)protection, (void)flags, (void)fd, (void)offset;
    skip();
}
static inline int munmap(void *at, size_t size) {
    (void)at, (void)size;
    return -1;
}
static inline int socketpair(int domain, int type, int protocol, int ends[2]) {
    (void)domain, (void)type, (void)protocol, (void)ends;
    skip();
}
static inline ssize_t recv(int fd, void *to, size_t size, int flags) {
    (void)fd, (void)to, (void)size, (void)flags;
    return -1;
}
static inline int mprotect(void *at, size_t size, int protection) {
    (void)at, (void)size, (void)protection;
    return -1;
}
#define memlord_shim_munmap(lord, at, size, site) munmap(at, size) /* memlord.h has none there */
enum { PROT_NONE, PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, _SC_PAGESIZE };
static inline long sysconf(int name) {
    (void)name;
    return 4096;
}
#define MAP_FAILED NULL
enum { AF_UNIX, SOCK_SEQPACKET, MSG_DONTWAIT };

static inline pid_t waitpid(pid_t pid, int *status, int options) {
    (void)pid;
    (void)options;
    *status = -1;
    return -1;
}
#define WIFEXITED(status) ((status) == 0)
#define WEXITSTATUS(status) (status)
#define WIFSIGNALED(status) ((status) != 0)
#define WTERMSIG(status) (status)

/* -- what is there by another name -- */

/* The runner has a limit of its own for a suite that hangs. */
static inline unsigned alarm(unsigned seconds) {
    (void)seconds;
    return 0;
}

/* Nor is there a join with a limit. */
static inline int pthread_timedjoin_np(pthread_t thread, void **out, const struct timespec *until) {
    (void)until;
    return pthread_join(thread, out);
}

static inline int setenv(const char *name, const char *value, int overwrite) {
    return !overwrite && getenv(name) ? 0 : _putenv_s(name, value);
}
static inline int unsetenv(const char *name) { return _putenv_s(name, ""); }

static inline int posix_memalign(void **out, size_t align, size_t size) {
    *out = _aligned_malloc(size, align);
    return *out ? 0 : ENOMEM;
}
#define mkdir(path, mode) mkdir(path)
static inline char *mkdtemp(char *path) { return _mktemp(path) && !mkdir(path, 0700) ? path : NULL; }
static inline int pipe(int ends[2]) { return _pipe(ends, 4096, O_BINARY); }
static inline unsigned geteuid(void) { return 1; } /* not root's */
static inline unsigned getuid(void) { return 1; }

#endif /* MEMLORD_TESTS_WINDOWS_POSIX_H */
