/* A libunwind that takes five stacks, and then crashes (FAKE_UNWINDER=crash) or hangs. */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__thread char own_room[8]; /* as the real one has */
static char space;
void *_ULx86_64_local_addr_space = &space;
int _ULx86_64_set_caching_policy(void *at, int policy) { return at != &space || policy; }
int _Ux86_64_getcontext(void *out) { return out == NULL; }
int _ULx86_64_init_local(void *cursor, void *context) { return !cursor || !context; }
int _ULx86_64_step(void *cursor) { return cursor == NULL; }

static int found(struct dl_phdr_info *module, size_t size, void *user) {
    return !module || !size || !user;
}
int unw_backtrace(void **frames, int cap) {
    static int calls;
    const char *how = getenv("FAKE_UNWINDER");
    void *wanted = (void *)unw_backtrace;
    int i = dl_iterate_phdr(found, &wanted);
    own_room[0] = 1;
    if (++calls > 5) {
        volatile int *volatile nowhere = (int *)(size_t)16;
        if (how && !strcmp(how, "crash")) *nowhere = 1;
        for (;;) (void)pause();
    }
    for (i = 0; i < 3 && i < cap; i++) frames[i] = (char *)unw_backtrace + 8 * i + 1;
    return i;
}
