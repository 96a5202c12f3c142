/*
    containers.cpp - std::pmr containers whose bytes are on the books, by phase

    mlord::resource records what it takes from another resource (here new and delete). Its site is
    the code that called allocate; a tag tells what the bytes are for.

        cc -O2 -c -x c -DMEMLORD_IMPLEMENTATION memlord.h -o memlord.o
        c++ -std=c++17 -O2 -I. -rdynamic examples/embed/containers.cpp memlord.o -o containers -pthread
        ./containers
*/
#define MEMLORD_PMR
#include "memlord.h"

#include <cstdio>
#include <map>
#include <string>
#include <vector>

static int failed;
static void expect(bool holds, const char *what) {
    if (holds) return;
    std::printf("not so: %s\n", what);
    failed = 1;
}

/* Counts what passes through it: what the ledger has to agree with. */
struct scale : std::pmr::memory_resource {
    size_t live = 0, blocks = 0;
    void *do_allocate(size_t bytes, size_t align) override {
        live += bytes, blocks++;
        return std::pmr::new_delete_resource()->allocate(bytes, align);
    }
    void do_deallocate(void *p, size_t bytes, size_t align) override {
        live -= bytes, blocks--;
        std::pmr::new_delete_resource()->deallocate(p, bytes, align);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        return this == &other;
    }
};

int main() {
    memlord *lord = memlord_global();
    const memlord_device cpu = memlord_device_cpu();
    scale beneath;
    memlord_sites_enable(lord, 1);
    {
        mlord::resource counted(lord, cpu, &beneath);
        mlord::tag tag(lord, "index");
        std::pmr::map<int, std::pmr::string> index(&counted);
        for (int i = 0; i < 1000; i++)
            index.emplace(i, std::pmr::string(100, 'x'));
        mlord::tag other(lord, "rows");
        std::pmr::vector<std::pmr::vector<double>> rows(&counted);
        for (size_t i = 0; i < 100; i++) rows.emplace_back(i);
        expect(memlord_allocated(lord, cpu) == beneath.live, "the ledger has the bytes");
        memlord_stats s;
        memlord_stats_get(lord, cpu, &s);
        expect(s.live_blocks == beneath.blocks, "and the blocks");
        memlord_tag_stat names, table;
        expect(!memlord_tag_get(lord, cpu, "index", &names) &&
                   !memlord_tag_get(lord, cpu, "rows", &table) &&
                   names.allocated + table.allocated == beneath.live, "each phase has its bytes");
        memlord_save(lord, MEMLORD_FORMAT_TEXT, "-");
    }
    expect(memlord_allocated(lord, cpu) == 0 && beneath.live == 0, "nothing is left");
    std::printf(failed ? "it differs\n" : "it agrees\n");
    return failed;
}
