/* Plays a script of operations on one ledger: reads one operation a line from standard input and
   makes the call it names, on the thread it names, with the clock at the time it names. It knows no
   expected value. All that a ledger asks of its host comes from the script: time, capacities,
   stacks, fences, collections. Prints the result of each call as a number on a line of its own; for
   a report also how many bytes the ledger's allocator had given out when the report began.

     THREAD TIME OPERATION ARGUMENT...

   Times are ns. Numbers are decimal, or hexadecimal after 0x. A device is TYPE.INDEX. A string is
   `=` and its bytes, each that is no letter and no digit as %XX; `-` is NULL. `@N` is the address N
   bytes into main. Sites, tickets,
   accounts, tokens, fences and planted scopes have numbers that the script gives them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "memlord.h"

#define MOST      256 /* of each kind of thing with a number */
#define ARGUMENTS 40
#define PRINTED   INT64_MIN /* a result that is printed already */
#define WALL_AT_0 UINT64_C(1800000000123456700) /* ns since 1970 when the clock is 0 */

static uint64_t now;           /* the time of the operation */
static uint64_t given;         /* bytes that the allocator has given out */
static memlord *lord;
static const char *word[ARGUMENTS]; /* of the operation: its name, then its arguments */
static size_t words;

/* -- in place of the system's: reports name the date and the process -- */

pid_t getpid(void) { return 4242; }
int uname(struct utsname *out) {
    strcpy(out->nodename, "node-1\"\\<\x07");
    return 0;
}
int clock_gettime(clockid_t clock, struct timespec *out) {
    const uint64_t ns = clock == CLOCK_REALTIME ? WALL_AT_0 + now : now;
    out->tv_sec = (time_t)(ns / 1000000000u);
    out->tv_nsec = (long)(ns % 1000000000u);
    return 0;
}

/* -- arguments -- */

static void die(const char *why) {
    fprintf(stderr, "play: %s: %s\n", why, words ? word[0] : "");
    exit(2);
}
static const char *argument(size_t i) {
    if (i >= words) die("an argument is missing");
    return word[i];
}
static uint64_t number(size_t i) {
    char *end;
    uint64_t value = strtoull(argument(i), &end, 0);
    if (*end || end == argument(i)) die("not a number");
    return value;
}
int main(void);
static uint64_t code(size_t i) {
    const char *text = argument(i);
    return *text == '@' ? (uint64_t)(uintptr_t)main + strtoull(text + 1, NULL, 0) : number(i);
}
static int64_t difference(size_t i) { return (int64_t)strtoll(argument(i), NULL, 0); }
static size_t slot(size_t i) {
    uint64_t n = number(i);
    if (n >= MOST) die("a number is too large");
    return (size_t)n;
}
static memlord_device device(size_t i) {
    int type, index;
    if (sscanf(argument(i), "%d.%d", &type, &index) != 2) die("not a device");
    return memlord_device_make(type, index);
}
/* Decodes a string in place, once: the text of a line is kept, as sites point to it. */
static const char *string(size_t i) {
    const char *from = argument(i);
    char *text, *to;
    unsigned byte;
    if (*from == '-') return NULL;
    if (*from != '=') die("not a string");
    text = to = (char *)malloc(strlen(from));
    if (!text) die("no memory");
    for (from++; *from; from++, to++) {
        if (*from != '%') {
            *to = *from;
        } else if (sscanf(from + 1, "%2x", &byte) == 1) {
            *to = (char)byte;
            from += 2;
        }
    }
    *to = 0;
    return text;
}

/* -- what a host brings -- */

static int refuses; /* 1: the allocator has no memory */
static void *own_alloc(void *user, size_t size) {
    void *memory = refuses ? NULL : malloc(size);
    (void)user;
    if (memory) given += size;
    return memory;
}
static void own_free(void *user, void *memory, size_t size) {
    (void)user;
    given -= size;
    free(memory);
}
static uint64_t own_clock(void *user) {
    (void)user;
    return now;
}

