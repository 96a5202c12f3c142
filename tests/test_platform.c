/* What MemLord asks of the C library and the kernel: this suite defines functions of the C library
   itself, and so can count them, hold them back and let them fail. */
#include "support.h"
#include "child.h"
#include "kernel.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)
#define EXTENT (4 * MIB)

/* -- functions of the C library: they do as the kernel does, unless a test says otherwise -- */

/* The thread sanitizer calls some of them before it is ready for code that it has changed. */
#if defined(__clang__)
#define IN_PLACE __attribute__((disable_sanitizer_instrumentation))
#else
#define IN_PLACE
#endif

/* What one thread has asked for while `on`. Other threads pass. */
static __thread struct watch {
    int on;
    int refuse_map;
    size_t extent_at;             /* how far behind a multiple of 4 MiB the next two extents begin */
    uint64_t mapped;              /* bytes mapped less those unmapped */
    uint64_t yields, yields_first; /* of the processor; those before the first sleep */
    uint64_t naps, cancelable;     /* sleeps; those that pthread_cancel could have ended */
    uint64_t nap_ns[64];
    uint64_t huge, collapsed;      /* requests for huge pages */
    void *huge_at;
    size_t huge_size;
} watch;
static uint64_t wall; /* the time of day in ns; 0: the real one */
static int refuse_clocks, stand_still; /* no clock can be read; they all read 1 s */
static __thread unsigned hold_clock; /* for how many ms the thread's next reading waits; each one
                                        waits twice as long as the one before, up to 64 ms */
static test_gate *hold_huge; /* where another thread waits that requests huge pages */
static uint64_t naps_until_open;

static uint64_t barriers, barriers_done; /* asked of the kernel for all threads; those it made */
static int refuse_barriers;

/* What a thread's first call on a ledger meets. */
static __thread struct {
    int refuse_hook, forget_hook; /* the end of the thread cannot be noticed; is not, in silence */
    int refuse_number;            /* a sandbox does not tell the thread's number */
    int refuse_signals;           /* it does not tell of other threads whether they live */
    long number;                  /* the kernel gave it before; 0: it did not */
} meets;

static long (*kernel)(long number, ...);
IN_PLACE __attribute__((constructor)) static void kernel_find(void) {
    void *found = dlsym(RTLD_NEXT, "syscall");
    memcpy(&kernel, &found, sizeof kernel);
}
IN_PLACE long syscall(long number, ...) {
    va_list args;
    long a, b, c, d, e, f;
    va_start(args, number);
    a = va_arg(args, long), b = va_arg(args, long), c = va_arg(args, long);
    d = va_arg(args, long), e = va_arg(args, long), f = va_arg(args, long);
    va_end(args);
    if (number == SYS_gettid && meets.refuse_number) {
        errno = EPERM;
        return -1;
    }
    if (number == SYS_gettid && meets.number) return meets.number;
    if (number == SYS_tgkill && meets.number && b == meets.number) return 0; /* it lives */
    if (number == SYS_tgkill && meets.refuse_signals) {
        errno = EPERM;
        return -1;
    }
    if (!kernel) kernel_find();
    if (number == SYS_membarrier && refuse_barriers) {
        errno = EPERM;
        return -1;
    }
    if (number == SYS_membarrier && a == 8) { /* PRIVATE_EXPEDITED */
        const long r = kernel(number, a, b, c, d, e, f);
        __atomic_add_fetch(&barriers, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&barriers_done, r == 0, __ATOMIC_RELAXED);
        return r;
    }
    return kernel(number, a, b, c, d, e, f);
}
static pthread_key_t exit_key; /* of MemLord; other libraries have keys, too */
static int learning;
IN_PLACE int pthread_key_create(pthread_key_t *key, void (*hook)(void *)) {
    static int (*real)(pthread_key_t *, void (*)(void *));
    void *found;
    int bad;
    if (!real) {
        found = dlsym(RTLD_NEXT, "pthread_key_create");
        memcpy(&real, &found, sizeof real);
    }
    bad = real(key, hook);
    if (learning && !bad) exit_key = *key;
    return bad;
}
/* The first ledger of the process makes it. */
static int learn_the_key(void **state) {
    memlord *lord = NULL;
    (void)state;
    learning = 1;
    if (memlord_create(NULL, &lord) != MEMLORD_OK) return -1;
    learning = 0;
    memlord_destroy(lord);
    return 0;
}
IN_PLACE int pthread_setspecific(pthread_key_t key, const void *value) {
    static int (*real)(pthread_key_t, const void *);
    void *found;
    if (key == exit_key && value && meets.refuse_hook) return ENOMEM;
    if (key == exit_key && value && meets.forget_hook) return 0;
    if (!real) {
        found = dlsym(RTLD_NEXT, "pthread_setspecific");
        memcpy(&real, &found, sizeof real);
    }
    return real(key, value);
}

static void watch_begin(void) {
    memset(&watch, 0, sizeof watch);
    watch.on = 1;
}

