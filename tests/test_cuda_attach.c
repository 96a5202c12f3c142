/* Attaching and detaching: who may, what it leaves, what happens without a driver. */
#include "support_cuda.h"

#include <dlfcn.h>
#include <math.h>

static void a_null_ledger_is_attached_to_nothing(void **state) {
    memlord_cuda_pool figures;
    (void)state;
    assert_ok(memlord_cuda_attach(NULL, NULL));
    assert_ok(memlord_cuda_detach(NULL));
    assert_int_equal(memlord_cuda_attached(NULL), 0);
    assert_ok(memlord_cuda_pool_get(NULL, 0, &figures));
    assert_int_equal(figures.pools, 0);
    assert_ok(memlord_cuda_checkpoint(NULL, "loaded"));
    assert_int_equal(fake.contexts, 0);
}

static void attach_creates_no_context(void **state) {
    assert_int_equal(memlord_cuda_attached(test_lord(state)), 1);
    assert_int_equal(fake.contexts, 0);
    assert_int_equal(fake.set_devices, 0);
    assert_slot(cudaSuccess);
}

static void detach_takes_off_the_source_and_the_callback(void **state) {
    memlord *lord = test_lord(state);
    fake_activate(0);
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_ok(memlord_cuda_detach(lord));
    assert_int_equal(memlord_cuda_attached(lord), 0);
    assert_int_equal(memlord_capacity_sample(lord, cuda(0)), MEMLORD_E_UNSUPPORTED);
    assert_int_equal(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(fake.nvml_inits, 0);
}

static void a_strategy_for_one_gpu_asks_the_layer_for_that_one_alone(void **state) {
    memlord *lord = test_lord(state);
    memlord_band band = band_of(0, 101, MEMLORD_METRIC_ALLOCATED, 1000, 0);
    fake_activate(0);
    fake_activate(1);
    assert_ok(memlord_strategy_set(lord, cuda(1), &band, 1));
    assert_ok(memlord_alloc(lord, cuda(0), 1000, 5000, NULL));
    assert_int_equal(stats_of(lord, all()).gc_runs, 0);
    assert_ok(memlord_alloc(lord, cuda(1), 2000, 5000, NULL));
    assert_int_equal(stats_of(lord, cuda(1)).gc_runs, 1);
    assert_int_equal(stats_of(lord, cuda(0)).gc_runs, 0);
}

static void bands_of_the_hosts_callback_ask_the_layer_for_nothing(void **state) {
    test_case *t = (test_case *)*state;
    fake_activate(0);
    t->gc.answer.ran = 1;
    assert_ok(memlord_gc_callback_add(t->lord, cuda(0), 0, test_gc_run, &t->gc));
    assert_ok(memlord_limit_set(t->lord, cuda(0), 1000)); /* the default strategy: a tenth freed */
    assert_ok(memlord_alloc(t->lord, cuda(0), 1000, 800, NULL));
    assert_ok(memlord_alloc(t->lord, cuda(0), 2000, 100, NULL));
    assert_ok(memlord_free(t->lord, cuda(0), 2000, NULL));
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(fake_count("cuMemPoolTrimTo"), 0);
}

static void detach_of_what_is_not_attached_is_unknown(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_cuda_detach(lord));
    assert_int_equal(memlord_cuda_detach(lord), MEMLORD_E_UNKNOWN);
}

static void a_second_attach_takes_the_place_of_the_first(void **state) {
    memlord *lord = test_lord(state);
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_NO_TRIM, 0, NULL, "libnvml-v2.so"};
    fake_activate(0);
    assert_ok(memlord_cuda_attach(lord, &desc));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL), MEMLORD_E_UNKNOWN);
    desc.flags = 0;
    assert_ok(memlord_cuda_attach(lord, &desc));
    assert_ok(memlord_cuda_attach(lord, &desc));
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_int_equal(fake_count("cuMemPoolTrimTo"), 1); /* one callback, not three */
    assert_int_equal(fake.nvml_inits, 1);
}

