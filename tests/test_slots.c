/* The pressure page word by word: one ledger without threads, beside neighbours that the test plays
   itself. It holds the lock of a slot, as a process does, and writes there what it likes. */
#include "support.h"
#include "kernel.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

/* -- the file, as version 1 has it -- */

typedef struct device_words {
    uint64_t id, held, spare, failing, wanted, asked, released;
} device_words;
typedef struct slot_words {
    uint64_t pid, started;
    device_words devices[17];
    uint64_t answered[64], request, owner;
} slot_words;
typedef struct page_words {
    uint64_t magic, version, unused[6];
    struct {
        uint32_t rings, resting, unused[14];
    } bells[64];
    slot_words slots[64];
} page_words;

#define PAGE_BYTES (128 << 10)
#define OWN 1 /* the slot of the ledger, as a neighbour has the first */

typedef struct fixture {
    test_heap heap;
    memlord *lord;
    test_log log;
    test_gc gc;
    char path[64], root[80]; /* root: what the ledger has in place of / */
    int fds[64];             /* of the slots that the test has locked */
    page_words *page;
    int descriptors;
} fixture;

/* FNV-1a, of 64 bits. */
static uint64_t identity(const char *text) {
    uint64_t hash = 14695981039346656037u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

static int count_descriptors(void) {
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}
static int count_mappings(const char *path) {
    char *maps = file_text("/proc/self/maps"), *at = maps;
    int n = 0;
    assert_non_null(maps);
    while ((at = strstr(at, path)) != NULL) at++, n++;
    free(maps);
    return n;
}

static int slot_lock(int fd, int slot, int type) {
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = (short)type;
    lock.l_start = slot;
    lock.l_len = 1;
    return fcntl(fd, F_OFD_SETLK, &lock);
}
static int slot_is_locked(const fixture *f, int slot) {
    struct flock lock;
    int fd = open(f->path, O_RDWR), r;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    lock.l_start = slot;
    lock.l_len = 1;
    r = fcntl(fd, F_OFD_GETLK, &lock);
    (void)close(fd);
    assert_int_equal(r, 0);
    return lock.l_type != F_UNLCK;
}

static void put(const fixture *f, const char *name, const char *text) {
    char path[256], *slash;
    FILE *file;
    snprintf(path, sizeof path, "%s%s", f->root, name);
    for (slash = strchr(path + strlen(f->root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
        *slash = '/';
    }
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}
static void drop(const fixture *f, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s%s", f->root, name);
    (void)remove(path);
}

static memlord *ledger(fixture *f, const char *root) {
    memlord_desc desc = test_desc(&f->heap, MEMLORD_FLAG_NO_THREADS);
    memlord *lord;
    desc.proc_root = root;
    desc.poll_ms = 10;
    desc.logger.fn = test_log_line;
    desc.logger.user = &f->log;
    assert_ok(memlord_create(&desc, &lord));
    return lord;
}
static int setup(void **state) {
    static int number;
    fixture *f = (fixture *)calloc(1, sizeof *f);
    int i;
    *state = f;
    pthread_mutex_init(&f->log.lock, NULL);
    for (i = 0; i < 64; i++) f->fds[i] = -1;
    snprintf(f->path, sizeof f->path, "/tmp/memlord-slots-%d-%d", (int)getpid(), number);
    snprintf(f->root, sizeof f->root, "/tmp/memlord-root-%d-%d", (int)getpid(), number++);
    if (mkdir(f->root, 0700)) return -1;
    put(f, "/proc/sys/kernel/random/boot_id", "11112222\n");
    f->descriptors = count_descriptors();
    f->lord = ledger(f, f->root);
    f->gc.answer.ran = 1;
    return 0;
}
static int teardown(void **state) {
    fixture *f = (fixture *)*state;
    int i, bad = memlord_verify(f->lord) == MEMLORD_E_STATE;
    char command[128];
    memlord_destroy(f->lord);
    if (f->page) (void)munmap(f->page, PAGE_BYTES);
    for (i = 0; i < 64; i++)
        if (f->fds[i] >= 0) (void)close(f->fds[i]);
    bad |= f->heap.blocks || f->heap.bad_frees || count_descriptors() != f->descriptors ||
           count_mappings(f->path);
    (void)unlink(f->path);
    snprintf(command, sizeof command, "rm -rf %s", f->root);
    bad |= system(command) != 0;
    free(f);
    return bad ? -1 : 0;
}

/* Maps the page, and makes the file first if there is none. */
static void map_page(fixture *f) {
    int fd;
    memlord *maker = ledger(f, f->root);
    assert_ok(memlord_pressure_open(maker, f->path));
    memlord_destroy(maker);
    fd = open(f->path, O_RDWR);
    assert_true(fd >= 0);
    f->page = (page_words *)mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    assert_true(f->page != MAP_FAILED);
    memset(f->page->bells, 0, sizeof f->page->bells);
}
/* The slot of a neighbour that the test plays from now on. */
static slot_words *played(fixture *f, int slot) {
    f->fds[slot] = open(f->path, O_RDWR);
    assert_true(f->fds[slot] >= 0);
    assert_int_equal(slot_lock(f->fds[slot], slot, F_WRLCK), 0);
    f->page->slots[slot].owner = 1000u << 10 | (unsigned)(slot + 1);
    return &f->page->slots[slot];
}
static fixture *joined(void **state) {
    fixture *f = (fixture *)*state;
    map_page(f);
    (void)played(f, 0);
    assert_ok(memlord_device_id_set(f->lord, cuda(0), "GPU-0"));
    assert_ok(memlord_pressure_open(f->lord, f->path));
    return f;
}
static void poll_all(fixture *f) { assert_ok(memlord_gc_poll(f->lord, all())); }
static void serves(fixture *f, memlord_device device, test_gc *gc) {
    assert_ok(memlord_alloc(f->lord, device, 0x900000 + (uint64_t)device.index * 64, 1, NULL));
    assert_ok(memlord_gc_callback_add(f->lord, device, 1u << MEMLORD_REASON_NEIGHBOUR, test_gc_run,
                                      gc));
    poll_all(f);
}

/* The words of a device in a slot, by its identity; NULL: it has none there. */
static device_words *device_in(slot_words *slot, const char *name) {
    size_t i;
    for (i = 0; i < 17; i++)
        if (slot->devices[i].id == identity(name)) return &slot->devices[i];
    return NULL;
}
static uint64_t now_ns(clockid_t clock) {
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint64_t neighbours(fixture *f, memlord_device device) {
    poll_all(f);
    return stats_of(f->lord, device).neighbours;
}

/* -- what a ledger writes -- */

static void the_head_and_the_slot_say_whose_they_are(void **state) {
    const uint64_t wall = now_ns(CLOCK_REALTIME), start = now_ns(CLOCK_MONOTONIC);
    fixture *f = joined(state);
    slot_words *own = &f->page->slots[OWN];
    struct stat st;
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_size, PAGE_BYTES);
    assert_int_equal(f->page->magic, 0x6d656d6c6f726470u);
    assert_int_equal(f->page->version, 1);
    assert_int_equal(own->pid, getpid());
    assert_in_range(own->started, wall - 1000000000u, wall + 60000000000u);
    assert_int_equal(own->owner & 1023, OWN + 1);
    assert_in_range(own->owner >> 10, start, now_ns(CLOCK_MONOTONIC));
    assert_true(slot_is_locked(f, OWN));
    assert_ok(memlord_pressure_close(f->lord));
    assert_int_equal(own->owner, 0);
    assert_false(slot_is_locked(f, OWN));
}

static int not_done(void *user) { return *(int *)user; }
static void a_device_has_what_is_held_and_what_is_idle(void **state) {
    fixture *f = joined(state);
    int done = 0;
    const memlord_fence fence = {not_done, &done, 1, NULL};
    device_words *d;
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, 5 * MIB, NULL));
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x2000, MIB, NULL));
    poll_all(f);
    d = device_in(&f->page->slots[OWN], "GPU-0");
    assert_non_null(d);
    assert_int_equal(d->held, 6 * MIB);
    assert_int_equal(d->spare + d->failing + d->wanted + d->asked + d->released, 0);
    assert_ok(memlord_pool_set(f->lord, cuda(0), 9 * MIB, MIB));
    assert_ok(memlord_free_deferred(f->lord, cuda(0), 0x2000, fence, NULL));
    poll_all(f);
    assert_int_equal(d->held, 9 * MIB);
    assert_int_equal(d->spare, 4 * MIB); /* 3 idle in the pool, 1 pending */
    assert_ok(memlord_pool_set(f->lord, cuda(0), 2 * MIB, MIB));
    poll_all(f);
    assert_int_equal(d->held, 6 * MIB);
    assert_int_equal(d->spare, MIB);
    done = 1;
    poll_all(f);
    poll_all(f);
    assert_int_equal(d->held, 5 * MIB);
    assert_int_equal(d->spare, 0);
}

