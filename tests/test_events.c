/* Events: every change, in a ring that never blocks who writes, that can be read meanwhile, and
   that says what it lost. */
#include "support.h"

#include "child.h"
#include <sys/wait.h>
#include <unistd.h>

#include "json.h"

#define MS ((uint64_t)1000000)

typedef struct list {
    memlord_event *at;
    size_t n, room, stop_at;
} list;

static int keep(void *user, const memlord_event *event) {
    list *l = (list *)user;
    if (l->n == l->room) {
        l->room = l->room ? l->room * 2 : 256;
        l->at = (memlord_event *)realloc(l->at, l->room * sizeof *l->at);
        assert_non_null(l->at);
    }
    l->at[l->n++] = *event;
    return l->stop_at && l->n == l->stop_at;
}

/* The caller frees .at. */
static list events_of(memlord *lord) {
    list l;
    memset(&l, 0, sizeof l);
    assert_ok(memlord_events_each(lord, keep, &l));
    return l;
}

static size_t count_of(memlord *lord) {
    list l = events_of(lord);
    free(l.at);
    return l.n;
}

static void assert_kinds(memlord *lord, const int *kinds, size_t n) {
    list l = events_of(lord);
    size_t i;
    for (i = 0; i < n && i < l.n; i++) assert_int_equal(l.at[i].kind, kinds[i]);
    assert_int_equal(l.n, n);
    free(l.at);
}
#define assert_events(lord, ...)                                                              \
    do {                                                                                      \
        const int expected[] = {__VA_ARGS__};                                                 \
        assert_kinds(lord, expected, sizeof expected / sizeof *expected);                     \
    } while (0)

#define E(name) MEMLORD_EVENT_##name

static void open_block(memlord *lord, uint64_t key, uint64_t bytes) {
    assert_ok(memlord_alloc(lord, cuda(0), key, bytes, NULL));
}
static void close_block(memlord *lord, uint64_t key) {
    assert_ok(memlord_free(lord, cuda(0), key, NULL));
}

/* -- what is recorded -- */

static void off_records_nothing(void **state) {
    memlord *lord = test_lord(state);
    list l;
    open_block(lord, 0x1000, 10);
    close_block(lord, 0x1000);
    l = events_of(lord);
    assert_int_equal(l.n, 0);
    memlord_events_stop(lord);
    assert_ok(memlord_events_start(lord, 100));
    memlord_events_stop(lord);
    open_block(lord, 0x1000, 10);
    l = events_of(lord);
    assert_int_equal(l.n, 0);
    assert_int_equal(stats_of(lord, all()).dropped_events, 0);
}

static void an_event_says_what_happened(void **state) {
    test_case *t = (test_case *)*state;
    list l;
    assert_ok(memlord_events_start(t->lord, 100));
    t->now += 5 * MS;
    assert_ok(memlord_tag_begin(t->lord, "kv"));
    assert_ok(memlord_scope_begin(t->lord, "s"));
    assert_ok(memlord_alloc(t->lord, cuda(3), 0xabc000, TEST_MAX_BYTES, NULL));
    t->now += 2 * MS;
    assert_ok(memlord_scope_end(t->lord));
    assert_ok(memlord_tag_end(t->lord));
    assert_ok(memlord_free(t->lord, cuda(0), 0xabc000, NULL));
    l = events_of(t->lord);
    assert_int_equal(l.n, 4);
    assert_int_equal(l.at[0].kind, E(SCOPE_BEGIN));
    assert_int_equal(l.at[0].device.type, MEMLORD_ANY);
    assert_int_equal(l.at[0].device.index, MEMLORD_ANY);
    assert_int_equal(l.at[0].scope, 1);
    assert_int_equal(l.at[0].time_ns, 5 * MS);
    assert_int_equal(l.at[1].kind, E(ALLOC));
    assert_int_equal(l.at[1].device.type, MEMLORD_DEVICE_CUDA);
    assert_int_equal(l.at[1].device.index, 3);
    assert_int_equal(l.at[1].storage, 0xabc000);
    assert_int_equal(l.at[1].bytes, TEST_MAX_BYTES);
    assert_string_equal(l.at[1].tag, "kv");
    assert_null(l.at[1].site);
    assert_int_equal(l.at[1].scope, 1);
    assert_int_equal(l.at[2].kind, E(SCOPE_END));
    assert_int_equal(l.at[2].scope, 1);
    assert_int_equal(l.at[2].time_ns, 7 * MS);
    assert_int_equal(l.at[3].kind, E(FREE));
    assert_int_equal(l.at[3].device.index, 3);
    assert_int_equal(l.at[3].bytes, TEST_MAX_BYTES);
    assert_string_equal(l.at[3].tag, "kv");
    assert_int_equal(l.at[3].scope, 0);
    free(l.at);
}

static void the_events_of_a_scope_are_of_no_storage_and_no_device(void **state) {
    memlord *lord = test_lord(state);
    size_t i;
    list l;
    assert_ok(memlord_events_start(lord, 100));
    open_block(lord, 0x1000, 100);
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_scope_end(lord));
    l = events_of(lord);
    assert_int_equal(l.n, 3);
    for (i = 1; i < 3; i++) {
        assert_int_equal(l.at[i].kind, i == 1 ? E(SCOPE_BEGIN) : E(SCOPE_END));
        assert_int_equal(l.at[i].device.type, MEMLORD_ANY);
        assert_int_equal(l.at[i].storage, 0);
        assert_int_equal(l.at[i].bytes, 0);
        assert_int_equal(l.at[i].stream, 0);
        assert_int_equal(l.at[i].scope, 1);
        assert_null(l.at[i].site);
        assert_null(l.at[i].tag);
    }
    free(l.at);
}

static void a_free_tells_the_tag_of_its_block_outside_the_tag_too(void **state) {
    memlord *lord = ((test_case *)*state)->lord;
    const uint64_t address = 0x7f0000000000u;
    list l;
    open_block(lord, address, 1);
    assert_ok(memlord_tag_begin(lord, "kv"));
    open_block(lord, address + 64, 2);
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_events_start(lord, 100));
    close_block(lord, address + 64);
    close_block(lord, address);
    l = events_of(lord);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.at[0].tag, "kv");
    assert_null(l.at[1].tag);
    free(l.at);
}