static void parts_that_the_host_has_itself_are_left_alone(void **state) {
    test_case *t = (test_case *)*state;
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_NO_CAPACITY, 0, NULL, NULL};
    memlord_capacity now;
    assert_ok(memlord_capacity_source_set(t->lord, MEMLORD_DEVICE_CUDA, test_source_ask,
                                          &t->source));
    assert_ok(memlord_cuda_attach(t->lord, &desc));
    test_capacity(t, 100, 40);
    assert_ok(memlord_cuda_detach(t->lord));
    test_capacity(t, 100, 50);
    assert_ok(memlord_capacity_get(t->lord, cuda(0), &now));
    assert_int_equal(now.used, 50);
}

static void a_bad_policy_is_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_retry policy = {1, 10, 5, 1.0, NULL, NULL};
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_RETRY, 0, NULL, NULL};
    desc.retry = &policy;
    assert_int_equal(memlord_cuda_attach(lord, &desc), MEMLORD_E_INVALID);
    policy.max_ms = 10;
    policy.multiplier = 0.5;
    assert_int_equal(memlord_cuda_attach(lord, &desc), MEMLORD_E_INVALID);
    policy.multiplier = HUGE_VAL;
    assert_int_equal(memlord_cuda_attach(lord, &desc), MEMLORD_E_INVALID);
    assert_int_equal(memlord_cuda_attached(lord), 0);
}

static void more_ledgers_than_seats_are_refused_and_not_attached(void **state) {
    memlord *lords[20];
    int i, seated = 0;
    (void)state;
    for (i = 0; i < 20; i++) {
        memlord_result r;
        assert_ok(memlord_create(NULL, &lords[i]));
        r = memlord_cuda_attach(lords[i], NULL);
        assert_true(r == MEMLORD_OK || r == MEMLORD_E_STATE);
        seated += r == MEMLORD_OK;
    }
    assert_int_equal(seated, 16);
    for (i = 20; i--;) {
        assert_int_equal(memlord_cuda_detach(lords[i]), i < 16 ? MEMLORD_OK : MEMLORD_E_UNKNOWN);
        memlord_destroy(lords[i]);
    }
}

static void the_scoped_form_ends_with_its_block(void **state) {
    memlord *lord = test_lord(state);
    MEMLORD_CUDA_ATTACHED(lord, NULL) { assert_int_equal(memlord_cuda_attached(lord), 1); }
    assert_int_equal(memlord_cuda_attached(lord), 0);
    MEMLORD_CUDA_ATTACHED(lord, NULL) { break; }
    assert_int_equal(memlord_cuda_attached(lord), 0);
}

static void a_ledger_without_memory_is_left_unattached(void **state) {
    test_case *t = (test_case *)*state;
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    while (memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_HIP), 0, test_gc_run, &t->gc) ==
           MEMLORD_OK)
        continue; /* takes up what the ledger has left */
    assert_int_equal(memlord_cuda_attach(t->lord, NULL), MEMLORD_E_NOMEM);
    t->heap.fail_at = 0;
    assert_int_equal(memlord_cuda_attached(t->lord), 0);
    assert_int_equal(memlord_capacity_sample(t->lord, cuda(0)), MEMLORD_E_UNSUPPORTED);
    assert_int_equal(fake.nvml_inits, 0);
}

/* -- without a driver, or with a bad one: in a process that has not asked yet -- */

static void child_without_driver(void *user) {
    memlord *lord = NULL;
    void *ptr = NULL;
    (void)user;
    fake_reset(1);
    fake.no_driver = 1;
    child_check(memlord_create(NULL, &lord) == MEMLORD_OK);
    child_check(memlord_cuda_attach(lord, NULL) == MEMLORD_E_UNSUPPORTED);
    child_check(memlord_cuda_attach(lord, NULL) == MEMLORD_E_UNSUPPORTED);
    child_check(fake_count("cuInit") == 1); /* asked once */
    child_check(!strcmp(memlord_cuda_why(), "cuInit answered 100"));
    child_check(cudaPeekAtLastError() == cudaSuccess);
    child_check(memlord_cuda_detach(lord) == MEMLORD_E_UNKNOWN);
    child_check(memlord_cuda_malloc(lord, &ptr, 64, NULL) == cudaErrorInsufficientDriver);
    child_check(cudaGetLastError() == cudaErrorInsufficientDriver); /* the host's own call */
    child_check(memlord_cuda_free(lord, NULL, NULL) == cudaErrorInsufficientDriver);
    child_check(memlord_allocated(lord, memlord_device_all()) == 0);
    memlord_destroy(lord);
}

