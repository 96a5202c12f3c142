/* The log: silent by default, to the host's logger if there is one, in colour when asked. */
#include "support.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RED "\x1b[31m"
#define GREEN "\x1b[32m"
#define YELLOW "\x1b[33m"
#define MAGENTA "\x1b[35m"
#define CYAN "\x1b[36m"

typedef struct logbook {
    memlord *lord; /* called back, if set */
    size_t lines[MEMLORD_LOG_TRACE + 1];
    size_t multiline;
    uint64_t seen;
} logbook;

static void keep(void *user, int level, const char *text) {
    logbook *book = (logbook *)user;
    if (level >= MEMLORD_LOG_ERROR && level <= MEMLORD_LOG_TRACE) book->lines[level]++;
    book->multiline += strchr(text, '\n') != NULL;
    if (book->lord) book->seen += memlord_allocated(book->lord, memlord_device_all());
}

/* Everything a log may speak about. */
static void live_a_little(memlord *lord) {
    static const memlord_site site = {"a.c", "f", 3};
    char summary[256];
    memlord_alloc(lord, memlord_device_cpu(), 0x1000, 100, &site);
    memlord_alloc(lord, memlord_device_cpu(), 0x1000, 50, NULL);
    memlord_free(lord, memlord_device_cpu(), 0x1000, NULL);
    memlord_free(lord, memlord_device_cpu(), 0x1000, NULL);
    memlord_arena_sub(lord, memlord_device_cpu(), 1, NULL);
    memlord_summary(lord, summary, sizeof summary);
    memlord_reset(lord);
    memlord_alloc(lord, memlord_device_cuda(0), 0x2000, 70, NULL);
}

