/* The wrapped allocations and frees: what is counted where, and that the books agree with the
   runtime whatever fails. */
#include "support_cuda.h"

static uint64_t live(memlord *lord, memlord_device sel) { return memlord_allocated(lord, sel); }

static void malloc_and_free_are_counted(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = NULL;
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 1000, NULL));
    assert_int_equal(live(lord, cuda(0)), 1000);
    assert_true_books(lord);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(live(lord, all()), 0);
    assert_int_equal(stats_of(lord, cuda(0)).frees, 1);
    assert_int_equal(stats_of(lord, cuda(0)).freed, 1000);
    assert_balanced(lord, all());
    assert_true_books(lord);
}

static void an_allocation_without_memory_is_counted(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = NULL;
    memlord_stats n;
    assert_int_equal(memlord_cuda_malloc(lord, &ptr, (size_t)1 << 46, NULL),
                     cudaErrorMemoryAllocation);
    assert_slot(cudaErrorMemoryAllocation);
    n = stats_of(lord, cuda(0));
    assert_int_equal(n.oom_attempts, 1);
    assert_int_equal(n.oom_failures, 1);
    assert_int_equal(n.retries, 0);
    (void)cudaGetLastError();
}

static void an_allocation_of_more_than_the_ledger_takes_is_counted(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = NULL;
    assert_int_equal(memlord_cuda_malloc(lord, &ptr, (size_t)1 << 50, NULL),
                     cudaErrorMemoryAllocation);
    assert_int_equal(stats_of(lord, cuda(0)).oom_failures, 1);
    (void)cudaGetLastError();
}

static void rows_are_counted_with_their_pitch(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = NULL;
    size_t pitch = 0;
    struct cudaPitchedPtr box;
    struct cudaExtent extent = {100, 7, 3};
    assert_cuda(memlord_cuda_malloc_pitch(lord, &ptr, &pitch, 1000, 10, NULL));
    assert_int_equal(pitch, 1024);
    assert_int_equal(live(lord, cuda(0)), 10240);
    assert_cuda(memlord_cuda_malloc_3d(lord, &box, extent, NULL));
    assert_int_equal(live(lord, cuda(0)), 10240 + 512 * 7 * 3);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_cuda(memlord_cuda_free(lord, box.ptr, NULL));
    assert_true_books(lord);
}

static void managed_memory_is_counted_on_the_current_device(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = NULL;
    assert_cuda(cudaSetDevice(1));
    assert_cuda(memlord_cuda_malloc_managed(lord, &ptr, 500, cudaMemAttachGlobal, NULL));
    assert_int_equal(live(lord, cuda(1)), 500);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(live(lord, all()), 0);
}

static void stream_ordered_memory_is_counted_on_the_streams_device(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    void *a = NULL, *b = NULL;
    assert_cuda(cudaSetDevice(1));
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_cuda(cudaSetDevice(0));
    assert_cuda(memlord_cuda_malloc_async(lord, &a, 100, stream, NULL));
    assert_cuda(memlord_cuda_malloc_async(lord, &b, 30, NULL, NULL));
    assert_int_equal(live(lord, cuda(1)), 100);
    assert_int_equal(live(lord, cuda(0)), 30);
    assert_cuda(memlord_cuda_free_async(lord, a, stream, NULL));
    assert_cuda(memlord_cuda_free_async(lord, b, NULL, NULL));
    assert_int_equal(live(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).pending, 0);
    assert_true_books(lord);
}

static void memory_of_another_devices_pool_is_counted_there(void **state) {
    memlord *lord = test_lord(state);
    cudaMemPool_t pool;
    void *ptr = NULL;
    assert_cuda(cudaDeviceGetDefaultMemPool(&pool, 1));
    assert_cuda(memlord_cuda_malloc_from_pool_async(lord, &ptr, 100, pool, NULL, NULL));
    assert_int_equal(live(lord, cuda(1)), 100);
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    assert_true_books(lord);
}

static void memory_of_a_pool_of_the_hosts_is_counted_where_its_stream_is(void **state) {
    memlord *lord = test_lord(state);
    cudaMemPool_t pool;
    void *ptr = NULL;
    fake.host_pools = 1;
    assert_cuda(cudaSetDevice(1));
    assert_cuda(cudaDeviceGetDefaultMemPool(&pool, 0));
    assert_cuda(memlord_cuda_malloc_from_pool_async(lord, &ptr, 100, pool, NULL, NULL));
    assert_int_equal(live(lord, cuda(1)), 100);
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_true_books(lord);
}