static memlord_capacity source[MEMLORD_DEVICE_TYPE_COUNT][4]; /* by type and index */
static int read_source(void *user, memlord_device d, memlord_capacity *out) {
    const memlord_capacity *from = &source[d.type][d.index & 3];
    (void)user;
    if (!from->total) return 1;
    out->total = from->total;
    out->used = from->used;
    out->process = from->process;
    out->context = from->context;
    memcpy(out->others, from->others, sizeof out->others);
    return 0;
}

static __thread void *frames[64]; /* of this thread's allocs, until the next operation `stack` */
static __thread size_t depth;
static size_t unwind(void *user, void **out, size_t cap) {
    size_t n = depth < cap ? depth : cap;
    (void)user;
    memcpy(out, frames, n * sizeof *out);
    return n;
}

static int fence_state[MOST]; /* what its `done` answers */
static int fence_done(void *user) { return *(int *)user; }
static memlord_fence fence(size_t i) { /* its number and its queue */
    memlord_fence f;
    memset(&f, 0, sizeof f);
    f.done = fence_done;
    f.user = &fence_state[slot(i)];
    f.queue = number(i + 1);
    return f;
}

static memlord_gc_result collected;
static memlord_gc_result collect(void *user, memlord *from, const memlord_gc_event *event) {
    (void)user;
    (void)from;
    (void)event;
    return collected;
}

static size_t tries; /* the next word of an alloc_retry that says what a try gives */
static int try_alloc(void *user, uint64_t bytes, uint64_t *storage) {
    const char *outcome = argument(tries++);
    (void)user;
    (void)bytes;
    if (*outcome == '+') return 1;
    if (*outcome == '-') return -1;
    *storage = strtoull(outcome, NULL, 0);
    return 0;
}
static void sleep_ms(void *user, uint32_t ms) {
    (void)user;
    now += (uint64_t)ms * 1000000u;
}

/* -- operations -- */

static const memlord_site *sites[MOST];
static memlord_site planted[MOST];
static memlord_scope_site places[MOST];
static memlord_ticket tickets[MOST];
static memlord_account accounts[MOST];
static memlord_scope_token tokens[MOST];
static memlord_realloc_token reallocs[MOST];

static const memlord_site *site(size_t i) {
    return *argument(i) == '-' ? NULL : sites[slot(i)];
}

static int64_t op_create(void) { /* flags, stack depth and bytes, events, batch, labels, proc root */
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.allocator.alloc = own_alloc;
    desc.allocator.free = own_free;
    desc.clock.fn = own_clock;
    desc.unwinder.fn = unwind;
    desc.flags = (uint32_t)number(1);
    desc.stack_depth = (uint32_t)number(2);
    desc.stack_bytes = number(3);
    desc.event_capacity = (size_t)number(4);
    desc.counter_batch = number(5);
    desc.labels = string(6);
    desc.proc_root = string(7);
    return (int)memlord_create(&desc, &lord);
}
static int64_t op_memory(void) { /* 0: from now on the ledger's allocator has none */
    refuses = !number(1);
    return 0;
}
static int64_t op_site(void) {
    memlord_site *s = &planted[slot(1)];
    s->file = string(2);
    s->function = string(3);
    s->line = (int)difference(4);
    sites[slot(1)] = s;
    return 0;
}
static int64_t op_site_at(void) {
    sites[slot(1)] = memlord_site_at(lord, (void *)(uintptr_t)code(2));
    return sites[slot(1)] == NULL;
}
static int64_t op_functions(void) { /* the address, then a function, a file, a line and 0 or 1 each */
    memlord_function all[ARGUMENTS / 4];
    const memlord_site *at = memlord_site_at(lord, (void *)(uintptr_t)code(1));
    size_t n = (words - 2) / 4, i;
    for (i = 0; i < n; i++) {
        all[i].at.function = string(2 + 4 * i);
        all[i].at.file = string(3 + 4 * i);
        all[i].at.line = (int)difference(4 + 4 * i);
        all[i].library = (int)number(5 + 4 * i);
    }
    return (int)memlord_site_functions_set(lord, at, all, n);
}
static int64_t op_place(void) {
    memlord_scope_site *p = &places[slot(1)];
    p->name = string(2);
    p->site = *site(3);
    return 0;
}
static int64_t op_stack(void) {
    for (depth = 0; depth + 1 < words; depth++)
        frames[depth] = (void *)(uintptr_t)code(depth + 1);
    return 0;
}