static void without_a_driver_attach_says_so_and_wrappers_pass_through(void **state) {
    (void)state;
    in_child(child_without_driver, NULL);
}

static int driver_is_loaded(void) { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != NULL; }

static void child_with_no_device(void *user) {
    memlord *lord = NULL;
    (void)user;
    fake_reset(0);
    child_check(!driver_is_loaded());
    child_check(memlord_create(NULL, &lord) == MEMLORD_OK);
    child_check(memlord_cuda_attach(lord, NULL) == MEMLORD_E_UNSUPPORTED);
    child_check(fake_count("cuInit") == 1 && driver_is_loaded());
    child_check(!strcmp(memlord_cuda_why(), "there is no device"));
    memlord_destroy(lord);
}

static void a_driver_that_was_begun_is_not_unloaded(void **state) {
    (void)state;
    in_child(child_with_no_device, NULL);
}

static void child_with_failing_load(void *user) {
    memlord *lord = NULL;
    memlord_result r;
    void *ptr = NULL;
    fake_reset(2);
    fake.fail_at = *(uint64_t *)user;
    child_check(memlord_create(NULL, &lord) == MEMLORD_OK);
    r = memlord_cuda_attach(lord, NULL);
    child_check(r == MEMLORD_OK || r == MEMLORD_E_UNSUPPORTED);
    child_check((r == MEMLORD_OK) == memlord_cuda_attached(lord));
    child_check((r == MEMLORD_OK) == !*memlord_cuda_why());
    fake.fail_at = 0;
    child_check(cudaPeekAtLastError() == cudaSuccess && fake.contexts == 0 && !fake_depth());
    child_check(memlord_cuda_malloc(lord, &ptr, 64, NULL) == cudaSuccess);
    child_check(memlord_allocated(lord, memlord_device_cuda(0)) == 64);
    child_check(memlord_cuda_free(lord, ptr, NULL) == cudaSuccess);
    if (r == MEMLORD_OK) child_check(memlord_cuda_detach(lord) == MEMLORD_OK);
    child_check(fake.nvml_inits == 0 || *(uint64_t *)user > 2);
    memlord_destroy(lord);
}

static void any_call_of_the_first_attach_may_fail(void **state) {
    uint64_t n;
    (void)state;
    for (n = 1; n <= 16; n++) in_child(child_with_failing_load, &n);
}

static void child_with_null_ledger(void *user) {
    void *ptr = NULL;
    (void)user;
    fake_reset(1);
    child_check(memlord_cuda_malloc_async(NULL, &ptr, 64, NULL, NULL) == cudaSuccess);
    child_check(memlord_cuda_free_async(NULL, ptr, NULL, NULL) == cudaSuccess);
    child_check(memlord_cuda_stream_synchronize(NULL, NULL, NULL) == cudaSuccess);
    child_check(memlord_cuda_device_synchronize(NULL, NULL) == cudaSuccess);
    child_check(fake.calls == 4 && !driver_is_loaded());
}

static void a_null_ledger_loads_no_driver(void **state) {
    (void)state;
    in_child(child_with_null_ledger, NULL);
}

