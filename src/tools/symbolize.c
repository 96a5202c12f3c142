/*
    symbolize.c - names the return addresses of a saved profile: functions, files and lines

    A profile is what MEMLORD_FORMAT_JSON writes; - is standard input. A profile has a return
    address as a place: a module, its build id, and an offset in its file. Build and run:

        cc -std=c99 -O2 src/tools/symbolize.c -o symbolize -lcjson -ldw -lelf -liberty
        ./symbolize profile.json >named.json             # or -o named.json
        ./symbolize --sysroot /mnt/target profile.json   # below it are another machine's modules
        ./symbolize --debug-dir ~/debug profile.json     # it has .build-id/12/34ab.debug
        ./symbolize --fold profile.json                  # Pool<>::add in place of Pool<Layer>::add

    elfutils reads the modules: their symbol tables, .gnu_debugdata and debug information. It finds
    separate debug files by build id or .gnu_debuglink, also below /usr/lib/debug, and asks a server
    if DEBUGINFOD_URLS names one. A file of another build than the one that ran names nothing, and a
    line on stderr says so. A file without a build id is used if it is older than the process. A
    function is named if its symbol or its debug information contains the address. libiberty
    demangles the names of C++ and both manglings of Rust. Code that was made at run time is in no
    module: the perf map of the process, /tmp/perf-PID.map, names it (src/tools/perfmap.h).

    The functions that are inlined at a place become its key "inlined". The place is named by the
    innermost function that is not of a standard library (C's, C++'s, Rust's, or a header in
    /usr/include). If all of them are, it is named by the outermost, and has "library": true. A name
    in the profile stays if no file gives a better one. Numbers over 2^53 are rounded.

    The status is 0; 1 if there are places and none could be named; 2 for bad input.

    The interposer (preload.c) runs `symbolize [--fold] --serve BEGAN`. BEGAN is when the program
    began, in ms since 1970. To symbolize's stdin the interposer writes "offset build_id path" for
    each place, with the offset in hexadecimal and a NUL at the end. Then it closes stdin, and reads
    the number of functions of each place. After the number it reads four texts for each function,
    the innermost first: the line, the file, the name, and 1 for a function in a library or 0. Each
    text has a NUL at its end. A line that is not known is 0, and a file or a name that is not known
    is "".
*/
#define _GNU_SOURCE /* timegm, st_ctim */
#define PROGRAM "symbolize"
#include "profile.h"
#include "perfmap.h"
#include <ctype.h>
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <inttypes.h>
#include <libiberty/demangle.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#define FRAMES_MAX 256 /* the most functions of one place, which is a return address */
#define MEMORY_MAX (sizeof(void *) > 4 ? (rlim_t)16 << 30 : RLIM_INFINITY) /* the most memory that
                                                                              --serve may take, in
                                                                              bytes */

typedef struct frame {
    const char *function, *file; /* "" if the name is not known */
    int line, library;           /* line: 0 if line and file are not known; library: 1 if the frame
                                    is in a standard library */
} frame;

/* A symbol of a module's file. */
typedef struct symbol {
    GElf_Addr from, to; /* the first address of the symbol, and the address after its last */
    GElf_Addr reach;    /* the highest `to` of this symbol and of those before it */
    const char *name;
    int binding;        /* 3 if the symbol is global, 2 if it is weak, 1 if it is local, 0 else */
    int number;         /* its index in the symbol table of the file */
} symbol;

typedef struct module {
    const char *path, *build_id;
    Dwfl *dwfl;
    Dwfl_Module *of; /* libdwfl's handle of the file; NULL if the file cannot name places */
    const char *why; /* the reason why the file cannot name places; NULL if it can */
    symbol *symbols; /* sorted by first address; NULL until they are read */
    size_t symbol_count;
    size_t places, named;
    struct module *next;
} module;

/* A site of the profile that got a name: its text before (`was`) and now (`is`), and the frame that
   names it. */
typedef struct change {
    const char *was, *is;
    frame by;
} change;

static module *modules;
static change *changes;
static size_t change_count, change_room;

static struct options {
    const char *path, *out, *debug_dir, *sysroot, *serve;
    int fold;
} o;
static char *debug_path; /* the directories of debug files, in the form that libdwfl wants */
static double began;     /* when the program began, in s since 1970 */

/* -- modules -- */

