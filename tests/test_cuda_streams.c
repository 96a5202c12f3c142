/* Frees in the order of a stream: events, captures, streams that go away. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "support_cuda.h"

#include <dlfcn.h>

static cudaStream_t stream_on(int device) {
    cudaStream_t stream = NULL;
    assert_cuda(cudaSetDevice(device));
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static void *block(memlord *lord, size_t bytes) {
    void *ptr = NULL;
    assert_cuda(memlord_cuda_malloc(lord, &ptr, bytes, NULL));
    return ptr;
}

static void *block_async(memlord *lord, cudaStream_t stream) {
    void *ptr = NULL;
    assert_cuda(memlord_cuda_malloc_async(lord, &ptr, 8, stream, NULL));
    return ptr;
}

static uint64_t pending(memlord *lord) { return memlord_pending(lord, all()); }

static void a_free_on_a_stream_pends_until_the_stream_is_done(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    void *ptr = block(lord, 1000);
    fake_stream_work(stream);
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    assert_int_equal(pending(lord), 1000);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 1000);
    assert_int_equal(memlord_retire(lord, all()), 0);
    fake_stream_finish(stream);
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(pending(lord), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
    assert_int_equal(fake_live(), 1); /* the memory is the host's to return */
    assert_cuda(cudaFree(ptr));
    assert_slot(cudaSuccess);
}

static void a_free_after_a_stream_frees_the_memory_and_pends(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t own = stream_on(0), stream = stream_on(0);
    void *ptr = block_async(lord, own);
    fake_stream_work(stream);
    assert_cuda(memlord_cuda_free_async_after(lord, ptr, stream, NULL));
    assert_int_equal(fake_live(), 0);
    assert_int_equal(pending(lord), 8);
    assert_int_equal(memlord_retire(lord, all()), 0);
    fake_stream_finish(stream);
    assert_int_equal(memlord_retire(lord, all()), 8);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_int_equal(stats_of(lord, all()).frees, 1);
    assert_balanced(lord, all());
}

static void one_that_the_runtime_refuses_leaves_the_block(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    void *ptr = block_async(lord, stream);
    fake.fail_name = "cudaFreeAsync";
    fake.fail_times = 1;
    assert_int_equal(memlord_cuda_free_async_after(lord, ptr, stream, NULL), 999);
    assert_int_equal(cudaGetLastError(), 999);
    assert_int_equal(pending(lord), 0);
    assert_true_books(lord);
    assert_cuda(memlord_cuda_free_async_after(lord, ptr, stream, NULL));
    (void)memlord_retire(lord, all());
    assert_true_books(lord);
}

static void one_of_a_block_that_others_use_waits_for_them_as_well(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0), side = stream_on(0);
    void *ptr = block_async(lord, stream);
    assert_ok(memlord_cuda_record_use(lord, ptr, side));
    fake_stream_work(side);
    assert_cuda(memlord_cuda_free_async_after(lord, ptr, stream, NULL));
    assert_int_equal(fake_count("cuEventRecord"), 2);
    assert_int_equal(memlord_retire(lord, all()), 0);
    fake_stream_work(side); /* later, and nothing to wait for */
    fake_stream_finish(side);
    assert_int_equal(memlord_retire(lord, all()), 8);
}

static void one_in_a_capture_pends_until_that_is_over(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    cudaGraph_t graph;
    void *ptr = NULL;
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    assert_cuda(memlord_cuda_malloc_async(lord, &ptr, 8, stream, NULL));
    assert_cuda(memlord_cuda_free_async_after(lord, ptr, stream, NULL));
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_int_equal(fake_count("cuEventRecord"), 0);
    assert_cuda(memlord_cuda_stream_end_capture(lord, stream, &graph, NULL));
    assert_int_equal(fake_count("cuEventRecord"), 1);
    assert_int_equal(memlord_retire(lord, all()), 8);
}

static void a_deferring_ledger_has_the_event_of_a_free_after_a_stream_from_it(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    assert_cuda(memlord_cuda_free_async_after(lord, block_async(lord, stream), stream, NULL));
    assert_int_equal(fake_count("cuEventRecord"), 1);
    assert_int_equal(pending(lord), 8);
    assert_int_equal(memlord_retire(lord, all()), 8);
}

static void one_of_a_block_never_seen_is_the_runtimes_to_answer(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    void *ptr = NULL;
    assert_cuda(cudaMallocAsync(&ptr, 64, stream));
    assert_cuda(memlord_cuda_free_async_after(lord, ptr, stream, NULL));
    assert_int_equal(fake_live(), 0);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
    assert_int_equal(memlord_cuda_free_async_after(lord, NULL, stream, NULL),
                     cudaErrorInvalidValue);
    assert_cuda(cudaMallocAsync(&ptr, 64, stream));
    assert_cuda(memlord_cuda_free_async_after(NULL, ptr, stream, NULL));
    assert_int_equal(fake_live(), 0);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
    cudaGetLastError();
}

/* What only the books were told of is not there for a wrapper, whether it pends or not. */
static void the_wrapped_free_of_a_block_recorded_as_free_ends_nothing(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    void *ptr = block(lord, 1000), *other = block(lord, 20);
    fake_stream_work(stream);
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    assert_ok(memlord_cuda_record_free(lord, other, stream, NULL));
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_int_equal(pending(lord), 1020);
    fake_stream_finish(stream);
    assert_int_equal(memlord_retire(lord, all()), 1020);
    assert_cuda(memlord_cuda_free(lord, other, NULL));
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
    assert_true_books(lord);
}

static void a_pinned_block_waits_for_the_copy_that_a_stream_makes_of_it(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    void *staging = NULL, *used = NULL;
    assert_cuda(memlord_cuda_malloc_host(lord, &staging, 1000, NULL));
    assert_cuda(memlord_cuda_malloc_host(lord, &used, 200, NULL));
    fake_stream_work(stream);
    assert_ok(memlord_cuda_record_free(lord, staging, stream, NULL));
    assert_ok(memlord_cuda_record_use(lord, used, stream));
    assert_cuda(memlord_cuda_free_host(lord, used, NULL));
    assert_int_equal(memlord_pending(lord, pinned()), 1200);
    assert_cuda(memlord_cuda_stream_synchronize(lord, stream, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_cuda(cudaFreeHost(staging));
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_balanced(lord, all());
}

/* By a pool of the host's, which hands out the address again. */
static void a_block_that_comes_again_is_freed_again(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    void *ptr = block(lord, 1000);
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), MEMLORD_KEY(ptr), 1000, NULL));
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_balanced(lord, all());
}

static void an_idle_stream_credits_at_the_next_poll(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    void *ptr = block(lord, 1000);
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    assert_int_equal(fake_count("cuEventQuery"), 0);
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(fake_count("cuEventQuery"), 1);
    assert_int_equal(fake.events, 1); /* kept */
}

static void events_are_used_again(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t a = stream_on(0), b = stream_on(1);
    int i;
    for (i = 0; i < 100; i++) {
        assert_ok(memlord_cuda_record_free(lord, block(lord, 8), a, NULL));
        assert_ok(memlord_cuda_record_free(lord, block(lord, 8), b, NULL));
        (void)memlord_retire(lord, all());
    }
    assert_int_equal(fake.events_made, 2); /* one for each device */
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_ok(memlord_cuda_detach(lord));
    assert_int_equal(fake.events, 0);
}

