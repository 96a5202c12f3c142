/* The map: a block is found again whatever its key, however many there are, and whatever table
   its shard has by then. Other suites use few blocks and small keys, which are handles; here they
   are addresses, and so many that every shard has grown. */
#include "support.h"

enum { BLOCKS = 20000, STEPS = TEST_SANITIZED ? 20000 : 100000 };
/* So few that most are in their home, and so many that some are not. */
static const uint64_t counts[] = {1000, BLOCKS};
enum { COUNTS = sizeof counts / sizeof *counts };

/* -- keys -- */

typedef uint64_t (*key_of)(uint64_t i);

/* Of a heap, uneven as those are: even ones would never meet. The heap of a program that is not
   position independent begins low. */
static uint64_t uneven(uint64_t i) {
    uint64_t random = i;
    return i * 736 + test_random(&random) % 46 * 16;
}
static uint64_t in_a_heap(uint64_t i) { return 0x7f5500000010u + uneven(i); }
static uint64_t in_a_low_heap(uint64_t i) { return 0x0063a010u + uneven(i); }
static uint64_t on_a_device(uint64_t i) { return 0x7e0000000000u + (i << 21); }
static uint64_t as_a_handle(uint64_t i) { return i + 1; }
static uint64_t at_the_top(uint64_t i) { return UINT64_MAX - 1 - i; }

/* So many of each 2 MiB have the same `bits` in the hash that goes by a constant. */
enum { MEETING = 16 };
static uint64_t meeting(uint64_t *at, uint64_t i, uint64_t constant, int from, int bits) {
    uint64_t base = 0x7f6600000000u, key = base, n = 0;
    while (!at[BLOCKS - 1]) {
        if ((key ^ key >> 5) * constant >> from << (64 - bits) == 0) at[n++] = key;
        key += 16;
        if (n && n % MEETING == 0 && at[n - 1] >= base) key = base += (uint64_t)1 << 21;
    }
    return at[i];
}
/* They meet in one line of a sparse table, or on the way from there. */
static uint64_t in_one_line(uint64_t i) {
    static uint64_t at[BLOCKS];
    return meeting(at, i, 0xff51afd7ed558ccdu, 52, 8);
}
/* They meet in one bucket of a dense one. */
static uint64_t in_one_bucket(uint64_t i) {
    static uint64_t at[BLOCKS];
    return meeting(at, i, 0xc4ceb9fe1a85ec53u, 56, 8);
}

static const key_of kinds[] = {in_a_heap,  in_a_low_heap, on_a_device,  as_a_handle,
                               at_the_top, in_one_line,   in_one_bucket};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* -- a ledger and what should be in it -- */

static const memlord_site here = {"tests/test_map.c", "replace", 1};

typedef struct books {
    memlord *lord;
    const memlord_site *site; /* NULL: none */
    uint64_t count, bytes[BLOCKS]; /* 0: dead */
    uint64_t live, allocated;
} books;

static void opens(books *b, key_of key, uint64_t i, uint64_t bytes) {
    assert_ok(memlord_alloc(b->lord, cuda((int)(i % 3)), key(i), bytes, b->site));
    b->bytes[i] = bytes;
    b->live++;
    b->allocated += bytes;
}
/* Every fifth by another index of its type, which is no mistake. */
static void closes(books *b, key_of key, uint64_t i) {
    assert_ok(memlord_free(b->lord, cuda((int)(i % 5 ? i % 3 : 7)), key(i), b->site));
    b->live--;
    b->allocated -= b->bytes[i];
    b->bytes[i] = 0;
}
static void compare(const books *b) {
    memlord_stats s = stats_of(b->lord, all());
    assert_int_equal(s.allocated, b->allocated);
    assert_int_equal(s.live_blocks, b->live);
    assert_int_equal(s.unknown_frees + s.implicit_frees, 0);
    assert_int_equal(s.total_allocated - s.total_freed, s.allocated);
}
static void compare_blocks(const books *b, key_of key) {
    memlord_block_info info;
    uint64_t i;
    for (i = 0; i < b->count; i++) {
        memlord_result r = memlord_block_find(b->lord, cuda(0), key(i), &info);
        assert_int_equal(r, b->bytes[i] ? MEMLORD_OK : MEMLORD_E_UNKNOWN);
        if (r) continue;
        assert_int_equal(info.bytes, b->bytes[i]);
        assert_int_equal(info.device.index, (int)(i % 3));
    }
}

