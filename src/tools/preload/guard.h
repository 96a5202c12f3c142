/* A part of preload.c, a library that is loaded into a program to record its heap: ends an unwinder
   (the code that takes stacks) that crashes or hangs. */

/* --------------------------------------------------------------- the unwinder's faults -- */

/* If the unwinder faults, for example in a damaged stack, the handler on_fault jumps back to where
   the unwinder was called. That stack is lost, and the program goes on. on_fault is set only while
   the program leaves the signal at its default action. If the program asks for the action of the
   signal, it still gets the default. A fault outside the unwinder ends the program, as it would
   without this library. */
static const int faults[] = {SIGSEGV, SIGBUS};
static int guarded; /* 1: unwinders have a time limit, because on_fault handles SIGSEGV and only a
                       sample of the allocs unwinds */

static int (*real_sigaction)(int number, const struct sigaction *action, struct sigaction *old);

static int change_action(int number, const struct sigaction *action, struct sigaction *old) {
    if (!real_sigaction) (void)started();
    if (real_sigaction) return real_sigaction(number, action, old);
    errno = ENOSYS;
    return -1;
}

static void on_fault(int number, siginfo_t *info, void *context) {
    struct sigaction plain;
    (void)context;
    if (escape) siglongjmp(*escape, 1);
    if (info->si_code == SI_TIMER) return; /* sent by the timer of an unwinder that has ended
                                              meanwhile */
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    (void)change_action(number, &plain, NULL);
    if (info->si_code <= 0) (void)raise(number); /* a fault recurs by itself, but a signal
                                                    that a process sent must be raised again */
}

typedef void (*handler)(int number);

/* Returns 1 if `there` is on_fault. The system returns it as a handler that takes only a number. */
static int is_guard(handler there) {
    void (*ours)(int, siginfo_t *, void *) = on_fault;
    return !memcmp(&there, &ours, sizeof there);
}

/* Ends the time limits of unwinders if `number` is SIGSEGV, because the program is about to change
   what that signal does. */
static void guard_no_more(int number) {
    if (number == SIGSEGV) __atomic_store_n(&guarded, 0, __ATOMIC_RELAXED);
}

static void begin_guard(void) {
    struct sigaction now;
    size_t i;
    for (i = 0; i < sizeof faults / sizeof *faults; i++) {
        if (change_action(faults[i], NULL, &now) || (now.sa_flags & SA_SIGINFO) ||
            now.sa_handler != SIG_DFL)
            continue;
        memset(&now, 0, sizeof now);
        now.sa_sigaction = on_fault;
        now.sa_flags = SA_SIGINFO | SA_NODEFER; /* SA_NODEFER, so that no signal stays blocked after
                                                   siglongjmp */
        if (!change_action(faults[i], &now, NULL) && faults[i] == SIGSEGV)
            guarded = number_of("MEMLORD_STACK_BYTES") != 1 && !getenv("MEMLORD_SKIP");
    }
}

#define UNWIND_MS 2000 /* how long an unwinder may take, in ms */
#ifndef sigev_notify_thread_id /* the name in timer_create(2), which glibc 2.36 does not have */
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* Starts a timer that sends SIGSEGV to this thread if its unwinder takes too long. If every alloc
   unwinds, for its stack or to pass over the functions of MEMLORD_SKIP, there is no timer, because
   setting a timer takes longer than taking a stack. Returns 1 if the timer runs. */
static int begin_limit(timer_t *limit) {
    struct sigevent event;
    struct itimerspec in;
    if (!__atomic_load_n(&guarded, __ATOMIC_RELAXED)) return 0;
    memset(&event, 0, sizeof event);
    memset(&in, 0, sizeof in);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGSEGV;
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    in.it_value.tv_sec = UNWIND_MS / 1000;
    if (timer_create(CLOCK_MONOTONIC, &event, limit)) {
        if (errno != EAGAIN) __atomic_store_n(&guarded, 0, __ATOMIC_RELAXED); /* a sandbox refuses
                                                                                 it */
        return 0;
    }
    (void)timer_settime(*limit, 0, &in, NULL);
    return 1;
}