static void devices_of_one_memory_are_one_sum(void **state) {
    fixture *f = joined(state);
    assert_ok(memlord_device_share(f->lord, cuda(1), cuda(0)));
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, 5 * MIB, NULL));
    assert_ok(memlord_alloc(f->lord, cuda(1), 0x2000, 2 * MIB, NULL));
    assert_ok(memlord_pool_set(f->lord, cuda(0), 6 * MIB, MIB));
    assert_ok(memlord_pool_set(f->lord, cuda(1), 4 * MIB, MIB));
    poll_all(f);
    assert_int_equal(device_in(&f->page->slots[OWN], "GPU-0")->held, 10 * MIB);
    assert_int_equal(device_in(&f->page->slots[OWN], "GPU-0")->spare, 3 * MIB);
}

static void a_failure_stands_there_until_an_allocation_succeeds(void **state) {
    fixture *f = joined(state);
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, MIB, NULL));
    assert_ok(memlord_alloc_failed(f->lord, cuda(0), MIB, NULL));
    poll_all(f);
    assert_int_equal(device_in(&f->page->slots[OWN], "GPU-0")->failing, 1);
}

static void a_device_that_loses_its_identity_leaves_the_page(void **state) {
    fixture *f = joined(state);
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, MIB, NULL));
    poll_all(f);
    assert_non_null(device_in(&f->page->slots[OWN], "GPU-0"));
    assert_ok(memlord_device_id_set(f->lord, cuda(0), "GPU-1"));
    poll_all(f);
    assert_null(device_in(&f->page->slots[OWN], "GPU-0"));
    assert_int_equal(device_in(&f->page->slots[OWN], "GPU-1")->held, MIB);
    assert_ok(memlord_device_id_set(f->lord, cuda(0), ""));
    poll_all(f);
    assert_null(device_in(&f->page->slots[OWN], "GPU-1"));
    assert_ok(memlord_device_id_set(f->lord, cuda(0), "GPU-1"));
    poll_all(f);
    assert_int_equal(device_in(&f->page->slots[OWN], "GPU-1")->held, MIB);
    assert_ok(memlord_device_id_set(f->lord, cuda(0), NULL));
    poll_all(f);
    assert_null(device_in(&f->page->slots[OWN], "GPU-1"));
}

static void the_eighteenth_device_has_no_room_and_is_told_once(void **state) {
    fixture *f = joined(state);
    int i;
    char name[32];
    for (i = 0; i < 18; i++) {
        snprintf(name, sizeof name, "GPU-%d", i);
        assert_ok(memlord_device_id_set(f->lord, cuda(i), name));
        assert_ok(memlord_alloc(f->lord, cuda(i), 0x1000 * (uint64_t)(i + 1), MIB, NULL));
        assert_int_equal(f->log.lines[MEMLORD_LOG_WARNING], 0);
        if (i == 15) poll_all(f); /* with the host's memory they are 17 */
    }
    poll_all(f);
    poll_all(f);
    assert_int_equal(f->log.lines[MEMLORD_LOG_WARNING], 1);
    assert_non_null(strstr(f->log.text, "[neighbours] more than 16 devices: the page has no room"));
    assert_non_null(device_in(&f->page->slots[OWN], "GPU-15"));
    assert_null(device_in(&f->page->slots[OWN], "GPU-16"));
}

static void what_another_overwrites_is_written_again(void **state) {
    fixture *f = joined(state);
    slot_words before = f->page->slots[OWN];
    memset(f->page, 0xa5, sizeof *f->page);
    poll_all(f);
    assert_int_equal(f->page->magic, 0x6d656d6c6f726470u);
    assert_int_equal(f->page->version, 1);
    assert_memory_equal(&f->page->slots[OWN].devices, &before.devices, sizeof before.devices);
    assert_int_equal(f->page->slots[OWN].pid, before.pid);
    assert_int_equal(f->page->slots[OWN].owner, before.owner);
    assert_int_equal(f->page->slots[OWN].request, before.request);
}

/* -- slots -- */

static void a_slot_that_another_holds_is_passed_by(void **state) {
    fixture *f = (fixture *)*state;
    map_page(f);
    (void)played(f, 0);
    (void)played(f, 1);
    assert_ok(memlord_pressure_open(f->lord, f->path));
    assert_int_equal(f->page->slots[2].pid, getpid());
    assert_int_equal(f->page->slots[2].owner & 1023, 3);
    assert_int_equal(f->page->slots[1].owner, 1000u << 10 | 2);
}

static void a_claim_clears_what_a_dead_process_left(void **state) {
    fixture *f = (fixture *)*state;
    slot_words *own;
    size_t i;
    map_page(f);
    own = &f->page->slots[0];
    memset(own, 0x77, sizeof *own);
    f->page->slots[5].request = 55;
    assert_ok(memlord_pressure_open(f->lord, f->path));
    for (i = 1; i < 17; i++) assert_int_equal(own->devices[i].id | own->devices[i].held, 0);
    assert_int_equal(own->devices[0].wanted | own->devices[0].asked | own->devices[0].released, 0);
    for (i = 1; i < 64; i++) assert_int_equal(own->answered[i], i == 5 ? 55 : 0);
    assert_int_equal(own->request, 0);
}

static void the_slot_of_a_dead_process_is_freed_and_no_other(void **state) {
    fixture *f = joined(state);
    slot_words *alive = played(f, 20), *dead = &f->page->slots[21];
    dead->owner = 1000u << 10 | 22;
    f->page->slots[63].owner = 1000u << 10 | 64;
    poll_all(f);
    assert_int_equal(dead->owner, 0);
    assert_int_equal(f->page->slots[63].owner, 0);
    assert_int_equal(f->page->slots[0].owner, 1000u << 10 | 1);
    assert_false(slot_is_locked(f, 21));
    assert_int_equal(alive->owner, 1000u << 10 | 21);
    (void)close(f->fds[20]);
    f->fds[20] = -1;
    poll_all(f);
    assert_int_equal(alive->owner, 0);
    assert_true(slot_is_locked(f, OWN));
}

/* -- what a ledger reads -- */

static void the_bytes_of_all_neighbours_at_the_identity_are_summed(void **state) {
    fixture *f = joined(state);
    slot_words *one = &f->page->slots[0], *two = played(f, 63);
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, MIB, NULL));
    one->devices[0].id = one->devices[16].id = two->devices[3].id = identity("GPU-0");
    one->devices[1].id = identity("GPU-1");
    one->devices[0].held = 1;
    one->devices[16].held = 20;
    one->devices[1].held = 300;
    two->devices[3].held = 4000;
    two->devices[4].held = 50000; /* no identity */
    assert_int_equal(neighbours(f, cuda(0)), 4021);
    two->devices[3].held = UINT64_MAX;
    assert_int_equal(neighbours(f, cuda(0)), UINT64_MAX);
    two->devices[4].id = identity("GPU-0");
    assert_int_equal(neighbours(f, cuda(0)), UINT64_MAX);
    one->owner = 0;
    two->devices[3].id = 0;
    assert_int_equal(neighbours(f, cuda(0)), 50000);
    assert_int_equal(neighbours(f, cpu()), 0);
}

