#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "command/show.h"
#include "command/leak.h"
#include "command/output.h"
#include "command/verbs.h"
#include "command/write.h"
#include "formats/answers_json.h"
#include "formats/markdown.h"
#include "formats/text_report.h"
#include "profile/read.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROWS_MOST = 6, NAME_MOST = 48 }; /* of the list of processes */

/* A process, as far as the list of them tells. */
typedef struct row {
    const char *path;
    char *program;
    uint64_t pid, peak, live;
} row;

typedef struct loaded {
    mlr_profile *profile;
    mlr_answers *answers; /* NULL until they are made */
    const char *path;
    mlr_text text; /* what it was read from, if a JSON file is wanted */
    uint64_t pid;
    int named; /* 1: its places have been named, as far as they can be */
} loaded;

typedef struct shown {
    const mlr_show *show;
    row *rows;
    size_t count;
    loaded largest, own; /* either may be none; `own` is none if the largest is it */
    int status;
    uint64_t seconds; /* since 1970, for %t */
} shown;

static void raise_status(shown *s, int status) {
    if (s->status < status) s->status = status;
}

/* -- one profile -- */

static void name(const shown *s, loaded *l) {
#if defined(__linux__)
    if (!l->named && !s->show->no_names) mlr_names_fill(l->profile, &s->show->names);
#endif
    l->named = 1;
}

static mlr_answers *answers_of(const shown *s, loaded *l) {
    if (!l->answers) {
        name(s, l);
        l->answers = (mlr_answers *)mlr_need(mlr_answers_make(l->profile, &s->show->options));
    }
    return l->answers;
}

static void drop(loaded *l) {
    if (l->profile) mlr_profile_free(l->profile);
    free(l->text.at);
    memset(l, 0, sizeof *l);
}

/* What is written to a file, or shown. */
typedef struct work {
    const shown *of;
    loaded *from;
    mlr_format format; /* MLR_FORMAT_COUNT: the screen */
} work;

static int write_format(mlr_out *out, const void *what, char *message, size_t room) {
    const work *w = (const work *)what;
    const mlr_format_info *info = mlr_format_of(w->format);
    mlr_written written = {w->from->profile, NULL, w->from->text.at, w->from->text.size};
    name(w->of, w->from);
    if (info->needs & MLR_NEEDS_ANSWERS) written.answers = answers_of(w->of, w->from);
    if (mlr_write_to(w->format, &written, out) == MLR_OK) return 0;
    (void)snprintf(message, room, "out of memory");
    return 1;
}

static void write_files(shown *s, loaded *l, int each) {
    for (size_t i = 0; i < s->show->files.count; i++) {
        const char *path = s->show->files.at[i];
        const work w = {s, l, mlr_write_format_of(path, l->profile)};
        char *name_of;
        if (mlr_output_is_each(path) != each) continue;
        name_of = mlr_output_path(path, l->pid, s->show->number ? s->show->number : 1, s->seconds);
        if (!s->show->quiet) mlr_write_tell(w.format, l->profile, name_of);
        raise_status(s, mlr_output(name_of, write_format, &w));
        free(name_of);
    }
}

/* -- what is found -- */

static void check_peak(shown *s, const row *r) {
    char peak[32], most[32];
    if (!s->show->has_max_peak || r->peak <= s->show->max_peak) return;
    mlr_tell("%s (pid %llu) held %s at its peak, more than %s", r->program,
             (unsigned long long)r->pid, mlr_text_bytes(peak, r->peak),
             mlr_text_bytes(most, s->show->max_peak));
    raise_status(s, MLR_FOUND);
}

/* Checks the program's own process: others, such as those of a shell, may leave what they like. */
static void check_leaks(shown *s, loaded *l) {
    const mlr_function *at;
    mlr_leak leak;
    char all[32], most[32];
    name(s, l);
    leak = mlr_leak_of(l->profile);
    if (!leak.blocks) return;
    at = mlr_frame_shown(l->profile, leak.frame);
    mlr_tell("leak: %s in %llu %s not freed%s, %s of it from %s%s%s",
             mlr_text_bytes(all, leak.bytes), (unsigned long long)leak.blocks,
             leak.blocks == 1 ? "block" : "blocks", l->profile->mark ? " since the mark" : "",
             mlr_text_bytes(most, leak.most),
             at->name[0] ? mlr_clean(at->name) : "a place without a name", at->file[0] ? " " : "",
             at->file[0] ? mlr_clean(at->file) : "");
    raise_status(s, MLR_FOUND);
}

static void check_budget(shown *s, const char *path) {
    char verb[] = "diff", option[] = "--budget";
    char *argv[] = {verb, option, mlr_joined("%s", s->show->budget), mlr_joined("%s", path), NULL};
    raise_status(s, mlr_verb_of("diff")->main(4, argv));
}

/* -- all profiles -- */

static void add_row(shown *s, const loaded *l) {
    const mlr_profile *p = l->profile;
    const char *base = strrchr(p->program, '/');
    row *r;
    s->rows = (row *)mlr_need(realloc(s->rows, (s->count + 1) * sizeof *s->rows));
    r = &s->rows[s->count++];
    r->path = l->path;
    r->program = mlr_joined("%s", mlr_clean(base ? base + 1 : p->program));
    r->pid = p->pid;
    r->peak = p->total.peak;
    r->live = p->total.allocated;
}

/* Takes a profile: writes the files that each process has, checks it, and keeps it if it may be
   the one that is shown. */
