/* Pools beside the current one, the stream of a block, the context and the other holders of
   a device, and a device that is reset. */
#include "support_cuda.h"

static struct cudaMemPoolProps props_of(int device) {
    struct cudaMemPoolProps props;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = device;
    return props;
}
static cudaMemPool_t made(memlord *lord, int device) {
    struct cudaMemPoolProps props = props_of(device);
    cudaMemPool_t pool = NULL;
    assert_cuda(memlord_cuda_pool_create(lord, &pool, &props, NULL));
    return pool;
}

static void keep_all(cudaMemPool_t pool) {
    uint64_t all_of_it = UINT64_MAX;
    assert_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all_of_it));
}

/* Frees a block of `bytes` that the pool then keeps. */
static void leave_cached(memlord *lord, cudaMemPool_t pool, size_t bytes) {
    void *ptr;
    keep_all(pool);
    assert_cuda(memlord_cuda_malloc_from_pool_async(lord, &ptr, bytes, pool, NULL, NULL));
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    assert_cuda(memlord_cuda_stream_synchronize(lord, NULL, NULL));
}

static memlord_cuda_pool pools_of(memlord *lord, int device) {
    memlord_cuda_pool pool;
    assert_ok(memlord_cuda_pool_get(lord, device, &pool));
    return pool;
}

/* -- pools -- */

static void a_pool_that_was_made_is_reserved_and_cached(void **state) {
    memlord *lord = test_lord(state);
    cudaMemPool_t pool = made(lord, 0);
    leave_cached(lord, pool, 4 * MIB);
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 4 * MIB);
    assert_int_equal(stats_of(lord, cuda(0)).cached, 4 * MIB);
    assert_int_equal(pools_of(lord, 0).reserved, 4 * MIB);
    assert_int_equal(pools_of(lord, 0).pools, 2);
    assert_cuda(memlord_cuda_pool_destroy(lord, pool, NULL));
    assert_int_equal(pools_of(lord, 0).pools, 1);
}

/* A library may destroy its own pool at any time: to ask it then is undefined. */
static void a_pool_made_elsewhere_is_not_asked_after_its_end(void **state) {
    memlord *lord = test_lord(state);
    cudaMemPool_t pool;
    struct cudaMemPoolProps props = props_of(0);
    uint64_t asked, trims;
    void *ptr;
    assert_cuda(cudaMemPoolCreate(&pool, &props));
    assert_cuda(memlord_cuda_malloc_from_pool_async(lord, &ptr, MIB, pool, NULL, NULL));
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    assert_cuda(cudaStreamSynchronize(NULL));
    assert_int_equal(pools_of(lord, 0).pools, 1);
    assert_cuda(cudaMemPoolDestroy(pool));
    asked = fake_count("cuMemPoolGetAttribute"), trims = fake_count("cuMemPoolTrimTo");
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_int_equal(fake_count("cuMemPoolGetAttribute") - asked, 4 + 4 * 3); /* of the default one */
    assert_int_equal(fake_count("cuMemPoolTrimTo") - trims, 1);
}

static void a_pool_made_elsewhere_is_listed_once_it_is_set(void **state) {
    memlord *lord = test_lord(state);
    cudaMemPool_t pool, first;
    struct cudaMemPoolProps props = props_of(0);
    assert_cuda(cudaMemPoolCreate(&pool, &props));
    assert_cuda(cudaDeviceGetDefaultMemPool(&first, 0));
    assert_cuda(memlord_cuda_device_set_pool(lord, 0, pool, NULL));
    assert_cuda(memlord_cuda_device_set_pool(lord, 0, first, NULL));
    leave_cached(lord, pool, MIB);
    assert_int_equal(pools_of(lord, 0).reserved, MIB);
    assert_cuda(memlord_cuda_pool_destroy(lord, pool, NULL));
    assert_int_equal(pools_of(lord, 0).pools, 1);
}

