/* Saving at the end, or when a signal asks: a whole report under a name of its own, or none and
   a word in the log. */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "json.h"

static char folder[64];

static int open_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/memlord-saving-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static char *in_folder(const char *name) {
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* What lies in the folder, up to 64 names. */
typedef struct listing {
    size_t n;
    char name[64][256];
} listing;
static listing files(void) {
    listing l;
    DIR *dir = opendir(folder);
    struct dirent *entry;
    memset(&l, 0, sizeof l);
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.' && strlen(entry->d_name) < 3) continue;
        if (l.n < 64) snprintf(l.name[l.n], sizeof l.name[0], "%s", entry->d_name);
        l.n++;
    }
    closedir(dir);
    return l;
}
static void clear(void) {
    listing l = files();
    size_t i;
    for (i = 0; i < l.n && i < 64; i++)
        if (unlink(in_folder(l.name[i]))) (void)rmdir(in_folder(l.name[i]));
}
static int close_folder(void **state) {
    (void)state;
    clear();
    return rmdir(folder);
}
static int teardown(void **state) {
    int bad = test_teardown(state); /* it may save once more */
    clear();
    return bad;
}

/* memory_profile_YYYYMMDD_HHMMSS, then maybe _pid and _n, and the suffix. */
static int is_dated(const char *name, const char *suffix) {
    const char *digits = "memory_profile_dddddddd_dddddd";
    size_t i, n = strlen(digits), end = strlen(name) - strlen(suffix);
    if (strlen(name) < n + strlen(suffix) || strcmp(name + end, suffix)) return 0;
    for (i = 0; i < n; i++)
        if (i >= 15 && digits[i] == 'd' ? name[i] < '0' || name[i] > '9' : name[i] != digits[i])
            return 0;
    return name[n] == '.' || name[n] == '_';
}

static void assert_whole(const char *name, uint64_t bytes) {
    char *text = file_text(in_folder(name));
    assert_non_null(text);
    assert_true(json_valid(text));
    assert_int_equal(json_u64(text, "total.allocated"), bytes);
    free(text);
}
static void assert_one_whole(uint64_t bytes) {
    listing l = files();
    assert_int_equal(l.n, 1);
    assert_true(is_dated(l.name[0], ".json"));
    assert_whole(l.name[0], bytes);
}

static void open_block(memlord *lord, uint64_t key, uint64_t bytes) {
    assert_ok(memlord_alloc(lord, cuda(0), key, bytes, NULL));
}

/* -- at exit -- */

/* What a child leaves that runs fn and exits as a program does. */
static void run_child(void (*fn)(memlord *)) {
    int status = 0;
    pid_t child;
    fflush(NULL);
    child = fork();
    if (!child) {
        memlord *lord;
        if (memlord_create(NULL, &lord)) _exit(9);
        fn(lord);
        exit(0);
    }
    assert_true(waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void save_json(memlord *lord) {
    if (memlord_alloc(lord, cuda(0), 0x1000, 777, NULL)) _exit(2);
    if (memlord_save_at_exit(lord, MEMLORD_FORMAT_JSON, folder)) _exit(3);
    if (memlord_alloc(lord, cuda(0), 0x2000, 223, NULL)) _exit(4);
}
static void a_process_that_exits_saves(void **state) {
    (void)state;
    run_child(save_json);
    assert_one_whole(1000);
}

static void *destroy_it(void *user) {
    memlord_destroy((memlord *)user);
    return NULL;
}
/* Blocks enough that the report takes as long as the thread does to begin. */
static void save_while_destroyed(memlord *lord) {
    pthread_t thread;
    uint64_t i;
    for (i = 1; i < 2000; i++)
        if (memlord_alloc(lord, cuda(0), i << 12, 1, NULL)) _exit(2);
    if (memlord_save_at_exit(lord, MEMLORD_FORMAT_JSON, folder)) _exit(3);
    if (pthread_create(&thread, NULL, destroy_it, lord) || pthread_detach(thread)) _exit(4);
}
static void a_thread_may_destroy_what_is_being_saved_at_exit(void **state) {
    int i;
    (void)state;
    /* tsan sleeps for a second in an exit with threads */
    for (i = 0; i < (TEST_SANITIZED ? 5 : 50); i++) run_child(save_while_destroyed);
}

static void *destroy_in_a_child(void *user) {
    pid_t pid = fork();
    int status = -1;
    if (!pid) {
        alarm(20); /* a destroy that waits for the parent's thread waits for ever */
        memlord_destroy((memlord *)user);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || status) _exit(7);
    return NULL;
}
/* The logger hears of the report while the ledger is being saved. */
static void fork_when_saved(void *user, int level, const char *text) {
    pthread_t thread;
    (void)level;
    if (strncmp(text, "[save] ", 7)) return;
    if (pthread_create(&thread, NULL, destroy_in_a_child, *(memlord **)user)) _exit(5);
    if (pthread_join(thread, NULL)) _exit(6);
}
static void save_and_fork(memlord *lord) {
    static memlord *forked;
    memlord_logger logger = {fork_when_saved, &forked};
    forked = lord;
    save_json(lord);
    if (memlord_logger_set(lord, &logger)) _exit(8);
}
static void a_child_forked_while_a_ledger_is_saved_at_exit_may_destroy_it(void **state) {
    (void)state;
    run_child(save_and_fork);
    assert_one_whole(1000);
}

static void save_text_last(memlord *lord) {
    if (memlord_save_at_exit(lord, MEMLORD_FORMAT_JSON, "/tmp")) _exit(2);
    if (memlord_save_at_exit(lord, MEMLORD_FORMAT_TEXT, folder)) _exit(3);
}
static void the_last_call_counts(void **state) {
    listing l;
    (void)state;
    run_child(save_text_last);
    l = files();
    assert_int_equal(l.n, 1);
    assert_true(is_dated(l.name[0], ".txt"));
}

static void save_two_ledgers(memlord *lord) {
    memlord *other;
    save_json(lord);
    if (memlord_create(NULL, &other)) _exit(5);
    save_json(other);
}
static void every_ledger_saves_its_own(void **state) {
    listing l;
    (void)state;
    run_child(save_two_ledgers);
    l = files();
    assert_int_equal(l.n, 2);
    assert_whole(l.name[0], 1000);
    assert_whole(l.name[1], 1000);
}

static void destroy_first(memlord *lord) {
    save_json(lord);
    memlord_destroy(lord);
}
static void a_ledger_destroyed_before_the_exit_saves_once(void **state) {
    (void)state;
    run_child(destroy_first);
    assert_one_whole(1000);
}

static void close_them(memlord *lord) {
    save_json(lord);
    close(0);
    close(1);
    close(2);
}
static void with_files_0_to_2_closed(void **state) {
    (void)state;
    run_child(close_them);
    assert_one_whole(1000);
}

/* No file is written by the number of a standard stream. */
static void save_without_descriptors(memlord *lord) {
    struct rlimit before, none;
    if (memlord_alloc(lord, cuda(0), 0x1000, 5, NULL)) _exit(2);
    close(0);
    if (getrlimit(RLIMIT_NOFILE, &before)) _exit(3);
    none = before;
    none.rlim_cur = 3;
    if (setrlimit(RLIMIT_NOFILE, &none)) _exit(4);
    if (memlord_save(lord, MEMLORD_FORMAT_JSON, in_folder("x.json")) != MEMLORD_E_IO) _exit(5);
    if (setrlimit(RLIMIT_NOFILE, &before)) _exit(6);
}
static void with_file_0_closed_and_no_other_to_be_had_there_is_no_file(void **state) {
    (void)state;
    run_child(save_without_descriptors);
    assert_int_equal(files().n, 0);
}

static void save_where_nothing_is(memlord *lord) {
    if (mkdir(in_folder("gone"), 0700)) _exit(1);
    if (memlord_save_at_exit(lord, MEMLORD_FORMAT_JSON, in_folder("gone"))) _exit(2);
    if (rmdir(in_folder("gone"))) _exit(3);
}
static void without_the_directory_the_process_exits_all_the_same(void **state) {
    (void)state;
    run_child(save_where_nothing_is);
    assert_int_equal(files().n, 0);
}

static void *allocate_for_ever(void *user) {
    uint64_t i;
    for (i = 1;; i++) {
        (void)memlord_alloc((memlord *)user, cuda(1), i % 1000 * 64 + 64, 64, NULL);
        (void)memlord_free((memlord *)user, cuda(1), i % 1000 * 64 + 64, NULL);
    }
    return NULL;
}
static void exit_with_threads_running(memlord *lord) {
    pthread_t thread;
    if (memlord_save_at_exit(lord, MEMLORD_FORMAT_JSON, folder)) _exit(3);
    if (memlord_snapshots_start(lord, 10)) _exit(4);
    if (pthread_create(&thread, NULL, allocate_for_ever, lord)) _exit(5);
}
static void an_exit_while_threads_run_saves_a_whole_report(void **state) {
    listing l;
    char *text;
    (void)state;
    run_child(exit_with_threads_running);
    l = files();
    assert_int_equal(l.n, 1);
    text = file_text(in_folder(l.name[0]));
    assert_true(json_valid(text));
    free(text);
}

/* -- at destroy -- */

static void a_destroy_saves_and_says_so(void **state) {
    static test_log log;
    memlord_desc desc;
    memlord *lord;
    (void)state;
    pthread_mutex_init(&log.lock, NULL);
    memset(&desc, 0, sizeof desc);
    desc.logger.fn = test_log_line;
    desc.logger.user = &log;
    desc.flags = MEMLORD_FLAG_NO_ENV;
    desc.output_dir = folder;
    assert_ok(memlord_create(&desc, &lord));
    open_block(lord, 0x1000, 5);
    assert_ok(memlord_save_at_exit(lord, MEMLORD_FORMAT_JSON, NULL)); /* output_dir */
    assert_int_equal(files().n, 0);
    memlord_destroy(lord);
    assert_one_whole(5);
    assert_non_null(strstr(log.text, "memory_profile_"));
    assert_int_equal(log.lines[MEMLORD_LOG_ERROR], 0);
}

static void a_directory_that_is_missing_is_an_error_in_the_log(void **state) {
    test_case *t = (test_case *)*state;
    assert_int_equal(mkdir(in_folder("missing"), 0700), 0);
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, in_folder("missing")));
    assert_int_equal(rmdir(in_folder("missing")), 0);
    memlord_request_save(t->lord);
    open_block(t->lord, 0x1000, 5);
    assert_int_equal(t->log.lines[MEMLORD_LOG_ERROR], 1);
    assert_non_null(strstr(t->log.text, "missing"));
    assert_int_equal(files().n, 0);
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
}

