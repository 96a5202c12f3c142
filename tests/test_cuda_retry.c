/* Collections that trim, and allocations that go through out of memory. */
#include "support_cuda.h"

static void no_sleep(void *user, uint32_t ms) {
    (void)ms;
    ++*(int *)user;
}

/* Attached with the retry on; *slept counts the pauses. */
static void attach_retrying(memlord *lord, uint32_t flags, uint32_t retries, int *slept) {
    memlord_retry policy = {0, 1, 1, 1.0, no_sleep, NULL};
    memlord_cuda_desc desc;
    memset(&desc, 0, sizeof desc);
    policy.max_retries = retries;
    policy.user = slept;
    desc.flags = MEMLORD_CUDA_FLAG_RETRY | flags;
    desc.retry = &policy;
    desc.nvml = "libnvml-v2.so";
    assert_ok(memlord_cuda_attach(lord, &desc));
}

static void out_of_memory(int times) {
    fake.fail_name = "cudaMalloc";
    fake.fail_times = times;
    fake.fail_error = cudaErrorMemoryAllocation;
}

/* The pool has kept so much of device 0 and uses none of it. */
static void pool_keeps(uint64_t bytes) {
    fake_activate(0);
    fake.device[0].reserved = fake.device[0].reserved_high = bytes;
}

/* -- collection -- */

static void a_collection_trims_and_says_what_that_gave(void **state) {
    memlord *lord = test_lord(state);
    uint64_t reclaimed = 0;
    pool_keeps(600 * MIB);
    fake.device[0].used = 100 * MIB;
    fake.device[0].graph_reserved = 50 * MIB;
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, &reclaimed));
    assert_int_equal(reclaimed, 550 * MIB);
    assert_int_equal(fake.device[0].reserved, 100 * MIB);
    assert_int_equal(fake.device[0].graph_reserved, 0);
    assert_int_equal(stats_of(lord, cuda(0)).gc_reclaimed, 550 * MIB);
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 100 * MIB);
    assert_int_equal(fake_count("cuCtxSynchronize"), 0);
}

static void a_collection_keeps_what_it_is_told_to(void **state) {
    memlord *lord = test_lord(state);
    memlord_cuda_desc desc = {0, 64 * MIB, NULL, "libnvml-v2.so"};
    uint64_t reclaimed = 0;
    pool_keeps(600 * MIB);
    assert_ok(memlord_cuda_attach(lord, &desc));
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, &reclaimed));
    assert_int_equal(reclaimed, 536 * MIB);
}

/* A free that is pending on a stream with work left, and all the pool has kept. */
static cudaStream_t one_pends(memlord *lord) {
    cudaStream_t stream = NULL;
    void *ptr = NULL;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_cuda(memlord_cuda_malloc_async(lord, &ptr, MIB, stream, NULL));
    fake_stream_work(stream);
    assert_cuda(memlord_cuda_free_async_after(lord, ptr, stream, NULL));
    pool_keeps(MIB);
    return stream;
}

static void a_collection_waits_for_what_is_pending_only_when_asked(void **state) {
    memlord *lord = test_lord(state);
    memlord_cuda_desc desc = {0, 0, NULL, "libnvml-v2.so"};
    cudaStream_t stream = one_pends(lord);
    uint64_t reclaimed = 0;
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), MIB);
    fake_stream_finish(stream);
    (void)memlord_retire(lord, all());
    (void)one_pends(lord);
    desc.flags = MEMLORD_CUDA_FLAG_SYNC;
    assert_ok(memlord_cuda_attach(lord, &desc));
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, &reclaimed));
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    assert_int_equal(reclaimed, MIB);
    assert_int_equal(fake_count("cuEventSynchronize"), 1);
    assert_int_equal(fake.context_waits, 0);
}

/* To wait for an event ends no capture, of whatever stream, by whomever begun. */
static void and_no_capture_ends_by_that(void **state) {
    memlord *lord = test_lord(state);
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_SYNC, 0, NULL, "libnvml-v2.so"};
    cudaStream_t captured[2];
    cudaGraph_t graph;
    void *ptr = NULL;
    int i;
    assert_ok(memlord_cuda_attach(lord, &desc));
    assert_cuda(cudaStreamCreateWithFlags(&captured[0], cudaStreamNonBlocking));
    assert_cuda(cudaStreamCreateWithFlags(&captured[1], 0));
    test_threshold(lord, MEMLORD_METRIC_ALLOCATED, MIB); /* crossed by the wrappers themselves */
    for (i = 0; i < 2; i++) {
        (void)one_pends(lord);
        assert_cuda(cudaStreamBeginCapture(captured[i], cudaStreamCaptureModeGlobal));
        assert_cuda(memlord_cuda_malloc_async(lord, &ptr, 2 * MIB, captured[i], NULL));
        assert_cuda(memlord_cuda_free_async_after(lord, ptr, captured[i], NULL));
        (void)memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL);
        assert_int_equal(memlord_pending(lord, cuda(0)), 2 * MIB); /* of the captured stream */
        assert_cuda(cudaStreamEndCapture(captured[i], &graph));
        (void)memlord_retire(lord, all());
        assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    }
    assert_int_equal(fake.violated, 0);
    assert_slot(cudaSuccess);
}

