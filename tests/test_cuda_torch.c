/* The allocator for PyTorch, loaded and called as PyTorch does: by name, with the types of
   CUDAPluggableAllocator. Its ledger is its own; what it did to the runtime is seen in the fake. */
#include "support_cuda.h"

#include <dlfcn.h>
#include <sys/types.h>

/* What PyTorch's std::functions call. */
typedef struct plugin {
    void *library;
    void *(*alloc)(ssize_t size, int device, cudaStream_t stream);
    void (*free)(void *ptr, ssize_t size, int device, cudaStream_t stream);
    void (*record_stream)(void *ptr, cudaStream_t stream);
    void (*empty_cache)(void);
    uint64_t (*allocated)(int device);
    uint64_t (*pending)(int device);
    uint64_t (*peak)(int device);
    uint64_t (*reserved)(int device);
    uint64_t (*recoveries)(int device);
    int (*save)(const char *path);
} plugin;

static void find(const plugin *p, const char *name, void *fn) {
    void *found = dlsym(p->library, name);
    child_check(found);
    memcpy(fn, &found, sizeof found);
}

/* In a child: the library has one ledger a process. */
static plugin load(void) {
    plugin p;
    fake_reset(2);
    p.library = dlopen("libmemlord_torch.so", RTLD_NOW | RTLD_LOCAL);
    if (!p.library) fprintf(stderr, "# %s\n", dlerror());
    child_check(p.library);
    find(&p, "memlord_torch_alloc", (void *)&p.alloc);
    find(&p, "memlord_torch_free", (void *)&p.free);
    find(&p, "memlord_torch_record_stream", (void *)&p.record_stream);
    find(&p, "memlord_torch_empty_cache", (void *)&p.empty_cache);
    find(&p, "memlord_torch_allocated", (void *)&p.allocated);
    find(&p, "memlord_torch_pending", (void *)&p.pending);
    find(&p, "memlord_torch_peak", (void *)&p.peak);
    find(&p, "memlord_torch_reserved", (void *)&p.reserved);
    find(&p, "memlord_torch_recoveries", (void *)&p.recoveries);
    find(&p, "memlord_torch_save", (void *)&p.save);
    return p;
}

