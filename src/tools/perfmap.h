/*
    perfmap.h - the names of code that a program made at run time, from its perf map

    A perf map is the file /tmp/perf-PID.map. A program that compiles code at run time writes it for
    the profiler perf: node with --perf-basic-prof, Java with an agent, PyPy, .NET. The file has a
    line "START SIZE NAME" for each function, with hexadecimal numbers. If the functions of two
    lines contain an address, the later line names the address.

    Any program may write such a file, so the file is not trusted. symbolize refuses it, with a line
    on stderr, if it is no regular file of this user, is older than the program, or has too many
    lines of another form. Only the first PERF_MAP_BYTES bytes and PERF_MAP_LINES lines are read.

    Requires: profile.h, and a source that defines _GNU_SOURCE.
*/
#ifndef PERFMAP_H
#define PERFMAP_H

#include "profile.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#define PERF_MAP_BYTES ((size_t)64 << 20)
#define PERF_MAP_LINES ((size_t)1 << 20)
#define PERF_MAP_OVERLAPS 64 /* how many of the functions that begin before an address are looked
                                at */

typedef struct perf_function {
    uint64_t from, size;
    size_t line;
    const char *name;
} perf_function;

static struct perf_map {
    char *path;
    perf_function *at; /* sorted by first address, then by line in the file */
    size_t count, room, bad;
} perf_map;

static int perf_by_address(const void *a, const void *b) {
    const perf_function *f = (const perf_function *)a, *g = (const perf_function *)b;
    if (f->from != g->from) return f->from < g->from ? -1 : 1;
    return f->line < g->line ? -1 : 1;
}

/* Opens a perf map. Returns -1 if there is no file, or if the file is not used; *why then gets the
   reason, or NULL if there is no file. With O_NONBLOCK, open() does not wait if the path is a
   pipe. */
static int perf_map_open(double began, struct stat *is, const char **why) {
    int fd = open(perf_map.path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        *why = errno == ENOENT ? NULL : strerror(errno);
        return -1;
    }
    *why = NULL;
    if (fstat(fd, is))
        *why = strerror(errno);
    else if (!S_ISREG(is->st_mode))
        *why = "it is no file";
    else if (geteuid() && is->st_uid != geteuid())
        *why = "it is another user's";
    else if ((double)is->st_mtim.tv_sec + 1 < began)
        *why = "it is older than the program, so it is another process's";
    if (!*why) return fd;
    (void)close(fd);
    return -1;
}

/* Reads a line "START SIZE NAME". Returns 0 if the line has another form. */
static int perf_line(char *line, perf_function *f) {
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

static void perf_lines(char *text, size_t size) {
    char *line = text, *end;
    size_t number = 0;
    for (; line < text + size && number < PERF_MAP_LINES; line = end + 1) {
        perf_function f;
        end = (char *)memchr(line, '\n', (size_t)(text + size - line));
        if (!end) return; /* the line has no end, because the program was still writing it */
        *end = 0;
        f.line = number++;
        if (strlen(line) != (size_t)(end - line) || !perf_line(line, &f)) {
            perf_map.bad++;
        } else if (f.size) {
            perf_map.at = (perf_function *)grown(perf_map.at, perf_map.count, &perf_map.room,
                                                 sizeof *perf_map.at);
            perf_map.at[perf_map.count++] = f;
        }
    }
    if (line < text + size)
        note("%s: what is behind line %zu is left out", clean(perf_map.path), number);
}

/* Reads the perf map of a process. `began` is when the process began, in seconds since 1970. */
static void perf_map_read(const char *sysroot, double pid, double began) {
    struct stat is;
    const char *why = NULL;
    char *text;
    size_t size = 0;
    ssize_t got = 1;
    int fd;
    if (!(pid > 0)) return;
    perf_map.path = joined("%s/tmp/perf-%.0f.map", sysroot ? sysroot : "", pid);
    fd = perf_map_open(began, &is, &why);
    if (why) note("%s: not used: %s", clean(perf_map.path), why);
    if (fd < 0) return;
    text = (char *)must_alloc(PERF_MAP_BYTES);
    while (size < PERF_MAP_BYTES && got > 0) {
        got = read(fd, text + size, PERF_MAP_BYTES - size);
        if (got > 0) size += (size_t)got;
    }
    (void)close(fd);
    if (size == PERF_MAP_BYTES)
        note("%s: what is behind %zu MiB is left out", clean(perf_map.path), size >> 20);
    perf_lines(text, size);
    if (perf_map.bad > 1 + perf_map.count / 100) {
        note("%s: not used: %zu of its lines are not \"START SIZE NAME\"", clean(perf_map.path),
             perf_map.bad);
        perf_map.count = 0;
    }
    if (perf_map.count)
        qsort(perf_map.at, perf_map.count, sizeof *perf_map.at, perf_by_address);
}

/* Returns the name of the function at an address, or NULL if the perf map has none. */
static const char *perf_map_name(uint64_t address) {
    const perf_function *best = NULL;
    size_t low = 0, high = perf_map.count, looked;
    while (low < high) { /* finds the first function that begins after the address */
        size_t middle = low + (high - low) / 2;
        if (perf_map.at[middle].from <= address)
            low = middle + 1;
        else
            high = middle;
    }
    for (looked = 0; low-- > 0 && looked < PERF_MAP_OVERLAPS; looked++) {
        const perf_function *f = &perf_map.at[low];
        if (address - f->from < f->size && (!best || f->line > best->line)) best = f;
    }
    return best ? best->name : NULL;
}

#endif
