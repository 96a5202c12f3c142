/* life.cpp OBSERVER TEST: one test of libmemlord_torch_observer.so, on the stand-in for PyTorch's
   allocator. Each is a process: the library has one ledger in it. Status 0: passed. */
#include "stand_in.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>

namespace {

struct {
    int (*attach)(void);
    uint64_t (*allocated)(int);
    uint64_t (*pending)(int);
    uint64_t (*peak)(int);
    uint64_t (*reserved)(int);
    uint64_t (*live_since)(uint64_t);
    uint64_t (*mark)(void);
    uint64_t (*lost)(void);
    int (*tag_begin)(const char *);
    int (*tag_end)(void);
    int (*scope_begin)(const char *);
    int (*scope_end)(void);
    int (*frames)(int, const char *);
    int (*save)(const char *);
    const char *(*error)(int);
} observer;

void fail(int line, const char *what) {
    fprintf(stderr, "life.cpp:%d: %s\n", line, what);
    _exit(1);
}
#define CHECK(condition) ((condition) ? void() : fail(__LINE__, #condition))
#define SAME(a, b) same(__LINE__, #a " and " #b, static_cast<int64_t>(a), static_cast<int64_t>(b))
void same(int line, const char *what, int64_t a, int64_t b) {
    if (a == b) return;
    fprintf(stderr, "life.cpp:%d: %s differ: %lld and %lld\n", line, what,
            static_cast<long long>(a), static_cast<long long>(b));
    _exit(1);
}

template <class F> void find(void *library, const char *name, F *fn) {
    void *found = dlsym(library, (std::string("memlord_torch_") + name).c_str());
    CHECK(found);
    memcpy(fn, &found, sizeof found);
}

void load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail(__LINE__, dlerror());
    find(library, "attach", &observer.attach);
    find(library, "allocated", &observer.allocated);
    find(library, "pending", &observer.pending);
    find(library, "peak", &observer.peak);
    find(library, "reserved", &observer.reserved);
    find(library, "live_since", &observer.live_since);
    find(library, "mark", &observer.mark);
    find(library, "lost", &observer.lost);
    find(library, "tag_begin", &observer.tag_begin);
    find(library, "tag_end", &observer.tag_end);
    find(library, "scope_begin", &observer.scope_begin);
    find(library, "scope_end", &observer.scope_end);
    find(library, "frames", &observer.frames);
    find(library, "save", &observer.save);
    find(library, "error", &observer.error);
}

void attach() {
    stand_in_init(1, 0);
    SAME(observer.attach(), 0);
}

/* The books are the allocator's own sums, to the byte. */
void agree(int device) {
    SAME(observer.allocated(device), stand_in_bytes(device, "active"));
    SAME(observer.reserved(device), stand_in_bytes(device, "reserved"));
    if (!observer.pending(device))
        SAME(observer.allocated(device), stand_in_bytes(device, "allocated"));
}

/* A program that allocates and frees at random. */
class program {
    struct held {
        int device;
        uint64_t at;
    };
    std::mt19937 random;
    std::vector<held> live;

    uint64_t below(uint64_t n) { return random() % n; }
    void free_one() {
        const size_t i = below(live.size());
        const held h = live[i];
        live[i] = live.back();
        live.pop_back();
        if (!below(8)) stand_in_record_stream(h.device, h.at);
        stand_in_free(h.device, h.at);
    }

public:
    explicit program(unsigned seed) : random(seed) {}
    void step() {
        const int device = static_cast<int>(below(2));
        const uint64_t size = 1 + below(below(4) ? 5000 : 3 << 20);
        switch (below(32)) {
        case 0: stand_in_streams_done(device); return;
        case 1: stand_in_empty_cache(device); return;
        default: break;
        }
        if (live.size() > 40 || (!live.empty() && below(2))) return free_one();
        const uint64_t at = stand_in_alloc(device, size, below(3) * 4096, !below(4));
        CHECK(at);
        live.push_back({device, at});
    }
    void run(int steps) {
        while (steps-- > 0) step();
    }
    void finish() {
        while (!live.empty()) free_one();
    }
};

void the_books_are_the_allocators_sums() {
    program p(1);
    attach();
    for (int i = 0; i < 3000; i++) {
        p.step();
        agree(i % 2);
    }
    SAME(observer.allocated(-1), stand_in_bytes(0, "active") + stand_in_bytes(1, "active"));
    p.finish();
    for (int i = 0; i < 2; i++) stand_in_streams_done(i), stand_in_empty_cache(i);
    SAME(observer.allocated(-1), 0);
    SAME(observer.pending(-1), 0);
    SAME(observer.reserved(-1), 0);
    CHECK(observer.peak(0) > 0);
    SAME(observer.lost(), 0);
}

void what_was_there_before_is_read_from_the_snapshot() {
    program p(2);
    p.run(500);
    attach();
    agree(0);
    agree(1);
    CHECK(observer.allocated(-1) > 0);
    for (int i = 0; i < 500; i++) {
        p.step();
        agree(i % 2);
    }
    p.finish();
    for (int i = 0; i < 2; i++) stand_in_streams_done(i);
    SAME(observer.allocated(-1), 0);
    SAME(observer.lost(), 0);
    SAME(observer.save("build/torch/before.json"), 0); /* the script looks for mistakes in it */
}

