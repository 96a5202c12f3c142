/*
    The processes of tests/neighbours.sh. `host TEST PAGE [NUMBER [SEED]]` runs one test: it forks
    workers, which have a ledger each and join the page, and orders them about through shared
    memory. Its status is 0 if all went well, else it says on stderr what did not.
*/
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../memlord.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 64, DEVICES = 16, MOST = 80, POLL_MS = 100, PATIENCE_S = 20 };

static const char *page;
static uint64_t seed;

static void fail(const char *what, uint64_t a, uint64_t b) {
    fprintf(stderr, "%s: %llu, %llu\n", what, (unsigned long long)a, (unsigned long long)b);
    exit(1);
}
static void expect(const char *what, uint64_t is, uint64_t should) {
    if (is != should) fail(what, is, should);
}

static uint64_t draw(uint64_t n) { /* splitmix64 */
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}
static void sleep_us(uint64_t us) {
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    nanosleep(&t, NULL);
}

/* -- pages between guards: what reads or writes beside a page dies of it -- */

void *__real_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset) {
    const size_t guard = 65536;
    char *around;
    if (file < 0 || !(flags & MAP_SHARED))
        return __real_mmap(address, size, protection, flags, file, offset);
    around = (char *)__real_mmap(NULL, size + 2 * guard, PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (around == MAP_FAILED) return MAP_FAILED;
    return __real_mmap(around + guard, size, protection, flags | MAP_FIXED, file, offset);
}

/* -- stalls of the host's memory, which no test can wait for -- */

static int stall; /* POLLPRI or POLLERR: what the trigger is to say once */
int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms) {
    const int is_trigger = n == 1 && fds->events == POLLPRI;
    const int now = is_trigger ? __atomic_exchange_n(&stall, 0, __ATOMIC_ACQ_REL) : 0;
    if (!now) return __real_poll(fds, n, ms);
    fds->revents = (short)now;
    return 1;
}

/* -- shared memory between a test and its workers -- */

enum order { QUIT, SET, READ, LEVEL, RAISE, OPEN, CLOSE, STORM, FAILED, FORK };

typedef struct box {
    pid_t pid;
    uint32_t asked, done; /* numbers of orders */
    enum order order;
    int device;
    uint64_t argument, answer;
    uint64_t cache[2];                 /* bytes that the callback may give back */
    int keeps;                         /* 1: it has none of them */
    int raises;                        /* 1: the callback raises pressure, too */
    uint64_t live[2];                  /* bytes as the test knows them */
    uint64_t runs, needed, reason;     /* of the callback */
    uint64_t child;                    /* what a child of it saw of it */
    uint64_t opened;                   /* the result of memlord_pressure_open */
    double reached;                    /* when the callback ran, or the bare futex woke it */
    uint64_t names[2];                 /* which physical devices it calls cuda:0 and cuda:1 */
    uint64_t limit;
    uint32_t poll_ms;
} box;

static box *boxes;
static uint32_t *bell; /* the bare futex */

static void prepare(void) {
    char *memory = (char *)mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                                -1, 0);
    if (memory == MAP_FAILED) fail("mmap", (uint64_t)errno, 0);
    bell = (uint32_t *)memory;
    boxes = (box *)(memory + 4096);
    for (int i = 0; i < MOST; i++) {
        boxes[i].names[1] = 1;
        boxes[i].poll_ms = POLL_MS;
    }
}

/* The processes of a test that failed end with it. */
static void die_with_parent(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == 1) _exit(1); /* it ended before */
}

/* -- a worker -- */

typedef struct worker {
    memlord *lord;
    box *box;
    uint64_t keys;
} worker;

static memlord_device device_of(int i) { return memlord_device_cuda(i); }

static memlord_gc_result collect(void *user, memlord *lord, const memlord_gc_event *event) {
    worker *w = (worker *)user;
    memlord_gc_result result = {1, 0, 0};
    int i = event->device.index;
    uint64_t cache, gives;

    if (w->box->raises && w->box->cache[i])
        memlord_pressure_raise(lord, event->device, event->needed);
    cache = __atomic_exchange_n(&w->box->cache[i], 0, __ATOMIC_RELAXED);
    gives = event->needed && event->needed < cache ? event->needed : cache;
    w->box->reached = now_ms();
    w->box->needed = event->needed;
    w->box->reason = (uint64_t)event->reason;
    if (gives) memlord_arena_sub(lord, event->device, gives, NULL);
    __atomic_fetch_add(&w->box->cache[i], cache - gives, __ATOMIC_RELAXED);
    result.reclaimed = gives;
    __atomic_fetch_add(&w->box->runs, 1, __ATOMIC_RELEASE); /* pairs with the test's acquire */
    return result;
}