static void child_with_one_device(void *user) {
    memlord *lord = NULL;
    void *ptr = NULL;
    uint64_t asked;
    (void)user;
    fake_reset(1);
    child_check(memlord_create(NULL, &lord) == MEMLORD_OK);
    child_check(memlord_cuda_malloc(lord, &ptr, 64, NULL) == cudaSuccess); /* loads the driver */
    asked = fake.calls;
    child_check(memlord_cuda_malloc(lord, &ptr, 64, NULL) == cudaSuccess);
    child_check(memlord_cuda_free(lord, ptr, NULL) == cudaSuccess);
    child_check(memlord_cuda_malloc_async(lord, &ptr, 64, NULL, NULL) == cudaSuccess);
    child_check(memlord_allocated(lord, memlord_device_cuda(0)) == 128);
    child_check(memlord_cuda_free_async(lord, ptr, NULL, NULL) == cudaSuccess);
    child_check(fake.calls == asked + 4); /* the real ones: no question where it is */
    memlord_destroy(lord);
}

static void with_one_device_no_call_asks_which(void **state) {
    (void)state;
    in_child(child_with_one_device, NULL);
}

static void child_integrated(void *user) {
    memlord *lord = NULL;
    memlord_capacity gpu, host;
    void *ptr = NULL;
    (void)user;
    fake_reset(2);
    fake.device[1].integrated = 1;
    child_check(memlord_create(NULL, &lord) == MEMLORD_OK);
    child_check(memlord_cuda_attach(lord, NULL) == MEMLORD_OK);
    child_check(memlord_capacity_sample(lord, memlord_device_cuda(1)) == MEMLORD_OK);
    child_check(memlord_capacity_get(lord, memlord_device_cuda(1), &gpu) == MEMLORD_OK);
    child_check(memlord_capacity_get(lord, memlord_device_cpu(), &host) == MEMLORD_OK);
    child_check(gpu.known && gpu.total == host.total && gpu.used == host.used);
    child_check(gpu.total != fake.device[1].total && fake.contexts == 0);
    child_check(cudaSetDevice(1) == cudaSuccess);
    child_check(memlord_cuda_malloc(lord, &ptr, 64, NULL) == cudaSuccess);
    child_check(memlord_allocated(lord, memlord_device_cuda(1)) == 64);
    child_check(memlord_cuda_detach(lord) == MEMLORD_OK); /* on its own again, and unknown */
    child_check(memlord_capacity_sample(lord, memlord_device_cuda(1)) == MEMLORD_E_UNSUPPORTED);
    memlord_destroy(lord);
}

static void an_integrated_gpu_has_what_is_available_on_the_host(void **state) {
    (void)state;
    in_child(child_integrated, NULL);
}

static uint64_t reserved_of(memlord *lord, int device) {
    memlord_stats s;
    child_check(memlord_stats_get(lord, memlord_device_cuda(device), &s) == MEMLORD_OK);
    return s.reserved;
}

static void child_integrated_pool(void *user) {
    memlord *lord = NULL;
    void *ptr[64];
    int i;
    (void)user;
    fake_reset(2);
    fake.device[1].integrated = 1;
    child_check(memlord_create(NULL, &lord) == MEMLORD_OK);
    child_check(memlord_cuda_attach(lord, NULL) == MEMLORD_OK);
    child_check(cudaSetDevice(1) == cudaSuccess);
    for (i = 0; i < 64; i++) {
        child_check(memlord_cuda_malloc_async(lord, &ptr[i], MIB, NULL, NULL) == cudaSuccess);
        if (i == 0) child_check(reserved_of(lord, 1) == MIB);
    }
    child_check(memlord_cuda_free_async(lord, ptr[0], NULL, NULL) == cudaSuccess);
    child_check(reserved_of(lord, 1) == 64 * MIB);
    child_check(memlord_cuda_device_synchronize(lord, NULL) == cudaSuccess); /* it gives back */
    child_check(reserved_of(lord, 1) == 63 * MIB && fake.contexts == 1);
    child_check(memlord_cuda_detach(lord) == MEMLORD_OK);
    memlord_destroy(lord);
}

static void the_pool_of_an_integrated_gpu_is_seen_by_who_fills_it(void **state) {
    (void)state;
    in_child(child_integrated_pool, NULL);
}

