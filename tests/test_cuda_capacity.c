/* What a ledger is told of its devices, and what asking leaves untouched. */
#include "support_cuda.h"

#include <dlfcn.h>
#include <unistd.h>

static memlord_capacity capacity_of(memlord *lord, int device) {
    memlord_capacity now;
    assert_ok(memlord_capacity_get(lord, cuda(device), &now));
    return now;
}

static void an_active_device_is_asked_of_the_driver(void **state) {
    memlord *lord = test_lord(state);
    memlord_capacity now;
    fake_activate(1);
    fake.device[1].others = 100 * MIB;
    assert_ok(memlord_capacity_sample(lord, cuda(1)));
    now = capacity_of(lord, 1);
    assert_int_equal(now.total, FAKE_GIB);
    assert_int_equal(now.used, 100 * MIB);
    assert_int_equal(now.process, 0);
}

static void an_untouched_device_is_asked_of_nvml_and_stays_untouched(void **state) {
    memlord *lord = test_lord(state);
    const uint64_t before = fake_count("nvmlDeviceGetMemoryInfo"); /* by attaching */
    fake.device[1].others = 300 * MIB;
    assert_ok(memlord_capacity_sample(lord, cuda(1)));
    assert_int_equal(capacity_of(lord, 1).total, FAKE_GIB + 16 * MIB);
    assert_int_equal(capacity_of(lord, 1).used, 316 * MIB); /* what NVML keeps included */
    assert_int_equal(fake.contexts, 0);
    assert_int_equal(fake_count("cuMemGetInfo_v2"), 0);
    assert_int_equal(fake_count("nvmlDeviceGetMemoryInfo") - before, 1);
}

static void nvml_finds_devices_by_their_pci_id(void **state) {
    memlord *lord = test_lord(state);
    int i;
    for (i = 0; i < DEVICES; i++) fake.device[i].others = (uint64_t)(i + 1) * 64 * MIB;
    for (i = 0; i < DEVICES; i++) {
        assert_ok(memlord_capacity_sample(lord, cuda(i)));
        assert_int_equal(capacity_of(lord, i).used, (uint64_t)(i + 1) * 64 * MIB + 16 * MIB);
    }
}

static void attach_with(memlord *lord, uint32_t flags, const char *nvml) {
    memlord_cuda_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.flags = flags;
    desc.nvml = nvml;
    assert_ok(memlord_cuda_attach(lord, &desc));
}

static void an_older_nvml_says_the_same(void **state) {
    memlord *lord = test_lord(state);
    uint64_t before;
    attach_with(lord, 0, "libnvml-v1.so");
    before = fake_count("nvmlDeviceGetMemoryInfo");
    fake.device[0].others = 300 * MIB;
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(capacity_of(lord, 0).used, 316 * MIB);
    assert_int_equal(fake_count("nvmlDeviceGetMemoryInfo") - before, 1);
}

static void without_nvml_an_untouched_device_is_unknown(void **state) {
    memlord *lord = test_lord(state);
    attach_with(lord, 0, "libabsent.so.1");
    assert_int_equal(memlord_capacity_sample(lord, cuda(0)), MEMLORD_E_UNKNOWN);
    attach_with(lord, 0, "libcuda.so.1"); /* it has no function of NVML */
    assert_int_equal(memlord_capacity_sample(lord, cuda(0)), MEMLORD_E_UNKNOWN);
    attach_with(lord, MEMLORD_CUDA_FLAG_NO_NVML, "libnvml-v2.so");
    assert_int_equal(memlord_capacity_sample(lord, cuda(0)), MEMLORD_E_UNKNOWN);
    assert_int_equal(fake.nvml_inits, 0);
    assert_int_equal(fake.contexts, 0);
    fake_activate(0);
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
}