static void set_bytes(worker *w, int i, uint64_t bytes) {
    uint64_t had = memlord_allocated(w->lord, device_of(i));
    if (bytes > had) memlord_arena_add(w->lord, device_of(i), bytes - had, NULL);
    if (bytes < had) memlord_arena_sub(w->lord, device_of(i), had - bytes, NULL);
    __atomic_store_n(&w->box->cache[i], w->box->keeps ? 0 : bytes, __ATOMIC_RELAXED);
}

static uint64_t neighbours_of(worker *w, int i) {
    memlord_stats stats;
    memlord_stats_get(w->lord, device_of(i), &stats);
    return stats.neighbours;
}

static void create(worker *w, box *b) {
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV | MEMLORD_FLAG_NO_STRATEGY;
    desc.poll_ms = b->poll_ms;
    if (getenv("LOG")) desc.logger.fn = memlord_log_stderr;
    w->box = b;
    expect("create", memlord_create(&desc, &w->lord), MEMLORD_OK);
    memlord_gc_callback_add(w->lord, memlord_device_make(MEMLORD_DEVICE_CUDA, MEMLORD_ANY),
                            1u << MEMLORD_REASON_NEIGHBOUR, collect, w);
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "GPU-%d", (int)b->names[i]);
        expect("an identity", memlord_device_id_set(w->lord, device_of(i), name), MEMLORD_OK);
        if (b->limit) memlord_limit_set(w->lord, device_of(i), b->limit);
    }
}

/* One of all that a process may do with a page. */
static void act(worker *w) {
    int i = (int)draw(2);
    switch (draw(8)) {
    case 0: memlord_pressure_raise(w->lord, device_of(i), 0); break;
    case 1: memlord_pressure_raise(w->lord, device_of(i), 1 + draw(4096)); break;
    case 2: memlord_pressure_level(w->lord, device_of(i)); break;
    case 3: neighbours_of(w, i); break;
    case 4: memlord_gc_poll(w->lord, memlord_device_all()); break;
    default: set_bytes(w, i, draw(1 << 20)); break;
    }
}

/* A child gets a slot of its own when it first uses the ledger. It lives until it is killed. */
static void be_child(worker *w, uint64_t parents) {
    die_with_parent();
    memlord_arena_sub(w->lord, device_of(0), parents, NULL); /* its copy of them */
    memlord_arena_add(w->lord, device_of(0), 12345, NULL);
    while (neighbours_of(w, 0) != parents) sleep_us(1000);
    __atomic_store_n(&w->box->child, parents, __ATOMIC_RELEASE);
    for (;;) pause();
}

static uint64_t obey(worker *w, box *b) {
    int i = b->device;
    pid_t child;
    switch (b->order) {
    case SET: set_bytes(w, i, b->argument); return 0;
    case READ: return neighbours_of(w, i);
    case LEVEL: return (uint64_t)memlord_pressure_level(w->lord, device_of(i));
    case RAISE:
        b->reached = now_ms();
        return memlord_pressure_raise(w->lord, device_of(i), b->argument);
    case OPEN: return b->opened = memlord_pressure_open(w->lord, page);
    case CLOSE: memlord_pressure_close(w->lord); return 0;
    case FAILED: return memlord_alloc_failed(w->lord, device_of(i), b->argument, NULL);
    case STORM:
        for (uint64_t n = b->argument; n > 0; n--) act(w);
        b->cache[0] = b->cache[1] = 0;
        sleep_us(2 * POLL_MS * 1000); /* for callbacks in progress */
        return 0;
    case FORK:
        child = fork();
        if (child == 0) be_child(w, b->argument);
        return (uint64_t)child;
    default: return 0;
    }
}

static void work(box *b) {
    worker w = {0};
    uint32_t done = b->done;
    die_with_parent();
    signal(SIGCHLD, SIG_IGN);
    create(&w, b);
    b->opened = memlord_pressure_open(w.lord, page);
    b->pid = getpid();
    __atomic_store_n(&b->done, done + 1, __ATOMIC_RELEASE); /* pairs with finish */
    for (;;) {
        while (__atomic_load_n(&b->asked, __ATOMIC_ACQUIRE) == done + 1) sleep_us(200);
        done++;
        b->answer = obey(&w, b);
        __atomic_store_n(&b->done, done + 1, __ATOMIC_RELEASE);
        if (b->order == QUIT) break;
    }
    memlord_destroy(w.lord);
    exit(0);
}

/* -- what a test does with workers -- */

