#include "os/modules.h"
#include "os/system.h"

#if defined(__linux__)
/* Functions of dlfcn.h and link.h. These headers declare them only under _GNU_SOURCE, which a host
   that compiles as C99 does not define. The weak ones are not in every program. Before glibc 2.34
   dladdr is in libdl, which the program may not link. _dl_find_object came with glibc 2.35. */
typedef struct mli_dl_info {
    const char *file;
    void *base;
    const char *name;
    void *address;
} mli_dl_info;
typedef struct mli_dl_found {
    unsigned long long flags;
    void *start, *end;
    struct link_map *map;
    void *rest[14]; /* room for more than the system writes */
} mli_dl_found;
typedef struct mli_dl_phdrs {
    ElfW(Addr) bias;
    const char *name;
    const ElfW(Phdr) * at;
    ElfW(Half) count;
} mli_dl_phdrs;
#ifdef __cplusplus
extern "C" {
#endif
int mli_dladdr(const void *address, mli_dl_info *out) __asm__("dladdr") __attribute__((weak));
void *mli_dlsym(void *handle, const char *name) __asm__("dlsym") __attribute__((weak));
extern ElfW(Dyn) mli_dynamic[] __asm__("_DYNAMIC")
    __attribute__((weak, visibility("hidden"))); /* the dynamic section of MemLord's own module */
extern struct r_debug mli_loader __asm__("_r_debug") __attribute__((weak));
int mli_dl_find_object(void *address, mli_dl_found *out)
    __asm__("_dl_find_object") __attribute__((weak));
int mli_dl_each(int (*fn)(mli_dl_phdrs *module, size_t size, void *user), void *user)
    __asm__("dl_iterate_phdr");
#ifdef __cplusplus
}
#endif

MLI_PRIVATE MLI_COLD void *mli_symbol(const char *name) {
    return mli_dlsym ? mli_dlsym(NULL, name) : NULL;
}

/* Returns 1 if _dl_find_object can be called. In a static program the call crashes until libc is
   set up, and MemLord may record a malloc before that. So this function checks that the program
   is dynamic. The kernel gives a dynamic program the address of the loader, unless the loader was
   started by name (ld.so ./program). In that case the headers of the program name a loader. */
static int mli_dl_finds(void) {
    const ElfW(Phdr) *p, *end;
    if (!mli_dl_find_object) return 0;
    if (getauxval(AT_BASE)) return 1;
    p = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    end = p + getauxval(AT_PHNUM);
    while (p < end && p->p_type != PT_INTERP) p++;
    return p < end;
}
MLI_PRIVATE MLI_COLD const void *mli_module_of(const void *address) {
    mli_dl_found found;
    if (mli_dl_finds()) {
        if (mli_dl_find_object((void *)(uintptr_t)address, &found)) return NULL;
        return found.map->l_addr ? (const void *)(uintptr_t)found.map->l_addr : found.map;
    }
#if !defined(__GLIBC__)
    {
        mli_dl_info info; /* for musl, because glibc's dladdr waits for dlopen */
        if (mli_dladdr && mli_dladdr(address, &info)) return info.base;
    }
#endif
    return NULL;
}
MLI_PRIVATE int mli_loaded_at(const void *address, mli_loaded *out) {
    mli_dl_found found;
    if (!mli_dl_finds()) return -1;
    if (mli_dl_find_object((void *)(uintptr_t)address, &found)) return 0;
    out->start = found.start;
    out->name = found.map->l_name;
    out->bias = found.map->l_addr;
    return 1;
}

/* Describes a module by its ELF header, without the loader's lock. A thread may hold that lock in a
   callback of dl_iterate_phdr, and wait there for a lock that the host holds around malloc.
   Requires: the module is not closed meanwhile, because the calling thread is in its code. */