static void an_nvml_that_cannot_start_is_not_kept_loaded(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_cuda_detach(lord));
    fake.fail_name = "nvmlInit_v2";
    fake.fail_times = -1;
    attach_with(lord, 0, "libnvml-v1.so");
    assert_int_equal(memlord_capacity_sample(lord, cuda(0)), MEMLORD_E_UNKNOWN);
    assert_null(dlopen("libnvml-v1.so", RTLD_NOW | RTLD_NOLOAD));
    fake.fail_times = 0;
}

static void a_device_that_nvml_does_not_know_is_unknown(void **state) {
    static const char *const names[] = {"cuDeviceGetPCIBusId", "nvmlDeviceGetHandleByPciBusId_v2",
                                        "nvmlDeviceGetMemoryInfo"};
    memlord *lord = test_lord(state);
    size_t i;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_ok(memlord_cuda_detach(lord));
        fake.fail_name = names[i];
        fake.fail_times = -1;
        attach_with(lord, 0, "libnvml-v2.so");
        assert_int_equal(memlord_capacity_sample(lord, cuda(0)), MEMLORD_E_UNKNOWN);
        fake.fail_times = 0;
    }
    assert_int_equal(fake.contexts, 0);
}

static void a_ledger_that_does_without_nvml_keeps_it_from_no_other(void **state) {
    memlord *lord = test_lord(state), *other;
    attach_with(lord, MEMLORD_CUDA_FLAG_NO_NVML, NULL);
    assert_ok(memlord_create(NULL, &other));
    attach_with(other, 0, "libnvml-v2.so");
    assert_ok(memlord_capacity_sample(other, cuda(0)));
    assert_int_equal(memlord_capacity_sample(lord, cuda(0)), MEMLORD_E_UNKNOWN);
    attach_with(lord, 0, "libnvml-v2.so");
    assert_ok(memlord_cuda_detach(other));
    assert_int_equal(fake.nvml_inits, 1); /* the other one has it yet */
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    attach_with(lord, MEMLORD_CUDA_FLAG_NO_NVML, NULL);
    assert_int_equal(fake.nvml_inits, 0);
    memlord_destroy(other);
}

static memlord *asked;
static int answered;
static pthread_t asks;

