/* memlord_explain: who holds a device, and how many bytes short a request is. */
#include "support.h"

#define CAP 8192

static const memlord_site load_site = {"loader.c", "load_weights", 12};
static const memlord_site cache_site = {"kv.c", "grow_cache", 77};

/* 700 bytes of weights and 200 of cache on cuda:0, by tag and site. */
static void hold(memlord *lord) {
    assert_ok(memlord_tag_begin(lord, "kv_cache"));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 200, &cache_site));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 700, &load_site));
    assert_ok(memlord_tag_end(lord));
}

static const char *explain(memlord *lord, memlord_device device, uint64_t wanted) {
    static char text[CAP];
    size_t n = memlord_explain(lord, device, wanted, text, sizeof text);
    assert_true(n > 0 && n < sizeof text);
    assert_int_equal(strlen(text), n);
    return text;
}

static size_t lines_with(const char *text, const char *word) {
    size_t n = 0;
    while (text && *text) {
        const char *end = strchr(text, '\n');
        const char *hit = strstr(text, word);
        n += hit && (!end || hit < end);
        text = end ? end + 1 : NULL;
    }
    return n;
}

static int fail_to_allocate(void *user, uint64_t bytes, uint64_t *storage) {
    (void)user;
    (void)bytes;
    (void)storage;
    return 1;
}

static memlord_result request(memlord *lord, uint64_t bytes) {
    memlord_retry policy;
    uint64_t storage;
    memset(&policy, 0, sizeof policy);
    policy.multiplier = 1;
    return memlord_alloc_retry(lord, cuda(0), bytes, fail_to_allocate, NULL, &policy, &storage,
                               NULL);
}

/* -- what it says -- */

static void it_names_the_device_and_what_was_wanted(void **state) {
    memlord *lord = test_lord(state);
    const char *text;
    hold(lord);
    text = explain(lord, cuda(0), 333);
    assert_non_null(strstr(text, "cuda:0"));
    assert_non_null(strstr(text, "333 B"));
}

static void it_says_how_many_bytes_the_limit_is_short(void **state) {
    memlord *lord = test_lord(state);
    const char *text;
    assert_ok(memlord_limit_set(lord, cuda(0), 1000));
    hold(lord);
    text = explain(lord, cuda(0), 500);
    assert_non_null(strstr(text, "400 B short"));
    assert_non_null(strstr(text, "1000 B")); /* the limit */
    text = explain(lord, cuda(0), 101);
    assert_non_null(strstr(text, "1 B short"));
}

static void what_fits_is_not_short(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_limit_set(lord, cuda(0), 1000));
    hold(lord);
    assert_null(strstr(explain(lord, cuda(0), 100), "B short"));
    assert_null(strstr(explain(lord, cuda(0), 0), "B short"));
}

static void it_says_how_many_bytes_the_capacity_is_short(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 1000, 850);
    assert_non_null(strstr(explain(t->lord, cuda(0), 400), "250 B short"));
}

static void it_counts_what_was_recorded_since_the_sample(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 100, 0);
    grow(t, cuda(0), 99);
    assert_non_null(strstr(explain(t->lord, cuda(0), 50),
                           "50 B wanted, 49 B short: live 99 B, capacity 100 B with 99 % used"));
}

static void the_tighter_of_the_two_decides(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 100));
    test_capacity(t, 1000, 500);
    assert_non_null(strstr(explain(t->lord, cuda(0), 600), "500 B short"));
}

static void reservations_count(void **state) {
    memlord *lord = test_lord(state);
    memlord_ticket ticket = 0;
    assert_ok(memlord_limit_set(lord, cuda(0), 1000));
    assert_ok(memlord_reserve(lord, cuda(0), 600, &ticket));
    assert_non_null(strstr(explain(lord, cuda(0), 777), "377 B short"));
    assert_non_null(strstr(explain(lord, cuda(0), 777), "600 B"));
    assert_ok(memlord_reserve_commit(lord, ticket));
}

static void without_limit_and_capacity_nothing_is_called_short(void **state) {
    memlord *lord = test_lord(state);
    hold(lord);
    assert_null(strstr(explain(lord, cuda(0), TEST_MAX_BYTES), "B short"));
}

