/* A part of preload.c, a library that is loaded into a program to record its heap: finds the names
   of return addresses. A place is a return address as an offset in the file of a module (the
   program or a shared library). */

/* ----------------------------------------------------------------------------- symbols -- */

/* Names come from the dynamic symbols. They also come from debug information, if symbolize, a
   program beside this library, finds any. A run of symbolize takes time. So symbolize runs only for
   processes that took much processor time, and only where it can name more. */

#define TOP_SITES 200 /* how many sites and how many stacks are named in each order (by live, peak
                         and allocated bytes), the largest first */
#define MAX_PLACES 4096
#define MAX_FUNCTIONS 256 /* the most functions of one place: the function there, and those inlined
                             into it; symbolize has the same limit */
#define LONG_RUN_MS 1000

static struct {
    struct {
        const memlord_site *site;
        memlord_place at;
    } place[MAX_PLACES];
    size_t count, asked; /* the number of places; how many of them an earlier report has asked for
                            (they come first) */
    char text[4 << 20]; /* what is asked of symbolize, and later its answer; a place that finds no
                           room here keeps the name that it has */
    size_t length;
} ask;

static struct {
    int64_t born;                /* when this program began, in ms since 1970 */
    int folds;                   /* 1: names are without the arguments of templates */
    const char *library;         /* the path of this library; NULL if it is not known */
    char resolved[PATH_MAX];     /* memory for the absolute path, if the loader has only a relative
                                    one */
    char path[2][PATH_MAX + 32]; /* the two paths where symbolize may be: where it is built, and
                                    where it is installed; "" before find_symbolize */
} symbolize;

static void find_symbolize(void) {
    static const char *const names[] = {"symbolize", "../bin/memlord-symbolize"};
    char here[PATH_MAX], *end;
    size_t i;
    if (symbolize.path[0][0] || !symbolize.library || !realpath(symbolize.library, here)) return;
    end = strrchr(here, '/');
    if (end) *end = 0;
    for (i = 0; i < 2; i++)
        (void)snprintf(symbolize.path[i], sizeof symbolize.path[i], "%s/%s", here, names[i]);
}

static int symbolize_is_there(void) {
    find_symbolize();
    return !access(symbolize.path[0], X_OK) || !access(symbolize.path[1], X_OK);
}

/* __cxa_demangle of the program's C++ library, or NULL if the program has none. `first_demangle` is
   that of a library that the program began with. */
static char *(*demangle)(const char *name, char *out, size_t *room, int *status);
static const void *first_demangle;

/* Finds __cxa_demangle. That of a library that dlopen has loaded counts only if it is still
   there. */
static void find_demangle(void) {
    const void *found = first_demangle ? first_demangle
                                       : __atomic_load_n(&late_demangle, __ATOMIC_RELAXED);
    const struct link_map *module = found && !first_demangle ? map_at(found) : NULL;
    if (!first_demangle && (!module || symbol_of(module, "__cxa_demangle") != found)) found = NULL;
    memcpy(&demangle, &found, sizeof demangle);
}

/* Notes at the start what symbolize needs later. */
static void begin_symbolize(void) {
    struct timespec t;
    Dl_info own;
    symbolize.folds = number_of("MEMLORD_FOLD") != 0;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    symbolize.born = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    if (dladdr(&symbolize, &own) && own.dli_fname)
        symbolize.library = own.dli_fname[0] == '/' ? own.dli_fname
                                                    : realpath(own.dli_fname, symbolize.resolved);
    first_demangle = dlsym(RTLD_DEFAULT, "__cxa_demangle");
    if (number_of(PREFIX "SYMBOLS") == 1 && !symbolize_is_there())
        complain(PREFIX "SYMBOLS", "has no effect: symbolize is not there (make build/symbolize)");
}

/* Names a site by a demangled name, unless the name is so long that demangling it could exhaust the
   stack. Names of Rust end in a hash, which is left out. */
static void rename_mangled(const memlord_site *site) {
    const char *function = mli_site_display_of(lord, site)->function;
    char *plain = NULL;
    size_t length;
    if (!strncmp(function, "_Z", 2) && strlen(function) < 4096)
        plain = demangle(function, NULL, NULL, NULL);
    if (!plain) return;
    length = strlen(plain);
    if (length > 19 && !strncmp(plain + length - 19, "::h", 3) &&
        strspn(plain + length - 16, "0123456789abcdef") == 16)
        plain[length - 19] = 0;
    (void)memlord_site_rename(lord, site, NULL, plain, 0);
    free(plain);
}

/* Adds the place of a site to those that symbolize is asked for. Returns 0 if the place is among
   them already, has no file, or finds no room. The vdso and code that was made at run time have no
   file. */
