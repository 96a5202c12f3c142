/* A part of preload.c, a library that is loaded into a program to record its heap: takes stacks by
   libunwind, finds the functions that MEMLORD_SKIP leaves out of stacks, and notes which calls this
   library does not see. */

/* ----------------------------------------------------------------------------- libunwind -- */

/* To find out whether an address can be read, libunwind writes a byte from there into a pipe. A
   program may close all descriptors, and then open files of its own under the numbers of the pipe.
   So libunwind gets no pipe here. Instead, write_no_pipe calls rt_sigprocmask with an unknown
   operation, and passes the address as that of the signal mask. The system reads the mask before
   it refuses the operation. */
static int no_pipe(int ends[2], int flags) {
    (void)flags;
    ends[0] = ends[1] = -1;
    return 0;
}
static ssize_t read_no_pipe(int fd, void *data, size_t size) {
    return fd < 0 ? 1 : read(fd, data, size);
}
static ssize_t write_no_pipe(int fd, const void *data, size_t size) {
    const uintptr_t word = (uintptr_t)data & ~(uintptr_t)7;
    if (fd >= 0) return write(fd, data, size);
    (void)syscall(SYS_rt_sigprocmask, ~0, word, NULL, 8);
    return errno == EFAULT ? -1 : 1;
}
static long syscall_no_pipe(long number, long a, long b, long c, long d, long e, long f) {
    return number == SYS_write ? write_no_pipe((int)a, (const void *)b, (size_t)c)
                               : syscall(number, a, b, c, d, e, f);
}

/* libunwind has thread-local memory, which the loader would allocate by malloc during an unwind.
   The ledger would not have this block, but would see its free at the end of the thread. So
   libunwind gets the thread-local memory of this library. */
#define TLS_ROOM 64
static __thread unsigned char unwinder_tls[TLS_ROOM]
    __attribute__((aligned(16), tls_model("initial-exec")));
static void *own_tls(const size_t *module_and_offset) {
    return unwinder_tls + module_and_offset[1];
}
static int has_small_tls(struct dl_phdr_info *module, size_t size, void *start) {
    int i, fits = 0;
    (void)size;
    for (i = 0; (const void *)module->dlpi_addr == start && i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &module->dlpi_phdr[i];
        if (p->p_type == PT_TLS) fits = !p->p_filesz && p->p_memsz <= TLS_ROOM && p->p_align <= 16;
    }
    return fits;
}

/* Replaces dl_iterate_phdr, which takes the loader's lock. A thread may hold this lock, in a callback
   of dl_iterate_phdr, and wait for a lock that another thread holds around malloc. libunwind looks
   for the module of an address, which is the first word of `wanted`. That module has a frame of
   this stack, so it is not closed meanwhile. The counts of opened and closed modules are left out,
   because only a cache needs them. */
static int modules_found; /* 1: libunwind has been told of a module */
static int module_at(int (*fn)(struct dl_phdr_info *module, size_t size, void *user),
                     void *wanted) {
    struct dl_phdr_info info;
    mli_dl_phdrs module;
    mli_loaded loaded;
    const int in = mli_loaded_at(*(const void *const *)wanted, &loaded);
    if (in <= 0) return in ? dl_iterate_phdr(fn, wanted) : 0;
    module = mli_dl_module(&loaded);
    memset(&info, 0, sizeof info);
    info.dlpi_addr = module.bias;
    info.dlpi_name = module.name;
    info.dlpi_phdr = module.at;
    info.dlpi_phnum = module.count;
    __atomic_store_n(&modules_found, 1, __ATOMIC_RELAXED);
    return fn(&info, offsetof(struct dl_phdr_info, dlpi_adds), wanted);
}

#if defined(__x86_64__)
#define LIBUNWIND(name) "_ULx86_64_" name
#define LIBUNWIND_CONTEXT "_Ux86_64_getcontext"
#else
#define LIBUNWIND(name) "unw_" name /* on other processors libunwind exports few of these names, so
                                       it is not used there */
#define LIBUNWIND_CONTEXT "unw_getcontext"
#endif

/* The functions of libunwind. `backtrace` takes a whole stack at once. getcontext, init and step
   walk a stack frame by frame. That takes 20 times as long, but tells why the stack ends. */