void a_block_that_a_stream_still_uses_is_pending() {
    attach();
    const uint64_t a = stand_in_alloc(0, 1000, 0, 0), b = stand_in_alloc(0, 600, 4096, 0);
    stand_in_record_stream(0, a);
    stand_in_free(0, a); /* no entry follows */
    SAME(observer.pending(0), 1000);
    SAME(observer.allocated(0), 1024 + 1024);
    stand_in_free(0, b);
    SAME(observer.pending(0), 1000);
    SAME(observer.allocated(0), 1024);
    stand_in_streams_done(0);
    SAME(observer.pending(0), 0);
    SAME(observer.allocated(0), 0);
}

void a_block_pending_at_the_attaching_is_pending() {
    const uint64_t a = stand_in_alloc(1, 1000, 0, 0);
    stand_in_record_stream(1, a);
    stand_in_free(1, a);
    attach();
    SAME(observer.pending(1), 1000);
    SAME(observer.allocated(1), 1024);
    stand_in_streams_done(1);
    SAME(observer.pending(1), 0);
    SAME(observer.allocated(1), 0);
}

/* Blocks of before the attaching: by their number, what happens to each while it goes on. */
uint64_t block_of_before[8];
void free_in_use(int i) {
    stand_in_record_stream(0, block_of_before[i]);
    stand_in_free(0, block_of_before[i]);
}
void while_attaching(int step) {
    const int from = step * 4;
    stand_in_free(0, block_of_before[from]);
    free_in_use(from + 1);
    CHECK(stand_in_alloc(0, 5 << 20, 0, 0)); /* a segment, too */
    stand_in_free(0, stand_in_alloc(0, 700, 0, 0));
    if (step) stand_in_empty_cache(1);
}
void what_happens_while_attaching_is_in_the_books() {
    for (uint64_t i = 0; i < 8; i++) block_of_before[i] = stand_in_alloc(0, 1000 + i, 0, 0);
    stand_in_free(1, stand_in_alloc(1, 1000, 0, 0)); /* a segment, all of it free */
    free_in_use(2);
    free_in_use(6);
    stand_in_meanwhile(while_attaching);
    attach();
    agree(0);
    agree(1);
    SAME(observer.pending(0), 1001 + 1002 + 1005 + 1006);
    stand_in_streams_done(0);
    SAME(observer.pending(0), 0);
    agree(0);
    stand_in_free(0, block_of_before[3]);
    stand_in_free(0, block_of_before[7]);
    SAME(observer.allocated(0), 10 << 20);
    SAME(observer.lost(), 0);
}

void many_pending_blocks_end_in_any_order() {
    std::vector<uint64_t> at;
    attach();
    for (int i = 0; i < 2000; i++) at.push_back(stand_in_alloc(0, 512, 0, 0));
    for (int i = 0; i < 2000; i++) stand_in_record_stream(0, at[static_cast<size_t>(i)]);
    for (int i = 1999; i >= 0; i--) stand_in_free(0, at[static_cast<size_t>(i)]);
    SAME(observer.pending(0), 2000 * 512);
    stand_in_streams_done(0);
    SAME(observer.pending(0), 0);
    SAME(observer.allocated(0), 0);
}

void an_allocation_that_fails_is_counted() {
    attach();
    CHECK(stand_in_alloc(0, 900 << 20, 0, 0));
    SAME(stand_in_alloc(0, 500 << 20, 0, 0), 0);
    agree(0);
    SAME(observer.save("build/torch/oom.json"), 0);
}

void entries_that_make_no_sense_change_nothing() {
    attach();
    const uint64_t a = stand_in_alloc(0, 1000, 0, 0);
    stand_in_entry(c10::cuda::CUDACachingAllocator::TraceEntry::FREE_REQUESTED, 0, 4096, 10);
    stand_in_entry(c10::cuda::CUDACachingAllocator::TraceEntry::FREE_COMPLETED, 0, 4096, 10);
    stand_in_entry(c10::cuda::CUDACachingAllocator::TraceEntry::FREE_COMPLETED, 0, 8192, 10);
    stand_in_entry(42, 0, a, 1000);
    stand_in_entry(9, 0, 0, 0); /* of a script's annotation */
    stand_in_entry(0, 99, 4096, 10);
    stand_in_entry(0, -1, 4096, 10);
    stand_in_entry(7, 0, 0, 0); /* a snapshot that somebody else takes */
    agree(0);
    SAME(observer.allocated(-1), 1024);
    SAME(observer.lost(), 2);
    stand_in_entry(c10::cuda::CUDACachingAllocator::TraceEntry::FREE_COMPLETED, 0, a, 1000);
    SAME(observer.live_since(0), 0); /* its request was not traced */
    SAME(observer.save("build/torch/unknown.json"), 0);
}

