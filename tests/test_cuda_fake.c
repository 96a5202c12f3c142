/* The fake runtime itself: what it counts, and that it refuses what CUDA refuses. One test a
   refusal. What CUDA says is cited by the name of the function in its header. */
#include "support_cuda.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_FAKE(calls_of_the_driver_are_counted_apart),
        TEST_FAKE(contexts_are_counted_by_device),
        TEST_FAKE(a_thread_that_sets_the_device_it_was_born_with_makes_a_context),
        TEST_FAKE(waits_for_a_context_and_trims_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
