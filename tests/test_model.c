/* The ledger against a flat array that is too simple to be wrong: random operations, the same
   answers and the same books after each. MEMLORD_TEST_SEED and MEMLORD_TEST_OPS replay a run. */
#include "support.h"

#include <time.h>
#include <unistd.h>

#define DEVICES 6
#define TYPES 3
#define KEYS 256
#define TAGS 5   /* 0 is none */
#define TOKENS 4
#define DEPTH 3

typedef struct block {
    int live, device, tag, name;
    uint64_t bytes, refs, born;
} block;

typedef struct book {
    uint64_t allocated, live_blocks, allocs, frees, total_allocated, total_freed, freed;
    uint64_t moves, moved_bytes, arena, unknown_frees, underflows;
    uint64_t peak_low, peak_high; /* by the order in which one call closes and opens */
    uint64_t before, opened;      /* of the call in progress */
} book;

typedef struct held { /* a block between realloc_begin and realloc_end */
    int used, known, type, key;
    block was;
    memlord_realloc_token token;
} held;

typedef struct model {
    memlord *lord;
    uint64_t seed, op;
    block blocks[TYPES][KEYS];
    book books[DEVICES];
    uint64_t tag_bytes[DEVICES][TAGS], tag_blocks[DEVICES][TAGS];
    uint64_t tag_arena[DEVICES][TAGS]; /* of the books' arena; the rest has no tag */
    uint64_t implicit_frees, freed_while_shared;
    uint64_t mark;
    held tokens[TOKENS];
    int stack[DEPTH], depth;
} model;

static const memlord_device devices[DEVICES] = {
    {MEMLORD_DEVICE_CPU, 0},  {MEMLORD_DEVICE_CUDA, 0},   {MEMLORD_DEVICE_CUDA, 1},
    {MEMLORD_DEVICE_CUDA, 2}, {MEMLORD_DEVICE_VULKAN, 0}, {MEMLORD_DEVICE_VULKAN, 1}};
static const int type_of[DEVICES] = {0, 1, 1, 1, 2, 2};
static const char *const tag_names[TAGS] = {NULL, "weights", "kv_cache", "scratch", "%s"};
static const char *const block_names[3] = {NULL, "blk.0", "blk.1"};
static const memlord_site sites[3] = {{"m.c", "a", 1}, {"m.c", "b", 2}, {"m.c", "c", 3}};

static uint64_t draw(model *m, uint64_t below) { return test_random(&m->seed) % below; }

/* Heap-like, 2 MiB aligned, small integers, and one stride that meets in few places. */
static uint64_t key_of(int key) {
    uint64_t i = (uint64_t)key / 4;
    switch (key % 4) {
    case 0: return 0x7f3a40001010u + i * 48 + (i / 7) * 4096;
    case 1: return (i + 1) << 21;
    case 2: return i + 1;
    default: return (i + 1) << 40;
    }
}

static uint64_t draw_bytes(model *m) {
    uint64_t kind = draw(m, 16);
    if (kind == 0) return 0;
    if (kind == 1) return (uint64_t)1 << 40;
    return 1 + draw(m, (uint64_t)1 << (4 + kind));
}

static const memlord_site *draw_site(model *m) {
    uint64_t i = draw(m, 4);
    return i ? &sites[i - 1] : NULL;
}

/* -- the books -- */

static void call_begins(model *m) {
    int d;
    for (d = 0; d < DEVICES; d++) {
        m->books[d].before = m->books[d].allocated;
        m->books[d].opened = 0;
    }
}

static void call_ends(model *m) {
    int d;
    for (d = 0; d < DEVICES; d++) {
        book *b = &m->books[d];
        if (b->allocated > b->peak_low) b->peak_low = b->allocated;
        if (b->before + b->opened > b->peak_high) b->peak_high = b->before + b->opened;
    }
}

static void add(model *m, int device, uint64_t bytes) {
    book *b = &m->books[device];
    b->allocated += bytes;
    b->total_allocated += bytes;
    b->opened += bytes;
}

static void take(model *m, int device, uint64_t bytes) {
    book *b = &m->books[device];
    b->allocated -= bytes;
    b->total_freed += bytes;
    b->freed += bytes;
}

static void tag_add(model *m, const block *b) {
    m->tag_bytes[b->device][b->tag] += b->bytes;
    m->tag_blocks[b->device][b->tag]++;
}