static void it_names_the_other_processes(void **state) {
    test_case *t = (test_case *)*state;
    const char *text;
    char *json;
    uint64_t i;
    test_capacity(t, 1000, 850);
    assert_null(strstr(explain(t->lord, cuda(0), 400), "others"));
    for (i = 0; i < MEMLORD_OTHERS; i++) { /* as many as a source can name */
        t->source.others[i].pid = UINT64_MAX - i;
        t->source.others[i].bytes = 800 - 100 * i;
    }
    test_capacity(t, 1000, 850);
    text = explain(t->lord, cuda(0), 400);
    assert_non_null(strstr(text, "; others: pid 18446744073709551615 holds 800 B, "
                                 "pid 18446744073709551614 holds 700 B, "));
    assert_null(strstr(text, " holds 400 B")); /* four are enough for a line */
    assert_null(strstr(explain(t->lord, cpu(), 400), "others"));
    json = report_of(t->lord, MEMLORD_FORMAT_JSON); /* which has all of them */
    assert_non_null(strstr(json, ",{\"pid\":18446744073709551608,\"bytes\":100,\"name\":null}]}"));
    free(json);
}

static void it_says_how_many_requests_failed(void **state) {
    test_case *t = (test_case *)*state;
    assert_null(strstr(explain(t->lord, cuda(0), 400), "failed"));
    assert_ok(memlord_alloc_failed(t->lord, cuda(0), 100, NULL));
    assert_int_equal(request(t->lord, 10), MEMLORD_E_OOM);
    assert_non_null(strstr(explain(t->lord, cuda(0), 400), "; requests failed 2"));
    assert_null(strstr(explain(t->lord, cuda(1), 400), "failed"));
}

static void it_lists_tags_by_size(void **state) {
    memlord *lord = test_lord(state);
    const char *text, *weights, *cache;
    hold(lord);
    text = explain(lord, cuda(0), 500);
    weights = strstr(text, "weights");
    cache = strstr(text, "kv_cache");
    assert_non_null(weights);
    assert_non_null(cache);
    assert_true(weights < cache);
    assert_non_null(strstr(weights, "700 B"));
    assert_non_null(strstr(cache, "200 B"));
}

static void it_lists_sites_by_size(void **state) {
    memlord *lord = test_lord(state);
    const char *text, *load, *cache;
    hold(lord);
    text = explain(lord, cuda(0), 500);
    load = strstr(text, "loader.c:12");
    cache = strstr(text, "kv.c:77");
    assert_non_null(load);
    assert_non_null(cache);
    assert_true(load < cache);
}

static void it_speaks_of_that_device_alone(void **state) {
    memlord *lord = test_lord(state);
    const char *text;
    hold(lord);
    assert_ok(memlord_tag_begin(lord, "elsewhere"));
    assert_ok(memlord_alloc(lord, cuda(1), 0x9000, 5000, NULL));
    assert_ok(memlord_tag_end(lord));
    text = explain(lord, cuda(0), 500);
    assert_null(strstr(text, "elsewhere"));
    text = explain(lord, cuda(1), 500);
    assert_non_null(strstr(text, "elsewhere"));
    assert_null(strstr(text, "weights"));
}

static void what_was_freed_holds_nothing(void **state) {
    memlord *lord = test_lord(state);
    hold(lord);
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    assert_null(strstr(explain(lord, cuda(0), 500), "weights"));
    assert_non_null(strstr(explain(lord, cuda(0), 500), "kv_cache"));
}

static void many_holders_are_cut_to_the_largest(void **state) {
    memlord *lord = test_lord(state);
    char tag[32];
    int i;
    for (i = 1; i <= 500; i++) {
        snprintf(tag, sizeof tag, "tag%03d", i);
        assert_ok(memlord_tag_begin(lord, tag));
        assert_ok(memlord_alloc(lord, cuda(0), (uint64_t)i * 64, (uint64_t)i * 1000, NULL));
        assert_ok(memlord_tag_end(lord));
    }
    assert_non_null(strstr(explain(lord, cuda(0), 1), "tag500"));
    assert_null(strstr(explain(lord, cuda(0), 1), "tag001"));
}

