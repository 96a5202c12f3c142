/* Accounts: who is charged for bytes that are counted elsewhere. */
#include "support.h"

#include "json.h"

#define SCALE test_env("MEMLORD_TEST_SCALE", 4)

static memlord_account open_account(memlord *lord, const char *name, uint64_t limit) {
    memlord_account account = 0;
    assert_ok(memlord_account_open(lord, cuda(0), name, limit, &account));
    assert_true(account != 0);
    return account;
}

static memlord_account_stat account_of(memlord *lord, memlord_account account) {
    memlord_account_stat stat;
    memset(&stat, 0xee, sizeof stat);
    assert_ok(memlord_account_get(lord, account, &stat));
    return stat;
}

/* -- open, charge, get, close -- */

static void a_new_account_is_empty(void **state) {
    memlord *lord = test_lord(state);
    memlord_account_stat stat;
    memlord_account account = 0;
    assert_ok(memlord_account_open(lord, cuda(3), "request 17", 500, &account));
    stat = account_of(lord, account);
    assert_string_equal(stat.name, "request 17");
    assert_int_equal(stat.device.type, MEMLORD_DEVICE_CUDA);
    assert_int_equal(stat.device.index, 3);
    assert_int_equal(stat.bytes, 0);
    assert_int_equal(stat.peak, 0);
    assert_int_equal(stat.limit, 500);
    assert_int_equal(stat.refused, 0);
}

static void charges_add_up_and_the_peak_stays(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = open_account(lord, "a", 0);
    assert_ok(memlord_account_charge(lord, account, 100));
    assert_ok(memlord_account_charge(lord, account, 50));
    assert_ok(memlord_account_charge(lord, account, -120));
    assert_ok(memlord_account_charge(lord, account, 0));
    assert_int_equal(account_of(lord, account).bytes, 30);
    assert_int_equal(account_of(lord, account).peak, 150);
}

static void it_may_go_down_to_0(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = open_account(lord, "a", 0);
    assert_ok(memlord_account_charge(lord, account, 100));
    assert_ok(memlord_account_charge(lord, account, -100));
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void accounts_are_apart(void **state) {
    memlord *lord = test_lord(state);
    memlord_account a = open_account(lord, "same name", 0), b = open_account(lord, "same name", 0);
    assert_true(a != b);
    assert_ok(memlord_account_charge(lord, a, 100));
    assert_int_equal(account_of(lord, b).bytes, 0);
}

static void it_adds_nothing_to_the_device(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account;
    memlord_stats before, after;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 7, NULL));
    before = stats_of(lord, all());
    account = open_account(lord, "a", 0);
    assert_ok(memlord_account_charge(lord, account, 1000));
    after = stats_of(lord, all());
    assert_memory_equal(&before, &after, sizeof before);
    assert_ok(memlord_account_close(lord, account));
    assert_int_equal(memlord_allocated(lord, all()), 7);
}

static void its_limit_is_no_limit_of_the_device(void **state) {
    memlord *lord = test_lord(state);
    memlord_ticket ticket = 0;
    open_account(lord, "a", 10);
    assert_int_equal(stats_of(lord, cuda(0)).limit, 0);
    assert_ok(memlord_reserve(lord, cuda(0), 1000, &ticket));
    assert_ok(memlord_reserve_commit(lord, ticket));
}

static void it_may_be_closed_with_bytes_in_it(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = open_account(lord, "a", 0);
    assert_ok(memlord_account_charge(lord, account, 1000));
    assert_ok(memlord_account_close(lord, account));
}

static void a_reset_leaves_it_alone(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = open_account(lord, "a", 0);
    assert_ok(memlord_account_charge(lord, account, 1000));
    memlord_reset(lord);
    assert_int_equal(account_of(lord, account).bytes, 1000);
}

/* -- limits -- */

static void over_its_limit_it_is_refused_unchanged(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = open_account(lord, "a", 100);
    assert_ok(memlord_account_charge(lord, account, 60));
    assert_int_equal(memlord_account_charge(lord, account, 41), MEMLORD_E_LIMIT);
    assert_int_equal(account_of(lord, account).bytes, 60);
    assert_int_equal(account_of(lord, account).peak, 60);
    assert_int_equal(account_of(lord, account).refused, 1);
    assert_ok(memlord_account_charge(lord, account, 40));
    assert_int_equal(memlord_account_charge(lord, account, 1), MEMLORD_E_LIMIT);
    assert_int_equal(account_of(lord, account).bytes, 100);
    assert_int_equal(account_of(lord, account).refused, 2);
}

static void without_a_limit_2_to_the_48_is_one(void **state) {
    static const uint64_t limits[] = {0, TEST_MAX_BYTES, TEST_MAX_BYTES + 1, UINT64_MAX};
    memlord *lord = test_lord(state);
    size_t i;
    for (i = 0; i < sizeof limits / sizeof *limits; i++) {
        memlord_account account = open_account(lord, "a", limits[i]);
        assert_ok(memlord_account_charge(lord, account, (int64_t)TEST_MAX_BYTES));
        assert_int_equal(memlord_account_charge(lord, account, 1), MEMLORD_E_LIMIT);
        assert_int_equal(memlord_account_charge(lord, account, INT64_MAX), MEMLORD_E_LIMIT);
        assert_int_equal(account_of(lord, account).bytes, TEST_MAX_BYTES);
        assert_int_equal(account_of(lord, account).limit, limits[i]);
        assert_int_equal(account_of(lord, account).refused, 2);
    }
}

static void a_closed_account_is_in_no_report(void **state) {
    memlord *lord = test_lord(state);
    memlord_account accounts[3];
    char *json;
    int i;
    for (i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "account %d", i);
        accounts[i] = open_account(lord, name, 0);
        assert_ok(memlord_account_charge(lord, accounts[i], 100 + i));
    }
    assert_ok(memlord_account_close(lord, accounts[1]));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(json, "\"account 0\""));
    assert_null(strstr(json, "\"account 1\""));
    assert_non_null(strstr(json, "\"account 2\""));
    free(json);
}

static void below_0_is_refused_unchanged(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = open_account(lord, "a", 100);
    assert_ok(memlord_account_charge(lord, account, 60));
    assert_int_equal(memlord_account_charge(lord, account, -61), MEMLORD_E_INVALID);
    assert_int_equal(memlord_account_charge(lord, account, INT64_MIN), MEMLORD_E_INVALID);
    assert_int_equal(memlord_account_charge(lord, account, -INT64_MAX), MEMLORD_E_INVALID);
    assert_int_equal(account_of(lord, account).bytes, 60);
    assert_int_equal(account_of(lord, account).refused, 0);
}

/* -- ids -- */

static void a_closed_account_is_unknown(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = open_account(lord, "a", 0);
    memlord_account_stat stat;
    assert_ok(memlord_account_close(lord, account));
    assert_int_equal(memlord_account_charge(lord, account, 1), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_account_get(lord, account, &stat), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_account_close(lord, account), MEMLORD_E_UNKNOWN);
}

