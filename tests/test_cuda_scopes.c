/* Scopes with the device's time. The fake's events are a millisecond apart for each thing their
   stream was given between them. */
#include "support_cuda.h"

static int setup_timed(void **state) {
    return cuda_open(state, MEMLORD_FLAG_NO_THREADS, MEMLORD_CUDA_FLAG_TIME_SCOPES);
}

static cudaStream_t a_stream(void) {
    cudaStream_t stream = NULL;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static memlord_scope_stat scope_of(memlord *lord, const char *path) {
    memlord_scope_stat stat;
    assert_ok(memlord_scope_get(lord, path, &stat));
    return stat;
}

static void work_in(memlord *lord, const char *name, cudaStream_t stream, int things) {
    memlord_cuda_scope scope;
    assert_ok(memlord_cuda_scope_begin(lord, &scope, name, stream));
    while (things-- > 0) fake_stream_work(stream);
    assert_ok(memlord_cuda_scope_end(lord, &scope));
}

static void a_scope_gets_the_time_of_its_stream(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = a_stream();
    work_in(lord, "forward", stream, 3);
    assert_int_equal(scope_of(lord, "forward").count, 1);
    assert_int_equal(scope_of(lord, "forward").device_ns, 0); /* the stream is not done */
    assert_cuda(memlord_cuda_stream_synchronize(lord, stream, NULL));
    assert_int_equal(scope_of(lord, "forward").device_ns, 3000000);
    work_in(lord, "forward", stream, 2);
    fake_stream_finish(stream);
    work_in(lord, "other", stream, 0); /* looks as well */
    assert_int_equal(scope_of(lord, "forward").device_ns, 5000000);
}

static void scopes_inside_scopes_have_times_of_their_own(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = a_stream();
    memlord_cuda_scope outer;
    assert_ok(memlord_cuda_scope_begin(lord, &outer, "layer", stream));
    fake_stream_work(stream);
    work_in(lord, "attention", stream, 4);
    assert_ok(memlord_cuda_scope_end(lord, &outer));
    assert_cuda(memlord_cuda_device_synchronize(lord, NULL));
    assert_int_equal(scope_of(lord, "layer").device_ns, 5000000);
    assert_int_equal(scope_of(lord, "layer/attention").device_ns, 4000000);
}

static void without_being_asked_no_event_is_made(void **state) {
    memlord *lord = test_lord(state);
    work_in(lord, "forward", a_stream(), 1);
    assert_int_equal(fake.events_made, 0);
    assert_int_equal(scope_of(lord, "forward").count, 1);
}

static void a_captured_scope_is_not_timed(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = a_stream();
    cudaGraph_t graph;
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    work_in(lord, "forward", stream, 1);
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_cuda(memlord_cuda_stream_synchronize(lord, stream, NULL));
    assert_int_equal(scope_of(lord, "forward").device_ns, 0);
    assert_int_equal(scope_of(lord, "forward").count, 1);
}

static void events_of_scopes_are_used_again_and_not_for_frees(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = a_stream();
    void *ptr = NULL;
    int i;
    for (i = 0; i < 50; i++) work_in(lord, "forward", stream, 0);
    assert_int_equal(fake.events_made, 2);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 64, NULL));
    assert_ok(memlord_cuda_record_free(lord, ptr, stream, NULL));
    assert_int_equal(fake.events_made, 3);
}

static void too_many_in_flight_are_scopes_all_the_same(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = a_stream();
    int i;
    for (i = 0; i < 4200; i++) work_in(lord, "forward", stream, 1);
    assert_int_equal(fake.events, 4096 * 2);
    assert_cuda(memlord_cuda_stream_synchronize(lord, stream, NULL));
    assert_int_equal(scope_of(lord, "forward").count, 4200);
    assert_int_equal(scope_of(lord, "forward").device_ns, 4096 * UINT64_C(1000000));
    assert_int_equal(fake.events, 256);
}

static void a_wait_asks_no_scope_of_another_stream(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t busy = a_stream(), idle = a_stream();
    uint64_t calls;
    int i;
    for (i = 0; i < 3000; i++) work_in(lord, "busy", busy, 1);
    for (i = 0; i < 3; i++) work_in(lord, "idle", idle, 2);
    calls = fake.driver_calls;
    assert_cuda(memlord_cuda_stream_synchronize(lord, idle, NULL)); /* behind the others */
    assert_int_equal(scope_of(lord, "idle").device_ns, 6000000);
    assert_int_equal(scope_of(lord, "busy").device_ns, 0);
    assert_in_range(fake.driver_calls - calls, 3, 3 * 8); /* three queries and times */
    calls = fake.driver_calls;
    assert_int_not_equal(memlord_cuda_event_synchronize(lord, NULL, NULL), cudaSuccess);
    cudaGetLastError();
    assert_in_range(fake.driver_calls - calls, 0, 3); /* the first of its stream alone */
    assert_cuda(memlord_cuda_stream_synchronize(lord, busy, NULL));
    assert_int_equal(scope_of(lord, "busy").device_ns, 3000 * UINT64_C(1000000));
}

static void a_time_that_may_not_be_asked_now_is_asked_again(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = a_stream();
    fake.fail_name = "cuEventElapsedTime";
    fake.fail_error = 800; /* not now */
    fake.fail_times = 1;
    work_in(lord, "forward", stream, 2);
    assert_cuda(memlord_cuda_stream_synchronize(lord, stream, NULL));
    assert_int_equal(scope_of(lord, "forward").device_ns, 0);
    assert_cuda(memlord_cuda_stream_synchronize(lord, stream, NULL));
    assert_int_equal(scope_of(lord, "forward").device_ns, 2000000);
}