static void a_null_ledger_lists_no_pool(void **state) {
    memlord *lord = test_lord(state);
    cudaMemPool_t pool = made(NULL, 0), first;
    uint64_t reclaimed = 1;
    leave_cached(lord, pool, MIB);
    assert_cuda(cudaDeviceGetDefaultMemPool(&first, 0));
    assert_cuda(memlord_cuda_device_set_pool(NULL, 0, pool, NULL));
    assert_cuda(memlord_cuda_device_set_pool(NULL, 0, first, NULL));
    assert_int_equal(pools_of(lord, 0).pools, 1);
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, &reclaimed));
    assert_int_equal(reclaimed, 0);
    assert_cuda(memlord_cuda_pool_destroy(NULL, pool, NULL));
}

static void a_call_that_fails_leaves_the_list_of_pools_as_it_was(void **state) {
    memlord *lord = test_lord(state);
    struct cudaMemPoolProps props = props_of(0);
    cudaMemPool_t other = made(NULL, 0), pool = NULL;
    fake_activate(0);
    fake.fail_name = "cudaMemPoolCreate";
    fake.fail_times = 1;
    assert_int_equal(memlord_cuda_pool_create(lord, &pool, &props, NULL), cudaErrorUnknown);
    fake.fail_name = "cudaDeviceSetMemPool";
    fake.fail_times = 1;
    assert_int_equal(memlord_cuda_device_set_pool(lord, 0, other, NULL), cudaErrorUnknown);
    assert_int_equal(pools_of(lord, 0).pools, 1);
    pool = made(lord, 0);
    assert_int_equal(pools_of(lord, 0).pools, 2);
    fake.fail_name = "cudaMemPoolDestroy";
    fake.fail_times = 2;
    assert_int_equal(memlord_cuda_pool_destroy(lord, pool, NULL), cudaErrorUnknown);
    assert_int_equal(memlord_cuda_pool_destroy(lord, other, NULL), cudaErrorUnknown);
    assert_int_equal(memlord_cuda_pool_destroy(lord, NULL, NULL), cudaErrorInvalidValue);
    assert_int_equal(pools_of(lord, 0).pools, 2);
    assert_cuda(memlord_cuda_pool_destroy(lord, pool, NULL));
    assert_cuda(memlord_cuda_pool_destroy(lord, other, NULL));
    assert_int_equal(pools_of(lord, 0).pools, 1);
    (void)cudaGetLastError();
}

/* The host has set them itself meanwhile. */
static void reserved_bytes_do_not_fall_below_zero(void **state) {
    memlord *lord = test_lord(state);
    void *ptr;
    leave_cached(lord, made(lord, 0), MIB);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 4 * MIB, NULL));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 5 * MIB);
    assert_ok(memlord_pool_set(lord, cuda(0), MIB, UINT64_MAX));
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(stats_of(lord, cuda(0)).reserved, MIB);
}

static void the_pool_before_the_current_one_stays_in_sight(void **state) {
    memlord *lord = test_lord(state);
    cudaMemPool_t first, pool = made(lord, 0);
    void *ptr;
    assert_cuda(cudaDeviceGetDefaultMemPool(&first, 0));
    leave_cached(lord, first, 2 * MIB);
    assert_cuda(memlord_cuda_device_set_pool(lord, 0, pool, NULL));
    keep_all(pool);
    assert_cuda(memlord_cuda_malloc_async(lord, &ptr, MIB, NULL, NULL));
    assert_int_equal(pools_of(lord, 0).reserved, 3 * MIB);
    assert_int_equal(pools_of(lord, 0).used, MIB);
    assert_int_equal(pools_of(lord, 0).pools, 2);
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    assert_cuda(memlord_cuda_device_set_pool(lord, 0, first, NULL));
    assert_cuda(memlord_cuda_pool_destroy(lord, pool, NULL));
}

static void a_pool_of_another_device_counts_there(void **state) {
    memlord *lord = test_lord(state);
    cudaMemPool_t pool = made(lord, 1);
    void *ptr;
    assert_cuda(memlord_cuda_malloc_from_pool_async(lord, &ptr, MIB, pool, NULL, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(1)), MIB);
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(pools_of(lord, 0).reserved, 0);
    fake_activate(1);
    assert_int_equal(pools_of(lord, 1).reserved, MIB);
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    assert_cuda(memlord_cuda_pool_destroy(lord, pool, NULL));
}

