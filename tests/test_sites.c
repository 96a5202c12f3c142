/* Sites: who put the bytes there. */
#include "support.h"
#include <sys/mman.h>

static const memlord_site loader = {"loader.c", "load", 10};
static const memlord_site cache = {"cache.c", "grow", 20};

/* The row of a site on a device; zeros if there is none. */
static memlord_site_stat row_of(memlord *lord, memlord_device device, const char *function) {
    memlord_site_stat rows[64], none;
    int order;
    memset(&none, 0, sizeof none);
    for (order = MEMLORD_SITE_ORDER_ALLOC_BYTES; order <= MEMLORD_SITE_ORDER_PEAK_BYTES; order++) {
        size_t i, n = memlord_sites_top(lord, device, (memlord_site_order)order, rows, 64);
        for (i = 0; i < n; i++)
            if (!strcmp(rows[i].site->function, function)) return rows[i];
    }
    return none;
}

static void they_are_off_until_enabled(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat row;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_int_equal(memlord_sites_top(lord, all(), MEMLORD_SITE_ORDER_ALLOC_BYTES, &row, 1), 0);
    assert_int_equal(memlord_site_top_alloc(lord, all(), &row), 0);
}

static void switching_on_invents_no_history(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat row;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_ok(memlord_sites_enable(lord, 1));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 30, &loader));
    row = row_of(lord, cpu(), "load");
    assert_int_equal(row.allocs, 1);
    assert_int_equal(row.alloc_bytes, 30);
    assert_int_equal(row.live_bytes, 30);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(row_of(lord, cpu(), "load").live_bytes, 30);
}

static void switching_off_keeps_what_was_counted(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_ok(memlord_sites_enable(lord, 0));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 30, &loader));
    assert_int_equal(row_of(lord, cpu(), "load").alloc_bytes, 100);
}

static void an_alloc_counts_at_its_site(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat row;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, &loader));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 3, &cache));
    row = row_of(lord, cpu(), "load");
    assert_string_equal(row.site->file, "loader.c");
    assert_int_equal(row.site->line, 10);
    assert_int_equal(row.device.type, MEMLORD_DEVICE_CPU);
    assert_int_equal(row.allocs, 2);
    assert_int_equal(row.alloc_bytes, 120);
    assert_int_equal(row.live_bytes, 120);
    assert_int_equal(row.peak_bytes, 120);
    assert_int_equal(row.frees, 0);
    assert_int_equal(row_of(lord, cpu(), "grow").alloc_bytes, 3);
}

static void a_free_counts_where_it_is_and_debits_where_it_was_born(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat born, freed;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_ok(memlord_free(lord, cpu(), 0x1000, &cache));
    born = row_of(lord, cpu(), "load");
    freed = row_of(lord, cpu(), "grow");
    assert_int_equal(born.alloc_bytes, 100);
    assert_int_equal(born.live_bytes, 0);
    assert_int_equal(born.peak_bytes, 100);
    assert_int_equal(born.frees, 0);
    assert_int_equal(freed.free_bytes, 100);
    assert_int_equal(freed.frees, 1);
    assert_int_equal(freed.live_bytes, 0);
    assert_int_equal(freed.allocs, 0);
}

static void a_free_without_a_site_still_debits_the_birth_site(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(row_of(lord, cpu(), "load").live_bytes, 0);
}

static void a_site_on_two_devices_is_two_rows(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat rows[8];
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, &loader));
    assert_ok(memlord_alloc(lord, cuda(1), 0x2000, 20, &loader));
    assert_int_equal(
        memlord_sites_top(lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, rows, 8), 2);
    assert_int_equal(rows[0].device.index, 0);
    assert_int_equal(rows[0].live_bytes, 100);
    assert_int_equal(rows[1].device.index, 1);
    assert_int_equal(
        memlord_sites_top(lord, cuda(1), MEMLORD_SITE_ORDER_LIVE_BYTES, rows, 8), 1);
    assert_int_equal(rows[0].live_bytes, 20);
    assert_int_equal(memlord_sites_top(lord, all(), (memlord_site_order)6, rows, 8), 0);
}

static void the_list_is_sorted_cut_and_without_zeros(void **state) {
    memlord *lord = test_lord(state);
    memlord_site sites[40];
    memlord_site_stat rows[64];
    size_t i, n;
    memset(sites, 0, sizeof sites);
    for (i = 0; i < 40; i++) {
        sites[i].file = "many.c";
        sites[i].function = "f";
        sites[i].line = (int)i + 1;
        assert_ok(memlord_alloc(lord, cpu(), (i + 1) * 64, (i * 7) % 40, &sites[i]));
    }
    n = memlord_sites_top(lord, cpu(), MEMLORD_SITE_ORDER_ALLOC_BYTES, rows, 64);
    assert_int_equal(n, 39);
    for (i = 0; i < n; i++) assert_int_equal(rows[i].alloc_bytes, 39 - i);
    assert_int_equal(memlord_sites_top(lord, cpu(), MEMLORD_SITE_ORDER_ALLOC_BYTES, rows, 5), 5);
    assert_int_equal(rows[4].alloc_bytes, 35);
    assert_int_equal(memlord_sites_top(lord, cpu(), MEMLORD_SITE_ORDER_FREES, rows, 64), 0);
    assert_int_equal(memlord_sites_top(lord, cpu(), MEMLORD_SITE_ORDER_ALLOCS, rows, 64), 40);
}