/* Returns NULL, or the reason to think that a file is not the one that ran. */
static const char *module_doubt(const module *m, const struct stat *is) {
    double changed = (double)is->st_ctim.tv_sec + (double)is->st_ctim.tv_nsec / 1e9;
    const unsigned char *id = NULL;
    GElf_Addr at;
    int n = dwfl_module_build_id(m->of, &id, &at);
    char *hex = (char *)must_alloc(n > 0 ? 2 * (size_t)n + 1 : 1);
    hex[0] = 0;
    for (int i = 0; i < n; i++) sprintf(hex + 2 * i, "%02x", id[i]);
    if (strcmp(hex, m->build_id))
        return joined("its build id is '%s', and that of the program which ran '%s'", hex,
                      clean(m->build_id));
    free(hex);
    if (n > 0 || changed < began) return NULL;
    return "it has no build id, and changed since the program began";
}

/* Opens the file of a module. libdwfl then takes addresses as they are in the file. Returns NULL,
   or the reason why the file cannot name places. */
static const char *module_try(module *m, const char *path) {
    static const Dwfl_Callbacks callbacks = {dwfl_build_id_find_elf, dwfl_standard_find_debuginfo,
                                             dwfl_offline_section_address, &debug_path};
    struct stat is;
    const char *why;
    if (m->path[0] != '/') return "it has no file";
    if (stat(path, &is)) return strerror(errno);
    if (!S_ISREG(is.st_mode)) return "it is no file"; /* a pipe is refused here, because opening it
                                                         would wait */
    m->dwfl = (Dwfl *)need(dwfl_begin(&callbacks));
    dwfl_report_begin(m->dwfl);
    m->of = dwfl_report_elf(m->dwfl, path, path, -1, 0, 1);
    (void)dwfl_report_end(m->dwfl, NULL, NULL);
    why = m->of ? module_doubt(m, &is) : dwfl_errmsg(-1);
    if (!why) return NULL;
    dwfl_end(m->dwfl);
    m->of = NULL;
    return why;
}

/* Opens the file of a module. If that file is gone or replaced, opens its separate debug file, if
   there is one. */
static void module_open(module *m) {
    const char *dirs[] = {o.debug_dir, o.sysroot ? joined("%s/usr/lib/debug", o.sysroot) : NULL,
                          "/usr/lib/debug"};
    m->why = module_try(m, o.sysroot ? joined("%s%s", o.sysroot, m->path) : m->path);
    for (int i = 0; i < 3 && !m->of && strlen(m->build_id) > 2; i++)
        if (dirs[i])
            (void)module_try(m, joined("%s/.build-id/%.2s/%s.debug", dirs[i], m->build_id,
                                       m->build_id + 2));
}

static module *module_of(const char *path, const char *build_id) {
    module *m = modules;
    while (m && (strcmp(m->path, path) || strcmp(m->build_id, build_id))) m = m->next;
    if (m) return m;
    m = (module *)must_alloc(sizeof *m);
    *m = (module){path, build_id, NULL, NULL, NULL, NULL, 0, 0, 0, modules};
    module_open(m);
    return modules = m;
}

/* -- names -- */

static int starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

/* Returns 1 if a function's file, its mangled name or its module's name shows that the function is
   in a standard library. (The directory /rust/deps has Rust's own copy of the library hashbrown. A
   program's own copy is no standard library.) */
static int is_library(const module *m, const char *function, const char *file) {
    static const char *const in[] = {"/include/c++/",       "/c++/v1/",
                                     "/library/alloc/src/", "/library/core/src/",
                                     "/library/std/src/",   "/rust/deps/"};
    static const char *const relative[] = {"library/alloc/src/", "library/core/src/",
                                           "library/std/src/"};
    static const char *const names[] = {"_ZNSt", "_ZNKSt", "_ZSt", "_ZN9__gnu_cxx", "_Znw", "_Zna",
                                        "_ZN5alloc", "_ZN4core", "_ZN3std", "__rust_", "__rdl_"};
    static const char *const libraries[] = {"libstdc++.so", "libc++.so", "libc++abi.so", "libstd-",
                                            "libc.so.6", "libpthread.so", "ld-linux"};
    const char *base = strrchr(m->path, '/');
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
        size_t n = !inner && starts(at, "operator") ? 8 + strspn(at + 8, "<>-=") : 1;
        const int opens = *at == '<' && (depth || inner || (at > name && at[-1] == ' '));
        const int closes = *at == '>' && depth && at[-1] != '-';
        depth -= closes;
        if (!depth) memmove(to, at, n), to += n;
        depth += opens;
        at += n;
    }
    *to = 0;
}