static int add_place(const memlord_site *site, memlord_place *at) {
    char *to = ask.text + ask.length;
    size_t i, room = sizeof ask.text - ask.length;
    int n;
    if (ask.count == MAX_PLACES || memlord_site_place(lord, site, at) || at->module[0] != '/')
        return 0;
    for (i = 0; i < ask.count; i++) { /* the ledger has each text once, so equal texts have equal
                                         pointers */
        const memlord_place *other = &ask.place[i].at;
        if (other->offset == at->offset && other->module == at->module &&
            other->build_id == at->build_id)
            return 0;
    }
    n = snprintf(to, room, "%llx %s %s", (unsigned long long)at->offset, at->build_id, at->module);
    if (n < 0 || (size_t)n >= room) return 0;
    ask.length += (size_t)n + 1; /* includes the NUL */
    ask.place[ask.count].site = site;
    ask.place[ask.count++].at = *at;
    return 1;
}

static void collect_sites(memlord_site_order order) {
    static memlord_site_stat top[TOP_SITES];
    size_t i, n = memlord_sites_top(lord, memlord_device_all(), order, top, TOP_SITES);
    memlord_place at;
    for (i = 0; i < n; i++) {
        if (add_place(top[i].site, &at) && demangle) rename_mangled(top[i].site);
    }
}

static void collect_stacks(memlord_site_order order) {
    static memlord_stack_stat top[TOP_SITES];
    size_t i, n = memlord_stacks_top(lord, memlord_device_all(), order, top, TOP_SITES);
    memlord_place at;
    uint32_t k;
    for (i = 0; i < n; i++) {
        for (k = 0; k < top[i].depth; k++) {
            const memlord_site *site = top[i].sites[k];
            if (add_place(site, &at) && demangle) rename_mangled(site);
        }
    }
}

static void collect_places(void) {
    static const memlord_site_order orders[] = {MEMLORD_SITE_ORDER_LIVE_BYTES,
                                                MEMLORD_SITE_ORDER_PEAK_BYTES,
                                                MEMLORD_SITE_ORDER_ALLOC_BYTES};
    size_t i;
    ask.count = ask.asked;
    ask.length = 0;
    for (i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        collect_sites(orders[i]);
        collect_stacks(orders[i]);
    }
}

/* Makes a pair of sockets with numbers above the standard ones, because another thread may still
   print to a standard descriptor that is closed. */
static int pair_above(int ends[2]) {
    int i;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) return -1;
    for (i = 0; i < 2; i++) {
        int low = ends[i];
        ends[i] = low > STDERR_FILENO ? low : fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        if (low <= STDERR_FILENO) (void)close(low);
    }
    if (ends[0] >= 0 && ends[1] >= 0) return 0;
    for (i = 0; i < 2; i++) {
        if (ends[i] >= 0) (void)close(ends[i]);
    }
    return -1;
}

/* Starts symbolize, with an environment that is made here: it has no LD_PRELOAD, and names no
   server of debug files that symbolize would wait for. */
static int spawn_symbolize(int end, pid_t *pid) {
    static char locale[] = "LC_ALL=C", program[] = "symbolize", option[] = "--serve", born[32];
    static char fold[] = "--fold";
    char *environment[] = {locale, NULL};
    char *argv[] = {program, option, born, symbolize.folds ? fold : NULL, NULL};
    posix_spawn_file_actions_t actions;
    int failed;
    find_symbolize();
    (void)snprintf(born, sizeof born, "%lld", (long long)symbolize.born);
    if (posix_spawn_file_actions_init(&actions)) return -1;
    failed = posix_spawn_file_actions_adddup2(&actions, end, STDIN_FILENO) ||
             posix_spawn_file_actions_adddup2(&actions, end, STDOUT_FILENO) ||
             posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY,
                                              0) ||
             (posix_spawn(pid, symbolize.path[0], &actions, NULL, argv, environment) &&
              posix_spawn(pid, symbolize.path[1], &actions, NULL, argv, environment));
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed ? -1 : 0;
}

static void read_answer(int end, int64_t until) {
    ask.length = 0;
    while (ask.length < sizeof ask.text && wait_for(end, POLLIN, until)) {
        ssize_t n = read(end, ask.text + ask.length, sizeof ask.text - ask.length);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return;
        if (n > 0) ask.length += (size_t)n;
    }
}

/* Waits for the end of symbolize. If time is up, kills symbolize first. But kills nothing if
   another thread of the program has waited for any child and got symbolize: the process id may then
   be that of another process. */
static void end_symbolize(pid_t pid, int64_t until) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (now_ms() >= until && !waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) &&
        info.si_pid == 0) {
        (void)kill(pid, SIGKILL);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
}

/* Cuts the next text off the answer. Returns NULL if the answer has no further whole text. */
static const char *next_text(size_t *at) {
    const char *text = ask.text + *at;
    const char *end = (const char *)memchr(text, 0, ask.length - *at);
    if (end) *at = (size_t)(end - ask.text) + 1;
    return end ? text : NULL;
}