static void sites_are_those_of_the_call(void **state) {
    static const memlord_site one = {"a.c", "one", 1}, two = {"b.c", "two", 2};
    memlord *lord = test_lord(state);
    list l;
    int round;
    assert_ok(memlord_events_start(lord, 100));
    for (round = 0; round < 2; round++) { /* the second goes the shorter way */
        assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 10, &one));
        assert_ok(memlord_free(lord, cuda(0), 0x1000, &two));
    }
    l = events_of(lord);
    assert_int_equal(l.n, 4);
    for (round = 0; round < 2; round++) {
        assert_string_equal(l.at[round * 2].site->function, "one");
        assert_non_null(l.at[round * 2 + 1].site);
        assert_string_equal(l.at[round * 2 + 1].site->function, "two");
    }
    free(l.at);
}

static void allocs_and_frees_of_every_kind(void **state) {
    memlord *lord = test_lord(state);
    memlord_block n[2] = {{{0, 0}, 0x8000, 10}, {{0, 0}, 0x9000, 20}};
    n[0].device = n[1].device = cuda(0);
    assert_ok(memlord_events_start(lord, 100));
    assert_ok(memlord_track(lord, cuda(0), 0x1000, 10, NULL));
    assert_ok(memlord_track(lord, cuda(0), 0x1000, 10, NULL)); /* a view is no event */
    assert_ok(memlord_retain(lord, cuda(0), 0x1000, NULL));
    assert_ok(memlord_release(lord, cuda(0), 0x1000, NULL));
    assert_ok(memlord_release(lord, cuda(0), 0x1000, NULL));
    assert_ok(memlord_release(lord, cuda(0), 0x1000, NULL));
    assert_events(lord, E(ALLOC), E(FREE));
    assert_ok(memlord_alloc_n(lord, n, 2, NULL));
    assert_ok(memlord_free_n(lord, n, 2, NULL));
    assert_ok(memlord_track_n(lord, n, 2, NULL));
    assert_ok(memlord_release_n(lord, n, 2, NULL));
    assert_events(lord, E(ALLOC), E(FREE), E(ALLOC), E(ALLOC), E(FREE), E(FREE), E(ALLOC),
                  E(ALLOC), E(FREE), E(FREE));
    assert_int_equal(memlord_free(lord, cuda(0), 0x1000, NULL), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_free(lord, cuda(0), 0, NULL));
    assert_int_equal(memlord_alloc(lord, cuda(0), 0x1, TEST_MAX_BYTES + 1, NULL),
                     MEMLORD_E_INVALID);
    assert_int_equal(count_of(lord), 10); /* what did not happen is none */
}

static void an_alloc_over_a_live_one_ends_that_first(void **state) {
    memlord *lord = test_lord(state);
    list l;
    assert_ok(memlord_events_start(lord, 100));
    open_block(lord, 0x1000, 10);
    open_block(lord, 0x1000, 20);
    l = events_of(lord);
    assert_int_equal(l.n, 3);
    assert_int_equal(l.at[1].kind, E(FREE));
    assert_int_equal(l.at[1].bytes, 10);
    assert_int_equal(l.at[2].kind, E(ALLOC));
    assert_int_equal(l.at[2].bytes, 20);
    free(l.at);
}

static void a_realloc_is_a_free_and_an_alloc(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    memlord_meta meta;
    list l;
    memset(&meta, 0, sizeof meta);
    meta.name = "w";
    assert_ok(memlord_tag_begin(lord, "t"));
    open_block(lord, 0x1000, 10);
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_block_describe(lord, cuda(0), 0x1000, &meta));
    assert_ok(memlord_events_start(lord, 100));
    assert_ok(memlord_realloc(lord, cuda(0), 0x1000, 0x2000, 20, NULL));
    assert_ok(memlord_realloc_begin(lord, cuda(0), 0x2000, &token));
    assert_ok(memlord_realloc_end(lord, &token, 0, 0, NULL)); /* the real call failed */
    assert_ok(memlord_realloc_begin(lord, cuda(0), 0x2000, &token));
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 5, NULL));
    l = events_of(lord);
    assert_int_equal(l.n, 6);
    assert_int_equal(l.at[0].kind, E(FREE));
    assert_int_equal(l.at[0].storage, 0x1000);
    assert_int_equal(l.at[0].bytes, 10);
    assert_int_equal(l.at[1].kind, E(ALLOC));
    assert_int_equal(l.at[1].storage, 0x2000);
    assert_int_equal(l.at[1].bytes, 20);
    assert_string_equal(l.at[1].tag, "t");
    assert_int_equal(l.at[3].kind, E(ALLOC));
    assert_int_equal(l.at[3].storage, 0x2000);
    assert_int_equal(l.at[3].bytes, 20);
    assert_string_equal(l.at[3].tag, "t");
    assert_int_equal(l.at[5].bytes, 5);
    free(l.at);
}

static int fence_done(void *user) { return *(int *)user; }

static void moves_and_deferred_frees(void **state) {
    memlord *lord = test_lord(state);
    int done = 0;
    memlord_fence fence = {fence_done, NULL, 0, NULL};
    list l;
    fence.user = &done;
    assert_ok(memlord_events_start(lord, 100));
    open_block(lord, 0x1000, 10);
    assert_ok(memlord_move(lord, cuda(0), 0x1000, cpu(), 0x2000, 10, NULL, NULL));
    assert_events(lord, E(ALLOC), E(FREE), E(MOVE));
    assert_ok(memlord_move(lord, cpu(), 0x2000, cuda(0), 0x3000, 10, &fence, NULL));
    assert_ok(memlord_free_deferred(lord, cuda(0), 0x3000, fence, NULL));
    l = events_of(lord);
    assert_int_equal(l.n, 6);
    assert_int_equal(l.at[3].kind, E(PEND));
    assert_int_equal(l.at[3].storage, 0x2000);
    assert_int_equal(l.at[4].kind, E(MOVE));
    assert_int_equal(l.at[4].storage, 0x3000);
    assert_int_equal(l.at[5].kind, E(PEND));
    free(l.at);
    done = 1;
    assert_int_equal(memlord_retire(lord, all()), 20);
    l = events_of(lord);
    assert_int_equal(l.n, 8);
    assert_int_equal(l.at[6].kind, E(FREE));
    assert_int_equal(l.at[7].kind, E(FREE));
    assert_int_equal(l.at[6].storage + l.at[7].storage, 0x5000);
    assert_int_equal(l.at[6].bytes, 10);
    free(l.at);
}

