/*
    server.c - a server that knows how much KV cache every request holds

    Four things keep it alive: a plan that is checked before the model is loaded, a limit of the
    device, a place under it that is reserved before anything is allocated, and for each request
    an account with a limit of its own. Build and run:

        cc -std=c99 -O2 -I. examples/server.c -o server -pthread && ./server 100 96MiB
*/
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    WORKERS = 8,
    MOST = 1000,        /* requests */
    TOKEN = 64 << 10,   /* bytes of KV cache for a token */
    CHUNK = 16,         /* tokens generated between two looks at the account */
    WEIGHTS = 16 << 20, /* bytes of the model */
    QUOTA = 10 << 20,   /* bytes a request may fill, however much it asked for */
    CHUNK_MS = 4,
    ARRIVAL_MS = 2, /* from one request to the next */
    TABLES = 4      /* shown while the server runs */
};

typedef enum state { WAITING, RUNNING, SERVED, BUSY, OVER, BROKEN, STATES } state;

typedef struct request {
    int prompt, answer; /* tokens: read, and to be generated */
    state state;
    memlord_account account; /* while RUNNING */
} request;

typedef struct server {
    memlord *lord;
    memlord_device device;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t arrival;
    request requests[MOST];
    int n, arrived, taken;
    uint64_t held, most; /* what memlord_reserve granted and has not back, by our own count */
    int failed;
} server;

static void check(server *s, memlord_result result) {
    if (result == MEMLORD_OK) return;
    fprintf(stderr, "server: %s\n", memlord_result_text(result));
    pthread_mutex_lock(&s->lock);
    s->failed = 1;
    pthread_mutex_unlock(&s->lock);
}

static uint64_t asked(const request *r) {
    return (uint64_t)(r->prompt + r->answer) * TOKEN;
}

static void pause_ms(long ms) {
    const struct timespec t = {0, ms * 1000000};
    nanosleep(&t, NULL);
}

/* -- one request, on a worker -- */

static void become(server *s, request *r, state to, memlord_account account) {
    pthread_mutex_lock(&s->lock);
    r->state = to;
    r->account = account;
    pthread_mutex_unlock(&s->lock);
}

static void hold(server *s, uint64_t more, uint64_t less) {
    pthread_mutex_lock(&s->lock);
    s->held += more;
    s->held -= less;
    if (s->held > s->most) s->most = s->held;
    pthread_mutex_unlock(&s->lock);
}

/* Reads the prompt and generates; the account says how far it may go. */
static state generate(server *s, const request *r, memlord_account account) {
    int total = r->prompt + r->answer, step = r->prompt;

    for (int tokens = 0; tokens < total; tokens += step) {
        if (tokens > 0) step = total - tokens < CHUNK ? total - tokens : CHUNK;
        memlord_result result = memlord_account_charge(s->lord, account, (int64_t)step * TOKEN);
        if (result != MEMLORD_OK) return result == MEMLORD_E_LIMIT ? OVER : BROKEN;
        pause_ms(CHUNK_MS);
    }
    return SERVED;
}

/* The room is there: allocate, record, commit. The rest is work. */
static state serve(server *s, request *r, memlord_account account, memlord_ticket ticket) {
    void *cache = malloc((size_t)asked(r)); /* in place of cudaMalloc */
    state end;

    if (!cache) {
        check(s, memlord_reserve_cancel(s->lord, ticket));
        return BROKEN;
    }
    hold(s, asked(r), 0);
    MEMLORD_TAG(s->lord, "kv_cache") {
        check(s, MEMLORD_ALLOC(s->lord, s->device, cache, asked(r)));
    }
    check(s, memlord_reserve_commit(s->lord, ticket));
    become(s, r, RUNNING, account);
    end = generate(s, r, account);
    hold(s, 0, asked(r));
    check(s, MEMLORD_FREE(s->lord, s->device, cache));
    free(cache);
    return end;
}

static void handle(server *s, request *r, int id) {
    char name[32];
    memlord_account account;
    memlord_ticket ticket;
    memlord_result result;
    state end = BROKEN;

    snprintf(name, sizeof name, "request %d", id);
    check(s, memlord_account_open(s->lord, s->device, name, QUOTA, &account));
    result = memlord_reserve(s->lord, s->device, asked(r), &ticket);
    if (result == MEMLORD_OK) end = serve(s, r, account, ticket);
    if (result == MEMLORD_E_LIMIT) end = BUSY;
    become(s, r, end, 0);
    check(s, memlord_account_close(s->lord, account));
}

static void *work(void *user) {
    server *s = (server *)user;
    for (;;) {
        int id;
        pthread_mutex_lock(&s->lock);
        while (s->taken == s->arrived && s->arrived < s->n)
            pthread_cond_wait(&s->arrival, &s->lock);
        id = s->taken < s->arrived ? s->taken++ : -1;
        pthread_mutex_unlock(&s->lock);
        if (id < 0) return NULL;
        handle(s, &s->requests[id], id);
    }
}

/* -- what is shown, on the main thread -- */

static void table(server *s) {
    char a[32], b[32], c[32];
    memlord_account_stat stat;

    pthread_mutex_lock(&s->lock);
    printf("%3d of %3d came       KV cache    reserved       quota\n", s->arrived, s->n);
    for (int i = 0; i < s->n; i++) {
        const request *r = &s->requests[i];
        if (r->state != RUNNING || memlord_account_get(s->lord, r->account, &stat) != MEMLORD_OK)
            continue;
        printf("  %-16s %11s %11s %11s\n", stat.name,
               memlord_format_bytes(stat.bytes, a, sizeof a),
               memlord_format_bytes(asked(r), b, sizeof b),
               memlord_format_bytes(stat.limit, c, sizeof c));
    }
    pthread_mutex_unlock(&s->lock);
}

