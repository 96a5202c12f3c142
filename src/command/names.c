#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "command/names.h"
#include "command/perfmap.h"
#include "profile/read.h"
#include <ctype.h>
#include <libiberty/demangle.h>
#include <stdlib.h>
#include <string.h>

static int starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

/* Returns 1 if a function's file, its mangled name or its module's name shows that the function is
   in a standard library. (The directory /rust/deps has Rust's own copy of the library hashbrown. A
   program's own copy is no standard library.) */
static int is_library(const char *module, const char *function, const char *file) {
    static const char *const in[] = {"/include/c++/",       "/c++/v1/",
                                     "/library/alloc/src/", "/library/core/src/",
                                     "/library/std/src/",   "/rust/deps/"};
    static const char *const relative[] = {"library/alloc/src/", "library/core/src/",
                                           "library/std/src/"};
    static const char *const names[] = {"_ZNSt",   "_ZNKSt",  "_ZSt",      "_ZN9__gnu_cxx",
                                        "_Znw",    "_Zna",    "_ZN5alloc", "_ZN4core",
                                        "_ZN3std", "__rust_", "__rdl_"};
    static const char *const libraries[] = {"libstdc++.so", "libc++.so", "libc++abi.so",
                                            "libstd-",      "libc.so.6", "libpthread.so",
                                            "ld-linux"};
    const char *base = strrchr(module, '/');
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        if (strstr(file, in[i])) return 1;
    for (size_t i = 0; i < sizeof relative / sizeof *relative; i++)
        if (starts(file, relative[i])) return 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (starts(function, names[i])) return 1;
    for (size_t i = 0; base && i < sizeof libraries / sizeof *libraries; i++)
        if (starts(base + 1, libraries[i])) return 1;
    return starts(file, "/usr/include/") || !strcmp(function, "_start");
}

/* Removes the arguments of templates from a name, but keeps their brackets. The < of an operator
   stays, and so does Rust's <T as Trait>. */
static void fold(char *name) {
    const char *at = name;
    char *to = name;
    int depth = 0;
    while (*at) {
        const int inner = at > name && (isalnum((unsigned char)at[-1]) || at[-1] == '_');
        const size_t n = !inner && starts(at, "operator") ? 8 + strspn(at + 8, "<>-=") : 1;
        const int opens = *at == '<' && (depth || inner || (at > name && at[-1] == ' '));
        const int closes = *at == '>' && depth && at[-1] != '-';
        depth -= closes;
        if (!depth) memmove(to, at, n), to += n;
        depth += opens;
        at += n;
    }
    *to = 0;
}

/* -- the names of one module -- */

typedef struct namer {
    mlr_profile *profile;
    const mlr_names *names;
    const mlr_module *module;
    mlr_elf *elf;
    size_t places, named; /* of the module */
} namer;

static const char *keep(namer *n, const char *text) {
    return (const char *)mlr_need(
        (void *)(uintptr_t)mlr_profile_text(n->profile, text, strlen(text)));
}

static mlr_function function_of(namer *n, const mlr_elf_function *from) {
    mlr_function to = {"", "", 0, 0};
    char *plain = NULL;
    if (from->name && (starts(from->name, "_Z") || starts(from->name, "_R")))
        plain = cplus_demangle(from->name, DMGL_AUTO | DMGL_PARAMS | DMGL_ANSI);
    if (plain && n->names->fold) fold(plain);
    if (from->name) to.name = keep(n, plain ? plain : from->name);
    free(plain);
    if (from->file && from->line) to.file = keep(n, from->file), to.line = from->line;
    to.library = is_library(n->module->path, from->name ? from->name : "", to.file);
    return to;
}

/* Returns which function answers show: the innermost that is in no standard library or, if all are
   in one, the outermost. */
static uint32_t shown_of(const mlr_function *functions, size_t count) {
    uint32_t i = 0;
    while (i + 1 < count && functions[i].library) i++;
    return i;
}

