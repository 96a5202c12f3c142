/* LIBRARY KIND...: opens a library, calls its run(KIND), asks for a report, closes the library. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void *after(void) { return malloc(4321); }

int main(int argc, char **argv) {
    int i, (*run)(int kind);
    if (dlerror()) puts("early error");
    for (i = 1; i + 1 < argc; i += 2) {
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        void *symbol = library ? dlsym(library, "run") : NULL;
        const char *error;
        if (!symbol) return puts(dlerror());
        memcpy(&run, &symbol, sizeof run);
        printf("%s ", run(atoi(argv[i + 1])) ? "runs" : "fails");
        symbol = dlsym(RTLD_DEFAULT, "no_such_function");
        (void)raise(SIGUSR1);
        error = dlerror();
        if (symbol || !error || !strstr(error, "no_such_function") || dlerror()) puts("bad error");
        if (dlclose(library)) return 1;
    }
    return !after() || puts("ends") < 0;
}