/* Closes and opens blocks at random, of the first so many. */
static void churn(books *b, key_of key, uint64_t count, uint64_t *random) {
    uint64_t i;
    for (i = 0; i < STEPS; i++) {
        uint64_t one = test_random(random) % count;
        if (b->bytes[one]) closes(b, key, one);
        else opens(b, key, one, 1 + test_random(random) % 4096);
    }
}
static void fill(books *b, key_of key, uint64_t count, uint64_t *random) {
    uint64_t i;
    for (i = 0; i < count; i++)
        if (!b->bytes[i]) opens(b, key, i, 1 + test_random(random) % 4096);
}

/* Fills the map with keys of a kind, half and whole, replaces them each time, and empties it. */
static void replace(memlord *lord, const memlord_site *site, key_of key, uint64_t count) {
    books *b = (books *)calloc(1, sizeof *b);
    uint64_t random = test_env("MEMLORD_TEST_SEED", 1), half, i;
    assert_non_null(b);
    b->lord = lord;
    b->site = site;
    b->count = count;
    for (half = 1; half <= 2; half++) {
        fill(b, key, count / 2 * half, &random);
        compare(b);
        churn(b, key, count / 2 * half, &random);
        compare(b);
        compare_blocks(b, key);
    }
    for (i = 0; i < count; i++)
        if (b->bytes[i]) closes(b, key, i);
    compare(b);
    assert_int_equal(memlord_allocated(lord, all()), 0);
    free(b);
}

static void every_kind_of_key_is_found_again(void **state) {
    TEST_ONE_THREAD();
    size_t k, n;
    for (n = 0; n < COUNTS; n++)
        for (k = 0; k < KINDS; k++) replace(test_lord(state), NULL, kinds[k], counts[n]);
}

static void and_so_it_is_with_sites(void **state) {
    TEST_ONE_THREAD();
    memlord_site_stat top[4];
    uint64_t in = 0, out = 0;
    size_t k, n;
    for (n = 0; n < COUNTS; n++)
        for (k = 0; k < KINDS; k++) replace(test_lord(state), &here, kinds[k], counts[n]);
    k = memlord_sites_top(test_lord(state), all(), MEMLORD_SITE_ORDER_ALLOC_BYTES, top, 4);
    assert_int_equal(k, 3); /* one of each device */
    while (k--) {
        in += top[k].alloc_bytes;
        out += top[k].free_bytes;
        assert_int_equal(top[k].live_bytes, 0);
        assert_int_equal(top[k].allocs, top[k].frees);
    }
    assert_int_equal(in, stats_of(test_lord(state), all()).total_allocated);
    assert_int_equal(out, in);
}

/* Bytes the ledger takes for so many blocks, replaced at random. */
static uint64_t bytes_taken(uint32_t flags, uint64_t count) {
    test_heap heap;
    memlord_desc desc;
    memlord *lord;
    uint64_t taken;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, flags);
    assert_ok(memlord_create(&desc, &lord));
    replace(lord, &here, in_a_heap, count);
    taken = heap.bytes;
    assert_ok(memlord_verify(lord));
    memlord_destroy(lord);
    assert_int_equal(heap.bytes, 0);
    return taken;
}
/* A shard that lost count of what is in it would grow too soon, or never. When one does grow also
   depends on where it lies, so that not all do at once: ledgers elsewhere differ a little. */
static void sites_make_no_table_larger_or_fuller(void **state) {
    size_t n;
    (void)state;
    for (n = 0; n < COUNTS; n++) {
        uint64_t without = bytes_taken(0, counts[n]);
        uint64_t with = bytes_taken(MEMLORD_FLAG_SITES, counts[n]);
        assert_in_range(with, without - without / 8, without + without / 8);
    }
}

static void with_a_tag_and_in_a_scope(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat tag;
    memlord_scope_stat scope;
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_scope_begin(lord, "load"));
    replace(lord, &here, in_a_heap, counts[0]);
    replace(lord, &here, in_a_heap, counts[1]);
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_tag_get(lord, all(), "weights", &tag));
    assert_int_equal(tag.allocated, 0);
    assert_true(tag.peak > 0);
    assert_ok(memlord_scope_get(lord, "load", &scope));
    assert_int_equal(scope.bytes.total, 0);
}

static void and_while_events_are_kept(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_events_start(lord, 1000));
    replace(lord, NULL, in_a_heap, counts[0]);
    replace(lord, NULL, in_a_heap, counts[1]);
    memlord_events_stop(lord);
}

/* -- whose bytes they are: sites and tags of blocks in tables -- */

enum { LIVE = 5000, SITES = 5000 }; /* more sites than a thread remembers */

