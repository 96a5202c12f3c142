/* The ledger's own memory: what it no longer needs is used again, and goes back to the allocator.
   Strategies are used here: one takes memory for its bands, and gives it back when it is replaced. */
#include "support.h"

enum { DEVICES = 250, MOST = 300 };
enum { MORE = 3 * (34 << 10) }; /* three regions may have pieces that stay */

/* Gives a device a strategy of n bands; 0: takes it off. */
static void give(memlord *lord, int device, uint32_t n) {
    memlord_band bands[MOST];
    uint32_t i;
    for (i = 0; i < n; i++)
        bands[i] = band_of(100.0 * i / n, 100.0 * (i + 1) / n, MEMLORD_METRIC_ALLOCATED, 1000, 0);
    assert_ok(memlord_strategy_set(lord, cuda(device), n ? bands : NULL, n));
}

/* What the strategies need, in pieces of 128 bytes. */
static uint64_t needed(const uint32_t *n) {
    uint64_t sum = 0;
    int i;
    for (i = 0; i < DEVICES; i++)
        if (n[i]) sum += (n[i] * sizeof(memlord_band) + 128 + 127) / 128 * 128;
    return sum;
}

static void all_memory_comes_back(void **state) {
    test_case *t = (test_case *)*state;
    static uint32_t n[DEVICES];
    uint64_t seed = 3, before, most = 0;
    int round, i, k;
    before = t->heap.bytes;
    for (round = 0; round < 20; round++) {
        for (k = 0; k < 3 * DEVICES; k++) {
            i = (int)(test_random(&seed) % DEVICES);
            n[i] = (uint32_t)(test_random(&seed) % (MOST >> test_random(&seed) % 8));
            give(t->lord, i, n[i]);
            if (t->heap.bytes > most) most = t->heap.bytes;
        }
        if (round)
            assert_in_range(t->heap.bytes, needed(n), before + needed(n) * 5 / 4 + (64 << 10));
        for (i = 0; i < DEVICES; i++) /* every other first, from one end or the other */
            give(t->lord, round % 2 ? i * 2 % (DEVICES - 1) : DEVICES - 1 - i * 2 % (DEVICES - 1), 0);
        for (i = 0; i < DEVICES; i++) give(t->lord, i, 0);
        memset(n, 0, sizeof n);
        if (!round) before = t->heap.bytes; /* with what stays for each device */
        assert_in_range(t->heap.bytes, 0, before + MORE);
    }
    assert_true(most > before + 2 * MORE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(all_memory_comes_back),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