static void tag_take(model *m, const block *b) {
    m->tag_bytes[b->device][b->tag] -= b->bytes;
    m->tag_blocks[b->device][b->tag]--;
}

static void put(model *m, block *b) {
    b->live = 1;
    m->books[b->device].live_blocks++;
    add(m, b->device, b->bytes);
    tag_add(m, b);
}

static void drop(model *m, block *b) {
    m->books[b->device].live_blocks--;
    take(m, b->device, b->bytes);
    tag_take(m, b);
    b->live = 0;
}

static void close_block(model *m, block *b) {
    m->books[b->device].frees++;
    drop(m, b);
}

static void open_block(model *m, int device, int key, uint64_t bytes) {
    block *b = &m->blocks[type_of[device]][key];
    if (b->live) {
        m->implicit_frees++;
        close_block(m, b);
    }
    memset(b, 0, sizeof *b);
    b->device = device;
    b->tag = m->depth ? m->stack[m->depth - 1] : 0;
    b->bytes = bytes;
    b->refs = 1;
    b->born = m->mark;
    m->books[device].allocs++;
    put(m, b);
}

/* Puts a block that lived elsewhere under a key of its device's type. */
static void land(model *m, const block *was, int device, int key, uint64_t bytes) {
    block *b = &m->blocks[type_of[device]][key];
    if (b->live) {
        m->implicit_frees++;
        close_block(m, b);
    }
    *b = *was;
    b->live = 1;
    b->device = device;
    b->bytes = bytes;
}

/* A realloc neither opens nor closes: only the difference moves. */
static void resize(model *m, const block *was, int key, uint64_t bytes) {
    land(m, was, was->device, key, bytes);
    if (bytes > was->bytes)
        add(m, was->device, bytes - was->bytes);
    else
        take(m, was->device, was->bytes - bytes);
    m->tag_bytes[was->device][was->tag] += bytes - was->bytes;
}

static memlord_result end_block(model *m, int device, int key, int all_references) {
    block *b = &m->blocks[type_of[device]][key];
    if (!b->live) {
        m->books[device].unknown_frees++;
        return MEMLORD_E_UNKNOWN;
    }
    if (!all_references && --b->refs) return MEMLORD_OK;
    if (b->refs > 1) m->freed_while_shared++;
    close_block(m, b);
    return MEMLORD_OK;
}

static void track_block(model *m, int device, int key, uint64_t bytes) {
    block *b = &m->blocks[type_of[device]][key];
    if (b->live)
        b->refs++;
    else
        open_block(m, device, key, bytes);
}

/* -- one random operation each -- */

static void do_alloc(model *m) {
    int device = (int)draw(m, DEVICES), key = (int)draw(m, KEYS);
    uint64_t bytes = draw_bytes(m);
    open_block(m, device, key, bytes);
    assert_ok(memlord_alloc(m->lord, devices[device], key_of(key), bytes, draw_site(m)));
}

static void do_free(model *m) {
    int device = (int)draw(m, DEVICES), key = (int)draw(m, KEYS);
    memlord_result expected = end_block(m, device, key, 1);
    assert_int_equal(memlord_free(m->lord, devices[device], key_of(key), draw_site(m)),
                     expected);
}

static void do_track(model *m) {
    int device = (int)draw(m, DEVICES), key = (int)draw(m, KEYS);
    uint64_t bytes = draw_bytes(m);
    track_block(m, device, key, bytes);
    assert_ok(memlord_track(m->lord, devices[device], key_of(key), bytes, draw_site(m)));
}

static void do_retain(model *m) {
    int device = (int)draw(m, DEVICES), key = (int)draw(m, KEYS);
    block *b = &m->blocks[type_of[device]][key];
    assert_int_equal(memlord_retain(m->lord, devices[device], key_of(key), NULL),
                     b->live ? MEMLORD_OK : MEMLORD_E_UNKNOWN);
    if (b->live) b->refs++;
}

static void do_release(model *m) {
    int device = (int)draw(m, DEVICES), key = (int)draw(m, KEYS);
    memlord_result expected = end_block(m, device, key, 0);
    assert_int_equal(memlord_release(m->lord, devices[device], key_of(key), draw_site(m)),
                     expected);
}

