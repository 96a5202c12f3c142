/* The text that MemLord writes: what of a name is written as it is, byte for byte, and how numbers,
   devices and results read. Names go through an explanation, which is for people, and through
   JSON. */
#include "support.h"

/* -- names -- */

#define BAD "\xef\xbf\xbd" /* U+FFFD, before the two digits of a byte that is not written */

typedef struct name {
    const char *given, *people, *json; /* NULL: as the one before */
} name;
static const name names[] = {
    {"plain", NULL, NULL},
    {"quotes \" and \\, and '", NULL, "quotes \\u0022 and \\u005c, and '"},
    {"<script> & </script>", NULL, "\\u003cscript\\u003e \\u0026 \\u003c/script\\u003e"},
    {"\x01\x1f\x20\x7e", BAD "01" BAD "1f ~", NULL},
    {"\t\r\n\x1b[31m\x7f", BAD "09" BAD "0d" BAD "0a" BAD "1b[31m" BAD "7f", NULL},
    /* of two bytes: from U+0080 to U+07FF */
    {"\xc2\x80", BAD "c2" BAD "80", NULL}, /* a control */
    {"\xc2\x9f", BAD "c2" BAD "9f", NULL},
    {"\xc2\xa0\xc3\xa4\xdf\xbf", NULL, NULL},
    {"\xc0\x80", BAD "c0" BAD "80", NULL}, /* one byte would do */
    {"\xc1\xbf", BAD "c1" BAD "bf", NULL},
    {"\xd8\x9b\xd8\x9d", NULL, NULL},
    {"\xd8\x9c", BAD "d8" BAD "9c", NULL}, /* U+061C turns the direction of the text */
    /* of three: from U+0800 to U+FFFF */
    {"\xe0\xa0\x80\xe2\x82\xac\xef\xbf\xbf", NULL, NULL},
    {"\xe0\x9f\xbf", BAD "e0" BAD "9f" BAD "bf", NULL},
    {"\xe2\x80\x8d\xe2\x80\x90", NULL, NULL},
    {"\xe2\x80\x8e", BAD "e2" BAD "80" BAD "8e", NULL}, /* U+200E and U+200F, likewise */
    {"\xe2\x80\x8f", BAD "e2" BAD "80" BAD "8f", NULL},
    {"\xe2\x80\xa7\xe2\x80\xaf", NULL, NULL},
    {"\xe2\x80\xa8", BAD "e2" BAD "80" BAD "a8", NULL}, /* U+2028 to U+202E */
    {"\xe2\x80\xae", BAD "e2" BAD "80" BAD "ae", NULL},
    {"\xe2\x81\xa5\xe2\x81\xaa", NULL, NULL},
    {"\xe2\x81\xa6", BAD "e2" BAD "81" BAD "a6", NULL}, /* U+2066 to U+2069 */
    {"\xe2\x81\xa9", BAD "e2" BAD "81" BAD "a9", NULL},
    {"\xed\x9f\xbf\xee\x80\x80", NULL, NULL},
    {"\xed\xa0\x80", BAD "ed" BAD "a0" BAD "80", NULL}, /* surrogates */
    {"\xed\xbf\xbf", BAD "ed" BAD "bf" BAD "bf", NULL},
    {"\xef\xbf\xbc\xef\xbf\xbe", NULL, NULL},
    {"\xef\xbf\xbd", BAD "ef" BAD "bf" BAD "bd", NULL}, /* U+FFFD itself: no two names are equal */
    /* of four: from U+10000 to U+10FFFF */
    {"\xf0\x90\x80\x80\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf", NULL, NULL},
    {"\xf0\x8f\xbf\xbf", BAD "f0" BAD "8f" BAD "bf" BAD "bf", NULL},
    {"\xf4\x90\x80\x80", BAD "f4" BAD "90" BAD "80" BAD "80", NULL},
    {"\xf8\x88\x80\x80\x80", BAD "f8" BAD "88" BAD "80" BAD "80" BAD "80", NULL},
    /* cut, or begun in the middle */
    {"\x80 \xbf \xfe \xff", BAD "80 " BAD "bf " BAD "fe " BAD "ff", NULL},
    {"\xc3 \xe2\x82 \xf0\x9f\x98 ", BAD "c3 " BAD "e2" BAD "82 " BAD "f0" BAD "9f" BAD "98 ", NULL},
    {"\xe2\xc3\xa4", BAD "e2\xc3\xa4", NULL},
};