/* A slot after the last, and words of a slot that look like a device after its last. */
static void what_lies_behind_the_slots_and_devices_is_not_read(void **state) {
    fixture *f = joined(state);
    slot_words *other = played(f, 40), *behind = (slot_words *)(void *)(f->page + 1);
    const device_words device = {identity("GPU-0"), 5000, 0, 1, MIB, 7001, 0};
    const uint64_t start = now_ns(CLOCK_MONOTONIC);
    char line[1024];
    serves(f, cuda(0), &f->gc);
    memcpy(other->answered, &device, sizeof device);
    other->request = 7001;
    behind->devices[0] = device;
    behind->request = 7001;
    behind->owner = 1000u << 10 | 65;
    assert_int_equal(neighbours(f, cuda(0)), 0);
    assert_int_equal(test_gc_runs(&f->gc), 0);
    assert_int_equal(memlord_pressure_level(f->lord, cuda(0)), MEMLORD_PRESSURE_UNKNOWN);
    assert_int_equal(memlord_pressure_raise(f->lord, cuda(0), 1), MEMLORD_E_OOM);
    assert_true(now_ns(CLOCK_MONOTONIC) - start < 1500000000u); /* there is nobody to wait for */
    assert_int_equal(behind->owner, 1000u << 10 | 65);
    assert_int_equal(f->page->slots[OWN].request, device_in(&f->page->slots[OWN], "GPU-0")->asked);
    other->devices[0].id = device.id;
    f->page->bells[40].resting = 1u << 17;
    poll_all(f);
    (void)memlord_explain(f->lord, cuda(0), MIB, line, sizeof line);
    assert_null(strstr(line, "resting"));
    f->page->bells[40].resting = 1;
    poll_all(f);
    (void)memlord_explain(f->lord, cuda(0), MIB, line, sizeof line);
    assert_non_null(strstr(line, "; neighbours resting: 1"));
}

static void the_failure_of_a_neighbour_is_an_emergency_of_its_device(void **state) {
    fixture *f = joined(state);
    slot_words *other = played(f, 20);
    played(f, 21)->devices[0].id = identity("GPU-0"); /* has no failure */
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, MIB, NULL));
    other->devices[1].id = identity("GPU-0");
    other->devices[2].id = identity("GPU-1");
    other->devices[2].failing = 1;
    poll_all(f);
    assert_int_equal(memlord_pressure_level(f->lord, cuda(0)), MEMLORD_PRESSURE_UNKNOWN);
    other->devices[1].failing = 1;
    poll_all(f);
    assert_int_equal(memlord_pressure_level(f->lord, cuda(0)), MEMLORD_PRESSURE_EMERGENCY);
    assert_int_equal(device_in(&f->page->slots[OWN], "GPU-0")->failing, 0); /* it is not its own */
    other->devices[1].failing = 0;
    poll_all(f);
    assert_int_equal(memlord_pressure_level(f->lord, cuda(0)), MEMLORD_PRESSURE_UNKNOWN);
    other->devices[1].failing = 1;
    poll_all(f);
    assert_ok(memlord_pressure_close(f->lord));
    assert_int_equal(memlord_pressure_level(f->lord, cuda(0)), MEMLORD_PRESSURE_UNKNOWN);
}

/* -- requests of others -- */

static void asks(slot_words *slot, size_t device, const char *name, uint64_t wanted,
                 uint64_t number) {
    slot->devices[device].id = identity(name);
    slot->devices[device].wanted = wanted;
    slot->devices[device].asked = number;
    slot->request = number;
}

static void a_request_is_answered_once_with_what_was_reclaimed(void **state) {
    fixture *f = joined(state);
    slot_words *other = played(f, 40), *own = &f->page->slots[OWN];
    serves(f, cuda(0), &f->gc);
    f->gc.answer.reclaimed = 3 * MIB;
    asks(other, 3, "GPU-0", 2 * MIB, 7001);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 1);
    assert_int_equal(f->gc.last.reason, MEMLORD_REASON_NEIGHBOUR);
    assert_int_equal(f->gc.last.needed, 2 * MIB);
    assert_int_equal(f->gc.last.device.index, 0);
    assert_int_equal(own->answered[40], 7001);
    assert_int_equal(own->answered[41], 0);
    assert_int_equal(device_in(own, "GPU-0")->released, 3 * MIB);
    assert_int_equal(f->page->bells[40].rings, 1);
    assert_int_equal(f->page->bells[41].rings, 0);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 1);
    assert_int_equal(f->page->bells[40].rings, 1);
    asks(other, 3, "GPU-0", MIB, 7002);
    poll_all(f);
    assert_int_equal(f->gc.last.needed, MIB);
    assert_int_equal(device_in(own, "GPU-0")->released, 6 * MIB);
    assert_int_equal(f->page->bells[40].rings, 2);
}

static void a_request_of_nothing_in_particular_waits_for_no_answer(void **state) {
    fixture *f = joined(state);
    slot_words *other = played(f, 40);
    serves(f, cuda(0), &f->gc);
    asks(other, 3, "GPU-0", 0, 7001);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 1);
    assert_int_equal(f->gc.last.needed, 0);
    assert_int_equal(f->page->slots[OWN].answered[40], 7001);
    assert_int_equal(f->page->bells[40].rings, 0);
}

static void a_request_is_for_the_devices_it_was_made_for(void **state) {
    fixture *f = joined(state);
    slot_words *other = played(f, 40);
    test_gc second;
    f->gc.answer.reclaimed = 1; /* so that no device rests */
    second = f->gc;
    assert_ok(memlord_device_id_set(f->lord, cuda(1), "GPU-1"));
    serves(f, cuda(0), &f->gc);
    serves(f, cuda(1), &second);
    asks(other, 0, "GPU-0", MIB, 7001);
    poll_all(f);
    asks(other, 1, "GPU-1", 2 * MIB, 7002); /* device 0 keeps what it asked before */
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 1);
    assert_int_equal(test_gc_runs(&second), 1);
    assert_int_equal(second.last.needed, 2 * MIB);
    asks(other, 0, "GPU-0", MIB, 7003);
    asks(other, 1, "GPU-1", 4 * MIB, 7004); /* both since the last answer */
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 2);
    assert_int_equal(test_gc_runs(&second), 2);
    other->devices[2].id = identity("GPU-0"); /* it never asked for anything */
    other->devices[2].wanted = 9 * MIB;
    asks(other, 1, "GPU-2", 4 * MIB, 7005);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc) + test_gc_runs(&second), 4);
    assert_int_equal(f->page->slots[OWN].answered[40], 7005);
}

static void of_several_requests_the_largest_counts_and_all_are_answered(void **state) {
    fixture *f = joined(state);
    slot_words *one = &f->page->slots[0], *two = played(f, 50), *three = played(f, 63);
    serves(f, cuda(0), &f->gc);
    asks(one, 0, "GPU-0", 2 * MIB, 7001);
    asks(two, 0, "GPU-0", 5 * MIB, 33);
    asks(three, 0, "GPU-0", 3 * MIB, 44);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 1);
    assert_int_equal(f->gc.last.needed, 5 * MIB);
    assert_int_equal(f->page->slots[OWN].answered[0], 7001);
    assert_int_equal(f->page->slots[OWN].answered[50], 33);
    assert_int_equal(f->page->slots[OWN].answered[63], 44);
    assert_int_equal(f->page->bells[0].rings + f->page->bells[50].rings +
                         f->page->bells[63].rings,
                     3);
}

static void a_request_for_all_there_is_is_answered_like_any(void **state) {
    fixture *f = joined(state);
    slot_words *one = played(f, 40), *two = played(f, 41);
    serves(f, cuda(0), &f->gc);
    asks(one, 0, "GPU-0", UINT64_MAX, 7001);
    asks(two, 0, "GPU-0", MIB, 33);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 1);
    assert_int_equal(f->gc.last.needed, UINT64_MAX - 1);
}

static void requests_from_before_the_open_are_not_answered(void **state) {
    fixture *f = (fixture *)*state;
    slot_words *first, *last, *own;
    map_page(f);
    first = played(f, 0);
    last = played(f, 63);
    own = &f->page->slots[1];
    f->gc.answer.reclaimed = 1; /* so that no device rests */
    asks(first, 0, "GPU-0", MIB, 7001);
    asks(last, 0, "GPU-0", MIB, 8001);
    assert_ok(memlord_device_id_set(f->lord, cuda(0), "GPU-0"));
    assert_ok(memlord_pressure_open(f->lord, f->path));
    serves(f, cuda(0), &f->gc);
    assert_int_equal(test_gc_runs(&f->gc), 0);
    assert_int_equal(own->answered[0], 7001);
    assert_int_equal(own->answered[63], 8001);
    asks(first, 0, "GPU-0", MIB, 7002);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 1);
    asks(last, 0, "GPU-0", MIB, 8002);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 2);
}

