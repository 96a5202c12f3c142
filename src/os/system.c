#include "os/system.h"

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
MLI_PRIVATE uint64_t mli_ticks(void) { return __builtin_ia32_rdtsc(); }
MLI_PRIVATE int mli_ticks_steady(void) { /* Intel and AMD call a steady counter "invariant TSC" */
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d >> 8 & 1);
}
#elif defined(__GNUC__) && defined(__aarch64__)
MLI_PRIVATE uint64_t mli_ticks(void) {
    uint64_t v;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
    return v;
}
MLI_PRIVATE int mli_ticks_steady(void) { return 1; }
#else
MLI_PRIVATE uint64_t mli_ticks(void) { return 0; }
MLI_PRIVATE int mli_ticks_steady(void) { return 0; }
#endif

#if MLI_WINDOWS

MLI_PRIVATE void *mli_pages_map(size_t size) {
    return VirtualAlloc(NULL, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}
MLI_PRIVATE void mli_pages_unmap(void *ptr, size_t size) {
    (void)size;
    (void)VirtualFree(ptr, 0, MEM_RELEASE);
}
MLI_PRIVATE uint64_t mli_now(void) {
    LARGE_INTEGER count, rate;
    (void)QueryPerformanceCounter(&count);
    (void)QueryPerformanceFrequency(&rate);
    return (uint64_t)(count.QuadPart / rate.QuadPart) * 1000000000u +
           (uint64_t)(count.QuadPart % rate.QuadPart) * 1000000000u / (uint64_t)rate.QuadPart;
}
MLI_PRIVATE uint64_t mli_wall_now(void) {
    FILETIME now;
    GetSystemTimeAsFileTime(&now); /* in units of 100 ns since 1601 */
    return ((((uint64_t)now.dwHighDateTime << 32) | now.dwLowDateTime) -
            UINT64_C(116444736000000000)) * 100;
}
MLI_PRIVATE void mli_yield(void) { (void)SwitchToThread(); }
MLI_PRIVATE void mli_nap(uint32_t ns) {
    (void)ns;
    Sleep(1); /* 1 ms is the shortest sleep */
}
MLI_PRIVATE uint64_t mli_pid(void) { return GetCurrentProcessId(); }
MLI_PRIVATE uint64_t mli_thread_number(void) { return GetCurrentThreadId(); }
MLI_PRIVATE int mli_env_read(const char *name, char *buf, size_t cap) {
    DWORD n = GetEnvironmentVariableA(name, buf, (DWORD)cap);
    return n < cap ? n > 0 : -1;
}
MLI_PRIVATE void mli_stderr_write(const char *text, size_t size) {
    DWORD done;
    HANDLE out = GetStdHandle(STD_ERROR_HANDLE);
    if (out && out != INVALID_HANDLE_VALUE) (void)WriteFile(out, text, (DWORD)size, &done, NULL);
}
MLI_PRIVATE uint32_t mli_barrier_register(void) { return 1; }
MLI_PRIVATE int mli_barrier_all(void) {
    FlushProcessWriteBuffers();
    return 1;
}
static int mli_wide_path(const char *path, wchar_t *out, int cap) {
    return MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out, cap) > 0 ? 0 : -1;
}
MLI_PRIVATE MLI_COLD uint32_t mli_system_error(void) { return (uint32_t)GetLastError(); }
MLI_PRIVATE MLI_COLD const char *mli_system_error_text(uint32_t error) {
    return error == ERROR_PATH_NOT_FOUND || error == ERROR_FILE_NOT_FOUND
               ? "there is no such directory"
           : error == ERROR_ACCESS_DENIED ? "this process may not write there"
           : error == ERROR_DISK_FULL     ? "there is no space left"
                                          : NULL;
}
MLI_PRIVATE int mli_file_is_special(const char *path) {
    wchar_t wide[1024];
    DWORD a;
    if (mli_wide_path(path, wide, 1024)) return 1;
    a = GetFileAttributesW(wide);
    return a != INVALID_FILE_ATTRIBUTES &&
           (a & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT | FILE_ATTRIBUTE_DEVICE));
}
MLI_PRIVATE MLI_COLD uint32_t mli_directory_error(const char *path) {
    wchar_t wide[1024];
    DWORD a = mli_wide_path(path, wide, 1024) ? 0 : GetFileAttributesW(wide);
    return a != INVALID_FILE_ATTRIBUTES && (a & FILE_ATTRIBUTE_DIRECTORY) ? 0
                                                                          : ERROR_PATH_NOT_FOUND;
}
MLI_PRIVATE int mli_file_create(const char *path, mli_file *out) {
    wchar_t wide[1024];
    if (mli_wide_path(path, wide, 1024)) return -1;
    *out = CreateFileW(wide, GENERIC_WRITE, 0, NULL, CREATE_NEW, FILE_ATTRIBUTE_NORMAL, NULL);
    if (*out != INVALID_HANDLE_VALUE) return 0;
    return GetLastError() == ERROR_FILE_EXISTS ? 1 : -1;
}
MLI_PRIVATE int mli_file_write(mli_file file, const char *data, size_t size) {
    DWORD done = 0;
    for (; size; data += done, size -= done) {
        DWORD piece = size > 1u << 20 ? 1u << 20 : (DWORD)size;
        if (!WriteFile(file, data, piece, &done, NULL) || !done) return -1;
    }
    return 0;
}
MLI_PRIVATE mli_file mli_file_stdout(void) { return GetStdHandle(STD_OUTPUT_HANDLE); }
MLI_PRIVATE int mli_file_is_terminal(mli_file file) {
    DWORD mode;
    return GetConsoleMode(file, &mode) != 0;
}
MLI_PRIVATE int mli_file_close(mli_file file) { return CloseHandle(file) ? 0 : -1; }
MLI_PRIVATE int mli_file_rename(const char *from, const char *to, int replace) {
    const DWORD flags = replace ? MOVEFILE_REPLACE_EXISTING : 0;
    wchar_t a[1024], b[1024];
    if (mli_wide_path(from, a, 1024) || mli_wide_path(to, b, 1024)) return -1;
    if (MoveFileExW(a, b, flags | MOVEFILE_WRITE_THROUGH)) return 0;
    return GetLastError() == ERROR_ALREADY_EXISTS || GetLastError() == ERROR_FILE_EXISTS ? 1 : -1;
}
MLI_PRIVATE void mli_file_remove(const char *path) {
    wchar_t wide[1024];
    if (!mli_wide_path(path, wide, 1024)) (void)DeleteFileW(wide);
}
MLI_PRIVATE mli_signals mli_signals_block(void) { return 0; }
MLI_PRIVATE void mli_signals_restore(mli_signals *held) { (void)held; }
MLI_PRIVATE int mli_exit_key_make(mli_exit_key *key, void(WINAPI *hook)(void *)) {
    *key = FlsAlloc(hook);
    return *key == FLS_OUT_OF_INDEXES ? -1 : 0;
}
MLI_PRIVATE int mli_exit_key_set(mli_exit_key key, void *value) {
    return FlsSetValue(key, value) ? 0 : -1;
}

