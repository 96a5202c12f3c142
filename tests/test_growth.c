/* Growth: what grows over the snapshots of a ledger is found by device, tag and site. A sawtooth, a
   level with noise and a run-up that is over do not grow. The time is that of a clock of the
   test's. */
#include "support.h"

#include "json.h"

#define MS ((uint64_t)1000000)
#define SECOND (1000 * MS)
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define RUNS 20

/* A ledger with a cache of 800 MiB that stays, and the sessions, one block that is resized. */
typedef struct server {
    memlord *lord;
    uint64_t now, seed;
} server;

static uint64_t noise(server *s, uint64_t below) {
    s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
    return (s->seed >> 33) % below;
}
static void sessions(server *s, uint64_t bytes) {
    const memlord_site put = {"store.c", "cache_put", 41};
    assert_ok(memlord_realloc(s->lord, cpu(), 0x2000, 0x2000, bytes, &put));
}
static void pass(server *s, uint64_t ns) {
    s->now += ns;
    assert_ok(memlord_gc_poll(s->lord, all()));
}
static void start(server *s, uint64_t seed, uint32_t flags) {
    const memlord_site load = {"store.c", "load", 7}, put = {"store.c", "cache_put", 41};
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->now = SECOND;
    desc.clock.fn = test_now;
    desc.clock.user = &s->now;
    desc.flags = MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_NO_ENV | flags;
    assert_ok(memlord_create(&desc, &s->lord));
    assert_ok(memlord_tag_begin(s->lord, "cache"));
    assert_ok(memlord_alloc(s->lord, cpu(), 0x1000, 800 * MIB, &load));
    assert_ok(memlord_tag_end(s->lord));
    assert_ok(memlord_tag_begin(s->lord, "sessions"));
    assert_ok(memlord_alloc(s->lord, cpu(), 0x2000, 1, &put));
    assert_ok(memlord_tag_end(s->lord));
    assert_ok(memlord_snapshots_start(s->lord, 20));
}
/* Ends a server. Returns how many devices, tags and sites grew. */
static uint64_t stop(server *s) {
    char *json = report_of(s->lord, MEMLORD_FORMAT_JSON);
    uint64_t n;
    assert_true(json_valid(json));
    n = json_u64(json, "growth.count");
    free(json);
    memlord_destroy(s->lord);
    return n;
}

