/* tips.c - preallocate, reuse, work in place, empty the cache: the number that shows each */
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 100
#define BYTES ((size_t)64 << 10) /* of the buffer that a step needs */

static memlord *lord;
static int failed;

static char *take(size_t bytes) {
    char *p = (char *)malloc(bytes);
    if (!p) exit(1);
    MEMLORD_ALLOC(lord, memlord_device_cpu(), p, bytes);
    return p;
}

static void drop(char *p) {
    MEMLORD_FREE(lord, memlord_device_cpu(), p);
    free(p);
}

/* A list of BYTES that grows by halves, or has its room from the start. */
static void fill(size_t room) {
    char *list = take(room);
    for (size_t used = 0; used < BYTES; used++) {
        if (used == room) {
            char *larger = take(room += room / 2);
            memcpy(larger, list, used);
            drop(list);
            list = larger;
        }
        list[used] = (char)used;
    }
    drop(list);
}

static void fresh_buffers(void) {
    for (int i = 0; i < STEPS; i++) drop((char *)memset(take(BYTES), i, BYTES));
}

/* An arena: one block, which is as large as what is in use of the buffer. It keeps its tag, its
   peak and its place. */
static void one_buffer(void) {
    char *buffer = take(BYTES);
    const uint64_t key = MEMLORD_KEY(buffer);
    for (int i = 0; i < STEPS; i++) {
        size_t used = BYTES / STEPS * (size_t)(i + 1);
        memlord_realloc(lord, memlord_device_cpu(), key, key, used, MEMLORD_SITE());
        memset(buffer, i, used);
    }
    drop(buffer);
}

/* Doubles what is in a buffer: into another one, or where it is. */
static void scale(int in_place) {
    char *from = take(BYTES), *to = in_place ? from : take(BYTES);
    memset(from, 1, BYTES);
    for (size_t i = 0; i < BYTES; i++) to[i] = (char)(2 * from[i]);
    if (to != from) drop(to);
    drop(from);
}

/* A cache that keeps what is freed, until its callback is asked to empty it. */
static char *cache[8];
static const memlord_device pool = {MEMLORD_DEVICE_OTHER, 0};

static memlord_gc_result empty_cache(void *user, memlord *ledger, const memlord_gc_event *event) {
    memlord_gc_result result = {1, 0, 0};
    (void)user, (void)event;
    for (int i = 0; i < 8; i++) {
        free(cache[i]);
        if (cache[i]) result.reclaimed += BYTES;
        cache[i] = NULL;
    }
    memlord_pool_set(ledger, pool, 0, 0);
    return result;
}

static void use_the_cache(void) {
    for (int i = 0; i < 8; i++) cache[i] = (char *)calloc(1, BYTES);
    memlord_pool_set(lord, pool, 8 * BYTES, BYTES);
}

static memlord_stats stats(memlord_device device) {
    memlord_stats now;
    memlord_stats_get(lord, device, &now);
    return now;
}

static void tell(const char *tip, const char *number, uint64_t before, uint64_t after) {
    printf("%-22s %-32s %8llu before, %7llu after\n", tip, number, (unsigned long long)before,
           (unsigned long long)after);
    failed |= after >= before;
}

static uint64_t peak_of(const char *scope) {
    memlord_scope_stat cost;
    failed |= memlord_scope_get(lord, scope, &cost) != MEMLORD_OK;
    return cost.peak;
}

static uint64_t allocs_of(void (*steps)(void)) {
    const uint64_t before = stats(memlord_device_cpu()).allocs;
    steps();
    return stats(memlord_device_cpu()).allocs - before;
}

int main(void) {
    uint64_t cached, reclaimed = 0;
    lord = memlord_global();
    MEMLORD_SCOPE(lord, "grow") fill(1024);
    MEMLORD_SCOPE(lord, "preallocate") fill(BYTES);
    tell("preallocate", "peak of the scope, bytes", peak_of("grow"), peak_of("preallocate"));

    tell("reuse buffers", "allocs of 100 steps", allocs_of(fresh_buffers), allocs_of(one_buffer));

    MEMLORD_SCOPE(lord, "copy") scale(0);
    MEMLORD_SCOPE(lord, "in place") scale(1);
    tell("work in place", "peak of the scope, bytes", peak_of("copy"), peak_of("in place"));

    memlord_gc_callback_add(lord, pool, 1 << MEMLORD_REASON_HOST, empty_cache, NULL);
    use_the_cache();
    cached = stats(pool).cached;
    memlord_gc_run(lord, pool, MEMLORD_REASON_HOST, 0, &reclaimed);
    tell("empty the cache", "cached, bytes", cached, stats(pool).cached);
    return failed | (reclaimed != cached) | (memlord_allocated(lord, memlord_device_all()) != 0);
}
