/* Threads: from 1 to 8 at once, and at the end the books are exact. The load is scaled by
   MEMLORD_TEST_SCALE. */
#include "support.h"

#include <pthread.h>
#include <sched.h>

#include "json.h"

#define MAX_THREADS 8
#define SCALE test_env("MEMLORD_TEST_SCALE", 4)

typedef struct queue {
    pthread_mutex_t lock;
    uint64_t keys[256];
    size_t n;
    int closed;
} queue;

typedef struct worker {
    memlord *lord;
    uint64_t id, ops, seed;
    uint64_t bad;      /* answers that were not expected */
    uint64_t counted;  /* what the test wants to know */
    int *stop;
    queue *in, *out;
    pthread_barrier_t *start;
} worker;

static const memlord_site alloc_site = {"threads.c", "allocate", 1};
static const memlord_site free_site = {"threads.c", "release", 2};
static const char *const tags[4] = {"weights", "kv_cache", "activations", "scratch"};

static void run(worker *workers, size_t n, void *(*fn)(void *), memlord *lord, uint64_t ops) {
    pthread_t threads[MAX_THREADS];
    size_t i;
    for (i = 0; i < n; i++) {
        workers[i].lord = lord;
        workers[i].id = i + 1;
        workers[i].ops = ops;
        workers[i].seed = i * 7919 + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, fn, &workers[i]), 0);
    }
    for (i = 0; i < n; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (i = 0; i < n; i++) assert_int_equal(workers[i].bad, 0);
}

/* Nothing lives, nothing was lost, by device, tag and site. */
static void assert_conserved(memlord *lord) {
    memlord_site_stat rows[64];
    memlord_stats s = stats_of(lord, all());
    size_t i, n;
    assert_int_equal(s.allocated, 0);
    assert_int_equal(s.live_blocks, 0);
    assert_int_equal(s.allocs, s.frees);
    assert_int_equal(s.total_allocated, s.total_freed);
    assert_int_equal(memlord_leaks(lord, 0, NULL, NULL), 0);
    for (i = 0; i < 4; i++) {
        memlord_tag_stat tag;
        if (memlord_tag_get(lord, all(), tags[i], &tag) != MEMLORD_OK) continue;
        assert_int_equal(tag.allocated, 0);
        assert_int_equal(tag.blocks, 0);
    }
    assert_int_equal(memlord_sites_top(lord, all(), MEMLORD_SITE_ORDER_LIVE_BYTES, rows, 64), 0);
    n = memlord_sites_top(lord, all(), MEMLORD_SITE_ORDER_ALLOC_BYTES, rows, 64);
    for (i = 0; i < n; i++) assert_int_equal(rows[i].live_bytes, 0);
}

static uint64_t site_sum(memlord *lord, memlord_site_order order) {
    memlord_site_stat rows[64];
    size_t i, n = memlord_sites_top(lord, all(), order, rows, 64);
    uint64_t sum = 0;
    for (i = 0; i < n; i++)
        sum += order == MEMLORD_SITE_ORDER_ALLOCS ? rows[i].allocs
               : order == MEMLORD_SITE_ORDER_FREES ? rows[i].frees
               : order == MEMLORD_SITE_ORDER_ALLOC_BYTES ? rows[i].alloc_bytes
                                                          : rows[i].free_bytes;
    return sum;
}

/* -- each its own blocks -- */

#define OWN_SLOTS 512

static void own_step(worker *w, uint64_t *sizes) {
    uint64_t slot = test_random(&w->seed) % OWN_SLOTS;
    uint64_t key = (w->id << 40) + (slot + 1) * 4096;
    memlord_device device = memlord_device_cuda((int)(slot % 3));
    if (sizes[slot]) {
        w->bad += memlord_free(w->lord, device, key, &free_site) != MEMLORD_OK;
        sizes[slot] = 0;
    } else {
        sizes[slot] = 1 + test_random(&w->seed) % 100000;
        w->bad += memlord_tag_begin(w->lord, tags[slot % 4]) != MEMLORD_OK;
        w->bad += memlord_alloc(w->lord, device, key, sizes[slot], &alloc_site) != MEMLORD_OK;
        w->bad += memlord_tag_end(w->lord) != MEMLORD_OK;
        w->counted++;
    }
}