static void devices_of_one_memory_are_collected_until_it_is_enough(void **state) {
    fixture *f = joined(state);
    slot_words *other = played(f, 40);
    test_gc second = f->gc;
    assert_ok(memlord_device_share(f->lord, cuda(1), cuda(0)));
    serves(f, cuda(0), &f->gc);
    serves(f, cuda(1), &second);
    f->gc.answer.reclaimed = MIB;
    second.answer.reclaimed = 2 * MIB;
    asks(other, 0, "GPU-0", MIB, 7001);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 1);
    assert_int_equal(test_gc_runs(&second), 0); /* the first gave all */
    asks(other, 0, "GPU-0", MIB + 1, 7002);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 2);
    assert_int_equal(test_gc_runs(&second), 1);
    assert_int_equal(f->gc.last.needed, MIB + 1);
    assert_int_equal(second.last.needed, 1);
    assert_int_equal(device_in(&f->page->slots[OWN], "GPU-0")->released, 4 * MIB);
    asks(other, 0, "GPU-0", 0, 7003); /* no amount: all of them */
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 3);
    assert_int_equal(test_gc_runs(&second), 2);
    assert_int_equal(second.last.needed, 0);
}

static void poll_inside(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    (void)gc, (void)event;
    assert_ok(memlord_gc_poll(lord, all()));
}
static void a_poll_within_an_answer_does_not_answer_again(void **state) {
    fixture *f = joined(state);
    slot_words *other = played(f, 40);
    serves(f, cuda(0), &f->gc);
    f->gc.answer.reclaimed = 2 * MIB;
    f->gc.act = poll_inside;
    asks(other, 0, "GPU-0", MIB, 7001);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 1);
    assert_int_equal(device_in(&f->page->slots[OWN], "GPU-0")->released, 2 * MIB);
    assert_int_equal(f->page->slots[OWN].answered[40], 7001);
    asks(other, 0, "GPU-0", MIB, 7002);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 2);
}

static void what_is_pending_is_retired_for_a_request(void **state) {
    fixture *f = joined(state);
    slot_words *other = played(f, 40);
    int done = 0;
    const memlord_fence fence = {not_done, &done, 1, NULL};
    serves(f, cuda(0), &f->gc);
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, MIB, NULL));
    assert_ok(memlord_free_deferred(f->lord, cuda(0), 0x1000, fence, NULL));
    asks(other, 0, "GPU-0", MIB, 7001);
    done = 1;
    assert_ok(memlord_gc_poll(f->lord, cpu())); /* retires nothing of cuda itself */
    assert_int_equal(memlord_pending(f->lord, cuda(0)), 0);
}

/* -- a request of its own -- */

typedef struct raiser {
    fixture *f;
    pthread_t thread;
    uint64_t needed;
    memlord_result result;
    int ended;
} raiser;
static void *raise_there(void *user) {
    raiser *r = (raiser *)user;
    r->result = memlord_pressure_raise(r->f->lord, cuda(0), r->needed);
    __atomic_store_n(&r->ended, 1, __ATOMIC_RELEASE);
    return NULL;
}
static uint64_t request_of(fixture *f) {
    return __atomic_load_n(&f->page->slots[OWN].request, __ATOMIC_ACQUIRE);
}
/* Begins a request on a thread. Returns its number, as the neighbours see it. */
static uint64_t raise_begin(fixture *f, raiser *r, uint64_t needed) {
    const uint64_t before = request_of(f);
    int spins = 0;
    memset(r, 0, sizeof *r);
    r->f = f;
    r->needed = needed;
    assert_int_equal(pthread_create(&r->thread, NULL, raise_there, r), 0);
    while (request_of(f) == before && spins++ < 20000) usleep(500);
    assert_true(request_of(f) != before);
    return request_of(f);
}
static memlord_result raise_end(raiser *r) {
    assert_int_equal(pthread_join(r->thread, NULL), 0);
    return r->result;
}
static void is_waiting(const raiser *r) {
    usleep(40000);
    assert_int_equal(__atomic_load_n(&r->ended, __ATOMIC_ACQUIRE), 0);
}
static void set(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

/* With two neighbours: that in slot 0 holds 5 MiB in two devices, that in 41 holds 1 MiB. */
static fixture *with_two(void **state, slot_words **one, slot_words **two) {
    fixture *f = joined(state);
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, MIB, NULL));
    *one = &f->page->slots[0];
    *two = played(f, 41);
    (*one)->devices[0].id = (*one)->devices[5].id = (*two)->devices[0].id = identity("GPU-0");
    (*one)->devices[0].held = 2 * MIB;
    (*one)->devices[5].held = 3 * MIB;
    (*two)->devices[0].held = MIB;
    (*one)->devices[0].released = 100 * MIB; /* long ago */
    return f;
}

static void a_raise_writes_its_request_and_rings(void **state) {
    slot_words *one, *two, *unlike;
    fixture *f = with_two(state, &one, &two);
    const uint64_t start = now_ns(CLOCK_MONOTONIC);
    device_words *d;
    raiser r;
    uint64_t number, next;
    unlike = played(f, 42);
    unlike->devices[0].id = identity("GPU-1");
    number = raise_begin(f, &r, 3 * MIB);
    d = device_in(&f->page->slots[OWN], "GPU-0");
    assert_int_equal(d->wanted, 3 * MIB);
    assert_int_equal(d->asked, number);
    assert_in_range(number, start, now_ns(CLOCK_MONOTONIC));
    is_waiting(&r);
    assert_int_equal(f->page->bells[0].rings, 1);
    assert_int_equal(f->page->bells[41].rings, 1);
    assert_int_equal(f->page->bells[42].rings, 0); /* another device */
    assert_int_equal(f->page->bells[43].rings, 0); /* nobody */
    set(&one->answered[OWN], number);
    set(&two->answered[OWN], number);
    assert_int_equal(raise_end(&r), MEMLORD_E_OOM); /* nothing was released */
    next = raise_begin(f, &r, MIB);
    assert_true(next > number);
    set(&one->answered[OWN], next);
    is_waiting(&r);
    set(&two->answered[OWN], next);
    assert_int_equal(raise_end(&r), MEMLORD_E_OOM);
}

static void what_the_neighbours_release_is_summed(void **state) {
    slot_words *one, *two;
    fixture *f = with_two(state, &one, &two);
    raiser r;
    (void)raise_begin(f, &r, 3 * MIB);
    set(&one->devices[0].released, 101 * MIB);
    is_waiting(&r);
    set(&one->devices[5].released, MIB - 1);
    set(&two->devices[0].released, MIB);
    is_waiting(&r);
    set(&one->devices[5].released, MIB);
    assert_ok(raise_end(&r)); /* with no answer */
}

static void a_neighbour_that_ends_has_released_what_it_held(void **state) {
    slot_words *one, *two;
    fixture *f = with_two(state, &one, &two);
    raiser r;
    (void)raise_begin(f, &r, 6 * MIB);
    set(&one->owner, 0);
    is_waiting(&r);
    set(&two->owner, 2000u << 10 | 42); /* another process has its slot */
    assert_ok(raise_end(&r));
    (void)raise_begin(f, &r, MIB + 1); /* of that one alone */
    set(&two->owner, 0);
    assert_int_equal(raise_end(&r), MEMLORD_E_OOM);
}

static void a_close_during_a_raise_ends_it(void **state) {
    slot_words *one, *two;
    fixture *f = with_two(state, &one, &two);
    const uint64_t start = now_ns(CLOCK_MONOTONIC);
    raiser r;
    (void)raise_begin(f, &r, MIB);
    is_waiting(&r);
    assert_ok(memlord_pressure_close(f->lord));
    assert_int_equal(raise_end(&r), MEMLORD_E_STATE);
    assert_true(now_ns(CLOCK_MONOTONIC) - start < 1500000000u);
    assert_ok(memlord_pressure_open(f->lord, f->path));
    assert_int_equal(memlord_pressure_raise(f->lord, cuda(0), 0), MEMLORD_OK);
}

