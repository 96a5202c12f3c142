/* The functions behind the macros of MEMLORD_SHIM, called as the macros call them. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* A sanitizer's malloc returns NULL, too. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "allocator_may_return_null=1"; }

#define HUGE_SIZE (SIZE_MAX / 2 + 1)

static const memlord_site here = {"shim.c", "here", 10}, there = {"shim.c", "there", 20};

static memlord_device mapped(void) { return memlord_device_make(MEMLORD_DEVICE_MAPPED, 0); }
static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* What a device has: nothing but `blocks` blocks of `bytes` bytes, and no mistake. */
static void assert_live(memlord *lord, memlord_device device, uint64_t bytes, uint64_t blocks) {
    memlord_stats s = stats_of(lord, device);
    assert_int_equal(s.allocated, bytes);
    assert_int_equal(s.live_blocks, blocks);
    assert_int_equal(s.unknown_frees + s.implicit_frees + s.refused, 0);
}
static void assert_block(memlord *lord, const void *p, uint64_t bytes, int line) {
    memlord_block_info info;
    assert_ok(memlord_block_find(lord, cpu(), MEMLORD_KEY(p), &info));
    assert_int_equal(info.bytes, bytes);
    assert_int_equal(info.site->line, line);
}

/* -- the heap -- */

static void malloc_records_the_block_at_its_site(void **state) {
    memlord *lord = test_lord(state);
    char *p = (char *)memlord_shim_malloc(lord, 100, &here);
    memset(p, 1, 100);
    assert_block(lord, p, 100, 10);
    assert_live(lord, cpu(), 100, 1);
    memlord_shim_free(lord, p, &there);
    assert_live(lord, cpu(), 0, 0);
    assert_int_equal(stats_of(lord, cpu()).total_freed, 100);
}

static void a_free_counts_at_the_site_of_the_free(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat top;
    memlord_shim_free(lord, memlord_shim_malloc(lord, 100, &here), &there);
    assert_int_equal(memlord_site_top_free(lord, all(), &top), 1);
    assert_int_equal(top.site->line, 20);
    assert_int_equal(top.free_bytes, 100);
}

static void calloc_records_the_product_and_gives_zeros(void **state) {
    memlord *lord = test_lord(state);
    char *p = (char *)memlord_shim_calloc(lord, 30, 7, &here);
    size_t i;
    for (i = 0; i < 210; i++) assert_int_equal(p[i], 0);
    assert_block(lord, p, 210, 10);
    memlord_shim_free(lord, p, NULL);
    assert_live(lord, cpu(), 0, 0);
}

static void a_free_of_nothing_is_nothing(void **state) {
    memlord *lord = test_lord(state);
    memlord_shim_free(lord, NULL, &here);
    assert_live(lord, cpu(), 0, 0);
}

static void realloc_keeps_the_content_and_changes_the_bytes(void **state) {
    memlord *lord = test_lord(state);
    char *p = (char *)memlord_shim_malloc(lord, 100, &here);
    memset(p, 7, 100);
    p = (char *)memlord_shim_realloc(lord, p, 100000, &there);
    assert_true(p[0] == 7 && p[99] == 7);
    assert_block(lord, p, 100000, 20);
    assert_live(lord, cpu(), 100000, 1);
    p = (char *)memlord_shim_realloc(lord, p, 50, &here);
    assert_block(lord, p, 50, 10);
    assert_live(lord, cpu(), 50, 1);
    memlord_shim_free(lord, p, NULL);
    assert_live(lord, cpu(), 0, 0);
}

static void realloc_of_nothing_is_a_malloc(void **state) {
    memlord *lord = test_lord(state);
    void *p = memlord_shim_realloc(lord, NULL, 70, &here);
    assert_block(lord, p, 70, 10);
    assert_live(lord, cpu(), 70, 1);
    memlord_shim_free(lord, p, NULL);
}

static void realloc_to_nothing_is_a_free(void **state) {
    memlord *lord = test_lord(state);
    void *p = memlord_shim_malloc(lord, 70, &here);
    memlord_site_stat top;
    assert_null(memlord_shim_realloc(lord, p, 0, &there));
    assert_live(lord, cpu(), 0, 0);
    assert_int_equal(memlord_site_top_free(lord, all(), &top), 1);
    assert_int_equal(top.site->line, 20);
    p = memlord_shim_realloc(lord, NULL, 0, &here); /* as realloc: a block of 0 bytes */
    assert_block(lord, p, 0, 10);
    memlord_shim_free(lord, p, NULL);
    assert_live(lord, cpu(), 0, 0);
}