static void ids_that_were_never_given_are_unknown(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = open_account(lord, "a", 0);
    memlord_account_stat stat;
    uint64_t seed = 1, i;
    assert_int_equal(memlord_account_charge(lord, 0, 1), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_account_close(lord, 0), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_account_close(lord, UINT64_MAX), MEMLORD_E_UNKNOWN);
    for (i = 0; i < 10000; i++) {
        memlord_account guess = test_random(&seed);
        if (guess == account) continue;
        assert_int_equal(memlord_account_charge(lord, guess, 1), MEMLORD_E_UNKNOWN);
    }
    for (i = 0; i < 64; i++) { /* and those nearby */
        memlord_account guess = account ^ (uint64_t)1 << i;
        assert_int_equal(memlord_account_charge(lord, guess, 1), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_account_get(lord, guess, &stat), MEMLORD_E_UNKNOWN);
    }
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void a_place_used_again_has_another_number(void **state) {
    memlord *lord = test_lord(state);
    memlord_account first = open_account(lord, "first", 0), now;
    uint64_t i;
    assert_ok(memlord_account_charge(lord, first, 50));
    assert_ok(memlord_account_close(lord, first));
    for (i = 0; i < 1000; i++) {
        now = open_account(lord, "later", 0);
        assert_true(now != first);
        assert_int_equal(memlord_account_charge(lord, first, 1), MEMLORD_E_UNKNOWN);
        assert_int_equal(account_of(lord, now).bytes, 0);
        assert_int_equal(account_of(lord, now).peak, 0);
        assert_ok(memlord_account_close(lord, now));
    }
}

static void many_may_be_open_at_once(void **state) {
    memlord *lord = test_lord(state);
    static memlord_account accounts[5000];
    size_t i;
    for (i = 0; i < 5000; i++) {
        accounts[i] = open_account(lord, "many", 0);
        assert_ok(memlord_account_charge(lord, accounts[i], (int64_t)i));
    }
    for (i = 0; i < 5000; i += 2) assert_ok(memlord_account_close(lord, accounts[i]));
    for (i = 0; i < 5000; i += 2) accounts[i] = open_account(lord, "again", 0);
    for (i = 0; i < 5000; i++) {
        assert_int_equal(account_of(lord, accounts[i]).bytes, i % 2 ? i : 0);
        assert_ok(memlord_account_close(lord, accounts[i]));
    }
}

static void opens_and_closes_do_not_grow_memory(void **state) {
    test_case *t = (test_case *)*state;
    memlord_account first = 0, kept;
    uint64_t i, bytes;
    kept = open_account(t->lord, "kept", 0);
    for (i = 0; i < 10; i++) {
        first = open_account(t->lord, "first", 0);
        assert_ok(memlord_account_close(t->lord, first));
    }
    bytes = t->heap.bytes;
    for (i = 0; i < 100000; i++) {
        char name[40];
        memlord_account account;
        snprintf(name, sizeof name, "request %d", (int)i); /* names are not kept either */
        account = open_account(t->lord, name, 0);
        assert_int_equal(memlord_account_charge(t->lord, first, 1), MEMLORD_E_UNKNOWN);
        assert_ok(memlord_account_close(t->lord, account));
    }
    assert_true(t->heap.bytes <= bytes);
    assert_int_equal(account_of(t->lord, kept).bytes, 0);
}

/* -- names -- */

static void a_long_name_is_cut(void **state) {
    memlord *lord = test_lord(state);
    static char name[10000];
    memlord_account_stat stat;
    memset(name, 'x', sizeof name - 1);
    stat = account_of(lord, open_account(lord, name, 0));
    assert_int_equal(strlen(stat.name), sizeof stat.name - 1);
    assert_memory_equal(stat.name, name, sizeof stat.name - 1);
    name[sizeof stat.name - 1] = 0;
    stat = account_of(lord, open_account(lord, name, 0)); /* one that just fits */
    assert_string_equal(stat.name, name);
}

static void a_name_may_be_missing(void **state) {
    memlord *lord = test_lord(state);
    assert_string_equal(account_of(lord, open_account(lord, NULL, 0)).name, "");
    assert_string_equal(account_of(lord, open_account(lord, "", 0)).name, "");
}

static void a_name_is_copied(void **state) {
    memlord *lord = test_lord(state);
    char name[] = "mine";
    memlord_account account = open_account(lord, name, 0);
    memset(name, '?', sizeof name - 1);
    assert_string_equal(account_of(lord, account).name, "mine");
}

static void hostile_names_break_no_report(void **state) {
    static const char *const names[] = {
        "quotes \" and \\", "controls \x01\x1b[31m\x7f\n", "bad utf-8 \xff \xc0\x80 cut \xe2\x82",
        "%n%s%n%s", "</script>", "\xe2\x80\xa8",
        "cut inside of a letter of two bytes .........\xc3\xa9\xc3\xa9\xc3\xa9",
        "cut inside of a letter of two bytes ........\xc3\xa9\xc3\xa9\xc3\xa9"};
    memlord *lord = test_lord(state);
    char *json, *text;
    size_t i;
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_ok(memlord_account_charge(lord, open_account(lord, names[i], 0), 1000));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    assert_true(json_valid(json));
    assert_null(strchr(text, 0x1b));
    free(json);
    free(text);
}

/* -- arguments -- */

static void bad_arguments_are_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_device bad = memlord_device_make(MEMLORD_DEVICE_TYPE_COUNT, 0);
    memlord_account account = open_account(lord, "a", 0), none = 0;
    assert_int_equal(memlord_account_open(lord, cuda(0), "a", 0, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_account_open(lord, bad, "a", 0, &none), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_account_open(lord, all(), "a", 0, &none), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_account_open(lord, cuda(MEMLORD_ANY), "a", 0, &none),
                     MEMLORD_E_DEVICE);
    assert_int_equal(memlord_account_get(lord, account, NULL), MEMLORD_E_INVALID);
    assert_true(none == 0);
}

static void a_null_ledger_opens_none(void **state) {
    memlord_account account = 77;
    memlord_account_stat stat, zero;
    (void)state;
    memset(&zero, 0, sizeof zero);
    assert_ok(memlord_account_open(NULL, cuda(0), "a", 10, &account));
    assert_true(account == 0);
    assert_ok(memlord_account_charge(NULL, account, 1000));
    assert_ok(memlord_account_get(NULL, account, &stat));
    assert_memory_equal(&stat, &zero, sizeof stat);
    assert_ok(memlord_account_close(NULL, account));
}

/* -- no memory -- */

static int run_short_of_memory(uint64_t n) {
    test_heap heap;
    memlord_desc desc;
    memlord *lord = NULL;
    static memlord_account accounts[3000];
    size_t i, k;
    int failed = 0;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, 0);
    assert_ok(memlord_create(&desc, &lord));
    heap.fail_at = heap.calls + n;
    for (i = 0; i < 3000; i++) {
        memlord_result r;
        accounts[i] = 0;
        r = memlord_account_open(lord, cuda(0), "short", 0, &accounts[i]);
        if (r != MEMLORD_OK) {
            assert_int_equal(r, MEMLORD_E_NOMEM);
            assert_true(accounts[i] == 0);
            assert_int_equal(heap.failed, 1);
            for (k = 0; k < i; k += 97) assert_int_equal(account_of(lord, accounts[k]).bytes, k);
            accounts[i] = open_account(lord, "short", 0); /* the next one works */
        }
        assert_ok(memlord_account_charge(lord, accounts[i], (int64_t)i));
    }
    failed = heap.failed > 0;
    for (i = 0; i < 3000; i++) assert_int_equal(account_of(lord, accounts[i]).bytes, i);
    memlord_destroy(lord);
    assert_int_equal(heap.blocks, 0);
    assert_int_equal(heap.bad_frees, 0);
    return failed;
}

