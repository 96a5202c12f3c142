/* A part of preload.c, a library that is loaded into a program to record its heap: finds the file
   that stderr was when the program started, and writes to it. */

/* ------------------------------------------------------------------ whose descriptor ----- */

static struct {
    int known;      /* 1: stderr was open at the start */
    dev_t device;   /* the device of the file that stderr was at the start */
    ino_t inode;    /* the inode of the same file */
    int duplicate;  /* another descriptor of the same file; -1 if there is none */
} start_stderr;

/* Returns 1 if a descriptor is of the file that stderr was at the start. If a sandbox refuses to
   tell, only the duplicate counts as such a descriptor. */
static int is_start_stderr(int fd) {
    struct stat now;
    if (!start_stderr.known || fd < 0) return 0;
    if (fstat(fd, &now)) return errno != EBADF && fd == start_stderr.duplicate;
    return now.st_dev == start_stderr.device && now.st_ino == start_stderr.inode;
}

/* Notes which file stderr is. A program may close stderr before it exits, as coreutils do, and open
   another file under its number. So is_start_stderr checks a descriptor before it is used. */
static void know_stderr(void) {
    struct stat now;
    start_stderr.duplicate = -1;
    if (fstat(STDERR_FILENO, &now)) return;
    start_stderr.known = 1;
    start_stderr.device = now.st_dev;
    start_stderr.inode = now.st_ino;
}

/* Keeps a duplicate of stderr, with a high number, for a report after the program has closed it. */
static void keep_stderr(void) {
    static const int floors[] = {1000, 240, 60, 10, 3};
    size_t i;
    for (i = 0; start_stderr.known && start_stderr.duplicate < 0 &&
                i < sizeof floors / sizeof floors[0]; i++)
        start_stderr.duplicate = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, floors[i]);
}

/* Returns a descriptor of the file that stderr was at the start, or -1 if none is open. */
static int find_stderr(void) {
    if (is_start_stderr(STDERR_FILENO)) return STDERR_FILENO;
    return is_start_stderr(start_stderr.duplicate) ? start_stderr.duplicate : -1;
}

#define PATIENCE_MS 10000 /* how long this library waits for symbolize, and for the reader of our
                             stderr */

static int64_t now_ms(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits until a descriptor is ready. Returns 0 if time is up first. If a sandbox refuses to wait,
   the descriptor counts as ready. */
static int wait_for(int fd, short events, int64_t until) {
    struct pollfd p;
    int64_t left = until - now_ms();
    int ready;
    p.fd = fd;
    p.events = events;
    p.revents = 0;
    ready = left > 0 ? poll(&p, 1, (int)left) : 0;
    return ready != 0;
}

/* Is a memlord_write_fn, and writes to the descriptor at `user`. Waits for the reader, but not for
   ever. Writes at most PIPE_BUF bytes at once, because a pipe that is ready takes so many without
   blocking. */
static int to_fd(void *user, const void *data, size_t size) {
    int fd = *(const int *)user;
    const char *at = (const char *)data;
    int64_t until = now_ms() + PATIENCE_MS;
    while (size) {
        ssize_t n;
        if (!wait_for(fd, POLLOUT, until)) return 1;
        n = write(fd, at, size < PIPE_BUF ? size : PIPE_BUF);
        if (n > 0) {
            at += n;
            size -= (size_t)n;
            until = now_ms() + PATIENCE_MS;
        } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
            return 1;
        }
    }
    return 0;
}

/* Writes a line to stderr if stderr is ready to take it within 1 ms. */
static void say(const char *line) {
    int fd = find_stderr();
    if (fd >= 0 && wait_for(fd, POLLOUT, now_ms() + 1)) (void)!write(fd, line, strlen(line));
}
