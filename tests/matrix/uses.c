/* Runs the uses that were compiled under different standards, modes and prefixes and linked
   into this one program. USES lists them: X(name) ... */
#include <stdio.h>

#define X(name) int name(void);
USES
#undef X

static int run(const char *name, int (*use)(void)) {
    int bad = use();
    if (bad) printf("%s: %d\n", name, bad);
    return bad != 0;
}

int main(void) {
    int bad = 0;
#define X(name) bad += run(#name, name);
    USES
#undef X
    return bad != 0;
}
