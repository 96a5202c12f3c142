/* tests/fuzz/calls.c: a string of bytes is a program of calls. Whatever the order, the ledger agrees
   with itself, its books balance, its reports can be written, and it gives its memory back. */
#include "tests/support.h"

enum { KEYS = 24, DEVICES = 6, TICKETS = 4, FENCES = 64 };

typedef struct program {
    const uint8_t *at, *end;
    memlord *lord;
    memlord_ticket tickets[TICKETS];
    memlord_account accounts[TICKETS];
    memlord_realloc_token token;
    int answers[FENCES]; /* of fences, which the program changes */
    uint64_t fences;
    uint64_t at_reset; /* live bytes at the last reset, on all devices */
} program;

static unsigned next(program *p) { return p->at < p->end ? *p->at++ : 0; }

static memlord_device device_of(program *p) {
    static const int types[DEVICES] = {MEMLORD_DEVICE_CPU,  MEMLORD_DEVICE_PINNED,
                                       MEMLORD_DEVICE_CUDA, MEMLORD_DEVICE_CUDA,
                                       MEMLORD_DEVICE_MAPPED, MEMLORD_DEVICE_OTHER};
    unsigned i = next(p) % DEVICES;
    return memlord_device_make(types[i], i == 3 ? 1 : 0);
}

/* A key of its own, no key at all, or one of the two that are refused. */
static uint64_t key_of(program *p) {
    unsigned i = next(p) % (KEYS + 2);
    return i < KEYS ? 0x1000 + 64 * (uint64_t)i : i == KEYS ? 0 : UINT64_MAX;
}

/* Small, large, too large. */
static uint64_t bytes_of(program *p) {
    unsigned shift = next(p) % 52;
    return ((uint64_t)next(p) << shift >> 4) + (shift & 1);
}

static const memlord_site *site_of(program *p) {
    static const memlord_site sites[4] = {
        {"a.c", "one", 1}, {"a.c", "two", 2}, {"b.c", "", 3}, {NULL, NULL, 0}};
    unsigned i = next(p) % 5;
    return i < 4 ? &sites[i] : NULL;
}

static int fence_done(void *user) { return *(int *)user; }
static void drop_into(void *user) { (void)user; }
static memlord_fence fence_of(program *p) {
    memlord_fence fence = {fence_done, NULL, 0, drop_into};
    fence.user = &p->answers[p->fences++ % FENCES];
    fence.queue = next(p) % 3;
    return fence;
}

static const char *name_of(program *p) {
    static const char *const names[4] = {"weights", "kv", "\"\n\xff", ""};
    return names[next(p) % 4];
}
static memlord_alloc_opts opts_of(program *p) {
    memlord_alloc_opts opts;
    const unsigned which = next(p);
    memset(&opts, 0, sizeof opts);
    opts.site = site_of(p);
    if (which & 1) opts.tag = which & 2 ? "" : name_of(p);
    if (which & 4) opts.ticket = p->tickets[next(p) % TICKETS];
    if (which & 8) opts.account = which & 16 ? MEMLORD_NONE : p->accounts[next(p) % TICKETS];
    if (which & 32) opts.stream = which & 64 ? MEMLORD_NONE : next(p);
    return opts;
}

static int attempt(void *user, uint64_t bytes, uint64_t *storage) {
    program *p = (program *)user;
    unsigned n = next(p);
    (void)bytes;
    *storage = 0x1000 + 64 * (uint64_t)(n % KEYS);
    return n & 64 ? 0 : 1;
}
static void no_sleep(void *user, uint32_t ms) {
    (void)user;
    (void)ms;
}

static int no_text(void *user, const void *data, size_t size) {
    (void)data;
    *(size_t *)user += size;
    return 0;
}

static void track(program *p, unsigned call) {
    memlord_device device = device_of(p);
    uint64_t key = key_of(p);
    switch (call) {
    case 0: memlord_alloc(p->lord, device, key, bytes_of(p), site_of(p)); break;
    case 1: memlord_free(p->lord, device, key, site_of(p)); break;
    case 2: memlord_realloc(p->lord, device, key, key_of(p), bytes_of(p), site_of(p)); break;
    case 3: memlord_track(p->lord, device, key, bytes_of(p), site_of(p)); break;
    case 4: memlord_retain(p->lord, device, key, site_of(p)); break;
    case 5: memlord_release(p->lord, device, key, site_of(p)); break;
    case 6: memlord_free_deferred(p->lord, device, key, fence_of(p), site_of(p)); break;
    case 7: memlord_block_use(p->lord, device, key, fence_of(p)); break;
    case 8: memlord_free_done(p->lord, device, key); break;
    case 9: memlord_block_retag(p->lord, device, key, name_of(p)); break;
    case 10: memlord_part_add(p->lord, device, key, next(p), next(p), NULL); break;
    case 11: memlord_part_remove(p->lord, device, key, next(p)); break;
    case 12: {
        memlord_fence fence = fence_of(p);
        memlord_device to = device_of(p);
        uint64_t at = key_of(p);
        memlord_move(p->lord, device, key, to, at, bytes_of(p), next(p) & 1 ? &fence : NULL,
                     site_of(p));
        break;
    }
    case 13: memlord_arena_add(p->lord, device, bytes_of(p), site_of(p)); break;
    case 14: memlord_arena_sub(p->lord, device, bytes_of(p), site_of(p)); break;
    default: {
        memlord_alloc_opts opts = opts_of(p);
        memlord_alloc_with(p->lord, device, key, bytes_of(p), &opts);
    }
    }
}