/* Forks; 0: in the child. The box is shared, so the child must not write its 0 there. */
static pid_t begin(int i) {
    pid_t pid = fork();
    if (pid < 0) fail("fork", (uint64_t)errno, 0);
    if (pid) boxes[i].pid = pid;
    return pid;
}
static void begin_work(int i) {
    box *b = &boxes[i];
    b->live[0] = b->live[1] = b->cache[0] = b->cache[1] = 0;
    b->asked = b->done + 1;
    seed += (uint64_t)i;
    if (begin(i) == 0) work(b);
}
static void finish(int i) { /* Waits until it has done what it was asked for. */
    double until = now_ms() + PATIENCE_S * 1e3;
    int status = 0;
    while (__atomic_load_n(&boxes[i].done, __ATOMIC_ACQUIRE) != boxes[i].asked) {
        if (waitpid(boxes[i].pid, &status, WNOHANG) == boxes[i].pid)
            fail("a worker died", (uint64_t)i, (uint64_t)status);
        if (now_ms() > until) fail("a worker hangs", (uint64_t)i, boxes[i].order);
        sleep_us(100);
    }
}
static void start(int n) {
    for (int i = 0; i < n; i++) begin_work(i);
    for (int i = 0; i < n; i++) finish(i);
}
static void order(int i, enum order what, int device, uint64_t argument) {
    boxes[i].order = what;
    boxes[i].device = device;
    boxes[i].argument = argument;
    if (what == SET) boxes[i].live[device] = argument;
    __atomic_store_n(&boxes[i].asked, boxes[i].asked + 1, __ATOMIC_RELEASE); /* pairs with work */
}
static uint64_t ask(int i, enum order what, int device, uint64_t argument) {
    order(i, what, device, argument);
    finish(i);
    return boxes[i].answer;
}
static void end_work(int i) {
    int status = -1;
    ask(i, QUIT, 0, 0);
    waitpid(boxes[i].pid, &status, 0);
    expect("the status of a worker", (uint64_t)status, 0);
}
static void kill_worker(int i) {
    if (boxes[i].pid <= 0) fail("no worker to kill", (uint64_t)i, 0); /* kill(0): the whole group */
    kill(boxes[i].pid, SIGKILL);
    waitpid(boxes[i].pid, NULL, 0);
    boxes[i].live[0] = boxes[i].live[1] = 0;
    boxes[i].opened = MEMLORD_E_STATE;
}
/* Waits for what a worker reads. */
static void await(const char *what, int i, enum order reads, int device, uint64_t should) {
    double until = now_ms() + PATIENCE_S * 1e3;
    while (ask(i, reads, device, 0) != should) {
        if (now_ms() > until) fail(what, boxes[i].answer, should);
        sleep_us(1000);
    }
}
/* The same of a word that a callback changes. */
static void await_word(const char *what, const uint64_t *word, uint64_t should) {
    double until = now_ms() + PATIENCE_S * 1e3;
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != should) {
        if (now_ms() > until) fail(what, *word, should);
        sleep_us(1000);
    }
}

/* Waits until each of n workers sees the bytes of the others, and no more, or nothing if it works
   alone. Returns how long. */
static double settle(int n) {
    double begun = now_ms();
    for (int d = 0; d < 2; d++) {
        uint64_t total = 0;
        for (int i = 0; i < n; i++)
            if (boxes[i].opened == MEMLORD_OK) total += boxes[i].live[d];
        for (int i = 0; i < n; i++)
            await("neighbours", i, READ, d, boxes[i].opened ? 0 : total - boxes[i].live[d]);
    }
    return now_ms() - begun;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *times, int n) {
    qsort(times, (size_t)n, sizeof *times, by_size);
    return times[n / 2];
}

/* -- the tests -- */

/* From two processes to `most`: whatever they allocate, each sees the sum of the others. */
static void test_totals(int most) {
    for (int n = 2; n <= most; n = n * 2 < most || n == most ? n * 2 : most) {
        start(n);
        for (int round = 0; round < 5; round++) {
            for (int i = 0; i < n; i++)
                if (draw(2)) ask(i, SET, (int)draw(2), draw(UINT64_C(1) << 40));
            settle(n);
        }
        ask(1, CLOSE, 0, 0);
        boxes[1].live[0] = boxes[1].live[1] = 0;
        expect("neighbours of one that left", ask(1, READ, 0, 0), 0);
        expect("opens again", ask(1, OPEN, 0, 0), MEMLORD_OK);
        ask(1, SET, 0, 7), ask(1, SET, 1, 8);
        settle(n);
        for (int i = 0; i < n; i++) end_work(i);
    }
}

/* A victim joins, works and leaves for ever, until it is killed. */
static void be_victim(int i) {
    worker w = {0};
    die_with_parent();
    seed += (uint64_t)i * 7919;
    create(&w, &boxes[i]);
    for (;;) {
        memlord_pressure_open(w.lord, page);
        for (int n = 0; n < 20; n++) act(&w);
        memlord_pressure_close(w.lord);
    }
}

