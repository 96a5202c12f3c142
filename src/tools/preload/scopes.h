/* A part of preload.c, a library that is loaded into a program to record its heap: finds functions
   of libraries that dlopen has loaded, without a lock. A hook must call neither dlsym nor another
   function of the loader. They wait for a dlopen, which runs constructors, and these may wait for
   the thread in the hook. They also replace the error that the program's next dlerror returns. */

/* ------------------------------------------------------------------- scopes of modules -- */

/* The loader binds a call of a module to the first function of that name in the module's scope,
   which is a list of lists of modules. It is a private member of glibc's struct link_map. Its
   offset is found at the start, by its value in the map of this library. The first list of each
   scope has all modules that the program began with. */
typedef struct scope_list {
    const struct link_map *const *modules;
    unsigned count;
} scope_list;

#define MAP_BYTES 1152 /* how much of a struct link_map is searched; glibc 2.36 has it at 944 */
#define LISTS_MAX 16   /* how many lists of a scope are read */

static const struct link_map *own_map; /* NULL: scopes cannot be read, because the C library has no
                                          _dl_find_object (glibc before 2.35, musl) */
static size_t scope_offset;

static int is_in_map(const void *at, const struct link_map *map) {
    return (uintptr_t)at - (uintptr_t)map < MAP_BYTES && !((uintptr_t)at % sizeof at);
}

static int list_has(const scope_list *list, const struct link_map *map) {
    unsigned i = 0;
    while (i < list->count && list->modules[i] != map) i++;
    return i < list->count;
}

static const scope_list *const *scope_of(const struct link_map *map) {
    return __atomic_load_n((const scope_list *const *const *)((uintptr_t)map + scope_offset),
                           __ATOMIC_ACQUIRE);
}

/* Finds where a struct link_map has the scope: there is a pointer to a word in the map itself. This
   word points to a list in the map of the program. */
static void find_scopes(void) {
    const struct link_map *program = &mli_loader ? mli_loader.r_map : NULL;
    mli_dl_found own;
    if (!program || !mli_dl_finds() || mli_dl_find_object(boot, &own)) return;
    for (; scope_offset < MAP_BYTES; scope_offset += sizeof(void *)) {
        const scope_list *const *scope = scope_of(own.map);
        if (is_in_map(scope, own.map) && is_in_map(scope[0], program) &&
            scope[0]->modules && scope[0]->modules[0] == program && list_has(scope[0], own.map)) {
            own_map = own.map;
            break;
        }
    }
    if (!mli_dl_find_object((void *)(uintptr_t)mli_loader.r_ldbase, &own)) {
        loader.from = (uintptr_t)own.start;
        loader.bytes = (size_t)((char *)own.end - (char *)own.start);
    }
}

/* Returns the module that an address is in, or NULL if it is not known. */
static const struct link_map *map_at(const void *address) {
    mli_dl_found found;
    return own_map && !mli_dl_find_object((void *)(uintptr_t)address, &found) ? found.map : NULL;
}

static const void *symbol_at(const struct link_map *module, const linkage *l, uint32_t i,
                             const char *name) {
    const ElfW(Sym) *s = &l->symbols[i];
    if (s->st_shndx == SHN_UNDEF || !s->st_value || strcmp(l->strings + s->st_name, name))
        return NULL;
    return (const void *)(module->l_addr + s->st_value);
}

/* Returns the address of the function `name` of a module, or NULL if the module has none. Reads the
   table by which the loader itself finds functions: its hashes and, if it has none of GNU's, all
   symbols. */
static const void *symbol_in(const struct link_map *module, const linkage *l, const char *name) {
    const uint32_t *table = l->gnu_hash, *chain;
    const void *found = NULL;
    uint32_t hash = 5381, i;
    const char *c = name;
    if (!l->symbols || !l->strings) return NULL;
    for (i = 0; !table && l->hash && i < l->hash[1] && !found; i++)
        found = symbol_at(module, l, i, name);
    if (!table || !table[0]) return found;
    while (*c) hash = hash * 33 + (unsigned char)*c++;
    table += 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table);
    chain = table + l->gnu_hash[0];
    i = table[hash % l->gnu_hash[0]];
    if (i < l->gnu_hash[1]) return NULL;
    do {
        if ((chain[i - l->gnu_hash[1]] | 1) == (hash | 1)) found = symbol_at(module, l, i, name);
    } while (!found && !(chain[i++ - l->gnu_hash[1]] & 1));
    return found;
}

static const void *symbol_of(const struct link_map *module, const char *name) {
    linkage l;
    read_linkage(module->l_addr, module->l_ld, &l);
    return symbol_in(module, &l, name);
}

/* Looks for functions in the scope of a module, except in this library, and stores their addresses.
   The loader replaces the lists of a scope before it frees them, so the lists that are read are
   whole if the scope has not changed. Requires: the module cannot be unloaded meanwhile, because it
   is the caller. */
static void find_in_scope(const struct link_map *asker, const char *const *names, size_t count,
                          const void **out) {
    const scope_list *const *scope, *lists[LISTS_MAX];
    size_t left = count, n, i, k;
    do {
        scope = scope_of(asker);
        for (n = 0; n < LISTS_MAX && scope[n]; n++) lists[n] = scope[n];
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    } while (scope != scope_of(asker));
    memset(out, 0, count * sizeof *out);
    for (i = 0; i < n; i++) {
        unsigned m;
        for (m = 0; m < lists[i]->count && left; m++) {
            const struct link_map *module = lists[i]->modules[m];
            linkage l;
            if (module == own_map) continue;
            read_linkage(module->l_addr, module->l_ld, &l);
            for (k = 0; k < count; k++) {
                if (!out[k] && (out[k] = symbol_in(module, &l, names[k])) != NULL) left--;
            }
        }
    }
}
