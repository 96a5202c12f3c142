/* What every suite shares: a ledger on an allocator that counts, checks and can be told to
   fail; fakes of what a host brings; a writer that keeps what it is given; short ways to say
   what is asked often. */
#ifndef MEMLORD_TESTS_SUPPORT_H
#define MEMLORD_TESTS_SUPPORT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __cplusplus
extern "C" { /* not all versions of cmocka.h say so */
#endif
#include <cmocka.h>
#ifdef __cplusplus
}
#endif

#if defined(_WIN32)
#include <posix.h> /* of tests/windows */
#endif

#include "../memlord.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

/* Begins a test of one thread that takes a second or more under the thread sanitizer, which has
   nothing to find there: it runs so in `make test-all` alone. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_ONE_THREAD() \
    if (!getenv("MEMLORD_TEST_ALL")) skip()
#endif
#endif
#ifndef TEST_ONE_THREAD
#define TEST_ONE_THREAD() (void)0
#endif

/* Sets a locale whose decimal point is a comma, or skips the test. `make test` has one made. */
#define TEST_COMMA()                                                                  \
    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "de_DE")) skip()

/* Begins a test of what Windows does otherwise: fork, a file that is replaced while it is open. */
#if defined(_WIN32)
#define TEST_POSIX() skip()
#else
#define TEST_POSIX() (void)0
#endif

/* Begins a test that wants the name of a function of libc, or two modules: a static program has no
   symbols to read and is one module, and Windows keeps names elsewhere. */
#if defined(_WIN32) || defined(TEST_STATIC)
#define TEST_SYMBOLS() skip()
#else
#define TEST_SYMBOLS() (void)0
#endif

#define TEST_MAX_BYTES ((uint64_t)1 << 48)

/* -- an allocator that fails, counts and checks sizes -- */

typedef struct test_heap {
    uint64_t calls;     /* allocations asked for */
    uint64_t fail_at;   /* the number of the first call that fails; 0: none */
    int fail_from;      /* and every one after it */
    uint64_t failed;    /* calls that failed */
    uint64_t blocks;    /* outstanding */
    uint64_t bytes;     /* outstanding */
    uint64_t bad_frees; /* of a size that was not asked for, or of no block of ours */
} test_heap;

/* In front of each block, and as large as malloc's alignment wants it. */
typedef struct test_head {
    uint64_t magic;
    uint64_t size;
} test_head;

#define TEST_MAGIC 0x6d656d6c6f726421u

