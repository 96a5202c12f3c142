#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "command/elf.h"
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A piece of code from one address to another. Those of a list are sorted by `from`. `reach` is the
   highest `to` of this one and of those before it. */
typedef struct piece {
    uint64_t from, to, reach;
    union {
        Dwarf_Die die; /* of a function */
        struct {
            const char *name;
            int binding; /* 3 if the symbol is global, 2 if it is weak, 1 if it is local, 0 else */
        } symbol;
    } of;
    size_t number; /* in the order of the file */
} piece;

typedef struct pieces {
    piece *at;
    size_t count, room;
} pieces;

/* The functions of a compilation unit. */
typedef struct unit {
    Dwarf_CU *cu;
    Dwarf_Die top; /* of the file that -gsplit-dwarf has made, if there is one */
    Dwarf_Files *files;
    pieces functions;
} unit;

struct mlr_elf {
    const char *path, *build_id;
    char *debug_path, *doubt;
    Dwfl *dwfl;
    Dwfl_Module *of;
    pieces symbols;
    int has_symbols; /* 1: they are read */
    unit **units;    /* a hash table by `cu` */
    size_t unit_count, unit_room;
};

/* -- pieces -- */

static piece *add_piece(pieces *list) {
    piece *p;
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        list->at = (piece *)mlr_need(realloc(list->at, list->room * sizeof *list->at));
    }
    p = &list->at[list->count];
    memset(p, 0, sizeof *p);
    p->number = list->count++;
    return p;
}

