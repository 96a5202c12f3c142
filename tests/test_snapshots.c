/* Snapshots: named and periodic, bounded, the first and the last of them always there; and who
   held a device at its peak. Only the tests of the thread wait for time to pass. */
#include "support.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "json.h"

#define MS ((uint64_t)1000000)
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

static void open_block(memlord *lord, uint64_t key, uint64_t bytes) {
    assert_ok(memlord_alloc(lord, cuda(0), key, bytes, NULL));
}
static void close_block(memlord *lord, uint64_t key) {
    assert_ok(memlord_free(lord, cuda(0), key, NULL));
}

static char *json_of(memlord *lord) {
    char *json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_true(json_valid(json));
    return json;
}
/* A number of a report made now. */
static uint64_t number(memlord *lord, const char *path) {
    char *json = json_of(lord);
    uint64_t v = json_u64(json, path);
    free(json);
    return v;
}
static uint64_t snapshots(memlord *lord) { return number(lord, "summary.num_snapshots"); }
static uint64_t at(const char *json, unsigned i, const char *key) {
    char path[128];
    snprintf(path, sizeof path, "snapshots[%u].%s", i, key);
    return json_u64(json, path);
}

/* -- checkpoints -- */

static void a_checkpoint_keeps_what_every_device_holds(void **state) {
    test_case *t = (test_case *)*state;
    char *json;
    open_block(t->lord, 0x1000, 3 * MIB);
    assert_ok(memlord_alloc(t->lord, cpu(), 0x1000, 1000, NULL));
    t->now += 7 * MS;
    assert_ok(memlord_checkpoint(t->lord, "after_model_load"));
    close_block(t->lord, 0x1000);
    json = json_of(t->lord);
    assert_int_equal(json_u64(json, "summary.num_snapshots"), 1);
    assert_int_equal(json_u64(json, "metadata.num_snapshots"), 1);
    assert_true(json_is(json, "summary.checkpoints[0]", "after_model_load"));
    assert_true(json_is(json, "summary.peak_memory_checkpoint", "after_model_load"));
    assert_true(json_is(json, "snapshots[0].checkpoint_name", "after_model_load"));
    assert_int_equal(at(json, 0, "time_ns"), 7 * MS);
    assert_int_equal(at(json, 0, "total_bytes"), 3 * MIB + 1000);
    assert_int_equal(at(json, 0, "tensor_count"), 2);
    assert_int_equal(at(json, 0, "device_breakdown.cuda:0.total_bytes"), 3 * MIB);
    assert_int_equal(at(json, 0, "device_breakdown.cuda:0.peak_bytes"), 3 * MIB);
    assert_int_equal(at(json, 0, "device_breakdown.cuda:0.count"), 1);
    assert_int_equal(at(json, 0, "device_breakdown.cpu.total_bytes"), 1000);
    assert_non_null(strstr(json, "\"total_mb\":3.00,\"total_bytes\":3145728"));
    free(json);
}

/* cuda:0 held 5 MiB and holds 3; cuda:1 held 4 MiB and holds nothing. */
static void a_checkpoint_keeps_peaks_above_what_is_live(void **state) {
    test_case *t = (test_case *)*state;
    char *json;
    open_block(t->lord, 0x1000, 5 * MIB);
    close_block(t->lord, 0x1000);
    open_block(t->lord, 0x2000, 3 * MIB);
    assert_ok(memlord_alloc(t->lord, cuda(1), 0x1000, 4 * MIB, NULL));
    assert_ok(memlord_free(t->lord, cuda(1), 0x1000, NULL));
    assert_ok(memlord_checkpoint(t->lord, "loaded"));
    open_block(t->lord, 0x3000, 10 * MIB);
    json = json_of(t->lord);
    assert_int_equal(at(json, 0, "device_breakdown.cuda:0.total_bytes"), 3 * MIB);
    assert_int_equal(at(json, 0, "device_breakdown.cuda:0.peak_bytes"), 5 * MIB);
    assert_int_equal(at(json, 0, "device_breakdown.cuda:1.total_bytes"), 0);
    assert_int_equal(at(json, 0, "device_breakdown.cuda:1.peak_bytes"), 4 * MIB);
    free(json);
}

static void names_that_are_none_are_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_checkpoint(lord, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_checkpoint(lord, ""), MEMLORD_E_INVALID);
    assert_int_equal(snapshots(lord), 0);
}

static void a_checkpoint_of_an_empty_ledger(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    assert_ok(memlord_checkpoint(lord, "start"));
    json = json_of(lord);
    assert_int_equal(at(json, 0, "total_bytes"), 0);
    assert_int_equal(at(json, 0, "tensor_count"), 0);
    free(json);
}

static void assert_written(memlord *lord, memlord_format format) {
    test_text text;
    memlord_result r;
    memset(&text, 0, sizeof text);
    r = memlord_write(lord, format, test_text_write, &text);
    assert_true(r == MEMLORD_OK || r == MEMLORD_E_UNSUPPORTED);
    if (format == MEMLORD_FORMAT_JSON) assert_true(json_valid(text.data));
    free(text.data);
}

static void hostile_names_are_harmless(void **state) {
    static const char *const names[] = {"\" \\ \n\x01\x7f", "\xff\xfe\xc0\x80", "\xe2\x80\xa8",
                                        "</script><img onerror=x>", "%n%s%99999999d", " "};
    memlord *lord = test_lord(state);
    size_t i;
    int f;
    for (i = 0; i < sizeof names / sizeof *names; i++)
        assert_ok(memlord_checkpoint(lord, names[i]));
    for (f = 0; f < MEMLORD_FORMAT_COUNT; f++) assert_written(lord, (memlord_format)f);
    assert_int_equal(snapshots(lord), 6);
}

