/* A part of preload.c, a library that is loaded into a program to record its heap: finds the file
   that a report is written to. The program may have ledgers of its own, by memlord.h. */

/* ------------------------------------------------------------------ the file of a report -- */

/* The path and the format that the environment gives for the report. */
static struct {
    memlord_format format;
    int told;   /* 1: a line at the start said that no report can be written at `path` */
    int beside; /* 1: a ledger of the program writes to the same path, so "interposer-" is put
                   before the name */
    char path[PATH_MAX];      /* MEMLORD_REPORT; "" if the report goes to stderr */
    char directory[PATH_MAX]; /* the directory that the program started in, with a / at its end;
                                 "" if the path is absolute */
} want;

#define TARGET_MAX (2 * PATH_MAX)

/* The file of the report that is being written. */
static struct {
    const char *quoted;        /* the path with each % doubled, as memlord_save takes it */
    char path[3 * TARGET_MAX]; /* the path with numbers in place of %p, %n and %t. `quoted` points
                                  behind the NUL of this text, so that both texts are in the same
                                  page of memory unless they are long */
} target;

/* Appends a text to the path. A text that does not fit is cut: the system refuses a path of that
   length anyway. */
static void add_to_path(const char *text, size_t length) {
    const size_t n = strlen(target.path), room = TARGET_MAX - 1 - n;
    memcpy(target.path + n, text, length < room ? length : room);
    target.path[n + (length < room ? length : room)] = 0;
}

/* Returns the number that a letter after a % in the path stands for, or -1 if the letter stands for
   none. */
static long long number_in_path(char letter) {
    switch (letter) {
    case 'p': return getpid();
    case 'n': return reports;
    case 't': return (long long)time(NULL);
    default: return -1;
    }
}

/* Sets `target` to the path of the next report. */
static void expand_path(void) {
    const char *slash = strrchr(want.path, '/'), *name = slash ? slash + 1 : want.path, *c;
    char number[24], *to;
    target.path[0] = 0;
    add_to_path(want.directory, strlen(want.directory));
    for (c = want.path; *c; c++) {
        const long long n = *c == '%' ? number_in_path(c[1]) : -1;
        if (want.beside && c == name) add_to_path("interposer-", 11);
        if (n < 0) {
            c += *c == '%' && c[1] == '%';
            add_to_path(c, 1);
        } else {
            c++;
            (void)snprintf(number, sizeof number, "%lld", n);
            add_to_path(number, strlen(number));
        }
    }
    target.quoted = to = target.path + strlen(target.path) + 1;
    for (c = target.path; *c; c++) {
        if (*c == '%') *to++ = '%';
        *to++ = *c;
    }
    *to = 0;
}

/* Warns if the report cannot be written. Does so at the start, because the program may close
   stderr. */
static void check_path(void) {
    char line[512]; /* a longer path is cut */
    const char *why = NULL;
    struct stat there;
    uint32_t error;
    char *name;
    if (!want.path[0]) return;
    expand_path();
    name = strrchr(target.path, '/');
    if (name) *name = 0;
    error = mli_directory_error(!name ? "." : *target.path ? target.path : "/");
    if (error) why = strerror((int)error);
    if (name) *name = '/';
    if (!why && !lstat(target.path, &there) && !S_ISREG(there.st_mode))
        why = "there is something that is no regular file";
    want.told = why != NULL;
    if (!why) return;
    (void)snprintf(line, sizeof line, "memlord: no report can be written at %.400s: %s\n",
                   target.path, why);
    say(line);
}

/* Returns 1 if a path has a suffix that no format has. */
static int has_unknown_suffix(const char *path) {
    const char *name = strrchr(path, '/');
    const char *suffix = strrchr(name ? name : path, '.');
    return suffix && suffix[1] != '%' && strcmp(suffix, ".txt") &&
           memlord_format_for(path) == MEMLORD_FORMAT_TEXT;
}