static void a_server_that_grows_is_found_in_every_run(void **state) {
    uint64_t run, i;
    (void)state;
    for (run = 0; run < RUNS; run++) {
        server s;
        start(&s, run, MEMLORD_FLAG_SITES);
        for (i = 0; i < 200 + 400 * run; i++) { /* 100 MiB a second, for 2 s to 78 s */
            sessions(&s, i * MIB + noise(&s, 2 * MIB));
            pass(&s, 10 * MS);
        }
        assert_int_equal(stop(&s), 3); /* the device, the tag and the site */
    }
}
static void a_sawtooth_does_not_grow_in_any_run(void **state) {
    uint64_t run, i;
    (void)state;
    for (run = 0; run < RUNS; run++) {
        const uint64_t period = 40 + 20 * run, length = 2 * period + 37 * run;
        server s;
        start(&s, run, MEMLORD_FLAG_SITES);
        for (i = 0; i < length; i++) {
            sessions(&s, i % period * MIB + noise(&s, 2 * MIB));
            pass(&s, 10 * MS);
        }
        if (stop(&s)) fail_msg("a sawtooth of %u steps grows", (unsigned)period);
    }
}
static void a_server_that_stays_level_does_not_grow_in_any_run(void **state) {
    uint64_t run, i;
    (void)state;
    for (run = 0; run < RUNS; run++) {
        server s;
        start(&s, run, MEMLORD_FLAG_SITES);
        for (i = 0; i < 20 + 100 * run; i++) {
            sessions(&s, 100 * MIB + noise(&s, 40 * MIB));
            pass(&s, 10 * MS);
        }
        assert_int_equal(stop(&s), 0);
    }
}
static void a_run_up_that_is_over_does_not_grow(void **state) {
    uint64_t i;
    server s;
    (void)state;
    start(&s, 1, MEMLORD_FLAG_SITES);
    for (i = 0; i < 400; i++) {
        sessions(&s, (i < 160 ? i : 160) * MIB);
        pass(&s, 10 * MS);
    }
    assert_int_equal(stop(&s), 0);
}
static void a_program_that_frees_all_at_its_end_does_not_grow(void **state) {
    uint64_t run, i;
    (void)state;
    for (run = 0; run < RUNS; run++) {
        server s;
        start(&s, run, MEMLORD_FLAG_SITES);
        for (i = 0; i < 150 + 50 * run; i++) {
            sessions(&s, i * MIB + noise(&s, 2 * MIB));
            pass(&s, 10 * MS);
        }
        assert_ok(memlord_free(s.lord, cpu(), 0x2000, NULL));
        assert_ok(memlord_free(s.lord, cpu(), 0x1000, NULL));
        pass(&s, 20 * MS);
        assert_int_equal(stop(&s), 0);
    }
}
static void growth_that_begins_late_is_dated(void **state) {
    server s;
    uint64_t i;
    char *json;
    (void)state;
    start(&s, 1, 0);
    for (i = 0; i < 100; i++) pass(&s, 100 * MS); /* 10 s level, then 20 s of 16 MiB a second */
    for (i = 0; i < 200; i++) {
        sessions(&s, i * 16 * MIB / 10);
        pass(&s, 100 * MS);
    }
    json = report_of(s.lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(json, "growth.count"), 2);
    assert_true(json_is(json, "growth.fastest[0].device", "cpu"));
    assert_true(json_u64(json, "growth.fastest[0].bytes_per_minute") > 850 * MIB);
    assert_true(json_u64(json, "growth.fastest[0].bytes_per_minute") < 1010 * MIB);
    assert_true(json_u64(json, "growth.fastest[0].since_ns") < 11 * SECOND);
    free(json);
    assert_int_equal(stop(&s), 2);
}
/* The device that has the highest peak grows least here. */
static void sentences_of_growth_come_by_their_rates(void **state) {
    server s;
    uint64_t i;
    uint32_t d;
    char *text, *first, *second, *third;
    (void)state;
    start(&s, 1, 0);
    assert_ok(memlord_alloc(s.lord, cuda(0), 0x900, 2000 * MIB, NULL));
    for (i = 0; i < 200; i++) {
        for (d = 0; d < 3; d++)
            assert_ok(memlord_alloc(s.lord, cuda((int)d), 0x10000 + 0x100 * (3 * i + d),
                                    (d == 1 ? 9 : d + 1) * MIB, NULL));
        pass(&s, 100 * MS);
    }
    text = report_of(s.lord, MEMLORD_FORMAT_TEXT);
    first = strstr(text, "growth, cuda:1: untagged grows by 5.");
    second = strstr(text, "growth, cuda:2: untagged grows by 1.");
    third = strstr(text, "growth, cuda:0: untagged grows by 6");
    assert_true(first && first < second && second < third);
    free(text);
    (void)stop(&s);
}
static void less_than_eight_snapshots_do_not_grow(void **state) {
    server s;
    uint64_t i;
    (void)state;
    start(&s, 1, 0);
    assert_int_equal(stop(&s), 0); /* that of the start, and that of the report */
    start(&s, 1, 0);
    assert_ok(memlord_snapshots_stop(s.lord)); /* the second and last */
    for (i = 1; i < 100; i++) sessions(&s, i * MIB);
    assert_int_equal(stop(&s), 0);
    start(&s, 1, 0);
    for (i = 1; i < 6; i++) {
        sessions(&s, i * MIB);
        pass(&s, SECOND);
    }
    sessions(&s, 6 * MIB);
    assert_int_equal(stop(&s), 0); /* seven */
    start(&s, 1, 0);
    for (i = 1; i < 7; i++) {
        sessions(&s, i * MIB);
        pass(&s, SECOND);
    }
    sessions(&s, 7 * MIB);
    assert_int_equal(stop(&s), 2); /* eight: the device and the tag */
}
static void less_than_a_second_does_not_grow(void **state) {
    const uint64_t steps[] = {90, 130}, grows[] = {0, 3};
    uint64_t i, k;
    (void)state;
    for (k = 0; k < 2; k++) {
        server s;
        start(&s, 1, MEMLORD_FLAG_SITES);
        for (i = 0; i < steps[k]; i++) {
            sessions(&s, i * MIB);
            pass(&s, 10 * MS);
        }
        assert_int_equal(stop(&s), grows[k]);
    }
}
/* A slow growth counts from 1 MiB a minute on or, of a device whose capacity is known, from 1 % of
   that on. */
