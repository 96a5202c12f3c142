/* The CUDA layer on a driver that is as unkind as CUDA may be: each test is one switch of the fake,
   see fake_cuda.h. */
#include "support_cuda.h"

static cudaStream_t a_stream(void) {
    cudaStream_t stream = NULL;
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

/* A block of 1 MiB whose free waits for the work of the stream. */
static void *pending_on(memlord *lord, cudaStream_t stream) {
    void *ptr = NULL;
    assert_cuda(memlord_cuda_malloc_async(lord, &ptr, MIB, stream, NULL));
    fake_stream_work(stream);
    assert_int_equal(memlord_cuda_record_free(lord, ptr, stream, NULL), MEMLORD_OK);
    return ptr;
}

static void after_a_sticky_error_pending_frees_are_credited(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = a_stream();
    (void)pending_on(lord, stream);
    assert_int_equal(memlord_pending(lord, memlord_device_cuda(0)), MIB);
    fake.sticky = cudaErrorIllegalAddress;
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_pending(lord, memlord_device_cuda(0)), 0);
    assert_int_equal(memlord_allocated(lord, memlord_device_cuda(0)), 0);
    (void)memlord_gc_run(lord, memlord_device_cuda(0), MEMLORD_REASON_HOST, 0, NULL);
    fake.sticky = 0;
}

static void what_a_pool_of_chunks_holds_is_reserved_and_cached(void **state) {
    memlord *lord = test_lord(state);
    const memlord_device device = memlord_device_cuda(0);
    uint64_t keep = UINT64_MAX, reclaimed = 0;
    cudaMemPool_t pool;
    void *small = NULL, *large = NULL;
    fake.pool_chunk = 2 * MIB;
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaDeviceGetDefaultMemPool(&pool, 0));
    assert_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    assert_cuda(memlord_cuda_malloc_async(lord, &small, 512, NULL, NULL));
    assert_cuda(memlord_cuda_malloc_async(lord, &large, 8 * MIB, NULL, NULL));
    assert_cuda(memlord_cuda_free_async(lord, large, NULL, NULL));
    assert_cuda(memlord_cuda_device_synchronize(lord, NULL));
    assert_int_equal(memlord_capacity_sample(lord, device), MEMLORD_OK);
    assert_int_equal(stats_of(lord, device).reserved, 10 * MIB);
    assert_int_equal(stats_of(lord, device).cached, 10 * MIB - 512);
    assert_int_equal(memlord_gc_run(lord, device, MEMLORD_REASON_HOST, 0, &reclaimed), MEMLORD_OK);
    assert_int_equal(reclaimed, 8 * MIB);
    assert_cuda(memlord_cuda_free_async(lord, small, NULL, NULL));
}

static memlord *of_function;
static void frees_a_block(void *user) {
    (void)user;
    (void)memlord_alloc(of_function, memlord_device_cuda(0), 64, 64, NULL);
    (void)memlord_free(of_function, memlord_device_cuda(0), 64, NULL);
}

static void a_free_that_waits_for_the_device_runs_host_functions_that_use_the_ledger(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = a_stream();
    void *ptr = NULL;
    fake.free_waits = 1;
    of_function = lord;
    alarm(20);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, MIB, NULL));
    assert_cuda(cudaLaunchHostFunc(stream, frees_a_block, NULL));
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_cuda(cudaStreamQuery(stream));
    alarm(0);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

/* The stream is full when the layer records its event, and the device waits for a host function
   that frees a block with a use on another stream. */
static void frees_a_used_block(void *user) {
    (void)user;
    (void)memlord_free(of_function, memlord_device_cuda(0), 256, NULL);
}

static void a_full_stream_that_waits_for_the_ledger_hangs_nobody(void **state) {
    memlord *lord = test_lord(state);
    const memlord_device device = memlord_device_cuda(0);
    cudaStream_t stream = a_stream(), side = a_stream();
    alarm(20);
    of_function = lord;
    fake.queue_length = 1;
    fake.lax_host_functions = 1;
    assert_int_equal(memlord_alloc(lord, device, 128, 64, NULL), MEMLORD_OK);
    assert_int_equal(memlord_alloc(lord, device, 256, 64, NULL), MEMLORD_OK);
    assert_int_equal(memlord_cuda_record_use(lord, (void *)128, stream), MEMLORD_OK);
    assert_int_equal(memlord_cuda_record_use(lord, (void *)256, side), MEMLORD_OK);
    assert_cuda(cudaLaunchHostFunc(stream, frees_a_used_block, NULL));
    assert_int_equal(memlord_free(lord, device, 128, NULL), MEMLORD_OK);
    assert_int_equal(fake.queue_waits, 1);
    assert_cuda(memlord_cuda_stream_synchronize(lord, side, NULL));
    assert_cuda(memlord_cuda_stream_synchronize(lord, stream, NULL));
    alarm(0);
    assert_int_equal(memlord_pending(lord, device), 0);
}