static void read_path(void) {
    const char *path = getenv("MEMLORD_REPORT");
    const size_t length = path ? strlen(path) : 0;
    size_t n;
    want.format = MEMLORD_FORMAT_TEXT;
    if (!length || !strcmp(path, "-")) return;
    if (length >= sizeof want.path) {
        complain(PREFIX "REPORT", "has no effect: the path is too long");
        return;
    }
    if (path[0] != '/' && getcwd(want.directory, sizeof want.directory - 1)) {
        n = strlen(want.directory);
        if (want.directory[n - 1] != '/') memcpy(want.directory + n, "/", 2);
    }
    memcpy(want.path, path, length + 1);
    want.format = memlord_format_for(path);
    if (has_unknown_suffix(path)) complain(path, "is written as TEXT: it has no format's suffix");
    check_path();
}

/* ----------------------------------------------------------- reports of the program's own -- */

/* A ledger in the program may write a report of its own to the same path. The report that is
   written later would then replace the other one. So this library notes the files that ledgers of
   the program write, and writes its own report to another file beside them. */

/* Identifies a file. Another file may later get the same inode, but not with the same time. */
typedef struct file_mark {
    dev_t device;
    ino_t inode;
    struct timespec written;
} file_mark;

#define THEIRS_MAX 8
static struct {
    file_mark files[THEIRS_MAX]; /* the latest reports of the program's ledgers */
    unsigned count;              /* how many reports these ledgers have written; if `files` is
                                    full, a new report replaces the oldest */
} theirs;

static int mark_file(const char *path, file_mark *out) {
    struct stat s;
    if (lstat(path, &s)) return 0;
    out->device = s.st_dev;
    out->inode = s.st_ino;
    out->written = s.st_mtim;
    return 1;
}

static int is_same_file(const file_mark *a, const file_mark *b) {
    return a->device == b->device && a->inode == b->inode &&
           a->written.tv_sec == b->written.tv_sec && a->written.tv_nsec == b->written.tv_nsec;
}

/* Returns 1 if a path is that of the temporary file that memlord_save writes in this process. */
static int is_unfinished_report(const char *path) {
    const char *slash = strrchr(path, '/');
    char start[40];
    const int n = snprintf(start, sizeof start, ".memlord-%ld-", (long)getpid());
    return !strncmp(slash ? slash + 1 : path, start, (size_t)n);
}

static int (*real_rename)(const char *from, const char *to);

/* Replaces rename of the C library. Notes each report that a ledger of the program writes:
   memlord_save ends by renaming its temporary file. The addition to theirs.count is atomic, so
   that two threads get different places in `files`. The addition orders no other memory access. */
EXPORT int rename(const char *from, const char *to) {
    const int before = errno;
    file_mark file;
    int failed;
    if (!real_rename && !(started() && real_rename)) {
        errno = ENOSYS;
        return -1;
    }
    failed = real_rename(from, to);
    if (failed || inside || !is_unfinished_report(from)) return failed;
    if (mark_file(to, &file))
        theirs.files[__atomic_fetch_add(&theirs.count, 1, __ATOMIC_RELAXED) % THEIRS_MAX] = file;
    errno = before;
    return 0;
}

/* Puts "interposer-" before the name of this report and later ones, if the file at `target` is a
   report of a ledger of the program. */
static void step_aside(void) {
    char line[1024]; /* longer paths are cut */
    file_mark file;
    unsigned i = 0;
    if (want.beside || !mark_file(target.path, &file)) return;
    while (i < THEIRS_MAX && !is_same_file(&theirs.files[i], &file)) i++;
    if (i == THEIRS_MAX) return;
    want.beside = 1;
    expand_path();
    (void)snprintf(line, sizeof line,
                   "memlord: the interposer's report is %.900s: a ledger in the program has "
                   "written its own to MEMLORD_REPORT\n", target.path);
    say(line);
}
