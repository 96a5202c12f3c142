/* A small stand-in for cmocka, for the targets that Debian has no cmocka for: what the suites use
   of its API, with its output in TAP. One test that fails does not end the suite; a crash does. A
   suite is one file, so that all of this is static. */
#ifndef MEMLORD_TESTS_CMOCKA_H
#define MEMLORD_TESTS_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST_CMOCKA_UNUSED __attribute__((unused))

typedef void (*CMUnitTestFunction)(void **state);
typedef int (*CMFixtureFunction)(void **state);

struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func, teardown_func;
    void *initial_state;
};

#define cmocka_unit_test(f) {#f, f, NULL, NULL, NULL}
#define cmocka_unit_test_setup(f, setup) {#f, f, setup, NULL, NULL}
#define cmocka_unit_test_teardown(f, teardown) {#f, f, NULL, teardown, NULL}
#define cmocka_unit_test_setup_teardown(f, setup, teardown) {#f, f, setup, teardown, NULL}

enum { TEST_PASSED, TEST_FAILED, TEST_SKIPPED };

/* Where a test of this thread ends early; NULL in a thread that runs none, where a failure ends
   the process. */
static __thread jmp_buf *test_cmocka_end;

TEST_CMOCKA_UNUSED static void print_message(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
TEST_CMOCKA_UNUSED static void print_error(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

static void print_message(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    fflush(stdout);
}

static void print_error(const char *format, ...) {
    va_list args;
    printf("# ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    fflush(stdout);
}

TEST_CMOCKA_UNUSED __attribute__((noreturn)) static void test_cmocka_leave(int outcome) {
    if (test_cmocka_end) longjmp(*test_cmocka_end, outcome);
    exit(255);
}

TEST_CMOCKA_UNUSED __attribute__((noreturn)) static void test_cmocka_fail(const char *file,
                                                                         int line) {
    print_error("%s:%d: failed\n", file, line);
    test_cmocka_leave(TEST_FAILED);
}

TEST_CMOCKA_UNUSED static void test_cmocka_equal(uintmax_t a, uintmax_t b, int wanted,
                                                 const char *file, int line) {
    if ((a == b) == wanted) return;
    print_error("0x%llx %s 0x%llx\n", (unsigned long long)a, wanted ? "!=" : "==",
                (unsigned long long)b);
    test_cmocka_fail(file, line);
}

TEST_CMOCKA_UNUSED static void test_cmocka_in_range(uintmax_t value, uintmax_t low, uintmax_t high,
                                                    const char *file, int line) {
    if (value >= low && value <= high) return;
    print_error("%llu is not from %llu to %llu\n", (unsigned long long)value,
                (unsigned long long)low, (unsigned long long)high);
    test_cmocka_fail(file, line);
}

TEST_CMOCKA_UNUSED static void test_cmocka_text(const char *a, const char *b, int wanted,
                                                const char *file, int line) {
    if (a && b && (strcmp(a, b) == 0) == wanted) return;
    print_error("\"%s\" %s \"%s\"\n", a ? a : "(null)", wanted ? "!=" : "==", b ? b : "(null)");
    test_cmocka_fail(file, line);
}

TEST_CMOCKA_UNUSED static void test_cmocka_bytes(const void *a, const void *b, size_t size,
                                                 const char *file, int line) {
    const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;
    size_t i;
    for (i = 0; i < size; i++)
        if (x[i] != y[i]) break;
    if (i == size) return;
    print_error("byte %lu of %lu: 0x%02x != 0x%02x\n", (unsigned long)i, (unsigned long)size,
                (unsigned)x[i], (unsigned)y[i]);
    test_cmocka_fail(file, line);
}

TEST_CMOCKA_UNUSED static void test_cmocka_true(int value, const char *text, const char *file,
                                                int line) {
    if (value) return;
    print_error("%s\n", text);
    test_cmocka_fail(file, line);
}

#define assert_true(c) test_cmocka_true((c) ? 1 : 0, #c, __FILE__, __LINE__)
#define assert_false(c) test_cmocka_true((c) ? 0 : 1, "not " #c, __FILE__, __LINE__)
#define assert_null(p) assert_true(!(p))
#define assert_non_null(p) assert_true((p))
#define assert_int_equal(a, b) \
    test_cmocka_equal((uintmax_t)(a), (uintmax_t)(b), 1, __FILE__, __LINE__)
#define assert_int_not_equal(a, b) \
    test_cmocka_equal((uintmax_t)(a), (uintmax_t)(b), 0, __FILE__, __LINE__)
#define assert_ptr_equal(a, b) \
    test_cmocka_equal((uintptr_t)(a), (uintptr_t)(b), 1, __FILE__, __LINE__)
#define assert_ptr_not_equal(a, b) \
    test_cmocka_equal((uintptr_t)(a), (uintptr_t)(b), 0, __FILE__, __LINE__)
#define assert_in_range(value, low, high)                                             \
    test_cmocka_in_range((uintmax_t)(value), (uintmax_t)(low), (uintmax_t)(high), __FILE__, \
                         __LINE__)
#define assert_string_equal(a, b) \
    test_cmocka_text((const char *)(a), (const char *)(b), 1, __FILE__, __LINE__)
#define assert_string_not_equal(a, b) \
    test_cmocka_text((const char *)(a), (const char *)(b), 0, __FILE__, __LINE__)
#define assert_memory_equal(a, b, size) test_cmocka_bytes(a, b, size, __FILE__, __LINE__)
#define fail() test_cmocka_fail(__FILE__, __LINE__)
#define fail_msg(...) (print_error(__VA_ARGS__), print_message("\n"), fail())
#define skip() test_cmocka_leave(TEST_SKIPPED)

/* Runs a fixture or a test; answers how it ended. */
static int test_cmocka_guard(CMFixtureFunction fixture, CMUnitTestFunction test, void **state) {
    jmp_buf end;
    int outcome = setjmp(end);
    if (outcome == TEST_PASSED) {
        test_cmocka_end = &end;
        if (test) test(state);
        if (fixture && fixture(state)) {
            test_cmocka_end = NULL;
            return TEST_FAILED;
        }
    }
    test_cmocka_end = NULL;
    return outcome;
}

static int test_cmocka_run(const struct CMUnitTest *test, void *group) {
    void *state = test->initial_state ? test->initial_state : group;
    int outcome = test_cmocka_guard(test->setup_func, NULL, &state);
    int ended;
    if (outcome != TEST_PASSED) return outcome;
    outcome = test_cmocka_guard(NULL, test->test_func, &state);
    ended = test_cmocka_guard(test->teardown_func, NULL, &state);
    return ended == TEST_PASSED ? outcome : ended;
}

static int test_cmocka_group(const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                             CMFixtureFunction teardown) {
    void *state = NULL;
    size_t i;
    int failed = 0;
    print_message("1..%lu\n", (unsigned long)n);
    if (test_cmocka_guard(setup, NULL, &state) != TEST_PASSED) return 1;
    for (i = 0; i < n; i++) {
        int outcome = test_cmocka_run(&tests[i], state);
        failed += outcome == TEST_FAILED;
        print_message("%s %lu %s %s\n", outcome == TEST_FAILED ? "not ok" : "ok",
                      (unsigned long)i + 1, outcome == TEST_SKIPPED ? "# SKIP" : "-",
                      tests[i].name);
    }
    return failed + (test_cmocka_guard(teardown, NULL, &state) != TEST_PASSED);
}

#define cmocka_run_group_tests(tests, setup, teardown) \
    test_cmocka_group(tests, sizeof(tests) / sizeof *(tests), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown) \
    cmocka_run_group_tests(tests, setup, teardown)

#endif /* MEMLORD_TESTS_CMOCKA_H */