/* -- an event to wait for, and threads of the ledger -- */
MLI_PRIVATE int mli_os_event_open(mli_os_event *event) {
    event->handle = CreateEventA(NULL, FALSE, FALSE, NULL);
    return event->handle ? 0 : -1;
}
MLI_PRIVATE void mli_os_event_close(mli_os_event *event) { (void)CloseHandle(event->handle); }
MLI_PRIVATE void mli_os_event_set(mli_os_event *event) { (void)SetEvent(event->handle); }
MLI_PRIVATE void mli_os_event_wait(mli_os_event *event, uint32_t ms) {
    (void)WaitForSingleObject(event->handle, ms);
}
static DWORD WINAPI mli_os_thread_main(void *job) {
    ((mli_job *)job)->run(((mli_job *)job)->user);
    return 0;
}
MLI_PRIVATE int mli_os_thread_start(mli_os_thread *out, mli_job *job) {
    *out = CreateThread(NULL, 0, mli_os_thread_main, job, 0, NULL);
    return *out ? 0 : -1;
}
MLI_PRIVATE void mli_os_thread_join(mli_os_thread worker) {
    (void)WaitForSingleObject(worker, INFINITE);
    (void)CloseHandle(worker);
}
#else

MLI_PRIVATE void *mli_pages_map(size_t size) {
    int saved = errno;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = saved;
    return p == MAP_FAILED ? NULL : p;
}
MLI_PRIVATE void mli_pages_unmap(void *ptr, size_t size) { (void)munmap(ptr, size); }
static uint64_t mli_posix_time(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t)) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
MLI_PRIVATE uint64_t mli_now(void) { return mli_posix_time(CLOCK_MONOTONIC); }
MLI_PRIVATE uint64_t mli_wall_now(void) { return mli_posix_time(CLOCK_REALTIME); }
MLI_PRIVATE void mli_yield(void) { (void)sched_yield(); }
MLI_PRIVATE uint64_t mli_pid(void) { return (uint64_t)getpid(); }
MLI_PRIVATE uint64_t mli_thread_number(void) {
#if defined(__linux__)
    int saved = errno;
    long number = syscall(__NR_gettid);
    errno = saved;
    if (number > 0) return (uint64_t)number;
#endif
    return (uint64_t)(uintptr_t)pthread_self();
}
MLI_PRIVATE int mli_env_read(const char *name, char *buf, size_t cap) {
    const char *value;
    size_t n;
#if defined(__linux__)
    if (getauxval(AT_SECURE)) return 0;
#else
    if (issetugid()) return 0;
#endif
    value = getenv(name);
    if (!value || !*value) return 0;
    n = strlen(value);
    if (n >= cap) return -1;
    memcpy(buf, value, n + 1);
    return 1;
}
MLI_PRIVATE MLI_COLD int mli_cancel_disable(void) {
    int before = 0;
#if defined(PTHREAD_CANCEL_DISABLE) /* Android has no cancellation */
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
#endif
    return before;
}
MLI_PRIVATE void mli_cancel_restore(int before) {
#if defined(PTHREAD_CANCEL_DISABLE)
    (void)pthread_setcancelstate(before, NULL);
#else
    (void)before;
#endif
}
MLI_PRIVATE MLI_COLD void mli_nap(uint32_t ns) {
    MLI_REQUIRE(ns < 1000000000u);
    int saved = errno, cancel = mli_cancel_disable();
    struct timespec span;
    span.tv_sec = 0;
    span.tv_nsec = (long)ns;
    (void)nanosleep(&span, NULL);
    mli_cancel_restore(cancel);
    errno = saved;
}
MLI_PRIVATE int mli_file_write(mli_file file, const char *data, size_t size) {
    while (size) {
        ssize_t n = write(file, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return -1;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}
MLI_PRIVATE mli_file mli_file_stdout(void) { return 1; }
MLI_PRIVATE int mli_file_is_terminal(mli_file file) { return isatty(file); }
MLI_PRIVATE void mli_stderr_write(const char *text, size_t size) {
    int saved = errno, cancel = mli_cancel_disable();
    (void)mli_file_write(2, text, size);
    mli_cancel_restore(cancel);
    errno = saved;
}
#if defined(__linux__) && defined(__NR_membarrier)
/* Calls membarrier. Returns 1 if that succeeds. The commands are numbers here, because older
   systems lack linux/membarrier.h. 8 is PRIVATE_EXPEDITED and 16 is its registration, both since
   Linux 4.14. Command 8 may fail after 16 has succeeded, in a sandbox that the process entered
   later, or if the kernel is short of memory. */
static MLI_COLD int mli_membarrier(int command) {
    int saved = errno, done = syscall(__NR_membarrier, command, 0, 0) == 0;
    errno = saved;
    return done;
}
MLI_PRIVATE uint32_t mli_barrier_register(void) { return mli_membarrier(16) != 0; }
MLI_PRIVATE int mli_barrier_all(void) { return mli_membarrier(8); }
#else
MLI_PRIVATE uint32_t mli_barrier_register(void) { return 0; }
MLI_PRIVATE int mli_barrier_all(void) { return 0; }
#endif

MLI_PRIVATE MLI_COLD uint32_t mli_system_error(void) { return (uint32_t)errno; }
/* Does not use strerror, because its texts depend on the locale, and it may allocate memory. */
MLI_PRIVATE MLI_COLD const char *mli_system_error_text(uint32_t error) {
    switch ((int)error) {
    case ENOENT: return "there is no such directory";
    case ENOTDIR: return "a part of the path is no directory";
    case EACCES:
    case EPERM: return "this process may not write there";
    case EROFS: return "the file system is read-only";
    case ENOSPC:
    case EDQUOT: return "there is no space left";
    case EFBIG: return "the file is larger than this process may write";
    case EBADF: return "it is not open";
    case EPIPE: return "nobody reads it";
    case EIO: return "the device failed";
    default: return NULL;
    }
}
MLI_PRIVATE int mli_file_is_special(const char *path) {
    struct stat st;
    if (!lstat(path, &st)) return !S_ISREG(st.st_mode);
    return errno != ENOENT && errno != EOVERFLOW; /* EOVERFLOW: a size above 32 bits */
}
MLI_PRIVATE MLI_COLD uint32_t mli_directory_error(const char *path) {
    struct stat st;
    if (!stat(path, &st) && !S_ISDIR(st.st_mode)) return ENOTDIR;
    if (!faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS)) return 0;
    return errno == EINVAL ? 0 : mli_system_error(); /* EINVAL: Android may not know AT_EACCESS */
}
MLI_PRIVATE int mli_fd_above_std(int fd) {
    int higher;
    if (fd >= 3) return fd;
    higher = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    (void)close(fd);
    return higher;
}
MLI_PRIVATE int mli_file_create(const char *path, mli_file *out) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return errno == EEXIST ? 1 : -1;
    *out = mli_fd_above_std(fd);
    if (*out >= 0) return 0;
    (void)unlink(path);
    return -1;
}
MLI_PRIVATE int mli_file_close(mli_file file) { return close(file); }
MLI_PRIVATE int mli_file_rename(const char *from, const char *to, int replace) {
    if (replace) return rename(from, to);
    if (!link(from, to)) return unlink(from) ? -1 : 0;
    if (errno == EEXIST || !access(to, F_OK)) return 1;
    return rename(from, to); /* without hard links; may replace a new file */
}
MLI_PRIVATE void mli_file_remove(const char *path) { (void)unlink(path); }
static const int mli_write_signals[] = {SIGXFSZ, SIGPIPE};
MLI_PRIVATE mli_signals mli_signals_block(void) {
    mli_signals held;
    sigset_t set;
    size_t i;
    held.cancel = mli_cancel_disable();
    (void)sigpending(&held.pending);
    (void)sigemptyset(&set);
    for (i = 0; i < 2; i++) (void)sigaddset(&set, mli_write_signals[i]);
    (void)pthread_sigmask(SIG_BLOCK, &set, &held.before);
    return held;
}
MLI_PRIVATE void mli_signals_restore(mli_signals *held) {
    sigset_t set;
    size_t i;
    int number;
    for (i = 0; i < 2; i++) {
        (void)sigpending(&set);
        if (sigismember(&held->pending, mli_write_signals[i]) == 1 ||
            sigismember(&set, mli_write_signals[i]) != 1)
            continue;
        (void)sigemptyset(&set);
        (void)sigaddset(&set, mli_write_signals[i]);
        (void)sigwait(&set, &number);
    }
    (void)pthread_sigmask(SIG_SETMASK, &held->before, NULL);
    mli_cancel_restore(held->cancel);
}
MLI_PRIVATE int mli_exit_key_make(mli_exit_key *key, void (*hook)(void *)) {
    return pthread_key_create(key, hook);
}
MLI_PRIVATE int mli_exit_key_set(mli_exit_key key, void *value) {
    return pthread_setspecific(key, value);
}
MLI_PRIVATE void mli_exit_key_delete(mli_exit_key key) { (void)pthread_key_delete(key); }

