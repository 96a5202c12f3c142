#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "command/perfmap.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAP_BYTES ((size_t)64 << 20)
#define MAP_LINES ((size_t)1 << 20)
#define OVERLAPS  64 /* how many of the functions that begin before an address are looked at */

typedef struct mlr_perf_function {
    uint64_t from, size;
    size_t line;
    const char *name;
} function;

static int by_address(const void *a, const void *b) {
    const function *f = (const function *)a, *g = (const function *)b;
    if (f->from != g->from) return f->from < g->from ? -1 : 1;
    return f->line < g->line ? -1 : 1;
}

/* Opens a perf map. Returns -1 if there is no file, or if the file is not used; *why then has the
   reason, or NULL if there is no file. With O_NONBLOCK, open() does not wait if the path is a
   pipe. */
static int open_map(const char *path, uint64_t began_ns, const char **why) {
    struct stat is;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        *why = errno == ENOENT ? NULL : strerror(errno);
        return -1;
    }
    *why = NULL;
    if (fstat(fd, &is))
        *why = strerror(errno);
    else if (!S_ISREG(is.st_mode))
        *why = "it is no file";
    else if (geteuid() && is.st_uid != geteuid())
        *why = "it is another user's";
    else if ((uint64_t)is.st_mtim.tv_sec + 1 < began_ns / 1000000000)
        *why = "it is older than the program, so it is another process's";
    if (!*why) return fd;
    (void)close(fd);
    return -1;
}

/* Reads a line "START SIZE NAME". Returns 0 if the line has another form. */
static int read_line(char *line, function *f) {
    char *end;
    f->from = strtoull(line, &end, 16);
    if (end == line || *end != ' ') return 0;
    line = end + 1;
    f->size = strtoull(line, &end, 16);
    if (end == line || *end != ' ' || !end[1] || f->from > INT64_MAX || f->size > INT32_MAX)
        return 0;
    f->name = end + 1;
    return 1;
}

static void add(mlr_perfmap *map, const function *f) {
    if (map->count == map->room) {
        map->room = map->room ? 2 * map->room : 256;
        map->at = (function *)mlr_need(realloc(map->at, map->room * sizeof *map->at));
    }
    map->at[map->count++] = *f;
}

static void read_lines(mlr_perfmap *map, size_t size) {
    char *line = map->text, *end;
    size_t number = 0;
    for (; line < map->text + size && number < MAP_LINES; line = end + 1) {
        function f;
        end = (char *)memchr(line, '\n', (size_t)(map->text + size - line));
        if (!end) return; /* the line has no end, because the program was still writing it */
        *end = 0;
        f.line = number++;
        if (strlen(line) != (size_t)(end - line) || !read_line(line, &f))
            map->bad++;
        else if (f.size)
            add(map, &f);
    }
    if (line < map->text + size)
        mlr_tell("%s: what is behind line %zu is left out", mlr_clean(map->path), number);
}

static size_t read_text(mlr_perfmap *map, int fd) {
    size_t size = 0;
    ssize_t got = 1;
    map->text = (char *)mlr_need(malloc(MAP_BYTES));
    while (size < MAP_BYTES && got > 0) {
        got = read(fd, map->text + size, MAP_BYTES - size);
        if (got > 0) size += (size_t)got;
    }
    if (size == MAP_BYTES)
        mlr_tell("%s: what is behind %zu MiB is left out", mlr_clean(map->path), size >> 20);
    return size;
}

void mlr_perfmap_read(mlr_perfmap *map, const char *symfs, uint64_t pid, uint64_t began_ns) {
    const char *why = NULL;
    int fd;
    memset(map, 0, sizeof *map);
    if (!pid) return;
    map->path = mlr_joined("%s/tmp/perf-%llu.map", symfs ? symfs : "", (unsigned long long)pid);
    fd = open_map(map->path, began_ns, &why);
    if (why) mlr_tell("%s: not used: %s", mlr_clean(map->path), why);
    if (fd < 0) return;
    read_lines(map, read_text(map, fd));
    (void)close(fd);
    if (map->bad > 1 + map->count / 100) {
        mlr_tell("%s: not used: %zu of its lines are not \"START SIZE NAME\"", mlr_clean(map->path),
                 map->bad);
        map->count = 0;
    }
    if (map->count) qsort(map->at, map->count, sizeof *map->at, by_address);
}

const char *mlr_perfmap_name(const mlr_perfmap *map, uint64_t address) {
    const function *best = NULL;
    size_t low = 0, high = map->count, looked;
    while (low < high) { /* finds the first function that begins after the address */
        const size_t middle = low + (high - low) / 2;
        if (map->at[middle].from <= address)
            low = middle + 1;
        else
            high = middle;
    }
    for (looked = 0; low-- > 0 && looked < OVERLAPS; looked++) {
        const function *f = &map->at[low];
        if (address - f->from < f->size && (!best || f->line > best->line)) best = f;
    }
    return best ? best->name : NULL;
}

void mlr_perfmap_free(mlr_perfmap *map) {
    free(map->path);
    free(map->text);
    free(map->at);
    memset(map, 0, sizeof *map);
}
