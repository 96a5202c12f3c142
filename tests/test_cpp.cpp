/* The C++ section: guards, sites by value, handles, the allocator and the memory resource. */
#define MEMLORD_PMR
#include "support.h"

#include <list>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

template <typename T> using counted = std::vector<T, mlord::allocator<T>>;

static uint64_t live(memlord *lord) { return memlord_allocated(lord, all()); }

static uint64_t tag_bytes(memlord *lord, const char *name) {
    memlord_tag_stat stat = {};
    assert_ok(memlord_tag_get(lord, all(), name, &stat));
    return stat.allocated;
}

struct ledger { /* a second one, beside that of the test */
    ledger() { assert_ok(memlord_create(NULL, &lord)); }
    ~ledger() { memlord_destroy(lord); }
    ledger(const ledger &) = delete;
    ledger &operator=(const ledger &) = delete;
    memlord *lord = NULL;
};

/* -- stacks: a C++ program has the unwinder of exceptions -- */

static void a_stack_is_cut_to_the_depth_of_the_ledger(void **state) {
    (void)state;
    for (uint32_t depth = 1; depth <= 2; depth++) {
        memlord_desc desc = {};
        memlord_stack_stat row = {};
        memlord *lord = NULL;
        desc.flags = MEMLORD_FLAG_NO_ENV;
        desc.stack_depth = depth;
        desc.stack_bytes = 1; /* every alloc */
        assert_ok(memlord_create(&desc, &lord));
        assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
        assert_int_equal(memlord_stacks_top(lord, cpu(), MEMLORD_SITE_ORDER_ALLOCS, &row, 1), 1);
        assert_int_equal(row.depth, depth + 1);
        assert_int_equal(row.alloc_bytes, 100);
        for (uint32_t i = 0; i < depth; i++) assert_non_null(row.frames[i]);
        assert_null(row.frames[depth]); /* the mark of a stack that is cut */
        memlord_destroy(lord);
    }
}

/* -- guards -- */

static void guards_end_with_their_block(void **state) {
    memlord *lord = test_lord(state);
    std::string name = "made at run time";
    {
        mlord::tag outer(lord, "outer");
        mlord::scope phase(lord, name.c_str());
        {
            mlord::tag inner(lord, "inner");
            assert_string_equal(memlord_tag_current(lord), "inner");
        }
        assert_string_equal(memlord_tag_current(lord), "outer");
        assert_int_not_equal(memlord_scope_current(lord), 0);
    }
    assert_null(memlord_tag_current(lord));
    assert_int_equal(memlord_scope_current(lord), 0);
    memlord_scope_stat stat;
    assert_ok(memlord_scope_get(lord, name.c_str(), &stat));
    assert_int_equal(stat.count, 1);
}

static void a_context_is_dropped_at_its_end(void **state) {
    memlord *lord = test_lord(state);
    memlord_scope_stat stat;
    {
        mlord::context moved;
        {
            mlord::context one(lord);
            assert_int_equal(one.run([&] { return memlord_scope_begin(lord, "s"); }), MEMLORD_OK);
            moved = std::move(one);
        }
        assert_ok(memlord_scope_get(lord, "s", &stat));
        assert_int_equal(stat.running, 1);
        try {
            moved.run([&] {
                assert_int_not_equal(memlord_scope_current(lord), 0);
                throw 1;
            });
        } catch (int) {
        }
        assert_int_equal(memlord_scope_current(lord), 0);
    }
    assert_ok(memlord_scope_get(lord, "s", &stat));
    assert_int_equal(stat.running, 0);
    assert_int_equal(stat.count, 1);
    ledger *other = new ledger;
    mlord::context outlives(other->lord);
    assert_ok(outlives.swap());
    assert_ok(outlives.swap());
    delete other;
    assert_ok(outlives.swap());
    assert_ok(mlord::context(NULL).swap());
}