static int64_t op_alloc(void) {
    return (int)memlord_alloc(lord, device(1), number(2), number(3), site(4));
}
static int64_t op_free(void) { return (int)memlord_free(lord, device(1), number(2), site(3)); }
static int64_t op_realloc(void) {
    return (int)memlord_realloc(lord, device(1), number(2), number(3), number(4), site(5));
}
static int64_t op_realloc_begin(void) {
    return (int)memlord_realloc_begin(lord, device(1), number(2), &reallocs[slot(3)]);
}
static int64_t op_realloc_end(void) {
    return (int)memlord_realloc_end(lord, &reallocs[slot(1)], number(2), number(3), site(4));
}
static int64_t op_free_begin(void) {
    return (int)memlord_free_begin(lord, device(1), number(2), &reallocs[slot(3)], site(4));
}
static int64_t op_free_end(void) {
    return (int)memlord_free_end(lord, &reallocs[slot(1)], (int)number(2), site(3));
}
static int64_t op_many(void) { /* which call, its site, then a device, a storage and bytes each */
    memlord_block blocks[ARGUMENTS / 3];
    size_t n = (words - 3) / 3, i;
    for (i = 0; i < n; i++) {
        blocks[i].device = device(3 + 3 * i);
        blocks[i].storage = number(4 + 3 * i);
        blocks[i].bytes = number(5 + 3 * i);
    }
    if (!strcmp(word[1], "alloc")) return (int)memlord_alloc_n(lord, blocks, n, site(2));
    if (!strcmp(word[1], "free")) return (int)memlord_free_n(lord, blocks, n, site(2));
    if (!strcmp(word[1], "track")) return (int)memlord_track_n(lord, blocks, n, site(2));
    if (!strcmp(word[1], "release")) return (int)memlord_release_n(lord, blocks, n, site(2));
    die("no such call");
    return 0;
}
static int64_t op_move(void) { /* from, to, bytes, site, then a fence or nothing */
    memlord_fence f;
    if (words > 7) f = fence(7);
    return (int)memlord_move(lord, device(1), number(2), device(3), number(4), number(5),
                             words > 7 ? &f : NULL, site(6));
}
static int64_t op_copy(void) { return (int)memlord_copy(lord, device(1), device(2), number(3)); }
static int64_t op_track(void) {
    return (int)memlord_track(lord, device(1), number(2), number(3), site(4));
}
static int64_t op_retain(void) { return (int)memlord_retain(lord, device(1), number(2), site(3)); }
static int64_t op_release(void) { return (int)memlord_release(lord, device(1), number(2), site(3)); }
static int64_t op_arena_add(void) { return (int)memlord_arena_add(lord, device(1), number(2), site(3)); }
static int64_t op_arena_sub(void) { return (int)memlord_arena_sub(lord, device(1), number(2), site(3)); }

static int64_t op_fence_set(void) {
    fence_state[slot(1)] = (int)difference(2);
    return 0;
}
static int64_t op_free_deferred(void) {
    return (int)memlord_free_deferred(lord, device(1), number(2), fence(4), site(3));
}
static int64_t op_free_done(void) { return (int)memlord_free_done(lord, device(1), number(2)); }
static int64_t op_block_use(void) {
    return (int)memlord_block_use(lord, device(1), number(2), fence(3));
}
static int64_t op_retire(void) { return (int64_t)memlord_retire(lord, device(1)); }

static int64_t op_sites_enable(void) { return (int)memlord_sites_enable(lord, (int)number(1)); }
static int64_t op_reset(void) {
    memlord_reset(lord);
    return 0;
}
static int64_t op_peak_reset(void) {
    memlord_peak_reset(lord, device(1));
    return 0;
}