/* SIGKILL at any moment: two survivors see each other, and nothing of the dead. */
static void test_kill(int kills) {
    enum { VICTIMS = 8, BATCH = 24, BATCHES = 1000 };
    static double took[BATCHES];
    int batch = 0;
    boxes[0].keeps = boxes[1].keeps = 1; /* whatever the victims ask for */
    start(2);
    for (int killed = 0; killed < kills && batch < BATCHES; batch++) {
        for (int end = killed + BATCH; killed < end; killed += VICTIMS) {
            for (int i = 2; i < 2 + VICTIMS; i++)
                if (begin(i) == 0) be_victim(i);
            for (int i = 2; i < 2 + VICTIMS; i++) {
                sleep_us(draw(1000));
                kill_worker(i);
            }
            for (int i = 0; i < 2; i++)
                if (ask(i, READ, 0, 0) > boxes[!i].live[0] + (SLOTS << 20))
                    fail("more than all can have", boxes[i].answer, boxes[!i].live[0]);
        }
        took[batch] = settle(2);
        ask((int)draw(2), SET, (int)draw(2), draw(UINT64_C(1) << 40));
        settle(2);
    }
    fprintf(stderr, "the totals were right %.0f ms after the last of a batch was killed\n",
           median(took, batch));
    if (median(took, batch) > 2 * POLL_MS)
        fail("ms that the dead stayed", (uint64_t)took[batch / 2], POLL_MS);
    for (int i = 2; i < SLOTS; i++) begin_work(i);
    for (int i = 2; i < SLOTS; i++)
        finish(i), expect("a slot is lost", boxes[i].opened, MEMLORD_OK);
    for (int i = 0; i < SLOTS; i++) end_work(i);
}

/* Children have a slot of their own, and their parent keeps its one. */
static void test_fork(int forks) {
    start(2);
    for (int n = 0; n < forks; n++) {
        uint64_t parents = 20000 + draw(100000);
        pid_t child;
        ask(0, SET, 0, parents);
        settle(2);
        child = (pid_t)ask(0, FORK, 0, parents);
        await("with a child", 1, READ, 0, parents + 12345);
        await("the parent's", 0, READ, 0, 12345);
        await_word("the child's", &boxes[0].child, parents);
        kill(child, SIGKILL);
        settle(2);
    }
    for (int i = 0; i < 2; i++) end_work(i);
}

/* Forks while two threads of the parent use the ledger and the page: no child hangs. */
static worker forks_of;
static int stop_forking;
static void *churn(void *user) {
    uint64_t n = 0;
    while (!__atomic_load_n(&stop_forking, __ATOMIC_RELAXED)) {
        memlord_alloc(forks_of.lord, device_of(0), (uint64_t)(size_t)user + 64 * n, n, NULL);
        if (n++ % 16 == 0) memlord_pressure_raise(forks_of.lord, device_of(0), 0);
        neighbours_of(&forks_of, 0);
        memlord_free(forks_of.lord, device_of(0), (uint64_t)(size_t)user + 64 * (n - 1), NULL);
    }
    return NULL;
}
static void test_forks(int forks) {
    pthread_t threads[2];
    int status;
    create(&forks_of, &boxes[0]);
    expect("open", memlord_pressure_open(forks_of.lord, page), MEMLORD_OK);
    for (size_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, churn, (void *)((i + 1) << 40));
    for (int n = 0; n < forks; n++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(PATIENCE_S);
            memlord_arena_add(forks_of.lord, device_of(1), 1000, NULL);
            memlord_pressure_raise(forks_of.lord, device_of(1), 0);
            _exit(memlord_allocated(forks_of.lord, device_of(1)) != 1000);
        }
        waitpid(child, &status, 0);
        expect("the status of a child", (uint64_t)status, 0);
    }
    stop_forking = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (double until = now_ms() + PATIENCE_S * 1e3; neighbours_of(&forks_of, 1);)
        if (now_ms() > until) fail("children that ended", neighbours_of(&forks_of, 1), 0);
    memlord_destroy(forks_of.lord);
}

/* A child that does not use the ledger keeps nothing of its parent's slot. */
static void test_orphan(int unused) {
    int hold[2];
    (void)unused;
    start(1);
    if (pipe(hold)) fail("pipe", (uint64_t)errno, 0);
    if (begin(1) == 0) {
        worker w;
        create(&w, &boxes[1]);
        expect("open", memlord_pressure_open(w.lord, page), MEMLORD_OK);
        set_bytes(&w, 0, 777);
        if (fork() == 0) {
            char byte;
            close(hold[1]);
            _exit((int)read(hold[0], &byte, 1)); /* until the test ends */
        }
        pause();
    }
    await("the parent", 0, READ, 0, 777);
    kill_worker(1);
    settle(1);
    end_work(0);
}