static inline void *test_heap_alloc(void *user, size_t size) {
    test_heap *heap = (test_heap *)user;
    uint64_t call = __atomic_add_fetch(&heap->calls, 1, __ATOMIC_RELAXED);
    uint64_t fail_at = __atomic_load_n(&heap->fail_at, __ATOMIC_RELAXED);
    test_head *head;
    if (fail_at && (call == fail_at || (heap->fail_from && call > fail_at))) {
        __atomic_add_fetch(&heap->failed, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    head = (test_head *)malloc(sizeof *head + size);
    if (!head) return NULL;
    head->magic = TEST_MAGIC;
    head->size = size;
    __atomic_add_fetch(&heap->blocks, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&heap->bytes, size, __ATOMIC_RELAXED);
    return memset(head + 1, 0xa5, size);
}

static inline void test_heap_free(void *user, void *ptr, size_t size) {
    test_heap *heap = (test_heap *)user;
    test_head *head = (test_head *)ptr - 1;
    if (!ptr) return;
    if (head->magic != TEST_MAGIC || head->size != size) {
        __atomic_add_fetch(&heap->bad_frees, 1, __ATOMIC_RELAXED);
        return;
    }
    head->magic = 0;
    __atomic_sub_fetch(&heap->blocks, 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&heap->bytes, size, __ATOMIC_RELAXED);
    memset(ptr, 0x5a, size);
    free(head);
}

static inline memlord_desc test_desc(test_heap *heap, uint32_t flags) {
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.allocator.alloc = test_heap_alloc;
    desc.allocator.free = test_heap_free;
    desc.allocator.user = heap;
    desc.flags = flags | MEMLORD_FLAG_NO_ENV;
    return desc;
}

/* -- what a host brings, faked; all but the clock may be used from any thread -- */

typedef struct test_log {
    pthread_mutex_t lock;
    uint64_t lines[MEMLORD_LOG_TRACE + 1]; /* by level */
    size_t size;
    char text[1 << 14]; /* the first that fit, one to a line */
} test_log;

static inline void test_log_line(void *user, int level, const char *text) {
    test_log *log = (test_log *)user;
    size_t size = strlen(text);
    pthread_mutex_lock(&log->lock);
    if (level >= 0 && level <= MEMLORD_LOG_TRACE) log->lines[level]++;
    if (log->size + size + 2 <= sizeof log->text) {
        memcpy(log->text + log->size, text, size);
        log->size += size;
        log->text[log->size++] = '\n';
        log->text[log->size] = 0;
    }
    pthread_mutex_unlock(&log->lock);
}

static inline void test_log_clear(test_log *log) {
    memset(log->lines, 0, sizeof log->lines);
    log->size = 0;
    log->text[0] = 0;
}

/* The CPU time of the thread, in ns. */
static inline uint64_t test_cpu_ns(void) {
    struct timespec used;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}
/* Notes the time since `from`, if no run took less: what a call costs if nothing disturbs it. */
static inline void test_cpu_least(uint64_t *least, uint64_t from) {
    const uint64_t took = test_cpu_ns() - from;
    if (!*least || took < *least) *least = took;
}

/* Who comes to it waits until it is opened. */
typedef struct test_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t came;
    int open;
} test_gate;

#define TEST_GATE {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0}

static inline void test_gate_pass(test_gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->came++;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->open) pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

/* 1: so many came; 0: they did not within a minute. */
static inline int test_gate_came(test_gate *gate, uint64_t n) {
    struct timespec until;
    int late = 0, came;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    pthread_mutex_lock(&gate->lock);
    while (gate->came < n && !late)
        late = pthread_cond_timedwait(&gate->changed, &gate->lock, &until);
    came = gate->came >= n;
    pthread_mutex_unlock(&gate->lock);
    return came;
}

static inline void test_gate_open(test_gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->open = 1;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

/* A source that says what it is told to. */
typedef struct test_source {
    uint64_t total, used, process, context;
    memlord_other others[MEMLORD_OTHERS];
    int fail;
    uint64_t calls;
    memlord_device device; /* asked for last */
} test_source;

static inline int test_source_ask(void *user, memlord_device device, memlord_capacity *out) {
    test_source *source = (test_source *)user;
    __atomic_add_fetch(&source->calls, 1, __ATOMIC_RELAXED);
    __atomic_store(&source->device, &device, __ATOMIC_RELAXED);
    out->total = __atomic_load_n(&source->total, __ATOMIC_RELAXED);
    out->used = __atomic_load_n(&source->used, __ATOMIC_RELAXED);
    out->process = __atomic_load_n(&source->process, __ATOMIC_RELAXED);
    out->context = source->context;
    memcpy(out->others, source->others, sizeof out->others);
    return __atomic_load_n(&source->fail, __ATOMIC_RELAXED);
}

/* A collection that answers what it is told to, and may do something. */
typedef struct test_gc {
    memlord_gc_result answer;
    uint64_t runs;
    memlord_gc_event last;
    void (*act)(struct test_gc *gc, memlord *lord, const memlord_gc_event *event);
    void *user;
} test_gc;

static inline memlord_gc_result test_gc_run(void *user, memlord *lord,
                                            const memlord_gc_event *event) {
    test_gc *gc = (test_gc *)user;
    gc->last = *event;
    __atomic_add_fetch(&gc->runs, 1, __ATOMIC_RELEASE);
    if (gc->act) gc->act(gc, lord, event);
    return gc->answer;
}

static inline uint64_t test_gc_runs(test_gc *gc) {
    return __atomic_load_n(&gc->runs, __ATOMIC_ACQUIRE);
}

/* The selector of a device type. */
static inline memlord_device any(int type) { return memlord_device_make(type, MEMLORD_ANY); }

/* -- one ledger per test -- */

typedef struct test_case {
    test_heap heap;
    memlord *lord;
    uint64_t now; /* the fakes: of test_open_fakes */
    test_log log;
    test_source source;
    test_gc gc;
    uint64_t key; /* the last one that grow used */
} test_case;

static inline int test_open(void **state, uint32_t flags) {
    test_case *t = (test_case *)calloc(1, sizeof *t);
    memlord_desc desc;
    if (!t) return -1;
    desc = test_desc(&t->heap, flags);
    *state = t;
    return memlord_create(&desc, &t->lord) == MEMLORD_OK && t->lord ? 0 : -1;
}

static inline int test_setup(void **state) { return test_open(state, 0); }
static inline int test_setup_exact(void **state) {
    return test_open(state, MEMLORD_FLAG_EXACT);
}
static inline int test_setup_sites(void **state) {
    return test_open(state, MEMLORD_FLAG_SITES);
}

static inline uint64_t test_now(void *user) { return *(uint64_t *)user; }

/* With a log, a collection of cuda that runs, and a source of cuda that fails until
   test_capacity says otherwise. Without threads the clock stands still. */
static inline int test_open_fakes(void **state, uint32_t flags) {
    test_case *t = (test_case *)calloc(1, sizeof *t);
    memlord_desc desc;
    if (!t) return -1;
    *state = t;
    t->now = 1000000000u;
    t->source.fail = 1;
    t->gc.answer.ran = 1;
    pthread_mutex_init(&t->log.lock, NULL);
    desc = test_desc(&t->heap, flags);
    desc.logger.fn = test_log_line;
    desc.logger.user = &t->log;
    if (flags & MEMLORD_FLAG_NO_THREADS) {
        desc.clock.fn = test_now;
        desc.clock.user = &t->now;
    }
    if (memlord_create(&desc, &t->lord) != MEMLORD_OK || !t->lord) return -1;
    return memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, test_source_ask, &t->source) ||
                   memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, test_gc_run,
                                           &t->gc)
               ? -1
               : 0;
}

