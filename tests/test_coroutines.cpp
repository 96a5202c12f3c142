/* Coroutines of C++20: each has a context in its promise, and goes on on whichever thread resumes it. */
#include "jobs.h"

#if defined(__has_include)
#if __has_include(<coroutine>) && defined(__cpp_impl_coroutine)
#include <coroutine>
#define COROUTINES 1
#endif
#endif

#if defined(COROUTINES)
struct work {
    struct promise_type {
        work get_return_object() {
            return work{std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { abort(); }
    };
    std::coroutine_handle<promise_type> handle;
};
struct running {
    work of;
    mlord::context context;
};

/* One random step after another; suspends now and then. */
static work steps(job *j) {
    for (; j->step < STEPS; j->step++) {
        job_step(j);
        if (test_random(&j->random) % 4 == 0) co_await std::suspend_always{};
    }
    job_end(j);
}
static void resume_coroutine(job *j) {
    running *r = static_cast<running *>(j->resume);
    r->context.run([&] { r->of.handle.resume(); });
}
static void eight_coroutines_on_two_threads_against_a_model(void **state) {
    memlord *lord = test_lord(state);
    job *jobs = static_cast<job *>(calloc(JOBS, sizeof *jobs));
    running *all_running[JOBS];
    assert_non_null(jobs);
    for (int i = 0; i < JOBS; i++) {
        all_running[i] = new running{steps(&jobs[i]), mlord::context(lord)};
        jobs[i].resume = all_running[i];
    }
    run_jobs(lord, jobs, resume_coroutine);
    for (running *r : all_running) {
        r->of.handle.destroy();
        delete r;
    }
    free(jobs);
}

/* A guard in a coroutine ends where the coroutine ends. */
static work guarded(memlord *lord) {
    MEMLORD_SCOPED(lord, "request");
    mlord::tag kv(lord, "kv");
    (void)memlord_alloc(lord, cuda(0), 0x1000, 100, NULL);
    co_await std::suspend_always{};
    (void)memlord_alloc(lord, cuda(0), 0x2000, 20, NULL);
}
static void *resume_there(void *user) {
    running *r = static_cast<running *>(user);
    r->context.run([&] { r->of.handle.resume(); });
    return NULL;
}
static void guards_of_a_coroutine_end_on_the_thread_it_ends_on(void **state) {
    memlord *lord = test_lord(state);
    running r{guarded(lord), mlord::context(lord)};
    pthread_t thread;
    r.context.run([&] { r.of.handle.resume(); });
    assert_null(memlord_tag_current(lord));
    assert_int_equal(pthread_create(&thread, NULL, resume_there, &r), 0);
    pthread_join(thread, NULL);
    assert_true(r.of.handle.done());
    r.of.handle.destroy();
    assert_int_equal(tagged(lord, "kv"), 120);
    assert_int_equal(scope_of(lord, "request").count, 1);
    assert_int_equal(scope_of(lord, "request").bytes.total, 120);
    assert_int_equal(misplaced(lord), 0);
}

int main() {
    const struct CMUnitTest tests[] = {
        TEST(eight_coroutines_on_two_threads_against_a_model),
        TEST(guards_of_a_coroutine_end_on_the_thread_it_ends_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
static void this_compiler_has_no_coroutines(void **state) {
    (void)state;
    skip();
}
int main() {
    const struct CMUnitTest tests[] = {cmocka_unit_test(this_compiler_has_no_coroutines)};
    (void)run_jobs;
    (void)job_end;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