/* -- an event to wait for, and threads of the ledger -- */
MLI_PRIVATE MLI_COLD int mli_os_event_open(mli_os_event *event) {
    pthread_condattr_t attr;
    int bad;
    if (pthread_condattr_init(&attr)) return -1;
#if defined(__APPLE__)
    bad = 0; /* Apple waits for a relative time and needs no clock */
#else
    bad = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
#endif
    event->set = 0;
    bad = bad || pthread_mutex_init(&event->mutex, NULL);
    if (!bad && pthread_cond_init(&event->cond, &attr)) {
        (void)pthread_mutex_destroy(&event->mutex);
        bad = 1;
    }
    (void)pthread_condattr_destroy(&attr);
    return bad ? -1 : 0;
}
MLI_PRIVATE void mli_os_event_close(mli_os_event *event) {
    (void)pthread_cond_destroy(&event->cond);
    (void)pthread_mutex_destroy(&event->mutex);
}
MLI_PRIVATE MLI_COLD void mli_os_event_set(mli_os_event *event) {
    (void)pthread_mutex_lock(&event->mutex);
    event->set = 1;
    (void)pthread_cond_signal(&event->cond);
    (void)pthread_mutex_unlock(&event->mutex);
}
MLI_PRIVATE MLI_COLD void mli_os_event_wait(mli_os_event *event, uint32_t ms) {
    struct timespec until;
    uint64_t ns = (uint64_t)ms * 1000000u;
    int late = 0, cancel = mli_cancel_disable();
#if !defined(__APPLE__)
    ns += mli_now();
#endif
    until.tv_sec = (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    (void)pthread_mutex_lock(&event->mutex);
    while (!event->set && !late) {
#if defined(__APPLE__)
        late = pthread_cond_timedwait_relative_np(&event->cond, &event->mutex, &until);
#else
        late = pthread_cond_timedwait(&event->cond, &event->mutex, &until);
#endif
    }
    event->set = 0;
    (void)pthread_mutex_unlock(&event->mutex);
    mli_cancel_restore(cancel);
}
static void *mli_os_thread_main(void *job) {
    (void)mli_cancel_disable(); /* callbacks of the host run here, and could cancel this thread */
    ((mli_job *)job)->run(((mli_job *)job)->user);
    return NULL;
}
MLI_PRIVATE int mli_os_thread_start(mli_os_thread *out, mli_job *job) {
    sigset_t every, before;
    int bad;
    (void)sigfillset(&every);
    (void)pthread_sigmask(SIG_SETMASK, &every, &before);
    bad = pthread_create(out, NULL, mli_os_thread_main, job);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return bad ? -1 : 0;
}
MLI_PRIVATE void mli_os_thread_join(mli_os_thread worker) {
    int cancel = mli_cancel_disable();
    (void)pthread_join(worker, NULL);
    mli_cancel_restore(cancel);
}
#endif

MLI_PRIVATE MLI_COLD int mli_thread_has_ended(uint64_t number) {
#if defined(__linux__)
    int saved = errno, gone;
    if (number >> 31) return 0; /* the number is a pthread_self, not one of the kernel */
    gone = syscall(__NR_tgkill, (long)getpid(), (long)number, 0L) == -1 && errno == ESRCH;
    errno = saved;
    return gone;
#else
    (void)number;
    return 0;
#endif
}

MLI_PRIVATE MLI_COLD uint32_t mli_ms_left(uint64_t deadline) {
    const uint64_t now = mli_now();
    return now < deadline ? (uint32_t)((deadline - now + 999999u) / 1000000u) : 0;
}
