/* The export for Prometheus: a file that is whole at every moment, fresh while it is exported, and
   the parent's after a fork. Without threads the clock is ours; two tests wait for the thread. */
#include "support.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "json.h"

#define SECOND ((uint64_t)1000000000)

static char folder[64];

static char *in_folder(const char *name) {
    static char paths[16][512];
    static unsigned next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}
static size_t files(void) {
    DIR *dir = opendir(folder);
    struct dirent *entry;
    size_t n = 0;
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL)
        n += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    closedir(dir);
    return n;
}

static int setup_flags(void **state, uint32_t flags) {
    strcpy(folder, "/tmp/memlord-export-XXXXXX");
    return mkdtemp(folder) && !test_open_fakes(state, flags) ? 0 : -1;
}
static int setup(void **state) { return setup_flags(state, MEMLORD_FLAG_NO_THREADS); }
static int setup_threads(void **state) { return setup_flags(state, 0); }
/* What the exports left beside their file would keep the folder from being removed. */
static int teardown(void **state) {
    int bad = test_teardown(state);
    (void)unlink(in_folder("a.prom"));
    (void)unlink(in_folder("b.prom"));
    if (rmdir(folder)) print_error("files are left in %s\n", folder);
    return bad;
}

/* Live bytes of cuda:0 in a file; UINT64_MAX: there is no file; UINT64_MAX - 1: none live yet. */
static uint64_t live_in(const char *path) {
    static const char family[] = "\nmemlord_live_bytes{device=\"cuda:0\"";
    char *text = file_text(path);
    const char *at = text ? strstr(text, family) : NULL;
    uint64_t v = !text ? UINT64_MAX : !at ? UINT64_MAX - 1 : strtoull(strstr(at, "} ") + 2, NULL, 10);
    free(text);
    return v;
}
static uint64_t metric_in(const char *text, const char *name) {
    const char *at = strstr(text, name);
    assert_non_null(at);
    return strtoull(strstr(at, "} ") + 2, NULL, 10);
}
static void poll_after(test_case *t, uint64_t ns) {
    t->now += ns;
    assert_ok(memlord_gc_poll(t->lord, all()));
}

/* -- when it is written -- */

static void it_is_written_at_the_start_and_when_it_is_due(void **state) {
    test_case *t = (test_case *)*state;
    const char *path = in_folder("a.prom");
    (void)grow(t, cuda(0), 100);
    assert_ok(memlord_export_start(t->lord, path, 2000));
    assert_int_equal(live_in(path), 100);
    (void)grow(t, cuda(0), 10);
    poll_after(t, 2 * SECOND - 1);
    assert_int_equal(live_in(path), 100);
    poll_after(t, 1);
    assert_int_equal(live_in(path), 110);
    (void)grow(t, cuda(0), 1);
    poll_after(t, 100 * SECOND); /* a process that was stopped catches up with one */
    assert_int_equal(live_in(path), 111);
    (void)grow(t, cuda(0), 1);
    poll_after(t, 2 * SECOND - 1);
    assert_int_equal(live_in(path), 111);
}

static void without_an_interval_it_is_every_fifteen_seconds(void **state) {
    test_case *t = (test_case *)*state;
    const char *path = in_folder("a.prom");
    assert_ok(memlord_export_start(t->lord, path, 0));
    (void)grow(t, cuda(0), 100);
    poll_after(t, 15 * SECOND - 1);
    assert_int_equal(live_in(path), UINT64_MAX - 1);
    poll_after(t, 1);
    assert_int_equal(live_in(path), 100);
}

