/* A program with a knob that leaves a module out, or with several: each call of that module has one
   answer, and the others work. left_out PAGE REPORT: two files that are not there yet. */
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

#include <stdio.h>

#if defined(MEMLORD_NO_NEIGHBOURS)
enum { NEIGHBOURS = 0 };
#else
enum { NEIGHBOURS = 1 };
#endif
#if defined(MEMLORD_NO_VERIFY)
enum { VERIFY = 0 };
#else
enum { VERIFY = 1 };
#endif

#if defined(MEMLORD_NO_PAGE) || defined(MEMLORD_NO_REPORTS)
enum { PAGE = 0 };
#else
enum { PAGE = 1 };
#endif
#if defined(MEMLORD_NO_PROFILES) || defined(MEMLORD_NO_REPORTS)
enum { PROFILES = 0 };
#else
enum { PROFILES = 1 };
#endif
#if defined(MEMLORD_NO_REPORTS)
enum { REPORTS = 0 };
#else
enum { REPORTS = 1 };
#endif

static int wrong;
static void expect_at(int line, uint64_t is, uint64_t wanted) {
    if (is == wanted) return;
    printf("line %d: %u, not %u\n", line, (unsigned)is, (unsigned)wanted);
    wrong = 1;
}
#define EXPECT(is, wanted) expect_at(__LINE__, (uint64_t)(is), (uint64_t)(wanted))
/* The result of a call of a module that is there or not. */
#define EXPECT_IF(module, is, wanted) EXPECT(is, (module) ? (wanted) : MEMLORD_E_UNSUPPORTED)

static int sleeps, collections;
static int fails(void *user, uint64_t bytes, uint64_t *storage) {
    (void)user, (void)bytes, (void)storage;
    return 1;
}
static void sleep_ms(void *user, uint32_t ms) {
    (void)user, (void)ms;
    sleeps++;
}
static memlord_gc_result collect(void *user, memlord *lord, const memlord_gc_event *event) {
    const memlord_gc_result none = {0, 0, 0};
    (void)user, (void)lord, (void)event;
    collections++;
    return none;
}
static int source(void *user, memlord_device device, memlord_capacity *out) {
    (void)user, (void)device;
    out->total = 1000;
    out->used = 850;
    return 0;
}
static int count(void *user, const void *data, size_t size) {
    (void)data;
    *(size_t *)user += size;
    return 0;
}

static void neighbours_answer(memlord *lord, const char *page) {
    const memlord_device gpu = memlord_device_cuda(0);
    memlord_stats s;
    FILE *file;
    EXPECT(memlord_device_id_set(NULL, gpu, "GPU"), MEMLORD_OK);
    EXPECT(memlord_pressure_open(NULL, page), MEMLORD_OK);
    EXPECT(memlord_pressure_raise(NULL, gpu, 1), MEMLORD_OK);
    EXPECT(memlord_pressure_close(NULL), MEMLORD_OK);
    EXPECT_IF(NEIGHBOURS, memlord_device_id_set(lord, gpu, "GPU"), MEMLORD_OK);
    EXPECT_IF(NEIGHBOURS, memlord_pressure_raise(lord, gpu, 1), MEMLORD_E_STATE);
    EXPECT_IF(NEIGHBOURS, memlord_pressure_open(lord, page), MEMLORD_OK);
    file = fopen(page, "rb");
    EXPECT(file != NULL, NEIGHBOURS);
    if (file) (void)fclose(file);
    EXPECT_IF(NEIGHBOURS, memlord_pressure_raise(lord, gpu, 1), MEMLORD_E_OOM);
    EXPECT(memlord_stats_get(lord, gpu, &s), MEMLORD_OK);
    EXPECT(s.neighbours, 0);
    EXPECT(memlord_pressure_level(lord, gpu), MEMLORD_PRESSURE_WARNING);
}