/* The _n calls: applied one by one, so each is a call of its own to the peaks. */
static void do_many(model *m) {
    memlord_block list[20];
    memlord_result expected = MEMLORD_OK, r;
    size_t i, n = (size_t)draw(m, 20);
    uint64_t kind = draw(m, 4);
    for (i = 0; i < n; i++) {
        int device = (int)draw(m, DEVICES), key = (int)draw(m, KEYS);
        list[i].device = devices[device];
        list[i].storage = key_of(key);
        list[i].bytes = draw_bytes(m);
        call_begins(m);
        if (kind == 0) open_block(m, device, key, list[i].bytes);
        if (kind == 1) track_block(m, device, key, list[i].bytes);
        if (kind > 1 && end_block(m, device, key, kind == 2)) expected = MEMLORD_E_UNKNOWN;
        call_ends(m);
    }
    call_begins(m);
    r = kind == 0   ? memlord_alloc_n(m->lord, list, n, draw_site(m))
        : kind == 1 ? memlord_track_n(m->lord, list, n, draw_site(m))
        : kind == 2 ? memlord_free_n(m->lord, list, n, draw_site(m))
                    : memlord_release_n(m->lord, list, n, draw_site(m));
    assert_int_equal(r, expected);
}

static void do_realloc(model *m) {
    int device = (int)draw(m, DEVICES), key = (int)draw(m, KEYS);
    int to = draw(m, 3) ? (int)draw(m, KEYS) : key;
    block *b = &m->blocks[type_of[device]][key], was = *b;
    uint64_t bytes = draw_bytes(m);
    if (was.live) {
        b->live = 0;
        resize(m, &was, to, bytes);
    } else {
        m->books[device].unknown_frees++;
        open_block(m, device, to, bytes);
    }
    memlord_realloc(m->lord, devices[device], key_of(key), key_of(to), bytes, draw_site(m));
}

static void do_realloc_begin(model *m) {
    int device = (int)draw(m, DEVICES), key = (int)draw(m, KEYS);
    held *h = &m->tokens[draw(m, TOKENS)];
    block *b = &m->blocks[type_of[device]][key];
    if (h->used) return;
    h->used = 1;
    h->type = device; /* an unknown one opens on the device it named */
    h->key = key;
    h->known = b->live;
    h->was = *b;
    if (b->live)
        b->live = 0;
    else
        m->books[device].unknown_frees++;
    assert_int_equal(
        memlord_realloc_begin(m->lord, devices[device], key_of(key), &h->token),
        h->known ? MEMLORD_OK : MEMLORD_E_UNKNOWN);
}

/* A failed realloc gives the old address back, which nobody else can have had meanwhile. */
static int old_key_is_free(model *m, const held *h) {
    return !m->blocks[type_of[h->type]][h->key].live;
}

static void do_realloc_end(model *m) {
    held *h = &m->tokens[draw(m, TOKENS)];
    int to = (int)draw(m, KEYS), failed = draw(m, 4) == 0;
    uint64_t bytes = draw_bytes(m);
    if (!h->used || (failed && !old_key_is_free(m, h))) return;
    h->used = 0;
    if (failed && h->known) m->blocks[type_of[h->type]][h->key] = h->was;
    if (!failed && h->known) resize(m, &h->was, to, bytes);
    if (!failed && !h->known) open_block(m, h->type, to, bytes);
    assert_ok(memlord_realloc_end(m->lord, &h->token, failed ? 0 : key_of(to), bytes,
                                  draw_site(m)));
}

static void do_move(model *m) {
    int from = (int)draw(m, DEVICES), from_key = (int)draw(m, KEYS);
    int to = (int)draw(m, DEVICES), to_key = (int)draw(m, KEYS);
    uint64_t bytes = draw_bytes(m);
    block *b = &m->blocks[type_of[from]][from_key], was = *b;
    memlord_result expected = was.live ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
    if (was.live) {
        from = was.device; /* the source's index is not looked at */
        drop(m, b);
        land(m, &was, to, to_key, bytes);
        put(m, &m->blocks[type_of[to]][to_key]);
        m->books[from].frees++;
        m->books[to].allocs++;
        m->books[to].moves++;
        m->books[to].moved_bytes += bytes;
    } else {
        m->books[from].unknown_frees++;
    }
    assert_int_equal(memlord_move(m->lord, devices[from], key_of(from_key), devices[to],
                                  key_of(to_key), bytes, NULL, draw_site(m)),
                     expected);
}

