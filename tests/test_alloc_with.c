/* One alloc with its own tag, ticket, account and stream. */
#include "support.h"

static memlord_alloc_opts none(void) {
    memlord_alloc_opts opts;
    memset(&opts, 0, sizeof opts);
    return opts;
}

static memlord_block_info block_of(memlord *lord, uint64_t storage) {
    memlord_block_info info;
    memset(&info, 0xee, sizeof info);
    assert_ok(memlord_block_find(lord, cuda(0), storage, &info));
    return info;
}

static uint64_t charged(memlord *lord, memlord_account account) {
    memlord_account_stat stat;
    memset(&stat, 0xee, sizeof stat);
    assert_ok(memlord_account_get(lord, account, &stat));
    return stat.bytes;
}

static memlord_account account_on(memlord *lord, memlord_device device) {
    memlord_account account = 0;
    assert_ok(memlord_account_open(lord, device, "a", 0, &account));
    return account;
}

static memlord_ticket ticket_on(memlord *lord, memlord_device device, uint64_t bytes) {
    memlord_ticket ticket = 0;
    assert_ok(memlord_reserve(lord, device, bytes, &ticket));
    return ticket;
}

/* -- what is not said is the thread's -- */

static void without_opts_it_is_an_alloc(void **state) {
    memlord *lord = test_lord(state);
    const memlord_alloc_opts opts = none();
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x2000, 10, &opts));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 110);
    assert_null(block_of(lord, 0x1000).tag);
    assert_null(block_of(lord, 0x2000).site);
    assert_int_equal(stats_of(lord, cuda(0)).refused, 0);
}

static void what_is_0_is_the_threads(void **state) {
    memlord *lord = test_lord(state);
    const memlord_alloc_opts opts = none();
    const memlord_account account = account_on(lord, cuda(0));
    const memlord_ticket ticket = ticket_on(lord, cuda(0), 1000);
    assert_ok(memlord_account_use(lord, account));
    assert_ok(memlord_tag_begin(lord, "kv"));
    (void)memlord_stream_set(lord, 7);
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 100, &opts));
    assert_string_equal(block_of(lord, 0x1000).tag, "kv");
    assert_int_equal(block_of(lord, 0x1000).stream, 7);
    assert_int_equal(charged(lord, account), 100);
    assert_int_equal(stats_of(lord, cuda(0)).held, 900);
    assert_ok(memlord_reserve_commit(lord, ticket));
}

/* -- what is said -- */

static void a_block_has_the_tag_that_is_said(void **state) {
    memlord *lord = test_lord(state);
    memlord_alloc_opts opts = none();
    char text[] = "weights";
    opts.tag = text;
    assert_ok(memlord_tag_begin(lord, "kv"));
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 100, &opts));
    text[0] = '?'; /* it was copied */
    assert_string_equal(block_of(lord, 0x1000).tag, "weights");
    assert_string_equal(memlord_tag_current(lord), "kv");
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 1, NULL));
    assert_string_equal(block_of(lord, 0x2000).tag, "kv");
}

static void an_empty_tag_is_none(void **state) {
    memlord *lord = test_lord(state);
    memlord_alloc_opts opts = none();
    opts.tag = "";
    assert_ok(memlord_tag_begin(lord, "kv"));
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 100, &opts));
    assert_null(block_of(lord, 0x1000).tag);
}

static void a_tag_may_be_long(void **state) {
    memlord *lord = test_lord(state);
    memlord_alloc_opts opts = none();
    char *text = (char *)malloc((1 << 20) + 1);
    assert_non_null(text);
    memset(text, 'x', 1 << 20);
    text[1 << 20] = 0;
    opts.tag = text;
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 100, &opts));
    assert_string_equal(block_of(lord, 0x1000).tag, text);
    free(text);
}

static void without_memory_for_the_tag_the_block_has_none(void **state) {
    test_case *t = (test_case *)*state;
    memlord_alloc_opts opts = none();
    char *text = (char *)malloc((1 << 20) + 1);
    assert_non_null(text);
    memset(text, 'x', 1 << 20);
    text[1 << 20] = 0;
    opts.tag = text;
    assert_ok(memlord_tag_begin(t->lord, "kv"));
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x2000, 100, NULL));
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    assert_ok(memlord_alloc_with(t->lord, cuda(0), 0x1000, 100, &opts));
    t->heap.fail_at = 0;
    assert_null(block_of(t->lord, 0x1000).tag);
    assert_int_equal(stats_of(t->lord, all()).dropped_sites, 1);
    free(text);
}

