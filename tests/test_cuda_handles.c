/* Handles that are others', or of what is over: streams, contexts, captures and devices that end
   untold, and the answers of a driver that fails. */
#include "support_cuda.h"

static cudaStream_t stream_on(int device) {
    cudaStream_t stream = NULL;
    assert_cuda(cudaSetDevice(device));
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static void *block(memlord *lord) {
    void *ptr = NULL;
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 1000, NULL));
    return ptr;
}

static uint64_t failures(memlord *lord) { return stats_of(lord, all()).fence_failures; }

/* -- what comes to be at the address of what is gone -- */

/* The fake's handles come again once it has given out all it has. */
static cudaStream_t next_at(cudaStream_t handle) {
    cudaStream_t stream = NULL;
    int i;
    for (i = 0; i < 300 && stream != handle; i++)
        assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_ptr_equal(stream, handle);
    return stream;
}

static void a_stream_is_not_taken_for_one_that_had_its_address(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t first = stream_on(0), second;
    void *used = block(lord), *freed = block(lord);
    assert_ok(memlord_cuda_record_use(lord, used, first));
    fake_stream_work(first);
    assert_ok(memlord_cuda_record_free(lord, freed, first, NULL));
    assert_cuda(cudaStreamDestroy(first)); /* not wrapped; its work goes on */
    fake_stream_finish(first);
    second = next_at(first);
    fake_stream_work(second);
    assert_ok(memlord_cuda_record_free(lord, block(lord), second, NULL));
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_pending(lord, all()), 1000); /* that of the first is done */
    assert_cuda(memlord_cuda_free(lord, used, NULL));    /* can have no event any more */
    assert_int_equal(failures(lord), 1);
    assert_int_equal(memlord_pending(lord, all()), 1000);
    fake_stream_finish(second);
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(failures(lord), 1);
    assert_int_equal(fake.dead_asked, 0);
}

static void nor_is_a_context(void **state) {
    memlord *lord = test_lord(state);
    int i;
    for (i = 0; i < 3; i++) {
        cudaStream_t stream = stream_on(0);
        void *ptr = block(lord);
        assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
        assert_ok(memlord_cuda_record_free(lord, block(lord), NULL, NULL));
        (void)memlord_retire(lord, all()); /* their events are kept */
        assert_int_equal(memlord_pending(lord, all()), 0);
        assert_cuda(cudaDeviceReset()); /* not wrapped */
    }
    assert_int_equal(failures(lord), 0);
    assert_int_equal(fake.dead[FAKE_EVENT], 0);
    assert_in_range(fake.events_made, 3, 6); /* each device anew */
    (void)cudaSetDevice(0);
    assert_ok(memlord_cuda_record_free(lord, block(lord), NULL, NULL)); /* forgets the last ones */
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_pending(lord, all()), 0);
}

static void a_stream_of_a_green_context_has_events_of_that(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    void *green, *context;
    int i;
    assert_cuda(cudaSetDevice(0));
    for (i = 0; i < 3; i++) {
        assert_int_equal(fake_cuGreenCtxCreate(&green, NULL, 0, 1), 0);
        assert_int_equal(fake_cuCtxFromGreenCtx(&context, green), 0);
        assert_int_equal(fake_cuGreenCtxStreamCreate(&stream, green, cudaStreamNonBlocking, 0), 0);
        fake_stream_work(stream);
        assert_ok(memlord_cuda_record_free(lord, block(lord), stream, NULL));
        assert_int_equal(memlord_retire(lord, all()), 0);
        fake_stream_finish(stream);
        assert_int_equal(memlord_retire(lord, all()), 1000);
        assert_cuda(memlord_cuda_stream_destroy(lord, stream, NULL));
        memlord_cuda_events_release(); /* before a context ends */
        assert_int_equal(fake_cuGreenCtxDestroy(green), 0);
    }
    assert_int_equal(failures(lord), 0);
    assert_int_equal(fake.green_shared, 0);
}