/* Takes off the largest tags what the tags of a device have more than its arena. */
static void trim_arena(model *m, int device) {
    uint64_t *tag = m->tag_arena[device], tagged = 0, excess;
    int i, most;
    for (i = 1; i < TAGS; i++) tagged += tag[i];
    while (tagged > m->books[device].arena) {
        for (most = 1, i = 2; i < TAGS; i++)
            if (tag[i] > tag[most]) most = i;
        excess = tagged - m->books[device].arena;
        if (excess > tag[most]) excess = tag[most];
        tag[most] -= excess;
        tagged -= excess;
        m->books[device].underflows++;
    }
}

static void do_arena(model *m) {
    int device = (int)draw(m, DEVICES);
    uint64_t bytes = draw_bytes(m) + m->op, taken; /* so that no two tags have as much */
    uint64_t none = 0, *tag = m->depth ? &m->tag_arena[device][m->stack[m->depth - 1]] : &none;
    book *b = &m->books[device];
    if (draw(m, 2)) {
        b->arena += bytes;
        *tag += bytes;
        add(m, device, bytes);
        assert_ok(memlord_arena_add(m->lord, devices[device], bytes, draw_site(m)));
        return;
    }
    taken = bytes < b->arena ? bytes : b->arena;
    b->underflows += bytes > b->arena;
    b->arena -= taken;
    *tag -= taken < *tag ? taken : *tag;
    trim_arena(m, device);
    take(m, device, taken);
    assert_ok(memlord_arena_sub(m->lord, devices[device], bytes, draw_site(m)));
}

static void do_tag(model *m) {
    if (m->depth < DEPTH && draw(m, 2)) {
        int tag = 1 + (int)draw(m, TAGS - 1);
        m->stack[m->depth++] = tag;
        assert_ok(memlord_tag_begin(m->lord, tag_names[tag]));
    } else {
        assert_int_equal(memlord_tag_end(m->lord), m->depth ? MEMLORD_OK : MEMLORD_E_STATE);
        if (m->depth) m->depth--;
    }
}

static void do_retag(model *m) {
    int device = (int)draw(m, DEVICES), key = (int)draw(m, KEYS), tag = (int)draw(m, TAGS);
    block *b = &m->blocks[type_of[device]][key];
    assert_int_equal(
        memlord_block_retag(m->lord, devices[device], key_of(key), tag_names[tag]),
        b->live ? MEMLORD_OK : MEMLORD_E_UNKNOWN);
    if (!b->live) return;
    tag_take(m, b);
    b->tag = tag;
    tag_add(m, b);
}

static void do_describe(model *m) {
    int device = (int)draw(m, DEVICES), key = (int)draw(m, KEYS), name = (int)draw(m, 3);
    block *b = &m->blocks[type_of[device]][key];
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    meta.name = block_names[name];
    assert_int_equal(memlord_block_describe(m->lord, devices[device], key_of(key), &meta),
                     b->live ? MEMLORD_OK : MEMLORD_E_UNKNOWN);
    if (b->live) b->name = name;
}

static void do_rare(model *m) {
    uint64_t kind = draw(m, 40);
    int d;
    if (kind < 20) {
        m->mark++;
        assert_int_equal(memlord_mark(m->lord), m->mark);
    } else if (kind == 20) {
        memlord_reset(m->lord);
        for (d = 0; d < DEVICES; d++) {
            book *b = &m->books[d];
            b->allocs = b->frees = b->total_allocated = b->total_freed = b->freed = 0;
            b->moves = b->moved_bytes = b->unknown_frees = b->underflows = 0;
            b->peak_low = b->peak_high = b->allocated;
        }
        m->implicit_frees = m->freed_while_shared = 0;
    } else if (kind < 24) {
        d = (int)draw(m, DEVICES);
        m->books[d].peak_low = m->books[d].peak_high = m->books[d].allocated;
        memlord_peak_reset(m->lord, devices[d]);
    }
}

/* -- comparison -- */

