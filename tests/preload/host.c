/* Loads a library in C++, whose new fails in a thread and here, and allocates after it: argv[1] is
   its path. The loader has an error to report neither before nor after. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void *after(void) { return malloc(4321); }

static int (*fail)(void);

static void *fail_in_thread(void *unused) {
    (void)unused;
    return fail() ? &fail : NULL;
}

int main(int argc, char **argv) {
    const int early = dlerror() != NULL;
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library ? dlsym(library, "fail") : NULL, *failed;
    pthread_t thread;
    memcpy(&fail, &symbol, sizeof fail);
    if (early || !symbol || pthread_create(&thread, NULL, fail_in_thread, NULL)) return 1;
    return pthread_join(thread, &failed) || failed || fail() || !after() || dlerror() != NULL;
}