static void page_locked_memory_is_counted_as_pinned(void **state) {
    memlord *lord = test_lord(state);
    void *a = NULL, *b = NULL;
    char mine[64];
    assert_cuda(memlord_cuda_malloc_host(lord, &a, 100, NULL));
    assert_cuda(memlord_cuda_host_alloc(lord, &b, 20, cudaHostAllocDefault, NULL));
    assert_cuda(memlord_cuda_host_register(lord, mine, sizeof mine, cudaHostRegisterDefault, NULL));
    assert_int_equal(live(lord, pinned()), 184);
    assert_int_equal(live(lord, cuda(0)), 0);
    assert_cuda(memlord_cuda_free_host(lord, a, NULL));
    assert_cuda(memlord_cuda_free_host(lord, b, NULL));
    assert_cuda(memlord_cuda_host_unregister(lord, mine, NULL));
    assert_int_equal(live(lord, all()), 0);
    assert_true_books(lord);
}

static void what_comes_out_null_is_no_storage(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = (void *)64;
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 0, NULL));
    assert_null(ptr);
    assert_cuda(memlord_cuda_free(lord, NULL, NULL));
    assert_int_equal(stats_of(lord, all()).allocs, 0);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_int_equal(fake_count("cudaFree"), 1); /* the runtime's answer to it */
}

static void a_null_ledger_is_the_runtime_alone(void **state) {
    void *ptr = NULL;
    uint64_t calls = fake.calls;
    (void)state;
    assert_cuda(memlord_cuda_malloc(NULL, &ptr, 64, NULL));
    assert_cuda(memlord_cuda_free(NULL, ptr, NULL));
    assert_cuda(memlord_cuda_device_synchronize(NULL, NULL));
    assert_cuda(memlord_cuda_malloc_retry(NULL, &ptr, 64, NULL, NULL));
    assert_cuda(memlord_cuda_free(NULL, ptr, NULL));
    assert_int_equal(fake.calls, calls + 5);
}

static void sites_are_the_callers(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = NULL;
    int line = __LINE__ + 2;
    memlord_site_stat top;
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 4096, MEMLORD_SITE()));
    assert_int_equal(memlord_site_top_alloc(lord, cuda(0), &top), 1);
    assert_int_equal(top.site->line, line);
    assert_int_equal(top.live_bytes, 4096);
    assert_cuda(memlord_cuda_free(lord, ptr, MEMLORD_SITE()));
    assert_int_equal(memlord_site_top_alloc(lord, cuda(0), &top), 1);
    assert_int_equal(top.alloc_bytes, 4096); /* not twice: the way of a free leaves no trace */
    assert_int_equal(top.allocs, 1);
    assert_int_equal(top.live_bytes, 0);
    assert_int_equal(memlord_site_top_free(lord, cuda(0), &top), 1);
    assert_int_equal(top.free_bytes, 4096);
    assert_int_equal(top.site->line, line + 4);
}

static int count_event(void *user, const memlord_event *event) {
    uint64_t *n = (uint64_t *)user;
    n[event->kind]++;
    n[MEMLORD_EVENT_COUNT] += event->storage >> 63;
    return 0;
}

static void events_show_an_alloc_and_a_free_and_nothing_else(void **state) {
    memlord *lord = test_lord(state);
    uint64_t n[MEMLORD_EVENT_COUNT + 1] = {0};
    void *ptr = NULL;
    assert_ok(memlord_events_start(lord, 100));
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 64, NULL));
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_ok(memlord_events_each(lord, count_event, n));
    assert_int_equal(n[MEMLORD_EVENT_ALLOC], 1);
    assert_int_equal(n[MEMLORD_EVENT_FREE], 1);
    assert_int_equal(n[MEMLORD_EVENT_COUNT], 0); /* of no address nobody knows */
}

/* -- what fails -- */

