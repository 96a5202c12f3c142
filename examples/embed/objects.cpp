/*
    objects.cpp - a C++ program with the operators new and delete of ../new.cpp

    All that new and the standard containers allocate is recorded: of this file, of other files and
    of the C++ library. The program itself needs no call; this one has some to check the totals.

        cc -O2 -c -x c -DMEMLORD_IMPLEMENTATION memlord.h -o memlord.o
        cc -O2 -I. -c examples/embed/at_exit.c -o at_exit.o
        c++ -O2 -I. -c examples/new.cpp -o new.o
        c++ -O2 -I. examples/embed/objects.cpp new.o at_exit.o memlord.o \
            -o objects -pthread -rdynamic
        MEMLORD_APP_REPORT=report.html ./objects

    Not seen: what the C++ library gets from malloc, namely exceptions that are thrown, the reserve
    for those (72 KiB from before main), and the buffers of C's stdio. ../preload.c and wrap.c see
    them. At the end, after the last destructor, the report of at_exit.c has no live byte.
*/
#include "memlord.h"

#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

typedef std::map<std::string, std::vector<int>> index_of; /* the places of each word */

/* An allocator that tells how large the nodes of a map are, and takes no memory of its own. */
static std::size_t node_bytes;
template <typename T> struct measure {
    typedef T value_type;
    measure() {}
    template <typename U> measure(const measure<U> &) {}
    T *allocate(std::size_t n) {
        node_bytes = n * sizeof(T);
        return std::allocator<T>().allocate(n);
    }
    void deallocate(T *p, std::size_t n) { std::allocator<T>().deallocate(p, n); }
    friend bool operator==(const measure &, const measure &) { return true; }
    friend bool operator!=(const measure &, const measure &) { return false; }
};
static void measure_node() {
    std::map<std::string, std::vector<int>, std::less<std::string>,
             measure<index_of::value_type>> one;
    one[""];
}

static std::size_t bytes_of(const std::string &s) { /* a short one is in the object itself */
    const char *object = reinterpret_cast<const char *>(&s);
    return s.data() >= object && s.data() < object + sizeof s ? 0 : s.capacity() + 1;
}
/* What an index has on the heap, as its containers say. */
static std::size_t bytes_of(const index_of &index) {
    std::size_t sum = index.size() * node_bytes;
    for (const index_of::value_type &word : index)
        sum += bytes_of(word.first) + word.second.capacity() * sizeof(int);
    return sum;
}

static memlord_stats books() {
    memlord_stats s;
    (void)memlord_stats_get(memlord_global(), memlord_device_cpu(), &s);
    return s;
}
static bool wrong;
static void check(bool holds, const char *what) {
    if (!holds) std::fprintf(stderr, "objects: not so: %s\n", what), wrong = true;
}

/* Throws at every seventh word, from some calls deep. */
static void add(index_of &index, int i) {
    const std::string tail(std::size_t(i % 31), 'x');
    const std::string word = "word" + std::to_string(i % 97) + tail;
    if (i % 7 == 0) throw std::runtime_error("no word: " + word);
    index[word].push_back(i);
}
static void read_words(index_of &index, int from, int to) {
    for (int i = from; i < to; i++) try {
            add(index, i);
        } catch (const std::exception &) { /* left out */
        }
}

static index_of kept; /* is freed after main */

int main() {
    measure_node();
    const std::uint64_t before = books().allocated;
    read_words(kept, 0, 5000);
    check(books().allocated - before == bytes_of(kept), "the ledger has what the map holds");
    {
        std::vector<std::unique_ptr<index_of>> shards; /* filled by a thread each */
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++) {
            shards.emplace_back(new index_of);
            index_of *shard = shards.back().get();
            threads.emplace_back([shard, i] { read_words(*shard, i * 5000, (i + 1) * 5000); });
        }
        for (std::thread &thread : threads) thread.join();
        std::size_t sum = bytes_of(kept) + shards.capacity() * sizeof shards[0] +
                          threads.capacity() * sizeof threads[0];
        for (const std::unique_ptr<index_of> &shard : shards)
            sum += sizeof *shard + bytes_of(*shard);
        check(books().allocated - before == sum, "and what four threads have filled");
        for (std::unique_ptr<index_of> &shard : shards) /* each freed by another thread */
            std::thread([&shard] { shard.reset(); }).join();
    }
    check(books().allocated - before == bytes_of(kept), "and after the threads that freed it");
    check(books().unknown_frees == 0 && books().implicit_frees == 0, "no mistakes");
    check(memlord_verify(memlord_global()) == MEMLORD_OK, "the books agree with themselves");
    std::printf("%zu bytes in %zu words\n", bytes_of(kept), kept.size());
    return wrong;
}
