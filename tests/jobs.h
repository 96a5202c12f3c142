/* Jobs that suspend and go on on whichever of two threads, each in a context of its own, against a
   model: tags, scopes, accounts, tickets. For suites in C and C++. */
#ifndef MEMLORD_TESTS_JOBS_H
#define MEMLORD_TESTS_JOBS_H
#include "support.h"

#include <sched.h>

static memlord_scope_stat scope_of(memlord *lord, const char *path) {
    memlord_scope_stat s;
    memset(&s, 0xee, sizeof s);
    assert_ok(memlord_scope_get(lord, path, &s));
    return s;
}
static uint64_t tagged(memlord *lord, const char *tag) {
    memlord_tag_stat s;
    memset(&s, 0, sizeof s);
    (void)memlord_tag_get(lord, all(), tag, &s);
    return s.allocated;
}
static int count_misplaced(void *user, const memlord_anomaly *a) {
    if (a->kind == MEMLORD_ANOMALY_MISPLACED_END) *(uint64_t *)user += a->count;
    return 0;
}
static uint64_t misplaced(memlord *lord) {
    uint64_t n = 0;
    memlord_anomalies_each(lord, count_misplaced, &n);
    return n;
}

#define JOBS 8
#define STEPS 400
#define NAMES 3
#define BLOCKS 24

typedef struct tally { /* of a scope */
    int64_t count, bytes, blocks, min, max, peak;
} tally;
typedef struct expected { /* what one job did, or all */
    int64_t tag[NAMES + 1], account[2], reserved;
    tally scope[NAMES][NAMES + 1]; /* by outer name and inner name; [NAMES]: the outer itself */
} expected;
typedef struct level { /* a scope that is open in a job */
    int name;
    int64_t bytes, high, blocks;
} level;
typedef struct job {
    memlord *lord;
    memlord_context context;
    uint64_t random;
    int number, tags[8], tag_depth, depth, account, bad, done;
    level scope[2];
    memlord_account accounts[2];
    memlord_ticket ticket;
    int64_t ticket_left;
    struct {
        uint64_t bytes;
        int tag, account;
    } block[BLOCKS];
    expected e;
    int step;     /* its next one */
    void *resume; /* what the suite resumes it by */
} job;

static const char *const tag_names[NAMES] = {"red", "green", "blue"};
static const char *const scope_names[NAMES] = {"load", "run", "save"};