/* Asserts that `text` has the tag between an a and a z. */
static void assert_has(const char *text, const char *tag, size_t at) {
    char wanted[200];
    snprintf(wanted, sizeof wanted, "a%sz", tag);
    if (!strstr(text, wanted))
        fail_msg("name %u: no \"%s\" in\n%s", (unsigned)at, wanted, text);
}

static void a_name_is_written_as_it_is_or_its_bytes_are_told(void **state) {
    memlord *lord = test_lord(state);
    char tag[100], text[1000], *json;
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(tag, sizeof tag, "a%sz", names[i].given);
        assert_ok(memlord_tag_begin(lord, tag));
        assert_ok(memlord_alloc(lord, cuda(0), (i + 1) * 64, 1000 + i, NULL)); /* the largest */
        assert_ok(memlord_tag_end(lord));
        memlord_explain(lord, cuda(0), 1, text, sizeof text);
        assert_has(text, names[i].people ? names[i].people : names[i].given, i);
    }
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    for (i = 0; i < sizeof names / sizeof *names; i++)
        assert_has(json, names[i].json ? names[i].json
                         : names[i].people ? names[i].people : names[i].given, i);
    free(json);
}

/* -- devices and results -- */

static void every_device_has_its_name(void **state) {
    static const struct {
        int type, index;
        const char *text;
    } devices[] = {
        {MEMLORD_DEVICE_CPU, 0, "cpu"},         {MEMLORD_DEVICE_CPU, 1, "cpu:1"},
        {MEMLORD_DEVICE_CPU, -1, "cpu"},        {MEMLORD_DEVICE_PINNED, 0, "pinned"},
        {MEMLORD_DEVICE_PINNED, 2, "pinned:2"}, {MEMLORD_DEVICE_MAPPED, 0, "mapped"},
        {MEMLORD_DEVICE_CUDA, 0, "cuda:0"},     {MEMLORD_DEVICE_CUDA, 10, "cuda:10"},
        {MEMLORD_DEVICE_HIP, 32767, "hip:32767"}, {MEMLORD_DEVICE_SYCL, 9, "sycl:9"},
        {MEMLORD_DEVICE_METAL, 0, "metal:0"},   {MEMLORD_DEVICE_VULKAN, 0, "vulkan:0"},
        {MEMLORD_DEVICE_NPU, -1, "npu"},        {MEMLORD_DEVICE_OTHER, 0, "other:0"},
        {MEMLORD_ANY, MEMLORD_ANY, "all"},      {MEMLORD_DEVICE_TYPE_COUNT, 0, "?"},
        {-2, 0, "?"},                           {99, 3, "?"}};
    char text[16];
    size_t i;
    (void)state;
    for (i = 0; i < sizeof devices / sizeof *devices; i++) {
        memlord_device d = memlord_device_make(devices[i].type, devices[i].index);
        assert_int_equal(memlord_device_name(d, text, sizeof text), strlen(devices[i].text));
        assert_string_equal(text, devices[i].text);
    }
}

static void a_number_that_is_no_result_is_said_to_be_none(void **state) {
    (void)state;
    assert_string_equal(memlord_result_text(MEMLORD_OK), "ok");
    assert_string_equal(memlord_result_text(MEMLORD_E_UNSUPPORTED),
                        "not in this build or on this platform");
    assert_string_equal(memlord_result_text(MEMLORD_RESULT_COUNT), "not a result");
    assert_string_equal(memlord_result_text((memlord_result)-1), "not a result");
}

/* -- bytes -- */

static void assert_written(uint64_t bytes, const char *text) {
    char buf[32];
    assert_string_equal(memlord_format_bytes(bytes, buf, sizeof buf), text);
}