/* The text from the list of tags on. */
static const char *by_tag(memlord *lord, memlord_device device) {
    const char *at = strstr(explain(lord, device, 1), "; by tag: ");
    return at ? at : "";
}

static void alloc_tagged(memlord *lord, memlord_device device, uint64_t key, uint64_t bytes,
                         const char *tag) {
    if (tag) assert_ok(memlord_tag_begin(lord, tag));
    assert_ok(memlord_alloc(lord, device, key, bytes, NULL));
    if (tag) assert_ok(memlord_tag_end(lord));
}

static void untagged_bytes_and_arenas_are_holders(void **state) {
    memlord *lord = test_lord(state);
    alloc_tagged(lord, cuda(0), 0x1000, (uint64_t)70 << 30, NULL);
    alloc_tagged(lord, cuda(0), 0x2000, 1 << 30, "weights");
    assert_ok(memlord_arena_add(lord, cuda(0), (uint64_t)5 << 30, NULL));
    assert_string_equal(by_tag(lord, cuda(0)),
                        "; by tag: untagged 70 GiB, arenas 5 GiB, weights 1 GiB");
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_string_equal(by_tag(lord, cuda(0)), "; by tag: arenas 5 GiB, weights 1 GiB");
    assert_ok(memlord_arena_sub(lord, cuda(0), (uint64_t)5 << 30, NULL));
    assert_string_equal(by_tag(lord, cuda(0)), "; by tag: weights 1 GiB");
}

static void without_tags_and_arenas_there_is_no_list(void **state) {
    memlord *lord = test_lord(state);
    alloc_tagged(lord, cuda(0), 0x1000, 100, NULL);
    assert_string_equal(by_tag(lord, cuda(0)), "");
    assert_ok(memlord_arena_add(lord, cuda(0), 30, NULL));
    assert_string_equal(by_tag(lord, cuda(0)), "; by tag: untagged 100 B, arenas 30 B");
}

static void the_holders_are_those_of_all_devices_that_share_the_memory(void **state) {
    memlord *lord = test_lord(state);
    test_case *t = (test_case *)*state;
    const memlord_device pinned = memlord_device_make(MEMLORD_DEVICE_PINNED, 0);
    t->source.fail = 1; /* this machine's capacity has no part in it */
    assert_ok(memlord_capacity_source_set(lord, MEMLORD_DEVICE_CPU, test_source_ask, &t->source));
    assert_ok(memlord_limit_set(lord, cpu(), (uint64_t)64 << 30));
    alloc_tagged(lord, pinned, 0x1000, (uint64_t)60 << 30, "staging");
    assert_string_equal(by_tag(lord, pinned), "; by tag: staging 60 GiB");
    assert_string_equal(by_tag(lord, cpu()), "; by tag: pinned staging 60 GiB");
    alloc_tagged(lord, cpu(), 0x1000, 1 << 30, "small");
    assert_ok(memlord_arena_add(lord, cpu(), 2 << 20, NULL));
    alloc_tagged(lord, cuda(0), 0x1000, 77, "elsewhere");
    assert_non_null(strstr(explain(lord, cpu(), (uint64_t)10 << 30), " 7 GiB short"));
    assert_string_equal(by_tag(lord, cpu()),
                        "; by tag: pinned staging 60 GiB, cpu small 1 GiB, cpu arenas 2 MiB");
    assert_non_null(strstr(by_tag(lord, pinned), ": pinned staging 60 GiB, cpu small 1 GiB, cpu"));
}

