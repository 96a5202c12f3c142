/* The fake runtime itself: what it counts, and that it refuses what CUDA refuses. One test a
   refusal. What CUDA says is cited by the name of the function in its header. */
#include "support_cuda.h"

#include <signal.h>

static int setup(void **state) {
    (void)state;
    fake_reset(DEVICES);
    return 0;
}

#define TEST_FAKE(name) cmocka_unit_test_setup(name, setup)

/* -- what is counted -- */

static void calls_of_the_driver_are_counted_apart(void **state) {
    int n, device;
    (void)state;
    assert_cuda(cudaGetDeviceCount(&n));
    assert_int_equal(fake.driver_calls, 0);
    assert_int_equal(fake_cuDeviceGetCount(&n), 0);
    assert_int_equal(fake_cuDeviceGet(&device, 0), 0);
    assert_int_equal(fake.driver_calls, 2);
    assert_int_equal(fake.calls, 3);
    assert_int_equal(fake_count("cuDeviceGet"), 1);
}

static void contexts_are_counted_by_device(void **state) {
    void *ptr = NULL;
    (void)state;
    assert_cuda(cudaSetDevice(1)); /* since CUDA 12 */
    assert_int_equal(fake.device[1].contexts, 1);
    assert_cuda(cudaSetDevice(1));
    assert_int_equal(fake.device[1].contexts, 1);
    assert_int_equal(fake.device[0].contexts, 0);
    fake.lazy = 1;
    assert_cuda(cudaSetDevice(0));
    assert_int_equal(fake.device[0].contexts, 0);
    assert_cuda(cudaMalloc(&ptr, 64));
    assert_int_equal(fake.device[0].contexts, 1);
}

static void *set_back(void *user) {
    int device = -1;
    (void)user;
    (void)cudaGetDevice(&device); /* makes none */
    (void)cudaSetDevice(device);
    return NULL;
}

static void a_thread_that_sets_the_device_it_was_born_with_makes_a_context(void **state) {
    pthread_t thread;
    (void)state;
    assert_cuda(cudaSetDevice(1));
    assert_int_equal(pthread_create(&thread, NULL, set_back, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(fake.device[0].contexts, 1);
}

static void waits_for_a_context_and_trims_are_counted(void **state) {
    cudaMemPool_t pool;
    void *ptr = NULL;
    (void)state;
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaMallocAsync(&ptr, MIB, NULL));
    assert_cuda(cudaFreeAsync(ptr, NULL));
    assert_int_equal(fake_cuDeviceGetMemPool(&pool, 0), 0);
    assert_int_equal(fake_cuMemPoolTrimTo(pool, 0), 0);
    assert_int_equal(fake.device[0].trims, 1);
    assert_int_equal(fake.device[0].trimmed, MIB);
    assert_int_equal(fake_cuDeviceGraphMemTrim(0), 0);
    assert_int_equal(fake.device[0].graph_trims, 1);
    assert_int_equal(fake_cuCtxSynchronize(), 0);
    assert_int_equal(fake.context_waits, 1);
}

/* -- what captures forbid: cudaThreadExchangeStreamCaptureMode, and the Programming Guide -- */

static cudaStream_t a_stream(unsigned flags) {
    cudaStream_t stream = NULL;
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

static cudaStream_t captured(enum cudaStreamCaptureMode mode) {
    cudaStream_t stream = a_stream(cudaStreamNonBlocking);
    assert_cuda(cudaStreamBeginCapture(stream, mode));
    return stream;
}

static void assert_lost(cudaStream_t stream) {
    cudaGraph_t graph = (cudaGraph_t)stream;
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    assert_null(graph);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState); /* it is over */
}

static void assert_whole(cudaStream_t stream) {
    cudaGraph_t graph = NULL;
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_cuda(cudaGraphDestroy(graph));
}

/* Calls that are potentially unsafe, on memory, streams and events from before a capture. */
static struct {
    void *plain, *host;
    cudaStream_t stream;
    cudaEvent_t event;
    char mine[64], registered[64];
} before;

enum { UNSAFE = 19 };

static void make_before(void) {
    before.stream = a_stream(cudaStreamNonBlocking);
    assert_cuda(cudaMalloc(&before.plain, 64));
    assert_cuda(cudaMallocHost(&before.host, 64));
    assert_cuda(cudaHostRegister(before.registered, 64, 0));
    assert_cuda(cudaEventCreateWithFlags(&before.event, cudaEventDisableTiming));
    assert_cuda(cudaEventRecord(before.event, before.stream));
}

static int unsafe_call(int i) {
    static void *ptr;
    size_t pitch;
    struct cudaPitchedPtr box;
    const struct cudaExtent extent = {4, 4, 0}, solid = {4, 4, 4};
    const struct cudaChannelFormatDesc desc = {32, 0, 0, 0, cudaChannelFormatKindFloat};
    cudaArray_t array;
    cudaMemPool_t pool = (cudaMemPool_t)(void *)&fake.device[0];
    switch (i) {
    case 0: return (int)cudaMalloc(&ptr, 8);
    case 1: return (int)cudaMallocPitch(&ptr, &pitch, 8, 8);
    case 2: return (int)cudaMalloc3D(&box, solid);
    case 3: return (int)cudaMallocManaged(&ptr, 8, cudaMemAttachGlobal);
    case 4: return (int)cudaMallocHost(&ptr, 8);
    case 5: return (int)cudaHostAlloc(&ptr, 8, 0);
    case 6: return (int)cudaHostRegister(before.mine, 64, 0);
    case 7: return (int)cudaMallocArray(&array, &desc, 4, 4, 0);
    case 8: return (int)cudaMalloc3DArray(&array, &desc, extent, 0);
    case 9: return (int)cudaEventQuery(before.event);
    case 10: return (int)cudaEventSynchronize(before.event);
    case 11: return (int)cudaStreamQuery(before.stream);
    case 12: return (int)cudaStreamSynchronize(before.stream);
    case 13: return fake_cuMemPoolTrimTo(pool, 0);
    case 14: return fake_cuEventQuery(before.event);
    case 15: return fake_cuEventSynchronize(before.event);
    case 16: return (int)cudaFree(before.plain);
    case 17: return (int)cudaFreeHost(before.host);
    default: return (int)cudaHostUnregister(before.registered);
    }
}

static void *unsafe_calls(void *user) {
    int i, *refused = (int *)user;
    for (i = 0; i < UNSAFE; i++)
        *refused += unsafe_call(i) == cudaErrorStreamCaptureUnsupported;
    return NULL;
}

/* Of the unsafe calls, those refused on another thread. */
static int refused_elsewhere(void) {
    pthread_t thread;
    int refused = 0;
    assert_int_equal(pthread_create(&thread, NULL, unsafe_calls, &refused), 0);
    pthread_join(thread, NULL);
    return refused;
}

static void a_global_capture_forbids_unsafe_calls_and_is_lost_by_one(void **state) {
    int i;
    (void)state;
    make_before();
    for (i = 0; i < UNSAFE; i++) {
        cudaStream_t stream = captured(cudaStreamCaptureModeGlobal);
        assert_int_equal(unsafe_call(i), cudaErrorStreamCaptureUnsupported);
        assert_lost(stream);
    }
    for (i = 0; i < UNSAFE; i++) assert_cuda(unsafe_call(i));
}

static void a_global_capture_forbids_them_to_other_threads(void **state) {
    cudaStream_t stream;
    (void)state;
    make_before();
    stream = captured(cudaStreamCaptureModeGlobal);
    assert_int_equal(refused_elsewhere(), UNSAFE);
    assert_lost(stream);
}

static void a_capture_of_a_thread_forbids_them_to_that_one_alone(void **state) {
    cudaStream_t stream;
    (void)state;
    make_before();
    stream = captured(cudaStreamCaptureModeThreadLocal);
    assert_int_equal(refused_elsewhere(), 0);
    assert_whole(stream);
    make_before();
    stream = captured(cudaStreamCaptureModeThreadLocal);
    assert_int_equal(unsafe_call(0), cudaErrorStreamCaptureUnsupported);
    assert_lost(stream);
}

static void a_relaxed_capture_forbids_none_of_them(void **state) {
    cudaStream_t stream;
    int i;
    (void)state;
    make_before();
    stream = captured(cudaStreamCaptureModeRelaxed);
    for (i = 0; i < UNSAFE; i++) assert_cuda(unsafe_call(i));
    assert_whole(stream);
}

static void nor_does_any_to_a_relaxed_thread(void **state) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaStream_t stream;
    int i;
    (void)state;
    make_before();
    stream = captured(cudaStreamCaptureModeGlobal);
    assert_cuda(cudaThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, cudaStreamCaptureModeGlobal);
    for (i = 0; i < UNSAFE; i++) assert_cuda(unsafe_call(i));
    assert_cuda(cudaThreadExchangeStreamCaptureMode(&mode));
    assert_whole(stream);
}