static void hold(program *p, unsigned call) {
    memlord_device device = device_of(p);
    unsigned slot = next(p) % TICKETS;
    memlord_retry policy = {2, 1, 1, 1.0, no_sleep, NULL};
    memlord_alloc_opts opts;
    uint64_t storage;
    switch (call) {
    case 0: memlord_limit_set(p->lord, device, bytes_of(p)); break;
    case 1:
        if (!p->tickets[slot])
            memlord_reserve(p->lord, device, bytes_of(p), &p->tickets[slot]);
        break;
    case 2:
        memlord_reserve_commit(p->lord, p->tickets[slot]);
        p->tickets[slot] = 0;
        break;
    case 3:
        memlord_reserve_commit(p->lord, p->tickets[slot]);
        p->tickets[slot] = 0;
        break;
    case 4:
        if (!p->accounts[slot])
            memlord_account_open(p->lord, device, name_of(p), bytes_of(p), &p->accounts[slot]);
        break;
    case 5: memlord_account_charge(p->lord, p->accounts[slot], (int64_t)bytes_of(p)); break;
    case 6: memlord_account_charge(p->lord, p->accounts[slot], -(int64_t)bytes_of(p)); break;
    case 7: memlord_account_use(p->lord, p->accounts[slot]); break;
    case 8:
        memlord_account_close(p->lord, p->accounts[slot]);
        p->accounts[slot] = 0;
        break;
    default:
        opts = opts_of(p);
        memlord_alloc_retry(p->lord, device, bytes_of(p), attempt, p, &policy, &storage, &opts);
    }
}

static void look(program *p, unsigned call) {
    memlord_device device = next(p) & 1 ? all() : device_of(p);
    char text[300];
    size_t size = 0;
    switch (call) {
    case 0: memlord_tag_begin(p->lord, name_of(p)); break;
    case 1: memlord_tag_end(p->lord); break;
    case 2: memlord_scope_begin(p->lord, name_of(p)); break;
    case 3: memlord_scope_end(p->lord); break;
    case 4: p->answers[next(p) % FENCES] = (int)(next(p) % 3) - 1; break;
    case 5: memlord_retire(p->lord, device); break;
    case 6: memlord_mark(p->lord); break;
    case 7: memlord_peak_reset(p->lord, device); break;
    case 8:
        memlord_reset(p->lord);
        p->at_reset = memlord_allocated(p->lord, all());
        break;
    case 9: memlord_summary(p->lord, text, next(p)); break;
    case 10: memlord_explain(p->lord, device, bytes_of(p), text, next(p)); break;
    case 11:
        (void)memlord_write(p->lord, (memlord_format)(next(p) % MEMLORD_FORMAT_COUNT), no_text, &size);
        break;
    case 12: memlord_sites_enable(p->lord, (int)(next(p) & 1)); break;
    case 13: memlord_stream_set(p->lord, next(p) % 3); break;
    case 14: memlord_gc_poll(p->lord, device); break;
    default: assert_ok(memlord_verify(p->lord));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint64_t now = 1000000000u;
    static const uint32_t choices[4] = {0, MEMLORD_FLAG_SITES, MEMLORD_FLAG_EXACT, MEMLORD_FLAG_DEFER};
    test_heap heap;
    memlord_desc desc;
    memlord_stats stats;
    program p;
    memset(&heap, 0, sizeof heap);
    memset(&p, 0, sizeof p);
    p.at = data;
    p.end = data + size;
    desc = test_desc(&heap, choices[next(&p) % 4] | MEMLORD_FLAG_NO_THREADS);
    desc.clock.fn = test_now;
    desc.clock.user = &now;
    heap.fail_at = next(&p); /* for half of all programs */
    heap.fail_at = heap.fail_at & 128 ? 0 : heap.fail_at + 4 * next(&p);
    if (memlord_create(&desc, &p.lord) != MEMLORD_OK) return 0;
    while (p.at < p.end) {
        unsigned call = next(&p);
        if (call < 160)
            track(&p, call % 16);
        else if (call < 208)
            hold(&p, call % 10);
        else
            look(&p, call % 16);
        now += 1000;
    }
    assert_ok(memlord_verify(p.lord));
    stats = stats_of(p.lord, all());
    assert_int_equal(p.at_reset + stats.total_allocated - stats.total_freed, stats.allocated);
    assert_true(stats.peak + stats.peak_error >= stats.allocated);
    memlord_destroy(p.lord);
    assert_int_equal(heap.blocks, 0);
    assert_int_equal(heap.bytes, 0);
    assert_int_equal(heap.bad_frees, 0);
    return 0;
}
