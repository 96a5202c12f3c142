/* Tags: what bytes are for, per thread, kept by the block until it ends. */
#include "support.h"

#include <pthread.h>

static memlord_tag_stat tag_of(memlord *lord, memlord_device sel, const char *tag) {
    memlord_tag_stat stat;
    memset(&stat, 0xee, sizeof stat);
    assert_ok(memlord_tag_get(lord, sel, tag, &stat));
    return stat;
}

static void what_is_allocated_inside_carries_the_tag(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat tag;
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_track(lord, cuda(0), 0x2000, 20, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_alloc(lord, cuda(0), 0x3000, 3, NULL));
    tag = tag_of(lord, cuda(0), "weights");
    assert_string_equal(tag.tag, "weights");
    assert_int_equal(tag.allocated, 120);
    assert_int_equal(tag.peak, 120);
    assert_int_equal(tag.blocks, 2);
    assert_int_equal(tag.expected, 0);
    assert_int_equal(tag.variance, 0);
}

static void null_reads_what_carries_none(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 3, NULL));
    assert_int_equal(tag_of(lord, cpu(), NULL).allocated, 3);
    assert_int_equal(tag_of(lord, cpu(), NULL).blocks, 1);
}

static void the_innermost_wins(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "outer"));
    assert_ok(memlord_tag_begin(lord, "inner"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 7, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(tag_of(lord, cpu(), "inner").allocated, 100);
    assert_int_equal(tag_of(lord, cpu(), "outer").allocated, 7);
}

static void a_free_debits_the_tag_of_the_block(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_tag_begin(lord, "cache"));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 5, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(tag_of(lord, cpu(), "weights").allocated, 0);
    assert_int_equal(tag_of(lord, cpu(), "weights").blocks, 0);
    assert_int_equal(tag_of(lord, cpu(), "weights").peak, 100);
    assert_int_equal(tag_of(lord, cpu(), "cache").allocated, 5);
}

static void a_view_does_not_change_the_tag(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_tag_begin(lord, "view"));
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(tag_of(lord, cpu(), "weights").allocated, 100);
    assert_int_equal(tag_of(lord, cpu(), "view").allocated, 0);
}

static void tags_are_read_by_device(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cuda(1), 0x2000, 20, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 3, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(tag_of(lord, cuda(0), "weights").allocated, 100);
    assert_int_equal(tag_of(lord, cuda(MEMLORD_ANY), "weights").allocated, 120);
    assert_int_equal(tag_of(lord, all(), "weights").allocated, 123);
    assert_int_equal(tag_of(lord, all(), "weights").blocks, 3);
}

static void a_tag_never_seen_is_unknown(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat stat, zero;
    memset(&stat, 0xee, sizeof stat);
    memset(&zero, 0, sizeof zero);
    assert_int_equal(memlord_tag_get(lord, all(), "nothing", &stat), MEMLORD_E_UNKNOWN);
    assert_memory_equal(&stat, &zero, sizeof stat);
}

static void a_null_out_is_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_tag_get(lord, all(), NULL, NULL), MEMLORD_E_INVALID);
}

static void an_end_without_a_begin_is_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
    assert_ok(memlord_tag_begin(lord, "a"));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
    assert_int_equal(tag_of(lord, cpu(), NULL).allocated, 1);
}

static void tags_nest_64_deep_and_no_deeper(void **state) {
    memlord *lord = test_lord(state);
    char name[32];
    int i;
    for (i = 0; i < 64; i++) {
        snprintf(name, sizeof name, "depth %d", i);
        assert_ok(memlord_tag_begin(lord, name));
    }
    assert_int_equal(memlord_tag_begin(lord, "too deep"), MEMLORD_E_STATE);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
    assert_int_equal(tag_of(lord, cpu(), "depth 63").allocated, 1);
    for (i = 0; i < 64; i++) assert_ok(memlord_tag_end(lord));
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
}

static void a_name_that_is_null_or_empty_is_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_tag_begin(lord, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_tag_begin(lord, ""), MEMLORD_E_INVALID);
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
}