static void a_directory_that_cannot_be_written_is_refused(void **state) {
    test_case *t = (test_case *)*state;
    static const char *const none[] = {"missing", "plain"};
    int i;
    open_block(t->lord, 0x1000, 5);
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    assert_ok(memlord_save(t->lord, MEMLORD_FORMAT_JSON, in_folder("plain")));
    for (i = 0; i < 2; i++)
        assert_int_equal(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_TEXT, in_folder(none[i])),
                         MEMLORD_E_IO);
    assert_int_equal(t->log.lines[MEMLORD_LOG_ERROR], 2);
    assert_non_null(strstr(t->log.text, ": there is no such directory"));
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_int_equal(memlord_save(t->lord, MEMLORD_FORMAT_TEXT, in_folder("fifo")), MEMLORD_E_IO);
    assert_non_null(
        strstr(t->log.text, "/fifo: could not read or write there: it is no regular file\n"));
    assert_int_equal(unlink(in_folder("fifo")), 0);
    assert_int_equal(unlink(in_folder("plain")), 0);
    memlord_destroy(t->lord);
    t->lord = NULL;
    assert_one_whole(5); /* of the call before, as JSON */
}

static void a_directory_of_too_long_a_name_is_an_error_in_the_log(void **state) {
    static test_log log;
    char path[4000];
    memlord_desc desc;
    memlord *lord;
    (void)state;
    pthread_mutex_init(&log.lock, NULL);
    memset(path, '/', sizeof path);
    memcpy(path, folder, strlen(folder));
    path[sizeof path - 30] = 0; /* fits, but for the name of the file */
    memset(&desc, 0, sizeof desc);
    desc.logger.fn = test_log_line;
    desc.logger.user = &log;
    desc.flags = MEMLORD_FLAG_NO_ENV;
    desc.output_dir = path;
    assert_ok(memlord_create(&desc, &lord));
    memlord_request_save(lord);
    assert_ok(memlord_gc_poll(lord, all()));
    assert_int_equal(log.lines[MEMLORD_LOG_ERROR], 1);
    assert_non_null(strstr(log.text, "[save] no report in /tmp/"));
    assert_int_equal(files().n, 0);
    memlord_destroy(lord);
}

static void never_over_a_file_that_is_there(void **state) {
    test_case *t = (test_case *)*state;
    listing l;
    size_t i;
    uint64_t sum = 0;
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    for (i = 0; i < 20; i++) {
        memlord_request_save(t->lord);
        open_block(t->lord, 0x1000 + i * 64, 1);
    }
    l = files();
    assert_int_equal(l.n, 20);
    for (i = 0; i < l.n; i++) {
        char *text = file_text(in_folder(l.name[i]));
        assert_true(is_dated(l.name[i], ".json"));
        assert_true(json_valid(text));
        sum += json_u64(text, "total.allocated");
        free(text);
    }
    assert_int_equal(sum, 20 * 21 / 2); /* each its own */
}

/* In each second the names are one without a number, one with the process id, and then _2, _3... */
static void names_of_one_second_count_on(void **state) {
    test_case *t = (test_case *)*state;
    char second[32] = "", expected[96];
    unsigned i, n = 0, left = 12;
    listing l;
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    for (i = 0; i < left; i++) {
        memlord_request_save(t->lord);
        open_block(t->lord, 0x1000 + i * 64, 1);
    }
    l = files();
    assert_int_equal(l.n, left);
    for (i = 0; i < l.n; i++) { /* its second, if it is the first of it */
        if (l.name[i][30] != '.') continue;
        snprintf(second, sizeof second, "%.30s", l.name[i]);
        for (n = 0; left; n++, left--) {
            unsigned k;
            if (n == 0)
                snprintf(expected, sizeof expected, "%s.json", second);
            else if (n == 1)
                snprintf(expected, sizeof expected, "%s_%d.json", second, (int)getpid());
            else
                snprintf(expected, sizeof expected, "%s_%d_%u.json", second, (int)getpid(), n);
            for (k = 0; k < l.n && strcmp(l.name[k], expected); k++) continue;
            if (k == l.n) break;
        }
    }
    assert_int_equal(left, 0);
}

