/* Counts the timers that a program makes, and writes their number to the file $TIMERS at its end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int made;

int timer_create(clockid_t clock, struct sigevent *event, timer_t *timer) {
    int (*real)(clockid_t, struct sigevent *, timer_t *);
    void *found = dlsym(RTLD_NEXT, "timer_create");
    memcpy(&real, &found, sizeof real);
    __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    return real(clock, event, timer);
}

__attribute__((destructor)) static void tell(void) {
    FILE *file = fopen(getenv("TIMERS"), "w");
    if (!file) return;
    fprintf(file, "%d\n", made);
    fclose(file);
}