static void what_is_cut_is_told_with_its_bytes(void **state) {
    memlord *lord = test_lord(state);
    static memlord_site sites[6];
    uint64_t i;
    assert_ok(memlord_sites_enable(lord, 1));
    for (i = 0; i < 6; i++) {
        char tag[8];
        snprintf(tag, sizeof tag, "tag%d", (int)i);
        sites[i].file = "a.c";
        sites[i].function = "f";
        sites[i].line = (int)i + 1;
        assert_ok(memlord_tag_begin(lord, tag));
        assert_ok(memlord_alloc(lord, cuda(0), (i + 1) * 64, (i + 1) * 100, &sites[i]));
        assert_ok(memlord_tag_end(lord));
    }
    assert_ok(memlord_sites_enable(lord, 0));
    alloc_tagged(lord, cuda(0), 0x1000, 450, NULL);
    assert_string_equal(by_tag(lord, cuda(0)),
                        "; by tag: tag5 600 B, tag4 500 B, untagged 450 B, tag3 400 B, "
                        "and 3 more with 600 B"
                        "; by site: f a.c:6 600 B, f a.c:5 500 B, no site 450 B, f a.c:4 400 B, "
                        "and 3 more with 600 B");
}

static void an_out_of_memory_log_names_who_holds_the_device(void **state) {
    test_case *t = (test_case *)*state;
    alloc_tagged(t->lord, cuda(0), 0x1000, 7168, NULL);
    alloc_tagged(t->lord, cuda(0), 0x2000, 100, "weights");
    assert_ok(memlord_arena_add(t->lord, cuda(0), 500, NULL));
    test_log_clear(&t->log);
    assert_ok(memlord_alloc_failed(t->lord, cuda(0), 1000, NULL));
    assert_non_null(strstr(t->log.text, "[oom] cuda:0: 1000 B wanted"));
    assert_non_null(strstr(t->log.text, "; by tag: untagged 7 KiB, arenas 500 B, weights 100 B\n"));
}

static void a_device_never_seen_is_named_and_not_made(void **state) {
    memlord *lord = test_lord(state);
    assert_non_null(strstr(explain(lord, cuda(9), 5), "cuda:9"));
    assert_int_equal(memlord_devices(lord, NULL, 0), 0);
}

static void no_device_is_harmless(void **state) {
    memlord *lord = test_lord(state);
    char text[64];
    memset(text, 'x', sizeof text);
    (void)memlord_explain(lord, memlord_device_make(MEMLORD_DEVICE_TYPE_COUNT, 0), 5, text,
                          sizeof text);
    assert_non_null(memchr(text, 0, sizeof text));
}

static void a_null_ledger_says_nothing(void **state) {
    char text[64] = "before";
    (void)state;
    assert_int_equal(memlord_explain(NULL, cuda(0), 5, text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_int_equal(memlord_explain(NULL, cuda(0), 5, NULL, 0), 0);
    assert_int_equal(memlord_explain(NULL, cuda(0), 5, strcpy(text, "before"), 0), 0);
    assert_string_equal(text, "before");
}

/* -- how it says it -- */

static void every_cap_cuts_the_same_text(void **state) {
    memlord *lord = test_lord(state);
    static char whole[CAP], part[CAP];
    size_t n, cap;
    assert_ok(memlord_limit_set(lord, cuda(0), 1000));
    hold(lord);
    n = memlord_explain(lord, cuda(0), 500, whole, sizeof whole);
    assert_true(n > 40 && n < sizeof whole);
    assert_int_equal(memlord_explain(lord, cuda(0), 500, NULL, 0), n);
    for (cap = 0; cap <= n + 2; cap++) {
        size_t kept = !cap ? 0 : cap - 1 < n ? cap - 1 : n;
        memset(part, '#', sizeof part);
        assert_int_equal(memlord_explain(lord, cuda(0), 500, part, cap), n);
        assert_memory_equal(part, whole, kept);
        if (cap) assert_int_equal(part[kept], 0);
        assert_int_equal(part[cap], '#');
    }
}

static void a_return_address_shows_its_module(void **state) {
    memlord *lord = test_lord(state);
    void *volatile in_libc = (void *)(uintptr_t)&strtol; /* not an address of this program */
    TEST_SYMBOLS();
    assert_ok(memlord_sites_enable(lord, 1));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 400,
                            memlord_site_at(lord, (char *)in_libc + 1)));
    assert_null(strstr(explain(lord, cuda(0), 500), "(unknown)"));
    assert_non_null(strstr(explain(lord, cuda(0), 500), "strtol"));
}

