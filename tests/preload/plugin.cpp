// A library that brings C++ to a program in C: its new fails, and it says so.
#include <cstddef>
#include <cstdint>
#include <new>

extern "C" int fail() {
    volatile std::size_t huge = PTRDIFF_MAX - 4096;
    try {
        return ::operator new(huge) == nullptr;
    } catch (const std::bad_alloc &) {
        return 0;
    }
}