/* Who was refused, and why; then whether the books add up. Nobody else runs any more. */
static void account_for(server *s, uint64_t limit) {
    static const char *const names[STATES] = {"waiting", "running", "served", "busy",
                                              "over their quota", "broken"};
    int count[STATES] = {0};
    uint64_t live = memlord_allocated(s->lord, s->device), peak = memlord_peak(s->lord, s->device);
    char a[32], b[32], c[32];

    printf("refused\n");
    for (int i = 0; i < s->n; i++) {
        const request *r = &s->requests[i];
        count[r->state]++;
        memlord_format_bytes(asked(r), a, sizeof a);
        if (r->state == BUSY)
            printf("  request %-4d busy, try later: no room for %s\n", i, a);
        if (r->state == OVER)
            printf("  request %-4d stopped: would fill %s, its account allows %s\n", i, a,
                   memlord_format_bytes(QUOTA, b, sizeof b));
    }
    printf("\n%d requests:", s->n);
    for (int k = SERVED; k <= BROKEN; k++)
        printf(" %d %s%s", count[k], names[k], k < BROKEN ? "," : "\n");
    printf("limit %s, most by the ledger %s, by our own count %s\n",
           memlord_format_bytes(limit, a, sizeof a), memlord_format_bytes(peak, b, sizeof b),
           memlord_format_bytes(s->most, c, sizeof c));
    printf("at the end %s live, ", memlord_format_bytes(live, a, sizeof a));
    printf("%s of the limit free\n",
           memlord_format_bytes((uint64_t)memlord_headroom(s->lord, s->device), b, sizeof b));
    if (count[SERVED] + count[BUSY] + count[OVER] != s->n || peak > limit || s->most > limit ||
        live != 0 || memlord_headroom(s->lord, s->device) != (int64_t)limit)
        s->failed = 1;
}

/* -- the model -- */

static int load(server *s, uint64_t limit, uint64_t *weights) {
    memlord_block plan = {s->device, 0, WEIGHTS};
    int64_t short_by = 0;
    memlord_ticket ticket;
    char text[32];

    check(s, memlord_limit_set(s->lord, s->device, limit));
    if (memlord_plan_fit(s->lord, &plan, 1, &short_by) != 1) {
        fprintf(stderr, "server: the model does not fit, %s short\n",
                memlord_format_bytes((uint64_t)short_by, text, sizeof text));
        return 0;
    }
    *weights = UINT64_C(0xd00000000000); /* say, from cudaMalloc */
    check(s, memlord_reserve(s->lord, s->device, WEIGHTS, &ticket));
    MEMLORD_TAG(s->lord, "weights") {
        check(s, memlord_alloc(s->lord, s->device, *weights, WEIGHTS, MEMLORD_SITE()));
    }
    check(s, memlord_reserve_commit(s->lord, ticket));
    s->held = s->most = WEIGHTS;
    return 1;
}

static void arrive(server *s, int answer, int prompt) {
    request *r = &s->requests[s->arrived]; /* seen by the others from `arrived` on */
    r->prompt = prompt;
    r->answer = answer;
    pthread_mutex_lock(&s->lock);
    s->arrived++;
    pthread_cond_broadcast(&s->arrival); /* the last one: to all who wait */
    pthread_mutex_unlock(&s->lock);
}

static int run(server *s, uint64_t limit) {
    pthread_t workers[WORKERS];
    uint64_t weights;
    int started = 0;

    if (!load(s, limit, &weights)) return 1;
    while (started < WORKERS && !pthread_create(&workers[started], NULL, work, s)) started++;
    if (started == 0) return 1;
    for (int i = 0; i < s->n; i++) {
        arrive(s, 16 + i * 29 % 97, i % 8 == 5 ? 800 : 16 + i * 37 % 81); /* 5: a whole book */
        pause_ms(ARRIVAL_MS);
        if ((i + 1) % (s->n / TABLES) == 0) table(s);
    }
    while (started > 0) pthread_join(workers[--started], NULL);
    check(s, memlord_free(s->lord, s->device, weights, MEMLORD_SITE()));
    account_for(s, limit);
    return s->failed;
}

int main(int argc, char **argv) {
    static server s;
    memlord_desc desc = {.logger = {memlord_log_stderr, NULL},
                         .flags = MEMLORD_FLAG_EXACT}; /* peaks to the byte */
    uint64_t limit = 64 << 20;
    char *end = "";
    long n = argc > 1 ? strtol(argv[1], &end, 10) : 48;
    int status;

    if (argc > 3 || *end || n < 8 || n > MOST ||
        (argc == 3 &&
         (memlord_parse_bytes(argv[2], &limit) != MEMLORD_OK || !limit || limit >> 40))) {
        fprintf(stderr, "usage: server [requests, 8 to %d [limit, under 1TiB]]\n", (int)MOST);
        return 2;
    }
    s.n = (int)n;
    s.device = memlord_device_cuda(0);
    if (getenv("DEBUG")) setenv("MEMLORD_DEBUG", getenv("DEBUG"), 0); /* DEBUG=1: every event */
    if (memlord_create(&desc, &s.lord) != MEMLORD_OK) return 1;
    if (pthread_mutex_init(&s.lock, NULL) || pthread_cond_init(&s.arrival, NULL)) return 1;
    status = run(&s, limit);
    pthread_cond_destroy(&s.arrival);
    pthread_mutex_destroy(&s.lock);
    memlord_destroy(s.lord);
    return status;
}