static void *own_blocks(void *user) {
    worker *w = (worker *)user;
    uint64_t sizes[OWN_SLOTS], i;
    memset(sizes, 0, sizeof sizes);
    w->counted = 0;
    for (i = 0; i < w->ops; i++) own_step(w, sizes);
    for (i = 0; i < OWN_SLOTS; i++)
        if (sizes[i])
            w->bad += memlord_free(w->lord, memlord_device_cuda((int)(i % 3)),
                                   (w->id << 40) + (i + 1) * 4096, &free_site) != MEMLORD_OK;
    return NULL;
}

static void own_blocks_of_1_to_8_threads_are_counted_exactly(void **state) {
    memlord *lord = test_lord(state);
    uint64_t allocs = 0;
    size_t n, i;
    for (n = 1; n <= MAX_THREADS; n *= 2) {
        worker workers[MAX_THREADS];
        memset(workers, 0, sizeof workers);
        run(workers, n, own_blocks, lord, 5000 * SCALE);
        for (i = 0; i < n; i++) allocs += workers[i].counted;
        assert_conserved(lord);
        assert_int_equal(stats_of(lord, all()).allocs, allocs);
    }
    assert_int_equal(site_sum(lord, MEMLORD_SITE_ORDER_ALLOCS), allocs);
    assert_int_equal(site_sum(lord, MEMLORD_SITE_ORDER_FREES), allocs);
    assert_int_equal(site_sum(lord, MEMLORD_SITE_ORDER_ALLOC_BYTES),
                     stats_of(lord, all()).total_allocated);
    assert_int_equal(site_sum(lord, MEMLORD_SITE_ORDER_FREE_BYTES),
                     stats_of(lord, all()).total_freed);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

/* -- one allocates, the next one frees -- */

static int queue_push(queue *q, uint64_t key) {
    int pushed;
    pthread_mutex_lock(&q->lock);
    pushed = q->n < sizeof q->keys / sizeof q->keys[0];
    if (pushed) q->keys[q->n++] = key;
    pthread_mutex_unlock(&q->lock);
    return pushed;
}

/* 0: empty for now, UINT64_MAX: empty for ever. */
static uint64_t queue_pop(queue *q) {
    uint64_t key = 0;
    pthread_mutex_lock(&q->lock);
    if (q->n)
        key = q->keys[--q->n];
    else if (q->closed)
        key = UINT64_MAX;
    pthread_mutex_unlock(&q->lock);
    return key;
}

static int free_handed_over(worker *w) {
    uint64_t key = queue_pop(w->in);
    if (key == UINT64_MAX) return 0;
    if (key)
        w->bad += memlord_free(w->lord, memlord_device_cpu(), key, &free_site) != MEMLORD_OK;
    return 1;
}

static void *hand_over(void *user) {
    worker *w = (worker *)user;
    uint64_t i;
    for (i = 1; i <= w->ops; i++) {
        uint64_t key = (w->id << 40) + i * 64;
        memlord_tag_begin(w->lord, tags[i % 4]);
        w->bad += memlord_alloc(w->lord, memlord_device_cpu(), key, i % 5000, &alloc_site) !=
                  MEMLORD_OK;
        memlord_tag_end(w->lord);
        while (!queue_push(w->out, key)) free_handed_over(w);
        free_handed_over(w);
    }
    pthread_mutex_lock(&w->out->lock);
    w->out->closed = 1;
    pthread_mutex_unlock(&w->out->lock);
    while (free_handed_over(w)) {}
    return NULL;
}

static void frees_on_another_thread_are_exact(void **state) {
    memlord *lord = test_lord(state);
    size_t n, i;
    for (n = 2; n <= MAX_THREADS; n *= 2) {
        static queue queues[MAX_THREADS];
        worker workers[MAX_THREADS];
        memset(workers, 0, sizeof workers);
        memset(queues, 0, sizeof queues);
        for (i = 0; i < n; i++) {
            pthread_mutex_init(&queues[i].lock, NULL);
            workers[i].out = &queues[i];
            workers[i].in = &queues[(i + n - 1) % n];
        }
        run(workers, n, hand_over, lord, 3000 * SCALE);
        for (i = 0; i < n; i++) pthread_mutex_destroy(&queues[i].lock);
        assert_conserved(lord);
    }
    assert_int_equal(stats_of(lord, all()).allocs, (2 + 4 + 8) * 3000 * SCALE);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

/* -- all at one key -- */

static void *free_all(void *user) {
    worker *w = (worker *)user;
    uint64_t i;
    pthread_barrier_wait(w->start);
    for (i = 1; i <= w->ops; i++)
        w->counted += memlord_free(w->lord, memlord_device_cpu(), i * 64, NULL) == MEMLORD_OK;
    return NULL;
}

static void concurrent_double_frees_are_credited_once(void **state) {
    memlord *lord = test_lord(state);
    worker workers[MAX_THREADS];
    pthread_barrier_t start;
    uint64_t i, n = 5000 * SCALE, won = 0;
    memset(workers, 0, sizeof workers);
    assert_int_equal(pthread_barrier_init(&start, NULL, 4), 0);
    for (i = 1; i <= n; i++) assert_ok(memlord_alloc(lord, cpu(), i * 64, 10, NULL));
    for (i = 0; i < 4; i++) workers[i].start = &start;
    run(workers, 4, free_all, lord, n);
    pthread_barrier_destroy(&start);
    for (i = 0; i < 4; i++) won += workers[i].counted;
    assert_int_equal(won, n);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 3 * n);
    assert_int_equal(stats_of(lord, cpu()).frees, n);
    assert_int_equal(memlord_freed(lord, cpu()), 10 * n);
    assert_conserved(lord);
}

static void *allocate_one_key(void *user) {
    worker *w = (worker *)user;
    uint64_t i;
    for (i = 0; i < w->ops; i++)
        w->bad += memlord_alloc(w->lord, memlord_device_cuda((int)w->id), 0x1000, w->id,
                                &alloc_site) != MEMLORD_OK;
    return NULL;
}

static void concurrent_allocs_of_one_key_leave_one_block(void **state) {
    memlord *lord = test_lord(state);
    worker workers[MAX_THREADS];
    uint64_t n = 5000 * SCALE;
    memset(workers, 0, sizeof workers);
    run(workers, 4, allocate_one_key, lord, n);
    assert_int_equal(stats_of(lord, all()).allocs, 4 * n);
    assert_int_equal(stats_of(lord, all()).implicit_frees, 4 * n - 1);
    assert_int_equal(stats_of(lord, all()).live_blocks, 1);
    assert_true(memlord_allocated(lord, all()) >= 1 && memlord_allocated(lord, all()) <= 4);
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_conserved(lord);
}

static void *share_views(void *user) {
    worker *w = (worker *)user;
    uint64_t i, held[64];
    memset(held, 0, sizeof held);
    for (i = 0; i < w->ops; i++) {
        uint64_t slot = test_random(&w->seed) % 64, key = (slot + 1) * 64;
        if (held[slot] && test_random(&w->seed) % 2) {
            w->bad += memlord_release(w->lord, memlord_device_cpu(), key, NULL) != MEMLORD_OK;
            held[slot]--;
        } else {
            w->bad += memlord_track(w->lord, memlord_device_cpu(), key, 10, NULL) != MEMLORD_OK;
            held[slot]++;
        }
    }
    for (i = 0; i < 64; i++)
        while (held[i]--)
            w->bad += memlord_release(w->lord, memlord_device_cpu(), (i + 1) * 64, NULL) !=
                      MEMLORD_OK;
    return NULL;
}

static void views_shared_by_threads_end_with_the_last(void **state) {
    memlord *lord = test_lord(state);
    worker workers[MAX_THREADS];
    memset(workers, 0, sizeof workers);
    run(workers, 8, share_views, lord, 5000 * SCALE);
    assert_conserved(lord);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

/* -- everything a block can do, on own blocks of one stride -- */

static void one_life(worker *w, uint64_t key) {
    memlord_device device = memlord_device_cuda((int)(key / 4096 % 5));
    memlord_realloc_token token;
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    meta.name = "tensor";
    w->bad += memlord_alloc(w->lord, device, key, 100, &alloc_site) != MEMLORD_OK;
    w->bad += memlord_realloc(w->lord, device, key, key + 1, 300, NULL) != MEMLORD_OK;
    w->bad += memlord_block_retag(w->lord, device, key + 1, tags[key / 4096 % 4]) != MEMLORD_OK;
    w->bad += memlord_block_describe(w->lord, device, key + 1, &meta) != MEMLORD_OK;
    w->bad += memlord_retain(w->lord, device, key + 1, NULL) != MEMLORD_OK;
    w->bad += memlord_realloc_begin(w->lord, device, key + 1, &token) != MEMLORD_OK;
    w->bad += memlord_realloc_end(w->lord, &token, key + 2, 50, NULL) != MEMLORD_OK;
    w->bad += memlord_move(w->lord, device, key + 2, memlord_device_cpu(), key + 3, 60, NULL,
                           NULL) != MEMLORD_OK;
    w->bad += memlord_release(w->lord, memlord_device_cpu(), key + 3, NULL) != MEMLORD_OK;
    w->bad += memlord_release(w->lord, memlord_device_cpu(), key + 3, &free_site) != MEMLORD_OK;
    w->bad += memlord_arena_add(w->lord, device, 1000, NULL) != MEMLORD_OK;
    w->bad += memlord_arena_sub(w->lord, device, 1000, NULL) != MEMLORD_OK;
}

static void *whole_lives(void *user) {
    worker *w = (worker *)user;
    uint64_t i;
    for (i = 1; i <= w->ops; i++) one_life(w, ((i % 256 + 1) << 32) + (w->id << 12));
    return NULL;
}

static void whole_lives_on_8_threads_add_up_to_nothing(void **state) {
    memlord *lord = test_lord(state);
    worker workers[MAX_THREADS];
    memset(workers, 0, sizeof workers);
    run(workers, 8, whole_lives, lord, 1000 * SCALE);
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).live_blocks, 0);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_int_equal(stats_of(lord, all()).implicit_frees, 0);
    assert_int_equal(stats_of(lord, all()).underflows, 0);
    assert_int_equal(stats_of(lord, all()).moves, 8 * 1000 * SCALE);
    assert_balanced(lord, all());
}