/* A process that is stopped is no dead one; a raise does not wait for it for ever. */
static void test_stop(int unused) {
    double begun;
    (void)unused;
    start(3);
    for (int i = 0; i < 3; i++) ask(i, SET, 0, 1000);
    settle(3);
    kill(boxes[2].pid, SIGSTOP);
    expect("the stopped one", (uint64_t)waitpid(boxes[2].pid, NULL, WUNTRACED),
           (uint64_t)boxes[2].pid);
    begun = now_ms();
    expect("a raise beside a stopped process", ask(0, RAISE, 0, 1500), MEMLORD_E_OOM);
    fprintf(stderr, "a raise waited %.0f ms for a stopped process\n", now_ms() - begun);
    await_word("what the other one gave", &boxes[1].cache[0], 0);
    boxes[1].live[0] = 0;
    await("with a stopped one", 0, READ, 0, 1000);
    ask(1, SET, 0, 400);
    expect("a raise that the other one meets", ask(0, RAISE, 0, 300), MEMLORD_OK);
    boxes[1].live[0] = 100;
    kill(boxes[2].pid, SIGCONT);
    await_word("one that goes on gives for the last raise", &boxes[2].cache[0], 700);
    boxes[2].live[0] = 700;
    settle(3);
    for (int i = 0; i < 3; i++) end_work(i);
}

/* What a raise asks for, and what it returns. */
static void test_raise(int unused) {
    (void)unused;
    start(3);
    for (int i = 0; i < 3; i++) ask(i, SET, 0, 1 << 20), ask(i, SET, 1, 1 << 20);
    settle(3);
    expect("a raise", ask(0, RAISE, 0, 1000), MEMLORD_OK);
    for (int i = 1; i < 3; i++) {
        await_word("runs", &boxes[i].runs, 1);
        expect("needed", boxes[i].needed, 1000);
        expect("reason", boxes[i].reason, MEMLORD_REASON_NEIGHBOUR);
        expect("of another device", boxes[i].cache[1], 1 << 20);
        boxes[i].live[0] = boxes[i].cache[0];
    }
    expect("runs of the raiser's", boxes[0].runs, 0);
    settle(3);
    expect("a raise of too much", ask(0, RAISE, 0, 4 << 20), MEMLORD_E_OOM);
    boxes[1].live[0] = boxes[2].live[0] = 0;
    settle(3);
    expect("a raise where nothing is left", ask(0, RAISE, 0, 1), MEMLORD_E_OOM);
    for (int n = 0; n < 20; n++) { /* at once, at each other */
        for (int i = 0; i < 3; i++) order(i, RAISE, 1, 1 + draw(1 << 20));
        for (int i = 0; i < 3; i++) finish(i);
    }
    kill_worker(2);
    order(0, RAISE, 1, 5 << 20); /* as it is killed, the other one goes on */
    sleep_us(draw(3000));
    kill_worker(0);
    expect("a raise alone", ask(1, RAISE, 1, 1), MEMLORD_E_OOM);
    await("alone", 1, READ, 1, 0);
    end_work(1);
}

/* What was asked before a process joined is not asked of it; one that joins asks for nothing. */
static void test_stale(int unused) {
    (void)unused;
    start(1);
    boxes[0].keeps = 1;
    expect("a raise alone", ask(0, RAISE, 0, 1000), MEMLORD_E_OOM);
    for (int i = 1; i < 3; i++) {
        ask(0, SET, 0, 1000 * (uint64_t)i); /* or it rests: its last run gave nothing */
        begin_work(i), finish(i);
        sleep_us(2 * POLL_MS * 1000);
        expect("runs of one that joined", boxes[i].runs, 0);
        expect("runs of one that was there", boxes[0].runs, (uint64_t)i - 1);
        expect("its raise", ask(i, RAISE, 0, 1000), MEMLORD_E_OOM);
        await_word("runs after its raise", &boxes[0].runs, (uint64_t)i);
        end_work(i); /* the next one has its slot */
    }
    end_work(0);
}

/* Callbacks that raise pressure themselves, at each other, end nevertheless. */
static void test_nested(int unused) {
    double begun;
    (void)unused;
    for (int i = 0; i < 3; i++) boxes[i].raises = 1;
    start(3);
    for (int i = 0; i < 3; i++) ask(i, SET, 0, 1000);
    settle(3);
    begun = now_ms();
    for (int i = 0; i < 3; i++) order(i, RAISE, 0, 1500);
    for (int i = 0; i < 3; i++) finish(i);
    fprintf(stderr, "raises in callbacks of raises took %.0f ms\n", now_ms() - begun);
    for (int i = 0; i < 3; i++) await_word("gives in the end", &boxes[i].cache[0], 0);
    for (int i = 0; i < 3; i++) boxes[i].live[0] = 0;
    settle(3);
    for (int i = 0; i < 3; i++) ask(i, SET, 0, 10);
    settle(3);
    for (int i = 0; i < 3; i++) end_work(i);
}