static void child_integrated_held(void *user) {
    memlord *lord = NULL;
    memlord_ticket ticket;
    memlord_capacity gpu, host;
    (void)user;
    fake_reset(1);
    fake.device[0].integrated = 1;
    child_check(memlord_create(NULL, &lord) == MEMLORD_OK);
    child_check(memlord_limit_set(lord, memlord_device_cuda(0), 1000) == MEMLORD_OK);
    child_check(memlord_reserve(lord, memlord_device_cuda(0), 10, &ticket) == MEMLORD_OK);
    child_check(memlord_cuda_attach(lord, NULL) == MEMLORD_OK); /* cannot share now */
    child_check(memlord_capacity_sample(lord, memlord_device_cuda(0)) == MEMLORD_OK);
    child_check(memlord_capacity_get(lord, memlord_device_cuda(0), &gpu) == MEMLORD_OK);
    child_check(memlord_capacity_get(lord, memlord_device_cpu(), &host) == MEMLORD_OK);
    child_check(gpu.known && gpu.total == host.total);
    memlord_destroy(lord);
}

static void also_where_it_cannot_share_the_hosts_place(void **state) {
    (void)state;
    in_child(child_integrated_held, NULL);
}

/* -- threads -- */

typedef struct race {
    memlord *lord;
    int stop;
    uint64_t attached, refused;
} race;