static void a_free_with_recorded_uses_pends(void **state) {
    memlord *lord = test_lord(state);
    int done = 0;
    memlord_fence fence = {fence_done, NULL, 0, NULL};
    fence.user = &done;
    assert_ok(memlord_events_start(lord, 100));
    open_block(lord, 0x1000, 10);
    assert_ok(memlord_block_use(lord, cuda(0), 0x1000, fence));
    close_block(lord, 0x1000);
    open_block(lord, 0x1000, 30); /* ends the pending one first */
    assert_events(lord, E(ALLOC), E(PEND), E(FREE), E(ALLOC));
    done = 1;
    (void)memlord_retire(lord, all());
    assert_events(lord, E(ALLOC), E(PEND), E(FREE), E(ALLOC));
}

static void arenas_collections_and_checkpoints(void **state) {
    test_case *t = (test_case *)*state;
    memlord *lord = t->lord;
    list l;
    assert_ok(memlord_events_start(lord, 100));
    assert_ok(memlord_arena_add(lord, cuda(0), 100, NULL));
    assert_ok(memlord_arena_sub(lord, cuda(0), 150, NULL)); /* takes what there is */
    assert_ok(memlord_arena_sub(lord, cuda(0), 1, NULL));
    t->gc.answer.reclaimed = 77;
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_ok(memlord_checkpoint(lord, "after load"));
    l = events_of(lord);
    assert_int_equal(l.n, 4);
    assert_int_equal(l.at[0].kind, E(ARENA_ADD));
    assert_int_equal(l.at[0].bytes, 100);
    assert_int_equal(l.at[1].kind, E(ARENA_SUB));
    assert_int_equal(l.at[1].bytes, 100);
    assert_int_equal(l.at[2].kind, E(GC));
    assert_int_equal(l.at[2].bytes, 77);
    assert_int_equal(l.at[2].device.type, MEMLORD_DEVICE_CUDA);
    assert_int_equal(l.at[3].kind, E(CHECKPOINT));
    assert_string_equal(l.at[3].tag, "after load");
    assert_int_equal(l.at[3].storage, 0);
    free(l.at);
}

static int never(void *user, uint64_t bytes, uint64_t *storage) {
    (void)user;
    (void)bytes;
    (void)storage;
    return 1;
}
static void no_sleep(void *user, uint32_t ms) {
    (void)user;
    (void)ms;
}
static void attempts_that_find_no_memory(void **state) {
    test_case *t = (test_case *)*state;
    memlord_retry policy = {2, 1, 1, 1.0, no_sleep, NULL};
    uint64_t storage;
    size_t i, ooms = 0;
    list l;
    assert_ok(memlord_events_start(t->lord, 100));
    assert_int_equal(memlord_alloc_retry(t->lord, cuda(0), 1234, never, NULL, &policy, &storage,
                                         NULL),
                     MEMLORD_E_OOM);
    l = events_of(t->lord);
    for (i = 0; i < l.n; i++) {
        if (l.at[i].kind != E(OOM)) continue;
        ooms++;
        assert_int_equal(l.at[i].bytes, 1234);
    }
    assert_int_equal(ooms, stats_of(t->lord, cuda(0)).oom_attempts);
    assert_int_equal(ooms, 3);
    free(l.at);
}

static void *exit_inside(void *user) {
    memlord *lord = (memlord *)user;
    assert_ok(memlord_scope_begin(lord, "a"));
    assert_ok(memlord_scope_begin(lord, "b"));
    return NULL;
}
static void a_thread_that_exits_ends_its_scopes_in_the_ring_too(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    list l;
    assert_ok(memlord_events_start(lord, 100));
    assert_int_equal(pthread_create(&thread, NULL, exit_inside, lord), 0);
    pthread_join(thread, NULL);
    assert_events(lord, E(SCOPE_BEGIN), E(SCOPE_BEGIN), E(SCOPE_END), E(SCOPE_END));
    l = events_of(lord);
    assert_int_equal(l.at[2].scope, l.at[1].scope);
    assert_int_equal(l.at[3].scope, l.at[0].scope);
    free(l.at);
}

/* -- order -- */

typedef struct worker {
    memlord *lord;
    unsigned number;
    uint64_t from, rounds;
} worker;

static void *one_pair(void *user) {
    worker *w = (worker *)user;
    assert_ok(memlord_alloc(w->lord, cuda(0), w->from, w->number, NULL));
    assert_ok(memlord_free(w->lord, cuda(0), w->from, NULL));
    return NULL;
}

static void events_of_many_threads_come_in_the_order_of_time(void **state) {
    test_case *t = (test_case *)*state;
    unsigned i;
    list l;
    assert_ok(memlord_events_start(t->lord, 10000));
    for (i = 0; i < 100; i++) {
        worker w = {NULL, 0, 0, 0};
        w.lord = t->lord;
        w.number = i;
        w.from = 0x1000 + i * 64;
        t->now += 10;
        if (i % 3) {
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, one_pair, &w), 0);
            pthread_join(thread, NULL);
        } else {
            (void)one_pair(&w);
        }
    }
    l = events_of(t->lord);
    assert_int_equal(l.n, 200);
    for (i = 0; i < 200; i++) {
        assert_int_equal(l.at[i].bytes, i / 2);
        assert_int_equal(l.at[i].kind, i % 2 ? E(FREE) : E(ALLOC));
        assert_int_equal(l.at[i].time_ns, (i / 2 + 1) * 10);
    }
    free(l.at);
}