static int count_bytes(void *user, const void *data, size_t size) {
    (void)data;
    *(size_t *)user += size;
    return 0;
}
static void a_name_of_ten_megabytes(void **state) {
    TEST_ONE_THREAD();
    memlord *lord = test_lord(state);
    size_t written = 0;
    size_t size = 10 * 1000 * 1000;
    char *name = (char *)malloc(size + 1);
    memlord_result r;
    assert_non_null(name);
    memset(name, 'n', size);
    name[size] = 0;
    r = memlord_checkpoint(lord, name);
    assert_true(r == MEMLORD_OK || r == MEMLORD_E_NOMEM);
    assert_ok(memlord_write(lord, MEMLORD_FORMAT_JSON, count_bytes, &written));
    assert_true(r != MEMLORD_OK || written > size);
    free(name);
}

/* -- bounds -- */

static void more_than_fit_thin_out_and_are_counted(void **state) {
    TEST_ONE_THREAD();
    test_case *t = (test_case *)*state;
    char *json, text[32];
    unsigned i, n, named = 0;
    uint64_t before = 0;
    assert_ok(memlord_snapshots_start(t->lord, 10));
    for (i = 0; i < 5000; i++) {
        t->now += 10 * MS;
        if (i % 100 == 50) {
            snprintf(text, sizeof text, "c%u", i);
            assert_ok(memlord_checkpoint(t->lord, text));
        }
        assert_ok(memlord_gc_poll(t->lord, all()));
    }
    memlord_snapshots_stop(t->lord);
    json = json_of(t->lord);
    n = (unsigned)json_u64(json, "summary.num_snapshots");
    assert_true(n <= 256 && n >= 128);
    assert_int_equal(n + json_u64(json, "metadata.dropped.snapshots"), 5000 + 50 + 2);
    assert_int_equal(at(json, 0, "time_ns"), 0);
    assert_int_equal(at(json, n - 1, "time_ns"), 50000 * MS);
    for (i = 0; i < n; i++) {
        char path[64];
        assert_true(!i || at(json, i, "time_ns") >= before);
        before = at(json, i, "time_ns");
        snprintf(path, sizeof path, "snapshots[%u].checkpoint_name", i);
        snprintf(text, sizeof text, "c%u", 50 + 100 * named);
        named += (unsigned)json_is(json, path, text);
    }
    assert_int_equal(named, 50);
    free(json);
}

static void those_that_are_no_longer_kept_are_in_no_sentence(void **state) {
    memlord *lord = test_lord(state);
    char *text, *full, *json;
    unsigned i;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
    for (i = 0; i < 300; i++) assert_ok(memlord_checkpoint(lord, "c"));
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    full = strstr(text, "\n---- in full ----\n");
    assert_non_null(full);
    assert_non_null(strstr(full, "\nanomalies and drops, all dropped_snapshots 45\n"));
    *full = 0;
    assert_null(strstr(text, "anomalies"));
    free(text);
    json = json_of(lord);
    assert_non_null(strstr(json, "\n\"verdicts\":[]"));
    free(json);
}

static void named_ones_alone_are_bounded_too(void **state) {
    memlord *lord = test_lord(state);
    char name[32], *json;
    unsigned i, n;
    for (i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "c%u", i);
        assert_ok(memlord_checkpoint(lord, name));
    }
    json = json_of(lord);
    n = (unsigned)json_u64(json, "summary.num_snapshots");
    assert_true(n <= 256 && n >= 128);
    assert_int_equal(n + json_u64(json, "metadata.dropped.snapshots"), 2000);
    assert_true(json_is(json, "snapshots[0].checkpoint_name", "c0"));
    snprintf(name, sizeof name, "snapshots[%u].checkpoint_name", n - 1);
    assert_true(json_is(json, name, "c1999"));
    free(json);
}

/* So many periodic ones by polls, 10 ms apart. */
static void periodic(test_case *t, unsigned n) {
    while (n--) {
        t->now += 10 * MS;
        assert_ok(memlord_gc_poll(t->lord, all()));
    }
}
static void those_kept_lie_evenly_over_the_whole_run(void **state) {
    TEST_ONE_THREAD();
    test_case *t = (test_case *)*state;
    unsigned round, i, n;
    assert_ok(memlord_snapshots_start(t->lord, 10));
    for (round = 0; round < 12; round++) { /* at no length is there a hole */
        char *json;
        uint64_t whole, gap = 0;
        periodic(t, 300 + 100 * round);
        json = json_of(t->lord);
        n = (unsigned)json_u64(json, "summary.num_snapshots");
        assert_true(n >= 250 && n <= 256);
        assert_int_equal(at(json, 0, "time_ns"), 0);
        whole = at(json, n - 1, "time_ns");
        assert_int_equal(whole, t->now - 1000 * MS); /* where the fakes began */
        for (i = 1; i < n; i++) {
            uint64_t step = at(json, i, "time_ns") - at(json, i - 1, "time_ns");
            if (step > gap) gap = step;
        }
        if (gap > 3 * (whole / (n - 1)))
            fail_msg("round %u: %u ms of %u", round, (unsigned)(gap / MS), (unsigned)(whole / MS));
        free(json);
    }
}