static void a_block_has_the_site_that_is_said(void **state) {
    memlord *lord = test_lord(state);
    static const memlord_site site = {"kv.c", "grow_cache", 7};
    memlord_alloc_opts opts = none();
    opts.site = &site;
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 100, &opts));
    assert_non_null(block_of(lord, 0x1000).site);
    assert_string_equal(block_of(lord, 0x1000).site->function, "grow_cache");
}

static void a_block_has_the_stream_that_is_said(void **state) {
    memlord *lord = test_lord(state);
    memlord_alloc_opts opts = none();
    (void)memlord_stream_set(lord, 7);
    opts.stream = 9;
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 100, &opts));
    opts.stream = MEMLORD_NONE;
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x2000, 100, &opts));
    assert_ok(memlord_alloc(lord, cuda(0), 0x3000, 100, NULL));
    assert_int_equal(block_of(lord, 0x1000).stream, 9);
    assert_int_equal(block_of(lord, 0x2000).stream, 0);
    assert_int_equal(block_of(lord, 0x3000).stream, 7);
}

static void a_stream_that_is_said_keeps_the_scope(void **state) {
    memlord *lord = test_lord(state);
    memlord_alloc_opts opts = none();
    opts.stream = 9;
    assert_ok(memlord_scope_begin(lord, "decode"));
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 100, &opts));
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 100, NULL));
    assert_ok(memlord_scope_end(lord));
    assert_string_equal(block_of(lord, 0x1000).scope, "decode");
    assert_int_equal(block_of(lord, 0x1000).stream, 9);
    assert_string_equal(block_of(lord, 0x2000).scope, "decode");
    assert_int_equal(block_of(lord, 0x2000).stream, 0);
}

static void a_block_is_charged_to_the_account_that_is_said(void **state) {
    memlord *lord = test_lord(state);
    const memlord_account mine = account_on(lord, cuda(0)), other = account_on(lord, cuda(0));
    memlord_alloc_opts opts = none();
    assert_ok(memlord_account_use(lord, mine));
    opts.account = other;
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 100, &opts));
    opts.account = MEMLORD_NONE;
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x2000, 10, &opts));
    assert_ok(memlord_alloc(lord, cuda(0), 0x3000, 1, NULL));
    assert_int_equal(charged(lord, other), 100);
    assert_int_equal(charged(lord, mine), 1);
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(charged(lord, other), 0);
}

static void its_bytes_come_off_the_ticket_that_is_said_alone(void **state) {
    memlord *lord = test_lord(state);
    const memlord_ticket named = ticket_on(lord, cuda(0), 100), mine = ticket_on(lord, cuda(0), 100);
    memlord_alloc_opts opts = none();
    opts.ticket = named;
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 150, &opts));
    assert_int_equal(stats_of(lord, cuda(0)).held, 100);
    assert_ok(memlord_reserve_commit(lord, named));
    assert_int_equal(stats_of(lord, cuda(0)).held, 100);
    assert_ok(memlord_reserve_commit(lord, mine));
}

/* -- what is not open -- */

static void a_committed_ticket_is_as_none_and_refused(void **state) {
    memlord *lord = test_lord(state);
    const memlord_ticket over = ticket_on(lord, cuda(0), 100), mine = ticket_on(lord, cuda(0), 100);
    memlord_alloc_opts opts = none();
    assert_ok(memlord_reserve_commit(lord, over));
    opts.ticket = over;
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 30, &opts));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 30);
    assert_int_equal(stats_of(lord, cuda(0)).held, 70); /* it comes off the thread's */
    assert_int_equal(stats_of(lord, cuda(0)).refused, 1);
    assert_ok(memlord_reserve_commit(lord, mine));
}

static void a_ticket_of_another_physical_device_is_as_none_and_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_alloc_opts opts = none();
    opts.ticket = ticket_on(lord, cuda(1), 100);
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 30, &opts));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 30);
    assert_int_equal(stats_of(lord, cuda(1)).held, 100);
    assert_int_equal(stats_of(lord, cuda(0)).refused, 1);
}

