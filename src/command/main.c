#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "command/verbs.h"
#include "memlord.h"
#include <stdio.h>
#include <string.h>

static const char run_help[] =
    "memlord run [-o FILE]... [options] [--] PROGRAM [ARGUMENT]...\n"
    "\n"
    "Runs a program, records what it and its children allocate, and shows who holds\n"
    "the memory. Ends with the program's status; 125 if memlord failed before the\n"
    "program ran, 126 if the program cannot be executed, 127 if it is not found.\n"
    "\n"
    "  -o FILE             write this, too, in the format of its suffix: .txt .json .pb\n"
    "                      .heaptrack .folded .trace.json .pickle .csv .prom ...\n"
    "                      %p is the pid: a file for each process; else the program's own\n"
    "  -q, --quiet         show nothing at the end\n"
    "  --every S           write each FILE again every S seconds; %n numbers them\n"
    "  --fail-on-leak      end with 1 if the program leaves blocks that it did not free\n"
    "  --max-peak BYTES    end with 1 if a process held more, as in 1.5G\n"
    "  --budget FILE       end with 1 if a budget of `memlord diff` is passed\n"
    "  --stack-bytes N     take the stack of an allocation each N bytes (512 KiB); 1: all\n"
    "  --stack-depth N     take at most N frames of a stack (64); 0: no stacks\n"
    "  --skip A,B          the functions A and B only wrap malloc: name their callers\n"
    "  --events N          keep the last N allocations and frees\n"
    "  --snapshots MS      note what is live at most every MS milliseconds (10)\n"
    "  --signal N          write the profile on signal N, and go on\n"
    "  --exact             exact peaks with several threads, which then share counters\n"
    "  --arguments         keep the program's arguments\n"
    "  --fold              names without the arguments of templates\n"
    "  --symfs DIR, --debug-dir DIR, --no-names    as in memlord report\n";

static const char report_help[] =
    "memlord report [WHAT] [-o FILE]... [options]\n"
    "\n"
    "Shows who holds the memory. WHAT is a profile in JSON, - for standard input, or a\n"
    "directory of profiles; without it the last run of `memlord run`.\n"
    "\n"
    "  -o FILE             write this in place of the screen, in the format of its suffix:\n"
    "                      .txt .json .pb .heaptrack .folded .trace.json .pickle .csv .prom\n"
    "                      ...; %p is the pid: a file for each process; - is the screen, whole\n"
    "  -a, --all           all tables, not the first screen\n"
    "  --json, --markdown  the answers in this form\n"
    "  --tag T, --site S, --module M, --device D\n"
    "                      only what has this; a part of the name is enough\n"
    "  --peak              by what was live at the peak\n"
    "  --allocs            by the number of allocations\n"
    "  --temporary         by allocations that were freed before the next\n"
    "  --at TIME           who held what then: 90s, 5m, 1h30m since the start\n"
    "  --tree              a tree of callers\n"
    "  --top N             at most N rows of a table (20)\n"
    "  --symfs DIR         the files of another machine are below DIR\n"
    "  --debug-dir DIR     debug files are there: DIR/.build-id/12/34ab.debug\n"
    "  --fold              names without the arguments of templates\n"
    "  --no-names          no names but those in the profile\n";

static const char diff_help[] =
    "memlord diff [--budget FILE] [--accept] [--markdown|--github|--json] OLD NEW\n"
    "\n"
    "Compares two profiles in JSON: what grew, by bytes. With --budget a profile is held\n"
    "against the budgets in FILE, and --accept writes them anew. The status is 1 if a\n"
    "budget is passed.\n";

static const char clean_help[] =
    "memlord clean [--all]\n"
    "\n"
    "Removes kept runs beyond the last 8 or 256 MiB; with --all, all that have ended.\n"
    "They are in $XDG_STATE_HOME/memlord, or ~/.local/state/memlord.\n";

static const mlr_verb verbs[] = {
#if defined(__linux__)
    {"run", "run a program, and show who holds its memory", mlr_run_main, run_help},
#endif
    {"report", "show a profile, or write it in another format", mlr_report_main, report_help},
    {"diff", "compare two profiles, or hold one against budgets", mlr_diff_main, diff_help},
#if defined(__linux__)
    {"clean", "remove kept runs", mlr_clean_main, clean_help},
#endif
};
enum { VERBS = sizeof verbs / sizeof *verbs };

const mlr_verb *mlr_verb_of(const char *name) {
    for (int i = 0; i < VERBS; i++)
        if (!strcmp(verbs[i].name, name)) return &verbs[i];
    return NULL;
}

/* Ends what was printed: a pipe or a disk that is full is an error. */
static int printed(void) {
    if (!fflush(stdout) && !ferror(stdout)) return MLR_DONE;
    mlr_tell("standard output cannot be written");
    return MLR_COULD_NOT;
}

int mlr_verb_help(const char *name) {
    (void)fputs(mlr_verb_of(name)->help, stdout);
    return printed();
}

static int help(void) {
    (void)fputs("memlord: who holds the memory of a program\n\n", stdout);
    for (int i = 0; i < VERBS; i++) printf("  memlord %-7s %s\n", verbs[i].name, verbs[i].what);
    (void)fputs("\nmemlord VERB --help shows what it takes. Begin with: memlord run PROGRAM\n",
                stdout);
    return printed();
}

int main(int argc, char **argv) {
    const mlr_verb *verb;
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
        !strcmp(argv[1], "help")) {
        if (argc > 2 && mlr_verb_of(argv[2])) return mlr_verb_help(argv[2]);
        return argc < 2 ? (help(), MLR_COULD_NOT) : help();
    }
    if (!strcmp(argv[1], "--version")) {
        printf("memlord %s\n", MEMLORD_VERSION);
        return printed();
    }
    verb = mlr_verb_of(argv[1]);
    if (verb) return verb->main(argc - 1, argv + 1);
    mlr_tell("%s: no such verb; to record a program: memlord run %s", mlr_clean(argv[1]),
             mlr_clean(argv[1]));
    mlr_tell("see: memlord --help");
    return MLR_COULD_NOT;
}