static void a_retry_that_waits_for_what_is_pending_succeeds_at_once(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    void *ptr = NULL, *most = NULL;
    cudaStream_t stream;
    attach_retrying(lord, MEMLORD_CUDA_FLAG_SYNC, 3, &slept);
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    fake.device[0].threshold = UINT64_MAX;
    assert_cuda(memlord_cuda_malloc_async(lord, &most, 900 * MIB, stream, NULL));
    fake_stream_work(stream);
    assert_cuda(memlord_cuda_free_async_after(lord, most, stream, NULL));
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 500 * MIB, NULL));
    assert_int_equal(fake_count("cudaMalloc"), 2);
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
}

static void an_untouched_device_is_not_collected(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL), MEMLORD_E_STATE);
    fake_activate(2); /* has no pools */
    assert_int_equal(memlord_gc_run(lord, cuda(2), MEMLORD_REASON_HOST, 0, NULL), MEMLORD_E_STATE);
    assert_int_equal(stats_of(lord, all()).gc_failed, 2);
    assert_int_equal(fake.contexts, 0);
}

static void a_hosts_callback_runs_beside_it(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t reclaimed = 0;
    pool_keeps(10 * MIB);
    t->gc.answer.ran = 1;
    t->gc.answer.reclaimed = 7;
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, test_gc_run, &t->gc));
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, &reclaimed));
    assert_int_equal(reclaimed, 10 * MIB + 7);
}

static void a_band_of_the_device_trims_its_pool(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = NULL;
    pool_keeps(100 * MIB);
    test_threshold(lord, MEMLORD_METRIC_ALLOCATED, MIB);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 2 * MIB, NULL));
    assert_int_equal(stats_of(lord, cuda(0)).gc_runs, 1);
    assert_int_equal(fake.device[0].reserved, 0);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
}

/* A step of an engine: ten blocks of 10 MiB from the pool, and back. */
static void step(memlord *lord, cudaStream_t stream) {
    void *ptr[10];
    int i;
    for (i = 0; i < 10; i++)
        assert_cuda(memlord_cuda_malloc_async(lord, &ptr[i], 10 * MIB, stream, NULL));
    for (i = 0; i < 10; i++) assert_cuda(memlord_cuda_free_async(lord, ptr[i], stream, NULL));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
}

static cudaStream_t stream_with_a_warm_pool(memlord *lord, void **weights) {
    cudaStream_t stream = NULL;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    fake.device[0].threshold = UINT64_MAX;
    assert_cuda(memlord_cuda_malloc(lord, weights, 800 * MIB, NULL));
    step(lord, stream);
    return stream;
}

static void attaching_alone_trims_nothing(void **state) {
    memlord *lord = test_lord(state);
    void *weights = NULL;
    cudaStream_t stream = stream_with_a_warm_pool(lord, &weights);
    int i;
    for (i = 0; i < 100; i++) step(lord, stream);
    assert_int_equal(fake_count("cuMemPoolTrimTo"), 0);
    assert_int_equal(stats_of(lord, cuda(0)).gc_runs, 0);
    assert_int_equal(fake.device[0].reserved, 100 * MIB);
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL)); /* the host may ask */
    assert_int_equal(fake.device[0].reserved, 0);
    assert_cuda(memlord_cuda_free(lord, weights, NULL));
}

