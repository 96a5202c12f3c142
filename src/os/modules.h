/* Owns the look-up of the loaded module (an executable or a library) behind an address, and keeps
   MemLord's own module loaded. Locks: none of its own. */
#ifndef MLI_OS_MODULES_H
#define MLI_OS_MODULES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

/* Each system defines these functions:
     mli_module_of  Returns an address that stands for the module that an address is in, or NULL if
                    no module is known there. Recording calls use it while the host holds locks. So
                    it must not wait for dlopen, which runs the host's constructors.
     mli_loaded_at  Returns 1 if an address is in a module, 0 if it is in none, -1 if only
                    mli_image_at can tell. It takes no lock.
     mli_image_at   Describes the module of an address, for a recording call that sees the address
                    for the first time. It allocates nothing and does not wait for dlopen either.
                    The path of the executable goes to `executable`, of MLI_PATH_MAX bytes.
     mli_symbols_at Looks for the symbols of `n` addresses, which the caller has sorted. Reads the
                    symbols of a module once, for all addresses in it. It does not wait for the
                    constructors that dlopen runs. On other systems than Linux it finds none: a
                    symbol of macOS has no size, so the nearest one below need not contain the
                    address; Windows keeps the names in separate files that need dbghelp. */

/* An address, and the symbol that contains it. */
typedef struct mli_symbol_query {
    const void *address;
    const char *name; /* valid as long as its module is loaded; NULL: there is none */
    uint64_t value;   /* the address of the symbol in the file of the module */
    void *user;       /* for the caller's own use */
} mli_symbol_query;

#if defined(__linux__)
/* Returns the first symbol with this name in the program and the libraries that were loaded with
   it, or NULL. Takes the loader's lock and, if there is no such symbol, calls malloc. */
MLI_PRIVATE MLI_COLD void *mli_symbol(const char *name);
#endif
/* In mli_loaded and mli_image, `start` is the lowest address of the module. If the module has gaps
   between its segments, `start` is the lowest address of the segment that has the address. `bias`,
   the load address, is the same for all segments. `bias` is 0 for a program at fixed addresses. */
MLI_PRIVATE MLI_COLD const void *mli_module_of(const void *address);
MLI_PRIVATE int mli_loaded_at(const void *address, mli_loaded *out);
MLI_PRIVATE MLI_COLD void mli_image_at(const void *address, mli_image *out, char *executable);
MLI_PRIVATE MLI_COLD void mli_symbols_at(mli_symbol_query *q, size_t n);
/* Keeps MemLord's own module in memory until the process ends, if the module could be unloaded and
   the system can prevent that. Returns 0 if the caller has to try again later, else 1. It may wait
   for dlopen, and call malloc. With glibc it waits for nothing if the module is never unloaded.
   Such a module is one that the program began with, or one that is linked with -z nodelete. A
   malloc may call this function while a dlopen changes glibc's list of modules. A second dlopen
   inside the first would make glibc abort, so this function then returns 0. */
MLI_PRIVATE MLI_COLD int mli_module_keep(void);

#endif
