/* Hosts: fork, thread exit, constructors, late destructors, re-entry, tiny stacks. */
#include "support.h"
#include "child.h"

#include <pthread.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCALE test_env("MEMLORD_TEST_SCALE", 4)

/* -- before main -- */

static memlord_result constructed[2];
static uint64_t constructed_bytes;

__attribute__((constructor)) static void before_main(void) {
    memlord *lord = memlord_global();
    constructed[0] = memlord_alloc(lord, memlord_device_cpu(), 0xc0ffee00, 77, NULL);
    constructed_bytes = memlord_allocated(lord, memlord_device_cpu());
    constructed[1] = memlord_free(lord, memlord_device_cpu(), 0xc0ffee00, NULL);
}

static void a_constructor_may_use_the_global_ledger(void **state) {
    (void)state;
    assert_ok(constructed[0]);
    assert_ok(constructed[1]);
    assert_int_equal(constructed_bytes, 77);
    assert_int_equal(memlord_freed(memlord_global(), cpu()), 77);
}

static void a_setup_after_a_constructor_used_it_comes_too_late(void **state) {
    memlord *lord = memlord_global();
    memlord_desc desc;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_SITES;
    assert_int_equal(memlord_global_setup(&desc), MEMLORD_E_STATE);
    assert_ptr_equal(memlord_global(), lord);
    assert_int_equal(memlord_freed(lord, cpu()), 77);
}

/* -- fork -- */

static void expect_child(pid_t pid) {
    int status = -1;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) fail_msg("the child died of signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int discard(void *user, const void *data, size_t size) {
    (void)user;
    (void)data;
    (void)size;
    return 0;
}

/* Everything a child may want, on a ledger that was in use when it was born. */
static int use_after_fork(memlord *lord) {
    memlord_device npu = memlord_device_make(MEMLORD_DEVICE_NPU, 0);
    static const memlord_site site = {"child.c", "child", 1};
    uint64_t i;
    if (memlord_allocated(lord, npu) != 0) return 1;
    for (i = 1; i <= 200; i++)
        if (memlord_alloc(lord, npu, i * 64, i, &site)) return 2;
    if (memlord_allocated(lord, npu) != 20100) return 3;
    if (memlord_tag_begin(lord, "child") || memlord_tag_end(lord)) return 4;
    if (memlord_write(lord, MEMLORD_FORMAT_JSON, discard, NULL)) return 5; /* stops the map */
    for (i = 1; i <= 200; i++)
        if (memlord_free(lord, npu, i * 64, &site)) return 6;
    return memlord_allocated(lord, npu) != 0;
}

typedef struct churner {
    memlord *lord;
    uint64_t first;
    int *stop;
} churner;

static void *churn(void *user) {
    churner *c = (churner *)user;
    static const memlord_site site = {"churn.c", "churn", 1};
    uint64_t i = 0;
    while (!__atomic_load_n(c->stop, __ATOMIC_RELAXED)) {
        uint64_t key = c->first + (i++ % 4096) * 64;
        memlord_tag_begin(c->lord, i % 2 ? "odd" : "even");
        memlord_alloc(c->lord, memlord_device_cuda((int)(i % 3)), key, i, &site);
        memlord_tag_end(c->lord);
        if (i % 3) memlord_free(c->lord, memlord_device_cuda(0), key, &site);
        if (i % 1000 == 0) memlord_write(c->lord, MEMLORD_FORMAT_TEXT, discard, NULL);
    }
    return NULL;
}

/* With the ledger's own pages: the malloc of a sanitizer does not survive fork. */
static void a_child_born_under_load_never_hangs(void **state) {
    memlord *lord = NULL;
    pthread_t threads[3];
    churner churners[3];
    int stop = 0;
    uint64_t i, forks = 50 * SCALE;
    int status = 0; /* of the last child */
    (void)state;
    assert_ok(memlord_create(NULL, &lord));
    for (i = 0; i < 3; i++) {
        churners[i].lord = lord;
        churners[i].first = (i + 1) << 32;
        churners[i].stop = &stop;
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &churners[i]), 0);
    }
    for (i = 0; i < forks && status == 0; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(10);
            _exit(use_after_fork(lord) || memlord_verify(lord) != MEMLORD_OK);
        }
        if (waitpid(pid, &status, 0) != pid) status = -1;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 3; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(status, 0);
    assert_balanced(lord, all());
    assert_ok(memlord_verify(lord));
    memlord_destroy(lord);
}

static void a_child_goes_on_with_the_state_of_the_moment(void **state) {
    memlord *lord = test_lord(state);
    pid_t pid;
    assert_ok(memlord_tag_begin(lord, "parent"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    pid = fork();
    if (pid == 0) {
        int bad = memlord_allocated(lord, cpu()) != 100 ||
                  memlord_free(lord, cpu(), 0x1000, NULL) != MEMLORD_OK ||
                  memlord_allocated(lord, cpu()) != 0 ||
                  memlord_tag_end(lord) != MEMLORD_OK || use_after_fork(lord) ||
                  memlord_verify(lord) != MEMLORD_OK;
        memlord_destroy(lord);
        _exit(bad);
    }
    expect_child(pid);
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
}

static void a_grandchild_does_too(void **state) {
    memlord *lord = test_lord(state);
    pid_t pid;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    pid = fork();
    if (pid == 0) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) _exit(memlord_allocated(lord, cpu()) != 100 || use_after_fork(lord));
        if (waitpid(child, &status, 0) != child) status = -1;
        _exit(status != 0 || use_after_fork(lord));
    }
    expect_child(pid);
}

/* Hands out lower and lower addresses. */
static char falling_memory[16 << 20];
static size_t falling_left;
static void *falling_alloc(void *user, size_t size) {
    (void)user;
    if (size + 16 > falling_left) return NULL;
    falling_left = (falling_left - size) / 16 * 16;
    return falling_memory + falling_left;
}
static void falling_free(void *user, void *ptr, size_t size) {
    (void)user;
    (void)ptr;
    (void)size;
}

static void *share_and_part(void *user) {
    churner *c = (churner *)user;
    while (!__atomic_load_n(c->stop, __ATOMIC_RELAXED)) {
        if (memlord_device_share(c->lord, memlord_device_cuda(0), memlord_device_cpu()))
            return user;
        if (memlord_device_share(c->lord, memlord_device_cuda(0), memlord_device_cuda(0)))
            return user;
    }
    return NULL;
}