static void a_band_leaves_a_pool_what_was_used_since_the_last_one(void **state) {
    memlord *lord = test_lord(state);
    void *weights = NULL;
    cudaStream_t stream = stream_with_a_warm_pool(lord, &weights);
    size_t n;
    const memlord_band *bands = memlord_strategy_default(&n);
    int i;
    assert_ok(memlord_strategy_set(lord, all(), bands, n));
    for (i = 0; i < 100; i++) step(lord, stream);
    assert_in_range(stats_of(lord, cuda(0)).gc_runs, 40, 110);
    assert_int_equal(stats_of(lord, cuda(0)).gc_reclaimed, 0);
    assert_int_equal(fake.device[0].reserved, 100 * MIB);
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_OOM, 0, NULL)); /* that leaves nothing */
    assert_int_equal(fake.device[0].reserved, 0);
    fake.device[0].used_high = fake.device[0].reserved = 180 * MIB; /* long ago */
    for (i = 0; i < 10; i++) step(lord, stream);
    assert_in_range(fake.device[0].reserved, 100 * MIB, 120 * MIB);
    assert_cuda(memlord_cuda_free(lord, weights, NULL));
}

static void any_call_of_a_collection_may_fail(void **state) {
    memlord *lord = test_lord(state);
    uint64_t n, before, reclaimed;
    for (n = 1;; n++) {
        memlord_result r;
        pool_keeps(10 * MIB);
        before = fake.calls;
        fake.fail_at = before + n;
        r = memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, &reclaimed);
        fake.fail_at = 0;
        assert_true(r == MEMLORD_OK || r == MEMLORD_E_STATE);
        assert_true(reclaimed == 0 || reclaimed == 10 * MIB);
        assert_int_equal(fake_depth(), 0);
        assert_int_equal(fake.retains, 0);
        assert_slot(cudaSuccess);
        if (fake.calls < before + n) break;
    }
    assert_true(n > 15);
}

/* -- retry -- */

static void a_retry_that_succeeds_leaves_no_error(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    void *ptr = NULL;
    attach_retrying(lord, 0, 3, &slept);
    out_of_memory(2);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 1000, NULL));
    assert_slot(cudaSuccess);
    assert_int_equal(slept, 2);
    assert_int_equal(stats_of(lord, cuda(0)).recoveries, 1);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 1000);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_true_books(lord);
}

static void an_error_that_was_there_is_not_cleaned_away(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    void *ptr = NULL;
    attach_retrying(lord, 0, 3, &slept);
    assert_int_equal(cudaFree((void *)64), cudaErrorInvalidValue);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 10, NULL));
    assert_slot(cudaErrorInvalidValue);
    out_of_memory(1);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 10, NULL));
    assert_int_not_equal(cudaGetLastError(), cudaSuccess);
}

static void the_last_failure_is_the_runtimes_own(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    void *ptr = NULL;
    attach_retrying(lord, 0, 2, &slept);
    out_of_memory(-1);
    assert_int_equal(memlord_cuda_malloc(lord, &ptr, 1000, NULL), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(fake_count("cudaMalloc"), 4); /* three attempts, and one for the answer */
    assert_int_equal(stats_of(lord, cuda(0)).oom_failures, 1);
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_true_books(lord);
}

static void what_frees_itself_for_the_last_answer_is_counted(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    void *ptr = NULL;
    attach_retrying(lord, 0, 2, &slept);
    out_of_memory(3);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 1000, NULL));
    assert_slot(cudaSuccess);
    assert_true_books(lord);
}

static void a_sticky_error_ends_the_retry(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    void *ptr = NULL;
    attach_retrying(lord, 0, 5, &slept);
    fake.sticky = cudaErrorIllegalAddress;
    assert_int_equal(memlord_cuda_malloc(lord, &ptr, 1000, NULL), cudaErrorIllegalAddress);
    assert_slot(cudaErrorIllegalAddress);
    assert_int_equal(fake_count("cudaMalloc"), 1);
    assert_int_equal(slept, 0);
    fake.sticky = 0;
    cudaGetLastError();
}

static void a_trim_makes_room_where_the_plain_call_has_none(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    void *ptr = NULL;
    pool_keeps(900 * MIB);
    assert_int_equal(cudaMalloc(&ptr, 500 * MIB), cudaErrorMemoryAllocation);
    cudaGetLastError();
    attach_retrying(lord, 0, 3, &slept);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 500 * MIB, NULL));
    assert_slot(cudaSuccess);
    assert_int_equal(stats_of(lord, cuda(0)).gc_reclaimed, 900 * MIB);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
}

static int seen_by_the_host;
static void look(test_gc *gc, memlord *lord, const memlord_gc_event *event) {
    (void)gc, (void)lord, (void)event;
    seen_by_the_host = (int)cudaPeekAtLastError();
}