static void what_was_highest_is_not_thinned_away(void **state) {
    TEST_ONE_THREAD();
    test_case *t = (test_case *)*state;
    char *json;
    unsigned i, n, all_peak = 0, cuda_peak = 0;
    assert_ok(memlord_alloc(t->lord, cpu(), 0x1000, 100 * MIB, NULL));
    assert_ok(memlord_snapshots_start(t->lord, 10));
    periodic(t, 777);
    open_block(t->lord, 0x2000, 30 * MIB); /* seen once, while all is highest */
    periodic(t, 1);
    close_block(t->lord, 0x2000);
    periodic(t, 777);
    assert_ok(memlord_free(t->lord, cpu(), 0x1000, NULL));
    periodic(t, 777);
    open_block(t->lord, 0x2000, 60 * MIB); /* and once where that device is */
    periodic(t, 1);
    close_block(t->lord, 0x2000);
    periodic(t, 5000);
    json = json_of(t->lord);
    n = (unsigned)json_u64(json, "summary.num_snapshots");
    for (i = 0; i < n; i++) {
        all_peak += at(json, i, "total_bytes") == 130 * MIB;
        cuda_peak += at(json, i, "device_breakdown.cuda:0.total_bytes") == 60 * MIB;
    }
    assert_int_equal(all_peak, 1);
    assert_int_equal(cuda_peak, 1);
    free(json);
}

static void the_checkpoint_with_most_is_kept(void **state) {
    test_case *t = (test_case *)*state;
    char *json, name[32];
    unsigned i;
    for (i = 0; i < 2000; i++) {
        t->now += MS;
        if (i == 555) open_block(t->lord, 0x1000, MIB);
        snprintf(name, sizeof name, "c%u", i);
        assert_ok(memlord_checkpoint(t->lord, name));
        if (i == 555) close_block(t->lord, 0x1000);
    }
    json = json_of(t->lord);
    assert_true(json_is(json, "summary.peak_memory_checkpoint", "c555"));
    free(json);
}

/* A clock of the host's that takes a snapshot itself, after it has read the time. */
typedef struct busy_clock {
    memlord *lord;
    uint64_t now;
    int again;
} busy_clock;
static uint64_t read_busy_clock(void *user) {
    busy_clock *c = (busy_clock *)user;
    uint64_t now = c->now++;
    if (c->again-- == 1) assert_ok(memlord_checkpoint(c->lord, "inner"));
    return now;
}
static void they_lie_in_order_of_time(void **state) {
    busy_clock c = {NULL, 1000, 0};
    memlord_desc desc;
    char *json;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_NO_ENV;
    desc.clock.fn = read_busy_clock;
    desc.clock.user = &c;
    assert_ok(memlord_create(&desc, &c.lord));
    c.again = 1;
    assert_ok(memlord_checkpoint(c.lord, "outer"));
    json = json_of(c.lord);
    assert_true(json_is(json, "snapshots[0].checkpoint_name", "outer"));
    assert_true(json_is(json, "snapshots[1].checkpoint_name", "inner"));
    assert_int_equal(at(json, 0, "time_ns") + 1, at(json, 1, "time_ns"));
    free(json);
    memlord_destroy(c.lord);
}

enum { CHECKPOINTS = TEST_SANITIZED ? 20 : 60 };
static void *checkpoints(void *user) {
    int i;
    for (i = 0; i < CHECKPOINTS; i++) assert_ok(memlord_checkpoint((memlord *)user, "c"));
    return NULL;
}
static void on_many_threads_too(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread[4];
    char *json;
    unsigned i, n;
    for (i = 0; i < 100; i++) /* so that one takes its time */
        assert_ok(memlord_alloc(lord, cuda((int)i), 0x1000 + i * 64, 8, NULL));
    for (i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, checkpoints, lord), 0);
    for (i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    json = json_of(lord);
    n = (unsigned)json_u64(json, "summary.num_snapshots");
    assert_int_equal(n, 4 * CHECKPOINTS);
    for (i = 1; i < n; i++)
        assert_true(at(json, i - 1, "time_ns") <= at(json, i, "time_ns"));
    free(json);
}

/* -- periodic, by the clock -- */

static void without_threads_a_poll_takes_those_that_are_due(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_snapshots_start(t->lord, 100));
    assert_int_equal(snapshots(t->lord), 2); /* the first, and the report's own */
    memlord_snapshots_stop(t->lord);
    assert_int_equal(snapshots(t->lord), 2);
    assert_ok(memlord_snapshots_start(t->lord, 100));
    t->now += 99 * MS;
    assert_ok(memlord_gc_poll(t->lord, all()));
    t->now += 1 * MS;
    assert_ok(memlord_gc_poll(t->lord, all())); /* due */
    assert_ok(memlord_gc_poll(t->lord, all()));
    memlord_snapshots_stop(t->lord);
    assert_int_equal(snapshots(t->lord), 2 + 1 + 1 + 1);
    t->now += 1000 * MS;
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(snapshots(t->lord), 5);
}

static void the_interval_is_5_seconds_by_default(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_snapshots_start(t->lord, 0));
    t->now += 4999 * MS;
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(snapshots(t->lord), 2);
    t->now += 1 * MS;
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(snapshots(t->lord), 3);
    memlord_snapshots_stop(t->lord);
}

static void a_run_shorter_than_the_interval_has_its_first_and_last(void **state) {
    test_case *t = (test_case *)*state;
    char *json;
    open_block(t->lord, 0x1000, 5);
    assert_ok(memlord_snapshots_start(t->lord, 0));
    open_block(t->lord, 0x2000, 6);
    t->now += 1;
    memlord_snapshots_stop(t->lord);
    memlord_snapshots_stop(t->lord);
    json = json_of(t->lord);
    assert_int_equal(json_u64(json, "summary.num_snapshots"), 2);
    assert_int_equal(at(json, 0, "total_bytes"), 5);
    assert_int_equal(at(json, 1, "total_bytes"), 11);
    free(json);
}

