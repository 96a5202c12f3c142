#include "os/machine.h"
#include "os/system.h"

/* Copies the last part of a path, cut to fit. The path has n bytes, and need not end with a 0. */
static MLI_COLD void mli_program_set(mli_identity *out, const char *path, size_t n) {
    const char other = MLI_WINDOWS ? '\\' : '/'; /* the second path separator */
    size_t from = n, most = sizeof out->program - 1;
    while (from && path[from - 1] != '/' && path[from - 1] != other) from--;
    n -= from;
    if (n > most) n = most;
    memcpy(out->program, path + from, n);
    out->program[n] = 0;
}
#if !MLI_WINDOWS
static MLI_COLD void mli_host_set(mli_identity *out) {
    struct utsname system;
    size_t n;
    if (uname(&system) < 0) return;
    n = strlen(system.nodename);
    if (n >= sizeof out->host) n = sizeof out->host - 1;
    memcpy(out->host, system.nodename, n);
    out->host[n] = 0;
}
#endif

#if defined(__linux__)

/* Writes `more` to cpu->path at byte `end`. Returns the new length. If the path is too long, the
   result is sizeof cpu->path, and stays so whatever else is added. */
static size_t mli_cpu_path(mli_cpu *cpu, size_t end, const char *more) {
    size_t n = strlen(more);
    if (n >= sizeof cpu->path - end) return sizeof cpu->path;
    memcpy(cpu->path + end, more, n + 1);
    return end + n;
}

/* Reads the file `name` into cpu->text as a string. The directory of the file is the first `end`
   bytes of cpu->path. Returns 0, or -1 if the text is not known. A missing file reads as "max",
   because a missing limit is no limit. */
static MLI_COLD int mli_cpu_read(mli_cpu *cpu, size_t end, const char *name) {
    size_t n = 0;
    ssize_t got = 1;
    int fd;
    if (mli_cpu_path(cpu, end, name) == sizeof cpu->path) return -1;
    fd = open(cpu->path, O_RDONLY | O_CLOEXEC);
    memcpy(cpu->text, "max", sizeof "max");
    if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
    while (got && n < sizeof cpu->text) {
        got = read(fd, cpu->text + n, sizeof cpu->text - n);
        if (got < 0 && errno != EINTR) break;
        if (got > 0) n += (size_t)got;
    }
    (void)close(fd);
    if (got) return -1; /* the read failed, or the file is too long */
    cpu->text[n] = 0;
    return 0;
}

/* Parses a number that is followed by `unit` ("" or " kB") and the end of the line. Returns -1 if
   the text has another form, or the number needs more than 64 bits; else 0. */
static int mli_cpu_number(const char *at, const char *unit, uint64_t *out) {
    char *end;
    if (*at < '0' || *at > '9') return -1; /* strtoull also takes blanks and signs */
    errno = 0;
    *out = strtoull(at, &end, 10);
    if (errno || strncmp(end, unit, strlen(unit))) return -1;
    end += strlen(unit);
    if (*unit) {
        if (*out > UINT64_MAX >> 10) return -1;
        *out <<= 10;
    }
    return *end == '\n' || !*end ? 0 : -1;
}

/* Parses the number in the line of cpu->text that begins with `name`. If there is no such line,
   *out is unchanged. Returns 0, or -1 if the line is malformed. */
static int mli_cpu_field(const mli_cpu *cpu, const char *name, const char *unit, uint64_t *out) {
    size_t n = strlen(name);
    const char *p = cpu->text;
    while (strncmp(p, name, n) || (p[n] != ' ' && p[n] != '\t')) {
        p = strchr(p, '\n');
        if (!p) return 0;
        p++;
    }
    return mli_cpu_number(p + n + strspn(p + n, " \t"), unit, out);
}

/* Reads a file that holds one number, or "max" (UINT64_MAX). Returns -1 if it is not known. */
static int mli_cpu_value(mli_cpu *cpu, size_t end, const char *name, uint64_t *out) {
    const char *p = cpu->text;
    if (mli_cpu_read(cpu, end, name)) return -1;
    *out = UINT64_MAX;
    if (strncmp(p, "max", 3)) return mli_cpu_number(p, "", out);
    return p[3] == '\n' || !p[3] ? 0 : -1;
}

/* Returns the path of the memory cgroup of this process, in `text`, or NULL. `text` is what
   /proc/self/cgroup has, lines number:controllers:path, and is overwritten. The memory controller
   belongs to one version of cgroups at a time: if no line names it, to version 2, whose line has no
   controllers. */