static void a_unit_begins_where_two_decimals_reach_1024_of_the_one_below(void **state) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    char text[32];
    int unit;
    (void)state;
    for (unit = 1; unit < 7; unit++) {
        const uint64_t one = (uint64_t)1 << (10 * unit), step = one / 1024;
        snprintf(text, sizeof text, "1 %s", units[unit]);
        assert_written(one, text);
        assert_written(one - (unit > 1 ? step / 1024 : 0), text);
        if (unit < 6) {
            snprintf(text, sizeof text, "1023.99 %s", units[unit]);
            assert_written(1023 * one + one / 1024 * 1018, text);
            snprintf(text, sizeof text, "1 %s", units[unit + 1]);
            assert_written(1023 * one + one / 1024 * 1019, text); /* 1023.9951 */
        }
        snprintf(text, sizeof text, "10.07 %s", units[unit]);
        assert_written(10 * one + one / 1024 * 72, text);
        snprintf(text, sizeof text, "2.5 %s", units[unit]);
        assert_written(2 * one + one / 2, text);
    }
}

static void assert_read(const char *text, uint64_t bytes) {
    uint64_t out = 12345;
    if (memlord_parse_bytes(text, &out) != MEMLORD_OK) fail_msg("\"%s\" was not read", text);
    if (out != bytes) fail_msg("\"%s\" was read as %llu", text, (unsigned long long)out);
}
static void assert_refused(const char *text) {
    uint64_t out;
    if (memlord_parse_bytes(text, &out) == MEMLORD_OK)
        fail_msg("\"%s\" was read as %llu", text, (unsigned long long)out);
}

static void every_unit_is_read_in_either_case(void **state) {
    static const char letters[] = "KMGTPE";
    uint64_t decimal = 1, binary = 1;
    char text[16];
    size_t i;
    (void)state;
    for (i = 0; i < 6; i++) {
        char upper = letters[i], lower = (char)(upper + 32);
        decimal *= 1000;
        binary *= 1024;
        snprintf(text, sizeof text, "3%c", upper), assert_read(text, 3 * decimal);
        snprintf(text, sizeof text, "3%c", lower), assert_read(text, 3 * decimal);
        snprintf(text, sizeof text, "3%cB", lower), assert_read(text, 3 * decimal);
        snprintf(text, sizeof text, "3 %cb", upper), assert_read(text, 3 * decimal);
        snprintf(text, sizeof text, "3%ci", lower), assert_read(text, 3 * binary);
        snprintf(text, sizeof text, "3%cIB", upper), assert_read(text, 3 * binary);
        snprintf(text, sizeof text, "3%cib", upper), assert_read(text, 3 * binary);
        snprintf(text, sizeof text, "1.5 %ciB", upper), assert_read(text, binary + binary / 2);
        snprintf(text, sizeof text, "0.25 %cB", lower), assert_read(text, decimal / 4);
    }
    assert_read("7b", 7);
    assert_read("7B", 7);
    assert_refused("7a");
    assert_refused("7c");
    assert_refused("7f");
    assert_refused("7KK");
    assert_refused("7KBB");
    assert_refused("7Bi");
    assert_refused("7@");
    assert_refused("7[");
}

static void spaces_may_stand_around_number_and_unit(void **state) {
    (void)state;
    assert_read("  12", 12);
    assert_read("12  ", 12);
    assert_read("  12   KiB  ", 12288);
    assert_refused("1 2");
    assert_refused("12 K B");
    assert_refused("\t12");
}

static void nine_decimals_count_and_further_ones_are_dropped(void **state) {
    (void)state;
    assert_read("0.123456789 GB", 123456789);
    assert_read("0.1234567899 GB", 123456789);
    assert_read("0.12345678999999999999999999 GB", 123456789);
    assert_read("1.000000001 GiB", 1073741825);
    assert_read("1.999999999 GiB", 2147483646);
    assert_read("2.000000009 TB", 2000000009000);
    assert_read(".5 KiB", 512);
    assert_read(".5KB", 500);
    assert_read("0.0009 KB", 0);
    assert_refused(".");
    assert_refused(". KiB");
    assert_refused("1.5");
    assert_refused("1.5 B");
    assert_refused("1.0");
}