IN_PLACE void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
    if (watch.on && watch.refuse_map) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (watch.on) watch.mapped += size;
    if (watch.on && size == 2 * EXTENT) { /* at a place that the test chooses */
        char *from = (char *)kernel_mmap(NULL, size + 2 * EXTENT, prot, flags, fd, offset);
        char *to = from + ((0 - (uintptr_t)from) & (EXTENT - 1)) + watch.extent_at;
        (void)syscall(SYS_munmap, from, (size_t)(to - from));
        (void)syscall(SYS_munmap, to + size, (size_t)(from + 2 * EXTENT - to));
        return to;
    }
    return kernel_mmap(at, size, prot, flags, fd, offset);
}
IN_PLACE int munmap(void *at, size_t size) {
    if (watch.on) watch.mapped -= size;
    return (int)syscall(SYS_munmap, at, size);
}
IN_PLACE int madvise(void *at, size_t size, int advice) {
    if (!watch.on && hold_huge && advice == MADV_HUGEPAGE) test_gate_pass(hold_huge);
    if (watch.on && advice == MADV_HUGEPAGE) {
        watch.huge++;
        watch.huge_at = at;
        watch.huge_size = size;
    }
    if (watch.on && advice == 25) watch.collapsed += at == watch.huge_at && size == watch.huge_size;
    if (watch.on) { /* a kernel that has neither */
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, at, size, advice);
}
IN_PLACE int clock_gettime(clockid_t clock, struct timespec *out) {
    if (refuse_clocks) {
        errno = EPERM;
        return -1;
    }
    if (hold_clock) {
        const struct timespec span = {0, (long)hold_clock * 1000000};
        (void)syscall(SYS_nanosleep, &span, NULL);
        hold_clock = hold_clock < 64 ? hold_clock * 2 : 0;
    }
    if (stand_still) {
        out->tv_sec = 1;
        out->tv_nsec = 0;
        return 0;
    }
    if (!wall || clock != CLOCK_REALTIME) return (int)syscall(SYS_clock_gettime, clock, out);
    out->tv_sec = (time_t)(wall / 1000000000u);
    out->tv_nsec = (long)(wall % 1000000000u);
    return 0;
}
IN_PLACE int sched_yield(void) {
    watch.yields += watch.on != 0;
    if (!watch.naps) watch.yields_first = watch.yields;
    return (int)syscall(SYS_sched_yield);
}
IN_PLACE int nanosleep(const struct timespec *span, struct timespec *left) {
    int before;
    if (!watch.on) return (int)syscall(SYS_nanosleep, span, left);
    if (watch.naps < 64)
        watch.nap_ns[watch.naps] = (uint64_t)span->tv_sec * 1000000000u + (uint64_t)span->tv_nsec;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    (void)pthread_setcancelstate(before, NULL);
    watch.cancelable += before != PTHREAD_CANCEL_DISABLE;
    if (++watch.naps == naps_until_open) test_gate_open(hold_huge);
    errno = EINTR;
    return -1;
}

/* -- the time of day -- */

/* Returns the moment that a report says it was made. */
static const char *moment_of(memlord *lord, uint64_t ns) {
    static char text[32];
    char *report, *at;
    wall = ns;
    report = report_of(lord, MEMLORD_FORMAT_JSON);
    wall = 0;
    at = strstr(report, "\"generated_at\":\"");
    assert_non_null(at);
    memcpy(text, at + 16, 24);
    assert_int_equal(at[40], '"');
    text[24] = 0;
    free(report);
    return text;
}

static void a_moment_is_written_as_its_date_and_time(void **state) {
    static const struct {
        uint64_t seconds, ns;
        const char *text;
    } moments[] = {
        {0, 1000000, "1970-01-01T00:00:00.001Z"},
        {86399, 999999999, "1970-01-01T23:59:59.999Z"},
        {86400, 0, "1970-01-02T00:00:00.000Z"},
        {5097599, 0, "1970-02-28T23:59:59.000Z"},
        {5097600, 0, "1970-03-01T00:00:00.000Z"},
        {31535999, 0, "1970-12-31T23:59:59.000Z"},
        {68169599, 0, "1972-02-28T23:59:59.000Z"},
        {68169600, 0, "1972-02-29T00:00:00.000Z"},
        {68256000, 0, "1972-03-01T00:00:00.000Z"},
        {951782400, 250000000, "2000-02-29T00:00:00.250Z"},
        {951868800, 0, "2000-03-01T00:00:00.000Z"},
        {978307199, 0, "2000-12-31T23:59:59.000Z"},
        {1709164799, 0, "2024-02-28T23:59:59.000Z"},
        {1709210096, 7999999, "2024-02-29T12:34:56.007Z"},
        {1735689599, 0, "2024-12-31T23:59:59.000Z"},
        {1785576645, 0, "2026-08-01T09:30:45.000Z"},
        {1793491199, 0, "2026-10-31T23:59:59.000Z"},
        {4107542399, 0, "2100-02-28T23:59:59.000Z"},
        {4107542400, 0, "2100-03-01T00:00:00.000Z"},
        {13574563200, 0, "2400-02-29T00:00:00.000Z"},
        {13574649600, 0, "2400-03-01T00:00:00.000Z"},
    };
    size_t i;
    for (i = 0; i < sizeof moments / sizeof *moments; i++)
        if (sizeof(time_t) > 4 || moments[i].seconds <= INT32_MAX)
            assert_string_equal(
                moment_of(test_lord(state), moments[i].seconds * 1000000000u + moments[i].ns),
                moments[i].text);
}
static void a_clock_that_cannot_be_read_says_0(void **state) {
    memlord *lord = test_lord(state);
    const char *text;
    refuse_clocks = 1;
    text = moment_of(lord, 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 10, NULL));
    refuse_clocks = 0;
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    assert_int_equal(memlord_allocated(lord, cpu()), 10);
}

