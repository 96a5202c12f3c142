/*
    at_exit.c - a report at the end of a program that does not call MemLord itself

        cc -O2 -I. -c examples/embed/at_exit.c -o at_exit.o

    Link it beside what records: the shim (run.c), operator new (../new.cpp), ld --wrap (wrap.c).
    Sites are on from before main. MEMLORD_APP_REPORT=path writes the report, as what its suffix says,
    when the last destructor has run; "-" is standard output. It is not MEMLORD_REPORT, which is the
    interposer's: a program may have both. gcc and clang.
*/
#include "memlord.h"
#include <stdlib.h>

__attribute__((constructor(101))) static void begin(void) {
    (void)memlord_sites_enable(memlord_global(), 1);
}

__attribute__((destructor(101))) static void end(void) {
    const char *path = getenv("MEMLORD_APP_REPORT");
    if (path) (void)memlord_save(memlord_global(), memlord_format_for(path), path);
}