static void a_stream_of_another_device_is_one_like_others(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t there = stream_on(1);
    void *ptr;
    assert_cuda(cudaSetDevice(0));
    ptr = block(lord);
    fake_stream_work(there);
    assert_ok(memlord_cuda_record_free(lord, ptr, there, NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), 1000);
    fake_stream_finish(there);
    assert_int_equal(memlord_retire(lord, cuda(0)), 1000);
    assert_int_equal(failures(lord), 0);
}

/* -- captures -- */

static void *ends_a_capture(void *user) {
    cudaGraph_t graph;
    (void)cudaSetDevice(0);
    (void)cudaStreamEndCapture((cudaStream_t)user, &graph);
    return NULL;
}

/* 0: invalidated by the host; 1: ended on another thread; 2: never ended, the stream is. */
static void a_capture_may_end_in_any_way(void **state) {
    memlord *lord = test_lord(state);
    cudaGraph_t graph;
    pthread_t thread;
    int i;
    for (i = 0; i < 3; i++) {
        cudaStream_t stream = stream_on(0);
        assert_cuda(cudaStreamBeginCapture(
            stream, i ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeGlobal));
        assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1000, NULL));
        assert_ok(memlord_cuda_record_free(lord, (void *)0x1000, stream, NULL));
        assert_int_equal(memlord_retire(lord, all()), 0);
        if (i == 0) {
            assert_int_equal(cudaFree((void *)4096), cudaErrorStreamCaptureUnsupported);
            fake.violated = 0; /* that was the host */
            assert_int_equal(memlord_retire(lord, all()), 0);
            assert_int_not_equal(memlord_cuda_stream_end_capture(lord, stream, &graph, NULL), 0);
        } else if (i == 1) {
            assert_cuda(pthread_create(&thread, NULL, ends_a_capture, stream));
            pthread_join(thread, NULL);
        } else {
            assert_cuda(memlord_cuda_stream_destroy(lord, stream, NULL));
        }
        (void)memlord_retire(lord, all());
        assert_int_equal(memlord_pending(lord, all()), 0);
        assert_int_equal(failures(lord), i == 2); /* its event cannot be recorded any more */
        (void)cudaGetLastError();
    }
}

/* CUDA_ERROR_CAPTURED_EVENT: a capture began between the question and the record. */
static void an_event_that_a_capture_took_is_recorded_once_more(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    assert_ok(memlord_cuda_record_free(lord, block(lord), stream, NULL));
    fake.fail_name = "cuEventQuery";
    fake.fail_error = 907;
    fake.fail_times = 1;
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_int_equal(fake_count("cuEventRecord"), 1);
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(fake_count("cuEventRecord"), 2);
    assert_int_equal(failures(lord), 0);
}

/* -- a pool that ends while another thread trims it -- */

static struct {
    memlord *lord;
    cudaMemPool_t pool;
    pthread_t thread;
    uint64_t destroyed; /* when the trim began, after a while */
} ending;

static void *destroys_the_pool(void *user) {
    (void)memlord_cuda_pool_destroy(ending.lord, ending.pool, NULL);
    return user;
}
static void destroys_meanwhile(void) {
    (void)pthread_create(&ending.thread, NULL, destroys_the_pool, NULL);
    usleep(20000);
    ending.destroyed = fake_count("cudaMemPoolDestroy");
}

/* A trim of the device, amid which `act` is called. */
static void trim_and(memlord *lord, void (*act)(void)) {
    struct cudaMemPoolProps props;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    fake_activate(0);
    ending.lord = lord;
    assert_cuda(memlord_cuda_pool_create(lord, &ending.pool, &props, NULL));
    fake.before_name = "cuMemPoolTrimTo";
    fake.before = act;
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
}

static void destroys_in_a_child(void *user) {
    alarm(10);
    (void)destroys_the_pool(user);
}
static void forks_meanwhile(void) { in_child(destroys_in_a_child, NULL); }

static void a_child_that_is_forked_amid_a_trim_destroys_the_pool(void **state) {
    memlord *lord = test_lord(state);
    trim_and(lord, forks_meanwhile);
    assert_null(fake.before);
    assert_cuda(memlord_cuda_pool_destroy(lord, ending.pool, NULL));
}

