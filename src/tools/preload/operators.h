/* A part of preload.c, a library that is loaded into a program to record its heap: the hooks,
   which are the functions that replace operator new and delete. */

/* -------------------------------------------------------------- operator new and delete -- */

/* Without these hooks all blocks of C++ would have one site, which is in operator new. A hook notes
   the place of the call, and calls the real operator, which is that of the C++ library or of an
   allocator. If there is no memory, the real operator calls the new handler, or throws an exception
   through the hook. The operator of libstdc++ calls malloc, which records the block. The operator
   of an allocator does not call malloc, so the hook records the block. In a mangled name, a letter
   stands for the type size_t. */
#if SIZE_MAX == ULONG_MAX
#define SIZE_LETTER "m"
#else
#define SIZE_LETTER "j"
#endif

#define NEWS(X)                                                                               \
    X(new_one, "_Znw" SIZE_LETTER, (size_t size), (size), 0)                                  \
    X(new_array, "_Zna" SIZE_LETTER, (size_t size), (size), 0)                                \
    X(new_one_nothrow, "_Znw" SIZE_LETTER "RKSt9nothrow_t", (size_t size, const void *tag),   \
      (size, tag), 0)                                                                         \
    X(new_array_nothrow, "_Zna" SIZE_LETTER "RKSt9nothrow_t", (size_t size, const void *tag), \
      (size, tag), 0)                                                                         \
    X(new_one_aligned, "_Znw" SIZE_LETTER "St11align_val_t", (size_t size, size_t align),     \
      (size, align), align)                                                                   \
    X(new_array_aligned, "_Zna" SIZE_LETTER "St11align_val_t", (size_t size, size_t align),   \
      (size, align), align)                                                                   \
    X(new_one_aligned_nothrow, "_Znw" SIZE_LETTER "St11align_val_tRKSt9nothrow_t",            \
      (size_t size, size_t align, const void *tag), (size, align, tag), align)                \
    X(new_array_aligned_nothrow, "_Zna" SIZE_LETTER "St11align_val_tRKSt9nothrow_t",          \
      (size_t size, size_t align, const void *tag), (size, align, tag), align)