static void *attach_and_detach(void *user) {
    race *r = (race *)user;
    int i;
    for (i = 0; i < 200; i++) {
        memlord_cuda_desc desc = {(uint32_t)i % 2 ? MEMLORD_CUDA_FLAG_RETRY : 0, 0, NULL,
                                  "libnvml-v2.so"};
        memlord_result result = i % 3 ? memlord_cuda_attach(r->lord, &desc)
                                      : memlord_cuda_detach(r->lord);
        if (result == MEMLORD_OK) __atomic_add_fetch(&r->attached, 1, __ATOMIC_RELAXED);
        if (result == MEMLORD_E_STATE) __atomic_add_fetch(&r->refused, 1, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&r->stop, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void *sample_and_collect(void *user) {
    race *r = (race *)user;
    while (!__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE)) {
        void *ptr = NULL;
        (void)memlord_capacity_sample(r->lord, cuda(1));
        (void)memlord_gc_run(r->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL);
        if (memlord_cuda_malloc(r->lord, &ptr, 4096, NULL) == cudaSuccess)
            (void)memlord_cuda_free(r->lord, ptr, NULL);
    }
    return NULL;
}

static void attach_may_race_with_samples_collections_and_calls(void **state) {
    race r = {test_lord(state), 0, 0, 0};
    pthread_t threads[4];
    int i;
    fake_activate(0);
    fake_activate(1);
    fake.device[0].reserved_high = fake.device[1].reserved_high = MIB; /* so that pools are told */
    for (i = 0; i < 4; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < 2 ? attach_and_detach : sample_and_collect, &r),
            0);
    for (i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_true(r.attached > 0);
    assert_int_equal(memlord_allocated(r.lord, all()), 0);
    assert_true_books(r.lord);
}

/* -- the end of a process -- */

static uint64_t calls_before;

/* Of exit handlers this one runs last: the driver ended before it. */
static void nothing_is_asked_after_the_end(void) {
    usleep(100000);
    if (!fake.ended || fake.driver_calls != calls_before) _exit(2);
}
static void calls_are_counted(void) { calls_before = fake.driver_calls; }

static memlord_gc_result collects_nothing(void *user, memlord *lord, const memlord_gc_event *event) {
    memlord_gc_result result = {0, 0, 0};
    (void)user, (void)lord, (void)event;
    return result;
}

static int inside;
static void takes_long(void) {
    __atomic_store_n(&inside, 1, __ATOMIC_RELEASE);
    usleep(50000);
}

/* A program whose pollers sample a device and ask fences as it returns from main. */
static int ends_with_pollers(void) {
    memlord *lord;
    void *ptr;
    cudaStream_t stream;
    const memlord_band *bands;
    size_t n;
    uint64_t sampled;
    if (atexit(nothing_is_asked_after_the_end)) return 3;
    fake_reset(1);
    fake.ends_at_exit = 1;
    if (fake_cuInit(0) || atexit(calls_are_counted)) return 3; /* after the driver's */
    if (memlord_create(NULL, &lord) || memlord_cuda_attach(lord, NULL)) return 4;
    if (cudaSetDevice(0) || cudaStreamCreate(&stream)) return 4;
    bands = memlord_strategy_default(&n);
    if (memlord_gc_callback_add(lord, cuda(0), 0, collects_nothing, NULL) ||
        memlord_strategy_set(lord, cuda(0), bands, n))
        return 5;
    if (memlord_cuda_malloc(lord, &ptr, 1000, NULL)) return 6;
    fake_stream_work(stream);
    if (memlord_cuda_record_free(lord, ptr, stream, NULL)) return 7;
    sampled = fake_count("cuMemGetInfo_v2");
    usleep(100000);
    if (fake_count("cuMemGetInfo_v2") - sampled < 2) return 8; /* they do not run */
    fake_before("cuMemGetInfo_v2", takes_long);
    while (!__atomic_load_n(&inside, __ATOMIC_ACQUIRE)) usleep(100);
    return 0;
}

static void pollers_stop_before_the_driver_ends(void **state) {
    int status = 0;
    pid_t child = fork();
    (void)state;
    if (child == 0) {
        setenv("MEMLORD_POLL_INTERVAL_MS", "10", 1);
        execl("/proc/self/exe", "test_cuda_attach", "ends", (char *)NULL);
        _exit(9);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        TEST_CUDA_WITH(pollers_stop_before_the_driver_ends, cuda_setup_bare),
        TEST_CUDA_WITH(without_a_driver_attach_says_so_and_wrappers_pass_through, cuda_setup_bare),
        TEST_CUDA_WITH(a_driver_that_was_begun_is_not_unloaded, cuda_setup_bare),
        TEST_CUDA_WITH(any_call_of_the_first_attach_may_fail, cuda_setup_bare),
        TEST_CUDA_WITH(a_null_ledger_loads_no_driver, cuda_setup_bare),
        TEST_CUDA_WITH(with_one_device_no_call_asks_which, cuda_setup_bare),
        TEST_CUDA_WITH(an_integrated_gpu_has_what_is_available_on_the_host, cuda_setup_bare),
        TEST_CUDA_WITH(the_pool_of_an_integrated_gpu_is_seen_by_who_fills_it, cuda_setup_bare),
        TEST_CUDA_WITH(also_where_it_cannot_share_the_hosts_place, cuda_setup_bare),
        TEST_CUDA_WITH(a_null_ledger_is_attached_to_nothing, cuda_setup_bare),
        TEST_CUDA(attach_creates_no_context),
        TEST_CUDA(detach_takes_off_the_source_and_the_callback),
        TEST_CUDA(a_strategy_for_one_gpu_asks_the_layer_for_that_one_alone),
        TEST_CUDA(bands_of_the_hosts_callback_ask_the_layer_for_nothing),
        TEST_CUDA(detach_of_what_is_not_attached_is_unknown),
        TEST_CUDA(a_second_attach_takes_the_place_of_the_first),
        TEST_CUDA_WITH(parts_that_the_host_has_itself_are_left_alone, cuda_setup_bare),
        TEST_CUDA_WITH(a_bad_policy_is_refused, cuda_setup_bare),
        TEST_CUDA_WITH(more_ledgers_than_seats_are_refused_and_not_attached, cuda_setup_bare),
        TEST_CUDA_WITH(the_scoped_form_ends_with_its_block, cuda_setup_bare),
        TEST_CUDA_WITH(a_ledger_without_memory_is_left_unattached, cuda_setup_bare),
        TEST_CUDA_WITH(attach_may_race_with_samples_collections_and_calls, cuda_setup_bare),
    };
    if (argc > 1 && !strcmp(argv[1], "ends")) return ends_with_pollers();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
