/* Operator new and delete as examples/new.cpp replaces them. */
#include "support.h"

#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

/* A sanitizer's malloc returns NULL, too. */
extern "C" const char *__asan_default_options();
extern "C" const char *__asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char *__tsan_default_options();
extern "C" const char *__tsan_default_options() { return "allocator_may_return_null=1"; }

/* clang declares them under -fsized-deallocation alone. */
void operator delete(void *, std::size_t) noexcept;
void operator delete[](void *, std::size_t) noexcept;
void operator delete(void *, std::size_t, std::align_val_t) noexcept;
void operator delete[](void *, std::size_t, std::align_val_t) noexcept;

static memlord_stats now() { return stats_of(memlord_global(), cpu()); }

struct alignas(64) wide {
    char bytes[64];
};

/* One block of so many bytes came, and went. */
#define counts_once(bytes, pointer, delete_it)                                                     \
    do {                                                                                           \
        const memlord_stats before = now();                                                        \
        auto p = pointer;                                                                          \
        assert_non_null(p);                                                                        \
        memset(static_cast<void *>(p), 1, bytes);                                                  \
        assert_int_equal(now().allocated - before.allocated, bytes);                               \
        delete_it;                                                                                 \
        assert_int_equal(now().allocated, before.allocated);                                       \
        assert_int_equal(now().allocs - before.allocs, 1);                                         \
        assert_int_equal(now().frees - before.frees, 1);                                           \
        assert_int_equal(now().unknown_frees, before.unknown_frees);                               \
        assert_int_equal(now().implicit_frees, before.implicit_frees);                             \
    } while (0)

static void expressions_count_once(void **state) {
    (void)state;
    counts_once(sizeof(int), new int, delete p);
    counts_once(100, new char[100], delete[] p);
    counts_once(64, new wide, delete p);
    counts_once(640, new wide[10], delete[] p);
    counts_once(sizeof(int), new (std::nothrow) int, delete p);
    counts_once(100, new (std::nothrow) char[100], delete[] p);
    counts_once(64, new (std::nothrow) wide, delete p);
    counts_once(640, new (std::nothrow) wide[10], delete[] p);
}

static void every_form_counts_once(void **state) {
    const std::align_val_t a{128};
    const std::nothrow_t &n = std::nothrow;
    (void)state;
    counts_once(10, operator new(10), operator delete(p));
    counts_once(10, operator new[](10), operator delete[](p));
    counts_once(10, operator new(10, n), operator delete(p, n));
    counts_once(10, operator new[](10, n), operator delete[](p, n));
    counts_once(10, operator new(10), operator delete(p, 10));
    counts_once(10, operator new[](10), operator delete[](p, 10));
    counts_once(10, operator new(10, a), operator delete(p, a));
    counts_once(10, operator new[](10, a), operator delete[](p, a));
    counts_once(10, operator new(10, a, n), operator delete(p, a, n));
    counts_once(10, operator new[](10, a, n), operator delete[](p, a, n));
    counts_once(10, operator new(10, a), operator delete(p, 10, a));
    counts_once(10, operator new[](10, a), operator delete[](p, 10, a));
}

static void no_bytes_are_an_object_and_null_is_none(void **state) {
    const memlord_stats before = now();
    void *a = operator new(0), *b = operator new(0, std::align_val_t{1});
    (void)state;
    assert_true(a && b && a != b);
    operator delete(b, std::align_val_t{1});
    operator delete(a);
    operator delete(NULL);
    operator delete[](NULL, std::align_val_t{64});
    assert_int_equal(now().allocated, before.allocated);
    assert_int_equal(now().unknown_frees, before.unknown_frees);
}

static void aligned_blocks_are_aligned(void **state) {
    (void)state;
    for (size_t alignment = 1; alignment <= 65536; alignment *= 2) {
        void *p = operator new(3, std::align_val_t(alignment));
        assert_int_equal(reinterpret_cast<uintptr_t>(p) % alignment, 0);
        operator delete(p, std::align_val_t(alignment));
    }
}

/* -- no memory -- */

static volatile size_t too_much = SIZE_MAX / 2; /* volatile: or the compiler warns */
static int handled;
static void give_up() {
    if (++handled == 3) std::set_new_handler(NULL);
}
static void throw_up() { throw std::bad_alloc(); }

static int throws(std::align_val_t a) {
    try {
        operator delete(size_t(a) ? operator new(too_much, a) : operator new(too_much));
    } catch (const std::bad_alloc &) {
        return 1;
    }
    return 0;
}