static char *mli_cpu_parse_cgroup(char *text, int *v1) {
    char *found = NULL, *line, *next;
    *v1 = 0;
    for (line = text; line && !*v1; line = next) {
        char *names = strchr(line, ':'), *path, *word;
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        path = strstr(line, ":/");
        if (!path) continue;
        *names = *path = ','; /* now a comma is on both sides of each controller */
        word = strstr(names, ",memory,");
        *v1 = word && word < path;
        if (*v1 || path == names + 1) found = path + 1;
    }
    return found;
}

/* Reads the bytes in use in the cgroup of a directory. Page cache, active or inactive, does not
   count, because the kernel drops it before it refuses memory. MemAvailable of /proc/meminfo counts
   page cache as available, too. (Kubernetes subtracts only the inactive part.) shmem, locked pages
   and cache that memory.stat does not list are not subtracted, so they count as used. */
static int mli_cpu_usage(mli_cpu *cpu, size_t end, uint64_t *used) {
    static const char caches[2][2][20] = {{"inactive_file", "active_file"},
                                          {"total_inactive_file", "total_active_file"}};
    int i;
    if (mli_cpu_value(cpu, end, cpu->v1 ? "/memory.usage_in_bytes" : "/memory.current", used) ||
        *used == UINT64_MAX || mli_cpu_read(cpu, end, "/memory.stat"))
        return -1;
    for (i = 0; i < 2; i++) {
        uint64_t cache = 0;
        if (mli_cpu_field(cpu, caches[cpu->v1][i], "", &cache)) return -1;
        *used -= cache < *used ? cache : *used;
    }
    return 0;
}

/* Applies the limit of the cgroup in a directory. It lowers *total to the limit, and *left to the
   bytes that the limit leaves. A cgroup without a limit (the root, or one where the controller is
   off) changes nothing. memory.high counts as a limit, because above it the kernel slows the
   processes down. Version 1 has no such file, but in memory.stat the lowest limit of the cgroup and
   of those above it. It counts in the directory at the `top`, because a container does not see what
   is above. Returns 0, or -1 if the limit is not known. */
static int mli_cpu_level(mli_cpu *cpu, size_t end, size_t top, uint64_t machine, uint64_t *total,
                         uint64_t *left) {
    uint64_t limit, high, used;
    if (mli_cpu_value(cpu, end, cpu->v1 ? "/memory.limit_in_bytes" : "/memory.max", &limit) ||
        mli_cpu_value(cpu, end, "/memory.high", &high))
        return -1;
    if (cpu->v1 && end == top &&
        (mli_cpu_read(cpu, end, "/memory.stat") ||
         mli_cpu_field(cpu, "hierarchical_memory_limit", "", &high)))
        return -1;
    if (high < limit) limit = high;
    if (!limit) return -1;
    if (limit > machine) return 0;
    if (mli_cpu_usage(cpu, end, &used)) return -1;
    if (used > limit) used = limit;
    if (limit < *total) {
        struct stat st;
        *total = limit;
        cpu->path[end] = 0;
        if (!stat(cpu->path, &st)) /* the inode is unique on the machine, also in containers */
            cpu->home = ((uint64_t)st.st_dev << 40 ^ (uint64_t)st.st_ino) | (uint64_t)1 << 63;
        memcpy(cpu->home_path, cpu->path, end + 1);
    }
    if (limit - used < *left) *left = limit - used;
    return 0;
}

/* Computes how much memory the process may have, from the memory of the machine and the limits of
   the process's cgroup and of all cgroups above it. *total is the lowest of these limits. *left is
   the least that any of them leaves. `root` is the length of the prefix cpu->root in cpu->path.
   Returns 0, or -1 if the memory is not known. */
