/* ---------------------------------------------------------------------- >>macros --
   These macros plant a site (a static record of a place in the source), pass a pointer, or end a
   tag or a scope with its block of code. */

/* Gives the key of a storage: its address, or its handle as an integer. A handle may be wider than
   an address. In C without GNU extensions such a handle is cut to the width of an address. */
#if defined(__cplusplus)
template <typename T> static inline uint64_t mli_key(T *address) {
    return reinterpret_cast<uintptr_t>(address);
}
template <typename T> static constexpr uint64_t mli_key(T handle) {
    return sizeof handle > sizeof(uintptr_t) ? uint64_t(handle) : uint64_t{uintptr_t(handle)};
}
#define MEMLORD_KEY(ptr) mli_key(ptr)
#elif defined(__GNUC__)
#define MEMLORD_KEY(ptr)                                                                      \
    ((uint64_t)__builtin_choose_expr(sizeof(1 ? (ptr) : (ptr)) > sizeof(uintptr_t), (ptr),    \
                                     (uintptr_t)(ptr)))
#else
#define MEMLORD_KEY(ptr) ((uint64_t)(uintptr_t)(ptr))
#endif

/* The function of a site. nvcc refuses __func__ where the function is a template's. */
#if defined(__CUDACC__) && defined(__GNUC__)
#define MLI_FUNCTION __builtin_FUNCTION()
#else
#define MLI_FUNCTION __func__
#endif

/* Gives the site of this line: the address of a static record. In C without statement expressions
   it is NULL, and the macros below are statements that plant the record themselves. With
   MEMLORD_DISABLE it is NULL, too. */
#if defined(MEMLORD_DISABLE)
#define MEMLORD_SITE() MLI_CAST(const memlord_site *, NULL)
#elif defined(__GNUC__)
#define MEMLORD_SITE()                                                                        \
    (__extension__({                                                                          \
        static const memlord_site mli_here = {__FILE__, MLI_FUNCTION, __LINE__};              \
        &mli_here;                                                                            \
    }))
#elif defined(__cplusplus)
#define MEMLORD_SITE()                                                                        \
    ([](const char *function) -> const memlord_site * {                                       \
        static const memlord_site here = {__FILE__, function, __LINE__};                      \
        return &here;                                                                         \
    }(__func__))
#else
#define MEMLORD_SITE() ((const memlord_site *)NULL)
#define MLI_PLANT(call)                                                                       \
    do {                                                                                      \
        static const memlord_site mli_here = {__FILE__, __func__, __LINE__};                  \
        (void)call;                                                                           \
    } while (0)
#endif

/* Gives the site of the caller, for a function that wraps an allocator. The macro passes the
   return address of that function to memlord_site_at. This site has no line. To have the file and
   line, make the wrapper a macro that passes MEMLORD_SITE(). The argument is a ledger; without an
   argument the ledger is memlord_global(). Mark the function noinline, because an inlined function
   has no return address of its own. The macro is for gcc and clang only. */
#if defined(__GNUC__)
#if defined(MEMLORD_DISABLE)
#define MLI_CALLER() NULL
#else
#define MLI_CALLER() __builtin_extract_return_addr(__builtin_return_address(0))
#endif
#if defined(__cplusplus)
MLI_INLINE memlord *mli_lord_or_global() { return memlord_global(); }
MLI_INLINE memlord *mli_lord_or_global(memlord *lord) { return lord; }
#define MEMLORD_SITE_OF_CALLER(...)                                                           \
    memlord_site_at(mli_lord_or_global(__VA_ARGS__), MLI_CALLER())
#else
#define MEMLORD_SITE_OF_CALLER(...)                                                           \
    memlord_site_at(sizeof(#__VA_ARGS__) > 1 ? ((memlord *const[2]){NULL, __VA_ARGS__})[1]    \
                                             : memlord_global(),                              \
                    MLI_CALLER())
#endif
#endif

#if defined(MLI_PLANT)
#define MLI_CALL(name, ...) MLI_PLANT(name(__VA_ARGS__, &mli_here))
#else
#define MLI_CALL(name, ...) name(__VA_ARGS__, MEMLORD_SITE())
#endif

/* These macros make the recording calls, with the storage as a pointer and with the site of the
   line. In GNU C and in C++ they are expressions of type memlord_result, otherwise statements. */
#define MEMLORD_ALLOC(lord, dev, ptr, bytes)                                                  \
    MLI_CALL(memlord_alloc, lord, dev, MEMLORD_KEY(ptr), bytes)
#define MEMLORD_FREE(lord, dev, ptr) MLI_CALL(memlord_free, lord, dev, MEMLORD_KEY(ptr))
#define MEMLORD_REALLOC(lord, dev, old_ptr, new_ptr, bytes)                                   \
    MLI_CALL(memlord_realloc, lord, dev, MEMLORD_KEY(old_ptr), MEMLORD_KEY(new_ptr),          \
             bytes)
#define MEMLORD_TRACK(lord, dev, ptr, bytes)                                                  \
    MLI_CALL(memlord_track, lord, dev, MEMLORD_KEY(ptr), bytes)
#define MEMLORD_RETAIN(lord, dev, ptr)                                                        \
    MLI_CALL(memlord_retain, lord, dev, MEMLORD_KEY(ptr))
#define MEMLORD_RELEASE(lord, dev, ptr)                                                       \
    MLI_CALL(memlord_release, lord, dev, MEMLORD_KEY(ptr))

/* Guards, which last from their line to the end of the block of code:

       MEMLORD_TAGGED(lord, "kv_cache");    tags what this thread allocates
       MEMLORD_SCOPED(lord, "decode");      is a scope

   They end with the block however it is left: by break, continue, return, goto or an exception.
   longjmp skips the end; then the end of the next outer guard also ends what was left open. The
   name of a scope is a string literal, because the record of the scope is static. The name of a tag
   may be a variable.
   Both are declarations. After `if (x)` or a case label give them a block of their own:

       case 1: { MEMLORD_TAGGED(lord, "a"); ... }

   Compilers refuse them after a bare `if`, and refuse a jump past such a declaration to a later
   label of its block. Some compilers accept them after the last label of a switch; there they end
   with the switch.
   They are for C++, and for C of gcc and clang. C of other compilers has only the loop forms:

       MEMLORD_TAG(lord, "kv_cache") { ... }
       MEMLORD_SCOPE(lord, "decode") { ... }

   These are loops of one round. A break or continue inside leaves only the block, never a loop of
   yours around it. In C of other compilers than gcc and clang, break, return and goto skip the
   end. */
#if defined(__COUNTER__)
#define MLI_UNIQUE(prefix) MLI_JOIN(prefix, __COUNTER__)
#else
#define MLI_UNIQUE(prefix) MLI_JOIN(prefix, __LINE__)
#endif
#if defined(__has_warning)
#if __has_warning("-Wc2y-extensions") /* this warning is about __COUNTER__ */
#define MLI_COUNTER_BEGIN                                                                     \
    _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wc2y-extensions\"")