static void the_real_clock_never_goes_back(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    list l;
    assert_ok(memlord_events_start(lord, 4096));
    for (i = 0; i < 3000; i++) open_block(lord, 0x1000 + i * 64, i);
    l = events_of(lord);
    assert_int_equal(l.n, 3000);
    for (i = 0; i < 3000; i++) {
        assert_int_equal(l.at[i].bytes, i);
        if (i) assert_true(l.at[i].time_ns >= l.at[i - 1].time_ns);
        assert_true(l.at[i].time_ns < (uint64_t)600 * 1000000000u);
    }
    free(l.at);
}

/* -- bounds -- */

static void a_ring_keeps_the_last_and_counts_the_rest(void **state) {
    static const size_t capacities[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 100, 1000, 1023, 4096};
    size_t c;
    (void)state;
    for (c = 0; c < sizeof capacities / sizeof *capacities; c++) {
        size_t capacity = capacities[c], happened = 0;
        memlord *lord;
        assert_ok(memlord_create(NULL, &lord));
        assert_ok(memlord_events_start(lord, capacity));
        while (happened < 3 * capacity + 7) {
            list l;
            size_t i;
            open_block(lord, 0x40 + happened * 64, happened);
            happened++;
            if (happened > 40 && happened % 97) continue;
            l = events_of(lord);
            assert_true(l.n <= capacity);
            assert_true(l.n > 0);
            assert_int_equal(l.n + stats_of(lord, all()).dropped_events, happened);
            for (i = 0; i < l.n; i++) assert_int_equal(l.at[i].bytes, happened - l.n + i);
            if (happened > capacity) assert_true(l.n * 10 >= capacity * 8);
            free(l.at);
        }
        memlord_destroy(lord);
    }
}

static void events_of_no_device_are_counted_when_lost(void **state) {
    memlord *lord = test_lord(state);
    int i;
    list l;
    assert_ok(memlord_events_start(lord, 32));
    for (i = 0; i < 100; i++) {
        assert_ok(memlord_scope_begin(lord, "s"));
        assert_ok(memlord_scope_end(lord));
    }
    l = events_of(lord);
    assert_int_equal(l.n + stats_of(lord, all()).dropped_events, 200);
    assert_int_equal(stats_of(lord, cuda(0)).dropped_events, 0);
    free(l.at);
}

static void capacities_out_of_range_are_refused(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_events_start(lord, ((size_t)1 << 26) + 1), MEMLORD_E_INVALID);
    assert_int_equal(memlord_events_start(lord, SIZE_MAX), MEMLORD_E_INVALID);
    assert_int_equal(memlord_events_each(lord, NULL, NULL), MEMLORD_E_INVALID);
    open_block(lord, 0x1000, 1);
    assert_int_equal(count_of(lord), 0);
}

static void a_start_after_a_stop_goes_on(void **state) {
    memlord *lord = test_lord(state);
    list l;
    assert_ok(memlord_events_start(lord, 100));
    open_block(lord, 0x1000, 1);
    memlord_events_stop(lord);
    open_block(lord, 0x2000, 2);
    assert_events(lord, E(ALLOC));
    assert_ok(memlord_events_start(lord, 100));
    open_block(lord, 0x3000, 3);
    l = events_of(lord);
    assert_int_equal(l.n, 2);
    assert_int_equal(l.at[0].bytes, 1);
    assert_int_equal(l.at[1].bytes, 3);
    assert_int_equal(stats_of(lord, all()).dropped_events, 0);
    free(l.at);
}

static void another_capacity_is_refused_and_changes_nothing(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_events_start(lord, 100));
    open_block(lord, 0x1000, 1);
    assert_int_equal(memlord_events_start(lord, 200), MEMLORD_E_STATE);
    assert_int_equal(memlord_events_start(lord, 0), MEMLORD_E_STATE);
    open_block(lord, 0x2000, 2);
    memlord_events_stop(lord);
    assert_int_equal(memlord_events_start(lord, 200), MEMLORD_E_STATE);
    open_block(lord, 0x3000, 3); /* and does not begin again */
    assert_events(lord, E(ALLOC), E(ALLOC));
    assert_int_equal(stats_of(lord, all()).dropped_events, 0);
}

static void a_ledger_may_begin_with_events(void **state) {
    memlord_desc desc;
    memlord *lord;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.event_capacity = 10;
    assert_ok(memlord_create(&desc, &lord));
    open_block(lord, 0x1000, 1);
    assert_events(lord, E(ALLOC));
    memlord_destroy(lord);
    desc.event_capacity = SIZE_MAX;
    assert_int_equal(memlord_create(&desc, &lord), MEMLORD_E_INVALID);
    assert_null(lord);
}

/* -- readers -- */

static void each_stops_when_told_to(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    list l;
    assert_ok(memlord_events_start(lord, 100));
    for (i = 0; i < 50; i++) open_block(lord, 0x1000 + i * 64, i);
    memset(&l, 0, sizeof l);
    l.stop_at = 7;
    assert_ok(memlord_events_each(lord, keep, &l));
    assert_int_equal(l.n, 7);
    free(l.at);
}

typedef struct echo {
    memlord *lord;
    uint64_t key, n;
} echo;
static int echo_it(void *user, const memlord_event *event) {
    echo *e = (echo *)user;
    (void)event;
    e->n++;
    open_block(e->lord, e->key += 64, 1);
    return 0;
}
static void fn_may_record(void **state) {
    echo e = {test_lord(state), 0x100000, 0};
    uint64_t i;
    assert_ok(memlord_events_start(e.lord, 64));
    for (i = 0; i < 60; i++) open_block(e.lord, 0x1000 + i * 64, 1);
    assert_ok(memlord_events_each(e.lord, echo_it, &e));
    assert_true(e.n > 0 && e.n <= 60);
}