/* Of the only site there is. */
static memlord_site_stat site_stat(memlord *lord) {
    memlord_site_stat top[2];
    assert_int_equal(memlord_sites_top(lord, all(), MEMLORD_SITE_ORDER_ALLOCS, top, 2), 1);
    return top[0];
}

static void each_of_many_sites_counts_its_own(void **state) {
    static memlord_site sites[SITES];
    static memlord_site_stat top[SITES + 1];
    memlord *lord = test_lord(state);
    uint64_t i, round;
    for (i = 0; i < SITES; i++) {
        sites[i].file = "tests/test_map.c";
        sites[i].function = "each";
        sites[i].line = (int)i;
    }
    for (round = 0; round < 3; round++) {
        for (i = 0; i < SITES; i++)
            assert_ok(memlord_alloc(lord, cuda(0), in_a_heap(i), i + 1, &sites[i]));
        for (i = 0; i < SITES; i++) /* every other by its neighbour */
            assert_ok(memlord_free(lord, cuda(0), in_a_heap(i), &sites[i ^ 1]));
    }
    assert_int_equal(memlord_sites_top(lord, all(), MEMLORD_SITE_ORDER_ALLOCS, top, SITES + 1),
                     SITES);
    for (i = 0; i < SITES; i++) {
        uint64_t n = (uint64_t)top[i].site->line;
        assert_int_equal(top[i].allocs, 3);
        assert_int_equal(top[i].frees, 3);
        assert_int_equal(top[i].alloc_bytes, 3 * (n + 1));
        assert_int_equal(top[i].free_bytes, 3 * ((n ^ 1) + 1));
        assert_int_equal(top[i].live_bytes, 0);
        assert_int_equal(top[i].peak_bytes, n + 1);
    }
}

/* Leaves 100,000 bytes, and a height of 30,000 above that. */
static void was_higher(memlord *lord, const memlord_site *site) {
    const uint64_t key = in_a_heap(2 * BLOCKS);
    assert_ok(memlord_alloc(lord, cuda(0), key, 100000, site));
    assert_ok(memlord_alloc(lord, cuda(0), key + 16, 30000, site));
    assert_ok(memlord_free(lord, cuda(0), key + 16, NULL));
}

static void a_block_without_a_site_is_no_sites(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    was_higher(lord, &here);
    for (i = 0; i < 2000; i++)
        assert_ok(memlord_alloc(lord, cuda(0), in_a_heap(i), 10, i % 2 ? &here : NULL));
    assert_int_equal(site_stat(lord).allocs, 2 + 1000);
    for (i = 0; i < 2000; i++)
        assert_ok(memlord_free(lord, cuda(0), in_a_heap(i), i % 4 ? NULL : &here));
    assert_int_equal(site_stat(lord).frees, 500);
    assert_int_equal(site_stat(lord).live_bytes, 100000);
}

static void a_block_is_of_the_tag_it_was_allocated_under(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat kv, weights;
    uint64_t i;
    for (i = 0; i < 3000; i++) {
        if (i % 3) assert_ok(memlord_tag_begin(lord, i % 3 == 1 ? "kv" : "weights"));
        assert_ok(memlord_alloc(lord, cuda((int)(i % 2)), in_a_heap(i), 10, NULL));
        assert_ok(memlord_alloc(lord, cuda(0), in_a_heap(3000 + i), 1, NULL));
        if (i % 3) assert_ok(memlord_tag_end(lord));
    }
    assert_ok(memlord_tag_get(lord, all(), "kv", &kv));
    assert_ok(memlord_tag_get(lord, cuda(1), "weights", &weights));
    assert_int_equal(kv.blocks, 2000);
    assert_int_equal(kv.allocated, 11000);
    assert_int_equal(weights.blocks, 500);
    assert_int_equal(weights.allocated, 5000);
}

/* Its record is new, and has allocated nowhere yet. */
static void *begin_with_a_free(void *user) {
    memlord *lord = (memlord *)user;
    if (!memlord_free(lord, memlord_device_cpu(), in_a_heap(0), NULL)) return user;
    return memlord_alloc(lord, memlord_device_cpu(), in_a_heap(1), 100, NULL) ? user : NULL;
}
static void *begin_with_a_view(void *user) {
    memlord *lord = (memlord *)user;
    if (memlord_scope_begin(lord, "first") || memlord_track(lord, cuda(1), in_a_heap(2), 1, NULL) ||
        memlord_alloc(lord, memlord_device_cpu(), in_a_heap(3), 100, NULL))
        return user;
    return memlord_scope_end(lord) ? user : NULL;
}
static void a_thread_may_begin_with_any_call(void **state) {
    void *(*const first[])(void *) = {begin_with_a_free, begin_with_a_view};
    memlord *lord = test_lord(state);
    pthread_t thread;
    void *failed = lord;
    size_t i;
    for (i = 0; i < sizeof first / sizeof *first; i++) {
        assert_int_equal(pthread_create(&thread, NULL, first[i], lord), 0);
        assert_int_equal(pthread_join(thread, &failed), 0);
        assert_null(failed);
        assert_int_equal(memlord_allocated(lord, memlord_device_cpu()), 100 * (i + 1));
    }
}