static void a_child_is_born_while_a_device_changes_places(void **state) {
    memlord *lord = NULL;
    memlord_desc desc;
    churner c;
    pthread_t thread;
    void *failed = NULL;
    uint64_t i;
    int stop = 0;
    (void)state;
    falling_left = sizeof falling_memory;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV;
    desc.allocator.alloc = falling_alloc;
    desc.allocator.free = falling_free;
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1, NULL));
    c.lord = lord;
    c.first = 0;
    c.stop = &stop;
    alarm(60); /* both would wait for ever */
    assert_int_equal(pthread_create(&thread, NULL, share_and_part, &c), 0);
    for (i = 0; i < 50 * SCALE; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(memlord_allocated(lord, memlord_device_all()) != 1);
        expect_child(pid);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    assert_int_equal(pthread_join(thread, &failed), 0);
    alarm(0);
    assert_null(failed);
    memlord_destroy(lord);
}

/* Forks in the middle of a report; the child takes so many checkpoints then, and with every piece
   after that, up to 3000, that those the report has begun to show must go. */
typedef struct brood {
    memlord *lord;
    pid_t child;
    int born, taken;
} brood;
static int fork_once(void *user, const void *data, size_t size) {
    brood *b = (brood *)user;
    int i;
    (void)data;
    (void)size;
    if (!b->born++) b->child = fork();
    for (i = 0; i < 300 && b->child == 0 && b->taken < 3000; i++) {
        char name[32];
        snprintf(name, sizeof name, "of the child %d", b->taken++);
        if (memlord_checkpoint(b->lord, name)) return 1;
    }
    return 0;
}

static void a_child_ends_the_report_it_was_born_in(void **state) {
    brood b;
    uint64_t i;
    memset(&b, 0, sizeof b);
    b.lord = test_lord(state);
    assert_ok(memlord_alloc(b.lord, cpu(), 0x1000, 100, NULL));
    for (i = 0; i < 255; i++) assert_ok(memlord_checkpoint(b.lord, i % 2 ? "odd" : "even"));
    assert_ok(memlord_write(b.lord, MEMLORD_FORMAT_JSON, fork_once, &b));
    if (b.child == 0) { /* and the next */
        alarm(60);
        b.taken = 0;
        _exit(memlord_write(b.lord, MEMLORD_FORMAT_JSON, fork_once, &b) != MEMLORD_OK);
    }
    expect_child(b.child);
}

/* -- threads that end -- */

static void *allocate_and_end(void *user) {
    uint64_t i;
    for (i = 1; i <= 100; i++)
        memlord_alloc((memlord *)user, memlord_device_cpu(), i * 64, 10, NULL);
    return NULL;
}

static memlord_gc_result collect_at_the_gate(void *user, memlord *lord,
                                             const memlord_gc_event *event) {
    const memlord_gc_result ran = {1, 0, 7};
    (void)lord;
    (void)event;
    test_gate_pass((test_gate *)user);
    return ran;
}
static void *collect_there(void *user) {
    uint64_t reclaimed;
    return (void *)(uintptr_t)memlord_gc_run((memlord *)user, memlord_device_cuda(0),
                                             MEMLORD_REASON_HOST, 0, &reclaimed);
}
static void a_child_born_while_a_callback_runs_can_collect(void **state) {
    memlord *lord = test_lord(state);
    test_gate gate = TEST_GATE;
    pthread_t thread;
    pid_t pid;
    assert_ok(memlord_gc_callback_add(lord, cuda(0), 0, collect_at_the_gate, &gate));
    assert_int_equal(pthread_create(&thread, NULL, collect_there, lord), 0);
    assert_true(test_gate_came(&gate, 1));
    pid = fork();
    if (pid == 0) {
        const test_gate open = TEST_GATE;
        uint64_t reclaimed = 0;
        alarm(30);
        gate = open; /* the thread that waits there is gone */
        gate.open = 1;
        if (memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, &reclaimed)) _exit(1);
        if (reclaimed != 7 || gate.came != 1) _exit(2);
        _exit(memlord_gc_callback_remove(lord, cuda(0), collect_at_the_gate, &gate) ? 3 : 0);
    }
    expect_child(pid);
    test_gate_open(&gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* A child collects where its parent would have: `before` and `after` are the bytes of one block
   before the threshold is set and after it, and `more` those of the child's block. */
static void a_child_collects(void **state, uint64_t before, uint64_t after, uint64_t more) {
    test_case *t = (test_case *)*state;
    pid_t pid;
    if (before) (void)grow(t, cuda(0), before);
    test_threshold(t->lord, MEMLORD_METRIC_ALLOCATED, 1000000);
    if (after) (void)grow(t, cuda(0), after);
    assert_int_equal(t->gc.runs, 0);
    pid = fork();
    if (pid == 0) {
        (void)grow(t, cuda(0), more);
        _exit(t->gc.runs == 1 && t->gc.last.value == before + after + more ? 0 : 1);
    }
    expect_child(pid);
    assert_int_equal(t->gc.runs, 0);
}
static void a_child_born_near_a_threshold_collects(void **state) {
    a_child_collects(state, 0, 999990, 10);
}
static void a_child_born_before_a_due_check_collects(void **state) {
    a_child_collects(state, 999990, 0, 10);
}
static void a_child_born_beyond_a_new_threshold_collects(void **state) {
    a_child_collects(state, 1500000, 0, 1);
}
/* The number of devices that are near goes on: the second one is not taken for the end of all. */
static void another_device_of_a_child_collects(void **state) {
    test_case *t = (test_case *)*state;
    pid_t pid;
    test_threshold(t->lord, MEMLORD_METRIC_ALLOCATED, 1000000);
    (void)grow(t, cuda(0), 999990);
    pid = fork();
    if (pid == 0) {
        (void)grow(t, cuda(1), 999990);
        (void)grow(t, cuda(1), 10);
        _exit(t->gc.runs == 1 && t->gc.last.device.index == 1 ? 0 : 1);
    }
    expect_child(pid);
}

static int is_set(void *user) { return *(int *)user; }
/* What calls have to look at goes on, too. */
static void a_child_retires_what_was_pending(void **state) {
    test_case *t = (test_case *)*state;
    int done = 0;
    memlord_fence fence = {is_set, NULL, 0, NULL};
    uint64_t key;
    pid_t pid;
    fence.user = &done;
    key = grow(t, cuda(0), 100);
    assert_ok(memlord_free_deferred(t->lord, cuda(0), key, fence, NULL));
    pid = fork();
    if (pid == 0) {
        int i;
        done = 1;
        for (i = 0; i < 1000; i++) (void)grow(t, cuda(0), 1);
        if (memlord_pending(t->lord, cuda(0))) _exit(1);
        _exit(memlord_freed(t->lord, cuda(0)) == 100 ? 0 : 2);
    }
    expect_child(pid);
    assert_int_equal(memlord_pending(t->lord, cuda(0)), 100);
    done = 1;
    assert_int_equal(memlord_retire(t->lord, cuda(0)), 100);
}

/* A thread waits for 1000 freed bytes; the child has a new thread on that one's stack. */
static int try_never(void *user, uint64_t bytes, uint64_t *storage) {
    (void)user, (void)bytes, (void)storage;
    return 1;
}
static void *wait_for_memory(void *user) {
    const memlord_retry policy = {1, 60000, 60000, 1, NULL, NULL};
    uint64_t got;
    (void)memlord_alloc_retry((memlord *)user, cuda(0), 1000, try_never, NULL, &policy, &got, NULL);
    return NULL;
}
static void *overwrite_the_stack(void *user) {
    volatile char bytes[64 << 10];
    size_t i;
    for (i = 0; i < sizeof bytes; i++) bytes[i] = 0x5a;
    return user;
}
static void a_child_wakes_no_thread_that_is_gone(void **state) {
    memlord *lord = test_lord(state);
    const struct timespec nap = {0, 200 * 1000 * 1000};
    pthread_t waits, other;
    pid_t pid;
    if (TEST_SANITIZED) skip(); /* no new threads in a child there */
    if (threads_of_a_child() != 1) skip(); /* nor in such an emulator */
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1000, NULL));
    assert_int_equal(pthread_create(&waits, NULL, wait_for_memory, lord), 0);
    nanosleep(&nap, NULL);
    pid = fork();
    if (pid == 0) {
        alarm(20);
        if (pthread_create(&other, NULL, overwrite_the_stack, NULL)) _exit(2);
        if (pthread_join(other, NULL)) _exit(3);
        _exit(memlord_free(lord, cuda(0), 0x1000, NULL) ? 4 : 0);
    }
    expect_child(pid);
    assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
    assert_int_equal(pthread_join(waits, NULL), 0);
}