#define CURSOR_BYTES 2048 /* libunwind 1.6 needs 1016 */
static struct {
    int (*backtrace)(void **frames, int cap);
    int (*getcontext)(ucontext_t *out);
    int (*init)(void *cursor, ucontext_t *context);
    int (*step)(void *cursor);
    int (*set_caching_policy)(void *space, int policy);
    void **space; /* the address space that set_caching_policy is for */
} libunwind;

static int find_libunwind(void *library) {
    libunwind.space = (void **)dlsym(library, LIBUNWIND("local_addr_space"));
    return libunwind.space && find_in(library, "unw_backtrace", &libunwind.backtrace) &&
           find_in(library, LIBUNWIND_CONTEXT, &libunwind.getcontext) &&
           find_in(library, LIBUNWIND("init_local"), &libunwind.init) &&
           find_in(library, LIBUNWIND("step"), &libunwind.step) &&
           find_in(library, LIBUNWIND("set_caching_policy"), &libunwind.set_caching_policy);
}

/* Makes libunwind use no descriptors and no malloc. Returns 0 if that is not possible. */
static int tame_libunwind(void *start) {
    static const rebinding calls[] = {{"pipe2", (any_function *)no_pipe},
                                      {"read", (any_function *)read_no_pipe},
                                      {"write", (any_function *)write_no_pipe},
                                      {"syscall", (any_function *)syscall_no_pipe},
                                      {"dl_iterate_phdr", (any_function *)module_at},
                                      {"__tls_get_addr", (any_function *)own_tls}};
    if (!dl_iterate_phdr(has_small_tls, start)) return 0;
    rebind(start, calls, sizeof calls / sizeof calls[0]);
    return 1;
}

/* Returns 1 if a module contains an address. */
static int module_has(struct dl_phdr_info *module, size_t size, void *address) {
    const uintptr_t at = (uintptr_t)address - module->dlpi_addr;
    int i, has = 0;
    (void)size;
    for (i = 0; i < module->dlpi_phnum && !has; i++) {
        const ElfW(Phdr) *p = &module->dlpi_phdr[i];
        has = p->p_type == PT_LOAD && at - p->p_vaddr < p->p_memsz;
    }
    return has;
}
static int is_in_module(void *address) {
    mli_loaded loaded;
    const int in = mli_loaded_at(address, &loaded);
    return in < 0 ? dl_iterate_phdr(module_has, address) : in;
}

/* Walks the stack of this thread. Returns 1 if the walk ends at the root, which is the function
   that the thread began with. Returns 0 if the walk ends earlier, or has more than `most` steps. */
static __attribute__((noinline)) int walk_to_root(size_t most) {
    uint64_t cursor[CURSOR_BYTES / sizeof(uint64_t)];
    ucontext_t context;
    int more = 1;
    if (libunwind.getcontext(&context) || libunwind.init(cursor, &context)) return 0;
    while (more > 0 && most--) more = libunwind.step(cursor);
    return more == 0;
}

/* Returns 1 if the stack of this thread ends at its root. `outermost` is the outermost return
   address of the stack. Returns 0 if this address is in code that was made at run time. Such code
   is never the root, but libunwind reports a root there if the code uses the frame pointer for
   another value. `known` keeps the answers, because few addresses are ever the outermost of a
   stack. A word of `known` is an address times 2, plus 1 if the stack ends at its root. */
#define ENDS_KNOWN 64
static int ends_at_root(void *outermost, size_t count) {
    static uintptr_t known[ENDS_KNOWN];
    const uintptr_t address = (uintptr_t)outermost << 1;
    uintptr_t *slot = &known[(address >> 1 ^ address >> 7) % ENDS_KNOWN];
    uintptr_t was = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if ((was & ~(uintptr_t)1) != address) {
        was = address | (uintptr_t)(is_in_module(outermost) &&
                                    walk_to_root(count + 8)); /* 8 more for this library's
                                                                 frames */
        __atomic_store_n(slot, was, __ATOMIC_RELAXED);
    }
    return (int)(was & 1);
}

static size_t unwind_by_libunwind(void **frames, size_t cap) {
    const int got = libunwind.backtrace(frames, (int)cap);
    size_t n = got > 0 ? (size_t)got : 0;
    if (n && n < cap && !ends_at_root(frames[n - 1], n)) frames[n++] = MEMLORD_FRAME_LOST;
    return n;
}