/* Levels are of all processes together. */
static void test_levels(int unused) {
    (void)unused;
    for (int i = 0; i < 2; i++) boxes[i].limit = 1000;
    start(2);
    ask(0, SET, 0, 300), ask(1, SET, 0, 400);
    settle(2);
    expect("70 %", ask(0, LEVEL, 0, 0), MEMLORD_PRESSURE_NORMAL);
    ask(1, SET, 0, 550);
    settle(2);
    expect("85 %", ask(0, LEVEL, 0, 0), MEMLORD_PRESSURE_WARNING);
    ask(1, SET, 0, 680);
    settle(2);
    expect("98 %", ask(0, LEVEL, 0, 0), MEMLORD_PRESSURE_CRITICAL);
    expect("98 %, the other one", ask(1, LEVEL, 0, 0), MEMLORD_PRESSURE_CRITICAL);
    ask(1, FAILED, 0, 100);
    await("the other one's allocations fail", 0, LEVEL, 0, MEMLORD_PRESSURE_EMERGENCY);
    expect("another device", ask(0, LEVEL, 1, 0), MEMLORD_PRESSURE_NORMAL);
    kill_worker(1);
    settle(1);
    expect("30 %", ask(0, LEVEL, 0, 0), MEMLORD_PRESSURE_NORMAL);
    end_work(0);
}

/* Processes of one GPU meet whatever they call it; those of two do not. */
static void test_ids(int unused) {
    (void)unused;
    boxes[1].names[0] = 5, boxes[1].names[1] = 0; /* its cuda:1 is the first one's cuda:0 */
    start(2);
    ask(0, SET, 0, 100), ask(0, SET, 1, 20), ask(1, SET, 0, 3000), ask(1, SET, 1, 40000);
    await("the other one's cuda:1", 0, READ, 0, 40000);
    expect("a cuda:1 that is another one", ask(0, READ, 1, 0), 0);
    expect("a cuda:0 that is another one", ask(1, READ, 0, 0), 0);
    await("the other one's cuda:0", 1, READ, 1, 100);
    expect("a raise on it", ask(0, RAISE, 0, 1000), MEMLORD_OK);
    expect("takes of it", boxes[1].cache[1], 39000);
    expect("and not of the other", boxes[1].cache[0], 3000);
    expect("a raise on what no other has", ask(0, RAISE, 1, 1), MEMLORD_E_OOM);
    for (int i = 0; i < 2; i++) end_work(i);
}

/* 64 processes join; the next one is refused, and works alone until one of them leaves. */
static void test_full(int unused) {
    int refused = SLOTS;
    (void)unused;
    start(SLOTS);
    begin_work(refused), finish(refused);
    for (int i = 0; i < SLOTS; i++) expect("joins", boxes[i].opened, MEMLORD_OK);
    expect("the next one", boxes[refused].opened, MEMLORD_E_LIMIT);
    for (int i = 0; i <= SLOTS; i++) ask(i, SET, 0, (uint64_t)1 << i % 40);
    settle(SLOTS + 1);
    expect("alone, a raise", ask(refused, RAISE, 0, 1), MEMLORD_E_STATE);
    end_work(5);
    boxes[5].opened = MEMLORD_E_STATE;
    expect("when one left", ask(refused, OPEN, 0, 0), MEMLORD_OK);
    ask(6, SET, 0, 8);
    expect("a raise on 63", ask(refused, RAISE, 0, UINT64_C(1) << 62), MEMLORD_E_OOM);
    await("what 63 gave", refused, READ, 0, 0);
    for (int i = 0; i <= SLOTS; i++)
        if (i != 5) end_work(i);
}

/* Of two processes with 17 devices each, 16 meet. */
static void test_devices(int unused) {
    worker w;
    char name[32];
    (void)unused;
    for (int p = 0; p < 2; p++) {
        if (p == 0 && begin(1) > 0) continue;
        if (p == 0) die_with_parent();
        create(&w, &boxes[p]);
        for (int i = 0; i <= DEVICES; i++) {
            memlord_result result;
            snprintf(name, sizeof name, "GPU-%d", i);
            result = memlord_device_id_set(w.lord, device_of(i), name);
            if (result != MEMLORD_OK) printf("device %d: %s\n", i, memlord_result_text(result));
            memlord_arena_add(w.lord, device_of(i), (uint64_t)1000 * (uint64_t)(p + 1), NULL);
        }
        expect("open", memlord_pressure_open(w.lord, page), MEMLORD_OK);
        if (p == 0) pause();
    }
    for (int i = 0; i < DEVICES; i++) {
        double until = now_ms() + PATIENCE_S * 1e3;
        while (neighbours_of(&w, i) != 1000)
            if (now_ms() > until) fail("the other one's", neighbours_of(&w, i), (uint64_t)i);
    }
    expect("the 17th", neighbours_of(&w, DEVICES), 0);
    expect("a raise on the 17th", memlord_pressure_raise(w.lord, device_of(DEVICES), 1),
           MEMLORD_E_UNKNOWN);
    kill_worker(1);
}

/* -- a page full of anything -- */