static int mli_cpu_query(mli_cpu *cpu, size_t root, uint64_t *total, uint64_t *left) {
    uint64_t machine = 0;
    size_t top, end;
    const char *p;
    *left = UINT64_MAX;
    cpu->home = 0;
    if (mli_cpu_read(cpu, root, "/proc/meminfo") ||
        mli_cpu_field(cpu, "MemTotal:", " kB", &machine) || !machine ||
        mli_cpu_field(cpu, "MemAvailable:", " kB", left) || *left > machine ||
        mli_cpu_read(cpu, root, "/proc/self/cgroup"))
        return -1;
    *total = machine;
    p = mli_cpu_parse_cgroup(cpu->text, &cpu->v1);
    if (!p) return 0; /* the process is in no memory cgroup */
    top = mli_cpu_path(cpu, root, cpu->v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup");
    end = mli_cpu_path(cpu, top, p[1] ? p : "");
    while (!mli_cpu_level(cpu, end, top, machine, total, left)) {
        if (end == top) return 0;
        while (cpu->path[--end] != '/') {} /* cpu->path[top] is a slash, so the loop ends */
    }
    return -1;
}

/* Puts cpu->root, a prefix of all paths, into cpu->path, and returns the length of the prefix. */
static size_t mli_cpu_root(mli_cpu *cpu) {
    return mli_cpu_path(cpu, 0, cpu->root ? cpu->root : "");
}

/* Returns how many bytes of this process are in memory (RSS), or 0 if that is not known. `root` is
   the length of the prefix cpu->root in cpu->path. */
static uint64_t mli_cpu_process(mli_cpu *cpu, size_t root) {
    uint64_t bytes = 0;
    if (mli_cpu_read(cpu, root, "/proc/self/status") ||
        mli_cpu_field(cpu, "VmRSS:", " kB", &bytes))
        return 0;
    return bytes;
}

MLI_PRIVATE MLI_COLD int mli_cpu_sample(mli_cpu *cpu, uint64_t *total, uint64_t *used,
                                        uint64_t *process) {
    int saved = errno, cancel = mli_cancel_disable();
    size_t root = mli_cpu_root(cpu);
    uint64_t all, left;
    int r = mli_cpu_query(cpu, root, &all, &left);
    if (!r) {
        *total = all;
        *used = all - left;
        *process = mli_cpu_process(cpu, root);
    }
    mli_cancel_restore(cancel);
    errno = saved;
    return r;
}
/* Reads the first bytes of a file. Returns how many, or 0 after an error. Keeps errno. */
static MLI_COLD size_t mli_head_read(const char *path, char *buf, size_t cap) {
    int saved = errno, cancel = mli_cancel_disable();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, buf, cap);
    if (fd >= 0) (void)close(fd);
    mli_cancel_restore(cancel);
    errno = saved;
    return got > 0 ? (size_t)got : 0;
}
MLI_PRIVATE MLI_COLD void mli_line_read(const char *path, char *line, size_t cap) {
    line[mli_head_read(path, line, cap - 1)] = 0;
    line[strcspn(line, "\n")] = 0;
}
MLI_PRIVATE MLI_COLD int mli_link_is(const char *path, const char *text) {
    int saved = errno;
    char link[64];
    ssize_t got = readlink(path, link, sizeof link);
    errno = saved;
    return got == (ssize_t)strlen(text) && !memcmp(link, text, (size_t)got);
}
/* Sets the arguments from /proc/self/cmdline, where a 0 ends the program and each argument. */
static MLI_COLD void mli_arguments_set(mli_identity *out, const char *text, size_t n) {
    const size_t most = sizeof out->arguments - sizeof "...";
    size_t i, name = 0;
    while (name < n && text[name]) name++;
    if (name + 1 >= n) return;
    text += name + 1;
    n -= name + 1;
    if (!text[n - 1]) n--;
    if (n > most) { /* cuts no character of UTF-8 in two */
        for (n = most; n && ((unsigned char)text[n] & 0xc0) == 0x80; n--) {}
        memcpy(out->arguments + n, "...", sizeof "...");
    }
    for (i = 0; i < n; i++) out->arguments[i] = text[i] ? text[i] : ' ';
}
/* Reads the program's name and, if `arguments` is 1, its arguments. One buffer has both the path of
   a file and the text that is read, because a report may be written on a stack of 16 KiB. */
static MLI_COLD void mli_program_read(const char *root, int arguments, mli_identity *out) {
    static const char exe[] = "/proc/self/exe", cmdline[] = "/proc/self/cmdline";
    char text[sizeof out->arguments + MLI_PATH_MAX], *target = text + MLI_PATH_MAX;
    size_t n = root ? strlen(root) : 0;
    ssize_t got;
    if (n > MLI_PATH_MAX - sizeof cmdline) return;
    if (n) memcpy(text, root, n);
    memcpy(text + n, exe, sizeof exe);
    got = readlink(text, target, sizeof out->arguments);
    if (got > 0) mli_program_set(out, target, (size_t)got);
    memcpy(text + n, cmdline, sizeof cmdline);
    if (arguments) mli_arguments_set(out, text, mli_head_read(text, text, sizeof text));
}
MLI_PRIVATE MLI_COLD void mli_identity_read(const char *root, int arguments, mli_identity *out) {
    int saved = errno;
    memset(out, 0, sizeof *out);
    mli_program_read(root, arguments, out);
    mli_host_set(out);
    errno = saved;
}
MLI_PRIVATE MLI_COLD uint64_t mli_cpu_resident(mli_cpu *cpu) {
    int saved = errno, cancel = mli_cancel_disable();
    uint64_t bytes = mli_cpu_process(cpu, mli_cpu_root(cpu));
    mli_cancel_restore(cancel);
    errno = saved;
    return bytes;
}
#else

