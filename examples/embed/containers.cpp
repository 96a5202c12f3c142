/*
    containers.cpp - std::pmr containers on the books, by tag and by the code that asked

    mlord::resource records what passes through it to another memory resource. Put it above that
    resource to see each request, or below an arena to see what the arena takes from the heap; not
    both in one ledger, as the bytes would count twice. A site is the code that called allocate.

        c++ -std=c++17 -O2 -I. examples/embed/containers.cpp -o containers -pthread -rdynamic
        ./containers

    It checks itself: a second resource under the first adds up what it is asked for.
*/
#define MEMLORD_IMPLEMENTATION
#define MEMLORD_PMR
#include "memlord.h"

#include <cstdio>
#include <map>
#include <string>
#include <vector>

/* Adds up what is asked of the heap, so that there is something to compare with. */
class tally : public std::pmr::memory_resource {
public:
    std::size_t bytes = 0, blocks = 0;

private:
    void *do_allocate(std::size_t n, std::size_t alignment) override {
        void *p = std::pmr::new_delete_resource()->allocate(n, alignment);
        bytes += n;
        blocks++;
        return p;
    }
    void do_deallocate(void *p, std::size_t n, std::size_t alignment) override {
        bytes -= n;
        blocks--;
        std::pmr::new_delete_resource()->deallocate(p, n, alignment);
    }
    bool do_is_equal(const memory_resource &other) const noexcept override {
        return this == &other;
    }
};

static bool wrong;
static void check(bool holds, const char *what) {
    if (!holds) std::fprintf(stderr, "containers: not so: %s\n", what), wrong = true;
}

static memlord_stats books(memlord *lord) {
    memlord_stats s;
    (void)memlord_stats_get(lord, memlord_device_cpu(), &s);
    return s;
}
static bool agree(memlord *lord, const tally &heap) {
    return books(lord).allocated == heap.bytes && books(lord).live_blocks == heap.blocks;
}

typedef std::pmr::vector<std::pmr::string> lines;
typedef std::pmr::map<int, std::pmr::string> table;

/* Not inlined and not static, so that -rdynamic has names for the sites. */
__attribute__((noinline)) void read_lines(lines &all);
__attribute__((noinline)) void read_lines(lines &all) {
    all.reserve(100);
    for (int i = 0; i < 100; i++) all.emplace_back(std::size_t(100 + i), 'x');
}

/* Requests, one by one: the resource is above the heap. */
static void each_request(memlord *lord) {
    tally heap;
    mlord::resource accounted(lord, memlord_device_cpu(), &heap);
    {
        mlord::tag text(lord, "text");
        lines all(&accounted);
        read_lines(all); /* one block of the vector, and one of each string and its 0 */
        std::size_t sum = all.capacity() * sizeof all[0];
        for (const std::pmr::string &line : all) sum += line.capacity() + 1;
        check(books(lord).allocated == sum, "the ledger has what vector and strings hold");
        check(agree(lord, heap), "and what the heap was asked for");
        memlord_site_stat top;
        (void)memlord_sites_top(lord, memlord_device_cpu(), MEMLORD_SITE_ORDER_LIVE_BYTES, &top, 1);
        check(std::string(top.site->function).find("read_lines") != std::string::npos,
              "the site is the code that called, not the resource");
    }
    check(agree(lord, heap) && heap.bytes == 0, "all is given back");
    {
        mlord::tag text(lord, "index");
        table index(&accounted);
        for (int i = 0; i < 1000; i++) index[i % 300] += std::to_string(i);
        for (int i = 0; i < 100; i++) index.erase(i);
        table copy(index, &accounted), moved(std::move(index));
        check(agree(lord, heap) && copy.size() == 200, "a map that grows, shrinks, is copied");
    }
    check(agree(lord, heap) && heap.bytes == 0, "all is given back again");
}

/* What arenas take from the heap: the resource is below them. */
static void arenas(memlord *lord) {
    tally heap;
    mlord::resource accounted(lord, memlord_device_cpu(), &heap);
    for (int request = 0; request < 3; request++) {
        mlord::scope one(lord, "request");
        std::pmr::monotonic_buffer_resource arena(4096, &accounted);
        lines all(&arena);
        read_lines(all);
        check(agree(lord, heap) && heap.bytes > 100 * 100, "an arena's blocks");
    }
    check(agree(lord, heap) && heap.bytes == 0, "an arena gives back its blocks at once");
    std::pmr::unsynchronized_pool_resource pool(&accounted);
    {
        lines all(&pool);
        read_lines(all);
    }
    check(agree(lord, heap) && heap.bytes > 0, "a pool keeps what it has, and the ledger shows it");
    pool.release();
    check(agree(lord, heap) && heap.bytes == 0, "until it releases it");
}

/* A block of another resource is none of ours: it is freed, and counted as an unknown free. */
static void mistakes(memlord *lord) {
    tally heap;
    mlord::resource accounted(lord, memlord_device_cpu(), &heap);
    accounted.deallocate(heap.allocate(100, 8), 100, 8);
    check(books(lord).unknown_frees == 1 && agree(lord, heap), "a foreign block");
    try {
        (void)accounted.allocate(std::size_t(-1) / 2, 8);
        check(false, "more than there is");
    } catch (const std::bad_alloc &) { /* as it should be */
    }
    check(agree(lord, heap) && books(lord).live_blocks == 0, "a failure records nothing");
    mlord::resource off(NULL); /* MemLord switched off */
    lines all(&off);
    read_lines(all);
    check(books(lord).allocated == 0, "a NULL ledger");
}

int main() {
    memlord *lord = memlord_global();
    (void)memlord_sites_enable(lord, 1);
    each_request(lord);
    arenas(lord);
    mistakes(lord);
    (void)memlord_save(lord, MEMLORD_FORMAT_TEXT, "-");
    return wrong || memlord_verify(lord) != MEMLORD_OK;
}