static void count_bytes(job *j, int64_t bytes, int blocks) {
    int i;
    for (i = 0; i < j->depth; i++) {
        level *l = &j->scope[i];
        l->bytes += bytes;
        l->blocks += blocks;
        if (l->bytes > l->high) l->high = l->bytes;
    }
}
static void end_scope(job *j) {
    const level *l = &j->scope[--j->depth];
    tally *t = &j->e.scope[j->scope[0].name][j->depth ? l->name : NAMES];
    if (!t->count || l->bytes < t->min) t->min = l->bytes;
    if (!t->count || l->bytes > t->max) t->max = l->bytes;
    if (l->high > t->peak) t->peak = l->high;
    t->count++;
    t->bytes += l->bytes;
    t->blocks += l->blocks;
    j->bad |= memlord_scope_end(j->lord) != MEMLORD_OK;
}
static void job_block(job *j, int i) {
    const uint64_t key = 0x100000 * (uint64_t)(j->number + 1) + 64 * (uint64_t)i;
    if (j->block[i].bytes) {
        count_bytes(j, -(int64_t)j->block[i].bytes, -1);
        j->e.tag[j->block[i].tag] -= (int64_t)j->block[i].bytes;
        if (j->block[i].account >= 0)
            j->e.account[j->block[i].account] -= (int64_t)j->block[i].bytes;
        j->block[i].bytes = 0;
        j->bad |= memlord_free(j->lord, cuda(0), key, NULL) != MEMLORD_OK;
        return;
    }
    j->block[i].bytes = 1 + test_random(&j->random) % 9000;
    j->block[i].tag = j->tag_depth ? j->tags[j->tag_depth - 1] : NAMES;
    j->block[i].account = j->account;
    count_bytes(j, (int64_t)j->block[i].bytes, 1);
    j->e.tag[j->block[i].tag] += (int64_t)j->block[i].bytes;
    if (j->account >= 0) j->e.account[j->account] += (int64_t)j->block[i].bytes;
    j->ticket_left -= (int64_t)j->block[i].bytes;
    if (j->ticket_left < 0) j->ticket_left = 0;
    j->bad |= memlord_alloc(j->lord, cuda(0), key, j->block[i].bytes, NULL) != MEMLORD_OK;
}
static void job_ticket(job *j) {
    if (j->ticket) j->bad |= memlord_reserve_commit(j->lord, j->ticket) != MEMLORD_OK;
    j->ticket_left = (int64_t)(test_random(&j->random) % 20000);
    j->bad |= memlord_reserve(j->lord, cuda(0), (uint64_t)j->ticket_left, &j->ticket) != MEMLORD_OK;
}
/* One random step of a job, on whichever thread. */
static void job_step(job *j) {
    const int name = (int)(test_random(&j->random) % NAMES);
    switch (test_random(&j->random) % 8) {
    case 0:
        if (j->tag_depth == 8) break;
        j->tags[j->tag_depth++] = name;
        j->bad |= memlord_tag_begin(j->lord, tag_names[name]) != MEMLORD_OK;
        break;
    case 1:
        if (!j->tag_depth) break;
        j->tag_depth--;
        j->bad |= memlord_tag_end(j->lord) != MEMLORD_OK;
        break;
    case 2:
        if (j->depth == 2) {
            end_scope(j);
        } else {
            memset(&j->scope[j->depth], 0, sizeof *j->scope);
            j->scope[j->depth++].name = name;
            j->bad |= memlord_scope_begin(j->lord, scope_names[name]) != MEMLORD_OK;
        }
        break;
    case 3:
        if (j->depth) end_scope(j);
        break;
    case 4:
        j->account = name == 2 ? -1 : name;
        j->bad |= memlord_account_use(j->lord, j->account < 0 ? 0 : j->accounts[name]) != MEMLORD_OK;
        break;
    case 5:
        job_ticket(j);
        break;
    default:
        job_block(j, (int)(test_random(&j->random) % BLOCKS));
        break;
    }
}
static void job_end(job *j) {
    int i;
    while (j->depth) end_scope(j);
    for (i = 0; i < BLOCKS; i += 2)
        if (j->block[i].bytes) job_block(j, i);
    j->e.reserved = j->ticket ? j->ticket_left : 0;
    j->done = 1;
}

typedef struct pool { /* jobs that wait for a thread */
    job *jobs;
    pthread_mutex_t lock;
    uint64_t random;
    int free[JOBS]; /* 1: nobody runs it */
    int left;
    void (*resume)(job *);
    int bad;
} pool;

static inline void *pool_run(void *user) {
    pool *p = (pool *)user;
    for (;;) {
        job *j = NULL;
        int i, left;
        pthread_mutex_lock(&p->lock);
        left = p->left;
        i = (int)(test_random(&p->random) % JOBS);
        if (left && p->free[i] && !p->jobs[i].done) j = &p->jobs[i];
        if (j) p->free[i] = 0;
        pthread_mutex_unlock(&p->lock);
        if (!left) return NULL;
        if (!j) {
            sched_yield();
            continue;
        }
        p->resume(j);
        pthread_mutex_lock(&p->lock);
        p->free[i] = 1;
        p->left -= j->done;
        pthread_mutex_unlock(&p->lock);
    }
}