static void a_device_of_no_identity_is_not_asked_for(void **state) {
    fixture *f = joined(state);
    assert_ok(memlord_alloc(f->lord, cuda(1), 0x1000, MIB, NULL));
    assert_int_equal(memlord_pressure_raise(f->lord, cuda(1), 1), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_device_id_set(f->lord, cuda(1), "GPU-1"));
    assert_ok(memlord_pressure_raise(f->lord, cuda(1), 0)); /* known at once */
    assert_int_equal(device_in(&f->page->slots[OWN], "GPU-1")->held, MIB);
    assert_ok(memlord_device_id_set(f->lord, cuda(1), NULL));
    poll_all(f);
    assert_int_equal(memlord_pressure_raise(f->lord, cuda(1), 1), MEMLORD_E_UNKNOWN);
}

/* A retry whose pause is the host's function asks for its bytes before it, and not after it. */
typedef struct sleeper {
    fixture *f;
    uint64_t wanted;
    int sleeps;
} sleeper;
static void look_while_it_sleeps(void *user, uint32_t ms) {
    sleeper *s = (sleeper *)user;
    const device_words *d = device_in(&s->f->page->slots[OWN], "GPU-0");
    (void)ms;
    s->sleeps++;
    s->wanted = d->asked == request_of(s->f) ? d->wanted : 0;
}
static int no_memory(void *user, uint64_t bytes, uint64_t *storage) {
    (void)user, (void)bytes, (void)storage;
    return 1;
}
static void a_retry_that_sleeps_by_a_function_asks_before(void **state) {
    fixture *f = joined(state);
    sleeper s = {f, 0, 0};
    memlord_retry policy = {1, 10, 10, 1, look_while_it_sleeps, NULL};
    uint64_t storage;
    slot_words *other = played(f, 40);
    policy.user = &s;
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, MIB, NULL));
    other->devices[0].id = identity("GPU-0");
    assert_int_equal(memlord_alloc_retry(f->lord, cuda(0), 3 * MIB, no_memory, NULL, &policy,
                                         &storage, NULL),
                     MEMLORD_E_OOM);
    assert_int_equal(s.sleeps, 1);
    assert_int_equal(s.wanted, 3 * MIB);
    assert_int_equal(f->page->bells[40].rings, 1);
    assert_ok(memlord_pressure_close(f->lord)); /* no request is left that it would wake */
}

/* What the host may do with the page while its function sleeps. */
static void poll_while_it_sleeps(void *user, uint32_t ms) {
    (void)ms;
    poll_all(((sleeper *)user)->f);
    ((sleeper *)user)->sleeps++;
}
static void close_while_it_sleeps(void *user, uint32_t ms) {
    (void)ms;
    assert_ok(memlord_pressure_close(((sleeper *)user)->f->lord));
    ((sleeper *)user)->sleeps++;
}
static void a_retry_that_sleeps_by_a_function_may_use_the_page(void **state) {
    static void (*const functions[])(void *, uint32_t) = {poll_while_it_sleeps,
                                                          close_while_it_sleeps};
    fixture *f = joined(state);
    uint64_t storage, bytes;
    size_t i;
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, MIB, NULL));
    f->page->slots[0].devices[0].id = identity("GPU-0");
    for (i = 0; i < 2; i++) {
        for (bytes = 0; bytes < 2; bytes++) { /* the second close finds no page */
            sleeper s = {f, 0, 0};
            memlord_retry policy = {1, 10, 10, 1, NULL, NULL};
            policy.sleep_ms = functions[i];
            policy.user = &s;
            assert_int_equal(memlord_alloc_retry(f->lord, cuda(0), bytes, no_memory, NULL, &policy,
                                                 &storage, NULL),
                             MEMLORD_E_OOM);
            assert_int_equal(s.sleeps, 1);
        }
    }
    assert_int_equal(f->page->slots[OWN].owner, 0);
    assert_int_equal(f->page->bells[0].rings, 3); /* for each but the one without a page */
}

static pid_t *forked;
static void fork_while_it_sleeps(void *user, uint32_t ms) {
    (void)ms;
    ((sleeper *)user)->sleeps++;
    *forked = fork();
}
static void a_child_of_a_retry_that_sleeps_goes_on_with_it(void **state) {
    fixture *f = joined(state);
    sleeper s = {f, 0, 0};
    memlord_retry policy = {1, 10, 10, 1, fork_while_it_sleeps, NULL};
    uint64_t storage;
    memlord_result r;
    pid_t child = -1;
    int status = -1;
    policy.user = &s;
    forked = &child;
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, MIB, NULL));
    r = memlord_alloc_retry(f->lord, cuda(0), MIB, no_memory, NULL, &policy, &storage, NULL);
    if (!child) _exit(r == MEMLORD_E_OOM && s.sleeps == 1 ? 0 : 1);
    assert_int_equal(r, MEMLORD_E_OOM);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_page_that_was_closed_serves_nothing_and_its_children_join_none(void **state) {
    fixture *f = joined(state);
    uint64_t storage;
    const memlord_retry policy = {1, 1, 1, 1, NULL, NULL};
    int status = -1;
    pid_t child;
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, MIB, NULL));
    f->page->slots[0].devices[0].id = identity("GPU-0");
    f->page->slots[0].devices[0].held = 3 * MIB;
    assert_int_equal(neighbours(f, cuda(0)), 3 * MIB);
    assert_ok(memlord_pressure_close(f->lord));
    assert_int_equal(neighbours(f, cuda(0)), 0);
    assert_int_equal(memlord_poller_start(f->lord, 0), MEMLORD_E_UNSUPPORTED);
    assert_int_equal(memlord_alloc_retry(f->lord, cuda(0), 0, no_memory, NULL, &policy, &storage,
                                         NULL),
                     MEMLORD_E_OOM); /* sleeps without asking */
    assert_int_equal(f->page->bells[0].rings, 0);
    child = fork();
    if (!child)
        _exit(memlord_alloc(f->lord, cuda(0), 0x2000, MIB, NULL) ||
              memlord_gc_poll(f->lord, all()) || f->page->slots[OWN].owner);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static memlord_gc_result close_inside(void *user, memlord *lord, const memlord_gc_event *event) {
    const memlord_gc_result result = {1, 0, MIB};
    (void)event;
    *(memlord_result *)user = memlord_pressure_close(lord);
    return result;
}
static void an_answer_that_closes_the_page_is_not_published(void **state) {
    fixture *f = joined(state);
    slot_words *one = &f->page->slots[0];
    memlord_result closed = MEMLORD_E_STATE;
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, MIB, NULL));
    assert_ok(memlord_gc_callback_add(f->lord, cuda(0), 1u << MEMLORD_REASON_NEIGHBOUR,
                                      close_inside, &closed));
    poll_all(f);
    one->devices[0].id = identity("GPU-0");
    one->devices[0].wanted = MIB;
    one->devices[0].asked = 1000;
    set(&one->request, 1000);
    poll_all(f);
    assert_ok(closed);
    assert_int_equal(one->answered[OWN], 0);
    assert_int_equal(f->page->slots[OWN].answered[0], 0);
    assert_int_equal(f->page->slots[OWN].owner, 0);
}

/* Meanwhile the neighbour has asked once more, before the page is opened again. */
static memlord_gc_result open_again_inside(void *user, memlord *lord,
                                           const memlord_gc_event *event) {
    const memlord_gc_result result = {1, 0, 0};
    fixture *f = (fixture *)user;
    (void)event;
    if (!f->gc.runs++) {
        set(&f->page->slots[0].request, 1001);
        assert_ok(memlord_pressure_close(lord));
        assert_ok(memlord_pressure_open(lord, f->path));
    }
    return result;
}
static void an_answer_is_not_published_in_a_page_that_was_opened_meanwhile(void **state) {
    fixture *f = joined(state);
    slot_words *one = &f->page->slots[0], *own = &f->page->slots[OWN];
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, MIB, NULL));
    assert_ok(memlord_gc_callback_add(f->lord, cuda(0), 1u << MEMLORD_REASON_NEIGHBOUR,
                                      open_again_inside, f));
    poll_all(f);
    asks(one, 0, "GPU-0", MIB, 1000);
    poll_all(f);
    assert_int_equal(f->gc.runs, 1);
    assert_int_equal(own->answered[0], 1001); /* from before the open: see the claim of a slot */
    asks(one, 0, "GPU-0", MIB, 1002);
    poll_all(f);
    assert_int_equal(f->gc.runs, 2); /* it does not rest: on this page it has answered nobody */
    assert_int_equal(own->answered[0], 1002);
}