/* -- files -- */

static int refuse_links;
int link(const char *from, const char *to) {
    if (refuse_links) {
        errno = EPERM; /* as file systems without hard links answer */
        return -1;
    }
    return (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}
static int there(const char *directory, const char *name) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return unlink(path) == 0;
}

/* Saves twice in one second: the second file gets another name, and the first stays. */
static void save_twice(memlord *lord, const char *directory) {
    char second[100];
    int i;
    wall = 1785576645u * (uint64_t)1000000000u;
    assert_ok(memlord_save_at_exit(lord, MEMLORD_FORMAT_TEXT, directory));
    for (i = 0; i < 2; i++) {
        memlord_request_save(lord);
        assert_ok(memlord_gc_poll(lord, all()));
    }
    wall = 0;
    snprintf(second, sizeof second, "memory_profile_20260801_093045_%ld.txt", (long)getpid());
    assert_true(there(directory, "memory_profile_20260801_093045.txt"));
    assert_true(there(directory, second));
}
static void a_dated_file_is_written_beside_the_one_of_that_second(void **state) {
    char directory[] = "/tmp/memlord-platform-XXXXXX", at_exit[] = "/tmp/memlord-platform-XXXXXX";
    memlord *lord = test_lord(state);
    assert_non_null(mkdtemp(directory));
    save_twice(lord, directory);
    refuse_links = 1;
    save_twice(lord, directory);
    refuse_links = 0;
    assert_int_equal(rmdir(directory), 0); /* nothing else is left there */
    assert_non_null(mkdtemp(at_exit));
    assert_ok(memlord_save_at_exit(lord, MEMLORD_FORMAT_TEXT, at_exit));
    wall = 1000000000u;
    memlord_destroy(lord);
    wall = 0;
    ((test_case *)*state)->lord = NULL;
    assert_true(there(at_exit, "memory_profile_19700101_000001.txt"));
    assert_int_equal(rmdir(at_exit), 0);
}

/* -- the allocator of the operating system -- */

static memlord_allocator os(void) {
    memlord_allocator a;
    memset(&a, 0xee, sizeof a);
    memlord_os_allocator(&a);
    assert_null(a.user);
    return a;
}
static void *take(size_t size) { return os().alloc(NULL, size); }
static void give(void *at, size_t size) { os().free(NULL, at, size); }
static size_t in_extent(const void *at) { return (size_t)((uintptr_t)at & (EXTENT - 1)); }

static void blocks_of_the_os_are_zeroed_and_apart(void **state) {
    static const size_t sizes[] = {1,       PAGE,    2 * PAGE - 1, 2 * PAGE, 2 * PAGE + 1,
                                   30000,   MIB - 1, MIB,          MIB + 1,  3 * MIB,
                                   2 * PAGE, 12345,  MIB,          MIB};
    enum { BLOCKS = sizeof sizes / sizeof *sizes };
    unsigned char *at[BLOCKS];
    size_t i, j;
    (void)state;
    watch_begin();
    for (i = 0; i < BLOCKS; i++) {
        at[i] = (unsigned char *)take(sizes[i]);
        assert_non_null(at[i]);
        assert_int_equal((uintptr_t)at[i] % PAGE, 0);
        for (j = 0; j < sizes[i]; j++)
            if (at[i][j]) fail_msg("byte %zu of block %zu is not 0", j, i);
        memset(at[i], (int)i + 1, sizes[i]);
    }
    for (i = 0; i < BLOCKS; i++)
        for (j = 0; j < sizes[i]; j++)
            if (at[i][j] != i + 1) fail_msg("byte %zu of block %zu was overwritten", j, i);
    for (i = 0; i < BLOCKS; i++) give(at[i], sizes[i]);
    assert_int_equal(watch.mapped, 0);
    watch.on = 0;
}

static void a_block_outside_8_kib_to_1_mib_has_a_mapping_of_its_own(void **state) {
    static const size_t alone[] = {1, PAGE, 2 * PAGE - 1, MIB + 1, 2 * MIB, 5 * MIB};
    static const size_t together[] = {2 * PAGE, 2 * PAGE + 1, 100000, MIB - 1, MIB};
    size_t i;
    (void)state;
    watch_begin();
    for (i = 0; i < sizeof alone / sizeof *alone; i++) {
        void *at = take(alone[i]);
        assert_int_equal(watch.mapped, alone[i]);
        give(at, alone[i]);
        assert_int_equal(watch.mapped, 0);
    }
    for (i = 0; i < sizeof together / sizeof *together; i++) {
        void *at = take(together[i]);
        assert_int_equal(watch.mapped, EXTENT);
        assert_int_equal(in_extent(at), PAGE);
        give(at, together[i]);
        assert_int_equal(watch.mapped, 0);
    }
    watch.on = 0;
}

