/* What must not compile, by TRAP; the rest must. */
#include "memlord.h"

#ifdef __cplusplus
extern "C" {
#endif
int trap(memlord *lord, const char *name, int which);
#ifdef __cplusplus
}
#endif

int trap(memlord *lord, const char *name, int which) {
    int seen = 0;
    MEMLORD_TAG(lord, name) seen++;
#if TRAP == 1
    MEMLORD_SCOPE(lord, name) seen++;
#elif TRAP == 2
    MEMLORD_SCOPED(lord, name);
#elif TRAP == 3
    if (which) MEMLORD_TAGGED(lord, name);
#elif TRAP == 4
    if (which) MEMLORD_SCOPED(lord, "scope");
#elif TRAP == 5
    switch (which) {
    case 1: MEMLORD_TAGGED(lord, name); seen++; break;
    case 2: seen += 2; break;
    }
#elif TRAP == 6
    if (which) goto past;
    MEMLORD_SCOPED(lord, "scope");
    seen++;
past:
    seen++;
#elif TRAP == 7
    while (which--) MEMLORD_TAGGED(lord, name);
#elif TRAP == 8 && (defined(MEMLORD_TAGGED) || defined(MEMLORD_SCOPED))
#error "no compiler without destructors or cleanups has these"
#elif TRAP == 8
    MEMLORD_SCOPE(lord, "scope") seen += which;
#else
    MEMLORD_SCOPE(lord, "scope") seen++;
    if (which) {
        MEMLORD_TAGGED(lord, name);
        MEMLORD_SCOPED(lord, "scope");
        MEMLORD_TAGGED(lord, "both"); MEMLORD_TAGGED(lord, "on one line");
        seen++;
    }
    switch (which) {
    case 1: {
        MEMLORD_TAGGED(lord, name);
        seen++;
        break;
    }
    case 2: seen += 2; break;
    }
#endif
    return seen;
}