/* Runs fn in a child with its environment, answers what it wrote to files 1 and 2. */
static char *output_of(void (*fn)(void), const char *debug) {
    char path[] = "/tmp/memlord-log-XXXXXX", *text;
    int status = -1, fd = mkstemp(path);
    pid_t pid;
    assert_true(fd >= 0);
    pid = fork();
    if (pid == 0) {
        dup2(fd, 1);
        dup2(fd, 2);
        if (debug)
            setenv("MEMLORD_DEBUG", debug, 1);
        else
            unsetenv("MEMLORD_DEBUG");
        fn();
        _exit(0);
    }
    close(fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    text = file_text(path);
    unlink(path);
    assert_non_null(text);
    return text;
}

static void plain_host(void) {
    memlord *lord = NULL;
    if (memlord_create(NULL, &lord) != MEMLORD_OK) _exit(1);
    live_a_little(lord);
    memlord_destroy(lord);
}

static void host_without_environment(void) {
    memlord_desc desc;
    memlord *lord = NULL;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    if (memlord_create(&desc, &lord) != MEMLORD_OK) _exit(1);
    live_a_little(lord);
    memlord_destroy(lord);
}

static void host_with_logger(void) {
    memlord_desc desc;
    memlord *lord = NULL;
    logbook book;
    memset(&book, 0, sizeof book);
    memset(&desc, 0, sizeof desc);
    desc.logger.fn = keep;
    desc.logger.user = &book;
    if (memlord_create(&desc, &lord) != MEMLORD_OK) _exit(1);
    live_a_little(lord);
    memlord_destroy(lord);
    if (!getenv("MEMLORD_DEBUG") != !book.lines[MEMLORD_LOG_TRACE]) _exit(2);
    if (book.multiline) _exit(3);
}

static void host_that_asks_too_late(void) {
    memlord *lord = NULL;
    if (memlord_create(NULL, &lord) != MEMLORD_OK) _exit(1);
    setenv("MEMLORD_DEBUG", "1", 1);
    live_a_little(lord);
    memlord_destroy(lord);
}

static void by_default_it_is_silent(void **state) {
    char *text = output_of(plain_host, NULL);
    (void)state;
    assert_string_equal(text, "");
    free(text);
}

static void debug_prints_every_event_in_its_colour(void **state) {
    char *text = output_of(plain_host, "1");
    (void)state;
    assert_non_null(strstr(text, RED));
    assert_non_null(strstr(text, GREEN));
    assert_non_null(strstr(text, MAGENTA));
    assert_non_null(strstr(text, CYAN));
    assert_non_null(strstr(text, "cuda:0"));
    free(text);
}

static memlord_gc_result gives_5(void *user, memlord *lord, const memlord_gc_event *event) {
    memlord_gc_result result = {1, 0, 5};
    (void)user;
    (void)lord;
    (void)event;
    return result;
}
static void host_that_collects(void) {
    const memlord_device device = memlord_device_cuda(0);
    memlord *lord = NULL;
    if (memlord_create(NULL, &lord) != MEMLORD_OK) _exit(1);
    if (memlord_gc_callback_add(lord, device, 0, gives_5, NULL) != MEMLORD_OK) _exit(2);
    if (memlord_gc_run(lord, device, MEMLORD_REASON_BAND, 0, NULL) != MEMLORD_OK) _exit(3);
    memlord_destroy(lord);
}
static void debug_prints_a_collection_in_yellow(void **state) {
    char *text = output_of(host_that_collects, "1");
    (void)state;
    assert_non_null(strstr(text, YELLOW "[gc] cuda:0 run 1 (1 in all): band, used unknown, "
                                        "reclaimed 5 B\x1b[0m\n"));
    free(text);
}

static void debug_0_is_silent(void **state) {
    char *text = output_of(plain_host, "0");
    (void)state;
    assert_string_equal(text, "");
    free(text);
}

static void an_empty_debug_is_silent(void **state) {
    char *text = output_of(plain_host, "");
    (void)state;
    assert_string_equal(text, "");
    free(text);
}

static void the_no_env_flag_ignores_debug(void **state) {
    char *text = output_of(host_without_environment, "1");
    (void)state;
    assert_string_equal(text, "");
    free(text);
}

static void the_environment_is_read_by_create_alone(void **state) {
    char *text = output_of(host_that_asks_too_late, NULL);
    (void)state;
    assert_string_equal(text, "");
    free(text);
}

static void debug_goes_to_the_logger_if_there_is_one(void **state) {
    char *text = output_of(host_with_logger, "1");
    (void)state;
    assert_string_equal(text, "");
    free(text);
}

static void without_debug_a_logger_gets_no_trace(void **state) {
    char *text = output_of(host_with_logger, NULL);
    (void)state;
    assert_string_equal(text, "");
    free(text);
}

static memlord *open_logged(logbook *book) {
    memlord_desc desc;
    memlord *lord = NULL;
    memset(&desc, 0, sizeof desc);
    memset(book, 0, sizeof *book);
    desc.logger.fn = keep;
    desc.logger.user = book;
    desc.flags = MEMLORD_FLAG_NO_ENV;
    assert_ok(memlord_create(&desc, &lord));
    return lord;
}

static size_t said(const logbook *book) {
    size_t level, n = 0;
    for (level = MEMLORD_LOG_ERROR; level <= MEMLORD_LOG_TRACE; level++) n += book->lines[level];
    return n;
}

/* -- the lines of MEMLORD_DEBUG -- */

static const memlord_site here = {"a.c", "f", 3};

static int fence_says(void *user) { return *(int *)user; }

static memlord *open_traced(test_log *log, uint32_t flags) {
    memlord_desc desc;
    memlord *lord = NULL;
    memset(&desc, 0, sizeof desc);
    memset(log, 0, sizeof *log);
    pthread_mutex_init(&log->lock, NULL);
    desc.logger.fn = test_log_line;
    desc.logger.user = log;
    desc.flags = flags;
    setenv("MEMLORD_DEBUG", "1", 1);
    assert_ok(memlord_create(&desc, &lord));
    unsetenv("MEMLORD_DEBUG");
    return lord;
}

/* What was logged since the last time. */
static void said_is(test_log *log, const char *text) {
    assert_string_equal(log->text, text);
    test_log_clear(log);
}

/* No report or explanation has looked it up before. */
static void a_trace_names_the_function_of_a_return_address(void **state) {
    test_log log;
    memlord *lord = open_traced(&log, 0);
    void *volatile in_libc = (void *)(uintptr_t)&strtol; /* not an address of this program */
    const memlord_site *site = memlord_site_at(lord, (char *)in_libc + 1);
    const memlord_block block = {cuda(0), 2, 50};
    (void)state;
    TEST_SYMBOLS();
    assert_ok(memlord_alloc(lord, cuda(0), 1, 100, site));
    assert_non_null(strstr(log.text, "[alloc] cuda:0 0x00000001 100 B "));
    assert_non_null(strstr(log.text, "strtol"));
    test_log_clear(&log);
    assert_ok(memlord_alloc_n(lord, &block, 1, site));
    assert_non_null(strstr(log.text, "[alloc_n] cuda:0 50 B in 1 block "));
    assert_non_null(strstr(log.text, "strtol"));
    memlord_destroy(lord);
}

static void a_trace_has_a_line_for_every_call(void **state) {
    test_log log;
    memlord *lord = open_traced(&log, 0);
    memlord_realloc_token token;
    (void)state;
    assert_ok(memlord_alloc(lord, cuda(0), 1, 100, NULL));
    said_is(&log, "[alloc] cuda:0 0x00000001 100 B\n");
    assert_ok(memlord_alloc(lord, cuda(0), 1, 90, &here));
    said_is(&log, "[alloc] cuda:0 0x00000001 90 B, implicit free of 100 B f a.c:3\n"
                  "[implicit_free] cuda:0 0x00000001 100 B: an alloc over a live storage, which "
                  "ended, at f a.c:3\n");
    assert_ok(memlord_track(lord, cuda(0), 2, 50, &here));
    said_is(&log, "[alloc] cuda:0 0x00000002 50 B f a.c:3\n");
    assert_ok(memlord_track(lord, cuda(0), 2, 50, NULL)); /* a view: no bytes */
    assert_ok(memlord_release(lord, cuda(0), 2, NULL));
    said_is(&log, "");
    assert_ok(memlord_release(lord, cuda(0), 2, NULL));
    said_is(&log, "[free] cuda:0 0x00000002 50 B\n");
    assert_ok(memlord_alloc(lord, cuda(0), 0xfedcba9876543210u, 7, NULL));
    said_is(&log, "[alloc] cuda:0 0xfedcba9876543210 7 B\n");
    assert_ok(memlord_free(lord, cuda(0), 0xfedcba9876543210u, NULL));
    said_is(&log, "[free] cuda:0 0xfedcba9876543210 7 B\n");
    assert_int_equal(memlord_free(lord, cuda(0), 2, NULL), MEMLORD_E_UNKNOWN);
    said_is(&log, "[free] cuda:0 0x00000002 0 B, unknown frees 1\n"
                  "[unknown_free] cuda:0 0x00000002: a free of a storage that is not live\n");
    assert_ok(memlord_realloc(lord, cuda(0), 1, 3, 200, &here));
    said_is(&log, "[alloc realloc] cuda:0 0x00000003 200 B, from cuda:0 0x00000001 f a.c:3\n");
    assert_ok(memlord_realloc_begin(lord, cuda(0), 3, &token));
    said_is(&log, "[free realloc] cuda:0 0x00000003 200 B\n");
    assert_ok(memlord_realloc_end(lord, &token, 4, 10, NULL));
    said_is(&log, "[alloc realloc] cuda:0 0x00000004 10 B, from cuda:0 0x00000003\n");
    assert_ok(memlord_move(lord, cuda(0), 4, cpu(), 5, 10, NULL, NULL));
    said_is(&log, "[alloc move] cpu 0x00000005 10 B, from cuda:0 0x00000004\n");
    assert_ok(memlord_free_begin(lord, cpu(), 5, &token, &here));
    said_is(&log, "[free] cpu 0x00000005 10 B f a.c:3\n");
    assert_ok(memlord_free_end(lord, &token, 1, &here));
    said_is(&log, "[alloc realloc] cpu 0x00000005 10 B, from cpu 0x00000005\n");
    memlord_destroy(lord);
}

static void a_trace_shows_what_is_known_of_a_site(void **state) {
    static const struct {
        memlord_site site;
        const char *text;
    } sites[] = {{{"a.c", "f", 3}, " f a.c:3"},   {{"a.c", "f", 0}, " f a.c"},
                 {{"a.c", "f", -1}, " f a.c"},    {{"a.c", "f", 1}, " f a.c:1"},
                 {{"", "f", 0}, " f"},            {{"a", "", 12}, " a:12"},
                 {{"", "fgh", 0}, " fgh"},        {{"a.c", "", 0}, " a.c"},
                 {{"", "", 5}, " (unknown)"}};
    char wanted[64];
    test_log log;
    memlord *lord = open_traced(&log, 0);
    size_t i;
    (void)state;
    for (i = 0; i < sizeof sites / sizeof *sites; i++) {
        assert_ok(memlord_alloc(lord, cpu(), i + 1, 1, &sites[i].site));
        snprintf(wanted, sizeof wanted, "[alloc] cpu 0x%08x 1 B%s\n", (unsigned)i + 1,
                 sites[i].text);
        said_is(&log, wanted);
    }
    memlord_destroy(lord);
}

static void a_trace_has_one_line_for_n_blocks(void **state) {
    const memlord_block blocks[3] = {{cuda(0), 1, 1024}, {cuda(0), 2, 2048}, {cuda(1), 3, 3072}};
    const memlord_block mixed[2] = {{cuda(0), 0x100, 10}, {cpu(), 0x200, 20}};
    test_log log;
    memlord *lord = open_traced(&log, 0);
    (void)state;
    assert_ok(memlord_alloc_n(lord, blocks, 2, &here));
    said_is(&log, "[alloc_n] cuda:0 3 KiB in 2 blocks f a.c:3\n");
    assert_ok(memlord_track_n(lord, blocks, 3, NULL)); /* two of them are views */
    said_is(&log, "[alloc_n] cuda 3 KiB in 1 block\n");
    assert_ok(memlord_release_n(lord, blocks, 3, NULL));
    said_is(&log, "[free_n] cuda 3 KiB in 1 block\n");
    assert_ok(memlord_alloc_n(lord, mixed, 2, NULL));
    said_is(&log, "[alloc_n] all 30 B in 2 blocks\n");
    assert_int_equal(memlord_free_n(lord, blocks, 3, &here), MEMLORD_E_UNKNOWN);
    said_is(&log, "[unknown_free] cuda:1 0x00000003: a free of a storage that is not live, at "
                  "f a.c:3\n"
                  "[free_n] cuda 3 KiB in 2 blocks, unknown frees 1 f a.c:3\n");
    assert_int_equal(memlord_free_n(lord, blocks + 2, 1, NULL), MEMLORD_E_UNKNOWN);
    assert_non_null(strstr(log.text, "[free_n] cuda:1 0 B in 0 blocks, unknown frees 1\n"));
    assert_ok(memlord_alloc_n(lord, blocks, 2, NULL));
    test_log_clear(&log);
    assert_ok(memlord_alloc_n(lord, blocks, 2, NULL));
    said_is(&log, "[alloc_n] cuda:0 3 KiB in 2 blocks, implicit free of 3 KiB\n"
                  "[implicit_free] cuda:0 0x00000001 3 KiB: an alloc over a live storage, which "
                  "ended\n");
    memlord_destroy(lord);
}

static void a_trace_tells_of_deferred_and_retired_blocks(void **state) {
    int done = 0;
    memlord_fence fence;
    test_log log;
    memlord *lord = open_traced(&log, 0);
    (void)state;
    memset(&fence, 0, sizeof fence);
    fence.done = fence_says;
    fence.user = &done;
    assert_ok(memlord_alloc(lord, cuda(1), 4, 10, NULL));
    assert_ok(memlord_alloc(lord, cuda(1), 5, 20, NULL));
    test_log_clear(&log);
    assert_ok(memlord_free_deferred(lord, cuda(1), 4, fence, &here));
    said_is(&log, "[free deferred] cuda:1 0x00000004 10 B f a.c:3\n");
    assert_ok(memlord_block_use(lord, cuda(1), 5, fence));
    assert_ok(memlord_free(lord, cuda(1), 5, NULL));
    said_is(&log, "[free deferred] cuda:1 0x00000005 20 B\n");
    done = 1;
    assert_int_equal(memlord_retire(lord, cuda(1)), 30);
    said_is(&log, "[free retired] cuda:1 0x00000004 10 B\n[free retired] cuda:1 0x00000005 20 B\n");
    memlord_destroy(lord);
}

static memlord_gc_result gives_3(void *user, memlord *lord, const memlord_gc_event *event) {
    memlord_gc_result result = {1, 0, 3};
    (void)user;
    (void)lord;
    assert_true(event->band == SIZE_MAX);
    return result;
}

static int done_now(void *user) { return *(int *)user; }
static void a_trace_tells_of_frees_that_a_host_ends_itself(void **state) {
    static int done;
    static const memlord_fence fence = {done_now, &done, 1, NULL};
    test_log log;
    memlord *lord = open_traced(&log, 0);
    memlord_realloc_token token;
    void *page;
    char at[32], line[256];
    const char *said;
    (void)state;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 50, NULL));
    assert_ok(memlord_free_deferred(lord, cuda(0), 0x1000, fence, NULL));
    test_log_clear(&log);
    assert_ok(memlord_free_done(lord, cuda(0), 0x1000));
    said_is(&log, "[free retired] cuda:0 0x00001000 50 B\n");
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 60, NULL));
    assert_ok(memlord_block_use(lord, cuda(0), 0x2000, fence));
    assert_ok(memlord_free_begin(lord, cuda(0), 0x2000, &token, NULL));
    test_log_clear(&log);
    assert_ok(memlord_free_end(lord, &token, 1, NULL)); /* it failed: the block is there again */
    said_is(&log, "[alloc] cuda:0 0x00002000 60 B\n");
    page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(memlord_shim_munmap(lord, page, 4096, NULL), 0);
    snprintf(at, sizeof at, "0x%0*llx", (uintptr_t)page > UINT32_MAX ? 12 : 8,
             (unsigned long long)(uintptr_t)page);
    snprintf(line, sizeof line,
             "[free] cpu %s 0 B, unknown frees 1\n"
             "[unknown_free] cpu %s: a free of a storage that is not live\n",
             at, at);
    said = strstr(log.text, "[free] ");
    assert_non_null(said);
    assert_string_equal(said, line);
    memlord_destroy(lord);
}

