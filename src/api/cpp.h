/* ------------------------------------------------------------------------- >>cpp --
   Types for C++11 and later. They need neither exceptions nor RTTI. Their namespace is mlord,
   as memlord is the type of a ledger. With a NULL ledger MemLord is switched off here, too. */

#if defined(__cplusplus)
#include <cstddef>     /* std::max_align_t */
#include <new>         /* operator new, std::align_val_t */
#include <type_traits> /* std::true_type */

/* The namespace inside mlord that contains the types. Files of one program may be compiled with
   different macros, such as MEMLORD_DISABLE. So each of the cases below has a namespace, and types,
   of its own. */
#if defined(MEMLORD_DISABLE)
#define MLI_WAY inline namespace mli_off
#elif defined(MEMLORD_STATIC)
#define MLI_WAY namespace
#elif defined(MEMLORD_PREFIX)
#define MLI_WAY inline namespace MEMLORD_PREFIX
#else
#define MLI_WAY inline namespace mli_on
#endif

namespace mlord {
MLI_WAY {

/* -- guards: they end with their block of code, however it is left --
   Give a guard a name, because an object without a name ends at once. A guard ends only in the
   context that it began in: see memlord_guard_end. */

class guard {
public:
    explicit guard(const memlord_guard &begun) noexcept : begun_(begun) {}
    ~guard() { mli_leave(&begun_); }
    guard(const guard &) = delete;
    guard &operator=(const guard &) = delete;

private:
    memlord_guard begun_;
};

/* Tags what this thread allocates, as MEMLORD_TAGGED does: `mlord::tag kv(lord, "kv_cache");`. */
class tag : public guard {
public:
    tag(memlord *lord, const char *name) noexcept : guard(memlord_guard_tag(lord, name)) {}
};

/* Begins a scope, which ends at the end of the block of code. The name may be a variable, unlike
   that of MEMLORD_SCOPED. MEMLORD_SCOPED also records the place of the scope. */
class scope : public guard {
public:
    scope(memlord *lord, const char *name) noexcept
        : guard(memlord_guard_scope(lord, name, NULL)) {}
};

/* Calls a function under a tag and returns its result. It is for expressions, such as the
   initialiser of a member: `cache(mlord::tagged(lord, "kv_cache", [&] { return make_cache(n);
   }))`. */
template <typename F> auto tagged(memlord *lord, const char *name, F &&call) -> decltype(call()) {
    tag begun(lord, name);
    return call();
}

/* -- contexts: fibres, coroutines and jobs that move between threads --
   A memlord_context whose destructor drops it. Keep one in a coroutine's promise, and resume the
   coroutine inside it: `job.context.run([&] { job.handle.resume(); });`. It can be moved while no
   thread is in it, and cannot be copied. Once the ledger of a context is destroyed, the calls of
   the context do nothing. */
class context {
public:
    explicit context(memlord *lord = NULL) noexcept
        : generation_(memlord_generation(lord)), words_() {}
    context(context &&other) noexcept : context() { swap_with(other); }
    context &operator=(context &&other) noexcept {
        context taken(static_cast<context &&>(other));
        swap_with(taken); /* the end of `taken` drops what this context had */
        return *this;
    }
    context(const context &) = delete;
    context &operator=(const context &) = delete;
    ~context() { (void)drop(); }

    memlord_result swap() noexcept {
        return memlord_context_swap(memlord_find(generation_), &words_);
    }
    memlord_result drop() noexcept {
        return memlord_context_drop(memlord_find(generation_), &words_);
    }
    /* Calls a function in this context, and returns its result. */
    template <typename F> auto run(F &&call) -> decltype(call()) {
        struct inside {
            context &in;
            explicit inside(context &c) noexcept : in(c) { (void)in.swap(); }
            ~inside() { (void)in.swap(); }
        } left_at_the_end(*this);
        return call();
    }

private:
    void swap_with(context &other) noexcept {
        const uint64_t generation = generation_;
        const memlord_context words = words_;
        generation_ = other.generation_;
        words_ = other.words_;
        other.generation_ = generation;
        other.words_ = words;
    }
    uint64_t generation_;
    memlord_context words_;
};

/* -- sites of callers --
   The place of a call, as a default argument. The site is then the call of the wrapper and not the
   wrapper itself, also where the compiler inlines the wrapper.

       void *my_alloc(size_t size, mlord::here from = mlord::here()) {
           void *p = malloc(size);
           memlord_alloc(lord, memlord_device_cpu(), MEMLORD_KEY(p), size, from.site(lord));
           return p;
       }

   A std::source_location of C++20 converts to it. If the compiler has no __builtin_LINE, the site
   is NULL. A function whose parameters you cannot change can have its caller as the site:
   MEMLORD_SITE_OF_CALLER(lord), or memlord_site_at(lord, __builtin_return_address(0)). */
class here {
public:
#if (defined(__GNUC__) && !defined(__clang__)) || (defined(_MSC_VER) && _MSC_VER >= 1926) || \
    (defined(__clang__) && __clang_major__ >= 9)
    constexpr here(const char *file = __builtin_FILE(), const char *function = __builtin_FUNCTION(),
                   int line = __builtin_LINE()) noexcept
#else
    constexpr here(const char *file = NULL, const char *function = NULL, int line = 0) noexcept
#endif
        : file_(file), function_(function), line_(line) {
    }
    template <typename L, typename = decltype(static_cast<const L *>(NULL)->function_name())>
    constexpr here(const L &location) noexcept
        : file_(location.file_name()), function_(location.function_name()),
          line_(static_cast<int>(location.line())) {}
    /* Cost:   the same as memlord_site_of. */
    const memlord_site *site(memlord *lord) const noexcept {
        return file_ ? memlord_site_of(lord, file_, function_, line_) : NULL;
    }

private:
    const char *file_, *function_;
    int line_;
};

/* -- handles --
   A handle is one reference to a storage, and the end of the last reference ends the storage. It
   can be moved, and cannot be copied. In a class declare a handle after the memory that it records,
   so that the handle ends before the memory does. Once the ledger of a handle is destroyed, the
   handle does nothing. */
class handle {
public:
    handle() noexcept : generation_(0), storage_(0), device_(memlord_device_cpu()) {}
    /* Calls memlord_alloc to record a storage that was just created. */
    handle(memlord *lord, memlord_device device, uint64_t storage, uint64_t bytes,
           here from = here()) noexcept
        : handle(memlord_alloc(lord, device, storage, bytes, from.site(lord)), lord, device,
                 storage) {}
    /* Calls memlord_track to record a new storage, or one more reference to a live storage. */
    static handle view(memlord *lord, memlord_device device, uint64_t storage, uint64_t bytes,
                       here from = here()) noexcept {
        return handle(memlord_track(lord, device, storage, bytes, from.site(lord)), lord, device,
                      storage);
    }
    handle(handle &&other) noexcept : handle() { swap(other); }
    handle &operator=(handle &&other) noexcept {
        handle taken(static_cast<handle &&>(other));
        swap(taken); /* the end of `taken` then ends the reference that *this had */
        return *this;
    }
    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;
    ~handle() { (void)reset(); }

    /* Records the end of this reference now, by memlord_release. The handle is empty afterwards.
       Errors: as memlord_release; E_STATE if the ledger was destroyed. */
    memlord_result reset(const memlord_site *site = NULL) noexcept {
        memlord *lord = memlord_find(generation_);
        memlord_result r = generation_ ? MEMLORD_E_STATE : MEMLORD_OK;
        if (lord) r = memlord_release(lord, device_, storage_, site);
        (void)detach();
        return r;
    }
    /* Empties the handle, but does not end the reference; the caller has to record its end.
       Returns the storage. */
    uint64_t detach() noexcept {
        const uint64_t storage = storage_;
        generation_ = storage_ = 0;
        return storage;
    }
    void swap(handle &other) noexcept {
        const uint64_t generation = generation_, storage = storage_;
        const memlord_device device = device_;
        generation_ = other.generation_;
        storage_ = other.storage_;
        device_ = other.device_;
        other.generation_ = generation;
        other.storage_ = storage;
        other.device_ = device;
    }
    uint64_t storage() const noexcept { return storage_; }
    /* Returns true if the handle has an end to record. A handle has no end to record if it is
       empty, if its ledger is NULL, or if the ledger refused the reference. After E_NOMEM it has an
       end to record. */
    explicit operator bool() const noexcept { return generation_ != 0; }

private:
    /* Makes a handle. `r` is the result of the call that recorded the storage. After E_NOMEM the
       handle is not empty, because the ledger has counted a dropped storage, and expects the
       end of that storage. */
    handle(memlord_result r, memlord *lord, memlord_device device, uint64_t storage) noexcept
        : generation_(r && r != MEMLORD_E_NOMEM ? 0 : memlord_generation(lord)), storage_(storage),
          device_(device) {}
    uint64_t generation_, storage_;
    memlord_device device_;
};

/* -- the allocator of a container --
   An allocator takes memory from operator new, as std::allocator does, and records the memory on
   the cpu. All memory of an allocator and its copies has one site: the place where the first of
   them was made. Requires: the ledger outlives the allocator and its copies, and operator new does
   not record in the same ledger. */
template <typename T> class allocator {
public:
    typedef T value_type;
    typedef std::true_type propagate_on_container_move_assignment;
    typedef std::true_type propagate_on_container_swap;

    explicit allocator(memlord *lord = memlord_global(), here from = here()) noexcept
        : lord_(lord), site_(from.site(lord)) {}
    template <typename U>
    allocator(const allocator<U> &other) noexcept : lord_(other.lord_), site_(other.site_) {}

    T *allocate(std::size_t n) {
        const std::size_t bytes = bytes_of(n);
#if defined(__cpp_aligned_new)
        void *p = alignof(T) > __STDCPP_DEFAULT_NEW_ALIGNMENT__
                      ? ::operator new(bytes, std::align_val_t(alignof(T)))
                      : ::operator new(bytes);
#else
        static_assert(alignof(T) <= alignof(std::max_align_t), "this alignment needs C++17");
        void *p = ::operator new(bytes);
#endif
        (void)memlord_alloc(lord_, memlord_device_cpu(), MEMLORD_KEY(p), bytes, site_);
        return static_cast<T *>(p);
    }
    void deallocate(T *p, std::size_t) noexcept {
        (void)memlord_free(lord_, memlord_device_cpu(), MEMLORD_KEY(p), site_);
#if defined(__cpp_aligned_new)
        if (alignof(T) > __STDCPP_DEFAULT_NEW_ALIGNMENT__)
            return ::operator delete(p, std::align_val_t(alignof(T)));
#endif
        ::operator delete(p);
    }
    memlord *ledger() const noexcept { return lord_; }

private:
    template <typename U> friend class allocator;
    /* Returns the bytes of n objects. If that is more than memory can hold, it returns the largest
       size, and operator new fails in its own way. volatile prevents a warning about that size. */
    static std::size_t bytes_of(std::size_t n) noexcept {
        if (n <= static_cast<std::size_t>(-1) / 2 / sizeof(T)) return n * sizeof(T);
        volatile std::size_t most = static_cast<std::size_t>(-1) / alignof(T) * alignof(T);
        return most;
    }
    memlord *lord_;
    const memlord_site *site_;
};
template <typename T, typename U>
bool operator==(const allocator<T> &a, const allocator<U> &b) noexcept {
    return a.ledger() == b.ledger();
}
template <typename T, typename U>
bool operator!=(const allocator<T> &a, const allocator<U> &b) noexcept {
    return !(a == b);
}

} // MLI_WAY
} // namespace mlord
} /* extern "C++" */
#endif /* __cplusplus */

#if defined(MEMLORD_DISABLE) && defined(__GNUC__)
#pragma GCC diagnostic pop
#elif defined(MEMLORD_DISABLE) && defined(_MSC_VER)
#pragma warning(pop)
#endif