/* Reads the functions of the next place from the answer, which symbolize.c describes. Returns how
   many there are, or 0 if they are not all there. */
static size_t next_functions(size_t *at, memlord_function *out) {
    const char *number = next_text(at);
    size_t i, n = number ? strtoul(number, NULL, 10) : 0;
    if (n > MAX_FUNCTIONS) return 0;
    for (i = 0; i < n; i++) {
        const char *line = next_text(at), *file = line ? next_text(at) : NULL;
        const char *function = file ? next_text(at) : NULL;
        const char *library = function ? next_text(at) : NULL;
        if (!library) return 0;
        out[i].at.line = atoi(line);
        out[i].at.file = file;
        out[i].at.function = function;
        out[i].library = atoi(library);
    }
    return n;
}

/* Gives each place its functions. If symbolize does not know the file or the name, the site keeps
   the one that it had. */
static void name_functions(void) {
    static memlord_function functions[MAX_FUNCTIONS];
    size_t at = 0, i, n;
    for (i = ask.asked; i < ask.count; i++) {
        const memlord_site *site = mli_site_display_of(lord, ask.place[i].site);
        n = next_functions(&at, functions);
        if (!n) return;
        if (n == 1 && !functions->at.file[0]) functions->at.file = site->file;
        if (n == 1 && !functions->at.function[0]) functions->at.function = site->function;
        (void)memlord_site_functions_set(lord, site, functions, n);
    }
}

static void ask_symbolize(void) {
    int64_t until = now_ms() + PATIENCE_MS;
    int ends[2], spawned;
    pid_t pid;
    if (pair_above(ends)) return;
    spawned = !spawn_symbolize(ends[1], &pid);
    (void)close(ends[1]);
    if (spawned) {
        (void)to_fd(&ends[0], ask.text, ask.length);
        (void)shutdown(ends[0], SHUT_WR);
        read_answer(ends[0], until);
        end_symbolize(pid, until);
        name_functions();
    }
    (void)close(ends[0]);
}

/* Returns the processor time of this process and its threads. */
static int64_t processor_ms(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Returns 1 if a module has more names than its dynamic symbols: a symbol table in its file or, for
   the program, a debug file. The debug files of libraries alone are not worth a run of
   symbolize. */
static int has_more_names(const memlord_place *at) {
    char program[PATH_MAX], path[128];
    file_image file;
    size_t i, n;
    const ElfW(Shdr) *section;
    int found = 0;
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = 0;
    if (!strcmp(at->module, program) && strlen(at->build_id) > 2) {
        (void)snprintf(path, sizeof path, "/usr/lib/debug/.build-id/%.2s/%s.debug", at->build_id,
                       at->build_id + 2);
        found = !access(path, R_OK);
    }
    if (found || !map_file(at->module, &file)) return found;
    section = sections_of(&file, &n);
    for (i = 0; i < n && !found; i++) found = section[i].sh_type == SHT_SYMTAB;
    (void)munmap((void *)(uintptr_t)file.at, file.size);
    return found;
}

/* Returns 1 if symbolize can name a place that is still to be asked for. */
static int can_name_more(void) {
    size_t i, k;
    for (i = ask.asked; i < ask.count; i++) {
        const char *module = ask.place[i].at.module;
        for (k = ask.asked; ask.place[k].at.module != module;) k++;
        if (k == i && has_more_names(&ask.place[i].at)) return 1;
    }
    return 0;
}

static const char *names_hint; /* says how to name places that have no name yet; NULL if no more can
                                  be named */

/* Names the places that the report lists first. `run` is 0 if symbolize must not run, 1 if it must,
   and 2 if it runs only where that is worth the time. If `tells` is 1, finds out how the report's
   reader can name more. While symbolize runs, SIGCHLD has its default action: a handler of the
   program must not run, and if SIGCHLD were ignored, the kernel would keep no child to wait for. */
static void name_places(unsigned long run, int tells) {
    const int asks = run == 1 || (run && processor_ms() >= LONG_RUN_MS);
    struct sigaction plain, before;
    find_demangle();
    tells = tells && run && !(asks && symbolize_is_there());
    if (!demangle && !asks && !tells) return;
    collect_places();
    names_hint = NULL;
    if (tells && can_name_more())
        names_hint = symbolize_is_there()
                         ? "MEMLORD_SYMBOLS=1 names the function and line of each place"
                         : "make build/symbolize, to name the function and line of each place";
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    if (!asks || ask.count == ask.asked || (run != 1 && !can_name_more())) return;
    if (sigaction(SIGCHLD, &plain, &before)) return;
    ask_symbolize();
    ask.asked = ask.count;
    (void)sigaction(SIGCHLD, &before, NULL);
}