static void any_allocation_may_fail(void **state) {
    uint64_t n = 1;
    (void)state;
    while (run_short_of_memory(n)) n++;
    assert_true(n > 1);
}

static void charges_and_closes_need_no_memory(void **state) {
    test_case *t = (test_case *)*state;
    memlord_account account = open_account(t->lord, "a", 100);
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    assert_ok(memlord_account_charge(t->lord, account, 100));
    assert_int_equal(memlord_account_charge(t->lord, account, 100), MEMLORD_E_LIMIT);
    assert_int_equal(account_of(t->lord, account).bytes, 100);
    assert_ok(memlord_account_close(t->lord, account));
    account = open_account(t->lord, "b", 0); /* in the place of the first */
    t->heap.fail_at = 0;
}

/* -- accounts that a thread uses -- */

static memlord_account use_account(memlord *lord, uint64_t limit) {
    memlord_account account = open_account(lord, "used", limit);
    assert_ok(memlord_account_use(lord, account));
    return account;
}

static void put(memlord *lord, memlord_device device, uint64_t key, uint64_t bytes) {
    assert_ok(memlord_alloc(lord, device, key, bytes, NULL));
}

static void what_a_thread_allocates_is_charged_to_its_account(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account;
    put(lord, cuda(0), 0x1000, 7);
    account = use_account(lord, 0);
    put(lord, cuda(0), 0x2000, 100);
    put(lord, cuda(0), 0x3000, 50);
    assert_int_equal(account_of(lord, account).bytes, 150);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 157);
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(account_of(lord, account).bytes, 50);
    assert_int_equal(account_of(lord, account).peak, 150);
}