static void a_pool_that_ends_untold_is_not_asked(void **state) {
    memlord *lord = test_lord(state);
    struct cudaMemPoolProps props;
    memlord_cuda_pool figures;
    cudaMemPool_t pool;
    void *ptr = NULL;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaMemPoolCreate(&pool, &props));
    assert_cuda(memlord_cuda_malloc_from_pool_async(lord, &ptr, MIB, pool, NULL, NULL));
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    assert_cuda(cudaMemPoolDestroy(pool));
    assert_int_equal(memlord_capacity_sample(lord, memlord_device_cuda(0)), MEMLORD_OK);
    assert_int_equal(memlord_cuda_pool_get(lord, 0, &figures), MEMLORD_OK);
    assert_int_equal(memlord_gc_run(lord, memlord_device_cuda(0), MEMLORD_REASON_HOST, 0, NULL),
                     MEMLORD_OK);
    assert_int_equal(fake.dead[FAKE_POOL], 0);
}

/* A stream and its context that end untold while a free waits for it. */
static void a_context_that_ends_untold_is_not_used(void **state) {
    memlord *lord = test_lord(state);
    void *context = NULL;
    cudaStream_t stream = NULL;
    assert_int_equal(fake_cuCtxCreate(&context, 0, 0), 0);
    assert_int_equal(fake_cuStreamCreate(&stream, cudaStreamNonBlocking), 0);
    assert_int_equal(memlord_alloc(lord, memlord_device_cuda(0), 64, 64, NULL), MEMLORD_OK);
    fake_stream_work(stream);
    assert_int_equal(memlord_cuda_record_free(lord, (void *)64, stream, NULL), MEMLORD_OK);
    assert_int_equal(fake_cuCtxDestroy_v2(context), 0);
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_pending(lord, all()), 0);
    assert_int_equal(fake.dead[FAKE_CONTEXT], 0);
}

/* As the manual says: no free pends, and the layer's events are released before. */
static void a_context_whose_events_are_released_may_be_destroyed(void **state) {
    memlord *lord = test_lord(state);
    void *context = NULL;
    cudaStream_t stream = NULL;
    int kind;
    assert_int_equal(fake_cuCtxCreate(&context, 0, 0), 0);
    assert_int_equal(fake_cuStreamCreate(&stream, cudaStreamNonBlocking), 0);
    assert_int_equal(memlord_alloc(lord, memlord_device_cuda(0), 64, 64, NULL), MEMLORD_OK);
    assert_int_equal(memlord_cuda_record_free(lord, (void *)64, stream, NULL), MEMLORD_OK);
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_pending(lord, all()), 0);
    assert_int_equal(fake.events, 1); /* kept for the next free */
    memlord_cuda_events_release();
    assert_int_equal(fake_cuCtxDestroy_v2(context), 0);
    memlord_cuda_events_release();
    for (kind = 0; kind < FAKE_KINDS; kind++) assert_int_equal(fake.dead[kind], 0);
}

/* A poller's thread asks for a stream of a green context that is current on the host's thread. */
static void *retires(void *user) {
    (void)memlord_retire((memlord *)user, all());
    return NULL;
}
static void a_green_context_is_current_on_one_thread_alone(void **state) {
    memlord *lord = test_lord(state);
    void *green = NULL, *context = NULL;
    cudaStream_t stream = NULL;
    pthread_t thread;
    assert_cuda(cudaSetDevice(0));
    assert_int_equal(fake_cuGreenCtxCreate(&green, NULL, 0, 1), 0);
    assert_int_equal(fake_cuCtxFromGreenCtx(&context, green), 0);
    assert_int_equal(fake_cuGreenCtxStreamCreate(&stream, green, cudaStreamNonBlocking, 0), 0);
    assert_int_equal(memlord_alloc(lord, memlord_device_cuda(0), 64, 64, NULL), MEMLORD_OK);
    assert_int_equal(memlord_alloc(lord, memlord_device_cuda(0), 128, 64, NULL), MEMLORD_OK);
    assert_int_equal(memlord_cuda_record_use(lord, (void *)128, stream), MEMLORD_OK);
    fake_stream_work(stream);
    assert_int_equal(memlord_cuda_record_free(lord, (void *)64, stream, NULL), MEMLORD_OK);
    assert_int_equal(fake_cuCtxPushCurrent_v2(context), 0);
    assert_int_equal(pthread_create(&thread, NULL, retires, lord), 0);
    pthread_join(thread, NULL);
    assert_int_equal(memlord_free(lord, memlord_device_cuda(0), 128, NULL), MEMLORD_OK);
    assert_int_equal(pthread_create(&thread, NULL, retires, lord), 0);
    pthread_join(thread, NULL);
    assert_int_equal(fake_cuCtxPopCurrent_v2(&context), 0);
    fake_stream_finish(stream);
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_pending(lord, all()), 0);
    assert_int_equal(fake.green_shared, 0);
}