static void a_pool_ends_after_the_trim_of_another_thread(void **state) {
    memlord *lord = test_lord(state);
    memlord_cuda_pool pool;
    trim_and(lord, destroys_meanwhile);
    assert_int_equal(pthread_join(ending.thread, NULL), 0);
    assert_int_equal(ending.destroyed, 0);
    assert_int_equal(fake_count("cudaMemPoolDestroy"), 1);
    assert_int_equal(fake.dead[FAKE_POOL], 0);
    assert_ok(memlord_cuda_pool_get(lord, 0, &pool));
    assert_int_equal(pool.pools, 1);
}

/* -- devices that are reset by others, and drivers that fail -- */

/* Some of all that the layer does. */
static void a_little_of_all(memlord *lord) {
    cudaStream_t stream = NULL, side = NULL;
    void *ptr[4] = {NULL, NULL, NULL, NULL};
    memlord_cuda_pool pool;
    int i;
    (void)cudaSetDevice(0);
    (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    (void)cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    for (i = 0; i < 4; i++) (void)memlord_cuda_malloc_async(lord, &ptr[i], 1000, stream, NULL);
    (void)memlord_cuda_record_use(lord, ptr[0], side);
    (void)memlord_cuda_record_use(lord, ptr[0], NULL);
    (void)memlord_cuda_free_async(lord, ptr[0], stream, NULL);
    (void)memlord_cuda_record_free(lord, ptr[1], side, NULL);
    (void)memlord_cuda_free_async_after(lord, ptr[2], stream, NULL);
    (void)memlord_retire(lord, all());
    (void)memlord_capacity_sample(lord, cuda(0));
    (void)memlord_cuda_pool_get(lord, 0, &pool);
    (void)memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL);
    (void)memlord_cuda_stream_synchronize(lord, stream, NULL);
    (void)memlord_cuda_stream_destroy(lord, side, NULL);
    (void)memlord_cuda_device_synchronize(lord, NULL);
    (void)memlord_cuda_free(lord, ptr[3], NULL);
}

/* What the runtime refused to free stays; what pends does not for ever. */
static void nothing_pends(memlord *lord) {
    (void)memlord_retire(lord, all());
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_pending(lord, all()), 0);
    assert_int_equal(fake_depth(), 0);
    assert_int_equal(fake.retains, 0);
    assert_ok(memlord_verify(lord));
    (void)cudaGetLastError();
}

static int reset_at;
static void resets(const char *name) {
    (void)name;
    if (reset_at && !--reset_at) {
        fake.on_driver_call = NULL;
        (void)cudaDeviceReset();
    }
}

static void a_device_may_be_reset_at_any_point(void **state) {
    memlord *lord = test_lord(state);
    int at;
    a_little_of_all(lord);
    for (at = 1;; at++) {
        reset_at = at;
        fake.on_driver_call = resets;
        a_little_of_all(lord);
        fake.on_driver_call = NULL;
        if (reset_at) break; /* it was not reached */
        nothing_pends(lord);
        a_little_of_all(lord); /* and the next ones are as ever */
        nothing_pends(lord);
        memlord_cuda_events_release();
    }
    assert_true(at > 50);
    nothing_pends(lord);
}

static void any_function_of_the_driver_may_fail_for_good(void **state) {
#define FAKE_X(name, params, args) #name,
    static const char *const names[] = {FAKE_DRIVER(FAKE_X)};
#undef FAKE_X
    static const int errors[] = {1, 201, 400, 709, 800, 900, 907, 999};
    memlord *lord = test_lord(state);
    size_t i, k;
    for (i = 0; i < sizeof names / sizeof *names; i++)
        for (k = 0; k < sizeof errors / sizeof *errors; k++) {
            fake.fail_name = names[i];
            fake.fail_error = errors[k];
            fake.fail_times = -1;
            a_little_of_all(lord);
            fake.fail_times = 0;
            nothing_pends(lord);
        }
    a_little_of_all(lord);
    nothing_pends(lord);
    memlord_cuda_events_release();
    fake.events = 0; /* one that could not be destroyed is left */
}