static void a_hosts_callback_sees_no_error_it_did_not_make(void **state) {
    test_case *t = (test_case *)*state;
    int slept = 0;
    void *ptr = NULL;
    attach_retrying(t->lord, 0, 3, &slept);
    t->gc.act = look;
    t->gc.answer.ran = 1;
    seen_by_the_host = -1;
    assert_ok(memlord_gc_callback_add(t->lord, any(MEMLORD_DEVICE_CUDA), 0, test_gc_run, &t->gc));
    out_of_memory(1);
    assert_cuda(memlord_cuda_malloc(t->lord, &ptr, 1000, NULL));
    assert_int_equal(seen_by_the_host, cudaSuccess);
}

static void a_limit_refuses_before_the_runtime_is_asked(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    void *ptr = (void *)64;
    attach_retrying(lord, 0, 3, &slept);
    assert_ok(memlord_limit_set(lord, cuda(0), 100));
    assert_int_equal(memlord_cuda_malloc(lord, &ptr, 1000, NULL), cudaErrorMemoryAllocation);
    assert_int_equal(fake_count("cudaMalloc"), 0);
    assert_int_equal(fake.contexts, 0);
    assert_null(ptr);
    assert_slot(cudaSuccess);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 100, NULL));
}

static void what_a_limit_refuses_is_null_and_asks_nothing_of_the_runtime(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    cudaStream_t captured;
    cudaGraph_t graph;
    void *ptr = (void *)64;
    struct cudaPitchedPtr box = {(void *)64, 0, 0, 0};
    struct cudaExtent extent = {512, 2, 2};
    attach_retrying(lord, 0, 3, &slept);
    assert_cuda(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking)); /* makes a context */
    assert_ok(memlord_limit_set(lord, cuda(0), 100));
    assert_int_equal(memlord_cuda_malloc(lord, &ptr, 1000, NULL), cudaErrorMemoryAllocation);
    assert_null(ptr);
    assert_int_equal(memlord_cuda_malloc_3d(lord, &box, extent, NULL), cudaErrorMemoryAllocation);
    assert_null(box.ptr);
    assert_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    assert_int_equal(memlord_cuda_malloc_async(lord, &ptr, 1000, captured, NULL),
                     cudaErrorMemoryAllocation);
    assert_cuda(cudaStreamEndCapture(captured, &graph));
    assert_int_equal(fake_count("cudaMalloc"), 0);
    assert_slot(cudaSuccess);
    assert_int_equal(fake_live(), 0);
}

static void rows_retried_are_counted_with_their_pitch(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    void *ptr = NULL;
    size_t pitch;
    attach_retrying(lord, 0, 3, &slept);
    fake.fail_name = "cudaMallocPitch";
    fake.fail_times = 1;
    fake.fail_error = cudaErrorMemoryAllocation;
    assert_cuda(memlord_cuda_malloc_pitch(lord, &ptr, &pitch, 1000, 10, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 10240);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_true_books(lord);
}

static void a_pool_of_another_device_is_counted_there_after_a_retry(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    void *ptr = NULL;
    attach_retrying(lord, 0, 3, &slept);
    assert_cuda(memlord_cuda_malloc_from_pool_async(
        lord, &ptr, 64, (cudaMemPool_t)(void *)&fake.device[1], NULL, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(1)), 64);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
}

/* As before CUDA 12: the runtime knows of the device, the driver still has the one before. */
static void a_device_not_yet_begun_is_where_a_retry_is_counted(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    void *ptr = NULL;
    attach_retrying(lord, 0, 3, &slept);
    assert_cuda(cudaSetDevice(0));
    fake.lazy = 1;
    assert_cuda(cudaSetDevice(1));
    assert_ok(memlord_limit_set(lord, cuda(0), 10)); /* nothing to this device */
    assert_ok(memlord_limit_set(lord, cuda(1), 2000));
    assert_int_equal(memlord_cuda_malloc(lord, &ptr, 3000, NULL), cudaErrorMemoryAllocation);
    assert_int_equal(fake.contexts, 1); /* asking has begun nothing */
    assert_int_equal(fake_count("cudaMalloc"), 0);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 1000, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(1)), 1000);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_slot(cudaSuccess);
}

static void what_asks_for_nothing_or_far_too_much_is_the_runtimes_to_answer(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    void *ptr = (void *)64;
    size_t pitch;
    attach_retrying(lord, 0, 3, &slept);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 0, NULL));
    assert_null(ptr);
    assert_int_equal(memlord_cuda_malloc(lord, &ptr, SIZE_MAX, NULL), cudaErrorMemoryAllocation);
    assert_int_equal(memlord_cuda_malloc_pitch(lord, &ptr, &pitch, SIZE_MAX / 2, 8, NULL),
                     cudaErrorMemoryAllocation);
    assert_int_equal(slept, 0);
    cudaGetLastError();
}

