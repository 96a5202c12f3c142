/* A program for tests/signals.sh: it is killed, or handles what would kill it, in the way its
   argument names. It prints the same and ends the same with and without the interposer. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern void (*__sysv_signal(int number, void (*handler)(int)))(int);

static void *volatile kept[64];
static sigjmp_buf out_of_malloc;

static void say(const char *line) {
    if (write(1, line, strlen(line)) < 0) _exit(9);
}
static void show(void (*handler)(int)) {
    say(handler == SIG_DFL ? "default\n" : handler == SIG_IGN ? "ignored\n" : "a handler\n");
}
static void query(void) {
    struct sigaction now;
    if (!sigaction(SIGTERM, NULL, &now)) show(now.sa_handler);
}
static void on_term(int number) {
    (void)number;
    say("handled\n");
}
static void set(void (*handler)(int), int flags) {
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    if (!sigaction(SIGTERM, &action, &before)) show(before.sa_handler);
}

static void idle(void) {
    kept[0] = malloc(12345);
    say("ready\n");
    for (;;) (void)pause();
}
static void own_handler(void) {
    query();
    set(on_term, 0);
    query();
    (void)raise(SIGTERM);
    exit(3);
}
static void default_again(void) {
    set(on_term, SA_RESTART);
    set(SIG_DFL, SA_ONSTACK | SA_SIGINFO | SA_RESETHAND);
    query();
    (void)raise(SIGTERM);
    say("alive\n");
}
static void ignored(void) {
    query();
    (void)raise(SIGTERM);
    set(SIG_DFL, 0);
    query();
    set(SIG_IGN, 0);
    (void)raise(SIGTERM);
    query();
}
static void by_other_names(void) {
    show(signal(SIGTERM, on_term));
    show(signal(SIGTERM, SIG_DFL));
    show(ssignal(SIGTERM, SIG_DFL));
    show(sysv_signal(SIGTERM, SIG_DFL));
    show(__sysv_signal(SIGTERM, SIG_IGN));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    show(sigset(SIGTERM, SIG_DFL));
    show(sigset(SIGTERM, SIG_HOLD) == SIG_HOLD ? on_term : SIG_DFL);
    show(sigset(SIGTERM, SIG_DFL) == SIG_HOLD ? on_term : SIG_DFL);
    if (siginterrupt(SIGTERM, 1)) say("no siginterrupt\n");
#pragma GCC diagnostic pop
    query();
    (void)raise(SIGTERM);
    say("alive\n");
}
static void blocked(void) {
    sigset_t term;
    int number = 0;
    (void)sigemptyset(&term);
    (void)sigaddset(&term, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &term, NULL);
    (void)raise(SIGTERM);
    if (!sigwait(&term, &number) && number == SIGTERM) say("waited for\n");
    (void)raise(SIGTERM);
    kept[0] = malloc(100);
    say("still here\n");
    (void)sigprocmask(SIG_UNBLOCK, &term, NULL);
    say("alive\n");
}
static void *idle_thread(void *unused) {
    sigset_t none;
    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    kept[1] = malloc(2000);
    idle();
    return unused;
}
static void in_thread(void) { /* of 16 KiB, the least there is */
    sigset_t every;
    pthread_t thread;
    pthread_attr_t attr;
    (void)sigfillset(&every);
    (void)sigprocmask(SIG_BLOCK, &every, NULL);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, 16384);
    if (!pthread_create(&thread, &attr, idle_thread, NULL)) (void)pthread_join(thread, NULL);
}

static void *churn(void *seed) {
    unsigned random = (unsigned)(size_t)seed;
    int i;
    void *mine[32] = {NULL};
    for (i = 0; i < 20000; i++) {
        random = random * 1103515245u + 12345u;
        mine[random >> 16 & 31] = realloc(mine[random >> 16 & 31], 1 + (random >> 8 & 4095));
        if (!(random & 0x700)) {
            free(mine[random >> 20 & 31]);
            mine[random >> 20 & 31] = NULL;
        }
    }
    for (i = 0; i < 32; i++) free(mine[i]);
    return NULL;
}
static void *churn_on(void *seed) {
    for (;;) (void)churn(seed);
    return NULL;
}
static void *nothing(void *block) {
    free(block);
    return malloc(10);
}
/* Allocs in two threads, while the first makes threads that end, and children. */
static void storm(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, churn_on, NULL)) return;
    if (pthread_create(&thread, NULL, churn_on, out_of_malloc)) return;
    say("ready\n");
    for (;;) {
        void *out = NULL;
        pid_t pid;
        if (!pthread_create(&thread, NULL, nothing, malloc(99)) && !pthread_join(thread, &out))
            free(out);
        pid = vfork();
        if (!pid) _exit(0);
        if (pid > 0) (void)waitpid(pid, NULL, 0);
        (void)churn(NULL);
    }
}
static void forks(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, churn_on, NULL)) return;
    say("ready\n");
    for (;;) {
        pid_t pid = fork();
        if (!pid) { /* what is forked goes with it, or by itself */
            (void)signal(SIGTERM, SIG_DFL);
            raise(SIGKILL);
        }
        if (pid > 0) (void)waitpid(pid, NULL, 0);
    }
}

static void jump(int number) {
    (void)number;
    siglongjmp(out_of_malloc, 1);
}
/* A handler leaves calloc by longjmp, while it clears a block: no lock is held. */
static void jumps(void) {
    volatile int i;
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    free(memset(malloc(64 << 20), 1, 64 << 20));
    (void)signal(SIGALRM, jump);
    for (i = 0; i < 5; i++) {
        if (sigsetjmp(out_of_malloc, 1)) continue;
        (void)ualarm(2000, 0);
        for (;;) free(kept[0] = calloc(1, 8 << 20));
    }
    idle();
}

static int killed_child(int now) {
    int status = 0;
    pid_t pid = now ? vfork() : fork();
    if (!pid) {
        (void)kill(getpid(), SIGTERM);
        _exit(7);
    }
    (void)waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}
static void children(void) {
    int by = killed_child(1);
    if (by != SIGTERM || killed_child(0) != SIGTERM) say("a child was not killed by TERM\n");
    query();
}
static void ends_busy(void) { /* a signal to the process, while another thread may take it */
    pthread_t thread;
    if (pthread_create(&thread, NULL, churn_on, NULL)) return;
    (void)usleep(3000);
    (void)kill(getpid(), SIGTERM);
    exit(5);
}
static void works(void) {
    int i;
    say("ready\n");
    for (i = 0; i < 3000; i++) {
        free(kept[i & 63]);
        kept[i & 63] = malloc(1000);
        (void)usleep(1000);
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } ways[] = {{"query", query}, {"idle", idle}, {"own", own_handler}, {"again", default_again},
                {"ignored", ignored}, {"names", by_other_names}, {"blocked", blocked},
                {"thread", in_thread}, {"storm", storm}, {"forks", forks}, {"jumps", jumps},
                {"children", children}, {"busy", ends_busy}, {"works", works}};
    size_t i;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL)) return 2; /* a suite that fails leaves nothing behind */
    for (i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (argc > 1 && !strcmp(argv[1], ways[i].name)) {
            ways[i].run();
            return 0;
        }
    }
    return 2;
}