static void assert_tally(memlord *lord, const char *path, const tally *t) {
    memlord_scope_stat s;
    if (!t->count) return;
    s = scope_of(lord, path);
    assert_int_equal(s.count, t->count);
    assert_int_equal(s.running, 0);
    assert_int_equal(s.bytes.total, t->bytes);
    assert_int_equal(s.bytes.min, t->min);
    assert_int_equal(s.bytes.max, t->max);
    assert_int_equal(s.blocks.total, t->blocks);
    assert_int_equal(s.peak, t->peak);
}
static void assert_expected(memlord *lord, const job *jobs) {
    expected sum;
    memlord_account_stat charged;
    char path[32];
    int i, k, m;
    memset(&sum, 0, sizeof sum);
    for (i = 0; i < JOBS; i++) {
        const expected *e = &jobs[i].e;
        assert_int_equal(jobs[i].bad, 0);
        for (k = 0; k <= NAMES; k++) sum.tag[k] += e->tag[k];
        for (k = 0; k < 2; k++) sum.account[k] += e->account[k];
        sum.reserved += e->reserved;
        for (k = 0; k < NAMES; k++)
            for (m = 0; m <= NAMES; m++) {
                const tally *from = &e->scope[k][m];
                tally *to = &sum.scope[k][m];
                if (!from->count) continue;
                if (!to->count || from->min < to->min) to->min = from->min;
                if (!to->count || from->max > to->max) to->max = from->max;
                if (from->peak > to->peak) to->peak = from->peak;
                to->count += from->count;
                to->bytes += from->bytes;
                to->blocks += from->blocks;
            }
    }
    for (k = 0; k < NAMES; k++) assert_int_equal(tagged(lord, tag_names[k]), sum.tag[k]);
    assert_int_equal(tagged(lord, NULL), sum.tag[NAMES]);
    assert_int_equal(stats_of(lord, cuda(0)).held, sum.reserved);
    for (k = 0; k < 2; k++) {
        assert_ok(memlord_account_get(lord, jobs[0].accounts[k], &charged));
        assert_int_equal(charged.bytes, sum.account[k]);
    }
    for (k = 0; k < NAMES; k++) {
        assert_tally(lord, scope_names[k], &sum.scope[k][NAMES]);
        for (m = 0; m < NAMES; m++) {
            (void)snprintf(path, sizeof path, "%s/%s", scope_names[k], scope_names[m]);
            assert_tally(lord, path, &sum.scope[k][m]);
        }
    }
    assert_int_equal(misplaced(lord), 0);
}

/* Runs all jobs on two threads, and compares. */
static void run_jobs(memlord *lord, job *jobs, void (*resume)(job *)) {
    const uint64_t seed = test_env("MEMLORD_TEST_SEED", (uint64_t)time(NULL));
    pthread_t thread;
    pool p;
    int i;
    print_message("MEMLORD_TEST_SEED=%llu\n", (unsigned long long)seed);
    memset(&p, 0, sizeof p);
    pthread_mutex_init(&p.lock, NULL);
    assert_ok(memlord_limit_set(lord, cuda(0), (uint64_t)1 << 40));
    for (i = 0; i < JOBS; i++) {
        jobs[i].lord = lord;
        jobs[i].number = i;
        jobs[i].account = -1;
        jobs[i].random = seed + (uint64_t)i;
        jobs[i].accounts[0] = jobs[0].accounts[0];
        jobs[i].accounts[1] = jobs[0].accounts[1];
        if (!i) assert_ok(memlord_account_open(lord, cuda(0), "one", 0, &jobs[0].accounts[0]));
        if (!i) assert_ok(memlord_account_open(lord, cuda(0), "two", 0, &jobs[0].accounts[1]));
        p.free[i] = 1;
    }
    p.jobs = jobs;
    p.left = JOBS;
    p.random = seed;
    p.resume = resume;
    assert_int_equal(pthread_create(&thread, NULL, pool_run, &p), 0);
    pool_run(&p);
    pthread_join(thread, NULL);
    assert_expected(lord, jobs);
    for (i = 0; i < JOBS; i++) assert_ok(memlord_context_drop(lord, &jobs[i].context));
    assert_null(memlord_tag_current(lord));
    assert_int_equal(memlord_scope_current(lord), 0);
}

#endif