/* An event of a writer: all of its fields follow from its number. */
static uint64_t key_for(unsigned writer, uint64_t i) {
    return ((uint64_t)(writer + 1) << 40) + (i + 1) * 64;
}
static uint64_t bytes_for(uint64_t key) { return (key * 0x9e3779b97f4a7c15u) >> 30; }

static void *write_much(void *user) {
    worker *w = (worker *)user;
    uint64_t i;
    for (i = 0; i < w->rounds; i++) {
        uint64_t key = key_for(w->number, i);
        memlord_device device = cuda((int)(w->number % 4));
        assert_ok(memlord_alloc(w->lord, device, key, bytes_for(key), NULL));
        assert_ok(memlord_free(w->lord, device, key, NULL));
    }
    return NULL;
}

typedef struct checker {
    uint64_t n, last, next[8];
    uint32_t thread[8];
    int disordered, torn;
} checker;
static int check(void *user, const memlord_event *e) {
    checker *c = (checker *)user;
    unsigned writer = (unsigned)(e->storage >> 40) - 1;
    uint64_t place = (e->storage & (((uint64_t)1 << 40) - 1)) * 2 + (e->kind == E(FREE));
    if (writer >= 8 || (e->kind != E(ALLOC) && e->kind != E(FREE)) ||
        e->bytes != bytes_for(e->storage) || e->device.type != MEMLORD_DEVICE_CUDA ||
        e->device.index != (int)(writer % 4) || e->tag || e->site || e->scope ||
        (c->thread[writer] && c->thread[writer] != e->thread)) {
        c->torn = 1;
        return 1;
    }
    c->thread[writer] = e->thread;
    if (e->time_ns < c->last || place <= c->next[writer]) c->disordered = 1;
    c->last = e->time_ns;
    c->next[writer] = place;
    c->n++;
    return 0;
}

static void readers_see_whole_events_while_eight_threads_write(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread[8];
    worker w[8];
    uint64_t i, rounds = TEST_SANITIZED ? 4000 : 40000;
    checker c;
    assert_ok(memlord_events_start(lord, 2000));
    for (i = 0; i < 8; i++) {
        w[i].lord = lord;
        w[i].number = (unsigned)i;
        w[i].rounds = rounds;
        assert_int_equal(pthread_create(&thread[i], NULL, write_much, &w[i]), 0);
    }
    for (i = 0; i < 200; i++) {
        memset(&c, 0, sizeof c);
        assert_ok(memlord_events_each(lord, check, &c));
        assert_false(c.torn);
        assert_false(c.disordered);
        assert_true(c.n <= 2000);
    }
    for (i = 0; i < 8; i++) pthread_join(thread[i], NULL);
    memset(&c, 0, sizeof c);
    assert_ok(memlord_events_each(lord, check, &c));
    assert_false(c.torn);
    assert_int_equal(c.n + stats_of(lord, all()).dropped_events, 8 * rounds * 2);
}

static void more_threads_than_bursts_lose_nothing_uncounted(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread[8];
    worker w[8];
    uint64_t i, rounds = 500;
    list l;
    assert_ok(memlord_events_start(lord, 2));
    for (i = 0; i < 8; i++) {
        w[i].lord = lord;
        w[i].number = (unsigned)i;
        w[i].rounds = rounds;
        assert_int_equal(pthread_create(&thread[i], NULL, write_much, &w[i]), 0);
    }
    for (i = 0; i < 8; i++) pthread_join(thread[i], NULL);
    l = events_of(lord);
    assert_int_equal(l.n + stats_of(lord, all()).dropped_events, 8 * rounds * 2);
    free(l.at);
}

static void *restart(void *user) {
    worker *w = (worker *)user;
    uint64_t i;
    for (i = 0; i < w->rounds; i++) {
        assert_ok(memlord_events_start(w->lord, 64));
        memlord_events_stop(w->lord);
    }
    assert_ok(memlord_events_start(w->lord, 64));
    return NULL;
}
static void restarts_while_threads_write_and_read(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread[4];
    worker w[4];
    uint64_t i;
    for (i = 0; i < 4; i++) {
        w[i].lord = lord;
        w[i].number = (unsigned)i;
        w[i].rounds = i ? 2000 : 50;
        assert_int_equal(
            pthread_create(&thread[i], NULL, i ? write_much : restart, &w[i]), 0);
    }
    for (i = 0; i < 50; i++) {
        checker c;
        memset(&c, 0, sizeof c);
        assert_ok(memlord_events_each(lord, check, &c));
        assert_false(c.torn);
    }
    for (i = 0; i < 4; i++) pthread_join(thread[i], NULL);
}

static void threads_that_exit_leave_their_events(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    list l;
    assert_ok(memlord_events_start(lord, 64));
    for (i = 0; i < 200; i++) {
        pthread_t thread;
        worker w = {NULL, 0, 0, 0};
        w.lord = lord;
        w.from = 0x1000 + i * 64;
        assert_int_equal(pthread_create(&thread, NULL, one_pair, &w), 0);
        pthread_join(thread, NULL);
    }
    l = events_of(lord);
    assert_int_equal(l.n + stats_of(lord, all()).dropped_events, 400);
    assert_true(l.n >= 16);
    free(l.at);
}

/* -- a ring whose sub-buffers all have a writer -- */

typedef struct holder {
    memlord *lord;
    uint64_t key;
    test_gate *gate;
} holder;

/* Records one event, and stays. */
static void *hold(void *user) {
    holder *h = (holder *)user;
    memlord_alloc(h->lord, memlord_device_cpu(), h->key, 1, NULL);
    test_gate_pass(h->gate);
    return NULL;
}