/* The rest before was of 1 s. */
static void a_request_that_could_run_nothing_does_not_shorten_the_next_rest(void **state) {
    fixture *f = joined(state);
    slot_words *one = &f->page->slots[0];
    serves(f, cuda(0), &f->gc);
    asks(one, 0, "GPU-0", MIB, 1000);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 1);
    assert_ok(memlord_gc_callback_remove(f->lord, cuda(0), test_gc_run, &f->gc));
    assert_ok(memlord_alloc(f->lord, cuda(0), 0x1000, MIB, NULL)); /* which ends the rest */
    asks(one, 0, "GPU-0", MIB, 1001);
    poll_all(f);
    assert_ok(memlord_gc_callback_add(f->lord, cuda(0), 1u << MEMLORD_REASON_NEIGHBOUR,
                                      test_gc_run, &f->gc));
    asks(one, 0, "GPU-0", MIB, 1002);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 2); /* that of no callback was followed by no rest */
    assert_int_equal(f->page->bells[OWN].resting,
                     1u << (device_in(&f->page->slots[OWN], "GPU-0") -
                            f->page->slots[OWN].devices));
    usleep(1200000);
    asks(one, 0, "GPU-0", MIB, 1003);
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 2); /* a rest of 2 s */
    assert_int_equal(f->page->slots[OWN].answered[0], 1003);
}

static void a_raise_waits_two_seconds_for_an_answer(void **state) {
    slot_words *one, *two;
    fixture *f = with_two(state, &one, &two);
    const uint64_t start = now_ns(CLOCK_MONOTONIC);
    assert_int_equal(memlord_pressure_raise(f->lord, cuda(0), MIB), MEMLORD_E_OOM);
    assert_true(now_ns(CLOCK_MONOTONIC) - start >= 2000000000u);
}

/* -- whose memory the host's is -- */

static uint64_t host_identity(fixture *f, const char *root) {
    memlord *other = ledger(f, root);
    uint64_t id;
    assert_ok(memlord_alloc(other, cpu(), 0x1000, 77, NULL));
    assert_ok(memlord_pressure_open(other, f->path));
    assert_int_equal(f->page->slots[0].devices[0].held, 77);
    id = f->page->slots[0].devices[0].id;
    memlord_destroy(other);
    return id;
}
static void the_machine_is_known_by_its_boot(void **state) {
    fixture *f = (fixture *)*state;
    char text[80], root[400];
    memset(text, 'x', sizeof text);
    text[70] = 0;
    strcpy(root, f->root);
    map_page(f);
    assert_int_equal(host_identity(f, f->root), identity("11112222"));
    put(f, "/proc/sys/kernel/random/boot_id", "22221111\n");
    assert_int_equal(host_identity(f, f->root), identity("22221111"));
    put(f, "/proc/sys/kernel/random/boot_id", text);
    text[63] = 0; /* so many characters are read */
    assert_int_equal(host_identity(f, f->root), identity(text));
    while (strlen(root) + strlen("/proc/sys/kernel/random/boot_id") < 299) strcat(root, "/");
    assert_int_equal(host_identity(f, root), identity(text));
    assert_int_equal(host_identity(f, strcat(root, "/")), identity("")); /* the path is too long */
    drop(f, "/proc/sys/kernel/random/boot_id");
    assert_int_equal(host_identity(f, f->root), identity(""));
}

static void put_group(fixture *f, const char *name, const char *max) {
    char path[128];
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", name);
    put(f, path, max);
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", name);
    put(f, path, "4096\n");
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.stat", name);
    put(f, path, "");
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.pressure", name);
    put(f, path, "");
}
static char *in_root(fixture *f, const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s%s", f->root, name);
    return path;
}
static void a_group_with_a_limit_is_a_memory_of_its_own(void **state) {
    fixture *f = (fixture *)*state;
    uint64_t one, two;
    map_page(f);
    put(f, "/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\n");
    put(f, "/proc/self/cgroup", "0::/one\n");
    put_group(f, "/one", "2147483648\n");
    put_group(f, "/two", "2147483648\n");
    one = host_identity(f, f->root);
    assert_int_equal(host_identity(f, f->root), one);
    put(f, "/proc/self/cgroup", "0::/two\n");
    two = host_identity(f, f->root);
    assert_true(one != two && one != identity("11112222") && two != identity("11112222"));
    put_group(f, "/two", "max\n");
    assert_int_equal(host_identity(f, f->root), identity("11112222"));
}

/* -- stalls: poll(2), as the kernel would answer for a trigger -- */

static struct {
    ino_t file; /* of the trigger that is answered for; 0: none */
    int asked;
    short events, answer;
} stall;

int poll(struct pollfd *fds, nfds_t n, int timeout) {
    struct pollfd *volatile first = fds; /* glibc declares that poll reads none of it */
    struct pollfd *one = first;
    struct timespec t;
    struct stat st;
    if (stall.file && n == 1 && !fstat(one->fd, &st) && st.st_ino == stall.file) {
        stall.asked++;
        stall.events = one->events;
        one->revents = stall.answer;
        return stall.answer != 0;
    }
    t.tv_sec = timeout / 1000;
    t.tv_nsec = timeout % 1000 * 1000000L;
    return (int)syscall(SYS_ppoll, fds, n, timeout < 0 ? NULL : &t, NULL, 0);
}

static void assert_trigger(const char *path) {
    static const char trigger[] = "some 150000 2000000";
    struct stat st;
    char *text = file_text(path);
    assert_non_null(text);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, sizeof trigger); /* the kernel wants the 0, too */
    assert_string_equal(text, trigger);
    free(text);
}

static void the_trigger_is_that_of_the_machine_or_of_the_group(void **state) {
    fixture *f = (fixture *)*state;
    char *text;
    put(f, "/proc/pressure/memory", "");
    assert_ok(memlord_pressure_open(f->lord, f->path));
    assert_trigger(in_root(f, "/proc/pressure/memory"));
    assert_ok(memlord_pressure_close(f->lord));
    put(f, "/proc/pressure/memory", "");
    put(f, "/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\n");
    put(f, "/proc/self/cgroup", "0::/one\n");
    put_group(f, "/one", "2147483648\n");
    assert_ok(memlord_pressure_open(f->lord, f->path));
    assert_trigger(in_root(f, "/sys/fs/cgroup/one/memory.pressure"));
    text = file_text(in_root(f, "/proc/pressure/memory"));
    assert_string_equal(text, "");
    free(text);
}

static fixture *stalling(void **state) {
    fixture *f = (fixture *)*state;
    struct stat st;
    put(f, "/proc/pressure/memory", "");
    assert_int_equal(stat(in_root(f, "/proc/pressure/memory"), &st), 0);
    memset(&stall, 0, sizeof stall);
    stall.file = st.st_ino;
    assert_ok(memlord_alloc(f->lord, cpu(), 0x1000, MIB, NULL));
    assert_ok(memlord_limit_set(f->lord, cpu(), 100 * MIB));
    assert_ok(memlord_gc_callback_add(f->lord, cpu(), 1u << MEMLORD_REASON_NEIGHBOUR, test_gc_run,
                                      &f->gc));
    assert_ok(memlord_pressure_open(f->lord, f->path));
    return f;
}

static void a_stall_of_the_host_runs_the_callbacks_of_the_cpu(void **state) {
    fixture *f = stalling(state);
    assert_int_equal(stall.asked, 1);
    assert_int_equal(stall.events, POLLPRI);
    assert_int_equal(test_gc_runs(&f->gc), 0);
    assert_int_equal(memlord_pressure_level(f->lord, cpu()), MEMLORD_PRESSURE_NORMAL);
    stall.answer = POLLPRI;
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 1);
    assert_int_equal(f->gc.last.reason, MEMLORD_REASON_NEIGHBOUR);
    assert_int_equal(f->gc.last.needed, 0);
    assert_int_equal(memlord_pressure_level(f->lord, cpu()), MEMLORD_PRESSURE_WARNING);
    assert_ok(memlord_limit_set(f->lord, cpu(), MIB));
    assert_int_equal(memlord_pressure_level(f->lord, cpu()), MEMLORD_PRESSURE_CRITICAL);
    assert_ok(memlord_limit_set(f->lord, cpu(), 100 * MIB));
    stall.answer = POLLIN;
    poll_all(f);
    assert_int_equal(test_gc_runs(&f->gc), 1);
    assert_int_equal(stall.asked, 3);
    assert_int_equal(memlord_pressure_level(f->lord, cpu()), MEMLORD_PRESSURE_WARNING);
    usleep(2000000);
    assert_int_equal(memlord_pressure_level(f->lord, cpu()), MEMLORD_PRESSURE_NORMAL);
    stall.file = 0;
}