void threads_and_an_attaching_among_them() {
    std::vector<std::thread> threads;
    std::vector<program> programs;
    std::atomic<bool> over{false};
    std::atomic<int> steps{0};
    stand_in_init(1, 0);
    for (unsigned i = 0; i < 4; i++) programs.emplace_back(10 + i);
    for (program &p : programs)
        threads.emplace_back([&p, &over, &steps] {
            for (; !over; steps++) p.step();
            p.finish();
        });
    while (steps < 2000) std::this_thread::yield();
    SAME(observer.attach(), 0);
    SAME(observer.attach(), 0); /* once more does nothing */
    for (const int from = steps; steps < from + 4000;) (void)observer.allocated(-1);
    over = true;
    for (std::thread &t : threads) t.join();
    agree(0);
    agree(1);
    for (int i = 0; i < 2; i++) stand_in_streams_done(i), stand_in_empty_cache(i);
    SAME(observer.allocated(-1), 0);
    SAME(observer.reserved(-1), 0);
    SAME(observer.lost(), 0);
    SAME(observer.save("build/torch/threads.json"), 0);
}

void attaching_says_why_not() {
    SAME(observer.frames(1, nullptr), 7);
    SAME(observer.attach(), 7);
    CHECK(strstr(observer.error(7), "state"));
    stand_in_init(1, 1);
    SAME(observer.attach(), 9);
    CHECK(stand_in_alloc(0, 1000, 0, 0));
    SAME(observer.allocated(0), 0);
    stand_in_init(1, 0);
    SAME(observer.attach(), 0);
    agree(0);
}

void tags_and_scopes_go_with_blocks() {
    uint64_t mark;
    attach();
    SAME(observer.tag_begin("weights"), 0);
    const uint64_t a = stand_in_alloc(0, 1000, 0, 0);
    SAME(observer.tag_end(), 0);
    mark = observer.mark();
    SAME(observer.scope_begin("step"), 0);
    const uint64_t b = stand_in_alloc(0, 500, 8192, 0);
    SAME(observer.scope_end(), 0);
    SAME(observer.live_since(mark), 500);
    CHECK(a && b && observer.tag_begin("") != 0);
    SAME(observer.save("build/torch/tags.json"), 0);
}

void a_backward_pass_has_the_tag_of_its_script() {
    attach();
    SAME(observer.tag_begin("gradients"), 0);
    std::thread([] {
        pthread_setname_np(pthread_self(), "pt_autograd_0");
        CHECK(stand_in_alloc(0, 1000, 0, 0));
    }).join();
    std::thread([] { CHECK(stand_in_alloc(0, 300, 0, 0)); }).join();
    SAME(observer.tag_end(), 0);
    SAME(observer.save("build/torch/backward.json"), 0);
}

void the_device_is_asked_at_reports_alone() {
    program p(3);
    attach();
    p.run(200);
    (void)observer.allocated(-1);
    SAME(stand_in_memory_asked(), 0);
    SAME(observer.save("build/torch/capacity.json"), 0);
    SAME(stand_in_memory_asked(), 2); /* each device once */
}

void a_forked_child_leaves_the_report_to_its_parent() {
    attach();
    CHECK(stand_in_alloc(0, 1000, 0, 0));
    const pid_t child = fork();
    if (!child) {
        CHECK(stand_in_alloc(0, 5000, 0, 0));
        SAME(observer.allocated(0), 1000); /* of its parent's */
        SAME(observer.attach(), 7);
        exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(access(getenv("MEMLORD_TORCH_REPORT"), F_OK) != 0);
}

void a_forked_child_finds_no_lock_held() {
    std::atomic<bool> stop{false};
    attach();
    std::thread attaching([&stop] { while (!stop) (void)observer.attach(); });
    for (int i = 0; i < 500; i++) {
        const pid_t child = fork();
        if (!child) {
            (void)alarm(5);
            _exit(observer.attach() == 7 ? 0 : 1);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child);
        SAME(status, 0);
    }
    stop = true;
    attaching.join();
}

const struct {
    const char *name;
    void (*run)();
} tests[] = {
#define TEST(name) {#name, name}
    TEST(the_books_are_the_allocators_sums),
    TEST(what_was_there_before_is_read_from_the_snapshot),
    TEST(a_block_that_a_stream_still_uses_is_pending),
    TEST(a_block_pending_at_the_attaching_is_pending),
    TEST(what_happens_while_attaching_is_in_the_books),
    TEST(many_pending_blocks_end_in_any_order),
    TEST(an_allocation_that_fails_is_counted),
    TEST(entries_that_make_no_sense_change_nothing),
    TEST(threads_and_an_attaching_among_them),
    TEST(attaching_says_why_not),
    TEST(tags_and_scopes_go_with_blocks),
    TEST(a_backward_pass_has_the_tag_of_its_script),
    TEST(the_device_is_asked_at_reports_alone),
    TEST(a_forked_child_leaves_the_report_to_its_parent),
    TEST(a_forked_child_finds_no_lock_held),
};

} // namespace

int main(int argc, char **argv) {
    if (argc < 3) { /* the tests there are */
        for (const auto &t : tests) puts(t.name);
        return 0;
    }
    load(argv[1]);
    for (const auto &t : tests)
        if (!strcmp(t.name, argv[2])) return t.run(), 0;
    return 2;
}
