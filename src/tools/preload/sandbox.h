/* A part of preload.c, a library that is loaded into a program to record its heap: sees which system
   calls a seccomp filter of the program kills it for, and makes none of these. */

/* ------------------------------------------------------------------------- the sandbox -- */

/* What this library does without, if a filter kills the process for a call that it needs. */
enum {
    NO_REPORT = 1, /* the reports */
    NO_NAMES = 2,  /* symbolize */
    NO_LIMIT = 4,  /* the time limit of unwinders */
    NO_FAST = 8,   /* libunwind */
    NO_EXTRA = 16  /* calls that only save time, and ids: see `sandboxed` */
};

#define NEEDS(call, what) {SYS_##call, what, #call}
static const struct {
    long number;
    int without;
    const char *name;
} needed[] = {
#if defined(SYS_poll)
    NEEDS(poll, NO_REPORT),
#else
    NEEDS(ppoll, NO_REPORT),
#endif
#if defined(SYS_newfstatat)
    NEEDS(newfstatat, NO_REPORT),
#endif
#if defined(SYS_readlink)
    NEEDS(readlink, NO_REPORT),
#else
    NEEDS(readlinkat, NO_REPORT),
#endif
#if defined(SYS_access)
    NEEDS(access, NO_REPORT),
#else
    NEEDS(faccessat, NO_REPORT),
#endif
#if defined(SYS_rename)
    NEEDS(rename, NO_REPORT),
#else
    NEEDS(renameat, NO_REPORT),
#endif
    NEEDS(getpid, NO_REPORT | NO_EXTRA),
    NEEDS(openat, NO_REPORT),
    NEEDS(read, NO_REPORT),
    NEEDS(write, NO_REPORT),
    NEEDS(close, NO_REPORT),
    NEEDS(uname, NO_REPORT),
    NEEDS(clock_gettime, NO_REPORT),
    NEEDS(mmap, NO_REPORT),
    NEEDS(munmap, NO_REPORT),
    NEEDS(rt_sigaction, NO_REPORT),
    NEEDS(rt_sigprocmask, NO_REPORT | NO_FAST),
    NEEDS(mincore, NO_FAST),
    NEEDS(msync, NO_FAST),
    NEEDS(rt_sigpending, NO_REPORT),
    NEEDS(rt_sigtimedwait, NO_REPORT),
    NEEDS(execve, NO_NAMES),
    NEEDS(socketpair, NO_NAMES),
    NEEDS(clone, NO_NAMES),
    NEEDS(wait4, NO_NAMES),
    NEEDS(timer_create, NO_LIMIT),
    NEEDS(timer_settime, NO_LIMIT),
    NEEDS(timer_delete, NO_LIMIT),
    NEEDS(gettid, NO_REPORT | NO_LIMIT | NO_EXTRA),
    NEEDS(tgkill, NO_EXTRA),
    NEEDS(getdents64, NO_EXTRA),
    NEEDS(setpriority, NO_EXTRA),
    NEEDS(madvise, NO_EXTRA),
    NEEDS(membarrier, NO_EXTRA),
    NEEDS(sched_yield, NO_EXTRA),
    NEEDS(nanosleep, NO_EXTRA),
    NEEDS(clock_nanosleep, NO_EXTRA)};

/* A seccomp filter, a program of the classic BPF, as struct sock_fprog of linux/filter.h has it. */
typedef struct filter_step {
    uint16_t code;
    uint8_t yes, no; /* how many steps a jump passes over */
    uint32_t k;
} filter_step;
typedef struct filter {
    unsigned short count;
    const filter_step *at;
} filter;

extern const ElfW(Ehdr) own_header __asm__("__ehdr_start") __attribute__((visibility("hidden")));

static uint32_t computed(unsigned how, uint32_t a, uint32_t v) {
    switch (how) {
    case 0x00: return a + v;
    case 0x10: return a - v;
    case 0x20: return a * v;
    case 0x30: return v ? a / v : 0;
    case 0x40: return a | v;
    case 0x50: return a & v;
    case 0x60: return v < 32 ? a << v : 0;
    case 0x70: return v < 32 ? a >> v : 0;
    case 0x80: return 0 - a;
    default: return a ^ v;
    }
}

static int jumps_if(unsigned how, uint32_t a, uint32_t v) {
    switch (how) {
    case 0x10: return a == v;
    case 0x20: return a > v;
    case 0x30: return a >= v;
    default: return (a & v) != 0;
    }
}

/* Runs a filter for a call whose arguments are 2, as the descriptor of stderr, and 0. Returns what
   the filter says to do. */