static void an_extent_is_aligned_wherever_the_kernel_maps_it(void **state) {
    static const size_t at[] = {0, PAGE, MIB, 2 * MIB, 3 * MIB + 5 * PAGE, EXTENT - PAGE};
    size_t i;
    (void)state;
    watch_begin();
    for (i = 0; i < sizeof at / sizeof *at; i++) {
        char *block;
        watch.extent_at = at[i];
        block = (char *)take(MIB);
        assert_int_equal(in_extent(block), PAGE);
        assert_int_equal(watch.mapped, EXTENT);
        memset(block - PAGE + EXTENT - 1, 1, 1); /* its last byte is there */
        give(block, MIB);
        assert_int_equal(watch.mapped, 0);
    }
    watch.on = 0;
}

/* The first page of an extent is its own, and 1,023 are left. */
static void an_extent_is_used_to_its_last_page(void **state) {
    enum { QUARTERS = 4 };
    char *quarter[QUARTERS], *rest, *more;
    size_t i;
    (void)state;
    watch_begin();
    for (i = 0; i < QUARTERS; i++) {
        quarter[i] = (char *)take(255 * PAGE);
        assert_ptr_equal(quarter[i], quarter[0] + i * 255 * PAGE);
    }
    rest = (char *)take(2 * PAGE + 1);
    assert_ptr_equal(rest, quarter[0] + QUARTERS * 255 * PAGE);
    assert_int_equal(watch.mapped, EXTENT);
    more = (char *)take(2 * PAGE);
    assert_int_equal(watch.mapped, 2 * EXTENT);
    assert_int_equal(in_extent(more), PAGE);
    give(more, 2 * PAGE);
    assert_int_equal(watch.mapped, EXTENT);
    give(quarter[1], 255 * PAGE);
    assert_ptr_equal(take(255 * PAGE), quarter[1]);
    give(quarter[1], 255 * PAGE);
    give(quarter[0], 255 * PAGE);
    give(rest, 2 * PAGE + 1);
    give(quarter[3], 255 * PAGE);
    assert_int_equal(watch.mapped, EXTENT);
    give(quarter[2], 255 * PAGE);
    assert_int_equal(watch.mapped, 0);
    watch.on = 0;
}

static void pages_given_back_are_used_again_where_they_fit(void **state) {
    char *at[4];
    size_t i;
    (void)state;
    watch_begin();
    for (i = 0; i < 4; i++) at[i] = (char *)take(3 * PAGE);
    give(at[1], 3 * PAGE);
    assert_ptr_equal(take(4 * PAGE), at[3] + 3 * PAGE); /* too large for the hole */
    assert_ptr_equal(take(2 * PAGE), at[1]);
    assert_ptr_equal(take(2 * PAGE), at[3] + 7 * PAGE); /* one page is left of it */
    give(at[2], 3 * PAGE);
    assert_ptr_equal(take(4 * PAGE), at[1] + 2 * PAGE);
    give(at[1] + 2 * PAGE, 4 * PAGE);
    give(at[1], 2 * PAGE);
    give(at[3] + 3 * PAGE, 4 * PAGE);
    give(at[3] + 7 * PAGE, 2 * PAGE);
    give(at[3], 3 * PAGE);
    give(at[0], 3 * PAGE);
    assert_int_equal(watch.mapped, 0);
    watch.on = 0;
}

/* Returns how many pages of a block are in memory. */
static size_t resident(void *at, size_t pages) {
    unsigned char in[EXTENT / PAGE];
    size_t i, n = 0;
    assert_int_equal(mincore(at, pages * PAGE, in), 0);
    for (i = 0; i < pages; i++) n += in[i] & 1;
    return n;
}
static void pages_used_before_are_zeroed_and_others_are_not_touched(void **state) {
    char *kept, *used, *at;
    size_t i;
    (void)state;
    watch_begin();
    kept = (char *)take(2 * PAGE);
    used = (char *)take(3 * PAGE);
    memset(used, 0xff, 3 * PAGE);
    give(used, 3 * PAGE);
    at = (char *)take(8 * PAGE);
    assert_ptr_equal(at, used);
    assert_int_equal(resident(at, 3), 3);
    assert_int_equal(resident(at + 3 * PAGE, 5), 0);
    for (i = 0; i < 8 * PAGE; i++)
        if (at[i]) fail_msg("byte %zu is not 0", i);
    memset(at, 0xff, 8 * PAGE);
    give(at, 8 * PAGE);
    at = (char *)take(2 * PAGE);
    for (i = 0; i < 2 * PAGE; i++)
        if (at[i]) fail_msg("byte %zu is not 0 the second time", i);
    give(at, 2 * PAGE);
    give(kept, 2 * PAGE);
    assert_int_equal(watch.mapped, 0);
    watch.on = 0;
}
static void an_extent_requests_huge_pages_once_it_is_used_to_a_quarter(void **state) {
    char *first, *second, *third;
    (void)state;
    watch_begin();
    first = (char *)take(253 * PAGE);
    second = (char *)take(2 * PAGE);
    assert_int_equal(watch.huge, 0); /* 256 pages, with the first: a quarter */
    third = (char *)take(2 * PAGE);
    assert_int_equal(watch.huge, 1);
    assert_ptr_equal(watch.huge_at, first - PAGE);
    assert_int_equal(watch.huge_size, EXTENT);
    assert_int_equal(watch.collapsed, 1);
    give(third, 2 * PAGE);
    third = (char *)take(4 * PAGE);
    assert_int_equal(watch.huge, 1);
    give(first, 253 * PAGE);
    give(second, 2 * PAGE);
    give(third, 4 * PAGE);
    assert_int_equal(watch.mapped, 0);
    watch.on = 0;
}