/* Makes a frame. A name of NULL and a line of 0 mean that they are not known. */
static frame frame_of(const module *m, const char *function, const char *file, int line) {
    frame f = {"", "", 0, 0};
    char *plain = NULL;
    if (function && (starts(function, "_Z") || starts(function, "_R")))
        plain = cplus_demangle(function, DMGL_AUTO | DMGL_PARAMS | DMGL_ANSI);
    if (plain && o.fold) fold(plain);
    if (function) f.function = clean(plain ? plain : function);
    free(plain);
    if (file && line > 0) f.file = clean(file), f.line = line;
    f.library = is_library(m, function ? function : "", f.file);
    return f;
}

static const char *die_name(Dwarf_Die *die) {
    static const unsigned linkage[] = {DW_AT_linkage_name, DW_AT_MIPS_linkage_name};
    for (int i = 0; i < 2; i++) { /* compilers used the second before DWARF 4 */
        Dwarf_Attribute attribute;
        const char *name = dwarf_formstring(dwarf_attr_integrate(die, linkage[i], &attribute));
        if (name) return name;
    }
    return dwarf_diename(die);
}

static unsigned die_number(Dwarf_Die *die, unsigned name) {
    Dwarf_Attribute attribute;
    Dwarf_Word n;
    int none = dwarf_formudata(dwarf_attr(die, name, &attribute), &n);
    return none || n > INT32_MAX ? 0 : (unsigned)n;
}

/* `out` has n functions. Adds the functions that contain an address, the outermost first. Returns
   the new number of functions in `out`. (dwarf_getscopes is not used, because it does not look into
   namespaces, where clang and rustc put functions.) */
static size_t scopes_at(Dwarf_Die *at, Dwarf_Addr pc, Dwarf_Die *out, size_t n) {
    Dwarf_Die child;
    if (dwarf_child(at, &child)) return n;
    do {
        int tag = dwarf_tag(&child), has = dwarf_haspc(&child, pc) > 0;
        size_t more = n;
        if (has && (tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine) && n < FRAMES_MAX)
            out[more++] = child;
        if (has || tag == DW_TAG_namespace || tag == DW_TAG_structure_type ||
            tag == DW_TAG_class_type)
            more = scopes_at(&child, pc, out, more);
        if (has || more > n) return more;
    } while (!dwarf_siblingof(&child, &child));
    return n;
}

/* Writes the functions that are inlined at an address, and after them the function that contains
   the address. Returns how many there are. */
static size_t frames_in(const module *m, Dwarf_Die *cu, Dwarf_Addr pc, frame *out) {
    Dwarf_Line *row = dwarf_getsrc_die(cu, pc);
    const char *file = row ? dwarf_linesrc(row, NULL, NULL) : NULL;
    Dwarf_Die scopes[FRAMES_MAX], split; /* split is the unit that -gsplit-dwarf puts into another
                                            file */
    const int is_split = !dwarf_cu_info(cu->cu, NULL, NULL, NULL, &split, NULL, NULL, NULL) &&
                         split.addr;
    Dwarf_Files *files = NULL;
    size_t n = 0, i = scopes_at(is_split ? &split : cu, pc, scopes, 0);
    int line = 0;
    if (row) (void)dwarf_lineno(row, &line);
    (void)dwarf_getsrcfiles(cu, &files, NULL);
    if (i == FRAMES_MAX) i = 0; /* the array is full, so the innermost function, which has the line,
                                   may be missing */
    while (i-- > 0) {
        size_t number = die_number(&scopes[i], DW_AT_call_file);
        out[n++] = frame_of(m, die_name(&scopes[i]), file, line);
        if (dwarf_tag(&scopes[i]) == DW_TAG_subprogram) break;
        file = files ? dwarf_filesrc(files, number, NULL, NULL) : NULL;
        line = (int)die_number(&scopes[i], DW_AT_call_line);
    }
    if (!n && line > 0) out[n++] = frame_of(m, NULL, file, line);
    return n;
}

/* Returns the compilation unit that contains an address. Some compilers write no table of
   addresses. Then this function asks every unit. */
static Dwarf_Die *unit_at(const module *m, Dwarf_Addr address, Dwarf_Addr *bias) {
    Dwarf_Die *cu = dwfl_module_addrdie(m->of, address, bias);
    if (cu) return cu;
    while ((cu = dwfl_module_nextcu(m->of, cu, bias)) != NULL)
        if (dwarf_haspc(cu, address - *bias) > 0) break;
    return cu;
}

static int binding_of(const GElf_Sym *s) {
    switch (GELF_ST_BIND(s->st_info)) {
    case STB_GLOBAL: return 3;
    case STB_WEAK: return 2;
    case STB_LOCAL: return 1;
    default: return 0;
    }
}

static int by_address(const void *a, const void *b) {
    const symbol *x = (const symbol *)a, *y = (const symbol *)b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->number - y->number;
}