/* Of many in flight every second one gives its frees to the next. */
static void a_stream_has_few_events_however_much_waits_for_it(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    uint64_t queries;
    int i;
    for (i = 0; i < 1000; i++) {
        fake_stream_work(stream);
        assert_ok(memlord_cuda_record_free(lord, block(lord, 8), stream, NULL));
    }
    assert_int_equal(fake.events, 33);
    queries = fake_count("cuEventQuery");
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_int_equal(fake_count("cuEventQuery") - queries, 1);
    fake_stream_do(stream, 500);
    assert_int_equal(memlord_retire(lord, all()), 8 * 486); /* late by 64 at the most */
    assert_in_range(fake_count("cuEventQuery") - queries, 2, 14);
    fake_stream_finish(stream);
    assert_int_equal(memlord_retire(lord, all()) > 0, 1);
    assert_int_equal(pending(lord), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void no_more_events_are_kept_than_there_may_be(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t streams[20];
    int i;
    for (i = 0; i < 20; i++) {
        streams[i] = stream_on(0);
        fake_stream_work(streams[i]);
    }
    for (i = 0; i < 20 * 30; i++)
        assert_ok(memlord_cuda_record_free(lord, block(lord, 8), streams[i % 20], NULL));
    assert_int_equal(fake.events, 600);
    for (i = 0; i < 20; i++) fake_stream_finish(streams[i]);
    assert_int_equal(memlord_retire(lord, all()), 8 * 600);
    assert_int_equal(fake.events, 256);
}

static void a_use_holds_back_a_free_until_its_stream_is_done(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t side = stream_on(0);
    void *ptr = block(lord, 1000);
    assert_ok(memlord_cuda_record_use(lord, ptr, side));
    assert_int_equal(fake_count("cuEventRecord"), 0);
    fake_stream_work(side); /* the use: the event comes after it, at the free */
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(fake_count("cuEventRecord"), 1);
    assert_int_equal(pending(lord), 1000);
    assert_int_equal(fake_live(), 0);
    fake_stream_finish(side);
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(stats_of(lord, all()).frees, 1);
    assert_balanced(lord, all());
}

static void every_stream_that_used_it_holds_it_back(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t a = stream_on(0), b = stream_on(0), c = stream_on(1);
    void *ptr = block(lord, 1000);
    assert_ok(memlord_cuda_record_use(lord, ptr, a));
    assert_ok(memlord_cuda_record_use(lord, ptr, b));
    assert_ok(memlord_cuda_record_use(lord, ptr, c));
    assert_ok(memlord_cuda_record_use(lord, ptr, a)); /* takes the place of the first */
    fake_stream_work(a), fake_stream_work(b), fake_stream_work(c);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    fake_stream_finish(c);
    assert_int_equal(memlord_retire(lord, all()), 0);
    fake_stream_finish(a);
    assert_int_equal(memlord_retire(lord, all()), 0);
    fake_stream_finish(b);
    assert_int_equal(memlord_retire(lord, all()), 1000);
}

static void a_failed_free_of_a_used_block_brings_it_back_without_its_uses(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t side = stream_on(0);
    void *ptr = NULL;
    memlord_block_info info;
    MEMLORD_TAG(lord, "weights") ptr = block(lord, 1000);
    assert_ok(memlord_cuda_record_use(lord, ptr, side));
    fake_stream_work(side);
    fake.fail_name = "cudaFree";
    fake.fail_times = 1;
    assert_int_equal(memlord_cuda_free(lord, ptr, NULL), 999);
    assert_int_equal(pending(lord), 0);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 1000);
    assert_ok(memlord_block_find(lord, cuda(0), MEMLORD_KEY(ptr), &info));
    assert_string_equal(info.tag, "weights");
    assert_true_books(lord);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_balanced(lord, all());
    fake_stream_finish(side);
    cudaGetLastError();
}

static void an_address_that_comes_again_ends_what_was_pending(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    void *ptr = block(lord, 1000);
    fake_stream_work(stream);
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    assert_ok(memlord_alloc(lord, cuda(0), MEMLORD_KEY(ptr), 300, NULL));
    assert_int_equal(pending(lord), 0);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 300);
    assert_int_equal(stats_of(lord, all()).implicit_frees, 0);
    assert_ok(memlord_free(lord, cuda(0), MEMLORD_KEY(ptr), NULL));
    fake_stream_finish(stream);
}

/* -- what is not there -- */

static void a_block_never_seen_is_unknown(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    assert_int_equal(memlord_cuda_record_free(lord, (void *)4096, stream, NULL),
                     MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_cuda_record_use(lord, (void *)4096, stream), MEMLORD_E_UNKNOWN);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 1);
    assert_ok(memlord_cuda_record_free(lord, NULL, stream, NULL));
    assert_ok(memlord_cuda_record_free(NULL, (void *)4096, stream, NULL));
    assert_ok(memlord_cuda_record_use(NULL, (void *)4096, stream));
}