static cudaError_t call(memlord *lord, int which, void **ptr) {
    size_t pitch;
    struct cudaPitchedPtr box = {NULL, 0, 0, 0};
    struct cudaExtent extent = {64, 2, 2};
    cudaMemPool_t pool = (cudaMemPool_t)(void *)&fake.device[1];
    static char mine[64];
    cudaError_t r;
    switch (which) {
    case 0: return memlord_cuda_malloc(lord, ptr, 64, NULL);
    case 1: return memlord_cuda_malloc_pitch(lord, ptr, &pitch, 64, 2, NULL);
    case 2: return memlord_cuda_malloc_managed(lord, ptr, 64, cudaMemAttachGlobal, NULL);
    case 3: return memlord_cuda_malloc_async(lord, ptr, 64, NULL, NULL);
    case 4: return memlord_cuda_malloc_from_pool_async(lord, ptr, 64, pool, NULL, NULL);
    case 5: return memlord_cuda_malloc_host(lord, ptr, 64, NULL);
    case 6: return memlord_cuda_host_alloc(lord, ptr, 64, 0, NULL);
    case 7:
        r = memlord_cuda_host_register(lord, mine, sizeof mine, 0, NULL);
        *ptr = mine;
        return r;
    default:
        r = memlord_cuda_malloc_3d(lord, &box, extent, NULL);
        *ptr = box.ptr;
        return r;
    }
}

static cudaError_t give_back(memlord *lord, int which, void *ptr) {
    if (which == 7) return memlord_cuda_host_unregister(lord, ptr, NULL);
    if (which == 5 || which == 6) return memlord_cuda_free_host(lord, ptr, NULL);
    if (which == 3 || which == 4) return memlord_cuda_free_async(lord, ptr, NULL, NULL);
    return memlord_cuda_free(lord, ptr, NULL);
}

/* Whatever call fails, with whatever error: the books say what the fake has, the wrapper what the
   runtime said, and so does the last error. */
static void any_call_may_fail_and_the_books_stay_true(void **state) {
    memlord *lord = test_lord(state);
    int which;
    uint64_t n;
    for (which = 0; which < 9; which++) {
        for (n = 1;; n++) {
            uint64_t before = fake.calls;
            void *ptr = NULL;
            cudaError_t made, freed = cudaSuccess;
            fake.fail_at = before + n;
            made = call(lord, which, &ptr);
            assert_true_books(lord);
            assert_int_equal(cudaGetLastError(), made);
            if (made == cudaSuccess) freed = give_back(lord, which, ptr);
            assert_true_books(lord);
            if (fake.calls >= fake.fail_at) fake.fail_at = 0;
            assert_int_equal(cudaGetLastError(), freed);
            if (freed != cudaSuccess) assert_cuda(give_back(lord, which, ptr));
            assert_int_equal(fake_live(), 0);
            assert_true_books(lord);
            if (fake.fail_at) break; /* the call was not reached */
        }
        assert_true(n > 2);
        fake.fail_at = 0;
    }
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_balanced(lord, all());
}

/* The question for the current device leaves a clean last error clean. Of two errors the runtime keeps
   the later one. */
static void an_alloc_whose_device_nobody_knows_is_counted_on_the_first(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = NULL;
    int round;
    for (round = 0; round < 2; round++) {
        assert_cuda(cudaSetDevice(1));
        if (round)
            assert_int_equal(cudaMalloc(&ptr, (size_t)1 << 46), cudaErrorMemoryAllocation);
        fake.fail_name = "cudaGetDevice";
        fake.fail_times = -1;
        assert_cuda(memlord_cuda_malloc(lord, &ptr, 64, NULL));
        fake.fail_times = 0;
        assert_slot(round ? cudaErrorUnknown : cudaSuccess);
        assert_int_equal(live(lord, cuda(0)), 64);
        assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    }
    (void)cudaGetLastError();
}

static void a_failed_alloc_on_a_stream_without_a_known_device_is_counted_on_the_current(void **state) {
    static const char *const names[] = {"cuStreamGetCtx", "cuCtxPushCurrent_v2", "cuCtxGetDevice"};
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    void *ptr = NULL;
    int i;
    assert_cuda(cudaSetDevice(1));
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_cuda(cudaSetDevice(0));
    for (i = 0; i <= 3; i++) {
        fake.fail_name = i < 3 ? names[i] : NULL;
        fake.fail_times = i < 3 ? -1 : 0;
        assert_int_equal(memlord_cuda_malloc_async(lord, &ptr, (size_t)1 << 46, stream, NULL),
                         cudaErrorMemoryAllocation);
        assert_int_equal(stats_of(lord, cuda(0)).oom_failures, i < 3 ? i + 1 : 3);
        assert_int_equal(stats_of(lord, cuda(1)).oom_failures, i == 3);
    }
    (void)cudaGetLastError();
}

static void a_registration_that_fails_records_nothing(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_cuda_host_register(lord, NULL, 64, 0, NULL), cudaErrorInvalidValue);
    assert_int_equal(stats_of(lord, all()).allocs, 0);
    (void)cudaGetLastError();
}