/* Makes n files with the names of those that a save writes first. */
static void *save_when_cancelled(void *user) {
    memlord *lord = *(memlord **)user;
    (void)pthread_cancel(pthread_self());
    if (memlord_save(lord, MEMLORD_FORMAT_JSON, in_folder("a.json")) == MEMLORD_OK)
        *(memlord **)user = NULL;
    pthread_testcancel();
    return NULL;
}
static void a_cancelled_thread_ends_after_its_save(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    void *ended;
    open_block(lord, 0x1000, 5);
    assert_int_equal(pthread_create(&thread, NULL, save_when_cancelled, &lord), 0);
    assert_int_equal(pthread_join(thread, &ended), 0);
    assert_ptr_equal(ended, PTHREAD_CANCELED);
    assert_null(lord);
    assert_whole("a.json", 5);
}

static void take_names(int n) {
    char name[64];
    int i;
    for (i = 0; i < n; i++) {
        FILE *file;
        snprintf(name, sizeof name, ".memlord-%d-%d.tmp", (int)getpid(), i);
        file = fopen(in_folder(name), "w");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
    }
}
static void a_thousand_names_are_tried_for_the_file_before_it_has_its_own(void **state) {
    memlord *lord = test_lord(state);
    char name[64];
    open_block(lord, 0x1000, 5);
    take_names(999);
    assert_ok(memlord_save(lord, MEMLORD_FORMAT_JSON, in_folder("a.json")));
    assert_whole("a.json", 5);
    assert_int_equal(files().n, 1000);
    take_names(1000);
    assert_int_equal(memlord_save(lord, MEMLORD_FORMAT_JSON, in_folder("b.json")), MEMLORD_E_IO);
    assert_int_equal(files().n, 1001);
    while (files().n) clear();
    snprintf(name, sizeof name, ".memlord-%d-0.tmp", (int)getpid());
    assert_int_equal(access(in_folder(name), F_OK), -1);
}

static void a_directory_of_3900_bytes_is_the_longest(void **state) {
    memlord *lord = test_lord(state);
    char path[4000];
    memset(path, '/', sizeof path);
    memcpy(path, folder, strlen(folder));
    path[3901] = 0;
    assert_int_equal(memlord_save_at_exit(lord, MEMLORD_FORMAT_JSON, path), MEMLORD_E_INVALID);
    path[3900] = 0;
    assert_ok(memlord_save_at_exit(lord, MEMLORD_FORMAT_JSON, path));
    memlord_request_save(lord);
    open_block(lord, 0x1000, 5);
    assert_one_whole(5);
}

static void a_path_of_3999_bytes_is_the_longest(void **state) {
    test_case *t = (test_case *)*state;
    char path[5000];
    memset(path, '/', sizeof path);
    memcpy(path, folder, strlen(folder));
    open_block(t->lord, 0x1000, 5);
    strcpy(path + 4000 - 6, "a.json");
    assert_int_equal(strlen(path), 4000);
    assert_int_equal(memlord_save(t->lord, MEMLORD_FORMAT_JSON, path), MEMLORD_E_INVALID);
    assert_string_equal(t->log.text, "[save] path is too long\n");
    strcpy(path + 3999 - 6, "a.json");
    assert_ok(memlord_save(t->lord, MEMLORD_FORMAT_JSON, path));
    assert_whole("a.json", 5);
}

static void percent_p_is_the_process_and_other_percents_stay(void **state) {
    memlord *lord = test_lord(state);
    char name[64];
    snprintf(name, sizeof name, "%d-%%p-%%x-%%.txt", (int)getpid());
    assert_ok(memlord_save(lord, MEMLORD_FORMAT_TEXT, in_folder("%p-%%p-%x-%.txt")));
    assert_int_equal(files().n, 1);
    assert_string_equal(files().name[0], name);
}

static void the_end_of_a_name_tells_its_format(void **state) {
    static const struct {
        const char *path;
        memlord_format format;
    } known[] = {{"a.txt", MEMLORD_FORMAT_TEXT},          {"a.json", MEMLORD_FORMAT_JSON},
                 {"a.html", MEMLORD_FORMAT_HTML},         {"a.trace.json", MEMLORD_FORMAT_TRACE},
                 {"/b/a.prom", MEMLORD_FORMAT_PROMETHEUS}, {"a.b.pb", MEMLORD_FORMAT_PPROF},
                 {"a.heaptrack", MEMLORD_FORMAT_HEAPTRACK}, {"a.folded", MEMLORD_FORMAT_FOLDED},
                 {"a.peak.folded", MEMLORD_FORMAT_FOLDED_PEAK},
                 {"a.allocated.folded", MEMLORD_FORMAT_FOLDED_ALLOCATED},
                 {"a.timeline.csv", MEMLORD_FORMAT_TIMELINE},
                 {"a.live.folded", MEMLORD_FORMAT_FOLDED},
                 {"a.pickle", MEMLORD_FORMAT_MEMORY_VIZ}, {"a.csv", MEMLORD_FORMAT_CSV},
                 {".csv", MEMLORD_FORMAT_CSV},            {"trace.json", MEMLORD_FORMAT_JSON},
                 {"a.xtrace.json", MEMLORD_FORMAT_JSON},  {"csv", MEMLORD_FORMAT_TEXT},
                 {"acsv", MEMLORD_FORMAT_TEXT},           {"a.csv.gz", MEMLORD_FORMAT_TEXT},
                 {"a.CSV", MEMLORD_FORMAT_TEXT},          {"", MEMLORD_FORMAT_TEXT},
                 {"-", MEMLORD_FORMAT_TEXT},              {NULL, MEMLORD_FORMAT_TEXT}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(memlord_format_for(known[i].path), known[i].format);
}

static void links_and_the_like_under_the_name_stay(void **state) {
    test_case *t = (test_case *)*state;
    listing l;
    char name[64];
    time_t now = time(NULL);
    int i, there = 0;
    for (i = 0; i < 5; i++) { /* the seconds to come */
        time_t second = now + i;
        struct tm tm;
        gmtime_r(&second, &tm);
        strftime(name, sizeof name, "memory_profile_%Y%m%d_%H%M%S.json", &tm);
        if (i % 3 == 0) assert_int_equal(symlink("/nonexistent/x", in_folder(name)), 0);
        if (i % 3 == 1) assert_int_equal(mkfifo(in_folder(name), 0600), 0);
        if (i % 3 == 2) assert_int_equal(mkdir(in_folder(name), 0700), 0);
    }
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    memlord_request_save(t->lord);
    open_block(t->lord, 0x1000, 9);
    l = files();
    assert_int_equal(l.n, 6);
    for (i = 0; i < 6; i++) {
        struct stat st;
        assert_int_equal(lstat(in_folder(l.name[i]), &st), 0);
        if (!S_ISREG(st.st_mode)) continue;
        there++;
        assert_whole(l.name[i], 9);
    }
    assert_int_equal(there, 1);
}

static void what_cannot_be_is_refused(void **state) {
    memlord *lord = test_lord(state);
    char path[8000];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = 0;
    assert_int_equal(memlord_save_at_exit(lord, MEMLORD_FORMAT_JSON, path), MEMLORD_E_INVALID);
    assert_int_equal(memlord_save_at_exit(lord, MEMLORD_FORMAT_COUNT, NULL),
                     MEMLORD_E_UNSUPPORTED);
    assert_ok(memlord_save_at_exit(NULL, MEMLORD_FORMAT_COUNT, NULL));
    memlord_request_save(NULL);
} /* and nothing is saved at destroy */

static void without_memory_the_log_says_so(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    open_block(t->lord, 0x1000, 9);
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    memlord_request_save(t->lord);
    assert_ok(memlord_free(t->lord, cuda(0), 0x1000, NULL));
    t->heap.fail_at = 0;
    if (files().n == 0) assert_int_equal(t->log.lines[MEMLORD_LOG_ERROR], 1);
    clear();
}

static void a_full_disk_leaves_nothing(void **state) {
    test_case *t = (test_case *)*state;
    struct rlimit old, small;
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    memlord_request_save(t->lord);
    open_block(t->lord, 0x1000, 9);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(files().n, 0);
    assert_int_equal(t->log.lines[MEMLORD_LOG_ERROR], 1);
}

/* -- when a signal asks -- */

static memlord *signalled;
static void on_signal(int number) {
    int before = errno;
    (void)number;
    memlord_request_save(signalled);
    errno = before;
}
static void install(memlord *lord) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    signalled = lord;
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
}