static void the_counts_of_an_ended_thread_stay(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    uint64_t i;
    assert_int_equal(pthread_create(&thread, NULL, allocate_and_end, lord), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(memlord_allocated(lord, cpu()), 1000);
    assert_int_equal(stats_of(lord, cpu()).allocs, 100);
    for (i = 1; i <= 100; i++) assert_ok(memlord_free(lord, cpu(), i * 64, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 0);
    assert_balanced(lord, cpu());
}

/* A thread-local of the host whose destructor runs after the library's own, round after
   round. */
static pthread_key_t late_key;

/* As many as POSIX grants; the thread sanitizer is gone itself before the last of them. */
#define ROUNDS (TEST_SANITIZED ? 2 : 4)

typedef struct late {
    memlord *lord;
    uint64_t storage;
    int rounds;
    int bad;
} late;

static void free_late(void *user) {
    late *l = (late *)user;
    l->bad += memlord_free(l->lord, memlord_device_cpu(), l->storage++, NULL) != MEMLORD_OK;
    l->bad += memlord_alloc(l->lord, memlord_device_cpu(), l->storage + 100, 1, NULL) != MEMLORD_OK;
    l->bad += memlord_free(l->lord, memlord_device_cpu(), l->storage + 100, NULL) != MEMLORD_OK;
    if (++l->rounds < ROUNDS) pthread_setspecific(late_key, l);
}

static void *end_late(void *user) {
    late *l = (late *)user;
    uint64_t i;
    for (i = 0; i < ROUNDS; i++)
        memlord_alloc(l->lord, memlord_device_cpu(), l->storage + i, 10, NULL);
    pthread_setspecific(late_key, l);
    return NULL;
}

static void a_free_in_a_late_thread_local_destructor_counts(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t bytes = 0;
    int i;
    assert_int_equal(pthread_key_create(&late_key, free_late), 0);
    for (i = 0; i < 200; i++) {
        pthread_t thread;
        late l = {NULL, 0x1000, 0, 0};
        l.lord = t->lord;
        assert_int_equal(pthread_create(&thread, NULL, end_late, &l), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(l.rounds, ROUNDS);
        assert_int_equal(l.bad, 0);
        assert_int_equal(memlord_allocated(t->lord, cpu()), 0);
        if (i == 20) bytes = t->heap.bytes;
    }
    assert_int_equal(pthread_key_delete(late_key), 0);
    assert_int_equal(stats_of(t->lord, cpu()).frees, 200 * 2 * ROUNDS);
    assert_true(t->heap.bytes <= bytes + 4096);
}

/* A thread whose first call comes in the last round of destructors: no hook runs after it. */
static pthread_key_t last_key;

typedef struct last {
    memlord *lord;
    int round;
} last;

static void begin_in_the_last_round(void *user) {
    last *l = (last *)user;
    if (++l->round < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(last_key, l);
        return;
    }
    memlord_tag_begin(l->lord, "last");
    memlord_scope_begin(l->lord, "last");
    memlord_alloc(l->lord, memlord_device_cpu(), 0x1000, 10, NULL);
    memlord_free(l->lord, memlord_device_cpu(), 0x1000, NULL);
}
static void *end_in_the_last_round(void *user) {
    pthread_setspecific(last_key, user);
    return NULL;
}

static void threads_that_end_without_the_hook_are_found(void **state) {
    test_case *t = (test_case *)*state;
    memlord_scope_stat scope;
    memlord_block_info block;
    uint64_t bytes = 0, i, n = 300;
#if defined(__has_feature) /* the thread sanitizer is gone itself before the last round */
#if __has_feature(thread_sanitizer)
    skip();
#endif
#endif
    assert_ok(memlord_tag_begin(t->lord, "alive"));
    assert_int_equal(pthread_key_create(&last_key, begin_in_the_last_round), 0);
    for (i = 0; i < n; i++) {
        pthread_t thread;
        last l = {NULL, 0};
        l.lord = t->lord;
        assert_int_equal(pthread_create(&thread, NULL, end_in_the_last_round, &l), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (i == 40) bytes = t->heap.bytes;
    }
    assert_int_equal(pthread_key_delete(last_key), 0);
    assert_true(t->heap.bytes <= bytes);
    assert_ok(memlord_scope_get(t->lord, "last", &scope));
    assert_true(scope.count >= n - 40 && scope.count + scope.running == n);
    assert_ok(memlord_alloc(t->lord, cpu(), 0x1000, 10, NULL));
    assert_ok(memlord_block_find(t->lord, cpu(), 0x1000, &block));
    assert_string_equal(block.tag, "alive");
    assert_ok(memlord_tag_end(t->lord));
}

/* New sites and tags, in a destructor behind the library's. */
static pthread_key_t names_key;
static memlord_site names_sites[20000];
static uint64_t names_used;
static int names_end;

static void name_late(void *user) {
    memlord *lord = (memlord *)user;
    int i;
    for (i = 0; i < 50; i++) {
        uint64_t n = __atomic_fetch_add(&names_used, 1, __ATOMIC_RELAXED) % 20000;
        char tag[32];
        (void)snprintf(tag, sizeof tag, "late %d", (int)n);
        (void)memlord_alloc(lord, memlord_device_cpu(), (n + 1) * 64, 8, &names_sites[n]);
        (void)memlord_block_retag(lord, memlord_device_cpu(), (n + 1) * 64, tag);
    }
}
static void *end_with_names(void *user) {
    pthread_setspecific(names_key, user);
    memlord_alloc((memlord *)user, memlord_device_cuda(0), 0x1000, 1, NULL);
    return NULL;
}
static void *breed_threads(void *user) {
    while (!__atomic_load_n(&names_end, __ATOMIC_ACQUIRE)) {
        pthread_t thread;
        if (!pthread_create(&thread, NULL, end_with_names, user)) pthread_join(thread, NULL);
    }
    return NULL;
}
/* As many forks as fit into 30 seconds: under load one may take one of them. */
static int fork_beside_late_threads(void) {
    const time_t end = time(NULL) + 30;
    memlord_desc desc;
    memlord *lord;
    pthread_t threads[2];
    int i, status = 0;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_SITES | MEMLORD_FLAG_NO_ENV;
    for (i = 0; i < 20000; i++) {
        names_sites[i].file = "late.c";
        names_sites[i].function = "late";
        names_sites[i].line = i + 1;
    }
    if (memlord_create(&desc, &lord) || pthread_key_create(&names_key, name_late)) return 1;
    for (i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, breed_threads, lord)) return 2;
    for (i = 0; i < 100 && !status && time(NULL) < end; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(60);
            _exit(memlord_alloc(lord, cpu(), 64, 8, NULL) != MEMLORD_OK ||
                  memlord_block_retag(lord, cpu(), 64, "child") != MEMLORD_OK);
        }
        if (waitpid(pid, &status, 0) != pid) status = 3;
    }
    __atomic_store_n(&names_end, 1, __ATOMIC_RELEASE);
    for (i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return status;
}
static void a_fork_beside_threads_past_their_hook_never_hangs(void **state) {
    pid_t pid;
    (void)state;
    if (threads_of_a_child() != 1) skip(); /* such an emulator fails at a thread in a child */
    pid = fork();
    if (pid == 0) {
        alarm(120);
        _exit(fork_beside_late_threads() != 0);
    }
    expect_child(pid);
}

/* A collection whose callback forks goes on in both processes. */
static memlord_gc_result fork_inside(void *user, memlord *lord, const memlord_gc_event *event) {
    const memlord_gc_result result = {1, 0, 7};
    (void)lord, (void)event;
    *(pid_t *)user = fork();
    return result;
}
static void a_child_forked_in_a_collection_goes_on_with_it(void **state) {
    memlord *lord = test_lord(state);
    uint64_t reclaimed = 0;
    memlord_result r;
    pid_t pid = -1;
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1, NULL));
    assert_ok(memlord_gc_callback_add(lord, cuda(0), 0, fork_inside, &pid));
    r = memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, &reclaimed);
    if (!pid)
        _exit(r != MEMLORD_OK || reclaimed != 7 || stats_of(lord, cuda(0)).gc_runs != 1 ||
              memlord_gc_callback_remove(lord, cuda(0), fork_inside, &pid) != MEMLORD_OK);
    assert_ok(r);
    expect_child(pid);
    assert_int_equal(stats_of(lord, cuda(0)).gc_runs, 1);
}

