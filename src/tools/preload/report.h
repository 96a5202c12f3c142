/* A part of preload.c, a library that is loaded into a program to record its heap: writes the
   reports. symbolize is the program that names functions and lines. */

/* -------------------------------------------------------------------------- the report -- */

/* Whether symbolize runs: 0 means never, and 1 means always. 2 means that it runs if the process
   took much processor time, and if symbolize can name more than the dynamic symbols do. */
static unsigned long symbols_wanted = 2;

static void read_environment(void) {
    const char *text = getenv(PREFIX "SYMBOLS");
    unsigned long n;
    if (text && read_number(text, 1, &n)) symbols_wanted = n;
    check_settings();
    read_path();
}

static void begin_recording(void) {
    const unsigned long events = number_of("MEMLORD_EVENTS");
    const char *text = getenv("MEMLORD_SNAPSHOTS");
    const uint32_t ms = (uint32_t)number_of("MEMLORD_SNAPSHOTS");
    if (events) (void)memlord_events_start(lord, events);
    if (text && !strcmp(text, "0")) return;
    snapshots_ms = ms > 10 ? ms : 10;
    (void)memlord_snapshots_start(lord, snapshots_ms);
}

static void write_report(void) {
    char line[512]; /* a longer path is cut */
    int fd = find_stderr();
    memlord_result result;
    if (!want.path[0]) {
        if (fd >= 0) (void)memlord_write(lord, MEMLORD_FORMAT_TEXT, to_fd, &fd);
        return;
    }
    expand_path();
    step_aside();
    result = memlord_save(lord, want.format, target.quoted);
    reports++;
    if (result == MEMLORD_OK || fd < 0 || want.told) return;
    (void)snprintf(line, sizeof line, "memlord: no report at %.400s: %s\n", target.path,
                   memlord_result_text(result));
    (void)to_fd(&fd, line, strlen(line));
}

/* Returns 1 if a part of a module is in memory. (Some ELF notes, parts that describe the module,
   are only in its file.) */
static int is_loaded(const struct dl_phdr_info *module, const ElfW(Phdr) *part) {
    int i;
    for (i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &module->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && part->p_vaddr >= p->p_vaddr && part->p_filesz <= p->p_filesz &&
            part->p_vaddr - p->p_vaddr <= p->p_filesz - part->p_filesz)
            return 1;
    }
    return 0;
}

/* Returns 1 if one of these ELF notes is the build id that Go's linker writes. Does not trust the
   sizes in the notes. */
static int is_note_of_go(const unsigned char *at, size_t left, size_t align) {
    static const char name[4] = "Go";
    ElfW(Nhdr) note;
    while (left >= sizeof note) {
        size_t text, next;
        memcpy(&note, at, sizeof note);
        if (note.n_namesz > left || note.n_descsz > left) return 0;
        text = (sizeof note + note.n_namesz + align - 1) & ~(align - 1);
        next = (text + note.n_descsz + align - 1) & ~(align - 1);
        if (text + note.n_descsz > left) return 0;
        if (note.n_type == 4 && note.n_namesz == sizeof name &&
            !memcmp(at + sizeof note, name, sizeof name))
            return 1;
        if (next >= left) return 0;
        at += next;
        left -= next;
    }
    return 0;
}

static int find_go(struct dl_phdr_info *program, size_t size, void *found) {
    int i;
    (void)size;
    for (i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &program->dlpi_phdr[i];
        if (p->p_type == PT_NOTE && is_loaded(program, p) &&
            is_note_of_go((const unsigned char *)(program->dlpi_addr + p->p_vaddr), p->p_filesz,
                          p->p_align == 8 ? 8 : 4))
            *(int *)found = 1;
    }
    return 1; /* stops, because the first module is the program */
}

/* If the program is written in Go, says at the start that this library does not see the program's
   memory and exit. Go allocates and exits without calling a function of any library. */
static void name_go(void) {
    char path[PATH_MAX], line[sizeof notes + 16];
    int found = 0;
    ssize_t n;
    (void)dl_iterate_phdr(find_go, &found);
    if (!found) return;
    n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    add_note("not seen: memory and exit of the Go program ", path);
    (void)snprintf(line, sizeof line, "memlord: %s\n", notes);
    if (want.path[0])
        write_report();
    else
        say(line);
}

/* Returns 1 to the first of the threads that end the program. The other threads wait here until
   that thread has written the report, but no longer than 2 * PATIENCE_MS. */
static int is_first_to_finish(void) {
    static const struct timespec a_little = {0, 1000000};
    int64_t until = now_ms() + 2 * PATIENCE_MS;
    int state;
    do {
        state = 0;
        if (__atomic_compare_exchange_n(&finished, &state, 1, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_ACQUIRE)) {
            return 1;
        }
        if (state == 2) return 0;
        (void)nanosleep(&a_little, NULL);
    } while (now_ms() < until);
    return 0;
}

/* Adds a label to the reports if stacks are missing. */
static void name_lost_stacks(void) {
    static int told;
    if (told || !__atomic_load_n(&lost_stacks, __ATOMIC_RELAXED)) return;
    told = 1;
    add_note("stacks are missing: ", "an unwinder crashed or hung");
}