static int by_address(const void *a, const void *b) {
    const piece *x = (const piece *)a, *y = (const piece *)b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static void sort_pieces(pieces *list) {
    uint64_t reach = 0;
    if (list->count) qsort(list->at, list->count, sizeof *list->at, by_address);
    for (size_t i = 0; i < list->count; i++) {
        if (reach < list->at[i].to) reach = list->at[i].to;
        list->at[i].reach = reach;
    }
}

/* Returns the best of the pieces that contain an address, or NULL. */
static piece *piece_at(const pieces *list, uint64_t address,
                       int (*is_better)(const piece *a, const piece *than)) {
    piece *best = NULL;
    size_t low = 0, high = list->count;
    while (low < high) { /* finds the first piece that begins behind the address */
        const size_t middle = low + (high - low) / 2;
        if (list->at[middle].from <= address)
            low = middle + 1;
        else
            high = middle;
    }
    while (low-- > 0 && list->at[low].reach > address) {
        piece *p = &list->at[low];
        if (p->to > address && (!best || is_better(p, best))) best = p;
    }
    return best;
}

/* -- the file -- */

/* Returns NULL, or the reason to think that a file is not the one that ran. */
static char *doubt_of(const mlr_elf *elf, const struct stat *is, uint64_t began_ns) {
    const uint64_t changed =
        (uint64_t)is->st_ctim.tv_sec * 1000000000 + (uint64_t)is->st_ctim.tv_nsec;
    const unsigned char *id = NULL;
    GElf_Addr at;
    const int n = dwfl_module_build_id(elf->of, &id, &at);
    char *hex = (char *)mlr_need(malloc(n > 0 ? 2 * (size_t)n + 1 : 1));
    hex[0] = 0;
    for (int i = 0; i < n; i++) (void)snprintf(hex + 2 * i, 3, "%02x", id[i]);
    if (strcmp(hex, elf->build_id)) {
        char *why = mlr_joined("it is another build: its build id is '%s', and that of what ran "
                               "'%s'",
                               hex, mlr_clean(elf->build_id));
        free(hex);
        return why;
    }
    free(hex);
    if (n > 0 || changed < began_ns) return NULL;
    return mlr_joined("it has no build id, and changed since the program began");
}

/* Opens a file. libdwfl then takes addresses as they are in the file. Returns NULL, or the reason
   why the file cannot name places. */
static char *try_file(mlr_elf *elf, const char *path, uint64_t began_ns) {
    static const Dwfl_Callbacks callbacks = {dwfl_build_id_find_elf, dwfl_standard_find_debuginfo,
                                             dwfl_offline_section_address, NULL};
    static Dwfl_Callbacks own;
    struct stat is;
    char *why;
    if (elf->path[0] != '/') return mlr_joined("it has no file");
    if (stat(path, &is)) return mlr_joined("%s", strerror(errno));
    if (!S_ISREG(is.st_mode)) return mlr_joined("it is no file"); /* opening a pipe would wait */
    own = callbacks;
    own.debuginfo_path = &elf->debug_path;
    elf->dwfl = (Dwfl *)mlr_need(dwfl_begin(&own));
    dwfl_report_begin(elf->dwfl);
    elf->of = dwfl_report_elf(elf->dwfl, path, path, -1, 0, 1);
    (void)dwfl_report_end(elf->dwfl, NULL, NULL);
    why = elf->of ? doubt_of(elf, &is, began_ns) : mlr_joined("%s", dwfl_errmsg(-1));
    if (!why) return NULL;
    dwfl_end(elf->dwfl);
    elf->dwfl = NULL;
    elf->of = NULL;
    return why;
}

/* Opens the separate debug file of a module whose file is gone or replaced. */
static void try_debug_files(mlr_elf *elf, const mlr_elf_options *options, uint64_t began_ns) {
    char *symfs = mlr_joined("%s/usr/lib/debug", options->symfs ? options->symfs : "");
    const char *dirs[] = {options->debug_dir, symfs, "/usr/lib/debug"};
    for (int i = 0; i < 3 && !elf->of && strlen(elf->build_id) > 2; i++) {
        char *path;
        if (!dirs[i]) continue;
        path = mlr_joined("%s/.build-id/%.2s/%s.debug", dirs[i], elf->build_id, elf->build_id + 2);
        free(try_file(elf, path, began_ns));
        free(path);
    }
    free(symfs);
}

mlr_elf *mlr_elf_open(const mlr_module *module, const mlr_elf_options *options, uint64_t began_ns) {
    mlr_elf *elf = (mlr_elf *)mlr_need(calloc(1, sizeof *elf));
    char *path = mlr_joined("%s%s", options->symfs ? options->symfs : "", module->path);
    elf->path = module->path;
    elf->build_id = module->build_id;
    elf->debug_path = options->path;
    elf->doubt = try_file(elf, path, began_ns);
    free(path);
    if (!elf->of) try_debug_files(elf, options, began_ns);
    if (elf->of) free(elf->doubt), elf->doubt = NULL;
    return elf;
}

const char *mlr_elf_doubt(const mlr_elf *elf) { return elf->doubt; }

void mlr_elf_close(mlr_elf *elf) {
    for (size_t i = 0; i < elf->unit_room; i++) {
        if (elf->units[i]) free(elf->units[i]->functions.at);
        free(elf->units[i]);
    }
    free(elf->units);
    free(elf->symbols.at);
    if (elf->dwfl) dwfl_end(elf->dwfl);
    free(elf->doubt);
    free(elf);
}

/* Makes a directory absolute: libdwfl looks for a relative one in the directory of each module. */
static const char *absolute(const char *dir) {
    char *path = dir ? realpath(dir, NULL) : NULL;
    if (dir && !path) mlr_stop(MLR_COULD_NOT, "%s: %s", mlr_clean(dir), strerror(errno));
    return path;
}

void mlr_elf_options_set(mlr_elf_options *options) {
    options->symfs = absolute(options->symfs);
    options->debug_dir = absolute(options->debug_dir);
    options->path =
        mlr_joined(":.debug:%s%s%s%s/usr/lib/debug", options->debug_dir ? options->debug_dir : "",
                   options->debug_dir ? ":" : "", options->symfs ? options->symfs : "",
                   options->symfs ? "/usr/lib/debug:" : "");
}

/* -- debug information -- */

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
    const int none = dwarf_formudata(dwarf_attr(die, name, &attribute), &n);
    return none || n > INT32_MAX ? 0 : (unsigned)n;
}