enum { PATTERNS = 6 };
static void spoil(unsigned char *map, size_t size, size_t from, size_t n, int pattern) {
    static const uint64_t words[PATTERNS] = {0, UINT64_MAX, INT64_MAX, 1, 0x8000000000000000u, 0};
    for (size_t i = from; i < from + n && i < size; i++)
        ((volatile unsigned char *)map)[i] = pattern == PATTERNS - 1
            ? (unsigned char)draw(256)
            : (unsigned char)(words[pattern] >> i % 8 * 8);
}

static unsigned char *map_page(size_t *size) {
    struct stat st;
    void *map;
    int file = open(page, O_RDWR | O_CLOEXEC);
    if (file < 0 || fstat(file, &st)) fail("the page", (uint64_t)errno, 0);
    *size = (size_t)st.st_size;
    map = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) fail("the page", (uint64_t)errno, 1);
    return (unsigned char *)map;
}

/* Every byte of the page is set to random values, again and again, while four processes use it. */
static void test_fuzz(int rounds) {
    unsigned char *map;
    size_t size;
    start(4);
    map = map_page(&size);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 4; i++) order(i, STORM, 0, 30);
        for (size_t at = 0; at < size;) {
            size_t n = 1 + (size_t)draw(round % 2 ? 64 : 16384);
            spoil(map, size, at, n, (int)draw(PATTERNS));
            at += n;
        }
        for (int i = 0; i < 4; i++) finish(i);
    }
    sleep_us(4 * POLL_MS * 1000);
    for (int i = 0; i < 4; i++) ask(i, SET, 0, 1000 * (uint64_t)(i + 1)), ask(i, SET, 1, 0);
    settle(4);
    begin_work(4), finish(4);
    expect("joins a page that has healed", boxes[4].opened, MEMLORD_OK);
    for (int i = 0; i < 4; i++) ask(i, SET, 0, 1000 * (uint64_t)(i + 1));
    settle(5);
    expect("a raise on it", ask(4, RAISE, 0, 2000), MEMLORD_OK);
    for (int i = 0; i < 5; i++) end_work(i);
}

/* A process alone on a page full of noise repairs the head and its slot. Of all else it changes
   single words: those that say which slots are taken. */
static void test_own(int unused) {
    enum { WORDS = 16 }; /* bytes of the head's two words */
    unsigned char *map, *noise;
    size_t size, run = 0, gap = 0, longest = 0, changed = 0;
    (void)unused;
    start(1);
    map = map_page(&size);
    noise = (unsigned char *)malloc(size);
    if (!noise) fail("malloc", size, 0);
    spoil(noise, size, 0, size, PATTERNS - 1);
    memcpy(map, noise, size);
    ask(0, STORM, 0, 30);
    kill(boxes[0].pid, SIGSTOP);
    for (size_t i = 0; i <= size; i++) {
        if (i < size && map[i] != noise[i]) {
            run += gap + 1, gap = 0, changed++;
        } else if (run && (++gap == 8 || i == size)) {
            if (longest && run > WORDS) fail("a second place was changed, up to", i, run);
            if (run > WORDS) longest = run;
            run = gap = 0;
        }
    }
    if (longest < 1000 || changed > longest + WORDS + 8 * SLOTS) fail("changed", changed, longest);
    kill_worker(0);
    free(noise);
}

/* -- what the script asks for -- */

static void test_open(int unused) { /* says what came of it */
    worker w;
    (void)unused;
    create(&w, &boxes[0]);
    printf("open: %s\n", memlord_result_text(memlord_pressure_open(w.lord, page)));
    set_bytes(&w, 0, 1000);
    expect("allocated", memlord_allocated(w.lord, device_of(0)), 1000);
    memlord_destroy(w.lord);
}

/* Each number that it reads is what its neighbours should have. */
static void test_stay(int bytes) {
    worker w;
    char line[32];
    create(&w, &boxes[0]);
    expect("open", memlord_pressure_open(w.lord, page), MEMLORD_OK);
    set_bytes(&w, 0, (uint64_t)bytes);
    printf("joined\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        uint64_t should = strtoull(line, NULL, 10);
        double until = now_ms() + PATIENCE_S * 1e3;
        while (neighbours_of(&w, 0) != should && now_ms() < until) sleep_us(1000);
        printf("%s\n", neighbours_of(&w, 0) == should ? "right" : "wrong");
        fflush(stdout);
    }
}

static void test_exec(int unused) { /* a program that it becomes has no descriptor of the page */
    worker w;
    (void)unused;
    create(&w, &boxes[0]);
    expect("open", memlord_pressure_open(w.lord, page), MEMLORD_OK);
    execlp("ls", "ls", "-l", "/proc/self/fd", (char *)NULL);
}

static memlord_gc_result note_reason(void *user, memlord *lord, const memlord_gc_event *event) {
    const memlord_gc_result result = {1, 0, 0};
    (void)lord;
    __atomic_store_n((uint64_t *)user, (uint64_t)event->reason + 1, __ATOMIC_RELEASE);
    return result;
}

/* A stall of the host's memory runs the cpu's callbacks and raises its level for a while; a trigger
   that is gone is looked at no more. */
