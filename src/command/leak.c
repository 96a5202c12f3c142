#include "command/leak.h"
#include "profile/read.h"
#include <string.h>

/* Functions of the C library whose caller has to free what they allocate, without the underscores
   that their names may begin with. */
static const char *const handed[] = {
    "strdup",   "strndup",        "wcsdup", "asprintf",       "vasprintf",  "getline",
    "getdelim", "realpath",       "getcwd", "scandir",        "opendir",    "fopen",
    "fdopen",   "open_memstream", "popen",  "fopen_internal", "getaddrinfo"};

static int hands_on(const char *name) {
    static const char *const before[] = {"_IO_new_", "_IO_", "GI_", "new_"};
    name += strspn(name, "_");
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        if (!strncmp(name, before[i], strlen(before[i]))) name += strlen(before[i]);
    name += strspn(name, "_");
    for (size_t i = 0; i < sizeof handed / sizeof *handed; i++)
        if (!strcmp(name, handed[i])) return 1;
    return 0;
}

/* Returns 1 if the code of a frame is in the C library, the C++ library or the loader. */
static int is_system(const mlr_profile *p, const mlr_frame *frame) {
    static const char *const names[] = {"libc.so",      "libc-2.",    "libc.musl",
                                        "ld-linux",     "ld-musl",    "ld-2.",
                                        "libstdc++.so", "libpthread", "libm.so"};
    const char *path = frame->module ? p->module[frame->module - 1].path : "";
    const char *slash = strrchr(path, '/');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(slash ? slash + 1 : path, names[i], strlen(names[i]))) return 1;
    return 0;
}

static int counts(const mlr_profile *p, uint32_t frame) {
    const mlr_frame *f = frame ? &p->frame[frame - 1] : NULL;
    if (!f || !is_system(p, f)) return 1;
    for (uint32_t i = 0; i < f->functions; i++)
        if (hands_on(f->function[i].name)) return 1;
    return 0;
}

mlr_leak mlr_leak_of(const mlr_profile *p) {
    mlr_leak leak = {0, 0, 0, 0};
    for (uint32_t i = 0; i < p->group_count; i++) {
        const mlr_group *g = &p->group[i];
        const uint64_t blocks = p->mark ? g->marked_blocks : g->blocks;
        const uint64_t bytes = p->mark ? g->marked_bytes : g->bytes;
        const uint32_t frame = g->site ? p->site[g->site - 1].frame : 0;
        if (g->arena || !blocks || !counts(p, frame)) continue;
        leak.blocks += blocks;
        leak.bytes += bytes;
        if (bytes > leak.most) leak.most = bytes, leak.frame = frame;
    }
    return leak;
}