static mli_dl_phdrs mli_dl_module(const mli_loaded *l) {
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)l->start;
    mli_dl_phdrs m = {(ElfW(Addr))l->bias, l->name, (const ElfW(Phdr) *)l->start, 0};
    if (memcmp(head->e_ident, ELFMAG, SELFMAG)) return m;
    m.at = (const ElfW(Phdr) *)(const void *)((const char *)l->start + head->e_phoff);
    if (head->e_phoff + head->e_phnum * sizeof *m.at <= 4096) m.count = head->e_phnum;
    return m; /* without segments if they are not described in the first page */
}

/* Finds the build id in the notes of a module. Returns NULL if there is none. */
static MLI_COLD const void *mli_notes_id(const char *at, size_t size, size_t align,
                                         size_t *id_size) {
    ElfW(Nhdr) note;
    while (size >= sizeof note) {
        size_t name, rest;
        memcpy(&note, at, sizeof note);
        at += sizeof note;
        size -= sizeof note;
        name = (note.n_namesz + align - 1) & ~(align - 1);
        if (name < note.n_namesz || name > size || note.n_descsz > size - name) return NULL;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(at, "GNU", 4)) {
            *id_size = note.n_descsz < MLI_BUILD_ID_MAX ? note.n_descsz : MLI_BUILD_ID_MAX;
            return at + name;
        }
        rest = (note.n_descsz + align - 1) & ~(align - 1);
        if (rest > size - name) return NULL;
        at += name + rest;
        size -= name + rest;
    }
    return NULL;
}

typedef struct mli_image_search {
    const void *address;
    mli_image *image;
    int dynamic; /* 1: dlopen may have loaded the modules that follow in the loader's list */
    int modules; /* 1: the list has modules */
    int program; /* 1: the address is in the executable */
} mli_image_search;

/* Returns the loaded segment that contains `size` bytes from an address, or NULL if there is none.
   The address is as in the file, without the bias. */
static const ElfW(Phdr) * mli_segment_of(const mli_dl_phdrs *module, uint64_t at, uint64_t size) {
    const ElfW(Phdr) *p = module->at, *end = p + module->count;
    for (; p < end; p++)
        if (p->p_type == PT_LOAD && at >= p->p_vaddr && size <= p->p_memsz &&
            at - p->p_vaddr <= p->p_memsz - size)
            return p;
    return NULL;
}
static MLI_COLD void mli_image_fill(mli_image *image, const mli_dl_phdrs *module,
                                    const ElfW(Phdr) * segment) {
    const uint64_t page = 4096; /* the smallest page; offset and address agree modulo it */
    const ElfW(Phdr) *p = module->at, *end = p + module->count;
    image->loaded = image->path = module->name;
    while (p->p_type != PT_LOAD) p++;
    if (!image->start) image->start = (const void *)((uintptr_t)module->bias + p->p_vaddr);
    p = module->at;
    image->bias = module->bias;
    image->segment.start = segment->p_vaddr & ~(page - 1);
    image->segment.end = (uint64_t)segment->p_vaddr + segment->p_memsz;
    image->segment.offset = segment->p_offset & ~(page - 1);
    for (; p < end && !image->id; p++)
        if (p->p_type == PT_NOTE && mli_segment_of(module, p->p_vaddr, p->p_memsz))
            image->id = mli_notes_id((const char *)((uintptr_t)module->bias + p->p_vaddr),
                                     p->p_memsz, p->p_align == 8 ? 8 : 4, &image->id_size);
}
/* Looks for the address in the next module of the loader's list. It begins with the executable and
   its libraries, mostly the loader last. dlopen adds modules at the end, so those up to the loader
   are never unloaded. */
