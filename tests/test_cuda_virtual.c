/* Physical memory by handle, where it is mapped, and memory of other processes. */
#include "support_cuda.h"

enum { GRAIN = 2 * MIB, PAGES = 80 };

typedef struct property { /* CUmemAllocationProp */
    int type, handle_types, location, id;
    void *metadata;
    unsigned char flags[8];
} property;

static property on_device(int id) {
    property p;
    memset(&p, 0, sizeof p);
    p.type = p.location = 1;
    p.id = id;
    return p;
}

static unsigned long long created(memlord *lord, int device, size_t bytes) {
    const property p = on_device(device);
    unsigned long long handle = 0;
    assert_int_equal(memlord_cuda_mem_create(lord, &handle, bytes, &p, 0, NULL), 0);
    return handle;
}

static unsigned long long addresses(size_t bytes) {
    unsigned long long at = 0;
    assert_int_equal(fake_cuMemAddressReserve(&at, bytes, 0, 0, 0), 0);
    return at;
}

static void map(memlord *lord, unsigned long long at, size_t bytes, unsigned long long handle) {
    assert_int_equal(memlord_cuda_mem_map(lord, at, bytes, 0, handle, 0, NULL), 0);
}

typedef struct parts {
    size_t n;
    uint64_t bytes, address;
} parts;

static int add_part(void *user, const memlord_part_info *part) {
    parts *sum = (parts *)user;
    assert_string_equal(part->meta.name, "mapped");
    sum->n++;
    sum->bytes += part->bytes;
    sum->address = (uint64_t)part->meta.shape[0];
    return 0;
}

static parts mapped(memlord *lord, memlord_device device, unsigned long long handle) {
    parts sum = {0, 0, 0};
    (void)memlord_parts_each(lord, device, handle, add_part, &sum);
    return sum;
}

static uint64_t live(memlord *lord, memlord_device device) {
    return memlord_allocated(lord, device);
}

static void physical_memory_counts_on_the_device_it_is_on(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info block;
    unsigned long long handle = created(lord, 1, 3 * GRAIN);
    assert_int_equal(live(lord, cuda(1)), 3 * GRAIN);
    assert_int_equal(live(lord, all()), 3 * GRAIN);
    assert_ok(memlord_block_find(lord, cuda(1), handle, &block));
    assert_string_equal(block.meta.name, "cuMemCreate");
    assert_true_books(lord);
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
    assert_int_equal(live(lord, all()), 0);
    assert_true_books(lord);
}

static void that_of_the_host_counts_as_pinned(void **state) {
    memlord *lord = test_lord(state);
    property p = on_device(7);
    unsigned long long handle = 0;
    int location;
    for (location = 2; location <= 4; location++) { /* host, a NUMA node, the thread's */
        p.location = location;
        assert_int_equal(memlord_cuda_mem_create(lord, &handle, GRAIN, &p, 0, NULL), 0);
        assert_int_equal(live(lord, pinned()), GRAIN);
        assert_int_equal(live(lord, cuda(MEMLORD_ANY)), 0);
        assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
    }
    assert_int_equal(live(lord, all()), 0);
}

static void a_mapped_range_is_a_part_and_adds_no_bytes(void **state) {
    memlord *lord = test_lord(state);
    unsigned long long handle = created(lord, 0, 4 * GRAIN), at = addresses(4 * GRAIN);
    assert_int_equal(mapped(lord, cuda(0), handle).n, 0);
    assert_int_equal(memlord_cuda_mem_map(lord, at, GRAIN, 2 * GRAIN, handle, 0, NULL), 0);
    assert_int_equal(mapped(lord, cuda(0), handle).n, 1);
    assert_int_equal(mapped(lord, cuda(0), handle).bytes, GRAIN);
    assert_int_equal(mapped(lord, cuda(0), handle).address, at);
    assert_int_equal(live(lord, all()), 4 * GRAIN);
    assert_int_equal(memlord_cuda_mem_unmap(lord, at, GRAIN, NULL), 0);
    assert_int_equal(mapped(lord, cuda(0), handle).n, 0);
    assert_int_equal(live(lord, all()), 4 * GRAIN);
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
    assert_ok(memlord_verify(lord));
    assert_true_books(lord);
}