/* Takes the first stack by libunwind. If that succeeds, and libunwind has looked for modules by
   module_at, libunwind takes all later stacks, too. The first call of libunwind initializes it,
   which costs 70 page faults. The call is made here, so only a process that needs a stack pays for
   it. With NO_CACHE, threads share no cache, and libunwind holds no lock while it looks for a
   module. Otherwise two threads could wait for each other, because a thread that holds the loader's
   lock may allocate. */
static size_t first_unwind(void **frames, size_t cap) {
    enum { NO_CACHE = 0 };
    static int begun;
    size_t n;
    if (__atomic_exchange_n(&begun, 1, __ATOMIC_RELAXED)) /* another thread starts libunwind */
        return unwind_by_libgcc(frames, cap);
    n = libunwind.set_caching_policy(*libunwind.space, NO_CACHE) ? 0
                                                                : unwind_by_libunwind(frames, cap);
    if (n > 2 && (__atomic_load_n(&modules_found, __ATOMIC_RELAXED) || !mli_dl_finds())) {
        __atomic_store_n(&fast_unwind, unwind_by_libunwind, __ATOMIC_RELEASE); /* pairs with
                                                                                  the load in
                                                                                  unwind_or_lose */
        return n;
    }
    __atomic_store_n(&fast_unwind, NULL, __ATOMIC_RELAXED);
    return unwind_by_libgcc(frames, cap);
}

/* Opens libunwind before the program begins, because a call of malloc must not wait for the
   loader. */
static void open_libunwind(void) {
    void *library;
    Dl_info at;
    if (getauxval(AT_SECURE)) return;
    library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    if (library && find_libunwind(library) && dladdr(libunwind.space, &at) &&
        tame_libunwind(at.dli_fbase))
        __atomic_store_n(&fast_unwind, first_unwind, __ATOMIC_RELEASE); /* pairs with the load
                                                                           in unwind_or_lose */
    else if (number_of("MEMLORD_STACK_BYTES") || getenv("MEMLORD_SKIP"))
        add_note("stacks take 20 times as long without ", "libunwind.so.8");
}

/* --------------------------------------------------------------- functions left out -- */

static const char *skip_names; /* the value of MEMLORD_SKIP */
static uint64_t skips_found;   /* bit n % 64 is set if the name number n of skip_names was found */

/* Returns 1 if a symbol is the function `name`, or a part that the compiler split off from it, such
   as "name.cold". */
static int is_called(const char *symbol, const char *name, size_t length) {
    return length && !strncmp(symbol, name, length) &&
           (!symbol[length] || symbol[length] == '.');
}

static void skip_if_named(const char *symbol, uintptr_t from, size_t size) {
    const char *name = skip_names;
    unsigned number = 0;
    for (; name; number++) {
        const size_t length = strcspn(name, ",");
        if (is_called(symbol, name, length) && skip_count < MAX_SKIPS) {
            skips[skip_count].from = from;
            skips[skip_count++].to = from + size;
            skips_found |= (uint64_t)1 << number % 64;
        }
        name = name[length] ? name + length + 1 : NULL;
    }
}

/* An ELF file that is mapped into memory. The numbers in it are not trusted. */
typedef struct file_image {
    const unsigned char *at;
    size_t size;
} file_image;

static const void *part_of(const file_image *file, uint64_t offset, uint64_t size) {
    if (offset > file->size || size > file->size - offset || offset % sizeof(void *)) return NULL;
    return file->at + offset;
}

static void skip_symbols(const file_image *file, const ElfW(Shdr) *table,
                         const ElfW(Shdr) *text, uintptr_t base) {
    const ElfW(Sym) *symbol = (const ElfW(Sym) *)part_of(file, table->sh_offset, table->sh_size);
    size_t i, n = table->sh_size / sizeof *symbol;
    if (!symbol || text->sh_offset > file->size || !text->sh_size ||
        text->sh_size > file->size - text->sh_offset ||
        file->at[text->sh_offset + text->sh_size - 1])
        return;
    for (i = 0; i < n; i++, symbol++)
        if (ELF32_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF &&
            symbol->st_name < text->sh_size)
            skip_if_named((const char *)file->at + text->sh_offset + symbol->st_name,
                          base + symbol->st_value, symbol->st_size);
}

