/* A part of preload.c, a library that is loaded into a program to record its heap: writes reports
   that a signal asks for, or that are due by the clock. */

/* --------------------------------------------------------------- signals and the clock -- */

/* If a signal interrupts a thread outside MemLord, and so outside malloc, the handler of the signal
   writes the report. Else the next thread that leaves MemLord writes the report. */

/* The requests for reports, and their times. */
static struct {
    int asked;      /* 1: a report is requested, by MEMLORD_SIGNAL or MEMLORD_EVERY */
    int killer;     /* the signal that the program dies of; 0 if none has come */
    int64_t until;  /* when the program dies at the latest, in ms; INT64_MAX means never */
    int64_t every;  /* MEMLORD_EVERY in ms; 0 if it is not set */
    int64_t next;   /* when the next report of MEMLORD_EVERY is due, in ms */
    int has_timer;
    timer_t timer;
} due = {0, 0, INT64_MAX, 0, 0, 0, 0};

#define CALL_MS 2000 /* how long a signal that interrupts a call of malloc waits for the end of the
                        call, in ms; the call never ends if a handler leaves it by longjmp */

/* Not 0 while this thread is in fork, which holds the locks of the ledger and of malloc. */
static __thread int forking __attribute__((tls_model("initial-exec")));

/* The signals that MEMLORD_REPORT_ON may name. The default action of each ends the program. If
   `watched` is 1, the program writes a report before it dies of the signal. */
static struct {
    const char *name;
    int number, watched;
} killers[] = {{"TERM", SIGTERM, 0}, {"INT", SIGINT, 0}, {"HUP", SIGHUP, 0}};
#define KILLERS (sizeof killers / sizeof killers[0])

static void set_handler(int number, handler with) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = with;
    (void)change_action(number, &action, NULL);
}

/* Dies of a signal, so that the parent sees which one it was. */
static void die_of(int number) {
    sigset_t only;
    set_handler(number, SIG_DFL);
    (void)sigemptyset(&only);
    (void)sigaddset(&only, number);
    (void)pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    (void)raise(number);
    real.exit(128 + number);
}

/* Starts a timer that sends a signal again after `ms` milliseconds. The second signal ends a report
   that hangs. */
static void limit_time(int number, int ms) {
    struct sigevent event;
    struct itimerspec in;
    __atomic_store_n(&due.until, now_ms() + ms, __ATOMIC_RELAXED);
    memset(&event, 0, sizeof event);
    memset(&in, 0, sizeof in);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = number;
    in.it_value.tv_sec = ms / 1000;
    in.it_value.tv_nsec = 1000000; /* 1 ms later than `until`, so that the handler finds that time
                                      is up */
    if (!due.has_timer) due.has_timer = !timer_create(CLOCK_MONOTONIC, &event, &due.timer);
    if (due.has_timer) (void)timer_settime(due.timer, 0, &in, NULL);
}

/* Writes the last report, and dies of a signal. Only this signal may interrupt the report, because
   it is sent again when time is up. */
static void end_by(int number) {
    sigset_t others;
    (void)sigfillset(&others);
    (void)sigdelset(&others, number);
    (void)pthread_sigmask(SIG_SETMASK, &others, NULL);
    limit_time(number, 3 * PATIENCE_MS);
    report_last();
    die_of(number);
}

/* Writes a report of a program that goes on. Returns 0 if another thread is writing one. That
   writer then checks whether one more report is requested. The thread with the request stores
   `asked` and then reads `finished`. The writer stores `finished` and then reads `asked`. As the
   order is seq_cst, at least one of them sees what the other stored. */