static void hours_of_standing_still_bring_one_snapshot(void **state) {
    test_case *t = (test_case *)*state;
    int i;
    assert_ok(memlord_snapshots_start(t->lord, 10));
    t->now += (uint64_t)5 * 3600 * 1000 * MS;
    for (i = 0; i < 10; i++) assert_ok(memlord_gc_poll(t->lord, all()));
    memlord_snapshots_stop(t->lord);
    assert_int_equal(snapshots(t->lord), 3);
}

static void the_interval_is_checked(void **state) {
    memlord *lord = test_lord(state), *other;
    memlord_desc desc;
    assert_int_equal(memlord_snapshots_start(lord, 1), MEMLORD_E_INVALID);
    assert_int_equal(memlord_snapshots_start(lord, 9), MEMLORD_E_INVALID);
    assert_int_equal(snapshots(lord), 0);
    assert_ok(memlord_snapshots_start(lord, UINT32_MAX));
    memlord_snapshots_stop(lord);
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_NO_ENV;
    desc.snapshot_ms = 9;
    assert_int_equal(memlord_create(&desc, &other), MEMLORD_E_INVALID);
    assert_null(other);
    desc.snapshot_ms = 5000;
    assert_ok(memlord_create(&desc, &other));
    assert_int_equal(snapshots(other), 2);
    memlord_destroy(other);
}

static memlord_result take_periodic(memlord *lord) {
    memlord_result r = memlord_snapshots_start(lord, 0);
    memlord_snapshots_stop(lord);
    return r;
}
static memlord_result take_checkpoint(memlord *lord) { return memlord_checkpoint(lord, "loaded"); }
static void assert_lists_the_largest(test_case *t, memlord_result (*take)(memlord *lord)) {
    memlord_meta meta;
    char *json;
    uint64_t i;
    memset(&meta, 0, sizeof meta);
    meta.name = "w";
    meta.dtype = "f16";
    meta.rank = 1;
    meta.shape[0] = 12;
    assert_ok(memlord_scope_begin(t->lord, "load"));
    for (i = 0; i < 30; i++) open_block(t->lord, 0x1000 + i * 64, i);
    assert_ok(memlord_scope_end(t->lord));
    assert_ok(memlord_block_describe(t->lord, cuda(0), 0x1000 + 29 * 64, &meta));
    assert_ok(take(t->lord));
    for (i = 0; i < 30; i++) close_block(t->lord, 0x1000 + i * 64); /* they are copies */
    json = json_of(t->lord);
    assert_int_equal(at(json, 0, "device_breakdown.cuda:0.tensors[0].size_bytes"), 29);
    assert_int_equal(at(json, 0, "device_breakdown.cuda:0.tensors[0].shape[0]"), 12);
    assert_int_equal(at(json, 0, "device_breakdown.cuda:0.tensors[9].size_bytes"), 20);
    assert_int_equal(at(json, 0, "device_breakdown.cuda:0.tensors[10].size_bytes"), UINT64_MAX);
    assert_true(json_is(json, "snapshots[0].device_breakdown.cuda:0.tensors[0].operation",
                        "load"));
    free(json);
}
static void periodic_ones_list_the_largest_blocks(void **state) {
    assert_lists_the_largest((test_case *)*state, take_periodic);
}
static void checkpoints_list_the_largest_blocks(void **state) {
    assert_lists_the_largest((test_case *)*state, take_checkpoint);
}

/* A scrape every now and then, and reports one reads, are no part of the history. */
static void reports_leave_no_snapshots_behind(void **state) {
    TEST_ONE_THREAD();
    test_case *t = (test_case *)*state;
    char *json, *text;
    unsigned i;
    open_block(t->lord, 0x1000, 5);
    assert_ok(memlord_snapshots_start(t->lord, 10));
    periodic(t, 20);
    for (i = 0; i < 1000; i++) {
        t->now += 1000;
        assert_written(t->lord, MEMLORD_FORMAT_PROMETHEUS);
        if (i % 50 == 0) assert_written(t->lord, (memlord_format)(i / 50 % MEMLORD_FORMAT_COUNT));
    }
    open_block(t->lord, 0x2000, 6);
    json = json_of(t->lord);
    assert_int_equal(json_u64(json, "summary.num_snapshots"), 1 + 20 + 1);
    assert_int_equal(json_u64(json, "metadata.dropped.snapshots"), 0);
    assert_int_equal(at(json, 20, "total_bytes"), 5);
    assert_int_equal(at(json, 21, "total_bytes"), 11); /* the present */
    assert_int_equal(at(json, 21, "device_breakdown.cuda:0.tensors[0].size_bytes"), 6);
    free(json);
    text = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "snapshots: 22, checkpoints 0"));
    free(text);
}

/* A writer that takes so many checkpoints that the list of the report is evicted. */
typedef struct evicting {
    test_text text;
    memlord *lord;
    int done;
} evicting;
static int write_and_evict(void *user, const void *data, size_t size) {
    evicting *e = (evicting *)user;
    int i;
    for (i = 0; i < 300 && !e->done; i++) (void)memlord_checkpoint(e->lord, "later");
    e->done = 1;
    return test_text_write(&e->text, data, size);
}