static void and_all_of_them_at_once(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = block(lord);
    cudaStream_t stream = stream_on(0);
    uint64_t failed;
    fake_stream_work(stream);
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    fake.sticky = 700; /* an illegal address */
    assert_int_equal(memlord_retire(lord, all()), 1000);
    failed = failures(lord);
    assert_int_equal(failed, 1);
    a_little_of_all(lord);
    fake.sticky = 0;
    nothing_pends(lord);
}

/* -- two ledgers, and a child -- */

static void two_ledgers_share_a_stream(void **state) {
    memlord *lord = test_lord(state), *other;
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_NO_NVML, 0, NULL, NULL};
    memlord_desc plain;
    cudaStream_t stream = stream_on(0);
    int i;
    memset(&plain, 0, sizeof plain);
    plain.flags = MEMLORD_FLAG_NO_THREADS;
    assert_ok(memlord_create(&plain, &other));
    assert_ok(memlord_cuda_attach(other, &desc));
    fake_stream_work(stream);
    for (i = 1; i <= 20; i++) {
        memlord *own = i % 2 ? lord : other;
        assert_ok(memlord_alloc(own, cuda(0), 0x1000u * (unsigned)i, 8, NULL));
        assert_ok(memlord_cuda_record_free(own, (void *)(uintptr_t)(0x1000 * i), stream, NULL));
    }
    assert_int_equal(memlord_retire(lord, all()) + memlord_retire(other, all()), 0);
    fake_stream_finish(stream);
    assert_int_equal(memlord_retire(other, all()), 80);
    assert_int_equal(memlord_pending(lord, all()), 80);
    assert_int_equal(memlord_retire(lord, all()), 80);
    assert_ok(memlord_cuda_detach(other));
    memlord_destroy(other);
}

/* The runtime of a forked child refuses; its answers are the host's to see. */
static void asks_in_a_child(void *user) {
    memlord *lord = (memlord *)user, *own;
    void *ptr = NULL;
    cudaError_t plain = cudaMalloc(&ptr, 64);
    child_check(plain != cudaSuccess);
    child_check(memlord_cuda_malloc(lord, &ptr, 64, NULL) == plain);
    child_check(memlord_cuda_malloc_async(lord, &ptr, 64, NULL, NULL) == plain);
    child_check(memlord_create(NULL, &own) == MEMLORD_OK);
    child_check(memlord_cuda_attach(own, NULL) == MEMLORD_E_UNSUPPORTED);
    child_check(memlord_cuda_malloc(own, &ptr, 64, NULL) == plain);
    child_check(memlord_cuda_device_synchronize(own, NULL) == cudaDeviceSynchronize());
    child_check(memlord_capacity_sample(own, cuda(0)) != MEMLORD_OK);
    child_check(!strcmp(memlord_cuda_why(), "forked from the process that loaded the driver"));
    child_check(memlord_allocated(lord, cuda(0)) == 1000); /* what the books had */
    child_check(memlord_verify(lord) == MEMLORD_OK);
}

static void a_child_hears_what_the_runtime_answers(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = block(lord);
    in_child(asks_in_a_child, lord);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_CUDA(a_stream_is_not_taken_for_one_that_had_its_address),
        TEST_CUDA(nor_is_a_context),
        TEST_CUDA(a_stream_of_a_green_context_has_events_of_that),
        TEST_CUDA(a_stream_of_another_device_is_one_like_others),
        TEST_CUDA(a_capture_may_end_in_any_way),
        TEST_CUDA(an_event_that_a_capture_took_is_recorded_once_more),
        TEST_CUDA(a_pool_ends_after_the_trim_of_another_thread),
        TEST_CUDA(a_child_that_is_forked_amid_a_trim_destroys_the_pool),
        TEST_CUDA(a_device_may_be_reset_at_any_point),
        TEST_CUDA(any_function_of_the_driver_may_fail_for_good),
        TEST_CUDA(and_all_of_them_at_once),
        TEST_CUDA(two_ledgers_share_a_stream),
        TEST_CUDA(a_child_hears_what_the_runtime_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