static void a_collection_trims_every_pool(void **state) {
    memlord *lord = test_lord(state);
    cudaMemPool_t first, pool = made(lord, 0);
    assert_cuda(cudaDeviceGetDefaultMemPool(&first, 0));
    leave_cached(lord, first, 2 * MIB);
    leave_cached(lord, pool, 3 * MIB);
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_int_equal(pools_of(lord, 0).reserved, 0);
    assert_int_equal(stats_of(lord, cuda(0)).gc_reclaimed, 5 * MIB);
    assert_cuda(memlord_cuda_pool_destroy(lord, pool, NULL));
}

static void what_is_kept_is_kept_once(void **state) {
    memlord *lord = test_lord(state);
    memlord_cuda_desc desc = {0, 3 * MIB, NULL, "libnvml-v2.so"};
    cudaMemPool_t first, pool = made(lord, 0);
    assert_ok(memlord_cuda_attach(lord, &desc));
    assert_cuda(cudaDeviceGetDefaultMemPool(&first, 0));
    leave_cached(lord, first, 2 * MIB);
    leave_cached(lord, pool, 3 * MIB);
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_int_equal(pools_of(lord, 0).reserved, 3 * MIB);
    assert_cuda(memlord_cuda_pool_destroy(lord, pool, NULL));
}

static void a_pool_destroyed_with_blocks_in_it_is_not_asked_again(void **state) {
    memlord *lord = test_lord(state);
    cudaMemPool_t pool = made(lord, 0);
    void *ptr;
    assert_cuda(memlord_cuda_malloc_from_pool_async(lord, &ptr, MIB, pool, NULL, NULL));
    assert_cuda(memlord_cuda_pool_destroy(lord, pool, NULL));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(pools_of(lord, 0).pools, 1);
    assert_int_equal(memlord_allocated(lord, cuda(0)), MIB);
    assert_cuda(memlord_cuda_malloc_async(lord, &ptr, MIB, NULL, NULL));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 2 * MIB); /* it lives outside of pools */
    assert_int_equal(stats_of(lord, cuda(0)).cached, 0);
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
}

static void its_last_block_is_freed_as_any(void **state) {
    memlord *lord = test_lord(state);
    cudaMemPool_t pool = made(lord, 0);
    void *ptr;
    assert_cuda(memlord_cuda_malloc_from_pool_async(lord, &ptr, MIB, pool, NULL, NULL));
    assert_cuda(memlord_cuda_pool_destroy(lord, pool, NULL));
    assert_true_books(lord);
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_true_books(lord);
}

static void one_that_is_not_destroyed_stays_in_the_list(void **state) {
    memlord *lord = test_lord(state);
    cudaMemPool_t pool = made(lord, 0), first;
    leave_cached(lord, pool, MIB);
    fake.fail_name = "cudaMemPoolDestroy";
    fake.fail_times = 1;
    assert_int_equal(memlord_cuda_pool_destroy(lord, pool, NULL), cudaErrorUnknown);
    assert_int_equal(pools_of(lord, 0).reserved, MIB);
    assert_cuda(cudaDeviceGetDefaultMemPool(&first, 0));
    assert_int_equal(memlord_cuda_pool_destroy(lord, first, NULL), cudaErrorInvalidValue);
    assert_int_equal(pools_of(lord, 0).pools, 2);
    assert_cuda(memlord_cuda_pool_destroy(lord, pool, NULL));
    (void)cudaGetLastError();
}

static void pools_that_find_no_room_are_counted(void **state) {
    memlord *lord = test_lord(state);
    enum { MADE = 70 };
    cudaMemPool_t pool[MADE];
    uint64_t dropped, listed;
    int i;
    fake_activate(0);
    dropped = pools_of(lord, 0).pools_dropped;
    for (i = 0; i < MADE; i++) pool[i] = made(lord, 0);
    listed = pools_of(lord, 0).pools - 1; /* a default pool may be there from another test */
    assert_in_range(listed, 62, 64);
    assert_int_equal(pools_of(lord, 0).pools_dropped - dropped, MADE - listed);
    leave_cached(lord, pool[0], MIB);
    leave_cached(lord, pool[MADE - 1], MIB); /* not seen */
    assert_int_equal(pools_of(lord, 0).reserved, MIB);
    for (i = 0; i < MADE; i++) assert_cuda(memlord_cuda_pool_destroy(lord, pool[i], NULL));
    assert_int_equal(pools_of(lord, 0).pools, 1);
}