static void a_handler_asks_and_the_next_call_serves(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    install(t->lord);
    open_block(t->lord, 0x1000, 9);
    raise(SIGUSR1);
    raise(SIGUSR1);
    assert_int_equal(files().n, 0);
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x2000, 1, NULL));
    assert_one_whole(10);
    assert_ok(memlord_free(t->lord, cuda(0), 0x2000, NULL));
    assert_int_equal(files().n, 1); /* once */
}

/* The only file tells the capacity of the cpu, which is the only one known. */
static void assert_has_the_cpus_capacity(void) {
    listing l = files();
    char *text;
    assert_int_equal(l.n, 1);
    text = file_text(in_folder(l.name[0]));
    assert_non_null(text);
    assert_true(json_is(text, "capacity[0].device", "cpu"));
    assert_in_range(json_u64(text, "capacity[0].total"), 1 << 20, (uint64_t)1 << 60);
    assert_in_range(json_u64(text, "capacity[0].used"), 1 << 20, (uint64_t)1 << 60);
    assert_int_equal(json_u64(text, "capacity[1].total"), UINT64_MAX);
    free(text);
    clear();
}
static void a_save_samples_the_capacity(void **state) {
    test_case *t = (test_case *)*state;
    assert_ok(memlord_alloc(t->lord, cpu(), 0x1000, 9, NULL));
    assert_ok(memlord_save(t->lord, MEMLORD_FORMAT_JSON, in_folder("a.json")));
    assert_has_the_cpus_capacity();
}
static void a_write_asks_the_sources_of_the_host(void **state) {
    test_case *t = (test_case *)*state;
    char *text;
    t->source.total = 1000;
    t->source.used = 77;
    t->source.fail = 0;
    open_block(t->lord, 0x1000, 9);
    text = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(t->source.calls, 1);
    assert_int_equal(json_u64(text, "capacity[0].total"), 1000);
    assert_int_equal(json_u64(text, "capacity[0].used"), 77);
    free(text);
}
/* While snapshots are taken a report has one more, of the moment, which is not kept. */
static uint64_t snapshots_in_a_report(memlord *lord) {
    char *text = report_of(lord, MEMLORD_FORMAT_JSON);
    uint64_t n = json_u64(text, "summary.num_snapshots");
    free(text);
    return n;
}
static void a_report_has_a_snapshot_of_the_moment(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t kept;
    open_block(t->lord, 0x1000, 9);
    assert_int_equal(snapshots_in_a_report(t->lord), 0);
    assert_ok(memlord_checkpoint(t->lord, "one"));
    assert_int_equal(snapshots_in_a_report(t->lord), 1);
    assert_ok(memlord_snapshots_start(t->lord, 1000));
    kept = snapshots_in_a_report(t->lord) - 1;
    assert_int_equal(kept, 2); /* the checkpoint, and that of the start */
    assert_int_equal(snapshots_in_a_report(t->lord), kept + 1);
    t->now += 1000000000u;
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(snapshots_in_a_report(t->lord), kept + 2);
}
/* It may come in a call of the host's, under its locks, or when its objects are gone. */
static void a_save_that_nobody_calls_asks_no_source_of_the_hosts(void **state) {
    test_case *t = (test_case *)*state;
    t->source.total = 1000;
    t->source.fail = 0;
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    open_block(t->lord, 0x1000, 9);
    memlord_request_save(t->lord);
    assert_ok(memlord_alloc(t->lord, cpu(), 0x1000, 9, NULL));
    assert_has_the_cpus_capacity();
    assert_int_equal(t->source.calls, 0);
    assert_ok(memlord_save(t->lord, MEMLORD_FORMAT_JSON, in_folder("a.json")));
    assert_int_equal(t->source.calls, 1);
}

static void a_destroy_serves_what_nothing_did(void **state) {
    memlord_desc desc;
    memlord *lord;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.output_dir = folder;
    desc.flags = MEMLORD_FLAG_NO_ENV | MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_DEFER;
    assert_ok(memlord_create(&desc, &lord));
    open_block(lord, 0x1000, 42);
    memlord_request_save(lord);
    assert_int_equal(files().n, 0);
    memlord_destroy(lord);
    assert_one_whole(42);
    clear();
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_save_at_exit(lord, MEMLORD_FORMAT_JSON, folder));
    memlord_request_save(lord);
    memlord_destroy(lord); /* both at once */
    assert_one_whole(0);
}

static void ask_at_the_end(memlord *lord) {
    memlord_desc desc;
    memlord *other;
    memset(&desc, 0, sizeof desc);
    desc.output_dir = folder;
    if (memlord_create(&desc, &other)) _exit(2);
    if (memlord_alloc(other, cuda(0), 0x1000, 777, NULL)) _exit(3);
    if (memlord_save_at_exit(lord, MEMLORD_FORMAT_TEXT, folder)) _exit(4);
    memlord_request_save(lord);
    memlord_request_save(other);
}
static void an_exit_serves_what_nothing_did(void **state) {
    listing l;
    (void)state;
    run_child(ask_at_the_end);
    l = files();
    assert_int_equal(l.n, 2); /* one each */
    assert_whole(l.name[is_dated(l.name[0], ".json") ? 0 : 1], 777);
}