static void a_collection_of_the_host_names_no_band(void **state) {
    test_log log;
    memlord *lord = open_traced(&log, 0);
    (void)state;
    assert_ok(memlord_gc_callback_add(lord, any(MEMLORD_DEVICE_CUDA), 0, gives_3, NULL));
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_BAND, 0, NULL));
    said_is(&log, "[gc] cuda:0 run 1 (1 in all): band, used unknown, reclaimed 3 B\n");
    memlord_destroy(lord);
}

static void a_refused_strategy_names_band_and_reason(void **state) {
    memlord_band band = {5, 1, MEMLORD_METRIC_MAX, 0, 10, MEMLORD_COMBINE_MAX};
    test_log log;
    memlord *lord = open_traced(&log, 0);
    (void)state;
    assert_int_equal(memlord_strategy_set(lord, all(), &band, 1), MEMLORD_E_INVALID);
    said_is(&log, "[strategy] refused, band 0: lo and hi must be 0 <= lo < hi\n");
    band.hi = 101;
    band.percent = 0;
    assert_int_equal(memlord_strategy_set(lord, all(), &band, 1), MEMLORD_E_INVALID);
    said_is(&log, "[strategy] refused, band 0: no threshold: set bytes or percent\n");
    memlord_destroy(lord);
}

static void the_first_dropped_alloc_is_said(void **state) {
    test_heap heap;
    test_log log;
    memlord_desc desc;
    memlord *lord = NULL;
    uint64_t i;
    (void)state;
    memset(&heap, 0, sizeof heap);
    memset(&log, 0, sizeof log);
    pthread_mutex_init(&log.lock, NULL);
    desc = test_desc(&heap, 0);
    desc.logger.fn = test_log_line;
    desc.logger.user = &log;
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_alloc(lord, cpu(), 64, 1, NULL));
    heap.fail_at = heap.calls + 1;
    heap.fail_from = 1;
    for (i = 2; stats_of(lord, cpu()).dropped_allocs < 100; i++)
        (void)memlord_alloc(lord, cpu(), i * 64, i, NULL);
    heap.fail_at = 0;
    assert_int_equal(log.lines[MEMLORD_LOG_WARNING], 1);
    assert_non_null(strstr(log.text, "no room to record an alloc: give the ledger's allocator "));
    memlord_destroy(lord);
}

static void an_alloc_on_one_device_too_many_is_said(void **state) {
    test_log log;
    memlord *lord = open_traced(&log, 0);
    int i;
    (void)state;
    for (i = 0; i < 128; i++) assert_ok(memlord_alloc(lord, cuda(i), (uint64_t)i + 1, 1, NULL));
    test_log_clear(&log);
    assert_int_equal(memlord_alloc(lord, cuda(i), 500, 1, NULL), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_alloc(lord, cuda(i), 501, 1, NULL), MEMLORD_E_DEVICE);
    assert_int_equal(log.lines[MEMLORD_LOG_WARNING], 2); /* that it is refused, and dropped */
    assert_non_null(strstr(log.text, "too many: raise MEMLORD_MAX_DEVICES"));
    memlord_destroy(lord);
}

static void a_tag_past_all_names_is_counted_and_said(void **state) {
    const size_t most = (size_t)64 << 20; /* MEMLORD_MAX_STRINGS */
    char *name = (char *)malloc(most + 2);
    test_log log;
    memlord *lord = open_traced(&log, 0);
    (void)state;
    assert_non_null(name);
    memset(name, 'x', most + 1);
    name[most + 1] = 0;
    assert_int_equal(memlord_tag_begin(lord, name), MEMLORD_E_NOMEM);
    assert_int_equal(memlord_tag_begin(lord, name), MEMLORD_E_NOMEM);
    assert_int_equal(stats_of(lord, memlord_device_all()).dropped_sites, 2);
    assert_int_equal(log.lines[MEMLORD_LOG_WARNING], 1);
    assert_non_null(strstr(log.text, "MEMLORD_MAX_STRINGS"));
    assert_non_null(strstr(memlord_result_text(MEMLORD_E_NOMEM), "MEMLORD_MAX_STRINGS"));
    memlord_reset(lord);
    assert_int_equal(stats_of(lord, memlord_device_all()).dropped_sites, 0);
    memlord_destroy(lord);
    free(name);
}

static void destroy_says_what_is_still_live(void **state) {
    logbook book;
    memlord *lord = open_logged(&book);
    size_t before;
    (void)state;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    before = said(&book);
    memlord_destroy(lord);
    assert_true(said(&book) > before);
}

static void destroy_says_where_what_is_left_comes_from(void **state) {
    static const memlord_site there = {"b.c", "g", 7};
    test_log log;
    memlord *lord = open_traced(&log, MEMLORD_FLAG_SITES);
    int done = 0;
    memlord_fence fence;
    (void)state;
    memset(&fence, 0, sizeof fence);
    fence.done = fence_says;
    fence.user = &done;
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cuda(0), 1, 100, &here));
    assert_ok(memlord_alloc(lord, cuda(0), 2, 200, &here));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_alloc(lord, cuda(0), 3, 1000, &there));
    assert_ok(memlord_free_deferred(lord, cuda(0), 3, fence, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 4, 5, NULL));
    assert_ok(memlord_arena_add(lord, cpu(), 3, NULL));
    memlord_reset(lord); /* what lives is no less */
    test_log_clear(&log);
    memlord_destroy(lord);
    said_is(&log, "[destroy] cuda:0: live 1.27 KiB in 3 blocks, pending 1000 B\n"
                  "[destroy] cpu: live 8 B in 1 block\n"
                  "[destroy]   1000 B in 1 block: cuda:0  g b.c:7\n"
                  "[destroy]   300 B in 2 blocks: cuda:0 [weights]  f a.c:3\n"
                  "[destroy]   5 B in 1 block: cpu  (unknown)\n");
}