static void the_least_growth_is_a_mebibyte_a_minute(void **state) {
    const uint64_t a_minute[] = {1000 * KIB, 1050 * KIB};
    uint64_t i, k;
    (void)state;
    for (k = 0; k < 2; k++) {
        server s;
        start(&s, 1, 0);
        for (i = 0; i < 100; i++) {
            sessions(&s, i * a_minute[k] / 10);
            pass(&s, 6 * SECOND);
        }
        assert_int_equal(stop(&s), 2 * k);
    }
}

static void a_clock_that_went_back_finds_no_growth_and_harms_nothing(void **state) {
    server s;
    uint64_t i;
    (void)state;
    start(&s, 1, MEMLORD_FLAG_SITES);
    for (i = 0; i < 300; i++) {
        sessions(&s, i * MIB);
        pass(&s, 20 * MS);
        if (i == 100) s.now = SECOND / 2; /* before the ledger was made */
        if (i == 100) assert_ok(memlord_checkpoint(s.lord, "back"));
        if (i == 200) s.now = 1;
        if (i % 50 == 0) free(report_of(s.lord, MEMLORD_FORMAT_TEXT));
    }
    free(report_of(s.lord, MEMLORD_FORMAT_HTML));
    (void)stop(&s);
    start(&s, 1, 0); /* and one that stands still */
    for (i = 0; i < 20; i++) {
        sessions(&s, i * MIB);
        assert_ok(memlord_checkpoint(s.lord, "still"));
    }
    assert_int_equal(stop(&s), 0);
}
/* Of more tags than a snapshot keeps, those that are not among the largest are not known. */
static void a_tag_that_was_not_among_the_largest_is_not_known_then(void **state) {
    server s;
    uint64_t i;
    char *json;
    (void)state;
    start(&s, 1, 0);
    for (i = 0; i < 20; i++) {
        char tag[16];
        snprintf(tag, sizeof tag, "tag %u", (unsigned)i);
        assert_ok(memlord_tag_begin(s.lord, tag));
        assert_ok(memlord_alloc(s.lord, cpu(), 0x3000 + 64 * i, (40 - i) * MIB, NULL));
        assert_ok(memlord_tag_end(s.lord));
    }
    pass(&s, SECOND);
    sessions(&s, 900 * MIB);
    pass(&s, SECOND);
    json = report_of(s.lord, MEMLORD_FORMAT_JSON);
    assert_true(json_is(json, "series.tags[0].tag", "sessions"));
    assert_non_null(strstr(json, "\"tag\":\"sessions\",\"bytes\":[1,null,943718400,"));
    assert_non_null(strstr(json, "\"tag\":\"cache\",\"bytes\":[838860800,838860800,838860800,"));
    free(json);
    (void)stop(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_grows_is_found_in_every_run),
        cmocka_unit_test(a_sawtooth_does_not_grow_in_any_run),
        cmocka_unit_test(a_server_that_stays_level_does_not_grow_in_any_run),
        cmocka_unit_test(a_run_up_that_is_over_does_not_grow),
        cmocka_unit_test(a_program_that_frees_all_at_its_end_does_not_grow),
        cmocka_unit_test(growth_that_begins_late_is_dated),
        cmocka_unit_test(sentences_of_growth_come_by_their_rates),
        cmocka_unit_test(less_than_eight_snapshots_do_not_grow),
        cmocka_unit_test(less_than_a_second_does_not_grow),
        cmocka_unit_test(the_least_growth_is_a_mebibyte_a_minute),
        cmocka_unit_test(a_clock_that_went_back_finds_no_growth_and_harms_nothing),
        cmocka_unit_test(a_tag_that_was_not_among_the_largest_is_not_known_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