#define DELETES(X)                                                                            \
    X(delete_one, "_ZdlPv", (void *ptr), (ptr))                                               \
    X(delete_array, "_ZdaPv", (void *ptr), (ptr))                                             \
    X(delete_one_sized, "_ZdlPv" SIZE_LETTER, (void *ptr, size_t size), (ptr, size))          \
    X(delete_array_sized, "_ZdaPv" SIZE_LETTER, (void *ptr, size_t size), (ptr, size))        \
    X(delete_one_nothrow, "_ZdlPvRKSt9nothrow_t", (void *ptr, const void *tag), (ptr, tag))   \
    X(delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", (void *ptr, const void *tag), (ptr, tag)) \
    X(delete_one_aligned, "_ZdlPvSt11align_val_t", (void *ptr, size_t align), (ptr, align))   \
    X(delete_array_aligned, "_ZdaPvSt11align_val_t", (void *ptr, size_t align), (ptr, align)) \
    X(delete_one_sized_aligned, "_ZdlPv" SIZE_LETTER "St11align_val_t",                       \
      (void *ptr, size_t size, size_t align), (ptr, size, align))                             \
    X(delete_array_sized_aligned, "_ZdaPv" SIZE_LETTER "St11align_val_t",                     \
      (void *ptr, size_t size, size_t align), (ptr, size, align))                             \
    X(delete_one_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t",                      \
      (void *ptr, size_t align, const void *tag), (ptr, align, tag))                          \
    X(delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t",                    \
      (void *ptr, size_t align, const void *tag), (ptr, align, tag))

#define DECLARE(fn, name, params, args, align) static void *real_##fn;
NEWS(DECLARE)
#undef DECLARE
#define DECLARE(fn, name, params, args) static void *real_##fn;
DELETES(DECLARE)

/* If an exception passes through a hook of operator new, end_new must be called. For this the
   compiled hook needs the functions __gcc_personality_v0 and _Unwind_Resume. Both must belong to
   the unwinder that threw the exception, not to the unwinder that is linked into this library. So
   clean_up_frame and resume_throwing replace these two functions, and call those of the unwinder
   that threw the exception. It is the caller of clean_up_frame. */
typedef int personality(int version, int actions, uint64_t kind, void *exception, void *context);
typedef struct thrower {
    personality *clean_up;
    void (*resume)(void *exception);
} thrower;
static thrower first_thrower; /* that of the modules that the program began with */
static __thread thrower throws __attribute__((tls_model("initial-exec")));

static void find_thrower(void *library, thrower *out) {
    (void)find_in(library, "_Unwind_Resume", &out->resume);
    (void)find_in(library, "__gcc_personality_v0", &out->clean_up);
}

static void find_late_thrower(const void *unwinder, thrower *out) {
    static const char *const names[] = {"_Unwind_Resume", "__gcc_personality_v0"};
    const struct link_map *module = map_at(unwinder);
    const void *found = module ? symbol_of(module, names[0]) : NULL;
    if (found) memcpy(&out->resume, &found, sizeof found);
    found = module ? symbol_of(module, names[1]) : NULL;
    if (found) memcpy(&out->clean_up, &found, sizeof found);
}

static __attribute__((used)) personality clean_up_frame __asm__("__gcc_personality_v0");
static int clean_up_frame(int version, int actions, uint64_t kind, void *exception,
                          void *context) {
    enum { CLEANUP = 2, CONTINUE = 8 };
    throws = first_thrower;
    if (!throws.resume) find_late_thrower(CALLER(), &throws);
    if (throws.clean_up && throws.resume)
        return throws.clean_up(version, actions, kind, exception, context);
    if (actions & CLEANUP) origin.caller = origin.counted = NULL;
    return CONTINUE;
}

static __attribute__((used)) void resume_throwing(void *exception) __asm__("_Unwind_Resume");
static void resume_throwing(void *exception) { throws.resume(exception); }

/* Finds the operators of a program that is linked with a C++ library. An operator that is called
   before is looked up like one of a late library. Requires: the caller is no hook, because a program
   without these has an error to forget, and dlerror waits for a bindtextdomain that calls malloc. */
static void find_operators(void) {
    if (!find_in(RTLD_NEXT, "_Znw" SIZE_LETTER, &real_new_one)) {
        forget_errors();
        return;
    }
#define FIND(fn, name, params, args) find(name, &real_##fn);
#define FIND_NEW(fn, name, params, args, align) FIND(fn, name, params, args)
    NEWS(FIND_NEW)
    DELETES(FIND)
    find_thrower(RTLD_NEXT, &first_thrower);
    forget_errors();
}

/* -- operators of libraries that dlopen loads -- */

/* A program in C may load libraries in C++. Each of them calls the operators of its own scope. All
   operators of a scope are looked up at once, at the first call by a module of that scope. */
#define NAME(fn, name, params, args) name,
#define NAME_NEW(fn, name, params, args, align) name,
#define INDEX(fn, name, params, args) INDEX_##fn,
#define INDEX_NEW(fn, name, params, args, align) INDEX_##fn,
enum { NEWS(INDEX_NEW) DELETES(INDEX) INDEX_DEMANGLE, LATE_NAMES };
static const char *const late_names[LATE_NAMES] = {NEWS(NAME_NEW) DELETES(NAME) "__cxa_demangle"};

/* The functions that a module calls. They hold as long as `loads` has not changed, because then no
   module is at its address that was not there before. `turn` is odd while a thread writes. */
typedef struct late_module {
    unsigned turn;
    const struct link_map *module;
    unsigned long loads;
    const void *function[LATE_NAMES];
} late_module;
static late_module late_modules[64];

static const void *late_demangle; /* the last __cxa_demangle that was found */

/* Returns the function with this index, or NULL if `slot` does not have it. */
static const void *read_late(const late_module *slot, const struct link_map *module,
                             unsigned long loads, int index) {
    const unsigned turn = __atomic_load_n(&slot->turn, __ATOMIC_ACQUIRE); /* pairs with the store in
                                                                             write_late */
    const int is_it = __atomic_load_n(&slot->module, __ATOMIC_RELAXED) == module &&
                      __atomic_load_n(&slot->loads, __ATOMIC_RELAXED) == loads;
    const void *found = __atomic_load_n(&slot->function[index], __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* pairs with the fence in write_late */
    return is_it && !(turn & 1) && __atomic_load_n(&slot->turn, __ATOMIC_RELAXED) == turn ? found
                                                                                          : NULL;
}

static void write_late(late_module *slot, const struct link_map *module, unsigned long loads,
                       const void *const *functions) {
    unsigned turn = __atomic_load_n(&slot->turn, __ATOMIC_RELAXED);
    int i;
    if ((turn & 1) || !__atomic_compare_exchange_n(&slot->turn, &turn, turn + 1, 0,
                                                   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return; /* another thread writes */
    __atomic_thread_fence(__ATOMIC_RELEASE); /* pairs with the fence in read_late */
    __atomic_store_n(&slot->module, module, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->loads, loads, __ATOMIC_RELAXED);
    for (i = 0; i < LATE_NAMES; i++)
        __atomic_store_n(&slot->function[i], functions[i], __ATOMIC_RELAXED);
    __atomic_store_n(&slot->turn, turn + 2, __ATOMIC_RELEASE); /* pairs with the load in
                                                                  read_late */
}

/* Returns the function with this index that the module of a caller calls. A function that was found
   earlier counts only if its module is still loaded. If the loader does not allocate by calloc of
   this library, `loads` stays 0, and nothing is kept. */
static const void *late_function(const struct link_map *module, const void *caller, int index) {
    const unsigned long loads = __atomic_load_n(&loader.loads, __ATOMIC_RELAXED);
    late_module *slot = &late_modules[((uintptr_t)module >> 4) * 0x9e3779b1u >> 16 & 63];
    const void *functions[LATE_NAMES];
    const void *found = loads ? read_late(slot, module, loads, index) : NULL;
    if (found && map_at(found)) return found;
    if (map_at(caller) != module) return NULL; /* code made at run time, where a module was */
    find_in_scope(module, late_names, LATE_NAMES, functions);
    write_late(slot, module, loads, functions);
    if (functions[INDEX_DEMANGLE])
        __atomic_store_n(&late_demangle, functions[INDEX_DEMANGLE], __ATOMIC_RELAXED);
    return functions[index];
}

/* Returns the module of a caller. Keeps the last one, because the next call mostly has the same. */
static const struct link_map *module_of_caller(const void *caller) {
    static __thread struct {
        uintptr_t from;
        size_t bytes;
        unsigned long loads; /* 0: none is kept */
        const struct link_map *module;
    } last __attribute__((tls_model("initial-exec")));
    const unsigned long loads = __atomic_load_n(&loader.loads, __ATOMIC_RELAXED);
    mli_dl_found found;
    if (last.loads && last.loads == loads && (uintptr_t)caller - last.from < last.bytes)
        return last.module;
    if (!own_map || mli_dl_find_object((void *)(uintptr_t)caller, &found)) return NULL;
    if (found.map == own_map) return own_map;
    last.from = (uintptr_t)found.start;
    last.bytes = (size_t)((char *)found.end - (char *)found.start);
    last.loads = loads;
    return last.module = found.map;
}

/* Returns the operator that a call by `caller` means, or NULL if it is not known. An operator may
   jump to another one (that of libstdc++ for arrays jumps to the one for single objects). Then the
   return address is in the hook of the first, and the second call is by the module that has the
   first. */
static __attribute__((noinline)) void *late_operator(void *const *known, int index,
                                                     const void *caller) {
    static __thread const void *jumper __attribute__((tls_model("initial-exec")));
    const struct link_map *module;
    void *found;
    if (!started()) return NULL;
    found = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (found) return found;
    module = module_of_caller(caller);
    if (module && module == own_map) module = map_at(caller = jumper);
    if (!module || module == own_map) return NULL;
    jumper = late_function(module, caller, index);
    return (void *)(uintptr_t)jumper;
}

/* Finds an operator new by dlsym, where scopes cannot be read, and malloc has failed. The operator
   calls the program's new handler, or throws. */
static void *operator_by_loader(const char *name, void *caller) {
    const int was_inside = inside;
    void *module = NULL, *found = NULL;
    Dl_info at, own;
    if (own_map) return NULL;
    inside = LENT;
    if (dladdr(caller, &at) && dladdr(boot, &own) && at.dli_fbase != own.dli_fbase)
        module = dlopen(at.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (module) {
        found = dlsym(module, name);
        if (!first_thrower.resume) find_thrower(module, &first_thrower);
        (void)dlclose(module); /* the caller keeps it loaded */
    }
    forget_errors();
    inside = was_inside;
    return found;
}

/* Sets the local `actual` to the real operator. */
#define GET_ACTUAL(fn)                                                                        \
    void *found = __atomic_load_n(&real_##fn, __ATOMIC_RELAXED);                              \
    if (!found) found = late_operator(&real_##fn, INDEX_##fn, CALLER());                      \
    memcpy(&actual, &found, sizeof actual)

/* Stands for an operator new that is not known. */
static void *plain_new(size_t size, size_t align) {
    return align ? memalign(align, size) : malloc(size);
}

static void end_new(const int *outermost) {
    if (*outermost) origin.caller = origin.counted = NULL;
}

/* Records the block of an operator new, unless a malloc that the operator called has recorded
   it. */
static void count_new(void *ptr, size_t size) {
    if (ptr == origin.counted) return;
    inside = 1;
    (void)opened(ptr, size, origin.caller);
}

#define DEFINE_NEW(fn, name, params, args, boundary)                                          \
    EXPORT void *fn params __asm__(name);                                                     \
    EXPORT void *fn params {                                                                  \
        const int outermost __attribute__((cleanup(end_new))) = !inside && !origin.caller;    \
        void *(*actual)params;                                                                \
        void *ptr;                                                                            \
        GET_ACTUAL(fn);                                                                       \
        if (outermost) origin.caller = CALLER();                                              \
        ptr = actual ? actual args : plain_new(size, boundary);                               \
        if (!ptr && !actual) found = operator_by_loader(name, CALLER());                      \
        if (!ptr && !actual && found) {                                                       \
            memcpy(&actual, &found, sizeof actual);                                           \
            ptr = actual args;                                                                \
        }                                                                                     \
        if (outermost) count_new(ptr, size);                                                  \
        return ptr;                                                                           \
    }
NEWS(DEFINE_NEW)

/* Defines the hook of an operator delete. The hook itself records the free, whether or not the real
   operator calls free. */
#define DEFINE_DELETE(fn, name, params, args)                                                 \
    EXPORT void fn params __asm__(name);                                                      \
    EXPORT void fn params {                                                                   \
        const int outermost = !inside;                                                        \
        void (*actual)params;                                                                 \
        GET_ACTUAL(fn);                                                                       \
        if (outermost) {                                                                      \
            inside = 1;                                                                       \
            close_block(ptr);                                                                 \
            origin.deleted = ptr;                                                             \
            inside = LENT;                                                                    \
        }                                                                                     \
        if (actual) actual args;                                                              \
        else free(ptr);                                                                       \
        if (outermost) leave();                                                               \
    }
DELETES(DEFINE_DELETE)