static void one_call_may_be_retried_without_attaching(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    memlord_retry policy = {3, 1, 1, 1.0, no_sleep, NULL};
    void *ptr = NULL;
    policy.user = &slept;
    out_of_memory(2);
    assert_cuda(memlord_cuda_malloc_retry(lord, &ptr, 1000, &policy, NULL));
    assert_int_equal(slept, 2);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 1000);
}

static void a_policy_that_the_ledger_refuses_is_one_plain_call(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0;
    memlord_retry policy = {3, 10, 1, 1.0, no_sleep, NULL}; /* its first pause is over its longest */
    void *ptr = NULL;
    policy.user = &slept;
    assert_cuda(memlord_cuda_malloc_retry(lord, &ptr, 1000, &policy, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 1000);
    out_of_memory(1);
    assert_int_equal(memlord_cuda_malloc_retry(lord, &ptr, 1000, &policy, NULL),
                     cudaErrorMemoryAllocation);
    assert_int_equal(stats_of(lord, cuda(0)).oom_failures, 1);
    assert_int_equal(slept, 0);
    (void)cudaGetLastError();
}

static void any_call_of_a_retry_may_fail(void **state) {
    memlord *lord = test_lord(state);
    int slept = 0, error;
    uint64_t n;
    attach_retrying(lord, 0, 2, &slept);
    for (error = 2; error < 1000; error += 997) /* out of memory, unknown */
        for (n = 1;; n++) {
            uint64_t before = fake.calls;
            void *ptr = NULL;
            cudaError_t r;
            int i;
            for (i = 0; i < DEVICES; i++) fake.device[i].reserved = 0;
            pool_keeps(900 * MIB);
            fake.fail_at = before + n;
            fake.fail_error = error;
            r = memlord_cuda_malloc(lord, &ptr, 500 * MIB, NULL);
            fake.fail_at = 0;
            assert_int_equal(fake_depth(), 0);
            assert_int_equal(fake.retains, 0);
            assert_int_equal(cudaGetLastError(), r);
            assert_true_books(lord);
            if (r == cudaSuccess) assert_cuda(memlord_cuda_free(lord, ptr, NULL));
            if (fake.calls < before + n) break;
        }
    assert_int_equal(fake_live(), 0);
    assert_balanced(lord, all());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_CUDA(a_collection_trims_and_says_what_that_gave),
        TEST_CUDA(a_collection_keeps_what_it_is_told_to),
        TEST_CUDA(a_collection_waits_for_what_is_pending_only_when_asked),
        TEST_CUDA(and_no_capture_ends_by_that),
        TEST_CUDA(a_retry_that_waits_for_what_is_pending_succeeds_at_once),
        TEST_CUDA(an_untouched_device_is_not_collected),
        TEST_CUDA(a_hosts_callback_runs_beside_it),
        TEST_CUDA(a_band_of_the_device_trims_its_pool),
        TEST_CUDA(attaching_alone_trims_nothing),
        TEST_CUDA(a_band_leaves_a_pool_what_was_used_since_the_last_one),
        TEST_CUDA(any_call_of_a_collection_may_fail),
        TEST_CUDA(a_retry_that_succeeds_leaves_no_error),
        TEST_CUDA(an_error_that_was_there_is_not_cleaned_away),
        TEST_CUDA(the_last_failure_is_the_runtimes_own),
        TEST_CUDA(what_frees_itself_for_the_last_answer_is_counted),
        TEST_CUDA(a_sticky_error_ends_the_retry),
        TEST_CUDA(a_trim_makes_room_where_the_plain_call_has_none),
        TEST_CUDA(a_hosts_callback_sees_no_error_it_did_not_make),
        TEST_CUDA(a_limit_refuses_before_the_runtime_is_asked),
        TEST_CUDA(what_a_limit_refuses_is_null_and_asks_nothing_of_the_runtime),
        TEST_CUDA(rows_retried_are_counted_with_their_pitch),
        TEST_CUDA(a_pool_of_another_device_is_counted_there_after_a_retry),
        TEST_CUDA(a_device_not_yet_begun_is_where_a_retry_is_counted),
        TEST_CUDA(what_asks_for_nothing_or_far_too_much_is_the_runtimes_to_answer),
        TEST_CUDA_WITH(a_policy_that_the_ledger_refuses_is_one_plain_call, cuda_setup_bare),
        TEST_CUDA_WITH(one_call_may_be_retried_without_attaching, cuda_setup_bare),
        TEST_CUDA(any_call_of_a_retry_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