/* -- streams -- */

static uint64_t stream_of_block(memlord *lord, const void *ptr) {
    memlord_block_info block;
    assert_ok(memlord_block_find(lord, cuda(0), MEMLORD_KEY(ptr), &block));
    assert_string_equal(block.tag, "tensor");
    return block.stream;
}

static void a_block_has_its_stream_beside_its_tag(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    void *a, *b, *c;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_ok(memlord_tag_begin(lord, "tensor"));
    assert_cuda(memlord_cuda_malloc_async(lord, &a, 4096, stream, NULL));
    assert_cuda(memlord_cuda_malloc_async(lord, &b, 4096, NULL, NULL));
    assert_cuda(memlord_cuda_malloc(lord, &c, 4096, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(stream_of_block(lord, a), MEMLORD_KEY(stream));
    assert_int_equal(stream_of_block(lord, b), 0);
    assert_int_equal(stream_of_block(lord, c), 0);
    assert_cuda(memlord_cuda_free_async(lord, a, stream, NULL));
    assert_cuda(memlord_cuda_free_async(lord, b, NULL, NULL));
    assert_cuda(memlord_cuda_free(lord, c, NULL));
}

static void the_stream_that_the_host_says_comes_back(void **state) {
    memlord *lord = test_lord(state);
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_RETRY, 0, NULL, "libnvml-v2.so"};
    cudaStream_t stream;
    void *a, *b;
    assert_ok(memlord_cuda_attach(lord, &desc));
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_ok(memlord_tag_begin(lord, "tensor"));
    assert_int_equal(memlord_stream_set(lord, 77), 0);
    assert_cuda(memlord_cuda_malloc_async(lord, &a, 4096, stream, NULL));
    assert_cuda(memlord_cuda_malloc(lord, &b, 4096, NULL));
    assert_int_equal(stream_of_block(lord, a), MEMLORD_KEY(stream));
    assert_int_equal(stream_of_block(lord, b), 77);
    assert_int_equal(memlord_stream_set(lord, 0), 77);
    assert_ok(memlord_tag_end(lord));
    assert_cuda(memlord_cuda_free_async(lord, a, stream, NULL));
    assert_cuda(memlord_cuda_free(lord, b, NULL));
}

/* -- the context, and others -- */

static memlord_capacity sampled(memlord *lord, int device) {
    memlord_capacity now;
    assert_ok(memlord_capacity_sample(lord, cuda(device)));
    assert_ok(memlord_capacity_get(lord, cuda(device), &now));
    return now;
}

static void the_context_is_what_is_used_more_than_before(void **state) {
    memlord *lord = test_lord(state);
    void *ptr;
    fake.device[0].others = 10 * MIB;
    fake.device[0].context_bytes = 300 * MIB;
    assert_int_equal(sampled(lord, 0).context, 0);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 7 * MIB, NULL));
    assert_int_equal(sampled(lord, 0).context, 300 * MIB);
    fake.device[0].others = 50 * MIB; /* another process's: it is taken once */
    assert_int_equal(sampled(lord, 0).context, 300 * MIB);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
}

static void or_what_nvml_says_the_process_holds_beside_its_blocks(void **state) {
    memlord *lord = test_lord(state);
    void *ptr;
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 7 * MIB, NULL));
    fake.device[0].nvml_pid = (unsigned)getpid();
    fake.device[0].nvml_used = 107 * MIB;
    assert_int_equal(sampled(lord, 0).context, 100 * MIB);
    assert_int_equal(sampled(lord, 0).process, 107 * MIB);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
}

