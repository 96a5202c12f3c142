/* A part of a libmemlord_preload.so for tests: says which functions of libdl it calls after its
   start. Link with --wrap for each of them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static int begun, early;

#define WRAP(type, name, params, args)                                                        \
    type __real_##name params;                                                                \
    type __wrap_##name params;                                                                \
    type __wrap_##name params {                                                               \
        early += !begun;                                                                      \
        if (begun && dprintf(STDERR_FILENO, "%s after the start\n", #name) < 0) _exit(9);     \
        return __real_##name args;                                                            \
    }
WRAP(void *, dlopen, (const char *path, int mode), (path, mode))
WRAP(void *, dlsym, (void *library, const char *name), (library, name))
WRAP(int, dlclose, (void *library), (library))
WRAP(int, dladdr, (const void *address, Dl_info *out), (address, out))
WRAP(char *, dlerror, (void), ())

__attribute__((constructor)) static void end_of_start(void) {
    begun = 1;
    if (early > 20 && dprintf(STDERR_FILENO, "wrapped\n") < 0) _exit(9);
}