static void compare_books(model *m) {
    uint64_t implicit = 0, shared = 0;
    int d;
    for (d = 0; d < DEVICES; d++) {
        const book *b = &m->books[d];
        memlord_stats s = stats_of(m->lord, devices[d]);
        assert_int_equal(s.allocated, b->allocated);
        assert_int_equal(s.live_blocks, b->live_blocks);
        assert_int_equal(s.allocs, b->allocs);
        assert_int_equal(s.frees, b->frees);
        assert_int_equal(s.total_allocated, b->total_allocated);
        assert_int_equal(s.total_freed, b->total_freed);
        assert_int_equal(s.freed, b->freed);
        assert_int_equal(s.moves, b->moves);
        assert_int_equal(s.moved_bytes, b->moved_bytes);
        assert_int_equal(s.unknown_frees, b->unknown_frees);
        assert_int_equal(s.underflows, b->underflows);
        assert_in_range(s.peak, b->peak_low, b->peak_high);
        assert_int_equal(s.peak_error, 0);
        implicit += s.implicit_frees;
        shared += s.freed_while_shared;
    }
    assert_int_equal(implicit, m->implicit_frees);
    assert_int_equal(shared, m->freed_while_shared);
}

static uint64_t untagged_arena(const model *m, int d) {
    uint64_t bytes = m->books[d].arena;
    int tag;
    for (tag = 1; tag < TAGS; tag++) bytes -= m->tag_arena[d][tag];
    return bytes;
}

static void compare_tags(model *m) {
    int d, tag;
    for (d = 0; d < DEVICES; d++)
        for (tag = 0; tag < TAGS; tag++) {
            memlord_tag_stat stat;
            memlord_result r = memlord_tag_get(m->lord, devices[d], tag_names[tag], &stat);
            assert_true(r == MEMLORD_OK || r == MEMLORD_E_UNKNOWN);
            assert_int_equal(stat.allocated, m->tag_bytes[d][tag] + (tag ? m->tag_arena[d][tag]
                                                                         : untagged_arena(m, d)));
            assert_int_equal(stat.blocks, m->tag_blocks[d][tag]);
        }
}

typedef struct count {
    model *m;
    uint64_t n;
} count;

static void compare_block(const block *b, const memlord_block_info *info) {
    assert_int_equal(info->device.index, devices[b->device].index);
    assert_int_equal(info->bytes, b->bytes);
    assert_int_equal(info->refs, b->refs);
    assert_int_equal(info->born, b->born);
    assert_int_equal(!info->tag, !b->tag);
    if (b->tag) assert_string_equal(info->tag, tag_names[b->tag]);
    assert_int_equal(!info->meta.name, !b->name);
    if (b->name) assert_string_equal(info->meta.name, block_names[b->name]);
}

static int compare_one(void *user, const memlord_block_info *info) {
    count *c = (count *)user;
    int type = info->device.type == MEMLORD_DEVICE_CPU    ? 0
               : info->device.type == MEMLORD_DEVICE_CUDA ? 1
                                                          : 2;
    int key;
    for (key = 0; key < KEYS && key_of(key) != info->storage; key++) {}
    assert_true(key < KEYS);
    assert_true(c->m->blocks[type][key].live);
    compare_block(&c->m->blocks[type][key], info);
    c->n++;
    return 0;
}

static void compare_blocks(model *m) {
    count c;
    uint64_t live = 0, since = 0, mark = m->mark ? draw(m, m->mark + 2) : 0;
    int type, key;
    c.m = m;
    c.n = 0;
    assert_ok(memlord_blocks_each(m->lord, all(), 0, compare_one, &c));
    for (type = 0; type < TYPES; type++)
        for (key = 0; key < KEYS; key++) {
            const block *b = &m->blocks[type][key];
            live += b->live != 0;
            since += b->live && b->born >= mark;
        }
    assert_int_equal(c.n, live);
    assert_int_equal(memlord_leaks(m->lord, mark, NULL, NULL), since);
}

static void compare_find(model *m) {
    int device = (int)draw(m, DEVICES), key = (int)draw(m, KEYS);
    const block *b = &m->blocks[type_of[device]][key];
    memlord_block_info info;
    memlord_result r = memlord_block_find(m->lord, devices[device], key_of(key), &info);
    assert_int_equal(r, b->live ? MEMLORD_OK : MEMLORD_E_UNKNOWN);
    if (b->live) compare_block(b, &info);
}

/* -- the run -- */

typedef void (*operation)(model *m);

/* Once for each share of the drawing. */
static const operation operations[] = {
    do_alloc,         do_alloc,       do_alloc,  do_free,  do_free,   do_free,     do_track,
    do_track,         do_retain,      do_release, do_release, do_many, do_realloc, do_realloc,
    do_realloc_begin, do_realloc_end, do_move,   do_arena, do_tag,    do_retag,    do_describe,
    do_rare};