/* Of those that have a place in the table of devices, and of those that have none. */
static void a_block_is_of_its_device_whichever_was_the_last(void **state) {
    static const int index[] = {0, 1, 127, 128, 30000};
    enum { DEVICES = sizeof index / sizeof *index, ROUNDS = 300, EACH = 3 };
    memlord *lord = test_lord(state);
    memlord_tag_stat tag;
    uint64_t round, d, k, key;
    for (round = 0; round < ROUNDS; round++) {
        if (round % 3) assert_ok(memlord_tag_begin(lord, round % 3 == 1 ? "kv" : "weights"));
        for (d = 0; d < DEVICES; d++)
            for (k = 0; k < EACH; k++) {
                key = in_a_heap((round * DEVICES + d) * EACH + k);
                assert_ok(memlord_alloc(lord, cuda(index[d]), key, d + 1, &here));
                if (k == 2) assert_ok(memlord_free(lord, cuda(index[d]), key, &here));
            }
        assert_int_equal(memlord_alloc(lord, memlord_device_make(-1, -1), 4096, 1, &here),
                         MEMLORD_E_DEVICE);
        if (round % 3) assert_ok(memlord_tag_end(lord));
    }
    for (d = 0; d < DEVICES; d++) {
        memlord_stats s = stats_of(lord, cuda(index[d]));
        assert_int_equal(s.live_blocks, 2 * ROUNDS);
        assert_int_equal(s.allocated, 2 * ROUNDS * (d + 1));
        assert_int_equal(s.frees, ROUNDS);
        assert_ok(memlord_tag_get(lord, cuda(index[d]), "kv", &tag));
        assert_int_equal(tag.blocks, 2 * ROUNDS / 3);
        assert_int_equal(tag.allocated, 2 * ROUNDS / 3 * (d + 1));
    }
}

/* As blocks of one size lie in a pool. The distances are ordinary, and those that a hash which only
   multiplies liked least, and those at which many tables grow at once. */
static void blocks_at_equal_distances_take_64_bytes_each(void **state) {
    static const uint64_t distance[] = {48,   3664, 4064,  4096,  4432,   5520, 6528,
                                        8208, 9136, 65536, 77824, 2 << 20};
    test_heap heap;
    memlord_desc desc = test_desc(&heap, 0);
    memlord *lord;
    uint64_t d, i;
    (void)state;
    for (d = 0; d < sizeof distance / sizeof *distance; d++) {
        memset(&heap, 0, sizeof heap);
        assert_ok(memlord_create(&desc, &lord));
        for (i = 0; i < BLOCKS; i++) {
            assert_ok(memlord_alloc(lord, cuda(0), 0x7f5500000000u + i * distance[d], 10, NULL));
            if (i >= 10000) assert_in_range(heap.bytes, 1, 64 * (i + 1));
        }
        assert_ok(memlord_verify(lord));
        memlord_destroy(lord);
    }
}

/* The key of a hash in dense tables: its shift and its product undone. */
static uint64_t key_of_hash(uint64_t hash) {
    uint64_t inverse = 1, key;
    int i;
    for (i = 0; i < 6; i++) inverse *= 2 - 0xc4ceb9fe1a85ec53u * inverse; /* Newton: 2^i bits */
    hash *= inverse;
    for (key = hash, i = 0; i < 13; i++) key = hash ^ key >> 5;
    return key;
}
/* Of one shard, and counted alike: of one bucket however many there are or, a little apart, of one
   bucket of up to 1000. */