static void the_top_ones_are_found(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat row;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_int_equal(memlord_site_top_free(lord, cpu(), &row), 0);
    assert_ok(memlord_free(lord, cpu(), 0x1000, &cache));
    assert_int_equal(memlord_site_top_alloc(lord, cpu(), &row), 1);
    assert_string_equal(row.site->function, "load");
    assert_int_equal(memlord_site_top_free(lord, cpu(), &row), 1);
    assert_string_equal(row.site->function, "grow");
    assert_int_equal(memlord_site_top_alloc(lord, cuda(0), &row), 0);
}

static void strings_are_copied_when_first_seen(void **state) {
    memlord *lord = test_lord(state);
    memlord_site *site = (memlord_site *)malloc(sizeof *site);
    char *file = strdup("plugin.c"), *function = strdup("plugin_load");
    memlord_site_stat row;
    assert_non_null(site);
    site->file = file;
    site->function = function;
    site->line = 7;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, site));
    memset(file, '?', strlen(file));
    memset(function, '?', strlen(function));
    free(file);
    free(function);
    free(site);
    row = row_of(lord, cpu(), "plugin_load");
    assert_string_equal(row.site->file, "plugin.c");
    assert_int_equal(row.alloc_bytes, 100);
    free(report_of(lord, MEMLORD_FORMAT_TEXT));
}

static void missing_strings_are_survived(void **state) {
    memlord *lord = test_lord(state);
    memlord_site site;
    memlord_site_stat row;
    memset(&site, 0, sizeof site);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &site));
    assert_int_equal(memlord_site_top_alloc(lord, cpu(), &row), 1);
    assert_int_equal(row.alloc_bytes, 100);
    free(report_of(lord, MEMLORD_FORMAT_TEXT));
    free(report_of(lord, MEMLORD_FORMAT_JSON));
}

static void a_reset_zeroes_the_counts_and_keeps_what_lives(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat row;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 50, &loader));
    assert_ok(memlord_free(lord, cpu(), 0x2000, &loader));
    memlord_reset(lord);
    row = row_of(lord, cpu(), "load");
    assert_int_equal(row.alloc_bytes, 0);
    assert_int_equal(row.allocs, 0);
    assert_int_equal(row.free_bytes, 0);
    assert_int_equal(row.live_bytes, 100);
    assert_int_equal(row.peak_bytes, 100);
    assert_ok(memlord_free(lord, cpu(), 0x1000, &loader));
    row = row_of(lord, cpu(), "load");
    assert_int_equal(row.live_bytes, 0);
    assert_int_equal(row.free_bytes, 100);
}

static void a_block_knows_its_site(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_ok(memlord_block_find(lord, cpu(), 0x1000, &info));
    assert_string_equal(info.site->function, "load");
    assert_int_equal(info.site->line, 10);
}

static void the_macros_plant_the_place_of_the_call(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat row;
    char block[8];
    int line = __LINE__ + 1;
    assert_ok(MEMLORD_ALLOC(lord, cpu(), block, sizeof block));
    row = row_of(lord, cpu(), __func__);
    assert_int_equal(row.site->line, line);
    assert_non_null(strstr(row.site->file, "test_sites.c"));
    assert_int_equal(row.alloc_bytes, sizeof block);
    assert_ok(MEMLORD_RETAIN(lord, cpu(), block));
    assert_ok(MEMLORD_RELEASE(lord, cpu(), block));
    assert_ok(MEMLORD_REALLOC(lord, cpu(), block, block, 4));
    assert_ok(MEMLORD_TRACK(lord, cpu(), block, 4));
    assert_ok(MEMLORD_RELEASE(lord, cpu(), block));
    assert_ok(MEMLORD_FREE(lord, cpu(), block));
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void one_site_in_a_loop_is_one_row(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat rows[8];
    char blocks[100];
    size_t i;
    for (i = 0; i < sizeof blocks; i++) assert_ok(MEMLORD_ALLOC(lord, cpu(), &blocks[i], 1));
    assert_int_equal(memlord_sites_top(lord, all(), MEMLORD_SITE_ORDER_ALLOCS, rows, 8), 1);
    assert_int_equal(rows[0].allocs, 100);
}

static void a_return_address_becomes_a_site(void **state) {
    memlord *lord = test_lord(state);
    void *address = (void *)(uintptr_t)&memlord_create;
    const memlord_site *site = memlord_site_at(lord, address);
    memlord_site_stat row;
    assert_non_null(site);
    assert_ptr_equal(site, memlord_site_at(lord, address));
    assert_non_null(site->file);
    assert_non_null(site->function);
    assert_ptr_equal(memlord_site_address(lord, site), address);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, site));
    assert_int_equal(memlord_site_top_alloc(lord, cpu(), &row), 1);
    assert_true(strlen(row.site->file) > 0);
    assert_ptr_equal(memlord_site_address(lord, row.site), address);
}