static void test_stall(int unused) {
    const memlord_device cpu = memlord_device_cpu();
    static uint64_t reason;
    worker w;
    (void)unused;
    boxes[0].poll_ms = 20;
    create(&w, &boxes[0]);
    memlord_gc_callback_add(w.lord, cpu, 1u << MEMLORD_REASON_NEIGHBOUR, note_reason, &reason);
    memlord_arena_add(w.lord, cpu, 1, NULL);
    expect("open", memlord_pressure_open(w.lord, page), MEMLORD_OK);
    sleep_us(100000);
    expect("no stall", reason, 0);
    __atomic_store_n(&stall, POLLPRI, __ATOMIC_RELEASE);
    await_word("the reason", &reason, MEMLORD_REASON_NEIGHBOUR + 1);
    expect("the level", memlord_pressure_level(w.lord, cpu) >= MEMLORD_PRESSURE_WARNING, 1);
    __atomic_store_n(&stall, POLLERR, __ATOMIC_RELEASE);
    sleep_us(100000);
    reason = 0;
    __atomic_store_n(&stall, POLLPRI, __ATOMIC_RELEASE);
    sleep_us(200000);
    expect("after the trigger went", reason, 0);
    memlord_destroy(w.lord);
}

/* -- how fast -- */

static void *listen_bare(void *user) { /* a thread of each process, woken by a bare futex */
    box *b = (box *)user;
    uint32_t seen = __atomic_load_n(bell, __ATOMIC_ACQUIRE);
    for (;;) {
        syscall(SYS_futex, bell, FUTEX_WAIT, seen, NULL, NULL, 0);
        if (__atomic_load_n(bell, __ATOMIC_ACQUIRE) == seen) continue;
        seen = __atomic_load_n(bell, __ATOMIC_ACQUIRE);
        b->reached = now_ms();
        __atomic_fetch_add(&b->runs, 1, __ATOMIC_RELEASE); /* pairs with last_reached */
    }
    return NULL;
}

static double last_reached(int n, uint64_t runs) {
    double last = 0;
    for (int i = 1; i <= n; i++) {
        await_word("reached", &boxes[i].runs, runs);
        if (boxes[i].reached > last) last = boxes[i].reached;
    }
    return last;
}

/* A raise reaches 63 neighbours that sleep in at most twice the time of a bare broadcast. Both are
   measured in turns, and the shortest times count: load makes others longer, but none shorter.
   Under load it takes up to five times the rounds to find them. */
static void test_reach(int rounds) {
    enum { N = SLOTS - 1 };
    double bare = 1e9, raised = 1e9;
    uint64_t runs = 0;
    for (int i = 0; i <= N; i++) boxes[i].poll_ms = 60000;
    for (int i = 1; i <= N; i++) {
        if (begin(i) != 0) continue;
        worker w;
        pthread_t thread;
        die_with_parent();
        create(&w, &boxes[i]);
        expect("open", memlord_pressure_open(w.lord, page), MEMLORD_OK);
        set_bytes(&w, 0, 1 << 20);
        pthread_create(&thread, NULL, listen_bare, &boxes[i]);
        pthread_join(thread, NULL);
    }
    start(1);
    sleep_us(1000000);
    for (int round = 0; round < rounds || (raised > 2 * bare && round < 5 * rounds); round++) {
        double begun, took;
        sleep_us(20000);
        begun = now_ms();
        __atomic_fetch_add(bell, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
        took = last_reached(N, ++runs) - begun;
        if (took < bare) bare = took;
        sleep_us(20000);
        ask(0, RAISE, 0, 0);
        took = last_reached(N, ++runs) - boxes[0].reached;
        if (took < raised) raised = took;
    }
    fprintf(stderr, "bare futex %.3f ms, raise %.3f ms, ratio %.2f\n", bare, raised, raised / bare);
    for (int i = 1; i <= N; i++) kill_worker(i);
    end_work(0);
    if (raised > 2 * bare) fail("times the bare futex", 2, 0);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(int);
    } tests[] = {{"totals", test_totals}, {"kill", test_kill},   {"fork", test_fork},
                 {"forks", test_forks},   {"orphan", test_orphan}, {"stop", test_stop},
                 {"raise", test_raise},   {"levels", test_levels}, {"ids", test_ids},
                 {"full", test_full},     {"devices", test_devices}, {"fuzz", test_fuzz},
                 {"own", test_own},       {"nested", test_nested},
                 {"stale", test_stale},
                 {"open", test_open},     {"stay", test_stay},   {"exec", test_exec},
                 {"reach", test_reach},   {"stall", test_stall}};
    if (argc < 3) return 2;
    page = argv[2];
    seed = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
    prepare();
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (strcmp(argv[1], tests[i].name) != 0) continue;
        tests[i].run(argc > 3 ? atoi(argv[3]) : 0);
        return 0;
    }
    return 2;
}