static void a_destroyed_stream_credits_at_once_and_is_counted(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    void *a = block(lord, 1000), *b = block(lord, 20);
    assert_ok(memlord_cuda_record_use(lord, b, stream));
    assert_cuda(cudaStreamDestroy(stream));
    assert_ok(memlord_cuda_record_free(lord, a, stream, NULL));
    assert_cuda(memlord_cuda_free(lord, b, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 2);
    assert_slot(cudaSuccess);
}

static void a_stream_destroyed_after_the_free_is_not_asked_again(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    void *ptr = block(lord, 1000);
    uint64_t asked;
    fake_stream_work(stream);
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    assert_cuda(cudaStreamDestroy(stream)); /* does not wait */
    assert_int_equal(memlord_retire(lord, all()), 0);
    fake_stream_finish(stream);
    asked = fake_count("cuStreamIsCapturing") + fake_count("cuStreamGetCtx");
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(fake_count("cuStreamIsCapturing") + fake_count("cuStreamGetCtx"), asked);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void events_gone_with_a_reset_are_replaced(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    assert_ok(memlord_cuda_record_free(lord, block(lord, 8), stream, NULL));
    fake.fail_name = "cuEventRecord";
    fake.fail_times = 1;
    fake.fail_error = cudaErrorInvalidResourceHandle;
    fake_stream_work(stream);
    assert_ok(memlord_cuda_record_free(lord, block(lord, 1000), stream, NULL));
    assert_int_equal(pending(lord), 1000);
    assert_int_equal(fake.events_made, 2);
    fake_stream_finish(stream);
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void the_default_stream_is_that_of_the_current_context(void **state) {
    memlord *lord = test_lord(state);
    void *a, *b;
    assert_cuda(cudaSetDevice(1));
    a = block(lord, 1000);
    assert_cuda(cudaSetDevice(0));
    b = block(lord, 20);
    fake_stream_work(NULL); /* device 0's */
    assert_ok(memlord_cuda_record_free(lord, b, NULL, NULL));
    assert_int_equal(pending(lord), 20);
    assert_cuda(cudaSetDevice(1));
    assert_ok(memlord_cuda_record_free(lord, a, NULL, NULL)); /* is idle, and is not held up */
    assert_int_equal(memlord_retire(lord, cuda(1)), 1000);
    assert_int_equal(pending(lord), 20);
    assert_cuda(cudaSetDevice(0));
    fake_stream_finish(NULL);
    assert_int_equal(memlord_retire(lord, all()), 20);
}

static void the_default_streams_of_two_devices_are_two(void **state) {
    memlord *lord = test_lord(state);
    void *ptr;
    assert_cuda(cudaSetDevice(0));
    ptr = block(lord, 1000);
    fake_stream_work(NULL);
    assert_ok(memlord_cuda_record_use(lord, ptr, NULL));
    assert_cuda(cudaSetDevice(1));
    assert_ok(memlord_cuda_record_use(lord, ptr, NULL)); /* not in place of the first */
    assert_cuda(cudaSetDevice(0));
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(pending(lord), 1000);
    fake_stream_finish(NULL);
    assert_int_equal(memlord_retire(lord, all()), 1000);
}

static void *free_from_elsewhere(void *user) {
    void **args = (void **)user;
    args[2] = memlord_cuda_record_free((memlord *)args[0], args[1], NULL, NULL) == MEMLORD_OK
                  ? args
                  : NULL;
    return NULL;
}

static void a_thread_without_a_context_uses_that_of_the_blocks_device(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    void *args[3];
    assert_cuda(cudaSetDevice(1));
    args[0] = lord;
    args[1] = block(lord, 1000);
    assert_int_equal(pthread_create(&thread, NULL, free_from_elsewhere, args), 0);
    pthread_join(thread, NULL);
    assert_non_null(args[2]);
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
    assert_int_equal(fake.contexts, 1); /* and none on device 0 */
}

static void nor_is_it_lost_if_that_may_not_be_asked_now(void **state) {
    memlord *lord = test_lord(state);
    const char *const calls[] = {"cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain"};
    pthread_t thread;
    void *args[3];
    int i;
    args[0] = lord;
    for (i = 0; i < 2; i++) {
        args[1] = block(lord, 1000);
        fake.fail_error = 800;
        fake.fail_name = calls[i];
        fake.fail_times = 1;
        assert_int_equal(pthread_create(&thread, NULL, free_from_elsewhere, args), 0);
        pthread_join(thread, NULL);
        assert_int_equal(fake.fail_times, 0);
        assert_int_equal(pending(lord), 1000);
        assert_int_equal(memlord_retire(lord, all()), 1000);
        memlord_cuda_events_release(); /* the stream is not known any more */
    }
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void *use_on_own_stream(void *user) {
    void **args = (void **)user;
    (void)cudaSetDevice(0);
    (void)memlord_cuda_record_use((memlord *)args[0], args[1], cudaStreamPerThread);
    return NULL;
}

static void per_thread_streams_of_two_threads_are_two(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t other = stream_on(0);
    pthread_t thread;
    void *args[2];
    args[0] = lord;
    args[1] = block(lord, 1000);
    use_on_own_stream(args);
    assert_int_equal(pthread_create(&thread, NULL, use_on_own_stream, args), 0);
    pthread_join(thread, NULL);
    assert_ok(memlord_cuda_record_free(lord, block(lord, 8), other, NULL));
    assert_int_equal(fake.events_made, 3); /* neither took the other's place */
    assert_cuda(memlord_cuda_free(lord, args[1], NULL));
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

/* -- captures -- */

static void a_captured_stream_gets_its_event_after_the_capture(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    cudaGraph_t graph;
    void *ptr = block(lord, 1000);
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal)); /* not wrapped */
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_int_equal(fake_count("cuEventRecord"), 0);
    assert_int_equal(pending(lord), 1000);
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(fake_count("cuEventRecord"), 1);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void polling_during_a_capture_that_is_not_known_disturbs_nothing(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t work = stream_on(0), captured = stream_on(0);
    cudaGraph_t graph;
    void *ptr = block(lord, 1000);
    fake_stream_work(work);
    assert_ok(memlord_cuda_record_free(lord, ptr, work, NULL));
    assert_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    assert_int_equal(memlord_retire(lord, all()), 0);
    fake_stream_finish(work);
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_cuda(cudaStreamEndCapture(captured, &graph)); /* not invalidated */
}

/* By whom a capture is begun and ended, and whether it is, is nothing to the polling. */
static void a_capture_stops_no_poll_of_other_streams(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t work = stream_on(0), captured = stream_on(0);
    cudaGraph_t graph;
    int i;
    for (i = 0; i < 3; i++) {
        fake_stream_work(work);
        assert_ok(memlord_cuda_record_free(lord, block(lord, 1000), work, NULL));
        assert_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
        assert_int_equal(memlord_retire(lord, all()), 0);
        fake_stream_finish(work);
        assert_int_equal(memlord_retire(lord, all()), 1000);
        if (i == 0) assert_cuda(memlord_cuda_stream_end_capture(lord, captured, &graph, NULL));
        if (i == 1) assert_cuda(cudaStreamEndCapture(captured, &graph));
    }
    assert_cuda(memlord_cuda_stream_destroy(lord, captured, NULL)); /* in its capture */
    assert_int_equal(fake.violated, 0);
}

static void a_mode_that_cannot_be_relaxed_ends_no_capture(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0), captured = stream_on(0);
    cudaGraph_t graph;
    void *ptr = block(lord, 1000);
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    assert_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    fake.fail_name = "cuThreadExchangeStreamCaptureMode";
    fake.fail_times = -1;
    (void)memlord_capacity_sample(lord, cuda(0));
    (void)memlord_retire(lord, all());
    fake.fail_times = 0;
    assert_int_equal(fake.violated, 0);
    assert_cuda(cudaStreamEndCapture(captured, &graph));
    assert_cuda(cudaGraphDestroy(graph));
    assert_cuda(cudaFree(ptr));
}

static void captures_that_fail_do_not_stop_the_polling(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t work = stream_on(0), captured = stream_on(0);
    cudaGraph_t graph;
    void *ptr = block(lord, 1000);
    assert_int_equal(cudaStreamBeginCapture(cudaStreamLegacy,
                                                       cudaStreamCaptureModeGlobal),
                     cudaErrorInvalidValue);
    assert_int_equal(memlord_cuda_stream_end_capture(lord, captured, &graph, NULL),
                     cudaErrorIllegalState);
    assert_cuda(
        cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    assert_int_equal(cudaFree((void *)4096), cudaErrorStreamCaptureUnsupported); /* ends it */
    assert_int_equal(memlord_cuda_stream_end_capture(lord, captured, &graph, NULL),
                     cudaErrorStreamCaptureInvalidated);
    fake.violated = 0; /* that was the host */
    fake_stream_work(work);
    assert_ok(memlord_cuda_record_free(lord, ptr, work, NULL));
    fake_stream_finish(work);
    assert_int_equal(memlord_retire(lord, all()), 1000);
    cudaGetLastError();
}

static void a_use_has_its_event_from_the_free_even_during_a_capture(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t side = stream_on(0), captured = stream_on(0);
    cudaGraph_t graph;
    void *ptr = NULL;
    assert_cuda(memlord_cuda_malloc_async(lord, &ptr, 1000, side, NULL));
    assert_ok(memlord_cuda_record_use(lord, ptr, side));
    fake_stream_work(side);
    assert_cuda(
        cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    assert_cuda(memlord_cuda_free_async(lord, ptr, side, NULL));
    assert_int_equal(fake_count("cuEventRecord"), 1);
    assert_int_equal(pending(lord), 1000);
    assert_cuda(cudaStreamDestroy(side)); /* by a part of the host that knows nothing of us */
    assert_cuda(memlord_cuda_stream_end_capture(lord, captured, &graph, NULL));
    assert_int_equal(memlord_retire(lord, all()), 0);
    fake_stream_finish(side);
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(fake.dead_asked, 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

/* Freed in a capture: the event is on the stream when that ends, or before one waits for it. */
static void what_a_capture_held_back_is_awaited_by_the_next_wait(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    cudaGraph_t graph;
    int i;
    fake.slow_events = 1;
    for (i = 0; i < 3; i++) {
        fake_stream_work(stream);
        assert_ok(memlord_cuda_record_free(lord, block(lord, 20), stream, NULL));
        assert_cuda(i == 2 ? cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal)
                           : cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        assert_ok(memlord_cuda_record_free(lord, block_async(lord, stream), stream, NULL));
        assert_cuda(i == 2 ? memlord_cuda_stream_end_capture(lord, stream, &graph, NULL)
                           : cudaStreamEndCapture(stream, &graph));
        assert_int_equal(memlord_retire(lord, all()), 0);
        if (i == 2) assert_int_equal(fake_count("cuEventRecord"), 6);
        assert_cuda(i == 1 ? memlord_cuda_device_synchronize(lord, NULL)
                           : memlord_cuda_stream_synchronize(lord, stream, NULL));
        assert_int_equal(pending(lord), 0);
        assert_int_equal(fake_count("cuEventRecord"), (i + 1) * 2);
    }
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

/* The ledger asks the first of a stream alone, but they wait for the same. */
static void after_a_capture_not_known_of_one_poll_records_all(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    cudaGraph_t graph;
    void *used = block(lord, 1000), *freed[20];
    int i;
    fake.slow_events = 1;
    for (i = 0; i < 20; i++) freed[i] = block(lord, 8);
    assert_ok(memlord_cuda_record_use(lord, used, stream));
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (i = 0; i < 20; i++)
        assert_ok(memlord_cuda_record_free(lord, freed[i], stream, NULL));
    assert_cuda(memlord_cuda_free_async(lord, used, NULL, NULL));
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_int_equal(fake_count("cuEventRecord"), 1); /* it serves them all */
    fake_stream_finish(stream);
    assert_int_equal(memlord_retire(lord, all()), 1160);
}

static void a_wait_records_no_use_before_its_block_is_freed(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    void *ptr = block(lord, 1000);
    cudaGraph_t graph;
    assert_ok(memlord_cuda_record_use(lord, ptr, stream));
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    assert_ok(memlord_cuda_record_free(lord, block_async(lord, stream), stream, NULL));
    assert_cuda(memlord_cuda_stream_end_capture(lord, stream, &graph, NULL));
    assert_cuda(memlord_cuda_stream_synchronize(lord, stream, NULL));
    assert_int_equal(fake_count("cuEventRecord"), 1); /* of the free */
    fake_stream_work(stream);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(pending(lord), 1000);
    fake_stream_finish(stream);
}

/* -- streams that end -- */

static void a_stream_that_ends_records_what_waits_for_it(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t side = stream_on(0), captured = stream_on(0);
    cudaGraph_t graph;
    void *used = block(lord, 1000), *freed = block(lord, 20), *other = block(lord, 3);
    assert_ok(memlord_cuda_record_use(lord, used, side));
    assert_ok(memlord_cuda_record_use(lord, other, captured));
    fake_stream_work(side);
    assert_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    assert_ok(memlord_cuda_record_free(lord, freed, captured, NULL));
    assert_cuda(cudaStreamEndCapture(captured, &graph));
    assert_int_equal(fake_count("cuEventRecord"), 0);
    assert_cuda(memlord_cuda_stream_destroy(lord, side, NULL));
    assert_int_equal(fake_count("cuEventRecord"), 1);
    assert_cuda(memlord_cuda_stream_destroy(lord, captured, NULL));
    assert_int_equal(fake_count("cuEventRecord"), 2); /* one for both */
    assert_cuda(memlord_cuda_free(lord, used, NULL));
    assert_cuda(memlord_cuda_free(lord, other, NULL));
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, all()), 1000); /* its work goes on */
    fake_stream_finish(side);
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(fake.dead_asked, 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
    assert_slot(cudaSuccess);
}

static void a_stream_that_ends_in_its_capture_is_not_asked_again(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t work = stream_on(0), captured = stream_on(0);
    void *a = block(lord, 1000), *b = block(lord, 20);
    assert_cuda(
        cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
    assert_ok(memlord_cuda_record_free(lord, a, captured, NULL));
    assert_cuda(memlord_cuda_stream_destroy(lord, captured, NULL));
    assert_ok(memlord_cuda_record_free(lord, b, work, NULL)); /* and nothing is held back */
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(fake.dead_asked, 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 1);
}

static void a_stream_that_does_not_end_is_the_runtimes_to_answer(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    assert_int_equal(memlord_cuda_stream_destroy(lord, NULL, NULL), cudaErrorInvalidResourceHandle);
    assert_cuda(memlord_cuda_stream_destroy(lord, stream, NULL));
    assert_int_equal(memlord_cuda_stream_destroy(lord, stream, NULL),
                     cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidResourceHandle);
}

static void *streams_that_end(void *user) {
    memlord *lord = (memlord *)user;
    cudaStream_t side;
    int i, k;
    for (i = 0; i < 40; i++) {
        (void)cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
        for (k = 0; k < 20; k++) {
            void *ptr = NULL;
            (void)memlord_cuda_malloc_async(lord, &ptr, 4096, NULL, NULL);
            (void)memlord_cuda_record_use(lord, ptr, side);
            if (k == 10) (void)memlord_cuda_stream_destroy(lord, side, NULL);
            if (k == 10) fake_stream_finish(side);
            if (k == 10) (void)cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
            fake_stream_work(side);
            (void)memlord_cuda_free_async(lord, ptr, NULL, NULL);
        }
        (void)memlord_cuda_stream_destroy(lord, side, NULL);
        fake_stream_finish(side);
    }
    return NULL;
}

static void *polls(void *user) {
    int i;
    for (i = 0; i < 3000; i++) (void)memlord_retire((memlord *)user, all());
    return NULL;
}

static void streams_may_end_while_others_poll(void **state) {
    memlord *lord = test_lord(state);
    pthread_t threads[5];
    int i;
    for (i = 0; i < 5; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < 3 ? streams_that_end : polls, lord), 0);
    for (i = 0; i < 5; i++) pthread_join(threads[i], NULL);
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
    assert_int_equal(fake.dead_asked, 0);
}

/* -- a full launch queue: cuEventRecord blocks until the device goes on -- */

/* What another thread does while this one is inside cuEventRecord. */
static struct {
    memlord *lord;
    void (*act)(void);
    cudaStream_t stream; /* for `act` */
    uint64_t key, credited;
    int done, in_time; /* `act` returned; and it did while the record was still blocked */
    int status;        /* of a child */
    pthread_t thread;
} meanwhile;

static void *acts(void *user) {
    meanwhile.act();
    __atomic_store_n(&meanwhile.done, 1, __ATOMIC_RELEASE);
    return user;
}

/* Blocks until `act` has returned, for at most two seconds: then the one waits for the other. */
static void queue_is_full(void) {
    int i;
    (void)pthread_create(&meanwhile.thread, NULL, acts, NULL);
    for (i = 0; i < 2000 && !__atomic_load_n(&meanwhile.done, __ATOMIC_ACQUIRE); i++) usleep(1000);
    meanwhile.in_time = __atomic_load_n(&meanwhile.done, __ATOMIC_ACQUIRE);
}

static void during_the_next_record(memlord *lord, void (*act)(void)) {
    memset(&meanwhile, 0, sizeof meanwhile);
    meanwhile.lord = lord;
    meanwhile.act = act;
    fake.before_name = "cuEventRecord";
    fake.before = queue_is_full;
}

/* Two frees on a stream whose capture has ended: the next poll records the events of both. */
static cudaStream_t two_frees_after_a_capture(memlord *lord, void **first, void **second) {
    cudaStream_t stream = stream_on(0);
    cudaGraph_t graph;
    *first = block(lord, 1000), *second = block(lord, 20);
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    assert_ok(memlord_cuda_record_free(lord, *first, stream, NULL));
    assert_ok(memlord_cuda_record_free(lord, *second, stream, NULL));
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_int_equal(fake_count("cuEventRecord"), 0);
    return stream;
}

static void frees_in_a_host_function(void *user) {
    (void)memlord_free(meanwhile.lord, cuda(0), meanwhile.key, NULL);
    (void)user;
}
static void the_device_goes_on(void) { fake_stream_finish(meanwhile.stream); }

static void a_host_function_frees_while_a_launch_queue_is_full(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0), side = stream_on(0);
    void *ptr = block(lord, 1000), *other = block(lord, 20);
    assert_ok(memlord_cuda_record_use(lord, ptr, stream));
    assert_ok(memlord_cuda_record_use(lord, other, side));
    during_the_next_record(lord, the_device_goes_on);
    meanwhile.stream = stream_on(0);
    meanwhile.key = MEMLORD_KEY(other);
    assert_cuda(cudaLaunchHostFunc(meanwhile.stream, frees_in_a_host_function, NULL));
    assert_ok(memlord_free(lord, cuda(0), MEMLORD_KEY(ptr), NULL));
    assert_cuda(pthread_join(meanwhile.thread, NULL));
    assert_true(meanwhile.in_time);
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void polls_once(void) {
    meanwhile.credited = memlord_retire(meanwhile.lord, all());
}

static void a_thread_that_records_holds_no_other_up(void **state) {
    memlord *lord = test_lord(state);
    void *first, *second;
    cudaStream_t stream = two_frees_after_a_capture(lord, &first, &second);
    during_the_next_record(lord, polls_once);
    assert_cuda(memlord_cuda_stream_synchronize(lord, stream, NULL));
    assert_cuda(pthread_join(meanwhile.thread, NULL));
    assert_true(meanwhile.in_time);
    assert_int_equal(meanwhile.credited, 1020); /* by an event of its own */
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(fake_count("cuEventRecord"), 2);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void allocates_there_again(void) {
    (void)memlord_alloc(meanwhile.lord, cuda(0), meanwhile.key, 3, NULL);
}

static void a_fence_may_be_dropped_while_another_thread_records_it(void **state) {
    memlord *lord = test_lord(state);
    void *first, *second;
    cudaStream_t stream = two_frees_after_a_capture(lord, &first, &second);
    int made;
    during_the_next_record(lord, allocates_there_again);
    meanwhile.key = MEMLORD_KEY(second);
    (void)memlord_retire(lord, all());
    assert_cuda(pthread_join(meanwhile.thread, NULL));
    assert_true(meanwhile.in_time);
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, all()), 3);
    made = fake.events_made; /* its event is kept, too, and of use again */
    assert_ok(memlord_cuda_record_free(lord, block(lord, 8), stream, NULL));
    assert_ok(memlord_cuda_record_free(lord, block(lord, 8), stream, NULL));
    assert_int_equal(fake.events_made, made);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void destroys_the_stream(void) {
    (void)memlord_cuda_stream_destroy(meanwhile.lord, meanwhile.stream, NULL);
}
static void resets_the_device(void) {
    (void)cudaSetDevice(0);
    (void)memlord_cuda_device_reset(meanwhile.lord, NULL);
}
/* `act` has time to go too far. */
static void queue_is_full_for_a_while(void) {
    (void)pthread_create(&meanwhile.thread, NULL, acts, NULL);
    usleep(20000);
    meanwhile.in_time = (int)(fake_count("cudaStreamDestroy") + fake_count("cudaDeviceReset"));
}

static void a_stream_ends_after_the_event_that_another_thread_records(void **state) {
    memlord *lord = test_lord(state);
    void *first, *second;
    cudaStream_t stream = two_frees_after_a_capture(lord, &first, &second);
    during_the_next_record(lord, destroys_the_stream);
    meanwhile.stream = stream;
    fake.before = queue_is_full_for_a_while;
    (void)memlord_retire(lord, all());
    assert_cuda(pthread_join(meanwhile.thread, NULL));
    assert_int_equal(meanwhile.in_time, 0);
    assert_int_equal(fake_count("cudaStreamDestroy"), 1);
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(fake.dead_asked, 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void a_device_is_reset_after_the_event_that_another_thread_records(void **state) {
    memlord *lord = test_lord(state);
    void *first, *second;
    (void)two_frees_after_a_capture(lord, &first, &second);
    during_the_next_record(lord, resets_the_device);
    fake.before = queue_is_full_for_a_while;
    (void)memlord_retire(lord, all());
    assert_cuda(pthread_join(meanwhile.thread, NULL));
    assert_int_equal(meanwhile.in_time, 0);
    assert_int_equal(fake_count("cudaDeviceReset"), 1);
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

/* A use on the default stream of a thread that has no context: the record finds it first. */
static void nor_is_it_reset_while_a_record_looks_for_its_context(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    void *args[3];
    args[0] = lord;
    args[1] = block(lord, 1000);
    fake.fail_error = 800; /* not at the free */
    fake.fail_name = "cuDevicePrimaryCtxGetState";
    fake.fail_times = 1;
    assert_int_equal(pthread_create(&thread, NULL, free_from_elsewhere, args), 0);
    pthread_join(thread, NULL);
    during_the_next_record(lord, resets_the_device);
    fake.before_name = "cuDevicePrimaryCtxGetState";
    fake.before = queue_is_full_for_a_while;
    (void)memlord_retire(lord, all());
    assert_cuda(pthread_join(meanwhile.thread, NULL));
    assert_int_equal(meanwhile.in_time, 0);
    assert_int_equal(fake_count("cudaDeviceReset"), 1);
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void forks(void) {
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        child_check(memlord_retire(meanwhile.lord, all()) == 1020);
        child_check(memlord_cuda_stream_destroy(meanwhile.lord, meanwhile.stream, NULL) != 0);
        child_check(memlord_allocated(meanwhile.lord, all()) == 0);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &meanwhile.status, 0) != child) meanwhile.status = -1;
}

static void a_fork_waits_for_no_record(void **state) {
    memlord *lord = test_lord(state);
    void *first, *second;
    cudaStream_t stream = two_frees_after_a_capture(lord, &first, &second);
    during_the_next_record(lord, forks);
    meanwhile.stream = stream;
    (void)memlord_retire(lord, all());
    assert_cuda(pthread_join(meanwhile.thread, NULL));
    assert_true(meanwhile.in_time);
    assert_int_equal(meanwhile.status, 0);
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

/* -- default streams of threads -- */

static void *retire_elsewhere(void *user) {
    void **args = (void **)user;
    (void)cudaSetDevice(0);
    args[1] = (void *)(uintptr_t)memlord_retire((memlord *)args[0], all());
    return NULL;
}

static uint64_t retired_elsewhere(memlord *lord) {
    pthread_t thread;
    void *args[2] = {NULL, NULL};
    args[0] = lord;
    assert_int_equal(pthread_create(&thread, NULL, retire_elsewhere, args), 0);
    pthread_join(thread, NULL);
    return (uint64_t)(uintptr_t)args[1];
}

static void a_threads_own_stream_is_not_mistaken_for_the_pollers(void **state) {
    memlord *lord = test_lord(state);
    cudaGraph_t graph;
    void *ptr = block(lord, 1000);
    fake_stream_work(cudaStreamPerThread);
    assert_cuda(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal));
    assert_ok(memlord_cuda_record_free(lord, ptr, cudaStreamPerThread, NULL));
    assert_int_equal(retired_elsewhere(lord), 0);
    assert_cuda(cudaStreamEndCapture(cudaStreamPerThread, &graph));
    assert_int_equal(retired_elsewhere(lord), 0); /* that thread's own is idle, this one's is not */
    assert_int_equal(fake_count("cuEventRecord"), 1);
    fake_stream_finish(cudaStreamPerThread);
    assert_int_equal(retired_elsewhere(lord), 1000);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void a_threads_own_stream_is_asked_by_itself_when_its_capture_ends(void **state) {
    memlord *lord = test_lord(state);
    cudaGraph_t graph;
    void *ptr = block(lord, 1000);
    fake_stream_work(cudaStreamLegacy); /* would hold back an event of the legacy stream */
    assert_cuda(cudaStreamBeginCapture(cudaStreamPerThread,
                                                  cudaStreamCaptureModeThreadLocal));
    assert_ok(memlord_cuda_record_free(lord, ptr, cudaStreamPerThread, NULL));
    assert_int_equal(fake_count("cuEventRecord"), 0);
    assert_cuda(memlord_cuda_stream_end_capture(lord, cudaStreamPerThread, &graph, NULL));
    assert_int_equal(fake_count("cuEventRecord"), 1);
    assert_int_equal(retired_elsewhere(lord), 1000);
    fake_stream_finish(cudaStreamLegacy);
}

/* -- synchronisation -- */

/* -- what calls cost while frees pend -- */

/* Frees a block on each of four streams that have work left. */
static void pend_on_four(memlord *lord, cudaStream_t *streams) {
    int i;
    for (i = 0; i < 4; i++) {
        streams[i] = stream_on(0);
        fake_stream_work(streams[i]);
        assert_ok(memlord_cuda_record_free(lord, block(lord, 1000), streams[i], NULL));
    }
}

static void pairs_on(memlord *lord, memlord_device device, int n) {
    while (n--) {
        assert_ok(memlord_alloc(lord, device, 0x10000, 8, NULL));
        assert_ok(memlord_free(lord, device, 0x10000, NULL));
    }
}

static void frees_that_pend_cost_other_devices_no_call_of_the_driver(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t streams[4];
    uint64_t calls;
    int i;
    pend_on_four(lord, streams);
    calls = fake.calls;
    pairs_on(lord, cpu(), 10000);
    pairs_on(lord, pinned(), 10000);
    assert_int_equal(fake.calls, calls);
    assert_int_equal(pending(lord), 4000);
    for (i = 0; i < 4; i++) fake_stream_finish(streams[i]);
}

static void and_their_own_device_few(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t streams[4];
    uint64_t queries, calls;
    int i;
    pend_on_four(lord, streams);
    pairs_on(lord, cuda(0), 1000);
    calls = fake.calls;
    queries = fake_count("cuEventQuery");
    pairs_on(lord, cuda(0), 12800); /* 100 times as many calls as a queue is left alone */
    assert_in_range(fake_count("cuEventQuery") - queries, 4 * 90, TEST_SANITIZED ? 20000 : 4 * 200);
    assert_in_range(fake.calls - calls, 1, 5 * (fake_count("cuEventQuery") - queries));
    for (i = 0; i < 4; i++) fake_stream_finish(streams[i]);
    pairs_on(lord, cuda(0), 1000);
    assert_int_equal(pending(lord), 0);
    calls = fake.calls;
    pairs_on(lord, cuda(0), 1000);
    assert_int_equal(fake.calls, calls); /* with nothing pending, none */
}

/* As in a host function of a stream, where the driver may not be called. */
static void a_driver_that_permits_no_call_now_is_asked_again(void **state) {
    memlord *lord = test_lord(state);
    const char *const calls[] = {"cuStreamGetCtx",    "cuCtxGetCurrent", "cuCtxPushCurrent_v2",
                                 "cuStreamIsCapturing", "cuEventCreate",   "cuEventRecord",
                                 "cuThreadExchangeStreamCaptureMode", "cuEventQuery"};
    cudaStream_t stream = stream_on(1);
    void *ptr;
    int i;
    assert_cuda(cudaSetDevice(0));
    for (i = 0; i < 8; i++) {
        ptr = block(lord, 1000);
        fake_stream_work(stream);
        fake.fail_error = 800;
        fake.fail_name = calls[i];
        fake.fail_times = 1;
        assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
        assert_int_equal(memlord_retire(lord, all()), 0);
        assert_int_equal(fake.fail_times, 0);
        assert_int_equal(pending(lord), 1000);
        fake_stream_finish(stream);
        assert_int_equal(memlord_retire(lord, all()), 1000);
        memlord_cuda_events_release();
    }
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
    assert_int_equal(fake.events, 0);
}

/* A handle knows its context, but a driver may want one to be current. */
static void a_driver_that_wants_a_context_current_gets_it(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    assert_ok(memlord_cuda_record_free(lord, block(lord, 1000), stream, NULL));
    fake.fail_error = 201;
    fake.fail_name = "cuEventQuery";
    fake.fail_times = 1;
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

/* -- what a call costs in calls of the driver: the table of >>costs -- */

static uint64_t driver_calls_since(uint64_t *before) {
    uint64_t calls = fake.driver_calls - *before;
    *before = fake.driver_calls;
    return calls;
}

/* The stream is warm; of a default one, what is recorded later than its call looks for the context. */
static void expect_costs(memlord *lord, cudaStream_t stream, cudaStream_t own, uint64_t looks) {
    uint64_t calls = 0;
    void *ptr = NULL;
    int used, per_thread = stream == cudaStreamPerThread;
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
    per_thread |= !stream;
#endif
    for (used = 0; used < 2; used++) {
        (void)driver_calls_since(&calls);
        assert_cuda(memlord_cuda_malloc_async(lord, &ptr, 8, own, NULL));
        assert_int_equal(driver_calls_since(&calls), 1);
        if (used) {
            assert_ok(memlord_cuda_record_use(lord, ptr, stream));
            assert_int_equal(driver_calls_since(&calls), per_thread ? 3 : 1);
        }
        fake_stream_work(stream);
        assert_cuda(used ? memlord_cuda_free_async(lord, ptr, own, NULL)
                         : memlord_cuda_free_async_after(lord, ptr, stream, NULL));
        if (used && per_thread) { /* its event is from the use, and done */
            assert_int_equal(driver_calls_since(&calls), 3);
            assert_int_equal(pending(lord), 0);
            continue;
        }
        assert_int_equal(driver_calls_since(&calls), used ? 2 + looks : 3);
        assert_int_equal(memlord_retire(lord, all()), 0);
        assert_int_equal(driver_calls_since(&calls), 3);
        fake_stream_finish(stream);
        assert_int_equal(memlord_retire(lord, all()), 8);
        assert_int_equal(driver_calls_since(&calls), 3);
    }
    fake_stream_finish(stream);
    ptr = block(lord, 8);
    (void)driver_calls_since(&calls);
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    assert_int_equal(driver_calls_since(&calls), 3);
    assert_cuda(cudaFree(ptr));
    assert_int_equal(memlord_retire(lord, all()), 8);
}

static void calls_cost_what_the_table_says(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t own = stream_on(0), stream = stream_on(0);
    struct cudaMemPoolProps props;
    memlord_cuda_pool figures;
    cudaMemPool_t pool;
    uint64_t calls = 0;
    void *ptr = block(lord, 8);
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    (void)driver_calls_since(&calls);
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    assert_int_equal(driver_calls_since(&calls), 3 + 2 + 4); /* the stream is new, and no event kept */
    (void)memlord_retire(lord, all());
    assert_cuda(cudaFree(ptr));
    expect_costs(lord, stream, own, 0);
    ptr = block(lord, 8);
    assert_ok(memlord_cuda_record_free(lord, ptr, NULL, NULL)); /* known from here */
    assert_ok(memlord_cuda_record_free(lord, block(lord, 8), cudaStreamPerThread, NULL));
    (void)memlord_retire(lord, all());
    expect_costs(lord, NULL, own, 1);
    expect_costs(lord, cudaStreamPerThread, own, 0);
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    (void)driver_calls_since(&calls);
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(driver_calls_since(&calls), 18);
    assert_cuda(memlord_cuda_pool_create(lord, &pool, &props, NULL));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(driver_calls_since(&calls), 18 + 4);
    assert_ok(memlord_cuda_pool_get(lord, 0, &figures));
    assert_int_equal(driver_calls_since(&calls), 18 + 4);
    assert_cuda(memlord_cuda_pool_destroy(lord, pool, NULL));
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 8, NULL));
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(driver_calls_since(&calls), 0);
    ptr = block_async(lord, own);
    (void)driver_calls_since(&calls);
    assert_cuda(memlord_cuda_free_async(lord, ptr, own, NULL));
    assert_cuda(memlord_cuda_stream_destroy(lord, own, NULL));
    assert_int_equal(driver_calls_since(&calls), 0);
}

enum { MANY = 4000 };

static void record_frees(memlord *lord, cudaStream_t stream, uint64_t first, int n) {
    for (; n; n--, first += 64) {
        assert_ok(memlord_alloc(lord, cuda(0), first, 8, NULL));
        assert_ok(memlord_cuda_record_free(lord, (void *)(uintptr_t)first, stream, NULL));
    }
}

/* What others do meanwhile costs what it does without. */
static void frees_in_a_capture_cost_a_question_each_and_one_event_at_its_end(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0), other = stream_on(0);
    cudaGraph_t graph;
    uint64_t calls = 0;
    assert_cuda(memlord_cuda_free_async_after(lord, block_async(lord, other), other, NULL));
    assert_int_equal(memlord_retire(lord, all()), 8);
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    (void)driver_calls_since(&calls);
    record_frees(lord, stream, 0x100000, MANY);
    assert_in_range(driver_calls_since(&calls), 2 * MANY, 2 * MANY + MANY / 64);
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_in_range(driver_calls_since(&calls), 1, 3);
    assert_cuda(memlord_cuda_free_async_after(lord, block_async(lord, other), other, NULL));
    assert_in_range(driver_calls_since(&calls), 2, 5); /* with the allocation's device */
    assert_cuda(memlord_cuda_stream_synchronize(lord, other, NULL));
    assert_in_range(driver_calls_since(&calls), 1, 6);
    pairs_on(lord, cuda(0), 1000);
    assert_in_range(driver_calls_since(&calls), 0, TEST_SANITIZED ? 3000 : 200);
    assert_cuda(memlord_cuda_stream_end_capture(lord, stream, &graph, NULL));
    assert_int_equal(driver_calls_since(&calls), 2);
    assert_cuda(memlord_cuda_stream_synchronize(lord, stream, NULL));
    assert_int_equal(driver_calls_since(&calls), 3);
    assert_int_equal(pending(lord), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

/* Their captures have ended untold. */
static void a_wait_for_the_device_first_records_for_all_streams(void **state) {
    enum { MANY_STREAMS = 200 };
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    cudaGraph_t graph;
    uint64_t i;
    for (i = 1; i <= MANY_STREAMS; i++) {
        stream = stream_on(0);
        assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        record_frees(lord, stream, 64 * i, 1);
        assert_cuda(cudaStreamEndCapture(stream, &graph));
        fake_stream_work(stream);
    }
    assert_int_equal(pending(lord), 8 * MANY_STREAMS);
    assert_cuda(memlord_cuda_device_synchronize(lord, NULL));
    assert_int_equal(pending(lord), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void one_poll_of_a_deferring_ledger_asks_once_for_a_stream(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t busy = stream_on(0), captured = stream_on(0);
    cudaGraph_t graph;
    uint64_t calls = 0;
    assert_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
    fake_stream_work(busy);
    record_frees(lord, captured, 0x100000, MANY);
    record_frees(lord, busy, 0x1000000, MANY);
    (void)driver_calls_since(&calls);
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_in_range(driver_calls_since(&calls), 2, 20);
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_in_range(driver_calls_since(&calls), 2, 20);
    assert_cuda(cudaStreamEndCapture(captured, &graph));
    fake_stream_finish(busy);
    assert_int_equal(memlord_retire(lord, all()), 2 * MANY * 8);
    assert_in_range(driver_calls_since(&calls), 4, 40);
}

static void a_poll_of_many_frees_asks_a_few_events(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    uint64_t calls = 0;
    int i;
    for (i = 0; i < MANY; i++) {
        fake_stream_work(stream);
        record_frees(lord, stream, 0x100000 + 64 * (uint64_t)i, 1);
    }
    (void)driver_calls_since(&calls);
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_in_range(driver_calls_since(&calls), 1, 3);
    fake_stream_do(stream, MANY / 2);
    assert_in_range(memlord_retire(lord, all()), 8 * MANY / 3, 8 * MANY / 2);
    assert_in_range(driver_calls_since(&calls), 3, 11);
    fake_stream_finish(stream);
    assert_true(memlord_retire(lord, all()) > 0);
    assert_in_range(driver_calls_since(&calls), 3, 11);
    assert_int_equal(pending(lord), 0);
}

/* A reset waits for the last of two events, and the driver blames the second. */
static void an_error_of_a_wait_fails_no_free_that_is_done(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    fake_stream_work(stream);
    record_frees(lord, stream, 0x100000, 1);
    fake_stream_work(stream);
    record_frees(lord, stream, 0x200000, 1);
    fake_stream_do(stream, 1);
    fake.fail_name = "cuEventSynchronize";
    fake.fail_times = 1;
    assert_cuda(memlord_cuda_device_reset(lord, NULL));
    assert_int_equal(fake.fail_times, 0);
    assert_int_equal(pending(lord), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 1);
}

static void a_stream_that_ends_costs_one_event_whatever_used_it(void **state) {
    enum { USES = 20000 };
    memlord *lord = test_lord(state);
    cudaStream_t side = stream_on(0);
    uint64_t calls = 0, i;
    for (i = 0; i < USES; i++) {
        assert_ok(memlord_alloc(lord, cuda(0), 0x100000 + 64 * i, 8, NULL));
        assert_ok(memlord_cuda_record_use(lord, (void *)(uintptr_t)(0x100000 + 64 * i), side));
    }
    fake_stream_work(side);
    (void)driver_calls_since(&calls);
    assert_cuda(memlord_cuda_stream_destroy(lord, side, NULL));
    assert_int_equal(driver_calls_since(&calls), 2 + 4); /* no event is kept */
    for (i = 0; i < USES; i++) assert_ok(memlord_free(lord, cuda(0), 0x100000 + 64 * i, NULL));
    assert_int_equal(pending(lord), 8 * USES);
    fake_stream_finish(side);
    (void)driver_calls_since(&calls);
    assert_int_equal(memlord_retire(lord, all()), 8 * USES);
    assert_in_range(driver_calls_since(&calls), 1, 3);
    assert_int_equal(fake.dead_asked, 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void *churn(void *user) {
    memlord *lord = (memlord *)user;
    cudaStream_t stream = NULL, side = NULL;
    int i;
    (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    (void)cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    for (i = 0; i < 500; i++) {
        void *ptr = NULL;
        (void)memlord_cuda_malloc_async(lord, &ptr, 4096, stream, NULL);
        fake_stream_work(side);
        if (i % 2) {
            (void)memlord_cuda_record_use(lord, ptr, side);
            (void)memlord_cuda_free_async(lord, ptr, stream, NULL);
        } else {
            (void)memlord_cuda_free_async_after(lord, ptr, side, NULL);
        }
        if (i % 16 == 0) (void)memlord_cuda_stream_synchronize(lord, side, NULL);
    }
    (void)memlord_cuda_stream_synchronize(lord, side, NULL);
    return NULL;
}

#if !TEST_SANITIZED /* which have these functions themselves */
/* The layer's locks are pthread's: those that a thread holds are counted here. */
static __thread int locks_held;
static int locks_at_calls, driver_calls_seen;
typedef int (*mutex_function)(pthread_mutex_t *);
static mutex_function next_of(const char *name) {
    mutex_function f;
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(&f, &found, sizeof f);
    return f;
}
int pthread_mutex_lock(pthread_mutex_t *mutex) {
    static mutex_function real;
    int r;
    if (!__atomic_load_n(&real, __ATOMIC_ACQUIRE))
        __atomic_store_n(&real, next_of("pthread_mutex_lock"), __ATOMIC_RELEASE);
    r = __atomic_load_n(&real, __ATOMIC_ACQUIRE)(mutex);
    locks_held += r == 0;
    return r;
}
int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    static mutex_function real;
    if (!__atomic_load_n(&real, __ATOMIC_ACQUIRE))
        __atomic_store_n(&real, next_of("pthread_mutex_unlock"), __ATOMIC_RELEASE);
    locks_held--;
    return __atomic_load_n(&real, __ATOMIC_ACQUIRE)(mutex);
}
static void no_lock_is_held(const char *name) {
    if (locks_held) fprintf(stderr, "# %s with %d locks\n", name, locks_held);
    __atomic_fetch_add(&locks_at_calls, locks_held, __ATOMIC_RELAXED);
    __atomic_fetch_add(&driver_calls_seen, 1, __ATOMIC_RELAXED);
}
#endif

static void no_call_of_the_driver_is_made_under_a_lock(void **state) {
#if TEST_SANITIZED
    (void)state;
    skip();
#else
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0), side = stream_on(1), captured = stream_on(0);
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_TIME_SCOPES | MEMLORD_CUDA_FLAG_SYNC |
                                  MEMLORD_CUDA_FLAG_RETRY, 0, NULL, NULL};
    memlord_cuda_scope scope;
    cudaGraph_t graph;
    pthread_t threads[2];
    int i;
    locks_at_calls = driver_calls_seen = 0;
    fake.on_driver_call = no_lock_is_held;
    assert_ok(memlord_cuda_attach(lord, &desc));
    for (i = 0; i < 2; i++) {
        void *used = block_async(lord, stream);
        assert_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
        assert_ok(memlord_cuda_scope_begin(lord, &scope, "step", stream));
        assert_ok(memlord_cuda_record_use(lord, used, side));
        assert_ok(memlord_cuda_record_use(lord, used, captured));
        fake_stream_work(side);
        assert_cuda(memlord_cuda_free_async_after(lord, used, stream, NULL));
        assert_ok(memlord_cuda_record_free(lord, block(lord, 8), captured, NULL));
        assert_ok(memlord_cuda_scope_end(lord, &scope));
        (void)memlord_retire(lord, all());
        assert_cuda(memlord_cuda_stream_end_capture(lord, captured, &graph, NULL));
        fake_stream_finish(side);
        assert_ok(memlord_capacity_sample(lord, cuda(0)));
        (void)memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL);
        assert_cuda(memlord_cuda_stream_synchronize(lord, stream, NULL));
        assert_cuda(memlord_cuda_device_synchronize(lord, NULL));
    }
    assert_cuda(memlord_cuda_stream_destroy(lord, side, NULL));
    for (i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, lord), 0);
    for (i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_cuda(memlord_cuda_device_reset(lord, NULL));
    memlord_cuda_events_release();
    assert_ok(memlord_cuda_detach(lord));
    fake.on_driver_call = NULL;
    assert_true(driver_calls_seen > 200);
    assert_int_equal(locks_at_calls, 0);
#endif
}

/* -- forks -- */

typedef struct freer {
    memlord *lord;
    cudaStream_t stream;
    uint64_t first; /* of its keys */
    int stop;
} freer;

static void *free_on_a_stream(void *user) {
    freer *f = (freer *)user;
    uint64_t i = 0;
    while (!__atomic_load_n(&f->stop, __ATOMIC_ACQUIRE)) {
        uint64_t key = f->first + i++ % 64 * 64;
        (void)memlord_alloc(f->lord, cuda(0), key, 8, NULL);
        (void)memlord_cuda_record_free(f->lord, (void *)(uintptr_t)key, f->stream, NULL);
        if (i % 64 == 0) fake_stream_finish(f->stream);
        fake_stream_work(f->stream);
    }
    return NULL;
}

static void uses_its_ledger(void *user) {
    memlord *lord = (memlord *)user;
    uint64_t calls = fake.calls;
    alarm(60);
    pairs_on(lord, cpu(), 10);
    pairs_on(lord, cuda(0), 300);
    (void)memlord_retire(lord, all());
    child_check(memlord_pending(lord, all()) == 0);
    child_check(!memlord_cuda_attached(lord));
    child_check(memlord_cuda_detach(lord) == MEMLORD_E_UNKNOWN);
    child_check(memlord_cuda_attach(lord, NULL) == MEMLORD_E_UNSUPPORTED);
    child_check(strstr(memlord_cuda_why(), "forked") == memlord_cuda_why());
    memlord_cuda_events_release();
    child_check(fake.calls == calls); /* of anything of CUDA's */
}

static void a_child_forked_amid_frees_goes_on_without_a_driver(void **state) {
    memlord *lord = test_lord(state);
    pthread_t threads[2];
    freer f[2];
    int i;
#if defined(__SANITIZE_ADDRESS__) /* a lock of its malloc may be held at a fork, and stays so */
    skip();
#endif
    for (i = 0; i < 2; i++) {
        f[i].lord = lord;
        f[i].stream = stream_on(0);
        f[i].first = 0x7f0000000000 + ((uint64_t)i << 24);
        f[i].stop = 0;
        assert_int_equal(pthread_create(&threads[i], NULL, free_on_a_stream, &f[i]), 0);
    }
    for (i = 0; i < (TEST_SANITIZED ? 20 : 200); i++) in_child(uses_its_ledger, lord);
    for (i = 0; i < 2; i++) {
        __atomic_store_n(&f[i].stop, 1, __ATOMIC_RELEASE);
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        fake_stream_finish(f[i].stream);
    }
    (void)memlord_retire(lord, all());
    assert_int_equal(pending(lord), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
}

static void credits_what_pends(void *user) {
    memlord *lord = (memlord *)user;
    child_check(memlord_retire(lord, all()) == 4000);
    child_check(stats_of(lord, all()).fence_failures == 4);
}

static void a_child_credits_what_pended_in_its_parent(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t streams[4], captured = stream_on(0);
    cudaGraph_t graph;
    int i;
    pend_on_four(lord, streams);
    assert_cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
    in_child(credits_what_pends, lord);
    assert_cuda(memlord_cuda_stream_end_capture(lord, captured, &graph, NULL));
    assert_int_equal(pending(lord), 4000);
    for (i = 0; i < 4; i++) fake_stream_finish(streams[i]);
}

static void synchronising_retires(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    cudaEvent_t event;
    int i;
    for (i = 0; i < 3; i++) {
        fake_stream_work(stream);
        assert_ok(memlord_cuda_record_free(lord, block(lord, 1000), stream, NULL));
        assert_int_equal(pending(lord), 1000);
        if (i == 0) assert_cuda(memlord_cuda_stream_synchronize(lord, stream, NULL));
        if (i == 1) assert_cuda(memlord_cuda_device_synchronize(lord, NULL));
        if (i == 2) {
            assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
            assert_cuda(cudaEventRecord(event, stream));
            assert_cuda(memlord_cuda_event_synchronize(lord, event, NULL));
            assert_cuda(cudaEventDestroy(event));
        }
        assert_int_equal(pending(lord), 0);
    }
}

static void a_last_error_of_the_hosts_survives_polling(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    void *ptr = block(lord, 1000);
    assert_int_equal(cudaFree((void *)4096), cudaErrorInvalidValue);
    fake_stream_work(stream);
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    assert_int_equal(memlord_retire(lord, all()), 0); /* not ready: an error, for the runtime */
    assert_slot(cudaErrorInvalidValue);
    fake_stream_finish(stream);
    assert_int_equal(memlord_retire(lord, all()), 1000);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
}

static void a_deferring_ledger_has_its_event_from_the_free(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    void *ptr = block(lord, 1000);
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    assert_int_equal(fake_count("cuEventRecord"), 1);
    fake_stream_work(stream); /* later, and nothing to wait for */
    assert_int_equal(pending(lord), 1000);
    assert_int_equal(memlord_retire(lord, all()), 1000);
}

static void a_deferring_ledger_has_the_events_of_all_uses_from_one_poll(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = stream_on(0);
    int i;
    void *ptr[20];
    fake.slow_events = 1;
    for (i = 0; i < 20; i++) ptr[i] = block(lord, 8); /* an address freed would come again */
    for (i = 0; i < 20; i++) {
        assert_ok(memlord_cuda_record_use(lord, ptr[i], stream));
        assert_cuda(memlord_cuda_free(lord, ptr[i], NULL));
    }
    assert_int_equal(fake_count("cuEventRecord"), 0);
    assert_int_equal(memlord_retire(lord, all()), 0);
    assert_int_equal(fake_count("cuEventRecord"), 20);
    fake_stream_finish(stream);
    assert_int_equal(memlord_retire(lord, all()), 160);
}

/* -- failures -- */

static void any_call_may_fail_and_no_byte_is_lost(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t a = stream_on(0), b = stream_on(1);
    uint64_t n;
    for (n = 1;; n++) {
        uint64_t before;
        void *x = block(lord, 1000), *y = block(lord, 20), *z = block_async(lord, a);
        int k, reached;
        fake_stream_work(a), fake_stream_work(b);
        before = fake.calls;
        fake.fail_at = before + n;
        (void)memlord_cuda_record_use(lord, y, b);
        (void)memlord_cuda_record_free(lord, x, a, NULL);
        for (k = 0; k < 2; k++)
            if (memlord_cuda_free(lord, y, NULL) == cudaSuccess) break;
        for (k = 0; k < 2; k++)
            if (memlord_cuda_free_async_after(lord, z, a, NULL) == cudaSuccess) break;
        (void)memlord_retire(lord, all());
        fake_stream_finish(a), fake_stream_finish(b);
        (void)memlord_retire(lord, all());
        reached = fake.calls >= before + n;
        fake.fail_at = 0;
        (void)memlord_retire(lord, all());
        assert_int_equal(memlord_allocated(lord, all()), 0);
        assert_int_equal(pending(lord), 0);
        assert_int_equal(fake_depth(), 0);
        assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
        assert_cuda(cudaFree(x));
        cudaGetLastError();
        if (!reached) break;
    }
    assert_true(n > 15);
    assert_balanced(lord, all());
}

static void threads_lose_nothing(void **state) {
    memlord *lord = test_lord(state);
    pthread_t threads[6];
    memlord_stats s;
    int i;
    for (i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, lord), 0);
    for (i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    (void)memlord_retire(lord, all());
    s = stats_of(lord, all());
    assert_int_equal(s.allocated, 0);
    assert_int_equal(s.frees, 6 * 500);
    assert_int_equal(s.unknown_frees, 0);
    assert_int_equal(s.fence_failures, 0);
    assert_int_equal(fake_live(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_CUDA(a_free_on_a_stream_pends_until_the_stream_is_done),
        TEST_CUDA(a_free_after_a_stream_frees_the_memory_and_pends),
        TEST_CUDA(one_that_the_runtime_refuses_leaves_the_block),
        TEST_CUDA(one_of_a_block_that_others_use_waits_for_them_as_well),
        TEST_CUDA(one_in_a_capture_pends_until_that_is_over),
        TEST_CUDA_WITH(a_deferring_ledger_has_the_event_of_a_free_after_a_stream_from_it,
                       cuda_setup_defer),
        TEST_CUDA(one_of_a_block_never_seen_is_the_runtimes_to_answer),
        TEST_CUDA(the_wrapped_free_of_a_block_recorded_as_free_ends_nothing),
        TEST_CUDA(a_pinned_block_waits_for_the_copy_that_a_stream_makes_of_it),
        TEST_CUDA(a_block_that_comes_again_is_freed_again),
        TEST_CUDA(an_idle_stream_credits_at_the_next_poll),
        TEST_CUDA(events_are_used_again),
        TEST_CUDA(a_stream_has_few_events_however_much_waits_for_it),
        TEST_CUDA(no_more_events_are_kept_than_there_may_be),
        TEST_CUDA(a_use_holds_back_a_free_until_its_stream_is_done),
        TEST_CUDA(every_stream_that_used_it_holds_it_back),
        TEST_CUDA(a_failed_free_of_a_used_block_brings_it_back_without_its_uses),
        TEST_CUDA(an_address_that_comes_again_ends_what_was_pending),
        TEST_CUDA(a_block_never_seen_is_unknown),
        TEST_CUDA(a_destroyed_stream_credits_at_once_and_is_counted),
        TEST_CUDA(a_stream_destroyed_after_the_free_is_not_asked_again),
        TEST_CUDA(events_gone_with_a_reset_are_replaced),
        TEST_CUDA(the_default_stream_is_that_of_the_current_context),
        TEST_CUDA(the_default_streams_of_two_devices_are_two),
        TEST_CUDA(a_thread_without_a_context_uses_that_of_the_blocks_device),
        TEST_CUDA(nor_is_it_lost_if_that_may_not_be_asked_now),
        TEST_CUDA(per_thread_streams_of_two_threads_are_two),
        TEST_CUDA(a_captured_stream_gets_its_event_after_the_capture),
        TEST_CUDA(polling_during_a_capture_that_is_not_known_disturbs_nothing),
        TEST_CUDA(a_capture_stops_no_poll_of_other_streams),
        TEST_CUDA(a_mode_that_cannot_be_relaxed_ends_no_capture),
        TEST_CUDA(captures_that_fail_do_not_stop_the_polling),
        TEST_CUDA(a_use_has_its_event_from_the_free_even_during_a_capture),
        TEST_CUDA(what_a_capture_held_back_is_awaited_by_the_next_wait),
        TEST_CUDA(after_a_capture_not_known_of_one_poll_records_all),
        TEST_CUDA(a_wait_records_no_use_before_its_block_is_freed),
        TEST_CUDA(a_stream_that_ends_records_what_waits_for_it),
        TEST_CUDA(a_stream_that_ends_in_its_capture_is_not_asked_again),
        TEST_CUDA(a_stream_that_does_not_end_is_the_runtimes_to_answer),
        TEST_CUDA_WITH(streams_may_end_while_others_poll, cuda_setup_threads),
        TEST_CUDA(a_host_function_frees_while_a_launch_queue_is_full),
        TEST_CUDA(a_thread_that_records_holds_no_other_up),
        TEST_CUDA(a_fence_may_be_dropped_while_another_thread_records_it),
        TEST_CUDA(a_stream_ends_after_the_event_that_another_thread_records),
        TEST_CUDA(a_device_is_reset_after_the_event_that_another_thread_records),
        TEST_CUDA(nor_is_it_reset_while_a_record_looks_for_its_context),
        TEST_CUDA(a_fork_waits_for_no_record),
        TEST_CUDA(a_threads_own_stream_is_not_mistaken_for_the_pollers),
        TEST_CUDA(a_threads_own_stream_is_asked_by_itself_when_its_capture_ends),
        TEST_CUDA(frees_that_pend_cost_other_devices_no_call_of_the_driver),
        TEST_CUDA(and_their_own_device_few),
        TEST_CUDA(a_driver_that_permits_no_call_now_is_asked_again),
        TEST_CUDA(a_driver_that_wants_a_context_current_gets_it),
        TEST_CUDA(calls_cost_what_the_table_says),
        TEST_CUDA(frees_in_a_capture_cost_a_question_each_and_one_event_at_its_end),
        TEST_CUDA(a_wait_for_the_device_first_records_for_all_streams),
        TEST_CUDA_WITH(one_poll_of_a_deferring_ledger_asks_once_for_a_stream, cuda_setup_defer),
        TEST_CUDA(a_poll_of_many_frees_asks_a_few_events),
        TEST_CUDA(an_error_of_a_wait_fails_no_free_that_is_done),
        TEST_CUDA(a_stream_that_ends_costs_one_event_whatever_used_it),
        TEST_CUDA(no_call_of_the_driver_is_made_under_a_lock),
        TEST_CUDA(a_child_forked_amid_frees_goes_on_without_a_driver),
        TEST_CUDA(a_child_credits_what_pended_in_its_parent),
        TEST_CUDA(synchronising_retires),
        TEST_CUDA(a_last_error_of_the_hosts_survives_polling),
        TEST_CUDA_WITH(a_deferring_ledger_has_its_event_from_the_free, cuda_setup_defer),
        TEST_CUDA_WITH(a_deferring_ledger_has_the_events_of_all_uses_from_one_poll,
                       cuda_setup_defer),
        TEST_CUDA(any_call_may_fail_and_no_byte_is_lost),
        TEST_CUDA_WITH(threads_lose_nothing, cuda_setup_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