/* -- readers -- */

static int check_block(void *user, const memlord_block_info *info) {
    worker *w = (worker *)user;
    w->bad += info->bytes > 100000 || info->refs != 1 || !info->storage;
    return 0;
}

/* The mutators hold at most this at any moment. */
#define READ_BOUND ((uint64_t)3 * OWN_SLOTS * 100000)

static void read_once(worker *w) {
    memlord_stats s;
    memlord_block_info top[4];
    memlord_tag_stat tag;
    size_t i, n;
    w->bad += memlord_stats_get(w->lord, memlord_device_all(), &s) != MEMLORD_OK;
    w->bad += s.allocated > READ_BOUND || s.live_blocks > 3 * OWN_SLOTS;
    w->bad += memlord_peak(w->lord, memlord_device_cuda(1)) > READ_BOUND;
    w->bad += memlord_allocated(w->lord, memlord_device_cuda(0)) > READ_BOUND;
    w->bad += memlord_blocks_each(w->lord, memlord_device_all(), 0, check_block, w) != MEMLORD_OK;
    n = memlord_blocks_top(w->lord, memlord_device_all(), top, 4);
    for (i = 1; i < n; i++) w->bad += top[i].bytes > top[i - 1].bytes;
    if (memlord_tag_get(w->lord, memlord_device_all(), tags[1], &tag) == MEMLORD_OK)
        w->bad += tag.allocated > READ_BOUND || tag.blocks > 3 * OWN_SLOTS;
    memlord_mark(w->lord);
    memlord_leaks(w->lord, 1, NULL, NULL);
}