static void it_allocates_nothing(void **state) {
    test_case *t = (test_case *)*state;
    char text[512];
    uint64_t calls;
    int i;
    hold(t->lord);
    calls = t->heap.calls;
    for (i = 0; i < 16; i++) {
        memlord_explain(t->lord, cuda(i), 500, text, sizeof text);
        memlord_explain(t->lord, cuda(i), 500, NULL, 0);
    }
    assert_int_equal(t->heap.calls, calls);
}

static void hostile_names_stay_one_line(void **state) {
    static const char *const names[] = {"line\nbreak", "%n%s%n%s%99999999d", "\x1b[31mred\x1b[0m",
                                        "\r\b\x7f\x01", "bad \xff\xfe utf-8 \xc0\x80 cut \xe2\x82",
                                        "quotes \" \\ '"};
    memlord *lord = test_lord(state);
    static memlord_site sites[6];
    const char *text;
    size_t i;
    for (i = 0; i < 6; i++) {
        sites[i].file = sites[i].function = names[i];
        sites[i].line = -1;
        assert_ok(memlord_tag_begin(lord, names[i]));
        assert_ok(memlord_alloc(lord, cuda((int)i), 0x1000 + i * 64, 100, &sites[i]));
        assert_ok(memlord_tag_end(lord));
        assert_ok(memlord_device_label_set(lord, cuda((int)i), names[i]));
        for (text = explain(lord, cuda((int)i), 5); *text; text++)
            assert_true((unsigned char)*text >= 0x20 && *text != 0x7f);
    }
}

static void long_names_fit_or_are_cut(void **state) {
    memlord *lord = test_lord(state);
    static char tag[5000];
    memset(tag, 't', sizeof tag - 1);
    assert_ok(memlord_tag_begin(lord, tag));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_non_null(strstr(explain(lord, cuda(0), 5), "tttttttt"));
}

static void no_number_wraps(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_limit_set(lord, cuda(0), UINT64_MAX));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, TEST_MAX_BYTES, NULL));
    assert_null(strstr(explain(lord, cuda(0), UINT64_MAX), "-"));
    assert_ok(memlord_limit_set(lord, cuda(0), 1)); /* far below what is live */
    assert_non_null(strstr(explain(lord, cuda(0), 1), "256 TiB short"));
}

/* -- when it is logged -- */

static void a_refused_reservation_logs_it_once(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket = 0;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1000));
    hold(t->lord);
    test_log_clear(&t->log);
    assert_int_equal(memlord_reserve(t->lord, cuda(0), 500, &ticket), MEMLORD_E_LIMIT);
    assert_int_equal(lines_with(t->log.text, "400 B short"), 1);
    assert_int_equal(lines_with(t->log.text, "weights"), 1);
    assert_int_equal(lines_with(t->log.text, ""), 1);
    assert_int_equal(t->log.lines[MEMLORD_LOG_WARNING], 1);
}

static void a_refused_request_logs_it_once(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1000));
    hold(t->lord);
    test_log_clear(&t->log);
    assert_int_equal(request(t->lord, 500), MEMLORD_E_LIMIT);
    assert_int_equal(lines_with(t->log.text, "400 B short"), 1);
    assert_int_equal(lines_with(t->log.text, "weights"), 1);
}

static void a_final_out_of_memory_logs_it_once(void **state) {
    test_case *t = (test_case *)*state;
    hold(t->lord);
    test_log_clear(&t->log);
    assert_int_equal(request(t->lord, 500), MEMLORD_E_OOM);
    assert_int_equal(lines_with(t->log.text, "weights"), 1);
    assert_int_equal(lines_with(t->log.text, "500 B"), 1);
}

static void what_fits_logs_nothing(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket = 0;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1000));
    hold(t->lord);
    test_log_clear(&t->log);
    assert_ok(memlord_reserve(t->lord, cuda(0), 100, &ticket));
    assert_int_equal(memlord_would_fit(t->lord, cuda(0), 500), 0);
    assert_int_equal(memlord_explain(t->lord, cuda(0), 500, NULL, 0) > 0, 1);
    assert_string_equal(t->log.text, "");
    assert_ok(memlord_reserve_commit(t->lord, ticket));
}