static MLI_COLD int mli_image_visit(mli_dl_phdrs *module, size_t size, void *user) {
    mli_image_search *search = (mli_image_search *)user;
    uint64_t at = (uintptr_t)search->address - (uintptr_t)module->bias;
    const ElfW(Phdr) *segment = mli_segment_of(module, at, 1);
    unsigned long loader = getauxval(AT_BASE);
    (void)size;
    search->modules |= module->count > 0;
    if (segment) {
        mli_image_fill(search->image, module, segment);
        search->image->stays |= !search->dynamic;
        search->program = (uintptr_t)module->at == (uintptr_t)getauxval(AT_PHDR);
        return 1;
    }
    if (!loader || module->bias == loader) search->dynamic = 1;
    return 0;
}
MLI_PRIVATE MLI_COLD void mli_image_at(const void *address, mli_image *out, char *executable) {
    mli_image_search search = {address, out, 0, 0, 0};
    mli_loaded loaded = {NULL, NULL, 0};
    const unsigned long loader = getauxval(AT_BASE);
    const struct link_map *m = NULL;
    mli_dl_found program;
    mli_dl_phdrs described;
    int saved = errno, in = mli_loaded_at(address, &loaded);
    ssize_t n;
    memset(out, 0, sizeof *out);
    out->stays = in < 0;
    out->start = loaded.start;
    out->loaded = out->path = loaded.name; /* nothing more is known of what dlmopen has loaded */
    out->bias = loaded.bias;
    if (in < 0) {
        in = mli_dl_each(mli_image_visit, &search);
    } else if (in) {
        described = mli_dl_module(&loaded);
        if (!mli_dl_find_object((void *)getauxval(AT_PHDR), &program)) m = program.map;
        for (; m && m->l_addr != loaded.bias && !search.dynamic; m = m->l_next)
            search.dynamic = !loader || m->l_addr == loader;
        search.dynamic |= !m;
        in = mli_image_visit(&described, sizeof described, &search);
    }
    /* In glibc's list the program has no name. In musl's list it has the name it was started by, or
       the name of a link to it. */
    if (in && (!out->path[0] || search.program)) {
        n = readlink("/proc/self/exe", executable, MLI_PATH_MAX - 1);
        executable[n > 0 ? n : 0] = 0;
        out->path = n > 0 ? executable : (const char *)getauxval(AT_EXECFN);
        if (!out->path) out->path = "";
    }
    if (!search.modules) out->stays = 0; /* libc of a static program has not filled the list */
    errno = saved;
}

/* The dynamic symbols of a module. */
typedef struct mli_dl_symbols {
    const ElfW(Sym) * at;
    const char *names;
    uint64_t count, names_size;
} mli_dl_symbols;

/* Returns the dynamic section of a module, or NULL if the module has none in memory. */
static const ElfW(Dyn) * mli_dynamic_of(const mli_dl_phdrs *module) {
    const ElfW(Phdr) *p = module->at, *end = p + module->count;
    while (p < end && p->p_type != PT_DYNAMIC) p++;
    if (p == end || !mli_segment_of(module, p->p_vaddr, p->p_memsz)) return NULL;
    return (const ElfW(Dyn) *)((uintptr_t)module->bias + p->p_vaddr);
}
/* Returns the value that a dynamic section has for a tag, or 0 if it has none. */
static uint64_t mli_dynamic_value(const ElfW(Dyn) * d, uint64_t tag) {
    for (; d->d_tag != DT_NULL; d++)
        if ((uint64_t)d->d_tag == tag) return d->d_un.d_val;
    return 0;
}
/* Returns a pointer to `size` bytes, or NULL if not all of them are in memory. `at` is their
   address as a dynamic section gives it. Some loaders add the bias to the addresses in that
   section, and some do not. Sets *end to the end of the segment that has the bytes. */
static const void *mli_dynamic_data(const mli_dl_phdrs *module, uint64_t at, uint64_t size,
                                    const char **end) {
    const ElfW(Phdr) *p = NULL;
    if (!at) return NULL;
    if (at >= module->bias) p = mli_segment_of(module, at - module->bias, size);
    if (p)
        at -= module->bias;
    else
        p = mli_segment_of(module, at, size);
    if (!p) return NULL;
    *end = (const char *)((uintptr_t)module->bias + p->p_vaddr) + p->p_memsz;
    return (const void *)((uintptr_t)module->bias + (uintptr_t)at);
}
/* Returns one more than the number of the last symbol in a DT_GNU_HASH table, or 0 if the table has
   no symbol or is damaged. That symbol is the last one of the table's last chain. */