static cudaStream_t a_stream(void) {
    cudaStream_t stream = NULL;
    child_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

static void child_totals(void *user) {
    plugin p = load();
    cudaStream_t stream = a_stream();
    void *a = p.alloc(1000, 0, stream), *b = p.alloc(24, 0, NULL);
    (void)user;
    child_check(a && b && p.alloc(0, 0, stream) == NULL);
    child_check(p.allocated(0) == 1024 && p.allocated(-1) == 1024 && p.allocated(1) == 0);
    child_check(p.reserved(0) == 1024);
    p.free(a, 1000, 0, stream);
    p.free(b, 24, 0, NULL);
    p.free(NULL, 0, 0, NULL);
    child_check(p.allocated(0) == 0 && p.peak(0) == 1024);
    p.empty_cache();
    child_check(p.reserved(0) == 0 && fake_live() == 0);
}

static void child_two_devices(void *user) {
    plugin p = load();
    int current = -1;
    void *ptr;
    (void)user;
    cudaSetDevice(1);
    fake_stream_work(NULL); /* device 1's default stream */
    cudaSetDevice(0);
    ptr = p.alloc(1000, 1, NULL);
    child_check(ptr && p.allocated(1) == 1000 && p.allocated(0) == 0);
    p.record_stream(ptr, NULL);
    p.free(ptr, 1000, 1, NULL);
    child_check(p.pending(1) == 1000); /* device 0's is idle, and has nothing to do with it */
    child_check(cudaGetDevice(&current) == cudaSuccess && current == 0);
    cudaSetDevice(1);
    fake_stream_finish(NULL);
    child_check(p.pending(1) == 0 && p.allocated(1) == 0);
}
static void a_device_that_is_not_current_has_its_own_stream(void **state) {
    (void)state;
    in_child(child_two_devices, NULL);
}

static void its_totals_are_what_torch_asked_for(void **state) {
    (void)state;
    in_child(child_totals, NULL);
}

static void child_uses(void *user) {
    plugin p = load();
    cudaStream_t own = a_stream(), side = a_stream();
    void *ptr = p.alloc(1000, 0, own);
    (void)user;
    p.record_stream(ptr, side);
    p.record_stream(ptr, side);
    fake_stream_work(side);
    p.free(ptr, 1000, 0, own);
    child_check(fake_count("cudaStreamWaitEvent") == 1); /* the memory waits as well */
    child_check(p.pending(0) == 1000 && p.allocated(0) == 1000);
    fake_stream_finish(side);
    child_check(p.pending(0) == 0 && p.allocated(0) == 0);
}

static void a_recorded_stream_holds_back_block_and_memory(void **state) {
    (void)state;
    in_child(child_uses, NULL);
}

static void child_oom(void *user) {
    plugin p = load();
    void *held = NULL, *ptr;
    (void)user;
    child_check(cudaMalloc(&held, 600 * MIB) == cudaSuccess);
    fake.device[0].reserved = fake.device[0].reserved_high = 400 * MIB; /* a pool that kept it */
    fake.device[0].used = 0;
    fake.fail_name = "cudaMallocAsync"; /* does not reuse it, being in other pieces */
    fake.fail_error = cudaErrorMemoryAllocation;
    fake.fail_times = 1;
    ptr = p.alloc(300 * MIB, 0, NULL);
    child_check(ptr && p.recoveries(0) == 1 && cudaPeekAtLastError() == cudaSuccess);
    p.free(ptr, 300 * MIB, 0, NULL);
    setenv("MEMLORD_TORCH_RETRIES", "0", 1); /* too late for this process, which has read it */
    child_check(p.alloc((ssize_t)3 << 30, 0, NULL) == NULL);
}

static void an_allocation_that_finds_no_memory_is_tried_again(void **state) {
    (void)state;
    setenv("MEMLORD_TORCH_RETRIES", "1", 1);
    in_child(child_oom, NULL);
    unsetenv("MEMLORD_TORCH_RETRIES");
}

static void child_report(void *user) {
    plugin p = load();
    void *ptr = p.alloc(1000, 0, NULL);
    (void)user;
    child_check(ptr && p.save("build/torch.txt") == 0 && p.save("build/none/torch.json") != 0);
    child_check(p.save("build/torch.pickle") == 0);
    exit(0); /* not _exit: the report is written now */
}

static void a_report_is_written_when_the_process_ends(void **state) {
    char *text;
    (void)state;
    remove("build/torch.json");
    setenv("MEMLORD_TORCH_REPORT", "build/torch.json", 1);
    in_child(child_report, NULL);
    unsetenv("MEMLORD_TORCH_REPORT");
    text = file_text("build/torch.json");
    assert_non_null(text);
    assert_non_null(strstr(text, "\"memlord/2\""));
    assert_non_null(strstr(text, "cuda:0"));
    free(text);
    assert_int_equal(system("python3 -c \"import pickle\n"
                            "s = pickle.load(open('build/torch.pickle', 'rb'))\n"
                            "assert sum(x['total_size'] for x in s['segments']) == 1000, s\n"
                            "assert 'alloc' in [e['action'] for e in s['device_traces'][0]], s\""),
                     0);
    text = file_text("build/torch.txt");
    assert_non_null(text);
    assert_non_null(strstr(text, "1000 B"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_totals_are_what_torch_asked_for),
        cmocka_unit_test(a_device_that_is_not_current_has_its_own_stream),
        cmocka_unit_test(a_recorded_stream_holds_back_block_and_memory),
        cmocka_unit_test(an_allocation_that_finds_no_memory_is_tried_again),
        cmocka_unit_test(a_report_is_written_when_the_process_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