static void *ask_who_is_attached(void *user) {
    (void)user;
    (void)memlord_cuda_attached(asked);
    __atomic_store_n(&answered, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void slow_nvml(void) {
    int i;
    fake.on_nvml_init = NULL;
    assert_int_equal(pthread_create(&asks, NULL, ask_who_is_attached, NULL), 0);
    for (i = 0; i < 500 && !__atomic_load_n(&answered, __ATOMIC_ACQUIRE); i++) usleep(10000);
    answered |= i < 500 ? 2 : 4;
}

static void nobody_waits_for_nvml_but_who_attaches(void **state) {
    asked = test_lord(state);
    answered = 0;
    fake.on_nvml_init = slow_nvml;
    attach_with(asked, 0, "libnvml-v2.so");
    pthread_join(asks, NULL);
    assert_int_equal(answered, 3);
}

static void a_mig_instance_is_asked_of_the_driver_alone(void **state) {
    memlord *lord = test_lord(state);
    fake.device[0].mig = 1;
    fake.device[0].nvml_pid = (unsigned)getpid();
    fake.device[0].nvml_used = 5 * MIB;
    attach_with(lord, 0, "libnvml-v2.so");
    assert_int_equal(memlord_capacity_sample(lord, cuda(0)), MEMLORD_E_UNKNOWN);
    fake_activate(0);
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(capacity_of(lord, 0).process, 0);
}

static void the_process_share_is_ours_or_unknown(void **state) {
    memlord *lord = test_lord(state);
    fake_activate(0);
    fake.device[0].others = 50 * MIB;
    fake.device[0].nvml_used = 20 * MIB;
    fake.device[0].nvml_pid = (unsigned)getpid();
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(capacity_of(lord, 0).process, 20 * MIB);
    fake.device[0].nvml_pid++; /* a container's host knows us by another number */
    attach_with(lord, 0, "libnvml-v2.so");
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(capacity_of(lord, 0).process, 0);
    fake.device[0].nvml_pid--;
    fake.device[0].nvml_used = UINT64_MAX; /* not available */
    attach_with(lord, 0, "libnvml-v2.so");
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(capacity_of(lord, 0).process, 0);
}

static void a_device_out_of_range_is_unknown(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_capacity_sample(lord, cuda(DEVICES)), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_capacity_sample(lord, cuda(90)), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_gc_run(lord, cuda(DEVICES), MEMLORD_REASON_HOST, 0, NULL),
                     MEMLORD_E_STATE);
}

static void a_sample_leaves_the_current_device_and_the_last_error(void **state) {
    memlord *lord = test_lord(state);
    int device = -1;
    assert_cuda(cudaSetDevice(1));
    fake_activate(0);
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_cuda(cudaGetDevice(&device));
    assert_int_equal(device, 1);
    assert_int_equal(fake.set_devices, 1);
    assert_int_equal(cudaFree((void *)64), cudaErrorInvalidValue); /* the host's own error */
    fake.fail_name = "cuMemGetInfo_v2";
    fake.fail_times = -1;
    assert_ok(memlord_capacity_sample(lord, cuda(0))); /* from NVML */
    assert_ok(memlord_capacity_sample(lord, cuda(2)));
    assert_slot(cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(fake_count("cudaGetLastError"), 1);
}

static void a_sample_disturbs_no_capture(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    cudaGraph_t graph;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_int_equal(fake.violated, 0);
}

static void any_call_of_a_sample_may_fail(void **state) {
    memlord *lord = test_lord(state);
    uint64_t n, before;
    memlord_result r;
    int failed = 0;
    fake_activate(0);
    fake.device[0].reserved = fake.device[0].reserved_high = MIB;
    for (n = 1;; n++) {
        before = fake.calls;
        fake.fail_at = before + n;
        r = memlord_capacity_sample(lord, cuda(0));
        fake.fail_at = 0;
        assert_true(r == MEMLORD_OK || r == MEMLORD_E_UNKNOWN);
        failed += r != MEMLORD_OK;
        assert_int_equal(fake_depth(), 0);
        assert_int_equal(fake.retains, 0);
        assert_slot(cudaSuccess);
        if (fake.calls < before + n) break;
    }
    assert_true(n > 10);
    assert_int_equal(failed, 0); /* NVML answers where the driver does not, and the other way */
    assert_int_equal(fake.contexts, 0);
}

static void pollers_touch_no_device(void **state) {
    memlord *lord = test_lord(state);
    int i;
    assert_ok(memlord_poller_start(lord, 10));
    for (i = 0; i < DEVICES; i++) assert_ok(memlord_alloc(lord, cuda(i), 64, 4096, NULL));
    for (i = 0; i < 500 && !capacity_of(lord, 2).known; i++) usleep(10000);
    assert_true(capacity_of(lord, 2).known);
    memlord_poller_stop(lord);
    assert_int_equal(fake.contexts, 0);
    assert_int_equal(fake.set_devices, 0);
}

/* -- pools -- */

static void what_the_pool_holds_is_reserved(void **state) {
    memlord *lord = test_lord(state);
    void *ptr;
    uint64_t keep = UINT64_MAX;
    cudaMemPool_t pool;
    assert_cuda(cudaDeviceGetDefaultMemPool(&pool, 0));
    assert_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    assert_cuda(memlord_cuda_malloc_async(lord, &ptr, 8 * MIB, NULL, NULL));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 8 * MIB);
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 8 * MIB);
    assert_int_equal(stats_of(lord, cuda(0)).cached, 8 * MIB);
}

static void assert_reserved(memlord *lord, uint64_t reserved, uint64_t cached) {
    memlord_stats s = stats_of(lord, cuda(0));
    assert_int_equal(s.reserved, reserved * MIB);
    assert_int_equal(s.cached, cached * MIB);
}