static void a_failed_free_leaves_the_block_as_it_was(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info before, after;
    memlord_stats was, now;
    void *ptr = NULL;
    memlord_mark(lord);
    MEMLORD_TAG(lord, "weights") assert_cuda(memlord_cuda_malloc(lord, &ptr, 640, MEMLORD_SITE()));
    assert_ok(memlord_retain(lord, cuda(0), MEMLORD_KEY(ptr), NULL));
    assert_ok(memlord_block_find(lord, cuda(0), MEMLORD_KEY(ptr), &before));
    was = stats_of(lord, all());
    fake.fail_name = "cudaFree";
    fake.fail_times = 1;
    fake.fail_error = cudaErrorIllegalAddress;
    assert_int_equal(memlord_cuda_free(lord, ptr, NULL), cudaErrorIllegalAddress);
    assert_slot(cudaErrorIllegalAddress);
    now = stats_of(lord, all());
    assert_memory_equal(&was, &now, sizeof now);
    assert_ok(memlord_block_find(lord, cuda(0), MEMLORD_KEY(ptr), &after));
    assert_int_equal(after.refs, 2);
    assert_string_equal(after.tag, "weights");
    assert_ptr_equal(after.site, before.site);
    assert_int_equal(after.born, before.born);
    assert_ok(memlord_release(lord, cuda(0), MEMLORD_KEY(ptr), NULL));
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(live(lord, all()), 0);
    cudaGetLastError();
}

static void a_pointer_never_seen_is_counted_and_answered_by_the_runtime(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = NULL;
    assert_int_equal(memlord_cuda_free(lord, (void *)4096, NULL), cudaErrorInvalidValue);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
    assert_cuda(cudaMalloc(&ptr, 64)); /* behind our back */
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(stats_of(lord, all()).unknown_frees, 2);
    assert_int_equal(live(lord, all()), 0);
    cudaGetLastError();
}

static void the_wrong_free_changes_nothing_but_the_anomaly(void **state) {
    memlord *lord = test_lord(state);
    void *host = NULL, *device = NULL;
    assert_cuda(memlord_cuda_malloc_host(lord, &host, 64, NULL));
    assert_cuda(memlord_cuda_malloc(lord, &device, 32, NULL));
    assert_int_equal(memlord_cuda_free(lord, host, NULL), cudaErrorInvalidValue);
    assert_int_equal(memlord_cuda_free_host(lord, device, NULL), cudaErrorInvalidValue);
    assert_int_equal(memlord_cuda_host_unregister(lord, host, NULL),
                     cudaErrorHostMemoryNotRegistered);
    assert_int_equal(live(lord, pinned()), 64);
    assert_int_equal(live(lord, cuda(0)), 32);
    assert_true_books(lord);
    assert_cuda(memlord_cuda_free_host(lord, host, NULL));
    assert_cuda(memlord_cuda_free(lord, device, NULL));
    cudaGetLastError();
}

static void a_second_free_is_counted_and_answered_by_the_runtime(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = NULL;
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 64, NULL));
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(memlord_cuda_free(lord, ptr, NULL), cudaErrorInvalidValue);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
    assert_balanced(lord, all());
    cudaGetLastError();
}

static void a_free_on_a_destroyed_stream_frees_nothing(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    void *ptr = NULL;
    assert_cuda(cudaStreamCreateWithFlags(&stream, 0));
    assert_cuda(memlord_cuda_malloc_async(lord, &ptr, 64, stream, NULL));
    assert_cuda(cudaStreamDestroy(stream));
    assert_int_equal(memlord_cuda_free_async(lord, ptr, stream, NULL),
                     cudaErrorInvalidResourceHandle);
    assert_int_equal(live(lord, cuda(0)), 64);
    assert_true_books(lord);
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    cudaGetLastError();
}

static void a_sticky_error_is_passed_on(void **state) {
    memlord *lord = test_lord(state);
    void *ptr = NULL, *other = NULL;
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 64, NULL));
    fake.sticky = cudaErrorIllegalAddress;
    assert_int_equal(memlord_cuda_malloc(lord, &other, 64, NULL), cudaErrorIllegalAddress);
    assert_int_equal(memlord_cuda_free(lord, ptr, NULL), cudaErrorIllegalAddress);
    assert_int_equal(memlord_cuda_device_synchronize(lord, NULL), cudaErrorIllegalAddress);
    assert_int_equal(live(lord, cuda(0)), 64);
    fake.sticky = 0;
    cudaGetLastError();
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
}