static void a_return_address_has_a_place(void **state) {
    memlord *lord = test_lord(state);
    char *address = (char *)(uintptr_t)&memlord_create + 1;
    const memlord_site *site = memlord_site_at(lord, address);
    memlord_place here, next;
    assert_ok(memlord_site_place(lord, site, &here));
    assert_non_null(strstr(here.module, "test_sites"));
    assert_true(here.module[0] == '/' || here.module[1] == ':');
    assert_non_null(strstr(site->file, "+0x"));
    assert_ok(memlord_site_place(lord, memlord_site_at(lord, address + 4), &next));
    assert_int_equal(next.offset, here.offset + 4);
    assert_ptr_equal(next.module, here.module);
    assert_ptr_equal(next.build_id, here.build_id);
}

static void an_address_in_no_module_shows_itself(void **state) {
    memlord *lord = test_lord(state);
    const memlord_site *site = memlord_site_at(lord, (void *)(uintptr_t)0x1235);
    memlord_place place;
    assert_ok(memlord_site_place(lord, site, &place));
    assert_string_equal(place.module, "");
    assert_string_equal(place.build_id, "");
    assert_int_equal(place.offset, 0x1234);
    assert_string_equal(site->file, "0x1234");
    assert_string_equal(site->function, "");
}

/* The byte before a return address is in the call. */
static void an_address_in_no_module_is_written_in_as_many_digits_as_it_has(void **state) {
    static const struct {
        uint64_t address;
        const char *text;
    } addresses[] = {{1, "0x0"},
                     {2, "0x1"},
                     {0x10, "0xf"},
                     {0x11, "0x10"},
                     {0x100, "0xff"},
                     {0x101, "0x100"},
                     {0x12346, "0x12345"},
                     {0x123456, "0x123455"},
                     {0xfedcba987654321, "0xfedcba987654320"},
                     {0xfedcba9876543210, "0xfedcba987654320f"},
                     {UINT64_MAX, "0xfffffffffffffffe"}};
    memlord *lord = test_lord(state);
    size_t i;
    for (i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        void *address = (void *)(uintptr_t)addresses[i].address;
        const memlord_site *site = memlord_site_at(lord, address);
        if (addresses[i].address > UINTPTR_MAX) continue;
        assert_string_equal(site->file, addresses[i].text);
        assert_ptr_equal(memlord_site_at(lord, address), site);
    }
}

static void *see_addresses(void *user) {
    const char *base = (const char *)(uintptr_t)&memlord_create;
    size_t i;
    for (i = 1; i < 2000; i++) {
        (void)memlord_site_at((memlord *)user, (void *)(uintptr_t)(base + i));
        (void)memlord_site_at((memlord *)user, (void *)(uintptr_t)i);
    }
    return NULL;
}
static void threads_that_see_an_address_first_agree_on_its_site(void **state) {
    memlord *lord = test_lord(state);
    const char *base = (const char *)(uintptr_t)&memlord_create;
    memlord_place first, place;
    pthread_t threads[4];
    size_t i;
    for (i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, see_addresses, lord), 0);
    for (i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_ok(
        memlord_site_place(lord, memlord_site_at(lord, (void *)(uintptr_t)(base + 1)), &first));
    for (i = 1; i < 2000; i++) {
        const memlord_site *site = memlord_site_at(lord, (void *)(uintptr_t)(base + i));
        assert_ok(memlord_site_place(lord, site, &place));
        assert_int_equal(place.offset, first.offset + i - 1);
        assert_ptr_equal(place.module, first.module);
    }
}

static void a_planted_site_has_no_place(void **state) {
    memlord *lord = test_lord(state);
    static const memlord_site never_seen = {"never.c", "seen", 1};
    memlord_site_stat row;
    memlord_place place;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_int_equal(memlord_site_top_alloc(lord, cpu(), &row), 1);
    assert_int_equal(memlord_site_place(lord, row.site, &place), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_site_place(lord, &never_seen, &place), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_site_place(NULL, row.site, &place), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_site_place(lord, NULL, &place), MEMLORD_E_INVALID);
    assert_int_equal(memlord_site_place(lord, row.site, NULL), MEMLORD_E_INVALID);
}

static void a_place_stays_when_its_site_is_renamed(void **state) {
    memlord *lord = test_lord(state);
    const memlord_site *site = memlord_site_at(lord, (char *)(uintptr_t)&memlord_create + 1);
    memlord_place before, after;
    assert_ok(memlord_site_place(lord, site, &before));
    assert_ok(memlord_site_rename(lord, site, "found.c", "found", 12));
    assert_ok(memlord_site_place(lord, site, &after));
    assert_ptr_equal(before.module, after.module);
    assert_int_equal(before.offset, after.offset);
}

static void any_address_gives_a_site(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    assert_non_null(memlord_site_at(lord, NULL));
    assert_non_null(memlord_site_at(lord, (void *)UINTPTR_MAX));
    for (i = 1; i < 5000; i++) {
        void *address = (void *)(uintptr_t)(i * 40503);
        const memlord_site *site = memlord_site_at(lord, address);
        assert_non_null(site);
        assert_ptr_equal(memlord_site_address(lord, site), address);
    }
}

