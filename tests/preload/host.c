/* Loads a library in C++, whose new fails, and allocates after it: argv[1] is its path. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void *after(void) { return malloc(4321); }

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library ? dlsym(library, "fail") : NULL;
    int (*fail)(void);
    memcpy(&fail, &symbol, sizeof fail);
    return !symbol || fail() || !after();
}