/* 8 MiB of the pool are in use, 4 are not. */
static void *pool_in_part(memlord *lord) {
    uint64_t keep = UINT64_MAX;
    cudaMemPool_t pool;
    void *a, *b;
    assert_cuda(cudaDeviceGetDefaultMemPool(&pool, 0));
    assert_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    assert_cuda(memlord_cuda_malloc_async(lord, &a, 8 * MIB, NULL, NULL));
    assert_cuda(memlord_cuda_malloc_async(lord, &b, 4 * MIB, NULL, NULL));
    assert_cuda(memlord_cuda_free_async(lord, b, NULL, NULL));
    return a;
}

/* "GPU-8-4-4-4-12", and "MIG-..." of an instance. */
static void uuid_text(char *text, int device, const char *prefix) {
    int i, n = sprintf(text, "%s", prefix);
    for (i = 0; i < 16; i++)
        n += sprintf(text + n, "%s%02x", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                     (unsigned char)fake.device[device].pci[i]);
}

static void a_sampled_device_has_its_uuid_as_identity(void **state) {
    memlord *lord = test_lord(state), *other;
    char path[64], text[48];
    int mig;
    sprintf(path, "/tmp/memlord-cuda-%d", (int)getpid());
    for (mig = 0; mig < 2; mig++) {
        fake.device[1].mig = mig;
        if (mig) { /* a device keeps its identity as long as it is attached */
            assert_ok(memlord_cuda_detach(lord));
            assert_ok(memlord_cuda_attach(lord, NULL));
        }
        uuid_text(text, 1, mig ? "MIG" : "GPU");
        assert_int_equal(strlen(text), 40);
        assert_ok(memlord_create(NULL, &other));
        assert_ok(memlord_device_id_set(other, cuda(0), text)); /* elsewhere its index is 0 */
        assert_ok(memlord_alloc(other, cuda(0), 0x1000, 5 * MIB, NULL));
        if (!mig) assert_ok(memlord_alloc(lord, cuda(1), 0x1000, MIB, NULL));
        assert_ok(memlord_pressure_open(other, path));
        assert_ok(memlord_pressure_open(lord, path));
        fake_activate(1);
        (void)memlord_capacity_sample(lord, cuda(1));
        assert_ok(memlord_gc_poll(other, all()));
        assert_ok(memlord_gc_poll(lord, all()));
        assert_int_equal(stats_of(lord, cuda(1)).neighbours, 5 * MIB);
        memlord_destroy(other);
        assert_ok(memlord_pressure_close(lord));
        (void)unlink(path);
    }
}

/* cudaDeviceReset by others between two calls of a sample: no context is left that nobody asked for. */
static void resets_device_0(void) {
    (void)cudaSetDevice(0);
    (void)cudaDeviceReset();
}
static void a_sample_that_a_reset_overtakes_leaves_no_context(void **state) {
    memlord *lord = test_lord(state);
    fake_activate(0);
    fake.before_name = "cuDevicePrimaryCtxRetain";
    fake.before = resets_device_0;
    (void)memlord_capacity_sample(lord, cuda(0));
    assert_int_equal(fake.device[0].active, 0);
    (void)memlord_capacity_sample(lord, cuda(0));
    assert_int_equal(fake.device[0].active, 0);
}

static void a_sample_enters_a_device_with_the_capture_mode_relaxed(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    cudaGraph_t graph;
    fake.retain_unsafe = 1;
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_int_equal(fake.violated, 0);
}