/* What vfork and posix_spawn make: another process, on a thread's memory and thread-locals. */
typedef struct guest {
    memlord *lord;
    int ran, bad;
} guest;
static int call_as_a_guest(void *user) {
    guest *g = (guest *)user;
    g->ran = 1;
    g->bad += memlord_alloc(g->lord, memlord_device_cpu(), 0x1000, 10, NULL) != MEMLORD_OK;
    g->bad += memlord_tag_begin(g->lord, "guest") != MEMLORD_E_NOMEM;
    return 0;
}
static void *call_after_a_guest(void *user) {
    static char stack[1 << 18] __attribute__((aligned(64)));
    guest *g = (guest *)user;
    int status = -1;
    pid_t pid = clone(call_as_a_guest, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, g);
    g->bad += pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
    g->bad += memlord_tag_begin(g->lord, "host") != MEMLORD_OK;
    g->bad += memlord_free(g->lord, memlord_device_cpu(), 0x1000, NULL) != MEMLORD_OK;
    return NULL;
}
static void a_process_in_our_memory_takes_no_record(void **state) {
    guest g = {NULL, 0, 0};
    pthread_t thread;
    if (TEST_SANITIZED) skip();
    g.lord = test_lord(state);
    assert_int_equal(pthread_create(&thread, NULL, call_after_a_guest, &g), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (!g.ran) skip(); /* an emulator gives the process memory of its own */
    assert_int_equal(g.bad, 0);
}

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int stage;
    memlord *lord;
} gate;