static void what_cannot_be_had_is_not_recorded(void **state) {
    memlord *lord = test_lord(state);
    void *p = memlord_shim_malloc(lord, 70, &here);
    errno = 0;
    assert_null(memlord_shim_malloc(lord, HUGE_SIZE, &there));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(memlord_shim_calloc(lord, HUGE_SIZE, 8, &there)); /* the product overflows */
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(memlord_shim_realloc(lord, p, HUGE_SIZE, &there));
    assert_int_equal(errno, ENOMEM);
    assert_block(lord, p, 70, 10);
    assert_live(lord, cpu(), 70, 1);
    memlord_shim_free(lord, p, NULL);
}

static void without_a_ledger_it_is_the_host_alone(void **state) {
    char *p = (char *)memlord_shim_malloc(NULL, 100, &here);
    (void)state;
    memset(p, 7, 100);
    p = (char *)memlord_shim_realloc(NULL, p, 1000, &here);
    assert_int_equal(p[99], 7);
    memlord_shim_free(NULL, p, &here);
    p = (char *)memlord_shim_calloc(NULL, 10, 10, &here);
    assert_int_equal(p[99], 0);
    assert_null(memlord_shim_realloc(NULL, p, 0, &here));
}

/* The leak sanitizer looks at the same, where the address space cannot be limited. */
static void a_free_gives_the_memory_back(void **state) {
    memlord *lord = test_lord(state);
    const struct rlimit limit = {1u << 30, RLIM_INFINITY};
    struct rlimit before;
    int i;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    if (!TEST_SANITIZED) {
        struct rlimit lower = limit;
        lower.rlim_max = before.rlim_max;
        assert_int_equal(setrlimit(RLIMIT_AS, &lower), 0);
    }
    for (i = 0; i < 32; i++) { /* 4 GiB in all */
        void *p = memlord_shim_malloc(lord, 64u << 20, NULL);
        void *q = memlord_shim_malloc(lord, 64u << 20, NULL);
        assert_true(p && q);
        memlord_shim_free(lord, p, NULL);
        assert_null(memlord_shim_realloc(lord, q, 0, NULL));
    }
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_live(lord, cpu(), 0, 0);
}

/* -- pages -- */

static void anonymous_pages_are_of_the_cpu(void **state) {
    memlord *lord = test_lord(state);
    char *p = (char *)memlord_shim_mmap(lord, NULL, 3 * page(), PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &here);
    p[3 * page() - 1] = 1;
    assert_block(lord, p, 3 * page(), 10);
    assert_live(lord, all(), 3 * page(), 1);
    assert_int_equal(memlord_shim_munmap(lord, p, 3 * page(), &there), 0);
    assert_live(lord, all(), 0, 0);
}

static void pages_of_a_file_are_mapped(void **state) {
    memlord *lord = test_lord(state);
    char name[] = "/tmp/memlord-test-XXXXXX";
    int fd = mkstemp(name);
    memlord_block_info info;
    char *p;
    assert_true(fd >= 0);
    (void)unlink(name);
    assert_int_equal(ftruncate(fd, (off_t)(2 * page())), 0);
    assert_int_equal(pwrite(fd, "second", 6, (off_t)page()), 6);
    p = (char *)memlord_shim_mmap(lord, NULL, page(), PROT_READ, MAP_SHARED, fd, (int64_t)page(),
                                  &here);
    assert_memory_equal(p, "second", 6);
    assert_live(lord, mapped(), page(), 1);
    assert_live(lord, cpu(), 0, 0);
    assert_ok(memlord_block_find(lord, mapped(), MEMLORD_KEY(p), &info));
    assert_int_equal(info.site->line, 10);
    assert_int_equal(memlord_shim_munmap(lord, p, page(), &there), 0);
    assert_live(lord, mapped(), 0, 0);
    (void)close(fd);
}