static void detach_gives_up_what_is_not_done(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = a_stream();
    memlord_cuda_scope open;
    work_in(lord, "forward", stream, 1);
    assert_ok(memlord_cuda_scope_begin(lord, &open, "open", stream));
    assert_ok(memlord_cuda_detach(lord));
    assert_ok(memlord_cuda_scope_end(lord, &open));
    memlord_cuda_events_release();
    assert_int_equal(fake.events, 0);
    assert_int_equal(scope_of(lord, "forward").device_ns, 0);
}

static void what_does_not_match_is_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_cuda_scope scope;
    assert_int_equal(memlord_cuda_scope_begin(lord, NULL, "x", NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_cuda_scope_begin(lord, &scope, "", NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_cuda_scope_end(lord, &scope), MEMLORD_E_STATE);
    assert_int_equal(memlord_cuda_scope_end(lord, NULL), MEMLORD_E_INVALID);
    assert_ok(memlord_cuda_scope_begin(lord, &scope, "x", NULL));
    assert_ok(memlord_cuda_scope_end(lord, &scope));
    assert_int_equal(memlord_cuda_scope_end(lord, &scope), MEMLORD_E_STATE);
    assert_ok(memlord_cuda_scope_begin(NULL, &scope, "x", NULL));
    assert_ok(memlord_cuda_scope_end(NULL, &scope));
    assert_ok(memlord_cuda_checkpoint(lord, "loaded"));
    assert_int_equal(memlord_cuda_checkpoint(lord, ""), MEMLORD_E_INVALID);
}

static void any_call_may_fail_and_no_event_is_lost(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream = a_stream();
    uint64_t n, before;
    for (n = 1;; n++) {
        int reached;
        before = fake.calls;
        fake.fail_at = before + n;
        work_in(lord, "forward", stream, 1);
        fake_stream_finish(stream);
        work_in(lord, "forward", stream, 0);
        reached = fake.calls >= before + n;
        fake.fail_at = 0;
        fake_stream_finish(stream);
        assert_cuda(memlord_cuda_stream_synchronize(lord, stream, NULL));
        assert_int_equal(fake_depth(), 0);
        assert_slot(cudaSuccess);
        if (!reached) break;
    }
    assert_true(n > 20);
    assert_in_range(fake.events, 0, 8);
}

static void *churn(void *user) {
    memlord *lord = (memlord *)user;
    cudaStream_t stream = NULL;
    memlord_cuda_scope scope;
    int i;
    (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (i = 0; i < 300; i++) {
        (void)memlord_cuda_scope_begin(lord, &scope, "forward", stream);
        fake_stream_work(stream);
        (void)memlord_cuda_scope_end(lord, &scope);
        if (i % 32 == 0) (void)memlord_cuda_stream_synchronize(lord, stream, NULL);
    }
    (void)memlord_cuda_stream_synchronize(lord, stream, NULL);
    return NULL;
}

static void threads_add_up(void **state) {
    memlord *lord = test_lord(state);
    pthread_t threads[6];
    int i;
    for (i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, lord), 0);
    for (i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    assert_cuda(memlord_cuda_device_synchronize(lord, NULL));
    assert_int_equal(scope_of(lord, "forward").count, 6 * 300);
    assert_int_equal(scope_of(lord, "forward").device_ns, 6 * 300 * UINT64_C(1000000));
}

static void *short_scopes(void *user) {
    memlord *lord = (memlord *)user;
    memlord_cuda_scope scope;
    cudaStream_t stream = NULL;
    int i;
    (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (i = 0; i < 3000; i++) {
        (void)memlord_cuda_scope_begin(lord, &scope, "forward", stream);
        (void)memlord_cuda_scope_end(lord, &scope);
    }
    return NULL;
}

static void *attaches(void *user) {
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_TIME_SCOPES | MEMLORD_CUDA_FLAG_NO_NVML, 0, NULL,
                              NULL};
    int i;
    for (i = 0; i < 3000; i++) {
        (void)memlord_cuda_detach((memlord *)user);
        (void)memlord_cuda_attach((memlord *)user, &desc);
    }
    (void)memlord_cuda_detach((memlord *)user);
    return NULL;
}

/* What a scope hands over too late stays with nobody: the teardown finds no event. */
static void scopes_may_end_while_their_ledger_is_detached(void **state) {
    memlord *lord = test_lord(state);
    pthread_t threads[4];
    int i;
    for (i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i ? short_scopes : attaches, lord), 0);
    for (i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(scope_of(lord, "forward").count, 3 * 3000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_CUDA_WITH(a_scope_gets_the_time_of_its_stream, setup_timed),
        TEST_CUDA_WITH(scopes_inside_scopes_have_times_of_their_own, setup_timed),
        TEST_CUDA(without_being_asked_no_event_is_made),
        TEST_CUDA_WITH(a_captured_scope_is_not_timed, setup_timed),
        TEST_CUDA_WITH(events_of_scopes_are_used_again_and_not_for_frees, setup_timed),
        TEST_CUDA_WITH(too_many_in_flight_are_scopes_all_the_same, setup_timed),
        TEST_CUDA_WITH(a_wait_asks_no_scope_of_another_stream, setup_timed),
        TEST_CUDA_WITH(a_time_that_may_not_be_asked_now_is_asked_again, setup_timed),
        TEST_CUDA_WITH(detach_gives_up_what_is_not_done, setup_timed),
        TEST_CUDA_WITH(what_does_not_match_is_refused, setup_timed),
        TEST_CUDA_WITH(any_call_may_fail_and_no_event_is_lost, setup_timed),
        TEST_CUDA_WITH(threads_add_up, setup_timed),
        TEST_CUDA_WITH(scopes_may_end_while_their_ledger_is_detached, setup_timed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