/* llama.cpp's pool releases each handle once it is mapped, and unmaps all of them at once. */
static void memory_lives_until_it_is_unmapped_too(void **state) {
    memlord *lord = test_lord(state);
    unsigned long long at = addresses(PAGES * GRAIN), handle;
    int i;
    for (i = 0; i < PAGES; i++) { /* more than an unmap has room for */
        handle = created(lord, 0, GRAIN);
        map(lord, at + (unsigned)i * GRAIN, GRAIN, handle);
        assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
        assert_int_equal(live(lord, cuda(0)), (uint64_t)(i + 1) * GRAIN);
    }
    assert_true_books(lord);
    assert_int_equal(memlord_cuda_mem_unmap(lord, at, PAGES * GRAIN, NULL), 0);
    assert_int_equal(live(lord, cuda(0)), 0);
    assert_true_books(lord);
    assert_ok(memlord_verify(lord));
}

/* PyTorch's expandable segments and vLLM's sleep mode: unmapped, released, and there again. */
static void a_range_is_mapped_again_to_other_memory(void **state) {
    memlord *lord = test_lord(state);
    unsigned long long at = addresses(GRAIN), handle;
    int i;
    for (i = 0; i < 3; i++) {
        handle = created(lord, 0, GRAIN);
        map(lord, at, GRAIN, handle);
        assert_int_equal(live(lord, cuda(0)), GRAIN);
        assert_int_equal(memlord_cuda_mem_unmap(lord, at, GRAIN, NULL), 0);
        assert_int_equal(live(lord, cuda(0)), GRAIN);
        assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
        assert_int_equal(live(lord, cuda(0)), 0);
    }
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_true_books(lord);
}

static void what_is_mapped_twice_counts_once(void **state) {
    memlord *lord = test_lord(state);
    unsigned long long handle = created(lord, 0, GRAIN), at = addresses(2 * GRAIN);
    map(lord, at, GRAIN, handle);
    map(lord, at + GRAIN, GRAIN, handle);
    assert_int_equal(live(lord, all()), GRAIN);
    assert_int_equal(mapped(lord, cuda(0), handle).n, 1);
    assert_int_equal(memlord_cuda_mem_unmap(lord, at, 2 * GRAIN, NULL), 0);
    assert_int_equal(mapped(lord, cuda(0), handle).n, 0);
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
    assert_true_books(lord);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
}

/* Ring buffers: the first unmap of two ends nothing. */
static void bytes_live_until_the_last_address_is_unmapped(void **state) {
    memlord *lord = test_lord(state);
    unsigned long long handle = created(lord, 0, GRAIN), at = addresses(10 * GRAIN);
    unsigned i, k;
    for (k = 0; k < 3; k++) {
        for (i = 0; i < 3; i++) map(lord, at + i * GRAIN, GRAIN, handle);
        if (k == 2) assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
        for (i = 0; i < 3; i++) {
            assert_int_equal(live(lord, cuda(0)), GRAIN);
            assert_int_equal(mapped(lord, cuda(0), handle).n, 1);
            assert_int_equal(memlord_cuda_mem_unmap(lord, at + (i + k) % 3 * GRAIN, GRAIN, NULL), 0);
        }
        assert_int_equal(live(lord, cuda(0)), k < 2 ? GRAIN : 0);
        assert_int_equal(mapped(lord, cuda(0), handle).n, 0);
    }
    assert_true_books(lord);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    handle = created(lord, 0, GRAIN);
    for (i = 0; i < 10; i++) map(lord, at + i * GRAIN, GRAIN, handle); /* 8 are followed */
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
    assert_int_equal(memlord_cuda_mem_unmap(lord, at, 7 * GRAIN, NULL), 0);
    assert_int_equal(live(lord, cuda(0)), GRAIN);
    assert_int_equal(memlord_cuda_mem_unmap(lord, at + 7 * GRAIN, 3 * GRAIN, NULL), 0);
    assert_int_equal(live(lord, cuda(0)), 0);
    assert_ok(memlord_verify(lord));
}

static void a_retained_handle_keeps_it(void **state) {
    memlord *lord = test_lord(state);
    unsigned long long handle = created(lord, 0, GRAIN), at = addresses(GRAIN), again = 0;
    map(lord, at, GRAIN, handle);
    assert_int_equal(
        memlord_cuda_mem_retain_handle(lord, &again, (void *)(uintptr_t)(at + 4096), NULL), 0);
    assert_true(again == handle);
    assert_int_equal(memlord_cuda_mem_unmap(lord, at, GRAIN, NULL), 0);
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
    assert_int_equal(live(lord, cuda(0)), GRAIN);
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
    assert_int_equal(live(lord, cuda(0)), 0);
    assert_true_books(lord);
}

