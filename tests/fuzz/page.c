/* tests/fuzz/page.c: two ledgers meet on a page of shared memory that holds any bytes. An input is a
   list of writes into it: a place, a value. The ledgers' own figures stay what they are. */
#include "tests/support.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64];

static memlord *join(test_heap *heap, uint64_t bytes) {
    memlord_desc desc = test_desc(heap, MEMLORD_FLAG_NO_THREADS);
    memlord *lord = NULL;
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, bytes, NULL));
    (void)memlord_pressure_open(lord, path); /* refused if the page was spoilt */
    return lord;
}

static void use(memlord *lord, uint64_t bytes) {
    char text[400];
    memlord_stats stats;
    (void)memlord_gc_poll(lord, all());
    (void)memlord_pressure_level(lord, cuda(0));
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 500, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x2000, NULL));
    assert_ok(memlord_stats_get(lord, all(), &stats));
    assert_int_equal(stats.allocated, bytes);
    memlord_explain(lord, cuda(0), 10, text, sizeof text);
    assert_ok(memlord_verify(lord));
}

static unsigned char *map_page(size_t *size) {
    struct stat st;
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *map = MAP_FAILED;
    if (file < 0) return NULL;
    if (!fstat(file, &st)) {
        *size = (size_t)st.st_size;
        map = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    close(file);
    return map == MAP_FAILED ? NULL : (unsigned char *)map;
}

/* Four bytes of the input are a place and a word of two equal bytes; the head is written most. */
static void spoil(unsigned char *map, size_t size, const uint8_t *at, size_t n) {
    for (; n >= 4; n -= 4, at += 4) {
        size_t place = (size_t)at[0] | (size_t)(at[1] & 63) << 8;
        if (at[1] & 64) place %= 256;
        map[place % size] = at[2];
        map[(place + 7) % size] = at[3];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    test_heap heaps[2];
    memlord *a, *b;
    unsigned char *map;
    size_t bytes = 0, half = size / 8 * 4;
    memset(heaps, 0, sizeof heaps);
    if (!path[0]) snprintf(path, sizeof path, "/dev/shm/memlord-fuzz-%ld", (long)getpid());
    unlink(path);
    a = join(&heaps[0], 100);
    map = map_page(&bytes);
    if (!map) abort(); /* nothing would be tested */
    spoil(map, bytes, data, half);
    b = join(&heaps[1], 7);
    use(a, 100);
    spoil(map, bytes, data + half, size - half);
    use(b, 7);
    use(a, 100);
    munmap(map, bytes);
    memlord_destroy(b);
    memlord_destroy(a);
    assert_int_equal(heaps[0].blocks + heaps[1].blocks, 0);
    unlink(path);
    return 0;
}
