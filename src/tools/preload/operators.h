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
    X(new_one, "_Znw" SIZE_LETTER, (size_t size), (size))                                     \
    X(new_array, "_Zna" SIZE_LETTER, (size_t size), (size))                                   \
    X(new_one_nothrow, "_Znw" SIZE_LETTER "RKSt9nothrow_t", (size_t size, const void *tag),   \
      (size, tag))                                                                            \
    X(new_array_nothrow, "_Zna" SIZE_LETTER "RKSt9nothrow_t", (size_t size, const void *tag), \
      (size, tag))                                                                            \
    X(new_one_aligned, "_Znw" SIZE_LETTER "St11align_val_t", (size_t size, size_t align),     \
      (size, align))                                                                          \
    X(new_array_aligned, "_Zna" SIZE_LETTER "St11align_val_t", (size_t size, size_t align),   \
      (size, align))                                                                          \
    X(new_one_aligned_nothrow, "_Znw" SIZE_LETTER "St11align_val_tRKSt9nothrow_t",            \
      (size_t size, size_t align, const void *tag), (size, align, tag))                       \
    X(new_array_aligned_nothrow, "_Zna" SIZE_LETTER "St11align_val_tRKSt9nothrow_t",          \
      (size_t size, size_t align, const void *tag), (size, align, tag))

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

#define DECLARE(fn, name, params, args) static void *real_##fn;
NEWS(DECLARE)
DELETES(DECLARE)

/* If an exception passes through a hook of operator new, end_new must be called. For this the
   compiled hook needs the functions __gcc_personality_v0 and _Unwind_Resume. Both must belong to
   the unwinder that threw the exception, not to the unwinder that is linked into this library. So
   clean_up_frame and resume_throwing replace these two functions, and call those of the unwinder
   that threw the exception. */
typedef int personality(int version, int actions, uint64_t kind, void *exception, void *context);
static personality *thrower_personality;
static void (*thrower_resume)(void *exception);

static void find_thrower(void *library) {
    void *found = dlsym(library, "_Unwind_Resume");
    memcpy(&thrower_resume, &found, sizeof found);
    found = dlsym(library, "__gcc_personality_v0");
    memcpy(&thrower_personality, &found, sizeof found);
}

static __attribute__((used)) personality clean_up_frame __asm__("__gcc_personality_v0");
static int clean_up_frame(int version, int actions, uint64_t kind, void *exception,
                          void *context) {
    enum { CONTINUE = 8 };
    return thrower_personality && thrower_resume
               ? thrower_personality(version, actions, kind, exception, context)
               : CONTINUE;
}

static __attribute__((used)) void resume_throwing(void *exception) __asm__("_Unwind_Resume");
static void resume_throwing(void *exception) { thrower_resume(exception); }

/* Returns the real operator with this name, and sets *known to it. RTLD_NEXT does not find it if
   dlopen has loaded the C++ library, together with a module that needs that library. Then this
   function looks for the operator in the caller's module and in the libraries that this module
   needs. The module stays open, because *known keeps the address. */
static void *find_operator(void **known, const char *name, void *caller) {
    const int was_inside = inside;
    void *found, *module;
    Dl_info at;
    inside = 1;
    found = dlsym(RTLD_NEXT, name);
    if (!found && caller && dladdr(caller, &at) && at.dli_fname) {
        module = dlopen(at.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        found = module ? dlsym(module, name) : NULL;
        if (found && !thrower_resume) find_thrower(module);
        forget_errors();
    }
    __atomic_store_n(known, found, __ATOMIC_RELAXED); /* relaxed, because readers only call the
                                                         function */
    inside = was_inside;
    return found;
}

/* Finds the operators of a program that is linked with a C++ library. Does so at the start, because
   a later caller of an operator may hold a lock that dlsym needs. */
static void find_operators(void) {
    if (!find_operator(&real_new_one, "_Znw" SIZE_LETTER, NULL)) return;
#define FIND(fn, name, params, args) (void)find_operator(&real_##fn, name, NULL);
    NEWS(FIND)
    DELETES(FIND)
#undef FIND
    find_thrower(RTLD_NEXT);
}

/* Sets the local `actual` to the real operator. */
#define GET_ACTUAL(fn, name)                                                                  \
    void *found = __atomic_load_n(&real_##fn, __ATOMIC_RELAXED);                              \
    if (!found) found = find_operator(&real_##fn, name, CALLER());                            \
    memcpy(&actual, &found, sizeof actual)

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

#define DEFINE_NEW(fn, name, params, args)                                                    \
    EXPORT void *fn params __asm__(name);                                                     \
    EXPORT void *fn params {                                                                  \
        const int outermost __attribute__((cleanup(end_new))) = !inside && !origin.caller;    \
        void *(*actual)params;                                                                \
        void *ptr;                                                                            \
        GET_ACTUAL(fn, name);                                                                 \
        if (outermost) origin.caller = CALLER();                                              \
        ptr = actual ? actual args : malloc(size);                                            \
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
        GET_ACTUAL(fn, name);                                                                 \
        inside = 1;                                                                           \
        if (outermost) close_block(ptr);                                                      \
        if (actual) actual args;                                                              \
        else free(ptr);                                                                       \
        if (outermost) leave();                                                               \
    }
DELETES(DEFINE_DELETE)