static void an_address_that_is_not_mapped_or_not_on_the_books_retains_nothing(void **state) {
    memlord *lord = test_lord(state);
    unsigned long long handle = created(NULL, 0, GRAIN), at = addresses(2 * GRAIN), again = 0;
    map(NULL, at, GRAIN, handle);
    assert_int_not_equal(
        memlord_cuda_mem_retain_handle(lord, &again, (void *)(uintptr_t)(at + GRAIN), NULL), 0);
    assert_int_equal(memlord_cuda_mem_retain_handle(lord, &again, (void *)(uintptr_t)at, NULL), 0);
    assert_int_equal(memlord_cuda_mem_release(lord, again, NULL), 0);
    assert_int_equal(memlord_cuda_mem_unmap(lord, at, GRAIN, NULL), 0);
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
    assert_int_equal(stats_of(lord, all()).allocs + stats_of(lord, all()).unknown_frees, 0);
}

/* The host has named a part of it, too. */
static void a_part_that_is_no_mapping_outlives_the_unmap_of_another(void **state) {
    memlord *lord = test_lord(state);
    unsigned long long handle = created(lord, 0, 2 * GRAIN), at = addresses(GRAIN);
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    meta.name = "weights";
    assert_ok(memlord_part_add(lord, cuda(0), handle, GRAIN, GRAIN, &meta));
    map(lord, at, GRAIN, handle);
    assert_int_equal(memlord_cuda_mem_unmap(lord, at, GRAIN, NULL), 0);
    assert_int_equal(memlord_part_remove(lord, cuda(0), handle, 0), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_part_remove(lord, cuda(0), handle, GRAIN));
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
    assert_int_equal(live(lord, cuda(0)), 0);
}

static void what_the_driver_refuses_changes_nothing(void **state) {
    memlord *lord = test_lord(state);
    const property p = on_device(0);
    unsigned long long handle = created(lord, 0, 2 * GRAIN), at = addresses(4 * GRAIN), none = 0;
    assert_int_equal(memlord_cuda_mem_create(lord, &none, 5, &p, 0, NULL), 1);
    assert_int_equal(memlord_cuda_mem_create(lord, NULL, GRAIN, NULL, 7, NULL), 1);
    map(lord, at, 2 * GRAIN, handle);
    assert_int_equal(memlord_cuda_mem_map(lord, at, GRAIN, 0, handle, 0, NULL), 1);
    assert_int_equal(memlord_cuda_mem_unmap(lord, at, GRAIN, NULL), 1); /* not all of it */
    fake.fail_name = "cuMemRelease";
    fake.fail_times = 1;
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 999);
    assert_int_equal(mapped(lord, cuda(0), handle).n, 1);
    assert_int_equal(memlord_cuda_mem_unmap(lord, at, 2 * GRAIN, NULL), 0);
    fake.fail_times = 1;
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 999); /* the last one */
    assert_int_equal(live(lord, cuda(0)), 2 * GRAIN);
    assert_true_books(lord);
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 1);
    assert_int_equal(live(lord, all()), 0);
    assert_slot(cudaSuccess);
}

static void a_limit_refuses_physical_memory(void **state) {
    memlord *lord = test_lord(state);
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_RETRY, 0, NULL, "libnvml-v2.so"};
    const memlord_retry once = {0, 1, 1, 1.0, NULL, NULL};
    const property p = on_device(0);
    unsigned long long handle = 0;
    desc.retry = &once;
    assert_ok(memlord_cuda_attach(lord, &desc));
    assert_ok(memlord_limit_set(lord, cuda(0), 3 * GRAIN));
    assert_int_equal(memlord_cuda_mem_create(lord, &handle, 4 * GRAIN, &p, 0, NULL),
                     cudaErrorMemoryAllocation);
    assert_int_equal(fake_count("cuMemCreate"), 0);
    assert_int_equal(memlord_cuda_mem_create(lord, &handle, 2 * GRAIN, &p, 0, NULL), 0);
    assert_int_equal(live(lord, cuda(0)), 2 * GRAIN);
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
}

static size_t give_back(memlord *lord, unsigned long long *held) {
    size_t bytes = *held ? GRAIN : 0;
    if (*held) assert_int_equal(memlord_cuda_mem_release(lord, *held, NULL), 0);
    *held = 0;
    return bytes;
}
static memlord_gc_result free_held(void *user, memlord *lord, const memlord_gc_event *event) {
    memlord_gc_result result = {0, 0, 1};
    (void)event;
    result.reclaimed = give_back(lord, (unsigned long long *)user);
    return result;
}