/* Every call that records something: those that count no bytes. */
static void served_by_saying(memlord *lord, int how) {
    static const memlord_scope_site place = {"planted", {"a.c", "f", 1}};
    memlord_account account;
    memlord_ticket ticket;
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    meta.name = "w";
    switch (how) {
    case 13: assert_ok(memlord_block_describe(lord, cpu(), 0x4000, &meta)); break;
    case 14: assert_ok(memlord_block_retag(lord, cpu(), 0x4000, "tag")); break;
    case 15: assert_ok(memlord_part_add(lord, cpu(), 0x4000, 0, 5, &meta)); break;
    case 16: assert_ok(memlord_part_remove(lord, cpu(), 0x4000, 0)); break;
    case 17: (void)memlord_mark(lord); break;
    case 18: memlord_reset(lord); break;
    case 19: assert_ok(memlord_expect(lord, cpu(), "tag", 5)); break;
    case 20:
        assert_ok(memlord_account_open(lord, cpu(), "a", 0, &account));
        assert_ok(memlord_account_charge(lord, account, 5));
        break;
    case 21: assert_ok(memlord_reserve(lord, cpu(), 5, &ticket)); break;
    case 22: assert_ok(memlord_pool_set(lord, cuda(0), 5, 5)); break;
    case 23: assert_ok(memlord_scope_enter(lord, &place)); break;
    case 24: assert_ok(memlord_scope_begin(lord, "s")); break;
    default: assert_ok(memlord_scope_end(lord));
    }
}
static void served_by(memlord *lord, int how) {
    memlord_realloc_token token;
    memlord_block block;
    block.device = cuda(0);
    block.storage = 0x9000;
    block.bytes = 0;
    switch (how) {
    case 0: assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 0, NULL)); break;
    case 1: assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL)); break;
    case 2: assert_ok(memlord_track(lord, cuda(0), 0x2000, 0, NULL)); break;
    case 3: assert_ok(memlord_release(lord, cuda(0), 0x2000, NULL)); break;
    case 4: assert_ok(memlord_arena_add(lord, cuda(0), 0, NULL)); break;
    case 5: assert_ok(memlord_alloc_n(lord, &block, 1, NULL)); break;
    case 6: assert_ok(memlord_free_n(lord, &block, 1, NULL)); break;
    case 7: assert_ok(memlord_gc_poll(lord, all())); break;
    case 8: (void)memlord_retire(lord, all()); break;
    case 9: assert_ok(memlord_checkpoint(lord, "c")); break;
    case 10:
        assert_ok(memlord_realloc_begin(lord, cuda(0), 0, &token));
        assert_ok(memlord_realloc_end(lord, &token, 0x3000, 0, NULL));
        break;
    case 11: assert_ok(memlord_realloc(lord, cuda(0), 0x3000, 0x4000, 0, NULL)); break;
    case 12: assert_ok(memlord_move(lord, cuda(0), 0x4000, cpu(), 0x4000, 9, NULL, NULL)); break;
    default: served_by_saying(lord, how);
    }
}
#define WAYS 26
static void every_call_that_records_serves(void **state) {
    test_case *t = (test_case *)*state;
    int how;
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    for (how = 0; how < WAYS; how++) {
        memlord_request_save(t->lord);
        served_by(t->lord, how);
        if (files().n != 1) fail_msg("call %d: %u files", how, (unsigned)files().n);
        clear();
    }
}

static void with_defer_safe_points_alone_serve(void **state) {
    test_case *t = (test_case *)*state;
    int how;
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    memlord_request_save(t->lord);
    for (how = 0; how < WAYS; how++)
        if (how != 7 && how != 8) served_by(t->lord, how);
    assert_int_equal(files().n, 0);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_int_equal(files().n, 1);
    clear();
    memlord_request_save(t->lord);
    (void)memlord_retire(t->lord, all());
    assert_int_equal(files().n, 1);
}

static void a_poller_serves_a_host_that_is_idle(void **state) {
    test_case *t = (test_case *)*state;
    time_t until = time(NULL) + 60;
    struct timespec nap = {0, 5 * 1000 * 1000};
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    test_capacity(t, 1000000, 0);
    assert_ok(memlord_poller_start(t->lord, 10));
    open_block(t->lord, 0x1000, 9);
    memlord_request_save(t->lord);
    while (files().n == 0 && time(NULL) < until) nanosleep(&nap, NULL);
    memlord_poller_stop(t->lord);
    assert_one_whole(9);
}
static int setup_threads(void **state) { return test_open_fakes(state, 0); }

static void the_thread_of_snapshots_serves_too(void **state) {
    test_case *t = (test_case *)*state;
    time_t until = time(NULL) + 60;
    struct timespec nap = {0, 5 * 1000 * 1000};
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    assert_ok(memlord_snapshots_start(t->lord, 10));
    memlord_request_save(t->lord);
    while (files().n == 0 && time(NULL) < until) nanosleep(&nap, NULL);
    memlord_snapshots_stop(t->lord);
    assert_one_whole(0);
}

static void without_a_format_it_is_json_in_output_dir(void **state) {
    memlord_desc desc;
    memlord *lord;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.output_dir = folder;
    desc.flags = MEMLORD_FLAG_NO_ENV | MEMLORD_FLAG_NO_THREADS;
    assert_ok(memlord_create(&desc, &lord));
    memlord_request_save(lord);
    open_block(lord, 0x1000, 42);
    memlord_destroy(lord);
    assert_one_whole(42);
}

typedef struct busy {
    memlord *lord;
    uint32_t stop;
    uint64_t from;
} busy;
static void *keep_busy(void *user) {
    busy *b = (busy *)user;
    uint64_t i;
    for (i = 0; !__atomic_load_n(&b->stop, __ATOMIC_RELAXED); i++) {
        uint64_t key = b->from + i % 100 * 64;
        (void)memlord_alloc(b->lord, cuda(0), key, 64, NULL);
        (void)memlord_free(b->lord, cuda(0), key, NULL);
    }
    return NULL;
}
static void signals_in_the_middle_of_calls(void **state) {
    test_case *t = (test_case *)*state;
    pthread_t thread[2];
    busy b[2];
    listing l;
    size_t i;
    struct timespec nap = {0, 3 * 1000 * 1000};
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    install(t->lord);
    alarm(60); /* a deadlock is a failure too */
    for (i = 0; i < 2; i++) {
        b[i].lord = t->lord;
        b[i].stop = 0;
        b[i].from = (uint64_t)(i + 1) << 32;
        assert_int_equal(pthread_create(&thread[i], NULL, keep_busy, &b[i]), 0);
    }
    for (i = 0; i < 20; i++) {
        pthread_kill(thread[i % 2], SIGUSR1);
        nanosleep(&nap, NULL);
    }
    for (i = 0; i < 2; i++) {
        __atomic_store_n(&b[i].stop, 1, __ATOMIC_RELAXED);
        pthread_join(thread[i], NULL);
    }
    assert_ok(memlord_gc_poll(t->lord, all()));
    alarm(0);
    l = files();
    assert_true(l.n >= 1 && l.n <= 20);
    for (i = 0; i < l.n; i++) {
        char *text = file_text(in_folder(l.name[i]));
        assert_true(is_dated(l.name[i], ".json"));
        assert_true(json_valid(text));
        free(text);
    }
}

/* -- a writer that fails at any byte, with everything in the report -- */

static void fill_everything(test_case *t) {
    memlord *lord = t->lord;
    memlord_meta meta;
    uint64_t i;
    memset(&meta, 0, sizeof meta);
    meta.name = "tensor";
    assert_ok(memlord_events_start(lord, 64));
    assert_ok(memlord_snapshots_start(lord, 0));
    assert_ok(memlord_tag_begin(lord, "kv"));
    for (i = 0; i < 10; i++) {
        assert_ok(memlord_scope_begin(lord, "step"));
        assert_ok(memlord_scope_begin(lord, "layer"));
        assert_ok(memlord_scope_shapes_set(lord, "q[1]"));
        assert_ok(memlord_alloc(lord, cuda((int)(i % 2)), 0x10000 + i * 0x1000, 100, NULL));
        assert_ok(memlord_part_add(lord, cuda(0), 0x10000 + i * 0x1000, i, 10, &meta));
        assert_ok(memlord_scope_end(lord));
        assert_ok(memlord_scope_end(lord));
    }
    assert_ok(memlord_tag_end(lord));
    (void)memlord_mark(lord);
    assert_ok(memlord_alloc(lord, cuda(0), 0x50000, 100, NULL));
    assert_ok(memlord_move(lord, cuda(0), 0x50000, cpu(), 0x50000, 100, NULL, NULL));
    assert_ok(memlord_checkpoint(lord, "filled"));
}