static void take(shown *s, loaded *l, uint64_t own) {
    add_row(s, l);
    check_peak(s, &s->rows[s->count - 1]);
    write_files(s, l, 1);
    if (!s->largest.profile || l->profile->total.peak > s->largest.profile->total.peak) {
        if (s->largest.profile && s->largest.pid == own)
            s->own = s->largest;
        else
            drop(&s->largest);
        s->largest = *l;
    } else if (own && l->pid == own) {
        s->own = *l;
    } else {
        drop(l);
    }
}

static void take_all(shown *s, const mlr_run_of *run) {
    int keep = 0;
    for (size_t i = 0; i < s->show->files.count; i++)
        keep |= mlr_write_format_of(s->show->files.at[i], NULL) == MLR_FORMAT_JSON;
    for (size_t i = 0; i < run->profiles->count; i++) {
        loaded l = {NULL, NULL, run->profiles->at[i], {NULL, 0}, 0, 0};
        if (run->profiles->count > 1) mlr_progress("reading profiles", i, run->profiles->count);
        l.profile = mlr_load(l.path, keep ? &l.text : NULL);
        if (!l.profile) {
            raise_status(s, MLR_COULD_NOT);
            continue;
        }
        l.pid = l.profile->pid;
        take(s, &l, run->pid);
    }
    mlr_progress_end();
}

/* -- the screen -- */

static int by_peak(const void *a, const void *b) {
    const row *x = (const row *)a, *y = (const row *)b;
    if (x->peak != y->peak) return x->peak < y->peak ? 1 : -1;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static void put_rows(const shown *s, mlr_out *out) {
    char peak[32], live[32];
    size_t i;
    mlr_putf(out, "%zu processes, the largest first:\n       peak  still live      pid  program\n",
             s->count);
    for (i = 0; i < s->count && i < ROWS_MOST; i++) {
        const row *r = &s->rows[i];
        mlr_putf(out, "%11s %11s %8llu  ", mlr_text_bytes(peak, r->peak),
                 mlr_text_bytes(live, r->live), (unsigned long long)r->pid);
        mlr_put_name(out, r->program, NAME_MOST);
        mlr_puts(out, "\n");
    }
    if (i < s->count)
        mlr_putf(out, "            and %zu more, each with %s at most\n", s->count - i,
                 mlr_text_bytes(peak, s->rows[i].peak));
    mlr_puts(out, "\n");
}

static int write_screen(mlr_out *out, const void *what, char *message, size_t room) {
    const work *w = (const work *)what;
    const shown *s = w->of;
    const mlr_options *o = &s->show->options;
    mlr_text_options text = {!s->show->whole, 0};
    (void)message;
    (void)room;
    if (s->show->form == MLR_FORM_JSON) {
        mlr_write_answers_json(answers_of(s, w->from), out);
        return 0;
    }
    if (s->show->form == MLR_FORM_MARKDOWN) {
        mlr_write_markdown(answers_of(s, w->from), out);
        return 0;
    }
    if (o->tree || o->has_at || o->by != MLR_BY_HELD || o->top) text.first = 0;
    text.colour = mlr_has_colours(s->show->to_stderr ? STDERR_FILENO : STDOUT_FILENO);
    if (s->count > 1) put_rows(s, out);
    mlr_write_text(answers_of(s, w->from), &text, out);
    return 0;
}

static int to_stderr(void *user, const void *data, size_t size) {
    (void)user;
    return fwrite(data, 1, size, stderr) != size;
}

static void show_screen(shown *s) {
    const work w = {s, &s->largest, MLR_FORMAT_COUNT};
    mlr_out out;
    char message[1];
    if (!s->show->to_stderr) {
        raise_status(s, mlr_output("-", write_screen, &w));
        return;
    }
    (void)answers_of(s, &s->largest); /* says what it cannot name before the screen */
    mlr_out_open(&out, to_stderr, NULL);
    (void)write_screen(&out, &w, message, sizeof message);
    (void)mlr_out_close(&out);
}

int mlr_show_all(const mlr_run_of *run, const mlr_show *with) {
    mlr_show show = *with;
    shown s;
    loaded *own;
    memset(&s, 0, sizeof s);
    s.show = &show;
    s.seconds = (uint64_t)time(NULL);
#if defined(__linux__)
    mlr_elf_options_set(&show.names.where);
#endif
    take_all(&s, run);
    if (!s.count) return MLR_COULD_NOT;
    own = s.own.profile ? &s.own : &s.largest;
    if (!run->pid || own->pid == run->pid) {
        write_files(&s, own, 0);
        if (show.fail_on_leak) check_leaks(&s, own);
        if (show.budget) check_budget(&s, own->path);
    } else if (show.files.count || show.budget || show.fail_on_leak) {
        mlr_tell("there is no profile of the program's own process; -o with %%p in FILE writes one "
                 "for each process");
        raise_status(&s, MLR_COULD_NOT);
    }
    qsort(s.rows, s.count, sizeof *s.rows, by_peak);
    if (run->before && !show.quiet && show.form == MLR_FORM_TEXT) mlr_tell("%s", run->before);
    if (!show.quiet && (show.to_stderr || !show.files.count)) show_screen(&s);
    return s.status;
}

int mlr_show_check(const mlr_show *show) {
    int status = MLR_DONE;
    for (size_t i = 0; i < show->files.count; i++) {
        const char *path = show->files.at[i];
        if (!mlr_write_can(mlr_write_format_of(path, NULL))) {
            mlr_tell("%s: no format that can be written has this suffix; it may be .txt .json .pb "
                     ".heaptrack .folded .live.folded .peak.folded .allocated.folded .trace.json "
                     ".pickle .csv .timeline.csv .prom",
                     mlr_clean(path));
            status = MLR_COULD_NOT;
        } else if (!strchr(path, '%') && mlr_output_check(path)) {
            status = MLR_COULD_NOT;
        }
    }
    return status;
}