static memlord_meta meta(size_t i) { /* name, dtype, tag, flags, shape... */
    memlord_meta m;
    size_t k;
    memset(&m, 0, sizeof m);
    m.name = string(i);
    m.dtype = string(i + 1);
    m.tag = string(i + 2);
    m.flags = (uint32_t)number(i + 3);
    for (k = i + 4; k < words; k++) m.shape[m.rank++] = difference(k);
    return m;
}
static int64_t op_describe(void) {
    memlord_meta m = meta(3);
    return (int)memlord_block_describe(lord, device(1), number(2), &m);
}
static int64_t op_retag(void) {
    return (int)memlord_block_retag(lord, device(1), number(2), string(3));
}
static int64_t op_part_add(void) {
    memlord_meta m = meta(5);
    return (int)memlord_part_add(lord, device(1), number(2), number(3), number(4), &m);
}
static int64_t op_part_remove(void) {
    return (int)memlord_part_remove(lord, device(1), number(2), number(3));
}
static int64_t op_mark(void) { return (int64_t)memlord_mark(lord); }

static int64_t op_tag_begin(void) { return (int)memlord_tag_begin(lord, string(1)); }
static int64_t op_tag_end(void) { return (int)memlord_tag_end(lord); }
static int64_t op_tag_default(void) { return (int)memlord_tag_default_set(lord, string(1)); }
static int64_t op_stream(void) { return (int64_t)memlord_stream_set(lord, number(1)); }
static int64_t op_expect(void) {
    return (int)memlord_expect(lord, device(1), string(2), number(3));
}

static int64_t op_label(void) { return (int)memlord_device_label_set(lord, device(1), string(2)); }
static int64_t op_share(void) { return (int)memlord_device_share(lord, device(1), device(2)); }
static int64_t op_capacity(void) { /* device, total, used, process, context, then a pid and bytes each */
    memlord_device d = device(1);
    memlord_capacity *c = &source[d.type][d.index & 3];
    size_t i;
    memset(c, 0, sizeof *c);
    c->total = number(2);
    c->used = number(3);
    c->process = number(4);
    c->context = number(5);
    for (i = 0; 6 + 2 * i < words; i++) {
        c->others[i].pid = number(6 + 2 * i);
        c->others[i].bytes = number(7 + 2 * i);
    }
    return 0;
}
static int64_t op_source(void) {
    return (int)memlord_capacity_source_set(lord, (int)number(1), read_source, NULL);
}
static int64_t op_sample(void) { return (int)memlord_capacity_sample(lord, device(1)); }
static int64_t op_limit(void) { return (int)memlord_limit_set(lord, device(1), number(2)); }
static int64_t op_limit_fraction(void) {
    return (int)memlord_limit_set_fraction(lord, device(1), strtod(argument(2), NULL));
}
static int64_t op_reserve(void) {
    return (int)memlord_reserve(lord, device(1), number(2), &tickets[slot(3)]);
}
static int64_t op_commit(void) { return (int)memlord_reserve_commit(lord, tickets[slot(1)]); }
static int64_t op_adopt_ticket(void) { return (int)memlord_reserve_adopt(lord, tickets[slot(1)]); }
/* Device, storage, bytes, site, then tag, ticket, account and stream: `-` is the thread's. */
static int64_t op_alloc_with(void) {
    memlord_alloc_opts opts;
    memset(&opts, 0, sizeof opts);
    opts.site = site(4);
    opts.tag = string(5);
    if (*argument(6) != '-') opts.ticket = tickets[slot(6)];
    if (*argument(7) != '-')
        opts.account = number(7) == MEMLORD_NONE ? MEMLORD_NONE : accounts[slot(7)];
    if (*argument(8) != '-') opts.stream = number(8);
    return (int)memlord_alloc_with(lord, device(1), number(2), number(3), &opts);
}
static int64_t op_account_open(void) {
    return (int)memlord_account_open(lord, device(1), string(2), number(3), &accounts[slot(4)]);
}
static int64_t op_account_charge(void) {
    return (int)memlord_account_charge(lord, accounts[slot(1)], difference(2));
}
static int64_t op_account_use(void) {
    return (int)memlord_account_use(lord, *argument(1) == '-' ? 0 : accounts[slot(1)]);
}
static int64_t op_account_close(void) { return (int)memlord_account_close(lord, accounts[slot(1)]); }