typedef struct sink {
    uint64_t left, got;
    int failed, after;
} sink;
static int fail_at_byte(void *user, const void *data, size_t size) {
    sink *s = (sink *)user;
    (void)data;
    if (s->failed) s->after++; /* not called again */
    s->got += size;
    if (size > s->left) return s->failed = 1;
    s->left -= size;
    return 0;
}
static void a_writer_may_fail_at_any_byte(void **state) {
    TEST_ONE_THREAD();
    test_case *t = (test_case *)*state;
    int f;
    fill_everything(t);
    memlord_snapshots_stop(t->lord);
    for (f = 0; f < MEMLORD_FORMAT_COUNT; f++) {
        uint64_t n, step;
        sink s;
        memset(&s, 0, sizeof s);
        s.left = UINT64_MAX;
        if (memlord_write(t->lord, (memlord_format)f, fail_at_byte, &s)) continue;
        step = s.got / (TEST_SANITIZED ? 40 : 150) + 1;
        for (n = 0;; n += step) { /* until it does not fail */
            memlord_result r;
            memset(&s, 0, sizeof s);
            s.left = n;
            r = memlord_write(t->lord, (memlord_format)f, fail_at_byte, &s);
            assert_int_equal(s.after, 0);
            assert_int_equal(r, s.failed ? MEMLORD_E_IO : MEMLORD_OK);
            if (!s.failed) break;
        }
    }
}

/* -- calls of the system that fail -- */

static struct {
    int rename, atexit;
} refuse;
int rename(const char *from, const char *to) {
    if (!refuse.rename) return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    errno = EACCES;
    return -1;
}
int link(const char *from, const char *to) {
    if (!refuse.rename) return (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
    errno = EPERM;
    return -1;
}
#if !defined(TEST_STATIC) /* a static libc has both functions in one file */
int __cxa_atexit(void (*fn)(void *), void *user, void *library);
static void (*last_handler)(void);
static void run_last_handler(void *user) {
    (void)user;
    last_handler();
}
int atexit(void (*fn)(void)) {
    if (refuse.atexit) return -1;
    last_handler = fn; /* in a process one is enough */
    return __cxa_atexit(run_last_handler, NULL, NULL);
}
#endif

static void a_file_that_cannot_be_renamed_is_removed(void **state) {
    test_case *t = (test_case *)*state;
    memlord_result r;
    open_block(t->lord, 0x1000, 5);
    refuse.rename = 1;
    r = memlord_save(t->lord, MEMLORD_FORMAT_JSON, in_folder("a.json"));
    assert_int_equal(r, MEMLORD_E_IO);
    assert_int_equal(files().n, 0);
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    test_log_clear(&t->log);
    memlord_request_save(t->lord);
    open_block(t->lord, 0x2000, 5); /* neither by a link nor by a rename */
    refuse.rename = 0;
    assert_int_equal(files().n, 0);
    assert_int_equal(t->log.lines[MEMLORD_LOG_ERROR], 1);
    assert_non_null(strstr(t->log.text, "[save] no report in /tmp/"));
    memlord_request_save(t->lord);
    open_block(t->lord, 0x3000, 5);
    assert_one_whole(15);
}

static void without_an_exit_handler_there_is_no_saving_at_exit(void **state) {
    test_heap heap;
    memlord_desc desc;
    memlord *lord;
    pid_t child;
    int status = -1;
    (void)state;
#if defined(TEST_STATIC)
    skip(); /* its atexit cannot be replaced */
#endif
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, MEMLORD_FLAG_NO_THREADS);
    child = fork(); /* where no test before has set the handler */
    if (!child) {
        if (memlord_create(&desc, &lord)) _exit(1);
        refuse.atexit = 1;
        if (memlord_save_at_exit(lord, MEMLORD_FORMAT_JSON, folder) != MEMLORD_E_NOMEM) _exit(2);
        refuse.atexit = 0;
        memlord_destroy(lord);
        if (files().n) _exit(3);
        if (memlord_create(&desc, &lord)) _exit(4);
        if (memlord_save_at_exit(lord, MEMLORD_FORMAT_JSON, folder)) _exit(5); /* tries again */
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_one_whole(0);
    clear();
}

static void without_a_directory_it_is_the_current_one(void **state) {
    test_case *t = (test_case *)*state;
    char before[512];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    memlord_request_save(t->lord);
    open_block(t->lord, 0x1000, 5);
    assert_int_equal(chdir(before), 0);
    assert_one_whole(5);
    assert_non_null(strstr(t->log.text, "[save] ./memory_profile_"));
}

/* A name that is longer than what the ledger has left needs memory. */
static void a_directory_that_cannot_be_kept_is_refused(void **state) {
    test_case *t = (test_case *)*state;
    static char names[400][3000];
    uint64_t i;
    memlord_result r = MEMLORD_OK;
    t->heap.fail_at = 1;
    t->heap.fail_from = 1;
    for (i = 0; r == MEMLORD_OK && i < 400; i++) {
        memset(names[i], '/', 2000 + i);
        memcpy(names[i], folder, strlen(folder));
        r = memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, names[i]);
    }
    assert_int_equal(r, MEMLORD_E_NOMEM);
    assert_int_equal(memlord_export_start(t->lord, names[i - 1], 0), MEMLORD_E_NOMEM);
    t->heap.fail_at = 0;
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, folder));
    memlord_destroy(t->lord);
    t->lord = NULL;
    assert_one_whole(0);
}

/* Where the file is not named with a directory, the one beside it is not, either. */
static void a_name_without_a_directory_is_of_the_current_one(void **state) {
    char before[1024];
    test_case *t = (test_case *)*state;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    assert_ok(memlord_save(t->lord, MEMLORD_FORMAT_JSON, "plain"));
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_JSON, ""));
    assert_int_equal(chdir(before), 0);
    assert_int_equal(files().n, 1);
    assert_whole("plain", 0);
    assert_ok(memlord_save(NULL, MEMLORD_FORMAT_JSON, in_folder("none")));
    assert_int_equal(files().n, 1);
    clear();
    assert_int_equal(chdir(folder), 0);
    memlord_destroy(t->lord); /* which saves where the process is */
    t->lord = NULL;
    assert_int_equal(chdir(before), 0);
    assert_one_whole(0);
}

static void a_save_without_memory_leaves_nothing(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t n;
    open_block(t->lord, 0x1000, 5);
    for (n = 1; n < 200; n++) {
        memlord_result r;
        t->heap.failed = 0;
        t->heap.fail_at = t->heap.calls + n;
        r = memlord_save(t->lord, MEMLORD_FORMAT_JSON, in_folder("a.json"));
        t->heap.fail_at = 0;
        if (!t->heap.failed) break;
        assert_true(r == MEMLORD_OK || r == MEMLORD_E_NOMEM);
        assert_int_equal(files().n, r == MEMLORD_OK);
        clear();
    }
    assert_true(n > 1 && n < 200);
}

/* Every stack is new, so that the tables of a report are so large that each has memory of its own:
   the heap of the test compares the size of its free with that of its alloc. */