static void a_planted_site_has_no_address(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat row;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_int_equal(memlord_site_top_alloc(lord, cpu(), &row), 1);
    assert_null(memlord_site_address(lord, &loader));
    assert_null(memlord_site_address(lord, row.site));
}

static void a_rename_shows_from_now_on(void **state) {
    memlord *lord = test_lord(state);
    char *report;
    char function[32] = "resolved_fn";
    const memlord_site *site = memlord_site_at(lord, (void *)(uintptr_t)0x1234567);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, site));
    assert_ok(memlord_site_rename(lord, site, "resolved.c", function, 77));
    memset(function, '?', sizeof function - 1);
    report = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(report, "resolved.c"));
    assert_non_null(strstr(report, "resolved_fn"));
    assert_non_null(strstr(report, "77"));
    free(report);
    assert_ok(memlord_site_rename(lord, site, NULL, "better_fn", 0));
    assert_string_equal(row_of(lord, cpu(), "better_fn").site->file, "resolved.c");
    assert_int_equal(row_of(lord, cpu(), "better_fn").site->line, 77);
}

/* The C library exports qsort: its symbol is known. */
static void a_rename_wins_over_the_symbol_of_the_place(void **state) {
    memlord *lord = test_lord(state);
    const memlord_site *site = memlord_site_at(lord, (char *)(uintptr_t)&qsort + 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, site));
    assert_ok(memlord_site_rename(lord, site, "sort.c", "sort_rows", 7));
    assert_int_equal(row_of(lord, cpu(), "sort_rows").live_bytes, 100);
    assert_int_equal(row_of(lord, cpu(), "sort_rows").live_bytes, 100);
    assert_int_equal(row_of(lord, cpu(), "qsort").live_bytes, 0);
}

static void what_was_handed_out_before_a_rename_stays_valid(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat row;
    const char *file, *function;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    row = row_of(lord, cpu(), "load");
    file = row.site->file;
    function = row.site->function;
    assert_ok(memlord_site_rename(lord, &loader, "a.c", "b", 3));
    assert_string_equal(file, "loader.c");
    assert_string_equal(function, "load");
    assert_string_equal(row_of(lord, cpu(), "b").site->file, "a.c");
}

static void a_rename_of_the_unseen_is_unknown(void **state) {
    static const memlord_site unseen = {"unseen.c", "f", 1};
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_site_rename(lord, &unseen, "a", "b", 1), MEMLORD_E_UNKNOWN);
}

static const memlord_function inlined[] = {{{"/usr/include/new", "std::take", 7}, 1},
                                           {{"app.cpp", "inner", 8}, 0},
                                           {{"app.cpp", "outer", 20}, 0}};

static void a_site_with_functions_shows_the_first_that_is_of_no_library(void **state) {
    memlord *lord = test_lord(state);
    const memlord_site *site = memlord_site_at(lord, (void *)(uintptr_t)0x1234567);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, site));
    assert_ok(memlord_site_functions_set(lord, site, inlined, 3));
    assert_string_equal(row_of(lord, cpu(), "inner").site->file, "app.cpp");
    assert_int_equal(row_of(lord, cpu(), "inner").site->line, 8);
    assert_ok(memlord_site_functions_set(lord, site, inlined, 1));
    assert_string_equal(row_of(lord, cpu(), "std::take").site->file, "/usr/include/new");
}

static void a_rename_forgets_the_functions_of_a_site(void **state) {
    memlord *lord = test_lord(state);
    const memlord_site *site = memlord_site_at(lord, (void *)(uintptr_t)0x1234567);
    char *report;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, site));
    assert_ok(memlord_site_functions_set(lord, site, inlined, 3));
    report = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(report, "std::take"));
    free(report);
    assert_ok(memlord_site_rename(lord, site, NULL, "renamed", 0));
    report = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_null(strstr(report, "std::take"));
    assert_non_null(strstr(report, "renamed"));
    free(report);
}

static void functions_are_of_return_addresses_and_at_most_256(void **state) {
    static memlord_function many[257];
    memlord *lord = test_lord(state);
    const memlord_site *site = memlord_site_at(lord, (void *)(uintptr_t)0x1234567);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_int_equal(memlord_site_functions_set(lord, &loader, inlined, 3), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_site_functions_set(lord, NULL, inlined, 3), MEMLORD_E_INVALID);
    assert_int_equal(memlord_site_functions_set(lord, site, NULL, 3), MEMLORD_E_INVALID);
    assert_int_equal(memlord_site_functions_set(lord, site, inlined, 0), MEMLORD_E_INVALID);
    assert_int_equal(memlord_site_functions_set(lord, site, many, 257), MEMLORD_E_INVALID);
    assert_ok(memlord_site_functions_set(lord, site, many, 256));
    assert_ok(memlord_site_functions_set(NULL, site, inlined, 3));
}

#define PLACES 400