static void a_driver_that_is_over_credits_what_is_pending_and_hangs_nobody(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = a_stream();
    void *ptr = NULL;
    (void)pending_on(lord, stream);
    fake.ended = 1;
    (void)memlord_retire(lord, all());
    (void)memlord_capacity_sample(lord, memlord_device_cuda(0));
    (void)memlord_gc_run(lord, memlord_device_cuda(0), MEMLORD_REASON_HOST, 0, NULL);
    assert_int_equal(memlord_cuda_malloc(lord, &ptr, 64, NULL), cudaErrorCudartUnloading);
    assert_int_equal(memlord_pending(lord, all()), 0);
    assert_int_equal(memlord_allocated(lord, all()), 0);
    fake.ended = 0;
}

/* Frees on the default stream of a thread that has no context: the primary one is looked for. */
static void *frees_without_a_context(void *user) {
    memlord *lord = (memlord *)user;
    intptr_t bad = memlord_cuda_record_free(lord, (void *)64, NULL, NULL) != MEMLORD_OK;
    (void)memlord_retire(lord, all());
    return (void *)bad;
}
static void a_capture_is_not_lost_by_a_retain(void **state) {
    memlord *lord = test_lord(state);
    const memlord_device device = memlord_device_cuda(0);
    cudaStream_t stream = a_stream();
    cudaGraph_t graph = NULL;
    pthread_t thread;
    uint64_t retained;
    void *bad;
    fake.retain_unsafe = 1;
    assert_int_equal(memlord_alloc(lord, device, 64, 64, NULL), MEMLORD_OK);
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    assert_int_equal(memlord_capacity_sample(lord, device), MEMLORD_OK);
    assert_int_equal(memlord_gc_run(lord, device, MEMLORD_REASON_HOST, 0, NULL), MEMLORD_OK);
    retained = fake_count("cuDevicePrimaryCtxRetain");
    assert_true(retained > 0);
    assert_int_equal(pthread_create(&thread, NULL, frees_without_a_context, lord), 0);
    assert_int_equal(pthread_join(thread, &bad), 0);
    assert_null(bad);
    assert_true(fake_count("cuDevicePrimaryCtxRetain") > retained);
    assert_cuda(memlord_cuda_stream_end_capture(lord, stream, &graph, NULL));
    assert_non_null(graph);
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_pending(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
    assert_int_equal(fake.violated, 0);
    assert_int_equal(fake.retains, 0);
}

/* In MIG mode NVML's figures are the whole device's, and it may name no process. */
static void in_mig_mode_the_capacity_is_the_instances(void **state) {
    memlord *lord = test_lord(state);
    memlord_capacity now;
    fake.device[0].mig = fake.device[0].nvml_denied = 1;
    fake.device[0].nvml_total = UINT64_C(8) * FAKE_GIB;
    assert_cuda(cudaSetDevice(0));
    assert_int_equal(memlord_capacity_sample(lord, memlord_device_cuda(0)), MEMLORD_OK);
    assert_int_equal(memlord_capacity_get(lord, memlord_device_cuda(0), &now), MEMLORD_OK);
    assert_int_equal(now.total, FAKE_GIB);
}

/* NVML has other numbers of processes than this one has: a container's. Ours is nobody else. */
static void a_number_of_another_namespace_is_not_another_process(void **state) {
    memlord *lord = test_lord(state);
    memlord_capacity now;
    int i;
    fake.device[0].nvml_own = 5 * MIB;
    fake.device[0].nvml_offset = 1000;
    assert_cuda(cudaSetDevice(0));
    for (i = 0; i < 40; i++)
        assert_int_equal(memlord_capacity_sample(lord, memlord_device_cuda(0)), MEMLORD_OK);
    assert_int_equal(memlord_capacity_get(lord, memlord_device_cuda(0), &now), MEMLORD_OK);
    assert_int_equal(now.others[0].pid, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_CUDA(after_a_sticky_error_pending_frees_are_credited),
        TEST_CUDA(what_a_pool_of_chunks_holds_is_reserved_and_cached),
        TEST_CUDA(a_free_that_waits_for_the_device_runs_host_functions_that_use_the_ledger),
        TEST_CUDA(a_full_stream_that_waits_for_the_ledger_hangs_nobody),
        TEST_CUDA(a_pool_that_ends_untold_is_not_asked),
        TEST_CUDA(a_context_that_ends_untold_is_not_used),
        TEST_CUDA(a_context_whose_events_are_released_may_be_destroyed),
        TEST_CUDA(a_green_context_is_current_on_one_thread_alone),
        TEST_CUDA(a_driver_that_is_over_credits_what_is_pending_and_hangs_nobody),
        TEST_CUDA(a_capture_is_not_lost_by_a_retain),
        TEST_CUDA(in_mig_mode_the_capacity_is_the_instances),
        TEST_CUDA(a_number_of_another_namespace_is_not_another_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