static uint64_t colliding(uint64_t i, uint64_t apart) {
    static uint64_t at[2][64], n[2], random = 1;
    uint64_t *made = &n[apart != 0], *keys = at[apart != 0];
    while (*made <= i) {
        uint64_t home = 0x12345678u + *made * apart;
        uint64_t key = key_of_hash(home << 32 | test_random(&random) >> 44);
        if (key >> 22 && (key >> 21) * 0x9e3779b97f4a7c15u >> 54 == 7) keys[(*made)++] = key;
    }
    return keys[i];
}
static uint64_t made_to_collide(uint64_t i) { return colliding(i, 0); }
static uint64_t a_little_apart(uint64_t i) { return colliding(i, 100000); }
static void keys_made_to_collide_are_refused_without_taking_all_memory(void **state) {
    enum { MADE = 40 };
    test_heap heap;
    memlord_desc desc = test_desc(&heap, 0);
    memlord *lord;
    uint64_t i, live = 0;
    (void)state;
    memset(&heap, 0, sizeof heap);
    assert_ok(memlord_create(&desc, &lord));
    for (i = 0; i < BLOCKS; i++) assert_ok(memlord_alloc(lord, cuda(0), in_a_heap(i), 1, NULL));
    for (i = 0; i < MADE; i++) {
        memlord_result r = memlord_alloc(lord, cuda(0), made_to_collide(i), 1, NULL);
        assert_true(r == MEMLORD_OK || r == MEMLORD_E_NOMEM);
        live += r == MEMLORD_OK;
    }
    assert_in_range(live, 12, MADE - 1);
    assert_int_equal(memlord_allocated(lord, cuda(0)), BLOCKS + live);
    assert_in_range(heap.bytes, 1, 100 * BLOCKS);
    for (i = 0; i < MADE; i++) (void)memlord_free(lord, cuda(0), made_to_collide(i), NULL);
    assert_int_equal(memlord_allocated(lord, cuda(0)), BLOCKS);
    assert_ok(memlord_verify(lord));
    memlord_destroy(lord);
}

/* 5 fit in their bucket, and 15 are counted to lie behind it. No larger table takes more. */
static void of_keys_made_to_collide_an_empty_map_takes_20(void **state) {
    enum { MADE = 24, MOST = 20 };
    test_case *t = (test_case *)*state;
    uint64_t i, before = 0;
    for (i = 0; i < MADE; i++) {
        if (i == MOST) before = t->heap.bytes;
        assert_int_equal(memlord_alloc(t->lord, cuda(0), made_to_collide(i), 1, NULL),
                         i < MOST ? MEMLORD_OK : MEMLORD_E_NOMEM);
    }
    assert_in_range(t->heap.bytes, before, before + (256 << 10)); /* for the tables it tried */
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), MOST);
    assert_int_equal(stats_of(t->lord, cuda(0)).dropped_allocs, MADE - MOST);
    for (i = 0; i < MADE; i++) assert_ok(memlord_free(t->lord, cuda(0), made_to_collide(i), NULL));
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), 0);
    assert_ok(memlord_alloc(t->lord, cuda(0), made_to_collide(MOST), 1, NULL));
}

static void a_refused_key_makes_no_table(void **state) {
    static const key_of keys[] = {made_to_collide, a_little_apart};
    test_case *t;
    uint64_t kind, i, calls, refused;
    for (kind = 0; kind < 2; kind++) {
        assert_int_equal(test_open(state, 0), 0);
        t = (test_case *)*state;
        calls = t->heap.calls;
        for (refused = i = 0; i < 4000; i++)
            refused += memlord_alloc(t->lord, cuda(0), keys[kind](i % 40), 1, NULL) != MEMLORD_OK;
        assert_in_range(refused, 1000, 2000);
        assert_in_range(t->heap.calls - calls, 1, 100); /* most for tables with room */
        assert_int_equal(test_teardown(state), 0);
    }
}

static void a_handle_may_be_live_on_every_type_of_device(void **state) {
    enum { HANDLES = 3000 };
    test_heap heap;
    memlord_desc desc = test_desc(&heap, 0);
    memlord_block_info info;
    memlord *lord;
    uint64_t i;
    int type;
    (void)state;
    memset(&heap, 0, sizeof heap);
    assert_ok(memlord_create(&desc, &lord));
    for (i = 1; i <= HANDLES; i++)
        for (type = 0; type < (int)MEMLORD_DEVICE_TYPE_COUNT; type++)
            assert_ok(memlord_alloc(lord, memlord_device_make(type, 0), i, i + 1, NULL));
    for (i = 1; i <= HANDLES; i++)
        for (type = 0; type < (int)MEMLORD_DEVICE_TYPE_COUNT; type++) {
            assert_ok(memlord_block_find(lord, memlord_device_make(type, 0), i, &info));
            assert_int_equal(info.bytes, i + 1);
            assert_ok(memlord_free(lord, memlord_device_make(type, 0), i, NULL));
        }
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_ok(memlord_verify(lord));
    memlord_destroy(lord);
}

