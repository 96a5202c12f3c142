/* What the suites of the CUDA layer share: a ledger attached to the fake, and what must hold when a
   test is over: nothing entered is left, nothing of the host's runtime was touched. */
#ifndef MEMLORD_TESTS_SUPPORT_CUDA_H
#define MEMLORD_TESTS_SUPPORT_CUDA_H

#include "support.h"

#include "fake_cuda/fake_cuda.h"

#include "../memlord_cuda.h"

#include <sys/wait.h>
#include <unistd.h>

/* The driver is asked for its devices once a process: all tests of one have three. The last has no
   pools. */
enum { DEVICES = 3, MIB = 1 << 20 };

static inline int cuda_open(void **state, uint32_t lord_flags, uint32_t flags) {
    memlord_cuda_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.flags = flags;
    desc.nvml = "libnvml-v2.so";
    fake_reset(DEVICES);
    fake.device[2].pools = 0;
    if (test_open(state, lord_flags)) return -1;
    return memlord_cuda_attach(((test_case *)*state)->lord, &desc) == MEMLORD_OK ? 0 : -1;
}

static inline int cuda_setup(void **state) {
    return cuda_open(state, MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_EXACT, 0);
}
static inline int cuda_setup_sites(void **state) {
    return cuda_open(state, MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_SITES, 0);
}
static inline int cuda_setup_defer(void **state) {
    return cuda_open(state, MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_DEFER, 0);
}
static inline int cuda_setup_threads(void **state) { return cuda_open(state, 0, 0); }
static inline int cuda_setup_bare(void **state) { /* not attached */
    fake_reset(DEVICES);
    fake.device[2].pools = 0;
    return test_open(state, MEMLORD_FLAG_NO_THREADS);
}

static inline int cuda_teardown(void **state) {
    memlord *lord = ((test_case *)*state)->lord;
    int bad;
    fake.fail_at = 0;
    fake.fail_times = 0;
    fake.sticky = 0;
    if (memlord_cuda_attached(lord) && memlord_cuda_detach(lord) != MEMLORD_OK) return -1;
    (void)memlord_retire(lord, all());
    memlord_cuda_events_release();
    bad = fake.retains || fake_depth() || fake.depth_errors || fake.nvml_inits || fake.violated ||
          fake.captured_records || fake.events;
    if (bad)
        print_error("retains %d, depth %d, pops too many %d, nvml %d, violated %d, captured %d, "
                    "events %d\n",
                    fake.retains, fake_depth(), fake.depth_errors, fake.nvml_inits, fake.violated,
                    fake.captured_records, fake.events);
    return test_teardown(state) || bad ? -1 : 0;
}

#define TEST_CUDA(name) cmocka_unit_test_setup_teardown(name, cuda_setup, cuda_teardown)
#define TEST_CUDA_WITH(name, setup) cmocka_unit_test_setup_teardown(name, setup, cuda_teardown)

static inline memlord_device pinned(void) { return memlord_device_make(MEMLORD_DEVICE_PINNED, 0); }

/* The runtime's last error is clean, and was not cleaned by the question. */
#define assert_slot(error) assert_int_equal(cudaPeekAtLastError(), error)
#define assert_cuda(call) assert_int_equal(call, cudaSuccess)

/* Every storage of the fake is on the books, and no other. */
static inline void assert_true_books(memlord *lord) {
    memlord_stats s = stats_of(lord, all());
    assert_int_equal(s.live_blocks, fake_live());
    assert_int_equal(s.implicit_frees, 0);
}

/* Runs it in a process of its own, where the driver was never asked. */
static inline void in_child(void (*fn)(void *), void *user) {
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fn(user);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* In the child: not cmocka's, which belongs to the parent. */
#define child_check(condition)                                                                \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "# %s:%d: %s\n", __FILE__, __LINE__, #condition);                 \
            _exit(1);                                                                         \
        }                                                                                     \
    } while (0)

#endif /* MEMLORD_TESTS_SUPPORT_CUDA_H */
