/* A part of preload.c, a library that is loaded into a program to record its heap: the labels of
   reports, the redirection of calls from one module to another, and the functions that jemalloc has
   under names of its own. A module is the program or a shared library. */

/* ---------------------------------------------------------------- what reports must say -- */

static char notes[1024]; /* the labels of the reports */

/* Adds words to the labels that every report has. Cuts text that does not fit. */
static void add_note(const char *what, const char *which) {
    size_t n = strlen(notes);
    (void)snprintf(notes + n, sizeof notes - n, "%s%s%s", n ? "; " : "", what, which);
    (void)memlord_labels_set(lord, notes);
}

/* --------------------------------------------------------- calls of a module to others -- */

typedef void any_function(void);

/* A module calls a function of another module through a slot, a pointer that the loader sets. The
   module's relocations say which slots belong to which function. A rebinding puts the address `to`
   into the slots of the function `name`. */
typedef struct rebinding {
    const char *name;
    any_function *to;
} rebinding;

typedef struct rebindings {
    const void *module; /* the start of the only module to change; NULL means all modules */
    const rebinding *at;
    size_t count;
} rebindings;

typedef struct relocations {
    const unsigned char *at;
    size_t bytes;
} relocations;

typedef struct linkage { /* the tables by which a module finds the functions of other modules */
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *gnu_hash, *hash; /* the tables of the module's own symbols; NULL: none */
    relocations all, calls;
    size_t stride;
} linkage;

#if UINTPTR_MAX > 0xffffffffu
#define SYMBOL_OF(info) ELF64_R_SYM(info)
#else
#define SYMBOL_OF(info) ELF32_R_SYM(info)
#endif

/* Returns 1 if the loader has made the page read-only. */
static int is_sealed(const struct dl_phdr_info *module, uintptr_t page, size_t size) {
    int i;
    for (i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &module->dlpi_phdr[i];
        const uintptr_t from = module->dlpi_addr + p->p_vaddr, to = from + p->p_memsz;
        if (p->p_type == PT_GNU_RELRO && page >= from / size * size && page < to / size * size)
            return 1;
    }
    return 0;
}

static void set_slot(const struct dl_phdr_info *module, uintptr_t slot, any_function *to) {
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = (void *)(slot / size * size);
    const int sealed = is_sealed(module, (uintptr_t)page, size);
    if (slot % sizeof to || (sealed && mprotect(page, size, PROT_READ | PROT_WRITE))) return;
    __atomic_store_n((any_function **)slot, to, __ATOMIC_RELEASE); /* a release store, because
                                                                      another thread may call
                                                                      through the slot */
    if (sealed) (void)mprotect(page, size, PROT_READ);
}

static void rebind_table(const struct dl_phdr_info *module, const linkage *l,
                         const relocations *table, const rebindings *wanted) {
    size_t at, i;
    for (at = 0; at + l->stride <= table->bytes; at += l->stride) {
        const ElfW(Rel) *r = (const ElfW(Rel) *)(const void *)(table->at + at);
        const ElfW(Sym) *symbol = &l->symbols[SYMBOL_OF(r->r_info)];
        if (!SYMBOL_OF(r->r_info) || symbol->st_shndx != SHN_UNDEF) continue;
        for (i = 0; i < wanted->count; i++)
            if (!strcmp(l->strings + symbol->st_name, wanted->at[i].name))
                set_slot(module, module->dlpi_addr + r->r_offset, wanted->at[i].to);
    }
}

/* Returns the address that an entry of a module's dynamic section means. The file has an offset
   there. In most modules the loader has replaced the offset by an address, but not in all. */
static const void *loaded(uintptr_t bias, const ElfW(Dyn) *d) {
    const uintptr_t address = (uintptr_t)d->d_un.d_ptr;
    return (const void *)(address < bias ? bias + address : address);
}

static void read_linkage(uintptr_t bias, const ElfW(Dyn) *d, linkage *l) {
    memset(l, 0, sizeof *l);
    for (; d->d_tag != DT_NULL; d++) {
        const size_t value = (size_t)d->d_un.d_val;
        switch (d->d_tag) {
        case DT_SYMTAB: l->symbols = (const ElfW(Sym) *)loaded(bias, d); break;
        case DT_STRTAB: l->strings = (const char *)loaded(bias, d); break;
        case DT_GNU_HASH: l->gnu_hash = (const uint32_t *)loaded(bias, d); break;
        case DT_HASH: l->hash = (const uint32_t *)loaded(bias, d); break;
        case DT_JMPREL: l->calls.at = (const unsigned char *)loaded(bias, d); break;
        case DT_PLTRELSZ: l->calls.bytes = value; break;
        case DT_RELA: l->stride = sizeof(ElfW(Rela)); /* fall through */
        case DT_REL: l->all.at = (const unsigned char *)loaded(bias, d); break;
        case DT_RELASZ: /* fall through */
        case DT_RELSZ: l->all.bytes = value; break;
        case DT_PLTREL:
            l->stride = value == DT_RELA ? sizeof(ElfW(Rela)) : sizeof(ElfW(Rel));
            break;
        default: break;
        }
    }
    if (!l->stride) l->stride = sizeof(ElfW(Rel));
}