static void gate_move(gate *g, int stage) {
    pthread_mutex_lock(&g->lock);
    g->stage = stage;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

static void gate_wait(gate *g, int stage) {
    pthread_mutex_lock(&g->lock);
    while (g->stage < stage) pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void *outlive(void *user) {
    gate *g = (gate *)user;
    memlord_alloc(g->lord, memlord_device_cpu(), 0x1000, 10, NULL);
    memlord_tag_begin(g->lord, "open");
    gate_move(g, 1);
    gate_wait(g, 2);
    memlord_alloc(g->lord, memlord_device_cpu(), 0x2000, 5, NULL);
    return NULL;
}

static void a_thread_may_outlive_a_ledger_it_used(void **state) {
    int i;
    (void)state;
    for (i = 0; i < 50; i++) {
        pthread_t thread;
        gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, NULL};
        assert_ok(memlord_create(NULL, &g.lord));
        assert_int_equal(pthread_create(&thread, NULL, outlive, &g), 0);
        gate_wait(&g, 1);
        memlord_destroy(g.lord);
        assert_ok(memlord_create(NULL, &g.lord));
        gate_move(&g, 2);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(memlord_allocated(g.lord, all()), 5);
        assert_int_equal(stats_of(g.lord, all()).allocs, 1);
        memlord_destroy(g.lord);
    }
}

/* -- re-entry -- */

typedef struct hooked {
    memlord *lord;
    uint64_t calls;
} hooked;

static void *hooked_alloc(void *user, size_t size) {
    hooked *h = (hooked *)user;
    void *p = malloc(size);
    __atomic_add_fetch(&h->calls, 1, __ATOMIC_RELAXED);
    if (p && h->lord) memlord_alloc(h->lord, memlord_device_cpu(), MEMLORD_KEY(p), size, NULL);
    return p;
}

static void hooked_free(void *user, void *ptr, size_t size) {
    hooked *h = (hooked *)user;
    (void)size;
    if (ptr && h->lord) memlord_free(h->lord, memlord_device_cpu(), MEMLORD_KEY(ptr), NULL);
    free(ptr);
}

static void *allocate_with_tags(void *user) {
    memlord *lord = (memlord *)user;
    uint64_t i, base = (uint64_t)(uintptr_t)&i << 8;
    static const memlord_site site = {"a.c", "f", 1};
    for (i = 1; i <= 5000; i++) {
        memlord_tag_begin(lord, i % 2 ? "odd" : "even");
        memlord_alloc(lord, memlord_device_cuda(0), base + i * 64, 1, &site);
        memlord_tag_end(lord);
    }
    for (i = 1; i <= 5000; i++) memlord_free(lord, memlord_device_cuda(0), base + i * 64, &site);
    return NULL;
}

/* An allocator that makes every other call, too: what records is passed through, and what would run
   host code or wait is refused. It stops at the first answer that it does not expect. */
typedef struct meddler {
    memlord *lord;
    memlord_ticket ticket; /* of cuda:1 */
    int at, wrong; /* the call that is made next; the first that was answered otherwise */
    int asked, collected, tried;
} meddler;
static int meddler_done(void *user) {
    ((meddler *)user)->asked++;
    return 0;
}
static memlord_gc_result meddler_collect(void *user, memlord *lord, const memlord_gc_event *event) {
    const memlord_gc_result ran = {1, 0, 0};
    (void)lord;
    (void)event;
    ((meddler *)user)->collected++;
    return ran;
}
static int meddler_try(void *user, uint64_t bytes, uint64_t *storage) {
    ((meddler *)user)->tried++;
    *storage = bytes;
    return 0;
}
static int meddler_part(void *user, const memlord_part_info *part) {
    (void)part;
    ((meddler *)user)->asked++;
    return 0;
}
static memlord_result meddle_once(meddler *m, int call, memlord_result *wanted) {
    memlord_block_info info;
    memlord *lord = m->lord;
    const memlord_device d = memlord_device_cuda(0);
    const memlord_block block = {d, 0x7000, 8};
    memlord_realloc_token token;
    memlord_alloc_opts closed;
    memlord_retry policy;
    uint64_t got = 0, reclaimed;
    memset(&policy, 0, sizeof policy);
    policy.multiplier = 1;
    memset(&closed, 0, sizeof closed);
    closed.ticket = 999; /* it is not open, which is no refusal here */
    *wanted = MEMLORD_OK;
    switch (call) {
    case 0: return memlord_alloc(lord, d, 0x7000, 8, NULL);
    case 1: return memlord_free(lord, d, 0x7000, NULL);
    case 2: return memlord_track(lord, d, 0x7000, 8, NULL);
    case 3: return memlord_retain(lord, d, 0x7000, NULL);
    case 4: return memlord_release(lord, d, 0x7000, NULL);
    case 5: return memlord_realloc(lord, d, 0x7000, 0x7100, 8, NULL);
    case 6: return memlord_alloc_n(lord, &block, 1, NULL);
    case 7: return memlord_free_n(lord, &block, 1, NULL);
    case 8: return memlord_arena_add(lord, d, 8, NULL);
    case 9: return memlord_move(lord, d, 0x7000, d, 0x7100, 8, NULL, NULL);
    case 10: return memlord_copy(lord, d, d, 8);
    case 11: return memlord_alloc_failed(lord, d, 8, NULL);
    case 12: return memlord_alloc_retry(lord, d, 8, meddler_try, m, &policy, &got, NULL);
    case 13: return memlord_gc_poll(lord, memlord_device_all());
    case 14: return memlord_retire(lord, memlord_device_all()) ? MEMLORD_E_INVALID : MEMLORD_OK;
    case 15: return memlord_realloc_begin(lord, d, 0x7000, &token) ||
                    memlord_realloc_end(lord, &token, 0x7100, 8, NULL);
    case 16: return memlord_free_begin(lord, d, 0x7000, &token, NULL) ||
                    memlord_free_end(lord, &token, 0, NULL);
    case 17: return memlord_free_done(lord, d, 0x1000);
    case 18: return memlord_account_use(lord, 0);
    case 19: return memlord_tag_default_set(lord, "inside");
    case 20: return memlord_tag_end(lord);
    case 21: return memlord_stream_set(lord, 7) ? MEMLORD_E_INVALID : MEMLORD_OK;
    case 22: memlord_reset(lord); return MEMLORD_OK;
    case 23: memlord_peak_reset(lord, d); return MEMLORD_OK;
    case 24: return memlord_site_of(lord, "a.c", "f", 1)->file[0] ? MEMLORD_E_INVALID : MEMLORD_OK;
    case 25: return memlord_find(memlord_generation(lord)) ? MEMLORD_E_INVALID : MEMLORD_OK;
    case 26: return memlord_parts_each(lord, d, 0x2000, meddler_part, m) ? MEMLORD_E_INVALID
                                                                         : MEMLORD_OK;
    case 27: return memlord_alloc_with(lord, d, 0x7000, 8, &closed);
    }
    *wanted = MEMLORD_E_STATE;
    switch (call) {
    case 28: return memlord_gc_run(lord, d, MEMLORD_REASON_HOST, 0, &reclaimed);
    case 29: return memlord_pressure_open(lord, "/tmp/memlord-never");
    case 30: return memlord_pressure_raise(lord, d, 1);
    case 31: return memlord_export_start(lord, "/tmp/memlord-never.prom", 0);
    case 32: return memlord_export_stop(lord);
    case 33: return memlord_reserve_adopt(lord, m->ticket);
    case 34: return memlord_stacks_set(lord, 8, 1);
    }
    *wanted = MEMLORD_E_UNKNOWN;
    switch (call) {
    case 35: return memlord_block_find(lord, d, 0x2000, &info);
    default: return MEMLORD_E_LIMIT; /* no further call */
    }
}
#define MEDDLES 36
static void *meddling_alloc(void *user, size_t size) {
    meddler *m = (meddler *)user;
    memlord_result wanted;
    if (m->lord && m->at < MEDDLES && !m->wrong) {
        const int call = m->at++;
        if (meddle_once(m, call, &wanted) != wanted) m->wrong = call + 1;
    }
    return malloc(size);
}
static void meddling_free(void *user, void *ptr, size_t size) {
    (void)user;
    (void)size;
    free(ptr);
}
static void an_allocator_that_makes_any_call_passes_through_or_is_refused(void **state) {
    meddler m;
    memlord_desc desc;
    memlord *lord;
    memlord_fence fence = {meddler_done, NULL, 1, NULL};
    uint64_t key;
    memlord_stats before, after;
    (void)state;
    memset(&m, 0, sizeof m);
    memset(&desc, 0, sizeof desc);
    desc.allocator.alloc = meddling_alloc;
    desc.allocator.free = meddling_free;
    desc.allocator.user = &m;
    desc.flags = MEMLORD_FLAG_NO_ENV | MEMLORD_FLAG_NO_THREADS;
    fence.user = &m;
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_gc_callback_add(lord, cuda(0), 0, meddler_collect, &m));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_free_deferred(lord, cuda(0), 0x1000, fence, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 100, NULL));
    assert_ok(memlord_part_add(lord, cuda(0), 0x2000, 0, 50, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), 0x3000, 100, NULL));
    assert_ok(memlord_free(lord, cuda(0), 0x3000, NULL)); /* a peak above what is live */
    assert_ok(memlord_reserve(lord, cuda(1), 64, &m.ticket));
    m.asked = 0;
    before = stats_of(lord, cuda(0));
    assert_int_equal(before.peak, before.allocated + 100);
    m.lord = lord;
    alarm(60);
    for (key = 1; m.at < MEDDLES && !m.wrong && key < 1000000; key++) /* the map grows */
        assert_ok(memlord_alloc(lord, cpu(), key << 21, 1, NULL));
    alarm(0);
    m.lord = NULL;
    if (m.wrong) fail_msg("call %d", m.wrong - 1);
    assert_int_equal(m.at, MEDDLES);
    assert_int_equal(m.tried, 1);
    assert_int_equal(m.asked + m.collected, 0);
    after = stats_of(lord, cuda(0));
    assert_memory_equal(&before, &after, sizeof after); /* not even a refusal is counted */
    assert_null(memlord_tag_current(lord));
    assert_int_equal(memlord_stream_set(lord, 0), 0);
    assert_ptr_equal(memlord_find(memlord_generation(lord)), lord);
    assert_ok(memlord_reserve_adopt(lord, m.ticket));
    assert_int_equal(access("/tmp/memlord-never", F_OK) + access("/tmp/memlord-never.prom", F_OK),
                     -2);
    memlord_destroy(lord);
}

