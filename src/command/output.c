#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "command/output.h"
#include "command/say.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct target {
    FILE *file;
    int error; /* of the first write that failed */
} target;

static int to_file(void *user, const void *data, size_t size) {
    target *t = (target *)user;
    if (fwrite(data, 1, size, t->file) == size) return 0;
    t->error = errno ? errno : EIO;
    return 1;
}

/* Writes to an open file. Returns 0, or -1 and why not. */
static int write_all(target *t, mlr_writer_fn fn, const void *what, char *message, size_t room) {
    mlr_out out;
    int failed;
    errno = 0;
    mlr_out_open(&out, to_file, t);
    failed = fn(&out, what, message, room);
    if (mlr_out_close(&out) && !failed) failed = 1;
    if (fflush(t->file) && !t->error) t->error = errno;
    if (t->error) (void)snprintf(message, room, "%s", strerror(t->error));
    return failed || t->error ? -1 : 0;
}

static const char *cure_of(int error) {
    switch (error) {
    case ENOSPC:
    case EDQUOT: return "; the file is as it was: make room, or choose another place by -o";
    case EACCES:
    case EPERM:
    case EROFS: return "; choose a place you may write to by -o";
    case ENOENT: return "; make the directory first";
    default: return "";
    }
}

static int fail(const char *path, int error, const char *why) {
    mlr_tell("%s: cannot be written: %s%s", mlr_clean(path), why, cure_of(error));
    return MLR_COULD_NOT;
}

/* Writes to what is there: standard output, a pipe, a terminal, a device. */
static int write_in_place(const char *path, mlr_writer_fn fn, const void *what) {
    const int standard = !strcmp(path, "-");
    target t = {standard ? stdout : fopen(path, "wb"), 0};
    char message[256] = "the writer failed";
    int failed;
    if (!t.file) return fail(path, errno, strerror(errno));
    failed = write_all(&t, fn, what, message, sizeof message);
    if (!standard && fclose(t.file) && !failed) {
        t.error = errno;
        (void)snprintf(message, sizeof message, "%s", strerror(t.error));
        failed = -1;
    }
    if (failed && t.error == EPIPE) return MLR_COULD_NOT; /* the reader has gone, and knows */
    return failed ? fail(standard ? "standard output" : path, t.error, message) : MLR_DONE;
}

/* Makes a temporary file beside a path. Returns NULL, or a stream; *name is its path. */
static FILE *make_beside(const char *path, char **name) {
    const char *slash = strrchr(path, '/');
    FILE *file = NULL;
    for (unsigned n = 0; n < 100 && !file; n++) {
        *name = mlr_joined("%.*s.memlord-%ld-%u.tmp", slash ? (int)(slash - path + 1) : 0, path,
                           (long)getpid(), n);
        file = fopen(*name, "wbx");
        if (file) return file;
        free(*name);
        if (errno != EEXIST) break;
    }
    return NULL;
}

/* Moves the temporary file to its place, whose permissions it gets if there is a file. */
static int move(const char *from, const char *to, const struct stat *old) {
#if defined(_WIN32)
    (void)old;
    if (remove(to) && errno != ENOENT) return -1;
#else
    if (old && chmod(from, old->st_mode & 0777)) return -1;
#endif
    return rename(from, to);
}

int mlr_output(const char *path, mlr_writer_fn fn, const void *what) {
    char message[256] = "the writer failed", *name = NULL, *real = NULL;
    struct stat old;
    int there, failed;
    target t = {NULL, 0};
    if (!strcmp(path, "-")) return write_in_place(path, fn, what);
    there = !stat(path, &old);
    if (there && !S_ISREG(old.st_mode)) return write_in_place(path, fn, what);
#if !defined(_WIN32)
    real = there ? realpath(path, NULL) : NULL; /* a link stays, and what it names is replaced */
#endif
    t.file = make_beside(real ? real : path, &name);
    if (!t.file) {
        free(real);
        return fail(path, errno, strerror(errno));
    }
    failed = write_all(&t, fn, what, message, sizeof message);
    if (fclose(t.file) && !failed) failed = -1, t.error = errno;
    if (!failed && move(name, real ? real : path, there ? &old : NULL))
        failed = -1, t.error = errno;
    if (failed && t.error) (void)snprintf(message, sizeof message, "%s", strerror(t.error));
    if (failed) (void)remove(name);
    free(name);
    free(real);
    return failed ? fail(path, t.error, message) : MLR_DONE;
}

int mlr_output_check(const char *path) {
    const char *slash = strrchr(path, '/');
    char *directory;
    struct stat is;
    int error = 0;
    if (!strcmp(path, "-")) return MLR_DONE;
    if (!stat(path, &is)) {
        if (S_ISDIR(is.st_mode)) return fail(path, EISDIR, strerror(EISDIR));
        if (!S_ISREG(is.st_mode)) return MLR_DONE;
    }
    directory = slash ? mlr_joined("%.*s", (int)(slash - path + 1), path) : mlr_joined(".");
    if (access(directory, W_OK)) error = errno;
    free(directory);
    return error ? fail(path, error, strerror(error)) : MLR_DONE;
}

int mlr_output_is_each(const char *path) {
    for (const char *c = path; *c; c++) {
        if (c[0] == '%' && c[1] == 'p') return 1;
        if (c[0] == '%' && c[1]) c++;
    }
    return 0;
}

char *mlr_output_path(const char *path, uint64_t pid, uint64_t number, uint64_t seconds) {
    char *out = mlr_joined("%s", ""), *more;
    for (const char *c = path; *c; c++, out = more) {
        unsigned long long n;
        if (c[0] != '%' || !c[1] || !strchr("pnt%", c[1])) {
            more = mlr_joined("%s%c", out, *c);
        } else if (*++c == '%') {
            more = mlr_joined("%s%%", out);
        } else {
            n = *c == 'p' ? pid : *c == 'n' ? number : seconds;
            more = mlr_joined("%s%llu", out, n);
        }
        free(out);
    }
    return out;
}