static void add_function(pieces *list, Dwarf_Die *die) {
    Dwarf_Addr base, from, to;
    ptrdiff_t at = 0;
    while ((at = dwarf_ranges(die, at, &base, &from, &to)) > 0) {
        piece *p = add_piece(list);
        p->from = from, p->to = to;
        p->of.die = *die;
    }
}

/* Adds the functions below an entry that are in no other function. (dwarf_getscopes is not used,
   because it does not look into namespaces, where clang and rustc put functions, and looks at all
   entries for each address.) */
static void add_functions(pieces *list, Dwarf_Die *of) {
    Dwarf_Die child;
    if (dwarf_child(of, &child)) return;
    do {
        switch (dwarf_tag(&child)) {
        case DW_TAG_subprogram: add_function(list, &child); break;
        case DW_TAG_namespace:
        case DW_TAG_structure_type:
        case DW_TAG_class_type: add_functions(list, &child); break;
        default: break;
        }
    } while (!dwarf_siblingof(&child, &child));
}

static unit *read_unit(Dwarf_Die *cu) {
    unit *u = (unit *)mlr_need(calloc(1, sizeof *u));
    Dwarf_Die split;
    u->cu = cu->cu;
    u->top = *cu;
    if (!dwarf_cu_info(cu->cu, NULL, NULL, NULL, &split, NULL, NULL, NULL) && split.addr)
        u->top = split;
    (void)dwarf_getsrcfiles(cu, &u->files, NULL);
    add_functions(&u->functions, &u->top);
    sort_pieces(&u->functions);
    return u;
}

static unit **unit_slot(unit **units, size_t room, const Dwarf_CU *cu) {
    size_t i = ((uintptr_t)cu >> 4) * 0x9e3779b1u & (room - 1);
    while (units[i] && units[i]->cu != cu) i = (i + 1) & (room - 1);
    return &units[i];
}

static unit *unit_of(mlr_elf *elf, Dwarf_Die *cu) {
    unit **slot;
    if (2 * elf->unit_count >= elf->unit_room) {
        const size_t room = elf->unit_room ? 2 * elf->unit_room : 64;
        unit **units = (unit **)mlr_need(calloc(room, sizeof *units));
        for (size_t i = 0; i < elf->unit_room; i++)
            if (elf->units[i]) *unit_slot(units, room, elf->units[i]->cu) = elf->units[i];
        free(elf->units);
        elf->units = units;
        elf->unit_room = room;
    }
    slot = unit_slot(elf->units, elf->unit_room, cu->cu);
    if (!*slot) *slot = read_unit(cu), elf->unit_count++;
    return *slot;
}

static int is_earlier(const piece *a, const piece *than) { return a->number < than->number; }

/* `out` has n functions. Adds those inlined at an address, the outermost first. Returns the new
   number of functions in `out`. */
static size_t inlined_at(Dwarf_Die *of, Dwarf_Addr pc, Dwarf_Die *out, size_t n) {
    Dwarf_Die child;
    if (dwarf_child(of, &child)) return n;
    do {
        const int tag = dwarf_tag(&child), has = dwarf_haspc(&child, pc) > 0;
        if (!has) continue;
        if ((tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine) && n < MLR_INLINED)
            out[n++] = child;
        return inlined_at(&child, pc, out, n);
    } while (!dwarf_siblingof(&child, &child));
    return n;
}

/* Writes the functions that are inlined at an address, and after them the function that contains
   the address. Returns how many there are. */