/* An allocator that makes another ledger is refused, and nothing is left of that one. */
typedef struct maker {
    memlord *other;
    uint64_t calls;
    memlord_result made;
} maker;
static void *making_alloc(void *user, size_t size) {
    maker *m = (maker *)user;
    if (!m->calls++) m->made = memlord_create(NULL, &m->other);
    return malloc(size);
}
static void an_allocator_makes_no_other_ledger(void **state) {
    maker m;
    memlord_desc desc;
    memlord *lord;
    (void)state;
    memset(&m, 0xee, sizeof m);
    memset(&desc, 0, sizeof desc);
    desc.allocator.alloc = making_alloc;
    desc.allocator.free = meddling_free;
    desc.allocator.user = &m;
    desc.flags = MEMLORD_FLAG_NO_ENV;
    m.calls = 0;
    assert_ok(memlord_create(&desc, &lord));
    assert_int_equal(m.made, MEMLORD_E_STATE);
    assert_null(m.other);
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 100);
    assert_ok(memlord_verify(lord));
    memlord_destroy(lord);
}

static void an_allocator_that_calls_the_ledger_passes_through(void **state) {
    hooked h = {NULL, 0};
    memlord_desc desc;
    memlord_stats s;
    pthread_t threads[4];
    int i;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.allocator.alloc = hooked_alloc;
    desc.allocator.free = hooked_free;
    desc.allocator.user = &h;
    desc.flags = MEMLORD_FLAG_SITES | MEMLORD_FLAG_NO_ENV;
    assert_ok(memlord_create(&desc, &h.lord));
    alarm(60);
    for (i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_with_tags, h.lord), 0);
    for (i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    free(report_of(h.lord, MEMLORD_FORMAT_JSON));
    alarm(0);
    s = stats_of(h.lord, cuda(0));
    assert_true(h.calls > 0);
    assert_int_equal(s.allocated, 0);
    assert_int_equal(s.allocs, 20000);
    assert_int_equal(memlord_allocated(h.lord, cpu()), 0);
    assert_int_equal(stats_of(h.lord, all()).unknown_frees, 0);
    assert_int_equal(stats_of(h.lord, cpu()).allocs, 0);
    {
        memlord *lord = h.lord;
        h.lord = NULL;
        memlord_destroy(lord);
    }
}

typedef struct moving {
    memlord *lord; /* what the next allocation moves in */
    int calls, dropped;
} moving;

static int is_done(void *user) {
    (void)user;
    return 1;
}
static void count_drop(void *user) { ((moving *)user)->dropped++; }

static void *moving_alloc(void *user, size_t size) {
    moving *m = (moving *)user;
    memlord *lord = m->lord;
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    fence.done = is_done;
    fence.drop = count_drop;
    fence.user = m;
    m->calls++;
    m->lord = NULL;
    if (lord) {
        int before = m->calls;
        assert_ok(memlord_move(lord, cuda(0), 0x1000, cuda(0), 0x2000, 100, &fence, NULL));
        assert_int_equal(m->calls, before);
    }
    return malloc(size);
}
static void moving_free(void *user, void *ptr, size_t size) {
    (void)user, (void)size;
    free(ptr);
}

static void a_fenced_move_inside_the_allocator_passes_through(void **state) {
    moving m = {NULL, 0, 0};
    memlord_desc desc;
    memlord *lord;
    uint64_t i;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.allocator.alloc = moving_alloc;
    desc.allocator.free = moving_free;
    desc.allocator.user = &m;
    desc.flags = MEMLORD_FLAG_NO_ENV;
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    m.lord = lord;
    for (i = 0; i < 100000 && m.lord; i++)
        assert_ok(memlord_alloc(lord, cuda(0), 0x40000000 + i * 64, 1, NULL));
    assert_null(m.lord);
    assert_int_equal(m.dropped, 1);
    memlord_destroy(lord);
}

/* What an allocator gets that asks more of the ledger than to record. */
typedef struct asking {
    memlord *lord; /* what the next allocation asks */
    uint64_t generation;
    memlord *found;
    memlord_result verify, events, account, sample, checkpoint, snapshots, reserve, adopt, give_back;
    memlord_result collect, open, close, raise;
    int64_t headroom;
    uint64_t collected; /* inside */
    test_source source;
    test_gc gc;
} asking;