static void names_are_copied(void **state) {
    memlord *lord = test_lord(state);
    char name[] = "volatile name";
    assert_ok(memlord_tag_begin(lord, name));
    memset(name, 'x', sizeof name - 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 9, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(tag_of(lord, cpu(), "volatile name").allocated, 9);
}

static void *allocate_untagged(void *lord) {
    memlord_alloc((memlord *)lord, memlord_device_cpu(), 0x9000, 5, NULL);
    memlord_free((memlord *)lord, memlord_device_cpu(), 0x1000, NULL);
    return NULL;
}

static void a_tag_belongs_to_its_thread_and_a_block_keeps_it(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_int_equal(pthread_create(&thread, NULL, allocate_untagged, lord), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(tag_of(lord, cpu(), "weights").allocated, 0);
    assert_int_equal(tag_of(lord, cpu(), NULL).allocated, 5);
}

static void *leave_a_tag_open(void *lord) {
    memlord_tag_begin((memlord *)lord, "left open");
    return NULL;
}

static void a_thread_may_end_inside_a_tag(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat left;
    pthread_t thread;
    int i;
    for (i = 0; i < 10; i++) {
        assert_int_equal(pthread_create(&thread, NULL, leave_a_tag_open, lord), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(pthread_create(&thread, NULL, allocate_untagged, lord), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        memlord_tag_get(lord, cpu(), "left open", &left);
        assert_int_equal(left.allocated, 0);
    }
}

static void each_ledger_has_its_own_stack(void **state) {
    memlord *lord = test_lord(state), *other = NULL;
    assert_ok(memlord_create(NULL, &other));
    assert_ok(memlord_tag_begin(lord, "mine"));
    assert_int_equal(memlord_tag_end(other), MEMLORD_E_STATE);
    assert_ok(memlord_alloc(other, cpu(), 0x1000, 5, NULL));
    assert_int_equal(tag_of(other, cpu(), NULL).allocated, 5);
    assert_ok(memlord_tag_end(lord));
    memlord_destroy(other);
}

static void leave_by_return(memlord *lord) {
    MEMLORD_TAG(lord, "scoped") {
        memlord_alloc(lord, memlord_device_cpu(), 0x1000, 1, NULL);
        return;
    }
}

static void the_block_form_ends_however_it_is_left(void **state) {
    memlord *lord = test_lord(state);
    int rounds = 0;
    MEMLORD_TAG(lord, "scoped") {
        assert_ok(memlord_alloc(lord, cpu(), 0x2000, 2, NULL));
        rounds++;
    }
    assert_int_equal(rounds, 1);
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
    MEMLORD_TAG(lord, "scoped") {
        assert_ok(memlord_alloc(lord, cpu(), 0x3000, 4, NULL));
        break;
    }
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
    leave_by_return(lord);
    assert_int_equal(memlord_tag_end(lord), MEMLORD_E_STATE);
    assert_int_equal(tag_of(lord, cpu(), "scoped").allocated, 7);
}

static void a_block_form_that_could_not_begin_does_not_end(void **state) {
    memlord *lord = test_lord(state);
    int rounds = 0;
    assert_ok(memlord_tag_begin(lord, "outer"));
    MEMLORD_TAG(lord, "") rounds++;
    assert_int_equal(rounds, 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
    assert_int_equal(tag_of(lord, cpu(), "outer").allocated, 1);
    assert_ok(memlord_tag_end(lord));
}

static void a_promise_is_compared_with_what_is_there(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_expect(lord, cuda(0), "weights", 150));
    assert_int_equal(tag_of(lord, cuda(0), "weights").expected, 150);
    assert_true(tag_of(lord, cuda(0), "weights").variance == -150);
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 170, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_true(tag_of(lord, cuda(0), "weights").variance == 20);
    assert_ok(memlord_expect(lord, cuda(0), "weights", 70));
    assert_true(tag_of(lord, cuda(0), "weights").variance == 100);
}

static void a_bad_promise_is_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_expect(lord, cpu(), NULL, 1), MEMLORD_E_INVALID);
    assert_int_equal(memlord_expect(lord, cpu(), "", 1), MEMLORD_E_INVALID);
    assert_int_equal(memlord_expect(lord, memlord_device_make(99, 0), "t", 1), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_expect(lord, all(), "t", 1), MEMLORD_E_DEVICE);
}

static void a_retag_takes_the_bytes_along(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    assert_ok(memlord_tag_begin(lord, "from"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_block_retag(lord, cpu(), 0x1000, "to"));
    assert_int_equal(tag_of(lord, cpu(), "from").allocated, 0);
    assert_int_equal(tag_of(lord, cpu(), "from").blocks, 0);
    assert_int_equal(tag_of(lord, cpu(), "to").allocated, 100);
    assert_int_equal(tag_of(lord, cpu(), "to").blocks, 1);
    assert_ok(memlord_block_find(lord, cpu(), 0x1000, &info));
    assert_string_equal(info.tag, "to");
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(tag_of(lord, cpu(), "to").allocated, 0);
}

static void a_tag_first_used_after_a_reset_has_its_peak(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat tag;
    assert_ok(memlord_expect(lord, cpu(), "late", 10));
    memlord_reset(lord);
    assert_ok(memlord_tag_begin(lord, "late"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_tag_get(lord, all(), "late", &tag));
    assert_int_equal(tag.peak, 100);
}

static void a_retag_is_in_the_peak(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_block_retag(lord, cpu(), 0x1000, "to"));
    assert_ok(memlord_tag_begin(lord, "other"));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 10, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(tag_of(lord, cpu(), "to").peak, 100);
}

static void a_retag_to_nothing_unties_it(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    assert_ok(memlord_tag_begin(lord, "from"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 10, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_block_retag(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_block_retag(lord, cpu(), 0x2000, ""));
    assert_int_equal(tag_of(lord, cpu(), "from").allocated, 0);
    assert_int_equal(tag_of(lord, cpu(), NULL).allocated, 110);
    assert_ok(memlord_block_find(lord, cpu(), 0x1000, &info));
    assert_null(info.tag);
}

/* An empty one would be a second `tag=""` of PROMETHEUS, and an empty frame of FOLDED. */
static void a_description_with_an_empty_tag_has_none(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info block;
    memlord_tag_stat stat;
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    meta.tag = "";
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 10, NULL));
    assert_ok(memlord_block_describe(lord, cpu(), 0x1000, &meta));
    assert_ok(memlord_block_describe(lord, cpu(), 0x2000, &meta));
    assert_int_equal(memlord_tag_get(lord, cpu(), "", &stat), MEMLORD_E_UNKNOWN);
    assert_int_equal(tag_of(lord, cpu(), "weights").allocated, 100);
    assert_int_equal(tag_of(lord, cpu(), NULL).allocated, 10);
    assert_ok(memlord_block_find(lord, cpu(), 0x2000, &block));
    assert_null(block.tag);
    assert_null(block.meta.tag);
}

static void a_retag_of_the_dead_is_unknown(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_block_retag(lord, cpu(), 0x1000, "to"), MEMLORD_E_UNKNOWN);
}

static void a_reset_sets_the_peak_to_what_lives(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "cache"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 10, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    memlord_reset(lord);
    assert_int_equal(tag_of(lord, cpu(), "cache").peak, 10);
    assert_int_equal(tag_of(lord, cpu(), "cache").allocated, 10);
    assert_int_equal(tag_of(lord, cpu(), "cache").blocks, 1);
}

static void a_thousand_tags_are_kept_apart(void **state) {
    memlord *lord = test_lord(state);
    char name[32];
    uint64_t i, sum = 0;
    for (i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "request %d", (int)i);
        assert_ok(memlord_tag_begin(lord, name));
        assert_ok(memlord_alloc(lord, cpu(), (i + 1) * 64, i + 1, NULL));
        assert_ok(memlord_tag_end(lord));
    }
    for (i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "request %d", (int)i);
        sum += tag_of(lord, cpu(), name).allocated;
        assert_int_equal(tag_of(lord, cpu(), name).allocated, i + 1);
    }
    assert_int_equal(sum, memlord_allocated(lord, cpu()));
}