/* With no poller, and no callback that would start one. */
static void it_samples_the_capacity(void **state) {
    test_case *t = (test_case *)*state;
    const char *path = in_folder("a.prom");
    char *text;
    t->source.total = 1000;
    t->source.used = 400;
    t->source.fail = 0;
    (void)grow(t, cuda(0), 100);
    assert_ok(memlord_export_start(t->lord, path, 2000));
    assert_int_equal(t->source.calls, 1);
    text = file_text(path);
    assert_int_equal(metric_in(text, "\nmemlord_capacity_bytes{device=\"cuda:0\""), 1000);
    assert_int_equal(metric_in(text, "\nmemlord_capacity_used_bytes{device=\"cuda:0\""), 400);
    free(text);
    t->source.used = 500;
    t->now += 2 * SECOND;
    assert_ok(memlord_export_stop(t->lord));
    text = file_text(path);
    assert_int_equal(metric_in(text, "\nmemlord_capacity_used_bytes{device=\"cuda:0\""), 500);
    free(text);
    assert_int_equal(t->source.calls, 2);
}

static void a_stop_writes_a_last_time(void **state) {
    test_case *t = (test_case *)*state;
    const char *path = in_folder("a.prom");
    assert_ok(memlord_export_stop(t->lord)); /* not started: nothing */
    assert_int_equal(files(), 0);
    assert_ok(memlord_export_start(t->lord, path, 2000));
    (void)grow(t, cuda(0), 100);
    assert_ok(memlord_export_stop(t->lord));
    assert_int_equal(live_in(path), 100);
    (void)grow(t, cuda(0), 1);
    poll_after(t, 100 * SECOND);
    assert_ok(memlord_export_stop(t->lord));
    assert_int_equal(live_in(path), 100);
}

static void a_destroy_writes_a_last_time(void **state) {
    test_heap heap;
    memlord_desc desc;
    memlord *lord;
    const char *path = in_folder("a.prom");
    (void)state;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, 0);
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_export_start(lord, path, 0));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 70, NULL));
    memlord_destroy(lord);
    assert_int_equal(live_in(path), 70);
    assert_int_equal(heap.blocks, 0);
}

static void a_later_start_replaces_the_first(void **state) {
    test_case *t = (test_case *)*state;
    const char *a = in_folder("a.prom"), *b = in_folder("b.prom");
    (void)grow(t, cuda(0), 100);
    assert_ok(memlord_export_start(t->lord, a, 2000));
    (void)grow(t, cuda(0), 10);
    assert_ok(memlord_export_start(t->lord, b, 5000));
    (void)grow(t, cuda(0), 1);
    poll_after(t, 5 * SECOND - 1);
    assert_int_equal(live_in(b), 110);
    poll_after(t, 1);
    assert_int_equal(live_in(b), 111);
    assert_int_equal(live_in(a), 100); /* the file stays as it was */
}

static void the_thread_writes_a_file_that_is_always_whole(void **state) {
    test_case *t = (test_case *)*state;
    char *path = in_folder("a.prom");
    const time_t until = time(NULL) + 60;
    unsigned changes = 0;
    uint64_t last = 0;
    TEST_POSIX();
    assert_ok(memlord_export_start(t->lord, path, 10));
    while (changes < 5 && time(NULL) < until) {
        char *text = file_text(path), *time_at;
        uint64_t live;
        assert_non_null(text);
        assert_memory_equal(text, "# HELP memlord_", 15);
        time_at = strstr(text, "\n# HELP memlord_info ");
        assert_true(time_at && strchr(time_at, '}') && text[strlen(text) - 1] == '\n');
        free(text);
        live = live_in(path);
        changes += live != last;
        last = live;
        (void)grow(t, cuda(0), 1);
    }
    assert_int_equal(changes, 5);
    assert_ok(memlord_export_stop(t->lord));
    assert_int_equal(live_in(path), memlord_allocated(t->lord, cuda(0)));
    assert_int_equal(files(), 1);
}

static char shared_path[512];
static void *start_and_stop(void *user) {
    memlord *lord = (memlord *)user;
    int i;
    for (i = 0; i < 10; i++) {
        assert_ok(memlord_export_start(lord, shared_path, 10));
        assert_ok(memlord_gc_poll(lord, all()));
        assert_ok(memlord_export_stop(lord));
    }
    return NULL;
}
static void starts_and_stops_on_many_threads(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread[4];
    int i;
    TEST_POSIX();
    strcpy(shared_path, in_folder("a.prom"));
    for (i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, start_and_stop, lord), 0);
    for (i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    assert_int_equal(files(), 1);
    assert_false(strstr(((test_case *)*state)->log.text, "[export]"));
}