static inline int test_setup_fakes(void **state) {
    return test_open_fakes(state, MEMLORD_FLAG_NO_THREADS);
}
static inline int test_setup_defer(void **state) {
    return test_open_fakes(state, MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_DEFER);
}

/* Every test ends with a ledger that agrees with itself, and gives its memory back, to the byte. */
static inline int test_teardown(void **state) {
    test_case *t = (test_case *)*state;
    int bad = memlord_verify(t->lord) == MEMLORD_E_STATE, left;
    if (bad) print_error("the ledger disagrees with itself\n");
    memlord_destroy(t->lord);
    left = t->heap.blocks != 0 || t->heap.bytes != 0 || t->heap.bad_frees != 0;
    if (left)
        print_error("left after destroy: %llu blocks, %llu bytes; bad frees: %llu\n",
                    (unsigned long long)t->heap.blocks, (unsigned long long)t->heap.bytes,
                    (unsigned long long)t->heap.bad_frees);
    free(t);
    return bad || left ? -1 : 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_setup, test_teardown)
#define TEST_EXACT(name) cmocka_unit_test_setup_teardown(name, test_setup_exact, test_teardown)
#define TEST_SITES(name) cmocka_unit_test_setup_teardown(name, test_setup_sites, test_teardown)
#define TEST_FAKES(name) cmocka_unit_test_setup_teardown(name, test_setup_fakes, test_teardown)
#define TEST_DEFER(name) cmocka_unit_test_setup_teardown(name, test_setup_defer, test_teardown)

static inline memlord *test_lord(void **state) { return ((test_case *)*state)->lord; }

/* -- short ways -- */

static inline memlord_device cpu(void) { return memlord_device_cpu(); }
static inline memlord_device cuda(int index) { return memlord_device_cuda(index); }
static inline memlord_device all(void) { return memlord_device_all(); }

