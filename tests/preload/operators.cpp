// Every form of operator new and delete, on two threads; then a new that fails, and calls a new
// handler that frees a block. Prints the number of news. `bare`: without what fails, for allocators
// that end the program then.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

struct alignas(64) wide {
    char text[64];
};
static const std::align_val_t wide_align = std::align_val_t(64);
static const int rounds = 1000, kinds = 10;
static void *reserve;

static void give_back() {
    ::operator delete(reserve);
    std::set_new_handler(nullptr);
}

static void work() {
    for (int i = 0; i < rounds; i++) {
        const std::size_t n = 1 + i % 300;
        void *volatile v[kinds] = {
            ::operator new(n), ::operator new[](n), ::operator new(n, std::nothrow),
            ::operator new[](n, std::nothrow), ::operator new(n, wide_align),
            ::operator new[](n, wide_align), ::operator new(n, wide_align, std::nothrow),
            ::operator new[](n, wide_align, std::nothrow), new wide, new wide[2]};
        ::operator delete(v[0]);
        ::operator delete[](v[1], n);
        ::operator delete(v[2], std::nothrow);
        ::operator delete[](v[3], std::nothrow);
        ::operator delete(v[4], wide_align);
        ::operator delete[](v[5], n, wide_align);
        ::operator delete(v[6], wide_align, std::nothrow);
        ::operator delete[](v[7], wide_align, std::nothrow);
        delete static_cast<wide *>(v[8]);
        delete[] static_cast<wide *>(v[9]);
        ::operator delete(nullptr);
    }
}

static int fail() {
    volatile std::size_t huge = PTRDIFF_MAX - 4096;
    int failed = 0;
    reserve = ::operator new(1000);
    std::set_new_handler(give_back);
    try {
        void *volatile ptr = ::operator new(huge);
        std::printf("%p\n", ptr);
    } catch (const std::bad_alloc &) {
        failed++;
    }
    return failed + (::operator new(huge, std::nothrow) == nullptr);
}

int main(int argc, char **argv) {
    const bool bare = argc > 1 && !std::strcmp(argv[1], "bare");
    std::thread one(work), other(work);
    one.join();
    other.join();
    if (!bare && fail() != 2) return 1;
    void *volatile last = std::malloc(4321); // at a place of its own: not that of the failed new
    std::printf("%d\n", 2 * rounds * kinds);
    return last ? 0 : 1;
}