static int64_t op_gc_answer(void) { /* what collections answer from now on */
    collected.ran = (int)number(1);
    collected.family = (int)number(2);
    collected.reclaimed = number(3);
    return 0;
}
static int64_t op_gc_callback(void) {
    return (int)memlord_gc_callback_add(lord, device(1), (uint32_t)number(2), collect, NULL);
}
static int64_t op_gc_run(void) {
    return (int)memlord_gc_run(lord, device(1), (int)number(2), 0, NULL);
}
static int64_t op_gc_poll(void) { return (int)memlord_gc_poll(lord, device(1)); }
static int64_t op_strategy(void) { /* device, then lo, hi, metric, bytes, percent, combine each */
    memlord_band bands[6];
    size_t n = (words - 2) / 6, i;
    for (i = 0; i < n; i++) {
        bands[i].lo = strtod(argument(2 + 6 * i), NULL);
        bands[i].hi = strtod(argument(3 + 6 * i), NULL);
        bands[i].metric = (memlord_metric)number(4 + 6 * i);
        bands[i].bytes = number(5 + 6 * i);
        bands[i].percent = strtod(argument(6 + 6 * i), NULL);
        bands[i].combine = (memlord_combine)number(7 + 6 * i);
    }
    return (int)memlord_strategy_set(lord, device(1), bands, n);
}
static int64_t op_alloc_retry(void) { /* device, bytes, site, retries, then what each try gives */
    memlord_retry policy;
    memlord_alloc_opts opts;
    uint64_t storage;
    memset(&opts, 0, sizeof opts);
    opts.site = site(3);
    memset(&policy, 0, sizeof policy);
    policy.max_retries = (uint32_t)number(4);
    policy.initial_ms = 50;
    policy.max_ms = 100;
    policy.multiplier = 1.5;
    policy.sleep_ms = sleep_ms;
    tries = 5;
    return (int)memlord_alloc_retry(lord, device(1), number(2), try_alloc, NULL, &policy, &storage,
                                    &opts);
}
static int64_t op_alloc_failed(void) {
    return (int)memlord_alloc_failed(lord, device(1), number(2), site(3));
}
static int64_t op_pool_set(void) {
    return (int)memlord_pool_set(lord, device(1), number(2), number(3));
}
static int64_t op_pool_add(void) { return (int)memlord_pool_add(lord, device(1), difference(2)); }
static int64_t op_pool_served(void) {
    return (int)memlord_pool_served(lord, device(1), number(2), number(3));
}

static int64_t op_scope_begin(void) { return (int)memlord_scope_begin(lord, string(1)); }
static int64_t op_scope_enter(void) { return (int)memlord_scope_enter(lord, &places[slot(1)]); }
static int64_t op_scope_end(void) { return (int)memlord_scope_end(lord); }
static int64_t op_scope_shapes(void) { return (int)memlord_scope_shapes_set(lord, string(1)); }
static int64_t op_scope_export(void) { return (int)memlord_scope_export(lord, &tokens[slot(1)]); }
static int64_t op_scope_adopt(void) { return (int)memlord_scope_adopt(lord, &tokens[slot(1)]); }
static int64_t op_scope_return(void) { return (int)memlord_scope_return(lord, &tokens[slot(1)]); }
static int64_t op_device_time(void) {
    return (int)memlord_scope_device_time(lord, number(1), number(2));
}
static int64_t op_checkpoint(void) { return (int)memlord_checkpoint(lord, string(1)); }
static int64_t op_snapshots_start(void) {
    return (int)memlord_snapshots_start(lord, (uint32_t)number(1));
}
static int64_t op_snapshots_stop(void) { return (int)memlord_snapshots_stop(lord); }
static int64_t op_events_start(void) { return (int)memlord_events_start(lord, (size_t)number(1)); }
static int64_t op_events_stop(void) {
    memlord_events_stop(lord);
    return 0;
}
static int64_t op_labels(void) { return (int)memlord_labels_set(lord, string(1)); }

static uint64_t own; /* bytes given out when the report began; UINT64_MAX: it has not */
static int put(void *user, const void *data, size_t size) {
    if (own == UINT64_MAX) own = given;
    return fwrite(data, 1, size, (FILE *)user) != size;
}
static int64_t op_write(void) { /* the format, the file */
    FILE *file = fopen(string(2), "wb");
    int result;
    if (!file) die("cannot write");
    own = UINT64_MAX;
    result = (int)memlord_write(lord, (memlord_format)number(1), put, file);
    if (fclose(file)) die("cannot write");
    printf("%d %llu\n", result, (unsigned long long)own);
    return PRINTED;
}