static inline memlord_stats stats_of(memlord *lord, memlord_device sel) {
    memlord_stats stats;
    memset(&stats, 0xee, sizeof stats);
    assert_int_equal(memlord_stats_get(lord, sel, &stats), MEMLORD_OK);
    return stats;
}

#define assert_ok(call) assert_int_equal(call, MEMLORD_OK)

/* What cuda's source says from now on, and a sample of cuda:0. */
static inline void test_capacity(test_case *t, uint64_t total, uint64_t used) {
    t->source.total = total;
    t->source.used = used;
    t->source.fail = 0;
    assert_ok(memlord_capacity_sample(t->lord, cuda(0)));
}

static inline memlord_band band_of(double lo, double hi, memlord_metric metric, uint64_t bytes,
                                   double percent) {
    memlord_band band;
    memset(&band, 0, sizeof band);
    band.lo = lo;
    band.hi = hi;
    band.metric = metric;
    band.bytes = bytes;
    band.percent = percent;
    return band;
}

/* The strategy of one band that covers everything. */
static inline void test_threshold(memlord *lord, memlord_metric metric, uint64_t bytes) {
    memlord_band band = band_of(0, 101, metric, bytes, 0);
    assert_ok(memlord_strategy_set(lord, all(), &band, 1));
}

/* One more block; answers its key. */
static inline uint64_t grow(test_case *t, memlord_device device, uint64_t bytes) {
    t->key += 64;
    assert_ok(memlord_alloc(t->lord, device, t->key, bytes, NULL));
    return t->key;
}

/* The books of one epoch: what came and did not go is what is there. */
static inline void assert_balanced(memlord *lord, memlord_device sel) {
    memlord_stats s = stats_of(lord, sel);
    assert_int_equal(s.total_allocated - s.total_freed, s.allocated);
    assert_true(s.peak + s.peak_error >= s.allocated);
}

/* Everything but the anomaly and drop counters is as it was. */
static inline void assert_same_books(const memlord_stats *a, const memlord_stats *b) {
    memlord_stats x = *a, y = *b;
#define TEST_KEEP_LIVE(name)
#define TEST_KEEP_PEAK(name)
#define TEST_KEEP_COUNT(name)
#define TEST_KEEP_ANOMALY(name) x.name = y.name = 0;
#define TEST_KEEP(name, kind, family, text) TEST_KEEP_##kind(name)
    MLI_STATS(TEST_KEEP)
#undef TEST_KEEP
    assert_memory_equal(&x, &y, sizeof x);
}

/* A stream of bits that the seed decides; splitmix64. */
static inline uint64_t test_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t test_env(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

/* -- a writer that keeps everything -- */

typedef struct test_text {
    char *data; /* always ends in a 0 */
    size_t size, room;
    size_t largest; /* the largest piece */
} test_text;

static inline int test_text_write(void *user, const void *data, size_t size) {
    test_text *text = (test_text *)user;
    while (text->size + size >= text->room) {
        char *grown = (char *)realloc(text->data, text->room = text->room * 2 + 4096);
        if (!grown) return 1;
        text->data = grown;
    }
    memcpy(text->data + text->size, data, size);
    text->size += size;
    text->data[text->size] = 0;
    if (size > text->largest) text->largest = size;
    return 0;
}

/* The caller frees it. */
static inline char *report_of(memlord *lord, memlord_format format) {
    test_text text;
    memset(&text, 0, sizeof text);
    assert_ok(memlord_write(lord, format, test_text_write, &text));
    assert_non_null(text.data);
    assert_int_equal(strlen(text.data), text.size);
    return text.data;
}

/* The caller frees it; NULL if there is no such file. */
static inline char *file_text(const char *path) {
    test_text text;
    char piece[4096];
    size_t n;
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    memset(&text, 0, sizeof text);
    test_text_write(&text, "", 0);
    while ((n = fread(piece, 1, sizeof piece, file)) > 0) test_text_write(&text, piece, n);
    fclose(file);
    return text.data;
}

#endif /* MEMLORD_TESTS_SUPPORT_H */