static void destroy_lists_the_ten_largest_and_counts_the_rest(void **state) {
    static const memlord_site there = {"b.c", "g", 7};
    test_log log;
    memlord *lord = open_traced(&log, MEMLORD_FLAG_SITES);
    int i;
    (void)state;
    for (i = 0; i < 12; i++) {
        assert_ok(memlord_alloc(lord, cuda(i), (uint64_t)i + 1, 10 * (uint64_t)(i + 1), &here));
        assert_ok(memlord_alloc(lord, cuda(i), (uint64_t)i + 50, 1, &there));
    }
    test_log_clear(&log);
    memlord_destroy(lord);
    assert_non_null(strstr(log.text, "[destroy]   120 B in 1 block: cuda:11  f a.c:3\n"));
    assert_non_null(strstr(log.text, "[destroy]   30 B in 1 block: cuda:2  f a.c:3\n"));
    assert_null(strstr(log.text, "20 B in 1 block: cuda:1 "));
    assert_non_null(strstr(log.text, "[destroy]   and 42 B in 14 blocks more\n"));
    assert_int_equal(log.lines[MEMLORD_LOG_WARNING], 12 + 10 + 1);
}

static void a_clean_ledger_is_destroyed_without_a_word(void **state) {
    logbook book;
    memlord *lord = open_logged(&book);
    (void)state;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    memlord_destroy(lord);
    assert_int_equal(book.lines[MEMLORD_LOG_ERROR] + book.lines[MEMLORD_LOG_WARNING], 0);
}

static void a_logger_may_call_the_ledger(void **state) {
    logbook book;
    memlord *lord = open_logged(&book);
    (void)state;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    book.lord = lord;
    live_a_little(lord);
    book.lord = NULL;
    memlord_destroy(lord);
    assert_int_equal(book.multiline, 0);
}

static void *set_no_logger(void *lord) {
    assert_ok(memlord_logger_set((memlord *)lord, NULL));
    return NULL;
}
/* Logs to a ledger from its logger, once. */
typedef struct logs_on {
    memlord *to;
    uint64_t lines;
} logs_on;
static void log_on(void *user, int level, const char *text) {
    logs_on *l = (logs_on *)user;
    memlord *to = l->to;
    (void)level;
    (void)text;
    l->lines++;
    l->to = NULL;
    memlord_reset(to);
}
/* 1: another thread set the logger of a ledger within a minute. */
static int others_can_set(memlord *lord) {
    struct timespec until;
    pthread_t thread;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    if (pthread_create(&thread, NULL, set_no_logger, lord)) return 0;
    return pthread_timedjoin_np(thread, NULL, &until) == 0;
}

static void a_logger_that_logs_to_its_own_ledger_is_left_when_it_returns(void **state) {
    logbook book;
    memlord *lord = open_logged(&book);
    logs_on own = {NULL, 0};
    memlord_logger logger = {log_on, NULL};
    (void)state;
    logger.user = &own;
    assert_ok(memlord_logger_set(lord, &logger));
    own.to = lord;
    memlord_reset(lord);
    assert_int_equal(own.lines, 2);
    own.to = lord;
    memlord_reset(lord);
    assert_int_equal(own.lines, 4);
    assert_true(others_can_set(lord));
    memlord_reset(lord);
    assert_int_equal(own.lines, 4);
    memlord_destroy(lord);
}

static void a_logger_that_logs_to_another_ledger_is_left_when_it_returns(void **state) {
    logbook book;
    memlord *from = open_logged(&book), *to = open_logged(&book);
    logs_on other = {NULL, 0};
    memlord_logger logger = {log_on, NULL}, keeps = {keep, NULL};
    int round;
    (void)state;
    logger.user = &other;
    keeps.user = &book;
    for (round = 1; round <= 2; round++) {
        assert_ok(memlord_logger_set(from, &logger));
        assert_ok(memlord_logger_set(to, &keeps));
        other.to = to;
        memlord_reset(from);
        assert_int_equal(other.lines, round);
        assert_int_equal(book.lines[MEMLORD_LOG_INFO], round);
        assert_true(others_can_set(to));
        assert_true(others_can_set(from));
    }
    memlord_destroy(to);
    memlord_destroy(from);
}

static void fork_once(void *user, int level, const char *text) {
    pid_t *child = (pid_t *)user;
    (void)level;
    (void)text;
    if (*child >= 0) return;
    *child = fork();
    if (!*child) alarm(30);
}
/* The thread is in both loggers when it forks, and leaves both in the child. */
static void a_child_born_in_the_logger_of_another_ledger_may_set_both(void **state) {
    logbook book;
    memlord *from = open_logged(&book), *to = open_logged(&book);
    pid_t child = -1;
    logs_on other = {NULL, 0};
    memlord_logger logger = {log_on, NULL}, forks = {fork_once, NULL};
    int status = -1;
    (void)state;
    other.to = to;
    logger.user = &other;
    forks.user = &child;
    assert_ok(memlord_logger_set(from, &logger));
    assert_ok(memlord_logger_set(to, &forks));
    memlord_reset(from);
    if (!child) _exit(memlord_logger_set(from, NULL) || memlord_logger_set(to, NULL));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    memlord_destroy(to);
    memlord_destroy(from);
}

/* Logs to another ledger at its first line, and sets the logger of its own at its second. */
typedef struct sets_own {
    memlord *own, *other;
    uint64_t lines;
    memlord_result result;
} sets_own;
static void set_own(void *user, int level, const char *text) {
    sets_own *s = (sets_own *)user;
    (void)level;
    (void)text;
    if (s->lines++)
        s->result = memlord_logger_set(s->own, NULL);
    else
        memlord_reset(s->other);
}
static void a_logger_that_another_one_called_sets_none(void **state) {
    logbook book;
    memlord *own = open_logged(&book), *other = open_logged(&book);
    sets_own s = {NULL, NULL, 0, MEMLORD_OK};
    logs_on back = {NULL, 0};
    memlord_logger sets = {set_own, NULL}, logger = {log_on, NULL};
    (void)state;
    s.own = back.to = own;
    s.other = other;
    sets.user = &s;
    logger.user = &back;
    assert_ok(memlord_logger_set(own, &sets));
    assert_ok(memlord_logger_set(other, &logger));
    alarm(30); /* the call could wait for itself */
    memlord_reset(own);
    alarm(0);
    assert_int_equal(s.lines, 2);
    assert_int_equal(s.result, MEMLORD_E_STATE);
    assert_true(others_can_set(own));
    assert_true(others_can_set(other));
    memlord_destroy(other);
    memlord_destroy(own);
}

/* -- the stock logger -- */

static void host_of_the_stock_logger(void) {
    memlord_desc desc;
    memlord *lord = NULL;
    memset(&desc, 0, sizeof desc);
    desc.logger.fn = memlord_log_stderr;
    if (memlord_create(&desc, &lord) != MEMLORD_OK) _exit(1);
    live_a_little(lord);
    (void)memlord_alloc(lord, memlord_device_all(), 0x1000, 1, NULL);
    memlord_destroy(lord);
}

static void the_stock_logger_tells_errors_and_warnings_alone(void **state) {
    char *text = output_of(host_of_the_stock_logger, NULL);
    (void)state;
    assert_string_equal(text, "memlord: [implicit_free] cpu 0x00001000 100 B: an alloc over a live "
                              "storage, which ended\n"
                              "memlord: [unknown_free] cpu 0x00001000: a free of a storage that is "
                              "not live\n"
                              "memlord: [underflow] cpu 1 B: an arena_sub of more than the balance\n"
                              "memlord: memlord_alloc: all is a selector: a device is needed\n"
                              "memlord: [destroy] cuda:0: live 70 B in 1 block\n");
    free(text);
}

static void with_debug_the_stock_logger_tells_all_in_colour(void **state) {
    char *text = output_of(host_of_the_stock_logger, "1");
    (void)state;
    assert_non_null(strstr(text, RED "[alloc] cpu 0x00001000 100 B f a.c:3"));
    assert_non_null(strstr(text, CYAN "memlord_alloc: all is a selector"));
    assert_null(strstr(text, "memlord: "));
    free(text);
}

static void host_that_takes_its_logger_off(void) {
    memlord_logger stock;
    memlord_desc desc;
    memlord *lord = NULL;
    logbook book;
    memset(&book, 0, sizeof book);
    memset(&desc, 0, sizeof desc);
    desc.logger.fn = keep;
    desc.logger.user = &book;
    stock.fn = memlord_log_stderr;
    stock.user = NULL;
    if (memlord_create(&desc, &lord) != MEMLORD_OK) _exit(1);
    (void)memlord_alloc(lord, memlord_device_cpu(), 1, 1, NULL);
    (void)memlord_logger_set(lord, NULL);
    (void)memlord_alloc(lord, memlord_device_cpu(), 2, 2, NULL);
    (void)memlord_logger_set(lord, &stock);
    (void)memlord_alloc(lord, memlord_device_cpu(), 3, 3, NULL);
    (void)memlord_logger_set(lord, &desc.logger);
    memlord_destroy(lord);
    if (book.lines[MEMLORD_LOG_TRACE] != (getenv("MEMLORD_DEBUG") ? 1 : 0)) _exit(2);
}

