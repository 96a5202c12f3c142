// A library that brings C++ to a program in C: run(kind) calls the first operator of the process.
// With WAITS in the environment its constructor waits for a thread that allocates, sets
// handlers, renames a file and asks for a report.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

struct alignas(64) wide {
    char text[64];
};
static volatile std::size_t some = 40, huge = PTRDIFF_MAX - 4096;

static void fail(bool *failed) {
    try {
        *failed = !::operator new(huge);
    } catch (const std::bad_alloc &) {
        *failed = true;
    }
}

extern "C" int run(int kind) {
    void *volatile p = kind > 5 ? std::aligned_alloc(64, 64) : nullptr;
    std::map<int, std::string> map;
    bool failed[2] = {};
    switch (kind) {
    case 0: p = new int(7); return *static_cast<int *>(p) == 7;
    case 1: p = new int[some]; break;
    case 2: p = ::operator new(some, std::nothrow); break;
    case 3: p = ::operator new[](some, std::nothrow); break;
    case 4: p = new wide; return reinterpret_cast<std::uintptr_t>(p) % 64 == 0;
    case 5: return std::vector<int>(some).size() == 40;
    case 6: ::operator delete(p); break;
    case 7: ::operator delete(p, some); break;
    case 8: ::operator delete[](p); break;
    case 9: ::operator delete(p, std::align_val_t(64)); break;
    case 10:
        std::thread(fail, failed).join();
        fail(failed + 1);
        return failed[0] && failed[1];
    default:
        for (int i = 0; i < 100; i++) map[i] = std::string(some, 'x') + "y";
        return map.size() == 100 && map[99].size() == 41;
    }
    return p != nullptr;
}

static void work() {
    int *volatile numbers = new int[some];
    struct sigaction now;
    delete[] numbers;
    std::signal(SIGUSR2, SIG_IGN);
    (void)sigaction(SIGUSR2, nullptr, &now);
    (void)std::rename("/nowhere/at", "/nowhere/all");
    std::raise(SIGUSR1);
}

static struct here {
    here() {
        if (std::getenv("WAITS")) std::thread(work).join();
    }
    ~here() { std::puts("closed"); }
} unloaded;