static void logging_it_needs_no_memory(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket = 0;
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1000));
    hold(t->lord);
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    assert_int_equal(memlord_reserve(t->lord, cuda(0), 500, &ticket), MEMLORD_E_LIMIT);
    t->heap.fail_at = 0;
    assert_int_equal(lines_with(t->log.text, "400 B short"), 1);
}

/* -- threads -- */

typedef struct churner {
    memlord *lord;
    uint64_t id;
    int *stop;
} churner;

static void *churn(void *user) {
    churner *c = (churner *)user;
    uint64_t i = 0;
    while (!__atomic_load_n(c->stop, __ATOMIC_ACQUIRE)) {
        char tag[32];
        uint64_t key = (c->id << 32) + (++i % 64 + 1) * 64;
        snprintf(tag, sizeof tag, "tag%d", (int)(i % 200));
        (void)memlord_tag_begin(c->lord, tag);
        (void)memlord_alloc(c->lord, memlord_device_cuda((int)(i % 3)), key, 1000, &load_site);
        (void)memlord_tag_end(c->lord);
        if (i % 2) (void)memlord_free(c->lord, memlord_device_cuda(0), key, &cache_site);
    }
    return NULL;
}

static void it_may_be_asked_while_others_work(void **state) {
    memlord *lord = test_lord(state);
    churner churners[3];
    pthread_t threads[3];
    static char text[CAP];
    int stop = 0, i;
    for (i = 0; i < 3; i++) {
        churners[i].lord = lord;
        churners[i].id = (uint64_t)i + 1;
        churners[i].stop = &stop;
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &churners[i]), 0);
    }
    for (i = 0; i < 500; i++) {
        size_t n = memlord_explain(lord, cuda(i % 3), 500, text, sizeof text);
        if (n >= sizeof text || strlen(text) != n) break;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    assert_int_equal(i, 500);
    for (i = 0; i < 3; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

#undef TEST
#define TEST(name) TEST_SITES(name)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(it_names_the_device_and_what_was_wanted),
        TEST(it_says_how_many_bytes_the_limit_is_short),
        TEST(what_fits_is_not_short),
        TEST_FAKES(it_says_how_many_bytes_the_capacity_is_short),
        TEST_FAKES(it_counts_what_was_recorded_since_the_sample),
        TEST_FAKES(the_tighter_of_the_two_decides),
        TEST(reservations_count),
        TEST(without_limit_and_capacity_nothing_is_called_short),
        TEST_FAKES(it_names_the_other_processes),
        TEST_FAKES(it_says_how_many_requests_failed),
        TEST(it_lists_tags_by_size),
        TEST(it_lists_sites_by_size),
        TEST(it_speaks_of_that_device_alone),
        TEST(what_was_freed_holds_nothing),
        TEST(many_holders_are_cut_to_the_largest),
        TEST(untagged_bytes_and_arenas_are_holders),
        TEST(without_tags_and_arenas_there_is_no_list),
        TEST(the_holders_are_those_of_all_devices_that_share_the_memory),
        cmocka_unit_test_setup_teardown(what_is_cut_is_told_with_its_bytes, test_setup,
                                        test_teardown),
        TEST_FAKES(an_out_of_memory_log_names_who_holds_the_device),
        TEST(a_device_never_seen_is_named_and_not_made),
        TEST(no_device_is_harmless),
        TEST(a_null_ledger_says_nothing),
        TEST(every_cap_cuts_the_same_text),
        TEST(a_return_address_shows_its_module),
        TEST(it_allocates_nothing),
        TEST(hostile_names_stay_one_line),
        TEST(long_names_fit_or_are_cut),
        TEST(no_number_wraps),
        TEST_FAKES(a_refused_reservation_logs_it_once),
        TEST_FAKES(a_refused_request_logs_it_once),
        TEST_FAKES(a_final_out_of_memory_logs_it_once),
        TEST_FAKES(what_fits_logs_nothing),
        TEST_FAKES(logging_it_needs_no_memory),
        TEST(it_may_be_asked_while_others_work),
    };
    return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