/* Reads the symbols of a module that have a size. (dwfl_module_addrinfo is not used, because it
   looks at every symbol for every address.) */
static void read_symbols(module *m) {
    const int n = dwfl_module_getsymtab(m->of);
    GElf_Addr reach = 0;
    m->symbols = (symbol *)must_alloc((n > 0 ? (size_t)n : 1) * sizeof *m->symbols);
    for (int i = 1; i < n; i++) {
        GElf_Sym s;
        GElf_Addr from;
        const char *name = dwfl_module_getsym_info(m->of, i, &s, &from, NULL, NULL, NULL);
        const int type = GELF_ST_TYPE(s.st_info);
        if (!name || !*name || !s.st_size || s.st_shndx == SHN_UNDEF || type == STT_SECTION ||
            type == STT_FILE || type == STT_TLS || from + s.st_size < from)
            continue;
        m->symbols[m->symbol_count++] =
            (symbol){from, from + s.st_size, 0, name, binding_of(&s), i};
    }
    qsort(m->symbols, m->symbol_count, sizeof *m->symbols, by_address);
    for (size_t i = 0; i < m->symbol_count; i++) {
        if (reach < m->symbols[i].to) reach = m->symbols[i].to;
        m->symbols[i].reach = reach;
    }
}

/* Returns 1 if `a` is better than `than` as the name of an address that both symbols contain. A
   symbol that is not local is better than a local one. Else the symbol that begins later is better,
   and of two that begin together the one that ends earlier. */
static int is_better(const symbol *a, const symbol *than) {
    if ((a->binding == 1) != (than->binding == 1)) return a->binding != 1;
    if (a->from != than->from) return a->from > than->from;
    if (a->to != than->to) return a->to < than->to;
    return a->binding != than->binding ? a->binding > than->binding : a->number < than->number;
}

/* Returns the name of the symbol that contains an address, or NULL if there is none. */
static const char *symbol_at(module *m, GElf_Addr address) {
    const symbol *best = NULL;
    size_t low = 0, high;
    if (!m->symbols) read_symbols(m);
    high = m->symbol_count;
    while (low < high) { /* finds the first symbol that begins behind the address */
        const size_t middle = low + (high - low) / 2;
        if (m->symbols[middle].from <= address)
            low = middle + 1;
        else
            high = middle;
    }
    while (low-- > 0 && m->symbols[low].reach > address) {
        const symbol *s = &m->symbols[low];
        if (s->to > address && (!best || is_better(s, best))) best = s;
    }
    return best ? best->name : NULL;
}

/* Writes the frames of an address, the innermost first, and returns the number of frames. */
static size_t frames_at(module *m, Dwarf_Addr address, frame *out) {
    Dwarf_Addr bias = 0;
    Dwarf_Die *cu = m->of ? unit_at(m, address, &bias) : NULL;
    size_t n = cu ? frames_in(m, cu, address - bias, out) : 0;
    const char *name;
    if (!m->of || (n && out[n - 1].function[0])) return n;
    name = symbol_at(m, address);
    if (!name) return n;
    out[0] = frame_of(m, name, n ? out[0].file : NULL, n ? out[0].line : 0);
    return 1;
}

/* Returns the frame by which a place is named: the innermost one that is in no standard library or,
   if all are in one, the outermost. */
static const frame *frame_shown(const frame *frames, size_t n) {
    size_t i = 0;
    while (i + 1 < n && frames[i].library) i++;
    return &frames[i];
}

/* -- the profile -- */

static void set(cJSON *object, const char *key, cJSON *value) {
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    cJSON_AddItemToObject(object, key, value);
}

static void set_frame(cJSON *site, const frame *f) {
    if (f->function[0]) set(site, "function", cJSON_CreateString(f->function));
    if (f->line) set(site, "file", cJSON_CreateString(f->file));
    if (f->line) set(site, "line", cJSON_CreateNumber(f->line));
}

static void change_add(const char *was, const char *is, const frame *by) {
    changes = (change *)grown(changes, change_count, &change_room, sizeof *changes);
    changes[change_count++] = (change){was, is, *by};
}

static void add_inlined(cJSON *place, const frame *frames, size_t n) {
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; i < n; i++) {
        cJSON *one = cJSON_CreateObject();
        set(one, "function", cJSON_CreateString(frames[i].function));
        set(one, "file", cJSON_CreateString(frames[i].file));
        set(one, "line", cJSON_CreateNumber(frames[i].line));
        if (frames[i].library) set(one, "library", cJSON_CreateTrue());
        cJSON_AddItemToArray(list, one);
    }
    set(place, "inlined", list);
}

