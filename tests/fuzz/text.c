/* tests/fuzz/text.c: a text is a device, a number of bytes and the value of a variable. What one call
   writes another reads, an error changes nothing, and no value of a variable keeps a ledger away. */
#include "tests/support.h"

static void as_a_device(const char *text) {
    memlord_device device = memlord_device_make(MEMLORD_DEVICE_NPU, 7), again;
    char name[64];
    memlord_result r = memlord_device_parse(text, &device);
    if (r != MEMLORD_OK) {
        assert_int_equal(device.type, MEMLORD_DEVICE_NPU);
        assert_int_equal(device.index, 7);
        return;
    }
    assert_in_range(memlord_device_name(device, name, sizeof name), 1, sizeof name - 1);
    if (device.index == MEMLORD_ANY) return; /* "cuda:*" is written, "cuda" is read */
    assert_ok(memlord_device_parse(name, &again));
    assert_int_equal(again.type, device.type);
    assert_int_equal(again.index, device.index);
}

/* A figure that is written from what was read reads within the half of its last decimal. What is
   written as 16 EiB, rounded up, is more than a number of bytes can be. */
static void as_bytes(const char *text) {
    uint64_t bytes = 12345, again;
    char written[64];
    if (memlord_parse_bytes(text, &bytes) != MEMLORD_OK) {
        assert_int_equal(bytes, 12345);
        return;
    }
    (void)memlord_format_bytes(bytes, written, sizeof written);
    if (!strncmp(written, "16", 2) && strstr(written, "EiB")) {
        assert_int_equal(memlord_parse_bytes(written, &again), MEMLORD_E_INVALID);
        return;
    }
    assert_ok(memlord_parse_bytes(written, &again));
    assert_true((again > bytes ? again - bytes : bytes - again) <= bytes / 100);
}

static void as_a_variable(const char *text) {
    static const char *const names[2] = {"MEMLORD_RETRY", "MEMLORD_POLL_INTERVAL_MS"};
    memlord *lord = NULL;
    test_heap heap;
    memlord_desc desc;
    int i;
    memset(&heap, 0, sizeof heap);
    desc = test_desc(&heap, MEMLORD_FLAG_NO_THREADS);
    desc.flags &= ~(uint32_t)MEMLORD_FLAG_NO_ENV;
    for (i = 0; i < 2; i++) setenv(names[i], text, 1);
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_alloc(lord, cpu(), 1, 100, NULL));
    assert_int_equal(memlord_allocated(lord, cpu()), 100);
    memlord_destroy(lord);
    assert_int_equal(heap.blocks, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = (char *)malloc(size + 1); /* of its size, so that the sanitizer sees its end */
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    as_a_device(text);
    as_bytes(text);
    as_a_variable(text);
    free(text);
    return 0;
}
