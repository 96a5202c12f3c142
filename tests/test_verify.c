/* memlord_verify: a ledger that agrees with itself, whatever was done to it; and one that does not.
   This suite has the implementation in it, to change what a host cannot reach. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#if defined(MEMLORD_CHECK_LOCKS)
#define MEMLORD_ASSERT(expression) ((expression) ? (void)0 : abort())
#endif
#define MEMLORD_STATIC
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

#include "support.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const memlord_site here = {"loader.c", "read_tensors", 12};

/* -- a ledger with something of everything -- */

enum { BLOCK = 0x10000, PENDING = 0x20000, PARTED = 0x30000, MANY = 0x1000000 };

static int never(void *user) {
    (void)user;
    return 0;
}
static memlord_fence fence_of(uint64_t queue) {
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    fence.done = never;
    fence.queue = queue;
    return fence;
}
static void add_part(memlord *lord, uint64_t offset, uint64_t bytes) {
    assert_ok(memlord_part_add(lord, cuda(0), PARTED, offset, bytes, NULL));
}

/* Three blocks on cuda:0: one of 64 bytes with a tag, a site and a scope, one pending of 100 with
   two fences, one of 1000 with two parts. On the cpu 7 bytes of an arena, and an open ticket and
   an open account, each beside a closed one. */
static void fill(memlord *lord) {
    memlord_ticket ticket, done;
    memlord_account account, gone;
    assert_ok(memlord_sites_enable(lord, 1));
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_scope_begin(lord, "load"));
    assert_ok(memlord_alloc(lord, cuda(0), BLOCK, 64, &here));
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_alloc(lord, cuda(0), PENDING, 100, NULL));
    assert_ok(memlord_block_use(lord, cuda(0), PENDING, fence_of(1)));
    assert_ok(memlord_free_deferred(lord, cuda(0), PENDING, fence_of(2), &here));
    assert_ok(memlord_alloc(lord, cuda(0), PARTED, 1000, NULL));
    add_part(lord, 0, 10);
    add_part(lord, 500, 500);
    assert_ok(memlord_arena_add(lord, cpu(), 7, &here));
    assert_ok(memlord_reserve(lord, cpu(), 50, &ticket));
    assert_ok(memlord_reserve(lord, cpu(), 60, &done));
    assert_ok(memlord_reserve_commit(lord, done));
    assert_ok(memlord_account_open(lord, cpu(), "request", 0, &account));
    assert_ok(memlord_account_open(lord, cpu(), "other", 0, &gone));
    assert_ok(memlord_account_charge(lord, account, 30));
    assert_ok(memlord_account_close(lord, gone));
}

static int open_filled(void **state) {
    if (test_setup_fakes(state)) return -1;
    fill(test_lord(state));
    return 0;
}
#define TEST_FILLED(name) cmocka_unit_test_setup_teardown(name, open_filled, test_teardown)

/* The ledger disagrees with itself, and says so in one line. */
static void says(test_case *t, const char *line) {
    char expected[512];
    snprintf(expected, sizeof expected, "[verify] %s\n", line);
    test_log_clear(&t->log);
    assert_int_equal(memlord_verify(t->lord), MEMLORD_E_STATE);
    assert_string_equal(t->log.text, expected);
    assert_int_equal(t->log.lines[MEMLORD_LOG_ERROR], 1);
}

static mli_entry *entry_of(memlord *lord, memlord_device device, uint64_t key) {
    mli_thread *t = mli_thread_get(lord);
    mli_probe probe;
    assert_int_equal(mli_probe_find(lord, t, (uint32_t)device.type, key, 0, &probe), 0);
    mli_probe_leave(t, &probe);
    mli_thread_put(lord, t);
    assert_non_null(probe.entry);
    return probe.entry;
}
static mli_bucket *home_of(memlord *lord, uint64_t key) {
    mli_thread *t = mli_thread_get(lord);
    mli_shard *s = mli_shard_of(lord, key);
    mli_bucket *home;
    (void)mli_shard_enter(t, s);
    home = mli_home_bucket(s, mli_hash(key));
    mli_shard_leave(t);
    mli_thread_put(lord, t);
    return home;
}
static mli_side_record *side_of(memlord *lord, uint64_t key) {
    return mli_side_record_of(entry_of(lord, cuda(0), key)->word2);
}
static mli_cell *cell_of(memlord *lord, int book, uint32_t number) {
    mli_cell *cell = mli_cell_at(mli_self.thread, book, number);
    assert_int_equal(mli_self.generation, lord->generation);
    assert_non_null(cell);
    return cell;
}
static uint32_t dev_of(memlord *lord, memlord_device device) {
    uint32_t dev = mli_dev_known(lord, device);
    assert_int_not_equal(dev, 0);
    return dev;
}
static uint32_t row_of(memlord *lord, int book) {
    const uint64_t word2 = mli_word2_rows(entry_of(lord, cuda(0), BLOCK)->word2);
    const uint32_t row = book == MLI_BOOK_TAG ? MLI_TAG_ROW(word2) : MLI_SITE_ROW(word2);
    assert_int_not_equal(row, 0);
    return row;
}

/* Returns how many slots of the calling thread have a block, and its bytes. */
static unsigned slots(const memlord *lord, uint64_t *bytes) {
    unsigned i, n = 0;
    assert_int_equal(mli_self.generation, lord->generation);
    *bytes = 0;
    for (i = 0; i < MLI_SLOTS; i++)
        if (mli_u64_load(&mli_self.thread->slots[i].key)) {
            *bytes += MLI_BYTES(mli_self.thread->slots[i].word1);
            n++;
        }
    return n;
}