static void requests_are_tried_again(memlord *lord) {
    memlord_retry policy = {2, 1, 1, 1, sleep_ms, NULL};
    memlord_device gpu = memlord_device_cuda(0);
    memlord_stats s;
    uint64_t storage;
    collections = 0;
    EXPECT(memlord_alloc_retry(lord, gpu, 8, fails, NULL, &policy, &storage, NULL), MEMLORD_E_OOM);
    policy.sleep_ms = NULL;
    EXPECT(memlord_alloc_retry(lord, gpu, 8, fails, NULL, &policy, &storage, NULL), MEMLORD_E_OOM);
    EXPECT(sleeps, 2);
    EXPECT(collections, 4);
    EXPECT(memlord_stats_get(lord, gpu, &s), MEMLORD_OK);
    EXPECT(s.retries, 4);
    EXPECT(s.oom_failures, 2);
}

static int has(memlord_format format) {
    switch (format) {
    case MEMLORD_FORMAT_TEXT:
    case MEMLORD_FORMAT_JSON: return 1;
    case MEMLORD_FORMAT_HTML: return PAGE;
    case MEMLORD_FORMAT_PPROF:
    case MEMLORD_FORMAT_HEAPTRACK:
    case MEMLORD_FORMAT_FOLDED:
    case MEMLORD_FORMAT_FOLDED_PEAK:
    case MEMLORD_FORMAT_FOLDED_ALLOCATED: return PROFILES;
    default: return REPORTS;
    }
}
static void reports_are_written(memlord *lord, const char *path) {
    int i;
    for (i = 0; i < MEMLORD_FORMAT_COUNT; i++) {
        const memlord_format format = (memlord_format)i;
        size_t size = 0;
        FILE *file;
        EXPECT_IF(has(format), memlord_write(lord, format, count, &size), MEMLORD_OK);
        EXPECT(size != 0, has(format));
        EXPECT_IF(has(format), memlord_save(lord, format, path), MEMLORD_OK);
        file = fopen(path, "rb");
        EXPECT(file != NULL, has(format));
        if (file) (void)fclose(file);
        (void)remove(path);
        if (!has(format)) EXPECT(memlord_save_at_exit(lord, format, NULL), MEMLORD_E_UNSUPPORTED);
    }
    EXPECT_IF(REPORTS, memlord_export_start(lord, path, 0), MEMLORD_OK);
    EXPECT(memlord_export_stop(lord), MEMLORD_OK);
}

int main(int argc, char **argv) {
    const memlord_device gpu = memlord_device_cuda(0);
    memlord *lord;
    if (argc != 3 || memlord_create(NULL, &lord)) return 2;
    EXPECT(memlord_capacity_source_set(lord, gpu.type, source, NULL), MEMLORD_OK);
    EXPECT(memlord_gc_callback_add(lord, gpu, 1u << MEMLORD_REASON_OOM, collect, NULL), MEMLORD_OK);
    EXPECT(memlord_alloc(lord, gpu, 0x1000, 100, NULL), MEMLORD_OK);
    EXPECT(memlord_alloc(lord, gpu, 0x2000, 50, NULL), MEMLORD_OK);
    EXPECT(memlord_free(lord, gpu, 0x1000, NULL), MEMLORD_OK);
    EXPECT(memlord_gc_poll(lord, memlord_device_all()), MEMLORD_OK); /* takes the sample */
    neighbours_answer(lord, argv[1]);
    requests_are_tried_again(lord);
    EXPECT(memlord_gc_poll(lord, memlord_device_all()), MEMLORD_OK);
    EXPECT(memlord_verify(NULL), MEMLORD_OK);
    EXPECT_IF(VERIFY, memlord_verify(lord), MEMLORD_OK);
    reports_are_written(lord, argv[2]);
    EXPECT(memlord_allocated(lord, gpu), 50);
    EXPECT_IF(NEIGHBOURS, memlord_pressure_close(lord), MEMLORD_OK);
    memlord_destroy(lord);
    return wrong;
}