static void what_is_of_no_pool_is_reserved_too(void **state) {
    memlord *lord = test_lord(state);
    void *weights, *more, *pooled = pool_in_part(lord);
    assert_cuda(memlord_cuda_malloc(lord, &weights, 100 * MIB, NULL));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_reserved(lord, 112, 4);
    assert_cuda(memlord_cuda_malloc(lord, &more, 50 * MIB, NULL)); /* known before the next one */
    assert_reserved(lord, 162, 4);
    fake.fail_name = "cudaFree";
    fake.fail_times = 1;
    assert_int_equal(memlord_cuda_free(lord, weights, NULL), 999);
    assert_reserved(lord, 162, 4);
    assert_cuda(memlord_cuda_free(lord, weights, NULL));
    assert_reserved(lord, 62, 4);
    assert_ok(memlord_cuda_pool_refresh(lord, 0));
    assert_reserved(lord, 62, 4);
    assert_cuda(memlord_cuda_free(lord, pooled, NULL)); /* cudaFree may, and none can tell */
    assert_ok(memlord_gc_run(lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_reserved(lord, 50, 0);
    assert_cuda(memlord_cuda_free(lord, more, NULL));
    assert_reserved(lord, 0, 0);
    cudaGetLastError();
}

static void nor_is_it_forgotten_by_another_kind_of_call(void **state) {
    memlord *lord = test_lord(state);
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_RETRY, 0, NULL, "libnvml-v2.so"};
    void *rows, *managed, *pooled = pool_in_part(lord);
    size_t pitch;
    assert_ok(memlord_cuda_attach(lord, &desc));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_cuda(memlord_cuda_malloc_pitch(lord, &rows, &pitch, 1000, 1024, NULL));
    assert_cuda(memlord_cuda_malloc_managed(lord, &managed, 2 * MIB, cudaMemAttachGlobal, NULL));
    assert_reserved(lord, 15, 4);
    assert_cuda(memlord_cuda_malloc_async(lord, &pooled, 4 * MIB, NULL, NULL)); /* from the cache */
    assert_reserved(lord, 15, 0);
    assert_cuda(memlord_cuda_free(lord, rows, NULL));
    assert_cuda(memlord_cuda_free(lord, managed, NULL));
    assert_reserved(lord, 12, 0);
}

static void what_others_use_of_the_pool_and_what_pends_is_not_cached(void **state) {
    memlord *lord = test_lord(state);
    cudaStream_t stream;
    void *weights, *library, *pooled = pool_in_part(lord);
    assert_cuda(memlord_cuda_malloc(lord, &weights, 100 * MIB, NULL));
    assert_cuda(cudaMallocAsync(&library, 3 * MIB, NULL)); /* not through a wrapper */
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(stats_of(lord, cuda(0)).cached, MIB);
    assert_cuda(cudaFreeAsync(library, NULL));
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    fake_stream_work(stream);
    assert_ok(memlord_cuda_record_free(lord, pooled, stream, NULL));
    assert_cuda(memlord_cuda_free_async(lord, pooled, stream, NULL));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_reserved(lord, 112, 4); /* the pool has 12 unused, of which 8 pend */
    fake_stream_finish(stream);
    assert_int_equal(memlord_retire(lord, all()), 8 * MIB);
    assert_reserved(lord, 112, 12);
}

static void what_the_host_says_of_its_own_pool_is_left_alone(void **state) {
    memlord *lord = test_lord(state);
    void *ptr;
    fake_activate(0);
    assert_ok(memlord_pool_set(lord, cuda(0), 77, UINT64_MAX));
    assert_ok(memlord_capacity_sample(lord, cuda(0))); /* the device's pool was never used */
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 77);
    assert_cuda(memlord_cuda_malloc(lord, &ptr, 64, NULL));
    assert_cuda(memlord_cuda_free(lord, ptr, NULL));
    assert_int_equal(stats_of(lord, cuda(0)).reserved_peak, 77);
    fake.device[0].reserved = fake.device[0].reserved_high = MIB;
    attach_with(lord, MEMLORD_CUDA_FLAG_NO_RESERVED, "libnvml-v2.so");
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 77);
}

