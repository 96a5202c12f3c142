#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "command/load.h"
#include "profile/read.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BYTES_MAX ((size_t)1 << 30) /* for a file without an end, such as /dev/zero */

/* Returns 0 once it has said why the file cannot be read. */
static int read_text(const char *path, mlr_text *out) {
    const char *name = strcmp(path, "-") ? mlr_clean(path) : "standard input";
    FILE *file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    size_t room = 1 << 16, got = file != NULL;
    int error = errno;
    out->at = (char *)mlr_need(malloc(room + 1));
    out->size = 0;
    while (got && out->size < BYTES_MAX) {
        if (out->size == room) out->at = (char *)mlr_need(realloc(out->at, (room *= 2) + 1));
        errno = 0;
        got = fread(out->at + out->size, 1, room - out->size, file);
        error = errno;
        out->size += got;
        mlr_progress("reading", 0, 0);
    }
    out->at[out->size] = 0;
    if (file && ferror(file)) got = 0, out->size = 0;
    if (!file || ferror(file))
        mlr_tell("%s: %s", name, strerror(error));
    else if (got)
        mlr_tell("%s: larger than %zu GiB", name, BYTES_MAX >> 30);
    else if (!out->size)
        mlr_tell("%s: is empty; write the profile again", name);
    if (file && file != stdin) (void)fclose(file);
    return !got && out->size;
}

mlr_profile *mlr_load(const char *path, mlr_text *text) {
    char message[512] = "out of memory";
    mlr_profile *profile = NULL;
    mlr_text in;
    if (read_text(path, &in)) {
        mlr_progress("reading", 0, 0);
        if (mlr_profile_read(path, in.at, in.size, &profile, message, sizeof message) != MLR_OK)
            mlr_tell("%s", message);
    }
    if (text && profile)
        *text = in;
    else
        free(in.at);
    mlr_progress_end();
    return profile;
}

void mlr_paths_add(mlr_paths *paths, char *path) {
    paths->at = (char **)mlr_need(realloc(paths->at, (paths->count + 1) * sizeof *paths->at));
    paths->at[paths->count++] = path;
}

void mlr_paths_free(mlr_paths *paths) {
    for (size_t i = 0; i < paths->count; i++) free(paths->at[i]);
    free(paths->at);
    memset(paths, 0, sizeof *paths);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int mlr_paths_of(const char *directory, mlr_paths *out) {
    DIR *list = opendir(directory);
    const struct dirent *entry;
    struct stat is;
    char *path;
    memset(out, 0, sizeof *out);
    if (!list) return errno;
    while ((entry = readdir(list)) != NULL) {
        const size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || length < 6 || strcmp(entry->d_name + length - 5, ".json"))
            continue;
        path = mlr_joined("%s/%s", directory, entry->d_name);
        if (!stat(path, &is) && S_ISREG(is.st_mode))
            mlr_paths_add(out, path);
        else
            free(path);
    }
    (void)closedir(list);
    if (out->count) qsort(out->at, out->count, sizeof *out->at, by_text);
    return 0;
}