/* Threads that have a sub-buffer each, of which a ring of `capacity` up to 1000 has 16. */
static void hold_sub_buffers(memlord *lord, size_t capacity, pthread_t *thread, holder *h,
                             uint64_t n, test_gate *gate) {
    uint64_t i;
    assert_ok(memlord_events_start(lord, capacity));
    for (i = 0; i < n; i++) {
        h[i].lord = lord;
        h[i].key = 0x10000 + i * 64;
        h[i].gate = gate;
        assert_int_equal(pthread_create(&thread[i], NULL, hold, &h[i]), 0);
        assert_true(test_gate_came(gate, i + 1));
    }
}
static void let_go(pthread_t *thread, uint64_t n, test_gate *gate) {
    test_gate_open(gate);
    while (n--) pthread_join(thread[n], NULL);
}

typedef struct gapless {
    memlord *lord;
    uint64_t key;
    int *stop;
} gapless;
/* Writes events with the numbers 2, 3, 4, 5 and so on: the alloc of n bytes has the number 2 n, and
   the free of the block has the next one. */
static void *write_gapless(void *user) {
    const gapless *g = (const gapless *)user;
    uint64_t n;
    for (n = 1; !__atomic_load_n(g->stop, __ATOMIC_RELAXED); n++) {
        (void)memlord_alloc(g->lord, cpu(), g->key, n, NULL);
        (void)memlord_free(g->lord, cpu(), g->key, NULL);
    }
    return NULL;
}
static int find_gaps(void *user, const memlord_event *e) {
    uint64_t *last = (uint64_t *)user; /* by thread; [0]: how many gaps there are */
    const uint64_t number = 2 * e->bytes + (e->kind == MEMLORD_EVENT_FREE);
    if (e->thread == 0 || e->thread >= 32) return 1;
    last[0] += last[e->thread] && number > last[e->thread] + 1;
    last[e->thread] = number;
    return 0;
}
/* A thread that waits, with the number of a sub-buffer drawn, may not overwrite newer events than
   those that the ring keeps. */
static void the_ring_keeps_the_last_events_of_a_thread_without_a_gap(void **state) {
    memlord *lord = test_lord(state);
    const struct timespec span = {0, 2000000};
    int round;
    assert_ok(memlord_events_start(lord, 64));
    for (round = 0; round < 300; round++) {
        pthread_t thread[8];
        gapless g[8];
        uint64_t last[32];
        int stop = 0, i;
        for (i = 0; i < 8; i++) {
            g[i].lord = lord;
            g[i].key = (uint64_t)(i + 1) << 32;
            g[i].stop = &stop;
            assert_int_equal(pthread_create(&thread[i], NULL, write_gapless, &g[i]), 0);
        }
        nanosleep(&span, NULL);
        __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        for (i = 0; i < 8; i++) pthread_join(thread[i], NULL);
        memset(last, 0, sizeof last);
        assert_ok(memlord_events_each(lord, find_gaps, last));
        assert_int_equal(last[0], 0);
    }
}

static void an_event_without_a_free_sub_buffer_is_lost_on_its_device(void **state) {
    memlord *lord = test_lord(state);
    test_gate gate = TEST_GATE;
    pthread_t thread[16];
    holder h[16];
    hold_sub_buffers(lord, 32, thread, h, 16, &gate);
    open_block(lord, 0x1000, 1);
    assert_ok(memlord_scope_begin(lord, "s")); /* of no device */
    assert_ok(memlord_scope_end(lord));
    open_block(lord, 0x2000, 1);
    close_block(lord, 0x2000);
    assert_int_equal(stats_of(lord, cuda(0)).dropped_events, 3);
    assert_int_equal(stats_of(lord, cpu()).dropped_events, 0);
    assert_int_equal(stats_of(lord, all()).dropped_events, 5);
    assert_int_equal(count_of(lord), 16);
    let_go(thread, 16, &gate);
    close_block(lord, 0x1000);
    assert_int_equal(stats_of(lord, all()).dropped_events, 6); /* and the one that was there */
    assert_int_equal(count_of(lord), 16);
}

/* In a child that fork made: 0 if it has the sub-buffers of the threads that are gone. */
static int child_writes(memlord *lord) {
    uint64_t others = 0, i;
    list l;
    for (i = 0; i < 100; i++)
        if (memlord_alloc(lord, cpu(), 0x100000 + i * 64, 7, NULL)) return 1;
    l = events_of(lord);
    for (i = 0; i < l.n; i++) others += l.at[i].bytes == 7;
    if (others != l.n) return 2;
    return l.n < 60 ? 3 : 0; /* of 64 */
}
static void a_child_writes_into_what_the_threads_of_its_parent_held(void **state) {
    memlord *lord = test_lord(state);
    test_gate gate = TEST_GATE;
    pthread_t thread[15];
    holder h[15];
    pid_t pid;
    int status;
    TEST_POSIX();
    hold_sub_buffers(lord, 64, thread, h, 15, &gate);
    open_block(lord, 0x1000, 1);
    pid = fork();
    if (pid == 0) _exit(child_writes(lord));
    status = child_status(pid);
    let_go(thread, 15, &gate);
    assert_int_equal(status, 0);
}

/* The number of the thread that a block was allocated on; 0: there is no such event. */
static uint32_t thread_of(memlord *lord, uint64_t key) {
    list l = events_of(lord);
    uint32_t found = 0;
    while (l.n-- && !found)
        if (l.at[l.n].storage == key) found = l.at[l.n].thread;
    free(l.at);
    return found;
}
static void a_thread_of_a_child_takes_the_record_of_one_that_the_fork_left_out(void **state) {
    memlord *lord = test_lord(state);
    test_gate gate = TEST_GATE, open = TEST_GATE;
    pthread_t thread, other;
    holder h, next;
    pid_t pid;
    /* A sanitizer, and such an emulator, fails at a thread in a child. */
    if (TEST_SANITIZED || threads_of_a_child() != 1) skip();
    open_block(lord, 0x1000, 1);
    hold_sub_buffers(lord, 1000, &thread, &h, 1, &gate);
    next = h;
    next.key = 0x20000;
    next.gate = &open;
    pid = fork();
    if (pid == 0) {
        test_gate_open(&open);
        if (pthread_create(&other, NULL, hold, &next) || pthread_join(other, NULL)) _exit(1);
        _exit(!thread_of(lord, 0x10000) || thread_of(lord, 0x20000) != thread_of(lord, 0x10000));
    }
    assert_int_equal(child_status(pid), 0);
    let_go(&thread, 1, &gate);
}

