/* host PLUG FUNCTION [FUNCTION]: a thread calls the first function of a plug-in, the host the second
   and closes the plug-in, and the thread ends. Three rounds; each says whether the plug-in is gone,
   and forks, as no fork handler of the plug-in may be left.
   host PLUG exit: the plug-in stays open, and the end of the process calls it.
   host PLUG malloc OTHER: while OTHER is loaded, the host's malloc calls the plug-in for the first
   time; in children, at each of the calls of malloc in turn. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*call)(void);
static pthread_barrier_t barrier;
static call late;

static void fail(const char *what) {
    printf("failed: %s\n", what);
    _exit(1);
}
static call find(void *plug, const char *name) {
    call found = NULL;
    void *at = dlsym(plug, name);
    if (!at) fail(name);
    memcpy(&found, &at, sizeof found);
    return found;
}
static void *caller(void *user) {
    call use;
    memcpy(&use, user, sizeof use);
    if (use()) fail("a call on the thread");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* closed */
    return NULL;
}
static void *late_caller(void *user) { return late() ? user : NULL; }

/* Runs after the destructors of every module, on the main thread and on one that is new. */
static void at_the_end(void *user) {
    pthread_t t;
    void *failed;
    (void)user;
    if (!late) return;
    if (late()) fail("a call at the end");
    if (pthread_create(&t, NULL, late_caller, &late) || pthread_join(t, &failed) || failed)
        fail("a thread at the end");
    if (write(1, "late\n", 5) != 5) fail("write");
}
int __cxa_atexit(void (*fn)(void *), void *user, void *module);
static void before_the_loader(int argc, char **argv, char **environment) {
    (void)argc, (void)argv, (void)environment;
    (void)__cxa_atexit(at_the_end, NULL, NULL);
}
__attribute__((section(".preinit_array"), used)) static void (*const at_start)(int, char **, char **) =
    before_the_loader;

/* The host's malloc calls a function at the nth call from now on, once. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
static call in_malloc;
static int mallocs;
static void count_malloc(void) {
    call use = in_malloc;
    if (!use || mallocs--) return;
    in_malloc = NULL;
    if (use()) fail("a call in malloc");
}
void *malloc(size_t size) {
    count_malloc();
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size) {
    count_malloc();
    return __libc_calloc(n, size);
}
static int call_in_malloc(const char *path, const char *other) {
    int n, status = 0;
    for (n = 0; !status; n++) {
        pid_t pid = fork();
        if (!pid) {
            call use = find(dlopen(path, RTLD_NOW), "plug_global");
            mallocs = n;
            in_malloc = use;
            if (!dlopen(other, RTLD_NOW)) fail("dlopen");
            _exit(in_malloc ? 3 : 0); /* 3: it was not the nth */
        }
        if (waitpid(pid, &status, 0) != pid) fail("waitpid");
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 3) fail("a child");
    puts(n > 4 ? "many" : "few");
    return 0;
}

static void fork_once(void) {
    int status = -1;
    pid_t pid = fork();
    if (!pid) _exit(0);
    if (waitpid(pid, &status, 0) != pid || status) fail("fork");
}
static void round_of(const char *path, const char *first, const char *second) {
    void *plug = dlopen(path, RTLD_NOW | RTLD_LOCAL), *still;
    call use;
    pthread_t t;
    if (!plug) fail(dlerror());
    use = find(plug, first);
    if (pthread_create(&t, NULL, caller, &use)) fail("pthread_create");
    pthread_barrier_wait(&barrier);
    if (second && find(plug, second)()) fail(second);
    if (dlclose(plug)) fail("dlclose");
    fork_once();
    usleep(second ? 0 : 30000); /* its own thread, if it has one, runs meanwhile */
    pthread_barrier_wait(&barrier);
    pthread_join(t, NULL);
    still = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    puts(still ? "stays" : "gone");
    if (still) dlclose(still);
}

int main(int argc, char **argv) {
    int i;
    setvbuf(stdout, NULL, _IONBF, 0);
    pthread_barrier_init(&barrier, NULL, 2);
    if (argc < 3) return 2;
    if (!strcmp(argv[2], "malloc")) return call_in_malloc(argv[1], argv[3]);
    if (!strcmp(argv[2], "exit")) {
        void *plug = dlopen(argv[1], RTLD_NOW);
        if (!plug) fail(dlerror());
        late = find(plug, "plug_ledger");
        return late();
    }
    for (i = 0; i < 3; i++) round_of(argv[1], argv[2], argv[3]);
    return 0;
}
