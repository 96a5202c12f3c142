/* Measures a command as it is run in several ways, one after the other, round by round.

       spawn ROUNDS WAY... -- COMMAND...

   A way is a text of words: NAME=VALUE for the environment, and others that come before the
   command. The output has a line for each way: the least and the median processor time of all
   processes that the command waited for (ms), the least time (ms), the least number of page faults
   of all these processes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_ROUNDS 1000
#define MOST_WAYS 8
#define MOST_WORDS 256

static double cpu[MOST_WAYS][MOST_ROUNDS], wall[MOST_WAYS][MOST_ROUNDS], faults[MOST_WAYS][MOST_ROUNDS];

/* Starts a command without input and output. Returns 0 if it runs. */
static int start(char **argv, char **env, pid_t *pid) {
    posix_spawn_file_actions_t quiet;
    int i, failed = posix_spawn_file_actions_init(&quiet);
    if (failed) return 1;
    for (i = 0; i < 3; i++)
        failed |= posix_spawn_file_actions_addopen(&quiet, i, "/dev/null", O_RDWR, 0);
    failed = failed || posix_spawnp(pid, argv[0], &quiet, NULL, argv, env);
    (void)posix_spawn_file_actions_destroy(&quiet);
    return failed;
}

/* Starts a command in a way. */
static int start_as(const char *way, char **command, pid_t *pid) {
    char *argv[MOST_WORDS + 1], *env[2 * MOST_WORDS + 1], *word, text[4096];
    int words = 0, variables = 0, i;
    (void)snprintf(text, sizeof text, "%s", way);
    for (word = strtok(text, " "); word && words < MOST_WORDS; word = strtok(NULL, " ")) {
        if (strchr(word, '='))
            env[variables++] = word;
        else
            argv[words++] = word;
        if (variables == MOST_WORDS) return 1;
    }
    for (i = 0; command[i] && words < MOST_WORDS; i++) argv[words++] = command[i];
    for (i = 0; environ[i] && variables < 2 * MOST_WORDS; i++) env[variables++] = environ[i];
    argv[words] = env[variables] = NULL;
    return start(argv, env, pid);
}

static double ms_of(struct timeval t) { return 1e3 * (double)t.tv_sec + (double)t.tv_usec / 1e3; }

static double now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + (double)t.tv_nsec / 1e6;
}

/* Runs a command once. Returns 0 if its status is 0. */
static int measure(int way, int round, const char *as, char **command) {
    const double from = now();
    struct rusage usage;
    int status;
    pid_t pid;
    if (start_as(as, command, &pid) || wait4(pid, &status, 0, &usage) != pid) return 1;
    wall[way][round] = now() - from;
    cpu[way][round] = ms_of(usage.ru_utime) + ms_of(usage.ru_stime);
    faults[way][round] = (double)usage.ru_minflt + (double)usage.ru_majflt;
    return status;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_way(int way, int rounds) {
    double *const of[] = {cpu[way], wall[way], faults[way]};
    int i;
    for (i = 0; i < 3; i++) qsort(of[i], (size_t)rounds, sizeof **of, by_value);
    printf("%.3f\t%.3f\t%.3f\t%.0f\n", of[0][0], of[0][rounds / 2], of[1][0], of[2][0]);
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 0;
    int ways = 0, way, round;
    while (2 + ways < argc && strcmp(argv[2 + ways], "--")) ways++;
    if (rounds < 1 || rounds > MOST_ROUNDS || ways < 1 || ways > MOST_WAYS || 3 + ways >= argc) {
        fputs("usage: spawn ROUNDS WAY... -- COMMAND...\n", stderr);
        return 2;
    }
    for (round = 0; round < rounds; round++) {
        for (way = 0; way < ways; way++) {
            if (!measure(way, round, argv[2 + way], argv + 3 + ways)) continue;
            fprintf(stderr, "spawn: it fails as \"%s\"\n", argv[2 + way]);
            return 1;
        }
    }
    for (way = 0; way < ways; way++) print_way(way, rounds);
    return 0;
}