#if MLI_WINDOWS
/* Gets the memory use of a process. MemLord declares this function itself, because its name in the
   SDK's header depends on the SDK's version and settings. */
#ifdef __cplusplus
extern "C"
#endif
    BOOL WINAPI K32GetProcessMemoryInfo(HANDLE, PROCESS_MEMORY_COUNTERS *, DWORD);
MLI_PRIVATE int mli_cpu_sample(mli_cpu *cpu, uint64_t *total, uint64_t *used, uint64_t *process) {
    MEMORYSTATUSEX machine;
    PROCESS_MEMORY_COUNTERS self;
    (void)cpu;
    machine.dwLength = sizeof machine;
    if (!GlobalMemoryStatusEx(&machine) || machine.ullAvailPhys > machine.ullTotalPhys) return -1;
    *total = machine.ullTotalPhys;
    *used = machine.ullTotalPhys - machine.ullAvailPhys;
    *process = 0;
    if (K32GetProcessMemoryInfo(GetCurrentProcess(), &self, sizeof self))
        *process = self.WorkingSetSize;
    return 0;
}
#elif defined(__APPLE__)
MLI_PRIVATE int mli_cpu_sample(mli_cpu *cpu, uint64_t *total, uint64_t *used, uint64_t *process) {
    mach_port_t host = mach_host_self();
    vm_statistics64_data_t vm;
    mach_task_basic_info_data_t self;
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    uint64_t machine = 0, pages;
    size_t size = sizeof machine;
    kern_return_t r = host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&vm, &n);
    (void)cpu;
    (void)mach_port_deallocate(mach_task_self(), host);
    if (r != KERN_SUCCESS) return -1;
    if (sysctlbyname("hw.memsize", &machine, &size, NULL, 0) || !machine) return -1;
    pages = (uint64_t)vm.internal_page_count + vm.wire_count + vm.compressor_page_count;
    pages = pages > vm.purgeable_count ? pages - vm.purgeable_count : 0;
    *total = machine;
    *used = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    if (*used > machine) *used = machine;
    n = MACH_TASK_BASIC_INFO_COUNT;
    r = task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&self, &n);
    *process = r == KERN_SUCCESS ? self.resident_size : 0;
    return 0;
}
#else /* no portable call returns free memory */
MLI_PRIVATE int mli_cpu_sample(mli_cpu *cpu, uint64_t *total, uint64_t *used, uint64_t *process) {
    (void)cpu;
    (void)total;
    (void)used;
    (void)process;
    return -1;
}
#endif
MLI_PRIVATE MLI_COLD void mli_identity_read(const char *root, int arguments, mli_identity *out) {
#if MLI_WINDOWS
    char exe[MLI_PATH_MAX];
    wchar_t wide[MAX_PATH];
    DWORD n = GetModuleFileNameW(NULL, wide, MAX_PATH), size = sizeof out->host;
    int bytes = 0;
    (void)root;
    (void)arguments;
    memset(out, 0, sizeof *out);
    if (n && n < MAX_PATH)
        bytes = WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, exe, MLI_PATH_MAX, NULL, NULL);
    if (bytes > 0) mli_program_set(out, exe, (size_t)bytes);
    if (!GetComputerNameA(out->host, &size)) *out->host = 0;
#elif defined(__APPLE__)
    char exe[MLI_PATH_MAX];
    uint32_t size = sizeof exe;
    (void)root;
    (void)arguments;
    memset(out, 0, sizeof *out);
    if (!_NSGetExecutablePath(exe, &size)) mli_program_set(out, exe, strlen(exe));
    mli_host_set(out);
#else
    (void)root;
    (void)arguments;
    (void)mli_program_set;
    memset(out, 0, sizeof *out);
    mli_host_set(out);
#endif
}
MLI_PRIVATE void mli_line_read(const char *path, char *line, size_t cap) {
    (void)path;
    (void)cap;
    *line = 0;
}
MLI_PRIVATE int mli_link_is(const char *path, const char *text) {
    (void)path;
    (void)text;
    return 0;
}
MLI_PRIVATE MLI_COLD uint64_t mli_cpu_resident(mli_cpu *cpu) {
    uint64_t total = 0, used = 0, process = 0;
    return mli_cpu_sample(cpu, &total, &used, &process) ? 0 : process;
}
#endif
