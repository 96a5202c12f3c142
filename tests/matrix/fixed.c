/* One thread makes the same calls with the same times on every target, and writes every report
   into a directory: tests/ports.sh compares the files of two targets. Values are wider than 32
   bits, keys near the end of the address space, names no valid UTF-8. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#if !defined(_WIN32)
#include <sys/utsname.h>
#endif
#include <time.h>
#include <unistd.h>

#include "memlord.h"

#define GIB ((uint64_t)1 << 30)
#define WEIGHTS UINT64_C(0x7f4000000000)

/* -- in place of the system's: reports name the date and the process -- */

#if defined(_WIN32) /* where a program calls the system through these pointers */
static unsigned long fixed_pid(void) { return 4242; }
static void fixed_time(uint64_t *now) { /* from 1601, in units of 100 ns */
    *now = (UINT64_C(11644473600) + 1800000000) * 10000000 + 1234567;
}
static unsigned long fixed_program(void *module, wchar_t *path, unsigned long size) {
    static const wchar_t program[] = L"C:\\fixed";
    (void)module;
    if (size < sizeof program / sizeof *program) return size;
    memcpy(path, program, sizeof program);
    return sizeof program / sizeof *program - 1;
}
static int fixed_host(char *name, unsigned long *size) {
    if (*size < 3) return 0;
    memcpy(name, "a1", 3);
    return 1;
}
unsigned long (*__imp_GetCurrentProcessId)(void) = fixed_pid;
unsigned long (*__imp_GetModuleFileNameW)(void *, wchar_t *, unsigned long) = fixed_program;
int (*__imp_GetComputerNameA)(char *, unsigned long *) = fixed_host;
void (*__imp_GetSystemTimeAsFileTime)(uint64_t *) = fixed_time;
#else
pid_t getpid(void) { return 4242; }
int uname(struct utsname *out) {
    strcpy(out->nodename, "a1");
    return 0;
}
ssize_t readlink(const char *path, char *buf, size_t size) {
    static const char program[] = "/opt/fixed";
    (void)path;
    if (size < sizeof program - 1) return -1;
    memcpy(buf, program, sizeof program - 1);
    return sizeof program - 1;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    (void)clock;
    now->tv_sec = 1800000000;
    now->tv_nsec = 123456700;
    return 0;
}
#endif

/* -- what a host brings -- */

static uint64_t tick(void *user) { return *(uint64_t *)user += 1000; }

static int capacity(void *user, memlord_device device, memlord_capacity *out) {
    (void)user;
    (void)device;
    out->total = 80 * GIB;
    out->used = 11 * GIB;
    out->process = 7 * GIB;
    return 0;
}

static int never(void *user) {
    (void)user;
    return 0;
}

static memlord_gc_result collect(void *user, memlord *lord, const memlord_gc_event *event) {
    memlord_gc_result result;
    (void)user;
    (void)lord;
    (void)event;
    memset(&result, 0, sizeof result);
    result.ran = 1;
    result.reclaimed = 12345;
    return result;
}

static int put(void *user, const void *data, size_t size) {
    return fwrite(data, 1, size, (FILE *)user) != size;
}

static const memlord_site sites[6] = {
    {"src/a.c", "load", 10},
    {"src/b.c", "kv \"q\"\n", 4000000},
    {"c.c", "f<int>", 3},
    {"d.c", "g", 4},
    {"e\xff.c", "h\x01", 5},
    {"src/very/long/path/name.cpp", "ns::klass::method(int, char const*)", 2147483647}};

/* -- the calls; their results are part of the reports -- */

static void start(memlord *lord) {
    int type;
    for (type = 0; type < MEMLORD_DEVICE_TYPE_COUNT; type++)
        (void)memlord_capacity_source_set(lord, type, capacity, NULL);
    (void)memlord_gc_callback_add(lord, memlord_device_cuda(MEMLORD_ANY), 0, collect, NULL);
    (void)memlord_device_label_set(lord, memlord_device_cuda(1), "H200 \xc3\xa9\xfe");
    (void)memlord_events_start(lord, 4096);
    (void)memlord_capacity_sample(lord, memlord_device_cuda(0));
    (void)memlord_capacity_sample(lord, memlord_device_cpu());
    (void)memlord_limit_set(lord, memlord_device_cuda(0), 40 * GIB);
    (void)memlord_scope_begin(lord, "run");
    (void)memlord_scope_shapes_set(lord, "q[1,32,128]");
}

static void load_weights(memlord *lord) {
    memlord_device gpu = memlord_device_cuda(0);
    memlord_meta meta;
    uint32_t i;
    (void)memlord_tag_begin(lord, "weights");
    (void)memlord_alloc(lord, gpu, WEIGHTS, UINT64_C(5000000001), &sites[0]);
    (void)memlord_alloc(lord, memlord_device_cuda(1), UINT64_C(0xfffffffffffffff0), 4 * GIB,
                        &sites[1]);
    (void)memlord_tag_end(lord);
    memset(&meta, 0, sizeof meta);
    meta.name = "blk.0.attn_q\xed\xa0\x80"; /* half a surrogate pair */
    meta.dtype = "f16";
    meta.rank = 3;
    meta.shape[0] = INT64_C(1) << 40;
    meta.shape[1] = -1;
    meta.shape[2] = 128;
    meta.flags = 0x80000001u;
    (void)memlord_block_describe(lord, gpu, WEIGHTS, &meta);
    for (i = 0; i < 20; i++) {
        meta.rank = i % 9;
        (void)memlord_part_add(lord, gpu, WEIGHTS, UINT64_C(100000000) * i, 90000000 + i, &meta);
    }
    (void)memlord_expect(lord, gpu, "weights", UINT64_C(6000000000));
    (void)memlord_expect(lord, gpu, "never", 77);
}

