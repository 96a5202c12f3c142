/* Threads for which no record can be had: the process has used up its thread keys before the
   first ledger. All of them share one record: slower, as exact. */
#include "support.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void every_call_is_counted(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_track(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 30, NULL));
    assert_ok(memlord_release(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_realloc(lord, cuda(0), 0x2000, 0x3000, 50, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    s = stats_of(lord, all());
    assert_int_equal(s.allocated, 50);
    assert_int_equal(s.total_allocated, 150);
    assert_int_equal(s.peak, 150);
}

static void tags_have_no_stack(void **state) {
    assert_int_equal(memlord_tag_begin(test_lord(state), "weights"), MEMLORD_E_NOMEM);
    assert_int_equal(memlord_tag_end(test_lord(state)), MEMLORD_E_STATE);
}

static void a_stream_is_nobody_s_and_counted(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    assert_int_equal(memlord_stream_set(lord, 7), 0);
    assert_int_equal(stats_of(lord, all()).dropped_sites, 1);
    assert_int_equal(memlord_stream_set(lord, 0), 0);
    assert_int_equal(stats_of(lord, all()).dropped_sites, 1);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_block_find(lord, cpu(), 0x1000, &info));
    assert_int_equal(info.stream, 0);
}

/* Reallocs used to make tables that only a thread of its own may have, in shards that are not. */
static void *churn(void *user) {
    memlord *lord = (memlord *)user;
    unsigned seed = 7, i;
    for (i = 0; i < 40000; i++) {
        uint64_t key = 0x700000000000u + (uint64_t)(seed >> 8) % 300 * 64;
        memlord_realloc_token token;
        seed = seed * 1103515245u + 12345u;
        if (i % 4 == 0) {
            (void)memlord_alloc(lord, cuda(0), key, 100, NULL);
        } else if (i % 4 == 1) {
            (void)memlord_free(lord, cuda(0), key, NULL);
        } else {
            (void)memlord_realloc_begin(lord, cuda(0), key, &token);
            (void)memlord_realloc_end(lord, &token, seed & 256 ? key + 64 : 0, 200, NULL);
        }
    }
    return NULL;
}
static void reallocs_keep_the_map_whole(void **state) {
    memlord *lord = test_lord(state);
    pthread_t other;
    uint64_t key;
    assert_int_equal(pthread_create(&other, NULL, churn, lord), 0);
    (void)churn(lord);
    assert_int_equal(pthread_join(other, NULL), 0);
    for (key = 0x700000000000u; key < 0x700000000000u + 301 * 64; key += 64)
        (void)memlord_free(lord, cuda(0), key, NULL);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(stats_of(lord, cuda(0)).live_blocks, 0);
}

static memlord_gc_result count_run(void *user, memlord *lord, const memlord_gc_event *event) {
    memlord_gc_result result = {1, 0, 0};
    (void)lord;
    (void)event;
    ++*(int *)user;
    return result;
}
static void bands_are_never_late(void **state) {
    memlord *lord = test_lord(state);
    memlord_band band = {0, 101, MEMLORD_METRIC_ALLOCATED, 1 << 20, 0, MEMLORD_COMBINE_MAX};
    uint64_t i;
    int runs = 0;
    assert_ok(memlord_strategy_set(lord, all(), &band, 1));
    assert_ok(memlord_gc_callback_add(lord, any(MEMLORD_DEVICE_CUDA), 0, count_run, &runs));
    for (i = 1; i < 1024; i++) assert_ok(memlord_alloc(lord, cuda(0), i * 4096, 1024, NULL));
    assert_int_equal(runs, 0);
    assert_ok(memlord_alloc(lord, cuda(0), i * 4096, 1024, NULL));
    assert_int_equal(runs, 1);
}

static int not_yet(void *user) { return *(int *)user; }
static void deferred_frees_are_credited_once(void **state) {
    memlord *lord = test_lord(state);
    memlord_fence fence = {not_yet, NULL, 0, NULL};
    int done = 0;
    fence.user = &done;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_free_deferred(lord, cuda(0), 0x1000, fence, NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), 100);
    done = 1;
    assert_int_equal(memlord_retire(lord, cuda(0)), 100);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
}

static void reservations_count_twice_until_their_commit(void **state) {
    memlord *lord = test_lord(state);
    memlord_ticket ticket;
    assert_ok(memlord_limit_set(lord, cuda(0), 200));
    assert_ok(memlord_reserve(lord, cuda(0), 100, &ticket));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_int_equal(memlord_headroom(lord, cuda(0)), 0);
    assert_ok(memlord_reserve_commit(lord, ticket));
    assert_int_equal(memlord_headroom(lord, cuda(0)), 100);
}

static void frees_are_counted_at_their_sites(void **state) {
    static const memlord_site in = {"in.c", "in", 1}, out = {"out.c", "out", 2};
    memlord *lord = test_lord(state);
    memlord_site_stat best;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, &in));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, &out));
    assert_int_equal(memlord_site_top_free(lord, cuda(0), &best), 1);
    assert_string_equal(best.site->file, "out.c");
    assert_int_equal(best.free_bytes, 100);
    assert_int_equal(best.frees, 1);
}