static void others_are_named_and_the_list_is_seldom_asked_for(void **state) {
    memlord *lord = test_lord(state);
    char text[1024];
    int i;
    fake.device[0].nvml_pid = 4711;
    fake.device[0].nvml_used = 200 * MIB;
    assert_int_equal(sampled(lord, 0).others[0].pid, 4711); /* we have no context there */
    assert_int_equal(sampled(lord, 0).others[0].bytes, 200 * MIB);
    assert_int_equal(sampled(lord, 0).others[1].pid, 0);
    (void)memlord_explain(lord, cuda(0), MIB, text, sizeof text);
    assert_non_null(strstr(text, "4711"));
    for (i = 0; i < 29; i++) (void)sampled(lord, 0);
    assert_int_equal(fake_count("nvmlDeviceGetComputeRunningProcesses_v3"), 2);
}

static void one_without_a_number_hides_no_other(void **state) {
    memlord *lord = test_lord(state);
    fake.device[0].nvml_unnamed = 900 * MIB;
    fake.device[0].nvml_pid = 4711;
    fake.device[0].nvml_used = 200 * MIB;
    assert_int_equal(sampled(lord, 0).others[0].pid, 4711);
    assert_int_equal(sampled(lord, 0).others[1].pid, 0);
}

static void a_thousand_processes_hide_none_either(void **state) {
    memlord *lord = test_lord(state);
    fake_activate(0);
    fake.device[0].nvml_crowd = 1000;
    fake.device[0].nvml_pid = (unsigned)getpid();
    fake.device[0].nvml_used = 200 * MIB;
    assert_int_equal(sampled(lord, 0).process, 200 * MIB);
    assert_int_equal(sampled(lord, 0).others[0].pid, 100000);
}

static void where_nvml_does_not_know_us_it_is_not_asked_for_long(void **state) {
    memlord *lord = test_lord(state);
    int i;
    fake_activate(0);
    fake.device[0].nvml_pid = 4711; /* it is us, by the number of the host */
    fake.device[0].nvml_used = 200 * MIB;
    for (i = 0; i < 400; i++) assert_int_equal(sampled(lord, 0).others[0].pid, 0);
    assert_int_equal(fake_count("nvmlDeviceGetComputeRunningProcesses_v3"), 8);
    assert_int_equal(sampled(lord, 0).process, 0);
}

/* -- a device that is reset -- */