static void a_pool_can_be_read(void **state) {
    memlord *lord = test_lord(state);
    memlord_cuda_pool pool;
    fake_activate(0);
    fake.device[0].reserved = 5, fake.device[0].reserved_high = 6;
    fake.device[0].used = 3, fake.device[0].used_high = 4;
    fake.device[0].graph_reserved = 20, fake.device[0].graph_reserved_high = 21;
    fake.device[0].graph_used = 10, fake.device[0].graph_used_high = 11;
    assert_ok(memlord_cuda_pool_get(lord, 0, &pool));
    assert_int_equal(pool.reserved, 5);
    assert_int_equal(pool.reserved_high, 6);
    assert_int_equal(pool.used, 3);
    assert_int_equal(pool.used_high, 4);
    assert_int_equal(pool.graph_reserved, 20);
    assert_int_equal(pool.graph_reserved_high, 21);
    assert_int_equal(pool.graph_used, 10);
    assert_int_equal(pool.graph_used_high, 11);
    assert_ok(memlord_cuda_pool_refresh(lord, 0));
    assert_int_equal(stats_of(lord, cuda(0)).reserved, 25);
}

static void pools_that_cannot_be_read_say_why(void **state) {
    memlord *lord = test_lord(state);
    memlord_cuda_pool pool, zero;
    memset(&zero, 0, sizeof zero);
    memset(&pool, 0xee, sizeof pool);
    assert_int_equal(memlord_cuda_pool_get(lord, 0, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_cuda_pool_get(lord, 0, &pool), MEMLORD_E_STATE);
    assert_memory_equal(&pool, &zero, sizeof pool);
    assert_int_equal(memlord_cuda_pool_get(lord, -1, &pool), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_cuda_pool_get(lord, DEVICES, &pool), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_cuda_pool_get(lord, 2, &pool), MEMLORD_E_UNSUPPORTED);
    assert_int_equal(memlord_cuda_pool_refresh(lord, 1), MEMLORD_E_STATE);
    fake_activate(0);
    fake.fail_name = "cuMemPoolGetAttribute";
    fake.fail_times = -1;
    assert_int_equal(memlord_cuda_pool_get(lord, 0, &pool), MEMLORD_E_UNKNOWN);
    assert_memory_equal(&pool, &zero, sizeof pool);
    assert_int_equal(fake.contexts, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_CUDA(an_active_device_is_asked_of_the_driver),
        TEST_CUDA(an_untouched_device_is_asked_of_nvml_and_stays_untouched),
        TEST_CUDA(nvml_finds_devices_by_their_pci_id),
        TEST_CUDA(an_older_nvml_says_the_same),
        TEST_CUDA(without_nvml_an_untouched_device_is_unknown),
        TEST_CUDA(an_nvml_that_cannot_start_is_not_kept_loaded),
        TEST_CUDA(a_device_that_nvml_does_not_know_is_unknown),
        TEST_CUDA(a_ledger_that_does_without_nvml_keeps_it_from_no_other),
        TEST_CUDA(nobody_waits_for_nvml_but_who_attaches),
        TEST_CUDA(a_mig_instance_is_asked_of_the_driver_alone),
        TEST_CUDA(the_process_share_is_ours_or_unknown),
        TEST_CUDA(a_device_out_of_range_is_unknown),
        TEST_CUDA(a_sample_leaves_the_current_device_and_the_last_error),
        TEST_CUDA(a_sample_disturbs_no_capture),
        TEST_CUDA(any_call_of_a_sample_may_fail),
        TEST_CUDA_WITH(pollers_touch_no_device, cuda_setup_threads),
        TEST_CUDA(what_the_pool_holds_is_reserved),
        TEST_CUDA(a_sampled_device_has_its_uuid_as_identity),
        TEST_CUDA(a_sample_that_a_reset_overtakes_leaves_no_context),
        TEST_CUDA(a_sample_enters_a_device_with_the_capture_mode_relaxed),
        TEST_CUDA(what_is_of_no_pool_is_reserved_too),
        TEST_CUDA(nor_is_it_forgotten_by_another_kind_of_call),
        TEST_CUDA(what_others_use_of_the_pool_and_what_pends_is_not_cached),
        TEST_CUDA(what_the_host_says_of_its_own_pool_is_left_alone),
        TEST_CUDA(a_pool_can_be_read),
        TEST_CUDA(pools_that_cannot_be_read_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