static void a_report_keeps_what_is_evicted_while_it_is_written(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t bytes = 0;
    unsigned i, round;
    open_block(t->lord, 0x1000, 5);
    for (round = 0; round < 6; round++) {
        evicting e;
        char name[48];
        memset(&e, 0, sizeof e);
        e.lord = t->lord;
        for (i = 0; i < 300; i++) {
            snprintf(name, sizeof name, "r%u c%u", round, i);
            assert_ok(memlord_checkpoint(t->lord, name));
        }
        assert_ok(memlord_write(t->lord, MEMLORD_FORMAT_JSON, write_and_evict, &e));
        assert_int_equal(json_u64(e.text.data, "summary.num_snapshots"), 255);
        for (i = 46; i < 300; i++) { /* at one time: the oldest but the first went */
            snprintf(name, sizeof name, "\"r%u c%u\"", round, i);
            assert_non_null(strstr(e.text.data, name));
        }
        assert_null(strstr(e.text.data, round ? "\"r0 c46\"" : "later"));
        free(e.text.data);
        if (round == 2) bytes = t->heap.bytes;
    }
    assert_true(t->heap.bytes <= bytes + 3 * 300 * 128); /* names are kept, snapshots are not */
}

/* -- the thread -- */

/* 1: so many came within a minute. */
static int came(memlord *lord, uint64_t n) {
    time_t until = time(NULL) + 60;
    for (;;) {
        char *json = json_of(lord);
        uint64_t have = json_u64(json, "summary.num_snapshots");
        uint64_t lost = json_u64(json, "metadata.dropped.snapshots");
        free(json);
        if (have + lost >= n) return 1;
        if (time(NULL) > until) return 0;
        sched_yield();
    }
}
/* A report adds its own: those that came by themselves show in what they hold. */
static int taken_alone(memlord *lord, uint64_t bytes) {
    char *json;
    unsigned i, n, found = 0;
    struct timespec nap = {0, 60 * 1000 * 1000};
    nanosleep(&nap, NULL);
    open_block(lord, 0x77777740, 1);
    json = json_of(lord);
    n = (unsigned)json_u64(json, "summary.num_snapshots");
    for (i = 0; i < n; i++) found += at(json, i, "total_bytes") == bytes;
    free(json);
    close_block(lord, 0x77777740);
    return (int)found;
}

static void a_thread_takes_them_in_real_time(void **state) {
    memlord *lord = test_lord(state);
    time_t until = time(NULL) + 60;
    assert_ok(memlord_snapshots_start(lord, 10));
    open_block(lord, 0x1000, 1234);
    while (!taken_alone(lord, 1234)) assert_true(time(NULL) < until);
    memlord_snapshots_stop(lord);
    memlord_snapshots_stop(lord);
    assert_ok(memlord_snapshots_start(lord, 10));
    assert_true(came(lord, 5));
} /* destroyed while it runs */

static void another_interval_holds_within_a_second(void **state) {
    memlord *lord = test_lord(state);
    struct timespec nap = {0, 30 * 1000 * 1000};
    time_t until = time(NULL) + 60;
    assert_ok(memlord_snapshots_start(lord, 600000));
    nanosleep(&nap, NULL); /* it waits by now */
    assert_ok(memlord_snapshots_start(lord, 10));
    open_block(lord, 0x1000, 1234);
    while (!taken_alone(lord, 1234)) assert_true(time(NULL) < until);
}

static uint64_t read_shared(void *user) {
    return __atomic_load_n((uint64_t *)user, __ATOMIC_ACQUIRE);
}
static void the_hosts_clock_decides_when(void **state) {
    struct timespec nap = {0, 100 * 1000 * 1000};
    uint64_t now = 1;
    memlord_desc desc;
    memlord *lord;
    time_t until;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    desc.clock.fn = read_shared;
    desc.clock.user = &now;
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_snapshots_start(lord, 10));
    nanosleep(&nap, NULL);
    assert_int_equal(snapshots(lord), 1 + 1); /* the report's own */
    __atomic_store_n(&now, 10 * MS + 1, __ATOMIC_RELEASE);
    for (until = time(NULL) + 60; snapshots(lord) < 2 + 1 && time(NULL) < until;) sched_yield();
    nanosleep(&nap, NULL);
    assert_int_equal(snapshots(lord), 2 + 1);
    memlord_destroy(lord);
}

static void *start_and_stop(void *user) {
    memlord *lord = (memlord *)user;
    int i;
    for (i = 0; i < 20; i++) {
        assert_ok(memlord_snapshots_start(lord, 10));
        assert_ok(memlord_checkpoint(lord, "between"));
        memlord_snapshots_stop(lord);
    }
    return NULL;
}
static void starts_and_stops_on_many_threads(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread[4];
    int i;
    open_block(lord, 0x1000, 1);
    for (i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, start_and_stop, lord), 0);
    for (i = 0; i < 10; i++) free(json_of(lord));
    for (i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    memlord_snapshots_stop(lord);
    assert_true(snapshots(lord) >= 80);
}

#if !TEST_SANITIZED /* no new threads in a child there */
static void a_child_takes_its_own(void **state) {
    memlord *lord = test_lord(state);
    pid_t child;
    if (threads_of_a_child() != 1) skip(); /* such an emulator starts no thread in a child */
    assert_ok(memlord_snapshots_start(lord, 10));
    open_block(lord, 0x1000, 1);
    child = fork();
    if (!child) {
        struct timespec nap = {0, 20 * 1000 * 1000};
        int round, seen = 0;
        for (round = 0; round < 200 && !seen; round++) {
            char *json;
            unsigned i, n;
            if (memlord_alloc(lord, cuda(0), 0x2000, 500, NULL)) _exit(2);
            nanosleep(&nap, NULL);
            if (memlord_free(lord, cuda(0), 0x2000, NULL)) _exit(3);
            json = json_of(lord);
            n = (unsigned)json_u64(json, "summary.num_snapshots");
            for (i = 0; i < n; i++) seen |= at(json, i, "total_bytes") == 501;
            free(json);
        }
        memlord_snapshots_stop(lord);
        _exit(seen ? 0 : 4);
    }
    assert_int_equal(child_status(child), 0);
    memlord_snapshots_stop(lord);
}
#endif

