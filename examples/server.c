/*
    server.c - a server that knows how much KV cache every request holds

    One scheduler thread serves hundreds of requests. Each has a ticket, which keeps room for it
    under the limit of the device; its pages come off that ticket. Each has an account with a
    quota; its pages are charged to it. With a port the program answers GET /metrics until it is
    interrupted. Build and run:

        cc -std=c99 -O2 -I. examples/server.c -o server -pthread && ./server 300 192MiB 9100
*/
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST = 1000,        /* requests */
    PAGE = 1 << 20,     /* bytes of KV cache for 16 tokens */
    MOST_PAGES = 64,    /* of a request */
    QUOTA = 10 << 20,   /* bytes that a request may hold, however many it asked for */
    WEIGHTS = 16 << 20, /* bytes of the model */
    PATIENCE = 100,     /* rounds that a request waits for room */
    ROUNDS_A_PAGE = 8
};

typedef enum state { WAITING, RUNNING, SERVED, BUSY, OVER, BROKEN, STATES } state;

typedef struct request {
    int came, prompt, wanted, pages; /* its round; pages: of the prompt, with the answer, held */
    void *page[MOST_PAGES];
    state state;
    memlord_ticket ticket;
    memlord_account account;
} request;

typedef struct server { /* the scheduler's, but for the ledger */
    memlord *lord;
    memlord_device device;
    request requests[MOST];
    int n, arrived, round, failed;
    uint64_t limit;
} server;

static volatile sig_atomic_t interrupted;
static void interrupt(int number) { interrupted = number; }

static void check(server *s, memlord_result result) {
    if (result == MEMLORD_OK) return;
    fprintf(stderr, "server: %s\n", memlord_result_text(result));
    s->failed = 1;
}

static const char *text_of(uint64_t bytes) { /* good for five calls */
    static char text[5][32];
    static unsigned i;
    return memlord_format_bytes(bytes, text[i++ % 5], sizeof text[0]);
}

/* -- one request, on the scheduler -- */

static void admit(server *s, request *r) {
    char name[32];
    memlord_result result =
        memlord_reserve(s->lord, s->device, (uint64_t)r->wanted * PAGE, &r->ticket);

    if (result == MEMLORD_E_LIMIT) {
        if (s->round - r->came >= PATIENCE) r->state = BUSY;
        return;
    }
    check(s, result);
    snprintf(name, sizeof name, "request %d", (int)(r - s->requests));
    check(s, memlord_account_open(s->lord, s->device, name, QUOTA, &r->account));
    r->state = RUNNING;
}

/* One more page of KV cache: it comes off the ticket, and is charged to the account. */
static state grow(server *s, request *r) {
    memlord_alloc_opts opts = {0};
    memlord_account_stat stat;
    void *page = malloc(PAGE); /* in place of cudaMalloc */

    if (!page) return BROKEN;
    opts.site = MEMLORD_SITE();
    opts.ticket = r->ticket;
    opts.account = r->account;
    check(s, memlord_alloc_with(s->lord, s->device, MEMLORD_KEY(page), PAGE, &opts));
    r->page[r->pages++] = page;
    check(s, memlord_account_get(s->lord, r->account, &stat));
    if (!stat.refused) return r->pages == r->wanted ? SERVED : RUNNING;
    printf("  %s stopped: it has %s of %s, and its quota is %s\n", stat.name,
           text_of(stat.bytes), text_of((uint64_t)r->wanted * PAGE), text_of(stat.limit));
    return OVER;
}

static void step(server *s, request *r) {
    int upto = r->pages < r->prompt ? r->prompt : r->pages + 1;
    while (r->state == RUNNING && r->pages < upto) r->state = grow(s, r);
    if (r->state == RUNNING) return;
    while (r->pages-- > 0) {
        check(s, MEMLORD_FREE(s->lord, s->device, r->page[r->pages]));
        free(r->page[r->pages]);
    }
    check(s, memlord_reserve_commit(s->lord, r->ticket)); /* gives back what it did not use */
    check(s, memlord_account_close(s->lord, r->account));
}

/* -- the scheduler -- */

/* Shows where the server stands. Returns how many requests it has answered. */
static int show(server *s) {
    int count[STATES] = {0};
    memlord_stats stats;

    check(s, memlord_stats_get(s->lord, s->device, &stats));
    for (int i = 0; i < s->arrived; i++) count[s->requests[i].state]++;
    printf("%d of %d came: %d wait, %d run, %d served, %d busy, %d over quota\n", s->arrived, s->n,
           count[WAITING], count[RUNNING], count[SERVED], count[BUSY], count[OVER]);
    printf("  %s live, %s held by tickets, peak %s of %s\n", text_of(stats.allocated),
           text_of(stats.held), text_of(stats.peak), text_of(stats.limit));
    if (stats.peak > stats.limit) s->failed = 1;
    return count[SERVED] + count[BUSY] + count[OVER];
}