#define OPERATIONS(X)                                                                          \
    X(create) X(memory) X(site) X(site_at) X(functions) X(place) X(stack) X(alloc) X(free) X(realloc)                  \
    X(realloc_begin) X(realloc_end) X(free_begin) X(free_end) X(many) X(move) X(copy) X(track)  \
    X(retain) X(release) X(arena_add) X(arena_sub) X(fence_set) X(free_deferred) X(free_done)   \
    X(block_use) X(retire) X(sites_enable) X(reset) X(peak_reset) X(describe) X(retag)          \
    X(part_add) X(part_remove) X(mark) X(tag_begin) X(tag_end) X(tag_default) X(stream)         \
    X(expect) X(label) X(share) X(capacity) X(source) X(sample) X(limit) X(limit_fraction)      \
    X(reserve) X(commit) X(adopt_ticket) X(alloc_with) X(account_open) X(account_charge)        \
    X(account_use) X(account_close) X(gc_answer) X(gc_callback) X(gc_run) X(gc_poll)            \
    X(strategy) X(alloc_retry) X(alloc_failed) X(pool_set) X(pool_add) X(pool_served)           \
    X(scope_begin) X(scope_enter) X(scope_end) X(scope_shapes) X(scope_export) X(scope_adopt)   \
    X(scope_return) X(device_time) X(checkpoint) X(snapshots_start) X(snapshots_stop)           \
    X(events_start) X(events_stop) X(labels) X(write)

static const struct {
    const char *name;
    int64_t (*run)(void);
} operations[] = {
#define X(name) {#name, op_##name},
    OPERATIONS(X)
#undef X
};

/* Makes the call of the operation in `word`, and prints its result. */
static void play(void) {
    size_t i;
    for (i = 0; i < sizeof operations / sizeof *operations; i++) {
        int64_t result;
        if (strcmp(operations[i].name, word[0]) != 0) continue;
        result = operations[i].run();
        if (result != PRINTED) printf("%lld\n", (long long)result);
        return;
    }
    die("no such operation");
}

/* -- threads: one operation at a time, whichever thread makes it -- */

static sem_t called[MOST], done;
static pthread_t threads[MOST];
static int runs[MOST], ends;

static void *work(void *user) {
    sem_t *mine = (sem_t *)user;
    for (;;) {
        while (sem_wait(mine)) {}
        if (ends) return NULL;
        play();
        sem_post(&done);
    }
}
static void play_on(size_t thread) {
    if (!thread) {
        play();
        return;
    }
    if (thread >= MOST) die("too many threads");
    if (!runs[thread]) {
        if (sem_init(&called[thread], 0, 0) ||
            pthread_create(&threads[thread], NULL, work, &called[thread]))
            die("no thread");
        runs[thread] = 1;
    }
    sem_post(&called[thread]);
    while (sem_wait(&done)) {}
}
static void threads_end(void) {
    size_t i;
    ends = 1;
    for (i = 1; i < MOST; i++) {
        if (!runs[i]) continue;
        sem_post(&called[i]);
        pthread_join(threads[i], NULL);
    }
}

/* Splits a line into the thread, the time and the words of the operation. */
static size_t split(char *line) {
    char *rest = NULL, *at = strtok_r(line, " \n", &rest);
    size_t thread = at ? (size_t)strtoull(at, NULL, 10) : 0;
    at = strtok_r(NULL, " \n", &rest);
    if (at) now = strtoull(at, NULL, 10);
    for (words = 0; (at = strtok_r(NULL, " \n", &rest)) != NULL; words++) {
        if (words == ARGUMENTS) die("too many arguments");
        word[words] = at;
    }
    return thread;
}

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    if (sem_init(&done, 0, 0)) return 2;
    while (getline(&line, &cap, stdin) > 0) {
        size_t thread = split(line);
        if (words) play_on(thread);
    }
    threads_end();
    memlord_destroy(lord);
    if (given) die("the ledger kept memory");
    free(line);
    return 0;
}