static void a_closed_account_is_as_none_and_refused(void **state) {
    memlord *lord = test_lord(state);
    const memlord_account mine = account_on(lord, cuda(0)), over = account_on(lord, cuda(0));
    memlord_alloc_opts opts = none();
    assert_ok(memlord_account_close(lord, over));
    assert_ok(memlord_account_use(lord, mine));
    opts.account = over;
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 30, &opts));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 30);
    assert_int_equal(charged(lord, mine), 30);
    assert_int_equal(stats_of(lord, cuda(0)).refused, 1);
}

static void an_account_of_another_device_is_as_none_and_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_alloc_opts opts = none();
    opts.account = account_on(lord, cuda(1));
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 30, &opts));
    assert_int_equal(charged(lord, opts.account), 0);
    assert_int_equal(stats_of(lord, cuda(0)).refused, 1);
}

static void one_call_is_refused_once(void **state) {
    memlord *lord = test_lord(state);
    memlord_alloc_opts opts = none();
    opts.account = 12345;
    opts.ticket = 54321;
    assert_ok(memlord_alloc_with(lord, cuda(0), 0x1000, 30, &opts));
    assert_int_equal(stats_of(lord, cuda(0)).refused, 1);
    assert_int_equal(memlord_alloc_with(lord, cuda(0), 0, 30, &opts), MEMLORD_E_INVALID);
    assert_int_equal(stats_of(lord, cuda(0)).refused, 2);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 30);
}

static void a_null_ledger_records_nothing(void **state) {
    memlord_alloc_opts opts = none();
    (void)state;
    opts.account = opts.ticket = 1;
    assert_ok(memlord_alloc_with(NULL, cuda(0), 0x1000, 30, &opts));
    assert_ok(memlord_alloc_with(NULL, cuda(0), 0x1000, 30, NULL));
}

/* -- in a request that is tried again -- */

static int make(void *user, uint64_t bytes, uint64_t *storage) {
    (void)bytes;
    *storage = *(uint64_t *)user;
    return 0;
}

static void a_request_is_recorded_with_what_is_said(void **state) {
    memlord *lord = test_lord(state);
    memlord_alloc_opts opts = none();
    uint64_t key = 0x1000, storage = 0;
    opts.tag = "weights";
    opts.stream = 9;
    opts.account = account_on(lord, cuda(0));
    assert_ok(memlord_alloc_retry(lord, cuda(0), 100, make, &key, NULL, &storage, &opts));
    assert_int_equal(storage, 0x1000);
    assert_string_equal(block_of(lord, storage).tag, "weights");
    assert_int_equal(block_of(lord, storage).stream, 9);
    assert_int_equal(charged(lord, opts.account), 100);
}

static void a_ticket_that_is_said_covers_a_request(void **state) {
    memlord *lord = test_lord(state);
    memlord_alloc_opts opts = none();
    memlord_ticket mine;
    uint64_t key = 0x1000, storage = 0;
    assert_ok(memlord_limit_set(lord, cuda(0), 100));
    opts.ticket = ticket_on(lord, cuda(0), 60);
    mine = ticket_on(lord, cuda(0), 40);
    assert_int_equal(memlord_alloc_retry(lord, cuda(0), 70, make, &key, NULL, &storage, &opts),
                     MEMLORD_E_LIMIT); /* that of the thread does not */
    assert_ok(memlord_alloc_retry(lord, cuda(0), 50, make, &key, NULL, &storage, &opts));
    assert_int_equal(stats_of(lord, cuda(0)).held, 50);
    assert_ok(memlord_reserve_commit(lord, mine));
    assert_int_equal(stats_of(lord, cuda(0)).held, 10);
}

static void a_request_with_a_ticket_that_is_not_open_is_refused_once(void **state) {
    memlord *lord = test_lord(state);
    memlord_alloc_opts opts = none();
    uint64_t key = 0x1000, storage = 0;
    opts.ticket = 12345;
    assert_ok(memlord_alloc_retry(lord, cuda(0), 50, make, &key, NULL, &storage, &opts));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 50);
    assert_int_equal(stats_of(lord, cuda(0)).refused, 1);
}