static void a_trigger_that_is_gone_is_closed(void **state) {
    fixture *f = stalling(state);
    const int descriptors = count_descriptors();
    stall.answer = POLLERR | POLLPRI;
    poll_all(f);
    assert_int_equal(count_descriptors(), descriptors - 1);
    assert_int_equal(test_gc_runs(&f->gc), 0);
    poll_all(f);
    assert_int_equal(stall.asked, 2);
    assert_int_equal(count_descriptors(), descriptors - 1);
    stall.file = 0;
}

static void a_trigger_that_is_refused_is_closed(void **state) {
    fixture *f = (fixture *)*state;
    struct rlimit before, none;
    int descriptors;
    map_page(f);
    assert_ok(memlord_pressure_open(f->lord, f->path));
    descriptors = count_descriptors(); /* without a trigger */
    assert_ok(memlord_pressure_close(f->lord));
    put(f, "/proc/pressure/memory", "");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    errno = 77;
    assert_ok(memlord_pressure_open(f->lord, f->path));
    assert_int_equal(errno, 77);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(count_descriptors(), descriptors);
}

/* -- names, and files that are refused -- */

static void a_name_is_a_file_of_this_user_in_shared_memory(void **state) {
    fixture *f = (fixture *)*state;
    char name[64], path[128];
    struct stat st;
    snprintf(name, sizeof name, "test-%d", (int)getpid());
    snprintf(path, sizeof path, "/dev/shm/memlord-%u-%s", (unsigned)geteuid(), name);
    assert_ok(memlord_pressure_open(f->lord, name));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(unlink(path), 0);
}

static void without_a_name_it_is_the_default_one_of_the_user(void **state) {
    static const char *const names[] = {NULL, ""};
    fixture *f = (fixture *)*state;
    const uid_t user = geteuid(), other = 100000 + (uid_t)getpid(); /* no other test has that page */
    char path[128];
    size_t i;
    if (user) skip(); /* root alone can be another user for a while */
    snprintf(path, sizeof path, "/dev/shm/memlord-%u-default", (unsigned)other);
    for (i = 0; i < 2; i++) {
        memlord_result r;
        assert_int_equal(seteuid(other), 0);
        r = memlord_pressure_open(f->lord, names[i]);
        assert_int_equal(seteuid(user), 0);
        assert_ok(r);
        assert_ok(memlord_pressure_close(f->lord));
        assert_int_equal(unlink(path), 0);
    }
}

static void a_path_of_399_bytes_is_the_longest(void **state) {
    fixture *f = (fixture *)*state;
    char path[512];
    size_t n;
    strcpy(path, "/tmp");
    while (strlen(path) + strlen(f->path + 4) < 399) strcat(path, "/");
    strcat(path, f->path + 4);
    assert_int_equal(strlen(path), 399);
    assert_ok(memlord_pressure_open(f->lord, path));
    assert_ok(memlord_pressure_close(f->lord));
    n = strlen(path);
    path[n] = 'x';
    path[n + 1] = 0;
    test_log_clear(&f->log);
    assert_int_equal(memlord_pressure_open(f->lord, path), MEMLORD_E_INVALID);
    assert_string_equal(f->log.text, "[neighbours] the name has over 399 bytes\n");
}

static void a_refusal_leaves_nothing_open(void **state) {
    fixture *f = (fixture *)*state;
    const int before = count_descriptors();
    char line[256];
    map_page(f);
    f->page->version = 2;
    test_log_clear(&f->log);
    assert_int_equal(memlord_pressure_open(f->lord, f->path), MEMLORD_E_STATE);
    snprintf(line, sizeof line, "[neighbours] %s: it is of a newer version of MemLord\n", f->path);
    assert_string_equal(f->log.text, line);
    assert_int_equal(f->log.lines[MEMLORD_LOG_ERROR], 1);
    assert_int_equal(count_descriptors(), before);
    assert_int_equal(count_mappings(f->path), 1); /* the test's own */
    assert_int_equal(chmod(f->path, 0640), 0);
    assert_int_equal(memlord_pressure_open(f->lord, f->path), MEMLORD_E_STATE);
    assert_int_equal(count_descriptors(), before);
    assert_int_equal(chmod(f->path, 0600), 0);
    f->page->version = 1;
    assert_ok(memlord_pressure_open(f->lord, f->path));
}

static void a_page_of_another_user_is_refused(void **state) {
    fixture *f = (fixture *)*state;
    if (geteuid()) skip(); /* root alone gives files away */
    map_page(f);
    assert_int_equal(chown(f->path, 65534, 65534), 0);
    test_log_clear(&f->log);
    assert_int_equal(memlord_pressure_open(f->lord, f->path), MEMLORD_E_STATE);
    assert_non_null(strstr(f->log.text, ": it belongs to another user\n"));
}

static void a_page_that_this_process_may_not_open_is_refused(void **state) {
    fixture *f = (fixture *)*state;
    const uid_t user = geteuid();
    memlord_result r;
    if (user) skip(); /* root alone can be another user for a while */
    map_page(f);
    test_log_clear(&f->log);
    assert_int_equal(seteuid(65534), 0);
    r = memlord_pressure_open(f->lord, f->path);
    assert_int_equal(seteuid(user), 0);
    assert_int_equal(r, MEMLORD_E_STATE);
    assert_non_null(strstr(f->log.text, ": this process may not open it\n"));
}

/* -- calls of the system that fail: fcntl(2), open(2) and mmap(2), for the files of a page; on 32
      bits these are other calls -- */

#if !TEST_SANITIZED && UINTPTR_MAX > 0xffffffffu
#define REFUSALS 1
static struct {
    int locks; /* the error of each lock; 0: none */
    int looks; /* refuses to tell who has a lock */
    int maps;  /* refuses to map a file */
    int modes; /* refuses to set the mode of a file */
    const char *lost; /* a path that is never there, though its file can be made */
    int fails_at, error; /* the number of the open of `lost` that fails, and how */
    const char *replace, *by; /* puts `by` in the place of `replace` at its second open */
    int opens;
} refuse;
static int mapped; /* the descriptor of the last file that was mapped */