static void name_frame(namer *n, mlr_frame *frame) {
    mlr_elf_function found[MLR_INLINED];
    const size_t count = mlr_elf_functions(n->elf, frame->offset, found);
    mlr_function *functions;
    uint32_t shown;
    n->places++;
    if (!count && is_library(n->module->path, "", "")) frame->function[0].library = 1;
    if (!count) return;
    functions = (mlr_function *)mlr_need(mlr_profile_alloc(n->profile, count, sizeof *functions));
    for (size_t i = 0; i < count; i++) functions[i] = function_of(n, &found[i]);
    shown = shown_of(functions, count);
    if (!functions[shown].line && frame->function[frame->shown].line) return;
    if (count == 1 && !functions->name[0]) functions->name = frame->function[frame->shown].name;
    frame->function = functions;
    frame->functions = (uint32_t)count;
    frame->shown = shown;
    n->named++;
}

/* -- all modules -- */

/* Orders frames by module and address, so that elfutils has one module open, and reads what lies
   together at once. */
static int by_place(const void *a, const void *b) {
    const mlr_frame *x = *(mlr_frame *const *)a, *y = *(mlr_frame *const *)b;
    if (x->module != y->module) return x->module < y->module ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* What could not be named because the file of its module is not there. */
typedef struct lost {
    size_t modules, places, most;
    char *path, *why; /* of the module with most places */
} lost;

static void add_lost(lost *l, const namer *n) {
    l->modules++;
    l->places += n->places;
    if (n->places <= l->most) return;
    l->most = n->places;
    free(l->path);
    free(l->why);
    l->path = mlr_joined("%s", n->module->path);
    l->why = mlr_joined("%s", mlr_elf_doubt(n->elf));
}

static void tell_lost(const lost *l, size_t places, const mlr_names *names) {
    char *others =
        l->modules > 1 ? mlr_joined(" and %zu more", l->modules - 1) : mlr_joined("%s", "");
    if (l->places && !names->quiet)
        mlr_tell("%zu of %zu places have no name: %s%s: %s; --symfs DIR looks for the files of "
                 "another machine or build below DIR, --no-names does without",
                 l->places, places, mlr_clean(l->path), others, l->why);
    free(others);
    free(l->path);
    free(l->why);
}

/* Names frames of one module, from `from` on. Returns how many they are. */
static size_t name_module(namer *n, mlr_frame *const *places, size_t from, size_t count, lost *l) {
    const uint32_t module = places[from]->module;
    size_t i = from;
    n->module = &n->profile->module[module - 1];
    n->places = n->named = 0;
    n->elf = mlr_elf_open(n->module, &n->names->where, n->profile->started_unix_ns);
    for (; i < count && places[i]->module == module; i++) {
        if ((i & 15) == 0) mlr_progress("naming places", i, count);
        name_frame(n, places[i]);
    }
    if (mlr_elf_doubt(n->elf) && n->module->path[0] == '/') add_lost(l, n);
    mlr_elf_close(n->elf);
    return i - from;
}

static void name_made(mlr_profile *p, const mlr_names *names) {
    mlr_perfmap map;
    mlr_perfmap_read(&map, names->where.symfs, p->pid, p->started_unix_ns);
    for (uint32_t i = 0; i < p->frame_count && map.count; i++) {
        mlr_function *f = &p->frame[i].function[0];
        const char *name;
        if (p->frame[i].module || !p->frame[i].offset || f->name[0]) continue;
        name = mlr_perfmap_name(&map, p->frame[i].offset);
        if (!name) continue;
        f->name =
            (const char *)mlr_need((void *)(uintptr_t)mlr_profile_text(p, name, strlen(name)));
        f->file = "";
    }
    mlr_perfmap_free(&map);
}

void mlr_names_fill(mlr_profile *p, const mlr_names *names) {
    mlr_frame **places =
        (mlr_frame **)mlr_need(malloc(((size_t)p->frame_count + 1) * sizeof(mlr_frame *)));
    namer n = {p, names, NULL, NULL, 0, 0};
    lost l = {0, 0, 0, NULL, NULL};
    size_t count = 0;
    for (uint32_t i = 0; i < p->frame_count; i++)
        if (p->frame[i].module) places[count++] = &p->frame[i];
    if (count) qsort(places, count, sizeof *places, by_place);
    for (size_t i = 0; i < count;) i += name_module(&n, places, i, count, &l);
    mlr_progress_end();
    tell_lost(&l, count, names);
    free(places);
    name_made(p, names);
}