static void a_request_with_an_account_that_is_closed_is_refused_once(void **state) {
    memlord *lord = test_lord(state);
    memlord_alloc_opts opts = none();
    const memlord_account mine = account_on(lord, cuda(0));
    uint64_t key = 0x1000, storage = 0;
    opts.account = account_on(lord, cuda(0));
    assert_ok(memlord_account_close(lord, opts.account));
    assert_ok(memlord_account_use(lord, mine));
    assert_ok(memlord_alloc_retry(lord, cuda(0), 50, make, &key, NULL, &storage, &opts));
    assert_int_equal(storage, 0x1000);
    assert_int_equal(charged(lord, mine), 50);
    assert_int_equal(stats_of(lord, cuda(0)).refused, 1);
}

static void a_request_may_have_a_long_tag(void **state) {
    memlord *lord = test_lord(state);
    memlord_alloc_opts opts = none();
    memlord_tag_stat stat;
    uint64_t key = 0x1000, storage = 0;
    char *text = (char *)malloc((1 << 20) + 1);
    assert_non_null(text);
    memset(text, 'x', 1 << 20);
    text[1 << 20] = 0;
    opts.tag = text;
    assert_ok(memlord_alloc_retry(lord, cuda(0), 50, make, &key, NULL, &storage, &opts));
    assert_ok(memlord_tag_get(lord, cuda(0), text, &stat));
    assert_int_equal(stat.allocated, 50);
    assert_string_equal(block_of(lord, 0x1000).tag, text);
    free(text);
}

static void a_null_ledger_makes_the_request_and_records_nothing(void **state) {
    memlord_alloc_opts opts = none();
    uint64_t key = 0x1000, storage = 0;
    (void)state;
    opts.account = opts.ticket = 12345;
    opts.tag = "kv";
    assert_ok(memlord_alloc_retry(NULL, cuda(0), 50, make, &key, NULL, &storage, &opts));
    assert_int_equal(storage, 0x1000);
}

/* -- the name of 0.4 -- */

static void the_name_of_0_4_names_a_ticket(void **state) {
    memlord *lord = test_lord(state);
    static const memlord_site site = {"kv.c", "grow_cache", 7};
    const memlord_ticket ticket = ticket_on(lord, cuda(0), 100);
    assert_ok(memlord_alloc_reserved(lord, ticket, cuda(0), 0x1000, 30, &site));
    assert_int_equal(stats_of(lord, cuda(0)).held, 70);
    assert_string_equal(block_of(lord, 0x1000).site->function, "grow_cache");
    assert_ok(memlord_alloc_reserved(NULL, ticket, cuda(0), 0x2000, 30, &site));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(without_opts_it_is_an_alloc),
        TEST(what_is_0_is_the_threads),
        TEST(a_block_has_the_tag_that_is_said),
        TEST(an_empty_tag_is_none),
        TEST(a_tag_may_be_long),
        TEST(without_memory_for_the_tag_the_block_has_none),
        TEST_SITES(a_block_has_the_site_that_is_said),
        TEST(a_block_has_the_stream_that_is_said),
        TEST(a_stream_that_is_said_keeps_the_scope),
        TEST(a_block_is_charged_to_the_account_that_is_said),
        TEST(its_bytes_come_off_the_ticket_that_is_said_alone),
        TEST(a_committed_ticket_is_as_none_and_refused),
        TEST(a_ticket_of_another_physical_device_is_as_none_and_refused),
        TEST(a_closed_account_is_as_none_and_refused),
        TEST(an_account_of_another_device_is_as_none_and_refused),
        TEST(one_call_is_refused_once),
        cmocka_unit_test(a_null_ledger_records_nothing),
        TEST(a_request_is_recorded_with_what_is_said),
        TEST(a_ticket_that_is_said_covers_a_request),
        TEST(a_request_with_a_ticket_that_is_not_open_is_refused_once),
        TEST(a_request_with_an_account_that_is_closed_is_refused_once),
        TEST(a_request_may_have_a_long_tag),
        cmocka_unit_test(a_null_ledger_makes_the_request_and_records_nothing),
        TEST_SITES(the_name_of_0_4_names_a_ticket),
    };
    return cmocka_run_group_tests_name("alloc_with", tests, NULL, NULL);
}