/* -- failing allocators -- */

static void an_allocator_that_fails_at_any_call(void **state) {
    uint64_t n;
    int done = 0;
    (void)state;
    for (n = 1; !done; n += TEST_SANITIZED ? 5 : 1) {
        test_heap heap;
        memlord_desc desc;
        memlord *lord;
        uint64_t taken = 0, failed = 0, now = 1, i;
        memset(&heap, 0, sizeof heap);
        desc = test_desc(&heap, MEMLORD_FLAG_NO_THREADS);
        desc.clock.fn = test_now;
        desc.clock.user = &now;
        assert_ok(memlord_create(&desc, &lord));
        open_block(lord, 0x1000, 1);
        heap.fail_at = heap.calls + n;
        for (i = 0; i < 40; i++) {
            char name[16];
            memlord_result r;
            snprintf(name, sizeof name, "c%d", (int)i);
            r = i == 7 ? memlord_snapshots_start(lord, 0) : memlord_checkpoint(lord, name);
            assert_true(r == MEMLORD_OK || (r == MEMLORD_E_NOMEM && heap.failed));
            taken += r == MEMLORD_OK;
            failed += r != MEMLORD_OK;
        }
        done = !heap.failed;
        heap.fail_at = 0;
        memlord_snapshots_stop(lord);
        {
            char *json = json_of(lord);
            assert_int_equal(json_u64(json, "summary.num_snapshots") +
                                 json_u64(json, "metadata.dropped.snapshots"),
                             taken + 1 + failed);
            free(json);
        }
        memlord_destroy(lord);
        assert_int_equal(heap.blocks, 0);
        assert_int_equal(heap.bad_frees, 0);
    }
}

/* -- who held it at the peak -- */

static void tagged(memlord *lord, const char *tag, uint64_t key, uint64_t bytes) {
    assert_ok(memlord_tag_begin(lord, tag));
    open_block(lord, key, bytes);
    assert_ok(memlord_tag_end(lord));
}
static uint64_t held_by(const char *json, const char *tag) {
    char path[80];
    unsigned i;
    for (i = 0; i < 32; i++) {
        snprintf(path, sizeof path, "peak_holders[0].tags[%u].tag", i);
        if (tag ? json_is(json, path, tag) : 0) {
            snprintf(path, sizeof path, "peak_holders[0].tags[%u].bytes", i);
            return json_u64(json, path);
        }
    }
    return 0;
}

/* 1: within a sixteenth, and not above. */
static int near(uint64_t v, uint64_t of) { return v <= of && v + of / 16 + 1 >= of; }

static void who_held_the_peak(memlord *lord, uint64_t unit) {
    char *json;
    uint64_t i;
    for (i = 0; i < 40; i++) tagged(lord, "weights", 0x1000 + i * 64, 10 * unit);
    for (i = 0; i < 60; i++) tagged(lord, "kv", 0x10000 + i * 64, 10 * unit);
    json = json_of(lord);
    assert_true(near(json_u64(json, "peak_holders[0].bytes"), 1000 * unit));
    assert_int_equal(held_by(json, "weights"), 400 * unit);
    assert_true(held_by(json, "kv") <= 600 * unit);
    assert_true(held_by(json, "kv") + 1000 * unit / 16 + 1 >= 600 * unit);
    free(json);
    for (i = 0; i < 60; i++) close_block(lord, 0x10000 + i * 64);
    for (i = 0; i < 5; i++) tagged(lord, "small", 0x20000 + i * 64, unit);
    json = json_of(lord);
    assert_true(near(json_u64(json, "peak_holders[0].bytes"), 1000 * unit)); /* not now */
    assert_int_equal(held_by(json, "small"), 0);
    free(json);
}
static void who_held_the_peak_is_known_by_tag(void **state) {
    who_held_the_peak(test_lord(state), 64 * KIB);
}
static void who_held_the_peak_of_a_small_ledger(void **state) {
    who_held_the_peak(test_lord(state), 3);
}
static void who_held_the_peak_with_flag_exact(void **state) {
    who_held_the_peak(test_lord(state), 100);
}

static void who_held_the_peak_is_known_by_site(void **state) {
    static const memlord_site one = {"a.c", "one", 1}, two = {"b.c", "two", 2};
    memlord *lord = test_lord(state);
    char *json;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 700, &one));
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 300, &two));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, &one));
    json = json_of(lord);
    assert_int_equal(json_u64(json, "peak_holders[0].sites[0].bytes"), 700);
    assert_true(json_is(json, "peak_holders[0].sites[0].site.function", "one"));
    assert_int_equal(json_u64(json, "peak_holders[0].sites[1].bytes"), 300);
    free(json);
}

static void in_one_step_up_and_down(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    tagged(lord, "w", 0x1000, 100 * MIB);
    tagged(lord, "burst", 0x2000, 500 * MIB);
    close_block(lord, 0x2000);
    json = json_of(lord);
    assert_int_equal(json_u64(json, "peak_holders[0].bytes"), 600 * MIB);
    assert_int_equal(held_by(json, "burst"), 500 * MIB);
    free(json);
}