static void a_block_of_2_mib_requests_huge_pages_for_itself(void **state) {
    void *at;
    (void)state;
    watch_begin();
    give(take(2 * MIB - 1), 2 * MIB - 1);
    assert_int_equal(watch.huge, 0);
    at = take(2 * MIB);
    assert_int_equal(watch.huge, 1);
    assert_ptr_equal(watch.huge_at, at);
    assert_int_equal(watch.huge_size, 2 * MIB);
    assert_int_equal(watch.collapsed, 1);
    give(at, 2 * MIB);
    watch.on = 0;
}

static void without_pages_there_is_no_block_and_errno_stays(void **state) {
    static const size_t sizes[] = {100, 2 * PAGE, MIB, 2 * MIB};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        watch_begin();
        watch.refuse_map = 1;
        errno = 1234;
        assert_null(take(sizes[i]));
        assert_int_equal(errno, 1234);
        assert_int_equal(watch.huge, 0);
        watch.refuse_map = 0;
        give(take(sizes[i]), sizes[i]); /* and the next is had; huge pages fail, as they may */
        assert_int_equal(errno, 1234);
        assert_int_equal(watch.mapped, 0);
        watch.on = 0;
    }
}

/* The thread sanitizer starts threads with functions that this suite replaces. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_THREADS() skip()
#endif
#endif
#ifndef TEST_THREADS
#define TEST_THREADS() (void)0
#endif

/* -- waiting for a lock -- */

static void *take_a_mib(void *user) {
    (void)user;
    return take(MIB);
}
/* A thread holds the lock of the extents for as long as the kernel holds it. */
static void who_waits_for_a_lock_yields_16_times_and_then_sleeps_longer_and_longer(void **state) {
    test_gate gate = TEST_GATE;
    pthread_t thread;
    void *small = take(2 * PAGE), *large = NULL, *mine;
    uint64_t i;
    int before = -1;
    TEST_THREADS();
    (void)state;
    hold_huge = &gate;
    naps_until_open = 25;
    assert_int_equal(pthread_create(&thread, NULL, take_a_mib, NULL), 0);
    assert_true(test_gate_came(&gate, 1));
    watch_begin();
    errno = 1234;
    mine = take(2 * PAGE);
    watch.on = 0;
    assert_int_equal(errno, 1234);
    assert_int_equal(pthread_join(thread, &large), 0);
    hold_huge = NULL;
    assert_non_null(mine);
    assert_non_null(large);
    assert_int_equal(watch.yields_first, 16);
    assert_int_equal(watch.yields, 16);
    assert_true(watch.naps >= 25);
    for (i = 0; i < 25; i++) assert_int_equal(watch.nap_ns[i], i < 19 ? (i + 1) * 50000 : 1000000);
    assert_int_equal(watch.cancelable, 0);
    (void)pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
    assert_int_equal(before, PTHREAD_CANCEL_ENABLE);
    give(small, 2 * PAGE);
    give(mine, 2 * PAGE);
    give(large, MIB);
}

/* -- stacks -- */

/* While `fake_frame` is set it is in every place for a frame, and `fake_depth` frames are found. */
static void *fake_frame;
static int fake_depth;
int backtrace(void **frames, int cap) {
    static int (*real)(void **, int);
    void *found;
    int i;
    for (i = 0; fake_frame && i < cap; i++) frames[i] = fake_frame;
    if (fake_frame) return fake_depth;
    if (!real) {
        found = dlsym(RTLD_NEXT, "backtrace");
        if (!found) return 0;
        memcpy(&real, &found, sizeof real);
    }
    return real(frames, cap);
}
extern int unwinder_of_libgcc(void) __asm__("_Unwind_Backtrace") __attribute__((weak));

/* Returns the stack of an alloc at a site of address 0x1235, whose unwinder finds so many frames,
   all of them 0x123456. */
static memlord_stack_stat stack_of_frames(memlord *lord, int depth) {
    memlord_stack_stat row;
    const memlord_site *site = memlord_site_at(lord, (void *)(uintptr_t)0x1235);
    fake_frame = (void *)(uintptr_t)0x123456;
    fake_depth = depth;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, site));
    fake_frame = NULL;
    assert_int_equal(memlord_stacks_top(lord, cpu(), MEMLORD_SITE_ORDER_ALLOCS, &row, 1), 1);
    return row;
}
static int setup_stacks(void **state) {
    test_case *t = (test_case *)calloc(1, sizeof *t);
    memlord_desc desc;
    if (!t) return -1;
    desc = test_desc(&t->heap, MEMLORD_FLAG_NO_THREADS);
    desc.stack_depth = 8;
    desc.stack_bytes = 1; /* every alloc */
    *state = t;
    return memlord_create(&desc, &t->lord) == MEMLORD_OK ? 0 : -1;
}