/* -- when it cannot be written -- */

static void what_cannot_be_is_refused(void **state) {
    test_case *t = (test_case *)*state;
    char longer[5000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(memlord_export_start(t->lord, NULL, 0), MEMLORD_E_INVALID);
    assert_int_equal(memlord_export_start(t->lord, "", 0), MEMLORD_E_INVALID);
    assert_int_equal(memlord_export_start(t->lord, "-", 0), MEMLORD_E_INVALID);
    assert_int_equal(memlord_export_start(t->lord, longer, 0), MEMLORD_E_INVALID);
    assert_int_equal(memlord_export_start(t->lord, in_folder("a.prom"), 1), MEMLORD_E_INVALID);
    assert_int_equal(memlord_export_start(t->lord, in_folder("a.prom"), 9), MEMLORD_E_INVALID);
    assert_int_equal(memlord_export_start(t->lord, folder, 0), MEMLORD_E_IO);
    assert_int_equal(memlord_export_start(t->lord, in_folder("none/a.prom"), 0), MEMLORD_E_IO);
    assert_ok(memlord_export_start(NULL, in_folder("a.prom"), 0));
    assert_ok(memlord_export_stop(NULL));
    poll_after(t, 100 * SECOND);
    assert_int_equal(files(), 0);
    assert_int_equal(t->log.lines[MEMLORD_LOG_ERROR], 2); /* the two that are E_IO */
}

static void a_start_that_fails_changes_nothing(void **state) {
    test_case *t = (test_case *)*state;
    const char *path = in_folder("a.prom");
    assert_ok(memlord_export_start(t->lord, path, 2000));
    assert_int_equal(memlord_export_start(t->lord, in_folder("none/a.prom"), 50), MEMLORD_E_IO);
    (void)grow(t, cuda(0), 100);
    poll_after(t, 2 * SECOND);
    assert_int_equal(live_in(path), 100);
}

static void a_directory_that_vanishes_is_told_once_and_may_return(void **state) {
    test_case *t = (test_case *)*state;
    const char *path = in_folder("sub/a.prom");
    char *json;
    int i, round;
    assert_int_equal(mkdir(in_folder("sub"), 0700), 0);
    assert_ok(memlord_export_start(t->lord, path, 2000));
    for (round = 1; round <= 2; round++) {
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(in_folder("sub")), 0);
        for (i = 0; i < 3; i++) poll_after(t, 2 * SECOND);
        assert_int_equal(t->log.lines[MEMLORD_LOG_ERROR], round);
        assert_int_equal(mkdir(in_folder("sub"), 0700), 0);
        (void)grow(t, cuda(0), 100);
        poll_after(t, 2 * SECOND);
        assert_int_equal(live_in(path), 100 * round);
    }
    assert_non_null(strstr(t->log.text, "[export] no "));
    assert_non_null(strstr(t->log.text, "sub/a.prom: could not read or write there: there is "
                                        "no such directory\n"));
    json = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(json, "metadata.dropped.exports"), 6);
    free(json);
    json = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(json, ", all dropped_exports 6\n"));
    free(json);
    json = file_text(path);
    assert_non_null(strstr(json, "\nmemlord_dropped_exports_total{"));
    free(json);
    assert_ok(memlord_export_stop(t->lord));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(in_folder("sub")), 0);
}

static void an_allocator_that_fails_at_any_call(void **state) {
    const char *path = in_folder("a.prom");
    uint64_t n;
    int done = 0;
    (void)state;
    for (n = 1; !done; n++) {
        test_heap heap;
        memlord_desc desc;
        memlord *lord;
        memlord_result r;
        memset(&heap, 0, sizeof heap);
        desc = test_desc(&heap, MEMLORD_FLAG_NO_THREADS);
        assert_ok(memlord_create(&desc, &lord));
        heap.fail_at = heap.calls + n;
        r = memlord_export_start(lord, path, 0);
        done = !heap.failed;
        heap.fail_at = 0;
        assert_true(r == MEMLORD_OK || (r == MEMLORD_E_NOMEM && !done));
        memlord_destroy(lord);
        assert_int_equal(heap.blocks, 0);
        assert_int_equal(heap.bad_frees, 0);
        assert_int_equal(files(), r == MEMLORD_OK);
        (void)unlink(path);
    }
    assert_true(n > 2);
}