static void a_reset_forgets_who_held_it(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    tagged(lord, "old", 0x1000, 100 * MIB);
    close_block(lord, 0x1000);
    memlord_reset(lord);
    tagged(lord, "new", 0x2000, MIB);
    json = json_of(lord);
    assert_int_equal(held_by(json, "old"), 0);
    assert_int_equal(held_by(json, "new"), MIB);
    assert_int_equal(json_u64(json, "peak_holders[0].bytes"), MIB);
    free(json);
}

/* The new peak is far below what the thread could hold back of the old one. */
static void after_a_peak_reset_the_new_peak_has_its_holders(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    char *json;
    for (i = 0; i < 16; i++) assert_ok(memlord_alloc(lord, cpu(), (i + 1) * 64, 64 * KIB, NULL));
    for (i = 0; i < 16; i++) assert_ok(memlord_free(lord, cpu(), (i + 1) * 64, NULL));
    memlord_peak_reset(lord, cpu());
    assert_ok(memlord_tag_begin(lord, "phase"));
    for (i = 0; i < 30; i++) assert_ok(memlord_alloc(lord, cpu(), (i + 1) * 64, 1000, NULL));
    memlord_tag_end(lord);
    for (i = 0; i < 30; i++) assert_ok(memlord_free(lord, cpu(), (i + 1) * 64, NULL));
    assert_int_equal(memlord_peak(lord, cpu()), 30000);
    json = json_of(lord);
    assert_in_range(json_u64(json, "peak_holders[0].bytes"), 28000, 30000);
    assert_true(json_is(json, "peak_holders[0].tags[0].tag", "phase"));
    free(json);
}

static uint64_t cost_of_a_peak_reset(memlord *lord) {
    uint64_t least = 0, from;
    int i;
    for (i = 0; i < 10; i++) {
        from = test_cpu_ns();
        memlord_peak_reset(lord, cpu());
        test_cpu_least(&least, from);
    }
    return least;
}
static void a_peak_reset_costs_no_more_for_the_sites_of_other_devices(void **state) {
    static memlord_site sites[10000];
    memlord *lord = test_lord(state);
    uint64_t i, few;
    TEST_POSIX();
    assert_ok(memlord_alloc(lord, cpu(), 64, 64, &sites[0]));
    few = cost_of_a_peak_reset(lord);
    for (i = 0; i < 10000; i++) {
        sites[i].line = (int)i + 1;
        assert_ok(memlord_alloc(lord, cuda((int)i % 7), (i + 1) * 64, 64, &sites[i]));
    }
    assert_in_range(cost_of_a_peak_reset(lord), 1, 2 * few);
}
static void a_peak_reset_forgets_who_held_it(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    tagged(lord, "old", 0x1000, 100 * MIB);
    close_block(lord, 0x1000);
    memlord_peak_reset(lord, all());
    tagged(lord, "new", 0x2000, MIB);
    json = json_of(lord);
    assert_int_equal(held_by(json, "old"), 0);
    assert_int_equal(held_by(json, "new"), MIB);
    free(json);
}

typedef struct grower {
    memlord *lord;
    uint64_t key;
} grower;
static void *grow_much(void *user) {
    grower *g = (grower *)user;
    uint64_t i;
    for (i = 0; i < 500; i++) tagged(g->lord, "crew", g->key + i * 64, 64 * KIB);
    return NULL;
}
static void threads_that_grow_at_once(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread[4];
    grower g[4];
    char *json;
    uint64_t i;
    for (i = 0; i < 4; i++) {
        g[i].lord = lord;
        g[i].key = (i + 1) << 32;
        assert_int_equal(pthread_create(&thread[i], NULL, grow_much, &g[i]), 0);
    }
    for (i = 0; i < 20; i++) free(json_of(lord));
    for (i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    json = json_of(lord);
    assert_true(near(json_u64(json, "peak_holders[0].bytes"), 2000 * 64 * KIB));
    assert_true(near(held_by(json, "crew"), 2000 * 64 * KIB));
    free(json);
}

/* -- by the calls -- */

static int setup_in_calls(void **state) {
    return test_open_fakes(state, MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_NO_SNAPSHOT_THREAD);
}
/* Without a poll, and without a thread; what has changed little asks for none. */
static void calls_take_those_that_are_due(void **state) {
    TEST_ONE_THREAD();
    test_case *t = (test_case *)*state;
    char *json;
    uint64_t i;
    assert_ok(memlord_snapshots_start(t->lord, 10));
    for (i = 1; i <= 100; i++) {
        t->now += 1 * MS;
        open_block(t->lord, i << 20, MIB);
    }
    json = json_of(t->lord);
    assert_int_equal(json_u64(json, "summary.num_snapshots"), 12); /* the first, ten, the report's */
    assert_int_equal(at(json, 3, "time_ns"), 30 * MS);
    assert_int_equal(at(json, 3, "total_bytes"), 30 * MIB);
    assert_non_null(strstr(json, "\"count\":30,\"tensors\":[]}")); /* a walk of the map is too much */
    free(json);
    assert_ok(memlord_snapshots_stop(t->lord));
    t->now += 100 * MS;
    close_block(t->lord, 1 << 20);
    assert_int_equal(snapshots(t->lord), 12); /* the last at the stop */
}
/* Of a run of any length there are at most 255, evenly over it, and few are taken in vain. */
static void calls_take_them_more_seldom_as_the_run_goes_on(void **state) {
    TEST_ONE_THREAD();
    test_case *t = (test_case *)*state;
    char *json;
    uint64_t i, lost;
    unsigned n;
    assert_ok(memlord_snapshots_start(t->lord, 10));
    for (i = 0; i < 100000; i++) { /* an hour */
        t->now += 36 * MS;
        assert_ok(memlord_realloc(t->lord, cuda(0), i ? 0x1000 : 0, 0x1000, (i + 1) << 16, NULL));
    }
    json = json_of(t->lord);
    n = (unsigned)json_u64(json, "summary.num_snapshots");
    lost = json_u64(json, "metadata.dropped.snapshots");
    assert_true(n >= 200 && n <= 256);
    assert_true(lost < 2000);
    for (i = 1; i < n; i++)
        assert_true(at(json, (unsigned)i, "time_ns") - at(json, (unsigned)i - 1, "time_ns") <
                    60000 * MS);
    assert_true(json_u64(json, "metadata.own_bytes") < MIB);
    free(json);
}
static void with_exact_counters_each_64th_call_looks(void **state) {
    TEST_ONE_THREAD();
    test_case *t = (test_case *)*state;
    uint64_t i;
    open_block(t->lord, 0x1000, MIB);
    assert_ok(memlord_snapshots_start(t->lord, 10));
    for (i = 0; i < 320; i++) { /* each pair publishes twice */
        t->now += 10 * MS;
        open_block(t->lord, 0x2000, 1);
        close_block(t->lord, 0x2000);
    }
    assert_int_equal(snapshots(t->lord), 12); /* the first, ten, the report's */
}
static int setup_in_exact_calls(void **state) {
    return test_open_fakes(state, MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_NO_SNAPSHOT_THREAD |
                                      MEMLORD_FLAG_EXACT);
}
static void no_thread_takes_those_of_the_calls(void **state) {
    memlord_desc desc;
    memlord *lord;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV | MEMLORD_FLAG_NO_SNAPSHOT_THREAD;
    desc.snapshot_ms = 10;
    assert_ok(memlord_create(&desc, &lord));
    usleep(200000);
    assert_int_equal(snapshots(lord), 2); /* the first, and that of the report */
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 3 * MIB, NULL));
    assert_int_equal(snapshots(lord), 3);
    memlord_destroy(lord);
}