/* 20,000 bytes more, and at once fewer: nobody looks while they are most. */
static void rises_and_falls(memlord *lord) {
    uint64_t i;
    for (i = 0; i < 2000; i++)
        assert_ok(memlord_alloc(lord, cuda(0), in_a_heap(i), 10, &here));
    for (i = 0; i < 1000; i++) assert_ok(memlord_free(lord, cuda(0), in_a_heap(i), NULL));
}
static void the_peak_of_a_site_is_its_own(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_tag_begin(lord, "kv"));
    was_higher(lord, NULL);
    rises_and_falls(lord);
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(site_stat(lord).peak_bytes, 20000);
    assert_int_equal(memlord_peak(lord, all()), 130000);
}
static void the_peak_of_a_tag_is_its_own(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat tag;
    was_higher(lord, &here);
    assert_ok(memlord_tag_begin(lord, "kv"));
    rises_and_falls(lord);
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_tag_get(lord, all(), "kv", &tag));
    assert_int_equal(tag.peak, 20000);
    assert_int_equal(site_stat(lord).peak_bytes, 130000);
}

typedef struct holder {
    memlord *lord;
    const memlord_site *site;
    const char *tag;
} holder;
static memlord_result give(holder *h, uint64_t i, uint64_t bytes) {
    return memlord_alloc(h->lord, cuda(0), in_a_heap(i), bytes, h->site);
}
static memlord_result take(holder *h, uint64_t i) {
    return memlord_free(h->lord, cuda(0), in_a_heap(i), NULL);
}
/* Ten blocks of 10,000 bytes, then none. Much else comes and goes meanwhile, so that the device's
   level is made known at other times than the tag's or the site's. */