static int report_meanwhile(void) {
    int idle = 0, cancel;
    if (!__atomic_compare_exchange_n(&finished, &idle, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        return 0;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (__atomic_exchange_n(&due.asked, 0, __ATOMIC_RELAXED)) report();
    (void)pthread_setcancelstate(cancel, NULL);
    __atomic_store_n(&finished, 0, __ATOMIC_SEQ_CST);
    return 1;
}

/* Returns 1 to one thread when the next report of MEMLORD_EVERY is due. */
static int is_next_due(void) {
    struct timespec t;
    int64_t now, next = __atomic_load_n(&due.next, __ATOMIC_RELAXED);
    if (!due.every) return 0;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    now = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    return now >= next && __atomic_compare_exchange_n(&due.next, &next, now + due.every, 0,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Writes the reports that were asked for, and dies of a signal that asked for the last one.
   Requires: the thread is outside MemLord, or ends the program. */
static void serve_due(void) {
    int before = errno, killer;
    if (forking) return;
    if (!due.every) __atomic_store_n(&at_call_end, NULL, __ATOMIC_RELAXED);
    if (is_next_due()) __atomic_store_n(&due.asked, 1, __ATOMIC_SEQ_CST);
    while (!inside && __atomic_load_n(&due.asked, __ATOMIC_SEQ_CST)) {
        int wrote;
        inside = 1;
        wrote = report_meanwhile();
        inside = 0;
        __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the handler of a later signal finds `inside` at
                                                    0 */
        if (!wrote) break;
    }
    killer = __atomic_load_n(&due.killer, __ATOMIC_RELAXED);
    if (killer) end_by(killer);
    errno = before;
}

static void serve_soon(void) {
    if (inside || forking)
        __atomic_store_n(&at_call_end, serve_due, __ATOMIC_RELAXED);
    else
        serve_due();
}

static void on_request(int number) {
    int before = errno;
    (void)number;
    if (getpid() == self) {
        __atomic_store_n(&due.asked, 1, __ATOMIC_SEQ_CST);
        serve_soon();
    }
    errno = before;
}

/* Dies without a report, because the interrupted thread has not left malloc in time, or because the
   report took too long. */
static void give_up(int number) {
    say("memlord: no report: a signal came in malloc, or time was up\n");
    die_of(number);
}

/* Handles a signal that ends the program. The program dies of the first such signal, after a
   report. */
static void on_kill(int number) {
    int before = errno, none = 0;
    if (getpid() != self || __atomic_load_n(&finished, __ATOMIC_ACQUIRE) == 2) die_of(number);
    if (__atomic_compare_exchange_n(&due.killer, &none, number, 0, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        limit_time(number, finished ? 3 * PATIENCE_MS : CALL_MS);
    else if (now_ms() >= __atomic_load_n(&due.until, __ATOMIC_RELAXED))
        give_up(number);
    serve_soon();
    errno = before;
}

/* Returns the handler that the program is shown: the default in place of ours. (on_kill is not set
   in the first process of a container, because a default action does not end that process.) */
static handler shown(handler there) {
    return there == on_kill || is_guard(there) ? SIG_DFL : there;
}

static handler given(int number, handler wanted) {
    size_t i;
    for (i = 0; i < KILLERS && wanted == SIG_DFL && self != 1; i++) {
        if (killers[i].watched && killers[i].number == number) return on_kill;
    }
    return wanted;
}

EXPORT int sigaction(int number, const struct sigaction *action, struct sigaction *old) {
    struct sigaction changed;
    int failed;
    if (action) guard_no_more(number);
    if (action) {
        changed = *action;
        changed.sa_handler = given(number, action->sa_handler);
        if (changed.sa_handler == on_kill) changed.sa_flags &= ~SA_ONSTACK; /* the program's
                                                                               alternate stack may
                                                                               be too small for a
                                                                               report */
    }
    failed = change_action(number, action ? &changed : NULL, old);
    if (!failed && old && is_guard(old->sa_handler)) memset(old, 0, sizeof *old);
    if (!failed && old) old->sa_handler = shown(old->sa_handler);
    return failed;
}

#define SIGNALS(X)                                                                            \
    X(signal_usual, "signal")                                                                 \
    X(signal_of_bsd, "bsd_signal")                                                            \
    X(signal_of_svid, "ssignal")                                                              \
    X(signal_of_system_v, "sysv_signal")                                                      \
    X(signal_of_strict_c, "__sysv_signal")                                                    \
    X(signal_set, "sigset")

#define DEFINE_SIGNAL(fn, name)                                                               \
    static handler (*real_##fn)(int number, handler wanted);                                  \
    EXPORT handler fn(int number, handler wanted) __asm__(name);                              \
    EXPORT handler fn(int number, handler wanted) {                                           \
        if (!real_##fn) (void)started();                                                      \
        guard_no_more(number);                                                                \
        if (real_##fn) return shown(real_##fn(number, given(number, wanted)));                \
        errno = ENOSYS;                                                                       \
        return SIG_ERR;                                                                       \
    }
SIGNALS(DEFINE_SIGNAL)

#define FIND_SIGNAL(fn, name) find(name, &real_##fn);
static void find_signals(void) { SIGNALS(FIND_SIGNAL) }

static void watch(void) {
    struct sigaction now;
    size_t i;
    for (i = 0; i < KILLERS; i++) {
        if (!killers[i].watched || change_action(killers[i].number, NULL, &now)) continue;
        if (self != 1 && now.sa_handler == SIG_DFL) set_handler(killers[i].number, on_kill);
        if (self == 1 && now.sa_handler == on_kill) set_handler(killers[i].number, SIG_DFL);
    }
}

static void hold_signals(void) { forking = 1; }

static void let_signals(void) {
    forking = 0;
    if (!inside) leave();
}

/* Forgets in a forked child what was requested. None of the signals was sent to the child, and the
   child has no timers. Until `self` is the child's id, a signal ends the child as if this library
   were not loaded. */
static void signals_forked(void) {
    due.asked = due.killer = due.has_timer = 0;
    due.until = INT64_MAX;
    if (!due.every) at_call_end = NULL;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&self, getpid(), __ATOMIC_RELAXED);
    watch();
    let_signals();
}

/* Reads MEMLORD_REPORT_ON, which has names of signals with commas between them. */
static void read_killers(const char *names) {
    while (*names) {
        size_t i = 0, length = strcspn(names, ",");
        while (i < KILLERS && (strlen(killers[i].name) != length ||
                               strncmp(killers[i].name, names, length)))
            i++;
        if (i < KILLERS)
            killers[i].watched = 1;
        else if (length)
            complain(PREFIX "REPORT_ON", "takes TERM, INT and HUP, and has others, too");
        names += length;
        names += *names == ',';
    }
}

static void begin_signals(void) {
    const char *names = getenv("MEMLORD_REPORT_ON");
    unsigned long number = number_of("MEMLORD_SIGNAL"), seconds = number_of("MEMLORD_EVERY");
    struct sigaction action;
    (void)pthread_atfork(hold_signals, let_signals, signals_forked);
    read_killers(names ? names : "TERM");
    watch();
    if (seconds) {
        due.every = (int64_t)seconds * 1000;
        due.next = now_ms() + due.every;
        at_call_end = serve_due;
    }
    if (!number) return;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_request;
    action.sa_flags = SA_RESTART;
    (void)change_action((int)number, &action, NULL);
}