/* -- a model: replaying the events gives what is live -- */

enum { KEYS = 512 };
typedef struct model {
    struct {
        uint64_t bytes;
        int device, live, pending;
    } at[2][KEYS]; /* cuda, cpu */
    int64_t arena;
    int bad;
} model;

static int replay(void *user, const memlord_event *e) {
    model *m = (model *)user;
    int type = e->device.type == MEMLORD_DEVICE_CPU;
    size_t i = (size_t)(e->storage / 64);
    if (e->kind == E(ARENA_ADD)) m->arena += (int64_t)e->bytes;
    if (e->kind == E(ARENA_SUB)) m->arena -= (int64_t)e->bytes;
    if (!e->storage) return 0;
    if (i >= KEYS) return m->bad = 1;
    switch (e->kind) {
    case E(ALLOC):
    case E(MOVE):
        m->bad |= m->at[type][i].live;
        m->at[type][i].live = 1;
        m->at[type][i].bytes = e->bytes;
        m->at[type][i].device = e->device.index;
        break;
    case E(PEND):
        m->bad |= !m->at[type][i].live || m->at[type][i].bytes != e->bytes;
        break;
    case E(FREE):
        m->bad |= !m->at[type][i].live || m->at[type][i].bytes != e->bytes ||
                  m->at[type][i].device != e->device.index;
        m->at[type][i].live = 0;
        break;
    default: break;
    }
    return 0;
}
static int count_live(void *user, const memlord_block_info *info) {
    model *m = (model *)user;
    int type = info->device.type == MEMLORD_DEVICE_CPU;
    size_t i = (size_t)(info->storage / 64);
    m->bad |= !m->at[type][i].live || m->at[type][i].bytes != info->bytes ||
              m->at[type][i].device != info->device.index;
    m->at[type][i].live = 0;
    return 0;
}

static memlord_device any_device(uint64_t *seed) {
    uint64_t dice = test_random(seed);
    return dice & 1 ? cuda((int)(dice / 2 % 3)) : cpu();
}

static void replaying_the_events_gives_what_is_live(void **state) {
    test_case *t = (test_case *)*state;
    memlord *lord = t->lord;
    uint64_t seed = test_env("MEMLORD_TEST_SEED", 4), i, steps = TEST_SANITIZED ? 5000 : 40000;
    int done[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    static model m;
    size_t k;
    print_message("# seed %llu\n", (unsigned long long)seed);
    memset(&m, 0, sizeof m);
    assert_ok(memlord_events_start(lord, 1 << 20));
    for (i = 0; i < steps; i++) {
        memlord_device device = any_device(&seed), to = any_device(&seed);
        uint64_t key = (1 + test_random(&seed) % (KEYS - 1)) * 64, bytes = test_random(&seed) % 99;
        uint64_t other = (1 + test_random(&seed) % (KEYS - 1)) * 64;
        memlord_fence fence = {fence_done, NULL, 0, NULL};
        memlord_realloc_token token;
        memlord_meta meta;
        int f = (int)(test_random(&seed) % 8);
        fence.queue = (uint64_t)f;
        fence.user = &done[f];
        t->now += test_random(&seed) % 3;
        memset(&meta, 0, sizeof meta);
        meta.name = "m";
        switch (test_random(&seed) % 16) {
        case 0: case 1: case 2: case 3:
            (void)memlord_alloc(lord, device, key, bytes, NULL);
            break;
        case 4: (void)memlord_track(lord, device, key, bytes, NULL); break;
        case 5: case 6: (void)memlord_free(lord, device, key, NULL); break;
        case 7: (void)memlord_release(lord, device, key, NULL); break;
        case 8: (void)memlord_realloc(lord, device, key, other, bytes, NULL); break;
        case 9:
            (void)memlord_realloc_begin(lord, device, key, &token);
            (void)memlord_realloc_end(lord, &token, test_random(&seed) & 1 ? other : 0, bytes,
                                      NULL);
            break;
        case 10: (void)memlord_move(lord, device, key, to, other, bytes, NULL, NULL); break;
        case 11: (void)memlord_move(lord, device, key, to, other, bytes, &fence, NULL); break;
        case 12: (void)memlord_free_deferred(lord, device, key, fence, NULL); break;
        case 13: (void)memlord_block_use(lord, device, key, fence); break;
        case 14:
            done[f] = !done[f];
            (void)memlord_retire(lord, all());
            (void)memlord_block_describe(lord, device, key, &meta);
            break;
        default:
            (void)memlord_arena_add(lord, device, bytes, NULL);
            (void)memlord_arena_sub(lord, device, test_random(&seed) % 120, NULL);
        }
    }
    assert_int_equal(stats_of(lord, all()).dropped_events, 0);
    assert_ok(memlord_events_each(lord, replay, &m));
    assert_false(m.bad);
    assert_ok(memlord_blocks_each(lord, all(), 0, count_live, &m));
    assert_false(m.bad);
    for (k = 0; k < KEYS; k++) assert_false(m.at[0][k].live || m.at[1][k].live);
    for (k = 0; k < 8; k++) done[k] = 1;
}

/* -- failing allocators, reports -- */

static void without_memory_events_do_not_start(void **state) {
    test_case *t = (test_case *)*state;
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    assert_int_equal(memlord_events_start(t->lord, 1 << 20), MEMLORD_E_NOMEM);
    t->heap.fail_at = 0;
    open_block(t->lord, 0x1000, 1);
    assert_int_equal(count_of(t->lord), 0);
    assert_ok(memlord_events_start(t->lord, 1 << 16));
    open_block(t->lord, 0x2000, 1);
    t->heap.fail_at = t->heap.calls + 1;
    assert_ok(memlord_events_start(t->lord, 1 << 16)); /* needs none */
    open_block(t->lord, 0x3000, 1);
    assert_int_equal(memlord_events_each(t->lord, keep, NULL), MEMLORD_E_NOMEM);
    t->heap.fail_at = 0;
    assert_events(t->lord, E(ALLOC), E(ALLOC));
}

static void the_json_report_lists_events(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    int i;
    assert_ok(memlord_events_start(lord, 64));
    assert_ok(memlord_tag_begin(lord, "quote \" and </script> %n"));
    for (i = 0; i < 100; i++) {
        assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 10, MEMLORD_SITE()));
        assert_ok(memlord_free(lord, cuda(1), 0x1000, MEMLORD_SITE()));
        assert_ok(memlord_checkpoint(lord, "\xff\"\\"));
    }
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_true(json_valid(json));
    assert_int_equal(json_u64(json, "events.capacity"), 64);
    assert_int_equal(json_u64(json, "events.recorded") + json_u64(json, "events.lost"), 300);
    assert_int_equal(json_u64(json, "events.lost"), stats_of(lord, all()).dropped_events);
    assert_true(json_is(json, "events.kinds[0]", "alloc"));
    assert_int_equal(json_u64(json, "events.list[0][8]"), 0);
    free(json);
}

