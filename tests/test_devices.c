/* Devices: their names, selectors, labels and how many there may be. */
#include "support.h"

#define MAX_DEVICES 128 /* the default of MEMLORD_MAX_DEVICES */

static void assert_parses(const char *text, int type, int index) {
    memlord_device device = {-7, -7};
    assert_ok(memlord_device_parse(text, &device));
    assert_int_equal(device.type, type);
    assert_int_equal(device.index, index);
}

static void names_are_read_in_any_case(void **state) {
    (void)state;
    assert_parses("cuda:1", MEMLORD_DEVICE_CUDA, 1);
    assert_parses("CUDA1", MEMLORD_DEVICE_CUDA, 1);
    assert_parses("Cuda:12", MEMLORD_DEVICE_CUDA, 12);
    assert_parses("vulkan:0", MEMLORD_DEVICE_VULKAN, 0);
    assert_parses("cuda:32767", MEMLORD_DEVICE_CUDA, 32767);
}

static void a_bare_type_is_a_selector_and_cpu_a_device(void **state) {
    (void)state;
    assert_parses("cuda", MEMLORD_DEVICE_CUDA, MEMLORD_ANY);
    assert_parses("HIP", MEMLORD_DEVICE_HIP, MEMLORD_ANY);
    assert_parses("cpu", MEMLORD_DEVICE_CPU, 0);
    assert_parses("all", MEMLORD_ANY, MEMLORD_ANY);
}

static void names_of_engines_are_read(void **state) {
    (void)state;
    assert_parses("mps", MEMLORD_DEVICE_METAL, MEMLORD_ANY);
    assert_parses("mps:0", MEMLORD_DEVICE_METAL, 0);
    assert_parses("XPU:1", MEMLORD_DEVICE_SYCL, 1);
    assert_parses("xpu", MEMLORD_DEVICE_SYCL, MEMLORD_ANY);
    assert_parses("ROCm0", MEMLORD_DEVICE_HIP, 0);
    assert_parses("rocm", MEMLORD_DEVICE_HIP, MEMLORD_ANY);
    assert_parses("CUDA_Host", MEMLORD_DEVICE_PINNED, 0);
    assert_parses("CPU_Mapped", MEMLORD_DEVICE_MAPPED, 0);
    assert_parses("cpu_mapped", MEMLORD_DEVICE_MAPPED, 0);
}

static void what_is_no_device_is_refused_and_out_untouched(void **state) {
    static const char *const bad[] = {
        "", "gpu", "cuda:", "cuda:-1", "cuda:32768", "cuda:99999999999999999999", "cuda:1x",
        "cuda::1", "cuda1:2", "cudax", "cud", ":1", "1", "cuda:0x1", "all:1", "cuda:1,cuda:2",
        "cuda: 1", "%n", "cpu-1", "mp", "mpsx", "xpu:", "rocm-1", "cuda_hos", "cuda_host1x",
        "cpu_", "cuda1_host"};
    memlord_device device = {-7, -7};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (memlord_device_parse(bad[i], &device) != MEMLORD_E_INVALID)
            fail_msg("\"%s\" was taken for a device", bad[i]);
        assert_int_equal(device.type, -7);
        assert_int_equal(device.index, -7);
    }
    assert_int_equal(memlord_device_parse(NULL, &device), MEMLORD_E_INVALID);
    assert_int_equal(memlord_device_parse("cpu", NULL), MEMLORD_E_INVALID);
}

static void assert_named(memlord_device device, const char *text) {
    char name[64];
    assert_int_equal(memlord_device_name(device, name, sizeof name), strlen(text));
    assert_string_equal(name, text);
}

static void devices_and_selectors_have_names(void **state) {
    (void)state;
    assert_named(cuda(1), "cuda:1");
    assert_named(cuda(0), "cuda:0");
    assert_named(cpu(), "cpu");
    assert_named(cuda(MEMLORD_ANY), "cuda");
    assert_named(all(), "all");
}

static void a_name_reads_back_as_its_device(void **state) {
    static const int indices[] = {0, 1, 127, 32767};
    int type;
    size_t i;
    (void)state;
    for (type = 0; type < MEMLORD_DEVICE_TYPE_COUNT; type++)
        for (i = 0; i < 4; i++) {
            char name[64];
            assert_true(memlord_device_name(memlord_device_make(type, indices[i]), name,
                                            sizeof name) < sizeof name);
            assert_parses(name, type, indices[i]);
        }
}