static void step(memlord *lord, uint32_t random) {
    uint64_t key = 0x10000 + (uint64_t)((random >> 8) % 400) * 64;
    memlord_device devices[3], device;
    devices[0] = memlord_device_cpu();
    devices[1] = memlord_device_cuda(0);
    devices[2] = memlord_device_make(MEMLORD_DEVICE_VULKAN, 3);
    device = devices[(random >> 20) % 3];
    switch ((random >> 24) % 8) {
    case 4: (void)memlord_free(lord, device, key, &sites[(random >> 3) % 6]); break;
    case 5: (void)memlord_retain(lord, device, key, NULL); break;
    case 6: (void)memlord_realloc(lord, device, key, key + 32, random, &sites[2]); break;
    case 7: (void)memlord_release(lord, device, key, NULL); break;
    default:
        (void)memlord_alloc(lord, device, key, (uint64_t)(random >> 4) * 3, &sites[random % 6]);
    }
}

static void work(memlord *lord) {
    uint32_t i, random = 7;
    char name[32];
    for (i = 0; i < 3000; i++, random = random * 1103515245u + 12345u) {
        if (i % 50 == 0) {
            snprintf(name, sizeof name, "step%u", (unsigned)(i / 500));
            (void)memlord_scope_begin(lord, name);
        }
        snprintf(name, sizeof name, "t%u", (unsigned)((random >> 12) % 13));
        (void)memlord_tag_begin(lord, name);
        step(lord, random);
        (void)memlord_tag_end(lord);
        if (i % 50 == 49) (void)memlord_scope_end(lord);
        if (i % 700) continue;
        (void)memlord_checkpoint(lord, "checkpoint");
        (void)memlord_mark(lord);
        (void)memlord_gc_run(lord, memlord_device_cuda(0), 0, 0, NULL);
    }
}

static void finish(memlord *lord) {
    memlord_device gpu = memlord_device_cuda(0);
    memlord_fence fence;
    memlord_account account;
    memlord_ticket ticket;
    (void)memlord_arena_add(lord, memlord_device_cuda(1), UINT64_C(1) << 45, &sites[3]);
    (void)memlord_arena_sub(lord, memlord_device_cuda(1), 12345, &sites[3]);
    memset(&fence, 0, sizeof fence);
    fence.done = never;
    fence.queue = UINT64_C(0xdeadbeefcafebabe);
    (void)memlord_alloc(lord, gpu, UINT64_C(0x900000000), 777777, &sites[4]);
    (void)memlord_free_deferred(lord, gpu, UINT64_C(0x900000000), fence, &sites[5]);
    if (!memlord_account_open(lord, gpu, "request \xf0\x9f\x98\x80", 8 * GIB, &account))
        (void)memlord_account_charge(lord, account, INT64_C(5000000000));
    (void)memlord_reserve(lord, gpu, 3 * GIB, &ticket);
    (void)memlord_pool_set(lord, gpu, 50 * GIB, 5 * GIB);
    (void)memlord_pool_served(lord, gpu, 1, 0);
    (void)memlord_free(lord, memlord_device_cpu(), 0xabcdef, NULL);
    (void)memlord_free(lord, memlord_device_cpu(), 0, NULL);
    (void)memlord_scope_end(lord);
}

/* -- the files -- */

static FILE *create(const char *directory, const char *name) {
    char path[512];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    file = fopen(path, "wb");
    if (!file) exit(2);
    return file;
}

static void write_all(memlord *lord, const char *directory) {
#define FIXED_SUFFIX(name, suffix, text) suffix,
    static const char *const suffixes[] = {MLI_FORMATS(FIXED_SUFFIX)};
    static char text[1 << 16];
    char name[64];
    FILE *file;
    int i;
    for (i = 0; i < MEMLORD_FORMAT_COUNT; i++) {
        snprintf(name, sizeof name, "%d.%s", i, suffixes[i]);
        file = create(directory, name);
        if (memlord_write(lord, (memlord_format)i, put, file) || fclose(file)) exit(3);
    }
    file = create(directory, "explain");
    (void)memlord_explain(lord, memlord_device_cuda(0), 64 * GIB, text, sizeof text);
    (void)fputs(text, file);
    (void)memlord_summary(lord, text, sizeof text);
    (void)fputs(text, file);
    if (fclose(file)) exit(3);
}

int main(int argc, char **argv) {
    uint64_t now = 0;
    memlord_desc desc;
    memlord *lord;
    memset(&desc, 0, sizeof desc);
    desc.clock.fn = tick;
    desc.clock.user = &now;
    desc.flags = MEMLORD_FLAG_NO_ENV | MEMLORD_FLAG_SITES | MEMLORD_FLAG_EXACT |
                 MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_NO_STRATEGY;
    desc.labels = "host=a1,model=x";
    if (argc != 2 || memlord_create(&desc, &lord)) return 1;
    start(lord);
    load_weights(lord);
    work(lord);
    finish(lord);
    write_all(lord, argv[1]);
    memlord_destroy(lord);
    return 0;
}