#define MLI_COUNTER_END _Pragma("clang diagnostic pop")
#endif
#endif
#if !defined(MLI_COUNTER_END)
#define MLI_COUNTER_BEGIN
#define MLI_COUNTER_END
#endif

MLI_INLINE void mli_leave(memlord_guard *guard) {
    if (guard->lord) memlord_guard_end(guard);
}

#if defined(__cplusplus)
#define MLI_GUARD(name, begun) ::mlord::guard name(begun) /* class in >>cpp */
#define MLI_ROUND_END(name)
#elif defined(__GNUC__)
#define MLI_GUARD(name, begun) memlord_guard name __attribute__((cleanup(mli_leave))) = begun
#define MLI_ROUND_END(name)
#else
#define MLI_GUARD(name, begun) memlord_guard name = begun
#define MLI_ROUND_END(name) , mli_leave(&name)
#endif

/* Makes the compiler refuse a jump past a guard. In C, gcc lets a case label or a goto jump past a
   variable with a cleanup, and the cleanup then reads memory that is no guard. gcc does refuse a
   jump past a pointer to an array of variable size, so the macro declares one. C++ and clang refuse
   the jump past a guard by themselves. */
#if defined(__cplusplus) || defined(__clang__)
#define MLI_NO_JUMP(name)
#elif defined(__GNUC__)
#define MLI_NO_JUMP(name)                                                                     \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wvla\"")                \
    __attribute__((unused)) char(*name##_jump)[1 + !name.lord] = NULL;                        \
    _Pragma("GCC diagnostic pop")
#endif

#if defined(MEMLORD_DISABLE)
#define MLI_SCOPE_PLACE(text) NULL
#elif defined(__GNUC__)
#define MLI_SCOPE_PLACE(text)                                                                 \
    (__extension__({                                                                          \
        static const memlord_scope_site mli_here = {"" text,                                  \
                                                    {__FILE__, MLI_FUNCTION, __LINE__}};      \
        &mli_here;                                                                            \
    }))
#elif defined(__cplusplus)
#define MLI_SCOPE_PLACE(text)                                                                 \
    ([](const char *function) -> const memlord_scope_site * {                                 \
        static const memlord_scope_site here = {"" text, {__FILE__, function, __LINE__}};     \
        return &here;                                                                         \
    }(__func__))
#else
#define MLI_SCOPE_PLACE(text) NULL
#endif
#define MLI_SCOPE_GUARD(lord, text) memlord_guard_scope(lord, "" text, MLI_SCOPE_PLACE(text))

/* Begins a guard that ends with its block. The last statement names the guard, so that C++ refuses
   the macro after a bare `if`, too. */
#if defined(MLI_NO_JUMP)
#define MLI_TO_END(name, begun)                                                               \
    MLI_GUARD(name, begun);                                                                   \
    MLI_NO_JUMP(name) MLI_CAST(void, name)
#define MLI_TO_END_OF(name, begun) MLI_TO_END(name, begun)
#define MEMLORD_TAGGED(lord, tag)                                                             \
    MLI_COUNTER_BEGIN                                                                         \
    MLI_TO_END_OF(MLI_UNIQUE(mli_tagged_), memlord_guard_tag(lord, tag)) MLI_COUNTER_END
#define MEMLORD_SCOPED(lord, text)                                                            \
    MLI_COUNTER_BEGIN                                                                         \
    MLI_TO_END_OF(MLI_UNIQUE(mli_scoped_), MLI_SCOPE_GUARD(lord, text)) MLI_COUNTER_END
#endif

#define MLI_ROUND(name, begun)                                                                \
    for (MLI_GUARD(name, begun), *name##_round = &name; name##_round;                         \
         name##_round = NULL MLI_ROUND_END(name))
#define MLI_ROUND_OF(name, begun) MLI_ROUND(name, begun)
#define MEMLORD_TAG(lord, tag)                                                                \
    MLI_COUNTER_BEGIN                                                                         \
    MLI_ROUND_OF(MLI_UNIQUE(mli_tag_), memlord_guard_tag(lord, tag)) MLI_COUNTER_END
#define MEMLORD_SCOPE(lord, text)                                                             \
    MLI_COUNTER_BEGIN                                                                         \
    MLI_ROUND_OF(MLI_UNIQUE(mli_scope_), MLI_SCOPE_GUARD(lord, text)) MLI_COUNTER_END
