/* What the map bench knows of a MemLord. books.cpp makes one of these of the present memlord.h, and
   with BASE another of that revision's. */
#ifndef BENCH_BOOKS_H
#define BENCH_BOOKS_H

#include "harness.h"

enum { SITES = 1000, DEVICES = 100 };

struct setup {
    bool sites, tagged, exact;
    bool guarded; /* a strategy whose threshold is not reached; a base has no such row */
    bool charged; /* memlord_alloc_with, and an account of the thread; likewise */
};

/* The bytes that a contender takes per live block. */
struct weight {
    double worst, full, shrunk; /* the most; with all blocks; with a tenth of them left */
    size_t worst_at;            /* the number of blocks where it was the most */
};

/* Weighs a peer. Looks after every insert, so also right after every growth. */
template <class Peer> weight weigh(Peer &p, size_t base, const std::vector<op> &blocks) {
    weight w = {0, 0, 0, 0};
    size_t n = 0, left = blocks.size();
    for (const op &o : blocks) {
        p.opens(o, 0, 0, 0);
        if (++n < 10000) continue;
        double each = double(counted_bytes - base) / double(n);
        if (each > w.worst) {
            w.worst = each;
            w.worst_at = n;
        }
    }
    w.full = double(counted_bytes - base) / double(n);
    for (; left > n / 10; left--) p.closes(blocks[left - 1].opened, 0);
    w.shrunk = double(counted_bytes - base) / double(left);
    return w;
}

struct revision {
    std::unique_ptr<row> (*play)(const std::string &name, mix m, setup s);
    weight (*weigh)(setup s, const std::vector<op> &blocks);
    double (*read_ns)(int threads); /* of memlord_allocated, while so many threads have counts */
};

extern const revision present_revision, base_revision;

#endif