/* In one ledger the symbols are looked up together, in the other one by one. */
static void symbols_are_the_same_together_and_one_by_one(void **state) {
    static memlord_site_stat rows[PLACES];
    memlord *lord = test_lord(state), *other;
    memlord_desc desc;
    size_t i, n, named = 0;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_SITES;
    assert_ok(memlord_create(&desc, &other));
    for (i = 0; i < PLACES; i++) {
        void *address = (char *)(uintptr_t)&qsort + 1 + 97 * i;
        assert_ok(memlord_alloc(lord, cpu(), 0x1000 + 64 * i, 1 + i, memlord_site_at(lord, address)));
        assert_ok(memlord_alloc(other, cpu(), 0x1000 + 64 * i, 1 + i, memlord_site_at(other, address)));
    }
    n = memlord_sites_top(lord, cpu(), MEMLORD_SITE_ORDER_LIVE_BYTES, rows, PLACES);
    assert_int_equal(n, PLACES);
    for (i = 0; i < n; i++) {
        memlord_block_info block;
        const uint64_t key = 0x1000 + 64 * (rows[i].live_bytes - 1);
        assert_ok(memlord_block_find(other, cpu(), key, &block));
        assert_string_equal(rows[i].site->function, block.site->function);
        named += rows[i].site->function[0] != 0;
    }
#if defined(__GLIBC__) && defined(__PIE__) /* else qsort may be the entry of a table of calls */
    assert_true(named > 1);
#endif
    memlord_destroy(other);
}

static void growth_of_a_block_counts_at_its_birth_site(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_ok(memlord_realloc(lord, cpu(), 0x1000, 0x2000, 300, &cache));
    assert_int_equal(row_of(lord, cpu(), "load").live_bytes +
                         row_of(lord, cpu(), "grow").live_bytes, 300);
    assert_ok(memlord_free(lord, cpu(), 0x2000, NULL));
    assert_int_equal(row_of(lord, cpu(), "load").live_bytes, 0);
    assert_int_equal(row_of(lord, cpu(), "grow").live_bytes, 0);
}

static void a_move_takes_the_live_bytes_along(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &loader));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x2000, 120, NULL, NULL));
    assert_int_equal(row_of(lord, cpu(), "load").live_bytes, 0);
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    assert_int_equal(row_of(lord, cuda(0), "load").live_bytes, 0);
}

/* Three records of one place, as three files that include one header have them. */
static const memlord_site line_in_a[2] = {{"inline.h", "grow", 7}, {"inline.h", "grow", 7}};
static const memlord_site line_in_b = {"inline.h", "grow", 7};

static void one_line_in_several_files_is_one_site(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat row;
    memlord_site_stat rows[8];
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &line_in_a[0]));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, &line_in_a[1]));
    assert_ok(memlord_alloc(lord, cuda(0), 0x3000, 3, &line_in_b));
    assert_ok(memlord_free(lord, cpu(), 0x1000, &line_in_b));
    assert_int_equal(memlord_sites_top(lord, all(), MEMLORD_SITE_ORDER_ALLOC_BYTES, rows, 8), 2);
    assert_ptr_equal(rows[0].site, rows[1].site);
    row = row_of(lord, cpu(), "grow");
    assert_int_equal(row.allocs, 2);
    assert_int_equal(row.alloc_bytes, 120);
    assert_int_equal(row.free_bytes, 100);
    assert_int_equal(row.live_bytes, 20);
    assert_int_equal(row_of(lord, cuda(0), "grow").alloc_bytes, 3);
}

static void another_file_function_or_line_is_another_site(void **state) {
    static const memlord_site others[] = {{"inline.h", "grow", 8},   {"inline.h", "grow", -7},
                                          {"inline.h", "shrink", 7}, {"other.h", "grow", 7},
                                          {"inline.h", "", 7},       {"inline.h", NULL, 7},
                                          {NULL, "grow", 7},         {"grow", "inline.h", 7}};
    memlord *lord = test_lord(state);
    memlord_site_stat rows[16];
    uint64_t i;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &line_in_b));
    for (i = 0; i < 8; i++) assert_ok(memlord_alloc(lord, cpu(), 0x2000 + i * 64, 1, &others[i]));
    /* NULL reads as "" */
    assert_int_equal(memlord_sites_top(lord, all(), MEMLORD_SITE_ORDER_ALLOC_BYTES, rows, 16), 8);
    assert_int_equal(rows[0].allocs, 1);
    assert_int_equal(rows[1].allocs, 2);
    assert_int_equal(rows[2].allocs, 1);
}

static void one_place_in_two_modules_is_two_sites(void **state) {
    memlord *lord = test_lord(state);
    memlord_site_stat rows[8];
    memlord_site in_none[2];
    TEST_SYMBOLS();
    in_none[0] = in_none[1] = line_in_b; /* the stack is in no module: these two are one */
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &line_in_b));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, &in_none[0]));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 3, &in_none[1]));
    assert_int_equal(memlord_sites_top(lord, all(), MEMLORD_SITE_ORDER_ALLOC_BYTES, rows, 8), 2);
    assert_int_equal(rows[0].alloc_bytes, 100);
    assert_int_equal(rows[1].alloc_bytes, 23);
}