static void events_carry_the_stream_of_their_block(void **state) {
    memlord *lord = test_lord(state);
    int done = 1;
    memlord_fence fence = {fence_done, NULL, 0, NULL};
    list l;
    size_t i;
    char *json;
    fence.user = &done;
    assert_ok(memlord_events_start(lord, 0));
    open_block(lord, 0x900000, 10); /* without a stream */
    (void)memlord_stream_set(lord, 0xabc);
    open_block(lord, 0x1000, 10);
    open_block(lord, 0x800000, 10);
    (void)memlord_stream_set(lord, 0);
    assert_ok(memlord_move(lord, cuda(0), 0x1000, cuda(0), 0x2000, 10, NULL, NULL));
    done = 0;
    assert_ok(memlord_free_deferred(lord, cuda(0), 0x2000, fence, NULL));
    done = 1;
    assert_int_equal(memlord_retire(lord, all()), 10);
    close_block(lord, 0x800000);
    close_block(lord, 0x900000);
    l = events_of(lord);
    assert_int_equal(l.n, 9);
    for (i = 0; i < l.n; i++)
        assert_int_equal(l.at[i].stream, l.at[i].storage == 0x900000 ? 0 : 0xabc);
    free(l.at);
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(json, "events.list[0][8]"), 0);
    assert_false(json_is(json, "events.list[0][9]", "0x0"));
    assert_true(json_is(json, "events.list[1][9]", "0x00000abc"));
    free(json);
}

static void lifetimes_are_known_from_the_ring(void **state) {
    test_case *t = (test_case *)*state;
    static const uint64_t lives[] = {1, 99, 100, 999, 1000, 9999, 10000, 100000};
    char *json;
    size_t i;
    assert_ok(memlord_events_start(t->lord, 100));
    for (i = 0; i < 8; i++) {
        open_block(t->lord, 0x1000 + i * 64, 1);
        t->now += lives[i] * MS;
        close_block(t->lord, 0x1000 + i * 64);
    }
    json = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(json, "devices[0].lifetimes.under_100ms"), 2);
    assert_int_equal(json_u64(json, "devices[0].lifetimes.under_1s"), 2);
    assert_int_equal(json_u64(json, "devices[0].lifetimes.under_10s"), 2);
    assert_int_equal(json_u64(json, "devices[0].lifetimes.longer"), 2);
    free(json);
}

static void a_null_ledger_has_no_events(void **state) {
    (void)state;
    assert_ok(memlord_events_start(NULL, 1));
    memlord_events_stop(NULL);
    assert_ok(memlord_events_each(NULL, keep, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(off_records_nothing),
        TEST_FAKES(an_event_says_what_happened),
        TEST(the_events_of_a_scope_are_of_no_storage_and_no_device),
        TEST(a_free_tells_the_tag_of_its_block_outside_the_tag_too),
        TEST_SITES(sites_are_those_of_the_call),
        TEST(allocs_and_frees_of_every_kind),
        TEST(an_alloc_over_a_live_one_ends_that_first),
        TEST(a_realloc_is_a_free_and_an_alloc),
        TEST(moves_and_deferred_frees),
        TEST(a_free_with_recorded_uses_pends),
        TEST_FAKES(arenas_collections_and_checkpoints),
        TEST_FAKES(attempts_that_find_no_memory),
        TEST(a_thread_that_exits_ends_its_scopes_in_the_ring_too),
        TEST_FAKES(events_of_many_threads_come_in_the_order_of_time),
        TEST(the_real_clock_never_goes_back),
        cmocka_unit_test(a_ring_keeps_the_last_and_counts_the_rest),
        TEST(events_of_no_device_are_counted_when_lost),
        TEST(capacities_out_of_range_are_refused),
        TEST(a_start_after_a_stop_goes_on),
        TEST(another_capacity_is_refused_and_changes_nothing),
        cmocka_unit_test(a_ledger_may_begin_with_events),
        TEST(each_stops_when_told_to),
        TEST(fn_may_record),
        TEST(readers_see_whole_events_while_eight_threads_write),
        TEST(more_threads_than_bursts_lose_nothing_uncounted),
        TEST(restarts_while_threads_write_and_read),
        TEST(threads_that_exit_leave_their_events),
        TEST(the_ring_keeps_the_last_events_of_a_thread_without_a_gap),
        TEST(an_event_without_a_free_sub_buffer_is_lost_on_its_device),
        TEST(a_thread_of_a_child_takes_the_record_of_one_that_the_fork_left_out),
        TEST(a_child_writes_into_what_the_threads_of_its_parent_held),
        TEST_FAKES(replaying_the_events_gives_what_is_live),
        TEST(without_memory_events_do_not_start),
        TEST_SITES(the_json_report_lists_events),
        TEST(events_carry_the_stream_of_their_block),
        TEST_FAKES(lifetimes_are_known_from_the_ring),
        cmocka_unit_test(a_null_ledger_has_no_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