static void what_exceeds_64_bits_is_refused_to_the_byte(void **state) {
    (void)state;
    assert_read("18446744073709551615", UINT64_MAX);
    assert_refused("18446744073709551616");
    assert_refused("18446744073709551620");
    assert_refused("184467440737095516150");
    assert_read("18446744073709551.615 KB", UINT64_MAX);
    assert_refused("18446744073709551.616 KB");
    assert_refused("18446744073709552 KB");
    assert_read("18014398509481983 KiB", UINT64_MAX - 1023);
    assert_read("18014398509481983.9999 KiB", UINT64_MAX);
    assert_refused("18014398509481984 KiB");
    assert_read("15.999999999 EiB", UINT64_MAX - 1152921504u);
    assert_refused("16 EiB");
}

/* -- durations -- */

/* The moments of checkpoints, after the ledger began. */
static void a_duration_is_written_in_the_unit_that_gives_1_to_1000(void **state) {
    static const struct {
        uint64_t ns;
        const char *text;
    } durations[] = {
        {0, "0 ns"},          {1, "1 ns"},           {999, "999 ns"},
        {1000, "1 us"},       {1049, "1 us"},        {1050, "1.1 us"},
        {1500, "1.5 us"},     {10000, "10 us"},      {999949, "999.9 us"},
        {999950, "1 ms"},     {1000000, "1 ms"},     {1234567, "1.2 ms"},
        {250000000, "250 ms"}, {999949000, "999.9 ms"}, {999950000, "1 s"},
        {1000000000, "1 s"},  {59960000000, "60 s"}, {59940000000 + 1000000000, "60.9 s"},
        {3600000000000, "3600 s"}};
    test_case *t = (test_case *)*state;
    const uint64_t begin = t->now;
    char point[16], wanted[64], *report;
    size_t i, n = sizeof durations / sizeof *durations;
    assert_ok(memlord_alloc(t->lord, cpu(), 0x1000, 5, NULL));
    for (i = 0; i < n; i++) {
        t->now = begin + durations[i].ns;
        snprintf(point, sizeof point, "point-%02u-", (unsigned)i);
        assert_ok(memlord_checkpoint(t->lord, point));
    }
    report = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    for (i = 0; i < n; i++) {
        snprintf(wanted, sizeof wanted, "%12s%12s%11u blocks  point-%02u-\n", durations[i].text, "5 B",
                 1u, (unsigned)i);
        if (!strstr(report, wanted)) fail_msg("no \"%s\" in\n%s", wanted, report);
    }
    free(report);
}

/* Of a long path the end is written, from a whole letter on: here 60 bytes would cut one. */
static void a_site_is_written_with_what_it_has(void **state) {
    static char path[100];
    const memlord_site sites[] = {{path, "f", 7}, {"", "only_a_function", 0}, {"only_a_file.c", "", 5}};
    memlord *lord = test_lord(state);
    char *text, *json;
    uint64_t i;
    for (i = 0; i < 40; i++) memcpy(path + 2 * i, "\xc3\xa9", 2);
    memcpy(path + 80, "x.c", 4);
    for (i = 0; i < 3; i++) assert_ok(memlord_alloc(lord, cpu(), 64 * (i + 1), 10, &sites[i]));
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(text, " f ...\xc3\xa9"));
    assert_null(strstr(text, "...\xa9"));
    assert_non_null(strstr(text, " only_a_function\n"));
    assert_non_null(strstr(text, " only_a_file.c:5\n"));
    assert_non_null(strstr(json, "{\"file\":\"\",\"function\":\"only_a_function\",\"line\":0}"));
    assert_non_null(strstr(json, "{\"file\":\"only_a_file.c\",\"function\":\"\",\"line\":5}"));
    free(text);
    free(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_name_is_written_as_it_is_or_its_bytes_are_told),
        cmocka_unit_test(every_device_has_its_name),
        cmocka_unit_test(a_number_that_is_no_result_is_said_to_be_none),
        cmocka_unit_test(a_unit_begins_where_two_decimals_reach_1024_of_the_one_below),
        cmocka_unit_test(every_unit_is_read_in_either_case),
        cmocka_unit_test(spaces_may_stand_around_number_and_unit),
        cmocka_unit_test(nine_decimals_count_and_further_ones_are_dropped),
        cmocka_unit_test(what_exceeds_64_bits_is_refused_to_the_byte),
        TEST_SITES(a_site_is_written_with_what_it_has),
        TEST_FAKES(a_duration_is_written_in_the_unit_that_gives_1_to_1000),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