/* Returns the sections of a file, and how many there are. Returns NULL, and 0, if it has none. */
static const ElfW(Shdr) *sections_of(const file_image *file, size_t *count) {
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)part_of(file, 0, sizeof *head);
    const ElfW(Shdr) *sections = NULL;
    *count = 0;
    if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) || head->e_shentsize != sizeof *sections)
        return NULL;
    sections = (const ElfW(Shdr) *)part_of(file, head->e_shoff, sizeof *sections * head->e_shnum);
    if (sections) *count = head->e_shnum;
    return sections;
}

static void skip_in_file(const file_image *file, uintptr_t base) {
    size_t i, n;
    const ElfW(Shdr) *section = sections_of(file, &n);
    for (i = 0; i < n; i++)
        if ((section[i].sh_type == SHT_SYMTAB || section[i].sh_type == SHT_DYNSYM) &&
            section[i].sh_link < n)
            skip_symbols(file, &section[i], &section[section[i].sh_link], base);
}

/* Maps a file. Returns 1 if that succeeds, and then the caller unmaps the file. */
static int map_file(const char *path, file_image *file) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat s;
    void *map;
    if (fd < 0) return 0;
    file->size = fstat(fd, &s) || !S_ISREG(s.st_mode) ? 0 : (size_t)s.st_size;
    map = file->size ? mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    (void)close(fd);
    file->at = (const unsigned char *)map;
    return map != MAP_FAILED;
}

static int skip_in_module(struct dl_phdr_info *module, size_t size, void *user) {
    const int first = (*(int *)user)++ == 0; /* the first module is the program, and its name is
                                                empty */
    file_image file;
    (void)size;
    if (!map_file(first ? "/proc/self/exe" : module->dlpi_name, &file)) return 0;
    skip_in_file(&file, module->dlpi_addr);
    (void)munmap((void *)(uintptr_t)file.at, file.size);
    return 0;
}

/* Finds the functions that MEMLORD_SKIP names among the symbols of the modules (the program and its
   libraries) that are loaded at the start. */
static void read_skips(void) {
    const char *name = skip_names = getenv("MEMLORD_SKIP");
    int modules = 0;
    unsigned number = 0;
    if (!name) return;
    (void)dl_iterate_phdr(skip_in_module, &modules);
    for (; name; number++) {
        const size_t length = strcspn(name, ",");
        char text[128];
        (void)snprintf(text, sizeof text, "%.*s", (int)(length < 100 ? length : 100), name);
        if (length && !(skips_found >> number % 64 & 1))
            add_note("MEMLORD_SKIP names an unknown function: ", text);
        name = name[length] ? name + length + 1 : NULL;
    }
}

/* ------------------------------------------------------------------- what is not seen -- */

/* Returns the module whose malloc the program calls, or NULL if that malloc is ours. */
static const char *other_malloc(void) {
    Dl_info found, ours;
    void *symbol = NULL; /* the symbol of malloc that was found. If a program without -fPIE takes
                            the address of malloc, this symbol is an undefined one of the program.
                            Its address is that of code in the program that jumps to our malloc */
#if !defined(__GLIBC__) /* musl has no dladdr1 */
#define dladdr1(address, info, entry, flags) dladdr(address, info)
#endif
    if (!dladdr1(dlsym(RTLD_DEFAULT, "malloc"), &found, &symbol, RTLD_DL_SYMENT) ||
        !dladdr(notes, &ours) || found.dli_fbase == ours.dli_fbase ||
        (symbol && ((const ElfW(Sym) *)symbol)->st_shndx == SHN_UNDEF))
        return NULL;
    return found.dli_fname;
}

/* Says in the labels of the reports which calls do not come through this library. `other` is what
   other_malloc returns. */
static void name_unseen(const char *other) {
    static const char *const names[] = {"mi_malloc", "tc_malloc", "je_malloc", "_rjem_malloc"};
    size_t i;
    if (other) add_note("not seen: malloc of ", other);
    if (dlsym(RTLD_DEFAULT, "__asan_init")) add_note("not seen: malloc of ", "AddressSanitizer");
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        if (dlsym(RTLD_DEFAULT, names[i]))
            add_note("not seen: calls by name of functions like ", names[i]);
}
