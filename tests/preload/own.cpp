// A library that is closed at once, and has operators of its own, which put a head before a block.
#include <cstdio>
#include <cstdlib>

static volatile int news;
void *operator new(std::size_t n) {
    news = news + 1;
    return static_cast<long *>(std::malloc(n + 16)) + 2;
}
void operator delete(void *p) noexcept { std::free(static_cast<long *>(p) - 2); }
void operator delete(void *p, std::size_t) noexcept { ::operator delete(p); }

extern "C" int run(int) {
    int *volatile p = new int(1);
    delete p;
    return news == 1;
}
static struct here {
    ~here() { std::puts("closed"); }
} unloaded;