static void pages_that_cannot_be_mapped_are_not_recorded(void **state) {
    memlord *lord = test_lord(state);
    errno = 0;
    assert_ptr_equal(memlord_shim_mmap(lord, NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                                       0, NULL),
                     MAP_FAILED);
    assert_int_equal(errno, EINVAL);
    errno = 0;
    assert_ptr_equal(memlord_shim_mmap(lord, NULL, page(), PROT_READ, MAP_SHARED, -1, 0, NULL),
                     MAP_FAILED);
    assert_int_equal(errno, EBADF);
    assert_live(lord, all(), 0, 0);
}

/* Unmaps n bytes of a mapping of `bytes`. Returns 1 if that ended its block, 0 if it was an unknown
   free. */
static int ends(memlord *lord, size_t bytes, size_t n) {
    const uint64_t before = stats_of(lord, all()).unknown_frees;
    void *p = memlord_shim_mmap(lord, NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0,
                                NULL);
    int ended;
    assert_true(p != MAP_FAILED);
    assert_int_equal(memlord_allocated(lord, cpu()), bytes);
    assert_int_equal(memlord_shim_munmap(lord, p, n, NULL), 0);
    ended = !memlord_allocated(lord, cpu());
    assert_int_equal(stats_of(lord, all()).unknown_frees, before + !ended);
    if (!ended) assert_int_equal(memlord_shim_munmap(lord, p, bytes, NULL), 0);
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    return ended;
}
static void sizes_that_mean_the_same_pages_end_the_block(void **state) {
    memlord *lord = test_lord(state);
    const size_t p = page();
    assert_int_equal(ends(lord, 2 * p, 2 * p), 1);
    assert_int_equal(ends(lord, 2 * p, 2 * p - 1), 1);
    assert_int_equal(ends(lord, 2 * p, p + 1), 1);
    assert_int_equal(ends(lord, p + 1, 2 * p), 1);
    assert_int_equal(ends(lord, 1, p), 1);
    assert_int_equal(ends(lord, 2 * p, p), 0);
    assert_int_equal(ends(lord, p + 1, p), 0);
    assert_int_equal(ends(lord, 4 * p, 3 * p + p / 2), 1);
    assert_int_equal(ends(lord, 4 * p, 2 * p + 1), 0);
}

static void an_unmapping_without_a_ledger_unmaps(void **state) {
    memlord *lord = test_lord(state);
    unsigned char in_core;
    void *p = memlord_shim_mmap(NULL, NULL, page(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0,
                                NULL);
    assert_true(p != MAP_FAILED);
    assert_int_equal(memlord_shim_munmap(NULL, p, page(), NULL), 0);
    assert_int_equal(mincore(p, page(), &in_core), -1);
    assert_int_equal(errno, ENOMEM); /* nothing is mapped there */
    assert_live(lord, all(), 0, 0);
}

static void an_unmapping_of_what_is_unknown_keeps_errno(void **state) {
    memlord *lord = test_lord(state);
    void *p = mmap(NULL, page(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = 77;
    assert_int_equal(memlord_shim_munmap(lord, p, page(), NULL), 0);
    assert_int_equal(errno, 77);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 1);
    assert_int_equal(memlord_shim_munmap(lord, (char *)p + 1, page(), NULL), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 1); /* nothing was freed */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_SITES(malloc_records_the_block_at_its_site),
        TEST_SITES(a_free_counts_at_the_site_of_the_free),
        TEST_SITES(calloc_records_the_product_and_gives_zeros),
        TEST(a_free_of_nothing_is_nothing),
        TEST_SITES(realloc_keeps_the_content_and_changes_the_bytes),
        TEST_SITES(realloc_of_nothing_is_a_malloc),
        TEST_SITES(realloc_to_nothing_is_a_free),
        TEST_SITES(what_cannot_be_had_is_not_recorded),
        TEST(without_a_ledger_it_is_the_host_alone),
        TEST(a_free_gives_the_memory_back),
        TEST_SITES(anonymous_pages_are_of_the_cpu),
        TEST_SITES(pages_of_a_file_are_mapped),
        TEST(pages_that_cannot_be_mapped_are_not_recorded),
        TEST(sizes_that_mean_the_same_pages_end_the_block),
        TEST(an_unmapping_without_a_ledger_unmaps),
        TEST(an_unmapping_of_what_is_unknown_keeps_errno),
    };
    return cmocka_run_group_tests_name("shim", tests, NULL, NULL);
}