static void without_its_logger_a_host_is_silent_or_prints_as_debug_says(void **state) {
    char *text = output_of(host_that_takes_its_logger_off, NULL);
    (void)state;
    assert_string_equal(text, "");
    free(text);
    text = output_of(host_that_takes_its_logger_off, "1");
    assert_string_equal(text, RED "[alloc] cpu 0x00000002 2 B\x1b[0m\n" RED
                                  "[alloc] cpu 0x00000003 3 B\x1b[0m\n");
    free(text);
}

static void host_that_logs_by_itself(void) {
    char longer[3000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    memlord_log_stderr(NULL, MEMLORD_LOG_ERROR, "one");
    memlord_log_stderr(longer, MEMLORD_LOG_WARNING, "two");
    memlord_log_stderr(NULL, MEMLORD_LOG_INFO, "three");
    memlord_log_stderr(NULL, MEMLORD_LOG_TRACE, "four");
    memlord_log_stderr(NULL, MEMLORD_LOG_ERROR, "");
    memlord_log_stderr(NULL, MEMLORD_LOG_ERROR, NULL);
    memlord_log_stderr(NULL, MEMLORD_LOG_ERROR, longer);
}

static void the_stock_logger_writes_lines(void **state) {
    char *text = output_of(host_that_logs_by_itself, NULL), *cut;
    (void)state;
    cut = strstr(text, "memlord: xxx");
    assert_non_null(cut);
    assert_int_equal(strlen(cut), 1023);
    assert_string_equal(cut + 1021, "x\n"); /* cut, and a line all the same */
    *cut = 0;
    assert_string_equal(text, "memlord: one\nmemlord: two\nmemlord: \n");
    free(text);
}

static void a_line_is_one_write(void **state) {
    int ends[2], kept = dup(2);
    char piece[256];
    ssize_t n;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    fflush(stderr);
    dup2(ends[1], 2);
    memlord_log_stderr(NULL, MEMLORD_LOG_ERROR, "a line");
    dup2(kept, 2);
    close(kept);
    n = recv(ends[0], piece, sizeof piece - 1, MSG_DONTWAIT);
    assert_true(n > 0);
    piece[n] = 0;
    assert_string_equal(piece, "memlord: a line\n");
    assert_true(recv(ends[0], piece, sizeof piece, MSG_DONTWAIT) < 0);
    close(ends[0]);
    close(ends[1]);
}

/* -- lines of this process -- */

/* A ledger that logs to file 2 as MEMLORD_DEBUG says, and file 2 goes to a file meanwhile. */
typedef struct to_stderr {
    memlord *lord;
    char path[64];
    int before;
} to_stderr;
static to_stderr stderr_begin(const char *debug) {
    to_stderr e = {NULL, "/tmp/memlord-log-XXXXXX", -1};
    int fd = mkstemp(e.path);
    assert_true(fd >= 0);
    fflush(stderr);
    e.before = dup(2);
    assert_true(e.before >= 0);
    dup2(fd, 2);
    close(fd);
    if (debug) setenv("MEMLORD_DEBUG", debug, 1);
    (void)memlord_create(NULL, &e.lord);
    unsetenv("MEMLORD_DEBUG");
    return e;
}
/* Returns what was written; the caller frees it. */
static char *stderr_end(to_stderr *e) {
    char *text;
    memlord_destroy(e->lord);
    dup2(e->before, 2);
    close(e->before);
    text = file_text(e->path);
    unlink(e->path);
    assert_non_null(text);
    return text;
}

static void each_line_of_debug_is_in_the_colour_of_its_kind(void **state) {
    const memlord_block blocks[2] = {{cuda(1), 0x10, 1}, {cuda(1), 0x20, 2}};
    to_stderr e = stderr_begin("1");
    char *text;
    (void)state;
    (void)memlord_gc_callback_add(e.lord, cuda(0), 0, gives_5, NULL);
    (void)memlord_alloc(e.lord, cuda(0), 0x1000, 100, &here);
    (void)memlord_alloc_n(e.lord, blocks, 2, NULL);
    (void)memlord_realloc(e.lord, cuda(0), 0x1000, 0x2000, 50, NULL);
    (void)memlord_free(e.lord, cuda(0), 0x2000, NULL);
    (void)memlord_free_n(e.lord, blocks, 2, NULL);
    (void)memlord_gc_run(e.lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL);
    (void)memlord_tag_begin(e.lord, ""); /* a warning */
    memlord_reset(e.lord);
    text = stderr_end(&e);
    assert_string_equal(
        text, RED "[alloc] cuda:0 0x00001000 100 B f a.c:3\x1b[0m\n" CYAN
                  "[alloc_n] cuda:1 3 B in 2 blocks\x1b[0m\n" RED
                  "[alloc realloc] cuda:0 0x00002000 50 B, from cuda:0 0x00001000\x1b[0m\n" GREEN
                  "[free] cuda:0 0x00002000 50 B\x1b[0m\n" CYAN
                  "[free_n] cuda:1 3 B in 2 blocks\x1b[0m\n" YELLOW
                  "[gc] cuda:0 run 1 (1 in all): host, used unknown, reclaimed 5 B\x1b[0m\n" CYAN
                  "memlord_tag_begin: a tag has a name\x1b[0m\n" MAGENTA
                  "[reset] a new epoch: totals 0, peaks at what is live\x1b[0m\n");
    free(text);
}

/* A refusal of a reservation names the tags that hold most, however long they are. */
static void a_line_of_debug_is_cut_at_640_bytes_and_keeps_its_end(void **state) {
    to_stderr e = stderr_begin("1");
    char tag[601], *text, *line;
    memlord_ticket ticket;
    (void)state;
    memset(tag, 'x', 600);
    tag[600] = 0;
    (void)memlord_limit_set(e.lord, cuda(0), 1000);
    (void)memlord_tag_begin(e.lord, tag);
    (void)memlord_alloc(e.lord, cuda(0), 0x1000, 900, NULL);
    (void)memlord_tag_end(e.lord);
    (void)memlord_reserve(e.lord, cuda(0), 200, &ticket);
    text = stderr_end(&e);
    line = strstr(text, CYAN "[limit] cuda:0: 200 B wanted, 100 B short");
    assert_non_null(line);
    assert_non_null(strchr(line, '\n'));
    assert_int_equal(strchr(line, '\n') + 1 - line, 631 + 5);
    assert_memory_equal(line + 630, "x\x1b[0m\n", 6);
    free(text);
}

static void a_message_is_cut_at_255_bytes(void **state) {
    test_log log;
    memlord_logger logger;
    memlord *lord;
    memlord_desc desc;
    char path[400];
    (void)state;
    memset(&desc, 0, sizeof desc);
    memset(&log, 0, sizeof log);
    pthread_mutex_init(&log.lock, NULL);
    desc.flags = MEMLORD_FLAG_NO_ENV | MEMLORD_FLAG_NO_THREADS;
    logger.fn = test_log_line;
    logger.user = &log;
    desc.logger = logger;
    assert_ok(memlord_create(&desc, &lord));
    memset(path, 'd', sizeof path);
    memcpy(path, "/tmp/", 5);
    memcpy(path + sizeof path - 3, "/p", 3);
    test_log_clear(&log);
    assert_true(memlord_pressure_open(lord, path) != MEMLORD_OK);
    assert_int_equal(log.size, 255 + 1);
    assert_memory_equal(log.text, "[neighbours] /tmp/ddd", 21);
    memlord_destroy(lord);
}

static void host_of_summaries(void) {
    const memlord_block blocks[2] = {{memlord_device_make(MEMLORD_DEVICE_CPU, 0), 1, 10},
                                     {memlord_device_make(MEMLORD_DEVICE_CPU, 0), 2, 20}};
    memlord *lord = NULL;
    if (memlord_create(NULL, &lord) != MEMLORD_OK) _exit(1);
    (void)memlord_alloc_n(lord, blocks, 2, NULL);
    (void)memlord_free_n(lord, blocks, 2, NULL);
    (void)memlord_alloc(lord, memlord_device_cpu(), 3, 5, NULL);
    memlord_destroy(lord);
}

static void summaries_are_cyan(void **state) {
    char *text = output_of(host_of_summaries, "1");
    (void)state;
    assert_non_null(strstr(text, CYAN "[alloc_n] cpu 30 B in 2 blocks\x1b[0m\n"));
    assert_non_null(strstr(text, CYAN "[free_n] cpu 30 B in 2 blocks\x1b[0m\n"));
    assert_non_null(strstr(text, RED "[alloc] cpu 0x00000003 5 B\x1b[0m\n"));
    assert_non_null(strstr(text, CYAN "[destroy] cpu: live 5 B in 1 block\x1b[0m\n"));
    free(text);
}

/* -- two threads that set a logger -- */

static void wait_in_the_logger(void *user, int level, const char *text) {
    (void)level;
    (void)text;
    test_gate_pass((test_gate *)user);
}
static void *reset_it(void *lord) {
    memlord_reset((memlord *)lord);
    return NULL;
}
typedef struct setter {
    memlord *lord;
    memlord_logger logger;
    memlord_result result;
    int done;
} setter;
static void *set_a_logger(void *user) {
    setter *s = (setter *)user;
    s->result = memlord_logger_set(s->lord, &s->logger);
    __atomic_store_n(&s->done, 1, __ATOMIC_RELEASE);
    return NULL;
}
/* Neither returns while a call of the logger before is in progress. */
static void threads_that_set_a_logger_wait_for_each_other(void **state) {
    test_gate gate = TEST_GATE;
    test_log logs[2];
    memlord_desc desc;
    setter setters[2];
    pthread_t resets, threads[2];
    const struct timespec moment = {0, 50000000};
    int i;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    desc.logger.fn = wait_in_the_logger;
    desc.logger.user = &gate;
    memset(setters, 0, sizeof setters);
    memset(logs, 0, sizeof logs);
    assert_ok(memlord_create(&desc, &setters[0].lord));
    setters[1].lord = setters[0].lord;
    assert_int_equal(pthread_create(&resets, NULL, reset_it, setters[0].lord), 0);
    assert_true(test_gate_came(&gate, 1));
    for (i = 0; i < 2; i++) {
        pthread_mutex_init(&logs[i].lock, NULL);
        setters[i].logger.fn = test_log_line;
        setters[i].logger.user = &logs[i];
        assert_int_equal(pthread_create(&threads[i], NULL, set_a_logger, &setters[i]), 0);
    }
    (void)nanosleep(&moment, NULL);
    for (i = 0; i < 2; i++) assert_int_equal(__atomic_load_n(&setters[i].done, __ATOMIC_ACQUIRE), 0);
    test_gate_open(&gate);
    for (i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_ok(setters[i].result);
    }
    assert_int_equal(pthread_join(resets, NULL), 0);
    memlord_reset(setters[0].lord); /* the one that came last hears it */
    assert_int_equal(logs[0].lines[MEMLORD_LOG_INFO] + logs[1].lines[MEMLORD_LOG_INFO], 1);
    memlord_destroy(setters[0].lord);
}

/* -- leaks without memory -- */

static void without_memory_leaks_are_told_by_device_alone(void **state) {
    test_heap heap;
    test_log log;
    memlord_desc desc;
    memlord *lord;
    uint64_t i;
    (void)state;
    memset(&heap, 0, sizeof heap);
    memset(&log, 0, sizeof log);
    pthread_mutex_init(&log.lock, NULL);
    desc = test_desc(&heap, 0);
    desc.logger.fn = test_log_line;
    desc.logger.user = &log;
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_tag_begin(lord, "leaky"));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    heap.fail_at = 1;
    heap.fail_from = 1;
    for (i = 2; !heap.failed; i++) /* until nothing is left of what the ledger has */
        (void)memlord_alloc(lord, cuda(0), i << 22, 1, NULL);
    (void)memlord_tag_end(lord);
    test_log_clear(&log);
    memlord_destroy(lord);
    assert_non_null(strstr(log.text, "[destroy] cuda:0: live "));
    assert_null(strstr(log.text, "leaky"));
    assert_int_equal(heap.bytes, 0);
}

