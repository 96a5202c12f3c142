/* Bytes for people: written, and read back. */
#include "support.h"

#include <locale.h>

#define KIB ((uint64_t)1024)
#define GIB (KIB * KIB * KIB)

static void assert_written(uint64_t bytes, const char *text) {
    char buf[32];
    assert_ptr_equal(memlord_format_bytes(bytes, buf, sizeof buf), buf);
    assert_string_equal(buf, text);
}

static void bytes_are_written_short(void **state) {
    (void)state;
    assert_written(0, "0 B");
    assert_written(1, "1 B");
    assert_written(1023, "1023 B");
    assert_written(1024, "1 KiB");
    assert_written(1536, "1.5 KiB");
    assert_written(1280, "1.25 KiB");
    assert_written(10 * KIB, "10 KiB");
    assert_written(KIB * KIB, "1 MiB");
    assert_written(GIB + GIB / 2, "1.5 GiB");
    assert_written(KIB * GIB, "1 TiB");
    assert_written(KIB * KIB * GIB, "1 PiB");
    assert_written(GIB * GIB, "1 EiB");
    assert_written(UINT64_C(1152915875107312768), "1 EiB"); /* 1023.995 PiB to the byte */
    assert_written(TEST_MAX_BYTES, "256 TiB");
}

static void decimals_are_two_at_most_and_rounded(void **state) {
    (void)state;
    assert_written(1025, "1 KiB");
    assert_written(1029, "1 KiB");
    assert_written(1030, "1.01 KiB");
    assert_written(1126, "1.1 KiB");
    assert_written(1023 * KIB + 1014, "1023.99 KiB");
    assert_written(KIB * KIB - 1, "1 MiB");
    assert_written(2 * GIB - 1, "2 GiB");
    assert_written(UINT64_MAX, "16 EiB");
}

static void a_small_buffer_is_filled_and_ended(void **state) {
    char buf[8];
    (void)state;
    memset(buf, '#', sizeof buf);
    assert_ptr_equal(memlord_format_bytes(1536, buf, 4), buf);
    assert_true(strlen(buf) <= 3);
    assert_int_equal(buf[4], '#');
    assert_ptr_equal(memlord_format_bytes(1536, buf, 1), buf);
    assert_int_equal(buf[0], 0);
    buf[0] = '#';
    assert_ptr_equal(memlord_format_bytes(1536, buf, 0), buf);
    assert_int_equal(buf[0], '#');
    assert_null(memlord_format_bytes(1536, NULL, 0));
    assert_null(memlord_format_bytes(1536, NULL, 32));
}

static void assert_read(const char *text, uint64_t bytes) {
    uint64_t out = 12345;
    if (memlord_parse_bytes(text, &out) != MEMLORD_OK) fail_msg("\"%s\" was not read", text);
    if (out != bytes) fail_msg("\"%s\" was read as %llu", text, (unsigned long long)out);
}

static void bytes_are_read(void **state) {
    (void)state;
    assert_read("0", 0);
    assert_read("512", 512);
    assert_read("512B", 512);
    assert_read("512 B", 512);
    assert_read("1.5 GiB", GIB + GIB / 2);
    assert_read("1.5GiB", GIB + GIB / 2);
    assert_read("2GB", 2000000000);
    assert_read("2G", 2000000000);
    assert_read("2GiB", 2 * GIB);
    assert_read("2Gi", 2 * GIB);
    assert_read("2gib", 2 * GIB);
    assert_read("3 kb", 3000);
    assert_read("3 KiB", 3072);
    assert_read("0.5 KiB", 512);
    assert_read("1.25KiB", 1280);
    assert_read("1 MB", 1000000);
    assert_read("1 TiB", KIB * GIB);
    assert_read("1 TB", 1000000000000);
    assert_read("1 PiB", KIB * KIB * GIB);
    assert_read("15 EiB", 15 * GIB * GIB);
}

static void the_largest_number_is_read_exactly(void **state) {
    (void)state;
    assert_read("18446744073709551615", UINT64_MAX);
    assert_read("9007199254740993", 9007199254740993u);
    assert_read("18446744073709551615 B", UINT64_MAX);
}

static void what_is_no_size_is_refused_and_out_untouched(void **state) {
    static const char *const bad[] = {
        "", " ", "B", "KiB", "abc", "-1", "-1 GiB", "1.5.2", "1..5 KiB", "1 XB", "1 GiBB",
        "1 GiB x", "1 K iB", "0x10", "1e9", "nan", "inf", "infinity GiB", "1,5 GiB",
        "18446744073709551616", "16 EiB", "16777216 TiB", "99999999999999999999999999 GiB",
        "1%n", "GiB 1", "1 iB", "1 Ki B"};
    uint64_t out = 77;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (memlord_parse_bytes(bad[i], &out) != MEMLORD_E_INVALID)
            fail_msg("\"%s\" was read as %llu", bad[i], (unsigned long long)out);
        assert_int_equal(out, 77);
    }
    assert_int_equal(memlord_parse_bytes(NULL, &out), MEMLORD_E_INVALID);
    assert_int_equal(memlord_parse_bytes("1", NULL), MEMLORD_E_INVALID);
}

static void what_is_written_reads_back_within_its_decimals(void **state) {
    uint64_t seed = 1;
    int i;
    (void)state;
    for (i = 0; i < 10000; i++) {
        uint64_t bytes = test_random(&seed) >> (1 + test_random(&seed) % 63), back;
        char buf[32];
        memlord_format_bytes(bytes, buf, sizeof buf);
        assert_ok(memlord_parse_bytes(buf, &back));
        assert_true((back > bytes ? back - bytes : bytes - back) <= bytes / 100);
    }
}

static void a_locale_with_a_comma_changes_nothing(void **state) {
    (void)state;
    TEST_COMMA();
    assert_written(1536, "1.5 KiB");
    assert_read("1.5 KiB", 1536);
    setlocale(LC_ALL, "C");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_written_short),
        cmocka_unit_test(decimals_are_two_at_most_and_rounded),
        cmocka_unit_test(a_small_buffer_is_filled_and_ended),
        cmocka_unit_test(bytes_are_read),
        cmocka_unit_test(the_largest_number_is_read_exactly),
        cmocka_unit_test(what_is_no_size_is_refused_and_out_untouched),
        cmocka_unit_test(what_is_written_reads_back_within_its_decimals),
        cmocka_unit_test(a_locale_with_a_comma_changes_nothing),
    };
    return cmocka_run_group_tests_name("bytes", tests, NULL, NULL);
}