static void a_reset_ends_what_the_device_had(void **state) {
    memlord *lord = test_lord(state);
    void *plain, *host, *kept, *there;
    assert_cuda(cudaSetDevice(1));
    assert_cuda(memlord_cuda_malloc(lord, &there, MIB, NULL));
    assert_cuda(cudaSetDevice(0));
    assert_cuda(memlord_cuda_malloc(lord, &plain, MIB, NULL));
    assert_cuda(memlord_cuda_malloc_host(lord, &host, 4096, NULL));
    assert_cuda(memlord_cuda_malloc_async(lord, &kept, 2 * MIB, NULL, NULL));
    assert_cuda(memlord_cuda_device_reset(lord, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 2 * MIB); /* CUDA keeps what is a pool's */
    assert_int_equal(memlord_allocated(lord, cuda(1)), MIB);
    assert_int_equal(memlord_allocated(lord, pinned()), 0);
    assert_true_books(lord);
    assert_int_equal(fake.events, 0);
    assert_cuda(memlord_cuda_free_async(lord, kept, NULL, NULL));
    assert_cuda(memlord_cuda_malloc(lord, &plain, MIB, NULL)); /* the device goes on */
    assert_cuda(memlord_cuda_free(lord, plain, NULL));
    assert_cuda(cudaSetDevice(1));
    assert_cuda(memlord_cuda_free(lord, there, NULL));
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

static void a_reset_ends_a_block_with_a_name_and_no_memory_of_another_device(void **state) {
    memlord *lord = test_lord(state);
    memlord_meta meta;
    void *plain, *host;
    memset(&meta, 0, sizeof meta);
    meta.name = "weights";
    assert_cuda(cudaSetDevice(1));
    assert_cuda(memlord_cuda_malloc_host(lord, &host, 4096, NULL));
    assert_cuda(cudaSetDevice(0));
    assert_cuda(memlord_cuda_malloc(lord, &plain, MIB, NULL));
    assert_ok(memlord_block_describe(lord, cuda(0), MEMLORD_KEY(plain), &meta));
    assert_cuda(memlord_cuda_device_reset(lord, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_allocated(lord, pinned()), 4096);
    assert_cuda(memlord_cuda_free_host(lord, host, NULL));
}

static void a_reset_leaves_page_locked_memory_whose_device_is_not_known(void **state) {
    memlord *lord = test_lord(state);
    void *plain, *host;
    assert_cuda(memlord_cuda_malloc(lord, &plain, MIB, NULL));
    assert_cuda(memlord_cuda_malloc_host(lord, &host, 4096, NULL));
    fake.fail_name = "cuPointerGetAttribute";
    fake.fail_times = -1;
    assert_cuda(memlord_cuda_device_reset(lord, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 0);
    assert_int_equal(memlord_allocated(lord, pinned()), 4096);
    assert_ok(memlord_free(lord, pinned(), MEMLORD_KEY(host), NULL));
}

static void a_reset_of_a_device_that_cannot_be_entered_is_the_hosts(void **state) {
    memlord *lord = test_lord(state);
    void *plain;
    assert_cuda(memlord_cuda_malloc(lord, &plain, MIB, NULL));
    fake.fail_name = "cuDevicePrimaryCtxRetain";
    fake.fail_times = 1;
    assert_cuda(memlord_cuda_device_reset(lord, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), MIB); /* nothing was looked at */
    assert_ok(memlord_free(lord, cuda(0), MEMLORD_KEY(plain), NULL));
}

static void a_reset_retires_what_was_pending(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    void *ptr, *used;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_cuda(memlord_cuda_malloc(lord, &ptr, MIB, NULL));
    assert_cuda(memlord_cuda_malloc(lord, &used, MIB, NULL));
    fake_stream_work(stream);
    assert_ok(memlord_cuda_record_use(lord, ptr, stream));
    assert_ok(memlord_cuda_record_use(lord, used, stream));
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), MIB);
    assert_cuda(memlord_cuda_device_reset(lord, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
    assert_int_equal(fake.events, 0);
    assert_int_equal(fake.dead_asked, 0);
}

/* A stream with work, on which the free of a block of 1 MiB pends. */
static cudaStream_t stream_with_a_free(memlord *lord) {
    cudaStream_t stream = NULL;
    void *ptr = NULL;
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_cuda(memlord_cuda_malloc(lord, &ptr, MIB, NULL));
    fake_stream_work(stream);
    assert_ok(memlord_cuda_record_use(lord, ptr, stream));
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    return stream;
}

static void a_reset_waits_for_a_stream_that_was_destroyed(void **state) {
    memlord *lord = test_lord(state);
    assert_cuda(memlord_cuda_stream_destroy(lord, stream_with_a_free(lord), NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), MIB);
    assert_cuda(memlord_cuda_device_reset(lord, NULL));
    assert_int_equal(memlord_pending(lord, cuda(0)), 0);
    (void)memlord_retire(lord, all());
    assert_int_equal(stats_of(lord, all()).fence_failures, 0);
    assert_int_equal(fake.dead[FAKE_EVENT], 0);
}

/* The reset is a library's, and the context after it has the same address. */
static void a_stream_that_was_destroyed_ends_with_its_context(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    assert_ok(memlord_alloc(lord, cuda(0), 64, 64, NULL));
    assert_cuda(memlord_cuda_stream_destroy(lord, stream_with_a_free(lord), NULL));
    assert_cuda(cudaDeviceReset());
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_ok(memlord_cuda_record_free(lord, (void *)64, stream, NULL)); /* finds the context */
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).fence_failures, 1);
    memlord_cuda_events_release();
    assert_int_equal(fake.dead[FAKE_EVENT], 0);
}

static void uses_on_streams_that_are_gone_ask_no_stream(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    void *ptr;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_cuda(memlord_cuda_malloc_async(lord, &ptr, MIB, NULL, NULL));
    assert_ok(memlord_cuda_record_use(lord, ptr, stream));
    assert_cuda(memlord_cuda_device_reset(lord, NULL));
    assert_int_equal(memlord_allocated(lord, all()), MIB);
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(fake.dead_asked, 0);
}

static void a_reset_keeps_physical_memory(void **state) {
    memlord *lord = test_lord(state);
    const int prop[8] = {1, 0, 1, 0, 0, 0, 0, 0};
    unsigned long long handle = 0;
    fake_activate(0);
    assert_int_equal(memlord_cuda_mem_create(lord, &handle, 2 * MIB, (const void *)prop, 0, NULL),
                     0);
    assert_cuda(memlord_cuda_device_reset(lord, NULL));
    assert_int_equal(memlord_allocated(lord, cuda(0)), 2 * MIB);
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
}

static void a_reset_that_is_not_wrapped_breaks_nothing(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    void *ptr, *next;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_cuda(memlord_cuda_malloc(lord, &ptr, MIB, NULL));
    assert_ok(memlord_cuda_record_use(lord, ptr, NULL));
    fake_stream_work(stream);
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_cuda(cudaDeviceReset()); /* a library's */
    assert_cuda(memlord_cuda_malloc(lord, &next, MIB, NULL));
    assert_cuda(memlord_cuda_free(lord, next, NULL));
    (void)memlord_retire(lord, all());
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_ok(memlord_verify(lord));
}

static void another_ledger_s_books_stay(void **state) {
    memlord *lord = test_lord(state), *other;
    void *mine, *theirs;
    assert_ok(memlord_create(NULL, &other));
    assert_ok(memlord_cuda_attach(other, NULL));
    assert_cuda(memlord_cuda_malloc(lord, &mine, MIB, NULL));
    assert_cuda(memlord_cuda_malloc(other, &theirs, 2 * MIB, NULL));
    assert_ok(memlord_cuda_record_use(other, theirs, NULL));
    assert_cuda(memlord_cuda_device_reset(lord, NULL));
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(memlord_allocated(other, all()), 2 * MIB);
    assert_ok(memlord_free(other, cuda(0), MEMLORD_KEY(theirs), NULL));
    (void)memlord_retire(other, all());
    assert_int_equal(memlord_allocated(other, all()), 0);
    assert_ok(memlord_cuda_detach(other));
    memlord_destroy(other);
}

static int sampling;

static void *sample_until_stopped(void *user) {
    memlord *lord = (memlord *)user;
    while (__atomic_load_n(&sampling, __ATOMIC_ACQUIRE)) {
        (void)memlord_capacity_sample(lord, cuda(0));
        (void)memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL);
    }
    return NULL;
}

static void a_reset_waits_for_samples_and_collections(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    int i;
    __atomic_store_n(&sampling, 1, __ATOMIC_RELEASE);
    assert_int_equal(pthread_create(&thread, NULL, sample_until_stopped, lord), 0);
    for (i = 0; i < 2000; i++) {
        assert_cuda(cudaSetDevice(0));
        assert_cuda(memlord_cuda_device_reset(lord, NULL));
    }
    __atomic_store_n(&sampling, 0, __ATOMIC_RELEASE);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(fake.device[0].resets_inside, 0);
    assert_int_equal(fake.device[0].contexts, 2000); /* none was made by a sample */
}

static void a_reset_without_a_ledger_is_the_runtime_s(void **state) {
    (void)state;
    assert_cuda(memlord_cuda_device_reset(NULL, NULL));
    assert_int_equal(fake_count("cudaDeviceReset"), 1);
    assert_int_equal(fake_count("cudaGetDevice"), 0);
}

/* -- two ledgers, and a load -- */

static int stop;

static void *load(void *user) {
    memlord *lord = (memlord *)user;
    cudaMemPool_t pool = made(lord, 0);
    void *a, *b;
    intptr_t bad = 0;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        bad |= memlord_cuda_malloc_from_pool_async(lord, &a, MIB, pool, NULL, NULL) != cudaSuccess;
        bad |= memlord_cuda_malloc(lord, &b, 4096, NULL) != cudaSuccess;
        (void)memlord_cuda_record_use(lord, b, NULL);
        (void)memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL);
        (void)memlord_capacity_sample(lord, cuda(0));
        bad |= memlord_cuda_free_async(lord, a, NULL, NULL) != cudaSuccess;
        bad |= memlord_cuda_free(lord, b, NULL) != cudaSuccess;
    }
    bad |= memlord_cuda_pool_destroy(lord, pool, NULL) != cudaSuccess;
    return (void *)bad;
}