/* Names a place. The names go to the object at its key "site", or to the place itself if it has no
   such key. */
static void name_place(cJSON *place, module *m, double offset) {
    frame frames[FRAMES_MAX];
    size_t n = frames_at(m, (Dwarf_Addr)offset, frames);
    cJSON *site = get(place, "site") ? get(place, "site") : place;
    const frame *f = frame_shown(frames, n);
    const char *was = site_text(site, 1);
    m->places++;
    if (n ? f->library : is_library(m, "", "")) set(place, "library", cJSON_CreateTrue());
    if (!n || !cJSON_IsObject(site)) return;
    if (!f->line && cJSON_GetNumberValue(get(site, "line")) > 0) return;
    m->named++;
    set_frame(site, f);
    change_add(was, site_text(site, 1), f);
    if (n > 1) add_inlined(place, frames, n);
}

static size_t made, made_named; /* how many places lie in code that was made at run time, and how
                                   many of them got a name */

/* Names a place that is in no module, by the perf map. */
static void name_made(cJSON *place) {
    const cJSON *path = get(place, "module"), *offset = get(place, "offset");
    cJSON *site = get(place, "site");
    const char *function = text_of(site, "function"), *name;
    if (!cJSON_IsNumber(offset) || !(offset->valuedouble > 0) || !cJSON_IsObject(site) ||
        (function && *function) ||
        !(cJSON_IsNull(path) || (cJSON_IsString(path) && !path->valuestring[0])))
        return;
    made++;
    name = perf_map_name((uint64_t)offset->valuedouble);
    if (!name) return;
    made_named++;
    set(site, "function", cJSON_CreateString(clean(name)));
    set(site, "file", cJSON_CreateString(""));
}

/* Returns the module of a place. A place is an object with a module and an offset; its module is a
   path, or an index into `all`. Returns NULL if the object is no place, or if its code is in no
   module. */
static module *module_at(const cJSON *at, const cJSON *all) {
    const cJSON *path = get(at, "module"), *offset = get(at, "offset"), *from = at;
    if (!cJSON_IsNumber(offset) || offset->valuedouble < 0 ||
        offset->valuedouble >= 9007199254740992.0) /* up to 2^53 a double is exact */
        return NULL;
    if (cJSON_IsNumber(path) && path->valuedouble >= 0) {
        from = cJSON_GetArrayItem(all, path->valueint);
        path = get(from, "module");
    }
    if (!cJSON_IsString(path) || !path->valuestring[0]) return NULL;
    if (!cJSON_IsString(get(from, "build_id"))) return NULL;
    return module_of(path->valuestring, get(from, "build_id")->valuestring);
}

static void name_places(cJSON *at, const cJSON *all) {
    const cJSON *own = get(at, "modules");
    module *m;
    cJSON *child;
    if (cJSON_IsArray(own)) all = own;
    m = module_at(at, all);
    if (m)
        name_place(at, m, get(at, "offset")->valuedouble);
    else
        name_made(at);
    cJSON_ArrayForEach(child, at) name_places(child, all);
}

static int by_was(const void *a, const void *b) {
    return strcmp(((const change *)a)->was, ((const change *)b)->was);
}

/* Keeps one change for each old text of a site. Drops all changes of a text whose sites got
   different names. */
static void settle_changes(void) {
    size_t n = 0;
    if (change_count) qsort(changes, change_count, sizeof *changes, by_was);
    for (size_t i = 0, k; i < change_count; i = k) {
        int same = strcmp(changes[i].was, unknown) != 0;
        for (k = i + 1; k < change_count && !by_was(&changes[i], &changes[k]); k++)
            same &= !strcmp(changes[i].is, changes[k].is);
        if (same) changes[n++] = changes[i];
    }
    change_count = n;
}

static const change *change_of(const char *was) {
    const change key = {was, NULL, {NULL, NULL, 0, 0}};
    if (!change_count) return NULL;
    return (const change *)bsearch(&key, changes, change_count, sizeof key, by_was);
}

/* Names the sites of a profile that come without a module and an offset. Such a site gets the name
   of a place that had the same function, file and line. */
static void name_sites(cJSON *at) {
    const change *to = NULL;
    cJSON *child;
    if (get(at, "module") && get(at, "offset")) return;
    if (cJSON_IsString(get(at, "function")) && cJSON_IsString(get(at, "file")))
        to = change_of(site_text(at, 1));
    if (to) set_frame(at, &to->by);
    cJSON_ArrayForEach(child, at) name_sites(child);
}