static void throw_inside(memlord *lord) {
    mlord::scope phase(lord, "fail");
    MEMLORD_SCOPED(lord, "planted");
    MEMLORD_TAGGED(lord, "lost");
    MEMLORD_TAG(lord, "this too") throw std::runtime_error("out of a block");
}

static void an_exception_ends_guards(void **state) {
    memlord *lord = test_lord(state);
    int caught = 0;
    try {
        throw_inside(lord);
    } catch (const std::runtime_error &) {
        caught = 1;
    }
    assert_int_equal(caught, 1);
    assert_null(memlord_tag_current(lord));
    assert_int_equal(memlord_scope_current(lord), 0);
}

static void the_macros_leave_the_loops_of_the_host_alone(void **state) {
    memlord *lord = test_lord(state);
    int rounds = 0;
    for (;;) {
        MEMLORD_TAGGED(lord, std::string("names").c_str());
        if (++rounds == 10) break;
        if (rounds % 2) continue;
    }
    assert_int_equal(rounds, 10);
    assert_null(memlord_tag_current(lord));
}

static void a_call_under_a_tag_returns_its_result(void **state) {
    memlord *lord = test_lord(state);
    struct model {
        explicit model(memlord *l)
            : weights(mlord::tagged(l, "weights", [l] {
                  return counted<char>(1000, 'x', mlord::allocator<char>(l));
              })) {}
        counted<char> weights;
    } m(lord);
    assert_int_equal(tag_bytes(lord, "weights"), 1000);
    mlord::tagged(lord, "none", [] {});
    int n = 5;
    mlord::tagged(lord, "reference", [&n]() -> int & { return n; }) = 7;
    assert_int_equal(n, 7);
}

/* -- sites by value -- */

static inline const memlord_site *wrapper(memlord *lord, mlord::here from = mlord::here()) {
    return from.site(lord);
}

static void each_call_of_an_inline_wrapper_is_a_site(void **state) {
    memlord *lord = test_lord(state);
    const int line = __LINE__ + 1;
    const memlord_site *first = wrapper(lord);
    const memlord_site *second = wrapper(lord);
    assert_int_equal(first->line, line);
    assert_int_equal(second->line, line + 1);
    assert_string_equal(first->function, __func__);
    assert_string_equal(first->file, __FILE__);
}

struct location { /* as std::source_location, which C++20 has */
    const char *file_name() const { return "a.cc"; }
    const char *function_name() const { return "f"; }
    unsigned line() const { return 12; }
};

static void a_source_location_is_a_site(void **state) {
    const memlord_site *site = wrapper(test_lord(state), location());
    assert_string_equal(site->file, "a.cc");
    assert_string_equal(site->function, "f");
    assert_int_equal(site->line, 12);
}

/* -- handles -- */

static void a_handle_ends_its_storage(void **state) {
    memlord *lord = test_lord(state);
    {
        mlord::handle h(lord, cuda(0), 0x1000, 100);
        assert_true(static_cast<bool>(h));
        assert_int_equal(h.storage(), 0x1000);
        assert_int_equal(memlord_allocated(lord, cuda(0)), 100);
    }
    assert_int_equal(live(lord), 0);
    assert_int_equal(stats_of(lord, all()).frees, 1);
}