static int keep_site(void *user, const memlord_event *event) {
    if (event->site) *(const memlord_site **)user = event->site;
    return 0;
}

static void what_is_returned_is_the_copy_of_the_ledger(void **state) {
    memlord *lord = test_lord(state);
    const memlord_site *seen = NULL;
    memlord_block_info info;
    memlord_site_stat row;
    memlord_scope_stat scope;
    assert_ok(memlord_events_start(lord, 0));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &line_in_a[0]));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, &line_in_b));
    assert_int_equal(memlord_site_top_alloc(lord, cpu(), &row), 1);
    assert_ptr_not_equal(row.site, &line_in_a[0]);
    assert_ok(memlord_block_find(lord, cpu(), 0x2000, &info));
    assert_ptr_equal(info.site, row.site);
    assert_ok(memlord_events_each(lord, keep_site, (void *)&seen));
    assert_ptr_equal(seen, row.site);
    MEMLORD_SCOPE(lord, "scope") {}
    assert_ok(memlord_scope_get(lord, "scope", &scope));
    assert_string_equal(scope.site->function, __func__);
}

static void a_rename_by_any_record_of_a_place_renames_the_place(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, &line_in_a[0]));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, &line_in_b));
    assert_ok(memlord_site_rename(lord, &line_in_b, NULL, "renamed", 0));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 3, &line_in_a[1])); /* it has the old name */
    assert_int_equal(row_of(lord, cpu(), "renamed").allocs, 3);
}

static __attribute__((noinline)) const memlord_site *site_of_caller(memlord *lord) {
    return MEMLORD_SITE_OF_CALLER(lord);
}
static __attribute__((noinline)) const memlord_site *site_of_caller_in_global(void) {
    return MEMLORD_SITE_OF_CALLER();
}

/* The only call of site_of_caller with its return address; volatile: no tail call. */
static __attribute__((noinline)) const memlord_site *the_same_call(memlord *lord) {
    const memlord_site *volatile site = site_of_caller(lord);
    return site;
}

static void each_call_of_a_function_is_a_site_of_its_caller(void **state) {
    memlord *lord = test_lord(state);
    const memlord_site *first = the_same_call(lord), *other = site_of_caller(lord);
    const char *at = (const char *)memlord_site_address(lord, first);
    assert_ptr_equal(the_same_call(lord), first);
    assert_ptr_not_equal(other, first);
    assert_true(at > (const char *)(uintptr_t)&the_same_call);
    assert_true(at < (const char *)(uintptr_t)&the_same_call + 4096);
}

static void the_site_of_a_caller_is_of_the_global_ledger_where_none_is_named(void **state) {
    memlord *lord = test_lord(state);
    const memlord_site *site = site_of_caller_in_global();
    assert_non_null(memlord_site_address(memlord_global(), site));
    assert_null(memlord_site_address(lord, site));
    assert_non_null(site_of_caller(NULL)); /* a ledger that is NULL is not the global one */
    assert_null(memlord_site_address(memlord_global(), site_of_caller(NULL)));
}

static void a_place_given_by_value_is_the_site_planted_there(void **state) {
    memlord *lord = test_lord(state);
    const memlord_site *planted = MEMLORD_SITE();
    const memlord_site *site = memlord_site_of(lord, __FILE__, __func__, planted->line);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, planted));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 20, site));
    assert_int_equal(row_of(lord, cpu(), __func__).alloc_bytes, 120);
    assert_ptr_equal(memlord_site_of(lord, __FILE__, __func__, planted->line), site);
}

static void a_place_in_memory_that_changes_is_another_site(void **state) {
    memlord *lord = test_lord(state);
    char file[] = "a.py", function[] = "f";
    const memlord_site *first = memlord_site_of(lord, file, function, 1), *second, *third;
    file[0] = 'b';
    second = memlord_site_of(lord, file, function, 1);
    function[0] = 'g';
    third = memlord_site_of(lord, file, function, 1);
    assert_string_equal(first->file, "a.py");
    assert_string_equal(second->file, "b.py");
    assert_string_equal(second->function, "f");
    assert_string_equal(third->function, "g");
    assert_ptr_equal(memlord_site_of(lord, "a.py", "f", 1)->file, first->file);
    assert_int_equal(memlord_site_of(lord, file, function, 1 + (1 << 28))->line, 1 + (1 << 28));
    assert_string_equal(memlord_site_of(lord, NULL, NULL, -7)->file, "");
    assert_non_null(memlord_site_of(NULL, file, function, 1));
}

static void a_place_without_memory_for_it_is_no_site(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_site *site = memlord_site_of(t->lord, "known.c", "f", 1), *other;
    char file[16];
    int i;
    t->heap.fail_at = 1;
    t->heap.fail_from = 1;
    for (i = 0; i < 100000; i++) {
        (void)snprintf(file, sizeof file, "%d.c", i);
        other = memlord_site_of(t->lord, file, "f", 1);
        assert_non_null(other);
        if (!other->line) break;
    }
    assert_true(i < 100000);
    assert_ptr_equal(memlord_site_of(t->lord, "known.c", "f", 1)->file, site->file);
    t->heap.fail_at = 0;
    assert_string_equal(memlord_site_of(t->lord, file, "f", 1)->file, file);
}