static void step(model *m) {
    operation chosen = operations[draw(m, sizeof operations / sizeof operations[0])];
    call_begins(m);
    chosen(m);
    call_ends(m);
    compare_books(m);
    compare_find(m);
    if (m->op % 16 == 0) compare_tags(m);
    if (m->op % 512 == 0) compare_blocks(m);
}

static void touch_every_device(model *m) {
    int d;
    for (d = 0; d < DEVICES; d++)
        assert_ok(memlord_arena_add(m->lord, devices[d], 0, NULL));
}

static model *running;

static void replay(memlord *lord, uint64_t seed) {
    model *m = running = (model *)calloc(1, sizeof *m);
    uint64_t ops = test_env("MEMLORD_TEST_OPS", 50000);
    assert_non_null(m);
    print_message("MEMLORD_TEST_SEED=%llu MEMLORD_TEST_OPS=%llu\n", (unsigned long long)seed,
                  (unsigned long long)ops);
    m->lord = lord;
    m->seed = seed;
    m->mark = memlord_mark(lord);
    touch_every_device(m);
    for (m->op = 1; m->op <= ops; m->op++) step(m);
    compare_tags(m);
    compare_blocks(m);
}

/* Says where a failed run stood. */
static int close_model(void **state) {
    uint64_t ops = test_env("MEMLORD_TEST_OPS", 50000);
    if (running && running->op <= ops)
        print_error("stood at operation %llu\n", (unsigned long long)running->op);
    free(running);
    running = NULL;
    return test_teardown(state);
}

static void a_known_run_matches_the_model(void **state) {
    replay(test_lord(state), test_env("MEMLORD_TEST_SEED", 1));
}

static void a_run_never_seen_before_matches_the_model(void **state) {
    uint64_t fresh = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
    replay(test_lord(state), test_env("MEMLORD_TEST_SEED", fresh));
}

/* A stack a device and a site, and a ledger that takes every alloc, or a sample. */
static size_t unwind_one(void *user, void **frames, size_t cap) {
    (void)cap;
    frames[0] = user;
    return 1;
}
static int setup_stacks(void **state, uint64_t bytes) {
    test_case *t = (test_case *)calloc(1, sizeof *t);
    memlord_desc desc;
    if (!t) return -1;
    desc = test_desc(&t->heap, MEMLORD_FLAG_SITES);
    desc.stack_depth = 4;
    desc.stack_bytes = bytes;
    desc.unwinder.fn = unwind_one;
    desc.unwinder.user = t;
    *state = t;
    return memlord_create(&desc, &t->lord) == MEMLORD_OK && t->lord ? 0 : -1;
}
static int setup_every_stack(void **state) { return setup_stacks(state, 1); }
static int setup_some_stacks(void **state) { return setup_stacks(state, 4096); }

static void a_run_matches_the_model_and_its_stacks(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token *token;
    memlord_stack_stat rows[256];
    size_t n;
    int d, i;
    replay(lord, test_env("MEMLORD_TEST_SEED", 2));
    for (i = 0; i < TOKENS; i++) {
        token = &running->tokens[i].token;
        if (running->tokens[i].used) assert_ok(memlord_free_end(lord, token, 0, NULL));
    }
    for (d = 0; d < DEVICES; d++) {
        memlord_stats s = stats_of(lord, devices[d]);
        uint64_t live = 0;
        n = memlord_stacks_top(lord, devices[d], MEMLORD_SITE_ORDER_LIVE_BYTES, rows, 256);
        assert_true(n < 256);
        while (n--) live += rows[n].live_bytes;
        assert_int_equal(live, s.allocated - running->books[d].arena);
    }
}

#define MODEL(name, open) cmocka_unit_test_setup_teardown(name, open, close_model)

int main(void) {
    const struct CMUnitTest tests[] = {
        MODEL(a_known_run_matches_the_model, test_setup),
        MODEL(a_run_never_seen_before_matches_the_model, test_setup_sites),
        MODEL(a_run_never_seen_before_matches_the_model, test_setup_exact),
        MODEL(a_run_matches_the_model_and_its_stacks, setup_every_stack),
        MODEL(a_run_never_seen_before_matches_the_model, setup_some_stacks),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