/* Names the sites that are among the strings of the profile's events. */
static void name_strings(cJSON *strings) {
    for (cJSON *at = strings ? strings->child : NULL, *next; at; at = next) {
        const change *to = cJSON_IsString(at) ? change_of(clean(at->valuestring)) : NULL;
        next = at->next;
        if (to) cJSON_ReplaceItemViaPointer(strings, at, cJSON_CreateString(to->is));
    }
}

/* -- the callers of sites -- */

static struct listed {
    cJSON **at;
    size_t count;
} listed; /* the frames that the profile's stacks refer to */

static void read_frames(const cJSON *stacks) {
    size_t room = 0;
    cJSON *item;
    cJSON_ArrayForEach(item, get(stacks, "frames")) {
        listed.at = (cJSON **)grown(listed.at, listed.count, &room, sizeof *listed.at);
        listed.at[listed.count++] = item;
    }
}

/* Returns frame i of a stack, or NULL if the stack is shorter. */
static cJSON *frame_of_stack(const cJSON *stack, int i) {
    double n = cJSON_GetNumberValue(cJSON_GetArrayItem(get(stack, "frames"), i));
    return n >= 0 && n < (double)listed.count ? listed.at[(size_t)n] : NULL;
}

/* Returns 1 if a site is the innermost frame of a stack. */
static int is_stack_of(const cJSON *stack, const cJSON *site, const cJSON *all) {
    const cJSON *place = frame_of_stack(stack, 0);
    const char *wanted = cJSON_GetStringValue(get(site, "module"));
    const char *device = cJSON_GetStringValue(get(site, "device"));
    const char *of = cJSON_GetStringValue(get(stack, "device")), *path;
    double n = cJSON_GetNumberValue(get(place, "module"));
    if (!place || !wanted || !device || !of || strcmp(device, of) || !(n >= 0 && n < INT32_MAX))
        return 0;
    path = cJSON_GetStringValue(get(cJSON_GetArrayItem(all, (int)n), "module"));
    return path && !strcmp(path, wanted) &&
           cJSON_Compare(get(place, "offset"), get(site, "offset"), 1);
}

/* A walk over the functions of a stack that are in no standard library. */
typedef struct own_walk {
    const cJSON *stack;
    int frame, function; /* the frame to look at next, and which of the functions inlined there */
} own_walk;
/* Returns the next function, the innermost first, or NULL after the last one. */
static const cJSON *own_next(own_walk *walk) {
    const cJSON *at, *one;
    while ((at = frame_of_stack(walk->stack, walk->frame)) != NULL) {
        const cJSON *inlined = get(at, "inlined");
        const int i = walk->function++;
        if (i >= (inlined ? cJSON_GetArraySize(inlined) : 1)) {
            walk->frame++, walk->function = 0;
            continue;
        }
        one = inlined ? cJSON_GetArrayItem(inlined, i) : at;
        if (!cJSON_IsTrue(get(one, "library"))) return inlined ? one : get(at, "site");
    }
    return NULL;
}

static int same_function(const cJSON *a, const cJSON *b) {
    const char *one = text_of(a, "function"), *other = text_of(b, "function");
    return one && other && !strcmp(one, other);
}
/* Returns 1 if the name of a site's function says that it allocates. Does what
   mli_allocates_by_name in memlord.h does. */
static int allocates_by_name(const cJSON *site) {
    static const char *const words[] = {"alloc", "strdup", "strndup", "memdup", "operator new"};
    const char *name = text_of(site, "function");
    for (size_t i = 0; name && i < sizeof words / sizeof *words; i++)
        if (strcasestr(name, words[i])) return 1;
    return 0;
}
static int has_text(const cJSON *site, const char *key) {
    const char *text = text_of(site, key);
    return text && *text;
}
/* Returns the function that a site was called from in a stack, or NULL. Does what mli_caller_at in
   memlord.h does. */