static size_t unwind_to_a_new_place(void *user, void **frames, size_t cap) {
    uint64_t *place = (uint64_t *)user;
    size_t i;
    for (i = 0; i < cap && i < 2; i++) frames[i] = (void *)(uintptr_t)(*place += 64);
    return i;
}
static void a_report_gives_all_its_memory_back(void **state) {
    test_heap heap;
    memlord_desc desc;
    memlord *lord;
    uint64_t before, place = 1 << 20;
    int f, i;
    (void)state;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, MEMLORD_FLAG_SITES | MEMLORD_FLAG_NO_THREADS);
    desc.stack_depth = 16;
    desc.stack_bytes = 1;
    desc.event_capacity = 64;
    desc.unwinder.fn = unwind_to_a_new_place;
    desc.unwinder.user = &place;
    assert_ok(memlord_create(&desc, &lord));
    for (i = 0; i < 3000; i++) {
        char name[16];
        snprintf(name, sizeof name, "name %d", i % 300);
        if (i < 300) assert_ok(memlord_scope_begin(lord, name));
        assert_ok(memlord_tag_begin(lord, name));
        assert_ok(memlord_alloc(lord, cuda(i % 3), 0x1000 + (uint64_t)i, 5, NULL));
        assert_ok(memlord_tag_end(lord));
        if (i < 300) assert_ok(memlord_scope_end(lord));
    }
    assert_ok(memlord_checkpoint(lord, "point"));
    free(report_of(lord, MEMLORD_FORMAT_JSON)); /* whatever is made once */
    for (f = 0; f < MEMLORD_FORMAT_COUNT; f++) {
        test_text text;
        memset(&text, 0, sizeof text);
        before = heap.bytes;
        assert_ok(memlord_write(lord, (memlord_format)f, test_text_write, &text));
        free(text.data);
        if (heap.bytes != before || heap.bad_frees)
            fail_msg("format %d: %d bytes are left, %d frees of a wrong size", f,
                     (int)(heap.bytes - before), (int)heap.bad_frees);
    }
    memlord_destroy(lord);
    assert_int_equal(heap.blocks + heap.bad_frees, 0);
}

static void the_allocator_may_fail_at_any_call_of_a_report(void **state) {
    test_case *t = (test_case *)*state;
    int f;
    fill_everything(t);
    memlord_snapshots_stop(t->lord);
    for (f = 0; f < MEMLORD_FORMAT_COUNT; f++) {
        uint64_t n;
        for (n = 1; n < 200; n++) {
            test_text text;
            memlord_result r;
            memset(&text, 0, sizeof text);
            t->heap.failed = 0;
            t->heap.fail_at = t->heap.calls + n;
            r = memlord_write(t->lord, (memlord_format)f, test_text_write, &text);
            t->heap.fail_at = 0;
            if (r == MEMLORD_OK && f == MEMLORD_FORMAT_JSON) assert_true(json_valid(text.data));
            if (r != MEMLORD_OK)
                assert_true(r == MEMLORD_E_UNSUPPORTED || r == MEMLORD_E_NOMEM);
            free(text.data);
            if (!t->heap.failed) break;
        }
    }
}

/* -- "-": standard output -- */

/* In a child whose descriptor 1 is fd, or closed if fd is -1: saves, and exits with the result. */
static memlord_result saved_to(test_case *t, memlord_format format, int fd) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        memlord_result r;
        signal(SIGPIPE, SIG_DFL);
        alarm(30);
        if (fd < 0) close(1);
        if (fd >= 0) dup2(fd, 1);
        r = memlord_save(t->lord, format, "-");
        if (fd < 0 && !strstr(t->log.text, "could not read or write there: it is not open\n"))
            _exit(99);
        _exit((int)r);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status)); /* no signal */
    return (memlord_result)WEXITSTATUS(status);
}

static void a_dash_is_standard_output(void **state) {
    test_case *t = (test_case *)*state;
    const char *path = in_folder("out");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    char *text, *before = NULL;
    listing l;
    assert_true(fd >= 0);
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 4242, NULL));
    assert_ok(saved_to(t, MEMLORD_FORMAT_JSON, fd));
    assert_ok(saved_to(t, MEMLORD_FORMAT_JSON, fd)); /* one behind the other */
    close(fd);
    text = file_text(path);
    before = text ? strstr(text + 1, "{\"schema\"") : NULL;
    if (!before && text) before = strstr(text + 1, "\n{");
    assert_non_null(before);
    assert_non_null(strstr(before, "4242"));
    *before = 0;
    assert_true(json_valid(text));
    free(text);
    l = files();
    assert_int_equal(l.n, 1); /* no file of the name "-", none left beside it */
}

static void a_closed_standard_output_is_an_error(void **state) {
    test_case *t = (test_case *)*state;
    int full = open("/dev/full", O_WRONLY);
    assert_int_equal(saved_to(t, MEMLORD_FORMAT_TEXT, -1), MEMLORD_E_IO);
    if (full < 0) skip();
    assert_int_equal(saved_to(t, MEMLORD_FORMAT_TEXT, full), MEMLORD_E_IO);
    close(full);
}

static void a_pipe_whose_reader_has_gone_is_an_error_and_no_signal(void **state) {
    test_case *t = (test_case *)*state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(saved_to(t, MEMLORD_FORMAT_TEXT, ends[1]), MEMLORD_E_IO);
    close(ends[1]);
}

/* Of a pipe that nothing reads and that does not block, a part is written. */
static void what_is_written_in_part_is_an_error(void **state) {
    test_case *t = (test_case *)*state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(saved_to(t, MEMLORD_FORMAT_HTML, ends[1]), MEMLORD_E_IO);
    close(ends[0]);
    close(ends[1]);
}

static void on_tick(int number) { (void)number; }

/* A pipe is full while signals come, and then is read. */
static void a_signal_in_the_middle_of_a_write_is_no_error(void **state) {
    test_case *t = (test_case *)*state;
    struct itimerval every = {{0, 2000}, {0, 2000}};
    struct sigaction act;
    int ends[2], status = -1;
    size_t got = 0;
    ssize_t n;
    char piece[4096];
    struct timespec nap = {0, 30 * 1000 * 1000};
    pid_t pid;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
    pid = fork();
    if (pid == 0) {
        memset(&act, 0, sizeof act); /* no SA_RESTART: the write returns EINTR */
        act.sa_handler = on_tick;
        sigaction(SIGALRM, &act, NULL);
        setitimer(ITIMER_REAL, &every, NULL);
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        _exit((int)memlord_save(t->lord, MEMLORD_FORMAT_HTML, "-"));
    }
    close(ends[1]);
    nanosleep(&nap, NULL);
    while ((n = read(ends[0], piece, sizeof piece)) > 0) got += (size_t)n;
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(got > 3 * 4096); /* more than the pipe holds */
}