static void report_once(worker *w) {
    test_text text;
    memset(&text, 0, sizeof text);
    w->bad += memlord_write(w->lord, MEMLORD_FORMAT_JSON, test_text_write, &text) != MEMLORD_OK;
    w->bad += !text.data || !json_valid(text.data);
    free(text.data);
}

static void *read_everything(void *user) {
    worker *w = (worker *)user;
    while (!__atomic_load_n(w->stop, __ATOMIC_RELAXED)) {
        read_once(w);
        report_once(w);
        __atomic_fetch_add(&w->counted, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void readers_and_reports_are_sound_while_others_mutate(void **state) {
    memlord *lord = test_lord(state);
    worker readers[2], workers[MAX_THREADS];
    pthread_t threads[2];
    int stop = 0;
    size_t i;
    memset(readers, 0, sizeof readers);
    memset(workers, 0, sizeof workers);
    for (i = 0; i < 2; i++) {
        readers[i].lord = lord;
        readers[i].stop = &stop;
        assert_int_equal(pthread_create(&threads[i], NULL, read_everything, &readers[i]), 0);
    }
    do run(workers, 3, own_blocks, lord, 20000 * SCALE); /* until each reader has had a turn */
    while (!__atomic_load_n(&readers[0].counted, __ATOMIC_RELAXED) ||
           !__atomic_load_n(&readers[1].counted, __ATOMIC_RELAXED));
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].bad, 0);
    }
    assert_conserved(lord);
}

