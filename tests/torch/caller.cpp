/* Calls an allocator as PyTorch does: from C++, where it may throw. */
#include <cstdio>
#include <exception>
#include <new>

#include <sys/types.h>

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#endif
#include <cuda_runtime_api.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/* 0: no exception; 1: std::bad_alloc; 2: another. `text` is what it said. */
template <class F> static int thrown(char *text, size_t size, F call) {
    text[0] = 0;
    try {
        call();
        return 0;
    } catch (const std::bad_alloc &e) {
        std::snprintf(text, size, "%s", e.what());
        return 1;
    } catch (const std::exception &e) {
        std::snprintf(text, size, "%s", e.what());
        return 2;
    }
}

extern "C" int torch_alloc(void *(*fn)(ssize_t, int, cudaStream_t), ssize_t bytes, int device,
                           cudaStream_t stream, void **out, char *text, size_t size) {
    *out = nullptr;
    return thrown(text, size, [=] { *out = fn(bytes, device, stream); });
}

extern "C" int torch_fraction(void (*fn)(double, int), double fraction, int device, char *text,
                              size_t size) {
    return thrown(text, size, [=] { fn(fraction, device); });
}