/* -- calls that are refused -- */

static uint64_t refused_on(memlord *lord, memlord_device sel) {
    memlord_stats s;
    assert_ok(memlord_stats_get(lord, sel, &s));
    return s.refused;
}

/* The n-th refusal of a ledger, just now. */
static void is_refused(test_log *log, memlord *lord, uint64_t n, const char *text) {
    assert_int_equal(refused_on(lord, memlord_device_all()), n);
    said_is(log, text);
}

static void every_refusal_is_counted_and_said(void **state) {
    const memlord_device metal = memlord_device_make(MEMLORD_DEVICE_METAL, MEMLORD_ANY);
    const memlord_device none = memlord_device_make(99, 0);
    const memlord_block some = {metal, 1, 1}, huge[2] = {{cpu(), 1, 1}, {cpu(), 2, UINT64_MAX}};
    const memlord_block key0 = {cpu(), UINT64_MAX, 1};
    memlord_realloc_token token;
    memlord_fence fence;
    test_log log;
    memlord *lord = open_traced(&log, 0);
    uint64_t n = 0;
    (void)state;
    memset(&fence, 0, sizeof fence);
#define SAID(call, result, text)                              \
    assert_int_equal(memlord_##call, MEMLORD_##result);       \
    is_refused(&log, lord, ++n, "memlord_" text "\n")
    SAID(alloc(lord, metal, 1, 1, NULL), E_DEVICE,
         "alloc: metal is a selector: a device is needed");
    SAID(alloc(lord, cpu(), 0, 1, NULL), E_INVALID, "alloc: a storage cannot be 0");
    SAID(free(lord, none, 1, NULL), E_DEVICE, "free: that is no device");
    SAID(free(lord, cpu(), UINT64_MAX, NULL), E_INVALID, "free: a storage cannot be UINT64_MAX");
    SAID(realloc(lord, metal, 0, 1, 1, NULL), E_DEVICE,
         "realloc: metal is a selector: a device is needed");
    SAID(realloc(lord, cpu(), 0, 0, 1, NULL), E_INVALID, "realloc: a storage cannot be 0");
    SAID(realloc_begin(lord, none, 1, &token), E_DEVICE, "realloc_begin: that is no device");
    SAID(realloc_begin(lord, cpu(), 1, NULL), E_INVALID, "realloc_begin: no token");
    SAID(realloc_end(lord, NULL, 1, 1, NULL), E_INVALID, "realloc_end: no token");
    SAID(free_begin(lord, none, 1, &token, NULL), E_DEVICE, "free_begin: that is no device");
    SAID(free_begin(lord, cpu(), 1, NULL, NULL), E_INVALID, "free_begin: no token");
    SAID(free_end(lord, NULL, 0, NULL), E_INVALID, "free_end: no token");
    SAID(alloc_n(lord, &some, 1, NULL), E_DEVICE,
         "alloc_n: metal is a selector: a device is needed");
    SAID(alloc_n(lord, huge, 2, NULL), E_INVALID, "alloc_n: a size over 2^48");
    SAID(free_n(lord, NULL, 1, NULL), E_INVALID, "free_n: n blocks, and none are given");
    SAID(track_n(lord, huge, 2, NULL), E_INVALID, "track_n: a size over 2^48");
    SAID(release_n(lord, &key0, 1, NULL), E_INVALID, "release_n: a storage cannot be UINT64_MAX");
    SAID(track(lord, metal, 1, 1, NULL), E_DEVICE,
         "track: metal is a selector: a device is needed");
    SAID(retain(lord, none, 1, NULL), E_DEVICE, "retain: that is no device");
    SAID(release(lord, none, 1, NULL), E_DEVICE, "release: that is no device");
    SAID(move(lord, metal, 0, cpu(), 1, 1, NULL, NULL), E_INVALID, "move: a storage cannot be 0");
    SAID(move(lord, cpu(), 1, metal, 1, 1, NULL, NULL), E_DEVICE,
         "move: metal is a selector: a device is needed");
    SAID(arena_add(lord, metal, 1, NULL), E_DEVICE,
         "arena_add: metal is a selector: a device is needed");
    SAID(arena_sub(lord, cpu(), UINT64_MAX, NULL), E_INVALID, "arena_sub: a size over 2^48");
    SAID(free_deferred(lord, cpu(), 1, fence, NULL), E_INVALID,
         "free_deferred: a fence without `done`");
    SAID(block_use(lord, cpu(), 1, fence), E_INVALID, "block_use: a fence without `done`");
    SAID(tag_begin(lord, ""), E_INVALID, "tag_begin: a tag has a name");
    SAID(block_retag(lord, cpu(), 0, "x"), E_INVALID, "block_retag: a storage cannot be 0");
    SAID(expect(lord, metal, "x", 1), E_DEVICE,
         "expect: metal is a selector: a device is needed");
    SAID(expect(lord, cpu(), NULL, 1), E_INVALID, "expect: a tag has a name");
    SAID(pool_set(lord, metal, 1, 1), E_DEVICE,
         "pool_set: metal is a selector: a device is needed");
    SAID(pool_add(lord, cpu(), -1), E_INVALID,
         "pool_add: a pool of less than 0 bytes, or of more than 2^62");
    SAID(pool_served(lord, metal, 1, 0), E_DEVICE,
         "pool_served: metal is a selector: a device is needed");
    SAID(copy(lord, metal, cuda(0), 8), E_DEVICE, "copy: metal is a selector: a device is needed");
    SAID(alloc_failed(lord, metal, 8, NULL), E_DEVICE,
         "alloc_failed: metal is a selector: a device is needed");
    SAID(tag_default_set(lord, ""), E_INVALID, "tag_default_set: a tag has a name");
#undef SAID
    assert_int_equal(memlord_devices(lord, NULL, 0), 0);
    memlord_destroy(lord);
}

static int done_never(void *user) { return user != NULL; }
static memlord *alone;
static memlord *open_alone(test_log *log) { return alone = open_traced(log, MEMLORD_FLAG_NO_ENV); }
/* `call` is the text of the call that gave r. */
static void said_alone(test_log *log, memlord_result r, const char *call, const char *fault) {
    char line[256];
    assert_true(r == MEMLORD_E_INVALID || r == MEMLORD_E_DEVICE);
    snprintf(line, sizeof line, "memlord_%.*s: %s\n", (int)strcspn(call, "("), call, fault);
    is_refused(log, alone, 1, line);
    memlord_destroy(alone);
}
/* Each with a ledger of its own, as a ledger tells the first of a function alone. */
static void a_refusal_tells_which_argument_is_at_fault(void **state) {
    static const char size[] = "a size over 2^48", none[] = "a storage cannot be 0",
                      ones[] = "a storage cannot be UINT64_MAX";
    const uint64_t big = ((uint64_t)1 << 48) + 1, all1 = UINT64_MAX;
    const memlord_block big2[2] = {{cpu(), 1, 1}, {cpu(), 2, big}};
    const memlord_block key0[2] = {{cpu(), 1, 1}, {cpu(), 0, 1}};
    const memlord_block key1[2] = {{cpu(), 1, 1}, {cpu(), all1, big}};
    static const memlord_fence fence = {done_never, NULL, 1, NULL}, nothing = {NULL, NULL, 1, NULL};
    memlord_realloc_token token;
    test_log log;
    (void)state;
#define SAID(call, fault) said_alone(&log, memlord_##call, #call, fault)
#define LORD open_alone(&log)
    SAID(alloc(LORD, cpu(), 1, big, NULL), size);
    SAID(alloc(LORD, cpu(), all1, 1, NULL), ones);
    SAID(alloc_n(LORD, big2, 2, NULL), size);
    SAID(alloc_n(LORD, key0, 2, NULL), none);
    SAID(alloc_n(LORD, key1, 2, NULL), ones);
    SAID(track(LORD, cpu(), 1, big, NULL), size);
    SAID(track(LORD, cpu(), 0, 1, NULL), none);
    SAID(track(LORD, cpu(), all1, 1, NULL), ones);
    SAID(track_n(LORD, key1, 2, NULL), ones);
    SAID(retain(LORD, cpu(), all1, NULL), ones);
    SAID(retain(LORD, cpu(), 0, NULL), none);
    SAID(free(LORD, cpu(), all1, NULL), ones);
    SAID(free_n(LORD, key1, 2, NULL), ones);
    SAID(release(LORD, cpu(), all1, NULL), ones);
    SAID(realloc(LORD, cpu(), 0, 1, big, NULL), size);
    SAID(realloc(LORD, cpu(), 1, 2, big, NULL), size);
    SAID(realloc(LORD, cpu(), 1, 0, 1, NULL), none);
    SAID(realloc(LORD, cpu(), all1, 1, 1, NULL), ones);
    SAID(realloc(LORD, cpu(), 1, all1, 1, NULL), ones);
    SAID(realloc_begin(LORD, cpu(), all1, &token), ones);
    SAID(free_begin(LORD, cpu(), all1, &token, NULL), ones);
    SAID(move(LORD, cpu(), 0, cuda(0), 1, 1, NULL, NULL), none);
    SAID(move(LORD, cpu(), all1, cuda(0), 1, big, NULL, NULL), ones);
    SAID(move(LORD, cpu(), 1, cuda(0), 0, 1, NULL, NULL), none);
    SAID(move(LORD, cpu(), 1, cuda(0), all1, 1, NULL, NULL), ones);
    SAID(move(LORD, cpu(), 1, cuda(0), 2, big, NULL, NULL), size);
    SAID(move(LORD, cpu(), 1, cuda(0), 2, big, &fence, NULL), size);
    SAID(move(LORD, cpu(), 1, cuda(0), 2, 1, &nothing, NULL), "a fence without `done`");
    SAID(free_deferred(LORD, cpu(), all1, fence, NULL), ones);
    SAID(block_use(LORD, cpu(), all1, fence), ones);
    SAID(block_use(LORD, cpu(), 0, fence), none);
    SAID(free_done(LORD, cpu(), all1), ones);
    SAID(arena_add(LORD, cpu(), big, NULL), size);
    SAID(copy(LORD, cpu(), cuda(0), big), size);
    SAID(alloc_failed(LORD, cpu(), big, NULL), size);
#undef LORD
#undef SAID
}

static void blocks_whose_sum_overflows_are_not_traced_as_recorded(void **state) {
    const uint64_t most = (uint64_t)1 << 48;
    const memlord_block blocks[2] = {{cpu(), 1, most}, {cpu(), 2, most}};
    test_log log;
    memlord *lord = open_traced(&log, 0);
    int i;
    (void)state;
    for (i = 0; i < 16383; i++) assert_ok(memlord_arena_add(lord, cpu(), most, NULL));
    test_log_clear(&log);
    assert_int_equal(memlord_alloc_n(lord, blocks, 2, NULL), MEMLORD_E_INVALID);
    is_refused(&log, lord, 1, "memlord_alloc_n: sizes whose sum overflows\n");
    memlord_destroy(lord);
}

static void a_refused_move_or_copy_counts_where_the_fault_is(void **state) {
    const uint64_t big = ((uint64_t)1 << 48) + 1;
    test_log log;
    memlord *lord = open_traced(&log, 0);
    (void)state;
    assert_ok(memlord_alloc(lord, cpu(), 1, 1, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 1, 1, NULL));
    assert_int_equal(memlord_move(lord, cpu(), 0, cuda(0), 2, 1, NULL, NULL), MEMLORD_E_INVALID);
    assert_int_equal(refused_on(lord, cpu()), 1);
    assert_int_equal(memlord_move(lord, cpu(), 1, cuda(0), 2, big, NULL, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_move(lord, cpu(), 1, cuda(0), 0, 1, NULL, NULL), MEMLORD_E_INVALID);
    assert_int_equal(refused_on(lord, cuda(0)), 2);
    assert_int_equal(memlord_copy(lord, cpu(), cuda(0), big), MEMLORD_E_INVALID);
    assert_int_equal(refused_on(lord, cuda(0)), 3);
    assert_int_equal(memlord_copy(lord, cpu(), cuda(MEMLORD_ANY), 1), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_copy(lord, cuda(MEMLORD_ANY), cpu(), 1), MEMLORD_E_DEVICE);
    assert_int_equal(refused_on(lord, cpu()), 1);
    assert_int_equal(refused_on(lord, cuda(0)), 3);
    assert_int_equal(refused_on(lord, all()), 6);
    memlord_destroy(lord);
}

/* The cpu of the first is not known yet, and would be. */
static void a_refusal_of_n_blocks_names_the_device_at_fault(void **state) {
    const memlord_block blocks[2] = {{cpu(), 1, 1}, {cuda(MEMLORD_ANY), 2, 1}};
    test_log log;
    memlord *lord = open_traced(&log, 0);
    (void)state;
    assert_int_equal(memlord_alloc_n(lord, blocks, 2, NULL), MEMLORD_E_DEVICE);
    is_refused(&log, lord, 1, "memlord_alloc_n: cuda is a selector: a device is needed\n");
    memlord_destroy(lord);
}

static void a_refusal_is_said_once_a_function_and_result(void **state) {
    test_log log;
    memlord *lord = open_traced(&log, 0);
    int i;
    (void)state;
    for (i = 0; i < 10; i++) {
        assert_int_equal(memlord_alloc(lord, all(), 1, 1, NULL), MEMLORD_E_DEVICE);
        assert_int_equal(memlord_alloc(lord, cpu(), 0, 1, NULL), MEMLORD_E_INVALID);
        assert_int_equal(memlord_track(lord, all(), 1, 1, NULL), MEMLORD_E_DEVICE);
    }
    assert_int_equal(log.lines[MEMLORD_LOG_WARNING], 3);
    assert_int_equal(refused_on(lord, all()), 30);
    memlord_destroy(lord);
}

static void a_refusal_counts_on_its_device_or_in_the_sum(void **state) {
    logbook book;
    memlord *lord = open_logged(&book);
    char *text;
    (void)state;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1, NULL));
    assert_int_equal(memlord_alloc(lord, cuda(0), 0, 1, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_alloc(lord, cuda(MEMLORD_ANY), 1, 1, NULL), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_alloc(lord, cuda(7), 0, 1, NULL), MEMLORD_E_INVALID);
    assert_int_equal(refused_on(lord, cuda(0)), 1);
    assert_int_equal(refused_on(lord, all()), 3);
    assert_int_equal(memlord_devices(lord, NULL, 0), 1);
    text = report_of(lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "refused 3"));
    free(text);
    memlord_reset(lord);
    assert_int_equal(refused_on(lord, all()), 0);
    memlord_destroy(lord);
}