static void a_stack_of_one_frame_is_that_frame(void **state) {
    memlord_stack_stat row;
    if (unwinder_of_libgcc) skip(); /* it goes first */
    row = stack_of_frames(test_lord(state), 1);
    assert_int_equal(row.depth, 1);
    assert_ptr_equal(row.frames[0], (void *)(uintptr_t)0x123456);
}
static void a_stack_without_frames_is_the_address_of_its_site(void **state) {
    memlord_stack_stat row;
    if (unwinder_of_libgcc) skip();
    row = stack_of_frames(test_lord(state), 0);
    assert_int_equal(row.depth, 1 + 1);
    assert_ptr_equal(row.frames[0], (void *)(uintptr_t)0x1235);
    assert_null(row.frames[1]);
    assert_string_equal(row.sites[1]->function, "[cut: not unwound]");
}

/* -- threads of the ledger -- */

static int refuse_conditions, refuse_attributes; /* of conditions */
int pthread_condattr_init(pthread_condattr_t *attr) {
    static int (*real)(pthread_condattr_t *);
    void *found;
    if (refuse_attributes) return ENOMEM;
    if (!real) {
        found = dlsym(RTLD_NEXT, "pthread_condattr_init");
        memcpy(&real, &found, sizeof real);
    }
    return real(attr);
}
int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attr) {
    static int (*real)(pthread_cond_t *, const pthread_condattr_t *);
    void *found;
    if (refuse_conditions) return EAGAIN;
    if (!real) {
        found = dlsym(RTLD_NEXT, "pthread_cond_init");
        memcpy(&real, &found, sizeof real);
    }
    return real(cond, attr);
}

static int refuse_clock_of_conditions;
int pthread_condattr_setclock(pthread_condattr_t *attr, clockid_t clock) {
    static int (*real)(pthread_condattr_t *, clockid_t);
    void *found;
    if (refuse_clock_of_conditions) return EINVAL;
    if (!real) {
        found = dlsym(RTLD_NEXT, "pthread_condattr_setclock");
        memcpy(&real, &found, sizeof real);
    }
    return real(attr, clock);
}
static int refuse_mutexes;
int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr) {
    static int (*real)(pthread_mutex_t *, const pthread_mutexattr_t *);
    void *found;
    if (refuse_mutexes) return ENOMEM;
    if (!real) {
        found = dlsym(RTLD_NEXT, "pthread_mutex_init");
        memcpy(&real, &found, sizeof real);
    }
    return real(mutex, attr);
}

static int setup_threads(void **state) { return test_open_fakes(state, 0); }

static void a_poller_that_cannot_wait_is_not_started_and_the_next_tries_again(void **state) {
    static int *const refuse[] = {&refuse_conditions, &refuse_conditions, &refuse_attributes,
                                  &refuse_clock_of_conditions, &refuse_mutexes};
    test_case *t = (test_case *)*state;
    size_t i;
    TEST_THREADS();
    memlord_poller_stop(t->lord);
    grow(t, cuda(0), 100);
    for (i = 0; i < sizeof refuse / sizeof *refuse; i++) {
        memlord_result r;
        *refuse[i] = 1;
        r = memlord_poller_start(t->lord, 0);
        *refuse[i] = 0;
        assert_int_equal(r, MEMLORD_E_NOMEM);
    }
    assert_ok(memlord_poller_start(t->lord, 0));
    memlord_poller_stop(t->lord);
}

/* -- threads -- */

typedef struct visitor {
    memlord *lord;
    int refuse_hook, forget_hook, refuse_number, refuse_signals, leave_open;
    long number;
    uint64_t key;
    memlord_result alloc, begin, begin_later;
    const char *tag_before, *tag; /* kept by the ledger */
} visitor;

/* Allocates 10 bytes under a tag "visit", on a thread that meets what the visitor says. */
static void *visit(void *user) {
    visitor *v = (visitor *)user;
    meets.refuse_hook = v->refuse_hook;
    meets.forget_hook = v->forget_hook;
    meets.refuse_number = v->refuse_number;
    meets.refuse_signals = v->refuse_signals;
    meets.number = v->number;
    v->tag_before = memlord_tag_current(v->lord);
    v->begin = memlord_tag_begin(v->lord, "visit");
    v->tag = memlord_tag_current(v->lord);
    v->alloc = memlord_alloc(v->lord, cpu(), v->key, 10, NULL);
    if (!v->leave_open) (void)memlord_tag_end(v->lord);
    meets.refuse_hook = 0;
    v->begin_later = memlord_tag_begin(v->lord, "later");
    if (!v->leave_open) (void)memlord_tag_end(v->lord);
    return NULL;
}
static void visit_by_thread(visitor *v) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, visit, v), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(v->alloc);
    assert_ok(v->begin_later);
}
static uint64_t tagged(memlord *lord) {
    memlord_tag_stat tag;
    return memlord_tag_get(lord, all(), "visit", &tag) ? 0 : tag.allocated;
}