static uint32_t run_filter(const filter *f, long number) {
    uint32_t data[16] = {0}, kept[16] = {0}, a = 0, x = 0, v;
    size_t i;
    data[0] = (uint32_t)number;
    data[1] = own_header.e_machine | (sizeof(void *) == 8 ? 0x80000000u : 0) |
              (own_header.e_ident[EI_DATA] == ELFDATA2LSB ? 0x40000000u : 0);
    data[4] = 2;
    for (i = 0; i < f->count; i++) {
        const filter_step s = f->at[i];
        v = s.code & 8 ? x : s.k;
        switch (s.code & 7) {
        case 0: /* load: in the next two cases, too, a constant, a word of the call, a kept word, or
                   the size of the call's description */
        case 1:
            v = (s.code & 0xe0) == 0x20   ? data[s.k / 4 % 16]
                : (s.code & 0xe0) == 0x60 ? kept[s.k % 16]
                : (s.code & 0xe0) == 0x80 ? (uint32_t)sizeof data
                                          : s.k;
            *(s.code & 7 ? &x : &a) = v;
            break;
        case 2: kept[s.k % 16] = a; break;
        case 3: kept[s.k % 16] = x; break;
        case 4: a = computed(s.code & 0xf0, a, v); break;
        case 5:
            i += !(s.code & 0xf0) ? s.k : jumps_if(s.code & 0xf0, a, v) ? s.yes : s.no;
            break;
        case 6: return s.code & 0x10 ? a : s.k;
        default: *(s.code & 0x80 ? &a : &x) = s.code & 0x80 ? x : a; break;
        }
    }
    return 0;
}

/* Returns 1 if a filter kills the process or the thread for a call, or sends SIGSYS. */
static int kills(const filter *f, long number) {
    const uint32_t what = f ? run_filter(f, number) & 0xffff0000u : 0;
    return what == 0 || what == 0x80000000u || what == 0x00030000u;
}

/* Writes no report from now on, and says so. Signals that ask for one do what they do without this
   library, or nothing. */
static void end_reports(const char *name) {
    const int request = (int)number_of("MEMLORD_SIGNAL");
    struct sigaction now;
    char line[128];
    size_t i;
    (void)snprintf(line, sizeof line,
                   "memlord: no report: a seccomp filter kills the program for the call %s\n", name);
    say(line);
    no_reports = 1;
    __atomic_store_n(&finished, 2, __ATOMIC_RELEASE);
    due.every = 0;
    __atomic_store_n(&at_call_end, NULL, __ATOMIC_RELAXED);
    for (i = 0; i < KILLERS; i++) {
        killers[i].watched = 0;
        if (!change_action(killers[i].number, NULL, &now) && now.sa_handler == on_kill)
            set_handler(killers[i].number, SIG_DFL);
    }
    if (request && !change_action(request, NULL, &now) && now.sa_handler == on_request)
        set_handler(request, SIG_IGN);
}

/* Prepares for a filter that the program is about to set. NULL is the filter that allows only read,
   write, exit and sigreturn. A child of vfork changes nothing, because the memory is its
   parent's. */
static void enter_sandbox(const filter *f) {
    const char *first = NULL;
    int without = 0;
    size_t i;
    if (f && !f->at) return;
    for (i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (!kills(f, needed[i].number)) continue;
        if (!first && (needed[i].without & NO_REPORT)) first = needed[i].name;
        without |= needed[i].without;
    }
    if (!lord || !without || getpid() != self) return;
    if ((without & NO_REPORT) && !no_reports) end_reports(first);
    if (without & NO_NAMES) symbols_wanted = 0;
    if (without & NO_LIMIT) __atomic_store_n(&guarded, 0, __ATOMIC_RELAXED);
    if (without & NO_FAST) __atomic_store_n(&fast_unwind, NULL, __ATOMIC_RELAXED);
    if (without & NO_EXTRA) sandboxed = 1;
}

/* Requires: `inside` is 0. */
static void see_filter(const filter *f) {
    const int error = errno;
    inside = 1;
    enter_sandbox(f);
    leave();
    errno = error;
}

/* Replaces syscall of the C library, by which libseccomp sets a filter. While `inside` is 1, the
   call is this library's. */
typedef long system_call(long number, long a, long b, long c, long d, long e, long f);
static system_call *real_syscall;
EXPORT system_call any_call __asm__("syscall");
EXPORT long any_call(long number, long a, long b, long c, long d, long e, long f) {
    if (!real_syscall) find("syscall", &real_syscall);
    if (!real_syscall || (sandboxed && inside && (number == SYS_membarrier ||
                                                  number == SYS_gettid || number == SYS_tgkill))) {
        errno = ENOSYS;
        return -1;
    }
#if defined(SYS_seccomp)
    if (number == SYS_seccomp && (a == 0 || (a == 1 && c)) && !inside)
        see_filter(a ? (const filter *)c : NULL);
#endif
    return real_syscall(number, a, b, c, d, e, f);
}

/* Replaces prctl of the C library. */
EXPORT int any_prctl(int option, long a, long b, long c, long d) __asm__("prctl");
EXPORT int any_prctl(int option, long a, long b, long c, long d) {
    enum { SET_SECCOMP = 22, STRICT = 1, FILTER = 2 };
    if (option == SET_SECCOMP && (a == STRICT || (a == FILTER && b)) && !inside)
        see_filter(a == FILTER ? (const filter *)b : NULL);
    return (int)any_call(SYS_prctl, option, a, b, c, d, 0);
}