static MLI_COLD uint64_t mli_gnu_hash_count(const uint32_t *table, const char *end) {
    const uint64_t words = (uint64_t)(end - (const char *)table) / sizeof *table;
    const uint64_t chains = 4 + (uint64_t)table[2] * (sizeof(ElfW(Addr)) / 4) + table[0];
    const uint32_t first = table[1];
    uint64_t at, last = 0;
    if (chains > words) return 0;
    for (at = chains - table[0]; at < chains; at++)
        if (table[at] > last) last = table[at];
    if (last < first) return 0;
    for (at = chains + (last - first); at < words && !(table[at] & 1);) at++;
    return at < words ? at - chains + first + 1 : 0;
}
/* Finds the symbols of a module. Returns 0 if it has none, or if they are damaged. */
static MLI_COLD int mli_symbols_of(const mli_dl_phdrs *module, mli_dl_symbols *out) {
    const ElfW(Dyn) *d = mli_dynamic_of(module);
    const uint32_t *table;
    const char *end;
    memset(out, 0, sizeof *out);
    if (!d) return 0;
    table = (const uint32_t *)mli_dynamic_data(module, mli_dynamic_value(d, DT_GNU_HASH), 16, &end);
    if (table) {
        out->count = mli_gnu_hash_count(table, end);
    } else {
        table = (const uint32_t *)mli_dynamic_data(module, mli_dynamic_value(d, DT_HASH), 8, &end);
        out->count = table ? table[1] : 0;
    }
    out->at = (const ElfW(Sym) *)mli_dynamic_data(module, mli_dynamic_value(d, DT_SYMTAB),
                                                  out->count * sizeof *out->at, &end);
    out->names_size = mli_dynamic_value(d, DT_STRSZ);
    out->names = (const char *)mli_dynamic_data(module, mli_dynamic_value(d, DT_STRTAB),
                                                out->names_size, &end);
    return out->count && out->at && out->names_size && out->names &&
           !out->names[out->names_size - 1];
}