static void arrive(server *s) {
    int i = s->arrived++;
    request *r = &s->requests[i];
    r->came = s->round;
    r->prompt = i % 8 == 5 ? 50 : 1 + i * 37 % 5; /* 5: a whole book */
    r->wanted = r->prompt + 1 + i * 29 % 7;
    if (s->arrived % (s->n / 4) == 0) show(s);
}

static void *schedule(void *user) {
    server *s = (server *)user;
    const struct timespec tick = {0, 1000000};
    int open = 1;
    check(s, memlord_tag_begin(s->lord, "kv_cache"));
    for (; open || s->arrived < s->n; s->round++) {
        if (s->arrived < s->n) arrive(s);
        open = 0;
        for (request *r = s->requests; r < s->requests + s->arrived; r++) {
            if (r->state == WAITING) admit(s, r);
            if (r->state == RUNNING && (s->round - r->came) % ROUNDS_A_PAGE == 0) step(s, r);
            open += r->state <= RUNNING;
        }
        nanosleep(&tick, NULL);
    }
    return NULL;
}

/* -- GET /metrics, on the main thread, one connection at a time -- */

static int send_all(void *user, const void *data, size_t size) {
    const char *at = (const char *)data;
    ssize_t n = 1;
    while (size > 0 && (n = send(*(const int *)user, at, size, MSG_NOSIGNAL)) > 0)
        at += n, size -= (size_t)n;
    return n <= 0;
}

static void answer(memlord *lord, int fd) {
    static const char ok[] = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n";
    static const char other[] = "HTTP/1.0 404 Not Found\r\n\r\nGET /metrics\n";
    const struct timeval patience = {1, 0};
    char text[2048] = {0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (recv(fd, text, sizeof text, 0) < 0 || memcmp(text, "GET /metrics ", 13) != 0)
        send_all(&fd, other, sizeof other - 1);
    else if (send_all(&fd, ok, sizeof ok - 1) == 0)
        memlord_write(lord, MEMLORD_FORMAT_PROMETHEUS, send_all, &fd);
    close(fd);
}

static int serve_metrics(memlord *lord, int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof at;
    struct pollfd wait = {.fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN};
    const int on = 1;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(wait.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (wait.fd < 0 || bind(wait.fd, (struct sockaddr *)&at, size) || listen(wait.fd, 8) ||
        getsockname(wait.fd, (struct sockaddr *)&at, &size)) {
        perror("server: the port");
        return 1;
    }
    printf("http://127.0.0.1:%d/metrics\n", ntohs(at.sin_port));
    fflush(stdout);
    while (!interrupted) {
        int fd = poll(&wait, 1, 200) > 0 ? accept(wait.fd, NULL, NULL) : -1;
        if (fd >= 0) answer(lord, fd);
    }
    close(wait.fd);
    return 0;
}

static int run(server *s, int port) {
    memlord_block weights = {s->device, UINT64_C(0xd00000000000), WEIGHTS}; /* say, cudaMalloc's */
    int64_t short_by = 0;
    pthread_t scheduler;

    check(s, memlord_limit_set(s->lord, s->device, s->limit));
    if (memlord_plan_fit(s->lord, &weights, 1, &short_by) != 1) {
        fprintf(stderr, "server: the model does not fit, %s short\n", text_of((uint64_t)short_by));
        return 1;
    }
    MEMLORD_TAG(s->lord, "weights")
        check(s, memlord_alloc_n(s->lord, &weights, 1, MEMLORD_SITE()));
    if (pthread_create(&scheduler, NULL, schedule, s)) return 1;
    if (port >= 0 && serve_metrics(s->lord, port)) s->failed = 1;
    pthread_join(scheduler, NULL);
    check(s, memlord_free(s->lord, s->device, weights.storage, MEMLORD_SITE()));
    if (show(s) != s->n || memlord_headroom(s->lord, s->device) != (int64_t)s->limit) return 1;
    return s->failed;
}

int main(int argc, char **argv) {
    static server s = {.limit = 192 << 20};
    const memlord_desc desc = {.flags = MEMLORD_FLAG_EXACT, .logger = {memlord_log_stderr, NULL}};
    char *end[2] = {"", ""};
    long n = argc > 1 ? strtol(argv[1], &end[0], 10) : 300;
    long port = argc > 3 ? strtol(argv[3], &end[1], 10) : -1; /* 0: any */
    int status;

    if (argc > 4 || *end[0] || *end[1] || n < 8 || n > MOST || port > 65535 ||
        (argc > 2 && (memlord_parse_bytes(argv[2], &s.limit) || !s.limit || s.limit >> 40))) {
        fprintf(stderr, "usage: server [requests, 8 to %d [limit, under 1TiB [port]]]\n", MOST);
        return 2;
    }
    s.n = (int)n;
    s.device = memlord_device_cuda(0);
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    if (getenv("DEBUG")) setenv("MEMLORD_DEBUG", getenv("DEBUG"), 0); /* DEBUG=1: every event */
    if (memlord_create(&desc, &s.lord) != MEMLORD_OK) return 1;
    status = run(&s, (int)port);
    memlord_destroy(s.lord);
    return status;
}