int fcntl(int fd, int cmd, ...) {
    va_list rest;
    void *arg;
    va_start(rest, cmd);
    arg = va_arg(rest, void *);
    va_end(rest);
    if ((refuse.locks && cmd == F_OFD_SETLK) || (refuse.looks && cmd == F_OFD_GETLK)) {
        errno = refuse.locks ? refuse.locks : EINVAL;
        return -1;
    }
    return (int)syscall(SYS_fcntl, fd, cmd, arg);
}
int fchmod(int fd, mode_t mode) {
    if (refuse.modes) {
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_fchmod, fd, mode);
}
int open(const char *path, int flags, ...) {
    va_list rest;
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    if (refuse.replace && !strcmp(path, refuse.replace) && ++refuse.opens == 2)
        assert_int_equal(rename(refuse.by, path), 0);
    if (refuse.lost && !strcmp(path, refuse.lost) && ++refuse.opens >= refuse.fails_at) {
        errno = refuse.error;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
    if (refuse.maps && fd >= 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (fd >= 0) mapped = fd;
    return kernel_mmap(at, size, prot, flags, fd, offset);
}

/* What is refused leaves nothing open, and what the log says is `why`. */
static void refused_by_the_system(fixture *f, memlord_result r, const char *why) {
    const int descriptors = count_descriptors(), mappings = count_mappings(f->path);
    char line[256];
    test_log_clear(&f->log);
    snprintf(line, sizeof line, "[neighbours] %s: %s\n", f->path, why);
    assert_int_equal(memlord_pressure_open(f->lord, f->path), r);
    memset(&refuse, 0, sizeof refuse);
    assert_string_equal(f->log.text, line);
    assert_int_equal(count_descriptors(), descriptors);
    assert_int_equal(count_mappings(f->path), mappings);
    assert_ok(memlord_pressure_open(f->lord, f->path));
}

static void a_file_system_without_locks_is_refused(void **state) {
    fixture *f = (fixture *)*state;
    map_page(f);
    refuse.locks = EINVAL;
    refused_by_the_system(f, MEMLORD_E_UNSUPPORTED, "its file system or a sandbox refuses locks");
}
static void a_lock_that_another_has_is_told_by_either_error(void **state) {
    fixture *f = (fixture *)*state;
    map_page(f);
    refuse.locks = EACCES;
    refused_by_the_system(f, MEMLORD_E_LIMIT, "all its slots are taken");
    assert_ok(memlord_pressure_close(f->lord));
    refuse.locks = EAGAIN;
    refused_by_the_system(f, MEMLORD_E_LIMIT, "all its slots are taken");
}
static void without_an_answer_who_has_a_lock_no_slot_is_freed(void **state) {
    fixture *f = joined(state);
    slot_words *dead = &f->page->slots[9];
    set(&dead->owner, 77);
    refuse.looks = 1;
    poll_all(f);
    assert_int_equal(dead->owner, 77);
    refuse.looks = 0;
    poll_all(f);
    assert_int_equal(dead->owner, 0);
}
static void a_page_that_cannot_be_made_whole_is_not_made(void **state) {
    fixture *f = (fixture *)*state;
    refuse.modes = 1;
    refused_by_the_system(f, MEMLORD_E_IO, "it cannot be opened or made");
}
static void a_page_that_comes_and_goes_is_given_up(void **state) {
    fixture *f = (fixture *)*state;
    refuse.lost = f->path;
    refuse.error = ENOENT;
    refused_by_the_system(f, MEMLORD_E_IO, "it cannot be opened or made");
    assert_ok(memlord_pressure_close(f->lord));
    refuse.lost = f->path;
    refuse.fails_at = 2; /* after the first of two descriptors */
    refuse.error = EMFILE;
    refused_by_the_system(f, MEMLORD_E_IO, "it cannot be opened or made");
}
static void a_page_that_cannot_be_mapped_is_refused(void **state) {
    fixture *f = (fixture *)*state;
    map_page(f);
    refuse.maps = 1;
    refused_by_the_system(f, MEMLORD_E_IO, "it cannot be mapped");
}
static void a_page_replaced_while_it_is_opened_is_refused(void **state) {
    fixture *f = (fixture *)*state;
    char other[80];
    memlord *maker = ledger(f, f->root);
    snprintf(other, sizeof other, "%s-other", f->path);
    assert_ok(memlord_pressure_open(maker, other));
    memlord_destroy(maker);
    map_page(f);
    refuse.replace = f->path;
    refuse.by = other;
    refused_by_the_system(f, MEMLORD_E_IO, "it was replaced meanwhile");
}
static void a_page_takes_none_of_the_standard_descriptors(void **state) {
    fixture *f = (fixture *)*state;
    int status = -1;
    pid_t child;
    put(f, "/proc/pressure/memory", "");
    child = fork();
    if (!child) {
        int fd;
        for (fd = 0; fd < 3; fd++) (void)close(fd);
        if (memlord_pressure_open(f->lord, f->path)) _exit(1);
        for (fd = 0; fd < 3; fd++)
            if (fcntl(fd, F_GETFD) != -1) _exit(2);
        _exit(mapped < 3 ? 3 : 0); /* not for a moment either */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}
#endif

static void a_full_disk_makes_no_page(void **state) {
    static const rlim_t rooms[] = {0, 100, 100000}; /* for the head; for a piece; for the page */
    fixture *f = (fixture *)*state;
    struct rlimit before, little;
    struct stat st;
    char command[160];
    size_t i;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = before;
    for (i = 0; i < 3; i++) {
        test_log_clear(&f->log);
        little.rlim_cur = rooms[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
        assert_int_equal(memlord_pressure_open(f->lord, f->path), MEMLORD_E_IO); /* no signal */
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(stat(f->path, &st), -1);
        assert_non_null(strstr(f->log.text, ": it cannot be opened or made\n"));
        snprintf(command, sizeof command, "ls %s* >/dev/null 2>&1", f->path);
        assert_true(system(command) != 0); /* nor is half of one left */
    }
}

#define PAGE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void) {
    const struct CMUnitTest tests[] = {
        PAGE(the_head_and_the_slot_say_whose_they_are),
        PAGE(a_device_has_what_is_held_and_what_is_idle),
        PAGE(devices_of_one_memory_are_one_sum),
        PAGE(a_failure_stands_there_until_an_allocation_succeeds),
        PAGE(a_device_that_loses_its_identity_leaves_the_page),
        PAGE(the_eighteenth_device_has_no_room_and_is_told_once),
        PAGE(what_another_overwrites_is_written_again),
        PAGE(a_slot_that_another_holds_is_passed_by),
        PAGE(a_claim_clears_what_a_dead_process_left),
        PAGE(the_slot_of_a_dead_process_is_freed_and_no_other),
        PAGE(the_bytes_of_all_neighbours_at_the_identity_are_summed),
        PAGE(what_lies_behind_the_slots_and_devices_is_not_read),
        PAGE(the_failure_of_a_neighbour_is_an_emergency_of_its_device),
        PAGE(a_request_is_answered_once_with_what_was_reclaimed),
        PAGE(a_request_of_nothing_in_particular_waits_for_no_answer),
        PAGE(a_request_is_for_the_devices_it_was_made_for),
        PAGE(of_several_requests_the_largest_counts_and_all_are_answered),
        PAGE(a_request_for_all_there_is_is_answered_like_any),
        PAGE(requests_from_before_the_open_are_not_answered),
        PAGE(devices_of_one_memory_are_collected_until_it_is_enough),
        PAGE(a_poll_within_an_answer_does_not_answer_again),
        PAGE(what_is_pending_is_retired_for_a_request),
        PAGE(a_raise_writes_its_request_and_rings),
        PAGE(what_the_neighbours_release_is_summed),
        PAGE(a_neighbour_that_ends_has_released_what_it_held),
        PAGE(a_close_during_a_raise_ends_it),
        PAGE(a_device_of_no_identity_is_not_asked_for),
        PAGE(a_retry_that_sleeps_by_a_function_asks_before),
        PAGE(a_retry_that_sleeps_by_a_function_may_use_the_page),
        PAGE(a_child_of_a_retry_that_sleeps_goes_on_with_it),
        PAGE(a_page_that_was_closed_serves_nothing_and_its_children_join_none),
        PAGE(an_answer_that_closes_the_page_is_not_published),
        PAGE(an_answer_is_not_published_in_a_page_that_was_opened_meanwhile),
        PAGE(a_request_that_could_run_nothing_does_not_shorten_the_next_rest),
        PAGE(a_raise_waits_two_seconds_for_an_answer),
        PAGE(the_machine_is_known_by_its_boot),
        PAGE(a_group_with_a_limit_is_a_memory_of_its_own),
        PAGE(the_trigger_is_that_of_the_machine_or_of_the_group),
        PAGE(a_stall_of_the_host_runs_the_callbacks_of_the_cpu),
        PAGE(a_trigger_that_is_gone_is_closed),
        PAGE(a_trigger_that_is_refused_is_closed),
        PAGE(a_name_is_a_file_of_this_user_in_shared_memory),
        PAGE(without_a_name_it_is_the_default_one_of_the_user),
        PAGE(a_path_of_399_bytes_is_the_longest),
        PAGE(a_refusal_leaves_nothing_open),
        PAGE(a_page_of_another_user_is_refused),
        PAGE(a_page_that_this_process_may_not_open_is_refused),
        PAGE(a_full_disk_makes_no_page),
#if defined(REFUSALS)
        PAGE(a_file_system_without_locks_is_refused),
        PAGE(a_lock_that_another_has_is_told_by_either_error),
        PAGE(without_an_answer_who_has_a_lock_no_slot_is_freed),
        PAGE(a_page_that_cannot_be_made_whole_is_not_made),
        PAGE(a_page_that_comes_and_goes_is_given_up),
        PAGE(a_page_that_cannot_be_mapped_is_refused),
        PAGE(a_page_takes_none_of_the_standard_descriptors),
        PAGE(a_page_replaced_while_it_is_opened_is_refused),
#endif
    };
    return cmocka_run_group_tests_name("slots", tests, NULL, NULL);
}