static int count_parts(void *user, const memlord_part_info *part) {
    *(uint64_t *)user += part->bytes;
    return 0;
}
static memlord_fence fence_of(int *done) {
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    fence.done = not_yet;
    fence.user = done;
    return fence;
}
static int give_a_block(void *user, uint64_t bytes, uint64_t *storage) {
    (void)user, (void)bytes;
    *storage = 0x9000;
    return 0;
}

/* The record has one lock: a call that kept it would let the next one wait for ever. */
static void every_call_on_a_block_gives_the_record_back(void **state) {
    memlord *lord = test_lord(state);
    memlord_block two[2];
    memlord_block_info info;
    memlord_meta meta;
    uint64_t bytes = 0, storage;
    int done = 1;
    memset(&meta, 0, sizeof meta);
    meta.name = "kv";
    memset(two, 0, sizeof two);
    two[0].device = two[1].device = cuda(0);
    two[0].storage = 0x5000;
    two[1].storage = 0x6000;
    two[0].bytes = two[1].bytes = 5;
    assert_ok(memlord_alloc_n(lord, two, 2, NULL));
    assert_ok(memlord_track_n(lord, two, 2, NULL));
    assert_ok(memlord_release_n(lord, two, 2, NULL));
    assert_ok(memlord_free_n(lord, two, 2, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_part_add(lord, cuda(0), 0x1000, 0, 40, NULL));
    assert_ok(memlord_part_add(lord, cuda(0), 0x1000, 50, 7, &meta));
    assert_int_equal(memlord_parts_each(lord, cuda(0), 0x1000, count_parts, &bytes), 2);
    assert_int_equal(bytes, 47);
    assert_ok(memlord_part_remove(lord, cuda(0), 0x1000, 0));
    assert_ok(memlord_block_describe(lord, cuda(0), 0x1000, &meta));
    assert_ok(memlord_block_retag(lord, cuda(0), 0x1000, "tag"));
    assert_ok(memlord_block_use(lord, cuda(0), 0x1000, fence_of(&done)));
    assert_ok(memlord_block_find(lord, cuda(0), 0x1000, &info));
    assert_string_equal(info.meta.name, "kv");
    assert_string_equal(info.tag, "tag");
    assert_ok(memlord_move(lord, cuda(0), 0x1000, cuda(1), 0x2000, 90, NULL, NULL));
    done = 0;
    assert_ok(memlord_free_deferred(lord, cuda(1), 0x2000, fence_of(&done), NULL));
    assert_ok(memlord_free_done(lord, cuda(1), 0x2000));
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_ok(memlord_alloc_retry(lord, cuda(0), 9, give_a_block, NULL, NULL, &storage, NULL));
    assert_ok(memlord_arena_add(lord, cuda(0), 3, NULL));
    assert_ok(memlord_arena_sub(lord, cuda(0), 1, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 11);
}

static void every_other_call_gives_the_record_back(void **state) {
    memlord *lord = test_lord(state);
    memlord_account account;
    memlord_scope_token token;
    memlord_ticket ticket;
    memlord_guard guard;
    assert_ok(memlord_events_start(lord, 100));
    assert_ok(memlord_account_open(lord, cuda(0), "a", 0, &account));
    assert_int_equal(memlord_account_use(lord, account), MEMLORD_E_NOMEM);
    assert_ok(memlord_account_use(lord, 0));
    assert_int_equal(memlord_scope_begin(lord, "s"), MEMLORD_E_NOMEM);
    assert_int_equal(memlord_scope_end(lord), MEMLORD_E_STATE);
    assert_int_equal(memlord_scope_shapes_set(lord, "[1]"), MEMLORD_E_STATE);
    assert_int_equal(memlord_scope_export(lord, &token), MEMLORD_E_STATE);
    assert_int_equal(memlord_scope_adopt(lord, &token), MEMLORD_E_NOMEM);
    assert_int_equal(memlord_scope_return(lord, &token), MEMLORD_E_STATE);
    assert_int_equal(memlord_scope_current(lord), 0);
    guard = memlord_guard_scope(lord, "s", NULL);
    memlord_guard_end(&guard);
    assert_ok(memlord_reserve(lord, cuda(0), 10, &ticket));
    assert_ok(memlord_reserve_adopt(lord, ticket));
    assert_ok(memlord_alloc_reserved(lord, ticket, cuda(0), 0x1000, 4, NULL));
    assert_int_equal(stats_of(lord, cuda(0)).held, 6);
    assert_ok(memlord_reserve_commit(lord, ticket));
    assert_ok(memlord_checkpoint(lord, "c"));
    assert_ok(memlord_copy(lord, cpu(), cuda(0), 5));
    assert_ok(memlord_alloc_failed(lord, cuda(0), 7, NULL));
    assert_int_equal(stats_of(lord, cuda(0)).copied_bytes, 5);
    memlord_reset(lord);
    memlord_peak_reset(lord, all());
    assert_int_equal(stats_of(lord, cuda(0)).copied_bytes, 0);
    assert_int_equal(memlord_peak(lord, cuda(0)), 4);
    assert_ok(memlord_verify(lord));
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

/* New tags and sites take the lock of names while the one record is held; so does a fork. */
static int retagged; /* enough */
static void *keep_retagging(void *user) {
    static memlord_site sites[20000];
    memlord *lord = (memlord *)user;
    unsigned i;
    for (i = 0; !__atomic_load_n(&retagged, __ATOMIC_ACQUIRE); i = (i + 1) % 20000) {
        char tag[32];
        sites[i].file = "orphans.c";
        sites[i].function = "keep_retagging";
        sites[i].line = (int)i + 1;
        (void)snprintf(tag, sizeof tag, "tag %u", i);
        (void)memlord_alloc(lord, cpu(), 0x1000, 8, &sites[i]);
        (void)memlord_block_retag(lord, cpu(), 0x1000, tag);
    }
    return NULL;
}
static int fork_and_retag(void) {
    memlord_desc desc;
    memlord *lord;
    pthread_t other;
    int i, status = 0;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_SITES | MEMLORD_FLAG_NO_ENV;
    if (memlord_create(&desc, &lord)) return 1;
    if (pthread_create(&other, NULL, keep_retagging, lord)) return 2;
    for (i = 0; i < 100 && !status; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(60);
            _exit(memlord_block_retag(lord, cpu(), 0x1000, "child") == MEMLORD_E_INVALID);
        }
        if (waitpid(pid, &status, 0) != pid) status = 3;
    }
    __atomic_store_n(&retagged, 1, __ATOMIC_RELEASE);
    return pthread_join(other, NULL) || status;
}
/* In a child, which an alarm ends if it hangs. */
static void assert_ends(int (*fn)(void)) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(120);
        _exit(fn());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) fail_msg("the child died of signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The allocator of a host that has one lock for it and for the calls that report. */
typedef struct guarded {
    pthread_mutex_t lock;
    memlord *lord;
} guarded;
static __thread int reports;
static void *guarded_alloc(void *user, size_t size) {
    guarded *g = (guarded *)user;
    void *p;
    if (!reports) usleep(1000); /* the other thread takes the lock, and calls */
    pthread_mutex_lock(&g->lock);
    p = malloc(size);
    pthread_mutex_unlock(&g->lock);
    return p;
}
static void guarded_free(void *user, void *ptr, size_t size) {
    guarded *g = (guarded *)user;
    (void)size;
    pthread_mutex_lock(&g->lock);
    free(ptr);
    pthread_mutex_unlock(&g->lock);
}
static void *report_under_the_lock(void *user) {
    guarded *g = (guarded *)user;
    uint64_t i;
    for (i = 1; i <= 20000; i++) {
        pthread_mutex_lock(&g->lock);
        reports = 1;
        (void)memlord_alloc(g->lord, cuda(0), i * 64, 8, NULL);
        reports = 0;
        pthread_mutex_unlock(&g->lock);
        (void)memlord_alloc(g->lord, cuda(1), i << 20, 8, NULL);
    }
    return NULL;
}
static int report_from_an_allocator(void) {
    guarded g;
    memlord_desc desc;
    pthread_t threads[2];
    pthread_mutexattr_t recursive;
    g.lord = NULL;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&g.lock, &recursive);
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    desc.allocator.alloc = guarded_alloc;
    desc.allocator.free = guarded_free;
    desc.allocator.user = &g;
    if (memlord_create(&desc, &g.lord)) return 1;
    if (pthread_create(&threads[0], NULL, report_under_the_lock, &g) ||
        pthread_create(&threads[1], NULL, report_under_the_lock, &g))
        return 2;
    (void)pthread_join(threads[0], NULL);
    (void)pthread_join(threads[1], NULL);
    if (memlord_verify(g.lord)) return 3;
    memlord_destroy(g.lord);
    return 0;
}

static void a_fork_waits_for_a_call_that_waits_for_a_name(void **state) {
    (void)state;
    assert_ends(fork_and_retag);
}
static void the_allocator_may_wait_for_a_thread_that_calls(void **state) {
    (void)state;
    assert_ends(report_from_an_allocator);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_call_is_counted),
        TEST(tags_have_no_stack),
        TEST(a_stream_is_nobody_s_and_counted),
        TEST(reallocs_keep_the_map_whole),
        TEST(bands_are_never_late),
        TEST(deferred_frees_are_credited_once),
        TEST(reservations_count_twice_until_their_commit),
        TEST_SITES(frees_are_counted_at_their_sites),
        TEST(every_call_on_a_block_gives_the_record_back),
        TEST(every_other_call_gives_the_record_back),
        cmocka_unit_test(a_fork_waits_for_a_call_that_waits_for_a_name),
        cmocka_unit_test(the_allocator_may_wait_for_a_thread_that_calls),
    };
    pthread_key_t key;
    while (pthread_key_create(&key, NULL) == 0) {}
    return cmocka_run_group_tests_name("orphans", tests, NULL, NULL);
}