static void *asking_alloc(void *user, size_t size) {
    asking *a = (asking *)user;
    memlord *lord = a->lord;
    const memlord_scope_token token = {{1, 1}};
    memlord_scope_token out;
    memlord_account account;
    memlord_ticket ticket;
    a->lord = NULL;
    if (lord) {
        a->verify = memlord_verify(lord);
        a->events = memlord_events_start(lord, 16);
        a->account = memlord_account_open(lord, cpu(), "inside", 0, &account);
        a->sample = memlord_capacity_sample(lord, cuda(0));
        a->checkpoint = memlord_checkpoint(lord, "inside");
        a->snapshots = memlord_snapshots_start(lord, 100);
        a->headroom = memlord_headroom(lord, cuda(0));
        a->reserve = memlord_reserve(lord, cuda(0), 1, &ticket);
        a->adopt = memlord_scope_adopt(lord, &token);
        a->give_back = memlord_scope_return(lord, &token);
        a->collect = memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL);
        a->open = memlord_pressure_open(lord, "inside");
        a->close = memlord_pressure_close(lord);
        a->raise = memlord_pressure_raise(lord, cuda(0), 1);
        a->found = memlord_find(a->generation);
        memlord_reset(lord);
        memlord_peak_reset(lord, all());
        assert_ok(memlord_scope_begin(lord, "inside"));
        assert_ok(memlord_scope_shapes_set(lord, "inside"));
        assert_ok(memlord_scope_export(lord, &out));
        assert_int_equal(out.word[0] | out.word[1], 0);
        assert_ok(memlord_scope_end(lord));
        assert_ok(memlord_gc_poll(lord, all()));
        assert_ok(memlord_pool_set(lord, cuda(0), 5000, 0));
        a->collected = a->gc.runs;
    }
    return malloc(size);
}

static void an_allocator_cannot_make_the_ledger_sample_collect_or_save(void **state) {
    asking a;
    memlord_desc desc;
    memlord_band band = band_of(0, 101, MEMLORD_METRIC_RESERVED, 5000, 0);
    memlord *lord;
    memlord_result opened; /* E_UNSUPPORTED where there are no pages */
    char *json, page[64];
    uint64_t i;
    (void)state;
    memset(&a, 0, sizeof a);
    memset(&desc, 0, sizeof desc);
    desc.allocator.alloc = asking_alloc;
    desc.allocator.free = moving_free;
    desc.allocator.user = &a;
    desc.flags = MEMLORD_FLAG_NO_ENV | MEMLORD_FLAG_NO_THREADS;
    a.source.total = 100000;
    a.gc.answer.ran = 1;
    assert_ok(memlord_create(&desc, &lord));
    snprintf(page, sizeof page, "/tmp/memlord-test-%d-inside", (int)getpid());
    opened = memlord_pressure_open(lord, page);
    assert_ok(memlord_capacity_source_set(lord, MEMLORD_DEVICE_CUDA, test_source_ask, &a.source));
    assert_ok(memlord_gc_callback_add(lord, cuda(0), 0, test_gc_run, &a.gc));
    assert_ok(memlord_strategy_set(lord, all(), &band, 1));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    a.generation = memlord_generation(lord);
    assert_ptr_equal(memlord_find(a.generation), lord);
    a.lord = lord;
    for (i = 0; i < 100000 && a.lord; i++)
        assert_ok(memlord_alloc(lord, cuda(1), 0x40000000 + i * 64, 1, NULL));
    assert_int_equal(a.verify, MEMLORD_E_STATE);
    assert_int_equal(a.events, MEMLORD_E_STATE);
    assert_int_equal(a.account, MEMLORD_E_STATE);
    assert_int_equal(a.sample, MEMLORD_E_STATE);
    assert_ok(a.checkpoint);
    assert_int_equal(a.snapshots, MEMLORD_E_STATE);
    assert_true(a.headroom == INT64_MAX);
    assert_int_equal(a.reserve, MEMLORD_E_STATE);
    assert_ok(a.adopt);
    assert_ok(a.give_back);
    assert_int_equal(a.collect, MEMLORD_E_STATE);
    assert_int_equal(a.open, MEMLORD_E_STATE);
    assert_int_equal(a.close, opened == MEMLORD_OK ? MEMLORD_E_STATE : MEMLORD_OK);
    assert_int_equal(a.raise, MEMLORD_E_STATE);
    assert_ptr_equal(a.found, lord); /* as the thread had found it last */
    assert_int_equal(stats_of(lord, cuda(0)).total_allocated, 100); /* the epoch is the first one */
    assert_int_equal(a.source.calls, 0);
    assert_int_equal(a.collected, 0);
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 5000);
    assert_ok(memlord_pool_set(lord, cuda(0), 5001, 0));
    assert_int_equal(a.gc.runs, 1);
    assert_true(memlord_headroom(lord, cuda(0)) == 100000 - 5001);
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_null(strstr(json, "inside"));
    free(json);
    assert_ok(memlord_verify(lord));
    memlord_destroy(lord);
    (void)unlink(page);
}

/* -- tiny stacks -- */

static void *live_on_a_tiny_stack(void *user) {
    memlord *lord = (memlord *)user;
    memlord_stats stats;
    char line[128];
    uint64_t i;
    int bad = 0;
    for (i = 1; i <= 3000; i++)
        bad |= memlord_alloc(lord, memlord_device_cpu(), i * 64, 1, NULL) != MEMLORD_OK;
    bad |= memlord_tag_begin(lord, "tiny") || memlord_tag_end(lord);
    bad |= memlord_stats_get(lord, memlord_device_all(), &stats) != MEMLORD_OK;
    bad |= memlord_summary(lord, line, sizeof line) == 0;
    bad |= memlord_write(lord, MEMLORD_FORMAT_TEXT, discard, NULL) != MEMLORD_OK;
    bad |= memlord_write(lord, MEMLORD_FORMAT_JSON, discard, NULL) != MEMLORD_OK;
    for (i = 1; i <= 3000; i++)
        bad |= memlord_free(lord, memlord_device_cpu(), i * 64, NULL) != MEMLORD_OK;
    return bad ? user : NULL;
}

static void a_stack_of_16_kilobytes_is_enough(void **state) {
    memlord *lord = test_lord(state);
    pthread_attr_t attr;
    pthread_t thread;
    size_t size = TEST_SANITIZED ? 1 << 20 : 16384;
    void *bad = lord;
    assert_int_equal(pthread_attr_init(&attr), 0);
    /* some processors' threads have no stack so small: 128 KiB at least on aarch64 */
    while (pthread_attr_setstacksize(&attr, size)) assert_true((size *= 2) <= 1 << 20);
    assert_int_equal(pthread_create(&thread, &attr, live_on_a_tiny_stack, lord), 0);
    assert_int_equal(pthread_join(thread, &bad), 0);
    assert_int_equal(pthread_attr_destroy(&attr), 0);
    assert_null(bad);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

/* -- after main -- */

static void use_at_exit(void) {
    memlord *lord = memlord_global();
    if (memlord_free(lord, memlord_device_cpu(), 0x5000, NULL) != MEMLORD_OK ||
        memlord_alloc(lord, memlord_device_cpu(), 0x6000, 1, NULL) != MEMLORD_OK ||
        memlord_allocated(lord, memlord_device_cpu()) != 1)
        _exit(9);
}

static void an_exit_handler_may_use_the_global_ledger(void **state) {
    pid_t pid;
    (void)state;
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        alarm(30);
        atexit(use_at_exit);
        memlord_alloc(memlord_global(), memlord_device_cpu(), 0x5000, 100, NULL);
        exit(0);
    }
    expect_child(pid);
}

