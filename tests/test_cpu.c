/* The cpu's capacity: what /proc and cgroups say, read from roots that the tests write. */
#include "support.h"

#include "json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define NO_LIMIT_V1 "9223372036854771712\n"

/* -- a root of its own for each test -- */

typedef struct fixture {
    test_heap heap;
    memlord *lord;
    char dir[64];
    char root[80]; /* what the ledger is given */
    int descriptors; /* open before there was a ledger */
} fixture;

static int count_descriptors(void) {
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static char *path_of(const fixture *f, const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    return path;
}

static void put(const fixture *f, const char *name, const char *text) {
    char *path = path_of(f, name), *slash;
    FILE *file;
    for (slash = strchr(path + strlen(f->dir) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
        *slash = '/';
    }
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void put_number(const fixture *f, const char *name, uint64_t n) {
    char text[32];
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)n);
    put(f, name, text);
}

static void drop(const fixture *f, const char *name) {
    assert_int_equal(remove(path_of(f, name)), 0);
}

/* Files that cannot be read, whoever the user is: reading fails, or opening does. */
static void put_directory(const fixture *f, const char *name) {
    (void)remove(path_of(f, name));
    assert_int_equal(mkdir(path_of(f, name), 0777), 0);
}
static void put_loop(const fixture *f, const char *name) {
    (void)remove(path_of(f, name));
    assert_int_equal(symlink(path_of(f, name), path_of(f, name)), 0);
}

/* A machine of 16 GiB, 12 of them available. */
static const char *const meminfo = "MemTotal:       16777216 kB\n"
                                   "MemFree:         1048576 kB\n"
                                   "MemAvailable:   12582912 kB\n"
                                   "Buffers:          524288 kB\n"
                                   "Cached:          2097152 kB\n"
                                   "SwapCached:            0 kB\n";

static int open_fixture(void **state) {
    fixture *f = (fixture *)calloc(1, sizeof *f);
    const char *tmp = getenv("TMPDIR");
    if (!f) return -1;
    *state = f;
    snprintf(f->dir, sizeof f->dir, "%.40s/memlord-cpu-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(f->dir)) return -1;
    snprintf(f->root, sizeof f->root, "%s", f->dir);
    f->descriptors = count_descriptors();
    put(f, "proc/meminfo", meminfo);
    put(f, "proc/self/status", "Name:\tbox\nVmHWM:\t    9999 kB\nVmRSS:\t    1200 kB\n");
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

/* After any sample: nothing stays open, nothing allocated. */
static int close_fixture(void **state) {
    fixture *f = (fixture *)*state;
    int bad, after;
    memlord_destroy(f->lord);
    after = count_descriptors();
    bad = f->heap.blocks != 0 || f->heap.bad_frees != 0 || after != f->descriptors;
    if (bad) print_error("descriptors: %d before, %d after\n", f->descriptors, after);
    if (nftw(f->dir, remove_entry, 64, FTW_DEPTH | FTW_PHYS)) bad = 1;
    free(f);
    return bad ? -1 : 0;
}

/* The ledger begins with the first sample: the root may still be changed until then. */
static memlord_capacity sample(fixture *f) {
    memlord_capacity c;
    memlord_result r;
    if (!f->lord) {
        memlord_desc desc = test_desc(&f->heap, MEMLORD_FLAG_NO_THREADS);
        desc.proc_root = f->root;
        assert_ok(memlord_create(&desc, &f->lord));
    }
    memset(&c, 0xee, sizeof c);
    r = memlord_capacity_sample(f->lord, cpu());
    assert_ok(memlord_capacity_get(f->lord, cpu(), &c));
    assert_int_equal(c.known, r == MEMLORD_OK);
    if (!c.known) assert_int_equal(r, MEMLORD_E_UNKNOWN);
    return c;
}

static void expect(fixture *f, uint64_t total, uint64_t used) {
    memlord_capacity c = sample(f);
    assert_true(c.known);
    assert_int_equal(c.total, total);
    assert_int_equal(c.used, used);
}

static void expect_unknown(fixture *f) { assert_false(sample(f).known); }

/* Each of `texts`, up to NULL, in a file; then `good` again. */
static void expect_unknown_with(fixture *f, const char *name, const char *const *texts,
                                const char *good) {
    for (; *texts; texts++) {
        put(f, name, *texts);
        if (sample(f).known) fail_msg("known with '%s' in %s", *texts, name);
    }
    put(f, name, good);
    assert_true(sample(f).known);
}

/* A cgroup v2: of `path` below the mount. */
static void put_v2(const fixture *f, const char *path, const char *max, uint64_t current,
                   const char *stat) {
    char name[2048];
    snprintf(name, sizeof name, "sys/fs/cgroup%s/memory.max", path);
    put(f, name, max);
    snprintf(name, sizeof name, "sys/fs/cgroup%s/memory.current", path);
    put_number(f, name, current);
    snprintf(name, sizeof name, "sys/fs/cgroup%s/memory.stat", path);
    put(f, name, stat);
}

static void put_v1(const fixture *f, const char *path, const char *limit, uint64_t usage,
                   const char *stat) {
    char name[2048];
    snprintf(name, sizeof name, "sys/fs/cgroup/memory%s/memory.limit_in_bytes", path);
    put(f, name, limit);
    snprintf(name, sizeof name, "sys/fs/cgroup/memory%s/memory.usage_in_bytes", path);
    put_number(f, name, usage);
    snprintf(name, sizeof name, "sys/fs/cgroup/memory%s/memory.stat", path);
    put(f, name, stat);
}

static void in_v2(const fixture *f, const char *path) {
    char line[2048];
    snprintf(line, sizeof line, "0::%s\n", path);
    put(f, "proc/self/cgroup", line);
}

static void in_v1(const fixture *f, const char *path) {
    char lines[2048];
    snprintf(lines, sizeof lines, "9:name=systemd:/init\n4:cpu,memory:%s\n1:cpuset:/\n", path);
    put(f, "proc/self/cgroup", lines);
}

/* -- the machine alone -- */

static void without_cgroups_the_machine_is_the_capacity(void **state) {
    expect((fixture *)*state, 16 * GIB, 4 * GIB);
}

static void a_machine_with_nothing_available_is_full(void **state) {
    fixture *f = (fixture *)*state;
    put(f, "proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 0 kB\n");
    expect(f, MIB, MIB);
    put(f, "proc/meminfo", "MemTotal: 18014398509481983 kB\nMemAvailable: 0 kB\n");
    expect(f, UINT64_MAX - 1023, UINT64_MAX - 1023); /* the most that 64 bits hold */
}

static void no_meminfo_is_unknown(void **state) {
    fixture *f = (fixture *)*state;
    drop(f, "proc/meminfo");
    expect_unknown(f);
}

static void meminfo_that_makes_no_sense_is_unknown(void **state) {
    static const char *const texts[] = {
        "",
        "\n\n\n",
        "MemTotal",
        "MemTotal:",
        "MemTotal: 16777216 kB\n",
        "MemTotal: 16777216 kB\nMemFree: 1048576 kB\nBuffers: 524288 kB\nCached: 4 kB\n",
        "MemTotal: 16777216 kB\nMemAvailable: 125",
        "MemTotal: 16777216 kB\nMemAvailable: 12582912 k",
        "MemTotal: 16777216 kB\nMemAvailable: 12582912\n",
        "MemTotal: 0 kB\nMemAvailable: 0 kB\n",
        "MemTotal: -1 kB\nMemAvailable: 1 kB\n",
        "MemTotal: 0x10 kB\nMemAvailable: 1 kB\n",
        "MemTotal: 1024 kB\nMemAvailable: 1025 kB\n",
        "MemTotal: 18446744073709551616 kB\nMemAvailable: 1 kB\n",
        "MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB\n",
        "MemTotal: 18014398509481984 kB\nMemAvailable: 1 kB\n",
        "MemTotal: 16777216 MB\nMemAvailable: 12582912 MB\n",
        "NotMemTotal: 16777216 kB\nMemAvailable: 12582912 kB\n",
        NULL};
    expect_unknown_with((fixture *)*state, "proc/meminfo", texts, meminfo);
}

static void a_meminfo_without_end_is_unknown(void **state) {
    fixture *f = (fixture *)*state;
    char *text = (char *)malloc(100000);
    size_t n;
    assert_non_null(text);
    strcpy(text, meminfo);
    for (n = strlen(text); n < 99990; n++) text[n] = n % 50 ? 'x' : '\n';
    text[n] = 0;
    put(f, "proc/meminfo", text);
    expect_unknown(f);
    free(text);
}

static void the_host_keeps_its_errno(void **state) {
    fixture *f = (fixture *)*state;
    memlord_result r;
    (void)sample(f);
    errno = EDOM;
    (void)memlord_capacity_sample(f->lord, cpu());
    assert_int_equal(errno, EDOM);
    drop(f, "proc/meminfo");
    memlord_destroy(f->lord);
    f->lord = NULL;
    expect_unknown(f);
    errno = EDOM;
    r = memlord_capacity_sample(f->lord, cpu());
    assert_int_equal(errno, EDOM);
    assert_int_equal(r, MEMLORD_E_UNKNOWN);
}

/* -- the process -- */

static void the_process_has_its_resident_pages(void **state) {
    assert_int_equal(sample((fixture *)*state).process, 1200 * 1024);
}

static void a_process_of_unknown_size_does_not_hide_the_rest(void **state) {
    static const char *const texts[] = {"", "VmRSS:", "VmRSS:\t", "VmRSS:\tx kB", "VmRSS:\t30",
                                        "VmRSS: 99999999999999999999 kB\n",
                                        "VmRSS: 18446744073709551615 kB\n", NULL};
    fixture *f = (fixture *)*state;
    const char *const *text;
    for (text = texts; *text; text++) {
        put(f, "proc/self/status", *text);
        assert_int_equal(sample(f).process, 0);
        expect(f, 16 * GIB, 4 * GIB);
    }
    put_directory(f, "proc/self/status");
    assert_int_equal(sample(f).process, 0);
    expect(f, 16 * GIB, 4 * GIB);
}

/* -- cgroup v2 -- */

static void a_v2_limit_is_the_capacity(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/box");
    put_v2(f, "/box", "2147483648\n", 512 * MIB, "anon 1\n");
    expect(f, 2 * GIB, 512 * MIB);
}

static void the_machine_may_have_less_left_than_the_limit_leaves(void **state) {
    fixture *f = (fixture *)*state;
    put(f, "proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 1048576 kB\n");
    in_v2(f, "/box");
    put_v2(f, "/box", "4294967296\n", 0, "");
    expect(f, 4 * GIB, 3 * GIB);
}

static void page_cache_is_not_used(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/box");
    put_v2(f, "/box", "2147483648\n", GIB,
           "anon 1\nfile 805306368\nshmem 268435456\ninactive_anon 7\nactive_anon 7\n"
           "inactive_file 268435456\nactive_file 134217728\nunevictable 7\n");
    expect(f, 2 * GIB, 640 * MIB);
}

static void more_cache_than_is_used_leaves_all(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/box");
    put_v2(f, "/box", "2147483648\n", MIB, "inactive_file 2097152\nactive_file 1\n");
    expect(f, 2 * GIB, 0);
}

static void without_a_stat_page_cache_counts_as_used(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/box");
    put_v2(f, "/box", "2147483648\n", GIB, "");
    expect(f, 2 * GIB, GIB);
    drop(f, "sys/fs/cgroup/box/memory.stat");
    memlord_destroy(f->lord);
    f->lord = NULL;
    expect(f, 2 * GIB, GIB);
}

static void max_is_no_limit(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/box");
    put_v2(f, "/box", "max\n", GIB, "");
    expect(f, 16 * GIB, 4 * GIB);
}

static void a_limit_above_the_machine_is_ignored(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/box");
    put_v2(f, "/box", "17179869185\n", 15 * GIB, "");
    expect(f, 16 * GIB, 4 * GIB);
}

static void a_limit_that_comes_and_goes_is_followed(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/box");
    put_v2(f, "/box", "max\n", GIB, "");
    expect(f, 16 * GIB, 4 * GIB);
    put(f, "sys/fs/cgroup/box/memory.max", "2147483648\n");
    expect(f, 2 * GIB, GIB);
    put(f, "sys/fs/cgroup/box/memory.max", "max\n");
    expect(f, 16 * GIB, 4 * GIB);
}

static void the_throttling_limit_binds_too(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/box");
    put_v2(f, "/box", "2147483648\n", 512 * MIB, "");
    put(f, "sys/fs/cgroup/box/memory.high", "max\n");
    expect(f, 2 * GIB, 512 * MIB);
    put(f, "sys/fs/cgroup/box/memory.high", "1073741824\n");
    expect(f, GIB, 512 * MIB);
}

static void a_cgroup_over_its_limit_is_full_and_no_more(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/box");
    put_v2(f, "/box", "1073741824\n", 3 * GIB, "");
    expect(f, GIB, GIB);
}

static void an_ancestor_may_have_the_tightest_limit(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/a/b/c");
    put_v2(f, "/a", "1073741824\n", 256 * MIB, "");
    put_v2(f, "/a/b", "max\n", 128 * MIB, "");
    put_v2(f, "/a/b/c", "2147483648\n", 64 * MIB, "");
    expect(f, GIB, 256 * MIB);
}

static void the_fullest_ancestor_decides_what_is_left(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/a/b");
    put_v2(f, "/a", "4294967296\n", 4 * GIB - 128 * MIB, "");
    put_v2(f, "/a/b", "1073741824\n", 256 * MIB, "");
    expect(f, GIB, GIB - 128 * MIB);
}

static void the_top_of_the_mount_is_a_level_as_in_a_container(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/");
    put_v2(f, "", "1073741824\n", 256 * MIB, "inactive_file 1048576\n");
    expect(f, GIB, 255 * MIB);
}

static void every_level_of_a_deep_tree_binds(void **state) {
    fixture *f = (fixture *)*state;
    char path[256] = "";
    int i;
    for (i = 0; i < 40; i++) {
        strcat(path, "/d");
        put_v2(f, path, "max\n", 0, "");
    }
    put_v2(f, path, "2147483648\n", 64 * MIB, "");
    in_v2(f, path);
    expect(f, 2 * GIB, 64 * MIB);
    path[20 * 2] = 0;
    put_v2(f, path, "1073741824\n", 128 * MIB, "");
    expect(f, GIB, 128 * MIB);
}

static void a_number_needs_no_newline(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/box");
    put_v2(f, "/box", "2147483648", 0, "active_file 0");
    put(f, "sys/fs/cgroup/box/memory.current", "1048576");
    expect(f, 2 * GIB, MIB);
}

static void a_v2_limit_that_makes_no_sense_is_unknown(void **state) {
    static const char *const texts[] = {"", "\n", "0\n", "-1\n", "maximum\n", "1 2\n", "1k\n",
                                        " 5\n", "18446744073709551616\n", NULL};
    fixture *f = (fixture *)*state;
    in_v2(f, "/a/b");
    put_v2(f, "/a", "1073741824\n", MIB, "");
    put_v2(f, "/a/b", "max\n", MIB, "");
    expect_unknown_with(f, "sys/fs/cgroup/a/b/memory.max", texts, "max\n");
    expect_unknown_with(f, "sys/fs/cgroup/a/b/memory.high", texts, "max\n");
    expect_unknown_with(f, "sys/fs/cgroup/a/memory.max", texts, "1073741824\n");
}

static void usage_that_makes_no_sense_is_unknown(void **state) {
    static const char *const usages[] = {"", "\n", "-1\n", "max use\n", "12x\n",
                                         "99999999999999999999\n", "max\n", NULL};
    static const char *const stats[] = {"inactive_file\ninactive_file \n", "inactive_file x\n",
                                        "anon 1\nactive_file 99999999999999999999\n",
                                        "active_file 1 2\n", NULL};
    fixture *f = (fixture *)*state;
    in_v2(f, "/box");
    put_v2(f, "/box", "1073741824\n", MIB, "");
    expect_unknown_with(f, "sys/fs/cgroup/box/memory.current", usages, "1\n");
    expect_unknown_with(f, "sys/fs/cgroup/box/memory.stat", stats, "anon 1\n");
}

static void a_limit_without_usage_is_unknown(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/box");
    put(f, "sys/fs/cgroup/box/memory.max", "1073741824\n");
    expect_unknown(f);
}

/* Each file that a sample reads, but for that of the process. */
static void a_file_that_cannot_be_read_is_unknown(void **state) {
    static const char *const names[] = {"proc/meminfo", "proc/self/cgroup",
                                        "sys/fs/cgroup/box/memory.max",
                                        "sys/fs/cgroup/box/memory.high",
                                        "sys/fs/cgroup/box/memory.current",
                                        "sys/fs/cgroup/box/memory.stat"};
    fixture *f = (fixture *)*state;
    size_t i;
    put(f, "sys/fs/cgroup/box/memory.high", "max\n");
    in_v2(f, "/box");
    put_v2(f, "/box", "2147483648\n", GIB, "");
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *good = file_text(path_of(f, names[i]));
        assert_non_null(good);
        put_directory(f, names[i]);
        if (sample(f).known) fail_msg("known with a directory %s", names[i]);
        put_loop(f, names[i]);
        if (sample(f).known) fail_msg("known with a loop %s", names[i]);
        drop(f, names[i]);
        put(f, names[i], good);
        free(good);
        expect(f, 2 * GIB, GIB);
    }
}

static void a_level_that_is_no_directory_has_no_limit(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/box/inner");
    put(f, "sys/fs/cgroup/box", "");
    expect(f, 16 * GIB, 4 * GIB);
    put_v2(f, "", "2147483648\n", GIB, "");
    expect(f, 2 * GIB, GIB);
}

/* -- cgroup v1, hybrid -- */

static void a_v1_limit_is_the_capacity(void **state) {
    fixture *f = (fixture *)*state;
    in_v1(f, "/box");
    put(f, "sys/fs/cgroup/cpu/box/cpu.shares", "1024\n");
    put_v1(f, "/box", "2147483648\n", GIB,
           "cache 1\ninactive_file 99\nactive_file 99\n"
           "total_inactive_file 268435456\ntotal_active_file 134217728\n");
    put_v1(f, "", NO_LIMIT_V1, 9 * GIB, "");
    expect(f, 2 * GIB, 640 * MIB);
}

static void the_largest_number_of_v1_is_no_limit(void **state) {
    fixture *f = (fixture *)*state;
    in_v1(f, "/box");
    put_v1(f, "/box", NO_LIMIT_V1, GIB, "");
    put_v1(f, "", NO_LIMIT_V1, GIB, "");
    expect(f, 16 * GIB, 4 * GIB);
}

static void a_v1_limit_that_makes_no_sense_is_unknown(void **state) {
    static const char *const texts[] = {"", "-1\n", "0\n", "1e9\n", "18446744073709551616\n", NULL};
    static const char *const lines[] = {"hierarchical_memory_limit -1\n",
                                        "hierarchical_memory_limit 1e9\n", NULL};
    fixture *f = (fixture *)*state;
    in_v1(f, "/box");
    put_v1(f, "/box", "2147483648\n", 0, "");
    expect_unknown_with(f, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", texts, "4096\n");
    put_v1(f, "", NO_LIMIT_V1, GIB, "");
    expect_unknown_with(f, "sys/fs/cgroup/memory/memory.stat", lines, "");
}

/* systemd's hybrid: v2 is mounted, and every process is in it, but v1 has the memory. */
static void in_a_hybrid_v1_decides(void **state) {
    fixture *f = (fixture *)*state;
    put(f, "proc/self/cgroup", "4:memory:/one\n1:name=systemd:/two\n0::/two\n");
    put_v1(f, "/one", "1073741824\n", MIB, "");
    put(f, "sys/fs/cgroup/unified/two/memory.max", "4096\n");
    put(f, "sys/fs/cgroup/unified/two/memory.current", "1\n");
    expect(f, GIB, MIB);
}

static void in_the_other_hybrid_v2_decides(void **state) {
    fixture *f = (fixture *)*state;
    put(f, "proc/self/cgroup", "0::/two\n4:memoryless,cpu:/one\n1:name=memory:/one\n");
    put_v2(f, "/two", "1073741824\n", MIB, "");
    expect(f, GIB, MIB);
    put(f, "proc/self/cgroup", "0::/two\n4:cpu:/one,memory,one\n"); /* a name, not a controller */
    expect(f, GIB, MIB);
}

/* -- where cgroups are -- */

/* As docker has it: the names are the machine's, the files begin with the container's own. */
static void a_container_has_its_own_limit_at_the_top(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/docker/abc");
    put_v2(f, "", "1073741824\n", 2 * MIB, "");
    expect(f, GIB, 2 * MIB);
}

static void a_v1_container_has_its_own_limit_at_the_top(void **state) {
    fixture *f = (fixture *)*state;
    in_v1(f, "/docker/abc");
    put_v1(f, "", "1073741824\n", 2 * MIB, "");
    expect(f, GIB, 2 * MIB);
}

/* The own cgroup has no limit; one above, which only memory.stat tells of, has. */
static void a_v1_limit_above_the_container_counts(void **state) {
    fixture *f = (fixture *)*state;
    in_v1(f, "/kubepods/pod1/c1");
    put_v1(f, "", NO_LIMIT_V1, 200 * MIB, "cache 0\nhierarchical_memory_limit 536870912\n");
    expect(f, 512 * MIB, 200 * MIB);
    put_v1(f, "", "268435456\n", 200 * MIB, "hierarchical_memory_limit 536870912\n");
    expect(f, 256 * MIB, 200 * MIB);
    put_v1(f, "/kubepods/pod1/c1", "1073741824\n", MIB, "hierarchical_memory_limit 4096\n");
    put_v1(f, "", NO_LIMIT_V1, 9 * GIB, "hierarchical_memory_limit " NO_LIMIT_V1);
    expect(f, GIB, MIB); /* the files of this cgroup tell its limit */
}

static void a_cgroup_outside_of_what_is_shown_is_passed_over(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/../elsewhere");
    put_v2(f, "", "1073741824\n", MIB, "");
    expect(f, GIB, MIB);
}

static void cgroups_mounted_elsewhere_read_as_the_machine(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/box");
    put(f, "cgroup2/box/memory.max", "1073741824\n");
    put(f, "cgroup2/box/memory.current", "1048576\n");
    expect(f, 16 * GIB, 4 * GIB);
}

static void a_cgroup_may_have_spaces(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/a b");
    put_v2(f, "/a b", "1073741824\n", MIB, "");
    expect(f, GIB, MIB);
}

static void a_path_too_long_for_us_is_unknown(void **state) {
    fixture *f = (fixture *)*state;
    char path[1500];
    int i;
    for (i = 0; i < 1499; i++) path[i] = i % 100 ? 'x' : '/';
    path[i] = 0;
    in_v2(f, path);
    expect_unknown(f);
}

static void cgroup_lines_that_make_no_sense_are_passed_over(void **state) {
    fixture *f = (fixture *)*state;
    put(f, "proc/self/cgroup", "\n:\n::\n4:memory\n5:memory:relative\n:::\nx\n0::/box");
    put_v2(f, "/box", "1073741824\n", MIB, "");
    expect(f, GIB, MIB);
    put(f, "proc/self/cgroup", "");
    expect(f, 16 * GIB, 4 * GIB);
}

static void a_move_to_another_cgroup_is_noticed(void **state) {
    fixture *f = (fixture *)*state;
    in_v2(f, "/a");
    put_v2(f, "/a", "1073741824\n", MIB, "");
    put_v2(f, "/b", "2147483648\n", 2 * MIB, "");
    expect(f, GIB, MIB);
    put(f, "proc/self/cgroup", "0::/b\n");
    expect(f, 2 * GIB, 2 * MIB);
    put(f, "proc/self/cgroup", "0::/a\n");
    expect(f, GIB, MIB);
}

/* -- the root itself -- */

static void a_root_that_is_not_there_is_unknown(void **state) {
    fixture *f = (fixture *)*state;
    snprintf(f->root, sizeof f->root, "%s/nowhere", f->dir);
    expect_unknown(f);
}

static void this_machine_is_known(void **state) {
    fixture *f = (fixture *)*state;
    memlord_capacity c;
    if (access("/proc/self/status", R_OK)) skip();
    f->root[0] = 0;
    c = sample(f);
    assert_true(c.known);
    assert_true(c.total > 0 && c.used > 0 && c.used <= c.total);
    assert_true(c.process > 0);
}

/* -- descriptors and processes -- */

static void a_sample_leaves_nothing_open(void **state) {
    fixture *f = (fixture *)*state;
    int before = count_descriptors();
    in_v2(f, "/a/b");
    put_v2(f, "/a", "max\n", MIB, "");
    put_v2(f, "/a/b", "1073741824\n", MIB, "");
    expect(f, GIB, MIB);
    assert_int_equal(count_descriptors(), before);
}

static void expect_child(pid_t pid) {
    int status = -1;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) fail_msg("the child died of signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* In a child: 0 if a sample says so. */
static int child_sees(memlord *lord, uint64_t total, uint64_t used) {
    memlord_capacity c;
    if (memlord_capacity_sample(lord, cpu())) return 1;
    if (memlord_capacity_get(lord, cpu(), &c) || !c.known) return 2;
    return c.total != total || c.used != used ? 3 : 0;
}

static void closed_standard_streams_are_not_taken(void **state) {
    fixture *f = (fixture *)*state;
    pid_t pid;
    (void)sample(f);
    pid = fork();
    if (pid == 0) {
        int fd, bad;
        for (fd = 0; fd < 3; fd++) close(fd);
        bad = child_sees(f->lord, 16 * GIB, 4 * GIB);
        for (fd = 0; fd < 3; fd++)
            if (fcntl(fd, F_GETFD) != -1) bad = 10 + fd;
        _exit(bad);
    }
    expect_child(pid);
}

static void a_child_sees_its_own_size(void **state) {
    fixture *f = (fixture *)*state;
    pid_t pid;
    uint64_t parent;
    if (access("/proc/self/status", R_OK)) skip();
    f->root[0] = 0;
    parent = sample(f).process;
    assert_true(parent > 0);
    pid = fork();
    if (pid == 0) {
        memlord_capacity c;
        volatile char *more = (volatile char *)malloc(64 * MIB);
        uint64_t i;
        for (i = 0; more && i < 64 * MIB; i += 1024) more[i] = 1;
        if (memlord_capacity_sample(f->lord, cpu())) _exit(1);
        if (memlord_capacity_get(f->lord, cpu(), &c)) _exit(2);
        _exit(c.process > 48 * MIB ? 0 : 3);
    }
    expect_child(pid);
    assert_true(sample(f).process < parent + 32 * MIB);
}

#define ROOTED(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

/* -- the names of other processes at a device -- */

static int ask_others(void *user, memlord_device device, memlord_capacity *out) {
    (void)user;
    (void)device;
    out->total = 1000;
    out->used = 900;
    out->others[0].pid = 4711;
    out->others[0].bytes = 600;
    out->others[1].pid = 4712;
    out->others[1].bytes = 100;
    out->others[2].pid = UINT64_MAX; /* whose path is the longest */
    out->others[2].bytes = 1;
    return 0;
}

/* What memlord_explain says of cuda:0 to a ledger with a root. */
static const char *explained_at(fixture *f, const char *root) {
    static char text[4096];
    memlord_desc desc = test_desc(&f->heap, MEMLORD_FLAG_NO_THREADS);
    desc.proc_root = root;
    assert_ok(memlord_create(&desc, &f->lord));
    assert_ok(memlord_capacity_source_set(f->lord, MEMLORD_DEVICE_CUDA, ask_others, NULL));
    assert_ok(memlord_capacity_sample(f->lord, memlord_device_cuda(0)));
    (void)memlord_explain(f->lord, memlord_device_cuda(0), 1, text, sizeof text);
    return text;
}
/* The namespace is that of the ledger's process. */
static const char *explained(fixture *f, const char *namespace_of_pids) {
    put(f, "proc/self/ns/x", "");
    assert_int_equal(symlink(namespace_of_pids, path_of(f, "proc/self/ns/pid")), 0);
    return explained_at(f, f->root);
}

static void other_processes_have_their_names(void **state) {
    fixture *f = (fixture *)*state;
    char *text;
    put(f, "proc/4711/comm", "python3\n");
    assert_non_null(strstr(explained(f, "pid:[4026531836]"),
                           "; others: pid 4711 (python3) holds 600 B, pid 4712 holds 100 B"));
    text = report_of(f->lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "\ncuda:0: others: pid 4711 (python3) holds 600 B, pid 4712"));
    free(text);
    text = report_of(f->lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(text, "{\"pid\":4711,\"bytes\":600,\"name\":\"python3\"}"));
    assert_non_null(strstr(text, "{\"pid\":4712,\"bytes\":100,\"name\":null}"));
    free(text);
}

/* There the driver's numbers are those of other processes than ours. */
static void in_a_container_no_name_is_guessed(void **state) {
    fixture *f = (fixture *)*state;
    static const char *const inner[] = {"pid:[4026532000]", "pid:[4026531836]0", "pid:[40]"};
    size_t i;
    put(f, "proc/4711/comm", "stranger\n");
    for (i = 0; i < 3; i++) {
        assert_non_null(strstr(explained(f, inner[i]),
                               "; others: pid 4711 holds 600 B, pid 4712 holds 100 B"));
        memlord_destroy(f->lord);
        f->lord = NULL;
        drop(f, "proc/self/ns/pid");
    }
}

static void a_long_name_of_a_process_is_cut(void **state) {
    fixture *f = (fixture *)*state;
    put(f, "proc/4711/comm", "0123456789012345678901234567890123456789");
    assert_non_null(strstr(explained(f, "pid:[4026531836]"),
                           "; others: pid 4711 (0123456789012345678901234567890) holds 600 B, "));
}

static void a_hostile_name_of_a_process_is_escaped(void **state) {
    fixture *f = (fixture *)*state;
    const char *c;
    char *text;
    put(f, "proc/4711/comm", "\x1b[31m%n\x7f\xff\"<");
    put(f, "proc/4712/comm", "0123456789012345678901234567890123456789");
    for (c = explained(f, "pid:[4026531836]"); *c; c++)
        assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
    text = report_of(f->lord, MEMLORD_FORMAT_JSON);
    assert_true(json_valid(text));
    assert_int_equal(json_u64(text, "capacity[0].other_processes[1].bytes"), 100);
    free(text);
}

static void names_that_cannot_be_read_are_left_out(void **state) {
    fixture *f = (fixture *)*state;
    put(f, "proc/4711/comm/x", ""); /* a directory */
    put(f, "proc/4712/comm", "");
    assert_non_null(strstr(explained(f, "pid:[4026531836]"),
                           "; others: pid 4711 holds 600 B, pid 4712 holds 100 B"));
}

/* A path of 300 bytes or more is not looked at: that of the name has 15 behind the root, that of the
   namespace 17. */
static void of_a_root_that_is_too_long_no_name_is_read(void **state) {
    static const size_t longest = 299 - sizeof "/proc/self/ns/pid" + 1;
    fixture *f = (fixture *)*state;
    char root[400];
    size_t extra;
    put(f, "proc/4711/comm", "python3\n");
    put(f, "proc/self/ns/x", "");
    assert_int_equal(symlink("pid:[4026531836]", path_of(f, "proc/self/ns/pid")), 0);
    for (extra = 0; extra < 2; extra++) {
        size_t n = strlen(f->root);
        memcpy(root, f->root, n);
        while (n < longest + extra) root[n++] = '/';
        root[n] = 0;
        assert_non_null(strstr(explained_at(f, root), extra ? "; others: pid 4711 holds"
                                                            : "; others: pid 4711 (python3) holds"));
        if (!extra) memlord_destroy(f->lord);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ROOTED(without_cgroups_the_machine_is_the_capacity),
        ROOTED(a_machine_with_nothing_available_is_full),
        ROOTED(no_meminfo_is_unknown),
        ROOTED(meminfo_that_makes_no_sense_is_unknown),
        ROOTED(a_meminfo_without_end_is_unknown),
        ROOTED(the_host_keeps_its_errno),
        ROOTED(the_process_has_its_resident_pages),
        ROOTED(a_process_of_unknown_size_does_not_hide_the_rest),
        ROOTED(a_v2_limit_is_the_capacity),
        ROOTED(the_machine_may_have_less_left_than_the_limit_leaves),
        ROOTED(page_cache_is_not_used),
        ROOTED(more_cache_than_is_used_leaves_all),
        ROOTED(without_a_stat_page_cache_counts_as_used),
        ROOTED(max_is_no_limit),
        ROOTED(a_limit_above_the_machine_is_ignored),
        ROOTED(a_limit_that_comes_and_goes_is_followed),
        ROOTED(the_throttling_limit_binds_too),
        ROOTED(a_cgroup_over_its_limit_is_full_and_no_more),
        ROOTED(an_ancestor_may_have_the_tightest_limit),
        ROOTED(the_fullest_ancestor_decides_what_is_left),
        ROOTED(the_top_of_the_mount_is_a_level_as_in_a_container),
        ROOTED(every_level_of_a_deep_tree_binds),
        ROOTED(a_number_needs_no_newline),
        ROOTED(a_v2_limit_that_makes_no_sense_is_unknown),
        ROOTED(usage_that_makes_no_sense_is_unknown),
        ROOTED(a_limit_without_usage_is_unknown),
        ROOTED(a_file_that_cannot_be_read_is_unknown),
        ROOTED(a_level_that_is_no_directory_has_no_limit),
        ROOTED(a_v1_limit_is_the_capacity),
        ROOTED(the_largest_number_of_v1_is_no_limit),
        ROOTED(a_v1_limit_that_makes_no_sense_is_unknown),
        ROOTED(in_a_hybrid_v1_decides),
        ROOTED(in_the_other_hybrid_v2_decides),
        ROOTED(a_container_has_its_own_limit_at_the_top),
        ROOTED(a_v1_container_has_its_own_limit_at_the_top),
        ROOTED(a_v1_limit_above_the_container_counts),
        ROOTED(a_cgroup_outside_of_what_is_shown_is_passed_over),
        ROOTED(cgroups_mounted_elsewhere_read_as_the_machine),
        ROOTED(a_cgroup_may_have_spaces),
        ROOTED(a_path_too_long_for_us_is_unknown),
        ROOTED(cgroup_lines_that_make_no_sense_are_passed_over),
        ROOTED(a_move_to_another_cgroup_is_noticed),
        ROOTED(a_root_that_is_not_there_is_unknown),
        ROOTED(this_machine_is_known),
        ROOTED(a_sample_leaves_nothing_open),
        ROOTED(closed_standard_streams_are_not_taken),
        ROOTED(a_child_sees_its_own_size),
        ROOTED(other_processes_have_their_names),
        ROOTED(in_a_container_no_name_is_guessed),
        ROOTED(a_long_name_of_a_process_is_cut),
        ROOTED(a_hostile_name_of_a_process_is_escaped),
        ROOTED(names_that_cannot_be_read_are_left_out),
        ROOTED(of_a_root_that_is_too_long_no_name_is_read),
    };
    return cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
}