static void a_free_that_a_capture_forbids_frees_nothing(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    cudaGraph_t graph;
    void *ptr = NULL, *node = NULL;
    assert_cuda(cudaStreamCreateWithFlags(&stream, 0));
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 64, NULL));
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    assert_cuda(memlord_cuda_malloc_async(lord, &node, 128, stream, NULL)); /* a graph's node */
    assert_cuda(memlord_cuda_free_async(lord, node, stream, NULL));
    assert_int_equal(memlord_cuda_free(lord, ptr, NULL), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(live(lord, cuda(0)), 64);
    assert_int_equal(memlord_cuda_stream_end_capture(lord, stream, &graph, NULL),
                     cudaErrorStreamCaptureInvalidated);
    fake.violated = 0; /* that was the host */
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_true_books(lord);
    cudaGetLastError();
}

static void a_ledger_without_memory_does_not_stop_the_host(void **state) {
    test_case *t = (test_case *)*state;
    void *ptr[64];
    int i;
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    for (i = 0; i < 64; i++) assert_cuda(memlord_cuda_malloc(t->lord, &ptr[i], 64, NULL));
    for (i = 0; i < 64; i++) assert_cuda(memlord_cuda_free(t->lord, ptr[i], NULL));
    t->heap.fail_at = 0;
    assert_int_equal(live(t->lord, all()), 0);
    assert_int_equal(fake_live(), 0);
}

/* -- threads -- */

static void *churn(void *user) {
    memlord *lord = (memlord *)user;
    void *ptr[16] = {NULL};
    int i, k;
    for (i = 0; i < 2000; i++) {
        k = i % 16;
        if (ptr[k]) (void)memlord_cuda_free_async(lord, ptr[k], NULL, NULL);
        ptr[k] = NULL;
        (void)memlord_cuda_malloc_async(lord, &ptr[k], 4096, NULL, NULL);
    }
    for (k = 0; k < 16; k++)
        if (ptr[k]) (void)memlord_cuda_free_async(lord, ptr[k], NULL, NULL);
    return NULL;
}

static void threads_leave_nothing_behind(void **state) {
    memlord *lord = test_lord(state);
    pthread_t threads[8];
    memlord_stats s;
    int i;
    for (i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, lord), 0);
    for (i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    s = stats_of(lord, all());
    assert_int_equal(s.allocs, 8 * 2000);
    assert_int_equal(s.frees, 8 * 2000);
    assert_int_equal(s.allocated, 0);
    assert_int_equal(s.unknown_frees, 0);
    assert_true_books(lord);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_CUDA(malloc_and_free_are_counted),
        TEST_CUDA(an_allocation_without_memory_is_counted),
        TEST_CUDA(an_allocation_of_more_than_the_ledger_takes_is_counted),
        TEST_CUDA(rows_are_counted_with_their_pitch),
        TEST_CUDA(managed_memory_is_counted_on_the_current_device),
        TEST_CUDA(stream_ordered_memory_is_counted_on_the_streams_device),
        TEST_CUDA(memory_of_another_devices_pool_is_counted_there),
        TEST_CUDA(memory_of_a_pool_of_the_hosts_is_counted_where_its_stream_is),
        TEST_CUDA(page_locked_memory_is_counted_as_pinned),
        TEST_CUDA(what_comes_out_null_is_no_storage),
        TEST_CUDA(a_null_ledger_is_the_runtime_alone),
        TEST_CUDA_WITH(sites_are_the_callers, cuda_setup_sites),
        TEST_CUDA(events_show_an_alloc_and_a_free_and_nothing_else),
        TEST_CUDA(any_call_may_fail_and_the_books_stay_true),
        TEST_CUDA(an_alloc_whose_device_nobody_knows_is_counted_on_the_first),
        TEST_CUDA(a_failed_alloc_on_a_stream_without_a_known_device_is_counted_on_the_current),
        TEST_CUDA(a_registration_that_fails_records_nothing),
        TEST_CUDA(a_failed_free_leaves_the_block_as_it_was),
        TEST_CUDA(a_pointer_never_seen_is_counted_and_answered_by_the_runtime),
        TEST_CUDA(the_wrong_free_changes_nothing_but_the_anomaly),
        TEST_CUDA(a_second_free_is_counted_and_answered_by_the_runtime),
        TEST_CUDA(a_free_on_a_destroyed_stream_frees_nothing),
        TEST_CUDA(a_sticky_error_is_passed_on),
        TEST_CUDA(a_free_that_a_capture_forbids_frees_nothing),
        TEST_CUDA(a_ledger_without_memory_does_not_stop_the_host),
        TEST_CUDA(threads_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