static void a_retry_finds_physical_memory_that_a_collection_gave_back(void **state) {
    memlord *lord = test_lord(state);
    memlord_cuda_desc desc = {MEMLORD_CUDA_FLAG_RETRY, 0, NULL, "libnvml-v2.so"};
    unsigned long long held, handle;
    assert_ok(memlord_cuda_attach(lord, &desc));
    fake.device[0].others = FAKE_GIB - GRAIN;
    held = created(lord, 0, GRAIN);
    assert_ok(memlord_gc_callback_add(lord, cuda(0), 0, free_held, &held));
    handle = created(lord, 0, GRAIN);
    assert_int_equal(held, 0);
    assert_int_equal(stats_of(lord, cuda(0)).recoveries, 1);
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
    assert_ok(memlord_gc_callback_remove(lord, cuda(0), free_held, &held));
}

static void one_that_finds_no_memory_is_counted(void **state) {
    memlord *lord = test_lord(state);
    const property p = on_device(0);
    unsigned long long handle = 0;
    assert_int_equal(memlord_cuda_mem_create(lord, &handle, (size_t)2 * FAKE_GIB, &p, 0, NULL),
                     cudaErrorMemoryAllocation);
    assert_int_equal(stats_of(lord, cuda(0)).oom_failures, 1);
}

static void it_is_reserved_and_never_cached(void **state) {
    memlord *lord = test_lord(state);
    unsigned long long handle;
    void *ptr;
    assert_cuda(memlord_cuda_malloc_async(lord, &ptr, MIB, NULL, NULL));
    assert_ok(memlord_capacity_sample(lord, cuda(0)));
    handle = created(lord, 0, GRAIN);
    assert_int_equal(stats_of(lord, cuda(0)).reserved, GRAIN + MIB);
    assert_int_equal(stats_of(lord, cuda(0)).cached, 0);
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
    assert_int_equal(stats_of(lord, cuda(0)).reserved, MIB);
    assert_cuda(memlord_cuda_free_async(lord, ptr, NULL, NULL));
}