typedef struct stopper {
    memlord *lord;
    uint32_t seen;
    memlord_result result;
} stopper;
static void stop_it(void *user, int level, const char *text) {
    stopper *s = (stopper *)user;
    if (level != MEMLORD_LOG_ERROR || !strstr(text, "[export]")) return;
    s->result = memlord_export_stop(s->lord);
    __atomic_store_n(&s->seen, 1, __ATOMIC_RELEASE);
}
static void the_thread_cannot_stop_itself(void **state) {
    const struct timespec nap = {0, 5 * 1000 * 1000};
    const time_t until = time(NULL) + 60;
    stopper s = {test_lord(state), 0, MEMLORD_OK};
    memlord_logger logger;
    logger.fn = stop_it;
    logger.user = &s;
    assert_int_equal(mkdir(in_folder("sub"), 0700), 0);
    assert_ok(memlord_export_start(s.lord, in_folder("sub/a.prom"), 10));
    assert_ok(memlord_logger_set(s.lord, &logger));
    while (rmdir(in_folder("sub"))) (void)unlink(in_folder("sub/a.prom"));
    while (!__atomic_load_n(&s.seen, __ATOMIC_ACQUIRE) && time(NULL) < until) nanosleep(&nap, NULL);
    assert_ok(memlord_export_stop(s.lord));
    assert_ok(memlord_logger_set(s.lord, NULL));
    assert_int_equal(s.seen, 1);
    assert_int_equal(s.result, MEMLORD_E_STATE);
}

/* -- more than one process -- */

static void a_child_leaves_the_file_to_its_parent(void **state) {
    test_case *t = (test_case *)*state;
    const char *path = in_folder("a.prom"), *own = in_folder("b.prom");
    pid_t child;
    (void)grow(t, cuda(0), 100);
    assert_ok(memlord_export_start(t->lord, path, 2000));
    fflush(NULL);
    child = fork();
    if (!child) {
        t->now += 100 * SECOND;
        if (memlord_free(t->lord, cuda(0), t->key, NULL)) _exit(2);
        if (memlord_gc_poll(t->lord, all()) || memlord_export_stop(t->lord)) _exit(3);
        if (live_in(path) != 100) _exit(4);
        if (memlord_export_start(t->lord, own, 2000) || live_in(own)) _exit(5); /* its own may be */
        memlord_destroy(t->lord);
        _exit(live_in(path) == 100 ? 0 : 6);
    }
    assert_int_equal(child_status(child), 0);
    assert_int_equal(live_in(path), 100);
    (void)grow(t, cuda(0), 1);
    poll_after(t, 2 * SECOND);
    assert_int_equal(live_in(path), 101);
}

#if !TEST_SANITIZED /* no new threads in a child there */
static void nor_does_a_childs_thread_write_it(void **state) {
    test_case *t = (test_case *)*state;
    const char *path = in_folder("a.prom");
    pid_t child;
    if (threads_of_a_child() != 1) skip(); /* such an emulator starts no thread in a child */
    assert_ok(memlord_export_start(t->lord, path, 10));
    fflush(NULL);
    child = fork();
    if (!child) {
        if (memlord_alloc(t->lord, cpu(), 0x7000, 1, NULL)) _exit(2);
        _exit(threads_now() == 1 ? 0 : 3);
    }
    assert_int_equal(child_status(child), 0);
    assert_ok(memlord_export_stop(t->lord));
}
static void a_childs_own_export_has_a_thread(void **state) {
    test_case *t = (test_case *)*state;
    pid_t child;
    if (threads_of_a_child() != 1) skip();
    assert_ok(memlord_export_start(t->lord, in_folder("a.prom"), 10));
    fflush(NULL);
    child = fork();
    if (!child) {
        alarm(20);
        if (memlord_export_start(t->lord, in_folder("b.prom"), 10)) _exit(2);
        if (threads_now() != 2) _exit(3);
        _exit(memlord_export_stop(t->lord) ? 4 : 0);
    }
    assert_int_equal(child_status(child), 0);
    assert_ok(memlord_export_stop(t->lord));
}
#endif

