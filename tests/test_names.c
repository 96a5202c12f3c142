/* Names: the ledger keeps each text once, whatever its length, in little memory and up to a bound.
   Labels are used here: setting them keeps a name and does nothing else. */
#include "support.h"

#define MOST ((size_t)64 << 20) /* the default of MEMLORD_MAX_STRINGS */

/* A text of a length that ends in a number; the caller frees it. */
static char *text_of(size_t length, unsigned number) {
    char *text = (char *)malloc(length + 1), digits[16];
    size_t n = (size_t)snprintf(digits, sizeof digits, "%u", number);
    assert_non_null(text);
    memset(text, 'n', length);
    text[length] = 0;
    if (n <= length) memcpy(text + length - n, digits, n);
    return text;
}

/* Returns the ledger's copy of a text. */
static const char *kept(memlord *lord, const char *text) {
    const char *copy;
    assert_ok(memlord_tag_begin(lord, text));
    copy = memlord_tag_current(lord);
    assert_ok(memlord_tag_end(lord));
    assert_string_equal(copy, text);
    assert_ptr_not_equal(copy, text);
    return copy;
}

/* Names of these lengths are about as long as a block of names: one may just fit, or just not. */
static void names_of_any_length_are_kept_once_and_stay_as_they_are(void **state) {
    static const size_t lengths[] = {1,    15,   16,   251, 252, 253, 495,  496,  497,  510,  511,  512,
                                     513,  527,  528,  1023, 1024, 1025, 2047, 2048, 2049,
                                     4096, 5000, 8192, 100000};
    enum { SHORT = 300 };
    const char *copies[SHORT + 1];
    size_t i;
    unsigned k;
    (void)state;
    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        test_heap heap;
        memlord_desc desc;
        memlord *lord;
        memset(&heap, 0, sizeof heap);
        desc = test_desc(&heap, 0);
        assert_ok(memlord_create(&desc, &lord));
        for (k = 0; k <= SHORT; k++) {
            char *text = text_of(k == 20 ? lengths[i] : 12, k);
            copies[k] = kept(lord, text);
            free(text);
        }
        for (k = 0; k <= SHORT; k++) {
            char *text = text_of(k == 20 ? lengths[i] : 12, k);
            assert_ptr_equal(kept(lord, text), copies[k]);
            free(text);
        }
        memlord_destroy(lord);
        assert_int_equal(heap.blocks + heap.bytes + heap.bad_frees, 0);
    }
}

/* Most right after a table has grown; little before it grows again. */
static void a_name_of_20_bytes_takes_165_at_the_most(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t before = t->heap.bytes, taken = 0;
    unsigned k;
    for (k = 1; k <= 12000; k++) {
        char *text = text_of(20, k);
        assert_ok(memlord_labels_set(t->lord, text));
        free(text);
        taken = t->heap.bytes - before;
        if (k >= 1000 && taken > 165 * k)
            fail_msg("%u names take %llu bytes", k, (unsigned long long)taken);
    }
    assert_in_range(taken, 0, 115 * 12000);
}

/* Keeps a name of a length that nothing else has. */
static memlord_result keep(memlord *lord, size_t length) {
    char *text = text_of(length, 7);
    memlord_result r = memlord_labels_set(lord, text);
    free(text);
    return r;
}

static void names_fill_the_bound_to_the_byte(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(keep(lord, MOST + 1), MEMLORD_E_NOMEM);
    assert_ok(keep(lord, MOST - 11)); /* and its end is a byte, too: 10 are left */
    assert_int_equal(keep(lord, 11), MEMLORD_E_NOMEM);
    assert_ok(keep(lord, 10));
    assert_int_equal(keep(lord, 1), MEMLORD_E_NOMEM);
    assert_ok(keep(lord, 10)); /* it is kept already */
    assert_ok(memlord_labels_set(lord, NULL));
}

static void one_name_may_fill_the_bound(void **state) {
    assert_ok(keep(test_lord(state), MOST));
    assert_int_equal(keep(test_lord(state), 1), MEMLORD_E_NOMEM);
}

static memlord_result checkpoint(memlord *lord, size_t length) {
    char *text = text_of(length, 7);
    memlord_result r = memlord_checkpoint(lord, text);
    free(text);
    return r;
}
static void names_of_checkpoints_fill_half_of_the_bound(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(keep(lord, MOST / 2 - 11));
    assert_int_equal(checkpoint(lord, 11), MEMLORD_E_NOMEM);
    assert_ok(checkpoint(lord, 10));
    assert_int_equal(checkpoint(lord, 12), MEMLORD_E_NOMEM);
    assert_ok(keep(lord, 12));
}

/* -- an allocator that calls the ledger -- */

typedef struct caller {
    memlord *lord; /* called by the next allocation; NULL: none */
    int calls;
    memlord_result labels, device, known, tag, expect;
    const memlord_site *site;
} caller;
static const memlord_site here = {"a.c", "f", 1};

static void *call_and_allocate(void *user, size_t size) {
    caller *c = (caller *)user;
    memlord *lord = c->lord;
    c->lord = NULL;
    if (lord) {
        c->calls++;
        c->labels = memlord_labels_set(lord, "inside");
        c->device = memlord_device_label_set(lord, cuda(9), "inside");
        c->known = memlord_device_label_set(lord, cuda(0), "inside");
        c->tag = memlord_tag_begin(lord, "inside");
        c->expect = memlord_expect(lord, cuda(0), "inside", 5);
        c->site = memlord_site_at(lord, (void *)(uintptr_t)0x1234);
    }
    return malloc(size);
}
static void just_free(void *user, void *at, size_t size) {
    (void)user, (void)size;
    free(at);
}
static void a_call_from_inside_the_allocator_keeps_no_name_and_no_device(void **state) {
    caller c;
    memlord_desc desc;
    memlord *lord;
    char *report;
    unsigned k;
    (void)state;
    memset(&c, 0, sizeof c);
    memset(&desc, 0, sizeof desc);
    desc.allocator.alloc = call_and_allocate;
    desc.allocator.free = just_free;
    desc.allocator.user = &c;
    desc.flags = MEMLORD_FLAG_NO_ENV;
    assert_ok(memlord_create(&desc, &lord));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1, &here));
    for (k = 0; k < 1000 && !c.calls; k++) { /* until names need memory */
        char *text = text_of(100, k);
        c.lord = lord;
        assert_ok(memlord_labels_set(lord, text));
        free(text);
    }
    assert_int_equal(c.calls, 1);
    c.lord = NULL;
    assert_int_equal(c.labels, MEMLORD_E_STATE);
    assert_int_equal(c.device, MEMLORD_E_STATE);
    assert_int_equal(c.known, MEMLORD_E_STATE);
    assert_int_equal(c.expect, MEMLORD_E_STATE);
    assert_ok(c.tag); /* passes through */
    assert_null(memlord_tag_current(lord));
    assert_string_equal(c.site->file, "");
    assert_int_equal(memlord_devices(lord, NULL, 0), 1);
    report = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_null(strstr(report, "inside"));
    free(report);
    memlord_destroy(lord);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_any_length_are_kept_once_and_stay_as_they_are),
        TEST(a_name_of_20_bytes_takes_165_at_the_most),
        TEST(names_fill_the_bound_to_the_byte),
        TEST(one_name_may_fill_the_bound),
        TEST(names_of_checkpoints_fill_half_of_the_bound),
        cmocka_unit_test(a_call_from_inside_the_allocator_keeps_no_name_and_no_device),
    };
    return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