static void a_key_is_an_address_or_a_handle(void **state) {
    char array[8], *pointer = array;
    const volatile int *to_volatile = NULL;
    const uint64_t handle = 0x123456789abcdef0u;
    (void)state;
    assert_true(MEMLORD_KEY(array) == (uintptr_t)array);
    assert_true(MEMLORD_KEY(pointer++) == (uintptr_t)array); /* read once */
    assert_ptr_equal(pointer, array + 1);
    assert_true(MEMLORD_KEY(to_volatile) == 0);
    assert_true(MEMLORD_KEY(handle) == handle);
    assert_true(MEMLORD_KEY(7) == 7);
    assert_true(MEMLORD_KEY(NULL) == 0);
}

/* On lines 1, 2, 3 ...; free() them. */
static memlord_site *many_sites(size_t n) {
    memlord_site *sites = (memlord_site *)calloc(n, sizeof *sites);
    size_t i;
    assert_non_null(sites);
    for (i = 0; i < n; i++) {
        sites[i].file = "many.c";
        sites[i].function = "f";
        sites[i].line = (int)i + 1;
    }
    return sites;
}

/* So many that the index needs a second table of its largest size. */
static void sixty_thousand_sites_are_kept_apart(void **state) {
    TEST_ONE_THREAD();
    memlord *lord = test_lord(state);
    size_t i, n = 60000;
    memlord_site *sites = many_sites(n);
    memlord_site_stat *rows = (memlord_site_stat *)calloc(n, sizeof *rows);
    uint64_t dropped;
    assert_non_null(rows);
    for (i = 0; i < 2 * n; i++) /* the second time each is known */
        assert_ok(memlord_alloc(lord, cpu(), (i + 1) * 64, 4, &sites[i % n]));
    dropped = stats_of(lord, all()).dropped_sites;
    assert_int_equal(
        memlord_sites_top(lord, cpu(), MEMLORD_SITE_ORDER_ALLOC_BYTES, rows, n) + dropped, n);
    assert_int_equal(memlord_allocated(lord, cpu()), 8 * n);
    free(rows);
    free(sites);
}

/* More than a thread remembers, and on two devices: each is looked up anew now and then. */
static void each_of_ten_thousand_sites_counts_its_own(void **state) {
    TEST_ONE_THREAD();
    memlord *lord = test_lord(state);
    size_t i, n = 10000, round;
    memlord_site *sites = many_sites(n);
    memlord_site_stat *rows = (memlord_site_stat *)calloc(n, sizeof *rows);
    assert_non_null(rows);
    for (round = 0; round < 3; round++)
        for (i = 0; i < n; i++) {
            memlord_device d = cuda((int)(i & 1));
            assert_ok(memlord_alloc(lord, d, (i + 1) * 4096 + 0x7f0000000000u, i + 1, &sites[i]));
            if (round < 2)
                assert_ok(memlord_free(lord, d, (i + 1) * 4096 + 0x7f0000000000u,
                                       &sites[(i + 2) % n]));
        }
    for (round = 0; round < 2; round++) {
        size_t found = memlord_sites_top(lord, cuda((int)round), MEMLORD_SITE_ORDER_ALLOC_BYTES,
                                         rows, n);
        assert_int_equal(found, n / 2);
        for (i = 0; i < found; i++) {
            uint64_t line = (uint64_t)rows[i].site->line;
            uint64_t freed = line > 2 ? line - 2 : line + n - 2; /* the one two before */
            assert_int_equal(rows[i].allocs, 3);
            assert_int_equal(rows[i].alloc_bytes, 3 * line);
            assert_int_equal(rows[i].live_bytes, line);
            assert_int_equal(rows[i].peak_bytes, line);
            assert_int_equal(rows[i].frees, 2);
            assert_int_equal(rows[i].free_bytes, 2 * freed);
        }
    }
    free(rows);
    free(sites);
}

/* The ledger finds devices and sites in one table, by numbers and by addresses. */
static void a_site_at_any_address_is_not_taken_for_a_device(void **state) {
    memlord *lord = test_lord(state);
    memlord_device device = memlord_device_cuda(16);
    char *wanted = (char *)(uintptr_t)(((uint64_t)1 << 32) + ((uint64_t)device.type << 16));
    char *page = (char *)mmap(wanted, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                              -1, 0);
    memlord_site *site = (memlord_site *)(void *)(page + 16);
    if (page != wanted) skip(); /* the address is in use */
    *site = loader;
    assert_ok(memlord_alloc(lord, device, 0x1000, 100, site));
    assert_int_equal(row_of(lord, device, "load").live_bytes, 100);
    munmap(page, 4096);
}

