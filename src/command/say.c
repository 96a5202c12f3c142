#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "command/say.h"
#include "profile/text.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    int shown;             /* 1: the terminal has a line of progress */
    struct timespec began; /* of what is in progress; 0: nothing is */
    int64_t told_ms;       /* when the line was last written */
} progress;

static void say(const char *form, va_list args) {
    mlr_progress_end();
    fputs("memlord: ", stderr);
    vfprintf(stderr, form, args);
    fputc('\n', stderr);
}

void mlr_tell(const char *form, ...) {
    va_list args;
    va_start(args, form);
    say(form, args);
    va_end(args);
}

void mlr_stop(int status, const char *form, ...) {
    va_list args;
    va_start(args, form);
    say(form, args);
    va_end(args);
    exit(status);
}

int mlr_say_usage(const char *verb) {
    mlr_tell("see: memlord %s --help", verb);
    return MLR_COULD_NOT;
}

void *mlr_need(void *memory) {
    if (!memory) mlr_stop(MLR_COULD_NOT, "out of memory");
    return memory;
}

char *mlr_joined(const char *form, ...) {
    va_list args, again;
    char *text;
    int n;
    va_start(args, form);
    va_copy(again, args);
    n = vsnprintf(NULL, 0, form, args);
    text = (char *)mlr_need(malloc((size_t)(n < 0 ? 0 : n) + 1));
    if (n >= 0)
        (void)vsnprintf(text, (size_t)n + 1, form, again);
    else
        *text = 0;
    va_end(again);
    va_end(args);
    return text;
}

typedef struct memory {
    char *text;
    size_t size;
} memory;

static int to_memory(void *user, const void *data, size_t size) {
    memory *m = (memory *)user;
    m->text = (char *)mlr_need(realloc(m->text, m->size + size + 1));
    memcpy(m->text + m->size, data, size);
    m->size += size;
    m->text[m->size] = 0;
    return 0;
}

const char *mlr_clean(const char *name) {
    static char *kept[8];
    static unsigned next;
    memory m = {NULL, 0};
    mlr_out out;
    mlr_out_open(&out, to_memory, &m);
    mlr_put_name(&out, name, 1000);
    (void)mlr_out_close(&out);
    next = (next + 1) % 8;
    free(kept[next]);
    kept[next] = m.text;
    return m.text ? m.text : "";
}

/* -- terminals -- */

static int is_terminal(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && (!term || strcmp(term, "dumb") != 0);
}

int mlr_has_colours(int fd) {
    const char *no = getenv("NO_COLOR");
    return is_terminal(fd) && (!no || !*no);
}

static int64_t ms_since(const struct timespec *then) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)(now.tv_sec - then->tv_sec) * 1000 + (now.tv_nsec - then->tv_nsec) / 1000000;
}

void mlr_progress(const char *what, uint64_t done, uint64_t whole) {
    static int terminal = -1;
    int64_t ms;
    if (terminal < 0) terminal = is_terminal(STDERR_FILENO);
    if (!terminal) return;
    if (!progress.began.tv_sec) (void)clock_gettime(CLOCK_MONOTONIC, &progress.began);
    ms = ms_since(&progress.began);
    if (ms < 1000 || (progress.shown && ms - progress.told_ms < 100)) return;
    progress.told_ms = ms;
    progress.shown = 1;
    fprintf(stderr, "\r\033[Kmemlord: %s", what);
    if (whole) fprintf(stderr, " %d %%", (int)(100.0 * (double)done / (double)whole));
    fflush(stderr);
}

void mlr_progress_end(void) {
    if (progress.shown) fputs("\r\033[K", stderr);
    memset(&progress, 0, sizeof progress);
}

/* -- numbers -- */

int mlr_read_bytes(const char *text, uint64_t *out) {
    static const char units[] = "kmgt";
    double n, unit = 1;
    char *end;
    if (!isdigit((unsigned char)*text)) return 0;
    n = strtod(text, &end);
    while (*end == ' ') end++;
    if (*end && strchr(units, tolower((unsigned char)*end))) {
        const size_t power = (size_t)(strchr(units, tolower((unsigned char)*end)) - units) + 1;
        const double base = tolower((unsigned char)end[1]) == 'b' ? 1000 : 1024;
        for (size_t i = 0; i < power; i++) unit *= base;
        end++;
        if (*end == 'i') end++;
    }
    if (tolower((unsigned char)*end) == 'b') end++;
    if (*end || !(n * unit < 1.8e19)) return 0;
    *out = (uint64_t)(n * unit);
    return 1;
}