/* The other thread's shard is stopped for that, by one barrier and without a wait. */
static void a_free_of_another_threads_block_takes_one_barrier(void **state) {
    memlord *lord = test_lord(state);
    visitor v;
    TEST_THREADS();
    memset(&v, 0, sizeof v);
    v.lord = lord;
    v.key = 0x7f0000001000u;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1, NULL)); /* or it would inherit the shard */
    visit_by_thread(&v);
    barriers = barriers_done = 0;
    assert_ok(memlord_free(lord, cpu(), v.key, NULL));
    if (syscall(SYS_membarrier, 0L, 0L, 0L, 0L, 0L, 0L) <= 0) skip(); /* a kernel without it */
    assert_int_equal(barriers, 1);
    assert_int_equal(barriers_done, 1);
    assert_ok(memlord_alloc(lord, cpu(), v.key, 10, NULL)); /* it is shared from then on */
    assert_ok(memlord_free(lord, cpu(), v.key, NULL));
    assert_int_equal(barriers, 1);
}

static void a_thread_whose_end_cannot_be_noticed_shares_a_record_without_tags(void **state) {
    memlord *lord = test_lord(state);
    visitor v;
    TEST_THREADS();
    memset(&v, 0, sizeof v);
    v.lord = lord;
    v.key = 0x1000;
    v.refuse_hook = 1;
    visit_by_thread(&v);
    assert_int_equal(v.begin, MEMLORD_E_NOMEM);
    assert_null(v.tag);
    assert_int_equal(memlord_allocated(lord, cpu()), 10);
    assert_int_equal(tagged(lord), 0);
    assert_int_equal(stats_of(lord, all()).dropped_sites, 1);
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    assert_int_equal(stats_of(lord, cpu()).frees, 1);
}

static void threads_whose_end_was_missed_are_found_by_their_number(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t then = 0;
    visitor v;
    int i;
    TEST_THREADS();
    memset(&v, 0, sizeof v);
    v.lord = t->lord;
    v.forget_hook = 1;
    for (i = 1; i <= 200; i++) {
        v.key = (uint64_t)i * 64;
        visit_by_thread(&v);
        if (i == 40) then = t->heap.bytes;
    }
    assert_in_range(t->heap.bytes, then, then + (34 << 10)); /* a region, for the blocks */
    assert_int_equal(memlord_allocated(t->lord, cpu()), 2000);
    assert_int_equal(tagged(t->lord), 2000);
}

/* No thread is taken for ended then: each keeps its record, and the books are exact. */
static void threads_whose_end_was_missed_keep_their_records_where_none_can_be_asked_for(
    void **state) {
    test_case *t = (test_case *)*state;
    uint64_t then[3] = {0, 0, 0};
    visitor v;
    int i, how;
    TEST_THREADS();
    memset(&v, 0, sizeof v);
    v.lord = t->lord;
    v.forget_hook = 1;
    for (how = 0; how < 2; how++) {
        v.refuse_signals = how == 0;
        v.refuse_number = how == 1; /* its own number is then none of the kernel */
        for (i = 1; i <= 100; i++) {
            v.key = (uint64_t)(how * 100 + i) * 64;
            visit_by_thread(&v);
        }
        then[how + 1] = t->heap.bytes;
    }
    assert_true(then[1] > (64 << 10));
    assert_int_equal(memlord_allocated(t->lord, cpu()), 2000);
    assert_int_equal(tagged(t->lord), 2000);
}

/* The kernel gives numbers again. */
static void a_thread_with_the_number_of_one_whose_end_was_missed_begins_anew(void **state) {
    memlord *lord = test_lord(state), *other;
    test_heap heap;
    memlord_desc desc;
    visitor v;
    uint64_t taken;
    int i;
    TEST_THREADS();
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, 0);
    assert_ok(memlord_create(&desc, &other));
    memset(&v, 0, sizeof v);
    v.forget_hook = v.leave_open = 1;
    v.number = 0x7ffffff0; /* no process has it */
    for (i = 1; i <= 4; i++) {
        v.lord = i % 2 ? lord : other;
        v.key = (uint64_t)i * 64;
        visit_by_thread(&v);
        assert_null(v.tag_before); /* of the one before, who left two open */
        assert_ok(v.begin);
        assert_string_equal(v.tag, "visit");
    }
    assert_int_equal(tagged(lord), 20);
    assert_int_equal(tagged(other), 20);
    taken = heap.bytes;
    for (; i <= 200; i++) {
        v.lord = other;
        v.key = (uint64_t)i * 64;
        visit_by_thread(&v);
        assert_null(v.tag_before);
    }
    assert_int_equal(tagged(other), 20 + 1960);
    assert_in_range(heap.bytes, taken, taken + 100000);
    memlord_destroy(other);
    assert_int_equal(heap.bytes, 0);
}