/* Returns the index of the first query at or above an address, or n if there is none. */
static size_t mli_queries_from(const mli_symbol_query *q, size_t n, uintptr_t address) {
    size_t from = 0;
    while (n) {
        const size_t half = n / 2;
        if ((uintptr_t)q[from + half].address < address) {
            from += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return from;
}
/* The queries of a module, sorted by address. The range from the first address to the last is
   divided into equal parts. `parts` has a bit for each part that contains an address, so that most
   symbols are passed over without a search. */
#define MLI_QUERY_PARTS 4096u
typedef struct mli_symbol_search {
    mli_symbol_query *q;
    size_t n;
    uintptr_t first, last; /* the lowest and the highest address */
    unsigned shift;        /* log2 of the bytes of a part */
    unsigned char parts[MLI_QUERY_PARTS / 8];
} mli_symbol_search;
/* Begins a search for the addresses of one module. */
static MLI_COLD void mli_symbol_search_begin(mli_symbol_search *search, mli_symbol_query *q,
                                             size_t n) {
    size_t i;
    search->q = q;
    search->n = n;
    search->first = (uintptr_t)q[0].address;
    search->last = (uintptr_t)q[n - 1].address;
    search->shift = 0;
    while ((search->last - search->first) >> search->shift >= MLI_QUERY_PARTS) search->shift++;
    memset(search->parts, 0, sizeof search->parts);
    for (i = 0; i < n; i++) {
        const uintptr_t part = ((uintptr_t)q[i].address - search->first) >> search->shift;
        search->parts[part / 8] |= (unsigned char)(1u << part % 8);
    }
}
/* Returns 1 if the address of a query is from `start` to `end`, both included. May also return 1 if
   the address of a query is only near that range. Otherwise it returns 0. */
static int mli_symbol_search_hits(const mli_symbol_search *search, uintptr_t start,
                                  uintptr_t end) {
    uintptr_t part, most;
    if (start > search->last || end < search->first) return 0;
    part = start > search->first ? (start - search->first) >> search->shift : 0;
    most = ((end < search->last ? end : search->last) - search->first) >> search->shift;
    while (part < most && !(search->parts[part / 8] >> part % 8 & 1)) part++;
    return search->parts[part / 8] >> part % 8 & 1;
}
/* Stores `symbol` in each query whose address is in `symbol`. If several symbols contain an
   address, the query keeps the one with the highest start. */
static void mli_symbol_note(const mli_dl_symbols *symbols, const ElfW(Sym) * symbol, uintptr_t bias,
                            const mli_symbol_search *search) {
    const uintptr_t start = bias + symbol->st_value;
    mli_symbol_query *q = search->q;
    size_t i;
    if (!symbol->st_size || !mli_symbol_search_hits(search, start, start + symbol->st_size - 1) ||
        symbol->st_shndx == SHN_UNDEF || (symbol->st_info & 15) == STT_TLS ||
        symbol->st_name >= symbols->names_size)
        return;
    i = mli_queries_from(q, search->n, start);
    for (; i < search->n && (uintptr_t)q[i].address - start < symbol->st_size; i++) {
        if (q[i].name && q[i].value >= symbol->st_value) continue;
        q[i].name = symbols->names + symbol->st_name;
        q[i].value = symbol->st_value;
    }
}
/* The queries of all modules, sorted by address. */
typedef struct mli_symbol_queries {
    mli_symbol_query *q;
    size_t n;
} mli_symbol_queries;
/* Reads the symbols of a module, if some of the addresses are in the module. */
static MLI_COLD int mli_symbols_visit(mli_dl_phdrs *module, size_t size, void *user) {
    const mli_symbol_queries *all = (const mli_symbol_queries *)user;
    const ElfW(Phdr) *p = module->at, *last = p + module->count;
    uintptr_t low = UINTPTR_MAX, high = 0;
    mli_dl_symbols symbols;
    mli_symbol_search search;
    size_t from, end;
    uint64_t i;
    (void)size;
    for (; p < last; p++) {
        if (p->p_type != PT_LOAD) continue;
        if (p->p_vaddr < low) low = p->p_vaddr;
        if (p->p_vaddr + p->p_memsz > high) high = p->p_vaddr + p->p_memsz;
    }
    from = mli_queries_from(all->q, all->n, module->bias + low);
    end = mli_queries_from(all->q, all->n, module->bias + high);
    if (low >= high || from >= end || !mli_symbols_of(module, &symbols)) return 0;
    mli_symbol_search_begin(&search, all->q + from, end - from);
    for (i = 0; i < symbols.count; i++)
        mli_symbol_note(&symbols, &symbols.at[i], module->bias, &search);
    return 0;
}
MLI_PRIVATE MLI_COLD void mli_symbols_at(mli_symbol_query *q, size_t n) {
    mli_symbol_queries all = {q, n};
    (void)mli_dl_each(mli_symbols_visit, &all);
}
#elif defined(__APPLE__)
MLI_PRIVATE MLI_COLD const void *mli_module_of(const void *address) {
    Dl_info info;
    return dladdr(address, &info) ? info.dli_fbase : NULL;
}
MLI_PRIVATE int mli_loaded_at(const void *address, mli_loaded *out) {
    (void)address;
    (void)out;
    return -1;
}
MLI_PRIVATE MLI_COLD void mli_image_at(const void *address, mli_image *out, char *executable) {
    const struct mach_header *header;
    uint32_t size = MLI_PATH_MAX;
    Dl_info info;
    memset(out, 0, sizeof *out);
    out->stays = 1;
    if (!dladdr(address, &info) || !info.dli_fname) return;
    header = (const struct mach_header *)info.dli_fbase;
    out->loaded = out->path = info.dli_fname;
    out->start = info.dli_fbase;
    out->bias = (uint64_t)(uintptr_t)info.dli_fbase;
    if (header->filetype == MH_EXECUTE && !_NSGetExecutablePath(executable, &size))
        out->path = executable;
}
MLI_PRIVATE MLI_COLD void mli_symbols_at(mli_symbol_query *q, size_t n) {
    (void)q;
    (void)n;
}
#elif MLI_WINDOWS
MLI_PRIVATE MLI_COLD const void *mli_module_of(const void *address) {
    MEMORY_BASIC_INFORMATION info;
    if (!VirtualQuery(address, &info, sizeof info)) return NULL;
    return info.Type == MEM_IMAGE ? info.AllocationBase : NULL;
}
MLI_PRIVATE int mli_loaded_at(const void *address, mli_loaded *out) {
    (void)address;
    (void)out;
    return -1;
}
MLI_PRIVATE MLI_COLD void mli_image_at(const void *address, mli_image *out, char *executable) {
    wchar_t wide[MAX_PATH];
    DWORD n;
    memset(out, 0, sizeof *out);
    out->stays = 1;
    out->start = mli_module_of(address);
    if (!out->start) return;
    out->loaded = out->path = executable;
    out->bias = (uint64_t)(uintptr_t)out->start;
    n = GetModuleFileNameW((HMODULE)(uintptr_t)out->start, wide, MAX_PATH);
    if (n >= MAX_PATH) n = 0; /* the path is longer than `wide` */
    if (n)
        n = (DWORD)WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, executable, MLI_PATH_MAX - 1,
                                       NULL, NULL);
    executable[n] = 0;
}
MLI_PRIVATE MLI_COLD void mli_symbols_at(mli_symbol_query *q, size_t n) {
    (void)q;
    (void)n;
}
#else
MLI_PRIVATE MLI_COLD const void *mli_module_of(const void *address) {
    (void)address;
    return NULL;
}
MLI_PRIVATE int mli_loaded_at(const void *address, mli_loaded *out) {
    (void)address;
    (void)out;
    return -1;
}
MLI_PRIVATE MLI_COLD void mli_image_at(const void *address, mli_image *out, char *executable) {
    (void)address;
    (void)executable;
    memset(out, 0, sizeof *out);
    out->stays = 1;
}
MLI_PRIVATE MLI_COLD void mli_symbols_at(mli_symbol_query *q, size_t n) {
    (void)q;
    (void)n;
}
#endif

#if defined(__GLIBC__) && defined(__PIC__) && !defined(__PIE__)
MLI_PRIVATE MLI_COLD int mli_module_keep(void) {
    const ElfW(Dyn) *d = mli_dynamic;
    char executable[MLI_PATH_MAX];
    mli_image own;
    void *(*reopen)(const char *, int);
    int saved = errno, i;
    if (!d || !&mli_loader) return 1; /* the program is static */
    for (; d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_FLAGS_1 && (d->d_un.d_val & DF_1_NODELETE)) return 1;
    mli_image_at((const void *)(uintptr_t)mli_module_keep, &own, executable);
    if (own.stays || !own.loaded) return 1;
    /* Wait while the list of modules changes. */
    for (i = 0; ((const volatile struct r_debug *)&mli_loader)->r_state; i++) {
        if (i == 20) return 0; /* this thread itself seems to be in a dlopen */
        mli_nap(1000000);
    }
    /* Look dlopen up by name, because a program need not link it. Before glibc 2.34 it is in a
       library of its own. */
    reopen = (void *(*)(const char *, int))(uintptr_t)mli_symbol("dlopen");
    if (reopen) (void)reopen(own.loaded, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    errno = saved;
    return 1;
}
#elif MLI_WINDOWS
MLI_PRIVATE MLI_COLD int mli_module_keep(void) {
    const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS;
    HMODULE own;
    (void)GetModuleHandleExA(flags, (LPCSTR)(uintptr_t)mli_module_keep, &own);
    return 1;
}
#else
/* Does nothing. An executable is never unloaded, and musl unloads no library. On other systems a
   library with this code may be unloaded. */
MLI_PRIVATE MLI_COLD int mli_module_keep(void) { return 1; }
#endif