static void *reset_often(void *user) {
    worker *w = (worker *)user;
    while (!__atomic_load_n(w->stop, __ATOMIC_RELAXED)) {
        memlord_reset(w->lord);
        memlord_peak_reset(w->lord, memlord_device_all());
        memlord_sites_enable(w->lord, (int)(w->counted++ % 2));
        w->bad += memlord_allocated(w->lord, memlord_device_all()) > READ_BOUND;
        w->bad += memlord_freed(w->lord, memlord_device_all()) > (uint64_t)1 << 60;
        w->bad += memlord_peak(w->lord, memlord_device_all()) > READ_BOUND;
    }
    return NULL;
}

static void resets_while_others_mutate_never_touch_live_bytes(void **state) {
    memlord *lord = test_lord(state);
    worker resetter, workers[MAX_THREADS];
    pthread_t thread;
    int stop = 0;
    memset(&resetter, 0, sizeof resetter);
    memset(workers, 0, sizeof workers);
    resetter.lord = lord;
    resetter.stop = &stop;
    assert_int_equal(pthread_create(&thread, NULL, reset_often, &resetter), 0);
    run(workers, 3, own_blocks, lord, 10000 * SCALE);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(resetter.bad, 0);
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).live_blocks, 0);
    memlord_reset(lord);
    assert_int_equal(stats_of(lord, all()).total_allocated, 0);
    assert_int_equal(stats_of(lord, all()).total_freed, 0);
    assert_int_equal(memlord_peak(lord, all()), 0);
}

/* -- ledgers and threads that come and go -- */

static void *open_and_close(void *user) {
    worker *w = (worker *)user;
    uint64_t i, j;
    for (i = 0; i < w->ops; i++) {
        memlord *lord = NULL;
        w->bad += memlord_create(NULL, &lord) != MEMLORD_OK;
        memlord_sites_enable(lord, 1);
        for (j = 0; j < 4; j++) {
            w->bad += memlord_tag_begin(lord, tags[j]) != MEMLORD_OK;
            w->bad += memlord_alloc(lord, memlord_device_cpu(), 64 + j, 1, &alloc_site) !=
                      MEMLORD_OK;
        }
        w->bad += memlord_allocated(lord, memlord_device_all()) != 4;
        memlord_destroy(lord);
    }
    return NULL;
}

/* -- tickets and accounts that go from thread to thread -- */

#define REQUESTS 64

static struct {
    pthread_barrier_t start;
    memlord_ticket tickets[REQUESTS]; /* of the round */
    memlord_account accounts[4];
} desk;

/* Serves a ticket that thread 1 has reserved: adopts it or names it, allocates, commits, frees. It
   also adopts a ticket that another thread serves. Returns 1 if an answer was not expected. */
static uint64_t serve_ticket(memlord *lord, uint64_t id, uint64_t round, uint64_t i) {
    const memlord_device d = memlord_device_cuda(0);
    const memlord_ticket ticket = desk.tickets[i];
    const uint64_t key = (id + 1) << 40 | (i + 1) << 8;
    int bad = memlord_account_use(lord, desk.accounts[(i + round) % 4]) != MEMLORD_OK;
    if (i % 2) {
        bad |= memlord_reserve_adopt(lord, ticket) != MEMLORD_OK;
        bad |= memlord_alloc(lord, d, key, 70, NULL) != MEMLORD_OK;
    } else {
        bad |= memlord_alloc_reserved(lord, ticket, d, key, 70, NULL) != MEMLORD_OK;
    }
    (void)memlord_reserve_adopt(lord, desk.tickets[(i + 7) % REQUESTS]); /* perhaps closed */
    bad |= memlord_reserve_commit(lord, ticket) != MEMLORD_OK;
    bad |= memlord_free(lord, d, key, NULL) != MEMLORD_OK;
    bad |= memlord_reserve_commit(lord, ticket) != MEMLORD_E_UNKNOWN;
    return bad != 0;
}