static void a_null_ledger_has_no_snapshots(void **state) {
    (void)state;
    assert_ok(memlord_checkpoint(NULL, NULL));
    assert_ok(memlord_snapshots_start(NULL, 1));
    memlord_snapshots_stop(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_FAKES(a_checkpoint_keeps_what_every_device_holds),
        TEST_FAKES(a_checkpoint_keeps_peaks_above_what_is_live),
        TEST(names_that_are_none_are_refused),
        TEST(a_checkpoint_of_an_empty_ledger),
        TEST(hostile_names_are_harmless),
        TEST(a_name_of_ten_megabytes),
        TEST_FAKES(more_than_fit_thin_out_and_are_counted),
        TEST(those_that_are_no_longer_kept_are_in_no_sentence),
        TEST(named_ones_alone_are_bounded_too),
        TEST_FAKES(those_kept_lie_evenly_over_the_whole_run),
        TEST_FAKES(what_was_highest_is_not_thinned_away),
        TEST_FAKES(the_checkpoint_with_most_is_kept),
        cmocka_unit_test(they_lie_in_order_of_time),
        TEST(on_many_threads_too),
        TEST_FAKES(a_report_keeps_what_is_evicted_while_it_is_written),
        TEST_FAKES(without_threads_a_poll_takes_those_that_are_due),
        TEST_FAKES(the_interval_is_5_seconds_by_default),
        TEST_FAKES(a_run_shorter_than_the_interval_has_its_first_and_last),
        TEST_FAKES(hours_of_standing_still_bring_one_snapshot),
        TEST(the_interval_is_checked),
        cmocka_unit_test_setup_teardown(calls_take_those_that_are_due, setup_in_calls, test_teardown),
        cmocka_unit_test_setup_teardown(calls_take_them_more_seldom_as_the_run_goes_on, setup_in_calls,
                                        test_teardown),
        cmocka_unit_test_setup_teardown(with_exact_counters_each_64th_call_looks, setup_in_exact_calls,
                                        test_teardown),
        cmocka_unit_test(no_thread_takes_those_of_the_calls),
        TEST_FAKES(periodic_ones_list_the_largest_blocks),
        TEST_FAKES(checkpoints_list_the_largest_blocks),
        TEST_FAKES(reports_leave_no_snapshots_behind),
        TEST(a_thread_takes_them_in_real_time),
        TEST(another_interval_holds_within_a_second),
        cmocka_unit_test(the_hosts_clock_decides_when),
        TEST(starts_and_stops_on_many_threads),
#if !TEST_SANITIZED
        TEST(a_child_takes_its_own),
#endif
        cmocka_unit_test(an_allocator_that_fails_at_any_call),
        TEST(who_held_the_peak_is_known_by_tag),
        TEST(who_held_the_peak_of_a_small_ledger),
        TEST_EXACT(who_held_the_peak_with_flag_exact),
        TEST_SITES(who_held_the_peak_is_known_by_site),
        TEST(in_one_step_up_and_down),
        TEST(a_reset_forgets_who_held_it),
        TEST(a_peak_reset_forgets_who_held_it),
        TEST(after_a_peak_reset_the_new_peak_has_its_holders),
        TEST_SITES(a_peak_reset_costs_no_more_for_the_sites_of_other_devices),
        TEST(threads_that_grow_at_once),
        cmocka_unit_test(a_null_ledger_has_no_snapshots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