static void without_memory_nothrow_returns_null(void **state) {
    const memlord_stats before = now();
    (void)state;
    assert_null(operator new(too_much, std::nothrow));
    assert_null(operator new[](too_much, std::nothrow));
    assert_null(operator new(too_much, std::align_val_t{64}, std::nothrow));
    assert_null(operator new[](too_much, std::align_val_t{64}, std::nothrow));
    assert_int_equal(now().allocs, before.allocs);
}

static void without_memory_new_throws(void **state) {
    (void)state;
    assert_int_equal(throws(std::align_val_t{0}), 1);
    assert_int_equal(throws(std::align_val_t{64}), 1);
}

static void the_handler_is_called_until_it_gives_up(void **state) {
    (void)state;
    handled = 0;
    std::set_new_handler(give_up);
    assert_int_equal(throws(std::align_val_t{0}), 1);
    assert_int_equal(handled, 3);
    std::set_new_handler(throw_up);
    assert_null(operator new(too_much, std::nothrow));
    std::set_new_handler(NULL);
}

/* -- sites, threads, before and after main -- */

static __attribute__((noinline)) void *made_here() {
    void *volatile p = operator new(12345);
    return p;
}

static void a_block_has_the_site_of_its_caller(void **state) {
    memlord_block_info info;
    void *p = made_here();
    (void)state;
    assert_ok(memlord_block_find(memlord_global(), cpu(), MEMLORD_KEY(p), &info));
    const char *at = static_cast<const char *>(memlord_site_address(memlord_global(), info.site));
    const char *from = reinterpret_cast<const char *>(&made_here);
    assert_true(at > from && at < from + 4096);
    operator delete(p);
}

struct throws_late { /* not seen by the compiler, which may leave out such an allocation */
    __attribute__((noinline)) throws_late() {
        __asm__ volatile("" ::"r"(this) : "memory");
        throw 1;
    }
};

static void a_constructor_that_throws_gives_its_block_back(void **state) {
    const memlord_stats before = now();
    (void)state;
    for (int form = 0; form < 2; form++) try {
            if (form) delete new throws_late;
            delete[] new (std::nothrow) throws_late[3];
        } catch (int) {
        }
    assert_int_equal(now().allocated, before.allocated);
    assert_int_equal(now().allocs - before.allocs, 2);
}

static void threads_count_what_they_new(void **state) {
    const memlord_stats before = now();
    std::vector<std::thread> threads;
    (void)state;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([] {
            for (int k = 0; k < 1000; k++) std::vector<std::string> v(10, std::string(100, 'x'));
        });
    for (std::thread &thread : threads) thread.join();
    threads = std::vector<std::thread>();
    assert_int_equal(now().allocated, before.allocated);
    assert_true(now().allocs - before.allocs >= 4 * 1000 * 12);
}

static struct last {
    ~last() {
        memlord_block_info info;
        if (memlord_block_find(memlord_global(), cpu(), key, &info) != MEMLORD_OK) return;
        fprintf(stderr, "a block is live after main\n");
        _exit(3);
    }
    uint64_t key = 0;
} last_of_all;
static std::vector<char> before_main(4321);

static void what_is_made_before_main_is_counted(void **state) {
    memlord_block_info info;
    (void)state;
    last_of_all.key = MEMLORD_KEY(before_main.data());
    assert_ok(memlord_block_find(memlord_global(), cpu(), last_of_all.key, &info));
    assert_int_equal(info.bytes, 4321);
}

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_count_once),
        cmocka_unit_test(every_form_counts_once),
        cmocka_unit_test(no_bytes_are_an_object_and_null_is_none),
        cmocka_unit_test(aligned_blocks_are_aligned),
        cmocka_unit_test(without_memory_nothrow_returns_null),
        cmocka_unit_test(without_memory_new_throws),
        cmocka_unit_test(the_handler_is_called_until_it_gives_up),
        cmocka_unit_test(a_block_has_the_site_of_its_caller),
        cmocka_unit_test(a_constructor_that_throws_gives_its_block_back),
        cmocka_unit_test(threads_count_what_they_new),
        cmocka_unit_test(what_is_made_before_main_is_counted),
    };
    (void)memlord_sites_enable(memlord_global(), 1);
    return cmocka_run_group_tests_name("new", tests, NULL, NULL);
}