/* Adds a label that says how to name the places that TEXT leaves without a name, or removes it if
   `on` is 0. The other formats do not have this label, because memlord-diff warns if the labels of
   two profiles differ. */
static void label_names(int on) {
    char labels[sizeof notes + 80];
    if (!names_hint) return;
    (void)snprintf(labels, sizeof labels, "%s%s%s", notes, *notes ? "; " : "",
                   names_hint);
    (void)memlord_labels_set(lord, on ? labels : *notes ? notes : NULL);
}

/* Writes the report. Blocks the signals SIGPIPE (the reader is gone), SIGXFSZ (a file grew too
   large) and SIGTTOU (another program has the terminal), because they must not change how this
   program ends. */
static void report(void) {
    static const int harmful[] = {SIGPIPE, SIGXFSZ, SIGTTOU};
    static const struct timespec at_once;
    sigset_t blocked, before, pending;
    size_t i;
    (void)sigemptyset(&blocked);
    for (i = 0; i < 3; i++) (void)sigaddset(&blocked, harmful[i]);
    (void)pthread_sigmask(SIG_BLOCK, &blocked, &before);
    (void)sigpending(&pending);
    name_lost_stacks();
    if (want.path[0] || find_stderr() >= 0)
        name_places(symbols_wanted, want.format == MEMLORD_FORMAT_TEXT);
    label_names(1);
    write_report();
    label_names(0);
    for (i = 0; i < 3; i++) { /* signals that came meanwhile are removed; a signal that was pending
                                 before stays */
        if (sigismember(&pending, harmful[i])) (void)sigdelset(&blocked, harmful[i]);
    }
    while (sigtimedwait(&blocked, NULL, &at_once) > 0) {}
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

#if defined(__GLIBC__)
extern char single_threaded __asm__("__libc_single_threaded") __attribute__((weak));
#endif

/* Lowers the priority of all other threads when the program ends. Else threads that still compute
   would leave little processor time to the last report. A thread of the lowest priority still
   runs, so that it can drop a lock that the report waits for. */
static void slow_others(void) {
    const long self_thread = syscall(SYS_gettid);
    char list[1024];
    long size, at;
    int fd;
    if (sandboxed) return;
#if defined(__GLIBC__)
    if (&single_threaded && single_threaded) return;
#endif
    size = readlink("/proc/self", list, sizeof list - 1);
    list[size > 0 ? size : 0] = 0;
    if (strtol(list, NULL, 10) != (long)getpid()) return; /* changes no thread, because the ids in
                                                             /proc are those of another container */
    fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && (size = syscall(SYS_getdents64, fd, list, sizeof list)) > 0) {
        for (at = 0; at < size;) {
            uint16_t length;
            const char *entry = list + at; /* a directory entry has the inode, the offset, the
                                              length, 8 bits for the kind, and the name */
            const long thread = strtol(entry + 19, NULL, 10);
            memcpy(&length, entry + 16, sizeof length);
            if (thread > 0 && thread != self_thread)
                (void)setpriority(PRIO_PROCESS, (id_t)thread, 19);
            at += length;
        }
    }
    if (fd >= 0) (void)close(fd);
}

/* Lets a FOLDED report at the end of a program show what was live at the peak, if less than a
   quarter of that is still live. The bytes that are left then say little about the program. A path
   that ends in ".live.folded" keeps the live bytes. */
static void choose_measure(void) {
    static const char live[] = ".live.folded";
    const size_t length = strlen(want.path), end = sizeof live - 1;
    memlord_stats all;
    if (want.format != MEMLORD_FORMAT_FOLDED) return;
    if (length >= end && !strcmp(want.path + length - end, live)) return;
    memset(&all, 0, sizeof all);
    if (memlord_stats_get(lord, memlord_device_all(), &all) == MEMLORD_OK &&
        all.allocated < all.peak / 4)
        want.format = MEMLORD_FORMAT_FOLDED_PEAK;
}

/* Writes the last report. A request to cancel the thread waits until the report is written. */
static void report_last(void) {
    int cancel;
    if (inside) return;
    inside = 1; /* stays set, because a signal handler that interrupts the report and exits
                   must not wait for the report */
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (is_first_to_finish()) {
        mli_u64_store(&lord->program_ended, mli_ledger_now(lord));
        (void)memlord_snapshots_stop(lord); /* takes the last snapshot */
        slow_others();
        choose_measure();
        report();
        __atomic_store_n(&finished, 2, __ATOMIC_RELEASE);
    }
    (void)pthread_setcancelstate(cancel, NULL);
}

/* Writes the last report when the program ends. If a signal came meanwhile, the program dies of
   that signal. */
static void finish(void *unused) {
    void (*serve)(void);
    (void)unused;
    report_last();
    serve = __atomic_load_n(&at_call_end, __ATOMIC_RELAXED);
    if (serve) serve();
}

static void finish_quickly(void) { finish(NULL); }

/* Writes the report before a process ends without its destructors, as forked children often do. */
EXPORT void _exit(int status) {
    if (!no_reports && getpid() == self) finish(NULL);
    real.exit(status);
}
EXPORT void _Exit(int status) { _exit(status); }