static void a_name_is_cut_as_snprintf_cuts(void **state) {
    char name[8];
    (void)state;
    memset(name, '#', sizeof name);
    assert_int_equal(memlord_device_name(cuda(12), name, 5), 7);
    assert_memory_equal(name, "cuda\0###", 8);
    assert_int_equal(memlord_device_name(cuda(12), name, 1), 7);
    assert_int_equal(name[0], 0);
    assert_int_equal(memlord_device_name(cuda(12), NULL, 0), 7);
}

static void a_bad_device_still_has_some_name(void **state) {
    char name[64] = "";
    (void)state;
    assert_true(memlord_device_name(memlord_device_make(99, 3), name, sizeof name) > 0);
    assert_true(strlen(name) > 0);
}

static void what_does_not_fit_16_bits_stays_refused(void **state) {
    memlord *lord = test_lord(state);
    int bad[6][2] = {{0, 70000}, {0, -70000}, {70000, 0}, {-70000, 0}, {65536, 0}, {0, 65536}};
    size_t i;
    for (i = 0; i < 6; i++)
        assert_int_equal(
            memlord_alloc(lord, memlord_device_make(bad[i][0], bad[i][1]), 0x1000, 1, NULL),
            MEMLORD_E_DEVICE);
    assert_int_equal(memlord_devices(lord, NULL, 0), 0);
}

