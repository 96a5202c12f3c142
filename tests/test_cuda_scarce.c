/* The CUDA layer where something is not there: the driver, some of its functions, or memory. Each
   test runs in a process of its own, where the driver was never asked. */
#include "support_cuda.h"
#include "kernel.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>

static const char *driver_file = "libcuda.so.1"; /* what is opened in its place; NULL: nothing */
static int no_pages;                             /* the system gives no memory */

#if !TEST_SANITIZED /* which have these functions themselves */
void *dlopen(const char *name, int mode) {
    void *(*real)(const char *, int), *found = dlsym(RTLD_NEXT, "dlopen");
    memcpy(&real, &found, sizeof real);
    if (name && !strcmp(name, "libcuda.so.1")) name = driver_file;
    return name ? real(name, mode) : NULL;
}

void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
    if (no_pages && flags & MAP_ANONYMOUS) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return kernel_mmap(at, size, prot, flags, fd, offset);
}
#endif

static void apart(void (*fn)(void *), const void *user) {
    if (TEST_SANITIZED) skip();
    in_child(fn, (void *)(uintptr_t)user);
}

static cudaStream_t a_stream(void) {
    cudaStream_t stream = NULL;
    child_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

static memlord *a_ledger(void) {
    static test_heap heap;
    const memlord_desc desc = test_desc(&heap, MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_EXACT);
    memlord *lord = NULL;
    fake_reset(1);
    child_check(memlord_create(&desc, &lord) == MEMLORD_OK);
    return lord;
}

/* -- the driver, or functions of it -- */

static void child_without_a_driver(void *user) {
    memlord *lord = a_ledger();
    const memlord_device device = memlord_device_cuda(0);
    memlord_cuda_pool figures;
    unsigned long long handle = 1;
    int blocks = 0;
    driver_file = (const char *)user;
    child_check(memlord_cuda_pool_get(lord, 0, &figures) == MEMLORD_E_UNSUPPORTED);
    child_check(!strcmp(memlord_cuda_why(), user ? "libcuda.so.1 has no cuEventQuery"
                                                 : "libcuda.so.1 was not found"));
    if (user) child_check(!dlopen(driver_file, RTLD_NOW | RTLD_NOLOAD)); /* it is unloaded */
    MEMLORD_CUDA_ATTACHED(lord, NULL) {
        blocks++;
        child_check(!memlord_cuda_attached(lord));
    }
    child_check(blocks == 1);
    child_check((int)memlord_cuda_mem_create(lord, &handle, MIB, NULL, 0, NULL) == 3);
    child_check((int)memlord_cuda_mem_map(lord, 0, MIB, 0, handle, 0, NULL) == 3);
    child_check((int)memlord_cuda_mem_unmap(lord, 0, MIB, NULL) == 3);
    child_check((int)memlord_cuda_mem_retain_handle(lord, &handle, NULL, NULL) == 3);
    child_check((int)memlord_cuda_mem_release(lord, handle, NULL) == 3);
    child_check(memlord_alloc(lord, device, 64, 64, NULL) == MEMLORD_OK);
    child_check(memlord_cuda_record_free(lord, (void *)64, NULL, NULL) == MEMLORD_OK);
    (void)memlord_retire(lord, memlord_device_all());
    child_check(memlord_allocated(lord, device) == 0);
    child_check(stats_of(lord, memlord_device_all()).fence_failures == 1);
    child_check(memlord_cuda_device_reset(lord, NULL) == cudaSuccess);
    memlord_destroy(lord);
}

/* Frees that pend, a timed scope, a sample, a collection, a reset. Returns the pools asked. */
static uint64_t uses_the_layer(memlord *lord) {
    const memlord_device device = memlord_device_cuda(0);
    cudaStream_t stream = a_stream();
    memlord_cuda_scope scope;
    memlord_capacity capacity;
    memlord_cuda_pool figures;
    memlord_cuda_desc desc;
    uint64_t key;
    void *ptr = NULL;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_CUDA_FLAG_TIME_SCOPES | MEMLORD_CUDA_FLAG_SYNC;
    desc.nvml = "libnvml-v2.so";
    child_check(memlord_cuda_attach(lord, &desc) == MEMLORD_OK);
    child_check(memlord_cuda_scope_begin(lord, &scope, "step", stream) == MEMLORD_OK);
    fake_stream_work(stream);
    child_check(memlord_cuda_scope_end(lord, &scope) == MEMLORD_OK);
    for (key = 64; key <= 128; key += 64) {
        child_check(memlord_alloc(lord, device, key, 64, NULL) == MEMLORD_OK);
        child_check(memlord_cuda_record_free(lord, (void *)(uintptr_t)key, stream, NULL) ==
                    MEMLORD_OK);
    }
    child_check(memlord_pending(lord, device) == 128);
    child_check(memlord_capacity_sample(lord, device) == MEMLORD_OK);
    child_check(memlord_capacity_get(lord, device, &capacity) == MEMLORD_OK);
    child_check(capacity.total == fake.device[0].total);
    (void)memlord_gc_run(lord, device, MEMLORD_REASON_HOST, 0, NULL);
    fake_stream_finish(stream);
    (void)memlord_retire(lord, memlord_device_all());
    child_check(memlord_pending(lord, device) == 0);
    memset(&figures, 0, sizeof figures);
    (void)memlord_cuda_pool_get(lord, 0, &figures);
    child_check(memlord_cuda_malloc_async(lord, &ptr, 64, NULL, NULL) == cudaSuccess);
    child_check(memlord_cuda_free_async_after(lord, ptr, NULL, NULL) == cudaSuccess);
    child_check(memlord_cuda_stream_destroy(lord, stream, NULL) == cudaSuccess);
    child_check(memlord_cuda_device_reset(lord, NULL) == cudaSuccess);
    child_check(memlord_allocated(lord, memlord_device_all()) == 0);
    child_check(stats_of(lord, memlord_device_all()).fence_failures == 0);
    child_check(memlord_cuda_detach(lord) == MEMLORD_OK);
    child_check(fake.events == 0 && fake.retains == 0);
    return figures.pools;
}

static void child_with_the_driver_of_11_2(void *user) {
    memlord *lord = a_ledger();
    memlord_scope_stat stat;
    driver_file = (const char *)user;
    child_check(uses_the_layer(lord) == 1);
    child_check(memlord_scope_get(lord, "step", &stat) == MEMLORD_OK && stat.device_ns > 0);
    memlord_destroy(lord);
}

static void child_with_a_bare_driver(void *user) {
    memlord *lord = a_ledger();
    memlord_scope_stat stat;
    unsigned long long handle;
    driver_file = (const char *)user;
    child_check(uses_the_layer(lord) == 0);
    child_check(memlord_scope_get(lord, "step", &stat) == MEMLORD_OK && stat.device_ns == 0);
    child_check((int)memlord_cuda_mem_create(lord, &handle, MIB, NULL, 0, NULL) == 3);
    memlord_destroy(lord);
}

/* -- memory -- */

enum { PIECE = 16384 }; /* of the layer's records: each kind has its own pieces */

/* Lets the system give so many pieces, and no other page. */
static void starve(int pieces) {
    static void *held[1 << 16];
    memlord_allocator pages;
    int n = 1;
    memlord_os_allocator(&pages);
    held[0] = pages.alloc(pages.user, PIECE);
    no_pages = 1;
    while (n < 1 << 16 && (held[n] = pages.alloc(pages.user, PIECE)) != NULL) n++;
    child_check(n >= pieces);
    while (pieces--) pages.free(pages.user, held[--n], PIECE);
}

static void child_with_little_memory(void *user) {
    const int pieces = *(int *)user;
    memlord *lord = a_ledger();
    const memlord_device device = memlord_device_cuda(0);
    memlord_cuda_desc desc;
    memlord_cuda_scope scope;
    memlord_result r;
    cudaStream_t stream = a_stream();
    void *used = NULL, *after = NULL;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_CUDA_FLAG_TIME_SCOPES | MEMLORD_CUDA_FLAG_NO_NVML;
    child_check(memlord_cuda_attach(lord, &desc) == MEMLORD_OK);
    child_check(memlord_cuda_malloc(lord, &used, 64, NULL) == cudaSuccess);
    child_check(memlord_cuda_malloc_async(lord, &after, 64, NULL, NULL) == cudaSuccess);
    child_check(memlord_alloc(lord, device, 64, 64, NULL) == MEMLORD_OK);
    fake_stream_work(stream);
    starve(pieces);
    r = memlord_cuda_record_use(lord, used, stream); /* a stream, its context and a fence */
    child_check(r == (pieces < 3 ? MEMLORD_E_NOMEM : MEMLORD_OK));
    child_check(memlord_cuda_scope_begin(lord, &scope, "step", stream) == MEMLORD_OK);
    child_check(memlord_cuda_scope_end(lord, &scope) == MEMLORD_OK);
    child_check(memlord_cuda_free_async_after(lord, after, stream, NULL) == cudaSuccess);
    child_check(memlord_cuda_record_free(lord, (void *)64, stream, NULL) == MEMLORD_OK);
    child_check(memlord_cuda_free(lord, used, NULL) == cudaSuccess);
    child_check(memlord_pending(lord, device) == (pieces < 5 ? 0 : 3 * 64));
    no_pages = 0;
    fake_stream_finish(stream);
    (void)memlord_retire(lord, memlord_device_all());
    child_check(memlord_allocated(lord, device) == 0);
    child_check(memlord_alloc(lord, device, 64, 64, NULL) == MEMLORD_OK);
    child_check(memlord_cuda_record_free(lord, (void *)64, stream, NULL) == MEMLORD_OK);
    (void)memlord_retire(lord, memlord_device_all());
    child_check(memlord_allocated(lord, device) == 0);
    child_check(memlord_cuda_stream_destroy(lord, stream, NULL) == cudaSuccess);
    child_check(memlord_cuda_detach(lord) == MEMLORD_OK);
    child_check(fake.events == 0 && fake.violated == 0);
    memlord_destroy(lord);
}

static void a_driver_that_is_not_there_is_named(void **state) {
    (void)state;
    apart(child_without_a_driver, NULL);
}
static void a_driver_without_a_needed_function_is_unloaded(void **state) {
    (void)state;
    apart(child_without_a_driver, "libcuda-none.so");
}
static void the_driver_of_11_2_has_pools_and_no_ids(void **state) {
    (void)state;
    apart(child_with_the_driver_of_11_2, "libcuda-11.2.so");
}
static void a_driver_need_not_have_what_only_some_calls_ask_for(void **state) {
    (void)state;
    apart(child_with_a_bare_driver, "libcuda-bare.so");
}
static void without_memory_for_a_fence_a_free_is_credited_at_once(void **state) {
    int pieces;
    (void)state;
    for (pieces = 0; pieces <= 6; pieces++) apart(child_with_little_memory, &pieces);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_that_is_not_there_is_named),
        cmocka_unit_test(a_driver_without_a_needed_function_is_unloaded),
        cmocka_unit_test(the_driver_of_11_2_has_pools_and_no_ids),
        cmocka_unit_test(a_driver_need_not_have_what_only_some_calls_ask_for),
        cmocka_unit_test(without_memory_for_a_fence_a_free_is_credited_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