/* -- what agrees -- */

static void a_new_ledger_agrees(void **state) { assert_ok(memlord_verify(test_lord(state))); }

/* The fifth open realloc finds no vacant slot, and counts all the same. */
static void open_reallocs_keep_their_blocks_in_four_slots(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token[5];
    uint64_t bytes;
    unsigned i;
    for (i = 0; i < 5; i++) assert_ok(memlord_alloc(lord, cpu(), 4096 * (i + 1), 1u << i, NULL));
    for (i = 0; i < 5; i++)
        assert_ok(memlord_realloc_begin(lord, cpu(), 4096 * (i + 1), &token[i]));
    assert_int_equal(slots(lord, &bytes), 4);
    assert_int_equal(bytes, 15);
    assert_int_equal(memlord_allocated(lord, cpu()), 31);
    assert_ok(memlord_verify(lord));
    assert_ok(memlord_realloc_end(lord, &token[0], 4096 * 9, 64, NULL));
    assert_ok(memlord_realloc_end(lord, &token[1], 0, 0, NULL)); /* the real call failed */
    assert_int_equal(slots(lord, &bytes), 2);
    assert_int_equal(bytes, 12);
    for (i = 2; i < 5; i++)
        assert_ok(memlord_realloc_end(lord, &token[i], 4096 * (i + 1), 1, NULL));
    assert_int_equal(slots(lord, &bytes), 0);
    assert_int_equal(memlord_allocated(lord, cpu()), 64 + 2 + 3);
    assert_ok(memlord_verify(lord));
}

typedef struct begun {
    memlord *lord;
    memlord_realloc_token token;
} begun;
static void *begin_a_realloc(void *user) {
    begun *b = (begun *)user;
    assert_ok(memlord_realloc_begin(b->lord, cpu(), 4096, &b->token));
    return NULL;
}
static void a_realloc_that_another_thread_ends_leaves_its_slot_vacant(void **state) {
    begun b;
    pthread_t thread;
    b.lord = test_lord(state);
    assert_ok(memlord_alloc(b.lord, cpu(), 4096, 10, NULL));
    assert_int_equal(pthread_create(&thread, NULL, begin_a_realloc, &b), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(memlord_verify(b.lord));
    assert_ok(memlord_realloc_end(b.lord, &b.token, 8192, 30, NULL));
    assert_int_equal(memlord_allocated(b.lord, cpu()), 30);
    assert_ok(memlord_verify(b.lord)); /* it fails if a slot has a block and no realloc is open */
}

static void no_ledger_agrees(void **state) {
    (void)state;
    assert_ok(memlord_verify(NULL));
}

static void a_filled_ledger_agrees_and_says_nothing(void **state) {
    test_case *t = (test_case *)*state;
    test_log_clear(&t->log);
    assert_ok(memlord_verify(t->lord));
    assert_string_equal(t->log.text, "");
}

static void it_agrees_after_a_reset(void **state) {
    memlord *lord = test_lord(state);
    memlord_reset(lord);
    assert_ok(memlord_verify(lord));
    assert_ok(memlord_free(lord, cuda(0), BLOCK, &here));
    assert_ok(memlord_verify(lord));
}

static void it_agrees_while_a_realloc_is_open(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token, other;
    assert_ok(memlord_realloc_begin(lord, cuda(0), BLOCK, &token));
    assert_ok(memlord_verify(lord));
    assert_ok(memlord_free_begin(lord, cuda(0), PARTED, &other, &here));
    assert_ok(memlord_verify(lord));
    assert_ok(memlord_realloc_end(lord, &token, BLOCK + 64, 128, &here));
    assert_ok(memlord_free_end(lord, &other, 0, &here));
    assert_ok(memlord_verify(lord));
    assert_int_equal(lord->threads.orphan->detached.v + mli_self.thread->detached.v, 0);
}

static void it_agrees_after_a_realloc_that_had_no_room(void **state) {
    test_case *t = (test_case *)*state;
    memlord_realloc_token token;
    uint64_t key = MANY;
    assert_ok(memlord_realloc_begin(t->lord, cuda(0), BLOCK, &token));
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    while (!memlord_alloc(t->lord, cuda(0), key, 16, NULL)) key += 1 << 22;
    assert_int_equal(memlord_realloc_end(t->lord, &token, key, 8, NULL), MEMLORD_E_NOMEM);
    t->heap.fail_at = 0;
    assert_int_not_equal(stats_of(t->lord, cuda(0)).dropped_allocs, 0);
    assert_ok(memlord_verify(t->lord));
}

static void a_map_that_grew_agrees(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i, random = 1;
    for (i = 0; i < 30000; i++)
        (void)memlord_alloc(lord, cuda((int)(i % 3)), MANY + test_random(&random) % 100000 * 16, i,
                            NULL);
    assert_ok(memlord_verify(lord));
    for (i = 0; i < 30000; i++)
        (void)memlord_free(lord, cuda(0), MANY + test_random(&random) % 100000 * 16, NULL);
    assert_ok(memlord_verify(lord));
}

/* From 63 references on a record beside the entry has their number. */
static void a_block_of_many_references_agrees(void **state) {
    memlord *lord = test_lord(state);
    int refs;
    assert_ok(memlord_alloc(lord, cuda(0), BLOCK, 64, NULL));
    for (refs = 2; refs <= 65; refs++) {
        assert_ok(memlord_track(lord, cuda(0), BLOCK, 64, NULL));
        assert_ok(memlord_verify(lord));
    }
    for (; refs > 2; refs--) {
        assert_ok(memlord_release(lord, cuda(0), BLOCK, NULL));
        assert_ok(memlord_verify(lord));
    }
    assert_ok(memlord_free(lord, cuda(0), BLOCK, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void *free_elsewhere(void *lord) {
    memlord_free((memlord *)lord, memlord_device_cuda(0), BLOCK, NULL);
    return NULL;
}
static void blocks_that_another_thread_freed_agree(void **state) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_elsewhere, test_lord(state)), 0);
    pthread_join(thread, NULL);
    assert_ok(memlord_verify(test_lord(state)));
}

/* So many parts that their list is an allocation of its own: the teardown finds it if it is left. */
static void the_parts_of_the_first_and_the_last_shard_end_with_the_ledger(void **state) {
    memlord *lord = test_lord(state);
    const uint32_t ends[] = {0, MLI_SHARDS - 1};
    uint64_t key = MANY, i;
    size_t k;
    for (k = 0; k < 2; k++) {
        while (mli_shard_of(lord, key) != mli_shard_at(lord, ends[k])) key += 4096;
        assert_ok(memlord_alloc(lord, cuda(0), key, 4000, NULL));
        for (i = 0; i < 4000; i++) assert_ok(memlord_part_add(lord, cuda(0), key, i, 1, NULL));
        key += 4096;
    }
    assert_ok(memlord_verify(lord));
}

/* -- a fork in the middle of anything -- */

typedef struct churn {
    memlord *lord;
    uint32_t number, stop;
    uint32_t rows; /* how many make_rows has made */
} churn;
static void *churn_on(void *user) {
    churn *c = (churn *)user;
    uint64_t random = c->number, base = (uint64_t)(c->number + 1) << 32;
    while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
        uint64_t key = base + test_random(&random) % 512 * 64, size = test_random(&random) % 9999;
        switch (test_random(&random) % 5) {
        case 0: memlord_free(c->lord, cpu(), key, &here); break;
        case 1: memlord_realloc(c->lord, cpu(), key, key ^ 64, size, &here); break;
        case 2: memlord_move(c->lord, cpu(), key, cuda(0), key, size, NULL, NULL); break;
        case 3: memlord_free_deferred(c->lord, cuda(0), key, fence_of(c->number), NULL); break;
        default: memlord_alloc(c->lord, cpu(), key, size, &here);
        }
    }
    return NULL;
}