/* ggml's name of a Metal device has no index. */
static void a_name_read_as_a_selector_is_refused_and_said(void **state) {
    test_log log;
    memlord *lord = open_traced(&log, 0);
    memlord_device d;
    (void)state;
    assert_ok(memlord_device_parse("Metal", &d));
    assert_int_equal(memlord_alloc(lord, d, 0x1000, 1, NULL), MEMLORD_E_DEVICE);
    said_is(&log, "memlord_alloc: metal is a selector: a device is needed\n");
    assert_int_equal(memlord_free(lord, d, 0x1000, NULL), MEMLORD_E_UNKNOWN); /* needs no index */
    assert_int_equal(refused_on(lord, all()), 1);
    memlord_destroy(lord);
}

#if !TEST_SANITIZED /* their runtimes read the environment too */
/* A copy of the program that belongs to another user and is set-uid runs in the secure mode
   of the kernel. */
static void a_set_uid_program_ignores_the_environment(void **state) {
    char dir[] = "/var/tmp/memlord-suid-XXXXXX", command[512], *text;
    (void)state;
    if (geteuid() != 0) skip();
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 0755), 0);
    snprintf(command, sizeof command,
             "cp /proc/%d/exe %s/p && chown 65534 %s/p && chmod 4755 %s/p && "
             "MEMLORD_DEBUG=1 %s/p plain >%s/out 2>&1; echo $? >>%s/out",
             (int)getpid(), dir, dir, dir, dir, dir, dir);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "%s/out", dir);
    text = file_text(command);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
    if (!strcmp(text, "1\n")) skip(); /* a file system mounted nosuid */
    assert_string_equal(text, "0\n");
    free(text);
}
#endif

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_default_it_is_silent),
        cmocka_unit_test(debug_prints_every_event_in_its_colour),
        cmocka_unit_test(debug_prints_a_collection_in_yellow),
        cmocka_unit_test(debug_0_is_silent),
        cmocka_unit_test(an_empty_debug_is_silent),
        cmocka_unit_test(the_no_env_flag_ignores_debug),
        cmocka_unit_test(the_environment_is_read_by_create_alone),
        cmocka_unit_test(debug_goes_to_the_logger_if_there_is_one),
        cmocka_unit_test(without_debug_a_logger_gets_no_trace),
        cmocka_unit_test(a_trace_names_the_function_of_a_return_address),
        cmocka_unit_test(a_trace_has_a_line_for_every_call),
        cmocka_unit_test(a_trace_shows_what_is_known_of_a_site),
        cmocka_unit_test(a_trace_has_one_line_for_n_blocks),
        cmocka_unit_test(a_trace_tells_of_deferred_and_retired_blocks),
        cmocka_unit_test(a_trace_tells_of_frees_that_a_host_ends_itself),
        cmocka_unit_test(a_collection_of_the_host_names_no_band),
        cmocka_unit_test(a_refused_strategy_names_band_and_reason),
        cmocka_unit_test(the_first_dropped_alloc_is_said),
        cmocka_unit_test(an_alloc_on_one_device_too_many_is_said),
        cmocka_unit_test(a_tag_past_all_names_is_counted_and_said),
        cmocka_unit_test(destroy_says_what_is_still_live),
        cmocka_unit_test(destroy_says_where_what_is_left_comes_from),
        cmocka_unit_test(destroy_lists_the_ten_largest_and_counts_the_rest),
        cmocka_unit_test(a_clean_ledger_is_destroyed_without_a_word),
        cmocka_unit_test(a_logger_may_call_the_ledger),
        cmocka_unit_test(a_logger_that_logs_to_its_own_ledger_is_left_when_it_returns),
        cmocka_unit_test(a_logger_that_logs_to_another_ledger_is_left_when_it_returns),
        cmocka_unit_test(a_child_born_in_the_logger_of_another_ledger_may_set_both),
        cmocka_unit_test(a_logger_that_another_one_called_sets_none),
        cmocka_unit_test(the_stock_logger_tells_errors_and_warnings_alone),
        cmocka_unit_test(with_debug_the_stock_logger_tells_all_in_colour),
        cmocka_unit_test(without_its_logger_a_host_is_silent_or_prints_as_debug_says),
        cmocka_unit_test(the_stock_logger_writes_lines),
        cmocka_unit_test(a_line_is_one_write),
        cmocka_unit_test(summaries_are_cyan),
        cmocka_unit_test(each_line_of_debug_is_in_the_colour_of_its_kind),
        cmocka_unit_test(a_line_of_debug_is_cut_at_640_bytes_and_keeps_its_end),
        cmocka_unit_test(a_message_is_cut_at_255_bytes),
        cmocka_unit_test(threads_that_set_a_logger_wait_for_each_other),
        cmocka_unit_test(without_memory_leaks_are_told_by_device_alone),
        cmocka_unit_test(every_refusal_is_counted_and_said),
        cmocka_unit_test(a_refusal_tells_which_argument_is_at_fault),
        cmocka_unit_test(a_refusal_of_n_blocks_names_the_device_at_fault),
        cmocka_unit_test(a_refused_move_or_copy_counts_where_the_fault_is),
        cmocka_unit_test(blocks_whose_sum_overflows_are_not_traced_as_recorded),
        cmocka_unit_test(a_refusal_is_said_once_a_function_and_result),
        cmocka_unit_test(a_refusal_counts_on_its_device_or_in_the_sum),
        cmocka_unit_test(a_name_read_as_a_selector_is_refused_and_said),
#if !TEST_SANITIZED
        cmocka_unit_test(a_set_uid_program_ignores_the_environment),
#endif
    };
    if (argc > 1 && !strcmp(argv[1], "plain")) {
        plain_host();
        return geteuid() == getuid(); /* the kernel did not honour the bit */
    }
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