static const cJSON *caller_at(const cJSON *site, const cJSON *stack) {
    const int library = cJSON_IsTrue(get(site, "library"));
    own_walk walk = {stack, 0, 0};
    const cJSON *own = own_next(&walk), *first = own, *caller;
    if (!own || (!has_text(own, "function") && !library)) return NULL;
    while (first && !library &&
           (same_function(first, own) || same_function(first, get(site, "site"))))
        first = own_next(&walk);
    caller = first;
    if (library || allocates_by_name(own))
        while (caller && allocates_by_name(caller)) caller = own_next(&walk);
    if (!caller || !has_text(caller, "function") || !has_text(caller, "file")) caller = first;
    return library || (caller && has_text(caller, "function") && has_text(caller, "file"))
               ? caller : NULL;
}
/* Returns an object with the file, function and line of a site. */
static cJSON *site_copy(const cJSON *site) {
    static const char *const keys[] = {"file", "function", "line"};
    cJSON *copy = cJSON_CreateObject();
    for (size_t k = 0; k < 3; k++) set(copy, keys[k], cJSON_Duplicate(get(site, keys[k]), 1));
    return copy;
}
/* Adds the numbers of a stack to those of the function that calls the site in the stack. */
static void add_caller(cJSON *callers, const cJSON *of, const cJSON *stack) {
    static const char *const keys[] = {"alloc_bytes", "allocs", "live_bytes", "at_peak_bytes"};
    const size_t count = sizeof keys / sizeof *keys;
    const cJSON *at = caller_at(of, stack);
    cJSON *caller = NULL, *site;
    if (!at) return;
    site = site_copy(at);
    cJSON_ArrayForEach(caller, callers) if (cJSON_Compare(get(caller, "site"), site, 1)) break;
    if (!caller) {
        caller = cJSON_CreateObject();
        set(caller, "site", cJSON_Duplicate(site, 1));
        for (size_t k = 0; k < count; k++) set(caller, keys[k], cJSON_CreateNumber(0));
        cJSON_AddItemToArray(callers, caller);
    }
    cJSON_Delete(site);
    for (size_t k = 0; k < count; k++)
        cJSON_SetNumberValue(get(caller, keys[k]), get(caller, keys[k])->valuedouble +
                                                       cJSON_GetNumberValue(get(stack, keys[k])));
}

/* A stack, and the offset of its innermost frame. A profile may have thousands of sites and of
   stacks, so add_callers compares the offsets before all else. */
typedef struct stack_at {
    const cJSON *stack;
    double offset; /* NaN if it is not known */
} stack_at;

static stack_at *read_stacks(const cJSON *stacks, size_t *count) {
    stack_at *all = NULL;
    size_t room = 0;
    const cJSON *stack;
    cJSON_ArrayForEach(stack, get(stacks, "list")) {
        const double offset = cJSON_GetNumberValue(get(frame_of_stack(stack, 0), "offset"));
        all = (stack_at *)grown(all, *count, &room, sizeof *all);
        all[(*count)++] = (stack_at){stack, offset};
    }
    return all;
}

/* Gives each site its list "callers", which memlord.h describes. */
static void add_callers(cJSON *root) {
    const cJSON *stacks = get(root, "stacks");
    size_t count = 0;
    stack_at *all;
    cJSON *site;
    read_frames(stacks);
    all = read_stacks(stacks, &count);
    cJSON_ArrayForEach(site, get(root, "sites")) {
        const double offset = cJSON_GetNumberValue(get(site, "offset"));
        cJSON *callers = cJSON_CreateArray();
        for (size_t i = 0; i < count; i++)
            if (fabs(all[i].offset - offset) < 0.5 &&
                is_stack_of(all[i].stack, site, get(stacks, "modules")))
                add_caller(callers, site, all[i].stack);
        cJSON_DeleteItemFromObjectCaseSensitive(site, "callers");
        if (cJSON_GetArraySize(callers))
            set(site, "callers", callers);
        else
            cJSON_Delete(callers);
    }
    free(all);
}

/* Returns when the program of a profile began, in seconds since 1970, or 0 if the profile does not
   tell. */
static double began_of(const cJSON *metadata) {
    const char *start = text_of(metadata, "started_at"); /* profiles that MemLord wrote before 0.5
                                                            have none */
    const char *when = start ? start : text_of(metadata, "generated_at");
    double uptime = start ? 0 : cJSON_GetNumberValue(get(metadata, "uptime_ns")); /* may be NaN */
    struct tm t;
    int ms;
    memset(&t, 0, sizeof t);
    if (!when || !(uptime >= 0)) return 0;
    if (sscanf(when, "%d-%d-%dT%d:%d:%d.%dZ", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour,
               &t.tm_min, &t.tm_sec, &ms) != 7)
        return 0;
    t.tm_year -= 1900, t.tm_mon--;
    return (double)timegm(&t) + ms / 1e3 - uptime / 1e9;
}

/* Prints for each module how many of its places have no name, and why. Returns the exit status. */
static int tell(void) {
    size_t places = 0, named = 0;
    for (const module *m = modules; m; m = m->next) {
        places += m->places, named += m->named;
        if (m->named < m->places)
            note("%s: %zu of %zu places not named: %s", clean(m->path), m->places - m->named,
                 m->places, m->of ? "no symbol and no debug information has them" : m->why);
    }
    if (made_named < made)
        note("%zu of %zu places in code made at run time not named: %s does not have them",
             made - made_named, made, perf_map.path ? clean(perf_map.path) : "a perf map");
    note("%zu of %zu places named", named, places);
    return places && !named;
}