static void *serve_tickets(void *user) {
    worker *w = (worker *)user;
    uint64_t round, i;
    for (round = 0; round < w->ops; round++) {
        for (i = 0; i < REQUESTS && w->id == 1; i++)
            w->bad += memlord_reserve(w->lord, memlord_device_cuda(0), 100, &desk.tickets[i]) !=
                      MEMLORD_OK;
        pthread_barrier_wait(&desk.start);
        for (i = w->id - 1; i < REQUESTS; i += MAX_THREADS)
            w->bad += serve_ticket(w->lord, w->id, round, i);
        pthread_barrier_wait(&desk.start);
    }
    return NULL;
}

static void tickets_and_accounts_that_threads_share_are_exact(void **state) {
    memlord *lord = test_lord(state);
    worker workers[MAX_THREADS];
    memlord_account_stat stat;
    size_t i;
    memset(workers, 0, sizeof workers);
    assert_ok(memlord_limit_set(lord, cuda(0), REQUESTS * 100)); /* for one round to the byte */
    assert_int_equal(pthread_barrier_init(&desk.start, NULL, MAX_THREADS), 0);
    for (i = 0; i < 4; i++)
        assert_ok(memlord_account_open(lord, cuda(0), "shared", 0, &desk.accounts[i]));
    run(workers, MAX_THREADS, serve_tickets, lord, 200 * SCALE);
    pthread_barrier_destroy(&desk.start);
    for (i = 0; i < 4; i++) {
        assert_ok(memlord_account_get(lord, desk.accounts[i], &stat));
        assert_int_equal(stat.bytes, 0);
    }
    assert_int_equal(stats_of(lord, cuda(0)).held, 0);
    assert_conserved(lord);
}

static void ledgers_may_open_and_close_on_many_threads(void **state) {
    worker workers[MAX_THREADS];
    (void)state;
    memset(workers, 0, sizeof workers);
    run(workers, 8, open_and_close, NULL, 50 * SCALE);
}

/* In a tag of two ledgers all the time; now and then in a third, which ends and comes again. */
typedef struct tagger {
    memlord **lords; /* the last is the third */
    uint64_t base, untagged;
    int *stop, asked;
} tagger;

static void tagged_allocs(tagger *t, uint64_t key) {
    memlord_block_info block;
    int i;
    for (i = 0; i < 2; i++) (void)memlord_alloc(t->lords[i], cpu(), key, 64, NULL);
    for (i = 0; i < 2; i++)
        t->untagged += memlord_block_find(t->lords[i], cpu(), key, &block) || !block.tag;
    for (i = 0; i < 2; i++) (void)memlord_free(t->lords[i], cpu(), key, NULL);
}

static void *stay_in_tags(void *user) {
    tagger *t = (tagger *)user;
    uint64_t k = 0;
    memlord_tag_begin(t->lords[0], "stays");
    memlord_tag_begin(t->lords[1], "stays");
    while (!__atomic_load_n(t->stop, __ATOMIC_ACQUIRE)) {
        if (__atomic_load_n(&t->asked, __ATOMIC_ACQUIRE)) {
            memlord_alloc(t->lords[2], memlord_device_cpu(), t->base, 64, NULL);
            __atomic_store_n(&t->asked, 0, __ATOMIC_RELEASE);
        }
        tagged_allocs(t, t->base + ++k % 100 * 64);
    }
    return NULL;
}