static void ledgers_come_and_go_under_load(void **state) {
    memlord *lord = test_lord(state), *other;
    pthread_t threads[2];
    void *bad;
    int i;
    stop = 0;
    assert_ok(memlord_create(NULL, &other));
    assert_int_equal(pthread_create(&threads[0], NULL, load, lord), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, load, other), 0);
    for (i = 0; i < 100; i++) {
        assert_ok(memlord_cuda_attach(other, NULL));
        assert_ok(memlord_cuda_detach(lord));
        assert_ok(memlord_cuda_attach(lord, NULL));
        assert_ok(memlord_cuda_detach(other));
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], &bad), 0);
        assert_null(bad);
    }
    (void)memlord_retire(lord, all());
    (void)memlord_retire(other, all());
    assert_int_equal(memlord_allocated(lord, all()), 0);
    assert_int_equal(memlord_allocated(other, all()), 0);
    memlord_destroy(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_CUDA(a_pool_that_was_made_is_reserved_and_cached),
        TEST_CUDA(a_pool_made_elsewhere_is_not_asked_after_its_end),
        TEST_CUDA(a_pool_made_elsewhere_is_listed_once_it_is_set),
        TEST_CUDA(a_null_ledger_lists_no_pool),
        TEST_CUDA(a_call_that_fails_leaves_the_list_of_pools_as_it_was),
        TEST_CUDA(reserved_bytes_do_not_fall_below_zero),
        TEST_CUDA(the_pool_before_the_current_one_stays_in_sight),
        TEST_CUDA(a_pool_of_another_device_counts_there),
        TEST_CUDA(a_collection_trims_every_pool),
        TEST_CUDA(what_is_kept_is_kept_once),
        TEST_CUDA(a_pool_destroyed_with_blocks_in_it_is_not_asked_again),
        TEST_CUDA(its_last_block_is_freed_as_any),
        TEST_CUDA(one_that_is_not_destroyed_stays_in_the_list),
        TEST_CUDA(pools_that_find_no_room_are_counted),
        TEST_CUDA(a_block_has_its_stream_beside_its_tag),
        TEST_CUDA(the_stream_that_the_host_says_comes_back),
        TEST_CUDA(the_context_is_what_is_used_more_than_before),
        TEST_CUDA(or_what_nvml_says_the_process_holds_beside_its_blocks),
        TEST_CUDA(others_are_named_and_the_list_is_seldom_asked_for),
        TEST_CUDA(one_without_a_number_hides_no_other),
        TEST_CUDA(a_thousand_processes_hide_none_either),
        TEST_CUDA(where_nvml_does_not_know_us_it_is_not_asked_for_long),
        TEST_CUDA(a_reset_ends_what_the_device_had),
        TEST_CUDA(a_reset_ends_a_block_with_a_name_and_no_memory_of_another_device),
        TEST_CUDA(a_reset_leaves_page_locked_memory_whose_device_is_not_known),
        TEST_CUDA(a_reset_of_a_device_that_cannot_be_entered_is_the_hosts),
        TEST_CUDA(a_reset_retires_what_was_pending),
        TEST_CUDA(a_reset_waits_for_a_stream_that_was_destroyed),
        TEST_CUDA(a_stream_that_was_destroyed_ends_with_its_context),
        TEST_CUDA(uses_on_streams_that_are_gone_ask_no_stream),
        TEST_CUDA(a_reset_keeps_physical_memory),
        TEST_CUDA(a_reset_that_is_not_wrapped_breaks_nothing),
        TEST_CUDA(another_ledger_s_books_stay),
        TEST_CUDA(a_reset_waits_for_samples_and_collections),
        TEST_CUDA(a_reset_without_a_ledger_is_the_runtime_s),
        TEST_CUDA(ledgers_come_and_go_under_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
