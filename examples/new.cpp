/* Records what operator new and delete hand out, in memlord_global(). Linked into a program, this
   file replaces all their forms: plain, array, nothrow, sized, aligned. The memory is malloc's. A
   block's site is the code that called new. C++11 and later:

       c++ -c examples/new.cpp && c++ app.o new.o memlord.o -pthread

   memlord.o is the file with MEMLORD_IMPLEMENTATION. Link with -rdynamic, or name the places of a
   saved profile with build/symbolize. What a library allocates with new is recorded, too, unless it
   was linked with -Bsymbolic. What it gets from malloc is not: see src/tools/preload.c.
   Requires: nothing else records these blocks in that ledger, such as mlord::allocator. */
#include "memlord.h"

#include <cstdlib>
#include <new>

#if !defined(_WIN32)
#define ALIGNED(p, alignment, size) (posix_memalign(&(p), alignment, size) ? (p = NULL) : p)
#define ALIGNED_FREE(p) std::free(p)
#else
#include <malloc.h>
#define ALIGNED(p, alignment, size) (p = _aligned_malloc(size, alignment))
#define ALIGNED_FREE(p) _aligned_free(p)
#endif
#if defined(__GNUC__)
#define SITE() MEMLORD_SITE_OF_CALLER()
#else
#define SITE() NULL
#endif
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
#define TRY try
#define CATCH catch (...)
#define OUT_OF_MEMORY() throw std::bad_alloc()
#else
#define TRY
#define CATCH while (false)
#define OUT_OF_MEMORY() std::abort()
#endif

namespace {

/* Returns NULL when there is no memory, and no handler to make some. Alignment 0: malloc's. */
void *take(std::size_t size, std::size_t alignment, const memlord_site *site) {
    if (!size) size = 1; /* each object has an address of its own */
    for (;;) {
        void *p = NULL;
        if (alignment)
            ALIGNED(p, alignment, size);
        else
            p = std::malloc(size);
        if (p) {
            memlord_alloc(memlord_global(), memlord_device_cpu(), MEMLORD_KEY(p), size, site);
            return p;
        }
        const std::new_handler handler = std::get_new_handler();
        if (!handler) return NULL;
        handler();
    }
}

void *take_or_throw(std::size_t size, std::size_t alignment, const memlord_site *site) {
    void *p = take(size, alignment, site);
    if (!p) OUT_OF_MEMORY();
    return p;
}

void *take_or_null(std::size_t size, std::size_t alignment, const memlord_site *site) noexcept {
    TRY {
        return take(size, alignment, site);
    }
    CATCH { /* the handler's */
    }
    return NULL;
}

void record_end(void *p, const memlord_site *site) noexcept {
    memlord_free(memlord_global(), memlord_device_cpu(), MEMLORD_KEY(p), site);
}

} // namespace

/* Both forms of each: of one object and of an array. */
#define NEW(parameters, value)                                                                     \
    void *operator new parameters { return value; }                                                \
    void *operator new[] parameters { return value; }
#define DELETE(parameters, release)                                                                \
    void operator delete parameters noexcept { record_end(p, SITE()), release; }                   \
    void operator delete[] parameters noexcept { record_end(p, SITE()), release; }

NEW((std::size_t size), take_or_throw(size, 0, SITE()))
NEW((std::size_t size, const std::nothrow_t &) noexcept, take_or_null(size, 0, SITE()))
DELETE((void *p), std::free(p))
DELETE((void *p, const std::nothrow_t &), std::free(p))
#if __cplusplus >= 201402L || (defined(_MSVC_LANG) && _MSVC_LANG >= 201402L)
DELETE((void *p, std::size_t), std::free(p))
#endif

#if defined(__cpp_aligned_new)
static std::size_t number(std::align_val_t alignment) { /* at least what posix_memalign takes */
    const std::size_t n = static_cast<std::size_t>(alignment);
    return n < sizeof(void *) ? sizeof(void *) : n;
}
NEW((std::size_t size, std::align_val_t a), take_or_throw(size, number(a), SITE()))
NEW((std::size_t size, std::align_val_t a, const std::nothrow_t &) noexcept,
    take_or_null(size, number(a), SITE()))
DELETE((void *p, std::align_val_t), ALIGNED_FREE(p))
DELETE((void *p, std::align_val_t, const std::nothrow_t &), ALIGNED_FREE(p))
DELETE((void *p, std::size_t, std::align_val_t), ALIGNED_FREE(p))
#endif