static void a_tag_stays_while_another_thread_ends_another_ledger(void **state) {
    memlord *lords[3] = {NULL, NULL, NULL};
    tagger taggers[3];
    pthread_t threads[3];
    uint64_t i, k, rounds = 50 * SCALE;
    int stop = 0;
    (void)state;
    for (i = 0; i < 3; i++) assert_ok(memlord_create(NULL, &lords[i]));
    for (i = 0; i < 3; i++) {
        memset(&taggers[i], 0, sizeof taggers[i]);
        taggers[i].lords = lords;
        taggers[i].base = (i + 1) << 32;
        taggers[i].stop = &stop;
        taggers[i].asked = 1;
        assert_int_equal(pthread_create(&threads[i], NULL, stay_in_tags, &taggers[i]), 0);
    }
    for (k = 0; k < rounds; k++) {
        for (i = 0; i < 3; i++)
            while (__atomic_load_n(&taggers[i].asked, __ATOMIC_ACQUIRE)) sched_yield();
        memlord_destroy(lords[2]);
        assert_ok(memlord_create(NULL, &lords[2]));
        for (i = 0; i < 3; i++) __atomic_store_n(&taggers[i].asked, 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (i = 0; i < 3; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (i = 0; i < 3; i++) assert_int_equal(taggers[i].untagged, 0);
    for (i = 0; i < 3; i++) {
        assert_ok(memlord_verify(lords[i]));
        memlord_destroy(lords[i]);
    }
}

/* More ledgers than a thread remembers at once: each call finds its record by its number. */
static void a_thread_finds_its_record_in_each_of_many_ledgers(void **state) {
    memlord *lords[40];
    test_heap heap;
    memlord_desc desc = test_desc(&heap, 0);
    uint64_t bytes = 0;
    int i, k;
    (void)state;
    memset(&heap, 0, sizeof heap);
    for (i = 0; i < 40; i++) {
        assert_ok(memlord_create(&desc, &lords[i]));
        assert_ok(memlord_tag_begin(lords[i], "mine"));
    }
    for (k = 1; k <= 4; k++) {
        for (i = 0; i < 40; i++) assert_ok(memlord_alloc(lords[i], cpu(), 4096, 8, NULL));
        for (i = 0; i < 40; i++) assert_ok(memlord_free(lords[i], cpu(), 4096, NULL));
        if (k == 1) bytes = heap.bytes;
    }
    assert_int_equal(heap.bytes, bytes);
    for (i = 0; i < 40; i++) {
        assert_ok(memlord_tag_end(lords[i]));
        memlord_destroy(lords[i]);
    }
    assert_int_equal(heap.bytes, 0);
}

static void *short_life(void *user) {
    worker *w = (worker *)user;
    uint64_t key = (w->id + 1) << 20;
    w->bad += memlord_tag_begin(w->lord, tags[w->id % 4]) != MEMLORD_OK;
    w->bad += memlord_alloc(w->lord, memlord_device_cpu(), key, 10, &alloc_site) != MEMLORD_OK;
    w->bad += memlord_free(w->lord, memlord_device_cpu(), key, &free_site) != MEMLORD_OK;
    w->bad += memlord_tag_end(w->lord) != MEMLORD_OK;
    return NULL;
}

static void churn_threads(worker *workers, uint64_t n) {
    uint64_t i;
    for (i = 0; i < n; i += 2) {
        pthread_t a, b;
        assert_int_equal(pthread_create(&a, NULL, short_life, &workers[0]), 0);
        assert_int_equal(pthread_create(&b, NULL, short_life, &workers[1]), 0);
        assert_int_equal(pthread_join(a, NULL), 0);
        assert_int_equal(pthread_join(b, NULL), 0);
    }
}

static void twenty_thousand_threads_leave_nothing_behind(void **state) {
    test_case *t = (test_case *)*state;
    worker workers[2];
    uint64_t n = 5000 * SCALE, bytes;
    memset(workers, 0, sizeof workers);
    workers[0].lord = workers[1].lord = t->lord;
    workers[1].id = 1;
    churn_threads(workers, 100);
    bytes = t->heap.bytes;
    churn_threads(workers, n - 100);
    assert_int_equal(workers[0].bad + workers[1].bad, 0);
    assert_true(t->heap.bytes <= bytes + 131072); /* kept once, not by each */
    assert_int_equal(stats_of(t->lord, cpu()).allocs, n);
    assert_conserved(t->lord);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_SITES(own_blocks_of_1_to_8_threads_are_counted_exactly),
        TEST_SITES(frees_on_another_thread_are_exact),
        TEST(concurrent_double_frees_are_credited_once),
        TEST_SITES(concurrent_allocs_of_one_key_leave_one_block),
        TEST(views_shared_by_threads_end_with_the_last),
        TEST_SITES(whole_lives_on_8_threads_add_up_to_nothing),
        TEST_SITES(readers_and_reports_are_sound_while_others_mutate),
        TEST_SITES(resets_while_others_mutate_never_touch_live_bytes),
        TEST(tickets_and_accounts_that_threads_share_are_exact),
        cmocka_unit_test(ledgers_may_open_and_close_on_many_threads),
        cmocka_unit_test(a_tag_stays_while_another_thread_ends_another_ledger),
        cmocka_unit_test(a_thread_finds_its_record_in_each_of_many_ledgers),
        TEST_SITES(twenty_thousand_threads_leave_nothing_behind),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