static void a_thread_whose_number_is_not_told_has_a_record_all_the_same(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t then = 0;
    visitor v;
    int i;
    TEST_THREADS();
    memset(&v, 0, sizeof v);
    v.lord = t->lord;
    v.refuse_number = v.leave_open = 1;
    for (i = 1; i <= 20; i++) {
        v.key = (uint64_t)i * 64;
        visit_by_thread(&v);
        assert_null(v.tag_before);
        assert_ok(v.begin);
        if (i == 2) then = t->heap.bytes;
    }
    assert_int_equal(tagged(t->lord), 200);
    assert_int_equal(t->heap.bytes, then);
}

/* Frees a block of another thread's shard while the kernel refuses the barrier, and sleeps. */
static void free_without_a_barrier(memlord *lord, int still) {
    visitor v;
    memset(&v, 0, sizeof v);
    v.lord = lord;
    v.key = 0x7f0000001000u;
    visit_by_thread(&v);
    naps_until_open = 0;
    refuse_barriers = 1;
    stand_still = still;
    watch_begin();
    assert_ok(memlord_free(lord, cpu(), v.key, NULL));
    watch.on = 0;
    refuse_barriers = stand_still = 0;
}
/* Every store is visible by then. The refusal is for good: this is the last test. Where the clock
   stands still, too, it does not try for ever. */
static void a_thread_that_is_refused_the_barrier_sleeps_a_millisecond(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    pid_t pid;
    TEST_THREADS();
    if (syscall(SYS_membarrier, 0L, 0L, 0L, 0L, 0L, 0L) <= 0) skip(); /* a kernel without it */
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1, NULL)); /* or it would inherit the shard */
    pid = fork();
    if (pid == 0) {
        free_without_a_barrier(lord, 1);
        _exit(watch.naps == 1000 && memlord_allocated(lord, cpu()) == 0 ? 0 : 1);
    }
    assert_int_equal(child_status(pid), 0);
    free_without_a_barrier(lord, 0);
    assert_true(watch.naps >= 1);
    for (i = 0; i < watch.naps && i < 64; i++) assert_int_equal(watch.nap_ns[i], 1000000);
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
}

static void a_thread_that_waits_while_it_reads_a_clock_writes_all_events(void **state) {
    memlord *lord = test_lord(state);
    const struct timespec span = {0, 300000000};
    test_text text;
    const char *at;
    uint64_t i, begins = 0;
    assert_ok(memlord_events_start(lord, 64));
    (void)syscall(SYS_nanosleep, &span, NULL);
    for (i = 1; i <= 8; i++) assert_ok(memlord_alloc(lord, cuda(0), i << 12, i, NULL));
    memset(&text, 0, sizeof text);
    hold_clock = 1;
    assert_ok(memlord_write(lord, MEMLORD_FORMAT_TRACE, test_text_write, &text));
    hold_clock = 0;
    for (at = text.data; (at = strstr(at, "{\"ph\":\"b\"")) != NULL; at++) begins++;
    free(text.data);
    assert_int_equal(begins, 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_moment_is_written_as_its_date_and_time),
        TEST(a_clock_that_cannot_be_read_says_0),
        TEST(a_dated_file_is_written_beside_the_one_of_that_second),
        TEST(a_thread_that_waits_while_it_reads_a_clock_writes_all_events),
        cmocka_unit_test(blocks_of_the_os_are_zeroed_and_apart),
        cmocka_unit_test(a_block_outside_8_kib_to_1_mib_has_a_mapping_of_its_own),
        cmocka_unit_test(an_extent_is_aligned_wherever_the_kernel_maps_it),
        cmocka_unit_test(an_extent_is_used_to_its_last_page),
        cmocka_unit_test(pages_given_back_are_used_again_where_they_fit),
        cmocka_unit_test(pages_used_before_are_zeroed_and_others_are_not_touched),
        cmocka_unit_test(an_extent_requests_huge_pages_once_it_is_used_to_a_quarter),
        cmocka_unit_test(a_block_of_2_mib_requests_huge_pages_for_itself),
        cmocka_unit_test(without_pages_there_is_no_block_and_errno_stays),
        cmocka_unit_test_setup_teardown(a_stack_of_one_frame_is_that_frame, setup_stacks,
                                        test_teardown),
        cmocka_unit_test_setup_teardown(a_stack_without_frames_is_the_address_of_its_site,
                                        setup_stacks, test_teardown),
        cmocka_unit_test(who_waits_for_a_lock_yields_16_times_and_then_sleeps_longer_and_longer),
        cmocka_unit_test_setup_teardown(
            a_poller_that_cannot_wait_is_not_started_and_the_next_tries_again, setup_threads,
            test_teardown),
        TEST(a_free_of_another_threads_block_takes_one_barrier),
        TEST(a_thread_whose_end_cannot_be_noticed_shares_a_record_without_tags),
        TEST(threads_whose_end_was_missed_are_found_by_their_number),
        TEST(threads_whose_end_was_missed_keep_their_records_where_none_can_be_asked_for),
        TEST(a_thread_with_the_number_of_one_whose_end_was_missed_begins_anew),
        TEST(a_thread_whose_number_is_not_told_has_a_record_all_the_same),
        TEST(a_thread_that_is_refused_the_barrier_sleeps_a_millisecond),
    };
    return cmocka_run_group_tests_name("platform", tests, learn_the_key, NULL);
}