static void *hold_and_let_go(void *user) {
    enum { HELD = 10 };
    holder *h = (holder *)user, other = {h->lord, NULL, NULL};
    uint64_t i;
    if (give(&other, HELD, 1u << 30) || (h->tag && memlord_tag_begin(h->lord, h->tag))) return user;
    for (i = 0; i < HELD; i++)
        if (give(h, i, 10000)) return user;
    if (h->tag && memlord_tag_end(h->lord)) return user;
    for (i = 0; i < HELD; i++)
        if (give(&other, HELD + 1, 1u << 20) || take(&other, HELD + 1) || take(h, i)) return user;
    return take(&other, HELD) ? user : NULL;
}
/* First this thread, then another: never both. */
static void hold_in_turn(memlord *lord, const memlord_site *site, const char *tag) {
    holder h;
    pthread_t thread;
    void *failed = lord;
    h.lord = lord;
    h.site = site;
    h.tag = tag;
    assert_null(hold_and_let_go(&h));
    assert_int_equal(pthread_create(&thread, NULL, hold_and_let_go, &h), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
}
static void what_a_thread_let_go_is_in_no_later_peak_of_its_site(void **state) {
    hold_in_turn(test_lord(state), &here, NULL);
    assert_in_range(site_stat(test_lord(state)).peak_bytes, 1, 100000);
}
static void what_a_thread_let_go_is_in_no_later_peak_of_its_tag(void **state) {
    memlord_tag_stat tag;
    hold_in_turn(test_lord(state), NULL, "kv");
    assert_ok(memlord_tag_get(test_lord(state), all(), "kv", &tag));
    assert_in_range(tag.peak, 1, 100000);
}

/* -- the rules of a storage, where tables are full -- */

/* So many blocks of 10 bytes each; answers the key of the one that is asked about. */
static uint64_t crowd(memlord *lord) {
    uint64_t i;
    for (i = 0; i < LIVE; i++) assert_ok(memlord_alloc(lord, cuda(0), in_a_heap(i), 10, NULL));
    return in_a_heap(LIVE / 2);
}

static void a_double_free_in_a_crowd_is_credited_once(void **state) {
    memlord *lord = test_lord(state);
    uint64_t key = crowd(lord);
    assert_ok(memlord_free(lord, cuda(0), key, NULL));
    assert_int_equal(memlord_free(lord, cuda(0), key, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 10 * (LIVE - 1));
    assert_int_equal(stats_of(lord, cuda(0)).unknown_frees, 1);
}

static void a_free_by_another_type_finds_nothing_there(void **state) {
    memlord *lord = test_lord(state);
    uint64_t key = crowd(lord);
    assert_ok(memlord_alloc(lord, cpu(), in_a_heap(LIVE), 10, NULL));
    assert_int_equal(memlord_free(lord, cpu(), key, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 10 * LIVE);
    assert_int_equal(memlord_allocated(lord, cpu()), 10);
    assert_int_equal(stats_of(lord, cpu()).unknown_frees, 1);
}

static void a_free_by_another_index_ends_it_where_it_lives(void **state) {
    memlord *lord = test_lord(state);
    uint64_t key = crowd(lord);
    assert_ok(memlord_alloc(lord, cuda(1), in_a_heap(LIVE), 10, NULL));
    assert_ok(memlord_free(lord, cuda(1), key, NULL));
    assert_ok(memlord_free(lord, memlord_device_cuda(MEMLORD_ANY), in_a_heap(1), NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 10 * (LIVE - 2));
    assert_int_equal(memlord_allocated(lord, cuda(1)), 10);
    assert_int_equal(stats_of(lord, cuda(1)).frees, 0);
}

static void an_alloc_over_one_of_a_crowd_closes_it(void **state) {
    memlord *lord = test_lord(state);
    uint64_t key = crowd(lord);
    assert_ok(memlord_alloc(lord, cuda(0), key, 25, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 10 * (LIVE - 1) + 25);
    assert_int_equal(stats_of(lord, cuda(0)).implicit_frees, 1);
    assert_int_equal(stats_of(lord, cuda(0)).live_blocks, LIVE);
}

static void a_view_keeps_one_of_a_crowd_alive(void **state) {
    memlord *lord = test_lord(state);
    uint64_t key = crowd(lord);
    assert_ok(memlord_retain(lord, cuda(0), key, NULL));
    assert_ok(memlord_release(lord, cuda(0), key, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 10 * LIVE);
    assert_ok(memlord_release(lord, cuda(0), key, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 10 * (LIVE - 1));
}

static void a_described_one_is_freed_as_any(void **state) {
    memlord *lord = test_lord(state);
    uint64_t key = crowd(lord);
    memlord_meta meta = {"tensor", "f32", {5}, 1, 0, NULL};
    assert_ok(memlord_block_describe(lord, cuda(0), key, &meta));
    assert_ok(memlord_free(lord, cuda(0), key, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 10 * (LIVE - 1));
}

static void a_tagged_one_is_taken_off_its_tag_after_its_end(void **state) {
    memlord *lord = test_lord(state);
    memlord_tag_stat tag;
    (void)crowd(lord);
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cuda(0), in_a_heap(LIVE), 10, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_free(lord, cuda(0), in_a_heap(LIVE), NULL));
    assert_ok(memlord_tag_get(lord, all(), "weights", &tag));
    assert_int_equal(tag.allocated, 0);
    assert_int_equal(tag.blocks, 0);
    assert_int_equal(tag.peak, 10);
}

static void the_peak_of_a_crowd_is_exact(void **state) {
    memlord *lord = test_lord(state);
    uint64_t key = crowd(lord), i;
    for (i = 0; i < 100; i++) {
        assert_ok(memlord_free(lord, cuda(0), key, NULL));
        assert_ok(memlord_alloc(lord, cuda(0), key, 10 + i, NULL));
        assert_int_equal(memlord_peak(lord, cuda(0)), 10 * LIVE + i);
    }
    assert_int_equal(memlord_peak(lord, cuda(0)), 10 * LIVE + 99);
}

/* -- walks -- */

enum { CLOSE = 65536 }; /* blocks of 32 bytes in one region of 2 MiB, and so in one shard */
typedef struct met {
    memlord *lord;
    test_heap *heap;
    uint64_t most; /* bytes the ledger had meanwhile */
    unsigned char times[CLOSE];
} met;

static uint64_t in_one_region(uint64_t i) { return 0x7f5500000000u + i * 32; }

static int meet(void *user, const memlord_block_info *info) {
    met *m = (met *)user;
    uint64_t i = (info->storage - in_one_region(0)) / 32;
    if (i < CLOSE) m->times[i]++;
    if (m->heap->bytes > m->most) m->most = m->heap->bytes;
    return 0;
}
/* Frees every other block it meets, and makes the table grow. */
static int meet_and_change(void *user, const memlord_block_info *info) {
    met *m = (met *)user;
    uint64_t i = (info->storage - in_one_region(0)) / 32;
    (void)meet(user, info);
    if (i < CLOSE && i % 2) (void)memlord_free(m->lord, cpu(), info->storage, NULL);
    return memlord_alloc(m->lord, cuda(0), in_one_region(i) + 16, 1, NULL) != MEMLORD_OK;
}

static void meet_all(void **state, memlord_block_fn fn, memlord_device sel) {
    test_case *t = (test_case *)*state;
    met *m = (met *)calloc(1, sizeof *m);
    uint64_t i, before;
    assert_non_null(m);
    m->lord = t->lord;
    m->heap = &t->heap;
    for (i = 0; i < CLOSE; i++)
        assert_ok(memlord_alloc(t->lord, cpu(), in_one_region(i), 32, NULL));
    before = t->heap.bytes;
    assert_ok(memlord_blocks_each(t->lord, sel, 0, fn, m));
    for (i = 0; i < CLOSE; i++) assert_int_equal(m->times[i], 1);
    if (fn == meet) assert_in_range(m->most, before, before + (2u << 20));
    free(m);
}

static void a_walk_meets_every_block_of_a_close_crowd_once(void **state) {
    meet_all(state, meet, all());
}
static void and_so_it_does_while_the_crowd_changes(void **state) {
    meet_all(state, meet_and_change, cpu());
}

/* -- two threads, each with blocks of its own, and then with the other's -- */

static void *free_the_odd_ones(void *user) {
    memlord *lord = (memlord *)user;
    uint64_t i;
    for (i = 1; i < LIVE; i += 2)
        if (memlord_free(lord, cuda(0), in_a_heap(i), NULL)) return user;
    return NULL;
}

static void what_one_thread_made_another_can_free(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    void *failed = lord;
    uint64_t i;
    (void)crowd(lord);
    assert_int_equal(pthread_create(&thread, NULL, free_the_odd_ones, lord), 0);
    for (i = 0; i < LIVE; i += 2) assert_ok(memlord_free(lord, cuda(0), in_a_heap(i), NULL));
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(stats_of(lord, cuda(0)).unknown_frees, 0);
    assert_ok(memlord_alloc(lord, cuda(0), in_a_heap(0), 10, NULL));
    assert_ok(memlord_free(lord, cuda(0), in_a_heap(0), NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_kind_of_key_is_found_again),
        TEST_EXACT(every_kind_of_key_is_found_again),
        TEST_SITES(and_so_it_is_with_sites),
        TEST(sites_make_no_table_larger_or_fuller),
        TEST_SITES(with_a_tag_and_in_a_scope),
        TEST(and_while_events_are_kept),
        TEST_SITES(each_of_many_sites_counts_its_own),
        TEST_SITES(a_block_without_a_site_is_no_sites),
        TEST(a_block_is_of_the_tag_it_was_allocated_under),
        TEST_SITES(a_block_is_of_the_tag_it_was_allocated_under),
        TEST(a_thread_may_begin_with_any_call),
        TEST_SITES(a_thread_may_begin_with_any_call),
        TEST(a_block_is_of_its_device_whichever_was_the_last),
        TEST_SITES(a_block_is_of_its_device_whichever_was_the_last),
        cmocka_unit_test(blocks_at_equal_distances_take_64_bytes_each),
        cmocka_unit_test(keys_made_to_collide_are_refused_without_taking_all_memory),
        TEST(of_keys_made_to_collide_an_empty_map_takes_20),
        cmocka_unit_test(a_refused_key_makes_no_table),
        cmocka_unit_test(a_handle_may_be_live_on_every_type_of_device),
        TEST_SITES(the_peak_of_a_site_is_its_own),
        TEST_SITES(the_peak_of_a_tag_is_its_own),
        TEST_SITES(what_a_thread_let_go_is_in_no_later_peak_of_its_site),
        TEST(what_a_thread_let_go_is_in_no_later_peak_of_its_tag),
        TEST_SITES(what_a_thread_let_go_is_in_no_later_peak_of_its_tag),
        TEST(a_double_free_in_a_crowd_is_credited_once),
        TEST_SITES(a_double_free_in_a_crowd_is_credited_once),
        TEST(a_free_by_another_type_finds_nothing_there),
        TEST(a_free_by_another_index_ends_it_where_it_lives),
        TEST_SITES(a_free_by_another_index_ends_it_where_it_lives),
        TEST(an_alloc_over_one_of_a_crowd_closes_it),
        TEST_SITES(an_alloc_over_one_of_a_crowd_closes_it),
        TEST(a_view_keeps_one_of_a_crowd_alive),
        TEST_SITES(a_view_keeps_one_of_a_crowd_alive),
        TEST(a_described_one_is_freed_as_any),
        TEST_SITES(a_described_one_is_freed_as_any),
        TEST(a_tagged_one_is_taken_off_its_tag_after_its_end),
        TEST_SITES(a_tagged_one_is_taken_off_its_tag_after_its_end),
        TEST(the_peak_of_a_crowd_is_exact),
        TEST(a_walk_meets_every_block_of_a_close_crowd_once),
        TEST(and_so_it_does_while_the_crowd_changes),
        TEST(what_one_thread_made_another_can_free),
    };
    return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