static void a_moved_handle_ends_once(void **state) {
    memlord *lord = test_lord(state);
    {
        mlord::handle a(lord, cpu(), 0x1000, 100);
        mlord::handle b(std::move(a));
        assert_false(static_cast<bool>(a));
        assert_int_equal(a.storage(), 0);
        assert_ok(a.reset());
        assert_int_equal(live(lord), 100);
        std::vector<mlord::handle> many;
        for (uint64_t i = 1; i <= 50; i++) many.emplace_back(lord, cpu(), 0x1000 + i * 64, 1);
        many.push_back(std::move(b));
        assert_int_equal(live(lord), 150);
    }
    assert_int_equal(live(lord), 0);
    assert_int_equal(stats_of(lord, all()).frees, 51);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

static void a_move_onto_a_handle_ends_what_it_had(void **state) {
    memlord *lord = test_lord(state);
    mlord::handle a(lord, cpu(), 0x1000, 100), b(lord, cuda(1), 0x2000, 20);
    a = std::move(b);
    assert_int_equal(live(lord), 20);
    assert_int_equal(a.storage(), 0x2000);
    assert_false(static_cast<bool>(b));
}

static void a_move_onto_itself_keeps_the_storage(void **state) {
    memlord *lord = test_lord(state);
    mlord::handle a(lord, cpu(), 0x1000, 100), &same = a;
    a = std::move(same);
    assert_true(static_cast<bool>(a));
    assert_int_equal(a.storage(), 0x1000);
    assert_int_equal(live(lord), 100);
    a.swap(same);
    assert_ok(a.reset());
    assert_int_equal(live(lord), 0);
}

static void views_count_once_and_the_last_one_ends_the_storage(void **state) {
    memlord *lord = test_lord(state);
    mlord::handle first = mlord::handle::view(lord, cpu(), 0x1000, 100);
    {
        mlord::handle second = mlord::handle::view(lord, cpu(), 0x1000, 100);
        assert_int_equal(live(lord), 100);
    }
    assert_int_equal(live(lord), 100);
    assert_ok(first.reset());
    assert_int_equal(live(lord), 0);
    assert_int_equal(stats_of(lord, all()).freed_while_shared, 0);
}

static void a_handle_outlives_its_ledger(void **state) {
    ledger *gone = new ledger;
    mlord::handle h(gone->lord, cpu(), 0x1000, 100), dies(gone->lord, cpu(), 0x2000, 100);
    ledger *heir = NULL;
    { mlord::handle ended(gone->lord, cpu(), 0x3000, 1); } /* the thread finds the ledger */
    delete gone;
    heir = new ledger; /* at the same address, it may be */
    assert_ok(memlord_alloc(heir->lord, cpu(), 0x1000, 7, NULL));
    assert_int_equal(h.reset(), MEMLORD_E_STATE);
    assert_ok(h.reset());
    { mlord::handle moved(std::move(dies)); }
    assert_int_equal(live(heir->lord), 7);
    assert_int_equal(stats_of(heir->lord, all()).unknown_frees, 0);
    delete heir;
    (void)state;
}

static void a_copied_image_of_a_handle_ends_nothing_twice(void **state) {
    memlord *lord = test_lord(state);
    alignas(mlord::handle) unsigned char image[sizeof(mlord::handle)];
    mlord::handle original(lord, cpu(), 0x1000, 100), other(lord, cpu(), 0x2000, 20);
    memcpy(image, static_cast<void *>(&original), sizeof image);
    assert_ok(original.reset());
    assert_int_equal(reinterpret_cast<mlord::handle *>(image)->reset(), MEMLORD_E_UNKNOWN);
    assert_int_equal(live(lord), 20);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
}

/* As a container does that moves its elements by memcpy and ends both. */
static void a_copied_image_that_ends_first_leaves_an_unknown_free(void **state) {
    memlord *lord = test_lord(state);
    alignas(mlord::handle) unsigned char image[sizeof(mlord::handle)];
    mlord::handle other(lord, cpu(), 0x2000, 20);
    {
        mlord::handle original(lord, cpu(), 0x1000, 100);
        memcpy(image, static_cast<void *>(&original), sizeof image);
        reinterpret_cast<mlord::handle *>(image)->~handle();
        assert_int_equal(live(lord), 20);
        assert_true(static_cast<bool>(original)); /* it does not know */
    }
    assert_int_equal(live(lord), 20);
    assert_int_equal(stats_of(lord, all()).frees, 1);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
    assert_ok(other.reset());
    assert_ok(memlord_verify(lord));
}

static void a_handle_that_was_moved_from_takes_another_storage(void **state) {
    memlord *lord = test_lord(state);
    mlord::handle a(lord, cpu(), 0x1000, 100), b(std::move(a)), c(std::move(a));
    assert_false(a || c);
    a = mlord::handle(lord, cuda(0), 0x2000, 20);
    assert_int_equal(live(lord), 120);
    assert_ok(a.reset());
    assert_ok(b.reset());
    assert_int_equal(live(lord), 0);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

static void handles_of_two_ledgers_change_places(void **state) {
    memlord *lord = test_lord(state);
    ledger *gone = new ledger;
    mlord::handle a(lord, cpu(), 0x1000, 100), b(gone->lord, cuda(1), 0x1000, 7);
    a.swap(b);
    assert_int_equal(live(lord), 100);
    assert_int_equal(live(gone->lord), 7);
    delete gone;
    assert_int_equal(a.reset(), MEMLORD_E_STATE);
    assert_ok(b.reset());
    assert_int_equal(live(lord), 0);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

/* The second alloc ends the first storage: the ledger missed its free, or so it seems. */
static void two_handles_that_were_not_views_are_both_anomalies(void **state) {
    memlord *lord = test_lord(state);
    mlord::handle first(lord, cpu(), 0x1000, 100), second(lord, cpu(), 0x1000, 60);
    assert_int_equal(live(lord), 60);
    assert_int_equal(stats_of(lord, all()).implicit_frees, 1);
    assert_ok(first.reset());
    assert_int_equal(second.reset(), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
    assert_int_equal(live(lord), 0);
    assert_ok(memlord_verify(lord));
}

static void what_the_ledger_refuses_makes_an_empty_handle(void **state) {
    memlord *lord = test_lord(state);
    {
        mlord::handle zero(lord, cpu(), 0, 1), huge(lord, cpu(), 0x1000, TEST_MAX_BYTES + 1);
        mlord::handle selector(lord, any(MEMLORD_DEVICE_CUDA), 0x1000, 1);
        mlord::handle off(NULL, cpu(), 0x1000, 1), plain;
        assert_false(zero || huge || selector || off || plain);
        assert_int_equal(off.storage(), 0x1000);
    }
    assert_int_equal(stats_of(lord, all()).refused, 3);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

static void a_handle_of_a_dropped_storage_ends_without_an_anomaly(void **state) {
    test_case *t = static_cast<test_case *>(*state);
    t->heap.fail_at = 1;
    t->heap.fail_from = 1;
    {
        std::vector<mlord::handle> many;
        for (uint64_t i = 1; i < 100000 && !stats_of(t->lord, all()).dropped_allocs; i++)
            many.emplace_back(t->lord, cpu(), i * 64, 1);
        assert_int_equal(stats_of(t->lord, all()).dropped_allocs, 1);
        assert_true(static_cast<bool>(many.back()));
    }
    assert_int_equal(live(t->lord), 0);
    assert_int_equal(stats_of(t->lord, all()).unknown_frees, 0);
}

static void a_detached_storage_is_the_callers(void **state) {
    memlord *lord = test_lord(state);
    mlord::handle h(lord, cpu(), 0x1000, 100);
    assert_int_equal(h.detach(), 0x1000);
    assert_ok(h.reset());
    assert_int_equal(live(lord), 100);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
}

static void a_handle_has_the_site_of_its_maker(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat row;
    mlord::handle h(lord, cpu(), 0x1000, 100);
    assert_int_equal(memlord_site_top_alloc(lord, all(), &row), 1);
    assert_string_equal(row.site->function, __func__);
    assert_int_equal(row.site->line, __LINE__ - 3);
}

/* -- the allocator -- */

static void a_container_counts_what_it_takes(void **state) {
    memlord *lord = test_lord(state);
    {
        counted<int> v((mlord::allocator<int>(lord)));
        v.reserve(1000);
        assert_int_equal(live(lord), 1000 * sizeof(int));
        v.resize(500);
        v.shrink_to_fit();
        assert_int_equal(live(lord), 500 * sizeof(int));
    }
    assert_int_equal(live(lord), 0);
    assert_int_equal(stats_of(lord, all()).allocs, 2);
    assert_int_equal(stats_of(lord, all()).frees, 2);
}

static void nodes_are_counted_by_the_rebound_allocator(void **state) {
    memlord *lord = test_lord(state);
    typedef std::pair<const int, int> pair;
    {
        std::list<int, mlord::allocator<int>> l((mlord::allocator<int>(lord)));
        std::map<int, int, std::less<int>, mlord::allocator<pair>> m(
            (std::less<int>()), mlord::allocator<pair>(lord));
        for (int i = 0; i < 100; i++) l.push_back(i), m[i] = i;
        assert_int_equal(stats_of(lord, all()).live_blocks, 200);
        assert_true(live(lord) >= 100 * (sizeof(int) + sizeof(pair)));
    }
    assert_int_equal(live(lord), 0);
}

static void allocators_of_one_ledger_are_equal(void **state) {
    memlord *lord = test_lord(state);
    ledger other;
    mlord::allocator<int> a(lord), b(lord), c(other.lord);
    mlord::allocator<double> rebound(a);
    assert_true(a == b && !(a != b));
    assert_true(a == rebound && rebound == b);
    assert_true(a != c && !(a == c));
    assert_ptr_equal(rebound.ledger(), lord);
    b.deallocate(a.allocate(3), 3);
    assert_int_equal(live(lord), 0);
}

static void containers_of_two_ledgers_swap_and_move_with_their_books(void **state) {
    memlord *lord = test_lord(state);
    ledger other;
    {
        counted<char> a(100, 'a', mlord::allocator<char>(lord));
        counted<char> b(20, 'b', mlord::allocator<char>(other.lord));
        a.swap(b);
        assert_ptr_equal(a.get_allocator().ledger(), other.lord);
        b = std::move(a);
        assert_int_equal(live(lord), 0);
        assert_int_equal(live(other.lord), 20);
        counted<char> c(std::move(b), mlord::allocator<char>(lord)); /* which copies */
        assert_int_equal(live(lord), 20);
    }
    assert_int_equal(live(lord) + live(other.lord), 0);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_int_equal(stats_of(other.lord, all()).unknown_frees, 0);
}

struct throws_third {
    explicit throws_third(int n) : n_(n) {
        if (n == 3) throw std::runtime_error("third");
    }
    int n_;
};

static void a_constructor_that_throws_leaves_no_block(void **state) {
    memlord *lord = test_lord(state);
    int caught = 0;
    try {
        std::list<throws_third, mlord::allocator<throws_third>> l(
            (mlord::allocator<throws_third>(lord)));
        for (int i = 1; i < 5; i++) l.emplace_back(i);
    } catch (const std::runtime_error &) {
        caught = 1;
    }
    assert_int_equal(caught, 1);
    assert_int_equal(stats_of(lord, all()).allocs, 3);
    assert_int_equal(stats_of(lord, all()).frees, 3);
    assert_int_equal(live(lord), 0);
}

struct alignas(256) wide {
    char bytes[256];
};

static void an_over_aligned_type_is_aligned(void **state) {
    memlord *lord = test_lord(state);
    {
        counted<wide> v(3, wide(), mlord::allocator<wide>(lord));
        assert_int_equal(reinterpret_cast<uintptr_t>(v.data()) % 256, 0);
        assert_int_equal(live(lord), 3 * 256);
    }
    assert_int_equal(live(lord), 0);
}

#if !TEST_SANITIZED
template <typename T> static int too_many_throws(memlord *lord, size_t n) {
    try {
        (void)mlord::allocator<T>(lord).allocate(n);
    } catch (const std::bad_alloc &) {
        return 1;
    }
    return 0;
}

static void more_than_there_can_be_throws_and_is_not_counted(void **state) {
    memlord *lord = test_lord(state);
    volatile size_t most = static_cast<size_t>(-1); /* or the compiler warns */
    assert_int_equal(too_many_throws<char>(lord, most), 1);
    assert_int_equal(too_many_throws<int>(lord, most / sizeof(int) + 2), 1);
    assert_int_equal(too_many_throws<wide>(lord, most), 1);
    assert_int_equal(too_many_throws<wide>(lord, most / 256 + 1), 1);
    assert_int_equal(stats_of(lord, all()).allocs, 0);
}
#endif

static void a_container_has_the_site_of_its_maker(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat row;
    counted<int> v(100, 7, mlord::allocator<int>(lord));
    assert_int_equal(memlord_site_top_alloc(lord, all(), &row), 1);
    assert_string_equal(row.site->function, __func__);
    assert_int_equal(row.site->line, __LINE__ - 3);
}

static void without_a_ledger_a_container_works(void **state) {
    counted<int> v((mlord::allocator<int>(NULL)));
    (void)state;
    v.assign(1000, 3);
    assert_int_equal(v[999], 3);
}

/* -- the memory resource -- */

static void a_resource_counts_on_its_device_what_containers_take(void **state) {
    memlord *lord = test_lord(state);
    mlord::resource resource(lord, memlord_device_make(MEMLORD_DEVICE_OTHER, 2));
    {
        std::pmr::vector<std::pmr::string> names(&resource);
        names.reserve(10);
        names.emplace_back("a string that is too long for the small buffer");
        assert_int_equal(stats_of(lord, any(MEMLORD_DEVICE_OTHER)).live_blocks, 2);
        assert_int_equal(live(lord), 10 * sizeof names[0] + names[0].capacity() + 1);
    }
    assert_int_equal(live(lord), 0);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

#if defined(__OPTIMIZE__) /* else the library's allocate, not inlined, is the caller */
static void a_resource_counts_at_its_callers(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat rows[8];
    mlord::resource resource(lord);
    std::pmr::memory_resource *volatile seen = &resource; /* no call is made of two */
    std::pmr::memory_resource *r = seen;
    void *a = r->allocate(3000), *b = r->allocate(500);
    assert_int_equal(memlord_sites_top(lord, cpu(), MEMLORD_SITE_ORDER_LIVE_BYTES, rows, 8), 2);
    assert_int_equal(rows[0].live_bytes, 3000);
    assert_int_equal(rows[1].live_bytes, 500);
    assert_ptr_not_equal(memlord_site_address(lord, rows[0].site),
                         memlord_site_address(lord, rows[1].site));
    r->deallocate(a, 3000);
    r->deallocate(b, 500);
}
#endif

class stingy : public std::pmr::memory_resource { /* has 100 bytes a block at most */
    void *do_allocate(size_t bytes, size_t alignment) override {
        if (bytes > 100) throw std::bad_alloc();
        return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    }
    void do_deallocate(void *p, size_t bytes, size_t alignment) override {
        std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
    }
    bool do_is_equal(const memory_resource &other) const noexcept override {
        return this == &other;
    }
};

static void what_the_upstream_refuses_is_not_counted(void **state) {
    memlord *lord = test_lord(state);
    stingy upstream;
    mlord::resource resource(lord, cpu(), &upstream);
    int caught = 0;
    assert_ptr_equal(resource.upstream(), &upstream);
    {
        std::pmr::vector<char> v(&resource);
        v.resize(100);
        try {
            v.resize(101);
        } catch (const std::bad_alloc &) {
            caught = 1;
        }
        assert_int_equal(live(lord), 100);
    }
    assert_int_equal(caught, 1);
    assert_int_equal(stats_of(lord, all()).allocs, 1);
    assert_int_equal(live(lord), 0);
}

static void a_resource_equals_only_itself(void **state) {
    mlord::resource a(test_lord(state)), b(test_lord(state));
    assert_true(a == a && a != b);
}

/* -- threads; before and after main -- */

static void threads_count_in_one_ledger(void **state) {
    memlord *lord = test_lord(state);
    std::vector<std::thread> threads;
    std::vector<mlord::handle> handles(8);
    for (size_t i = 0; i < handles.size(); i++)
        threads.emplace_back([lord, i, &handles] {
            mlord::tag tag(lord, i % 2 ? "odd" : "even");
            mlord::resource resource(lord);
            for (int round = 0; round < 200; round++) {
                counted<int> v(100, 1, mlord::allocator<int>(lord));
                std::pmr::vector<int> w(100, 1, &resource);
            }
            handles[i] = mlord::handle(lord, cuda(0), 0x1000 + i * 64, 10);
        });
    for (std::thread &thread : threads) thread.join();
    assert_int_equal(live(lord), 80);
    assert_int_equal(stats_of(lord, cpu()).frees, 8 * 200 * 2);
    assert_int_equal(tag_bytes(lord, "odd"), 40);
    handles.clear();
    assert_int_equal(live(lord), 0);
}

/* Made first, so it ends last: what was made before main is freed after it, and counted. */
static struct last {
    ~last() {
        if (live(memlord_global()) == 0) return;
        fprintf(stderr, "bytes are live after main\n");
        _exit(3);
    }
} last_of_all;
static counted<int> before_main(300, 1);
static mlord::handle handle_before_main(memlord_global(), cuda(0), 0x1000, 50);

static void what_is_made_before_main_is_counted(void **state) {
    (void)state;
    (void)last_of_all;
    assert_int_equal(memlord_allocated(memlord_global(), cpu()), 300 * sizeof before_main[0]);
    assert_int_equal(memlord_allocated(memlord_global(), cuda(0)), 50);
}

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stack_is_cut_to_the_depth_of_the_ledger),
        TEST(a_context_is_dropped_at_its_end),
        TEST(guards_end_with_their_block),
        TEST(an_exception_ends_guards),
        TEST(the_macros_leave_the_loops_of_the_host_alone),
        TEST(a_call_under_a_tag_returns_its_result),
        TEST_SITES(each_call_of_an_inline_wrapper_is_a_site),
        TEST_SITES(a_source_location_is_a_site),
        TEST(a_handle_ends_its_storage),
        TEST(a_moved_handle_ends_once),
        TEST(a_move_onto_a_handle_ends_what_it_had),
        TEST(a_move_onto_itself_keeps_the_storage),
        TEST(views_count_once_and_the_last_one_ends_the_storage),
        TEST(a_handle_outlives_its_ledger),
        TEST(a_copied_image_of_a_handle_ends_nothing_twice),
        TEST(a_copied_image_that_ends_first_leaves_an_unknown_free),
        TEST(a_handle_that_was_moved_from_takes_another_storage),
        TEST(handles_of_two_ledgers_change_places),
        TEST(two_handles_that_were_not_views_are_both_anomalies),
        TEST(what_the_ledger_refuses_makes_an_empty_handle),
        TEST(a_handle_of_a_dropped_storage_ends_without_an_anomaly),
        TEST(a_detached_storage_is_the_callers),
        TEST_SITES(a_handle_has_the_site_of_its_maker),
        TEST(a_container_counts_what_it_takes),
        TEST(nodes_are_counted_by_the_rebound_allocator),
        TEST(allocators_of_one_ledger_are_equal),
        TEST(containers_of_two_ledgers_swap_and_move_with_their_books),
        TEST(a_constructor_that_throws_leaves_no_block),
        TEST(an_over_aligned_type_is_aligned),
#if !TEST_SANITIZED
        TEST(more_than_there_can_be_throws_and_is_not_counted),
#endif
        TEST_SITES(a_container_has_the_site_of_its_maker),
        TEST(without_a_ledger_a_container_works),
        TEST(a_resource_counts_on_its_device_what_containers_take),
#if defined(__OPTIMIZE__)
        TEST_SITES(a_resource_counts_at_its_callers),
#endif
        TEST(what_the_upstream_refuses_is_not_counted),
        TEST(a_resource_equals_only_itself),
        TEST(threads_count_in_one_ledger),
        TEST(what_is_made_before_main_is_counted),
    };
    return cmocka_run_group_tests_name("cpp", tests, NULL, NULL);
}
