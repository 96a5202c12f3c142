/*
    objects.cpp - a C++ program that knows nothing of MemLord, under examples/new.cpp

    Linked beside it, new.cpp replaces operator new and delete in all their forms, and at_exit.c
    writes the report:

        cc -O2 -c -x c -DMEMLORD_IMPLEMENTATION memlord.h -o memlord.o
        cc -O2 -I. -c examples/embed/at_exit.c -o at_exit.o
        c++ -O2 -I. -rdynamic examples/embed/objects.cpp examples/new.cpp at_exit.o memlord.o \
            -o objects -pthread
        MEMLORD_REPORT=report.html ./objects
*/
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct alignas(128) vector_unit {
    float lanes[32];
};

static std::atomic<int> caught{0};

static void phase(int id) {
    std::map<int, std::string> names;
    std::vector<std::unique_ptr<vector_unit>> units;
    for (int i = 0; i < 500; i++) {
        names[i] = std::string(200, static_cast<char>('a' + (i + id) % 26));
        units.emplace_back(new vector_unit);
    }
    try {
        throw std::runtime_error(std::string(1000, 'e'));
    } catch (const std::runtime_error &e) {
        caught += std::string(e.what()).size() == 1000;
    }
    try {
        volatile size_t much = SIZE_MAX / 2;
        char *volatile p = new char[much]; /* volatile: or the compiler leaves the pair out */
        delete[] p;
    } catch (const std::bad_alloc &) {
        caught++;
    }
    delete[] new (std::nothrow) int[1000];
}

int main(int argc, char **) {
    std::thread threads[4];
    for (int i = 0; i < 4; i++) threads[i] = std::thread(phase, i);
    for (auto &t : threads) t.join();
    static std::vector<int> *kept = new std::vector<int>(250); /* 24 and 1000 bytes stay */
    return caught != 8 || kept->size() != 250 || argc > 1;
}