/* The device has had more before: its level is no new high where that of the site or the tag is. */
static void a_site_and_a_tag_have_peaks_of_their_own(void **state) {
    static const memlord_site large = {"peaks.c", "f", 1}, small = {"peaks.c", "g", 2};
    memlord *lord = test_lord(state);
    memlord_site_stat top[4];
    memlord_tag_stat tag;
    uint64_t i, round;
    for (round = 0; round < 2; round++) { /* the second with the rows cached */
        const uint64_t blocks = 20 + 30 * round;
        for (i = 1; i <= 200; i++) assert_ok(memlord_alloc(lord, cuda(0), i << 12, 8192, &large));
        for (i = 1; i <= 200; i++) assert_ok(memlord_free(lord, cuda(0), i << 12, &large));
        assert_ok(memlord_tag_begin(lord, "small"));
        for (i = 1; i <= blocks; i++)
            assert_ok(memlord_alloc(lord, cuda(0), i << 12, 5000, &small));
        assert_ok(memlord_tag_end(lord));
        for (i = 1; i <= blocks; i++) assert_ok(memlord_free(lord, cuda(0), i << 12, &small));
        assert_int_equal(memlord_sites_top(lord, cuda(0), MEMLORD_SITE_ORDER_PEAK_BYTES, top, 4),
                         2);
        assert_int_equal(top[0].site->line, 1);
        assert_int_equal(top[0].peak_bytes, 200 * 8192);
        assert_int_equal(top[1].site->line, 2);
        assert_int_equal(top[1].peak_bytes, blocks * 5000);
        assert_int_equal(top[1].live_bytes, 0);
        assert_ok(memlord_tag_get(lord, cuda(0), "small", &tag));
        assert_int_equal(tag.peak, blocks * 5000);
        assert_int_equal(memlord_peak(lord, cuda(0)), 200 * 8192);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(they_are_off_until_enabled),
        TEST(switching_on_invents_no_history),
        TEST_SITES(switching_off_keeps_what_was_counted),
        TEST_SITES(a_site_and_a_tag_have_peaks_of_their_own),
        TEST_SITES(an_alloc_counts_at_its_site),
        TEST_SITES(a_free_counts_where_it_is_and_debits_where_it_was_born),
        TEST_SITES(a_free_without_a_site_still_debits_the_birth_site),
        TEST_SITES(a_site_on_two_devices_is_two_rows),
        TEST_SITES(the_list_is_sorted_cut_and_without_zeros),
        TEST_SITES(the_top_ones_are_found),
        TEST_SITES(strings_are_copied_when_first_seen),
        TEST_SITES(missing_strings_are_survived),
        TEST_SITES(a_reset_zeroes_the_counts_and_keeps_what_lives),
        TEST_SITES(a_block_knows_its_site),
        TEST_SITES(the_macros_plant_the_place_of_the_call),
        TEST_SITES(one_site_in_a_loop_is_one_row),
        TEST_SITES(a_return_address_becomes_a_site),
        TEST_SITES(a_return_address_has_a_place),
        TEST_SITES(an_address_in_no_module_shows_itself),
        TEST(an_address_in_no_module_is_written_in_as_many_digits_as_it_has),
        TEST_SITES(threads_that_see_an_address_first_agree_on_its_site),
        TEST_SITES(a_planted_site_has_no_place),
        TEST_SITES(a_place_stays_when_its_site_is_renamed),
        TEST_SITES(any_address_gives_a_site),
        TEST_SITES(a_planted_site_has_no_address),
        TEST_SITES(a_rename_shows_from_now_on),
        TEST_SITES(a_rename_wins_over_the_symbol_of_the_place),
        TEST_SITES(what_was_handed_out_before_a_rename_stays_valid),
        TEST_SITES(a_rename_of_the_unseen_is_unknown),
        TEST_SITES(a_site_with_functions_shows_the_first_that_is_of_no_library),
        TEST_SITES(a_rename_forgets_the_functions_of_a_site),
        TEST_SITES(functions_are_of_return_addresses_and_at_most_256),
        TEST_SITES(symbols_are_the_same_together_and_one_by_one),
        TEST_SITES(growth_of_a_block_counts_at_its_birth_site),
        TEST_SITES(a_move_takes_the_live_bytes_along),
        TEST_SITES(a_site_at_any_address_is_not_taken_for_a_device),
        TEST_SITES(one_line_in_several_files_is_one_site),
        TEST_SITES(another_file_function_or_line_is_another_site),
        TEST_SITES(one_place_in_two_modules_is_two_sites),
        TEST_SITES(what_is_returned_is_the_copy_of_the_ledger),
        TEST_SITES(a_rename_by_any_record_of_a_place_renames_the_place),
        TEST_SITES(each_call_of_a_function_is_a_site_of_its_caller),
        TEST_SITES(the_site_of_a_caller_is_of_the_global_ledger_where_none_is_named),
        TEST_SITES(a_place_given_by_value_is_the_site_planted_there),
        TEST_SITES(a_place_in_memory_that_changes_is_another_site),
        TEST_SITES(a_place_without_memory_for_it_is_no_site),
        TEST(a_key_is_an_address_or_a_handle),
        TEST_SITES(sixty_thousand_sites_are_kept_apart),
        TEST_SITES(each_of_ten_thousand_sites_counts_its_own),
    };
    return cmocka_run_group_tests_name("sites", tests, NULL, NULL);
}