/* One tag more than there may be on all devices. */
static void a_block_whose_tag_has_no_room_counts_once(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i, dropped = 0;
    char name[32];
    for (i = 0; !dropped; i++) {
        assert_true(i < 100000);
        snprintf(name, sizeof name, "tag %d", (int)i);
        assert_ok(memlord_tag_begin(lord, name));
        assert_ok(memlord_alloc(lord, cuda(0), (i + 1) * 64, 8, NULL));
        dropped = stats_of(lord, cuda(0)).dropped_sites;
        if (!dropped) assert_ok(memlord_tag_end(lord));
    }
    assert_int_equal(dropped, 1);
    assert_ok(memlord_alloc(lord, cuda(0), (i + 1) * 64, 8, NULL));
    assert_int_equal(stats_of(lord, cuda(0)).dropped_sites, 2);
    assert_ok(memlord_tag_end(lord));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_is_allocated_inside_carries_the_tag),
        TEST(null_reads_what_carries_none),
        TEST(the_innermost_wins),
        TEST(a_free_debits_the_tag_of_the_block),
        TEST(a_view_does_not_change_the_tag),
        TEST(tags_are_read_by_device),
        TEST(a_tag_never_seen_is_unknown),
        TEST(a_null_out_is_refused),
        TEST(an_end_without_a_begin_is_refused),
        TEST(tags_nest_64_deep_and_no_deeper),
        TEST(a_name_that_is_null_or_empty_is_refused),
        TEST(names_are_copied),
        TEST(a_tag_belongs_to_its_thread_and_a_block_keeps_it),
        TEST(a_thread_may_end_inside_a_tag),
        TEST(each_ledger_has_its_own_stack),
        TEST(the_block_form_ends_however_it_is_left),
        TEST(a_block_form_that_could_not_begin_does_not_end),
        TEST(a_promise_is_compared_with_what_is_there),
        TEST(a_bad_promise_is_refused),
        TEST(a_retag_takes_the_bytes_along),
        TEST(a_tag_first_used_after_a_reset_has_its_peak),
        TEST(a_retag_is_in_the_peak),
        TEST(a_retag_to_nothing_unties_it),
        TEST(a_description_with_an_empty_tag_has_none),
        TEST(a_retag_of_the_dead_is_unknown),
        TEST(a_reset_sets_the_peak_to_what_lives),
        TEST(a_thousand_tags_are_kept_apart),
        TEST(a_block_whose_tag_has_no_room_counts_once),
    };
    return cmocka_run_group_tests_name("tags", tests, NULL, NULL);
}