static int rebind_module(struct dl_phdr_info *module, size_t size, void *user) {
    const rebindings *wanted = (const rebindings *)user;
    linkage l;
    int i;
    (void)size;
    if (wanted->module && wanted->module != (const void *)module->dlpi_addr) return 0;
    for (i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &module->dlpi_phdr[i];
        if (p->p_type != PT_DYNAMIC) continue;
        read_linkage(module->dlpi_addr, (const ElfW(Dyn) *)(module->dlpi_addr + p->p_vaddr), &l);
        if (!l.symbols || !l.strings) continue;
        if (l.all.at) rebind_table(module, &l, &l.all, wanted);
        if (l.calls.at) rebind_table(module, &l, &l.calls, wanted);
    }
    return 0;
}

static void rebind(const void *module, const rebinding *at, size_t count) {
    rebindings wanted;
    wanted.module = module;
    wanted.at = at;
    wanted.count = count;
    (void)dl_iterate_phdr(rebind_module, &wanted);
}

/* ------------------------------------------------------------- jemalloc by its own names -- */

/* The real functions of jemalloc. The functions that replace them are not exported, because `if
   (mallocx)` must stay false in a program without jemalloc. Instead, the calls in the modules that
   are loaded at the start are rebound. */
static struct {
    void *(*mallocx)(size_t size, int flags);
    void *(*rallocx)(void *ptr, size_t size, int flags);
    size_t (*xallocx)(void *ptr, size_t size, size_t extra, int flags);
    void (*dallocx)(void *ptr, int flags);
    void (*sdallocx)(void *ptr, size_t size, int flags);
} jemalloc;

static void *counted_mallocx(size_t size, int flags) {
    if (inside) return jemalloc.mallocx(size, flags);
    inside = 1;
    return opened(jemalloc.mallocx(size, flags), size, CALLER());
}

static void *counted_rallocx(void *old, size_t size, int flags) {
    memlord_realloc_token token;
    void *fresh;
    if (inside) return jemalloc.rallocx(old, size, flags);
    inside = 1;
    (void)memlord_realloc_begin(lord, memlord_device_cpu(), MEMLORD_KEY(old), &token);
    fresh = jemalloc.rallocx(old, size, flags);
    (void)memlord_realloc_end(lord, &token, MEMLORD_KEY(fresh), size, site_of(CALLER()));
    if (!fresh) count_failed(size, CALLER());
    leave();
    return fresh;
}

/* Resizes a block in place. The result is the room that the block has now, which is less than
   `size` if the resize was refused. */
static size_t counted_xallocx(void *ptr, size_t size, size_t extra, int flags) {
    memlord_realloc_token token;
    size_t room;
    if (inside) return jemalloc.xallocx(ptr, size, extra, flags);
    inside = 1;
    (void)memlord_realloc_begin(lord, memlord_device_cpu(), MEMLORD_KEY(ptr), &token);
    room = jemalloc.xallocx(ptr, size, extra, flags);
    (void)memlord_realloc_end(lord, &token, room < size ? 0 : MEMLORD_KEY(ptr),
                              room < size + extra ? room : size + extra, site_of(CALLER()));
    leave();
    return room;
}

static void counted_dallocx(void *ptr, int flags) {
    const int outermost = !inside;
    inside = 1;
    if (outermost) close_block(ptr);
    jemalloc.dallocx(ptr, flags);
    if (outermost) leave();
}

static void counted_sdallocx(void *ptr, size_t size, int flags) {
    const int outermost = !inside;
    inside = 1;
    if (outermost) close_block(ptr);
    jemalloc.sdallocx(ptr, size, flags);
    if (outermost) leave();
}

static void find_jemalloc(void) {
    static const rebinding calls[] = {{"mallocx", (any_function *)counted_mallocx},
                                      {"rallocx", (any_function *)counted_rallocx},
                                      {"xallocx", (any_function *)counted_xallocx},
                                      {"dallocx", (any_function *)counted_dallocx},
                                      {"sdallocx", (any_function *)counted_sdallocx}};
    if (!dlsym(RTLD_DEFAULT, "mallocx")) return;
    find("mallocx", &jemalloc.mallocx);
    find("rallocx", &jemalloc.rallocx);
    find("xallocx", &jemalloc.xallocx);
    find("dallocx", &jemalloc.dallocx);
    find("sdallocx", &jemalloc.sdallocx);
    if (jemalloc.mallocx && jemalloc.rallocx && jemalloc.xallocx && jemalloc.dallocx &&
        jemalloc.sdallocx)
        rebind(NULL, calls, sizeof calls / sizeof calls[0]);
}