static void every_call_refuses_a_bad_device(void **state) {
    memlord *lord = test_lord(state);
    memlord_device bad[5] = {{MEMLORD_DEVICE_TYPE_COUNT, 0}, {-2, 0}, {INT16_MAX, 0},
                             {MEMLORD_ANY, MEMLORD_ANY}, {MEMLORD_ANY, 0}};
    memlord_realloc_token token;
    memlord_block block = {{0, 0}, 0x1000, 8};
    memlord_block_info info;
    memlord_meta meta;
    size_t i;
    memset(&meta, 0, sizeof meta);
    for (i = 0; i < 5; i++) {
        memlord_device d = block.device = bad[i];
        assert_int_equal(memlord_alloc(lord, d, 0x1000, 8, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_free(lord, d, 0x1000, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_realloc(lord, d, 0, 0x1000, 8, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_realloc_begin(lord, d, 0x1000, &token), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_track(lord, d, 0x1000, 8, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_retain(lord, d, 0x1000, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_release(lord, d, 0x1000, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_alloc_n(lord, &block, 1, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_free_n(lord, &block, 1, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_track_n(lord, &block, 1, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_release_n(lord, &block, 1, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_arena_add(lord, d, 8, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_device_label_set(lord, d, "x"), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_expect(lord, d, "x", 8), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_block_find(lord, d, 0x1000, &info), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_block_describe(lord, d, 0x1000, &meta), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_block_retag(lord, d, 0x1000, "x"), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_block_containing(lord, d, 0x1000, &info), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_free_done(lord, d, 0x1000), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_copy(lord, d, cpu(), 8), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_copy(lord, cpu(), d, 8), MEMLORD_E_DEVICE);
    }
    assert_int_equal(memlord_devices(lord, NULL, 0), 0);
}

static void an_alloc_wants_an_index(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_alloc(lord, cuda(MEMLORD_ANY), 0x1000, 8, NULL), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_arena_add(lord, cuda(MEMLORD_ANY), 8, NULL), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static int no_part(void *user, const memlord_part_info *part) {
    (void)part;
    ++*(int *)user;
    return 0;
}
static void readers_of_a_bad_selector_answer_0(void **state) {
    memlord *lord = test_lord(state);
    const memlord_device bads[] = {{99, MEMLORD_ANY}, {MEMLORD_ANY, 0}, {MEMLORD_DEVICE_CPU, -2}, {-2, 0}},
                         bad = {99, 0};
    memlord_stats stats;
    memlord_block_info info;
    int parts = 0;
    size_t i;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 8, NULL));
    for (i = 0; i < sizeof bads / sizeof *bads; i++) {
        assert_int_equal(memlord_stats_get(lord, bads[i], &stats), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_allocated(lord, bads[i]), 0);
    }
    assert_ok(memlord_part_add(lord, cpu(), 0x1000, 0, 4, NULL));
    memset(&info, 0xee, sizeof info);
    assert_int_equal(memlord_blocks_top(lord, bad, &info, 1), 0);
    assert_int_equal(info.bytes, 0xeeeeeeeeeeeeeeeeu);
    assert_int_equal(memlord_blocks_top(lord, cpu(), NULL, 1), 0);
    assert_int_equal(memlord_parts_each(lord, bad, 0x1000, no_part, &parts), 0);
    assert_int_equal(memlord_parts_each(lord, cpu(), 0, no_part, &parts), 0);
    assert_int_equal(memlord_parts_each(lord, cpu(), UINT64_MAX, no_part, &parts), 0);
    assert_int_equal(memlord_parts_each(lord, cpu(), 0x1000, NULL, &parts), 0);
    assert_int_equal(parts, 0);
    assert_int_equal(memlord_parts_each(lord, cpu(), 0x1000, no_part, &parts), 1);
    assert_int_equal(parts, 1);
    assert_int_equal(memlord_allocated(lord, bad), 0);
    assert_int_equal(memlord_peak(lord, bad), 0);
    assert_int_equal(memlord_freed(lord, bad), 0);
    assert_int_equal(memlord_pending(lord, bad), 0);
    assert_int_equal(memlord_stats_get(lord, bad, &stats), MEMLORD_E_DEVICE);
    memlord_peak_reset(lord, bad);
}

static void a_selector_that_matches_none_reads_zeros(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s, zero;
    memset(&zero, 0, sizeof zero);
    zero.size = sizeof zero;
    zero.version = MEMLORD_STATS_VERSION;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 8, NULL));
    s = stats_of(lord, cuda(4));
    assert_memory_equal(&s, &zero, sizeof s);
    s = stats_of(lord, memlord_device_make(MEMLORD_DEVICE_NPU, MEMLORD_ANY));
    assert_memory_equal(&s, &zero, sizeof s);
}

static void a_wide_selector_sums(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cuda(1), 0x2000, 20, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 3, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(MEMLORD_ANY)), 120);
    assert_int_equal(memlord_allocated(lord, all()), 123);
    assert_int_equal(stats_of(lord, all()).allocs, 3);
}

static void every_device_seen_is_listed_once(void **state) {
    memlord *lord = test_lord(state);
    memlord_device out[8];
    assert_int_equal(memlord_devices(lord, out, 8), 0);
    assert_ok(memlord_alloc(lord, cuda(3), 0x1000, 1, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
    assert_ok(memlord_alloc(lord, cuda(3), 0x2000, 1, NULL));
    memset(out, 0xee, sizeof out);
    assert_int_equal(memlord_devices(lord, out, 1), 2);
    assert_int_equal(out[1].type, (int16_t)0xeeee);
    assert_int_equal(memlord_devices(lord, out, 8), 2);
    assert_int_equal(memlord_devices(lord, NULL, 0), 2);
    assert_int_equal(memlord_devices(lord, NULL, 8), 2);
    assert_int_equal(out[0].type + out[1].type, MEMLORD_DEVICE_CUDA + MEMLORD_DEVICE_CPU);
    assert_int_equal(out[0].index + out[1].index, 3);
}

static void one_more_than_the_maximum_is_refused_and_counted(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats before, after;
    memlord_block two[2] = {{{0, 0}, 0x910000, 10}, {{0, 0}, 0x920000, 20}};
    int i;
    for (i = 0; i < MAX_DEVICES; i++)
        assert_ok(memlord_alloc(lord, cuda(i), (uint64_t)(i + 1) * 64, 10, NULL));
    before = stats_of(lord, all());
    assert_int_equal(memlord_alloc(lord, cuda(MAX_DEVICES), 0x900000, 10, NULL),
                     MEMLORD_E_DEVICE);
    assert_int_equal(memlord_arena_add(lord, cpu(), 10, NULL), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_device_label_set(lord, cpu(), "x"), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_device_share(lord, cuda(0), cuda(MAX_DEVICES)), MEMLORD_E_DEVICE);
    two[0].device = cuda(0);
    two[1].device = cuda(MAX_DEVICES);
    assert_int_equal(memlord_alloc_n(lord, two, 2, NULL), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_copy(lord, cuda(0), cuda(MAX_DEVICES), 10), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_copy(lord, cuda(MAX_DEVICES), cuda(0), 10), MEMLORD_E_DEVICE);
    after = stats_of(lord, all());
    assert_int_equal(after.dropped_allocs, 3);
    assert_int_equal(after.dropped_bytes, 10 + 10 + 20);
    after.dropped_allocs = after.dropped_bytes = 0;
    assert_same_books(&before, &after);
    assert_ok(memlord_free(lord, cuda(MAX_DEVICES), 0x900000, NULL)); /* one of those dropped */
    assert_int_equal(memlord_devices(lord, NULL, 0), MAX_DEVICES);
    assert_int_equal(memlord_allocated(lord, cuda(MAX_DEVICES - 1)), 10);
    assert_ok(memlord_alloc(lord, cuda(7), 0x900000, 10, NULL));
    free(report_of(lord, MEMLORD_FORMAT_TEXT));
    free(report_of(lord, MEMLORD_FORMAT_JSON));
}

static void a_call_that_is_refused_makes_no_device_known(void **state) {
    memlord *lord = test_lord(state);
    memlord_block bad[2] = {{{0, 0}, 0x1000, 10}, {{0, 0}, 0, 10}};
    memlord_capacity c;
    assert_ok(memlord_alloc(lord, cpu(), 0x5000, 1, NULL));
    bad[0].device = bad[1].device = cuda(1);
    assert_int_equal(memlord_alloc_n(lord, bad, 2, NULL), MEMLORD_E_INVALID);
    bad[1].storage = 0x2000;
    bad[1].device = memlord_device_make(MEMLORD_DEVICE_TYPE_COUNT, 0);
    assert_int_equal(memlord_track_n(lord, bad, 2, NULL), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_move(lord, cpu(), 0x6000, cuda(1), 0x7000, 1, NULL, NULL),
                     MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_gc_run(lord, cuda(1), MEMLORD_REASON_HOST, 0, NULL),
                     MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_pool_add(lord, cuda(1), -5), MEMLORD_E_INVALID);
    assert_int_equal(memlord_pool_set(lord, cuda(1), (uint64_t)1 << 63, 0),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_capacity_sample(lord, cuda(1)), MEMLORD_E_UNSUPPORTED);
    assert_int_equal(memlord_limit_set_fraction(lord, cuda(1), 0.5), MEMLORD_E_UNKNOWN);
    (void)memlord_capacity_get(lord, cuda(1), &c);
    assert_int_equal(memlord_devices(lord, NULL, 0), 1);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 1);
}

static uint64_t unknown_on(memlord *lord, memlord_device device) {
    return stats_of(lord, device).unknown_frees;
}
static void an_unknown_free_without_an_index_counts_on_the_first_of_its_type(void **state) {
    memlord *lord = test_lord(state);
    const memlord_device any_cpu = any(MEMLORD_DEVICE_CPU), any_cuda = any(MEMLORD_DEVICE_CUDA);
    memlord_device seen[4];
    assert_int_equal(memlord_free(lord, any_cuda, 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(unknown_on(lord, cuda(0)), 1); /* there is none: index 0 */
    assert_int_equal(memlord_free(lord, any_cpu, 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(unknown_on(lord, cpu()), 1);
    assert_ok(memlord_alloc(lord, memlord_device_make(MEMLORD_DEVICE_NPU, 3), 0x1000, 1, NULL));
    assert_ok(memlord_alloc(lord, memlord_device_make(MEMLORD_DEVICE_NPU, 1), 0x2000, 1, NULL));
    assert_int_equal(memlord_free(lord, any(MEMLORD_DEVICE_NPU), 0x3000, NULL),
                     MEMLORD_E_UNKNOWN);
    assert_int_equal(unknown_on(lord, memlord_device_make(MEMLORD_DEVICE_NPU, 3)), 1);
    assert_int_equal(memlord_free(lord, memlord_device_make(MEMLORD_DEVICE_NPU, 1), 0x3000, NULL),
                     MEMLORD_E_UNKNOWN);
    assert_int_equal(unknown_on(lord, memlord_device_make(MEMLORD_DEVICE_NPU, 1)), 1);
    assert_int_equal(memlord_free(lord, memlord_device_make(MEMLORD_DEVICE_NPU, 0), 0x3000, NULL),
                     MEMLORD_E_UNKNOWN); /* 0 is an index as any other */
    assert_int_equal(unknown_on(lord, memlord_device_make(MEMLORD_DEVICE_NPU, 0)), 1);
    assert_int_equal(unknown_on(lord, all()), 5);
    assert_int_equal(memlord_devices(lord, seen, 4), 5);
    assert_int_equal(seen[0].type, MEMLORD_DEVICE_CUDA);
    assert_int_equal(seen[1].type, MEMLORD_DEVICE_CPU);
    assert_int_equal(seen[2].index, 3);
    assert_int_equal(seen[3].index, 1);
}

static void a_selector_of_no_type_is_refused(void **state) {
    memlord *lord = test_lord(state);
    const memlord_device bad[] = {{-2, MEMLORD_ANY}, {99, MEMLORD_ANY}, {MEMLORD_ANY, 3},
                                  {MEMLORD_DEVICE_TYPE_COUNT, MEMLORD_ANY},
                                  {MEMLORD_DEVICE_CUDA, -2}};
    memlord_stats s;
    size_t i;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 8, NULL));
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(memlord_stats_get(lord, bad[i], &s), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_allocated(lord, bad[i]), 0);
    }
    assert_ok(memlord_stats_get(lord, any(MEMLORD_DEVICE_CUDA), &s));
    assert_ok(memlord_stats_get(lord, cuda(0), &s));
}

static void a_label_shows_in_the_reports_people_read(void **state) {
    static const memlord_format formats[] = {MEMLORD_FORMAT_TEXT, MEMLORD_FORMAT_JSON};
    memlord *lord = test_lord(state);
    char label[] = "H100 in slot 3";
    size_t format;
    assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 1, NULL));
    assert_ok(memlord_device_label_set(lord, cuda(1), label));
    memset(label, '?', sizeof label - 1);
    for (format = 0; format < sizeof formats / sizeof *formats; format++) {
        char *report = report_of(lord, formats[format]);
        assert_non_null(strstr(report, "H100 in slot 3"));
        assert_non_null(strstr(report, "cuda:1"));
        free(report);
    }
}

static void a_label_of_null_takes_it_away(void **state) {
    memlord *lord = test_lord(state);
    char *report;
    assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 1, NULL));
    assert_ok(memlord_device_label_set(lord, cuda(1), "H100"));
    assert_ok(memlord_device_label_set(lord, cuda(1), NULL));
    report = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_null(strstr(report, "H100"));
    assert_non_null(strstr(report, "\"label\":null"));
    free(report);
    assert_ok(memlord_device_label_set(lord, cuda(1), "H100"));
    assert_ok(memlord_device_label_set(lord, cuda(1), "")); /* likewise */
    report = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_null(strstr(report, "H100"));
    assert_non_null(strstr(report, "\"label\":null"));
    free(report);
    assert_int_equal(memlord_device_label_set(lord, cuda(MEMLORD_ANY), "x"), MEMLORD_E_DEVICE);
}

static void a_label_taken_away_makes_no_device_known(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_device_label_set(lord, cuda(1), NULL));
    assert_ok(memlord_device_label_set(lord, cuda(2), ""));
    assert_int_equal(memlord_device_label_set(lord, cuda(MEMLORD_ANY), NULL), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_devices(lord, NULL, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(names_are_read_in_any_case),
        TEST(a_bare_type_is_a_selector_and_cpu_a_device),
        TEST(names_of_engines_are_read),
        TEST(what_is_no_device_is_refused_and_out_untouched),
        TEST(devices_and_selectors_have_names),
        TEST(a_name_reads_back_as_its_device),
        TEST(a_name_is_cut_as_snprintf_cuts),
        TEST(a_bad_device_still_has_some_name),
        TEST(what_does_not_fit_16_bits_stays_refused),
        TEST(every_call_refuses_a_bad_device),
        TEST(an_alloc_wants_an_index),
        TEST(readers_of_a_bad_selector_answer_0),
        TEST(a_selector_that_matches_none_reads_zeros),
        TEST(a_wide_selector_sums),
        TEST(every_device_seen_is_listed_once),
        TEST(one_more_than_the_maximum_is_refused_and_counted),
        TEST(a_call_that_is_refused_makes_no_device_known),
        TEST(an_unknown_free_without_an_index_counts_on_the_first_of_its_type),
        TEST(a_selector_of_no_type_is_refused),
        TEST(a_label_shows_in_the_reports_people_read),
        TEST(a_label_of_null_takes_it_away),
        TEST(a_label_taken_away_makes_no_device_known),
    };
    return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}