static int name_profile(void) {
    cJSON *root = read_json(o.path);
    FILE *out;
    char *text;
    int status;
    expect_schema(root, clean(o.path), "memlord/2");
    began = began_of(get(root, "metadata"));
    perf_map_read(o.sysroot, cJSON_GetNumberValue(get(get(root, "metadata"), "pid")), began);
    name_places(root, NULL);
    settle_changes();
    name_sites(root);
    add_callers(root);
    name_strings(get(root, "strings"));
    text = (char *)need(cJSON_PrintUnformatted(root));
    out = o.out ? fopen(o.out, "w") : stdout;
    if (!out || fprintf(out, "%s\n", text) < 0 || fclose(out))
        DIE("%s: %s", o.out ? clean(o.out) : "standard output", strerror(errno));
    free(text);
    status = tell();
    cJSON_Delete(root); /* comes last, because the modules use paths that are texts of the
                           profile */
    return status;
}

/* -- for the interposer -- */

/* Limits the time and the memory that a damaged file can make this process take. Beyond a limit the
   process ends, and names nothing. */
static void set_limits(void) {
    const struct rlimit none = {0, 0}, seconds = {30, 30}, bytes = {MEMORY_MAX, MEMORY_MAX};
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)setrlimit(RLIMIT_CPU, &seconds);
    (void)setrlimit(RLIMIT_AS, &bytes);
}

/* Answers the interposer. Reads all places before the first answer, so that neither side waits for
   the other. */
static int serve(void) {
    size_t size;
    char *text = read_text("-", &size), *at = text, *end, *path;
    set_limits();
    began = strtod(o.serve, NULL) / 1e3;
    for (; at < text + size; at = path + strlen(path) + 1) {
        frame frames[FRAMES_MAX];
        Dwarf_Addr offset = strtoull(at, &end, 16);
        module *m;
        size_t n;
        if (*end != ' ' || !(path = strchr(end + 1, ' '))) return 2;
        *path++ = 0;
        m = module_of(path, end + 1);
        n = frames_at(m, offset, frames);
        if (!n) frames[n++] = (frame){"", "", 0, is_library(m, "", "")};
        printf("%zu%c", n, 0);
        for (size_t i = 0; i < n; i++)
            printf("%d%c%s%c%s%c%d%c", frames[i].line, 0, frames[i].file, 0, frames[i].function, 0,
                   frames[i].library, 0);
    }
    return fclose(stdout) ? 2 : 0;
}

/* Reads the arguments. Returns 0 if they are wrong. */
static int parse(int argc, char **argv) {
    static const char *const names[] = {"-o", "--debug-dir", "--sysroot", "--serve"};
    const char **const values[] = {&o.out, &o.debug_dir, &o.sysroot, &o.serve};
    for (int i = 1, k; i < argc; i++) {
        for (k = 0; k < 4 && strcmp(argv[i], names[k]);) k++;
        if (!strcmp(argv[i], "--fold"))
            o.fold = 1;
        else if (k < 4 && i + 1 < argc)
            *values[k] = argv[++i];
        else if (k < 4 || o.path || (argv[i][0] == '-' && argv[i][1]))
            return 0;
        else
            o.path = argv[i];
    }
    return !o.path == !!o.serve;
}

/* Makes a directory absolute, because libdwfl looks for a relative one in the directory of each
   module. */
static const char *absolute(const char *dir) {
    char *path = dir ? realpath(dir, NULL) : NULL;
    if (dir && !path) DIE("%s: %s", clean(dir), strerror(errno));
    return path;
}

int main(int argc, char **argv) {
    cJSON_Hooks hooks = {must_alloc, free};
    if (!parse(argc, argv)) {
        fputs("usage: symbolize [--debug-dir DIR] [--sysroot DIR] [--fold] [-o named.json] "
              "profile.json\n", stderr);
        return 2;
    }
    cJSON_InitHooks(&hooks);
    o.debug_dir = absolute(o.debug_dir);
    o.sysroot = absolute(o.sysroot);
    debug_path = joined(":.debug:%s%s%s%s/usr/lib/debug", o.debug_dir ? o.debug_dir : "",
                        o.debug_dir ? ":" : "", o.sysroot ? o.sysroot : "",
                        o.sysroot ? "/usr/lib/debug:" : "");
    return o.serve ? serve() : name_profile();
}