static void a_sigpipe_that_was_pending_stays_pending(void **state) {
    test_case *t = (test_case *)*state;
    sigset_t pipe_signal, pending;
    int ends[2], status = -1;
    pid_t pid;
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    pid = fork();
    if (pid == 0) {
        sigemptyset(&pipe_signal);
        sigaddset(&pipe_signal, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_signal, NULL);
        raise(SIGPIPE);
        dup2(ends[1], 1);
        if (memlord_save(t->lord, MEMLORD_FORMAT_TEXT, "-") != MEMLORD_E_IO) _exit(1);
        sigpending(&pending);
        _exit(sigismember(&pending, SIGPIPE) == 1 ? 0 : 2);
    }
    close(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void what_save_refuses_is_named(void **state) {
    test_case *t = (test_case *)*state;
    char path[8000];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = 0;
    assert_int_equal(memlord_save(t->lord, MEMLORD_FORMAT_TEXT, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_save(t->lord, MEMLORD_FORMAT_TEXT, ""), MEMLORD_E_INVALID);
    assert_int_equal(memlord_save(t->lord, MEMLORD_FORMAT_TEXT, path), MEMLORD_E_INVALID);
    assert_int_equal(memlord_save(t->lord, MEMLORD_FORMAT_COUNT, "x"), MEMLORD_E_UNSUPPORTED);
    assert_string_equal(t->log.text, "[save] path is NULL or empty\n"
                                     "[save] path is NULL or empty\n"
                                     "[save] path is too long\n"
                                     "[save] format is none of those there are\n");
}

static void a_terminal_gets_no_binary_format(void **state) {
    test_case *t = (test_case *)*state;
    int master = posix_openpt(O_RDWR | O_NOCTTY), slave, fd;
    char text[32];
    if (master < 0 || grantpt(master) || unlockpt(master)) skip();
    slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (slave < 0) skip();
    fd = dup(1);
    dup2(slave, 1);
    assert_int_equal(memlord_save(t->lord, MEMLORD_FORMAT_PPROF, "-"), MEMLORD_E_UNSUPPORTED);
    assert_int_equal(memlord_save(t->lord, MEMLORD_FORMAT_MEMORY_VIZ, "-"), MEMLORD_E_UNSUPPORTED);
    dup2(fd, 1);
    close(fd);
    assert_non_null(strstr(t->log.text, "[save] .pb is binary: redirect standard output"));
    assert_int_equal(fcntl(master, F_SETFL, O_NONBLOCK), 0);
    assert_true(read(master, text, sizeof text) < 0); /* nothing came */
    assert_ok(saved_to(t, MEMLORD_FORMAT_FOLDED, slave));
    close(slave);
    close(master);
}

static void a_binary_format_goes_to_a_file(void **state) {
    test_case *t = (test_case *)*state;
    int fd = open(in_folder("out.pb"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    struct stat st;
    assert_true(fd >= 0);
    assert_ok(saved_to(t, MEMLORD_FORMAT_PPROF, fd));
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(st.st_size > 0);
    close(fd);
}

static int synced;

/* In place of the system's. */
int fsync(int fd) {
    synced++;
    return fd < 0 ? -1 : 0;
}

static void a_save_waits_for_no_disk(void **state) {
    test_case *t = (test_case *)*state;
    open_block(t->lord, 0x1000, 777);
    synced = 0;
    assert_ok(memlord_save(t->lord, MEMLORD_FORMAT_JSON, in_folder("now.json")));
    assert_whole("now.json", 777);
    assert_int_equal(synced, 0);
    assert_int_equal(unlink(in_folder("now.json")), 0);
}

static void a_directory_of_that_name_is_a_directory(void **state) {
    test_case *t = (test_case *)*state;
    char before[512];
    DIR *dir;
    struct dirent *entry;
    int found = 0;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(mkdir("-", 0700), 0);
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_TEXT, "-"));
    memlord_request_save(t->lord);
    assert_ok(memlord_gc_poll(t->lord, all()));
    assert_ok(memlord_save_at_exit(t->lord, MEMLORD_FORMAT_TEXT, folder));
    dir = opendir("-");
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        char path[300];
        if (!is_dated(entry->d_name, ".txt")) continue;
        snprintf(path, sizeof path, "-/%s", entry->d_name);
        assert_int_equal(unlink(path), 0);
        found++;
    }
    closedir(dir);
    assert_int_equal(found, 1);
    assert_int_equal(rmdir("-"), 0);
    assert_ok(memlord_save(t->lord, MEMLORD_FORMAT_TEXT, "./-")); /* a file of that name */
    assert_int_equal(unlink("-"), 0);
    assert_int_equal(chdir(before), 0);
}

#define SAVING(name) cmocka_unit_test_setup_teardown(name, test_setup_fakes, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_an_exit_handler_there_is_no_saving_at_exit),
        SAVING(a_process_that_exits_saves),
        SAVING(a_thread_may_destroy_what_is_being_saved_at_exit),
        SAVING(a_child_forked_while_a_ledger_is_saved_at_exit_may_destroy_it),
        SAVING(the_last_call_counts),
        SAVING(every_ledger_saves_its_own),
        SAVING(a_ledger_destroyed_before_the_exit_saves_once),
        SAVING(with_files_0_to_2_closed),
        SAVING(with_file_0_closed_and_no_other_to_be_had_there_is_no_file),
        SAVING(without_the_directory_the_process_exits_all_the_same),
        SAVING(an_exit_while_threads_run_saves_a_whole_report),
        SAVING(a_destroy_saves_and_says_so),
        SAVING(a_directory_that_is_missing_is_an_error_in_the_log),
        SAVING(a_directory_that_cannot_be_written_is_refused),
        cmocka_unit_test(a_directory_of_too_long_a_name_is_an_error_in_the_log),
        SAVING(never_over_a_file_that_is_there),
        SAVING(names_of_one_second_count_on),
        SAVING(a_cancelled_thread_ends_after_its_save),
        SAVING(a_thousand_names_are_tried_for_the_file_before_it_has_its_own),
        SAVING(a_directory_of_3900_bytes_is_the_longest),
        SAVING(a_path_of_3999_bytes_is_the_longest),
        SAVING(percent_p_is_the_process_and_other_percents_stay),
        cmocka_unit_test(the_end_of_a_name_tells_its_format),
        SAVING(links_and_the_like_under_the_name_stay),
        SAVING(what_cannot_be_is_refused),
        SAVING(without_memory_the_log_says_so),
        SAVING(a_full_disk_leaves_nothing),
        SAVING(a_handler_asks_and_the_next_call_serves),
        SAVING(a_save_samples_the_capacity),
        SAVING(a_write_asks_the_sources_of_the_host),
        SAVING(a_report_has_a_snapshot_of_the_moment),
        SAVING(a_save_that_nobody_calls_asks_no_source_of_the_hosts),
        SAVING(a_destroy_serves_what_nothing_did),
        SAVING(an_exit_serves_what_nothing_did),
        SAVING(every_call_that_records_serves),
        cmocka_unit_test_setup_teardown(with_defer_safe_points_alone_serve, test_setup_defer,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_poller_serves_a_host_that_is_idle, setup_threads,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_thread_of_snapshots_serves_too, setup_threads,
                                        teardown),
        SAVING(without_a_format_it_is_json_in_output_dir),
        SAVING(signals_in_the_middle_of_calls),
        SAVING(a_writer_may_fail_at_any_byte),
        cmocka_unit_test(a_report_gives_all_its_memory_back),
        SAVING(a_file_that_cannot_be_renamed_is_removed),
        SAVING(without_a_directory_it_is_the_current_one),
        SAVING(a_directory_that_cannot_be_kept_is_refused),
        SAVING(a_name_without_a_directory_is_of_the_current_one),
        SAVING(a_save_without_memory_leaves_nothing),
        SAVING(the_allocator_may_fail_at_any_call_of_a_report),
        SAVING(a_dash_is_standard_output),
        SAVING(a_closed_standard_output_is_an_error),
        SAVING(a_pipe_whose_reader_has_gone_is_an_error_and_no_signal),
        SAVING(what_is_written_in_part_is_an_error),
        SAVING(a_signal_in_the_middle_of_a_write_is_no_error),
        SAVING(a_sigpipe_that_was_pending_stays_pending),
        SAVING(what_save_refuses_is_named),
        SAVING(a_terminal_gets_no_binary_format),
        SAVING(a_binary_format_goes_to_a_file),
        SAVING(a_save_waits_for_no_disk),
        SAVING(a_directory_of_that_name_is_a_directory),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