static size_t functions_in(const unit *u, Dwarf_Die *cu, Dwarf_Addr pc, mlr_elf_function *out) {
    Dwarf_Line *row = dwarf_getsrc_die(cu, pc);
    const char *file = row ? dwarf_linesrc(row, NULL, NULL) : NULL;
    piece *function = piece_at(&u->functions, pc, is_earlier);
    Dwarf_Die scopes[MLR_INLINED];
    size_t n = 0, i = 0;
    int line = 0;
    if (row) (void)dwarf_lineno(row, &line);
    if (function) {
        scopes[i++] = function->of.die;
        i = inlined_at(&function->of.die, pc, scopes, i);
    }
    if (i == MLR_INLINED)
        i = 0; /* the list is full, so the innermost function, which has the line,
                  may be missing */
    while (i-- > 0) {
        const size_t number = die_number(&scopes[i], DW_AT_call_file);
        out[n++] = (mlr_elf_function){die_name(&scopes[i]), file, line > 0 ? (uint32_t)line : 0};
        if (dwarf_tag(&scopes[i]) == DW_TAG_subprogram) break;
        file = u->files ? dwarf_filesrc(u->files, number, NULL, NULL) : NULL;
        line = (int)die_number(&scopes[i], DW_AT_call_line);
    }
    if (!n && line > 0) out[n++] = (mlr_elf_function){NULL, file, (uint32_t)line};
    return n;
}

/* Returns the compilation unit that contains an address. Some compilers write no table of
   addresses. Then this function asks every unit. */
static Dwarf_Die *unit_at(const mlr_elf *elf, Dwarf_Addr address, Dwarf_Addr *bias) {
    Dwarf_Die *cu = dwfl_module_addrdie(elf->of, address, bias);
    if (cu) return cu;
    while ((cu = dwfl_module_nextcu(elf->of, cu, bias)) != NULL)
        if (dwarf_haspc(cu, address - *bias) > 0) break;
    return cu;
}

/* -- symbols -- */

static int binding_of(const GElf_Sym *s) {
    switch (GELF_ST_BIND(s->st_info)) {
    case STB_GLOBAL: return 3;
    case STB_WEAK: return 2;
    case STB_LOCAL: return 1;
    default: return 0;
    }
}

/* Reads the symbols that have a size. (dwfl_module_addrinfo is not used, because it looks at every
   symbol for every address.) */
static void read_symbols(mlr_elf *elf) {
    const int n = dwfl_module_getsymtab(elf->of);
    elf->has_symbols = 1;
    for (int i = 1; i < n; i++) {
        GElf_Sym s;
        GElf_Addr from;
        const char *name = dwfl_module_getsym_info(elf->of, i, &s, &from, NULL, NULL, NULL);
        const int type = GELF_ST_TYPE(s.st_info);
        piece *p;
        if (!name || !*name || !s.st_size || s.st_shndx == SHN_UNDEF || type == STT_SECTION ||
            type == STT_FILE || type == STT_TLS || from + s.st_size < from)
            continue;
        p = add_piece(&elf->symbols);
        p->from = from, p->to = from + s.st_size;
        p->of.symbol.name = name;
        p->of.symbol.binding = binding_of(&s);
    }
    sort_pieces(&elf->symbols);
}

/* Returns 1 if `a` is better than `than` as the name of an address that both symbols contain. A
   symbol that is not local is better than a local one. Else the symbol that begins later is better,
   and of two that begin together the one that ends earlier. */
static int is_better(const piece *a, const piece *than) {
    const int of = a->of.symbol.binding, other = than->of.symbol.binding;
    if ((of == 1) != (other == 1)) return of != 1;
    if (a->from != than->from) return a->from > than->from;
    if (a->to != than->to) return a->to < than->to;
    return of != other ? of > other : a->number < than->number;
}

size_t mlr_elf_functions(mlr_elf *elf, uint64_t address, mlr_elf_function out[MLR_INLINED]) {
    Dwarf_Addr bias = 0;
    Dwarf_Die *cu = elf->of ? unit_at(elf, address, &bias) : NULL;
    size_t n = cu ? functions_in(unit_of(elf, cu), cu, address - bias, out) : 0;
    const piece *symbol;
    if (!elf->of || (n && out[n - 1].name)) return n;
    if (!elf->has_symbols) read_symbols(elf);
    symbol = piece_at(&elf->symbols, address, is_better);
    if (!symbol) return n;
    out[0] =
        (mlr_elf_function){symbol->of.symbol.name, n ? out[0].file : NULL, n ? out[0].line : 0};
    return 1;
}