static void a_captured_stream_is_not_asked_nor_waited_for(void **state) {
    cudaStream_t stream;
    (void)state;
    stream = captured(cudaStreamCaptureModeRelaxed); /* whatever the mode */
    assert_int_equal(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
    assert_lost(stream);
    stream = captured(cudaStreamCaptureModeRelaxed);
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    assert_lost(stream);
}

static void nor_is_the_device_or_context_that_has_it(void **state) {
    cudaStream_t stream = captured(cudaStreamCaptureModeRelaxed);
    (void)state;
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    assert_lost(stream);
    stream = captured(cudaStreamCaptureModeRelaxed);
    assert_int_equal(fake_cuCtxSynchronize(), cudaErrorStreamCaptureUnsupported);
    assert_lost(stream);
    stream = captured(cudaStreamCaptureModeRelaxed);
    assert_cuda(cudaSetDevice(1));
    assert_cuda(cudaDeviceSynchronize());
    assert_whole(stream);
}

static void an_event_of_a_capture_is_not_asked_nor_waited_for(void **state) {
    cudaStream_t stream = captured(cudaStreamCaptureModeRelaxed);
    cudaEvent_t event;
    (void)state;
    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    assert_cuda(cudaEventRecord(event, stream));
    assert_int_equal(cudaEventQuery(event), cudaErrorCapturedEvent);
    assert_lost(stream);
    assert_int_equal(cudaEventSynchronize(event), cudaErrorCapturedEvent); /* after it, too */
    assert_cuda(cudaEventRecord(event, stream));
    assert_cuda(cudaEventQuery(event));
}

static void memory_from_before_is_not_freed_on_a_captured_stream(void **state) {
    cudaStream_t stream = a_stream(cudaStreamNonBlocking), other = a_stream(cudaStreamNonBlocking);
    void *pooled = NULL, *plain = NULL, *elsewhere = NULL;
    (void)state;
    assert_cuda(cudaMallocAsync(&pooled, 64, stream));
    assert_cuda(cudaMallocAsync(&elsewhere, 64, stream));
    assert_cuda(cudaMalloc(&plain, 64));
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    assert_int_equal(cudaFreeAsync(pooled, stream), cudaErrorInvalidValue);
    assert_lost(stream);
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    assert_int_equal(cudaFreeAsync(plain, stream), cudaErrorInvalidValue);
    assert_lost(stream);
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    assert_cuda(cudaFreeAsync(elsewhere, other)); /* on one that is not captured, it is */
    assert_whole(stream);
    assert_cuda(cudaFreeAsync(pooled, stream));
    assert_int_equal(fake_live(), 1);
}

static void a_lost_capture_takes_no_more_work(void **state) {
    cudaStream_t stream = captured(cudaStreamCaptureModeGlobal);
    void *ptr = NULL;
    enum cudaStreamCaptureStatus status;
    (void)state;
    assert_int_equal(cudaMalloc(&ptr, 8), cudaErrorStreamCaptureUnsupported);
    assert_cuda(cudaStreamIsCapturing(stream, &status));
    assert_int_equal(status, cudaStreamCaptureStatusInvalidated);
    assert_int_equal(cudaMallocAsync(&ptr, 8, stream), cudaErrorStreamCaptureInvalidated);
    assert_lost(stream);
    assert_cuda(cudaStreamIsCapturing(stream, &status));
    assert_int_equal(status, cudaStreamCaptureStatusNone);
}

static void the_legacy_stream_is_of_no_use_while_a_blocking_one_is_captured(void **state) {
    cudaStream_t stream = a_stream(0);
    cudaEvent_t event;
    void *ptr = NULL;
    int i;
    (void)state;
    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (i = 0; i < 6; i++) {
        cudaError_t r = cudaSuccess;
        assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        if (i == 0) r = cudaMallocAsync(&ptr, 8, cudaStreamLegacy);
        if (i == 1) r = cudaEventRecord(event, cudaStreamLegacy);
        if (i == 2) r = cudaStreamSynchronize(cudaStreamLegacy);
        if (i == 3) r = cudaStreamQuery(cudaStreamLegacy);
        if (i == 4) r = cudaStreamWaitEvent(cudaStreamLegacy, event, 0);
        if (i == 5) r = cudaFreeAsync(ptr, cudaStreamLegacy);
        assert_int_equal(r, cudaErrorStreamCaptureImplicit);
        assert_lost(stream);
    }
    assert_cuda(cudaStreamBeginCapture(a_stream(cudaStreamNonBlocking),
                                       cudaStreamCaptureModeRelaxed));
    assert_cuda(cudaEventRecord(event, cudaStreamLegacy));
}

static void to_ask_it_whether_it_is_captured_is_an_error_that_ends_none(void **state) {
    cudaStream_t stream = a_stream(0);
    enum cudaStreamCaptureStatus status;
    int driver;
    (void)state;
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    assert_int_equal(cudaStreamIsCapturing(cudaStreamLegacy, &status),
                     cudaErrorStreamCaptureImplicit);
    assert_int_equal(fake_cuStreamIsCapturing(cudaStreamLegacy, &driver),
                     cudaErrorStreamCaptureImplicit);
    assert_whole(stream);
}

static void an_event_from_outside_does_not_come_into_a_capture(void **state) {
    cudaStream_t stream, work = a_stream(cudaStreamNonBlocking);
    cudaEvent_t event;
    (void)state;
    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    assert_cuda(cudaEventRecord(event, work));
    stream = captured(cudaStreamCaptureModeRelaxed);
    assert_cuda(cudaStreamWaitEvent(stream, event, cudaEventWaitExternal));
    assert_int_equal(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureIsolation);
    assert_lost(stream);
}

static void an_event_of_a_capture_that_is_over_orders_nothing(void **state) {
    cudaStream_t stream = captured(cudaStreamCaptureModeRelaxed);
    cudaEvent_t event;
    (void)state;
    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    assert_cuda(cudaEventRecord(event, stream));
    assert_whole(stream);
    assert_int_equal(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureIsolation);
}

static void a_stream_that_waits_for_a_capture_is_in_it_until_it_is_joined(void **state) {
    cudaStream_t stream, side = a_stream(cudaStreamNonBlocking);
    cudaEvent_t fork, join;
    cudaGraph_t graph = NULL;
    enum cudaStreamCaptureStatus status;
    int i;
    (void)state;
    assert_cuda(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    assert_cuda(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    for (i = 0; i < 2; i++) {
        void *ptr = NULL;
        stream = captured(cudaStreamCaptureModeGlobal);
        assert_cuda(cudaEventRecord(fork, stream));
        assert_cuda(cudaStreamWaitEvent(side, fork, 0));
        assert_cuda(cudaStreamIsCapturing(side, &status));
        assert_int_equal(status, cudaStreamCaptureStatusActive);
        assert_cuda(cudaMallocAsync(&ptr, 64, side));
        assert_cuda(cudaFreeAsync(ptr, side));
        assert_int_equal(cudaStreamEndCapture(side, &graph), cudaErrorStreamCaptureUnmatched);
        if (i) assert_cuda(cudaEventRecord(join, side));
        if (i) assert_cuda(cudaStreamWaitEvent(stream, join, 0));
        assert_int_equal(cudaStreamEndCapture(stream, &graph),
                         i ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
        assert_cuda(cudaStreamIsCapturing(side, &status));
        assert_int_equal(status, cudaStreamCaptureStatusNone);
    }
}

static void two_captures_do_not_become_one(void **state) {
    cudaStream_t a = captured(cudaStreamCaptureModeGlobal);
    cudaStream_t b = captured(cudaStreamCaptureModeGlobal);
    cudaEvent_t event;
    (void)state;
    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    assert_cuda(cudaEventRecord(event, a));
    assert_int_equal(cudaStreamWaitEvent(b, event, 0), cudaErrorStreamCaptureMerge);
    assert_lost(a);
    assert_lost(b);
}

static void *end_capture(void *user) {
    cudaStream_t stream = (cudaStream_t)user;
    cudaGraph_t graph;
    return (void *)(uintptr_t)cudaStreamEndCapture(stream, &graph);
}

static void a_capture_ends_on_the_thread_it_began_on_unless_it_is_relaxed(void **state) {
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        cudaStream_t stream = captured((enum cudaStreamCaptureMode)i);
        pthread_t thread;
        void *r;
        assert_int_equal(pthread_create(&thread, NULL, end_capture, stream), 0);
        pthread_join(thread, &r);
        assert_int_equal((uintptr_t)r, i == 2 ? cudaSuccess : cudaErrorStreamCaptureWrongThread);
        if (i < 2) assert_whole(stream);
    }
}

static void a_capture_begins_on_no_legacy_stream_and_not_twice(void **state) {
    cudaStream_t stream = captured(cudaStreamCaptureModeGlobal);
    (void)state;
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeGlobal),
                     cudaErrorInvalidValue);
    assert_whole(stream);
}

/* -- graphs: cudaGraphAddMemAllocNode, cudaGraphLaunch -- */

/* A graph with an allocation of 1 MiB that it does not free, and one that it does. */
static cudaGraphExec_t graph_with_memory(void **ptr, unsigned long long flags) {
    cudaStream_t stream = captured(cudaStreamCaptureModeGlobal);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t run = NULL;
    void *inner = NULL;
    assert_cuda(cudaMallocAsync(ptr, MIB, stream));
    assert_cuda(cudaMallocAsync(&inner, 2 * MIB, stream));
    assert_cuda(cudaFreeAsync(inner, stream));
    assert_int_equal(cudaFreeAsync(inner, stream), cudaErrorInvalidValue); /* once */
    assert_lost(stream);
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    assert_cuda(cudaMallocAsync(ptr, MIB, stream));
    assert_cuda(cudaMallocAsync(&inner, 2 * MIB, stream));
    assert_cuda(cudaFreeAsync(inner, stream));
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_cuda(cudaGraphInstantiateWithFlags(&run, graph, flags));
    assert_int_equal(cudaGraphInstantiateWithFlags(&run, graph, flags), cudaErrorInvalidValue);
    assert_cuda(cudaGraphDestroy(graph));
    assert_int_equal(cudaGraphDestroy(graph), cudaErrorInvalidValue);
    return run;
}

static void memory_of_a_graph_is_freed_after_a_launch_and_not_before(void **state) {
    void *ptr = NULL;
    cudaGraphExec_t run = graph_with_memory(&ptr, 0);
    (void)state;
    assert_int_equal(fake.device[0].graph_reserved, 0);
    assert_int_equal(cudaFreeAsync(ptr, NULL), cudaErrorInvalidValue);
    assert_cuda(cudaGraphLaunch(run, NULL));
    assert_int_equal(fake.device[0].graph_used, MIB);
    assert_int_equal(fake.device[0].graph_reserved, 3 * MIB);
    assert_int_equal(cudaGraphLaunch(run, NULL), cudaErrorInvalidValue); /* it is live */
    assert_cuda(cudaFreeAsync(ptr, NULL));
    assert_int_equal(cudaFreeAsync(ptr, NULL), cudaErrorInvalidValue);
    assert_cuda(cudaGraphLaunch(run, NULL));
    assert_cuda(cudaGraphExecDestroy(run));
    assert_int_equal(cudaGraphLaunch(run, NULL), cudaErrorInvalidValue);
    assert_int_equal(fake_live(), 1); /* outlives it */
    assert_cuda(cudaFree(ptr));
    assert_cuda(cudaDeviceGraphMemTrim(0));
    assert_int_equal(fake.device[0].graph_reserved, 0);
    assert_int_equal(fake_live(), 0);
}

static void a_graph_that_frees_on_launch_is_launched_again(void **state) {
    void *ptr = NULL;
    cudaGraphExec_t run = graph_with_memory(&ptr, cudaGraphInstantiateFlagAutoFreeOnLaunch);
    (void)state;
    assert_cuda(cudaGraphLaunch(run, NULL));
    assert_cuda(cudaGraphLaunch(run, NULL));
    assert_int_equal(fake.device[0].graph_used, MIB);
    assert_cuda(cudaFree(ptr));
    assert_cuda(cudaGraphExecDestroy(run));
}

static void a_graph_that_finds_no_memory_is_not_launched(void **state) {
    void *ptr = NULL, *much = NULL;
    cudaGraphExec_t run = graph_with_memory(&ptr, 0);
    (void)state;
    assert_cuda(cudaMalloc(&much, FAKE_GIB - 2 * MIB));
    assert_int_equal(cudaGraphLaunch(run, NULL), cudaErrorMemoryAllocation);
    assert_cuda(cudaFree(much));
    assert_cuda(cudaGraphLaunch(run, NULL));
}

/* -- host functions: cudaLaunchHostFunc -- */

static int answers[8];

static void calls_cuda(void *user) {
    void *ptr = NULL;
    int device;
    answers[0] = (int)cudaMalloc(&ptr, 8);
    answers[1] = (int)cudaGetDevice(&device);
    answers[2] = (int)cudaEventQuery(before.event);
    answers[3] = fake_cuEventQuery(before.event);
    answers[4] = fake_cuCtxGetDevice(&device);
    answers[5] = fake_cuMemGetInfo_v2((size_t *)user, (size_t *)user);
}

static void a_host_function_makes_no_call_of_cuda(void **state) {
    size_t bytes = 0;
    int i;
    (void)state;
    make_before();
    assert_cuda(cudaLaunchHostFunc(before.stream, calls_cuda, &bytes));
    assert_cuda(cudaStreamSynchronize(before.stream));
    for (i = 0; i < 6; i++) assert_int_equal(answers[i], cudaErrorNotPermitted);
    assert_int_equal(fake.host_function_calls, 6);
    assert_slot(cudaSuccess); /* it was another thread */
}

static void nor_need_it_be_refused_one(void **state) {
    size_t bytes = 0;
    int i;
    (void)state;
    make_before();
    fake.lax_host_functions = 1;
    assert_cuda(cudaLaunchHostFunc(before.stream, calls_cuda, &bytes));
    assert_cuda(cudaStreamSynchronize(before.stream));
    for (i = 0; i < 4; i++) assert_int_equal(answers[i], 0);
    assert_int_equal(fake.host_function_calls, 6);
}

static void counts_up(void *user) { ++*(int *)user; }

static void a_wait_for_an_event_runs_what_came_before_it_and_no_more(void **state) {
    int n = 0;
    (void)state;
    make_before();
    assert_cuda(cudaLaunchHostFunc(before.stream, counts_up, &n));
    assert_cuda(cudaEventRecord(before.event, before.stream));
    assert_cuda(cudaLaunchHostFunc(before.stream, counts_up, &n));
    assert_cuda(cudaEventSynchronize(before.event));
    assert_int_equal(n, 1);
    assert_int_equal(cudaStreamQuery(before.stream), cudaErrorNotReady);
    fake_stream_finish(before.stream);
    assert_int_equal(n, 2);
    assert_cuda(cudaStreamQuery(before.stream));
}

/* -- contexts, their end, children -- */

static void the_driver_works_on_no_device_without_a_context(void **state) {
    cudaEvent_t event;
    int device, status, i;
    size_t bytes;
    (void)state;
    assert_cuda(cudaGetDeviceCount(&device));
    for (i = 0; i < 2; i++) {
        void *context = &device;
        assert_int_equal(fake_cuCtxGetDevice(&device), cudaErrorDeviceUninitialized);
        assert_int_equal(fake_cuEventCreate(&event, 0), cudaErrorDeviceUninitialized);
        assert_int_equal(fake_cuMemGetInfo_v2(&bytes, &bytes), cudaErrorDeviceUninitialized);
        assert_int_equal(fake_cuStreamIsCapturing(NULL, &status), cudaErrorDeviceUninitialized);
        assert_int_equal(fake_cuCtxSynchronize(), cudaErrorDeviceUninitialized);
        assert_int_equal(fake_cuCtxGetCurrent(&context), 0);
        assert_null(context);
        assert_cuda(cudaSetDevice(0));
        assert_cuda(cudaDeviceReset()); /* nor with one that is gone */
    }
}

static void a_retained_context_is_gone_with_its_last_release(void **state) {
    void *context = NULL;
    unsigned flags;
    int active;
    (void)state;
    assert_int_equal(fake_cuInit(0), 0);
    fake.device[1].context_bytes = 300 * MIB;
    assert_int_equal(fake_cuDevicePrimaryCtxRetain(&context, 1), 0);
    assert_int_equal(fake.device[1].contexts, 1);
    assert_int_equal(fake_cuDevicePrimaryCtxRelease_v2(1), 0);
    assert_int_equal(fake_cuDevicePrimaryCtxGetState(1, &flags, &active), 0);
    assert_false(active);
    assert_int_equal(fake_cuCtxPushCurrent_v2(context), cudaErrorDeviceUninitialized);
    assert_cuda(cudaSetDevice(1)); /* the runtime keeps it */
    assert_int_equal(fake_cuDevicePrimaryCtxRetain(&context, 1), 0);
    assert_int_equal(fake_cuDevicePrimaryCtxRelease_v2(1), 0);
    assert_int_equal(fake_cuCtxPushCurrent_v2(context), 0);
    assert_int_equal(fake_cuCtxPopCurrent_v2(&context), 0);
}

static void a_context_takes_memory_of_its_device(void **state) {
    size_t unused, total;
    (void)state;
    fake.device[0].context_bytes = 300 * MIB;
    assert_cuda(cudaMemGetInfo(&unused, &total));
    assert_int_equal(total - unused, 300 * MIB);
}

static void a_reset_takes_streams_events_and_memory_but_not_that_of_pools(void **state) {
    void *pooled = NULL, *other = NULL, *context;
    (void)state;
    make_before();
    assert_cuda(cudaMallocAsync(&pooled, 64, before.stream));
    assert_cuda(cudaSetDevice(1));
    assert_cuda(cudaMalloc(&other, 64));
    assert_cuda(cudaSetDevice(0));
    assert_int_equal(fake_cuCtxGetCurrent(&context), 0);
    assert_cuda(cudaDeviceReset());
    assert_int_equal(cudaStreamSynchronize(before.stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaEventRecord(before.event, NULL), cudaErrorInvalidResourceHandle);
    assert_int_equal(fake_cuEventQuery(before.event), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaFree(before.plain), cudaErrorInvalidValue);
    assert_int_equal(cudaFreeHost(before.host), cudaErrorInvalidValue);
    assert_int_equal(fake_live(), 2);
    assert_cuda(cudaFreeAsync(pooled, NULL));
    assert_cuda(cudaFree(other));
    assert_int_equal(fake.device[0].contexts, 2); /* the calls made it again */
}

static void child_calls(void *user) {
    void *ptr = NULL;
    int n;
    child_check(cudaMalloc(&ptr, 8) == cudaErrorInitializationError);
    child_check(fake_cuDeviceGetCount(&n) == cudaErrorInitializationError);
    child_check(fake_cuEventQuery((cudaEvent_t)user) == cudaErrorInitializationError);
}

/* Here no --wrap redirects a name, so the first one of the list is the first that is missing. */
static void names_that_the_linker_did_not_redirect_are_counted(void **state) {
    const char *first = NULL;
    int all_names;
    (void)state;
    all_names = memlord_cuda_wrap_check(&first);
    assert_true(all_names > 20);
    assert_string_equal(first, "cudaMalloc");
    assert_int_equal(memlord_cuda_wrap_check(NULL), all_names);
}

static void a_forked_child_has_no_driver(void **state) {
    (void)state;
    make_before();
    in_child(child_calls, before.event);
}

/* -- arguments and handles -- */

static void allocations_need_a_place_for_the_pointer(void **state) {
    void *ptr = (void *)64;
    (void)state;
    assert_int_equal(cudaMalloc(NULL, 8), cudaErrorInvalidValue);
    assert_int_equal(cudaMallocAsync(NULL, 8, NULL), cudaErrorInvalidValue);
    assert_int_equal(cudaMallocHost(NULL, 8), cudaErrorInvalidValue);
    assert_int_equal(cudaMallocPitch(&ptr, NULL, 8, 8), cudaErrorInvalidValue);
    assert_int_equal(cudaMallocManaged(&ptr, 0, cudaMemAttachGlobal), cudaErrorInvalidValue);
    assert_int_equal(cudaMallocManaged(&ptr, 8, 0), cudaErrorInvalidValue);
    assert_int_equal(cudaHostAlloc(&ptr, 8, 64), cudaErrorInvalidValue);
    assert_int_equal(cudaEventCreateWithFlags(NULL, 0), cudaErrorInvalidValue);
    assert_int_equal(cudaStreamCreateWithFlags(NULL, 0), cudaErrorInvalidValue);
    assert_int_equal(cudaLaunchHostFunc(NULL, NULL, NULL), cudaErrorInvalidValue);
    assert_ptr_equal(ptr, (void *)64);
}

static void a_free_takes_the_base_of_what_is_live_and_of_its_kind(void **state) {
    (void)state;
    make_before();
    assert_int_equal(cudaFree((char *)before.plain + 8), cudaErrorInvalidValue);
    assert_int_equal(cudaFreeAsync((char *)before.plain + 8, NULL), cudaErrorInvalidValue);
    assert_int_equal(cudaFreeAsync(NULL, NULL), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(before.host), cudaErrorInvalidValue);
    assert_int_equal(cudaFreeHost(before.plain), cudaErrorInvalidValue);
    assert_int_equal(cudaFreeHost(before.registered), cudaErrorInvalidValue);
    assert_int_equal(cudaHostUnregister(before.host), cudaErrorHostMemoryNotRegistered);
    assert_int_equal(cudaHostRegister(before.registered + 32, 8, 0),
                     cudaErrorHostMemoryAlreadyRegistered);
    assert_cuda(cudaFree(NULL));
    assert_cuda(cudaFreeHost(NULL));
    assert_cuda(cudaFree(before.plain));
    assert_int_equal(cudaFree(before.plain), cudaErrorInvalidValue);
}

static void handles_of_what_is_destroyed_are_refused(void **state) {
    void *ptr = NULL, *context;
    (void)state;
    make_before();
    assert_cuda(cudaStreamDestroy(before.stream));
    assert_int_equal(cudaStreamDestroy(before.stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaStreamDestroy(NULL), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaStreamQuery(before.stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaMallocAsync(&ptr, 8, before.stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaEventRecord(before.event, before.stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(fake_cuStreamGetCtx(before.stream, &context), cudaErrorInvalidResourceHandle);
    assert_int_equal(fake.dead_asked, 1);
    assert_cuda(cudaEventDestroy(before.event));
    assert_int_equal(cudaEventDestroy(before.event), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaEventQuery(before.event), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaEventQuery(NULL), cudaErrorInvalidResourceHandle);
}

static void an_event_is_recorded_on_a_stream_of_its_own_device(void **state) {
    (void)state;
    make_before();
    assert_cuda(cudaSetDevice(1));
    assert_int_equal(cudaEventRecord(before.event, NULL), cudaErrorInvalidResourceHandle);
}

static void time_between_events_needs_both_recorded_and_timed(void **state) {
    cudaEvent_t start, stop;
    float ms;
    (void)state;
    make_before();
    assert_cuda(cudaEventCreate(&start));
    assert_cuda(cudaEventCreate(&stop));
    assert_int_equal(cudaEventElapsedTime(&ms, start, stop), cudaErrorInvalidResourceHandle);
    assert_cuda(cudaEventRecord(start, before.stream));
    fake_stream_work(before.stream);
    assert_cuda(cudaEventRecord(stop, before.stream));
    assert_int_equal(cudaEventElapsedTime(&ms, start, stop), cudaErrorNotReady);
    assert_cuda(cudaStreamSynchronize(before.stream));
    assert_cuda(cudaEventElapsedTime(&ms, start, stop));
    assert_int_equal(cudaEventElapsedTime(&ms, before.event, stop),
                     cudaErrorInvalidResourceHandle);
}

static void a_stream_that_waits_for_an_event_is_done_after_it(void **state) {
    cudaStream_t waits = a_stream(cudaStreamNonBlocking);
    (void)state;
    make_before();
    fake_stream_work(before.stream);
    assert_cuda(cudaEventRecord(before.event, before.stream));
    assert_cuda(cudaStreamWaitEvent(waits, before.event, 0));
    assert_cuda(cudaEventRecord(before.event, waits));
    assert_int_equal(cudaEventQuery(before.event), cudaErrorNotReady);
    assert_int_equal(cudaStreamQuery(waits), cudaErrorNotReady);
    assert_cuda(cudaStreamSynchronize(waits));
    assert_cuda(cudaStreamQuery(before.stream));
    assert_int_equal(fake_stream_waits(waits), 1);
}

/* -- memory -- */

static void addresses_that_were_freed_come_again_at_once(void **state) {
    cudaStream_t stream = a_stream(cudaStreamNonBlocking);
    void *a = NULL, *b = NULL, *c = NULL;
    (void)state;
    assert_cuda(cudaMalloc(&a, 64));
    assert_cuda(cudaFree(a));
    assert_cuda(cudaMalloc(&b, 1000));
    assert_ptr_equal(a, b);
    assert_cuda(cudaMallocAsync(&a, 8 * MIB, stream));
    assert_cuda(cudaFreeAsync(a, stream));
    assert_cuda(cudaMallocAsync(&b, 64, stream)); /* the begin of it; the rest stays */
    assert_cuda(cudaMallocAsync(&c, 6 * MIB, stream));
    assert_ptr_equal(a, b);
    assert_ptr_equal((char *)a + 2 * MIB, c);
}

static void a_pool_reuses_memory_of_a_busy_stream_only_as_it_may(void **state) {
    cudaStream_t busy = a_stream(cudaStreamNonBlocking), other = a_stream(cudaStreamNonBlocking);
    cudaMemPool_t pool;
    void *a = NULL, *b = NULL;
    int no = 0;
    (void)state;
    assert_cuda(cudaDeviceGetDefaultMemPool(&pool, 0));
    assert_cuda(
        cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &no));
    assert_cuda(cudaMallocAsync(&a, 64, busy));
    fake_stream_work(busy);
    assert_cuda(cudaFreeAsync(a, busy));
    assert_cuda(cudaMallocAsync(&b, 64, other));
    assert_ptr_not_equal(a, b);
    assert_cuda(cudaStreamSynchronize(busy));
    assert_cuda(cudaMallocAsync(&b, 64, other));
    assert_ptr_equal(a, b);
}

static void memory_is_out_at_the_devices_total(void **state) {
    void *a = NULL, *b = NULL;
    (void)state;
    assert_cuda(cudaMalloc(&a, FAKE_GIB - MIB));
    assert_int_equal(cudaMalloc(&b, 2 * MIB), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMallocAsync(&b, 2 * MIB, NULL), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMalloc(&b, SIZE_MAX), cudaErrorMemoryAllocation);
    assert_cuda(cudaSetDevice(1));
    assert_cuda(cudaMalloc(&b, 2 * MIB));
}

static void arrays_are_memory_of_their_device(void **state) {
    const struct cudaChannelFormatDesc desc = {32, 32, 0, 0, cudaChannelFormatKindFloat};
    const struct cudaExtent extent = {64, 32, 4};
    cudaArray_t flat = NULL, solid = NULL;
    cudaMipmappedArray_t levels = NULL;
    (void)state;
    assert_cuda(cudaMallocArray(&flat, &desc, 64, 0, 0));
    assert_int_equal(fake.device[0].plain, 512);
    assert_cuda(cudaMalloc3DArray(&solid, &desc, extent, 0));
    assert_int_equal(fake.device[0].plain, 512 + 65536);
    assert_cuda(cudaMallocMipmappedArray(&levels, &desc, extent, 2, 0));
    assert_int_equal(fake.device[0].plain, 512 + 65536 + 65536 + 8192);
    assert_int_equal(cudaMallocArray(NULL, &desc, 64, 0, 0), cudaErrorInvalidValue);
    assert_int_equal(cudaMallocArray(&flat, &desc, 0, 0, 0), cudaErrorInvalidValue);
    assert_int_equal(cudaFree((void *)flat), cudaErrorInvalidValue);
    assert_cuda(cudaFreeArray(flat));
    assert_int_equal(cudaFreeArray(flat), cudaErrorInvalidValue);
    assert_cuda(cudaFreeArray(NULL));
    assert_cuda(cudaFreeArray(solid));
    assert_cuda(cudaFreeMipmappedArray(levels));
    assert_int_equal(fake_live(), 0);
}

/* -- pools -- */

static cudaMemPool_t pool_on(int device) {
    struct cudaMemPoolProps props;
    cudaMemPool_t pool = NULL;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = device;
    assert_cuda(cudaMemPoolCreate(&pool, &props));
    return pool;
}

static void a_pool_gives_all_back_at_a_wait_until_it_is_told_to_keep(void **state) {
    cudaMemPool_t pool;
    uint64_t threshold = 1, reserved = 0;
    int i;
    (void)state;
    assert_cuda(cudaDeviceGetDefaultMemPool(&pool, 0));
    assert_cuda(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    assert_int_equal(threshold, 0);
    for (i = 0; i < 2; i++) {
        void *ptr = NULL;
        assert_cuda(cudaMallocAsync(&ptr, MIB, NULL));
        assert_cuda(cudaFreeAsync(ptr, NULL));
        assert_cuda(cudaStreamSynchronize(NULL));
        assert_cuda(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
        assert_int_equal(reserved, i ? MIB : 0);
        threshold = UINT64_MAX;
        assert_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    }
}

static void attributes_of_a_pool_have_their_defaults_and_limits(void **state) {
    cudaMemPool_t pool = pool_on(0);
    uint64_t n = 1;
    int i, on = 0;
    (void)state;
    for (i = 1; i < 4; i++) {
        assert_cuda(cudaMemPoolGetAttribute(pool, (enum cudaMemPoolAttr)i, &on));
        assert_int_equal(on, 1);
    }
    assert_int_equal(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &n),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &n),
                     cudaErrorInvalidValue);
    n = 0;
    assert_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &n));
    assert_int_equal(cudaMemPoolGetAttribute(pool, (enum cudaMemPoolAttr)99, &n),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemPoolGetAttribute(NULL, cudaMemPoolAttrUsedMemHigh, &n),
                     cudaErrorInvalidValue);
}

static void a_destroyed_pool_lives_until_what_is_out_of_it_is_freed(void **state) {
    cudaMemPool_t pool = pool_on(0), now = NULL;
    size_t unused, total;
    void *ptr = NULL;
    (void)state;
    assert_cuda(cudaDeviceSetMemPool(0, pool));
    assert_cuda(cudaMallocAsync(&ptr, MIB, NULL));
    assert_int_equal(fake.device[0].used, 0); /* not the default one's */
    assert_cuda(cudaMemPoolDestroy(pool));
    assert_int_equal(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
    assert_int_equal(fake_cuMemPoolTrimTo(pool, 0), cudaErrorInvalidValue);
    assert_int_equal(cudaMallocFromPoolAsync(&ptr, MIB, pool, NULL), cudaErrorInvalidValue);
    assert_cuda(cudaMemGetInfo(&unused, &total));
    assert_int_equal(total - unused, MIB);
    assert_cuda(cudaFreeAsync(ptr, NULL));
    assert_cuda(cudaMemGetInfo(&unused, &total));
    assert_int_equal(total, unused);
    assert_cuda(cudaDeviceGetMemPool(&now, 0));
    assert_cuda(cudaDeviceGetDefaultMemPool(&pool, 0));
    assert_ptr_equal(now, pool);
    assert_int_equal(cudaMemPoolDestroy(pool), cudaErrorInvalidValue); /* never that */
}

static void a_pool_is_of_one_device(void **state) {
    struct cudaMemPoolProps props;
    cudaMemPool_t pool = pool_on(1), other;
    (void)state;
    assert_int_equal(cudaDeviceSetMemPool(0, pool), cudaErrorInvalidValue);
    assert_cuda(cudaDeviceSetMemPool(1, pool));
    memset(&props, 0, sizeof props);
    assert_int_equal(cudaMemPoolCreate(&other, &props), cudaErrorInvalidValue);
    fake.device[0].pools = 0;
    assert_int_equal(cudaDeviceGetDefaultMemPool(&other, 0), cudaErrorNotSupported);
    assert_int_equal(fake_cuDeviceGetMemPool(&other, 0), cudaErrorNotSupported);
    assert_int_equal(fake_cuDeviceGetMemPool(&other, 9), cudaErrorInvalidDevice);
}

static void a_pool_is_opened_to_the_devices_that_reach_it(void **state) {
    cudaMemPool_t pool = pool_on(0);
    struct cudaMemAccessDesc access;
    enum cudaMemAccessFlags flags;
    (void)state;
    memset(&access, 0, sizeof access);
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = 1;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    assert_int_equal(cudaMemPoolSetAccess(pool, &access, 1), cudaErrorInvalidValue);
    fake.device[0].peers = 1 << 1;
    assert_cuda(cudaMemPoolSetAccess(pool, &access, 1));
    assert_cuda(cudaMemPoolGetAccess(&flags, pool, &access.location));
    assert_int_equal(flags, cudaMemAccessFlagsProtReadWrite);
    access.location.id = 0;
    access.flags = cudaMemAccessFlagsProtNone; /* not from the device that it is on */
    assert_int_equal(cudaMemPoolSetAccess(pool, &access, 1), cudaErrorInvalidValue);
}

/* -- peers and other processes -- */

static void devices_reach_each_other_where_they_can_and_once(void **state) {
    int can = 1;
    (void)state;
    assert_cuda(cudaSetDevice(1));
    assert_cuda(cudaDeviceCanAccessPeer(&can, 1, 0));
    assert_false(can);
    assert_int_equal(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
    fake.device[0].peers = 1 << 1;
    assert_cuda(cudaDeviceCanAccessPeer(&can, 1, 0));
    assert_true(can);
    assert_int_equal(cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);
    assert_int_equal(cudaDeviceEnablePeerAccess(0, 1), cudaErrorInvalidValue);
    assert_cuda(cudaDeviceEnablePeerAccess(0, 0));
    assert_int_equal(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    assert_int_equal(fake.device[0].contexts, 1); /* it costs one there */
    assert_cuda(cudaDeviceDisablePeerAccess(0));
    assert_int_equal(cudaDeviceCanAccessPeer(&can, 1, 9), cudaErrorInvalidDevice);
}

static void memory_of_another_process_is_opened_and_closed_as_often(void **state) {
    const unsigned flags = cudaIpcMemLazyEnablePeerAccess;
    cudaIpcMemHandle_t handle;
    void *a = NULL, *b = NULL;
    size_t unused, total;
    (void)state;
    assert_cuda(cudaSetDevice(0));
    fake_ipc_handle(&handle, 0, MIB);
    assert_int_equal(cudaIpcOpenMemHandle(&a, handle, 0), cudaErrorInvalidValue);
    assert_cuda(cudaIpcOpenMemHandle(&a, handle, flags));
    assert_cuda(cudaIpcOpenMemHandle(&b, handle, flags));
    assert_ptr_equal(a, b);
    assert_cuda(cudaMemGetInfo(&unused, &total));
    assert_int_equal(total, unused); /* it is the other one's */
    assert_int_equal(cudaFree(a), cudaErrorInvalidValue);
    assert_cuda(cudaIpcCloseMemHandle(a));
    assert_int_equal(fake_live(), 1);
    assert_cuda(cudaIpcCloseMemHandle(a));
    assert_int_equal(cudaIpcCloseMemHandle(a), cudaErrorInvalidValue);
    assert_int_equal(fake_live(), 0);
}

static void a_handle_is_of_cudamalloc_and_opened_by_others(void **state) {
    cudaIpcMemHandle_t handle;
    void *plain = NULL, *pooled = NULL, *ptr = NULL;
    (void)state;
    assert_cuda(cudaMalloc(&plain, 64));
    assert_cuda(cudaMallocAsync(&pooled, 64, NULL));
    assert_int_equal(cudaIpcGetMemHandle(&handle, pooled), cudaErrorInvalidValue);
    assert_int_equal(cudaIpcGetMemHandle(&handle, (char *)plain + 8), cudaErrorInvalidValue);
    assert_cuda(cudaIpcGetMemHandle(&handle, plain));
    assert_int_equal(cudaIpcOpenMemHandle(&ptr, handle, cudaIpcMemLazyEnablePeerAccess),
                     cudaErrorDeviceUninitialized);
}

/* -- what is as unkind as CUDA may be: each but the first by a switch -- */

/* CUDA_ERROR_ILLEGAL_ADDRESS: any further CUDA work will return the same error. */
static void a_sticky_error_is_the_drivers_as_well(void **state) {
    cudaMemPool_t pool = (cudaMemPool_t)(void *)&fake.device[0];
    uint64_t value;
    void *context;
    size_t bytes;
    int n;
    (void)state;
    make_before();
    assert_int_equal(fake_cuCtxGetCurrent(&context), 0);
    fake.sticky = cudaErrorIllegalAddress;
    assert_int_equal(cudaStreamSynchronize(before.stream), cudaErrorIllegalAddress);
    assert_int_equal(fake_cuEventQuery(before.event), cudaErrorIllegalAddress);
    assert_int_equal(fake_cuEventRecord(before.event, before.stream), cudaErrorIllegalAddress);
    assert_int_equal(fake_cuMemGetInfo_v2(&bytes, &bytes), cudaErrorIllegalAddress);
    assert_int_equal(fake_cuMemPoolGetAttribute(pool, 5, &value), cudaErrorIllegalAddress);
    assert_int_equal(fake_cuStreamIsCapturing(before.stream, &n), cudaErrorIllegalAddress);
    assert_int_equal(fake_cuEventDestroy_v2(before.event), cudaErrorIllegalAddress);
    assert_int_equal(fake.events, 0);
    assert_int_equal(fake_cuDeviceGetCount(&n), 0); /* which is no work */
    assert_int_equal(fake_cuCtxPushCurrent_v2(context), 0);
    assert_int_equal(fake_cuCtxPopCurrent_v2(&context), 0);
}

static uint64_t reserved_by(cudaMemPool_t pool) {
    uint64_t bytes = 1;
    assert_cuda(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes));
    return bytes;
}

/* cuMemPoolTrimTo: the OS allocations may happen at different granularity from the user's; those
   that back outstanding allocations are not released; minBytesToKeep is reserved after it. */
static void a_pool_takes_chunks_and_gives_back_whole_ones(void **state) {
    cudaMemPool_t pool = pool_on(0);
    uint64_t keep = UINT64_MAX;
    void *small[3], *large = NULL;
    int i;
    (void)state;
    fake.pool_chunk = 2 * MIB;
    assert_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    for (i = 0; i < 3; i++) assert_cuda(cudaMallocFromPoolAsync(&small[i], MIB, pool, NULL));
    assert_int_equal(reserved_by(pool), 4 * MIB); /* of 3 that are used */
    assert_cuda(cudaMallocFromPoolAsync(&large, 5 * MIB, pool, NULL));
    assert_int_equal(reserved_by(pool), 10 * MIB);
    assert_cuda(cudaFreeAsync(small[0], NULL));
    assert_cuda(cudaFreeAsync(large, NULL));
    assert_cuda(cudaMemPoolTrimTo(pool, 5 * MIB)); /* the chunk of 6 would leave less */
    assert_int_equal(reserved_by(pool), 10 * MIB);
    assert_cuda(cudaMemPoolTrimTo(pool, 0));
    assert_int_equal(reserved_by(pool), 4 * MIB);
    assert_cuda(cudaFreeAsync(small[1], NULL));
    assert_cuda(cudaMemPoolTrimTo(pool, 0));
    assert_int_equal(reserved_by(pool), 2 * MIB);
    assert_cuda(cudaMemPoolDestroy(pool));
    assert_cuda(cudaFreeAsync(small[2], NULL));
    assert_int_equal(fake_live(), 0);
}

/* cuMemPoolTrimTo: what was freed counts as outstanding until its completion was observed. */
static void a_free_that_is_not_done_keeps_its_chunk(void **state) {
    cudaMemPool_t pool = pool_on(0);
    cudaStream_t stream = a_stream(cudaStreamNonBlocking);
    uint64_t keep = UINT64_MAX;
    void *ptr = NULL;
    (void)state;
    fake.pool_chunk = 2 * MIB;
    assert_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    assert_cuda(cudaMallocFromPoolAsync(&ptr, MIB, pool, stream));
    fake_stream_work(stream);
    assert_cuda(cudaFreeAsync(ptr, stream));
    assert_cuda(cudaMemPoolTrimTo(pool, 0));
    assert_int_equal(reserved_by(pool), 2 * MIB);
    assert_cuda(cudaStreamSynchronize(stream));
    assert_cuda(cudaMemPoolTrimTo(pool, 0));
    assert_int_equal(reserved_by(pool), 0);
}

/* cudaFree: no implicit synchronization for what is a pool's; for all other pointers it may. */
static void a_free_waits_for_the_device_unless_it_is_a_pools(void **state) {
    void *plain = NULL, *pooled = NULL;
    cudaStream_t stream = a_stream(cudaStreamNonBlocking);
    (void)state;
    fake.free_waits = 1;
    assert_cuda(cudaMalloc(&plain, 64));
    assert_cuda(cudaMallocAsync(&pooled, 64, stream));
    fake_stream_work(stream);
    assert_cuda(cudaFree(pooled));
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    assert_cuda(cudaFree(plain));
    assert_cuda(cudaStreamQuery(stream));
}

/* Programming Guide, "Asynchronous Concurrent Execution": launches go to a queue. None of it says
   how long one is, nor what a call does when it is full; drivers wait. */
static void a_call_waits_for_a_full_stream_to_do_something(void **state) {
    int i, n = 0;
    (void)state;
    make_before();
    fake.queue_length = 2;
    for (i = 0; i < 4; i++) assert_cuda(cudaLaunchHostFunc(before.stream, counts_up, &n));
    assert_int_equal(n, 2);
    assert_int_equal(fake_cuEventRecord(before.event, before.stream), 0);
    assert_int_equal(n, 3);
    assert_int_equal(fake.queue_waits, 3);
    assert_int_equal(cudaStreamQuery(before.stream), cudaErrorNotReady); /* a question waits not */
    assert_cuda(cudaStreamSynchronize(before.stream));
    assert_int_equal(n, 4);
}

/* Handles of what is destroyed, given to the driver: CUDA documents that as undefined
   (cuCtxDestroy, cuStreamGetCtx) or not at all (cuMemPoolDestroy, cuEventDestroy). */
static struct {
    cudaMemPool_t pool;
    cudaStream_t stream;
    cudaEvent_t event;
    void *context;
} gone;

static void make_gone(void) {
    cudaEvent_t event;
    gone.pool = pool_on(0);
    gone.stream = a_stream(cudaStreamNonBlocking);
    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    gone.event = event;
    assert_int_equal(fake_cuInit(0), 0);
    assert_int_equal(fake_cuCtxCreate(&gone.context, 0, 0), 0);
    assert_int_equal(fake_cuCtxDestroy_v2(gone.context), 0);
    assert_cuda(cudaMemPoolDestroy(gone.pool));
    assert_cuda(cudaStreamDestroy(gone.stream));
    assert_cuda(cudaEventDestroy(gone.event));
}

static int use_gone(int kind) {
    int n = 0;
    uint64_t value = 0;
    switch (kind) {
    case FAKE_POOL: return fake_cuMemPoolGetAttribute(gone.pool, 5, &value);
    case FAKE_STREAM: return fake_cuStreamIsCapturing(gone.stream, &n);
    case FAKE_EVENT: return fake_cuEventQuery(gone.event);
    default: return fake_cuCtxPushCurrent_v2(gone.context);
    }
}

static void dead_handles_are_counted_and_refused(void **state) {
    int kind;
    (void)state;
    make_gone();
    for (kind = 0; kind < FAKE_KINDS; kind++) {
        assert_int_equal(fake.dead[kind], 0);
        assert_int_not_equal(use_gone(kind), 0);
        assert_int_equal(fake.dead[kind], 1);
    }
    assert_int_equal(fake_depth(), 0);
}

static void dead_handles_answer_rubbish_if_told_to(void **state) {
    uint64_t reserved = 0;
    void *context = NULL;
    int capturing = 0;
    (void)state;
    make_gone();
    fake.dead_handles = FAKE_DEAD_RUBBISH;
    assert_int_equal(fake_cuMemPoolGetAttribute(gone.pool, 5, &reserved), 0);
    assert_int_equal(reserved, UINT64_C(0x5a5a5a5a5a5a5a5a));
    assert_int_equal(fake_cuMemPoolTrimTo(gone.pool, 0), 0);
    assert_int_equal(fake.device[0].trims, 0);
    assert_int_equal(fake_cuStreamIsCapturing(gone.stream, &capturing), 0);
    assert_int_equal(capturing, 0x5a);
    assert_int_equal(fake_cuStreamGetCtx(gone.stream, &context), 0);
    assert_ptr_equal(context, gone.stream);
    assert_int_equal(fake_cuEventQuery(gone.event), 0);
    assert_int_equal(fake_cuCtxPushCurrent_v2(gone.context), 0);
    assert_int_equal(fake_cuEventCreate(&gone.event, 0), cudaErrorContextIsDestroyed);
    assert_int_equal(fake_cuCtxPopCurrent_v2(&context), 0);
}

static void dead_handles_crash_if_told_to(void **state) {
    int kind;
    (void)state;
    make_gone();
    fake.dead_handles = FAKE_DEAD_CRASHES;
    for (kind = 0; kind < FAKE_KINDS; kind++) {
        int status = 0;
        pid_t child = fork();
        if (!child) {
            fake_is_no_child();
            signal(SIGSEGV, SIG_DFL);
            (void)use_gone(kind);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
}

/* cuCtxCreate: the context is current to the calling thread. cuCtxDestroy: with it goes what was
   made in it; if it is current to the caller it is popped. cuEventRecord: event and stream must be
   from the same context. */
static void a_created_context_has_what_is_made_in_it(void **state) {
    void *context = NULL, *of = NULL, *ptr = NULL;
    cudaStream_t stream = NULL;
    int device = -1;
    (void)state;
    make_before();
    assert_int_equal(fake_cuCtxCreate(&context, 0, 1), 0);
    assert_int_equal(fake_cuCtxGetDevice(&device), 0);
    assert_int_equal(device, 1);
    assert_int_equal(fake.device[1].contexts, 0); /* it is not the primary one */
    assert_int_equal(fake_cuStreamCreate(&stream, cudaStreamNonBlocking), 0);
    assert_cuda(cudaMalloc(&ptr, MIB));
    assert_int_equal(fake.device[1].contexts, 0);
    assert_int_equal(fake_cuStreamGetCtx(stream, &of), 0);
    assert_ptr_equal(of, context);
    assert_int_equal(fake_cuStreamGetCtx(cudaStreamLegacy, &of), 0); /* of the thread's context */
    assert_ptr_equal(of, context);
    assert_int_equal(fake_cuEventRecord(before.event, stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(fake.device[1].plain, MIB);
    assert_int_equal(fake_cuCtxDestroy_v2(context), 0);
    assert_int_equal(fake_depth(), 0);
    assert_int_equal(fake.device[1].plain, 0);
    assert_int_equal(fake_cuStreamGetCtx(stream, &of), cudaErrorInvalidResourceHandle);
    assert_cuda(cudaFree(before.plain)); /* the primary context is as it was */
}

/* cuCtxDestroy: current to other threads it remains so, and they get
   CUDA_ERROR_CONTEXT_IS_DESTROYED. */
static void *destroys(void *user) {
    return (void *)(uintptr_t)fake_cuCtxDestroy_v2(user);
}

static void a_context_that_another_thread_destroys_remains_current(void **state) {
    void *context = NULL, *r = NULL;
    cudaEvent_t event;
    pthread_t thread;
    (void)state;
    assert_int_equal(fake_cuInit(0), 0);
    assert_int_equal(fake_cuCtxCreate(&context, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, destroys, context), 0);
    pthread_join(thread, &r);
    assert_null(r);
    assert_int_equal(fake_cuEventCreate(&event, 0), cudaErrorContextIsDestroyed);
    assert_int_equal(fake_cuCtxPopCurrent_v2(&r), 0);
    assert_ptr_equal(r, context);
}

/* cuStreamGetCtx: what cuCtxFromGreenCtx returns. cuStreamGetCtx_v2: the primary context and the
   green one; of another stream NULL. cuGreenCtxCreate retains the primary context. */
static void a_stream_of_a_green_context_says_so(void **state) {
    void *green = NULL, *context = NULL, *of = NULL, *second = NULL, *primary = NULL;
    cudaStream_t stream = NULL;
    (void)state;
    assert_int_equal(fake_cuInit(0), 0);
    assert_int_equal(fake_cuGreenCtxCreate(&green, NULL, 1, 0), cudaErrorInvalidValue);
    assert_int_equal(fake_cuGreenCtxCreate(&green, NULL, 1, 1), 0);
    assert_int_equal(fake.device[1].contexts, 1);
    assert_int_equal(fake_cuCtxFromGreenCtx(&context, green), 0);
    assert_int_equal(fake_cuGreenCtxStreamCreate(&stream, green, 0, 0), cudaErrorInvalidValue);
    assert_int_equal(fake_cuGreenCtxStreamCreate(&stream, green, cudaStreamNonBlocking, 0), 0);
    assert_int_equal(fake_cuStreamGetCtx(stream, &of), 0);
    assert_ptr_equal(of, context);
    assert_int_equal(fake_cuDevicePrimaryCtxRetain(&primary, 1), 0);
    assert_ptr_not_equal(primary, context);
    assert_int_equal(fake_cuStreamGetCtx_v2(stream, &of, &second), 0);
    assert_ptr_equal(of, primary);
    assert_ptr_equal(second, green);
    assert_cuda(cudaSetDevice(1));
    assert_int_equal(fake_cuStreamGetCtx_v2(NULL, &of, &second), 0);
    assert_ptr_equal(of, primary);
    assert_null(second);
    assert_int_equal(fake_cuDevicePrimaryCtxRelease_v2(1), 0);
    assert_int_equal(fake_cuGreenCtxDestroy(green), 0);
    assert_int_equal(fake.device[1].retained, 0);
}

/* cuGreenCtxDestroy: it destroys no stream; calls with one return
   CUDA_ERROR_CONTEXT_IS_DESTROYED. */
static void streams_outlive_their_green_context_to_no_use(void **state) {
    void *green = NULL, *of = NULL;
    cudaStream_t stream = NULL;
    (void)state;
    assert_cuda(cudaSetDevice(0));
    assert_int_equal(fake_cuGreenCtxCreate(&green, NULL, 0, 1), 0);
    assert_int_equal(fake_cuGreenCtxStreamCreate(&stream, green, cudaStreamNonBlocking, 0), 0);
    assert_int_equal(fake_cuGreenCtxDestroy(green), 0);
    assert_int_equal(fake_cuStreamGetCtx(stream, &of), cudaErrorContextIsDestroyed);
    assert_int_equal(cudaStreamQuery(stream), cudaErrorContextIsDestroyed);
    assert_int_equal(cudaStreamDestroy(stream), cudaErrorContextIsDestroyed);
}

static void *pushes(void *user) {
    void *context;
    (void)fake_cuCtxPushCurrent_v2(user);
    (void)fake_cuCtxPopCurrent_v2(&context);
    return NULL;
}

/* cuGreenCtxCreate: a green context can be current to only one thread at a time. */
static void a_green_context_on_two_threads_is_counted(void **state) {
    void *green = NULL, *context = NULL;
    pthread_t thread;
    int i;
    (void)state;
    assert_int_equal(fake_cuInit(0), 0);
    assert_int_equal(fake_cuGreenCtxCreate(&green, NULL, 0, 1), 0);
    assert_int_equal(fake_cuCtxFromGreenCtx(&context, green), 0);
    for (i = 0; i < 2; i++) {
        if (i) assert_int_equal(fake_cuCtxPushCurrent_v2(context), 0);
        assert_int_equal(pthread_create(&thread, NULL, pushes, context), 0);
        pthread_join(thread, NULL);
        assert_int_equal(fake.green_shared, i);
    }
    assert_int_equal(fake_cuCtxPopCurrent_v2(&context), 0);
}

/* CUDA_ERROR_DEINITIALIZED, cudaErrorCudartUnloading: the driver is in the process of shutting
   down. Exit handlers run in the reverse order of their registration: those from before cuInit find
   it so. */
static void asks_at_exit(void) {
    int n = 0;
    if (fake_cuDeviceGetCount(&n) != cudaErrorCudartUnloading) _exit(3);
    if (cudaGetDeviceCount(&n) != cudaErrorCudartUnloading) _exit(4);
    _exit(7);
}
static void asks_while_it_lives(void) {
    int n = 0;
    if (fake_cuDeviceGetCount(&n)) _exit(5);
}

static void the_driver_ends_with_the_process_and_calls_say_so(void **state) {
    int status = 0;
    pid_t child;
    (void)state;
    fflush(NULL);
    child = fork();
    if (!child) {
        fake_is_no_child();
        fake.ends_at_exit = 1;
        if (atexit(asks_at_exit) || fake_cuInit(0) || atexit(asks_while_it_lives)) _exit(6);
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

/* cuThreadExchangeStreamCaptureMode prohibits potentially unsafe calls; that Retain is one of them
   is nowhere said, nor that it is none. */
static void a_capture_may_forbid_to_retain_a_context(void **state) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaStream_t stream;
    void *context = NULL;
    (void)state;
    fake.retain_unsafe = 1;
    stream = captured(cudaStreamCaptureModeGlobal);
    assert_int_equal(fake_cuDevicePrimaryCtxRetain(&context, 0), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(fake.retains, 0);
    assert_lost(stream);
    stream = captured(cudaStreamCaptureModeGlobal);
    assert_cuda(cudaThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(fake_cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(fake_cuDevicePrimaryCtxRelease_v2(0), 0);
    assert_whole(stream);
}

/* nvmlDeviceGetComputeRunningProcesses: in MIG mode only for a caller with the privileges; else
   NVML_ERROR_NO_PERMISSION. Of no instance: 0xFFFFFFFF. nvmlDeviceGetMemoryInfo in MIG mode: of the
   whole device. */
static void nvml_has_the_whole_device_and_other_numbers_of_processes(void **state) {
    struct {
        unsigned pid;
        unsigned long long bytes;
        unsigned gpu, compute;
    } list[2];
    unsigned long long info[3];
    unsigned n = 2, on = 0, pending = 0;
    fake_device *d = &fake.device[0];
    size_t unused, total;
    void *device = NULL;
    (void)state;
    d->mig = 1;
    d->nvml_total = UINT64_C(8) * FAKE_GIB;
    d->nvml_own = 5 * MIB;
    d->nvml_offset = 1000;
    assert_int_equal(fake_nvml_init(), 0);
    assert_int_equal(fake_nvml_by_pci(d->pci, &device), 0);
    assert_int_equal(fake_nvml_mig(device, &on, &pending), 0);
    assert_int_equal(on, 1);
    assert_int_equal(fake_nvml_memory(device, info), 0);
    assert_cuda(cudaMemGetInfo(&unused, &total));
    assert_int_equal(info[0], 8 * (unsigned long long)total);
    assert_int_equal(fake_nvml_processes(device, &n, list), 0);
    assert_int_equal(n, 1);
    assert_int_equal(list[0].pid, getpid() + 1000);
    assert_int_equal(list[0].bytes, 5 * MIB);
    assert_int_equal(list[0].gpu, ~0u);
    d->nvml_denied = 1;
    n = 2;
    assert_int_equal(fake_nvml_processes(device, &n, list), 4);
    assert_int_equal(fake_nvml_shutdown(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_FAKE(calls_of_the_driver_are_counted_apart),
        TEST_FAKE(contexts_are_counted_by_device),
        TEST_FAKE(a_thread_that_sets_the_device_it_was_born_with_makes_a_context),
        TEST_FAKE(waits_for_a_context_and_trims_are_counted),
        TEST_FAKE(a_global_capture_forbids_unsafe_calls_and_is_lost_by_one),
        TEST_FAKE(a_global_capture_forbids_them_to_other_threads),
        TEST_FAKE(a_capture_of_a_thread_forbids_them_to_that_one_alone),
        TEST_FAKE(a_relaxed_capture_forbids_none_of_them),
        TEST_FAKE(nor_does_any_to_a_relaxed_thread),
        TEST_FAKE(a_captured_stream_is_not_asked_nor_waited_for),
        TEST_FAKE(nor_is_the_device_or_context_that_has_it),
        TEST_FAKE(an_event_of_a_capture_is_not_asked_nor_waited_for),
        TEST_FAKE(memory_from_before_is_not_freed_on_a_captured_stream),
        TEST_FAKE(a_lost_capture_takes_no_more_work),
        TEST_FAKE(the_legacy_stream_is_of_no_use_while_a_blocking_one_is_captured),
        TEST_FAKE(to_ask_it_whether_it_is_captured_is_an_error_that_ends_none),
        TEST_FAKE(an_event_from_outside_does_not_come_into_a_capture),
        TEST_FAKE(an_event_of_a_capture_that_is_over_orders_nothing),
        TEST_FAKE(a_stream_that_waits_for_a_capture_is_in_it_until_it_is_joined),
        TEST_FAKE(two_captures_do_not_become_one),
        TEST_FAKE(a_capture_ends_on_the_thread_it_began_on_unless_it_is_relaxed),
        TEST_FAKE(a_capture_begins_on_no_legacy_stream_and_not_twice),
        TEST_FAKE(memory_of_a_graph_is_freed_after_a_launch_and_not_before),
        TEST_FAKE(a_graph_that_frees_on_launch_is_launched_again),
        TEST_FAKE(a_graph_that_finds_no_memory_is_not_launched),
        TEST_FAKE(a_host_function_makes_no_call_of_cuda),
        TEST_FAKE(nor_need_it_be_refused_one),
        TEST_FAKE(a_wait_for_an_event_runs_what_came_before_it_and_no_more),
        TEST_FAKE(the_driver_works_on_no_device_without_a_context),
        TEST_FAKE(a_retained_context_is_gone_with_its_last_release),
        TEST_FAKE(a_context_takes_memory_of_its_device),
        TEST_FAKE(a_reset_takes_streams_events_and_memory_but_not_that_of_pools),
        cmocka_unit_test(names_that_the_linker_did_not_redirect_are_counted),
        TEST_FAKE(a_forked_child_has_no_driver),
        TEST_FAKE(allocations_need_a_place_for_the_pointer),
        TEST_FAKE(a_free_takes_the_base_of_what_is_live_and_of_its_kind),
        TEST_FAKE(handles_of_what_is_destroyed_are_refused),
        TEST_FAKE(an_event_is_recorded_on_a_stream_of_its_own_device),
        TEST_FAKE(time_between_events_needs_both_recorded_and_timed),
        TEST_FAKE(a_stream_that_waits_for_an_event_is_done_after_it),
        TEST_FAKE(addresses_that_were_freed_come_again_at_once),
        TEST_FAKE(a_pool_reuses_memory_of_a_busy_stream_only_as_it_may),
        TEST_FAKE(memory_is_out_at_the_devices_total),
        TEST_FAKE(arrays_are_memory_of_their_device),
        TEST_FAKE(a_pool_gives_all_back_at_a_wait_until_it_is_told_to_keep),
        TEST_FAKE(attributes_of_a_pool_have_their_defaults_and_limits),
        TEST_FAKE(a_destroyed_pool_lives_until_what_is_out_of_it_is_freed),
        TEST_FAKE(a_pool_is_of_one_device),
        TEST_FAKE(a_pool_is_opened_to_the_devices_that_reach_it),
        TEST_FAKE(devices_reach_each_other_where_they_can_and_once),
        TEST_FAKE(memory_of_another_process_is_opened_and_closed_as_often),
        TEST_FAKE(a_handle_is_of_cudamalloc_and_opened_by_others),
        TEST_FAKE(a_sticky_error_is_the_drivers_as_well),
        TEST_FAKE(a_pool_takes_chunks_and_gives_back_whole_ones),
        TEST_FAKE(a_free_that_is_not_done_keeps_its_chunk),
        TEST_FAKE(a_free_waits_for_the_device_unless_it_is_a_pools),
        TEST_FAKE(a_call_waits_for_a_full_stream_to_do_something),
        TEST_FAKE(dead_handles_are_counted_and_refused),
        TEST_FAKE(dead_handles_answer_rubbish_if_told_to),
        TEST_FAKE(dead_handles_crash_if_told_to),
        TEST_FAKE(a_created_context_has_what_is_made_in_it),
        TEST_FAKE(a_context_that_another_thread_destroys_remains_current),
        TEST_FAKE(a_stream_of_a_green_context_says_so),
        TEST_FAKE(streams_outlive_their_green_context_to_no_use),
        TEST_FAKE(a_green_context_on_two_threads_is_counted),
        TEST_FAKE(the_driver_ends_with_the_process_and_calls_say_so),
        TEST_FAKE(a_capture_may_forbid_to_retain_a_context),
        TEST_FAKE(nvml_has_the_whole_device_and_other_numbers_of_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