static void an_imported_handle_is_not_this_process_s(void **state) {
    memlord *lord = test_lord(state);
    unsigned long long handle = 0, at = addresses(2 * GRAIN), own = created(lord, 0, GRAIN);
    assert_int_equal(fake_cuMemImportFromShareableHandle(&handle, NULL, 1), 0);
    map(lord, at, GRAIN, own);
    map(lord, at + GRAIN, GRAIN, handle);
    assert_int_equal(live(lord, all()), GRAIN);
    assert_int_equal(memlord_cuda_mem_unmap(lord, at, 2 * GRAIN, NULL), 0);
    assert_int_equal(memlord_cuda_mem_release(lord, own, NULL), 0);
    assert_int_equal(memlord_cuda_mem_release(lord, handle, NULL), 0);
    assert_int_equal(live(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_true_books(lord);
}

static void an_unmap_passes_over_what_is_not_on_the_books(void **state) {
    memlord *lord = test_lord(state);
    unsigned long long other = 0, at = addresses(4 * GRAIN), own = created(lord, 0, GRAIN);
    assert_int_equal(fake_cuMemImportFromShareableHandle(&other, NULL, 1), 0);
    map(lord, at + GRAIN, GRAIN, own);
    map(lord, at, GRAIN, own); /* a second place of what is mapped */
    map(lord, at + 2 * GRAIN, GRAIN, other);
    assert_int_equal(memlord_cuda_mem_release(lord, own, NULL), 0);
    own = created(lord, 0, GRAIN);
    map(lord, at + 3 * GRAIN, GRAIN, own);
    assert_int_equal(memlord_cuda_mem_release(lord, own, NULL), 0);
    assert_int_equal(live(lord, all()), 2 * GRAIN);
    assert_int_equal(memlord_cuda_mem_unmap(lord, at, 4 * GRAIN, NULL), 0);
    assert_int_equal(memlord_cuda_mem_release(lord, other, NULL), 0);
    assert_int_equal(fake_cuMemRelease(other), cudaErrorInvalidValue); /* no reference is left of the unmap's */
    assert_int_equal(live(lord, all()), 0);
    assert_true_books(lord);
    /* and ends where nothing is mapped */
    assert_int_equal(memlord_cuda_mem_unmap(lord, at, SIZE_MAX, NULL), cudaErrorInvalidValue);
}

static void an_ipc_handle_opened_and_closed_is_not_counted(void **state) {
    memlord *lord = test_lord(state);
    cudaIpcMemHandle_t handle;
    void *ptr = NULL;
    fake_ipc_handle(&handle, 0, MIB);
    assert_cuda(cudaIpcOpenMemHandle(&ptr, handle, cudaIpcMemLazyEnablePeerAccess));
    assert_int_equal(memlord_cuda_record_use(lord, ptr, NULL), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_cuda_free_async(lord, ptr, NULL, NULL), cudaErrorInvalidValue);
    assert_int_equal(live(lord, all()), 0);
    assert_cuda(cudaIpcCloseMemHandle(ptr));
    assert_int_equal(live(lord, all()), 0);
    (void)cudaGetLastError();
}

static void without_a_ledger_it_is_the_driver_s_call_alone(void **state) {
    unsigned long long handle = created(NULL, 0, GRAIN), at = addresses(GRAIN);
    (void)state;
    map(NULL, at, GRAIN, handle);
    assert_int_equal(fake_count("cuMemRetainAllocationHandle"), 0);
    assert_int_equal(memlord_cuda_mem_unmap(NULL, at, GRAIN, NULL), 0);
    assert_int_equal(memlord_cuda_mem_release(NULL, handle, NULL), 0);
    assert_int_equal(fake_count("cuMemRetainAllocationHandle"), 0);
    assert_int_equal(fake_live(), 0);
}

/* -- threads -- */

enum { THREADS = 4, ROUNDS = 300 };

static void *map_and_unmap(void *user) {
    memlord *lord = (memlord *)user;
    const property p = on_device(0);
    unsigned long long at = 0, handle;
    int i;
    if (fake_cuMemAddressReserve(&at, GRAIN, 0, 0, 0)) return user;
    for (i = 0; i < ROUNDS; i++) { /* handles come again at once */
        if (memlord_cuda_mem_create(lord, &handle, GRAIN, &p, 0, NULL) ||
            memlord_cuda_mem_map(lord, at, GRAIN, 0, handle, 0, NULL) ||
            memlord_cuda_mem_release(lord, handle, NULL) ||
            memlord_cuda_mem_unmap(lord, at, GRAIN, NULL))
            return user;
    }
    return NULL;
}

static void threads_keep_the_books_right(void **state) {
    memlord *lord = test_lord(state);
    pthread_t threads[THREADS];
    void *failed;
    int i;
    for (i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, map_and_unmap, lord), 0);
    for (i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(live(lord, all()), 0);
    assert_int_equal(stats_of(lord, all()).implicit_frees, 0);
    assert_int_equal(stats_of(lord, all()).unknown_frees, 0);
    assert_true_books(lord);
    assert_ok(memlord_verify(lord));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_CUDA(physical_memory_counts_on_the_device_it_is_on),
        TEST_CUDA(that_of_the_host_counts_as_pinned),
        TEST_CUDA(a_mapped_range_is_a_part_and_adds_no_bytes),
        TEST_CUDA(memory_lives_until_it_is_unmapped_too),
        TEST_CUDA(a_range_is_mapped_again_to_other_memory),
        TEST_CUDA(what_is_mapped_twice_counts_once),
        TEST_CUDA(bytes_live_until_the_last_address_is_unmapped),
        TEST_CUDA(a_retained_handle_keeps_it),
        TEST_CUDA(an_address_that_is_not_mapped_or_not_on_the_books_retains_nothing),
        TEST_CUDA(a_part_that_is_no_mapping_outlives_the_unmap_of_another),
        TEST_CUDA(what_the_driver_refuses_changes_nothing),
        TEST_CUDA(a_limit_refuses_physical_memory),
        TEST_CUDA(a_retry_finds_physical_memory_that_a_collection_gave_back),
        TEST_CUDA(one_that_finds_no_memory_is_counted),
        TEST_CUDA(it_is_reserved_and_never_cached),
        TEST_CUDA(an_imported_handle_is_not_this_process_s),
        TEST_CUDA(an_unmap_passes_over_what_is_not_on_the_books),
        TEST_CUDA(an_ipc_handle_opened_and_closed_is_not_counted),
        TEST_CUDA(without_a_ledger_it_is_the_driver_s_call_alone),
        TEST_CUDA(threads_keep_the_books_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