/* -- the shim's pages -- */

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static char *map_at(memlord *lord, char *at, size_t pages, int flags, const memlord_site *site) {
    void *p = memlord_shim_mmap(lord, at, pages * page(), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0, site);
    assert_true(p != MAP_FAILED);
    return (char *)p;
}
static void unmap(memlord *lord, char *at, size_t pages) {
    assert_int_equal(memlord_shim_munmap(lord, at, pages * page(), NULL), 0);
}
static void pages_live(memlord *lord, size_t pages, size_t blocks) {
    memlord_stats s;
    assert_ok(memlord_stats_get(lord, memlord_device_all(), &s));
    assert_int_equal(s.allocated, pages * page());
    assert_int_equal(s.live_blocks, blocks);
    assert_int_equal(s.unknown_frees + s.implicit_frees, 0);
}

static void unmapping_a_whole_mapping_ends_its_block(void **state) {
    memlord *lord = test_lord(state);
    char *m = map_at(lord, NULL, 64, 0, NULL);
    pages_live(lord, 64, 1);
    unmap(lord, m, 64);
    pages_live(lord, 0, 0);
    m = (char *)memlord_shim_mmap(lord, NULL, page() + 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
                                  -1, 0, NULL);
    assert_int_equal(memlord_allocated(lord, cpu()), page() + 1);
    unmap(lord, m, 2); /* the same pages */
    pages_live(lord, 0, 0);
}

static void unmapping_anything_else_is_unknown_and_ends_nothing(void **state) {
    memlord *lord = test_lord(state);
    char *m = map_at(lord, NULL, 8, 0, NULL);
    memlord_stats s;
    unmap(lord, m + page(), 1); /* a hole */
    unmap(lord, m, 1);
    assert_ok(memlord_stats_get(lord, cpu(), &s));
    assert_int_equal(s.unknown_frees, 2);
    assert_int_equal(s.allocated, 8 * page());
    assert_int_equal(s.live_blocks, 1);
    unmap(lord, m, 8);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void a_fixed_mapping_takes_the_place_of_the_block_that_begins_there(void **state) {
    memlord *lord = test_lord(state);
    char *m = map_at(lord, NULL, 8, 0, NULL), *n;
    memlord_stats s;
    n = (char *)memlord_shim_mmap(lord, m, page(), PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0, NULL);
    assert_true(n == (char *)MAP_FAILED && errno == EBADF);
    pages_live(lord, 8, 1);
    (void)map_at(lord, m, 8, MAP_FIXED, NULL);
    assert_ok(memlord_stats_get(lord, cpu(), &s));
    assert_int_equal(s.allocated, 8 * page());
    assert_int_equal(s.live_blocks, 1);
    assert_int_equal(s.implicit_frees, 1);
    unmap(lord, m, 8);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void what_cannot_be_unmapped_stays(void **state) {
    memlord *lord = test_lord(state);
    char *m = map_at(lord, NULL, 2, 0, NULL);
    assert_int_equal(memlord_shim_munmap(lord, m + 1, page(), NULL), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(memlord_shim_munmap(lord, m, 0, NULL), -1);
    assert_int_equal(memlord_shim_munmap(lord, m, SIZE_MAX, NULL), -1);
    assert_int_equal(memlord_shim_munmap(lord, m, SIZE_MAX / page() * page(), NULL), -1);
    pages_live(lord, 2, 1);
    unmap(lord, m, 2);
    pages_live(lord, 0, 0);
}

static void a_block_that_cannot_be_unmapped_keeps_its_site_and_tag(void **state) {
    static const memlord_site mapper = {"map.c", "f", 1}, cutter = {"cut.c", "g", 2};
    memlord *lord = test_lord(state);
    memlord_block_info left;
    assert_ok(memlord_sites_enable(lord, 1));
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1001, page(), &mapper)); /* no page begins there */
    assert_ok(memlord_tag_end(lord));
    errno = 0;
    assert_int_equal(memlord_shim_munmap(lord, (void *)(uintptr_t)0x1001, page(), &cutter), -1);
    assert_int_equal(errno, EINVAL);
    pages_live(lord, 1, 1);
    assert_ok(memlord_block_find(lord, cpu(), 0x1001, &left));
    assert_string_equal(left.site->file, "map.c");
    assert_string_equal(left.tag, "weights");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_constructor_may_use_the_global_ledger),
        cmocka_unit_test(a_setup_after_a_constructor_used_it_comes_too_late),
        TEST_SITES(a_child_born_under_load_never_hangs),
        TEST(a_child_goes_on_with_the_state_of_the_moment),
        TEST(a_grandchild_does_too),
        cmocka_unit_test(a_child_is_born_while_a_device_changes_places),
        TEST(a_child_ends_the_report_it_was_born_in),
        TEST(a_child_born_while_a_callback_runs_can_collect),
        TEST_FAKES(a_child_born_near_a_threshold_collects),
        TEST_FAKES(a_child_born_before_a_due_check_collects),
        TEST_FAKES(a_child_born_beyond_a_new_threshold_collects),
        TEST_FAKES(another_device_of_a_child_collects),
        TEST_FAKES(a_child_retires_what_was_pending),
        TEST(a_child_wakes_no_thread_that_is_gone),
        TEST(the_counts_of_an_ended_thread_stay),
        TEST(a_free_in_a_late_thread_local_destructor_counts),
        TEST(threads_that_end_without_the_hook_are_found),
        cmocka_unit_test(a_fork_beside_threads_past_their_hook_never_hangs),
        TEST(a_child_forked_in_a_collection_goes_on_with_it),
        TEST(a_process_in_our_memory_takes_no_record),
        cmocka_unit_test(a_thread_may_outlive_a_ledger_it_used),
        cmocka_unit_test(an_allocator_that_makes_any_call_passes_through_or_is_refused),
        cmocka_unit_test(an_allocator_makes_no_other_ledger),
        cmocka_unit_test(an_allocator_that_calls_the_ledger_passes_through),
        cmocka_unit_test(a_fenced_move_inside_the_allocator_passes_through),
        cmocka_unit_test(an_allocator_cannot_make_the_ledger_sample_collect_or_save),
        TEST(a_stack_of_16_kilobytes_is_enough),
        cmocka_unit_test(an_exit_handler_may_use_the_global_ledger),
        TEST(unmapping_a_whole_mapping_ends_its_block),
        TEST(unmapping_anything_else_is_unknown_and_ends_nothing),
        TEST(a_fixed_mapping_takes_the_place_of_the_block_that_begins_there),
        TEST(what_cannot_be_unmapped_stays),
        TEST(a_block_that_cannot_be_unmapped_keeps_its_site_and_tag),
    };
    return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}