static void to_stderr(void *user, int level, const char *text) {
    (void)user;
    if (level != MEMLORD_LOG_ERROR) return;
    mli_stderr_write(text, strlen(text));
    mli_stderr_write("\n", 1);
}

/* The ledger takes pages from the system: a child may find a lock of malloc taken. */
static void forked_children_agree(uint32_t flags) {
    memlord *lord;
    memlord_desc desc;
    churn churns[3];
    pthread_t threads[3];
    uint32_t i;
    int status = 0;
    memset(&desc, 0, sizeof desc);
    desc.flags = flags | MEMLORD_FLAG_SITES | MEMLORD_FLAG_NO_ENV;
    desc.logger.fn = to_stderr;
    assert_ok(memlord_create(&desc, &lord));
    memset(churns, 0, sizeof churns);
    for (i = 0; i < 3; i++) {
        churns[i].lord = lord;
        churns[i].number = i;
        assert_int_equal(pthread_create(&threads[i], NULL, churn_on, &churns[i]), 0);
    }
    for (i = 0; i < (TEST_SANITIZED ? 5u : 50u) && !status; i++) {
        pid_t child = fork();
        if (!child) _exit(memlord_verify(lord) == MEMLORD_OK ? 0 : 1);
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    for (i = 0; i < 3; i++) __atomic_store_n(&churns[i].stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_int_equal(status, 0);
    assert_ok(memlord_verify(lord));
    memlord_destroy(lord);
}
static void a_forked_child_agrees(void **state) {
    (void)state;
    forked_children_agree(0);
}
static void a_forked_child_of_an_exact_ledger_agrees(void **state) {
    (void)state;
    forked_children_agree(MEMLORD_FLAG_EXACT);
}

/* Each tag is a row that the verification may not have counted when it began. */
enum { ROWS = 20000 };
static void *make_rows(void *user) {
    churn *c = (churn *)user;
    uint64_t i;
    char name[32];
    for (i = 1; i <= ROWS; i++) {
        (void)snprintf(name, sizeof name, "tag %u", (unsigned)i);
        (void)memlord_tag_begin(c->lord, name);
        (void)memlord_alloc(c->lord, cpu(), i * 64, 8, NULL);
        memlord_tag_end(c->lord);
        __atomic_store_n(&c->rows, (uint32_t)i, __ATOMIC_RELEASE);
    }
    return NULL;
}
static void it_agrees_while_a_thread_makes_rows(void **state) {
    churn c;
    pthread_t thread;
    uint32_t rows = 0;
    memset(&c, 0, sizeof c);
    c.lord = test_lord(state);
    assert_int_equal(pthread_create(&thread, NULL, make_rows, &c), 0);
    while (rows < ROWS) {
        assert_ok(memlord_verify(c.lord));
        /* A verification right after the other would leave the thread no time with the lock. */
        while (__atomic_load_n(&c.rows, __ATOMIC_ACQUIRE) < rows) usleep(100);
        rows += 50;
    }
    pthread_join(thread, NULL);
}

/* -- what does not agree -- */

static void a_devices_counters_against_the_map(void **state) {
    test_case *t = (test_case *)*state;
    mli_cell *cell = cell_of(t->lord, MLI_BOOK_DEVICE, dev_of(t->lord, cuda(0)));
    cell->level.v -= 32;
    cell->frees.v += 1;
    says(t, "cuda:0: the map holds 3 blocks, 1164 B; its counters say 2, 1132 B");
    cell->level.v += 32;
    cell->frees.v -= 1;
}

static void a_devices_count_of_blocks_against_the_map(void **state) {
    test_case *t = (test_case *)*state;
    mli_cell *cell = cell_of(t->lord, MLI_BOOK_DEVICE, dev_of(t->lord, cuda(0)));
    cell->allocs.v += 1;
    says(t, "cuda:0: the map holds 3 blocks, 1164 B; its counters say 4, 1164 B");
    cell->allocs.v -= 1;
}

static void an_arena_against_its_counters(void **state) {
    test_case *t = (test_case *)*state;
    mli_u64 *arena = &mli_device_record_at(t->lord, dev_of(t->lord, cpu()))->arena;
    arena->v += 1;
    says(t, "cpu: the map holds 0 blocks, 0 B, its arena 8 B; its counters say 0, 7 B");
    arena->v -= 1;
}

static void a_tags_counters_against_the_map(void **state) {
    test_case *t = (test_case *)*state;
    mli_cell *cell = cell_of(t->lord, MLI_BOOK_TAG, row_of(t->lord, MLI_BOOK_TAG));
    cell->level.v += 1;
    says(t, "cuda:0, tag weights: the map holds 1 block, 64 B; its counters say 1, 65 B");
    cell->level.v -= 1;
}

static void a_sites_counters_against_the_map(void **state) {
    test_case *t = (test_case *)*state;
    mli_cell *cell = cell_of(t->lord, MLI_BOOK_SITE, row_of(t->lord, MLI_BOOK_SITE));
    cell->level.v += 1;
    says(t, "cuda:0, site read_tensors loader.c:12: the map holds 64 B; its counters say 65 B");
    cell->level.v -= 1;
}

static void what_threads_published_against_the_row(void **state) {
    test_case *t = (test_case *)*state;
    mli_row *row = mli_row_at(t->lord, MLI_BOOK_DEVICE, dev_of(t->lord, cuda(0)));
    row->published.v += 1;
    says(t, "cuda:0: its threads have published other bytes than it shows");
    row->published.v -= 1;
}

static void pending_bytes_against_the_map(void **state) {
    test_case *t = (test_case *)*state;
    mli_u64 *count = mli_device_record_at(t->lord, dev_of(t->lord, cuda(0)))->count;
    count[MLI_STAT_pending].v -= 100;
    says(t, "cuda:0: the map has 100 B pending; its counter says 0 B");
    count[MLI_STAT_pending].v += 100;
}

static void detached_blocks_against_the_counters(void **state) {
    test_case *t = (test_case *)*state;
    mli_self.thread->detached.v += 1;
    mli_self.thread->detached_bytes.v += 64;
    says(t, "open reallocs have 1 blocks, 64 B; the map lacks 0, 0 B");
    mli_self.thread->detached.v -= 1;
    mli_self.thread->detached_bytes.v -= 64;
}

/* The books of a realloc that ended twice: each sum agrees with the others modulo 2^64. */
static void fewer_than_no_open_reallocs(void **state) {
    test_case *t = (test_case *)*state;
    const uint32_t dev = dev_of(t->lord, cuda(0));
    mli_cell *cell = mli_cell_at(mli_self.thread, MLI_BOOK_DEVICE, dev);
    mli_self.thread->detached.v -= 1;
    mli_self.thread->detached_bytes.v -= 30;
    cell->frees.v += 1;
    cell->level.v -= 30;
    says(t, "reallocs have ended 1 blocks, 30 B more than they began");
    mli_self.thread->detached.v += 1;
    mli_self.thread->detached_bytes.v += 30;
    cell->frees.v -= 1;
    cell->level.v += 30;
}

static void a_pending_block_without_a_fence(void **state) {
    test_case *t = (test_case *)*state;
    mli_side_record *side = side_of(t->lord, PENDING);
    mli_fence_record *fences = side->fences;
    side->fences = NULL;
    says(t, "cuda:0 0x00020000: it is pending and waits for no fence");
    side->fences = fences;
}

static void a_pending_block_with_a_fence_of_another(void **state) {
    test_case *t = (test_case *)*state;
    mli_fence_record *f = side_of(t->lord, PENDING)->fences;
    f->serial += 1;
    says(t, "cuda:0 0x00020000: it is pending, and a fence of it waits for another");
    f->serial -= 1;
    f->key += 64;
    says(t, "cuda:0 0x00020000: it is pending, and a fence of it waits for another");
    f->key -= 64;
    f->dev += 1;
    says(t, "cuda:0 0x00020000: it is pending, and a fence of it waits for another");
    f->dev -= 1;
}

static void a_pending_block_with_a_fence_that_no_longer_waits(void **state) {
    test_case *t = (test_case *)*state;
    mli_fence_record *f = side_of(t->lord, PENDING)->fences;
    const mli_fence_record kept = *f;
    f->detached = 1;
    says(t, "cuda:0 0x00020000: it is pending, and a fence of it waits for another");
    f->detached = 0;
    f->queue = NULL;
    says(t, "cuda:0 0x00020000: it is pending, and a fence of it waits for another");
    f->queue = kept.queue;
}

static void a_fence_that_its_pending_block_lacks(void **state) {
    test_case *t = (test_case *)*state;
    mli_fence_record *f = side_of(t->lord, PENDING)->fences, *sibling = f->sibling;
    assert_non_null(sibling);
    f->sibling = NULL;
    says(t, "cuda:0 0x00020000: it is pending, and lacks a fence that holds it back");
    f->sibling = sibling;
}

static void parts_that_overlap(void **state) {
    test_case *t = (test_case *)*state;
    memlord_part_info *part = side_of(t->lord, PARTED)->parts->at[1];
    part->offset = 9;
    says(t, "cuda:0 0x00030000: two of its parts overlap");
    part->offset = 500;
}

static void a_part_that_leaves_its_storage(void **state) {
    test_case *t = (test_case *)*state;
    memlord_part_info *part = side_of(t->lord, PARTED)->parts->at[1];
    part->offset = 501;
    says(t, "cuda:0 0x00030000: a part ends behind its storage");
    part->offset = 1001;
    says(t, "cuda:0 0x00030000: a part ends behind its storage");
    part->offset = 500;
}

static void parts_against_their_sum(void **state) {
    test_case *t = (test_case *)*state;
    mli_parts *parts = side_of(t->lord, PARTED)->parts;
    parts->bytes += 1;
    says(t, "cuda:0 0x00030000: its parts have another sum");
    parts->bytes -= 1;
}

static void a_block_without_a_reference(void **state) {
    test_case *t = (test_case *)*state;
    mli_entry *e = entry_of(t->lord, cuda(0), BLOCK);
    e->word1 -= MLI_REFS_ONE;
    says(t, "cuda:0 0x00010000: its count of references is wrong");
    e->word1 += MLI_REFS_ONE * MLI_REFS_MANY; /* so many stand in a record beside it, which it lacks */
    says(t, "cuda:0 0x00010000: its count of references is wrong");
    e->word1 -= MLI_REFS_ONE * (MLI_REFS_MANY - 1);
    e = entry_of(t->lord, cuda(0), PARTED); /* its record has fewer */
    e->word1 += MLI_REFS_ONE * (MLI_REFS_MANY - 1);
    says(t, "cuda:0 0x00030000: its count of references is wrong");
    e->word1 -= MLI_REFS_ONE * (MLI_REFS_MANY - 1);
}

static void stacks_against_the_blocks_that_have_them(void **state) {
    test_case *t = (test_case *)*state;
    memlord *lord = t->lord, **back = lord->back;
    memlord_desc desc;
    entry_of(lord, cuda(0), BLOCK)->word1 |= MLI_PICKED;
    says(t, "cuda:0 0x00010000: its stack is unknown"); /* the ledger takes no stacks */
    entry_of(lord, cuda(0), BLOCK)->word1 &= ~MLI_PICKED;
    memset(&desc, 0, sizeof desc);
    lord->back = NULL; /* as if it were new */
    mli_stacks_init(lord, &desc);
    lord->back = back;
    assert_ok(memlord_stacks_set(lord, 4, 1));
    mli_special_set(mli_self.thread, MLI_SPECIAL_STACKS, 1);
    assert_ok(memlord_alloc(lord, cuda(0), 0x40000, 32, NULL));
    assert_ok(memlord_verify(lord));
    entry_of(lord, cuda(0), BLOCK)->word1 |= MLI_PICKED;
    says(t, "cuda:0 0x00010000: its stack is unknown");
    entry_of(lord, cuda(0), BLOCK)->word1 &= ~MLI_PICKED;
    mli_stack_row_at(lord, 1)->dev++;
    says(t, "cuda:0 0x00040000: its stack is unknown");
    mli_stack_row_at(lord, 1)->dev--;
    mli_stack_tables_of(lord)->picks[0].count++;
    says(t, "blocks with a stack: 1; the table of stacks has 2");
    mli_stack_tables_of(lord)->picks[0].count--;
    mli_stack_row_at(lord, 1)->live.v++;
    says(t, "blocks with a stack weigh 32 B; the stacks say 33 B");
    mli_stack_row_at(lord, 1)->live.v--;
    mli_stack_row_at(lord, 1)->blocks.v++;
    says(t, "blocks with a stack weigh 32 B; the stacks say 32 B");
    mli_stack_row_at(lord, 1)->blocks.v--;
}

static void a_block_of_an_unknown_device(void **state) {
    test_case *t = (test_case *)*state;
    mli_entry *e = entry_of(t->lord, cuda(0), BLOCK);
    const uint64_t word1 = e->word1;
    e->word1 |= (uint64_t)255 << 49;
    says(t, "0x00010000: its device is unknown");
    e->word1 &= ~((uint64_t)255 << 49);
    says(t, "0x00010000: its device is unknown");
    e->word1 = word1;
}

static void a_block_with_the_tag_of_another_device(void **state) {
    test_case *t = (test_case *)*state;
    mli_entry *e = entry_of(t->lord, cuda(0), BLOCK);
    const uint64_t word2 = e->word2;
    e->word2 |= MLI_TAG_BITS;
    says(t, "cuda:0 0x00010000: its site or its tag is of another device");
    e->word2 = word2;
}

static void a_block_of_an_unknown_scope(void **state) {
    test_case *t = (test_case *)*state;
    mli_entry *e = entry_of(t->lord, cuda(0), BLOCK);
    const uint64_t word2 = e->word2;
    e->word2 |= MLI_MARK_MAX << 37;
    says(t, "cuda:0 0x00010000: its scope is unknown");
    e->word2 = word2;
}

/* -- the tables of the map -- */

static void an_entry_in_the_wrong_shard(void **state) {
    test_case *t = (test_case *)*state;
    mli_entry *e = entry_of(t->lord, cuda(0), BLOCK);
    e->key = MANY;
    says(t, "cuda:0 0x01000000: it lies in the wrong shard of the map");
    e->key = BLOCK;
}

static void an_entry_that_a_probe_does_not_find(void **state) {
    test_case *t = (test_case *)*state;
    mli_entry *e = entry_of(t->lord, cuda(0), BLOCK);
    mli_bucket *b = home_of(t->lord, BLOCK);
    const uint64_t header = b->header.v;
    assert_true(e >= b->slots && e < b->slots + MLI_BUCKET_SLOTS);
    b->header.v ^= (uint64_t)2 << (8 * (e - b->slots));
    says(t, "cuda:0 0x00010000: a probe does not find it in the map");
    b->header.v = header;
}

static void a_shard_against_its_count_of_displaced(void **state) {
    test_case *t = (test_case *)*state;
    mli_shard *s = mli_shard_of(t->lord, BLOCK);
    char line[128];
    snprintf(line, sizeof line, "shard %u of the map: 0 entries are displaced; it counts 1",
             (unsigned)(s - t->lord->map.shards));
    s->displaced.v = 1;
    says(t, line);
    s->displaced.v = 0;
}

static void a_bucket_against_its_overflow_counts(void **state) {
    test_case *t = (test_case *)*state;
    mli_shard *s = mli_shard_of(t->lord, BLOCK);
    mli_bucket *b = mli_table_at(s);
    char line[128];
    snprintf(line, sizeof line, "shard %u of the map: the overflow counts of bucket 0 are wrong",
             (unsigned)(s - t->lord->map.shards));
    b->header.v += (uint64_t)1 << 44;
    says(t, line);
    b->header.v -= (uint64_t)1 << 44;
}

static void the_map_against_its_count_of_buckets(void **state) {
    test_case *t = (test_case *)*state;
    char line[128];
    snprintf(line, sizeof line, "the map has %u buckets; it counts %u",
             (unsigned)t->lord->map.buckets.v, (unsigned)t->lord->map.buckets.v + 1);
    t->lord->map.buckets.v += 1;
    says(t, line);
    t->lord->map.buckets.v -= 1;
}

/* -- index and names -- */

static void a_row_without_a_subject(void **state) {
    test_case *t = (test_case *)*state;
    static const char *const books[] = {"devices", "sites", "tags"};
    int book;
    for (book = 0; book < MLI_BOOKS; book++) {
        mli_row *row = mli_row_at(t->lord, book, 1);
        void *subject = row->subject;
        char line[128];
        snprintf(line, sizeof line, "row 1 of the %s: the index does not lead to it", books[book]);
        row->subject = NULL;
        says(t, line);
        row->subject = subject;
    }
}

static void a_row_that_the_index_has_under_another_device(void **state) {
    test_case *t = (test_case *)*state;
    mli_row *row = mli_row_at(t->lord, MLI_BOOK_TAG, 1);
    const uint32_t dev = row->dev;
    row->dev = dev == 1 ? 2 : 1;
    says(t, "row 1 of the tags: the index does not lead to it");
    row->dev = dev;
}

static void a_row_that_is_not_what_the_index_leads_to(void **state) {
    test_case *t = (test_case *)*state;
    const uint32_t dev = dev_of(t->lord, cuda(0)), other = dev_of(t->lord, cpu());
    mli_device_record *device = mli_device_record_at(t->lord, dev);
    mli_row *row = mli_row_at(t->lord, MLI_BOOK_DEVICE, dev), *site;
    mli_site_record *record;
    const uint32_t wrong[] = {0, 999, other};
    void *subject = row->subject, *display;
    char line[128];
    size_t i;
    snprintf(line, sizeof line, "row %u of the devices: the index does not lead to it", (unsigned)dev);
    for (i = 0; i < 3; i++) {
        row->dev = wrong[i];
        says(t, line);
    }
    row->dev = dev;
    row->subject = mli_device_record_at(t->lord, other);
    says(t, line);
    row->subject = subject;
    device->device.index = 55;
    says(t, line);
    device->device.index = 0;
    site = mli_row_at(t->lord, MLI_BOOK_SITE, 1);
    record = (mli_site_record *)site->subject;
    display = mli_ptr_load(&record->display);
    mli_ptr_store(&record->display, NULL);
    says(t, "row 1 of the sites: the index does not lead to it");
    mli_ptr_store(&record->display, display);
}

/* -- tickets and accounts -- */

static mli_reservation *open_ticket(memlord *lord) {
    return (mli_reservation *)mli_vector_at(&lord->limits->reservations, 1, sizeof(mli_reservation));
}
static void tickets_against_what_is_reserved(void **state) {
    test_case *t = (test_case *)*state;
    open_ticket(t->lord)->remaining -= 1;
    says(t, "cpu: its tickets have 49 B left; 50 B are reserved");
    open_ticket(t->lord)->remaining += 1;
}

static void a_ticket_that_is_neither_open_nor_closed(void **state) {
    test_case *t = (test_case *)*state;
    mli_phys *phys = &t->lord->devices.host_phys;
    mli_handle *closed = phys->closed_tickets;
    assert_non_null(closed);
    phys->closed_tickets = NULL;
    says(t, "2 records of tickets: 1 are open and 0 are closed");
    phys->closed_tickets = closed;
}

static mli_account_record *open_account(memlord *lord) {
    return (mli_account_record *)mli_vector_at(&lord->accounts->all, 1,
                                             sizeof(mli_account_record));
}
static void an_account_above_its_peak(void **state) {
    test_case *t = (test_case *)*state;
    open_account(t->lord)->stat.peak = 29;
    says(t, "account request: it has 30 B, above its peak of 29 B");
    open_account(t->lord)->stat.peak = 30;
}

static void an_account_that_is_neither_open_nor_closed(void **state) {
    test_case *t = (test_case *)*state;
    mli_handle *closed = t->lord->accounts->closed;
    t->lord->accounts->closed = NULL;
    says(t, "2 records of accounts: 1 are open and 0 are closed");
    t->lord->accounts->closed = closed;
}

/* -- the call itself -- */

static void without_memory_it_says_so(void **state) {
    test_case *t = (test_case *)*state;
    char tag[16];
    int i;
    for (i = 0; i < 2000; i++) { /* so many rows that no free piece has room for their sums */
        snprintf(tag, sizeof tag, "t%d", i);
        assert_ok(memlord_expect(t->lord, cuda(0), tag, 1));
    }
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    assert_int_equal(memlord_verify(t->lord), MEMLORD_E_NOMEM);
    t->heap.fail_at = 0;
    assert_ok(memlord_verify(t->lord));
}

/* Creates a ledger under MEMLORD_DEBUG, lets it disagree with itself, and destroys it. */
static int destroy_says(const char *debug, test_log *log) {
    memlord_desc desc;
    memlord *lord;
    memset(&desc, 0, sizeof desc);
    memset(log, 0, sizeof *log);
    pthread_mutex_init(&log->lock, NULL);
    desc.logger.fn = test_log_line;
    desc.logger.user = log;
    setenv("MEMLORD_DEBUG", debug, 1);
    assert_ok(memlord_create(&desc, &lord));
    unsetenv("MEMLORD_DEBUG");
    assert_ok(memlord_alloc(lord, cuda(0), BLOCK, 64, NULL));
    cell_of(lord, MLI_BOOK_DEVICE, 1)->level.v += 1;
    memlord_destroy(lord);
    return strstr(log->text, "[verify] cuda:0: the map holds 1 block, 64 B; its counters say 1, "
                             "65 B\n") != NULL;
}
/* As another process reads a table after this one was killed. */
static void the_word_of_a_table_says_its_size(void **state) {
    memlord *lord = test_lord(state);
    uint32_t code, i, tables = 0;
    for (code = 1; mli_buckets_of(code) > mli_buckets_of(code - 1); code++)
        assert_int_equal(mli_buckets_code(mli_buckets_of(code)), code);
    assert_true(code - 1 == 93 && mli_buckets_of(code - 1) == 3221225472u);
    for (i = 0; i < 60000; i++)
        assert_ok(memlord_alloc(lord, cpu(), ((uint64_t)1 << 30) + i * 512, 1, NULL));
    for (i = 0; i < MLI_SHARDS; i++) {
        const mli_shard *s = mli_shard_at(lord, i);
        assert_int_equal(mli_buckets_of((uint32_t)((uintptr_t)s->table.v & 127)), s->size);
        assert_int_equal((uintptr_t)mli_table_at(s) % 128, 0);
        tables += s->size > 0;
    }
    assert_true(tables > 10);
}

/* -- what threads hold back: see mli_share_next -- */

static void *allocate_a_byte(void *lord) {
    assert_ok(memlord_alloc((memlord *)lord, cuda(0), 0x2000, 1, NULL));
    return NULL;
}
static void pairs_of(memlord *lord, int pairs, uint64_t bytes) {
    for (; pairs; pairs--) {
        assert_ok(memlord_alloc(lord, cuda(0), 0x3000, bytes, NULL));
        assert_ok(memlord_free(lord, cuda(0), 0x3000, NULL));
    }
}
static void the_share_of_a_busy_thread_doubles_and_halves_again(void **state) {
    static const uint32_t shares[] = {9216, 18432, 36864, 65536, 65536, 32768, 16384, 9216, 9216};
    memlord *lord = test_lord(state);
    pthread_t thread;
    const mli_cell *cell;
    int i;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1 << 20, NULL));
    pairs_of(lord, 1, 1 << 17); /* a 128th of the peak is 9216 */
    cell = cell_of(lord, MLI_BOOK_DEVICE, dev_of(lord, cuda(0)));
    assert_int_equal(mli_u32_load(&cell->share), 65536); /* it is alone */
    assert_int_equal(pthread_create(&thread, NULL, allocate_a_byte, lord), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (i = 0; i < 9; i++) {
        if (i < 5) pairs_of(lord, 120, 100000); /* each is published */
        else pairs_of(lord, 400, 1);            /* not one is */
        pairs_of(lord, i < 5 ? 8 : 1, 1 << 17);
        assert_int_equal(mli_u32_load(&cell->share), shares[i + (i < 4)]);
        if (i == 4) /* there were never more than 9 << 17, 1, and half of both shares */
            assert_int_equal(stats_of(lord, cuda(0)).peak_error, 1 + 65536 / 2 + 9216 / 2);
    }
}

static void *stand_inside(void *user) {
    test_case *t = (test_case *)user;
    mli_thread *own;
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x2000, 1000, NULL));
    own = mli_thread_get(t->lord);
    (void)mli_shard_enter(own, mli_shard_of(t->lord, 0x2000));
    __atomic_store_n(&t->key, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&t->key, __ATOMIC_ACQUIRE) == 1) {}
    mli_shard_leave(own);
    return NULL;
}
static void no_reset_waits_for_a_thread_that_is_in_a_call(void **state) {
    test_case *t = (test_case *)*state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stand_inside, t), 0);
    while (!__atomic_load_n(&t->key, __ATOMIC_ACQUIRE)) {}
    memlord_peak_reset(t->lord, all());
    memlord_reset(t->lord);
    assert_int_equal(memlord_peak(t->lord, cuda(0)), 1000);
    assert_int_equal(stats_of(t->lord, cuda(0)).total_allocated, 0);
    __atomic_store_n(&t->key, 2, __ATOMIC_RELEASE);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void debug_2_verifies_at_destroy(void **state) {
    test_log *log = (test_log *)calloc(1, sizeof *log);
    (void)state;
    assert_non_null(log);
    assert_int_equal(destroy_says("2", log), 1);
    assert_int_equal(destroy_says("1", log), 0);
    free(log);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_new_ledger_agrees),
        TEST(open_reallocs_keep_their_blocks_in_four_slots),
        TEST(a_realloc_that_another_thread_ends_leaves_its_slot_vacant),
        cmocka_unit_test(no_ledger_agrees),
        TEST_FILLED(a_filled_ledger_agrees_and_says_nothing),
        TEST_FILLED(it_agrees_after_a_reset),
        TEST_FILLED(it_agrees_while_a_realloc_is_open),
        TEST_FILLED(it_agrees_after_a_realloc_that_had_no_room),
        TEST(a_map_that_grew_agrees),
        TEST(the_parts_of_the_first_and_the_last_shard_end_with_the_ledger),
        TEST_EXACT(a_map_that_grew_agrees),
        TEST(a_block_of_many_references_agrees),
        TEST_FILLED(blocks_that_another_thread_freed_agree),
        TEST(it_agrees_while_a_thread_makes_rows),
        cmocka_unit_test(a_forked_child_agrees),
        cmocka_unit_test(a_forked_child_of_an_exact_ledger_agrees),
        TEST_FILLED(a_devices_counters_against_the_map),
        TEST_FILLED(a_devices_count_of_blocks_against_the_map),
        TEST_FILLED(an_arena_against_its_counters),
        TEST_FILLED(a_tags_counters_against_the_map),
        TEST_FILLED(a_sites_counters_against_the_map),
        TEST_FILLED(what_threads_published_against_the_row),
        TEST_FILLED(pending_bytes_against_the_map),
        TEST_FILLED(detached_blocks_against_the_counters),
        TEST_FILLED(fewer_than_no_open_reallocs),
        TEST_FILLED(a_pending_block_without_a_fence),
        TEST_FILLED(a_pending_block_with_a_fence_of_another),
        TEST_FILLED(a_pending_block_with_a_fence_that_no_longer_waits),
        TEST_FILLED(a_fence_that_its_pending_block_lacks),
        TEST_FILLED(parts_that_overlap),
        TEST_FILLED(a_part_that_leaves_its_storage),
        TEST_FILLED(parts_against_their_sum),
        TEST_FILLED(a_block_without_a_reference),
        TEST_FILLED(stacks_against_the_blocks_that_have_them),
        TEST_FILLED(a_block_of_an_unknown_device),
        TEST_FILLED(a_block_with_the_tag_of_another_device),
        TEST_FILLED(a_block_of_an_unknown_scope),
        TEST_FILLED(an_entry_in_the_wrong_shard),
        TEST_FILLED(an_entry_that_a_probe_does_not_find),
        TEST_FILLED(a_shard_against_its_count_of_displaced),
        TEST_FILLED(a_bucket_against_its_overflow_counts),
        TEST_FILLED(the_map_against_its_count_of_buckets),
        TEST_FILLED(a_row_without_a_subject),
        TEST_FILLED(a_row_that_the_index_has_under_another_device),
        TEST_FILLED(a_row_that_is_not_what_the_index_leads_to),
        TEST_FILLED(tickets_against_what_is_reserved),
        TEST_FILLED(a_ticket_that_is_neither_open_nor_closed),
        TEST_FILLED(an_account_above_its_peak),
        TEST_FILLED(an_account_that_is_neither_open_nor_closed),
        TEST(without_memory_it_says_so),
        TEST(the_word_of_a_table_says_its_size),
        TEST(the_share_of_a_busy_thread_doubles_and_halves_again),
        TEST(no_reset_waits_for_a_thread_that_is_in_a_call),
        TEST_EXACT(no_reset_waits_for_a_thread_that_is_in_a_call),
        cmocka_unit_test(debug_2_verifies_at_destroy),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