static void other_devices_are_not_charged(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    put(lord, cuda(1), 0x1000, 100);
    put(lord, cpu(), 0x2000, 100);
    assert_ok(memlord_arena_add(lord, cuda(0), 100, NULL));
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void use_of_0_ends_it(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    put(lord, cuda(0), 0x1000, 100);
    assert_ok(memlord_account_use(lord, 0));
    put(lord, cuda(0), 0x2000, 100);
    assert_int_equal(account_of(lord, account).bytes, 100);
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void the_next_account_takes_its_place(void **state) {
    memlord *lord = test_lord(state);
    memlord_account a = use_account(lord, 0), b;
    put(lord, cuda(0), 0x1000, 100);
    b = use_account(lord, 0);
    put(lord, cuda(0), 0x2000, 30);
    assert_int_equal(account_of(lord, a).bytes, 100);
    assert_int_equal(account_of(lord, b).bytes, 30);
}

static void over_its_limit_a_block_is_charged_all_the_same(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 100);
    put(lord, cuda(0), 0x1000, 60);
    put(lord, cuda(0), 0x2000, 60);
    assert_int_equal(account_of(lord, account).bytes, 120);
    assert_int_equal(account_of(lord, account).peak, 120);
    assert_int_equal(account_of(lord, account).refused, 1);
    assert_int_equal(memlord_account_charge(lord, account, 1), MEMLORD_E_LIMIT);
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(account_of(lord, account).bytes, 60);
    assert_int_equal(account_of(lord, account).refused, 2);
}

static void over_2_to_the_48_nothing_is_charged(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    put(lord, cuda(0), 0x1000, TEST_MAX_BYTES);
    put(lord, cuda(0), 0x2000, 1);
    assert_int_equal(account_of(lord, account).bytes, TEST_MAX_BYTES);
    assert_int_equal(account_of(lord, account).refused, 1);
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    assert_int_equal(account_of(lord, account).bytes, TEST_MAX_BYTES);
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void a_release_credits_with_the_last_reference(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    assert_ok(memlord_track(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_track(lord, cuda(0), 0x1000, 100, NULL));
    assert_int_equal(account_of(lord, account).bytes, 100);
    assert_ok(memlord_release(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(account_of(lord, account).bytes, 100);
    assert_ok(memlord_release(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void an_implicit_free_credits(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    put(lord, cuda(0), 0x1000, 100);
    put(lord, cuda(0), 0x1000, 30);
    assert_int_equal(account_of(lord, account).bytes, 30);
    assert_ok(memlord_account_use(lord, 0));
    put(lord, cuda(0), 0x1000, 50);
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void the_peak_has_no_bytes_that_were_never_live(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 150);
    assert_ok(memlord_track(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_track(lord, cuda(0), 0x1000, 100, NULL)); /* a view */
    put(lord, cuda(0), 0x1000, 90);                             /* an implicit free */
    put(lord, cuda(0), 0x2000, 40);
    assert_ok(memlord_realloc(lord, cuda(0), 0x2000, 0x1000, 120, NULL)); /* and another one */
    assert_int_equal(account_of(lord, account).bytes, 120);
    assert_int_equal(account_of(lord, account).peak, 130);
    assert_int_equal(account_of(lord, account).refused, 0);
}

static void a_realloc_charges_the_new_size_wherever_it_runs(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 100);
    put(lord, cuda(0), 0x1000, 80);
    assert_ok(memlord_account_use(lord, 0));
    assert_ok(memlord_realloc(lord, cuda(0), 0x1000, 0x2000, 150, NULL));
    assert_int_equal(account_of(lord, account).bytes, 150);
    assert_int_equal(account_of(lord, account).refused, 1);
    assert_ok(memlord_realloc(lord, cuda(0), 0x2000, 0x2000, 120, NULL));
    assert_int_equal(account_of(lord, account).bytes, 120);
    assert_int_equal(account_of(lord, account).refused, 1); /* less is no charge */
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void between_realloc_begin_and_end_it_stays_charged(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    memlord_realloc_token token;
    put(lord, cuda(0), 0x1000, 80);
    assert_ok(memlord_realloc_begin(lord, cuda(0), 0x1000, &token));
    assert_int_equal(account_of(lord, account).bytes, 80);
    assert_ok(memlord_realloc_end(lord, &token, 0, 0, NULL)); /* the real call failed */
    assert_int_equal(account_of(lord, account).bytes, 80);
    assert_ok(memlord_free_begin(lord, cuda(0), 0x1000, &token, NULL));
    assert_int_equal(account_of(lord, account).bytes, 80);
    assert_ok(memlord_free_end(lord, &token, 0, NULL));
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void a_move_on_its_device_keeps_the_charge(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    put(lord, cuda(0), 0x1000, 80);
    assert_ok(memlord_account_use(lord, 0));
    assert_ok(memlord_move(lord, cuda(0), 0x1000, cuda(0), 0x2000, 90, NULL, NULL));
    assert_int_equal(account_of(lord, account).bytes, 90);
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void a_move_away_ends_the_charge_and_one_back_charges_again(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    put(lord, cuda(0), 0x1000, 80);
    assert_ok(memlord_move(lord, cuda(0), 0x1000, cpu(), 0x2000, 80, NULL, NULL));
    assert_int_equal(account_of(lord, account).bytes, 0);
    assert_ok(memlord_move(lord, cpu(), 0x2000, cuda(0), 0x3000, 80, NULL, NULL));
    assert_int_equal(account_of(lord, account).bytes, 80);
    put(lord, cpu(), 0x4000, 20); /* has no side record */
    assert_ok(memlord_move(lord, cpu(), 0x4000, cuda(0), 0x5000, 20, NULL, NULL));
    assert_int_equal(account_of(lord, account).bytes, 100);
    assert_int_equal(memlord_move(lord, cpu(), 0x6000, cuda(0), 0x7000, 20, NULL, NULL),
                     MEMLORD_E_UNKNOWN);
    assert_int_equal(account_of(lord, account).bytes, 100);
}

/* A fence that is done when *user is not 0. */
static int ask_flag(void *user) { return *(int *)user; }

static memlord_fence fence_of(int *flag) {
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    fence.done = ask_flag;
    fence.user = flag;
    fence.queue = 1;
    return fence;
}

static void a_deferred_free_credits_when_it_is_done(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    int done = 0;
    put(lord, cuda(0), 0x1000, 80);
    assert_ok(memlord_free_deferred(lord, cuda(0), 0x1000, fence_of(&done), NULL));
    assert_int_equal(account_of(lord, account).bytes, 80);
    done = 1;
    assert_int_equal(memlord_retire(lord, all()), 80);
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void a_fenced_move_is_charged_for_both_until_it_is_done(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    int done = 0;
    memlord_fence fence = fence_of(&done);
    put(lord, cuda(0), 0x1000, 80);
    assert_ok(memlord_move(lord, cuda(0), 0x1000, cuda(0), 0x2000, 90, &fence, NULL));
    assert_int_equal(account_of(lord, account).bytes, 170);
    done = 1;
    assert_int_equal(memlord_retire(lord, all()), 80);
    assert_int_equal(account_of(lord, account).bytes, 90);
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void n_blocks_in_one_call_are_charged(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    memlord_block blocks[3];
    size_t i;
    for (i = 0; i < 3; i++) {
        blocks[i].device = i < 2 ? cuda(0) : cpu();
        blocks[i].storage = 0x1000 * (i + 1);
        blocks[i].bytes = 100;
    }
    put(lord, cuda(0), 0x1000, 5); /* is replaced */
    assert_ok(memlord_alloc_n(lord, blocks, 3, NULL));
    assert_int_equal(account_of(lord, account).bytes, 200);
    assert_ok(memlord_track_n(lord, blocks, 3, NULL));
    assert_int_equal(account_of(lord, account).bytes, 200);
    assert_ok(memlord_release_n(lord, blocks, 3, NULL));
    assert_int_equal(account_of(lord, account).bytes, 200);
    assert_ok(memlord_free_n(lord, blocks, 3, NULL));
    assert_int_equal(account_of(lord, account).bytes, 0);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void an_alloc_may_name_a_ticket_and_charge_an_account(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    memlord_ticket ticket = 0;
    assert_ok(memlord_limit_set(lord, cuda(0), 1000));
    assert_ok(memlord_reserve(lord, cuda(0), 600, &ticket));
    assert_ok(memlord_alloc_reserved(lord, ticket, cuda(0), 0x1000, 500, NULL));
    assert_int_equal(account_of(lord, account).bytes, 500);
    assert_int_equal(stats_of(lord, cuda(0)).held, 100);
    assert_ok(memlord_reserve_commit(lord, ticket));
}

static void a_description_and_a_charge_share_a_block(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    memlord_block_info info;
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    meta.name = "k_cache";
    put(lord, cuda(0), 0x1000, 100);
    assert_ok(memlord_block_describe(lord, cuda(0), 0x1000, &meta));
    assert_ok(memlord_block_find(lord, cuda(0), 0x1000, &info));
    assert_string_equal(info.meta.name, "k_cache");
    assert_int_equal(info.bytes, 100);
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void blocks_of_a_closed_account_are_charged_to_none(void **state) {
    memlord *lord = test_lord(state);
    memlord_account old = use_account(lord, 0), fresh;
    put(lord, cuda(0), 0x1000, 100);
    put(lord, cuda(0), 0x2000, 100);
    assert_ok(memlord_account_close(lord, old));
    fresh = open_account(lord, "in its place", 0);
    assert_ok(memlord_account_charge(lord, fresh, 500));
    put(lord, cuda(0), 0x3000, 100); /* the thread used the closed one */
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_ok(memlord_realloc(lord, cuda(0), 0x2000, 0x2000, 300, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x3000, NULL));
    assert_int_equal(account_of(lord, fresh).bytes, 500);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void only_an_open_account_can_be_used(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0), closed = open_account(lord, "closed", 0);
    assert_ok(memlord_account_close(lord, closed));
    assert_int_equal(memlord_account_use(lord, closed), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_account_use(lord, UINT64_MAX), MEMLORD_E_UNKNOWN);
    put(lord, cuda(0), 0x1000, 100); /* the account used before stays */
    assert_int_equal(account_of(lord, account).bytes, 100);
}

static void an_account_of_another_ledger_is_unknown(void **state) {
    memlord *lord = test_lord(state), *other = NULL;
    memlord_account mine = open_account(lord, "mine", 0), others;
    memlord_account_stat stat;
    assert_ok(memlord_create(NULL, &other));
    others = open_account(other, "others", 0);
    assert_true(mine != others);
    assert_int_equal(memlord_account_use(lord, others), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_account_charge(lord, others, 1), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_account_get(lord, others, &stat), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_account_close(lord, others), MEMLORD_E_UNKNOWN);
    memlord_destroy(other);
}

static void a_credit_takes_no_more_than_is_left(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = use_account(lord, 0);
    put(lord, cuda(0), 0x1000, 100);
    assert_ok(memlord_account_charge(lord, account, -70));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(account_of(lord, account).bytes, 0);
}

static void a_charge_without_memory_drops_the_alloc(void **state) {
    test_case *t = (test_case *)*state;
    memlord_account account = use_account(t->lord, 0);
    memlord_result r = MEMLORD_OK;
    uint64_t i, charged = 0;
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    for (i = 1; r == MEMLORD_OK && i < 100000; i++) {
        r = memlord_alloc(t->lord, cuda(0), i << 32, 10, NULL);
        if (r == MEMLORD_OK) charged += 10;
    }
    t->heap.fail_at = 0;
    assert_int_equal(r, MEMLORD_E_NOMEM);
    assert_int_equal(account_of(t->lord, account).bytes, charged);
    assert_int_equal(account_of(t->lord, account).peak, charged);
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), charged);
    assert_int_equal(stats_of(t->lord, cuda(0)).dropped_allocs, 1);
}

typedef struct user_thread {
    memlord *lord;
    memlord_account account;
    memlord_result result;
} user_thread;

static void *use_and_end(void *user) {
    user_thread *u = (user_thread *)user;
    u->result = memlord_account_use(u->lord, u->account);
    if (memlord_alloc(u->lord, memlord_device_cuda(0), (uint64_t)1 << 40, 100, NULL))
        u->result = MEMLORD_E_STATE;
    return NULL;
}
static void *alloc_and_free(void *user) {
    user_thread *u = (user_thread *)user;
    u->result = memlord_alloc(u->lord, memlord_device_cuda(0), (uint64_t)2 << 40, 7, NULL);
    if (memlord_free(u->lord, memlord_device_cuda(0), (uint64_t)1 << 40, NULL))
        u->result = MEMLORD_E_STATE;
    return NULL;
}

static void on_a_thread(void *(*fn)(void *), user_thread *u) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fn, u), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(u->result);
}

static void a_threads_use_ends_with_it_and_any_thread_credits(void **state) {
    user_thread u;
    memset(&u, 0, sizeof u);
    u.lord = test_lord(state);
    u.account = open_account(u.lord, "a", 0);
    on_a_thread(use_and_end, &u);
    put(u.lord, cuda(0), 0x1000, 50); /* of another thread */
    assert_int_equal(account_of(u.lord, u.account).bytes, 100);
    on_a_thread(alloc_and_free, &u); /* takes over the record of the thread that ended */
    assert_int_equal(account_of(u.lord, u.account).bytes, 0);
}

typedef struct gated_user {
    user_thread u;
    test_gate *gate;
    memlord_result none; /* of the use of no account */
} gated_user;

static void *use_and_stay(void *user) {
    gated_user *g = (gated_user *)user;
    g->none = memlord_account_use(g->u.lord, 0);
    g->u.result = memlord_account_use(g->u.lord, g->u.account);
    test_gate_pass(g->gate);
    return NULL;
}
/* Threads that find no memory for a record share one, in which none can use an account. */
static void a_thread_without_a_record_uses_no_account(void **state) {
    test_case *t = (test_case *)*state;
    test_gate gate = TEST_GATE;
    memlord_account account = open_account(t->lord, "a", 0);
    gated_user g[64];
    pthread_t thread[64];
    uint64_t i, refused = 0;
    t->heap.fail_at = 1;
    t->heap.fail_from = 1;
    for (i = 0; i < 64; i++) {
        g[i].u.lord = t->lord;
        g[i].u.account = account;
        g[i].gate = &gate;
        assert_int_equal(pthread_create(&thread[i], NULL, use_and_stay, &g[i]), 0);
        assert_true(test_gate_came(&gate, i + 1));
    }
    test_gate_open(&gate);
    for (i = 0; i < 64; i++) {
        pthread_join(thread[i], NULL);
        assert_ok(g[i].none);
        if (refused) assert_int_equal(g[i].u.result, MEMLORD_E_NOMEM);
        refused += g[i].u.result == MEMLORD_E_NOMEM;
    }
    t->heap.fail_at = 0;
    assert_in_range(refused, 1, 63);
    put(t->lord, cuda(0), 0x1000, 10);
    assert_int_equal(account_of(t->lord, account).bytes, 0);
}

static void a_null_ledger_uses_none(void **state) {
    (void)state;
    assert_ok(memlord_account_use(NULL, 1));
    assert_ok(memlord_account_use(NULL, 0));
}

/* -- a quota: requests keep to the limit of the account -- */

static int make_key(void *user, uint64_t bytes, uint64_t *storage) {
    (void)bytes;
    *storage = ++*(uint64_t *)user * 64;
    return 0;
}
static uint64_t made; /* calls of make_key, plus 0x1000 */
static memlord_result request_of(memlord *lord, memlord_account account, uint64_t bytes) {
    memlord_alloc_opts opts;
    uint64_t storage;
    memset(&opts, 0, sizeof opts);
    opts.account = account;
    return memlord_alloc_retry(lord, cuda(0), bytes, make_key, &made, NULL, &storage, &opts);
}

static void a_request_over_the_limit_of_the_account_is_refused(void **state) {
    memlord *lord = test_lord(state);
    const memlord_account account = use_account(lord, 12 << 20);
    memlord_ticket ticket = 7;
    made = 0x1000;
    assert_ok(request_of(lord, 0, 7 << 20));
    assert_int_equal(request_of(lord, 0, 7 << 20), MEMLORD_E_LIMIT);
    assert_int_equal(made, 0x1001); /* the function was not called */
    assert_int_equal(memlord_reserve(lord, cuda(0), 7 << 20, &ticket), MEMLORD_E_LIMIT);
    assert_int_equal(ticket, 0);
    assert_int_equal(account_of(lord, account).peak, 7 << 20);
    assert_int_equal(account_of(lord, account).refused, 2);
    assert_ok(request_of(lord, 0, 5 << 20)); /* to the byte */
    assert_int_equal(request_of(lord, 0, 1), MEMLORD_E_LIMIT);
}

static void a_plain_alloc_over_it_is_recorded(void **state) {
    memlord *lord = test_lord(state);
    const memlord_account account = use_account(lord, 100);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 190, NULL));
    assert_int_equal(account_of(lord, account).bytes, 190);
    assert_int_equal(account_of(lord, account).refused, 1);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 190);
}

static void a_request_may_name_the_account_whose_limit_counts(void **state) {
    memlord *lord = test_lord(state);
    const memlord_account small = open_account(lord, "small", 10), used = use_account(lord, 100);
    made = 0x1000;
    assert_int_equal(request_of(lord, small, 50), MEMLORD_E_LIMIT);
    assert_ok(request_of(lord, used, 50));
    assert_int_equal(request_of(lord, 0, 60), MEMLORD_E_LIMIT);
    assert_ok(request_of(lord, MEMLORD_NONE, 60));
    assert_int_equal(account_of(lord, small).bytes, 0);
    assert_int_equal(account_of(lord, used).bytes, 50);
}

static void tickets_hold_bytes_of_the_account(void **state) {
    memlord *lord = test_lord(state);
    const memlord_account account = use_account(lord, 100);
    memlord_ticket ticket = 0, more = 0;
    assert_ok(memlord_reserve(lord, cuda(0), 80, &ticket));
    assert_int_equal(account_of(lord, account).bytes, 0);
    assert_int_equal(memlord_reserve(lord, cuda(0), 21, &more), MEMLORD_E_LIMIT);
    assert_int_equal(memlord_account_charge(lord, account, 21), MEMLORD_E_LIMIT);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 30, NULL)); /* it comes off the ticket */
    assert_int_equal(account_of(lord, account).bytes, 30);
    assert_int_equal(account_of(lord, account).peak, 30);
    assert_ok(memlord_reserve(lord, cuda(0), 20, &more));
    assert_ok(memlord_reserve_commit(lord, ticket));
    assert_ok(memlord_reserve_commit(lord, more));
    assert_ok(memlord_reserve(lord, cuda(0), 70, &ticket));
    assert_int_equal(account_of(lord, account).refused, 2);
    assert_ok(memlord_reserve_commit(lord, ticket));
}

static void what_the_device_refuses_counts_at_no_account(void **state) {
    memlord *lord = test_lord(state);
    const memlord_account account = use_account(lord, 100);
    memlord_ticket ticket = 0;
    assert_ok(memlord_account_charge(lord, account, 100));
    assert_ok(memlord_account_charge(lord, account, -60)); /* the account has room for 60 */
    assert_ok(memlord_limit_set(lord, cuda(0), 40));
    assert_int_equal(memlord_reserve(lord, cuda(0), 50, &ticket), MEMLORD_E_LIMIT);
    assert_int_equal(account_of(lord, account).refused, 0);
}

/* Reserves and returns 80 bytes over and over, until told to stop. */
typedef struct reserver {
    memlord *lord;
    memlord_account account;
    int stop;
    memlord_result result;
} reserver;
static void *reserve_and_return(void *user) {
    reserver *r = (reserver *)user;
    memlord_ticket ticket;
    r->result = memlord_account_use(r->lord, r->account);
    while (!r->result && !__atomic_load_n(&r->stop, __ATOMIC_RELAXED)) {
        r->result = memlord_reserve(r->lord, cuda(0), 80, &ticket);
        if (!r->result) r->result = memlord_reserve_commit(r->lord, ticket);
    }
    return NULL;
}
static void bytes_that_tickets_hold_never_reach_the_peak(void **state) {
    memlord *lord = test_lord(state);
    reserver r = {NULL, 0, 0, MEMLORD_OK};
    pthread_t thread;
    int i;
    r.lord = lord;
    r.account = open_account(lord, "a", 100);
    assert_int_equal(pthread_create(&thread, NULL, reserve_and_return, &r), 0);
    for (i = 0; i < (TEST_SANITIZED ? 50000 : 1000000); i++) {
        assert_ok(memlord_account_charge(lord, r.account, 10));
        assert_ok(memlord_account_charge(lord, r.account, -10));
    }
    __atomic_store_n(&r.stop, 1, __ATOMIC_RELAXED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(r.result);
    assert_int_equal(account_of(lord, r.account).peak, 10);
    assert_int_equal(account_of(lord, r.account).bytes, 0);
}

static void a_full_ticket_of_a_full_account_refuses_nothing(void **state) {
    memlord *lord = test_lord(state);
    const memlord_account account = use_account(lord, 100);
    memlord_ticket ticket = 0;
    made = 0x1000;
    assert_ok(memlord_reserve(lord, cuda(0), 100, &ticket));
    assert_ok(request_of(lord, 0, 60));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 40, NULL));
    assert_int_equal(account_of(lord, account).bytes, 100);
    assert_int_equal(account_of(lord, account).refused, 0);
    assert_ok(memlord_reserve_commit(lord, ticket));
    assert_int_equal(account_of(lord, account).bytes, 100);
}

static void a_ticket_without_an_account_covers_only_the_device(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account;
    memlord_ticket ticket = 0;
    made = 0x1000;
    assert_ok(memlord_limit_set(lord, cuda(0), 100));
    assert_ok(memlord_reserve(lord, cuda(0), 100, &ticket));
    account = use_account(lord, 50);
    assert_int_equal(request_of(lord, 0, 51), MEMLORD_E_LIMIT);
    assert_ok(request_of(lord, 0, 50));
    assert_int_equal(account_of(lord, account).bytes, 50);
    assert_int_equal(stats_of(lord, cuda(0)).held, 50);
    assert_ok(memlord_reserve_commit(lord, ticket));
}

static int give_up_always(void *user, uint64_t bytes, uint64_t *storage) {
    (void)user, (void)bytes, (void)storage;
    return -1;
}
static void a_request_that_fails_gives_back_what_it_held(void **state) {
    memlord *lord = test_lord(state);
    memlord_ticket ticket = 0;
    uint64_t storage;
    (void)use_account(lord, 100);
    assert_ok(memlord_reserve(lord, cuda(0), 40, &ticket));
    assert_int_equal(memlord_alloc_retry(lord, cuda(0), 90, give_up_always, NULL, NULL, &storage,
                                         NULL),
                     MEMLORD_E_OOM);
    assert_int_equal(stats_of(lord, cuda(0)).held, 40);
    assert_ok(memlord_reserve_commit(lord, ticket));
    assert_ok(memlord_reserve(lord, cuda(0), 100, &ticket));
    assert_ok(memlord_reserve_commit(lord, ticket));
}

static void a_ticket_outlives_its_account(void **state) {
    memlord *lord = test_lord(state);
    const memlord_account account = use_account(lord, 100);
    memlord_account next;
    memlord_ticket ticket = 0;
    assert_ok(memlord_reserve(lord, cuda(0), 80, &ticket));
    assert_ok(memlord_account_close(lord, account));
    next = open_account(lord, "next", 100); /* it gets the record of the closed one */
    assert_ok(memlord_account_charge(lord, next, 90));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 30, NULL));
    assert_ok(memlord_reserve_commit(lord, ticket));
    assert_int_equal(account_of(lord, next).bytes, 90);
    assert_int_equal(memlord_account_charge(lord, next, 11), MEMLORD_E_LIMIT);
    assert_ok(memlord_account_charge(lord, next, 10));
}

static void a_quota_that_refuses_is_named_in_the_log(void **state) {
    test_case *t = (test_case *)*state;
    memlord_logger logger = {test_log_line, &t->log};
    memlord_ticket ticket;
    assert_ok(memlord_logger_set(t->lord, &logger));
    (void)use_account(t->lord, 100);
    assert_int_equal(memlord_reserve(t->lord, cuda(0), 101, &ticket), MEMLORD_E_LIMIT);
    assert_non_null(strstr(t->log.text, "[limit] account "));
    assert_non_null(strstr(t->log.text, "101 B wanted, it has 0 B with what its tickets hold, and "
                                        "its limit is 100 B"));
}

/* Threads that reserve, alloc and free on one account together never hold more than its limit. */
typedef struct quota {
    memlord *lord;
    memlord_account account;
    uint64_t first; /* of this thread's keys */
    int wrong;
} quota;
static void *live_within(void *user) {
    quota *q = (quota *)user;
    const uint64_t rounds = 300 * SCALE;
    memlord_account_stat stat;
    memlord_ticket ticket;
    uint64_t i;
    q->wrong += memlord_account_use(q->lord, q->account) != MEMLORD_OK;
    for (i = 0; i < rounds; i++) {
        if (memlord_reserve(q->lord, memlord_device_cuda(0), 40, &ticket)) continue;
        q->wrong += memlord_alloc(q->lord, memlord_device_cuda(0), q->first, 30, NULL) != 0;
        q->wrong += memlord_account_get(q->lord, q->account, &stat) || stat.bytes > 100;
        q->wrong += memlord_reserve_commit(q->lord, ticket) != MEMLORD_OK;
        q->wrong += memlord_free(q->lord, memlord_device_cuda(0), q->first, NULL) != MEMLORD_OK;
    }
    return NULL;
}
static void threads_keep_to_the_limit_together(void **state) {
    memlord *lord = test_lord(state);
    const memlord_account account = open_account(lord, "a", 100);
    pthread_t threads[4];
    quota q[4];
    int i;
    for (i = 0; i < 4; i++) {
        q[i].lord = lord;
        q[i].account = account;
        q[i].first = 0x10000 + (uint64_t)i * 64;
        q[i].wrong = 0;
        assert_int_equal(pthread_create(&threads[i], NULL, live_within, &q[i]), 0);
    }
    for (i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(q[i].wrong, 0);
    }
    assert_int_equal(account_of(lord, account).bytes, 0);
    assert_true(account_of(lord, account).peak <= 100);
    assert_ok(memlord_account_charge(lord, account, 100));
}

/* Live bytes that a ticket held count once, also for a thread that charges meanwhile. */
static void *charge_beside_tickets(void *user) {
    quota *q = (quota *)user;
    while (!__atomic_load_n(&q->first, __ATOMIC_RELAXED)) {
        q->wrong += memlord_account_charge(q->lord, q->account, 60) != MEMLORD_OK;
        q->wrong += memlord_account_charge(q->lord, q->account, -60) != MEMLORD_OK;
    }
    return NULL;
}
static void a_ticket_in_use_refuses_no_charge(void **state) {
    quota q = {test_lord(state), open_account(test_lord(state), "a", 100), 0x10000, 0};
    quota other = {q.lord, q.account, 0, 0};
    pthread_t thread;
    int i;
    assert_int_equal(pthread_create(&thread, NULL, charge_beside_tickets, &other), 0);
    for (i = 0; i < 100; i++) (void)live_within(&q);
    __atomic_store_n(&other.first, 1, __ATOMIC_RELAXED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(q.wrong + other.wrong, 0);
    assert_int_equal(account_of(q.lord, q.account).refused, 0);
}

/* -- threads -- */

typedef struct charger {
    memlord *lord;
    memlord_account *accounts; /* of all, changed by the test */
    memlord_account account;
    uint64_t seed, ops, bad;
    int64_t sum;
    uint64_t refused;
} charger;

static void run(charger *chargers, size_t n, void *(*fn)(void *)) {
    pthread_t threads[8];
    size_t i;
    for (i = 0; i < n; i++) {
        chargers[i].seed = i + 1;
        chargers[i].ops = 20000 * SCALE;
        assert_int_equal(pthread_create(&threads[i], NULL, fn, &chargers[i]), 0);
    }
    for (i = 0; i < n; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (i = 0; i < n; i++) assert_int_equal(chargers[i].bad, 0);
}

#define LIMIT 1000

static void *charge(void *user) {
    charger *c = (charger *)user;
    uint64_t i;
    for (i = 0; i < c->ops; i++) {
        int64_t bytes = (int64_t)(test_random(&c->seed) % 300) - 100;
        memlord_account_stat stat;
        memlord_result r;
        if (bytes < -c->sum) bytes = -c->sum; /* takes back no more than is its own */
        r = memlord_account_charge(c->lord, c->account, bytes);
        if (r == MEMLORD_OK)
            c->sum += bytes;
        else if (r == MEMLORD_E_LIMIT && bytes > 0)
            c->refused++;
        else
            c->bad++;
        if (memlord_account_get(c->lord, c->account, &stat) || stat.bytes > LIMIT ||
            stat.peak > LIMIT)
            c->bad++;
    }
    return NULL;
}

static void charges_of_8_threads_are_exact_and_never_over_the_limit(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account = open_account(lord, "all", LIMIT);
    memlord_account_stat stat;
    charger chargers[8];
    uint64_t refused = 0;
    int64_t sum = 0;
    size_t i;
    memset(chargers, 0, sizeof chargers);
    for (i = 0; i < 8; i++) {
        chargers[i].lord = lord;
        chargers[i].account = account;
    }
    run(chargers, 8, charge);
    for (i = 0; i < 8; i++) {
        sum += chargers[i].sum;
        refused += chargers[i].refused;
    }
    stat = account_of(lord, account);
    assert_int_equal(stat.bytes, sum);
    assert_int_equal(stat.refused, refused);
    assert_true(stat.peak <= LIMIT && stat.peak >= stat.bytes);
}

static void *charge_one_until_full(void *user) {
    charger *c = (charger *)user;
    while (memlord_account_charge(c->lord, c->account, 1) == MEMLORD_OK) c->sum++;
    return NULL;
}

static void threads_fill_an_account_to_the_last_byte(void **state) {
    memlord *lord = test_lord(state);
    charger chargers[8];
    int64_t sum = 0;
    size_t i;
    memset(chargers, 0, sizeof chargers);
    for (i = 0; i < 8; i++) {
        chargers[i].lord = lord;
        chargers[i].account = chargers[0].account ? chargers[0].account
                                                  : open_account(lord, "full", 40000);
    }
    run(chargers, 8, charge_one_until_full);
    for (i = 0; i < 8; i++) sum += chargers[i].sum;
    assert_int_equal(sum, 40000);
    assert_int_equal(account_of(lord, chargers[0].account).bytes, 40000);
}

/* Opens, charges and closes; charges of an id that another thread closed do not go through. */
static void *open_and_close(void *user) {
    charger *c = (charger *)user;
    uint64_t i;
    for (i = 0; i < c->ops / 4; i++) {
        memlord_account mine = 0, other;
        memlord_account_stat stat;
        uint64_t at = test_random(&c->seed) % 8;
        if (memlord_account_open(c->lord, memlord_device_cuda(0), "brief", 0, &mine)) c->bad++;
        if (memlord_account_charge(c->lord, mine, 7)) c->bad++;
        if (memlord_account_get(c->lord, mine, &stat) || stat.bytes != 7) c->bad++;
        if (memlord_account_close(c->lord, mine)) c->bad++;
        __atomic_store_n(&c->accounts[at], mine, __ATOMIC_RELEASE); /* stale from the start */
        other = __atomic_load_n(&c->accounts[(at + 1) % 8], __ATOMIC_ACQUIRE);
        if (memlord_account_charge(c->lord, other, 1) != MEMLORD_E_UNKNOWN) c->bad++;
    }
    return NULL;
}

static void stale_ids_charge_nobody_else(void **state) {
    memlord *lord = test_lord(state);
    memlord_account accounts[8];
    charger chargers[8];
    size_t i;
    memset(chargers, 0, sizeof chargers);
    memset(accounts, 0, sizeof accounts);
    for (i = 0; i < 8; i++) {
        chargers[i].lord = lord;
        chargers[i].accounts = accounts;
    }
    run(chargers, 8, open_and_close);
}

#define SHARED_KEYS 64

/* Allocates, resizes, moves and frees blocks of all threads, with and without an account. */
static void *use_and_mix(void *user) {
    charger *c = (charger *)user;
    uint64_t i;
    for (i = 0; i < c->ops; i++) {
        uint64_t key = (test_random(&c->seed) % SHARED_KEYS + 1) << 12;
        memlord_device d = memlord_device_cuda(0);
        switch (test_random(&c->seed) % 6) {
        case 0: (void)memlord_account_use(c->lord, i % 3 ? c->account : 0); break;
        case 1:
        case 2: (void)memlord_alloc(c->lord, d, key, 100, NULL); break;
        case 3: (void)memlord_free(c->lord, d, key, NULL); break;
        case 4: (void)memlord_realloc(c->lord, d, key, key, 1 + i % 500, NULL); break;
        default: (void)memlord_move(c->lord, d, key, d, key + 64, 50, NULL, NULL); break;
        }
    }
    return NULL;
}

static int free_one(void *user, const memlord_block_info *info) {
    (void)memlord_free((memlord *)user, info->device, info->storage, NULL);
    return 0;
}

static void blocks_of_8_threads_leave_their_accounts_empty(void **state) {
    memlord *lord = test_lord(state);
    charger chargers[8];
    size_t i;
    memset(chargers, 0, sizeof chargers);
    for (i = 0; i < 8; i++) {
        chargers[i].lord = lord;
        chargers[i].account = i % 2 ? chargers[i - 1].account : open_account(lord, "pair", 300);
    }
    run(chargers, 8, use_and_mix);
    assert_ok(memlord_blocks_each(lord, all(), 0, free_one, lord));
    for (i = 0; i < 8; i++) assert_int_equal(account_of(lord, chargers[i].account).bytes, 0);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_new_account_is_empty),
        TEST(charges_add_up_and_the_peak_stays),
        TEST(it_may_go_down_to_0),
        TEST(accounts_are_apart),
        TEST(it_adds_nothing_to_the_device),
        TEST(its_limit_is_no_limit_of_the_device),
        TEST(it_may_be_closed_with_bytes_in_it),
        TEST(a_reset_leaves_it_alone),
        TEST(over_its_limit_it_is_refused_unchanged),
        TEST(without_a_limit_2_to_the_48_is_one),
        TEST(a_closed_account_is_in_no_report),
        TEST(below_0_is_refused_unchanged),
        TEST(a_closed_account_is_unknown),
        TEST(ids_that_were_never_given_are_unknown),
        TEST(a_place_used_again_has_another_number),
        TEST(many_may_be_open_at_once),
        TEST(opens_and_closes_do_not_grow_memory),
        TEST(a_long_name_is_cut),
        TEST(a_name_may_be_missing),
        TEST(a_name_is_copied),
        TEST(hostile_names_break_no_report),
        TEST(bad_arguments_are_refused),
        TEST(a_null_ledger_opens_none),
        cmocka_unit_test(any_allocation_may_fail),
        TEST(charges_and_closes_need_no_memory),
        TEST(what_a_thread_allocates_is_charged_to_its_account),
        TEST(other_devices_are_not_charged),
        TEST(use_of_0_ends_it),
        TEST(the_next_account_takes_its_place),
        TEST(over_its_limit_a_block_is_charged_all_the_same),
        TEST(over_2_to_the_48_nothing_is_charged),
        TEST(a_release_credits_with_the_last_reference),
        TEST(an_implicit_free_credits),
        TEST(the_peak_has_no_bytes_that_were_never_live),
        TEST(a_realloc_charges_the_new_size_wherever_it_runs),
        TEST(between_realloc_begin_and_end_it_stays_charged),
        TEST(a_move_on_its_device_keeps_the_charge),
        TEST(a_move_away_ends_the_charge_and_one_back_charges_again),
        TEST(a_deferred_free_credits_when_it_is_done),
        TEST(a_fenced_move_is_charged_for_both_until_it_is_done),
        TEST(n_blocks_in_one_call_are_charged),
        TEST(an_alloc_may_name_a_ticket_and_charge_an_account),
        TEST(a_description_and_a_charge_share_a_block),
        TEST(a_request_over_the_limit_of_the_account_is_refused),
        TEST(a_plain_alloc_over_it_is_recorded),
        TEST(a_request_may_name_the_account_whose_limit_counts),
        TEST(tickets_hold_bytes_of_the_account),
        TEST(what_the_device_refuses_counts_at_no_account),
        TEST(a_full_ticket_of_a_full_account_refuses_nothing),
        TEST(bytes_that_tickets_hold_never_reach_the_peak),
        TEST(a_ticket_without_an_account_covers_only_the_device),
        TEST(a_request_that_fails_gives_back_what_it_held),
        TEST(a_ticket_outlives_its_account),
        TEST(a_quota_that_refuses_is_named_in_the_log),
        TEST(threads_keep_to_the_limit_together),
        TEST(a_ticket_in_use_refuses_no_charge),
        TEST(blocks_of_a_closed_account_are_charged_to_none),
        TEST(only_an_open_account_can_be_used),
        TEST(an_account_of_another_ledger_is_unknown),
        TEST(a_credit_takes_no_more_than_is_left),
        TEST(a_charge_without_memory_drops_the_alloc),
        TEST(a_threads_use_ends_with_it_and_any_thread_credits),
        TEST(a_thread_without_a_record_uses_no_account),
        cmocka_unit_test(a_null_ledger_uses_none),
        TEST(charges_of_8_threads_are_exact_and_never_over_the_limit),
        TEST(threads_fill_an_account_to_the_last_byte),
        TEST(stale_ids_charge_nobody_else),
        TEST(blocks_of_8_threads_leave_their_accounts_empty),
    };
    return cmocka_run_group_tests_name("accounts", tests, NULL, NULL);
}