static void the_process_id_may_be_in_the_name(void **state) {
    memlord *lord = test_lord(state);
    char name[64];
    snprintf(name, sizeof name, "%ld%%.prom", (long)getpid());
    assert_ok(memlord_export_start(lord, in_folder("%p%%.prom"), 0));
    assert_int_equal(live_in(in_folder(name)), UINT64_MAX - 1);
    assert_ok(memlord_export_stop(lord));
    assert_int_equal(unlink(in_folder(name)), 0);
}

/* Without labels the series of two processes would be the same. */
static void without_labels_every_sample_has_the_process_id(void **state) {
    test_case *t = (test_case *)*state;
    const char *path = in_folder("a.prom");
    char label[64], *text, *line;
    snprintf(label, sizeof label, "pid=\"%ld\"} ", (long)getpid());
    (void)grow(t, cuda(0), 100);
    assert_ok(memlord_export_start(t->lord, path, 2000));
    text = file_text(path);
    for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        assert_true(*line == '#' || strstr(line, label));
    free(text);
    assert_ok(memlord_labels_set(t->lord, "rank=3"));
    poll_after(t, 2 * SECOND);
    text = file_text(path);
    assert_non_null(strstr(text, "\nmemlord_live_bytes{device=\"cuda:0\",rank=\"3\"} 100\n"));
    line = strstr(text, ",pid="); /* that of memlord_info */
    assert_true(line && !strstr(line + 2, "pid="));
    free(text);
}

/* time() may lag behind the clock of the samples: by a tick, which a busy host holds up. */
static double wall(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static void the_time_of_the_samples_is_one(void **state) {
    memlord *lord = test_lord(state);
    const double now = wall();
    char *text;
    double v;
    assert_ok(memlord_labels_set(lord, "rank=0"));
    assert_ok(memlord_export_start(lord, in_folder("a.prom"), 0));
    text = file_text(in_folder("a.prom"));
    v = strtod(strstr(text, "\nmemlord_written_timestamp_seconds{rank=\"0\"} ") +
                   strlen("\nmemlord_written_timestamp_seconds{rank=\"0\"} "), NULL);
    assert_true(v >= now - 1 && v <= wall() + 1);
    free(text);
}

#define EXPORT(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define EXPORT_THREADS(name) cmocka_unit_test_setup_teardown(name, setup_threads, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        EXPORT(it_is_written_at_the_start_and_when_it_is_due),
        EXPORT(without_an_interval_it_is_every_fifteen_seconds),
        EXPORT(it_samples_the_capacity),
        EXPORT(a_stop_writes_a_last_time),
        EXPORT(a_destroy_writes_a_last_time),
        EXPORT(a_later_start_replaces_the_first),
        EXPORT_THREADS(the_thread_writes_a_file_that_is_always_whole),
        EXPORT_THREADS(starts_and_stops_on_many_threads),
        EXPORT(what_cannot_be_is_refused),
        EXPORT(a_start_that_fails_changes_nothing),
        EXPORT(a_directory_that_vanishes_is_told_once_and_may_return),
        EXPORT(an_allocator_that_fails_at_any_call),
        EXPORT_THREADS(the_thread_cannot_stop_itself),
        EXPORT(a_child_leaves_the_file_to_its_parent),
#if !TEST_SANITIZED
        EXPORT_THREADS(nor_does_a_childs_thread_write_it),
        EXPORT_THREADS(a_childs_own_export_has_a_thread),
#endif
        EXPORT(the_process_id_may_be_in_the_name),
        EXPORT(without_labels_every_sample_has_the_process_id),
        EXPORT(the_time_of_the_samples_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
